/* test_cuda_number.cu - conversions and random numbers on a device, section cuda_number. What is right is what the CPU's
   functions do, bit for bit. */
#include "test_cuda.h"

/* A conversion: from floats or back, 2 or 1 bytes a code; the twins are called by number. */
enum {
    CUDA_NUMBER_BF16, CUDA_NUMBER_F16, CUDA_NUMBER_E4M3, CUDA_NUMBER_E5M2, CUDA_NUMBER_E4M3_S, CUDA_NUMBER_E5M2_S,
    CUDA_NUMBER_NARROW /* so many to nearest */, CUDA_NUMBER_NOISE = CUDA_NUMBER_NARROW,
    CUDA_NUMBER_WIDEN = 2 * CUDA_NUMBER_NARROW, CUDA_NUMBER_ALL = CUDA_NUMBER_WIDEN + 4
};
static const memopt_noise cuda_number_noise = { { 0x12345678u, 0x9abcdef0u }, 0 };
static size_t cuda_number_to_bytes(int which) {
    return which >= CUDA_NUMBER_WIDEN ? 4 : which % CUDA_NUMBER_NARROW <= CUDA_NUMBER_F16 ? 2 : 1;
}
static size_t cuda_number_from_bytes(int which) {
    return which < CUDA_NUMBER_WIDEN ? 4 : which - CUDA_NUMBER_WIDEN <= CUDA_NUMBER_F16 ? 2 : 1;
}
static int cuda_number_on_cpu(int which, void *to, const void *from, size_t n, uint64_t first) {
    uint16_t *two = (uint16_t *)to; uint8_t *one = (uint8_t *)to; float *wide = (float *)to;
    const float *x = (const float *)from; const uint16_t *c2 = (const uint16_t *)from;
    const uint8_t *c1 = (const uint8_t *)from; const memopt_noise k = cuda_number_noise;
    switch (which) {
    case 0:  return memopt_bf16_from_f32(two, x, n, NULL);
    case 1:  return memopt_f16_from_f32(two, x, n, NULL);
    case 2:  return memopt_e4m3_from_f32(one, x, n, 0, NULL);
    case 3:  return memopt_e5m2_from_f32(one, x, n, 0, NULL);
    case 4:  return memopt_e4m3_from_f32(one, x, n, 1, NULL);
    case 5:  return memopt_e5m2_from_f32(one, x, n, 1, NULL);
    case 6:  return memopt_bf16_from_f32_stochastic(two, x, n, k, first, NULL);
    case 7:  return memopt_f16_from_f32_stochastic(two, x, n, k, first, NULL);
    case 8:  return memopt_e4m3_from_f32_stochastic(one, x, n, 0, k, first, NULL);
    case 9:  return memopt_e5m2_from_f32_stochastic(one, x, n, 0, k, first, NULL);
    case 10: return memopt_e4m3_from_f32_stochastic(one, x, n, 1, k, first, NULL);
    case 11: return memopt_e5m2_from_f32_stochastic(one, x, n, 1, k, first, NULL);
    case 12: return memopt_f32_from_bf16(wide, c2, n, NULL);
    case 13: return memopt_f32_from_f16(wide, c2, n, NULL);
    case 14: return memopt_f32_from_e4m3(wide, c1, n, NULL);
    }
    return memopt_f32_from_e5m2(wide, c1, n, NULL);
}
static int cuda_number_on_device(int which, void *to, const void *from, size_t n, uint64_t first) {
    uint16_t *two = (uint16_t *)to; uint8_t *one = (uint8_t *)to; float *wide = (float *)to;
    const float *x = (const float *)from; const uint16_t *c2 = (const uint16_t *)from;
    const uint8_t *c1 = (const uint8_t *)from; const memopt_noise k = cuda_number_noise;
    switch (which) {
    case 0:  return memopt_cuda_bf16_from_f32(two, x, n, NULL);
    case 1:  return memopt_cuda_f16_from_f32(two, x, n, NULL);
    case 2:  return memopt_cuda_e4m3_from_f32(one, x, n, 0, NULL);
    case 3:  return memopt_cuda_e5m2_from_f32(one, x, n, 0, NULL);
    case 4:  return memopt_cuda_e4m3_from_f32(one, x, n, 1, NULL);
    case 5:  return memopt_cuda_e5m2_from_f32(one, x, n, 1, NULL);
    case 6:  return memopt_cuda_bf16_from_f32_stochastic(two, x, n, k, first, NULL);
    case 7:  return memopt_cuda_f16_from_f32_stochastic(two, x, n, k, first, NULL);
    case 8:  return memopt_cuda_e4m3_from_f32_stochastic(one, x, n, 0, k, first, NULL);
    case 9:  return memopt_cuda_e5m2_from_f32_stochastic(one, x, n, 0, k, first, NULL);
    case 10: return memopt_cuda_e4m3_from_f32_stochastic(one, x, n, 1, k, first, NULL);
    case 11: return memopt_cuda_e5m2_from_f32_stochastic(one, x, n, 1, k, first, NULL);
    case 12: return memopt_cuda_f32_from_bf16(wide, c2, n, NULL);
    case 13: return memopt_cuda_f32_from_f16(wide, c2, n, NULL);
    case 14: return memopt_cuda_f32_from_e4m3(wide, c1, n, NULL);
    }
    return memopt_cuda_f32_from_e5m2(wide, c1, n, NULL);
}
/* A float, as bits: any; or near to where a format of `bits` of mantissa rounds; or special. */
static uint32_t cuda_number_float(uint64_t *seed) {
    static const uint32_t special[] = {
        0, 0x80000000, 1, 0x80000001, 0x7fffff, 0x800000, 0x7f7fffff, 0x7f7f0000, 0x7f7f0001, 0x7f7f8000, 0x7f800000,
        0xff800000, 0x7f800001, 0xff800001, 0x7f80ffff, 0x7f808000, 0xff807fff, 0x7fc00000, 0xffc12345, 0x7fffffff,
        0xffffffff, 0x7fff8000, 0x7f818000, 0x477fe000, 0x477fefff, 0x477ff000, 0xc77ff001, 0x43e00000, 0x43e00001,
        0x43e80000, 0x43e80001, 0xc3f00000, 0x47600000, 0x476fffff, 0x47700000, 0xc7600001, 0x33000000, 0x33000001,
        0x32ffffff, 0x3a800000, 0x3a800001, 0x37000000, 0x36ffffff, 0x38800000, 0x387fffff, 0x3c800000, 0x3c7fffff };
    const uint64_t r = test_random(seed); uint32_t u = (uint32_t)r;
    if (r >> 60 == 0) return special[(r >> 32) % (sizeof special / sizeof *special)];
    if (r >> 60 < 8) u = (u & 0x80ffffff) | (uint32_t)(96 + (r >> 40) % 52) << 23; /* what the small formats see */
    if (r >> 60 == 1) u &= 0xfff80000;
    if (r >> 60 == 2) u &= 0xfffff000;
    if (r >> 60 == 3) u = (u & 0xffff0000) | 0x8000;
    return u;
}
static void cuda_number_fill(void *p, size_t n, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < n; ++i)
        if (bytes == 4) {
            const uint32_t u = cuda_number_float(&seed);
            memcpy((unsigned char *)p + 4 * i, &u, 4);
        } else if (bytes == 2) ((uint16_t *)p)[i] = (uint16_t)(seed ? test_random(&seed) : i);
        else ((uint8_t *)p)[i] = (uint8_t)(seed ? test_random(&seed) : i);
}
/* Equal to the CPU's, and nothing beside them. The device's array lies between two margins. */
enum { CUDA_NUMBER_MARGIN = 32 };
static void cuda_number_same(const void *want, const unsigned char *d, size_t n, size_t bytes, uint64_t at) {
    const size_t all = n * bytes + 2 * CUDA_NUMBER_MARGIN; size_t i;
    unsigned char *got = (unsigned char *)malloc(all);
    test_get(got, d - CUDA_NUMBER_MARGIN, all);
    if (n && memcmp(got + CUDA_NUMBER_MARGIN, want, n * bytes)) {
        for (i = 0; i < n * bytes && got[CUDA_NUMBER_MARGIN + i] == ((const unsigned char *)want)[i]; ++i) { }
        CHECK_AT(!"other bits than the CPU's", at * 1000000 + i / bytes);
    }
    for (i = 0; i < CUDA_NUMBER_MARGIN; ++i)
        CHECK_AT(got[i] == 0xFF && got[all - 1 - i] == 0xFF, at);
    free(got);
}
static unsigned char *cuda_number_room(size_t n, size_t bytes, size_t offset) { /* offset: elements */
    return (unsigned char *)test_device(n * bytes + 3 * CUDA_NUMBER_MARGIN + offset * bytes) + CUDA_NUMBER_MARGIN
         + offset * bytes;
}
static void cuda_number_try(int which, size_t n, size_t to_offset, size_t from_offset, uint64_t first, uint64_t seed) {
    const size_t to_bytes = cuda_number_to_bytes(which), from_bytes = cuda_number_from_bytes(which);
    unsigned char *want = (unsigned char *)malloc(n * 4 + 4), *from = (unsigned char *)malloc(n * 4 + 4);
    unsigned char *d_from = (unsigned char *)test_device_at(n * from_bytes, from_offset * from_bytes);
    cuda_number_fill(from, n, from_bytes, seed);
    test_put(d_from, from, n * from_bytes);
    CHECK(cuda_number_on_cpu(which, want, from, n, first) == MEMOPT_OK);
    TEST_SCHEDULES(2) {
        unsigned char *d_to = cuda_number_room(n, to_bytes, to_offset);
        CHECK_AT(cuda_number_on_device(which, d_to, d_from, n, first) == 0, which);
        test_synchronize();
        cuda_number_same(want, d_to, n, to_bytes, (uint64_t)which);
    }
    test_device_free(0);
    free(want); free(from);
}
static const size_t cuda_number_sizes[] = { 0, 1, 2, 3, 4, 5, 31, 32, 33, 255, 257, 4095, 4096, 4097, 4099, 12293 };
static void cuda_number_shapes(void) {
    static const size_t offsets[][2] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 3, 2 }, { 4, 8 } };
    static const uint64_t firsts[] = { 0, 32, 5, ((uint64_t)1 << 33) - 64, ((uint64_t)1 << 33) - 61, (uint64_t)0 - 64 };
    for (int which = 0; which < CUDA_NUMBER_ALL; ++which)
        for (size_t s = 0; s < sizeof cuda_number_sizes / sizeof *cuda_number_sizes; ++s)
            for (size_t o = 0; o < sizeof offsets / sizeof *offsets; ++o) {
                if (cuda_number_sizes[s] > 5000 && o == 3) continue;
                cuda_number_try(which, cuda_number_sizes[s], offsets[o][0], offsets[o][1],
                                firsts[(which + s + o) % (sizeof firsts / sizeof *firsts)], 1 + which * 100 + s * 10 + o);
            }
}
static void cuda_number_noise_firsts(void) { /* the kernel for multiples of 32, and the others, over two tiles */
    static const uint64_t firsts[] = { 0, 32, 1 << 20, 16, 1, ((uint64_t)1 << 33) - 4096, ((uint64_t)1 << 38) - 32,
                                       (uint64_t)0 - 4096, (uint64_t)0 - 17 };
    for (int which = CUDA_NUMBER_NOISE; which < CUDA_NUMBER_WIDEN; ++which)
        for (size_t k = 0; k < sizeof firsts / sizeof *firsts; ++k) cuda_number_try(which, 8192, 0, 0, firsts[k], k + 77);
}
static void cuda_number_all_codes(void) { /* seed 0: every code */
    for (int which = CUDA_NUMBER_WIDEN; which < CUDA_NUMBER_ALL; ++which)
        for (size_t offset = 0; offset < 2; ++offset) cuda_number_try(which, 65536 + 8192, offset, 0, 0, 0);
}
/* Every place where a format rounds, from one code to the next, and what is beside it; and the same for noise. */
static void cuda_number_roundings(void) {
    for (int which = 0; which < CUDA_NUMBER_WIDEN; ++which) {
        const int kind = which % CUDA_NUMBER_NARROW; size_t n = 0, n_most = 65536 * 6 + 8192; uint32_t c;
        const uint32_t codes = kind <= CUDA_NUMBER_F16 ? 65536 : 256, step = kind == CUDA_NUMBER_F16 ? 7 : kind ? 1 : 61;
        uint32_t *u = (uint32_t *)malloc(n_most * 4); void *want = malloc(n_most * 4), *d_from; unsigned char *d_to;
        for (c = 0; c < codes; c += step) {
            const float x = kind == CUDA_NUMBER_BF16 ? memopt_from_bf16((uint16_t)c) : kind == CUDA_NUMBER_F16
                ? memopt_from_f16((uint16_t)c) : kind == CUDA_NUMBER_E4M3 || kind == CUDA_NUMBER_E4M3_S
                ? memopt_from_e4m3((uint8_t)c) : memopt_from_e5m2((uint8_t)c);
            const uint32_t bits = memopt_i_float_bits(x);
            const uint32_t half = kind == CUDA_NUMBER_BF16 ? 0x8000 : kind == CUDA_NUMBER_F16 ? 0x1000 : 0;
            if (half || (bits & 0x7fffffff) >= 0x7f800000) {
                u[n++] = bits + half - 1; u[n++] = bits + half; u[n++] = bits + half + 1;
            } else { /* the middle, in a double */
                const double next = (kind == CUDA_NUMBER_E4M3 || kind == CUDA_NUMBER_E4M3_S)
                    ? (double)memopt_from_e4m3((uint8_t)(c + 1)) : (double)memopt_from_e5m2((uint8_t)(c + 1));
                const uint32_t middle = memopt_i_float_bits((float)(((double)x + next) / 2));
                u[n++] = middle - 1; u[n++] = middle; u[n++] = middle + 1;
            }
            u[n++] = bits - 1; u[n++] = bits; u[n++] = bits + 1;
        }
        for (uint32_t e = 0; e < 256; ++e) /* every octave */
            for (uint32_t k = 0; k < 16; ++k) u[n++] = e << 23 | (k & 7) * 0x123457 | (k & 8) << 28;
        for (uint32_t k = 0; k < 256; ++k) { /* between the largest number and what is beyond */
            static const uint32_t largest[CUDA_NUMBER_NARROW] = { 0x7f7f0000, 0x477fe000, 0x43e00000, 0x47600000, 0x43e00000, 0x47600000 };
            static const uint32_t part[CUDA_NUMBER_NARROW] = { 0x100, 0x20, 0x1000, 0x2000, 0x1000, 0x2000 };
            u[n++] = (largest[kind] + k * part[kind]) | k << 31;
        }
        d_from = test_device(n * 4);
        test_put(d_from, u, n * 4);
        CHECK(cuda_number_on_cpu(which, want, u, n, 64) == MEMOPT_OK);
        d_to = cuda_number_room(n, cuda_number_to_bytes(which), 0);
        CHECK(cuda_number_on_device(which, d_to, d_from, n, 64) == 0);
        test_synchronize();
        cuda_number_same(want, d_to, n, cuda_number_to_bytes(which), (uint64_t)which);
        test_device_free(0);
        free(u); free(want);
    }
}
/* Noise with chosen bits cannot be asked for; so the lanes that serve it are compared with the definition directly. */
template <int kind> static void cuda_number_dither_as(uint64_t seed) {
    typedef memopt_i_cuda::format_of<kind> f;
    static const uint32_t edges[] = { 0, 1, 2, 3, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0xffff0000, 0xff800000 };
    for (uint32_t e = 0; e < 256; ++e)
        for (int k = 0; k < 400; ++k) {
            const uint64_t r = test_random(&seed);
            uint32_t m = e << 23 | ((uint32_t)r & 0x7fffff), random = (uint32_t)(r >> 32);
            if (k % 4 == 1) random = edges[(r >> 40) % 10];
            if (k % 8 == 2) m &= 0x7ff00000;
            if (k % 8 == 3) m |= 0x7fffff;
            if (k % 8 == 5) { /* all but carries, or just does */
                const int d = 23 - f::bits + (f::lowest > (int)e ? f::lowest - (int)e : 0);
                const uint32_t mantissa = (m & 0x7fffff) | 0x800000;
                if (d < 32) random = ~(mantissa << (32 - d)) + (uint32_t)(r >> 40) % 3;
                else if (d < 56) random = ~(mantissa >> (d - 32)) + (uint32_t)(r >> 40) % 5 - 1;
            }
            if (m > (uint32_t)f::largest) continue;
            CHECK_AT(memopt_i_cuda::dither<kind>(m, random) == memopt_i_cuda::code_for<kind>(m, 0, 1, random),
                     (uint64_t)m << 32 | random);
        }
}
static void cuda_number_dither(void) {
    if (test_on_card()) { SKIP("device functions are called by the host on the simulator only"); return; }
    cuda_number_dither_as<MEMOPT_I_F16>(1);
    cuda_number_dither_as<MEMOPT_I_E4M3>(2);
    cuda_number_dither_as<MEMOPT_I_E5M2>(3);
}
static void cuda_number_split_at(size_t n, size_t offset, uint64_t seed) {
    float *x = (float *)malloc(n * 4 + 4), *d_x = (float *)test_device_at(n * 4, offset * 4);
    uint16_t *high = (uint16_t *)malloc(n * 2 + 2), *low = (uint16_t *)malloc(n * 2 + 2);
    cuda_number_fill(x, n, 4, seed);
    test_put(d_x, x, n * 4);
    CHECK(memopt_f32_split(high, low, x, n, NULL) == MEMOPT_OK);
    TEST_SCHEDULES(2) {
        unsigned char *d_high = cuda_number_room(n, 2, offset), *d_low = cuda_number_room(n, 2, 2 * offset);
        unsigned char *d_back = cuda_number_room(n, 4, offset);
        CHECK(memopt_cuda_f32_split((uint16_t *)d_high, (uint16_t *)d_low, d_x, n, NULL) == 0);
        CHECK(memopt_cuda_f32_join((float *)d_back, (uint16_t *)d_high, (uint16_t *)d_low, n, NULL) == 0);
        test_synchronize();
        cuda_number_same(high, d_high, n, 2, n);
        cuda_number_same(low, d_low, n, 2, n);
        cuda_number_same(x, d_back, n, 4, n);
    }
    test_device_free(0);
    free(x); free(high); free(low);
}
static void cuda_number_split(void) {
    for (size_t s = 0; s < sizeof cuda_number_sizes / sizeof *cuda_number_sizes; ++s)
        for (size_t offset = 0; offset < 3; ++offset) cuda_number_split_at(cuda_number_sizes[s], offset, s * 3 + offset);
}
static void cuda_number_join_any(void) { /* pairs that split never makes; high and low may be the same array */
    const size_t n = 65536 + 17; uint64_t seed = 5;
    uint16_t *high = (uint16_t *)malloc(n * 2), *low = (uint16_t *)malloc(n * 2); float *want = (float *)malloc(n * 4);
    uint16_t *d_high = (uint16_t *)test_device(n * 2), *d_low = (uint16_t *)test_device(n * 2);
    unsigned char *d_x = cuda_number_room(n, 4, 0), *d_y = cuda_number_room(n, 4, 0);
    for (size_t i = 0; i < n; ++i) { high[i] = (uint16_t)i; low[i] = (uint16_t)test_random(&seed); }
    test_put(d_high, high, n * 2); test_put(d_low, low, n * 2);
    CHECK(memopt_cuda_f32_join((float *)d_x, d_high, d_low, n, NULL) == 0);
    CHECK(memopt_cuda_f32_join((float *)d_y, d_high, d_high, n, NULL) == 0);
    test_synchronize();
    CHECK(memopt_f32_join(want, high, low, n, NULL) == MEMOPT_OK);
    cuda_number_same(want, d_x, n, 4, 1);
    CHECK(memopt_f32_join(want, high, high, n, NULL) == MEMOPT_OK);
    cuda_number_same(want, d_y, n, 4, 2);
    free(high); free(low); free(want);
}
static int cuda_number_random_cpu(int kind, void *to, size_t n, uint64_t first) {
    if (kind == 0) return memopt_random_bits((uint32_t *)to, n, 42, 7, first, NULL);
    if (kind == 1) return memopt_random_uniform((float *)to, n, 42, 7, first, NULL);
    return memopt_random_normal((float *)to, n, 42, 7, first, NULL);
}
static int cuda_number_random_device(int kind, void *to, size_t n, uint64_t first) {
    if (kind == 0) return memopt_cuda_random_bits((uint32_t *)to, n, 42, 7, first, NULL);
    if (kind == 1) return memopt_cuda_random_uniform((float *)to, n, 42, 7, first, NULL);
    return memopt_cuda_random_normal((float *)to, n, 42, 7, first, NULL);
}
static void cuda_number_random(void) {
    static const uint64_t firsts[] = { 0, 1, 2, 3, 4, ((uint64_t)1 << 34) - 1000, (uint64_t)0 - 2047, (uint64_t)0 - 1 };
    void *want = malloc(12293 * 4);
    for (int kind = 0; kind < 3; ++kind)
        for (size_t s = 0; s < sizeof cuda_number_sizes / sizeof *cuda_number_sizes; ++s)
            for (size_t k = 0; k < sizeof firsts / sizeof *firsts; ++k) {
                const size_t n = cuda_number_sizes[s]; unsigned char *d;
                if (n > 300 && (s + k) % 3) continue;
                CHECK(cuda_number_random_cpu(kind, want, n, firsts[k]) == MEMOPT_OK);
                d = cuda_number_room(n, 4, (s + k) % 4);
                TEST_SCHEDULES(2) {
                    CHECK(cuda_number_random_device(kind, d, n, firsts[k]) == 0);
                    test_synchronize();
                    cuda_number_same(want, d, n, 4, kind * 1000 + s * 10 + k);
                }
                test_device_free(0);
            }
    free(want);
}
/* Refused calls: the status, and not a byte written or kernel launched. */
static void cuda_number_refused(void) {
    unsigned char *d = (unsigned char *)test_device(4096), got[4096]; size_t i, launches = simulator_launches();
    float *x = (float *)d; uint16_t *two = (uint16_t *)(d + 2048); uint8_t *one = d + 2048;
    const size_t most = SIZE_MAX / 4 + 1;
    CHECK(memopt_cuda_bf16_from_f32(NULL, x, 4, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_bf16_from_f32(two, NULL, 4, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_f32_split(two, NULL, x, 4, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_f32_join(x, two, NULL, 4, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_random_bits(NULL, 4, 0, 0, 0, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_bf16_from_f32((uint16_t *)(d + 2049), x, 4, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_e4m3_from_f32(one, (float *)(d + 2), 4, 0, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_f32_from_e4m3((float *)(d + 1), one, 4, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_f32_join(x, two, (uint16_t *)(d + 3001), 4, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_random_normal((float *)(d + 2), 4, 0, 0, 0, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_e4m3_from_f32(one, x, 4, 2, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_e5m2_from_f32_stochastic(one, x, 4, -1, cuda_number_noise, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_f16_from_f32(two, x, most, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_cuda_f16_from_f32_stochastic(two, x, SIZE_MAX, cuda_number_noise, 0, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_cuda_random_uniform(x, most, 0, 0, 0, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_cuda_f16_from_f32((uint16_t *)d, x, 4, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_f32_from_e5m2(x, d + 15, 4, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_f32_split(two, two + 3, x, 4, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_f32_split(two, (uint16_t *)d, x, 4, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_f32_join(x, two, (uint16_t *)d + 7, 4, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_bf16_from_f32(NULL, NULL, 0, NULL) == 0);
    CHECK(memopt_cuda_f32_split(NULL, NULL, NULL, 0, NULL) == 0);
    CHECK(memopt_cuda_e4m3_from_f32_stochastic(NULL, NULL, 0, 0, cuda_number_noise, 0, NULL) == 0);
    CHECK(memopt_cuda_random_bits(NULL, 0, 0, 0, 3, NULL) == 0);
    CHECK(simulator_launches() == launches);
    test_get(got, d, sizeof got);
    for (i = 0; i < sizeof got; ++i) CHECK_AT(got[i] == 0xFF, i);
}
/* Errors of CUDA's: one from before the call stays where it is; a launch that fails is told, and taken. */
static int cuda_number_any(int which, unsigned char *d) {
    const float *x = (const float *)d;
    switch (which) {
    case 0: return memopt_cuda_f16_from_f32((uint16_t *)(d + 2048), x, 100, NULL);
    case 1: return memopt_cuda_bf16_from_f32_stochastic((uint16_t *)(d + 2048), x, 100, cuda_number_noise, 0, NULL);
    case 2: return memopt_cuda_bf16_from_f32_stochastic((uint16_t *)(d + 2048), x, 100, cuda_number_noise, 3, NULL);
    case 3: return memopt_cuda_f32_from_e4m3((float *)(d + 2048), d, 100, NULL);
    case 4: return memopt_cuda_f32_split((uint16_t *)(d + 2048), (uint16_t *)(d + 3072), x, 100, NULL);
    }
    return memopt_cuda_random_normal((float *)(d + 2048), 100, 1, 2, 3, NULL);
}
static void cuda_number_errors(void) {
    unsigned char *d = (unsigned char *)test_device(4096), got[2048];
    if (test_on_card()) { SKIP("errors are made by the simulator"); return; }
    for (int which = 0; which < 6; ++which) {
        simulator_pending_error(cudaErrorIllegalAddress);
        CHECK(cuda_number_any(which, d) == MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
        CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
        simulator_pending_error(0);
        simulator_fail_launch(1);
        CHECK(cuda_number_any(which, d) == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
        CHECK(cudaGetLastError() == cudaSuccess);
        simulator_fail_launch(0);
    }
    test_synchronize();
    test_get(got, d + 2048, sizeof got);
    for (size_t i = 0; i < sizeof got; ++i) CHECK_AT(got[i] == 0xFF, i);
    CHECK(cuda_number_any(0, d) == 0);
}
/* More than 2^31 elements: the first tile and the last. */
static void cuda_number_huge(void) {
    const size_t n = ((size_t)1 << 31) + 4096 + 5, tail = 4096 + 5; float x[4096 + 5]; uint8_t want[4096 + 5], got[4096 + 5];
    float *d_x = NULL; uint8_t *d_to = NULL;
    if (cudaMalloc((void **)&d_x, n * 4) != cudaSuccess || cudaMalloc((void **)&d_to, n) != cudaSuccess) {
        cudaGetLastError();
        cudaFree(d_x);
        SKIP("no room for 2^31 floats");
        return;
    }
    cuda_number_fill(x, tail, 4, 3);
    test_put(d_x + (n - tail), x, sizeof x);
    test_put(d_x, x, sizeof x);
    simulator_run_blocks(1, 2);
    CHECK(memopt_cuda_e4m3_from_f32_stochastic(d_to, d_x, n, 0, cuda_number_noise, 32, NULL) == 0);
    test_synchronize();
    simulator_run_blocks(SIZE_MAX, SIZE_MAX);
    CHECK(memopt_e4m3_from_f32_stochastic(want, x, tail, 0, cuda_number_noise, 32 + n - tail, NULL) == MEMOPT_OK);
    test_get(got, d_to + (n - tail), tail);
    CHECK(memcmp(got, want, tail) == 0);
    CHECK(memopt_e4m3_from_f32_stochastic(want, x, 4096, 0, cuda_number_noise, 32, NULL) == MEMOPT_OK);
    test_get(got, d_to, 4096);
    CHECK(memcmp(got, want, 4096) == 0);
    cudaFree(d_x); cudaFree(d_to);
}
static void test_cuda_number(void) {
    RUN(cuda_number_shapes); RUN(cuda_number_noise_firsts); RUN(cuda_number_all_codes); RUN(cuda_number_roundings);
    RUN(cuda_number_dither); RUN(cuda_number_split); RUN(cuda_number_join_any); RUN(cuda_number_random);
    RUN(cuda_number_refused); RUN(cuda_number_errors); RUN(cuda_number_huge);
}
#ifndef TEST_COMBINED
int main(void) {
    test_cuda_number();
    return test_totals();
}
#endif
