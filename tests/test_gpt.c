/* test_gpt.c - what train_gpt reads and writes: its command line, data, JSON, the page. */
#include "test.h"
#include "../examples/gpt/options.h"
#include "../examples/gpt/data.h"
#include "../examples/gpt/json.h"
#include "../examples/gpt/page.h"
#include "../examples/gpt/outliers.h"
#include <errno.h>
#include <time.h>
#ifndef _WIN32
#  include <sys/stat.h>
#  include <unistd.h>
extern int symlink(const char *to, const char *path); /* C99 alone hides it */
#else
#  include <process.h>
#  define getpid _getpid
#endif

static char gpt_message[400], gpt_words[40][64], *gpt_argv[40];
static int gpt_split(const char *line) { /* into gpt_argv, as a shell would; returns argc */
    int n = 1;
    gpt_argv[0] = gpt_words[0];
    while (*line && n < 40) {
        const size_t length = strcspn(line, " ");
        snprintf(gpt_words[n], sizeof gpt_words[n], "%.*s", (int)length, line);
        gpt_argv[n] = gpt_words[n]; ++n;
        line += length + (line[length] == ' ');
    }
    return n;
}
enum { GPT_WIDE = sizeof(size_t) > 4 }; /* else there are no addresses for most presets, and they are refused */
static int gpt_parse(const char *line, options *o) {
    gpt_message[0] = 0;
    return options_parse(gpt_split(line), gpt_argv, o, gpt_message, sizeof gpt_message);
}

/* ---- options ---- */
/* Arguments are doubles, also where literals are wider. */
static int gpt_equal(double a, double b) { return a <= b && a >= b; }
static void gpt_defaults(void) {
    options o;
    CHECK(gpt_parse("", &o) == 0);
    CHECK(o.model == MODEL_GPT && !strcmp(o.preset, "tiny") && o.layers == 4 && o.width == 128 && o.heads == 4 && o.context == 128);
    CHECK(o.vocab == 256 && o.batch == 8 && o.steps == 100 && o.accumulate == 1 && o.threads == 1 && o.seed == 1);
    CHECK(o.clip == 0 && o.dropout == 0 && o.warmup == 0 && o.scale_rate == 0 && o.schedule == RATE_CONSTANT);
    CHECK(o.keep == KEEP_ARENA && o.weights == WEIGHTS_F32 && o.gradients == MEMOPT_TYPE_F32);
    CHECK(o.optimizer == MEMOPT_OPTIM_ADAMW && o.states == MEMOPT_STATE_F32 && o.head_chunk == 0 && o.mlp_chunk == 0);
    CHECK(!o.lean_attention && !o.fuse_step && !o.dry_run && !o.blas && !o.fit && !o.json && !o.data && !o.ladder
          && !o.batch_table && !o.quiet && !o.sample && !o.help && !o.ranks && !o.units);
    CHECK(gpt_parse("--width 50 --preset gpt2-1558m --context 16", &o) == 0); /* in any order */
    CHECK(o.layers == 48 && o.width == 50 && o.heads == 25 && o.batch == 4 && o.vocab == 50257);
}
static void gpt_values(void) {
    options o;
    CHECK(gpt_parse("--preset gpt2-355m --layers 3 --width 64 --heads 2 --context 32 --vocab 300 --batch 5 --steps 7 "
                    "--accumulate 3 --lr 2e-3 --warmup 2 --schedule cosine --scale-lr 64 --clip 1.5 --dropout 0.1",
                        &o) == 0);
    CHECK(o.layers == 3 && o.width == 64 && o.heads == 2 && o.context == 32 && o.vocab == 300 && o.batch == 5);
    CHECK(o.steps == 7 && o.accumulate == 3 && gpt_equal(o.rate, 2e-3) && o.warmup == 2 && o.schedule == RATE_COSINE);
    CHECK(o.scale_rate == 64 && o.clip == 1.5 && gpt_equal(o.dropout, 0.1) && !strcmp(o.preset, "gpt2-355m"));
    CHECK(gpt_parse("--seed 18446744073709551615 --threads 8 --optimizer lamb16 --keep overhead:33 --weights split "
                    "--head chunk:512 --mlp chunk:64 --attention lean --gemm blas --dry-run --json x.json --quiet",
                        &o) == 0);
    CHECK(o.seed == UINT64_MAX && o.threads == 8 && o.optimizer == MEMOPT_OPTIM_LAMB && o.states == MEMOPT_STATE_BF16);
    CHECK(o.keep == KEEP_OVERHEAD && gpt_equal(o.overhead, 0.33) && o.weights == WEIGHTS_SPLIT
          && o.gradients == MEMOPT_TYPE_F32);
    CHECK(o.head_chunk == 512 && o.mlp_chunk == 64 && o.lean_attention && o.blas && o.dry_run && o.quiet);
    CHECK(o.json && !strcmp(o.json, "x.json"));
    CHECK(gpt_parse("--weights bf16 --gradients f32 --keep every:2 --fuse-step --sample 9 --data=a=b", &o) == 0);
    CHECK(o.gradients == MEMOPT_TYPE_F32 && o.keep == KEEP_EVERY && o.every == 2 && o.fuse_step && o.sample == 9);
    CHECK(o.data && !strcmp(o.data, "a=b"));
    CHECK(gpt_parse("--gradients f16 --keep budget:1.5M --optimizer lion8", &o) == 0 && o.gradients == MEMOPT_TYPE_F16);
    CHECK(o.keep == KEEP_BUDGET && o.budget == 1500000 && o.optimizer == MEMOPT_OPTIM_LION
          && o.states == MEMOPT_STATE_8BIT);
    CHECK(gpt_parse("--model vit --preset gpt2-124m --layers 2 --width 96", &o) == 0 && o.model == MODEL_VIT && o.context == 196
          && o.vocab == 10);
    CHECK(gpt_parse("--ranks 6", &o) == 0 && o.ranks == 6 && o.stage == 3 && o.units == 6);
    CHECK(gpt_parse("--units 5 --ranks 6 --stage 0", &o) == 0 && o.ranks == 6 && o.stage == 0 && o.units == 5);
    CHECK(gpt_parse("--steps 3 --steps 4", &o) == 0 && o.steps == 4); /* the last word counts */
    CHECK(gpt_parse("--help --width 7", &o) == 0 && o.help);
}
static void gpt_rates(void) { /* each kind has one of its own, and --lr goes before it, wherever it stands */
    static const char *const kinds[] = { "adamw", "adam", "sgd", "lion", "lars", "lamb", "adafactor", "rmsprop",
        "muon" };
    options o; char line[64]; size_t i;
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        snprintf(line, sizeof line, "--optimizer %s", kinds[i]);
        CHECK_AT(gpt_parse(line, &o) == 0 && o.optimizer == (memopt_optim_kind)i && o.rate > 0 && o.rate < 10, i);
        snprintf(line, sizeof line, "--lr 0.125 --optimizer %s", kinds[i]);
        CHECK_AT(gpt_parse(line, &o) == 0 && o.rate == 0.125, i);
    }
}
static void gpt_byte_numbers(void) {
    static const struct { const char *text; double bytes; } good[] = { { "1", 1 }, { "1500", 1500 }, { "1.5k", 1500 },
        { "2B", 2 }, { "3M", 3e6 }, { "2G", 2e9 }, { "1Ki", 1024 }, { "1Mi", 1048576 }, { "1.5Gi", 1610612736 },
        { "0.5Mi", 524288 } };
    static const char *const bad[] = { "", "k", "0", "0k", "-1", "+1", "1e3", "1,5k", "1.5", "1 k", "1kk", "1K", "1kB",
                                       ".",
        "1..5k", "nan", "inf", "0x10", "99999999999999999999", "99999999T", "18446744073709551616", "0.0001k", "1e9G",
        "100000000000000000000000000000000000000000G" };
    size_t i, bytes = 5;
    for (i = 0; i < sizeof good / sizeof *good; ++i)
        CHECK_AT(options_bytes(good[i].text, &bytes) == 0 && (double)bytes == good[i].bytes, i);
    bytes = 5;
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) CHECK_AT(options_bytes(bad[i], &bytes) == 1 && bytes == 5, i);
    if (GPT_WIDE) CHECK(options_bytes("18446744073709551615", &bytes) == 0 && bytes == SIZE_MAX);
}
/* Every sentence names the switch, says something after it, and ends. */
static const struct { const char *line, *names; } gpt_refused[] = {
    { "--bogus", "--bogus" }, { "word", "word" }, { "-h", "-h" }, { "--layer 3", "--layer" },
    { "--layers", "--layers" }, { "--layers --width 8", "--layers" }, { "--quiet=1", "--quiet" },
    { "--layers 0", "--layers" }, { "--layers 10001", "--layers" }, { "--layers 4x", "--layers" },
    { "--layers -4", "--layers" }, { "--layers 4.0", "--layers" }, { "--layers=", "--layers" },
    { "--layers 99999999999999999999999", "--layers" }, { "--width 70000", "--width" }, { "--vocab 1", "--vocab" },
    { "--batch 0", "--batch" }, { "--steps 0", "--steps" }, { "--accumulate 0", "--accumulate" },
    { "--threads 0", "--threads" }, { "--threads 1025", "--threads" }, { "--sample 0", "--sample" },
    { "--scale-lr 0", "--scale-lr" }, { "--seed 18446744073709551616", "--seed" }, { "--seed -1", "--seed" },
    { "--lr nan", "--lr" }, { "--lr -1", "--lr" }, { "--lr 1e", "--lr" }, { "--lr inf", "--lr" },
    { "--lr 0x1", "--lr" }, { "--lr 1e999", "--lr" }, { "--clip 0", "--clip" }, { "--clip -1", "--clip" },
    { "--dropout 1", "--dropout" }, { "--dropout -0.1", "--dropout" }, { "--schedule step", "--schedule" },
    { "--schedule lin", "--schedule" }, { "--schedule linear|cosine", "--schedule" }, { "--model bert", "--model" },
    { "--preset gpt3", "--preset" }, { "--optimizer adagrad", "--optimizer" }, { "--optimizer 8", "--optimizer" },
    { "--optimizer lion4", "--optimizer" }, { "--optimizer adamw816", "--optimizer" },
    { "--optimizer abcdefghijklmnopqrstuvwxyz", "--optimizer" }, { "--keep some", "--keep" },
    { "--keep every", "--keep" }, { "--keep every:0", "--keep" }, { "--keep every:x", "--keep" },
    { "--keep budget:0", "--keep" }, { "--keep budget:1.5", "--keep" }, { "--keep overhead:-1", "--keep" },
    { "--keep overhead:nan", "--keep" }, { "--weights f16", "--weights" }, { "--gradients f8", "--gradients" },
    { "--head chunk:0", "--head" }, { "--head half", "--head" }, { "--mlp chunk:", "--mlp" },
    { "--attention flash", "--attention" }, { "--gemm cublas", "--gemm" }, { "--fit 0", "--fit" },
    { "--fit much", "--fit" }, { "--json=", "--json" }, { "--speeds=", "--speeds" }, { "--speeds a", "--advise" }, { "--frontier", "--advise" }, { "--advise 9M --frontier --ranks 2", "--ranks" }, { "--processors 2", "--advise" }, { "--advise 9M --processors 2 --ranks 2", "--ranks" }, { "--advise 9M --processors 2 --threads 2", "--threads" },
    { "--advise 9M --processors 2 --replicas 2", "--replicas" }, { "--advise 9M --processors 2 --frontier", "--frontier" }, { "--advise 9M --fit 9M", "--fit" }, { "--save=", "--save" }, { "--resume=", "--resume" },
    { "--save-every 3", "--save" }, { "--save x --save-every 0", "--save-every" }, { "--resume x --ladder", "--ladder" },
    { "--save x --dry-run", "--dry-run" }, { "--resume x --fit 1G", "--fit" }, { "--save x --batch-table --fit 1G", "--batch-table" }, { "--data=", "--data" }, { "--width 130", "--width" },
    { "--width 2 --heads 4", "--heads" }, { "--warmup 101", "--warmup" }, { "--vocab 200", "--vocab" },
    { "--batch 1048576 --context 1048576", "--batch" },
    { "--batch 4096 --context 1 --accumulate 1048576", "--accumulate" },
    { "--fuse-step --clip 1", "--clip" }, { "--fuse-step --accumulate 2", "--accumulate" },
    { "--fuse-step --gradients f16", "--gradients" }, { "--weights bf16 --gradients f16", "--gradients" },
    { "--weights split --gradients f16", "--gradients" }, { "--optimizer sgd8", "--optimizer" },
    { "--optimizer sgd16", "--optimizer" }, { "--optimizer adafactor8", "--optimizer" },
    { "--keep conventional --fuse-step", "--fuse-step" }, { "--keep conventional --head chunk:8", "--head" },
    { "--keep conventional --mlp chunk:8", "--mlp" }, { "--keep conventional --attention lean", "--attention" },
    { "--keep conventional --weights bf16", "--weights" }, { "--keep conventional --gradients bf16", "--gradients" },
    { "--keep conventional --optimizer adamw8", "--optimizer" }, { "--keep every:5", "--keep" },
    { "--dry-run --sample 5", "--sample" }, { "--model vit --sample 5", "--sample" },
    { "--model gpt5", "--model" }, { "--window 0", "--window" }, { "--documents", "--documents" },
    { "--model vit --documents", "--documents" }, { "--model vit --window 5", "--window" },
    { "--model llama --keep conventional", "--model llama" }, { "--window 7 --keep conventional", "--window" },
    { "--model qwen3 --documents --ladder", "--model qwen3" }, { "--window 9 --batch-table --fit 1G", "--window" },
    { "--model smollm --attention full", "--attention" }, { "--model llama --width 12", "--heads" },
    { "--model llama --documents --data a.u16 --vocab 50256", "--documents" },
    { "--model vit --data x", "--data" }, { "--model vit --vocab 300", "--vocab" },
    { "--model vit --context 65", "--context" }, { "--ladder --keep arena", "--keep" },
    { "--ladder --weights bf16", "--weights" }, { "--ladder --gradients bf16", "--gradients" },
    { "--ladder --head whole", "--head" }, { "--ladder --mlp whole", "--mlp" },
    { "--ladder --attention full", "--attention" }, { "--ladder --fuse-step", "--fuse-step" },
    { "--ladder --optimizer lion", "--optimizer" }, { "--ladder --sample 3", "--sample" },
    { "--ladder --fit 1G", "--fit" }, { "--batch-table --keep arena", "--keep" },
    { "--keep conventional --dropout 0.1", "--dropout" }, { "--keep conventional --sample 4", "--sample" },
    { "--fit 1G --keep budget:1M", "--keep" }, { "--validate 0", "--validate" }, { "--ends", "--ladder" },
    { "--validate 2 --steps 2000", "--validate" }, { "--batch-table --fit 1G --validate 5", "--validate" },
    { "--ranks 0", "--ranks" }, { "--ranks 1025", "--ranks" }, { "--ranks 2 --stage 4", "--stage" },
    { "--ranks 2 --units 0", "--units" }, { "--stage 1", "--stage" }, { "--units 2", "--units" },
    { "--ranks 2 --ladder", "--ladder" }, { "--ranks 2 --batch-table --fit 1G", "--batch-table" },
    { "--offload activations --keep arena", "--keep" }, { "--offload both", "--offload" },
    { "--ranks 2 --accumulate 2", "--accumulate" }, { "--ranks 2 --keep conventional", "--keep" },
    { "--ranks 2 --fuse-step --optimizer lars", "--fuse-step" },
    { "--ranks 2 --fuse-step --clip 1", "--fuse-step" },
    { "--ranks 2 --batch 4096 --context 1 --units 1048576", "--units" } };
static void gpt_refusals(void) {
    size_t i, n; options o; char first[sizeof gpt_message]; volatile size_t room = 10;
    for (i = 0; i < sizeof gpt_refused / sizeof *gpt_refused; ++i) {
        CHECK_AT(gpt_parse(gpt_refused[i].line, &o) == 1, i);
        n = strlen(gpt_message);
        CHECK_AT(strstr(gpt_message, gpt_refused[i].names) != NULL, i);
        CHECK_AT(n > 25 && n < 200 && gpt_message[n - 1] == '.', i);
        /* a remedy */
        CHECK_AT(strpbrk(gpt_message + strlen(gpt_refused[i].names), ":;,") || strstr(gpt_message, "leave"), i);
        memcpy(first, gpt_message, sizeof first);
        memset(gpt_message, 'x', sizeof gpt_message); /* room for 10 only: cut, and ended */
        CHECK_AT(options_parse(gpt_split(gpt_refused[i].line), gpt_argv, &o, gpt_message, room) == 1, i);
        CHECK_AT(!gpt_message[9] && gpt_message[10] == 'x' && !strncmp(gpt_message, first, 9), i);
    }
}
static void gpt_neighbours(void) { /* what is close to a refusal, and fine */
    static const char *const fine[] = { "--width 132", "--warmup 100", "--vocab 256", "--vocab 200 --data f.bin",
                                        "--clip 1 --accumulate 4",
        "--fuse-step --gradients bf16", "--fuse-step --weights bf16", "--weights bf16 --gradients f32",
            "--optimizer lars8", "--optimizer lars16",
        "--optimizer adam8", "--keep conventional", "--keep conventional --optimizer sgd --clip 1 --accumulate 2",
            "--keep every:4", "--keep overhead:0",
        "--fit 1G --weights bf16", "--fit 1G --keep every:2", "--fit 1G --keep arena",
        "--dry-run --json f", "--model vit --context 49", "--model vit --head chunk:4",
            "--ladder --threads 2",
        "--batch-table --fit 1G", "--ladder --dry-run", "--lr 0", "--dropout 0", "--dropout 0.99", "--keep=arena",
            "--preset 7b --dry-run",
        "--preset gpt2-1558m --dry-run", "--validate 1", "--validate 2 --steps 1999", "--validate 500 --steps 3",
        "--ladder --ends --validate 7", "--ranks 1 --units 9", "--ranks 9 --units 1", "--ranks 2 --fuse-step --units 4",
        "--ranks 2 --optimizer lars", "--ranks 2 --keep budget:9M --dry-run",
        "--model llama --width 16 --heads 8", "--model qwen3 --width 12 --heads 4", "--window 1 --attention lean",
        "--model llama --documents --data a.u16 --vocab 50257", "--model qwen2 --documents --data a.txt --vocab 256" };
    size_t i; options o;
    for (i = 0; i < sizeof fine / sizeof *fine; ++i) {
        if (!GPT_WIDE && strstr(fine[i], "--preset")) continue;
        CHECK_AT(gpt_parse(fine[i], &o) == 0 && !gpt_message[0], i);
    }
}
static void gpt_described(void) { /* text of options, read again, is the same options */
    static const char *const lines[] = { "", "--model mistral --window 9", "--model mistral --preset gpt2-124m", "--model qwen3 --documents --attention lean",
        "--window 3 --advise 9M", "--model vit --preset gpt2-124m --context 64 --width 24",
        "--lr 0.1 --optimizer sgd",
                                         "--lr 3.14159265358979e-4",
        "--weights bf16", "--weights bf16 --gradients f32",
            "--weights split --fuse-step --keep budget:123456789 --quiet", "--keep overhead:33",
        "--keep overhead:12.3456789", "--fit 24M",
        "--keep every:3 --head chunk:7 --mlp chunk:9 --attention lean --optimizer lamb8 --seed 7",
        "--clip 0.3 --dropout 0.15 --schedule linear --warmup 9 --steps 11 --scale-lr 3 --accumulate 2",
            "--ladder --dry-run --threads 3", "--ladder --ends --validate 12",
        "--batch-table --fit 1G --data b", "--keep conventional --gemm blas --gradients f32",
        "--fit 2G --keep overhead:10", "--advise 800M --weights split", "--advise 8M --frontier", "--advise 8M --ranks 2", "--advise 8M --processors 4 --units 2", "--ranks 3", "--ranks 2 --stage 0 --units 5",
        "--save a --save-every 5 --resume b",
        "--offload states=host", "--offload weights=d", "--ranks 2 --offload states,weights", "--offload activations=e", "--offload states,weights,activations --keep budget:3M", "--offload states --offload weights=e" };
    static char text[1000]; char cut[12]; size_t i; options a, b;
    for (i = 0; i < sizeof lines / sizeof *lines; ++i) {
        memset(&a, 0, sizeof a); memset(&b, 0, sizeof b);
        CHECK_AT(gpt_parse(lines[i], &a) == 0, i);
        options_describe(&a, text, sizeof text);
        CHECK_AT(strlen(text) < 400 && gpt_parse(text, &b) == 0, i);
        CHECK_AT(!a.save == !b.save && !a.resume == !b.resume, i);
        CHECK_AT(!a.json == !b.json && !a.data == !b.data && a.preset == b.preset, i);
        memset(cut, 'x', sizeof cut);
        options_describe(&a, cut, 8);
        CHECK_AT(strlen(cut) < 8 && cut[8] == 'x' && !strncmp(cut, text, strlen(cut)), i);
        CHECK_AT(!a.offload_to == !b.offload_to && (!a.offload_to || !strcmp(a.offload_to, b.offload_to)), i);
        a.json = a.data = b.json = b.data = a.save = a.resume = b.save = b.resume = a.offload_to = b.offload_to = NULL; /* into gpt_words */
        a.given = b.given = 0; /* of values that are as always, too */
        CHECK_AT(!memcmp(&a, &b, sizeof a), i);
    }
    CHECK(gpt_parse("--advise 8M --frontier --speeds x --steps 5", &a) == 0); /* the question is no part of the answer */
    options_advised(&a);
    options_describe(&a, text, sizeof text);
    CHECK(!strcmp(text, "--steps 5"));
    CHECK(gpt_parse("--advise 8M --processors 4", &a) == 0 && a.units == 4);
    options_advised(&a);
    options_describe(&a, text, sizeof text);
    CHECK(!strcmp(text, "--ranks 4 --units 4"));
    CHECK(gpt_parse("--dry-run", &a) == 0);
    options_advised(&a);
    CHECK(a.dry_run);
    CHECK(gpt_parse("--steps 5 --layers 4", &a) == 0);
    options_describe(&a, text, sizeof text);
    CHECK(!strcmp(text, "--steps 5")); /* what is as always is not told */
}

static void gpt_help(void) { /* every switch has its line, and none is too wide */
    FILE *f = tmpfile(); static char page_of_help[8000]; const char *line; size_t n; int id; char name[32];
    if (!f) { SKIP("no temporary file"); return; }
    options_help(f, 0);
    rewind(f); n = fread(page_of_help, 1, sizeof page_of_help - 1, f); page_of_help[n] = 0; fclose(f);
    for (id = 0; id < SWITCHES; ++id) {
        snprintf(name, sizeof name, "\n  --%s ", switch_rows[id].name);
        CHECK_AT(strstr(page_of_help, name) != NULL, id);
    }
    for (line = page_of_help; *line; line += n + 1) { n = strcspn(line, "\n"); CHECK(n <= 110); }
}

/* ---- data ---- */
static const char *gpt_file(const char *name) {
    static char path[4][600]; static unsigned turn; const char *folder = getenv("TMPDIR");
    char *p = path[turn++ % 4];
    if (!folder) folder = getenv("TEMP");
    snprintf(p, 600, "%s/memopt-%ld-%s", folder ? folder : "/tmp", (long)getpid(), name);
    return p;
}
static const char *gpt_put(const char *name, const void *bytes, size_t count) {
    const char *path = gpt_file(name); FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, count, f) == count && fclose(f) == 0);
    return path;
}
static unsigned char gpt_bytes[1024 + 2 * 5000];
/* a .bin of tokens i * 7 % 1000 */
static size_t gpt_tokens(uint32_t magic, uint32_t version, uint32_t count, size_t real) {
    const uint32_t head[3] = { magic, version, count }; size_t i;
    memset(gpt_bytes, 0, sizeof gpt_bytes);
    for (i = 0; i < 12; ++i) gpt_bytes[i] = (unsigned char)(head[i / 4] >> i % 4 * 8);
    for (i = 0; i < real; ++i) {
        gpt_bytes[1024 + 2 * i] = (unsigned char)(i * 7 % 1000 & 255);
        gpt_bytes[1025 + 2 * i] = (unsigned char)(i * 7 % 1000 >> 8);
    }
    return 1024 + 2 * real;
}
/* Opening fails, the message has both parts, nothing is left open. */
static void gpt_no_data(const char *path, size_t vocab, size_t context, const char *part, const char *other, int at) {
    data d; size_t n;
    gpt_message[0] = 0;
    CHECK_AT(data_open(path, vocab, context, &d, gpt_message, sizeof gpt_message) == 1 && !d.file, at);
    n = strlen(gpt_message);
    CHECK_AT(strstr(gpt_message, part) && strstr(gpt_message, other) && n
             && (gpt_message[n - 1] == '.' || gpt_message[n - 1] == '?'), at);
    data_close(&d); data_close(&d);
}
static void gpt_data_errors(void) {
    char text[40]; const char *path = gpt_file("none"); size_t n;
    gpt_no_data(path, 256, 8, path, "--data", 0);
    gpt_no_data(gpt_put("d", "", 0), 256, 8, "empty", "--data", 1);
    memset(text, 'a', sizeof text);
    gpt_no_data(gpt_put("d", text, 8), 256, 8, "8 tokens", "--context", 2);
    gpt_no_data(gpt_put("d", text, 40), 255, 8, "256", "--vocab", 3);
    n = gpt_tokens(20240520, 1, 4001, 4000);
    gpt_no_data(gpt_put("d", gpt_bytes, n), 50257, 8, "4001", "4000", 4);
    gpt_no_data(gpt_put("d", gpt_bytes, 600), 50257, 8, "4001", "has 0", 5);
    n = gpt_tokens(20240520, 2, 4000, 4000);
    gpt_no_data(gpt_put("d", gpt_bytes, n), 50257, 8, "version 2", "llm.c", 6);
    n = gpt_tokens(20240520, 1, 4000, 4000);
    gpt_no_data(gpt_put("d", gpt_bytes, n), 999, 8, "token 857 is 999", "--vocab", 7); /* 857 * 7 % 1000 */
    gpt_bytes[1024 + 2 * 3999] = gpt_bytes[1025 + 2 * 3999] = 255; /* the last one */
    gpt_no_data(gpt_put("d", gpt_bytes, n), 50257, 8, "token 3999 is 65535", "--vocab", 8);
    gpt_no_data(gpt_put("d", gpt_bytes, n), 50257, 4000, "too few", "--context", 9);
    gpt_no_data(gpt_put("d.u16", gpt_bytes + 1024, 7), 50257, 1, "16-bit", "cut off", 10);
    gpt_no_data(gpt_put("d.u16", gpt_bytes + 1024, 2), 50257, 1, "too few", "--context", 11);
#ifndef _WIN32
    gpt_no_data("/tmp", 256, 8, "/tmp", "--data", 12);
    if (geteuid() != 0) { /* nothing is forbidden to root */
        path = gpt_put("d", text, 40);
        CHECK(chmod(path, 0) == 0);
        gpt_no_data(path, 256, 8, path, "--data", 13);
    }
#endif
    remove(gpt_file("d")); remove(gpt_file("d.u16"));
}
static void gpt_documents(void) { /* where they begin, written down by hand; none goes on in the next sequence */
    static const char text[] = "a\n\n\nbc\nd\n\n\n\nx\ny\nzz"; /* two sequences of nine */
    static const char windows[] = "\r\n\r\na\r\n\r\nb\r\n\r\ncd\r\n";
    static const size_t of_text[] = { 0, 4, 9, 12, 18 };
    static const int32_t places[18] = { 0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4, 5 };
    static const int32_t tokens[8] = { 5, 50256, 7, 10, 50256, 50256, 10, 10 };
    static const size_t of_tokens[] = { 0, 1, 4, 5, 8 };
    int32_t ids[18], positions[18]; size_t starts[19], i; data d;
    memset(&d, 0, sizeof d);
    d.bytes = 1;
    for (i = 0; i < 18; ++i) ids[i] = text[i];
    CHECK(sizeof text == 19 && data_documents(&d, ids, 2, 9, starts, positions) == 4);
    CHECK(!memcmp(starts, of_text, sizeof of_text) && !memcmp(positions, places, sizeof places));
    CHECK(data_documents(&d, ids, 1, 4, starts, positions) == 1 && starts[0] == 0 && starts[1] == 4 && positions[3] == 3);
    for (i = 0; i < 18; ++i) ids[i] = windows[i];
    CHECK(sizeof windows == 19 && data_documents(&d, ids, 1, 18, starts, positions) == 4 && starts[1] == 4 && starts[2] == 9 && starts[3] == 14);
    d.bytes = 2;
    CHECK(data_documents(&d, tokens, 2, 4, starts, positions) == 4 && !memcmp(starts, of_tokens, sizeof of_tokens));
    CHECK(positions[0] == 0 && positions[3] == 2 && positions[4] == 0 && positions[5] == 0 && positions[7] == 2);
}
static unsigned char gpt_place[65536]; /* of what a feed reads ahead */
static void gpt_feed(data *d, uint64_t seed, size_t batch, size_t context, size_t units, size_t rank, size_t ranks) {
    const data_shape shape = { seed, batch, context, units, rank, ranks };
    const size_t bytes = data_feed_bytes(batch, context);

    (void)data_end_feed(d);
    memset(gpt_place, 0xA5, sizeof gpt_place);
    CHECK(bytes > 2 * batch * (context + 1) * 2 && bytes < sizeof gpt_place);
    CHECK(data_feed(d, &shape, gpt_place, gpt_message, sizeof gpt_message) == 0);
    CHECK(gpt_place[bytes] == 0xA5); /* no more than was told */
}
static void gpt_data_shrinks(void) { /* a file that is changed while it is read */
    data d; int32_t in[64], out[64]; const size_t n = gpt_tokens(20240520, 1, 4000, 4000); const char *path;
    CHECK(data_open(gpt_put("d", gpt_bytes, n), 1000, 8, &d, gpt_message, sizeof gpt_message) == 0);
    memset(gpt_bytes + 1024, 255, n - 1024);
    path = gpt_put("d", gpt_bytes, n); /* other tokens in the same place */
    gpt_feed(&d, 1, 8, 8, 1, 0, 1);
    CHECK(data_batch(&d, 0, in, out, gpt_message, sizeof gpt_message) == 1 && strstr(gpt_message, "65535"));
    gpt_put("d", gpt_bytes, 1030);
    CHECK(data_batch(&d, 7, in, out, gpt_message, sizeof gpt_message) == 1 && strstr(gpt_message, "shorter"));
    CHECK(strstr(gpt_message, path) && gpt_message[strlen(gpt_message) - 1] == '?');
    (void)data_end_feed(&d);
    {
        const data_shape shape = { 1, 8, 8, 1, 0, 1 };

        CHECK(data_feed(&d, &shape, gpt_place, gpt_message, sizeof gpt_message) == 1 && !d.feed);
        CHECK(strstr(gpt_message, "tokens") && strstr(gpt_message, "changed"));
    }
    data_close(&d); remove(path);
}
enum { GPT_BATCH = 64, GPT_CONTEXT = 24 };
static int32_t gpt_in[GPT_BATCH * GPT_CONTEXT], gpt_out[GPT_BATCH * GPT_CONTEXT], gpt_in2[GPT_BATCH * GPT_CONTEXT],
    gpt_out2[GPT_BATCH * GPT_CONTEXT];
static void gpt_batches(const char *path, size_t tokens) { /* of tokens i * 7 % 1000 */
    enum { WINDOWS = 999 / GPT_CONTEXT };
    data d; size_t i, at, rank, seen[WINDOWS] = { 0 };
    CHECK(data_open(path, 1000, GPT_CONTEXT, &d, gpt_message, sizeof gpt_message) == 0 && d.tokens == tokens);
    if (!d.file) return;
    gpt_feed(&d, 5, GPT_BATCH, GPT_CONTEXT, 1, 0, 1);
    CHECK(data_batch(&d, 16, gpt_in, gpt_out, gpt_message, sizeof gpt_message) == 0); /* as when a run is resumed */
    for (i = 0; i < GPT_BATCH * GPT_CONTEXT; ++i) {
        const int32_t next = (gpt_in[i] + 7) % 1000; /* what follows in the file */
        CHECK_AT(gpt_in[i] >= 0 && gpt_in[i] < 1000 && gpt_out[i] == next, i);
        CHECK_AT(i % GPT_CONTEXT == 0 || gpt_in[i] == gpt_out[i - 1], i);
    }
    for (rank = 0; rank < 5; ++rank) { /* the same in micro-batches, over ranks of which the last has none in a step of 4 */
        gpt_feed(&d, 5, 4, GPT_CONTEXT, 4, rank, 5);
        CHECK((d.feed == NULL) == (rank == 4));
        for (at = rank; d.feed && at < 16; at += 4)
            CHECK(data_batch(&d, 16 * 16 + at, gpt_in2 + at * 4 * GPT_CONTEXT, gpt_out2 + at * 4 * GPT_CONTEXT, gpt_message, sizeof gpt_message) == 0);
    }
    CHECK(!memcmp(gpt_in, gpt_in2, sizeof gpt_in) && !memcmp(gpt_out, gpt_out2, sizeof gpt_out));
    gpt_feed(&d, 6, GPT_BATCH, GPT_CONTEXT, 1, 0, 1);
    CHECK(data_batch(&d, 16, gpt_in2, gpt_out2, gpt_message, sizeof gpt_message) == 0);
    CHECK(memcmp(gpt_in, gpt_in2, sizeof gpt_in) != 0); /* another seed */
    gpt_feed(&d, 6, 1, GPT_CONTEXT, 1, 0, 1);
    for (i = 0; i < 3 * WINDOWS; ++i) { /* an epoch has every window once: of token 7 t is 7 * 24 * window % 1000 */
        CHECK(data_batch(&d, i, gpt_in, gpt_out, gpt_message, sizeof gpt_message) == 0);
        for (at = 0; at < WINDOWS && (int32_t)(at * GPT_CONTEXT * 7 % 1000) != gpt_in[0]; ++at) {}
        CHECK_AT(at < WINDOWS, i);
        if (at < WINDOWS) ++seen[at];
        CHECK_AT(at == WINDOWS || seen[at] == i / WINDOWS + 1, i);
    }
    CHECK(memopt_feed_get_stats(d.feed).units == 3 * WINDOWS && data_end_feed(&d).units == 3 * WINDOWS && !d.feed);
    data_close(&d);
}
static void gpt_data_batches(void) {
    const size_t n = gpt_tokens(20240520, 1, 1000, 1000); const char *path; data d;
    path = gpt_put("d", gpt_bytes, n); gpt_batches(path, 1000); remove(path);
    path = gpt_put("d.u16", gpt_bytes + 1024, 2000); gpt_batches(path, 1000); remove(path);
    path = gpt_put("d", "abcdefghi", 9); /* exactly a context and one more: there is one window */
    CHECK(data_open(path, 256, 8, &d, gpt_message, sizeof gpt_message) == 0 && d.bytes == 1 && d.tokens == 9);
    gpt_feed(&d, 1, 2, 8, 1, 0, 1);
    if (d.file) CHECK(data_batch(&d, 77, gpt_in, gpt_out, gpt_message, sizeof gpt_message) == 0
                      && gpt_in[0] == 'a' && gpt_in[15] == 'h' && gpt_out[0] == 'b' && gpt_out[15] == 'i');
    data_close(&d); remove(path);
}
static void gpt_data_held(void) { /* the last tenth is for looking only, and all of it is looked at */
    data d, none; size_t i; const size_t n = gpt_tokens(20240520, 1, 1000, 1000); const char *path = gpt_file("d");
    int32_t low = 999, high = 0;
    for (i = 0; i < 1000; ++i) { gpt_bytes[1024 + 2 * i] = (unsigned char)i; gpt_bytes[1025 + 2 * i] = (unsigned char)(i >> 8); }
    CHECK(data_open(gpt_put("d", gpt_bytes, n), 1000, 24, &d, gpt_message, sizeof gpt_message) == 0 && d.training == 1000);
    CHECK(data_hold_back(&d, 100, gpt_message, sizeof gpt_message) == 1 && d.training == 1000); /* a hundred: none follows */
    CHECK(strstr(gpt_message, "--validate") && gpt_message[strlen(gpt_message) - 1] == '.');
    CHECK(data_hold_back(&d, 99, gpt_message, sizeof gpt_message) == 0 && d.training == 900 && d.tokens == 1000);
    CHECK(data_held_batches(&d, 3, 10) == 4 && data_held_batches(&d, 3, 1) == 34 && data_held_batches(&d, 1, 99) == 1); /* of 100 tokens */
    none = d;
    none.tokens = 2900;
    CHECK(data_held_batches(&none, 3, 10) == 43 && data_held_batches(&none, 3, 100) == 7); /* of 2000 */
    memset(&none, 0, sizeof none);
    CHECK(data_held_batches(&none, 3, 10) == 43); /* images: there is no end of them */
    gpt_feed(&d, 3, GPT_BATCH, 24, 1, 0, 1);
    for (i = 0; i < 30; ++i) {
        CHECK(data_batch(&d, i, gpt_in, gpt_out, gpt_message, sizeof gpt_message) == 0);
        CHECK(gpt_out[GPT_BATCH * 24 - 1] < 900 && gpt_in[0] < 876);
        if (gpt_in[0] > high) high = gpt_in[0];
    }
    CHECK(high > 780);
    CHECK(data_held_back(&d, 4, 0, 4, 24, gpt_in, gpt_out, gpt_message, sizeof gpt_message) == 0);
    for (i = 0; i < 4 * 24; ++i) CHECK_AT(gpt_in[i] == 900 + (int32_t)(i / 24) * 19 + (int32_t)(i % 24) && gpt_out[i] == gpt_in[i] + 1, i);
    CHECK(data_held_back(&d, 4, 3, 1, 24, gpt_in2, gpt_out2, gpt_message, sizeof gpt_message) == 0); /* any part of it alone */
    CHECK(!memcmp(gpt_in2, gpt_in + 72, 24 * sizeof *gpt_in));
    for (i = 0; i < GPT_BATCH; ++i) { /* the last one ends where the file does */
        CHECK(data_held_back(&d, GPT_BATCH, i, 1, 99, gpt_in, gpt_out, gpt_message, sizeof gpt_message) == 0);
        if (gpt_in[0] < low) low = gpt_in[0];
        CHECK(gpt_in[0] == 900 && gpt_out[98] == 999);
    }
    CHECK(low == 900);
    data_close(&d); remove(path);
}
static outcome gpt_long;
static void gpt_losses(void) { /* means of 1, 2, 4... steps, as many as there is room for */
    size_t i;
    memset(&gpt_long, 0, sizeof gpt_long);
    gpt_long.tokens = 3000;
    for (i = 0; i < MOST_LOSSES; ++i) outcome_step(&gpt_long, (double)i, 2.0 * (double)i + 8, 5);
    CHECK(gpt_long.loss_count == MOST_LOSSES && gpt_long.loss_steps == 1 && gpt_long.losses[7] == 7.0f);
    outcome_step(&gpt_long, (double)i, 2.0 * (double)i + 8, 5); ++i;
    CHECK(gpt_long.loss_count == MOST_LOSSES / 2 + 1 && gpt_long.loss_steps == 2 && gpt_long.losses[7] == 14.5f);
    CHECK(gpt_long.losses[MOST_LOSSES / 2] == 1000.0f && gpt_long.losses[MOST_LOSSES / 2 - 1] == 998.5f);
    for (; i < 3 * MOST_LOSSES - 1; ++i) outcome_step(&gpt_long, (double)i, 2.0 * (double)i + 8, 5);
    CHECK(gpt_long.steps == 2999 && gpt_long.loss_steps == 4 && gpt_long.loss_count == 750);
    for (i = 0; i < 749; ++i) CHECK_AT(gpt_long.losses[i] == 4.0f * (float)i + 1.5f, i);
    CHECK(gpt_long.losses[749] == 2997.0f); /* of three */
    for (i = 0; i < 749; ++i) CHECK_AT(gpt_long.seconds[i] == 8.0f * (float)i + 11, i);
    outcome_speed(&gpt_long, 0); /* all of them: 8, 10, ... 6004 seconds */
    CHECK(gpt_long.seconds_per_step == 3006 && gpt_long.cpu_seconds_per_step == 5 && gpt_long.tokens_per_second == 3000.0 / 3006);
    outcome_speed(&gpt_long, 1); /* but the first, of 8 */
    CHECK(gpt_long.seconds_per_step == 3007 && gpt_long.cpu_seconds_per_step == 5 && gpt_long.tokens_per_second == 3000.0 / 3007);
    memset(&gpt_long, 0, sizeof gpt_long);
    outcome_step(&gpt_long, 1, 4, 2);
    outcome_speed(&gpt_long, 1); /* there is no other */
    CHECK(gpt_long.seconds_per_step == 4 && gpt_long.cpu_seconds_per_step == 2);
}
static float gpt_pixels[32 * 8 * 8 * 48], gpt_pixels2[32 * 8 * 8 * 48];
static void gpt_data_images(void) {
    int32_t labels[32], again[32]; size_t i, seen[IMAGE_CLASSES] = { 0 }; const size_t one = 8 * 8 * 48;
    float low = 0, high = 0;
    data_images(3, 100, 32, 8, 4, gpt_pixels, labels);
    for (i = 0; i < 32; i += 8) data_images(3, 100 + i, 8, 8, 4, gpt_pixels2 + i * one, again + i);
    CHECK(!memcmp(gpt_pixels, gpt_pixels2, sizeof gpt_pixels) && !memcmp(labels, again, sizeof labels));
    for (i = 0; i < 200; ++i) { /* all classes come, about as often */
        data_images(3, i, 1, 1, 2, gpt_pixels2, again);
        CHECK_AT(again[0] >= 0 && again[0] < IMAGE_CLASSES, i);
        ++seen[again[0]];
    }
    for (i = 0; i < IMAGE_CLASSES; ++i) CHECK_AT(seen[i] > 5 && seen[i] < 40, i);
    for (i = 0; i < 32 * one; ++i) {
        if (gpt_pixels[i] < low) low = gpt_pixels[i];
        if (gpt_pixels[i] > high) high = gpt_pixels[i];
    }
    CHECK(low > -2 && low < -1 && high < 2 && high > 1);
    data_images(4, 100, 8, 8, 4, gpt_pixels2, again);
    CHECK(memcmp(gpt_pixels, gpt_pixels2, 8 * one * sizeof(float)) != 0);
}

/* ---- JSON and the page ---- */
static outcome gpt_rungs[3];
static char gpt_text[1 << 20];
static const char *gpt_read(const char *path) {
    FILE *f = fopen(path, "rb"); size_t n = 0;
    CHECK(f != NULL);
    if (f) { n = fread(gpt_text, 1, sizeof gpt_text - 1, f); fclose(f); }
    gpt_text[n] = 0;
    return gpt_text;
}
static void gpt_fill(void) {
    size_t i, t, s;
    memset(gpt_rungs, 0, sizeof gpt_rungs);
    for (i = 0; i < 3; ++i) {
        outcome *o = &gpt_rungs[i];
        o->ok = 1;
        snprintf(o->name, sizeof o->name, "rung <%d> & \"co\"", (int)i);
        snprintf(o->switches, sizeof o->switches, "--keep every:%d --json \"a\\b\"", (int)i + 1);
        for (t = 0; t < TAGS; ++t) o->predicted_peak += o->at_peak[t] = 1000000 * (t + 1) / (i + 1);
        o->measured_peak = i == 1 ? 0 : o->predicted_peak + 5; o->tokens_per_second = i == 1 ? 0 : 123.5;
        o->weights_hash = i < 2 ? 77 : 78; o->parameters = 1234567; o->tokens = 256; o->batch = 2;
        o->steps = o->loss_count = 5; o->loss_steps = 1; o->moment_count = 6;
        for (s = 0; s < 5; ++s) o->losses[s] = 5.0f - (float)s + (i == 2 ? 0.25f : 0.0f);
        for (s = 0; s < 5; ++s) o->seconds[s] = 0.5f * (float)s + 0.25f;
        for (s = 0; s < 6; ++s) {
            o->moments[s].when = (float)s / 6.0f;
            for (t = 0; t < TAGS; ++t) o->moments[s].bytes[t] = (float)o->at_peak[t] * (s % 2 ? 0.5f : 1.0f);
        }
    }
    gpt_rungs[0].losses[2] = (float)NAN; gpt_rungs[1].losses[2] = (float)NAN; gpt_rungs[2].losses[3] = -(float)INFINITY;
}
#ifndef _WIN32
static memopt_status gpt_name(void *count, const char *name) {
    if (*name) ++*(size_t *)count;
    return MEMOPT_OK;
}
static size_t gpt_names(const char *directory) {
    memopt_host host; size_t count = 0;
    memset(&host, 0, sizeof host);
    CHECK(memopt_host_resolve(NULL, &host) == MEMOPT_OK);
    CHECK(host.files.list_dir_fn(host.files.user, directory, gpt_name, &count) == MEMOPT_OK);
    return count;
}
static void gpt_json_beside_links(void) { /* whatever lies at a name for a moment is not written through */
    char directory[600], path[700], other[800], victim[700]; const unsigned long begin = (unsigned long)time(NULL); unsigned i;
    size_t names = 3;
    snprintf(directory, sizeof directory, "%s", gpt_file("jd")); snprintf(path, sizeof path, "%s/j", directory);
    snprintf(victim, sizeof victim, "%s/victim", directory); snprintf(other, sizeof other, "%s.tmp", path);
    gpt_fill();
    CHECK(mkdir(directory, 0700) == 0 && symlink("victim", other) == 0);
    { FILE *f = fopen(victim, "wb"); CHECK(f != NULL); if (f) { fputs("mine", f); fclose(f); } }
    for (i = 0; i < 20; ++i, ++names) { /* of the next ten seconds, the first two names */
        snprintf(other, sizeof other, "%s.%lx-%u.tmp", path, begin + i / 2, i % 2);
        CHECK_AT(symlink("victim", other) == 0, i);
    }
    CHECK(json_write(path, &gpt_rungs[0]) == 0 && strstr(gpt_read(path), "\"name\": \"rung"));
    CHECK(remove(path) == 0 && mkdir(path, 0700) == 0 && json_write(path, &gpt_rungs[0]) == 1); /* a folder: nothing stays */
    CHECK(!strcmp(gpt_read(victim), "mine") && gpt_names(directory) == names); /* it, victim, links: no more and no fewer */
    for (i = 0; i < 20; ++i) {
        snprintf(other, sizeof other, "%s.%lx-%u.tmp", path, begin + i / 2, i % 2);
        CHECK_AT(remove(other) == 0, i);
    }
    snprintf(other, sizeof other, "%s.tmp", path);
    CHECK(remove(other) == 0 && remove(victim) == 0 && rmdir(path) == 0 && rmdir(directory) == 0);
}
#endif
static void gpt_json(void) {
    const char *path = gpt_file("j"), *text;
    gpt_fill();
    CHECK(json_write(path, &gpt_rungs[0]) == 0);
    text = gpt_read(path);
    CHECK(strstr(text, "\"name\": \"rung <0> & \\\"co\\\"\"") && strstr(text, "\\\"a\\\\b\\\""));
    CHECK(strstr(text, "\"held_back_losses\": [],") && strstr(text, "\"steps\": 5,"));
    CHECK(strstr(text, "\"seconds_of_steps\": [0.25, 0.75, 1.25, 1.75, 2.25]"));
    CHECK(strstr(text, "\"losses\": [5, 4, null, 2, 1]") && strstr(text, "\"weights_hash\": \"000000000000004d\""));
    CHECK(strstr(text, "\"predicted_peak_bytes\": 28000000,") && strstr(text, "\"measured_peak_bytes\": 28000005,"));
    CHECK(strstr(text, "\"kept activations\": 5000000") && !strstr(text, "nan") && !strstr(text, "inf"));
    CHECK(json_write_all(path, gpt_rungs, 3) == 0);
    text = gpt_read(path);
    CHECK(strstr(text, "\"rungs\": [") && strstr(text, "\"measured_peak_bytes\": null")
          && strstr(text, "\"tokens_per_second\": null"));
    remove(path);
    CHECK(json_write(gpt_file("no/such/folder"), &gpt_rungs[0]) == 1);
#ifndef _WIN32
    CHECK(mkdir(path, 0700) == 0 && json_write(path, &gpt_rungs[0]) == 1 && rmdir(path) == 0); /* it is no file to replace */
#endif
}
static size_t gpt_occurrences(const char *text, const char *what) {
    size_t n = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what)) ++n;
    return n;
}
static void gpt_page(void) {
    const char *path = gpt_file("p"), *text, *strips[3] = { NULL, "<svg xmlns=\"http://www.w3.org/2000/svg\"/>",
                                                            NULL }; page p; size_t i;
    gpt_fill();
    memset(&p, 0, sizeof p); strips[0] = "M"; strips[2] = "Ma";
    p.title = "A <title> & more"; p.about = "about \"it\""; p.rungs = gpt_rungs; p.count = 3; p.strips = strips;
    CHECK(page_write(path, &p) == 0);
    text = gpt_read(path);
    CHECK(strstr(text, "<h1>A &lt;title&gt; &amp; more</h1>") && !strstr(text, "<title> &"));
    CHECK(gpt_occurrences(text, "class=\"bar\"") == 3 && gpt_occurrences(text, "class=\"plot\"") == 3 + 3 + 2);
    CHECK(gpt_occurrences(text, "class=\"yes\"") == 1 && strstr(text, "<td>no</td>") && strstr(text, "28.0 MB"));
    CHECK(gpt_occurrences(text, "class=\"curve\"") == 2 * 2 && !strstr(text, "nan") && !strstr(text, "inf"));
    CHECK(strstr(text, "src=\"data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=\""));
    CHECK(strstr(text, "base64,TQ==\"") && strstr(text, "base64,TWE=\""));
    CHECK(!strstr(text, "<script") && gpt_occurrences(text, "http") == 0);
    for (i = 0; i < 3; ++i) { /* a third plot, and a column, of what is held back */
        gpt_rungs[i].held_steps = 2; gpt_rungs[i].held_count = 3;
        gpt_rungs[i].held[0] = 4; gpt_rungs[i].held[1] = 3.5f; gpt_rungs[i].held[2] = 3;
    }
    CHECK(page_write(path, &p) == 0);
    text = gpt_read(path);
    CHECK(gpt_occurrences(text, "class=\"plot\"") == 3 + 3 + 3 && gpt_occurrences(text, "class=\"curve\"") == 3 * 2);
    CHECK(gpt_occurrences(text, "<td>3.00000</td>") == 3 && gpt_occurrences(text, "held back</th>") == 1);
    CHECK(strstr(text, "M0 0L666.7 500L1000 1000") && strstr(text, "<span>step 2</span><span>step 5</span>"));
    gpt_rungs[1].ok = 0; gpt_rungs[1].predicted_peak = 0; memset(gpt_rungs[1].at_peak, 0, sizeof gpt_rungs[1].at_peak);
    snprintf(gpt_rungs[1].message, sizeof gpt_rungs[1].message, "no <room>");
    gpt_rungs[0].moment_count = gpt_rungs[1].moment_count = gpt_rungs[2].moment_count = 0;
    p.strips = NULL;
    CHECK(page_write(path, &p) == 0);
    text = gpt_read(path);
    CHECK(strstr(text, "<td>\xe2\x80\x93</td><td class=\"why\" colspan=\"7\">no &lt;room&gt;</td></tr>"));
    CHECK(strstr(text, "no &lt;room&gt;") && !strstr(text, "id=\"step\"") && !strstr(text, "id=\"strips\""));
    CHECK(page_chart_svg(path, &p) == 0);
    text = gpt_read(path);
    CHECK(gpt_occurrences(text, "height=\"20\"") == 2 * TAGS && strstr(text, "rung &lt;2&gt;")
          && strstr(text, "</svg>"));
    memset(gpt_rungs, 0, sizeof gpt_rungs); /* nothing is known: nothing is divided by */
    CHECK(page_write(path, &p) == 0 && page_chart_svg(path, &p) == 0);
    CHECK(!strstr(gpt_read(path), "nan"));
    p.count = 0;
    CHECK(page_write(path, &p) == 1 && page_chart_svg(path, &p) == 1);
    remove(path);
}
static void gpt_figures(void) {
    static const struct { double bytes; const char *text; } bytes[] = { { 0, "0 B" }, { 999, "999 B" },
            { 999.6, "1 kB" },
        { 812e6, "812 MB" }, { 99.94e6, "99.9 MB" }, { 99.96e6, "100 MB" }, { 3.829e9, "3.83 GB" },
            { 9.994e9, "9.99 GB" },
        { 9.996e9, "10.0 GB" }, { 999.6e9, "1.00 TB" } };
    static const double most[] = { 1, 3, 7, 9.99, 10, 20.4e9, 812e6, 3e-4, 4.4e-9 }; size_t i; words w;
    for (i = 0; i < sizeof bytes / sizeof *bytes; ++i) { w = page_bytes(bytes[i].bytes);
                                                         CHECK_AT(!strcmp(w.text, bytes[i].text), i); }
    for (i = 0; i < sizeof most / sizeof *most; ++i) CHECK_AT(most[i] / page_tick(most[i]) >= 2
                                                              && most[i] / page_tick(most[i]) <= 5.01, i);
    w = page_count(1234567); CHECK(!strcmp(w.text, "1\xe2\x80\x89" "234\xe2\x80\x89" "567"));
    w = page_count(999); CHECK(!strcmp(w.text, "999"));
}

/* ---- steps that are left out ---- */
static double gpt_history[2][1000]; /* losses, norms */
/* By the definition: of the 128 values before this one, in any order. */
static int gpt_is_outlier(const double *values, size_t i, double z) {
    double mean = 0, variance = 0; size_t k;
    for (k = i - 128; k < i; ++k) mean += values[k] / 128;
    for (k = i - 128; k < i; ++k) variance += (values[k] - mean) * (values[k] - mean) / 128;
    return variance > 0 && values[i] > mean + z * sqrt(variance);
}
static void gpt_outliers(void) {
    outlier_windows w, again; uint64_t seed = 3, skipped = 0; size_t i, k; double z;
    for (z = 1; z < 4; z += 1.5) { /* a curve that falls, noise, and peaks of either; the first 128 are all fine */
        memset(&w, 0, sizeof w);
        for (i = 0, skipped = 0; i < 1000; ++i) {
            for (k = 0; k < 2; ++k) gpt_history[k][i] = 5 / (1 + (double)i) + (double)(test_random(&seed) >> 11) / 9007199254740992.0 + (i % (97 + 40 * k) == 96 ? 3 : 0);
            if (i == 500) { again = w; } /* as from a save */
            { const int wanted = i >= 128 && (gpt_is_outlier(gpt_history[0], i, z) || gpt_is_outlier(gpt_history[1], i, z));
              skipped += (uint64_t)wanted;
              CHECK_AT(outliers_skip(&w, z, gpt_history[0][i], gpt_history[1][i]) == wanted && w.skipped == skipped && w.seen == i + 1, i); }
        }
        CHECK(skipped > 8 && skipped < 500);
        for (i = 500; i < 1000; ++i) (void)outliers_skip(&again, z, gpt_history[0][i], gpt_history[1][i]);
        CHECK(!memcmp(&again, &w, sizeof w));
    }
    for (k = 0; k < 2; ++k) { /* mean 1, deviation 1: at the bound it is none, just above it is; of losses, of norms */
        memset(&w, 0, sizeof w);
        for (i = 0; i < 127; ++i) CHECK(!outliers_skip(&w, 2, i % 2 ? 2 : 0, i % 2 ? 2 : 0));
        CHECK(!outliers_skip(&w, 2, 2, 2)); /* the 128th: not enough were there */
        again = w; CHECK(!outliers_skip(&w, 2, k ? 1 : 3, k ? 3 : 1) && w.skipped == 0);
        w = again; CHECK(outliers_skip(&w, 2, k ? 1 : 3 + 1e-12, k ? 3 + 1e-12 : 1) && w.skipped == 1);
        w = again; CHECK(!outliers_skip(&w, 2, -100, -100)); /* below is fine */
    }
    memset(&w, 0, sizeof w);
    for (i = 0; i < 127; ++i) (void)outliers_skip(&w, 2, 1, 1);
    CHECK(!outliers_skip(&w, 2, 1e9, 1)); /* which none had been seen before */
    memset(&w, 0, sizeof w);
    for (i = 0; i < 128; ++i) (void)outliers_skip(&w, 2, 1, 1);
    CHECK(!outliers_skip(&w, 2, 1.5, 1.5) && outliers_skip(&w, 2, 1.5, 1)); /* all the same: none; and then it has joined them */
}

static void test_gpt(void) {
    RUN(gpt_defaults); RUN(gpt_values); RUN(gpt_rates); RUN(gpt_byte_numbers); RUN(gpt_refusals); RUN(gpt_neighbours);
    RUN(gpt_described); RUN(gpt_help);
    RUN(gpt_data_errors); RUN(gpt_documents); RUN(gpt_data_shrinks); RUN(gpt_data_batches); RUN(gpt_data_held); RUN(gpt_losses); RUN(gpt_data_images);
    RUN(gpt_json);
#ifndef _WIN32
    RUN(gpt_json_beside_links);
#endif
    RUN(gpt_page); RUN(gpt_figures); RUN(gpt_outliers);
}
#ifndef TEST_COMBINED
int main(void) { test_gpt(); return test_totals(); }
#endif
