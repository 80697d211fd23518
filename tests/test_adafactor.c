/* test_adafactor.c - Adafactor, section factor. Expected values come from two programs here: the author's rule in
   double, which says that the steps are right, and the order of operations that the section's essay states, element by
   element in plain C, which says what every bit is: of all levels, workers, slices and ranks. */
#include "test.h"

typedef struct adafactor_case {
    size_t rows, columns; /* columns 0: a vector of `row_kernels` elements */
    size_t block;         /* of the desc; it decides about panels */
    int    moment;
    memopt_state_format    state;
    memopt_i_weights       weights;
    memopt_type            gradients;
} adafactor_case;
/* A tensor, or the part of one that a rank holds, with its optimizer. */
typedef struct adafactor_bench {
    memopt_optim_desc   desc;
    memopt_optim_tensor tensor;
    memopt_optim       *optim;
    void  *memory, *state, *gradients; /* aligned within the blocks below */
    void  *blocks[5];
    size_t bytes, state_bytes;
} adafactor_bench;
static size_t adafactor_count(const adafactor_case *c) { return c->rows * (c->columns ? c->columns : 1); }
static int adafactor_is_matrix(const adafactor_case *c) { return c->rows >= 32 && c->columns >= 32; }
/* at an offset from 64-aligned; full of noise */
static void *adafactor_block(void **block, size_t bytes, size_t offset) {
    unsigned char *p = (unsigned char *)malloc(bytes + 192);
    *block = p;
    memset(p, 0xA5, bytes + 192);
    return p + 64 - (uintptr_t)p % 64 + offset;
}
static void adafactor_untouched(const void *end) { /* behind what was asked for */
    int i;
    for (i = 0; i < 48; ++i) CHECK_AT(((const unsigned char *)end)[i] == 0xA5, i);
}
static void adafactor_open(adafactor_bench *b, const adafactor_case *c, const memopt_threads *threads, size_t first,
    size_t held) {
    const size_t n = held ? held : adafactor_count(c);
    memset(b, 0, sizeof *b);
    b->desc.kind = MEMOPT_OPTIM_ADAFACTOR; b->desc.state = c->state; test_set_weights(&b->desc, c->weights);
    b->desc.gradients = c->gradients; b->desc.first_moment = c->moment; b->desc.block = c->block; b->desc.seed = 7;
    b->desc.threads = threads;
    b->desc.tensors = &b->tensor; b->desc.tensor_count = 1;
    b->tensor.count = adafactor_count(c); b->tensor.columns = c->columns;
    b->tensor.first = first; b->tensor.held = held;
    b->tensor.weights = adafactor_block(&b->blocks[0], n * 4, 4); /* aligned to its elements, and no more */
    b->tensor.extra = adafactor_block(&b->blocks[1], n * 2, 2);
    b->tensor.gradients = b->gradients = adafactor_block(&b->blocks[2], n * 4, 12);
    CHECK(memopt_optim_bytes(&b->desc, &b->bytes) == MEMOPT_OK);
    CHECK(memopt_optim_state_bytes(&b->desc, 0, &b->state_bytes) == MEMOPT_OK);
    b->memory = adafactor_block(&b->blocks[3], b->bytes, 0);
    b->state = b->tensor.state = adafactor_block(&b->blocks[4], b->state_bytes, 0);
    CHECK(memopt_optim_create(&b->desc, b->memory, b->bytes, &b->optim) == MEMOPT_OK);
    CHECK(memopt_optim_state_init(b->optim, 0) == MEMOPT_OK);
    CHECK(memopt_optim_state_check(b->optim, 0, b->state_bytes) == MEMOPT_OK);
}
static void adafactor_close(adafactor_bench *b) {
    const size_t n = b->tensor.held ? b->tensor.held : b->tensor.count; int i;
    const int narrow = memopt_i_weights_of(&b->desc) == MEMOPT_I_WEIGHTS_BF16 || memopt_i_weights_of(&b->desc) == MEMOPT_I_WEIGHTS_SPLIT;
    adafactor_untouched((const unsigned char *)b->tensor.weights + n * (narrow ? 2 : 4));
    adafactor_untouched((const unsigned char *)b->tensor.extra + n * 2);
    adafactor_untouched((const unsigned char *)b->state + b->state_bytes);
    adafactor_untouched((const unsigned char *)b->memory + b->bytes);
    for (i = 0; i < 5; ++i) free(b->blocks[i]);
}
static memopt_optim_view adafactor_view(const adafactor_bench *b) {
    memopt_optim_view v;
    memset(&v, 0, sizeof v);
    CHECK(memopt_optim_state_view(b->optim, 0, &v) == MEMOPT_OK);
    return v;
}
static float adafactor_widen(uint16_t high) { return memopt_i_bits_float((uint32_t)high << 16); }
static void adafactor_set_weights(const adafactor_bench *b, const float *w, size_t n) { /* BF16: those that are */
    size_t i;
    for (i = 0; i < n; ++i) {
        const uint32_t bits = memopt_i_float_bits(w[i]);
        if (memopt_i_weights_of(&b->desc) == MEMOPT_I_WEIGHTS_BF16) ((uint16_t *)b->tensor.weights)[i] = (uint16_t)(bits >> 16);
        else if (memopt_i_weights_of(&b->desc) == MEMOPT_I_WEIGHTS_SPLIT)
            memopt_f32_split((uint16_t *)b->tensor.weights + i, (uint16_t *)b->tensor.extra + i, w + i, 1, NULL);
        else ((float *)b->tensor.weights)[i] = w[i];
    }
}
static float adafactor_weight(const adafactor_bench *b, size_t i) {
    float w;
    if (memopt_i_weights_of(&b->desc) == MEMOPT_I_WEIGHTS_BF16) return adafactor_widen(((uint16_t *)b->tensor.weights)[i]);
    if (memopt_i_weights_of(&b->desc) != MEMOPT_I_WEIGHTS_SPLIT) return ((float *)b->tensor.weights)[i];
    memopt_f32_join(&w, (uint16_t *)b->tensor.weights + i, (uint16_t *)b->tensor.extra + i, 1, NULL);
    return w;
}
static void adafactor_set_gradients(const adafactor_bench *b, const float *g, size_t n) {
    uint16_t *high = (uint16_t *)b->gradients; size_t i;
    if (b->desc.gradients == MEMOPT_TYPE_F32) { memcpy(high, g, n * sizeof *g); return; }
    for (i = 0; i < n; ++i) high[i] = (uint16_t)(memopt_i_float_bits(g[i]) >> 16);
}
static float adafactor_half(uint16_t code) { /* IEEE half precision, by its definition */
    const int exponent = code >> 10 & 31, mantissa = code & 0x3ff;
    const double a = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) return memopt_i_bits_float(mantissa ? 0x7fc00000u : 0x7f800000u);
    return (float)(code & 0x8000 ? -a : a);
}
/* A value with 8 significant bits, so that it is a bfloat16, too; rows and columns of very different sizes. */
static float adafactor_value(uint64_t *seed, size_t row, size_t column, double size) {
    const int mantissa = (int)test_below(seed, 511) - 255;
    return (float)ldexp((double)mantissa * size, (int)(row % 5) * 2 - (int)(column % 7) - 8);
}
static void adafactor_fill(float *x, const adafactor_case *c, uint64_t seed, double size) {
    const size_t n = adafactor_count(c), columns = c->columns ? c->columns : 1; size_t i;
    for (i = 0; i < n; ++i) x[i] = adafactor_value(&seed, i / columns, i % columns, size);
}
static memopt_optim_group adafactor_group(void) {
    memopt_optim_group g = memopt_optim_group_default(MEMOPT_OPTIM_ADAFACTOR);
    CHECK(fabs(g.rate - 1e-2) < 1e-17 && fabs(g.beta2 - 0.8) < 1e-15 && fabs(g.eps - 1e-30) < 1e-45);
    CHECK(fabs(g.min_scale - 1e-3) < 1e-18 && g.clip >= 1 && g.clip <= 1 && !(g.beta1 > 0) && !(g.weight_decay > 0));
    return g;
}
static memopt_optim_run adafactor_run(const memopt_optim_group *g, uint64_t step, double factor) {
    memopt_optim_run run;
    memset(&run, 0, sizeof run);
    run.step = step; run.groups = g; run.group_count = 1; run.gradient_factor = factor;
    return run;
}

/* The author's rule in double. r, c: means of rows and columns; or v in r. m may be NULL. */
static void adafactor_rule_step(const adafactor_case *k, double *w, double *m, double *r, double *c, const float *g,
    uint64_t t,
                                const memopt_optim_group *h, double factor) {
    const size_t n = adafactor_count(k), columns = k->columns; size_t i, j;
    const double b2 = 1 - pow((double)t, -h->beta2);
    double *x = (double *)malloc(n * sizeof *x), sum = 0, scale = 0, step, mean = 0;
    if (adafactor_is_matrix(k)) {
        double *across = (double *)calloc(columns, sizeof *across);
        for (i = 0; i < k->rows; ++i) {
            double row = 0;
            for (j = 0; j < columns; ++j) {
                const double d = factor * (double)g[i * columns + j], square = d * d + h->eps;
                row += square; across[j] += square;
            }
            r[i] = b2 * r[i] + (1 - b2) * row / (double)columns;
            mean += r[i] / (double)k->rows;
        }
        for (j = 0; j < columns; ++j) c[j] = b2 * c[j] + (1 - b2) * across[j] / (double)k->rows;
        for (i = 0; i < n; ++i) x[i] = factor * (double)g[i] / sqrt(r[i / columns] / mean) / sqrt(c[i % columns]);
        free(across);
    } else for (i = 0; i < n; ++i) {
        const double d = factor * (double)g[i];
        r[i] = b2 * r[i] + (1 - b2) * (d * d + h->eps);
        x[i] = d / sqrt(r[i]);
    }
    for (i = 0; i < n; ++i) { sum += x[i] * x[i]; scale += w[i] * w[i]; }
    sum = sqrt(sum / (double)n) / h->clip; scale = sqrt(scale / (double)n);
    if (scale < h->min_scale) scale = h->min_scale;
    step = 1 / sqrt((double)t);
    if (h->rate < step) step = h->rate;
    step *= scale / (sum > 1 ? sum : 1);
    for (i = 0; i < n; ++i) {
        double u = step * x[i];
        if (m) u = m[i] = h->beta1 * m[i] + (1 - h->beta1) * u;
        w[i] = w[i] * (1 - h->rate * h->weight_decay) - u;
    }
    free(x);
}
static int adafactor_near(double a, double b, double relative) { return fabs(a - b) <= relative * fabs(b); }
static void adafactor_rule_case(const adafactor_case *k, const memopt_optim_group *h, double factor) {
    const size_t n = adafactor_count(k), means = adafactor_is_matrix(k) ? k->rows : n; size_t i; uint64_t t;
    float *first = (float *)malloc(n * sizeof *first), *g = (float *)malloc(n * sizeof *g);
    double *w = (double *)malloc(n * sizeof *w), *m = (double *)calloc(n, sizeof *m), *r = (double *)calloc(n,
        sizeof *r);
    double *c = (double *)calloc(k->columns + 1, sizeof *c), *before = (double *)malloc(n * sizeof *before);
    adafactor_bench b; memopt_optim_view v;
    adafactor_open(&b, k, NULL, 0, 0);
    adafactor_fill(first, k, 3, 1);
    adafactor_set_weights(&b, first, n);
    for (i = 0; i < n; ++i) w[i] = (double)first[i];
    v = adafactor_view(&b);
    for (t = 1; t <= 3; ++t) {
        const memopt_optim_run run = adafactor_run(h, t, factor); double largest = 0;
        adafactor_fill(g, k, t * 11, 0.0009765625);
        adafactor_set_gradients(&b, g, n);
        /* a step's error, not that of all */
        for (i = 0; i < n; ++i) before[i] = w[i] = (double)adafactor_weight(&b, i);
        adafactor_rule_step(k, w, k->moment ? m : NULL, r, c, g, t, h, factor);
        CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
        for (i = 0; i < n; ++i) if (fabs(w[i] - before[i]) > largest) largest = fabs(w[i] - before[i]);
        CHECK(largest > 1e-6);
        for (i = 0; i < n; ++i) {
            const double u = w[i] - before[i], slack = k->moment ? 2e-7 * largest : 0; /* a sum that cancels */
            CHECK_AT(fabs((double)adafactor_weight(&b,
                i) - w[i]) <= 2e-6 * fabs(u) + 1.3e-7 * fabs(before[i]) + slack, i);
            if (k->moment) CHECK_AT(fabs((double)((float *)v.moment[0])[i] - m[i]) <= 4e-6 * fabs(m[i]) + slack, i);
        }
        for (i = 0; i < means; ++i) CHECK_AT(adafactor_near((double)v.rows[i], r[i], 1e-6), i);
        if (means < n) for (i = 0; i < k->columns; ++i) CHECK_AT(adafactor_near((double)v.columns[i], c[i], 1e-6), i);
    }
    CHECK(memopt_optim_skipped(b.optim) == 0 && memopt_optim_applied(b.optim, 0) == n);
    adafactor_close(&b);
    free(first); free(g); free(w); free(m); free(r); free(c); free(before);
}
static const size_t adafactor_shapes[][3] = { /* rows, columns, block */
    { 1, 0, 0 }, { 1000, 0, 0 }, { 40, 33, 0 }, { 64, 100, 0 }, { 300, 257, 32 }, { 31, 1000, 0 }, { 100, 31, 0 },
    { 32, 32, 32 }, { 640, 64, 0 }, { 33, 520, 64 } };
enum { ADAFACTOR_SHAPES = sizeof adafactor_shapes / sizeof adafactor_shapes[0] };
static adafactor_case adafactor_shape(int i, int moment) {
    adafactor_case c;
    memset(&c, 0, sizeof c);
    c.rows = adafactor_shapes[i][0]; c.columns = adafactor_shapes[i][1]; c.block = adafactor_shapes[i][2];
    c.moment = moment;
    return c;
}
static void adafactor_rule(void) {
    int i, way;
    for (i = 0; i < ADAFACTOR_SHAPES; ++i)
        for (way = 0; way < 5; ++way) {
            const adafactor_case c = adafactor_shape(i, way == 1 || way == 3);
            memopt_optim_group h = adafactor_group();
            /* that is all of it at once; the rest would take long */
            if (adafactor_count(&c) > 20000 && way != 3) continue;
            if (c.moment) h.beta1 = 0.9;
            if (way == 2) h.rate = 1e3;                                   /* 1 / sqrt(t) is less */
            if (way == 3) { h.weight_decay = 0.1; h.min_scale = 10; h.beta2 = 0.5; }
            /* a cap that 1 / sqrt(t) falls below at t = 3 */
            if (way == 4) { h.clip = 0.25; h.eps = 1e-9; h.rate = 0.6; }
            adafactor_rule_case(&c, &h, way == 2 ? 0.125 : 1);
        }
}


/* Every bit: the essay's order of operations, with a panel of `panel` rows (or elements of a vector). State and weights
   are floats in memory; what is skipped is judged here, too. */
typedef struct adafactor_model {
    float   *w, *m, *r, *c; /* r: V where there are no rows. m in 8 bits: levels, without their scale */
    float   *scale;         /* of each block of m; 1 where m is not in 8 bits */
    uint8_t *codes;
    size_t   block;
} adafactor_model;
static int adafactor_is_coded(const adafactor_case *k) { /* small tensors keep floats */
    return k->moment && k->state == MEMOPT_STATE_8BIT && adafactor_count(k) >= 4096;
}
static float adafactor_float(float x) { volatile float stored = x; return stored; } /* no wider, and not fused */
static double adafactor_plus(double a, double b, double c) { /* a b + c, where a b is exact */
#if defined(__FLT_EVAL_METHOD__)
#  if __FLT_EVAL_METHOD__ == 2 /* x87: the sum would be rounded twice; and a compiler that sees a 1 makes a sum of it */
    volatile double factor = b;
    return fma(a, factor, c);
#  endif
#endif
    return a * b + c;
}
static double adafactor_joined(double *sums) {
    int half, i;
    for (half = 8; half; half /= 2)
        for (i = 0; i < half; ++i) sums[i] = adafactor_plus(sums[i], 1, sums[i + half]);
    return sums[0];
}
static double adafactor_squares(const float *x, size_t n) { /* 256 at a time */
    double sum = 0; size_t i, at;
    for (at = 0; at < n; at += 256) {
        double sums[16] = { 0 };
        for (i = at; i < n && i < at + 256; ++i) sums[i % 16] = adafactor_plus((double)x[i], (double)x[i],
            sums[i % 16]);
        sum = adafactor_plus(adafactor_joined(sums), 1, sum);
    }
    return sum;
}
static double adafactor_decay(uint64_t t, double power) { /* the power in binary: a root for each bit */
    double result = 1, root = (double)t; int i;
    for (i = 0; i < 80; ++i) {
        const double scaled = ldexp(power, i + 1);
        root = sqrt(root);
        if (fmod(scaled, 2) >= 1) result *= root;
    }
    return 1 / result;
}
static void adafactor_model_means(const adafactor_case *k, const adafactor_model *s, const float *g, size_t panel,
                                  float b2, float g2, float f, float eps, float *across, float *along) {
    const size_t columns = k->columns; size_t i, j, p; double mean = 0, *row = (double *)malloc(k->rows * sizeof *row);
    const double ff = (double)f * (double)f;
    for (i = 0; i < k->rows; ++i) {
        double sums[16] = { 0 };
        for (j = 0; j < columns; ++j) {
            const double d = (double)g[i * columns + j];
            sums[j % 16] = adafactor_plus(d, d, sums[j % 16]);
        }
        row[i] = adafactor_joined(sums);
    }
    for (j = 0; j < columns; ++j) {
        double total = 0;
        for (p = 0; p < k->rows; p += panel) {
            double sum = 0;
            for (i = p; i < k->rows && i < p + panel; ++i)
                sum = adafactor_plus((double)g[i * columns + j], (double)g[i * columns + j], sum);
            total = adafactor_plus(sum, 1, total);
        }
        s->c[j] = (float)fma((double)b2, (double)s->c[j], (double)g2 * (ff * total / (double)k->rows + (double)eps));
        mean = adafactor_plus((double)s->c[j], 1, mean);
        across[j] = (float)(1 / sqrt((double)s->c[j]));
    }
    mean /= (double)columns;
    for (i = 0; i < k->rows; ++i) {
        s->r[i] = (float)fma((double)b2, (double)s->r[i], (double)g2 * (ff * row[i] / (double)columns + (double)eps));
        along[i] = (float)sqrt(mean / (double)s->r[i]);
    }
    free(row);
}
/* The multiplier of x: from the squares of panels. */
static double adafactor_model_pace(const adafactor_case *k, const adafactor_model *s, const float *x,
    const float *along,
                                  size_t panel, uint64_t t, const memopt_optim_group *h) {
    const size_t n = adafactor_count(k), columns = k->columns; size_t i, p;
    double squares = 0, weights = 0, rate = 1 / sqrt((double)t);
    if (along) for (p = 0; p < k->rows; p += panel) {
        double sum = 0, sum_w = 0; size_t j;
        for (i = p; i < k->rows && i < p + panel; ++i) {
            sum = fma((double)along[i] * (double)along[i], adafactor_squares(x + i * columns, columns), sum);
            for (j = 0; j < columns; j += 256)
                sum_w += adafactor_squares(s->w + i * columns + j, columns - j < 256 ? columns - j : 256);
        }
        squares += sum; weights += sum_w;
    } else for (p = 0; p < n; p += panel) {
        const size_t size = n - p < panel ? n - p : panel;
        squares += adafactor_squares(x + p, size);
        weights += adafactor_squares(s->w + p, size);
    }
    squares = sqrt(squares / (double)n) / h->clip; weights = sqrt(weights / (double)n);
    if (weights <= h->min_scale) weights = h->min_scale;
    if (h->rate < rate) rate = h->rate;
    return rate * weights / (squares > 1 ? squares : 1);
}
static memopt_noise adafactor_noise(uint64_t seed, uint64_t stream, uint32_t shift) {
    memopt_noise noise = memopt_noise_make(seed, stream);
    noise.shift = shift;
    return noise;
}
/* What storing does to weights and moment. Conversions and codes have tests of their own. */
static void adafactor_model_store(const adafactor_case *k, const adafactor_model *s, uint64_t t) {
    const size_t n = adafactor_count(k); size_t i, j; memopt_i_state_codec codes;
    /* streams: tensor * 3 for weights, 1 more for moments */
    const uint64_t seed = 7 + (t >> 6) * UINT64_C(0x9e3779b97f4a7c15); uint32_t shift = 0; int bit;
    for (bit = 0; bit < 6; ++bit) if (t >> bit & 1) shift += (uint32_t)0x80008000u >> bit;
    for (i = 0; i < n; ++i) {
        uint16_t high;
        if (k->weights == MEMOPT_I_WEIGHTS_BF16) {
            memopt_bf16_from_f32_stochastic(&high, s->w + i, 1, adafactor_noise(seed, 0, shift), i, NULL);
            s->w[i] = adafactor_widen(high);
        }
        if (s->m && k->state == MEMOPT_STATE_BF16) {
            memopt_bf16_from_f32_stochastic(&high, s->m + i, 1, adafactor_noise(seed, 1, shift), i, NULL);
            s->m[i] = adafactor_widen(high);
        }
    }
    if (!adafactor_is_coded(k)) return;
    memopt_i_state_codec_init(&codes, 1);
    for (i = 0; i < n; i += s->block) {
        const size_t size = n - i < s->block ? n - i : s->block; float most = 0;
        for (j = i; j < i + size; ++j) if (fabsf(s->m[j]) > most) most = fabsf(s->m[j]);
        memopt_i_v1_state_codec_encode(&codes, s->codes + i, s->m + i, size, memopt_i_inverse(most));
        memopt_i_v1_state_codec_decode(&codes, s->m + i, s->codes + i, size);
        s->scale[i / s->block] = most;
    }
}
static size_t adafactor_model_step(const adafactor_case *k, const adafactor_model *s, const float *gradients,
    size_t panel,
                                   uint64_t t, const memopt_optim_group *h, float f) {
    const size_t n = adafactor_count(k); const int matrix = adafactor_is_matrix(k); size_t i, skipped = 0;
    const double decay = adafactor_decay(t, h->beta2);
    const float b2 = (float)(1 - decay), g2 = (float)decay, eps = (float)h->eps;
    const float b1 = (float)h->beta1, g1 = (float)(1 - h->beta1), keep = (float)(1 - h->rate * h->weight_decay);
    double pace;
    float *g = (float *)malloc(n * sizeof *g), *x = (float *)malloc(n * sizeof *x),
        *across = (float *)malloc((k->columns + 1) * sizeof *across);
    float *along = (float *)malloc(k->rows * sizeof *along), *v = (float *)malloc(n * sizeof *v);
    for (i = 0; i < n; ++i) { /* below 2^62 after the factor; false for NaN */
        const int finite = fabs((double)gradients[i]) < ldexp(1, 62) / (double)f
            && fabs((double)gradients[i]) <= 3.4028234663852886e38;
        g[i] = finite ? gradients[i] : 0;
        skipped += !finite;
    }
    if (matrix) adafactor_model_means(k, s, g, panel, b2, g2, f, eps, across, along);
    for (i = 0; i < n; ++i) {
        const float d = adafactor_float(f * g[i]);
        if (matrix) { x[i] = adafactor_float(d * across[i % k->columns]); continue; }
        v[i] = fmaf(b2, s->r[i], adafactor_float(g2 * fmaf(d, d, eps)));
        x[i] = adafactor_float(d / adafactor_float(sqrtf(v[i])));
    }
    pace = adafactor_model_pace(k, s, x, matrix ? along : NULL, panel, t, h);
    for (i = 0; i < n; ++i) {
        float u = adafactor_float(x[i] * (float)(matrix ? (double)along[i / k->columns] * pace : pace));
        const float scale = s->scale[i / s->block];
        if (memcmp(g + i, gradients + i, sizeof *g)) { /* skipped */
            if (s->m) s->m[i] = adafactor_float(s->m[i] * scale);
            continue;
        }
        if (!matrix) s->r[i] = v[i];
        if (s->m) u = s->m[i] = fmaf(adafactor_float(b1 * scale), s->m[i], adafactor_float(g1 * u));
        s->w[i] = fmaf(-1.0f, u, adafactor_float(s->w[i] * keep));
    }
    adafactor_model_store(k, s, t);
    free(g); free(x); free(across); free(along); free(v);
    return skipped;
}
static adafactor_model adafactor_model_make(const adafactor_case *k, uint64_t seed, double size) {
    const size_t n = adafactor_count(k); adafactor_model s; size_t i;
    s.w = (float *)malloc(n * sizeof *s.w);
    s.m = k->moment ? (float *)calloc(n, sizeof *s.m) : NULL;
    s.r = (float *)calloc(n, sizeof *s.r);
    s.c = (float *)calloc(k->columns + 1, sizeof *s.c);
    s.codes = (uint8_t *)calloc(n, 1);
    s.block = k->block ? k->block : 256;
    s.scale = (float *)calloc(n / s.block + 1, sizeof *s.scale);
    for (i = 0; i <= n / s.block; ++i) s.scale[i] = adafactor_is_coded(k) ? 0.0f : 1.0f;
    adafactor_fill(s.w, k, seed, size);
    return s;
}
static void adafactor_model_free(adafactor_model *s) {
    free(s->w); free(s->m); free(s->r); free(s->c); free(s->codes); free(s->scale);
}

/* Workers that take the chunks in an order of their own. */
static void adafactor_run_fn(void *user, size_t chunks, memopt_task_fn *fn, void *task) {
    uint64_t *seed = (uint64_t *)user; size_t order[4096], i;
    const size_t workers = (size_t)(*seed >> 32); uint64_t random = *seed;
    CHECK(chunks <= 4096);
    for (i = 0; i < chunks; ++i) order[i] = i;
    for (i = chunks; i > 1; --i) {
        const size_t j = test_below(&random, i), swap = order[i - 1];
        order[i - 1] = order[j]; order[j] = swap;
    }
    for (i = 0; i < chunks; ++i) fn(task, order[i], (int)test_below(&random, workers));
}
static memopt_threads adafactor_threads(int level, int workers, uint64_t *seed) {
    memopt_threads t;
    memset(&t, 0, sizeof t);
    t.simd_level = level;
    if (!workers) return t;
    *seed = (uint64_t)workers << 32 | (uint64_t)level;
    t.run_fn = adafactor_run_fn; t.user = seed; t.worker_count = workers;
    return t;
}
/* A step in slices of `grains` grains, the last slices first where `backwards`; 0: all at once. */
static void adafactor_sliced(adafactor_bench *b, const memopt_optim_run *run, size_t grains) {
    const size_t first = b->tensor.first, held = b->tensor.held ? b->tensor.held : b->tensor.count - first;
    const size_t size = grains * memopt_i_optim_slice_alignment(&b->optim->desc, &b->optim->desc.tensors[0]); size_t at; int again = 1, passes = 0;
    if (!grains) { CHECK(memopt_optim_step(b->optim, run) == MEMOPT_OK); return; }
    CHECK(memopt_optim_begin(b->optim, run) == MEMOPT_OK);
    for (; again; ++passes) {
        for (at = 0; at < held; at += size)
            CHECK(memopt_i_optim_measure(b->optim, 0, first + at, held - at < size ? held - at : size) == MEMOPT_OK);
        CHECK(memopt_i_optim_join(b->optim, 0, &again) == MEMOPT_OK);
    }
    CHECK(passes == 2);
    for (at = 0; at < held; at += size) {
        CHECK(memopt_optim_applied(b->optim, 0) == at);
        CHECK(memopt_i_optim_apply(b->optim, 0, first + at, held - at < size ? held - at : size) == MEMOPT_OK);
    }
    CHECK(memopt_optim_end(b->optim) == MEMOPT_OK);
}
static memopt_optim_group adafactor_hard_group(const adafactor_case *c) { /* all that the rule can do */
    memopt_optim_group h = adafactor_group();
    h.clip = 0.75; h.weight_decay = 0.125; h.rate = 0.6;
    if (c->moment) h.beta1 = 0.9;
    return h;
}
/* Some gradients that must be skipped: in the first and last place, later in others, which have a moment by then. */
static void adafactor_spoil(float *g, size_t n, uint64_t t) {
    static const uint32_t bad[] = { 0x7fc00000u, 0x7f800000u, 0xff800000u, 0xffffffffu, 0x7f7fffffu, 0x5f800000u,
        0x7f800001u };
    size_t i;
    for (i = 0; i < 7 && n > 300; ++i) g[(i * (n - 1) / 6 + ((size_t)t - 1) * 15) % n] = memopt_i_bits_float(bad[i]);
}
static uint64_t adafactor_hash(uint64_t hash, float x) {
    return (hash ^ memopt_i_float_bits(x)) * UINT64_C(0x100000001b3);
}
#define ADAFACTOR_FACTOR 0.40625f
enum { ADAFACTOR_STEPS = 3 };
/* Three steps of the model: a hash of weights, moment and means after each. panel: rows; elements of a vector. */
static uint64_t adafactor_expected(const adafactor_case *k, size_t panel, int spoilt) {
    const size_t n = adafactor_count(k), rows = adafactor_is_matrix(k) ? k->rows : n; size_t i; uint64_t t, hash = 1;
    adafactor_model s = adafactor_model_make(k, 5, 1); float *g = (float *)malloc(n * sizeof *g);
    const memopt_optim_group h = adafactor_hard_group(k);
    for (t = 1; t <= ADAFACTOR_STEPS; ++t) {
        adafactor_fill(g, k, t * 7, ldexp(1, -14));
        if (spoilt) adafactor_spoil(g, n, t);
        CHECK(adafactor_model_step(k, &s, g, panel, t, &h, ADAFACTOR_FACTOR) == (spoilt && n > 300 ? 7 : 0));
        for (i = 0; i < n; ++i) hash = adafactor_hash(hash, s.w[i]);
        for (i = 0; i < n && s.m; ++i) hash = adafactor_hash(hash, s.m[i]);
        for (i = 0; i < rows; ++i) hash = adafactor_hash(hash, s.r[i]);
        for (i = 0; i < k->columns && rows < n; ++i) hash = adafactor_hash(hash, s.c[i]);
        for (i = 0; i < n && adafactor_is_coded(k); i += s.block) hash = adafactor_hash(hash, s.scale[i / s.block]);
    }
    adafactor_model_free(&s); free(g);
    return hash;
}
static void adafactor_moment(const adafactor_bench *b, const memopt_optim_view *v, float *m, size_t n) {
    size_t i;
    if (v->bits == 32) memcpy(m, v->moment[0], n * sizeof *m);
    else if (v->bits == 16) for (i = 0; i < n; ++i) m[i] = adafactor_widen(((uint16_t *)v->moment[0])[i]);
    else memopt_i_v1_state_codec_decode(&b->optim->codes[0], m, (uint8_t *)v->moment[0], n);
}
/* The hash of what parts of one tensor, held by one rank or two, hold together. */
static uint64_t adafactor_hash_parts(const adafactor_case *k, const adafactor_bench *b, int ranks, uint64_t hash) {
    const size_t n = adafactor_count(k), rows = adafactor_is_matrix(k) ? k->rows : n; size_t i, row = 0; int rank;
    float *all = (float *)malloc(n * sizeof *all); memopt_optim_view v;
    for (rank = 0; rank < ranks; ++rank) {
        v = adafactor_view(&b[rank]);
        for (i = 0; i < v.held; ++i) {
            const float w = adafactor_weight(&b[rank], i); uint16_t high;
            hash = adafactor_hash(hash, w);
            if (k->weights != MEMOPT_I_WEIGHTS_F32_BF16) continue;
            CHECK(memopt_bf16_from_f32(&high, &w, 1, NULL) == MEMOPT_OK);
            CHECK_AT(((uint16_t *)b[rank].tensor.extra)[i] == high, i);
        }
    }
    for (rank = 0; rank < ranks && k->moment; ++rank) {
        v = adafactor_view(&b[rank]);
        adafactor_moment(&b[rank], &v, all, v.held);
        for (i = 0; i < v.held; ++i) hash = adafactor_hash(hash, all[i]);
    }
    for (rank = 0; rank < ranks; ++rank) {
        v = adafactor_view(&b[rank]);
        for (i = 0; i < (rows < n ? v.held / k->columns : v.held); ++i, ++row) hash = adafactor_hash(hash, v.rows[i]);
    }
    CHECK(row == rows);
    for (i = 0; i < k->columns && rows < n; ++i) hash = adafactor_hash(hash, v.columns[i]);
    for (rank = 0; rank < ranks && k->moment; ++rank) {
        v = adafactor_view(&b[rank]);
        CHECK(!v.blocks == !adafactor_is_coded(k));
        for (i = 0; i < v.blocks; ++i) hash = adafactor_hash(hash, v.scale[0][i]);
    }
    free(all);
    return hash;
}
/* The same three steps by the library; slices of so many grains, 0: whole. */
static uint64_t adafactor_found(const adafactor_case *k, int level, int workers, size_t grains, int spoilt) {
    const size_t n = adafactor_count(k); uint64_t t, seed, hash = 1;
    const memopt_threads threads = adafactor_threads(level, workers, &seed);
    const memopt_optim_group h = adafactor_hard_group(k);
    float *x = (float *)malloc(n * sizeof *x); adafactor_bench b;
    adafactor_open(&b, k, &threads, 0, 0);
    adafactor_fill(x, k, 5, 1);
    adafactor_set_weights(&b, x, n);
    for (t = 1; t <= ADAFACTOR_STEPS; ++t) {
        const memopt_optim_run run = adafactor_run(&h, t, (double)ADAFACTOR_FACTOR);
        adafactor_fill(x, k, t * 7, ldexp(1, -14));
        if (spoilt) adafactor_spoil(x, n, t);
        adafactor_set_gradients(&b, x, n);
        adafactor_sliced(&b, &run, grains);
        CHECK(memopt_optim_skipped(b.optim) == (spoilt && n > 300 ? 7 : 0));
        hash = adafactor_hash_parts(k, &b, 1, hash);
    }
    CHECK(memopt_optim_state_check(b.optim, 0, b.state_bytes) == MEMOPT_OK);
    adafactor_close(&b); free(x);
    return hash;
}
/* Rows of a panel, elements of a vector's, by the definition: a 32nd of all of them, and whole blocks. */
static size_t adafactor_panel(const adafactor_case *k) {
    const size_t width = adafactor_is_matrix(k) ? k->columns : 1, block = k->block ? k->block : 256;
    size_t panel = (adafactor_count(k) / width + 31) / 32;
    while (panel * width % block) ++panel;
    return panel;
}
static void adafactor_bits(void) { /* every shape at every level; then workers and slices */
    static const int workers[] = { 1, 2, 7, 32 };
    int level, i, way;
    for (i = 0; i < ADAFACTOR_SHAPES; ++i) {
        const adafactor_case c = adafactor_shape(i, i & 1);
        const int spoilt = i % 3 != 2, large = adafactor_count(&c) > 20000;
        const uint64_t expected = adafactor_expected(&c, adafactor_panel(&c), spoilt);
        if (test_is_passed_over()) continue;
        for (level = 1; level <= memopt_simd_best(); ++level) {
            if (large && level != 1 && level != memopt_simd_best()) continue;
            CHECK_AT(adafactor_found(&c, level, large ? 5 : 0, 0, spoilt) == expected, i * 10 + level);
        }
        for (way = 0; way < 4 && !large; ++way)
            CHECK_AT(adafactor_found(&c, 0, workers[way], (size_t)way, spoilt) == expected, i * 10 + way);
        CHECK_AT(adafactor_found(&c, 0, 5, 7, spoilt) == expected, i);
    }
}
/* The sums themselves, where an order shows in the last bit of a double: of rows and columns, then of squares. */
static void adafactor_sums_at(int level, int workers) {
    adafactor_case c; size_t n, panel, i, j, count; uint64_t seed, random = 77; double *sums; int again;
    const memopt_threads threads = adafactor_threads(level, workers, &seed);
    const memopt_optim_group h = adafactor_group();
    const memopt_optim_run run = adafactor_run(&h, 1, 1); adafactor_bench b; adafactor_model s;
    float *g, *across, *along;
    memset(&c, 0, sizeof c);
    c.rows = 70; c.columns = 301; c.block = 32;
    n = adafactor_count(&c); panel = adafactor_panel(&c);
    CHECK(panel == 32);
    adafactor_open(&b, &c, &threads, 0, 0);
    s = adafactor_model_make(&c, 5, 1);
    g = (float *)malloc(n * sizeof *g); across = (float *)malloc(n * sizeof *across);
    along = (float *)malloc(n * sizeof *along);
    for (i = 0; i < n; ++i) {
        g[i] = (float)ldexp((double)(test_random(&random) >> 40) - 8388608, (int)test_below(&random, 9) - 30);
        s.w[i] = (float)ldexp((double)(test_random(&random) >> 40) - 8388608, (int)test_below(&random, 9) - 30);
    }
    adafactor_set_weights(&b, s.w, n);
    adafactor_set_gradients(&b, g, n);
    CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK && memopt_i_optim_measure(b.optim, 0, 0, n) == MEMOPT_OK);
    CHECK(memopt_i_optim_sums(b.optim, 0, &sums, &count) == MEMOPT_OK && count == 70 + 32 * 301);
    for (i = 0; i < c.rows; ++i) {
        double row[16] = { 0 };
        for (j = 0; j < c.columns; ++j) {
            const double d = (double)g[i * c.columns + j];
            row[j % 16] = adafactor_plus(d, d, row[j % 16]);
        }
        (void)adafactor_joined(row);
        CHECK_AT(!memcmp(sums + i, row, sizeof *sums), i);
    }
    for (i = 0; i < 32 * c.columns; ++i) {
        const size_t first = i / c.columns * panel, column = i % c.columns; double sum = 0;
        for (j = first; j < first + panel && j < c.rows; ++j)
            sum = adafactor_plus((double)g[j * c.columns + column], (double)g[j * c.columns + column], sum);
        CHECK_AT(!memcmp(sums + 70 + i, &sum, sizeof sum), i);
    }
    adafactor_model_means(&c, &s, g, panel, 0, 1, 1, 1e-30f, across, along);
    CHECK(memopt_i_optim_join(b.optim, 0, &again) == MEMOPT_OK && memopt_i_optim_measure(b.optim, 0, 0, n) == MEMOPT_OK);
    CHECK(memopt_i_optim_sums(b.optim, 0, &sums, &count) == MEMOPT_OK && count == 64);
    for (i = 0; i < 32; ++i) {
        double x = 0, w = 0;
        for (j = i * panel; j < (i + 1) * panel && j < c.rows; ++j) {
            float *row = g + j * c.columns; size_t k;
            for (k = 0; k < c.columns; ++k) row[k] = adafactor_float(row[k] * across[k]);
            x = fma((double)along[j] * (double)along[j], adafactor_squares(row, c.columns), x);
            w = adafactor_plus(adafactor_squares(s.w + j * c.columns, 256), 1, w);
            w = adafactor_plus(adafactor_squares(s.w + j * c.columns + 256, c.columns - 256), 1, w);
        }
        CHECK_AT(!memcmp(sums + 2 * i, &x, sizeof x) && !memcmp(sums + 2 * i + 1, &w, sizeof w), i);
    }
    CHECK(memopt_optim_end(b.optim) == MEMOPT_OK);
    adafactor_close(&b); adafactor_model_free(&s);
    free(g); free(across); free(along);
}
static void adafactor_sums(void) {
    int level;
    for (level = 1; level <= memopt_simd_best(); ++level) adafactor_sums_at(level, level % 2 ? 0 : 3);
}
/* A column whose sum lies halfway between two floats after two rows. What follows is too small to change a double when
   it is added in order; some of it added up first, of rows or of panels, tips the scale. And the other way round. */
static void adafactor_columns_in_order(void) {
    int level, way, i;
    for (level = 1; level <= memopt_simd_best(); ++level)
        for (way = 0; way < 2; ++way) {
            const memopt_optim_group h = adafactor_group(); const memopt_optim_run run = adafactor_run(&h, 1, 1);
            const memopt_threads threads = adafactor_threads(level, 0, NULL); adafactor_bench b; adafactor_case c;
            float *g = (float *)calloc(128 * 32, sizeof *g);
            memset(&c, 0, sizeof c);
            c.rows = 128; c.columns = 32; c.block = 32; /* four rows a panel */
            CHECK(adafactor_panel(&c) == 4);
            for (i = 0; i < 128; i += i < 4 ? 1 : 4) /* backwards: only panels tip it */
                if (!way || i < 2 || i > 3) g[(way ? 127 - i : i) * 32 + 5] = (float)ldexp(i > 1 ? 1.25 : 1,
                    i > 1 ? -27 : i ? -12 : 0);
            adafactor_open(&b, &c, &threads, 0, 0);
            adafactor_set_weights(&b, g, 128 * 32);
            adafactor_set_gradients(&b, g, 128 * 32);
            CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
            CHECK_AT(memopt_i_float_bits(adafactor_view(&b).columns[5]) == (way ? 0x3c000001u : 0x3c000000u), level);
            adafactor_close(&b); free(g);
        }
}
/* A rank's sums are in the places that they have in the whole tensor. */
static void adafactor_sums_of_a_part(void) {
    adafactor_case c; adafactor_bench b[2]; double *sums[2]; size_t n, first, count, i; uint64_t random = 5;
    int rank, again;
    const memopt_optim_group h = adafactor_group(); const memopt_optim_run run = adafactor_run(&h, 1, 1); float *x;
    memset(&c, 0, sizeof c);
    c.rows = 96; c.columns = 64; c.block = 32; /* three rows a panel */
    n = adafactor_count(&c); first = 48 * 64;
    x = (float *)malloc(n * sizeof *x);
    for (i = 0; i < n; ++i) x[i] = (float)(1 + test_below(&random, 1000));
    for (rank = 0; rank < 2; ++rank) { /* all of it; the second half */
        adafactor_open(&b[rank], &c, NULL, rank ? first : 0, rank ? n - first : 0);
        adafactor_set_weights(&b[rank], rank ? x + first : x, rank ? n - first : n);
        adafactor_set_gradients(&b[rank], rank ? x + first : x, rank ? n - first : n);
        CHECK(memopt_optim_begin(b[rank].optim, &run) == MEMOPT_OK);
    }
    CHECK(memopt_i_optim_measure(b[0].optim, 0, 0, n) == MEMOPT_OK);
    CHECK(memopt_i_optim_measure(b[1].optim, 0, first, n - first) == MEMOPT_OK);
    for (rank = 0; rank < 2; ++rank) CHECK(memopt_i_optim_sums(b[rank].optim, 0, &sums[rank], &count) == MEMOPT_OK);
    for (i = 0; i < count; ++i) { /* rows 48 and up; panels 16 and up */
        const int own = i < 96 ? i >= 48 : (i - 96) / 64 >= 16;
        const double expected = own ? sums[0][i] : 0;
        CHECK_AT(!memcmp(&sums[1][i], &expected, sizeof expected), i);
        CHECK_AT(sums[0][i] > 0, i);
    }
    memcpy(sums[1], sums[0], count * sizeof(double));
    CHECK(memopt_i_optim_join(b[0].optim, 0, &again) == MEMOPT_OK
        && memopt_i_optim_join(b[1].optim, 0, &again) == MEMOPT_OK);
    CHECK(memopt_i_optim_measure(b[0].optim, 0, 0, n) == MEMOPT_OK);
    CHECK(memopt_i_optim_measure(b[1].optim, 0, first, n - first) == MEMOPT_OK);
    for (rank = 0; rank < 2; ++rank) CHECK(memopt_i_optim_sums(b[rank].optim, 0, &sums[rank], &count) == MEMOPT_OK);
    for (i = 0; i < count; ++i) {
        const double expected = i >= 32 ? sums[0][i] : 0;
        CHECK_AT(!memcmp(&sums[1][i], &expected, sizeof expected) && sums[0][i] > 0, i);
    }
    adafactor_close(&b[0]); adafactor_close(&b[1]); free(x);
}
static adafactor_case adafactor_small(int vector) { /* 32 panels and a short last one; large enough for 8 bits */
    adafactor_case c;
    memset(&c, 0, sizeof c);
    c.rows = vector ? 5003 : 95; c.columns = vector ? 0 : 64; c.block = vector ? 64 : 32;
    return c;
}
static void adafactor_formats(void) { /* every format, at every level */
    int way, vector; uint64_t golden = 1;
    for (vector = 0; vector < 2; ++vector)
        for (way = 0; way < 48; ++way) {
            adafactor_case c = adafactor_small(vector); uint64_t expected;
            c.weights = (memopt_i_weights)(way % 4); c.gradients = (memopt_type)(way / 4 % 2);
            c.state = (memopt_state_format)(way / 8 % 3); c.moment = way / 24;
            if (!c.moment && c.state != MEMOPT_STATE_F32) continue; /* no moment: no format */
            expected = adafactor_expected(&c, adafactor_panel(&c), 1);
            if (c.state == MEMOPT_STATE_F32 && c.weights != MEMOPT_I_WEIGHTS_BF16) golden = golden * 31 + expected;
            if (test_is_passed_over()) continue;
            CHECK_AT(adafactor_found(&c, 1 + way % memopt_simd_best(), 0, 0, 1) == expected, vector * 100 + way);
            CHECK_AT(adafactor_found(&c, 0, 3, (size_t)(way % 3), 1) == expected, vector * 100 + way);
        }
    CHECK(golden == UINT64_C(0xae8730fdad325b61)); /* the same on every machine, for ever */
}
/* fp16 gradients, any code but with few that are not finite, against the same numbers in float. */
static void adafactor_half_case(const adafactor_case *k, int level) {
    const size_t n = adafactor_count(k); size_t i; uint64_t t, seed, random = 3; adafactor_case wide = *k, narrow = *k;
    const memopt_threads threads = adafactor_threads(level, level % 3, &seed); adafactor_bench a, b;
    const memopt_optim_group h = adafactor_hard_group(k);
    float *x = (float *)malloc(n * sizeof *x);
    narrow.gradients = MEMOPT_TYPE_F16;
    adafactor_open(&a, &wide, &threads, 0, 0); adafactor_open(&b, &narrow, &threads, 0, 0);
    adafactor_fill(x, k, 5, 1);
    adafactor_set_weights(&a, x, n); adafactor_set_weights(&b, x, n);
    for (t = 1; t <= ADAFACTOR_STEPS; ++t) {
        const memopt_optim_run run = adafactor_run(&h, t, (double)ADAFACTOR_FACTOR);
        for (i = 0; i < n; ++i) {
            uint16_t code = (uint16_t)(test_random(&random) & 0xffff);
            if ((code & 0x7c00) == 0x7c00 && i % 64) code = (uint16_t)(code & 0xbfff);
            ((uint16_t *)b.gradients)[i] = code;
            x[i] = adafactor_half(code);
        }
        adafactor_set_gradients(&a, x, n);
        adafactor_sliced(&a, &run, 0); adafactor_sliced(&b, &run, (size_t)t - 1);
        CHECK_AT(memopt_optim_skipped(a.optim) == memopt_optim_skipped(b.optim), t);
        CHECK_AT(adafactor_hash_parts(k, &a, 1, 1) == adafactor_hash_parts(k, &b, 1, 1), t);
    }
    adafactor_close(&a); adafactor_close(&b); free(x);
}
static void adafactor_halves(void) {
    int way, vector, level;
    for (vector = 0; vector < 2; ++vector)
        for (way = 0; way < 12; ++way)
            for (level = 1; level <= memopt_simd_best(); ++level) {
                adafactor_case c = adafactor_small(vector);
                if (test_is_passed_over()) continue;
                c.weights = (memopt_i_weights)((way + level) % 4);
                c.moment = way > 2; c.state = c.moment ? (memopt_state_format)(way % 3) : MEMOPT_STATE_F32;
                adafactor_half_case(&c, level);
            }
}
/* Two ranks, each with its part, that add up their sums: what one alone gets. */
static void adafactor_ranks_case(const adafactor_case *k, size_t split) {
    const size_t n = adafactor_count(k); size_t i, first[2], held[2]; uint64_t t, hash = 1; int rank, again, passes;
    const memopt_optim_group h = adafactor_hard_group(k); adafactor_bench b[2];
    float *x = (float *)malloc(n * sizeof *x);
    first[0] = 0; held[0] = split; first[1] = split; held[1] = n - split;
    adafactor_fill(x, k, 5, 1);
    for (rank = 0; rank < 2; ++rank) {
        adafactor_open(&b[rank], k, NULL, first[rank], held[rank]);
        adafactor_set_weights(&b[rank], x + first[rank], held[rank]);
    }
    for (t = 1; t <= ADAFACTOR_STEPS; ++t) {
        const memopt_optim_run run = adafactor_run(&h, t, (double)ADAFACTOR_FACTOR);
        adafactor_fill(x, k, t * 7, ldexp(1, -14));
        adafactor_spoil(x, n, t);
        for (rank = 0; rank < 2; ++rank) {
            adafactor_set_gradients(&b[rank], x + first[rank], held[rank]);
            CHECK(memopt_optim_begin(b[rank].optim, &run) == MEMOPT_OK);
        }
        for (again = 1, passes = 0; again; ++passes) {
            double *sums[2] = { NULL, NULL }; size_t count[2] = { 0, 0 };
            const size_t all = adafactor_is_matrix(k) ? k->rows + 32 * k->columns : 0;
            for (rank = 0; rank < 2; ++rank) {
                CHECK(memopt_i_optim_measure(b[rank].optim, 0, first[rank], held[rank]) == MEMOPT_OK);
                CHECK(memopt_i_optim_sums(b[rank].optim, 0, &sums[rank], &count[rank]) == MEMOPT_OK);
                CHECK(count[rank] == (passes ? 64 : all));
            }
            for (i = 0; i < count[0]; ++i) sums[0][i] = sums[1][i] = sums[0][i] + sums[1][i];
            for (rank = 0; rank < 2; ++rank) CHECK(memopt_i_optim_join(b[rank].optim, 0, &again) == MEMOPT_OK);
        }
        for (rank = 0; rank < 2; ++rank) {
            CHECK(memopt_i_optim_apply(b[rank].optim, 0, first[rank], held[rank]) == MEMOPT_OK);
            CHECK(memopt_optim_end(b[rank].optim) == MEMOPT_OK);
        }
        CHECK(memopt_optim_skipped(b[0].optim) + memopt_optim_skipped(b[1].optim) == 7);
        if (adafactor_is_matrix(k)) CHECK(!memcmp(adafactor_view(&b[0]).columns, adafactor_view(&b[1]).columns,
            k->columns * 4));
        hash = adafactor_hash_parts(k, b, 2, hash);
    }
    CHECK_AT(hash == adafactor_expected(k, adafactor_panel(k), 1), split);
    adafactor_close(&b[0]); adafactor_close(&b[1]); free(x);
}
static void adafactor_ranks(void) {
    int vector, state;
    for (vector = 0; vector < 2; ++vector)
        for (state = 0; state < 3; ++state) {
            adafactor_case c = adafactor_small(vector); size_t slice_alignment;
            c.moment = 1; c.state = (memopt_state_format)state;
            if (state == 1) c.weights = MEMOPT_I_WEIGHTS_BF16;
            slice_alignment = adafactor_panel(&c) * (vector ? 1 : c.columns);
            adafactor_ranks_case(&c, slice_alignment * 16);
            adafactor_ranks_case(&c, slice_alignment);
        }
}

/* What a state is made of, and where. */
static void adafactor_state_case(const adafactor_case *k, size_t bytes, int bits, size_t blocks, size_t rows,
    size_t columns) {
    adafactor_bench b; memopt_optim_view v; const unsigned char *state;
    adafactor_open(&b, k, NULL, 0, 0);
    state = (const unsigned char *)b.state;
    v = adafactor_view(&b);
    CHECK(b.state_bytes == bytes && v.moments == k->moment && v.blocks == blocks && v.held == adafactor_count(k));
    CHECK((const unsigned char *)v.rows == state + bytes - (columns * 4 + 63) / 64 * 64 - (rows * 4 + 63) / 64 * 64);
    if (columns) CHECK((const unsigned char *)v.columns == state + bytes - (columns * 4 + 63) / 64 * 64);
    else CHECK(!v.columns);
    if (k->moment) CHECK(v.bits == bits
        && (const unsigned char *)v.moment[0] == state + 64 + (blocks * 4 + 63) / 64 * 64);
    CHECK(memopt_i_kind_measures(b.optim->desc.kind));
    CHECK(memopt_i_optim_slice_alignment(&b.optim->desc, &b.optim->desc.tensors[0]) == adafactor_panel(k) * (adafactor_is_matrix(k) ? k->columns : 1));
    adafactor_close(&b);
}
static void adafactor_states(void) {
    adafactor_case c = adafactor_shape(3, 0); /* 64 x 100 */
    adafactor_state_case(&c, 64 + 256 + 448, 32, 0, 64, 100);
    c.moment = 1;
    adafactor_state_case(&c, 64 + 25600 + 256 + 448, 32, 0, 64, 100);
    c.state = MEMOPT_STATE_BF16;
    adafactor_state_case(&c, 64 + 12800 + 256 + 448, 16, 0, 64, 100);
    c.state = MEMOPT_STATE_8BIT;
    adafactor_state_case(&c, 64 + 128 + 6400 + 256 + 448, 8, 25, 64, 100);
    c.rows = 40; /* 4000 elements: floats */
    adafactor_state_case(&c, 64 + 16000 + 192 + 448, 32, 0, 40, 100);
    c = adafactor_shape(5, 0); /* 31 rows: a mean for each element */
    adafactor_state_case(&c, 64 + 124032, 32, 0, 31000, 0);
    c = adafactor_shape(7, 0); /* 32 x 32, the smallest that has rows and columns */
    adafactor_state_case(&c, 64 + 128 + 128, 32, 0, 32, 32);
    c.columns = 31;
    adafactor_state_case(&c, 64 + 3968, 32, 0, 992, 0);
}

/* Rows so long that one panel of them, a whole number of blocks, has more elements than size_t can count. */
static void adafactor_hostile_sizes(void) {
    memopt_optim_desc desc; memopt_optim_tensor tensor; size_t bytes = 77;
    memset(&desc, 0, sizeof desc); memset(&tensor, 0, sizeof tensor);
    desc.kind = MEMOPT_OPTIM_ADAFACTOR; desc.block = 4096; desc.tensors = &tensor; desc.tensor_count = 1;
    tensor.columns = ((size_t)1 << (sizeof(size_t) * 8 - 10)) + 1; tensor.count = 32 * tensor.columns;
    CHECK(memopt_optim_bytes(&desc, &bytes) == MEMOPT_ERR_OVERFLOW && bytes == 77);
}

/* A tensor of ones with gradients of the caller's; one step; NULL gradients: those of adafactor_fill(). */
static void adafactor_open_ones(adafactor_bench *b, const adafactor_case *k, const float *g) {
    const size_t n = adafactor_count(k); size_t i; float *x = (float *)malloc(n * sizeof *x);
    adafactor_open(b, k, NULL, 0, 0);
    for (i = 0; i < n; ++i) x[i] = 1;
    adafactor_set_weights(b, x, n);
    if (!g) adafactor_fill(x, k, 9, 1);
    adafactor_set_gradients(b, g ? g : x, n);
    free(x);
}
static void adafactor_order(void) {
    const adafactor_case c = adafactor_small(0); const memopt_optim_group h = adafactor_group();
    const memopt_optim_run run = adafactor_run(&h, 1, 1);
    const size_t n = adafactor_count(&c), slice_alignment = 3 * 64;
    adafactor_bench b; int again = 7; double *sums; size_t count; unsigned char *before;
    adafactor_open_ones(&b, &c, NULL);
    before = (unsigned char *)malloc(b.state_bytes + n * 4);
    memcpy(before, b.state, b.state_bytes); memcpy(before + b.state_bytes, b.tensor.weights, n * 4);
    CHECK(memopt_i_optim_measure(b.optim, 0, 0, n) == MEMOPT_ERR_STATE
        && memopt_i_optim_join(b.optim, 0, &again) == MEMOPT_ERR_STATE);
    CHECK(memopt_i_optim_apply(b.optim, 0, 0, n) == MEMOPT_ERR_STATE
        && memopt_i_optim_sums(b.optim, 0, &sums, &count) == MEMOPT_ERR_STATE);
    CHECK(again == 7 && memopt_optim_begin(b.optim, &run) == MEMOPT_OK);
    CHECK(memopt_i_optim_apply(b.optim, 0, 0, n) == MEMOPT_ERR_STATE); /* not measured */
    CHECK(memopt_i_optim_measure(b.optim, 0, slice_alignment / 2, slice_alignment) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_measure(b.optim, 0, 64, slice_alignment) == MEMOPT_ERR_ARGUMENT); /* a row is no panel */
    CHECK(memopt_i_optim_measure(b.optim, 0, 0, slice_alignment - 64) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_measure(b.optim, 0, 0, n + 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_measure(b.optim, 0, 0, n) == MEMOPT_OK && memopt_i_optim_join(b.optim, 0, &again) == MEMOPT_OK
        && again == 1);
    CHECK(memopt_i_optim_apply(b.optim, 0, 0, n) == MEMOPT_ERR_STATE); /* only once measured */
    CHECK(memopt_i_optim_measure(b.optim, 0, 0, n) == MEMOPT_OK && memopt_i_optim_join(b.optim, 0, &again) == MEMOPT_OK
        && again == 0);
    CHECK(memopt_i_optim_measure(b.optim, 0, 0, n) == MEMOPT_ERR_STATE
        && memopt_i_optim_join(b.optim, 0, &again) == MEMOPT_ERR_STATE);
    /* it only read */
    CHECK(!memcmp(before, b.state, b.state_bytes) && !memcmp(before + b.state_bytes, b.tensor.weights, n * 4));
    CHECK(memopt_optim_end(b.optim) == MEMOPT_OK && memopt_optim_applied(b.optim, 0) == 0);
    CHECK(!memcmp(before, b.state, b.state_bytes)); /* a step that ends unapplied leaves no trace */
    CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK && memopt_optim_applied(b.optim, 0) == n);
    CHECK(memcmp(before, b.state, b.state_bytes) && memcmp(before + b.state_bytes, b.tensor.weights, n * 4));
    CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK);
    for (again = 1; again; ) {
        CHECK(memopt_i_optim_measure(b.optim, 0, 0, n) == MEMOPT_OK
            && memopt_i_optim_join(b.optim, 0, &again) == MEMOPT_OK);
    }
    CHECK(memopt_i_optim_apply(b.optim, 0, 0, slice_alignment) == MEMOPT_OK
        && memopt_i_optim_apply(b.optim, 0, slice_alignment, n - slice_alignment) == MEMOPT_OK);
    CHECK(memopt_i_optim_apply(b.optim, 0, 0, slice_alignment) == MEMOPT_ERR_STATE
          && memopt_optim_end(b.optim) == MEMOPT_OK);
    free(before);
    adafactor_close(&b);
}
/* Measured twice, backwards, and in other slices: the same bits. */
static void adafactor_measured_anyhow(void) {
    const adafactor_case c = adafactor_small(0); const memopt_optim_group h = adafactor_group();
    const memopt_optim_run run = adafactor_run(&h, 1, 1);
    const size_t n = adafactor_count(&c), slice_alignment = 3 * 64;
    adafactor_bench a, b; size_t at; int again;
    adafactor_open_ones(&a, &c, NULL); adafactor_open_ones(&b, &c, NULL);
    CHECK(memopt_optim_step(a.optim, &run) == MEMOPT_OK && memopt_optim_begin(b.optim, &run) == MEMOPT_OK);
    for (again = 1; again; ) {
        for (at = n / slice_alignment * slice_alignment + slice_alignment; at; at -= slice_alignment) {
            const size_t first = at - slice_alignment,
                count = n - first < slice_alignment ? n - first : slice_alignment;
            CHECK(memopt_i_optim_measure(b.optim, 0, first, count) == MEMOPT_OK);
            if (at / slice_alignment % 2) CHECK(memopt_i_optim_measure(b.optim, 0, first, n - first) == MEMOPT_OK);
        }
        CHECK(memopt_i_optim_join(b.optim, 0, &again) == MEMOPT_OK);
    }
    CHECK(memopt_i_optim_apply(b.optim, 0, 0, n) == MEMOPT_OK && memopt_optim_end(b.optim) == MEMOPT_OK);
    CHECK(!memcmp(a.state, b.state, a.state_bytes) && !memcmp(a.tensor.weights, b.tensor.weights, n * 4));
    adafactor_close(&a); adafactor_close(&b);
}
static void adafactor_fused(void) { /* inside backward: the same bits, and stopped by a gradient that is not finite */
    const adafactor_case c = adafactor_small(0); const memopt_optim_group h = adafactor_group();
    memopt_optim_run run = adafactor_run(&h, 1, 1); const size_t n = adafactor_count(&c), half = 16 * 3 * 64;
    float *g = (float *)malloc(n * sizeof *g), *kept = (float *)malloc(n * sizeof *kept);
    adafactor_bench a, b; int again;
    adafactor_open_ones(&a, &c, NULL); adafactor_open_ones(&b, &c, NULL);
    CHECK(memopt_optim_step(a.optim, &run) == MEMOPT_OK);
    run.fused = 1;
    CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_ERR_ARGUMENT);
    run.clips_norm = 1; CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_ERR_ARGUMENT); run.clips_norm = 0;
    adafactor_sliced(&b, &run, 5);
    CHECK(!memcmp(a.state, b.state, a.state_bytes) && !memcmp(a.tensor.weights, b.tensor.weights, n * 4));
    adafactor_fill(g, &c, 12, 1);
    g[half + 100] = memopt_i_bits_float(0x7f800000u);
    adafactor_set_gradients(&b, g, n);
    run.step = 2;
    CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK);
    for (again = 1; again; )
        CHECK(memopt_i_optim_measure(b.optim, 0, 0, n) == MEMOPT_OK
            && memopt_i_optim_join(b.optim, 0, &again) == MEMOPT_OK);
    memcpy(kept, b.tensor.weights, n * 4);
    CHECK(memopt_i_optim_apply(b.optim, 0, 0, half) == MEMOPT_OK);
    CHECK(memopt_i_optim_apply(b.optim, 0, half, n - half) == MEMOPT_ERR_STATE
        && memopt_optim_applied(b.optim, 0) == half);
    CHECK(memcmp(kept, b.tensor.weights, half * 4)
        && !memcmp(kept + half, (float *)b.tensor.weights + half, (n - half) * 4));
    CHECK(memopt_optim_end(b.optim) == MEMOPT_ERR_STATE && memopt_optim_begin(b.optim, &run) == MEMOPT_OK);
    CHECK(memopt_optim_end(b.optim) == MEMOPT_OK);
    adafactor_close(&a); adafactor_close(&b); free(g); free(kept);
}

static int adafactor_all_finite(const adafactor_bench *b, const adafactor_case *k) {
    const size_t n = adafactor_count(k); size_t i; int bad = 0;
    const memopt_optim_view v = adafactor_view(b); const size_t rows = adafactor_is_matrix(k) ? k->rows : n;
    for (i = 0; i < n; ++i) bad += (memopt_i_float_bits(adafactor_weight(b, i)) & 0x7f800000u) == 0x7f800000u;
    for (i = 0; i < rows; ++i) bad += memopt_i_float_bits(v.rows[i]) >= 0x7f800000u;
    for (i = 0; i < k->columns && rows < n; ++i) bad += memopt_i_float_bits(v.columns[i]) >= 0x7f800000u;
    return !bad;
}
/* Steps that are known without any program. At the first one of a vector, and of a matrix that is the product of a
   column and a row, every x is 1 or -1. */
static void adafactor_known(void) {
    int vector, way;
    for (vector = 0; vector < 2; ++vector)
        for (way = 0; way < 5; ++way) {
            adafactor_case c = adafactor_small(vector); const size_t n = adafactor_count(&c); size_t i;
            memopt_optim_group h = adafactor_group(); double away = 0.01; adafactor_bench b;
            float *g = (float *)malloc(n * sizeof *g), *zero = (float *)calloc(n, sizeof *zero);
            memopt_optim_run run = adafactor_run(&h, 1, 1);
            for (i = 0; i < n; ++i) { /* no 0 among them; signs by row and by column */
                const int sign = (i / 64 % 3 == 0) != (i % 64 % 5 == 0);
                g[i] = (float)ldexp(sign ? -1 : 1, (int)(i / 64 % 7) - (int)(i % 64 % 11) - 20);
            }
            adafactor_open_ones(&b, &c, g);
            if (way == 1) { adafactor_set_weights(&b, zero, n); away = 1e-5; } /* min_scale 1e-3 */
            if (way == 2) { h.rate = 0; away = 0; }
            if (way == 3) { h.clip = 0.5; away = 0.005; }
            if (way == 4) { h.rate = 5; away = 1; }                            /* 1 / sqrt(1) */
            CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
            for (i = 0; i < n; ++i) {
                const double from = way == 1 ? 0 : 1, to = from - (g[i] > 0 ? away : -away);
                CHECK_AT(fabs((double)adafactor_weight(&b, i) - to) <= 1e-6 * away + 6e-8 * from * (away > 0), i);
            }
            CHECK(adafactor_view(&b).rows[vector ? 5002 : 94] > 0); /* the state moves, also at a rate of 0 */
            adafactor_close(&b); free(g); free(zero);
        }
}
static void adafactor_zeros(void) { /* no gradient anywhere, or nowhere in a row and a column; eps 0, too */
    int vector, way;
    for (vector = 0; vector < 2; ++vector)
        for (way = 0; way < 4; ++way) {
            adafactor_case c = adafactor_small(vector); const size_t n = adafactor_count(&c); size_t i; uint64_t t;
            memopt_optim_group h = adafactor_group(); adafactor_bench b; memopt_optim_run run;
            float *g = (float *)calloc(n, sizeof *g);
            h.eps = way % 2 ? 0 : 1e-30; h.beta1 = 0.5; c.moment = 1;
            for (i = 0; i < n && way > 1; ++i) if (i / 64 != 3 && i % 64 != 7) g[i] = 1;
            adafactor_open_ones(&b, &c, g);
            for (t = 1; t < 4; ++t) {
                run = adafactor_run(&h, t, 1);
                CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK && memopt_optim_skipped(b.optim) == 0);
            }
            CHECK(adafactor_all_finite(&b, &c));
            for (i = 0; i < n; ++i)
                CHECK_AT((memopt_i_float_bits(adafactor_weight(&b, i)) == 0x3f800000u) == !memopt_i_float_bits(g[i]),
                    i);
            if (way == 0) CHECK_AT(fabs((double)adafactor_view(&b).rows[0] / 1e-30 - 1) < 1e-6, vector);
            adafactor_close(&b); free(g);
        }
}
/* Sizes as far apart as floats go, in one matrix: nothing becomes infinite. The largest gradient that is taken: just
   below 2^62 after the factor. */
static void adafactor_extremes(void) {
    int vector, way;
    for (vector = 0; vector < 2; ++vector)
        for (way = 0; way < 6; ++way) {
            adafactor_case c = adafactor_small(vector); const size_t n = adafactor_count(&c); size_t i; uint64_t t;
            const double factor = way == 5 ? ldexp(1, 48) : way == 4 ? ldexp(1, -48) : 0.25;
            float *g = (float *)calloc(n, sizeof *g);
            const float limit = (float)(ldexp(1, 62) / factor),
                most = memopt_i_bits_float(memopt_i_float_bits(limit) - 1);
            memopt_optim_group h = adafactor_group(); adafactor_bench b; memopt_optim_run run;
            if (way % 2) h.eps = 0;
            for (i = 0; i < n; ++i)
                if (i / 64 != 3 && i % 64 != 7) g[i] = (float)((double)most * (way < 2 ? 1 : way == 2 ? 1e-30 : 0.5));
            g[3 * 64 + 7] = (float)(way == 3 ? 1e-45 : (double)most * 1e-36); /* alone in its row and column */
            adafactor_open_ones(&b, &c, g);
            for (t = 1; t < 4; ++t) {
                run = adafactor_run(&h, t, factor);
                CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK && memopt_optim_skipped(b.optim) == 0);
                CHECK_AT(adafactor_all_finite(&b, &c), vector * 100 + way * 10 + (int)t);
            }
            if (way < 3) { /* a hair more is too large */
                g[5] = limit; g[n - 1] = -limit;
                adafactor_set_gradients(&b, g, n);
                run = adafactor_run(&h, t, factor);
                CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK && memopt_optim_skipped(b.optim) == 2);
                CHECK(adafactor_all_finite(&b, &c));
            }
            adafactor_close(&b); free(g);
        }
}
static void adafactor_infinite_weight(void) { /* spoils itself, not the others */
    adafactor_case c = adafactor_small(0); const size_t n = adafactor_count(&c); size_t i; adafactor_bench b;
    memopt_optim_group h = adafactor_group(); const memopt_optim_run run = adafactor_run(&h, 1, 1);
    adafactor_open_ones(&b, &c, NULL);
    ((float *)b.tensor.weights)[70] = memopt_i_bits_float(0x7f800000u);
    CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
    for (i = 0; i < n; ++i) if (i != 70) CHECK_AT(fabs((double)adafactor_weight(&b, i) - 1) < 1e-3, i);
    adafactor_close(&b);
}
static void adafactor_decays(void) { /* t^-power, against the C library's */
    static const double powers[] = { 0.8, 0.5, 0.25, 0.999999999, 0.1, 1e-9, 1e-300, 5e-324, 0.7071067811865476 };
    static const uint64_t times[] = { 1, 2, 3, 10, 999, 1000000, UINT64_C(4294967297), UINT64_C(9007199254740993),
        UINT64_MAX };
    int i, j;
    for (i = 0; i < 9; ++i)
        for (j = 0; j < 9; ++j)
            CHECK_AT(adafactor_near(memopt_i_adafactor_decay(times[j], powers[i]), pow((double)times[j], -powers[i]),
                1e-14), i * 10 + j);
    CHECK(memopt_i_adafactor_decay(1, 0.8) == 1); /* the first step forgets what was there */
    CHECK(memopt_i_adafactor_decay(4, 0.5) == 0.5 && memopt_i_adafactor_decay(65536, 0.75) == ldexp(1, -12));
}

/* Why: what only this kind refuses. */
static void adafactor_errors(void) {
    static float weights[1024], gradients[1024];
    static uint64_t memory[8192], state[4096];
    static const struct { int which; double value; const char *text; } groups[] = {
        { 0, 0, "group 0: clip 0, above 0 and at most 1e+30" },
        { 1, -1, "group 0: min_scale -1, at least 0 and at most 1e+30" },
        { 2, 0, "group 0: beta2 is 0: Adafactor needs a power above 0" },
        { 3, 0.5, "group 0: beta1 is above 0, which needs first_moment in the desc" }
    };
    memopt_optim_tensor t;
    memopt_optim_desc d;
    memopt_optim_group g;
    memopt_optim_run run;
    memopt_optim *o = NULL;
    size_t bytes = 0, i;

    memset(&t, 0, sizeof t);
    memset(&d, 0, sizeof d);
    memset(&run, 0, sizeof run);
    t.weights = weights;
    t.gradients = gradients;
    t.state = (void *)(((uintptr_t)state + 63) & ~(uintptr_t)63);
    t.count = 1024;
    t.columns = 32;
    d.kind = MEMOPT_OPTIM_ADAFACTOR;
    d.tensors = &t;
    d.tensor_count = 1;
    ACCEPTS(d.error, (void)0, memopt_optim_bytes(&d, &bytes));
    REFUSES(d.error, t.columns = 33, memopt_optim_bytes(&d, &bytes), MEMOPT_ERR_ARGUMENT,
            "tensor 0: columns 33, must divide count 1024");
    t.columns = 32;
    t.first = 32;
    d.block = 256;
    REFUSES(d.error, (void)0, memopt_optim_bytes(&d, &bytes), MEMOPT_ERR_ARGUMENT,
            "tensor 0: first 32, must be a multiple of the block 256");
    t.first = 0;
    d.error = NULL;
    CHECK(bytes <= sizeof memory - 64);
    CHECK(memopt_optim_create(&d, (void *)(((uintptr_t)memory + 63) & ~(uintptr_t)63), bytes, &o) == MEMOPT_OK);
    CHECK(memopt_optim_state_init(o, 0) == MEMOPT_OK);
    run.step = 1;
    run.groups = &g;
    run.group_count = 1;
    for (i = 0; i < sizeof groups / sizeof *groups; ++i) {
        g = memopt_optim_group_default(MEMOPT_OPTIM_ADAFACTOR);
        *(groups[i].which == 0 ? &g.clip : groups[i].which == 1 ? &g.min_scale : groups[i].which == 2 ? &g.beta2
          : &g.beta1) = groups[i].value;
        CHECK(memopt_optim_step(o, &run) == MEMOPT_ERR_ARGUMENT);
        CHECK_AT(test_error_says(memopt_optim_error(o), MEMOPT_ERR_ARGUMENT, groups[i].text), i);
    }
    memset(t.state, 0, 8);
    g = memopt_optim_group_default(MEMOPT_OPTIM_ADAFACTOR);
    CHECK(memopt_optim_step(o, &run) == MEMOPT_ERR_FORMAT);
    CHECK(test_error_says(memopt_optim_error(o), MEMOPT_ERR_FORMAT, "tensor 0: state is not of an optimizer"));
}

void test_adafactor(void);
void test_adafactor(void) {
    RUN(adafactor_rule);
    RUN(adafactor_decays);
    RUN(adafactor_known);
    RUN(adafactor_bits);
    RUN(adafactor_sums);
    RUN(adafactor_sums_of_a_part);
    RUN(adafactor_columns_in_order);
    RUN(adafactor_formats);
    RUN(adafactor_halves);
    RUN(adafactor_ranks);
    RUN(adafactor_hostile_sizes);
    RUN(adafactor_states);
    RUN(adafactor_order);
    RUN(adafactor_errors);
    RUN(adafactor_measured_anyhow);
    RUN(adafactor_fused);
    RUN(adafactor_zeros);
    RUN(adafactor_extremes);
    RUN(adafactor_infinite_weight);
}
#ifndef TEST_COMBINED
int main(void) { test_adafactor(); return test_totals(); }
#endif
