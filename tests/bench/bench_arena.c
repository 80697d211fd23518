/* bench_arena.c - pushing, against a bare pointer that is bumped and against malloc; committing, huge pages and small.
   memopt_arena_push is a real call here, as it is for whoever has the implementation in a file of its own. */
#include "memopt.h"
#if defined(__GNUC__) || defined(__clang__)
extern __attribute__((noinline)) void *memopt_arena_push(memopt_arena *arena, size_t bytes, memopt_tag tag);
extern __attribute__((noinline)) void *memopt_arena_push_top(memopt_arena *arena, size_t bytes, memopt_tag tag);
#endif
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#include "bench_push.h"

static void bench_must(memopt_status s) {
    if (s) { fprintf(stderr, "bench_arena: %s\n", memopt_status_text(s)); exit(1); }
}

/* -- arena_push: 1000 objects are pushed, the first byte of each is written, all are rewound -- */

static double bench_push(int top, int ledgered) { /* median ns a push */
    double times[BENCH_REPEATS]; memopt_source source; memopt_arena *a = NULL; memopt_arena_desc d; memopt_ledger *l = NULL; size_t repeat, round, i;
    if (memopt_source_pages(NULL, &source)) bench_must(memopt_source_allocator(NULL, &source));
    if (ledgered) bench_must(memopt_ledger_create(NULL, &l));
    memset(&d, 0, sizeof d);
    d.source = &source; d.capacity = (size_t)8 << 20; d.ledger = l;
    bench_must(memopt_arena_create(&d, &a));
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (round = 0; round < BENCH_TABLES; ++round) {
            const size_t *sizes = bench_sizes[round];
            const memopt_mark mark = top ? memopt_arena_mark_top(a) : memopt_arena_mark(a);
            for (i = 0; i < BENCH_LIVE; ++i) {
                volatile char *p = (volatile char *)(top ? memopt_arena_push_top(a, sizes[i], MEMOPT_TAG_SCRATCH)
                                                         : memopt_arena_push(a, sizes[i], MEMOPT_TAG_SCRATCH));
                if (!p) bench_must(MEMOPT_ERR_MEMORY);
                *p = 1;
            }
            bench_must(memopt_arena_rewind(a, mark));
        }
        times[repeat] = (double)(bench_now() - start) / (BENCH_TABLES * BENCH_LIVE);
    }
    memopt_arena_destroy(a);
    memopt_ledger_destroy(l);
    return bench_median(times, BENCH_REPEATS);
}
static double bench_bare(void) { /* the same with a pointer: what no allocator can be faster than */
    double times[BENCH_REPEATS]; size_t repeat, round, i; char *volatile base; char *const memory = (char *)malloc((size_t)8 << 20);
    if (!memory) bench_must(MEMOPT_ERR_MEMORY);
    memset(memory, 1, (size_t)8 << 20);
    base = memory;
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (round = 0; round < BENCH_TABLES; ++round) {
            const size_t *sizes = bench_sizes[round];
            volatile char *p = base;
            for (i = 0; i < BENCH_LIVE; ++i) {
                *p = 1;
                p += (sizes[i] + 63) & ~(size_t)63;
            }
        }
        times[repeat] = (double)(bench_now() - start) / (BENCH_TABLES * BENCH_LIVE);
    }
    free(memory);
    return bench_median(times, BENCH_REPEATS);
}

/* A peer is a program beside this one. 0 when it is not there or says nothing. */
static double bench_peer(const char *self, const char *name) {
#if defined(MEMOPT_I_POSIX)
    const char *slash = strrchr(self, '/'); const size_t length = slash ? (size_t)(slash + 1 - self) : 0;
    char path[4096], line[64]; FILE *pipe_from; double value = 0;
    if (length + strlen(name) + 3 > sizeof path) return 0;
    path[0] = '\'';
    memcpy(path + 1, self, length);
    memcpy(path + 1 + length, name, strlen(name) + 1);
    if (access(path + 1, X_OK)) return 0;
    memcpy(path + 1 + length + strlen(name), "'", 2);
    pipe_from = popen(path, "r");
    if (!pipe_from) return 0;
    if (fgets(line, sizeof line, pipe_from)) value = strtod(line, NULL);
    return pclose(pipe_from) == 0 ? value : 0;
#else
    (void)self; (void)name;
    return 0;
#endif
}
static void bench_against(const bench *b, const char *self, const char *row, const char *peer, double push) {
    const double ns = bench_peer(self, peer);
    if (ns > 0) bench_row(b, row, 1, BENCH_LIVE, ns / push, "ratio", 1, 1);
    else fprintf(stderr, "bench_arena: no %s beside this program (is the library there?), %s left out\n", peer, row);
}

/* -- arena_commit: an arena of 1 GiB is filled in pushes of 1 MiB, and every page is touched -- */

#define BENCH_COMMIT_MIB 1024
#define BENCH_COMMITS    7
static void bench_touch(volatile char *p, size_t bytes) {
    size_t k;
    for (k = 0; k < bytes; k += 4096) p[k] = 1;
}
static double bench_commit(int no_huge) { /* us a MiB; 0 when it cannot be had */
    memopt_pages_desc pages; memopt_source source; memopt_arena *a = NULL; memopt_arena_desc d; uint64_t start; double us = 0; size_t i;
    memset(&pages, 0, sizeof pages);
    memset(&d, 0, sizeof d);
    pages.no_huge = no_huge;
    if (memopt_source_pages(&pages, &source)) return 0;
    d.source = &source; d.capacity = (size_t)BENCH_COMMIT_MIB << 20;
    start = bench_now();
    if (memopt_arena_create(&d, &a)) return 0;
    for (i = 0; i < BENCH_COMMIT_MIB; ++i) {
        volatile char *p = (volatile char *)memopt_arena_push(a, (size_t)1 << 20, MEMOPT_TAG_SCRATCH);
        if (!p) break;
        bench_touch(p, (size_t)1 << 20);
    }
    if (i == BENCH_COMMIT_MIB) us = (double)(bench_now() - start) / 1e3 / BENCH_COMMIT_MIB;
    memopt_arena_destroy(a);
    return us;
}
/* The limit: one range of the system, asked for whole, advised at once, and touched. */
static double bench_commit_bare(int no_huge) {
#if defined(MEMOPT_I_POSIX)
    const size_t bytes = (size_t)BENCH_COMMIT_MIB << 20, huge = (size_t)2 << 20;
    const uint64_t start = bench_now(); char *raw = (char *)memopt_i_pages_map(bytes + huge); double us;
    if (!raw) return 0;
    if (memopt_i_pages_open(raw, bytes + huge)) { memopt_i_pages_unmap(raw, bytes + huge); return 0; }
    if (!no_huge) (void)memopt_i_pages_advise_huge(raw, bytes + huge);
    bench_touch(raw + ((~(uintptr_t)raw + 1) & (huge - 1)), bytes);
    us = (double)(bench_now() - start) / 1e3 / BENCH_COMMIT_MIB;
    memopt_i_pages_unmap(raw, bytes + huge);
    return us;
#else
    (void)no_huge;
    return 1;
#endif
}
static void bench_commits(const bench *b) { /* the four in turn, so that what else the machine does falls on all of them */
    double times[4][BENCH_COMMITS], median[4]; size_t i, k;
    for (i = 0; i < BENCH_COMMITS; ++i)
        for (k = 0; k < 4; ++k) {
            times[k][i] = k < 2 ? bench_commit((int)k) : bench_commit_bare((int)k - 2);
            if (times[k][i] > 0) continue;
            fprintf(stderr, "bench_arena: 1 GiB cannot be committed here, arena_commit_* left out\n");
            return;
        }
    for (k = 0; k < 4; ++k) median[k] = bench_median(times[k], BENCH_COMMITS);
    bench_row(b, "arena_commit_huge", 1, BENCH_COMMIT_MIB, median[0], "us/MiB", median[2], 0);
    bench_row(b, "arena_commit_small", 1, BENCH_COMMIT_MIB, median[1], "us/MiB", median[3], 0);
    bench_row(b, "arena_commit_ratio", 1, BENCH_COMMIT_MIB, median[1] / median[0], "ratio", median[3] / median[2], 1);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "arena");
    double push, bare;
    bench_fill_sizes();
    push = bench_push(0, 0);
    bare = bench_bare();
    bench_row(&b, "arena_push", 1, BENCH_LIVE, push, "ns", bare, 0);
    bench_row(&b, "arena_push_top", 1, BENCH_LIVE, bench_push(1, 0), "ns", bare, 0);
    bench_row(&b, "arena_push_ledger", 1, BENCH_LIVE, bench_push(0, 1), "ns", bare, 0);
    bench_against(&b, argv[0], "arena_vs_malloc", "peer_malloc", push);
    bench_against(&b, argv[0], "arena_vs_mimalloc", "peer_mimalloc", push);
    bench_commits(&b);
    return 0;
}
