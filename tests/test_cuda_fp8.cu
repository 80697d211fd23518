/* test_cuda_fp8.cu - matrices as 8-bit floats on the device: the bytes of memopt_fp8_quantize(), of which test_fp8.c
   knows that they are right; and a linear layer in 8 bits, forward and backward, against float64. */
#include "test_cuda.h"
#ifndef __CUDACC__
#  include "cublaslt_mock.h"
#endif

static float cuda_fp8_value(uint64_t *seed, int hard) {
    static const uint32_t odd[] = { 0x7fc00000u, 0xff800000u, 0x7f800000u, 0x80000000u, 0u, 1u, 0x3f880000u, 0x3f980000u, 0xbf900000u };
    const uint64_t r = test_random(seed);
    if (hard && r % 7 == 0) return memopt_i_bits_float(odd[r / 7 % (sizeof odd / sizeof *odd)]);
    return ((float)(r >> 40) * (1.0f / 8388608.0f) - 1.0f) * (r & 64 ? 3.0f : r & 128 ? 0.001f : 100.0f);
}
typedef struct cuda_fp8_pair { memopt_fp8 here, there; memopt_fp8_scale scale; uint8_t *back; size_t n; } cuda_fp8_pair;
static cuda_fp8_pair cuda_fp8_open(size_t rows, size_t columns, memopt_type type, memopt_fp8_format format, int misaligned) {
    cuda_fp8_pair p; const size_t n = rows * columns, size = memopt_type_bytes(type);
    memset(&p, 0, sizeof p);
    p.n = n;
    p.here.rows = rows; p.here.columns = columns; p.here.type = type; p.here.format = format; p.there = p.here;
    p.here.input = malloc(n * size + 1); p.here.codes = (uint8_t *)malloc(n + 1); p.here.transposed = (uint8_t *)malloc(n + 1); p.here.scale = &p.scale; p.back = (uint8_t *)malloc(n + 1);
    p.there.input = test_device_at(n * size, misaligned & 1 ? size : 0); p.there.codes = (uint8_t *)test_device_at(n, misaligned & 2 ? 3 : 0);
    p.there.transposed = (uint8_t *)test_device_at(n, misaligned & 4 ? 5 : 0); p.there.scale = (memopt_fp8_scale *)test_device(sizeof p.scale);
    test_put(p.there.scale, &p.scale, sizeof p.scale);
    return p;
}
static void cuda_fp8_close(cuda_fp8_pair *p) {
    free((void *)(uintptr_t)p->here.input); free(p->here.codes); free(p->here.transposed); free(p->back);
}
static void cuda_fp8_feed(cuda_fp8_pair *p, uint64_t seed, int hard, float factor) {
    unsigned char *in = (unsigned char *)(uintptr_t)p->here.input; size_t i;
    for (i = 0; i < p->n; ++i) {
        const float x = cuda_fp8_value(&seed, hard) * factor; const uint16_t code = p->here.type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
        if (p->here.type == MEMOPT_TYPE_F32) memcpy(in + 4 * i, &x, 4); else memcpy(in + 2 * i, &code, 2);
    }
    test_put((void *)(uintptr_t)p->there.input, in, p->n * memopt_type_bytes(p->here.type));
}
static bool cuda_fp8_same(const cuda_fp8_pair *p) {
    memopt_fp8_scale scale;
    test_get(&scale, p->there.scale, sizeof scale);
    if (memcmp(&scale, &p->scale, sizeof scale)) return 0;
    if (p->there.codes) { test_get(p->back, p->there.codes, p->n); if (memcmp(p->back, p->here.codes, p->n)) return 0; }
    if (p->there.transposed) { test_get(p->back, p->there.transposed, p->n); if (memcmp(p->back, p->here.transposed, p->n)) return 0; }
    return 1;
}
static void cuda_fp8_matrices(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 16, 16 }, { 64, 64 }, { 65, 63 }, { 130, 208 }, { 1, 300 }, { 300, 1 }, { 48, 96 }, { 0, 5 } };
    int n = 0;
    TEST_SCHEDULES(3)
        for (int k = 0; k < 9; ++k) for (int type = 0; type < 3; ++type) for (int format = 0; format < 2; ++format, ++n) {
            cuda_fp8_pair p = cuda_fp8_open(shapes[k][0], shapes[k][1], (memopt_type)type, (memopt_fp8_format)format, n % 3 ? 0 : n % 8);
            if (n % 5 == 1) { free(p.here.codes); p.here.codes = p.there.codes = NULL; }
            if (n % 7 == 1) { free(p.here.transposed); p.here.transposed = p.there.transposed = NULL; }
            p.here.delayed = p.there.delayed = n % 2;
            for (int t = 0; t < 3; ++t) { /* the first by its own, then by those before */
                cuda_fp8_feed(&p, (uint64_t)n * 10 + (uint64_t)t, n % 3 == 1, t == 1 ? 4.0f : 1.0f);
                CHECK(memopt_fp8_quantize(&p.here, NULL) == MEMOPT_OK);
                CHECK(memopt_cuda_fp8_quantize(&p.there, NULL) == 0);
                CHECK_AT(cuda_fp8_same(&p), n * 10 + t);
            }
            cuda_fp8_close(&p);
            test_device_free(0);
        }
}
static void cuda_fp8_history(void) { /* longer than it is kept */
    cuda_fp8_pair p = cuda_fp8_open(16, 48, MEMOPT_TYPE_BF16, MEMOPT_FP8_E5M2, 0);
    p.here.delayed = p.there.delayed = 1;
    for (int t = 0; t < 40; ++t) {
        cuda_fp8_feed(&p, (uint64_t)t, t % 4 == 0, t == 5 ? 100.0f : 1.0f / (float)(1 + t));
        CHECK(memopt_fp8_quantize(&p.here, NULL) == MEMOPT_OK && memopt_cuda_fp8_quantize(&p.there, NULL) == 0);
        CHECK_AT(cuda_fp8_same(&p), t);
    }
    cuda_fp8_close(&p);
}
static void cuda_fp8_refused(void) {
    cuda_fp8_pair p = cuda_fp8_open(16, 16, MEMOPT_TYPE_F32, MEMOPT_FP8_E4M3, 0); memopt_fp8 x; memopt_fp8_scale scale;
#define REFUSED(change, status) do { x = p.there; change; CHECK(memopt_cuda_fp8_quantize(&x, NULL) == (status)); } while (0)
    CHECK(memopt_cuda_fp8_quantize(NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    REFUSED(x.scale = NULL, MEMOPT_CUDA_ERR_NULL);
    REFUSED(x.input = NULL, MEMOPT_CUDA_ERR_NULL);
    REFUSED(x.input = (const char *)x.input + 2, MEMOPT_CUDA_ERR_ALIGNMENT);
    REFUSED(x.scale = (memopt_fp8_scale *)(void *)((char *)x.scale + 2), MEMOPT_CUDA_ERR_ALIGNMENT);
    REFUSED(x.type = (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    REFUSED(memset(&x.format, 2, 1), MEMOPT_ERR_ARGUMENT);
    REFUSED(x.delayed = 2, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.transposed = x.codes + 255, MEMOPT_ERR_ARGUMENT);
    REFUSED(x.rows = SIZE_MAX / 4, MEMOPT_ERR_OVERFLOW);
#ifndef __CUDACC__
    simulator_pending_error(cudaErrorIllegalAddress);
    REFUSED((void)x, MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
    simulator_pending_error(0);
    simulator_fail_launch(1);
    REFUSED((void)x, MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
    simulator_fail_launch(0);
#endif
#undef REFUSED
    test_get(&scale, p.there.scale, sizeof scale);
    CHECK(scale.count == 0);
    x = p.there; /* empty, whatever the other side is: only the scale */
    x.rows = 0; x.columns = (size_t)1 << 40;
    CHECK(memopt_cuda_fp8_quantize(&x, NULL) == 0);
    x.rows = (size_t)1 << 40; x.columns = 0;
    CHECK(memopt_cuda_fp8_quantize(&x, NULL) == 0);
    test_get(&scale, p.there.scale, sizeof scale);
    CHECK(scale.count == 2);
    cuda_fp8_close(&p);
}

/* ---- a linear layer in 8 bits ---- */
static double cuda_fp8_decoded(const cuda_fp8_pair *p, size_t row, size_t column) {
    const uint8_t code = p->here.codes[row * p->here.columns + column];
    return (double)p->scale.scale * (double)(p->here.format == MEMOPT_FP8_E4M3 ? memopt_from_e4m3(code) : memopt_from_e5m2(code));
}
/* Element i, j of left right^T, each as it is (0) or transposed (1), from the codes in double; and the sum of magnitudes. */
typedef struct cuda_fp8_sum { double value, most; } cuda_fp8_sum;
static cuda_fp8_sum cuda_fp8_product(const cuda_fp8_pair *left, int left_turned, const cuda_fp8_pair *right, int right_turned, size_t i, size_t j) {
    const size_t depth = left_turned ? left->here.rows : left->here.columns; cuda_fp8_sum s = { 0, 0 }; size_t k;
    for (k = 0; k < depth; ++k) {
        const double t = cuda_fp8_decoded(left, left_turned ? k : i, left_turned ? i : k) * cuda_fp8_decoded(right, right_turned ? k : j, right_turned ? j : k);
        s.value += t; s.most += fabs(t);
    }
    return s;
}
/* An array of any type beside its numbers. */
typedef struct cuda_fp8_array { memopt_type type; size_t n; double *x; void *d; } cuda_fp8_array;
static float cuda_fp8_rounded(memopt_type type, float x) { return type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(memopt_to_bf16(x)) : type == MEMOPT_TYPE_F16 ? memopt_from_f16(memopt_to_f16(x)) : x; }
static float cuda_fp8_at(memopt_type type, const unsigned char *p, size_t i) {
    float x; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, p + 4 * i, 4); return x; }
    memcpy(&code, p + 2 * i, 2);
    return type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(code) : memopt_from_f16(code);
}
static cuda_fp8_array cuda_fp8_make(memopt_type type, size_t n, uint64_t seed, float factor) {
    cuda_fp8_array a; const size_t size = memopt_type_bytes(type); unsigned char *p = (unsigned char *)malloc(n * size + 1); size_t i;
    a.type = type; a.n = n; a.x = (double *)malloc(n * sizeof *a.x + 1); a.d = test_device(n * size);
    for (i = 0; i < n; ++i) {
        const float x = cuda_fp8_rounded(type, factor * ((float)(test_random(&seed) >> 40) / 8388608.0f - 1.0f)); const uint16_t code = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
        a.x[i] = (double)x;
        if (size == 4) memcpy(p + 4 * i, &x, 4); else memcpy(p + 2 * i, &code, 2);
    }
    test_put(a.d, p, n * size);
    free(p);
    return a;
}
/* Is every element what it should be? WANT gives value and magnitudes of element i; they are the array's from then on.
   A card adds products of 8 bits in 14 bits or so: seen on an H200 up to 2^-11 of the magnitudes, at depths of 16 to 144. */
template <class WANT> static size_t cuda_fp8_far(cuda_fp8_array *a, const WANT &want) {
    const size_t size = memopt_type_bytes(a->type); unsigned char *p = (unsigned char *)malloc(a->n * size + 1); size_t i, far = 0;
    test_get(p, a->d, a->n * size);
    for (i = 0; i < a->n; ++i) {
        const double got = (double)cuda_fp8_at(a->type, p, i); const cuda_fp8_sum w = want(i);
        far += !(fabs(got - w.value) <= ldexp(w.most, test_on_card() ? -10 : -20) + ldexp(fabs(w.value), a->type == MEMOPT_TYPE_F32 ? -22 : a->type == MEMOPT_TYPE_F16 ? -10 : -7) + (a->type == MEMOPT_TYPE_F16 ? ldexp(1, -25) : 0)); /* and its smallest */
        a->x[i] = got;
    }
    free(p);
    return far;
}
typedef struct cuda_fp8_gemm { memopt_cuda_ops ops; void *memory; size_t bytes; } cuda_fp8_gemm;
static int cuda_fp8_gemm_open(cuda_fp8_gemm *g) {
    memopt_cuda_gemm_desc desc;
    memset(&desc, 0, sizeof desc); memset(g, 0, sizeof *g);
#ifndef __CUDACC__
    cublaslt_mock_reset();
#endif
    desc.workspace_bytes = 1 << 16; desc.d_workspace = test_device(desc.workspace_bytes);
    CHECK(memopt_cuda_gemm_bytes(&desc, &g->bytes) == 0);
    g->memory = memopt_i_system_alloc(NULL, g->bytes, 64);
    const memopt_cuda_status s = memopt_cuda_gemm_create(&desc, g->memory, g->bytes, &g->ops.gemm);
    CHECK(s == 0);
    return !s;
}
static void cuda_fp8_gemm_close(cuda_fp8_gemm *g) {
#ifndef __CUDACC__
    CHECK(cublaslt_mock_counted().findings == 0); /* nothing was asked that cuBLASLt refuses: it would be asked again with less */
#endif
    memopt_cuda_gemm_destroy(g->ops.gemm);
    memopt_i_system_free(NULL, g->memory, g->bytes, 64);
}
typedef struct cuda_fp8_case { size_t rows, inputs, outputs; memopt_type type, gradient_type; int bias, residual; memopt_activation activation, through; int pre, accumulate, delayed; } cuda_fp8_case;
/* A layer and all it has: input, weights and the gradient as codes, too, by the CPU. */
typedef struct cuda_fp8_rig { cuda_fp8_pair x, w, dy; cuda_fp8_array bias, residual, output, pre, before, grad_input, grad_weights, grad_bias; memopt_linear linear; memopt_cuda_linear_fp8 kept; } cuda_fp8_rig;
static void cuda_fp8_rig_open(cuda_fp8_rig *r, const cuda_fp8_case *c) {
    const size_t out = c->rows * c->outputs, in = c->rows * c->inputs;
    memset(r, 0, sizeof *r);
    r->x = cuda_fp8_open(c->rows, c->inputs, c->type, MEMOPT_FP8_E4M3, 0); r->w = cuda_fp8_open(c->outputs, c->inputs, c->type, MEMOPT_FP8_E4M3, 0);
    r->dy = cuda_fp8_open(c->rows, c->outputs, c->type, MEMOPT_FP8_E5M2, 0);
    r->x.here.scale = &r->x.scale; r->w.here.scale = &r->w.scale; r->dy.here.scale = &r->dy.scale; /* they have moved */
    r->x.here.delayed = r->w.here.delayed = r->dy.here.delayed = r->kept.delayed = c->delayed;
    r->bias = cuda_fp8_make(c->type, c->outputs, 1, 30); r->residual = cuda_fp8_make(c->type, out, 2, 30); r->output = cuda_fp8_make(c->type, out, 3, 1); r->pre = cuda_fp8_make(c->type, out, 4, 1);
    r->before = cuda_fp8_make(c->type, in, 5, 1); r->grad_input = cuda_fp8_make(c->type, in, 6, 1); r->grad_weights = cuda_fp8_make(c->gradient_type, c->outputs * c->inputs, 7, 1); r->grad_bias = cuda_fp8_make(c->gradient_type, c->outputs, 8, 1);
    r->linear.rows = c->rows; r->linear.inputs = c->inputs; r->linear.outputs = c->outputs; r->linear.type = r->linear.weight_type = c->type; r->linear.gradient_type = c->gradient_type;
    r->linear.input = r->x.there.input; r->linear.weights = r->w.there.input; r->linear.bias = c->bias ? r->bias.d : NULL; r->linear.residual = c->residual ? r->residual.d : NULL;
    r->linear.activation = c->activation; r->linear.pre_activation = c->pre ? r->pre.d : NULL; r->linear.output = r->output.d; r->linear.accumulate = c->accumulate;
    r->linear.grad_output = r->dy.there.input; r->linear.grad_input = r->grad_input.d; r->linear.grad_weights = r->grad_weights.d; r->linear.grad_bias = r->grad_bias.d;
    r->kept.d_input = r->x.there.transposed; r->kept.d_weights = r->w.there.transposed;
    r->kept.d_input_scale = r->x.there.scale; r->kept.d_weight_scale = r->w.there.scale; r->kept.d_gradient_scale = r->dy.there.scale;
    r->x.there.codes = r->w.there.codes = r->dy.there.codes = r->dy.there.transposed = NULL; /* nobody sees them */
}
static void cuda_fp8_rig_close(cuda_fp8_rig *r) {
    cuda_fp8_array *const all[] = { &r->bias, &r->residual, &r->output, &r->pre, &r->before, &r->grad_input, &r->grad_weights, &r->grad_bias };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]->x);
    cuda_fp8_close(&r->x); cuda_fp8_close(&r->w); cuda_fp8_close(&r->dy);
}
static void cuda_fp8_rig_feed(cuda_fp8_rig *r, uint64_t seed) {
    cuda_fp8_feed(&r->x, seed, 0, 1); cuda_fp8_feed(&r->w, seed + 1, 0, 0.01f); cuda_fp8_feed(&r->dy, seed + 2, 0, 1e-3f);
    CHECK(memopt_fp8_quantize(&r->x.here, NULL) == MEMOPT_OK && memopt_fp8_quantize(&r->w.here, NULL) == MEMOPT_OK && memopt_fp8_quantize(&r->dy.here, NULL) == MEMOPT_OK);
}
static void cuda_fp8_give_scratch(cuda_fp8_gemm *g, const memopt_linear *x) {
    g->ops.scratch_bytes = 0;
    CHECK(memopt_cuda_linear_fp8_scratch(&g->ops, x, &g->ops.scratch_bytes) == 0);
    g->ops.d_scratch = test_device(g->ops.scratch_bytes);
}
static const cuda_fp8_case cuda_fp8_cases[] = {
    { 48, 32, 64, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 1, 0, MEMOPT_ACTIVATION_NONE, MEMOPT_ACTIVATION_NONE, 0, 0, 1 },
    { 16, 80, 16, MEMOPT_TYPE_F16, MEMOPT_TYPE_F16, 1, 1, MEMOPT_ACTIVATION_RELU, MEMOPT_ACTIVATION_RELU, 1, 1, 0 },
    { 64, 48, 32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 1, 1, MEMOPT_ACTIVATION_NONE, MEMOPT_ACTIVATION_RELU, 0, 1, 0 },
    { 32, 48, 96, MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, 1, 1, MEMOPT_ACTIVATION_NONE, MEMOPT_ACTIVATION_NONE, 0, 0, 1 },
    { 144, 16, 16, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 0, 0, MEMOPT_ACTIVATION_RELU, MEMOPT_ACTIVATION_NONE, 0, 1, 1 } };
/* Forward and backward of a layer; what forward read is gone before backward. */
static void cuda_fp8_step(cuda_fp8_gemm *g, const cuda_fp8_case *c, cuda_fp8_rig *r, uint64_t at) {
    const size_t size = memopt_type_bytes(c->type), n = c->outputs, m = c->inputs; cuda_fp8_sum s;
    cuda_fp8_rig_feed(r, at * 3);
    CHECK_AT(memopt_cuda_linear_forward_fp8(&g->ops, &r->linear, &r->kept, NULL) == 0, at);
    CHECK_AT(cuda_fp8_same(&r->x) && cuda_fp8_same(&r->w), at);
#ifndef __CUDACC__ /* in 8 bits the product adds a bias of 16 bits, and does nothing else */
    CHECK_AT(cublaslt_mock_last().epilogue == (c->bias && c->type != MEMOPT_TYPE_F32 ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT), at);
#endif
    const auto before = [&](size_t i) { s = cuda_fp8_product(&r->x, 0, &r->w, 0, i / n, i % n); if (c->bias) { s.value += r->bias.x[i % n]; s.most += fabs(r->bias.x[i % n]); } return s; };
    if (c->pre) CHECK_AT(!cuda_fp8_far(&r->pre, before), at);
    CHECK_AT(!cuda_fp8_far(&r->output, [&](size_t i) {
        (void)before(i);
        if (c->pre) { s.value = r->pre.x[i]; s.most = fabs(s.value); } /* as it was stored */
        if (c->activation == MEMOPT_ACTIVATION_RELU && s.value < 0) s.value = 0;
        s.most += fabs(s.value) * (c->type == MEMOPT_TYPE_F32 ? 0 : 4096); /* stored once before the next pass */
        if (c->residual) { s.value += r->residual.x[i]; s.most += fabs(r->residual.x[i]) * (c->type == MEMOPT_TYPE_F32 ? 1 : 4096); }
        return s; }), at);
    test_poison((void *)(uintptr_t)r->x.there.input, c->rows * m * size); test_poison((void *)(uintptr_t)r->w.there.input, n * m * size); test_poison(g->ops.d_scratch, g->ops.scratch_bytes);
    CHECK_AT(memopt_cuda_linear_backward_fp8(&g->ops, &r->linear, &r->kept, c->through, c->through ? r->before.d : NULL, NULL) == 0, at);
    CHECK_AT(cuda_fp8_same(&r->dy) && cuda_fp8_same(&r->x) && cuda_fp8_same(&r->w), at);
    CHECK_AT(!cuda_fp8_far(&r->grad_input, [&](size_t i) { s = cuda_fp8_product(&r->dy, 0, &r->w, 1, i / m, i % m); if (c->through && !(r->before.x[i] > 0)) s.value = 0; return s; }), at);
    CHECK_AT(!cuda_fp8_far(&r->grad_weights, [&](size_t i) { s = cuda_fp8_product(&r->dy, 1, &r->x, 1, i / m, i % m); if (c->accumulate) { s.value += r->grad_weights.x[i]; s.most += fabs(r->grad_weights.x[i]); } return s; }), at);
    CHECK_AT(!cuda_fp8_far(&r->grad_bias, [&](size_t i) {
        s.value = c->accumulate ? r->grad_bias.x[i] : 0; s.most = fabs(s.value);
        for (size_t k = 0; k < c->rows; ++k) { const double y = (double)cuda_fp8_at(c->type, (const unsigned char *)r->dy.here.input, k * n + i); s.value += y; s.most += fabs(y); }
        return s; }), at);
}
static void cuda_fp8_layers(void) {
    for (size_t k = 0; k < sizeof cuda_fp8_cases / sizeof *cuda_fp8_cases; ++k) {
        cuda_fp8_gemm g; cuda_fp8_rig r;
        if (!cuda_fp8_gemm_open(&g)) return;
        cuda_fp8_rig_open(&r, &cuda_fp8_cases[k]);
        cuda_fp8_give_scratch(&g, &r.linear);
        for (uint64_t t = 0; t < 2; ++t) cuda_fp8_step(&g, &cuda_fp8_cases[k], &r, k * 10 + t);
#ifndef __CUDACC__
        cublaslt_mock_refuse(4); /* no bias in 8 bits: a pass adds it */
        r.linear.rows = 16; r.linear.grad_input = NULL; r.kept.d_weights = NULL; /* and there is no gradient of the first layer's input */
        CHECK(memopt_cuda_linear_forward_fp8(&g.ops, &r.linear, &r.kept, NULL) == 0 && memopt_cuda_linear_backward_fp8(&g.ops, &r.linear, &r.kept, MEMOPT_ACTIVATION_NONE, NULL, NULL) == 0);
#endif
        cuda_fp8_rig_close(&r);
        cuda_fp8_gemm_close(&g);
        test_device_free(0);
    }
}
static void cuda_fp8_layer_refused(void) {
    cuda_fp8_gemm g; cuda_fp8_rig r; memopt_linear x; memopt_cuda_linear_fp8 k; memopt_cuda_ops o; memopt_fp8_scale scale; size_t bytes;
    if (!cuda_fp8_gemm_open(&g)) return;
    cuda_fp8_rig_open(&r, &cuda_fp8_cases[0]);
    cuda_fp8_give_scratch(&g, &r.linear);
    cuda_fp8_rig_feed(&r, 1);
#define FORWARD(change, status) do { x = r.linear; k = r.kept; o = g.ops; change; CHECK(memopt_cuda_linear_forward_fp8(&o, &x, &k, NULL) == (status)); } while (0)
#define BACKWARD(change, status) do { x = r.linear; k = r.kept; o = g.ops; change; CHECK(memopt_cuda_linear_backward_fp8(&o, &x, &k, MEMOPT_ACTIVATION_NONE, NULL, NULL) == (status)); } while (0)
#define BOTH(change, status) do { FORWARD(change, status); BACKWARD(change, status); } while (0)
    CHECK(memopt_cuda_linear_forward_fp8(NULL, &r.linear, &r.kept, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_linear_forward_fp8(&g.ops, NULL, &r.kept, NULL) == MEMOPT_ERR_ARGUMENT && memopt_cuda_linear_forward_fp8(&g.ops, &r.linear, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_linear_backward_fp8(&g.ops, &r.linear, NULL, MEMOPT_ACTIVATION_NONE, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_linear_fp8_scratch(&g.ops, &r.linear, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_linear_fp8_scratch(&g.ops, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    BOTH(o.gemm = NULL, MEMOPT_CUDA_ERR_NULL);
    BOTH(x.rows = 40, MEMOPT_CUDA_ERR_STRIDE);
    BOTH(x.outputs = 60, MEMOPT_CUDA_ERR_STRIDE);
    BOTH(x.inputs = 33, MEMOPT_CUDA_ERR_STRIDE);
    BOTH(k.d_input_scale = NULL, MEMOPT_CUDA_ERR_NULL);
    BOTH(k.d_weight_scale = (memopt_fp8_scale *)(void *)((char *)k.d_weight_scale + 4), MEMOPT_CUDA_ERR_ALIGNMENT);
    BOTH(k.d_input_scale = (memopt_fp8_scale *)(void *)((char *)k.d_input_scale + 8), MEMOPT_CUDA_ERR_ALIGNMENT);
    BACKWARD(k.d_gradient_scale = (memopt_fp8_scale *)(void *)((char *)k.d_gradient_scale + 8), MEMOPT_CUDA_ERR_ALIGNMENT);
    BOTH(k.d_input += 8, MEMOPT_CUDA_ERR_ALIGNMENT);
    BOTH(k.d_weights += 4, MEMOPT_CUDA_ERR_ALIGNMENT);
    BOTH(k.delayed = 2, MEMOPT_ERR_ARGUMENT);
    BOTH(x.weight_type = MEMOPT_TYPE_F16, MEMOPT_CUDA_ERR_TYPE);
    BOTH(x.rows = (size_t)1 << 40, MEMOPT_ERR_OVERFLOW);
    BOTH(o.d_scratch = (char *)o.d_scratch + 16, MEMOPT_CUDA_ERR_ALIGNMENT);
    FORWARD(o.scratch_bytes = 48 * 32 + 64 * 32 - 1, MEMOPT_ERR_BUFFER);
    BACKWARD(--o.scratch_bytes, MEMOPT_ERR_BUFFER);
    FORWARD(x.input = NULL, MEMOPT_CUDA_ERR_NULL);
    FORWARD(x.weights = NULL, MEMOPT_CUDA_ERR_NULL);
    FORWARD(x.output = (char *)x.output + 8, MEMOPT_CUDA_ERR_ALIGNMENT);
    FORWARD(k.d_weights = k.d_input, MEMOPT_CUDA_ERR_OVERLAP);
    FORWARD(x.output = k.d_input, MEMOPT_CUDA_ERR_OVERLAP);
    FORWARD(k.d_input = (uint8_t *)(uintptr_t)x.input, MEMOPT_ERR_ARGUMENT);
    BACKWARD(k.d_gradient_scale = NULL, MEMOPT_CUDA_ERR_NULL);
    BACKWARD(k.d_input = NULL, MEMOPT_CUDA_ERR_NULL);
    BACKWARD(k.d_weights = NULL, MEMOPT_CUDA_ERR_NULL);
    BACKWARD(x.grad_output = NULL, MEMOPT_CUDA_ERR_NULL);
    BACKWARD(x.grad_input = (char *)x.grad_input + 8, MEMOPT_CUDA_ERR_ALIGNMENT);
    BACKWARD(x.grad_input = k.d_weights, MEMOPT_CUDA_ERR_OVERLAP);
#ifndef __CUDACC__
    g.ops.gemm->capability = 80;
    BOTH((void)x, MEMOPT_CUDA_ERR_TYPE);
    g.ops.gemm->capability = 90;
    cublaslt_mock_no_algorithm(SIZE_MAX); /* known before anything is quantised */
    BOTH(x.bias = NULL, MEMOPT_CUDA_ERR_NO_ALGORITHM);
    cublaslt_mock_no_algorithm(0);
    simulator_pending_error(cudaErrorIllegalAddress);
    BOTH((void)x, MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);
    simulator_pending_error(0);
    r.linear.rows = 32; /* shapes that are not known to have no algorithm */
    simulator_fail_launch(1);
    FORWARD((void)x, MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
    simulator_fail_launch(1);
    BACKWARD((void)x, MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
    simulator_fail_launch(0);
#endif
#undef BOTH
#undef BACKWARD
#undef FORWARD
    for (int i = 0; i < 3; ++i) {
        test_get(&scale, i == 0 ? r.kept.d_input_scale : i == 1 ? r.kept.d_weight_scale : r.kept.d_gradient_scale, sizeof scale);
        CHECK_AT(scale.count == 0, i);
    }
    cuda_fp8_rig_close(&r);
    cuda_fp8_gemm_close(&g);
}
static void test_cuda_fp8(void) {
    RUN(cuda_fp8_matrices);
    RUN(cuda_fp8_history);
    RUN(cuda_fp8_layers);
    RUN(cuda_fp8_layer_refused);
    RUN(cuda_fp8_refused);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_fp8(); return test_totals(); }
#endif
