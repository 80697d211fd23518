/* advise_tool.c - will it fit, how, and how fast: a model and a machine by name or from a small text file.

     advise_tool llama-2-7b 4090 --may bf16,8bit --batch 8
     advise_tool llama-3-8b 8xh100 --length 8192 --may bf16 --batch 64
     advise_tool gpt2 4xcore --batch 8 --memory 2                (cores of a machine, dealt to ranks and their threads)
     advise_tool --measure my.machine --threads 8 --disk /data   (half a minute: products, memory, a disk)
     advise_tool my.model my.machine

   What to see: nothing of the model is there; memopt_advise_solve() goes through all it knows in less than a second and
   tells the best plan, what it would cost with less memory, and why not otherwise. Exit status 1: nothing fits.
   A file has a line for each field: `layers 32`, `gated 1`; of a machine `memory 24e9`, `bf16_rate 165e12`. Measured
   speeds have efficiency 1: they are what products reach, not what a data sheet promises.
   Build: cc -O2 advise_tool.c -o advise_tool -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "parts/advise_text.h"
#include "parts/machine.h"
#include <errno.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */
typedef struct known_model {
    const char *name;
    double layers, width, heads, kv_heads, mlp, vocabulary, length, llama, tied;
} known_model;

static const known_model models[] = { { "gpt2", 12, 768, 12, 0, 0, 50257, 1024, 0, 1 },
                                      { "gpt2-medium", 24, 1024, 16, 0, 0, 50257, 1024, 0, 1 },
                                      { "gpt2-large", 36, 1280, 20, 0, 0, 50257, 1024, 0, 1 },
                                      { "gpt2-xl", 48, 1600, 25, 0, 0, 50257, 1024, 0, 1 },
                                      { "llama-2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, 1, 0 },
                                      { "llama-2-13b", 40, 5120, 40, 40, 13824, 32000, 4096, 1, 0 },
                                      { "llama-2-70b", 80, 8192, 64, 8, 28672, 32000, 4096, 1, 0 },
                                      { "llama-3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, 1, 0 },
                                      { "llama-3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, 1, 0 },
                                      { "llama-3-405b", 126, 16384, 128, 8, 53248, 128256, 8192, 1, 0 },
                                      { "llama-3.2-1b", 16, 2048, 32, 8, 8192, 128256, 4096, 1, 1 },
                                      { "llama-3.2-3b", 28, 3072, 24, 8, 8192, 128256, 4096, 1, 1 },
                                      { "1t", 128, 25600, 160, 0, 0, 51200, 2048, 0, 0 } };

/* Dense rates, without sparsity; memory and rates of links as data sheets have them: Tflop/s, GB, GB/s. */
typedef struct known_device {
    const char *name;
    double memory, f32, bf16, bandwidth, local, network, host, processors, efficiency;
} known_device;

static const known_device devices[] = { { "v100-32", 32, 15.7, 125, 900, 150, 12, 12, 80, 0.45 },
                                        { "t4", 16, 8.1, 65, 320, 12, 3, 12, 40, 0.45 },
                                        { "a10", 24, 31.2, 125, 600, 25, 6, 25, 72, 0.45 },
                                        { "l4", 24, 30.3, 121, 300, 25, 6, 25, 58, 0.45 },
                                        { "l40s", 48, 91.6, 362, 864, 25, 12, 25, 142, 0.45 },
                                        { "a100-40", 40, 19.5, 312, 1555, 300, 25, 25, 108, 0.55 },
                                        { "a100-80", 80, 19.5, 312, 2039, 300, 25, 25, 108, 0.55 },
                                        { "h100", 80, 67, 989, 3350, 450, 50, 50, 132, 0.4 },
                                        { "h100-pcie", 80, 51, 756, 2000, 50, 25, 50, 114, 0.4 },
                                        { "h200", 141, 67, 989, 4800, 450, 50, 50, 132, 0.4 },
                                        { "b200", 180, 80, 2250, 8000, 900, 50, 50, 148, 0.4 },
                                        { "3090", 24, 35.6, 71, 936, 25, 3, 25, 82, 0.5 },
                                        { "4090", 24, 82.6, 165, 1008, 25, 3, 25, 128, 0.5 },
                                        { "mi250x", 64, 24, 191.5, 1638, 50, 25, 36, 110, 0.45 },
                                        { "mi300x", 192, 163, 1307, 5300, 448, 50, 50, 304, 0.35 },
                                        { "core", 0.7, 0.11, 0.11, 13, 4, 1, 10, 0, 0.8 } };

/* In upper or lower case: Llama-3-8B, 8xH100. */
static int is_name(const char *name, const char *given) {
    for (; *name && *name == tolower((unsigned char)*given); ++name) ++given;
    return !*name && !*given;
}

/* ---- numbers ---- */
enum { MOST_COUNT = 1 << 30 };

/* A whole number from 1; 0: it is one. */
static int read_count(const char *text, size_t *out) {
    const size_t digits = strspn(text, "0123456789");
    unsigned long n;

    if (!digits || digits > 10 || text[digits]) return 1;
    n = strtoul(text, NULL, 10);
    if (!n || n > MOST_COUNT) return 1;
    *out = n;
    return 0;
}

static int read_gigabytes(const char *text, uint64_t *bytes) {
    char *end;
    const double x = strtod(text, &end);

    if (end == text || *end || !(x > 0 && x <= 1e9)) return 1;
    *bytes = (uint64_t)(x * 1e9);
    return 0;
}

/* Words with commas between them. */
static int read_permissions(const char *text, unsigned *may) {
    static const char *const words[3] = { "bf16", "8bit", "batch" };

    static const unsigned bits[3] = { MEMOPT_ADVISE_MAY_BF16, MEMOPT_ADVISE_MAY_8BIT, MEMOPT_ADVISE_MAY_BATCH };
    size_t n, i;

    for (*may = 0;; text += n + 1) {
        n = strcspn(text, ",");
        for (i = 0; i < 3 && (strlen(words[i]) != n || strncmp(words[i], text, n)); ++i) {}
        if (i == 3) return 1;
        *may |= bits[i];
        if (!text[n]) return 0;
    }
}

/* ---- files ---- */
typedef struct field {
    const char *name;
    size_t at;
    int kind;
} field; /* 0 size_t, 1 int */

#define MODEL(name, kind)                                                                                              \
    { #name, offsetof(memopt_advise_model, name), kind }
static const field model_fields[] = { MODEL(layers, 0),      MODEL(width, 0),     MODEL(heads, 0),
                                      MODEL(kv_heads, 0),    MODEL(mlp, 0),       MODEL(vocabulary, 0),
                                      MODEL(length, 0),      MODEL(positions, 0), MODEL(gated, 1),
                                      MODEL(rms, 1),         MODEL(no_bias, 1),   MODEL(tied, 1),
                                      MODEL(not_causal, 1),  MODEL(dropout, 1),   MODEL(mlp_kept, 0),
                                      MODEL(logit_bytes, 0), { NULL, 0, 0 } };

static int set_field(void *of, const field *f, double value) {
    unsigned char *at = (unsigned char *)of + f->at;

    if (!(value >= 0 && value < 4e9 && (double)(size_t)value >= value)) return 1; /* whole */
    if (f->kind == 0) {
        const size_t x = (size_t)value;

        memcpy(at, &x, sizeof x);
    }
    if (f->kind == 1) {
        const int x = value < 1000 ? (int)value : 1000;

        memcpy(at, &x, sizeof x);
    }
    return 0;
}

/* What is told of a folder, say, which opens as a file does. */
static int cannot_be_read(const char *path, FILE *file) {
    fprintf(stderr, "advise_tool: %s could not be read: %s\n", path, strerror(errno));
    fclose(file);
    return 1;
}

static int read_model(const char *path, const field *fields, void *out) {
    FILE *file = fopen(path, "r");
    char line[256], name[64], more;
    double value;
    int number = 0;

    unsigned seen = 0;
    const field *f;

    if (!file) {
        fprintf(stderr, "advise_tool: %s is no known name, and no file; without arguments all names are told\n", path);
        return 1;
    }
    while (fgets(line, sizeof line, file)) {
        ++number;
        if (line[0] == '#' || sscanf(line, "%63s", name) != 1) continue;
        for (f = fields; f->name && strcmp(f->name, name); ++f) {}
        if (!f->name || sscanf(line, "%*s %lf %c", &value, &more) != 1 || set_field(out, f, value)
            || (seen >> (f - fields) & 1)) {
            fprintf(stderr, "advise_tool: %s, line %d: no field with a number, or one that comes twice: %s", path,
                    number, line);
            fclose(file);
            return 1;
        }
        seen |= 1u << (f - fields);
    }
    if (ferror(file)) return cannot_be_read(path, file);
    fclose(file);
    return 0;
}

static int read_machine(const char *path, memopt_advise_machine *m) {
    char line[300];
    FILE *file = fopen(path, "rb");
    memopt_error why = { 0 };
    memopt_status s;

    if (!file) {
        fprintf(stderr, "advise_tool: %s is no known name, and no file; without arguments all names are told\n", path);
        return 1;
    }
    s = machine_read(file, m, &why);
    if (s == MEMOPT_ERR_IO) return cannot_be_read(path, file);
    fclose(file);
    if (!s) return 0;
    (void)memopt_error_text(&why, line, sizeof line, NULL);
    fprintf(stderr, "advise_tool: %s: %s\n", path, line);
    return 1;
}

static int find_model(const char *name, memopt_advise_model *m) {
    for (size_t i = 0; i < sizeof models / sizeof *models; ++i) {
        const known_model *k = &models[i];

        if (!is_name(k->name, name)) continue;
        m->layers = (size_t)k->layers;
        m->width = (size_t)k->width;
        m->heads = (size_t)k->heads;
        m->kv_heads = (size_t)k->kv_heads;
        m->mlp = (size_t)k->mlp;
        m->vocabulary = (size_t)k->vocabulary;
        m->length = (size_t)k->length;
        m->tied = k->tied > 0;
        m->gated = m->rms = m->no_bias = k->llama > 0;
        m->positions = k->llama > 0 ? 0 : m->length;
        return 0;
    }
    return read_model(name, model_fields, m);
}

static int find_machine(const char *name, memopt_advise_machine *a) { /* 8xh100, h100, a file */
    const size_t digits = strspn(name, "0123456789"), counted = digits && name[digits] == 'x';
    size_t count = 1;
    char number[16] = "";

    if (counted) {
        snprintf(number, sizeof number, "%.*s", (int)(digits < 15 ? digits : 15), name);
        if (read_count(number, &count)) {
            fprintf(stderr, "advise_tool: %s: give 1 to %d of a machine\n", name, MOST_COUNT);
            return 1;
        }
    }
    for (size_t i = 0; i < sizeof devices / sizeof *devices; ++i) {
        const known_device *k = &devices[i];

        if (!is_name(k->name, counted ? name + digits + 1 : name)) continue;
        a->processors = count;
        a->of_host = k->processors > 0 && count % 8 == 0 ? 8 : count; /* cores are of one host */
        a->memory = (uint64_t)(k->memory * 1e9);
        a->reserve = k->processors > 0 ? 600000000 : 6000000; /* a context, or a process */
        a->host_memory = k->processors > 0 ? (uint64_t)64e9 * a->of_host : 0;
        a->host_bandwidth = k->host * 1e9;
        a->f32_rate = k->f32 * 1e12;
        a->bf16_rate = k->bf16 * 1e12;
        a->efficiency = k->efficiency;
        a->bandwidth = k->bandwidth * 1e9;
        a->multiprocessors = (size_t)k->processors;
        a->most_threads = k->processors > 0 ? 1 : a->of_host; /* cores share their memory */
        a->local.bandwidth = k->local * 1e9;
        a->local.latency = 5e-6;
        a->local.waits = !(k->processors > 0); /* as threads do */
        a->network.bandwidth = k->network * 1e9;
        a->network.latency = 2e-5;
        return 0;
    }
    return read_machine(name, a);
}

/* ---- this machine, measured ---- */
static int measure(int argc, char **argv) { /* FILE [--threads N] [--disk DIR] */

    enum { TILES = 16 };

    memopt_advise_machine m = { 0 };
    machine_trial t = { 0 };
    memopt_error why = { 0 };
    memopt_store_desc store = { 0 };
    memopt_thread_pool *pool = NULL;
    memopt_threads threads;
    char text[1000], place[1000];
    size_t threads_wanted = 1;
    FILE *file;
    int wrong;

    for (int i = 3; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        int known;

        known = !strcmp(argv[i], "--threads") && !read_count(value, &threads_wanted) && threads_wanted <= 1024;
        if (!strcmp(argv[i], "--disk") && *value
            && snprintf(place, sizeof place, "%s/memopt-advise.trial", value) < (int)sizeof place) {
            store.path = place;
            known = 1;
        }
        if (!known) {
            fprintf(stderr, "advise_tool: --measure FILE takes --threads, 1 to 1024, and --disk, a folder; not %s %s\n",
                    argv[i], value);
            return 2;
        }
    }
    t.products = 1;
    t.error = &why;
    t.nanoseconds = UINT64_C(4000000000);
    if (threads_wanted != 1) {
        if (memopt_thread_pool_create(NULL, (int)threads_wanted, &pool)) {
            fprintf(stderr, "advise_tool: no %zu threads: compile with -DMEMOPT_PTHREADS -pthread\n", threads_wanted);
            return 2;
        }
        threads = memopt_thread_pool_threads(pool);
        t.threads = &threads;
    }
    store.tile_bytes = (size_t)4 << 20;
    store.tiles = TILES;
    if (store.path) t.store = &store;
    wrong = machine_calibrate(&t, &m);
    memopt_thread_pool_destroy(pool);
    if (!wrong) wrong = memopt_memory_available(NULL, &m.memory);
    m.reserve = 6000000;
    if (wrong) {
        fprintf(stderr, "%s\n", memopt_error_text(&why, text, sizeof text, NULL) ? "" : text);
        return 2;
    }
    file = fopen(argv[2], "w");
    wrong = !file || fprintf(file, "# %u threads of this machine, measured\n", (unsigned)threads_wanted) < 0
        || machine_write(&m, file);
    if ((file && fclose(file)) || wrong) {
        fprintf(stderr, "advise_tool: %s could not be written\n", argv[2]);
        return 2;
    }
    printf("fp32 %.1f, bf16 %.1f Gflop/s, memory %.1f GB/s: %s\n", m.f32_rate / 1e9, m.bf16_rate / 1e9,
           m.bandwidth / 1e9, argv[2]);
    return 0;
}

/* ---- the answer ---- */
static const char *value_name(const memopt_advise_other *o) {
    static const char *const names[MEMOPT_ADVISE_MEASURES][4] = {
        { "nothing cut (stage 0)", "stage 1", "stage 2", "stage 3" },
        { "one set of ranks", "several sets of ranks" },
        { "step after backward", "step inside backward" },
        { "weights fp32", "weights bf16 split", "weights bf16" },
        { "states fp32", "states bf16", "states 8-bit" },
        { "no slow tier", "states on a slow tier", "weights on it, too" },
        { "attention by rows", "attention whole" },
        { "head whole", "head by rows" },
        { "MLP whole", "MLP by rows" },
        { "nothing computed again", "something computed again" },
        { "ranks of one thread", "ranks of several threads" }
    };

    return names[o->measure][o->value];
}

static uint64_t of_processor(const memopt_advice *a) {
    return (a->bytes.total + a->choice.threads - 1) / a->choice.threads;
}

static void tell_plan(const memopt_advice *a) {
    const memopt_advise_bytes *b = &a->bytes;
    const memopt_advise_seconds *s = &a->seconds;
    char line[400] = "";

    if (memopt_advise_text(&a->choice, line, sizeof line, NULL)) return;
    printf("%s\n\n", line);
    printf("GB of a rank  parameters %.2f, gradients %.2f, optimizer %.2f, activations %.2f, buckets %.2f, other %.2f: "
           "%.2f\n",
           (double)b->parameters / 1e9, (double)b->gradients / 1e9, (double)b->optimizer / 1e9,
           (double)b->activations / 1e9, (double)b->communication / 1e9, (double)(b->other + b->reserve) / 1e9,
           (double)b->total / 1e9);
    if (b->slow) printf("on the slow tier %.2f GB of a rank\n", (double)b->slow / 1e9);
    printf("step, s       products %.3f, recompute %.3f, passes %.3f, network %.3f, slow tier %.3f: %.3f\n",
           s->products, s->recompute, s->passes, s->communication, s->offload, s->total);
    printf("              %.0f tokens/s (estimated), MFU %.1f %%\n", a->tokens, 100 * a->mfu);
}

/* The same micro-batch without any of it: fp32, nothing cut, everything kept. */
static void tell_plain(const memopt_advise_desc *d, const memopt_advise_choice *best) {
    memopt_advise_choice plain = { 0 };
    memopt_advice a;

    plain.ranks = plain.threads = 1;
    plain.micro_batch = best->micro_batch;
    plain.whole_scores = 1;
    plain.keep_budget = SIZE_MAX;
    if (!memopt_advise_price(d, &plain, &a))
        printf("\nplain         fp32, nothing cut, everything kept: %.2f GB of a processor\n",
               (double)of_processor(&a) / 1e9);
}

static void tell_rest(const memopt_advise_result *r) {
    char line[400] = "";

    printf("\nGB       tokens/s   with less memory (of a processor)\n");
    for (size_t i = r->frontier_count; i-- > 0;)
        if (!memopt_advise_text(&r->frontier[i].choice, line, sizeof line, NULL))
            printf("%-8.2f %-10.0f %s\n", (double)of_processor(&r->frontier[i]) / 1e9, r->frontier[i].tokens, line);
    printf("\nwhy not\n");
    for (size_t i = 0; i < r->other_count; ++i) {
        const memopt_advise_other *o = &r->others[i];

        if (o->fits)
            printf("  %-28s %.1f %% of the speed, %.2f GB\n", value_name(o), 100 * o->advice.tokens / r->best.tokens,
                   (double)of_processor(&o->advice) / 1e9);
        else printf("  %-28s needs %.2f GB\n", value_name(o), (double)of_processor(&o->advice) / 1e9);
    }
}

static void tell_failure(const memopt_advise_result *r, const memopt_advise_desc *d) {
    const memopt_advise_bytes *b = &r->best.bytes;
    const uint64_t terms[7] = { b->parameters,    b->gradients, b->optimizer, b->activations,
                                b->communication, b->other,     b->reserve };
    static const char *const names[7] = { "parameters", "gradients", "optimizer", "activations",
                                          "buckets",    "other",     "reserve" };
    char words[24] = "";
    int largest = 0;

    for (int i = 1; i < 7; ++i)
        if (terms[i] > terms[largest]) largest = i;
    printf("Nothing that is permitted fits %.2f GB. The least is %.2f GB, most of it %s, %.2f GB:\n",
           (double)d->machine.memory / 1e9, (double)of_processor(&r->best) / 1e9, names[largest],
           (double)terms[largest] / 1e9);
    if (r->never) printf("(no permission would help)\n");
    else {
        snprintf(words, sizeof words, "%s%s%s", r->needs & MEMOPT_ADVISE_MAY_BF16 ? ",bf16" : "",
                 r->needs & MEMOPT_ADVISE_MAY_8BIT ? ",8bit" : "", r->needs & MEMOPT_ADVISE_MAY_BATCH ? ",batch" : "");
        printf("(--may %s would do)\n", words + 1);
    }
}

/* 0: it is one, and its value is as it should be. */
static int option(const char *name, const char *value, memopt_advise_desc *d) {
    if (!strcmp(name, "--batch")) return read_count(value, &d->batch);
    if (!strcmp(name, "--memory")) return read_gigabytes(value, &d->machine.memory);
    if (!strcmp(name, "--may")) return read_permissions(value, &d->may);
    if (strcmp(name, "--length") || read_count(value, &d->model.length)) return 1;
    if (d->model.positions) d->model.positions = d->model.length;
    return 0;
}

static int options(int argc, char **argv, memopt_advise_desc *d) {
    for (int i = 3; i < argc; ++i) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (!strcmp(argv[i], "--clips")) {
            d->clips = 1;
            continue;
        }
        if (option(argv[i], value, d)) {
            fprintf(stderr,
                    "advise_tool: %s %s: give --batch or --length and a whole number, --memory and GB, --may and "
                    "bf16,8bit,batch, or --clips\n",
                    argv[i], value);
            return 1;
        }
        ++i;
    }
    return 0;
}

int main(int argc, char **argv) {
    static memopt_advise_result result;
    memopt_advise_desc d = { 0 };
    memopt_error why = { 0 };
    char line[256] = "";
    memopt_status s;

    if (argc > 2 && !strcmp(argv[1], "--measure")) return measure(argc, argv);
    if (argc < 3) {
        fprintf(stderr, "advise_tool MODEL [Nx]MACHINE [--batch SEQUENCES] [--length TOKENS] [--memory GB] [--may "
                        "bf16,8bit,batch] [--clips]\nadvise_tool --measure FILE [--threads N] [--disk DIR]\nmodels:");
        for (size_t i = 0; i < sizeof models / sizeof *models; ++i) fprintf(stderr, " %s", models[i].name);
        fprintf(stderr, "\nmachines:");
        for (size_t i = 0; i < sizeof devices / sizeof *devices; ++i) fprintf(stderr, " %s", devices[i].name);
        fprintf(stderr, "\nor files with a line for each field\n");
        return 2;
    }
    if (find_model(argv[1], &d.model) || find_machine(argv[2], &d.machine)) return 2;
    d.batch = d.machine.processors ? d.machine.processors : 1;
    d.error = &why;
    if (options(argc, argv, &d)) return 2;
    s = memopt_advise_solve(&d, &result);
    if (s && (s != MEMOPT_ERR_MEMORY || !result.combinations)) {
        fprintf(stderr, "%s\n", memopt_error_text(&why, line, sizeof line, NULL) ? "" : line);
        return 2;
    }
    if (s) tell_failure(&result, &d);
    tell_plan(&result.best);
    tell_plain(&d, &result.best.choice);
    if (!s) tell_rest(&result);
    printf("\n%u combinations, each with micro-batches and schedules\n", (unsigned)result.combinations);
    return s != MEMOPT_OK;
}
