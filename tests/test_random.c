/* test_random.c - Philox against the vectors its authors published; every level against it; distributions against what
   the mathematics says. The constants named "by another program" come from a few lines of Python that follow the text
   in the header. The statistics have fixed seeds: they pass or fail always. */
#include "test.h"

#if defined(TEST_LONG)
#  define RANDOM_N (1 << 22)
#else
#  define RANDOM_N (1 << 18)
#endif
static const double random_pi = 3.14159265358979323846;
static uint16_t random_noise16[2][RANDOM_N];
static float random_floats[RANDOM_N];

static memopt_threads random_level(int level) {
    memopt_threads t;
    memset(&t, 0, sizeof t);
    t.simd_level = level;
    return t;
}
static uint32_t random_word(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t words[4];
    memopt_i_philox(words, seed, stream, index >> 2);
    return words[index & 3];
}
static void random_known_answers(void) { /* Random123, kat_vectors, "philox4x32 10" */
    static const struct { uint64_t seed, stream, block; uint32_t words[4]; } known[] = {
        { 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e), UINT64_C(0x85a308d3243f6a88),
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } } };
    static const struct { uint64_t index; uint32_t word; } values[] = { /* by another program */
        { 0, 0x90aafdc4 }, { 1, 0x2d4a0d93 }, { 5, 0x6cadf41d }, { 1000003, 0xe861c6dd },
        { (UINT64_C(1) << 34) + 2, 0x22d001be }, { UINT64_MAX, 0x43fd111b } };
    uint32_t words[4]; size_t i; int level;
    for (i = 0; i < 3; ++i) {
        memopt_i_philox(words, known[i].seed, known[i].stream, known[i].block);
        CHECK_AT(!memcmp(words, known[i].words, sizeof words), i);
    }
    for (level = 1; level <= memopt_simd_best(); ++level) {
        const memopt_threads t = random_level(level);
        CHECK(memopt_random_bits(words, 4, 0, 0, 0, &t) == MEMOPT_OK && !memcmp(words, known[0].words, sizeof words));
        for (i = 0; i < sizeof values / sizeof *values; ++i) {
            CHECK(memopt_random_bits(words, 1, UINT64_C(0x123456789abcdef0), UINT64_C(0xfedcba9876543210), values[i].index,
                                     &t) == MEMOPT_OK);
            CHECK_AT(words[0] == values[i].word, i);
        }
    }
}
static uint32_t random_value(int kind, uint64_t seed, uint64_t stream, uint64_t index) { /* by scalar code, one alone */
    uint32_t words[2]; float both[2];
    words[0] = random_word(seed, stream, index & ~(uint64_t)1);
    words[1] = random_word(seed, stream, index | 1);
    if (kind == 0) return words[index & 1];
    if (kind == 1) return memopt_i_float_bits((float)ldexp((double)(words[index & 1] / 256), -24));
    memopt_i_v1_normal(both, words, 2);
    return memopt_i_float_bits(both[index & 1]);
}
static memopt_status random_make(int kind, float *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
                                 const memopt_threads *t) {
    if (kind == 0) return memopt_random_bits((uint32_t *)(void *)dst, n, seed, stream, first, t);
    return kind == 1 ? memopt_random_uniform(dst, n, seed, stream, first, t)
                     : memopt_random_normal(dst, n, seed, stream, first, t);
}
/* Any part of a stream: odd starts, every length, over the places where a counter carries, at every level. */
static void random_parts(void) {
#if defined(__FAST_MATH__)
    const int kinds = 2; /* under -ffast-math the scalar normals have other bits */
#else
    const int kinds = 3;
#endif
    static const uint64_t from[] = { 0, 1, 2, 3, 1001, (UINT64_C(1) << 34) - 9, (UINT64_C(1) << 63) + 5, UINT64_MAX - 20 };
    static float got[700]; static uint32_t wanted[700], bits[700]; size_t n, i, k; int level, kind;
    for (kind = 0; kind < kinds; ++kind)
        for (k = 0; k < sizeof from / sizeof *from; ++k) {
            const size_t most = k == 1 ? 600 : 90;
            for (i = 0; i < most; ++i) wanted[i] = random_value(kind, 7, k, from[k] + i);
            for (level = 1; level <= memopt_simd_best(); ++level) {
                const memopt_threads t = random_level(level);
                for (n = 0; n <= most; n += n < 40 ? 1 : 13) {
                    memset(got, 0xA5, sizeof got);
                    CHECK(random_make(kind, got + 1, n, 7, k, from[k], &t) == MEMOPT_OK);
                    memcpy(bits, got, sizeof bits); /* not as floats: some are signalling NaN */
                    for (i = 0; i < n; ++i) CHECK_AT(bits[i + 1] == wanted[i], i);
                    CHECK_AT(bits[0] == 0xA5A5A5A5 && bits[n + 1] == 0xA5A5A5A5, n);
                }
            }
        }
}
static void random_backwards(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    size_t i;
    (void)user;
    for (i = chunk_count; i-- > 0;) fn(task, i, (int)(i & 1));
}
static void random_workers(void) { /* chunks in any order, and as two calls */
    enum { N = 140001 };
    static float one[N], two[N]; memopt_threads t; int kind;
    memset(&t, 0, sizeof t); t.run_fn = random_backwards; t.worker_count = 2;
    for (kind = 0; kind < 3; ++kind) {
        CHECK(random_make(kind, one, N, 3, 4, 5, NULL) == MEMOPT_OK);
        CHECK(random_make(kind, two, N, 3, 4, 5, &t) == MEMOPT_OK);
        CHECK(!memcmp(one, two, sizeof one));
        CHECK(random_make(kind, two, 70001, 3, 4, 5, &t) == MEMOPT_OK);
        CHECK(random_make(kind, two + 70001, N - 70001, 3, 4, 5 + 70001, NULL) == MEMOPT_OK);
        CHECK(!memcmp(one, two, sizeof one));
    }
}
/* Words at the edges of every decision, and random ones: each level has the scalar bits, and those are close to what
   the C library says in doubles. */
static void random_normal_words(void) {
    static const uint32_t edges[] = { 0, 1, 2, 0xff, 0x100, 0x7fffffff, 0x80000000, 0x80000001, 0xb504f333, 0xb504f334,
        0xb504f300, 0x5a827999, 0x1fffffff, 0x20000000, 0x20000001, 0x3fffffff, 0x40000000, 0x5fffffff, 0x60000000,
        0x9fffffff, 0xa0000000, 0xbfffffff, 0xc0000000, 0xdfffffff, 0xe0000000, 0xffffff7f, 0xffffff80, 0xfffffffe, 0xffffffff };
    static const uint32_t golden[16] = { /* of seed 99, stream 7; by another program, in exact fractions rounded to floats */
        0x3e484c02, 0x3eb0bd4b, 0x3f8d1b7e, 0xbcb3f18c, 0x3e8a2bb6, 0x3ea35c48, 0xbfa3f005, 0xbf922e65,
        0xbef53597, 0xbe37ea5b, 0xbf47796b, 0xbe69374c, 0xbefd5ff6, 0x3ec82fc2, 0x3fb183df, 0xbf65c626 };
    enum { EDGES = sizeof edges / sizeof *edges, N = 4096 };
    static uint32_t words[N]; static float scalar[N], got[N]; uint64_t seed = 1; size_t i; int level;
    for (i = 0; i < N; ++i) {
        words[i] = (uint32_t)test_random(&seed) >> (i % 5 ? 0 : test_below(&seed, 32));
        if (i < 2 * EDGES) words[i] = edges[i & 1 ? i * 7 / 2 % EDGES : i / 2];
        else if (i < 4 * EDGES) words[i] = edges[i & 1 ? i / 2 % EDGES : i * 5 / 2 % EDGES];
    }
#if defined(__FAST_MATH__)
    SKIP("under -ffast-math the scalar normals have other bits");
    return;
#endif
    CHECK(memopt_random_normal(got, 16, 99, 7, 0, NULL) == MEMOPT_OK);
    for (i = 0; i < 16; ++i) CHECK_AT(memopt_i_float_bits(got[i]) == golden[i], i);
    memopt_i_v1_normal(scalar, words, N);
    for (i = 0; i < N; ++i) {
        const double u = ldexp((double)words[i & ~(size_t)1] + 0.5, -32), angle = ldexp(2 * random_pi * words[i | 1], -32);
        const double r = sqrt(-2 * log(u)), wanted = r * (i & 1 ? sin(angle) : cos(angle));
        /* u is rounded to a float, which steps by 2^-24 below 1; the radius feels it where it is small */
        CHECK_AT(fabs((double)scalar[i] - wanted) < 6e-7 * r + (r < 1e-3 ? 3.5e-4 : 3.1e-8 / r), i);
        CHECK_AT((memopt_i_float_bits(scalar[i]) & 0x7fffffff) < 0x40d9999a, i); /* below 6.8, so finite */
    }
    for (level = 1; level <= memopt_simd_best(); ++level) {
        MEMOPT_I_DISPATCH(level, normal, (got, words, N));
        for (i = 0; i < N; ++i) CHECK_AT(memopt_i_float_bits(got[i]) == memopt_i_float_bits(scalar[i]), i);
        MEMOPT_I_DISPATCH(level, uniform, (got, words, N));
        for (i = 0; i < N; ++i) CHECK_AT((double)got[i] == ldexp((double)(words[i] / 256), -24), i);
    }
}
static int random_compare(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}
/* The largest distance between the share of values below x and the probability of it, times sqrt(n): above 1.95 in one
   of 1000 cases. [Kolmogorov, Smirnov] */
static double random_distance(float *values, int normal) {
    double most = 0; size_t i;
    qsort(values, RANDOM_N, sizeof *values, random_compare);
    for (i = 0; i < RANDOM_N; ++i) {
        const double p = normal ? 0.5 * erfc(-(double)values[i] / sqrt(2.0)) : (double)values[i];
        const double above = (double)(i + 1) / RANDOM_N - p, below = p - (double)i / RANDOM_N;
        most = above > most ? above : most;
        most = below > most ? below : most;
    }
    return most * sqrt((double)RANDOM_N);
}
static void random_distributions(void) {
    uint64_t seed; double sum, squares, cubes, fourths, n = RANDOM_N; size_t i; int k;
    for (seed = 1; seed <= 2; ++seed) {
        if (test_is_passed_over()) continue;
        CHECK(memopt_random_uniform(random_floats, RANDOM_N, seed, 0, 0, NULL) == MEMOPT_OK);
        for (i = 0, sum = 0; i < RANDOM_N; ++i) {
            CHECK_AT(random_floats[i] >= 0 && random_floats[i] < 1, i);
            sum += (double)random_floats[i] - 0.5;
        }
        CHECK_AT(fabs(sum / sqrt(n / 12)) < 4, seed);
        CHECK_AT(random_distance(random_floats, 0) < 1.95, seed);
        CHECK(memopt_random_normal(random_floats, RANDOM_N, seed, 1, 0, NULL) == MEMOPT_OK);
        for (i = 0, sum = squares = cubes = fourths = 0; i < RANDOM_N; ++i) {
            const double x = (double)random_floats[i];
            sum += x; squares += x * x; cubes += x * x * x; fourths += x * x * x * x;
        }
        CHECK_AT(fabs(sum) < 4 * sqrt(n), seed);                   /* the deviations of these sums are */
        CHECK_AT(fabs(squares - n) < 4 * sqrt(2 * n), seed);       /* those of the moments of order 2, */
        CHECK_AT(fabs(cubes) < 4 * sqrt(15 * n), seed);            /* 4, 6 and 8: 1, 3 - 1, 15, 105 - 9 */
        CHECK_AT(fabs(fourths - 3 * n) < 4 * sqrt(96 * n), seed);
        for (i = 0, sum = 0; i + 1 < RANDOM_N; i += 2) sum += (double)random_floats[i] * (double)random_floats[i + 1];
        CHECK_AT(fabs(sum) < 4 * sqrt(n / 2), seed);               /* a pair is of one radius, and yet uncorrelated */
        for (k = 1; k <= 4; ++k) { /* tails */
            const double p = erfc(k / sqrt(2.0)); double count = 0;
            for (i = 0; i < RANDOM_N; ++i) count += fabs((double)random_floats[i]) > k;
            CHECK_AT(fabs(count - n * p) < 4.5 * sqrt(n * p * (1 - p)), k);
        }
        CHECK_AT(random_distance(random_floats, 1) < 1.95, seed);
    }
}

static void random_noise_values(void) { /* by another program */
    static const struct { uint64_t index; uint32_t bits; } values[] = {
        { 0, 0x1b7b9396 }, { 1, 0x0c4900e5 }, { 15, 0xbfbfa31a }, { 16, 0x93961b7b }, { 17, 0x00e50c49 }, { 31, 0xa31abfbf },
        { 32, 0xbc80bc21 }, { 1000003, 0x29089da3 }, { (UINT64_C(1) << 33) - 1, 0x517f3e30 }, { UINT64_C(1) << 33, 0xd7eff455 },
        { (UINT64_C(5) << 33) + 77, 0x15e5300b }, { UINT64_MAX, 0xae34e577 } };
    memopt_noise noise = memopt_noise_make(UINT64_C(0x123456789abcdef0), 42); size_t i;
    CHECK(noise.key[0] == 0xeda0b505 && noise.key[1] == 0x20b5dca0);
    for (i = 0; i < sizeof values / sizeof *values; ++i) {
        CHECK_AT(memopt_i_noise32(noise, values[i].index) == values[i].bits, i);
        CHECK_AT(memopt_i_noise16(noise, values[i].index) == values[i].bits >> 16, i);
    }
    CHECK(noise.shift == 0);
    noise.shift = 0x12345678;
    CHECK(memopt_i_noise32(noise, 0) == (0x1b7b9396u ^ 0x56781234u) && memopt_i_noise32(noise, 16) == (0x93961b7bu ^ 0x12345678u));
}
static void random_noise_fill(uint16_t *to, memopt_noise noise, uint64_t first, uint64_t step) {
    size_t i;
    for (i = 0; i < RANDOM_N; ++i) to[i] = (uint16_t)memopt_i_noise16(noise, first + i * step);
}
/* Correlation of a[i] with b[i + lag], in deviations of what chance gives. */
static double random_correlation(const uint16_t *a, const uint16_t *b, size_t lag) {
    double sum = 0; size_t i;
    for (i = 0; i + lag < RANDOM_N; ++i) sum += ((double)a[i] - 32767.5) * ((double)b[i + lag] - 32767.5);
    return sum / (sqrt((double)(RANDOM_N - lag)) * (65536.0 * 65536.0 - 1) / 12);
}
/* Pairs of the upper 6 bits in 4096 cells, as deviations from the mean of chi-square. */
static double random_cells(const uint16_t *a, const uint16_t *b, size_t lag, int shift) {
    static unsigned cells[4096]; const double expected = (double)(RANDOM_N - lag) / 4096; double chi = 0; size_t i;
    memset(cells, 0, sizeof cells);
    for (i = 0; i + lag < RANDOM_N; ++i) ++cells[(a[i] >> shift & 63) << 6 | (b[i + lag] >> shift & 63)];
    for (i = 0; i < 4096; ++i) chi += ((double)cells[i] - expected) * ((double)cells[i] - expected) / expected;
    return (chi - 4095) / sqrt(2 * 4095.0);
}
static void random_noise_one(const uint16_t *a, uint64_t at) { /* mean and every bit */
    double sum = 0, ones[16] = { 0 }, n = RANDOM_N; size_t i; int k;
    for (i = 0; i < RANDOM_N; ++i) {
        sum += (double)a[i] - 32767.5;
        for (k = 0; k < 16; ++k) ones[k] += a[i] >> k & 1;
    }
    CHECK_AT(fabs(sum) < 4 * sqrt(n * (65536.0 * 65536.0 - 1) / 12), at);
    for (k = 0; k < 16; ++k) CHECK_AT(fabs(ones[k] - n / 2) < 4.5 * sqrt(n / 4), at * 16 + (uint64_t)k);
}
static void random_noise_serial(void) { /* within a stream: lags to 64, in steps of 1 and of a matrix's row */
    static const uint64_t steps[] = { 1, 768, 4096 }; uint16_t *a = random_noise16[0]; size_t lag, k;
    for (k = 0; k < 3; ++k) {
        if (test_is_passed_over()) continue;
        random_noise_fill(a, memopt_noise_make(1, k), k == 1 ? (UINT64_C(1) << 33) - 100000 : 0, steps[k]);
        random_noise_one(a, k);
        for (lag = 1; lag <= 64; ++lag) CHECK_AT(fabs(random_correlation(a, a, lag)) < 4.5, lag);
        for (lag = 1; lag <= 64; lag += k ? 15 : lag < 17 && lag > 2 ? 7 : 1) {
            CHECK_AT(fabs(random_cells(a, a, lag, 10)) < 4.5, lag);
            CHECK_AT(fabs(random_cells(a, a, lag, 0)) < 4.5, lag);
        }
    }
}
static void random_noise_between(void) { /* neighbouring streams and seeds, at the same index and at the next ones */
    uint16_t *a = random_noise16[0], *b = random_noise16[1]; uint64_t k; size_t lag;
    for (k = 0; k < 12; ++k) {
        if (test_is_passed_over()) continue;
        random_noise_fill(a, memopt_noise_make(5, 0), 0, 1);
        random_noise_fill(b, k < 8 ? memopt_noise_make(5, (uint64_t)1 << k) : memopt_noise_make(5 + k, 0), 0, 1);
        random_noise_one(b, k);
        CHECK_AT(fabs(random_cells(a, b, 0, 10)) < 4.5, k);
        for (lag = 0; lag < 4; ++lag) CHECK_AT(fabs(random_correlation(a, b, lag)) < 4.5, k * 4 + lag);
        for (lag = 16; lag <= 64; lag += 16) CHECK_AT(fabs(random_correlation(a, b, lag)) < 4.5, k * 64 + lag);
    }
    for (k = 0; k < 3; ++k) { /* one index over the streams of a run: a weight's own history */
        for (lag = 0; lag < RANDOM_N / 8; ++lag) a[lag] = (uint16_t)memopt_i_noise16(memopt_noise_make(3, lag), 1000 * k);
        for (; lag < RANDOM_N; ++lag) a[lag] = (uint16_t)memopt_i_noise16(memopt_noise_make(3, lag), 7 + lag % 2);
        random_noise_one(a, 100 + k);
        for (lag = 1; lag <= 8; ++lag) CHECK_AT(fabs(random_correlation(a, a, lag)) < 4.5, lag);
    }
}
static void random_noise_halves(void) { /* the two halves of a lane, and one place in neighbouring groups of 2^33 */
    const memopt_noise noise = memopt_noise_make(8, 9); uint16_t *a = random_noise16[0], *b = random_noise16[1]; size_t i;
    for (i = 0; i < RANDOM_N; ++i) {
        a[i] = (uint16_t)memopt_i_noise16(noise, (i >> 4 << 5) + (i & 15));
        b[i] = (uint16_t)memopt_i_noise16(noise, (i >> 4 << 5) + (i & 15) + 16);
    }
    CHECK(fabs(random_correlation(a, b, 0)) < 4.5 && fabs(random_cells(a, b, 0, 10)) < 4.5);
    CHECK(fabs(random_cells(a, b, 0, 0)) < 4.5);
    random_noise_fill(b, noise, UINT64_C(1) << 33, 1);
    random_noise_fill(a, noise, 0, 1);
    CHECK(fabs(random_correlation(a, b, 0)) < 4.5 && fabs(random_cells(a, b, 0, 10)) < 4.5);
}
static void random_bad(void) {
    static uint32_t x[8]; memopt_threads half; float *f = (float *)(void *)((unsigned char *)x + 1); size_t i;
    memset(&half, 0, sizeof half); half.worker_count = 2;
    memset(x, 0xA5, sizeof x);
    CHECK(memopt_random_bits(NULL, 1, 0, 0, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_random_bits(NULL, 0, 0, 0, 0, NULL) == MEMOPT_OK);
    CHECK(memopt_random_uniform(f, 1, 0, 0, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_random_normal(f, 1, 0, 0, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_random_bits(x, 8, 0, 0, 0, &half) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_random_bits(x, SIZE_MAX / 4 + 1, 0, 0, 0, NULL) == MEMOPT_ERR_OVERFLOW);
    for (i = 0; i < 8; ++i) CHECK_AT(x[i] == 0xA5A5A5A5, i);
}
static void test_random_section(void) { /* test_random() makes the numbers of all tests */
    RUN(random_known_answers);
    RUN(random_parts);
    RUN(random_workers);
    RUN(random_normal_words);
    RUN(random_distributions);
    RUN(random_noise_values);
    RUN(random_noise_serial);
    RUN(random_noise_between);
    RUN(random_noise_halves);
    RUN(random_bad);
}
#ifndef TEST_COMBINED
int main(void) { test_random_section(); return test_totals(); }
#endif
