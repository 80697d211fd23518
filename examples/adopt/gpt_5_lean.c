/* gpt_5_lean.c - gpt_4_tape.c with memopt's operators, all in bf16, and states in 8 bits: lossy.

   No logits, no attention matrices, no second copies: norms and GELU are made again, gradients overwrite each other.
   Build: cc -O2 gpt_5_lean.c memopt.o -o gpt_5_lean -lm */
#include "memopt.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 4,
    LENGTH = 128,
    ROWS = BATCH * LENGTH,
    WIDTH = 128,
    HEADS = 4,
    HEAD = WIDTH / HEADS,
    LAYERS = 8,
    VOCABULARY = 256,
    STEPS = 5,
    TEXT = 1 << 16,
    BLOCK_WEIGHTS = 12 * WIDTH * WIDTH + 13 * WIDTH,
    WEIGHTS = (VOCABULARY + LENGTH + 2) * WIDTH + LAYERS * BLOCK_WEIGHTS,
    EMBEDDING_WEIGHTS = (VOCABULARY + LENGTH) * WIDTH,
    STREAM = ROWS * WIDTH * sizeof(uint16_t)
};

typedef uint16_t bf16;
#define BF16 MEMOPT_TYPE_BF16
#define ONE 0x3F80 /* 1 in bf16 */

typedef struct block { /* weights of a block, or their gradients */
    bf16 *scale1, *shift1;
    bf16 *qkv, *qkv_bias;
    bf16 *proj, *proj_bias;
    bf16 *scale2, *shift2;
    bf16 *up, *up_bias;
    bf16 *down, *down_bias;
} block;

typedef struct operators { /* of a block */
    memopt_norm norm1, norm2;
    memopt_linear qkv, proj, up, down;
    memopt_attention attention;
    memopt_activation_args gelu;
} operators;

typedef struct network { /* weights and activations, or the gradients of both */
    bf16 *weights;
    bf16 *tokens, *positions;
    block blocks[LAYERS];
    bf16 *scale, *shift;
    bf16 *embedded;
} network;

typedef struct model {
    network now, grad;
    memopt_optim *optim;
    memopt_optim_tensor tensors[LAYERS + 2]; /* the embedding, the blocks, the last norm */
    memopt_tape *tape;
    int32_t input[ROWS], target[ROWS];
    memopt_loss loss;
} model;

static memopt_error why;

static void fail(memopt_error error) {
    MEMOPT_ERROR_PRINT(stderr, error);
    exit(1);
}

/* ---- memory ---- */
static bf16 *allocate(size_t count) {
    bf16 *memory = (bf16 *)calloc(count, sizeof *memory);

    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static bf16 *take(bf16 **next, size_t count) {
    bf16 *part = *next;

    *next += count;
    return part;
}

static void place_block(block *b, bf16 **next) {
    b->scale1 = take(next, WIDTH);
    b->shift1 = take(next, WIDTH);
    b->qkv = take(next, 3 * WIDTH * WIDTH);
    b->qkv_bias = take(next, 3 * WIDTH);
    b->proj = take(next, WIDTH * WIDTH);
    b->proj_bias = take(next, WIDTH);
    b->scale2 = take(next, WIDTH);
    b->shift2 = take(next, WIDTH);
    b->up = take(next, 4 * WIDTH * WIDTH);
    b->up_bias = take(next, 4 * WIDTH);
    b->down = take(next, 4 * WIDTH * WIDTH);
    b->down_bias = take(next, WIDTH);
}

static void place_weights(network *n, bf16 *next) {
    int l;

    n->weights = next;
    n->tokens = take(&next, VOCABULARY * WIDTH);
    n->positions = take(&next, LENGTH * WIDTH);
    for (l = 0; l < LAYERS; ++l) place_block(&n->blocks[l], &next);
    n->scale = take(&next, WIDTH);
    n->shift = take(&next, WIDTH);
}

/* ---- a tape of the blocks and the head ---- */
static memopt_norm norm_of(const bf16 *in, bf16 *out, float *stats, const bf16 *scale, const bf16 *shift, bf16 *d_scale,
                           bf16 *d_shift, const bf16 *d_out, bf16 *d_in) {
    const memopt_norm x = { .rows = ROWS, .width = WIDTH, .type = BF16, .weight_type = BF16, .gradient_type = BF16,
                            .input = in, .output = out, .statistics = stats, .scale = scale, .shift = shift,
                            .grad_output = d_out, .grad_input = d_in, .accumulate_input = 1, .grad_scale = d_scale,
                            .grad_shift = d_shift };

    return x;
}

static memopt_linear linear_of(const bf16 *in, bf16 *out, const bf16 *weights, const bf16 *bias, const bf16 *residual,
                               bf16 *d_weights, bf16 *d_bias, const bf16 *d_out, bf16 *d_in, size_t inputs,
                               size_t outputs) {
    const memopt_linear x = { .rows = ROWS, .inputs = inputs, .outputs = outputs, .type = BF16, .weight_type = BF16,
                              .gradient_type = BF16, .input = in, .weights = weights, .bias = bias,
                              .residual = residual, .output = out, .grad_output = d_out, .grad_input = d_in,
                              .grad_weights = d_weights, .grad_bias = d_bias };

    return x;
}

static bf16 *take_from(const memopt_tape_call *call, memopt_tape_part part, size_t columns) {
    return memopt_tape_take(call, part, ROWS * columns * sizeof(bf16));
}

static bf16 *at(bf16 *part, size_t offset) { /* while the tape asks for sizes, there are no parts */
    return part ? part + offset : NULL;
}

/* Norms and GELU are made again in backward. There, narrow and wide hold one gradient after the other, and d becomes
   that of the input from that of the output. */
static operators operators_of(const memopt_tape_call *call, const block *g) {
    const block *w = &((const model *)call->user)->now.blocks[call->segment];
    const bf16 *input = call->input;
    bf16 *qkv = take_from(call, MEMOPT_TAPE_SAVED, 3 * WIDTH);
    bf16 *mix = take_from(call, MEMOPT_TAPE_SAVED, WIDTH);
    bf16 *middle = take_from(call, MEMOPT_TAPE_SAVED, WIDTH);
    bf16 *up = take_from(call, MEMOPT_TAPE_SAVED, 4 * WIDTH);
    float *stats1 = memopt_tape_take(call, MEMOPT_TAPE_SAVED, ROWS * 2 * sizeof(float));
    float *stats2 = memopt_tape_take(call, MEMOPT_TAPE_SAVED, ROWS * 2 * sizeof(float));
    bf16 *norm = take_from(call, MEMOPT_TAPE_SCRATCH, WIDTH);
    bf16 *gelu = take_from(call, MEMOPT_TAPE_SCRATCH, 4 * WIDTH);
    bf16 *narrow = take_from(call, MEMOPT_TAPE_SCRATCH, WIDTH);
    bf16 *wide = take_from(call, MEMOPT_TAPE_SCRATCH, 4 * WIDTH);
    bf16 *d = call->grad_input;
    const operators x = {
        .norm1 = norm_of(input, norm, stats1, w->scale1, w->shift1, g->scale1, g->shift1, narrow, d),
        .qkv = linear_of(norm, qkv, w->qkv, w->qkv_bias, NULL, g->qkv, g->qkv_bias, wide, narrow, WIDTH, 3 * WIDTH),
        .attention = { .batch = BATCH, .length = LENGTH, .heads = HEADS, .width = HEAD, .causal = 1, .type = BF16,
                       .query_stride = 3 * WIDTH, .kv_stride = 3 * WIDTH, .queries = qkv,
                       .keys = at(qkv, WIDTH), .values = at(qkv, 2 * WIDTH), .output = mix, .grad_output = narrow,
                       .grad_queries = wide, .grad_keys = at(wide, WIDTH), .grad_values = at(wide, 2 * WIDTH) },
        .proj = linear_of(mix, middle, w->proj, w->proj_bias, input, g->proj, g->proj_bias, d, narrow, WIDTH, WIDTH),
        .norm2 = norm_of(middle, norm, stats2, w->scale2, w->shift2, g->scale2, g->shift2, narrow, d),
        .up = linear_of(norm, up, w->up, w->up_bias, NULL, g->up, g->up_bias, wide, narrow, WIDTH, 4 * WIDTH),
        .gelu = { .n = ROWS * 4 * WIDTH, .activation = MEMOPT_ACTIVATION_GELU, .type = BF16, .input = up,
                  .output = gelu, .grad_output = wide, .grad_input = wide },
        .down = linear_of(gelu, call->output, w->down, w->down_bias, middle, g->down, g->down_bias, d, wide,
                          4 * WIDTH, WIDTH)
    };

    return x;
}

static memopt_status run_block(const memopt_tape_call *call) {
    const block none = { 0 };
    const operators x = operators_of(call, &none);
    const memopt_ops ops = memopt_ops_in(call, NULL);

    if (memopt_norm_forward(&ops, &x.norm1) || memopt_linear_forward(&ops, &x.qkv)
        || memopt_attention_forward(&ops, &x.attention) || memopt_linear_forward(&ops, &x.proj)
        || memopt_norm_forward(&ops, &x.norm2) || memopt_linear_forward(&ops, &x.up)
        || memopt_activation_forward(&ops, &x.gelu) || memopt_linear_forward(&ops, &x.down)) return call->error->status;
    return MEMOPT_OK;
}

static memopt_status run_block_backward(const memopt_tape_call *call) {
    const model *net = call->user;
    bf16 *gradients = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, BLOCK_WEIGHTS * sizeof(bf16));
    bf16 *next = gradients;
    block g = { 0 };
    operators x;
    memopt_ops ops;

    if (!call->describing) place_block(&g, &next);
    x = operators_of(call, &g);
    ops = memopt_ops_in(call, NULL);
    if (call->grad_input != call->grad_output) memcpy(call->grad_input, call->grad_output, STREAM);
    if (memopt_activation_forward(&ops, &x.gelu) || memopt_linear_backward(&ops, &x.down)
        || memopt_activation_backward(&ops, &x.gelu) || memopt_norm_forward(&ops, &x.norm2)
        || memopt_linear_backward(&ops, &x.up) || memopt_norm_backward(&ops, &x.norm2)
        || memopt_linear_backward(&ops, &x.proj) || memopt_attention_backward(&ops, &x.attention)
        || memopt_norm_forward(&ops, &x.norm1) || memopt_linear_backward(&ops, &x.qkv)
        || memopt_norm_backward(&ops, &x.norm1)) return call->error->status;
    return memopt_tape_step(call, net->optim, 1 + call->segment, gradients);
}

/* The head has no forward: all of it is made in its backward. */
static memopt_status run_head_backward(const memopt_tape_call *call) {
    model *net = call->user;
    const network *n = &net->now;
    float *stats = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, ROWS * 2 * sizeof(float));
    bf16 *in = take_from(call, MEMOPT_TAPE_SCRATCH, WIDTH); /* becomes its gradient */
    bf16 *g = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, 2 * WIDTH * sizeof(bf16));
    const memopt_norm norm = norm_of(call->input, in, stats, n->scale, n->shift, g, at(g, WIDTH), in,
                                     call->grad_input);
    const memopt_head head = { .rows = ROWS, .width = WIDTH, .vocabulary = VOCABULARY, .chunk = 64, .type = BF16,
                               .weight_type = BF16, .gradient_type = BF16, .input = in, .weights = n->tokens,
                               .targets = net->target, .grad_input = in, .grad_weights = net->grad.tokens };
    const memopt_ops ops = memopt_ops_in(call, NULL);

    if (!call->describing) memset(call->grad_input, 0, STREAM);
    if (memopt_norm_forward(&ops, &norm) || memopt_head_loss(&ops, &head, &net->loss)
        || memopt_norm_backward(&ops, &norm)) return call->error->status;
    return memopt_tape_step(call, net->optim, 1 + call->segment, g);
}

static void open_tape(model *net) {
    const memopt_arena_desc pages = { .capacity = (size_t)1 << 30, .error = &why };
    memopt_tape_desc desc = {
        .chain = { .count = LAYERS + 1, .input_bytes = STREAM, .input_grad_bytes = STREAM },
        .segment = { .output_bytes = STREAM, .grad_bytes = STREAM, .grad_in_place = 1 },
        .layer = { run_block, run_block_backward, net },
        .head = { NULL, run_head_backward, net },
        .overhead = 0.33, .error = &why
    };

    if (memopt_arena_create(&pages, &desc.arena) || memopt_tape_open(&desc, &net->tape)) fail(why);
}

/* The order of what is tied: the head adds to the gradient of tokens, then the embedding does, then it is stepped. */
static float train_step(model *net, int step) {
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    const memopt_optim_run run = { .step = (uint64_t)step, .groups = &group, .group_count = 1, .fused = 1 };
    const network *n = &net->now;
    const network *g = &net->grad;
    const memopt_ops ops = { .error = &why };
    const memopt_embedding embedding = { .rows = ROWS, .width = WIDTH, .vocabulary = VOCABULARY, .length = LENGTH,
                                         .type = BF16, .weight_type = BF16, .gradient_type = BF16, .ids = net->input,
                                         .tokens = n->tokens, .positions = n->positions, .output = n->embedded,
                                         .grad_output = g->embedded, .grad_tokens = g->tokens,
                                         .grad_positions = g->tokens + VOCABULARY * WIDTH, .accumulate = 1 };

    if (memopt_embedding_forward(&ops, &embedding)) fail(why);
    if (memopt_tape_forward(net->tape, n->embedded)) fail(memopt_tape_error(net->tape));
    if (memopt_optim_begin(net->optim, &run)) fail(memopt_optim_error(net->optim));
    memset(g->tokens, 0, EMBEDDING_WEIGHTS * sizeof(bf16));
    if (memopt_tape_backward(net->tape, NULL, g->embedded)) fail(memopt_tape_error(net->tape));
    if (memopt_embedding_backward(&ops, &embedding)) fail(why);
    if (memopt_optim_apply_with(net->optim, 0, g->tokens)) fail(memopt_optim_error(net->optim));
    if (memopt_optim_end(net->optim)) fail(memopt_optim_error(net->optim));
    return (float)net->loss.loss;
}

/* ---- data, and all together ---- */
static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void make_text(char *text) { /* sentences of the same few words */
    static const char *const words[] = { "the cat ", "the dog ", "a bird ", "sees ", "hears ", "follows ", "the moon",
                                         "a fish", "the rain" };
    uint32_t state = 1;
    size_t at = 0;
    size_t kind;

    for (kind = 0; at + 16 < TEXT; kind = (kind + 1) % 3) {
        const char *word = words[kind * 3 + next_random(&state) % 3];

        memcpy(text + at, word, strlen(word));
        at += strlen(word);
        if (kind == 2) memcpy(text + at, ". ", 2);
        if (kind == 2) at += 2;
    }
    memset(text + at, '.', TEXT - at);
}

static void next_batch(model *net, const char *text, uint32_t *state) {
    size_t b, i;

    for (b = 0; b < BATCH; ++b) {
        const char *from = text + next_random(state) % (TEXT - LENGTH - 1);

        for (i = 0; i < LENGTH; ++i) {
            net->input[b * LENGTH + i] = from[i];
            net->target[b * LENGTH + i] = from[i + 1];
        }
    }
}

static void start(bf16 *weights, size_t count, float size, uint32_t *state) {
    size_t i;

    for (i = 0; i < count; ++i) {
        const float weight = size * ((float)next_random(state) / 8388608.0f - 1.0f);

        (void)memopt_bf16_from_f32(&weights[i], &weight, 1, NULL);
    }
}

static void start_block(const block *b, uint32_t *state) {
    size_t i;

    for (i = 0; i < WIDTH; ++i) b->scale1[i] = b->scale2[i] = ONE;
    start(b->qkv, 3 * WIDTH * WIDTH, 0.08f, state);
    start(b->proj, WIDTH * WIDTH, 0.02f, state);
    start(b->up, 4 * WIDTH * WIDTH, 0.08f, state);
    start(b->down, 4 * WIDTH * WIDTH, 0.01f, state);
}

static void open_model(model *net) {
    const memopt_optim_desc desc = { .kind = MEMOPT_OPTIM_ADAMW, .state = MEMOPT_STATE_8BIT, .weights = BF16,
                                     .gradients = BF16, .error = &why, .tensors = net->tensors,
                                     .tensor_count = LAYERS + 2 };
    uint32_t state = 2;
    bf16 *next = allocate(WEIGHTS);
    size_t i;

    place_weights(&net->now, next);
    net->now.embedded = allocate(ROWS * WIDTH);
    net->grad.embedded = allocate(ROWS * WIDTH);
    net->grad.tokens = allocate(EMBEDDING_WEIGHTS);
    for (i = 0; i < LAYERS + 2; ++i) {
        net->tensors[i].count = i < 1 ? EMBEDDING_WEIGHTS : i <= LAYERS ? BLOCK_WEIGHTS : 2 * WIDTH;
        net->tensors[i].weights = take(&next, net->tensors[i].count);
    }
    if (memopt_optim_open(&desc, NULL, &net->optim)) fail(why);
    open_tape(net);
    start(net->now.tokens, VOCABULARY * WIDTH, 0.04f, &state);
    start(net->now.positions, LENGTH * WIDTH, 0.04f, &state);
    for (i = 0; i < LAYERS; ++i) start_block(&net->now.blocks[i], &state);
    for (i = 0; i < WIDTH; ++i) net->now.scale[i] = ONE;
}

static unsigned long peak_bytes(void) { /* of the process, where there is a /proc */
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");

    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "VmHWM:", 6)) kib = strtoul(line + 6, NULL, 10);
    if (file) fclose(file);
    return kib * 1024;
}

static unsigned long long hash(const void *bytes, size_t count) { /* FNV-1a */
    const unsigned char *p = (const unsigned char *)bytes;
    unsigned long long h = 14695981039346656037u;
    size_t i;

    for (i = 0; i < count; ++i) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

int main(void) {
    static model net;
    static char text[TEXT];
    uint32_t state = 3;
    float loss = 0;
    int step;

    make_text(text);
    open_model(&net);
    for (step = 1; step <= STEPS; ++step) {
        next_batch(&net, text, &state);
        loss = train_step(&net, step);
    }
    printf("loss %.6f peak %lu weights %016llx\n", (double)loss, peak_bytes(),
           hash(net.now.weights, WEIGHTS * sizeof(bf16)));
    return 0;
}
