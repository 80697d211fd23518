/* bench_plan.c - the planner on training graphs, on many items, and on instances made to be hard.
   Limit of a time: sorting the same items by size with the C library's qsort, once, which any planner must do at the
   least. Limit of a ratio (peak / lower bound): 1. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

enum { BENCH_MOST = 100000 };
static memopt_plan_item items[BENCH_MOST], copy[BENCH_MOST];

static size_t bench_below(uint64_t *state, size_t n) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (size_t)((z ^ (z >> 31)) % n);
}
static void bench_item(size_t n, size_t first, size_t last, size_t size) {
    memset(&items[n], 0, sizeof items[n]);
    items[n].first = first; items[n].last = last; items[n].size = size;
}
/* A training step as an engine makes it: each layer keeps eight outputs for its backward, and has four temporaries on
   the way there and four on the way back. */
static size_t bench_training(size_t layers) {
    static const size_t width[8] = { 1, 3, 12, 1, 1, 4, 4, 1 };
    const size_t end = layers * 16; size_t layer, k, n = 0;
    for (layer = 0; layer < layers; ++layer) {
        const size_t forward = layer * 8, backward = end - layer * 8;
        for (k = 0; k < 8; ++k) bench_item(n++, forward + k, backward - k, width[k] << 20);
        for (k = 0; k < 4; ++k) {
            bench_item(n++, forward + 2 * k, forward + 2 * k + 2, width[k] << 20);
            bench_item(n++, backward - 8 + 2 * k, backward - 6 + 2 * k, width[7 - k] << 20);
        }
    }
    return n;
}
/* A rectangle cut in two again and again: its pieces fit exactly, and no greedy order finds out how. */
static size_t bench_cut(size_t count, uint64_t seed) {
    size_t n = 1;
    bench_item(0, 0, 4096, (size_t)1 << 20);
    while (n < count) {
        const size_t i = bench_below(&seed, n); memopt_plan_item *a = &items[i], *b = &items[n];
        *b = *a;
        if (bench_below(&seed, 2)) {
            if (a->last - a->first < 16) continue;
            a->last = b->first = a->first + 1 + bench_below(&seed, a->last - a->first - 1);
        } else {
            if (a->size < 4096) continue;
            a->size = 1024 * (1 + bench_below(&seed, a->size / 1024 - 1));
            b->size -= a->size;
        }
        ++n;
    }
    return n;
}
static int bench_by_size(const void *a, const void *b) {
    const size_t x = ((const memopt_plan_item *)a)->size, y = ((const memopt_plan_item *)b)->size;
    return (x < y) - (x > y);
}
static double bench_sort(size_t n, int repeats) { /* median us */
    double times[31]; int i;
    for (i = 0; i < repeats; ++i) {
        uint64_t start;
        memcpy(copy, items, n * sizeof *items);
        start = bench_now();
        qsort(copy, n, sizeof *copy, bench_by_size);
        times[i] = (double)(bench_now() - start) / 1000;
    }
    return bench_median(times, (size_t)repeats);
}
static double bench_solve(size_t n, const memopt_plan_options *o, int repeats, memopt_plan_result *r) { /* median us */
    double times[31]; int i;
    for (i = 0; i < repeats; ++i) {
        uint64_t start;
        memcpy(copy, items, n * sizeof *items);
        start = bench_now();
        if (memopt_plan_solve(copy, n, o, NULL, r)) { fprintf(stderr, "bench_plan: no plan\n"); exit(1); }
        times[i] = (double)(bench_now() - start) / 1000;
    }
    return bench_median(times, (size_t)repeats);
}

int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "plan"); memopt_plan_options o; memopt_plan_result r; size_t n, size;
    memset(&o, 0, sizeof o);
    n = bench_training(48);
    bench_row(&b, "plan_training", 1, n, bench_solve(n, &o, 31, &r), "us", bench_sort(n, 31), 0);
    bench_row(&b, "plan_training_ratio", 1, n, (double)r.peak / (double)r.lower_bound, "ratio", 1, 0);
    o.no_search = 1;
    for (size = 10000; size <= 100000; size *= 10) {
        n = bench_training(size / 16);
        bench_row(&b, size == 10000 ? "plan_training_10k" : "plan_training_100k", 1, n, bench_solve(n, &o, 5, &r), "us", bench_sort(n, 5), 0);
    }
    n = bench_cut(1000, 1); /* all orders are tried */
    bench_row(&b, "plan_greedy_hard_1k", 1, n, bench_solve(n, &o, 15, &r), "us", bench_sort(n, 15), 0);
    n = bench_cut(10000, 1);
    bench_row(&b, "plan_greedy_hard_10k", 1, n, bench_solve(n, &o, 3, &r), "us", bench_sort(n, 3), 0);
    o.no_search = 0;
    for (n = 50; n <= 400; n *= 2) {
        char name[40];
        (void)bench_cut(n, n);
        o.time_ns = 100000000;
        (void)bench_solve(n, &o, 1, &r);
        snprintf(name, sizeof name, "plan_hard_%u_100ms", (unsigned)n);
        bench_row(&b, name, 1, n, (double)r.peak / (double)r.lower_bound, "ratio", 1, 0);
        o.time_ns = 1000000000;
        (void)bench_solve(n, &o, 1, &r);
        snprintf(name, sizeof name, "plan_hard_%u_1s", (unsigned)n);
        bench_row(&b, name, 1, n, (double)r.peak / (double)r.lower_bound, "ratio", 1, 0);
    }
    return 0;
}
