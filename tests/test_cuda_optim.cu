/* test_cuda_optim.cu - optimizers on a device, sections cuda_walk, cuda_factor and cuda_optim. What is right is what
   the CPU does: every bit of weights, extra, states and what was skipped, for the same tensors and gradients. */
#include "test_cuda.h"

enum { CUDA_OPTIM_TENSORS = 250 };
typedef struct cuda_optim_spec {
    memopt_optim_kind kind; memopt_state_format state; memopt_i_weights weights; memopt_type gradients;
    int    moment, tensors;
    size_t block, min_quantized, offset; /* offset: elements that device arrays begin after 256 */
    size_t count[CUDA_OPTIM_TENSORS], columns[CUDA_OPTIM_TENSORS];
    size_t first, held; /* of tensor 0 */
} cuda_optim_spec;
typedef struct cuda_optim_side { /* the CPU's, or the device's */
    memopt_optim_desc desc; memopt_optim_tensor tensor[CUDA_OPTIM_TENSORS]; memopt_optim *optim;
} cuda_optim_side;
typedef struct cuda_optim_pair {
    cuda_optim_spec spec; cuda_optim_side cpu, gpu;
    size_t held[CUDA_OPTIM_TENSORS], state_bytes[CUDA_OPTIM_TENSORS], wide, gradient, scratch_bytes;
    void *d_scratch; double *d_factor; unsigned char *blocks[4 * CUDA_OPTIM_TENSORS + 2]; int block_count;
} cuda_optim_pair;

static void *cuda_optim_block(cuda_optim_pair *p, size_t bytes) { /* aligned to 64 */
    unsigned char *b = (unsigned char *)malloc(bytes + 64);
    memset(b, 0x5A, bytes + 64);
    p->blocks[p->block_count++] = b;
    return b + (64 - (uintptr_t)b % 64);
}
static void cuda_optim_close(cuda_optim_pair *p) {
    while (p->block_count) free(p->blocks[--p->block_count]);
    free(p);
}
static memopt_optim *cuda_optim_object(cuda_optim_pair *p, cuda_optim_side *s) {
    memopt_optim *o = NULL; size_t bytes = 0;
    CHECK(memopt_optim_bytes(&s->desc, &bytes) == MEMOPT_OK);
    CHECK(memopt_optim_create(&s->desc, cuda_optim_block(p, bytes), bytes, &o) == MEMOPT_OK && o);
    return o;
}
static uint32_t cuda_optim_bits(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t state = seed * 1315423911u + a * UINT64_C(0xd1342543de82ef95) + b * 77;
    return (uint32_t)(test_random(&state) >> 32);
}
static float cuda_optim_value(uint64_t seed, uint64_t k, uint64_t i) { /* -1 to 1; all bits of a float: sums round */
    return ((float)(cuda_optim_bits(seed, k, i) >> 8) - 8388608.0f) * (1.0f / 8388608.0f);
}
static void cuda_optim_put_code(void *p, size_t i, size_t bytes, uint32_t code) {
    if (bytes == 4) memcpy((unsigned char *)p + 4 * i, &code, 4);
    else { const uint16_t half = (uint16_t)code; memcpy((unsigned char *)p + 2 * i, &half, 2); }
}
static uint32_t cuda_optim_code(float x, size_t bytes, int half) {
    return bytes == 4 ? memopt_i_float_bits(x) : half ? memopt_to_f16(x) : memopt_to_bf16(x);
}
/* Sizes that matter to rounding: of several decades, some 0; `bad` of 64 are not finite. */
static const uint32_t cuda_optim_bad[8] = { 0x7fc00001u, 0xffc00000u, 0x7f800000u, 0xff800000u, 0x7f7fffffu,
    0x5f000000u,
                                            0x7f800001u, 0xde800000u };
static void cuda_optim_feed(cuda_optim_pair *p, uint64_t seed, unsigned bad) {
    static const float size[8] = { 1, 0.01f, 0.3f, 1e-4f, 1, 30, 0.1f, 0 }; int k; size_t i;
    const int half = p->spec.gradients == MEMOPT_TYPE_F16;
    for (k = 0; k < p->spec.tensors; ++k) {
        unsigned char *g = (unsigned char *)(uintptr_t)p->cpu.tensor[k].gradients;
        for (i = 0; i < p->held[k]; ++i) {
            const uint64_t at = p->cpu.tensor[k].first + i;
            const uint32_t r = cuda_optim_bits(seed + 99, (uint64_t)k, at);
            float x = cuda_optim_value(seed, (uint64_t)k + 8, at) * size[at / 3 % 8];
            uint32_t code = cuda_optim_code(x, p->gradient, half);
            if (r % 64 < bad) {
                code = cuda_optim_bad[r / 64 % 8];
                if (p->gradient == 2) code = half ? (r & 64 ? 0x7c00 : 0xfe01) : code >> 16;
                if (p->gradient == 2 && !half && code == 0x7f80 && r & 64) code = 0xff81;
            }
            cuda_optim_put_code(g, i, p->gradient, code);
        }
        test_put((void *)(uintptr_t)p->gpu.tensor[k].gradients, g, p->held[k] * p->gradient);
    }
}
static cuda_optim_pair *cuda_optim_open(const cuda_optim_spec *spec) {
    cuda_optim_pair *p = (cuda_optim_pair *)calloc(1, sizeof *p); memopt_optim_desc d; int k; size_t i;
    p->spec = *spec;
    memset(&d, 0, sizeof d);
    d.kind = spec->kind; d.state = spec->state; test_set_weights(&d, spec->weights); d.gradients = spec->gradients; d.seed = 42;
    d.first_moment = spec->moment; d.block = spec->block; d.min_quantized = spec->min_quantized;
    d.tensor_count = (size_t)spec->tensors;
    p->wide = d.weights == MEMOPT_TYPE_F32 ? 4 : 2;
    p->gradient = d.gradients == MEMOPT_TYPE_F32 ? 4 : 2;
    p->cpu.desc = p->gpu.desc = d;
    p->cpu.desc.tensors = p->cpu.tensor; p->gpu.desc.tensors = p->gpu.tensor;
    for (k = 0; k < spec->tensors; ++k) {
        memopt_optim_tensor *t = &p->cpu.tensor[k]; size_t n;
        t->count = spec->count[k]; t->columns = spec->columns[k]; t->group = (size_t)k % 2;
        if (!k) { t->first = spec->first; t->held = spec->held; }
        n = p->held[k] = t->held ? t->held : t->count - t->first;
        CHECK(memopt_optim_state_bytes(&p->cpu.desc, (size_t)k, &p->state_bytes[k]) == MEMOPT_OK);
        p->gpu.tensor[k] = *t;
        t->weights = cuda_optim_block(p, n * p->wide); t->gradients = cuda_optim_block(p, n * p->gradient);
        p->gpu.tensor[k].weights = test_device_at(n * p->wide, (spec->offset == 3 ? 0 : spec->offset) * p->wide);
        p->gpu.tensor[k].gradients = test_device_at(n * p->gradient, (spec->offset == 1 ? 0 : spec->offset) * p->gradient); /* one of the two alone, too */
        if (d.extra) {
            t->extra = cuda_optim_block(p, n * 2);
            p->gpu.tensor[k].extra = test_device_at(n * 2, spec->offset * 2);
        }
        if (p->state_bytes[k]) {
            t->state = cuda_optim_block(p, p->state_bytes[k]);
            p->gpu.tensor[k].state = test_device_at(p->state_bytes[k], spec->offset * 64);
        }
        for (i = 0; i < n; ++i) {
            const float w = 0.5f * cuda_optim_value(1, (uint64_t)k, t->first + i);
            cuda_optim_put_code(t->weights, i, p->wide, cuda_optim_code(w, p->wide, 0));
            if (t->extra) cuda_optim_put_code(t->extra, i, 2, 0);
        }
        test_put(p->gpu.tensor[k].weights, t->weights, n * p->wide);
        if (d.extra == MEMOPT_OPTIM_EXTRA_SPLIT) test_put(p->gpu.tensor[k].extra, t->extra, n * 2);
    }
    p->cpu.optim = cuda_optim_object(p, &p->cpu); p->gpu.optim = cuda_optim_object(p, &p->gpu);
    CHECK(memopt_cuda_optim_scratch(p->gpu.optim, &p->scratch_bytes) == 0);
    p->d_scratch = test_device(p->scratch_bytes);
    p->d_factor = (double *)test_device(sizeof *p->d_factor);
    for (k = 0; k < spec->tensors; ++k) {
        CHECK(memopt_optim_state_init(p->cpu.optim, (size_t)k) == MEMOPT_OK);
        CHECK(memopt_cuda_optim_state_init(p->gpu.optim, (size_t)k, NULL) == (d.state == MEMOPT_STATE_BNB ? MEMOPT_ERR_UNSUPPORTED : 0));
        if (d.state != MEMOPT_STATE_BNB) CHECK(memopt_cuda_optim_state_check(p->gpu.optim, (size_t)k, p->state_bytes[k], NULL) == 0);
    }
    return p;
}
/* Bytes that differ; NaN are alike where `bytes` is the size of a float or bfloat16. */
static size_t cuda_optim_differs(const void *host, const void *device, size_t n, size_t bytes) {
    unsigned char *got = (unsigned char *)malloc(n * bytes + 1);
    const unsigned char *want = (const unsigned char *)host; size_t i, off = 0;
    test_get(got, device, n * bytes);
    for (i = 0; i < n; ++i) {
        uint32_t a = 0, b = 0; const uint32_t infinity = bytes == 4 ? 0x7f800000u : 0x7f80u,
            most = bytes == 4 ? 0x7fffffffu : 0x7fffu;
        memcpy(&a, want + i * bytes, bytes); memcpy(&b, got + i * bytes, bytes);
        off += a != b && !(bytes > 1 && (a & most) > infinity && (b & most) > infinity);
    }
    free(got);
    return off;
}
static memopt_cuda_optim_outcome cuda_optim_result(const cuda_optim_pair *p, memopt_cuda_stream stream) {
    memopt_cuda_optim_outcome result;
    memset(&result, 0xA5, sizeof result);
    CHECK(memopt_cuda_optim_result(p->gpu.optim, p->d_scratch, p->scratch_bytes, &result, stream) == 0);
    return result;
}
static void cuda_optim_same_bytes(const cuda_optim_pair *p, uint64_t at) {
    int k;
    for (k = 0; k < p->spec.tensors; ++k) {
        const memopt_optim_tensor *c = &p->cpu.tensor[k], *g = &p->gpu.tensor[k];
        CHECK_AT(!cuda_optim_differs(c->weights, g->weights, p->held[k], p->wide), at * 100 + (uint64_t)k);
        if (c->extra) CHECK_AT(!cuda_optim_differs(c->extra, g->extra, p->held[k], 2), at * 100 + (uint64_t)k);
        if (c->state) CHECK_AT(!cuda_optim_differs(c->state, g->state, p->state_bytes[k], 1), at * 100 + (uint64_t)k);
    }
}
static void cuda_optim_same(const cuda_optim_pair *p, uint64_t at) {
    const memopt_cuda_optim_outcome result = cuda_optim_result(p, NULL);
    cuda_optim_same_bytes(p, at);
    CHECK_AT(result.skipped == memopt_optim_skipped(p->cpu.optim) && !result.stopped && !result.left_out, at);
    CHECK(memopt_optim_skipped(p->gpu.optim) == result.skipped);
}
/* The whole step, or its begin; by: with the run's factor on the device, where it is gone when the call returns. */
static memopt_cuda_status cuda_optim_begin(cuda_optim_pair *p, const memopt_optim_run *run, int by, int whole) {
    memopt_optim_run r = *run; memopt_cuda_status s;
    if (!by) return (whole ? memopt_cuda_optim_step<> : memopt_cuda_optim_begin<>)(p->gpu.optim, run, p->d_scratch,
                                                                             p->scratch_bytes, NULL);
    test_put(p->d_factor, &r.gradient_factor, sizeof r.gradient_factor);
    r.gradient_factor = 0;
    s = (whole ? memopt_cuda_optim_step_with_factor<> : memopt_cuda_optim_begin_with_factor<>)(p->gpu.optim, &r,
                                                                                           p->d_factor, p->d_scratch,
                                                                       p->scratch_bytes, NULL);
    test_poison(p->d_factor, sizeof *p->d_factor);
    return s;
}
static void cuda_optim_groups(memopt_optim_group *g, memopt_optim_kind kind, int moment) {
    g[0] = memopt_optim_group_default(kind);
    g[0].rate = 0.01; g[0].weight_decay = 0.1;
    if (kind == MEMOPT_OPTIM_ADAMW || kind == MEMOPT_OPTIM_ADAM || kind == MEMOPT_OPTIM_LAMB)
        { g[0].beta1 = 0.8; g[0].beta2 = 0.97; g[0].eps = 1e-3; }
    if (((kind == MEMOPT_OPTIM_SGD || kind == MEMOPT_OPTIM_ADAFACTOR) && moment) || kind == MEMOPT_OPTIM_LARS)
        g[0].beta1 = 0.9;
    if (kind == MEMOPT_OPTIM_LARS) g[0].trust = 0.02;
    if (kind == MEMOPT_OPTIM_RMSPROP) { g[0].beta1 = moment ? 0.8 : 0; g[0].beta2 = 0.9; g[0].eps = 1e-3; }
    g[1] = g[0];
    g[1].rate = 0.003; g[1].weight_decay = 0;
    if (kind == MEMOPT_OPTIM_SGD && moment) g[1].nesterov = 1;
    if (kind == MEMOPT_OPTIM_SGD && moment) g[0].dampening = 0.25;
    if (kind == MEMOPT_OPTIM_LAMB) g[1].always_adapt = 1;
}
static memopt_optim_run cuda_optim_run(const memopt_optim_group *g, uint64_t step) {
    memopt_optim_run run;
    memset(&run, 0, sizeof run);
    run.step = step; run.groups = g; run.group_count = 2; run.gradient_factor = 0.5;
    return run;
}
static void cuda_optim_steps(cuda_optim_pair *p, uint64_t steps, uint64_t at) {
    memopt_optim_group g[2]; uint64_t t; int k;
    cuda_optim_groups(g, p->spec.kind, p->spec.moment);
    for (t = 1; t <= steps; ++t) {
        const memopt_optim_run run = cuda_optim_run(g, t);
        cuda_optim_feed(p, t + at, t == 2 ? 3 : 0);
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
        CHECK_AT(cuda_optim_begin(p, &run, (at + t) % 2 == 0, 1) == 0, at);
        cuda_optim_same(p, at * 10 + t);
    }
    for (k = 0; k < p->spec.tensors; ++k) CHECK(memopt_optim_applied(p->gpu.optim, (size_t)k) == p->held[k]);
}
static cuda_optim_spec cuda_optim_of(memopt_optim_kind kind, memopt_state_format state, int moment) {
    cuda_optim_spec s;
    memset(&s, 0, sizeof s);
    s.kind = kind; s.state = state; s.moment = moment; s.min_quantized = 64; s.tensors = 1; s.count[0] = 1000;
    return s;
}
static const struct { memopt_optim_kind kind; int moment; } cuda_optim_kinds[] = {
    { MEMOPT_OPTIM_ADAMW, 0 }, { MEMOPT_OPTIM_ADAM, 0 }, { MEMOPT_OPTIM_SGD, 0 }, { MEMOPT_OPTIM_SGD, 1 },
    { MEMOPT_OPTIM_LION, 0 }, { MEMOPT_OPTIM_LARS, 0 }, { MEMOPT_OPTIM_LAMB, 0 }, { MEMOPT_OPTIM_ADAFACTOR, 0 },
    { MEMOPT_OPTIM_ADAFACTOR, 1 }, { MEMOPT_OPTIM_RMSPROP, 0 }, { MEMOPT_OPTIM_RMSPROP, 1 } };
enum { CUDA_OPTIM_KINDS = (int)(sizeof cuda_optim_kinds / sizeof *cuda_optim_kinds) };

/* Every kind, state, weight and gradient format: small tensors in one launch, blocks of 256 and of other sizes. */
static void cuda_optim_all_formats(void) {
    static const size_t blocks[4] = { 0, 32, 96, 512 }; int i, state, weights, gradients; uint64_t n = 0;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) for (state = 0; state < 3; ++state) {
        for (weights = 0; weights < 4; ++weights) for (gradients = 0; gradients < 3; ++gradients, ++n) {
            cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, (memopt_state_format)state,
                                              cuda_optim_kinds[i].moment);
            cuda_optim_pair *p;
            s.weights = (memopt_i_weights)weights; s.gradients = (memopt_type)gradients;
            s.block = blocks[n % 4]; s.tensors = 3; s.offset = n % 3 == 2;
            s.count[0] = 33 * 33; s.columns[0] = 33; s.count[1] = 31; s.count[2] = 770;
            simulator_schedule((int)(n % 8));
            p = cuda_optim_open(&s);
            cuda_optim_steps(p, 2, n);
            cuda_optim_close(p);
            test_device_free(0);
        }
    }
}
/* Nothing is held of the first tensor; and then of none. */
static void cuda_optim_empty(void) {
    int i, all, again;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) for (all = 0; all < 2; ++all) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, MEMOPT_STATE_8BIT, cuda_optim_kinds[i].moment);
        memopt_optim_group g[2]; memopt_optim_run run; cuda_optim_pair *p;
        s.tensors = all ? 1 : 3;
        s.count[0] = s.first = 33 * 33; s.columns[0] = 33; s.count[1] = 31; s.count[2] = 770;
        p = cuda_optim_open(&s);
        cuda_optim_steps(p, 2, 7);
        CHECK(p->held[0] == 0 && p->state_bytes[0] == 0);
        cuda_optim_groups(g, s.kind, s.moment);
        run = cuda_optim_run(g, 3);
        CHECK(cuda_optim_begin(p, &run, 0, 0) == 0);
        for (again = memopt_i_kind_measures(p->gpu.optim->desc.kind); again; )
            CHECK(memopt_cuda_optim_join(p->gpu.optim, 0, &again, p->d_scratch, p->scratch_bytes, NULL) == 0);
        CHECK(memopt_cuda_optim_end(p->gpu.optim) == 0);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* A part that begins or ends inside a chunk or panel, of kinds that measure: refused. */
static void cuda_optim_uncut(void) {
    int i, end;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) for (end = 0; end < 2; ++end) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, MEMOPT_STATE_F32, cuda_optim_kinds[i].moment);
        cuda_optim_pair *p; memopt_optim_group g[2]; memopt_optim_run run;
        s.count[0] = 96 * 100; s.columns[0] = 100;
        if (end) s.held = 1024;
        else s.first = 1024;
        p = cuda_optim_open(&s);
        cuda_optim_groups(g, s.kind, s.moment);
        run = cuda_optim_run(g, 1);
        if (memopt_i_kind_measures(s.kind)) {
            CHECK_AT(cuda_optim_begin(p, &run, 0, 1) == MEMOPT_ERR_UNSUPPORTED, i);
            CHECK(test_error_says(memopt_optim_error(p->gpu.optim), MEMOPT_ERR_UNSUPPORTED,
                                  "tensor 0: the part begins or ends where a slice may not, which a device does not measure"));
            CHECK_AT(cuda_optim_begin(p, &run, 0, 0) == MEMOPT_ERR_UNSUPPORTED, i);
        } else cuda_optim_steps(p, 2, 3);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* All 8-bit blocks that differ in how they are cut, over tensors that end anywhere; and kinds that have one moment. */
static void cuda_optim_blocks(void) {
    static const size_t blocks[] = { 32, 64, 96, 224, 256, 288, 1024, 2048, 2080, 3616, 4064, 4096 };
    static const size_t counts[] = { 64, 255, 257, 4099, 8192, 9001, 12288 }; size_t b, n = 0;
    for (b = 0; b < sizeof blocks / sizeof *blocks; ++b) TEST_SCHEDULES(8) {
        const int lion = test_schedule_i % 4 == 3, second = test_schedule_i % 4 == 1;
        cuda_optim_spec s = cuda_optim_of(lion ? MEMOPT_OPTIM_LION : second ? MEMOPT_OPTIM_RMSPROP : MEMOPT_OPTIM_ADAMW,
                                          MEMOPT_STATE_8BIT, test_schedule_i > 4);
        cuda_optim_pair *p;
        s.block = blocks[b]; s.offset = (size_t)test_schedule_i % 3; s.tensors = 2;
        s.count[0] = counts[n++ % 7]; s.count[1] = counts[(n + 2) % 7];
        p = cuda_optim_open(&s);
        cuda_optim_steps(p, 2, b * 8 + (size_t)test_schedule_i);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* Sizes around vectors, warps and tiles, aligned and not; floats. */
static void cuda_optim_sizes(void) {
    static const size_t counts[] = { 1, 3, 4, 5, 31, 32, 33, 255, 257, 1023, 1025, 2047, 2048, 2049, 4099 };
    size_t k, offset;
    for (offset = 0; offset < 5; ++offset) TEST_SCHEDULES(2) {
        cuda_optim_spec s = cuda_optim_of(offset % 2 ? MEMOPT_OPTIM_ADAM : MEMOPT_OPTIM_ADAMW,
                                          (memopt_state_format)(offset / 2 % 2), 0);
        cuda_optim_pair *p;
        s.offset = offset; s.tensors = 15; s.gradients = (memopt_type)(offset % 3);
        s.weights = offset < 2 ? MEMOPT_I_WEIGHTS_F32 : (memopt_i_weights)(offset % 4);
        for (k = 0; k < 15; ++k) s.count[k] = counts[k];
        p = cuda_optim_open(&s);
        cuda_optim_steps(p, 3, offset);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* More tensors than a launch takes, and more rules. */
static void cuda_optim_many(void) {
    int i, k;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, MEMOPT_STATE_8BIT, cuda_optim_kinds[i].moment);
        memopt_optim_group g[8]; memopt_optim_run run; cuda_optim_pair *p; uint64_t t;
        s.tensors = 40; s.min_quantized = i % 2 ? 1 : 300; /* all in one table, or in two */
        for (k = 0; k < 40; ++k) { s.count[k] = (size_t)(k % 5 ? k * 17 + 1 : 32 * (32 + k));
            s.columns[k] = k % 5 ? 0 : 32; }
        p = cuda_optim_open(&s);
        for (k = 0; k < 40; ++k) p->cpu.tensor[k].group = p->gpu.tensor[k].group = (size_t)(i % 2 ? k % 2 : k * 7 % 8); /* slices fill it, or rules */
        cuda_optim_groups(g, s.kind, s.moment);
        for (k = 2; k < 8; ++k) { g[k] = g[k % 2]; g[k].rate *= 1 + k; }
        for (t = 1; t <= 2; ++t) {
            run = cuda_optim_run(g, t);
            run.group_count = 8;
            cuda_optim_feed(p, t, 1);
            CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
            CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
            cuda_optim_same(p, (uint64_t)i * 10 + t);
        }
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* What is measured: several chunks, blocks that cut spans, rows and panels of every shape. */
static void cuda_optim_measured(void) {
    static const memopt_optim_kind kinds[2] = { MEMOPT_OPTIM_LARS, MEMOPT_OPTIM_LAMB };
    static const size_t blocks[3] = { 0, 32, 480 }; int i, state, b;
    for (i = 0; i < 2; ++i) for (state = 0; state < 3; ++state) for (b = 0; b < (state == 2 ? 3 : 1); ++b) {
        cuda_optim_spec s = cuda_optim_of(kinds[i], (memopt_state_format)state, 0); cuda_optim_pair *p;
        s.weights = (memopt_i_weights)((state + i) % 4); s.gradients = (memopt_type)((state + b) % 3);
        s.block = blocks[b]; s.tensors = 3; s.count[0] = 140001; s.count[1] = 65537; s.count[2] = 300;
        s.offset = (size_t)b;
        p = cuda_optim_open(&s);
        cuda_optim_steps(p, 2, (uint64_t)(i * 16 + state * 4 + b));
        cuda_optim_close(p);
        test_device_free(0);
    }
    { /* more chunks than a warp has lanes */
        cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_LARS, MEMOPT_STATE_F32, 0); cuda_optim_pair *p;
        s.tensors = 1; s.count[0] = 33 * 65536 + 7;
        p = cuda_optim_open(&s);
        cuda_optim_steps(p, 1, 99);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
static const size_t cuda_optim_shapes[][3] = { /* rows, columns, block */
    { 1, 0, 0 }, { 10000, 0, 0 }, { 40, 33, 0 }, { 64, 100, 0 }, { 300, 257, 32 }, { 31, 1000, 0 }, { 100, 31, 0 },
    { 32, 32, 32 }, { 640, 64, 0 }, { 33, 520, 64 }, { 65, 300, 96 }, { 1, 257, 0 }, { 129, 48, 0 },
        { 40, 1100, 4096 } };
static void cuda_optim_matrices(void) {
    size_t i; int way;
    for (i = 0; i < sizeof cuda_optim_shapes / sizeof *cuda_optim_shapes; ++i) for (way = 0; way < 3; ++way) {
        cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_ADAFACTOR, way ? MEMOPT_STATE_8BIT : MEMOPT_STATE_F32, way == 2);
        cuda_optim_pair *p;
        s.count[0] = cuda_optim_shapes[i][0] * (cuda_optim_shapes[i][1] ? cuda_optim_shapes[i][1] : 1);
        s.columns[0] = cuda_optim_shapes[i][1]; s.block = cuda_optim_shapes[i][2];
        s.weights = (memopt_i_weights)((i + (size_t)way) % 4); s.gradients = (memopt_type)(i % 3);
        s.offset = i % 2; simulator_schedule((int)i % 8);
        p = cuda_optim_open(&s);
        cuda_optim_steps(p, 3, i);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* Weights that are not numbers, or nearly: whatever they do, they do the same, and nobody else notices. */
static void cuda_optim_wild(void) {
    static const uint32_t wild[] = { 0x7fc00000u, 0x7f800000u, 0xff800000u, 0x7f7fffffu, 0xfe967699u, 1, 0x80000000u,
        0x80000001u }; int i; size_t k;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, (memopt_state_format)(i % 3),
                                          cuda_optim_kinds[i].moment); cuda_optim_pair *p;
        s.columns[0] = 50; s.count[0] = 2000;
        p = cuda_optim_open(&s);
        for (k = 0; k < 8; ++k) cuda_optim_put_code(p->cpu.tensor[0].weights, k * 217, 4, wild[k]);
        test_put(p->gpu.tensor[0].weights, p->cpu.tensor[0].weights, 8000);
        cuda_optim_steps(p, 3, (uint64_t)i);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* Its roots and quotients are IEEE's: all mantissas of a root (of both parities), all divisors with some dividends, all
   dividends with some divisors, all inverses. On the simulator some of them. */
static __global__ void cuda_optim_roots_kernel(unsigned *wrong, uint32_t step) {
    const uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * step, all = 0x3f800000u; uint32_t k; unsigned bad = 0;
    const float x = memopt_i_bits_float(all | (i & 0x7fffff));
    for (k = 0; k < 2; ++k) {
        const float y = memopt_i_bits_float(memopt_i_float_bits(x) + (k << 23));
        bad += memopt_i_float_bits(memopt_i_cuda::optim_root(y)) != memopt_i_float_bits(memopt_i_v1_sqrt(y));
    }
    for (k = 0; k < 64; ++k) {
        const float y = memopt_i_bits_float((all ^ (k % 5) << 24) | (k < 2 ? 0x7fffff * k : k * 0x9e3779b9u >> 9));
        bad += memopt_i_float_bits(memopt_i_cuda::optim_quotient(y, x)) != memopt_i_float_bits(memopt_i_quotient(y, x));
        bad += memopt_i_float_bits(memopt_i_cuda::optim_quotient(x, y)) != memopt_i_float_bits(memopt_i_quotient(x, y));
    }
    bad += memopt_i_float_bits(memopt_i_cuda::optim_quotient(1, x)) != memopt_i_float_bits(memopt_i_quotient(1, x));
    if (bad) atomicAdd(wrong, bad);
}
static void cuda_optim_roots(void) {
    const uint32_t step = test_on_card() ? 1 : 1023; unsigned wrong = 0, *d = (unsigned *)test_device(sizeof wrong);
    test_put(d, &wrong, sizeof wrong);
    MEMOPT_I_CUDA_LAUNCH(cuda_optim_roots_kernel, (0x7fffff / step + 256) / 256, 256, 0, NULL, d, step);
    test_synchronize();
    test_get(&wrong, d, sizeof wrong);
    CHECK(wrong == 0);
}
/* AdamW by itself, where roots and quotients of four elements are made together: gradients of every power of 2, one of
   them alone among ordinary ones or all of a block; weights near the largest bfloat16, which are rounded to nearest. */
static void cuda_optim_far(void) {
    static const uint32_t wild[4] = { 0x7f7f, 0xff7f, 0x7f08, 0xfe91 }; int i, t; size_t k;
    for (i = 0; i < 6; ++i) {
        cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_ADAMW, i % 3 ? MEMOPT_STATE_8BIT : MEMOPT_STATE_F32, 0);
        cuda_optim_pair *p; memopt_optim_group g[2]; const size_t bytes = i % 3 == 2 ? 2 : 4;
        s.count[0] = 256 * 300;
        if (bytes == 2) { s.weights = MEMOPT_I_WEIGHTS_BF16; s.gradients = MEMOPT_TYPE_BF16; }
        p = cuda_optim_open(&s);
        for (k = 0; k < s.count[0]; k += 37)
            cuda_optim_put_code(p->cpu.tensor[0].weights, k, bytes, bytes == 2 ? wild[k % 4] : wild[k % 4] << 16);
        test_put(p->gpu.tensor[0].weights, p->cpu.tensor[0].weights, s.count[0] * bytes);
        cuda_optim_groups(g, s.kind, 0);
        for (t = 1; t <= 3; ++t) {
            const memopt_optim_run run = cuda_optim_run(g, (uint64_t)t);
            unsigned char *x = (unsigned char *)(uintptr_t)p->cpu.tensor[0].gradients;
            cuda_optim_feed(p, (uint64_t)(t + i), 0);
            for (k = 0; k < s.count[0]; ++k) { /* exponents of all kinds; of one in 13, or of whole blocks */
                if (i < 3 ? k % 13 : k / 256 % 2) continue;
                cuda_optim_put_code(x, k, bytes, (uint32_t)((i < 3 ? k / 13 : k / 256) % 250) << (bytes == 2 ? 7 : 23)
                                                 | (cuda_optim_bits((uint64_t)t, 7, k) & (bytes == 2 ? 0x807f : 0x807fffff)));
            }
            test_put((void *)(uintptr_t)p->gpu.tensor[0].gradients, x, s.count[0] * bytes);
            CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
            CHECK_AT(cuda_optim_begin(p, &run, t == 2, 1) == 0, i);
            cuda_optim_same(p, (uint64_t)(i * 10 + t));
        }
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* In slices of any order; parts of a tensor, whose sums are added up as ranks do it: the bits of the whole. */
static void cuda_optim_slices(cuda_optim_pair *p, const memopt_optim_run *run, size_t tensor, int what) {
    const size_t slice_alignment = memopt_i_optim_slice_alignment(&p->gpu.optim->desc, &p->gpu.optim->desc.tensors[tensor]),
    first = p->gpu.tensor[tensor].first,
        n = p->held[tensor];
    size_t at = first + n, size = slice_alignment; (void)run;
    while (at > first) { /* from the back, each twice as long as the one before */
        const size_t end = at;
        at = at - first > size ? (at - size) / slice_alignment * slice_alignment : first;
        if (at < first) at = first;
        CHECK((what ? memopt_cuda_optim_apply<> : memopt_cuda_optim_measure<>)(p->gpu.optim, tensor, at, end - at,
                                                                           p->d_scratch,
                                                                          p->scratch_bytes, NULL) == 0);
        size *= 2;
    }
}
static void cuda_optim_cut(void) {
    int i, k, again;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, i % 2 ? MEMOPT_STATE_8BIT : MEMOPT_STATE_BF16,
                                          cuda_optim_kinds[i].moment);
        memopt_optim_group g[2]; memopt_optim_run run; cuda_optim_pair *p; uint64_t t;
        const int measures = memopt_i_kind_measures(s.kind);
        s.tensors = 3; s.count[0] = 140000; s.columns[0] = 100; s.count[1] = 1500; s.count[2] = 2500;
        s.block = i % 4 == 1 ? 96 : 0;
        if (i >= 7) { s.count[0] = 33000; s.count[1] = 100; }
        s.weights = (memopt_i_weights)(i % 4); s.gradients = (memopt_type)(i % 3);
        p = cuda_optim_open(&s);
        cuda_optim_groups(g, s.kind, s.moment);
        for (t = 1; t <= 2; ++t) {
            run = cuda_optim_run(g, t);
            cuda_optim_feed(p, t, 1);
            CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
            CHECK(cuda_optim_begin(p, &run, t == 2, 0) == 0);
            for (k = 2; k >= 0; --k) {
                for (again = measures; again; ) {
                    cuda_optim_slices(p, &run, (size_t)k, 0);
                    CHECK(memopt_cuda_optim_join(p->gpu.optim, (size_t)k, &again, p->d_scratch, p->scratch_bytes,
                                                 NULL) == 0);
                }
                cuda_optim_slices(p, &run, (size_t)k, 1);
                CHECK(memopt_optim_applied(p->gpu.optim, (size_t)k) == p->held[k]);
            }
            CHECK(memopt_cuda_optim_end(p->gpu.optim) == 0);
            cuda_optim_same(p, (uint64_t)i * 10 + t);
        }
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* The sums of all ranks, added up on the host and put back; both sides' layouts are the same. */
static void cuda_optim_add_sums(cuda_optim_pair *const *p, int ranks, int device) {
    double *sums[4], *all, *one; size_t n = 0, i; int r;
    for (r = 0; r < ranks; ++r)
        if (device) CHECK(memopt_cuda_optim_sums(p[r]->gpu.optim, 0, p[r]->d_scratch, p[r]->scratch_bytes, &sums[r],
                                                 &n) == 0);
        else CHECK(memopt_i_optim_sums(p[r]->cpu.optim, 0, &sums[r], &n) == MEMOPT_OK);
    all = (double *)calloc(n + 1, sizeof *all); one = (double *)calloc(n + 1, sizeof *one);
    for (r = 0; r < ranks; ++r) {
        if (device) test_get(one, sums[r], n * sizeof *one);
        else memcpy(one, sums[r], n * sizeof *one);
        for (i = 0; i < n; ++i) all[i] += one[i];
    }
    for (r = 0; r < ranks; ++r)
        if (device) test_put(sums[r], all, n * sizeof *all);
        else memcpy(sums[r], all, n * sizeof *all);
    free(all); free(one);
}
/* Rounded to a ratio of floats, an order of summation hardly shows: the sums themselves. */
static void cuda_optim_same_sums(const cuda_optim_pair *p, int at) {
    double *host, *device, *got; size_t n = 0, m = 0;
    CHECK(memopt_i_optim_sums(p->cpu.optim, 0, &host, &n) == MEMOPT_OK);
    CHECK(memopt_cuda_optim_sums(p->gpu.optim, 0, p->d_scratch, p->scratch_bytes, &device, &m) == 0 && m == n);
    got = (double *)malloc(n * sizeof *got + 1);
    test_get(got, device, n * sizeof *got);
    CHECK_AT(!memcmp(got, host, n * sizeof *got), at);
    free(got);
}
static void cuda_optim_parts(void) {
    int i, r, again, there;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) {
        cuda_optim_pair *p[3]; memopt_optim_group g[2]; memopt_optim_run run; uint64_t t;
        const int measures = memopt_i_kind_measures(cuda_optim_kinds[i].kind);
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, i % 2 ? MEMOPT_STATE_BF16 : MEMOPT_STATE_8BIT,
                                          cuda_optim_kinds[i].moment);
        size_t slice_alignment, cut[4];
        s.count[0] = i >= 7 ? 20480 : 200000; s.columns[0] = i % 2 ? 0 : 100; s.weights = MEMOPT_I_WEIGHTS_BF16;
        if (i >= 7) s.columns[0] = i == 7 ? 128 : 64;
        p[0] = cuda_optim_open(&s);
        slice_alignment = memopt_i_optim_slice_alignment(&p[0]->gpu.optim->desc, &p[0]->gpu.optim->desc.tensors[0]);
        cuda_optim_close(p[0]);
        test_device_free(0);
        cut[0] = 0;
        cut[1] = slice_alignment;
        cut[2] = s.count[0] / 2 / slice_alignment * slice_alignment + slice_alignment; cut[3] = s.count[0];
        for (r = 0; r < 3; ++r) {
            cuda_optim_spec part = s;
            part.first = cut[r]; part.held = cut[r + 1] - cut[r];
            p[r] = cuda_optim_open(&part);
        }
        cuda_optim_groups(g, s.kind, s.moment);
        for (t = 1; t <= 2; ++t) {
            run = cuda_optim_run(g, t);
            for (r = 0; r < 3; ++r) {
                cuda_optim_feed(p[r], t, 1);
                CHECK(memopt_optim_begin(p[r]->cpu.optim, &run) == MEMOPT_OK);
                CHECK(cuda_optim_begin(p[r], &run, t == 1, 0) == 0);
            }
            for (there = measures; there; there = again) {
                for (again = r = 0; r < 3; ++r) {
                    CHECK(memopt_i_optim_measure(p[r]->cpu.optim, 0, cut[r], p[r]->held[0]) == MEMOPT_OK);
                    cuda_optim_slices(p[r], &run, 0, 0);
                }
                for (r = 0; r < 3; ++r) cuda_optim_same_sums(p[r], i * 10 + r);
                cuda_optim_add_sums(p, 3, 0);
                cuda_optim_add_sums(p, 3, 1);
                for (r = 0; r < 3; ++r) {
                    CHECK(memopt_i_optim_join(p[r]->cpu.optim, 0, &again) == MEMOPT_OK);
                    CHECK(memopt_cuda_optim_join(p[r]->gpu.optim, 0, &again, p[r]->d_scratch, p[r]->scratch_bytes,
                                                 NULL) == 0);
                }
            }
            for (r = 0; r < 3; ++r) {
                CHECK(memopt_i_optim_apply(p[r]->cpu.optim, 0, cut[r], p[r]->held[0]) == MEMOPT_OK);
                cuda_optim_slices(p[r], &run, 0, 1);
                CHECK(memopt_optim_end(p[r]->cpu.optim) == MEMOPT_OK && memopt_cuda_optim_end(p[r]->gpu.optim) == 0);
                cuda_optim_same(p[r], (uint64_t)i * 100 + t * 10 + (uint64_t)r);
            }
        }
        for (r = 0; r < 3; ++r) cuda_optim_close(p[r]);
        test_device_free(0);
    }
}
/* Inside backward: a slice with a gradient that is not finite stops all that follow, whatever has been launched. */
static void cuda_optim_fused(void) {
    int i, k, again;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, MEMOPT_STATE_8BIT, cuda_optim_kinds[i].moment);
        memopt_optim_group g[2];
        memopt_optim_run run; cuda_optim_pair *p; memopt_cuda_optim_outcome result;
        const int measures = memopt_i_kind_measures(s.kind); size_t first = 0, n;
        s.tensors = 3; s.count[0] = 3200; s.columns[0] = 50; s.count[1] = 3000; s.columns[1] = 60; s.count[2] = 140032;
        s.columns[2] = 64;
        s.gradients = (memopt_type)(i % 3);
        p = cuda_optim_open(&s);
        cuda_optim_groups(g, s.kind, s.moment);
        run = cuda_optim_run(g, 1);
        run.fused = 1; run.gradient_factor = 0.25;
        CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_ERR_ARGUMENT);
        run.clips_norm = 1;
        CHECK(memopt_cuda_optim_begin(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_ERR_ARGUMENT);
        run.clips_norm = 0;
        for (; run.step <= 2; ++run.step) { /* the second: tensor 2 in two slices, the last gradient of all is bad */
            cuda_optim_feed(p, run.step, 0);
            n = s.count[2];
            if (run.step == 1 && s.gradients == MEMOPT_TYPE_F32) { /* too large without the factor */
                cuda_optim_put_code((void *)(uintptr_t)p->cpu.tensor[1].gradients, 5, 4, 0x5f000000u);
                test_put((void *)(uintptr_t)p->gpu.tensor[1].gradients, p->cpu.tensor[1].gradients, s.count[1] * 4);
            }
            if (run.step == 2) {
                cuda_optim_put_code((void *)(uintptr_t)p->cpu.tensor[2].gradients, n - 1 - (size_t)i % 2 * 1500,
                                    p->gradient,
                                    s.gradients == MEMOPT_TYPE_F32 ? cuda_optim_bad[i % 8]
                                    : s.gradients == MEMOPT_TYPE_F16 ? 0x7c00 : 0xff80);
                test_put((void *)(uintptr_t)p->gpu.tensor[2].gradients, p->cpu.tensor[2].gradients, n * p->gradient);
            }
            CHECK(memopt_optim_begin(p->cpu.optim, &run) == MEMOPT_OK);
            CHECK(cuda_optim_begin(p, &run, (int)(run.step + (uint64_t)i / 2) % 2, 0) == 0);
            for (k = 2; k >= 0 && measures; --k) for (again = 1; again; ) {
                CHECK(memopt_i_optim_measure(p->cpu.optim, (size_t)k, 0, s.count[k]) == MEMOPT_OK);
                CHECK(memopt_cuda_optim_measure(p->gpu.optim, (size_t)k, 0, s.count[k], p->d_scratch, p->scratch_bytes,
                                                NULL) == 0);
                CHECK(memopt_i_optim_join(p->cpu.optim, (size_t)k, &again) == MEMOPT_OK);
                CHECK(memopt_cuda_optim_join(p->gpu.optim, (size_t)k, &again, p->d_scratch, p->scratch_bytes,
                                             NULL) == 0);
            }
            first = memopt_i_optim_slice_alignment(&p->gpu.optim->desc, &p->gpu.optim->desc.tensors[2]);
            CHECK(memopt_cuda_optim_apply(p->gpu.optim, 2, 0, first, p->d_scratch, p->scratch_bytes, NULL) == 0);
            CHECK(memopt_cuda_optim_apply(p->gpu.optim, 2, first, n - first, p->d_scratch, p->scratch_bytes,
                                          NULL) == 0);
            CHECK(memopt_cuda_optim_apply(p->gpu.optim, 1, 0, s.count[1], p->d_scratch, p->scratch_bytes, NULL) == 0);
            CHECK(memopt_cuda_optim_apply(p->gpu.optim, 0, 0, s.count[0], p->d_scratch, p->scratch_bytes, NULL) == 0);
            CHECK(memopt_cuda_optim_end(p->gpu.optim) == 0);
            CHECK(memopt_i_optim_apply(p->cpu.optim, 2, 0, first) == MEMOPT_OK);
            for (k = 2; k >= 0; --k)
                CHECK(memopt_i_optim_apply(p->cpu.optim, (size_t)k, k == 2 ? first : 0, k == 2 ? n - first : s.count[k])
                      == (run.step == 1 ? MEMOPT_OK : MEMOPT_ERR_STATE));
            CHECK(memopt_optim_end(p->cpu.optim) == (run.step == 1 ? MEMOPT_OK : MEMOPT_ERR_STATE));
            if (run.step == 1) cuda_optim_same(p, (uint64_t)i);
            else for (k = 0; k < 3; ++k) {
                CHECK_AT(!cuda_optim_differs(p->cpu.tensor[k].weights, p->gpu.tensor[k].weights, s.count[k], 4), i);
                if (p->state_bytes[k]) CHECK_AT(!cuda_optim_differs(p->cpu.tensor[k].state, p->gpu.tensor[k].state,
                                                                    p->state_bytes[k], 1), i);
            }
        }
        result = cuda_optim_result(p, NULL);
        CHECK_AT(result.stopped && result.tensor == 2 && result.first == first && !result.skipped && !result.left_out,
                 i);
        run.fused = 0;
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK); /* and the next step is a step again */
        CHECK(memopt_cuda_optim_step(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == 0);
        cuda_optim_same(p, (uint64_t)i + 100);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* A factor that the device has: any of them, in every kind; and those that leave the step out. */
static const double cuda_optim_factors[] = { 1, 1.0 / 3, 3.7e-3, 77777.1, 1 / 281474976710656.0, 281474976710656.0 };
static const uint64_t cuda_optim_no_factor[] = { 0, UINT64_C(1) << 63, 1, UINT64_C(0xbff0000000000000),
    UINT64_C(0x3cefffffffffffff), UINT64_C(0x42f0000000000001), UINT64_C(0x7ff0000000000000),
    UINT64_C(0xfff0000000000000), UINT64_C(0x7ff8000000000000), UINT64_C(0xfff0000000000001) };
static void cuda_optim_left_out(const cuda_optim_pair *p, memopt_cuda_stream stream, uint64_t at) {
    const memopt_cuda_optim_outcome result = cuda_optim_result(p, stream);
    CHECK_AT(result.left_out && !result.stopped && !result.skipped, at);
    cuda_optim_same_bytes(p, at);
}
static void cuda_optim_zero_sums(const cuda_optim_pair *p) { /* of all tensors */
    const size_t n = memopt_i_optim_sum_count(p->gpu.optim); memopt_i_cuda::optim_call c; size_t i, off = 0;
    double *got = (double *)malloc(n * sizeof *got + 1);
    CHECK(memopt_i_cuda::optim_call_of(&c, p->gpu.optim, p->d_scratch, p->scratch_bytes, NULL) == 0 && n);
    test_get(got, c.at.sums, n * sizeof *got);
    for (i = 0; i < n; ++i) off += !(got[i] == 0);
    CHECK(!off);
    free(got);
}
static void cuda_optim_nothing(cuda_optim_pair *p, const memopt_optim_run *run, int measures) { /* in parts */
    int k, again;
    CHECK(cuda_optim_begin(p, run, 1, 0) == 0);
    for (k = 0; k < p->spec.tensors; ++k) {
        for (again = measures; again; ) {
            CHECK(memopt_cuda_optim_measure(p->gpu.optim, (size_t)k, 0, p->held[k], p->d_scratch, p->scratch_bytes,
                                            NULL) == 0);
            CHECK(memopt_cuda_optim_join(p->gpu.optim, (size_t)k, &again, p->d_scratch, p->scratch_bytes, NULL) == 0);
        }
        if (measures) cuda_optim_zero_sums(p);
        CHECK(memopt_cuda_optim_apply(p->gpu.optim, (size_t)k, 0, p->held[k], p->d_scratch, p->scratch_bytes,
                                      NULL) == 0);
        CHECK(memopt_optim_applied(p->gpu.optim, (size_t)k) == p->held[k]);
    }
    CHECK(memopt_cuda_optim_end(p->gpu.optim) == 0);
}
static void cuda_optim_by(void) {
    int i, state; size_t f, n = 0; uint64_t t;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) for (state = i % 3; state < 3; state += 3 - i % 3) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, (memopt_state_format)state,
                                          cuda_optim_kinds[i].moment);
        memopt_optim_group g[2]; memopt_optim_run run; cuda_optim_pair *p;
        const int measures = memopt_i_kind_measures(s.kind);
        s.weights = (memopt_i_weights)(i % 4); s.gradients = (memopt_type)(state % 3);
        s.tensors = 3; s.count[0] = 33 * 33; s.columns[0] = 33; s.count[1] = 31; s.count[2] = 770;
        simulator_schedule((int)(n++ % 8));
        p = cuda_optim_open(&s);
        cuda_optim_groups(g, s.kind, s.moment);
        if (g[1].beta1 > 0) g[1].beta1 = 0.7;
        if (g[1].beta2 > 0) g[1].beta2 = 0.95;
        for (t = 1; t <= sizeof cuda_optim_factors / sizeof *cuda_optim_factors; ++t) {
            run = cuda_optim_run(g, t);
            run.gradient_factor = cuda_optim_factors[t - 1];
            cuda_optim_feed(p, t, 2);
            CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
            CHECK_AT(cuda_optim_begin(p, &run, 1, 1) == 0, i);
            cuda_optim_same(p, (uint64_t)i * 10 + t);
        }
        for (f = 0; f < sizeof cuda_optim_no_factor / sizeof *cuda_optim_no_factor; ++f) {
            run.step = t;
            memcpy(&run.gradient_factor, &cuda_optim_no_factor[f], sizeof run.gradient_factor);
            run.fused = f % 4 == 2;
            if (f % 4 && !run.fused) CHECK(cuda_optim_begin(p, &run, 1, 1) == 0);
            else cuda_optim_nothing(p, &run, measures);
            cuda_optim_left_out(p, NULL, (uint64_t)i * 100 + f);
        }
        run = cuda_optim_run(g, t); /* and the next is a step again, whoever has the factor */
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
        CHECK(cuda_optim_begin(p, &run, i % 2, 1) == 0);
        cuda_optim_same(p, (uint64_t)i * 10);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* A step, captured once, is every step: number, rate, factor and noise are read on the device. Ten of them, across the
   64th, where the noise of rounding gets another key; and three that are left out, which count as none. */
static void cuda_optim_captured(void) {
    int i, state, n = 0; uint64_t t;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) for (state = 0; state < 3; ++state, ++n) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, (memopt_state_format)state, cuda_optim_kinds[i].moment);
        memopt_cuda_optim_progress progress = { 58, 0.5, 1 }, *d_progress, told; memopt_optim_group g[2], now[2]; memopt_optim_run run;
        cudaStream_t stream; cudaGraph_t graph; cudaGraphExec_t exec; cuda_optim_pair *p;
        s.weights = (memopt_i_weights)(n % 4); s.gradients = (memopt_type)(n % 3);
        s.tensors = 3; s.count[0] = 33 * 33; s.columns[0] = 33; s.count[1] = 31; s.count[2] = 770;
        simulator_schedule(n % 8);
        simulator_streams(n % 2 ? MODE_LAZY : MODE_RANDOM, (uint64_t)n + 1);
        test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        p = cuda_optim_open(&s);
        d_progress = (memopt_cuda_optim_progress *)test_device(sizeof *d_progress);
        test_put(d_progress, &progress, sizeof progress);
        cuda_optim_groups(g, s.kind, s.moment);
        run = cuda_optim_run(g, 1);
        run.gradient_factor = 0;
        test_synchronize();
        test_cuda_must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        CHECK_AT(memopt_cuda_optim_step_with_progress(p->gpu.optim, &run, d_progress, p->d_scratch, p->scratch_bytes, stream) == 0, n);
        test_cuda_must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
        test_cuda_must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
        for (t = 59; t < 72; ++t) {
            const int out = t == 61 ? 1 : t == 66 ? 2 : t == 67 ? 3 : 0; uint64_t nan = UINT64_C(0x7ff8000000000000);
            progress.factor = out == 1 ? 0 : 0.5 + 0.01 * (double)t; progress.rate = out == 3 ? -1 : (s.kind == MEMOPT_OPTIM_ADAFACTOR ? 200 : 1) / (double)(t - 50); /* Adafactor's: above and below what its number allows */
            if (out == 2) memcpy(&progress.rate, &nan, sizeof nan);
            cuda_optim_feed(p, t, t % 4 == 3 ? 3 : 0);
            test_put(&d_progress->factor, &progress.factor, 2 * sizeof(double));
            test_synchronize();
            test_cuda_must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
            test_cuda_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            if (!out) {
                for (int k = 0; k < 2; ++k) { now[k] = g[k]; now[k].rate = g[k].rate * progress.rate; }
                run.groups = now; run.step = ++progress.steps; run.gradient_factor = progress.factor;
                CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
                cuda_optim_same(p, (uint64_t)n * 100 + t);
            } else cuda_optim_left_out(p, stream, (uint64_t)n * 100 + t);
            test_get(&told, d_progress, sizeof told);
            CHECK_AT(told.steps == progress.steps, (uint64_t)n * 100 + t);
        }
        CHECK(progress.steps == 68);
        test_cuda_must(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
        test_cuda_must(cudaGraphDestroy(graph), "cudaGraphDestroy");
        test_cuda_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* The first step, which SGD takes whole; in parts; and what is refused. */
static void cuda_optim_progresses(void) {
    static const memopt_optim_kind kinds[] = { MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_LAMB, MEMOPT_OPTIM_LARS, MEMOPT_OPTIM_ADAFACTOR };
    for (int i = 0; i < 5; ++i) {
        cuda_optim_spec s = cuda_optim_of(kinds[i], MEMOPT_STATE_F32, 1); memopt_cuda_optim_progress progress = { 0, 1, 1 }, *d;
        memopt_optim_group g[2]; memopt_optim_run run; cuda_optim_pair *p;
        s.count[0] = 33 * 33; s.columns[0] = 33;
        p = cuda_optim_open(&s);
        cuda_optim_groups(g, s.kind, s.moment);
        d = (memopt_cuda_optim_progress *)test_device(sizeof *d);
        test_put(d, &progress, sizeof progress);
        for (uint64_t t = 1; t < 4; ++t) {
            run = cuda_optim_run(g, t); run.gradient_factor = 1;
            cuda_optim_feed(p, t, 0);
            CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
            run.gradient_factor = 0; run.step = 7;
            CHECK(memopt_cuda_optim_begin_with_progress(p->gpu.optim, &run, d, p->d_scratch, p->scratch_bytes, NULL) == 0);
            for (int again = memopt_i_kind_measures(s.kind); again; ) {
                CHECK(memopt_cuda_optim_measure(p->gpu.optim, 0, 0, p->held[0], p->d_scratch, p->scratch_bytes, NULL) == 0);
                CHECK(memopt_cuda_optim_join(p->gpu.optim, 0, &again, p->d_scratch, p->scratch_bytes, NULL) == 0);
            }
            CHECK(memopt_cuda_optim_apply(p->gpu.optim, 0, 0, p->held[0], p->d_scratch, p->scratch_bytes, NULL) == 0);
            CHECK(memopt_cuda_optim_end(p->gpu.optim) == 0);
            cuda_optim_same(p, (uint64_t)i * 10 + t);
        }
        run.gradient_factor = 1;
        CHECK(memopt_cuda_optim_step_with_progress(p->gpu.optim, &run, d, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_ERR_ARGUMENT);
        run.gradient_factor = 0;
        CHECK(memopt_cuda_optim_step_with_progress(p->gpu.optim, &run, NULL, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_step_with_progress(p->gpu.optim, &run, (memopt_cuda_optim_progress *)(void *)((char *)d + 4), p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
        CHECK(memopt_cuda_optim_step_with_progress(p->gpu.optim, &run, (memopt_cuda_optim_progress *)p->d_scratch, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_CUDA_ERR_OVERLAP);
        CHECK(memopt_cuda_optim_begin_with_progress(p->gpu.optim, &run, NULL, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_step_with_progress(p->gpu.optim, NULL, d, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_CUDA_ERR_NULL);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* More tensors than one launch gives factors to, with rules of their own. */
static void cuda_optim_crowd(void) {
    cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, 0);
    memopt_optim_group g[7]; memopt_optim_run run;
    cuda_optim_pair *p; int k;
    s.tensors = CUDA_OPTIM_TENSORS;
    for (k = 0; k < s.tensors; ++k) s.count[k] = (size_t)k % 5 + 1;
    p = cuda_optim_open(&s);
    for (k = 0; k < s.tensors; ++k) p->cpu.tensor[k].group = p->gpu.tensor[k].group = (size_t)k / 3 % 7;
    cuda_optim_groups(g, s.kind, s.moment);
    for (k = 1; k < 7; ++k) { g[k] = g[0]; g[k].beta1 = 0.1 * k; g[k].beta2 = 0.13 * k; }
    for (run = cuda_optim_run(g, 1); run.step <= 2; ++run.step) {
        run.group_count = 7; run.gradient_factor = 0.7 / (double)run.step;
        cuda_optim_feed(p, run.step, 1);
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
        CHECK(cuda_optim_begin(p, &run, 1, 1) == 0);
        cuda_optim_same(p, run.step);
    }
    { /* and counts of its own: all launches of a begin have the same */
        memopt_cuda_optim_progress progress = { 2, 0.7, 1 }, *d = (memopt_cuda_optim_progress *)test_device(sizeof *d);
        test_put(d, &progress, sizeof progress);
        run = cuda_optim_run(g, 3); run.group_count = 7; run.gradient_factor = 0.7;
        cuda_optim_feed(p, run.step, 1);
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
        run.gradient_factor = 0;
        CHECK(memopt_cuda_optim_step_with_progress(p->gpu.optim, &run, d, p->d_scratch, p->scratch_bytes, NULL) == 0);
        cuda_optim_same(p, run.step);
    }
    cuda_optim_close(p);
}
/* Measure, clip, step and update, five times, and the host waits for none of it; the third and the last overflow. */
typedef struct cuda_optim_loop {
    memopt_gradient host[4], device[4]; memopt_gradients list, d_list; memopt_scaler scaler, *d_scaler;
    memopt_gradient_total total, *d_total; float bad[4]; void *scratch;
} cuda_optim_loop;
static void cuda_optim_loop_of(cuda_optim_loop *l, const cuda_optim_pair *p) {
    static const float bad[4] = { 1, 2, INFINITY, 3 }; int k;
    memset(l, 0, sizeof *l);
    memcpy(l->bad, bad, sizeof bad);
    for (k = 0; k < 4; ++k) {
        l->host[k].type = k < 3 && p->gradient == 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        l->host[k].count = k < 3 ? p->held[k] : 4;
        l->device[k] = l->host[k];
        l->host[k].values = k < 3 ? (void *)(uintptr_t)p->cpu.tensor[k].gradients : l->bad;
        l->device[k].values = k < 3 ? (void *)(uintptr_t)p->gpu.tensor[k].gradients : test_device(sizeof bad);
    }
    test_put(l->device[3].values, bad, sizeof bad);
    l->list.tensors = l->host; l->d_list.tensors = l->device; l->list.count = l->d_list.count = 4;
    CHECK(memopt_gradients_scratch(&l->list, &l->list.scratch_bytes) == MEMOPT_OK);
    CHECK(memopt_cuda_gradients_scratch(&l->d_list, &l->d_list.scratch_bytes) == 0);
    l->list.scratch = l->scratch = malloc(l->list.scratch_bytes + 1);
    l->d_list.scratch = test_device(l->d_list.scratch_bytes);
    CHECK(memopt_scaler_default(&l->scaler) == MEMOPT_OK);
    l->scaler.scale = 8; l->scaler.growth_interval = 2;
    l->d_scaler = (memopt_scaler *)test_device(sizeof *l->d_scaler);
    l->d_total = (memopt_gradient_total *)test_device(sizeof *l->d_total);
    test_put(l->d_scaler, &l->scaler, sizeof l->scaler);
}
static void cuda_optim_loop_step(cuda_optim_loop *l, cuda_optim_pair *p, memopt_optim_run run, double max_norm,
                                 cudaStream_t stream) {
    double clip = 0; const double mean = 1.0 / 5;
    l->list.count = l->d_list.count = run.step % 3 && run.step < 5 ? 3 : 4;
    run.gradient_factor = 0;
    CHECK(memopt_cuda_scaler_measure(l->d_scaler, &l->d_list, l->d_total, NULL, stream) == 0);
    CHECK(memopt_cuda_clip_norm(l->d_total, mean, max_norm, p->d_factor, stream) == 0);
    CHECK(memopt_cuda_optim_step_with_factor(p->gpu.optim, &run, p->d_factor, p->d_scratch, p->scratch_bytes, stream)
          == 0);
    CHECK(memopt_cuda_scaler_update(l->d_scaler, &l->d_total->overflow, NULL, stream) == 0);
    CHECK(memopt_scaler_measure(&l->scaler, &l->list, &l->total, NULL) == MEMOPT_OK);
    CHECK(l->total.overflow == (l->list.count == 4));
    if (!l->total.overflow) {
        CHECK(memopt_clip_norm(sqrt(l->total.squares) * (l->total.factor * mean), max_norm, &clip) == MEMOPT_OK);
        CHECK((clip < 1) == (max_norm < 1));
        run.gradient_factor = l->total.factor * mean * clip;
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
    }
    CHECK(memopt_scaler_update(&l->scaler, l->total.overflow) == MEMOPT_OK);
}
static void cuda_optim_never_waits(void) {
    int i;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, i % 2 ? MEMOPT_STATE_8BIT : MEMOPT_STATE_F32,
                                          cuda_optim_kinds[i].moment);
        cuda_optim_pair *p; cuda_optim_loop l; memopt_optim_group g[2]; memopt_scaler scaler; cudaStream_t stream;
        uint64_t t;
        s.tensors = 3; s.count[0] = 33 * 33; s.columns[0] = 33; s.count[1] = 31; s.count[2] = 770;
        s.gradients = i % 3 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16;
        simulator_streams(i % 2 ? MODE_LAZY : MODE_RANDOM, (uint64_t)i + 1);
        test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        p = cuda_optim_open(&s);
        cuda_optim_groups(g, s.kind, s.moment);
        cuda_optim_feed(p, (uint64_t)i, 0);
        cuda_optim_loop_of(&l, p);
        test_synchronize();
        for (t = 1; t <= 5; ++t) cuda_optim_loop_step(&l, p, cuda_optim_run(g, t), t % 2 ? 0.5 : 1e9, stream);
        cuda_optim_left_out(p, stream, (uint64_t)i); /* waits */
        test_get(&scaler, l.d_scaler, sizeof scaler);
        CHECK_AT(!memcmp(&scaler, &l.scaler, sizeof scaler) && scaler.scale == 4, i);
        test_cuda_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
        free(l.scratch);
        cuda_optim_close(p);
        test_device_free(0);
    }
    simulator_streams(MODE_EAGER, 0);
}
/* ---- states in pinned memory, stepped tile by tile: the bits of the CPU's, so of states on the device ---- */
typedef struct cuda_optim_away { cuda_optim_pair *p; memopt_cuda_optim_offload offload; memopt_cuda_optim_progress *d_progress; void *pinned[CUDA_OPTIM_TENSORS]; cudaStream_t stream; } cuda_optim_away;
static void cuda_optim_away_open(cuda_optim_away *a, const cuda_optim_spec *s, size_t tile) {
    int k;
    memset(a, 0, sizeof *a);
    test_cuda_must(cudaStreamCreateWithFlags(&a->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    a->p = cuda_optim_open(s);
    for (k = 0; k < s->tensors; ++k) {
        if (!a->p->state_bytes[k]) continue;
        test_cuda_must(cudaHostAlloc(&a->pinned[k], a->p->state_bytes[k], cudaHostAllocPortable), "cudaHostAlloc");
        memset(a->pinned[k], 0x5A, a->p->state_bytes[k]);
        a->p->gpu.tensor[k].state = a->pinned[k];
        CHECK(memopt_optim_state_init(a->p->gpu.optim, (size_t)k) == MEMOPT_OK);
    }
    CHECK(memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, NULL, &a->offload.transfer) == 0);
    a->offload.tile = tile;
    CHECK(memopt_cuda_optim_offload_bytes(a->p->gpu.optim, &a->offload, &a->offload.bytes) == 0);
    a->offload.d_tiles = test_device(a->offload.bytes);
    a->d_progress = (memopt_cuda_optim_progress *)test_device(sizeof *a->d_progress);
    test_synchronize();
}
static void cuda_optim_away_close(cuda_optim_away *a) {
    int k;
    CHECK(memopt_cuda_transfer_destroy(a->offload.transfer) == 0);
    test_cuda_must(cudaStreamDestroy(a->stream), "cudaStreamDestroy");
    for (k = 0; k < CUDA_OPTIM_TENSORS; ++k) test_cuda_must(cudaFreeHost(a->pinned[k]), "cudaFreeHost");
    cuda_optim_close(a->p);
    test_device_free(0);
}
static void cuda_optim_away_same(const cuda_optim_away *a, uint64_t at) {
    const cuda_optim_pair *p = a->p; int k;
    for (k = 0; k < p->spec.tensors; ++k) {
        const memopt_optim_tensor *c = &p->cpu.tensor[k], *g = &p->gpu.tensor[k];
        CHECK_AT(!cuda_optim_differs(c->weights, g->weights, p->held[k], p->wide), at * 100 + (uint64_t)k);
        if (c->extra) CHECK_AT(!cuda_optim_differs(c->extra, g->extra, p->held[k], 2), at * 100 + (uint64_t)k);
        if (c->state) CHECK_AT(!memcmp(c->state, g->state, p->state_bytes[k]), at * 100 + (uint64_t)k);
    }
}
static memopt_cuda_status cuda_optim_away_begin(cuda_optim_away *a, memopt_optim_run run, int who) { /* has the factor */
    cuda_optim_pair *p = a->p; const memopt_cuda_optim_progress progress = { run.step - 1, run.gradient_factor, 1 };
    if (!who) return memopt_cuda_optim_begin(p->gpu.optim, &run, p->d_scratch, p->scratch_bytes, a->stream);
    test_put(a->d_progress, &progress, sizeof progress);
    run.gradient_factor = 0;
    if (who == 1) return memopt_cuda_optim_begin_with_factor(p->gpu.optim, &run, &a->d_progress->factor, p->d_scratch, p->scratch_bytes, a->stream);
    return memopt_cuda_optim_begin_with_progress(p->gpu.optim, &run, a->d_progress, p->d_scratch, p->scratch_bytes, a->stream);
}
static memopt_cuda_status cuda_optim_away_apply(cuda_optim_away *a) {
    return memopt_cuda_optim_apply_offloaded(a->p->gpu.optim, &a->offload, a->p->d_scratch, a->p->scratch_bytes, a->stream);
}
static cuda_optim_spec cuda_optim_away_spec(memopt_optim_kind kind, memopt_state_format state, int moment) {
    static const size_t counts[5] = { 5000, 31, 770, 1, 2049 }; cuda_optim_spec s = cuda_optim_of(kind, state, moment);
    s.tensors = 5;
    memcpy(s.count, counts, sizeof counts);
    return s;
}
static void cuda_optim_offloaded(void) {
    static const size_t tiles[5] = { 1, 300, 0, 1000, 2048 }; int i, state, n = 0, k; uint64_t t;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) for (state = 0; state < 3; ++state) {
        cuda_optim_spec s = cuda_optim_away_spec(cuda_optim_kinds[i].kind, (memopt_state_format)state, cuda_optim_kinds[i].moment);
        cuda_optim_away a; memopt_optim_group g[2];
        if (memopt_i_kind_measures(s.kind)) continue;
        s.weights = (memopt_i_weights)(n % 4); s.gradients = (memopt_type)(n % 3); s.block = n % 2 ? 96 : 256; s.offset = n % 5 == 4;
        simulator_schedule(n % 8);
        simulator_streams(n % 3 == 0 ? MODE_LAZY : n % 3 == 1 ? MODE_RANDOM : MODE_EAGER, (uint64_t)n + 1);
        cuda_optim_away_open(&a, &s, tiles[n % 5]);
        cuda_optim_groups(g, s.kind, s.moment);
        for (t = 1; t <= 3; ++t) {
            const memopt_optim_run run = cuda_optim_run(g, t);
            cuda_optim_feed(a.p, t, t == 2 ? 3 : 0);
            CHECK(memopt_optim_step(a.p->cpu.optim, &run) == MEMOPT_OK);
            CHECK_AT(cuda_optim_away_begin(&a, run, (n + (int)t) % 3) == 0, n);
            test_cuda_must(cudaMemsetAsync(a.offload.d_tiles, 0xFF, a.offload.bytes, a.stream), "cudaMemsetAsync"); /* somebody else's until then, ... */
            CHECK_AT(cuda_optim_away_apply(&a) == 0, n);
            test_cuda_must(cudaMemsetAsync(a.offload.d_tiles, 0xFF, a.offload.bytes, a.stream), "cudaMemsetAsync"); /* ... and from then on */
            CHECK(memopt_cuda_optim_end(a.p->gpu.optim) == 0);
            CHECK_AT(cuda_optim_result(a.p, a.stream).skipped == memopt_optim_skipped(a.p->cpu.optim), n);
            cuda_optim_away_same(&a, (uint64_t)n * 10 + t);
            for (k = 0; k < s.tensors; ++k) CHECK(memopt_optim_applied(a.p->gpu.optim, (size_t)k) == a.p->held[k]);
        }
        ++n;
        cuda_optim_away_close(&a);
    }
    simulator_streams(MODE_EAGER, 0);
}
/* More small tensors than a launch takes, of which a tile holds many; a factor of 0 leaves all as it was. */
static void cuda_optim_offloaded_crowd(void) {
    cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 0); cuda_optim_away a; memopt_optim_group g[2]; memopt_optim_run run; int k;
    s.tensors = 60;
    for (k = 0; k < s.tensors; ++k) s.count[k] = k == 7 ? 9000 : (size_t)k * 7 % 90 + 1;
    simulator_streams(MODE_LAZY, 3);
    cuda_optim_away_open(&a, &s, 4096);
    CHECK(a.offload.bytes == 3 * (4096 + 256 + 4096 + 256)); /* a byte an element and moment; 16 scales in 256 bytes */
    cuda_optim_groups(g, s.kind, 0);
    for (run = cuda_optim_run(g, 1); run.step <= 2; ++run.step) {
        cuda_optim_feed(a.p, run.step, 1);
        CHECK(memopt_optim_step(a.p->cpu.optim, &run) == MEMOPT_OK);
        CHECK(cuda_optim_away_begin(&a, run, 0) == 0 && cuda_optim_away_apply(&a) == 0 && memopt_cuda_optim_end(a.p->gpu.optim) == 0);
        (void)cuda_optim_result(a.p, a.stream);
        cuda_optim_away_same(&a, run.step);
    }
    run.gradient_factor = 0;
    CHECK(cuda_optim_away_begin(&a, run, 2) == 0 && cuda_optim_away_apply(&a) == 0 && memopt_cuda_optim_end(a.p->gpu.optim) == 0);
    CHECK(cuda_optim_result(a.p, a.stream).left_out);
    cuda_optim_away_same(&a, 3);
    simulator_streams(MODE_EAGER, 0);
    cuda_optim_away_close(&a);
}
static void cuda_optim_offload_refused(void) {
    cuda_optim_spec s = cuda_optim_away_spec(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, 0); cuda_optim_away a; memopt_optim_group g[2]; memopt_optim_run run; memopt_optim *o; void *d; size_t n, bytes = 77;
    cuda_optim_away_open(&a, &s, 512);
    CHECK(a.offload.bytes == 3 * 2 * 512 * 4);
    cuda_optim_groups(g, s.kind, 0);
    run = cuda_optim_run(g, 1); o = a.p->gpu.optim; d = a.p->d_scratch; n = a.p->scratch_bytes;
    cuda_optim_feed(a.p, 1, 0);
    CHECK(memopt_cuda_optim_offload_bytes(NULL, &a.offload, &bytes) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_optim_offload_bytes(o, NULL, &bytes) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_optim_offload_bytes(o, &a.offload, NULL) == MEMOPT_CUDA_ERR_NULL && bytes == 77);
    CHECK(cuda_optim_away_apply(&a) == MEMOPT_ERR_STATE); /* no step has begun */
    CHECK(cuda_optim_away_begin(&a, run, 0) == 0);
#define REFUSED(change, status) do { memopt_cuda_optim_offload x = a.offload; change; CHECK(memopt_cuda_optim_apply_offloaded(o, &x, d, n, a.stream) == (status)); } while (0)
    CHECK(memopt_cuda_optim_apply_offloaded(o, NULL, d, n, a.stream) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_optim_apply_offloaded(NULL, &a.offload, d, n, a.stream) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_optim_apply_offloaded(o, &a.offload, d, n - 1, a.stream) == MEMOPT_ERR_BUFFER);
    REFUSED(x.transfer = NULL, MEMOPT_CUDA_ERR_NULL);
    REFUSED(x.d_tiles = NULL, MEMOPT_CUDA_ERR_NULL);
    REFUSED(x.d_tiles = (char *)x.d_tiles + 64, MEMOPT_CUDA_ERR_ALIGNMENT);
    REFUSED(--x.bytes, MEMOPT_ERR_BUFFER);
    REFUSED(x.tile = 513, MEMOPT_ERR_BUFFER); /* takes more */
    REFUSED(x.d_tiles = d, MEMOPT_CUDA_ERR_OVERLAP);
#ifndef __CUDACC__
    simulator_pending_error(cudaErrorIllegalAddress);
    REFUSED((void)x, MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
    simulator_pending_error(0);
#endif
    test_synchronize();
    cuda_optim_away_same(&a, 1);
    CHECK(cuda_optim_away_apply(&a) == 0 && cuda_optim_away_apply(&a) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_optim_error(o), MEMOPT_ERR_STATE, "tensor 0: this much was applied already"));
    CHECK(memopt_cuda_optim_end(o) == 0 && memopt_optim_step(a.p->cpu.optim, &run) == MEMOPT_OK);
    test_synchronize();
    cuda_optim_away_same(&a, 2);
    run.step = 2; run.fused = 1;
    CHECK(cuda_optim_away_begin(&a, run, 0) == 0);
    REFUSED((void)x, MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(o), MEMOPT_ERR_ARGUMENT, "a fused step is applied tensor by tensor"));
#undef REFUSED
    test_synchronize();
    cuda_optim_away_same(&a, 3);
    cuda_optim_away_close(&a);
    s.kind = MEMOPT_OPTIM_LAMB;
    cuda_optim_away_open(&a, &s, 0);
    cuda_optim_groups(g, s.kind, 0);
    run = cuda_optim_run(g, 1);
    CHECK(cuda_optim_away_begin(&a, run, 0) == 0 && cuda_optim_away_apply(&a) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(test_error_says(memopt_optim_error(a.p->gpu.optim), MEMOPT_ERR_UNSUPPORTED, "this kind measures: its states stay on the device"));
    cuda_optim_away_close(&a);
}
#ifndef __CUDACC__
/* Every call of the runtime fails once, also with another device current, and every launch: a status, nothing under way, nothing pending, and the tiles that have not been reached are as they were. */
static void cuda_optim_offload_fails(void) {
    cuda_optim_spec s = cuda_optim_away_spec(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 0); memopt_optim_group g[2]; size_t n; int way;
    cuda_optim_groups(g, s.kind, 0);
    for (way = 0; way < 3; ++way) for (n = 1; n < 500; ++n) {
        cuda_optim_away a; memopt_optim_run run = cuda_optim_run(g, 1); memopt_cuda_status status; static unsigned char was[16384];
        simulator_streams(MODE_LAZY, n);
        cuda_optim_away_open(&a, &s, 1024);
        cuda_optim_feed(a.p, 1, 0);
        CHECK(cuda_optim_away_begin(&a, run, 0) == 0);
        test_synchronize();
        test_cuda_must(cudaSetDevice(way == 2), "cudaSetDevice");
        (way == 1 ? simulator_fail_launch : simulator_fail_call)(n);
        status = cuda_optim_away_apply(&a);
        simulator_fail_launch(0); simulator_fail_call(0);
        test_cuda_must(cudaSetDevice(0), "cudaSetDevice");
        CHECK_AT(cudaGetLastError() == cudaSuccess, n);
        if (n == 1 && status) cuda_optim_away_same(&a, n); /* nothing has changed */
        if (status) { /* and no byte of a state changes any more */
            memcpy(was, a.pinned[0], a.p->state_bytes[0]);
            CHECK_AT(status > MEMOPT_CUDA_BASE_RUNTIME, n);
            test_synchronize();
            CHECK_AT(!memcmp(was, a.pinned[0], a.p->state_bytes[0]), n);
        } else {
            CHECK(memopt_optim_step(a.p->cpu.optim, &run) == MEMOPT_OK);
            test_synchronize();
            cuda_optim_away_same(&a, n);
        }
        cuda_optim_away_close(&a);
        if (!status) break;
    }
    CHECK(n > 3 && n < 500);
    simulator_streams(MODE_EAGER, 0);
}
#endif
/* The two sides take turns over the same bytes; headers are looked at when asked to. */
static void cuda_optim_states(void) {
    cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 0);
    cuda_optim_pair *p; unsigned char *state;
    const float bad[3] = { -0.0f, -1.0f, 0 };
    memopt_optim_view view; size_t i, n;
    s.count[0] = 5000; s.block = 32;
    p = cuda_optim_open(&s);
    cuda_optim_steps(p, 2, 5);
    n = p->state_bytes[0]; state = (unsigned char *)p->gpu.tensor[0].state;
    CHECK(memopt_cuda_optim_state_check(p->gpu.optim, 0, n, NULL) == 0);
    CHECK(memopt_cuda_optim_state_check(p->gpu.optim, 0, n - 1, NULL) == MEMOPT_ERR_BUFFER);
    CHECK(memopt_cuda_optim_state_check(p->gpu.optim, 1, n, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_optim_state_check(NULL, 0, n, NULL) == MEMOPT_CUDA_ERR_NULL);
#ifndef __CUDACC__
    for (i = 1; i <= 3; ++i) { /* copies and waits that fail: told once, and nobody else is blamed for it */
        simulator_fail_call(i);
        CHECK_AT(memopt_cuda_optim_state_check(p->gpu.optim, 0, n, NULL) > MEMOPT_CUDA_BASE_RUNTIME, i);
        simulator_fail_call(0);
        CHECK_AT(memopt_cuda_optim_state_check(p->gpu.optim, 0, n, NULL) == 0, i);
    }
#endif
    for (i = 0; i < 64; i += 4) {
        unsigned char was[4], now[4];
        test_get(was, state + i, 4);
        memcpy(now, was, 4);
        now[0] ^= 1;
        test_put(state + i, now, 4);
        CHECK_AT(memopt_cuda_optim_state_check(p->gpu.optim, 0, n, NULL) == MEMOPT_ERR_FORMAT, i);
        test_put(state + i, was, 4);
    }
    CHECK(memopt_optim_state_view(p->cpu.optim, 0, &view) == MEMOPT_OK);
    for (i = 0; i < 2; ++i) {
        const size_t at =
            (size_t)((unsigned char *)view.scale[i] - (unsigned char *)p->cpu.tensor[0].state) + 4 * (view.blocks - 1);
        test_put(state + at, &bad[i], 4);
        CHECK_AT(memopt_cuda_optim_state_check(p->gpu.optim, 0, n, NULL) == MEMOPT_ERR_FORMAT, i);
        CHECK(strlen(memopt_optim_error(p->gpu.optim).reason) > 10);
        test_put(state + at, &bad[2], 4);
    }
    CHECK(memopt_cuda_optim_state_check(p->gpu.optim, 0, n, NULL) == 0);
    cuda_optim_close(p);
}
/* A second moment alone: its scales are looked at, and no others are. */
static void cuda_optim_second_alone(void) {
    cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_8BIT, 0); memopt_optim_view view;
    const float bad = -1; cuda_optim_pair *p; size_t at;
    s.count[0] = 5000; s.block = 32;
    p = cuda_optim_open(&s);
    cuda_optim_steps(p, 2, 5);
    CHECK(memopt_optim_state_view(p->cpu.optim, 0, &view) == MEMOPT_OK
          && view.moments == 1 && !view.moment[0] && !view.scale[0]);
    CHECK(memopt_cuda_optim_state_check(p->gpu.optim, 0, p->state_bytes[0], NULL) == 0);
    at = (size_t)((unsigned char *)(view.scale[1] + view.blocks - 1) - (unsigned char *)p->cpu.tensor[0].state);
    test_put((unsigned char *)p->gpu.tensor[0].state + at, &bad, 4);
    CHECK(memopt_cuda_optim_state_check(p->gpu.optim, 0, p->state_bytes[0], NULL) == MEMOPT_ERR_FORMAT);
    cuda_optim_close(p);
    test_device_free(0);
}
/* 8-bit AdamW of a tensor, in blocks of 256 or, from way 2 on, of 96; `view`: of the CPU's states. */
static cuda_optim_pair *cuda_optim_open_coded(int way, size_t count, memopt_optim_view *view) {
    cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 0); cuda_optim_pair *p;
    s.block = way < 2 ? 256 : 96; s.count[0] = count;
    p = cuda_optim_open(&s);
    CHECK(memopt_optim_state_view(p->cpu.optim, 0, view) == MEMOPT_OK);
    return p;
}
/* Random codes below 2^bits */
static void cuda_optim_codes(const memopt_optim_view *view, int moment, uint64_t seed, int bits) {
    size_t i;
    for (i = 0; i < view->held; ++i) ((uint8_t *)view->moment[moment])[i] = (uint8_t)(cuda_optim_bits(seed, (size_t)moment, i) >> (32 - bits));
}
/* Second moments that are beyond what is squared: they become infinite, and are no block's largest. */
static void cuda_optim_infinite(void) {
    int way;
    for (way = 0; way < 4; ++way) {
        memopt_optim_view view; size_t i; cuda_optim_pair *p = cuda_optim_open_coded(way, 1901, &view);
        for (i = 0; i < view.blocks; ++i) view.scale[1][i] = i == 3 ? 3e30f : 1e22f; /* 3: all of it */
        cuda_optim_codes(&view, 1, 3, way % 2 ? 7 : 8);
        test_put(p->gpu.tensor[0].state, p->cpu.tensor[0].state, p->state_bytes[0]);
        cuda_optim_steps(p, 1, 1);
        CHECK(view.scale[1][0] > 0 && view.scale[1][0] < 1e22f && memopt_i_float_bits(view.scale[1][3]) == 0);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* Moments beyond the range in which four are stepped side by side, among others that are within it. */
static void cuda_optim_large(void) {
    static const float first[4] = { 3e38f, 1e30f, 2e18f, 1e-3f }, second[3] = { 1.8e19f, 1e-12f, 1e16f };
    int way;
    for (way = 0; way < 4; ++way) {
        memopt_optim_view view; size_t i; cuda_optim_pair *p = cuda_optim_open_coded(way, 5003, &view);
        for (i = 0; i < view.blocks; ++i) { view.scale[0][i] = first[i % 4]; view.scale[1][i] = second[i % 3]; }
        cuda_optim_codes(&view, 0, 4, way % 2 ? 6 : 8);
        cuda_optim_codes(&view, 1, 4, way % 2 ? 7 : 8);
        test_put(p->gpu.tensor[0].state, p->cpu.tensor[0].state, p->state_bytes[0]);
        cuda_optim_steps(p, 1, 1);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* A second moment that hardly moves does not tell of a gradient at the limit, 2^62 after the factor. With 2^-24 of its
   square the moment is 2^100, the last one that is stepped with others. */
static void cuda_optim_slow(void) {
    int way;

    for (way = 0; way < 4; ++way) {
        cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 0);
        memopt_optim_group g[2];
        memopt_optim_run run;
        cuda_optim_pair *p;
        size_t i;

        s.count[0] = 3000;
        if (way % 2) {
            s.weights = MEMOPT_I_WEIGHTS_BF16;
            s.gradients = MEMOPT_TYPE_BF16;
        }
        p = cuda_optim_open(&s);
        cuda_optim_groups(g, s.kind, s.moment);
        g[0].beta2 = g[1].beta2 = way / 2 ? 1 - ldexp(1, -24) : 1 - 1e-8;
        run = cuda_optim_run(g, 1000);
        cuda_optim_feed(p, 5, way / 2 ? 0 : 8);
        for (i = 7; i < s.count[0] && way / 2; i += 50)
            cuda_optim_put_code((unsigned char *)(uintptr_t)p->cpu.tensor[0].gradients, i, p->gradient, way % 2 ? 0x5f00 : 0x5f000000);
        test_put((void *)(uintptr_t)p->gpu.tensor[0].gradients, p->cpu.tensor[0].gradients, p->held[0] * p->gradient);
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
        CHECK(way / 2 ? memopt_optim_skipped(p->cpu.optim) == 60 : memopt_optim_skipped(p->cpu.optim) > 100);
        CHECK_AT(cuda_optim_begin(p, &run, 0, 1) == 0, way);
        cuda_optim_same(p, (uint64_t)way);
        cuda_optim_close(p);
        test_device_free(0);
    }
}

/* Bad input: a status, and nothing has changed. */
static void cuda_optim_unchanged(const cuda_optim_pair *p, int line) {
    CHECK_AT(!cuda_optim_differs(p->cpu.tensor[0].weights, p->gpu.tensor[0].weights, p->held[0], 4), line);
    CHECK_AT(!cuda_optim_differs(p->cpu.tensor[0].state, p->gpu.tensor[0].state, p->state_bytes[0], 1), line);
}
/* States of bitsandbytes are converted on the CPU; then a device steps them. As they are it steps none. */
static void cuda_optim_bitsandbytes(void) {
    cuda_optim_spec s = cuda_optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BNB, 0);
    memopt_optim_group g[2]; memopt_optim_run run; cuda_optim_pair *bnb, *p; uint64_t t;
    s.count[0] = 5000;
    bnb = cuda_optim_open(&s);
    cuda_optim_groups(g, s.kind, s.moment);
    for (t = 1; t <= 3; ++t) { /* somebody's training until now */
        run = cuda_optim_run(g, t);
        cuda_optim_feed(bnb, t, 0);
        CHECK(memopt_optim_step(bnb->cpu.optim, &run) == MEMOPT_OK);
    }
    s.state = MEMOPT_STATE_8BIT;
    p = cuda_optim_open(&s);
    CHECK(memopt_optim_state_convert(p->cpu.optim, bnb->cpu.optim, 0) == MEMOPT_OK);
    test_put(p->gpu.tensor[0].state, p->cpu.tensor[0].state, p->state_bytes[0]);
    CHECK(memopt_cuda_optim_state_check(p->gpu.optim, 0, p->state_bytes[0], NULL) == 0);
    for (; t <= 6; ++t) {
        run = cuda_optim_run(g, t);
        cuda_optim_feed(p, t, 0);
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK && cuda_optim_begin(p, &run, 0, 1) == 0);
        cuda_optim_same(p, t);
    }
    CHECK(memopt_cuda_optim_step(bnb->gpu.optim, &run, p->d_scratch, p->scratch_bytes, NULL) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(test_error_says(memopt_optim_error(bnb->gpu.optim), MEMOPT_ERR_UNSUPPORTED, "no device steps MEMOPT_STATE_BNB: see memopt_optim_state_convert()"));
    cuda_optim_close(p);
    cuda_optim_close(bnb);
    test_device_free(0);
}
static void cuda_optim_refused(void) {
    int i, again = 0;
    for (i = 0; i < CUDA_OPTIM_KINDS; ++i) {
        cuda_optim_spec s = cuda_optim_of(cuda_optim_kinds[i].kind, MEMOPT_STATE_8BIT, 1); memopt_optim_group g[2];
        memopt_optim_run run, bad;
        cuda_optim_pair *p; memopt_cuda_optim_outcome result; memopt_optim *o; size_t n;
        const int measures = memopt_i_kind_measures(s.kind);
        void *d; double *sums; size_t count;
        const void *was; void *state;
        s.count[0] = 3200; s.columns[0] = 50; s.moment = cuda_optim_kinds[i].moment || i == 2;
        p = cuda_optim_open(&s);
        o = p->gpu.optim; n = p->scratch_bytes; d = p->d_scratch;
        cuda_optim_groups(g, s.kind, s.moment);
        cuda_optim_feed(p, 1, 0);
        run = cuda_optim_run(g, 1);
        CHECK(memopt_cuda_optim_scratch(NULL, &n) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_scratch(o, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_state_init(NULL, 0, NULL) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_state_init(o, 1, NULL) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_cuda_optim_step(NULL, &run, d, n, NULL) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_step(o, NULL, d, n, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_step(o, &run, NULL, n, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_step(o, &run, (char *)d + 64, n, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
        CHECK(memopt_cuda_optim_step(o, &run, d, n - 1, NULL) == MEMOPT_ERR_BUFFER);
        CHECK(memopt_cuda_optim_begin(o, NULL, d, n, NULL) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_end(NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_result(o, d, n, NULL, NULL) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_result(o, NULL, n, &result, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_sums(o, 0, d, n, NULL, &count) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_sums(o, 0, d, n, &sums, &count) == MEMOPT_ERR_STATE);
        CHECK(memopt_cuda_optim_apply(o, 0, 0, s.count[0], d, n, NULL) == MEMOPT_ERR_STATE
              && memopt_cuda_optim_end(o) == MEMOPT_ERR_STATE);
        CHECK(memopt_cuda_optim_measure(o, 0, 0, s.count[0], d, n, NULL) == MEMOPT_ERR_STATE
              && memopt_cuda_optim_join(o, 0, &again, d, n, NULL) == MEMOPT_ERR_STATE);
        bad = run; bad.step = 0;
        CHECK(memopt_cuda_optim_step(o, &bad, d, n, NULL) == MEMOPT_ERR_ARGUMENT
              && strlen(memopt_optim_error(o).reason) > 5);
        bad = run; bad.group_count = 0;
        CHECK(memopt_cuda_optim_begin(o, &bad, d, n, NULL) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_cuda_optim_step_with_factor(o, &run, p->d_factor, d, n, NULL) == MEMOPT_ERR_ARGUMENT
              && memopt_cuda_optim_begin_with_factor(o, &run, p->d_factor, d, n, NULL) == MEMOPT_ERR_ARGUMENT
              && strlen(memopt_optim_error(o).reason) > 5); /* the run has a factor of its own */
        bad = run; bad.gradient_factor = 0;
        CHECK(memopt_cuda_optim_step_with_factor(o, &bad, NULL, d, n, NULL) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_begin_with_factor(o, &bad, NULL, d, n, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_step_with_factor(o, NULL, p->d_factor, d, n, NULL) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_begin_with_factor(NULL, &bad, p->d_factor, d, n, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_optim_step_with_factor(o, &bad, (double *)(void *)((char *)p->d_factor + 4), d, n, NULL)
              == MEMOPT_CUDA_ERR_ALIGNMENT);
        CHECK(memopt_cuda_optim_begin_with_factor(o, &bad, (double *)d + 1, d, n, NULL) == MEMOPT_CUDA_ERR_OVERLAP
              && memopt_cuda_optim_begin_with_factor(o, &bad, p->d_factor, d, n - 1, NULL) == MEMOPT_ERR_BUFFER);
        was = p->gpu.tensor[0].gradients;
        p->gpu.tensor[0].gradients = NULL;
        CHECK(memopt_cuda_optim_step(o, &run, d, n, NULL) == MEMOPT_ERR_ARGUMENT);
        p->gpu.tensor[0].gradients = (const char *)was + 1;
        CHECK(memopt_cuda_optim_step(o, &run, d, n, NULL) == MEMOPT_ERR_ARGUMENT);
        p->gpu.tensor[0].gradients = was;
        state = p->gpu.tensor[0].state;
        p->gpu.tensor[0].state = (char *)state + 32;
        CHECK(memopt_cuda_optim_step(o, &run, d, n, NULL) == MEMOPT_ERR_ARGUMENT
              && memopt_cuda_optim_state_init(o, 0, NULL) == MEMOPT_ERR_ARGUMENT);
        p->gpu.tensor[0].state = state;
        cuda_optim_unchanged(p, __LINE__);
#ifndef __CUDACC__
        simulator_pending_error(cudaErrorIllegalAddress);
        CHECK(memopt_cuda_optim_step(o, &run, d, n, NULL) == MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
        CHECK(memopt_cuda_optim_state_init(o, 0, NULL) == MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
        CHECK(memopt_cuda_optim_state_check(o, 0, p->state_bytes[0],
                                            NULL) == MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
        CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
        simulator_pending_error(0);
        simulator_fail_launch(1);
        CHECK(memopt_cuda_optim_begin(o, &run, d, n, NULL) > MEMOPT_CUDA_BASE_RUNTIME
              && cudaPeekAtLastError() == cudaSuccess);
        simulator_fail_launch(2);
        CHECK(memopt_cuda_optim_begin_with_factor(o, &bad, p->d_factor, d, n, NULL) > MEMOPT_CUDA_BASE_RUNTIME);
        CHECK(memopt_cuda_optim_end(o) == MEMOPT_ERR_STATE); /* nothing has begun */
        simulator_fail_launch(1);
        CHECK(memopt_cuda_optim_state_init(o, 0, NULL) > MEMOPT_CUDA_BASE_RUNTIME);
        simulator_fail_launch(1);
        CHECK(memopt_cuda_optim_step(o, &run, d, n, NULL) > MEMOPT_CUDA_BASE_RUNTIME);
        cuda_optim_unchanged(p, __LINE__);
#endif
        CHECK(memopt_cuda_optim_begin(o, &run, d, n, NULL) == 0
              && memopt_cuda_optim_begin(o, &run, d, n, NULL) == MEMOPT_ERR_STATE);
        CHECK(memopt_cuda_optim_step(o, &run, d, n, NULL) == MEMOPT_ERR_STATE);
        CHECK(memopt_cuda_optim_apply(o, 1, 0, 1, d, n, NULL) == MEMOPT_ERR_ARGUMENT
              && memopt_cuda_optim_apply(o, 0, 1, 32, d, n, NULL) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_cuda_optim_apply(o, 0, 0, 0, d, n, NULL) == MEMOPT_ERR_ARGUMENT
              && memopt_cuda_optim_apply(o, 0, 0, SIZE_MAX, d, n, NULL) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_cuda_optim_join(o, 0, NULL, d, n, NULL) == MEMOPT_CUDA_ERR_NULL
              && memopt_cuda_optim_join(o, 1, &again, d, n, NULL) < 0);
        if (measures) {
            CHECK(memopt_cuda_optim_apply(o, 0, 0, s.count[0], d, n, NULL) == MEMOPT_ERR_STATE);
            for (again = 1; again; ) {
#ifndef __CUDACC__
                simulator_fail_launch(1);
                CHECK(memopt_cuda_optim_measure(o, 0, 0, s.count[0], d, n, NULL) > MEMOPT_CUDA_BASE_RUNTIME);
#endif
                CHECK(memopt_cuda_optim_measure(o, 0, 0, s.count[0], d, n, NULL) == 0);
#ifndef __CUDACC__
                simulator_fail_launch(1);
                CHECK(memopt_cuda_optim_join(o, 0, &again, d, n, NULL) > MEMOPT_CUDA_BASE_RUNTIME);
#endif
                CHECK(memopt_cuda_optim_join(o, 0, &again, d, n, NULL) == 0);
            }
            CHECK(memopt_cuda_optim_join(o, 0, &again, d, n, NULL) == MEMOPT_ERR_STATE);
        } else CHECK(memopt_cuda_optim_join(o, 0, &again, d, n, NULL) == MEMOPT_ERR_STATE);
        CHECK(memopt_cuda_optim_measure(o, 0, 0, s.count[0], d, n, NULL) == MEMOPT_ERR_STATE);
#ifndef __CUDACC__
        simulator_fail_launch(1);
        CHECK(memopt_cuda_optim_apply(o, 0, 0, s.count[0], d, n, NULL) > MEMOPT_CUDA_BASE_RUNTIME
              && memopt_optim_applied(o, 0) == 0);
        cuda_optim_unchanged(p, __LINE__);
#endif
        CHECK(memopt_cuda_optim_apply(o, 0, 0, s.count[0], d, n, NULL) == 0
              && memopt_optim_applied(o, 0) == s.count[0]);
        CHECK(memopt_cuda_optim_apply(o, 0, 0, s.count[0], d, n, NULL) == MEMOPT_ERR_STATE);
        CHECK(memopt_cuda_optim_end(o) == 0 && memopt_cuda_optim_end(o) == MEMOPT_ERR_STATE);
        CHECK(memopt_optim_step(p->cpu.optim, &run) == MEMOPT_OK);
        cuda_optim_same(p, (uint64_t)i);
        cuda_optim_close(p);
        test_device_free(0);
    }
}
/* Four of AdamW side by side, among them zeros: one after another, the formulas of memopt.h give the same bits; and zeros,
   as of frozen rows, unused ids and padding, are no reason to leave them. */
#ifndef __CUDACC__
static void cuda_optim_zeros(void) {
    using namespace memopt_i_cuda;
    static const float kinds[] = { 0, 0, 1, -0.0f, 1e-19f, 1e-33f };
    memopt_i_update_rule r; uint64_t seed = 71; int turn, e, taken = 0;
    for (turn = 0; turn < 20000; ++turn) {
        const int no_eps = turn % 5 == 4, whole = turn % 2; /* whole: of the first three kinds */
        optim_element one[4], other[4], either[4]; float m[4], v[4]; int range, odd = 0, zero = 0;
        memset(&r, 0, sizeof r); memset(one, 0, sizeof one);
        r.b1 = 0.9f; r.g1 = 0.1f; r.b2 = 0.999f; r.g2 = 0.031622777f; r.factor = 1; r.decay = 1 - 1e-3f; r.step = 1e-2f; r.ic1 = 1;
        r.ic2 = 3; r.eps = no_eps ? 0 : 1e-8f; r.limit = 3.4e38f;
        for (e = 0; e < 4; ++e) {
            const float kind_m = kinds[test_random(&seed) % (whole ? 3 : 6)], kind_g = kinds[test_random(&seed) % (whole ? 3 : 6)];
            one[e].m = kind_m * cuda_optim_value(3, (uint64_t)turn, (uint64_t)e);
            one[e].v = kinds[test_random(&seed) % (whole ? 3 : 6)] * fabsf(cuda_optim_value(4, (uint64_t)turn, (uint64_t)e)) + 0.0f;
            one[e].g = kind_g * cuda_optim_value(5, (uint64_t)turn, (uint64_t)e);
            one[e].w = kinds[test_random(&seed) % 4] * cuda_optim_value(6, (uint64_t)turn, (uint64_t)e);
            if (whole) { one[e].m += 0.0f; one[e].g += 0.0f; } /* no -0 */
            one[e].scale_m = one[e].scale_v = 1; one[e].root = turn % 4 < 2; one[e].first = 1;
        }
        memcpy(other, one, sizeof one);
        range = optim_adam_moments<4>(r, one, m, v);
        for (e = 0; e < 4; ++e) { zero |= m[e] == 0 || v[e] == 0; odd |= fabsf(m[e]) < 1e-10f && m[e] != 0; odd |= v[e] < 1e-20f && v[e] != 0; }
        if (!odd && whole) CHECK_AT(range == (!zero ? OPTIM_MIDDLE : no_eps ? OPTIM_OUTSIDE : OPTIM_ZEROS), turn);
        if (range == OPTIM_OUTSIDE) continue;
        ++taken;
        memcpy(either, one, sizeof one);
        optim_adam_update<4, OPTIM_ZEROS>(r, either, m, v); /* of the kernel of all kinds, for both ranges */
        if (range == OPTIM_MIDDLE) optim_adam_update<4, OPTIM_MIDDLE>(r, one, m, v); else memcpy(one, either, sizeof one);
        for (e = 0; e < 4; ++e) {
            optim_one<OPTIM_ADAM>(r, &other[e]);
            CHECK_AT(memopt_i_float_bits(one[e].w) == memopt_i_float_bits(other[e].w) && memopt_i_float_bits(one[e].m) == memopt_i_float_bits(other[e].m)
                     && memopt_i_float_bits(one[e].v) == memopt_i_float_bits(other[e].v), turn);
            CHECK_AT(memopt_i_float_bits(either[e].w) == memopt_i_float_bits(one[e].w) && memopt_i_float_bits(either[e].v) == memopt_i_float_bits(one[e].v), turn);
        }
    }
    CHECK(taken > 5000);
}
#endif
static void test_cuda_optim(void) {
    RUN(cuda_optim_all_formats);
    RUN(cuda_optim_blocks);
    RUN(cuda_optim_sizes);
    RUN(cuda_optim_many);
    RUN(cuda_optim_measured);
    RUN(cuda_optim_matrices);
    RUN(cuda_optim_wild);
    RUN(cuda_optim_roots);
    RUN(cuda_optim_far);
    RUN(cuda_optim_cut);
    RUN(cuda_optim_parts);
    RUN(cuda_optim_fused);
    RUN(cuda_optim_by);
    RUN(cuda_optim_captured);
    RUN(cuda_optim_progresses);
    RUN(cuda_optim_crowd);
    RUN(cuda_optim_never_waits);
    RUN(cuda_optim_offloaded);
    RUN(cuda_optim_offloaded_crowd);
    RUN(cuda_optim_offload_refused);
#ifndef __CUDACC__
    RUN(cuda_optim_offload_fails);
#endif
    RUN(cuda_optim_states);
    RUN(cuda_optim_second_alone);
    RUN(cuda_optim_infinite);
    RUN(cuda_optim_large);
    RUN(cuda_optim_slow);
    RUN(cuda_optim_bitsandbytes);
    RUN(cuda_optim_refused);
    RUN(cuda_optim_empty);
    RUN(cuda_optim_uncut);
#ifndef __CUDACC__
    RUN(cuda_optim_zeros);
#endif
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_optim(); return test_totals(); }
#endif
