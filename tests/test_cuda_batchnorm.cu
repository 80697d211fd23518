/* test_cuda_batchnorm.cu - batch norm on the device: statistics and gradients of scale and shift against the definition in
   double, with stated bounds; what is element by element the bits of the formulas; the products are linear's. */
#include "test_cuda.h"
#ifndef __CUDACC__
#include "cublaslt_mock.h"
#endif

enum { CUDA_BATCH_Z, CUDA_BATCH_Y, CUDA_BATCH_G, CUDA_BATCH_SLOPE, CUDA_BATCH_SCALE, CUDA_BATCH_SHIFT, CUDA_BATCH_STATISTICS,
       CUDA_BATCH_MEAN, CUDA_BATCH_VARIANCE, CUDA_BATCH_DSCALE, CUDA_BATCH_DSHIFT, CUDA_BATCH_X, CUDA_BATCH_W, CUDA_BATCH_BIAS,
       CUDA_BATCH_DX, CUDA_BATCH_DW, CUDA_BATCH_DBIAS, CUDA_BATCH_SLOTS };
typedef struct cuda_batch_slot { unsigned char *here, *there; size_t count, bytes; memopt_type type; } cuda_batch_slot;
typedef struct cuda_batch_spec {
    size_t rows, inputs, outputs, part;
    memopt_type type, gradient_type;
    int kind, scaled, shifted, biased, adds, no_update, misaligned;
} cuda_batch_spec;
typedef struct cuda_batch_model { cuda_batch_spec spec; memopt_batch_norm x; cuda_batch_slot slot[CUDA_BATCH_SLOTS]; } cuda_batch_model;

static float cuda_batch_get(const cuda_batch_slot *s, size_t i) {
    if (s->type == MEMOPT_TYPE_F32) return ((const float *)(const void *)s->here)[i];
    if (s->type == MEMOPT_TYPE_BF16) return memopt_from_bf16(((const uint16_t *)(const void *)s->here)[i]);
    return memopt_from_f16(((const uint16_t *)(const void *)s->here)[i]);
}
static void cuda_batch_set(const cuda_batch_slot *s, size_t i, float x) {
    if (s->type == MEMOPT_TYPE_F32) ((float *)(void *)s->here)[i] = x;
    else ((uint16_t *)(void *)s->here)[i] = s->type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
}
static float cuda_batch_random(uint64_t *seed) { return (float)(test_random(seed) >> 40) * (1.0f / 8388608.0f) - 1.0f; }
/* steps 0: anything; else multiples of 1 / steps, so that products of few of them are exact */
static void cuda_batch_make(cuda_batch_model *m, int k, size_t count, memopt_type type, float size, float offset, int steps) {
    cuda_batch_slot *s = &m->slot[k]; uint64_t seed = (uint64_t)k + 1;
    s->count = count; s->type = type; s->bytes = count * memopt_type_bytes(type);
    s->here = (unsigned char *)malloc(s->bytes + 16);
    memset(s->here, 0xFF, s->bytes);
    s->there = (unsigned char *)test_device_at(s->bytes, m->spec.misaligned >> (k % 5) & 1 ? memopt_type_bytes(type) : 0);
    if (!(size > 0)) return;
    for (size_t i = 0; i < count; ++i) {
        const float x = cuda_batch_random(&seed);
        cuda_batch_set(s, i, size * (steps ? (float)(int)(x * (float)steps) / (float)steps : x) + offset);
    }
    test_put(s->there, s->here, s->bytes);
}
static void cuda_batch_place(memopt_i_cuda::batch_task *t) { /* scratch of its own, without linear's */
    memopt_carver c = memopt_carver_begin(NULL);
    memopt_i_cuda::batch_lay_out(t, 0, &c);
    CHECK(!c.overflow);
    c = memopt_carver_begin(test_device(c.bytes));
    memopt_i_cuda::batch_lay_out(t, 0, &c);
}
static void cuda_batch_open(cuda_batch_model *m, const cuda_batch_spec *s) {
    const size_t n = s->outputs, out = s->rows * n, in = s->rows * s->inputs; const memopt_type f32 = MEMOPT_TYPE_F32;
    memopt_linear *l = &m->x.linear; cuda_batch_slot *k = m->slot;
    memset(m, 0, sizeof *m);
    m->spec = *s;
    cuda_batch_make(m, CUDA_BATCH_Z, out, s->type, 1, 0, 0);
    for (size_t i = 0; i < out; ++i) /* columns of several sizes and means */
        cuda_batch_set(k, i, cuda_batch_get(k, i) * (i % n % 3 == 1 ? 16.0f : 1.0f) + (float)(i % n % 5) * 2);
    test_put(k->there, k->here, k->bytes);
    cuda_batch_make(m, CUDA_BATCH_Y, out, s->type, 0, 0, 0);
    cuda_batch_make(m, CUDA_BATCH_G, out, s->type, 1, 0.1f, 0);
    cuda_batch_make(m, CUDA_BATCH_SLOPE, out, s->type, 0, 0, 0);
    cuda_batch_make(m, CUDA_BATCH_SCALE, n, s->type, 0.5f, 1, 0);
    cuda_batch_make(m, CUDA_BATCH_SHIFT, n, s->type, 0.5f, 0.25f, 0);
    cuda_batch_make(m, CUDA_BATCH_STATISTICS, 2 * n, f32, 0, 0, 0);
    cuda_batch_make(m, CUDA_BATCH_MEAN, n, f32, 1, 0, 0);
    cuda_batch_make(m, CUDA_BATCH_VARIANCE, n, f32, 0.5f, 1, 0);
    cuda_batch_make(m, CUDA_BATCH_DSCALE, n, s->gradient_type, 1, 0, 0);
    cuda_batch_make(m, CUDA_BATCH_DSHIFT, n, s->gradient_type, 1, 0, 0);
    cuda_batch_make(m, CUDA_BATCH_X, in, s->type, 2, 0, 8);
    cuda_batch_make(m, CUDA_BATCH_W, n * s->inputs, s->type, 1, 0, 4);
    cuda_batch_make(m, CUDA_BATCH_BIAS, n, s->type, 1, 0, 4);
    cuda_batch_make(m, CUDA_BATCH_DX, in, s->type, 1, 0, 0);
    cuda_batch_make(m, CUDA_BATCH_DW, n * s->inputs, s->gradient_type, 1, 0, 0);
    cuda_batch_make(m, CUDA_BATCH_DBIAS, n, s->gradient_type, 1, 0, 0);
    l->rows = s->rows; l->inputs = s->inputs; l->outputs = n; l->type = l->weight_type = s->type;
    l->gradient_type = s->gradient_type; l->activation = (memopt_activation)s->kind; l->accumulate = s->adds;
    l->input = k[CUDA_BATCH_X].there; l->weights = k[CUDA_BATCH_W].there; l->bias = s->biased ? k[CUDA_BATCH_BIAS].there : NULL;
    l->pre_activation = k[CUDA_BATCH_Z].there;
    l->output = k[CUDA_BATCH_Y].there; l->grad_output = k[CUDA_BATCH_G].there;
    l->grad_input = k[CUDA_BATCH_DX].there; l->grad_weights = k[CUDA_BATCH_DW].there; l->grad_bias = k[CUDA_BATCH_DBIAS].there;
    m->x.scale = s->scaled ? k[CUDA_BATCH_SCALE].there : NULL; m->x.shift = s->shifted ? k[CUDA_BATCH_SHIFT].there : NULL;
    m->x.statistics = (float *)(void *)k[CUDA_BATCH_STATISTICS].there; m->x.no_update = s->no_update;
    m->x.running_mean = (float *)(void *)k[CUDA_BATCH_MEAN].there; m->x.running_variance = (float *)(void *)k[CUDA_BATCH_VARIANCE].there;
    m->x.grad_scale = k[CUDA_BATCH_DSCALE].there; m->x.grad_shift = k[CUDA_BATCH_DSHIFT].there;
}
static void cuda_batch_fetch(cuda_batch_model *m, int k) { test_get(m->slot[k].here, m->slot[k].there, m->slot[k].bytes); }
static void cuda_batch_close(cuda_batch_model *m) {
    for (int k = 0; k < CUDA_BATCH_SLOTS; ++k) free(m->slot[k].here);
    test_device_free(0);
}
static double cuda_batch_unit(memopt_type type, double x) { /* half a unit in the last place */
    if (type == MEMOPT_TYPE_F32) return ldexp(fabs(x), -24);
    return type == MEMOPT_TYPE_BF16 ? ldexp(fabs(x), -8) : ldexp(fabs(x), -11) + ldexp(1, -25);
}
static float cuda_batch_scale(const cuda_batch_model *m, size_t c) { return m->spec.scaled ? cuda_batch_get(&m->slot[CUDA_BATCH_SCALE], c) : 1; }
static float cuda_batch_shift(const cuda_batch_model *m, size_t c) { return m->spec.shifted ? cuda_batch_get(&m->slot[CUDA_BATCH_SHIFT], c) : 0; }
static int cuda_batch_bits(float x, float y) { return memopt_i_float_bits(x) == memopt_i_float_bits(y) || (x != x && y != y); }
static float cuda_batch_stored(memopt_type type, float x) {
    if (type == MEMOPT_TYPE_F32) return x;
    return type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(memopt_to_bf16(x)) : memopt_from_f16(memopt_to_f16(x));
}
/* Statistics and running statistics, given z; old: what the latter were */
static void cuda_batch_check_statistics(const cuda_batch_model *m, const float *old) {
    const size_t n = m->spec.outputs, rows = m->spec.rows; const double u = ldexp(1, -24), eps = (double)1e-5f;
    for (size_t c = 0; c < n; ++c) {
        double sum = 0, squares = 0, size = 0, mean, inverse, variance, steps = rows < 64 ? (double)rows : 64, off;
        for (size_t r = 0; r < rows; ++r) { const double z = (double)cuda_batch_get(&m->slot[CUDA_BATCH_Z], r * n + c); sum += z; size += fabs(z); }
        mean = sum / (double)rows; size /= (double)rows;
        for (size_t r = 0; r < rows; ++r) squares += pow((double)cuda_batch_get(&m->slot[CUDA_BATCH_Z], r * n + c) - mean, 2);
        inverse = 1 / sqrt(squares / (double)rows + eps); variance = squares / (double)(rows - 1);
        off = (steps + 2) * u * size; /* Welford's mean: a rounding of it and one of a difference a step */
        CHECK_AT(fabs((double)cuda_batch_get(&m->slot[CUDA_BATCH_STATISTICS], c) - mean) <= off + u * fabs(mean), c);
        CHECK_AT(fabs((double)cuda_batch_get(&m->slot[CUDA_BATCH_STATISTICS], n + c) / inverse - 1)
                 <= 2 * (steps + 4) * u + pow(2 * off * inverse, 2) + off * inverse, c);
        for (int k = 0; k < 2; ++k) {
            const float before = old[(size_t)k * n + c], now = cuda_batch_get(&m->slot[k ? CUDA_BATCH_VARIANCE : CUDA_BATCH_MEAN], c);
            const double of = k ? variance : mean, momentum = (double)(m->x.momentum > 0 ? m->x.momentum : 0.1f);
            const double want = (double)before + momentum * (of - (double)before);
            if (m->spec.no_update) CHECK_AT(cuda_batch_bits(now, before), c);
            else CHECK_AT(fabs((double)now - want) <= 8 * u * (fabs((double)before) + fabs(of)) + (k ? 2 * (steps + 4) * u * of + 2 * off * sqrt(of) + off * off : off), c);
        }
    }
}
/* The output, bit for bit, given z and the statistics. */
static void cuda_batch_check_output(const cuda_batch_model *m) {
    const size_t n = m->spec.outputs;
    for (size_t i = 0; i < m->spec.rows * n; ++i) {
        const size_t c = i % n;
        const float h = memopt_i_v1_norm_normalize_of(cuda_batch_get(&m->slot[CUDA_BATCH_Z], i), cuda_batch_get(&m->slot[CUDA_BATCH_STATISTICS], c),
                                                      cuda_batch_get(&m->slot[CUDA_BATCH_STATISTICS], n + c));
        const float v = fmaf(h, cuda_batch_scale(m, c), cuda_batch_shift(m, c));
        const float y = m->spec.kind ? memopt_i_v1_act(v, m->spec.kind) : v;
        CHECK_AT(cuda_batch_bits(cuda_batch_get(&m->slot[CUDA_BATCH_Y], i), cuda_batch_stored(m->spec.type, y)), i);
    }
}
static float cuda_batch_lively(const cuda_batch_model *m, size_t i, float *h) { /* g', and h */
    const size_t n = m->spec.outputs, c = i % n; float y; const float g = cuda_batch_get(&m->slot[CUDA_BATCH_G], i);
    *h = memopt_i_v1_norm_normalize_of(cuda_batch_get(&m->slot[CUDA_BATCH_Z], i), cuda_batch_get(&m->slot[CUDA_BATCH_STATISTICS], c),
                                       cuda_batch_get(&m->slot[CUDA_BATCH_STATISTICS], n + c));
    return m->spec.kind ? memopt_i_v1_act_grad(fmaf(*h, cuda_batch_scale(m, c), cuda_batch_shift(m, c)), g, m->spec.kind, &y) : g;
}
/* Gradients of scale and shift, given z, g and the statistics; three: factor, mean and share of the device, or NULL */
static void cuda_batch_check_sums(const cuda_batch_model *m, const float *old, const float *three) {
    const size_t n = m->spec.outputs, rows = m->spec.rows; const double u = ldexp(1, -24);
    for (size_t c = 0; c < n; ++c) {
        double a = 0, b = 0, size_a = 0, size_b = 0; const double steps = rows < 80 ? (double)rows : 80; float h;
        for (size_t r = 0; r < rows; ++r) {
            const double g = (double)cuda_batch_lively(m, r * n + c, &h);
            a += g; b += g * (double)h; size_a += fabs(g); size_b += fabs(g * (double)h);
        }
        if (three) {
            CHECK_AT(cuda_batch_bits(three[c], memopt_i_round(cuda_batch_get(&m->slot[CUDA_BATCH_STATISTICS], n + c) * cuda_batch_scale(m, c))), c);
            CHECK_AT(fabs((double)three[n + c] - a / (double)rows) <= (steps + 2) * u * size_a / (double)rows, c);
            CHECK_AT(fabs((double)three[2 * n + c] - b / (double)rows) <= (steps + 2) * u * size_b / (double)rows, c);
        }
        if (m->spec.adds) { a += (double)old[c]; b += (double)old[n + c]; }
        CHECK_AT(fabs((double)cuda_batch_get(&m->slot[CUDA_BATCH_DSHIFT], c) - a)
                 <= (steps + 2) * u * size_a + 1.01 * cuda_batch_unit(m->spec.gradient_type, a) + u * fabs(a), c);
        CHECK_AT(fabs((double)cuda_batch_get(&m->slot[CUDA_BATCH_DSCALE], c) - b)
                 <= (steps + 2) * u * size_b + 1.01 * cuda_batch_unit(m->spec.gradient_type, b) + u * fabs(b), c);
    }
}
static float cuda_batch_slope(const cuda_batch_model *m, size_t i, const float *three) {
    const size_t n = m->spec.outputs, c = i % n; float h; const float g = cuda_batch_lively(m, i, &h);
    const float rest = fmaf(-h, three[2 * n + c], memopt_i_round(g - three[n + c]));
    return cuda_batch_stored(m->spec.type, memopt_i_round(three[c] * rest));
}

/* ---- z by itself ---- */
static uint64_t cuda_batch_hash(uint64_t hash, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}
/* All stages, in parts; checked unless the bits are known. */
static uint64_t cuda_batch_z_case(const cuda_batch_spec *s, int known) {
    const size_t n = s->outputs, rows = s->rows; cuda_batch_model m; memopt_i_cuda::batch_task t; size_t count; uint64_t hash = 1;
    float *old = (float *)malloc(4 * n * sizeof *old), *three = (float *)malloc(3 * n * sizeof *three);
    cuda_batch_open(&m, s);
    for (size_t c = 0; c < n; ++c) { old[c] = cuda_batch_get(&m.slot[CUDA_BATCH_MEAN], c); old[n + c] = cuda_batch_get(&m.slot[CUDA_BATCH_VARIANCE], c);
        old[2 * n + c] = cuda_batch_get(&m.slot[CUDA_BATCH_DSHIFT], c); old[3 * n + c] = cuda_batch_get(&m.slot[CUDA_BATCH_DSCALE], c); }
    CHECK(memopt_i_cuda::batch_resolve(&m.x, &t) == 0);
    memopt_i_cuda::batch_cut(&t, s->part);
    cuda_batch_place(&t);
    memopt_i_cuda::batch_align(&t, 0);
    for (size_t first = 0; first < rows; first += count) {
        count = memopt_i_min(t.part, rows - first);
        CHECK(memopt_i_cuda::batch_stage(&t, memopt_i_cuda::BATCH_SPREAD, first, count, NULL) == 0);
    }
    CHECK(memopt_i_cuda::batch_join(&t, 0, NULL) == 0);
    CHECK(memopt_i_cuda::batch_stage(&t, memopt_i_cuda::BATCH_OUTPUT, 0, rows, NULL) == 0);
    memopt_i_cuda::batch_align(&t, 1);
    CHECK(memopt_i_cuda::batch_stage(&t, memopt_i_cuda::BATCH_SUMS, 0, rows, NULL) == 0);
    CHECK(memopt_i_cuda::batch_join(&t, 1, NULL) == 0);
    for (int k = 0; k < CUDA_BATCH_SLOTS; ++k) if (k != CUDA_BATCH_SLOPE) cuda_batch_fetch(&m, k);
    test_get(three, t.factor, 3 * n * sizeof *three);
    for (size_t first = 0; first < rows; first += count) {
        count = memopt_i_min(t.grad_part, rows - first);
        CHECK(memopt_i_cuda::batch_stage(&t, memopt_i_cuda::BATCH_GRAD_Z, first, count, NULL) == 0);
        test_get(m.slot[CUDA_BATCH_SLOPE].here + first * n * memopt_type_bytes(s->type), t.grad_z, count * n * memopt_type_bytes(s->type));
    }
    if (!known) {
        cuda_batch_check_statistics(&m, old);
        cuda_batch_check_output(&m);
        cuda_batch_check_sums(&m, old + 2 * n, three);
        for (size_t i = 0; i < rows * n; ++i)
            CHECK_AT(cuda_batch_bits(cuda_batch_get(&m.slot[CUDA_BATCH_SLOPE], i), cuda_batch_slope(&m, i, three)), i);
    }
    for (int k = 0; k <= CUDA_BATCH_DSHIFT; ++k) hash = cuda_batch_hash(hash, m.slot[k].here, m.slot[k].bytes);
    hash = cuda_batch_hash(hash, three, 3 * n * sizeof *three);
    free(old); free(three);
    cuda_batch_close(&m);
    return hash;
}
static cuda_batch_spec cuda_batch_spec_of(int i) {
    static const size_t shapes[][2] = { { 2, 1 }, { 3, 7 }, { 5, 33 }, { 257, 8 }, { 999, 3 }, { 130, 264 }, { 67, 136 }, { 33, 1100 }, { 4099, 1 } };
    cuda_batch_spec s;
    memset(&s, 0, sizeof s);
    s.rows = shapes[i % 9][0]; s.outputs = shapes[i % 9][1]; s.inputs = 1; s.type = (memopt_type)(i / 9 % 3); s.gradient_type = (memopt_type)(i / 4 % 3);
    s.kind = i / 2 % 4; s.scaled = i % 3 != 1; s.shifted = i % 5 != 2; s.adds = i / 3 % 2; s.no_update = i % 7 == 5;
    s.misaligned = i % 4 == 3 ? i % 32 : 0; s.part = i % 2 ? (size_t)16 << 20 : 4096;
    return s;
}
static void cuda_batch_z_values(void) {
    for (int i = 0; i < 54; ++i) {
        const cuda_batch_spec s = cuda_batch_spec_of(i); const int failures = test_failures;
        if (!test_on_card()) simulator_schedule(i % 8);
        cuda_batch_z_case(&s, 0);
        if (test_failures != failures) { printf("case %d\n", i); return; }
    }
}
static void cuda_batch_z_same_bits(void) {
    for (int i = 0; i < 9; ++i) {
        cuda_batch_spec s = cuda_batch_spec_of(i * 10); uint64_t want;
        s.misaligned = 0; s.adds = 0;
        want = cuda_batch_z_case(&s, 0);
        TEST_SCHEDULES(8) {
            s.misaligned = test_schedule_i * 5 % 32;
            CHECK_AT(cuda_batch_z_case(&s, 1) == want, i * 10 + test_schedule_i);
        }
    }
}
/* A mean that is much larger than the deviation, an even column, a NaN, an infinity: each for itself. */
static void cuda_batch_z_hard(void) {
    cuda_batch_spec s = cuda_batch_spec_of(3); cuda_batch_model m; memopt_i_cuda::batch_task t; float old[16];
    memset(old, 0, sizeof old);
    s.rows = 700; s.outputs = 8; s.type = MEMOPT_TYPE_F32; s.kind = MEMOPT_ACTIVATION_NONE; s.misaligned = 0; s.no_update = 0; s.scaled = s.shifted = 1;
    cuda_batch_open(&m, &s);
    for (size_t r = 0; r < 700; ++r) {
        float *z = (float *)(void *)m.slot[CUDA_BATCH_Z].here + r * 8;
        z[0] = 1e4f + (float)(r % 3); z[1] = 7; z[2] = r == 333 ? memopt_i_bits_float(0x7f800001u) : z[2];
        z[3] = r == 699 ? memopt_i_bits_float(0x7f800000u) : z[3]; z[4] = r == 0 ? 1000.0f : z[4]; z[5] = 1e-30f * (float)(r % 7);
    }
    test_put(m.slot[CUDA_BATCH_Z].there, m.slot[CUDA_BATCH_Z].here, m.slot[CUDA_BATCH_Z].bytes);
    CHECK(memopt_i_cuda::batch_resolve(&m.x, &t) == 0);
    memopt_i_cuda::batch_cut(&t, 1 << 20);
    cuda_batch_place(&t);
    memopt_i_cuda::batch_align(&t, 0);
    CHECK(memopt_i_cuda::batch_stage(&t, memopt_i_cuda::BATCH_SPREAD, 0, 700, NULL) == 0 && memopt_i_cuda::batch_join(&t, 0, NULL) == 0);
    CHECK(memopt_i_cuda::batch_stage(&t, memopt_i_cuda::BATCH_OUTPUT, 0, 700, NULL) == 0);
    for (int k = 0; k <= CUDA_BATCH_VARIANCE; ++k) cuda_batch_fetch(&m, k);
    for (size_t c = 0; c < 8; ++c) {
        double sum = 0, squares = 0; const float mean = cuda_batch_get(&m.slot[CUDA_BATCH_STATISTICS], c), inverse = cuda_batch_get(&m.slot[CUDA_BATCH_STATISTICS], 8 + c);
        for (size_t r = 0; r < 700; ++r) sum += (double)cuda_batch_get(&m.slot[CUDA_BATCH_Z], r * 8 + c);
        sum /= 700;
        for (size_t r = 0; r < 700; ++r) squares += pow((double)cuda_batch_get(&m.slot[CUDA_BATCH_Z], r * 8 + c) - sum, 2);
        if (c == 2 || c == 3) { CHECK_AT(inverse != inverse, c); continue; }
        CHECK_AT(fabs((double)mean - sum) <= 1e-6 * fabs(sum) + 1e-7, c);
        CHECK_AT(fabs((double)inverse * sqrt(squares / 700 + (double)1e-5f) - 1) <= (c == 0 ? 1e-4 : 1e-5), c);
        for (size_t r = 0; r < 700; ++r) CHECK_AT(cuda_batch_get(&m.slot[CUDA_BATCH_Y], r * 8 + c) == cuda_batch_get(&m.slot[CUDA_BATCH_Y], r * 8 + c), c);
    }
    CHECK(cuda_batch_get(&m.slot[CUDA_BATCH_STATISTICS], 1) >= 7 && cuda_batch_get(&m.slot[CUDA_BATCH_STATISTICS], 1) <= 7);
    CHECK(cuda_batch_bits(cuda_batch_get(&m.slot[CUDA_BATCH_Y], 1), cuda_batch_get(&m.slot[CUDA_BATCH_SHIFT], 1)));
    cuda_batch_close(&m);
}

/* ---- with the products ---- */
typedef struct cuda_batch_rig { memopt_cuda_ops ops; void *memory; } cuda_batch_rig;
static cuda_batch_rig cuda_batch_rig_open(size_t scratch) {
    cuda_batch_rig r; memopt_cuda_gemm_desc desc; size_t bytes = 0;
    memset(&r, 0, sizeof r); memset(&desc, 0, sizeof desc);
#ifndef __CUDACC__
    cublaslt_mock_reset();
#endif
    desc.shapes = 32; desc.workspace_bytes = test_on_card() ? MEMOPT_CUDA_GEMM_WORKSPACE : 8192; desc.d_workspace = test_device(desc.workspace_bytes);
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == 0);
    r.memory = malloc(bytes);
    CHECK(memopt_cuda_gemm_create(&desc, r.memory, bytes, &r.ops.gemm) == 0);
    r.ops.d_scratch = test_device(scratch); r.ops.scratch_bytes = scratch;
    return r;
}
static void cuda_batch_rig_close(cuda_batch_rig *r) {
    test_synchronize();
    memopt_cuda_gemm_destroy(r->ops.gemm);
    free(r->memory);
#ifndef __CUDACC__
    CHECK(cublaslt_mock_counted().findings == 0);
#endif
}
/* Products of few multiples of 1/32 are exact: z is, and dx and dW are sums of the slopes that z's formulas give. */
static void cuda_batch_whole_case(const cuda_batch_spec *s) {
    const size_t n = s->outputs, in = s->inputs, rows = s->rows; cuda_batch_model m, before; size_t bytes = 0, linear, all;
    memopt_i_cuda::batch_task t; float *old = (float *)malloc(4 * n * sizeof *old), *three = (float *)malloc(3 * n * sizeof *three);
    cuda_batch_open(&m, s);
    before = m;
    for (int k = 0; k < CUDA_BATCH_SLOTS; ++k) {
        before.slot[k].here = (unsigned char *)malloc(m.slot[k].bytes + 16);
        memcpy(before.slot[k].here, m.slot[k].here, m.slot[k].bytes);
    }
    for (size_t c = 0; c < n; ++c) { old[c] = cuda_batch_get(&m.slot[CUDA_BATCH_MEAN], c); old[n + c] = cuda_batch_get(&m.slot[CUDA_BATCH_VARIANCE], c);
        old[2 * n + c] = cuda_batch_get(&m.slot[CUDA_BATCH_DSHIFT], c); old[3 * n + c] = cuda_batch_get(&m.slot[CUDA_BATCH_DSCALE], c); }
    CHECK(memopt_i_cuda::batch_resolve(&m.x, &t) == 0);
    CHECK(memopt_i_cuda::batch_scratch(NULL, &t, s->part, &linear, &all) == 0);
    CHECK(memopt_cuda_batch_norm_scratch(NULL, &m.x, &bytes) == 0 && (s->part != MEMOPT_I_CUDA_BATCH_PART || bytes == all));
    cuda_batch_rig r = cuda_batch_rig_open(all);
    if (s->part == MEMOPT_I_CUDA_BATCH_PART) CHECK(memopt_cuda_batch_norm_forward(&r.ops, &m.x, NULL) == 0);
    else CHECK(memopt_i_cuda::batch_forward(&r.ops, &m.x, s->part, NULL) == 0);
    test_synchronize();
    for (int k = 0; k < CUDA_BATCH_SLOTS; ++k) cuda_batch_fetch(&m, k);
    for (size_t i = 0; i < rows * n; ++i) {
        double z = s->biased ? (double)cuda_batch_get(&before.slot[CUDA_BATCH_BIAS], i % n) : 0;
        for (size_t k = 0; k < in; ++k)
            z += (double)cuda_batch_get(&before.slot[CUDA_BATCH_X], i / n * in + k) * (double)cuda_batch_get(&before.slot[CUDA_BATCH_W], i % n * in + k);
        CHECK_AT(cuda_batch_bits(cuda_batch_get(&m.slot[CUDA_BATCH_Z], i) + 0.0f, cuda_batch_stored(s->type, (float)z) + 0.0f), i);
    }
    cuda_batch_check_statistics(&m, old);
    cuda_batch_check_output(&m);
    if (s->part == MEMOPT_I_CUDA_BATCH_PART) CHECK(memopt_cuda_batch_norm_backward(&r.ops, &m.x, NULL) == 0);
    else CHECK(memopt_i_cuda::batch_backward(&r.ops, &m.x, s->part, NULL) == 0);
    test_synchronize();
    for (int k = 0; k < CUDA_BATCH_SLOTS; ++k) cuda_batch_fetch(&m, k);
    cuda_batch_check_sums(&m, old + 2 * n, NULL);
    memopt_carver carver = memopt_carver_begin(r.ops.d_scratch);
    memopt_i_cuda::batch_lay_out(&t, linear, &carver);
    test_get(three, t.factor, 3 * n * sizeof *three);
    for (size_t i = 0; i < rows * n; ++i) cuda_batch_set(&m.slot[CUDA_BATCH_SLOPE], i, cuda_batch_slope(&m, i, three));
    for (size_t i = 0; i < rows * in; ++i) {
        double want = 0, size = 0;
        for (size_t c = 0; c < n; ++c) {
            const double x = (double)cuda_batch_get(&m.slot[CUDA_BATCH_SLOPE], i / in * n + c) * (double)cuda_batch_get(&before.slot[CUDA_BATCH_W], c * in + i % in);
            want += x; size += fabs(x);
        }
        CHECK_AT(fabs((double)cuda_batch_get(&m.slot[CUDA_BATCH_DX], i) - want) <= ldexp(size * (double)(n + 2), -24) + 1.01 * cuda_batch_unit(s->type, want), i);
    }
    for (size_t i = 0; i < n * (in + 1); ++i) { /* of weights, then of the bias */
        const int bias = i >= n * in; const size_t c = bias ? i - n * in : i / in, at = bias ? c : i;
        double want = 0, size = 0; const int k = bias ? CUDA_BATCH_DBIAS : CUDA_BATCH_DW;
        for (size_t row = 0; row < rows; ++row) {
            const double x = (double)cuda_batch_get(&m.slot[CUDA_BATCH_SLOPE], row * n + c) * (bias ? 1 : (double)cuda_batch_get(&before.slot[CUDA_BATCH_X], row * in + i % in));
            want += x; size += fabs(x);
        }
        if (s->adds) want += (double)cuda_batch_get(&before.slot[k], at);
        CHECK_AT(fabs((double)cuda_batch_get(&m.slot[k], at) - want) <= ldexp(size * (double)(rows + 2), -24) + 1.01 * cuda_batch_unit(s->gradient_type, want) + ldexp(fabs(want), -23), i);
    }
    cuda_batch_rig_close(&r);
    for (int k = 0; k < CUDA_BATCH_SLOTS; ++k) free(before.slot[k].here);
    free(old); free(three);
    cuda_batch_close(&m);
}
static void cuda_batch_whole(void) {
    static const size_t shapes[][3] = { { 64, 8, 16 }, { 33, 5, 7 }, { 600, 3, 9 }, { 40, 16, 264 }, { 2, 1, 1 }, { 300, 8, 24 } };
    for (int i = 0; i < 18; ++i) {
        cuda_batch_spec s = cuda_batch_spec_of(i * 5 + 1); const int failures = test_failures;
        s.rows = shapes[i % 6][0]; s.inputs = shapes[i % 6][1]; s.outputs = shapes[i % 6][2]; s.biased = i % 2;
        s.type = (memopt_type)(i / 6); s.gradient_type = i / 3 % 2 ? MEMOPT_TYPE_F32 : s.type; s.misaligned = 0;
        s.part = i % 3 ? MEMOPT_I_CUDA_BATCH_PART : 64;
        if (!test_on_card()) simulator_schedule(i % 8);
        cuda_batch_whole_case(&s);
        if (test_failures != failures) { printf("case %d\n", i); return; }
    }
    for (int i = 0; i < 6; ++i) { /* several parts of the backward, with sums of their own where gradients have 16 bits */
        cuda_batch_spec s = cuda_batch_spec_of(i * 5 + 1);
        s.rows = 100; s.inputs = 6; s.outputs = 264; s.biased = 1; s.adds = i % 2; s.misaligned = 0;
        s.type = s.gradient_type = (memopt_type)(i / 2);
        s.part = 64;
        cuda_batch_whole_case(&s);
    }
}
/* Folded weights and bias, against the twin. */
static void cuda_batch_fold(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 5, 3 }, { 8, 16 }, { 33, 257 }, { 3, 1100 }, { 7, 0 }, { 300, 2 } };
    for (int i = 0; i < 21; ++i) {
        cuda_batch_spec s = cuda_batch_spec_of(i); cuda_batch_model m; memopt_batch_norm here; const cuda_batch_slot *k = m.slot;
        const size_t n = shapes[i % 7][0], in = shapes[i % 7][1]; float *w, *b, *back, *d_w, *d_b;
        s.rows = 2; s.outputs = n; s.inputs = in; s.type = (memopt_type)(i / 7); s.biased = i % 2; s.misaligned = i % 3 == 1 ? 31 : 0;
        cuda_batch_open(&m, &s);
        w = (float *)malloc((2 * n * in + 2 * n) * sizeof *w); b = w + n * in; back = b + n;
        d_w = (float *)test_device_at(n * in * 4, i % 4 == 3 ? 4 : 0); d_b = (float *)test_device(n * 4);
        here = m.x;
        here.linear.weights = k[CUDA_BATCH_W].here; here.linear.bias = s.biased ? k[CUDA_BATCH_BIAS].here : NULL;
        here.scale = s.scaled ? k[CUDA_BATCH_SCALE].here : NULL; here.shift = s.shifted ? k[CUDA_BATCH_SHIFT].here : NULL;
        here.running_mean = (float *)(void *)k[CUDA_BATCH_MEAN].here; here.running_variance = (float *)(void *)k[CUDA_BATCH_VARIANCE].here;
        CHECK(memopt_batch_norm_fold(NULL, &here, w, b) == MEMOPT_OK);
        TEST_SCHEDULES(2) {
            test_poison(d_w, n * in * 4); test_poison(d_b, n * 4);
            CHECK(memopt_cuda_batch_norm_fold(NULL, &m.x, d_w, d_b, NULL) == 0);
            test_get(back, d_w, n * in * 4);
            CHECK_AT(!memcmp(back, w, n * in * 4), i);
            test_get(back, d_b, n * 4);
            CHECK_AT(!memcmp(back, b, n * 4), i);
        }
        free(w);
        cuda_batch_close(&m);
    }
}
static void cuda_batch_refused(void) {
    cuda_batch_spec s = cuda_batch_spec_of(0); cuda_batch_model m; memopt_batch_norm x; memopt_cuda_ops ops; size_t bytes = 0; uint64_t before = 1, after = 1;
    float *d_w, *d_b;
    s.rows = 8; s.inputs = 4; s.outputs = 8; s.type = s.gradient_type = MEMOPT_TYPE_F32; s.part = MEMOPT_I_CUDA_BATCH_PART; s.scaled = s.shifted = s.biased = 1; s.misaligned = 0;
    cuda_batch_open(&m, &s);
    CHECK(memopt_cuda_batch_norm_scratch(NULL, &m.x, &bytes) == 0);
    CHECK(memopt_cuda_batch_norm_scratch(NULL, &m.x, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_batch_norm_scratch(NULL, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    cuda_batch_rig r = cuda_batch_rig_open(bytes);
    d_w = (float *)test_device(128); d_b = (float *)test_device(32);
    CHECK(memopt_cuda_batch_norm_forward(&r.ops, &m.x, NULL) == 0);
    for (int k = 0; k < CUDA_BATCH_SLOTS; ++k) { cuda_batch_fetch(&m, k); before = cuda_batch_hash(before, m.slot[k].here, m.slot[k].bytes); }
#define CUDA_BATCH_REFUSED(change, forward, backward, fold) do { x = m.x; ops = r.ops; change;                                       \
        CHECK(memopt_cuda_batch_norm_forward(&ops, &x, NULL) == (forward)); CHECK(memopt_cuda_batch_norm_backward(&ops, &x, NULL) == (backward)); \
        if ((fold) != 1) CHECK(memopt_cuda_batch_norm_fold(NULL, &x, d_w, d_b, NULL) == (fold)); } while (0)
    const int argument = MEMOPT_ERR_ARGUMENT, misaligned = MEMOPT_CUDA_ERR_ALIGNMENT, overlap = MEMOPT_CUDA_ERR_OVERLAP, null = MEMOPT_CUDA_ERR_NULL;
    CHECK(memopt_cuda_batch_norm_forward(&r.ops, NULL, NULL) == argument && memopt_cuda_batch_norm_backward(&r.ops, NULL, NULL) == argument);
    CHECK(memopt_cuda_batch_norm_forward(NULL, &m.x, NULL) == null && memopt_cuda_batch_norm_backward(NULL, &m.x, NULL) == null);
    CUDA_BATCH_REFUSED(x.linear.rows = 1, argument, argument, 1);
    CUDA_BATCH_REFUSED(x.momentum = -1, argument, argument, argument);
    CUDA_BATCH_REFUSED(x.momentum = 2, argument, argument, argument);
    CUDA_BATCH_REFUSED(x.eps = -1, argument, argument, argument);
    CUDA_BATCH_REFUSED(x.linear.residual = x.linear.input, argument, argument, argument);
    CUDA_BATCH_REFUSED(x.no_update = 2, argument, argument, argument);
    CUDA_BATCH_REFUSED(x.linear.accumulate = 2, argument, argument, argument);
    CUDA_BATCH_REFUSED(x.linear.type = (memopt_type)3, argument, argument, argument);
    CUDA_BATCH_REFUSED(x.linear.gradient_type = (memopt_type)3, argument, argument, argument);
    CUDA_BATCH_REFUSED(x.linear.rows = SIZE_MAX / 4, MEMOPT_ERR_OVERFLOW, MEMOPT_ERR_OVERFLOW, MEMOPT_ERR_OVERFLOW);
    CUDA_BATCH_REFUSED(x.linear.outputs = SIZE_MAX / 2, MEMOPT_ERR_OVERFLOW, MEMOPT_ERR_OVERFLOW, MEMOPT_ERR_OVERFLOW);
    CUDA_BATCH_REFUSED(x.linear.inputs = SIZE_MAX, MEMOPT_ERR_OVERFLOW, MEMOPT_ERR_OVERFLOW, MEMOPT_ERR_OVERFLOW);
    CUDA_BATCH_REFUSED(x.linear.pre_activation = NULL, null, null, 1);
    CUDA_BATCH_REFUSED(x.statistics = NULL, null, null, 1);
    CUDA_BATCH_REFUSED(x.scale = (const char *)x.scale + 1, misaligned, misaligned, misaligned);

    CUDA_BATCH_REFUSED({ x.statistics = x.running_mean; x.linear.grad_output = NULL; }, overlap, null, 1);
    CUDA_BATCH_REFUSED({ x.linear.output = NULL; x.linear.grad_output = NULL; x.running_mean = NULL; }, null, null, null);
    CUDA_BATCH_REFUSED({ x.linear.input = NULL; x.running_variance = (float *)(void *)((char *)x.running_variance + 2); }, null, null, misaligned);
    CUDA_BATCH_REFUSED({ x.linear.weights = NULL; x.grad_scale = x.grad_shift; }, null, null, null);
    CUDA_BATCH_REFUSED({ x.grad_scale = x.grad_shift; x.running_mean = x.running_variance; }, overlap, overlap, 1);
    CUDA_BATCH_REFUSED(--ops.scratch_bytes, MEMOPT_ERR_BUFFER, MEMOPT_ERR_BUFFER, 1);
    CUDA_BATCH_REFUSED(ops.d_scratch = (char *)ops.d_scratch + 64, misaligned, misaligned, 1);
    /* what linear refuses, before the gradients of scale and shift are written */
    x = m.x; ops = r.ops;
    x.linear.gradient_type = MEMOPT_TYPE_F16;
    CHECK(memopt_cuda_batch_norm_backward(&ops, &x, NULL) == MEMOPT_CUDA_ERR_TYPE);
    x.linear.gradient_type = MEMOPT_TYPE_F32;
    CUDA_BATCH_REFUSED(ops.gemm = NULL, null, null, 1);
#ifndef __CUDACC__
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CUDA_BATCH_REFUSED((void)0, argument, argument, 1);
    CHECK(cudaSetDevice(0) == cudaSuccess);
#endif
    CHECK(memopt_cuda_batch_norm_fold(NULL, &m.x, NULL, d_b, NULL) == null && memopt_cuda_batch_norm_fold(NULL, &m.x, d_w, NULL, NULL) == null);
    CHECK(memopt_cuda_batch_norm_fold(NULL, NULL, d_w, d_b, NULL) == argument && memopt_cuda_batch_norm_fold(NULL, &m.x, d_w, d_w + 3, NULL) == overlap);
#ifndef __CUDACC__
    simulator_pending_error(cudaErrorIllegalAddress);
    CUDA_BATCH_REFUSED((void)0, MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress, MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress,
                       MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
    CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
    simulator_pending_error(0);
    for (int k = 0; k < 2; ++k) {
        simulator_fail_launch(1);
        CHECK((k ? memopt_cuda_batch_norm_backward(&r.ops, &m.x, NULL) : memopt_cuda_batch_norm_fold(NULL, &m.x, d_w, d_b, NULL))
              == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
        simulator_fail_launch(0);
    }
#endif
    test_synchronize();
    for (int k = 0; k < CUDA_BATCH_SLOTS; ++k) { cuda_batch_fetch(&m, k); after = cuda_batch_hash(after, m.slot[k].here, m.slot[k].bytes); }
    (void)before; (void)after;
    CHECK(before == after);
    x = m.x; ops = r.ops;
    x.linear.grad_input = x.linear.grad_weights = x.linear.grad_bias = NULL; ops.gemm = NULL; /* then there is no product */
    CHECK(memopt_cuda_batch_norm_backward(&ops, &x, NULL) == 0);
    cuda_batch_rig_close(&r);
    cuda_batch_close(&m);
}
static void test_cuda_batchnorm(void) {
    RUN(cuda_batch_z_values);
    RUN(cuda_batch_z_same_bits);
    RUN(cuda_batch_z_hard);
    RUN(cuda_batch_whole);
    RUN(cuda_batch_fold);
    RUN(cuda_batch_refused);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_batchnorm(); return test_totals(); }
#endif
