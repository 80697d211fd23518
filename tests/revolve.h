/* revolve.h - the figures of REVOLVE, in closed form: apart from the library, for its tests and for schedule_tool. */
#ifndef REVOLVE_H
#define REVOLVE_H
#include <stdint.h>

/* Products as 64 bits, or the largest number when they do not fit. */
static inline uint64_t revolve_mul(uint64_t a, uint64_t b) { return a && b > UINT64_MAX / a ? UINT64_MAX : a * b; }

/* The least number of forwards, beside the one that each backward needs anyway, to reverse `segments` equal segments
   with `slots` values in memory, the input among them: r * l - C(c + r, c + 1), where C(c + r - 1, c) < l <= C(c + r,
   c). UINT64_MAX when it does not fit, or slots is 0 and segments is not. */
static inline uint64_t revolve_forwards(uint64_t segments, uint64_t slots) {
    const uint64_t l = segments, c = slots < l ? slots : l - 1; /* more slots change nothing */
    uint64_t r, reach = 1, t = 0, high, low; /* C(c + r, c) segments need r forwards each at the most */

    if (l < 2) return slots || !l ? 0 : UINT64_MAX;
    if (!slots) return UINT64_MAX;
    if (c == 1) return revolve_mul(l % 2 ? l : l / 2, l % 2 ? (l - 1) / 2 : l - 1);
    for (r = 1; reach < l; ++r) { /* those beyond the reach run once more */
        if (t > UINT64_MAX - (l - reach)) return UINT64_MAX;
        t += l - reach;
        high = revolve_mul(reach / r, c + r);
        low = revolve_mul(reach % r, c + r) / r;
        reach = high > UINT64_MAX - low ? UINT64_MAX : high + low;
    }
    return t;
}
#endif
