/* bench.h - what every bench needs: the clock, medians, the table for people and --json for scripts.
   A figure is always printed with the machine's own limit, measured in the same run: of_limit = limit / value for a
   time, value / limit for a rate. Include after memopt.h's implementation. */
#ifndef MEMOPT_BENCH_H
#define MEMOPT_BENCH_H
#include <stdio.h>

typedef struct bench { int json; } bench;
static inline uint64_t bench_now(void) { uint64_t t = 0; (void)memopt_i_system_now(NULL, &t); return t; }
static inline int bench_compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static inline double bench_median(double *values, size_t count) {
    qsort(values, count, sizeof *values, bench_compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}
static inline bench bench_begin(int argc, char **argv, const char *section) {
    bench b;
    b.json = argc > 1 && !strcmp(argv[1], "--json");
    if (!b.json) printf("%s, medians; limit: what the machine itself needs for the same, in the same run\n"
        "%-28s %8s %10s %12s %-8s %12s %9s\n", section, "name", "threads", "n", "value", "unit", "limit", "of limit");
    return b;
}
/* is_rate: larger is better */
static inline void bench_row(const bench *b, const char *name, int threads, size_t n, double value, const char *unit,
                             double limit, int is_rate) {
    const double of_limit = is_rate ? value / limit : limit / value;
    if (b->json)
        printf("{\"name\": \"%s\", \"threads\": %d, \"n\": %llu, \"value\": %.6g, \"unit\": \"%s\", \"limit\": %.6g, \"of_limit\": %.4f}\n",
               name, threads, (unsigned long long)n, value, unit, limit, of_limit);
    else
        printf("%-28s %8d %10llu %12.4g %-8s %12.4g %9.3f\n", name, threads, (unsigned long long)n, value, unit, limit, of_limit);
    fflush(stdout);
}
/* for (threads = 1; bench_threads(threads, &pool, &t); ++threads) ...: the calling thread, then a pool of two. */
static inline int bench_threads(int threads, memopt_thread_pool **pool, memopt_threads *t) {
    memopt_status s;
    memset(t, 0, sizeof *t);
    if (threads == 1) return 1;
    if (threads > 2) { memopt_thread_pool_destroy(*pool); return 0; }
    s = memopt_thread_pool_create(NULL, 2, pool);
    if (s) { fprintf(stderr, "no pool (%s): two threads left out\n", memopt_status_text(s)); return 0; }
    *t = memopt_thread_pool_threads(*pool);
    return 1;
}
#endif
