/* test_muon.c - Muon, section muon. Expected values come from torch.optim.Muon, run once, and from a
   plain loop in double here: by the rule, with float and with bf16 products. */
#include "test.h"

enum { MUON_TENSORS = 6 };
typedef struct muon_bench { /* an optimizer of some matrices, whose weights and gradients are floats here */
    memopt_optim_desc   desc;
    memopt_optim_tensor tensor[MUON_TENSORS];
    memopt_optim       *optim;
    float *w[MUON_TENSORS], *g[MUON_TENSORS];
    void  *typed[MUON_TENSORS], *extra[MUON_TENSORS], *typed_g[MUON_TENSORS];
} muon_bench;
static float muon_gradient(size_t i, size_t j, uint64_t t) { /* exact in bf16, too; of full rank */
    uint32_t h = (uint32_t)(i * 1619 + j * 31337 + t * 6971 + 12345) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    return (float)((int)((h ^ h >> 13) % 255u) - 127) / 128;
}
static float muon_weight(size_t i, size_t j) { return (float)((int)((3 * i + 2 * j) % 7) - 3) / 16; }
static void muon_describe(muon_bench *b, memopt_type products, memopt_state_format state) {
    memset(b, 0, sizeof *b);
    b->desc.kind = MEMOPT_OPTIM_MUON; b->desc.state = state; b->desc.tensors = b->tensor; b->desc.seed = 5;
    b->desc.min_quantized = 1; b->desc.muon = memopt_muon_products(products);
}
static void muon_add(muon_bench *b, size_t rows, size_t columns) {
    const size_t k = b->desc.tensor_count++, n = rows * columns; size_t i;
    memopt_optim_tensor *t = &b->tensor[k];
    t->count = n; t->columns = columns;
    b->w[k] = (float *)malloc(n * 4); b->g[k] = (float *)malloc(n * 4);
    b->typed[k] = malloc(n * 4); b->extra[k] = malloc(n * 4); b->typed_g[k] = malloc(n * 4);
    for (i = 0; i < n; ++i) b->w[k][i] = muon_weight(i / columns, i % columns);
    t->weights = b->w[k]; t->gradients = b->g[k];
}
static void muon_fill(const muon_bench *b, uint64_t t) {
    size_t k, i;
    for (k = 0; k < b->desc.tensor_count; ++k)
        for (i = 0; i < b->tensor[k].count; ++i) {
            const size_t columns = b->tensor[k].columns ? b->tensor[k].columns : 7;
            b->g[k][i] = muon_gradient(i / columns, i % columns, t + k);
        }
}
static void muon_close(muon_bench *b) {
    size_t k;
    memopt_optim_close(b->optim);
    for (k = 0; k < b->desc.tensor_count; ++k) {
        free(b->w[k]); free(b->g[k]); free(b->typed[k]); free(b->extra[k]); free(b->typed_g[k]);
    }
}
static memopt_optim_run muon_run(const memopt_optim_group *g, size_t count, uint64_t step) {
    memopt_optim_run run;
    memset(&run, 0, sizeof run);
    run.step = step; run.groups = g; run.group_count = count;
    return run;
}

/* ---- the rule, in double ---- */
/* to = a c + x y, of n x depth times depth x columns; y transposed where `turn` says so. c may be NULL. */
static void muon_multiply(double *to, double a, const double *c, const double *x, const double *y, int turn, size_t n,
    size_t depth, size_t columns) {
    size_t i, j, k;
    for (i = 0; i < n; ++i) for (j = 0; j < columns; ++j) {
        double sum = c ? a * c[i * columns + j] : 0;
        for (k = 0; k < depth; ++k) sum += x[i * depth + k] * (turn ? y[j * depth + k] : y[k * columns + j]);
        to[i * columns + j] = sum;
    }
}
static void muon_transpose(double *to, const double *from, size_t rows, size_t columns) {
    size_t i;
    for (i = 0; i < rows * columns; ++i) to[i % columns * rows + i / columns] = from[i];
}
static double muon_norm(const double *x, size_t n) {
    double sum = 0; size_t i;
    for (i = 0; i < n; ++i) sum += x[i] * x[i];
    return sqrt(sum);
}
static void muon_orthogonal(double *u, size_t rows, size_t columns, double eps) {
    const size_t n = rows * columns, side = rows < columns ? rows : columns, other = n / side;
    double *x = (double *)malloc(n * 8), *y = (double *)malloc(n * 8), *a = (double *)malloc(side * side * 8);
    double *b = (double *)malloc(side * side * 8), norm = muon_norm(u, n); size_t i; int k;
    if (norm < eps) norm = eps;
    if (rows > columns) muon_transpose(x, u, rows, columns); else memcpy(x, u, n * 8);
    for (i = 0; i < n; ++i) x[i] /= norm;
    for (k = 0; k < 5; ++k) {
        muon_multiply(a, 0, NULL, x, x, 1, side, other, side);
        muon_multiply(b, -4.7750 / 2.0315, a, a, a, 0, side, side, side);
        for (i = 0; i < side * side; ++i) b[i] *= 2.0315;
        muon_multiply(y, 3.4445, x, b, x, 0, side, side, other);
        memcpy(x, y, n * 8);
    }
    if (rows > columns) muon_transpose(u, x, columns, rows); else memcpy(u, x, n * 8);
    free(x); free(y); free(a); free(b);
}
static void muon_rule_step(double *w, double *m, const float *g, size_t rows, size_t columns, const memopt_optim_group *h,
    double factor) {
    const size_t n = rows * columns; double *u = (double *)malloc(n * 8); size_t i;
    const double larger = (double)(rows > columns ? rows : columns), ratio = (double)rows / (double)columns;
    const double scale = h->match_rms ? 0.2 * sqrt(larger) : sqrt(ratio > 1 ? ratio : 1);
    for (i = 0; i < n; ++i) {
        const double x = (1 - h->beta1) * factor * (double)g[i];
        m[i] = h->beta1 * m[i] + x;
        u[i] = h->nesterov ? h->beta1 * m[i] + x : m[i];
    }
    muon_orthogonal(u, rows, columns, h->eps);
    for (i = 0; i < n; ++i) w[i] = w[i] * (1 - h->rate * h->weight_decay) - h->rate * scale * u[i];
    free(u);
}
/* How far weights are from w, by norms: relative to w, and to how far w has gone from the first weights. */
typedef struct muon_error { double of_weights, of_way; } muon_error;
static muon_error muon_error_of(const float *got, const double *w, size_t rows, size_t columns) {
    double off = 0, all = 0, way = 0; size_t i; muon_error e;
    for (i = 0; i < rows * columns; ++i) {
        const double d = (double)got[i] - w[i], s = w[i] - (double)muon_weight(i / columns, i % columns);
        off += d * d; all += w[i] * w[i]; way += s * s;
    }
    CHECK(way > 0);
    e.of_weights = sqrt(off / all); e.of_way = sqrt(off / way);
    return e;
}
static const size_t muon_shapes[][2] = { { 1, 9 }, { 9, 1 }, { 6, 4 }, { 4, 6 }, { 16, 16 }, { 24, 40 }, { 40, 24 } };
enum { MUON_SHAPES = sizeof muon_shapes / sizeof *muon_shapes };
static memopt_optim_group muon_group(int nesterov, int match) {
    memopt_optim_group g = memopt_optim_group_default(MEMOPT_OPTIM_MUON);
    CHECK(fabs(g.rate - 1e-3) < 1e-18 && fabs(g.beta1 - 0.95) < 1e-15 && fabs(g.eps - 1e-7) < 1e-20 && g.nesterov == 1);
    CHECK(fabs(g.weight_decay - 0.1) < 1e-15 && !g.match_rms);
    g.rate = 0.02; g.nesterov = nesterov; g.match_rms = match;
    return g;
}
/* 100 steps of every shape, with `products`; how far they are from the rule in double. */
static muon_error muon_follow(size_t rows, size_t columns, memopt_type products, memopt_state_format state,
    const memopt_optim_group *h, double factor) {
    muon_error e; muon_bench b; double *w = (double *)malloc(rows * columns * 8), *m = (double *)calloc(rows * columns, 8); size_t i; uint64_t t;
    muon_describe(&b, products, state);
    muon_add(&b, rows, columns);
    for (i = 0; i < rows * columns; ++i) w[i] = (double)b.w[0][i];
    CHECK(memopt_optim_open(&b.desc, NULL, &b.optim) == MEMOPT_OK);
    for (t = 1; t <= 100; ++t) {
        memopt_optim_run run = muon_run(h, 1, t);
        run.gradient_factor = factor;
        muon_fill(&b, t);
        CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK && !memopt_optim_skipped(b.optim));
        CHECK(memopt_optim_applied(b.optim, 0) == rows * columns);
        muon_rule_step(w, m, b.g[0], rows, columns, h, factor > 0 ? factor : 1);
    }
    e = muon_error_of(b.w[0], w, rows, columns);
    if (getenv("MUON_TELL")) printf("products %d, states %d, %zu x %zu: %.3g of weights, %.3g of the way\n", (int)products, (int)state, rows, columns, e.of_weights, e.of_way);
    muon_close(&b);
    free(w); free(m);
    return e;
}
static void muon_rule(void) {
    size_t s; int way;
    for (s = 0; s < MUON_SHAPES; ++s) for (way = 0; way < 4; ++way) {
        const size_t rows = muon_shapes[s][0], columns = muon_shapes[s][1]; const double factor = way == 3 ? 0.25 : 0;
        memopt_optim_group h = muon_group(way & 1, way >> 1); muon_error e;
        if (test_is_passed_over()) continue;
        if (way == 1) h.weight_decay = 0;
        if (way == 2) h.beta1 = 0.5;
        e = muon_follow(rows, columns, MEMOPT_TYPE_F32, MEMOPT_STATE_F32, &h, factor);
        CHECK_AT(e.of_weights <= 1e-5 && e.of_way <= 1e-5, s * 10 + (size_t)way);
        e = muon_follow(rows, columns, MEMOPT_TYPE_BF16, MEMOPT_STATE_F32, &h, factor);
        CHECK_AT(e.of_way <= 0.02 && e.of_way > 1e-5, s * 10 + (size_t)way); /* it is rounded */
    }
}

/* ---- torch.optim.Muon ----
   What torch 2.9.1 made of 100 steps on a CPU, of floats (the method bfloat16() made a copy) and as it is: then the same
   bits. The program:
       def gradient(i, j, t):
           h = (i * 1619 + j * 31337 + t * 6971 + 12345) * 2654435761 % 2**32
           h = (h ^ h >> 15) * 2246822519 % 2**32
           return ((h ^ h >> 13) % 255 - 127) / 128
       def train(rows, columns, **how):
           w = torch.nn.Parameter(torch.tensor([[((3 * i + 2 * j) % 7 - 3) / 16 for j in range(columns)] for i in range(rows)]))
           o = torch.optim.Muon([w], lr=0.02, **how)
           for t in range(1, 101):
               w.grad = torch.tensor([[gradient(i, j, t) for j in range(columns)] for i in range(rows)])
               o.step()
           return w.detach()
       own = torch.Tensor.bfloat16
       for r, c, how in [(5, 4, {}), (4, 5, dict(adjust_lr_fn='match_rms_adamw')),
                         (4, 4, dict(nesterov=False, weight_decay=0.0, momentum=0.9))]:
           for method in lambda x: x.clone(), own:
               torch.Tensor.bfloat16 = method
               print([x for row in train(r, c, **how).tolist() for x in row]) */
static const float muon_golden[3][2][20] = {
    { { -0.494041562f, -0.541186571f, -0.461536169f, -0.338253319f, -0.626118839f, 0.285232604f, -0.208260596f,
        -0.753018796f, 0.877463877f, -0.162665099f, -0.598914206f, -0.536242247f, 0.144651547f, -0.631794989f,
        0.284464836f, 0.0712656006f, 0.774763823f, -0.120514169f, 0.225432456f, -0.00232139649f },
      { -0.492063731f, -0.540021777f, -0.462707043f, -0.340056896f, -0.628281653f, 0.284202218f, -0.207393661f,
        -0.754234672f, 0.878020346f, -0.16225563f, -0.598544955f, -0.535925448f, 0.14611271f, -0.632008374f,
        0.2859115f, 0.0703108981f, 0.77425617f, -0.122233137f, 0.225014463f, -0.000814824365f } },
    { { -0.282708645f, -0.238757297f, -0.134102806f, -0.055861f, -0.146487087f, -0.233390525f, 0.200451672f,
        -0.197179958f, -0.339467376f, 0.282485515f, 0.451345593f, -0.132108971f, -0.236000299f, -0.120383874f,
        -0.17541191f, 0.0636413172f, -0.240886122f, 0.219660312f, -0.0491931438f, 0.209302381f },
      { -0.282167912f, -0.23891215f, -0.133623227f, -0.0559436716f, -0.14767243f, -0.232971951f, 0.199814886f,
        -0.197193921f, -0.33829543f, 0.282458901f, 0.452050596f, -0.132718056f, -0.236269265f, -0.121129602f,
        -0.17464301f, 0.0638619512f, -0.241527125f, 0.218979642f, -0.0493318588f, 0.209264636f } },
    { { -0.543743789f, -0.502386451f, -0.315933615f, -0.316519529f, -0.506529927f, 0.410823703f, -0.237258092f,
        -0.660581052f, 0.890740871f, -0.0852297843f, -0.405151427f, -0.400704682f, 0.0969554111f, -0.493325561f,
        0.325049609f, 0.0250694808f },
      { -0.544409156f, -0.502614677f, -0.31652835f, -0.316444129f, -0.507898211f, 0.412333995f, -0.236870781f,
        -0.657465875f, 0.893288672f, -0.0846636966f, -0.405153751f, -0.399654478f, 0.0983849689f, -0.494437486f,
        0.325263977f, 0.0244549625f } } };
static void muon_torch(void) {
    static const size_t shapes[3][2] = { { 5, 4 }, { 4, 5 }, { 4, 4 } }; size_t k; int type;
    for (k = 0; k < 3; ++k) for (type = 0; type < 2; ++type) {
        const size_t rows = shapes[k][0], columns = shapes[k][1]; memopt_optim_group h = muon_group(k < 2, k == 1); muon_bench b;
        double w[20]; muon_error e; size_t i; uint64_t t;
        if (k == 2) { h.beta1 = 0.9; h.weight_decay = 0; }
        muon_describe(&b, type ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32, MEMOPT_STATE_F32);
        muon_add(&b, rows, columns);
        CHECK(memopt_optim_open(&b.desc, NULL, &b.optim) == MEMOPT_OK);
        for (t = 1; t <= 100; ++t) {
            const memopt_optim_run run = muon_run(&h, 1, t);
            muon_fill(&b, t);
            CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
        }
        for (i = 0; i < rows * columns; ++i) w[i] = (double)muon_golden[k][type][i];
        e = muon_error_of(b.w[0], w, rows, columns);
        if (getenv("MUON_TELL")) printf("torch %zu, %d: %.3g of weights, %.3g of the way\n", k, type, e.of_weights, e.of_way);
        CHECK_AT(e.of_weights <= (type ? 1e-7 : 1e-5), k * 2 + (size_t)type);
        muon_close(&b);
    }
}

/* ---- every bit: the order of operations, element by element ---- */
static float muon_bf16(float x) { /* to nearest even; finite */
    uint32_t u;
    memcpy(&u, &x, 4);
    u = (u + 0x7fffu + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, 4);
    return x;
}
static float muon_rounded(float x, memopt_type type) { return type == MEMOPT_TYPE_BF16 ? muon_bf16(x) : x; }
/* The products of depths 0..depth added to `begin`, in order; of bf16 as matrix units add them. */
static float muon_dot(float begin, const float *x, size_t x_step, const float *y, size_t y_step, size_t depth, memopt_type type) {
    size_t k, i;
    if (type == MEMOPT_TYPE_F32) {
        for (k = 0; k < depth; ++k) begin = fmaf(x[k * x_step], y[k * y_step], begin);
        return begin;
    }
    for (k = 0; k < depth; k += 32) {
        float chain[2] = { 0, 0 };
        for (i = k; i < k + 32; ++i)
            chain[i & 1] = i < depth ? fmaf(x[i * x_step], y[i * y_step], chain[i & 1]) : chain[i & 1] + 0.0f;
        begin += chain[0] + chain[1];
    }
    return begin;
}
static float muon_norm_of(const float *x, size_t n) { /* chunks of 64 Ki, of 16 sums by the place */
    double sum = 0; size_t chunk, i; int half, k;
    for (chunk = 0; chunk < n; chunk += 65536) {
        double s[16] = { 0 };
        for (i = chunk; i < n && i < chunk + 65536; ++i) s[i % 16] += (double)x[i] * (double)x[i];
        for (half = 8; half; half /= 2) for (k = 0; k < half; ++k) s[k] += s[k + half];
        sum += s[0];
    }
    return (float)sqrt(sum);
}
static void muon_exact_orthogonal(float *x, size_t rows, size_t columns, float eps, memopt_type type) {
    const size_t n = rows * columns, side = rows < columns ? rows : columns, other = n / side; int round;
    const size_t down = rows > columns ? 1 : columns, across = rows > columns ? columns : 1; /* of the side, of the other */
    float *a = (float *)malloc(side * side * 4), *b = (float *)malloc(side * side * 4), *y = (float *)malloc(n * 4);
    float norm = muon_rounded(muon_norm_of(x, n), type), inverse; size_t i, j;
    if (norm < eps) norm = eps;
    inverse = 1 / norm;
    for (i = 0; i < n; ++i) x[i] = muon_rounded(x[i] * inverse, type);
    for (round = 0; round < 5; ++round) {
        for (i = 0; i < side; ++i) for (j = 0; j < side; ++j)
            a[i * side + j] = muon_rounded(muon_dot(0, x + i * down, across, x + j * down, across, other, type), type);
        for (i = 0; i < side; ++i) for (j = 0; j < side; ++j)
            b[i * side + j] = muon_rounded((float)2.0315 * muon_dot((float)(-4.7750 / 2.0315) * a[i * side + j], a + i * side, 1,
                a + j * side, 1, side, type), type);
        for (i = 0; i < side; ++i) for (j = 0; j < other; ++j)
            y[i * down + j * across] = muon_rounded(muon_dot((float)3.4445 * x[i * down + j * across], b + i * side, 1,
                x + j * across, down, side, type), type);
        memcpy(x, y, n * 4);
    }
    free(a); free(b); free(y);
}
static void muon_exact_step(float *w, float *m, const float *g, size_t rows, size_t columns, const memopt_optim_group *h,
    double factor, memopt_type type) {
    const size_t n = rows * columns; float *u = (float *)malloc(n * 4); size_t i;
    const float f = (float)(factor * (1 - h->beta1)), b1 = (float)h->beta1, decay = (float)(1 - h->rate * h->weight_decay);
    const double scale = h->match_rms ? 0.2 * sqrt((double)(rows > columns ? rows : columns))
                       : rows > columns ? sqrt((double)rows / (double)columns) : 1;
    const float step = (float)(h->rate * scale);
    for (i = 0; i < n; ++i) {
        const float x = f * g[i];
        m[i] = fmaf(b1, m[i], x);
        u[i] = muon_rounded(h->nesterov ? fmaf(b1, m[i], x) : m[i], type);
    }
    muon_exact_orthogonal(u, rows, columns, (float)h->eps, type);
    for (i = 0; i < n; ++i) w[i] = fmaf(-step, u[i], w[i] * decay);
    free(u);
}
static int muon_same(const float *a, const float *b, size_t n) { /* 0 is 0, whatever its sign */
    size_t i;
    for (i = 0; i < n; ++i) if (!(a[i] >= b[i] && a[i] <= b[i])) return 0;
    return 1;
}
/* Strips of the squares begin at rows 64 and 128, those of X at 32768; two chunks of 64 Ki. */
static const size_t muon_bit_shapes[][2] = { { 7, 5 }, { 33, 80 }, { 130, 70 }, { 70, 130 }, { 8, 33000 }, { 33000, 8 } };
enum { MUON_BIT_SHAPES = sizeof muon_bit_shapes / sizeof *muon_bit_shapes };
static void muon_open_bits(muon_bench *b, memopt_type products, const memopt_threads *threads) {
    size_t k;
    muon_describe(b, products, MEMOPT_STATE_F32);
    for (k = 0; k < MUON_BIT_SHAPES; ++k) muon_add(b, muon_bit_shapes[k][0], muon_bit_shapes[k][1]);
    b->desc.threads = threads;
    CHECK(memopt_optim_open(&b->desc, NULL, &b->optim) == MEMOPT_OK);
}
static memopt_optim_run muon_bit_run(const memopt_optim_group *h, uint64_t t) {
    memopt_optim_run run = muon_run(h, 1, t);
    run.gradient_factor = 0.75;
    return run;
}
static void muon_bits_at(int level, int workers, memopt_type products, float *const *w, float *const *m) {
    const memopt_optim_group h = muon_group(1, 1); muon_bench b; test_worker_set set; memopt_optim_view view; size_t k; uint64_t t;
    const memopt_threads threads = test_workers(&set, workers, level);
    muon_open_bits(&b, products, &threads);
    for (t = 1; t <= 2; ++t) {
        const memopt_optim_run run = muon_bit_run(&h, t);
        muon_fill(&b, t);
        CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
    }
    for (k = 0; k < MUON_BIT_SHAPES; ++k) {
        CHECK_AT(muon_same(w[k], b.w[k], b.tensor[k].count), k);
        CHECK(memopt_optim_state_view(b.optim, k, &view) == MEMOPT_OK && view.moments == 1 && !view.moment[1] && view.bits == 32);
        CHECK_AT(muon_same(m[k], (const float *)view.moment[0], b.tensor[k].count), k);
    }
    muon_close(&b);
}
static void muon_bits(void) {
    const memopt_optim_group h = muon_group(1, 1); int level, type; size_t k; uint64_t t;
    for (type = MEMOPT_TYPE_F32; type <= MEMOPT_TYPE_BF16; ++type) {
        float *m[MUON_BIT_SHAPES]; muon_bench b;
        muon_open_bits(&b, (memopt_type)type, NULL);
        for (k = 0; k < MUON_BIT_SHAPES; ++k) m[k] = (float *)calloc(b.tensor[k].count, 4);
        for (t = 1; t <= 2; ++t) {
            muon_fill(&b, t);
            for (k = 0; k < MUON_BIT_SHAPES; ++k)
                muon_exact_step(b.w[k], m[k], b.g[k], muon_bit_shapes[k][0], muon_bit_shapes[k][1], &h, 0.75, (memopt_type)type);
        }
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
            muon_bits_at(level, level % 2 ? 3 : 0, (memopt_type)type, b.w, m);
        for (k = 0; k < MUON_BIT_SHAPES; ++k) free(m[k]);
        muon_close(&b);
    }
}

/* ---- formats, workers, parts of a step ---- */
typedef struct muon_form { memopt_state_format state; memopt_i_weights weights; memopt_type gradients; } muon_form;
static const muon_form muon_forms[] = {
    { MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 }, { MEMOPT_STATE_BF16, MEMOPT_I_WEIGHTS_BF16, MEMOPT_TYPE_BF16 },
    { MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_SPLIT, MEMOPT_TYPE_F16 }, { MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32_BF16, MEMOPT_TYPE_F32 },
    { MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_BF16, MEMOPT_TYPE_BF16 } };
enum { MUON_FORMS = sizeof muon_forms / sizeof *muon_forms };
/* Two matrices, the second of two chunks, and between them a vector for AdamW. */
static void muon_open_mixed(muon_bench *b, const muon_form *f, const memopt_threads *threads) {
    size_t k;
    muon_describe(b, MEMOPT_TYPE_BF16, f->state);
    test_set_weights(&b->desc, f->weights); b->desc.gradients = f->gradients; b->desc.threads = threads;
    muon_add(b, 30, 41); muon_add(b, 1, 300); muon_add(b, 4, 16500);
    b->tensor[1].columns = 0; b->tensor[1].adamw = 1; b->tensor[1].group = 1;
    for (k = 0; k < 3; ++k) {
        memopt_optim_tensor *t = &b->tensor[k];
        if (f->weights != MEMOPT_I_WEIGHTS_F32 && f->weights != MEMOPT_I_WEIGHTS_F32_BF16) t->weights = b->typed[k];
        if (f->weights == MEMOPT_I_WEIGHTS_BF16) memopt_bf16_from_f32((uint16_t *)b->typed[k], b->w[k], t->count, NULL);
        if (f->weights == MEMOPT_I_WEIGHTS_SPLIT) memopt_f32_split((uint16_t *)b->typed[k], (uint16_t *)b->extra[k], b->w[k], t->count, NULL);
        t->extra = b->extra[k];
        if (f->gradients != MEMOPT_TYPE_F32) t->gradients = b->typed_g[k];
    }
    CHECK(memopt_optim_open(&b->desc, NULL, &b->optim) == MEMOPT_OK);
}
static void muon_fill_mixed(const muon_bench *b, uint64_t t) {
    size_t k;
    muon_fill(b, t);
    for (k = 0; k < 3; ++k)
        if (b->desc.gradients == MEMOPT_TYPE_BF16) memopt_bf16_from_f32((uint16_t *)b->typed_g[k], b->g[k], b->tensor[k].count, NULL);
        else if (b->desc.gradients == MEMOPT_TYPE_F16) memopt_f16_from_f32((uint16_t *)b->typed_g[k], b->g[k], b->tensor[k].count, NULL);
}
static uint32_t muon_hash(const muon_bench *b) { /* of weights, extra, states */
    const int wide = b->desc.weights == MEMOPT_TYPE_F32; uint32_t crc = 0; size_t k, bytes = 0;
    for (k = 0; k < b->desc.tensor_count; ++k) {
        const memopt_optim_tensor *t = &b->tensor[k];
        CHECK(memopt_optim_state_bytes(&b->desc, k, &bytes) == MEMOPT_OK);
        crc = memopt_crc32c(crc, t->weights, t->count * (wide ? 4 : 2));
        if (b->desc.extra) crc = memopt_crc32c(crc, t->extra, t->count * 2);
        crc = memopt_crc32c(crc, t->state, bytes);
    }
    return crc;
}
enum { MUON_ALL, MUON_PARTS, MUON_FUSED };
static uint32_t muon_steps(const muon_form *f, int level, int workers, int how) {
    memopt_optim_group g[2]; muon_bench b; test_worker_set set; uint32_t hash; uint64_t t; size_t k;
    const memopt_threads threads = test_workers(&set, workers, level);
    g[0] = muon_group(1, 0); g[1] = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    muon_open_mixed(&b, f, &threads);
    for (t = 1; t <= 3; ++t) {
        memopt_optim_run run = muon_run(g, 2, t);
        run.fused = how == MUON_FUSED;
        muon_fill_mixed(&b, t);
        if (how == MUON_ALL) { CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK); continue; }
        CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK);
        for (k = 3; k-- > 0;) { /* in the order of a backward, with gradients that lie elsewhere */
            const void *gradients = b.tensor[k].gradients;
            b.tensor[k].gradients = NULL;
            CHECK(memopt_optim_apply_with(b.optim, k, gradients) == MEMOPT_OK);
            CHECK(memopt_optim_apply_with(b.optim, k, gradients) == MEMOPT_ERR_STATE);
            b.tensor[k].gradients = gradients;
        }
        CHECK(memopt_optim_end(b.optim) == MEMOPT_OK);
    }
    hash = muon_hash(&b);
    muon_close(&b);
    return hash;
}
static void muon_same_bits(void) {
    static const int workers[] = { 1, 2, 7 }; size_t f; int level, w;
    for (f = 0; f < MUON_FORMS; ++f) {
        const uint32_t want = muon_steps(&muon_forms[f], MEMOPT_SIMD_SCALAR, 0, MUON_ALL);
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            CHECK_AT(muon_steps(&muon_forms[f], level, 0, MUON_PARTS) == want, f);
            CHECK_AT(muon_steps(&muon_forms[f], level, 2, MUON_FUSED) == want, f);
        }
        for (w = 0; w < 3; ++w) CHECK_AT(muon_steps(&muon_forms[f], 0, workers[w], MUON_ALL) == want, f);
    }
}
/* Momenta of fewer bits: near the rule, in about a byte a parameter. */
static void muon_lean_states(void) {
    const memopt_optim_group h = muon_group(1, 0); muon_error e; memopt_optim_tensor t; memopt_optim_desc d; size_t bytes;
    e = muon_follow(48, 80, MEMOPT_TYPE_F32, MEMOPT_STATE_BF16, &h, 0);
    CHECK(e.of_way <= 0.01 && e.of_way > 1e-5);
    e = muon_follow(48, 80, MEMOPT_TYPE_F32, MEMOPT_STATE_8BIT, &h, 0);
    CHECK(e.of_way <= 0.05 && e.of_way > 1e-5);
    memset(&d, 0, sizeof d); memset(&t, 0, sizeof t);
    d.kind = MEMOPT_OPTIM_MUON; d.state = MEMOPT_STATE_8BIT; d.muon = memopt_muon_products(MEMOPT_TYPE_BF16);
    d.tensors = &t; d.tensor_count = 1; t.columns = 768; t.count = 768 * 3072;
    CHECK(memopt_optim_state_bytes(&d, 0, &bytes) == MEMOPT_OK && bytes == 64 + t.count / 256 * 4 + t.count);
    CHECK((double)bytes <= 1.03 * (double)t.count);
    if (sizeof(size_t) > 4) { /* strips of a large matrix have 256 columns */
        const size_t side = 8192, n = side * side; size_t plain = 0;
        t.columns = side; t.count = n;
        CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_OK);
        d.kind = MEMOPT_OPTIM_LION;
        CHECK(memopt_optim_bytes(&d, &plain) == MEMOPT_OK);
        CHECK(bytes - plain == 2 * n + 4 * side * side + 256 * side * 4 + n / 65536 * 8 + memopt_gemm_scratch(NULL));
    }
}
/* The rest is AdamW: the bits and the states of an object of that kind. */
static void muon_adamw(void) {
    memopt_optim_group g[2]; muon_bench b; uint64_t t; size_t bytes, again; int state; memopt_optim_view v;
    memopt_optim_desc d; memopt_optim_tensor one; memopt_optim *o; float w[300];
    for (state = MEMOPT_STATE_F32; state <= MEMOPT_STATE_8BIT; state += 2) {
        muon_form f = muon_forms[0];
        f.state = (memopt_state_format)state;
        g[0] = muon_group(1, 0); g[1] = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
        muon_open_mixed(&b, &f, NULL);
        d = b.desc; d.kind = MEMOPT_OPTIM_ADAMW; d.muon = NULL; d.tensors = &one; d.tensor_count = 1; d.seed = 0;
        one = b.tensor[1]; one.adamw = 0; one.group = 0; one.weights = w;
        memcpy(w, b.w[1], sizeof w);
        CHECK(memopt_optim_open(&d, NULL, &o) == MEMOPT_OK);
        for (t = 1; t <= 3; ++t) {
            memopt_optim_run run = muon_run(g, 2, t), alone = muon_run(g + 1, 1, t);
            muon_fill_mixed(&b, t);
            CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK && memopt_optim_step(o, &alone) == MEMOPT_OK);
        }
        CHECK(memcmp(w, b.w[1], sizeof w) == 0);
        CHECK(memopt_optim_state_bytes(&d, 0, &bytes) == MEMOPT_OK && memopt_optim_state_bytes(&b.desc, 1, &again) == MEMOPT_OK);
        CHECK(bytes == again && memcmp(one.state, b.tensor[1].state, bytes) == 0);
        CHECK(memopt_optim_state_view(b.optim, 1, &v) == MEMOPT_OK && v.moments == 2);
        CHECK(memopt_optim_state_view(b.optim, 0, &v) == MEMOPT_OK && v.moments == 1 && !v.scale[1]);
        memopt_optim_close(o);
        muon_close(&b);
    }
}
/* An element whose gradient is not finite keeps what it has, and counts as 0; the rest goes on. */
static void muon_nonfinite(void) {
    static const size_t bad[3] = { 0, 517, 1200 }; const memopt_optim_group h = muon_group(1, 0); muon_bench b; memopt_optim_view v;
    int state, fused; size_t i, k; float *w = (float *)malloc(1230 * 4), *x = (float *)malloc(1230 * 4);
    for (state = 0; state < 3; ++state) for (fused = 0; fused < 2; ++fused) {
        memopt_optim_run run = muon_run(&h, 1, 1); unsigned char kept[8192]; size_t bytes = 0;
        muon_describe(&b, MEMOPT_TYPE_F32, (memopt_state_format)state);
        muon_add(&b, 30, 41);
        CHECK(memopt_optim_open(&b.desc, NULL, &b.optim) == MEMOPT_OK);
        muon_fill(&b, 1);
        CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
        memcpy(w, b.w[0], 1230 * 4);
        muon_fill(&b, 2);
        for (k = 0; k < 3; ++k) b.g[0][bad[k]] = k == 1 ? memopt_i_bits_float(0x7fc00000u) : k ? -1e30f : memopt_i_bits_float(0x7f800000u);
        CHECK(memopt_optim_state_view(b.optim, 0, &v) == MEMOPT_OK && memopt_optim_state_bytes(&b.desc, 0, &bytes) == MEMOPT_OK);
        CHECK(bytes <= sizeof kept);
        memcpy(kept, b.tensor[0].state, bytes);
        if (state == 0) for (i = 0; i < 1230; ++i) x[i] = ((const float *)v.moment[0])[i];
        run.step = 2; run.fused = fused;
        if (fused) { /* nothing changes */
            CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK);
            CHECK(memopt_optim_apply_with(b.optim, 0, b.g[0]) == MEMOPT_ERR_STATE);
            CHECK(memopt_optim_apply_with(b.optim, 0, b.g[0]) == MEMOPT_ERR_STATE && memopt_optim_end(b.optim) == MEMOPT_ERR_STATE);
            CHECK(memcmp(kept, b.tensor[0].state, bytes) == 0 && memcmp(w, b.w[0], 1230 * 4) == 0);
        } else {
            CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK && memopt_optim_skipped(b.optim) == 3);
            for (k = 0; k < 3; ++k) CHECK_AT(memcmp(&w[bad[k]], &b.w[0][bad[k]], 4) == 0, k);
            if (state == 0) { /* the others: the exact program, with zeros in its matrix */
                float *u = (float *)malloc(1230 * 4); const float f = (float)(1 - h.beta1), b1 = (float)h.beta1;
                for (i = 0; i < 1230; ++i) { const float g = f * b.g[0][i], m = fmaf(b1, x[i], g); u[i] = fmaf(b1, m, g); }
                for (k = 0; k < 3; ++k) u[bad[k]] = 0;
                muon_exact_orthogonal(u, 30, 41, (float)h.eps, MEMOPT_TYPE_F32);
                for (i = 0; i < 1230; ++i) {
                    const float want = fmaf(-(float)h.rate, u[i], w[i] * (float)(1 - h.rate * h.weight_decay));
                    CHECK_AT(muon_same(&want, &b.w[0][i], 1) || i == bad[0] || i == bad[1] || i == bad[2], i);
                }
                for (k = 0; k < 3; ++k) CHECK_AT(muon_same(&x[bad[k]], (const float *)v.moment[0] + bad[k], 1), k);
                free(u);
            }
        }
        muon_close(&b);
    }
    free(w); free(x);
}
/* A matrix of zeros, and one below eps, are steps of decay and of what the norm allows. */
static void muon_small(void) {
    memopt_optim_group h = muon_group(1, 0); muon_bench b; double w[24], m[24] = { 0 }; size_t i; memopt_optim_run run = muon_run(&h, 1, 1);
    muon_describe(&b, MEMOPT_TYPE_F32, MEMOPT_STATE_F32);
    muon_add(&b, 4, 6);
    CHECK(memopt_optim_open(&b.desc, NULL, &b.optim) == MEMOPT_OK);
    for (i = 0; i < 24; ++i) b.g[0][i] = 0;
    CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
    for (i = 0; i < 24; ++i) {
        const float want = muon_weight(i / 6, i % 6) * (float)(1 - h.rate * h.weight_decay);
        CHECK_AT(muon_same(&want, &b.w[0][i], 1), i);
        w[i] = (double)b.w[0][i];
        b.g[0][i] = muon_gradient(i / 6, i % 6, 1) * 1e-8f; /* its norm is below eps */
    }
    run.step = 2; h.eps = 1e-6;
    CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
    muon_rule_step(w, m, b.g[0], 4, 6, &h, 1);
    for (i = 0; i < 24; ++i) CHECK_AT(fabs((double)b.w[0][i] - w[i]) <= 1e-6, i);
    muon_close(&b);
}
static void muon_refused(void) {
    muon_bench b; size_t bytes = 7; memopt_optim_group h = muon_group(1, 0); memopt_optim_run run = muon_run(&h, 1, 1);
    memopt_muon device;
    CHECK(memopt_muon_products(MEMOPT_TYPE_F16) == NULL && memopt_muon_products((memopt_type)test_number_of(9)) == NULL);
    CHECK(memopt_muon_products(MEMOPT_TYPE_F32) != memopt_muon_products(MEMOPT_TYPE_BF16));
    muon_describe(&b, MEMOPT_TYPE_F32, MEMOPT_STATE_F32);
    muon_add(&b, 30, 41); muon_add(&b, 5, 5);
    REFUSES(b.desc.error, b.desc.muon = NULL, memopt_optim_bytes(&b.desc, &bytes), MEMOPT_ERR_ARGUMENT,
            "optim: muon is NULL: take memopt_muon_products()");
    b.desc.muon = memopt_muon_products(MEMOPT_TYPE_F32);
    REFUSES(b.desc.error, b.tensor[1].columns = 0, memopt_optim_bytes(&b.desc, &bytes), MEMOPT_ERR_ARGUMENT,
            "tensor 1: columns is 0: MUON steps matrices; what is none is stepped with its `adamw` 1");
    REFUSES(b.desc.error, b.tensor[1].columns = 4, memopt_optim_bytes(&b.desc, &bytes), MEMOPT_ERR_ARGUMENT,
            "tensor 1: columns 4, must divide count 25");
    b.tensor[1].columns = 5;
    REFUSES(b.desc.error, b.tensor[1].adamw = 2, memopt_optim_bytes(&b.desc, &bytes), MEMOPT_ERR_ARGUMENT,
            "tensor 1: adamw 2, must be 0 or 1");
    b.tensor[1].adamw = 1;
    ACCEPTS(b.desc.error, b.desc.kind = MEMOPT_OPTIM_LION, memopt_optim_bytes(&b.desc, &bytes)); /* which has no such thing */
    bytes = 7;
    b.desc.kind = MEMOPT_OPTIM_MUON;
    REFUSES(b.desc.error, b.desc.state = MEMOPT_STATE_BNB, memopt_optim_bytes(&b.desc, &bytes), MEMOPT_ERR_ARGUMENT,
            "optim: state is MEMOPT_STATE_BNB, which only ADAMW and ADAM have");
    CHECK(bytes == 7);
    b.desc.state = MEMOPT_STATE_F32;
    b.tensor[0].count = SIZE_MAX / 64; b.tensor[0].columns = 1; /* the matrix fits, and with what it takes it does not */
    b.tensor[0].count = SIZE_MAX / 16; b.tensor[0].columns = b.tensor[0].count;
    CHECK(memopt_optim_bytes(&b.desc, &bytes) == MEMOPT_OK || memopt_optim_bytes(&b.desc, &bytes) == MEMOPT_ERR_OVERFLOW);
    b.tensor[0].count = 1230; b.tensor[0].columns = 41;
    CHECK(memopt_optim_open(&b.desc, NULL, &b.optim) == MEMOPT_OK);
    muon_fill(&b, 1);
    h.nesterov = 1; h.beta1 = 0;
    CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(b.optim), MEMOPT_ERR_ARGUMENT, "group 0: nesterov is set without a momentum: beta1 is 0"));
    h.nesterov = 0;
    CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
    CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK && memopt_optim_apply_share(b.optim, 0, 1, NULL) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(memopt_optim_end(b.optim) == MEMOPT_OK);
    memopt_optim_close(b.optim);
    device = *b.desc.muon;
    device.device = &device;
    b.desc.muon = &device;
    CHECK(memopt_optim_open(&b.desc, NULL, &b.optim) == MEMOPT_OK);
    CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(test_error_says(memopt_optim_error(b.optim), MEMOPT_ERR_UNSUPPORTED,
                          "muon is a device's, which has to step it"));
    muon_close(&b);
}
/* What is told beforehand is what is used: nothing behind it is touched, and a byte less is refused. */
static void muon_memory(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 300, 70 }, { 70, 300 }, { 1, 70000 }, { 70000, 1 }, { 300, 260 } };
    const memopt_optim_group h = muon_group(1, 0); const memopt_optim_run run = muon_run(&h, 1, 1); size_t s, bytes, plain, i;
    for (s = 0; s < sizeof shapes / sizeof *shapes; ++s) {
        const size_t side = shapes[s][0] < shapes[s][1] ? shapes[s][0] : shapes[s][1]; muon_bench b; unsigned char *p, *memory;
        if (test_is_passed_over()) continue;
        muon_describe(&b, MEMOPT_TYPE_BF16, MEMOPT_STATE_F32);
        muon_add(&b, shapes[s][0], shapes[s][1]);
        b.desc.place_states = 1;
        CHECK(memopt_optim_bytes(&b.desc, &bytes) == MEMOPT_OK);
        b.desc.kind = MEMOPT_OPTIM_LION;
        CHECK(memopt_optim_bytes(&b.desc, &plain) == MEMOPT_OK);
        b.desc.kind = MEMOPT_OPTIM_MUON;
        CHECK(bytes - plain <= 2 * b.tensor[0].count + 4 * side * side + (side * 256 > 262144 ? side * 256 : 262144) * 4
              + memopt_gemm_scratch(NULL) + 1024);
        memory = (unsigned char *)malloc(bytes + 192);
        memset(memory, 0xA5, bytes + 192);
        p = memory + (64 - (uintptr_t)memory % 64) % 64;
        CHECK(memopt_optim_create(&b.desc, p, bytes - 1, &b.optim) == MEMOPT_ERR_BUFFER && !b.optim);
        CHECK(memopt_optim_create(&b.desc, p, bytes, &b.optim) == MEMOPT_OK);
        muon_fill(&b, 1);
        CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
        for (i = 0; i < 64; ++i) CHECK_AT(p[bytes + i] == 0xA5, i);
        muon_close(&b);
        free(memory);
    }
}
void test_muon(void);
void test_muon(void) {
    RUN(muon_rule);
    RUN(muon_torch);
    RUN(muon_bits);
    RUN(muon_same_bits);
    RUN(muon_lean_states);
    RUN(muon_adamw);
    RUN(muon_nonfinite);
    RUN(muon_small);
    RUN(muon_refused);
    RUN(muon_memory);
}
#ifndef TEST_COMBINED
int main(void) { test_muon(); return test_totals(); }
#endif
