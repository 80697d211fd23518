/* bench_quantize.h - part of bench_number: quantize and dequantize, 64 Mi elements in blocks of 256, signed map.
   The limit is a loop that reads and writes the same bytes by the same chunks and does nothing else: 4 in and 1 out, or
   1 in and 4 out, with streaming stores where the processor has them. */
#ifndef MEMOPT_BENCH_QUANTIZE_H
#define MEMOPT_BENCH_QUANTIZE_H
#define BENCH_QUANTIZE_N       ((size_t)64 << 20)
#define BENCH_QUANTIZE_REPEATS 9
typedef struct bench_quantized { float *floats, *absmax; uint8_t *codes; uint16_t *bf16; } bench_quantized;
#if defined(MEMOPT_I_X86)
MEMOPT_I_AVX2 static void bench_narrow_loop(uint8_t *to, const float *from, size_t n) {
    size_t i;
    for (i = 0; i < n; i += 32) {
        const __m256 a = _mm256_or_ps(_mm256_loadu_ps(from + i), _mm256_loadu_ps(from + i + 8));
        const __m256 b = _mm256_or_ps(_mm256_loadu_ps(from + i + 16), _mm256_loadu_ps(from + i + 24));
        _mm256_stream_si256((__m256i *)(void *)(to + i), _mm256_castps_si256(_mm256_or_ps(a, b)));
    }
    _mm_sfence();
}
MEMOPT_I_AVX2 static void bench_widen_loop(float *to, const uint8_t *from, size_t n) {
    size_t i;
    for (i = 0; i < n; i += 32) {
        const __m256 a = _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + i)));
        _mm256_stream_ps(to + i, a); _mm256_stream_ps(to + i + 8, a);
        _mm256_stream_ps(to + i + 16, a); _mm256_stream_ps(to + i + 24, a);
    }
    _mm_sfence();
}
static int bench_streams(void) { return memopt_simd_best() >= MEMOPT_SIMD_AVX2; }
#else
static void bench_narrow_loop(uint8_t *to, const float *from, size_t n) { (void)to; (void)from; (void)n; }
static void bench_widen_loop(float *to, const uint8_t *from, size_t n) { (void)to; (void)from; (void)n; }
static int bench_streams(void) { return 0; }
#endif
static void bench_narrow_chunk(void *task, size_t chunk, int worker) {
    const bench_quantized *q = (const bench_quantized *)task; size_t i; const size_t n = (size_t)1 << 16, at = chunk * n;
    (void)worker;
    if (bench_streams()) { bench_narrow_loop(q->codes + at, q->floats + at, n); return; }
    for (i = 0; i < n / 4; ++i) memcpy(q->codes + at + 4 * i, q->floats + at + 4 * i, 4); /* a line in four is enough to fetch it */
}
static void bench_widen_chunk(void *task, size_t chunk, int worker) {
    const bench_quantized *q = (const bench_quantized *)task; size_t i; const size_t n = (size_t)1 << 16, at = chunk * n;
    (void)worker;
    if (bench_streams()) { bench_widen_loop(q->floats + at, q->codes + at, n); return; }
    for (i = 0; i < 4; ++i) memcpy((unsigned char *)(q->floats + at) + i * n, q->codes + at, n);
}
static double bench_quantize_once(const bench_quantized *q, int what, const memopt_threads *t) { /* ns an element */
    const size_t n = BENCH_QUANTIZE_N; const uint64_t start = bench_now(); bench_quantized limit = *q; memopt_status s = MEMOPT_OK;
    switch (what) {
    case 0: s = memopt_quantize_f32(q->codes, q->absmax, q->floats, n, MEMOPT_QUANT_SIGNED, 0, t); break;
    case 1: s = memopt_quantize_bf16(q->codes, q->absmax, q->bf16, n, MEMOPT_QUANT_SIGNED, 0, t); break;
    case 2: s = memopt_dequantize_f32(q->floats, q->codes, q->absmax, n, MEMOPT_QUANT_SIGNED, 0, t); break;
    case 3: s = memopt_dequantize_bf16(q->bf16, q->codes, q->absmax, n, MEMOPT_QUANT_SIGNED, 0, t); break;
    case 4: s = memopt_quantize_f32(q->codes, q->absmax, q->floats, n, MEMOPT_QUANT_UNSIGNED, 0, t); break;
    case 5: s = memopt_dequantize_f32(q->floats, q->codes, q->absmax, n, MEMOPT_QUANT_UNSIGNED, 0, t); break;
    case 6: memopt_i_parallel_for(t, n >> 16, bench_narrow_chunk, &limit); break;
    case 7: memopt_i_parallel_for(t, n >> 16, bench_widen_chunk, &limit); break;
    }
    if (s) { fprintf(stderr, "bench_number: %s\n", memopt_status_text(s)); exit(1); }
    return (double)(bench_now() - start) / (double)n;
}
static void bench_quantize_fill(const bench_quantized *q) { /* values spread over some decades, as states are */
    uint32_t seed = 1; size_t i;
    for (i = 0; i < BENCH_QUANTIZE_N; ++i) {
        float u;
        seed = seed * 1664525u + 1013904223u;
        u = (float)(seed >> 8) * (1.0f / 8388608.0f) - 1.0f;
        q->floats[i] = 0.77f * u * u * u; /* no power of two: bf16 divided by one often lies on a boundary */
    }
    (void)memopt_bf16_from_f32(q->bf16, q->floats, BENCH_QUANTIZE_N, NULL);
    memset(q->codes, 0, BENCH_QUANTIZE_N); memset(q->absmax, 0, BENCH_QUANTIZE_N / 256 * sizeof *q->absmax);
}
static void bench_quantize_rows(const bench *b, const bench_quantized *q, const memopt_threads *t, int threads) {
    static const struct { const char *name; int what, limit; } rows[6] = {
        { "quantize", 0, 6 }, { "quantize_unsigned", 4, 6 }, { "quantize_bf16", 1, 6 },
        { "dequantize", 2, 7 }, { "dequantize_unsigned", 5, 7 }, { "dequantize_bf16", 3, 7 } };
    double times[BENCH_QUANTIZE_REPEATS], limits[BENCH_QUANTIZE_REPEATS]; int i, row;
    bench_quantize_fill(q);
    for (row = 0; row < 6; ++row) {
        for (i = 0; i < BENCH_QUANTIZE_REPEATS; ++i) { /* the loop of the limit spoils what it writes, never what is read */
            limits[i] = bench_quantize_once(q, rows[row].limit, t);
            times[i] = bench_quantize_once(q, rows[row].what, t);
        }
        bench_row(b, rows[row].name, threads, BENCH_QUANTIZE_N, bench_median(times, BENCH_QUANTIZE_REPEATS), "ns",
                  bench_median(limits, BENCH_QUANTIZE_REPEATS), 0);
    }
}
static void bench_quantize(const bench *b) {
    const size_t n = BENCH_QUANTIZE_N;
    bench_quantized q; int threads; memopt_threads t; memopt_thread_pool *pool = NULL;
    q.floats = (float *)memopt_i_system_alloc(NULL, n * sizeof *q.floats, 64);
    q.absmax = (float *)memopt_i_system_alloc(NULL, n / 256 * sizeof *q.absmax, 64);
    q.codes = (uint8_t *)memopt_i_system_alloc(NULL, n, 64);
    q.bf16 = (uint16_t *)memopt_i_system_alloc(NULL, n * sizeof *q.bf16, 64);
    if (!q.floats || !q.absmax || !q.codes || !q.bf16) { fprintf(stderr, "bench_number: needs half a GiB\n"); exit(1); }
    for (threads = 1; bench_threads(threads, &pool, &t); ++threads) {
        bench_quantize_rows(b, &q, &t, threads);
    }
    memopt_i_system_free(NULL, q.floats, 0, 64); memopt_i_system_free(NULL, q.absmax, 0, 64);
    memopt_i_system_free(NULL, q.codes, 0, 64); memopt_i_system_free(NULL, q.bf16, 0, 64);
}
#endif
