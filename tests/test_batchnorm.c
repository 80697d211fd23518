/* test_batchnorm.c - linear + batch norm + activation. Expected values come from the definition in double, the gradients
   of which are first checked against finite differences of the whole, through its statistics. */
#include "test.h"
#include "scratch.h"

enum { BATCHNORM_X, BATCHNORM_W, BATCHNORM_B, BATCHNORM_SCALE, BATCHNORM_SHIFT, BATCHNORM_Z, BATCHNORM_Y, BATCHNORM_STATISTICS,
       BATCHNORM_MEAN, BATCHNORM_VARIANCE, BATCHNORM_G, BATCHNORM_DX, BATCHNORM_DW, BATCHNORM_DB, BATCHNORM_DSCALE,
       BATCHNORM_DSHIFT, BATCHNORM_SCRATCH, BATCHNORM_SLOTS };
typedef struct batchnorm_slot { unsigned char *block, *data; size_t count; memopt_type type; } batchnorm_slot;
typedef struct batchnorm_spec {
    size_t            rows, inputs, outputs;
    memopt_type       type, weight_type, gradient_type;
    memopt_activation activation;
    int               biased, scaled, shifted, adds_input, adds;
} batchnorm_spec;
typedef struct batchnorm_model {
    batchnorm_spec spec; memopt_batch_norm n; memopt_ops ops; batchnorm_slot slot[BATCHNORM_SLOTS];
} batchnorm_model;

static float batchnorm_get(const batchnorm_slot *s, size_t i) {
    if (s->type == MEMOPT_TYPE_F32) return ((const float *)(const void *)s->data)[i];
    if (s->type == MEMOPT_TYPE_BF16) return memopt_from_bf16(((const uint16_t *)(const void *)s->data)[i]);
    return memopt_from_f16(((const uint16_t *)(const void *)s->data)[i]);
}
static void batchnorm_put(const batchnorm_slot *s, size_t i, float x) {
    if (s->type == MEMOPT_TYPE_F32) ((float *)(void *)s->data)[i] = x;
    else ((uint16_t *)(void *)s->data)[i] = s->type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
}
static float *batchnorm_floats(const batchnorm_model *m, int slot) { return (float *)(void *)m->slot[slot].data; }
static float batchnorm_random(uint64_t *seed) { return (float)(test_random(seed) >> 40) * (1.0f / 8388608.0f) - 1.0f; }
static void batchnorm_slot_make(batchnorm_slot *s, size_t count, memopt_type type, size_t offset) {
    const size_t bytes = count * memopt_type_bytes(type);
    s->block = (unsigned char *)malloc(bytes + 192);
    memset(s->block, 0xA5, bytes + 192);
    s->data = s->block + (64 - (uintptr_t)s->block % 64) + offset;
    s->count = count; s->type = type;
}
/* size: a power of two, so that there is one rounding, also on the x87 */
static void batchnorm_fill(const batchnorm_slot *s, uint64_t seed, float size, float offset) {
    size_t i;
    for (i = 0; i < s->count; ++i) batchnorm_put(s, i, size * batchnorm_random(&seed) + offset);
}
static void batchnorm_scratch(batchnorm_model *m, const memopt_threads *threads) {
    memopt_batch_norm shape; size_t bytes = 0;
    m->ops.threads = threads; m->ops.scratch = NULL; m->ops.scratch_bytes = 0;
    memset(&shape, 0, sizeof shape); /* the question does not look at data */
    shape.linear.rows = m->spec.rows; shape.linear.inputs = m->spec.inputs; shape.linear.outputs = m->spec.outputs;
    shape.linear.type = m->spec.type; shape.linear.weight_type = m->spec.weight_type; shape.linear.gradient_type = m->spec.gradient_type;
    CHECK(scratch_of_batch_norm(&m->ops, &shape, &bytes) == MEMOPT_OK);
    free(m->slot[BATCHNORM_SCRATCH].block);
    batchnorm_slot_make(&m->slot[BATCHNORM_SCRATCH], (bytes + 3) / 4, MEMOPT_TYPE_F32, 0);
    memset(m->slot[BATCHNORM_SCRATCH].data, 0xFF, bytes); /* nobody may rely on what is in it: NaN */
    m->ops.scratch = m->slot[BATCHNORM_SCRATCH].data; m->ops.scratch_bytes = bytes;
}
static void batchnorm_open(batchnorm_model *m, const batchnorm_spec *s, const memopt_threads *threads) {
    const size_t in = s->rows * s->inputs, out = s->rows * s->outputs, w = s->outputs * s->inputs; memopt_linear *l = &m->n.linear;
    int k;
    const size_t counts[BATCHNORM_SCRATCH] = { in, w, s->outputs, s->outputs, s->outputs, out, out, 2 * s->outputs, s->outputs,
        s->outputs, out, in, w, s->outputs, s->outputs, s->outputs };
    memset(m, 0, sizeof *m);
    m->spec = *s;
    for (k = 0; k < BATCHNORM_SCRATCH; ++k) {
        const memopt_type type = k == BATCHNORM_STATISTICS || k == BATCHNORM_MEAN || k == BATCHNORM_VARIANCE ? MEMOPT_TYPE_F32
            : k >= BATCHNORM_W && k <= BATCHNORM_SHIFT ? s->weight_type : k >= BATCHNORM_DW ? s->gradient_type : s->type;
        batchnorm_slot_make(&m->slot[k], counts[k], type, memopt_type_bytes(type));
        batchnorm_fill(&m->slot[k], (uint64_t)k + 1, k == BATCHNORM_W ? 0.5f : 1, k == BATCHNORM_X ? 0.25f : k == BATCHNORM_SCALE ? 1.5f : 0);
    }
    batchnorm_fill(&m->slot[BATCHNORM_VARIANCE], 99, 0.5f, 1);
    l->rows = s->rows; l->inputs = s->inputs; l->outputs = s->outputs; l->type = s->type; l->weight_type = s->weight_type;
    l->gradient_type = s->gradient_type; l->input = m->slot[BATCHNORM_X].data; l->weights = m->slot[BATCHNORM_W].data;
    l->bias = s->biased ? m->slot[BATCHNORM_B].data : NULL; l->activation = s->activation;
    l->pre_activation = m->slot[BATCHNORM_Z].data; l->output = m->slot[BATCHNORM_Y].data;
    l->grad_output = m->slot[BATCHNORM_G].data; l->grad_input = m->slot[BATCHNORM_DX].data; l->accumulate_input = s->adds_input;
    l->grad_weights = m->slot[BATCHNORM_DW].data; l->grad_bias = m->slot[BATCHNORM_DB].data; l->accumulate = s->adds;
    m->n.scale = s->scaled ? m->slot[BATCHNORM_SCALE].data : NULL; m->n.shift = s->shifted ? m->slot[BATCHNORM_SHIFT].data : NULL;
    m->n.running_mean = batchnorm_floats(m, BATCHNORM_MEAN); m->n.running_variance = batchnorm_floats(m, BATCHNORM_VARIANCE);
    m->n.statistics = batchnorm_floats(m, BATCHNORM_STATISTICS);
    m->n.grad_scale = m->slot[BATCHNORM_DSCALE].data; m->n.grad_shift = m->slot[BATCHNORM_DSHIFT].data;
    batchnorm_scratch(m, threads);
}
static void batchnorm_close(batchnorm_model *m) {
    int k, i;
    for (k = 0; k < BATCHNORM_SLOTS; ++k) {
        const batchnorm_slot *s = &m->slot[k];
        const unsigned char *end = s->data + (k == BATCHNORM_SCRATCH ? m->ops.scratch_bytes : s->count * memopt_type_bytes(s->type));
        for (i = 0; i < 48; ++i) CHECK_AT(end[i] == 0xA5, k);
        if (k != BATCHNORM_SCRATCH) CHECK_AT(s->data[-1] == 0xA5, k);
        free(s->block);
    }
}

/* ---- the definition ---- */
typedef struct batchnorm_truth {
    size_t rows, inputs, outputs; memopt_activation activation; double eps;
    double *x, *w, *b, *scale, *shift, *g;         /* given */
    double *z, *h, *v, *y, *mean, *variance;       /* forward */
    double *dx, *dw, *db, *dscale, *dshift, *dz;   /* backward */
} batchnorm_truth;
static double batchnorm_act(memopt_activation a, double v) {
    if (a == MEMOPT_ACTIVATION_RELU) return v > 0 ? v : 0;
    if (a == MEMOPT_ACTIVATION_SILU) return v / (1 + exp(-v));
    if (a == MEMOPT_ACTIVATION_GELU) return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    return v;
}
static double batchnorm_slope(memopt_activation a, double v) {
    if (a == MEMOPT_ACTIVATION_RELU) return v > 0;
    if (a == MEMOPT_ACTIVATION_SILU) { const double s = 1 / (1 + exp(-v)); return s * (1 + v * (1 - s)); }
    if (a == MEMOPT_ACTIVATION_GELU) {
        const double c = 0.7978845608028654, t = tanh(c * (v + 0.044715 * v * v * v));
        return 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * c * (1 + 3 * 0.044715 * v * v);
    }
    return 1;
}
static void batchnorm_product(batchnorm_truth *t) {
    size_t r, o, i;
    for (r = 0; r < t->rows; ++r)
        for (o = 0; o < t->outputs; ++o) {
            double sum = t->b[o];
            for (i = 0; i < t->inputs; ++i) sum += t->x[r * t->inputs + i] * t->w[o * t->inputs + i];
            t->z[r * t->outputs + o] = sum;
        }
}
/* From z on; the sum of y g. */
static double batchnorm_norm(batchnorm_truth *t) {
    const double rows = (double)t->rows; double loss = 0; size_t r, o;
    for (o = 0; o < t->outputs; ++o) {
        double mean = 0, squares = 0;
        for (r = 0; r < t->rows; ++r) mean += t->z[r * t->outputs + o] / rows;
        for (r = 0; r < t->rows; ++r) squares += pow(t->z[r * t->outputs + o] - mean, 2);
        t->mean[o] = mean; t->variance[o] = squares / rows;
        for (r = 0; r < t->rows; ++r) {
            const size_t at = r * t->outputs + o;
            t->h[at] = (t->z[at] - mean) / sqrt(t->variance[o] + t->eps);
            t->v[at] = t->h[at] * t->scale[o] + t->shift[o];
            t->y[at] = batchnorm_act(t->activation, t->v[at]);
            loss += t->y[at] * t->g[at];
        }
    }
    return loss;
}
/* The gradients of it, from mean and h as they are. */
static void batchnorm_gradients(batchnorm_truth *t) {
    const double rows = (double)t->rows; size_t r, o, i;
    memset(t->dx, 0, t->rows * t->inputs * sizeof *t->dx);
    memset(t->dw, 0, t->outputs * t->inputs * sizeof *t->dw);
    for (o = 0; o < t->outputs; ++o) {
        double a = 0, b = 0;
        for (r = 0; r < t->rows; ++r) {
            const size_t at = r * t->outputs + o;
            const double g = t->g[at] * batchnorm_slope(t->activation, t->v[at]);
            a += g; b += g * t->h[at]; t->dz[at] = g;
        }
        t->dshift[o] = a; t->dscale[o] = b; t->db[o] = 0;
        for (r = 0; r < t->rows; ++r) {
            const size_t at = r * t->outputs + o;
            t->dz[at] = t->scale[o] / sqrt(t->variance[o] + t->eps) * (t->dz[at] - a / rows - t->h[at] * b / rows);
            t->db[o] += t->dz[at];
            for (i = 0; i < t->inputs; ++i) {
                t->dx[r * t->inputs + i] += t->dz[at] * t->w[o * t->inputs + i];
                t->dw[o * t->inputs + i] += t->dz[at] * t->x[r * t->inputs + i];
            }
        }
    }
}
static double *batchnorm_doubles(const batchnorm_slot *s, int there, double missing) {
    double *d = (double *)malloc((s->count + 1) * sizeof *d); size_t i;
    for (i = 0; i < s->count; ++i) d[i] = there ? (double)batchnorm_get(s, i) : missing;
    return d;
}
static void batchnorm_truth_open(batchnorm_truth *t, const batchnorm_model *m) {
    const batchnorm_spec *s = &m->spec; double **all[12]; int k;
    t->rows = s->rows; t->inputs = s->inputs; t->outputs = s->outputs; t->activation = s->activation;
    t->eps = m->n.eps > 0 ? (double)m->n.eps : (double)1e-5f;
    t->x = batchnorm_doubles(&m->slot[BATCHNORM_X], 1, 0); t->w = batchnorm_doubles(&m->slot[BATCHNORM_W], 1, 0);
    t->b = batchnorm_doubles(&m->slot[BATCHNORM_B], s->biased, 0); t->g = batchnorm_doubles(&m->slot[BATCHNORM_G], 1, 0);
    t->scale = batchnorm_doubles(&m->slot[BATCHNORM_SCALE], s->scaled, 1); t->shift = batchnorm_doubles(&m->slot[BATCHNORM_SHIFT], s->shifted, 0);
    all[0] = &t->z; all[1] = &t->h; all[2] = &t->v; all[3] = &t->y; all[4] = &t->mean; all[5] = &t->variance;
    all[6] = &t->dx; all[7] = &t->dw; all[8] = &t->db; all[9] = &t->dscale; all[10] = &t->dshift; all[11] = &t->dz;
    for (k = 0; k < 12; ++k)
        *all[k] = (double *)calloc(s->rows * (s->inputs + s->outputs) + s->outputs * s->inputs + s->outputs + 1, sizeof(double));
}
static void batchnorm_truth_close(batchnorm_truth *t) {
    free(t->x); free(t->w); free(t->b); free(t->g); free(t->scale); free(t->shift); free(t->z); free(t->h); free(t->v); free(t->y);
    free(t->mean); free(t->variance); free(t->dx); free(t->dw); free(t->db); free(t->dscale); free(t->dshift); free(t->dz);
}
static void batchnorm_difference(batchnorm_truth *t, double *at, double want, size_t index) {
    const double was = *at, e = 1e-5; double up, down;
    *at = was + e; batchnorm_product(t); up = batchnorm_norm(t);
    *at = was - e; batchnorm_product(t); down = batchnorm_norm(t);
    *at = was;
    CHECK_AT(fabs((up - down) / (2 * e) - want) <= 1e-6 * (1 + fabs(want)), index);
}
static void batchnorm_definition(void) { /* the gradients above are those of the composite */
    static const memopt_activation acts[] = { MEMOPT_ACTIVATION_NONE, MEMOPT_ACTIVATION_GELU, MEMOPT_ACTIVATION_SILU, MEMOPT_ACTIVATION_RELU }; int a; size_t i;
    for (a = 0; a < 4; ++a) {
        batchnorm_spec s; batchnorm_model m; batchnorm_truth t; const size_t rows = 9, in = 5, out = 4;
        memset(&s, 0, sizeof s);
        s.rows = rows; s.inputs = in; s.outputs = out; s.activation = acts[a]; s.biased = s.scaled = s.shifted = 1;
        batchnorm_open(&m, &s, NULL);
        batchnorm_truth_open(&t, &m);
        batchnorm_product(&t); (void)batchnorm_norm(&t); batchnorm_gradients(&t);
        for (i = 0; i < rows * in; ++i) batchnorm_difference(&t, t.x + i, t.dx[i], i);
        for (i = 0; i < out * in; ++i) batchnorm_difference(&t, t.w + i, t.dw[i], 100 + i);
        for (i = 0; i < out; ++i) {
            batchnorm_difference(&t, t.b + i, t.db[i], 200 + i);
            batchnorm_difference(&t, t.scale + i, t.dscale[i], 300 + i);
            batchnorm_difference(&t, t.shift + i, t.dshift[i], 400 + i);
        }
        batchnorm_truth_close(&t);
        batchnorm_close(&m);
    }
}

/* ---- against it ---- */
static double batchnorm_unit(memopt_type type, double x) { /* half a unit in the last place */
    if (type == MEMOPT_TYPE_F32) return ldexp(fabs(x), -24);
    return type == MEMOPT_TYPE_BF16 ? ldexp(fabs(x), -8) : ldexp(fabs(x), -11) + ldexp(1, -25);
}
static void batchnorm_near(const batchnorm_slot *s, size_t i, double want, double bound, int line) {
    const double off = fabs((double)batchnorm_get(s, i) - want);
    if (!(off <= bound + batchnorm_unit(s->type, want)))
        printf("line %d, element %d: %g, not %g, bound %g\n", line, (int)i, (double)batchnorm_get(s, i), want, bound);
    CHECK_AT(off <= bound + batchnorm_unit(s->type, want), line);
}
/* z: 1e-6 of its terms, and its storage. Then from the stored z on: 64 additions in a row and some roundings, 2e-5. */
static void batchnorm_check_forward(batchnorm_truth *t, const batchnorm_model *m, const batchnorm_slot *mean, const batchnorm_slot *variance) {
    const double rows = (double)t->rows, rate = m->n.momentum > 0 ? (double)m->n.momentum : (double)0.1f; size_t i, o;
    batchnorm_product(t);
    for (i = 0; i < t->rows * t->outputs; ++i) {
        batchnorm_near(&m->slot[BATCHNORM_Z], i, t->z[i], 2e-6 * (1 + (double)t->inputs * 0.6), __LINE__);
        t->z[i] = (double)batchnorm_get(&m->slot[BATCHNORM_Z], i);
    }
    (void)batchnorm_norm(t);
    for (i = 0; i < t->rows * t->outputs; ++i) {
        o = i % t->outputs;
        batchnorm_near(&m->slot[BATCHNORM_Y], i, t->y[i], 2e-5 * (fabs(t->v[i]) + fabs(t->scale[o]) * (1 + fabs(t->mean[o])
            / sqrt(t->variance[o] + t->eps))), __LINE__);
    }
    for (o = 0; o < t->outputs; ++o) {
        const double old = (double)batchnorm_get(mean, o), was = (double)batchnorm_get(variance, o), on = m->n.no_update ? 0 : rate;
        batchnorm_near(&m->slot[BATCHNORM_STATISTICS], o, t->mean[o], 4e-6 * (fabs(t->mean[o]) + sqrt(t->variance[o])), __LINE__);
        batchnorm_near(&m->slot[BATCHNORM_STATISTICS], t->outputs + o, 1 / sqrt(t->variance[o] + t->eps), 1e-5 / sqrt(t->variance[o] + t->eps), __LINE__);
        batchnorm_near(&m->slot[BATCHNORM_MEAN], o, old + on * (t->mean[o] - old), 4e-6 * (fabs(old) + fabs(t->mean[o]) + sqrt(t->variance[o])), __LINE__);
        batchnorm_near(&m->slot[BATCHNORM_VARIANCE], o, was + on * (t->variance[o] * rows / (rows - 1) - was), 1e-5 * (was + t->variance[o]), __LINE__);
    }
}
/* The gradient of z is stored once: of 16 bits, its rounding enters every sum it goes into. */
static void batchnorm_check_backward(batchnorm_truth *t, const batchnorm_model *m, const batchnorm_slot *old) {
    const batchnorm_spec *s = &m->spec; size_t r, o, i; const double u = s->type == MEMOPT_TYPE_F32 ? 0 : batchnorm_unit(s->type, 1);
    double *size = (double *)calloc(t->outputs, sizeof *size), *most = (double *)calloc(t->outputs, sizeof *most);
    batchnorm_gradients(t);
    for (o = 0; o < t->outputs; ++o) { /* terms of dz, and the share of them that is off: where v is near 0 relu's slope is anyone's */
        double sum = 0, share = 0;
        for (r = 0; r < t->rows; ++r) {
            const size_t at = r * t->outputs + o; const double g = fabs(t->g[at]);
            sum += g; share += g * fabs(t->h[at]);
        }
        for (r = 0; r < t->rows; ++r) {
            const size_t at = r * t->outputs + o;
            const double terms = fabs(t->g[at]) * 1.2 + sum / (double)t->rows + fabs(t->h[at]) * share / (double)t->rows;
            if (terms > most[o]) most[o] = terms;
        }
        size[o] = fabs(t->scale[o]) / sqrt(t->variance[o] + t->eps) * most[o] * (3e-5 + u);
        batchnorm_near(&m->slot[BATCHNORM_DSHIFT], o, t->dshift[o] + (s->adds ? (double)batchnorm_get(&old[BATCHNORM_DSHIFT], o) : 0), 3e-5 * sum + 1e-6, __LINE__);
        batchnorm_near(&m->slot[BATCHNORM_DSCALE], o, t->dscale[o] + (s->adds ? (double)batchnorm_get(&old[BATCHNORM_DSCALE], o) : 0), 3e-5 * (sum + share) + 1e-6, __LINE__);
        batchnorm_near(&m->slot[BATCHNORM_DB], o, t->db[o] + (s->adds ? (double)batchnorm_get(&old[BATCHNORM_DB], o) : 0), (double)t->rows * size[o] + 1e-6, __LINE__);
        for (i = 0; i < t->inputs; ++i) {
            double bound = 1e-6;
            for (r = 0; r < t->rows; ++r) bound += size[o] * fabs(t->x[r * t->inputs + i]) + 1e-6 * fabs(t->dz[r * t->outputs + o] * t->x[r * t->inputs + i]);
            batchnorm_near(&m->slot[BATCHNORM_DW], o * t->inputs + i, t->dw[o * t->inputs + i]
                + (s->adds ? (double)batchnorm_get(&old[BATCHNORM_DW], o * t->inputs + i) : 0), bound, __LINE__);
        }
    }
    for (r = 0; r < t->rows; ++r)
        for (i = 0; i < t->inputs; ++i) {
            double bound = 1e-6;
            for (o = 0; o < t->outputs; ++o) bound += size[o] * fabs(t->w[o * t->inputs + i]) + 1e-6 * fabs(t->dz[r * t->outputs + o] * t->w[o * t->inputs + i]);
            batchnorm_near(&m->slot[BATCHNORM_DX], r * t->inputs + i, t->dx[r * t->inputs + i]
                + (s->adds_input ? (double)batchnorm_get(&old[BATCHNORM_DX], r * t->inputs + i) : 0), bound, __LINE__);
        }
    free(size); free(most);
}
static void batchnorm_case(const batchnorm_spec *s, float eps, float momentum, int no_update) {
    batchnorm_model m, old; batchnorm_truth t;
    batchnorm_open(&m, s, NULL); batchnorm_open(&old, s, NULL);
    m.n.eps = eps; m.n.momentum = momentum; m.n.no_update = no_update;
    CHECK(memopt_batch_norm_forward(&m.ops, &m.n) == MEMOPT_OK);
    batchnorm_truth_open(&t, &m);
    batchnorm_check_forward(&t, &m, &old.slot[BATCHNORM_MEAN], &old.slot[BATCHNORM_VARIANCE]);
    CHECK(memopt_batch_norm_backward(&m.ops, &m.n) == MEMOPT_OK);
    batchnorm_check_backward(&t, &m, old.slot);
    batchnorm_truth_close(&t);
    batchnorm_close(&m); batchnorm_close(&old);
}
static batchnorm_spec batchnorm_spec_of(int i) {
    static const size_t rows[] = { 2, 3, 17, 64, 65, 150 }, sizes[] = { 1, 7, 8, 9, 15, 16, 17, 33 }; batchnorm_spec s;
    memset(&s, 0, sizeof s);
    s.rows = rows[i % 6]; s.inputs = sizes[i * 3 % 8]; s.outputs = sizes[(i / 2) % 8];
    s.type = (memopt_type)(i / 3 % 3); s.weight_type = (memopt_type)(i / 5 % 3); s.gradient_type = (memopt_type)(i / 7 % 3);
    s.activation = (memopt_activation)(i % 4); s.biased = i % 3 != 0; s.scaled = i % 5 != 0; s.shifted = i % 7 != 0;
    s.adds_input = i / 2 % 3 == 0; s.adds = i / 4 % 2;
    return s;
}
static void batchnorm_values(void) {
    int i;
    for (i = 0; i < 120; ++i) {
        const batchnorm_spec s = batchnorm_spec_of(i); const int failures = test_failures;
        batchnorm_case(&s, i % 5 == 2 ? 0.0625f : 0, i % 4 == 3 ? 0.5f : 0, i % 6 == 5);
        if (test_failures != failures) { printf("case %d\n", i); return; }
    }
}
static void batchnorm_blocks(void) { /* more than one block, and more than one piece of columns */
    batchnorm_spec s = batchnorm_spec_of(1); int k;
    for (k = 0; k < 2; ++k) {
        if (test_is_passed_over()) continue;
        s.rows = 600; s.outputs = 1100; s.inputs = 3; s.type = MEMOPT_TYPE_F32; s.weight_type = MEMOPT_TYPE_F32;
        s.gradient_type = k ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; s.activation = MEMOPT_ACTIVATION_SILU; s.adds = 1; s.adds_input = 1;
        batchnorm_case(&s, 0, 0, 0);
    }
}

/* ---- the same bits ---- */
static uint64_t batchnorm_hash(uint64_t hash, const batchnorm_slot *s) {
    size_t i;
    for (i = 0; i < s->count; ++i) hash = (hash ^ memopt_i_float_bits(batchnorm_get(s, i))) * UINT64_C(0x100000001b3);
    return hash;
}
static uint64_t batchnorm_hash_all(const batchnorm_model *m) {
    uint64_t hash = 1; int k;
    for (k = 0; k < BATCHNORM_SCRATCH; ++k) hash = batchnorm_hash(hash, &m->slot[k]);
    return hash;
}
static uint64_t batchnorm_bits(const batchnorm_spec *s, const memopt_threads *threads) {
    batchnorm_model m; uint64_t hash;
    batchnorm_open(&m, s, threads);
    CHECK(memopt_batch_norm_forward(&m.ops, &m.n) == MEMOPT_OK);
    CHECK(memopt_batch_norm_backward(&m.ops, &m.n) == MEMOPT_OK);
    hash = batchnorm_hash_all(&m);
    batchnorm_close(&m);
    return hash;
}
static void batchnorm_same_bits(void) {
    int i, level, workers; test_worker_set worker_set; uint64_t all = 1;
    for (i = 0; i < 40; ++i) {
        batchnorm_spec s = batchnorm_spec_of(i * 5 + 3); memopt_threads t = test_workers(&worker_set, 0, MEMOPT_SIMD_SCALAR); uint64_t want;
        if (test_is_passed_over()) continue;
        if (i % 20 == 7) { s.rows = 600; s.outputs = 1100; s.inputs = 3; }
        want = batchnorm_bits(&s, &t);
        all = (all ^ want) * UINT64_C(0x100000001b3);
        for (level = 1; level <= memopt_simd_best(); ++level) {
            t = test_workers(&worker_set, 0, level);
            CHECK_AT(batchnorm_bits(&s, &t) == want, i * 100 + level);
        }
        for (workers = 1; workers <= 8; workers += 1 + i % 3) {
            t = test_workers(&worker_set, workers, workers % 2);
            CHECK_AT(batchnorm_bits(&s, &t) == want, i * 100 + workers);
        }
    }
#if !defined(__FLT_EVAL_METHOD__) || __FLT_EVAL_METHOD__ == 0 /* statistics are joined in double */
    if (all != UINT64_C(0xc44d537846998891) && TEST_STRIDE == 1) printf("hash 0x%016llx\n", (unsigned long long)all);
    CHECK(all == UINT64_C(0xc44d537846998891) || TEST_STRIDE > 1); /* the same on every machine, of all cases */
#endif
}

/* ---- edges ---- */
static int batchnorm_is_nan(float x) { return (memopt_i_float_bits(x) & 0x7fffffffu) > 0x7f800000u; }
static void batchnorm_columns(void) { /* columns that are constant, far from 0, huge, not finite: the others do not notice */
    batchnorm_spec s; batchnorm_model m, good; size_t r, o; int level;
    memset(&s, 0, sizeof s);
    s.rows = 130; s.inputs = 1; s.outputs = 6; s.biased = s.scaled = s.shifted = 1;
    for (level = 1; level <= memopt_simd_best(); ++level) {
        test_worker_set worker_set;
        const memopt_threads threads = test_workers(&worker_set, 0, level); const batchnorm_slot *y;
        batchnorm_open(&m, &s, &threads); batchnorm_open(&good, &s, &threads);
        batchnorm_put(&m.slot[BATCHNORM_W], 1, 0); /* constant: the bias */
        batchnorm_put(&m.slot[BATCHNORM_B], 2, 4096); /* a mean 10000 times the deviation */
        batchnorm_put(&m.slot[BATCHNORM_W], 3, 1e30f);
        batchnorm_put(&m.slot[BATCHNORM_W], 4, memopt_i_bits_float(0x7fc00000u));
        CHECK(memopt_batch_norm_forward(&m.ops, &m.n) == MEMOPT_OK && memopt_batch_norm_forward(&good.ops, &good.n) == MEMOPT_OK);
        y = &m.slot[BATCHNORM_Y];
        for (o = 0; o < 6; ++o) {
            double mean = 0, squares = 0; const double shift = (double)batchnorm_get(&m.slot[BATCHNORM_SHIFT], o);
            for (r = 0; r < s.rows; ++r) mean += (double)batchnorm_get(&m.slot[BATCHNORM_Z], r * 6 + o) / 130;
            for (r = 0; r < s.rows; ++r) squares += pow((double)batchnorm_get(&m.slot[BATCHNORM_Z], r * 6 + o) - mean, 2) / 130;
            for (r = 0; r < s.rows; ++r) {
                const float got = batchnorm_get(y, r * 6 + o);
                if (o == 0 || o == 5) CHECK_AT(memopt_i_float_bits(got) == memopt_i_float_bits(batchnorm_get(&good.slot[BATCHNORM_Y], r * 6 + o)), r);
                if (o == 1) CHECK_AT(fabs((double)got - shift) <= 1e-4, r); /* a rounding of the mean, by 1 / root of eps */
                if (o == 2) CHECK_AT(fabs((double)got - shift - (double)batchnorm_get(&m.slot[BATCHNORM_SCALE], o)
                    * ((double)batchnorm_get(&m.slot[BATCHNORM_Z], r * 6 + o) - mean) / sqrt(squares + (double)1e-5f)) <= 2e-3 / sqrt(squares) * 1.5, r); /* 4 units of the mean */
                if (o == 3) CHECK_AT(fabs((double)got - shift) <= 0, r); /* squares overflow: the deviation is infinite */
                if (o == 4) CHECK_AT(batchnorm_is_nan(got), r);
            }
        }
        CHECK(memopt_batch_norm_backward(&m.ops, &m.n) == MEMOPT_OK);
        CHECK(batchnorm_is_nan(batchnorm_get(&m.slot[BATCHNORM_DW], 4)) && !batchnorm_is_nan(batchnorm_get(&m.slot[BATCHNORM_DW], 5)));
        CHECK(fabs((double)batchnorm_get(&m.slot[BATCHNORM_DW], 3)) <= 0);
        batchnorm_close(&m); batchnorm_close(&good);
    }
}
static void batchnorm_unwanted(void) { /* what nobody wants is not made; the rest is the same */
    const batchnorm_spec s = batchnorm_spec_of(43); batchnorm_model a, b; int k; void **wants[5];
    batchnorm_open(&a, &s, NULL);
    CHECK(memopt_batch_norm_forward(&a.ops, &a.n) == MEMOPT_OK && memopt_batch_norm_backward(&a.ops, &a.n) == MEMOPT_OK);
    for (k = 0; k < 5; ++k) {
        memopt_batch_norm n; int i;
        batchnorm_open(&b, &s, NULL);
        n = b.n;
        n.running_mean = n.running_variance = NULL;
        CHECK(memopt_batch_norm_forward(&b.ops, &n) == MEMOPT_OK);
        wants[0] = &n.linear.grad_input; wants[1] = &n.linear.grad_weights; wants[2] = &n.linear.grad_bias;
        wants[3] = &n.grad_scale; wants[4] = &n.grad_shift;
        for (i = 0; i < 5; ++i) if (i != k) *wants[i] = NULL;
        n.linear.output = NULL;
        if (k != 1) n.linear.input = NULL;
        if (k != 0) n.linear.weights = NULL;
        CHECK_AT(memopt_batch_norm_backward(&b.ops, &n) == MEMOPT_OK, k);
        for (i = 0; i < 5; ++i) {
            const int slot = BATCHNORM_DX + i; batchnorm_slot fresh;
            if (i == k) { CHECK_AT(batchnorm_hash(1, &a.slot[slot]) == batchnorm_hash(1, &b.slot[slot]), k); continue; }
            batchnorm_slot_make(&fresh, b.slot[slot].count, b.slot[slot].type, 4);
            batchnorm_fill(&fresh, (uint64_t)slot + 1, 1, 0);
            CHECK_AT(batchnorm_hash(1, &fresh) == batchnorm_hash(1, &b.slot[slot]), slot);
            free(fresh.block);
        }
        batchnorm_close(&b);
    }
    batchnorm_close(&a);
}
static void batchnorm_folded(void) { /* inference: the linear layer with folded weights is the norm by running statistics */
    int i;
    for (i = 0; i < 40; ++i) {
        const batchnorm_spec s = batchnorm_spec_of(i); batchnorm_model m; batchnorm_truth t; size_t r, o; memopt_linear l;
        batchnorm_slot weights, bias;
        batchnorm_open(&m, &s, NULL);
        batchnorm_slot_make(&weights, s.outputs * s.inputs, MEMOPT_TYPE_F32, 4); batchnorm_slot_make(&bias, s.outputs, MEMOPT_TYPE_F32, 4);
        m.n.linear.input = m.n.linear.output = m.n.linear.pre_activation = NULL; /* not looked at */
        CHECK(memopt_batch_norm_fold(NULL, &m.n, (float *)(void *)weights.data, (float *)(void *)bias.data) == MEMOPT_OK);
        l = m.n.linear;
        l.input = m.slot[BATCHNORM_X].data; l.output = m.slot[BATCHNORM_Y].data;
        l.weights = weights.data; l.bias = bias.data; l.weight_type = MEMOPT_TYPE_F32;
        CHECK(memopt_linear_forward(&m.ops, &l) == MEMOPT_OK);
        batchnorm_truth_open(&t, &m);
        batchnorm_product(&t);
        for (r = 0; r < s.rows; ++r)
            for (o = 0; o < s.outputs; ++o) {
                const double inverse = 1 / sqrt((double)batchnorm_get(&m.slot[BATCHNORM_VARIANCE], o) + (double)1e-5f);
                const double v = (t.z[r * s.outputs + o] - (double)batchnorm_get(&m.slot[BATCHNORM_MEAN], o)) * inverse * t.scale[o] + t.shift[o];
                batchnorm_near(&m.slot[BATCHNORM_Y], r * s.outputs + o, batchnorm_act(s.activation, v), 1e-5 * (1 + (double)s.inputs)
                    + (s.type == MEMOPT_TYPE_F32 ? 0 : 2 * batchnorm_unit(s.type, v)), __LINE__);
            }
        CHECK(weights.data[weights.count * 4] == 0xA5 && bias.data[bias.count * 4] == 0xA5);
        free(weights.block); free(bias.block);
        batchnorm_truth_close(&t);
        batchnorm_close(&m);
    }
}
/* A gemm of the caller's that fails at the n-th product: its status comes back, running statistics stay. */
typedef struct batchnorm_gemm { int calls, fails; } batchnorm_gemm;
static memopt_status batchnorm_multiply(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    batchnorm_gemm *g = (batchnorm_gemm *)user; memopt_gemm own;
    memset(&own, 0, sizeof own);
    if (++g->calls == g->fails) return MEMOPT_ERR_DEVICE;
    if (memopt_gemm_resolve(NULL, &own) != MEMOPT_OK) return MEMOPT_ERR_STATE;
    return own.multiply_fn(own.user, p, threads, scratch);
}
static void batchnorm_failing_gemm(void) {
    batchnorm_spec s = batchnorm_spec_of(0); int n; batchnorm_gemm g; batchnorm_model m; uint64_t before;
    s.rows = 600; s.outputs = 1100; s.inputs = 2;
    batchnorm_open(&m, &s, NULL);
    m.ops.gemm.multiply_fn = batchnorm_multiply; m.ops.gemm.user = &g; m.ops.gemm.scratch_bytes = MEMOPT_GEMM_SCRATCH;
    before = batchnorm_hash(batchnorm_hash(1, &m.slot[BATCHNORM_MEAN]), &m.slot[BATCHNORM_VARIANCE]);
    for (n = 1; n < 4; ++n) {
        g.calls = 0; g.fails = n;
        CHECK(memopt_batch_norm_forward(&m.ops, &m.n) == (n <= 2 ? MEMOPT_ERR_DEVICE : MEMOPT_OK));
        if (n <= 2) CHECK(batchnorm_hash(batchnorm_hash(1, &m.slot[BATCHNORM_MEAN]), &m.slot[BATCHNORM_VARIANCE]) == before);
    }
    CHECK(g.calls == 2);
    g.calls = 0; g.fails = 4;
    CHECK(memopt_batch_norm_backward(&m.ops, &m.n) == MEMOPT_ERR_DEVICE);
    g.calls = 0; g.fails = 0;
    CHECK(memopt_batch_norm_backward(&m.ops, &m.n) == MEMOPT_OK && g.calls == 4);
    batchnorm_close(&m);
}
#if defined(MEMOPT_I_POOL)
static void batchnorm_pool(void) { /* threads that are real */
    batchnorm_spec s = batchnorm_spec_of(7); memopt_thread_pool *pool = NULL; memopt_threads t;
    s.rows = 900; s.outputs = 600; s.inputs = 9;
    CHECK(memopt_thread_pool_create(NULL, 3, &pool) == MEMOPT_OK);
    t = memopt_thread_pool_threads(pool);
    CHECK(batchnorm_bits(&s, &t) == batchnorm_bits(&s, NULL));
    memopt_thread_pool_destroy(pool);
}
#endif

/* ---- calls that are wrong ---- */
enum { BATCHNORM_FORWARD, BATCHNORM_BACKWARD, BATCHNORM_FOLD };
static memopt_status batchnorm_call(const memopt_ops *ops, const memopt_batch_norm *n, int way, float *weights, float *bias) {
    return way == BATCHNORM_FORWARD ? memopt_batch_norm_forward(ops, n) : way == BATCHNORM_BACKWARD ? memopt_batch_norm_backward(ops, n)
         : memopt_batch_norm_fold(ops, n, weights, bias);
}
#define BATCHNORM_TRY(statement, want) do { \
    memopt_batch_norm n = m.n; float *weights = batchnorm_floats(&m, BATCHNORM_DW), *bias = batchnorm_floats(&m, BATCHNORM_DB); \
    const uint64_t before = batchnorm_hash_all(&m); \
    statement; \
    CHECK_AT(batchnorm_call(&m.ops, &n, way, weights, bias) == (want), way * 10000 + __LINE__); \
    CHECK_AT(batchnorm_hash_all(&m) == before, way * 10000 + __LINE__); } while (0)
static void batchnorm_bad_calls(void) {
    batchnorm_spec s; int way; size_t bytes = 7; memopt_batch_norm none;
    memset(&s, 0, sizeof s);
    s.rows = 20; s.inputs = 5; s.outputs = 9; s.biased = s.scaled = s.shifted = 1; s.adds = s.adds_input = 1;
    for (way = BATCHNORM_FORWARD; way <= BATCHNORM_FOLD; ++way) {
        batchnorm_model m; const int trains = way != BATCHNORM_FOLD; unsigned char *data[BATCHNORM_SLOTS]; int k;
        batchnorm_open(&m, &s, NULL);
        for (k = 0; k < BATCHNORM_SLOTS; ++k) data[k] = m.slot[k].data;
        CHECK(batchnorm_call(&m.ops, NULL, way, batchnorm_floats(&m, BATCHNORM_DW), batchnorm_floats(&m, BATCHNORM_DB)) == MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.eps = -1, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.eps = memopt_i_bits_float(0x7fc00000u), MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.momentum = -0.1f, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.momentum = 1.001f, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.momentum = memopt_i_bits_float(0x7fc00000u), MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.no_update = 2, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.linear.accumulate = 2, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.linear.accumulate_input = -1, MEMOPT_ERR_ARGUMENT);
#ifndef __cplusplus
        BATCHNORM_TRY(n.linear.activation = (memopt_activation)4, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.linear.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.linear.weight_type = (memopt_type)-1, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.linear.gradient_type = (memopt_type)5, MEMOPT_ERR_ARGUMENT);
#endif
        BATCHNORM_TRY(n.scale = data[BATCHNORM_SCALE] + 1, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.shift = data[BATCHNORM_SHIFT] + 2, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.linear.bias = data[BATCHNORM_B] + 2, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.linear.weights = data[BATCHNORM_W] + 2, MEMOPT_ERR_ARGUMENT);
        BATCHNORM_TRY(n.linear.rows = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
        BATCHNORM_TRY(n.linear.outputs = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
        BATCHNORM_TRY(n.linear.inputs = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
        BATCHNORM_TRY(n.linear.outputs = SIZE_MAX / 16; n.linear.inputs = 0; n.linear.rows = 0, MEMOPT_ERR_OVERFLOW);
        if (trains) {
            BATCHNORM_TRY(n.linear.rows = 1, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.rows = 0, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.pre_activation = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.pre_activation = data[BATCHNORM_Z] + 1, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.statistics = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.statistics = (float *)(void *)(data[BATCHNORM_STATISTICS] + 2), MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.input = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.weights = NULL, MEMOPT_ERR_ARGUMENT);
            m.ops.scratch_bytes -= 1;
            BATCHNORM_TRY((void)0, MEMOPT_ERR_BUFFER);
            m.ops.scratch_bytes += 1; m.ops.scratch = data[BATCHNORM_SCRATCH] + 4;
            BATCHNORM_TRY((void)0, MEMOPT_ERR_ARGUMENT);
            m.ops.scratch = data[BATCHNORM_SCRATCH];
        }
        if (way == BATCHNORM_FORWARD) {
            BATCHNORM_TRY(n.linear.output = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.output = n.linear.pre_activation, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.output = data[BATCHNORM_X], MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.pre_activation = data[BATCHNORM_W], MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.running_mean = (float *)(void *)(data[BATCHNORM_MEAN] + 1), MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.running_variance = (float *)(void *)(data[BATCHNORM_MEAN] + 32), MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.statistics = (float *)(void *)(data[BATCHNORM_Y] + 716), MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.statistics = batchnorm_floats(&m, BATCHNORM_W), MEMOPT_ERR_ARGUMENT);
        }
        if (way == BATCHNORM_BACKWARD) {
            BATCHNORM_TRY(n.linear.grad_output = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.grad_input = data[BATCHNORM_DX] + 2, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.grad_input = data[BATCHNORM_G], MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.grad_input = data[BATCHNORM_X], MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.grad_weights = data[BATCHNORM_DW] + 1, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.grad_weights = data[BATCHNORM_W], MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.grad_bias = data[BATCHNORM_DW] + 176, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.grad_bias = data[BATCHNORM_DB] + 2, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.grad_scale = data[BATCHNORM_SCALE], MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.grad_scale = data[BATCHNORM_DSHIFT] + 32, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.grad_scale = data[BATCHNORM_DSCALE] + 3, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.grad_shift = data[BATCHNORM_DSHIFT] + 3, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.grad_shift = data[BATCHNORM_STATISTICS], MEMOPT_ERR_ARGUMENT);
        }
        if (way == BATCHNORM_FOLD) {
            BATCHNORM_TRY(n.running_mean = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.running_variance = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(weights = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(bias = NULL, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(weights = batchnorm_floats(&m, BATCHNORM_W), MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(bias = batchnorm_floats(&m, BATCHNORM_MEAN), MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(bias = batchnorm_floats(&m, BATCHNORM_DW) + 44, MEMOPT_ERR_ARGUMENT);
            BATCHNORM_TRY(n.linear.outputs = 0; weights = bias = NULL, MEMOPT_OK);
        } else BATCHNORM_TRY(n.linear.outputs = 0; n.linear.pre_activation = NULL; n.statistics = NULL, MEMOPT_OK);
        batchnorm_close(&m);
    }
    memset(&none, 0, sizeof none);
    CHECK(scratch_of_batch_norm(NULL, NULL, &bytes) == MEMOPT_ERR_ARGUMENT && bytes == 7);
    none.linear.rows = SIZE_MAX / 2; none.linear.outputs = 3;
    CHECK(scratch_of_batch_norm(NULL, &none, &bytes) == MEMOPT_ERR_OVERFLOW && bytes == 7);
}
/* Why: each change to what is right is told by its own line. */
static memopt_status batchnorm_broken_gemm(void *user, const memopt_product *p, const memopt_threads *threads,
                                           void *scratch) {
    (void)user; (void)p; (void)threads; (void)scratch;
    return MEMOPT_ERR_DEVICE;
}
#define BATCH_SAYS(change, call, want, text) REFUSES(o.error, (x = right, o = fine, change), memopt_batch_norm_##call, \
    MEMOPT_ERR_##want, "batch norm: " text)
static void batchnorm_errors(void) {
    static float room[512];
    const void *odd = (const char *)room + 1;
    void *odd_to = (char *)room + 1;
    memopt_batch_norm right, x;
    memopt_linear *l = &right.linear;
    memopt_ops fine, o;
    unsigned char *raw;
    size_t bytes = 0;
    char text[96];

    memset(&o, 0, sizeof o);
    memset(&right, 0, sizeof right);
    l->rows = l->inputs = l->outputs = 4;
    l->input = room;
    l->weights = room + 16;
    l->bias = room + 32;
    l->output = room + 48;
    l->pre_activation = room + 64;
    l->grad_output = room + 80;
    l->grad_input = room + 96;
    l->grad_weights = room + 112;
    l->grad_bias = room + 128;
    right.scale = room + 144;
    right.shift = room + 148;
    right.running_mean = room + 152;
    right.running_variance = room + 156;
    right.statistics = room + 160;
    right.grad_scale = room + 168;
    right.grad_shift = room + 172;
    ACCEPTS(o.error, x = right, scratch_of_batch_norm(&o, &x, &bytes));
    raw = (unsigned char *)malloc(bytes + 64);
    if (!raw) { CHECK(raw != NULL); return; }
    o.scratch = raw + (0 - (uintptr_t)raw) % 64;
    o.scratch_bytes = bytes;
    fine = o;
    ACCEPTS(o.error, x = right, memopt_batch_norm_forward(&o, &x));
    ACCEPTS(o.error, x = right, memopt_batch_norm_backward(&o, &x));
    ACCEPTS(o.error, x = right, memopt_batch_norm_fold(&o, &x, room + 200, room + 216));
    BATCH_SAYS((void)0, forward(&o, NULL), ARGUMENT, "its struct is NULL");
    BATCH_SAYS(x.linear.rows = 1, forward(&o, &x), ARGUMENT, "rows 1, at least 2");
    BATCH_SAYS(x.linear.residual = x.linear.input, forward(&o, &x), ARGUMENT, "residual is given, and batch norm has none");
    BATCH_SAYS(x.linear.residual = x.linear.input, backward(&o, &x), ARGUMENT, "residual is given, and batch norm has none");
    BATCH_SAYS(x.linear.activation = (memopt_activation)test_number_of(5), forward(&o, &x), ARGUMENT,
               "activation 5, no such memopt_activation");
    BATCH_SAYS(x.linear.type = (memopt_type)3, forward(&o, &x), ARGUMENT, "type 3, no such memopt_type");
    BATCH_SAYS(x.linear.weight_type = (memopt_type)3, forward(&o, &x), ARGUMENT, "weight_type 3, no such memopt_type");
    BATCH_SAYS(x.linear.gradient_type = (memopt_type)3, forward(&o, &x), ARGUMENT,
               "gradient_type 3, no such memopt_type");
    BATCH_SAYS(x.eps = -1, forward(&o, &x), ARGUMENT, "eps -1, finite and at least 0");
    BATCH_SAYS(x.momentum = 1.5f, forward(&o, &x), ARGUMENT, "momentum 1.5, above 0 and at most 1");
    BATCH_SAYS(x.no_update = 2, forward(&o, &x), ARGUMENT, "no_update 2, must be 0 or 1");
    BATCH_SAYS(x.linear.accumulate = 2, backward(&o, &x), ARGUMENT, "accumulate 2, must be 0 or 1");
    BATCH_SAYS(x.linear.accumulate_input = 2, backward(&o, &x), ARGUMENT, "accumulate_input 2, must be 0 or 1");
    BATCH_SAYS(x.linear.rows = SIZE_MAX / 2, forward(&o, &x), OVERFLOW, "input is larger than memory can be");
    BATCH_SAYS((x.linear.inputs = SIZE_MAX, x.linear.rows = x.linear.outputs = 0), forward(&o, &x), OVERFLOW,
               "weights is larger than memory can be");
    BATCH_SAYS((x.linear.rows = x.linear.inputs = 0, x.linear.outputs = SIZE_MAX / 12), forward(&o, &x), OVERFLOW,
               "statistics is larger than memory can be");
    BATCH_SAYS((x.linear.rows = x.linear.inputs = 0, x.linear.outputs = SIZE_MAX / 17), forward(&o, &x), OVERFLOW,
               "scratch is larger than memory can be");
    BATCH_SAYS(x.linear.input = NULL, forward(&o, &x), ARGUMENT, "input is NULL");
    BATCH_SAYS(x.linear.weights = NULL, backward(&o, &x), ARGUMENT, "weights is NULL");
    BATCH_SAYS(x.linear.bias = odd, forward(&o, &x), ARGUMENT, "bias is misaligned");
    BATCH_SAYS(x.scale = odd, forward(&o, &x), ARGUMENT, "scale is misaligned");
    BATCH_SAYS(x.shift = odd, forward(&o, &x), ARGUMENT, "shift is misaligned");
    BATCH_SAYS(x.linear.pre_activation = NULL, forward(&o, &x), ARGUMENT, "pre_activation is NULL");
    BATCH_SAYS(x.statistics = NULL, backward(&o, &x), ARGUMENT, "statistics is NULL");
    BATCH_SAYS(x.linear.output = NULL, forward(&o, &x), ARGUMENT, "output is NULL");
    BATCH_SAYS(x.running_mean = (float *)odd_to, forward(&o, &x), ARGUMENT, "running_mean is misaligned");
    BATCH_SAYS(x.running_variance = (float *)odd_to, forward(&o, &x), ARGUMENT, "running_variance is misaligned");
    BATCH_SAYS(x.linear.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
    BATCH_SAYS(x.linear.grad_input = odd_to, backward(&o, &x), ARGUMENT, "grad_input is misaligned");
    BATCH_SAYS(x.linear.grad_weights = odd_to, backward(&o, &x), ARGUMENT, "grad_weights is misaligned");
    BATCH_SAYS(x.linear.grad_bias = odd_to, backward(&o, &x), ARGUMENT, "grad_bias is misaligned");
    BATCH_SAYS(x.grad_scale = odd_to, backward(&o, &x), ARGUMENT, "grad_scale is misaligned");
    BATCH_SAYS(x.grad_shift = odd_to, backward(&o, &x), ARGUMENT, "grad_shift is misaligned");
    BATCH_SAYS(x.linear.output = x.linear.pre_activation, forward(&o, &x), ARGUMENT, "output overlaps pre_activation");
    BATCH_SAYS(x.linear.output = room + 1, forward(&o, &x), ARGUMENT, "output overlaps input");
    BATCH_SAYS(x.linear.grad_input = room + 81, backward(&o, &x), ARGUMENT, "grad_input overlaps grad_output");
    BATCH_SAYS((x.linear.grad_weights = NULL, x.linear.grad_input = room), backward(&o, &x), ARGUMENT,
               "grad_input overlaps input"); /* although nobody reads it */
    snprintf(text, sizeof text, "batch norm: scratch_bytes %llu, at least %llu", (unsigned long long)bytes - 1,
             (unsigned long long)bytes);
    REFUSES(o.error, (x = right, o = fine, --o.scratch_bytes), memopt_batch_norm_forward(&o, &x), MEMOPT_ERR_BUFFER, text);
    BATCH_SAYS(o.gemm.multiply_fn = batchnorm_broken_gemm, forward(&o, &x), DEVICE, "the gemm failed");
    BATCH_SAYS(o.gemm.multiply_fn = batchnorm_broken_gemm, backward(&o, &x), DEVICE, "the gemm failed");
    BATCH_SAYS(x.running_mean = NULL, fold(&o, &x, room + 200, room + 216), ARGUMENT, "running_mean is NULL");
    BATCH_SAYS(x.running_variance = NULL, fold(&o, &x, room + 200, room + 216), ARGUMENT, "running_variance is NULL");
    BATCH_SAYS((void)0, fold(&o, &x, NULL, room + 216), ARGUMENT, "weights is NULL");
    BATCH_SAYS((void)0, fold(&o, &x, room + 200, NULL), ARGUMENT, "bias is NULL");
    BATCH_SAYS((void)0, fold(&o, &x, room + 200, room + 215), ARGUMENT, "bias overlaps weights");
    BATCH_SAYS((void)0, fold(&o, &x, room + 17, room + 216), ARGUMENT, "weights overlaps linear.weights");
    free(raw);
}
void test_batchnorm(void);
void test_batchnorm(void) {
#if defined(TEST_THREADS) /* under a sanitizer that makes everything slow */
    RUN(batchnorm_pool);
    return;
#endif
    RUN(batchnorm_definition);
    RUN(batchnorm_values);
    RUN(batchnorm_blocks);
    RUN(batchnorm_same_bits);
    RUN(batchnorm_columns);
    RUN(batchnorm_unwanted);
    RUN(batchnorm_folded);
    RUN(batchnorm_failing_gemm);
#if defined(MEMOPT_I_POOL)
    RUN(batchnorm_pool);
#endif
    RUN(batchnorm_bad_calls);
    RUN(batchnorm_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_batchnorm(); return test_totals(); }
#endif
