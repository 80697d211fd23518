/* bench_store.c - a store of 64 tiles of 4 MiB in a file: written, read, both at once, and a step of states tile by tile,
   GB/s. Beside each, in the same run, a plain loop that moves the same bytes past the system's cache one request after
   the other: the disk's own rate; of a store in memory, memcpy. For both at once and for a step it is that of the sum of reading and
   writing, for a step the slower of the disk and the arithmetic alone; in memory, where the thread that computes copies,
   too, one after the other. The file is in the folder that TMPDIR names, or in build/, and
   takes 256 MiB (two regions: 512 MiB). Threads instead of io_uring need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#include <signal.h>

#define BENCH_TILES   ((size_t)64)
#define BENCH_TILE    ((size_t)4 << 20)
#define BENCH_REPEATS 7
static void bench_must(memopt_status s, const memopt_store *x) {
    char line[256] = ""; memopt_error e;
    if (!s) return;
    e = memopt_store_error(x);
    (void)memopt_error_text(&e, line, sizeof line, NULL);
    fprintf(stderr, "bench_store: %s (%s)\n", memopt_status_text(s), x ? line : "");
    exit(1);
}
static double bench_rate(uint64_t start, double bytes) { return bytes / (double)(bench_now() - start); }
/* ways: 1 writes, 2 reads, 3 in turn; the file is there. In the store's five buffers: a cache may hold one of them */
static double bench_plain(const memopt_files *f, void *file, unsigned char *buffers, int ways, unsigned char *memory) {
    const uint64_t start = bench_now(); size_t i, done;
    for (i = 0; i < BENCH_TILES; ++i) {
        const int writes = ways == 3 ? (int)(i & 1) : ways & 1; unsigned char *bytes = buffers + i % 5 * BENCH_TILE;
        if (!file) { unsigned char *m = memory + i * BENCH_TILE; if (writes) memcpy(m, bytes, BENCH_TILE); else memcpy(bytes, m, BENCH_TILE); }
        else if (writes ? f->write_fn(f->user, file, i * BENCH_TILE, bytes, BENCH_TILE) : f->read_fn(f->user, file, i * BENCH_TILE, bytes, BENCH_TILE, &done)) exit(1);
    }
    return bench_rate(start, (double)(BENCH_TILES * BENCH_TILE));
}
static double bench_store(memopt_store *x, unsigned char *buffers, int ways) {
    const uint64_t start = bench_now(); size_t i;
    for (i = 0; i < BENCH_TILES; ++i) {
        unsigned char *b = buffers + i % 5 * BENCH_TILE; const int writes = ways == 3 ? (int)(i & 1) : ways & 1;
        bench_must(writes ? memopt_store_write(x, i, b, BENCH_TILE) : memopt_store_read(x, i, b, BENCH_TILE), x);
    }
    for (i = 0; i < BENCH_TILES; ++i) bench_must(memopt_store_wait(x, i), x);
    return bench_rate(start, (double)(BENCH_TILES * BENCH_TILE));
}
/* Arithmetic of a step, a few operations for each float. */
static void bench_arithmetic(float *m, size_t n) {
    size_t i; int k;
    for (i = 0; i < n; ++i) { float v = m[i]; for (k = 0; k < 4; ++k) v = v * 0.9f + 0.1f; m[i] = v; }
}
/* Read k + 1, step k, write k - 1; 1 GB of traffic is 512 MiB of states. */
static double bench_step(memopt_store *x, unsigned char *buffers) {
    const uint64_t start = bench_now(); size_t i;
    bench_must(memopt_store_read(x, 0, buffers, BENCH_TILE), x);
    for (i = 0; i < BENCH_TILES; ++i) {
        if (i + 1 < BENCH_TILES) {
            if (i >= 4) bench_must(memopt_store_wait(x, i - 4), x); /* that buffer has been written */
            bench_must(memopt_store_read(x, i + 1, buffers + (i + 1) % 5 * BENCH_TILE, BENCH_TILE), x);
        }
        bench_must(memopt_store_wait(x, i), x);
        bench_arithmetic((float *)(void *)(buffers + i % 5 * BENCH_TILE), BENCH_TILE / 4);
        bench_must(memopt_store_write(x, i, buffers + i % 5 * BENCH_TILE, BENCH_TILE), x);
    }
    bench_must(memopt_store_commit(x, 1), x);
    return bench_rate(start, 2.0 * (double)(BENCH_TILES * BENCH_TILE));
}
static char bench_paths[2][600];
static void bench_stopped(int number) { (void)number; (void)remove(bench_paths[0]); (void)remove(bench_paths[1]); _Exit(1); }
static void bench_tier(const bench *b, const char *name, memopt_store_desc d, unsigned char *buffers) {
    const char *path = bench_paths[1]; unsigned char *memory = NULL;
    static const char *const rows[4] = { "write", "read", "both", "step" };
    double values[4][BENCH_REPEATS], limits[4][BENCH_REPEATS]; memopt_store *x = NULL; memopt_files f = memopt_i_system_files(); void *file = NULL; size_t i, k; char text[64];
    bench_must(memopt_store_create(&d, &x), NULL);
    if (!d.path && !(memory = (unsigned char *)malloc(BENCH_TILES * BENCH_TILE))) { fprintf(stderr, "bench_store: out of memory\n"); exit(1); }
    if (d.path && (f.open_fn(NULL, path, MEMOPT_OPEN_WRITE_DIRECT, &file) || f.reserve_fn(NULL, file, BENCH_TILES * BENCH_TILE))) { fprintf(stderr, "bench_store: no room at %s\n", path); exit(1); }
    (void)bench_plain(&f, file, buffers, 1, memory); (void)bench_store(x, buffers, 1); /* both files have been written once */
    for (i = 0; i < BENCH_REPEATS; ++i) {
        uint64_t start; double alone;
        for (k = 0; k < 3; ++k) { limits[k][i] = bench_plain(&f, file, buffers, (int)k + 1, memory); values[k][i] = bench_store(x, buffers, (int)k + 1); }
        start = bench_now();
        for (k = 0; k < 4; ++k) bench_arithmetic((float *)(void *)(buffers + k * BENCH_TILE), BENCH_TILE / 4);
        alone = bench_rate(start, 2.0 * 4 * (double)BENCH_TILE);
        limits[3][i] = memory ? 1 / (1 / alone + 1 / limits[2][i]) : alone < limits[2][i] ? alone : limits[2][i];
        values[3][i] = bench_step(x, buffers);
    }
    for (k = 0; k < 4; ++k) {
        sprintf(text, "%s, %s", name, rows[k]);
        bench_row(b, text, 1, BENCH_TILES * BENCH_TILE, bench_median(values[k], BENCH_REPEATS), "GB/s", bench_median(limits[k], BENCH_REPEATS), 1);
    }
    if (file) { (void)f.close_fn(NULL, file); (void)f.remove_fn(NULL, path); }
    free(memory);
    memopt_store_destroy(x);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "store"); memopt_store_desc d; const char *folder = getenv("TMPDIR");
    unsigned char *buffers = (unsigned char *)memopt_i_system_alloc(NULL, 5 * BENCH_TILE, 4096);
    if (!buffers) { fprintf(stderr, "bench_store: out of memory\n"); return 1; }
    memset(buffers, 0x3f, 5 * BENCH_TILE);
    sprintf(bench_paths[0], "%.500s/bench_store.tiles", folder ? folder : "build"); sprintf(bench_paths[1], "%.500s/bench_store.plain", folder ? folder : "build");
    (void)signal(SIGTERM, bench_stopped); (void)signal(SIGINT, bench_stopped); /* no files are left */
    memset(&d, 0, sizeof d);
    d.tiles = BENCH_TILES; d.tile_bytes = BENCH_TILE; d.path = bench_paths[0]; d.aligned = 1; d.no_atomic = 1;
    bench_tier(&b, "file", d, buffers);
    d.no_atomic = 0;
    bench_tier(&b, "file, by steps", d, buffers);
    d.path = NULL; d.no_atomic = 1;
    bench_tier(&b, "memory", d, buffers);
    memopt_i_system_free(NULL, buffers, 5 * BENCH_TILE, 4096);
    return 0;
}
