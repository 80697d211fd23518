/* bench_layer.c - activations, SwiGLU, dropout, embeddings, cross-entropy, a linear layer's bias beside memcpy moving as
   many bytes, read and written together, in the same run; ns an element of the output. A linear layer with GELU beside
   its product alone, and its backward through GELU beside the two calls that this replaces. The largest, exp and GELU
   of rows in the cache beside their sum, ns an element.
   [--json]. Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define BENCH_N ((size_t)8 << 20) /* elements of the output */
enum { BENCH_WIDTH = 1024, BENCH_VOCABULARY = 4096, BENCH_LENGTH = 1024, BENCH_REPEATS = 9 };
typedef struct bench_data { unsigned char *a, *b, *c, *d; int32_t *ids; } bench_data; /* each 2 * BENCH_N floats */
enum { BENCH_RELU, BENCH_GELU, BENCH_GELU_BACK, BENCH_GELU_BACK_OUT, BENCH_SILU, BENCH_SWIGLU, BENCH_SWIGLU_BACK, BENCH_DROP,
       BENCH_DROP_BACK, BENCH_EMBED, BENCH_EMBED_BACK, BENCH_CROSS_ENTROPY, BENCH_BIAS };
static const struct { const char *name; size_t arrays; } bench_kinds[] = { /* of BENCH_N elements that are read or written */
    { "relu", 2 }, { "gelu", 2 }, { "gelu_backward", 3 }, { "gelu_backward_output", 4 }, { "silu", 2 }, { "swiglu", 3 },
    { "swiglu_backward", 5 }, { "dropout_residual", 3 }, { "dropout_backward", 2 }, { "embedding", 2 },
    { "embedding_backward", 3 }, { "cross_entropy", 2 }, { "linear_bias_gradient", 1 } };
static void bench_stop(memopt_status s) {
    if (s) { fprintf(stderr, "bench_layer: %s\n", memopt_status_text(s)); exit(1); }
}
static void *bench_block(size_t bytes) { /* aligned, touched; lives as long as the program */
    unsigned char *p = (unsigned char *)malloc(bytes + 64);
    if (!p) { fprintf(stderr, "bench_layer: out of memory\n"); exit(1); }
    p += 64 - ((uintptr_t)p & 63);
    memset(p, 0, bytes);
    return p;
}
typedef struct bench_copied { const bench_data *d; size_t bytes; } bench_copied;
static void bench_copy(void *task, size_t chunk, int worker) {
    const bench_copied *c = (const bench_copied *)task;
    (void)worker;
    memcpy(c->d->c + chunk * c->bytes, c->d->a + chunk * c->bytes, c->bytes);
}
static double bench_limit(const bench_data *d, const memopt_threads *t, int threads, size_t bytes) {
    bench_copied c; const uint64_t start = bench_now();
    c.d = d; c.bytes = bytes / 2 / (size_t)threads;
    memopt_i_parallel_for(t, (size_t)threads, bench_copy, &c);
    return (double)(bench_now() - start) / (double)BENCH_N;
}
/* In place, on what bench_limit() has copied: 166 rows, half a percent less than BENCH_N. */
static memopt_status bench_cross_entropy(const bench_data *d, const memopt_ops *o, memopt_type type) {
    memopt_cross_entropy x; memopt_loss loss;
    memset(&x, 0, sizeof x);
    x.vocabulary = 50304; x.rows = BENCH_N / x.vocabulary; x.type = type; x.logits = d->c; x.targets = d->ids;
    return memopt_cross_entropy_loss(o, &x, &loss);
}
static memopt_status bench_do(const bench_data *d, const memopt_ops *o, int what, memopt_type type) {
    memopt_activation_args x; memopt_swiglu g; memopt_dropout r; memopt_embedding e; memopt_linear l;
    memset(&x, 0, sizeof x); memset(&g, 0, sizeof g); memset(&r, 0, sizeof r); memset(&e, 0, sizeof e); memset(&l, 0, sizeof l);
    x.n = r.n = BENCH_N; x.type = g.type = r.type = e.type = l.type = type;
    x.input = g.input = r.input = d->a; x.grad_output = g.grad_output = r.grad_output = e.grad_output = l.grad_output = d->b;
    x.output = g.output = r.output = e.output = x.grad_input = g.grad_input = r.grad_input = d->c;
    x.activation = what == BENCH_RELU ? MEMOPT_ACTIVATION_RELU : what == BENCH_SILU ? MEMOPT_ACTIVATION_SILU
        : MEMOPT_ACTIVATION_GELU;
    g.width = e.width = l.outputs = BENCH_WIDTH; g.rows = e.rows = l.rows = BENCH_N / BENCH_WIDTH;
    r.rate = 0.1f; r.residual = d->b; r.noise = memopt_noise_make(1, 2);
    e.vocabulary = BENCH_VOCABULARY; e.length = BENCH_LENGTH; e.ids = d->ids; e.tokens = d->d; e.positions = d->b;
    e.grad_tokens = d->d; e.grad_positions = d->c; e.weight_type = type; e.accumulate = 1;
    l.grad_bias = d->c;
    switch (what) {
    case BENCH_RELU: case BENCH_GELU: case BENCH_SILU: return memopt_activation_forward(o, &x);
    case BENCH_GELU_BACK: x.output = NULL; return memopt_activation_backward(o, &x);
    case BENCH_GELU_BACK_OUT: x.output = d->d; return memopt_activation_backward(o, &x);
    case BENCH_SWIGLU: return memopt_swiglu_forward(o, &g);
    case BENCH_SWIGLU_BACK: g.output = NULL; return memopt_swiglu_backward(o, &g);
    case BENCH_DROP: return memopt_dropout_forward(o, &r);
    case BENCH_DROP_BACK: return memopt_dropout_backward(o, &r);
    case BENCH_EMBED: return memopt_embedding_forward(o, &e);
    case BENCH_EMBED_BACK: return memopt_embedding_backward(o, &e);
    case BENCH_CROSS_ENTROPY: return bench_cross_entropy(d, o, type);
    }
    return memopt_linear_backward(o, &l);
}
static void bench_elements(const bench *b, const bench_data *d, const memopt_ops *o, int threads) {
    double times[BENCH_REPEATS], limits[BENCH_REPEATS]; size_t kind, t, i; char name[64];
    static const memopt_type types[2] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16 };
    for (t = 0; t < 2; ++t)
        for (kind = 0; kind < sizeof bench_kinds / sizeof *bench_kinds; ++kind) {
            size_t bytes = bench_kinds[kind].arrays * BENCH_N * memopt_type_bytes(types[t]);
            if (kind == BENCH_EMBED_BACK) bytes = BENCH_N * (memopt_type_bytes(types[t]) + 8); /* gradients are floats */
            for (i = 0; i < BENCH_REPEATS; ++i) {
                uint64_t start;
                limits[i] = bench_limit(d, o->threads, threads, bytes);
                start = bench_now();
                bench_stop(bench_do(d, o, (int)kind, types[t]));
                times[i] = (double)(bench_now() - start) / (double)BENCH_N;
            }
            (void)snprintf(name, sizeof name, "%s_%s", bench_kinds[kind].name, t ? "bf16" : "f32");
            bench_row(b, name, threads, BENCH_N, bench_median(times, BENCH_REPEATS), "ns", bench_median(limits, BENCH_REPEATS), 0);
        }
}
/* A linear layer and its GELU against the product alone: 1024 rows, 768 to 3072. */
static void bench_linear(const bench *b, const bench_data *d, const memopt_ops *o, int threads) {
    double times[5], limits[5]; memopt_linear l; size_t i;
    memset(&l, 0, sizeof l);
    l.rows = 1024; l.inputs = 768; l.outputs = 3072;
    l.input = d->a; l.weights = d->b; l.bias = d->b; l.output = d->c; l.pre_activation = d->d;
    for (i = 0; i < 5; ++i) {
        uint64_t start = bench_now();
        memopt_linear plain = l;
        plain.pre_activation = NULL;
        bench_stop(memopt_linear_forward(o, &plain));
        limits[i] = (double)(bench_now() - start) / 1e6;
        l.activation = MEMOPT_ACTIVATION_GELU;
        start = bench_now();
        bench_stop(memopt_linear_forward(o, &l));
        times[i] = (double)(bench_now() - start) / 1e6;
        l.activation = MEMOPT_ACTIVATION_NONE;
    }
    bench_row(b, "linear_gelu_before_f32", threads, 1024, bench_median(times, 5), "ms", bench_median(limits, 5), 0);
}
/* The gradient of a layer's input through the activation before it, in one call, against the two that it replaces: in
   memory and in the cache, products of a usual depth and of a small one. */
typedef struct bench_shape { const char *name; size_t rows, inputs, outputs; int repeats; } bench_shape;
static void bench_through(const bench *b, const bench_data *d, const memopt_ops *o, int threads) {
    static const bench_shape shapes[3] = { { "through_gelu", 512, 3072, 768, 1 }, { "through_gelu_shallow", 1024, 3072, 64, 1 },
                                           { "through_gelu_cached", 64, 768, 64, 50 } };
    static const memopt_type types[2] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16 };
    size_t k, t, i; int r;
    for (k = 0; k < 3; ++k)
        for (t = 0; t < 2; ++t) {
            double times[7], limits[7]; char name[64]; memopt_linear l; memopt_activation_args a;
            memset(&l, 0, sizeof l); memset(&a, 0, sizeof a);
            l.rows = shapes[k].rows; l.inputs = shapes[k].inputs; l.outputs = shapes[k].outputs;
            l.type = l.weight_type = a.type = types[t];
            l.grad_output = d->a; l.weights = d->b; l.grad_input = d->c;
            a.n = l.rows * l.inputs; a.activation = MEMOPT_ACTIVATION_GELU; a.input = d->d; a.grad_output = a.grad_input = d->c;
            for (i = 0; i < 7; ++i) {
                uint64_t start = bench_now();
                for (r = 0; r < shapes[k].repeats; ++r) {
                    bench_stop(memopt_linear_backward(o, &l));
                    bench_stop(memopt_activation_backward(o, &a));
                }
                limits[i] = (double)(bench_now() - start) / 1e6 / shapes[k].repeats;
                start = bench_now();
                for (r = 0; r < shapes[k].repeats; ++r) bench_stop(memopt_linear_backward_through(o, &l, a.activation, d->d));
                times[i] = (double)(bench_now() - start) / 1e6 / shapes[k].repeats;
            }
            (void)snprintf(name, sizeof name, "%s_%s", shapes[k].name, t ? "bf16" : "f32");
            bench_row(b, name, threads, l.rows, bench_median(times, 7), "ms", bench_median(limits, 7), 0);
        }
}
static void bench_rows(const bench *b, const bench_data *d) {
    static const char *const names[4] = { "row_max", "row_exp", "row_gelu", "row_gelu_gradient" }; int what, level = memopt_simd_best();
    const float *x = (const float *)(const void *)d->a; float *y = (float *)(void *)d->c, sums[16] = { 0 };
    for (what = 0; what < 4; ++what) {
        double times[51], limits[51]; size_t i, k; const size_t n = 1024;
        for (i = 0; i < 51; ++i) {
            uint64_t start = bench_now();
            for (k = 0; k < 50; ++k) memopt_i_row_sum(level, sums, x + k * n, n);
            limits[i] = (double)(bench_now() - start) / 50 / (double)n;
            start = bench_now();
            for (k = 0; k < 50; ++k) {
                if (what == 0) sums[0] = memopt_i_row_max(level, sums[0], x + k * n, n);
                else if (what == 1) memopt_i_row_exp(level, sums, y, x + k * n, 1, 1, n);
                else if (what == 2) memopt_i_row_act(level, y, x + k * n, MEMOPT_ACTIVATION_GELU, n);
                else memopt_i_row_act_grad(level, y, NULL, x + k * n, x + k * n, MEMOPT_ACTIVATION_GELU, n);
            }
            times[i] = (double)(bench_now() - start) / 50 / (double)n;
        }
        bench_row(b, names[what], 1, n, bench_median(times, 51), "ns", bench_median(limits, 51), 0);
    }
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "layer");
    bench_data d; size_t i; int threads; memopt_thread_pool *pool = NULL;
    memopt_threads t; memopt_ops o; float *x, *y;
    d.a = (unsigned char *)bench_block(BENCH_N * 8 + BENCH_N * 4); d.b = (unsigned char *)bench_block(BENCH_N * 8);
    d.c = (unsigned char *)bench_block(BENCH_N * 8 + BENCH_N * 4); d.d = (unsigned char *)bench_block(BENCH_N * 8);
    d.ids = (int32_t *)bench_block(BENCH_N / BENCH_WIDTH * sizeof *d.ids);
    x = (float *)(void *)d.a; y = (float *)(void *)d.b; /* as bf16 they are numbers of all sizes */
    for (i = 0; i < BENCH_N * 2; ++i) { /* both halves of a float are a plain bf16 */
        const uint32_t u = 0x3e003e00u + (uint32_t)(i * 2654435761u >> 7 & 0x01ff81ff) + (uint32_t)(i & 1) * 0x80008000u;
        memcpy(x + i, &u, 4); memcpy(y + i, &u, 4);
    }
    for (i = 0; i < BENCH_N / BENCH_WIDTH; ++i) d.ids[i] = (int32_t)(i * 2654435761u >> 9 & (BENCH_VOCABULARY - 1));
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads) {
        memset(&o, 0, sizeof o);
        o.threads = &t; o.scratch_bytes = memopt_gemm_scratch(&t) + BENCH_VOCABULARY * sizeof(float); o.scratch = bench_block(o.scratch_bytes);
        bench_elements(&b, &d, &o, threads);
        bench_linear(&b, &d, &o, threads);
        bench_through(&b, &d, &o, threads);
        if (threads == 1) bench_rows(&b, &d);
    }
    return 0;
}
