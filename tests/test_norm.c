/* test_norm.c - layer norm and RMS norm. Expected values come from the definition in double, gradients from finite
   differences of it; everything else is that the bits are a function of the numbers alone. */
#include "test.h"
#include "scratch.h"

enum { NORM_X, NORM_SCALE, NORM_SHIFT, NORM_Y, NORM_STATISTICS, NORM_G, NORM_DX, NORM_DSCALE, NORM_DSHIFT, NORM_SLOTS };
typedef struct norm_slot { unsigned char *block, *data; size_t count; memopt_type type; } norm_slot;
typedef struct norm_spec {
    size_t      rows, width;
    memopt_type type, weight_type, gradient_type;
    int         rms, scaled, shifted; /* 1: there is a scale, a shift */
    int         from_output, in_place, adds_input, adds;
} norm_spec;
typedef struct norm_model { norm_spec spec; memopt_norm n; norm_slot slot[NORM_SLOTS]; } norm_model;

/* What calls run with: more scratch than any shape here asks for. */
static memopt_ops norm_ops(const memopt_threads *threads) {
    enum { BYTES = 1 << 20 };
    static unsigned char block[BYTES + 64];
    memopt_ops ops;

    memset(&ops, 0, sizeof ops);
    ops.threads = threads;
    ops.scratch = block + (64 - (uintptr_t)block % 64);
    ops.scratch_bytes = BYTES;
    return ops;
}

static memopt_status norm_backward(const memopt_norm *n) {
    const memopt_ops ops = norm_ops(NULL);
    return memopt_norm_backward(&ops, n);
}

static float norm_get(const norm_slot *s, size_t i) {
    if (s->type == MEMOPT_TYPE_F32) return ((const float *)(const void *)s->data)[i];
    if (s->type == MEMOPT_TYPE_BF16) return memopt_from_bf16(((const uint16_t *)(const void *)s->data)[i]);
    return memopt_from_f16(((const uint16_t *)(const void *)s->data)[i]);
}
static void norm_put(const norm_slot *s, size_t i, float x) {
    if (s->type == MEMOPT_TYPE_F32) ((float *)(void *)s->data)[i] = x;
    else ((uint16_t *)(void *)s->data)[i] = s->type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
}
static float norm_random(uint64_t *seed) { return (float)(test_random(seed) >> 40) * (1.0f / 8388608.0f) - 1.0f; }
/* Aligned to its elements and no more, between bytes of noise. */
static void norm_slot_make(norm_slot *s, size_t count, memopt_type type) {
    const size_t bytes = count * memopt_type_bytes(type);
    s->block = (unsigned char *)malloc(bytes + 192);
    memset(s->block, 0xA5, bytes + 192);
    s->data = s->block + (64 - (uintptr_t)s->block % 64) + memopt_type_bytes(type);
    s->count = count; s->type = type;
}
/* Sizes are powers of two, so that there is one rounding, also on the x87. */
static void norm_slot_fill(const norm_slot *s, uint64_t seed, float size, float offset) {
    size_t i;
    for (i = 0; i < s->count; ++i) norm_put(s, i, size * norm_random(&seed) + offset);
}
static void norm_untouched(const norm_model *m) { /* before and behind every array */
    int k, i;
    for (k = 0; k < NORM_SLOTS; ++k) {
        const norm_slot *s = &m->slot[k]; const unsigned char *end;
        if (!s->block) continue;
        end = s->data + s->count * memopt_type_bytes(s->type);
        for (i = 0; i < 48; ++i) CHECK_AT(end[i] == 0xA5, k);
        CHECK_AT(s->data[-1] == 0xA5, k);
    }
}
static void norm_open(norm_model *m, const norm_spec *s) {
    const size_t all = s->rows * s->width, w = s->width; size_t row, i;
    memset(m, 0, sizeof *m);
    m->spec = *s;
    norm_slot_make(&m->slot[NORM_X], all, s->type);
    norm_slot_make(&m->slot[NORM_Y], all, s->type);
    norm_slot_make(&m->slot[NORM_G], all, s->type);
    norm_slot_make(&m->slot[NORM_DX], all, s->type);
    norm_slot_make(&m->slot[NORM_STATISTICS], 2 * s->rows, MEMOPT_TYPE_F32);
    norm_slot_make(&m->slot[NORM_SCALE], w, s->weight_type);
    norm_slot_make(&m->slot[NORM_SHIFT], w, s->weight_type);
    norm_slot_make(&m->slot[NORM_DSCALE], w, s->gradient_type);
    norm_slot_make(&m->slot[NORM_DSHIFT], w, s->gradient_type);
    norm_slot_fill(&m->slot[NORM_G], 2, 1, 0.1f);
    norm_slot_fill(&m->slot[NORM_DX], 3, 1, 0);
    norm_slot_fill(&m->slot[NORM_SCALE], 4, 0.5f, 1);
    norm_slot_fill(&m->slot[NORM_SHIFT], 5, 0.5f, 0.25f);
    norm_slot_fill(&m->slot[NORM_DSCALE], 6, 1, 0);
    norm_slot_fill(&m->slot[NORM_DSHIFT], 7, 1, 0);
    for (row = 0; row < s->rows; ++row) { /* of several sizes and means */
        uint64_t seed = row + 10; const float size = row % 3 == 0 ? 1.0f : row % 3 == 1 ? 32.0f : 0.015625f;
        for (i = 0; i < w; ++i) norm_put(&m->slot[NORM_X], row * w + i, size * (norm_random(&seed) + (float)(row % 4) * 0.5f));
    }
    m->n.rows = s->rows; m->n.width = w; m->n.rms = s->rms;
    m->n.type = s->type; m->n.weight_type = s->weight_type; m->n.gradient_type = s->gradient_type;
    m->n.input = m->slot[NORM_X].data; m->n.output = m->slot[NORM_Y].data;
    m->n.statistics = (float *)(void *)m->slot[NORM_STATISTICS].data;
    m->n.scale = s->scaled ? m->slot[NORM_SCALE].data : NULL;
    m->n.shift = s->shifted ? m->slot[NORM_SHIFT].data : NULL;
}
static void norm_close(norm_model *m) {
    int k;
    norm_untouched(m);
    for (k = 0; k < NORM_SLOTS; ++k) free(m->slot[k].block);
}
/* What backward is given; output and statistics are a forward's. */
static void norm_turn(norm_model *m) {
    const norm_spec *s = &m->spec;
    if (s->from_output) m->n.input = NULL;
    else m->n.output = NULL;
    m->n.grad_output = m->slot[NORM_G].data;
    m->n.grad_input = m->slot[s->in_place ? NORM_G : NORM_DX].data;
    m->n.accumulate_input = s->adds_input; m->n.accumulate = s->adds;
    m->n.grad_scale = m->slot[NORM_DSCALE].data;
    m->n.grad_shift = s->rms ? NULL : m->slot[NORM_DSHIFT].data;
}

/* ---- the definition ---- */
typedef struct norm_truth { double *x, *y, *scale, *shift, *h, mean, inverse, average; } norm_truth;
static double *norm_doubles(const norm_slot *s, size_t first, size_t n) {
    double *d = (double *)malloc((n + 1) * sizeof *d); size_t i;
    for (i = 0; i < n; ++i) d[i] = (double)norm_get(s, first + i);
    return d;
}
static void norm_define(norm_truth *t, size_t n, int rms, double eps) {
    double sum = 0, squares = 0; size_t i;
    for (t->average = 0, i = 0; i < n; ++i) { sum += t->x[i]; t->average += fabs(t->x[i]) / (double)n; }
    t->mean = rms ? 0 : sum / (double)n;
    for (i = 0; i < n; ++i) squares += (t->x[i] - t->mean) * (t->x[i] - t->mean);
    t->inverse = 1 / sqrt(squares / (double)n + eps);
    for (i = 0; i < n; ++i) {
        t->h[i] = (t->x[i] - t->mean) * t->inverse;
        t->y[i] = t->h[i] * t->scale[i] + t->shift[i];
    }
}
static double norm_eps(const norm_model *m) { return m->n.eps > 0 ? (double)m->n.eps : (double)1e-5f; }
static void norm_truth_open(norm_truth *t, const norm_model *m, size_t row) {
    const size_t n = m->spec.width; size_t i;
    t->x = norm_doubles(&m->slot[NORM_X], row * n, n);
    t->scale = norm_doubles(&m->slot[NORM_SCALE], 0, n);
    t->shift = norm_doubles(&m->slot[NORM_SHIFT], 0, n);
    t->y = (double *)malloc((n + 1) * sizeof(double)); t->h = (double *)malloc((n + 1) * sizeof(double));
    for (i = 0; i < n; ++i) {
        if (!m->spec.scaled) t->scale[i] = 1;
        if (!m->spec.shifted) t->shift[i] = 0;
    }
    norm_define(t, n, m->spec.rms, norm_eps(m));
}
static void norm_truth_close(norm_truth *t) { free(t->x); free(t->y); free(t->scale); free(t->shift); free(t->h); }
/* How far off storage alone puts a value: half a unit in the last place. */
static double norm_unit(memopt_type type, double x) {
    if (type == MEMOPT_TYPE_F32) return ldexp(fabs(x), -24);
    return type == MEMOPT_TYPE_BF16 ? ldexp(fabs(x), -8) : ldexp(fabs(x), -11) + ldexp(1, -25);
}
/* The bound of the float arithmetic of h: n / 16 additions in a row for each sum, and a few roundings more. */
static double norm_bound_h(const norm_truth *t, size_t n, double h) {
    const double u = ldexp(1, -24), chain = (double)n / 16 + 8, mean = chain * u * t->average;
    return fabs(h) * (chain * u + mean * mean * t->inverse * t->inverse) + mean * t->inverse + 4 * u * fabs(h);
}
static void norm_check_forward(const norm_model *m, const norm_slot *y, int with_statistics) {
    const norm_spec *s = &m->spec; const size_t n = s->width; size_t row, i;
    for (row = 0; row < s->rows; ++row) {
        norm_truth t;
        norm_truth_open(&t, m, row);
        for (i = 0; i < n; ++i) {
            const double bound = norm_bound_h(&t, n, t.h[i]) * fabs(t.scale[i]) + norm_unit(MEMOPT_TYPE_F32, t.y[i])
                               + norm_unit(s->type, t.y[i]);
            const double off = fabs((double)norm_get(y, row * n + i) - t.y[i]);
            CHECK_AT(off <= 1.01 * bound, row * 10000 + i);
        }
        if (with_statistics) {
            const double u = ldexp(1, -24), chain = (double)n / 16 + 8;
            const double off = fabs((double)m->n.statistics[2 * row + 1] / t.inverse - 1);
            CHECK_AT(fabs((double)m->n.statistics[2 * row] - t.mean) <= chain * u * t.average, row);
            CHECK_AT(off <= chain * u + pow(chain * u * t.average * t.inverse, 2), row);
        }
        norm_truth_close(&t);
    }
}
/* sum(y g) of a row with x[i] moved by e */
static double norm_moved(norm_truth *t, const double *g, size_t n, int rms, double eps, size_t i, double e) {
    const double x = t->x[i]; double sum = 0; size_t k;
    t->x[i] = x + e;
    norm_define(t, n, rms, eps);
    for (k = 0; k < n; ++k) sum += t->y[k] * g[k];
    t->x[i] = x;
    return sum;
}
/* g and what the gradients held are those of before the backward. */
static void norm_check_backward(const norm_model *m, const norm_slot *dx, const norm_slot *g, const norm_slot *old_dx,
                                const norm_slot *old_scale, const norm_slot *old_shift) {
    const norm_spec *s = &m->spec; const size_t n = s->width; size_t row, i; const double eps = norm_eps(m);
    double *dscale = (double *)calloc(n * 4 + 1, sizeof *dscale), *dshift = dscale + n, *size = dshift + n, *share = size + n;
    for (row = 0; row < s->rows; ++row) {
        norm_truth t; double *gs = norm_doubles(g, row * n, n), ms = 0, msh = 0, inverse, off, of_h;
        norm_truth_open(&t, m, row);
        inverse = t.inverse;
        for (i = 0; i < n; ++i) {
            /* h from the output has the output's rounding, and that of a difference */
            of_h = norm_bound_h(&t, n, t.h[i]);
            if (s->from_output)
                of_h = fabs(t.scale[i]) > 0 ? of_h + (2 * norm_unit(s->type, t.y[i]) + ldexp(fabs(t.y[i]) + fabs(t.shift[i]), -24))
                     / fabs(t.scale[i]) : fabs(t.h[i]);
            ms += fabs(gs[i] * t.scale[i]) / (double)n; msh += fabs(gs[i] * t.scale[i]) * (fabs(t.h[i]) + of_h) / (double)n;
            dscale[i] += gs[i] * t.h[i]; dshift[i] += gs[i];
            size[i] += fabs(gs[i] * t.h[i]) * 1e-5 + fabs(gs[i]) * of_h; share[i] += fabs(gs[i]);
        }
        if (s->rms) ms = 0;
        for (i = 0; i < n; ++i) {
            const double e = 1e-3 / inverse, h = t.h[i], want = (norm_moved(&t, gs, n, s->rms, eps, i, e)
                       - norm_moved(&t, gs, n, s->rms, eps, i, -e)) / (2 * e) + (s->adds_input ? (double)norm_get(old_dx, row * n + i) : 0);
            const double terms = fabs(gs[i] * t.scale[i]) + ms + fabs(h) * msh;
            double bound = (1e-5 + 4e-6) * inverse * terms; /* floats: 90 roundings; the step: e^2 */
            if (s->from_output) { /* the error of h reaches both terms that it is in */
                double worst = 0, here; size_t k;
                for (k = 0; k < n; ++k)
                    if (fabs(t.scale[k]) > 0) {
                        here = (2 * norm_unit(s->type, fabs(t.scale[k]) * 4 + 1)) / fabs(t.scale[k]);
                        if (here > worst) worst = here;
                    }
                bound += 4 * worst * inverse * terms;
            }
            bound += inverse * ms * norm_bound_h(&t, n, 1) * 4;
            off = fabs((double)norm_get(dx, row * n + i) - want);
            CHECK_AT(off <= bound + norm_unit(s->type, want) + ldexp(fabs(want), -22), row * 10000 + i);
            norm_define(&t, n, s->rms, eps);
        }
        norm_truth_close(&t); free(gs);
    }
    for (i = 0; i < n; ++i) {
        const double a = dscale[i] + (s->adds ? (double)norm_get(old_scale, i) : 0), b = dshift[i] + (s->adds ? (double)norm_get(old_shift, i) : 0);
        CHECK_AT(fabs((double)norm_get(&m->slot[NORM_DSCALE], i) - a) <= size[i] + norm_unit(s->gradient_type, a) + ldexp(fabs(a), -20), i);
        if (s->rms) continue;
        CHECK_AT(fabs((double)norm_get(&m->slot[NORM_DSHIFT], i) - b) <= 1e-6 * share[i] + norm_unit(s->gradient_type, b) + ldexp(fabs(b), -20), i);
    }
    free(dscale);
}
static norm_slot norm_copy(const norm_slot *s) {
    norm_slot c;
    norm_slot_make(&c, s->count, s->type);
    memcpy(c.data, s->data, s->count * memopt_type_bytes(s->type));
    return c;
}
static void norm_case(const norm_spec *s, float eps) {
    norm_model m; norm_slot g, dx, scale, shift;
    norm_open(&m, s);
    m.n.eps = eps;
    CHECK(memopt_norm_forward(NULL, &m.n) == MEMOPT_OK);
    norm_check_forward(&m, &m.slot[NORM_Y], 1);
    norm_turn(&m);
    g = norm_copy(&m.slot[NORM_G]); dx = norm_copy(&m.slot[s->in_place ? NORM_G : NORM_DX]);
    scale = norm_copy(&m.slot[NORM_DSCALE]); shift = norm_copy(&m.slot[NORM_DSHIFT]);
    CHECK(norm_backward(&m.n) == MEMOPT_OK);
    norm_check_backward(&m, &m.slot[s->in_place ? NORM_G : NORM_DX], &g, &dx, &scale, &shift);
    free(g.block); free(dx.block); free(scale.block); free(shift.block);
    norm_close(&m);
}
static const size_t norm_widths[] = { 1, 7, 8, 9, 15, 16, 17, 33, 127, 130, 512, 529 };
enum { NORM_WIDTHS = (int)(sizeof norm_widths / sizeof *norm_widths) };
static norm_spec norm_spec_of(int i) { /* mixes everything with everything else */
    norm_spec s;
    memset(&s, 0, sizeof s);
    s.width = norm_widths[i % NORM_WIDTHS];
    s.rows = 1 + (size_t)(i / 3 % 4);
    s.type = (memopt_type)(i % 3); s.weight_type = (memopt_type)(i / 5 % 3); s.gradient_type = (memopt_type)(i / 7 % 3);
    s.rms = i / 2 % 3 == 0; s.scaled = i % 5 != 0; s.shifted = !s.rms && i % 7 != 0;
    s.from_output = i / 4 % 2; s.in_place = i / 6 % 3 == 1; s.adds_input = i % 4 == 1; s.adds = i / 8 % 2;
    return s;
}
static void norm_values(void) {
    int i;
    for (i = 0; i < 240; ++i) {
        const norm_spec s = norm_spec_of(i); const int failures = test_failures;
        if (test_is_passed_over()) continue;
        norm_case(&s, i % 11 == 3 ? 0.125f : 0);
        if (test_failures != failures) { printf("case %d\n", i); return; }
    }
    for (i = 0; i < 12; ++i) { /* rows beyond one group, some more than one */
        norm_spec s = norm_spec_of(i * 5 + 2); const int failures = test_failures;
        if (test_is_passed_over()) continue;
        s.rows = 31 + (size_t)i % 4 + 32 * ((size_t)i % 3); s.width = norm_widths[i % 8];
        norm_case(&s, 0);
        if (test_failures != failures) { printf("groups, case %d\n", i); return; }
    }
}

/* The sums of gradients, to the bit: 32 rows by themselves, then these sums in their order. */
static float norm_rounded(float x) { volatile float y = x; return y; }
static void norm_order(void) {
    enum { ROWS = 100, WIDTH = 37 };
    norm_spec s; norm_model m; size_t row, i; int adds;
    memset(&s, 0, sizeof s);
    s.rows = ROWS; s.width = WIDTH; s.scaled = 1;
    for (adds = 0; adds < 2; ++adds) {
        float scale[WIDTH], shift[WIDTH], a[WIDTH] = { 0 }, b[WIDTH] = { 0 };
        norm_open(&m, &s);
        CHECK(memopt_norm_forward(NULL, &m.n) == MEMOPT_OK);
        for (i = 0; i < WIDTH; ++i) {
            scale[i] = adds ? norm_get(&m.slot[NORM_DSCALE], i) : 0;
            shift[i] = adds ? norm_get(&m.slot[NORM_DSHIFT], i) : 0;
        }
        norm_turn(&m);
        m.n.accumulate = adds;
        CHECK(norm_backward(&m.n) == MEMOPT_OK);
        for (row = 0; row < ROWS; ++row)
            for (i = 0; i < WIDTH; ++i) {
                const float *two = m.n.statistics + 2 * row, g = norm_get(&m.slot[NORM_G], row * WIDTH + i);
                const float d = norm_rounded(norm_get(&m.slot[NORM_X], row * WIDTH + i) - two[0]);
                a[i] = fmaf(g, norm_rounded(d * two[1]), a[i]);
                b[i] = norm_rounded(g + b[i]);
                if (row % 32 != 31 && row != ROWS - 1) continue;
                scale[i] = norm_rounded(scale[i] + a[i]); shift[i] = norm_rounded(shift[i] + b[i]);
                a[i] = b[i] = 0;
            }
        for (i = 0; i < WIDTH; ++i) {
            CHECK_AT(memopt_i_float_bits(norm_get(&m.slot[NORM_DSCALE], i)) == memopt_i_float_bits(scale[i]), i);
            CHECK_AT(memopt_i_float_bits(norm_get(&m.slot[NORM_DSHIFT], i)) == memopt_i_float_bits(shift[i]), i);
        }
        norm_close(&m);
    }
}

static void norm_shift_is(const norm_model *m) { /* of floats: the sums of 32 rows each, one after the other */
    size_t i, row, wrong = 0;
    for (i = 0; i < m->n.width; ++i) {
        float group = 0, all = 0;
        for (row = 0; row < m->n.rows; ++row) {
            group = norm_rounded(norm_get(&m->slot[NORM_G], row * m->n.width + i) + group);
            if (row % 32 == 31 || row == m->n.rows - 1) { all = norm_rounded(all + group); group = 0; }
        }
        wrong += memopt_i_float_bits(norm_get(&m->slot[NORM_DSHIFT], i)) != memopt_i_float_bits(all);
    }
    CHECK(wrong == 0);
}
/* What is asked for is enough and no byte more is touched, not even by adding 0 to -0; a byte less is refused; a dry run asks for
   the same; where there is no room for all groups the sums are those of all. */
static void norm_scratch(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 33, 20 }, { 5000, 40 }, { 40, 60000 }, { 0, 7 }, { 3, 0 } };
    static const size_t want[] = { 16, 480, 157 * 320 + 320, 2 * 480000, 56, 0 }; /* (groups + 1) * 8 * width */
    size_t i, k;
    for (i = 0; i < sizeof want / sizeof *want; ++i) {
        norm_spec s; norm_model m; memopt_ops ops, dry; size_t bytes = 0, counted = 0; unsigned char *block; float *end;
        memset(&s, 0, sizeof s);
        s.shifted = 1;
        s.rows = shapes[i][0]; s.width = shapes[i][1];
        norm_open(&m, &s);
        memset(&ops, 0, sizeof ops); memset(&dry, 0, sizeof dry);
        CHECK(scratch_of_norm(&ops, &m.n, &bytes) == MEMOPT_OK);
        CHECK_AT(bytes == want[i], i);
        CHECK(memopt_norm_forward(&ops, &m.n) == MEMOPT_OK);
        norm_turn(&m);
        dry.count_scratch = &counted;
        CHECK(memopt_norm_backward(&dry, &m.n) == MEMOPT_OK && counted == bytes);
        block = (unsigned char *)malloc(bytes + 192);
        ops.scratch = block + (64 - (uintptr_t)block % 64);
        end = (float *)(void *)((unsigned char *)ops.scratch + bytes);
        for (k = 0; k < 16; ++k) end[k] = -0.0f;
        ops.scratch_bytes = bytes - (bytes != 0);
        CHECK_AT(memopt_norm_backward(&ops, &m.n) == (bytes ? MEMOPT_ERR_BUFFER : MEMOPT_OK), i);
        ops.scratch_bytes = bytes;
        CHECK(memopt_norm_backward(&ops, &m.n) == MEMOPT_OK);
        for (k = 0; k < 16; ++k) CHECK_AT(memopt_i_float_bits(end[k]) == 0x80000000u, i);
        norm_shift_is(&m);
        m.n.grad_scale = m.n.grad_shift = NULL; /* their sums are all it is for; but pointers are not looked at by what tells it */
        CHECK(memopt_norm_backward(NULL, &m.n) == MEMOPT_OK);
        bytes = counted = 5;
        CHECK_AT(scratch_of_norm(&dry, &m.n, &bytes) == MEMOPT_OK && bytes == want[i], i);
        counted = 0;
        CHECK_AT(memopt_norm_backward(&dry, &m.n) == MEMOPT_OK && counted == want[i], i);
        counted = 0;
        CHECK_AT(memopt_norm_forward(&dry, &m.n) == MEMOPT_OK && counted == 0, i);
        free(block);
        norm_close(&m);
    }
}

/* ---- the same bits ---- */
static uint64_t norm_hash(uint64_t hash, const norm_slot *s) {
    size_t i;
    for (i = 0; i < s->count; ++i) hash = (hash ^ memopt_i_float_bits(norm_get(s, i))) * UINT64_C(0x100000001b3);
    return hash;
}
/* The first row of a part: a multiple of 32. */
static size_t norm_cut(size_t rows, size_t part, size_t parts) {
    return part == parts ? rows : rows * part / parts / 32 * 32;
}
/* Forward and backward in `parts` calls; a hash of all they wrote. */
static uint64_t norm_bits(const norm_spec *s, const memopt_threads *threads, size_t parts) {
    norm_model m; size_t part, first, end; uint64_t hash = 1; memopt_norm n; int k;
    const size_t bytes = memopt_type_bytes(s->type) * s->width;
    const memopt_ops ops = norm_ops(threads);
    norm_open(&m, s);
    for (part = 0; part < parts; ++part) {
        n = m.n;
        first = norm_cut(s->rows, part, parts); end = norm_cut(s->rows, part + 1, parts); n.rows = end - first;
        n.input = (const unsigned char *)n.input + first * bytes; n.output = (unsigned char *)n.output + first * bytes;
        n.statistics += 2 * first;
        CHECK(memopt_norm_forward(&ops, &n) == MEMOPT_OK);
    }
    norm_turn(&m);
    for (part = 0; part < parts; ++part) {
        n = m.n;
        first = norm_cut(s->rows, part, parts); end = norm_cut(s->rows, part + 1, parts); n.rows = end - first;
        if (n.input) n.input = (const unsigned char *)n.input + first * bytes;
        else n.output = (unsigned char *)n.output + first * bytes;
        n.grad_output = (const unsigned char *)n.grad_output + first * bytes;
        n.grad_input = (unsigned char *)n.grad_input + first * bytes;
        n.statistics += 2 * first;
        if (part) n.accumulate = 1;
        CHECK(memopt_norm_backward(&ops, &n) == MEMOPT_OK);
    }
    for (k = 0; k < NORM_SLOTS; ++k) hash = norm_hash(hash, &m.slot[k]);
    norm_close(&m);
    return hash;
}
static void norm_same_bits(void) {
    int i, level, workers; test_worker_set worker_set; uint64_t all = 1;
    for (i = 0; i < 150; ++i) {
        norm_spec s = norm_spec_of(i * 7 + 3); memopt_threads t = test_workers(&worker_set, 0, MEMOPT_SIMD_SCALAR); uint64_t want;
        s.rows = i % 3 == 0 ? 70 : 9;
        if (i % 50 == 17) { /* several blocks of rows, each of which is to be added once */
            s.rows = i == 17 ? 9000 : 300; s.width = i == 17 ? 17 : 1000; if (i == 17) s.type = MEMOPT_TYPE_F32;
            s.adds_input = 1; s.gradient_type = i == 117 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; /* rounded once */
        }
        want = norm_bits(&s, &t, 1);
        all = (all ^ want) * UINT64_C(0x100000001b3);
        if (test_is_passed_over()) continue;
        for (level = 1; level <= memopt_simd_best(); ++level) {
            t = test_workers(&worker_set, 0, level);
            CHECK_AT(norm_bits(&s, &t, 1) == want, i * 100 + level);
        }
        for (workers = 1; workers <= 8; workers += 1 + i % 3) {
            t = test_workers(&worker_set, workers, workers % 2);
            CHECK_AT(norm_bits(&s, &t, s.gradient_type == MEMOPT_TYPE_F32 ? (size_t)workers : 1) == want, i * 100 + workers);
        }
    }
    if (all != UINT64_C(0x0c442c2fc1b7e635)) printf("hash 0x%016llx\n", (unsigned long long)all);
    CHECK(all == UINT64_C(0x0c442c2fc1b7e635)); /* the same on every machine */
}

/* ---- edges ---- */
static void norm_empty(void) { /* no rows: nothing, but gradients of parameters begin with 0 */
    norm_spec s = norm_spec_of(1); norm_model m; size_t i; int adds;
    s.rows = 3; s.width = 9; s.rms = 0; s.in_place = 0; s.gradient_type = MEMOPT_TYPE_F32;
    for (adds = 0; adds < 2; ++adds) {
        norm_slot scale, shift;
        norm_open(&m, &s);
        scale = norm_copy(&m.slot[NORM_DSCALE]); shift = norm_copy(&m.slot[NORM_DSHIFT]);
        m.n.rows = 0; m.n.input = NULL; m.n.output = NULL; m.n.statistics = NULL;
        CHECK(memopt_norm_forward(NULL, &m.n) == MEMOPT_OK);
        CHECK(norm_backward(&m.n) == MEMOPT_OK);
        m.n.accumulate = adds;
        m.n.grad_scale = m.slot[NORM_DSCALE].data; m.n.grad_shift = m.slot[NORM_DSHIFT].data;
        CHECK(norm_backward(&m.n) == MEMOPT_OK);
        for (i = 0; i < 9; ++i) {
            CHECK_AT(memopt_i_float_bits(norm_get(&m.slot[NORM_DSCALE], i)) == (adds ? memopt_i_float_bits(norm_get(&scale, i)) : 0), i);
            CHECK_AT(memopt_i_float_bits(norm_get(&m.slot[NORM_DSHIFT], i)) == (adds ? memopt_i_float_bits(norm_get(&shift, i)) : 0), i);
        }
        free(scale.block); free(shift.block);
        norm_close(&m);
    }
    norm_open(&m, &s);
    m.n.width = 0;
    CHECK(memopt_norm_forward(NULL, &m.n) == MEMOPT_OK);
    norm_turn(&m);
    CHECK(norm_backward(&m.n) == MEMOPT_OK);
    norm_close(&m);
}
static void norm_in_place(void) { /* output over input; no statistics wanted; gradients that nobody wants */
    int i, k;
    for (i = 0; i < 36; ++i) {
        norm_spec s = norm_spec_of(i); norm_model a, b; norm_slot x;
        s.in_place = s.adds_input = 0;
        norm_open(&a, &s); norm_open(&b, &s);
        x = norm_copy(&b.slot[NORM_X]);
        CHECK(memopt_norm_forward(NULL, &a.n) == MEMOPT_OK);
        b.n.output = b.slot[NORM_X].data; b.n.statistics = NULL;
        CHECK(memopt_norm_forward(NULL, &b.n) == MEMOPT_OK);
        CHECK_AT(norm_hash(1, &a.slot[NORM_Y]) == norm_hash(1, &b.slot[NORM_X]), i);
        memcpy(b.slot[NORM_X].data, x.data, x.count * memopt_type_bytes(x.type));
        b.n.output = b.slot[NORM_Y].data; b.n.statistics = (float *)(void *)b.slot[NORM_STATISTICS].data;
        CHECK(memopt_norm_forward(NULL, &b.n) == MEMOPT_OK);
        norm_turn(&a); norm_turn(&b);
        CHECK(norm_backward(&a.n) == MEMOPT_OK);
        b.n.grad_input = b.slot[NORM_G].data; /* one at a time, and in place of g the last */
        for (k = 0; k < 3; ++k) {
            memopt_norm n = b.n;
            if (k != 0) n.grad_scale = NULL;
            if (k != 1) n.grad_shift = NULL;
            if (k != 2) n.grad_input = NULL;
            CHECK(norm_backward(&n) == MEMOPT_OK);
        }
        CHECK_AT(norm_hash(1, &a.slot[NORM_DX]) == norm_hash(1, &b.slot[NORM_G]), i);
        CHECK_AT(norm_hash(1, &a.slot[NORM_DSCALE]) == norm_hash(1, &b.slot[NORM_DSCALE]), i);
        CHECK_AT(norm_hash(1, &a.slot[NORM_DSHIFT]) == norm_hash(1, &b.slot[NORM_DSHIFT]), i);
        if (!s.from_output) { /* with an input, `output` is not looked at: it may be where the gradient goes */
            b.n.grad_output = a.slot[NORM_G].data; b.n.grad_scale = b.n.grad_shift = NULL;
            b.n.output = b.n.grad_input = b.slot[NORM_Y].data;
            CHECK(norm_backward(&b.n) == MEMOPT_OK);
            CHECK_AT(norm_hash(1, &a.slot[NORM_DX]) == norm_hash(1, &b.slot[NORM_Y]), i);
        }
        free(x.block);
        norm_close(&a); norm_close(&b);
    }
}
/* A branch onto the residual stream and the norm of that: the bits of two passes; the sum in memory of its own, over the input,
   over the branch. */
static void norm_residual(void) {
    int i, level, workers, place; test_worker_set set;
    for (i = 0; i < 48; ++i)
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
            for (workers = 0; workers <= 3; workers += 3) {
                const memopt_threads t = test_workers(&set, workers, level); const memopt_ops ops = norm_ops(&t);
                norm_spec s = norm_spec_of(i); norm_model a, b; memopt_dropout d; norm_slot *sum;
                s.rows = i % 8 == 7 ? 67 : s.rows;
                place = (i + workers) % 3;
                norm_open(&a, &s); norm_open(&b, &s);
                sum = &b.slot[place == 0 ? NORM_DX : place == 1 ? NORM_X : NORM_G];
                memset(&d, 0, sizeof d);
                d.n = s.rows * s.width; d.type = s.type; d.input = a.slot[NORM_G].data; d.residual = d.output = a.slot[NORM_X].data;
                CHECK(memopt_dropout_forward(NULL, &d) == MEMOPT_OK && memopt_norm_forward(NULL, &a.n) == MEMOPT_OK);
                CHECK(memopt_norm_residual_forward(&ops, &b.n, b.slot[NORM_G].data, sum->data) == MEMOPT_OK);
                CHECK_AT(norm_hash(1, &a.slot[NORM_X]) == norm_hash(1, sum), i * 100 + level);
                CHECK_AT(norm_hash(1, &a.slot[NORM_Y]) == norm_hash(1, &b.slot[NORM_Y]), i * 100 + level);
                CHECK_AT(norm_hash(1, &a.slot[NORM_STATISTICS]) == norm_hash(1, &b.slot[NORM_STATISTICS]), i * 100 + level);
                norm_untouched(&b); norm_close(&a); norm_close(&b);
            }
}
static void norm_zero_scale(void) { /* from the output, h counts as 0 where a scale is 0 (of either sign) */
    int level; size_t i, row;
    for (level = 1; level <= memopt_simd_best(); ++level) {
        norm_spec s; norm_model m; test_worker_set worker_set; const memopt_threads t = test_workers(&worker_set, 0, level); const memopt_ops ops = norm_ops(&t);
        memset(&s, 0, sizeof s);
        s.rows = 2; s.width = 37; s.scaled = s.shifted = 1; s.from_output = 1;
        norm_open(&m, &s);
        for (i = 0; i < s.width; i += 3) norm_put(&m.slot[NORM_SCALE], i, i % 2 ? -0.0f : 0.0f);
        CHECK(memopt_norm_forward(&ops, &m.n) == MEMOPT_OK);
        norm_check_forward(&m, &m.slot[NORM_Y], 1);
        norm_turn(&m);
        CHECK(memopt_norm_backward(&ops, &m.n) == MEMOPT_OK);
        for (i = 0; i < s.width; i += 3) CHECK_AT(memopt_i_float_bits(norm_get(&m.slot[NORM_DSCALE], i)) << 1 == 0, i);
        m.n.grad_input = NULL; m.n.accumulate_input = 1; /* onto nothing */
        CHECK(memopt_norm_backward(&ops, &m.n) == MEMOPT_OK);
        for (i = 0; i < s.width; i += 3) CHECK_AT(memopt_i_float_bits(norm_get(&m.slot[NORM_DSCALE], i)) << 1 == 0, i);
        for (row = 0; row < 2; ++row) { /* s is 0 there, h is 0: what is left is -mean(s) / deviation */
            const double first = (double)norm_get(&m.slot[NORM_DX], row * s.width); double mean = 0; norm_truth truth;
            norm_truth_open(&truth, &m, row);
            for (i = 0; i < s.width; ++i) mean += truth.scale[i] * (double)norm_get(&m.slot[NORM_G], row * s.width + i) / (double)s.width;
            CHECK_AT(fabs(first + mean * truth.inverse) <= 1e-5 * fabs(first), row);
            for (i = 0; i < s.width; i += 3) CHECK_AT(fabs((double)norm_get(&m.slot[NORM_DX], row * s.width + i) - first) <= 0, i);
            norm_truth_close(&truth);
        }
        norm_close(&m);
    }
}
static int norm_is_nan(float x) { return (memopt_i_float_bits(x) & 0x7fffffffu) > 0x7f800000u; }
/* Rows that are constant, huge, or not finite, between others that do not notice. */
static void norm_hard_rows(void) {
    enum { ROWS = 8, WIDTH = 35 };
    int level, rms; size_t i, row;
    for (rms = 0; rms < 2; ++rms) for (level = 1; level <= memopt_simd_best(); ++level) {
        norm_spec s; norm_model m, good; test_worker_set worker_set; const memopt_threads t = test_workers(&worker_set, 0, level); const memopt_ops ops = norm_ops(&t);
        memset(&s, 0, sizeof s);
        s.rows = ROWS; s.width = WIDTH; s.scaled = 1; s.shifted = !rms; s.rms = rms;
        norm_open(&m, &s); norm_open(&good, &s);
        for (i = 0; i < WIDTH; ++i) {
            norm_put(&m.slot[NORM_X], 1 * WIDTH + i, 3.0f); /* constant: h is 0 to the last bit */
            norm_put(&m.slot[NORM_X], 2 * WIDTH + i, i % 2 ? 1e30f : -1e30f); /* squares overflow */
            norm_put(&m.slot[NORM_X], 4 * WIDTH + i, i == 20 ? memopt_i_bits_float(0x7fc00000u) : 1.0f);
            norm_put(&m.slot[NORM_X], 5 * WIDTH + i, i == 34 ? memopt_i_bits_float(0xff800000u) : (float)i);
            norm_put(&m.slot[NORM_X], 6 * WIDTH + i, (float)i * 1e17f); /* squares that do not */
            norm_put(&m.slot[NORM_X], 7 * WIDTH + i, 1e-42f * (float)i); /* denormals: eps is all there is */
        }
        CHECK(memopt_norm_forward(&ops, &m.n) == MEMOPT_OK && memopt_norm_forward(&ops, &good.n) == MEMOPT_OK);
        norm_turn(&m); norm_turn(&good);
        m.n.grad_scale = m.n.grad_shift = NULL;
        CHECK(memopt_norm_backward(&ops, &m.n) == MEMOPT_OK && memopt_norm_backward(&ops, &good.n) == MEMOPT_OK);
        for (row = 0; row < ROWS; ++row) {
            norm_truth truth;
            norm_truth_open(&truth, &m, row);
            for (i = 0; i < WIDTH; ++i) {
                const float y = norm_get(&m.slot[NORM_Y], row * WIDTH + i), dx = norm_get(&m.slot[NORM_DX], row * WIDTH + i);
                if (row == 0 || row == 3) {
                    CHECK_AT(memopt_i_float_bits(y) == memopt_i_float_bits(norm_get(&good.slot[NORM_Y], row * WIDTH + i)), i);
                    CHECK_AT(memopt_i_float_bits(dx) == memopt_i_float_bits(norm_get(&good.slot[NORM_DX], row * WIDTH + i)), i);
                }
                if (row == 4 || row == 5) CHECK_AT(norm_is_nan(dx) && (norm_is_nan(y) || (rms && row == 5 && i != 34)), row * 100 + i);
                if ((row == 1 && !rms) || row == 2) CHECK_AT(fabs((double)y - truth.shift[i]) <= 0, row * 100 + i);
                if (row == 2) CHECK_AT(fabs((double)dx) <= 0, i);
                if (row == 6) CHECK_AT(fabs((double)y - truth.y[i]) <= 1e-5, i);
                if (row == 7) CHECK_AT(fabs((double)y - truth.y[i]) <= 1e-6 * (fabs(truth.y[i]) + 1e-30), i);
            }
            norm_truth_close(&truth);
        }
        norm_close(&m); norm_close(&good);
    }
}
static void norm_odd_weights(void) { /* a NaN of floats has bits that bf16 has not: rounded like a number, it would be -0 */
    enum { ROWS = 3, WIDTH = 40 };
    int level; size_t i, odd; test_worker_set set;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (odd = 0; odd < WIDTH; ++odd) {
            const memopt_threads t = test_workers(&set, 0, level); const memopt_ops ops = norm_ops(&t); norm_spec s; norm_model m;
            memset(&s, 0, sizeof s);
            s.rows = ROWS; s.width = WIDTH; s.scaled = s.shifted = 1; s.type = MEMOPT_TYPE_BF16;
            norm_open(&m, &s);
            norm_put(&m.slot[odd % 2 ? NORM_SHIFT : NORM_SCALE], odd, memopt_i_bits_float(0x7fffffffu));
            CHECK(memopt_norm_forward(&ops, &m.n) == MEMOPT_OK);
            for (i = 0; i < ROWS * WIDTH; ++i) CHECK_AT(norm_is_nan(norm_get(&m.slot[NORM_Y], i)) == (i % WIDTH == odd), odd);
            norm_turn(&m);
            CHECK(memopt_norm_backward(&ops, &m.n) == MEMOPT_OK);
            for (i = 0; i < ROWS * WIDTH; ++i) CHECK_AT(norm_is_nan(norm_get(&m.slot[NORM_DX], i)) == !(odd % 2), odd);
            norm_close(&m);
        }
}
static void norm_huge_rows(void) { /* what stands behind the end of a row would overflow, times a gradient of 0 */
    int level, part; size_t i; test_worker_set set;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (part = 1; part < 4; ++part) {
            const memopt_threads t = test_workers(&set, 0, level); const memopt_ops ops = norm_ops(&t); norm_spec s; norm_model m;
            memset(&s, 0, sizeof s);
            s.rows = 1; s.width = 1 + 7 * (size_t)part;
            norm_open(&m, &s);
            for (i = 0; i < s.width; ++i) norm_put(&m.slot[NORM_X], i, 5.31691198e36f); /* 2^122, times 316 infinite */
            CHECK(memopt_norm_forward(&ops, &m.n) == MEMOPT_OK);
            norm_turn(&m);
            CHECK(memopt_norm_backward(&ops, &m.n) == MEMOPT_OK);
            for (i = 0; i < s.width; ++i) CHECK_AT(fabs((double)norm_get(&m.slot[NORM_DX], i)) < 1e4, level * 10 + part);
            norm_close(&m);
        }
}
static void norm_offset_rows(void) { /* a large mean does not cancel: 10000 + noise of 1 */
    norm_spec s; norm_model m; size_t i;
    memset(&s, 0, sizeof s);
    s.rows = 2; s.width = 301;
    norm_open(&m, &s);
    for (i = 0; i < 602; ++i) norm_put(&m.slot[NORM_X], i, norm_get(&m.slot[NORM_X], i) + 10000.0f);
    CHECK(memopt_norm_forward(NULL, &m.n) == MEMOPT_OK);
    norm_check_forward(&m, &m.slot[NORM_Y], 1);
    norm_close(&m);
}
#if defined(MEMOPT_I_POOL)
static void norm_pool(void) { /* threads that are real */
    norm_spec s = norm_spec_of(5); memopt_thread_pool *pool = NULL; memopt_threads t; test_worker_set worker_set; memopt_threads alone = test_workers(&worker_set, 0, 0);
    s.rows = 900; s.width = 529; s.gradient_type = MEMOPT_TYPE_F32;
    CHECK(memopt_thread_pool_create(NULL, 3, &pool) == MEMOPT_OK);
    t = memopt_thread_pool_threads(pool);
    CHECK(norm_bits(&s, &t, 1) == norm_bits(&s, &alone, 1));
    memopt_thread_pool_destroy(pool);
}
#endif

/* ---- calls that are wrong ---- */
static void norm_refused(const norm_model *m, const memopt_ops *ops, const memopt_norm *n, int backward, memopt_status want, int line) {
    uint64_t before = 1, after = 1; int k;
    for (k = 0; k < NORM_SLOTS; ++k) before = norm_hash(before, &m->slot[k]);
    CHECK_AT((backward ? memopt_norm_backward(ops, n) : memopt_norm_forward(ops, n)) == want, line);
    for (k = 0; k < NORM_SLOTS; ++k) after = norm_hash(after, &m->slot[k]);
    CHECK_AT(before == after, line);
}
#define NORM_TRY(statement, want) do { memopt_norm n = m.n; statement; norm_refused(&m, NULL, &n, backward, want, __LINE__); } while (0)
static void norm_bad_calls(void) {
    int backward; norm_spec s;
    memset(&s, 0, sizeof s);
    s.rows = 3; s.width = 20; s.scaled = s.shifted = 1;
    for (backward = 0; backward < 2; ++backward) {
        norm_model m; memopt_threads t; memopt_ops ops; unsigned char *x, *y, *dx;
        norm_open(&m, &s);
        CHECK(memopt_norm_forward(NULL, &m.n) == MEMOPT_OK);
        if (backward) norm_turn(&m);
        x = m.slot[NORM_X].data; y = m.slot[NORM_Y].data; dx = m.slot[NORM_DX].data;
        norm_refused(&m, NULL, NULL, backward, MEMOPT_ERR_ARGUMENT, __LINE__);
        NORM_TRY(n.input = NULL, MEMOPT_ERR_ARGUMENT); /* backward: there is no output either */
        NORM_TRY(n.input = x + 2, MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.scale = m.slot[NORM_SCALE].data + 1, MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.shift = m.slot[NORM_SHIFT].data + 2, MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.statistics = (float *)(void *)(m.slot[NORM_STATISTICS].data + 1), MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.eps = -1e-5f, MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.eps = memopt_i_bits_float(0x7fc00000u), MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.eps = memopt_i_bits_float(0x7f800000u), MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.rms = 2, MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.rms = 1, MEMOPT_ERR_ARGUMENT); /* there is a shift */
        NORM_TRY(n.accumulate = -1, MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.accumulate_input = 3, MEMOPT_ERR_ARGUMENT);
#ifndef __cplusplus /* where an enum never has such a value */
        NORM_TRY(n.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.weight_type = (memopt_type)-1, MEMOPT_ERR_ARGUMENT);
        NORM_TRY(n.gradient_type = (memopt_type)77, MEMOPT_ERR_ARGUMENT);
#endif
        NORM_TRY(n.rows = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
        NORM_TRY(n.width = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
        NORM_TRY(n.rows = SIZE_MAX / 40 + 1; n.width = 10, MEMOPT_ERR_OVERFLOW);
        NORM_TRY(n.rows = SIZE_MAX / 4; n.width = 1, MEMOPT_ERR_OVERFLOW);
        NORM_TRY(n.rows = SIZE_MAX / 2; n.width = 0, MEMOPT_ERR_OVERFLOW);
        NORM_TRY(n.rows = 0; n.width = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
        if (!backward) {
            NORM_TRY(n.output = NULL, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.output = y + 1, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.output = x + 4, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.output = x; n.input = x + 236, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.output = m.slot[NORM_SCALE].data, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.output = m.slot[NORM_SHIFT].data, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.output = m.slot[NORM_STATISTICS].data + 20, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.statistics = (float *)(void *)(x + 236), MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.statistics = (float *)(void *)y, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.statistics = (float *)(void *)m.slot[NORM_SCALE].data, MEMOPT_ERR_ARGUMENT);
        } else {
            NORM_TRY(n.statistics = NULL, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.input = NULL; n.output = y + 2, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_output = NULL, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_output = m.slot[NORM_G].data + 2, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_input = dx + 2, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_input = x, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.input = NULL; n.output = y; n.grad_input = y, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_input = m.slot[NORM_G].data + 4, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_input = m.slot[NORM_STATISTICS].data, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_input = m.slot[NORM_SCALE].data, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_scale = m.slot[NORM_DSCALE].data + 1, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_scale = m.slot[NORM_SCALE].data, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_scale = m.slot[NORM_DSHIFT].data + 76, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_scale = dx + 236, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_shift = m.slot[NORM_DSHIFT].data + 1, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_shift = m.slot[NORM_SHIFT].data, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.grad_shift = m.slot[NORM_G].data, MEMOPT_ERR_ARGUMENT);
            NORM_TRY(n.rms = 1; n.shift = NULL, MEMOPT_ERR_ARGUMENT); /* its gradient neither */
        }
        memset(&ops, 0, sizeof ops); memset(&t, 0, sizeof t);
        ops.threads = &t;
        t.worker_count = -1;
        norm_refused(&m, &ops, &m.n, backward, MEMOPT_ERR_ARGUMENT, __LINE__);
        t.worker_count = 0; ops.gemm.scratch_bytes = 5;
        norm_refused(&m, &ops, &m.n, backward, MEMOPT_ERR_ARGUMENT, __LINE__);
        ops.gemm.scratch_bytes = 0; ops.scratch = m.slot[NORM_X].block + 1;
        norm_refused(&m, &ops, &m.n, backward, MEMOPT_ERR_ARGUMENT, __LINE__);
        norm_close(&m);
    }
}
/* ---- rows that are parts of others: the bits of dense ones, and what lies between stays ---- */
static unsigned char *norm_spread(const norm_slot *from, size_t rows, size_t width, size_t stride) {
    const size_t size = memopt_type_bytes(from->type); unsigned char *to = (unsigned char *)malloc(rows * stride * size + 1); size_t r;
    memset(to, 0xA5, rows * stride * size);
    for (r = 0; r < rows; ++r) memcpy(to + r * stride * size, from->data + r * width * size, width * size);
    return to;
}
static int norm_is_spread(const unsigned char *spread, const norm_slot *dense, size_t rows, size_t width, size_t stride) {
    const size_t size = memopt_type_bytes(dense->type); size_t r, i; int same = 1;
    for (r = 0; r < rows; ++r) {
        same = same && !memcmp(spread + r * stride * size, dense->data + r * width * size, width * size);
        for (i = width * size; i < stride * size; ++i) same = same && spread[r * stride * size + i] == 0xA5;
    }
    return same;
}
static void norm_strides(void) {
    static const size_t widths[] = { 1, 7, 32, 64, 80, 100, 128 }; size_t i; int how, type, level;
    for (i = 0; i < sizeof widths / sizeof *widths; ++i) for (how = 0; how < 8; ++how) for (type = 0; type < 3; ++type) {
        const size_t rows = 70, w = widths[i], stride = w + 5 * (i + 1); norm_spec s; norm_model m; unsigned char *x, *y, *g, *d; memopt_norm n;
        memset(&s, 0, sizeof s);
        s.rows = rows; s.width = w; s.type = (memopt_type)type; s.weight_type = how & 1 ? s.type : MEMOPT_TYPE_F32; s.gradient_type = MEMOPT_TYPE_F32;
        s.rms = how & 1; s.scaled = 1; s.shifted = !s.rms; s.from_output = how >> 1 & 1; s.adds_input = how >> 2;
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            const memopt_threads t = test_level(level); const memopt_ops ops = norm_ops(&t); float scale[128], shift[128];
            if (test_is_passed_over()) continue;
            norm_open(&m, &s);
            x = norm_spread(&m.slot[NORM_X], rows, w, stride); y = norm_spread(&m.slot[NORM_Y], rows, w, stride);
            g = norm_spread(&m.slot[NORM_G], rows, w, stride); d = norm_spread(&m.slot[NORM_DX], rows, w, stride);
            n = m.n; n.stride = stride; n.input = x; n.output = y;
            CHECK(memopt_norm_forward(&ops, &m.n) == MEMOPT_OK && memopt_norm_forward(&ops, &n) == MEMOPT_OK);
            CHECK_AT(norm_is_spread(y, &m.slot[NORM_Y], rows, w, stride) && norm_is_spread(x, &m.slot[NORM_X], rows, w, stride), i * 100 + (size_t)how);
            norm_turn(&m);
            n = m.n; n.stride = stride; n.grad_output = g; n.grad_input = d; n.grad_scale = scale; n.grad_shift = s.rms ? NULL : shift;
            if (n.input) n.input = x; else n.output = y;
            CHECK(memopt_norm_backward(&ops, &m.n) == MEMOPT_OK && memopt_norm_backward(&ops, &n) == MEMOPT_OK);
            CHECK_AT(norm_is_spread(d, &m.slot[NORM_DX], rows, w, stride) && norm_is_spread(g, &m.slot[NORM_G], rows, w, stride), i * 100 + (size_t)how);
            CHECK_AT(!memcmp(scale, m.slot[NORM_DSCALE].data, w * 4) && (s.rms || !memcmp(shift, m.slot[NORM_DSHIFT].data, w * 4)), i * 100 + (size_t)how);
            free(x); free(y); free(g); free(d);
            norm_close(&m);
        }
    }
}

/* Why: each change to what is right is told by its own line. */
#define NORM_SAYS(change, call, want, text) REFUSES(o.error, (n = right, change), memopt_norm_##call(&o, p), \
    MEMOPT_ERR_##want, "norm: " text)
static void norm_errors(void) {
    static float room[256];
    memopt_norm right, n;
    const memopt_norm *p = &n;
    memopt_ops o;
    size_t bytes;

    memset(&o, 0, sizeof o);
    memset(&right, 0, sizeof right);
    right.rows = right.width = 4;
    right.input = room;
    right.output = room + 16;
    right.statistics = room + 32;
    right.scale = room + 48;
    right.shift = room + 56;
    right.grad_output = room + 64;
    right.grad_input = room + 80;
    right.grad_scale = room + 96;
    right.grad_shift = room + 104;
    NORM_SAYS((void)0, backward, BUFFER, "scratch_bytes 0, at least 64");
    o = norm_ops(NULL);
    ACCEPTS(o.error, n = right, memopt_norm_forward(&o, p));
    ACCEPTS(o.error, n = right, memopt_norm_backward(&o, p));
    ACCEPTS(o.error, n = right, scratch_of_norm(&o, p, &bytes));
    NORM_SAYS(n.grad_shift = o.scratch, backward, ARGUMENT, "scratch overlaps grad_shift");
#define RESIDUAL_SAYS(change, branch, sum, text) REFUSES(o.error, (n = right, change), \
    memopt_norm_residual_forward(&o, p, branch, sum), MEMOPT_ERR_ARGUMENT, "norm: " text)
    ACCEPTS(o.error, n = right, memopt_norm_residual_forward(&o, p, room + 64, room + 64));
    ACCEPTS(o.error, n = right, memopt_norm_residual_forward(&o, p, room + 64, room));
    RESIDUAL_SAYS((void)0, NULL, room + 80, "branch is NULL");
    RESIDUAL_SAYS((void)0, (char *)room + 257, room + 80, "branch is misaligned");
    RESIDUAL_SAYS((void)0, room + 64, NULL, "residual is NULL");
    RESIDUAL_SAYS((void)0, room + 64, room + 15, "residual overlaps input");
    RESIDUAL_SAYS((void)0, room + 64, room + 65, "residual overlaps branch");
    RESIDUAL_SAYS((void)0, room + 64, room + 16, "output overlaps residual");
    RESIDUAL_SAYS((void)0, room + 20, room + 80, "output overlaps branch");
    RESIDUAL_SAYS(n.input = NULL, room + 64, room + 80, "input is NULL");
    NORM_SAYS(n.input = NULL, forward, ARGUMENT, "input is NULL");
    NORM_SAYS(n.output = NULL, forward, ARGUMENT, "output is NULL");
    NORM_SAYS(n.input = n.output = NULL, backward, ARGUMENT, "output is NULL");
    NORM_SAYS(n.statistics = NULL, backward, ARGUMENT, "statistics is NULL");
    NORM_SAYS(n.statistics = (float *)(void *)((char *)room + 2), forward, ARGUMENT, "statistics is misaligned");
    NORM_SAYS(n.scale = (char *)room + 1, forward, ARGUMENT, "scale is misaligned");
    NORM_SAYS(n.shift = (char *)room + 1, backward, ARGUMENT, "shift is misaligned");
    NORM_SAYS(n.grad_output = NULL, backward, ARGUMENT, "grad_output is NULL");
    NORM_SAYS(n.grad_input = (char *)room + 1, backward, ARGUMENT, "grad_input is misaligned");
    NORM_SAYS(n.grad_scale = (char *)room + 1, backward, ARGUMENT, "grad_scale is misaligned");
    NORM_SAYS(n.grad_shift = (char *)room + 1, backward, ARGUMENT, "grad_shift is misaligned");
    NORM_SAYS(n.output = room + 1, forward, ARGUMENT, "output overlaps input");
    NORM_SAYS(n.statistics = room + 31, forward, ARGUMENT, "statistics overlaps output");
    NORM_SAYS(n.output = (void *)(uintptr_t)n.scale, forward, ARGUMENT, "output overlaps scale");
    NORM_SAYS(n.grad_input = room + 65, backward, ARGUMENT, "grad_input overlaps grad_output");
    NORM_SAYS(n.grad_input = room + 3, backward, ARGUMENT, "grad_input overlaps input");
    NORM_SAYS(n.grad_shift = n.grad_scale, backward, ARGUMENT, "grad_shift overlaps grad_scale");
    NORM_SAYS(n.rms = 2, forward, ARGUMENT, "rms 2, must be 0 or 1");
    NORM_SAYS(n.stride = 3, forward, ARGUMENT, "stride 3, at least width 4");
    NORM_SAYS(n.stride = SIZE_MAX / 4, backward, OVERFLOW, "input is larger than memory can be");
    REFUSES(o.error, (n = right, n.stride = 5), memopt_norm_residual_forward(&o, &n, room + 128, room + 160), MEMOPT_ERR_ARGUMENT,
            "norm: stride is not width, where rows are added to a residual");
    NORM_SAYS(n.rms = 1, forward, ARGUMENT, "shift is given, and RMS norm has none");
    NORM_SAYS((n.rms = 1, n.shift = NULL), backward, ARGUMENT, "grad_shift is given, and RMS norm has none");
    NORM_SAYS(n.accumulate = -1, forward, ARGUMENT, "accumulate -1, must be 0 or 1");
    NORM_SAYS(n.accumulate_input = 2, backward, ARGUMENT, "accumulate_input 2, must be 0 or 1");
    NORM_SAYS(n.eps = -1, forward, ARGUMENT, "eps -1, finite and at least 0");
    NORM_SAYS(n.eps = memopt_i_bits_float(0x7f800000u), forward, ARGUMENT, "eps infinity, finite and at least 0");
    NORM_SAYS(n.type = (memopt_type)3, forward, ARGUMENT, "type 3, no such memopt_type");
    NORM_SAYS(n.weight_type = (memopt_type)3, forward, ARGUMENT, "weight_type 3, no such memopt_type");
    NORM_SAYS(n.gradient_type = (memopt_type)3, forward, ARGUMENT, "gradient_type 3, no such memopt_type");
    NORM_SAYS(n.rows = SIZE_MAX / 8, forward, OVERFLOW, "input is larger than memory can be");
    NORM_SAYS((n.rows = SIZE_MAX / 8, n.width = 0), forward, OVERFLOW, "statistics is larger than memory can be");
    NORM_SAYS((n.rows = 0, n.width = SIZE_MAX / 4), backward, OVERFLOW, "scratch is larger than memory can be");
    NORM_SAYS(p = NULL, forward, ARGUMENT, "its struct is NULL");
}
void test_norm(void);
void test_norm(void) {
#if defined(TEST_THREADS) /* under a sanitizer that makes everything slow */
    RUN(norm_pool);
    return;
#endif
    RUN(norm_values);
    RUN(norm_order);
    RUN(norm_scratch);
    RUN(norm_same_bits);
    RUN(norm_empty);
    RUN(norm_in_place);
    RUN(norm_residual);
    RUN(norm_zero_scale);
    RUN(norm_hard_rows);
    RUN(norm_offset_rows);
    RUN(norm_odd_weights);
    RUN(norm_huge_rows);
#if defined(MEMOPT_I_POOL)
    RUN(norm_pool);
#endif
    RUN(norm_bad_calls);
    RUN(norm_strides);
    RUN(norm_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_norm(); return test_totals(); }
#endif
