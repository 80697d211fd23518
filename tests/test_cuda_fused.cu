/* test_cuda_fused.cu - passes of one's own on the device, against the same pass of memopt.h from a line of text, of
   which test_fused.c knows that it is right. */
#include "test_cuda.h"

/* y = residual + dropout(gelu(x * scale + bias)); z = x - center */
struct fused_end {
    memopt_cuda_fused_noise noise;

    __device__ void operator()(size_t i, float x, float bias, float scale, float residual, float center, float &y, float &z) const {
        y = memopt_cuda_fused_dropout_onto(noise, i, memopt_cuda_fused_gelu(fmaf(x, scale, bias)), residual);
        z = memopt_i_sum(x, -center);
    }
};
/* dx = gelu_gradient(x, dropout(dy)); sums = row_sum(x * x); most = row_max(x) */
struct fused_back {
    memopt_cuda_fused_noise noise;

    __device__ void operator()(size_t i, float x, float dy, float &dx, float &sum, float &most) const {
        dx = memopt_cuda_fused_gradient(MEMOPT_ACTIVATION_GELU, x, memopt_cuda_fused_dropout(noise, i, dy));
        sum = memopt_i_times(x, x);
        most = x;
    }
};
struct fused_flat_chain { /* y = silu(a) * b + exp(relu(c)) */
    __device__ void operator()(size_t, float a, float b, float c, float &y) const {
        y = fmaf(memopt_cuda_fused_silu(a), b, memopt_cuda_fused_exp(memopt_cuda_fused_relu(c)));
    }
};

typedef struct fused_memory { unsigned char *here, *back, *there; size_t n, bytes; memopt_type type; } fused_memory;
static fused_memory fused_make(size_t n, memopt_type type, int misaligned, uint64_t seed) {
    fused_memory m; size_t i;
    m.n = n; m.type = type; m.bytes = n * memopt_type_bytes(type);
    m.here = (unsigned char *)malloc(m.bytes + 16); m.back = (unsigned char *)malloc(m.bytes + 16);
    memset(m.here, 0xFF, m.bytes + 16);
    for (i = 0; seed && i < n; ++i) {
        const float x = (float)(test_random(&seed) % 16384) / 2048.0f - 4.0f; const uint16_t code = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
        if (type == MEMOPT_TYPE_F32) memcpy(m.here + 4 * i, &x, 4); else memcpy(m.here + 2 * i, &code, 2);
    }
    m.there = (unsigned char *)test_device_at(m.bytes, misaligned ? memopt_type_bytes(type) : 0);
    test_put(m.there, m.here, m.bytes);
    return m;
}
static bool fused_same(const fused_memory *m) {
    test_get(m->back, m->there, m->bytes);
    return !memcmp(m->here, m->back, m->bytes);
}
static void fused_drop(fused_memory *m) { free(m->here); free(m->back); }
static float fused_at(const unsigned char *p, memopt_type type, size_t i) {
    float x; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, p + 4 * i, 4); return x; }
    memcpy(&code, p + 2 * i, 2);
    return type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(code) : memopt_from_f16(code);
}
static memopt_fused_array fused_of(const char *name, const fused_memory *m, memopt_fused_shape shape, int reads, int writes, size_t stride) {
    memopt_fused_array a = { name, m->type, shape, reads ? m->here : NULL, writes ? m->here : NULL, stride };
    return a;
}
#define FUSED_CODE(T) (memopt_i_cuda::type_of<T>::CODE)

/* Rows with a stride, a bias, numbers of rows and of all; A, B: types of input and output */
template <class A, class B> static void fused_end_case(size_t rows, size_t columns, size_t more, int misaligned) {
    const size_t stride = columns + more, first = 7 * columns; const memopt_noise noise = memopt_noise_make(3, rows);
    fused_memory x = fused_make(rows * stride, FUSED_CODE(A), misaligned & 1, 1 + columns), residual = fused_make(rows * columns, FUSED_CODE(B), misaligned & 2, 2 + columns);
    fused_memory bias = fused_make(columns, FUSED_CODE(B), misaligned & 1, 3), scale = fused_make(1, MEMOPT_TYPE_F32, 0, 4), center = fused_make(rows, FUSED_CODE(A), 0, 5);
    fused_memory y = fused_make(rows * columns, FUSED_CODE(B), misaligned & 4, 0), z = fused_make(rows * stride, FUSED_CODE(A), misaligned & 1, 6);
    const memopt_fused_array arrays[] = { fused_of("x", &x, MEMOPT_FUSED_EACH, 1, 0, stride), fused_of("bias", &bias, MEMOPT_FUSED_ROW, 1, 0, 0),
        fused_of("scale", &scale, MEMOPT_FUSED_ONE, 1, 0, 0), fused_of("residual", &residual, MEMOPT_FUSED_EACH, 1, 0, 0),
        fused_of("center", &center, MEMOPT_FUSED_COLUMN, 1, 0, 0), fused_of("y", &y, MEMOPT_FUSED_EACH, 0, 1, 0), fused_of("z", &z, MEMOPT_FUSED_EACH, 0, 1, stride) };
    memopt_fused pass = { "y = residual + dropout(gelu(x * scale + bias)); z = x - center", rows, columns, arrays, 7, 0.3f, noise, first };
    const fused_end f = { memopt_cuda_fused_dropout_make(0.3f, noise, first) };
    CHECK(memopt_fused_run(NULL, &pass) == MEMOPT_OK);
    CHECK(memopt_cuda_fused_run(f, rows, columns, memopt_cuda_fused_arrays(memopt_cuda_fused_each((const A *)x.there, stride), memopt_cuda_fused_row((const B *)bias.there),
        memopt_cuda_fused_one((const float *)scale.there), memopt_cuda_fused_each((const B *)residual.there), memopt_cuda_fused_column((const A *)center.there),
        memopt_cuda_fused_each((B *)y.there), memopt_cuda_fused_each((A *)z.there, stride)), NULL) == 0);
    CHECK_AT(fused_same(&y) && fused_same(&z) && fused_same(&x) && fused_same(&residual), rows * 10000 + columns);
    fused_drop(&x); fused_drop(&residual); fused_drop(&bias); fused_drop(&scale); fused_drop(&center); fused_drop(&y); fused_drop(&z);
    test_device_free(0);
}
static void fused_rows(void) {
    static const size_t shapes[][3] = { { 1, 1, 0 }, { 3, 8, 8 }, { 5, 33, 0 }, { 2, 257, 7 }, { 7, 64, 0 }, { 3, 2100, 12 }, { 40, 16, 1 } };
    TEST_SCHEDULES(2)
        for (int k = 0; k < 7; ++k) for (int misaligned = 0; misaligned < 8; misaligned += 3) {
            fused_end_case<float, float>(shapes[k][0], shapes[k][1], shapes[k][2], misaligned);
            fused_end_case<memopt_cuda_bf16, memopt_cuda_bf16>(shapes[k][0], shapes[k][1], shapes[k][2], misaligned);
            fused_end_case<memopt_cuda_bf16, float>(shapes[k][0], shapes[k][1], shapes[k][2], misaligned);
            fused_end_case<float, memopt_cuda_f16>(shapes[k][0], shapes[k][1], shapes[k][2], misaligned);
        }
}
/* Sums and maxima of rows, and dx in the place of dy */
template <class A, class B> static void fused_sums_case(size_t rows, size_t columns, int misaligned) {
    const memopt_noise noise = memopt_noise_make(5, columns); size_t r, c;
    fused_memory x = fused_make(rows * columns, FUSED_CODE(A), misaligned & 1, 1 + columns), dy = fused_make(rows * columns, FUSED_CODE(B), misaligned & 2, 2 + columns);
    fused_memory sums = fused_make(rows, MEMOPT_TYPE_F32, 0, 0), most = fused_make(rows, FUSED_CODE(A), 0, 0);
    const memopt_fused_array arrays[] = { fused_of("x", &x, MEMOPT_FUSED_EACH, 1, 0, 0), fused_of("dy", &dy, MEMOPT_FUSED_EACH, 1, 1, 0), fused_of("most", &most, MEMOPT_FUSED_COLUMN, 0, 1, 0) };
    memopt_fused pass = { "dy = gelu_gradient(x, dropout(dy)); most = row_max(x)", rows, columns, arrays, 3, 0.5f, noise, 0 };
    const fused_back f = { memopt_cuda_fused_dropout_make(0.5f, noise, 0) };
    CHECK(memopt_fused_run(NULL, &pass) == MEMOPT_OK);
    CHECK(memopt_cuda_fused_run(f, rows, columns, memopt_cuda_fused_arrays(memopt_cuda_fused_each((const A *)x.there), memopt_cuda_fused_each((const B *)dy.there),
        memopt_cuda_fused_each((B *)dy.there), memopt_cuda_fused_row_sum((float *)sums.there), memopt_cuda_fused_row_max((A *)most.there)), NULL) == 0);
    CHECK_AT(fused_same(&dy) && fused_same(&most), rows * 10000 + columns);
    test_get(sums.back, sums.there, sums.bytes);
    for (r = 0; r < rows; ++r) {
        double sum = 0;
        for (c = 0; c < columns; ++c) { const double v = (double)fused_at(x.here, FUSED_CODE(A), r * columns + c); sum += v * v; }
        CHECK_AT(fabs((double)fused_at(sums.back, MEMOPT_TYPE_F32, r) - sum) <= 1e-6 * sum, r * 10000 + columns);
    }
    fused_drop(&x); fused_drop(&dy); fused_drop(&sums); fused_drop(&most);
    test_device_free(0);
}
static void fused_sums(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 300, 3 }, { 5, 33 }, { 9, 257 }, { 3, 4099 }, { 2, 20000 }, { 17, 64 }, { 4, 0 } };
    TEST_SCHEDULES(3)
        for (int k = 0; k < 8; ++k) {
            fused_sums_case<float, float>(shapes[k][0], shapes[k][1], k);
            fused_sums_case<memopt_cuda_bf16, memopt_cuda_bf16>(shapes[k][0], shapes[k][1], k + 1);
            fused_sums_case<memopt_cuda_f16, float>(shapes[k][0], shapes[k][1], k + 2);
        }
}
/* A maximum of what is hard: NaN, -0, infinities; two rows of a block, and one of many threads */
static void fused_hard(void) {
    static const uint32_t hard[] = { 0x80000000u, 0xff800000u, 0x7f800000u, 0x7fc00000u, 0u, 0xbf800000u };
    for (size_t columns = 1; columns < 4000; columns = columns * 5 + 2)
        for (size_t k = 0; k < 6; ++k) {
            fused_memory x = fused_make(3 * columns, MEMOPT_TYPE_F32, 0, 0), dy = fused_make(3 * columns, MEMOPT_TYPE_F32, 0, 9), out = fused_make(3, MEMOPT_TYPE_F32, 0, 0);
            const memopt_fused_array arrays[] = { fused_of("x", &x, MEMOPT_FUSED_EACH, 1, 0, 0), fused_of("m", &out, MEMOPT_FUSED_COLUMN, 0, 1, 0) };
            const memopt_fused pass = { "m = row_max(x)", 3, columns, arrays, 2, 0, memopt_noise_make(1, 1), 0 };
            const fused_back f = { memopt_cuda_fused_dropout_make(0, memopt_noise_make(1, 1), 0) }; float *sums = (float *)test_device(3 * 4);
            for (size_t i = 0; i < 3 * columns; ++i) { const uint32_t least = k % 2 ? 0xff7fffffu : 0x80000000u; memcpy(x.here + 4 * i, i == columns + columns * 2 / 3 ? &hard[k] : &least, 4); }
            test_put(x.there, x.here, x.bytes);
            CHECK(memopt_fused_run(NULL, &pass) == MEMOPT_OK);
            CHECK(memopt_cuda_fused_run(f, 3, columns, memopt_cuda_fused_arrays(memopt_cuda_fused_each((const float *)x.there), memopt_cuda_fused_each((const float *)dy.there),
                memopt_cuda_fused_each((float *)dy.there), memopt_cuda_fused_row_sum(sums), memopt_cuda_fused_row_max((float *)out.there)), NULL) == 0);
            test_get(out.back, out.there, 12);
            for (size_t r = 0; r < 3; ++r) {
                const float want = fused_at(out.here, MEMOPT_TYPE_F32, r), got = fused_at(out.back, MEMOPT_TYPE_F32, r);
                CHECK_AT(want != want ? got != got : memopt_i_float_bits(want) == memopt_i_float_bits(got), columns * 10 + k);
            }
            fused_drop(&x); fused_drop(&dy); fused_drop(&out);
            test_device_free(0);
        }
}
static void fused_flat(void) { /* one long row, mixed types */
    TEST_SCHEDULES(2)
        for (size_t n = 1; n < 40000; n = n * 3 + 1) for (int misaligned = 0; misaligned < 2; ++misaligned) {
            fused_memory a = fused_make(n, MEMOPT_TYPE_BF16, misaligned, 1), b = fused_make(n, MEMOPT_TYPE_F16, 0, 2), c = fused_make(n, MEMOPT_TYPE_F32, 0, 3), y = fused_make(n, MEMOPT_TYPE_BF16, 0, 0);
            const memopt_fused_array arrays[] = { fused_of("a", &a, MEMOPT_FUSED_EACH, 1, 0, 0), fused_of("b", &b, MEMOPT_FUSED_EACH, 1, 0, 0), fused_of("c", &c, MEMOPT_FUSED_EACH, 1, 0, 0), fused_of("y", &y, MEMOPT_FUSED_EACH, 0, 1, 0) };
            const memopt_fused pass = { "y = silu(a) * b + exp(relu(c))", 1, n, arrays, 4, 0, memopt_noise_make(1, 1), 0 };
            CHECK(memopt_fused_run(NULL, &pass) == MEMOPT_OK);
            CHECK(memopt_cuda_fused_run(fused_flat_chain(), n % 2 ? 1 : n, n % 2 ? n : 1, memopt_cuda_fused_arrays(memopt_cuda_fused_each((const memopt_cuda_bf16 *)a.there),
                memopt_cuda_fused_each((const memopt_cuda_f16 *)b.there), memopt_cuda_fused_each((const float *)c.there), memopt_cuda_fused_each((memopt_cuda_bf16 *)y.there)), NULL) == 0);
            CHECK_AT(fused_same(&y), n);
            fused_drop(&a); fused_drop(&b); fused_drop(&c); fused_drop(&y);
            test_device_free(0);
        }
}
struct fused_one_array { __device__ void operator()(size_t, float a, float &y) const { y = memopt_cuda_fused_silu(a); } };
static void fused_turns(void) { /* one array: four spans of a thread */
    for (size_t n = 1000; n < 40000; n = n * 3 + 1) {
        fused_memory a = fused_make(n, MEMOPT_TYPE_BF16, 0, 1), y = fused_make(n, MEMOPT_TYPE_BF16, 0, 0);
        const memopt_fused_array arrays[] = { fused_of("a", &a, MEMOPT_FUSED_EACH, 1, 0, 0), fused_of("y", &y, MEMOPT_FUSED_EACH, 0, 1, 0) };
        const memopt_fused pass = { "y = silu(a)", 1, n, arrays, 2, 0, memopt_noise_make(1, 1), 0 };
        CHECK(memopt_fused_run(NULL, &pass) == MEMOPT_OK);
        CHECK(memopt_cuda_fused_run(fused_one_array(), 1, n, memopt_cuda_fused_arrays(memopt_cuda_fused_each((const memopt_cuda_bf16 *)a.there), memopt_cuda_fused_each((memopt_cuda_bf16 *)y.there)), NULL) == 0);
        CHECK_AT(fused_same(&y), n);
        fused_drop(&a); fused_drop(&y);
        test_device_free(0);
    }
}
static void fused_refused(void) {
    float *d = (float *)test_device(4096); unsigned char *bytes = (unsigned char *)d;
    const memopt_cuda_fused_noise none = memopt_cuda_fused_dropout_make(0, memopt_noise_make(1, 1), 0); const fused_back f = { none };
#define RUN_IT(rows, columns, x, dy, dx, sum, most) memopt_cuda_fused_run(f, rows, columns, memopt_cuda_fused_arrays(x, dy, dx, \
        memopt_cuda_fused_row_sum((float *)(void *)(sum)), memopt_cuda_fused_row_max((float *)(void *)(most))), NULL)
#define IN(p, stride) memopt_cuda_fused_each((const float *)(const void *)(p), stride)
#define OUT(p, stride) memopt_cuda_fused_each((float *)(void *)(p), stride)
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 98) == 0);
    CHECK(RUN_IT(2, 16, IN(NULL, 16), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 98) == MEMOPT_CUDA_ERR_NULL);
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(NULL, 16), d + 96, d + 98) == MEMOPT_CUDA_ERR_NULL);
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(d + 64, 16), NULL, d + 98) == MEMOPT_CUDA_ERR_NULL);
    CHECK(RUN_IT(2, 16, IN(bytes + 2, 16), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 98) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(RUN_IT(2, 16, IN(d, 15), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 98) == MEMOPT_CUDA_ERR_STRIDE);
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(d + 1, 16), d + 96, d + 98) == MEMOPT_CUDA_ERR_OVERLAP); /* not in place */
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(d, 32), d + 96, d + 98) == MEMOPT_CUDA_ERR_OVERLAP);     /* another stride */
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 97) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 96) == MEMOPT_CUDA_ERR_OVERLAP); /* two results */
    CHECK(RUN_IT(2, 16, IN(d, 48), IN(d + 16, 48), OUT(d + 32, 48), d + 96, d + 98) == 0); /* side by side in rows */
    CHECK(RUN_IT(2, 16, IN(d, 32), IN(d + 128, 16), OUT(d + 16, 64), d + 96, d + 98) == 0); /* rows between rows, strides that differ */
    CHECK(RUN_IT(3, 16, IN(d, 32), IN(d + 256, 16), OUT(d + 16, 48), d + 200, d + 204) == MEMOPT_CUDA_ERR_OVERLAP); /* the third meets the second */
    CHECK(RUN_IT(SIZE_MAX / 8, 16, IN(d, 16), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 98) == MEMOPT_ERR_OVERFLOW);
    CHECK(RUN_IT(0, 16, IN(NULL, 16), IN(NULL, 16), OUT(NULL, 16), NULL, NULL) == 0);
    CHECK(memopt_cuda_fused_run(fused_one_array(), 2, 0, memopt_cuda_fused_arrays(memopt_cuda_fused_column((const float *)NULL), memopt_cuda_fused_row_sum(d)), NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_fused_run(fused_one_array(), 2, 0, memopt_cuda_fused_arrays(memopt_cuda_fused_one((const float *)NULL), memopt_cuda_fused_row_sum(d)), NULL) == MEMOPT_CUDA_ERR_NULL);
#ifndef __CUDACC__
    simulator_pending_error(cudaErrorIllegalAddress);
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 98) == MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
    simulator_pending_error(0);
    simulator_fail_launch(1);
    CHECK(RUN_IT(2, 16, IN(d, 16), IN(d + 32, 16), OUT(d + 64, 16), d + 96, d + 98) == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
    simulator_fail_launch(0);
#endif
#undef RUN_IT
#undef IN
#undef OUT
}
#undef FUSED_CODE
static void test_cuda_fused(void) {
    RUN(fused_rows);
    RUN(fused_sums);
    RUN(fused_hard);
    RUN(fused_flat);
    RUN(fused_turns);
    RUN(fused_refused);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_fused(); return test_totals(); }
#endif
