/* test_cuda_attention.cu - attention by blocks of rows: section `cuda_attention`. */
#include "test_cuda.h"
#include "scratch.h"
#ifndef __CUDACC__
#  include "cublaslt_mock.h"
#endif

static double test_cuda_attention_at(memopt_type type, const void *data, size_t i) {
    return type == MEMOPT_TYPE_F32 ? (double)((const float *)data)[i] : type == MEMOPT_TYPE_BF16
         ? (double)memopt_from_bf16(((const uint16_t *)data)[i]) : (double)memopt_from_f16(((const uint16_t *)data)[i]);
}
static double test_cuda_attention_half(memopt_type type) { /* half of the last place, relative */
    return type == MEMOPT_TYPE_F32 ? ldexp(1, -24) : type == MEMOPT_TYPE_BF16 ? ldexp(1, -8) : ldexp(1, -11);
}
typedef struct test_cuda_attention_tensor { double *x; unsigned char *host; void *d; size_t n, bytes; memopt_type type; } test_cuda_attention_tensor;
static test_cuda_attention_tensor test_cuda_attention_make(uint64_t *seed, memopt_type type, size_t n, size_t offset) {
    test_cuda_attention_tensor t; size_t i;
    t.type = type; t.n = n; t.bytes = n * memopt_type_bytes(type);
    t.x = (double *)malloc((n + 1) * sizeof *t.x); t.host = (unsigned char *)malloc(t.bytes + 16);
    for (i = 0; i < n; ++i) {
        const float x = (float)((double)(int64_t)(test_random(seed) >> 11) * 0x1p-51 - 2);
        if (type == MEMOPT_TYPE_F32) ((float *)t.host)[i] = x;
        else ((uint16_t *)t.host)[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
        t.x[i] = test_cuda_attention_at(type, t.host, i);
    }
    t.d = test_device_at(t.bytes, offset * memopt_type_bytes(type));
    test_put(t.d, t.host, t.bytes);
    return t;
}
static void test_cuda_attention_drop(test_cuda_attention_tensor *t) { free(t->x); free(t->host); }

typedef struct test_cuda_attention_rig { memopt_cuda_gemm *gemm; void *memory; memopt_cuda_ops ops; int mark; } test_cuda_attention_rig;
static test_cuda_attention_rig test_cuda_attention_open(size_t shapes) {
    test_cuda_attention_rig r; memopt_cuda_gemm_desc desc; size_t bytes = 0;
#ifndef __CUDACC__
    cublaslt_mock_reset();
#endif
    memset(&desc, 0, sizeof desc);
    memset(&r, 0, sizeof r);
    r.mark = test_device_mark();
    desc.shapes = shapes;
    desc.workspace_bytes = test_on_card() ? MEMOPT_CUDA_GEMM_WORKSPACE : 8192; desc.d_workspace = test_device(desc.workspace_bytes);
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == 0);
    r.memory = memopt_i_system_alloc(NULL, bytes, 64);
    CHECK(memopt_cuda_gemm_create(&desc, r.memory, bytes, &r.gemm) == 0);
    r.ops.gemm = r.gemm;
    return r;
}
static void test_cuda_attention_close(test_cuda_attention_rig *r) {
    test_synchronize();
    memopt_cuda_gemm_destroy(r->gemm);
    memopt_i_system_free(NULL, r->memory, 0, 64);
    test_device_free(r->mark);
#ifndef __CUDACC__
    CHECK(cublaslt_mock_counted().handles == 0 && cublaslt_mock_counted().findings == 0);
#endif
}
static void test_cuda_attention_scratch(test_cuda_attention_rig *r, const memopt_attention *x) { /* exactly what is asked for */
    size_t bytes = 0;
    CHECK(memopt_cuda_attention_scratch(&r->ops, x, &bytes) == 0);
    r->ops.d_scratch = test_device(bytes); r->ops.scratch_bytes = bytes;
}
static memopt_cuda_status test_cuda_attention_forward(test_cuda_attention_rig *r, const memopt_attention *x) { /* with a forward's scratch */
    memopt_attention a = *x;
    a.grad_queries = NULL;
    test_cuda_attention_scratch(r, &a);
    return memopt_cuda_attention_forward(&r->ops, &a, NULL);
}

/* ---- a case: queries, keys and values in one matrix, as their gradients; or apart and dense ---- */
typedef struct test_cuda_attention_case {
    test_cuda_attention_tensor q, k, v, out, grad, dq, dk, dv;
    size_t lengths[8], kv; memopt_attention a;
} test_cuda_attention_case;
static test_cuda_attention_case test_cuda_attention_case_make(uint64_t *seed, memopt_type type, size_t batch, size_t length, size_t heads, size_t kv_heads, size_t width, int joined, int lengths, size_t offset) {
    test_cuda_attention_case c; const size_t kv = kv_heads ? kv_heads : heads, rows = batch * length, row = heads * width, key = kv * width, all = row + 2 * key; size_t i;
    memset(&c, 0, sizeof c);
    c.kv = kv;
    c.a.batch = batch; c.a.length = length; c.a.heads = heads; c.a.kv_heads = kv_heads; c.a.width = width; c.a.type = type;
    c.q = test_cuda_attention_make(seed, type, rows * (joined ? all : row), offset); c.dq = test_cuda_attention_make(seed, type, c.q.n, offset);
    c.k = test_cuda_attention_make(seed, type, joined ? 0 : rows * key, offset); c.dk = test_cuda_attention_make(seed, type, c.k.n, offset);
    c.v = test_cuda_attention_make(seed, type, c.k.n, offset); c.dv = test_cuda_attention_make(seed, type, c.k.n, offset);
    c.out = test_cuda_attention_make(seed, type, rows * row, offset); c.grad = test_cuda_attention_make(seed, type, rows * row, offset);
    c.a.queries = c.q.d; c.a.keys = joined ? memopt_i_row_at(c.q.d, type, row) : c.k.d; c.a.values = joined ? memopt_i_row_at(c.q.d, type, row + key) : c.v.d;
    c.a.grad_queries = c.dq.d; c.a.grad_keys = joined ? memopt_i_row_to(c.dq.d, type, row) : c.dk.d; c.a.grad_values = joined ? memopt_i_row_to(c.dq.d, type, row + key) : c.dv.d;
    c.a.query_stride = c.a.kv_stride = joined ? all : 0;
    c.a.output = c.out.d; c.a.grad_output = c.grad.d;
    for (i = 0; i < 8; ++i) c.lengths[i] = lengths ? i == 0 ? length : i == 1 ? length / 2 : i == 2 ? 0 : length + 5 : length;
    if (!lengths) return c;
    c.a.lengths = (const size_t *)test_device(batch * sizeof(size_t));
    test_put((void *)(uintptr_t)c.a.lengths, c.lengths, batch * sizeof(size_t));
    return c;
}
static void test_cuda_attention_case_drop(test_cuda_attention_case *c) {
    test_cuda_attention_drop(&c->q); test_cuda_attention_drop(&c->k); test_cuda_attention_drop(&c->v); test_cuda_attention_drop(&c->out); test_cuda_attention_drop(&c->grad);
    test_cuda_attention_drop(&c->dq); test_cuda_attention_drop(&c->dk); test_cuda_attention_drop(&c->dv);
}
/* where element 0 of a row lies: 0 queries, 1 keys, 2 values; operands or their gradients, then 3: of the output */
static size_t test_cuda_attention_place(const test_cuda_attention_case *c, int what, size_t b, size_t head, size_t row) {
    const memopt_attention *a = &c->a; const size_t q = a->heads * a->width, k = c->kv * a->width, r = b * a->length + row;
    const size_t base = a->query_stride ? r * a->query_stride + (what == 1 ? q : what == 2 ? q + k : 0) : r * (what == 1 || what == 2 ? k : q);
    return (what == 3 ? r * q : base) + head * a->width;
}
static const test_cuda_attention_tensor *test_cuda_attention_of(const test_cuda_attention_case *c, int what, int gradient) {
    if (what == 3) return gradient ? &c->grad : &c->out;
    if (what == 0 || c->a.query_stride) return gradient ? &c->dq : &c->q;
    return what == 1 ? gradient ? &c->dk : &c->k : gradient ? &c->dv : &c->v;
}
/* Rows that are not in use hold NaN: nothing of them may be seen. */
static void test_cuda_attention_spoil(test_cuda_attention_case *c) {
    size_t b, row, head, j; int what; const size_t size = memopt_type_bytes(c->a.type);
    for (b = 0; b < c->a.batch; ++b) for (row = c->lengths[b]; row < c->a.length; ++row) for (what = 0; what < 4; ++what)
        for (head = 0; head < (what == 1 || what == 2 ? c->kv : c->a.heads); ++head) for (j = 0; j < c->a.width; ++j)
            memset(test_cuda_attention_of(c, what, what == 3)->host + (test_cuda_attention_place(c, what, b, head, row) + j) * size, 0xFF, size);
    test_put(c->q.d, c->q.host, c->q.bytes); test_put(c->k.d, c->k.host, c->k.bytes); test_put(c->v.d, c->v.host, c->v.bytes); test_put(c->grad.d, c->grad.host, c->grad.bytes);
}
static void test_cuda_attention_poison(test_cuda_attention_tensor *t) { test_poison(t->d, t->bytes); }
#define CUDA_ATTENTION_VALUE(what, gradient, b, head, row, j) (test_cuda_attention_of(c, what, gradient)->x[test_cuda_attention_place(c, what, b, head, row) + (j)])
/* What row i attends to, of `used` rows in use. Documents are of one sequence, and `starts` the host's. */
static void test_cuda_attention_sees(const memopt_attention *a, size_t i, size_t used, size_t *low, size_t *high) {
    size_t d = 0, start = 0;
    if (a->documents) {
        while (a->starts[d + 1] <= i) ++d;
        start = a->starts[d]; used = a->starts[d + 1];
    }
    *high = i >= used ? 0 : a->causal ? i + 1 : used;
    *low = a->window && i + 1 > a->window ? i + 1 - a->window : 0;
    if (*low < start) *low = start;
}
/* Of a head: probabilities and gradients of scores, each with how far off it may be (p, s and their errors). */
static void test_cuda_attention_matrices(const test_cuda_attention_case *c, size_t b, size_t head, double *p, double *s, double *error, int backward) {
    const memopt_attention *a = &c->a; const size_t n = a->length, kh = head / (a->heads / c->kv), used = c->lengths[b] < n ? c->lengths[b] : n; size_t i, j, k;
    const double scale = a->scale > 0 ? (double)a->scale : 1 / sqrt((double)a->width), half = test_cuda_attention_half(a->type);
    for (i = 0; i < n; ++i) {
        size_t low, valid; double most = -1e300, sum = 0, mean = 0, spread = 0;
        test_cuda_attention_sees(a, i, used, &low, &valid);
        for (j = 0; j < n; ++j) p[i * n + j] = s[i * n + j] = error[i * n + j] = 0;
        for (j = low; j < valid; ++j) {
            for (k = 0; k < a->width; ++k) p[i * n + j] += scale * CUDA_ATTENTION_VALUE(0, 0, b, head, i, k) * CUDA_ATTENTION_VALUE(1, 0, b, kh, j, k);
            if (p[i * n + j] > most) most = p[i * n + j];
        }
        for (j = low; j < valid; ++j) sum += p[i * n + j] = exp(p[i * n + j] - most);
        for (j = low; j < valid; ++j) p[i * n + j] /= sum;
        for (j = low; j < valid && backward; ++j) {
            for (k = 0; k < a->width; ++k) s[i * n + j] += CUDA_ATTENTION_VALUE(3, 1, b, head, i, k) * CUDA_ATTENTION_VALUE(2, 0, b, kh, j, k);
            mean += p[i * n + j] * s[i * n + j]; spread += p[i * n + j] * fabs(s[i * n + j]);
        }
        for (k = 0; k < a->width && a->statistics && valid && backward; ++k) { /* there mean is that of a rounded output */
            double out = 0;
            for (j = low; j < valid; ++j) out += p[i * n + j] * CUDA_ATTENTION_VALUE(2, 0, b, kh, j, k);
            spread += fabs(out * CUDA_ATTENTION_VALUE(3, 1, b, head, i, k));
        }
        for (j = low; j < valid && backward; ++j) {
            error[i * n + j] = scale * p[i * n + j] * (2.2 * (half + 1e-5) * fabs(s[i * n + j] - mean) + 1.1 * (half + 1e-5) * spread) + 1e-7;
            s[i * n + j] = scale * p[i * n + j] * (s[i * n + j] - mean);
        }
    }
}
static void test_cuda_attention_near(const test_cuda_attention_tensor *t, size_t at, double wanted, double error, uint64_t seed) {
    const double got = test_cuda_attention_at(t->type, t->host, at), half = test_cuda_attention_half(t->type);
    CHECK_AT(fabs(got - wanted) <= error + 1.1 * half * fabs(wanted) + (t->type == MEMOPT_TYPE_F16 ? 1e-7 : 1e-9), seed);
}
static void test_cuda_attention_check_output(const test_cuda_attention_case *c, const double *p, size_t b, size_t head, uint64_t seed) {
    const memopt_attention *a = &c->a; const size_t n = a->length, kh = head / (a->heads / c->kv); size_t i, j, k;
    const double half = a->type == MEMOPT_TYPE_F32 ? 0 : test_cuda_attention_half(a->type);
    for (i = 0; i < n; ++i) for (k = 0; k < a->width; ++k) {
        double sum = 0, most = 0;
        for (j = 0; j < n; ++j) if (p[i * n + j] > 0) { sum += p[i * n + j] * CUDA_ATTENTION_VALUE(2, 0, b, kh, j, k); most += fabs(p[i * n + j] * CUDA_ATTENTION_VALUE(2, 0, b, kh, j, k)); }
        test_cuda_attention_near(&c->out, test_cuda_attention_place(c, 3, b, head, i) + k, sum, (1.05 * half + 1e-5) * most, seed);
    }
}
/* The gradient of queries of a head; sums of those of keys and values, and of their bounds, for all heads that share them. */
static void test_cuda_attention_check_queries(const test_cuda_attention_case *c, const double *s, const double *error, size_t b, size_t head, uint64_t seed) {
    const memopt_attention *a = &c->a; const size_t n = a->length, kh = head / (a->heads / c->kv); size_t i, j, k;
    for (i = 0; i < n; ++i) for (k = 0; k < a->width; ++k) {
        double sum = 0, bound = 0;
        for (j = 0; j < n; ++j) if (error[i * n + j] > 0) {
            const double key = CUDA_ATTENTION_VALUE(1, 0, b, kh, j, k);
            sum += s[i * n + j] * key; bound += (error[i * n + j] + (1.05 * test_cuda_attention_half(a->type) + 1e-5) * fabs(s[i * n + j])) * fabs(key);
        }
        test_cuda_attention_near(&c->dq, test_cuda_attention_place(c, 0, b, head, i) + k, sum, bound, seed);
    }
}
static void test_cuda_attention_check_keys(const test_cuda_attention_case *c, size_t b, size_t kh, double *p, double *s, double *error, uint64_t seed) {
    const memopt_attention *a = &c->a; const size_t n = a->length, w = a->width, group = a->heads / c->kv; size_t h, i, j, k;
    double *keys = (double *)calloc(4 * n * w + 1, sizeof *keys), *values = keys + n * w, *key_bound = values + n * w, *value_bound = key_bound + n * w;
    const double half = 1.05 * test_cuda_attention_half(a->type) + 1e-5;
    for (h = kh * group; h < (kh + 1) * group; ++h) {
        test_cuda_attention_matrices(c, b, h, p, s, error, 1);
        test_cuda_attention_check_queries(c, s, error, b, h, seed);
        for (i = 0; i < n; ++i) for (j = 0; j < n; ++j) if (error[i * n + j] > 0) for (k = 0; k < w; ++k) {
            const double q = CUDA_ATTENTION_VALUE(0, 0, b, h, i, k), g = CUDA_ATTENTION_VALUE(3, 1, b, h, i, k);
            keys[j * w + k] += s[i * n + j] * q; key_bound[j * w + k] += (error[i * n + j] + half * fabs(s[i * n + j])) * fabs(q);
            values[j * w + k] += p[i * n + j] * g; value_bound[j * w + k] += half * fabs(p[i * n + j] * g);
        }
    }
    for (j = 0; j < n; ++j) for (k = 0; k < w; ++k) {
        test_cuda_attention_near(test_cuda_attention_of(c, 1, 1), test_cuda_attention_place(c, 1, b, kh, j) + k, keys[j * w + k], key_bound[j * w + k], seed);
        test_cuda_attention_near(test_cuda_attention_of(c, 2, 1), test_cuda_attention_place(c, 2, b, kh, j) + k, values[j * w + k], value_bound[j * w + k], seed);
    }
    free(keys);
}
static void test_cuda_attention_check(test_cuda_attention_case *c, int backward, uint64_t seed) {
    const memopt_attention *a = &c->a; const size_t n = a->length; size_t b, h;
    double *p = (double *)malloc((3 * n * n + 1) * sizeof *p), *s = p + n * n, *error = s + n * n;
    test_get(c->out.host, c->out.d, c->out.bytes);
    if (backward) { test_get(c->dq.host, c->dq.d, c->dq.bytes); test_get(c->dk.host, c->dk.d, c->dk.bytes); test_get(c->dv.host, c->dv.d, c->dv.bytes); }
    for (b = 0; b < a->batch; ++b) {
        for (h = 0; h < a->heads && !backward; ++h) {
            test_cuda_attention_matrices(c, b, h, p, s, error, 0);
            test_cuda_attention_check_output(c, p, b, h, seed);
        }
        for (h = 0; h < c->kv && backward; ++h) test_cuda_attention_check_keys(c, b, h, p, s, error, seed);
    }
    free(p);
}
/* ---- tests ---- */
/* Way 0: as the device has it; 1: by rows of scores, as heads of 16 bits that are wider than 128; 2: by cuda_flash. */
static size_t test_cuda_attention_width(int way, size_t width) {
    simulator_compiled(way == 2 ? 80 : 0);
    return way == 1 ? width + 128 : width;
}
static void test_cuda_attention_shapes(void) {
    static const size_t shapes[][5] = { /* batch, length, heads, kv_heads, width */
        { 1, 1, 1, 0, 1 }, { 2, 5, 2, 0, 8 }, { 1, 33, 3, 0, 16 }, { 3, 40, 4, 2, 8 }, { 2, 31, 6, 1, 5 }, { 4, 17, 2, 2, 24 }, { 1, 130, 2, 1, 8 } };
    static const size_t blocks[] = { 0, 1, 7, 16, 64 };
    uint64_t seed = 1; size_t s; int type, again, n = 0;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; ++s) for (type = 0; type < 3; ++type) for (again = 0; again < 4; ++again, ++n) {
        test_cuda_attention_rig r = test_cuda_attention_open(n % 6 ? 0 : 2); /* a table that is too small works too */
        test_cuda_attention_case c = test_cuda_attention_case_make(&seed, (memopt_type)type, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], test_cuda_attention_width(n / 4 % 2, shapes[s][4]), again & 1, n % 3 == 1, (size_t)(n % 5 == 4));
        c.a.causal = again >> 1; c.a.block = blocks[n % 5]; c.a.online = n % 7 == 6;
        if (n % 4 == 2) c.a.scale = c.a.width > 128 ? 0.1f : 0.5f;
        if (shapes[s][1] > 100 && c.a.block == 1) c.a.block = 48;
        test_cuda_attention_spoil(&c);
        test_cuda_attention_poison(&c.out); test_cuda_attention_poison(&c.dq); test_cuda_attention_poison(&c.dk); test_cuda_attention_poison(&c.dv);
        CHECK_AT(test_cuda_attention_forward(&r, &c.a) == 0, n);
        test_cuda_attention_check(&c, 0, (uint64_t)n);
        test_cuda_attention_scratch(&r, &c.a);
        CHECK_AT(memopt_cuda_attention_backward(&r.ops, &c.a, NULL) == 0, n);
        test_cuda_attention_check(&c, 1, (uint64_t)n);
        test_cuda_attention_case_drop(&c);
        test_cuda_attention_close(&r);
    }
}
static void test_cuda_attention_schedules(void) { /* the same bits in every order of threads, and in every order of streams */
    uint64_t seed; int type;
    for (type = 0; type < 3; ++type) {
        unsigned char *first = NULL; size_t bytes = 0;
        TEST_SCHEDULES(8) {
            test_cuda_attention_rig r = test_cuda_attention_open(0); test_cuda_attention_case c;
            seed = 9;
            c = test_cuda_attention_case_make(&seed, (memopt_type)type, 2, 21, 2, 1, type ? 136 : 8, 0, 1, 0);
            c.a.causal = 1; c.a.block = 16; /* rows of two thread blocks, whose probabilities lie in the place of scores */
            test_cuda_attention_scratch(&r, &c.a);
            simulator_streams(test_schedule_i % 3, (uint64_t)test_schedule_i);
            CHECK(memopt_cuda_attention_forward(&r.ops, &c.a, NULL) == 0 && memopt_cuda_attention_backward(&r.ops, &c.a, NULL) == 0);
            test_get(c.out.host, c.out.d, c.out.bytes); test_get(c.dk.host, c.dk.d, c.dk.bytes);
            if (!first) { bytes = c.out.bytes; first = (unsigned char *)malloc(bytes + c.dk.bytes); memcpy(first, c.out.host, bytes); memcpy(first + bytes, c.dk.host, c.dk.bytes); }
            CHECK_AT(!memcmp(first, c.out.host, bytes) && !memcmp(first + bytes, c.dk.host, c.dk.bytes), test_schedule_i);
            test_cuda_attention_case_drop(&c);
            test_cuda_attention_close(&r);
        }
        free(first);
    }
}
/* What the declaration says of a causal block: NaN and infinities of a row reach what attends to it, and beside that only
   rows of its block: those before it by keys and values, gradients of those after it by queries and grad_output. */
static test_cuda_attention_case test_cuda_attention_planted(test_cuda_attention_rig *r, memopt_type type, size_t block, int what, uint32_t bits, size_t at) {
    uint64_t seed = 4; test_cuda_attention_case c = test_cuda_attention_case_make(&seed, type, 1, 40, 2, 1, type == MEMOPT_TYPE_F32 ? 8 : 136, 0, 0, 0); size_t j;
    const test_cuda_attention_tensor *t = test_cuda_attention_of(&c, what, what == 3); float x; const uint16_t half = (uint16_t)(type == MEMOPT_TYPE_BF16 ? bits >> 16 : bits >> 16 & 0x8000 ? 0xfc00 : bits & 0x400000 ? 0x7e00 : 0x7c00);
    memcpy(&x, &bits, sizeof x);
    c.a.causal = 1; c.a.block = block;
    for (j = 0; j < c.a.width && bits; ++j) {
        const size_t place = test_cuda_attention_place(&c, what, 0, 0, at) + j;
        if (type == MEMOPT_TYPE_F32) ((float *)t->host)[place] = x;
        else ((uint16_t *)t->host)[place] = half;
    }
    test_put(t->d, t->host, t->bytes);
    test_cuda_attention_scratch(r, &c.a);
    CHECK(memopt_cuda_attention_forward(&r->ops, &c.a, NULL) == 0 && memopt_cuda_attention_backward(&r->ops, &c.a, NULL) == 0);
    test_get(c.out.host, c.out.d, c.out.bytes); test_get(c.dq.host, c.dq.d, c.dq.bytes); test_get(c.dk.host, c.dk.d, c.dk.bytes); test_get(c.dv.host, c.dv.d, c.dv.bytes);
    return c;
}
static int test_cuda_attention_same_row(const test_cuda_attention_case *a, const test_cuda_attention_case *b, int what, int gradient, size_t row) {
    const test_cuda_attention_tensor *x = test_cuda_attention_of(a, what, gradient), *y = test_cuda_attention_of(b, what, gradient);
    const size_t size = memopt_type_bytes(x->type), at = test_cuda_attention_place(a, what, 0, 0, row);
    return !memcmp(x->host + at * size, y->host + at * size, a->a.width * size);
}
static void test_cuda_attention_not_finite(void) {
    static const uint32_t odd[] = { 0x7fc00000u, 0x7f800000u, 0xff800000u }; static const size_t blocks[] = { 1, 16, 40 }; size_t block, i, row; int what, type;
    for (type = 0; type < 3; ++type) for (block = 0; block < 3; ++block) for (what = 0; what < 4; ++what) for (i = 0; i < 3; ++i) {
        const size_t at = 21, from = at / blocks[block] * blocks[block], end = memopt_i_min(from + blocks[block], 40);
        test_cuda_attention_rig r = test_cuda_attention_open(0);
        test_cuda_attention_case clean = test_cuda_attention_planted(&r, (memopt_type)type, blocks[block], what, 0, at);
        test_cuda_attention_case c = test_cuda_attention_planted(&r, (memopt_type)type, blocks[block], what, odd[i], at);
        for (row = 0; row < 40; ++row) {
            const int keys = what == 1 || what == 2, clear = keys ? row < from : row != at;
            if (clear) CHECK_AT(test_cuda_attention_same_row(&clean, &c, 3, 0, row) && test_cuda_attention_same_row(&clean, &c, 0, 1, row), row);
            if (!keys && row >= end) CHECK_AT(test_cuda_attention_same_row(&clean, &c, 1, 1, row) && test_cuda_attention_same_row(&clean, &c, 2, 1, row), row);
        }
        CHECK_AT(what == 3 || !test_cuda_attention_same_row(&clean, &c, 3, 0, at), what);
        test_cuda_attention_case_drop(&clean); test_cuda_attention_case_drop(&c);
        test_cuda_attention_close(&r);
    }
}
/* The kernels alone, on the last three rows: for a warp, a block, and for rows that are longer than registers hold. */
static void test_cuda_attention_row(const float *x, const float *g, size_t n, size_t columns, memopt_type type, const void *p, const void *s, double scale, uint64_t at) {
    const double half = test_cuda_attention_half(type); double sum = 0, mean = 0, spread = 0, most = -1e300; size_t j;
    for (j = 0; j < n; ++j) if ((double)x[j] * scale > most) most = (double)x[j] * scale;
    for (j = 0; j < n; ++j) sum += exp((double)x[j] * scale - most);
    for (j = 0; j < columns; ++j) {
        const double wanted = j < n ? exp((double)x[j] * scale - most) / sum : 0, got = test_cuda_attention_at(type, p, j);
        CHECK_AT(fabs(got - wanted) <= (half + 1e-5) * wanted + (type == MEMOPT_TYPE_F16 ? 6e-8 : 1e-30), at);
        mean += got * (double)g[j]; spread += got * fabs((double)g[j]);
    }
    for (j = 0; j < columns; ++j) {
        const double q = test_cuda_attention_at(type, p, j), wanted = j < n ? scale * q * ((double)g[j] - mean) : 0;
        CHECK_AT(fabs(test_cuda_attention_at(type, s, j) - wanted) <= 1.05 * half * fabs(wanted) + 1e-5 * scale * q * (fabs((double)g[j]) + spread) + (type == MEMOPT_TYPE_F16 ? 6e-8 : 1e-30), at);
    }
}
static void test_cuda_attention_long(void) {
    static const size_t lengths[] = { 3, 33, 1024, 1025, 8192, 8193 };
    uint64_t seed = 3; size_t s, i, j; int type;
    for (s = 0; s < sizeof lengths / sizeof lengths[0]; ++s) for (type = 0; type < 3; ++type) {
        const size_t n = lengths[s], first = n - 3; const memopt_type of = (memopt_type)type;
        memopt_attention x; memopt_i_cuda::attention_task t; memopt_cuda_ops ops; memopt_carver c; size_t bytes = 0; float *scores, *grad_scores; unsigned char *p, *g;
        const int mark = test_device_mark();
        memset(&x, 0, sizeof x); memset(&ops, 0, sizeof ops);
        x.batch = x.heads = 1; x.length = n; x.width = 132; x.scale = 0.5f; x.block = 3; x.type = of; x.causal = s % 2 == 0; x.grad_queries = &x;
        CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0);
        ops.d_scratch = test_device(bytes); ops.scratch_bytes = bytes;
        CHECK(memopt_i_cuda::attention_resolve(&x, 1, &t) == 0 && t.bytes == bytes);
        c = memopt_carver_begin(ops.d_scratch); memopt_i_cuda::attention_lay_out(&t, &c);
        memopt_i_cuda::attention_worker w = memopt_i_cuda::attention_begin(&t, 0, 0);
        w.first = first; w.rows = 3; w.columns = n;
        scores = (float *)malloc(6 * t.stride * 4); grad_scores = scores + 3 * t.stride; p = (unsigned char *)malloc(12 * t.stride); g = (unsigned char *)malloc(12 * t.stride);
        TEST_SCHEDULES(n > 2000 ? 2 : 8) {
            for (i = 0; i < 6 * t.stride; ++i) scores[i] = i % t.stride < n ? (float)((double)(test_random(&seed) >> 11) * 0x1p-50 - 4) : memopt_i_bits_float(0x7fc00000u);
            test_put(t.scores, scores, 12 * t.stride); test_put(t.grad_scores, grad_scores, 12 * t.stride);
            CHECK(memopt_i_cuda::attention_soft<0>(&w) == 0 && memopt_i_cuda::attention_soft<1>(&w) == 0);
            for (i = 0; i < 3; ++i) {
                const size_t valid = x.causal ? first + i + 1 : n, size = memopt_type_bytes(of);
                test_get(p, (char *)t.p + i * t.pitch * size, n * size); test_get(g, (char *)t.g + i * t.pitch * size, n * size);
                for (j = valid; j < n; ++j) grad_scores[i * t.stride + j] = 0;
                test_cuda_attention_row(scores + i * t.stride, grad_scores + i * t.stride, valid, n, of, p, g, 0.5, s);
            }
        }
        free(scores); free(p); free(g);
        test_device_free(mark);
    }
}
static void test_cuda_attention_bad(void) {
    uint64_t seed = 4; size_t i, bytes = 0; memopt_attention x; memopt_cuda_ops ops, none;
    test_cuda_attention_rig r = test_cuda_attention_open(0);
    test_cuda_attention_case c = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_F32, 2, 8, 2, 2, 8, 0, 1, 0);
    memset(&none, 0, sizeof none);
    test_cuda_attention_scratch(&r, &c.a);
#define BAD(call, change, status) do { x = c.a; ops = r.ops; change; CHECK(memopt_cuda_attention_##call(&ops, &x, NULL) == (status)); } while (0)
#define BOTH(change, status) do { BAD(forward, change, status); BAD(backward, change, status); } while (0)
    CHECK(memopt_cuda_attention_forward(NULL, &c.a, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_attention_backward(&none, &c.a, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_attention_forward(&r.ops, NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_cuda_attention_backward(&r.ops, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_attention_scratch(NULL, &c.a, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_attention_scratch(NULL, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    BOTH(x.queries = NULL, MEMOPT_CUDA_ERR_NULL);
    BOTH(x.keys = NULL, MEMOPT_CUDA_ERR_NULL);
    BOTH(x.values = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(forward, x.output = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(backward, x.grad_output = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(backward, x.grad_queries = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(backward, x.grad_keys = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(backward, x.grad_values = NULL, MEMOPT_CUDA_ERR_NULL);
    BOTH(x.keys = (const char *)x.keys + 1, MEMOPT_CUDA_ERR_ALIGNMENT);
    BOTH(x.lengths = (const size_t *)(const void *)((const char *)x.lengths + 4), MEMOPT_CUDA_ERR_ALIGNMENT);
    BOTH(ops.d_scratch = (char *)ops.d_scratch + 16, MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(backward, ops.scratch_bytes -= 1, MEMOPT_ERR_BUFFER);
    BOTH(ops.scratch_bytes = 16, MEMOPT_ERR_BUFFER);
    BOTH(x.kv_heads = 3, MEMOPT_ERR_ARGUMENT);
    BOTH(x.heads = 0, MEMOPT_ERR_ARGUMENT);
    BOTH(x.width = 0, MEMOPT_ERR_ARGUMENT);
    BOTH(x.causal = 2, MEMOPT_ERR_ARGUMENT);
    BOTH(x.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    BOTH(x.scale = -1, MEMOPT_ERR_ARGUMENT);
    BOTH(x.query_stride = 15, MEMOPT_ERR_ARGUMENT);
    BOTH(x.length = SIZE_MAX / 2, MEMOPT_ERR_OVERFLOW);
    BOTH((x.length = (size_t)1 << 31, x.batch = 1), MEMOPT_ERR_OVERFLOW);
    BOTH(x.batch = 0, 0);
    BOTH((x.length = 0, x.queries = NULL), 0);
#ifndef __CUDACC__
    simulator_pending_error(cudaErrorIllegalAddress);
    BOTH((void)x, MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress);
    simulator_pending_error(0);
    for (i = 1; i <= 3; ++i) { r.gemm->used = 0; cublaslt_mock_no_algorithm(i); /* there are three shapes */ BAD(backward, (void)x, MEMOPT_CUDA_ERR_NO_ALGORITHM); }
    r.gemm->used = 0;
    cublaslt_mock_no_algorithm(SIZE_MAX);
    BAD(forward, (void)x, MEMOPT_CUDA_ERR_NO_ALGORITHM);
#endif
    test_get(c.out.host, c.out.d, c.out.bytes); test_get(c.dq.host, c.dq.d, c.dq.bytes); test_get(c.dk.host, c.dk.d, c.dk.bytes);
    for (i = 0; i < c.out.n; ++i) CHECK_AT(test_cuda_attention_at(c.a.type, c.out.host, i) == c.out.x[i] && test_cuda_attention_at(c.a.type, c.dq.host, i) == c.dq.x[i] && test_cuda_attention_at(c.a.type, c.dk.host, i) == c.dk.x[i], i);
#undef BAD
#undef BOTH
    test_cuda_attention_case_drop(&c);
    test_cuda_attention_close(&r);
}
static void test_cuda_attention_faults(void) { /* the k-th call into cuBLASLt, the k-th launch, the k-th call into CUDA fails */
#ifndef __CUDACC__
    size_t k; int how; uint64_t seed = 5;
    for (how = 0; how < 3; ++how)
        for (k = 1; k < 60; ++k) {
            test_cuda_attention_rig r = test_cuda_attention_open(0); memopt_cuda_status s;
            test_cuda_attention_case c = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_F16, 1, 8, 2, 1, 136, 0, 1, 0);
            c.a.block = 4;
            test_cuda_attention_scratch(&r, &c.a);
            if (how == 2) simulator_fail_call(k); else if (how) simulator_fail_launch(k); else cublaslt_mock_fail(k, CUBLAS_STATUS_EXECUTION_FAILED);
            s = memopt_cuda_attention_forward(&r.ops, &c.a, NULL);
            if (!s) s = memopt_cuda_attention_backward(&r.ops, &c.a, NULL);
            if (how == 2) simulator_fail_call(0); else if (how) simulator_fail_launch(0); else cublaslt_mock_fail(0, 0);
            test_cuda_attention_case_drop(&c);
            test_cuda_attention_close(&r);
            if (!s) break;
            CHECK_AT(how == 2 || s == (how ? MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources : MEMOPT_CUDA_BASE_BLAS + (int)CUBLAS_STATUS_EXECUTION_FAILED), k);
            CHECK(cudaPeekAtLastError() == cudaSuccess);
        }
    CHECK(k > 6 && k < 60);
#endif
}
static void test_cuda_attention_bytes(void) { /* what the essay says */
    memopt_attention x; size_t bytes = 0; float statistic;
    memset(&x, 0, sizeof x);
    x.batch = 8; x.length = 4096; x.heads = 32; x.width = 128; x.type = MEMOPT_TYPE_BF16;
    CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == 0);
    x.grad_queries = &x; /* of a backward */
    CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == (size_t)8 * 32 * 4096 * 8);
    x.online = 1; x.statistics = &statistic;
    CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == (size_t)8 * 32 * 4096 * 4);
    if (test_on_card()) return;
    x.online = 0; x.statistics = NULL; x.grad_queries = NULL;
    simulator_devices(0); /* planned where there is no device */
    CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == 0);
    simulator_devices(2);
    x.width = 136; /* rows of scores */
    CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == (size_t)32 * 256 * 4096 * 4);
    x.grad_queries = &x; /* of a backward */
    CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == (size_t)2 * 32 * 256 * 4096 * 4 + (size_t)2 * 4096 * 32 * 136 * 4);
    x.type = MEMOPT_TYPE_F32;
    CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == (size_t)2 * 32 * 256 * 4096 * 4);
}

/* ---- by cuda_flash and by cuda_groups: the same tests ---- */
static int test_cuda_attention_way; /* what kernels are compiled for: 80, or for the device itself, 0 */
static int test_cuda_attention_groups(void) { /* does cuda_groups run? */
    memopt_attention x; memopt_i_cuda::attention_task t;
    memset(&x, 0, sizeof x);
    x.batch = x.length = x.heads = 1; x.width = 64; x.type = MEMOPT_TYPE_BF16;
    CHECK(memopt_i_cuda::attention_resolve(&x, 0, &t) == 0);
    return t.groups;
}
static void test_cuda_attention_flash_one(uint64_t *seed, const size_t *shape, memopt_type type, int causal, int n) {
    test_cuda_attention_rig r = test_cuda_attention_open(0); const size_t rows = shape[0] * shape[2] * shape[1]; size_t launches; float *kept;
    test_cuda_attention_case c = test_cuda_attention_case_make(seed, type, shape[0], shape[1], shape[2], shape[3], shape[4], n & 1, n % 3 == 1, (size_t)(n % 4 == 3));
    c.a.causal = causal;
    if (n % 5 == 4) c.a.scale = 0.25f;
    if (n % 2) { c.a.online = 1; c.a.statistics = (float *)test_device(rows * sizeof(float)); }
    test_cuda_attention_spoil(&c);
    test_cuda_attention_poison(&c.out); test_cuda_attention_poison(&c.dq); test_cuda_attention_poison(&c.dk); test_cuda_attention_poison(&c.dv);
    simulator_compiled(test_cuda_attention_way);
    launches = simulator_launches();
    CHECK_AT(test_cuda_attention_forward(&r, &c.a) == 0 && (test_on_card() || simulator_launches() - launches == 1), n);
    test_cuda_attention_check(&c, 0, (uint64_t)n);
    test_cuda_attention_scratch(&r, &c.a);
    CHECK_AT(memopt_cuda_attention_backward(&r.ops, &c.a, NULL) == 0 && (test_on_card() || simulator_launches() - launches == 4), n);
    test_cuda_attention_check(&c, 1, (uint64_t)n);
    CHECK_AT(simulator_bank_conflicts() <= 1, n);
    if (n % 2 && n % 3 != 1) { /* beside the CPU's: statistics, and output within a rounding of each probability */
        memopt_attention x = c.a; memopt_ops ops; size_t bytes = 0, i; const size_t row = shape[2] * shape[4];
        uint16_t *out = (uint16_t *)malloc(rows * shape[4] * 2); float *wanted = (float *)malloc(rows * sizeof *wanted);
        x.queries = c.q.host; x.keys = c.a.query_stride ? memopt_i_row_at(c.q.host, type, row) : c.k.host;
        x.values = c.a.query_stride ? memopt_i_row_at(c.q.host, type, row + c.kv * shape[4]) : c.v.host;
        x.output = out; x.statistics = wanted; x.output_stride = 0;
        memset(&ops, 0, sizeof ops);
        CHECK(scratch_of_attention(&ops, &x, &bytes) == 0);
        ops.scratch = memopt_i_system_alloc(NULL, bytes, 64); ops.scratch_bytes = bytes;
        CHECK_AT(memopt_attention_forward(&ops, &x) == 0, n);
        memopt_i_system_free(NULL, ops.scratch, bytes, 64);
        kept = (float *)malloc(rows * sizeof *kept);
        test_get(kept, c.a.statistics, rows * sizeof *kept);
        for (i = 0; i < rows; ++i) CHECK_AT(fabs((double)kept[i] - (double)wanted[i]) <= 1e-5 * (1 + fabs((double)wanted[i])), i);
        for (i = 0; i < rows * shape[4]; ++i)
            CHECK_AT(fabs(test_cuda_attention_at(type, out, i) - test_cuda_attention_at(type, c.out.host, i)) <= 8 * test_cuda_attention_half(type), i);
        free(kept); free(wanted); free(out);
    }
    test_cuda_attention_case_drop(&c);
    test_cuda_attention_close(&r);
}
static void test_cuda_attention_flash(void) {
    static const size_t shapes[][5] = { /* batch, length, heads, kv_heads, width */
        { 1, 1, 1, 0, 64 }, { 2, 64, 1, 0, 64 }, { 1, 65, 2, 1, 128 }, { 1, 129, 1, 0, 128 }, { 3, 70, 4, 2, 40 }, { 1, 193, 2, 1, 64 }, { 2, 33, 2, 2, 100 }, { 1, 100, 1, 1, 67 } };
    uint64_t seed = 11; size_t s; int n = 0;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; ++s) {
        test_cuda_attention_flash_one(&seed, shapes[s], MEMOPT_TYPE_BF16, 1, n++);
        test_cuda_attention_flash_one(&seed, shapes[s], MEMOPT_TYPE_BF16, 0, n++);
        test_cuda_attention_flash_one(&seed, shapes[s], MEMOPT_TYPE_F16, (int)(s & 1), n++);
    }
}
static void test_cuda_attention_flash_schedules(void) { /* the same bits in every order of threads, wherever copies arrive */
    unsigned char *first = NULL; uint64_t seed;
    simulator_compiled(test_cuda_attention_way);
    TEST_SCHEDULES(10) {
        test_cuda_attention_rig r = test_cuda_attention_open(0); test_cuda_attention_case c; unsigned char *all;
        seed = 12;
        c = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_BF16, 1, 140, 2, 1, 64, 0, 0, 0);
        c.a.causal = 1;
        test_cuda_attention_scratch(&r, &c.a);
        simulator_streams(test_schedule_i % 3, (uint64_t)test_schedule_i);
        CHECK(memopt_cuda_attention_forward(&r.ops, &c.a, NULL) == 0 && memopt_cuda_attention_backward(&r.ops, &c.a, NULL) == 0);
        all = (unsigned char *)malloc(c.out.bytes + c.dq.bytes + c.dk.bytes + c.dv.bytes);
        test_get(all, c.out.d, c.out.bytes); test_get(all + c.out.bytes, c.dq.d, c.dq.bytes);
        test_get(all + c.out.bytes + c.dq.bytes, c.dk.d, c.dk.bytes); test_get(all + c.out.bytes + c.dq.bytes + c.dk.bytes, c.dv.d, c.dv.bytes);
        if (!first) first = all;
        else { CHECK_AT(!memcmp(first, all, c.out.bytes + c.dq.bytes + c.dk.bytes + c.dv.bytes), test_schedule_i); free(all); }
        test_cuda_attention_case_drop(&c);
        test_cuda_attention_close(&r);
    }
    free(first);
}
/* What a row does not see takes no part, to the bit: NaN and infinities in keys, values, queries and grad_output. */
static test_cuda_attention_case test_cuda_attention_flash_planted(test_cuda_attention_rig *r, memopt_type type, size_t width, int what, uint16_t code, size_t at, size_t window) {
    uint64_t seed = 13; size_t j; test_cuda_attention_case c = test_cuda_attention_case_make(&seed, type, 1, 150, 2, 1, width, 0, 0, 0);
    const test_cuda_attention_tensor *t = test_cuda_attention_of(&c, what, what == 3);
    c.a.causal = 1; c.a.window = window;
    for (j = 0; j < width && code; j += 3) ((uint16_t *)t->host)[test_cuda_attention_place(&c, what, 0, 0, at) + j] = code;
    test_put(t->d, t->host, t->bytes);
    test_cuda_attention_scratch(r, &c.a);
    CHECK(memopt_cuda_attention_forward(&r->ops, &c.a, NULL) == 0 && memopt_cuda_attention_backward(&r->ops, &c.a, NULL) == 0);
    test_get(c.out.host, c.out.d, c.out.bytes); test_get(c.dq.host, c.dq.d, c.dq.bytes); test_get(c.dk.host, c.dk.d, c.dk.bytes); test_get(c.dv.host, c.dv.d, c.dv.bytes);
    return c;
}
/* Of values it reaches the output, and of grad_output the gradient of values: its own columns, of all rows that see it,
   are NaN or infinite as it is, since probabilities are above 0. All other columns keep their bits. */
static void test_cuda_attention_flash_columns(const test_cuda_attention_case *clean, const test_cuda_attention_case *c, int what, uint16_t code, size_t at) {
    const int of = what == 2 ? 3 : 2, gradient = what == 3; const size_t window = c->a.window ? c->a.window : 150, end = what == 2 ? memopt_i_min(at + window, 150) : at + 1; size_t row, j;
    const test_cuda_attention_tensor *t = test_cuda_attention_of(c, of, gradient), *before = test_cuda_attention_of(clean, of, gradient);
    const double odd = test_cuda_attention_at(t->type, &code, 0);
    for (row = what == 2 ? at : memopt_i_less(end, window); row < end; ++row) for (j = 0; j < c->a.width; ++j) {
        const size_t place = test_cuda_attention_place(c, of, 0, 0, row) + j; const double got = test_cuda_attention_at(t->type, t->host, place);
        if (j % 3) CHECK_AT(((const uint16_t *)t->host)[place] == ((const uint16_t *)before->host)[place], row * c->a.width + j);
        else CHECK_AT(odd != odd ? got != got : got == odd, row * c->a.width + j);
    }
}
static void test_cuda_attention_flash_odd(size_t window) {
    static const uint16_t odd[][3] = { { 0x7fc0, 0x7f80, 0xff80 }, { 0x7e00, 0x7c00, 0xfc00 } };
    size_t row; int what, type, i; const size_t behind = window ? window : 150;
    simulator_compiled(test_cuda_attention_way);
    for (type = 0; type < 2; ++type) for (i = 0; i < 3; ++i) {
        const size_t at = i ? 70 : 127, width = i == 1 && !type ? 128 : 64; const memopt_type of = type ? MEMOPT_TYPE_F16 : MEMOPT_TYPE_BF16;
        test_cuda_attention_rig r = test_cuda_attention_open(0);
        test_cuda_attention_case clean = test_cuda_attention_flash_planted(&r, of, width, 0, 0, at, window);
        for (what = 0; what < 4; ++what) {
            test_cuda_attention_case c; size_t told = 0;
            simulator_schedule((int)i + 1);
            c = test_cuda_attention_flash_planted(&r, of, width, what, odd[type][i], at, window);
            for (row = 0; row < 150; ++row) {
                const int keys = what == 1 || what == 2;
                if (keys ? row < at || row >= at + behind : row != at) CHECK_AT(test_cuda_attention_same_row(&clean, &c, 3, 0, row) && test_cuda_attention_same_row(&clean, &c, 0, 1, row), row);
                if (!keys && (row > at || row + behind <= at)) CHECK_AT(test_cuda_attention_same_row(&clean, &c, 1, 1, row) && test_cuda_attention_same_row(&clean, &c, 2, 1, row), row);
                told += (what == 3 || !test_cuda_attention_same_row(&clean, &c, 3, 0, row)) && !test_cuda_attention_same_row(&clean, &c, 0, 1, row);
            }
            CHECK_AT(told >= 1, what * 3 + i); /* and what does see it is told */
            if (what >= 2) test_cuda_attention_flash_columns(&clean, &c, what, odd[type][i], at);
            test_cuda_attention_case_drop(&c);
        }
        test_cuda_attention_case_drop(&clean);
        test_cuda_attention_close(&r);
    }
}
static void test_cuda_attention_flash_not_finite(void) { test_cuda_attention_flash_odd(0); }
static void test_cuda_attention_flash_not_finite_window(void) { /* of more than a tile, of few rows */
    test_cuda_attention_flash_odd(test_cuda_attention_way ? 3 : 45);
}
/* The first keys have scores of -infinity, in whole tiles: as if they were not there. */
static void test_cuda_attention_flash_impossible(void) {
    uint64_t seed = 15; size_t width, i;
    simulator_compiled(test_cuda_attention_way);
    for (width = 64; width <= 128; width += 64) {
        test_cuda_attention_rig r = test_cuda_attention_open(0);
        test_cuda_attention_case c = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_BF16, 1, 150, 1, 0, width, 0, 0, 0);
        for (i = 0; i < 150; ++i) { ((uint16_t *)c.q.host)[i * width] = 0xbf80; c.q.x[i * width] = -1; }
        for (i = 0; i < 128; ++i) { ((uint16_t *)c.k.host)[i * width] = 0x7f80; c.k.x[i * width] = HUGE_VAL; }
        test_put(c.q.d, c.q.host, c.q.bytes); test_put(c.k.d, c.k.host, c.k.bytes);
        test_cuda_attention_scratch(&r, &c.a);
        CHECK(memopt_cuda_attention_forward(&r.ops, &c.a, NULL) == 0);
        test_cuda_attention_check(&c, 0, width);
        test_cuda_attention_case_drop(&c);
        test_cuda_attention_close(&r);
    }
}
/* ---- documents and windows ---- */
enum { CUDA_ATTENTION_ROWS = 290, CUDA_ATTENTION_DOCUMENTS = 8 };
/* None, of a row, of more than a tile, that end with one. */
static const size_t test_cuda_attention_starts[] = { 0, 0, 1, 1, 131, 259, 289, 290, 290 };
typedef struct test_cuda_attention_results { unsigned char *x; size_t bytes; } test_cuda_attention_results;
static test_cuda_attention_results test_cuda_attention_results_of(const test_cuda_attention_case *c, int backward) {
    const test_cuda_attention_tensor *of[] = { &c->out, &c->dq, &c->dk, &c->dv };
    const size_t statistics = c->a.statistics ? c->a.batch * c->a.length * c->a.heads * sizeof(float) : 0;
    test_cuda_attention_results r = { NULL, 0 };
    r.x = (unsigned char *)malloc(c->out.bytes + c->dq.bytes + c->dk.bytes + c->dv.bytes + statistics);
    for (int i = 0; i < (backward ? 4 : 1); ++i) {
        test_get(r.x + r.bytes, of[i]->d, of[i]->bytes);
        r.bytes += of[i]->bytes;
    }
    if (statistics) test_get(r.x + r.bytes, c->a.statistics, statistics);
    r.bytes += statistics;
    return r;
}
/* A document as a sequence of its own, in its place. */
static memopt_attention test_cuda_attention_alone(const memopt_attention *a, size_t start, size_t length) {
    memopt_attention x = *a; const size_t kv = a->kv_heads ? a->kv_heads : a->heads;
    const size_t q = start * (a->query_stride ? a->query_stride : a->heads * a->width), out = start * a->heads * a->width;
    const size_t k = start * (a->kv_stride ? a->kv_stride : kv * a->width);
    x.documents = x.longest = 0; x.starts = NULL; x.batch = 1; x.length = length;
    x.queries = memopt_i_row_at(a->queries, a->type, q); x.grad_queries = memopt_i_row_to(a->grad_queries, a->type, q);
    x.keys = memopt_i_row_at(a->keys, a->type, k); x.grad_keys = memopt_i_row_to(a->grad_keys, a->type, k);
    x.values = memopt_i_row_at(a->values, a->type, k); x.grad_values = memopt_i_row_to(a->grad_values, a->type, k);
    x.output = memopt_i_row_to(a->output, a->type, out);
    x.grad_output = memopt_i_row_at(a->grad_output, a->type, out);
    if (a->statistics) x.statistics = a->statistics + start * a->heads;
    return x;
}
static void test_cuda_attention_both(test_cuda_attention_rig *r, const memopt_attention *a, int n) {
    CHECK_AT(test_cuda_attention_forward(r, a) == 0, n);
    test_cuda_attention_scratch(r, a);
    CHECK_AT(memopt_cuda_attention_backward(&r->ops, a, NULL) == 0, n);
}
/* Beside the definition; and the bits of each document by itself. */
static void test_cuda_attention_documents_one(uint64_t *seed, memopt_type type, size_t width, size_t window, int n) {
    const size_t rows = CUDA_ATTENTION_ROWS, *starts = test_cuda_attention_starts; size_t d;
    test_cuda_attention_rig r = test_cuda_attention_open(0);
    test_cuda_attention_case c =
        test_cuda_attention_case_make(seed, type, 1, rows, 2, n % 3 ? 1 : 2, width, n & 1, 0, (size_t)(n % 5 == 4));
    test_cuda_attention_tensor *const results[] = { &c.out, &c.dq, &c.dk, &c.dv };
    c.a.documents = CUDA_ATTENTION_DOCUMENTS; c.a.starts = starts; c.a.longest = n % 4 ? 0 : 130;
    c.a.causal = window || n % 2 == 0; c.a.window = window; c.a.block = 48;
    if (n % 4 < 2) { c.a.online = 1; c.a.statistics = (float *)test_device(rows * 2 * sizeof(float)); }
    if (n % 4 < 2) test_poison(c.a.statistics, rows * 2 * sizeof(float));
    for (int i = 0; i < 4; ++i) test_cuda_attention_poison(results[i]);
    test_cuda_attention_both(&r, &c.a, n);
    test_cuda_attention_check(&c, 0, (uint64_t)n);
    test_cuda_attention_check(&c, 1, (uint64_t)n);
    test_cuda_attention_results whole = test_cuda_attention_results_of(&c, 1);
    for (int i = 0; i < 4; ++i) test_put(results[i]->d, results[i]->host, results[i]->bytes); /* what lies between stays */
    for (d = 0; d < CUDA_ATTENTION_DOCUMENTS; ++d) {
        const memopt_attention x = test_cuda_attention_alone(&c.a, starts[d], starts[d + 1] - starts[d]);
        test_cuda_attention_both(&r, &x, n);
    }
    test_cuda_attention_results alone = test_cuda_attention_results_of(&c, 1);
    if (!test_on_card() || type != MEMOPT_TYPE_F32) CHECK_AT(!memcmp(whole.x, alone.x, whole.bytes), n);
    free(whole.x); free(alone.x);
    test_cuda_attention_case_drop(&c);
    test_cuda_attention_close(&r);
}
static void test_cuda_attention_documents(void) {
    static const size_t windows[] = { 0, 1, 33, 64, 100, 129 }, widths[] = { 16, 64, 100 };
    uint64_t seed = 21; int n = 0;
    for (int way = 0; way < 3; ++way)
        for (size_t i = 0; i < 6; ++i, ++n) {
            test_cuda_attention_documents_one(&seed, MEMOPT_TYPE_BF16, test_cuda_attention_width(way, widths[i % 3]), windows[i], n);
            if (way == 1) test_cuda_attention_documents_one(&seed, MEMOPT_TYPE_F32, widths[i % 3], windows[i], n + 1);
            if (i % 3 == 2) test_cuda_attention_documents_one(&seed, MEMOPT_TYPE_F16, test_cuda_attention_width(way, 64), windows[i], n);
        }
    simulator_compiled(0);
}
/* Of two sequences, in schedules that are hostile: documents do not end where these do; many of them. */
static void test_cuda_attention_many(void) {
    enum { DOCUMENTS = 500, LENGTH = 128 };
    static size_t starts[DOCUMENTS + 1]; uint64_t seed;
    for (int i = 0; i <= DOCUMENTS; ++i) starts[i] = (size_t)i * 2 * LENGTH / DOCUMENTS;
    for (int way = 0; way <= 80; way += 80) TEST_SCHEDULES(2) {
        test_cuda_attention_rig r = test_cuda_attention_open(0); size_t d;
        seed = 22;
        test_cuda_attention_case c = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_BF16, 2, LENGTH, 1, 1, 64, 0, 0, 0);
        simulator_compiled(way);
        c.a.documents = DOCUMENTS; c.a.starts = starts; c.a.causal = 1; c.a.longest = 1;
        simulator_streams(test_schedule_i % 3, (uint64_t)test_schedule_i);
        CHECK(test_cuda_attention_forward(&r, &c.a) == 0);
        test_get(c.out.host, c.out.d, c.out.bytes); /* a row by itself has its value */
        CHECK(!memcmp(c.out.host, c.v.host, c.out.bytes));
        starts[1] = 110; starts[2] = 215;
        for (d = 3; d <= DOCUMENTS; ++d) starts[d] = 2 * LENGTH;
        c.a.longest = 0;
        test_cuda_attention_both(&r, &c.a, test_schedule_i);
        test_cuda_attention_results whole = test_cuda_attention_results_of(&c, 1);
        for (d = 0; d < 3; ++d) {
            const memopt_attention x = test_cuda_attention_alone(&c.a, starts[d], starts[d + 1] - starts[d]);
            test_cuda_attention_both(&r, &x, test_schedule_i);
        }
        test_cuda_attention_results alone = test_cuda_attention_results_of(&c, 1);
        CHECK_AT(!memcmp(whole.x, alone.x, whole.bytes), test_schedule_i);
        for (d = 0; d <= DOCUMENTS; ++d) starts[d] = d * 2 * LENGTH / DOCUMENTS;
        free(whole.x); free(alone.x);
        test_cuda_attention_case_drop(&c);
        test_cuda_attention_close(&r);
    }
    simulator_compiled(0);
}
/* Sequences, of which some rows are not in use. One that is as wide as a sequence is none, to the bit. */
static void test_cuda_attention_windows(void) {
    static const size_t windows[] = { 1, 31, 34, 64, 129, 191, 193, 400 };
    uint64_t seed = 23; int n = 0;
    for (int way = 0; way < 3; ++way) for (size_t i = 0; i < 8; ++i, ++n) {
        const memopt_type type = way != 1 ? (memopt_type)(1 + i % 2) : (memopt_type)(i % 3);
        const size_t length = windows[i] == 191 ? 257 : 193; /* there a tile is seen but for one column of one row */
        const size_t widths[] = { 5, 64, 128 }; test_cuda_attention_rig r = test_cuda_attention_open(0);
        test_cuda_attention_case c =
            test_cuda_attention_case_make(&seed, type, 2, length, 2, 1 + i % 2, test_cuda_attention_width(way, widths[i % 3]),
                                          n & 1, n % 4 == 1, n % 5 == 4);
        c.a.causal = 1; c.a.window = windows[i]; c.a.block = i % 4 ? 40 : 0;
        if (i % 2) { c.a.online = 1; c.a.statistics = (float *)test_device(2 * length * 2 * sizeof(float)); }
        if (i % 2) test_poison(c.a.statistics, 2 * length * 2 * sizeof(float));
        test_cuda_attention_spoil(&c);
        test_cuda_attention_poison(&c.out); test_cuda_attention_poison(&c.dq);
        test_cuda_attention_poison(&c.dk); test_cuda_attention_poison(&c.dv);
        test_cuda_attention_both(&r, &c.a, n);
        test_cuda_attention_check(&c, 0, (uint64_t)n);
        test_cuda_attention_check(&c, 1, (uint64_t)n);
        if (windows[i] >= length) {
            test_cuda_attention_results with = test_cuda_attention_results_of(&c, 1);
            c.a.window = 0;
            test_cuda_attention_both(&r, &c.a, n);
            test_cuda_attention_results without = test_cuda_attention_results_of(&c, 1);
            CHECK_AT(!memcmp(with.x, without.x, with.bytes), n);
            free(with.x); free(without.x);
        }
        test_cuda_attention_case_drop(&c);
        test_cuda_attention_close(&r);
    }
    simulator_compiled(0);
}
/* NaN and infinities in a document reach no other one, on any way. */
static void test_cuda_attention_documents_apart(void) {
    static const uint16_t odd[] = { 0x7fc0, 0x7f80, 0xff80 }; static const size_t starts[] = { 0, 20, 61, 150 };
    for (int way = 0; way < 3; ++way) for (int what = 0; what < 4; ++what) {
        const int i = (what + way) % 3; test_cuda_attention_case c[2]; test_cuda_attention_rig r = test_cuda_attention_open(0);
        const size_t width = test_cuda_attention_width(way, 64);
        for (int k = 0; k < 2; ++k) {
            uint64_t seed = 24;
            c[k] = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_BF16, 1, 150, 2, 1, width, 0, 0, 0);
            const test_cuda_attention_tensor *t = test_cuda_attention_of(&c[k], what, what == 3);
            for (size_t j = 0; j < width && k; ++j)
                ((uint16_t *)t->host)[test_cuda_attention_place(&c[k], what, 0, 0, 20 + (size_t)i * 20) + j] = odd[i];
            test_put(t->d, t->host, t->bytes);
            c[k].a.documents = 3; c[k].a.starts = starts; c[k].a.causal = i % 2; c[k].a.block = 16;
            test_cuda_attention_both(&r, &c[k].a, what);
            test_get(c[k].out.host, c[k].out.d, c[k].out.bytes); test_get(c[k].dq.host, c[k].dq.d, c[k].dq.bytes);
            test_get(c[k].dk.host, c[k].dk.d, c[k].dk.bytes); test_get(c[k].dv.host, c[k].dv.d, c[k].dv.bytes);
        }
        for (size_t row = 0; row < 150; ++row) for (int of = 0; of < 4; ++of)
            if (row < 20 || row >= 61) CHECK_AT(test_cuda_attention_same_row(&c[0], &c[1], of, of < 3, row), row);
        for (int k = 0; k < 2; ++k) test_cuda_attention_case_drop(&c[k]);
        test_cuda_attention_close(&r);
    }
    simulator_compiled(0);
}
/* Work and scratch are of what is attended to. */
static void test_cuda_attention_skips(void) {
#ifndef __CUDACC__
    static const size_t starts[] = { 0, 128, 256, 384, 512, 640, 768, 896, 1024 };
    for (int way = 0; way <= 80; way += 80) {
        size_t work[3], bytes = 0; uint64_t seed = 25; memopt_attention x; test_cuda_attention_rig r = test_cuda_attention_open(0);
        test_cuda_attention_case c = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_BF16, 1, 1024, 1, 1, 64, 0, 0, 0);
        simulator_compiled(way);
        for (int i = 0; i < 3; ++i) { /* all; documents; a window: of 72 tiles of 64 columns 16, and 23 */
            x = c.a; x.causal = 1;
            if (i == 1) { x.documents = 8; x.starts = starts; }
            if (i == 2) x.window = 64;
            work[i] = simulator_synchronisations();
            test_cuda_attention_both(&r, &x, i);
            work[i] = simulator_synchronisations() - work[i];
        }
        CHECK_AT(work[1] * 2 < work[0] && work[2] * 2 < work[0], way);
        x = c.a; x.grad_queries = NULL; x.documents = 8; x.starts = NULL; /* it is not looked at */
        CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == 256);
        x.width = 136; /* rows of scores */
        x.query_stride = x.kv_stride = x.output_stride = 0;
        x.kv_heads = x.heads = 2; x.longest = 200; x.block = 16;
        CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == 2 * 16 * 256 * 4);
        x.documents = x.longest = 0; x.causal = 1; x.window = 100; /* 100 + 16 + 30 columns */
        CHECK(memopt_cuda_attention_scratch(NULL, &x, &bytes) == 0 && bytes == 2 * 16 * 192 * 4);
        test_cuda_attention_case_drop(&c);
        test_cuda_attention_close(&r);
    }
    simulator_compiled(0);
#endif
}
/* What the CPU refuses is refused, on any way, and nothing is written. */
static void test_cuda_attention_documents_bad(void) {
    static size_t starts[] = { 0, 3, 8, 16 }; memopt_attention x;
    for (int way = 1; way < 3; ++way) {
        uint64_t seed = 26; test_cuda_attention_rig r = test_cuda_attention_open(0); memopt_cuda_ops ops;
        test_cuda_attention_case c = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_BF16, 2, 8, 2, 2, test_cuda_attention_width(way, 8), 0, 0, 0);
        c.a.documents = 3; c.a.starts = starts; c.a.causal = 1;
        test_cuda_attention_scratch(&r, &c.a);
        const size_t launches = simulator_launches();
#define BAD(change, status) do {                                                                                        \
        x = c.a; ops = r.ops; change;                                                                                   \
        CHECK(memopt_cuda_attention_forward(&ops, &x, NULL) == (status));                                               \
        CHECK(memopt_cuda_attention_backward(&ops, &x, NULL) == (status));                                              \
        starts[0] = 0; starts[1] = 3; starts[2] = 8; starts[3] = 16; } while (0)
        BAD(x.starts = NULL, MEMOPT_CUDA_ERR_NULL);
        BAD(x.starts = (const size_t *)(const void *)((const char *)x.starts + 4), MEMOPT_CUDA_ERR_ALIGNMENT);
        BAD(starts[0] = 1, MEMOPT_ERR_ARGUMENT);
        BAD(starts[1] = 9, MEMOPT_ERR_ARGUMENT);
        BAD(starts[3] = 15, MEMOPT_ERR_ARGUMENT);
        BAD(starts[3] = 17, MEMOPT_ERR_ARGUMENT);
        BAD(starts[2] = 7, MEMOPT_ERR_ARGUMENT); /* the third has 9 rows, and length is 8 */
        BAD(x.longest = 7, MEMOPT_ERR_ARGUMENT);
        BAD(x.longest = 17, MEMOPT_ERR_ARGUMENT);
        BAD(x.documents = 0, MEMOPT_ERR_ARGUMENT);
        BAD((x.documents = 0, x.starts = NULL, x.longest = 8), MEMOPT_ERR_ARGUMENT);
        BAD(x.lengths = (const size_t *)(const void *)x.queries, MEMOPT_ERR_ARGUMENT);
        BAD((x.causal = 0, x.window = 4), MEMOPT_ERR_ARGUMENT);
        BAD(x.documents = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
        BAD(ops.scratch_bytes = 16, MEMOPT_ERR_BUFFER);
#undef BAD
        CHECK(simulator_launches() == launches);
        for (size_t k = 1; k <= 4 && !test_on_card(); ++k) { /* that of starts is the first of four */
            simulator_fail_launch(k);
            if (way == 2) CHECK(memopt_cuda_attention_backward(&r.ops, &c.a, NULL)
                                 == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
            simulator_fail_launch(0);
        }
        test_cuda_attention_case_drop(&c);
        test_cuda_attention_close(&r);
    }
    simulator_compiled(0);
}
static void test_cuda_attention_flash_bad(void) {
    uint64_t seed = 14; memopt_attention x; memopt_cuda_ops ops; size_t k;
    test_cuda_attention_rig r = test_cuda_attention_open(0);
    test_cuda_attention_case c = test_cuda_attention_case_make(&seed, MEMOPT_TYPE_BF16, 2, 8, 2, 2, 8, 0, 1, 0);
    c.a.online = 1; c.a.statistics = (float *)test_device(32 * sizeof(float));
    test_cuda_attention_scratch(&r, &c.a);
#define BAD(call, change, status) do { x = c.a; ops = r.ops; change; CHECK(memopt_cuda_attention_##call(&ops, &x, NULL) == (status)); } while (0)
    BAD(forward, x.output = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(backward, x.output = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(backward, x.grad_values = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(forward, x.statistics = (float *)(void *)((char *)x.statistics + 2), MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(backward, ops.scratch_bytes -= 1, MEMOPT_ERR_BUFFER);
    BAD(backward, x.online = 0, MEMOPT_ERR_BUFFER); /* statistics need a place of their own */
#ifndef __CUDACC__
    simulator_pending_error(cudaErrorIllegalAddress);
    BAD(forward, (void)x, MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress);
    simulator_pending_error(0);
    for (k = 1; k <= 3; ++k) {
        simulator_fail_launch(k);
        BAD(backward, (void)x, MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
    }
    for (k = 1; k < 30; ++k) {
        simulator_fail_call(k);
        x = c.a;
        if (memopt_cuda_attention_backward(&r.ops, &x, NULL) == 0) break;
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    simulator_fail_call(0);
    CHECK(k > 3 && k < 30);
#endif
#undef BAD
    (void)k;
    test_cuda_attention_case_drop(&c);
    test_cuda_attention_close(&r);
}
static void test_cuda_attention_card(void) { /* what is compiled for its own architecture runs */
    int major = 0, minor = 0;
    test_cuda_must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
    test_cuda_must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "cudaDeviceGetAttribute");
#ifdef MEMOPT_CUDA_WGMMA
    CHECK(test_cuda_attention_groups() == (major == 9 && minor == 0)); /* with -arch=sm_90a */
#else
    CHECK(!test_cuda_attention_groups());
#endif
}
static void test_cuda_attention_flash_ways(void) { /* wgmma is of 9.0a alone */
    if (test_on_card()) { test_cuda_attention_card(); return; }
#ifdef MEMOPT_CUDA_WGMMA
    CHECK(test_cuda_attention_groups());
#else
    CHECK(!test_cuda_attention_groups());
#endif
    simulator_compiled(80);
    CHECK(!test_cuda_attention_groups());
    simulator_compiled(0);
    simulator_capability(8, 9);
    CHECK(!test_cuda_attention_groups());
    simulator_capability(10, 0);
    CHECK(!test_cuda_attention_groups());
    simulator_capability(9, 0);
}
/* GPT-2 124M, 32 x 1024 tokens: 12 layers of 12 heads of 64. One block of each launch runs. */
static void test_cuda_attention_flash_launches(void) {
#ifndef __CUDACC__
    test_cuda_attention_rig r = test_cuda_attention_open(0); memopt_attention x; const size_t rows = (size_t)32 * 1024; size_t launches = simulator_launches(); int layer;
    memset(&x, 0, sizeof x);
    simulator_sparse(4096); /* pages that nobody touches take no memory */
    x.batch = 32; x.length = 1024; x.heads = 12; x.width = 64; x.type = MEMOPT_TYPE_BF16; x.causal = x.online = 1;
    x.query_stride = x.kv_stride = 3 * 768;
    x.queries = test_device(rows * 3 * 768 * 2); x.keys = (const char *)x.queries + 768 * 2; x.values = (const char *)x.keys + 768 * 2;
    x.grad_queries = test_device(rows * 3 * 768 * 2); x.grad_keys = (char *)x.grad_queries + 768 * 2; x.grad_values = (char *)x.grad_keys + 768 * 2;
    x.output = test_device(rows * 768 * 2); x.grad_output = test_device(rows * 768 * 2); x.statistics = (float *)test_device(rows * 12 * sizeof(float));
    test_cuda_attention_scratch(&r, &x);
    simulator_run_blocks(0, 1);
    for (layer = 0; layer < 12; ++layer) CHECK(memopt_cuda_attention_forward(&r.ops, &x, NULL) == 0 && memopt_cuda_attention_backward(&r.ops, &x, NULL) == 0);
    CHECK(simulator_launches() - launches == 48); /* 16,128 by sequences */
    test_cuda_attention_close(&r);
#endif
}
static void test_cuda_attention(void) {
    for (test_cuda_attention_way = 0; test_cuda_attention_way <= (test_on_card() ? 0 : 80); test_cuda_attention_way += 80) {
        RUN(test_cuda_attention_flash);
        RUN(test_cuda_attention_flash_schedules);
        RUN(test_cuda_attention_flash_not_finite);
        RUN(test_cuda_attention_flash_not_finite_window);
        RUN(test_cuda_attention_flash_impossible);
    }
    RUN(test_cuda_attention_documents);
    RUN(test_cuda_attention_many);
    RUN(test_cuda_attention_windows);
    RUN(test_cuda_attention_documents_apart);
    RUN(test_cuda_attention_skips);
    RUN(test_cuda_attention_documents_bad);
    RUN(test_cuda_attention_flash_ways);
    RUN(test_cuda_attention_flash_bad);
    RUN(test_cuda_attention_flash_launches);
    RUN(test_cuda_attention_shapes);
    RUN(test_cuda_attention_schedules);
    RUN(test_cuda_attention_not_finite);
    RUN(test_cuda_attention_long);
    RUN(test_cuda_attention_bytes);
    RUN(test_cuda_attention_bad);
    RUN(test_cuda_attention_faults);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_attention(); return test_totals(); }
#endif
