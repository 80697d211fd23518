/* numbers.c - a tensor in 16 bits that small updates do not get lost in, and a tensor in 8 bits.

   What to see: bf16 has 8 bits of precision, so a weight of 1 that is rounded to nearest never notices an update of
   0.001. Rounded stochastically, a thousand of them add up. Blocks of 8 bits: the signed map keeps values of a thousandth
   of the largest within a few per cent, evenly spaced levels lose them. The exit status says whether that came true.
   Build: cc -O2 numbers.c -o numbers -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>

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

int main(void) {
    static uint16_t weights[COUNT], nearest[COUNT];
    static float wide[COUNT], x[COUNT], back[COUNT], absmax[COUNT / 256];
    static uint8_t codes[COUNT];
    double error, linear;
    size_t i, step;

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
    return fabs(mean_of(weights) - 2) < 0.01 && mean_of(nearest) < 1.001 && error < 0.04 && linear > 0.1 ? 0 : 1;
}
