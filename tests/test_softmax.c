/* test_softmax.c - softmax of rows and its gradient. Expected values are worked out here in double from the definition,
   gradients also as differences of it; then equal bits at every level, for any workers, and for rows in parts. */
#include "test.h"

static float *softmax_alloc(size_t n) { /* of exactly that size, for sanitizers */
    float *p = (float *)malloc(n ? n * sizeof *p : 1);
    if (!p) { printf("test_softmax: out of memory\n"); exit(1); }
    memset(p, 0xA5, n * sizeof *p);
    return p;
}
static float softmax_normal(uint64_t *seed) { /* -1 to 1 */
    return (float)((double)(test_random(seed) >> 40) / 8388608.0 - 1.0);
}
static double softmax_scale(float scale) { return scale > 0 || scale < 0 ? (double)scale : 1; }
/* The definition. */
static void softmax_plain(double *p, const double *x, size_t n, double scale) {
    double most = n ? x[0] : 0, sum = 0; size_t i;
    for (i = 0; i < n; ++i) if (x[i] > most) most = x[i];
    for (i = 0; i < n; ++i) sum += p[i] = exp(scale * (x[i] - most));
    for (i = 0; i < n; ++i) p[i] /= sum;
}
static void softmax_plain_slope(double *y, const double *p, const double *g, size_t n, double scale) {
    double mean = 0; size_t i;
    for (i = 0; i < n; ++i) mean += p[i] * g[i];
    for (i = 0; i < n; ++i) y[i] = scale * p[i] * (g[i] - mean);
}
enum { SOFTMAX_MOST = 5000 };
static double softmax_p[SOFTMAX_MOST], softmax_g[SOFTMAX_MOST], softmax_x[SOFTMAX_MOST], softmax_y[SOFTMAX_MOST];
/* Probabilities lie within: rounding x - most and its product with the scale, both at |exponent| of some tens; sums of
   n / 16 floats; three more roundings. */
static double softmax_bound(double scale, double spread, size_t n) {
    return ldexp(1, -24) * (2 * scale * spread + 8 + (double)n / 16);
}
static void softmax_row_check(const memopt_softmax *s, size_t row, const float *before, const float *after, const float *g,
                              const float *slopes) {
    const size_t n = s->valid ? s->valid[row] : s->columns, stride = s->stride ? s->stride : s->columns; size_t i;
    const double scale = softmax_scale(s->scale); double bound, most = 0, size = 0;
    for (i = 0; i < n; ++i) {
        softmax_x[i] = (double)before[row * stride + i]; softmax_g[i] = (double)g[row * stride + i];
        if (fabs(softmax_x[i]) > most) most = fabs(softmax_x[i]);
        if (fabs(softmax_g[i]) > size) size = fabs(softmax_g[i]);
    }
    softmax_plain(softmax_p, softmax_x, n, scale);
    softmax_plain_slope(softmax_y, softmax_p, softmax_g, n, scale);
    bound = softmax_bound(scale, 2 * most, n);
    for (i = 0; i < s->columns; ++i) {
        const double p = (double)after[row * stride + i], y = (double)slopes[row * stride + i];
        if (i >= n) { CHECK_AT(memopt_i_float_bits(after[row * stride + i]) == 0 && memopt_i_float_bits(slopes[row * stride + i]) == 0, i); continue; }
        CHECK_AT(fabs(p - softmax_p[i]) <= bound * softmax_p[i] + ldexp(1, -100), i);
        CHECK_AT(fabs(y - softmax_y[i]) <= scale * softmax_p[i] * 2 * size * (2 * bound + ldexp((double)n / 16 + 8, -24)) + scale * size * ldexp(1, -98) + 1e-36, i);
    }
    for (i = s->columns; i < stride; ++i) /* between rows nothing is written */
        CHECK_AT(memopt_i_float_bits(after[row * stride + i]) == 0xA5A5A5A5u && memopt_i_float_bits(slopes[row * stride + i]) == 0xA5A5A5A5u, i);
}
static void softmax_definition(void) {
    static const size_t columns[] = { 1, 2, 7, 8, 9, 15, 16, 17, 33, 130, 4099 }; uint64_t seed = 1; size_t k, i, row;
    for (k = 0; k < 44; ++k) {
        const size_t n = columns[k / 4], gap = k % 2 ? 3 : 0, rows = n > 1000 ? 3 : 9, all = rows * (n + gap);
        float *x = softmax_alloc(all), *p = softmax_alloc(all), *g = softmax_alloc(all), *y = softmax_alloc(all); size_t valid[9];
        memopt_softmax s;
        memset(&s, 0, sizeof s);
        s.rows = rows; s.columns = n; s.stride = gap ? n + gap : 0; s.scale = k % 4 == 2 ? 0.125f : k % 4 == 3 ? 3.0f : 0;
        for (i = 0; i < all; ++i) { x[i] = softmax_normal(&seed) * (k % 3 ? 4.0f : 25.0f); g[i] = softmax_normal(&seed); }
        for (i = 0; i < rows; ++i) valid[i] = i == 1 ? 0 : i == 2 ? n : test_below(&seed, n + 1);
        if (k % 4 > 1) s.valid = valid;
        s.input = x; s.output = p;
        CHECK(memopt_softmax_forward(NULL, &s) == MEMOPT_OK);
        s.input = p; s.output = y; s.grad_output = g;
        CHECK(memopt_softmax_backward(NULL, &s) == MEMOPT_OK);
        for (row = 0; row < rows; ++row) softmax_row_check(&s, row, x, p, g, y);
        s.output = g; /* in place of either operand, and of the scores */
        CHECK(memopt_softmax_backward(NULL, &s) == MEMOPT_OK);
        for (row = 0; row < rows; ++row) CHECK(!memcmp(g + row * (n + gap), y + row * (n + gap), n * sizeof *y));
        s.input = s.output = x; s.grad_output = NULL;
        CHECK(memopt_softmax_forward(NULL, &s) == MEMOPT_OK);
        for (row = 0; row < rows; ++row) CHECK(!memcmp(x + row * (n + gap), p + row * (n + gap), n * sizeof *y));
        free(x); free(p); free(g); free(y);
    }
}
static void softmax_in_place_of_p(void) {
    float p[5] = { 0.1f, 0.2f, 0.3f, 0.15f, 0.25f }, g[5] = { 1, -1, 2, 0.5f, 3 }, y[5]; memopt_softmax s;
    memset(&s, 0, sizeof s);
    s.rows = 1; s.columns = 5; s.input = p; s.grad_output = g; s.output = y;
    CHECK(memopt_softmax_backward(NULL, &s) == MEMOPT_OK);
    s.output = p;
    CHECK(memopt_softmax_backward(NULL, &s) == MEMOPT_OK && !memcmp(p, y, sizeof y));
}
/* The plain gradient is the derivative of the plain softmax. */
static void softmax_differences(void) {
    double x[7], p[7], g[7], y[7]; uint64_t seed = 7; int i, k;
    for (i = 0; i < 7; ++i) { x[i] = (double)softmax_normal(&seed) * 3; g[i] = (double)softmax_normal(&seed); }
    softmax_plain(p, x, 7, 0.7);
    softmax_plain_slope(y, p, g, 7, 0.7);
    for (i = 0; i < 7; ++i) {
        double up = 0, down = 0; const double was = x[i], h = 1e-5;
        x[i] = was + h; softmax_plain(p, x, 7, 0.7);
        for (k = 0; k < 7; ++k) up += p[k] * g[k];
        x[i] = was - h; softmax_plain(p, x, 7, 0.7);
        for (k = 0; k < 7; ++k) down += p[k] * g[k];
        x[i] = was;
        CHECK_AT(fabs((up - down) / (2 * h) - y[i]) < 1e-9, i);
    }
}
static int softmax_is_nan(float x) { return (memopt_i_float_bits(x) & 0x7fffffffu) > 0x7f800000u; }
static void softmax_not_finite(void) {
    const float inf = memopt_i_bits_float(0x7f800000u), nan = memopt_i_bits_float(0x7fc00000u); int level, row, i;
    for (level = 1; level <= memopt_simd_best(); ++level) {
        enum { N = 37 };
        static float x[8 * N], p[8 * N]; static const size_t valid[8] = { N, N, N, N, N, 5, 0, N }; memopt_softmax s; memopt_ops o;
        memopt_threads t = test_workers(NULL, 0, level);
        memset(&o, 0, sizeof o); memset(&s, 0, sizeof s);
        o.threads = &t; s.rows = 8; s.columns = N; s.input = x; s.output = p; s.valid = valid;
        for (i = 0; i < 8 * N; ++i) x[i] = (float)(i % 5);
        x[3] = -inf; x[36] = -inf;                      /* row 0: probabilities of 0 */
        x[N + 20] = nan;                                /* row 1, 2: none */
        x[2 * N + 36] = inf;
        for (i = 0; i < N; ++i) x[3 * N + i] = -inf;    /* row 3: nothing to choose from */
        for (i = 0; i < N; ++i) x[4 * N + i] = i % 2 ? 3e38f : -3e38f; /* row 4: the difference overflows */
        x[5 * N + 5] = nan; x[6 * N] = nan;             /* row 5, 6: not looked at */
        CHECK(memopt_softmax_forward(&o, &s) == MEMOPT_OK);
        for (row = 0; row < 8; ++row) {
            double sum = 0; int nans = 0;
            for (i = 0; i < N; ++i) { nans += softmax_is_nan(p[row * N + i]); sum += (double)p[row * N + i]; }
            if (row >= 1 && row <= 3) CHECK_AT(nans == N, row);
            else CHECK_AT(nans == 0 && fabs(sum - (row == 6 ? 0 : 1)) < 1e-6, row);
        }
        CHECK(p[3] == 0 && p[36] == 0 && p[4 * N] == 0 && fabs((double)p[4 * N + 1] - 1.0 / 18) < 1e-8);
        for (i = 5; i < N; ++i) CHECK(p[5 * N + i] == 0);
    }
}
/* Huge scores, told apart by their difference only; and a scale so small that all are equal. */
static void softmax_huge(void) {
    float x[4] = { 1e30f, 1e30f, -1e30f, 0 }, p[4]; memopt_softmax s;
    memset(&s, 0, sizeof s);
    s.rows = 1; s.columns = 4; s.input = x; s.output = p;
    CHECK(memopt_softmax_forward(NULL, &s) == MEMOPT_OK && p[0] == 0.5f && p[1] == 0.5f && p[2] == 0 && p[3] == 0);
    x[0] = x[2] = x[3] = -1000; x[1] = -1001;
    CHECK(memopt_softmax_forward(NULL, &s) == MEMOPT_OK && fabs((double)p[1] - exp(-1.0) / (3 + exp(-1.0))) < 1e-7);
    x[0] = x[1] = 1e30f; x[2] = -1e30f; x[3] = 0;
    s.scale = 1e-38f;
    CHECK(memopt_softmax_forward(NULL, &s) == MEMOPT_OK && fabs((double)p[2] - 0.25) < 1e-7);
}
/* Same bits: levels, workers, and rows in parts. Long rows have turns of their own, short ones share one. */
static void softmax_same_bits(void) {
    static const size_t shapes[][2] = { { 37, 16385 / 8 }, { 300, 61 }, { 5, 20001 }, { 200, 170 } }; size_t k, i; uint64_t seed = 3;
    for (k = 0; k < 4; ++k) {
        const size_t rows = shapes[k][0], n = shapes[k][1], all = rows * n; int level, workers;
        float *x = softmax_alloc(all), *p = softmax_alloc(all), *g = softmax_alloc(all), *y = softmax_alloc(all), *p2 = softmax_alloc(all), *y2 = softmax_alloc(all);
        memopt_softmax s, part;
        memset(&s, 0, sizeof s);
        s.rows = rows; s.columns = n; s.scale = 0.3f;
        for (i = 0; i < all; ++i) { x[i] = softmax_normal(&seed) * 30.0f; g[i] = softmax_normal(&seed); }
        for (level = memopt_simd_best(); level >= 1; --level)
            for (workers = 0; workers <= (level == 1 ? 2 : 8); workers += level == 1 ? 2 : 3) {
                test_worker_set worker_set = { 0, 0, 0, 0 };
                memopt_threads t = test_workers(&worker_set, workers, level); memopt_ops o;
                const int first = level == memopt_simd_best() && !workers;
                memset(&o, 0, sizeof o);
                o.threads = &t;
                s.input = x; s.output = first ? p : p2; s.grad_output = NULL;
                CHECK(memopt_softmax_forward(&o, &s) == MEMOPT_OK);
                s.input = s.output; s.output = first ? y : y2; s.grad_output = g;
                CHECK(memopt_softmax_backward(&o, &s) == MEMOPT_OK);
                CHECK(!workers || worker_set.runs == (rows * n > 16384 ? 2u : 0u));
                if (!first) CHECK_AT(!memcmp(p, p2, all * 4) && !memcmp(y, y2, all * 4), (size_t)level * 100 + (size_t)workers);
            }
        memset(p2, 0, all * 4);
        for (part = s, i = 0; i < rows; i += part.rows) {
            part.rows = i + 3 < rows ? 3 : rows - i;
            part.input = x + i * n; part.output = p2 + i * n;
            CHECK(memopt_softmax_forward(NULL, &part) == MEMOPT_OK);
        }
        CHECK(!memcmp(p, p2, all * 4));
        free(x); free(p); free(g); free(y); free(p2); free(y2);
    }
}
static void softmax_bad(void) {
    static float x[64], y[64], g[64]; static size_t valid[5]; int i;
    for (i = 0; i < 24; ++i) {
        memopt_softmax s; memopt_ops o; memopt_threads t; memopt_status want = MEMOPT_ERR_ARGUMENT, got; int k; const memopt_softmax *p = &s;
        memset(&s, 0, sizeof s); memset(&o, 0, sizeof o); memset(&t, 0, sizeof t);
        for (k = 0; k < 64; ++k) x[k] = y[k] = g[k] = 7;
        for (k = 0; k < 4; ++k) valid[k] = 3;
        s.rows = 4; s.columns = 4; s.input = x; s.output = y; s.grad_output = g; s.valid = valid;
        switch (i) {
        case 0: p = NULL; break;                   case 1: s.input = NULL; break;
        case 2: s.output = NULL; break;            case 3: s.grad_output = NULL; break;
        case 4: s.stride = 3; break;               case 5: s.scale = -1; break;
        case 6: s.scale = memopt_i_bits_float(0x7f800000u); break;
        case 7: s.scale = memopt_i_bits_float(0x7fc00000u); break;
        case 8: valid[3] = 5; break;               case 9: s.input = (const float *)(const void *)((const char *)x + 2); break;
        case 10: s.output = (float *)(void *)((char *)y + 1); break;
        case 11: s.grad_output = (const float *)(const void *)((const char *)g + 2); break;
        case 12: s.valid = (const size_t *)(const void *)((const char *)valid + 2); break;
        case 13: s.output = x + 1; break;          case 14: s.output = g + 15; break;
        case 15: s.output = (float *)(void *)valid; break;
        case 16: s.rows = SIZE_MAX / 8; want = MEMOPT_ERR_OVERFLOW; break;
        case 17: s.stride = SIZE_MAX / 4; want = MEMOPT_ERR_OVERFLOW; break;
        case 18: t.worker_count = 3; o.threads = &t; break;
        case 19: o.gemm.user = x; break;
        case 20: o.scratch = (char *)x + 1; o.scratch_bytes = 1; break;
        case 21: s.rows = 0; s.input = NULL; s.output = NULL; s.grad_output = NULL; s.valid = NULL; want = MEMOPT_OK; break;
        case 22: s.columns = 0; s.stride = 0; want = MEMOPT_OK; break;
        default: s.columns = 0; s.rows = SIZE_MAX; s.valid = NULL; want = MEMOPT_ERR_OVERFLOW; break;
        }
        got = memopt_softmax_backward(&o, p);
        CHECK_AT(got == want, i);
        got = memopt_softmax_forward(&o, p);
        if (i != 3 && i != 11 && i != 14) CHECK_AT(got == want, i);
        else { CHECK_AT(got == MEMOPT_OK, i); continue; } /* forward does not look at it */
        for (k = 0; k < 64; ++k) CHECK_AT(x[k] == 7 && y[k] == 7 && g[k] == 7, i);
    }
}
/* Why a call is refused: each change to what is right is told by its own line. */
#define SOFTMAX_SAYS(change, call, want, text) REFUSES(o.error, \
    (s = right, memset(&o, 0, sizeof o), valid[1] = 4, change), memopt_softmax_##call(&o, p), MEMOPT_ERR_##want, \
    "softmax: " text)
static void softmax_errors(void) {
    static float x[16], y[16], g[16];
    static size_t valid[4] = { 4, 4, 4, 4 };
    memopt_softmax right, s;
    const memopt_softmax *p = &s;
    memopt_threads t;
    memopt_ops o;

    memset(&right, 0, sizeof right);
    memset(&t, 0, sizeof t);
    right.rows = right.columns = 4;
    right.input = x;
    right.output = y;
    right.grad_output = g;
    right.valid = valid;
    memset(&o, 0, sizeof o);
    ACCEPTS(o.error, s = right, memopt_softmax_forward(&o, p));
    ACCEPTS(o.error, s = right, memopt_softmax_backward(&o, p));
    SOFTMAX_SAYS(s.input = NULL, forward, ARGUMENT, "input is NULL");
    SOFTMAX_SAYS(s.output = NULL, forward, ARGUMENT, "output is NULL");
    SOFTMAX_SAYS(s.grad_output = NULL, backward, ARGUMENT, "grad_output is NULL");
    SOFTMAX_SAYS(s.input = (const float *)(const void *)((const char *)x + 2), forward, ARGUMENT, "input is misaligned");
    SOFTMAX_SAYS(s.valid = (const size_t *)(const void *)((const char *)valid + 2), forward, ARGUMENT,
                 "valid is misaligned");
    SOFTMAX_SAYS(s.output = x + 1, forward, ARGUMENT, "output overlaps input");
    SOFTMAX_SAYS(s.output = g + 1, backward, ARGUMENT, "output overlaps grad_output");
    SOFTMAX_SAYS(s.output = (float *)(void *)valid, forward, ARGUMENT, "output overlaps valid");
    SOFTMAX_SAYS(s.stride = 3, forward, ARGUMENT, "stride 3, at least columns 4");
    SOFTMAX_SAYS(s.scale = -1, forward, ARGUMENT, "scale -1, finite and at least 0");
    SOFTMAX_SAYS(s.scale = memopt_i_bits_float(0x7fc00000u), backward, ARGUMENT, "scale NaN, finite and at least 0");
    SOFTMAX_SAYS(valid[1] = 5, forward, ARGUMENT, "valid 5 at row 1, at most columns 4");
    SOFTMAX_SAYS(s.rows = SIZE_MAX / 8, forward, OVERFLOW, "input is larger than memory can be");
    SOFTMAX_SAYS((s.columns = s.stride = 0, s.rows = SIZE_MAX), forward, OVERFLOW, "valid is larger than memory can be");
    SOFTMAX_SAYS((t.worker_count = 3, o.threads = &t), forward, ARGUMENT,
                 "threads have workers without run_fn, or run_fn without workers");
    SOFTMAX_SAYS((t.worker_count = -3, o.threads = &t), forward, ARGUMENT, "threads.worker_count -3, at least 0");
    SOFTMAX_SAYS((t.worker_count = 0, t.simd_level = -1, o.threads = &t), forward, ARGUMENT,
                 "threads.simd_level -1, at least 0");
    SOFTMAX_SAYS(o.gemm.user = x, forward, ARGUMENT, "gemm has scratch_bytes or user without multiply_fn");
    SOFTMAX_SAYS(o.scratch_bytes = 1, forward, ARGUMENT, "scratch is NULL");
    SOFTMAX_SAYS((o.scratch = (char *)x + 1, o.scratch_bytes = 1), forward, ARGUMENT, "scratch is misaligned");
    SOFTMAX_SAYS(p = NULL, forward, ARGUMENT, "its struct is NULL");
}
static void test_softmax(void) {
    RUN(softmax_definition);
    RUN(softmax_in_place_of_p);
    RUN(softmax_differences);
    RUN(softmax_not_finite);
    RUN(softmax_huge);
    RUN(softmax_same_bits);
    RUN(softmax_bad);
    RUN(softmax_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_softmax(); return test_totals(); }
#endif
