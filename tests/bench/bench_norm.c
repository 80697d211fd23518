/* bench_norm.c - layer norm and RMS norm of rows that lie in memory: ns an element. The limit is a loop over the same
   bytes: forward a copy, backward a sum of two arrays into a third (from 16-bit elements, half of it); both take turns.
   residual_...: memopt_norm_residual_forward beside the two calls that it replaces, in memory and in the cache.
   Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

enum { BENCH_NORM_REPEATS = 7, BENCH_NORM_CHUNK = 1 << 16 };
#define BENCH_NORM_COUNT ((size_t)16 << 20)
typedef struct bench_norm_kind { const char *name; size_t width; memopt_type type; int rms, way; } bench_norm_kind;
enum { BENCH_NORM_FORWARD, BENCH_NORM_BACKWARD, BENCH_NORM_FROM_OUTPUT, BENCH_NORM_INPUT_ONLY };
static const bench_norm_kind bench_norm_kinds[] = {
    { "layer_forward_f32",       768,  MEMOPT_TYPE_F32,  0, BENCH_NORM_FORWARD },
    { "layer_backward_f32",      768,  MEMOPT_TYPE_F32,  0, BENCH_NORM_BACKWARD },
    { "layer_backward_from_out", 768,  MEMOPT_TYPE_F32,  0, BENCH_NORM_FROM_OUTPUT },
    { "layer_backward_dx_only",  768,  MEMOPT_TYPE_F32,  0, BENCH_NORM_INPUT_ONLY },
    { "rms_forward_f32",         4096, MEMOPT_TYPE_F32,  1, BENCH_NORM_FORWARD },
    { "rms_backward_f32",        4096, MEMOPT_TYPE_F32,  1, BENCH_NORM_BACKWARD },
    { "layer_forward_bf16",      768,  MEMOPT_TYPE_BF16, 0, BENCH_NORM_FORWARD },
    { "layer_backward_bf16",     768,  MEMOPT_TYPE_BF16, 0, BENCH_NORM_BACKWARD },
    { "layer_forward_narrow",    64,   MEMOPT_TYPE_F32,  0, BENCH_NORM_FORWARD },
    { "layer_backward_narrow",   64,   MEMOPT_TYPE_F32,  0, BENCH_NORM_BACKWARD } };
typedef struct bench_norm_memory { float *x, *y, *g, *dx, *weights, *gradients, *statistics; void *scratch; } bench_norm_memory;
enum { BENCH_NORM_SCRATCH = 1 << 20 };

/* The limit moves 64-bit words. */
typedef struct bench_norm_move { const uint64_t *a, *b; uint64_t *to; size_t words; } bench_norm_move;
static void bench_norm_chunk(void *task, size_t chunk, int worker) {
    const bench_norm_move *m = (const bench_norm_move *)task; size_t i = chunk * BENCH_NORM_CHUNK;
    const size_t end = i + memopt_i_min(BENCH_NORM_CHUNK, m->words - i);
    (void)worker;
    if (!m->b) memcpy(m->to + i, m->a + i, (end - i) * sizeof *m->to);
    else for (; i < end; ++i) m->to[i] = m->a[i] + m->b[i];
}
static void bench_norm_limit(const memopt_threads *threads, const bench_norm_kind *k, const bench_norm_memory *m) {
    bench_norm_move v;
    v.words = BENCH_NORM_COUNT / k->width * k->width * memopt_type_bytes(k->type) / 8;
    v.a = (const uint64_t *)(const void *)m->x; v.to = (uint64_t *)(void *)(k->way ? m->dx : m->y);
    v.b = k->way ? (const uint64_t *)(const void *)m->g : NULL;
    memopt_i_parallel_for(threads, v.words / BENCH_NORM_CHUNK + 1, bench_norm_chunk, &v);
}
static void bench_norm_pass(const memopt_threads *threads, const bench_norm_kind *k, const bench_norm_memory *m) {
    memopt_norm n; memopt_ops ops; memopt_status s;
    memset(&n, 0, sizeof n); memset(&ops, 0, sizeof ops);
    ops.threads = threads; ops.scratch = m->scratch; ops.scratch_bytes = BENCH_NORM_SCRATCH;
    n.rows = BENCH_NORM_COUNT / k->width; n.width = k->width; n.rms = k->rms; n.type = k->type;
    n.input = m->x; n.output = m->y; n.scale = m->weights; n.shift = k->rms ? NULL : m->weights + 4096;
    n.statistics = m->statistics;
    if (k->way) {
        n.grad_output = m->g; n.grad_input = m->dx;
        if (k->way == BENCH_NORM_FROM_OUTPUT) n.input = NULL;
        if (k->way != BENCH_NORM_INPUT_ONLY) {
            n.grad_scale = m->gradients; n.grad_shift = k->rms ? NULL : m->gradients + 4096;
        }
        s = memopt_norm_backward(&ops, &n);
    } else s = memopt_norm_forward(&ops, &n);
    if (s) { fprintf(stderr, "bench_norm: %s\n", memopt_status_text(s)); exit(1); }
}
static void bench_norm_fill(float *x, size_t n, uint32_t seed) { /* as floats or bf16 of about 1 */
    size_t i;
    for (i = 0; i < n; ++i) {
        const uint32_t u = (((uint32_t)i + seed) * 0x9E3779B9u & 0x803F803Fu) | 0x3F803F80u;
        memcpy(x + i, &u, 4);
    }
}
static void bench_norm_measure(const bench *b, const memopt_threads *threads, int workers, const bench_norm_kind *k,
                               const bench_norm_memory *m) {
    double ours[BENCH_NORM_REPEATS], limit[BENCH_NORM_REPEATS]; size_t i;
    bench_norm_fill(m->x, BENCH_NORM_COUNT, 1); bench_norm_fill(m->g, BENCH_NORM_COUNT, 7);
    bench_norm_fill(m->y, BENCH_NORM_COUNT, 3); bench_norm_fill(m->dx, BENCH_NORM_COUNT, 5);
    for (i = 0; i < BENCH_NORM_COUNT / 32; ++i) m->statistics[i] = 1;
    for (i = 0; i < BENCH_NORM_REPEATS; ++i) {
        uint64_t start = bench_now();
        bench_norm_limit(threads, k, m);
        limit[i] = (double)(bench_now() - start) / (double)BENCH_NORM_COUNT;
        start = bench_now();
        bench_norm_pass(threads, k, m);
        ours[i] = (double)(bench_now() - start) / (double)BENCH_NORM_COUNT;
    }
    bench_row(b, k->name, workers, k->width, bench_median(ours, BENCH_NORM_REPEATS), "ns",
              bench_median(limit, BENCH_NORM_REPEATS), 0);
}
/* residual = x + g, y = norm(residual): in one call, or by memopt_dropout_forward and memopt_norm_forward. */
static void bench_norm_residual(const memopt_ops *ops, const memopt_norm *n, const bench_norm_memory *m, int both) {
    memopt_dropout d; memopt_norm after = *n; memopt_status s;
    memset(&d, 0, sizeof d);
    d.n = n->rows * n->width; d.type = n->type; d.input = m->g; d.residual = m->x; d.output = m->dx;
    after.input = m->dx;
    s = both ? memopt_norm_residual_forward(ops, n, m->g, m->dx) : memopt_dropout_forward(ops, &d);
    if (!both && s == MEMOPT_OK) s = memopt_norm_forward(ops, &after);
    if (s) { fprintf(stderr, "bench_norm: %s\n", memopt_status_text(s)); exit(1); }
}
static void bench_norm_pairs(const bench *b, const memopt_threads *threads, int workers, const bench_norm_memory *m) {
    static const char *const names[2][2] = { { "residual_f32", "residual_cached_f32" }, { "residual_bf16", "residual_cached_bf16" } };
    int t, cached, r;
    for (t = 0; t < 2; ++t)
        for (cached = 0; cached < 2; ++cached) {
            const int repeats = cached ? 200 : 1; double ours[BENCH_NORM_REPEATS], two[BENCH_NORM_REPEATS];
            memopt_norm n; memopt_ops ops; size_t i;
            memset(&n, 0, sizeof n); memset(&ops, 0, sizeof ops);
            ops.threads = threads;
            n.rows = cached ? 32 : BENCH_NORM_COUNT / 768; n.width = 768; n.type = t ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
            n.input = m->x; n.output = m->y; n.scale = m->weights; n.shift = m->weights + 4096; n.statistics = m->statistics;
            bench_norm_fill(m->x, BENCH_NORM_COUNT, 1); bench_norm_fill(m->g, BENCH_NORM_COUNT, 7);
            for (i = 0; i < BENCH_NORM_REPEATS; ++i) {
                uint64_t start = bench_now();
                for (r = 0; r < repeats; ++r) bench_norm_residual(&ops, &n, m, 0);
                two[i] = (double)(bench_now() - start) / repeats / (double)(n.rows * n.width);
                start = bench_now();
                for (r = 0; r < repeats; ++r) bench_norm_residual(&ops, &n, m, 1);
                ours[i] = (double)(bench_now() - start) / repeats / (double)(n.rows * n.width);
            }
            bench_row(b, names[t][cached], workers, n.width, bench_median(ours, BENCH_NORM_REPEATS), "ns",
                      bench_median(two, BENCH_NORM_REPEATS), 0);
        }
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "norm");
    memopt_thread_pool *pool = NULL; memopt_threads t; int threads; size_t i;
    bench_norm_memory m; const size_t kinds = sizeof bench_norm_kinds / sizeof *bench_norm_kinds, bytes = BENCH_NORM_COUNT * 4;
    m.x = (float *)malloc(bytes); m.y = (float *)malloc(bytes); m.g = (float *)malloc(bytes); m.dx = (float *)malloc(bytes);
    m.weights = (float *)malloc(8192 * sizeof(float)); m.gradients = (float *)malloc(8192 * sizeof(float));
    m.statistics = (float *)malloc(BENCH_NORM_COUNT / 32 * sizeof(float));
    m.scratch = memopt_i_system_alloc(NULL, BENCH_NORM_SCRATCH, 64);
    if (!m.x || !m.y || !m.g || !m.dx || !m.weights || !m.gradients || !m.statistics || !m.scratch) {
        fprintf(stderr, "bench_norm: no memory\n");
        return 1;
    }
    bench_norm_fill(m.weights, 8192, 9);
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads) {
        for (i = 0; i < kinds; ++i) bench_norm_measure(&b, &t, threads, &bench_norm_kinds[i], &m);
        bench_norm_pairs(&b, &t, threads, &m);
    }
    free(m.x); free(m.y); free(m.g); free(m.dx); free(m.weights); free(m.gradients); free(m.statistics);
    memopt_i_system_free(NULL, m.scratch, BENCH_NORM_SCRATCH, 64);
    return 0;
}
