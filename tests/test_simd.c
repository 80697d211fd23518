/* test_simd.c - the levels: which there are, what they are called, and that asking never gives more than there is. */
#include "test.h"
#if !defined(MEMOPT_I_X86_16) /* where products of bf16 have no level of their own */
#  define memopt_i_bf16_level memopt_i_lane_level
#endif

static void simd_best(void) { /* what was compiled in, and what the compiler's own runtime says of this processor */
    const int best = memopt_simd_best();
    CHECK(best >= MEMOPT_SIMD_SCALAR && best <= MEMOPT_SIMD_AMX);
    CHECK(best == memopt_simd_best());
#if defined(MEMOPT_NO_SIMD)
    CHECK(best == MEMOPT_SIMD_SCALAR);
#elif defined(__aarch64__) && !defined(__AARCH64EB__)
    CHECK(best == MEMOPT_SIMD_NEON);
#elif defined(__x86_64__) || (defined(__i386__) && defined(__SSE2__))
    CHECK(best != MEMOPT_SIMD_NEON);
    CHECK((best >= MEMOPT_SIMD_AVX2) == (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")));
#  if defined(MEMOPT_NO_AVX512)
    CHECK(best <= MEMOPT_SIMD_AVX2);
#  else
    CHECK((best >= MEMOPT_SIMD_AVX512) == (best >= MEMOPT_SIMD_AVX2 && __builtin_cpu_supports("avx512f")
          && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
          && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2")));
    CHECK((best >= MEMOPT_SIMD_AVX512_BF16) == (best >= MEMOPT_SIMD_AVX512 && __builtin_cpu_supports("avx512bf16")));
#  endif
#else
    CHECK(best == MEMOPT_SIMD_SCALAR);
#endif
}
static void simd_without(void) { /* each instruction set that a level needs */
#if defined(MEMOPT_I_LANES_EMULATED)
    static const struct { const char *set; int best; } cases[] = {
        { "avx2", MEMOPT_SIMD_SCALAR }, { "fma", MEMOPT_SIMD_SCALAR }, { "avx512bw", MEMOPT_SIMD_AVX2 }, { "avx512dq", MEMOPT_SIMD_AVX2 },
        { "avx512vl", MEMOPT_SIMD_AVX2 }, { "avx512vbmi", MEMOPT_SIMD_AVX2 }, { "avx512vbmi2", MEMOPT_SIMD_AVX2 }, { "avx512bf16", MEMOPT_SIMD_AVX512 } };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        lanes_without = cases[i].set;
        CHECK_AT(memopt_simd_best() == cases[i].best, i);
    }
    lanes_without = "";
    CHECK(memopt_simd_best() >= MEMOPT_SIMD_AVX512_BF16);
#endif
}
static void simd_dots(void) { /* a processor whose dot products add in another way counts as one without them */
#if defined(MEMOPT_I_LANES_EMULATED)
    const unsigned mode = _mm_getcsr(); memopt_threads t; int kind;
    memset(&t, 0, sizeof t);
    for (kind = 0; kind < LANES_DOTS_KINDS; ++kind) {
        const int level = kind ? MEMOPT_SIMD_AVX512 : MEMOPT_SIMD_AVX512_BF16;
        lanes_dots = kind;
        t.simd_level = MEMOPT_SIMD_AVX512_BF16;
        CHECK_AT(memopt_i_bf16_level(&t) == level, kind);
        CHECK_AT(memopt_simd_best() == level || memopt_simd_best() == MEMOPT_SIMD_AMX, kind);
        CHECK_AT(_mm_getcsr() == mode, kind);
        t.simd_level = MEMOPT_SIMD_AVX512; /* nobody asks what they add */
        lanes_dots_count = 0;
        CHECK_AT(memopt_i_bf16_level(&t) == MEMOPT_SIMD_AVX512 && memopt_i_lane_level(NULL) == MEMOPT_SIMD_AVX512_BF16 && !lanes_dots_count, kind);
    }
    lanes_dots = LANES_DOTS_AS_TOLD;
#else
    SKIP("not emulated: this processor's are asked in simd_best");
#endif
}
static void simd_slow_dots(void) { /* Intel's dot products are for who names them; what they add is asked all the same */
#if defined(MEMOPT_I_LANES_EMULATED)
    memopt_threads t;
    memset(&t, 0, sizeof t);
    lanes_maker = "intel";
#  if defined(MEMOPT_I_TILES_EMULATED)
    CHECK(memopt_i_bf16_level(NULL) == MEMOPT_SIMD_AMX);
    tiles_granted = 0;
#  endif
    CHECK(memopt_i_bf16_level(NULL) == MEMOPT_SIMD_AVX512 && memopt_i_bf16_level(&t) == MEMOPT_SIMD_AVX512);
    CHECK(memopt_simd_best() == MEMOPT_SIMD_AVX512_BF16);
    t.simd_level = 100;
    CHECK(memopt_i_bf16_level(&t) == MEMOPT_SIMD_AVX512 && memopt_i_lane_level(&t) == MEMOPT_SIMD_AVX512_BF16);
    t.simd_level = MEMOPT_SIMD_AVX512_BF16;
    CHECK(memopt_i_bf16_level(&t) == MEMOPT_SIMD_AVX512_BF16);
    lanes_dots = LANES_DOTS_LOW_FIRST;
    CHECK(memopt_i_bf16_level(&t) == MEMOPT_SIMD_AVX512);
    lanes_dots = LANES_DOTS_AS_TOLD;
    lanes_maker = "amd";
    CHECK(memopt_i_bf16_level(NULL) == memopt_simd_best());
#  if defined(MEMOPT_I_TILES_EMULATED)
    tiles_granted = 1;
#  endif
#else
    SKIP("not emulated: simd_level asks this processor's");
#endif
}
static void simd_tiles(void) { /* what the system says of the processor; it may still refuse */
#if defined(__linux__) && defined(MEMOPT_I_AMX) && !defined(MEMOPT_I_TILES_EMULATED)
    FILE *f = fopen("/proc/cpuinfo", "r"); char line[16384]; int there = 0;
    if (!f) { SKIP("no /proc/cpuinfo"); return; }
    while (!there && fgets(line, sizeof line, f)) there = strstr(line, " amx_bf16") && strstr(line, " amx_tile");
    fclose(f);
    CHECK(there || memopt_simd_best() < MEMOPT_SIMD_AMX);
    if (there && memopt_simd_best() < MEMOPT_SIMD_AMX) SKIP("the system does not grant the matrix units");
#else
    SKIP("compiled without matrix units");
#endif
}
static void simd_level(void) { /* 0 is the fastest; what is more than there is, or no level at all, is that as well */
    const int best = memopt_simd_best(); memopt_threads t; int asked;
    int fastest = best;
    memset(&t, 0, sizeof t);
#if defined(MEMOPT_I_X86_16)
    if (best == MEMOPT_SIMD_AVX512_BF16 && __builtin_cpu_is("intel")) fastest = MEMOPT_SIMD_AVX512;
#endif
    CHECK(memopt_i_bf16_level(NULL) == fastest && memopt_i_bf16_level(&t) == fastest);
    CHECK(memopt_i_lane_level(NULL) == (best < MEMOPT_SIMD_AVX512_BF16 ? best : MEMOPT_SIMD_AVX512_BF16)); /* without tiles */
    for (asked = 1; asked < 100; ++asked) {
        t.simd_level = asked;
        CHECK_AT(memopt_i_bf16_level(&t) == (asked <= best ? asked : fastest), asked);
        CHECK_AT(memopt_i_lane_level(&t) == (asked < memopt_i_lane_level(NULL) ? asked : memopt_i_lane_level(NULL)), asked);
    }
}
static void simd_text(void) {
    static const char *const names[] = { "scalar", "NEON", "AVX2", "AVX-512", "AVX-512 with BF16", "AVX-512 with BF16 and AMX" };
    int level, other;
    CHECK(MEMOPT_SIMD_SCALAR == 1 && MEMOPT_SIMD_SCALAR < MEMOPT_SIMD_NEON && MEMOPT_SIMD_NEON < MEMOPT_SIMD_AVX2);
    CHECK(MEMOPT_SIMD_AVX2 < MEMOPT_SIMD_AVX512 && MEMOPT_SIMD_AVX512 < MEMOPT_SIMD_AVX512_BF16 && MEMOPT_SIMD_AVX512_BF16 < MEMOPT_SIMD_AMX);
    for (level = 1; level <= 6; ++level) CHECK_AT(!strcmp(memopt_simd_text(level), names[level - 1]), level);
    for (other = -2; other < 9; ++other)
        if (other < 1 || other > 6) CHECK_AT(!strcmp(memopt_simd_text(other), "not a level of memopt"), other + 2);
}
static void test_simd(void) {
    RUN(simd_best); RUN(simd_without); RUN(simd_dots); RUN(simd_slow_dots);
    RUN(simd_tiles);
    RUN(simd_level);
    RUN(simd_text);
}
#ifndef TEST_COMBINED
int main(void) { test_simd(); return test_totals(); }
#endif
