/* test_fp8.c - matrices as 8-bit floats. A code is asked of its definition: of all codes the nearest, of two that are
   equally near the even one, with x / scale in double; the scale is the smallest power of two that will do. */
#include "test.h"

static double fp8_value(memopt_fp8_format format, unsigned code) {
    return (double)(format == MEMOPT_FP8_E4M3 ? memopt_from_e4m3((uint8_t)code) : memopt_from_e5m2((uint8_t)code));
}
/* What a code must be; any NaN is any other */
static int fp8_is(memopt_fp8_format format, float x, double scale, unsigned code) {
    const double want = (double)x / scale, got = fp8_value(format, code), largest = format == MEMOPT_FP8_E4M3 ? 448 : 57344; unsigned other;
    if (x != x || (fabs((double)x) > 3.5e38 && format == MEMOPT_FP8_E4M3)) return got != got;
    if (fabs((double)x) > 3.5e38) return got == (double)x;
    if (fabs(want) >= largest) return fabs(got) == largest && (got > 0) == (want > 0);
    if (!(fabs(got) <= largest)) return 0;
    if (got == 0 && (code >> 7) != (unsigned)(memopt_i_float_bits(x) >> 31)) return 0;
    for (other = 0; other < 256; ++other) {
        const double d = fabs(fp8_value(format, other) - want), mine = fabs(got - want);
        if (fabs(fp8_value(format, other)) <= largest && (d < mine || (d == mine && (code & 1) && !(other & 1) && fp8_value(format, other) != got))) return 0;
    }
    return 1;
}
static float fp8_any(uint64_t *seed, int hard) {
    static const uint32_t odd[] = { 0x7fc00000u, 0xff800000u, 0x7f800000u, 0x80000000u, 0u, 1u, 0x3f880000u, 0x3f980000u, 0xbf900000u, 0x3b000000u };
    const uint64_t r = test_random(seed);
    if (hard && r % 5 == 0) return memopt_i_bits_float(odd[r / 5 % (sizeof odd / sizeof *odd)]);
    return ((float)(r >> 40) * (1.0f / 8388608.0f) - 1.0f) * (r & 64 ? 3.0f : r & 128 ? 0.001f : 100.0f);
}
static void fp8_fill(void *to, memopt_type type, size_t n, uint64_t seed, int hard, float factor) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const float x = fp8_any(&seed, hard) * factor;
        if (type == MEMOPT_TYPE_F32) ((float *)to)[i] = x; else ((uint16_t *)to)[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
    }
}
static float fp8_at(const void *from, memopt_type type, size_t i) {
    return type == MEMOPT_TYPE_F32 ? ((const float *)from)[i] : type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(((const uint16_t *)from)[i]) : memopt_from_f16(((const uint16_t *)from)[i]);
}
static double fp8_amax(const void *from, memopt_type type, size_t n) {
    double most = 0; size_t i;
    for (i = 0; i < n; ++i) { const double x = fabs((double)fp8_at(from, type, i)); if (x <= 3.5e38 && x > most) most = x; }
    return most;
}
static int fp8_smallest(double scale, double amax, memopt_fp8_format format) {
    const double largest = format == MEMOPT_FP8_E4M3 ? 448 : 57344; int e;
    if (frexp(scale, &e) != 0.5) return 0;
    return amax == 0 ? scale == 1 : amax <= scale * largest && (amax > scale / 2 * largest || scale == ldexp(1, -100));
}
static void fp8_current(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 3, 5 }, { 64, 64 }, { 65, 63 }, { 130, 200 }, { 1, 300 }, { 300, 1 } };
    int k, type, format, hard; size_t i, j;
    for (k = 0; k < 7; ++k) for (type = 0; type < 3; ++type) for (format = 0; format < 2; ++format) for (hard = 0; hard < 2; ++hard) {
        const size_t rows = shapes[k][0], columns = shapes[k][1], n = rows * columns; memopt_fp8 x; memopt_fp8_scale scale;
        float *in; uint8_t *codes, *transposed;
        if (test_is_passed_over()) continue;
        in = (float *)malloc(n * 4 + 4); codes = (uint8_t *)malloc(n + 1); transposed = (uint8_t *)malloc(n + 1);
        fp8_fill(in, (memopt_type)type, n, 3 + (uint64_t)k, hard, k % 2 ? 1e-3f : 30.0f);
        memset(&x, 0, sizeof x); memset(&scale, 0, sizeof scale);
        x.rows = rows; x.columns = columns; x.type = (memopt_type)type; x.format = (memopt_fp8_format)format; x.input = in; x.codes = codes; x.transposed = transposed; x.scale = &scale;
        codes[n] = transposed[n] = 0xA5;
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK);
        CHECK_AT(fp8_smallest((double)scale.scale, fp8_amax(in, x.type, n), x.format) && (double)scale.amax == fp8_amax(in, x.type, n) && scale.count == 1, k);
        for (i = 0; i < rows; ++i) for (j = 0; j < columns; ++j) {
            CHECK_AT(fp8_is(x.format, fp8_at(in, x.type, i * columns + j), (double)scale.scale, codes[i * columns + j]), i * columns + j);
            CHECK_AT(transposed[j * rows + i] == codes[i * columns + j], i * columns + j);
        }
        CHECK(codes[n] == 0xA5 && transposed[n] == 0xA5);
        memset(codes, 0, n);
        x.transposed = NULL; /* one alone gives the same */
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK);
        for (i = 0; i < rows; ++i) for (j = 0; j < columns; ++j) CHECK_AT(transposed[j * rows + i] == codes[i * columns + j], j);
        free(in); free(codes); free(transposed);
    }
}
static void fp8_delayed(void) { /* the scale is that of the 16 before; what is larger is the largest */
    enum { N = 70, STEPS = 40 };
    float in[N]; uint8_t codes[N]; double amax[STEPS]; memopt_fp8 x; memopt_fp8_scale scale; int t, k, i;
    memset(&x, 0, sizeof x); memset(&scale, 0, sizeof scale);
    x.rows = 7; x.columns = 10; x.input = in; x.codes = codes; x.scale = &scale; x.delayed = 1;
    for (t = 0; t < STEPS; ++t) {
        double basis = 0;
        fp8_fill(in, MEMOPT_TYPE_F32, N, 100 + (uint64_t)t, t % 3 == 0, t == 3 ? 1000.0f : t > 25 ? 0.01f : 1.0f);
        amax[t] = fp8_amax(in, MEMOPT_TYPE_F32, N);
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK);
        for (k = t > 16 ? t - 16 : 0; k < t; ++k) if (amax[k] > basis) basis = amax[k];
        CHECK_AT(fp8_smallest((double)scale.scale, t ? basis : amax[0], x.format) && (double)scale.amax == amax[t], t);
        for (i = 0; i < N; ++i) CHECK_AT(fp8_is(x.format, in[i], (double)scale.scale, codes[i]), t * 100 + i);
    }
    x.delayed = 0; /* and from now on by its own again */
    CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && fp8_smallest((double)scale.scale, amax[STEPS - 1], x.format));
    memset(in, 0, sizeof in);
    CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == 1 && scale.amax == 0);
    in[5] = 1e-38f;
    CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == (float)ldexp(1, -100) && codes[4] == 0);
    in[5] = 3.4e38f;
    CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && fp8_smallest((double)scale.scale, (double)3.4e38f, x.format) && fp8_is(x.format, in[5], (double)scale.scale, codes[5]));
}
static void fp8_run_backwards(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    size_t i;
    (void)user;
    for (i = chunk_count; i-- > 0;) fn(task, i, (int)(i % 3));
}
/* Where a scale ends below; matrices without a magnitude. */
static void fp8_smallest_scales(void) {
    const float least = memopt_i_bits_float((127 - 100) << 23), half[2] = { (float)ldexp(1, -110), (float)ldexp(1, -117) }; int format;
    for (format = 0; format < 2; ++format) {
        const float largest = format ? 57344.0f : 448.0f; float in[6]; uint8_t codes[6]; memopt_fp8 x; memopt_fp8_scale scale; int i;
        memset(&x, 0, sizeof x); memset(&scale, 0, sizeof scale); memset(in, 0, sizeof in);
        x.rows = 2; x.columns = 3; x.type = MEMOPT_TYPE_F32; x.format = (memopt_fp8_format)format; x.input = in; x.codes = codes; x.scale = &scale;
        for (i = 0; i < 4; ++i) { /* zeros, nothing finite, no rows: the scale is 1 */
            in[0] = memopt_i_bits_float(i == 1 ? 0x7f800000u : i == 2 ? 0x7fc00000u : 0); in[1] = -0.0f; x.rows = i == 3 ? 0 : 2;
            CHECK_AT(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == 1 && memopt_i_float_bits(scale.amax) == 0, i);
            CHECK_AT(codes[1] == 0x80 && codes[2] == 0, i);
        }
        x.rows = 2; in[0] = largest * least; /* the largest that this one holds: two below, one above */
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == least && codes[0] == (format ? 0x7b : 0x7e));
        in[0] = memopt_i_bits_float(memopt_i_float_bits(in[0]) + 1);
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == 2 * least);
        in[0] = largest / 4 * least;
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == least && codes[0] == (format ? 0x73 : 0x6e));
        in[0] = half[format]; in[1] = memopt_i_bits_float(memopt_i_float_bits(half[format]) + 1); in[2] = 1e-45f;
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == least && codes[0] == 0 && codes[1] == 1 && codes[2] == 0);
        x.delayed = 1; memset(&scale, 0, sizeof scale); memset(in, 0, sizeof in); /* only zeros so far, then small ones */
        for (i = 0; i < 3; ++i) CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == 1);
        in[0] = 1e-6f;
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.scale == 1 && codes[0] == 0);
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && fp8_smallest((double)scale.scale, (double)in[0], x.format) && codes[0] > 0x60);
        memset(&scale, 0, sizeof scale);
        CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && fp8_smallest((double)scale.scale, (double)in[0], x.format) && codes[0] > 0x60);
    }
}
static void fp8_workers(void) { /* more chunks than rows of tiles, and any workers: the same */
    enum { ROWS = 20000, COLUMNS = 3 };
    static float in[ROWS * COLUMNS]; static uint8_t a[ROWS * COLUMNS], b[ROWS * COLUMNS], ta[ROWS * COLUMNS], tb[ROWS * COLUMNS];
    memopt_fp8 x; memopt_fp8_scale one, many; int workers;
    fp8_fill(in, MEMOPT_TYPE_F32, ROWS * COLUMNS, 5, 1, 1);
    memset(&x, 0, sizeof x); memset(&one, 0, sizeof one);
    x.rows = ROWS; x.columns = COLUMNS; x.input = in; x.codes = a; x.transposed = ta; x.scale = &one; x.format = MEMOPT_FP8_E5M2;
    CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK);
    CHECK((double)one.amax == fp8_amax(in, MEMOPT_TYPE_F32, ROWS * COLUMNS));
    for (workers = 0; workers < 2; ++workers) {
        memopt_threads threads;
        memset(&threads, 0, sizeof threads);
        threads.run_fn = fp8_run_backwards; threads.worker_count = 3;
        memset(&many, 0, sizeof many); memset(b, 0, sizeof b); memset(tb, 0, sizeof tb);
        x.codes = b; x.transposed = tb; x.scale = &many;
        CHECK(memopt_fp8_quantize(&x, &threads) == MEMOPT_OK);
        CHECK(!memcmp(a, b, sizeof a) && !memcmp(ta, tb, sizeof ta) && !memcmp(&one, &many, sizeof one));
    }
}
static void fp8_count_runs(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    (void)chunk_count; (void)fn; (void)task;
    ++*(int *)user;
}
static void fp8_refused(void) {
    float in[32]; uint8_t codes[64]; memopt_fp8_scale scale; memopt_fp8 good, x; memopt_threads half; int runs = 0;
    memset(&good, 0, sizeof good); memset(&scale, 0, sizeof scale); memset(in, 0, sizeof in); memset(&half, 0, sizeof half);
    half.worker_count = -3;
    good.rows = 4; good.columns = 8; good.input = in; good.codes = codes; good.transposed = codes + 32; good.scale = &scale;
#define REFUSED(change, status) do { x = good; change; CHECK(memopt_fp8_quantize(&x, NULL) == (status)); CHECK(scale.count == 0); } while (0)
    CHECK(memopt_fp8_quantize(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_fp8_quantize(&good, &half) == MEMOPT_ERR_ARGUMENT && scale.count == 0);
    REFUSED(x.input = NULL, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.scale = NULL, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    REFUSED(memset(&x.format, 2, 1), MEMOPT_ERR_ARGUMENT);
    REFUSED(x.delayed = 2, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.input = (const char *)in + 1, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.codes = (uint8_t *)in + 5, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.transposed = (uint8_t *)in + 5, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.transposed = codes + 31, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.codes = (uint8_t *)&scale, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.transposed = (uint8_t *)&scale + 3, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.scale = (memopt_fp8_scale *)(void *)in, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.rows = SIZE_MAX / 2, MEMOPT_ERR_OVERFLOW);
#undef REFUSED
    x = good; x.rows = 0; x.input = NULL;
    CHECK(memopt_fp8_quantize(&x, NULL) == MEMOPT_OK && scale.count == 1 && scale.scale == 1);
    x.rows = SIZE_MAX; x.columns = 0; half.run_fn = fp8_count_runs; half.user = &runs; half.worker_count = 1; /* nobody walks through so many empty rows */
    CHECK(memopt_fp8_quantize(&x, &half) == MEMOPT_OK && runs == 0 && scale.count == 2 && scale.scale == 1);
}
static void test_fp8(void) {
    RUN(fp8_current);
    RUN(fp8_delayed);
    RUN(fp8_smallest_scales);
    RUN(fp8_workers);
    RUN(fp8_refused);
}
#ifndef TEST_COMBINED
int main(void) { test_fp8(); return test_totals(); }
#endif
