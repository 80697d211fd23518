/* test_cuda_softmax.cu - softmax of rows and cross-entropy in place on the device, against float64 by their stated bounds;
   and the same bits under every schedule. */
#include "test_cuda.h"

static void *cuda_softmax_alloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) { printf("test_cuda_softmax: out of memory\n"); exit(1); }
    memset(p, 0xA6, bytes);
    return p;
}
static size_t cuda_softmax_size(memopt_type type) { return type == MEMOPT_TYPE_F32 ? 4 : 2; }
static void cuda_softmax_put(memopt_type type, void *data, size_t i, float x) {
    const uint16_t code = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
    if (type == MEMOPT_TYPE_F32) memcpy((unsigned char *)data + 4 * i, &x, 4);
    else memcpy((unsigned char *)data + 2 * i, &code, 2);
}
static double cuda_softmax_at(memopt_type type, const void *data, size_t i) {
    float x; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, (const unsigned char *)data + 4 * i, 4); return (double)x; }
    memcpy(&code, (const unsigned char *)data + 2 * i, 2);
    return (double)(type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(code) : memopt_from_f16(code));
}
static float cuda_softmax_normal(uint64_t *seed) { return (float)((double)(test_random(seed) >> 40) / 8388608.0 - 1.0); } /* -1 to 1 */
static float cuda_softmax_nan(void) { return memopt_i_bits_float(0x7fc00000u); }
static float cuda_softmax_inf(void) { return memopt_i_bits_float(0x7f800000u); }
static int cuda_softmax_is_nan(double x) { uint64_t u; memcpy(&u, &x, 8); return u << 1 > (uint64_t)0x7ff << 53; }
static int cuda_softmax_zero(double x) { return x >= 0 && x <= 0; }
static double cuda_softmax_rounding(memopt_type type, double x) {
    if (type == MEMOPT_TYPE_F32) return 0;
    return type == MEMOPT_TYPE_BF16 ? fabs(x) * ldexp(1, -8) : fabs(x) * ldexp(1, -11) + ldexp(1, -25);
}

/* ---- softmax ---- */
enum { CUDA_SOFTMAX_MOST = 140000 };
static double cuda_softmax_p[CUDA_SOFTMAX_MOST], cuda_softmax_x[CUDA_SOFTMAX_MOST], cuda_softmax_y[CUDA_SOFTMAX_MOST];
static void cuda_softmax_row(const memopt_softmax *s, size_t row, size_t n, const float *x, const float *p, const float *g, const float *y) {
    const size_t at = row * s->stride; const double scale = s->scale > 0 ? (double)s->scale : 1; size_t i;
    double most = -HUGE_VAL, sum = 0, mean = 0, size = 0, wrong = 0;
    for (i = 0; i < n; ++i) if ((double)x[at + i] > most) most = (double)x[at + i];
    for (i = 0; i < n; ++i) sum += cuda_softmax_p[i] = exp(scale * ((double)x[at + i] - most));
    for (i = 0; i < n; ++i) {
        const double want = cuda_softmax_p[i] / sum, got = (double)p[at + i];
        const double bound = ldexp(4 * scale * (most - (double)x[at + i]) + (double)n / 512 + 64, -24);
        CHECK_AT(fabs(got - want) <= bound * want + ldexp(1, -99) / sum, i);
        mean += got * (double)g[at + i]; /* the slope is that of the probabilities that are there */
        if (fabs((double)g[at + i]) > size) size = fabs((double)g[at + i]);
        wrong += fabs(got * (double)g[at + i]);
    }
    wrong *= ldexp((double)n / 256 + 16, -24);
    for (i = 0; i < n; ++i) {
        const double got = (double)p[at + i], want = scale * got * ((double)g[at + i] - mean);
        CHECK_AT(fabs((double)y[at + i] - want) <= scale * got * (wrong + ldexp(size, -21)) + 1e-37, i);
    }
    for (; i < s->columns; ++i) CHECK_AT(memopt_i_float_bits(p[at + i]) == 0 && memopt_i_float_bits(y[at + i]) == 0, i);
    for (; i < s->stride && row + 1 < s->rows; ++i) CHECK_AT(memopt_i_float_bits(p[at + i]) == 0xA6A6A6A6u && memopt_i_float_bits(y[at + i]) == 0xA6A6A6A6u, i);
}
static void cuda_softmax_one(size_t columns, size_t rows, size_t gap, size_t shift, int with_valid, float scale, float spread, int schedules, uint64_t *seed) {
    const size_t stride = columns + gap, all = (rows - 1) * stride + columns, bytes = all * 4; size_t i, row, valid[16]; int round;
    float *x = (float *)cuda_softmax_alloc(bytes), *g = (float *)cuda_softmax_alloc(bytes), *p = (float *)cuda_softmax_alloc(bytes), *y = (float *)cuda_softmax_alloc(bytes), *q = (float *)cuda_softmax_alloc(bytes);
    void *blank = cuda_softmax_alloc(bytes);
    float *d_x = (float *)test_device_at(bytes, shift * 4), *d_p = (float *)test_device_at(bytes, shift * 4), *d_g = (float *)test_device_at(bytes, (shift & 1) * 4), *d_y = (float *)test_device_at(bytes, shift * 4);
    size_t *d_valid = (size_t *)test_device(sizeof valid); memopt_softmax s;
    for (i = 0; i < all; ++i) { x[i] = cuda_softmax_normal(seed) * spread; g[i] = cuda_softmax_normal(seed); }
    for (i = 0; i < rows; ++i) valid[i] = !with_valid ? columns : i == 1 ? 0 : i == 2 ? columns : test_below(seed, columns + 1);
    if (with_valid && rows > 3) valid[3] = SIZE_MAX; /* counts as columns */
    if (with_valid) for (row = 0; row < rows; ++row) for (i = valid[row]; i < columns; ++i) x[row * stride + i] = g[row * stride + i] = cuda_softmax_nan(); /* not looked at */
    test_put(d_valid, valid, sizeof valid);
    memset(&s, 0, sizeof s);
    s.rows = rows; s.columns = columns; s.stride = gap ? stride : 0; s.scale = scale; s.valid = with_valid ? d_valid : NULL;
    round = 0;
    TEST_SCHEDULES(schedules) {
        test_put(d_x, x, bytes); test_put(d_p, blank, bytes); test_put(d_y, blank, bytes); test_put(d_g, g, bytes);
        s.input = d_x; s.output = d_p; s.grad_output = NULL;
        CHECK(memopt_cuda_softmax_forward(NULL, &s, NULL) == 0);
        s.input = d_p; s.output = d_y; s.grad_output = d_g;
        CHECK(memopt_cuda_softmax_backward(NULL, &s, NULL) == 0);
        test_get(round ? q : p, d_p, bytes);
        if (round) CHECK_AT(!memcmp(q, p, bytes), columns);
        test_get(round ? q : y, d_y, bytes);
        if (round) CHECK_AT(!memcmp(q, y, bytes), columns);
        ++round;
    }
    s.stride = stride;
    for (row = 0; row < rows; ++row) cuda_softmax_row(&s, row, valid[row] > columns ? columns : valid[row], x, p, g, y);
    s.output = d_g; /* in place of either operand, and of the scores */
    CHECK(memopt_cuda_softmax_backward(NULL, &s, NULL) == 0);
    test_get(q, d_g, bytes);
    for (row = 0; row < rows; ++row) CHECK_AT(!memcmp(q + row * stride, y + row * stride, columns * 4) || (shift & 2), columns);
    test_put(d_g, g, bytes); s.output = d_p;
    CHECK(memopt_cuda_softmax_backward(NULL, &s, NULL) == 0);
    test_get(q, d_p, bytes);
    for (row = 0; row < rows; ++row) CHECK_AT(!memcmp(q + row * stride, y + row * stride, columns * 4), columns);
    s.input = s.output = d_x; s.grad_output = NULL;
    CHECK(memopt_cuda_softmax_forward(NULL, &s, NULL) == 0);
    test_get(q, d_x, bytes);
    for (row = 0; row < rows; ++row) CHECK_AT(!memcmp(q + row * stride, p + row * stride, columns * 4), columns);
    free(x); free(g); free(p); free(y); free(q); free(blank);
    test_device_free(0);
}
static void cuda_softmax_definition(void) {
    static const size_t columns[] = { 1, 2, 7, 31, 32, 33, 127, 128, 129, 255, 257, 512, 1023, 1024, 1025, 4099, 8188, 8191, 8192 }; uint64_t seed = 1; size_t k; int v;
    for (k = 0; k < sizeof columns / sizeof *columns; ++k)
        for (v = 0; v < 4; ++v)
            cuda_softmax_one(columns[k], columns[k] > 1024 ? 3 : 9, v % 2 ? v == 3 ? 4 : 3 : 0, (size_t)(v == 2 ? 1 : 0), v > 1, v == 2 ? 0.125f : v == 3 ? 3.0f : 0, k % 2 ? 25.0f : 4.0f, v == 0 || k % 4 == 0 ? 8 : 1, &seed);
}
static void cuda_softmax_long(void) { /* from memory twice */
    uint64_t seed = 2;
    cuda_softmax_one(8193, 3, 0, 0, 0, 0, 20, 8, &seed); cuda_softmax_one(8196, 3, 4, 0, 1, 0.5f, 20, 2, &seed);
    cuda_softmax_one(20011, 2, 1, 3, 0, 1, 8, 2, &seed); cuda_softmax_one(65536, 1, 0, 0, 0, 2, 30, 1, &seed);
    cuda_softmax_one(9000, 4, 0, 0, 1, 0, 3, 1, &seed);
}
static void cuda_softmax_not_finite(void) {
    static const size_t widths[] = { 37, 1500, 9001 }; const float inf = cuda_softmax_inf(); size_t k, i, row;
    for (k = 0; k < 3; ++k) {
        const size_t n = widths[k]; float *x = (float *)cuda_softmax_alloc(8 * n * 4), *d = (float *)test_device(8 * n * 4); memopt_softmax s; size_t valid[8], *d_valid = (size_t *)test_device(64);
        for (i = 0; i < 8; ++i) valid[i] = i == 5 ? 5 : i == 6 ? 0 : n;
        for (i = 0; i < 8 * n; ++i) x[i] = (float)(i % 5);
        x[3] = -inf; x[n - 1] = -inf; x[n + 20] = cuda_softmax_nan(); x[3 * n - 1] = inf;
        for (i = 0; i < n; ++i) { x[3 * n + i] = -inf; x[4 * n + i] = i % 2 ? 3e38f : -3e38f; }
        x[5 * n + 5] = cuda_softmax_nan(); x[6 * n] = cuda_softmax_nan();
        for (i = 0; i < n; ++i) x[7 * n + i] = i + 1 < n ? -inf : -3.4028234663852886e38f; /* one only, the lowest there is */
        memset(&s, 0, sizeof s);
        s.rows = 8; s.columns = n; s.input = s.output = d; s.valid = d_valid;
        test_put(d, x, 8 * n * 4); test_put(d_valid, valid, 64);
        CHECK(memopt_cuda_softmax_forward(NULL, &s, NULL) == 0);
        test_get(x, d, 8 * n * 4);
        for (row = 0; row < 8; ++row) {
            double sum = 0; size_t nans = 0;
            for (i = 0; i < n; ++i) { nans += (size_t)cuda_softmax_is_nan((double)x[row * n + i]); sum += (double)x[row * n + i]; }
            if (row >= 1 && row <= 3) CHECK_AT(nans == n, row);
            else CHECK_AT(nans == 0 && fabs(sum - (row == 6 ? 0 : 1)) < 1e-5, row);
        }
        CHECK(x[3] == 0 && x[n - 1] == 0 && x[4 * n] == 0 && x[8 * n - 1] == 1);
        for (i = 5; i < n; ++i) CHECK_AT(x[5 * n + i] == 0, i);
        free(x);
        test_device_free(0);
    }
}
static void cuda_softmax_huge(void) { /* told apart by their difference only; a scale so small that all are equal */
    float x[4] = { 1e30f, 1e30f, -1e30f, 0 }, p[4], *d = (float *)test_device(16); memopt_softmax s;
    memset(&s, 0, sizeof s);
    s.rows = 1; s.columns = 4; s.input = s.output = d;
    test_put(d, x, 16); CHECK(memopt_cuda_softmax_forward(NULL, &s, NULL) == 0); test_get(p, d, 16);
    CHECK(p[0] == 0.5f && p[1] == 0.5f && p[2] == 0 && p[3] == 0);
    s.scale = 1e-38f; test_put(d, x, 16); CHECK(memopt_cuda_softmax_forward(NULL, &s, NULL) == 0); test_get(p, d, 16);
    CHECK(fabs((double)p[2] - 0.25) < 1e-6);
    s.scale = 0; x[0] = x[2] = x[3] = -1000; x[1] = -1001; test_put(d, x, 16); CHECK(memopt_cuda_softmax_forward(NULL, &s, NULL) == 0); test_get(p, d, 16);
    CHECK(fabs((double)p[1] - exp(-1.0) / (3 + exp(-1.0))) < 1e-6);
    x[0] = 0; x[1] = -68.9f; x[2] = -69.1f; x[3] = -100; test_put(d, x, 16); CHECK(memopt_cuda_softmax_forward(NULL, &s, NULL) == 0); test_get(p, d, 16);
    CHECK(p[0] == 1 && p[1] > 0 && p[2] == 0 && p[3] == 0); /* below exp(-69) */
}
/* 16-bit results, also over the scores themselves: what attention does. */
template <int LANES> static __global__ void cuda_softmax_rows16(float *x, memopt_i_cuda::bf16_t *y, memopt_i_cuda::f16_t *z, const float *g, size_t n, size_t columns) {
    MEMOPT_I_CUDA_SHARED(float, red, [32]);
    const size_t row = LANES == 32 ? threadIdx.x / 32 : 0;
    x += row * columns; g += row * columns; z += row * columns;
    const memopt_i_cuda::softmax_data p = { y ? (void *)(y + row * columns) : (void *)x, MEMOPT_TYPE_BF16 }, to = { z, MEMOPT_TYPE_F16 };
    memopt_i_cuda::softmax_row(x, p, n, columns, 0.5f, LANES, red);
    if (LANES == 256) __syncthreads(); else __syncwarp();
    memopt_i_cuda::softmax_slope_row(p, g, to, n, columns, 0.5f, LANES, red);
}
static void cuda_softmax_narrow(void) {
    static const size_t shapes[][2] = { { 100, 100 }, { 63, 100 }, { 64, 64 }, { 1000, 1024 }, { 0, 8 }, { 513, 515 } }; uint64_t seed = 5; size_t k, i, row; int in_place, wide;
    for (k = 0; k < 6; ++k) for (in_place = 0; in_place < 2; ++in_place) for (wide = 0; wide < 2; ++wide) {
        const size_t n = shapes[k][0], c = shapes[k][1], rows = wide ? 1 : 2, all = rows * c; float *x = (float *)cuda_softmax_alloc(all * 4), *g = (float *)cuda_softmax_alloc(all * 4); uint16_t *y = (uint16_t *)cuda_softmax_alloc(all * 4), *z = (uint16_t *)cuda_softmax_alloc(all * 2);
        float *d_x = (float *)test_device(all * 4), *d_g = (float *)test_device(all * 4); uint16_t *d_y = (uint16_t *)test_device(all * 2), *d_z = (uint16_t *)test_device(all * 2);
        for (i = 0; i < all; ++i) { x[i] = cuda_softmax_normal(&seed) * 8; g[i] = cuda_softmax_normal(&seed); }
        test_put(d_g, g, all * 4);
        TEST_SCHEDULES(8) {
            test_put(d_x, x, all * 4);
            if (wide) MEMOPT_I_CUDA_LAUNCH(cuda_softmax_rows16<256>, 1, 256, 0, 0, d_x, in_place ? (memopt_i_cuda::bf16_t *)NULL : (memopt_i_cuda::bf16_t *)(void *)d_y, (memopt_i_cuda::f16_t *)(void *)d_z, d_g, n, c);
            else MEMOPT_I_CUDA_LAUNCH(cuda_softmax_rows16<32>, 1, 64, 0, 0, d_x, in_place ? (memopt_i_cuda::bf16_t *)NULL : (memopt_i_cuda::bf16_t *)(void *)d_y, (memopt_i_cuda::f16_t *)(void *)d_z, d_g, n, c);
            test_get(y, in_place ? (void *)d_x : (void *)d_y, all * (in_place ? 4 : 2)); test_get(z, d_z, all * 2);
            for (row = 0; row < rows; ++row) {
                const uint16_t *const q = y + row * c * (in_place ? 2 : 1); double most = -HUGE_VAL, sum = 0, mean = 0;
                for (i = 0; i < n; ++i) if ((double)x[row * c + i] > most) most = (double)x[row * c + i];
                for (i = 0; i < n; ++i) { sum += exp(0.5 * ((double)x[row * c + i] - most)); mean += (double)memopt_from_bf16(q[i]) * (double)g[row * c + i]; }
                for (i = 0; i < c; ++i) {
                    const double want = i < n ? exp(0.5 * ((double)x[row * c + i] - most)) / sum : 0, got = (double)memopt_from_bf16(q[i]), slope = i < n ? 0.5 * got * ((double)g[row * c + i] - mean) : 0;
                    CHECK_AT(fabs(got - want) <= want * (ldexp(1, -8) + 1e-5), i);
                    CHECK_AT(fabs((double)memopt_from_f16(z[row * c + i]) - slope) <= fabs(slope) * ldexp(1, -10) + ldexp(1, -24), i);
                }
            }
        }
        free(x); free(g); free(y); free(z);
        test_device_free(0);
    }
}
static void cuda_softmax_bad(void) {
    float host[64]; size_t valid[5] = { 3, 3, 3, 3, 3 }; int i, k; float *x = (float *)test_device(256), *y = (float *)test_device(256), *g = (float *)test_device(256); size_t *d_valid = (size_t *)test_device(sizeof valid);
    for (i = 0; i < 20; ++i) {
        memopt_softmax s; memopt_cuda_status want = MEMOPT_CUDA_ERR_ALIGNMENT, got; const memopt_softmax *p = &s; size_t seen[5];
        memset(&s, 0, sizeof s);
        for (k = 0; k < 64; ++k) host[k] = 7;
        test_put(x, host, 256); test_put(y, host, 256); test_put(g, host, 256); test_put(d_valid, valid, sizeof valid);
        s.rows = 4; s.columns = 4; s.input = x; s.output = y; s.grad_output = g; s.valid = d_valid;
        switch (i) {
        case 0: p = NULL; want = MEMOPT_CUDA_ERR_NULL; break;            case 1: s.input = NULL; want = MEMOPT_CUDA_ERR_NULL; break;
        case 2: s.output = NULL; want = MEMOPT_CUDA_ERR_NULL; break;     case 3: s.grad_output = NULL; want = MEMOPT_CUDA_ERR_NULL; break;
        case 4: s.stride = 3; want = MEMOPT_ERR_ARGUMENT; break;         case 5: s.scale = -1; want = MEMOPT_ERR_ARGUMENT; break;
        case 6: s.scale = cuda_softmax_inf(); want = MEMOPT_ERR_ARGUMENT; break; case 7: s.scale = cuda_softmax_nan(); want = MEMOPT_ERR_ARGUMENT; break;
        case 8: s.input = (const float *)((const char *)x + 2); break;   case 9: s.output = (float *)((char *)y + 1); break;
        case 10: s.grad_output = (const float *)((const char *)g + 2); break; case 11: s.valid = (const size_t *)((const char *)d_valid + 4); break;
        case 12: s.output = x + 1; want = MEMOPT_CUDA_ERR_OVERLAP; break; case 13: s.output = g + 15; want = MEMOPT_CUDA_ERR_OVERLAP; break;
        case 14: s.output = (float *)(void *)d_valid; want = MEMOPT_CUDA_ERR_OVERLAP; break;
        case 15: s.rows = SIZE_MAX / 8; want = MEMOPT_ERR_OVERFLOW; break; case 16: s.stride = SIZE_MAX / 4; want = MEMOPT_ERR_OVERFLOW; break;
        case 17: s.rows = 0; s.input = NULL; s.output = NULL; s.grad_output = NULL; s.valid = NULL; want = 0; break;
        case 18: s.columns = 0; s.stride = 0; want = 0; break;
        default: s.rows = (size_t)1 << 40; s.valid = NULL; s.input = s.output = x; s.grad_output = x; want = MEMOPT_ERR_OVERFLOW; /* more blocks than a grid has */
        }
        got = memopt_cuda_softmax_backward(NULL, p, NULL);
        CHECK_AT(got == want, i);
        test_get(seen, d_valid, sizeof seen); CHECK_AT(!memcmp(seen, valid, sizeof seen), i);
        if (i != 3 && i != 10 && i != 13) CHECK_AT(memopt_cuda_softmax_forward(NULL, p, NULL) == want, i);
        test_get(host, x, 256); for (k = 0; k < 64; ++k) CHECK_AT(host[k] == 7, i);
        test_get(host, y, 256); for (k = 0; k < 64; ++k) CHECK_AT(host[k] == 7, i);
        test_get(host, g, 256); for (k = 0; k < 64; ++k) CHECK_AT(host[k] == 7, i);
    }
}

/* ---- cross-entropy ---- */
static double cuda_softmax_loss(const double *x, size_t n, size_t target, double smoothing, double z, double *slopes) { /* the definition */
    double most = x[0], sum = 0, mean = 0, lse; size_t i;
    for (i = 0; i < n; ++i) { if (x[i] > most) most = x[i]; mean += x[i] / (double)n; }
    for (i = 0; i < n; ++i) sum += exp(x[i] - most);
    lse = most + log(sum);
    for (i = 0; i < n; ++i) slopes[i] = exp(x[i] - lse) * (1 + 2 * z * lse) - smoothing / (double)n - (i == target ? 1 - smoothing : 0);
    return lse - (1 - smoothing) * x[target] - (smoothing > 0 ? smoothing * mean : 0) + z * lse * lse;
}
/* The same by parts of the columns, each a matrix of its own: measured, joined, turned into gradients; and brought back. */
static size_t cuda_softmax_parts = 1; /* of who calls the following: 1 = the whole */
static void cuda_softmax_of_part(const memopt_cross_entropy *x, size_t p, unsigned char *whole, int back, memopt_cross_entropy *e) {
    const size_t n = x->vocabulary, parts = cuda_softmax_parts < n ? cuda_softmax_parts : n, stride = x->stride ? x->stride : n, size = cuda_softmax_size(x->type), first = n / parts * p; size_t row, i;
    unsigned char *host;
    if (!back) { *e = *x; e->vocabulary = p + 1 < parts ? n / parts : n - first; e->first = first; e->whole = n; e->stride = e->vocabulary + (p + 1 < parts ? p * 3 : stride - n); e->logits = test_device(x->rows * e->stride * size); }
    host = (unsigned char *)cuda_softmax_alloc(x->rows * e->stride * size);
    if (back) test_get(host, e->logits, x->rows * e->stride * size);
    for (row = 0; row < x->rows; ++row) {
        unsigned char *there = whole + (row * stride + first) * size, *here = host + row * e->stride * size; const size_t shared = p + 1 < parts ? e->vocabulary : e->stride;
        memcpy(back ? there : here, back ? here : there, shared * size);
        for (i = e->vocabulary; i < e->stride && back && !x->keep_logits; ++i) CHECK_AT(cuda_softmax_zero(cuda_softmax_at(x->type, here, i)), row);
    }
    if (!back) test_put(e->logits, host, x->rows * e->stride * size);
    free(host);
}
static memopt_cuda_status cuda_softmax_split(const memopt_cross_entropy *x, memopt_loss *out) {
    const size_t n = x->vocabulary, parts = cuda_softmax_parts < n ? cuda_softmax_parts : n, all = x->rows * (x->stride ? x->stride : n) * cuda_softmax_size(x->type); size_t p, half, row; memopt_cross_entropy e[8]; memopt_cuda_ops o; memopt_loss again, *d_out = (memopt_loss *)test_device(sizeof *d_out);
    memopt_cross_entropy_row *rows = (memopt_cross_entropy_row *)cuda_softmax_alloc(parts * x->rows * sizeof *rows), *joined = (memopt_cross_entropy_row *)cuda_softmax_alloc(x->rows * sizeof *rows), *d_rows = (memopt_cross_entropy_row *)test_device(parts * x->rows * sizeof *rows);
    unsigned char *whole = (unsigned char *)cuda_softmax_alloc(all), *same = (unsigned char *)cuda_softmax_alloc(all); float *losses = (float *)cuda_softmax_alloc(x->rows * 4), *others = (float *)cuda_softmax_alloc(x->rows * 4); memopt_cuda_status s = 0;
    test_get(whole, x->logits, all);
    memcpy(same, whole, all);
    for (p = 0; p < parts && !s; ++p) { cuda_softmax_of_part(x, p, whole, 0, &e[p]); s = memopt_cuda_cross_entropy_measure(NULL, &e[p], d_rows + p * x->rows, NULL); }
    test_get(rows, d_rows, parts * x->rows * sizeof *rows);
    if (!s) s = memopt_cuda_cross_entropy_join(d_rows, parts, x->rows, NULL);
    test_get(joined, d_rows, x->rows * sizeof *rows);
    for (half = 1; half < parts; half *= 2) for (p = 0; p + half < parts; p += 2 * half) for (row = 0; row < x->rows; ++row) rows[p * x->rows + row] = memopt_cross_entropy_join(rows[p * x->rows + row], rows[(p + half) * x->rows + row]);
    CHECK_AT(!memcmp(rows, joined, x->rows * sizeof *rows), n);
    memset(&o, 0, sizeof o);
    CHECK(memopt_cuda_cross_entropy_scratch(NULL, &e[0], &o.scratch_bytes) == 0 && o.scratch_bytes == x->rows * 8 + 16);
    o.d_scratch = test_device(o.scratch_bytes);
    for (p = 0; p < parts && !s; ++p) {
        s = memopt_cuda_cross_entropy_part(&o, &e[p], d_rows, d_out, NULL);
        test_get(p ? &again : out, d_out, sizeof again);
        if (x->losses) test_get(p ? others : losses, x->losses, x->rows * 4);
        CHECK_AT(!p || (!memcmp(out, &again, sizeof again) && (!x->losses || !memcmp(losses, others, x->rows * 4))), p); /* each knows all of it */
        cuda_softmax_of_part(x, p, whole, 1, &e[p]);
    }
    CHECK_AT(!x->keep_logits || !memcmp(whole, same, all), n);
    test_put(x->logits, whole, all);
    free(rows); free(joined); free(whole); free(same); free(losses); free(others);
    return s;
}
static memopt_cuda_status cuda_softmax_entropy(const memopt_cross_entropy *x, memopt_loss *out) { /* with just the scratch */
    memopt_cuda_ops o; memopt_loss *d_out = (memopt_loss *)test_device(sizeof *d_out); memopt_cuda_status s;
    if (cuda_softmax_parts > 1) return cuda_softmax_split(x, out);
    memset(&o, 0, sizeof o);
    CHECK(memopt_cuda_cross_entropy_scratch(NULL, x, &o.scratch_bytes) == 0 && o.scratch_bytes == x->rows * 8 + 16);
    o.d_scratch = test_device(o.scratch_bytes);
    s = memopt_cuda_cross_entropy_loss(&o, x, d_out, NULL);
    test_get(out, d_out, sizeof *out);
    return s;
}
static void cuda_softmax_case(memopt_type type, size_t rows, size_t n, size_t gap, size_t shift, const memopt_loss_rule *rule, int keep, float size, int schedules, uint64_t seed) {
    const size_t stride = n + gap, width = cuda_softmax_size(type), bytes = rows * stride * width; size_t i, row, counted = 0; double total = 0, count, reach = 0; int round = 0;
    void *x = cuda_softmax_alloc(bytes), *y = cuda_softmax_alloc(bytes), *q = cuda_softmax_alloc(bytes), *d = test_device_at(bytes, shift * width); int32_t *targets = (int32_t *)cuda_softmax_alloc(rows * 4), *d_targets = (int32_t *)test_device(rows * 4);
    float *losses = (float *)cuda_softmax_alloc(rows * 4), *d_losses = (float *)test_device(rows * 4); memopt_cross_entropy e; memopt_loss out, again;
    memset(&e, 0, sizeof e); memset(&out, 0, sizeof out);
    for (i = 0; i < rows * stride; ++i) cuda_softmax_put(type, x, i, i % stride < n ? cuda_softmax_normal(&seed) * size : cuda_softmax_nan());
    for (i = 0; i < rows; ++i) { targets[i] = i % 5 == 3 ? -1 - (int32_t)(i * 1000) : (int32_t)test_below(&seed, n); }
    if (rows > 2) { targets[0] = 0; targets[1] = (int32_t)(n - 1); }
    for (i = 0; i < rows; ++i) counted += targets[i] >= 0;
    test_put(d_targets, targets, rows * 4);
    e.rows = rows; e.vocabulary = n; e.stride = gap ? stride : 0; e.type = type; e.logits = d; e.keep_logits = keep; e.targets = d_targets; e.losses = d_losses; e.rule = *rule;
    TEST_SCHEDULES(schedules) {
        test_put(d, x, bytes);
        CHECK(cuda_softmax_entropy(&e, round ? &again : &out) == 0);
        test_get(round ? q : y, d, bytes);
        if (round) CHECK_AT(!memcmp(q, y, bytes) && !memcmp(&out, &again, sizeof out), n);
        ++round;
    }
    test_get(losses, d_losses, rows * 4);
    CHECK_AT(out.counted == counted, n);
    count = rule->count ? (double)rule->count : counted ? (double)counted : 1;
    for (row = 0; row < rows; ++row) {
        const double factor = (rule->scale > 0 ? rule->scale : 1) / count, z = (double)rule->z_weight; const size_t target = targets[row] < 0 ? 0 : (size_t)targets[row]; double loss, most = 0, top = -HUGE_VAL, sums, limit;
        for (i = 0; i < n; ++i) { cuda_softmax_x[i] = cuda_softmax_at(type, x, row * stride + i); if (fabs(cuda_softmax_x[i]) > most) most = fabs(cuda_softmax_x[i]); if (cuda_softmax_x[i] > top) top = cuda_softmax_x[i]; }
        loss = cuda_softmax_loss(cuda_softmax_x, n, target, (double)rule->smoothing, z, cuda_softmax_y);
        if (targets[row] < 0) { loss = 0; CHECK_AT(memopt_i_float_bits(losses[row]) == 0, row); }
        total += loss;
        sums = ldexp(8 * most + (double)n / 512 + 64, -24) * (1 + 2 * z * (most + 12)); limit = ldexp(fabs(loss), -23) + sums; reach += limit;
        CHECK_AT(fabs((double)losses[row] - loss) <= limit, row * 1000000 + n);
        for (i = 0; i < stride && !keep; ++i) {
            const double got = cuda_softmax_at(type, y, row * stride + i);
            if (targets[row] < 0 || i >= n) { CHECK_AT(cuda_softmax_zero(got), i); continue; }
            { const double q1 = (i == target ? 1.0 : 0) + (double)rule->smoothing / (double)n, want = cuda_softmax_y[i] * factor, p = fabs(cuda_softmax_y[i]) + q1;
              const double bound = factor * (p * (ldexp(4 * (top - cuda_softmax_x[i]) + (double)n / 512 + 64, -24) + sums * 2 * z) + ldexp(p, -22) + ldexp(1, -94)) + 1e-37;
              CHECK_AT(fabs(got - want) <= bound + cuda_softmax_rounding(type, fabs(want) + bound), row * 1000000 + i); }
        }
    }
    if (keep) CHECK(!memcmp(x, y, bytes));
    CHECK_AT(fabs(out.loss - total / count) <= reach / count, n);
    e.losses = NULL; test_put(d, x, bytes); /* without losses, the same */
    CHECK(cuda_softmax_entropy(&e, &again) == 0 && !memcmp(&out, &again, sizeof out));
    test_get(q, d, bytes); CHECK_AT(!memcmp(q, y, bytes), n);
    free(x); free(y); free(q); free(targets); free(losses);
    test_device_free(0);
}
static void cuda_softmax_cases(void) {
    static const size_t sizes[] = { 1, 2, 7, 8, 9, 15, 16, 17, 33, 255, 1031, 2048, 5003 }; size_t k; int type, variant;
    for (k = 0; k < sizeof sizes / sizeof *sizes; ++k)
        for (type = 0; type < 3; ++type)
            for (variant = 0; variant < 6; ++variant) {
                memopt_loss_rule rule; const int large = sizes[k] > 1000;
                if (large && variant % 3 != type) continue;
                memset(&rule, 0, sizeof rule);
                if (variant & 1) { rule.smoothing = 0.1f; rule.scale = 512; }
                if (variant & 2) { rule.z_weight = 1e-3f; rule.count = 20; }
                if (variant == 5) rule.smoothing = 1;
                cuda_softmax_case((memopt_type)type, large ? 4 : 6, sizes[k], variant & 1 ? 5 : 0, (size_t)(variant % 4), &rule, variant == 4, variant & 2 ? 30.0f : 5.0f, large && variant ? 2 : 8, k);
            }
}
static void cuda_softmax_large(void) { /* vocabularies as they are: kept in shared memory, in part, or beginning anywhere */
    memopt_loss_rule rule;
    memset(&rule, 0, sizeof rule);
    cuda_softmax_case(MEMOPT_TYPE_BF16, 2, 50304, 0, 0, &rule, 0, 9, 2, 9);
    cuda_softmax_case(MEMOPT_TYPE_BF16, 1, 128256, 0, 0, &rule, 0, 9, 2, 9);
    rule.smoothing = 0.1f; rule.z_weight = 1e-4f;
    cuda_softmax_case(MEMOPT_TYPE_F32, 2, 50257, 47, 1, &rule, 0, 9, 1, 9);
    cuda_softmax_case(MEMOPT_TYPE_F16, 2, 50257, 0, 3, &rule, 0, 9, 1, 9);
}
/* What of a row stays in shared memory of an H200 (227 KiB a block, 132 multiprocessors, 50 MiB): two blocks' where that is enough */
static void cuda_softmax_kept(void) {
#ifndef __CUDACC__
    const auto kernel = memopt_i_cuda::cross_entropy_kernel<memopt_i_cuda::bf16_t>; memopt_loss_rule rule;
    CHECK(memopt_i_cuda::cross_entropy_kept(kernel, 50304 / 8) == 50304 / 8);
    CHECK(memopt_i_cuda::cross_entropy_kept(kernel, 64000 / 8) == (233472 / 2 - 2048) / 16); /* 13 KiB a row are left */
    CHECK(memopt_i_cuda::cross_entropy_kept(kernel, 128256 / 8) == (233472 / 2 - 2048) / 16); /* 139 KiB, but not for long */
    CHECK(memopt_i_cuda::cross_entropy_kept(kernel, 140000 / 8) == (233472 / 2 - 2048) / 16);
    CHECK(memopt_i_cuda::cross_entropy_kept(kernel, 144000 / 8) == (232448 - 2048) / 16);
    CHECK(memopt_i_cuda::cross_entropy_kept(kernel, 2000) == 2000);
    memset(&rule, 0, sizeof rule);
    simulator_attribute(cudaDevAttrL2CacheSize, 1 << 19);
    CHECK(memopt_i_cuda::cross_entropy_kept(kernel, 64000 / 8) == 8000); /* one block */
    cuda_softmax_case(MEMOPT_TYPE_BF16, 1, 64000, 0, 0, &rule, 0, 9, 1, 9);
#endif
}
static void cuda_softmax_rising(void) { /* every logit is the largest so far: the sum is multiplied down each time */
    const size_t n = 33000; float *x = (float *)cuda_softmax_alloc(n * 4), *d = (float *)test_device(n * 4); double want; size_t i; int32_t target = 5, *d_target = (int32_t *)test_device(4); memopt_cross_entropy e; memopt_loss out;
    for (i = 0; i < n; ++i) { x[i] = (float)i * 0.01f; cuda_softmax_x[i] = (double)x[i]; }
    want = cuda_softmax_loss(cuda_softmax_x, n, 5, 0, 0, cuda_softmax_y);
    memset(&e, 0, sizeof e);
    e.rows = 1; e.vocabulary = n; e.logits = d; e.targets = d_target; test_put(d, x, n * 4); test_put(d_target, &target, 4);
    CHECK(cuda_softmax_entropy(&e, &out) == 0 && fabs(out.loss - want) <= want * ldexp(1, -23));
    test_get(x, d, n * 4);
    for (i = 0; i < n; ++i) CHECK_AT(fabs((double)x[i] - cuda_softmax_y[i]) <= fabs(cuda_softmax_y[i]) * ldexp(4 * 330 + 130, -24) + ldexp(1, -94), i);
    free(x);
}
static void cuda_softmax_scales(void) { /* that a float holds, or not, in the middle of the calculation */
    memopt_loss_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.scale = 1e37; cuda_softmax_case(MEMOPT_TYPE_F32, 4, 9, 0, 0, &rule, 0, 3, 1, 1);
    rule.scale = 1e42; rule.count = 100000; cuda_softmax_case(MEMOPT_TYPE_F32, 4, 9, 0, 0, &rule, 0, 3, 1, 1);
    rule.scale = 1e-10; rule.count = 1000000; cuda_softmax_case(MEMOPT_TYPE_F32, 4, 9, 0, 0, &rule, 0, 3, 1, 1);
    rule.scale = 65536; rule.count = 4; cuda_softmax_case(MEMOPT_TYPE_F16, 4, 9, 0, 0, &rule, 0, 3, 1, 1);
}
static float cuda_softmax_single(float *x, size_t n, int32_t target, float smoothing, memopt_type type, int keep) { /* a row's loss */
    unsigned char row[160]; float loss = 7; memopt_cross_entropy e; memopt_loss out; size_t i; void *d = test_device(n * cuda_softmax_size(type)); int32_t *d_target = (int32_t *)test_device(4); float *d_loss = (float *)test_device(4);
    memset(&e, 0, sizeof e);
    for (i = 0; i < n; ++i) cuda_softmax_put(type, row, i, x[i]);
    test_put(d, row, n * cuda_softmax_size(type)); test_put(d_target, &target, 4);
    e.rows = 1; e.vocabulary = n; e.logits = d; e.type = type; e.targets = d_target; e.losses = d_loss; e.keep_logits = keep; e.rule.smoothing = smoothing;
    CHECK(cuda_softmax_entropy(&e, &out) == 0 && out.counted == 1);
    test_get(row, d, n * cuda_softmax_size(type)); test_get(&loss, d_loss, 4);
    CHECK((double)loss == out.loss || (loss > 3e38f && out.loss > 3e38) || cuda_softmax_is_nan(out.loss) || fabs(out.loss - (double)loss) <= ldexp(fabs(out.loss), -24));
    for (i = 0; i < n; ++i) x[i] = (float)cuda_softmax_at(type, row, i);
    test_device_free(0);
    return loss;
}
static void cuda_softmax_special(void) {
    float x[40]; int i, type, kind; const float inf = cuda_softmax_inf();
    for (type = 0; type < 3; ++type) {
        const memopt_type t = (memopt_type)type;
        for (kind = 0; kind < 4; ++kind) { /* no softmax: NaN, +infinity, nothing but -infinity, a target that is none */
            for (i = 0; i < 37; ++i) x[i] = kind == 2 ? -inf : (float)(i % 5);
            if (kind < 2) x[kind ? 36 : 20] = kind ? inf : cuda_softmax_nan();
            CHECK_AT(cuda_softmax_is_nan((double)cuda_softmax_single(x, 37, kind == 3 ? 37 : 3, kind == 1 ? 0.1f : 0, t, 0)), kind);
            for (i = 0; i < 37; ++i) CHECK_AT(cuda_softmax_is_nan((double)x[i]), kind * 100 + i);
            for (i = 0; i < 37; ++i) x[i] = kind == 2 ? -inf : (float)(i % 5);
            if (kind < 2) x[kind ? 36 : 20] = kind ? inf : cuda_softmax_nan();
            CHECK_AT(cuda_softmax_is_nan((double)cuda_softmax_single(x, 37, kind == 3 ? INT32_MAX : 3, 0, t, 1)), kind);
        }
        for (i = 0; i < 37; ++i) x[i] = i == 5 ? 0 : -inf; /* one left */
        CHECK(fabs((double)cuda_softmax_single(x, 37, 5, 0, t, 0)) < 1e-9);
        for (i = 0; i < 37; ++i) CHECK_AT(x[i] == 0, i);
        for (i = 0; i < 37; ++i) x[i] = i < 3 ? 0 : -inf; /* a target that cannot be */
        CHECK(cuda_softmax_single(x, 37, 5, 0, t, 0) >= inf && fabs((double)x[0] - 1.0 / 3) < 2e-3 && x[5] == -1 && x[6] == 0);
        for (i = 0; i < 37; ++i) x[i] = i < 3 ? 0 : -inf; /* smoothing asks for all */
        CHECK(cuda_softmax_single(x, 37, 1, 0.1f, t, 0) >= inf);
        if (t == MEMOPT_TYPE_F16) continue; /* no such numbers */
        for (i = 0; i < 37; ++i) x[i] = i == 4 ? 1e30f : -1e30f;
        CHECK(fabs((double)cuda_softmax_single(x, 37, 4, 0, t, 1)) < 1e-9);
        CHECK(fabs((double)cuda_softmax_single(x, 37, 5, 0, t, 0) / 2e30 - 1) < 1e-2 && x[4] == 1 && x[5] == -1 && x[6] == 0);
        for (i = 0; i < 37; ++i) x[i] = i == 4 ? 3e38f : -3e38f; /* the difference is no float, the sum is not either */
        CHECK(cuda_softmax_single(x, 37, 5, 0, t, 1) >= inf && fabs((double)cuda_softmax_single(x, 37, 4, 0, t, 1)) < 1e-9);
        CHECK(cuda_softmax_parts > 1 || cuda_softmax_single(x, 37, 4, 0.1f, t, 0) < 1e38f); /* parts tell each other a float */
        x[0] = 123; /* a vocabulary of 1 */
        CHECK(cuda_softmax_single(x, 1, 0, 0.1f, t, 0) == 0 && x[0] == 0);
    }
}
static void cuda_softmax_denormals(void) { /* products with them are slow: there are none */
    float x[400]; int32_t target = 3, *d_target = (int32_t *)test_device(4); float *d = (float *)test_device(sizeof x); memopt_cross_entropy e; memopt_loss out; int i, some = 0;
    memset(&e, 0, sizeof e);
    for (i = 0; i < 400; ++i) x[i] = (float)i * -0.3f;
    test_put(d, x, sizeof x); test_put(d_target, &target, 4);
    e.rows = 1; e.vocabulary = 400; e.logits = d; e.targets = d_target; e.rule.scale = 1e-9;
    CHECK(cuda_softmax_entropy(&e, &out) == 0);
    test_get(x, d, sizeof x);
    for (i = 0; i < 400; ++i) {
        const uint32_t bits = memopt_i_float_bits(x[i]) & 0x7fffffffu;
        CHECK_AT(bits == 0 || bits >= 0x00800000u, i);
        some += bits != 0;
    }
    CHECK(some > 200 && some < 300);
}
/* Rows that are wrong, or ignored, or none at all, beside others; more rows than the block that counts has threads. */
static void cuda_softmax_rows(void) {
    enum { ROWS = 2111, N = 5 }; static float x[ROWS * N], losses[ROWS]; static int32_t targets[ROWS]; uint64_t seed = 6; size_t i, row, counted = 0; double total = 0; memopt_cross_entropy e; memopt_loss out, host;
    float *d = (float *)test_device(sizeof x), *d_losses = (float *)test_device(sizeof losses); int32_t *d_targets = (int32_t *)test_device(sizeof targets); memopt_ops o; int round;
    for (round = 0; round < 3; ++round) { /* as they come; with two targets that are none; all ignored, and NaN */
        for (i = 0; i < ROWS * N; ++i) x[i] = round == 2 ? cuda_softmax_nan() : cuda_softmax_normal(&seed) * 4;
        for (counted = 0, i = 0; i < ROWS; ++i) { targets[i] = round == 2 ? INT32_MIN : (int32_t)test_below(&seed, N + 2) - 2; if (round == 1 && (i == 77 || i == 2000)) targets[i] = i == 77 ? N : INT32_MAX; counted += targets[i] >= 0; }
        memset(&e, 0, sizeof e);
        e.rows = ROWS; e.vocabulary = N; e.logits = d; e.targets = d_targets; e.losses = d_losses;
        test_put(d, x, sizeof x); test_put(d_targets, targets, sizeof targets);
        CHECK(cuda_softmax_entropy(&e, &out) == 0 && out.counted == counted);
        if (round == 1) {
            static float y[ROWS * N];
            CHECK(cuda_softmax_is_nan(out.loss));
            test_get(losses, d_losses, sizeof losses); test_get(y, d, sizeof y);
            for (row = 0; row < ROWS; ++row) {
                CHECK_AT(cuda_softmax_is_nan((double)losses[row]) == (row == 77 || row == 2000), row);
                for (i = 0; i < N; ++i) CHECK_AT(cuda_softmax_is_nan((double)y[row * N + i]) == (row == 77 || row == 2000), row);
            }
            continue;
        }
        if (round == 2) { CHECK(cuda_softmax_zero(out.loss)); test_get(x, d, sizeof x); for (i = 0; i < ROWS * N; ++i) CHECK_AT(memopt_i_float_bits(x[i]) == 0, i); continue; }
        e.logits = x; e.targets = targets; e.losses = losses; /* the CPU's */
        memset(&o, 0, sizeof o);
        o.scratch_bytes = ROWS * 8; o.scratch = memopt_i_system_alloc(NULL, o.scratch_bytes, 64);
        memset(&host, 0, sizeof host);
        CHECK(memopt_cross_entropy_loss(&o, &e, &host) == MEMOPT_OK && host.counted == out.counted && fabs(host.loss - out.loss) < 1e-6);
        memopt_i_system_free(NULL, o.scratch, o.scratch_bytes, 64);
        for (row = 0; row < ROWS; ++row) total += (double)losses[row];
        CHECK(fabs(total / (double)counted - out.loss) < 1e-6);
    }
    memset(&e, 0, sizeof e); e.vocabulary = N; memset(&out, 0x5A, sizeof out); /* no rows */
    CHECK(cuda_softmax_entropy(&e, &out) == 0 && out.counted == 0 && cuda_softmax_zero(out.loss));
}
static void cuda_softmax_entropy_bad(void) {
    float host[64]; int32_t targets[8] = { 0, 1, 2, 3, 0, 0, 0, 0 }; int i; size_t k; float *d = (float *)test_device(256), *d_losses = (float *)test_device(32); int32_t *d_targets = (int32_t *)test_device(32); unsigned char *d_scratch = (unsigned char *)test_device(512); memopt_loss *d_out = (memopt_loss *)test_device(sizeof *d_out), before, after;
    for (k = 0; k < 64; ++k) host[k] = 7;
    test_put(d, host, 256); test_put(d_losses, host, 32); test_put(d_targets, targets, 32); test_get(&before, d_out, sizeof before);
    for (i = 0; i < 33; ++i) {
        memopt_cross_entropy e; memopt_cuda_ops o; memopt_cuda_status want = MEMOPT_ERR_ARGUMENT; size_t bytes = 7; const memopt_cross_entropy *p = &e; const memopt_cuda_ops *q = &o; int scratch_too = 1; void *to = d_out;
        memset(&e, 0, sizeof e); memset(&o, 0, sizeof o);
        o.d_scratch = d_scratch; o.scratch_bytes = 48;
        e.rows = 4; e.vocabulary = 5; e.stride = 6; e.logits = d; e.targets = d_targets; e.losses = d_losses;
        switch (i) {
        case 0: p = NULL; want = MEMOPT_CUDA_ERR_NULL; break;            case 1: e.vocabulary = 0; break;
        case 2: e.stride = 4; break;                                     case 3: e.type = (memopt_type)3; break;
        case 4: e.rule.scale = -1; break;                                case 5: e.rule.scale = HUGE_VAL; break;
        case 6: e.rule.smoothing = -0.1f; break;                         case 7: e.rule.smoothing = 1.01f; break;
        case 8: e.rule.smoothing = cuda_softmax_nan(); break;            case 9: e.rule.z_weight = -1; break;
        case 10: e.rule.z_weight = cuda_softmax_inf(); break;            case 11: e.rows = SIZE_MAX / 8; want = MEMOPT_ERR_OVERFLOW; break;
        case 12: e.stride = SIZE_MAX / 2; want = MEMOPT_ERR_OVERFLOW; break;
        case 13: e.rows = SIZE_MAX; e.type = MEMOPT_TYPE_BF16; e.vocabulary = e.stride = 1; want = MEMOPT_ERR_OVERFLOW; break;
        default: scratch_too = 0;
        }
        CHECK_AT(memopt_cuda_cross_entropy_scratch(NULL, p, &bytes) == (scratch_too ? want : 0) && bytes == (scratch_too ? 7u : 48u), i);
        switch (i) { /* what the question for scratch does not look at */
        case 14: e.logits = NULL; want = MEMOPT_CUDA_ERR_NULL; break;    case 15: e.logits = (char *)d + 2; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 16: e.targets = NULL; want = MEMOPT_CUDA_ERR_NULL; break;   case 17: e.targets = (const int32_t *)((const char *)d_targets + 1); want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 18: e.losses = (float *)((char *)d_losses + 2); want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 19: e.losses = d + 23; want = MEMOPT_CUDA_ERR_OVERLAP; break;
        case 20: e.targets = (const int32_t *)(const void *)(d + 20); want = MEMOPT_CUDA_ERR_OVERLAP; break;
        case 21: e.losses = (float *)(void *)d_targets; want = MEMOPT_CUDA_ERR_OVERLAP; break;
        case 22: to = NULL; want = MEMOPT_CUDA_ERR_NULL; break;          case 23: o.scratch_bytes = 47; want = MEMOPT_ERR_BUFFER; break;
        case 24: q = NULL; want = MEMOPT_ERR_BUFFER; break;              case 25: o.d_scratch = NULL; want = MEMOPT_CUDA_ERR_NULL; break;
        case 26: o.d_scratch = d_scratch + 16; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 27: e.logits = d_scratch; want = MEMOPT_CUDA_ERR_OVERLAP; break; case 28: to = (char *)d_out + 4; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 29: to = d; want = MEMOPT_CUDA_ERR_OVERLAP; break;          case 30: to = d_scratch; want = MEMOPT_CUDA_ERR_OVERLAP; break;
        case 31: e.losses = (float *)(void *)d_scratch; want = MEMOPT_CUDA_ERR_OVERLAP; break;
        case 32: e.type = MEMOPT_TYPE_BF16; e.logits = (char *)d + 1; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        default: break;
        }
        CHECK_AT(memopt_cuda_cross_entropy_loss(q, p, (memopt_loss *)to, NULL) == want, i);
        test_get(host, d, 256); for (k = 0; k < 64; ++k) CHECK_AT(host[k] == 7, i);
        test_get(host, d_losses, 32); for (k = 0; k < 8; ++k) CHECK_AT(host[k] == 7, i);
        test_get(&after, d_out, sizeof after); CHECK_AT(!memcmp(&after, &before, sizeof after), i);
        for (k = 0; k < 64; ++k) host[k] = 7;
    }
    CHECK(memopt_cuda_cross_entropy_scratch(NULL, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    { memopt_cross_entropy e; memset(&e, 0, sizeof e); e.vocabulary = 1; CHECK(memopt_cuda_cross_entropy_scratch(NULL, &e, NULL) == MEMOPT_CUDA_ERR_NULL); }
}
static void cuda_softmax_in_parts(void) {
    float x[40]; int i, kind;
    for (cuda_softmax_parts = 2; cuda_softmax_parts < 8; cuda_softmax_parts += 3) { /* 5: not all of a tree has two sides */
        cuda_softmax_cases(); cuda_softmax_scales(); cuda_softmax_special(); cuda_softmax_denormals(); cuda_softmax_rows();
        for (kind = 0; kind < 3; ++kind) { /* a part that is far below: its NaN is all rows'; -infinities alone; nothing at all of the rest */
            for (i = 0; i < 36; ++i) x[i] = i < 7 ? (kind == 1 ? -cuda_softmax_inf() : -3e4f) : 3e4f;
            if (!kind) x[2] = cuda_softmax_nan();
            { const double loss = (double)cuda_softmax_single(x, 36, 20, 0, MEMOPT_TYPE_F32, 0); CHECK_AT(kind ? fabs(loss - log(29.0)) < 1e-6 : cuda_softmax_is_nan(loss), kind); }
            for (i = 0; i < 36; ++i) CHECK_AT(kind ? fabs((double)x[i] - (i < 7 ? 0 : 1.0 / 29 - (i == 20))) < 1e-6 : cuda_softmax_is_nan((double)x[i]), i);
        }
    }
    cuda_softmax_parts = 1;
}
static void cuda_softmax_parts_bad(void) {
    static const memopt_cross_entropy_row ones = { 1, 1, 1, 1 }; int i; size_t k; float *d = (float *)test_device(256); int32_t targets[4] = { 0, 1, 2, 3 }, *d_targets = (int32_t *)test_device(16); unsigned char *d_scratch = (unsigned char *)test_device(512);
    memopt_loss *d_out = (memopt_loss *)test_device(sizeof *d_out); memopt_cross_entropy_row rows[8], *d_rows = (memopt_cross_entropy_row *)test_device(sizeof rows);
    test_put(d_targets, targets, sizeof targets);
    for (k = 0; k < 8; ++k) rows[k] = ones;
    test_put(d_rows, rows, sizeof rows);
    for (i = 0; i < 11; ++i) {
        memopt_cross_entropy e; memopt_cuda_ops o; memopt_cuda_status want = MEMOPT_ERR_ARGUMENT; void *to = d_rows;
        memset(&e, 0, sizeof e); memset(&o, 0, sizeof o);
        o.d_scratch = d_scratch; o.scratch_bytes = 48;
        e.rows = 4; e.vocabulary = 5; e.first = 3; e.whole = 8; e.logits = d; e.targets = d_targets;
        switch (i) {
        case 0: e.first = 4; break;                                      case 1: e.whole = 4; break;
        case 2: e.whole = 0; break;                                      case 3: e.keep_logits = 2; break;
        case 4: to = NULL; want = MEMOPT_CUDA_ERR_NULL; break;           case 5: to = (char *)d_rows + 2; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 6: to = d; want = MEMOPT_CUDA_ERR_OVERLAP; break;           case 7: to = (char *)d_targets - 48; want = MEMOPT_CUDA_ERR_OVERLAP; break;
        case 8: e.logits = NULL; want = MEMOPT_CUDA_ERR_NULL; break;     case 9: e.rows = SIZE_MAX / 8; want = MEMOPT_ERR_OVERFLOW; break;
        default: e.rows = 0; e.logits = NULL; e.targets = NULL; to = NULL; want = 0; break;
        }
        CHECK_AT(memopt_cuda_cross_entropy_measure(NULL, &e, (memopt_cross_entropy_row *)to, NULL) == want, i);
        CHECK_AT(memopt_cuda_cross_entropy_part(&o, &e, (memopt_cross_entropy_row *)to, d_out, NULL) == want, i);
        if (i == 10) CHECK(memopt_cuda_cross_entropy_part(NULL, &e, d_rows, d_out, NULL) == MEMOPT_ERR_BUFFER);
        if (i > 2) CHECK_AT(memopt_cuda_cross_entropy_loss(&o, &e, d_out, NULL) != 0, i); /* of a part */
        test_get(rows, d_rows, sizeof rows);
        for (k = 0; k < 8; ++k) CHECK_AT(!memcmp(&rows[k], &ones, sizeof ones), i);
    }
    CHECK(memopt_cuda_cross_entropy_join(NULL, 2, 4, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_cross_entropy_join(NULL, 2, 0, NULL) == 0);
    CHECK(memopt_cuda_cross_entropy_join((memopt_cross_entropy_row *)(void *)((char *)d_rows + 2), 2, 2, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_cross_entropy_join(d_rows, SIZE_MAX / 4, 8, NULL) == MEMOPT_ERR_OVERFLOW && memopt_cuda_cross_entropy_join(d_rows, 1, 8, NULL) == 0);
    test_device_free(0);
}
static void cuda_softmax_errors(void) {
#ifndef __CUDACC__
    float x[4] = { 1, 2, 3, 4 }, got[4]; int32_t target = 1; float *d = (float *)test_device(16); int32_t *d_target = (int32_t *)test_device(4); memopt_loss *d_out = (memopt_loss *)test_device(sizeof *d_out), out; memopt_cuda_ops o; memopt_cross_entropy e; memopt_softmax s; size_t k; int i;
    memset(&o, 0, sizeof o); memset(&e, 0, sizeof e); memset(&s, 0, sizeof s);
    o.d_scratch = test_device(24); o.scratch_bytes = 24;
    e.rows = 1; e.vocabulary = 4; e.logits = d; e.targets = d_target; s.rows = 1; s.columns = 4; s.input = s.output = d; s.grad_output = d;
    test_put(d_target, &target, 4);
    for (i = 0; i < 6; ++i) {
        const memopt_cuda_status want = i % 2 ? MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources : MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress;
        test_put(d, x, 16);
        if (i % 2) simulator_fail_launch(1); else simulator_pending_error(cudaErrorIllegalAddress);
        CHECK_AT((i < 2 ? memopt_cuda_cross_entropy_loss(&o, &e, d_out, NULL) : (i < 4 ? memopt_cuda_softmax_forward<> : memopt_cuda_softmax_backward<>)(NULL, &s, NULL)) == want, i);
        if (i % 2 == 0) { CHECK_AT(cudaPeekAtLastError() == cudaErrorIllegalAddress, i); simulator_pending_error(0); }
        CHECK_AT(cudaGetLastError() == cudaSuccess, i);
        test_get(got, d, 16); CHECK_AT(!memcmp(got, x, 16), i);
    }
    for (k = 1; k < 12; ++k) { /* any call of it fails: a status, or it managed without */
        memopt_cuda_status r; const size_t before = simulator_calls();
        test_put(d, x, 16);
        simulator_fail_call(k);
        r = memopt_cuda_cross_entropy_loss(&o, &e, d_out, NULL);
        simulator_fail_call(0);
        CHECK_AT(cudaGetLastError() == cudaSuccess, k);
        if (r) CHECK_AT(r == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources, k);
        else { test_get(&out, d_out, sizeof out); CHECK_AT(fabs(out.loss - 2.4401896985611957) < 1e-6, k); }
        (void)before;
    }
#else
    SKIP("errors on demand are the simulator's");
#endif
}

static void test_cuda_softmax(void) {
    RUN(cuda_softmax_definition);
    RUN(cuda_softmax_long);
    RUN(cuda_softmax_not_finite);
    RUN(cuda_softmax_huge);
    RUN(cuda_softmax_narrow);
    RUN(cuda_softmax_bad);
    RUN(cuda_softmax_cases);
    RUN(cuda_softmax_large);
    RUN(cuda_softmax_kept);
    RUN(cuda_softmax_rising);
    RUN(cuda_softmax_scales);
    RUN(cuda_softmax_special);
    RUN(cuda_softmax_denormals);
    RUN(cuda_softmax_rows);
    RUN(cuda_softmax_entropy_bad);
    RUN(cuda_softmax_in_parts);
    RUN(cuda_softmax_parts_bad);
    RUN(cuda_softmax_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_softmax(); return test_totals(); }
#endif
