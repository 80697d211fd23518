/* test_cuda_gemm.cu - products by cuBLASLt, and linear layers: sections `cuda_gemm` and `cuda_linear`. */
#include "test_cuda.h"
#ifndef __CUDACC__
#  include "cublaslt_mock.h"
#endif

/* ---- numbers of a type, on host and device ---- */
static double test_cuda_gemm_round(memopt_type type, double x) {
    return type == MEMOPT_TYPE_F32 ? (double)(float)x : type == MEMOPT_TYPE_BF16 ? (double)memopt_from_bf16(memopt_to_bf16((float)x))
         : (double)memopt_from_f16(memopt_to_f16((float)x));
}
static double test_cuda_gemm_at(memopt_type type, const void *data, size_t i) {
    return type == MEMOPT_TYPE_F32 ? (double)((const float *)data)[i] : type == MEMOPT_TYPE_BF16
         ? (double)memopt_from_bf16(((const uint16_t *)data)[i]) : (double)memopt_from_f16(((const uint16_t *)data)[i]);
}
static void test_cuda_gemm_store(memopt_type type, void *data, size_t i, double x) {
    if (type == MEMOPT_TYPE_F32) ((float *)data)[i] = (float)x;
    else ((uint16_t *)data)[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16((float)x) : memopt_to_f16((float)x);
}
/* half of the last place of a result, relative */
static double test_cuda_gemm_half(memopt_type type) {
    return type == MEMOPT_TYPE_F32 ? ldexp(1, -24) : type == MEMOPT_TYPE_BF16 ? ldexp(1, -8) : ldexp(1, -11);
}
typedef struct test_cuda_gemm_tensor { /* n elements, as doubles, as stored, and on the device */
    double *x; unsigned char *host; void *d; size_t n, bytes; memopt_type type;
} test_cuda_gemm_tensor;
/* whole: quarters between -2 and 2, so that sums are exact; else any number between -1 and 1 */
static test_cuda_gemm_tensor test_cuda_gemm_make(uint64_t *seed, memopt_type type, size_t n, size_t offset, int whole) {
    test_cuda_gemm_tensor t; size_t i;
    t.type = type; t.n = n; t.bytes = n * memopt_type_bytes(type);
    t.x = (double *)malloc((n + 1) * sizeof *t.x); t.host = (unsigned char *)malloc(t.bytes + 16);
    for (i = 0; i < n; ++i) {
        t.x[i] = whole ? ((double)(test_random(seed) % 17) - 8) / 4 : (double)(int64_t)(test_random(seed) >> 11) * 0x1p-52 - 1;
        t.x[i] = test_cuda_gemm_round(type, t.x[i]);
        test_cuda_gemm_store(type, t.host, i, t.x[i]);
    }
    t.d = test_device_at(t.bytes, offset);
    test_put(t.d, t.host, t.bytes);
    return t;
}
static void test_cuda_gemm_drop(test_cuda_gemm_tensor *t) { free(t->x); free(t->host); }
/* what is on the device now */
static void test_cuda_gemm_fetch(test_cuda_gemm_tensor *t) { test_get(t->host, t->d, t->bytes); }
static double test_cuda_gemm_now(const test_cuda_gemm_tensor *t, size_t i) { return test_cuda_gemm_at(t->type, t->host, i); }

/* ---- a gemm for a test ---- */
typedef struct test_cuda_gemm_rig { memopt_cuda_gemm *gemm; void *memory; memopt_cuda_ops ops; int mark; } test_cuda_gemm_rig;
enum { TEST_CUDA_GEMM_DETERMINISTIC = 1, TEST_CUDA_GEMM_TF32 = 2, TEST_CUDA_GEMM_BARE = 4 };
static test_cuda_gemm_rig test_cuda_gemm_open(int how, size_t shapes, size_t scratch) {
    test_cuda_gemm_rig r; memopt_cuda_gemm_desc desc; size_t bytes = 0;
#ifndef __CUDACC__
    cublaslt_mock_reset();
#endif
    memset(&desc, 0, sizeof desc);
    memset(&r, 0, sizeof r);
    r.mark = test_device_mark();
    desc.shapes = shapes; desc.deterministic = (how & TEST_CUDA_GEMM_DETERMINISTIC) != 0; desc.tf32 = (how & TEST_CUDA_GEMM_TF32) != 0;
    if (!(how & TEST_CUDA_GEMM_BARE)) { desc.workspace_bytes = test_on_card() ? MEMOPT_CUDA_GEMM_WORKSPACE : 8192; desc.d_workspace = test_device(desc.workspace_bytes); }
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == 0);
    r.memory = memopt_i_system_alloc(NULL, bytes, 64); /* exactly: AddressSanitizer looks */
    CHECK(memopt_cuda_gemm_create(&desc, r.memory, bytes, &r.gemm) == 0);
    r.ops.gemm = r.gemm;
    if (scratch) { r.ops.d_scratch = test_device(scratch); r.ops.scratch_bytes = scratch; }
    return r;
}
static void test_cuda_gemm_close(test_cuda_gemm_rig *r) {
    test_synchronize();
    memopt_cuda_gemm_destroy(r->gemm);
    memopt_i_system_free(NULL, r->memory, 0, 64);
    test_device_free(r->mark);
#ifndef __CUDACC__
    CHECK(cublaslt_mock_counted().handles == 0);
    CHECK(cublaslt_mock_counted().findings == 0);
#endif
}

/* ---- products ---- */
typedef struct test_cuda_gemm_case {
    size_t rows, columns, depth, more; /* more: of strides than a row */
    memopt_type type, result_type;
    int left_transposed, right_transposed, bias, accumulate, whole;
    size_t offset; /* elements */
} test_cuda_gemm_case;
static void test_cuda_gemm_one(const test_cuda_gemm_rig *r, const test_cuda_gemm_case *c, uint64_t at) {
    const size_t ls = (c->left_transposed ? c->rows : c->depth) + c->more, rs = (c->right_transposed ? c->depth : c->columns) + c->more;
    const size_t ds = c->columns + c->more, size = memopt_type_bytes(c->type), result = memopt_type_bytes(c->result_type);
    uint64_t seed = at + 7; size_t i, j, k; memopt_product p;
    test_cuda_gemm_tensor left = test_cuda_gemm_make(&seed, c->type, (c->left_transposed ? c->depth : c->rows) * ls, c->offset * size, c->whole);
    test_cuda_gemm_tensor right = test_cuda_gemm_make(&seed, c->type, (c->right_transposed ? c->columns : c->depth) * rs, c->offset * size, c->whole);
    test_cuda_gemm_tensor out = test_cuda_gemm_make(&seed, c->result_type, c->rows * ds, c->offset * result, c->whole);
    test_cuda_gemm_tensor bias = test_cuda_gemm_make(&seed, MEMOPT_TYPE_F32, c->columns, c->offset * 4, c->whole);
    if (!c->accumulate) { /* poison what must be written; what lies between rows must stay */
        for (i = 0; i < c->rows; ++i) for (j = 0; j < c->columns; ++j) memset(out.host + (i * ds + j) * result, 0xFF, result);
        test_put(out.d, out.host, out.bytes);
    }
    memset(&p, 0, sizeof p);
    p.rows = c->rows; p.columns = c->columns; p.depth = c->depth;
    p.left = left.d; p.left_stride = ls; p.left_transposed = c->left_transposed; p.left_type = c->type;
    p.right = right.d; p.right_stride = rs; p.right_transposed = c->right_transposed; p.right_type = c->type;
    p.result = out.d; p.result_stride = ds; p.result_type = c->result_type; p.accumulate = c->accumulate;
    p.bias = c->bias ? (const float *)bias.d : NULL;
    CHECK_AT(memopt_cuda_gemm_multiply(r->gemm, &p, NULL) == 0, at);
    test_cuda_gemm_fetch(&out);
    for (i = 0; i < c->rows; ++i)
        for (j = 0; j < ds; ++j) {
            double sum = 0, most = 0, got = test_cuda_gemm_now(&out, i * ds + j), error;
            if (j >= c->columns) { CHECK_AT(got == out.x[i * ds + j], at); continue; }
            for (k = 0; k < c->depth; ++k) {
                const double term = left.x[c->left_transposed ? k * ls + i : i * ls + k] * right.x[c->right_transposed ? j * rs + k : k * rs + j];
                sum += term; most += fabs(term);
            }
            if (c->bias) { sum += bias.x[j]; most += fabs(bias.x[j]); }
            if (c->accumulate) { sum += out.x[i * ds + j]; most += fabs(out.x[i * ds + j]); }
            error = ldexp((double)c->depth + 2, -24) * most + test_cuda_gemm_half(c->result_type) * fabs(sum);
            if (c->whole || !test_on_card()) CHECK_AT(got == test_cuda_gemm_round(c->result_type, sum), at);
            CHECK_AT(fabs(got - sum) <= error * 1.001, at);
        }
    test_cuda_gemm_drop(&left); test_cuda_gemm_drop(&right); test_cuda_gemm_drop(&out); test_cuda_gemm_drop(&bias);
}
static void test_cuda_gemm_products(void) {
    static const size_t shapes[][3] = { { 1, 1, 1 }, { 3, 5, 7 }, { 33, 31, 32 }, { 1, 257, 33 }, { 64, 1, 255 }, { 40, 48, 0 }, { 96, 72, 130 } };
    static const memopt_type types[][2] = { { MEMOPT_TYPE_F32, MEMOPT_TYPE_F32 }, { MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16 },
        { MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32 }, { MEMOPT_TYPE_F16, MEMOPT_TYPE_F16 }, { MEMOPT_TYPE_F16, MEMOPT_TYPE_F32 } };
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 0);
    size_t s, t; int turns, n = 0;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; ++s)
        for (t = 0; t < 5; ++t)
            for (turns = 0; turns < 4; ++turns, ++n) {
                test_cuda_gemm_case c;
                memset(&c, 0, sizeof c);
                c.rows = shapes[s][0]; c.columns = shapes[s][1]; c.depth = shapes[s][2];
                c.type = types[t][0]; c.result_type = types[t][1];
                c.left_transposed = turns & 1;
                c.right_transposed = turns >> 1; c.more = n % 3 == 1 ? 8 : n % 3 == 2 ? 3 : 0;
                c.accumulate = n % 4 == 3; c.bias = !c.accumulate && c.result_type == MEMOPT_TYPE_F32 && n % 2;
                c.whole = n % 5 != 0; c.offset = n % 2 ? 1 : n % 4 ? 8 : 0;
                test_cuda_gemm_one(&r, &c, (uint64_t)n);
            }
    test_cuda_gemm_close(&r);
}
static void test_cuda_gemm_large(void) {
    test_cuda_gemm_rig r = test_cuda_gemm_open(TEST_CUDA_GEMM_DETERMINISTIC, 4, 0);
    test_cuda_gemm_case c;
    memset(&c, 0, sizeof c);
    c.rows = 200; c.columns = 264; c.depth = 512; c.type = MEMOPT_TYPE_BF16; c.result_type = MEMOPT_TYPE_BF16; c.right_transposed = 1;
    test_cuda_gemm_one(&r, &c, 1);
    c.type = c.result_type = MEMOPT_TYPE_F32; c.left_transposed = 1; c.right_transposed = 0; c.rows = 129;
    test_cuda_gemm_one(&r, &c, 2);
    test_cuda_gemm_close(&r);
}
static void test_cuda_gemm_batches(void) { /* heads that lie side by side in rows, and an operand used again */
    enum { ROWS = 9, COLUMNS = 8, DEPTH = 5, COUNT = 4, STEP = COLUMNS + 3 }; /* 3 elements between heads stay as they are */
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 0);
    uint64_t seed = 3; size_t b, i, j, k; int again; memopt_product p; memopt_cuda_gemm_batch batch;
    for (again = 0; again < 2; ++again) {
        test_cuda_gemm_tensor left = test_cuda_gemm_make(&seed, MEMOPT_TYPE_F16, ROWS * COUNT * DEPTH, 0, 1);
        test_cuda_gemm_tensor right = test_cuda_gemm_make(&seed, MEMOPT_TYPE_F16, COUNT * DEPTH * COLUMNS, 0, 1);
        test_cuda_gemm_tensor out = test_cuda_gemm_make(&seed, MEMOPT_TYPE_F32, ROWS * COUNT * STEP, 0, 1);
        memset(&p, 0, sizeof p);
        p.rows = ROWS; p.columns = COLUMNS; p.depth = DEPTH; p.left_type = p.right_type = MEMOPT_TYPE_F16;
        p.left = left.d; p.left_stride = COUNT * DEPTH; p.right = right.d; p.right_stride = COLUMNS;
        p.result = out.d; p.result_stride = COUNT * STEP;
        batch.count = COUNT; batch.left_step = DEPTH; batch.right_step = again ? 0 : DEPTH * COLUMNS; batch.result_step = STEP;
        CHECK(memopt_cuda_gemm_multiply_batch(r.gemm, &p, &batch, NULL) == 0);
        test_cuda_gemm_fetch(&out);
        for (b = 0; b < COUNT; ++b) for (i = 0; i < ROWS; ++i) for (j = 0; j < STEP; ++j) {
            double sum = 0; const size_t at = i * COUNT * STEP + b * STEP + j;
            if (j >= COLUMNS) { CHECK_AT(test_cuda_gemm_now(&out, at) == out.x[at], b); continue; }
            for (k = 0; k < DEPTH; ++k) sum += left.x[i * COUNT * DEPTH + b * DEPTH + k] * right.x[(again ? 0 : b * DEPTH * COLUMNS) + k * COLUMNS + j];
            CHECK_AT(test_cuda_gemm_now(&out, at) == sum, b);
        }
        p.depth = 0; /* only the beginning, of each */
        CHECK(memopt_cuda_gemm_multiply_batch(r.gemm, &p, &batch, NULL) == 0);
        test_cuda_gemm_fetch(&out);
        for (i = 0; i < out.n; ++i) CHECK_AT(test_cuda_gemm_now(&out, i) == (i % STEP < COLUMNS ? 0 : out.x[i]), i);
        batch.result_step = COLUMNS - 1;
        CHECK(memopt_cuda_gemm_multiply_batch(r.gemm, &p, &batch, NULL) == MEMOPT_CUDA_ERR_STRIDE);
        batch.count = COUNT + 1; batch.result_step = STEP;
        CHECK(memopt_cuda_gemm_multiply_batch(r.gemm, &p, &batch, NULL) == MEMOPT_CUDA_ERR_STRIDE);
        test_cuda_gemm_drop(&left); test_cuda_gemm_drop(&right); test_cuda_gemm_drop(&out);
    }
    test_cuda_gemm_close(&r);
}
/* A product of three matrices in one block, for tests that are not about numbers. */
typedef struct test_cuda_gemm_small { float *d; memopt_product p; } test_cuda_gemm_small;
static test_cuda_gemm_small test_cuda_gemm_simple(size_t n) { /* n x n, of ones */
    test_cuda_gemm_small s; float *host = (float *)malloc(3 * n * n * sizeof *host); size_t i;
    for (i = 0; i < 3 * n * n; ++i) host[i] = i < 2 * n * n ? 1.0f : -1.0f;
    s.d = (float *)test_device(3 * n * n * sizeof *host);
    test_put(s.d, host, 3 * n * n * sizeof *host);
    free(host);
    memset(&s.p, 0, sizeof s.p);
    s.p.rows = s.p.columns = s.p.depth = s.p.left_stride = s.p.right_stride = s.p.result_stride = n;
    s.p.left = s.d; s.p.right = s.d + n * n; s.p.result = s.d + 2 * n * n;
    return s;
}
static float test_cuda_gemm_first(const test_cuda_gemm_small *s) { float x; test_get(&x, s->p.result, 4); return x; }
static void test_cuda_gemm_table(void) { /* a shape is asked for once; too many in turn are not asked for each time */
    enum { ROOM = 64, SHAPES = 80 };
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, ROOM, 0);
    test_cuda_gemm_small s = test_cuda_gemm_simple(SHAPES);
    size_t i, turn, before = 0;
    for (turn = 0; turn < 2; ++turn) {
        for (i = 1; i <= ROOM; ++i) { s.p.rows = i; CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == 0); }
        CHECK(memopt_cuda_gemm_get_stats(r.gemm).products == (turn + 1) * ROOM && memopt_cuda_gemm_get_stats(r.gemm).heuristics == ROOM);
    }
    s.p.left = s.d + 1; /* less aligned: another shape */
    CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == 0);
    CHECK(memopt_cuda_gemm_get_stats(r.gemm).heuristics == ROOM + 1);
    CHECK(test_cuda_gemm_first(&s) == SHAPES);
    s.p.left = s.d;
    for (turn = 0; turn < 8; ++turn) {
        if (turn == 2) before = memopt_cuda_gemm_get_stats(r.gemm).heuristics;
        for (i = 1; i <= SHAPES; ++i) { s.p.rows = i; CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == 0); }
    }
    CHECK(memopt_cuda_gemm_get_stats(r.gemm).heuristics - before < 6 * SHAPES * 2 / 3); /* first in, first out: all of them */
    test_cuda_gemm_close(&r);
}
#ifndef __CUDACC__
static void test_cuda_gemm_onto_bias(void) { /* no algorithm adds a bias */
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 0);
    test_cuda_gemm_small s = test_cuda_gemm_simple(16);
    float bias[16], result[256], *d_bias = (float *)test_device(sizeof bias);
    size_t i, batch;
    for (i = 0; i < 16; ++i) bias[i] = (float)i - 7.5f;
    test_put(d_bias, bias, sizeof bias);
    s.p.bias = d_bias;
    cublaslt_mock_refuse(4);
    for (batch = 1; batch <= 2; ++batch) {
        const memopt_cuda_gemm_batch two = { batch, 0, 0, 128 };
        s.p.rows = 16 / batch;
        CHECK(memopt_cuda_gemm_multiply_batch(r.gemm, &s.p, &two, NULL) == 0);
        test_get(result, s.p.result, sizeof result);
        for (i = 0; i < 256; ++i) CHECK(result[i] == 16 + bias[i % 16]);
    }
    cublaslt_mock_no_algorithm(SIZE_MAX);
    s.p.rows = 3;
    CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == MEMOPT_CUDA_ERR_NO_ALGORITHM);
    test_get(result, s.p.result, sizeof result);
    for (i = 0; i < 256; ++i) CHECK(result[i] == 16 + bias[i % 16]); /* untouched */
    test_cuda_gemm_close(&r);
}
#endif
static void test_cuda_gemm_switches(void) {
#ifndef __CUDACC__
    int how;
    for (how = 0; how < 8; ++how) {
        test_cuda_gemm_rig r = test_cuda_gemm_open(how, 0, 0);
        test_cuda_gemm_small s = test_cuda_gemm_simple(16);
        CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == 0);
        CHECK((cublaslt_mock_last().compute == CUBLAS_COMPUTE_32F_FAST_TF32) == ((how & TEST_CUDA_GEMM_TF32) != 0));
        CHECK(cublaslt_mock_last().reduction == (CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE)); /* these repeat */
        CHECK((cublaslt_mock_last().workspace == 0) == ((how & TEST_CUDA_GEMM_BARE) != 0));
        s.p.left_type = s.p.right_type = s.p.result_type = MEMOPT_TYPE_BF16;
        CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == 0);
        CHECK(cublaslt_mock_last().compute == CUBLAS_COMPUTE_32F); /* and parts are added in float */
        CHECK(cublaslt_mock_last().reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
        test_cuda_gemm_close(&r);
    }
#endif
}
static void test_cuda_gemm_bad(void) {
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 0);
    const test_cuda_gemm_small good = test_cuda_gemm_simple(8);
    test_cuda_gemm_small s = good;
    memopt_cuda_gemm_desc desc; memopt_cuda_gemm *out = NULL; size_t bytes; static uint64_t memory[65536];
#define BAD(change, status) do { s = good; change; CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == (status)); } while (0)
    CHECK(memopt_cuda_gemm_multiply(NULL, &s.p, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_gemm_multiply(r.gemm, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_gemm_multiply_batch(r.gemm, &s.p, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    BAD(s.p.left = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(s.p.right = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(s.p.result = NULL, MEMOPT_CUDA_ERR_NULL);
    BAD(s.p.left = (const char *)s.p.left + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(s.p.bias = (const float *)((const char *)s.p.left + 1), MEMOPT_CUDA_ERR_ALIGNMENT);
    BAD(s.p.left_stride = 7, MEMOPT_CUDA_ERR_STRIDE);
    BAD(s.p.right_stride = 7, MEMOPT_CUDA_ERR_STRIDE);
    BAD(s.p.result_stride = 7, MEMOPT_CUDA_ERR_STRIDE);
    BAD(s.p.left_stride = (size_t)1 << 31, MEMOPT_CUDA_ERR_STRIDE);
    BAD((s.p.left_transposed = 1, s.p.left_stride = 7), MEMOPT_CUDA_ERR_STRIDE);
    BAD(s.p.rows = (size_t)1 << 31, MEMOPT_ERR_OVERFLOW);
    BAD((s.p.columns = SIZE_MAX, s.p.result_stride = s.p.right_stride = SIZE_MAX), MEMOPT_ERR_OVERFLOW);
    BAD(s.p.result = (void *)(uintptr_t)s.p.left, MEMOPT_CUDA_ERR_OVERLAP);
    BAD(s.p.result = s.d + 127, MEMOPT_CUDA_ERR_OVERLAP);
    BAD(s.p.bias = (const float *)s.p.result + 63, MEMOPT_CUDA_ERR_OVERLAP);
    BAD((s.p.bias = s.d, s.p.accumulate = 1), MEMOPT_ERR_ARGUMENT);
    BAD(s.p.accumulate = 2, MEMOPT_ERR_ARGUMENT);
    BAD(s.p.left_type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    BAD(s.p.left_type = MEMOPT_TYPE_BF16, MEMOPT_CUDA_ERR_TYPE);
    BAD(s.p.result_type = MEMOPT_TYPE_BF16, MEMOPT_CUDA_ERR_TYPE);
    BAD((s.p.left_type = s.p.right_type = MEMOPT_TYPE_BF16, s.p.result_type = MEMOPT_TYPE_F16), MEMOPT_CUDA_ERR_TYPE);
    BAD((s.p.left_type = s.p.right_type = s.p.result_type = MEMOPT_TYPE_F16, s.p.bias = s.d), MEMOPT_CUDA_ERR_TYPE);
    BAD((s.p.rows = 0, s.p.left = s.p.result = NULL), 0);
    BAD((s.p.columns = 0, s.p.right = s.p.result = NULL), 0);
    CHECK(test_cuda_gemm_first(&good) == -1); /* nothing was written */
    CHECK(memopt_cuda_gemm_get_stats(r.gemm).heuristics == 0);
    memset(&desc, 0, sizeof desc);
    CHECK(memopt_cuda_gemm_bytes(NULL, &bytes) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_gemm_bytes(&desc, NULL) == MEMOPT_CUDA_ERR_NULL);
    desc.shapes = SIZE_MAX / 4;
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == MEMOPT_ERR_OVERFLOW);
    desc.shapes = 1;
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == 0 && bytes < sizeof memory);
    CHECK(memopt_cuda_gemm_create(NULL, memory, bytes, &out) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_gemm_create(&desc, NULL, bytes, &out) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_gemm_create(&desc, memory, bytes, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_gemm_create(&desc, memory, bytes - 1, &out) == MEMOPT_ERR_BUFFER);
    for (int k = 0; k < 3; ++k) {
        int *const flag = k == 0 ? &desc.deterministic : k == 1 ? &desc.tf32 : &desc.fast_fp8;
        *flag = 2;
        CHECK(memopt_cuda_gemm_create(&desc, memory, bytes, &out) == MEMOPT_ERR_ARGUMENT);
        *flag = 0;
    }
    CHECK(memopt_cuda_gemm_create(&desc, (char *)memory + 8 - ((uintptr_t)memory & 8), bytes, &out) == MEMOPT_CUDA_ERR_ALIGNMENT);
    desc.workspace_bytes = 4096;
    CHECK(memopt_cuda_gemm_create(&desc, memory, bytes, &out) == MEMOPT_CUDA_ERR_NULL);
    desc.d_workspace = (char *)good.d + 16;
    CHECK(memopt_cuda_gemm_create(&desc, memory, bytes, &out) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(out == NULL);
    memopt_cuda_gemm_destroy(NULL);
#undef BAD
    test_cuda_gemm_close(&r);
}
static void test_cuda_gemm_faults(void) { /* cuBLASLt fails at each of its calls; a card without bf16 */
#ifndef __CUDACC__
    memopt_cuda_gemm_desc desc; memopt_cuda_gemm *out = NULL; size_t bytes, k; static uint64_t memory[8192];
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 0);
    test_cuda_gemm_small s = test_cuda_gemm_simple(8);
    memset(&desc, 0, sizeof desc);
    desc.shapes = 8;
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == 0 && bytes <= sizeof memory);
    cublaslt_mock_fail(1, CUBLAS_STATUS_ALLOC_FAILED);
    CHECK(memopt_cuda_gemm_create(&desc, memory, bytes, &out) == MEMOPT_CUDA_BASE_BLAS + CUBLAS_STATUS_ALLOC_FAILED && !out);
    CHECK(memopt_cuda_to_status(MEMOPT_CUDA_BASE_BLAS + CUBLAS_STATUS_ALLOC_FAILED) == MEMOPT_ERR_MEMORY);
    simulator_pending_error(cudaErrorIllegalAddress);
    CHECK(memopt_cuda_gemm_create(&desc, memory, bytes, &out) == MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress && !out);
    CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress);
    CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
    simulator_pending_error(0);
    for (k = 1; k <= 2; ++k) {
        cublaslt_mock_fail(k, CUBLAS_STATUS_INTERNAL_ERROR);
        CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == MEMOPT_CUDA_BASE_BLAS + CUBLAS_STATUS_INTERNAL_ERROR);
        CHECK(test_cuda_gemm_first(&s) == -1);
        CHECK(memopt_cuda_gemm_get_stats(r.gemm).products == 0 && memopt_cuda_gemm_get_stats(r.gemm).heuristics == k);
    }
    cublaslt_mock_fail(0, 0);
    CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == 0 && test_cuda_gemm_first(&s) == 8);
    CHECK(memopt_cuda_gemm_get_stats(r.gemm).heuristics == 2); /* what was found before the failure is still there */
    s.p.rows = 7;
    cublaslt_mock_no_algorithm(1);
    for (k = 0; k < 2; ++k) CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == MEMOPT_CUDA_ERR_NO_ALGORITHM);
    CHECK(memopt_cuda_gemm_get_stats(r.gemm).heuristics == 3); /* is kept as well */
    s.p.depth = 0; s.p.rows = 8;
    simulator_fail_launch(1);
    CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == MEMOPT_CUDA_BASE_RUNTIME + cudaErrorLaunchOutOfResources);
    CHECK(test_cuda_gemm_first(&s) == 8);
    r.gemm->capability = 75; s.p.left_type = s.p.right_type = s.p.result_type = MEMOPT_TYPE_BF16;
    CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == MEMOPT_CUDA_ERR_TYPE);
    r.gemm->device = 1; s.p.left_type = s.p.right_type = s.p.result_type = MEMOPT_TYPE_F16;
    CHECK(memopt_cuda_gemm_multiply(r.gemm, &s.p, NULL) == MEMOPT_ERR_ARGUMENT); /* another device is current */
    test_cuda_gemm_close(&r);
#endif
}
static void test_cuda_gemm_fp8(void) {
    static const size_t shapes[][3] = { { 16, 16, 16 }, { 32, 48, 64 }, { 80, 16, 160 } };
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 0);
    uint64_t seed = 5; size_t s, i, j, k; int n = 0, types, result;
    const float scales[5] = { 0.5f, 0, 0, 0, 4.0f };
    if (r.gemm->capability < 89) { SKIP("fp8 needs compute capability 8.9"); test_cuda_gemm_close(&r); return; }
    for (s = 0; s < 3; ++s) for (types = 0; types < 3; ++types) for (result = 0; result < 3; ++result, ++n) {
        memopt_cuda_fp8_product p; uint8_t *left, *right; float *d_scales = (float *)test_device(sizeof scales);
        const size_t rows = shapes[s][0], columns = shapes[s][1], depth = shapes[s][2], stride = depth + 16 * (size_t)(n % 2);
        const memopt_type type = (memopt_type)result, bias_type = result == MEMOPT_TYPE_F16 ? MEMOPT_TYPE_F16 : MEMOPT_TYPE_BF16;
        test_cuda_gemm_tensor out = test_cuda_gemm_make(&seed, type, rows * columns, 0, 1), bias = test_cuda_gemm_make(&seed, bias_type, columns, 0, 1);
        test_put(d_scales, scales, sizeof scales);
        memset(&p, 0, sizeof p);
        p.rows = rows; p.columns = columns; p.depth = depth; p.left_stride = p.right_stride = stride; p.result_stride = columns;
        p.left_type = types == 1 ? MEMOPT_CUDA_FP8_E5M2 : MEMOPT_CUDA_FP8_E4M3; p.right_type = types == 2 ? MEMOPT_CUDA_FP8_E5M2 : MEMOPT_CUDA_FP8_E4M3;
        left = (uint8_t *)malloc(rows * stride); right = (uint8_t *)malloc(columns * stride);
#define CODE(t, x) ((t) == MEMOPT_CUDA_FP8_E5M2 ? memopt_to_e5m2(x, 0) : memopt_to_e4m3(x, 0))
#define CUDA_GEMM_VALUE(t, c) ((double)((t) == MEMOPT_CUDA_FP8_E5M2 ? memopt_from_e5m2(c) : memopt_from_e4m3(c)))
        for (i = 0; i < rows * stride; ++i) left[i] = CODE(p.left_type, (float)(int)(test_random(&seed) % 9) - 4);
        for (i = 0; i < columns * stride; ++i) right[i] = CODE(p.right_type, ((float)(int)(test_random(&seed) % 9) - 4) / 4);
        p.d_left = (const uint8_t *)test_device(rows * stride); test_put((void *)(uintptr_t)p.d_left, left, rows * stride);
        p.d_right = (const uint8_t *)test_device(columns * stride); test_put((void *)(uintptr_t)p.d_right, right, columns * stride);
        p.d_left_scale = n % 3 ? d_scales : NULL; p.d_right_scale = n % 5 ? d_scales + 4 : NULL;
        p.d_result = out.d; p.result_type = type; p.accumulate = n % 4 == 1; p.d_bias = n % 4 == 2 ? bias.d : NULL;
        CHECK_AT(memopt_cuda_gemm_multiply_fp8(r.gemm, &p, NULL) == 0, n);
        test_cuda_gemm_fetch(&out);
        for (i = 0; i < rows; ++i) for (j = 0; j < columns; ++j) {
            double sum = 0, most; const double got = test_cuda_gemm_now(&out, i * columns + j);
            for (k = 0; k < depth; ++k) sum += CUDA_GEMM_VALUE(p.left_type, left[i * stride + k]) * CUDA_GEMM_VALUE(p.right_type, right[j * stride + k]);
            sum *= (p.d_left_scale ? 0.5 : 1) * (p.d_right_scale ? 4.0 : 1);
            most = fabs(sum);
            if (p.d_bias) sum += bias.x[j];
            if (p.accumulate) sum += out.x[i * columns + j];
            if (test_on_card()) CHECK_AT(fabs(got - sum) <= 2.01 * test_cuda_gemm_half(type) * (most + fabs(sum)), n); /* a library of its own: it may round twice */
            else CHECK_AT(got == test_cuda_gemm_round(type, sum), n);
        }
        if (!n) { /* what is refused */
            memopt_cuda_fp8_product q;
#define BAD(change, status) do { q = p; change; CHECK(memopt_cuda_gemm_multiply_fp8(r.gemm, &q, NULL) == (status)); } while (0)
            BAD(q.rows = 8, MEMOPT_CUDA_ERR_STRIDE);
            BAD(q.depth = 24, MEMOPT_CUDA_ERR_STRIDE);
            BAD(q.left_stride = depth + 8, MEMOPT_CUDA_ERR_STRIDE);
            BAD(q.right_stride = depth - 16, MEMOPT_CUDA_ERR_STRIDE);
            BAD(q.result_stride = columns + 1, MEMOPT_CUDA_ERR_STRIDE);
            BAD(q.d_left += 8, MEMOPT_CUDA_ERR_ALIGNMENT);
            BAD(q.d_right = NULL, MEMOPT_CUDA_ERR_NULL);
            BAD(q.d_right_scale = d_scales + 1, MEMOPT_CUDA_ERR_ALIGNMENT);
            BAD(q.d_left_scale = d_scales + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
            BAD((q.left_type = q.right_type = MEMOPT_CUDA_FP8_E5M2), MEMOPT_CUDA_ERR_TYPE);
            BAD((q.d_bias = bias.d, q.accumulate = 1), MEMOPT_ERR_ARGUMENT);
            BAD(q.d_result = (void *)(uintptr_t)q.d_left, MEMOPT_CUDA_ERR_OVERLAP);
            BAD(q.rows = (size_t)1 << 31, MEMOPT_ERR_OVERFLOW);
            BAD((q.columns = 0), 0);
            CHECK(memopt_cuda_gemm_multiply_fp8(NULL, &p, NULL) == MEMOPT_CUDA_ERR_NULL);
            k = (size_t)r.gemm->capability; r.gemm->capability = 86;
            BAD((void)q, MEMOPT_CUDA_ERR_TYPE);
            r.gemm->capability = (int)k;
#undef BAD
        }
        free(left); free(right);
        test_cuda_gemm_drop(&out); test_cuda_gemm_drop(&bias);
    }
    test_cuda_gemm_close(&r);
}

/* ---- linear ---- */
static double test_cuda_gemm_act(int kind, double x) {
    if (kind == MEMOPT_ACTIVATION_RELU) return x > 0 ? x : 0;
    if (kind == MEMOPT_ACTIVATION_GELU) return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return kind == MEMOPT_ACTIVATION_SILU ? x / (1 + exp(-x)) : x;
}
static double test_cuda_gemm_slope(int kind, double x) { /* by the definition, not by the formula */
    const double h = 1e-6;
    if (kind == MEMOPT_ACTIVATION_RELU) return x > 0;
    return kind == MEMOPT_ACTIVATION_NONE ? 1 : (test_cuda_gemm_act(kind, x + h) - test_cuda_gemm_act(kind, x - h)) / (2 * h);
}
typedef struct test_cuda_gemm_layer {
    test_cuda_gemm_tensor input, weights, bias, pre_activation, output, grad_output, grad_input, grad_weights,
        grad_bias;
    memopt_linear x;
} test_cuda_gemm_layer;
static test_cuda_gemm_layer test_cuda_gemm_layer_make(uint64_t *seed, memopt_type type, memopt_type gradient, size_t rows, size_t in, size_t out, size_t offset) {
    test_cuda_gemm_layer l; const size_t at = offset * memopt_type_bytes(type), gradient_at = offset * memopt_type_bytes(gradient);
    memset(&l, 0, sizeof l);
    l.input = test_cuda_gemm_make(seed, type, rows * in, at, 0); l.weights = test_cuda_gemm_make(seed, type, out * in, at, 0);
    l.bias = test_cuda_gemm_make(seed, type, out, at, 0);
    l.pre_activation = test_cuda_gemm_make(seed, type, rows * out, at, 0);
    l.output = test_cuda_gemm_make(seed, type, rows * out, at, 0); l.grad_output = test_cuda_gemm_make(seed, type, rows * out, at, 0);
    l.grad_input = test_cuda_gemm_make(seed, type, rows * in, at, 0); l.grad_weights = test_cuda_gemm_make(seed, gradient, out * in, gradient_at, 0);
    l.grad_bias = test_cuda_gemm_make(seed, gradient, out, gradient_at, 0);
    l.x.rows = rows; l.x.inputs = in; l.x.outputs = out; l.x.type = l.x.weight_type = type; l.x.gradient_type = gradient;
    l.x.input = l.input.d; l.x.weights = l.weights.d; l.x.bias = l.bias.d; l.x.pre_activation = l.pre_activation.d; l.x.output = l.output.d;
    l.x.grad_output = l.grad_output.d; l.x.grad_input = l.grad_input.d; l.x.grad_weights = l.grad_weights.d; l.x.grad_bias = l.grad_bias.d;
    return l;
}
static void test_cuda_gemm_layer_drop(test_cuda_gemm_layer *l) {
    test_cuda_gemm_drop(&l->input); test_cuda_gemm_drop(&l->weights); test_cuda_gemm_drop(&l->bias); test_cuda_gemm_drop(&l->pre_activation);
    test_cuda_gemm_drop(&l->output); test_cuda_gemm_drop(&l->grad_output); test_cuda_gemm_drop(&l->grad_input);
    test_cuda_gemm_drop(&l->grad_weights); test_cuda_gemm_drop(&l->grad_bias);
}
static void test_cuda_gemm_poison(test_cuda_gemm_tensor *t) {
    memset(t->host, 0xFF, t->bytes);
    test_put(t->d, t->host, t->bytes);
}
static void test_cuda_gemm_forward_check(test_cuda_gemm_layer *l, uint64_t at) {
    const memopt_linear *x = &l->x; const double half = test_cuda_gemm_half(x->type); size_t i, j, k;
    test_cuda_gemm_fetch(&l->output); test_cuda_gemm_fetch(&l->pre_activation);
    for (i = 0; i < x->rows; ++i) for (j = 0; j < x->outputs; ++j) {
        double z = x->bias ? l->bias.x[j] : 0, most = fabs(z), error, y; const size_t e = i * x->outputs + j;
        for (k = 0; k < x->inputs; ++k) {
            const double term = l->input.x[i * x->inputs + k] * l->weights.x[j * x->inputs + k];
            z += term; most += fabs(term);
        }
        error = ldexp((double)x->inputs + 2, -24) * most + 1e-7; /* of the sum */
        if (x->pre_activation)
            CHECK_AT(fabs(test_cuda_gemm_now(&l->pre_activation, e) - z) <= error + 2.01 * half * most, at);
        y = test_cuda_gemm_act(x->activation, z); /* no activation is steeper than 1.13; bias and z may be rounded first */
        if (x->residual) { y += l->grad_output.x[e]; most += fabs(l->grad_output.x[e]); }
        CHECK_AT(fabs(test_cuda_gemm_now(&l->output, e) - y) <= 1.13 * (error + 2.01 * half * most) + 1.01 * half * fabs(y)
                 + (test_on_card() ? fabs(z) * ldexp(1, -11) : 0), at);
    }
}
static void test_cuda_gemm_forward(void) {
    static const size_t shapes[][3] = { { 1, 1, 1 }, { 5, 3, 8 }, { 33, 40, 24 }, { 17, 31, 33 }, { 4, 0, 7 }, { 64, 64, 72 } };
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 0);
    uint64_t seed = 11; size_t s; int type, act, n = 0, how;
    for (how = 0; how < (test_on_card() ? 1 : 3); ++how) {
        for (s = 0; s < sizeof shapes / sizeof shapes[0]; ++s) for (type = 0; type < 3; ++type) for (act = 0; act < 4; ++act, ++n) {
            test_cuda_gemm_layer l = test_cuda_gemm_layer_make(&seed, (memopt_type)type, MEMOPT_TYPE_F32, shapes[s][0], shapes[s][1], shapes[s][2], (size_t)(n % 3 == 1));
            l.x.activation = (memopt_activation)act;
            if (n % 2) l.x.pre_activation = NULL;
            if (n % 5 == 0) l.x.bias = NULL;
            if (n % 7 == 0 && l.x.pre_activation) l.x.pre_activation = l.x.output; /* in place: as without */
            test_cuda_gemm_poison(&l.pre_activation); test_cuda_gemm_poison(&l.output);
            if (n % 3) l.x.residual = l.grad_output.d; /* for its numbers */
            if (n % 3 == 2 && (l.x.pre_activation ? l.x.pre_activation != l.x.output : !act)) {
                test_put(l.output.d, l.grad_output.host, l.output.bytes);
                l.x.residual = l.output.d;
            }
            CHECK_AT(memopt_cuda_linear_forward(&r.ops, &l.x, NULL) == 0, n);
            if (l.x.pre_activation == l.x.output) l.x.pre_activation = NULL;
            test_cuda_gemm_forward_check(&l, (uint64_t)n);
            test_cuda_gemm_layer_drop(&l);
        }
        CHECK(memopt_cuda_gemm_get_stats(r.gemm).products > 0);
        test_cuda_gemm_close(&r);
        r = test_cuda_gemm_open(0, 0, 0);
#ifndef __CUDACC__
        cublaslt_mock_refuse(how == 0 ? 34 : 38); /* no activations; no bias either */
#endif
    }
    test_cuda_gemm_close(&r);
}
static void test_cuda_gemm_epilogues(void) { /* which are used: as much as there is */
#ifndef __CUDACC__
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 65536);
    uint64_t seed = 12; size_t launches, found;
    test_cuda_gemm_layer l = test_cuda_gemm_layer_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 16, 16, 16, 0);
    test_cuda_gemm_layer odd = test_cuda_gemm_layer_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 16, 12, 12, 0);
    test_cuda_gemm_layer at_64 = test_cuda_gemm_layer_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 16, 16, 16, 32);
    launches = simulator_launches();
#define FORWARD(kind, wanted) do { l.x.activation = kind; CHECK(memopt_cuda_linear_forward(&r.ops, &l.x, NULL) == 0); CHECK(cublaslt_mock_last().epilogue == (wanted)); } while (0)
    FORWARD(MEMOPT_ACTIVATION_GELU, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    found = memopt_cuda_gemm_get_stats(r.gemm).heuristics; /* for addresses that are better aligned than these, at 64 */
    at_64.x.activation = MEMOPT_ACTIVATION_GELU;
    CHECK(memopt_cuda_linear_forward(&r.ops, &at_64.x, NULL) == 0 && memopt_cuda_gemm_get_stats(r.gemm).heuristics == found);
    l.x.pre_activation = NULL;
    FORWARD(MEMOPT_ACTIVATION_GELU, CUBLASLT_EPILOGUE_GELU_BIAS);
    FORWARD(MEMOPT_ACTIVATION_RELU, CUBLASLT_EPILOGUE_RELU_BIAS);
    FORWARD(MEMOPT_ACTIVATION_NONE, CUBLASLT_EPILOGUE_BIAS);
    l.x.bias = NULL;
    FORWARD(MEMOPT_ACTIVATION_NONE, CUBLASLT_EPILOGUE_DEFAULT);
    FORWARD(MEMOPT_ACTIVATION_GELU, CUBLASLT_EPILOGUE_GELU);
    CHECK(simulator_launches() == launches);
    l.x.bias = l.bias.d;
    l.x.residual = l.grad_output.d;
    FORWARD(MEMOPT_ACTIVATION_NONE, CUBLASLT_EPILOGUE_BIAS);
    CHECK(simulator_launches() == launches); /* added by the product */
    FORWARD(MEMOPT_ACTIVATION_GELU, CUBLASLT_EPILOGUE_BIAS);
    CHECK(simulator_launches() == launches + 1); /* activation and residual in one pass */
    l.x.residual = NULL;
    launches = simulator_launches();
    FORWARD(MEMOPT_ACTIVATION_SILU, CUBLASLT_EPILOGUE_BIAS);
    CHECK(simulator_launches() == launches + 1);
    odd.x.activation = MEMOPT_ACTIVATION_GELU; /* `before` has rows of 12 */
    CHECK(memopt_cuda_linear_forward(&r.ops, &odd.x, NULL) == 0 && cublaslt_mock_last().epilogue == CUBLASLT_EPILOGUE_BIAS);
    launches = simulator_launches();
    CHECK(memopt_cuda_linear_backward(&r.ops, &l.x, NULL) == 0 && cublaslt_mock_last().epilogue == CUBLASLT_EPILOGUE_BGRADB);
    CHECK(simulator_launches() == launches);
    l.x.grad_weights = NULL; l.x.grad_bias = NULL;
    CHECK(memopt_cuda_linear_backward_through(&r.ops, &l.x, MEMOPT_ACTIVATION_GELU, l.pre_activation.d, NULL) == 0);
    CHECK(cublaslt_mock_last().epilogue == CUBLASLT_EPILOGUE_DGELU && simulator_launches() == launches);
#undef FORWARD
    test_cuda_gemm_layer_drop(&l); test_cuda_gemm_layer_drop(&odd); test_cuda_gemm_layer_drop(&at_64);
    test_cuda_gemm_close(&r);
    r = test_cuda_gemm_open(TEST_CUDA_GEMM_DETERMINISTIC, 0, 65536); /* sums of biases are our own then */
    l = test_cuda_gemm_layer_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 16, 16, 16, 0);
    CHECK(memopt_cuda_linear_backward(&r.ops, &l.x, NULL) == 0 && cublaslt_mock_last().epilogue == CUBLASLT_EPILOGUE_DEFAULT);
    test_cuda_gemm_layer_drop(&l);
    test_cuda_gemm_close(&r);
#endif
}
/* got against a sum of `count` terms with sum `most` of their sizes, added onto `from` where accumulate */
static void test_cuda_gemm_near(const test_cuda_gemm_tensor *t, size_t i, double sum, double most, size_t count, int accumulate, double slack, uint64_t at) {
    const double half = test_cuda_gemm_half(t->type);
    if (accumulate) { sum += t->x[i]; most += fabs(t->x[i]); }
    CHECK_AT(fabs(test_cuda_gemm_now(t, i) - sum) <= ldexp((double)count + 4, -24) * most + half * fabs(sum) * 1.01 + slack * most + 1e-7, at);
}
static void test_cuda_gemm_backward_check(test_cuda_gemm_layer *l, int through, const test_cuda_gemm_tensor *pre_activation, uint64_t at) {
    const memopt_linear *x = &l->x; size_t i, j, k;
    test_cuda_gemm_fetch(&l->grad_input); test_cuda_gemm_fetch(&l->grad_weights); test_cuda_gemm_fetch(&l->grad_bias);
    for (i = 0; i < x->rows && x->grad_input; ++i) for (k = 0; k < x->inputs; ++k) {
        double sum = 0, most = 0; const double slope = through ? test_cuda_gemm_slope(through, pre_activation->x[i * x->inputs + k]) : 1;
        for (j = 0; j < x->outputs; ++j) { const double t = slope * l->grad_output.x[i * x->outputs + j] * l->weights.x[j * x->inputs + k]; sum += t; most += fabs(t); }
        test_cuda_gemm_near(&l->grad_input, i * x->inputs + k, sum, most + (through ? 1e-3 : 0), x->outputs, x->accumulate_input,
                            through ? 1.1 * test_cuda_gemm_half(x->type) + 1e-6 + (test_on_card() ? ldexp(1, -9) : 0) : 0, at);
    }
    for (j = 0; j < x->outputs; ++j) {
        double sum = 0, most = 0;
        for (k = 0; k < x->inputs && x->grad_weights; ++k) {
            for (sum = most = 0, i = 0; i < x->rows; ++i) { const double t = l->grad_output.x[i * x->outputs + j] * l->input.x[i * x->inputs + k]; sum += t; most += fabs(t); }
            test_cuda_gemm_near(&l->grad_weights, j * x->inputs + k, sum, most, x->rows, x->accumulate, 0, at);
        }
        for (sum = most = 0, i = 0; i < x->rows; ++i) { sum += l->grad_output.x[i * x->outputs + j]; most += fabs(l->grad_output.x[i * x->outputs + j]); }
        if (x->grad_bias) test_cuda_gemm_near(&l->grad_bias, j, sum, most, x->rows, x->accumulate, 0, at);
    }
}
static void test_cuda_gemm_backward(void) {
    static const size_t shapes[][3] = { { 1, 1, 1 }, { 5, 8, 3 }, { 33, 24, 40 }, { 70, 31, 33 }, { 0, 4, 7 }, { 130, 8, 260 }, { 3, 0, 5 } };
    uint64_t seed = 21; size_t s, bytes; int type, n = 0, how;
    for (how = 0; how < (test_on_card() ? 2 : 3); ++how) { /* all epilogues; a deterministic gemm; no epilogues */
        test_cuda_gemm_rig r = test_cuda_gemm_open(how == 1, 0, 1 << 20);
#ifndef __CUDACC__
        if (how == 2) cublaslt_mock_refuse(64 | 512);
#endif
        for (s = 0; s < sizeof shapes / sizeof shapes[0]; ++s) for (type = 0; type < 3; ++type, ++n) {
            const memopt_type gradient = n % 2 ? MEMOPT_TYPE_F32 : (memopt_type)type; const int through = n % 4;
            test_cuda_gemm_layer l = test_cuda_gemm_layer_make(&seed, (memopt_type)type, gradient, shapes[s][0], shapes[s][1], shapes[s][2], (size_t)(n % 3 == 1));
            test_cuda_gemm_tensor pre_activation = test_cuda_gemm_make(&seed, (memopt_type)type, shapes[s][0] * shapes[s][1], 0, 0);
            l.x.accumulate = n % 5 < 2; l.x.accumulate_input = through ? 0 : n % 3 == 0;
            if (n % 7 == 6) l.x.grad_weights = NULL;
            if (n % 11 == 5) l.x.grad_input = NULL;
            if (!l.x.accumulate) { test_cuda_gemm_poison(&l.grad_weights); test_cuda_gemm_poison(&l.grad_bias); }
            if (!l.x.accumulate_input) test_cuda_gemm_poison(&l.grad_input);
            CHECK(memopt_cuda_linear_scratch(&r.ops, &l.x, &bytes) == 0 && bytes <= r.ops.scratch_bytes);
            if (n % 2) CHECK_AT(memopt_cuda_linear_backward_through(&r.ops, &l.x, (memopt_activation)through, pre_activation.d, NULL) == 0, n);
            else { l.x.grad_input = NULL; CHECK_AT(memopt_cuda_linear_backward(&r.ops, &l.x, NULL) == 0, n); }
            test_cuda_gemm_backward_check(&l, through, &pre_activation, (uint64_t)n);
            test_cuda_gemm_layer_drop(&l); test_cuda_gemm_drop(&pre_activation);
        }
        test_cuda_gemm_close(&r);
    }
}
static void test_cuda_gemm_sums(void) { /* a bias' gradient by our kernels: the same bits in every order of threads */
    static const size_t shapes[][2] = { { 1, 31 }, { 65, 33 }, { 200, 264 }, { 1000, 8 }, { 130, 513 } };
    uint64_t seed = 31; size_t s, i, bytes = 0; int type, n = 0;
    test_cuda_gemm_rig r = test_cuda_gemm_open(1, 0, 1 << 20);
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; ++s) for (type = 0; type < 3; ++type, ++n) {
        test_cuda_gemm_layer l = test_cuda_gemm_layer_make(&seed, (memopt_type)type, MEMOPT_TYPE_F32, shapes[s][0], 1, shapes[s][1], (size_t)(n % 2));
        float *first = (float *)malloc(l.grad_bias.bytes); int again = 0;
        l.x.grad_input = l.x.grad_weights = NULL;
        CHECK(memopt_cuda_linear_scratch(&r.ops, &l.x, &bytes) == 0);
        r.ops.d_scratch = test_device(bytes); r.ops.scratch_bytes = bytes; /* exactly */
        TEST_SCHEDULES(8) {
            test_cuda_gemm_poison(&l.grad_bias);
            CHECK_AT(memopt_cuda_linear_backward(&r.ops, &l.x, NULL) == 0, n);
            test_cuda_gemm_fetch(&l.grad_bias);
            if (!again++) memcpy(first, l.grad_bias.host, l.grad_bias.bytes);
            CHECK_AT(!memcmp(first, l.grad_bias.host, l.grad_bias.bytes), n);
        }
        test_cuda_gemm_backward_check(&l, 0, NULL, (uint64_t)n);
        for (i = 0; i < l.grad_bias.n; ++i) l.grad_bias.x[i] = test_cuda_gemm_now(&l.grad_bias, i);
        l.x.accumulate = 1;
        CHECK(memopt_cuda_linear_backward(&r.ops, &l.x, NULL) == 0);
        test_cuda_gemm_backward_check(&l, 0, NULL, (uint64_t)n);
        r.ops.scratch_bytes = bytes - 1;
        CHECK(memopt_cuda_linear_backward(&r.ops, &l.x, NULL) == MEMOPT_ERR_BUFFER);
        free(first);
        test_cuda_gemm_layer_drop(&l);
    }
    test_cuda_gemm_close(&r);
}
static void test_cuda_gemm_linear_bad(void) {
    test_cuda_gemm_rig r = test_cuda_gemm_open(0, 0, 65536);
    uint64_t seed = 41; size_t i, k, bytes = 0;
    test_cuda_gemm_layer l = test_cuda_gemm_layer_make(&seed, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 8, 8, 8, 0);
    memopt_cuda_ops none; memopt_linear x;
    memset(&none, 0, sizeof none);
#define FORWARD(change, status) do { x = l.x; change; CHECK(memopt_cuda_linear_forward(&r.ops, &x, NULL) == (status)); } while (0)
#define BACKWARD(change, status) do { x = l.x; change; CHECK(memopt_cuda_linear_backward(&r.ops, &x, NULL) == (status)); } while (0)
    CHECK(memopt_cuda_linear_forward(NULL, &l.x, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_linear_forward(&none, &l.x, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_linear_forward(&r.ops, NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_cuda_linear_backward(&r.ops, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_linear_scratch(&r.ops, &l.x, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_linear_scratch(&r.ops, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    FORWARD(x.input = NULL, MEMOPT_CUDA_ERR_NULL);
    FORWARD(x.weights = NULL, MEMOPT_CUDA_ERR_NULL);
    FORWARD(x.output = NULL, MEMOPT_CUDA_ERR_NULL);
    FORWARD(x.output = (char *)x.output + 1, MEMOPT_CUDA_ERR_ALIGNMENT);
    FORWARD(x.bias = (const char *)x.bias + 1, MEMOPT_CUDA_ERR_ALIGNMENT);
    FORWARD(x.pre_activation = (char *)x.pre_activation + 1, MEMOPT_CUDA_ERR_ALIGNMENT);
    FORWARD(x.weight_type = MEMOPT_TYPE_F32, MEMOPT_CUDA_ERR_TYPE);
    FORWARD(x.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    FORWARD(x.rows = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    FORWARD((x.residual = x.output, x.pre_activation = NULL, x.activation = MEMOPT_ACTIVATION_SILU), MEMOPT_CUDA_ERR_OVERLAP);
    FORWARD((x.residual = x.output, x.pre_activation = x.output, x.activation = MEMOPT_ACTIVATION_RELU), MEMOPT_CUDA_ERR_OVERLAP);
    FORWARD((x.residual = (char *)x.output + 2, x.pre_activation = NULL), MEMOPT_CUDA_ERR_OVERLAP);
    FORWARD(x.residual = x.pre_activation, MEMOPT_CUDA_ERR_OVERLAP);
    FORWARD(x.residual = (char *)x.output + 1, MEMOPT_CUDA_ERR_ALIGNMENT);
    FORWARD(x.output = (void *)(uintptr_t)x.input, MEMOPT_CUDA_ERR_OVERLAP);
    FORWARD(x.pre_activation = (char *)x.output + 2, MEMOPT_CUDA_ERR_OVERLAP);
    FORWARD((x.rows = 0, x.input = x.output = NULL), 0);
    BACKWARD(x.grad_output = NULL, MEMOPT_CUDA_ERR_NULL);
    BACKWARD(x.weights = NULL, MEMOPT_CUDA_ERR_NULL);
    BACKWARD(x.input = NULL, MEMOPT_CUDA_ERR_NULL);
    BACKWARD(x.grad_bias = (char *)x.grad_bias + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
    BACKWARD(x.grad_weights = (char *)x.grad_weights + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
    BACKWARD(x.gradient_type = MEMOPT_TYPE_F16, MEMOPT_CUDA_ERR_TYPE);
    BACKWARD(x.accumulate = 2, MEMOPT_ERR_ARGUMENT);
    BACKWARD(x.accumulate_input = -1, MEMOPT_ERR_ARGUMENT);
    BACKWARD(x.grad_input = (void *)(uintptr_t)x.grad_output, MEMOPT_CUDA_ERR_OVERLAP);
    BACKWARD(r.ops.d_scratch = (char *)r.ops.d_scratch + 16, MEMOPT_CUDA_ERR_ALIGNMENT);
    r.ops.d_scratch = (char *)r.ops.d_scratch - 16;
    x = l.x; x.accumulate_input = 1;
    CHECK(memopt_cuda_linear_backward_through(&r.ops, &x, MEMOPT_ACTIVATION_GELU, l.pre_activation.d, NULL)
          == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_linear_backward_through(&r.ops, &l.x, MEMOPT_ACTIVATION_GELU, NULL, NULL)
          == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_linear_backward_through(&r.ops, &l.x, MEMOPT_ACTIVATION_GELU, l.grad_input.d, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
#ifndef __CUDACC__
    for (k = 1; k < 4; ++k) { /* no algorithm for any of the products: nothing has been written */
        cublaslt_mock_refuse(64 | 512);
        cublaslt_mock_no_algorithm(k + (k > 1));
        if (k == 3) cublaslt_mock_no_algorithm(SIZE_MAX);
        if (k == 1) FORWARD(cublaslt_mock_no_algorithm(SIZE_MAX), MEMOPT_CUDA_ERR_NO_ALGORITHM);
        cublaslt_mock_no_algorithm(SIZE_MAX);
        BACKWARD((void)0, MEMOPT_CUDA_ERR_NO_ALGORITHM);
    }
    simulator_pending_error(cudaErrorIllegalAddress);
    FORWARD((void)0, MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress);
    BACKWARD((void)0, MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress);
    simulator_pending_error(0);
#else
    (void)k;
#endif
    test_get(l.output.host, l.output.d, l.output.bytes); test_get(l.grad_input.host, l.grad_input.d, l.grad_input.bytes); test_get(l.grad_weights.host, l.grad_weights.d, l.grad_weights.bytes);
    for (i = 0; i < 64; ++i) CHECK_AT(test_cuda_gemm_now(&l.output, i) == l.output.x[i] && test_cuda_gemm_now(&l.grad_input, i) == l.grad_input.x[i] && test_cuda_gemm_now(&l.grad_weights, i) == l.grad_weights.x[i], i);
#undef FORWARD
#undef BACKWARD
    test_cuda_gemm_layer_drop(&l);
    test_cuda_gemm_close(&r);
}
static void test_cuda_gemm_repeats(void) { /* sums that are long and few, which are split: the same bits in every run */
    enum { TURNS = 100, ROWS = 16384, WIDTH = 64 };
    uint64_t seed = 61; int how, type, turn;
    if (!test_on_card()) { SKIP("only a card adds in an order that could be another one"); return; }
    for (how = 0; how < 2; ++how) for (type = MEMOPT_TYPE_F32; type <= MEMOPT_TYPE_BF16; ++type) {
        test_cuda_gemm_rig r = test_cuda_gemm_open(how, 0, 1 << 20);
        test_cuda_gemm_layer l = test_cuda_gemm_layer_make(&seed, (memopt_type)type, MEMOPT_TYPE_F32, ROWS, WIDTH, WIDTH, 0);
        unsigned char *first = (unsigned char *)malloc(l.grad_weights.bytes + l.grad_bias.bytes);
        for (turn = 0; turn < TURNS; ++turn) {
            CHECK(memopt_cuda_linear_backward(&r.ops, &l.x, NULL) == 0);
            test_cuda_gemm_fetch(&l.grad_weights); test_cuda_gemm_fetch(&l.grad_bias);
            if (!turn) { memcpy(first, l.grad_weights.host, l.grad_weights.bytes); memcpy(first + l.grad_weights.bytes, l.grad_bias.host, l.grad_bias.bytes); }
            CHECK_AT(!memcmp(first, l.grad_weights.host, l.grad_weights.bytes), turn);
            CHECK_AT(!memcmp(first + l.grad_weights.bytes, l.grad_bias.host, l.grad_bias.bytes), turn);
        }
        free(first);
        test_cuda_gemm_layer_drop(&l);
        test_cuda_gemm_close(&r);
    }
}
static void test_cuda_gemm_linear_faults(void) { /* the k-th call into cuBLASLt, the k-th launch, the k-th call into CUDA fails */
#ifndef __CUDACC__
    size_t k; int how; uint64_t seed = 51;
    for (how = 0; how < 3; ++how)
        for (k = 1; k < 20; ++k) {
            test_cuda_gemm_rig r = test_cuda_gemm_open(1, 0, 65536); memopt_cuda_status s, t;
            test_cuda_gemm_layer l = test_cuda_gemm_layer_make(&seed, MEMOPT_TYPE_F16, MEMOPT_TYPE_F32, 8, 8, 8, 0);
            l.x.activation = MEMOPT_ACTIVATION_SILU;
            if (how == 2) simulator_fail_call(k); else if (how) simulator_fail_launch(k); else cublaslt_mock_fail(k, CUBLAS_STATUS_EXECUTION_FAILED);
            s = memopt_cuda_linear_forward(&r.ops, &l.x, NULL);
            t = s ? 0 : memopt_cuda_linear_backward_through(&r.ops, &l.x, MEMOPT_ACTIVATION_SILU, l.pre_activation.d,
                                                            NULL);
            if (how == 2) simulator_fail_call(0); else if (how) simulator_fail_launch(0); else cublaslt_mock_fail(0, 0);
            test_cuda_gemm_layer_drop(&l);
            test_cuda_gemm_close(&r);
            if (!s && !t) break;
            CHECK_AT(how == 2 || (s ? s : t) == (how ? MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources : MEMOPT_CUDA_BASE_BLAS + (int)CUBLAS_STATUS_EXECUTION_FAILED), k);
            CHECK(cudaPeekAtLastError() == cudaSuccess);
        }
    CHECK(k > 3 && k < 20);
#endif
}
static void test_cuda_gemm(void) {
    RUN(test_cuda_gemm_products);
    RUN(test_cuda_gemm_large);
    RUN(test_cuda_gemm_batches);
    RUN(test_cuda_gemm_table);
    RUN(test_cuda_gemm_switches);
    RUN(test_cuda_gemm_bad);
    RUN(test_cuda_gemm_faults);
#ifndef __CUDACC__
    RUN(test_cuda_gemm_onto_bias);
#endif
    RUN(test_cuda_gemm_fp8);
    RUN(test_cuda_gemm_forward);
    RUN(test_cuda_gemm_epilogues);
    RUN(test_cuda_gemm_backward);
    RUN(test_cuda_gemm_sums);
    RUN(test_cuda_gemm_linear_bad);
    RUN(test_cuda_gemm_linear_faults);
    RUN(test_cuda_gemm_repeats);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_gemm(); return test_totals(); }
#endif
