/* test_cuda_norm.cu - layer norm and RMS norm on the device. Expected values are the definition in double with stated
   bounds; everything else is that the bits depend on the shape alone, not on where arrays lie or threads come first. */
#include "test_cuda.h"

enum { CUDA_NORM_X, CUDA_NORM_SCALE, CUDA_NORM_SHIFT, CUDA_NORM_Y, CUDA_NORM_STATISTICS, CUDA_NORM_G, CUDA_NORM_DX,
       CUDA_NORM_DSCALE, CUDA_NORM_DSHIFT, CUDA_NORM_SLOTS };
typedef struct cuda_norm_slot { /* an array here, and its place there */
    unsigned char *here, *there;
    size_t         count, bytes;
    memopt_type    type;
} cuda_norm_slot;
typedef struct cuda_norm_spec {
    size_t      rows, width;
    memopt_type type, weight_type, gradient_type;
    int rms, scaled, shifted, from_output, in_place, adds_input, adds, misaligned;
} cuda_norm_spec;
typedef struct cuda_norm_model {
    cuda_norm_spec spec;
    memopt_norm    n;
    cuda_norm_slot slot[CUDA_NORM_SLOTS];
    cuda_norm_slot before[CUDA_NORM_SLOTS]; /* what they held before backward */
    memopt_cuda_ops ops;
} cuda_norm_model;

static float cuda_norm_get(const cuda_norm_slot *s, size_t i) {
    if (s->type == MEMOPT_TYPE_F32) return ((const float *)(const void *)s->here)[i];
    if (s->type == MEMOPT_TYPE_BF16) return memopt_from_bf16(((const uint16_t *)(const void *)s->here)[i]);
    return memopt_from_f16(((const uint16_t *)(const void *)s->here)[i]);
}
static void cuda_norm_put(const cuda_norm_slot *s, size_t i, float x) {
    if (s->type == MEMOPT_TYPE_F32) ((float *)(void *)s->here)[i] = x;
    else ((uint16_t *)(void *)s->here)[i] = s->type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
}
static float cuda_norm_random(uint64_t *seed) { return (float)(test_random(seed) >> 40) * (1.0f / 8388608.0f) - 1.0f; }
static void cuda_norm_make(cuda_norm_slot *s, size_t count, memopt_type type, int misaligned) {
    s->count = count; s->type = type; s->bytes = count * memopt_type_bytes(type);
    s->here = (unsigned char *)malloc(s->bytes + 16);
    memset(s->here, 0xFF, s->bytes);
    s->there = (unsigned char *)test_device_at(s->bytes, misaligned ? memopt_type_bytes(type) : 0);
}
static void cuda_norm_fill(const cuda_norm_slot *s, uint64_t seed, float size, float offset) {
    for (size_t i = 0; i < s->count; ++i) cuda_norm_put(s, i, size * cuda_norm_random(&seed) + offset);
}
static void cuda_norm_open(cuda_norm_model *m, const cuda_norm_spec *s) {
    const size_t all = s->rows * s->width, w = s->width; cuda_norm_slot *k = m->slot;
    memset(m, 0, sizeof *m);
    m->spec = *s;
    cuda_norm_make(k + CUDA_NORM_X, all, s->type, s->misaligned & 1);
    cuda_norm_make(k + CUDA_NORM_Y, all, s->type, s->misaligned & 2);
    cuda_norm_make(k + CUDA_NORM_G, all, s->type, s->misaligned & 4);
    cuda_norm_make(k + CUDA_NORM_DX, all, s->type, s->misaligned & 8);
    cuda_norm_make(k + CUDA_NORM_STATISTICS, 2 * s->rows, MEMOPT_TYPE_F32, s->misaligned & 1);
    cuda_norm_make(k + CUDA_NORM_SCALE, w, s->weight_type, s->misaligned & 16);
    cuda_norm_make(k + CUDA_NORM_SHIFT, w, s->weight_type, s->misaligned & 32);
    cuda_norm_make(k + CUDA_NORM_DSCALE, w, s->gradient_type, s->misaligned & 1);
    cuda_norm_make(k + CUDA_NORM_DSHIFT, w, s->gradient_type, s->misaligned & 2);
    cuda_norm_fill(k + CUDA_NORM_G, 2, 1, 0.1f);
    cuda_norm_fill(k + CUDA_NORM_DX, 3, 1, 0);
    cuda_norm_fill(k + CUDA_NORM_SCALE, 4, 0.5f, 1);
    cuda_norm_fill(k + CUDA_NORM_SHIFT, 5, 0.5f, 0.25f);
    cuda_norm_fill(k + CUDA_NORM_DSCALE, 6, 1, 0);
    cuda_norm_fill(k + CUDA_NORM_DSHIFT, 7, 1, 0);
    for (size_t row = 0; row < s->rows; ++row) { /* of several sizes and means */
        uint64_t seed = row + 10; const float size = row % 3 == 0 ? 1.0f : row % 3 == 1 ? 32.0f : 0.015625f;
        for (size_t i = 0; i < w; ++i)
            cuda_norm_put(k + CUDA_NORM_X, row * w + i, size * (cuda_norm_random(&seed) + (float)(row % 4) * 0.5f));
    }
    for (int i = 0; i < CUDA_NORM_SLOTS; ++i)
        if (i != CUDA_NORM_Y && i != CUDA_NORM_STATISTICS) test_put(k[i].there, k[i].here, k[i].bytes);
    m->n.rows = s->rows; m->n.width = w; m->n.rms = s->rms;
    m->n.type = s->type; m->n.weight_type = s->weight_type; m->n.gradient_type = s->gradient_type;
    m->n.input = k[CUDA_NORM_X].there; m->n.output = k[CUDA_NORM_Y].there;
    m->n.statistics = (float *)(void *)k[CUDA_NORM_STATISTICS].there;
    m->n.scale = s->scaled ? k[CUDA_NORM_SCALE].there : NULL;
    m->n.shift = s->shifted ? k[CUDA_NORM_SHIFT].there : NULL;
}
static void cuda_norm_fetch(cuda_norm_model *m) {
    for (int i = 0; i < CUDA_NORM_SLOTS; ++i) test_get(m->slot[i].here, m->slot[i].there, m->slot[i].bytes);
}
static void cuda_norm_close(cuda_norm_model *m) {
    for (int i = 0; i < CUDA_NORM_SLOTS; ++i) { free(m->slot[i].here); free(m->before[i].here); }
    test_device_free(0);
}
/* What backward is given, and exactly the scratch it asks for. */
static void cuda_norm_turn(cuda_norm_model *m) {
    const cuda_norm_spec *s = &m->spec;
    if (s->from_output) m->n.input = NULL;
    else m->n.output = NULL;
    m->n.grad_output = m->slot[CUDA_NORM_G].there;
    m->n.grad_input = m->slot[s->in_place ? CUDA_NORM_G : CUDA_NORM_DX].there;
    m->n.accumulate_input = s->adds_input; m->n.accumulate = s->adds;
    m->n.grad_scale = m->slot[CUDA_NORM_DSCALE].there;
    m->n.grad_shift = s->rms ? NULL : m->slot[CUDA_NORM_DSHIFT].there;
    CHECK(memopt_cuda_norm_scratch(&m->ops, &m->n, &m->ops.scratch_bytes) == 0);
    m->ops.d_scratch = test_device(m->ops.scratch_bytes);
}
static void cuda_norm_remember(cuda_norm_model *m) {
    for (int i = 0; i < CUDA_NORM_SLOTS; ++i) {
        m->before[i] = m->slot[i];
        m->before[i].here = (unsigned char *)malloc(m->slot[i].bytes + 16);
        memcpy(m->before[i].here, m->slot[i].here, m->slot[i].bytes);
    }
}

/* ---- the definition ---- */
typedef struct cuda_norm_truth { double *x, *y, *scale, *shift, *h, *off, mean, inverse, average; } cuda_norm_truth;
static double cuda_norm_unit(memopt_type type, double x) { /* half a unit in the last place */
    if (type == MEMOPT_TYPE_F32) return ldexp(fabs(x), -24);
    return type == MEMOPT_TYPE_BF16 ? ldexp(fabs(x), -8) : ldexp(fabs(x), -11) + ldexp(1, -25);
}
/* Additions one after the other in a sum over a row: 32 of a thread (more in long rows), 5 in a warp, 16 of warps. */
static double cuda_norm_chain(size_t n) { return (double)memopt_i_min(n, memopt_i_max(32, n / 512 + 8)) + 24; }
static void cuda_norm_truth_open(cuda_norm_truth *t, const cuda_norm_model *m, size_t row) {
    const size_t n = m->spec.width; double sum = 0, squares = 0, *d = (double *)malloc(6 * n * sizeof(double) + 8);
    const double eps = m->n.eps > 0 ? (double)m->n.eps : (double)1e-5f, u = ldexp(1, -24), chain = cuda_norm_chain(n);
    t->x = d; t->y = d + n; t->scale = d + 2 * n; t->shift = d + 3 * n; t->h = d + 4 * n; t->off = d + 5 * n;
    t->average = 0;
    for (size_t i = 0; i < n; ++i) {
        t->x[i] = (double)cuda_norm_get(&m->slot[CUDA_NORM_X], row * n + i);
        t->scale[i] = m->spec.scaled ? (double)cuda_norm_get(&m->slot[CUDA_NORM_SCALE], i) : 1;
        t->shift[i] = m->spec.shifted ? (double)cuda_norm_get(&m->slot[CUDA_NORM_SHIFT], i) : 0;
        sum += t->x[i]; t->average += fabs(t->x[i]) / (double)n;
    }
    t->mean = m->spec.rms ? 0 : sum / (double)n;
    for (size_t i = 0; i < n; ++i) squares += (t->x[i] - t->mean) * (t->x[i] - t->mean);
    t->inverse = 1 / sqrt(squares / (double)n + eps);
    for (size_t i = 0; i < n; ++i) { /* off: how far float arithmetic may take h */
        const double mean = chain * u * t->average;
        t->h[i] = (t->x[i] - t->mean) * t->inverse;
        t->y[i] = t->h[i] * t->scale[i] + t->shift[i];
        t->off[i] = fabs(t->h[i]) * (chain * u + mean * mean * t->inverse * t->inverse) + mean * t->inverse
                  + 4 * u * fabs(t->h[i]);
    }
}
static void cuda_norm_check_forward(const cuda_norm_model *m, const cuda_norm_slot *y) {
    const size_t n = m->spec.width; cuda_norm_truth t; const double u = ldexp(1, -24), chain = cuda_norm_chain(n);
    const cuda_norm_slot *statistics = &m->slot[CUDA_NORM_STATISTICS];
    for (size_t row = 0; row < m->spec.rows; ++row) {
        cuda_norm_truth_open(&t, m, row);
        for (size_t i = 0; i < n; ++i) {
            const double bound = t.off[i] * fabs(t.scale[i]) + cuda_norm_unit(MEMOPT_TYPE_F32, t.y[i])
                               + cuda_norm_unit(m->spec.type, t.y[i]);
            CHECK_AT(fabs((double)cuda_norm_get(y, row * n + i) - t.y[i]) <= 1.01 * bound, row * 100000 + i);
        }
        if (m->n.statistics) {
            const double mean = (double)cuda_norm_get(statistics, 2 * row);
            const double inverse = (double)cuda_norm_get(statistics, 2 * row + 1);
            CHECK_AT(fabs(mean - t.mean) <= chain * u * t.average, row);
            CHECK_AT(fabs(inverse / t.inverse - 1) <= chain * u + pow(chain * u * t.average * t.inverse, 2), row);
        }
        free(t.x);
    }
}
static void cuda_norm_check_backward(const cuda_norm_model *m) {
    const cuda_norm_spec *s = &m->spec; const size_t n = s->width; cuda_norm_truth t;
    const cuda_norm_slot *g = &m->before[CUDA_NORM_G], *old = &m->before[s->in_place ? CUDA_NORM_G : CUDA_NORM_DX];
    const cuda_norm_slot *dx = &m->slot[s->in_place ? CUDA_NORM_G : CUDA_NORM_DX];
    const double u = ldexp(1, -24), chain = 2 * cuda_norm_chain(n), down = (double)s->rows + 70;
    double *sums = (double *)calloc(4 * n + 1, sizeof *sums), *size = sums + n, *shift = size + n, *share = shift + n;
    for (size_t row = 0; row < s->rows; ++row) {
        double ms = 0, msh = 0, a = 0, b = 0, c = 0;
        cuda_norm_truth_open(&t, m, row);
        for (size_t i = 0; i < n; ++i) {
            const double gi = (double)cuda_norm_get(g, row * n + i), sg = gi * t.scale[i];
            if (s->from_output)
                t.off[i] += (cuda_norm_unit(s->type, t.y[i]) + ldexp(fabs(t.y[i]) + fabs(t.shift[i]), -22))
                          / fabs(t.scale[i]);
            ms += sg / (double)n; msh += sg * t.h[i] / (double)n;
            a += fabs(sg) / (double)n; b += fabs(sg * t.h[i]) / (double)n; c += fabs(sg) * t.off[i] / (double)n;
            sums[i] += gi * t.h[i]; shift[i] += gi;
            size[i] += fabs(gi * t.h[i]) * down * u + fabs(gi) * t.off[i]; share[i] += fabs(gi) * down * u;
        }
        if (s->rms) ms = a = 0;
        for (size_t i = 0; i < n; ++i) {
            const double sg = (double)cuda_norm_get(g, row * n + i) * t.scale[i], h = t.h[i];
            const double added = s->adds_input ? (double)cuda_norm_get(old, row * n + i) : 0;
            const double want = t.inverse * (sg - ms - h * msh) + added;
            const double bound = t.inverse * (chain * u * (fabs(sg) + a + fabs(h) * b) + t.off[i] * (b + fabs(sg) * u)
                               + fabs(h) * c) + fabs(t.inverse * (sg - ms - h * msh)) * (chain * u + t.off[i] * u)
                               + (fabs(t.inverse * (fabs(sg) + a + fabs(h) * b)) * pow(chain * u * t.average * t.inverse, 2));
            const double off = fabs((double)cuda_norm_get(dx, row * n + i) - want);
            CHECK_AT(off <= 1.01 * bound + cuda_norm_unit(s->type, want) + ldexp(fabs(want) + fabs(added), -23),
                     row * 100000 + i);
        }
        free(t.x);
    }
    for (size_t i = 0; i < n; ++i) {
        const double a = sums[i] + (s->adds ? (double)cuda_norm_get(&m->before[CUDA_NORM_DSCALE], i) : 0);
        const double b = shift[i] + (s->adds ? (double)cuda_norm_get(&m->before[CUDA_NORM_DSHIFT], i) : 0);
        CHECK_AT(fabs((double)cuda_norm_get(&m->slot[CUDA_NORM_DSCALE], i) - a)
                 <= size[i] + cuda_norm_unit(s->gradient_type, a) * 1.01 + ldexp(fabs(a), -23), i);
        if (!s->rms)
            CHECK_AT(fabs((double)cuda_norm_get(&m->slot[CUDA_NORM_DSHIFT], i) - b)
                     <= share[i] + cuda_norm_unit(s->gradient_type, b) * 1.01 + ldexp(fabs(b), -23), i);
    }
    free(sums);
}
static uint64_t cuda_norm_hash(const cuda_norm_model *m) {
    uint64_t hash = 1;
    for (int k = 0; k < CUDA_NORM_SLOTS; ++k)
        for (size_t i = 0; i < m->slot[k].count; ++i)
            hash = (hash ^ memopt_i_float_bits(cuda_norm_get(&m->slot[k], i))) * UINT64_C(0x100000001b3);
    return hash;
}
/* Forward and backward; checked against the definition unless the bits are known. */
static uint64_t cuda_norm_case(const cuda_norm_spec *s, float eps, int known) {
    cuda_norm_model m; uint64_t hash;
    cuda_norm_open(&m, s);
    m.n.eps = eps;
    CHECK(memopt_cuda_norm_forward(NULL, &m.n, NULL) == 0);
    test_synchronize();
    cuda_norm_fetch(&m);
    if (!known) cuda_norm_check_forward(&m, &m.slot[CUDA_NORM_Y]);
    cuda_norm_remember(&m);
    cuda_norm_turn(&m);
    CHECK(memopt_cuda_norm_backward(&m.ops, &m.n, NULL) == 0);
    test_synchronize();
    cuda_norm_fetch(&m);
    if (!known) cuda_norm_check_backward(&m);
    hash = cuda_norm_hash(&m);
    cuda_norm_close(&m);
    return hash;
}
static const size_t cuda_norm_widths[] = { 1, 7, 8, 31, 32, 33, 64, 130, 255, 256, 257, 768, 1024, 1025, 2048, 2056,
                                           3001, 4099 };
enum { CUDA_NORM_WIDTHS = (int)(sizeof cuda_norm_widths / sizeof *cuda_norm_widths) };
static cuda_norm_spec cuda_norm_spec_of(int i) { /* mixes everything with everything else */
    cuda_norm_spec s;
    memset(&s, 0, sizeof s);
    s.width = cuda_norm_widths[i % CUDA_NORM_WIDTHS];
    s.rows = s.width > 1000 ? 1 + (size_t)(i % 3) * 5 : 1 + (size_t)(i / 3 % 5) * 11;
    s.type = (memopt_type)(i / CUDA_NORM_WIDTHS % 3); s.weight_type = (memopt_type)(i / 5 % 3);
    s.gradient_type = (memopt_type)(i / 7 % 3);
    s.rms = i / 2 % 3 == 0; s.scaled = i % 5 != 0; s.shifted = !s.rms && i % 7 != 0;
    s.from_output = i / 4 % 2; s.in_place = i / 6 % 3 == 1; s.adds_input = i % 4 == 1; s.adds = i / 8 % 2;
    s.misaligned = i % 3 == 2 ? i * 5 % 64 : 0;
    return s;
}
static void cuda_norm_values(void) {
    for (int i = 0; i < 3 * CUDA_NORM_WIDTHS + 18; ++i) {
        const cuda_norm_spec s = cuda_norm_spec_of(i); const int failures = test_failures;
#ifndef __CUDACC__
        simulator_schedule(i % 8);
#endif
        cuda_norm_case(&s, i % 11 == 3 ? 0.125f : 0, 0);
        if (test_failures != failures) { printf("case %d\n", i); return; }
    }
}
/* Rows of many registers, of many groups, and rows that no block holds. */
static void cuda_norm_large(void) {
    static const struct { size_t rows, width; int type; } of[] = { { 2, 8192, 1 }, { 3, 8192, 0 }, { 2, 8200, 2 },
        { 2, 16384, 0 }, { 9, 16400, 1 }, { 2, 17003, 0 }, { 9000, 3, 0 }, { 2200, 17, 1 } };
    for (int i = 0; i < (int)(sizeof of / sizeof *of); ++i) {
        cuda_norm_spec s = cuda_norm_spec_of(i * 5 + 2); const int failures = test_failures;
        s.rows = of[i].rows; s.width = of[i].width; s.type = (memopt_type)of[i].type; s.misaligned = 0;
        s.gradient_type = MEMOPT_TYPE_F32; s.in_place = i == 4 || i == 6; s.scaled = 1;
        cuda_norm_case(&s, 0, 0);
        if (test_failures != failures) { printf("case %d\n", i); return; }
    }
}
/* The same bits whatever thread comes first, and wherever arrays lie. */
static void cuda_norm_same_bits(void) {
    static const struct { size_t rows, width; int type; } of[] = { { 37, 24, 1 }, { 9, 768, 0 }, { 11, 1032, 2 },
        { 3, 2056, 0 }, { 10, 4104, 1 }, { 2, 16400, 2 } };
    for (int i = 0; i < (int)(sizeof of / sizeof *of); ++i) {
        cuda_norm_spec s = cuda_norm_spec_of(i * 7 + 3); uint64_t want;
        s.rows = of[i].rows; s.width = of[i].width; s.type = (memopt_type)of[i].type; s.misaligned = 0;
        want = cuda_norm_case(&s, 0, 0);
        TEST_SCHEDULES(8) {
            s.misaligned = test_schedule_i * 9 % 64;
            CHECK_AT(cuda_norm_case(&s, 0, 1) == want, i * 10 + test_schedule_i);
        }
    }
}
/* Of an array, a twin on the device with `stride` elements from row to row, and 0xA5 between them; and whether it holds
   the same rows, and still 0xA5 between them. */
static void *cuda_norm_spread(const cuda_norm_slot *s, size_t rows, size_t width, size_t stride, int misaligned) {
    const size_t size = memopt_type_bytes(s->type), bytes = ((rows - 1) * stride + width) * size;
    unsigned char *here = (unsigned char *)malloc(bytes);
    void *there = test_device_at(bytes, misaligned ? size : 0);
    memset(here, 0xA5, bytes);
    for (size_t r = 0; r < rows; ++r) memcpy(here + r * stride * size, s->here + r * width * size, width * size);
    test_put(there, here, bytes);
    free(here);
    return there;
}
static int cuda_norm_is_spread(const void *there, const cuda_norm_slot *s, size_t rows, size_t width, size_t stride) {
    const size_t size = memopt_type_bytes(s->type), bytes = ((rows - 1) * stride + width) * size;
    unsigned char *here = (unsigned char *)malloc(bytes); int same = 1;
    test_get(here, there, bytes);
    for (size_t r = 0; r < rows && same; ++r) {
        same = !memcmp(here + r * stride * size, s->here + r * width * size, width * size);
        for (size_t i = width * size; i < stride * size && r + 1 < rows; ++i)
            same = same && here[r * stride * size + i] == 0xA5;
    }
    free(here);
    return same;
}
/* With a stride: the bits of rows next to each other, and what lies between is left alone. */
static void cuda_norm_stride_case(int i, size_t rows, size_t w, size_t stride) {
    cuda_norm_spec s = cuda_norm_spec_of(i); cuda_norm_model m; memopt_norm n; const cuda_norm_slot *k = m.slot;
    void *at[CUDA_NORM_SLOTS], *d[2];
    s.rows = rows; s.width = w; s.type = (memopt_type)(i / 32); s.misaligned = 0; s.gradient_type = MEMOPT_TYPE_F32;
    cuda_norm_open(&m, &s);
    for (int j = 0; j < CUDA_NORM_SLOTS; ++j) /* of matrices */
        at[j] = k[j].count == rows * w ? cuda_norm_spread(&k[j], rows, w, stride, i % 5 == 1 + j % 4) : NULL;
    n = m.n;
    n.stride = stride; n.input = at[CUDA_NORM_X]; n.output = at[CUDA_NORM_Y];
    n.statistics = (float *)test_device(8 * rows);
    CHECK(memopt_cuda_norm_forward(NULL, &m.n, NULL) == 0 && memopt_cuda_norm_forward(NULL, &n, NULL) == 0);
    cuda_norm_fetch(&m);
    for (int j = 0; j < CUDA_NORM_SLOTS; ++j) CHECK_AT(!at[j] || cuda_norm_is_spread(at[j], &k[j], rows, w, stride), i);
    for (int j = 0; j < 2; ++j) d[j] = cuda_norm_spread(&k[CUDA_NORM_DSCALE + j], 1, w, w, 0);
    cuda_norm_turn(&m);
    n.accumulate = m.n.accumulate; n.accumulate_input = m.n.accumulate_input;
    n.grad_output = at[CUDA_NORM_G]; n.grad_input = at[s.in_place ? CUDA_NORM_G : CUDA_NORM_DX];
    n.grad_scale = d[0]; n.grad_shift = m.n.grad_shift ? d[1] : NULL;
    if (s.from_output) n.input = NULL;
    CHECK(memopt_cuda_norm_backward(&m.ops, &m.n, NULL) == 0 && memopt_cuda_norm_backward(&m.ops, &n, NULL) == 0);
    cuda_norm_fetch(&m);
    for (int j = 0; j < CUDA_NORM_SLOTS; ++j) CHECK_AT(!at[j] || cuda_norm_is_spread(at[j], &k[j], rows, w, stride), i);
    for (int j = 0; j < 2; ++j) CHECK_AT(cuda_norm_is_spread(d[j], &k[CUDA_NORM_DSCALE + j], 1, w, w), i);
    cuda_norm_close(&m);
}
static void cuda_norm_strides(void) {
    static const size_t widths[] = { 5, 64, 128, 136, 1024, 1032, 4104, 16392 }, more[] = { 3, 8, 64, 512 };
    for (int i = 0; i < 96; ++i) {
        const size_t w = widths[i % 8];
        cuda_norm_stride_case(i, w > 2000 ? 3 : w > 500 ? 9 : 41, w, w + more[i / 8 % 4]);
    }
}
/* Heads of queries and keys within rows of a fused matrix, each normed in place: the definition in double, and values
   are not touched. The call for each head of a row is one of all rows. */
static void cuda_norm_heads(void) {
    enum { ROWS = 33, HEADS = 3, WIDTH = 16, ALL = 3 * HEADS * WIDTH };
    static float x[ROWS * ALL], y[ROWS * ALL], scale[WIDTH]; uint64_t seed = 5; memopt_norm n;
    for (int i = 0; i < ROWS * ALL; ++i) x[i] = cuda_norm_random(&seed);
    for (int i = 0; i < WIDTH; ++i) scale[i] = 1 + cuda_norm_random(&seed) / 2;
    float *d = (float *)test_device(sizeof x), *weights = (float *)test_device(sizeof scale);
    test_put(d, x, sizeof x); test_put(weights, scale, sizeof scale);
    memset(&n, 0, sizeof n);
    n.rows = ROWS; n.width = WIDTH; n.stride = ALL; n.rms = 1; n.scale = weights;
    for (int head = 0; head < 2 * HEADS; ++head) {
        n.output = d + head * WIDTH; n.input = n.output;
        CHECK(memopt_cuda_norm_forward(NULL, &n, NULL) == 0);
    }
    test_get(y, d, sizeof y);
    for (int row = 0; row < ROWS; ++row)
        for (int head = 0; head < 3 * HEADS; ++head) {
            const int at = row * ALL + head * WIDTH; double squares = 0;
            for (int i = 0; i < WIDTH; ++i) squares += (double)x[at + i] * x[at + i] / WIDTH;
            for (int i = 0; i < WIDTH; ++i) {
                const double want = x[at + i] / sqrt(squares + (double)1e-5f) * scale[i];
                if (head < 2 * HEADS) CHECK_AT(fabs(y[at + i] - want) <= 1e-6 * fabs(want), at + i);
                else CHECK_AT(y[at + i] == x[at + i], at + i);
            }
        }
    test_device_free(0);
}
/* Forward in place, without statistics; backward without some gradients, which changes no other. */
static void cuda_norm_parts(void) {
    cuda_norm_spec s = cuda_norm_spec_of(7); cuda_norm_model m, other;
    s.width = 72; s.rows = 21; s.in_place = s.adds = s.adds_input = s.rms = s.from_output = 0;
    for (int type = 0; type < 3; ++type) {
        s.type = (memopt_type)type;
        cuda_norm_open(&m, &s);
        m.n.statistics = NULL; m.n.output = (void *)m.slot[CUDA_NORM_X].there;
        CHECK(memopt_cuda_norm_forward(NULL, &m.n, NULL) == 0);
        test_get(m.slot[CUDA_NORM_Y].here, m.slot[CUDA_NORM_X].there, m.slot[CUDA_NORM_X].bytes);
        cuda_norm_check_forward(&m, &m.slot[CUDA_NORM_Y]);
        cuda_norm_close(&m);
    }
    for (int without = 0; without < 4; ++without) {
        memopt_cuda_ops none;
        memset(&none, 0, sizeof none);
        for (int k = 0; k < 2; ++k) {
            cuda_norm_model *of = k ? &other : &m;
            cuda_norm_open(of, &s);
            CHECK(memopt_cuda_norm_forward(&none, &of->n, NULL) == 0);
            cuda_norm_turn(of);
            if (k && without == 0) of->n.grad_input = NULL;
            if (k && without == 1) of->n.grad_scale = NULL;
            if (k && without == 2) of->n.grad_shift = NULL;
            if (k && without == 3) { of->n.grad_scale = of->n.grad_shift = NULL; of->ops = none; }
            CHECK(memopt_cuda_norm_backward(&of->ops, &of->n, NULL) == 0);
            cuda_norm_fetch(of);
        }
        for (int k = 0; k < CUDA_NORM_SLOTS; ++k) {
            const int gone = without == 0 ? k == CUDA_NORM_DX : without == 1 ? k == CUDA_NORM_DSCALE
                           : without == 2 ? k == CUDA_NORM_DSHIFT : k == CUDA_NORM_DSCALE || k == CUDA_NORM_DSHIFT;
            CHECK_AT((memcmp(m.slot[k].here, other.slot[k].here, m.slot[k].bytes) != 0) == gone, without * 10 + k);
        }
        for (int k = 0; k < CUDA_NORM_SLOTS; ++k) free(other.slot[k].here);
        cuda_norm_close(&m);
    }
}
/* What is not finite stays in its row, and makes it NaN; squares that overflow make it its shift; a scale of 0 is
   nothing to divide by; an even row is its shift. */
static void cuda_norm_not_finite(void) {
    static const size_t widths[] = { 9, 40, 1100, 16401 };
    for (int w = 0; w < 4; ++w) {
        cuda_norm_spec s; cuda_norm_model m; const size_t n = widths[w];
        memset(&s, 0, sizeof s);
        s.rows = 6; s.width = n; s.scaled = s.shifted = 1;
        cuda_norm_open(&m, &s);
        float *x = (float *)(void *)m.slot[CUDA_NORM_X].here, *scale = (float *)(void *)m.slot[CUDA_NORM_SCALE].here;
        x[0 * n + n - 1] = memopt_i_bits_float(0x7fc12345u); /* NaN */
        x[1 * n + n / 2] = memopt_i_bits_float(0xff800000u);
        for (size_t i = 0; i < n; ++i) x[2 * n + i] = i % 2 ? 1e20f : -1e20f;
        for (size_t i = 0; i < n; ++i) x[3 * n + i] = 3;
        x[4 * n] = -0.0f; x[4 * n + 1] = 1e-42f;
        scale[n / 2] = 0; scale[0] = -0.0f;
        test_put(m.slot[CUDA_NORM_X].there, x, m.slot[CUDA_NORM_X].bytes);
        test_put(m.slot[CUDA_NORM_SCALE].there, scale, m.slot[CUDA_NORM_SCALE].bytes);
        CHECK(memopt_cuda_norm_forward(NULL, &m.n, NULL) == 0);
        cuda_norm_fetch(&m);
        for (size_t i = 0; i < n; ++i) {
            const float shift = cuda_norm_get(&m.slot[CUDA_NORM_SHIFT], i);
            for (size_t row = 0; row < 6; ++row) {
                const float y = cuda_norm_get(&m.slot[CUDA_NORM_Y], row * n + i);
                CHECK_AT(row < 2 ? y != y : y == y, row * 100000 + i);
                if (row == 3 || (row == 2 && n % 2 == 0)) CHECK_AT(y == shift, row * 100000 + i);
            }
        }
        for (int from_output = 0; from_output < 2; ++from_output) {
            m.spec.from_output = from_output;
            m.n.input = m.slot[CUDA_NORM_X].there; m.n.output = m.slot[CUDA_NORM_Y].there;
            cuda_norm_turn(&m);
            CHECK(memopt_cuda_norm_backward(&m.ops, &m.n, NULL) == 0);
            cuda_norm_fetch(&m);
            for (size_t i = 0; i < n; ++i)
                for (size_t row = 0; row < 6; ++row) {
                    const float y = cuda_norm_get(&m.slot[CUDA_NORM_DX], row * n + i);
                    CHECK_AT(row < 2 ? y != y : y == y, row * 100000 + i);
                }
        }
        cuda_norm_close(&m);
    }
}
static void cuda_norm_empty(void) {
    for (int adds = 0; adds < 2; ++adds) {
        cuda_norm_spec s = cuda_norm_spec_of(1); cuda_norm_model m; memopt_norm n;
        s.rows = 3; s.width = 9; s.rms = 0; s.gradient_type = MEMOPT_TYPE_F32;
        cuda_norm_open(&m, &s);
        cuda_norm_turn(&m);
        m.n.rows = 0; m.n.input = NULL; m.n.output = NULL; m.n.statistics = NULL; m.n.grad_output = NULL;
        m.n.grad_input = NULL; m.n.accumulate = adds;
        CHECK(memopt_cuda_norm_forward(NULL, &m.n, NULL) == 0);
        CHECK(memopt_cuda_norm_backward(NULL, &m.n, NULL) == 0);
        test_get(m.slot[CUDA_NORM_Y].here, m.slot[CUDA_NORM_DSCALE].there, 9 * sizeof(float));
        for (size_t i = 0; i < 9; ++i) {
            float y;
            memcpy(&y, m.slot[CUDA_NORM_Y].here + 4 * i, 4);
            CHECK_AT(memopt_i_float_bits(y) == (adds ? memopt_i_float_bits(cuda_norm_get(&m.slot[CUDA_NORM_DSCALE], i)) : 0), i);
        }
        n = m.n;
        n.rows = 5; n.width = 0;
        CHECK(memopt_cuda_norm_forward(NULL, &n, NULL) == 0);
        CHECK(memopt_cuda_norm_backward(NULL, &n, NULL) == 0);
        cuda_norm_close(&m);
    }
}
static void cuda_norm_refused(void) {
    cuda_norm_spec s = cuda_norm_spec_of(12); cuda_norm_model m; memopt_norm n; memopt_cuda_ops ops; size_t bytes = 77;
    float nan; uint64_t before;
    s.rows = 4; s.width = 16; s.rms = s.in_place = s.from_output = 0; s.scaled = s.shifted = 1; s.misaligned = 0;
    s.type = s.weight_type = s.gradient_type = MEMOPT_TYPE_F32;
    nan = memopt_i_bits_float(0x7fc00000u);
    cuda_norm_open(&m, &s);
    CHECK(memopt_cuda_norm_forward(NULL, &m.n, NULL) == 0);
    cuda_norm_turn(&m);
    cuda_norm_fetch(&m);
    before = cuda_norm_hash(&m);
#define CUDA_NORM_REFUSED(forward, change, status) do { n = m.n; n.input = m.slot[CUDA_NORM_X].there; ops = m.ops;      \
        n.output = m.slot[CUDA_NORM_Y].there; change;                                                                  \
        CHECK((forward ? memopt_cuda_norm_forward(&ops, &n, NULL) : memopt_cuda_norm_backward(&ops, &n, NULL)) == (status)); } while (0)
    CHECK(memopt_cuda_norm_forward(NULL, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_norm_backward(&m.ops, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_norm_scratch(&m.ops, &m.n, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_norm_scratch(&m.ops, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    for (int forward = 0; forward < 2; ++forward) {
        CUDA_NORM_REFUSED(forward, n.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
        CUDA_NORM_REFUSED(forward, n.weight_type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
        CUDA_NORM_REFUSED(forward, n.gradient_type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
        CUDA_NORM_REFUSED(forward, n.eps = -1, MEMOPT_ERR_ARGUMENT);
        CUDA_NORM_REFUSED(forward, n.eps = nan, MEMOPT_ERR_ARGUMENT);
        CUDA_NORM_REFUSED(forward, n.rms = 2, MEMOPT_ERR_ARGUMENT);
        CUDA_NORM_REFUSED(forward, n.stride = n.width - 1, MEMOPT_ERR_ARGUMENT);
        CUDA_NORM_REFUSED(forward, n.stride = SIZE_MAX / 8, MEMOPT_ERR_OVERFLOW);
        CUDA_NORM_REFUSED(forward, n.rms = 1, MEMOPT_ERR_ARGUMENT); /* with a shift */
        CUDA_NORM_REFUSED(forward, n.accumulate = -1, MEMOPT_ERR_ARGUMENT);
        CUDA_NORM_REFUSED(forward, n.rows = SIZE_MAX / 8, MEMOPT_ERR_OVERFLOW);
        CUDA_NORM_REFUSED(forward, n.width = SIZE_MAX, MEMOPT_ERR_OVERFLOW);
        CUDA_NORM_REFUSED(forward, n.scale = (const char *)n.scale + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
        CUDA_NORM_REFUSED(forward, n.statistics = (float *)(void *)((char *)n.statistics + 1), MEMOPT_CUDA_ERR_ALIGNMENT);
        CUDA_NORM_REFUSED(forward, n.input = (const char *)n.input + 3, MEMOPT_CUDA_ERR_ALIGNMENT);
    }
    CUDA_NORM_REFUSED(1, n.input = NULL, MEMOPT_CUDA_ERR_NULL);
    CUDA_NORM_REFUSED(1, n.output = NULL, MEMOPT_CUDA_ERR_NULL);
    CUDA_NORM_REFUSED(1, n.output = (char *)n.output + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
    CUDA_NORM_REFUSED(1, n.output = (char *)m.slot[CUDA_NORM_X].there + 4, MEMOPT_CUDA_ERR_OVERLAP);
    CUDA_NORM_REFUSED(1, n.output = (void *)m.slot[CUDA_NORM_SCALE].there, MEMOPT_CUDA_ERR_OVERLAP);
    CUDA_NORM_REFUSED(0, n.grad_output = NULL, MEMOPT_CUDA_ERR_NULL);
    CUDA_NORM_REFUSED(0, n.statistics = NULL, MEMOPT_CUDA_ERR_NULL);
    CUDA_NORM_REFUSED(0, { n.input = NULL; n.output = NULL; }, MEMOPT_CUDA_ERR_NULL);
    CUDA_NORM_REFUSED(0, n.grad_input = (char *)m.slot[CUDA_NORM_G].there + 8, MEMOPT_CUDA_ERR_OVERLAP);
    CUDA_NORM_REFUSED(0, n.grad_scale = n.grad_shift, MEMOPT_CUDA_ERR_OVERLAP);
    CUDA_NORM_REFUSED(0, n.grad_shift = (char *)n.grad_shift + 1, MEMOPT_CUDA_ERR_ALIGNMENT);
    CUDA_NORM_REFUSED(0, ops.scratch_bytes -= 1, MEMOPT_ERR_BUFFER);
    CUDA_NORM_REFUSED(0, ops.d_scratch = NULL, MEMOPT_ERR_BUFFER);
    CUDA_NORM_REFUSED(0, ops.d_scratch = (char *)ops.d_scratch + 128, MEMOPT_CUDA_ERR_ALIGNMENT);
#ifndef __CUDACC__
    for (int forward = 0; forward < 2; ++forward) {
        simulator_pending_error(cudaErrorIllegalAddress);
        CUDA_NORM_REFUSED(forward, (void)0, MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
        CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
        simulator_pending_error(0);
        simulator_fail_launch(1);
        CUDA_NORM_REFUSED(forward, (void)0, MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
        simulator_fail_launch(0);
    }
#endif
    cuda_norm_fetch(&m);
    CHECK(cuda_norm_hash(&m) == before);
    cuda_norm_close(&m);
}
/* Residual and norm in one pass: the sum is the CPU's, and its norm that of the norm alone. */
static void cuda_norm_residual_case(size_t rows, size_t width, memopt_type type, int rms, int where, int misaligned) {
    const size_t n = rows * width; cuda_norm_slot x, branch, sum, y, want, statistics, also; memopt_norm norm; memopt_dropout add; uint64_t seed = n + 1;
    cuda_norm_make(&x, n, type, misaligned & 1); cuda_norm_make(&branch, n, type, misaligned & 2); cuda_norm_make(&sum, n, type, misaligned & 4);
    cuda_norm_make(&y, n, type, misaligned & 8); cuda_norm_make(&want, n, type, 0); cuda_norm_make(&statistics, 2 * rows, MEMOPT_TYPE_F32, 0); cuda_norm_make(&also, 2 * rows, MEMOPT_TYPE_F32, 0);
    cuda_norm_fill(&x, seed, 2, 0.5f); cuda_norm_fill(&branch, seed + 1, 1, 0);
    test_put(x.there, x.here, x.bytes); test_put(branch.there, branch.here, branch.bytes);
    memset(&add, 0, sizeof add); memset(&norm, 0, sizeof norm);
    add.n = n; add.type = type; add.input = branch.here; add.residual = x.here; add.output = sum.here;
    CHECK(memopt_dropout_forward(NULL, &add) == MEMOPT_OK);
    norm.rows = rows; norm.width = width; norm.type = type; norm.rms = rms;
    unsigned char *const to = where == 1 ? x.there : where == 2 ? branch.there : sum.there, *const back = (unsigned char *)malloc(n * 4 + 8 * rows);
    norm.input = x.there; norm.output = y.there; norm.statistics = (float *)(void *)statistics.there;
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, branch.there, to, NULL) == 0);
    test_get(back, to, sum.bytes);
    CHECK_AT(!memcmp(back, sum.here, sum.bytes), width * 10 + (size_t)where);
    norm.input = to; norm.output = want.there; norm.statistics = (float *)(void *)also.there;
    CHECK(memopt_cuda_norm_forward(NULL, &norm, NULL) == 0);
    test_get(want.here, want.there, want.bytes); test_get(back, y.there, y.bytes);
    CHECK_AT(!memcmp(back, want.here, want.bytes), width * 10 + (size_t)where);
    test_get(also.here, also.there, also.bytes); test_get(back, statistics.there, also.bytes);
    CHECK_AT(!memcmp(back, also.here, also.bytes), width * 10 + (size_t)where);
    free(x.here); free(branch.here); free(sum.here); free(y.here); free(want.here); free(statistics.here); free(also.here); free(back);
    test_device_free(0);
}
static void cuda_norm_residual(void) {
    static const size_t widths[] = { 1, 8, 33, 256, 768, 1031, 4096, 16640 };
    int n = 0;
    TEST_SCHEDULES(3)
        for (int k = 0; k < 8; ++k) for (int type = 0; type < 3; ++type, ++n)
            cuda_norm_residual_case(k > 5 ? 2 : 5, widths[k], (memopt_type)type, n % 2, n % 3, n % 4 ? 0 : 1 << n / 4 % 4);
    cuda_norm_residual_case(5, 256, MEMOPT_TYPE_BF16, 0, 0, 4); /* the sum by itself is not aligned */
    memopt_norm norm; float *d = (float *)test_device(4 * 64);
    memset(&norm, 0, sizeof norm);
    norm.rows = 1; norm.width = 16; norm.input = d; norm.output = d + 16;
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, d + 32, d + 48, NULL) == 0);
    CHECK(memopt_cuda_norm_residual_forward(NULL, NULL, d + 32, d + 48, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, NULL, d + 48, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, d + 32, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, d + 32, (char *)(d + 48) + 2, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, d + 32, d + 16, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, d + 32, d + 33, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, d + 17, d + 48, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    norm.output = d;
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, d + 32, d + 48, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
    norm.output = d + 16; norm.stride = 17;
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, d + 32, d + 48, NULL) == MEMOPT_ERR_ARGUMENT);
    norm.stride = 0;
    norm.rows = 0;
    CHECK(memopt_cuda_norm_residual_forward(NULL, &norm, NULL, NULL, NULL) == 0);
}
static void test_cuda_norm(void) {
    RUN(cuda_norm_values);
    RUN(cuda_norm_large);
    RUN(cuda_norm_same_bits);
    RUN(cuda_norm_strides);
    RUN(cuda_norm_heads);
    RUN(cuda_norm_parts);
    RUN(cuda_norm_not_finite);
    RUN(cuda_norm_residual);
    RUN(cuda_norm_empty);
    RUN(cuda_norm_refused);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_norm(); return test_totals(); }
#endif
