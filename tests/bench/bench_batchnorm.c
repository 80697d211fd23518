/* bench_batchnorm.c - linear + batch norm + activation, as one operator and one step at a time: ns an output. In the
   place of the machine's limit stand the separate steps, in the same run: product, mean, variance, norm, activation, each
   a pass over memory by the library's own kernels; so "of limit" is how many times faster the operator is. Sweeps count
   how often the memory of the outputs is read or written. Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#include "../scratch.h"

enum { BENCH_BATCHNORM_REPEATS = 5, BENCH_BATCHNORM_COLUMNS = 128, BENCH_BATCHNORM_ROWS = 64 };
typedef struct bench_batchnorm_kind { const char *name; size_t rows, inputs, outputs; memopt_activation activation; int infers; } bench_batchnorm_kind;
static const bench_batchnorm_kind bench_batchnorm_kinds[] = {
    { "training_64_relu",      32768, 64,  256,  MEMOPT_ACTIVATION_RELU, 0 },
    { "training_256_gelu",     16384, 256, 512,  MEMOPT_ACTIVATION_GELU, 0 },
    { "inference_64_relu",     32768, 64,  256,  MEMOPT_ACTIVATION_RELU, 1 },
    { "inference_256_gelu",    16384, 256, 512,  MEMOPT_ACTIVATION_GELU, 1 } };
typedef struct bench_batchnorm_work {
    memopt_batch_norm n; memopt_ops ops; int level; size_t rows, columns;
    float *x, *w, *z, *v, *y, *vectors, *folded; /* vectors: bias, scale, shift, mean, variance, statistics, folded bias */
} bench_batchnorm_work;

static void bench_batchnorm_must(memopt_status s) {
    if (s) { fprintf(stderr, "bench_batchnorm: %s\n", memopt_status_text(s)); exit(1); }
}
/* ---- one step at a time ---- */
static void bench_batchnorm_mean(void *task, size_t chunk, int worker) {
    const bench_batchnorm_work *t = (const bench_batchnorm_work *)task; const size_t at = chunk * BENCH_BATCHNORM_COLUMNS;
    float sum[BENCH_BATCHNORM_COLUMNS] = { 0 }; size_t row;
    (void)worker;
    for (row = 0; row < t->rows; ++row)
        memopt_i_row_add(t->level, sum, t->z + row * t->columns + at, 1.0f, BENCH_BATCHNORM_COLUMNS);
    memopt_i_row_scale(t->level, t->n.statistics + at, sum, 1.0f / (float)t->rows, BENCH_BATCHNORM_COLUMNS);
}
static void bench_batchnorm_variance(void *task, size_t chunk, int worker) {
    const bench_batchnorm_work *t = (const bench_batchnorm_work *)task; const size_t at = chunk * BENCH_BATCHNORM_COLUMNS;
    float sum[BENCH_BATCHNORM_COLUMNS] = { 0 }; size_t row, i;
    (void)worker;
    for (row = 0; row < t->rows; ++row)
        memopt_i_batch_run(t->level, MEMOPT_I_BATCH_SQUARES, sum, t->z + row * t->columns + at, t->n.statistics + at, NULL, BENCH_BATCHNORM_COLUMNS);
    for (i = 0; i < BENCH_BATCHNORM_COLUMNS; ++i)
        t->n.statistics[t->columns + at + i] = 1.0f / sqrtf(sum[i] / (float)t->rows + 1e-5f);
}
static void bench_batchnorm_norm(void *task, size_t chunk, int worker) {
    const bench_batchnorm_work *t = (const bench_batchnorm_work *)task; const size_t n = t->columns;
    size_t row = chunk * BENCH_BATCHNORM_ROWS; const size_t end = row + BENCH_BATCHNORM_ROWS;
    (void)worker;
    for (; row < end; ++row) {
        float *v = t->v + row * n;
        memopt_i_batch_run(t->level, MEMOPT_I_BATCH_NORMALIZE, v, t->z + row * n, t->n.statistics, t->n.statistics + n, n);
        memopt_i_batch_run(t->level, MEMOPT_I_BATCH_AFFINE, v, v, (const float *)t->n.scale, (const float *)t->n.shift, n);
    }
}
static void bench_batchnorm_apart(bench_batchnorm_work *t, int infers) {
    memopt_linear l = t->n.linear; memopt_activation_args a;
    l.activation = MEMOPT_ACTIVATION_NONE; l.pre_activation = NULL; l.output = t->z;
    bench_batchnorm_must(memopt_linear_forward(&t->ops, &l));
    if (!infers) {
        memopt_i_parallel_for(t->ops.threads, t->columns / BENCH_BATCHNORM_COLUMNS, bench_batchnorm_mean, t);
        memopt_i_parallel_for(t->ops.threads, t->columns / BENCH_BATCHNORM_COLUMNS, bench_batchnorm_variance, t);
    }
    memopt_i_parallel_for(t->ops.threads, t->rows / BENCH_BATCHNORM_ROWS, bench_batchnorm_norm, t);
    memset(&a, 0, sizeof a);
    a.n = t->rows * t->columns; a.activation = t->n.linear.activation; a.input = t->v; a.output = t->y;
    bench_batchnorm_must(memopt_activation_forward(&t->ops, &a));
}
/* ---- as one ---- */
static void bench_batchnorm_fused(const bench_batchnorm_work *t, int infers) {
    memopt_linear l = t->n.linear;
    if (!infers) { bench_batchnorm_must(memopt_batch_norm_forward(&t->ops, &t->n)); return; }
    l.pre_activation = NULL; l.weights = t->folded; l.bias = t->vectors + 9 * t->columns;
    bench_batchnorm_must(memopt_linear_forward(&t->ops, &l));
}
static float *bench_batchnorm_floats(size_t n, uint32_t seed) {
    float *x = (float *)malloc(n * sizeof *x); size_t i;
    if (!x) { fprintf(stderr, "bench_batchnorm: no memory\n"); exit(1); }
    for (i = 0; i < n; ++i) x[i] = (float)(((uint32_t)i + seed) * 0x9E3779B9u >> 8) * (1.0f / 8388608.0f) - 1.0f;
    return x;
}
static void bench_batchnorm_measure(const bench *b, const memopt_threads *threads, int workers, const bench_batchnorm_kind *k) {
    bench_batchnorm_work t; double ours[BENCH_BATCHNORM_REPEATS], apart[BENCH_BATCHNORM_REPEATS]; size_t i, bytes = 0;
    const size_t all = k->rows * k->outputs, n = k->outputs; char name[64]; float *memory;
    memset(&t, 0, sizeof t);
    t.rows = k->rows; t.columns = n; t.level = memopt_i_lane_level(threads); t.ops.threads = threads;
    t.x = bench_batchnorm_floats(k->rows * k->inputs, 1); t.w = bench_batchnorm_floats(n * k->inputs, 2);
    t.z = bench_batchnorm_floats(all, 3); t.v = bench_batchnorm_floats(all, 4); t.y = bench_batchnorm_floats(all, 5);
    t.vectors = bench_batchnorm_floats(10 * n, 6); t.folded = bench_batchnorm_floats(n * k->inputs, 7);
    for (i = 0; i < n; ++i) t.vectors[6 * n + i] = (float)k->inputs / 9; /* about what they have */
    t.n.linear.rows = k->rows; t.n.linear.inputs = k->inputs; t.n.linear.outputs = n; t.n.linear.activation = k->activation;
    t.n.linear.input = t.x; t.n.linear.weights = t.w; t.n.linear.bias = t.vectors; t.n.linear.pre_activation = t.z; t.n.linear.output = t.y;
    for (i = 0; i < n; ++i) t.vectors[4 * n + i] = 3.0f / sqrtf((float)k->inputs);
    t.n.scale = t.vectors + n; t.n.shift = t.vectors + 2 * n; t.n.statistics = t.vectors + 3 * n;
    t.n.running_mean = t.vectors + 5 * n; t.n.running_variance = t.vectors + 6 * n;
    bench_batchnorm_must(scratch_of_batch_norm(&t.ops, &t.n, &bytes));
    memory = bench_batchnorm_floats(bytes / 4 + 32, 8);
    t.ops.scratch = (unsigned char *)memory + (0 - (uintptr_t)memory) % 64; t.ops.scratch_bytes = bytes;
    bench_batchnorm_must(memopt_batch_norm_fold(&t.ops, &t.n, t.folded, t.vectors + 9 * n));
    for (i = 0; i < BENCH_BATCHNORM_REPEATS; ++i) {
        uint64_t start = bench_now();
        bench_batchnorm_apart(&t, k->infers);
        apart[i] = (double)(bench_now() - start) / (double)all;
        start = bench_now();
        bench_batchnorm_fused(&t, k->infers);
        ours[i] = (double)(bench_now() - start) / (double)all;
    }
    bench_row(b, k->name, workers, n, bench_median(ours, BENCH_BATCHNORM_REPEATS), "ns", bench_median(apart, BENCH_BATCHNORM_REPEATS), 0);
    snprintf(name, sizeof name, "%s_sweeps", k->name);
    bench_row(b, name, workers, n, k->infers ? 1 : 3, "sweeps", k->infers ? 5 : 7, 0);
    free(t.x); free(t.w); free(t.z); free(t.v); free(t.y); free(t.vectors); free(t.folded); free(memory);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "batchnorm"); memopt_thread_pool *pool = NULL; memopt_threads t; int threads; size_t i;
    const size_t kinds = sizeof bench_batchnorm_kinds / sizeof *bench_batchnorm_kinds;
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads)
        for (i = 0; i < kinds; ++i) bench_batchnorm_measure(&b, &t, threads, &bench_batchnorm_kinds[i]);
    return 0;
}
