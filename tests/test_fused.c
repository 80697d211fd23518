/* test_fused.c - passes from a text. Values are compared with plain C written here, an element at a time, and with the
   operators that do the same; then the bits at every level, for any workers; then texts, shapes and pointers that are
   refused, with the reason. */
#include "test.h"

static const memopt_type fused_types[3] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16 };
static volatile float fused_round; /* plain C without wider registers and without contraction */
static float fused_put(memopt_type type, void *data, size_t i, float x) { /* what memory then holds */
    uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy((unsigned char *)data + 4 * i, &x, 4); return x; }
    code = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
    memcpy((unsigned char *)data + 2 * i, &code, 2);
    return type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(code) : memopt_from_f16(code);
}
static float fused_get(memopt_type type, const void *data, size_t i) {
    float x; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, (const unsigned char *)data + 4 * i, 4); return x; }
    memcpy(&code, (const unsigned char *)data + 2 * i, 2);
    return type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(code) : memopt_from_f16(code);
}
static int fused_is_nan(float x) { return (memopt_i_float_bits(x) & 0x7fffffffu) > 0x7f800000u; }
static int fused_same(float a, float b) { return fused_is_nan(a) ? fused_is_nan(b) : memopt_i_float_bits(a) == memopt_i_float_bits(b); }
static void *fused_alloc(size_t bytes) {
    void *p = malloc(bytes + !bytes);
    if (!p) { printf("test_fused: out of memory\n"); exit(1); }
    return p;
}
/* Random elements from -2 to 2, sometimes what is hard: zeros, denormals, large, infinite, NaN. */
static void fused_fill(memopt_type type, void *data, size_t n, uint64_t seed, int hard) {
    static const uint32_t special[] = { 0, 0x80000000u, 1, 0x807fffffu, 0x00800000u, 0x7f7fffffu, 0xff7fffffu, 0x7f800000u,
        0xff800000u, 0x7fc00000u, 0xffc00001u, 0x33800000u, 0x41800000u, 0xc2aeac50u, 0x42b17218u };
    size_t i;
    for (i = 0; i < n; ++i) {
        float x = (float)(test_random(&seed) >> 40) / 4194304.0f - 2;
        if (hard && test_below(&seed, 4) == 0) x = memopt_i_bits_float(special[test_below(&seed, sizeof special / sizeof *special)]);
        (void)fused_put(type, data, i, x);
    }
}
static memopt_fused_array fused_array(const char *name, memopt_type type, memopt_fused_shape shape, const void *input, void *output) {
    memopt_fused_array a;
    memset(&a, 0, sizeof a);
    a.name = name; a.type = type; a.shape = shape; a.input = input; a.output = output;
    return a;
}
static memopt_fused fused_of(const char *text, const memopt_fused_array *arrays, size_t count, size_t rows, size_t columns) {
    memopt_fused f;
    memset(&f, 0, sizeof f);
    f.text = text; f.arrays = arrays; f.array_count = count; f.rows = rows; f.columns = columns;
    return f;
}
static memopt_error fused_error;
static memopt_ops fused_ops(const memopt_threads *threads) {
    memopt_ops o;
    memset(&o, 0, sizeof o);
    o.threads = threads; o.error = &fused_error;
    return o;
}
static int fused_runs(const memopt_threads *threads, const memopt_fused *f) {
    const memopt_ops o = fused_ops(threads); char line[256] = "";
    if (memopt_fused_run(&o, f) == MEMOPT_OK) return 1;
    (void)memopt_error_text(&fused_error, line, sizeof line, NULL);
    printf("'%s': %s\n", f->text, line);
    return 0;
}

/* ---- the definition: x and r of each element, b of the column, c of the row, s of all ---- */
typedef struct fused_in { float x, r, b, c, s; } fused_in;
static float fused_v(float x) { fused_round = x; return fused_round; }
static float fused_want_move(const fused_in *i) { return i->x; }
static float fused_want_number(const fused_in *i) { (void)i; return 2.5f; }
static float fused_want_add(const fused_in *i) { return fused_v(i->x + i->r); }
static float fused_want_sub(const fused_in *i) { return fused_v(i->x - i->r); }
static float fused_want_mul(const fused_in *i) { return fused_v(i->x * i->r); }
static float fused_want_div(const fused_in *i) { return fused_v(i->x / i->r); }
static float fused_want_broadcast(const fused_in *i) { return fused_v(fused_v(fused_v(i->x - i->c) / i->s) - i->b); }
static float fused_want_fma(const fused_in *i) { return fmaf(i->x, i->s, i->b); }
static float fused_want_fma_after(const fused_in *i) { return fmaf(i->x, i->s, i->b); }
static float fused_want_less(const fused_in *i) { return fmaf(i->x, i->s, -i->b); }
static float fused_want_less_product(const fused_in *i) { return fmaf(-i->x, i->s, i->b); }
static float fused_want_two(const fused_in *i) { return fmaf(i->c, i->r, fused_v(i->x * i->s)); }
static float fused_want_two_less(const fused_in *i) { return fmaf(-i->c, i->r, fused_v(i->x * i->s)); }
static float fused_want_three(const fused_in *i) { return fmaf(fused_v(i->x * i->r), i->s, i->b); }
static float fused_want_left(const fused_in *i) { return fused_v(fused_v(i->x - i->r) - i->b); }
static float fused_want_left_div(const fused_in *i) { return fused_v(fused_v(i->x / i->r) / i->s); }
static float fused_want_paren(const fused_in *i) { return fused_v(fused_v(i->x + i->r) * fused_v(i->x - i->b)); }
static float fused_want_minus(const fused_in *i) { return -i->x; }
static float fused_want_minus_product(const fused_in *i) { return fused_v(-i->x * i->r); }
static float fused_want_min(const fused_in *i) { return fused_is_nan(i->x) ? i->x : i->x < i->r ? i->x : i->r; }
static float fused_want_max(const fused_in *i) { return fused_is_nan(i->x) ? i->x : i->x > i->r ? i->x : i->r; }
static float fused_want_abs(const fused_in *i) { return memopt_i_bits_float(memopt_i_float_bits(i->x) & 0x7fffffffu); }
static float fused_want_sqrt(const fused_in *i) { return fused_v(sqrtf(fused_v(i->x * i->x))); }
static float fused_want_relu(const fused_in *i) { return i->x < 0 ? 0 : i->x; }
static float fused_want_relu_gradient(const fused_in *i) { return i->x > 0 ? i->r : 0; }
static float fused_want_named(const fused_in *i) { return fmaf(fused_v(i->x + i->r), fused_v(i->x + i->r), fused_v(i->x + i->r)); }
static float fused_want_deep(const fused_in *i) { return fused_v(i->x + fused_v(i->r + fused_v(i->x + fused_v(i->r + fused_v(i->x + i->r))))); }
static float fused_want_numbers(const fused_in *i) { return fmaf(i->x, -0.5f, fused_v(fused_v(1e-3f) / 3)); /* a constant may be double */ }
static float fused_want_wide(const fused_in *i) { /* four values at once */
    return fused_v(fused_v(fused_v(i->x + i->r) / fused_v(i->x - i->r)) / fused_v(fused_v(i->x + i->b) / fused_v(i->x - i->b)));
}
static float fused_want_double_x(const fused_in *i) { return fused_v(i->x + i->x); }
static float fused_want_again(const fused_in *i) {
    const float t = fused_v(i->x + i->r);
    return fused_v(fused_v(fused_v(t / i->s) / fused_v(i->x - i->b)) + t);
}
typedef struct fused_case { const char *text; float (*want)(const fused_in *in); } fused_case;
static const fused_case fused_cases[] = {
    { "y = x", fused_want_move }, { "y=2.5", fused_want_number }, { "y = x + r", fused_want_add }, { "y = x - r", fused_want_sub }, { "y = x * r", fused_want_mul },
    { "y = x / r", fused_want_div }, { "y = (x - c) / s - b", fused_want_broadcast }, { "y = x * s + b", fused_want_fma }, { "y = b + x * s", fused_want_fma_after },
    { "y = x * s - b", fused_want_less }, { "y = b - x * s", fused_want_less_product }, { "y = x * s + c * r", fused_want_two },
    { "y = x * s - (c * r)", fused_want_two_less }, { "y = x * r * s + b", fused_want_three }, { "y = x - r - b", fused_want_left },
    { "y = x / r / s", fused_want_left_div }, { "y = (x + r) * (x - b)", fused_want_paren }, { "y = -x", fused_want_minus }, { "y = -(-x)", fused_want_move },
    { "y = -x * r", fused_want_minus_product }, { "y = min(x, r)", fused_want_min }, { "y = max(x, r)", fused_want_max }, { "y = abs(x)", fused_want_abs },
    { "y = sqrt(x * x)", fused_want_sqrt }, { "y = relu(x)", fused_want_relu }, { "y = relu_gradient(x, r)", fused_want_relu_gradient },
    { "sum = x + r; y = sum * sum + sum;", fused_want_named }, { "y = x+(r+(x+(r+(x+r))))", fused_want_deep },
    { "y = x * -.5e0 + 1E-3 / 3.", fused_want_numbers }, { "y = ((x + r) / (x - r)) / ((x + b) / (x - b))", fused_want_wide },
    { "\ty =\r\n ( ( x ) ) ; ", fused_want_move }, { "a = x; y = a", fused_want_move }, { "a = x; b2 = a; y = b2 + r", fused_want_add },
    { "a = x; b2 = a; y = b2 + a", fused_want_double_x }, { "t = x + r; y = t / s / (x - b) + t", fused_want_again } };
enum { FUSED_CASES = sizeof fused_cases / sizeof *fused_cases };

/* A case with types of x, r and y, at a stride, at a level. */
static void fused_check_case(const fused_case *k, const memopt_type *types, size_t rows, size_t columns, size_t pad, int hard, int level) {
    const size_t stride = columns + pad, n = rows * stride; size_t i, j, count = 0; uint64_t seed = columns * 31 + rows;
    void *x = fused_alloc(n * 4), *r = fused_alloc(n * 4), *b = fused_alloc(columns * 4), *c = fused_alloc(rows * 4);
    unsigned char *y = (unsigned char *)fused_alloc(n * 4 + 4), *before = (unsigned char *)fused_alloc(n * 4 + 4), s[4];
    memopt_fused_array all[6], used[6]; memopt_fused f; const memopt_threads threads = test_level(level); const size_t size = memopt_type_bytes(types[2]);
    static const char *const words[6] = { "x", "r", "b", "c", "s", "y" };
    fused_fill(types[0], x, n, seed, hard); fused_fill(types[1], r, n, seed + 1, hard); fused_fill(types[1], b, columns, seed + 2, hard);
    fused_fill(types[0], c, rows, seed + 3, hard); (void)fused_put(types[1], s, 0, 0.75f);
    memset(y, 0x5a, n * 4 + 4); memcpy(before, y, n * 4 + 4);
    all[0] = fused_array("x", types[0], MEMOPT_FUSED_EACH, x, NULL); all[1] = fused_array("r", types[1], MEMOPT_FUSED_EACH, r, NULL);
    all[2] = fused_array("b", types[1], MEMOPT_FUSED_ROW, b, NULL); all[3] = fused_array("c", types[0], MEMOPT_FUSED_COLUMN, c, NULL);
    all[4] = fused_array("s", types[1], MEMOPT_FUSED_ONE, s, NULL); all[5] = fused_array("y", types[2], MEMOPT_FUSED_EACH, NULL, y);
    all[0].stride = all[1].stride = all[5].stride = stride;
    for (i = 0; i < 6; ++i) { /* the arrays whose name stands alone in the text */
        const char *p = k->text; int found = 0;
        while (!found && (p = strstr(p, words[i])) != NULL) {
            found = (p == k->text || !memopt_i_fused_name_length(p - 1)) && memopt_i_fused_name_length(p) == 1;
            ++p;
        }
        if (found) used[count++] = all[i];
    }
    f = fused_of(k->text, used, count, rows, columns);
    CHECK_AT(fused_runs(&threads, &f), level);
    for (i = 0; i < rows; ++i) {
        for (j = 0; j < columns; ++j) {
            fused_in in; float want, got; unsigned char place[4];
            in.x = fused_get(types[0], x, i * stride + j); in.r = fused_get(types[1], r, i * stride + j);
            in.b = fused_get(types[1], b, j); in.c = fused_get(types[0], c, i); in.s = 0.75f;
            want = fused_put(types[2], place, 0, k->want(&in)); got = fused_get(types[2], y, i * stride + j);
            if (!fused_same(want, got)) {
                if (test_failures < 20) printf("'%s' level %d types %d %d %d, row %d of %d, column %d of %d: %g, want %g\n", k->text, level, (int)types[0], (int)types[1],
                       (int)types[2], (int)i, (int)rows, (int)j, (int)columns, (double)got, (double)want);
                CHECK_AT(0, level);
            }
        }
        CHECK_AT(memcmp(y + (i * stride + columns) * size, before, pad * size) == 0, i); /* between the rows, and behind */
    }
    CHECK(memcmp(y + n * size, before, 4) == 0);
    free(x); free(r); free(b); free(c); free(y); free(before);
}
static void fused_arithmetic(void) {
    static const size_t columns[] = { 1, 15, 16, 17, 33, 63, 64, 80, 1023, 1024, 1025, 2100 }; size_t i, k; int level;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (k = 0; k < FUSED_CASES; ++k) {
            memopt_type types[3];
            for (i = 0; i < 27; ++i) { /* all types; sizes and strides in turns */
                types[0] = fused_types[i % 3]; types[1] = fused_types[i / 3 % 3]; types[2] = fused_types[i / 9];
                fused_check_case(fused_cases + k, types, 1 + (i + k) % 3, columns[(i * 5 + k) % 12], i % 2 ? 0 : 1 + i % 5, i % 3 == 1, level);
            }
            types[0] = types[1] = types[2] = MEMOPT_TYPE_F32;
            for (i = 0; i < 12; ++i) fused_check_case(fused_cases + k, types, 2, columns[i], i % 2, 1, level);
        }
}

/* ---- functions that are no plain C: against double, then the bits of the definition ---- */
static double fused_want_double(int which, double x) {
    switch (which) {
    case 0: return exp(x);
    case 1: return 1 / (1 + exp(-x));
    case 2: return x / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
    return x / (1 + exp(-x));
}
static void fused_functions(void) {
    static const char *const texts[4] = { "y = exp(x)", "y = sigmoid(x)", "y = gelu(x)", "y = silu(x)" };
    enum { N = 4000 }; float *x = (float *)fused_alloc(N * 4), *y = (float *)fused_alloc(N * 4), *first = (float *)fused_alloc(N * 4);
    int which, level; size_t i;
    for (i = 0; i < N; ++i) x[i] = ((float)i - N / 2) * 0.05f;
    x[0] = memopt_i_bits_float(0x7fc00000u); x[1] = memopt_i_bits_float(0x7f800000u); x[2] = memopt_i_bits_float(0xff800000u);
    for (which = 0; which < 4; ++which)
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            const memopt_threads threads = test_level(level); memopt_fused_array a[2]; memopt_fused f;
            a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, x, NULL); a[1] = fused_array("y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, y);
            f = fused_of(texts[which], a, 2, 1, N);
            CHECK(fused_runs(&threads, &f));
            if (level == MEMOPT_SIMD_SCALAR) memcpy(first, y, N * 4);
            CHECK_AT(fused_is_nan(y[0]) && fused_is_nan(first[0]) && memcmp(first + 1, y + 1, (N - 1) * 4) == 0, level);
            for (i = 3; i < N; ++i) {
                const double want = fused_want_double(which, (double)x[i]);
                if (want < 1e38 && fabs(want) > 1e-28) CHECK_AT(fabs((double)y[i] - want) <= 4e-6 * fabs(want) + (which > 1 ? 1e-26 : 0), i);
                else CHECK_AT((double)y[i] >= 1e38 || fabs((double)y[i]) <= 1e-27, i);
            }
            if (which == 0) CHECK(y[1] > 3e38f && memopt_i_float_bits(y[2]) == 0);
            if (which == 1) CHECK(y[1] > 0.9999999f && y[1] < 1.0000001f && memopt_i_float_bits(y[2]) == 0);
        }
    free(x); free(y); free(first);
}

/* ---- the operators of this library that do the same ---- */
static void fused_like_operators_of(memopt_type type, int level, size_t rows, size_t columns, uint64_t first) {
    const size_t n = rows * columns; const memopt_threads threads = test_level(level); const memopt_ops o = fused_ops(&threads);
    void *x = fused_alloc(n * 4), *r = fused_alloc(n * 4), *y = fused_alloc(n * 4), *g = fused_alloc(n * 4); float bias[200], scale = 1.5f;
    float *z = (float *)fused_alloc(n * 4), *a = (float *)fused_alloc(n * 4); memopt_fused_array list[6]; memopt_fused f; size_t i;
    memopt_activation_args act; memopt_dropout d; unsigned char place[4];
    fused_fill(type, x, n, 1, 0); fused_fill(type, r, n, 2, 0); fused_fill(MEMOPT_TYPE_F32, bias, columns, 3, 0);
    list[0] = fused_array("x", type, MEMOPT_FUSED_EACH, x, NULL); list[1] = fused_array("residual", type, MEMOPT_FUSED_EACH, r, NULL);
    list[2] = fused_array("scale", MEMOPT_TYPE_F32, MEMOPT_FUSED_ONE, &scale, NULL);
    list[3] = fused_array("bias", MEMOPT_TYPE_F32, MEMOPT_FUSED_ROW, bias, NULL); list[4] = fused_array("y", type, MEMOPT_FUSED_EACH, NULL, y);
    f = fused_of("y = residual + dropout(gelu(x * scale + bias))", list, 5, rows, columns);
    f.rate = 0.3f; f.noise = memopt_noise_make(7, 8); f.first = first;
    CHECK(fused_runs(&threads, &f));
    memset(&act, 0, sizeof act); memset(&d, 0, sizeof d);
    act.n = d.n = n; act.activation = MEMOPT_ACTIVATION_GELU; act.input = z; act.output = act.grad_input = a; act.grad_output = g;
    d.rate = 0.3f; d.noise = f.noise; d.first = first; d.input = a; d.residual = g; d.output = a;
    for (i = 0; i < n; ++i) { z[i] = fmaf(fused_get(type, x, i), scale, bias[i % columns]); ((float *)g)[i] = fused_get(type, r, i); }
    CHECK(memopt_activation_forward(&o, &act) == MEMOPT_OK && memopt_dropout_forward(&o, &d) == MEMOPT_OK);
    for (i = 0; i < n; ++i) CHECK_AT(fused_same(fused_put(type, place, 0, a[i]), fused_get(type, y, i)), i);
    list[1] = fused_array("dy", type, MEMOPT_FUSED_EACH, r, NULL); /* backward; in place of its gradient */
    list[4] = fused_array("dx", type, MEMOPT_FUSED_EACH, NULL, r);
    f.text = "dx = gelu_gradient(x * scale + bias, dropout(dy)) * scale";
    CHECK(fused_runs(&threads, &f));
    d.grad_output = g; d.grad_input = g; act.output = NULL; act.grad_input = a;
    CHECK(memopt_dropout_backward(&o, &d) == MEMOPT_OK && memopt_activation_backward(&o, &act) == MEMOPT_OK);
    for (i = 0; i < n; ++i) CHECK_AT(fused_same(fused_put(type, place, 0, fused_v(a[i] * scale)), fused_get(type, r, i)), i);
    f.text = "dx = silu_gradient(dy, x) + dropout(x) - dropout(dy) * scale"; f.array_count = 4; list[3] = list[4];
    for (i = 0; i < n; ++i) { z[i] = fused_get(type, r, i); ((float *)g)[i] = a[i] = fused_get(type, x, i); }
    CHECK(fused_runs(&threads, &f));
    act.activation = MEMOPT_ACTIVATION_SILU; act.grad_output = a; d.input = g; d.residual = a; d.output = g; /* silu' x, then + dropout */
    CHECK(memopt_activation_backward(&o, &act) == MEMOPT_OK && memopt_dropout_forward(&o, &d) == MEMOPT_OK);
    d.input = d.output = z; d.residual = NULL;
    CHECK(memopt_dropout_forward(&o, &d) == MEMOPT_OK);
    for (i = 0; i < n; ++i) CHECK_AT(fused_same(fused_put(type, place, 0, fmaf(-z[i], scale, ((float *)g)[i])), fused_get(type, r, i)), i);
    for (i = 0; i < 3; ++i) { /* what is added is not rounded before, on either side; what is taken off is */
        static const char *const texts[3] = { "dx = dropout(x) + dy", "dx = dropout(x) - dy", "dx = dy - dropout(x)" }; size_t j;
        f.text = texts[i]; list[2] = list[4]; f.array_count = 3;
        for (j = 0; j < n; ++j) { z[j] = fused_get(type, x, j); a[j] = fused_get(type, r, j); }
        CHECK(fused_runs(&threads, &f));
        d.input = z; d.output = z; d.residual = i ? NULL : a;
        CHECK(memopt_dropout_forward(&o, &d) == MEMOPT_OK);
        for (j = 0; j < n; ++j)
            CHECK_AT(fused_same(fused_put(type, place, 0, i == 0 ? z[j] : fused_v(i == 1 ? z[j] - a[j] : a[j] - z[j])), fused_get(type, r, j)), j);
    }
    free(x); free(r); free(y); free(g); free(z); free(a);
}
static void fused_like_operators(void) {
    int level, t;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (t = 0; t < 3; ++t) {
            fused_like_operators_of(fused_types[t], level, 9, 200, 0);
            fused_like_operators_of(fused_types[t], level, 40, 37, 5);
            fused_like_operators_of(fused_types[t], level, 9, 192, 64); /* whole groups of 32: bf16 in pairs */
            fused_like_operators_of(fused_types[t], level, 5, 160, ((uint64_t)1 << 33) - 320);
            fused_like_operators_of(fused_types[t], level, 7, 130, ((uint64_t)1 << 33) - 300); /* the noise's keys change there */
        }
}

/* ---- NaN from bf16 to bf16: one of any bits stays one, through what rounds without looking for it ---- */
static void fused_nan(void) {
    enum { N = 77 }; uint16_t x[N], y[N]; int level; size_t i, k; const float s = memopt_i_bits_float(0x7fffffffu); static const uint16_t nans[2] = { 0x7fff, 0xff81 };
    static const char *const texts[] = { "y = x * s", "y = min(x, x) + x", "y = max(x, x) * x", "y = x", "y = relu(x)", "y = -x", "y = gelu(x)", "y = abs(x) + x", "y = silu_gradient(x, x)" };
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (k = 0; k < sizeof texts / sizeof *texts; ++k) {
            const memopt_threads threads = test_level(level); memopt_fused_array a[3]; memopt_fused f;
            for (i = 0; i < N; ++i) x[i] = k && i % 3 ? nans[i % 3 - 1] : (uint16_t)(0x3f80 + i);
            a[0] = fused_array("x", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, x, NULL); a[1] = fused_array("y", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, NULL, y);
            a[2] = fused_array("s", MEMOPT_TYPE_F32, MEMOPT_FUSED_ONE, &s, NULL);
            f = fused_of(texts[k], a, k ? 2 : 3, 1, N);
            CHECK_AT(fused_runs(&threads, &f), level);
            for (i = 0; i < N; ++i) CHECK_AT(((y[i] & 0x7fff) > 0x7f80) == (!k || i % 3), i);
        }
}

/* ---- sums and maxima of rows ---- */
static void fused_rows_of(memopt_type type, memopt_type to, size_t rows, size_t columns, int hard, int level) {
    const memopt_threads threads = test_level(level); void *x = fused_alloc(rows * columns * 4); memopt_fused_array a[6]; memopt_fused f;
    unsigned char sum[400], max[400], twice[400], place[4]; float y[4000]; size_t i, j, k;
    const memopt_type own = type == MEMOPT_TYPE_BF16 ? type : MEMOPT_TYPE_F32; /* of y: twice a bf16 is one */
    fused_fill(type, x, rows * columns, columns, hard);
    for (i = 0; i < rows * columns && !hard && type != MEMOPT_TYPE_F16; ++i) /* of many sizes, so that the order of a sum is seen */
        (void)fused_put(type, x, i, fused_get(type, x, i) * (float)((uint32_t)1 << i * 7 % 31));
    memset(sum, 0x5a, 400); memset(max, 0x5a, 400); memset(twice, 0x5a, 400);
    a[0] = fused_array("x", type, MEMOPT_FUSED_EACH, x, NULL); a[1] = fused_array("sum", to, MEMOPT_FUSED_COLUMN, NULL, sum);
    a[2] = fused_array("max", to, MEMOPT_FUSED_COLUMN, NULL, max); a[3] = fused_array("twice", to, MEMOPT_FUSED_COLUMN, NULL, twice);
    a[4] = fused_array("y", own, MEMOPT_FUSED_EACH, NULL, y);
    f = fused_of("sum = row_sum(x); y = x + x; max = row_max(-x); twice = row_sum(y)", a, 5, rows, columns);
    CHECK(fused_runs(&threads, &f));
    for (i = 0; i < rows; ++i) {
        float lanes[2][16], most = memopt_i_bits_float(0xff800000u); int nan = 0;
        memset(lanes, 0, sizeof lanes);
        for (j = 0; j < columns; ++j) {
            const float v = fused_get(type, x, i * columns + j), w = fused_v(v + v);
            lanes[0][j % 16] = fused_v(lanes[0][j % 16] + v); lanes[1][j % 16] = fused_v(lanes[1][j % 16] + w);
            if (-v > most) most = -v;
            nan |= fused_is_nan(v);
            CHECK_AT(fused_same(fused_get(own, y, i * columns + j), w), j);
        }
        for (k = 8; k; k /= 2) for (j = 0; j < k; ++j) {
            lanes[0][j] = fused_v(lanes[0][j] + lanes[0][j + k]); lanes[1][j] = fused_v(lanes[1][j] + lanes[1][j + k]);
        }
        if (nan) most = memopt_i_bits_float(0x7fc00000u);
        CHECK_AT(fused_same(fused_put(to, place, 0, lanes[0][0]), fused_get(to, sum, i)), columns);
        CHECK_AT(fused_same(fused_put(to, place, 0, lanes[1][0]), fused_get(to, twice, i)), columns);
        CHECK_AT(fused_same(fused_put(to, place, 0, fused_v(most + 0.0f)), fused_get(to, max, i)), columns);
    }
    CHECK(sum[rows * memopt_type_bytes(to)] == 0x5a && max[rows * memopt_type_bytes(to)] == 0x5a);
    free(x);
}
static void fused_rows(void) {
    static const size_t columns[] = { 1, 16, 31, 1024, 1025, 1000, 0 }; size_t i, t; int level;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (i = 0; i < 7; ++i)
            for (t = 0; t < 18; ++t) fused_rows_of(fused_types[t % 3], fused_types[t / 3 % 3], columns[i] > 500 ? 3 : 20, columns[i], t / 9 == 1, level);
}

/* ---- the same memory twice, and side by side ---- */
static void fused_in_place(void) {
    float x[300], y[300], want[300], s[3] = { 1, 2, 3 }; uint16_t h[300]; size_t i; memopt_fused_array a[4]; memopt_fused f;
    fused_fill(MEMOPT_TYPE_F32, x, 300, 5, 0);
    for (i = 0; i < 300; ++i) { want[i] = fused_v(fused_v(x[i] + 1) * fused_v(x[i] + 1)); y[i] = x[i]; }
    a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, y, y);
    f = fused_of("x = x + 1; z = x * x; x2 = z", a, 1, 3, 100);
    a[1] = fused_array("z", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, want); f.array_count = 2; f.text = "x = (x + 1) * (x + 1)"; f.array_count = 1;
    CHECK(fused_runs(NULL, &f) && memcmp(y, want, sizeof y) == 0);
    memcpy(y, x, sizeof y); /* two names for it, and what is assigned is read: as memory holds it */
    a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, y, NULL); a[1] = fused_array("y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, y);
    f.text = "y = x + 1; t = x * x"; f.array_count = 2; a[2] = fused_array("t", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, x); f.array_count = 3;
    CHECK(fused_runs(NULL, &f) && memcmp(x, want, sizeof x) == 0);
    a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, y, NULL); a[1] = fused_array("h", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, h, h);
    a[2] = fused_array("t", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, x);
    f.text = "v = x / 3; h = v; t = h - v"; /* what rounding took */
    CHECK(fused_runs(NULL, &f));
    for (i = 0; i < 300; ++i) {
        const float v = fused_v(y[i] / 3);
        CHECK_AT(fused_same(x[i], fused_v(memopt_from_bf16(memopt_to_bf16(v)) - v)), i);
    }
    a[0] = fused_array("gate", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, y, y); a[1] = fused_array("up", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, y + 50, y + 50);
    a[0].stride = a[1].stride = 100; memcpy(x, y, sizeof x); f = fused_of("g = gate; gate = up; up = g", a, 2, 3, 50);
    CHECK(fused_runs(NULL, &f));
    for (i = 0; i < 300; ++i) CHECK_AT(fused_same(y[i], x[i % 100 < 50 ? i + 50 : i - 50]), i);
    a[0] = fused_array("s", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, s, s); a[1] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, y, NULL);
    f = fused_of("s = row_sum(x * 0 + s)", a, 2, 3, 10); /* the old number of the row is read, the new one written behind */
    CHECK(fused_runs(NULL, &f) && s[0] > 9.9f && s[0] < 10.1f && s[2] > 29.9f && s[2] < 30.1f);
}

/* Two arrays anywhere in one block: refused if and only if they share a byte and are not the same elements; else what is
   assigned is what a loop makes, and nothing else has changed. */
static void fused_anywhere(void) {
    enum { BYTES = 192 }; union { float align; unsigned char b[BYTES]; } was, is; unsigned char map[BYTES]; uint64_t seed = 7; size_t i, k, r, c, b, shared, refused = 0, beside = 0;
    for (i = 0; i < 60000; ++i) {
        const size_t rows = test_below(&seed, 6), columns = test_below(&seed, 5); memopt_fused_array a[2]; size_t at[2], step[2]; memopt_fused f; memopt_status s;
        const memopt_threads t = test_level(i % 2 ? MEMOPT_SIMD_SCALAR : memopt_simd_best()); const memopt_ops o = fused_ops(&t); int same;
        for (k = 0; k < 2; ++k) {
            const memopt_type type = test_below(&seed, 2) ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16; const size_t size = memopt_type_bytes(type);
            a[k] = fused_array(k ? "y" : "x", type, k ? MEMOPT_FUSED_EACH : (memopt_fused_shape)(test_below(&seed, 2) ? 0 : test_below(&seed, 4)), NULL, NULL);
            step[k] = a[k].shape == MEMOPT_FUSED_EACH ? a[k].stride = columns + test_below(&seed, 4) : columns;
            if (!columns) step[k] = a[k].stride = a[k].shape == MEMOPT_FUSED_EACH ? 1 : 0;
            at[k] = test_below(&seed, 12) * size;
        }
        a[0].input = is.b + at[0]; a[1].output = is.b + at[1];
        memset(map, 0, sizeof map);
        for (shared = k = 0; k < 2; ++k) for (r = 0; r < rows; ++r) for (c = 0; c < columns; ++c) {
            const size_t size = memopt_type_bytes(a[k].type), n = a[k].shape == MEMOPT_FUSED_EACH ? r * step[k] + c : a[k].shape == MEMOPT_FUSED_ROW ? c : a[k].shape == MEMOPT_FUSED_COLUMN ? r : 0;
            for (b = 0; b < size; ++b) { shared |= k & map[at[k] + n * size + b]; map[at[k] + n * size + b] |= !k; }
        }
        same = at[0] == at[1] && a[0].type == a[1].type && a[0].shape == a[1].shape && step[0] == step[1];
        for (b = 0; b < BYTES; ++b) was.b[b] = (unsigned char)(0x38 + test_below(&seed, 16)); /* a number in any type */
        is = was; f = fused_of("y = x", a, 2, rows, columns);
        s = memopt_fused_run(&o, &f);
        CHECK_AT(s == (shared && !same ? MEMOPT_ERR_ARGUMENT : MEMOPT_OK), i);
        if (s) CHECK_AT(test_error_says(fused_error, MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0"), i);
        refused += s != MEMOPT_OK;
        beside += !s && rows > 1 && columns && !same && at[0] < at[1] + rows * step[1] * memopt_type_bytes(a[1].type) && at[1] < at[0] + rows * step[0] * memopt_type_bytes(a[0].type);
        for (r = 0; !s && r < rows; ++r) for (c = 0; c < columns; ++c) {
            const size_t n = a[0].shape == MEMOPT_FUSED_EACH ? r * step[0] + c : a[0].shape == MEMOPT_FUSED_ROW ? c : a[0].shape == MEMOPT_FUSED_COLUMN ? r : 0;
            const unsigned char *from = was.b + at[0] + n * memopt_type_bytes(a[0].type); unsigned char *to = was.b + at[1] + (r * step[1] + c) * memopt_type_bytes(a[1].type);
            uint16_t h; float v; memcpy(&h, from, 2); memcpy(&v, from, sizeof(float) * (a[0].type == MEMOPT_TYPE_F32));
            if (a[0].type == MEMOPT_TYPE_BF16) v = memopt_from_bf16(h);
            h = memopt_to_bf16(v);
            if (a[1].type == MEMOPT_TYPE_F32) memcpy(to, &v, 4); else memcpy(to, &h, 2);
        }
        CHECK_AT(!memcmp(was.b, is.b, BYTES), i);
    }
    CHECK(refused > 3000 && beside > 3000);
}

/* ---- any workers, long rows, results past the cache ---- */
static void fused_workers(void) {
    enum { ROWS = 5, COLUMNS = 150001, N = ROWS * COLUMNS }; uint16_t *x = (uint16_t *)fused_alloc(N * 2), *first = (uint16_t *)fused_alloc(N * 2);
    uint16_t *y = (uint16_t *)fused_alloc(N * 2 + 128), *bias = (uint16_t *)fused_alloc(COLUMNS * 2); float sums[ROWS], first_sums[ROWS]; int level, workers, kind;
    static const char *const texts[3] = { "y = dropout(silu(x + bias))", "y = dropout(silu(x))", "y = dropout(silu(x + bias)); sum = row_sum(x / 3)" };
    fused_fill(MEMOPT_TYPE_BF16, x, N, 1, 0); fused_fill(MEMOPT_TYPE_BF16, bias, COLUMNS, 2, 0);
    for (kind = 0; kind < 3; ++kind)
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
            for (workers = 0; workers < 8; workers += 3) {
                test_worker_set set; const memopt_threads threads = test_workers(&set, workers, level); memopt_fused_array a[4]; memopt_fused f; size_t n = 0;
                if (level == MEMOPT_SIMD_SCALAR && workers > 3) continue;
                if ((level != MEMOPT_SIMD_SCALAR || workers) && test_is_passed_over()) continue;
                a[n++] = fused_array("x", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, x, NULL); a[n++] = fused_array("y", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, NULL, y);
                if (kind != 1) a[n++] = fused_array("bias", MEMOPT_TYPE_BF16, MEMOPT_FUSED_ROW, bias, NULL);
                if (kind == 2) a[n++] = fused_array("sum", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, sums);
                f = fused_of(texts[kind], a, n, ROWS, COLUMNS); f.rate = 0.5f; f.noise = memopt_noise_make(1, 1);
                memset(y, 0, N * 2); memset(sums, 0, sizeof sums);
                CHECK(fused_runs(&threads, &f));
                if (workers) CHECK_AT(set.chunks == (kind == 0 ? 15u : kind == 1 ? 12u : 5u), set.chunks);
                if (level == MEMOPT_SIMD_SCALAR && !workers) { memcpy(first, y, N * 2); memcpy(first_sums, sums, sizeof sums); }
                CHECK_AT(memcmp(first, y, N * 2) == 0, level * 10 + workers);
                CHECK_AT(kind < 2 || memcmp(first_sums, sums, sizeof sums) == 0, level * 10 + workers);
            }
    free(x); free(first); free(y); free(bias);
}
static void fused_streams(void) { /* long results of bf16 go past the cache: same bits, aligned or not, nothing behind them */
    const size_t n = ((size_t)4 << 20) + 77; size_t i, shift; uint16_t *x = (uint16_t *)fused_alloc(n * 2);
    unsigned char *block = (unsigned char *)fused_alloc(n * 2 + 256);
    for (i = 0; i < n; ++i) x[i] = (uint16_t)(i * 40503u >> 3 & 0xbfff); /* no NaN, no infinity */
    for (shift = 0; shift < 3; ++shift) {
        unsigned char *y = block + (64 - ((uintptr_t)block & 63)) + shift * 34; memopt_fused_array a[2]; memopt_fused f; test_worker_set set;
        const memopt_threads threads = test_workers(&set, 2, 0);
        memset(block, 0x5a, n * 2 + 256);
        a[0] = fused_array("x", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, x, NULL); a[1] = fused_array("y", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, NULL, y);
        f = fused_of("y = -x", a, 2, 7, n / 7);
        CHECK(n % 7 == 0 || n % 7 != 0);
        CHECK(fused_runs(&threads, &f));
        for (i = 0; i < n / 7 * 7; ++i) {
            uint16_t got;
            memcpy(&got, y + 2 * i, 2);
            if (got != (x[i] ^ 0x8000)) { CHECK_AT(0, i); break; }
        }
        CHECK(y[n / 7 * 14] == 0x5a);
    }
    free(x); free(block);
}

/* ---- numbers in the text ---- */
/* Any digits with any exponent, and the middles of neighbouring floats, cut to 19 digits, one up and one down: as the C
   library reads them. */
static void fused_numbers_of_strtof(const memopt_fused_array *a, const float *y) {
    uint64_t seed = 3; size_t i;
    for (i = 0; i < 30000; ++i) {
        uint64_t digits = test_random(&seed) % UINT64_C(9999999999999999999); int exponent = (int)test_below(&seed, 110) - 62, cut; char text[64]; float want;
        memopt_fused f; const memopt_ops o = fused_ops(NULL); int good;
        for (cut = (int)test_below(&seed, 20); cut; --cut) digits /= 10;
        if (i % 2) {
            const uint32_t bits = (uint32_t)test_below(&seed, 0x7f7fffff); char middle[64], *p;
            (void)snprintf(middle, sizeof middle, "%.18e", ((double)memopt_i_bits_float(bits) + (double)memopt_i_bits_float(bits + 1)) / 2);
            for (digits = 0, p = middle; *p != 'e'; ++p) if (*p >= '0' && *p <= '9') digits = digits * 10 + (uint64_t)(*p - '0');
            digits += test_below(&seed, 3); digits -= digits > 1; exponent = (int)strtol(p + 1, NULL, 10) - 18;
        }
        (void)snprintf(text, sizeof text, "y = %lu%09lu%09lue%d", (unsigned long)(digits / UINT64_C(1000000000000000000)),
            (unsigned long)(digits / 1000000000 % 1000000000), (unsigned long)(digits % 1000000000), exponent);
        want = strtof(text + 4, NULL); f = fused_of(text, a, 1, 1, 1);
        good = digits ? want > 0 && want <= 3.4028234663852886e38f : 1;
        if (good) CHECK_AT(memopt_fused_run(&o, &f) == MEMOPT_OK && memopt_i_float_bits(*y) == memopt_i_float_bits(want), i);
        else CHECK_AT(memopt_fused_run(&o, &f) == MEMOPT_ERR_ARGUMENT && test_error_says(fused_error, MEMOPT_ERR_ARGUMENT,
            want > 0 ? "fused: text has a number beyond the largest float32 at character 4" : "fused: text has a number that float32 rounds to 0 at character 4"), i);
    }
}
static void fused_numbers(void) {
    static const struct { const char *text; float want; } numbers[] = {
        { "y = 0", 0.0f }, { "y = 1", 1.0f }, { "y = .5", 0.5f }, { "y = 5.", 5.0f }, { "y = 0.1", 0.1f }, { "y = 3.14159265358979", 3.14159265358979f },
        { "y = 123456789012345", 123456789012345.0f }, { "y = 000000000000000000012", 12.0f }, { "y = 1e22", 1e22f }, { "y = 1E+2", 100.0f },
        { "y = 1.5e-5", 1.5e-5f }, { "y = 16777217", 16777216.0f }, { "y = 16777219", 16777220.0f }, { "y = 1e-22", 1e-22f }, { "y = -2", -2.0f },
        { "y = - - 2", 2.0f }, { "y = 0.0000001e7", 1.0f }, { "y = 1000000000000e-10", 100.0f }, { "y = -0", -0.0f }, { "y = 1.5e-22", 1.5e-22f },
        { "y = 1e23", 1e23f }, { "y = 9999999999999999999", 1e19f }, { "y = 340282346.638528860e30", 3.4028234663852886e38f },
        { "y = 3.4028235677973366e38", 3.4028234663852886e38f }, /* just below the middle to infinity */
        { "y = 1.000000059604644775", 1.0f }, { "y = 1.000000059604644776", 1.00000011920928955f }, /* about the middle of two: a double has one value for both */
        { "y = 1.17549435e-38", 1.17549435e-38f }, { "y = 1e-40", 1e-40f }, { "y = 1.4e-45", 1.40129846e-45f }, { "y = 0.701e-45", 1.40129846e-45f },
        { "y = 0.00000000000000000000001", 1e-23f }, { "y = 0e9999999", 0.0f }, { "y = 0e-9999999", 0.0f } };
    static const struct { const char *text, *why; } bad[] = {
        { "y = 12345678901234567890", "more than 19 digits" }, { "y = 1.0000000000000000000", "more than 19 digits" }, { "y = 1e39", "beyond the largest float32" },
        { "y = 3.4028235677973367e38", "beyond the largest float32" }, { "y = 1e99999999999", "beyond the largest float32" }, { "y = 1e-46", "that float32 rounds to 0" },
        { "y = 0.7e-45", "that float32 rounds to 0" }, { "y = 1e-99999999999", "that float32 rounds to 0" }, { "y = 9999999999999999999e-120", "that float32 rounds to 0" } };
    static const char *const none[] = { "y = .", "y = 1e", "y = 1e+", "y = 2x", "y = 0x10", "y = 1.5f" };
    float y; size_t i; memopt_fused_array a = fused_array("y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, &y); const memopt_ops o = fused_ops(NULL);
    for (i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
        const memopt_fused f = fused_of(numbers[i].text, &a, 1, 1, 1);
        CHECK_AT(fused_runs(NULL, &f) && memopt_i_float_bits(y) == memopt_i_float_bits(numbers[i].want), i);
    }
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        const memopt_fused f = fused_of(bad[i].text, &a, 1, 1, 1);
        char want[100];
        (void)snprintf(want, sizeof want, "fused: text has a number %s%s at character 4", *bad[i].why == 'm' ? "of " : "", bad[i].why);
        CHECK_AT(memopt_fused_run(&o, &f) == MEMOPT_ERR_ARGUMENT && test_error_says(fused_error, MEMOPT_ERR_ARGUMENT, want), i);
    }
    for (i = 0; i < sizeof none / sizeof *none; ++i) {
        const memopt_fused f = fused_of(none[i], &a, 1, 1, 1);
        CHECK_AT(memopt_fused_run(&o, &f) == MEMOPT_ERR_ARGUMENT
            && test_error_says(fused_error, MEMOPT_ERR_ARGUMENT, "fused: text has an invalid number at character 4"), i);
    }
    { /* a point far away */
        static char far_away[40000]; const memopt_fused f = fused_of(far_away, &a, 1, 1, 1);
        strcpy(far_away, "y = 0."); memset(far_away + 6, '0', 30000); strcpy(far_away + 30006, "75e30001");
        CHECK(fused_runs(NULL, &f) && memopt_i_float_bits(y) == memopt_i_float_bits(7.5f));
    }
    fused_numbers_of_strtof(&a, &y);
}

/* ---- what is refused ---- */
static void fused_text_refused(void) {
    static const struct { const char *text, *why; } texts[] = {
        { "", "text lacks a name to assign here at character 0" }, { " ;", "text lacks a name to assign here at character 1" }, { "y = x; ;", "text lacks a name to assign here at character 7" },
        { "3 = x", "text lacks a name to assign here at character 0" }, { "y", "text lacks a = here at character 1" }, { "y x", "text lacks a = here at character 2" },
        { "y = ", "text lacks a name, a number or a ( here at character 4" }, { "y = x +", "text lacks a name, a number or a ( here at character 7" },
        { "y = x * * x", "text lacks a name, a number or a ( here at character 8" }, { "y = x & x", "text lacks an operator or a ; here at character 6" },
        { "y = x x", "text lacks an operator or a ; here at character 6" }, { "y = x)", "text lacks an operator or a ; here at character 5" },
        { "y = (x", "text lacks a ) here at character 6" }, { "y = exp(x", "text lacks a ) here at character 9" }, { "y = exp(x, x)", "text lacks a ) here at character 9" },
        { "y = min(x)", "text lacks a comma here at character 9" }, { "y = z", "text has a name that is no array at character 4" }, { "y = x + Y", "text has a name that is no array at character 8" },
        { "y = log(x)", "text calls what is no function at character 4" }, { "y = x(x)", "text calls what is no function at character 4" }, { "y = exp()", "text lacks a name, a number or a ( here at character 8" },
        { "y = row_sum(x)", "text puts this elsewhere than into an array of MEMOPT_FUSED_COLUMN at character 4" },
        { "z = row_max(x); y = z", "text puts this elsewhere than into an array of MEMOPT_FUSED_COLUMN at character 4" },
        { "y = 1 + row_sum(x)", "text has row_sum() or row_max() elsewhere than as a whole right side at character 8" },
        { "c = row_sum(x) + 1; y = x", "text lacks an operator or a ; here at character 15" }, { "c = row_sum(x; y = x", "text lacks a ) here at character 13" },
        { "c = row_sum + 1; y = x", "text has a name that is no array at character 4" },
        { "c = x; y = x", "text assigns an array of MEMOPT_FUSED_COLUMN without row_sum() at character 0" },
        { "b = x; y = x", "text assigns an array that all rows share at character 0" }, { "s = x; y = x", "text assigns an array that all rows share at character 0" },
        { "y = x; y = x", "text assigns a name or an array a second time at character 7" }, { "t = x; t = t; y = t", "text assigns a name or an array a second time at character 7" },
        { "y = x; t = y", "text assigns a name that is no array, and does not read it at character 7" },
        { "c = row_sum(x); y = x / c", "text reads what it sums up over a row at character 24" } };
    float x[4] = { 0 }, y[4], b[2] = { 0 }, c[2], s = 0; size_t i; memopt_fused_array a[5]; memopt_fused f; memopt_ops o = fused_ops(NULL); char long_text[900];
    a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, x, NULL); a[1] = fused_array("y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, y);
    a[2] = fused_array("b", MEMOPT_TYPE_F32, MEMOPT_FUSED_ROW, b, b); a[3] = fused_array("c", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, c);
    a[4] = fused_array("s", MEMOPT_TYPE_F32, MEMOPT_FUSED_ONE, &s, &s);
    for (i = 0; i < sizeof texts / sizeof *texts; ++i) {
        char want[160];
        (void)snprintf(want, sizeof want, "fused: %s", texts[i].why);
        f = fused_of(texts[i].text, a, 5, 2, 2);
        REFUSES(o.error, memset(y, 0x5a, sizeof y), memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, want);
        CHECK_AT(((unsigned char *)y)[0] == 0x5a, i);
    }
    f = fused_of(long_text, a, 2, 2, 2); /* 33 deep; then 65 operations, 7 values at once, 17 numbers, 5 sums */
    for (i = 0; i < 3; ++i) {
        static const char *const opens[3] = { "(", "-", "abs(" }; const size_t each = strlen(opens[i]); size_t k; char want[80];
        for (strcpy(long_text, "y = "), k = 0; k < 32; ++k) strcat(long_text, opens[i]);
        for (strcat(long_text, "x"), k = 0; i != 1 && k < 32; ++k) strcat(long_text, ")");
        ACCEPTS(o.error, (void)0, memopt_fused_run(&o, &f));
        for (strcpy(long_text, "y = "), k = 0; k < 33; ++k) strcat(long_text, opens[i]);
        for (strcat(long_text, "x"), k = 0; i != 1 && k < 33; ++k) strcat(long_text, ")");
        (void)snprintf(want, sizeof want, "fused: text is nested more than 32 deep at character %u", (unsigned)(4 + 33 * each));
        REFUSES(o.error, (void)0, memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, want);
    }
    strcpy(long_text, "y = x");
    for (i = 0; i < 64; ++i) strcat(long_text, "+x");
    ACCEPTS(o.error, (void)0, memopt_fused_run(&o, &f));
    strcat(long_text, "+x");
    REFUSES(o.error, (void)0, memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, "fused: text has more than 64 operations at character 135");
    f.text = "y = (x+x)/((x+x)/((x+x)/((x+x)/((x+x)/(x+x)))))";
    ACCEPTS(o.error, (void)0, memopt_fused_run(&o, &f));
    f.text = "y = (x+x)/((x+x)/((x+x)/((x+x)/((x+x)/((x+x)/(x+x))))))";
    REFUSES(o.error, (void)0, memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, "fused: text has more than 6 intermediate values at once at character 49");
    f.text = "y = x+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1";
    ACCEPTS(o.error, (void)0, memopt_fused_run(&o, &f));
    f.text = "y = x+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1";
    REFUSES(o.error, (void)0, memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, "fused: text has more than 16 numbers at character 38");
}
static void fused_sums_refused(void) {
    float x[4] = { 0 }, c[5][2]; memopt_fused_array a[6]; memopt_ops o = fused_ops(NULL); size_t i;
    static const char *const names[5] = { "a", "b", "c", "d", "e" };
    memopt_fused f;
    for (i = 0; i < 5; ++i) a[i + 1] = fused_array(names[i], MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, c[i]);
    a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, x, NULL);
    f = fused_of("a=row_sum(x);b=row_sum(x);c=row_max(x);d=row_sum(x)", a, 5, 2, 2);
    ACCEPTS(o.error, (void)0, memopt_fused_run(&o, &f));
    f.array_count = 6; f.text = "a=row_sum(x);b=row_sum(x);c=row_max(x);d=row_sum(x);e=row_sum(x)";
    REFUSES(o.error, (void)0, memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, "fused: text has more than 4 sums or maxima of rows at character 54");
}
static void fused_arrays_refused(void) {
    float block[64] = { 0 }, *x = block, *y = block + 16; memopt_fused_array a[13]; const memopt_fused_array good[3] = {
        { "x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, block, NULL, 0 }, { "y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, block + 16, 0 },
        { "z", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, block, NULL, 0 } };
    memopt_fused f; memopt_ops o = fused_ops(NULL); memopt_threads bad; size_t bytes = 5;
#define FUSED_REFUSES(change, status, text) do { memcpy(a, good, sizeof good); f = fused_of("y = x", a, 2, 4, 4); \
    REFUSES(o.error, change, memopt_fused_run(&o, &f), status, text); } while (0)
    REFUSES(o.error, (void)0, memopt_fused_run(&o, NULL), MEMOPT_ERR_ARGUMENT, "fused: its struct is NULL");
    FUSED_REFUSES(f.text = NULL, MEMOPT_ERR_ARGUMENT, "fused: text is NULL");
    FUSED_REFUSES(f.arrays = NULL, MEMOPT_ERR_ARGUMENT, "fused: arrays is NULL");
    FUSED_REFUSES(f.array_count = 13, MEMOPT_ERR_ARGUMENT, "fused: array_count 13, limit 12");
    FUSED_REFUSES(a[1].name = NULL, MEMOPT_ERR_ARGUMENT, "fused: name is NULL at array 1");
    FUSED_REFUSES(a[1].name = "", MEMOPT_ERR_ARGUMENT, "fused: name is no name: letters, digits and _, no digit first at array 1");
    FUSED_REFUSES(a[1].name = "2y", MEMOPT_ERR_ARGUMENT, "fused: name is no name: letters, digits and _, no digit first at array 1");
    FUSED_REFUSES(a[1].name = "y ", MEMOPT_ERR_ARGUMENT, "fused: name is no name: letters, digits and _, no digit first at array 1");
    FUSED_REFUSES(a[1].name = "x", MEMOPT_ERR_ARGUMENT, "fused: name is that of an array before it at array 1");
    FUSED_REFUSES(a[0].type = (memopt_type)test_number_of(9), MEMOPT_ERR_ARGUMENT, "fused: type 9 at array 0, no such memopt_type");
    FUSED_REFUSES(a[0].shape = (memopt_fused_shape)test_number_of(4), MEMOPT_ERR_ARGUMENT, "fused: shape 4 at array 0, no such memopt_fused_shape");
    FUSED_REFUSES(a[0].stride = 3, MEMOPT_ERR_ARGUMENT, "fused: stride 3 at array 0, at least columns 4");
    FUSED_REFUSES(a[1].stride = SIZE_MAX / 4, MEMOPT_ERR_OVERFLOW, "fused: it is larger than memory can be at array 1");
    FUSED_REFUSES((f.rows = SIZE_MAX / 2, a[0].shape = MEMOPT_FUSED_COLUMN), MEMOPT_ERR_OVERFLOW, "fused: it is larger than memory can be at array 0");
    FUSED_REFUSES((f.columns = SIZE_MAX), MEMOPT_ERR_OVERFLOW, "fused: it is larger than memory can be at array 0");
    FUSED_REFUSES(f.array_count = 3, MEMOPT_ERR_ARGUMENT, "fused: name is not in the text at array 2");
    FUSED_REFUSES(a[0].input = NULL, MEMOPT_ERR_ARGUMENT, "fused: input is NULL at array 0");
    FUSED_REFUSES(a[0].input = (const unsigned char *)x + 2, MEMOPT_ERR_ARGUMENT, "fused: input is misaligned at array 0");
    FUSED_REFUSES(a[1].output = NULL, MEMOPT_ERR_ARGUMENT, "fused: output is NULL at array 1");
    FUSED_REFUSES(a[1].output = (unsigned char *)y + 2, MEMOPT_ERR_ARGUMENT, "fused: output is misaligned at array 1");
    FUSED_REFUSES(a[0].output = x, MEMOPT_ERR_ARGUMENT, "fused: output is set, but the text does not assign it at array 0");
    FUSED_REFUSES(a[1].input = x, MEMOPT_ERR_ARGUMENT, "fused: output is not input at array 1");
    FUSED_REFUSES(a[1].output = x + 15, MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((a[0].stride = a[1].stride = 6, a[1].output = x + 3), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((a[0].stride = a[1].stride = 6, a[1].output = x + 25, a[0].input = x + 8), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((a[0].stride = 4, a[1].stride = 5, a[1].output = x), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((a[0].stride = 8, a[1].stride = 7, a[1].output = x + 4), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0"); /* from the second row on */
    FUSED_REFUSES((a[0].stride = 12, a[0].input = x + 5, a[1].stride = 6, a[1].output = x), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((a[0].type = MEMOPT_TYPE_F16, a[1].output = x), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((a[0].shape = MEMOPT_FUSED_ROW, a[1].output = x), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((a[0].shape = MEMOPT_FUSED_ONE, a[0].input = y + 15), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((a[0].shape = MEMOPT_FUSED_COLUMN, a[0].input = x + 13), MEMOPT_ERR_ARGUMENT, "fused: array 1 overlaps array 0");
    FUSED_REFUSES((f.text = "y = dropout(x)", f.rate = 1), MEMOPT_ERR_ARGUMENT, "fused: rate 1, at least 0 and below 1");
    FUSED_REFUSES((f.text = "y = dropout(x)", f.rate = -0.5f), MEMOPT_ERR_ARGUMENT, "fused: rate -0.5, at least 0 and below 1");
    memset(&bad, 0, sizeof bad); bad.worker_count = -1; o.threads = &bad;
    memcpy(a, good, sizeof good); f = fused_of("y = x", a, 2, 4, 4);
    CHECK(memopt_fused_run(&o, &f) == MEMOPT_ERR_ARGUMENT);
    o.threads = NULL;
    f.rate = 7; /* of dropout alone */
    ACCEPTS(o.error, (void)0, memopt_fused_run(&o, &f));
    a[0].input = a[1].output = NULL; f.rows = 0; /* empty; required nevertheless */
    REFUSES(o.error, (void)0, memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, "fused: input is NULL at array 0");
    o.count_scratch = &bytes; f.rows = 4; /* a dry run: no pointer is looked at, the text is; nothing is needed */
    ACCEPTS(o.error, (void)0, memopt_fused_run(&o, &f));
    CHECK(bytes == 5);
    REFUSES(o.error, f.text = "y = x +", memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, "fused: text lacks a name, a number or a ( here at character 7");
    REFUSES(o.error, (f.text = "y = x", f.array_count = 3), memopt_fused_run(&o, &f), MEMOPT_ERR_ARGUMENT, "fused: name is not in the text at array 2");
}
static void fused_empty(void) { /* no rows, no columns, no arrays */
    float x[4] = { 1, 2, 3, 4 }, y[4] = { 9, 9, 9, 9 }, c[2] = { 9, 9 }; memopt_fused_array a[3]; memopt_fused f;
    a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, x, NULL); a[1] = fused_array("y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, y);
    f = fused_of("y = x", a, 2, 0, 4);
    CHECK(fused_runs(NULL, &f) && y[0] > 8.9f);
    f.rows = 2; f.columns = 0;
    CHECK(fused_runs(NULL, &f) && y[0] > 8.9f);
    f.rows = 4; f.columns = 1;
    CHECK(fused_runs(NULL, &f) && memcmp(x, y, sizeof x) == 0);
    a[1] = fused_array("c", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, c); f = fused_of("c = row_max(x)", a, 2, 0, 4);
    CHECK(fused_runs(NULL, &f) && c[0] > 8.9f);
    f.rows = 2; f.columns = 0;
    CHECK(fused_runs(NULL, &f) && memopt_i_float_bits(c[0]) == 0xff800000u && memopt_i_float_bits(c[1]) == 0xff800000u);
    f.text = "c = row_sum(x)";
    CHECK(fused_runs(NULL, &f) && memopt_i_float_bits(c[0]) == 0 && memopt_i_float_bits(c[1]) == 0);
    a[0].stride = 4; a[0].input = y; a[1].output = y + 1; /* without a column there is nothing to overlap */
    CHECK(fused_runs(NULL, &f));
    a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_ROW, x, NULL); a[0].stride = 1; /* of other shapes not looked at */
    a[1] = fused_array("y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, y); f = fused_of("y = -x", a, 2, 1, 4);
    CHECK(fused_runs(NULL, &f) && y[3] < -3.9f);
}

/* Texts of random words: every one is run or refused with a place in it, and what is refused has written nothing. */
static void fused_random_texts(void) {
    static const char *const words[] = { "x", "y", "c", "t", "u", "=", "=", ";", "+", "-", "*", "/", "(", ")", ",", "1", "2.5", "1e3", "min(", "exp(",
        "dropout(", "row_sum(", "gelu_gradient(", "y=", "t=", ";c=row_max(", " ", "\n", "#", "row_sum", "_", ".", "e9", "x+x", "(x*x)" };
    float x[40], y[40], c[2]; memopt_fused_array a[3]; memopt_fused f; uint64_t seed = 11; size_t i, k, accepted = 0;
    fused_fill(MEMOPT_TYPE_F32, x, 40, 1, 1);
    for (i = 0; i < 200000; ++i) {
        char text[400] = ""; const size_t n = 1 + test_below(&seed, i % 2 ? 24 : 4); memopt_status s; const memopt_ops o = fused_ops(NULL);
        if (test_below(&seed, 2)) strcpy(text, "y = x");
        for (k = 0; k < n; ++k) strcat(text, words[test_below(&seed, sizeof words / sizeof *words)]);
        a[0] = fused_array("x", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, x, NULL); a[1] = fused_array("y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, y);
        a[2] = fused_array("c", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, c);
        f = fused_of(text, a, strstr(text, "c=") ? 3 : 2, 2, 20); f.noise = memopt_noise_make(1, 1);
        memset(y, 0x5a, sizeof y); memset(&fused_error, 0, sizeof fused_error);
        s = memopt_fused_run(&o, &f);
        accepted += s == MEMOPT_OK;
        if (s == MEMOPT_OK) continue;
        CHECK_AT(s == MEMOPT_ERR_ARGUMENT && fused_error.reason && ((unsigned char *)y)[0] == 0x5a, i);
        if (fused_error.place && !strcmp(fused_error.place, "character")) CHECK_AT(fused_error.index <= strlen(text), i);
        else CHECK_AT(fused_error.place && !strcmp(fused_error.place, "array"), i);
    }
    CHECK_AT(accepted > 1000, accepted); /* some are good */
}

static void test_fused(void) {
    RUN(fused_arithmetic);
    RUN(fused_functions);
    RUN(fused_like_operators);
    RUN(fused_nan);
    RUN(fused_rows);
    RUN(fused_in_place);
    RUN(fused_anywhere);
    RUN(fused_workers);
    RUN(fused_streams);
    RUN(fused_numbers);
    RUN(fused_text_refused);
    RUN(fused_sums_refused);
    RUN(fused_arrays_refused);
    RUN(fused_empty);
    RUN(fused_random_texts);
}
#ifndef TEST_COMBINED
int main(void) { test_fused(); return test_totals(); }
#endif
