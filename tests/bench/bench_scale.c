/* bench_scale.c - what a pass over gradients costs: unscale, norm, clipping, accumulation; ns an element. The limit is a
   loop that moves the same bytes through the same workers and does next to nothing: x ^= constant in place for passes
   that read and write, a sum for those that read, x += y for those that read twice. Both take turns.
   Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define BENCH_COUNT   ((size_t)64 << 20)
#define BENCH_CHUNK   ((size_t)1 << 16) /* elements, like the library's */
#define BENCH_REPEATS 7
typedef enum bench_kind {
    BENCH_UNSCALE_F32, BENCH_NORM_F32, BENCH_ACCUMULATE_F32, BENCH_UNSCALE_BF16, BENCH_NORM_BF16, BENCH_ACCUMULATE_BF16,
    BENCH_ACCUMULATE_REST, BENCH_ACCUMULATE_MIXED, BENCH_UNSCALE_F16, BENCH_CLIP_F32, BENCH_KINDS
} bench_kind;
static const struct {
    const char *name; memopt_type gradient, sum; /* sum: where there is one */
    int to, from;                                /* the limit: bytes an element updated in place, and bytes read only */
} bench_kinds[BENCH_KINDS] = {
    { "unscale_f32",         MEMOPT_TYPE_F32,  MEMOPT_TYPE_F32,  4, 0 },
    { "norm_f32",            MEMOPT_TYPE_F32,  MEMOPT_TYPE_F32,  0, 4 },
    { "accumulate_f32",      MEMOPT_TYPE_F32,  MEMOPT_TYPE_F32,  4, 4 },
    { "unscale_bf16",        MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, 2, 0 },
    { "norm_bf16",           MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, 0, 2 },
    { "accumulate_bf16",     MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, 2, 2 },
    { "accumulate_bf16_kahan", MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, 4, 2 },
    { "accumulate_f32_bf16", MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32,  4, 2 },
    { "unscale_f16",         MEMOPT_TYPE_F16,  MEMOPT_TYPE_F16,  2, 0 },
    { "clip_value_f32",      MEMOPT_TYPE_F32,  MEMOPT_TYPE_F32,  0, 4 } };
typedef struct bench_memory { unsigned char *to, *from; double scratch[(BENCH_COUNT >> 16) * 4]; } bench_memory;

/* ---- the limits ---- */
typedef struct bench_move { unsigned char *to; const unsigned char *from; size_t to_bytes, from_bytes; uint64_t sums[BENCH_COUNT >> 16]; } bench_move;
#if defined(MEMOPT_I_X86)
typedef __m256i bench_wide;
#define BENCH_WIDE MEMOPT_I_AVX2
#define bench_load(p)      _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define bench_store(p, v)  _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define bench_xor(a, b)    _mm256_xor_si256(a, b)
BENCH_WIDE static bench_wide bench_same(int x) { return _mm256_set1_epi32(x); }
#else
typedef struct bench_wide { uint64_t x[4]; } bench_wide;
#define BENCH_WIDE
static bench_wide bench_load(const unsigned char *p) { bench_wide v; memcpy(&v, p, sizeof v); return v; }
static void bench_store(unsigned char *p, bench_wide v) { memcpy(p, &v, sizeof v); }
static bench_wide bench_xor(bench_wide a, bench_wide b) { int i; for (i = 0; i < 4; ++i) a.x[i] ^= b.x[i]; return a; }
static bench_wide bench_same(int x) { bench_wide v; int i; for (i = 0; i < 4; ++i) v.x[i] = (uint64_t)x * 0x100000001u; return v; }
#endif
BENCH_WIDE static void bench_move_chunk(void *task, size_t chunk, int worker) {
    bench_move *m = (bench_move *)task; unsigned char *to = m->to + chunk * m->to_bytes; size_t i, k; uint64_t parts[8];
    const unsigned char *from = m->from + chunk * m->from_bytes; bench_wide a = bench_same(0), b = a, c = a, d = a;
    (void)worker;
    if (!m->from_bytes) {
        a = bench_same(0x01000100); /* the values stay ordinary */
        for (i = 0; i < m->to_bytes; i += 64) {
            bench_store(to + i, bench_xor(bench_load(to + i), a));
            bench_store(to + i + 32, bench_xor(bench_load(to + i + 32), a));
        }
    } else if (!m->to_bytes) {
        for (i = 0; i < m->from_bytes; i += 128) {
            a = bench_xor(a, bench_load(from + i)); b = bench_xor(b, bench_load(from + i + 32));
            c = bench_xor(c, bench_load(from + i + 64)); d = bench_xor(d, bench_load(from + i + 96));
        }
        bench_store((unsigned char *)parts, bench_xor(bench_xor(a, b), bench_xor(c, d)));
        m->sums[chunk] = parts[0] ^ parts[1] ^ parts[2] ^ parts[3];
    } else {
        a = bench_same(0x01000100);
        for (i = k = 0; i < m->to_bytes; i += 64) { /* both arrays in step, however wide each is */
            b = bench_xor(b, bench_load(from + k));
            if (m->from_bytes == m->to_bytes) c = bench_xor(c, bench_load(from + k + 32));
            k += m->from_bytes == m->to_bytes ? 64 : 32;
            bench_store(to + i, bench_xor(bench_load(to + i), a));
            bench_store(to + i + 32, bench_xor(bench_load(to + i + 32), a));
        }
        bench_store((unsigned char *)parts, bench_xor(b, c));
        m->sums[chunk] = parts[0] ^ parts[1] ^ parts[2] ^ parts[3];
    }
}
static void bench_limit(const memopt_threads *threads, bench_kind kind, bench_memory *memory) {
    static bench_move m;
    m.to = memory->to; m.from = memory->from;
    m.to_bytes = BENCH_CHUNK * (size_t)bench_kinds[kind].to; m.from_bytes = BENCH_CHUNK * (size_t)bench_kinds[kind].from;
    memopt_i_parallel_for(threads, BENCH_COUNT / BENCH_CHUNK, bench_move_chunk, &m);
}

/* ---- the passes ---- */
static void bench_must(memopt_status s) {
    if (s) { fprintf(stderr, "bench_scale: %s\n", memopt_status_text(s)); exit(1); }
}
static void bench_pass(const memopt_threads *threads, bench_kind kind, bench_memory *memory, size_t repeat) {
    memopt_gradient g, s; memopt_gradients list, sums; memopt_gradient_total total; memopt_accumulation a;
    const memopt_noise noise = memopt_noise_make(1, repeat); memopt_micro_batch batch;
    memset(&g, 0, sizeof g);
    g.values = bench_kinds[kind].to ? memory->to : memory->from; g.count = BENCH_COUNT; g.type = bench_kinds[kind].gradient;
    memset(&list, 0, sizeof list); list.tensors = &g; list.count = 1; list.scratch = memory->scratch; list.scratch_bytes = sizeof memory->scratch;
    s = g; sums = list; sums.tensors = &s;
    s.type = bench_kinds[kind].sum;
    batch.tokens = 1; batch.is_mean = 1; batch.noise = &noise; a.tokens = a.micro_batches = 1;
    switch (kind) {
    case BENCH_UNSCALE_F32: case BENCH_UNSCALE_BF16: case BENCH_UNSCALE_F16:
        bench_must(memopt_gradients_scale(&list, repeat % 2 ? 2 : 0.5, &total, threads));
        break;
    case BENCH_NORM_F32: case BENCH_NORM_BF16: bench_must(memopt_gradients_measure(&list, &total, threads)); break;
    case BENCH_CLIP_F32: bench_must(memopt_gradients_clip_value(&list, 1e9f, threads)); break;
    default:
        g.values = memory->from;
        if (kind == BENCH_ACCUMULATE_REST) s.compensation = (uint16_t *)(void *)(memory->to + 2 * BENCH_COUNT);
        bench_must(memopt_gradients_accumulate(&sums, &list, &batch, &a, threads));
    }
}
static void bench_fill(unsigned char *bytes, uint64_t seed) { /* floats and 16-bit values of moderate size */
    size_t i;
    for (i = 0; i < BENCH_COUNT * 4; i += 4) {
        const uint32_t u = ((uint32_t)((i + seed) * 0x9E3779B97F4A7C15u >> 32) & 0x83FF83FFu) | 0x38003800u;
        memcpy(bytes + i, &u, 4);
    }
}
static void bench_measure(const bench *b, const memopt_threads *threads, int workers, bench_kind kind, bench_memory *memory) {
    double ours[BENCH_REPEATS], limit[BENCH_REPEATS]; size_t i;
    bench_fill(memory->to, 1); bench_fill(memory->from, 2);
    for (i = 0; i < BENCH_REPEATS; ++i) {
        uint64_t start = bench_now();
        bench_limit(threads, kind, memory);
        limit[i] = (double)(bench_now() - start) / (double)BENCH_COUNT;
        start = bench_now();
        bench_pass(threads, kind, memory, i);
        ours[i] = (double)(bench_now() - start) / (double)BENCH_COUNT;
    }
    bench_row(b, bench_kinds[kind].name, workers, BENCH_COUNT, bench_median(ours, BENCH_REPEATS), "ns",
              bench_median(limit, BENCH_REPEATS), 0);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "scale"); memopt_thread_pool *pool = NULL; memopt_threads threads; int kind;
    bench_memory *memory = (bench_memory *)malloc(sizeof *memory);
    if (memory) { memory->to = (unsigned char *)malloc(BENCH_COUNT * 4); memory->from = (unsigned char *)malloc(BENCH_COUNT * 4); }
    if (!memory || !memory->to || !memory->from) { fprintf(stderr, "bench_scale: no memory\n"); return 1; }
    for (kind = 0; kind < BENCH_KINDS; ++kind) bench_measure(&b, NULL, 1, (bench_kind)kind, memory);
    if (memopt_thread_pool_create(NULL, 2, &pool)) fprintf(stderr, "bench_scale: no pool, two threads left out\n");
    else {
        threads = memopt_thread_pool_threads(pool);
        for (kind = 0; kind < BENCH_KINDS; ++kind) bench_measure(&b, &threads, 2, (bench_kind)kind, memory);
        memopt_thread_pool_destroy(pool);
    }
    free(memory->to); free(memory->from); free(memory);
    return 0;
}
