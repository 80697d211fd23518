/* bench_plan.c - what a plan costs, and how good it is.
   Limit of a time: one sort of the items by size and one pass over them in that order, which every planner needs.
   Limit of a quality (peak / lower bound after 100 ms): 1, for the instance is cut out of a full rectangle. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#include "../plan_graphs.h"

enum { MOST = 1000000, ROUNDS = 9 };
static memopt_plan_item *items, *copy;

static uint64_t bits(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static size_t below(uint64_t *state, size_t n) { return (size_t)(bits(state) % n); }
static void set(size_t i, size_t first, size_t last, size_t size) {
    memset(&items[i], 0, sizeof *items);
    items[i].first = first; items[i].last = last; items[i].size = size;
}
/* Layers forward and backward: an output that waits for the backward pass, and scratch on both ways. */
static void training(size_t count) {
    const size_t layers = count / 4; uint64_t seed = 1; size_t i, n = 0;
    for (i = 0; i < layers; ++i) {
        const size_t back = 2 * (2 * layers - 1 - i);
        set(n++, 2 * i, back + 2, 512 * (1 + below(&seed, 64)));
        set(n++, 2 * i, 2 * i + 2, 512 * (1 + below(&seed, 200)));
        set(n++, back, back + 2, 512 * (1 + below(&seed, 200)));
        set(n++, back + 1, back + 2, 512 * (1 + below(&seed, 64)));
    }
    while (n < count) set(n++, 0, 1, 512);
}
static void local(size_t count) { /* births anywhere, short lives and a few long ones */
    uint64_t seed = 2; size_t i;
    for (i = 0; i < count; ++i) {
        const size_t first = below(&seed, 2 * count), life = 1 + below(&seed, 16) * below(&seed, 16);
        set(i, first, first + (below(&seed, 50) ? life : 50 * life), 512 * (1 + below(&seed, 200)));
    }
}
static void hard(size_t count) { /* cut a full rectangle, straight through one of its larger pieces each time */
    static size_t t0[1024], t1[1024], m0[1024], m1[1024]; uint64_t seed = 3; size_t n = 1, i, k, tries;
    t0[0] = m0[0] = 0; t1[0] = m1[0] = 1000;
    while (n < count) {
        for (i = below(&seed, n), tries = 0; tries < 3; ++tries) {
            k = below(&seed, n);
            if ((t1[k] - t0[k]) * (m1[k] - m0[k]) > (t1[i] - t0[i]) * (m1[i] - m0[i])) i = k;
        }
        if (t1[i] - t0[i] < 2 || m1[i] - m0[i] < 2) continue;
        t0[n] = t0[i]; t1[n] = t1[i]; m0[n] = m0[i]; m1[n] = m1[i];
        if (bits(&seed) & 1) t1[i] = t0[n] = t0[i] + 1 + below(&seed, t1[i] - t0[i] - 1);
        else m1[i] = m0[n] = m0[i] + 1 + below(&seed, m1[i] - m0[i] - 1);
        ++n;
    }
    for (i = 0; i < count; ++i) set(i, t0[i], t1[i], 1024 * (m1[i] - m0[i]));
}
static int by_size(const void *a, const void *b) {
    const size_t x = ((const memopt_plan_item *)a)->size, y = ((const memopt_plan_item *)b)->size;
    return (x < y) - (x > y);
}
static double sort_and_pass(size_t count) { /* microseconds */
    double t[ROUNDS]; int round; size_t i;
    for (round = 0; round < ROUNDS; ++round) {
        uint64_t start; size_t top = 0;
        memcpy(copy, items, count * sizeof *items);
        start = bench_now();
        qsort(copy, count, sizeof *copy, by_size);
        for (i = 0; i < count; ++i) { copy[i].offset = top; top += copy[i].size; }
        t[round] = (double)(bench_now() - start) * 1e-3;
        if (top == 1) printf("never\n"); /* the pass has a use */
    }
    return bench_median(t, ROUNDS);
}
static double solve(size_t count, const memopt_plan_options *options, memopt_plan_result *r) { /* microseconds */
    double t[ROUNDS]; int round;
    for (round = 0; round < ROUNDS; ++round) {
        const uint64_t start = bench_now();
        if (memopt_plan_solve(items, count, options, NULL, r)) exit(1);
        t[round] = (double)(bench_now() - start) * 1e-3;
        if (t[round] > 90e3) return t[round]; /* a long one is measured once */
    }
    return bench_median(t, ROUNDS);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "plan: lifetimes to offsets");
    static const size_t counts[] = { 1000, 10000, 100000 }, hard_counts[] = { 100, 300, 600 };
    memopt_plan_options greedy, search; memopt_plan_result r; double us; size_t i; char name[32];
    items = (memopt_plan_item *)calloc(MOST, sizeof *items); copy = (memopt_plan_item *)calloc(MOST, sizeof *copy);
    if (!items || !copy) return 1;
    memset(&greedy, 0, sizeof greedy); memset(&search, 0, sizeof search);
    greedy.no_search = 1; greedy.time_ns = UINT64_C(10000000000); search.time_ns = 100000000;
    for (i = 0; i < 3; ++i) { /* reaches the bound with the first order */
        training(counts[i]);
        us = solve(counts[i], &greedy, &r);
        snprintf(name, sizeof name, "plan_training_%uk", (unsigned)(counts[i] / 1000));
        bench_row(&b, name, 1, counts[i], us, "us", sort_and_pass(counts[i]), 0);
        snprintf(name, sizeof name, "plan_training_%uk_peak", (unsigned)(counts[i] / 1000));
        bench_row(&b, name, 1, counts[i], (double)r.peak / (double)r.lower_bound, "x bound", 1, 0);
    }
    for (i = 0; i < 3; ++i) { /* tries every order */
        local(counts[i]);
        us = solve(counts[i], &greedy, &r);
        snprintf(name, sizeof name, "plan_greedy_%uk", (unsigned)(counts[i] / 1000));
        bench_row(&b, name, 1, counts[i], us, "us", sort_and_pass(counts[i]), 0);
    }
    for (i = 0; i < 6; ++i) { /* an unrolled recurrent network, 1 % of long lives, three mixes of sizes, shuffled */
        plan_graph g;
        memset(&g, 0, sizeof g);
        g.buffers = 8; g.kept_every = 100; g.mix = (int)(i % 3); g.saved = (int)(i % 2); g.shuffled = 1; g.seed = 1 + i;
        g.steps = (i < 3 ? (size_t)100000 : (size_t)1000000) / 2 / g.buffers;
        plan_graph_make(&g, items);
        us = solve(plan_graph_count(&g), &greedy, &r);
        snprintf(name, sizeof name, "plan_unrolled_%uk_mix%d", i < 3 ? 100u : 1000u, g.mix);
        bench_row(&b, name, 1, plan_graph_count(&g), us, "us", sort_and_pass(plan_graph_count(&g)), 0);
        snprintf(name, sizeof name, "plan_unrolled_%uk_mix%d_peak", i < 3 ? 100u : 1000u, g.mix);
        bench_row(&b, name, 1, plan_graph_count(&g), (double)r.peak / (double)r.lower_bound, "x bound", 1, 0);
    }
    for (i = 0; i < 3; ++i) {
        hard(hard_counts[i]);
        solve(hard_counts[i], &search, &r);
        snprintf(name, sizeof name, "plan_hard_%u_100ms", (unsigned)hard_counts[i]);
        bench_row(&b, name, 1, hard_counts[i], (double)r.peak / (double)r.lower_bound, "x bound", 1, 0);
    }
    free(items); free(copy);
    return 0;
}
