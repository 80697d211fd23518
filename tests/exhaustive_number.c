/* exhaustive_number.c - every conversion of all 2^32 floats (nearest, saturating too, split and join), at every level
   of this machine, against the formats' definition: the ties between the values of neighbouring codes, as doubles, in
   ascending order, and a float goes where it lies among them. Uses the pool where it is compiled in
   (-DMEMOPT_PTHREADS -pthread). Prints progress; about 4 minutes on two threads at -O2. Exit status: 0, all is equal.
   An argument N tests only every N-th block of 64 Ki floats. */
#include "test.h"

enum { EXHAUSTIVE_BLOCK = 1 << 16, EXHAUSTIVE_KINDS = 6 };
typedef struct exhaustive_format {
    const char *name;
    int bits, bias, bytes;
    unsigned most, over, quiet; /* codes: the largest, what is beyond, a NaN */
    int nan_bits, which, saturate;
} exhaustive_format;
static const exhaustive_format exhaustive_formats[EXHAUSTIVE_KINDS] = {
    { "bf16", 7, 127, 2, 0x7f7f, 0x7f80, 0x7fc0, 7, 0, 0 }, { "f16", 10, 15, 2, 0x7bff, 0x7c00, 0x7e00, 10, 1, 0 },
    { "e4m3", 3, 7, 1, 0x7e, 0x7f, 0x7f, 0, 2, 0 }, { "e4m3, saturating", 3, 7, 1, 0x7e, 0x7e, 0x7f, 0, 2, 1 },
    { "e5m2", 2, 15, 1, 0x7b, 0x7c, 0x7e, 2, 3, 0 }, { "e5m2, saturating", 2, 15, 1, 0x7b, 0x7b, 0x7e, 2, 3, 1 } };
static double exhaustive_ties[EXHAUSTIVE_KINDS][0x7f81]; /* between a code and the next; the last one is infinite */
static double exhaustive_value(const exhaustive_format *f, unsigned code) {
    const int e = (int)(code >> f->bits), full = 1 << f->bits, m = (int)code & (full - 1);
    return ldexp(e ? full + m : m, (e ? e : 1) - f->bias - f->bits);
}
typedef struct exhaustive_work { /* of one worker */
    float src[EXHAUSTIVE_BLOCK], back[EXHAUSTIVE_BLOCK];
    uint16_t wanted[EXHAUSTIVE_BLOCK], got[EXHAUSTIVE_BLOCK], low[EXHAUSTIVE_BLOCK];
    uint64_t failures; size_t done;
} exhaustive_work;
typedef struct exhaustive_task { exhaustive_work *work; size_t every; uint64_t start; } exhaustive_task;

static void exhaustive_expect(const exhaustive_format *f, const double *ties, const float *src, uint32_t sign, uint16_t *wanted) {
    uint8_t *narrow = (uint8_t *)wanted; unsigned code = 0, high; size_t i;
    const double first = fabs((double)src[0]); /* magnitudes ascend in a block: one search, then a walk */
    for (high = f->most + 1; code < high;) {
        const unsigned middle = code + (high - code) / 2;
        if (first > ties[middle]) code = middle + 1;
        else high = middle;
    }
    for (i = 0; i < EXHAUSTIVE_BLOCK; ++i) {
        const double x = fabs((double)src[i]); unsigned result;
        while (x > ties[code]) ++code;
        result = code + (x == ties[code] && code & 1);
        if (result > f->most) result = f->over;
        if (f->bytes == 2) wanted[i] = (uint16_t)(result | sign << 15);
        else narrow[i] = (uint8_t)(result | sign << 7);
    }
}
static void exhaustive_expect_nan(const exhaustive_format *f, uint32_t first, uint16_t *wanted) { /* infinity at the start */
    uint8_t *narrow = (uint8_t *)wanted; size_t i; const uint32_t sign = first >> 31;
    for (i = 0; i < EXHAUSTIVE_BLOCK; ++i) {
        const uint32_t u = (first & 0x7fffffff) + (uint32_t)i;
        const uint32_t result = u == 0x7f800000 ? f->over : f->quiet | (u & 0x7fffff) >> (23 - f->nan_bits);
        if (f->bytes == 2) wanted[i] = (uint16_t)(result | sign << 15);
        else narrow[i] = (uint8_t)(result | sign << 7);
    }
}
static memopt_status exhaustive_narrow(const exhaustive_format *f, uint16_t *dst, const float *src, const memopt_threads *t) {
    switch (f->which) {
    case 0: return memopt_bf16_from_f32(dst, src, EXHAUSTIVE_BLOCK, t);
    case 1: return memopt_f16_from_f32(dst, src, EXHAUSTIVE_BLOCK, t);
    case 2: return memopt_e4m3_from_f32((uint8_t *)dst, src, EXHAUSTIVE_BLOCK, f->saturate, t);
    default: return memopt_e5m2_from_f32((uint8_t *)dst, src, EXHAUSTIVE_BLOCK, f->saturate, t);
    }
}
static uint64_t exhaustive_wrong(const char *what, int level, uint32_t first, size_t i) {
    printf("\nWRONG: %s, %s, float %08lx\n", what, memopt_simd_text(level), (unsigned long)(first + (uint32_t)i));
    fflush(stdout);
    return 1;
}
/* The high half is the bf16 whose value is nearest, of two the larger; NaN is NaN where its upper mantissa has a bit. */
static uint64_t exhaustive_split(exhaustive_work *w, const memopt_threads *t, uint32_t first) {
    size_t i; const uint32_t sign = first >> 31; const int nan = (first & 0x7fffffff) >= 0x7f800000;
    if (memopt_f32_split(w->got, w->low, w->src, EXHAUSTIVE_BLOCK, t)) return 1;
    if (memopt_f32_join(w->back, w->got, w->low, EXHAUSTIVE_BLOCK, t)) return 1;
    if (memcmp(w->back, w->src, sizeof w->src)) return exhaustive_wrong("join", t->simd_level, first, 0);
    for (i = 0; i < EXHAUSTIVE_BLOCK; ++i) {
        const unsigned high = w->got[i]; const uint32_t u = first + (uint32_t)i;
        if (nan) {
            if ((u & 0x7fffffff) < 0x7f810000 ? (high & 0x7fff) != (u & 0x8000 ? 0u : 0x7f80u)
                                              : (high & 0x7fff) <= 0x7f80 || high >> 15 != sign)
                return exhaustive_wrong("split, NaN", t->simd_level, first, i);
        } else {
            const double x = fabs((double)w->src[i]), *ties = exhaustive_ties[0]; const unsigned code = high & 0x7fff;
            if (high >> 15 != sign || code > 0x7f80 || x >= ties[code] || (code && x < ties[code - 1]))
                return exhaustive_wrong("split", t->simd_level, first, i);
        }
    }
    return 0;
}
static void exhaustive_block(void *task, size_t chunk, int worker) {
    exhaustive_task *task_of = (exhaustive_task *)task; exhaustive_work *w = task_of->work + worker; int level, k; size_t i;
    const uint32_t first = (uint32_t)chunk << 16; uint64_t *failures = &w->failures;
    memopt_threads t; memset(&t, 0, sizeof t);
    if (chunk % task_of->every && (first & 0x7fffffff) < 0x7f000000 && (first & 0x7fffffff) >= 0x01000000) return;
    for (i = 0; i < EXHAUSTIVE_BLOCK; ++i) w->src[i] = memopt_i_bits_float(first + (uint32_t)i);
    for (k = 0; k < EXHAUSTIVE_KINDS; ++k) {
        const exhaustive_format *f = exhaustive_formats + k; const size_t bytes = (size_t)f->bytes;
        if ((first & 0x7fffffff) >= 0x7f800000) exhaustive_expect_nan(f, first, w->wanted);
        else exhaustive_expect(f, exhaustive_ties[k], w->src, first >> 31, w->wanted);
        for (level = 1; level <= memopt_simd_best(); ++level) {
            if (level == MEMOPT_SIMD_NEON && level < memopt_simd_best()) continue; /* scalar once more */
            t.simd_level = level;
            if (exhaustive_narrow(f, w->got, w->src, &t)) ++*failures;
            if (!memcmp(w->got, w->wanted, EXHAUSTIVE_BLOCK * bytes)) continue;
            for (i = 0; !memcmp((unsigned char *)w->got + i * bytes, (unsigned char *)w->wanted + i * bytes, bytes);) ++i;
            if (*failures < 20) *failures += exhaustive_wrong(f->name, level, first, i);
        }
    }
    for (level = 1; level <= memopt_simd_best(); ++level) {
        if (level == MEMOPT_SIMD_NEON && level < memopt_simd_best()) continue;
        t.simd_level = level;
        if (*failures < 20) *failures += exhaustive_split(w, &t, first);
    }
    if (++w->done % 256 == 0 && worker == 0) {
        const double done = (double)(chunk + 1) / 65536; uint64_t now = 0;
        (void)memopt_i_system_now(NULL, &now); /* chunks come in order */
        printf("%3.0f%%, about %.0f s left   \r", 100 * done, (double)(now - task_of->start) * 1e-9 * (1 - done) / done);
        fflush(stdout);
    }
}
int main(int argc, char **argv) {
    static exhaustive_task task; memopt_threads t; memopt_thread_pool *pool = NULL; int k, workers = 2; unsigned code; uint64_t failures = 0;
    memset(&t, 0, sizeof t);
    task.every = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 1;
    if (!task.every) { fprintf(stderr, "exhaustive_number [N]: N is at least 1\n"); return 1; }
    for (k = 0; k < EXHAUSTIVE_KINDS; ++k)
        for (code = 0; code <= exhaustive_formats[k].most + 1; ++code)
            exhaustive_ties[k][code] = code > exhaustive_formats[k].most ? HUGE_VAL
                : 0.5 * (exhaustive_value(exhaustive_formats + k, code) + exhaustive_value(exhaustive_formats + k, code + 1));
    if (memopt_thread_pool_create(NULL, workers, &pool)) workers = 1;
    else t = memopt_thread_pool_threads(pool);
    task.work = (exhaustive_work *)calloc((size_t)workers, sizeof *task.work);
    if (!task.work || memopt_i_system_now(NULL, &task.start)) { fprintf(stderr, "exhaustive_number: no memory, or no clock\n"); return 1; }
    memopt_i_parallel_for(&t, 65536, exhaustive_block, &task);
    for (k = 0; k < workers; ++k) failures += task.work[k].failures;
    printf("every %lu-th block of the 2^32 floats, levels up to %s: %s\n", (unsigned long)task.every,
           memopt_simd_text(memopt_simd_best()), failures ? "FAILED" : "all equal");
    memopt_thread_pool_destroy(pool);
    free(task.work);
    return failures != 0;
}
