/* test_cuda_quant.cu - quantising and dequantising on a device, section cuda_quant. What is right is what the CPU does:
   every code, every absmax, every float. */
#include "test_cuda.h"

static const memopt_quant_map cuda_quant_maps[3] = { MEMOPT_QUANT_SIGNED, MEMOPT_QUANT_UNSIGNED, MEMOPT_QUANT_LINEAR };
enum { CUDA_QUANT_MARGIN = 32 };
static unsigned char *cuda_quant_room(size_t bytes, size_t offset) { /* offset: bytes */
    return (unsigned char *)test_device(bytes + 2 * CUDA_QUANT_MARGIN + offset) + CUDA_QUANT_MARGIN + offset;
}
/* The same bytes as the CPU's, and nothing beside them. nan: words of infinity times zero may be any NaN on a card. */
static void cuda_quant_same(const char *what, const void *want, const unsigned char *d, size_t bytes, uint64_t at) {
    const size_t all = bytes + 2 * CUDA_QUANT_MARGIN; size_t i;
    unsigned char *got = (unsigned char *)malloc(all);
    test_get(got, d - CUDA_QUANT_MARGIN, all);
    for (i = 0; i < bytes && got[CUDA_QUANT_MARGIN + i] == ((const unsigned char *)want)[i]; ++i) { }
    if (i < bytes) {
        printf("%s: byte %zu of %zu is %d, not %d\n", what, i, bytes, got[CUDA_QUANT_MARGIN + i],
               ((const unsigned char *)want)[i]);
        CHECK_AT(!"other bytes than the CPU's", at);
    }
    for (i = 0; i < CUDA_QUANT_MARGIN; ++i) CHECK_AT(got[i] == 0xFF && got[all - 1 - i] == 0xFF, at);
    free(got);
}
/* kind 0: like states, over eight decades; 1: few bits, so that ties are frequent; 2: any bits at all; 3: tiny; 4: huge */
static float cuda_quant_value(uint64_t *seed, int kind) {
    const uint64_t r = test_random(seed);
    const float x = ((float)(r >> 40) / 8388608.0f - 1.0f) * (float)pow(10.0, -(double)(r & 7));
    if (kind == 1) return (float)((int)(r >> 40 & 511) - 256) / 128.0f;
    if (kind == 2) return memopt_i_bits_float((uint32_t)(r >> 32));
    if (kind == 3) return memopt_i_bits_float((uint32_t)(r >> 32) & 0x800fffff);
    return kind == 4 ? x * 3.4e38f : x;
}
static void cuda_quant_fill(float *x, size_t n, uint64_t seed, int kind) {
    static const uint32_t odd[] = { 0x7f800000, 0xff800000, 0x7fc00001, 0xff800123, 0, 0x80000000, 1, 0x80000001 };
    for (size_t i = 0; i < n; ++i) {
        x[i] = cuda_quant_value(&seed, kind);
        if (kind == 5 && test_below(&seed, 8) == 0) x[i] = memopt_i_bits_float(odd[test_below(&seed, 8)]);
    }
}
typedef struct cuda_quant_case {
    size_t n, block, src_offset, to_offset; /* offsets: elements */
    uint32_t rounds; int schedules, bf16;
} cuda_quant_case;
static int cuda_quant_quantize(const cuda_quant_case *c, memopt_quant_map map, uint8_t *codes, float *absmax, const void *src) {
    if (c->rounds && c->bf16)
        return memopt_i_cuda::quantize(codes, absmax, (const memopt_i_cuda::bf16_t *)src, c->n, map, c->block, c->rounds, NULL);
    if (c->rounds) return memopt_i_cuda::quantize(codes, absmax, (const float *)src, c->n, map, c->block, c->rounds, NULL);
    if (c->bf16) return memopt_cuda_quantize_bf16(codes, absmax, (const uint16_t *)src, c->n, map, c->block, NULL);
    return memopt_cuda_quantize_f32(codes, absmax, (const float *)src, c->n, map, c->block, NULL);
}
static void cuda_quant_try(const cuda_quant_case *c, memopt_quant_map map, const float *x, uint64_t at) {
    const size_t n = c->n, blocks = memopt_quantize_blocks(n, c->block), width = c->bf16 ? 2 : 4;
    uint8_t *codes = (uint8_t *)malloc(n + 1); float *absmax = (float *)malloc(blocks * 4 + 4);
    uint16_t *narrow = (uint16_t *)malloc(n * 2 + 2); const int mark = test_device_mark();
    void *d_x = test_device_at(n * width, c->src_offset * width);
    for (size_t i = 0; i < n; ++i) narrow[i] = (uint16_t)(memopt_i_float_bits(x[i]) >> 16);
    test_put(d_x, c->bf16 ? (const void *)narrow : (const void *)x, n * width);
    if (c->bf16) CHECK(memopt_quantize_bf16(codes, absmax, narrow, n, map, c->block, NULL) == MEMOPT_OK);
    else CHECK(memopt_quantize_f32(codes, absmax, x, n, map, c->block, NULL) == MEMOPT_OK);
    TEST_SCHEDULES(c->schedules) {
        unsigned char *d_codes = cuda_quant_room(n, c->to_offset), *d_absmax = cuda_quant_room(blocks * 4, c->to_offset * 4);
        CHECK_AT(cuda_quant_quantize(c, map, d_codes, (float *)(void *)d_absmax, d_x) == 0, at);
        test_synchronize();
        cuda_quant_same("absmax", absmax, d_absmax, blocks * 4, at);
        cuda_quant_same("codes", codes, d_codes, n, at);
    }
    test_device_free(mark);
    free(codes); free(absmax); free(narrow);
}
static void cuda_quant_shapes(void) {
    static const size_t blocks[] = { 32, 64, 96, 128, 160, 224, 0, 256, 288, 512, 992, 1024, 1056, 2048, 4064, 4096 };
    static const size_t offsets[][2] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 4, 4 } };
    float *x = (float *)malloc(20000 * 4);
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; ++b) {
        const size_t block = blocks[b], size = block ? block : 256;
        const size_t sizes[] = { 0, 1, 31, size - 1, size, size + 1, 255, 257, 4099, 3 * size + 5, 8192, 8192 + size };
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s)
            for (size_t k = 0; k < 3; ++k) {
                const size_t o = (s + k + b) % 4;
                cuda_quant_case c = { sizes[s], block, offsets[o][0], offsets[o][1], 0, 1, (int)(s + k) % 2 };
                if (sizes[s] == size || sizes[s] == 3 * size + 5) c.schedules = size > 1024 ? 4 : 2;
                cuda_quant_fill(x, sizes[s], 1 + b * 100 + s, (int)((b + s) % 6));
                cuda_quant_try(&c, cuda_quant_maps[k], x, b * 1000 + s * 10 + k);
            }
    }
    free(x);
}
static void cuda_quant_schedules(void) { /* all eight; teams of two and four warps share memory over several rounds */
    float *x = (float *)malloc(40000 * 4);
    static const size_t blocks[] = { 256, 1056, 2048, 4096, 4064 };
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; ++b)
        for (uint32_t rounds = 1; rounds <= 3; ++rounds) {
            const cuda_quant_case c = { 8 * blocks[b] + 37, blocks[b], 0, 0, rounds, 8, (int)rounds % 2 };
            cuda_quant_fill(x, c.n, b * 10 + rounds, rounds == 2 ? 5 : 0);
            cuda_quant_try(&c, cuda_quant_maps[(b + rounds) % 3], x, b * 100 + rounds);
        }
    free(x);
}
static void cuda_quant_rounds(void) { /* several passes of a CUDA block, whole ones and cut off ones */
    const size_t most = 8 * 8192 + 300; float *x = (float *)malloc(most * 4);
    static const size_t blocks[] = { 32, 64, 128, 256, 96, 1024 };
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; ++b)
        for (uint32_t rounds = 2; rounds <= 8; rounds *= 2)
            for (int k = 0; k < 2; ++k) {
                const cuda_quant_case c = { k ? rounds * 8192 : rounds * 8192 - 1000, blocks[b], 0, 0, rounds, 1, k };
                cuda_quant_fill(x, c.n, b + rounds, (int)rounds % 3);
                cuda_quant_try(&c, cuda_quant_maps[b % 3], x, b * 100 + rounds);
            }
    free(x);
}
/* Many more blocks than one pass of the grid: the number of rounds that a call chooses itself. */
static void cuda_quant_long(void) {
    const size_t n = (size_t)2 * memopt_i_cuda::QUANT_PASSES * 8192 + 4099, tail = 8192 + 4099; uint8_t want[8192 + 4099], got[8192 + 4099];
    float *x = (float *)malloc(tail * 4), absmax[49], got_absmax[49], *d_x = NULL, *d_absmax = NULL; uint8_t *d_codes = NULL;
    CHECK(cudaMalloc((void **)&d_x, n * 4) == cudaSuccess && cudaMalloc((void **)&d_absmax, n / 64 + 4) == cudaSuccess);
    CHECK(cudaMalloc((void **)&d_codes, n) == cudaSuccess);
    cuda_quant_fill(x, tail, 9, 0);
    test_put(d_x, x, tail * 4);
    test_put(d_x + (n - tail), x, tail * 4);
    simulator_run_blocks(1, 2);
    CHECK(memopt_cuda_quantize_f32(d_codes, d_absmax, d_x, n, MEMOPT_QUANT_SIGNED, 256, NULL) == 0);
    test_synchronize();
    simulator_run_blocks(SIZE_MAX, SIZE_MAX);
    CHECK(memopt_quantize_f32(want, absmax, x, tail, MEMOPT_QUANT_SIGNED, 256, NULL) == MEMOPT_OK);
    test_get(got, d_codes + (n - tail), tail);
    test_get(got_absmax, d_absmax + (n - tail) / 256, sizeof absmax);
    CHECK(memcmp(got, want, tail) == 0 && memcmp(got_absmax, absmax, sizeof absmax) == 0);
    test_get(got, d_codes, 8192);
    CHECK(memcmp(got, want, 8192) == 0);
    cudaFree(d_x); cudaFree(d_absmax); cudaFree(d_codes);
    free(x);
}
/* Every middle between two levels and every edge of a bin, with what is beside them, of both signs; then random ones. Each
   block has a 1, so that its numbers are what is encoded. */
static void cuda_quant_middles(void) {
    enum { MOST = 400000 };
    float *x = (float *)malloc(MOST * 4), levels[256]; uint64_t seed = 11;
    for (int m = 0; m < 3; ++m) {
        size_t n = 0;
        const cuda_quant_case c = { 0, 32, 0, 0, 0, 1, 0 }; cuda_quant_case now = c;
        CHECK(memopt_quant_levels(cuda_quant_maps[m], levels) == MEMOPT_OK);
#define CUDA_QUANT_PUT(u) do { if (n % 32 == 0) x[n++] = 1.0f; x[n++] = memopt_i_bits_float(u); } while (0)
        for (int code = 0; code < 255; ++code) {
            const float middle = (float)(((double)levels[code] + (double)levels[code + 1]) / 2);
            for (int d = -3; d <= 3; ++d)
                for (uint32_t sign = 0; sign < 2; ++sign)
                    CUDA_QUANT_PUT((memopt_i_float_bits(middle) + (uint32_t)d) ^ sign << 31);
        }
        for (uint32_t bin = 100 * 128; bin <= 127 * 128; ++bin)
            for (int d = -2; d <= 2; ++d)
                for (uint32_t sign = 0; sign < 2; ++sign)
                    if ((bin << 16) + (uint32_t)d <= 0x3f800000) CUDA_QUANT_PUT(((bin << 16) + (uint32_t)d) | sign << 31);
        while (n < MOST - 2) {
            const uint32_t r = (uint32_t)test_random(&seed), s = (uint32_t)(test_random(&seed) % 0x3f800001);
            CUDA_QUANT_PUT((s > 0x33000000 ? s : s | 0x30000000) | (r & 0x80000000));
            if (n < MOST - 2) CUDA_QUANT_PUT(memopt_i_float_bits((float)(r & 0xffffff) / 16777216.0f) | (r & 0x80000000));
        }
        now.n = n;
        cuda_quant_try(&now, cuda_quant_maps[m], x, (uint64_t)m);
        CHECK(memopt_i_cuda::count_below(memopt_i_cuda::unsigned_middles, 0xffffffff, 0, 255) == 255);
    }
    free(x);
}
/* Whole blocks of one thing, and absmax where its inverse is hard. */
static void cuda_quant_special(void) {
    static const uint32_t planted[] = { 0, 0x80000000, 1, 0x7fffff, 0x800000, 0x200000, 0x200001, 0x1fffff, 0x00400000, 0x7f7fffff,
                                        0x7f000000, 0x7e800001, 0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x3f800000, 0xbf800000 };
    const size_t count = sizeof planted / sizeof *planted, n = count * count * 64; float *x = (float *)malloc(n * 4);
    uint64_t seed = 4;
    for (size_t i = 0; i < n; ++i) { /* each block of two kinds */
        const size_t b = i / 64; const uint64_t r = test_random(&seed);
        x[i] = memopt_i_bits_float(planted[r & 1 ? b / count : b % count]);
    }
    for (int m = 0; m < 3; ++m)
        for (int bf16 = 0; bf16 < 2; ++bf16)
            for (size_t block = 32; block <= 128; block *= 2) {
                const cuda_quant_case c = { n, block, 0, 0, 0, 1, bf16 };
                cuda_quant_try(&c, cuda_quant_maps[m], x, (uint64_t)m);
            }
    free(x);
}
static void cuda_quant_back(const cuda_quant_case *c, memopt_quant_map map, uint64_t seed) {
    static const uint32_t odd[] = { 0, 0x80000000, 0x7fc12345, 0xff812345, 0x7f7fffff, 1, 0x00123456, 0xbf000000, 0x3f7fffff };
    const size_t n = c->n, blocks = memopt_quantize_blocks(n, c->block), width = c->bf16 ? 2 : 4; const int mark = test_device_mark();
    uint8_t *codes = (uint8_t *)malloc(n + 1), *d_codes = (uint8_t *)test_device_at(n, c->src_offset);
    float *absmax = (float *)malloc(blocks * 4 + 4), *d_absmax = (float *)test_device_at(blocks * 4, c->src_offset * 4);
    void *want = malloc(n * 4 + 4);
    for (size_t i = 0; i < n; ++i) codes[i] = (uint8_t)(test_random(&seed) >> 8);
    for (size_t b = 0; b < blocks; ++b)
        absmax[b] = test_below(&seed, 3) ? cuda_quant_value(&seed, 0) : memopt_i_bits_float(odd[test_below(&seed, 9)]);
    test_put(d_codes, codes, n);
    test_put(d_absmax, absmax, blocks * 4);
    if (c->bf16) CHECK(memopt_dequantize_bf16((uint16_t *)want, codes, absmax, n, map, c->block, NULL) == MEMOPT_OK);
    else CHECK(memopt_dequantize_f32((float *)want, codes, absmax, n, map, c->block, NULL) == MEMOPT_OK);
    TEST_SCHEDULES(c->schedules) {
        unsigned char *d = cuda_quant_room(n * width, c->to_offset * width);
        if (c->bf16) CHECK(memopt_cuda_dequantize_bf16((uint16_t *)(void *)d, d_codes, d_absmax, n, map, c->block, NULL) == 0);
        else CHECK(memopt_cuda_dequantize_f32((float *)(void *)d, d_codes, d_absmax, n, map, c->block, NULL) == 0);
        test_synchronize();
        cuda_quant_same("floats", want, d, n * width, seed);
    }
    test_device_free(mark);
    free(codes); free(absmax); free(want);
}
static void cuda_quant_dequantize(void) {
    static const size_t blocks[] = { 32, 64, 96, 0, 288, 512, 1056, 4064, 4096 };
    static const size_t offsets[][2] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 4, 4 } };
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; ++b) {
        const size_t size = blocks[b] ? blocks[b] : 256;
        const size_t sizes[] = { 0, 1, 31, 33, size, size + 1, 4099, 8192, 8192 / size * size, 8192 / size * size + 3, 3 * 8192 };
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s)
            for (int k = 0; k < 6; ++k) {
                const size_t o = (s + b + (size_t)k) % 4;
                const cuda_quant_case c = { sizes[s], blocks[b], offsets[o][0], offsets[o][1], 0, s == 6 ? 8 : 1, k % 2 };
                cuda_quant_back(&c, cuda_quant_maps[k / 2], 1 + b * 1000 + s * 10 + (uint64_t)k);
            }
    }
}
static void cuda_quant_infinite(void) { /* infinity times zero is some NaN; the rest as on the CPU */
    uint8_t codes[256], *d_codes = (uint8_t *)test_device(256); float want[256], got[256], absmax[1];
    float *d_absmax = (float *)test_device(4), *d = (float *)test_device(1024);
    for (int i = 0; i < 256; ++i) codes[i] = (uint8_t)i;
    absmax[0] = memopt_i_bits_float(0x7f800000);
    test_put(d_codes, codes, 256); test_put(d_absmax, absmax, 4);
    for (int m = 0; m < 3; ++m) {
        CHECK(memopt_cuda_dequantize_f32(d, d_codes, d_absmax, 256, cuda_quant_maps[m], 256, NULL) == 0);
        test_get(got, d, 1024);
        CHECK(memopt_dequantize_f32(want, codes, absmax, 256, cuda_quant_maps[m], 256, NULL) == MEMOPT_OK);
        for (int i = 0; i < 256; ++i)
            CHECK_AT(memopt_i_float_bits(got[i]) == memopt_i_float_bits(want[i]) || (got[i] != got[i] && want[i] != want[i]), i);
    }
}
static void cuda_quant_refused(void) {
    unsigned char *d = (unsigned char *)test_device(16384), got[16384]; size_t i; const size_t launches = simulator_launches();
    float *x = (float *)(void *)d, *absmax = (float *)(void *)(d + 8192); uint8_t *codes = d + 12288; uint16_t *half = (uint16_t *)(void *)d;
    const memopt_quant_map s = MEMOPT_QUANT_SIGNED;
    CHECK(memopt_cuda_quantize_f32(NULL, absmax, x, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_quantize_f32(codes, NULL, x, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_quantize_bf16(codes, absmax, NULL, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_dequantize_f32(NULL, codes, absmax, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_quantize_f32(codes, absmax, (float *)(void *)(d + 2), 4, s, 0, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_quantize_f32(codes, (float *)(void *)(d + 8193), x, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_dequantize_bf16((uint16_t *)(void *)(d + 1), codes, absmax, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_quantize_f32(codes, absmax, x, 4, (memopt_quant_map)3, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_quantize_f32(codes, absmax, x, 4, s, 33, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_quantize_f32(codes, absmax, x, 4, s, 4128, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_dequantize_f32(x, codes, absmax, 4, s, 16, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_quantize_f32(codes, absmax, x, SIZE_MAX / 2, s, 0, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_cuda_dequantize_bf16(half, codes, absmax, SIZE_MAX, s, 0, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_cuda_quantize_f32(d + 15, absmax, x, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_quantize_f32(codes, x + 3, x, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_dequantize_f32(x, (uint8_t *)absmax, absmax, 4, s, 0, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_quantize_f32(NULL, NULL, NULL, 0, s, 0, NULL) == 0);
    CHECK(memopt_cuda_dequantize_bf16(NULL, NULL, NULL, 0, s, 0, NULL) == 0);
    CHECK(simulator_launches() == launches);
    test_get(got, d, sizeof got);
    for (i = 0; i < sizeof got; ++i) CHECK_AT(got[i] == 0xFF, i);
}
static int cuda_quant_any(int which, unsigned char *d) {
    float *x = (float *)(void *)d, *absmax = (float *)(void *)(d + 8192); uint8_t *codes = d + 12288;
    if (which == 0) return memopt_cuda_quantize_f32(codes, absmax, x, 1000, MEMOPT_QUANT_SIGNED, 0, NULL);
    if (which == 1) return memopt_cuda_quantize_bf16(codes, absmax, (uint16_t *)(void *)d, 1000, MEMOPT_QUANT_UNSIGNED, 2048, NULL);
    if (which == 2) return memopt_cuda_dequantize_f32(x, codes, absmax, 1000, MEMOPT_QUANT_LINEAR, 0, NULL);
    return memopt_cuda_dequantize_bf16((uint16_t *)(void *)d, codes, absmax, 1000, MEMOPT_QUANT_SIGNED, 32, NULL);
}
static void cuda_quant_errors(void) {
    unsigned char *d = (unsigned char *)test_device(16384), got[16384];
    if (test_on_card()) { SKIP("errors are made by the simulator"); return; }
    for (int which = 0; which < 4; ++which) {
        simulator_pending_error(cudaErrorIllegalAddress);
        CHECK(cuda_quant_any(which, d) == MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
        CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
        simulator_pending_error(0);
        simulator_fail_launch(1);
        CHECK(cuda_quant_any(which, d) == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
        CHECK(cudaGetLastError() == cudaSuccess);
        simulator_fail_launch(0);
    }
    test_synchronize();
    test_get(got, d, sizeof got);
    for (size_t i = 0; i < sizeof got; ++i) CHECK_AT(got[i] == 0xFF, i);
    CHECK(cuda_quant_any(0, d) == 0);
}
/* More than 2^31 elements: the first CUDA block and the last. */
static void cuda_quant_huge(void) {
    enum { TAIL = 8192 + 1024 + 5 };
    const size_t n = ((size_t)1 << 31) + TAIL; static float x[TAIL], back[TAIL], want_back[TAIL]; float absmax[TAIL / 256 + 1];
    static uint8_t want[TAIL], got[TAIL]; float *d_x = NULL, *d_absmax = NULL; uint8_t *d_codes = NULL;
    if (cudaMalloc((void **)&d_x, n * 4) != cudaSuccess || cudaMalloc((void **)&d_codes, n) != cudaSuccess
        || cudaMalloc((void **)&d_absmax, n / 64 + 4) != cudaSuccess) {
        cudaGetLastError();
        cudaFree(d_x); cudaFree(d_codes);
        SKIP("no room for 2^31 floats");
        return;
    }
    cuda_quant_fill(x, TAIL, 21, 0);
    test_put(d_x + (n - TAIL), x, sizeof x);
    simulator_run_blocks(0, 2);
    CHECK(memopt_cuda_quantize_f32(d_codes, d_absmax, d_x, n, MEMOPT_QUANT_UNSIGNED, 256, NULL) == 0);
    CHECK(memopt_quantize_f32(want, absmax, x, TAIL, MEMOPT_QUANT_UNSIGNED, 256, NULL) == MEMOPT_OK);
    test_get(got, d_codes + (n - TAIL), TAIL);
    CHECK(memcmp(got, want, TAIL) == 0);
    CHECK(memopt_cuda_dequantize_f32(d_x, d_codes, d_absmax, n, MEMOPT_QUANT_UNSIGNED, 256, NULL) == 0);
    test_synchronize();
    simulator_run_blocks(SIZE_MAX, SIZE_MAX);
    CHECK(memopt_dequantize_f32(want_back, want, absmax, TAIL, MEMOPT_QUANT_UNSIGNED, 256, NULL) == MEMOPT_OK);
    test_get(back, d_x + (n - TAIL), sizeof back);
    CHECK(memcmp(back, want_back, sizeof back) == 0);
    cudaFree(d_x); cudaFree(d_codes); cudaFree(d_absmax);
}
static void test_cuda_quant(void) {
    RUN(cuda_quant_shapes); RUN(cuda_quant_schedules); RUN(cuda_quant_rounds); RUN(cuda_quant_long); RUN(cuda_quant_middles);
    RUN(cuda_quant_special); RUN(cuda_quant_dequantize); RUN(cuda_quant_infinite); RUN(cuda_quant_refused);
    RUN(cuda_quant_errors); RUN(cuda_quant_huge);
}
#ifndef TEST_COMBINED
int main(void) {
    test_cuda_quant();
    return test_totals();
}
#endif
