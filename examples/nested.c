/* nested.c - a tape in a tape: the groups of a network are segments of one tape, the blocks of a group segments of
   another, and all of it runs in memory of the engine's own.

   What to see: the tape of the groups keeps or recomputes whole groups; while a group's backward runs, its own tape
   decides which of its blocks are kept. Losses and weights are the bits of one tape over all blocks. A tape that is
   given memory needs no arena. A forward whose loss is of no use is cancelled, and the report tells what each segment
   takes. The exit status says whether the bits came true.
   Build: cc -O2 nested.c -o nested -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 6, BLOCKS = 8, ALL = GROUPS * BLOCKS, COUNT = 2048, STEPS = 20 };

enum { BYTES = COUNT * sizeof(float) };

typedef struct block {
    float weights[COUNT], gradients[COUNT];
} block;

typedef struct network {
    block blocks[ALL];
    double loss[STEPS];
    size_t peak;
} network;

/* ---- the engine: a block is y = x + tanh(x * w), and its backward needs what tanh() was ---- */
static memopt_status block_run(const memopt_tape_call *call) {
    block *b = (block *)call->user;
    float *hidden = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, BYTES);
    const float *x = (const float *)call->input;
    size_t i;

    if (call->describing) return MEMOPT_OK;
    for (i = 0; i < COUNT; ++i) {
        if (call->is_backward) {
            const float d = ((const float *)call->grad_output)[i];
            const float inner = d * (1 - hidden[i] * hidden[i]);

            b->gradients[i] = inner * x[i];
            ((float *)call->grad_input)[i] = d + inner * b->weights[i];
        } else {
            hidden[i] = tanhf(x[i] * b->weights[i]);
            ((float *)call->output)[i] = x[i] + hidden[i];
        }
    }
    return MEMOPT_OK;
}

static double loss_and_gradient(float *d, const float *x) { /* to learn: 1, whatever comes in */
    double sum = 0;
    size_t i;

    for (i = 0; i < COUNT; ++i) {
        d[i] = (x[i] - 1) * 0.1f;
        sum += (double)d[i] * (double)d[i] / COUNT;
    }
    return sum;
}

/* A tape over `count` blocks: of a group, or of all. */
static memopt_status open_blocks(block *blocks, size_t count, memopt_tape **out, memopt_error *why) {
    memopt_segment segments[ALL] = { { 0 } };
    memopt_tape_layer layers[ALL];
    memopt_tape_desc desc = { 0 };
    memopt_status s;
    size_t i;

    for (i = 0; i < count; ++i) {
        segments[i].output_bytes = segments[i].grad_bytes = BYTES;
        layers[i].forward_fn = layers[i].backward_fn = block_run;
        layers[i].user = &blocks[i];
    }
    s = memopt_tape_describe(layers, segments, count, why);
    desc.chain.segments = segments;
    desc.chain.count = count;
    desc.chain.input_bytes = desc.chain.input_grad_bytes = BYTES;
    desc.layers = layers;
    desc.overhead = 0.3;
    desc.error = why;
    return s ? s : memopt_tape_create(&desc, out);
}

/* The groups' tapes as segments of one. */
static memopt_status open_groups(block *blocks, memopt_tape **inner, memopt_tape **out, memopt_error *why) {
    memopt_segment segments[GROUPS];
    memopt_tape_layer layers[GROUPS];
    memopt_tape_desc desc = { 0 };
    memopt_status s = MEMOPT_OK;
    size_t i;

    for (i = 0; i < GROUPS && !s; ++i) {
        s = open_blocks(blocks + i * BLOCKS, BLOCKS, &inner[i], why);
        if (!s) s = memopt_tape_nest(inner[i], &segments[i], &layers[i]);
    }
    desc.chain.segments = segments;
    desc.chain.count = GROUPS;
    desc.chain.input_bytes = desc.chain.input_grad_bytes = BYTES;
    desc.layers = layers;
    desc.overhead = 0.3;
    desc.error = why;
    return s ? s : memopt_tape_create(&desc, out);
}

static memopt_status train(network *n, memopt_tape *tape, void *memory) { /* of n->peak bytes */
    static float x[COUNT], d[COUNT], d_x[COUNT];
    size_t step, l, i;
    memopt_status s;

    s = memopt_tape_set_memory(tape, memory, n->peak);
    for (step = 0; step < STEPS && !s; ++step) {
        for (i = 0; i < COUNT; ++i) x[i] = (float)((i * 37 + step * 11) % 64) / 64;
        if ((s = memopt_tape_forward(tape, x)) != MEMOPT_OK) return s;
        n->loss[step] = loss_and_gradient(d, (const float *)memopt_tape_output(tape));
        if (!(n->loss[step] < 1e30)) { /* of no use: this batch gets no backward */
            s = memopt_tape_cancel(tape);
            continue;
        }
        if ((s = memopt_tape_backward(tape, d, d_x)) != MEMOPT_OK) return s;
        for (l = 0; l < ALL; ++l)
            for (i = 0; i < COUNT; ++i) n->blocks[l].weights[i] -= n->blocks[l].gradients[i];
    }
    return s;
}

static int failed(memopt_error why) {
    MEMOPT_ERROR_PRINT(stderr, why);
    return 1;
}

int main(void) {
    static network flat, nested;
    static char report[4096];
    memopt_tape *all = NULL, *groups = NULL, *inner[GROUPS] = { NULL };
    memopt_error why = { 0 };
    unsigned char *own, *memory;
    size_t i, l;
    int same;

    for (l = 0; l < ALL; ++l)
        for (i = 0; i < COUNT; ++i) flat.blocks[l].weights[i] = (float)((l + i) % 9) / 90;
    nested = flat;
    if (open_blocks(flat.blocks, ALL, &all, &why) || open_groups(nested.blocks, inner, &groups, &why))
        return failed(why);
    flat.peak = memopt_tape_get_stats(all).peak;
    nested.peak = memopt_tape_get_stats(groups).peak;
    own = (unsigned char *)malloc((flat.peak > nested.peak ? flat.peak : nested.peak) + 64);
    if (!own) {
        fprintf(stderr, "no memory for the passes\n");
        return 1;
    }
    memory = own + (64 - (uintptr_t)own % 64); /* a tape wants multiples of 64 */
    if (train(&flat, all, memory)) return failed(memopt_tape_error(all));
    if (train(&nested, groups, memory)) return failed(memopt_tape_error(groups));
    if (memopt_tape_report(groups, report, sizeof report, NULL)) {
        fprintf(stderr, "the report does not fit\n");
        return 1;
    }
    same = !memcmp(flat.blocks, nested.blocks, sizeof flat.blocks) && !memcmp(flat.loss, nested.loss, sizeof flat.loss);
    printf("loss %.6f to %.6f\n", flat.loss[0], flat.loss[STEPS - 1]);
    printf(
        "bytes of a pass: %lu with one tape over %d blocks, %lu with a tape of %d in a tape of %d; %lu to keep all\n",
        (unsigned long)flat.peak, ALL, (unsigned long)nested.peak, BLOCKS, GROUPS, (unsigned long)(2 * ALL * BYTES));
    printf("\n%s\n%s\n", report, same ? "all losses and weights equal" : "something differs");
    memopt_tape_destroy(groups);
    for (i = 0; i < GROUPS; ++i) memopt_tape_destroy(inner[i]);
    memopt_tape_destroy(all);
    free(own);
    return same && flat.loss[STEPS - 1] < flat.loss[0] ? 0 : 1;
}
