/* peer_malloc.c - what bench_arena measures, done with malloc and free: a program of its own, because a library that
   replaces malloc replaces it for the whole program. Linked plainly it times the C library, linked with -lmimalloc mimalloc.
   Same sizes, same touch, as many objects alive. Prints the median ns of an object with its share of the frees, at its
   best: in the order of freeing that suits the allocator more, and with a block above all others that stays, so that the
   memory does not go back to the system after every round, as glibc's would. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#include "bench_push.h"

static void *bench_objects[BENCH_LIVE];
static double peer_rounds(const size_t *order) { /* median ns an object */
    double times[BENCH_REPEATS]; size_t repeat, round, i;
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (round = 0; round < BENCH_TABLES; ++round) {
            const size_t *sizes = bench_sizes[round];
            for (i = 0; i < BENCH_LIVE; ++i) {
                volatile char *p = (volatile char *)malloc(sizes[i]);
                if (!p) exit(1);
                *p = 1;
                bench_objects[i] = (void *)(uintptr_t)p;
            }
            for (i = 0; i < BENCH_LIVE; ++i) free(bench_objects[order[i]]);
        }
        times[repeat] = (double)(bench_now() - start) / (BENCH_TABLES * BENCH_LIVE);
    }
    return bench_median(times, BENCH_REPEATS);
}
int main(void) {
    static size_t order[BENCH_LIVE]; static void *volatile stays; double first, last; size_t i;
    bench_fill_sizes();
    for (i = 0; i < BENCH_LIVE; ++i) bench_objects[i] = malloc(4096);
    stays = malloc(64);
    for (i = 0; i < BENCH_LIVE; ++i) free(bench_objects[i]);
    for (i = 0; i < BENCH_LIVE; ++i) order[i] = i;
    first = peer_rounds(order);
    for (i = 0; i < BENCH_LIVE; ++i) order[i] = BENCH_LIVE - 1 - i;
    last = peer_rounds(order);
    printf("%.4f\n", first < last ? first : last);
    free(stays);
    return 0;
}
