/* bench_ledger.c - what it costs to book a block in and out: sums only, with blocks tracked one by one, with events;
   and what an arena's push and rewind cost when they are booked. Limits: the additions alone; for events, the clock. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define BENCH_LIVE    1000
#define BENCH_REPEATS 201
static void bench_must(memopt_status s) {
    if (s) { fprintf(stderr, "bench_ledger: %s\n", memopt_status_text(s)); exit(1); }
}
static memopt_ledger *bench_ledger(size_t blocks, size_t events) {
    memopt_ledger_desc d; memopt_ledger *l = NULL;
    memset(&d, 0, sizeof d);
    d.block_capacity = blocks; d.event_capacity = events;
    bench_must(memopt_ledger_create(&d, &l));
    return l;
}
static double bench_book(size_t blocks, size_t events) { /* median ns a block, in and out */
    double times[BENCH_REPEATS]; size_t repeat, i; memopt_ledger *l = bench_ledger(blocks, events);
    static char memory[BENCH_LIVE * 64];
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (i = 0; i < BENCH_LIVE; ++i) bench_must(memopt_ledger_add(l, (memopt_tag)(i % 8), 1000 + i, memory + i * 64, NULL));
        for (i = BENCH_LIVE; i-- > 0; ) bench_must(memopt_ledger_remove(l, (memopt_tag)(i % 8), 1000 + i, memory + i * 64));
        times[repeat] = (double)(bench_now() - start) / BENCH_LIVE;
    }
    memopt_ledger_destroy(l);
    return bench_median(times, BENCH_REPEATS);
}
static double bench_sums(void) { /* now, blocks and count of one tag and of the total, in and out */
    double times[BENCH_REPEATS]; size_t repeat, i; static volatile size_t now[9], count[9], calls[9];
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (i = 0; i < BENCH_LIVE; ++i) { now[i % 8] += 1000 + i; ++count[i % 8]; ++calls[i % 8]; now[8] += 1000 + i; ++count[8]; ++calls[8]; }
        for (i = BENCH_LIVE; i-- > 0; ) { now[i % 8] -= 1000 + i; --count[i % 8]; ++calls[i % 8]; now[8] -= 1000 + i; --count[8]; ++calls[8]; }
        times[repeat] = (double)(bench_now() - start) / BENCH_LIVE;
    }
    return bench_median(times, BENCH_REPEATS);
}
static double bench_clock(void) { /* ns for two looks at the clock */
    double times[BENCH_REPEATS]; size_t repeat, i; uint64_t sum = 0;
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (i = 0; i < 2 * BENCH_LIVE; ++i) sum += bench_now();
        times[repeat] = (double)(bench_now() - start) / BENCH_LIVE;
    }
    return sum ? bench_median(times, BENCH_REPEATS) : 0;
}
static double bench_push(int booked, size_t blocks, size_t events) { /* median ns a push with its share of the rewind */
    double times[BENCH_REPEATS]; memopt_source source; memopt_arena *a = NULL; memopt_arena_desc d; size_t repeat, i; memopt_ledger *l = NULL;
    bench_must(memopt_source_allocator(NULL, &source));
    if (booked) l = bench_ledger(blocks, events);
    memset(&d, 0, sizeof d);
    d.source = &source; d.capacity = BENCH_LIVE * 4096; d.ledger = l;
    bench_must(memopt_arena_create(&d, &a));
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const memopt_mark mark = memopt_arena_mark(a); const uint64_t start = bench_now();
        for (i = 0; i < BENCH_LIVE; ++i) if (!memopt_arena_push(a, 64 + i * 4, (memopt_tag)(i % 8))) bench_must(MEMOPT_ERR_MEMORY);
        bench_must(memopt_arena_rewind(a, mark));
        times[repeat] = (double)(bench_now() - start) / BENCH_LIVE;
    }
    memopt_arena_destroy(a);
    memopt_ledger_destroy(l);
    return bench_median(times, BENCH_REPEATS);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "ledger");
    const double sums = bench_sums(), clocks = bench_clock(), bare = bench_push(0, 0, 0);
    bench_row(&b, "ledger_sums", 1, BENCH_LIVE, bench_book(0, 0), "ns", sums, 0);
    bench_row(&b, "ledger_blocks", 1, BENCH_LIVE, bench_book(2 * BENCH_LIVE, 0), "ns", sums, 0);
    bench_row(&b, "ledger_events", 1, BENCH_LIVE, bench_book(0, 4096), "ns", clocks, 0);
    bench_row(&b, "ledger_blocks_events", 1, BENCH_LIVE, bench_book(2 * BENCH_LIVE, 4096), "ns", clocks, 0);
    bench_row(&b, "ledger_arena_push", 1, BENCH_LIVE, bench_push(1, 0, 0), "ns", bare, 0);
    bench_row(&b, "ledger_arena_push_all", 1, BENCH_LIVE, bench_push(1, 2 * BENCH_LIVE, 4096), "ns", bare, 0);
    return 0;
}
