/* test_row_kernels.c - what operators do to a row of floats. exp and the activations are compared with the C library's
   in double, sums with the order that the section promises, written down once more; every level with every other. */
#include "test.h"

#define ROWS_N 300
static float rows_bits(uint32_t u) { return memopt_i_bits_float(u); }
static int rows_is_nan(float x) { return (memopt_i_float_bits(x) & 0x7fffffffu) > 0x7f800000u; }
static int rows_same(float a, float b) { /* to the bit; a NaN is a NaN */
    return memopt_i_float_bits(a) == memopt_i_float_bits(b) || (rows_is_nan(a) && rows_is_nan(b));
}
static int rows_all_same(const float *a, const float *b, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) if (!rows_same(a[i], b[i])) return 0;
    return 1;
}
static float rows_float(double x) { volatile float y = (float)x; return y; } /* as a float, also by an x87 */
/* The distance from the exact value in units of the last place of a float of that size. */
static double rows_units(float x, double exact) {
    int exponent;
    if (exact == 0) return x == 0 ? 0 : 1e9;
    (void)frexp(exact, &exponent);
    return fabs((double)x - exact) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}
/* Numbers as they come, and what is special. */
static float rows_random(uint64_t *seed, int special) {
    const uint64_t r = test_random(seed); const uint32_t mantissa = (uint32_t)r & 0x807fffffu;
    const unsigned kind = (unsigned)(r >> 40) % 32;
    if (kind == 0) return rows_bits((uint32_t)r & 0x80000000u);
    if (kind == 1) return rows_bits(mantissa);
    if (kind == 2) return rows_bits(mantissa | 0x42000000u); /* 32 to 64 */
    if (kind == 3 && special) return rows_bits(((uint32_t)r & 0x80000000u) | 0x7f800000u);
    if (kind == 4 && special) return rows_bits(0x7fc00000u);
    return rows_bits(mantissa | (uint32_t)(0x3b + (r >> 32 & 3) + (r >> 34 & 1)) << 24);
}

/* ---- exp ---- */
#define ROWS_EXP(R, SET)                                                                     \
    SET static void R##rows_exp(float *y, const float *x) {                                  \
        R##write(y, R##exp(R##read(x, 16)), 16);                                             \
    }
#if defined(MEMOPT_I_X86)
ROWS_EXP(memopt_i_r8_, MEMOPT_I_AVX2)
#  if defined(MEMOPT_I_X86_16)
ROWS_EXP(memopt_i_v16_, MEMOPT_I_AVX512)
#  endif
#elif defined(MEMOPT_I_NEON)
ROWS_EXP(memopt_i_r4_, )
#endif
static void rows_exp_at(int level, float *y, const float *x, size_t n) {
    float padded[16] = { 0 }; size_t i, k;
    for (i = 0; i < n; i += k) {
        k = n - i < 16 ? n - i : 16;
        memcpy(padded, x + i, k * sizeof *x);
#if defined(MEMOPT_I_X86_16)
        if (level >= MEMOPT_SIMD_AVX512) memopt_i_v16_rows_exp(padded, padded);
        else
#endif
#if defined(MEMOPT_I_X86)
        if (level >= MEMOPT_SIMD_AVX2) memopt_i_r8_rows_exp(padded, padded);
        else
#elif defined(MEMOPT_I_NEON)
        if (level >= MEMOPT_SIMD_NEON) memopt_i_r4_rows_exp(padded, padded);
        else
#endif
        for (k = 0; k < 16; ++k) padded[k] = memopt_i_v1_exp(padded[k]);
        k = n - i < 16 ? n - i : 16;
        memcpy(y + i, padded, k * sizeof *y);
    }
    memopt_i_wide_end(level);
}
static void rows_exp_is_exact(void) {
    static float x[4096], y[4096], plain[4096]; double worst = 0; const int best = memopt_simd_best(); uint64_t seed = 1;
    uint32_t exponent, sign; size_t i;
    for (sign = 0; sign < 2; ++sign)
        for (exponent = 0; exponent < 255; ++exponent) {
            const size_t n = exponent < 100 ? 64 : 4096; /* what is below 2^-27 is all the same */
            for (i = 0; i < n; ++i) x[i] = rows_bits(sign << 31 | exponent << 23 | ((uint32_t)test_random(&seed) & 0x7fffffu));
            x[0] = rows_bits(sign << 31 | exponent << 23); x[1] = rows_bits(sign << 31 | exponent << 23 | 0x7fffffu);
            rows_exp_at(best, y, x, n);
            rows_exp_at(MEMOPT_SIMD_SCALAR, plain, x, n);
            CHECK_AT(rows_all_same(y, plain, n), exponent);
            for (i = 0; i < n; ++i) {
                const double exact = exp((double)x[i]);
                double units;
                if (exact >= 3.4028235677973366e38) { CHECK_AT(y[i] > 3.4028234e38f, memopt_i_float_bits(x[i])); continue; }
                units = rows_units(y[i], exact);
                CHECK_AT(units < 0.88 || (exact < 1e-45 && y[i] == 0), memopt_i_float_bits(x[i]));
                if (exact > 1e-45 && units > worst) worst = units;
            }
        }
    CHECK(worst > 0.7); /* else it was not looked at closely */
}
static void rows_exp_edges(void) {
    static const float x[] = { 0, 88.72283f, 88.72284f, 90, 3e38f, -103.97208f, -103.972084f, -104, -3e38f, -87.33655f };
    float y[10], last, all[5]; int level; size_t i;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        rows_exp_at(level, y, x, 10);
        CHECK(y[0] == 1 && y[1] > 3.402e38f && y[1] < rows_bits(0x7f800000u) && y[3] == rows_bits(0x7f800000u));
        CHECK(y[4] == rows_bits(0x7f800000u) && y[5] == rows_bits(1) && y[7] == 0 && y[8] == 0);
        CHECK(!(memopt_i_float_bits(y[8]) >> 31) && rows_units(y[9], exp((double)x[9])) < 0.88);
        all[0] = rows_bits(0xff800000u); all[1] = rows_bits(0x7f800000u); all[2] = rows_bits(0x7fc00000u);
        all[3] = rows_bits(0xffc00001u); all[4] = -0.0f;
        rows_exp_at(level, all, all, 5);
        CHECK(memopt_i_float_bits(all[0]) == 0 && all[1] == rows_bits(0x7f800000u));
        CHECK(rows_is_nan(all[2]) && rows_is_nan(all[3]) && all[4] == 1);
        for (last = 0, i = 0; i < 4000; ++i) { /* never goes down where x goes up */
            const float at = rows_float(-110.0 + 0.05 * (double)i); float e;
            rows_exp_at(level, &e, &at, 1);
            CHECK_AT(e >= last, i);
            last = e;
        }
    }
}

static void rows_exp_shares(void) { /* of a row: nothing below exp(-69), no denormal, and nothing above exp(88) */
    static const float x[20] = { -68.9999924f, -69, -69.0000076f, -80, -88, -100, -104, -1e9f, -3e38f, 0, 1, 88, 90,
                                 -69, -69.0000076f, -70, -90, -3, -200, -69 };
    const float most = 88; float y[20]; int level; size_t i;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        float sums[16] = { 0 };
        memopt_i_row_exp(level, sums, y, x, 0, 1, 20);
        for (i = 0; i < 20; ++i) {
            float whole;
            rows_exp_at(MEMOPT_SIMD_SCALAR, &whole, x[i] > 88 ? &most : x + i, 1);
            CHECK_AT(rows_same(y[i], x[i] < -69 ? 0 : whole), i);
        }
    }
}

/* ---- rows, from the definition ---- */
static float rows_total(const float *s) {
    float a[8], b[4]; int i;
    for (i = 0; i < 8; ++i) a[i] = rows_float((double)s[i] + (double)s[i + 8]);
    for (i = 0; i < 4; ++i) b[i] = rows_float((double)a[i] + (double)a[i + 4]);
    return rows_float((double)rows_float((double)b[0] + (double)b[2]) + (double)rows_float((double)b[1] + (double)b[3]));
}
static void rows_sums(void) {
    static float x[ROWS_N + 1], y[ROWS_N], e[ROWS_N], want_e[ROWS_N]; uint64_t seed = 2; size_t n, i, k; int level;
    for (n = 0; n < ROWS_N; n = n < 70 ? n + 1 : n + 57)
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            float sums[3][17], want[3][16];
            const float from = rows_random(&seed, 0), scale = rows_float(0.7);
            for (i = 0; i < n; ++i) { x[i] = rows_random(&seed, n % 5 == 0); y[i] = rows_random(&seed, n % 5 == 0); }
            for (k = 0; k < 3; ++k) {
                for (i = 0; i < 16; ++i) sums[k][i] = want[k][i] = i == 3 ? -0.0f : rows_random(&seed, 0);
                sums[k][16] = 77;
            }
            for (i = 0; i < n; ++i) {
                want[0][i % 16] = rows_float((double)want[0][i % 16] + (double)x[i]);
                want[1][i % 16] = fmaf(x[i], y[i], want[1][i % 16]);
                want_e[i] = rows_float((double)scale * (double)rows_float((double)x[i] - (double)from));
            }
            for (i = 0; i < n; ++i) want_e[i] = want_e[i] < -69 ? 0 : memopt_i_v1_exp(want_e[i] > 88 ? 88 : want_e[i]);
            for (i = 0; i < n; ++i) want[2][i % 16] = rows_float((double)want[2][i % 16] + (double)want_e[i]);
            memopt_i_row_sum(level, sums[0], x, n);
            memopt_i_row_dot(level, sums[1], x, y, n);
            e[n] = 77;
            memopt_i_row_exp(level, sums[2], e, x, from, scale, n);
            for (k = 0; k < 3; ++k) {
                CHECK_AT(rows_all_same(sums[k], want[k], 16) && sums[k][16] == 77, n * 10 + k);
                CHECK_AT(rows_same(memopt_i_row_total(sums[k]), rows_total(want[k])), n * 10 + k);
            }
            CHECK_AT(rows_all_same(e, want_e, n) && e[n] == 77, n);
            memopt_i_row_exp(level, sums[2], x, x, from, scale, n); /* in place */
            CHECK_AT(rows_all_same(x, want_e, n), n);
        }
}
static void rows_in_pieces(void) { /* that begin at multiples of 16 */
    static float x[ROWS_N], y[ROWS_N]; uint64_t seed = 3; size_t i, at, n; int level;
    for (i = 0; i < ROWS_N; ++i) { x[i] = rows_random(&seed, 0); y[i] = rows_random(&seed, 0); }
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        float whole[2][16] = { { 0 } }, parts[2][16] = { { 0 } };
        memopt_i_row_sum(level, whole[0], x, ROWS_N);
        memopt_i_row_dot(level, whole[1], x, y, ROWS_N);
        for (at = 0; at < ROWS_N; at += n) {
            n = 16 * (1 + test_below(&seed, 4));
            if (n > ROWS_N - at) n = ROWS_N - at;
            memopt_i_row_sum(level, parts[0], x + at, n);
            memopt_i_row_dot(level, parts[1], x + at, y + at, n);
        }
        CHECK(!memcmp(whole, parts, sizeof whole));
    }
}
static void rows_largest(void) {
    static float x[ROWS_N]; uint64_t seed = 4; size_t n, i; int level;
    const float infinity = rows_bits(0x7f800000u), nan = rows_bits(0x7fc00000u);
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        for (n = 0; n < ROWS_N; n = n < 40 ? n + 1 : n + 61) {
            float most = -1e30f;
            for (i = 0; i < n; ++i) { x[i] = rows_float((double)rows_random(&seed, 0) - 100.0); most = x[i] > most ? x[i] : most; }
            CHECK_AT(rows_same(memopt_i_row_max(level, -1e30f, x, n), most), n);
            CHECK_AT(memopt_i_row_max(level, 5, x, n) == 5, n);
            for (i = 0; i < n; ++i) { /* wherever it is */
                const float kept = x[i];
                x[i] = 200; CHECK_AT(memopt_i_row_max(level, -infinity, x, n) == 200, i);
                x[i] = infinity; CHECK_AT(memopt_i_row_max(level, -infinity, x, n) == infinity, i);
                x[i] = nan; CHECK_AT(memopt_i_float_bits(memopt_i_row_max(level, 300, x, n)) == 0x7fc00000u, i);
                x[i] = -nan; CHECK_AT(memopt_i_float_bits(memopt_i_row_max(level, 300, x, n)) == 0x7fc00000u, i);
                x[i] = kept;
            }
            CHECK_AT(rows_is_nan(memopt_i_row_max(level, nan, x, n)), n);
        }
        for (i = 0; i < 40; ++i) x[i] = i == 21 ? 0.0f : -0.0f;
        CHECK(memopt_i_float_bits(memopt_i_row_max(level, -0.0f, x, 40)) == 0);
        CHECK(memopt_i_float_bits(memopt_i_row_max(level, -0.0f, x, 20)) == 0);
        CHECK(memopt_i_float_bits(memopt_i_row_max(level, -0.0f, x, 0)) == 0);
        for (i = 0; i < 40; ++i) x[i] = -infinity;
        CHECK(memopt_i_row_max(level, -infinity, x, 40) == -infinity);
    }
}
static void rows_elements(void) {
    static float x[ROWS_N + 1], y[ROWS_N + 1], want[ROWS_N]; uint64_t seed = 5; size_t n, i; int level;
    for (n = 0; n < ROWS_N; n = n < 40 ? n + 1 : n + 37)
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            const float a = rows_random(&seed, 0);
            for (i = 0; i < n; ++i) { x[i] = rows_random(&seed, n % 3 == 0); y[i] = rows_random(&seed, n % 3 == 0); }
            y[n] = x[n] = 77;
            for (i = 0; i < n; ++i) want[i] = fmaf(a, x[i], y[i]);
            memopt_i_row_add(level, y, x, a, n);
            CHECK_AT(rows_all_same(y, want, n) && y[n] == 77, n);
            for (i = 0; i < n; ++i) want[i] = rows_float((double)a * (double)x[i]);
            memopt_i_row_scale(level, y, x, a, n);
            CHECK_AT(rows_all_same(y, want, n) && y[n] == 77, n);
            memopt_i_row_scale(level, x, x, a, n);
            CHECK_AT(rows_all_same(x, want, n) && x[n] == 77, n);
        }
}

/* ---- activations ---- */
static double rows_logistic(double z) { return 1 / (1 + exp(-z)); }
static double rows_inner(memopt_activation a, double x) {
    return a == MEMOPT_ACTIVATION_SILU ? x : 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
}
static double rows_active(memopt_activation a, double x) {
    if (a == MEMOPT_ACTIVATION_NONE) return x;
    return a == MEMOPT_ACTIVATION_RELU ? (x > 0 ? x : 0) : x * rows_logistic(rows_inner(a, x));
}
static double rows_slope(memopt_activation a, double x) {
    const double c = 2 * sqrt(2 / 3.14159265358979323846), z = rows_inner(a, x), s = rows_logistic(z);
    const double inner = a == MEMOPT_ACTIVATION_SILU ? 1 : c * (1 + 3 * 0.044715 * x * x);
    if (a == MEMOPT_ACTIVATION_NONE) return 1;
    return a == MEMOPT_ACTIVATION_RELU ? (x > 0 ? 1 : 0) : s + x * s * rows_logistic(-z) * inner;
}
/* z = x (...) is off by 2 units, and exp(z) by |z| times that, relatively; then a few operations. A slope is a sum that
   may cancel, of terms of the size of s (1 + |x z' (1 - s)|). Below exp(-69), s is 0. */
static double rows_bound(memopt_activation a, double x, int slope) {
    const double z = rows_inner(a, x), value = fabs(slope ? rows_slope(a, x) : rows_active(a, x));
    const double s = rows_logistic(z), terms = slope ? s + fabs(s * rows_logistic(-z) * (fabs(z) + 0.3 * fabs(x * x * x))) : value;
    return (value + terms) * (5 + 2 * fabs(z < 0 ? z : z * rows_logistic(-z))) * 5.97e-8
         + 1.1e-30 * (2 + (slope ? 3 * fabs(z) : fabs(x)));
}
static void rows_activations(void) {
    static float x[4001], g[4001], y[4001], d[4001], out[4001]; int kind; size_t i; const int best = memopt_simd_best();
    for (kind = MEMOPT_ACTIVATION_NONE; kind <= MEMOPT_ACTIVATION_SILU; ++kind) {
        const memopt_activation a = (memopt_activation)kind; uint64_t seed = 6;
        for (i = 0; i < 4001; ++i) {
            x[i] = i < 2000 ? rows_float((double)(i + 1) * 0.06 - 119.0) : i < 3000 ? rows_random(&seed, 0)
                 : rows_float(((double)i - 3500) * 0.01);
            g[i] = rows_float(1 + (double)(i % 7));
        }
        memopt_i_row_act(best, y, x, a, 4001);
        memopt_i_row_act_grad(best, d, out, x, g, a, 4001);
        CHECK(rows_all_same(y, out, 4001)); /* made again: the same */
        for (i = 0; i < 4001; ++i) {
            const double v = (double)x[i], scale = (double)g[i];
            const double exact = rows_active(a, v), slope = rows_slope(a, v);
            if (a == MEMOPT_ACTIVATION_NONE || a == MEMOPT_ACTIVATION_RELU) {
                CHECK_AT((double)y[i] == exact && (double)d[i] == scale * slope, i);
                continue;
            }
            CHECK_AT(fabs((double)y[i] - exact) <= rows_bound(a, v, 0), i);
            CHECK_AT(fabs((double)d[i] - scale * slope) <= scale * rows_bound(a, v, 1), i);
        }
    }
}
/* ReLU from bf16 to bf16, of every code and a few more; a NaN stays one and becomes quiet, with the gradient 0. */
static void rows_relu_of_words(void) {
    enum { N = 65536 + 7 };
    static uint16_t x[N], g[N], y[N + 1], d[N + 1]; size_t i, done, least; int level; memopt_i_work w;
    memopt_i_work_clear(&w);
    for (i = 0; i < N; ++i) { x[i] = (uint16_t)i; g[i] = (uint16_t)(0x3f80 + i % 90); }
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); ++level) {
        least = level >= MEMOPT_SIMD_AVX2 ? 65536 : 0;
        memset(y, 0xEE, sizeof y); memset(d, 0xEE, sizeof d);
        w.operands[0].data = x; w.operands[1].data = g; w.to[0] = y; w.to[1] = NULL;
        done = memopt_i_words_run(level, MEMOPT_I_STEP_RELU, &w, N);
        CHECK_AT(done >= least && done <= N && y[done] == 0xEEEE, level);
        for (i = 0; i < done; ++i) {
            const int is_nan = (x[i] & 0x7fff) > 0x7f80;
            CHECK_AT(is_nan ? y[i] == (x[i] | 0x40) : (y[i] & 0x7fff) == (x[i] >> 15 ? 0 : x[i]), i);
        }
        memset(y, 0xEE, sizeof y);
        w.to[0] = d; w.to[1] = y;
        done = memopt_i_words_run(level, MEMOPT_I_STEP_RELU_GRADIENT, &w, N);
        CHECK_AT(done >= least && y[done] == 0xEEEE && d[done] == 0xEEEE, level);
        for (i = 0; i < done; ++i) {
            const int is_nan = (x[i] & 0x7fff) > 0x7f80, above = !is_nan && !(x[i] >> 15) && x[i];
            CHECK_AT(d[i] == (above ? g[i] : 0), i);
            CHECK_AT(is_nan ? y[i] == (x[i] | 0x40) : (y[i] & 0x7fff) == (x[i] >> 15 ? 0 : x[i]), i);
        }
        w.to[0] = y; w.to[1] = NULL; /* without the activation */
        done = memopt_i_words_run(level, MEMOPT_I_STEP_RELU_GRADIENT, &w, 64);
        CHECK_AT(!memcmp(y, d, done * sizeof *y), level);
    }
}
/* What the single float says of an operation on three codes. */
static void rows_words_want(memopt_i_step op, const uint16_t *in, uint16_t *out) {
    const float a = memopt_from_bf16(in[0]), b = memopt_from_bf16(in[1]), c = memopt_from_bf16(in[2]); float y[3] = { 0, 0, 0 }; int k;
    switch ((int)op) {
    case MEMOPT_I_STEP_RELU: y[0] = memopt_i_v1_act(a, MEMOPT_ACTIVATION_RELU); break;
    case MEMOPT_I_STEP_GELU: y[0] = memopt_i_v1_act(a, MEMOPT_ACTIVATION_GELU); break;
    case MEMOPT_I_STEP_SILU: y[0] = memopt_i_v1_act(a, MEMOPT_ACTIVATION_SILU); break;
    case MEMOPT_I_STEP_RELU_GRADIENT: y[0] = memopt_i_v1_act_grad(a, b, MEMOPT_ACTIVATION_RELU, y + 1); break;
    case MEMOPT_I_STEP_GELU_GRADIENT: y[0] = memopt_i_v1_act_grad(a, b, MEMOPT_ACTIVATION_GELU, y + 1); break;
    case MEMOPT_I_STEP_SILU_GRADIENT: y[0] = memopt_i_v1_act_grad(a, b, MEMOPT_ACTIVATION_SILU, y + 1); break;
    case MEMOPT_I_STEP_ADD:    y[0] = memopt_i_v1_add(a, b); break;
    case MEMOPT_I_STEP_SWIGLU: y[0] = memopt_i_v1_swiglu(a, b); break;
    default:                   y[0] = memopt_i_v1_swiglu_grad(a, b, c, y + 1, y + 2);
    }
    for (k = 0; k < 3; ++k) out[k] = memopt_to_bf16(y[k]);
}
/* Every operation from bf16 to bf16, of every code, with others of all sizes beside it: the bits of the single float, at
   any length, the results in place of what is read, results that are not wanted left out. */
static void rows_words(memopt_i_step op, int tos) {
    enum { N = 65536 + 39 };
    static uint16_t x[3][N + 1], y[3][N + 1], want[3][N]; static const size_t lengths[] = { 0, 1, 31, 32, 33, 255, 256, 300, 513 };
    size_t i, done, n; int level, k, in_place; memopt_i_work w;
    memopt_i_work_clear(&w);
    for (i = 0; i < N; ++i) {
        uint16_t in[3], out[3];
        for (k = 0; k < 3; ++k) x[k][i] = in[k] = (uint16_t)(k ? (uint32_t)(i + 17) * (k == 1 ? 40503u : 2654435761u) >> (k == 1 ? 0 : 9) : i);
        rows_words_want(op, in, out);
        for (k = 0; k < 3; ++k) want[k][i] = out[k];
    }
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); ++level)
        for (in_place = 0; in_place < 2; ++in_place)
            for (n = 0; n < 1 + sizeof lengths / sizeof *lengths; ++n) {
                const size_t length = n ? lengths[n - 1] : (size_t)N;
                for (k = 0; k < 3; ++k) {
                    if (in_place) memcpy(y[k], x[k], sizeof y[k]);
                    else memset(y[k], 0xEE, sizeof y[k]);
                    w.operands[k].data = in_place ? y[k] : x[k];
                    w.to[k] = k && in_place && tos == k + 1 && n % 2 ? NULL : y[k];
                }
                done = memopt_i_words_run(level, op, &w, length);
                CHECK_AT(done == length / 32 * 32 || (done == 0 && level < MEMOPT_SIMD_AVX2), length);
                for (k = 0; k < 3; ++k) {
                    const uint16_t end = in_place ? x[k][done] : 0xEEEE;
                    CHECK_AT(y[k][done] == end, length);
                    for (i = 0; i < done; ++i) {
                        const uint16_t is = y[k][i];
                        if (k >= tos || !w.to[k]) { CHECK_AT(is == (in_place ? x[k][i] : 0xEEEE), i); continue; }
                        CHECK_AT((want[k][i] & 0x7fff) > 0x7f80 ? (is & 0x7fff) > 0x7f80 : is == want[k][i], i);
                    }
                }
            }
}
static void rows_words_all(void) {
    static const memopt_i_step codes[] = { MEMOPT_I_STEP_RELU, MEMOPT_I_STEP_GELU, MEMOPT_I_STEP_SILU, MEMOPT_I_STEP_RELU_GRADIENT,
        MEMOPT_I_STEP_GELU_GRADIENT, MEMOPT_I_STEP_SILU_GRADIENT, MEMOPT_I_STEP_ADD, MEMOPT_I_STEP_SWIGLU, MEMOPT_I_STEP_SWIGLU_GRADIENT };
    size_t k;
    for (k = 0; k < sizeof codes / sizeof *codes; ++k) rows_words(codes[k], memopt_i_step_facts[codes[k]].results);
}
/* Operands and results in every form, mixed: the bits of the single float. Floats beside pairs lie in the order in which
   these come into registers, which a move of the codes 0, 1, 2... tells. */
static void rows_forms_at(int level, memopt_i_step code, const size_t *place, int forms, int has_pairs) {
    enum { N = 96 };
    static float floats[3][N], number[16], out[N]; static uint16_t pairs[3][N], out_pairs[N]; static uint32_t mask[N];
    static const memopt_i_form all[3] = { MEMOPT_I_FORM_FLOATS, MEMOPT_I_FORM_NUMBER, MEMOPT_I_FORM_PAIRS };
    uint64_t seed = 21; size_t i; int k, rest = forms, to_pairs; memopt_i_work w;
    memopt_i_work_clear(&w);
    for (k = 0; k < 3; ++k) for (i = 0; i < N; ++i) pairs[k][i] = memopt_to_bf16(rows_random(&seed, 1));
    for (k = 0; k < 3; ++k) for (i = 0; i < N; ++i) floats[k][i] = memopt_from_bf16(pairs[k][place[i]]);
    for (i = 0; i < N; ++i) mask[i] = test_random(&seed) & 1 ? ~(uint32_t)0 : 0;
    for (i = 0; i < 16; ++i) number[i] = 0.75f;
    for (k = 0; k < 3; ++k, rest /= 3) {
        w.operands[k].form = all[rest % 3];
        if (rest % 3 == 2 && !has_pairs) return;
        w.operands[k].data = rest % 3 == 2 ? (const void *)pairs[k] : rest % 3 == 1 ? (const void *)number : (const void *)floats[k];
    }
    to_pairs = rest; /* what is left of the digits: 0 or 1 */
    if (to_pairs && !has_pairs) return;
    w.to_form = to_pairs ? MEMOPT_I_FORM_PAIRS : MEMOPT_I_FORM_FLOATS;
    w.to[0] = to_pairs ? (void *)out_pairs : (void *)out;
    w.mask = mask; w.factor = 1.5f;
    memopt_i_step_run(level, code, &w, N);
    for (i = 0; i < N; ++i) {
        float x[3], want;
        for (k = 0; k < 3; ++k) x[k] = w.operands[k].form == MEMOPT_I_FORM_NUMBER ? 0.75f : floats[k][i];
        switch ((int)code) {
        case MEMOPT_I_STEP_FMA: want = memopt_i_v1_fma(x[0], x[1], x[2]); break;
        case MEMOPT_I_STEP_MUL: want = memopt_i_v1_mul(x[0], x[1]); break;
        case MEMOPT_I_STEP_ADD: want = memopt_i_v1_add(x[0], x[1]); break;
        default:                want = mask[i] ? x[1] : memopt_i_v1_fma(1.5f, x[0], x[1]);
        }
        CHECK_AT(to_pairs ? rows_same(memopt_from_bf16(out_pairs[place[i]]), memopt_from_bf16(memopt_to_bf16(want)))
                          : rows_same(out[i], want), level * 1000 + forms);
    }
}
static void rows_forms(void) {
    static const memopt_i_step codes[] = { MEMOPT_I_STEP_FMA, MEMOPT_I_STEP_MUL, MEMOPT_I_STEP_ADD, MEMOPT_I_STEP_DROPOUT_ADD };
    int level, forms; size_t c, i;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        const int has_pairs = MEMOPT_I_DISPATCH(level, words_whole, (96)) != 0; size_t place[96];
        for (i = 0; i < 96; ++i) place[i] = i;
        if (has_pairs) {
            uint16_t codes_of[96]; float moved[96]; memopt_i_work w;
            memopt_i_work_clear(&w);
            for (i = 0; i < 96; ++i) codes_of[i] = memopt_to_bf16((float)i);
            w.operands[0].data = codes_of; w.operands[0].form = MEMOPT_I_FORM_PAIRS; w.to[0] = moved;
            memopt_i_step_run(level, MEMOPT_I_STEP_MOVE, &w, 96);
            for (i = 0; i < 96; ++i) place[i] = (size_t)moved[i];
        }
        for (c = 0; c < sizeof codes / sizeof *codes; ++c)
            for (forms = 0; forms < 54; ++forms) rows_forms_at(level, codes[c], place, forms, has_pairs);
    }
}
/* 4096 inputs, whose bits are `step` apart */
static void rows_activations_of(uint32_t first, uint32_t step) {
    static float x[4096], one[4096], y[4096], d[4096]; static const memopt_activation curves[] = { MEMOPT_ACTIVATION_GELU, MEMOPT_ACTIVATION_SILU };
    const int best = memopt_simd_best(); size_t i; int k;
    for (i = 0; i < 4096; ++i) { x[i] = rows_bits(first + step * (uint32_t)i); one[i] = 1; }
    for (k = 0; k < 2; ++k) {
        memopt_i_row_act_grad(best, d, y, x, one, curves[k], 4096);
        for (i = 0; i < 4096; ++i) {
            const uint32_t size = memopt_i_float_bits(x[i]) & 0x7fffffffu; const double v = (double)x[i];
            if (size > 0x7f800000u) { CHECK_AT(rows_is_nan(y[i]) && rows_is_nan(d[i]), i); continue; }
            if (size >= 0x42f00000u) { /* from 120 on; the reference would need infinity times 0 */
                CHECK_AT(v > 0 ? y[i] == x[i] && d[i] == 1 : y[i] == 0 && d[i] == 0, i);
                continue;
            }
            CHECK_AT(fabs((double)y[i] - rows_active(curves[k], v)) <= rows_bound(curves[k], v, 0), i);
            CHECK_AT(fabs((double)d[i] - rows_slope(curves[k], v)) <= rows_bound(curves[k], v, 1), i);
        }
    }
}
static void rows_activations_everywhere(void) { /* every bfloat16; floats of every exponent, 12345 units apart */
    uint32_t i;
    for (i = 0; i < 16; ++i) rows_activations_of(i << 28, (uint32_t)1 << 16);
    for (i = 0; i < 85; ++i) rows_activations_of(i * 4096u * 12345u, 12345);
}
static void rows_activations_far_out(void) { /* huge, infinite, not a number */
    const float infinity = rows_bits(0x7f800000u); int level; size_t i;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        static const memopt_activation curves[] = { MEMOPT_ACTIVATION_GELU, MEMOPT_ACTIVATION_SILU };
        float x[8] = { 130, 1e10f, 3e38f, 0, -130, -1e10f, -3e38f, 0 }, g[8] = { 3, 3, 3, 3, 3, 3, 3, 3 }, y[8], d[8];
        x[3] = infinity; x[7] = -infinity;
        for (i = 0; i < 2; ++i) {
            float nan = rows_bits(0x7fc00000u), one = 1, out; size_t k;
            memopt_i_row_act_grad(level, d, y, x, g, curves[i], 8);
            for (k = 0; k < 4; ++k) CHECK_AT(y[k] == x[k] && d[k] == 3, k);
            for (k = 4; k < 8; ++k) CHECK_AT(y[k] == 0 && d[k] == 0, k);
            memopt_i_row_act_grad(level, &out, &out, &nan, &one, curves[i], 1);
            CHECK(rows_is_nan(out));
            memopt_i_row_act_grad(level, &nan, &out, &nan, &one, curves[i], 1);
            CHECK(rows_is_nan(out) && rows_is_nan(nan));
        }
        memopt_i_row_act_grad(level, d, y, x, g, MEMOPT_ACTIVATION_RELU, 8);
        for (i = 0; i < 8; ++i) CHECK_AT(y[i] == (i < 4 ? x[i] : 0) && d[i] == (i < 4 ? 3.0f : 0.0f), i);
        x[0] = rows_bits(0x7fc00000u); x[1] = 0; x[2] = -0.0f;
        memopt_i_row_act_grad(level, d, y, x, g, MEMOPT_ACTIVATION_RELU, 3);
        CHECK(rows_is_nan(y[0]) && y[1] == 0 && y[2] == 0 && d[1] == 0 && d[2] == 0);
    }
}
static void rows_activations_by_level(void) {
    static float x[ROWS_N + 1], g[ROWS_N + 1], y[ROWS_N + 1], d[ROWS_N + 1], want[ROWS_N], want_d[ROWS_N];
    uint64_t seed = 7; size_t n, i; int level, kind;
    for (n = 0; n < ROWS_N; n = n < 40 ? n + 1 : n + 61)
        for (kind = MEMOPT_ACTIVATION_NONE; kind <= MEMOPT_ACTIVATION_SILU; ++kind)
            for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
                const memopt_activation a = (memopt_activation)kind;
                for (i = 0; i < n; ++i) { x[i] = rows_random(&seed, 1); g[i] = rows_random(&seed, 1); }
                memopt_i_row_act(MEMOPT_SIMD_SCALAR, want, x, a, n);
                memopt_i_row_act_grad(MEMOPT_SIMD_SCALAR, want_d, NULL, x, g, a, n);
                y[n] = d[n] = 77;
                x[n] = g[n] = -0.5f; /* no activation leaves it as it is */
                memopt_i_row_act(level, y, x, a, n);
                CHECK_AT(rows_all_same(y, want, n) && y[n] == 77, n);
                memopt_i_row_act_grad(level, d, NULL, x, g, a, n);
                CHECK_AT(rows_all_same(d, want_d, n) && d[n] == 77, n);
                memopt_i_row_act_grad(level, g, x, x, g, a, n); /* both in place */
                CHECK_AT(rows_all_same(x, want, n) && rows_all_same(g, want_d, n) && x[n] == -0.5f
                         && g[n] == -0.5f, n);
            }
}

/* ---- sums of columns ---- */
/* rows in their order, by the definition: a float's rounding after each */
static void rows_columns(void) {
    enum { ROWS = 150, WIDTH = 203 };
    static float x[ROWS * WIDTH], sums[WIDTH + 1]; static uint16_t codes[2][ROWS * WIDTH]; uint64_t seed = 9; size_t i, n, row; int level, t;
    for (i = 0; i < ROWS * WIDTH; ++i) {
        x[i] = memopt_from_bf16(memopt_to_bf16(rows_float((double)(test_random(&seed) >> 40) * 1e-4)));
        codes[0][i] = memopt_to_bf16(x[i]);
        codes[1][i] = memopt_to_f16(x[i]); /* 8 bits of at most 1678: the same number */
    }
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (t = 0; t < 3; ++t)
            for (n = 0; n < 200; n += 9) {
                const memopt_type type = t == 0 ? MEMOPT_TYPE_F32 : t == 1 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F16;
                const void *from = t ? (const void *)(codes[t - 1] + 3) : (const void *)(x + 3);
                size_t done;
                for (i = 0; i <= n; ++i) sums[i] = 0.5f;
                done = memopt_i_row_columns(level, sums, from, type, ROWS, WIDTH, n);
                CHECK_AT(done <= n && n - done < 64, n);
                for (i = 0; i <= n; ++i) {
                    float want = 0.5f;
                    for (row = 0; row < ROWS && i < done; ++row) want = rows_float((double)want + (double)x[row * WIDTH + 3 + i]);
                    CHECK_AT(sums[i] == want, i);
                }
            }
}

/* ---- other types ---- */
static void rows_types(void) {
    static float x[ROWS_N], y[ROWS_N]; static uint16_t codes[ROWS_N + 1]; uint64_t seed = 8; size_t n, i; int level;
    for (n = 0; n < ROWS_N; n = n < 40 ? n + 1 : n + 51)
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            for (i = 0; i < n; ++i) x[i] = rows_random(&seed, 0);
            codes[n] = 77;
            memopt_i_from_f32(level, codes, x, MEMOPT_TYPE_BF16, n);
            for (i = 0; i < n; ++i) CHECK_AT(codes[i] == memopt_to_bf16(x[i]), i);
            memopt_i_to_f32(level, y, codes, MEMOPT_TYPE_BF16, n);
            for (i = 0; i < n; ++i) CHECK_AT(rows_same(y[i], memopt_from_bf16(codes[i])), i);
            CHECK(codes[n] == 77 && memopt_i_row_view(level, codes, MEMOPT_TYPE_BF16, 0, n, y) == y);
            memopt_i_from_f32(level, codes, x, MEMOPT_TYPE_F16, n);
            for (i = 0; i < n; ++i) CHECK_AT(codes[i] == memopt_to_f16(x[i]), i);
            memopt_i_to_f32(level, y, codes, MEMOPT_TYPE_F16, n);
            for (i = 0; i < n; ++i) CHECK_AT(rows_same(y[i], memopt_from_f16(codes[i])), i);
            CHECK(codes[n] == 77 && memopt_i_row_view(level, x, MEMOPT_TYPE_F32, 3, n, y) == x + 3);
            memopt_i_from_f32(level, y, x, MEMOPT_TYPE_F32, n);
            CHECK(!memcmp(x, y, n * sizeof *x));
            memset(y, 0, sizeof y);
            memopt_i_to_f32(level, y, x, MEMOPT_TYPE_F32, n);
            CHECK(!memcmp(x, y, n * sizeof *x));
            memopt_i_to_f32(level, x, x, MEMOPT_TYPE_F32, n); /* to itself, and from nowhere */
            memopt_i_from_f32(level, NULL, NULL, MEMOPT_TYPE_F32, 0);
        }
    CHECK(memopt_i_row_at(codes, MEMOPT_TYPE_F16, 3) == codes + 3 && memopt_i_row_to(x, MEMOPT_TYPE_F32, 3) == x + 3);
}

/* ---- log ---- */
static void rows_logarithm(void) {
    uint64_t seed = 1; int i;
    CHECK(memopt_i_row_log(1) <= 0 && memopt_i_row_log(1) >= 0);
    for (i = 0; i < 20000; ++i) {
        const double x = ldexp(1 + (double)(test_random(&seed) >> 12) * ldexp(1, -52), i % 40), want = log(x);
        CHECK_AT(fabs(memopt_i_row_log(x) - want) <= 4 * ldexp(1, -53) * want, i);
    }
    for (i = 1; i < 40; ++i) { /* next to 1, and around the root of 2 */
        const double x = 1 + ldexp(1, -i), y = 1.4142135623730951 + ldexp(1, -i), w = 1.4142135623730951 - ldexp(1, -i - 2);
        CHECK_AT(fabs(memopt_i_row_log(x) - log(x)) <= 4 * ldexp(1, -53) * log(x), i);
        CHECK_AT(fabs(memopt_i_row_log(y) - log(y)) <= ldexp(1, -51) && fabs(memopt_i_row_log(w) - log(w)) <= ldexp(1, -51), i);
    }
    CHECK(memopt_i_row_log(0) == -(double)rows_bits(0x7f800000u));
    CHECK(memopt_i_row_log((double)rows_bits(0x7f800000u)) == (double)rows_bits(0x7f800000u));
    CHECK(rows_is_nan((float)memopt_i_row_log((double)rows_bits(0x7fc00000u))) && rows_is_nan((float)memopt_i_row_log((double)rows_bits(0xffc00000u))));
}

/* A row of floats becomes bf16 in the first half of its bytes: the bits by the definition, nearest and ties to even; what
   stands behind it stays. */
static uint16_t rows_narrowed(float x) {
    const uint32_t u = memopt_i_float_bits(x), half = u & 0xffffu, even = u >> 16;
    if (rows_is_nan(x)) return 0x7fc0;
    return (uint16_t)(even + (half > 0x8000u || (half == 0x8000u && (even & 1)) ? 1 : 0));
}
static void rows_narrow(void) {
    static const size_t sizes[] = { 0, 1, 2, 15, 16, 33, 511, 512, 513, 1023, 1024, 1025, 1600 }; float x[1700], y[1700]; uint64_t seed = 12;
    size_t k, i; int level;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (k = 0; k < sizeof sizes / sizeof *sizes; ++k) {
            const size_t n = sizes[k];
            for (i = 0; i < 1700; ++i) x[i] = i % 7 == 3 ? rows_bits((uint32_t)(test_random(&seed) & 0xffff0000u) | 0x8000u) : rows_random(&seed, 1);
            memcpy(y, x, sizeof y);
            memopt_i_row_narrow(level, y, 0, n / 3); /* a part, and then the rest */
            memopt_i_row_narrow(level, y, n / 3, n);
            for (i = 0; i < n; ++i) {
                uint16_t got; memcpy(&got, (unsigned char *)y + 2 * i, 2);
                CHECK_AT(rows_is_nan(x[i]) ? (got & 0x7fff) > 0x7f80 : got == rows_narrowed(x[i]), n * 10000 + i);
            }
            CHECK_AT(!memcmp((unsigned char *)y + 2 * n, (unsigned char *)x + 2 * n, sizeof y - 2 * n), n);
        }
}

static void test_row_kernels(void) {
    RUN(rows_exp_is_exact);
    RUN(rows_exp_edges);
    RUN(rows_exp_shares);
    RUN(rows_sums);
    RUN(rows_in_pieces);
    RUN(rows_largest);
    RUN(rows_elements);
    RUN(rows_activations);
    RUN(rows_relu_of_words);
    RUN(rows_words_all);
    RUN(rows_forms);
    RUN(rows_activations_everywhere);
    RUN(rows_activations_far_out);
    RUN(rows_activations_by_level);
    RUN(rows_columns);
    RUN(rows_types);
    RUN(rows_logarithm);
    RUN(rows_narrow);
}
#ifndef TEST_COMBINED
int main(void) { test_row_kernels(); return test_totals(); }
#endif
