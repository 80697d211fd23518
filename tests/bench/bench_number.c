/* bench_number.c - conversions, and the random numbers they round with. Long arrays are compared with memcpy moving as
   many bytes, read and written together, in the same run; what stays in the first-level cache with the same work less
   its noise, and random numbers with writing as many bytes. Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#if defined(__has_include)
#  if __has_include("bench_quantize.h")
#    include "bench_quantize.h"
#    define BENCH_QUANTIZE 1
#  endif
#endif

#define BENCH_N       ((size_t)64 << 20)
#define BENCH_REPEATS 7
static unsigned char *bench_from, *bench_to; /* 8 bytes for each of BENCH_N elements: the two workers copy apart */
static memopt_noise bench_noise;
enum { BENCH_COPY, BENCH_FILL, BENCH_BF16, BENCH_TO_BF16, BENCH_F16, BENCH_TO_F16, BENCH_E4M3, BENCH_TO_E4M3,
       BENCH_E5M2, BENCH_TO_E5M2, BENCH_BF16_STOCHASTIC, BENCH_E4M3_STOCHASTIC, BENCH_SPLIT, BENCH_JOIN, BENCH_BITS,
       BENCH_UNIFORM, BENCH_NORMAL };
static const struct { const char *name; int what; size_t bytes; } bench_kinds[] = { /* bytes: read and written, or written */
    { "bf16_from_f32", BENCH_TO_BF16, 6 }, { "f32_from_bf16", BENCH_BF16, 6 },
    { "bf16_stochastic", BENCH_BF16_STOCHASTIC, 6 }, { "f32_split", BENCH_SPLIT, 8 }, { "f32_join", BENCH_JOIN, 8 },
    { "f16_from_f32", BENCH_TO_F16, 6 }, { "f32_from_f16", BENCH_F16, 6 },
    { "e4m3_from_f32", BENCH_TO_E4M3, 5 }, { "f32_from_e4m3", BENCH_E4M3, 5 }, { "e4m3_stochastic", BENCH_E4M3_STOCHASTIC, 5 },
    { "e5m2_from_f32", BENCH_TO_E5M2, 5 }, { "f32_from_e5m2", BENCH_E5M2, 5 },
    { "random_bits", BENCH_BITS, 4 }, { "random_uniform", BENCH_UNIFORM, 4 }, { "random_normal", BENCH_NORMAL, 4 } };

typedef struct bench_copied { size_t bytes; int what; } bench_copied;
static void bench_copy_chunk(void *task, size_t chunk, int worker) {
    const bench_copied *c = (const bench_copied *)task;
    (void)worker;
    if (c->what == BENCH_FILL) memset(bench_to + chunk * BENCH_N * 4, (int)chunk, c->bytes);
    else memcpy(bench_to + chunk * BENCH_N * 4, bench_from + chunk * BENCH_N * 4, c->bytes);
}
/* One run of it, ns an element. memcpy: each thread moves all the bytes, so that its own threshold for long copies is
   reached as it is by one thread; the time is shared out. */
static double bench_once(int what, size_t bytes, const memopt_threads *t, int threads) {
    const size_t n = BENCH_N; uint64_t start; memopt_status s = MEMOPT_OK; bench_copied copied;
    const void *from = bench_from; void *to = bench_to;
    uint16_t *two = (uint16_t *)to; uint8_t *one = (uint8_t *)to; const float *src = (const float *)from; float *dst = (float *)to;
    const uint16_t *codes = (const uint16_t *)from; const uint8_t *small = (const uint8_t *)from;
    start = bench_now();
    switch (what) {
    case BENCH_COPY: case BENCH_FILL:
        copied.bytes = what == BENCH_FILL ? n * bytes : n * bytes / 2; copied.what = what;
        memopt_i_parallel_for(t, (size_t)threads, bench_copy_chunk, &copied);
        return (double)(bench_now() - start) / (double)n / threads;
    case BENCH_BF16:            s = memopt_f32_from_bf16(dst, codes, n, t); break;
    case BENCH_TO_BF16:         s = memopt_bf16_from_f32(two, src, n, t); break;
    case BENCH_F16:             s = memopt_f32_from_f16(dst, codes, n, t); break;
    case BENCH_TO_F16:          s = memopt_f16_from_f32(two, src, n, t); break;
    case BENCH_E4M3:            s = memopt_f32_from_e4m3(dst, small, n, t); break;
    case BENCH_TO_E4M3:         s = memopt_e4m3_from_f32(one, src, n, 1, t); break;
    case BENCH_E5M2:            s = memopt_f32_from_e5m2(dst, small, n, t); break;
    case BENCH_TO_E5M2:         s = memopt_e5m2_from_f32(one, src, n, 1, t); break;
    case BENCH_BF16_STOCHASTIC: s = memopt_bf16_from_f32_stochastic(two, src, n, bench_noise, 0, t); break;
    case BENCH_E4M3_STOCHASTIC: s = memopt_e4m3_from_f32_stochastic(one, src, n, 1, bench_noise, 0, t); break;
    case BENCH_SPLIT:           s = memopt_f32_split(two, two + n, src, n, t); break;
    case BENCH_JOIN:            s = memopt_f32_join(dst, codes, codes + n, n, t); break;
    case BENCH_BITS:            s = memopt_random_bits((uint32_t *)to, n, 1, 2, 0, t); break;
    case BENCH_UNIFORM:         s = memopt_random_uniform(dst, n, 1, 2, 0, t); break;
    case BENCH_NORMAL:          s = memopt_random_normal(dst, n, 1, 2, 0, t); break;
    }
    if (s) { fprintf(stderr, "bench_number: %s\n", memopt_status_text(s)); exit(1); }
    return (double)(bench_now() - start) / (double)n;
}
static void bench_long(const bench *b, size_t kind, const memopt_threads *t, int threads) {
    double times[BENCH_REPEATS], limits[BENCH_REPEATS]; size_t i; const int what = bench_kinds[kind].what;
    for (i = 0; i < BENCH_REPEATS; ++i) {
        limits[i] = bench_once(what >= BENCH_BITS ? BENCH_FILL : BENCH_COPY, bench_kinds[kind].bytes, t, threads);
        times[i] = bench_once(what, 0, t, threads);
    }
    bench_row(b, bench_kinds[kind].name, threads, BENCH_N, bench_median(times, BENCH_REPEATS), "ns",
              bench_median(limits, BENCH_REPEATS), 0);
}
/* 256 elements in the first-level cache, as an optimizer's step uses them; ns an element. */
static double bench_short(int stochastic) {
    static float src[256]; static uint16_t dst[256]; double times[101]; size_t repeat, i; const int level = memopt_simd_best();
    for (i = 0; i < 256; ++i) src[i] = (float)i * 0.37f;
    for (repeat = 0; repeat < 101; ++repeat) {
        const uint64_t start = bench_now();
        for (i = 0; i < 200; ++i) {
            if (stochastic) memopt_i_bf16_stochastic_at(level, dst, src, 256, bench_noise, i * 256);
            else memopt_i_bf16_from_f32_at(level, dst, src, 256);
            src[i] = (float)dst[i];
        }
        times[repeat] = (double)(bench_now() - start) / 200 / 256;
    }
    return bench_median(times, 101);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "number"); size_t i; int threads; memopt_threads t; memopt_thread_pool *pool = NULL;
    float *values; void *blocks[2];
    bench_noise = memopt_noise_make(1, 2);
    (void)bench_short(0); /* wide units sleep until they are used */
    bench_row(&b, "noise_256", 1, 256, bench_short(1), "ns", bench_short(0), 0);
    for (i = 0; i < 2; ++i) { /* aligned as arenas and heaps do */
        blocks[i] = malloc(BENCH_N * 8 + 64);
        if (!blocks[i]) { fprintf(stderr, "bench_number: needs a GiB of memory\n"); return 1; }
    }
    bench_from = (unsigned char *)blocks[0] + (64 - ((uintptr_t)blocks[0] & 63));
    bench_to = (unsigned char *)blocks[1] + (64 - ((uintptr_t)blocks[1] & 63));
    values = (float *)(void *)bench_from;
    for (i = 0; i < BENCH_N * 2; ++i) values[i] = (float)(int)(i * 2654435761u >> 8 & 0xffffff) * 1e-6f - 4.0f;
    memset(bench_to, 1, BENCH_N * 8);
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads) {
        for (i = 0; i < sizeof bench_kinds / sizeof *bench_kinds; ++i) bench_long(&b, i, &t, threads);
    }
    free(blocks[0]); free(blocks[1]);
#if defined(BENCH_QUANTIZE)
    bench_quantize(&b);
#endif
    return 0;
}
