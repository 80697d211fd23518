/* peers_heap.c - the pattern of heap_1k and heap_20k on malloc and free, in a process of its own: link an allocator in,
   or preload it. The first byte of each block is written, as whoever asks for memory will. Prints one line. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define PEER_MOST   20000
#define PEER_ROUNDS 15
static uint64_t peer_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static double peer_pairs(size_t count, size_t repeats) {
    static void *blocks[PEER_MOST]; static size_t sizes[PEER_MOST]; static uint32_t order[PEER_MOST];
    double times[PEER_ROUNDS]; uint64_t seed = 1, start, total; size_t round, r, i, k; uint32_t t;
    for (round = 0; round < PEER_ROUNDS; ++round) {
        for (r = 0, total = 0; r < repeats; ++r) {
            for (i = 0; i < count; ++i) { sizes[i] = 64 + (size_t)(peer_random(&seed) % 4033); order[i] = (uint32_t)i; }
            for (i = count; i-- > 1; ) { k = (size_t)(peer_random(&seed) % (i + 1)); t = order[i]; order[i] = order[k]; order[k] = t; }
            start = bench_now();
            for (i = 0; i < count; ++i) {
                blocks[i] = malloc(sizes[i]);
                if (!blocks[i]) return 0;
                *(volatile char *)blocks[i] = 1;
            }
            for (i = 0; i < count; ++i) free(blocks[order[i]]);
            total += bench_now() - start;
        }
        times[round] = (double)total / (double)(count * repeats);
    }
    return bench_median(times, PEER_ROUNDS);
}
int main(int argc, char **argv) {
    printf("%s: %.1f ns a pair with 1000 blocks, %.1f with 20000\n", argc > 1 ? argv[1] : "malloc", peer_pairs(1000, 200), peer_pairs(20000, 10));
    return 0;
}
