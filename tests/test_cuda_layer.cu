/* test_cuda_layer.cu - activations, SwiGLU, dropout and embeddings on the device: the bits of their twins in memopt.h, of
   which test_layer.c knows that they are right. Any NaN stands for any other. */
#include "test_cuda.h"

typedef struct cuda_layer_array { /* an array here, for the twin, and its copy there */
    unsigned char *here, *back, *there;
    size_t         count, bytes;
    memopt_type    type;
} cuda_layer_array;
enum { CUDA_LAYER_ARRAYS = 8 };
static cuda_layer_array cuda_layer_all[CUDA_LAYER_ARRAYS];
static int cuda_layer_count;

static float cuda_layer_get(const unsigned char *p, memopt_type type, size_t i) {
    float x; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, p + 4 * i, 4); return x; }
    memcpy(&code, p + 2 * i, 2);
    return type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(code) : memopt_from_f16(code);
}
static void cuda_layer_set(unsigned char *p, memopt_type type, size_t i, float x) {
    const uint16_t code = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
    if (type == MEMOPT_TYPE_F32) memcpy(p + 4 * i, &x, 4);
    else memcpy(p + 2 * i, &code, 2);
}
/* What formulas stumble over, and numbers of all sizes that activations bend. */
static float cuda_layer_value(uint64_t *seed, int planted) {
    static const uint32_t hard[] = { 0x7fc00000u, 0x7f800001u, 0xffc12345u, 0x7f800000u, 0xff800000u, 0x80000000u, 0u,
        1u, 0x80000001u, 0x007fffffu, 0x7f7fffffu, 0xff7fffffu, 0x3f808000u, 0x3f818000u, 0x42aeac50u, 0xc2aeac50u,
        0x41800000u, 0xc1800000u, 0x43000000u, 0xc3000000u, 0x477fefffu, 0x33000000u };
    const uint64_t r = test_random(seed);
    if (planted && r % 7 == 0) return memopt_i_bits_float(hard[r / 7 % (sizeof hard / sizeof *hard)]);
    return ((float)(r >> 40) * (1.0f / 8388608.0f) - 1.0f) * (r & 64 ? 8.0f : r & 128 ? 0.01f : 1.0f);
}
/* Bytes of NaN, or numbers from a seed; `misaligned`: one element in, so that 16-byte accesses cannot be. */
static cuda_layer_array *cuda_layer_new(size_t count, memopt_type type, int misaligned, uint64_t seed, int planted) {
    cuda_layer_array *a = &cuda_layer_all[cuda_layer_count++];
    a->count = count; a->type = type; a->bytes = count * memopt_type_bytes(type);
    a->here = (unsigned char *)malloc(a->bytes + 16);
    a->back = (unsigned char *)malloc(a->bytes + 16);
    memset(a->here, 0xFF, a->bytes);
    for (size_t i = 0; seed && i < count; ++i) cuda_layer_set(a->here, type, i, cuda_layer_value(&seed, planted));
    a->there = (unsigned char *)test_device_at(a->bytes, misaligned ? memopt_type_bytes(type) : 0);
    test_put(a->there, a->here, a->bytes);
    return a;
}
/* The device's copy is what the twin has made of this one. */
static bool cuda_layer_same(const cuda_layer_array *a) {
    size_t i;
    test_get(a->back, a->there, a->bytes);
    if (!memcmp(a->here, a->back, a->bytes)) return 1;
    for (i = 0; i < a->count; ++i) {
        const float x = cuda_layer_get(a->here, a->type, i), y = cuda_layer_get(a->back, a->type, i);
        if (memopt_i_float_bits(x) != memopt_i_float_bits(y) && (x == x || y == y)) {
            if (test_failures < 20) printf("element %llu: %a, not %a\n", (unsigned long long)i, (double)y, (double)x);
            return 0;
        }
    }
    return 1;
}
static void cuda_layer_end(void) {
    while (cuda_layer_count) {
        --cuda_layer_count;
        free(cuda_layer_all[cuda_layer_count].here);
        free(cuda_layer_all[cuda_layer_count].back);
    }
    test_device_free(0);
}

/* ---- activations ---- */
static void cuda_layer_activation_case(size_t n, memopt_type type, int kind, int misaligned, int in_place) {
    cuda_layer_array *x = cuda_layer_new(n, type, misaligned & 1, n + 3, 1), *y = cuda_layer_new(n, type, misaligned & 2, 0, 0);
    cuda_layer_array *g = cuda_layer_new(n, type, misaligned & 4, n + 5, 1), *d = cuda_layer_new(n, type, misaligned & 1, 0, 0);
    cuda_layer_array *again = cuda_layer_new(n, type, 0, 0, 0); memopt_activation_args here, there;
    memset(&here, 0, sizeof here);
    here.n = n; here.activation = (memopt_activation)kind; here.type = type;
    there = here;
    here.input = x->here; here.output = y->here; there.input = x->there; there.output = y->there;
    CHECK(memopt_activation_forward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_activation_forward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(y), n * 10 + (size_t)kind);
    here.output = in_place ? NULL : again->here; there.output = in_place ? NULL : again->there;
    if (in_place) d = g;
    here.grad_output = g->here; here.grad_input = d->here; there.grad_output = g->there; there.grad_input = d->there;
    CHECK(memopt_activation_backward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_activation_backward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(d), n * 10 + (size_t)kind);
    if (!in_place) CHECK_AT(cuda_layer_same(again), n * 10 + (size_t)kind);
    CHECK_AT(cuda_layer_same(x), n * 10 + (size_t)kind);
    if (in_place) { /* forward */
        here.output = x->here; there.output = x->there;
        CHECK(memopt_activation_forward(NULL, &here) == MEMOPT_OK);
        CHECK(memopt_cuda_activation_forward(NULL, &there, NULL) == 0);
        CHECK_AT(cuda_layer_same(x), n * 10 + (size_t)kind);
    }
    cuda_layer_end();
}
static void cuda_layer_activations(void) {
    static const size_t sizes[] = { 1, 31, 32, 33, 255, 257, 1000, 4099, 20001 };
    int i = 0;
    TEST_SCHEDULES(2)
        for (int type = 0; type < 3; ++type)
            for (int kind = 0; kind < 4; ++kind)
                for (int k = 0; k < 9; ++k, ++i)
                    cuda_layer_activation_case(sizes[k], (memopt_type)type, kind, i % 5 == 0 ? 0 : i % 8, i % 3 == 1);
}

/* ---- SwiGLU ---- */
static void cuda_layer_swiglu_case(size_t rows, size_t width, memopt_type type, int misaligned, int in_place) {
    const size_t n = rows * width;
    cuda_layer_array *x = cuda_layer_new(2 * n, type, misaligned & 1, n + 3, 1), *y = cuda_layer_new(n, type, misaligned & 2, 0, 0);
    cuda_layer_array *g = cuda_layer_new(n, type, misaligned & 4, n + 7, 1), *d = cuda_layer_new(2 * n, type, misaligned & 1, 0, 0);
    cuda_layer_array *again = cuda_layer_new(n, type, 0, 0, 0); memopt_swiglu here, there;
    memset(&here, 0, sizeof here);
    here.rows = rows; here.width = width; here.type = type;
    there = here;
    here.input = x->here; here.output = y->here; there.input = x->there; there.output = y->there;
    CHECK(memopt_swiglu_forward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_swiglu_forward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(y), rows * 10000 + width);
    CHECK_AT(cuda_layer_same(x), rows * 10000 + width);
    here.output = in_place ? NULL : again->here; there.output = in_place ? NULL : again->there;
    if (in_place) d = x;
    here.grad_output = g->here; here.grad_input = d->here; there.grad_output = g->there; there.grad_input = d->there;
    CHECK(memopt_swiglu_backward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_swiglu_backward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(d), rows * 10000 + width);
    if (!in_place) CHECK_AT(cuda_layer_same(again), rows * 10000 + width);
    cuda_layer_end();
}
static void cuda_layer_swiglus(void) {
    static const size_t shapes[][2] = { { 1, 1 }, { 3, 7 }, { 33, 8 }, { 2, 33 }, { 7, 129 }, { 3, 256 }, { 300, 3 },
        { 2, 1032 }, { 1, 2049 }, { 3, 4104 } };
    int i = 0;
    TEST_SCHEDULES(2)
        for (int type = 0; type < 3; ++type)
            for (int k = 0; k < 10; ++k, ++i)
                cuda_layer_swiglu_case(shapes[k][0], shapes[k][1], (memopt_type)type, i % 3 ? 0 : i % 8, i % 4 == 1);
}

/* ---- dropout ---- */
static void cuda_layer_dropout_case(size_t n, memopt_type type, float rate, uint64_t first, int misaligned, int way) {
    cuda_layer_array *x = cuda_layer_new(n, type, misaligned & 1, n + 3, 1), *r = cuda_layer_new(n, type, misaligned & 2, n + 9, 1);
    cuda_layer_array *y = cuda_layer_new(n, type, misaligned & 4, 0, 0); memopt_dropout here, there;
    memset(&here, 0, sizeof here);
    here.n = n; here.type = type; here.rate = rate; here.first = first; here.noise = memopt_noise_make(n, 3);
    there = here;
    if (way == 1) y = x;
    if (way == 2) y = r;
    here.input = x->here; there.input = x->there;
    if (way != 3) { here.residual = r->here; there.residual = r->there; }
    here.output = y->here; there.output = y->there;
    CHECK(memopt_dropout_forward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_dropout_forward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(y), n);
    here.grad_output = y->here; here.grad_input = way ? y->here : r->here;
    there.grad_output = y->there; there.grad_input = way ? y->there : r->there;
    CHECK(memopt_dropout_backward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_dropout_backward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(y), n);
    CHECK_AT(cuda_layer_same(r), n);
    cuda_layer_end();
}
static void cuda_layer_dropouts(void) {
    static const size_t sizes[] = { 1, 15, 17, 31, 32, 33, 255, 257, 4099, 9001 };
    static const uint64_t firsts[] = { 0, 32, 5, 16, ((uint64_t)1 << 33) - 96, ((uint64_t)1 << 33) - 7, ~(uint64_t)0 - 50, 3200 };
    static const float rates[] = { 0, 0.1f, 0.5f, 0.99999f, 0.25f };
    int i = 0;
    TEST_SCHEDULES(2)
        for (int type = 0; type < 3; ++type)
            for (int k = 0; k < 10; ++k)
                for (int f = 0; f < 8; ++f, ++i)
                    cuda_layer_dropout_case(sizes[k], (memopt_type)type, rates[i % 5], firsts[f], i % 3 ? 0 : i % 8, i % 4);
    for (size_t k = 0; k < 64; ++k) { /* the noise of element k is the threshold itself: it stays */
        const uint64_t first = k % 2 ? 5 : 0;
        const uint32_t noise = memopt_i_noise16(memopt_noise_make(64, 3), first + k / 2 * 2 + k / 2 % 2);
        cuda_layer_dropout_case(64, MEMOPT_TYPE_F32, (float)noise / 65536.0f, first, 0, 0);
    }
}

/* ---- embeddings ---- */
typedef struct cuda_layer_embedding {
    size_t rows, width, vocabulary, length;
    memopt_type type, weight_type, gradient_type;
    int positions, misaligned, accumulate, ids; /* ids: of any token; most of one; in order; some that are none */
} cuda_layer_embedding;
enum { CUDA_LAYER_ANY, CUDA_LAYER_ONE, CUDA_LAYER_ORDERED, CUDA_LAYER_NONE };
static int32_t cuda_layer_id(const cuda_layer_embedding *e, size_t row, uint64_t *seed) {
    const uint64_t r = test_random(seed);
    if (e->ids == CUDA_LAYER_ONE) return (int32_t)(r % 8 ? e->vocabulary / 2 : r / 8 % e->vocabulary);
    if (e->ids == CUDA_LAYER_ORDERED) return (int32_t)(row % e->vocabulary);
    if (e->ids == CUDA_LAYER_NONE && r % 4 == 0)
        return r & 8 ? -1 - (int32_t)(r >> 40) : (int32_t)(e->vocabulary + (r & 16 ? (r >> 40) : 0));
    return (int32_t)(r / 4 % e->vocabulary);
}
/* The twin refuses ids that are none: it gets them as a token more, whose weights are NaN. */
static void cuda_layer_embedding_case(const cuda_layer_embedding *e, int schedules) {
    const size_t n = e->rows * e->width, all = (e->vocabulary + 1) * e->width; uint64_t seed = e->rows * 31 + e->width;
    cuda_layer_array *ids = cuda_layer_new(e->rows, MEMOPT_TYPE_F32, 0, 0, 0), *y = cuda_layer_new(n, e->type, e->misaligned & 1, 0, 0);
    cuda_layer_array *w = cuda_layer_new(all, e->weight_type, e->misaligned & 2, 5, 1);
    cuda_layer_array *p = cuda_layer_new(e->length * e->width, e->weight_type, e->misaligned & 4, 6, 1);
    cuda_layer_array *g = cuda_layer_new(n, e->type, e->misaligned & 1, 7, 0);
    cuda_layer_array *dw = cuda_layer_new(all, e->gradient_type, e->misaligned & 4, e->accumulate ? 8 : 0, 0);
    cuda_layer_array *dp = cuda_layer_new(e->length * e->width, e->gradient_type, e->misaligned & 2, e->accumulate ? 9 : 0, 0);
    memopt_embedding here, there; memopt_cuda_ops ops; int32_t *id = (int32_t *)(void *)ids->here;
    unsigned char *old = (unsigned char *)malloc(dw->bytes + dp->bytes + 1);
    memset(&here, 0, sizeof here); memset(&ops, 0, sizeof ops);
    here.rows = e->rows; here.width = e->width; here.vocabulary = e->vocabulary; here.length = e->length; here.type = e->type;
    here.weight_type = e->weight_type; here.gradient_type = e->gradient_type; here.accumulate = e->accumulate;
    there = here;
    for (size_t i = 0; i < e->rows; ++i) id[i] = cuda_layer_id(e, i, &seed);
    test_put(ids->there, id, ids->bytes);
    for (size_t i = 0; i < e->rows; ++i) if (id[i] < 0 || (size_t)id[i] >= e->vocabulary) id[i] = (int32_t)e->vocabulary;
    for (size_t i = 0; i < e->width; ++i)
        cuda_layer_set(w->here, e->weight_type, e->vocabulary * e->width + i, memopt_i_bits_float(0x7fc00000u));
    here.vocabulary = e->vocabulary + 1;
    here.ids = id; here.tokens = w->here; here.output = y->here; here.grad_output = g->here;
    there.ids = (const int32_t *)(const void *)ids->there; there.tokens = w->there; there.output = y->there; there.grad_output = g->there;
    if (e->positions) { here.positions = p->here; there.positions = p->there; here.grad_positions = dp->here; there.grad_positions = dp->there; }
    CHECK(memopt_embedding_forward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_embedding_forward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(y), e->rows * 10000 + e->width);
    here.grad_tokens = dw->here; there.grad_tokens = dw->there;
    memcpy(old, dw->here, dw->bytes); memcpy(old + dw->bytes, dp->here, dp->bytes);
    CHECK(memopt_embedding_backward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_embedding_scratch(NULL, &there, &ops.scratch_bytes) == 0);
    ops.d_scratch = test_device(ops.scratch_bytes);
    memcpy(dw->here + e->vocabulary * e->width * memopt_type_bytes(e->gradient_type), old + e->vocabulary * e->width
           * memopt_type_bytes(e->gradient_type), e->width * memopt_type_bytes(e->gradient_type)); /* the token that is none */
    TEST_SCHEDULES(schedules) {
        test_put(dw->there, old, dw->bytes); test_put(dp->there, old + dw->bytes, dp->bytes);
        CHECK(memopt_cuda_embedding_backward(&ops, &there, NULL) == 0);
        CHECK_AT(cuda_layer_same(dw), e->rows * 10000 + e->width);
        if (e->positions) CHECK_AT(cuda_layer_same(dp), e->rows * 10000 + e->width);
    }
    free(old);
    cuda_layer_end();
}
static void cuda_layer_embeddings(void) {
    static const size_t shapes[][4] = { { 1, 1, 1, 1 }, { 7, 5, 3, 4 }, { 40, 8, 11, 7 }, { 33, 33, 50, 64 }, { 300, 16, 20, 100 },
        { 600, 3, 300, 600 }, { 70, 264, 9, 33 }, { 9, 1032, 4, 3 }, { 3, 1200, 70, 2 } };
    for (int i = 0; i < 54; ++i) {
        cuda_layer_embedding e; const int failures = test_failures;
        const size_t *s = shapes[i % 9];
        memset(&e, 0, sizeof e);
        e.rows = s[0]; e.width = s[1]; e.vocabulary = s[2]; e.length = s[3];
        e.type = (memopt_type)(i / 9 % 3); e.weight_type = (memopt_type)(i / 2 % 3); e.gradient_type = (memopt_type)(i / 5 % 3);
        e.positions = i % 3 != 1; e.misaligned = i % 4 == 3 ? i % 8 : 0; e.accumulate = i / 3 % 2; e.ids = i / 4 % 4;
        cuda_layer_embedding_case(&e, i % 9 < 6 ? 8 : 2);
        if (test_failures != failures) { printf("case %d\n", i); return; }
    }
}
/* A token of more rows than a list takes, beside others; lists that are just not too long. */
static void cuda_layer_many_rows(void) {
    for (int i = 0; i < 6; ++i) {
        cuda_layer_embedding e;
        memset(&e, 0, sizeof e);
        e.rows = i % 3 == 0 ? 3001 : i % 3 == 1 ? 1024 : 1025; e.width = i == 5 ? 132 : 9; e.vocabulary = i % 3 ? 1 : 7; e.length = 1000;
        e.gradient_type = (memopt_type)(i % 3); e.type = (memopt_type)(i / 2 % 3); e.ids = i % 3 ? CUDA_LAYER_ANY : CUDA_LAYER_ONE;
        e.positions = i == 2; e.accumulate = i % 2;
        cuda_layer_embedding_case(&e, 8);
    }
}

/* ---- edges ---- */
static void cuda_layer_empty(void) {
    memopt_activation_args a; memopt_swiglu s; memopt_dropout d; memopt_embedding e; memopt_cuda_ops ops; float *p;
    unsigned char back[64];
    memset(&a, 0, sizeof a); memset(&s, 0, sizeof s); memset(&d, 0, sizeof d); memset(&e, 0, sizeof e); memset(&ops, 0, sizeof ops);
    CHECK(memopt_cuda_activation_forward(NULL, &a, NULL) == 0 && memopt_cuda_activation_backward(NULL, &a, NULL) == 0);
    CHECK(memopt_cuda_swiglu_forward(NULL, &s, NULL) == 0 && memopt_cuda_swiglu_backward(NULL, &s, NULL) == 0);
    s.rows = 5;
    CHECK(memopt_cuda_swiglu_forward(NULL, &s, NULL) == 0 && memopt_cuda_swiglu_backward(NULL, &s, NULL) == 0);
    CHECK(memopt_cuda_dropout_forward(NULL, &d, NULL) == 0 && memopt_cuda_dropout_backward(NULL, &d, NULL) == 0);
    CHECK(memopt_cuda_embedding_forward(NULL, &e, NULL) == 0 && memopt_cuda_embedding_backward(NULL, &e, NULL) == 0);
    p = (float *)test_device(64); /* without rows gradients begin with 0, or stay */
    e.vocabulary = 3; e.width = 2; e.length = 5; e.grad_tokens = p; e.grad_positions = p + 6; e.accumulate = 1;
    CHECK(memopt_cuda_embedding_backward(NULL, &e, NULL) == 0);
    test_get(back, p, 64);
    for (int i = 0; i < 64; ++i) CHECK_AT(back[i] == 0xFF, i);
    e.accumulate = 0;
    CHECK(memopt_cuda_embedding_backward(NULL, &e, NULL) == 0);
    test_get(back, p, 64);
    for (int i = 0; i < 64; ++i) CHECK_AT(back[i] == 0, i);
}
#ifndef __CUDACC__
/* An error that was there, and a launch that fails, at each of the launches: nothing has changed when it is the first. */
#define CUDA_LAYER_FAILS(call, out) do {                                                                                \
        test_get((out)->back, (out)->there, (out)->bytes); memcpy((out)->here, (out)->back, (out)->bytes);             \
        simulator_pending_error(cudaErrorIllegalAddress);                                                              \
        CHECK((call) == MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress);                                      \
        CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);                                                       \
        simulator_pending_error(0);                                                                                    \
        simulator_fail_launch(1);                                                                                      \
        CHECK((call) == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);                                \
        simulator_fail_launch(0);                                                                                      \
        CHECK(cudaPeekAtLastError() == cudaSuccess);                                                                   \
        test_get((out)->back, (out)->there, (out)->bytes);                                                             \
        CHECK(!memcmp((out)->here, (out)->back, (out)->bytes)); } while (0)
#else
#define CUDA_LAYER_FAILS(call, out) ((void)(out))
#endif
/* `field` as it must not be */
#define CUDA_LAYER_REFUSED(type, x, change, call, status) do { type of = x; type *const bad = &of; change; CHECK((call) == (status)); } while (0)
static void cuda_layer_refused_elements(void) {
    cuda_layer_array *x = cuda_layer_new(64, MEMOPT_TYPE_F32, 0, 3, 0), *y = cuda_layer_new(64, MEMOPT_TYPE_F32, 0, 4, 0);
    const float nan = memopt_i_bits_float(0x7fc00000u); memopt_activation_args a; memopt_swiglu s; memopt_dropout d;
    memset(&a, 0, sizeof a); memset(&s, 0, sizeof s); memset(&d, 0, sizeof d);
    a.n = 32; a.activation = MEMOPT_ACTIVATION_GELU; a.input = a.grad_output = x->there; a.output = y->there; a.grad_input = y->there + 128;
    s.rows = 2; s.width = 8; s.input = s.grad_output = x->there; s.output = y->there + 128; s.grad_input = y->there;
    d.n = 32; d.rate = 0.5f; d.input = d.grad_output = x->there; d.output = d.grad_input = y->there;
    CUDA_LAYER_FAILS(memopt_cuda_activation_forward(NULL, &a, NULL), y);
    CUDA_LAYER_FAILS(memopt_cuda_activation_backward(NULL, &a, NULL), y);
    CUDA_LAYER_FAILS(memopt_cuda_swiglu_forward(NULL, &s, NULL), y);
    CUDA_LAYER_FAILS(memopt_cuda_swiglu_backward(NULL, &s, NULL), y);
    CUDA_LAYER_FAILS(memopt_cuda_dropout_forward(NULL, &d, NULL), y);
    CUDA_LAYER_FAILS(memopt_cuda_dropout_backward(NULL, &d, NULL), y);
    CHECK(memopt_cuda_activation_forward(NULL, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_swiglu_backward(NULL, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_dropout_forward(NULL, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_activation_args, a, bad->type = (memopt_type)3, memopt_cuda_activation_backward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_activation_args, a, bad->n = SIZE_MAX, memopt_cuda_activation_forward(NULL, bad, NULL), MEMOPT_ERR_OVERFLOW);
    CUDA_LAYER_REFUSED(memopt_activation_args, a, bad->input = NULL, memopt_cuda_activation_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_activation_args, a, bad->output = NULL, memopt_cuda_activation_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_activation_args, a, bad->output = y->there + 2, memopt_cuda_activation_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_ALIGNMENT);
    CUDA_LAYER_REFUSED(memopt_activation_args, a, bad->grad_input = NULL, memopt_cuda_activation_backward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_activation_args, a, bad->grad_output = NULL, memopt_cuda_activation_backward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_swiglu, s, bad->width = SIZE_MAX / 2 + 1, memopt_cuda_swiglu_forward(NULL, bad, NULL), MEMOPT_ERR_OVERFLOW);
    CUDA_LAYER_REFUSED(memopt_swiglu, s, bad->rows = SIZE_MAX / 8, memopt_cuda_swiglu_forward(NULL, bad, NULL), MEMOPT_ERR_OVERFLOW);
    CUDA_LAYER_REFUSED(memopt_swiglu, s, bad->type = (memopt_type)3, memopt_cuda_swiglu_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_swiglu, s, bad->output = NULL, memopt_cuda_swiglu_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_swiglu, s, bad->grad_input = y->there + 1, memopt_cuda_swiglu_backward(NULL, bad, NULL), MEMOPT_CUDA_ERR_ALIGNMENT);
    CUDA_LAYER_REFUSED(memopt_dropout, d, bad->rate = 1, memopt_cuda_dropout_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_dropout, d, bad->rate = nan, memopt_cuda_dropout_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_dropout, d, bad->rate = -0.5f, memopt_cuda_dropout_backward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_dropout, d, bad->residual = x->there + 3, memopt_cuda_dropout_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_ALIGNMENT);
    CUDA_LAYER_REFUSED(memopt_dropout, d, bad->grad_input = NULL, memopt_cuda_dropout_backward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_dropout, d, bad->n = SIZE_MAX / 2, memopt_cuda_dropout_backward(NULL, bad, NULL), MEMOPT_ERR_OVERFLOW);
    cuda_layer_end();
}
static void cuda_layer_refused_embedding(void) {
    cuda_layer_array *x = cuda_layer_new(64, MEMOPT_TYPE_F32, 0, 3, 0), *y = cuda_layer_new(64, MEMOPT_TYPE_F32, 0, 4, 0);
    memopt_embedding e; memopt_cuda_ops ops, less; size_t bytes = 5;
    memset(&e, 0, sizeof e); memset(&ops, 0, sizeof ops);
    test_put(x->there, "\0\0\0\0\1\0\0\0\1\0\0\0", 12);
    e.rows = 3; e.width = 4; e.vocabulary = 2; e.length = 2; e.ids = (const int32_t *)(const void *)x->there;
    e.tokens = e.positions = x->there + 64; e.output = y->there; e.grad_output = x->there + 64;
    e.grad_tokens = y->there; e.grad_positions = y->there + 64;
    CHECK(memopt_cuda_embedding_scratch(NULL, &e, &ops.scratch_bytes) == 0 && ops.scratch_bytes == (3 * 2 + 3 + 1) * 4);
    ops.d_scratch = test_device(ops.scratch_bytes);
    less = ops; --less.scratch_bytes;
    CUDA_LAYER_FAILS(memopt_cuda_embedding_forward(NULL, &e, NULL), y);
    CUDA_LAYER_FAILS(memopt_cuda_embedding_backward(&ops, &e, NULL), y);
    CHECK(memopt_cuda_embedding_backward(&less, &e, NULL) == MEMOPT_ERR_BUFFER);
    CHECK(memopt_cuda_embedding_backward(NULL, &e, NULL) == MEMOPT_ERR_BUFFER);
    less = ops; less.d_scratch = (char *)ops.d_scratch + 4;
    CHECK(memopt_cuda_embedding_backward(&less, &e, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_embedding_scratch(NULL, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_embedding_scratch(NULL, &e, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_embedding_forward(NULL, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_embedding_backward(NULL, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->ids = NULL, memopt_cuda_embedding_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->ids = (const int32_t *)(const void *)(x->there + 2), memopt_cuda_embedding_backward(&ops, bad, NULL), MEMOPT_CUDA_ERR_ALIGNMENT);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->tokens = NULL, memopt_cuda_embedding_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->output = NULL, memopt_cuda_embedding_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->positions = x->there + 1, memopt_cuda_embedding_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_ALIGNMENT);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->length = 0, memopt_cuda_embedding_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->weight_type = (memopt_type)3, memopt_cuda_embedding_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->gradient_type = (memopt_type)3, memopt_cuda_embedding_backward(&ops, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->accumulate = 2, memopt_cuda_embedding_backward(&ops, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->rows = SIZE_MAX, memopt_cuda_embedding_forward(NULL, bad, NULL), MEMOPT_ERR_OVERFLOW);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->vocabulary = SIZE_MAX / 16, memopt_cuda_embedding_backward(&ops, bad, NULL), MEMOPT_ERR_OVERFLOW);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->rows = (size_t)1 << 31, memopt_cuda_embedding_backward(&ops, bad, NULL), MEMOPT_ERR_OVERFLOW);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->grad_output = NULL, memopt_cuda_embedding_backward(&ops, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_embedding, e, bad->grad_positions = y->there + 66, memopt_cuda_embedding_backward(&ops, bad, NULL), MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(cuda_layer_same(y));
    cuda_layer_end();
}
/* Forward and backward captured once; each replay draws by the number on the device. */
static void cuda_layer_captured(void) {
    enum { N = 1000, LAYERS = 3 }; const uint64_t seed = 9; int type;
    for (type = 0; type < 3; ++type) {
        cuda_layer_array *x = cuda_layer_new(N, (memopt_type)type, type & 1, 3, 0), *y = cuda_layer_new(N, (memopt_type)type, 0, 0, 0), *g = cuda_layer_new(N, (memopt_type)type, 0, 4, 0), *d = cuda_layer_new(N, (memopt_type)type, 0, 0, 0);
        memopt_dropout here, there; memopt_noise *noise = (memopt_noise *)test_device(LAYERS * sizeof *noise), back[LAYERS]; uint64_t *step = (uint64_t *)test_device(8), t;
        cudaStream_t stream; cudaGraph_t graph; cudaGraphExec_t exec;
        test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        memset(&here, 0, sizeof here);
        here.n = N; here.rate = 0.25f; here.first = type == 2 ? 5 : 64; here.type = (memopt_type)type;
        there = here;
        here.input = x->here; here.residual = g->here; here.output = y->here; here.grad_output = g->here; here.grad_input = d->here;
        there.input = x->there; there.residual = g->there; there.output = y->there; there.grad_output = g->there; there.grad_input = d->there;
        test_synchronize();
        test_cuda_must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        CHECK(memopt_cuda_noise_make(noise, LAYERS, seed, step, stream) == 0);
        CHECK(memopt_cuda_dropout_forward_with_noise(NULL, &there, noise + 1, stream) == 0);
        CHECK(memopt_cuda_dropout_backward_with_noise(NULL, &there, noise + 1, stream) == 0);
        test_cuda_must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
        test_cuda_must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
        for (t = 5; t < 9; ++t) {
            test_put(step, &t, 8);
            test_synchronize();
            test_cuda_must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
            test_cuda_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            here.noise = memopt_noise_make(seed, t * LAYERS + 1);
            CHECK(memopt_dropout_forward(NULL, &here) == MEMOPT_OK && memopt_dropout_backward(NULL, &here) == MEMOPT_OK);
            CHECK_AT(cuda_layer_same(y) && cuda_layer_same(d), t);
            test_get(back, noise, sizeof back);
            for (uint64_t k = 0; k < LAYERS; ++k) { const memopt_noise want = memopt_noise_make(seed, t * LAYERS + k); CHECK_AT(!memcmp(&want, &back[k], sizeof want), k); }
        }
        CHECK(memopt_cuda_noise_make(noise, LAYERS, seed, NULL, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_noise_make(NULL, 1, seed, step, NULL) == MEMOPT_CUDA_ERR_NULL);
        CHECK(memopt_cuda_noise_make(noise, 1, seed, (const uint64_t *)(const void *)((const char *)step + 4), NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
        CHECK(memopt_cuda_noise_make((memopt_noise *)(void *)step, 1, seed, step, NULL) == MEMOPT_CUDA_ERR_OVERLAP && memopt_cuda_noise_make(noise, SIZE_MAX, seed, step, NULL) == MEMOPT_ERR_OVERFLOW);
        CHECK(memopt_cuda_noise_make(NULL, 0, seed, step, NULL) == 0);
        CHECK(memopt_cuda_dropout_forward_with_noise(NULL, &there, NULL, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_dropout_backward_with_noise(NULL, &there, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
        test_cuda_must(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
        test_cuda_must(cudaGraphDestroy(graph), "cudaGraphDestroy");
        test_cuda_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
        cuda_layer_end();
    }
}
/* ---- rotary positions ---- */
static void cuda_layer_rotary_case(size_t rows, size_t heads, size_t width, size_t rotated, size_t more, memopt_type type, int how) {
    const size_t stride = heads * width + more, n = rows * stride, size = memopt_type_bytes(type);
    cuda_layer_array *x = cuda_layer_new(n, type, how & 1, n + 3, how & 16), *y = cuda_layer_new(n, type, how & 1, n + 4, 0); memopt_rotary here, there;
    double f[300];
    memset(&here, 0, sizeof here);
    here.rows = rows; here.heads = heads; here.width = width; here.rotated = rotated; here.stride = more ? stride : 0; here.type = type;
    here.interleaved = (how & 2) / 2; here.base = how & 4 ? 500000 : 0; here.length = how & 8 ? 1 + rows / 2 : 0; here.first = how & 4 ? (size_t)1 << 33 : 0;
    if (how & 32) { for (size_t i = 0; i < sizeof f / sizeof *f; ++i) f[i] = 1.0 / (double)(1 + i * i); here.base = 0; here.frequencies = f; here.magnitude = 1.25f; }
    there = here;
    if (how & 32) {
        cuda_layer_array *at = cuda_layer_new(rows, MEMOPT_TYPE_F32, 0, 5, 0);
        for (size_t i = 0; i < rows; ++i) { const int32_t p = (int32_t)(i * i * 1009 % 100000); memcpy((char *)at->here + i * 4, &p, 4); }
        test_put(at->there, at->here, rows * 4);
        here.first = there.first = here.length = there.length = 0;
        here.positions = (const int32_t *)at->here; there.positions = (const int32_t *)at->there;
    }
    here.input = x->here; there.input = x->there;
    here.output = how & 8 ? x->here : y->here; there.output = how & 8 ? x->there : y->there; /* in place: only a whole one */
    CHECK(memopt_rotary_forward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_rotary_forward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(y) && cuda_layer_same(x), n * 100 + (size_t)how);
    here.grad_output = here.output; there.grad_output = there.output; here.grad_input = x->here; there.grad_input = x->there;
    if (!(how & 8)) { memset(x->here, 0xFF, n * size); test_put(x->there, x->here, n * size); }
    CHECK(memopt_rotary_backward(NULL, &here) == MEMOPT_OK);
    CHECK(memopt_cuda_rotary_backward(NULL, &there, NULL) == 0);
    CHECK_AT(cuda_layer_same(y) && cuda_layer_same(x), n * 100 + (size_t)how);
    cuda_layer_end();
}
static void cuda_layer_rotaries(void) {
    static const size_t shapes[][5] = { { 1, 1, 2, 0, 0 }, { 5, 3, 64, 0, 0 }, { 33, 2, 24, 16, 8 }, { 3, 4, 10, 6, 3 }, { 2, 1, 520, 0, 0 }, { 3, 1, 300, 290, 4 }, { 70, 5, 16, 0, 16 }, { 9, 40, 128, 0, 128 } };
    int i = 0;
    TEST_SCHEDULES(2)
        for (int type = 0; type < 3; ++type) for (int k = 0; k < 8; ++k) for (int how = 0; how < 8; ++how, ++i)
            cuda_layer_rotary_case(shapes[k][0], shapes[k][1], shapes[k][2], shapes[k][3], shapes[k][4], (memopt_type)type, how | (i % 3 ? 8 : 0) | (i % 2 ? 16 : 0) | (i % 5 ? 0 : 32));
}
static void cuda_layer_refused_rotary(void) {
    cuda_layer_array *x = cuda_layer_new(64, MEMOPT_TYPE_F32, 0, 3, 0), *y = cuda_layer_new(64, MEMOPT_TYPE_F32, 0, 4, 0); memopt_rotary r;
    memset(&r, 0, sizeof r);
    r.rows = 4; r.heads = 2; r.width = 8; r.input = r.grad_output = x->there; r.output = r.grad_input = y->there;
    CUDA_LAYER_FAILS(memopt_cuda_rotary_forward(NULL, &r, NULL), y);
    CUDA_LAYER_FAILS(memopt_cuda_rotary_backward(NULL, &r, NULL), y);
    CHECK(memopt_cuda_rotary_forward(NULL, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->type = (memopt_type)3, memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->rotated = 10, memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->rotated = 3, memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->stride = 15, memopt_cuda_rotary_backward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->base = 0.5, memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->interleaved = 2, memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_ERR_ARGUMENT);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->input = NULL, memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->grad_input = NULL, memopt_cuda_rotary_backward(NULL, bad, NULL), MEMOPT_CUDA_ERR_NULL);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->output = y->there + 2, memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_CUDA_ERR_ALIGNMENT);
    CUDA_LAYER_REFUSED(memopt_rotary, r, bad->rows = SIZE_MAX / 8, memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_ERR_OVERFLOW);
    CUDA_LAYER_REFUSED(memopt_rotary, r, (bad->heads = (size_t)1 << 26, bad->width = 2), memopt_cuda_rotary_forward(NULL, bad, NULL), MEMOPT_ERR_OVERFLOW);
    CUDA_LAYER_REFUSED(memopt_rotary, r, (bad->rows = 0, bad->input = NULL), memopt_cuda_rotary_forward(NULL, bad, NULL), 0);
    CHECK(cuda_layer_same(y));
    cuda_layer_end();
}
static void test_cuda_layer(void) {
    RUN(cuda_layer_activations);
    RUN(cuda_layer_swiglus);
    RUN(cuda_layer_dropouts);
    RUN(cuda_layer_embeddings);
    RUN(cuda_layer_many_rows);
    RUN(cuda_layer_captured);
    RUN(cuda_layer_rotaries);
    RUN(cuda_layer_refused_rotary);
    RUN(cuda_layer_empty);
    RUN(cuda_layer_refused_elements);
    RUN(cuda_layer_refused_embedding);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_layer(); return test_totals(); }
#endif
