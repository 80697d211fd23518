/* bench_push.h - the sizes that bench_arena and its peers ask for: 64 B to 4 KiB, drawn before anything is timed. */
#ifndef MEMOPT_BENCH_PUSH_H
#define MEMOPT_BENCH_PUSH_H
#define BENCH_LIVE    1000
#define BENCH_TABLES  16  /* different rounds, one after the other: one timing, short enough to be undisturbed mostly */
#define BENCH_REPEATS 301
static size_t bench_sizes[BENCH_TABLES][BENCH_LIVE];
static inline void bench_fill_sizes(void) {
    uint64_t state = 1; size_t t, i;
    for (t = 0; t < BENCH_TABLES; ++t)
        for (i = 0; i < BENCH_LIVE; ++i) { /* splitmix64 */
            uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
            z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
            z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
            bench_sizes[t][i] = 64 + (size_t)((z ^ (z >> 31)) % 4033);
        }
}
#endif
