/* bench_fused.c - passes from a text beside memcpy moving as many bytes, read and written together, in the same run; ns
   an element. The chain is y = residual + dropout(gelu(x * scale + bias)), 768 and 3072 columns; beside it the operators
   that do the same one after the other (without x * scale + bias, which no operator does alone). Translating a text: ns.
   [--json]. Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define BENCH_N ((size_t)12 << 20) /* elements of the output */
enum { BENCH_REPEATS = 11 };
typedef struct bench_data { unsigned char *x, *residual, *y, *bias; } bench_data;
typedef struct bench_pass { const char *name, *text; size_t columns, arrays; } bench_pass; /* arrays: of BENCH_N elements */
static const bench_pass bench_passes[] = {
    { "chain", "y = residual + dropout(gelu(x * scale + bias))", 768, 3 },
    { "chain_3072", "y = residual + dropout(gelu(x * scale + bias))", 3072, 3 },
    { "chain_backward", "y = gelu_gradient(x * scale + bias, dropout(residual)) * scale", 768, 3 },
    { "scale_bias_residual", "y = residual + (x * scale + bias)", 768, 3 },
    { "dropout_residual", "y = residual + dropout(x)", 768, 3 },
    { "gelu", "y = gelu(x)", 768, 2 },
    { "add", "y = x + residual", 768, 3 },
    { "scale", "y = x * scale", 768, 2 },
    { "row_sum", "sum = row_sum(x * residual)", 768, 2 } };
static unsigned char *bench_block(size_t bytes) { /* aligned, touched; lives as long as the program */
    unsigned char *p = (unsigned char *)malloc(bytes + 64);
    if (!p) { fprintf(stderr, "bench_fused: out of memory\n"); exit(1); }
    p += 64 - ((uintptr_t)p & 63);
    memset(p, 0, bytes);
    return p;
}
static void bench_stop(memopt_status s, const memopt_error *e) {
    char line[200] = "";
    if (!s) return;
    (void)memopt_error_text(e, line, sizeof line, NULL);
    fprintf(stderr, "bench_fused: %s\n", line);
    exit(1);
}
typedef struct bench_copied { const bench_data *d; size_t bytes; } bench_copied;
static void bench_copy(void *task, size_t chunk, int worker) {
    const bench_copied *c = (const bench_copied *)task;
    (void)worker;
    memcpy(c->d->y + chunk * c->bytes, c->d->x + chunk * c->bytes, c->bytes);
}
static double bench_limit(const bench_data *d, const memopt_threads *t, int threads, size_t bytes) {
    bench_copied c; const uint64_t start = bench_now();
    c.d = d; c.bytes = bytes / 2 / (size_t)threads;
    memopt_i_parallel_for(t, (size_t)threads, bench_copy, &c);
    return (double)(bench_now() - start) / (double)BENCH_N;
}
static memopt_fused bench_fused(const bench_data *d, const bench_pass *b, memopt_type type, memopt_fused_array *arrays) {
    static const float scale = 0.5f; static float sums[BENCH_N / 768];
    const memopt_fused_array all[] = { { "x", type, MEMOPT_FUSED_EACH, d->x, NULL, 0 },
        { "residual", type, MEMOPT_FUSED_EACH, d->residual, NULL, 0 }, { "y", type, MEMOPT_FUSED_EACH, NULL, d->y, 0 },
        { "scale", MEMOPT_TYPE_F32, MEMOPT_FUSED_ONE, &scale, NULL, 0 }, { "bias", type, MEMOPT_FUSED_ROW, d->bias, NULL, 0 },
        { "sum", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, sums, 0 } };
    memopt_fused f; size_t i;
    memset(&f, 0, sizeof f);
    f.text = b->text; f.arrays = arrays; f.columns = b->columns; f.rows = BENCH_N / b->columns;
    f.rate = 0.1f; f.noise = memopt_noise_make(1, 2);
    for (i = 0; i < 6; ++i) if (strstr(b->text, all[i].name)) arrays[f.array_count++] = all[i];
    return f;
}
static void bench_operators(const memopt_ops *o, const bench_data *d, memopt_type type) { /* GELU in place of x, dropout */
    memopt_activation_args a; memopt_dropout r;
    memset(&a, 0, sizeof a); memset(&r, 0, sizeof r);
    a.n = r.n = BENCH_N; a.type = r.type = type; a.activation = MEMOPT_ACTIVATION_GELU; a.input = d->x; a.output = d->y;
    r.input = r.output = d->y; r.residual = d->residual; r.rate = 0.1f; r.noise = memopt_noise_make(1, 2);
    bench_stop(memopt_activation_forward(o, &a), o->error); bench_stop(memopt_dropout_forward(o, &r), o->error);
}
static void bench_text(const bench *b, const bench_data *d) { /* a pass over one element: the translation */
    memopt_fused_array arrays[6]; double times[BENCH_REPEATS]; memopt_error e; memopt_ops o; size_t i, k;
    memopt_fused f = bench_fused(d, bench_passes, MEMOPT_TYPE_BF16, arrays);
    memset(&o, 0, sizeof o); o.error = &e; f.rows = f.columns = 1;
    for (i = 0; i < BENCH_REPEATS; ++i) {
        const uint64_t start = bench_now();
        for (k = 0; k < 1000; ++k) bench_stop(memopt_fused_run(&o, &f), &e);
        times[i] = (double)(bench_now() - start) / 1000;
    }
    bench_row(b, "text_of_46_characters", 1, 1, bench_median(times, BENCH_REPEATS), "ns", 1000, 0);
}
int main(int argc, char **argv) {
    static const memopt_type types[2] = { MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32 };
    const bench b = bench_begin(argc, argv, "fused"); bench_data d; memopt_thread_pool *pool; memopt_threads threads;
    double times[BENCH_REPEATS], limits[BENCH_REPEATS]; size_t k, t, i; int n; char name[64]; memopt_error e; uint64_t seed = 1;
    d.x = bench_block(BENCH_N * 6); d.residual = bench_block(BENCH_N * 6); d.y = bench_block(BENCH_N * 6); d.bias = bench_block(65536);
    for (i = 0; i < BENCH_N * 6; i += 2) { /* bf16 from -2 to 2; floats too */
        const uint16_t code = memopt_to_bf16((float)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 40) / 4194304.0f - 2);
        memcpy(d.x + i, &code, 2); memcpy(d.residual + i, &code, 2); if (i < 65536) memcpy(d.bias + i, &code, 2);
    }
    for (n = 1; bench_threads(n, &pool, &threads); ++n) {
        memopt_ops o;
        memset(&o, 0, sizeof o); o.threads = &threads; o.error = &e;
        for (t = 0; t < 2; ++t)
            for (k = 0; k <= sizeof bench_passes / sizeof *bench_passes; ++k) {
                memopt_fused_array arrays[6]; const bench_pass *pass = bench_passes + (k ? k - 1 : 0);
                const memopt_fused f = bench_fused(&d, pass, types[t], arrays);
                for (i = 0; i < BENCH_REPEATS; ++i) {
                    uint64_t start;
                    limits[i] = bench_limit(&d, &threads, n, pass->arrays * BENCH_N * memopt_type_bytes(types[t]));
                    start = bench_now();
                    if (k) bench_stop(memopt_fused_run(&o, &f), &e);
                    else bench_operators(&o, &d, types[t]);
                    times[i] = (double)(bench_now() - start) / (double)BENCH_N;
                }
                (void)snprintf(name, sizeof name, "%s_%s", k ? pass->name : "gelu_then_dropout_operators", t ? "f32" : "bf16");
                bench_row(&b, name, n, BENCH_N, bench_median(times, BENCH_REPEATS), "ns", bench_median(limits, BENCH_REPEATS), 0);
            }
    }
    bench_text(&b, &d);
    return 0;
}
