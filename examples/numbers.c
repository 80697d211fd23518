/* numbers.c - a tensor in 16 bits that small updates do not get lost in, a tensor in 8 bits, and every other format.

   What to see: bf16 has 8 bits of precision, so a weight of 1 that is rounded to nearest never notices an update of
   0.001. Rounded stochastically, a thousand of them add up. Blocks of 8 bits: the signed map keeps values of a thousandth
   of the largest within a few per cent, evenly spaced levels lose them. The exit status says whether that came true.
   Build: cc -O2 numbers.c -o numbers -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 4096, STEPS = 1000, SEED = 7 };

static double mean_of(const uint16_t *weights) {
    double sum = 0;
    size_t i;

    for (i = 0; i < COUNT; ++i) sum += (double)memopt_from_bf16(weights[i]);
    return sum / COUNT;
}

static double mean_error(const float *got, const float *x) { /* relative */
    double sum = 0;
    size_t i;

    for (i = 0; i < COUNT; ++i) sum += fabs((double)got[i] / (double)x[i] - 1);
    return sum / COUNT;
}

/* ---- every format, to nearest and stochastically: how far off an element is, and the mean of all ---- */
enum { BF16, F16, E4M3, E5M2, FORMATS };
static const char *const names[FORMATS] = { "bf16", "f16", "e4m3", "e5m2" };

static memopt_status narrow(int format, void *codes, const float *x, const memopt_noise *noise) {
    uint16_t *two = (uint16_t *)codes;
    uint8_t *one = (uint8_t *)codes;

    if (noise)
        return format == BF16   ? memopt_bf16_from_f32_stochastic(two, x, COUNT, *noise, 0, NULL)
               : format == F16  ? memopt_f16_from_f32_stochastic(two, x, COUNT, *noise, 0, NULL)
               : format == E4M3 ? memopt_e4m3_from_f32_stochastic(one, x, COUNT, 1, *noise, 0, NULL)
                                : memopt_e5m2_from_f32_stochastic(one, x, COUNT, 1, *noise, 0, NULL);
    return format == BF16   ? memopt_bf16_from_f32(two, x, COUNT, NULL)
           : format == F16  ? memopt_f16_from_f32(two, x, COUNT, NULL)
           : format == E4M3 ? memopt_e4m3_from_f32(one, x, COUNT, 1, NULL) /* 1: too large becomes the largest */
                            : memopt_e5m2_from_f32(one, x, COUNT, 1, NULL);
}

static memopt_status widen(int format, float *x, const void *codes) {
    return format == BF16   ? memopt_f32_from_bf16(x, (const uint16_t *)codes, COUNT, NULL)
           : format == F16  ? memopt_f32_from_f16(x, (const uint16_t *)codes, COUNT, NULL)
           : format == E4M3 ? memopt_f32_from_e4m3(x, (const uint8_t *)codes, COUNT, NULL)
                            : memopt_f32_from_e5m2(x, (const uint8_t *)codes, COUNT, NULL);
}

static int formats(const float *x) { /* 1: as it should be */
    static const double most[FORMATS] = { 0.002, 0.0003, 0.06, 0.06 };
    static uint16_t codes[COUNT], low[COUNT];
    static float back[COUNT];
    const memopt_noise noise = memopt_noise_make(SEED, STEPS);
    int format, good = 1;

    for (format = 0; format < FORMATS; ++format) {
        double nearest, stochastic;

        if (narrow(format, codes, x, NULL) || widen(format, back, codes)) return 0;
        nearest = mean_error(back, x);
        if (narrow(format, codes, x, &noise) || widen(format, back, codes)) return 0;
        stochastic = mean_error(back, x);
        printf("%-5s mean relative error %.5f to nearest, %.5f stochastic\n", names[format], nearest, stochastic);
        good &= nearest < most[format] && stochastic < 2 * most[format];
    }
    /* bf16 to compute with and the 16 bits that it lost are the float again, to the bit */
    if (memopt_f32_split(codes, low, x, COUNT, NULL) || memopt_f32_join(back, codes, low, COUNT, NULL)) return 0;
    return good && !memcmp(back, x, sizeof back);
}

/* ---- one number: random bits of 0 give the code below it, all ones the one above; nearest is the nearer one ---- */
static float nearest_of(int format, float x) {
    return format == BF16   ? memopt_from_bf16(memopt_to_bf16(x))
           : format == F16  ? memopt_from_f16(memopt_to_f16(x))
           : format == E4M3 ? memopt_from_e4m3(memopt_to_e4m3(x, 1))
                            : memopt_from_e5m2(memopt_to_e5m2(x, 1));
}

static float stochastic_of(int format, float x, uint32_t random) {
    return format == BF16   ? memopt_from_bf16(memopt_to_bf16_stochastic(x, random))
           : format == F16  ? memopt_from_f16(memopt_to_f16_stochastic(x, random))
           : format == E4M3 ? memopt_from_e4m3(memopt_to_e4m3_stochastic(x, 1, random))
                            : memopt_from_e5m2(memopt_to_e5m2_stochastic(x, 1, random));
}

static int neighbours(float x) { /* 1: x lies between both; not for what a format has exactly */
    int format, good = 1;

    for (format = 0; format < FORMATS; ++format) {
        const float below = stochastic_of(format, x, 0), above = stochastic_of(format, x, 0xffffffff);
        const float nearest = nearest_of(format, x);

        printf("%-5s %g lies between %.6f and %.6f, nearest %.6f\n", names[format], (double)x, (double)below,
               (double)above, (double)nearest);
        good &= below < x && x < above && nearest == (x - below < above - x ? below : above);
    }
    return good;
}

/* A matrix for products of 8 bits: codes and transposed codes with one scale. And its checksum, whole and in halves. */
static int matrix(const float *x) {
    static uint8_t codes[COUNT], transposed[COUNT];
    memopt_fp8_scale scale = { 0 };
    memopt_fp8 m = { 0 };
    uint32_t all, first, second;

    m.rows = m.columns = 64;
    m.input = x;
    m.codes = codes;
    m.transposed = transposed;
    m.scale = &scale;
    if (memopt_fp8_quantize(&m, NULL) || memopt_crc32c_parallel(0, codes, COUNT, NULL, &all)) return 0;
    first = memopt_crc32c(0, codes, COUNT / 2);
    second = memopt_crc32c(0, codes + COUNT / 2, COUNT / 2);
    printf("e4m3 with the scale %g: element 1 is %g, was %g\n", (double)scale.scale,
           (double)(memopt_from_e4m3(codes[1]) * scale.scale), (double)x[1]);
    return codes[1] == transposed[64] && memopt_crc32c_join(first, second, COUNT / 2) == all;
}

int main(void) {
    static uint16_t weights[COUNT], nearest[COUNT];
    static float wide[COUNT], x[COUNT], back[COUNT], absmax[COUNT / 256];
    static float levels[256];
    static uint8_t codes[COUNT];
    double error, linear;
    size_t i, step;
    int good;

    printf("numbers are made by %s code\n", memopt_simd_text(memopt_simd_best()));

    for (i = 0; i < COUNT; ++i) weights[i] = nearest[i] = memopt_to_bf16(1);
    /* README: numbers */
    for (step = 0; step < STEPS; ++step) {
        const memopt_noise noise = memopt_noise_make(SEED, step); /* random bits by seed, stream and index: no state */

        if (memopt_f32_from_bf16(wide, weights, COUNT, NULL)) return 1; /* NULL: the calling thread */
        for (i = 0; i < COUNT; ++i) wide[i] += 0.001f;
        if (memopt_bf16_from_f32_stochastic(weights, wide, COUNT, noise, 0, NULL)) return 1;
    }
    /* README: end */
    for (step = 0; step < STEPS; ++step) {
        if (memopt_f32_from_bf16(wide, nearest, COUNT, NULL)) return 1;
        for (i = 0; i < COUNT; ++i) wide[i] += 0.001f;
        if (memopt_bf16_from_f32(nearest, wide, COUNT, NULL)) return 1;
    }
    good = fabs(mean_of(weights) - 2) < 0.01 && mean_of(nearest) < 1.001;
    printf("1 + 1000 * 0.001 in bf16: %.3f stochastic, %.3f to nearest\n", mean_of(weights), mean_of(nearest));

    if (memopt_random_uniform(x, COUNT, SEED, 0, 0, NULL)) return 1;
    for (i = 0; i < COUNT; ++i) x[i] = ldexpf(1 + x[i], -(int)(i % 10)); /* three decades */
    /* README: quant */
    if (memopt_quantize_f32(codes, absmax, x, COUNT, MEMOPT_QUANT_SIGNED, 0, NULL)) return 1; /* 0: blocks of 256 */
    if (memopt_dequantize_f32(back, codes, absmax, COUNT, MEMOPT_QUANT_SIGNED, 0, NULL)) return 1;
    /* README: end */
    error = mean_error(back, x);
    if (memopt_quantize_f32(codes, absmax, x, COUNT, MEMOPT_QUANT_LINEAR, 0, NULL)) return 1;
    if (memopt_dequantize_f32(back, codes, absmax, COUNT, MEMOPT_QUANT_LINEAR, 0, NULL)) return 1;
    linear = mean_error(back, x);
    printf("8-bit blocks: %lu bytes instead of %lu; mean relative error %.3f signed, %.3f linear\n",
           (unsigned long)(sizeof codes + sizeof absmax), (unsigned long)sizeof x, error, linear);
    /* bf16 to 8 bits and back, without floats in between */
    if (memopt_bf16_from_f32(nearest, x, COUNT, NULL)) return 1;
    if (memopt_quantize_bf16(codes, absmax, nearest, COUNT, MEMOPT_QUANT_SIGNED, 0, NULL)) return 1;
    if (memopt_dequantize_bf16(weights, codes, absmax, COUNT, MEMOPT_QUANT_SIGNED, 0, NULL)) return 1;
    if (memopt_quant_levels(MEMOPT_QUANT_SIGNED, levels)) return 1;
    printf("level of code %u times %.3f is %.5f, was %.5f\n", (unsigned)codes[0], (double)absmax[0],
           (double)(levels[codes[0]] * absmax[0]), (double)x[0]);
    if (memopt_from_bf16(weights[0]) != memopt_from_bf16(memopt_to_bf16(levels[codes[0]] * absmax[0]))) return 1;
    if (!formats(x) || !neighbours(0.3f) || !matrix(x)) return 1;
    return good && error < 0.04 && linear > 0.1 ? 0 : 1;
}
