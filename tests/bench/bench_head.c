/* bench_head.c - loss and gradients of a language model's head: all logits at once, chunks of 512 and of 64 rows.
   limit: the same with all logits at once; of that one, its three products alone. scratch is told as a row of its own.
   _bf16: input, weights and their gradients are bf16, and so are the gradients of logits.
   Rows and vocabulary: [--json] [rows [vocabulary [width]]]. Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

enum { BENCH_REPEATS = 3 };
typedef struct bench_data {
    size_t   rows, width, vocabulary, padded;
    void    *input, *weights, *grad_input, *grad_weights;
    memopt_type type;
    int32_t *targets;
} bench_data;
static void *bench_block(size_t bytes) { /* aligned; lives as long as the program */
    unsigned char *p = (unsigned char *)malloc(bytes + 64);
    if (!p) { fprintf(stderr, "bench_head: needs %llu bytes of memory\n", (unsigned long long)bytes); exit(1); }
    return p + (64 - ((uintptr_t)p & 63));
}
static memopt_head bench_head(const bench_data *d, size_t chunk) {
    memopt_head h;
    memset(&h, 0, sizeof h);
    h.type = h.weight_type = h.gradient_type = d->type;
    h.rows = d->rows; h.width = d->width; h.vocabulary = d->vocabulary; h.padded = d->padded; h.chunk = chunk;
    h.input = d->input; h.weights = d->weights; h.targets = d->targets;
    h.grad_input = d->grad_input; h.grad_weights = d->grad_weights;
    return h;
}
static void bench_stop(memopt_status s) {
    if (s) { fprintf(stderr, "bench_head: %s\n", memopt_status_text(s)); exit(1); }
}
/* What a gemm is called with, and nothing else: the products by themselves. */
static double bench_products(const bench_data *d, memopt_ops *o, float *logits) {
    const uint64_t start = bench_now(); memopt_product p;
    memset(&p, 0, sizeof p);
    p.left_type = p.right_type = d->type;
    p.rows = d->rows; p.columns = d->vocabulary; p.depth = d->width; p.left = d->input; p.left_stride = d->width;
    p.right = d->weights;
    p.right_stride = d->width; p.right_transposed = 1; p.result = logits; p.result_stride = d->padded;
    bench_stop(memopt_gemm_multiply(&p, o->threads, o->scratch, o->scratch_bytes));
    p.rows = d->vocabulary; p.columns = d->width; p.depth = d->rows; p.left = logits; p.left_stride = d->padded << (d->type == MEMOPT_TYPE_BF16); p.left_transposed = 1;
    p.right = d->input; p.right_transposed = 0; p.result = d->grad_weights; p.result_type = d->type; p.result_stride = d->width;
    bench_stop(memopt_gemm_multiply(&p, o->threads, o->scratch, o->scratch_bytes));
    p.rows = d->rows; p.depth = d->vocabulary; p.left_transposed = 0; p.right = d->weights; p.result = d->grad_input;
    bench_stop(memopt_gemm_multiply(&p, o->threads, o->scratch, o->scratch_bytes));
    return (double)(bench_now() - start) / 1e6;
}
static double bench_once(const bench_data *d, const memopt_ops *o, size_t chunk) {
    const memopt_head h = bench_head(d, chunk); memopt_loss loss; uint64_t start = bench_now();
    bench_stop(memopt_head_loss(o, &h, &loss));
    return (double)(bench_now() - start) / 1e6;
}
static void bench_all(const bench *b, const bench_data *d, const memopt_threads *t, int threads) {
    const size_t chunks[3] = { d->rows, 512, 64 }; static const char *const names[3] = { "whole", "chunk_512", "chunk_64" };
    const char *suffix = d->type == MEMOPT_TYPE_BF16 ? "_bf16" : "";
    double times[4][BENCH_REPEATS], bytes[3], whole; char name[32]; memopt_ops o; memopt_head h; size_t i, k, need = 0; float *logits;
    memset(&o, 0, sizeof o);
    o.threads = t;
    h = bench_head(d, d->rows);
    bench_stop(memopt_head_scratch(&o, &h, &need));
    o.scratch = bench_block(need);
    logits = (float *)(void *)((unsigned char *)o.scratch + memopt_gemm_scratch(t));
    for (k = 0; k < BENCH_REPEATS; ++k) {
        o.scratch_bytes = memopt_gemm_scratch(t);
        times[3][k] = bench_products(d, &o, logits);
        for (i = 0; i < 3; ++i) {
            h = bench_head(d, chunks[i]);
            bench_stop(memopt_head_scratch(&o, &h, &o.scratch_bytes));
            bytes[i] = (double)o.scratch_bytes;
            times[i][k] = bench_once(d, &o, chunks[i]);
        }
    }
    whole = bench_median(times[0], BENCH_REPEATS);
    snprintf(name, sizeof name, "head_whole%s", suffix);
    bench_row(b, name, threads, d->rows, whole, "ms", bench_median(times[3], BENCH_REPEATS), 0);
    for (i = 1; i < 3; ++i) {
        snprintf(name, sizeof name, "head_%s%s", names[i], suffix);
        bench_row(b, name, threads, d->rows, bench_median(times[i], BENCH_REPEATS), "ms", whole, 0);
    }
    for (i = 0; i < 3; ++i) {
        snprintf(name, sizeof name, "scratch_%s%s", names[i], suffix);
        bench_row(b, name, threads, d->rows, bytes[i] / 1e6, "MB", bytes[0] / 1e6, 0);
    }
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "head"); const int from = b.json ? 2 : 1; bench_data d, half; size_t i; int threads;
    memopt_threads t; memopt_thread_pool *pool = NULL;
    d.rows = argc > from ? (size_t)strtoull(argv[from], NULL, 10) : 1024;
    d.vocabulary = argc > from + 1 ? (size_t)strtoull(argv[from + 1], NULL, 10) : 50257;
    d.width = argc > from + 2 ? (size_t)strtoull(argv[from + 2], NULL, 10) : 768;
    d.padded = (d.vocabulary + 127) & ~(size_t)127;
    d.input = (float *)bench_block(d.rows * d.width * 4); d.grad_input = (float *)bench_block(d.rows * d.width * 4);
    d.weights = (float *)bench_block(d.padded * d.width * 4); d.grad_weights = (float *)bench_block(d.padded * d.width * 4);
    d.targets = (int32_t *)bench_block(d.rows * 4);
    bench_stop(memopt_random_normal((float *)d.input, d.rows * d.width, 1, 1, 0, NULL));
    bench_stop(memopt_random_normal((float *)d.weights, d.padded * d.width, 1, 2, 0, NULL));
    for (i = 0; i < d.padded * d.width; ++i) ((float *)d.weights)[i] *= 0.05f;
    for (i = 0; i < d.rows; ++i) d.targets[i] = (int32_t)(i * 7919 % d.vocabulary);
    d.type = MEMOPT_TYPE_F32;
    half = d; half.type = MEMOPT_TYPE_BF16;
    half.input = bench_block(d.rows * d.width * 2); half.weights = bench_block(d.padded * d.width * 2);
    bench_stop(memopt_bf16_from_f32((uint16_t *)half.input, (const float *)d.input, d.rows * d.width, NULL));
    bench_stop(memopt_bf16_from_f32((uint16_t *)half.weights, (const float *)d.weights, d.padded * d.width, NULL));
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads) {
        bench_all(&b, &d, &t, threads);
        bench_all(&b, &half, &t, threads);
    }
    return 0;
}
