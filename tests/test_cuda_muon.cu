/* test_cuda_muon.cu - Muon on a device, section cuda_muon. Momenta, u and the step of weights have the CPU's bits,
   given what is orthogonal; each product is within a bound of double; whole steps follow the rule in double. */
#include "test_cuda.h"
#ifndef __CUDACC__
#  include "cublaslt_mock.h"
#endif

enum { CUDA_MUON_TENSORS = 6 };

typedef struct cuda_muon_spec {
    memopt_state_format state;
    memopt_i_weights weights;
    memopt_type gradients, products;
    size_t block, offset; /* offset: elements that device arrays begin after 256 */
    int    nesterov, match_rms, tensors;
    size_t rows[CUDA_MUON_TENSORS], columns[CUDA_MUON_TENSORS]; /* rows 0: a vector, for AdamW */
} cuda_muon_spec;

typedef struct cuda_muon_side { /* the CPU's, or the device's */
    memopt_optim_desc desc;
    memopt_optim_tensor tensor[CUDA_MUON_TENSORS];
    memopt_optim *optim;
    void *memory;
} cuda_muon_side;

typedef struct cuda_muon_pair {
    cuda_muon_spec spec;
    cuda_muon_side cpu, gpu;
    memopt_cuda_muon muon;
    memopt_cuda_gemm *gemm;
    void  *gemm_memory, *blocks[4 * CUDA_MUON_TENSORS];
    int    block_count;
    size_t wide, gradient, state_bytes[CUDA_MUON_TENSORS], scratch_bytes;
    void  *d_scratch;
} cuda_muon_pair;

static void *cuda_muon_block(cuda_muon_pair *p, size_t bytes) {
    void *block = memopt_i_system_alloc(NULL, bytes, 64);

    memset(block, 0x5A, bytes);
    p->blocks[p->block_count++] = block;
    return block;
}

static memopt_cuda_gemm *cuda_muon_gemm(void **memory) {
    memopt_cuda_gemm_desc desc;
    memopt_cuda_gemm *gemm = NULL;
    size_t bytes = 0;

    memset(&desc, 0, sizeof desc);
    desc.deterministic = 1;
    desc.workspace_bytes = test_on_card() ? MEMOPT_CUDA_GEMM_WORKSPACE : 8192;
    desc.d_workspace = test_device(desc.workspace_bytes);
    CHECK(memopt_cuda_gemm_bytes(&desc, &bytes) == 0);
    *memory = memopt_i_system_alloc(NULL, bytes, 64);
    CHECK(memopt_cuda_gemm_create(&desc, *memory, bytes, &gemm) == 0);
    return gemm;
}

static void cuda_muon_object(cuda_muon_side *s) {
    size_t bytes = 0;

    CHECK(memopt_optim_bytes(&s->desc, &bytes) == MEMOPT_OK);
    s->memory = memopt_i_system_alloc(NULL, bytes, 64);
    CHECK(memopt_optim_create(&s->desc, s->memory, bytes, &s->optim) == MEMOPT_OK);
}

static float cuda_muon_weight(size_t i) { return (float)((int)(i * 5 % 13) - 6) / 32; }

static void cuda_muon_put(void *to, size_t i, float x, size_t bytes, int half) {
    const uint16_t code = half ? memopt_to_f16(x) : memopt_to_bf16(x);

    if (bytes == 4) memcpy((unsigned char *)to + 4 * i, &x, 4);
    else memcpy((unsigned char *)to + 2 * i, &code, 2);
}

/* A tensor of both sides: equal weights, states begun. */
static void cuda_muon_add(cuda_muon_pair *p, int k) {
    const size_t offset = p->spec.offset;
    const size_t n = (p->spec.rows[k] ? p->spec.rows[k] : 1) * p->spec.columns[k];
    memopt_optim_tensor *c = &p->cpu.tensor[k];
    memopt_optim_tensor *g = &p->gpu.tensor[k];

    c->count = n;
    c->columns = p->spec.rows[k] ? p->spec.columns[k] : 0;
    c->adamw = !p->spec.rows[k];
    c->group = (size_t)c->adamw;
    *g = *c;
    c->weights = cuda_muon_block(p, n * p->wide);
    c->gradients = cuda_muon_block(p, n * p->gradient);
    g->weights = test_device_at(n * p->wide, (offset == 3 ? 0 : offset) * p->wide);
    g->gradients = test_device_at(n * p->gradient, (offset == 1 ? 0 : offset) * p->gradient);
    for (size_t i = 0; i < n; ++i) cuda_muon_put(c->weights, i, cuda_muon_weight(i), p->wide, 0);
    test_put(g->weights, c->weights, n * p->wide);
    if (p->cpu.desc.extra) {
        c->extra = cuda_muon_block(p, n * 2);
        g->extra = test_device_at(n * 2, offset * 2);
        memset(c->extra, 0, n * 2);
        test_put(g->extra, c->extra, n * 2);
    }
    CHECK(memopt_optim_state_bytes(&p->cpu.desc, (size_t)k, &p->state_bytes[k]) == MEMOPT_OK);
    c->state = cuda_muon_block(p, p->state_bytes[k]);
    g->state = test_device_at(p->state_bytes[k], offset * 64);
}

static cuda_muon_pair *cuda_muon_open(const cuda_muon_spec *spec) {
    cuda_muon_pair *p = (cuda_muon_pair *)calloc(1, sizeof *p);
    memopt_optim_desc *d = &p->cpu.desc;

#ifndef __CUDACC__
    cublaslt_mock_reset();
#endif
    p->spec = *spec;
    p->gemm = cuda_muon_gemm(&p->gemm_memory);
    d->kind = MEMOPT_OPTIM_MUON;
    d->state = spec->state;
    d->gradients = spec->gradients;
    d->block = spec->block;
    d->min_quantized = 64;
    d->seed = 42;
    test_set_weights(d, spec->weights);
    d->tensor_count = (size_t)spec->tensors;
    p->wide = memopt_type_bytes(d->weights);
    p->gradient = memopt_type_bytes(d->gradients);
    p->gpu.desc = *d;
    p->cpu.desc.tensors = p->cpu.tensor;
    p->gpu.desc.tensors = p->gpu.tensor;
    p->cpu.desc.muon = memopt_muon_products(spec->products);
    p->gpu.desc.muon = memopt_cuda_muon_products(&p->muon, p->gemm, spec->products);
    for (int k = 0; k < spec->tensors; ++k) cuda_muon_add(p, k);
    cuda_muon_object(&p->cpu);
    cuda_muon_object(&p->gpu);
    CHECK(memopt_cuda_optim_scratch(p->gpu.optim, &p->scratch_bytes) == 0);
    p->d_scratch = test_device(p->scratch_bytes);
    for (size_t k = 0; k < (size_t)spec->tensors; ++k) {
        CHECK(memopt_optim_state_init(p->cpu.optim, k) == MEMOPT_OK);
        CHECK(memopt_cuda_optim_state_init(p->gpu.optim, k, NULL) == 0);
        CHECK(memopt_cuda_optim_state_check(p->gpu.optim, k, p->state_bytes[k], NULL) == 0);
    }
    return p;
}

static void cuda_muon_close(cuda_muon_pair *p) {
    test_synchronize();
    memopt_cuda_gemm_destroy(p->gemm);
    memopt_i_system_free(NULL, p->gemm_memory, 0, 64);
    memopt_i_system_free(NULL, p->cpu.memory, 0, 64);
    memopt_i_system_free(NULL, p->gpu.memory, 0, 64);
    while (p->block_count) memopt_i_system_free(NULL, p->blocks[--p->block_count], 0, 64);
    free(p);
    test_device_free(0);
#ifndef __CUDACC__
    CHECK(cublaslt_mock_counted().handles == 0 && cublaslt_mock_counted().findings == 0);
#endif
}

static float cuda_muon_gradient(size_t k, size_t i, uint64_t t) { /* of full rank, and several sizes */
    uint64_t state = k * 131 + i * 7919 + t * 104729;
    const float x = (float)((int)(test_random(&state) >> 40 & 0xffff) - 0x8000) / 0x8000;

    return i % 5 ? x : x * 0.015625f;
}

/* bad: one of 16 is NaN, infinite or too large. */
static void cuda_muon_feed(cuda_muon_pair *p, uint64_t t, int bad) {
    static const uint32_t refused[4] = { 0x7fc00001u, 0x7f800000u, 0xff800000u, 0x7f7f0000u };

    for (size_t k = 0; k < (size_t)p->spec.tensors; ++k) {
        const memopt_optim_tensor *c = &p->cpu.tensor[k];

        for (size_t i = 0; i < c->count; ++i) {
            float x = cuda_muon_gradient(k, i, t);

            if (bad && (i + t) % 16 == 3) x = memopt_i_bits_float(refused[i / 16 % 4]);
            cuda_muon_put((void *)(uintptr_t)c->gradients, i, x, p->gradient, p->spec.gradients == MEMOPT_TYPE_F16);
        }
        test_put((void *)(uintptr_t)p->gpu.tensor[k].gradients, c->gradients, c->count * p->gradient);
    }
}

static void cuda_muon_groups(memopt_optim_group *g, const cuda_muon_spec *spec) {
    g[0] = memopt_optim_group_default(MEMOPT_OPTIM_MUON);
    g[0].rate = 0.02;
    g[0].nesterov = spec->nesterov;
    g[0].match_rms = spec->match_rms;
    g[1] = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
}

static memopt_optim_run cuda_muon_run(const memopt_optim_group *g, uint64_t step) {
    memopt_optim_run run;

    memset(&run, 0, sizeof run);
    run.step = step;
    run.groups = g;
    run.group_count = 2;
    return run;
}

/* Bytes that differ; which NaN a NaN is does not matter. */
static size_t cuda_muon_differs(const void *host, const void *device, size_t n, size_t bytes) {
    unsigned char *got = (unsigned char *)malloc(n * bytes + 1);
    const unsigned char *want = (const unsigned char *)host;
    size_t off = 0;

    test_get(got, device, n * bytes);
    for (size_t i = 0; i < n; ++i) {
        const uint32_t infinity = bytes == 4 ? 0x7f800000u : 0x7f80u;
        const uint32_t most = bytes == 4 ? 0x7fffffffu : 0x7fffu;
        uint32_t a = 0;
        uint32_t b = 0;

        memcpy(&a, want + i * bytes, bytes);
        memcpy(&b, got + i * bytes, bytes);
        off += a != b && !(bytes > 1 && (a & most) > infinity && (b & most) > infinity);
    }
    free(got);
    return off;
}

static void cuda_muon_same(const cuda_muon_pair *p, uint64_t at) {
    memopt_cuda_optim_outcome outcome;

    CHECK(memopt_cuda_optim_result(p->gpu.optim, p->d_scratch, p->scratch_bytes, &outcome, NULL) == 0);
    CHECK_AT(outcome.skipped == memopt_optim_skipped(p->cpu.optim) && !outcome.stopped && !outcome.left_out, at);
    for (int k = 0; k < p->spec.tensors; ++k) {
        const memopt_optim_tensor *c = &p->cpu.tensor[k];
        const memopt_optim_tensor *g = &p->gpu.tensor[k];
        const uint64_t place = at * 10 + (uint64_t)k;

        CHECK_AT(!cuda_muon_differs(c->weights, g->weights, c->count, p->wide), place);
        if (c->extra) CHECK_AT(!cuda_muon_differs(c->extra, g->extra, c->count, 2), place);
        CHECK_AT(!cuda_muon_differs(c->state, g->state, p->state_bytes[k], 1), place);
    }
}

/* ---- a step by parts, whose orthogonal matrix the CPU takes over ---- */
static memopt_i_cuda::muon_matrix cuda_muon_matrix(cuda_muon_pair *p, size_t k, memopt_i_cuda::optim_call *call) {
    memopt_i_cuda::muon_matrix m;

    CHECK(memopt_i_cuda::optim_call_of(call, p->gpu.optim, p->d_scratch, p->scratch_bytes, (cudaStream_t)NULL) == 0);
    memopt_i_cuda::muon_begin(&m, call, k);
    return m;
}

/* Tensor k of the device; of the CPU by its passes around what the device has found. */
static void cuda_muon_apply(cuda_muon_pair *p, size_t k) {
    memopt_optim *o = p->cpu.optim;
    const memopt_optim_tensor *t = &p->cpu.tensor[k];
    const size_t launches = simulator_launches();
    memopt_i_cuda::optim_call call;
    int again = 0;

    if (!t->adamw) {
        CHECK(memopt_cuda_optim_measure(p->gpu.optim, k, 0, t->count, p->d_scratch, p->scratch_bytes, NULL) == 0);
        CHECK(memopt_cuda_optim_join(p->gpu.optim, k, &again, p->d_scratch, p->scratch_bytes, NULL) == 0 && !again);
        CHECK(simulator_launches() == launches);
    }
    CHECK(memopt_cuda_optim_apply(p->gpu.optim, k, 0, t->count, p->d_scratch, p->scratch_bytes, NULL) == 0);
    CHECK(memopt_optim_applied(p->gpu.optim, k) == t->count);
    if (t->adamw) CHECK(memopt_i_optim_apply_at(o, k, 0, t->count) == MEMOPT_OK);
    else {
        CHECK(o->desc.muon->measure_fn(o, k) == MEMOPT_OK);
        CHECK(memopt_i_optim_join(o, k, &again) == MEMOPT_OK);
        test_get(o->matrix, cuda_muon_matrix(p, k, &call).next, t->count * memopt_type_bytes(p->spec.products));
        memopt_i_muon_pass(o, k, 1); /* after five rounds X lies where Y was */
    }
}

enum { CUDA_MUON_HOST, CUDA_MUON_FACTOR, CUDA_MUON_PROGRESS }; /* who knows the factor, the step and the rate */

static memopt_cuda_status cuda_muon_begin(cuda_muon_pair *p, const memopt_optim_run *run, int known, int whole) {
    const memopt_cuda_optim_progress progress = { run->step - 1, run->gradient_factor, 0.75 };
    memopt_cuda_optim_progress *d = (memopt_cuda_optim_progress *)test_device(sizeof *d);
    memopt_optim_run r = *run;

    test_put(d, &progress, sizeof progress);
    if (known != CUDA_MUON_HOST) r.gradient_factor = 0;
    if (known == CUDA_MUON_PROGRESS) r.step = 7; /* it is not looked at */
    if (known == CUDA_MUON_HOST)
        return (whole ? memopt_cuda_optim_step<> : memopt_cuda_optim_begin<>)(p->gpu.optim, &r, p->d_scratch,
                                                                              p->scratch_bytes, NULL);
    if (known == CUDA_MUON_FACTOR)
        return (whole ? memopt_cuda_optim_step_with_factor<> : memopt_cuda_optim_begin_with_factor<>)(
            p->gpu.optim, &r, &d->factor, p->d_scratch, p->scratch_bytes, NULL);
    return (whole ? memopt_cuda_optim_step_with_progress<> : memopt_cuda_optim_begin_with_progress<>)(
        p->gpu.optim, &r, d, p->d_scratch, p->scratch_bytes, NULL);
}

static void cuda_muon_steps(cuda_muon_pair *p, uint64_t steps, int known, uint64_t at) {
    memopt_optim_group g[2];
    memopt_optim_group slower[2];

    cuda_muon_groups(g, &p->spec);
    memcpy(slower, g, sizeof g);
    if (known == CUDA_MUON_PROGRESS) {
        slower[0].rate *= 0.75;
        slower[1].rate *= 0.75;
    }
    for (uint64_t t = 1; t <= steps; ++t) {
        memopt_optim_run run = cuda_muon_run(slower, t);

        run.gradient_factor = 0.5;
        cuda_muon_feed(p, t, t == 2);
        CHECK(memopt_optim_begin(p->cpu.optim, &run) == MEMOPT_OK);
        run.groups = g;
        CHECK(cuda_muon_begin(p, &run, known, 0) == 0);
        for (size_t k = 0; k < (size_t)p->spec.tensors; ++k) cuda_muon_apply(p, k);
        CHECK(memopt_optim_end(p->cpu.optim) == MEMOPT_OK && memopt_cuda_optim_end(p->gpu.optim) == 0);
        cuda_muon_same(p, at * 10 + t);
    }
}

static cuda_muon_spec cuda_muon_of(memopt_state_format state, memopt_i_weights weights, memopt_type products) {
    cuda_muon_spec s;

    memset(&s, 0, sizeof s);
    s.state = state;
    s.weights = weights;
    s.products = products;
    s.nesterov = 1;
    return s;
}

static void cuda_muon_shape(cuda_muon_spec *s, size_t rows, size_t columns) {
    s->rows[s->tensors] = rows;
    s->columns[s->tensors++] = columns;
}

/* Every state, format of weights and of gradients, with either products; matrices beside vectors of AdamW. */
static void cuda_muon_formats(void) {
    static const size_t blocks[4] = { 0, 32, 96, 4096 };
    unsigned n = 0;

    for (int state = 0; state < 3; ++state) for (int weights = 0; weights < 4; ++weights)
        for (int gradients = 0; gradients < 3; ++gradients, ++n) {
            cuda_muon_spec s = cuda_muon_of((memopt_state_format)state, (memopt_i_weights)weights,
                                            n % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32);
            cuda_muon_pair *p;

            s.gradients = (memopt_type)gradients;
            s.block = blocks[n % 4];
            s.offset = n % 5;
            s.nesterov = n % 3 != 1;
            s.match_rms = n % 4 > 1;
            cuda_muon_shape(&s, 19, 23);
            cuda_muon_shape(&s, 0, 301);
            cuda_muon_shape(&s, 37, 8);
            simulator_schedule((int)(n % 8));
            p = cuda_muon_open(&s);
            cuda_muon_steps(p, 2, (int)(n % 3), n);
            cuda_muon_close(p);
        }
}

/* Shapes: one element, vectors, tall and wide, several tiles and 8-bit blocks, and a last one that is short. */
static const size_t cuda_muon_shapes[][2] = { { 1, 1 }, { 1, 300 }, { 300, 1 }, { 2, 2 }, { 7, 5 }, { 16, 16 },
                                              { 33, 70 }, { 70, 33 }, { 3, 2731 }, { 1025, 4 } };
enum { CUDA_MUON_SHAPES = sizeof cuda_muon_shapes / sizeof *cuda_muon_shapes };

static void cuda_muon_all_shapes(void) {
    for (size_t i = 0; i < CUDA_MUON_SHAPES; ++i) TEST_SCHEDULES(3) {
        cuda_muon_spec s = cuda_muon_of((memopt_state_format)test_schedule_i, MEMOPT_I_WEIGHTS_F32,
                                        i % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32);
        cuda_muon_pair *p;

        s.match_rms = (int)(i % 3 == 1);
        s.offset = i % 2;
        s.block = i > 7 ? 96 : 0; /* which does not divide a tile's 4096 */
        cuda_muon_shape(&s, cuda_muon_shapes[i][0], cuda_muon_shapes[i][1]);
        p = cuda_muon_open(&s);
        cuda_muon_steps(p, 2, (int)(i % 3), i);
        cuda_muon_close(p);
    }
}

/* What is multiplied, before it is: the CPU's bits, 0 where an element is skipped. */
static void cuda_muon_u(void) {
    for (int way = 0; way < 12; ++way) {
        const int state = way / 4, known = way % 2;
        cuda_muon_spec s = cuda_muon_of((memopt_state_format)state, MEMOPT_I_WEIGHTS_F32, (memopt_type)(way / 2 % 2));
        memopt_i_cuda::optim_call call;
        memopt_i_cuda::muon_matrix m;
        memopt_optim_group g[2];
        memopt_optim_run run;
        cuda_muon_pair *p;

        s.nesterov = known;
        s.offset = (size_t)state;
        cuda_muon_shape(&s, 39, 61);
        cuda_muon_groups(g, &s);
        run = cuda_muon_run(g, 1);
        run.gradient_factor = 2;
        p = cuda_muon_open(&s);
        cuda_muon_feed(p, 1, 1);
        CHECK(memopt_optim_begin(p->cpu.optim, &run) == MEMOPT_OK);
        CHECK(cuda_muon_begin(p, &run, known, 0) == 0);
        CHECK(p->cpu.optim->desc.muon->measure_fn(p->cpu.optim, 0) == MEMOPT_OK);
        m = cuda_muon_matrix(p, 0, &call);
        CHECK(memopt_i_cuda::muon_terms(&m, 0) == 0 && memopt_i_cuda::muon_momentum(&m, 0) == 0);
        CHECK(!cuda_muon_differs(p->cpu.optim->matrix, m.x, 39 * 61, memopt_type_bytes(s.products)));
        CHECK(memopt_optim_skipped(p->cpu.optim) > 100);
        CHECK(memopt_optim_end(p->cpu.optim) == MEMOPT_OK && memopt_cuda_optim_end(p->gpu.optim) == 0);
        cuda_muon_close(p);
    }
}

/* ---- whole steps ---- */
static uint32_t cuda_muon_hash(const cuda_muon_pair *p) { /* of the device's weights and states */
    uint32_t crc = 0;

    for (int k = 0; k < p->spec.tensors; ++k) {
        const memopt_optim_tensor *c = &p->cpu.tensor[k];

        test_get(c->weights, p->gpu.tensor[k].weights, c->count * p->wide);
        test_get(c->state, p->gpu.tensor[k].state, p->state_bytes[k]);
        crc = memopt_crc32c(crc, c->weights, c->count * p->wide);
        crc = memopt_crc32c(crc, c->state, p->state_bytes[k]);
    }
    return crc;
}

enum { CUDA_MUON_WHOLE, CUDA_MUON_PARTS, CUDA_MUON_FUSED };

static void cuda_muon_by_parts(cuda_muon_pair *p) {
    const size_t count = (size_t)p->spec.tensors;
    int again = 0;

    for (size_t k = 0; k < count; ++k) { /* all are measured first, though there is room for one matrix */
        const size_t n = p->gpu.tensor[k].count;

        if (p->gpu.tensor[k].adamw) continue;
        CHECK(!memopt_cuda_optim_measure(p->gpu.optim, k, 0, n, p->d_scratch, p->scratch_bytes, NULL));
        CHECK(!memopt_cuda_optim_join(p->gpu.optim, k, &again, p->d_scratch, p->scratch_bytes, NULL));
    }
    for (size_t k = count; k-- > 0;) {
        const size_t n = p->gpu.tensor[k].count;

        CHECK(!memopt_cuda_optim_apply(p->gpu.optim, k, 0, n, p->d_scratch, p->scratch_bytes, NULL));
        CHECK(memopt_cuda_optim_apply(p->gpu.optim, k, 0, n, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_ERR_STATE);
    }
    CHECK(memopt_cuda_optim_end(p->gpu.optim) == 0);
}

static uint32_t cuda_muon_step(const cuda_muon_spec *s, int how, int known, int streams) {
    memopt_optim_group g[2];
    memopt_optim_run run;
    cuda_muon_pair *p = cuda_muon_open(s);
    uint32_t hash;

    cuda_muon_groups(g, s);
    run = cuda_muon_run(g, 3);
    run.gradient_factor = 0.25;
    run.fused = how == CUDA_MUON_FUSED;
    cuda_muon_feed(p, 1, how != CUDA_MUON_FUSED);
    simulator_streams(streams, 5);
    CHECK(cuda_muon_begin(p, &run, known, how == CUDA_MUON_WHOLE) == 0);
    if (how != CUDA_MUON_WHOLE) cuda_muon_by_parts(p);
    for (size_t k = 0; k < (size_t)s->tensors; ++k)
        CHECK_AT(memopt_optim_applied(p->gpu.optim, k) == p->gpu.tensor[k].count, k);
    hash = cuda_muon_hash(p);
    simulator_streams(MODE_EAGER, 0);
    cuda_muon_close(p);
    return hash;
}

/* The whole step is its parts, in any order, and inside backward; a step on a lazy stream is the same. */
static void cuda_muon_wholes(void) {
    for (int known = 0; known < 3; ++known) TEST_SCHEDULES(3) {
        cuda_muon_spec s = cuda_muon_of((memopt_state_format)test_schedule_i, MEMOPT_I_WEIGHTS_BF16, MEMOPT_TYPE_BF16);
        uint32_t whole;

        cuda_muon_shape(&s, 40, 33);
        cuda_muon_shape(&s, 0, 100);
        cuda_muon_shape(&s, 12, 50);
        whole = cuda_muon_step(&s, CUDA_MUON_WHOLE, known, MODE_EAGER);
        CHECK(whole == cuda_muon_step(&s, CUDA_MUON_PARTS, known, MODE_RANDOM));
        CHECK(whole == cuda_muon_step(&s, CUDA_MUON_WHOLE, known, MODE_LAZY));
    }
}

/* ---- the rule, in double ---- */
/* to = a c + b (x y), of rows x depth times depth x columns. */
static void cuda_muon_multiply(double *to, double a, const double *c, double b, const double *x, const double *y,
                               size_t rows, size_t depth, size_t columns) {
    for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j) {
            double sum = 0;

            for (size_t k = 0; k < depth; ++k) sum += x[i * depth + k] * y[k * columns + j];
            to[i * columns + j] = b * sum + (c ? a * c[i * columns + j] : 0);
        }
}

static void cuda_muon_orthogonal(double *u, size_t rows, size_t columns, double eps) { /* always by X X^T */
    const size_t n = rows * columns;
    double *turned = (double *)malloc(n * 8), *a = (double *)malloc(rows * rows * 8);
    double *b = (double *)malloc(rows * rows * 8), *y = (double *)malloc(n * 8);
    double norm = 0;

    for (size_t i = 0; i < n; ++i) norm += u[i] * u[i];
    norm = sqrt(norm) > eps ? sqrt(norm) : eps;
    for (size_t i = 0; i < n; ++i) u[i] /= norm;
    for (int round = 0; round < 5; ++round) {
        for (size_t i = 0; i < n; ++i) turned[i % columns * rows + i / columns] = u[i];
        cuda_muon_multiply(a, 0, NULL, 1, u, turned, rows, columns, rows);
        cuda_muon_multiply(b, -4.7750, a, 2.0315, a, a, rows, rows, rows);
        cuda_muon_multiply(y, 3.4445, u, 1, b, u, rows, rows, columns);
        memcpy(u, y, n * 8);
    }
    free(turned);
    free(a);
    free(b);
    free(y);
}

static void cuda_muon_rule_step(double *w, double *m, size_t k, size_t rows, size_t columns, uint64_t t,
                                const memopt_optim_group *g) {
    const size_t n = rows * columns;
    const double larger = (double)(rows > columns ? rows : columns);
    const double scale = g->match_rms ? 0.2 * sqrt(larger) : rows > columns ? sqrt((double)rows / (double)columns) : 1;
    double *u = (double *)malloc(n * 8);

    for (size_t i = 0; i < n; ++i) {
        const double x = (1 - g->beta1) * (double)cuda_muon_gradient(k, i, t);

        m[i] = g->beta1 * m[i] + x;
        u[i] = g->nesterov ? g->beta1 * m[i] + x : m[i];
    }
    cuda_muon_orthogonal(u, rows, columns, g->eps);
    for (size_t i = 0; i < n; ++i) w[i] = w[i] * (1 - g->rate * g->weight_decay) - g->rate * scale * u[i];
    free(u);
}

/* How far weights are from the rule, relative to how far they have gone. */
static double cuda_muon_error(const cuda_muon_pair *p, size_t k, const double *w) {
    const size_t n = p->cpu.tensor[k].count;
    float *got = (float *)malloc(n * 4);
    double off = 0;
    double way = 0;

    test_get(got, p->gpu.tensor[k].weights, n * 4);
    for (size_t i = 0; i < n; ++i) {
        off += ((double)got[i] - w[i]) * ((double)got[i] - w[i]);
        way += (w[i] - (double)cuda_muon_weight(i)) * (w[i] - (double)cuda_muon_weight(i));
    }
    free(got);
    CHECK(way > 0);
    return sqrt(off / way);
}

static void cuda_muon_follow(memopt_type products, int nesterov, int match) {
    cuda_muon_spec s = cuda_muon_of(MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, products);
    double *w[CUDA_MUON_TENSORS], *m[CUDA_MUON_TENSORS];
    memopt_optim_group g[2];
    cuda_muon_pair *p;

    s.nesterov = nesterov;
    s.match_rms = match;
    cuda_muon_shape(&s, 1, 1);
    cuda_muon_shape(&s, 9, 1);
    cuda_muon_shape(&s, 12, 20);
    cuda_muon_shape(&s, 20, 12);
    cuda_muon_shape(&s, 13, 13);
    cuda_muon_groups(g, &s);
    p = cuda_muon_open(&s);
    for (int k = 0; k < s.tensors; ++k) {
        const size_t n = p->cpu.tensor[k].count;

        w[k] = (double *)malloc(n * 8);
        m[k] = (double *)calloc(n, 8);
        for (size_t i = 0; i < n; ++i) w[k][i] = (double)cuda_muon_weight(i);
    }
    for (uint64_t t = 1; t <= 20; ++t) {
        const memopt_optim_run run = cuda_muon_run(g, t);

        cuda_muon_feed(p, t, 0);
        CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
        for (size_t k = 0; k < (size_t)s.tensors; ++k)
            cuda_muon_rule_step(w[k], m[k], k, s.rows[k], s.columns[k], t, &g[0]);
    }
    for (size_t k = 0; k < (size_t)s.tensors; ++k) {
        const double off = cuda_muon_error(p, k, w[k]);

        if (getenv("MUON_TELL"))
            printf("products %d, %zu x %zu: %.3g of the way\n", (int)products, s.rows[k], s.columns[k], off);
        CHECK_AT(products == MEMOPT_TYPE_F32 ? off <= 2e-5 : off <= 0.02, k);
        free(w[k]);
        free(m[k]);
    }
    cuda_muon_close(p);
}

static void cuda_muon_rule(void) {
    for (int way = 0; way < 4; ++way) {
        cuda_muon_follow(MEMOPT_TYPE_F32, way & 1, way >> 1);
        cuda_muon_follow(MEMOPT_TYPE_BF16, way & 1, way >> 1);
    }
}

/* ---- norm and products of a step, one by one, against double ---- */
static double cuda_muon_at(memopt_type type, const void *data, size_t i) {
    return type == MEMOPT_TYPE_F32 ? (double)((const float *)data)[i]
                                   : (double)memopt_from_bf16(((const uint16_t *)data)[i]);
}

static double *cuda_muon_fetch(memopt_type type, const void *d, size_t n) {
    void *codes = malloc(n * memopt_type_bytes(type));
    double *x = (double *)malloc(n * 8);

    test_get(codes, d, n * memopt_type_bytes(type));
    for (size_t i = 0; i < n; ++i) x[i] = cuda_muon_at(type, codes, i);
    free(codes);
    return x;
}

static double cuda_muon_rounded(memopt_type type, double x) {
    return type == MEMOPT_TYPE_F32 ? (double)(float)x : (double)memopt_from_bf16(memopt_to_bf16((float)x));
}

/* got = by x y + of c, but for the order of its sums, and rounded once. x: rows x depth, of turned ones transposed. */
static void cuda_muon_product(memopt_type type, const double *got, double by, const double *x, int x_turned,
                              const double *y, int y_turned, double of, const double *c, size_t rows, size_t columns,
                              size_t depth) {
    const double half = type == MEMOPT_TYPE_F32 ? 0x1p-24 : 0x1p-8;

    for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j) {
            double sum = c ? of * c[i * columns + j] : 0;
            double most = fabs(sum);

            for (size_t k = 0; k < depth; ++k) {
                const double term = by * x[x_turned ? k * rows + i : i * depth + k]
                                  * y[y_turned ? j * depth + k : k * columns + j];
                sum += term;
                most += fabs(term);
            }
            CHECK_AT(fabs(got[i * columns + j] - sum)
                     <= 1.001 * (((double)depth + 4) * 0x1p-24 * most + half * fabs(sum)), i * columns + j);
        }
}

/* The three products of a round, as they lie there. */
static void cuda_muon_round(const memopt_i_cuda::muon_matrix *m) {
    const size_t n = m->rows * m->columns;
    const size_t side = m->side;
    const int tall = m->rows > m->columns;
    double *x = cuda_muon_fetch(m->type, m->x, n), *y = cuda_muon_fetch(m->type, m->next, n);
    double *a = cuda_muon_fetch(m->type, m->square, side * side);
    double *b = cuda_muon_fetch(m->type, m->polynomial, side * side);

    cuda_muon_product(m->type, a, 1, x, tall, x, !tall, 0, NULL, side, side, n / side);
    cuda_muon_product(m->type, b, 2.0315, a, 0, a, 0, -4.7750, a, side, side, side);
    cuda_muon_product(m->type, y, 1, tall ? x : b, 0, tall ? b : x, 0, 3.4445, x, m->rows, m->columns, side);
    free(x);
    free(y);
    free(a);
    free(b);
}

/* x is u of norm 1, or of a smaller one where that of u is below eps. */
static void cuda_muon_normed(memopt_type type, const double *u, const double *x, size_t n, double eps) {
    double norm = 0;
    float inverse;

    for (size_t i = 0; i < n; ++i) norm += u[i] * u[i];
    norm = cuda_muon_rounded(type, (double)(float)sqrt(norm));
    inverse = 1 / (float)(norm > eps ? norm : eps);
    for (size_t i = 0; i < n; ++i)
        CHECK_AT(x[i] == cuda_muon_rounded(type, (double)((float)u[i] * inverse)), i);
}

static void cuda_muon_products_of_a_shape(size_t rows, size_t columns, memopt_type type, double size) {
    cuda_muon_spec s = cuda_muon_of(MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, type);
    memopt_i_cuda::optim_call call;
    memopt_i_cuda::muon_matrix m;
    memopt_optim_group g[2];
    memopt_optim_run run;
    const size_t n = rows * columns;
    double *u, *x;
    cuda_muon_pair *p;

    cuda_muon_shape(&s, rows, columns);
    cuda_muon_groups(g, &s);
    g[0].eps = 0.5;
    p = cuda_muon_open(&s);
    cuda_muon_feed(p, 1, 0);
    run = cuda_muon_run(g, 1);
    run.gradient_factor = size;
    CHECK(memopt_cuda_optim_begin(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
    m = cuda_muon_matrix(p, 0, &call);
    CHECK(memopt_i_cuda::muon_momentum(&m, 0) == 0);
    u = cuda_muon_fetch(type, m.x, n);
    CHECK(memopt_i_cuda::muon_normalize(&m) == 0);
    x = cuda_muon_fetch(type, m.x, n);
    cuda_muon_normed(type, u, x, n, g[0].eps);
    for (int round = 0; round < 5; ++round) {
        unsigned char *const made = m.next;
        memopt_i_cuda::matrix_product q[3];

        memopt_i_cuda::muon_products_of(&m, q);
        for (int i = 0; i < 3; ++i)
            CHECK(memopt_i_cuda::gemm_run(p->gemm, &q[i], 0, (cudaStream_t)NULL) == 0);
        cuda_muon_round(&m);
        m.next = m.x;
        m.x = made;
    }
    CHECK(memopt_cuda_optim_end(p->gpu.optim) == 0);
    free(u);
    free(x);
    cuda_muon_close(p);
}

static void cuda_muon_all_products(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 5, 1 }, { 1, 5 }, { 8, 8 }, { 9, 21 }, { 21, 9 }, { 48, 50 } };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int type = MEMOPT_TYPE_F32; type <= MEMOPT_TYPE_BF16; ++type)
            cuda_muon_products_of_a_shape(shapes[i][0], shapes[i][1], (memopt_type)type, i % 3 ? 4 : 1);
    cuda_muon_products_of_a_shape(2, 40000, MEMOPT_TYPE_BF16, 1); /* more pieces than one, whose squares are added up */
    cuda_muon_products_of_a_shape(6, 7, MEMOPT_TYPE_F32, 0.01);   /* below eps */
}

/* ---- gradients of zero, and none that is finite ---- */
static void cuda_muon_nothing(void) {
    for (int bad = 0; bad < 2; ++bad) for (int state = 0; state < 3; ++state) {
        cuda_muon_spec s = cuda_muon_of((memopt_state_format)state, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_BF16);
        memopt_cuda_optim_outcome outcome;
        memopt_optim_group g[2];
        memopt_optim_run run;
        cuda_muon_pair *p;
        float *w, *gradients;
        const size_t n = 24 * 17;

        cuda_muon_shape(&s, 24, 17);
        cuda_muon_groups(g, &s);
        run = cuda_muon_run(g, 1);
        p = cuda_muon_open(&s);
        w = (float *)p->cpu.tensor[0].weights;
        gradients = (float *)(uintptr_t)p->cpu.tensor[0].gradients;
        for (size_t i = 0; i < n; ++i) gradients[i] = memopt_i_bits_float(bad ? 0x7fc00000u : 0);
        test_put((void *)(uintptr_t)p->gpu.tensor[0].gradients, gradients, n * 4);
        CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
        CHECK(memopt_cuda_optim_result(p->gpu.optim, p->d_scratch, p->scratch_bytes, &outcome, NULL) == 0);
        CHECK(outcome.skipped == (bad ? n : 0) && !outcome.stopped);
        for (size_t i = 0; i < n; ++i) w[i] = bad ? cuda_muon_weight(i) : cuda_muon_weight(i) * (float)(1 - 0.02 * 0.1);
        CHECK(!cuda_muon_differs(w, p->gpu.tensor[0].weights, n, 4));
        if (!bad && !state) CHECK(!cuda_muon_differs(p->cpu.tensor[0].state, p->gpu.tensor[0].state, 64 + 4 * n, 1));
        cuda_muon_close(p);
    }
}

/* A fused step that meets a gradient that is not finite, and a step without a factor: nothing changes from there on. */
static void cuda_muon_stopped(void) {
    for (int fused = 0; fused < 2; ++fused) {
        cuda_muon_spec s = cuda_muon_of(MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32);
        memopt_cuda_optim_outcome outcome;
        memopt_optim_group g[2];
        memopt_optim_run run;
        cuda_muon_pair *p;
        uint32_t before;

        cuda_muon_shape(&s, 20, 31);
        cuda_muon_shape(&s, 0, 90);
        cuda_muon_shape(&s, 31, 6);
        cuda_muon_groups(g, &s);
        run = cuda_muon_run(g, 1);
        p = cuda_muon_open(&s);
        cuda_muon_feed(p, 1, 0);
        CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
        before = cuda_muon_hash(p);
        cuda_muon_feed(p, 2, fused);
        run.step = 2;
        run.fused = fused;
        if (fused) {
            CHECK(memopt_cuda_optim_begin(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
            cuda_muon_by_parts(p);
        } else CHECK(cuda_muon_begin(p, &run, CUDA_MUON_FACTOR, 1) == 0); /* whose factor is 0 */
        CHECK(memopt_cuda_optim_result(p->gpu.optim, p->d_scratch, p->scratch_bytes, &outcome, NULL) == 0);
        CHECK(outcome.stopped == fused && outcome.left_out == !fused && !outcome.skipped);
        if (fused) CHECK(outcome.tensor == 2);
        CHECK(cuda_muon_hash(p) == before);
        cuda_muon_close(p);
    }
}

/* ---- refusals: a reason, nothing changed, and it can be tried again ---- */
static void cuda_muon_says(const cuda_muon_pair *p, const memopt_optim_run *run, memopt_cuda_status want,
                           const char *reason) {
    CHECK(memopt_cuda_optim_step(p->gpu.optim, run, p->d_scratch, p->scratch_bytes, NULL) == want);
    CHECK(test_error_says(memopt_optim_error(p->gpu.optim), (memopt_status)want, reason));
    CHECK(memopt_cuda_optim_begin(p->gpu.optim, run, p->d_scratch, p->scratch_bytes, NULL) == want);
}

/* Each side's products, asked to step on the other one. */
static void cuda_muon_other_side(cuda_muon_pair *p, const memopt_optim_run *run) {
    memopt_cuda_shard shard = {};
    memopt_optim_desc asked = p->cpu.desc;
    memopt_shard_kernels kernels;
    memopt_error error;
    size_t bytes = 7;

    CHECK(memopt_optim_step(p->gpu.optim, run) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(test_error_says(memopt_optim_error(p->gpu.optim), MEMOPT_ERR_UNSUPPORTED,
                          "muon is a device's, which has to step it"));
    CHECK(memopt_cuda_optim_scratch(p->cpu.optim, &bytes) == MEMOPT_ERR_UNSUPPORTED && bytes == 7);
    CHECK(memopt_cuda_optim_step(p->cpu.optim, run, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(test_error_says(memopt_optim_error(p->cpu.optim), MEMOPT_ERR_UNSUPPORTED,
                          "muon is the CPU's: take memopt_cuda_muon_products()"));
    memopt_cuda_shard_kernels(&kernels);
    asked.error = &error;
    CHECK(kernels.scratch_fn(&shard, &asked, &bytes) == MEMOPT_ERR_UNSUPPORTED && bytes == 7);
    CHECK(test_error_says(error, MEMOPT_ERR_UNSUPPORTED,
                          "optim: muon is the CPU's: take memopt_cuda_muon_products()"));
    CHECK(kernels.scratch_fn(&shard, &p->gpu.desc, &bytes) == MEMOPT_OK && bytes == p->scratch_bytes);
}

/* Within a step: states that are elsewhere, half a matrix, and what comes in another order. */
static void cuda_muon_refused_parts(cuda_muon_pair *p) {
    memopt_optim *o = p->gpu.optim;
    void *const d = p->d_scratch;
    const size_t n = p->scratch_bytes;
    memopt_cuda_optim_offload offload;

    memset(&offload, 0, sizeof offload);
    CHECK(memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, NULL, &offload.transfer) == 0);
    CHECK(memopt_cuda_optim_offload_bytes(o, &offload, &offload.bytes) == 0);
    offload.d_tiles = test_device(offload.bytes);
    CHECK(memopt_cuda_optim_apply_offloaded(o, &offload, d, n, NULL) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(memopt_cuda_transfer_destroy(offload.transfer) == 0);
    CHECK(memopt_cuda_optim_apply(o, 0, 0, 120, d, n, NULL) == MEMOPT_ERR_STATE);
    CHECK(memopt_cuda_optim_measure(o, 0, 0, 60, d, n, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_optim_measure(o, 1, 0, 40, d, n, NULL) == MEMOPT_ERR_STATE);
}

static void cuda_muon_refused(void) {
    cuda_muon_spec s = cuda_muon_of(MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_BF16);
    memopt_optim_group g[2];
    memopt_optim_run run;
    cuda_muon_pair *p;
    size_t bytes = 7;
    uint32_t before;

    cuda_muon_shape(&s, 10, 12);
    cuda_muon_shape(&s, 0, 40);
    cuda_muon_groups(g, &s);
    run = cuda_muon_run(g, 1);
    p = cuda_muon_open(&s);
    cuda_muon_feed(p, 1, 0);
    before = cuda_muon_hash(p);
    CHECK(!memopt_cuda_muon_products(NULL, p->gemm, MEMOPT_TYPE_BF16));
    CHECK(!memopt_cuda_muon_products(&p->muon, p->gemm, MEMOPT_TYPE_F16));
    CHECK(!memopt_cuda_muon_products(&p->muon, p->gemm, (memopt_type)test_number_of(9)));
    CHECK(memopt_cuda_muon_products(&p->muon, NULL, MEMOPT_TYPE_BF16) == p->gpu.desc.muon);
    cuda_muon_says(p, &run, MEMOPT_ERR_ARGUMENT, "muon has no gemm: give memopt_cuda_muon_products() one");
    CHECK(memopt_cuda_optim_scratch(p->gpu.optim, &bytes) == 0 && bytes == p->scratch_bytes);
    CHECK(memopt_cuda_muon_products(&p->muon, p->gemm, MEMOPT_TYPE_BF16) == p->gpu.desc.muon);
    cuda_muon_other_side(p, &run);
    CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes - 1, NULL) == MEMOPT_ERR_BUFFER);
    g[0].beta1 = 0;
    cuda_muon_says(p, &run, MEMOPT_ERR_ARGUMENT, "group 0: nesterov is set without a momentum: beta1 is 0");
    g[0].beta1 = 0.95;
    CHECK(memopt_cuda_optim_begin(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
    cuda_muon_refused_parts(p);
    CHECK(memopt_cuda_optim_end(p->gpu.optim) == 0);
    CHECK(cuda_muon_hash(p) == before);
    CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
    CHECK(cuda_muon_hash(p) != before);
    cuda_muon_close(p);
}

/* A side that cuBLASLt cannot take, of a matrix that is nowhere. */
static void cuda_muon_too_large(void) {
    for (int wide = 0; wide < 2; ++wide) {
        unsigned char *const nowhere = (unsigned char *)(uintptr_t)4096;
        memopt_optim_group g = memopt_optim_group_default(MEMOPT_OPTIM_MUON);
        memopt_optim_run run = cuda_muon_run(&g, 1);
        memopt_optim_tensor t;
        memopt_cuda_muon muon;
        memopt_optim_desc d;
        memopt_optim *o;
        void *gemm_memory, *memory;
        size_t bytes = 0;
        memopt_cuda_gemm *gemm = cuda_muon_gemm(&gemm_memory);

        memset(&d, 0, sizeof d);
        memset(&t, 0, sizeof t);
        t.count = (size_t)1 << 31;
        t.columns = wide ? t.count : 1;
        t.weights = t.state = nowhere;
        t.gradients = nowhere;
        d.kind = MEMOPT_OPTIM_MUON;
        d.muon = memopt_cuda_muon_products(&muon, gemm, MEMOPT_TYPE_BF16);
        d.tensors = &t;
        d.tensor_count = run.group_count = 1;
        CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_OK);
        memory = memopt_i_system_alloc(NULL, bytes, 64);
        CHECK(memopt_optim_create(&d, memory, bytes, &o) == MEMOPT_OK);
        simulator_fail_launch(1); /* there is none */
        CHECK(memopt_cuda_optim_step(o, &run, nowhere, SIZE_MAX / 2, NULL) == MEMOPT_ERR_OVERFLOW);
        simulator_fail_launch(0);
        CHECK(test_error_says(memopt_optim_error(o), MEMOPT_ERR_OVERFLOW,
                              "tensor 0: the matrix has a side of 2^31 or more"));
        memopt_cuda_gemm_destroy(gemm);
        memopt_i_system_free(NULL, gemm_memory, 0, 64);
        memopt_i_system_free(NULL, memory, 0, 64);
    }
}

/* A part of a matrix; and of a matrix nothing at all, which is fine. */
static void cuda_muon_held(void) {
    cuda_muon_spec s = cuda_muon_of(MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32);
    memopt_optim_group g[2];
    memopt_optim_run run;
    memopt_optim_tensor whole;
    cuda_muon_pair *p;
    size_t bytes = 0;

    cuda_muon_shape(&s, 64, 40);
    cuda_muon_shape(&s, 8, 9);
    cuda_muon_groups(g, &s);
    run = cuda_muon_run(g, 1);
    p = cuda_muon_open(&s);
    cuda_muon_feed(p, 1, 0);
    whole = p->gpu.tensor[0];
    p->gpu.tensor[0].held = 2304;
    memopt_i_system_free(NULL, p->gpu.memory, 0, 64);
    cuda_muon_object(&p->gpu);
    CHECK(memopt_cuda_optim_scratch(p->gpu.optim, &bytes) == 0);
    p->d_scratch = test_device(bytes); /* as on the CPU, a part that ends in a tensor has sums there */
    p->scratch_bytes = bytes;
    cuda_muon_says(p, &run, MEMOPT_ERR_UNSUPPORTED,
                   "tensor 0: the part begins or ends where a slice may not, which a device does not measure");
    p->gpu.tensor[0].held = 0;
    p->gpu.tensor[0].first = whole.count;
    memopt_i_system_free(NULL, p->gpu.memory, 0, 64);
    cuda_muon_object(&p->gpu);
    CHECK(memopt_cuda_optim_scratch(p->gpu.optim, &bytes) == 0 && bytes < p->scratch_bytes - 2 * 4 * 64 * 40);
    CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, bytes, NULL) == 0);
    CHECK(!cuda_muon_differs(p->cpu.tensor[0].weights, whole.weights, whole.count, 4));
    CHECK(cuda_muon_differs(p->cpu.tensor[1].weights, p->gpu.tensor[1].weights, 72, 4) > 0);
    cuda_muon_close(p);
}

/* What is told beforehand: the control, sums of squares, and of the largest matrix all that is multiplied. */
static void cuda_muon_bytes(void) {
    memopt_optim_tensor t[2];
    memopt_cuda_muon muon;
    memopt_optim_desc d;
    memopt_optim *o;
    size_t bytes, adamw = 0, host[2];

    memset(&d, 0, sizeof d);
    memset(t, 0, sizeof t);
    t[0].columns = 768;
    t[0].count = 768 * 3072;
    t[1].columns = 100;
    t[1].count = 100 * 64;
    d.tensors = t;
    d.tensor_count = 2;
    for (int muons = 0; muons < 2; ++muons) {
        void *memory;

        d.kind = muons ? MEMOPT_OPTIM_MUON : MEMOPT_OPTIM_ADAMW;
        d.muon = muons ? memopt_cuda_muon_products(&muon, NULL, MEMOPT_TYPE_BF16) : NULL;
        CHECK(memopt_optim_bytes(&d, &host[muons]) == MEMOPT_OK);
        memory = memopt_i_system_alloc(NULL, host[muons], 64);
        CHECK(memopt_optim_create(&d, memory, host[muons], &o) == MEMOPT_OK);
        CHECK(memopt_cuda_optim_scratch(o, muons ? &bytes : &adamw) == 0);
        memopt_i_system_free(NULL, memory, 0, 64);
    }
    CHECK(host[0] == host[1]); /* none of it is the host's */
    CHECK(bytes - adamw == 2 * 2 * t[0].count + 2 * 2 * 768 * 768 + 2 * 256 + (1 + t[0].count / 65536) * 16 / 256 * 256
                           + 256 * ((1 + t[0].count / 65536) * 16 % 256 != 0));
    t[0].columns = (size_t)1 << 30;
    t[0].count = (size_t)1 << 60; /* fits, and with all that is beside it does not */
    d.muon = memopt_cuda_muon_products(&muon, NULL, MEMOPT_TYPE_F32);
    CHECK(memopt_i_cuda::muon_scratch(&d, &t[0]) == SIZE_MAX);
}

#ifndef __CUDACC__
static cuda_muon_pair *cuda_muon_one(memopt_optim_run *run, memopt_optim_group *g) { /* one matrix, and its step */
    cuda_muon_spec s = cuda_muon_of(MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_BF16);
    cuda_muon_pair *p;

    cuda_muon_shape(&s, 20, 31);
    cuda_muon_groups(g, &s);
    *run = cuda_muon_run(g, 1);
    p = cuda_muon_open(&s);
    cuda_muon_feed(p, 1, 0);
    return p;
}

/* Shapes that cuBLASLt has nothing for, another device, and a card without bfloat16: before anything was launched. */
static void cuda_muon_impossible(void) {
    memopt_optim_group g[2];
    memopt_optim_run run;
    cuda_muon_pair *p = cuda_muon_one(&run, g);
    const uint32_t before = cuda_muon_hash(p);
    memopt_cuda_gemm *other;
    void *memory;

    for (size_t k = 1; k <= 3; ++k) {
        const size_t launches = simulator_launches();

        cublaslt_mock_no_algorithm(k);
        CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL)
              == MEMOPT_CUDA_ERR_NO_ALGORITHM);
        CHECK(simulator_launches() == launches && cuda_muon_hash(p) == before);
        memopt_cuda_gemm_destroy(p->gemm); /* which remembers that there is none */
        memopt_i_system_free(NULL, p->gemm_memory, 0, 64);
        cublaslt_mock_reset();
        p->gemm = cuda_muon_gemm(&p->gemm_memory);
        (void)memopt_cuda_muon_products(&p->muon, p->gemm, MEMOPT_TYPE_BF16);
    }
    simulator_devices(2);
    (void)cudaSetDevice(1);
    cuda_muon_says(p, &run, MEMOPT_ERR_ARGUMENT, "muon's gemm is of another device than the current one");
    (void)cudaSetDevice(0);
    simulator_devices(1);
    cublaslt_mock_capability(75);
    simulator_capability(7, 5);
    other = cuda_muon_gemm(&memory);
    (void)memopt_cuda_muon_products(&p->muon, other, MEMOPT_TYPE_BF16);
    CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_CUDA_ERR_TYPE);
    simulator_capability(9, 0);
    cublaslt_mock_capability(90);
    memopt_cuda_gemm_destroy(other);
    memopt_i_system_free(NULL, memory, 0, 64);
    CHECK(cuda_muon_hash(p) == before);
    cuda_muon_close(p);
}

/* Every launch and product fails in turn: told, the step is over, and the next one goes on. */
static void cuda_muon_faults(void) {
    const memopt_cuda_status execution = MEMOPT_CUDA_BASE_BLAS + (int)CUBLAS_STATUS_EXECUTION_FAILED;
    memopt_optim_group g[2];
    memopt_optim_run run;
    cuda_muon_pair *p = cuda_muon_one(&run, g);
    memopt_cuda_status status = 1;
    size_t k;

    for (k = 0; status && k < 100;) {
        simulator_fail_launch(++k);
        status = memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL);
        simulator_fail_launch(0);
        CHECK(p->gpu.optim->active == MEMOPT_I_OPTIM_IDLE);
    }
    CHECK(k == 8); /* one more than: begin, momentum, three of the norm, X of norm 1, weights */
    for (k = 0, status = execution; status && k < 100;) {
        cublaslt_mock_fail(++k, CUBLAS_STATUS_EXECUTION_FAILED);
        status = memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL);
        cublaslt_mock_fail(0, 0);
        CHECK(!status || status == execution);
    }
    CHECK(k == 16); /* one more than the products */
    cuda_muon_close(p);
}
#endif

void test_cuda_muon(void);
void test_cuda_muon(void) {
    RUN(cuda_muon_formats);
    RUN(cuda_muon_all_shapes);
    RUN(cuda_muon_u);
    RUN(cuda_muon_wholes);
    RUN(cuda_muon_rule);
    RUN(cuda_muon_all_products);
    RUN(cuda_muon_nothing);
    RUN(cuda_muon_stopped);
    RUN(cuda_muon_refused);
    RUN(cuda_muon_too_large);
    RUN(cuda_muon_held);
    RUN(cuda_muon_bytes);
#ifndef __CUDACC__
    RUN(cuda_muon_impossible);
    RUN(cuda_muon_faults);
#endif
}

#ifndef TEST_COMBINED
int main(void) {
    test_cuda_muon();
    return test_totals();
}
#endif
