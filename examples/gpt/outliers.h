/* outliers.h - steps that are far off are not applied: --skip-outliers Z.

   A step is an outlier when its loss, or the norm of its gradients before any clipping, lies more than Z standard
   deviations above the mean of the last 128 steps' losses, or norms. Before so many have been seen, none is; nor where
   all 128 are the same. Of an outlier weights, states and their count of steps stay as they were; the data goes on, and
   so does the rate. It is one of the last 128 then, as any other: what stays high is no outlier for long. A step whose
   gradients overflow a loss scale is left out by that, and is not looked at.
   Both windows are part of a save. All ranks decide alike, from the same bits. */
#ifndef GPT_OUTLIERS_H
#define GPT_OUTLIERS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { OUTLIERS_WINDOW = 128 };

typedef struct outlier_windows {
    double losses[OUTLIERS_WINDOW], norms[OUTLIERS_WINDOW]; /* step i at place i % 128 */
    uint64_t seen, skipped;                                 /* steps */
} outlier_windows;

/* next: the place of the oldest. */
static inline int outliers_is_above(const double *window, uint64_t next, double x, double z) {
    double sum = 0, squares = 0, mean, deviation;
    size_t i;

    for (i = 0; i < OUTLIERS_WINDOW; ++i) sum += window[(next + i) % OUTLIERS_WINDOW];
    mean = sum / OUTLIERS_WINDOW;
    for (i = 0; i < OUTLIERS_WINDOW; ++i) {
        const double off = window[(next + i) % OUTLIERS_WINDOW] - mean;

        squares += off * off;
    }
    deviation = sqrt(squares / OUTLIERS_WINDOW);
    return deviation > 0 && x - mean > z * deviation;
}

/** A step has this loss and this norm: 1, it is not to be applied. */
static inline int outliers_skip(outlier_windows *o, double z, double loss, double norm) {
    const uint64_t place = o->seen % OUTLIERS_WINDOW;
    const int skips = o->seen >= OUTLIERS_WINDOW
                   && (outliers_is_above(o->losses, place, loss, z) || outliers_is_above(o->norms, place, norm, z));

    o->losses[place] = loss;
    o->norms[place] = norm;
    ++o->seen;
    o->skipped += (uint64_t)skips;
    return skips;
}
#endif
