/* gpt_6_parts.c - gpt_5_lean.c made of the ready segments of examples/parts: the engine's operators are gone.

   Build: cc -O2 gpt_6_parts.c memopt.o -o gpt_6_parts -lm */
#include "memopt.h"
#include "../parts/block.h"
#include "../parts/embedding.h"
#include "../parts/head.h"
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
    TENSORS = 2 + 12 * LAYERS + 2,
    SEGMENTS = 1 + 2 * LAYERS + 1,
    EMBEDDING_WEIGHTS = (VOCABULARY + LENGTH) * WIDTH
};

typedef struct block { /* weights of a block, or their gradients */
    float *scale1, *shift1;
    float *qkv, *qkv_bias;
    float *proj, *proj_bias;
    float *scale2, *shift2;
    float *up, *up_bias;
    float *down, *down_bias;
} block;

typedef struct network { /* weights and activations, or the gradients of both */
    float *weights;
    float *tokens, *positions;
    block blocks[LAYERS];
    float *scale, *shift;
} network;

typedef struct model {
    network now;
    uint16_t *weights; /* bf16 */
    transformer shape;
    transformer_part embedding;
    transformer_block blocks[LAYERS];
    transformer_head head;
    memopt_optim_tensor tensors[TENSORS];
    memopt_tape_layer layers[SEGMENTS];
    memopt_segment segments[SEGMENTS];
    memopt_optim *optim;
    memopt_tape *tape;
    int32_t input[ROWS], target[ROWS];
} model;

static memopt_error why;

static void fail(memopt_error error) {
    MEMOPT_ERROR_PRINT(stderr, error);
    exit(1);
}

/* ---- memory ---- */
static float *allocate(size_t count) {
    float *memory = (float *)calloc(count, sizeof *memory);

    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static float *take(float **next, size_t count) {
    float *part = *next;

    *next += count;
    return part;
}

static void place_block(block *b, float **next) {
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

static void place_weights(network *n, float *next) {
    int l;

    n->weights = next;
    n->tokens = take(&next, VOCABULARY * WIDTH);
    n->positions = take(&next, LENGTH * WIDTH);
    for (l = 0; l < LAYERS; ++l) place_block(&n->blocks[l], &next);
    n->scale = take(&next, WIDTH);
    n->shift = take(&next, WIDTH);
}

/* ---- a tape of embedding, blocks and head ---- */
static memopt_status step_tensor(void *user, size_t tensor, const void *gradients) {
    return memopt_optim_apply_with(((const model *)user)->optim, tensor, gradients);
}

static void open_parts(model *net) {
    transformer_chain chain = { .shape = &net->shape, .weights = net->weights, .tensors = net->tensors,
                                .layers = net->layers, .segments = net->segments };
    size_t l;

    transformer_add_embedding(&chain, &net->embedding);
    net->embedding.gradients = allocate(EMBEDDING_WEIGHTS); /* the head begins it, the embedding ends it */
    for (l = 0; l < LAYERS; ++l) transformer_add_block(&chain, &net->blocks[l]);
    transformer_add_head(&chain, &net->head, &net->embedding);
    net->head.targets = net->target;
    net->head.chunk = 64;
}

static void open_optim(model *net) {
    const memopt_optim_desc desc = { .kind = MEMOPT_OPTIM_ADAMW, .state = MEMOPT_STATE_8BIT,
                                     .weights = MEMOPT_TYPE_BF16, .gradients = MEMOPT_TYPE_BF16,
                                     .tensors = net->tensors, .tensor_count = TENSORS, .error = &why };

    if (memopt_optim_open(&desc, NULL, &net->optim)) fail(why);
}

static void open_tape(model *net) {
    memopt_tape_desc desc = { .layers = net->layers, .overhead = 0.33, .error = &why };

    desc.chain.segments = net->segments;
    desc.chain.count = SEGMENTS;
    desc.chain.input_bytes = sizeof net->input;
    if (memopt_tape_open(&desc, &net->tape)) fail(why);
}

static float train_step(model *net, int step) {
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    const memopt_optim_run run = { .step = (uint64_t)step, .groups = &group, .group_count = 1, .fused = 1 };

    if (memopt_tape_forward(net->tape, net->input)) fail(memopt_tape_error(net->tape));
    if (memopt_optim_begin(net->optim, &run)) fail(memopt_optim_error(net->optim));
    if (memopt_tape_backward(net->tape, NULL, NULL)) fail(memopt_tape_error(net->tape));
    if (memopt_optim_end(net->optim)) fail(memopt_optim_error(net->optim));
    return (float)net->head.loss;
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

static void start(float *weights, size_t count, float size, uint32_t *state) {
    size_t i;

    for (i = 0; i < count; ++i) weights[i] = size * ((float)next_random(state) / 8388608.0f - 1.0f);
}

static void start_block(const block *b, uint32_t *state) {
    size_t i;

    for (i = 0; i < WIDTH; ++i) b->scale1[i] = b->scale2[i] = 1;
    start(b->qkv, 3 * WIDTH * WIDTH, 0.08f, state);
    start(b->proj, WIDTH * WIDTH, 0.02f, state);
    start(b->up, 4 * WIDTH * WIDTH, 0.08f, state);
    start(b->down, 4 * WIDTH * WIDTH, 0.01f, state);
}

static void open_model(model *net) {
    uint32_t state = 2;
    const transformer shape = { .batch = BATCH, .length = LENGTH, .width = WIDTH, .heads = HEADS,
                                .vocabulary = VOCABULARY, .type = MEMOPT_TYPE_BF16, .weight_type = MEMOPT_TYPE_BF16,
                                .gradient_type = MEMOPT_TYPE_BF16, .done_fn = step_tensor, .user = net };
    size_t i;

    place_weights(&net->now, allocate(WEIGHTS));
    start(net->now.tokens, VOCABULARY * WIDTH, 0.04f, &state);
    start(net->now.positions, LENGTH * WIDTH, 0.04f, &state);
    for (i = 0; i < LAYERS; ++i) start_block(&net->now.blocks[i], &state);
    for (i = 0; i < WIDTH; ++i) net->now.scale[i] = 1;
    net->shape = shape;
    net->weights = (uint16_t *)allocate(WEIGHTS / 2);
    (void)memopt_bf16_from_f32(net->weights, net->now.weights, WEIGHTS, NULL);
    free(net->now.weights);
    open_parts(net);
    open_optim(net);
    open_tape(net);
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
           hash(net.weights, WEIGHTS * sizeof *net.weights));
    return 0;
}
