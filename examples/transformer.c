/* transformer.c - a Llama-shaped model, made of the parts in examples/parts and trained on bytes within a budget.

   What to see: the engine's own part is this file. It tells the shape, gives the weights a place and says how they are
   stepped; forward, backward and all sizes are the parts'. Weights, 8-bit optimizer states and activations share one
   arena of BUDGET bytes; gradients live in scratch until the tensor they belong to has been stepped, inside backward.
   The exit status says whether the model learned, and whether the peak was what the tape had said.
   Build: cc -O2 transformer.c -o transformer -lm      (memopt.h and parts/ beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "parts/block.h"
#include "parts/embedding.h"
#include "parts/head.h"
#include <stdio.h>

enum { BLOCKS = 6, SEGMENTS = 2 * BLOCKS + 2, TENSORS = TRANSFORMER_TENSORS_MAX * SEGMENTS };
enum { BATCH = 8, LENGTH = 64, ROWS = BATCH * LENGTH, STEPS = 80 };
#define BUDGET ((size_t)5 << 20)

typedef struct model {
    transformer shape;
    transformer_part embedding;
    transformer_block blocks[BLOCKS];
    transformer_head head;
    memopt_tape_layer layers[SEGMENTS];
    memopt_segment segments[SEGMENTS];
    memopt_optim_tensor tensors[TENSORS];
} model;

static transformer llama(void) {
    transformer t;

    memset(&t, 0, sizeof t);
    t.batch = BATCH;
    t.length = LENGTH;
    t.width = 64;
    t.heads = 4;
    t.kv_heads = 2;
    t.hidden = 176;
    t.vocabulary = 256;
    t.rms = t.swiglu = t.rotary = t.no_bias = t.untied = 1;
    return t;
}

static void add_parts(transformer_chain *chain, model *m) {
    size_t i;

    transformer_add_embedding(chain, &m->embedding);
    for (i = 0; i < BLOCKS; ++i) transformer_add_block(chain, &m->blocks[i]);
    transformer_add_head(chain, &m->head, &m->embedding);
}

static memopt_status step_tensor(void *user, size_t tensor, const void *gradients) { /* inside backward */
    return memopt_optim_apply_with((memopt_optim *)user, tensor, gradients);
}

/* Matrices are random; all vectors of this shape are scales of norms. */
static memopt_status initialise(const memopt_optim_tensor *tensors, size_t count) {
    memopt_status s = MEMOPT_OK;
    size_t i, k;

    for (i = 0; i < count && !s; ++i) {
        float *w = (float *)tensors[i].weights;

        if (tensors[i].columns) s = memopt_random_normal(w, tensors[i].count, 1, i, 0, NULL);
        for (k = 0; k < tensors[i].count; ++k) w[k] = tensors[i].columns ? 0.05f * w[k] : 1;
    }
    return s;
}

/* Text to learn: sums, one a line, wherever a sequence begins in them. Targets are the bytes that follow. */
static void sample(int32_t *ids, int32_t *targets, uint32_t *state) {
    char text[LENGTH + 32];
    size_t b, i;

    for (b = 0; b < BATCH; ++b) {
        for (i = 0; i <= LENGTH;) {
            unsigned x, y;

            *state = *state * 1664525u + 1013904223u;
            x = *state >> 28;
            y = *state >> 24 & 15;
            i += (size_t)snprintf(text + i, sizeof text - i, "%u + %u = %u\n", x, y, x + y);
        }
        for (i = 0; i < LENGTH; ++i) {
            ids[b * LENGTH + i] = (unsigned char)text[i];
            targets[b * LENGTH + i] = (unsigned char)text[i + 1];
        }
    }
}

static int fail(memopt_error why) {
    char line[256];

    memopt_error_text(&why, line, sizeof line, NULL);
    fprintf(stderr, "%s\n", line);
    return 1;
}

int main(void) {
    static model m;
    static int32_t ids[ROWS], targets[ROWS];
    transformer_chain chain = { 0 };
    memopt_source pages;
    memopt_arena_desc arena_desc = { 0 };
    memopt_arena *arena = NULL;
    memopt_optim_desc optim_desc = { 0 };
    memopt_optim *optim = NULL;
    memopt_tape_desc desc = { 0 };
    memopt_tape *tape = NULL;
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run = { 0 };
    memopt_error why = { 0 };
    uint32_t state = 1;
    double first = 0;
    size_t held, predicted, peak;

    m.shape = llama();
    chain.shape = &m.shape;
    add_parts(&chain, &m); /* counts */
    if (memopt_source_pages(NULL, &pages)) return 1;
    arena_desc.source = &pages;
    arena_desc.capacity = BUDGET;
    if (memopt_arena_create(&arena_desc, &arena)) return 1;
    chain.weights = MEMOPT_PUSH(arena, float, chain.elements, MEMOPT_TAG_PARAMETERS);
    chain.tensors = m.tensors;
    chain.layers = m.layers;
    chain.segments = m.segments;
    chain.elements = chain.tensor_count = chain.count = 0;
    add_parts(&chain, &m); /* places */
    if (!chain.weights || initialise(m.tensors, chain.tensor_count)) return 1;
    if (memopt_tape_describe(m.layers, m.segments, chain.count, &why)) return fail(why);

    optim_desc.kind = MEMOPT_OPTIM_ADAMW;
    optim_desc.state = MEMOPT_STATE_8BIT;
    optim_desc.tensors = m.tensors;
    optim_desc.tensor_count = chain.tensor_count;
    optim_desc.error = &why;
    if (memopt_optim_open(&optim_desc, arena, &optim)) return fail(why);
    m.shape.done_fn = step_tensor;
    m.shape.user = optim;

    held = memopt_arena_get_stats(arena).used_low;
    desc.chain.segments = m.segments;
    desc.chain.count = chain.count;
    desc.chain.input_bytes = sizeof ids;
    desc.layers = m.layers;
    desc.arena = arena;
    desc.budget = BUDGET - held;
    desc.error = &why;
    if (memopt_tape_create(&desc, &tape)) return fail(why);
    predicted = held + memopt_tape_get_stats(tape).peak;
    printf("%lu parameters, %lu bytes with their states; %lu for a pass\n", (unsigned long)chain.elements,
           (unsigned long)held, (unsigned long)(predicted - held));

    m.head.targets = targets;
    group.rate = 3e-3;
    run.groups = &group;
    run.group_count = 1;
    run.fused = 1;
    for (run.step = 1; run.step <= STEPS; ++run.step) {
        sample(ids, targets, &state);
        if (memopt_optim_begin(optim, &run)) return fail(memopt_optim_error(optim));
        if (memopt_tape_forward(tape, ids) || memopt_tape_backward(tape, NULL, NULL))
            return fail(memopt_tape_error(tape));
        if (memopt_optim_end(optim)) return fail(memopt_optim_error(optim));
        if (run.step == 1) first = m.head.loss;
        if (run.step % 20 == 0 || run.step == 1) printf("step %3lu  loss %.4f\n", (unsigned long)run.step, m.head.loss);
    }
    peak = memopt_arena_get_stats(arena).peak;
    printf("peak %lu bytes, predicted %lu, budget %lu\n", (unsigned long)peak, (unsigned long)predicted,
           (unsigned long)BUDGET);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
    return m.head.loss < first / 3 && peak == predicted && peak <= BUDGET ? 0 : 1;
}
