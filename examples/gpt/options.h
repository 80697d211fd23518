/* options.h - what train_gpt can be told, presets, and the sentences for what does not go together. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H
#include "memopt.h"
#include "outcome.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum keep_kind { KEEP_CONVENTIONAL, KEEP_ARENA, KEEP_EVERY, KEEP_BUDGET, KEEP_OVERHEAD,
                         KEEP_LEAST /* no switch: the smallest plan, for what comes before training */ } keep_kind;
typedef enum weights_kind { WEIGHTS_F32, WEIGHTS_BF16, WEIGHTS_SPLIT } weights_kind;
typedef enum decline { RATE_CONSTANT, RATE_LINEAR, RATE_COSINE } decline;
typedef enum model_kind {
    MODEL_GPT, MODEL_VIT, MODEL_LLAMA, MODEL_MISTRAL, MODEL_QWEN2, MODEL_QWEN3, MODEL_SMOLLM
} model_kind;
enum { OFFLOAD_STATES = 1, OFFLOAD_WEIGHTS = 2, OFFLOAD_ACTIVATIONS = 4 };
typedef struct options { /* sizes are checked: none is 0 where that makes no sense, none overflows */
    model_kind  model;
    const char *preset, *program;                     /* program: the path by which it was called */
    size_t      layers, width, heads, context, vocab; /* vocab: as in the data; weights have it padded to 128 */
    size_t      window;                               /* tokens that one attends to; 0 = all before it */
    int         documents;                            /* of a sequence: none sees another */
    const char *data;                                 /* NULL = examples/text.txt */
    size_t      batch, steps, accumulate, warmup, threads, sample;
    size_t      validate;                             /* every so many steps; 0 = off */
    double      rate;                                 /* --lr */
    decline     schedule;
    size_t      scale_rate;                           /* --scale-lr BATCH; 0 = off */
    double      clip, dropout, outliers;              /* outliers: --skip-outliers; 0 = off */
    uint64_t    seed;
    keep_kind   keep;
    size_t      every, budget;                        /* of --keep */
    double      overhead;                             /* 0.33 for 33 */
    weights_kind weights;
    memopt_type gradients;
    memopt_optim_kind optimizer; memopt_state_format states;
    size_t      head_chunk, mlp_chunk;                /* rows; 0 = whole */
    int         lean_attention, fuse_step, graph, dry_run, blas;
    size_t      fit, advise;                          /* bytes; 0 = off */
    size_t      processors;                           /* of --advise: ranks times threads; 0 = as given */
    uint64_t    given;                                /* switches that were: bits of switch_id */
    const char *json;                                 /* file, or NULL */
    const char *save, *resume;                        /* directories, or NULL */
    size_t      save_every;                           /* steps; 0: at the end alone */
    size_t      ranks, stage, units;                  /* 0 ranks = off; units: of a step, each a batch */
    size_t      replicas;                             /* sets of ranks, each of which holds all */
    size_t      rank;                                 /* of this process, with */
    const char *id_file;                              /* a file, or NULL: ranks are threads */
    size_t      pipeline, chunks;                     /* ranks that share a pass by layers; runs of layers of each */
    size_t      pipeline_bytes;                       /* that one of them may take, to wait less; 0: as few as there are */
    size_t      tensor, parts;                        /* ranks that share a pass by width; parts of the model, 0 = whole */
    size_t      sequence;                             /* by length, then parts are of its rows; 0: whole */
    int         offload;                              /* OFFLOAD_..., or'ed */
    const char *offload_to;                           /* a folder; NULL: memory of the host */
    const char *speeds;                               /* file, or NULL */
    int         ladder, ends, batch_table;            /* run the tables instead of one training */
    int         frontier;                             /* train the plans of --advise, too */
    int         grids;                                /* --advise looks for --pipeline, --tensor and --stage alone */
    int         quiet;                                /* no progress line */
    int         help;                                 /* --help was given: contradictions have not been looked at */
} options;
/**
 * Read the command line. 0: fine; else `message` is a sentence that says what is wrong and what to do.
 * options_help() prints the page of --help, but for switches of the bits `without`; options_describe() writes the
 * switches that differ from the defaults, from which options_parse() makes the same options again.
 */
static int  options_parse(int argc, char **argv, options *o, char *message, size_t capacity);
static void options_describe(const options *o, char *text, size_t capacity);
static void options_help(FILE *to, uint64_t without);
/** A number of bytes as people write it: 1500, 1.5k, 24G (powers of 1000), 24Gi (powers of 1024). 0: it is one. */
static int  options_bytes(const char *text, size_t *bytes);

/* ---- the list: every switch once, in the order of --help ---- */
enum switch_id { ON_MODEL, ON_PRESET, ON_LAYERS, ON_WIDTH, ON_HEADS, ON_CONTEXT, ON_VOCAB, ON_WINDOW, ON_DATA,
    ON_DOCUMENTS, ON_VALIDATE, ON_BATCH,
    ON_STEPS, ON_ACCUMULATE, ON_LR, ON_WARMUP, ON_SCHEDULE, ON_SCALE_LR, ON_CLIP, ON_SKIP_OUTLIERS, ON_DROPOUT, ON_SEED, ON_OPTIMIZER, ON_KEEP,
    ON_WEIGHTS, ON_GRADIENTS, ON_HEAD, ON_MLP, ON_ATTENTION, ON_FUSE_STEP, ON_GRAPH, ON_FIT, ON_ADVISE, ON_PROCESSORS, ON_SPEEDS, ON_FRONTIER, ON_GRIDS, ON_RANKS, ON_STAGE, ON_UNITS, ON_REPLICAS,
    ON_PIPELINE, ON_CHUNKS, ON_TENSOR, ON_SEQUENCE, ON_PARTS, ON_RANK, ON_ID_FILE, ON_OFFLOAD,
    ON_DRY_RUN, ON_LADDER, ON_ENDS, ON_BATCH_TABLE, ON_SAMPLE, ON_JSON, ON_SAVE, ON_SAVE_EVERY, ON_RESUME, ON_THREADS, ON_GEMM, ON_QUIET, ON_HELP,
    SWITCHES };
typedef struct switch_row { const char *chapter, *name, *value, *text; } switch_row; /* value NULL: it takes none */
static const switch_row switch_rows[SWITCHES] = {
    { "The model", "model", "NAME", "gpt, llama, mistral, qwen2, qwen3, smollm; vit: images of ten classes" },
    { NULL, "preset", "NAME", "tiny, gpt2-124m, gpt2-355m, gpt2-1558m, 7b; what follows changes it" },
    { NULL, "layers", "N", "blocks of attention and MLP" },
    { NULL, "width", "N", "numbers of a token in the residual stream" },
    { NULL, "heads", "N", "of attention; they divide the width" },
    { NULL, "context", "N", "tokens of a sequence; with vit, patches: a square" },
    { NULL, "vocab", "N", "different tokens; bytes are 256" },
    { NULL, "window", "N", "a token sees itself and the N - 1 before it; default all, mistral 4096" },
    { "The training", "data", "FILE", "text, .bin of llm.c, or .u16 tokens; default: examples/text.txt" },
    { NULL, "documents", NULL, "each by itself: in text a blank line ends one, in tokens 50256 begins it" },
    { NULL, "validate", "N", "hold a tenth of it back; its loss after every N steps; default off" },
    { NULL, "batch", "N", "sequences that go through together" },
    { NULL, "steps", "N", "steps of the optimizer; default 100" },
    { NULL, "accumulate", "N", "batches for each step; default 1" },
    { NULL, "lr", "X", "learning rate; the default suits optimizer and preset" },
    { NULL, "warmup", "N", "steps in which the rate rises from 0; default 0" },
    { NULL, "schedule", "constant|linear|cosine", "how it falls until the last step" },
    { NULL, "scale-lr", "N", "the rate is meant for a batch of N, and grows with the real one" },
    { NULL, "clip", "X", "clip gradients to this global norm; default off" },
    { NULL, "skip-outliers", "Z", "leave out steps whose loss or norm is Z deviations above the last 128" },
    { NULL, "dropout", "X", "share of activations, 0 to below 1; default off" },
    { NULL, "seed", "N", "of weights, batches, dropout, rounding; default 1" },
    { NULL, "optimizer", "NAME", "adamw adam sgd lion lars lamb adafactor rmsprop muon; lion16, lion8" },
    { "The memory", "keep", "WHAT", "conventional, arena (default), every:K, budget:BYTES, overhead:PERCENT" },
    { NULL, "weights", "f32|bf16|split", "split: bf16 to compute with, 16 bits more to step; default f32" },
    { NULL, "gradients", "f32|bf16|f16", "f16 brings loss scaling; default: bf16 with bf16 weights" },
    { NULL, "head", "whole|chunk:N", "logits of all rows (default), or of N at a time" },
    { NULL, "mlp", "whole|chunk:N", "hidden layer of all rows (default), or of N at a time" },
    { NULL, "attention", "full|lean", "lean: no matrix of context x context; default full" },
    { NULL, "fuse-step", NULL, "step each weight as soon as backward has its gradient" },
    { NULL, "graph", NULL, "on a card, without --ranks: steps after the first are one CUDA graph" },
    { NULL, "fit", "BYTES", "train at the largest batch that fits; 900M, 24Gi" },
    { NULL, "advise", "BYTES", "plan these, chunks of 2^N rows, and tell what fits; given ones stay" },
    { NULL, "processors", "N", "for --advise to deal to ranks and their threads; BYTES are of all" },
    { NULL, "speeds", "FILE", "seconds of this machine for --advise; what is missing is measured" },
    { NULL, "frontier", NULL, "train the plans of --advise for less memory, too, and draw them" },
    { NULL, "grids", NULL, "--advise BYTES a rank: the fastest way to lay out --ranks is trained" },
    { "Many ranks", "ranks", "R", "threads that cut the model among them, on GPUs a card each; default off" },
    { NULL, "stage", "0|1|2|3", "cut: nothing, states, gradients too, weights too; default 3, pipelines 1" },
    { NULL, "units", "U", "batches a step: for any R the same bits; default 1 a pass, or 2 P" },
    { NULL, "replicas", "C", "C sets of R / C ranks, each with the model cut among its own; default 1" },
    { NULL, "pipeline", "P[:BYTES]", "P ranks share each pass by layers; each may take BYTES to wait less" },
    { NULL, "chunks", "V", "runs of layers for each of the P ranks, which then wait less; default 1" },
    { NULL, "tensor", "T", "T ranks share each pass: heads, columns, vocabulary, rows; default 1" },
    { NULL, "sequence", "R", "R ranks share each pass: rows, and heads where these meet; default off" },
    { NULL, "parts", "S", "of width or rows, the same for any T or R: so are the bits; default T, R" },
    { NULL, "rank", "R", "with --id-file: of this process; default: as torchrun and mpirun tell it" },
    { NULL, "id-file", "FILE", "on cards: each rank a process, and they meet in FILE.0, FILE.1, ..." },
    { NULL, "offload", "states|weights|activations", "on a disk, several with commas; =DIR: a folder, =host: other memory" },
    { "What to do", "dry-run", NULL, "tell the bytes and train nothing" },
    { NULL, "ladder", NULL, "everything kept to everything on, rung by rung, as a table and a page" },
    { NULL, "ends", NULL, "with --ladder: its first rung, its last with the same bits, its last" },
    { NULL, "batch-table", NULL, "the largest batch of each rung within --fit" },
    { NULL, "sample", "N", "write N tokens when trained" },
    { NULL, "json", "FILE", "the figures of the run, for programs" },
    { NULL, "save", "DIR", "keep the run there, at its end and at Ctrl-C, safe from a kill" },
    { NULL, "save-every", "N", "with --save: after every N steps, too" },
    { NULL, "resume", "DIR", "go on from what --save kept, with the same bits" },
    { NULL, "threads", "N", "workers; any number gives the same bits; default 1" },
    { NULL, "gemm", "builtin|blas", "who multiplies matrices" },
    { NULL, "quiet", NULL, "no line for each step" },
    { NULL, "help", NULL, "this page" } };

#include "shapes.h" /* what --model names */
/* ---- presets, and defaults that depend on them ---- */
typedef struct preset {
    const char *name;
    size_t      layers, width, heads, context, vocab, batch, patches;
    double      rate;
} preset;
static const preset presets[] = {
    { "tiny",        4,  128,  4,  128,   256, 8,  64, 1e-3 },
    { "gpt2-124m",  12,  768, 12, 1024, 50257, 4, 196, 6e-4 },
    { "gpt2-355m",  24, 1024, 16, 1024, 50257, 4, 196, 3e-4 },
    { "gpt2-1558m", 48, 1600, 25, 1024, 50257, 4, 196, 2e-4 },
    { "7b",         32, 4096, 32, 2048, 50257, 1, 196, 1.2e-4 } };
static const preset *preset_find(const char *name) {
    size_t i;
    for (i = 0; i < sizeof presets / sizeof *presets; ++i) if (!strcmp(presets[i].name, name)) return &presets[i];
    return NULL;
}
/* Kinds that adapt to each element take the preset's rate; Lion's steps are signs, and want a fifth of it; the others'
   steps are relative to gradients or weights, whatever the size of the model. */
static double default_rate(memopt_optim_kind kind, const preset *p) {
    switch (kind) {
    case MEMOPT_OPTIM_ADAMW: case MEMOPT_OPTIM_ADAM: case MEMOPT_OPTIM_RMSPROP: case MEMOPT_OPTIM_MUON: break;
    case MEMOPT_OPTIM_LION:                    return p->rate / 5;
    case MEMOPT_OPTIM_SGD:                     return 0.3;
    case MEMOPT_OPTIM_LARS:                    return 5;
    case MEMOPT_OPTIM_LAMB: case MEMOPT_OPTIM_ADAFACTOR: return 0.01;
    }
    return p->rate;
}
static void options_default(options *o, const preset *p, model_kind model, memopt_optim_kind kind) {
    const int vit = model == MODEL_VIT;
    memset(o, 0, sizeof *o);
    o->model = model; o->window = model_rows[model].window; o->preset = p->name; o->optimizer = kind;
    o->layers = p->layers; o->width = p->width; o->heads = p->heads;
    o->context = vit ? p->patches : p->context; o->vocab = vit ? 10 : p->vocab;
    o->batch = p->batch; o->steps = 100; o->accumulate = 1; o->threads = 1; o->seed = 1;
    o->rate = default_rate(kind, p); o->keep = KEEP_ARENA; o->stage = 3; o->replicas = o->pipeline = o->chunks = o->tensor = 1;
}

/* ---- values: each function returns 0, or 1 when the text is none, and then leaves `out` alone ---- */
static int options_count(const char *text, uint64_t least, uint64_t most, uint64_t *out) {
    uint64_t n = 0;
    if (!*text) return 1;
    for (; *text; ++text) {
        const uint64_t digit = (uint64_t)(*text - '0');
        if (*text < '0' || *text > '9' || n > (UINT64_MAX - digit) / 10) return 1;
        n = n * 10 + digit;
    }
    if (n < least || n > most) return 1;
    *out = n;
    return 0;
}
static int options_real(const char *text, double least, double most, double *out) {
    char *end; double x; /* no NaN, no hexadecimal, nothing behind it */
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text)) return 1;
    x = strtod(text, &end);
    if (*end || !(x >= least && x <= most)) return 1;
    *out = x;
    return 0;
}
static int options_bytes(const char *text, size_t *bytes) {
    static const struct unit { const char *name; double bytes; } units[] = { { "", 1 }, { "B", 1 }, { "k", 1e3 },
        { "M", 1e6 }, { "G", 1e9 }, { "T", 1e12 }, { "Ki", 1024 }, { "Mi", 1048576 }, { "Gi", 1073741824 },
        { "Ti", 1099511627776.0 } };
    const size_t digits = strspn(text, "0123456789."); char number[32]; double x; uint64_t whole; size_t i;
    if (!digits || digits >= sizeof number) return 1;
    memcpy(number, text, digits); number[digits] = 0;
    for (i = 0; i < sizeof units / sizeof *units; ++i) {
        if (strcmp(units[i].name, text + digits)) continue;
        if (units[i].bytes == 1 || !strchr(number, '.')) { /* exact, beyond 2^53 too */
            const uint64_t unit = (uint64_t)units[i].bytes;
            if (options_count(number, 1, SIZE_MAX / unit, &whole)) return 1;
            *bytes = (size_t)(whole * unit);
            return 0;
        }
        if (options_real(number, 0, 1e15, &x) || !(x * units[i].bytes >= 1)
            || x * units[i].bytes >= (double)(SIZE_MAX / 2)) return 1;
        *bytes = (size_t)(x * units[i].bytes);
        return 0;
    }
    return 1;
}
static int options_choice(const char *text, const char *choices, int *out) { /* choices: a|b|c; out: which */
    const size_t n = strlen(text); int i = 0;
    for (;; ++i) {
        const size_t length = strcspn(choices, "|");
        if (n == length && !strncmp(text, choices, n)) { *out = i; return 0; }
        if (!choices[length]) return 1;
        choices += length + 1;
    }
}
static const char *const optimizer_names = "adamw|adam|sgd|lion|lars|lamb|adafactor|rmsprop|muon"; /* as memopt_optim_kind */
static int options_optimizer(const char *text, options *o) {
    size_t n = strlen(text); char name[16]; int kind; memopt_state_format states = MEMOPT_STATE_F32;
    if (n > 2 && !strcmp(text + n - 2, "16")) { states = MEMOPT_STATE_BF16; n -= 2; }
    else if (n > 1 && text[n - 1] == '8') { states = MEMOPT_STATE_8BIT; n -= 1; }
    if (n >= sizeof name) return 1;
    memcpy(name, text, n); name[n] = 0;
    if (options_choice(name, optimizer_names, &kind)) return 1;
    o->optimizer = (memopt_optim_kind)kind; o->states = states;
    return 0;
}
static int options_chunk(const char *text, size_t *rows) {
    uint64_t n;
    if (!strcmp(text, "whole")) { *rows = 0; return 0; }
    if (strncmp(text, "chunk:", 6) || options_count(text + 6, 1, INT32_MAX, &n)) return 1;
    *rows = (size_t)n;
    return 0;
}
/* "4:24G": takes what is behind the colon, and leaves the number. */
static int options_stages(const char *text, char *number, size_t capacity, options *o) {
    const char *const colon = strchr(text, ':');
    snprintf(number, capacity, "%.*s", (int)strcspn(text, ":"), text);
    o->pipeline_bytes = 0;
    return colon && options_bytes(colon + 1, &o->pipeline_bytes);
}
static int options_keep(const char *text, options *o) {
    uint64_t n; int which;
    if (!options_choice(text, "conventional|arena", &which)) { o->keep = (keep_kind)which; return 0; }
    if (!strncmp(text, "every:", 6) && !options_count(text + 6, 1, 100000, &n)) {
        o->keep = KEEP_EVERY; o->every = (size_t)n;
        return 0;
    }
    if (!strncmp(text, "budget:", 7) && !options_bytes(text + 7, &o->budget)) { o->keep = KEEP_BUDGET; return 0; }
    if (!strncmp(text, "overhead:", 9) && !options_real(text + 9, 0, 1e6, &o->overhead)) {
        o->keep = KEEP_OVERHEAD; o->overhead /= 100;
        return 0;
    }
    return 1;
}
/* "states", "weights", "activations", several with commas; where, behind a =. */
static const char *const offload_names = "states|weights|activations"; /* bits of OFFLOAD_... */
static int options_offload(const char *text, options *o) {
    const char *const place = strchr(text, '=');
    const size_t end = place ? (size_t)(place - text) : strlen(text); size_t at, n; char name[12]; int which;
    for (at = 0; at <= end; at += n + 1) {
        n = strcspn(text + at, ",=");
        if (n >= sizeof name) return 1;
        memcpy(name, text + at, n); name[n] = 0;
        if (options_choice(name, offload_names, &which)) return 1;
        o->offload |= 1 << which;
    }
    if (place && !place[1]) return 1;
    o->offload_to = !place ? "." : !strcmp(place + 1, "host") ? NULL : place + 1;
    return 0;
}
/* Whole numbers: where they go, and how large they may be. */
typedef struct count_row { int id; size_t offset; uint64_t least, most; } count_row;
static const count_row count_rows[] = {
    { ON_LAYERS, offsetof(options, layers), 1, 10000 }, { ON_WIDTH, offsetof(options, width), 1, 65536 },
    { ON_HEADS, offsetof(options, heads), 1, 65536 }, { ON_CONTEXT, offsetof(options, context), 1, 1048576 },
    { ON_VOCAB, offsetof(options, vocab), 2, 16777216 }, { ON_WINDOW, offsetof(options, window), 1, 1048576 },
    { ON_BATCH, offsetof(options, batch), 1, 1048576 },
    { ON_STEPS, offsetof(options, steps), 1, 1000000000 }, { ON_ACCUMULATE, offsetof(options, accumulate), 1, 1048576 },
    { ON_VALIDATE, offsetof(options, validate), 1, 1000000000 }, { ON_WARMUP, offsetof(options, warmup), 0, 1000000000 }, { ON_SCALE_LR, offsetof(options, scale_rate), 1, 1048576 },
    { ON_RANKS, offsetof(options, ranks), 1, 1024 }, { ON_STAGE, offsetof(options, stage), 0, 3 },
    { ON_UNITS, offsetof(options, units), 1, 1048576 }, { ON_REPLICAS, offsetof(options, replicas), 1, 1024 },
    { ON_RANK, offsetof(options, rank), 0, 1023 }, { ON_PIPELINE, offsetof(options, pipeline), 1, 1024 }, { ON_CHUNKS, offsetof(options, chunks), 1, 1024 },
    { ON_TENSOR, offsetof(options, tensor), 1, 1024 }, { ON_SEQUENCE, offsetof(options, sequence), 1, 1024 },
    { ON_PARTS, offsetof(options, parts), 1, 1024 }, { ON_SAMPLE, offsetof(options, sample), 1, 1048576 },
    { ON_SAVE_EVERY, offsetof(options, save_every), 1, 1000000000 }, { ON_PROCESSORS, offsetof(options, processors), 1, 1024 }, { ON_THREADS, offsetof(options, threads), 1, 1024 } };
static size_t *count_at(options *o, size_t row) { return (size_t *)(void *)((char *)o + count_rows[row].offset); }
static const count_row *count_find(int id, size_t *row) {
    for (*row = 0; *row < sizeof count_rows / sizeof *count_rows; ++*row)
        if (count_rows[*row].id == id) return &count_rows[*row];
    return NULL;
}
/* Takes a value into its place. 0, or the sentence is in `message`. */
static int options_take(options *o, int id, const char *v, char *message, size_t capacity) {
    const char *const choices = switch_rows[id].value, *want = NULL; int n = 0, bad = 0; uint64_t whole; size_t row;
    const count_row *const c = count_find(id, &row);
    char number[32];
    if (c) {
        if (id == ON_PIPELINE) bad = options_stages(v, number, sizeof number, o);
        bad = bad || options_count(id == ON_PIPELINE ? number : v, c->least, c->most, &whole);
        if (!bad) *count_at(o, row) = (size_t)whole;
        else if (id == ON_PIPELINE)
            snprintf(message, capacity, "--pipeline %s: give a whole number from 1 to 1024, and after a colon bytes, "
                     "such as 4 or 4:24G.", v);
        else snprintf(message, capacity, "--%s %s: give a whole number from %llu to %llu.", switch_rows[id].name, v,
                      (unsigned long long)c->least, (unsigned long long)c->most);
        return bad;
    }
    switch (id) {
    case ON_MODEL:     bad = options_choice(v, model_names, &n); o->model = (model_kind)n;
                       want = "gpt, vit, llama, mistral, qwen2, qwen3 or smollm"; break;
    case ON_SCHEDULE:  bad = options_choice(v, choices, &n); o->schedule = (decline)n; break;
    case ON_WEIGHTS:   bad = options_choice(v, choices, &n); o->weights = (weights_kind)n; break;
    case ON_GRADIENTS: bad = options_choice(v, choices, &n); o->gradients = (memopt_type)n; break;
    case ON_ATTENTION: bad = options_choice(v, choices, &n); o->lean_attention = n; break;
    case ON_GEMM:      bad = options_choice(v, choices, &n); o->blas = n; break;
    case ON_HEAD:      bad = options_chunk(v, &o->head_chunk); want = "whole, or chunk:N for N rows at a time"; break;
    case ON_MLP:       bad = options_chunk(v, &o->mlp_chunk); want = "whole, or chunk:N for N rows at a time"; break;
    case ON_LR:        bad = options_real(v, 0, 1000, &o->rate); want = "a number from 0 to 1000"; break;
    case ON_CLIP:      bad = options_real(v, 1e-30, 1e30, &o->clip); want = "a norm above 0, such as 1"; break;
    case ON_SKIP_OUTLIERS: bad = options_real(v, 1e-3, 1e3, &o->outliers);
                       want = "standard deviations from 0.001 to 1000, such as 5"; break;
    case ON_DROPOUT:   bad = options_real(v, 0, 0.99, &o->dropout); want = "a share from 0 to 0.99"; break;
    case ON_SEED:      bad = options_count(v, 0, UINT64_MAX, &o->seed); want = "a whole number below 2^64"; break;
    case ON_FIT:       bad = options_bytes(v, &o->fit); want = "bytes, such as 900M or 24Gi"; break;
    case ON_ADVISE:    bad = options_bytes(v, &o->advise); want = "bytes, such as 900M or 24Gi"; break;
    case ON_PRESET:    bad = !preset_find(v); want = "tiny, gpt2-124m, gpt2-355m, gpt2-1558m or 7b"; break;
    case ON_OPTIMIZER: bad = options_optimizer(v, o);
                       want = "adamw, adam, sgd, lion, lars, lamb, adafactor, rmsprop, muon; 16 or 8 behind it for fewer bits"; break;
    case ON_KEEP:      bad = options_keep(v, o);
                       want = "conventional, arena, every:2, budget:300M or overhead:33"; break;
    case ON_OFFLOAD:   bad = options_offload(v, o);
                       want = "states, weights, activations, several with commas; behind them =host, or = and a folder"; break;
    case ON_DATA:      bad = !*v; o->data = v; want = "the name of a file"; break;
    case ON_SPEEDS:    bad = !*v; o->speeds = v; want = "the name of a file"; break;
    case ON_JSON:      bad = !*v; o->json = v; want = "the name of a file"; break;
    case ON_ID_FILE:   bad = !*v; o->id_file = v; want = "the name of a file"; break;
    case ON_SAVE:      bad = !*v; o->save = v; want = "the name of a directory"; break;
    case ON_RESUME:    bad = !*v; o->resume = v; want = "the name of a directory"; break;
    case ON_DOCUMENTS: o->documents = 1; break;
    case ON_FUSE_STEP: o->fuse_step = 1; break;
    case ON_GRAPH:     o->graph = 1; break;
    case ON_DRY_RUN:   o->dry_run = 1; break;
    case ON_LADDER:    o->ladder = 1; break;
    case ON_ENDS:      o->ends = 1; break;
    case ON_FRONTIER:  o->frontier = 1; break;
    case ON_GRIDS:     o->grids = 1; break;
    case ON_BATCH_TABLE: o->batch_table = 1; break;
    case ON_QUIET:     o->quiet = 1; break;
    default:           o->help = 1; break;
    }
    if (bad) snprintf(message, capacity, "--%s %s: give %s%s.", switch_rows[id].name, v, want ? "" : "one of ",
                      want ? want : choices);
    return bad;
}

/* ---- the command line ---- */
#include "options_rules.h" /* options_wrong() */
/* "--name value" or "--name=value": which switch, and where its value begins (NULL: in the next word). */
static int options_which(const char *word, const char **value) {
    int id;
    if (strncmp(word, "--", 2)) return SWITCHES;
    for (id = 0; id < SWITCHES; ++id) {
        const size_t n = strlen(switch_rows[id].name);
        if (strncmp(word + 2, switch_rows[id].name, n) || (word[2 + n] && word[2 + n] != '=')) continue;
        *value = word[2 + n] ? word + 3 + n : NULL;
        return id;
    }
    return SWITCHES;
}
/* As many as passes go on at a time; a pipeline is full with some for each of its ranks. */
static size_t options_usual_units(const options *o) {
    const size_t sharers = o->tensor * o->pipeline * (o->sequence ? o->sequence : 1), passes = o->ranks / sharers ? o->ranks / sharers : 1;

    return o->ranks ? passes * (o->pipeline > 1 ? 2 * o->pipeline : 1) : 0;
}
/* Twice over the words: model, preset and optimizer decide the defaults of others, and may stand behind them. */
static int options_parse(int argc, char **argv, options *o, char *message, size_t capacity) {
    uint64_t given = 0; int i, pass;
    options_default(o, preset_find("tiny"), MODEL_GPT, MEMOPT_OPTIM_ADAMW);
    for (pass = 0; pass < 2; ++pass) {
        for (i = 1; i < argc; ++i) {
            const char *value = NULL; const int id = options_which(argv[i], &value);
            if (id == SWITCHES)
                REFUSE(1, "%.60s is no switch of this program; --help lists them all.", argv[i]);
            REFUSE(value && !switch_rows[id].value, "--%s takes no value: write it alone.", switch_rows[id].name);
            if (switch_rows[id].value && !value) {
                REFUSE(i + 1 == argc || !strncmp(argv[i + 1], "--", 2), "--%s needs a value behind it: %s.",
                       switch_rows[id].name, switch_rows[id].value);
                value = argv[++i];
            }
            given |= (uint64_t)1 << id;
            if (options_take(o, id, value ? value : "", message, capacity)) return 1;
            if (id == ON_PRESET) o->preset = preset_find(value)->name;
        }
        if (!pass) options_default(o, preset_find(o->preset), o->model, o->optimizer);
    }
    o->program = argc ? argv[0] : "train_gpt";
    if (o->help) return 0;
    if (needs_lean_attention(o) && !GIVEN(ON_ATTENTION)) o->lean_attention = 1;
    if (o->offload && !o->ranks) o->ranks = 1;
    if (o->tensor > 1 && !o->parts) o->parts = o->tensor;
    if (o->sequence && !o->parts) o->parts = o->sequence;
    if (o->parts && !GIVEN(ON_ATTENTION)) o->lean_attention = 1;
    if ((o->offload & OFFLOAD_ACTIVATIONS) && !GIVEN(ON_KEEP)) { o->keep = KEEP_OVERHEAD; o->overhead = 0.33; }
    if (o->processors) o->ranks = o->processors; /* at most */
    if (o->pipeline > 1 && !GIVEN(ON_STAGE)) o->stage = 1;
    if (!o->units) o->units = options_usual_units(o);
    if (o->advise && !o->grids) o->dry_run = 1;
    o->given = given;
    if (!GIVEN(ON_GRADIENTS) && o->weights == WEIGHTS_BF16 && !o->parts) o->gradients = MEMOPT_TYPE_BF16;
    return options_wrong(o, given, message, capacity);
}
/* What was asked of --advise and --fit is no part of the answer. */
static inline void options_advised(options *o) {
    if (o->advise) { o->dry_run = o->frontier = 0; o->speeds = NULL; }
    o->advise = o->fit = o->processors = 0;
}
#include "options_text.h" /* options_describe(), options_help() */
#endif
