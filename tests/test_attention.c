/* test_attention.c - attention against two forms written down here. The plain form keeps matrices of length x length:
   products are loops over what a row attends to and nothing else, of fmaf, or with bf16 by the definition of its product;
   softmax is row by row with the scalar kernels of `row_kernels`; whole rows must have its bits, whatever stands in the
   operands, and online those of the same by tiles of columns. The exact form is in double, from the definition, with a
   bound for every element that is added up beside it; its gradients are compared with finite differences. */
#include "test.h"
#include "scratch.h"
#include <float.h>

#define ATTENTION_TILE 256 /* columns of the online form */
#define ATTENTION_U 5.9604644775390625e-8 /* 2^-24: what one rounding to float changes at most, as a part of the result */

/* ---- storage by its definition ---- */
static void *attention_alloc(size_t bytes) { /* never NULL, and with the size asked for, so that sanitizers see its end */
    void *p = malloc(bytes ? bytes : 1);
    if (!p) { printf("test_attention: out of memory\n"); exit(1); }
    return p;
}
static size_t attention_bytes(memopt_type type) { return type == MEMOPT_TYPE_F32 ? 4 : 2; }
/* To nearest even, at 8 or 11 bits. */
static float attention_rounded(memopt_type type, float x) {
    const int bits = type == MEMOPT_TYPE_BF16 ? 8 : 11, least = type == MEMOPT_TYPE_BF16 ? -126 : -14; int e;
    if (type == MEMOPT_TYPE_F32 || x == 0 || !((memopt_i_float_bits(x) & 0x7fffffffu) < 0x7f800000u)) return x;
    (void)frexp((double)x, &e);
    if (--e < least) e = least;
    return (float)ldexp(rint(ldexp((double)x, bits - 1 - e)), e - bits + 1);
}
static float attention_get(memopt_type type, const void *data, size_t i) {
    const unsigned char *p = (const unsigned char *)data + i * attention_bytes(type); float x; uint16_t h;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, p, 4); return x; }
    memcpy(&h, p, 2);
    if (type == MEMOPT_TYPE_BF16) return memopt_i_bits_float((uint32_t)h << 16);
    if ((h & 0x7c00) == 0x7c00) return memopt_i_bits_float((h & 0x8000u) << 16 | 0x7f800000u | (h & 0x3ffu) << 13);
    x = (float)ldexp((double)((h & 0x3ff) + (h & 0x7c00 ? 0x400 : 0)), (h & 0x7c00 ? h >> 10 & 31 : 1) - 25);
    return h & 0x8000 ? -x : x;
}
static void attention_set(memopt_type type, void *data, size_t i, float value) { /* value is one of the type, or NaN */
    const float x = value; const uint32_t bits = memopt_i_float_bits(x); uint16_t h = (uint16_t)(bits >> 16); int e;
    unsigned char *p = (unsigned char *)data + i * attention_bytes(type);
    if (type == MEMOPT_TYPE_F16) {
        h &= 0x8000;
        if ((bits & 0x7fffffffu) > 0x7f800000u) h |= 0x7e00;
        else if ((bits & 0x7fffffffu) == 0x7f800000u || fabs((double)x) > 65504) h |= 0x7c00;
        else if (x != 0) {
            const double size = fabs((double)x);
            (void)frexp(size, &e);
            h = (uint16_t)(h | (--e < -14 ? (int)ldexp(size, 24) : ((e + 15) << 10) + (int)ldexp(size, 10 - e) - 0x400));
        }
    }
    if (type == MEMOPT_TYPE_F32) memcpy(p, &x, 4); else memcpy(p, &h, 2);
}

/* ---- a call with all it needs ---- */
typedef struct attention_case { size_t batch, length, heads, kv_heads, width, block; int causal, online; memopt_type type;
                                const size_t *lengths; } attention_case;
typedef struct attention_call {
    memopt_attention x;
    size_t rows, row, out_row; /* elements of a row of queries, keys and values, and of output; 3 of them are nobody's */
    void *inputs, *grads, *output, *grad_output;
} attention_call;
static float attention_nan(void) { return memopt_i_bits_float(0x7fc00000u); }
static size_t attention_sequences(const memopt_attention *x) { return x->documents ? x->documents : x->batch; }
static size_t attention_start(const memopt_attention *x, size_t sequence) { /* its first row */
    return x->documents ? x->starts[sequence] : sequence * x->length;
}
static size_t attention_used(const memopt_attention *x, size_t sequence) {
    if (x->documents) return x->starts[sequence + 1] - x->starts[sequence];
    return x->lengths ? x->lengths[sequence] : x->length;
}
/* The first column that row i sees. */
static size_t attention_from(size_t window, size_t i) { return window && i >= window ? i + 1 - window : 0; }
static float attention_random(uint64_t *seed) { return (float)((int)test_below(seed, 255) - 127) / 64; } /* of every type */
/* Rows that are not in use, and elements that are nobody's, are NaN; what is to be written is full of 0xA5. */
static attention_call attention_make(const attention_case *c, uint64_t seed) {
    attention_call a; size_t r, i; const size_t kv = c->kv_heads ? c->kv_heads : c->heads;
    memset(&a, 0, sizeof a);
    a.rows = c->batch * c->length; a.row = (c->heads + 2 * kv) * c->width + 3; a.out_row = c->heads * c->width + 3;
    a.inputs = attention_alloc(a.rows * a.row * 4); a.grads = attention_alloc(a.rows * a.row * 4);
    a.output = attention_alloc(a.rows * a.out_row * 4); a.grad_output = attention_alloc(a.rows * a.out_row * 4);
    memset(a.grads, 0xA5, a.rows * a.row * 4); memset(a.output, 0xA5, a.rows * a.out_row * 4);
    for (r = 0; r < a.rows; ++r) {
        const int used = r % c->length < (c->lengths ? c->lengths[r / c->length] : c->length);
        for (i = 0; i < a.row; ++i)
            attention_set(c->type, a.inputs, r * a.row + i, used && i + 3 < a.row ? attention_random(&seed) : attention_nan());
        for (i = 0; i < a.out_row; ++i)
            attention_set(c->type, a.grad_output, r * a.out_row + i, used && i + 3 < a.out_row ? attention_random(&seed) : attention_nan());
    }
    a.x.batch = c->batch; a.x.length = c->length; a.x.heads = c->heads; a.x.kv_heads = c->kv_heads; a.x.width = c->width;
    a.x.block = c->block; a.x.causal = c->causal; a.x.online = c->online; a.x.type = c->type; a.x.lengths = c->lengths;
    a.x.query_stride = a.x.kv_stride = a.row; a.x.output_stride = a.out_row;
    a.x.queries = a.inputs; a.x.grad_queries = a.grads;
    a.x.keys = memopt_i_row_at(a.inputs, c->type, c->heads * c->width);
    a.x.values = memopt_i_row_at(a.inputs, c->type, (c->heads + kv) * c->width);
    a.x.grad_keys = memopt_i_row_to(a.grads, c->type, c->heads * c->width);
    a.x.grad_values = memopt_i_row_to(a.grads, c->type, (c->heads + kv) * c->width);
    a.x.output = a.output; a.x.grad_output = a.grad_output;
    a.x.statistics = (float *)attention_alloc(c->batch * c->heads * c->length * sizeof(float));
    return a;
}
static void attention_free(attention_call *a) {
    free(a->inputs); free(a->grads); free(a->output); free(a->grad_output); free(a->x.statistics);
}
/* Forward and backward, with exactly the scratch that is asked for: nothing before and after it may change. */
static memopt_status attention_both(const attention_call *a, const memopt_threads *threads, const memopt_gemm *gemm) {
    memopt_ops ops; memopt_status s; size_t bytes = 0, i; unsigned char *block, *at;
    memset(&ops, 0, sizeof ops);
    ops.threads = threads;
    if (gemm) ops.gemm = *gemm;
    CHECK(scratch_of_attention(&ops, &a->x, &bytes) == MEMOPT_OK);
    block = (unsigned char *)attention_alloc(bytes + 64 + 64);
    memset(block, 0xA5, bytes + 128);
    at = block + (64 - ((uintptr_t)block & 63));
    ops.scratch = at; ops.scratch_bytes = bytes;
    s = memopt_attention_forward(&ops, &a->x);
    if (s == MEMOPT_OK) s = memopt_attention_backward(&ops, &a->x);
    for (i = 0; i < 128; ++i) {
        unsigned char *p = block + i < at ? block + i : block + i + bytes;
        CHECK_AT(*p == 0xA5, i);
    }
    free(block);
    return s;
}

/* ---- sums of products by their definitions ---- */
static float attention_flushed(float x) { return fabsf(x) < FLT_MIN ? (memopt_i_float_bits(x) >> 31 ? -0.0f : 0.0f) : x; }
static float attention_link(float x, float y, float z) { /* whether it is denormal is asked after rounding; the sum in double tells */
    volatile double sum = (double)x * (double)y + (double)z;
    if (fabs(sum) < (double)FLT_MIN * (1 - ldexp(1, -25))) return memopt_i_double_bits(sum) >> 63 ? -0.0f : 0.0f;
    return fmaf(x, y, z);
}
/* sum + the products of the depths first..end: one chain, or with bf16 for each 32 depths from 0 on two chains, of even and
   odd ones, with +0 where no depth takes part. */
static float attention_sum(memopt_type type, float sum, const float *x, size_t x_step, const float *y, size_t y_step,
                           size_t first, size_t end) {
    size_t k, block;
    if (type != MEMOPT_TYPE_BF16) {
        for (k = first; k < end; ++k) sum = fmaf(x[k * x_step], y[k * y_step], sum);
        return sum;
    }
    for (block = first / 32 * 32; first < end && block < end; block += 32) {
        float chain[2] = { 0, 0 };
        for (k = block; k < block + 32; ++k) {
            const int in = k >= first && k < end;
            chain[k % 2] = attention_link(in ? attention_flushed(x[k * x_step]) : 0.0f, in ? attention_flushed(y[k * y_step]) : 0.0f, chain[k % 2]);
        }
        sum = attention_flushed(attention_flushed(sum) + attention_flushed(chain[0] + chain[1]));
    }
    return sum;
}
/* Weights and gradients of scores as products take them. */
static float attention_taken(memopt_type type, float x) { return type == MEMOPT_TYPE_BF16 ? attention_rounded(type, x) : x; }

/* ---- the plain form, in float ---- */
typedef struct attention_floats { float *inputs, *grads, *output; } attention_floats; /* rows as in the call, all float */
/* What a query head of a sequence works on: rows of `row` floats. */
typedef struct attention_head {
    memopt_type type; int causal; float scale;
    size_t n, w, row, out_row, window;
    const float *q, *k, *v; float *dq, *dk, *dv, *out, *p, *g, *grad_out, *statistics;
} attention_head;
static attention_head attention_head_begin(const attention_call *a, const attention_floats *f, size_t sequence, size_t head, size_t kv) {
    const memopt_attention *x = &a->x; const size_t w = x->width; attention_head h; size_t i;
    memset(&h, 0, sizeof h);
    h.type = x->type; h.causal = x->causal; h.n = attention_used(x, sequence); h.w = w; h.row = a->row; h.out_row = a->out_row; h.window = x->window;
    h.scale = x->scale != 0 ? x->scale : memopt_i_round(1.0f / memopt_i_round(sqrtf((float)w)));
    h.q = f->inputs + attention_start(x, sequence) * a->row + head * w;
    h.k = f->inputs + attention_start(x, sequence) * a->row + (x->heads + head / (x->heads / kv)) * w;
    h.v = h.k + kv * w;
    h.dq = f->grads + (h.q - f->inputs); h.dk = f->grads + (h.k - f->inputs); h.dv = f->grads + (h.v - f->inputs);
    h.out = f->output + attention_start(x, sequence) * a->out_row + head * w;
    h.p = (float *)attention_alloc(h.n * h.n * 4); h.g = (float *)attention_alloc(h.n * h.n * 4);
    h.grad_out = (float *)attention_alloc(h.n * w * 4);
    for (i = 0; i < h.n * w; ++i)
        h.grad_out[i] = attention_get(x->type, a->grad_output, (attention_start(x, sequence) + i / w) * a->out_row + head * w + i % w);
    return h;
}
/* The last products: the gradients of keys and values are added onto what is there. */
static void attention_head_end(attention_head *h) {
    size_t j, c;
    for (j = 0; j < h->n; ++j) for (c = 0; c < h->w; ++c) {
        float *dv = h->dv + j * h->row + c, *dk = h->dk + j * h->row + c; const size_t first = h->causal ? j : 0;
        const size_t end = h->window && h->window < h->n - j ? j + h->window : h->n;
        *dv = attention_sum(h->type, *dv, h->p + j, h->n, h->grad_out + c, h->w, first, end);
        *dk = attention_sum(h->type, *dk, h->g + j, h->n, h->q + c, h->row, first, end);
    }
    free(h->p); free(h->g); free(h->grad_out);
}
static void attention_plain_head(const attention_call *a, const attention_floats *f, size_t sequence, size_t head, size_t kv) {
    attention_head h = attention_head_begin(a, f, sequence, head, kv); size_t i, j, c;
    for (i = 0; i < h.n; ++i) {
        float sums[16] = { 0 }, dots[16] = { 0 }, most, dot; float *s = h.p + i * h.n, *g = h.g + i * h.n;
        const size_t valid = h.causal ? i + 1 : h.n, from = attention_from(h.window, i), count = valid - from;
        for (j = from; j < valid; ++j) s[j] = attention_sum(h.type, 0, h.q + i * h.row, 1, h.k + j * h.row, 1, 0, h.w);
        most = memopt_i_row_max(MEMOPT_SIMD_SCALAR, s[from], s + from, count);
        memopt_i_row_exp(MEMOPT_SIMD_SCALAR, sums, s + from, s + from, most, h.scale, count);
        memopt_i_row_scale(MEMOPT_SIMD_SCALAR, s + from, s + from, memopt_i_round(1.0f / memopt_i_row_total(sums)), count);
        for (j = from; j < valid; ++j) g[j] = attention_sum(h.type, 0, h.grad_out + i * h.w, 1, h.v + j * h.row, 1, 0, h.w);
        memopt_i_row_dot(MEMOPT_SIMD_SCALAR, dots, s + from, g + from, count);
        dot = memopt_i_row_total(dots);
        for (j = from; j < valid; ++j) {
            const float slope = memopt_i_round(g[j] - dot);
            g[j] = attention_taken(h.type, memopt_i_round(memopt_i_round(h.scale * s[j]) * slope));
            s[j] = attention_taken(h.type, s[j]);
        }
        for (c = 0; c < h.w; ++c) {
            h.out[i * h.out_row + c] = attention_sum(h.type, 0, s, 1, h.v + c, h.row, from, valid);
            h.dq[i * h.row + c] = attention_sum(h.type, 0, g, 1, h.k + c, h.row, from, valid);
        }
    }
    attention_head_end(&h);
}
/* ---- the same online, by tiles of columns ---- */
static void attention_online_forward(const attention_head *h, size_t i, float *statistic) {
    const size_t valid = h->causal ? i + 1 : h->n; float most = -memopt_i_bits_float(0x7f800000u), sum = 0, *out = h->out + i * h->out_row;
    const size_t from = attention_from(h->window, i); float s[ATTENTION_TILE]; size_t at, j, c;
    for (c = 0; c < h->w; ++c) out[c] = 0;
    for (at = from / ATTENTION_TILE * ATTENTION_TILE; at < valid; at += ATTENTION_TILE) {
        const size_t n = valid - at < ATTENTION_TILE ? valid - at : ATTENTION_TILE, b = from > at ? from - at : 0;
        float sums[16] = { 0 }, none[16] = { 0 }, before = most, base, shrink;
        for (j = b; j < n; ++j) s[j] = attention_sum(h->type, 0, h->q + i * h->row, 1, h->k + (at + j) * h->row, 1, 0, h->w);
        most = memopt_i_row_max(MEMOPT_SIMD_SCALAR, before, s + b, n - b);
        base = memopt_i_float_bits(most) == 0xff800000u ? 0 : most;
        memopt_i_row_exp(MEMOPT_SIMD_SCALAR, none, &shrink, &before, base, h->scale, 1);
        memopt_i_row_exp(MEMOPT_SIMD_SCALAR, sums, s + b, s + b, base, h->scale, n - b);
        sum = fmaf(sum, shrink, memopt_i_row_total(sums));
        for (j = b; j < n; ++j) s[j] = attention_taken(h->type, s[j]);
        for (c = 0; c < h->w; ++c)
            out[c] = attention_sum(h->type, memopt_i_round(shrink * out[c]), s, 1, h->v + at * h->row + c, h->row, b, n);
    }
    for (c = 0; c < h->w; ++c) out[c] = attention_rounded(h->type, memopt_i_round(memopt_i_round(1 / sum) * out[c]));
    *statistic = (float)((double)most + memopt_i_row_log((double)sum) / (double)h->scale);
}
static void attention_online_head(const attention_call *a, const attention_floats *f, size_t sequence, size_t head, size_t kv) {
    attention_head h = attention_head_begin(a, f, sequence, head, kv); size_t i, j, c, at;
    for (i = 0; i < h.n; ++i) {
        const size_t valid = h.causal ? i + 1 : h.n, from = attention_from(h.window, i);
        float none[16] = { 0 }, dots[16] = { 0 }, statistic, dot, *p = h.p + i * h.n, *g = h.g + i * h.n;
        attention_online_forward(&h, i, &statistic);
        memopt_i_row_dot(MEMOPT_SIMD_SCALAR, dots, h.out + i * h.out_row, h.grad_out + i * h.w, h.w);
        dot = memopt_i_row_total(dots);
        for (j = from; j < valid; ++j) p[j] = attention_sum(h.type, 0, h.q + i * h.row, 1, h.k + j * h.row, 1, 0, h.w);
        memopt_i_row_exp(MEMOPT_SIMD_SCALAR, none, p + from, p + from, statistic, h.scale, valid - from);
        for (j = from; j < valid; ++j) {
            const float slope = memopt_i_round(attention_sum(h.type, 0, h.grad_out + i * h.w, 1, h.v + j * h.row, 1, 0, h.w) - dot);
            g[j] = attention_taken(h.type, memopt_i_round(memopt_i_round(h.scale * p[j]) * slope));
            p[j] = attention_taken(h.type, p[j]);
        }
        for (at = from / ATTENTION_TILE * ATTENTION_TILE; at < valid; at += ATTENTION_TILE) for (c = 0; c < h.w; ++c) {
            const size_t n = valid - at < ATTENTION_TILE ? valid - at : ATTENTION_TILE; float *dq = h.dq + i * h.row + c;
            *dq = attention_sum(h.type, *dq, g + at, 1, h.k + at * h.row + c, h.row, from > at ? from - at : 0, n);
        }
    }
    attention_head_end(&h);
}
/* The same number, or both are NaN: which of them is not promised. */
static int attention_equal(float a, float b) {
    return memopt_i_float_bits(a) == memopt_i_float_bits(b) || (a != a && b != b);
}
/* Does a call that has run have the bits of the plain form, zeros in rows that are not in use, and all else untouched? */
static int attention_is_plain(const attention_call *a) {
    const memopt_attention *x = &a->x; attention_floats f; size_t i, h, b; int same = 1;
    const size_t kv = x->kv_heads ? x->kv_heads : x->heads, all = a->rows * a->row, outs = a->rows * a->out_row;
    f.inputs = (float *)attention_alloc(all * 4); f.grads = (float *)attention_alloc(all * 4);
    f.output = (float *)attention_alloc(outs * 4);
    for (i = 0; i < all; ++i) { f.inputs[i] = attention_get(x->type, a->inputs, i); f.grads[i] = 0; }
    for (i = 0; i < outs; ++i) f.output[i] = 0;
    for (b = 0; b < attention_sequences(x); ++b) for (h = 0; h < x->heads; ++h)
        if (x->online) attention_online_head(a, &f, b, h, kv); else attention_plain_head(a, &f, b, h, kv);
    for (i = 0; i < outs; ++i) {
        float want = attention_rounded(x->type, f.output[i]), got = attention_get(x->type, a->output, i);
        if (i % a->out_row + 3 >= a->out_row) memset(&want, 0xA5, 4), want = attention_get(x->type, &want, 0);
        same = same && attention_equal(want, got);
    }
    for (i = 0; i < all; ++i) {
        float want = attention_rounded(x->type, f.grads[i]), got = attention_get(x->type, a->grads, i);
        if (i % a->row + 3 >= a->row) memset(&want, 0xA5, 4), want = attention_get(x->type, &want, 0);
        same = same && attention_equal(want, got);
    }
    free(f.inputs); free(f.grads); free(f.output);
    return same;
}
static const size_t attention_some[4] = { 9, 0, 17, 1 };
static const attention_case attention_cases[] = { /* batch, length, heads, kv_heads, width, block, causal */
    { 1, 1, 1, 0, 1, 0, 1, 0, MEMOPT_TYPE_F32, NULL },   { 1, 7, 2, 1, 7, 3, 1, 0, MEMOPT_TYPE_F32, NULL },
    { 2, 8, 1, 0, 8, 1, 0, 0, MEMOPT_TYPE_F32, NULL },   { 1, 9, 3, 3, 9, 8, 1, 0, MEMOPT_TYPE_F32, NULL },
    { 1, 15, 2, 2, 15, 4, 0, 0, MEMOPT_TYPE_F32, NULL }, { 2, 16, 4, 2, 16, 16, 1, 0, MEMOPT_TYPE_F32, NULL },
    { 4, 17, 6, 2, 5, 7, 1, 0, MEMOPT_TYPE_F32, attention_some }, { 4, 17, 4, 1, 17, 0, 0, 0, MEMOPT_TYPE_F32, attention_some },
    { 1, 33, 1, 0, 33, 9, 1, 0, MEMOPT_TYPE_F32, NULL }, { 1, 70, 1, 0, 2, 0, 1, 0, MEMOPT_TYPE_F32, NULL },
    { 1, 130, 2, 1, 4, 0, 1, 0, MEMOPT_TYPE_F32, NULL }, { 1, 65, 1, 1, 64, 100, 0, 0, MEMOPT_TYPE_F32, NULL } };
#define ATTENTION_CASES (sizeof attention_cases / sizeof *attention_cases)
static void attention_plain_bits(void) {
    size_t i; int type, level;
    for (i = 0; i < ATTENTION_CASES; ++i) for (type = 0; type < 3; ++type)
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            attention_case c = attention_cases[i]; attention_call a; memopt_threads t = test_level(level);
            if (test_is_passed_over()) continue;
            c.type = (memopt_type)type;
            a = attention_make(&c, i + 1);
            if (i == 3) a.x.scale = 2.5f;
            CHECK_AT(attention_both(&a, &t, NULL) == MEMOPT_OK, i);
            CHECK_AT(attention_is_plain(&a), i * 100 + (size_t)type * 10 + (size_t)level);
            attention_free(&a);
        }
}

static int attention_same(const attention_call *a, const attention_call *b) {
    const size_t size = attention_bytes(a->x.type);
    return !memcmp(a->output, b->output, a->rows * a->out_row * size) && !memcmp(a->grads, b->grads, a->rows * a->row * size);
}
/* Numbers of many sizes, so that no sum is exact: 8 bits times 2^-14 .. 2^1, and with bf16 denormals too; online, in
   blocks of 32, 64, 96 rows and all of them, and of sizes that are rounded up to these. */
static void attention_mixed(attention_call *a, memopt_type type, uint64_t seed) {
    size_t i;
    for (i = 0; i < a->rows * (a->row + a->out_row); ++i) {
        void *data = i < a->rows * a->row ? a->inputs : a->grad_output; const size_t at = i < a->rows * a->row ? i : i - a->rows * a->row;
        const int e = (int)test_below(&seed, 40); float x = attention_get(type, data, at);
        if (!(fabsf(x) < 4)) continue; /* nobody's */
        x = (float)ldexp((double)x, e < 9 ? -e : 0);
        if (type == MEMOPT_TYPE_BF16 && e == 39) x = memopt_i_bits_float((uint32_t)test_below(&seed, 128) << 16);
        attention_set(type, data, at, x);
    }
}
static const size_t attention_few[3] = { 97, 33, 130 };
static void attention_mixed_bits(void) {
    static const attention_case cases[] = { { 1, 31, 2, 1, 5, 0, 1, 0, MEMOPT_TYPE_F32, NULL }, { 1, 33, 1, 0, 33, 1, 0, 0, MEMOPT_TYPE_F32, NULL },
        { 1, 65, 2, 1, 40, 32, 1, 0, MEMOPT_TYPE_F32, NULL }, { 1, 97, 1, 0, 64, 33, 1, 0, MEMOPT_TYPE_F32, NULL },
        { 3, 130, 4, 2, 17, 96, 1, 0, MEMOPT_TYPE_F32, attention_few }, { 1, 130, 1, 0, 7, SIZE_MAX, 0, 0, MEMOPT_TYPE_F32, NULL },
        { 1, 300, 2, 1, 9, 70, 1, 0, MEMOPT_TYPE_F32, NULL },
        { 1, 530, 1, 0, 2, 200, 1, 0, MEMOPT_TYPE_F32, NULL }, { 1, 290, 1, 0, 34, 0, 0, 0, MEMOPT_TYPE_F32, NULL } };
    size_t i; int type, level, online;
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) for (type = 0; type < 3; ++type) for (online = 0; online < 2; ++online) {
        attention_case c = cases[i]; attention_call one; memopt_threads t = test_level(memopt_simd_best());
        if (test_is_passed_over()) continue;
        c.type = (memopt_type)type; c.online = online;
        one = attention_make(&c, i + 70); attention_mixed(&one, c.type, i + 1);
        CHECK(attention_both(&one, &t, NULL) == MEMOPT_OK);
        CHECK_AT(attention_is_plain(&one), i * 100 + (size_t)type * 10 + (size_t)online);
        for (level = MEMOPT_SIMD_SCALAR; level < memopt_simd_best(); level = test_wider(level)) {
            attention_call a = attention_make(&c, i + 70);
            t = test_level(level); attention_mixed(&a, c.type, i + 1);
            CHECK_AT(attention_both(&a, &t, NULL) == MEMOPT_OK && attention_same(&one, &a), i * 100 + (size_t)level);
            attention_free(&a);
        }
        attention_free(&one);
    }
}

/* ---- the exact form, in double, with a bound for what floats may differ from it ----
   u is one rounding. Scores: a sum of `width` products, each at most u (width) sum|q k| off. The exponent is rounded
   twice, and the exponential is at most 3 u off; each row is divided by a sum that is no worse, whose adding up rounds
   n / 16 + 4 times. Online a row's output is shrunk once for each tile, and backward counts from a statistic that is
   rounded once. Everything after that is sums of products, which add n roundings of the sum of magnitudes. */
typedef struct attention_exact { double *output, *output_off, *grads, *grads_off; } attention_exact; /* as the call's rows */
static double attention_off(const attention_call *a, size_t n, double most, double sizes) { /* of probabilities */
    const double scores = (double)a->x.width * sizes, range = 4 * most, tiles = (double)(n / ATTENTION_TILE + 1);
    return ATTENTION_U * (2 * scores + 2 * range + (double)n / 16 + 20 + (a->x.online ? 2 * range + 8 * tiles + 8 : 0));
}
static void attention_exact_row(const attention_call *a, const attention_exact *e, const double *in, size_t b, size_t head, size_t kv,
                                size_t i, double *p) {
    const memopt_attention *x = &a->x; const size_t used = attention_used(x, b), w = x->width, n = x->causal ? i + 1 : used; size_t j, c;
    const size_t base = attention_start(x, b), from = attention_from(x->window, i), kh = x->heads + head / (x->heads / kv);
    const double scale = x->scale != 0 ? (double)x->scale : 1 / sqrt((double)w), *q = in + (base + i) * a->row + head * w;
    const double narrow = x->type == MEMOPT_TYPE_BF16 ? 1.0 / 256 : 0; /* the rounding of weights and of gradients of scores */
    const double u = ATTENTION_U, store = x->type == MEMOPT_TYPE_F32 ? 0 : x->type == MEMOPT_TYPE_BF16 ? 1.0 / 256 : 1.0 / 2048;
    double most = -1e300, sizes = 0, sum = 0, size = 0, dot = 0, dot_size = 0, off, *gp = p + used, *gp_size = p + 2 * used;
    double *dq = e->grads + (base + i) * a->row + head * w, *dq_off = e->grads_off + (base + i) * a->row + head * w;
    double *out = e->output + (base + i) * a->out_row + head * w, *out_off = e->output_off + (base + i) * a->out_row + head * w;
    for (j = from; j < n; ++j) {
        const double *k = in + (base + j) * a->row + kh * w; double s = 0, t = 0;
        for (c = 0; c < w; ++c) { s += q[c] * k[c]; t += fabs(q[c] * k[c]); }
        p[j] = scale * s;
        if (p[j] > most) most = p[j];
        if (fabs(p[j]) > size) size = fabs(p[j]);
        if (scale * t > sizes) sizes = scale * t;
    }
    off = attention_off(a, n, size, sizes);
    for (j = from; j < n; ++j) sum += p[j] = exp(p[j] - most);
    for (j = from; j < n; ++j) {
        const double *v = in + (base + j) * a->row + (kh + kv) * w;
        p[j] /= sum; gp[j] = gp_size[j] = 0;
        for (c = 0; c < w; ++c) {
            const double g = (double)attention_get(x->type, a->grad_output, (base + i) * a->out_row + head * w + c);
            out[c] += p[j] * v[c]; out_off[c] += (off + narrow + (double)n * u) * p[j] * fabs(v[c]);
            gp[j] += g * v[c]; gp_size[j] += fabs(g * v[c]);
        }
        dot += p[j] * gp[j]; dot_size += p[j] * gp_size[j];
    }
    for (j = from; j < n; ++j) {
        double *dk = e->grads + (base + j) * a->row + kh * w, *dk_off = e->grads_off + (base + j) * a->row + kh * w;
        const double *k = in + (base + j) * a->row + kh * w, s = scale * p[j] * (gp[j] - dot), rows = (double)(used * (x->heads / kv));
        const double slope_off = scale * p[j] * ((off + 4 * u) * fabs(gp[j] - dot) + (double)(w + 2) * u * gp_size[j]
                                             + (off + (double)(n + w + 4) * u + (x->online ? store : 0)) * dot_size);
        const double s_off = slope_off + narrow * (fabs(s) + slope_off);
        for (c = 0; c < w; ++c) {
            const double g = (double)attention_get(x->type, a->grad_output, (base + i) * a->out_row + head * w + c);
            dq[c] += s * k[c]; dq_off[c] += (s_off + (double)n * u * fabs(s)) * fabs(k[c]);
            dk[c] += s * q[c]; dk_off[c] += (s_off + rows * u * fabs(s)) * fabs(q[c]);
            dk[kv * w + c] += p[j] * g; dk_off[kv * w + c] += (off + narrow + rows * u) * p[j] * fabs(g);
        }
    }
}
static attention_exact attention_exactly(const attention_call *a, const double *in) {
    const memopt_attention *x = &a->x; const size_t kv = x->kv_heads ? x->kv_heads : x->heads; size_t b, h, i; attention_exact e;
    double *row = (double *)attention_alloc(3 * a->rows * sizeof *row);
    e.output = (double *)calloc(a->rows * a->out_row, 2 * sizeof *e.output); e.grads = (double *)calloc(a->rows * a->row, 2 * sizeof *e.grads);
    if (!e.output || !e.grads) { printf("test_attention: out of memory\n"); exit(1); }
    e.output_off = e.output + a->rows * a->out_row; e.grads_off = e.grads + a->rows * a->row;
    for (b = 0; b < attention_sequences(x); ++b) for (h = 0; h < x->heads; ++h) for (i = 0; i < attention_used(x, b); ++i)
        attention_exact_row(a, &e, in, b, h, kv, i, row);
    free(row);
    return e;
}
static double *attention_doubles(const attention_call *a) {
    double *in = (double *)attention_alloc(a->rows * a->row * sizeof *in); size_t i;
    for (i = 0; i < a->rows * a->row; ++i) in[i] = (double)attention_get(a->x.type, a->inputs, i);
    return in;
}
/* The largest difference to the exact form, as a part of its bound: 1 is the bound. Storage rounds by its own half step. */
static double attention_worst(const memopt_attention *x, const void *got, const double *want, const double *off, size_t n, size_t row) {
    const double half = x->type == MEMOPT_TYPE_F32 ? 0 : x->type == MEMOPT_TYPE_BF16 ? 1.0 / 256 : 1.0 / 2048; double worst = 0; size_t i;
    for (i = 0; i < n; ++i) {
        const double g = (double)attention_get(x->type, got, i), bound = off[i] * 1.01 + half * (fabs(want[i]) + off[i])
            + (x->type == MEMOPT_TYPE_F16 ? ldexp(1, -25) : 0) + 1e-25; /* exponentials below 2^-99 may be 0 */
        if (i % row + 3 >= row) continue;
        if (!(fabs(g - want[i]) / bound <= worst)) worst = fabs(g - want[i]) / bound;
    }
    return worst;
}
static double attention_check_exact(const attention_call *a) {
    double *in = attention_doubles(a), worst, other; attention_exact e = attention_exactly(a, in);
    worst = attention_worst(&a->x, a->output, e.output, e.output_off, a->rows * a->out_row, a->out_row);
    other = attention_worst(&a->x, a->grads, e.grads, e.grads_off, a->rows * a->row, a->row);
    free(in); free(e.output); free(e.grads);
    return worst > other ? worst : other;
}
static void attention_near_exact(void) {
    size_t i; int type, online;
    for (i = 0; i < ATTENTION_CASES; ++i) for (type = 0; type < 3; ++type) for (online = 0; online < 2; ++online) {
        attention_case c = attention_cases[i]; attention_call a;
        if (test_is_passed_over()) continue;
        c.type = (memopt_type)type; c.online = online;
        a = attention_make(&c, i + 100);
        CHECK_AT(attention_both(&a, NULL, NULL) == MEMOPT_OK, i);
        CHECK_AT(attention_check_exact(&a) <= 1, i * 100 + (size_t)type * 10 + (size_t)online);
        attention_free(&a);
    }
}
/* The sum of output times grad_output. */
static double attention_value(const attention_call *a, const double *in) {
    attention_exact e = attention_exactly(a, in); double sum = 0; size_t i;
    for (i = 0; i < a->rows * a->out_row; ++i)
        if (i % a->out_row + 3 < a->out_row && e.output[i] != 0)
            sum += e.output[i] * (double)attention_get(a->x.type, a->grad_output, i);
    free(e.output); free(e.grads);
    return sum;
}
static void attention_differences(void) { /* of the exact form */
    const size_t pick[4] = { 1, 5, 6, 4 }; size_t k, i;
    for (k = 0; k < 4; ++k) {
        const attention_case c = attention_cases[pick[k]]; attention_call a; double *in; attention_exact e;
        if (test_is_passed_over()) continue;
        a = attention_make(&c, k + 7); in = attention_doubles(&a); e = attention_exactly(&a, in);
        for (i = 0; i < a.rows * a.row; i += a.rows * a.row / 150 + 1) {
            const double x = in[i], h = 1e-5; double up, down;
            if (i % a.row + 3 >= a.row || !(fabs(x) < 4)) continue;
            in[i] = x + h; up = attention_value(&a, in);
            in[i] = x - h; down = attention_value(&a, in);
            in[i] = x;
            CHECK_AT(fabs((up - down) / (2 * h) - e.grads[i]) < 1e-6, k * 10000 + i);
        }
        free(in); free(e.output); free(e.grads);
        attention_free(&a);
    }
}

/* ---- the same bits, however it is cut ---- */
static void attention_any_workers(void) {
    size_t i; int type, online, workers, level;
    for (i = 0; i < ATTENTION_CASES; i += i < 5 ? 5 : 1) for (type = 0; type < 3; ++type) for (online = 0; online < 2; ++online) {
        attention_case c = attention_cases[i]; attention_call one;
        memopt_threads scalar = test_level(MEMOPT_SIMD_SCALAR);
        c.type = (memopt_type)type; c.online = online;
        one = attention_make(&c, i + 200);
        CHECK(attention_both(&one, &scalar, NULL) == MEMOPT_OK);
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
            for (workers = 1; workers <= 8; workers += workers == 3 ? 5 : 1) {
                test_worker_set worker_set; memopt_threads t = test_workers(&worker_set, workers, level); attention_call many;
                if (test_is_passed_over()) continue;
                many = attention_make(&c, i + 200);
                CHECK_AT(attention_both(&many, &t, NULL) == MEMOPT_OK && attention_same(&one, &many), i * 100 + (size_t)workers);
                CHECK_AT(!online || c.lengths || !memcmp(one.x.statistics, many.x.statistics, one.rows * c.heads * sizeof(float)), i);
                attention_free(&many);
            }
        attention_free(&one);
    }
}
/* Rows of scores in scratch change no bit, of whole rows and online. */
static void attention_any_block(void) {
    static const size_t blocks[] = { 0, 1, 5, 16, 33, 64, 299, 300, 301, SIZE_MAX }; size_t i; int type, online;
    for (type = 0; type < 3; ++type) for (online = 0; online < 2; ++online) {
        attention_case c = { 1, 300, 2, 1, 5, 64, 1, 0, MEMOPT_TYPE_F32, NULL }; attention_call one;
        c.type = (memopt_type)type; c.online = online;
        one = attention_make(&c, 3);
        CHECK(attention_both(&one, NULL, NULL) == MEMOPT_OK);
        for (i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
            attention_call other;
            if (test_is_passed_over()) continue;
            c.block = blocks[i];
            other = attention_make(&c, 3);
            CHECK_AT(attention_both(&other, NULL, NULL) == MEMOPT_OK && attention_same(&one, &other), i);
            attention_free(&other);
        }
        attention_free(&one);
    }
}
/* A sequence in a batch, with rows after its own, is the same as by itself. */
static void attention_lengths(void) {
    size_t i, b; int online, type;
    for (i = 6; i < 8; ++i) for (online = 0; online < 2; ++online) for (type = 0; type < 3; ++type) {
        attention_case c = attention_cases[i]; attention_call all; size_t size;
        c.online = online; c.type = (memopt_type)type; size = attention_bytes(c.type);
        all = attention_make(&c, i);
        CHECK(attention_both(&all, NULL, NULL) == MEMOPT_OK);
        for (b = 0; b < c.batch; ++b) {
            attention_case single = c; attention_call one; const size_t from = b * c.length, used = c.lengths[b]; size_t r, k;
            single.batch = 1; single.length = used; single.lengths = NULL;
            one = attention_make(&single, 1);
            memcpy(one.inputs, memopt_i_row_at(all.inputs, c.type, from * all.row), used * all.row * size);
            memcpy(one.grad_output, memopt_i_row_at(all.grad_output, c.type, from * all.out_row), used * all.out_row * size);
            CHECK(attention_both(&one, NULL, NULL) == MEMOPT_OK);
            CHECK(!memcmp(one.output, memopt_i_row_at(all.output, c.type, from * all.out_row), used * all.out_row * size));
            CHECK(!memcmp(one.grads, memopt_i_row_at(all.grads, c.type, from * all.row), used * all.row * size));
            for (r = from + used; r < from + c.length; ++r) {
                for (k = 0; k + 3 < all.row; ++k) CHECK_AT(attention_get(c.type, all.grads, r * all.row + k) == 0, r);
                for (k = 0; k + 3 < all.out_row; ++k) CHECK_AT(attention_get(c.type, all.output, r * all.out_row + k) == 0, r);
            }
            attention_free(&one);
        }
        attention_free(&all);
    }
}
/* ---- documents and windows ---- */
/* Cuts rows at random places, some of them twice; returns on the longest. */
static size_t attention_cut(size_t *starts, size_t documents, size_t rows, uint64_t *seed) {
    size_t i, j, longest = 0;
    for (i = 1; i < documents; ++i) starts[i] = (size_t)test_below(seed, rows + 1);
    starts[0] = 0; starts[documents] = rows;
    for (i = 1; i < documents; ++i) for (j = i; j > 1 && starts[j - 1] > starts[j]; --j) {
        const size_t t = starts[j]; starts[j] = starts[j - 1]; starts[j - 1] = t;
    }
    for (i = 0; i < documents; ++i) if (starts[i + 1] - starts[i] > longest) longest = starts[i + 1] - starts[i];
    return longest;
}
/* Does a document of a call that has run have the bits, and the statistics, of a call of its own? */
static int attention_is_alone(const attention_call *all, attention_case c, size_t document) {
    const memopt_attention *x = &all->x; const size_t from = x->starts[document], size = attention_bytes(c.type); int same; attention_call one;
    c.batch = 1; c.length = x->starts[document + 1] - from;
    one = attention_make(&c, 1);
    one.x.window = x->window; one.x.scale = x->scale;
    memcpy(one.inputs, memopt_i_row_at(all->inputs, c.type, from * all->row), c.length * all->row * size);
    memcpy(one.grad_output, memopt_i_row_at(all->grad_output, c.type, from * all->out_row), c.length * all->out_row * size);
    same = attention_both(&one, NULL, NULL) == MEMOPT_OK
        && !memcmp(one.output, memopt_i_row_at(all->output, c.type, from * all->out_row), c.length * all->out_row * size)
        && !memcmp(one.grads, memopt_i_row_at(all->grads, c.type, from * all->row), c.length * all->row * size)
        && (!c.online || !memcmp(one.x.statistics, x->statistics + from * c.heads, c.length * c.heads * sizeof(float)));
    attention_free(&one);
    return same;
}
static void attention_documents(void) {
    const uint64_t cases = TEST_CASES(120, 2000); uint64_t n; size_t starts[12], i;
    for (n = 0; n < cases; ++n) {
        uint64_t seed = n + 1; attention_case c; attention_call a, b; test_worker_set worker_set; memopt_threads t; size_t longest;
        const size_t heads[4] = { 1, 2, 4, 6 }; size_t documents = 1 + (size_t)test_below(&seed, 11), all;
        memset(&c, 0, sizeof c);
        c.batch = 1 + (size_t)test_below(&seed, 3); c.length = 1 + (size_t)test_below(&seed, n % 8 ? 60 : 200 / c.batch);
        c.heads = heads[test_below(&seed, 4)]; c.kv_heads = test_below(&seed, 2) && c.heads % 2 == 0 ? c.heads / 2 : 0;
        c.width = 1 + (size_t)test_below(&seed, n % 5 ? 9 : 40); c.block = (size_t)test_below(&seed, 2) * (1 + (size_t)test_below(&seed, 70));
        c.causal = test_below(&seed, 3) != 0; c.online = (int)test_below(&seed, 2); c.type = (memopt_type)test_below(&seed, 3);
        all = c.batch * c.length;
        longest = attention_cut(starts, documents, all, &seed);
        t = test_workers(&worker_set, 1 + (int)test_below(&seed, 4), test_below(&seed, 2) ? memopt_simd_best() : MEMOPT_SIMD_SCALAR);
        if (test_is_passed_over()) continue;
        a = attention_make(&c, n + 300); attention_mixed(&a, c.type, n + 1);
        a.x.documents = documents; a.x.starts = starts; a.x.longest = all; /* more than there is costs scratch, no bit */
        if (c.causal && test_below(&seed, 2)) a.x.window = 1 + (size_t)test_below(&seed, longest + 3);
        b = a;
        CHECK_AT(attention_both(&a, &t, NULL) == MEMOPT_OK && attention_is_plain(&a), n);
        for (i = 0; i < documents; ++i) CHECK_AT(attention_is_alone(&a, c, i), n * 100 + i);
        b.x.longest = longest; /* a byte less of scratch would be seen */
        if (longest) CHECK_AT(attention_both(&b, NULL, NULL) == MEMOPT_OK && attention_is_plain(&b), n);
        attention_free(&a);
    }
}
/* A row and the window - 1 before it: the bits of sums over these alone, near the exact form, for every block; and whatever
   stands in rows that it does not see. */
static void attention_windows(void) {
    static const size_t windows[] = { 1, 2, 3, 7, 8, 11, 12, 13, 31, 32, 33, 64, 100, 255, 256, 257, 600 }, blocks[] = { 0, 1, 32, 50, 200, SIZE_MAX };
    size_t w, k; int type, online, level;
    for (w = 0; w < sizeof windows / sizeof *windows; ++w) for (type = 0; type < 3; ++type) for (online = 0; online < 2; ++online) {
        attention_case c = { 1, 131, 2, 1, 5, 64, 1, 0, MEMOPT_TYPE_F32, NULL }; attention_call one;
        c.length = windows[w] > 60 ? 330 : 131; c.width = w % 3 || w > 11 ? 5 : 33; c.type = (memopt_type)type; c.online = online;
        if (test_is_passed_over()) continue;
        one = attention_make(&c, w + 3); attention_mixed(&one, c.type, w + 1); one.x.window = windows[w];
        CHECK_AT(attention_both(&one, NULL, NULL) == MEMOPT_OK && attention_is_plain(&one), w);
        CHECK_AT(attention_check_exact(&one) <= 1, w);
        for (k = 0; k < sizeof blocks / sizeof *blocks; ++k) for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            attention_call other; memopt_threads t = test_level(level);
            if ((k + w) % 3 && (level != memopt_simd_best() || c.length > 131)) continue;
            c.block = blocks[k];
            other = attention_make(&c, w + 3); attention_mixed(&other, c.type, w + 1); other.x.window = windows[w];
            CHECK_AT(attention_both(&other, &t, NULL) == MEMOPT_OK && attention_same(&one, &other), w * 100 + k);
            attention_free(&other);
        }
        attention_free(&one);
    }
}
/* Scratch grows with what is attended to. */
static void attention_window_sizes(void) {
    memopt_attention x; size_t bytes = 0; const size_t starts[3] = { 0, 10, 64 };
    memset(&x, 0, sizeof x);
    x.batch = 1; x.length = 4096; x.heads = 12; x.width = 64; x.causal = 1; x.window = 512;
    CHECK(scratch_of_attention(NULL, &x, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 2 * 64 * 624 * 4 + 64);
    x.window = 4096; /* 4096 + 16: an odd number of lines */
    CHECK(scratch_of_attention(NULL, &x, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 2 * 64 * 4112 * 4 + 64);
    x.window = 0; x.documents = 2; x.starts = starts; x.longest = 256;
    CHECK(scratch_of_attention(NULL, &x, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 2 * 64 * 272 * 4 + 64);
    x.type = MEMOPT_TYPE_BF16;
    CHECK(scratch_of_attention(NULL, &x, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 2 * 64 * 272 * 4 + 2 * 64 * 256 * 4 + 64);
}

/* Dense tensors of their own: the strides that 0 stands for; and each gradient stays in its own. */
static void attention_dense(void) {
    const attention_case c = { 2, 19, 4, 2, 6, 8, 1, 0, MEMOPT_TYPE_F32, NULL }; attention_call a = attention_make(&c, 5);
    const size_t wide = 4 * 6, narrow = 2 * 6, n = 2 * 19; size_t r; attention_call d = a; int i;
    float *m[8]; size_t row[8]; const void *from[3];
    for (i = 0; i < 8; ++i) {
        row[i] = i == 1 || i == 2 || i == 5 || i == 6 ? narrow : wide;
        m[i] = (float *)attention_alloc(n * row[i] * sizeof **m); /* q k v, out, dq dk dv, dout */
        memset(m[i], 0xA5, n * row[i] * sizeof **m);
    }
    from[0] = a.x.queries; from[1] = a.x.keys; from[2] = a.x.values;
    for (r = 0; r < n; ++r) {
        for (i = 0; i < 3; ++i) memcpy(m[i] + r * row[i], (const float *)from[i] + r * a.row, row[i] * sizeof **m);
        memcpy(m[7] + r * wide, (const float *)a.grad_output + r * a.out_row, wide * sizeof **m);
    }
    d.x.queries = m[0]; d.x.keys = m[1]; d.x.values = m[2]; d.x.output = m[3];
    d.x.grad_queries = m[4]; d.x.grad_keys = m[5]; d.x.grad_values = m[6]; d.x.grad_output = m[7];
    d.x.query_stride = d.x.kv_stride = d.x.output_stride = 0;
    CHECK(attention_both(&a, NULL, NULL) == MEMOPT_OK && attention_both(&d, NULL, NULL) == MEMOPT_OK);
    for (r = 0; r < n; ++r) {
        CHECK(!memcmp(m[3] + r * wide, (float *)a.output + r * a.out_row, wide * sizeof **m));
        CHECK(!memcmp(m[4] + r * wide, (float *)a.x.grad_queries + r * a.row, wide * sizeof **m));
        CHECK(!memcmp(m[5] + r * narrow, (float *)a.x.grad_keys + r * a.row, narrow * sizeof **m));
        CHECK(!memcmp(m[6] + r * narrow, (float *)a.x.grad_values + r * a.row, narrow * sizeof **m));
    }
    for (i = 0; i < 8; ++i) free(m[i]);
    attention_free(&a);
}

/* ---- a gemm of the caller's ---- */
typedef struct attention_gemm { size_t calls, fail_on; unsigned char *base; size_t bytes, bad; } attention_gemm;
static memopt_status attention_multiply(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    attention_gemm *g = (attention_gemm *)user; size_t i, j, k;
    if (++g->calls == g->fail_on) return MEMOPT_ERR_DEVICE;
    if (g->calls > g->fail_on && g->fail_on) ++g->bad; /* one worker stops at its first failure */
    if (threads && threads->run_fn) ++g->bad;
    if ((uintptr_t)scratch & 63) ++g->bad;
    memset(scratch, 0x5A, 100);
    for (i = 0; i < p->rows; ++i) for (j = 0; j < p->columns; ++j) { /* backwards, in double: a gemm of another order */
        double sum = p->accumulate ? (double)attention_get(p->result_type, p->result, i * p->result_stride + j) : 0;
        for (k = p->depth; k--; )
            sum += (double)attention_get(p->left_type, p->left, p->left_transposed ? k * p->left_stride + i : i * p->left_stride + k)
                 * (double)attention_get(p->right_type, p->right, p->right_transposed ? j * p->right_stride + k : k * p->right_stride + j);
        attention_set(p->result_type, p->result, i * p->result_stride + j, attention_rounded(p->result_type, (float)sum));
    }
    return MEMOPT_OK;
}

/* ---- long rows, large scores, scores that are not finite ---- */
static void attention_long(void) {
    static const attention_case cases[] = { { 1, 513, 2, 1, 16, 0, 1, 1, MEMOPT_TYPE_BF16, NULL }, /* first, as the shortest: see test.h */
        { 1, 2050, 1, 0, 8, 0, 1, 1, MEMOPT_TYPE_F32, NULL }, { 1, 2050, 1, 0, 8, 0, 1, 0, MEMOPT_TYPE_F32, NULL }, { 1, 1025, 2, 1, 16, 48, 0, 1, MEMOPT_TYPE_F32, NULL },
        { 1, 700, 1, 1, 16, 300, 1, 1, MEMOPT_TYPE_F16, NULL }, { 2, 257, 1, 1, 4, 7, 0, 1, MEMOPT_TYPE_F16, NULL } };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        attention_call a;
        if (test_is_passed_over()) continue;
        a = attention_make(&cases[i], i + 300);
        CHECK_AT(attention_both(&a, NULL, NULL) == MEMOPT_OK && attention_check_exact(&a) <= 1, i);
        attention_free(&a);
    }
}
/* Scores that grow, fall, and reach far: the running maximum moves at every tile, and most of it underflows. */
static void attention_large_scores(void) {
    int shape, online, causal; size_t i, r;
    for (shape = 0; shape < 3; ++shape) for (online = 0; online < 2; ++online) for (causal = 0; causal < 2; ++causal) {
        attention_case c = { 1, 600, 1, 0, 4, 0, 0, 0, MEMOPT_TYPE_F32, NULL }; attention_call a;
        if (test_is_passed_over()) continue;
        c.online = online; c.causal = causal;
        a = attention_make(&c, 8);
        for (r = 0; r < 600; ++r) for (i = 0; i < 4; ++i) {
            float *q = (float *)a.inputs + r * a.row + i, *k = q + 4;
            if (shape == 2) *q *= 20;
            else { *q = 1; *k = (shape ? 300.0f - (float)r : (float)r - 300.0f) / 4; }
        }
        CHECK(attention_both(&a, NULL, NULL) == MEMOPT_OK);
        CHECK_AT(attention_check_exact(&a) <= 1, shape * 4 + online * 2 + causal);
        attention_free(&a);
    }
}
/* Whole rows and online agree on which elements are finite; where both are, they are close. */
static void attention_not_finite(void) {
    const uint32_t odd[4] = { 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f7fffffu }; size_t k, part, place, i; int causal;
    for (k = 0; k < 4; ++k) for (part = 0; part < 4; ++part) for (place = 0; place < 3; ++place) for (causal = 0; causal < 2; ++causal) {
        attention_case c = { 1, 530, 1, 0, 2, 0, 0, 0, MEMOPT_TYPE_F32, NULL }; attention_call whole, online; const size_t row = place * 260 + 3;
        if (test_is_passed_over()) continue;
        c.causal = causal;
        whole = attention_make(&c, 4); c.online = 1; online = attention_make(&c, 4);
        for (i = 0; i < 2; ++i) {
            attention_call *a = i ? &online : &whole;
            float *at = part < 3 ? (float *)a->inputs + row * a->row + part * 2 : (float *)a->grad_output + row * a->out_row;
            at[0] = at[1] = memopt_i_bits_float(odd[k]);
            CHECK(attention_both(a, NULL, NULL) == MEMOPT_OK);
        }
        for (i = 0; i < whole.rows * whole.out_row; ++i) {
            const float x = ((float *)whole.output)[i], y = ((float *)online.output)[i];
            const int fine = (memopt_i_float_bits(x) & 0x7fffffffu) < 0x7f800000u, same = (memopt_i_float_bits(y) & 0x7fffffffu) < 0x7f800000u;
            if (causal && i / whole.out_row < row) CHECK_AT(i % whole.out_row + 3 >= whole.out_row || (fine && same), i);
            CHECK_AT(fine == same && (!fine || fabs((double)(x - y)) <= 1e-4 + 1e-5 * fabs((double)x)), k * 100000 + part * 10000 + i);
        }
        attention_free(&whole); attention_free(&online);
    }
}
/* What online keeps of a row is its largest score plus the logarithm of a sum, by the logarithm that the library has of its
   own, at every level; here of one tile. */
static void attention_statistics(void) {
    int level; size_t i, j, k;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        const attention_case c = { 1, 200, 1, 0, 3, 0, 1, 1, MEMOPT_TYPE_F32, NULL }; attention_call a = attention_make(&c, 21);
        memopt_threads t = test_level(level); const float *in = (const float *)a.inputs; float scores[200];
        a.x.scale = 0.75f;
        CHECK(attention_both(&a, &t, NULL) == MEMOPT_OK);
        for (i = 0; i < c.length; ++i) {
            float most, sums[16] = { 0 };
            for (j = 0; j <= i; ++j)
                for (scores[j] = 0, k = 0; k < 3; ++k) scores[j] = fmaf(in[i * a.row + k], in[j * a.row + 3 + k], scores[j]);
            for (most = scores[0], j = 1; j <= i; ++j) if (scores[j] > most) most = scores[j];
            memopt_i_row_exp(MEMOPT_SIMD_SCALAR, sums, scores, scores, most, a.x.scale, i + 1);
            CHECK_AT(a.x.statistics[i] == (float)((double)most + memopt_i_row_log((double)memopt_i_row_total(sums)) / (double)a.x.scale), i);
        }
        attention_free(&a);
    }
}

/* ---- a row attends to itself and the rows before it, whatever stands anywhere else ---- */
static const uint32_t attention_odd[] = { 0x7fc00000u, 0xffa00001u, 0x7f800000u, 0xff800000u, 0x00000001u, 0x80000001u, 0x7f7fffffu };
enum { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_DO, ATTENTION_OPERANDS, ATTENTION_ODD = sizeof attention_odd / sizeof *attention_odd };
/* Puts a number into an element of a row of an operand, in all heads; width and heads as in the case. */
static void attention_plant(attention_call *a, const attention_case *c, int operand, size_t row, uint32_t bits) {
    const size_t kv = c->kv_heads ? c->kv_heads : c->heads, heads = operand == ATTENTION_K || operand == ATTENTION_V ? kv : c->heads;
    const size_t from = operand == ATTENTION_K ? c->heads * c->width : operand == ATTENTION_V ? (c->heads + kv) * c->width : 0; size_t h;
    for (h = 0; h < heads; ++h) {
        const size_t at = h * c->width + (row + h) % c->width;
        if (operand == ATTENTION_DO) attention_set(c->type, a->grad_output, row * a->out_row + at, memopt_i_bits_float(bits));
        else attention_set(c->type, a->inputs, row * a->row + from + at, memopt_i_bits_float(bits));
    }
}
/* What is nobody's: rows that are not in use, and elements between rows. */
static void attention_fill_padding(attention_call *a, uint32_t bits) {
    const memopt_attention *x = &a->x; size_t r, i;
    for (r = 0; r < a->rows; ++r) {
        const int used = r % x->length < attention_used(x, r / x->length);
        for (i = used ? a->row - 3 : 0; i < a->row; ++i) attention_set(x->type, a->inputs, r * a->row + i, memopt_i_bits_float(bits));
        for (i = used ? a->out_row - 3 : 0; i < a->out_row; ++i)
            attention_set(x->type, a->grad_output, r * a->out_row + i, memopt_i_bits_float(bits));
    }
}
static int attention_equal_rows(const attention_call *a, const void *x, const void *y, size_t row, size_t stride) {
    size_t i; int same = 1;
    for (i = 0; i < stride; ++i)
        same = same && attention_equal(attention_get(a->x.type, x, row * stride + i), attention_get(a->x.type, y, row * stride + i));
    return same;
}
static int attention_equal_calls(const attention_call *a, const attention_call *b) {
    size_t r; int same = 1;
    for (r = 0; r < a->rows; ++r)
        same = same && attention_equal_rows(a, a->output, b->output, r, a->out_row) && attention_equal_rows(a, a->grads, b->grads, r, a->row);
    return same;
}
static int attention_finite_alike(const attention_call *a, const attention_call *b) {
    size_t i; int alike = 1;
    for (i = 0; i < a->rows * a->out_row; ++i) {
        const float x = attention_get(a->x.type, a->output, i), y = attention_get(a->x.type, b->output, i);
        alike = alike && (fabs((double)x) <= 1e38) == (fabs((double)y) <= 1e38);
    }
    for (i = 0; i < a->rows * a->row; ++i) {
        const float x = attention_get(a->x.type, a->grads, i), y = attention_get(a->x.type, b->grads, i);
        alike = alike && (fabs((double)x) <= 1e38) == (fabs((double)y) <= 1e38);
    }
    return alike;
}
/* The smallest case: V = { 5, infinity }. Row 0 is 5. */
static void attention_two_rows(void) {
    size_t block; int online;
    for (block = 1; block <= 2; ++block) for (online = 0; online < 2; ++online) {
        attention_case c = { 1, 2, 1, 0, 1, 0, 1, 0, MEMOPT_TYPE_F32, NULL }; attention_call a; float *in;
        c.block = block; c.online = online;
        a = attention_make(&c, 1); in = (float *)a.inputs;
        in[2] = 5; in[a.row + 2] = memopt_i_bits_float(0x7f800000u);
        CHECK(attention_both(&a, NULL, NULL) == MEMOPT_OK);
        CHECK_AT(((float *)a.output)[0] == 5 && memopt_i_float_bits(((float *)a.output)[a.out_row]) == 0x7f800000u, block);
        attention_free(&a);
    }
}
/* Nor does the sign of a 0: two equal scores, and values of which half is below half of the smallest number, give -0, to
   which 0 times the next row's value would add +0. */
static void attention_sign_of_zero(void) {
    size_t block, r;
    for (block = 1; block <= 3; ++block) {
        attention_case c = { 1, 3, 1, 0, 1, 0, 1, 0, MEMOPT_TYPE_F32, NULL }; attention_call a; float *in;
        c.block = block;
        a = attention_make(&c, 1); in = (float *)a.inputs;
        for (r = 0; r < 3; ++r) { in[r * a.row] = 0; in[r * a.row + 2] = r < 2 ? memopt_i_bits_float(0x80000001u) : 5; }
        CHECK(attention_both(&a, NULL, NULL) == MEMOPT_OK);
        CHECK_AT(memopt_i_float_bits(((float *)a.output)[a.out_row]) == 0x80000000u, block);
        attention_free(&a);
    }
}
/* Odd numbers in every operand, alone and everywhere at once: whole rows have the bits of the plain form, at every level
   and for every block; online has the bits of one block of its own, and is finite where the plain form is. */
static void attention_odd_case(const attention_case *shape, int operand, size_t odd, size_t row, const attention_call *one) {
    static const size_t blocks[] = { 1, 7, 64, SIZE_MAX }; size_t b; int level;
    for (b = 0; b < sizeof blocks / sizeof *blocks; ++b)
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            memopt_threads t = test_level(level); attention_case c = *shape; attention_call a; int k;
            if (b % 2 && level != memopt_simd_best()) continue;
            c.block = blocks[b];
            a = attention_make(&c, odd + 40);
            for (k = 0; k < ATTENTION_OPERANDS; ++k)
                if (k == operand || operand == ATTENTION_OPERANDS) attention_plant(&a, &c, k, row + (operand == k ? 0 : (size_t)k * 4), attention_odd[odd]);
            if (odd % 2) attention_fill_padding(&a, 0x7f800000u);
            CHECK(attention_both(&a, &t, NULL) == MEMOPT_OK);
            CHECK_AT(attention_equal_calls(&a, one), odd * 10000 + (size_t)operand * 1000 + b * 100 + (size_t)level);
            attention_free(&a);
        }
}
static void attention_odd_bits(void) {
    static const size_t some[3] = { 70, 0, 80 }; int operand, causal, type, online; size_t odd;
    for (causal = 0; causal < 2; ++causal) for (odd = 0; odd < ATTENTION_ODD; ++odd) for (type = 0; type < (odd < 3 ? 3 : 2); ++type)
        for (operand = 0; operand <= ATTENTION_OPERANDS; ++operand) for (online = 0; online < 2; ++online) {
            attention_case c = { 1, 80, 2, 1, 3, 33, 0, 0, MEMOPT_TYPE_F32, NULL }; attention_call one; int k;
            const size_t row = operand % 2 ? 3 : 67;
            if (test_is_passed_over()) continue;
            if (odd == 2) { c.batch = 3; c.lengths = some; }
            c.causal = causal; c.type = (memopt_type)type; c.online = online;
            one = attention_make(&c, odd + 40);
            for (k = 0; k < ATTENTION_OPERANDS; ++k)
                if (k == operand || operand == ATTENTION_OPERANDS) attention_plant(&one, &c, k, row + (operand == k ? 0 : (size_t)k * 4), attention_odd[odd]);
            CHECK(attention_both(&one, NULL, NULL) == MEMOPT_OK);
            CHECK_AT(attention_is_plain(&one), odd * 10000 + (size_t)operand * 1000);
            attention_odd_case(&c, operand, odd, row, &one);
            attention_free(&one);
        }
}
/* Against a call without it, an odd number reaches only what attends to its row: of an input of row r, the outputs and
   gradients of queries of r (of keys and values: of all rows from r on); and no gradient of a key or value after r, where
   it stands in a query, grad_output, output or statistic. With the built-in gemm, and one that knows no triangles. */
static void attention_run_planted(attention_call *a, const attention_case *c, int operand, size_t row, uint32_t bits, const memopt_gemm *gemm) {
    memopt_ops ops; size_t bytes = 0; unsigned char *block;
    memset(&ops, 0, sizeof ops);
    if (gemm) ops.gemm = *gemm;
    CHECK(scratch_of_attention(&ops, &a->x, &bytes) == MEMOPT_OK);
    block = (unsigned char *)attention_alloc(bytes + 64);
    ops.scratch = block + (64 - ((uintptr_t)block & 63)); ops.scratch_bytes = bytes;
    if (operand < ATTENTION_OPERANDS) attention_plant(a, c, operand, row, bits);
    CHECK(memopt_attention_forward(&ops, &a->x) == MEMOPT_OK);
    if (operand == ATTENTION_OPERANDS) a->x.statistics[row] = memopt_i_bits_float(bits);
    if (operand == ATTENTION_OPERANDS + 1) attention_set(c->type, a->output, row * a->out_row, memopt_i_bits_float(bits));
    CHECK(memopt_attention_backward(&ops, &a->x) == MEMOPT_OK);
    free(block);
}
static void attention_reach(void) {
    static const uint32_t odd[] = { 0x7fc00000u, 0x7f800000u, 0xff800000u }; static const size_t rows[] = { 0, 30, 63, 64, 126 };
    attention_gemm g; memopt_gemm table; int operand, online, type, own; size_t i, k, r;
    memset(&g, 0, sizeof g);
    table.multiply_fn = attention_multiply; table.scratch_bytes = 100; table.user = &g;
    for (own = 0; own < 2; ++own) for (online = 0; online < 2; ++online) for (type = 0; type < 3; ++type)
        for (operand = 0; operand < ATTENTION_OPERANDS + 2; ++operand) for (i = 0; i < 3; ++i) for (k = 0; k < 5; ++k) {
            attention_case c = { 1, 130, 1, 0, 3, 64, 1, 0, MEMOPT_TYPE_F32, NULL }; attention_call clean, a; size_t at = rows[k];
            if ((own && (k + i) % 2) || (operand >= ATTENTION_OPERANDS && !online) || test_is_passed_over()) continue;
            c.online = online; c.type = (memopt_type)type; c.block = i == 1 ? 100 : i == 2 ? SIZE_MAX : 64;
            if (!own && k == 4) { c.length = 300; at = 193; } /* more than a block of depth, more than a tile of columns */
            clean = attention_make(&c, 77); a = attention_make(&c, 77);
            attention_run_planted(&clean, &c, -1, 0, 0, own ? &table : NULL);
            attention_run_planted(&a, &c, operand, at, odd[i], own ? &table : NULL);
            if (own) { /* and finite where the built-in one is */
                attention_call b = attention_make(&c, 77);
                attention_run_planted(&b, &c, operand, at, odd[i], NULL);
                CHECK_AT(attention_finite_alike(&a, &b), operand * 100 + (int)k);
                attention_free(&b);
            }
            for (r = 0; r < c.length; ++r) {
                const int seen = operand == ATTENTION_K || operand == ATTENTION_V ? r >= at : r == at, key = 3, value = 6; size_t j;
                for (j = 0; j < 3 && !seen; ++j) {
                    CHECK_AT(attention_equal(attention_get(c.type, a.output, r * a.out_row + j), attention_get(c.type, clean.output, r * a.out_row + j)), r);
                    CHECK_AT(attention_equal(attention_get(c.type, a.grads, r * a.row + j), attention_get(c.type, clean.grads, r * a.row + j)), r);
                }
                for (j = 0; j < 3 && r > at && operand != ATTENTION_K && operand != ATTENTION_V; ++j) {
                    CHECK_AT(attention_equal(attention_get(c.type, a.grads, r * a.row + (size_t)key + j), attention_get(c.type, clean.grads, r * a.row + (size_t)key + j)), r);
                    CHECK_AT(attention_equal(attention_get(c.type, a.grads, r * a.row + (size_t)value + j), attention_get(c.type, clean.grads, r * a.row + (size_t)value + j)), r);
                }
            }
            attention_free(&clean); attention_free(&a);
        }
}
/* A whole tile of scores of -infinity counts nothing, before and after one with a softmax. */
static void attention_minus_infinity(void) {
    int online, late; size_t r, i;
    for (online = 0; online < 2; ++online) for (late = 0; late < 2; ++late) {
        attention_case c = { 1, 512, 1, 0, 1, 0, 0, 0, MEMOPT_TYPE_F32, NULL }; attention_call a; float *in;
        if (test_is_passed_over()) continue;
        c.online = online;
        a = attention_make(&c, 6); in = (float *)a.inputs;
        for (r = 0; r < 512; ++r) { in[r * a.row] = 1e30f; in[r * a.row + 1] = (int)(r / 256) == late ? -1e30f : 1e-30f; in[r * a.row + 2] = (float)(r / 256); }
        CHECK(attention_both(&a, NULL, NULL) == MEMOPT_OK);
        for (i = 0; i < 512; ++i) CHECK_AT(fabs((double)((float *)a.output)[i * a.out_row] - (late ? 0 : 1)) < 1e-5, i);
        for (r = 0; r < 512; ++r) in[r * a.row + 1] = -1e30f; /* nothing else: no softmax */
        CHECK(attention_both(&a, NULL, NULL) == MEMOPT_OK);
        for (i = 0; i < 512; ++i) CHECK_AT(((float *)a.output)[i * a.out_row] != ((float *)a.output)[i * a.out_row], i);
        attention_free(&a);
    }
}

/* ---- a gemm of the caller's fails, or not ---- */
static void attention_own_gemm(void) {
    int online, type;
    for (online = 0; online < 2; ++online) for (type = 0; type < 3; ++type) {
        attention_case c = attention_cases[6]; attention_call a; attention_gemm g; memopt_gemm table; test_worker_set worker_set; size_t all, n;
        memopt_threads t = test_workers(&worker_set, 3, 0);
        memset(&g, 0, sizeof g);
        table.multiply_fn = attention_multiply; table.scratch_bytes = 100; table.user = &g;
        c.online = online; c.type = (memopt_type)type;
        a = attention_make(&c, 9);
        CHECK(attention_both(&a, &t, &table) == MEMOPT_OK && attention_check_exact(&a) <= 1 && !g.bad);
        all = g.calls;
        CHECK(all > 50);
        for (n = 1; n <= all; n += 7) { /* any product fails, and the call says so */
            if (test_is_passed_over()) continue;
            memset(&g, 0, sizeof g); g.fail_on = n;
            CHECK_AT(attention_both(&a, NULL, &table) == MEMOPT_ERR_DEVICE && !g.bad, n);
            memset(&g, 0, sizeof g); g.fail_on = n;
            CHECK_AT(attention_both(&a, &t, &table) == MEMOPT_ERR_DEVICE, n);
        }
        attention_free(&a);
    }
}

/* NaN in a row reaches the rows whose window has it, and nobody else, in the first block, too; with a gemm of the caller's, too. */
static void attention_window_reach(void) {
    static const size_t places[4] = { 0, 3, 29, 40 }; const size_t window = 9; size_t r, k, p; int type, online, own;
    for (p = 0; p < 4; ++p) for (type = 0; type < 3; ++type) for (online = 0; online < 2; ++online) for (own = 0; own < 2; ++own) {
        attention_case c = { 1, 90, 1, 1, 4, 32, 1, 0, MEMOPT_TYPE_F32, NULL }; attention_call a; attention_gemm g; memopt_gemm table; const size_t at = places[p];
        if (p % 2) c.block = 0;
        memset(&g, 0, sizeof g);
        table.multiply_fn = attention_multiply; table.scratch_bytes = 100; table.user = &g;
        c.online = online; c.type = (memopt_type)type;
        a = attention_make(&c, 8); a.x.window = window;
        for (k = 0; k + 3 < a.row; ++k) attention_set(c.type, a.inputs, at * a.row + k, attention_nan());
        CHECK(attention_both(&a, NULL, own ? &table : NULL) == MEMOPT_OK && !g.bad && (own == 0) == (g.calls == 0));
        for (r = 0; r < c.length; ++r) {
            const int out = r >= at && r < at + window, seen_near = r + window > at && r < at + window;
            for (k = 0; k < c.width; ++k) {
                const float y = attention_get(c.type, a.output, r * a.out_row + k);
                CHECK_AT((y != y) == out, r);
            }
            for (k = 0; k + 3 < a.row; ++k) {
                const float y = attention_get(c.type, a.grads, r * a.row + k);
                if (!seen_near) CHECK_AT(y == y, r * 100 + k);
            }
        }
        attention_free(&a);
    }
}
/* ---- sizes, and calls that are wrong ---- */
static void attention_sizes(void) {
    attention_case c = { 1, 4096, 12, 0, 64, 0, 1, 1, MEMOPT_TYPE_F32, NULL }; attention_call a; memopt_ops ops; size_t small_bytes = 0, bytes = 0, i;
    memset(&a, 0, sizeof a); memset(&ops, 0, sizeof ops);
    a.x.batch = c.batch; a.x.length = c.length; a.x.heads = c.heads; a.x.width = c.width; a.x.online = 1;
    CHECK(scratch_of_attention(&ops, &a.x, &small_bytes) == MEMOPT_OK);
    a.x.length = SIZE_MAX > 0xFFFFFFFF ? 1000000 : 100000;
    CHECK(scratch_of_attention(NULL, &a.x, &bytes) == MEMOPT_OK && bytes == small_bytes && bytes < MEMOPT_GEMM_SCRATCH + 400000);
    a.x.online = 0; a.x.length = 1024;
    CHECK(scratch_of_attention(NULL, &a.x, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 2 * 64 * 1040 * 4 + 64);
    a.x.type = MEMOPT_TYPE_BF16;
    CHECK(scratch_of_attention(NULL, &a.x, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 2 * 64 * 1040 * 4 + 2 * 64 * 1024 * 4 + 64);
    for (i = 1; i <= 1100; i += i < 100 ? 1 : 97) { /* rows of bf16 come by blocks of 32 */
        a.x.block = i;
        CHECK_AT(scratch_of_attention(NULL, &a.x, &bytes) == MEMOPT_OK
                 && bytes == MEMOPT_GEMM_SCRATCH + 2 * (i > 1024 ? 1024 : (i + 31) / 32 * 32) * 1040 * 4 + 2 * 64 * 1024 * 4 + 64, i);
    }
    a.x.block = 33; a.x.type = MEMOPT_TYPE_F32; /* of floats by as many as asked for */
    CHECK(scratch_of_attention(NULL, &a.x, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 2 * 33 * 1040 * 4 + 64);
    a.x.type = MEMOPT_TYPE_BF16;
    a.x.block = 5; a.x.length = 9; /* nor more than there are */
    CHECK(scratch_of_attention(NULL, &a.x, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 2 * 9 * 16 * 4 + 2 * 64 * 9 * 4 + 64);
    a.x.block = 0; a.x.length = 1024;
    CHECK(scratch_of_attention(NULL, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    for (i = 0; i < 6; ++i) { /* products of sizes that do not fit */
        memopt_attention x = a.x; size_t *field[6];
        field[0] = &x.batch; field[1] = &x.length; field[2] = &x.heads; field[3] = &x.width; field[4] = &x.query_stride; field[5] = &x.output_stride;
        *field[i] = SIZE_MAX; bytes = 77;
        CHECK_AT(scratch_of_attention(NULL, &x, &bytes) == MEMOPT_ERR_OVERFLOW && bytes == 77, i);
        CHECK_AT(memopt_attention_forward(NULL, &x) == MEMOPT_ERR_OVERFLOW && memopt_attention_backward(NULL, &x) == MEMOPT_ERR_OVERFLOW, i);
        *field[i] = SIZE_MAX / 4;
        CHECK_AT(scratch_of_attention(NULL, &x, &bytes) == MEMOPT_ERR_OVERFLOW && bytes == 77, i);
    }
    a.x.width = 1; a.x.heads = 1; a.x.length = SIZE_MAX / 8; a.x.block = SIZE_MAX / 16; a.x.type = MEMOPT_TYPE_F32; /* fits, but not its scores */
    CHECK(scratch_of_attention(NULL, &a.x, &bytes) == MEMOPT_ERR_OVERFLOW && bytes == 77);
    a.x.batch = 0; a.x.length = 5;
    CHECK(memopt_attention_forward(NULL, &a.x) == MEMOPT_OK && memopt_attention_backward(NULL, &a.x) == MEMOPT_OK);
    a.x.batch = 5; a.x.length = 0;
    CHECK(memopt_attention_forward(NULL, &a.x) == MEMOPT_OK && memopt_attention_backward(NULL, &a.x) == MEMOPT_OK);
}
static void attention_bad(void) {
    const attention_case c = { 2, 5, 4, 2, 3, 0, 1, 1, MEMOPT_TYPE_F32, NULL }; attention_call a = attention_make(&c, 1);
    size_t bytes = 0, i, k, lengths[3] = { 5, 6, 0 }; memopt_ops ops; unsigned char *block, *at;
    memset(&ops, 0, sizeof ops);
    CHECK(scratch_of_attention(NULL, &a.x, &bytes) == MEMOPT_OK);
    block = (unsigned char *)attention_alloc(bytes + 64); at = block + (64 - ((uintptr_t)block & 63));
    for (i = 0; i < 38; ++i) for (k = 0; k < 2; ++k) {
        memopt_attention x = a.x; memopt_ops o = ops; memopt_threads t = test_level(0); memopt_status want = MEMOPT_ERR_ARGUMENT, got;
        const memopt_attention *p = &x; const void *inputs = a.inputs; size_t j; int only = 2;
        o.scratch = at; o.scratch_bytes = bytes; o.threads = &t;
        switch (i) {
        case 0: p = NULL; break;                  case 1: x.heads = 0; break;
        case 2: x.kv_heads = 3; break;            case 3: x.kv_heads = 8; break;
        case 4: x.width = 0; break;               case 5: x.type = (memopt_type)3; break;
        case 6: x.causal = 2; break;              case 7: x.online = -1; break;
        case 8: x.scale = -1; break;              case 9: x.scale = attention_nan(); break;
        case 10: x.scale = memopt_i_bits_float(0x7f800000u); break;
        case 11: x.scale = 1e-31f; break;         case 12: x.query_stride = 11; break;
        case 13: x.kv_stride = 5; break;          case 14: x.output_stride = 11; break;
        case 15: x.queries = NULL; break;         case 16: x.keys = NULL; break;
        case 17: x.values = NULL; break;          case 18: x.output = NULL; break;
        case 19: x.statistics = NULL; break;      case 20: x.queries = (const char *)inputs + 2; break;
        case 21: x.keys = (const char *)inputs + 1; break;
        case 22: x.values = (const char *)inputs + 3; break;
        case 23: x.output = (char *)a.output + 2; break;
        case 24: x.statistics = (float *)(void *)((char *)a.x.statistics + 2); break;
        case 25: x.lengths = lengths; break;      case 26: x.lengths = (const size_t *)(const void *)((const char *)lengths + 1); break;
        case 27: t.worker_count = 2; break;       case 28: t.simd_level = -1; break;
        case 29: o.gemm.scratch_bytes = 1; break; case 30: o.scratch = at + 1; break;
        case 31: o.scratch_bytes = bytes - 1; want = MEMOPT_ERR_BUFFER; break;
        case 32: o.scratch = NULL; o.scratch_bytes = 0; want = MEMOPT_ERR_BUFFER; break;
        case 33: x.grad_output = NULL; only = 1; break;
        case 34: x.grad_queries = NULL; only = 1; break;
        case 35: x.grad_keys = NULL; only = 1; break;
        case 36: x.grad_values = (char *)a.grads + 2; only = 1; break;
        default: x.grad_keys = (char *)a.grads + 1; only = 1;
        }
        if (only == 1 && !k) continue;
        memset(at, 0x77, bytes);
        got = k ? memopt_attention_backward(&o, p) : memopt_attention_forward(&o, p);
        CHECK_AT(got == want, i * 10 + k);
        for (j = 0; j < a.rows * a.row * 4; ++j) CHECK_AT(((unsigned char *)a.grads)[j] == 0xA5, i);
        for (j = 0; j < a.rows * a.out_row * 4; ++j) CHECK_AT(((unsigned char *)a.output)[j] == 0xA5, i);
        for (j = 0; j < bytes; j += 61) CHECK_AT(at[j] == 0x77, i);
    }
    free(a.x.statistics);
    a.x.online = 0; a.x.statistics = NULL; /* nobody looks at them; nor, in backward, at the output */
    CHECK(attention_both(&a, NULL, NULL) == MEMOPT_OK);
    ops.scratch = at; ops.scratch_bytes = bytes; a.x.output = NULL;
    CHECK(scratch_of_attention(NULL, &a.x, &i) == MEMOPT_OK && i <= bytes && memopt_attention_backward(&ops, &a.x) == MEMOPT_OK);
    free(block);
    attention_free(&a);
}

/* Why: each change to what is right is told by its own line. */
static memopt_status attention_broken_gemm(void *user, const memopt_product *p, const memopt_threads *threads,
                                           void *scratch) {
    (void)user; (void)p; (void)threads; (void)scratch;
    return MEMOPT_ERR_DEVICE;
}
#define ATTENTION_SAYS(change, call, want, text) REFUSES(o.error, (x = right, o = fine, change), \
    memopt_attention_##call, MEMOPT_ERR_##want, "attention: " text)
static void attention_errors(void) {
    static float room[2048];
    memopt_threads many;
    size_t lengths[2] = { 4, 4 }, bytes = 0;
    size_t starts[4] = { 0, 3, 7, 8 }, bad[4] = { 1, 3, 4, 8 };
    memopt_attention right, x;
    memopt_ops fine, o;
    unsigned char *raw;
    char text[96];

    memset(&o, 0, sizeof o);
    memset(&right, 0, sizeof right);
    right.batch = 2;
    right.length = 4;
    right.heads = 8;
    right.kv_heads = 4;
    right.width = 2;
    right.online = 1;
    right.queries = room;
    right.keys = room + 128;
    right.values = room + 256;
    right.output = room + 384;
    right.statistics = room + 512;
    right.grad_output = room + 640;
    right.grad_queries = room + 768;
    right.grad_keys = room + 896;
    right.grad_values = room + 1024;
    right.lengths = lengths;
    ACCEPTS(o.error, x = right, scratch_of_attention(&o, &x, &bytes));
    raw = (unsigned char *)malloc(bytes + 64);
    if (!raw) { CHECK(raw != NULL); return; }
    o.scratch = raw + (0 - (uintptr_t)raw) % 64;
    o.scratch_bytes = bytes;
    fine = o;
    ACCEPTS(o.error, x = right, memopt_attention_forward(&o, &x));
    ACCEPTS(o.error, x = right, memopt_attention_backward(&o, &x));
    ATTENTION_SAYS((void)0, forward(&o, NULL), ARGUMENT, "its struct is NULL");
    ATTENTION_SAYS(x.heads = 0, forward(&o, &x), ARGUMENT, "heads is 0");
    ATTENTION_SAYS(x.kv_heads = 3, forward(&o, &x), ARGUMENT, "kv_heads 3, must divide heads 8");
    ATTENTION_SAYS(x.width = 0, forward(&o, &x), ARGUMENT, "width is 0");
    ATTENTION_SAYS(x.type = (memopt_type)3, forward(&o, &x), ARGUMENT, "type 3, no such memopt_type");
    ATTENTION_SAYS(x.causal = 2, forward(&o, &x), ARGUMENT, "causal 2, must be 0 or 1");
    ATTENTION_SAYS(x.online = -1, forward(&o, &x), ARGUMENT, "online -1, must be 0 or 1");
    ATTENTION_SAYS(x.scale = -1, forward(&o, &x), ARGUMENT, "scale -1, finite and at least 1e-30");
    ATTENTION_SAYS(x.scale = 1e-31f, forward(&o, &x), ARGUMENT, "scale 1e-31, finite and at least 1e-30");
    ATTENTION_SAYS(x.query_stride = 15, forward(&o, &x), ARGUMENT, "query_stride 15, at least heads * width 16");
    ATTENTION_SAYS(x.kv_stride = 7, backward(&o, &x), ARGUMENT, "kv_stride 7, at least kv_heads * width 8");
    ATTENTION_SAYS(x.output_stride = 1, forward(&o, &x), ARGUMENT, "output_stride 1, at least heads * width 16");
    ATTENTION_SAYS(x.width = SIZE_MAX / 4, forward(&o, &x), OVERFLOW, "heads * width does not fit size_t");
    ATTENTION_SAYS(x.batch = SIZE_MAX / 2, forward(&o, &x), OVERFLOW, "batch * length does not fit size_t");
    ATTENTION_SAYS(x.query_stride = SIZE_MAX / 8, forward(&o, &x), OVERFLOW, "queries is larger than memory can be");
    ATTENTION_SAYS(x.kv_stride = SIZE_MAX / 8, forward(&o, &x), OVERFLOW, "keys is larger than memory can be");
    ATTENTION_SAYS(x.output_stride = SIZE_MAX / 8, forward(&o, &x), OVERFLOW, "output is larger than memory can be");
    ATTENTION_SAYS((x.online = 0, x.batch = 1, x.length = (size_t)1 << (4 * sizeof(size_t) + 1), x.block = x.length), forward(&o, &x), OVERFLOW,
                   "scratch is larger than memory can be");
    memset(&many, 0, sizeof many);
    many.run_fn = test_worker_set_run; many.worker_count = 1 << 30; /* of one worker it fits */
    ATTENTION_SAYS((o.threads = &many, x.online = 0, x.batch = 1, x.length = (size_t)1 << (4 * sizeof(size_t) - 10), x.block = x.length), forward(&o, &x), OVERFLOW,
                   "scratch is larger than memory can be");
    ATTENTION_SAYS(x.queries = NULL, forward(&o, &x), ARGUMENT, "queries is NULL");
    ATTENTION_SAYS(x.keys = NULL, forward(&o, &x), ARGUMENT, "keys is NULL");
    ATTENTION_SAYS(x.values = (const char *)room + 2, forward(&o, &x), ARGUMENT, "values is misaligned");
    ATTENTION_SAYS(x.output = NULL, forward(&o, &x), ARGUMENT, "output is NULL");
    ATTENTION_SAYS(x.statistics = NULL, backward(&o, &x), ARGUMENT, "statistics is NULL");
    ATTENTION_SAYS(x.lengths = (const size_t *)(const void *)((const char *)lengths + 1), forward(&o, &x), ARGUMENT,
                   "lengths is misaligned");
    ATTENTION_SAYS(x.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
    ATTENTION_SAYS(x.grad_queries = NULL, backward(&o, &x), ARGUMENT, "grad_queries is NULL");
    ATTENTION_SAYS(x.grad_keys = NULL, backward(&o, &x), ARGUMENT, "grad_keys is NULL");
    ATTENTION_SAYS(x.grad_values = NULL, backward(&o, &x), ARGUMENT, "grad_values is NULL");
    ATTENTION_SAYS(o.gemm.multiply_fn = attention_broken_gemm, forward(&o, &x), DEVICE, "the gemm failed");
    ATTENTION_SAYS(o.gemm.multiply_fn = attention_broken_gemm, backward(&o, &x), DEVICE, "the gemm failed");
    snprintf(text, sizeof text, "attention: scratch_bytes 64, at least %llu", (unsigned long long)bytes);
    REFUSES(o.error, (x = right, o = fine, o.scratch_bytes = 64), memopt_attention_backward(&o, &x), MEMOPT_ERR_BUFFER, text);
    lengths[1] = 5;
    ATTENTION_SAYS((void)0, forward(&o, &x), ARGUMENT, "lengths 5 at sequence 1, at most length 4");
    ATTENTION_SAYS(x.window = 1, forward(&o, &x), ARGUMENT, "window needs causal");
    ATTENTION_SAYS(x.documents = 2, forward(&o, &x), ARGUMENT, "lengths is given, and documents as well");
    ATTENTION_SAYS(x.starts = starts, forward(&o, &x), ARGUMENT, "documents is 0, and starts is given");
    ATTENTION_SAYS(x.longest = 2, forward(&o, &x), ARGUMENT, "documents is 0, and longest is given");
    right.lengths = NULL;
    right.documents = 3;
    ATTENTION_SAYS((void)0, forward(&o, &x), ARGUMENT, "starts is NULL");
    ATTENTION_SAYS(x.documents = SIZE_MAX, forward(&o, &x), OVERFLOW, "documents is larger than memory can be");
    right.starts = starts;
    ACCEPTS(o.error, (x = right, o = fine), memopt_attention_forward(&o, &x));
    ATTENTION_SAYS(x.longest = 9, forward(&o, &x), ARGUMENT, "longest 9, at most batch * length 8");
    ATTENTION_SAYS(x.longest = 3, forward(&o, &x), ARGUMENT, "rows 4 at document 1, at most longest 3");
    ATTENTION_SAYS(x.starts = bad, forward(&o, &x), ARGUMENT, "starts[0] 1, must be 0");
    bad[0] = 0; bad[1] = 5;
    ATTENTION_SAYS((x.starts = bad, x.longest = 8), backward(&o, &x), ARGUMENT, "its end 4 at document 1, at least its beginning 5");
    bad[1] = 2; bad[3] = 7;
    ATTENTION_SAYS(x.starts = bad, forward(&o, &x), ARGUMENT, "starts ends at 7, must be batch * length 8");
    free(raw);
}

static void test_attention(void) {
    RUN(attention_differences);
    RUN(attention_plain_bits);
    RUN(attention_mixed_bits);
    RUN(attention_near_exact);
    RUN(attention_any_workers);
    RUN(attention_any_block);
    RUN(attention_lengths);
    RUN(attention_documents);
    RUN(attention_windows);
    RUN(attention_window_sizes);
    RUN(attention_dense);
    RUN(attention_long);
    RUN(attention_large_scores);
    RUN(attention_not_finite);
    RUN(attention_statistics);
    RUN(attention_two_rows);
    RUN(attention_sign_of_zero);
    RUN(attention_odd_bits);
    RUN(attention_reach);
    RUN(attention_minus_infinity);
    RUN(attention_own_gemm);
    RUN(attention_window_reach);
    RUN(attention_sizes);
    RUN(attention_bad);
    RUN(attention_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_attention(); return test_totals(); }
#endif
