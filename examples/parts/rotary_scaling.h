/* rotary_scaling.h - frequencies of rotary positions for a context longer than the one that a model was trained on.

   What it does   Fills the `frequencies` of a memopt_rotary by the rule that a model's config names in rope_scaling:
                  linear, llama3, yarn. Slow pairs are stretched, fast ones stay; rules differ in which are slow.
   How to use     double f[64]; rotary_powers(f, 128, 500000); rotary_llama3(f, 128, 8, 1, 4, 8192);
                  x.frequencies = f. YaRN multiplies sines and cosines as well: x.magnitude = rotary_yarn(...).
   What it costs  rotated / 2 doubles, filled once.
   Source         Llama 3.1's and Qwen2.5's config.json; Peng and others, YaRN (2023). */
#ifndef PARTS_ROTARY_SCALING_H
#define PARTS_ROTARY_SCALING_H
#include <math.h>
#include <stddef.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

/* base^(-2 i / rotated): what memopt_rotary does without frequencies */
static inline void rotary_powers(double *f, size_t rotated, double base) {
    size_t i;
    for (i = 0; i < rotated / 2; ++i) f[i] = pow(base, -2.0 * (double)i / (double)rotated);
}

/* Positions count a factor-th. */
static inline void rotary_linear(double *f, size_t rotated, double factor) {
    size_t i;
    for (i = 0; i < rotated / 2; ++i) f[i] /= factor;
}

/* Pairs that turn fewer than `low` times in the `original` context are stretched by the factor, those that turn more
   than `high` times are not, and between the two a share. */
static inline void rotary_llama3(double *f, size_t rotated, double factor, double low, double high, double original) {
    size_t i;

    for (i = 0; i < rotated / 2; ++i) {
        const double turns = original * f[i] / 6.283185307179586;
        const double share = turns <= low ? 0 : turns >= high ? 1 : (turns - low) / (high - low);

        f[i] = (1 - share) * f[i] / factor + share * f[i];
    }
}

/* The pair, not a whole one, that turns so many times in the original context. */
static inline double rotary_yarn_pair(size_t rotated, double base, double original, double turns) {
    return (double)rotated * log(original / (turns * 6.283185307179586)) / (2 * log(base));
}

/* The same by a ramp over pairs: from the one that turns `fast` times (32 in the paper) to the one that turns `slow`
   times (1). Returns the magnitude. */
static inline float rotary_yarn(double *f, size_t rotated, double base, double factor, double original, double fast,
                                double slow) {
    const double first = floor(rotary_yarn_pair(rotated, base, original, fast));
    const double last = ceil(rotary_yarn_pair(rotated, base, original, slow));
    const double low = first < 0 ? 0 : first;
    const double high = last > (double)rotated - 1 ? (double)rotated - 1 : last;
    size_t i;

    for (i = 0; i < rotated / 2; ++i) {
        const double at = ((double)i - low) / (high > low ? high - low : 0.001);
        const double stretched = at < 0 ? 0 : at > 1 ? 1 : at;

        f[i] = stretched * f[i] / factor + (1 - stretched) * f[i];
    }
    return factor > 1 ? (float)(0.1 * log(factor) + 1) : 1;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
