/* test_cuda_head.cu - linear + softmax + cross-entropy by chunks of rows: section `cuda_head`. */
#include "test_cuda.h"
#ifndef __CUDACC__
#  include "cublaslt_mock.h"
#endif

static double test_cuda_head_round(memopt_type type, double x) {
    return type == MEMOPT_TYPE_F32 ? (double)(float)x : type == MEMOPT_TYPE_BF16 ? (double)memopt_from_bf16(memopt_to_bf16((float)x))
         : (double)memopt_from_f16(memopt_to_f16((float)x));
}
static double test_cuda_head_at(memopt_type type, const void *data, size_t i) {
    return type == MEMOPT_TYPE_F32 ? (double)((const float *)data)[i] : type == MEMOPT_TYPE_BF16
         ? (double)memopt_from_bf16(((const uint16_t *)data)[i]) : (double)memopt_from_f16(((const uint16_t *)data)[i]);
}
static double test_cuda_head_half(memopt_type type) { /* half of the last place, relative */
    return type == MEMOPT_TYPE_F32 ? ldexp(1, -24) : type == MEMOPT_TYPE_BF16 ? ldexp(1, -8) : ldexp(1, -11);
}
typedef struct test_cuda_head_tensor { double *x; unsigned char *host; void *d; size_t n, bytes; memopt_type type; } test_cuda_head_tensor;
/* n numbers that are multiples of `unit`, at most 8 of them either way: products and their sums are exact */
static test_cuda_head_tensor test_cuda_head_make(uint64_t *seed, memopt_type type, size_t n, double unit, size_t offset) {
    test_cuda_head_tensor t; size_t i;
    t.type = type; t.n = n; t.bytes = n * memopt_type_bytes(type);
    t.x = (double *)malloc((n + 1) * sizeof *t.x); t.host = (unsigned char *)malloc(t.bytes + 16);
    for (i = 0; i < n; ++i) {
        t.x[i] = ((double)(test_random(seed) % 17) - 8) * unit;
        if (type == MEMOPT_TYPE_F32) ((float *)t.host)[i] = (float)t.x[i];
        else ((uint16_t *)t.host)[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16((float)t.x[i]) : memopt_to_f16((float)t.x[i]);
    }
    t.d = test_device_at(t.bytes, offset * memopt_type_bytes(type));
    test_put(t.d, t.host, t.bytes);
    return t;
}
static void test_cuda_head_drop(test_cuda_head_tensor *t) { free(t->x); free(t->host); }
static void test_cuda_head_fetch(test_cuda_head_tensor *t) { test_get(t->host, t->d, t->bytes); }
static double test_cuda_head_now(const test_cuda_head_tensor *t, size_t i) { return test_cuda_head_at(t->type, t->host, i); }

typedef struct test_cuda_head_rig { memopt_cuda_gemm *gemm; void *memory; memopt_cuda_ops ops; int mark; } test_cuda_head_rig;
static test_cuda_head_rig test_cuda_head_open(void) {
    test_cuda_head_rig r; memopt_cuda_gemm_desc desc; size_t bytes = 0;
#ifndef __CUDACC__
    cublaslt_mock_reset();
#endif
    memset(&desc, 0, sizeof desc);
    memset(&r, 0, sizeof r);
    r.mark = test_device_mark();
    desc.workspace_bytes = test_on_card() ? MEMOPT_CUDA_GEMM_WORKSPACE : 8192; desc.d_workspace = test_device(desc.workspace_bytes);
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == 0);
    r.memory = memopt_i_system_alloc(NULL, bytes, 64);
    CHECK(memopt_cuda_gemm_create(&desc, r.memory, bytes, &r.gemm) == 0);
    r.ops.gemm = r.gemm;
    return r;
}
static void test_cuda_head_close(test_cuda_head_rig *r) {
    test_synchronize();
    memopt_cuda_gemm_destroy(r->gemm);
    memopt_i_system_free(NULL, r->memory, 0, 64);
    test_device_free(r->mark);
#ifndef __CUDACC__
    CHECK(cublaslt_mock_counted().handles == 0 && cublaslt_mock_counted().findings == 0);
#endif
}
static void test_cuda_head_scratch(test_cuda_head_rig *r, const memopt_head *h) { /* exactly what is asked for */
    size_t bytes = 0;
    CHECK(memopt_cuda_head_scratch(&r->ops, h, &bytes) == 0);
    r->ops.d_scratch = test_device(bytes); r->ops.scratch_bytes = bytes;
}

typedef struct test_cuda_head_case {
    test_cuda_head_tensor input, weights, grad_input, grad_weights;
    int32_t *targets; float *losses; memopt_loss *d_out; memopt_head h;
    double *slopes; /* the reference's gradient of logits */
    double  loss, slack; size_t counted;
} test_cuda_head_case;
static test_cuda_head_case test_cuda_head_case_make(uint64_t *seed, memopt_type type, memopt_type gradient, size_t rows, size_t width, size_t vocabulary, size_t more, size_t offset) {
    test_cuda_head_case c; size_t i;
    memset(&c, 0, sizeof c);
    c.input = test_cuda_head_make(seed, type, rows * width, 0.125, offset);
    c.weights = test_cuda_head_make(seed, type, (vocabulary + more) * width, 0.25, offset);
    c.grad_input = test_cuda_head_make(seed, type, rows * width, 1, offset);
    c.grad_weights = test_cuda_head_make(seed, gradient, (vocabulary + more) * width, 0.0625, offset);
    c.targets = (int32_t *)malloc((rows + 1) * 4); c.losses = (float *)malloc((rows + 1) * 4);
    for (i = 0; i < rows; ++i) c.targets[i] = test_random(seed) % 5 ? (int32_t)test_below(seed, vocabulary) : -1 - (int32_t)(i % 3);
    c.h.rows = rows; c.h.width = width; c.h.vocabulary = vocabulary; c.h.padded = vocabulary + more;
    c.h.type = c.h.weight_type = type; c.h.gradient_type = gradient;
    c.h.input = c.input.d; c.h.weights = c.weights.d; c.h.grad_input = c.grad_input.d; c.h.grad_weights = c.grad_weights.d;
    c.h.targets = (const int32_t *)test_device(rows * 4); test_put((void *)(uintptr_t)c.h.targets, c.targets, rows * 4);
    c.h.losses = (float *)test_device(rows * 4);
    c.d_out = (memopt_loss *)test_device(sizeof *c.d_out);
    return c;
}
static void test_cuda_head_case_drop(test_cuda_head_case *c) {
    test_cuda_head_drop(&c->input); test_cuda_head_drop(&c->weights); test_cuda_head_drop(&c->grad_input); test_cuda_head_drop(&c->grad_weights);
    free(c->targets); free(c->losses); free(c->slopes);
}
/* A row of logits as the storage has them, its loss, and the gradient of it. */
static void test_cuda_head_row(test_cuda_head_case *c, size_t row, double factor) {
    const memopt_head *h = &c->h; const size_t v = h->vocabulary; size_t j, k; double *z = c->slopes + row * v, most = -1e300, sum = 0, lse, mean = 0, loss, largest = 0;
    for (j = 0; j < v; ++j) {
        double x = 0;
        for (k = 0; k < h->width; ++k) x += c->input.x[row * h->width + k] * c->weights.x[j * h->width + k];
        z[j] = test_cuda_head_round(h->type, x);
        if (z[j] > most) most = z[j];
        if (fabs(z[j]) > largest) largest = fabs(z[j]);
        mean += z[j] / (double)v;
    }
    for (j = 0; j < v; ++j) sum += exp(z[j] - most);
    lse = most + log(sum);
    if (c->targets[row] < 0) { memset(z, 0, v * sizeof *z); CHECK_AT(c->losses[row] == 0, row); return; }
    loss = lse - (1 - (double)h->rule.smoothing) * z[c->targets[row]] - (double)h->rule.smoothing * mean + (double)h->rule.z_weight * lse * lse;
    CHECK_AT(fabs((double)c->losses[row] - loss) <= 1e-5 * (1 + fabs(loss) + largest), row);
    c->loss += loss; c->slack += 1e-5 * (1 + fabs(loss) + largest); ++c->counted;
    for (j = 0; j < v; ++j)
        z[j] = factor * (exp(z[j] - lse) * (1 + 2 * (double)h->rule.z_weight * lse) - (double)h->rule.smoothing / (double)v
             - ((int32_t)j == c->targets[row] ? 1 - (double)h->rule.smoothing : 0));
}
static void test_cuda_head_gradients(test_cuda_head_case *c, double factor, uint64_t at) {
    const memopt_head *h = &c->h; const size_t v = h->vocabulary, w = h->width; size_t i, j, k;
    const double half = test_cuda_head_half(h->type), sums = test_cuda_head_half(h->gradient_type), tiny = h->type == MEMOPT_TYPE_F16 ? 4e-8 : 1e-30;
    const double chunks = (double)memopt_i_ceil_div(h->rows, h->chunk ? h->chunk : 2048);
    for (i = 0; i < h->rows && h->grad_input; ++i) for (k = 0; k < w; ++k) {
        double sum = 0, most = 0;
        for (j = 0; j < v; ++j) { const double t = c->slopes[i * v + j] * c->weights.x[j * w + k]; sum += t; most += fabs(t) + (tiny + 1e-6 * factor) * 2; }
        CHECK_AT(fabs(test_cuda_head_now(&c->grad_input, i * w + k) - sum) <= (1.1 * half + 1e-5) * most + 1.1 * half * fabs(sum) + tiny * (1 + 2 * (double)v), at);
    }
    for (j = 0; j < h->padded && h->grad_weights; ++j) for (k = 0; k < w; ++k) {
        const double got = test_cuda_head_now(&c->grad_weights, j * w + k), from = h->accumulate ? c->grad_weights.x[j * w + k] : 0;
        double sum = from, most = fabs(from);
        for (i = 0; i < h->rows && j < v; ++i) { const double t = c->slopes[i * v + j] * c->input.x[i * w + k]; sum += t; most += fabs(t) + (tiny + 1e-6 * factor); }
        if (j >= v) CHECK_AT(got == from, at);
        else CHECK_AT(fabs(got - sum) <= (1.1 * half + 1e-5 + 1.1 * sums * chunks) * most + tiny * (chunks + (double)h->rows), at);
    }
}
static void test_cuda_head_check(test_cuda_head_case *c, uint64_t at) {
    memopt_head *h = &c->h; memopt_loss out; size_t i, counted = 0; double factor, count;
    c->slopes = (double *)malloc((h->rows * h->vocabulary + 1) * sizeof *c->slopes);
    test_get(&out, c->d_out, sizeof out);
    if (h->losses) test_get(c->losses, h->losses, h->rows * 4);
    test_cuda_head_fetch(&c->grad_input); test_cuda_head_fetch(&c->grad_weights);
    for (i = 0; i < h->rows; ++i) counted += c->targets[i] >= 0;
    count = (double)(h->rule.count ? h->rule.count : counted ? counted : 1);
    factor = (h->rule.scale > 0 ? h->rule.scale : 1) / count;
    for (i = 0; i < h->rows; ++i) test_cuda_head_row(c, i, factor);
    CHECK_AT(out.counted == counted && c->counted == counted, at);
    CHECK_AT(fabs(out.loss - c->loss / count) <= c->slack / count + 1e-12, at);
    test_cuda_head_gradients(c, factor, at);
}
static void test_cuda_head_losses(void) {
    static const size_t shapes[][4] = { { 1, 1, 1, 0 }, { 5, 3, 7, 0 }, { 33, 24, 50, 6 }, { 40, 8, 130, 0 }, { 70, 16, 33, 31 }, { 9, 40, 257, 7 } };
    static const size_t chunks[] = { 0, 1, 7, 32, 1000 };
    uint64_t seed = 1; size_t s; int type, n = 0;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; ++s) for (type = 0; type < 3; ++type) {
        int again;
        test_cuda_head_rig r = test_cuda_head_open();
        for (again = 0; again < 3; ++again, ++n) {
            test_cuda_head_case c = test_cuda_head_case_make(&seed, (memopt_type)type, n % 2 ? MEMOPT_TYPE_F32 : (memopt_type)type, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], (size_t)(n % 3 == 1));
            c.h.chunk = chunks[n % 5]; c.h.accumulate = n % 7 < 3;
            if (n % 4 == 1) c.h.rule.smoothing = 0.1f;
            if (n % 4 == 2) c.h.rule.z_weight = 0.01f;
            if (n % 3 == 0) { c.h.rule.count = 100; c.h.rule.scale = 8; }
            if (!c.h.accumulate) { memset(c.grad_weights.host, 0xFF, c.grad_weights.bytes); test_put(c.grad_weights.d, c.grad_weights.host, c.grad_weights.bytes); }
            if (n % 11 == 10) c.h.grad_weights = NULL;
            if (n % 13 == 12) c.h.grad_input = NULL;
            test_cuda_head_scratch(&r, &c.h);
            CHECK_AT(memopt_cuda_head_loss(&r.ops, &c.h, c.d_out, NULL) == 0, n);
            test_cuda_head_check(&c, (uint64_t)n);
            test_cuda_head_case_drop(&c);
        }
        test_cuda_head_close(&r);
    }
}
static void test_cuda_head_padded(void) { /* products are as wide and as deep as the padding; without rows all of the gradient is 0 */
#ifndef __CUDACC__
    uint64_t seed = 6; size_t i; int accumulate;
    for (accumulate = 0; accumulate < 2; ++accumulate) {
        test_cuda_head_rig r = test_cuda_head_open();
        test_cuda_head_case c = test_cuda_head_case_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 9, 8, 50, 14, 0);
        test_cuda_head_scratch(&r, &c.h);
        CHECK(memopt_cuda_head_loss(&r.ops, &c.h, c.d_out, NULL) == 0 && cublaslt_mock_last().depth == 64);
        c.h.grad_input = NULL;
        CHECK(memopt_cuda_head_loss(&r.ops, &c.h, c.d_out, NULL) == 0 && cublaslt_mock_last().columns == 64);
        c.h.grad_weights = NULL;
        CHECK(memopt_cuda_head_loss(&r.ops, &c.h, c.d_out, NULL) == 0 && cublaslt_mock_last().rows == 64);
        c.h.grad_weights = c.grad_weights.d; c.h.rows = 0; c.h.accumulate = accumulate;
        test_cuda_head_fetch(&c.grad_weights);
        for (i = 0; i < c.grad_weights.n; ++i) c.grad_weights.x[i] = accumulate ? test_cuda_head_now(&c.grad_weights, i) : 0;
        CHECK(memopt_cuda_head_loss(&r.ops, &c.h, c.d_out, NULL) == 0);
        test_cuda_head_fetch(&c.grad_weights);
        for (i = 0; i < c.grad_weights.n; ++i) CHECK_AT(test_cuda_head_now(&c.grad_weights, i) == c.grad_weights.x[i], i);
        test_cuda_head_case_drop(&c);
        test_cuda_head_close(&r);
    }
#endif
}
static void test_cuda_head_in_place(void) { /* grad_input in the place of input; the loss alone; no rows */
    uint64_t seed = 2; size_t i;
    test_cuda_head_rig r = test_cuda_head_open();
    test_cuda_head_case c = test_cuda_head_case_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 40, 16, 64, 0, 0), d; memopt_loss first, out;
    c.h.chunk = 16;
    test_cuda_head_scratch(&r, &c.h);
    c.h.grad_input = c.input.d;
    CHECK(memopt_cuda_head_loss(&r.ops, &c.h, c.d_out, NULL) == 0);
    test_get(c.grad_input.host, c.input.d, c.input.bytes);
    test_put(c.grad_input.d, c.grad_input.host, c.input.bytes); /* where the check looks */
    test_cuda_head_check(&c, 1);
    test_get(&first, c.d_out, sizeof first);
    seed = 2;
    d = test_cuda_head_case_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 40, 16, 64, 0, 0);
    d.h.chunk = 16; d.h.grad_input = d.h.grad_weights = NULL;
    CHECK(memopt_cuda_head_loss(&r.ops, &d.h, d.d_out, NULL) == 0);
    test_get(&out, d.d_out, sizeof out);
    CHECK(out.loss == first.loss && out.counted == first.counted); /* the same bits */
    d.h.losses = NULL; d.h.grad_weights = d.grad_weights.d; d.h.rows = 0;
    CHECK(memopt_cuda_head_loss(&r.ops, &d.h, d.d_out, NULL) == 0);
    test_get(&out, d.d_out, sizeof out);
    test_cuda_head_fetch(&d.grad_weights);
    CHECK(out.loss == 0 && out.counted == 0);
    for (i = 0; i < d.grad_weights.n; ++i) CHECK_AT(test_cuda_head_now(&d.grad_weights, i) == 0, i);
    test_cuda_head_case_drop(&c); test_cuda_head_case_drop(&d);
    test_cuda_head_close(&r);
}
static void test_cuda_head_logits(void) {
    uint64_t seed = 3; size_t i, j, k; int type;
    test_cuda_head_rig r = test_cuda_head_open();
    for (type = 0; type < 3; ++type) {
        test_cuda_head_case c = test_cuda_head_case_make(&seed, (memopt_type)type, MEMOPT_TYPE_F32, 12, 10, 31, 2, (size_t)(type == 1));
        float *d = (float *)test_device(5 * 31 * 4), host[5 * 31];
        CHECK(memopt_cuda_head_logits(&r.ops, &c.h, 7, 5, d, NULL) == 0);
        test_get(host, d, sizeof host);
        for (i = 0; i < 5; ++i) for (j = 0; j < 31; ++j) {
            double x = 0;
            for (k = 0; k < 10; ++k) x += c.input.x[(7 + i) * 10 + k] * c.weights.x[j * 10 + k];
            CHECK_AT((double)host[i * 31 + j] == x, i);
        }
        CHECK(memopt_cuda_head_logits(&r.ops, &c.h, 12, 0, NULL, NULL) == 0);
        CHECK(memopt_cuda_head_logits(&r.ops, &c.h, 8, 5, d, NULL) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_cuda_head_logits(&r.ops, &c.h, 13, 0, d, NULL) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_cuda_head_logits(&r.ops, &c.h, 0, 5, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_head_logits(&r.ops, &c.h, 0, 5, (float *)(void *)((char *)d + 2), NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
        CHECK(memopt_cuda_head_logits(&r.ops, &c.h, 0, 2, (float *)c.weights.d, NULL) == (type == 1 ? MEMOPT_CUDA_ERR_ALIGNMENT : MEMOPT_CUDA_ERR_OVERLAP));
        CHECK(memopt_cuda_head_logits(NULL, &c.h, 0, 5, d, NULL) == MEMOPT_CUDA_ERR_NULL);
        test_cuda_head_case_drop(&c);
    }
    test_cuda_head_close(&r);
}
static void test_cuda_head_bytes(void) { /* the figure: half a gigabyte, workspace included */
    memopt_head h; size_t bytes = 0;
    memset(&h, 0, sizeof h);
    h.rows = 32768; h.width = 4096; h.vocabulary = 128256; h.type = h.weight_type = h.gradient_type = MEMOPT_TYPE_BF16;
    CHECK(memopt_cuda_head_scratch(NULL, &h, &bytes) == 0);
    CHECK(bytes + MEMOPT_CUDA_GEMM_WORKSPACE <= 500000000 && bytes >= (size_t)1024 * 128256 * 2);
    h.chunk = 64;
    CHECK(memopt_cuda_head_scratch(NULL, &h, &bytes) == 0);
    CHECK(bytes == 64 * 128256 * 2 + 32768 * 8 + 256);
    h.chunk = 0; h.rows = 10; h.vocabulary = 7; h.type = h.weight_type = MEMOPT_TYPE_F32; h.gradient_type = MEMOPT_TYPE_F32;
    CHECK(memopt_cuda_head_scratch(NULL, &h, &bytes) == 0);
    CHECK(bytes == 512 + 256 + 256); /* 10 rows of 8 floats, losses, count */
    h.rows = 1; h.vocabulary = 0x7fffff00; h.width = 1; /* one row is more than the share: a tile of rows, or all of them */
    CHECK(memopt_cuda_head_scratch(NULL, &h, &bytes) == 0);
}
static void test_cuda_head_bad(void) {
    uint64_t seed = 4; size_t i, bytes;
    test_cuda_head_rig r = test_cuda_head_open();
    test_cuda_head_case c = test_cuda_head_case_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 8, 8, 8, 0, 0);
    memopt_head h; memopt_cuda_ops ops, none; memopt_loss *d_out = c.d_out;
    memset(&none, 0, sizeof none);
    test_cuda_head_scratch(&r, &c.h);
#define BAD(change, status) do { h = c.h; ops = r.ops; d_out = c.d_out; change; CHECK(memopt_cuda_head_loss(&ops, &h, d_out, NULL) == (status)); } while (0)
    CHECK(memopt_cuda_head_loss(NULL, &c.h, c.d_out, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_head_loss(&none, &c.h, c.d_out, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_head_loss(&r.ops, NULL, c.d_out, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_head_scratch(&r.ops, &c.h, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_head_scratch(&r.ops, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    BAD(h.input = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(h.weights = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(h.targets = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(d_out = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(d_out = (memopt_loss *)(void *)((char *)d_out + 4), MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(h.targets = (const int32_t *)(const void *)((const char *)h.targets + 2), MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(h.grad_weights = (char *)h.grad_weights + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(h.grad_input = (char *)h.grad_input + 1, MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(ops.d_scratch = (char *)ops.d_scratch + 16, MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(ops.scratch_bytes -= 1, MEMOPT_ERR_BUFFER);
    BAD(h.weight_type = MEMOPT_TYPE_F32, MEMOPT_CUDA_ERR_TYPE);
    BAD(h.gradient_type = MEMOPT_TYPE_F16, MEMOPT_CUDA_ERR_TYPE);
    BAD(h.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    BAD(h.vocabulary = 0, MEMOPT_ERR_ARGUMENT);
    BAD(h.width = 0, MEMOPT_ERR_ARGUMENT);
    BAD(h.padded = 7, MEMOPT_ERR_ARGUMENT);
    BAD(h.rule.smoothing = 2, MEMOPT_ERR_ARGUMENT);
    BAD(h.accumulate = 2, MEMOPT_ERR_ARGUMENT);
    BAD(h.rows = SIZE_MAX / 4, MEMOPT_ERR_OVERFLOW);
    BAD(h.grad_input = (char *)c.input.d + 2, MEMOPT_CUDA_ERR_OVERLAP);
    BAD(h.grad_weights = c.weights.d, MEMOPT_CUDA_ERR_OVERLAP);
    BAD(h.losses = (float *)ops.d_scratch, MEMOPT_CUDA_ERR_OVERLAP);
    BAD(d_out = (memopt_loss *)c.grad_weights.d, MEMOPT_CUDA_ERR_OVERLAP);
#ifndef __CUDACC__
    simulator_pending_error(cudaErrorIllegalAddress);
    BAD((void)h, MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress);
    simulator_pending_error(0);
    for (i = 1; i < 4; ++i) { cublaslt_mock_no_algorithm(i); h = c.h; /* for the first, second, third product */ h.rows = 8 - i; r.gemm->used = 0; CHECK(memopt_cuda_head_loss(&r.ops, &h, c.d_out, NULL) == MEMOPT_CUDA_ERR_NO_ALGORITHM); }
#endif
    test_cuda_head_fetch(&c.grad_input); test_cuda_head_fetch(&c.grad_weights); test_get(c.losses, c.h.losses, 8 * 4);
    for (i = 0; i < 8; ++i) CHECK_AT(memopt_i_float_bits(c.losses[i]) == 0xffffffffu, i);
    for (i = 0; i < 64; ++i) CHECK_AT(test_cuda_head_now(&c.grad_input, i) == c.grad_input.x[i] && test_cuda_head_now(&c.grad_weights, i) == c.grad_weights.x[i], i);
#undef BAD
    test_cuda_head_case_drop(&c);
    test_cuda_head_close(&r);
}
static void test_cuda_head_faults(void) { /* the k-th call into cuBLASLt, the k-th launch, the k-th call into CUDA fails */
#ifndef __CUDACC__
    size_t k; int how; uint64_t seed = 5;
    for (how = 0; how < 3; ++how)
        for (k = 1; k < 30; ++k) {
            test_cuda_head_rig r = test_cuda_head_open(); memopt_cuda_status s;
            test_cuda_head_case c = test_cuda_head_case_make(&seed, MEMOPT_TYPE_F16, MEMOPT_TYPE_F32, 9, 8, 16, 0, 0);
            c.h.chunk = 4;
            test_cuda_head_scratch(&r, &c.h);
            if (how == 2) simulator_fail_call(k); else if (how) simulator_fail_launch(k); else cublaslt_mock_fail(k, CUBLAS_STATUS_EXECUTION_FAILED);
            s = memopt_cuda_head_loss(&r.ops, &c.h, c.d_out, NULL);
            if (how == 2) simulator_fail_call(0); else if (how) simulator_fail_launch(0); else cublaslt_mock_fail(0, 0);
            test_cuda_head_case_drop(&c);
            test_cuda_head_close(&r);
            if (!s) break;
            CHECK_AT(how == 2 || s == (how ? MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources : MEMOPT_CUDA_BASE_BLAS + (int)CUBLAS_STATUS_EXECUTION_FAILED), k);
            CHECK(cudaPeekAtLastError() == cudaSuccess);
        }
    CHECK(k > 3 && k < 30);
#endif
}
static void test_cuda_head(void) {
    RUN(test_cuda_head_losses);
    RUN(test_cuda_head_padded);
    RUN(test_cuda_head_in_place);
    RUN(test_cuda_head_logits);
    RUN(test_cuda_head_bytes);
    RUN(test_cuda_head_bad);
    RUN(test_cuda_head_faults);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_head(); return test_totals(); }
#endif
