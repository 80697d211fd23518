/* bench_heap.c - the offset allocator, and record, plan, replay on steps of variable length. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

static uint64_t bench_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static void bench_must(memopt_status s) {
    if (s) { fprintf(stderr, "bench_heap: %s\n", memopt_status_text(s)); exit(1); }
}

/* -- alloc + free: `count` blocks of 64 B to 4 KiB are allocated, then freed in random order -- */

#define BENCH_MOST   20000
#define BENCH_ROUNDS 15
static memopt_block bench_blocks[BENCH_MOST];
static size_t bench_sizes[BENCH_MOST];
static uint32_t bench_order[BENCH_MOST];

static double bench_pairs(size_t count, size_t repeats) { /* median ns a pair */
    double times[BENCH_ROUNDS]; uint64_t seed = 1, start; size_t round, r, i, k; uint32_t t;
    memopt_heap *heap = NULL; memopt_heap_desc d;
    memset(&d, 0, sizeof d);
    d.capacity = (size_t)256 << 20; d.extent = d.capacity;
    bench_must(memopt_heap_create(&d, &heap));
    for (round = 0; round < BENCH_ROUNDS; ++round) {
        uint64_t total = 0;
        for (r = 0; r < repeats; ++r) {
            for (i = 0; i < count; ++i) { bench_sizes[i] = 64 + (size_t)(bench_random(&seed) % 4033); bench_order[i] = (uint32_t)i; }
            for (i = count; i-- > 1; ) {
                k = (size_t)(bench_random(&seed) % (i + 1));
                t = bench_order[i]; bench_order[i] = bench_order[k]; bench_order[k] = t;
            }
            start = bench_now();
            for (i = 0; i < count; ++i) bench_must(memopt_heap_alloc(heap, bench_sizes[i], 0, MEMOPT_TAG_ACTIVATIONS, &bench_blocks[i]));
            for (i = 0; i < count; ++i) bench_must(memopt_heap_free(heap, bench_blocks[bench_order[i]]));
            total += bench_now() - start;
        }
        times[round] = (double)total / (double)(count * repeats);
    }
    memopt_heap_destroy(heap);
    return bench_median(times, BENCH_ROUNDS);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "heap");
    bench_row(&b, "heap_1k", 1, 1000, bench_pairs(1000, 200), "ns", 1, 0);
    bench_row(&b, "heap_20k", 1, 20000, bench_pairs(20000, 10), "ns", 1, 0);
    return 0;
}
