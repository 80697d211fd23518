/* test_cuda_fp8.cu - matrices as 8-bit floats on the device: the bytes of memopt_fp8_quantize(), of which test_fp8.c
   knows that they are right; and a linear layer in 8 bits, forward and backward, against float64. */
#include "test_cuda.h"
#ifndef __CUDACC__
#  include "cublaslt_mock.h"
#endif

static float cuda_fp8_value(uint64_t *seed, int hard) {
    static const uint32_t odd[] = { 0x7fc00000u, 0xff800000u, 0x7f800000u, 0x80000000u, 0u, 1u, 0x3f880000u, 0x3f980000u, 0xbf900000u };
    const uint64_t r = test_random(seed);
    if (hard && r % 7 == 0) return memopt_i_bits_float(odd[r / 7 % (sizeof odd / sizeof *odd)]);
    return ((float)(r >> 40) * (1.0f / 8388608.0f) - 1.0f) * (r & 64 ? 3.0f : r & 128 ? 0.001f : 100.0f);
}
typedef struct cuda_fp8_pair { memopt_fp8 here, there; memopt_fp8_scale scale; uint8_t *back; size_t n; } cuda_fp8_pair;
static cuda_fp8_pair cuda_fp8_open(size_t rows, size_t columns, memopt_type type, memopt_fp8_format format, int misaligned) {
    cuda_fp8_pair p; const size_t n = rows * columns, size = memopt_type_bytes(type);
    memset(&p, 0, sizeof p);
    p.n = n;
    p.here.rows = rows; p.here.columns = columns; p.here.type = type; p.here.format = format; p.there = p.here;
    p.here.input = malloc(n * size + 1); p.here.codes = (uint8_t *)malloc(n + 1); p.here.transposed = (uint8_t *)malloc(n + 1); p.here.scale = &p.scale; p.back = (uint8_t *)malloc(n + 1);
    p.there.input = test_device_at(n * size, misaligned & 1 ? size : 0); p.there.codes = (uint8_t *)test_device_at(n, misaligned & 2 ? 3 : 0);
    p.there.transposed = (uint8_t *)test_device_at(n, misaligned & 4 ? 5 : 0); p.there.scale = (memopt_fp8_scale *)test_device(sizeof p.scale);
    test_put(p.there.scale, &p.scale, sizeof p.scale);
    return p;
}
static void cuda_fp8_close(cuda_fp8_pair *p) {
    free((void *)(uintptr_t)p->here.input); free(p->here.codes); free(p->here.transposed); free(p->back);
}
static void cuda_fp8_feed(cuda_fp8_pair *p, uint64_t seed, int hard, float factor) {
    unsigned char *in = (unsigned char *)(uintptr_t)p->here.input; size_t i;
    for (i = 0; i < p->n; ++i) {
        const float x = cuda_fp8_value(&seed, hard) * factor; const uint16_t code = p->here.type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
        if (p->here.type == MEMOPT_TYPE_F32) memcpy(in + 4 * i, &x, 4); else memcpy(in + 2 * i, &code, 2);
    }
    test_put((void *)(uintptr_t)p->there.input, in, p->n * memopt_type_bytes(p->here.type));
}
static bool cuda_fp8_same(const cuda_fp8_pair *p) {
    memopt_fp8_scale scale;
    test_get(&scale, p->there.scale, sizeof scale);
    if (memcmp(&scale, &p->scale, sizeof scale)) return 0;
    if (p->there.codes) { test_get(p->back, p->there.codes, p->n); if (memcmp(p->back, p->here.codes, p->n)) return 0; }
    if (p->there.transposed) { test_get(p->back, p->there.transposed, p->n); if (memcmp(p->back, p->here.transposed, p->n)) return 0; }
    return 1;
}
static void cuda_fp8_matrices(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 16, 16 }, { 64, 64 }, { 65, 63 }, { 130, 208 }, { 1, 300 }, { 300, 1 }, { 48, 96 }, { 0, 5 } };
    int n = 0;
    TEST_SCHEDULES(3)
        for (int k = 0; k < 9; ++k) for (int type = 0; type < 3; ++type) for (int format = 0; format < 2; ++format, ++n) {
            cuda_fp8_pair p = cuda_fp8_open(shapes[k][0], shapes[k][1], (memopt_type)type, (memopt_fp8_format)format, n % 3 ? 0 : n % 8);
            if (n % 5 == 1) { free(p.here.codes); p.here.codes = p.there.codes = NULL; }
            if (n % 7 == 1) { free(p.here.transposed); p.here.transposed = p.there.transposed = NULL; }
            p.here.delayed = p.there.delayed = n % 2;
            for (int t = 0; t < 3; ++t) { /* the first by its own, then by those before */
                cuda_fp8_feed(&p, (uint64_t)n * 10 + (uint64_t)t, n % 3 == 1, t == 1 ? 4.0f : 1.0f);
                CHECK(memopt_fp8_quantize(&p.here, NULL) == MEMOPT_OK);
                CHECK(memopt_cuda_fp8_quantize(&p.there, NULL) == 0);
                CHECK_AT(cuda_fp8_same(&p), n * 10 + t);
            }
            cuda_fp8_close(&p);
            test_device_free(0);
        }
}
static void cuda_fp8_history(void) { /* longer than it is kept */
    cuda_fp8_pair p = cuda_fp8_open(16, 48, MEMOPT_TYPE_BF16, MEMOPT_FP8_E5M2, 0);
    p.here.delayed = p.there.delayed = 1;
    for (int t = 0; t < 40; ++t) {
        cuda_fp8_feed(&p, (uint64_t)t, t % 4 == 0, t == 5 ? 100.0f : 1.0f / (float)(1 + t));
        CHECK(memopt_fp8_quantize(&p.here, NULL) == MEMOPT_OK && memopt_cuda_fp8_quantize(&p.there, NULL) == 0);
        CHECK_AT(cuda_fp8_same(&p), t);
    }
    cuda_fp8_close(&p);
}
static void cuda_fp8_refused(void) {
    cuda_fp8_pair p = cuda_fp8_open(16, 16, MEMOPT_TYPE_F32, MEMOPT_FP8_E4M3, 0); memopt_fp8 x; memopt_fp8_scale scale;
#define REFUSED(change, status) do { x = p.there; change; CHECK(memopt_cuda_fp8_quantize(&x, NULL) == (status)); } while (0)
    CHECK(memopt_cuda_fp8_quantize(NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    REFUSED(x.scale = NULL, MEMOPT_CUDA_ERR_NULL);
    REFUSED(x.input = NULL, MEMOPT_CUDA_ERR_NULL);
    REFUSED(x.input = (const char *)x.input + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
    REFUSED(x.scale = (memopt_fp8_scale *)(void *)((char *)x.scale + 2), MEMOPT_CUDA_ERR_ALIGNMENT);
    REFUSED(x.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    REFUSED(memset(&x.format, 2, 1), MEMOPT_ERR_ARGUMENT);
    REFUSED(x.delayed = 2, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.transposed = x.codes + 255, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.rows = SIZE_MAX / 4, MEMOPT_ERR_OVERFLOW);
#ifndef __CUDACC__
    simulator_pending_error(cudaErrorIllegalAddress);
    REFUSED((void)x, MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
    simulator_pending_error(0);
    simulator_fail_launch(1);
    REFUSED((void)x, MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
    simulator_fail_launch(0);
#endif
#undef REFUSED
    test_get(&scale, p.there.scale, sizeof scale);
    CHECK(scale.count == 0);
    cuda_fp8_close(&p);
}

/* ---- a linear layer in 8 bits ---- */
static double cuda_fp8_decoded(const cuda_fp8_pair *p, size_t row, size_t column) {
    const uint8_t code = p->here.codes[row * p->here.columns + column];
    return (double)p->scale.scale * (double)(p->here.format == MEMOPT_FP8_E4M3 ? memopt_from_e4m3(code) : memopt_from_e5m2(code));
}
static memopt_cuda_fp8 cuda_fp8_type(const cuda_fp8_pair *p) { return p->here.format == MEMOPT_FP8_E4M3 ? MEMOPT_CUDA_FP8_E4M3 : MEMOPT_CUDA_FP8_E5M2; }
/* result = left right^T, each as it is (0) or transposed (1), against the codes in double; and how far the codes are from the numbers */
static void cuda_fp8_product(memopt_cuda_gemm *gemm, const cuda_fp8_pair *left, int left_turned, const cuda_fp8_pair *right, int right_turned) {
    memopt_cuda_fp8_product q; size_t i, j, k;
    memset(&q, 0, sizeof q);
    q.rows = left_turned ? left->here.columns : left->here.rows; q.columns = right_turned ? right->here.columns : right->here.rows;
    q.depth = left_turned ? left->here.rows : left->here.columns;
    q.d_left = left_turned ? left->there.transposed : left->there.codes; q.d_right = right_turned ? right->there.transposed : right->there.codes;
    q.left_stride = q.right_stride = q.depth; q.left_type = cuda_fp8_type(left); q.right_type = cuda_fp8_type(right);
    q.d_left_scale = &left->there.scale->scale; q.d_right_scale = &right->there.scale->scale;
    q.result_type = MEMOPT_TYPE_F32; q.result_stride = q.columns; q.d_result = test_device(q.rows * q.columns * 4);
    CHECK(memopt_cuda_gemm_multiply_fp8(gemm, &q, NULL) == 0);
    float *got = (float *)malloc(q.rows * q.columns * 4);
    test_get(got, q.d_result, q.rows * q.columns * 4);
    for (i = 0; i < q.rows; ++i) for (j = 0; j < q.columns; ++j) {
        double sum = 0, most = 0;
        for (k = 0; k < q.depth; ++k) {
            const double t = cuda_fp8_decoded(left, left_turned ? k : i, left_turned ? i : k) * cuda_fp8_decoded(right, right_turned ? k : j, right_turned ? j : k);
            sum += t; most += fabs(t);
        }
        CHECK_AT(fabs((double)got[i * q.columns + j] - sum) <= ldexp(most, test_on_card() ? -12 : -20), i * 1000 + j);
    }
    free(got);
}
static void cuda_fp8_layer(void) { /* forward, the gradient of the input, that of the weights */
    enum { ROWS = 80, INPUTS = 48, OUTPUTS = 96 };
    memopt_cuda_gemm_desc desc; memopt_cuda_gemm *gemm = NULL; size_t bytes = 0; void *memory;
    memset(&desc, 0, sizeof desc);
#ifndef __CUDACC__
    cublaslt_mock_reset();
#endif
    desc.workspace_bytes = 1 << 16; desc.d_workspace = test_device(desc.workspace_bytes);
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == 0);
    memory = memopt_i_system_alloc(NULL, bytes, 64);
    const memopt_cuda_status opened = memopt_cuda_gemm_create(&desc, memory, bytes, &gemm);
    CHECK(opened == 0);
    if (!opened) {
        cuda_fp8_pair x = cuda_fp8_open(ROWS, INPUTS, MEMOPT_TYPE_BF16, MEMOPT_FP8_E4M3, 0), w = cuda_fp8_open(OUTPUTS, INPUTS, MEMOPT_TYPE_BF16, MEMOPT_FP8_E4M3, 0);
        cuda_fp8_pair dy = cuda_fp8_open(ROWS, OUTPUTS, MEMOPT_TYPE_BF16, MEMOPT_FP8_E5M2, 0), *all[3] = { &x, &w, &dy };
        for (int step = 0; step < 2; ++step) {
            for (int k = 0; k < 3; ++k) {
                all[k]->here.delayed = all[k]->there.delayed = 1;
                cuda_fp8_feed(all[k], (uint64_t)(step * 3 + k), 0, k == 2 ? 1e-4f : 1);
                CHECK(memopt_fp8_quantize(&all[k]->here, NULL) == MEMOPT_OK && memopt_cuda_fp8_quantize(&all[k]->there, NULL) == 0);
                CHECK(cuda_fp8_same(all[k]));
            }
            cuda_fp8_product(gemm, &x, 0, &w, 0);
            cuda_fp8_product(gemm, &dy, 0, &w, 1);
            cuda_fp8_product(gemm, &dy, 1, &x, 1);
        }
        for (int k = 0; k < 3; ++k) cuda_fp8_close(all[k]);
        memopt_cuda_gemm_destroy(gemm);
    }
    memopt_i_system_free(NULL, memory, bytes, 64);
}
static void test_cuda_fp8(void) {
    RUN(cuda_fp8_matrices);
    RUN(cuda_fp8_history);
    RUN(cuda_fp8_layer);
    RUN(cuda_fp8_refused);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_fp8(); return test_totals(); }
#endif
