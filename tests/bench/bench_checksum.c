/* bench_checksum.c - CRC-32C of memory, GB/s. Beside it, in the same run, a loop that only reads the same bytes with the
   widest registers of the machine. 64 MiB come from memory, 256 KiB from the second-level cache. Two threads need
   -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define BENCH_LONG    ((size_t)64 << 20)
#define BENCH_CACHED  ((size_t)256 << 10)
#define BENCH_PIECES  64
#define BENCH_REPEATS 21
static volatile uint64_t bench_sink;
/* Four registers of `width` bytes at a time. */
#define BENCH_READ(name, target, width, lanes) target static void name(const unsigned char *p, size_t n) { \
    lanes a = { 0 }, b = a, c = a, d = a, x; uint64_t parts[width / 8]; size_t i; \
    for (i = 0; i + 4 * width <= n; i += 4 * width) { \
        memcpy(&x, p + i, width); a ^= x; memcpy(&x, p + i + width, width); b ^= x; \
        memcpy(&x, p + i + 2 * width, width); c ^= x; memcpy(&x, p + i + 3 * width, width); d ^= x; \
    } \
    a ^= b ^ c ^ d; memcpy(parts, &a, width); \
    for (i = 0; i < width / 8; ++i) bench_sink ^= parts[i]; }
#if defined(MEMOPT_I_X86)
typedef uint64_t bench_64 __attribute__((vector_size(64)));
typedef uint64_t bench_32 __attribute__((vector_size(32)));
BENCH_READ(bench_read_avx512, MEMOPT_I_AVX512, 64, bench_64)
BENCH_READ(bench_read_avx2, MEMOPT_I_AVX2, 32, bench_32)
#endif
#if defined(__GNUC__) || defined(__clang__)
typedef uint64_t bench_16 __attribute__((vector_size(16)));
BENCH_READ(bench_read_plain, , 16, bench_16)
#else
BENCH_READ(bench_read_plain, , 8, uint64_t)
#endif
typedef struct bench_reading { const unsigned char *bytes; size_t piece; int level; } bench_reading;
static void bench_read_chunk(void *task, size_t chunk, int worker) {
    const bench_reading *r = (const bench_reading *)task; const unsigned char *p = r->bytes + chunk * r->piece;
    (void)worker;
#if defined(MEMOPT_I_X86)
    if (r->level >= MEMOPT_SIMD_AVX512) { bench_read_avx512(p, r->piece); return; }
    if (r->level >= MEMOPT_SIMD_AVX2) { bench_read_avx2(p, r->piece); return; }
#endif
    bench_read_plain(p, r->piece);
}
static void bench_level(const bench *b, int level, const unsigned char *bytes, size_t n, int threads, memopt_threads t) {
    double values[BENCH_REPEATS], limits[BENCH_REPEATS]; char name[64]; bench_reading reading; size_t i, k;
    const size_t pieces = n == BENCH_LONG ? BENCH_PIECES : 1, times = n == BENCH_LONG ? 1 : 200;
    const double all = (double)n * (double)times;
    reading.bytes = bytes; reading.piece = n / pieces; reading.level = memopt_simd_best(); t.simd_level = level;
    for (i = 0; i < BENCH_REPEATS; ++i) {
        uint64_t start = bench_now(); uint32_t crc = 0;
        for (k = 0; k < times; ++k) memopt_i_parallel_for(&t, pieces, bench_read_chunk, &reading);
        limits[i] = all / (double)(bench_now() - start);
        start = bench_now();
        for (k = 0; k < times; ++k) if (memopt_crc32c_parallel(crc, bytes, n, &t, &crc)) exit(1);
        values[i] = all / (double)(bench_now() - start);
        bench_sink = crc;
    }
    sprintf(name, "crc32c, %s", memopt_simd_text(level));
    bench_row(b, name, threads, n, bench_median(values, BENCH_REPEATS), "GB/s", bench_median(limits, BENCH_REPEATS), 1);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "checksum"); memopt_thread_pool *pool = NULL; memopt_threads t; int threads, level;
    unsigned char *bytes = (unsigned char *)malloc(BENCH_LONG + 64), *aligned; size_t i; const int best = memopt_simd_best();
    if (!bytes) { fprintf(stderr, "bench_checksum: out of memory\n"); return 1; }
    aligned = bytes + (64 - ((uintptr_t)bytes & 63));
    for (i = 0; i < BENCH_LONG; ++i) aligned[i] = (unsigned char)(i * 2654435761u >> 24);
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads) {
        for (level = MEMOPT_SIMD_SCALAR; level <= best && level <= MEMOPT_SIMD_AVX512; ++level) {
            if (level == MEMOPT_SIMD_NEON && best != level) continue;
            if (threads == 1) bench_level(&b, level, aligned, BENCH_CACHED, threads, t);
            bench_level(&b, level, aligned, BENCH_LONG, threads, t);
        }
    }
    free(bytes);
    return 0;
}
