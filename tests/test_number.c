/* test_number.c - conversions at every level. What is expected comes from the value of every code, computed by the
   format's definition, and a search among these values; nothing of it works on the bits of a float. */
#include "test.h"
#include <float.h>

typedef struct number_format {
    const char *name;
    int bits, bias, bytes;
    unsigned most, over, quiet; /* codes: the largest finite one, where larger ones go, the quiet NaN */
    int nan_bits;               /* of the mantissa, that a NaN keeps */
    int can_saturate;
} number_format;
static const number_format number_formats[4] = {
    { "bf16", 7, 127, 2, 0x7f7f, 0x7f80, 0x7fc0, 7, 0 }, { "f16", 10, 15, 2, 0x7bff, 0x7c00, 0x7e00, 10, 0 },
    { "e4m3", 3, 7, 1, 0x7e, 0x7f, 0x7f, 0, 1 }, { "e5m2", 2, 15, 1, 0x7b, 0x7c, 0x7e, 2, 1 } };
static double number_values[4][0x7f81]; /* of the codes up to one past the largest: what would come next */
static double number_from_bits(uint32_t u) { /* a finite float32, by its definition */
    const int e = (int)(u >> 23 & 255); const double m = (double)(u & 0x7fffff);
    return ldexp(e ? m + 8388608.0 : m, (e ? e : 1) - 150) * (u >> 31 ? -1 : 1);
}
static uint32_t number_to_bits(double x) { /* a float32 of that value, 0 or more; also where denormals are flushed */
    int e; const double m = frexp(x, &e);
    if (x < ldexp(1, -126)) return (uint32_t)ldexp(x, 149);
    return (uint32_t)(e + 126) << 23 | ((uint32_t)ldexp(m, 24) & 0x7fffff);
}
static void number_prepare(void) {
    int f; unsigned code;
    for (f = 0; f < 4; ++f)
        for (code = 0; code <= number_formats[f].most + 1; ++code) {
            const int e = (int)(code >> number_formats[f].bits), full = 1 << number_formats[f].bits;
            const int m = (int)code & (full - 1);
            number_values[f][code] = ldexp(e ? full + m : m, (e ? e : 1) - number_formats[f].bias - number_formats[f].bits);
        }
}
static unsigned number_expected(int f, uint32_t u, int saturate, int stochastic, uint32_t random) {
    const number_format *format = &number_formats[f]; const double *value = number_values[f], x = fabs(number_from_bits(u));
    const unsigned sign = u >> 31 << (format->bytes * 8 - 1), over = saturate ? format->most : format->over;
    unsigned low = 0, high = format->most + 1;
    if ((u & 0x7fffffff) > 0x7f800000) return sign | format->quiet | (u & 0x7fffff) >> (23 - format->nan_bits);
    if ((u & 0x7fffffff) == 0x7f800000) return sign | over;
    while (high - low > 1) { /* value[low] <= x; x < value[high], or high is past the end */
        const unsigned middle = low + (high - low) / 2;
        if (value[middle] <= x) low = middle;
        else high = middle;
    }
    if (stochastic && x <= value[format->most]) { /* up with the probability p that lies between, counted in 2^-31 */
        const double p = (x - value[low]) / (value[high] - value[low]);
        if (2 * (uint64_t)floor(p * 2147483648.0) + random >= UINT64_C(4294967296)) low = high;
    } else {
        const double below = x - value[low], above = value[high] - x;
        if (below > above || (below == above && low & 1)) low = high;
    }
    return sign | (low > format->most ? over : low);
}
static uint32_t number_code(const void *codes, size_t i, int bytes) {
    return bytes == 2 ? ((const uint16_t *)codes)[i] : ((const uint8_t *)codes)[i];
}
static memopt_status number_narrow(int f, void *dst, const float *src, size_t n, int saturate, const memopt_noise *noise,
                                   uint64_t first, const memopt_threads *t) {
    uint16_t *two = (uint16_t *)dst; uint8_t *one = (uint8_t *)dst;
    if (noise) switch (f) {
    case 0: return memopt_bf16_from_f32_stochastic(two, src, n, *noise, first, t);
    case 1: return memopt_f16_from_f32_stochastic(two, src, n, *noise, first, t);
    case 2: return memopt_e4m3_from_f32_stochastic(one, src, n, saturate, *noise, first, t);
    default: return memopt_e5m2_from_f32_stochastic(one, src, n, saturate, *noise, first, t);
    }
    switch (f) {
    case 0: return memopt_bf16_from_f32(two, src, n, t);
    case 1: return memopt_f16_from_f32(two, src, n, t);
    case 2: return memopt_e4m3_from_f32(one, src, n, saturate, t);
    default: return memopt_e5m2_from_f32(one, src, n, saturate, t);
    }
}
static memopt_status number_widen(int f, float *dst, const void *src, size_t n, const memopt_threads *t) {
    switch (f) {
    case 0: return memopt_f32_from_bf16(dst, (const uint16_t *)src, n, t);
    case 1: return memopt_f32_from_f16(dst, (const uint16_t *)src, n, t);
    case 2: return memopt_f32_from_e4m3(dst, (const uint8_t *)src, n, t);
    default: return memopt_f32_from_e5m2(dst, (const uint8_t *)src, n, t);
    }
}
static uint32_t number_single(int f, uint32_t u, int saturate, int stochastic, uint32_t random) {
    const float x = memopt_i_bits_float(u);
    if (stochastic) switch (f) {
    case 0: return memopt_to_bf16_stochastic(x, random);
    case 1: return memopt_to_f16_stochastic(x, random);
    case 2: return memopt_to_e4m3_stochastic(x, saturate, random);
    default: return memopt_to_e5m2_stochastic(x, saturate, random);
    }
    switch (f) {
    case 0: return memopt_to_bf16(x);
    case 1: return memopt_to_f16(x);
    case 2: return memopt_to_e4m3(x, saturate);
    default: return memopt_to_e5m2(x, saturate);
    }
}

/* The hard inputs of a format, and of float32 itself: every step 8 floats around each code's value and around each tie
   (every 64th of bf16 in the middle of its range), every exponent, every class of NaN, both signs. */
enum { NUMBER_MOST = 700000 };
static float number_input[NUMBER_MOST], number_back[NUMBER_MOST];
static uint16_t number_output[NUMBER_MOST], number_wanted[NUMBER_MOST];
static size_t number_plant(int f) {
    static const uint32_t special[] = { 0, 1, 2, 0x3fffff, 0x400000, 0x400001, 0x7fffff, 0x800000, 0x800001, 0x7f7effff,
        0x7f7f0000, 0x7f7f0001, 0x7f7f7fff, 0x7f7f8000, 0x7f7f8001, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7f807fff,
        0x7f808000, 0x7f808001, 0x7f80ffff, 0x7f810000, 0x7f81ffff, 0x7fa00000, 0x7fbfffff, 0x7fc00000, 0x7fc00001,
        0x7fdfffff, 0x7fff0000, 0x7fff7fff, 0x7fff8000, 0x7fffffff };
    uint64_t seed = 11; uint32_t u[NUMBER_MOST / 200 + 200]; size_t n = 0, i, planted = 0; unsigned code; int around, e;
    for (i = 0; i < sizeof special / sizeof *special; ++i) u[planted++] = special[i];
    for (e = 0; e < 255; ++e) {
        u[planted++] = (uint32_t)e << 23; u[planted++] = (uint32_t)e << 23 | 0x7fffff;
        u[planted++] = (uint32_t)e << 23 | 0x400000; u[planted++] = (uint32_t)e << 23 | 0x008000;
        u[planted++] = (uint32_t)e << 23 | 0x018000; u[planted++] = (uint32_t)e << 23 | (test_random(&seed) & 0x7fffff);
    }
    for (i = 0; i < planted; ++i) {
        number_input[n++] = memopt_i_bits_float(u[i]);
        number_input[n++] = memopt_i_bits_float(u[i] | 0x80000000);
    }
    for (code = 0; code <= number_formats[f].most; ++code) {
        const double *value = number_values[f] + code, tie = 0.5 * (value[0] + value[1]);
        if (f == 0 && code > 0x300 && code < 0x7d00 && code % 64 > 1) continue;
        for (around = -2; around < 4; ++around) {
            const uint32_t at = number_to_bits(around & 1 ? tie : value[0]);
            number_input[n++] = memopt_i_bits_float((at + (uint32_t)(around >> 1)) | ((uint32_t)around ^ code) << 31);
        }
    }
    for (i = 0; i < 30000; ++i) number_input[n++] = memopt_i_bits_float((uint32_t)test_random(&seed));
    for (i = 0; i < 2000; ++i) number_input[n++] = memopt_i_bits_float((uint32_t)test_random(&seed) >> 9 | 0x3e800000);
    return n;
}
static int number_same(int f, size_t i, const uint16_t *codes) {
    return number_code(codes, i, number_formats[f].bytes) == number_wanted[i];
}
static void number_nearest(void) {
    int f, level, saturate; size_t i, n;
    for (f = 0; f < 4; ++f)
        for (saturate = 0; saturate <= number_formats[f].can_saturate; ++saturate) {
            n = number_plant(f);
            for (i = 0; i < n; ++i) {
                const uint32_t u = memopt_i_get_bits(&number_input[i]);
                number_wanted[i] = (uint16_t)number_expected(f, u, saturate, 0, 0);
                CHECK_AT(number_single(f, u, saturate, 0, 0) == number_wanted[i], u);
            }
            for (level = 1; level <= memopt_simd_best(); ++level) {
                const memopt_threads t = test_level(level);
                memset(number_output, 0xA5, sizeof number_output);
                CHECK(number_narrow(f, number_output, number_input, n, saturate, NULL, 0, &t) == MEMOPT_OK);
                for (i = 0; i < n; ++i) CHECK_AT(number_same(f, i, number_output), memopt_i_get_bits(&number_input[i]));
            }
        }
}
/* The probability of going up, exactly: the first random number that does, and the one before it, which does not. */
static void number_stochastic_single(void) {
    int f, saturate; size_t i, n; uint64_t seed = 3;
    for (f = 0; f < 4; ++f)
        for (saturate = 0; saturate <= number_formats[f].can_saturate; ++saturate) {
            n = number_plant(f);
            for (i = 0; i < n; ++i) {
                const uint32_t u = memopt_i_get_bits(&number_input[i]); uint32_t from = 0, to = UINT32_MAX, random[5]; int k;
                if (test_is_passed_over()) continue;
                while (from < to) { /* the smallest that goes up, if any does */
                    const uint32_t middle = from + (to - from) / 2;
                    if (number_expected(f, u, saturate, 1, middle) != number_expected(f, u, saturate, 1, 0)) to = middle;
                    else from = middle + 1;
                    if (i % 16) break;
                }
                random[0] = from; random[1] = from - 1; random[2] = 0; random[3] = UINT32_MAX;
                random[4] = (uint32_t)test_random(&seed);
                for (k = 0; k < 5; ++k)
                    CHECK_AT(number_single(f, u, saturate, 1, random[k])
                             == number_expected(f, u, saturate, 1, random[k]), u);
            }
        }
}
static void number_stochastic(void) {
    static const uint64_t firsts[] = { 0, 1, 31, 32, 1000003, (UINT64_C(1) << 33) - 4096, (UINT64_C(1) << 33) - 1001,
                                       (UINT64_C(12345) << 33) + 77, UINT64_MAX - 31, UINT64_MAX - 500 };
    const memopt_noise noise = memopt_noise_make(1, 2); int f, level, saturate; size_t i, n, k;
    for (f = 0; f < 4; ++f) {
        n = number_plant(f);
        for (k = 0; k < sizeof firsts / sizeof *firsts; ++k) {
            const size_t count = k == 1 ? n : memopt_i_min(n, 9000);
            saturate = number_formats[f].can_saturate & (int)k;
            for (i = 0; i < count; ++i)
                number_wanted[i] = (uint16_t)number_expected(f, memopt_i_get_bits(&number_input[i]), saturate, 1,
                                                             memopt_i_noise32(noise, firsts[k] + i));
            for (level = 1; level <= memopt_simd_best(); ++level) {
                const memopt_threads t = test_level(level);
                memset(number_output, 0xA5, sizeof number_output);
                CHECK(number_narrow(f, number_output, number_input, count, saturate, &noise, firsts[k], &t) == MEMOPT_OK);
                for (i = 0; i < count; ++i)
                    CHECK_AT(number_same(f, i, number_output), memopt_i_get_bits(&number_input[i]));
            }
        }
    }
}
/* The mean is the value: 2^18 roundings of each of a few numbers, against the deviation that such a mean has. */
static void number_unbiased(void) {
    const size_t n = (size_t)1 << 18; int f, k; size_t i; uint64_t seed = 5;
    for (f = 0; f < 4; ++f)
        for (k = 0; k < 12; ++k) {
            const int lowest = f == 0 ? 1 : f == 2 ? 121 : 113, e = lowest + 8 - k; /* down to deep in the denormals */
            const uint32_t u = (e > 0 ? (uint32_t)e << 23 : 0) | (uint32_t)(test_random(&seed) & 0x7fffff);
            const double x = number_from_bits(u), *value = number_values[f];
            const memopt_noise noise = memopt_noise_make(9, (uint64_t)(f * 100 + k)); const unsigned low = number_expected(f, u, 0, 1, 0);
            double ups = 0, p, d;
            if (test_is_passed_over()) continue;
            p = (x - value[low]) / (value[low + 1] - value[low]);
            for (i = 0; i < n; ++i) number_input[i] = memopt_i_bits_float(u);
            CHECK(number_narrow(f, number_output, number_input, n, 0, &noise, 0, NULL) == MEMOPT_OK);
            for (i = 0; i < n; ++i) {
                const unsigned code = number_code(number_output, i, number_formats[f].bytes);
                CHECK_AT(code == low || code == low + 1, i);
                ups += code == low + 1;
            }
            d = sqrt(p * (1 - p) / (double)n);
            CHECK_AT(fabs(ups / (double)n - p) < 4.5 * d + 1e-5, (uint64_t)(f * 100 + k));
        }
}
static uint32_t number_expected_float(int f, unsigned code) {
    const number_format *format = &number_formats[f];
    const unsigned top = 1u << (format->bytes * 8 - 1), magnitude = code & (top - 1), sign = code & top ? 0x80000000 : 0;
    const unsigned mantissa = magnitude & ((1u << format->bits) - 1);
    if (magnitude <= format->most) return number_to_bits(number_values[f][magnitude]) | sign;
    if (magnitude == format->over && f != 2) return sign | 0x7f800000;
    if (f == 0) return (uint32_t)code << 16;
    return sign | 0x7fc00000 | (f == 2 ? 0 : (uint32_t)mantissa << (23 - format->bits));
}
static void number_widened(void) {
    int f, level; unsigned code;
    for (f = 0; f < 4; ++f) {
        const unsigned codes = 1u << number_formats[f].bytes * 8;
        for (code = 0; code < codes; ++code) {
            uint32_t single;
            if (number_formats[f].bytes == 2) number_output[code] = (uint16_t)code;
            else ((uint8_t *)number_output)[code] = (uint8_t)code;
            switch (f) {
            case 0: single = memopt_i_float_bits(memopt_from_bf16((uint16_t)code)); break;
            case 1: single = memopt_i_float_bits(memopt_from_f16((uint16_t)code)); break;
            case 2: single = memopt_i_float_bits(memopt_from_e4m3((uint8_t)code)); break;
            default: single = memopt_i_float_bits(memopt_from_e5m2((uint8_t)code));
            }
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ == 2 /* the x87 */
            if (f == 0 && (single & 0x7fffffff) > 0x7f800000) { /* a float that is returned there comes back quiet */
                CHECK_AT((single | 0x400000) == (number_expected_float(f, code) | 0x400000), code);
                continue;
            }
#endif
            CHECK_AT(single == number_expected_float(f, code), code);
        }
        for (level = 1; level <= memopt_simd_best(); ++level) {
            const memopt_threads t = test_level(level);
            memset(number_back, 0xA5, sizeof number_back);
            CHECK(number_widen(f, number_back, number_output, codes, &t) == MEMOPT_OK);
            for (code = 0; code < codes; ++code)
                CHECK_AT(memopt_i_get_bits(&number_back[code]) == number_expected_float(f, code), code);
        }
    }
}
/* The high half is the nearest, the larger one of a tie; a NaN there is one here; together they are the float. */
static void number_split_check(uint32_t u, uint16_t high, uint16_t low, uint32_t joined) {
    const uint32_t magnitude = u & 0x7fffffff; const unsigned to_even = number_expected(0, u, 0, 0, 0);
    CHECK_AT(joined == u && low == (u & 0xffff), u);
    if (magnitude <= 0x7f800000) CHECK_AT(high == ((u & 0x1ffff) == 0x8000 ? to_even + 1 : to_even), u);
    else if (magnitude >= 0x7f810000) CHECK_AT((high & 0x7fff) > 0x7f80 && (high ^ u >> 16) < 0x8000, u);
    else CHECK_AT((high & 0x7fff) == (low & 0x8000 ? 0 : 0x7f80), u);
}
static void number_split(void) {
    const size_t n = number_plant(0); size_t i; int level; uint16_t *high = number_output, *low = number_wanted;
    for (level = 1; level <= memopt_simd_best(); ++level) {
        const memopt_threads t = test_level(level);
        memset(high, 0xA5, sizeof number_output); memset(low, 0xA5, sizeof number_wanted);
        memset(number_back, 0xA5, sizeof number_back);
        CHECK(memopt_f32_split(high, low, number_input, n, &t) == MEMOPT_OK);
        CHECK(memopt_f32_join(number_back, high, low, n, &t) == MEMOPT_OK);
        for (i = 0; i < n; ++i)
            number_split_check(memopt_i_get_bits(&number_input[i]), high[i], low[i], memopt_i_get_bits(&number_back[i]));
    }
    for (level = 1; level <= memopt_simd_best(); ++level) { /* join alone: pairs in the order of their sums */
        const memopt_threads t = test_level(level);
        for (i = 0; i < 65536; ++i) { high[i] = (uint16_t)i; low[i] = (uint16_t)(i * 40503); }
        CHECK(memopt_f32_join(number_back, high, low, 65536, &t) == MEMOPT_OK);
        for (i = 0; i < 65536; ++i) { /* no other pair has this float */
            uint16_t again[2];
            CHECK(memopt_f32_split(again, again + 1, number_back + i, 1, NULL) == MEMOPT_OK);
            CHECK_AT(again[0] == high[i] && again[1] == low[i], i);
        }
    }
}
/* Every length up to 130 at every misalignment up to 16 elements; what lies before and behind is untouched. One element
   of each is odd (NaN, infinity, denormal, beyond the largest), so that it is met in every place of a group. */
static void number_lengths(void) {
    static const uint32_t odd[] = { 0x7fc12345, 0xffc00001, 0x7f800000, 0x00000123, 0x807fffff, 0x7f7fffff, 0x7f80a000, 0xff7f4000,
        0x7f7f7fff, 0x80000001, 0x7f800001 };
    static unsigned char bytes[4 * 256], again[4 * 256]; uint64_t seed = 8; size_t n, i; int f, level, way;
    memopt_noise noise = memopt_noise_make(5, 6);
    noise.shift = 0xa5c39871u;
    for (n = 0; n <= 130; ++n)
        for (f = 0; f < 5; ++f)
            for (level = 1; level <= memopt_simd_best(); ++level) {
                const memopt_threads t = test_level(level); const size_t to = test_below(&seed, 17), from = test_below(&seed, 17);
                const size_t wide = f == 4 ? 2 : (size_t)number_formats[f].bytes; const uint64_t first = test_below(&seed, 64);
                for (i = 0; i < n; ++i) number_input[from + i] = (float)(int)test_below(&seed, 2000) * 0.013f - 13;
                if (n && n % 4) number_input[from + test_below(&seed, n)] = memopt_i_bits_float(odd[test_below(&seed, sizeof odd / sizeof *odd)]);
                for (way = 0; way < 2; ++way) {
                    memset(bytes, 0xA5, sizeof bytes); memset(again, 0xA5, sizeof again); memset(number_back, 0xA5, 4 * 256);
                    if (f < 4) {
                        CHECK(number_narrow(f, bytes + 64 + to * wide, number_input + from, n, 0, way ? &noise : NULL, first, &t)
                              == MEMOPT_OK);
                        CHECK(number_widen(f, number_back + 16 + from, bytes + 64 + to * wide, n, &t) == MEMOPT_OK);
                    } else {
                        uint16_t *high = (uint16_t *)(void *)(bytes + 64 + to * 2);
                        uint16_t *low = (uint16_t *)(void *)(again + 64 + from * 2);
                        CHECK(memopt_f32_split(high, low, number_input + from, n, &t) == MEMOPT_OK);
                        CHECK(memopt_f32_join(number_back + 16 + from, high, low, n, &t) == MEMOPT_OK);
                    }
                    for (i = 0; i < n; ++i) {
                        const uint32_t u = memopt_i_get_bits(&number_input[from + i]);
                        const uint32_t back = memopt_i_get_bits(&number_back[16 + from + i]);
                        if (f < 4) {
                            const uint32_t code = number_code(bytes + 64 + to * wide, i, (int)wide);
                            CHECK_AT(code == number_expected(f, u, 0, way, memopt_i_noise32(noise, first + i)), n);
                            CHECK_AT(back == number_expected_float(f, code), n);
                        } else number_split_check(u, (uint16_t)number_code(bytes + 64 + to * 2, i, 2),
                                                  (uint16_t)number_code(again + 64 + from * 2, i, 2), back);
                    }
                    for (i = 0; i < sizeof bytes; ++i)
                        if (i < 64 + to * wide || i >= 64 + (to + n) * wide) CHECK_AT(bytes[i] == 0xA5, n);
                    for (i = 0; i < sizeof again; ++i)
                        if (f < 4 || i < 64 + from * 2 || i >= 64 + (from + n) * 2) CHECK_AT(again[i] == 0xA5, n);
                    for (i = 0; i < 256; ++i)
                        if (i < 16 + from || i >= 16 + from + n) CHECK_AT(memopt_i_get_bits(&number_back[i]) == 0xA5A5A5A5, n);
                }
            }
}
/* Long results are streamed, with a head and a tail that are not; and workers, however many, change nothing. */
static void number_two_backwards(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    size_t i;
    (void)user;
    for (i = chunk_count; i-- > 0;) fn(task, i, (int)(i & 1));
}
enum { NUMBER_STREAMED = 3 * (1 << 16) + 1077 }; /* four chunks, the last one short */
static unsigned char number_block[NUMBER_STREAMED * 4 + 512];
static void number_stream_narrow(int f, int level, size_t misaligned, int stochastic, uint64_t first) {
    const size_t wide = f == 4 ? 2 : (size_t)number_formats[f].bytes, n = NUMBER_STREAMED;
    unsigned char *dst = number_block + (64 - ((uintptr_t)number_block & 63)) + 64 + misaligned * wide; size_t i;
    memopt_i_number_task t = memopt_i_number_task_of(f == 4 ? MEMOPT_I_SPLIT : f, 0, dst, number_input, n);
    t.level = level; t.stream = 1; t.stochastic = stochastic; t.noise = memopt_noise_make(7, 8); t.first = first;
    if (f == 4) t.dst2 = dst + n / 32 * 64 + 64; /* its lines begin where those of the first do */
    memset(number_block, 0xA5, sizeof number_block);
    number_two_backwards(NULL, n / MEMOPT_I_NUMBER_CHUNK + 1, memopt_i_number_chunk, &t);
    for (i = 0; i < n; ++i) {
        const uint32_t u = memopt_i_get_bits(&number_input[i]), code = number_code(dst, i, (int)wide);
        if (f < 4) CHECK_AT(code == number_single(f, u, 0, stochastic, memopt_i_noise32(t.noise, first + i)), i);
        else CHECK_AT(code == memopt_i_split_high(u) && number_code(t.dst2, i, 2) == (u & 0xffff), i);
    }
    for (i = 0; i < 64; ++i) CHECK_AT(dst[n * wide + (f == 4 ? n * wide + 128 : 0) + i] == 0xA5 && dst[-1 - (int)i] == 0xA5, i);
}
static void number_stream_widen(int f, int level, size_t misaligned) {
    const size_t n = NUMBER_STREAMED; const uint16_t *codes = (const uint16_t *)(const void *)number_input; size_t i;
    unsigned char *dst = number_block + (64 - ((uintptr_t)number_block & 63)) + 64 + misaligned * 4;
    memopt_i_number_task t = memopt_i_number_task_of(f == 4 ? MEMOPT_I_SPLIT : f, 1, dst, codes, n);
    t.level = level; t.stream = 1; t.src2 = codes + n;
    memset(number_block, 0xA5, sizeof number_block);
    number_two_backwards(NULL, n / MEMOPT_I_NUMBER_CHUNK + 1, memopt_i_number_chunk, &t);
    for (i = 0; i < n; ++i) {
        uint32_t u;
        memcpy(&u, dst + i * 4, 4);
        CHECK_AT(u == (f == 4 ? memopt_i_join(codes[i], codes[n + i])
                       : number_expected_float(f, number_code(codes, i, number_formats[f].bytes))), i);
    }
    for (i = 0; i < 64; ++i) CHECK_AT(dst[n * 4 + i] == 0xA5 && dst[-1 - (int)i] == 0xA5, i);
}
static void number_streamed(void) { /* where a level cannot stream, these are chunks like others */
    int f, level; size_t i;
    for (i = 0; i < NUMBER_STREAMED; ++i) number_input[i] = memopt_i_bits_float((uint32_t)i * 2654435761u); /* NaN and all */
    for (level = memopt_simd_best(); level > 0 && level > memopt_simd_best() - 3; --level)
        for (f = 0; f < 5; ++f) {
            if (test_is_passed_over()) continue;
            number_stream_narrow(f, level, 0, 0, 0);
            number_stream_narrow(f, level, 9, f < 4, 23); /* its noise and its lines begin together: 32 - 9 */
            number_stream_narrow(f, level, 8, f < 4, 5);  /* never */
            number_stream_widen(f, level, 0);
            number_stream_widen(f, level, 5);
        }
}
static void number_long(void) { /* long enough to be streamed by itself; in one piece, and by two workers */
    const size_t n = MEMOPT_I_NUMBER_STREAM / 2 + 33; float *src = (float *)malloc(n * 4); size_t i; memopt_threads t;
    uint16_t *dst = (uint16_t *)malloc(n * 2), *again = (uint16_t *)malloc(n * 2);
    CHECK(src && dst && again);
    memset(&t, 0, sizeof t); t.run_fn = number_two_backwards; t.worker_count = 2;
    for (i = 0; src && i < n; ++i) src[i] = memopt_i_bits_float((uint32_t)i * 2654435761u);
    if (src && dst && again) {
        CHECK(memopt_bf16_from_f32(dst, src, n, &t) == MEMOPT_OK);
        CHECK(memopt_bf16_from_f32(again, src, n, NULL) == MEMOPT_OK);
        for (i = 0; i < n; ++i) CHECK_AT(dst[i] == memopt_to_bf16(src[i]), i);
        CHECK(!memcmp(dst, again, n * 2));
        CHECK(memopt_f32_from_bf16(src, dst, n, &t) == MEMOPT_OK);
        for (i = 0; i < n; ++i) CHECK_AT(memopt_i_get_bits(&src[i]) == (uint32_t)dst[i] << 16, i);
    }
    free(src); free(dst); free(again);
}
/* In two pieces, which meet at a place drawn at random: the sums go on. */
static double number_squares_cut(int level, uint64_t *seed, const float *x, size_t n) {
    const size_t cut = test_below(seed, n + 1); double sums[16] = { 0 };
    memopt_i_squares_add(level, sums, 0, x, cut);
    memopt_i_squares_add(level, sums, cut, x + cut, n - cut);
    return memopt_i_sums_join(sums);
}
static void number_squares(void) { /* sums of small integers' squares are exact in any order; of others, in the stated one */
#if defined(__FAST_MATH__)
    SKIP("under -ffast-math sums have no order, and no NaN");
    return;
#endif
    static float x[1000]; int level; size_t n, i, k; uint64_t seed = 4; const volatile double one = 1.0;
    for (level = 1; level <= memopt_simd_best(); ++level) {
        for (n = 0; n <= 130; ++n) {
            double exact = 0;
            for (i = 0; i < n; ++i) { x[i + 1] = (float)(int)test_below(&seed, 4000) - 2000; exact += (double)x[i + 1] * (double)x[i + 1]; }
            CHECK_AT(number_squares_cut(level, &seed, x + 1, n) == exact, n);
        }
        for (k = 0; k < 30; ++k) {
            double sums[16] = { 0 }; const size_t count = 1 + test_below(&seed, 999); int half;
            for (i = 0; i < count; ++i) {
                x[i] = memopt_i_bits_float((uint32_t)test_random(&seed) % 0x60000000 + 0x10000000);
                sums[i % 16] = fma((double)x[i], (double)x[i], sums[i % 16]);
            }
            for (half = 8; half; half /= 2)
                for (i = 0; i < (size_t)half; ++i) sums[i] = fma(one, sums[i], sums[i + (size_t)half]); /* x87 too rounds once */
            CHECK_AT(number_squares_cut(level, &seed, x, count) == sums[0], k);
            x[test_below(&seed, count)] = memopt_i_bits_float(k & 1 ? 0x7f800000 : 0xffc00000);
            CHECK_AT(!(number_squares_cut(level, &seed, x, count) <= DBL_MAX), k);
        }
    }
}
/* What other sections call for a piece at a time, against the single values: one by one, at every level. */
static void number_pieces(void) {
    enum { N = 100 };
    static const memopt_type types[3] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16 };
    const memopt_noise noise = memopt_noise_make(3, 4); uint64_t seed = 8; float x[N], y[N]; uint16_t a[N], b[N]; size_t i, n, k; int level;
    for (i = 0; i < N; ++i) x[i] = ((float)test_below(&seed, 1 << 24) - 8388608.0f) * 0.001f;
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level))
        for (n = 0; n < N; n += n < 40 ? 1 : 19) {
            memset(a, 0xA5, sizeof a); memset(b, 0xA5, sizeof b);
            memopt_i_bf16_from_f32_at(level, a, x, n);
            for (i = 0; i < N; ++i) CHECK_AT(a[i] == (i < n ? memopt_to_bf16(x[i]) : 0xA5A5), n);
            memopt_i_bf16_stochastic_at(level, a, x, n, noise, 7);
            for (i = 0; i < n; ++i) CHECK_AT(a[i] == memopt_to_bf16_stochastic(x[i], memopt_i_noise32(noise, 7 + i)), n);
            memopt_i_f32_from_bf16_at(level, y, a, n);
            for (i = 0; i < n; ++i) CHECK_AT(y[i] == memopt_from_bf16(a[i]), n);
            memopt_i_split_at(level, a, b, x, n);
            for (i = 0; i < n; ++i) CHECK_AT(b[i] == (uint16_t)memopt_i_float_bits(x[i]) && a[i] == (memopt_i_float_bits(x[i]) + 0x8000) >> 16, n);
            memopt_i_join_at(level, y, a, b, n);
            for (i = 0; i < n; ++i) CHECK_AT(y[i] == x[i], n);
            for (k = 0; k < 3; ++k) {
                uint32_t stored[N]; float z[N];
                memset(stored, 0, sizeof stored);
                memopt_i_from_f32(level, stored, x, types[k], n);
                memopt_i_to_f32(level, z, stored, types[k], n);
                for (i = 0; i < n; ++i)
                    CHECK_AT(z[i] == (k == 0 ? x[i] : k == 1 ? memopt_from_bf16(memopt_to_bf16(x[i])) : memopt_from_f16(memopt_to_f16(x[i]))), n);
            }
        }
}
static void number_bad(void) {
    static float x[64]; static uint16_t y[64], z[64]; uint8_t *byte = (uint8_t *)y; memopt_threads half, odd; size_t i;
    const memopt_noise noise = memopt_noise_make(0, 0); const size_t most = SIZE_MAX / 4;
    memset(&half, 0, sizeof half); half.worker_count = 1;
    memset(&odd, 0, sizeof odd); odd.simd_level = -1;
    memset(y, 0xA5, sizeof y); memset(z, 0xA5, sizeof z);
    CHECK(memopt_bf16_from_f32(NULL, x, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_bf16_from_f32(y, NULL, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_from_bf16(NULL, y, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_from_bf16(x, NULL, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_split(y, NULL, x, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_split(NULL, y, x, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_join(x, y, NULL, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_join(x, NULL, y, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_bf16_from_f32(NULL, NULL, 0, NULL) == MEMOPT_OK);
    CHECK(memopt_f32_split(NULL, NULL, NULL, 0, NULL) == MEMOPT_OK);
    CHECK(memopt_bf16_from_f32_stochastic(NULL, NULL, 0, noise, 7, NULL) == MEMOPT_OK);
    CHECK(memopt_bf16_from_f32(y, x, 1, &half) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_from_f16(x, y, 1, &odd) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_e4m3_from_f32(byte, x, 1, 2, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_e5m2_from_f32(byte, x, 1, -1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_e4m3_from_f32_stochastic(byte, x, 1, 3, noise, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_bf16_from_f32(y, x, most + 1, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_bf16_from_f32(y, x, SIZE_MAX, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_f32_from_e4m3(x, byte, most + 1, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_f32_split(y, z, x, most + 1, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_bf16_from_f32((uint16_t *)(void *)x, x, 32, NULL) == MEMOPT_ERR_ARGUMENT); /* in place */
    CHECK(memopt_bf16_from_f32((uint16_t *)(void *)(x + 31), x, 32, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_bf16_from_f32((uint16_t *)(void *)(x + 32), x, 32, NULL) == MEMOPT_OK); /* they touch */
    CHECK(memopt_f32_from_bf16(x + 1, (const uint16_t *)(const void *)x, 3, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_split(y, y + 9, x, 10, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_split(y, y + 10, x, 10, NULL) == MEMOPT_OK);
    CHECK(memopt_f32_split(z, (uint16_t *)(void *)x, x, 10, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_f32_join(x, z, (const uint16_t *)(const void *)(x + 4), 10, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_bf16_from_f32((uint16_t *)(void *)((unsigned char *)y + 1), x, 4, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_bf16_from_f32(y, (const float *)(const void *)((unsigned char *)x + 2), 4, NULL) == MEMOPT_ERR_ARGUMENT);
    for (i = 20; i < 64; ++i) CHECK_AT(y[i] == 0xA5A5, i);
    for (i = 0; i < 64; ++i) CHECK_AT(z[i] == 0xA5A5, i);
}
static void test_number(void) {
    number_prepare();
    RUN(number_nearest);
    RUN(number_stochastic_single);
    RUN(number_stochastic);
    RUN(number_unbiased);
    RUN(number_widened);
    RUN(number_split);
    RUN(number_lengths);
    RUN(number_streamed);
    RUN(number_long);
    RUN(number_squares);
    RUN(number_pieces);
    RUN(number_bad);
}
#ifndef TEST_COMBINED
int main(void) { test_number(); return test_totals(); }
#endif
