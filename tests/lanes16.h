/* lanes16.h - the instructions of AVX-512 as functions, so that code of 16 lanes can be tested on machines that have
   AVX2 only. Include it before memopt.h (with tiles.h before it, matrix units, too). What AVX2 has is done by halves, so
   that rounding, NaN and flushing are the processor's; the rest is written from the instruction reference, lane by lane. */
#if !defined(MEMOPT_TEST_LANES16_H) && defined(__x86_64__) && defined(__GNUC__)
#define MEMOPT_TEST_LANES16_H
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define MEMOPT_I_LANES_EMULATED

#define LANES_FN __attribute__((target("avx2,fma,f16c"), unused)) static inline

/* The processor has what this file stands for, but for one that a test may name. */
static const char *lanes_without = "";
LANES_FN int lanes_supports(const char *name, int there) {
    return strcmp(name, lanes_without) != 0 && (there || strncmp(name, "avx512", 6) == 0);
}
#define __builtin_cpu_supports(name) lanes_supports(name, __builtin_cpu_supports(name))

/* Who made it. */
static const char *lanes_maker = "amd";
LANES_FN int lanes_is(const char *name) { return strcmp(name, lanes_maker) == 0; }
#define __builtin_cpu_is(name) lanes_is(name)

typedef union lanes_parts {
    __m512 ps;
    __m512i si;
    __m512d pd;
    __m512bh bh;
    __m256 ps2[2];
    __m256i si2[2];
    __m256d pd2[2];
    __m128i si4[4];
    float f[16];
    uint64_t q[8];
    uint32_t u[16];
    int32_t i[16];
    uint16_t w[32];
    uint8_t b[64];
    int8_t c[64];
} lanes_parts;

/* What AVX2 has, by halves: S is the suffix of the type, ps, si or pd. */
#define LANES_HALVES_1(name, S, T) \
    LANES_FN T lanes_##name(T x) { \
        lanes_parts a; \
        a.S = x; \
        a.S##2[0] = _mm256_##name(a.S##2[0]); \
        a.S##2[1] = _mm256_##name(a.S##2[1]); \
        return a.S; \
    }
#define LANES_HALVES_2(name, twin, S, T) \
    LANES_FN T lanes_##name(T x, T y) { \
        lanes_parts a, b; \
        a.S = x; \
        b.S = y; \
        a.S##2[0] = _mm256_##twin(a.S##2[0], b.S##2[0]); \
        a.S##2[1] = _mm256_##twin(a.S##2[1], b.S##2[1]); \
        return a.S; \
    }
#define LANES_HALVES_3(name, S, T) \
    LANES_FN T lanes_##name(T x, T y, T z) { \
        lanes_parts a, b, c; \
        a.S = x; \
        b.S = y; \
        c.S = z; \
        a.S##2[0] = _mm256_##name(a.S##2[0], b.S##2[0], c.S##2[0]); \
        a.S##2[1] = _mm256_##name(a.S##2[1], b.S##2[1], c.S##2[1]); \
        return a.S; \
    }
#define LANES_SHIFT(name) \
    LANES_FN __m512i lanes_##name(__m512i x, unsigned by) { \
        lanes_parts a; \
        a.si = x; \
        a.si2[0] = _mm256_##name(a.si2[0], (int)by); \
        a.si2[1] = _mm256_##name(a.si2[1], (int)by); \
        return a.si; \
    }
LANES_HALVES_1(sqrt_ps, ps, __m512)
LANES_HALVES_1(abs_epi8, si, __m512i)
LANES_HALVES_2(add_ps, add_ps, ps, __m512)
LANES_HALVES_2(sub_ps, sub_ps, ps, __m512)
LANES_HALVES_2(mul_ps, mul_ps, ps, __m512)
LANES_HALVES_2(div_ps, div_ps, ps, __m512)
LANES_HALVES_2(max_ps, max_ps, ps, __m512)
LANES_HALVES_2(min_ps, min_ps, ps, __m512)
LANES_HALVES_2(and_ps, and_ps, ps, __m512)
LANES_HALVES_2(or_ps, or_ps, ps, __m512)
LANES_HALVES_2(unpacklo_ps, unpacklo_ps, ps, __m512)
LANES_HALVES_2(unpackhi_ps, unpackhi_ps, ps, __m512)
LANES_HALVES_2(unpacklo_pd, unpacklo_pd, pd, __m512d)
LANES_HALVES_2(unpackhi_pd, unpackhi_pd, pd, __m512d)
LANES_HALVES_2(add_epi16, add_epi16, si, __m512i)
LANES_HALVES_2(max_epi16, max_epi16, si, __m512i)
LANES_HALVES_2(add_epi32, add_epi32, si, __m512i)
LANES_HALVES_2(add_epi64, add_epi64, si, __m512i)
LANES_HALVES_2(adds_epu8, adds_epu8, si, __m512i)
LANES_HALVES_2(sub_epi8, sub_epi8, si, __m512i)
LANES_HALVES_2(sub_epi32, sub_epi32, si, __m512i)
LANES_HALVES_2(mullo_epi32, mullo_epi32, si, __m512i)
LANES_HALVES_2(mul_epu32, mul_epu32, si, __m512i)
LANES_HALVES_2(and_si512, and_si256, si, __m512i)
LANES_HALVES_2(or_si512, or_si256, si, __m512i)
LANES_HALVES_2(xor_si512, xor_si256, si, __m512i)
LANES_HALVES_2(max_epu32, max_epu32, si, __m512i)
LANES_HALVES_2(min_epu32, min_epu32, si, __m512i)
LANES_HALVES_2(max_epi32, max_epi32, si, __m512i)
LANES_HALVES_2(min_epi32, min_epi32, si, __m512i)
LANES_HALVES_2(sllv_epi32, sllv_epi32, si, __m512i)
LANES_HALVES_2(srlv_epi32, srlv_epi32, si, __m512i)
LANES_HALVES_2(unpacklo_epi8, unpacklo_epi8, si, __m512i)
LANES_HALVES_2(unpackhi_epi8, unpackhi_epi8, si, __m512i)
LANES_HALVES_2(unpacklo_epi16, unpacklo_epi16, si, __m512i)
LANES_HALVES_2(unpackhi_epi16, unpackhi_epi16, si, __m512i)
LANES_HALVES_2(unpacklo_epi32, unpacklo_epi32, si, __m512i)
LANES_HALVES_2(unpackhi_epi32, unpackhi_epi32, si, __m512i)
LANES_HALVES_2(unpacklo_epi64, unpacklo_epi64, si, __m512i)
LANES_HALVES_2(unpackhi_epi64, unpackhi_epi64, si, __m512i)
LANES_HALVES_3(fmadd_ps, ps, __m512)
LANES_HALVES_3(fmadd_pd, pd, __m512d)
LANES_SHIFT(slli_epi16)
LANES_SHIFT(slli_epi32)
LANES_SHIFT(srli_epi16)
LANES_SHIFT(srli_epi32)
LANES_SHIFT(srli_epi64)
LANES_SHIFT(srai_epi32)

/* Memory, constants, parts. */
LANES_FN __m512 lanes_loadu_ps(const void *p) {
    lanes_parts a;
    memcpy(&a, p, 64);
    return a.ps;
}
LANES_FN __m512i lanes_loadu_si512(const void *p) {
    lanes_parts a;
    memcpy(&a, p, 64);
    return a.si;
}
LANES_FN __m512d lanes_loadu_pd(const void *p) {
    lanes_parts a;
    memcpy(&a, p, 64);
    return a.pd;
}
LANES_FN void lanes_storeu_ps(void *p, __m512 x) { memcpy(p, &x, 64); }
LANES_FN void lanes_storeu_si512(void *p, __m512i x) { memcpy(p, &x, 64); }
LANES_FN void lanes_storeu_pd(void *p, __m512d x) { memcpy(p, &x, 64); }
LANES_FN void lanes_stream_must(const void *p) { /* the processor would stop the program as well */
    if ((uintptr_t)p % 64) __builtin_trap();
}
LANES_FN void lanes_stream_ps(void *p, __m512 x) {
    lanes_stream_must(p);
    memcpy(p, &x, 64);
}
LANES_FN void lanes_stream_si512(void *p, __m512i x) {
    lanes_stream_must(p);
    memcpy(p, &x, 64);
}
LANES_FN __m512i lanes_setzero_si512(void) {
    lanes_parts a;
    memset(&a, 0, sizeof a);
    return a.si;
}
LANES_FN __m512 lanes_setzero_ps(void) {
    lanes_parts a;
    memset(&a, 0, sizeof a);
    return a.ps;
}
LANES_FN __m512 lanes_set1_ps(float x) {
    lanes_parts a;
    a.ps2[0] = a.ps2[1] = _mm256_set1_ps(x);
    return a.ps;
}
LANES_FN __m512i lanes_set1_epi8(char x) {
    lanes_parts a;
    memset(&a, x, sizeof a);
    return a.si;
}
LANES_FN __m512i lanes_set1_epi16(short x) {
    lanes_parts a;
    a.si2[0] = a.si2[1] = _mm256_set1_epi16(x);
    return a.si;
}
LANES_FN __m512i lanes_set1_epi32(int x) {
    lanes_parts a;
    a.si2[0] = a.si2[1] = _mm256_set1_epi32(x);
    return a.si;
}
LANES_FN __m512i lanes_set1_epi64(long long x) {
    lanes_parts a;
    a.si2[0] = a.si2[1] = _mm256_set1_epi64x(x);
    return a.si;
}
LANES_FN __m512i lanes_zextsi128_si512(__m128i x) {
    lanes_parts a;
    memset(&a, 0, sizeof a);
    a.si4[0] = x;
    return a.si;
}
LANES_FN __m512i lanes_zextsi256_si512(__m256i x) {
    lanes_parts a;
    memset(&a, 0, sizeof a);
    a.si2[0] = x;
    return a.si;
}
LANES_FN __m512i lanes_broadcast_i32x4(__m128i x) {
    lanes_parts a;
    a.si4[0] = a.si4[1] = a.si4[2] = a.si4[3] = x;
    return a.si;
}
LANES_FN __m128i lanes_extracti32x4_epi32(__m512i x, int part) {
    lanes_parts a;
    a.si = x;
    return a.si4[part];
}
LANES_FN __m256 lanes_maskz_extractf32x8_ps(__mmask8 m, __m512 x, int half) {
    lanes_parts a;
    a.ps = x;
    if (m != 0xff) __builtin_trap(); /* nobody needs it */
    return a.ps2[half];
}
LANES_FN __m512 lanes_insertf32x8(__m512 x, __m256 y, int half) {
    lanes_parts a;
    a.ps = x;
    a.ps2[half] = y;
    return a.ps;
}
LANES_FN __m512 lanes_castps256_ps512(__m256 x) {
    lanes_parts a;
    memset(&a, 0xff, sizeof a); /* undefined: NaN */
    a.ps2[0] = x;
    return a.ps;
}
LANES_FN __m512i lanes_cast_si(__m512 x) {
    lanes_parts a;
    a.ps = x;
    return a.si;
}
LANES_FN __m512 lanes_cast_ps(__m512i x) {
    lanes_parts a;
    a.si = x;
    return a.ps;
}
LANES_FN __m512d lanes_castps_pd(__m512 x) {
    lanes_parts a;
    a.ps = x;
    return a.pd;
}
LANES_FN __m512 lanes_castpd_ps(__m512d x) {
    lanes_parts a;
    a.pd = x;
    return a.ps;
}

/* Lane by lane: a, b and d are the operands, r the result, l the lane. The number of lanes is that of the statement. */
#define LANES_EACH(name, result, R, parameters, count, take, statement) \
    LANES_FN R lanes_##name parameters { \
        lanes_parts a, b, d, r; \
        int l; \
        memset(&a, 0, sizeof a); \
        b = d = r = a; \
        take; \
        for (l = 0; l < count; ++l) { statement; } \
        (void)b; \
        (void)d; \
        return r.result; \
    }
#define LANES_I1 __m512i x
#define LANES_I2 __m512i x, __m512i y
#define LANES_I3 __m512i x, __m512i y, __m512i z
#define LANES_A a.si = x
#define LANES_AB a.si = x, b.si = y
#define LANES_ABD a.si = x, b.si = y, d.si = z

/* Bit i of `table` is the result for the bits a, b, d of the number i. */
LANES_FN uint32_t lanes_ternary(uint32_t a, uint32_t b, uint32_t d, int table) {
    uint32_t r = 0;
    int i;
    for (i = 0; i < 8; ++i)
        if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? d : ~d);
    return r;
}
LANES_EACH(ternarylogic, si, __m512i, (LANES_I3, int table), 16, LANES_ABD, r.u[l] = lanes_ternary(a.u[l], b.u[l], d.u[l], table))
LANES_EACH(rol_epi32, si, __m512i, (LANES_I1, int n), 16, LANES_A, r.u[l] = a.u[l] << n | a.u[l] >> (32 - n))
LANES_EACH(shldi_epi32, si, __m512i, (LANES_I2, int n), 16, LANES_AB, r.u[l] = a.u[l] << n | b.u[l] >> (32 - n))
LANES_EACH(shufflelo_epi16, si, __m512i, (LANES_I1, int order), 32, LANES_A, r.w[l] = a.w[l & 4 ? l : (l & ~3) + (order >> 2 * (l & 3) & 3)])
LANES_EACH(shufflehi_epi16, si, __m512i, (LANES_I1, int order), 32, LANES_A, r.w[l] = a.w[l & 4 ? (l & ~3) + (order >> 2 * (l & 3) & 3) : l])
LANES_EACH(permutexvar_epi8, si, __m512i, (LANES_I2), 64, LANES_AB, r.b[l] = b.b[a.b[l] & 63])
LANES_EACH(permutexvar_epi16, si, __m512i, (LANES_I2), 32, LANES_AB, r.w[l] = b.w[a.w[l] & 31])
LANES_EACH(permutexvar_epi32, si, __m512i, (LANES_I2), 16, LANES_AB, r.u[l] = b.u[a.u[l] & 15])
LANES_EACH(permutex2var_epi16, si, __m512i, (LANES_I3), 32, LANES_ABD, r.w[l] = (b.w[l] & 32 ? d : a).w[b.w[l] & 31])
LANES_EACH(permutex2var_epi32, si, __m512i, (LANES_I3), 16, LANES_ABD, r.u[l] = (b.u[l] & 16 ? d : a).u[b.u[l] & 15])
LANES_EACH(permutex2var_ps, ps, __m512, (__m512 x, __m512i y, __m512 z), 16, (a.ps = x, b.si = y, d.ps = z),
           r.u[l] = (b.u[l] & 16 ? d : a).u[b.u[l] & 15])
LANES_EACH(shuffle_i32x4, si, __m512i, (LANES_I2, int order), 4, LANES_AB, r.si4[l] = (l < 2 ? a : b).si4[order >> 2 * l & 3])
LANES_FN uint8_t lanes_window(uint64_t from, int at) { return (uint8_t)(from >> at | (at ? from << (64 - at) : 0)); }
LANES_EACH(multishift_epi64_epi8, si, __m512i, (LANES_I2), 64, LANES_AB, r.b[l] = lanes_window(b.q[l / 8], a.b[l] & 63))

/* Under masks: what `m` leaves out is x, or zero. */
LANES_EACH(mask_mov_ps, ps, __m512, (__m512 x, __mmask16 m, __m512 y), 16, (a.ps = x, b.ps = y), r.u[l] = (m >> l & 1 ? b : a).u[l])
LANES_EACH(mask_mov_epi32, si, __m512i, (__m512i x, __mmask16 m, __m512i y), 16, LANES_AB, r.u[l] = (m >> l & 1 ? b : a).u[l])
LANES_EACH(mask_mov_epi8, si, __m512i, (__m512i x, __mmask64 m, __m512i y), 64, LANES_AB, r.b[l] = (m >> l & 1 ? b : a).b[l])
LANES_FN __m512 lanes_maskz_mov_ps(__mmask16 m, __m512 x) { return lanes_mask_mov_ps(lanes_setzero_ps(), m, x); }
LANES_FN __m512 lanes_maskz_or_ps(__mmask16 m, __m512 x, __m512 y) { return lanes_maskz_mov_ps(m, lanes_or_ps(x, y)); }
LANES_FN __m512i lanes_mask_add_epi32(__m512i x, __mmask16 m, __m512i y, __m512i z) {
    return lanes_mask_mov_epi32(x, m, lanes_add_epi32(y, z));
}
LANES_FN __m512i lanes_mask_permutexvar_epi8(__m512i x, __mmask64 m, __m512i y, __m512i z) {
    return lanes_mask_mov_epi8(x, m, lanes_permutexvar_epi8(y, z));
}
LANES_FN __m512i lanes_mask_multishift_epi64_epi8(__m512i x, __mmask64 m, __m512i y, __m512i z) {
    return lanes_mask_mov_epi8(x, m, lanes_multishift_epi64_epi8(y, z));
}
LANES_EACH(mask_shuffle_epi32, si, __m512i, (__m512i x, __mmask16 m, __m512i y, int order), 16, LANES_AB,
           r.u[l] = m >> l & 1 ? b.u[(l & ~3) + (order >> 2 * (l & 3) & 3)] : a.u[l])
#define LANES_SHIFT_MASKZ(name, M, all) \
    LANES_FN __m512i lanes_maskz_##name(M m, __m512i x, unsigned by) { \
        if (m != all) __builtin_trap(); \
        return lanes_##name(x, by); \
    }
LANES_SHIFT_MASKZ(slli_epi32, __mmask16, 0xffff)
LANES_SHIFT_MASKZ(srli_epi32, __mmask16, 0xffff)
LANES_SHIFT_MASKZ(srai_epi32, __mmask16, 0xffff)
LANES_SHIFT_MASKZ(srli_epi64, __mmask8, 0xff)
LANES_FN __m512 lanes_maskz_loadu_ps(__mmask16 m, const void *p) { /* touches what the mask has, no more */
    lanes_parts a;
    int l;
    memset(&a, 0, sizeof a);
    for (l = 0; l < 16; ++l)
        if (m >> l & 1) memcpy(&a.u[l], (const char *)p + 4 * l, 4);
    return a.ps;
}
LANES_FN __m512i lanes_maskz_loadu_epi8(__mmask64 m, const void *p) {
    lanes_parts a;
    int l;
    memset(&a, 0, sizeof a);
    for (l = 0; l < 64; ++l)
        if (m >> l & 1) a.b[l] = ((const uint8_t *)p)[l];
    return a.si;
}
LANES_FN __m512i lanes_maskz_loadu_epi16(__mmask32 m, const void *p) {
    lanes_parts a;
    int l;
    memset(&a, 0, sizeof a);
    for (l = 0; l < 32; ++l)
        if (m >> l & 1) memcpy(&a.w[l], (const char *)p + 2 * l, 2);
    return a.si;
}
LANES_FN void lanes_mask_storeu_ps(void *p, __mmask16 m, __m512 x) {
    lanes_parts a;
    int l;
    a.ps = x;
    for (l = 0; l < 16; ++l)
        if (m >> l & 1) memcpy((char *)p + 4 * l, &a.u[l], 4);
}

/* Masks as results. */
#define LANES_MASK(name, M, parameters, count, take, condition) \
    LANES_FN M lanes_##name parameters { \
        lanes_parts a, b; \
        M m = 0; \
        int l; \
        memset(&b, 0, sizeof b); \
        take; \
        for (l = 0; l < count; ++l) m = (M)(m | (M)((M)(condition) << l)); \
        (void)b; \
        return m; \
    }
LANES_MASK(movepi8_mask, __mmask64, (LANES_I1), 64, LANES_A, a.b[l] >> 7)
LANES_MASK(movepi32_mask, __mmask16, (LANES_I1), 16, LANES_A, a.u[l] >> 31)
LANES_MASK(test_epi8_mask, __mmask64, (LANES_I2), 64, LANES_AB, (a.b[l] & b.b[l]) != 0)
LANES_MASK(test_epi32_mask, __mmask16, (LANES_I2), 16, LANES_AB, (a.u[l] & b.u[l]) != 0)
LANES_MASK(testn_epi32_mask, __mmask16, (LANES_I2), 16, LANES_AB, (a.u[l] & b.u[l]) == 0)
LANES_MASK(cmpgt_epi16_mask, __mmask32, (LANES_I2), 32, LANES_AB, (int16_t)a.w[l] > (int16_t)b.w[l])
LANES_MASK(cmpgt_epi32_mask, __mmask16, (LANES_I2), 16, LANES_AB, a.i[l] > b.i[l])
LANES_MASK(cmpgt_epu32_mask, __mmask16, (LANES_I2), 16, LANES_AB, a.u[l] > b.u[l])
LANES_FN __mmask16 lanes_mask_test_epi32_mask(__mmask16 m, LANES_I2) { return (__mmask16)(m & lanes_test_epi32_mask(x, y)); }
#define lanes_cmp_ps_mask(x, y, how) __extension__({ \
    lanes_parts a_, b_; \
    a_.ps = (x); \
    b_.ps = (y); \
    (__mmask16)(_mm256_movemask_ps(_mm256_cmp_ps(a_.ps2[0], b_.ps2[0], how)) \
                | _mm256_movemask_ps(_mm256_cmp_ps(a_.ps2[1], b_.ps2[1], how)) << 8); \
})
LANES_FN __mmask16 lanes_cmpeq_epi16_mask(__m256i x, __m256i y) {
    lanes_parts a;
    __mmask16 m = 0;
    int l;
    a.si2[0] = _mm256_cmpeq_epi16(x, y);
    for (l = 0; l < 16; ++l) m = (__mmask16)(m | (a.w[l] & 1) << l);
    return m;
}
LANES_FN __m256i lanes_mask_mov_epi16(__m256i x, __mmask16 m, __m256i y) {
    lanes_parts a, b;
    int l;
    a.si2[0] = x;
    b.si2[0] = y;
    for (l = 0; l < 16; ++l)
        if (m >> l & 1) a.w[l] = b.w[l];
    return a.si2[0];
}

/* Conversions. */
LANES_FN __m512 lanes_cvtepi32_ps(__m512i x) {
    lanes_parts a;
    a.si = x;
    a.ps2[0] = _mm256_cvtepi32_ps(a.si2[0]);
    a.ps2[1] = _mm256_cvtepi32_ps(a.si2[1]);
    return a.ps;
}
LANES_EACH(cvtepu32_ps, ps, __m512, (LANES_I1), 16, LANES_A, r.f[l] = (float)a.u[l])
LANES_FN __m512i lanes_cvtepu16_epi32(__m256i x) {
    lanes_parts a;
    a.si2[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(x));
    a.si2[1] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1));
    return a.si;
}
LANES_FN __m512i lanes_cvtepu8_epi32(__m128i x) {
    lanes_parts a;
    a.si2[0] = _mm256_cvtepu8_epi32(x);
    a.si2[1] = _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(x, x));
    return a.si;
}
LANES_FN __m256i lanes_maskz_cvtepi32_epi16(__mmask16 m, __m512i x) {
    lanes_parts a, r;
    int l;
    a.si = x;
    memset(&r, 0, sizeof r);
    for (l = 0; l < 16; ++l)
        if (m >> l & 1) r.w[l] = (uint16_t)a.u[l];
    return r.si2[0];
}
LANES_FN __m128i lanes_maskz_cvtepi32_epi8(__mmask16 m, __m512i x) {
    lanes_parts a, r;
    int l;
    a.si = x;
    memset(&r, 0, sizeof r);
    for (l = 0; l < 16; ++l)
        if (m >> l & 1) r.b[l] = (uint8_t)a.u[l];
    return r.si4[0];
}
LANES_FN __m512 lanes_cvtph_ps(__m256i x) {
    lanes_parts a;
    a.ps2[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(x));
    a.ps2[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
    return a.ps;
}
LANES_FN __m256i lanes_cvtps_ph(__m512 x) { /* to nearest */
    lanes_parts a;
    a.ps = x;
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvtps_ph(a.ps2[0], 0)), _mm256_cvtps_ph(a.ps2[1], 0), 1);
}
LANES_FN __m512d lanes_cvtps_pd(__m256 x) {
    lanes_parts a;
    a.pd2[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    a.pd2[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    return a.pd;
}
LANES_FN uint16_t lanes_bf16(uint32_t u) { /* to nearest even; denormals are 0, NaN comes out quiet */
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    if (!(u & 0x7f800000)) return (uint16_t)(u >> 16 & 0x8000);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
LANES_EACH(cvtne2ps_pbh, bh, __m512bh, (__m512 x, __m512 y), 32, (a.ps = x, b.ps = y), r.w[l] = lanes_bf16((l < 16 ? b : a).u[l & 15]))

/* Dot products of bf16, by whole numbers: x y + z as vdpbf16ps adds them, denormals as 0 before; rounded to 24 bits as
   if the exponent had no end, and 0 if that is a denormal. A test may ask for a processor that differs. */
enum { LANES_DOTS_AS_TOLD, LANES_DOTS_LOW_FIRST, LANES_DOTS_ONE_ROUNDING, LANES_DOTS_DENORMAL_FACTORS, LANES_DOTS_DENORMAL_SUMS,
       LANES_DOTS_GRADUAL, LANES_DOTS_TINY_BEFORE, LANES_DOTS_KINDS };
static int lanes_dots;
static __thread unsigned long lanes_dots_count; /* of lanes */
LANES_FN uint32_t lanes_dot_zero(uint32_t u) { return u & 0x7f800000 ? u : u & 0x80000000; }
LANES_FN int lanes_dot_exponent(uint32_t u) { return u & 0x7f800000 ? (int)(u >> 23 & 255) : 1; }
LANES_FN uint64_t lanes_dot_mantissa(uint32_t u) { return (u & 0x7fffff) | (u & 0x7f800000 ? 0x800000 : 0); }
LANES_FN float lanes_dot_float(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}
LANES_FN uint32_t lanes_dot_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
LANES_FN uint64_t lanes_dot_whole(uint64_t m, int *e) { /* the highest bit becomes the 57th */
    const int by = m ? __builtin_clzll(m) - 7 : 0;
    *e -= by;
    return m << by;
}
/* m 2^e, where the highest bit of m is the 57th. */
LANES_FN uint32_t lanes_dot_round(uint32_t sign, uint64_t m, int e) {
    const int is_tiny = e + 183 < 1; /* before rounding */
    int drop = 33;
    uint64_t least, half;

    if (is_tiny && (lanes_dots == LANES_DOTS_DENORMAL_SUMS || lanes_dots == LANES_DOTS_GRADUAL)) drop += 1 - (e + 183);
    if (drop > 60) return sign;
    half = (uint64_t)1 << (drop - 1);
    least = m & (2 * half - 1);
    m >>= drop;
    e += drop;
    if (least > half || (least == half && (m & 1))) ++m;
    if (m >> 24) {
        m >>= 1;
        ++e;
    }
    if (m < 0x800000) return sign | (lanes_dots == LANES_DOTS_GRADUAL ? 0 : (uint32_t)m);
    if (e + 150 < 1 || (is_tiny && lanes_dots == LANES_DOTS_TINY_BEFORE)) return sign;
    return sign | (e + 150 > 254 ? 0x7f800000 : (uint32_t)(e + 150) << 23 | ((uint32_t)m & 0x7fffff));
}
LANES_FN uint32_t lanes_dot_link(uint32_t x, uint32_t y, uint32_t z) {
    uint64_t m[2];
    uint32_t sign[2];
    int e[2], large, by;

    if (lanes_dots != LANES_DOTS_DENORMAL_FACTORS) {
        x = lanes_dot_zero(x);
        y = lanes_dot_zero(y);
    }
    z = lanes_dot_zero(z);
    if (!(~x & 0x7f800000) || !(~y & 0x7f800000) || !(~z & 0x7f800000)) /* infinite, or NaN */
        return lanes_dot_bits((float)((double)lanes_dot_float(x) * (double)lanes_dot_float(y) + (double)lanes_dot_float(z)));
    m[0] = lanes_dot_mantissa(x) * lanes_dot_mantissa(y);
    e[0] = lanes_dot_exponent(x) + lanes_dot_exponent(y) - 300;
    sign[0] = (x ^ y) & 0x80000000;
    m[1] = lanes_dot_mantissa(z);
    e[1] = lanes_dot_exponent(z) - 150;
    sign[1] = z & 0x80000000;
    for (large = 0; large < 2; ++large) m[large] = lanes_dot_whole(m[large], &e[large]);
    if (!m[0] && !m[1]) return sign[0] & sign[1];
    large = !m[0] || (m[1] && (e[1] > e[0] || (e[1] == e[0] && m[1] > m[0])));
    if (m[!large]) {
        by = e[large] - e[!large];
        if (by > 60) by = 60;
        m[!large] = m[!large] >> by | ((m[!large] & (((uint64_t)1 << by) - 1)) != 0); /* what is lost counts as a little */
        m[large] = sign[0] == sign[1] ? m[large] + m[!large] : m[large] - m[!large];
    }
    if (!m[large]) return 0;
    if (m[large] >> 57) {
        m[large] = m[large] >> 1 | (m[large] & 1);
        ++e[large];
    }
    m[large] = lanes_dot_whole(m[large], &e[large]);
    return lanes_dot_round(sign[large], m[large], e[large]);
}
LANES_FN uint32_t lanes_dot(uint32_t z, uint32_t x, uint32_t y) {
    const uint32_t high = 0xffff0000;

    ++lanes_dots_count;
    if (lanes_dots == LANES_DOTS_LOW_FIRST) return lanes_dot_link(x & high, y & high, lanes_dot_link(x << 16, y << 16, z));
    if (lanes_dots == LANES_DOTS_ONE_ROUNDING)
        return lanes_dot_bits((float)((double)lanes_dot_float(x & high) * (double)lanes_dot_float(y & high)
                                      + (double)lanes_dot_float(x << 16) * (double)lanes_dot_float(y << 16) + (double)lanes_dot_float(z)));
    return lanes_dot_link(x << 16, y << 16, lanes_dot_link(x & high, y & high, z));
}
LANES_EACH(dpbf16_ps, ps, __m512, (__m512 x, __m512bh y, __m512bh z), 16, (a.ps = x, b.bh = y, d.bh = z),
           r.u[l] = lanes_dot(a.u[l], b.u[l], d.u[l]))

/* Floats. */
LANES_FN int lanes_is_nan(uint32_t u) { return (u & 0x7fffffff) > 0x7f800000; }
LANES_FN uint32_t lanes_range(uint32_t a, uint32_t b, int how) {
    const int flush = (_mm_getcsr() & 0x40) != 0; /* DAZ */
    float x, y;
    uint32_t u, v;

    if (lanes_is_nan(a) && !(a & 0x400000)) return a | 0x400000;
    if (lanes_is_nan(b) && !(b & 0x400000)) return b | 0x400000;
    if (flush && !(a & 0x7f800000)) a &= 0x80000000;
    if (flush && !(b & 0x7f800000)) b &= 0x80000000;
    u = how & 2 ? a & 0x7fffffff : a;
    v = how & 2 ? b & 0x7fffffff : b;
    memcpy(&x, &u, 4);
    memcpy(&y, &v, 4);
    if (lanes_is_nan(a)) u = b;
    else if (lanes_is_nan(b)) u = a;
    else if (how & 1) u = x <= y ? b : a;
    else u = x <= y ? a : b;
    switch (how >> 2) {
    case 0: return (u & 0x7fffffff) | (a & 0x80000000);
    case 1: return u;
    case 2: return u & 0x7fffffff;
    default: return u | 0x80000000;
    }
}
LANES_EACH(range_ps, ps, __m512, (__m512 x, __m512 y, int how), 16, (a.ps = x, b.ps = y), r.u[l] = lanes_range(a.u[l], b.u[l], how))
LANES_FN float lanes_scale(float a, float b) {
    if (a != a || b != b) return a + b;
    return ldexpf(a, (int)floorf(b > 1000 ? 1000 : b < -1000 ? -1000 : b));
}
LANES_EACH(scalef_ps, ps, __m512, (__m512 x, __m512 y), 16, (a.ps = x, b.ps = y), r.f[l] = lanes_scale(a.f[l], b.f[l]))
LANES_FN uint32_t lanes_reduce_max_epu32(__m512i x) {
    lanes_parts a;
    uint32_t most = 0;
    int l;
    a.si = x;
    for (l = 0; l < 16; ++l)
        if (a.u[l] > most) most = a.u[l];
    return most;
}
__attribute__((target("avx2,pclmul"), unused)) static __m512i lanes_clmulepi64(__m512i x, __m512i y, int which) {
    lanes_parts a, b;
    int l;
    a.si = x;
    b.si = y;
    if (which != 0 && which != 0x11) __builtin_trap();
    for (l = 0; l < 4; ++l)
        a.si4[l] = which ? _mm_clmulepi64_si128(a.si4[l], b.si4[l], 0x11) : _mm_clmulepi64_si128(a.si4[l], b.si4[l], 0);
    return a.si;
}

/* In other words of the same. */
#define LANES_MASKZ(name, M, all, R, X) \
    LANES_FN R lanes_maskz_##name(M m, X x) { \
        if (m != all) __builtin_trap(); \
        return lanes_##name(x); \
    }
LANES_MASKZ(cvtepu16_epi32, __mmask16, 0xffff, __m512i, __m256i)
LANES_MASKZ(cvtepu8_epi32, __mmask16, 0xffff, __m512i, __m128i)
LANES_MASKZ(cvtph_ps, __mmask16, 0xffff, __m512, __m256i)
LANES_MASKZ(cvtps_pd, __mmask8, 0xff, __m512d, __m256)
LANES_FN __m256i lanes_maskz_cvtps_ph(__mmask16 m, __m512 x, int how) {
    if (m != 0xffff || how) __builtin_trap();
    return lanes_cvtps_ph(x);
}
LANES_FN __m128i lanes_castsi512_si128(__m512i x) { return lanes_extracti32x4_epi32(x, 0); }
LANES_EACH(from_epi16, si, __m512i, (const short *x), 32, (void)x, r.w[l] = (uint16_t)x[31 - l])
LANES_EACH(from_epi32, si, __m512i, (const int *x), 16, (void)x, r.i[l] = x[15 - l])
LANES_EACH(from_epi64, si, __m512i, (const long long *x), 8, (void)x, r.q[l] = (uint64_t)x[7 - l])
#define lanes_set_epi16(...)  lanes_from_epi16((const short[32]){ __VA_ARGS__ }) /* the last lane first */
#define lanes_set_epi32(...)  lanes_from_epi32((const int[16]){ __VA_ARGS__ })
#define lanes_set_epi64(...)  lanes_from_epi64((const long long[8]){ __VA_ARGS__ })
#define lanes_setr_epi32(...) lanes_loadu_si512((const int[16]){ __VA_ARGS__ })
LANES_FN __mmask64 lanes_kand_mask64(__mmask64 x, __mmask64 y) { return x & y; }
LANES_FN __mmask16 lanes_kor_mask16(__mmask16 x, __mmask16 y) { return x | y; }
LANES_FN unsigned char lanes_kortestz_mask16_u8(__mmask16 x, __mmask16 y) { return (x | y) == 0; }
LANES_FN __mmask64 lanes_kandn_mask64(__mmask64 x, __mmask64 y) { return ~x & y; }

/* In their places; at -O0 the compiler has macros there. */
#undef _mm512_abs_epi8
#undef _mm512_add_epi16
#undef _mm512_max_epi16
#undef _mm512_add_epi32
#undef _mm512_add_epi64
#undef _mm512_add_ps
#undef _mm512_adds_epu8
#undef _mm512_and_ps
#undef _mm512_and_si512
#undef _mm512_broadcast_i32x4
#undef _mm512_castpd_ps
#undef _mm512_castps256_ps512
#undef _mm512_castps_pd
#undef _mm512_castps_si512
#undef _mm512_castsi512_ps
#undef _mm512_castsi512_si128
#undef _mm512_clmulepi64_epi128
#undef _mm512_cmp_ps_mask
#undef _mm512_cmpgt_epi16_mask
#undef _mm512_cmpgt_epi32_mask
#undef _mm512_cmpgt_epu32_mask
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepu32_ps
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtne2ps_pbh
#undef _mm512_cvtph_ps
#undef _mm512_div_ps
#undef _mm512_dpbf16_ps
#undef _mm512_extracti32x4_epi32
#undef _mm512_fmadd_pd
#undef _mm512_fmadd_ps
#undef _mm512_insertf32x8
#undef _mm512_loadu_pd
#undef _mm512_loadu_ps
#undef _mm512_loadu_si512
#undef _mm512_mask_add_epi32
#undef _mm512_mask_mov_epi32
#undef _mm512_mask_mov_epi8
#undef _mm512_mask_mov_ps
#undef _mm512_mask_multishift_epi64_epi8
#undef _mm512_mask_permutexvar_epi8
#undef _mm512_mask_shuffle_epi32
#undef _mm512_mask_storeu_ps
#undef _mm512_mask_test_epi32_mask
#undef _mm512_maskz_cvtepi32_epi16
#undef _mm512_maskz_cvtepi32_epi8
#undef _mm512_maskz_cvtepu16_epi32
#undef _mm512_maskz_cvtepu8_epi32
#undef _mm512_maskz_cvtph_ps
#undef _mm512_maskz_cvtps_pd
#undef _mm512_maskz_cvtps_ph
#undef _mm512_maskz_extractf32x8_ps
#undef _mm512_maskz_loadu_epi16
#undef _mm512_maskz_loadu_epi8
#undef _mm512_maskz_loadu_ps
#undef _mm512_maskz_mov_ps
#undef _mm512_maskz_or_ps
#undef _mm512_maskz_slli_epi32
#undef _mm512_maskz_srai_epi32
#undef _mm512_maskz_srli_epi32
#undef _mm512_maskz_srli_epi64
#undef _mm512_max_epi32
#undef _mm512_max_epu32
#undef _mm512_max_ps
#undef _mm512_min_epi32
#undef _mm512_min_epu32
#undef _mm512_min_ps
#undef _mm512_movepi32_mask
#undef _mm512_movepi8_mask
#undef _mm512_mul_epu32
#undef _mm512_mul_ps
#undef _mm512_mullo_epi32
#undef _mm512_multishift_epi64_epi8
#undef _mm512_or_ps
#undef _mm512_or_si512
#undef _mm512_permutex2var_epi16
#undef _mm512_permutex2var_epi32
#undef _mm512_permutex2var_ps
#undef _mm512_permutexvar_epi16
#undef _mm512_permutexvar_epi32
#undef _mm512_permutexvar_epi8
#undef _mm512_range_ps
#undef _mm512_reduce_max_epu32
#undef _mm512_rol_epi32
#undef _mm512_scalef_ps
#undef _mm512_set1_epi16
#undef _mm512_set1_epi32
#undef _mm512_set1_epi64
#undef _mm512_set1_epi8
#undef _mm512_set1_ps
#undef _mm512_set_epi16
#undef _mm512_set_epi32
#undef _mm512_set_epi64
#undef _mm512_setr_epi32
#undef _mm512_setzero_ps
#undef _mm512_setzero_si512
#undef _mm512_shldi_epi32
#undef _mm512_shuffle_i32x4
#undef _mm512_shufflehi_epi16
#undef _mm512_shufflelo_epi16
#undef _mm512_slli_epi16
#undef _mm512_slli_epi32
#undef _mm512_sllv_epi32
#undef _mm512_sqrt_ps
#undef _mm512_srli_epi16
#undef _mm512_srli_epi32
#undef _mm512_srlv_epi32
#undef _mm512_storeu_pd
#undef _mm512_storeu_ps
#undef _mm512_storeu_si512
#undef _mm512_stream_ps
#undef _mm512_stream_si512
#undef _mm512_sub_epi32
#undef _mm512_sub_epi8
#undef _mm512_sub_ps
#undef _mm512_ternarylogic_epi32
#undef _mm512_ternarylogic_epi64
#undef _mm512_test_epi32_mask
#undef _mm512_test_epi8_mask
#undef _mm512_testn_epi32_mask
#undef _mm512_unpackhi_epi16
#undef _mm512_unpackhi_epi32
#undef _mm512_unpackhi_epi64
#undef _mm512_unpackhi_epi8
#undef _mm512_unpackhi_pd
#undef _mm512_unpackhi_ps
#undef _mm512_unpacklo_epi16
#undef _mm512_unpacklo_epi32
#undef _mm512_unpacklo_epi64
#undef _mm512_unpacklo_epi8
#undef _mm512_unpacklo_pd
#undef _mm512_unpacklo_ps
#undef _mm512_xor_si512
#undef _mm512_zextsi128_si512
#undef _mm512_zextsi256_si512
#undef _kand_mask64
#undef _kor_mask16
#undef _kortestz_mask16_u8
#undef _kandn_mask64
#undef _mm256_cmpeq_epi16_mask
#undef _mm256_mask_mov_epi16
#define _mm512_abs_epi8 lanes_abs_epi8
#define _mm512_add_epi16 lanes_add_epi16
#define _mm512_max_epi16 lanes_max_epi16
#define _mm512_add_epi32 lanes_add_epi32
#define _mm512_add_epi64 lanes_add_epi64
#define _mm512_add_ps lanes_add_ps
#define _mm512_adds_epu8 lanes_adds_epu8
#define _mm512_and_ps lanes_and_ps
#define _mm512_and_si512 lanes_and_si512
#define _mm512_broadcast_i32x4 lanes_broadcast_i32x4
#define _mm512_castpd_ps lanes_castpd_ps
#define _mm512_castps256_ps512 lanes_castps256_ps512
#define _mm512_castps_pd lanes_castps_pd
#define _mm512_castps_si512 lanes_cast_si
#define _mm512_castsi512_ps lanes_cast_ps
#define _mm512_castsi512_si128 lanes_castsi512_si128
#define _mm512_clmulepi64_epi128 lanes_clmulepi64
#define _mm512_cmp_ps_mask lanes_cmp_ps_mask
#define _mm512_cmpgt_epi32_mask lanes_cmpgt_epi32_mask
#define _mm512_cmpgt_epi16_mask lanes_cmpgt_epi16_mask
#define _mm512_cmpgt_epu32_mask lanes_cmpgt_epu32_mask
#define _mm512_cvtepi32_ps lanes_cvtepi32_ps
#define _mm512_cvtepu16_epi32 lanes_cvtepu16_epi32
#define _mm512_cvtepu32_ps lanes_cvtepu32_ps
#define _mm512_cvtepu8_epi32 lanes_cvtepu8_epi32
#define _mm512_cvtne2ps_pbh lanes_cvtne2ps_pbh
#define _mm512_cvtph_ps lanes_cvtph_ps
#define _mm512_div_ps lanes_div_ps
#define _mm512_dpbf16_ps lanes_dpbf16_ps
#define _mm512_extracti32x4_epi32 lanes_extracti32x4_epi32
#define _mm512_fmadd_pd lanes_fmadd_pd
#define _mm512_fmadd_ps lanes_fmadd_ps
#define _mm512_insertf32x8 lanes_insertf32x8
#define _mm512_loadu_pd lanes_loadu_pd
#define _mm512_loadu_ps lanes_loadu_ps
#define _mm512_loadu_si512 lanes_loadu_si512
#define _mm512_mask_add_epi32 lanes_mask_add_epi32
#define _mm512_mask_mov_epi32 lanes_mask_mov_epi32
#define _mm512_mask_mov_epi8 lanes_mask_mov_epi8
#define _mm512_mask_mov_ps lanes_mask_mov_ps
#define _mm512_mask_multishift_epi64_epi8 lanes_mask_multishift_epi64_epi8
#define _mm512_mask_permutexvar_epi8 lanes_mask_permutexvar_epi8
#define _mm512_mask_shuffle_epi32 lanes_mask_shuffle_epi32
#define _mm512_mask_storeu_ps lanes_mask_storeu_ps
#define _mm512_mask_test_epi32_mask lanes_mask_test_epi32_mask
#define _mm512_maskz_cvtepi32_epi16 lanes_maskz_cvtepi32_epi16
#define _mm512_maskz_cvtepi32_epi8 lanes_maskz_cvtepi32_epi8
#define _mm512_maskz_cvtepu16_epi32 lanes_maskz_cvtepu16_epi32
#define _mm512_maskz_cvtepu8_epi32 lanes_maskz_cvtepu8_epi32
#define _mm512_maskz_cvtph_ps lanes_maskz_cvtph_ps
#define _mm512_maskz_cvtps_pd lanes_maskz_cvtps_pd
#define _mm512_maskz_cvtps_ph lanes_maskz_cvtps_ph
#define _mm512_maskz_extractf32x8_ps lanes_maskz_extractf32x8_ps
#define _mm512_maskz_loadu_epi16 lanes_maskz_loadu_epi16
#define _mm512_maskz_loadu_epi8 lanes_maskz_loadu_epi8
#define _mm512_maskz_loadu_ps lanes_maskz_loadu_ps
#define _mm512_maskz_mov_ps lanes_maskz_mov_ps
#define _mm512_maskz_or_ps lanes_maskz_or_ps
#define _mm512_maskz_slli_epi32 lanes_maskz_slli_epi32
#define _mm512_maskz_srai_epi32 lanes_maskz_srai_epi32
#define _mm512_maskz_srli_epi32 lanes_maskz_srli_epi32
#define _mm512_maskz_srli_epi64 lanes_maskz_srli_epi64
#define _mm512_max_epi32 lanes_max_epi32
#define _mm512_max_epu32 lanes_max_epu32
#define _mm512_max_ps lanes_max_ps
#define _mm512_min_epi32 lanes_min_epi32
#define _mm512_min_epu32 lanes_min_epu32
#define _mm512_min_ps lanes_min_ps
#define _mm512_movepi32_mask lanes_movepi32_mask
#define _mm512_movepi8_mask lanes_movepi8_mask
#define _mm512_mul_epu32 lanes_mul_epu32
#define _mm512_mul_ps lanes_mul_ps
#define _mm512_mullo_epi32 lanes_mullo_epi32
#define _mm512_multishift_epi64_epi8 lanes_multishift_epi64_epi8
#define _mm512_or_ps lanes_or_ps
#define _mm512_or_si512 lanes_or_si512
#define _mm512_permutex2var_epi16 lanes_permutex2var_epi16
#define _mm512_permutex2var_epi32 lanes_permutex2var_epi32
#define _mm512_permutex2var_ps lanes_permutex2var_ps
#define _mm512_permutexvar_epi16 lanes_permutexvar_epi16
#define _mm512_permutexvar_epi32 lanes_permutexvar_epi32
#define _mm512_permutexvar_epi8 lanes_permutexvar_epi8
#define _mm512_range_ps lanes_range_ps
#define _mm512_reduce_max_epu32 lanes_reduce_max_epu32
#define _mm512_rol_epi32 lanes_rol_epi32
#define _mm512_scalef_ps lanes_scalef_ps
#define _mm512_set1_epi16 lanes_set1_epi16
#define _mm512_set1_epi32 lanes_set1_epi32
#define _mm512_set1_epi64 lanes_set1_epi64
#define _mm512_set1_epi8 lanes_set1_epi8
#define _mm512_set1_ps lanes_set1_ps
#define _mm512_set_epi16 lanes_set_epi16
#define _mm512_set_epi32 lanes_set_epi32
#define _mm512_set_epi64 lanes_set_epi64
#define _mm512_setr_epi32 lanes_setr_epi32
#define _mm512_setzero_ps lanes_setzero_ps
#define _mm512_setzero_si512 lanes_setzero_si512
#define _mm512_shldi_epi32 lanes_shldi_epi32
#define _mm512_shuffle_i32x4 lanes_shuffle_i32x4
#define _mm512_shufflehi_epi16 lanes_shufflehi_epi16
#define _mm512_shufflelo_epi16 lanes_shufflelo_epi16
#define _mm512_slli_epi16 lanes_slli_epi16
#define _mm512_slli_epi32 lanes_slli_epi32
#define _mm512_sllv_epi32 lanes_sllv_epi32
#define _mm512_sqrt_ps lanes_sqrt_ps
#define _mm512_srli_epi16 lanes_srli_epi16
#define _mm512_srli_epi32 lanes_srli_epi32
#define _mm512_srlv_epi32 lanes_srlv_epi32
#define _mm512_storeu_pd lanes_storeu_pd
#define _mm512_storeu_ps lanes_storeu_ps
#define _mm512_storeu_si512 lanes_storeu_si512
#define _mm512_stream_ps lanes_stream_ps
#define _mm512_stream_si512 lanes_stream_si512
#define _mm512_sub_epi32 lanes_sub_epi32
#define _mm512_sub_epi8 lanes_sub_epi8
#define _mm512_sub_ps lanes_sub_ps
#define _mm512_ternarylogic_epi32 lanes_ternarylogic
#define _mm512_ternarylogic_epi64 lanes_ternarylogic
#define _mm512_test_epi32_mask lanes_test_epi32_mask
#define _mm512_test_epi8_mask lanes_test_epi8_mask
#define _mm512_testn_epi32_mask lanes_testn_epi32_mask
#define _mm512_unpackhi_epi16 lanes_unpackhi_epi16
#define _mm512_unpackhi_epi32 lanes_unpackhi_epi32
#define _mm512_unpackhi_epi64 lanes_unpackhi_epi64
#define _mm512_unpackhi_epi8 lanes_unpackhi_epi8
#define _mm512_unpackhi_pd lanes_unpackhi_pd
#define _mm512_unpackhi_ps lanes_unpackhi_ps
#define _mm512_unpacklo_epi16 lanes_unpacklo_epi16
#define _mm512_unpacklo_epi32 lanes_unpacklo_epi32
#define _mm512_unpacklo_epi64 lanes_unpacklo_epi64
#define _mm512_unpacklo_epi8 lanes_unpacklo_epi8
#define _mm512_unpacklo_pd lanes_unpacklo_pd
#define _mm512_unpacklo_ps lanes_unpacklo_ps
#define _mm512_xor_si512 lanes_xor_si512
#define _mm512_zextsi128_si512 lanes_zextsi128_si512
#define _mm512_zextsi256_si512 lanes_zextsi256_si512
#define _kor_mask16 lanes_kor_mask16
#define _kortestz_mask16_u8 lanes_kortestz_mask16_u8
#define _kand_mask64 lanes_kand_mask64
#define _kandn_mask64 lanes_kandn_mask64
#define _mm256_cmpeq_epi16_mask lanes_cmpeq_epi16_mask
#define _mm256_mask_mov_epi16 lanes_mask_mov_epi16
#endif
