/* lora.c - a trained network goes on with low-rank adapters alone: its weights frozen in 8 bits, its first blocks
   without a backward.

   What to see: a Llama-shaped model, made of the parts in examples/parts, learns to add. Then it learns to subtract by
   adapters beside the matrices of its last blocks (adapter_rank of transformer.h). Of the frozen matrices there are
   codes of 8 bits; the blocks in front are evaluated, and keep nothing; an optimizer has states of adapters only. The
   exit status says whether both were learned, whether the peaks were as told, and the second less than half.
   Build: cc -O2 lora.c -o lora -lm      (memopt.h and parts/ beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "parts/block.h"
#include "parts/embedding.h"
#include "parts/head.h"
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 6, FIRST = 3 /* that has adapters */, RANK = 8, CODES = 64 /* of a block of 8 bits */ };
enum { BATCH = 8, LENGTH = 64, ROWS = BATCH * LENGTH, WIDTH = 64, STEPS = 100 };
enum { SEGMENTS = 2 * BLOCKS + 2, TENSORS = TRANSFORMER_TENSORS_MAX * SEGMENTS };
#define BUDGET ((size_t)24 << 20)

typedef struct model {
    transformer shape;
    transformer_part embedding;
    transformer_block blocks[BLOCKS];
    transformer_head head;
    transformer_chain front, chain;
    memopt_tape_layer front_layers[SEGMENTS], layers[SEGMENTS];
    memopt_segment front_segments[SEGMENTS], segments[SEGMENTS];
    memopt_optim_tensor tensors[TENSORS];
    memopt_source pages;
    memopt_arena *arena;
    memopt_tape *front_tape, *tape; /* front_tape: NULL where all is trained */
    memopt_optim *optim;
    float *hidden;                  /* what leaves the front */
    int32_t ids[ROWS], targets[ROWS];
    uint32_t random;
    memopt_error why;
} model;

static void describe(model *m) {
    transformer *t = &m->shape;

    t->batch = BATCH;
    t->length = LENGTH;
    t->width = WIDTH;
    t->heads = 4;
    t->kv_heads = 2;
    t->hidden = 176;
    t->vocabulary = 256;
    t->rms = t->swiglu = t->rotary = t->no_bias = t->untied = 1;
}

/* Into both chains, from their beginning; without adapters all of it is one. */
static void add_parts(model *m) {
    transformer_chain *front = m->shape.adapter_rank ? &m->front : &m->chain, *chain = &m->chain;
    size_t i;

    m->front.shape = m->chain.shape = &m->shape;
    m->front.front = 1;
    m->front.elements = m->front.code_elements = m->front.count = 0;
    chain->elements = chain->adapter_elements = chain->code_elements = chain->tensor_count = chain->count = 0;
    transformer_add_embedding(front, &m->embedding);
    for (i = 0; i < BLOCKS; ++i) transformer_add_block(i < FIRST ? front : chain, &m->blocks[i]);
    transformer_add_head(chain, &m->head, &m->embedding);
}

static memopt_status step_tensor(void *user, size_t tensor, const void *gradients) { /* inside backward */
    return memopt_optim_apply_with((memopt_optim *)user, tensor, gradients);
}

/* ---- text to learn: sums or differences, one a line, wherever a sequence begins in them ---- */
static void sample(model *m, int subtracts) {
    char text[LENGTH + 32];
    size_t b, i;

    for (b = 0; b < BATCH; ++b) {
        for (i = 0; i <= LENGTH;) {
            unsigned x, y;

            m->random = m->random * 1664525u + 1013904223u;
            x = m->random >> 28;
            y = m->random >> 24 & 15;
            i += (size_t)snprintf(text + i, sizeof text - i, subtracts ? "%u - %u = %u\n" : "%u + %u = %u\n",
                                  subtracts ? x + y : x, y, subtracts ? x : x + y);
        }
        for (i = 0; i < LENGTH; ++i) {
            m->ids[b * LENGTH + i] = (unsigned char)text[i];
            m->targets[b * LENGTH + i] = (unsigned char)text[i + 1];
        }
    }
}

/* ---- weights ---- */
static memopt_status initialise(model *m) { /* matrices at random; all vectors of this shape are scales of norms */
    const int adapts = m->shape.adapter_rank > 0;
    memopt_status s = MEMOPT_OK;
    size_t i, k;

    for (i = 0; i < m->chain.tensor_count && !s; ++i) {
        float *w = (float *)m->tensors[i].weights;

        if (m->tensors[i].columns) s = memopt_random_normal(w, m->tensors[i].count, 1, i, 0, NULL);
        for (k = 0; k < m->tensors[i].count; ++k)
            w[k] = adapts && i % 2 ? 0 : m->tensors[i].columns ? 0.05f * w[k] : 1; /* B is 0: as if there were none */
    }
    return s;
}

/* From where a part's weights lay while they were trained to where they are frozen, matrices of blocks in 8 bits. */
static memopt_status freeze(transformer_part *part, transformer_tensors_fn *tensors_fn, const float **from) {
    const transformer *t = part->shape;
    transformer_tensor was[TRANSFORMER_TENSORS_MAX];
    transformer_lists now;
    memopt_status s = MEMOPT_OK;
    size_t i, elements;

    memset(was, 0, sizeof was);
    elements = tensors_fn(t, was);
    transformer_list_part(part, tensors_fn, &now);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX && !s; ++i) {
        const float *w = *from + was[i].first;
        const size_t to = now.list[i].first;

        if (part->is_coded && was[i].columns)
            s = memopt_quantize_f32((uint8_t *)(uintptr_t)part->codes + to,
                                    (float *)(uintptr_t)part->absmax + to / CODES, w, was[i].count, t->quantized_map,
                                    CODES, NULL);
        else if (was[i].count) memcpy((float *)(uintptr_t)part->weights + to, w, was[i].count * sizeof *w);
    }
    *from += elements;
    return s;
}

static memopt_status freeze_all(model *m, const float *from) {
    memopt_status s = freeze(&m->embedding, transformer_embedding_tensors, &from);
    size_t i;

    for (i = 0; i < BLOCKS && !s; ++i) {
        s = freeze(&m->blocks[i].attention, transformer_attention_tensors, &from);
        if (!s) s = freeze(&m->blocks[i].mlp, transformer_mlp_tensors, &from);
    }
    return s ? s : freeze(&m->head.part, transformer_head_tensors, &from);
}

/* ---- memory: all of it from the arena ---- */
static void *push(model *m, size_t bytes) {
    return memopt_arena_push(m->arena, bytes ? bytes : 1, MEMOPT_TAG_PARAMETERS);
}

/* Places for the parts; 1: there is no room. */
static int place(model *m) {
    transformer_chain *front = &m->front, *chain = &m->chain;
    size_t codes, blocks;

    memset(front, 0, sizeof *front);
    memset(chain, 0, sizeof *chain);
    add_parts(m); /* counts */
    codes = front->code_elements + chain->code_elements;
    blocks = codes / CODES;
    front->weights = push(m, (front->elements + chain->elements) * sizeof(float));
    front->codes = (uint8_t *)push(m, codes);
    front->absmax = (float *)push(m, blocks * sizeof(float));
    chain->adapters = (float *)push(m, chain->adapter_elements * sizeof(float));
    m->hidden = (float *)push(m, m->shape.adapter_rank ? transformer_bytes(&m->shape, WIDTH) : 0);
    if (!front->weights || !front->codes || !front->absmax || !chain->adapters || !m->hidden) return 1;
    chain->weights = (float *)front->weights + front->elements;
    chain->codes = front->codes + front->code_elements;
    chain->absmax = front->absmax + front->code_elements / CODES;
    chain->tensors = m->tensors;
    chain->layers = m->layers;
    chain->segments = m->segments;
    front->layers = m->front_layers;
    front->segments = m->front_segments;
    add_parts(m); /* places */
    return 0;
}

static memopt_status open_tape(model *m, int front, memopt_tape **tape) {
    const transformer_chain *c = front ? &m->front : &m->chain;
    memopt_tape_desc d;
    memopt_status s = memopt_tape_describe(c->layers, c->segments, c->count, &m->why);

    memset(&d, 0, sizeof d);
    d.chain.segments = c->segments;
    d.chain.count = c->count;
    d.chain.input_bytes = !front && m->shape.adapter_rank ? transformer_bytes(&m->shape, WIDTH) : sizeof m->ids;
    d.layers = c->layers;
    d.arena = m->arena;
    d.budget = SIZE_MAX;
    d.error = &m->why;
    return s ? s : memopt_tape_create(&d, tape);
}

static memopt_status open_all(model *m) {
    memopt_optim_desc d;
    memopt_status s;

    memset(&d, 0, sizeof d);
    d.kind = MEMOPT_OPTIM_ADAMW;
    d.tensors = m->tensors;
    d.tensor_count = m->chain.tensor_count;
    d.error = &m->why;
    s = memopt_optim_open(&d, m->arena, &m->optim);
    m->shape.done_fn = step_tensor;
    m->shape.user = m->optim;
    if (!s) s = open_tape(m, 0, &m->tape);
    return s || !m->shape.adapter_rank ? s : open_tape(m, 1, &m->front_tape);
}

/* ---- steps ---- */
static memopt_status pass(model *m) {
    const void *input = m->ids;
    memopt_status s = MEMOPT_OK;

    if (m->front_tape) {
        s = memopt_tape_evaluate(m->front_tape, m->ids, m->hidden);
        input = m->hidden;
    }
    if (!s) s = memopt_tape_forward(m->tape, input);
    return s ? s : memopt_tape_backward(m->tape, NULL, NULL);
}

/* Says the bytes, trains, says the losses. *ratio: of the last one to the first. 1: something is wrong. */
static int train(model *m, const char *what, int subtracts, double rate, double *ratio, size_t *peak) {
    const size_t held = memopt_arena_get_stats(m->arena).used_low;
    const size_t all = memopt_tape_get_stats(m->tape).peak, front = memopt_tape_get_stats(m->front_tape).evaluate_peak;
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run;
    double first = 0;
    memopt_status s = MEMOPT_OK;

    *peak = held + (all > front ? all : front);
    memset(&run, 0, sizeof run);
    group.rate = rate;
    run.groups = &group;
    run.group_count = 1;
    run.fused = 1;
    m->head.targets = m->targets;
    for (run.step = 1; run.step <= STEPS && !s; ++run.step) {
        sample(m, subtracts);
        s = memopt_optim_begin(m->optim, &run);
        if (!s) s = pass(m);
        if (!s) s = memopt_optim_end(m->optim);
        if (run.step == 1) first = m->head.loss;
    }
    *ratio = m->head.loss / first;
    printf("%-26s %9lu bytes held, %9lu at the peak; loss %.3f, then %.3f\n", what, (unsigned long)held,
           (unsigned long)*peak, first, m->head.loss);
    if (s) fprintf(stderr, "%s\n", memopt_status_text(s));
    return s || memopt_arena_get_stats(m->arena).peak != *peak;
}

static int open_arena(model *m) {
    memopt_arena_desc desc = { 0 };

    if (memopt_source_pages(NULL, &m->pages)) return 1;
    desc.source = &m->pages;
    desc.capacity = BUDGET;
    return memopt_arena_create(&desc, &m->arena) != MEMOPT_OK;
}

static void close_all(model *m) {
    memopt_tape_destroy(m->front_tape);
    memopt_tape_destroy(m->tape);
    m->front_tape = m->tape = NULL;
    memopt_arena_destroy(m->arena);
}

int main(void) {
    static model m;
    double learned, adapted;
    size_t full, less;
    float *trained;

    m.random = 1;
    describe(&m);
    if (open_arena(&m) || place(&m) || initialise(&m) || open_all(&m)) return 1;
    if (train(&m, "to add, all weights", 0, 3e-3, &learned, &full)) return 1;
    trained = (float *)malloc(m.chain.elements * sizeof *trained); /* as a file would hold them */
    if (!trained) return 1;
    memcpy(trained, m.chain.weights, m.chain.elements * sizeof *trained);
    close_all(&m);

    m.shape.adapter_rank = RANK;
    m.shape.adapter_scale = 2;
    m.shape.quantized_block = CODES;
    m.shape.quantized_map = MEMOPT_QUANT_SIGNED;
    if (open_arena(&m) || place(&m) || initialise(&m) || freeze_all(&m, trained) || open_all(&m)) return 1;
    if (train(&m, "to subtract, by adapters", 1, 1e-2, &adapted, &less)) return 1;
    printf("%lu numbers beside %lu were trained\n", (unsigned long)m.chain.adapter_elements,
           (unsigned long)(m.front.elements + m.chain.elements + m.front.code_elements + m.chain.code_elements));
    close_all(&m);
    free(trained);
    return learned > 0.4 || adapted > 0.6 || 2 * less > full;
}
