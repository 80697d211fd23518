/* test_operator.c - what all operators have in common: dry runs that count scratch, and values from outside (ids, targets,
   lengths), which every call that reads them refuses before it writes anything. */
#include "test.h"
#include "scratch.h"

/* All operators with all pointers, or with none. */
typedef struct operator_set {
    memopt_softmax softmax; memopt_cross_entropy cross_entropy; memopt_head head; memopt_attention attention;
    memopt_norm norm; memopt_linear linear; memopt_activation_args activation; memopt_swiglu swiglu;
    memopt_dropout dropout; memopt_embedding embedding; memopt_rotary rotary; memopt_batch_norm batch_norm;
    float *folded, *logits;
    memopt_loss loss;
} operator_set;
enum { SOFTMAX, SOFTMAX_BACK, CROSS_ENTROPY, HEAD, LOGITS, ATTENTION, ATTENTION_BACK, NORM, NORM_BACK, LINEAR, LINEAR_BACK, ACTIVATION,
       ACTIVATION_BACK, SWIGLU, SWIGLU_BACK, GEGLU, GEGLU_BACK, DROPOUT, DROPOUT_BACK, EMBEDDING, EMBEDDING_BACK, ROTARY, ROTARY_BACK,
       BATCH, BATCH_BACK, FOLD, OPERATORS };
enum { OPERATOR_ROWS = 6, OPERATOR_WIDTH = 8, OPERATOR_VOCABULARY = 16, OPERATOR_LENGTH = 3, ROOM = 512, ROOMS = 64 };
static float operator_room[ROOM * ROOMS];
static size_t operator_rooms;
static uint64_t operator_scratch[(4 * MEMOPT_GEMM_SCRATCH + 65536) / 8];

static float *operator_new(void) {
    if (operator_rooms == ROOMS) { printf("test_operator: out of memory\n"); exit(1); }
    return operator_room + ROOM * operator_rooms++;
}
static memopt_status operator_call(int which, const memopt_ops *o, operator_set *s) {
    switch (which) {
    case SOFTMAX: return memopt_softmax_forward(o, &s->softmax);
    case SOFTMAX_BACK: return memopt_softmax_backward(o, &s->softmax);
    case CROSS_ENTROPY: return memopt_cross_entropy_loss(o, &s->cross_entropy, &s->loss);
    case HEAD: return memopt_head_loss(o, &s->head, &s->loss);
    case LOGITS: return memopt_head_logits(o, &s->head, 1, 2, s->logits);
    case ATTENTION: return memopt_attention_forward(o, &s->attention);
    case ATTENTION_BACK: return memopt_attention_backward(o, &s->attention);
    case NORM: return memopt_norm_forward(o, &s->norm);
    case NORM_BACK: return memopt_norm_backward(o, &s->norm);
    case LINEAR: return memopt_linear_forward(o, &s->linear);
    case LINEAR_BACK: return memopt_linear_backward(o, &s->linear);
    case ACTIVATION: return memopt_activation_forward(o, &s->activation);
    case ACTIVATION_BACK: return memopt_activation_backward(o, &s->activation);
    case SWIGLU: return memopt_swiglu_forward(o, &s->swiglu);
    case SWIGLU_BACK: return memopt_swiglu_backward(o, &s->swiglu);
    case GEGLU: return memopt_geglu_forward(o, &s->swiglu);
    case GEGLU_BACK: return memopt_geglu_backward(o, &s->swiglu);
    case DROPOUT: return memopt_dropout_forward(o, &s->dropout);
    case DROPOUT_BACK: return memopt_dropout_backward(o, &s->dropout);
    case EMBEDDING: return memopt_embedding_forward(o, &s->embedding);
    case EMBEDDING_BACK: return memopt_embedding_backward(o, &s->embedding);
    case ROTARY: return memopt_rotary_forward(o, &s->rotary);
    case ROTARY_BACK: return memopt_rotary_backward(o, &s->rotary);
    case BATCH: return memopt_batch_norm_forward(o, &s->batch_norm);
    case BATCH_BACK: return memopt_batch_norm_backward(o, &s->batch_norm);
    case FOLD: return memopt_batch_norm_fold(o, &s->batch_norm, s->folded, s->folded ? s->folded + 256 : NULL);
    }
    return MEMOPT_ERR_STATE;
}
/* What the call needs: by the question for scratch, by the declarations where there is none. */
static size_t operator_needs(int which, const memopt_ops *o, const operator_set *s) {
    size_t bytes = 0;

    switch (which) {
    case CROSS_ENTROPY: CHECK(scratch_of_cross_entropy(o, &s->cross_entropy, &bytes) == MEMOPT_OK); break;
    case HEAD: CHECK(memopt_head_scratch(o, &s->head, &bytes) == MEMOPT_OK); break;
    case LOGITS: bytes = memopt_gemm_scratch(o->threads); break;
    case ATTENTION: case ATTENTION_BACK: CHECK(scratch_of_attention(o, &s->attention, &bytes) == MEMOPT_OK); break;
    case NORM_BACK: CHECK(scratch_of_norm(o, &s->norm, &bytes) == MEMOPT_OK); break;
    case LINEAR: case LINEAR_BACK: CHECK(scratch_of_linear(o, &s->linear, &bytes) == MEMOPT_OK); break;
    case BATCH: case BATCH_BACK: CHECK(scratch_of_batch_norm(o, &s->batch_norm, &bytes) == MEMOPT_OK); break;
    default: break;
    }
    return bytes;
}
static operator_set operator_shapes(memopt_type type) {
    operator_set s;

    memset(&s, 0, sizeof s);
    s.softmax.rows = OPERATOR_ROWS; s.softmax.columns = OPERATOR_WIDTH;
    s.cross_entropy.rows = OPERATOR_ROWS; s.cross_entropy.vocabulary = OPERATOR_VOCABULARY; s.cross_entropy.type = type;
    s.head.rows = OPERATOR_ROWS; s.head.width = OPERATOR_WIDTH; s.head.vocabulary = OPERATOR_VOCABULARY; s.head.chunk = 4;
    s.head.type = s.head.weight_type = s.head.gradient_type = type;
    s.attention.batch = 2; s.attention.length = OPERATOR_LENGTH; s.attention.heads = 2; s.attention.width = 4;
    s.attention.online = 1; s.attention.type = type;
    s.norm.rows = OPERATOR_ROWS; s.norm.width = OPERATOR_WIDTH; s.norm.type = s.norm.weight_type = s.norm.gradient_type = type;
    s.linear.rows = OPERATOR_ROWS; s.linear.inputs = OPERATOR_WIDTH; s.linear.outputs = 5;
    s.linear.type = s.linear.weight_type = s.linear.gradient_type = type;
    s.activation.n = OPERATOR_ROWS * OPERATOR_WIDTH; s.activation.type = type; s.activation.activation = MEMOPT_ACTIVATION_GELU;
    s.swiglu.rows = OPERATOR_ROWS; s.swiglu.width = OPERATOR_WIDTH; s.swiglu.type = type;
    s.dropout.n = OPERATOR_ROWS * OPERATOR_WIDTH; s.dropout.type = type; s.dropout.rate = 0.5f;
    s.embedding.rows = OPERATOR_ROWS; s.embedding.width = OPERATOR_WIDTH; s.embedding.vocabulary = OPERATOR_VOCABULARY; s.embedding.length = OPERATOR_LENGTH;
    s.embedding.type = s.embedding.weight_type = s.embedding.gradient_type = type;
    s.rotary.rows = OPERATOR_ROWS; s.rotary.heads = 2; s.rotary.width = 4; s.rotary.type = type;
    s.batch_norm.linear = s.linear;
    return s;
}
/* The same with memory of its own behind every pointer. */
static operator_set operator_whole(memopt_type type) {
    static const int32_t ids[OPERATOR_ROWS] = { 0, 3, 15, 3, 7, 1 };
    operator_set s = operator_shapes(type);
    float *x = operator_room, *y, *g, *d, *w, *e, *f, *m;
    size_t i;

    operator_rooms = 0;
    x = operator_new(); y = operator_new(); g = operator_new(); d = operator_new();
    w = operator_new(); e = operator_new(); f = operator_new(); m = operator_new();
    for (i = 0; i < ROOM * ROOMS; ++i) operator_room[i] = 0.25f + 0.125f * (float)(i % 7);
    s.folded = operator_new(); s.logits = operator_new();
    s.softmax.input = x; s.softmax.output = y; s.softmax.grad_output = g;
    s.cross_entropy.logits = x; s.cross_entropy.targets = ids; s.cross_entropy.losses = m;
    s.head.input = x; s.head.weights = w; s.head.targets = ids; s.head.grad_input = d; s.head.grad_weights = e;
    s.attention.queries = x; s.attention.keys = operator_new(); s.attention.values = operator_new();
    s.attention.output = y; s.attention.statistics = m; s.attention.grad_output = g; s.attention.grad_queries = d;
    s.attention.grad_keys = e; s.attention.grad_values = f;
    s.norm.input = x; s.norm.output = y; s.norm.statistics = m; s.norm.grad_output = g; s.norm.grad_input = d;
    s.norm.scale = w; s.norm.grad_scale = e; s.norm.grad_shift = f;
    s.linear.input = x; s.linear.weights = w; s.linear.output = y; s.linear.grad_output = g; s.linear.grad_input = d;
    s.linear.grad_weights = e; s.linear.grad_bias = f;
    s.activation.input = x; s.activation.output = y; s.activation.grad_output = g; s.activation.grad_input = d;
    s.swiglu.input = x; s.swiglu.output = y; s.swiglu.grad_output = g; s.swiglu.grad_input = d;
    s.dropout.input = x; s.dropout.output = y; s.dropout.grad_output = g; s.dropout.grad_input = d;
    s.embedding.ids = ids; s.embedding.tokens = w; s.embedding.positions = e; s.embedding.output = y;
    s.embedding.grad_output = g; s.embedding.grad_tokens = d; s.embedding.grad_positions = f;
    s.rotary.input = x; s.rotary.output = y; s.rotary.grad_output = g; s.rotary.grad_input = d;
    s.batch_norm.linear = s.linear; s.batch_norm.linear.pre_activation = operator_new();
    s.batch_norm.statistics = m; s.batch_norm.running_mean = operator_new(); s.batch_norm.running_variance = operator_new();
    return s;
}
static memopt_ops operator_dry(size_t *count, const memopt_threads *threads) {
    memopt_ops o;

    memset(&o, 0, sizeof o);
    o.threads = threads;
    o.count_scratch = count;
    return o;
}

/* ---- dry runs ---- */
static void operator_dry_counts(void) { /* without a single pointer, and what it says is what the question says */
    static const memopt_type types[3] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16 };
    test_worker_set set;
    memopt_threads threads[2];
    size_t needs, count, all, max;
    int k, which, t;

    threads[0] = test_level(0);
    threads[1] = test_workers(&set, 3, 0);
    for (t = 0; t < 2; ++t)
        for (k = 0; k < 3; ++k) {
            operator_set s = operator_shapes(types[k]);
            memopt_ops plain, list;

            plain = operator_dry(NULL, &threads[t]);
            list = operator_dry(&all, &threads[t]);
            for (all = max = 0, which = 0; which < OPERATORS; ++which) {
                memopt_ops o = operator_dry(&count, &threads[t]);

                memset(&s.loss, 0x5a, sizeof s.loss);
                o.scratch = (void *)(uintptr_t)test_number_of(3); /* not looked at */
                o.scratch_bytes = SIZE_MAX;
                needs = operator_needs(which, &plain, &s);
                count = 0;
                CHECK_AT(operator_call(which, &o, &s) == MEMOPT_OK, which);
                CHECK_AT(count == needs, which);
                if (which == CROSS_ENTROPY || which == HEAD) CHECK_AT(s.loss.loss == 0 && s.loss.counted == 0, which);
                count = needs + 1; /* never lowered */
                CHECK_AT(operator_call(which, &o, &s) == MEMOPT_OK && count == needs + 1, which);
                CHECK_AT(operator_call(which, &list, &s) == MEMOPT_OK, which);
                if (needs > max) max = needs;
                CHECK_AT(all == max, which);
            }
            CHECK(all > MEMOPT_GEMM_SCRATCH && all <= sizeof operator_scratch - 64);
        }
}
static void operator_dry_is_enough(void) { /* a real run takes what was counted, and not a byte less */
    static float before[ROOM * ROOMS];
    const memopt_type types[2] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16 };
    int k, which;

    for (k = 0; k < 2; ++k)
        for (which = 0; which < OPERATORS; ++which) {
            operator_set s = operator_whole(types[k]);
            size_t count = 0;
            memopt_ops dry = operator_dry(&count, NULL), o = operator_dry(NULL, NULL);

            memcpy(before, operator_room, sizeof before);
            CHECK_AT(operator_call(which, &dry, &s) == MEMOPT_OK, which);
            CHECK_AT(memcmp(before, operator_room, sizeof before) == 0, which); /* it wrote nothing */
            o.scratch = (void *)(((uintptr_t)operator_scratch + 63) & ~(uintptr_t)63);
            o.scratch_bytes = count - (count != 0);
            if (count) CHECK_AT(operator_call(which, &o, &s) == MEMOPT_ERR_BUFFER, which);
            CHECK_AT(memcmp(before, operator_room, sizeof before) == 0, which);
            o.scratch_bytes = count;
            CHECK_AT(operator_call(which, &o, &s) == MEMOPT_OK, which);
            CHECK_AT(memcmp(before, operator_room, sizeof before) != 0, which); /* it did something */
        }
}
static void operator_dry_refuses(void) { /* what is wrong without a look at memory; and then nothing is counted */
    operator_set s;
    size_t count = 7;
    memopt_threads half;
    memopt_ops o = operator_dry(&count, NULL), right = o;

    memset(&half, 0, sizeof half);
    half.worker_count = 2;
#define DRY_SAYS(change, which, want, text) do { s = operator_shapes(MEMOPT_TYPE_F32); \
    REFUSES(o.error, (o = right, change), operator_call(which, &o, &s), MEMOPT_ERR_##want, text); CHECK(count == 7); } while (0)
    DRY_SAYS(s.softmax.stride = 3, SOFTMAX, ARGUMENT, "softmax: stride 3, at least columns 8");
    DRY_SAYS(s.softmax.rows = SIZE_MAX / 8, SOFTMAX_BACK, OVERFLOW, "softmax: input is larger than memory can be");
    DRY_SAYS(s.cross_entropy.vocabulary = 0, CROSS_ENTROPY, ARGUMENT, "cross-entropy: vocabulary is 0");
    DRY_SAYS(s.head.padded = 5, HEAD, ARGUMENT, "head: padded 5, at least vocabulary 16");
    DRY_SAYS(s.head.rows = 2, LOGITS, ARGUMENT, "head: count 2, at most rows - first 1");
    DRY_SAYS(s.attention.heads = 0, ATTENTION, ARGUMENT, "attention: heads is 0");
    DRY_SAYS(s.attention.width = 0, ATTENTION_BACK, ARGUMENT, "attention: width is 0");
    DRY_SAYS(s.norm.rms = 2, NORM, ARGUMENT, "norm: rms 2, must be 0 or 1");
    DRY_SAYS(s.norm.type = (memopt_type)3, NORM_BACK, ARGUMENT, "norm: type 3, no such memopt_type");
    DRY_SAYS(s.linear.type = (memopt_type)3, LINEAR, ARGUMENT, "linear: type 3, no such memopt_type");
    DRY_SAYS(s.linear.accumulate = 2, LINEAR_BACK, ARGUMENT, "linear: accumulate 2, must be 0 or 1");
    DRY_SAYS(s.activation.type = (memopt_type)3, ACTIVATION, ARGUMENT, "activation: type 3, no such memopt_type");
    DRY_SAYS(s.activation.n = SIZE_MAX, ACTIVATION_BACK, OVERFLOW, "activation: input is larger than memory can be");
    DRY_SAYS(s.swiglu.type = (memopt_type)3, SWIGLU, ARGUMENT, "swiglu: type 3, no such memopt_type");
    DRY_SAYS(s.swiglu.width = SIZE_MAX, SWIGLU_BACK, OVERFLOW, "swiglu: input is larger than memory can be");
    DRY_SAYS(s.dropout.rate = 1, DROPOUT, ARGUMENT, "dropout: rate 1, at least 0 and below 1");
    DRY_SAYS(s.dropout.n = SIZE_MAX, DROPOUT_BACK, OVERFLOW, "dropout: grad_output is larger than memory can be");
    DRY_SAYS(s.embedding.type = (memopt_type)3, EMBEDDING, ARGUMENT, "embedding: type 3, no such memopt_type");
    DRY_SAYS(s.embedding.accumulate = 2, EMBEDDING_BACK, ARGUMENT, "embedding: accumulate 2, must be 0 or 1");
    DRY_SAYS(s.rotary.rotated = 3, ROTARY, ARGUMENT, "rotary: rotated 3, must be even");
    DRY_SAYS(s.rotary.base = -1, ROTARY_BACK, ARGUMENT, "rotary: base -1, finite and at least 1");
    DRY_SAYS(s.batch_norm.linear.rows = 1, BATCH, ARGUMENT, "batch norm: rows 1, at least 2");
    DRY_SAYS(s.batch_norm.momentum = 2, BATCH_BACK, ARGUMENT, "batch norm: momentum 2, above 0 and at most 1");
    DRY_SAYS(s.batch_norm.momentum = 2, FOLD, ARGUMENT, "batch norm: momentum 2, above 0 and at most 1");
    DRY_SAYS(o.threads = &half, LINEAR, ARGUMENT, "linear: threads have workers without run_fn, or run_fn without workers");
    DRY_SAYS(o.gemm.user = &half, ATTENTION, ARGUMENT, "attention: gemm has scratch_bytes or user without multiply_fn");
#undef DRY_SAYS
}

/* ---- values from outside ---- */
/* Refused, with argument, row, value and limit; and nothing was written, neither before the row nor in another chunk. */
static float operator_before[ROOM * ROOMS];
static int operator_untouched(void) { return memcmp(operator_before, operator_room, sizeof operator_room) == 0; }
static void operator_values_are_checked(void) {
    const int32_t bad_ids[][OPERATOR_ROWS] = { { 0, 3, 15, 3, 7, 16 }, { 50300, 1, 1, 1, 1, 1 }, { 0, 3, 15, -1, 7, 1 }, { 0, 0, 0, 0, INT32_MAX, 0 } };
    const size_t bad_valid[2][OPERATOR_ROWS] = { { 8, 0, 8, 1, 2, 9 }, { 1000000, 0, 0, 0, 0, 0 } };
    const size_t bad_lengths[2][2] = { { 3, 4 }, { 1000000, 3 } };
    operator_set s, right;
    memopt_ops o, fine;
    int k;

    memset(&fine, 0, sizeof fine);
    fine.scratch = (void *)(((uintptr_t)operator_scratch + 63) & ~(uintptr_t)63);
    fine.scratch_bytes = sizeof operator_scratch - 64;
#define VALUE_SAYS(change, which, text) do { \
        REFUSES(o.error, (s = right, o = fine, change), operator_call(which, &o, &s), MEMOPT_ERR_ARGUMENT, text); \
        CHECK(operator_untouched()); } while (0)
    for (k = 0; k < 2; ++k) {
        right = operator_whole(k ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32);
        memcpy(operator_before, operator_room, sizeof operator_room);
        VALUE_SAYS(s.embedding.ids = bad_ids[0], EMBEDDING, "embedding: id 16 at row 5, limit 16");
        VALUE_SAYS(s.embedding.ids = bad_ids[0], EMBEDDING_BACK, "embedding: id 16 at row 5, limit 16");
        VALUE_SAYS(s.embedding.ids = bad_ids[1], EMBEDDING, "embedding: id 50300 at row 0, limit 16");
        VALUE_SAYS(s.embedding.ids = bad_ids[1], EMBEDDING_BACK, "embedding: id 50300 at row 0, limit 16");
        VALUE_SAYS(s.embedding.ids = bad_ids[2], EMBEDDING, "embedding: id -1 at row 3, limit 16");
        VALUE_SAYS(s.embedding.ids = bad_ids[2], EMBEDDING_BACK, "embedding: id -1 at row 3, limit 16");
        VALUE_SAYS((s.embedding.ids = bad_ids[3], s.embedding.grad_tokens = NULL), EMBEDDING_BACK, "embedding: id 2147483647 at row 4, limit 16");
        VALUE_SAYS((s.embedding.ids = bad_ids[3], s.embedding.accumulate = 1), EMBEDDING_BACK, "embedding: id 2147483647 at row 4, limit 16");
        VALUE_SAYS(s.cross_entropy.targets = bad_ids[0], CROSS_ENTROPY, "cross-entropy: target 16 at row 5, limit 16");
        VALUE_SAYS(s.cross_entropy.targets = bad_ids[1], CROSS_ENTROPY, "cross-entropy: target 50300 at row 0, limit 16");
        VALUE_SAYS((s.cross_entropy.targets = bad_ids[3], s.cross_entropy.keep_logits = 1), CROSS_ENTROPY,
                   "cross-entropy: target 2147483647 at row 4, limit 16");
        VALUE_SAYS((s.head.targets = bad_ids[0], s.head.chunk = 1), HEAD, "head: target 16 at row 5, limit 16"); /* of the last chunk */
        VALUE_SAYS(s.head.targets = bad_ids[1], HEAD, "head: target 50300 at row 0, limit 16");
        VALUE_SAYS((s.head.targets = bad_ids[3], s.head.grad_input = s.head.grad_weights = NULL), HEAD,
                   "head: target 2147483647 at row 4, limit 16");
        VALUE_SAYS((s.head.targets = bad_ids[0], s.head.padded = 20), HEAD, "head: target 16 at row 5, limit 16"); /* padding is no target */
        VALUE_SAYS((s.cross_entropy.targets = bad_ids[0], s.cross_entropy.stride = 20), CROSS_ENTROPY,
                   "cross-entropy: target 16 at row 5, limit 16");
        VALUE_SAYS(s.softmax.valid = bad_valid[0], SOFTMAX, "softmax: valid 9 at row 5, at most columns 8");
        VALUE_SAYS(s.softmax.valid = bad_valid[0], SOFTMAX_BACK, "softmax: valid 9 at row 5, at most columns 8");
        VALUE_SAYS((s.softmax.valid = bad_valid[0], s.softmax.stride = 10), SOFTMAX, "softmax: valid 9 at row 5, at most columns 8");
        VALUE_SAYS(s.softmax.valid = bad_valid[1], SOFTMAX, "softmax: valid 1000000 at row 0, at most columns 8");
        VALUE_SAYS((s.attention.lengths = bad_lengths[0], s.attention.online = 0), ATTENTION, "attention: lengths 4 at sequence 1, at most length 3");
        VALUE_SAYS((s.attention.lengths = bad_lengths[0], s.attention.online = 0), ATTENTION_BACK, "attention: lengths 4 at sequence 1, at most length 3");
        VALUE_SAYS(s.attention.lengths = bad_lengths[0], ATTENTION, "attention: lengths 4 at sequence 1, at most length 3");
        VALUE_SAYS(s.attention.lengths = bad_lengths[1], ATTENTION_BACK,
                   "attention: lengths 1000000 at sequence 0, at most length 3");
        s = right; o = fine; /* what a call does not read it does not refuse; ignored targets are fine */
        s.head.targets = bad_ids[1];
        CHECK(operator_call(LOGITS, &o, &s) == MEMOPT_OK);
        s.head.targets = s.cross_entropy.targets = bad_ids[2];
        CHECK(operator_call(HEAD, &o, &s) == MEMOPT_OK && s.loss.counted == OPERATOR_ROWS - 1);
        CHECK(operator_call(CROSS_ENTROPY, &o, &s) == MEMOPT_OK && s.loss.counted == OPERATOR_ROWS - 1);
    }
#undef VALUE_SAYS
}

/* ---- refusals that no other test reaches: sums of sizes that fit each by itself ---- */
static memopt_status operator_gemm(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    (void)user; (void)p; (void)threads; (void)scratch;
    return MEMOPT_OK;
}
static void operator_sizes_are_refused(void) {
    test_worker_set set;
    memopt_threads threads = test_workers(&set, 3, 0);
    operator_set s;
    memopt_ops o, fine;
    float logits;
    size_t bytes = 7;

    memset(&fine, 0, sizeof fine);
#define SIZE_SAYS(change, call, text) REFUSES(o.error, (s = operator_shapes(MEMOPT_TYPE_BF16), o = fine, change), call, MEMOPT_ERR_OVERFLOW, text)
    SIZE_SAYS((s.cross_entropy.vocabulary = 1, s.cross_entropy.rows = SIZE_MAX / 4), scratch_of_cross_entropy(&o, &s.cross_entropy, &bytes),
              "cross-entropy: scratch is larger than memory can be");
    SIZE_SAYS((s.cross_entropy.vocabulary = 1, s.cross_entropy.rows = SIZE_MAX / 4), operator_call(CROSS_ENTROPY, &o, &s),
              "cross-entropy: scratch is larger than memory can be");
    SIZE_SAYS((s.head.width = s.head.chunk = 1, s.head.vocabulary = 1024, s.head.rows = SIZE_MAX / 16),
              memopt_head_logits(&o, &s.head, 0, SIZE_MAX / 16, &logits), "head: logits is larger than memory can be");
    SIZE_SAYS((s.attention.heads = s.attention.width = s.attention.batch = s.attention.block = 1, s.attention.online = 0,
               s.attention.length = SIZE_MAX / 32, o.threads = &threads),
              scratch_of_attention(&o, &s.attention, &bytes), "attention: scratch is larger than memory can be");
    SIZE_SAYS((s.linear.outputs = 64, o.gemm.multiply_fn = operator_gemm, o.gemm.scratch_bytes = SIZE_MAX - 127),
              scratch_of_linear(&o, &s.linear, &bytes), "linear: scratch is larger than memory can be");
    SIZE_SAYS((s.batch_norm.linear.rows = 0, s.batch_norm.linear.inputs = 2, s.batch_norm.linear.outputs = SIZE_MAX / 20),
              scratch_of_batch_norm(&o, &s.batch_norm, &bytes), "batch norm: weights is larger than memory can be");
    CHECK(bytes == 7);
#undef SIZE_SAYS
}

/* Operators in a tape's callbacks: two buffers of their own, and scratch that nobody has to know. */
typedef struct operator_layer { float *weights, *gradients; size_t rows; int wrong; } operator_layer;
static memopt_status operator_forward(const memopt_tape_call *call) {
    operator_layer *l = (operator_layer *)call->user; memopt_linear linear; memopt_norm norm; memopt_status s;
    float *normed = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, l->rows * OPERATOR_WIDTH * 4);
    float *statistics = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->rows * 8);
    const memopt_ops ops = memopt_ops_in(call, NULL);
    if (l->wrong == 1) (void)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, 64);
    CHECK(ops.error == call->error && !ops.count_scratch == !call->describing && (!ops.scratch || !call->describing));
    memset(&norm, 0, sizeof norm); memset(&linear, 0, sizeof linear);
    norm.rows = l->rows; norm.width = OPERATOR_WIDTH; norm.input = call->input; norm.output = normed; norm.statistics = statistics;
    linear.rows = l->rows; linear.inputs = linear.outputs = OPERATOR_WIDTH; linear.input = l->wrong == 2 ? call->output : normed; linear.weights = l->weights;
    if (l->wrong == 3) linear.type = (memopt_type)test_number_of(7);
    linear.residual = call->input; linear.output = call->output;
    s = memopt_norm_forward(&ops, &norm);
    if (l->wrong == 2 && !call->describing) norm.output = call->output, norm.input = (const float *)call->output + 1, s = memopt_norm_forward(&ops, &norm);
    return s ? s : memopt_linear_forward(&ops, &linear);
}
static memopt_status operator_backward(const memopt_tape_call *call) {
    operator_layer *l = (operator_layer *)call->user; memopt_linear linear; memopt_norm norm; memopt_status s;
    float *statistics = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->rows * 8);
    float *normed = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, l->rows * OPERATOR_WIDTH * 4);
    float *g = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, l->rows * OPERATOR_WIDTH * 4);
    const memopt_ops ops = memopt_ops_in(call, NULL);
    memset(&norm, 0, sizeof norm); memset(&linear, 0, sizeof linear);
    norm.rows = l->rows; norm.width = OPERATOR_WIDTH; norm.input = call->input; norm.output = normed;
    linear.rows = l->rows; linear.inputs = linear.outputs = OPERATOR_WIDTH; linear.input = normed; linear.weights = l->weights;
    linear.grad_output = call->grad_output; linear.grad_input = g; linear.grad_weights = l->gradients;
    s = memopt_norm_forward(&ops, &norm);
    if (!s) s = memopt_linear_backward(&ops, &linear);
    norm.output = NULL; norm.statistics = statistics; norm.grad_output = g; norm.grad_input = call->grad_input;
    if (!call->describing && call->grad_input != call->grad_output) memcpy(call->grad_input, call->grad_output, l->rows * OPERATOR_WIDTH * 4);
    norm.accumulate_input = 1;
    return s ? s : memopt_norm_backward(&ops, &norm);
}
static void operator_in_a_tape(void) {
    enum { LAYERS = 4 };
    static float weights[LAYERS][OPERATOR_WIDTH * OPERATOR_WIDTH], got[LAYERS][OPERATOR_WIDTH * OPERATOR_WIDTH], want[LAYERS][OPERATOR_WIDTH * OPERATOR_WIDTH], x[OPERATOR_ROWS * OPERATOR_WIDTH], g[OPERATOR_ROWS * OPERATOR_WIDTH], gx[2][OPERATOR_ROWS * OPERATOR_WIDTH];
    operator_layer l[LAYERS]; memopt_tape_layer layer[LAYERS]; memopt_segment segment[LAYERS]; memopt_tape_desc d; memopt_tape *tape; memopt_error e; size_t i, k, least = 0; int way;
    void *memory; char text[200]; memopt_segment before[LAYERS];
    memset(segment, 0, sizeof segment); memset(&d, 0, sizeof d); memset(&e, 0, sizeof e);
    for (i = 0; i < LAYERS; ++i) {
        l[i].rows = OPERATOR_ROWS; l[i].weights = weights[i]; l[i].gradients = got[i]; l[i].wrong = 0;
        layer[i].forward_fn = operator_forward; layer[i].backward_fn = operator_backward; layer[i].user = &l[i];
        segment[i].output_bytes = segment[i].grad_bytes = OPERATOR_ROWS * OPERATOR_WIDTH * 4; segment[i].grad_in_place = 1; segment[i].forward_cost = segment[i].backward_cost = 1;
        for (k = 0; k < OPERATOR_WIDTH * OPERATOR_WIDTH; ++k) weights[i][k] = 0.1f * (float)((i + 3 * k) % 11) - 0.5f;
    }
    for (k = 0; k < OPERATOR_ROWS * OPERATOR_WIDTH; ++k) { x[k] = 0.3f * (float)(k % 7) - 1; g[k] = 0.1f * (float)(k % 5); }
    memcpy(before, segment, sizeof before);
    l[2].wrong = 1; /* takes too late */
    CHECK(memopt_tape_describe(layer, segment, LAYERS, &e) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "segment 2: a callback takes scratch after memopt_ops_in()"));
    l[2].wrong = 3;
    CHECK(memopt_tape_describe(layer, segment, LAYERS, &e) == MEMOPT_ERR_ARGUMENT && e.segment == 2 && e.callback && !strcmp(e.callback, "forward") && e.subject && !strcmp(e.subject, "linear"));
    CHECK(!memcmp(before, segment, sizeof before));
    l[2].wrong = 0;
    CHECK(memopt_tape_describe(layer, segment, LAYERS, &e) == MEMOPT_OK);
    for (i = 0; i < LAYERS; ++i) { /* 6 rows of 8 floats: 192; of two: 48, as 64; the product's scratch is the largest */
        CHECK_AT(segment[i].saved_bytes == 192 + 64 && segment[i].forward_scratch == 192 + memopt_gemm_scratch(NULL), (int)i);
        CHECK_AT(segment[i].plain_scratch == 192 + 64 + memopt_gemm_scratch(NULL) && segment[i].backward_scratch == 2 * 192 + memopt_gemm_scratch(NULL), (int)i);
    }
    d.layers = layer; d.chain.segments = segment; d.chain.count = LAYERS; d.chain.input_bytes = d.chain.input_grad_bytes = sizeof x;
    CHECK(memopt_tape_min_budget(&d, &least) == MEMOPT_OK);
    for (way = 0; way < 2; ++way) { /* all kept, and as little as can be: the same bits */
        d.budget = way ? least : least + 100000;
        memory = memopt_i_system_alloc(NULL, d.budget, 64); tape = NULL;
        CHECK(memory && memopt_tape_create(&d, &tape) == MEMOPT_OK && memopt_tape_set_memory(tape, memory, d.budget) == MEMOPT_OK);
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, g, gx[way]) == MEMOPT_OK);
        if (!way) memcpy(want, got, sizeof want);
        CHECK(!memcmp(want, got, sizeof want) && !memcmp(gx[0], gx[way], sizeof x));
        l[1].wrong = 1;
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_ERR_STATE);
        e = memopt_tape_error(tape);
        CHECK(memopt_error_text(&e, text, sizeof text, NULL) == MEMOPT_OK && !strncmp(text, "segment 1: a callback takes scratch after memopt_ops_in()", 57));
        l[1].wrong = 2; /* an operator that is called wrongly says so, and where */
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_ERR_ARGUMENT);
        e = memopt_tape_error(tape);
        CHECK(memopt_error_text(&e, text, sizeof text, NULL) == MEMOPT_OK && !strncmp(text, "segment 1: forward: norm: output overlaps input, action ", 56));
        l[1].wrong = 0; l[1].rows = OPERATOR_ROWS + 1000000; /* more than was described: the operators find no scratch, the tape says how much was taken */
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_ERR_STATE);
        l[1].rows = OPERATOR_ROWS;
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, g, gx[way]) == MEMOPT_OK && !memcmp(want, got, sizeof want));
        memopt_tape_destroy(tape);
        memopt_i_system_free(NULL, memory, d.budget, 64);
    }
    { memopt_ops none = memopt_ops_in(NULL, NULL); CHECK(!none.threads && !none.scratch && !none.error); }
}

static void test_operator(void) {
    RUN(operator_dry_counts);
    RUN(operator_dry_is_enough);
    RUN(operator_dry_refuses);
    RUN(operator_values_are_checked);
    RUN(operator_sizes_are_refused);
    RUN(operator_in_a_tape);
}
#ifndef TEST_COMBINED
int main(void) { test_operator(); return test_totals(); }
#endif
