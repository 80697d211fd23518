/* bench_gemm.c - the built-in product at the shapes of a GPT: Gflop/s, and the limit is what fused multiply-adds between
   registers reach in the same run, at the same level, with as many threads; of bf16 with matrix units, what these reach on
   packed operands in the first-level cache, with AVX512_BF16, what its dot products between registers reach; of up to 16
   rows, what reading the weights once would allow. Where bf16 has more than one way with 16 lanes, the others follow, as dots_... and avx512_....
   With one thread the clock is the processor's: what others do there meanwhile does not count. With -DBENCH_CBLAS and a CBLAS to link with
   the library follows each shape, one thread, as cblas_...; its own choice of kernels may be poor on a new processor
   (OPENBLAS_CORETYPE=SkylakeX). Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#if !defined(MEMOPT_I_X86_16) /* where products of bf16 have no level of their own */
#  define memopt_i_bf16_level memopt_i_lane_level
#endif
#include <time.h>
#if defined(BENCH_CBLAS)
#  include <cblas.h>
#endif

#define BENCH_REPEATS 5
typedef struct bench_shape { const char *name; size_t rows, columns, depth; int left_transposed, right_transposed, accumulate; memopt_type type; } bench_shape;
static const bench_shape bench_shapes[] = {
    { "forward_768_768", 4096, 768, 768, 0, 1, 0, MEMOPT_TYPE_F32 },
    { "grad_input_768_768", 4096, 768, 768, 0, 0, 0, MEMOPT_TYPE_F32 },
    { "grad_weight_768_768", 768, 768, 4096, 1, 0, 1, MEMOPT_TYPE_F32 },
    { "forward_768_3072", 4096, 3072, 768, 0, 1, 0, MEMOPT_TYPE_F32 },
    { "grad_input_768_3072", 4096, 768, 3072, 0, 0, 0, MEMOPT_TYPE_F32 },
    { "grad_weight_768_3072", 3072, 768, 4096, 1, 0, 1, MEMOPT_TYPE_F32 },
    { "forward_bf16_768_768", 4096, 768, 768, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "forward_bf16_768_3072", 4096, 3072, 768, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "forward_bf16_3072_768", 4096, 768, 3072, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "grad_input_bf16_768_768", 4096, 768, 768, 0, 0, 0, MEMOPT_TYPE_BF16 },
    { "grad_input_bf16_768_3072", 4096, 768, 3072, 0, 0, 0, MEMOPT_TYPE_BF16 },
    { "grad_input_bf16_3072_768", 4096, 3072, 768, 0, 0, 0, MEMOPT_TYPE_BF16 },
    { "grad_weight_bf16_768_768", 768, 768, 4096, 1, 0, 1, MEMOPT_TYPE_BF16 },
    { "grad_weight_bf16_768_3072", 3072, 768, 4096, 1, 0, 1, MEMOPT_TYPE_BF16 },
    { "grad_weight_bf16_3072_768", 768, 3072, 4096, 1, 0, 1, MEMOPT_TYPE_BF16 },
    { "forward_f16", 4096, 768, 768, 0, 1, 0, MEMOPT_TYPE_F16 },
    { "head_forward", 512, 50304, 768, 0, 1, 0, MEMOPT_TYPE_F32 },
    { "head_grad_input", 512, 768, 50304, 0, 0, 0, MEMOPT_TYPE_F32 },
    { "head_grad_weight", 50304, 768, 512, 1, 0, 1, MEMOPT_TYPE_F32 },
    { "strides_of_4096", 1024, 1024, 4096, 0, 1, 0, MEMOPT_TYPE_F32 },
    { "scores_64x1024x64", 64, 1024, 64, 0, 1, 0, MEMOPT_TYPE_F32 },
    { "values_64x64x1024", 64, 64, 1024, 0, 0, 0, MEMOPT_TYPE_F32 },
    { "grad_keys_1024x64x64", 1024, 64, 64, 1, 0, 1, MEMOPT_TYPE_F32 },
    { "sample_1_row", 1, 50304, 768, 0, 1, 0, MEMOPT_TYPE_F32 },
    { "sample_8_rows", 8, 50304, 768, 0, 1, 0, MEMOPT_TYPE_F32 },
    { "sample_bf16_1_row", 1, 50304, 768, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "sample_bf16_8_rows", 8, 50304, 768, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "sample_8bit_1_row", 1, 50304, 768, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "sample_8bit_8_rows", 8, 50304, 768, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "few_grad_input_1_row", 1, 768, 50304, 0, 0, 0, MEMOPT_TYPE_F32 },
    { "few_grad_input_bf16_1_row", 1, 768, 50304, 0, 0, 0, MEMOPT_TYPE_BF16 },
    { "forward_bf16_4096", 512, 4096, 4096, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "forward_8bit_4096", 512, 4096, 4096, 0, 1, 0, MEMOPT_TYPE_BF16 },
    { "grad_input_bf16_4096", 512, 4096, 4096, 0, 0, 0, MEMOPT_TYPE_BF16 },
    { "grad_input_8bit_4096", 512, 4096, 4096, 0, 0, 0, MEMOPT_TYPE_BF16 } };
static int bench_is_8bit(const bench_shape *s) { return strstr(s->name, "8bit") != NULL; } /* the right operand: codes of bf16 */

static volatile float bench_sink;
/* Compiled as the header compiles its wide code: else gcc makes calls of what should be instructions. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#  pragma GCC push_options
#  pragma GCC optimize("align-functions=1,align-jumps=1")
#endif
/* ---- the limit: ten accumulators and nothing else ---- */
#define BENCH_PEAK(V, SET)                                                                                             \
SET static float V##bench_peak(size_t steps, float seed) {                                                             \
    const V##floats x = V##set(seed), y = V##set(0.5f);                                                                     \
    V##floats a = V##set(1), b = V##set(2), c = V##set(3), d = V##set(4), e = V##set(5), f = V##set(6), g = V##set(7);      \
    V##floats h = V##set(8), i = V##set(9), j = V##set(10); float sum[16];                                                  \
    for (; steps; --steps) {                                                                                           \
        a = V##fma(x, y, a); b = V##fma(x, y, b); c = V##fma(x, y, c); d = V##fma(x, y, d); e = V##fma(x, y, e);       \
        f = V##fma(x, y, f); g = V##fma(x, y, g); h = V##fma(x, y, h); i = V##fma(x, y, i); j = V##fma(x, y, j);       \
    }                                                                                                                  \
    a = V##fma(a, b, V##fma(c, d, V##fma(e, f, V##fma(g, h, V##mul(i, j)))));                                          \
    V##store(sum, a);                                                                                                  \
    return sum[0];                                                                                                     \
}
BENCH_PEAK(memopt_i_v1_, )
#if defined(MEMOPT_I_X86)
BENCH_PEAK(memopt_i_v8_, MEMOPT_I_AVX2)
#  if defined(MEMOPT_I_X86_16)
BENCH_PEAK(memopt_i_v16_, MEMOPT_I_AVX512)
#  endif
#elif defined(MEMOPT_I_NEON)
BENCH_PEAK(memopt_i_v4_, )
#endif
/* ---- the limit of few rows: memory ---- */
#define BENCH_READ(V, SET, WIDTH)                                                                                      \
SET static void V##bench_read(const float *p, size_t n) {                                                              \
    V##floats a = V##set(0), b = a, c = a, d = a; size_t i; float sum[16];                                             \
    for (i = 0; i + 4 * WIDTH <= n; i += 4 * WIDTH) {                                                                  \
        a = V##add(a, V##load(p + i)); b = V##add(b, V##load(p + i + WIDTH));                                          \
        c = V##add(c, V##load(p + i + 2 * WIDTH)); d = V##add(d, V##load(p + i + 3 * WIDTH));                          \
    }                                                                                                                  \
    V##store(sum, V##add(V##add(a, b), V##add(c, d)));                                                                 \
    bench_sink = sum[0];                                                                                               \
}
BENCH_READ(memopt_i_v1_, , 1)
#if defined(MEMOPT_I_X86)
BENCH_READ(memopt_i_v8_, MEMOPT_I_AVX2, 8)
#elif defined(MEMOPT_I_NEON)
BENCH_READ(memopt_i_v4_, , 4)
#endif
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#  pragma GCC pop_options
#endif
#define BENCH_STEPS ((size_t)1000000)
static uint64_t bench_clock(int threads) {
    return threads == 1 ? (uint64_t)clock() * (1000000000 / CLOCKS_PER_SEC) : bench_now();
}
static void bench_peak_chunk(void *task, size_t chunk, int worker) {
    const int level = memopt_simd_best(); const float seed = 1e-9f * (float)(chunk + 1);
    (void)task; (void)worker;
#if defined(MEMOPT_I_X86_16)
    if (level >= MEMOPT_SIMD_AVX512) { bench_sink = memopt_i_v16_bench_peak(BENCH_STEPS, seed); memopt_i_wide_end(level); return; }
#endif
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX2) { bench_sink = memopt_i_v8_bench_peak(BENCH_STEPS, seed); memopt_i_wide_end(level); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { bench_sink = memopt_i_v4_bench_peak(BENCH_STEPS, seed); return; }
#endif
    (void)level;
    bench_sink = memopt_i_v1_bench_peak(BENCH_STEPS, seed);
}
static double bench_peak(const memopt_threads *t, int threads) {
    const double flops = 2 * 10.0 * (double)BENCH_STEPS * threads * (double)(memopt_i_gemm_kernels_at(memopt_simd_best())->wide / 2);
    const uint64_t start = bench_clock(threads);
    memopt_i_parallel_for(t, (size_t)threads, bench_peak_chunk, NULL);
    return flops / (double)(bench_clock(threads) - start);
}

#if defined(MEMOPT_I_AMX)
/* 2 x 2 tiles over 256 depths, again and again. */
static void bench_tiles_chunk(void *task, size_t chunk, int worker) {
    _Alignas(64) static const unsigned char packed[2][16384]; _Alignas(64) float sums[MEMOPT_I_TILES * MEMOPT_I_TILES];
    memopt_i_tiles_walk w; size_t i;
    (void)task; (void)chunk; (void)worker;
    memset(&w, 0, sizeof w);
    w.left = packed[0]; w.right = packed[1]; w.left_row = 64; w.left_step = 2 * MEMOPT_I_TILES_PAIR; w.blocks = 8;
    w.to = sums; w.to_row = MEMOPT_I_TILES;
    memopt_i_tiles_begin();
    for (i = 0; i < BENCH_STEPS / 100; ++i) memopt_i_tiles_multiply(&w);
    memopt_i_tiles_end();
}
static double bench_tiles_peak(const memopt_threads *t, int threads) {
    const double flops = 2.0 * 32 * 32 * 256 * (double)(BENCH_STEPS / 100) * threads;
    const uint64_t start = bench_clock(threads);
    memopt_i_parallel_for(t, (size_t)threads, bench_tiles_chunk, NULL);
    return flops / (double)(bench_clock(threads) - start);
}
#endif
#if defined(MEMOPT_I_X86_16)
/* As many sums as the product has in registers, and nothing else. */
MEMOPT_I_AVX512_BF16 static void bench_dots_chunk(void *task, size_t chunk, int worker) {
    const __m512bh x = (__m512bh)_mm512_set1_epi32((int)(0x30003000u + (unsigned)chunk)), y = (__m512bh)_mm512_set1_epi32(0x3f003f00);
    __m512 sums[16]; float out[16]; size_t i, k;
    (void)task; (void)worker;
    MEMOPT_I_UNROLL_ALL
    for (k = 0; k < 16; ++k) sums[k] = _mm512_set1_ps((float)k);
    for (i = 0; i < BENCH_STEPS; ++i) {
        MEMOPT_I_UNROLL_ALL
        for (k = 0; k < 16; ++k) sums[k] = _mm512_dpbf16_ps(sums[k], x, y);
    }
    MEMOPT_I_UNROLL_ALL
    for (k = 1; k < 16; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
    _mm512_storeu_ps(out, sums[0]);
    bench_sink = out[0];
    memopt_i_wide_end(MEMOPT_SIMD_AVX512_BF16);
}
static double bench_dots_peak(const memopt_threads *t, int threads) {
    const double flops = 4.0 * 16 * 16 * (double)BENCH_STEPS * threads;
    const uint64_t start = bench_clock(threads);
    memopt_i_parallel_for(t, (size_t)threads, bench_dots_chunk, NULL);
    return flops / (double)(bench_clock(threads) - start);
}
#endif
typedef struct bench_span { const float *floats; size_t count; } bench_span; /* of a chunk */
static void bench_read_chunk(void *task, size_t chunk, int worker) {
    const bench_span *s = (const bench_span *)task; const float *p = s->floats + chunk * s->count;
    (void)worker;
#if defined(MEMOPT_I_X86)
    if (memopt_simd_best() >= MEMOPT_SIMD_AVX2) { memopt_i_v8_bench_read(p, s->count); memopt_i_wide_end(MEMOPT_SIMD_AVX2); return; }
#elif defined(MEMOPT_I_NEON)
    if (memopt_simd_best() >= MEMOPT_SIMD_NEON) { memopt_i_v4_bench_read(p, s->count); return; }
#endif
    memopt_i_v1_bench_read(p, s->count);
}
static double bench_read_limit(const bench_shape *s, const memopt_product *p, const memopt_threads *t, int threads) {
    const size_t n = s->columns * s->depth; bench_span span; const uint64_t start = bench_clock(threads);
    span.floats = (const float *)p->right; span.count = n * (bench_is_8bit(s) ? 1 : memopt_type_bytes(s->type)) / sizeof *span.floats / 64;
    memopt_i_parallel_for(t, 64, bench_read_chunk, &span);
    return 2.0 * (double)s->rows * (double)n / (double)(bench_clock(threads) - start);
}
static double bench_limit(const bench_shape *s, const memopt_product *p, const memopt_threads *t, int threads) {
    const int level = s->type == MEMOPT_TYPE_BF16 ? memopt_i_bf16_level(t) : 0;
    if (s->rows <= 16) return bench_read_limit(s, p, t, threads);
#if defined(MEMOPT_I_AMX)
    if (level == MEMOPT_SIMD_AMX) return bench_tiles_peak(t, threads);
#endif
#if defined(MEMOPT_I_X86_16)
    if (level == MEMOPT_SIMD_AVX512_BF16) return bench_dots_peak(t, threads);
#endif
    (void)level;
    return bench_peak(t, threads);
}

static void *bench_block(size_t bytes) { /* whole pages, as arenas give them */
    unsigned char *raw = (unsigned char *)malloc(bytes + 4096);
    if (!raw) { fprintf(stderr, "bench_gemm: out of memory\n"); exit(1); }
    memset(raw, 0, bytes + 4096);
    return raw; /* kept until the end */
}
static void *bench_aligned(void *raw) { return (unsigned char *)raw + (4096 - ((uintptr_t)raw & 4095)); }
static void *bench_matrix(size_t n, memopt_type type, void **raw) {
    size_t i; void *data; uint32_t x = 1;
    *raw = bench_block(n * memopt_type_bytes(type));
    data = bench_aligned(*raw);
    for (i = 0; i < n; ++i) {
        const float value = (float)((x = x * 1664525u + 1013904223u) >> 16) * (1.0f / 32768) - 1;
        if (type == MEMOPT_TYPE_F32) ((float *)data)[i] = value;
        else ((uint16_t *)data)[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(value) : memopt_to_f16(value);
    }
    return data;
}
static void bench_multiply(const memopt_product *p, const memopt_threads *t, void *scratch, size_t bytes) {
    const memopt_status s = memopt_gemm_multiply(p, t, scratch, bytes);
    if (s) { fprintf(stderr, "bench_gemm: %s\n", memopt_status_text(s)); exit(1); }
}
/* Gflop/s: flops a nanosecond; small products many times, so that the clock sees a few milliseconds */
static double bench_rate(const bench_shape *s, const memopt_product *p, const memopt_threads *t, int threads, void *scratch, size_t bytes) {
    const double flops = 2.0 * (double)s->rows * (double)s->columns * (double)s->depth;
    const size_t times = 1 + (size_t)(3e8 / flops); size_t i; const uint64_t start = bench_clock(threads);
    for (i = 0; i < times; ++i) {
#if defined(BENCH_CBLAS)
        if (!scratch) cblas_sgemm(CblasRowMajor, p->left_transposed ? CblasTrans : CblasNoTrans, p->right_transposed ? CblasTrans : CblasNoTrans,
                (int)p->rows, (int)p->columns, (int)p->depth, 1, (const float *)p->left, (int)p->left_stride, (const float *)p->right,
                (int)p->right_stride, p->accumulate ? 1.0f : 0.0f, (float *)p->result, (int)p->result_stride);
        else
#endif
        bench_multiply(p, t, scratch, bytes);
    }
    return flops * (double)times / (double)(bench_clock(threads) - start);
}
static void bench_one(const bench *b, const bench_shape *s, const memopt_threads *t, int threads, const char *prefix, int library) {
    const size_t bytes = memopt_gemm_scratch(t); double rates[BENCH_REPEATS], limits[BENCH_REPEATS]; char name[64];
    void *raw[6]; memopt_product p; memopt_quantized q; size_t i; const size_t weights = s->depth * s->columns;
    memset(&p, 0, sizeof p); memset(&q, 0, sizeof q);
    p.rows = s->rows; p.columns = s->columns; p.depth = s->depth;
    p.left_transposed = s->left_transposed; p.right_transposed = s->right_transposed; p.accumulate = s->accumulate;
    p.left_stride = s->left_transposed ? s->rows : s->depth;
    p.right_stride = s->right_transposed ? s->depth : s->columns;
    p.result_stride = s->columns;
    p.left_type = p.right_type = p.result_type = s->type;
    if (s->accumulate) p.result_type = MEMOPT_TYPE_F32; /* as gradients of weights are */
    p.left = bench_matrix(s->rows * s->depth, s->type, &raw[0]); p.right = bench_matrix(s->depth * s->columns, s->type, &raw[1]);
    p.result = bench_matrix(s->rows * s->columns, p.result_type, &raw[2]);
    raw[3] = bench_block(bytes); raw[4] = raw[5] = NULL;
    if (bench_is_8bit(s)) {
        uint8_t *codes = (uint8_t *)bench_aligned(raw[4] = bench_block(weights)); float *absmax = (float *)(raw[5] = bench_block(weights / 64 + 4));
        if (memopt_quantize_bf16(codes, absmax, (const uint16_t *)p.right, weights, MEMOPT_QUANT_SIGNED, 0, NULL)) exit(1);
        q.absmax = absmax; p.right = codes; p.quantized = &q;
    }
    for (i = 0; i < BENCH_REPEATS; ++i) {
        limits[i] = bench_limit(s, &p, t, threads);
        rates[i] = bench_rate(s, &p, t, threads, library ? NULL : bench_aligned(raw[3]), bytes);
    }
    strcpy(name, prefix);
    strcat(name, s->name);
    bench_row(b, name, threads, s->rows, bench_median(rates, BENCH_REPEATS), "Gflop/s", bench_median(limits, BENCH_REPEATS), 1);
    for (i = 0; i < 6; ++i) free(raw[i]);
}
int main(int argc, char **argv) {
    const int best = memopt_simd_best();
    const bench b = bench_begin(argc, argv, best >= MEMOPT_SIMD_AMX ? "gemm, with matrix units"
                                            : best == MEMOPT_SIMD_AVX512_BF16 ? "gemm, with dot products of bf16" : "gemm");
    size_t i; int threads; memopt_threads t; memopt_thread_pool *pool = NULL;
    const char *only = argc > 1 && argv[argc - 1][0] != '-' ? argv[argc - 1] : ""; /* shapes with this in their name */
#if defined(BENCH_CBLAS) && defined(OPENBLAS_CONFIG_H)
    openblas_set_num_threads(1);
#endif
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads) {
        for (i = 0; i < sizeof bench_shapes / sizeof *bench_shapes; ++i) {
            if (!strstr(bench_shapes[i].name, only)) continue;
            bench_one(&b, &bench_shapes[i], &t, threads, "", 0);
            for (t.simd_level = best - 1; bench_shapes[i].type == MEMOPT_TYPE_BF16 && t.simd_level >= MEMOPT_SIMD_AVX512; --t.simd_level)
                bench_one(&b, &bench_shapes[i], &t, threads, t.simd_level == MEMOPT_SIMD_AVX512 ? "avx512_" : "dots_", 0);
            t.simd_level = 0;
#if defined(BENCH_CBLAS)
            if (threads == 1 && bench_shapes[i].type == MEMOPT_TYPE_F32) bench_one(&b, &bench_shapes[i], &t, 1, "cblas_", 1);
#endif
        }
    }
    return 0;
}
