/* test_nan.c - what is promised of operators whose operands are not finite: at every SIMD level, and whichever NaN they
   are given, the same elements of the results are NaN, and all others have the same bits. Every operator, forward and
   backward, with every type; operands hold infinities of both signs, whose differences and products with 0 are NaN as
   well, or NaNs of several payloads. Results are compared with those of the scalar level. */
#include "test.h"

enum { NAN_FLOATS = 40000, NAN_RESULTS = 24, NAN_SCRATCH = 1 << 21 };
static const uint32_t nan_payloads[] = { 0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffa12345u };
typedef struct nan_result { const void *data; size_t count; memopt_type type; } nan_result;
typedef struct nan_run {
    memopt_type type;
    uint32_t    odd;      /* a NaN; 0: infinities of both signs */
    uint64_t    seed;
    size_t      used, results;
    nan_result  result[NAN_RESULTS];
    double      loss;     /* of the operators that return one */
    memopt_threads threads;
    memopt_ops  ops;
    float       memory[NAN_FLOATS];
} nan_run;
static unsigned char nan_scratch[NAN_SCRATCH + 64];

/* Elements of a type; some are odd. The rest are of every type. */
static void nan_set(void *data, memopt_type type, size_t i, uint32_t bits) {
    const int nan = (bits & 0x7fffffffu) > 0x7f800000u; uint16_t h = (uint16_t)(bits >> 16);
    if (type == MEMOPT_TYPE_F32) { memcpy((unsigned char *)data + i * 4, &bits, 4); return; }
    if (type == MEMOPT_TYPE_BF16) h = (uint16_t)(h | (nan && !(h & 0x7f)));
    else if ((bits & 0x7f800000u) == 0x7f800000u)
        h = (uint16_t)((h & 0x8000) | 0x7c00 | (bits >> 13 & 0x3ff) | (nan && !(bits >> 13 & 0x3ff)));
    else h = memopt_to_f16(memopt_i_bits_float(bits));
    memcpy((unsigned char *)data + i * 2, &h, 2);
}
static uint32_t nan_get(const nan_result *r, size_t i) { /* the bits; 0x7fc00000 for every NaN */
    uint32_t u = 0; uint16_t h = 0;
    if (r->type == MEMOPT_TYPE_F32) { memcpy(&u, (const unsigned char *)r->data + i * 4, 4); return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u; }
    memcpy(&h, (const unsigned char *)r->data + i * 2, 2);
    return (h & 0x7fff) > (r->type == MEMOPT_TYPE_BF16 ? 0x7f80 : 0x7c00) ? 0x7fc00000u : h;
}
static void *nan_elements(nan_run *r, size_t n, memopt_type type, size_t every) {
    void *p = r->memory + r->used; size_t i;
    r->used += n;
    if (r->used > NAN_FLOATS) { printf("test_nan: too little memory\n"); exit(1); }
    for (i = 0; i < n; ++i) {
        const float x = (float)((int)test_below(&r->seed, 255) - 127) / 64; const int odd = every && test_below(&r->seed, every) == 0;
        uint32_t bits = memopt_i_float_bits(x);
        if (odd) bits = r->odd ? r->odd : test_below(&r->seed, 2) ? 0x7f800000u : 0xff800000u;
        else (void)test_below(&r->seed, 2);
        nan_set(p, type, i, bits);
    }
    return p;
}
static void *nan_in(nan_run *r, size_t n) { return nan_elements(r, n, r->type, 61); }
static void *nan_out(nan_run *r, size_t n, memopt_type type) { /* with numbers in it, for what is added onto */
    nan_result *to = &r->result[r->results++];
    to->data = nan_elements(r, n, type, 0); to->count = n; to->type = type;
    return (void *)(uintptr_t)to->data;
}
static float *nan_floats(nan_run *r, size_t n) { return (float *)nan_out(r, n, MEMOPT_TYPE_F32); }

/* ---- every operator ---- */
static void nan_softmax(nan_run *r, int which) {
    static const size_t valid[7] = { 37, 0, 5, 36, 1, 20, 37 }; memopt_softmax s;
    memset(&s, 0, sizeof s);
    s.rows = 7; s.columns = 37; s.valid = which ? valid : NULL; s.scale = 0.5f;
    s.input = (const float *)nan_elements(r, 7 * 37, MEMOPT_TYPE_F32, 97); s.output = nan_floats(r, 7 * 37);
    CHECK(memopt_softmax_forward(&r->ops, &s) == MEMOPT_OK);
    s.input = s.output; s.grad_output = (const float *)nan_elements(r, 7 * 37, MEMOPT_TYPE_F32, 97); s.output = nan_floats(r, 7 * 37);
    CHECK(memopt_softmax_backward(&r->ops, &s) == MEMOPT_OK);
}
static void nan_rule(memopt_loss_rule *rule, int which) {
    if (which & 1) { rule->smoothing = 0.125f; rule->z_weight = 0.01f; }
}
static void nan_entropy(nan_run *r, int which) {
    static const int32_t targets[9] = { 3, 0, -1, 40, 7, 11, 2, 39, 5 }; memopt_cross_entropy x; memopt_loss loss = { 0, 0 };
    memset(&x, 0, sizeof x);
    x.rows = 9; x.vocabulary = 41; x.stride = 44; x.type = r->type; x.keep_logits = which >> 1; x.targets = targets;
    x.logits = nan_in(r, 9 * 44); x.losses = nan_floats(r, 9);
    r->result[r->results].data = x.logits; r->result[r->results].count = 9 * 44; r->result[r->results++].type = r->type;
    nan_rule(&x.rule, which);
    CHECK(memopt_cross_entropy_loss(&r->ops, &x, &loss) == MEMOPT_OK);
    r->loss = loss.loss;
}
static void nan_head(nan_run *r, int which) {
    static const int32_t targets[20] = { 3, 0, -1, 40, 7, 11, 2, 39, 5, 1, 1, 1, 8, 9, 10, 11, -5, 20, 30, 31 }; memopt_head h; memopt_loss loss = { 0, 0 };
    memset(&h, 0, sizeof h);
    h.rows = 20; h.width = 19; h.vocabulary = 41; h.padded = 43; h.chunk = which & 2 ? 2 : 7; h.type = h.weight_type = h.gradient_type = r->type;
    h.input = nan_elements(r, 20 * 19, r->type, 211); h.weights = nan_elements(r, 43 * 19, r->type, which & 1 ? 0 : 401); h.targets = targets;
    h.grad_input = nan_out(r, 20 * 19, r->type); h.grad_weights = nan_out(r, 43 * 19, r->type); h.accumulate = which & 1;
    h.losses = nan_floats(r, 20);
    nan_rule(&h.rule, which);
    CHECK(memopt_head_loss(&r->ops, &h, &loss) == MEMOPT_OK);
    r->loss = loss.loss;
    CHECK(memopt_head_logits(&r->ops, &h, 3, 10, nan_floats(r, 410)) == MEMOPT_OK);
}
static void nan_attention(nan_run *r, int which) {
    static const size_t lengths[2] = { 21, 15 }; memopt_attention x; const size_t n = 2 * 21 * 2 * 5;
    memset(&x, 0, sizeof x);
    x.batch = 2; x.length = 21; x.heads = 2; x.width = 5; x.lengths = lengths; x.causal = which & 1; x.online = which >> 1; x.block = 8; x.type = r->type;
    x.queries = nan_elements(r, n, r->type, 211); x.keys = nan_elements(r, n, r->type, 211); x.values = nan_elements(r, n, r->type, 211);
    x.grad_output = nan_elements(r, n, r->type, 211); x.output = nan_out(r, n, r->type); x.statistics = nan_floats(r, 2 * 2 * 21);
    x.grad_queries = nan_out(r, n, r->type); x.grad_keys = nan_out(r, n, r->type); x.grad_values = nan_out(r, n, r->type);
    CHECK(memopt_attention_forward(&r->ops, &x) == MEMOPT_OK && memopt_attention_backward(&r->ops, &x) == MEMOPT_OK);
}
static void nan_norm(nan_run *r, int which) {
    memopt_norm x;
    memset(&x, 0, sizeof x);
    x.rows = 9; x.width = 53; x.rms = which & 1; x.type = x.weight_type = x.gradient_type = r->type;
    x.input = nan_elements(r, 9 * 53, r->type, 211); x.scale = nan_elements(r, 53, r->type, 53); x.shift = nan_elements(r, 53, r->type, 53);
    x.output = nan_out(r, 9 * 53, r->type); x.statistics = nan_floats(r, 18); x.grad_output = nan_elements(r, 9 * 53, r->type, 211);
    x.grad_input = nan_out(r, 9 * 53, r->type); x.grad_scale = nan_out(r, 53, r->type); x.grad_shift = nan_out(r, 53, r->type);
    if (x.rms) x.shift = x.grad_shift = NULL;
    CHECK(memopt_norm_forward(&r->ops, &x) == MEMOPT_OK);
    if (which & 2) { x.input = NULL; x.accumulate = x.accumulate_input = 1; }
    CHECK(memopt_norm_backward(&r->ops, &x) == MEMOPT_OK);
}
static memopt_linear nan_linear_of(nan_run *r, int which) {
    memopt_linear x;
    memset(&x, 0, sizeof x);
    x.rows = 21; x.inputs = 9; x.outputs = 35; x.type = x.weight_type = x.gradient_type = r->type; x.activation = (memopt_activation)which;
    x.input = nan_elements(r, 21 * 9, r->type, 97); x.weights = nan_elements(r, 35 * 9, r->type, 211); x.bias = nan_elements(r, 35, r->type, 35);
    x.pre_activation = nan_out(r, 21 * 35, r->type); x.output = nan_out(r, 21 * 35, r->type);
    x.grad_output = nan_elements(r, 21 * 35, r->type, 211); x.grad_input = nan_out(r, 21 * 9, r->type);
    x.grad_weights = nan_out(r, 35 * 9, r->type); x.grad_bias = nan_out(r, 35, r->type); x.accumulate = which & 1;
    return x;
}
static void nan_linear(nan_run *r, int which) {
    memopt_linear x = nan_linear_of(r, which);
    CHECK(memopt_linear_forward(&r->ops, &x) == MEMOPT_OK);
    x.activation = MEMOPT_ACTIVATION_NONE; x.accumulate_input = which & 1;
    CHECK(memopt_linear_backward(&r->ops, &x) == MEMOPT_OK);
}
static void nan_batch_norm(nan_run *r, int which) {
    memopt_batch_norm x;
    memset(&x, 0, sizeof x);
    x.linear = nan_linear_of(r, which);
    x.scale = nan_elements(r, 35, r->type, 35); x.shift = nan_elements(r, 35, r->type, 35); x.running_mean = nan_floats(r, 35);
    x.running_variance = nan_floats(r, 35); x.statistics = nan_floats(r, 70); x.grad_scale = nan_out(r, 35, r->type); x.grad_shift = nan_out(r, 35, r->type);
    CHECK(memopt_batch_norm_forward(&r->ops, &x) == MEMOPT_OK && memopt_batch_norm_backward(&r->ops, &x) == MEMOPT_OK);
    CHECK(memopt_batch_norm_fold(&r->ops, &x, nan_floats(r, 35 * 9), nan_floats(r, 35)) == MEMOPT_OK);
}
static void nan_activation(nan_run *r, int which) {
    memopt_activation_args x;
    memset(&x, 0, sizeof x);
    x.n = 1003; x.activation = (memopt_activation)which; x.type = r->type; x.input = nan_in(r, 1003); x.output = nan_out(r, 1003, r->type);
    CHECK(memopt_activation_forward(&r->ops, &x) == MEMOPT_OK);
    x.grad_output = nan_in(r, 1003); x.grad_input = nan_out(r, 1003, r->type); x.output = nan_out(r, 1003, r->type);
    CHECK(memopt_activation_backward(&r->ops, &x) == MEMOPT_OK);
}
static void nan_swiglu(nan_run *r, int which) {
    memopt_swiglu x;
    memset(&x, 0, sizeof x);
    x.rows = 5; x.width = 77; x.type = r->type; x.input = nan_in(r, 770); x.output = nan_out(r, 385, r->type);
    CHECK((which ? memopt_geglu_forward(&r->ops, &x) : memopt_swiglu_forward(&r->ops, &x)) == MEMOPT_OK);
    x.grad_output = nan_in(r, 385); x.grad_input = nan_out(r, 770, r->type); x.output = nan_out(r, 385, r->type);
    CHECK((which ? memopt_geglu_backward(&r->ops, &x) : memopt_swiglu_backward(&r->ops, &x)) == MEMOPT_OK);
}
static void nan_dropout(nan_run *r, int which) {
    memopt_dropout x;
    memset(&x, 0, sizeof x);
    x.n = 999; x.type = r->type; x.rate = 0.3f; x.noise = memopt_noise_make(5, 6); x.input = nan_in(r, 999); x.residual = which ? nan_in(r, 999) : NULL;
    x.output = nan_out(r, 999, r->type); x.grad_output = nan_in(r, 999); x.grad_input = nan_out(r, 999, r->type);
    CHECK(memopt_dropout_forward(&r->ops, &x) == MEMOPT_OK && memopt_dropout_backward(&r->ops, &x) == MEMOPT_OK);
}
static void nan_embedding(nan_run *r, int which) {
    static const int32_t ids[12] = { 1, 4, 1, 0, 6, 6, 3, 2, 1, 0, 4, 5 }; memopt_embedding x;
    memset(&x, 0, sizeof x);
    x.rows = 12; x.width = 33; x.vocabulary = 7; x.length = 6; x.type = x.weight_type = x.gradient_type = r->type; x.ids = ids; x.accumulate = which;
    x.tokens = nan_in(r, 7 * 33); x.positions = nan_in(r, 6 * 33); x.output = nan_out(r, 12 * 33, r->type); x.grad_output = nan_in(r, 12 * 33);
    x.grad_tokens = nan_out(r, 7 * 33, r->type); x.grad_positions = nan_out(r, 6 * 33, r->type);
    CHECK(memopt_embedding_forward(&r->ops, &x) == MEMOPT_OK && memopt_embedding_backward(&r->ops, &x) == MEMOPT_OK);
}
static void nan_gemm(nan_run *r, int which) {
    memopt_product p;
    memset(&p, 0, sizeof p);
    p.rows = 29; p.columns = 37; p.depth = 11; p.left_transposed = which & 1; p.right_transposed = which >> 1;
    p.left_type = p.right_type = p.result_type = r->type; p.left_stride = p.left_transposed ? 29 : 11; p.right_stride = p.right_transposed ? 11 : 37;
    p.left = nan_elements(r, 29 * 11, r->type, 211); p.right = nan_elements(r, 37 * 11, r->type, 211); p.result = nan_out(r, 29 * 37, r->type); p.result_stride = 37;
    p.accumulate = which & 1;
    CHECK(memopt_gemm_multiply(&p, &r->threads, r->ops.scratch, r->ops.scratch_bytes) == MEMOPT_OK);
}
static const struct { const char *name; void (*run)(nan_run *r, int which); int count; } nan_operators[] = {
    { "softmax", nan_softmax, 2 }, { "cross_entropy", nan_entropy, 4 }, { "head", nan_head, 4 }, { "attention", nan_attention, 4 },
    { "norm", nan_norm, 4 }, { "linear", nan_linear, 4 }, { "batch_norm", nan_batch_norm, 4 }, { "activation", nan_activation, 4 },
    { "swiglu", nan_swiglu, 2 }, { "dropout", nan_dropout, 2 }, { "embedding", nan_embedding, 2 }, { "gemm", nan_gemm, 4 } };
enum { NAN_OPERATORS = sizeof nan_operators / sizeof *nan_operators };

/* ---- the promise ---- */
static void nan_start(nan_run *r, size_t op, int which, memopt_type type, uint32_t odd, int level) {
    memset(r, 0, sizeof *r);
    r->type = type; r->odd = odd; r->seed = op * 10 + (uint64_t)which; r->threads = test_level(level); r->ops.threads = &r->threads;
    r->ops.scratch = nan_scratch + (64 - ((uintptr_t)nan_scratch & 63)) % 64; r->ops.scratch_bytes = NAN_SCRATCH;
    nan_operators[op].run(r, which);
}
/* NaN in the same places, else the same bits; and some of each, or the test is none. */
static int nan_alike(const nan_run *a, const nan_run *b, size_t *nans, size_t *numbers) {
    size_t k, i; uint64_t x, y; int alike = a->results == b->results;
    for (k = 0; k < a->results && alike; ++k)
        for (i = 0; i < a->result[k].count; ++i) {
            const uint32_t u = nan_get(&a->result[k], i);
            alike = alike && u == nan_get(&b->result[k], i);
            ++*(u == 0x7fc00000u ? nans : numbers);
        }
    memcpy(&x, &a->loss, sizeof x); memcpy(&y, &b->loss, sizeof y);
    return alike && (x == y || (a->loss != a->loss && b->loss != b->loss));
}
static void nan_everywhere(void) {
    nan_run *base = (nan_run *)malloc(sizeof *base), *other = (nan_run *)malloc(sizeof *other); size_t op, odd; int which, type, level;
    if (!base || !other) { printf("test_nan: out of memory\n"); exit(1); }
    for (op = 0; op < NAN_OPERATORS; ++op) for (which = 0; which < nan_operators[op].count; ++which) {
        size_t nans = 0, numbers = 0; int same = 1;
        for (type = 0; type < 3; ++type) for (odd = 0; odd < 2 + sizeof nan_payloads / sizeof *nan_payloads; ++odd) {
            const uint32_t bits = odd < 2 ? 0 : nan_payloads[odd - 2];
            if (odd == 0 || odd == 2) nan_start(base, op, which, (memopt_type)type, bits, MEMOPT_SIMD_SCALAR);
            for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
                nan_start(other, op, which, (memopt_type)type, bits, level);
                same = same && nan_alike(base, other, &nans, &numbers);
            }
        }
        CHECK_AT(same && nans && numbers, op * 10 + (size_t)which);
        if (!same || !nans || !numbers) printf("%s %d: same %d, %lu NaN, %lu others\n", nan_operators[op].name, which, same, (unsigned long)nans, (unsigned long)numbers);
    }
    free(base); free(other);
}

static void test_nan(void) {
    RUN(nan_everywhere);
}
#ifndef TEST_COMBINED
int main(void) { test_nan(); return test_totals(); }
#endif
