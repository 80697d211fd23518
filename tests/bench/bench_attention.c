/* bench_attention.c - attention forward and backward, causal, heads of width 64: the form that keeps the probabilities of
   all heads from forward to backward ("full"), whole rows, and online. All three use the same product and the same
   kernels, and leave out the blocks of columns that no row of theirs may see. As in a step, some layers run forward
   before the first of them runs backward; times are of one. Limit of times and rates: the six products that every form
   needs, alone, by the same blocks, in the same run; of ratios: 1; of bytes beside the operands of a layer: its queries,
   keys, values, output and their gradients. With bf16 there is no full form: ratios are to whole rows of floats.
   Documents of 256 rows and a window of 512: of the time of the whole causal sequence; limit: the share of the pairs that
   is attended to.
   [--json] [length...] measures other lengths than 1024 and 4096. Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#include "../scratch.h"

#define BENCH_REPEATS 3
#define BENCH_LAYERS  5
enum { BENCH_FULL, BENCH_WHOLE, BENCH_ONLINE, BENCH_PRODUCTS, BENCH_FORMS };
static const char *const bench_names[BENCH_FORMS] = { "full", "whole", "online", "products" };
typedef struct bench_full { memopt_i_attention t; float *kept; size_t step; int alone; } bench_full;

static void *bench_alloc(size_t bytes) {
    unsigned char *p = (unsigned char *)malloc(bytes + 64); size_t i;
    if (!p) { fprintf(stderr, "bench_attention: out of memory\n"); exit(1); }
    p += 64 - ((uintptr_t)p & 63); /* never freed */
    for (i = 0; i + 4 <= bytes; i += 4) { const float x = (float)(int)(i * 2654435761u >> 12 & 0xffff) * 1e-5f - 0.3f; memcpy(p + i, &x, 4); }
    return p;
}
static size_t bench_blocks(const memopt_i_attention *t) { return memopt_i_ceil_div(t->a.length, t->a.block); }
/* The full form: a head's probabilities stay where they were made. */
static void bench_forward_chunk(void *task, size_t chunk, int worker) {
    const bench_full *f = (const bench_full *)task; const size_t blocks = bench_blocks(&f->t), head = chunk / blocks;
    const size_t first = chunk % blocks * f->t.a.block, rows = memopt_i_min(f->t.a.block, f->t.a.length - first);
    memopt_i_attention_worker w = memopt_i_attention_begin(&f->t, 0, head, worker);
    if (!f->alone) w.scores = f->kept + head * f->step + first * f->t.stride;
    if (f->alone) memopt_i_attention_cross(&w, w.scores, rows, first + rows, memopt_i_attention_queries(&w, first), memopt_i_attention_keys(&w, 0));
    else memopt_i_attention_probabilities(&w, first, rows, 0);
    memopt_i_attention_mix(&w, w.scores, rows, first + rows, memopt_i_attention_band(&w, first, 0), memopt_i_attention_values(&w, 0),
        memopt_i_attention_to(&w, MEMOPT_I_ATTENTION_OUT, f->t.a.output, first), f->t.a.output_stride, f->t.a.type, 0);
}
static void bench_backward_chunk(void *task, size_t head, int worker) {
    const bench_full *f = (const bench_full *)task; const memopt_attention *a = &f->t.a; size_t first, rows;
    memopt_i_attention_worker w = memopt_i_attention_begin(&f->t, head / a->heads, head % a->heads, worker);
    float *keys, *values;
    keys = a->type == MEMOPT_TYPE_F32 ? (float *)memopt_i_attention_to(&w, MEMOPT_I_ATTENTION_KEY, a->grad_keys, 0) : w.keys;
    values = a->type == MEMOPT_TYPE_F32 ? (float *)memopt_i_attention_to(&w, MEMOPT_I_ATTENTION_KEY, a->grad_values, 0) : w.values;
    memopt_i_attention_clear(&w, MEMOPT_I_ATTENTION_KEY, a->grad_keys, 0, a->length);
    memopt_i_attention_clear(&w, MEMOPT_I_ATTENTION_KEY, a->grad_values, 0, a->length);
    for (first = 0; first < a->length; first += rows) {
        rows = memopt_i_min(a->block, a->length - first);
        if (!f->alone) {
            w.scores = f->kept + head * f->step + first * f->t.stride;
            memopt_i_attention_backward_rows(&w, first, rows, keys, values, a->kv_stride);
            continue;
        }
        memopt_i_attention_gather(&w, w.scores, rows, first + rows, memopt_i_attention_band(&w, first, 0), memopt_i_attention_grads(&w, first), values, a->type == MEMOPT_TYPE_F32 ? a->kv_stride : a->width);
        memopt_i_attention_cross(&w, w.grad_scores, rows, first + rows, memopt_i_attention_grads(&w, first), memopt_i_attention_values(&w, 0));
        memopt_i_attention_mix(&w, w.grad_scores, rows, first + rows, memopt_i_attention_band(&w, first, 0), memopt_i_attention_keys(&w, 0),
            memopt_i_attention_to(&w, MEMOPT_I_ATTENTION_QUERY, a->grad_queries, first), a->query_stride, a->type, 0);
        memopt_i_attention_gather(&w, w.grad_scores, rows, first + rows, memopt_i_attention_band(&w, first, 0), memopt_i_attention_queries(&w, first), keys, a->type == MEMOPT_TYPE_F32 ? a->kv_stride : a->width);
    }
}
static void bench_must(memopt_status s) {
    if (s) { fprintf(stderr, "bench_attention: %s\n", memopt_status_text(s)); exit(1); }
}
static void bench_direction(int form, int backward, const memopt_ops *ops, memopt_attention *x, bench_full *f) {
    x->online = form == BENCH_ONLINE;
    if (form == BENCH_WHOLE || form == BENCH_ONLINE) {
        bench_must(backward ? memopt_attention_backward(ops, x) : memopt_attention_forward(ops, x));
        return;
    }
    bench_must(memopt_i_attention_ends(ops, x, 1, &f->t) ? MEMOPT_ERR_ARGUMENT : MEMOPT_OK);
    f->alone = form == BENCH_PRODUCTS; f->step = x->length * f->t.stride;
    bench_must(memopt_i_attention_run(&f->t, 0, bench_forward_chunk)); /* forgets failures */
    if (backward) memopt_i_parallel_for(f->t.o.threads, x->batch * x->heads, bench_backward_chunk, f);
    else memopt_i_parallel_for(f->t.o.threads, x->heads * bench_blocks(&f->t), bench_forward_chunk, f);
}
/* Milliseconds of a layer. */
static double bench_once(int form, const memopt_ops *ops, memopt_attention *x, bench_full *f, size_t layers) {
    const uint64_t start = bench_now(); float *const kept = f->kept; const size_t step = x->heads * x->batch * x->length * (x->length + 32);
    size_t i;
    for (i = 0; i < layers; ++i) { f->kept = kept + i * step; bench_direction(form, 0, ops, &x[i], f); }
    for (i = layers; i--; ) { f->kept = kept + i * step; bench_direction(form, 1, ops, &x[i], f); }
    f->kept = kept;
    return (double)(bench_now() - start) * 1e-6 / (double)layers;
}
static memopt_attention bench_layer(memopt_type type, size_t length, size_t heads) {
    const size_t row = 3 * heads * 64, size = memopt_type_bytes(type); memopt_attention x; float *in = (float *)bench_alloc(length * row * 4);
    if (type == MEMOPT_TYPE_BF16) memopt_i_row_narrow(MEMOPT_SIMD_SCALAR, in, 0, length * row);
    memset(&x, 0, sizeof x);
    x.batch = 1; x.length = length; x.heads = heads; x.width = 64; x.causal = 1; x.type = type;
    x.queries = in; x.keys = (char *)in + heads * 64 * size; x.values = (char *)in + 2 * heads * 64 * size; x.query_stride = x.kv_stride = row;
    x.output = bench_alloc(length * heads * 64 * size); x.statistics = (float *)bench_alloc(length * heads * 4);
    return x;
}
/* to: the time of whole rows of floats, set with these */
static void bench_length(const bench *b, const memopt_threads *t, int threads, memopt_type type, size_t layers, size_t length, size_t heads,
                         double *to) {
    memopt_attention x[BENCH_LAYERS]; memopt_ops ops; bench_full f; size_t i, bytes[3]; int form; char name[64];
    const int from = type == MEMOPT_TYPE_F32 ? BENCH_FULL : BENCH_WHOLE; const char *suffix = type == MEMOPT_TYPE_F32 ? "" : "_bf16";
    double times[BENCH_FORMS][BENCH_REPEATS], limit; const size_t size = memopt_type_bytes(type);
    const double flops = 6.0 * 2 * 64 * (double)heads * (double)length * (double)(length + 1) / 2;
    char *grads = (char *)bench_alloc(length * 3 * heads * 64 * 4); float *grad_output = (float *)bench_alloc(length * heads * 256);
    if (size == 2) memopt_i_row_narrow(MEMOPT_SIMD_SCALAR, grad_output, 0, length * heads * 64);
    memset(&ops, 0, sizeof ops); memset(&f, 0, sizeof f);
    for (i = 0; i < layers; ++i) {
        x[i] = bench_layer(type, length, heads);
        x[i].grad_queries = grads; x[i].grad_keys = grads + heads * 64 * size; x[i].grad_values = grads + 2 * heads * 64 * size;
        x[i].grad_output = grad_output;
    }
    ops.threads = t;
    for (form = BENCH_WHOLE; form <= BENCH_ONLINE; ++form) {
        x->online = form == BENCH_ONLINE;
        bench_must(scratch_of_attention(&ops, x, &bytes[form]));
    }
    bytes[BENCH_FULL] = bytes[BENCH_WHOLE] + heads * length * length * 4;
    ops.scratch_bytes = memopt_i_max(bytes[1], bytes[2]); ops.scratch = bench_alloc(ops.scratch_bytes);
    if (from == BENCH_FULL) f.kept = (float *)bench_alloc(layers * heads * length * (length + 32) * 4);
    for (form = from; form < BENCH_FORMS; ++form) (void)bench_once(form, &ops, x, &f, layers);
    for (i = 0; i < BENCH_REPEATS; ++i)
        for (form = from; form < BENCH_FORMS; ++form) times[form][i] = bench_once(form, &ops, x, &f, layers);
    limit = bench_median(times[BENCH_PRODUCTS], BENCH_REPEATS);
    for (form = from; form < BENCH_PRODUCTS; ++form) {
        const double ms = bench_median(times[form], BENCH_REPEATS);
        (void)snprintf(name, sizeof name, "%s%s", bench_names[form], suffix);
        bench_row(b, name, threads, length, ms, "ms", limit, 0);
        (void)snprintf(name, sizeof name, "%s%s_rate", bench_names[form], suffix);
        bench_row(b, name, threads, length, flops / ms * 1e-6, "Gflop/s", flops / limit * 1e-6, 1);
        (void)snprintf(name, sizeof name, "%s%s", bench_names[form], size == 2 ? "_bf16_to_whole" : "_to_full");
        if (form == BENCH_FULL) to[0] = ms;
        else bench_row(b, name, threads, length, ms / to[size == 2], "x", 1, 0);
        if (form == BENCH_WHOLE && size == 4) to[1] = ms;
        (void)snprintf(name, sizeof name, "%s%s_bytes", bench_names[form], suffix);
        bench_row(b, name, threads, length, (double)bytes[form] / 1048576, "MiB", (double)(length * heads * 64 * size * 8) / 1048576, 0);
    }
}
/* What is attended to, and no more: documents of 256 rows, and a window of 512, of a whole sequence's time. */
static void bench_part(const bench *b, const memopt_ops *ops, int threads, memopt_attention *x, const char *type) {
    enum { BENCH_WINDOW = 512, BENCH_DOCUMENT = 256, BENCH_TURNS = 5 };
    const size_t length = x->length, count = length / BENCH_DOCUMENT; size_t *starts = (size_t *)bench_alloc((count + 1) * sizeof *starts), i;
    double times[3][BENCH_TURNS], whole, shares[3]; int turn, k; char name[64]; const double pairs = (double)length * (double)(length + 1) / 2;
    memopt_attention forms[3]; bench_full f;
    for (k = 0; k < 3; ++k) forms[k] = *x;
    for (i = 0; i <= count; ++i) starts[i] = i * BENCH_DOCUMENT;
    forms[1].documents = count; forms[1].starts = starts; forms[1].longest = BENCH_DOCUMENT; forms[2].window = BENCH_WINDOW;
    shares[1] = (double)count * BENCH_DOCUMENT * (BENCH_DOCUMENT + 1) / 2 / pairs;
    shares[2] = (BENCH_WINDOW * ((double)length - BENCH_WINDOW) + BENCH_WINDOW * (double)(BENCH_WINDOW + 1) / 2) / pairs;
    memset(&f, 0, sizeof f);
    for (turn = 0; turn < BENCH_TURNS; ++turn)
        for (k = 0; k < 3; ++k) times[k][turn] = bench_once(x->online ? BENCH_ONLINE : BENCH_WHOLE, ops, &forms[k], &f, 1);
    whole = bench_median(times[0], BENCH_TURNS);
    for (k = 1; k < 3; ++k) {
        (void)snprintf(name, sizeof name, "%s_%s%s", k == 1 ? "documents_256" : "window_512", x->online ? "online" : "whole", type);
        bench_row(b, name, threads, length, bench_median(times[k], BENCH_TURNS) / whole, "x", shares[k], 0);
    }
}
static void bench_parts(const bench *b, const memopt_threads *t, int threads, memopt_type type, size_t length, size_t heads) {
    memopt_attention x = bench_layer(type, length, heads); memopt_ops ops; const size_t size = memopt_type_bytes(type), row = heads * 64;
    char *grads = (char *)bench_alloc(length * 3 * row * 4); float *grad_output = (float *)bench_alloc(length * row * 4);
    if (size == 2) memopt_i_row_narrow(MEMOPT_SIMD_SCALAR, grad_output, 0, length * row);
    memset(&ops, 0, sizeof ops);
    x.grad_queries = grads; x.grad_keys = grads + row * size; x.grad_values = grads + 2 * row * size; x.grad_output = grad_output;
    ops.threads = t;
    for (x.online = 0; x.online < 2; ++x.online) {
        bench_must(scratch_of_attention(&ops, &x, &ops.scratch_bytes));
        ops.scratch = bench_alloc(ops.scratch_bytes);
        bench_part(b, &ops, threads, &x, size == 2 ? "_bf16" : "");
    }
}
static void bench_both(const bench *b, const memopt_threads *t, int threads, size_t layers, size_t length, size_t heads) {
    double to[2] = { 1, 1 }; /* times of the full form, and of whole rows, in floats */
    bench_length(b, t, threads, MEMOPT_TYPE_F32, layers, length, heads, to);
    bench_length(b, t, threads, MEMOPT_TYPE_BF16, layers, length, heads, to);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "attention");
    int threads, i; const int from = b.json ? 2 : 1; memopt_threads t; memopt_thread_pool *pool = NULL;
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads) {
        for (i = from; i < argc; ++i) bench_both(&b, &t, threads, 2, (size_t)strtoull(argv[i], NULL, 10), 12);
        if (argc > from) continue;
        bench_both(&b, &t, threads, BENCH_LAYERS, 1024, 12);
        bench_both(&b, &t, threads, 2, 4096, 2);
        bench_parts(&b, &t, threads, MEMOPT_TYPE_F32, 4096, 2);
        bench_parts(&b, &t, threads, MEMOPT_TYPE_BF16, 4096, 2);
    }
    return 0;
}
