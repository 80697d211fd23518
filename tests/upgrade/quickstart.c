/* quickstart.c - a small multi-layer perceptron, trained with all its buffers in one arena.

   What to see: memory is asked of nobody during training; a dry run tells the bytes beforehand, and they are the bytes;
   the ledger says who holds them.   Build: cc -O2 quickstart.c -o quickstart -lm   (memopt.h beside it or with -I) */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>

enum { LAYERS = 4, BATCH = 64, STEPS = 300 };
static const size_t width[LAYERS + 1] = { 16, 128, 128, 64, 1 };

typedef struct network { /* of each layer: weights and their gradients; biases are the last row of the weights */
    float *weights[LAYERS], *gradients[LAYERS], *momentum[LAYERS];
} network;
static size_t weight_count(size_t layer) { return (width[layer] + 1) * width[layer + 1]; }

/* Long-lived buffers go to the low end and stay. */
static int build(network *net, memopt_arena *arena) {
    size_t l;
    for (l = 0; l < LAYERS; ++l) {
        net->weights[l]   = MEMOPT_PUSH(arena, float, weight_count(l), MEMOPT_TAG_PARAMETERS);
        net->gradients[l] = MEMOPT_PUSH(arena, float, weight_count(l), MEMOPT_TAG_GRADIENTS);
        net->momentum[l]  = (float *)memopt_arena_push_zero(arena, weight_count(l) * sizeof(float), MEMOPT_TAG_OPTIMIZER);
        if (!net->weights[l] || !net->gradients[l] || !net->momentum[l]) return 0;
    }
    return 1;
}

/* Buffers of one step. They nest: outputs above the parameters, the two gradients of a layer at the other end. */
typedef struct step_buffers { float *output[LAYERS + 1], *d_output, *d_input; } step_buffers;
static int push_step(step_buffers *b, memopt_arena *arena) {
    size_t l, widest = 0;
    for (l = 0; l <= LAYERS; ++l) {
        b->output[l] = MEMOPT_PUSH(arena, float, BATCH * width[l], MEMOPT_TAG_ACTIVATIONS);
        if (!b->output[l]) return 0;
        if (width[l] > widest) widest = width[l];
    }
    b->d_output = (float *)memopt_arena_push_top(arena, BATCH * widest * sizeof(float), MEMOPT_TAG_SCRATCH);
    b->d_input  = (float *)memopt_arena_push_top(arena, BATCH * widest * sizeof(float), MEMOPT_TAG_SCRATCH);
    return b->d_output && b->d_input;
}

static void forward(float *out, const float *in, const float *w, size_t n_in, size_t n_out, int relu) {
    size_t row, i, o;
    for (row = 0; row < BATCH; ++row)
        for (o = 0; o < n_out; ++o) {
            float sum = w[n_in * n_out + o];
            for (i = 0; i < n_in; ++i) sum += in[row * n_in + i] * w[i * n_out + o];
            out[row * n_out + o] = relu && sum < 0 ? 0 : sum;
        }
}
static void backward(float *d_in, float *d_w, const float *d_out, const float *in, const float *w, size_t n_in, size_t n_out) {
    size_t row, i, o;
    for (i = 0; i < (n_in + 1) * n_out; ++i) d_w[i] = 0;
    for (row = 0; row < BATCH; ++row) {
        for (i = 0; i < n_in; ++i) {
            const float x = in[row * n_in + i];
            float sum = 0;
            for (o = 0; o < n_out; ++o) {
                sum += d_out[row * n_out + o] * w[i * n_out + o];
                d_w[i * n_out + o] += d_out[row * n_out + o] * x;
            }
            d_in[row * n_in + i] = x > 0 ? sum : 0; /* the input is the output of a ReLU, but for the first layer's */
        }
        for (o = 0; o < n_out; ++o) d_w[n_in * n_out + o] += d_out[row * n_out + o];
    }
}

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}
static void sample(float *x, float *y, uint32_t *state) { /* to learn: a product and a maximum of the inputs */
    size_t row, i;
    for (row = 0; row < BATCH; ++row) {
        float *r = x + row * width[0];
        for (i = 0; i < width[0]; ++i) r[i] = noise(state);
        y[row] = r[0] * r[1] + (r[2] > r[3] ? r[2] : r[3]);
    }
}

static float train_step(network *net, const step_buffers *b, uint32_t *state) {
    float target[BATCH], loss = 0;
    size_t l, i;
    step_buffers s = *b;
    sample(s.output[0], target, state);
    for (l = 0; l < LAYERS; ++l) forward(s.output[l + 1], s.output[l], net->weights[l], width[l], width[l + 1], l + 1 < LAYERS);
    for (i = 0; i < BATCH; ++i) {
        const float error = s.output[LAYERS][i] - target[i];
        loss += error * error / BATCH;
        s.d_output[i] = 2 * error / BATCH;
    }
    for (l = LAYERS; l-- > 0;) {
        float *swap;
        backward(s.d_input, net->gradients[l], s.d_output, s.output[l], net->weights[l], width[l], width[l + 1]);
        swap = s.d_input; s.d_input = s.d_output; s.d_output = swap;
        for (i = 0; i < weight_count(l); ++i) {
            net->momentum[l][i] = 0.9f * net->momentum[l][i] + net->gradients[l][i];
            net->weights[l][i] -= 0.02f * net->momentum[l][i];
        }
    }
    return loss;
}

/* README: dry run */
static size_t bytes_needed(void) {
    memopt_source counting; memopt_arena_desc desc = { 0 }; memopt_arena *arena; network net; step_buffers buffers;
    size_t peak = 0;
    memopt_source_counting(&counting); /* holds no memory: the same code runs, nobody touches the addresses */
    desc.source = &counting;
    if (memopt_arena_create(&desc, &arena)) return 0;
    if (build(&net, arena) && push_step(&buffers, arena)) peak = memopt_arena_get_stats(arena).peak;
    memopt_arena_destroy(arena);
    return peak;
}
/* README: end */

int main(void) {
    memopt_source pages; memopt_arena_desc desc = { 0 }; memopt_arena *arena; memopt_ledger *ledger;
    network net; step_buffers buffers; uint32_t state = 1; size_t l, i, step; char text[4096];
    const size_t needed = bytes_needed();

    if (memopt_ledger_create(NULL, &ledger) || memopt_source_pages(NULL, &pages)) return 1;
    pages.ledger = ledger;
    desc.source = &pages; desc.capacity = needed; desc.ledger = ledger;
    if (memopt_arena_create(&desc, &arena)) return 1;
    if (!build(&net, arena)) { fprintf(stderr, "%s\n", memopt_arena_error(arena).reason); return 1; }
    for (l = 0; l < LAYERS; ++l)
        for (i = 0; i < weight_count(l); ++i) net.weights[l][i] = noise(&state) * (l + 1 < LAYERS ? 0.15f : 0.1f);

    /* README: quick start */
    for (step = 0; step < STEPS; ++step) {
        const memopt_mark low = memopt_arena_mark(arena), top = memopt_arena_mark_top(arena);
        float loss;
        if (!push_step(&buffers, arena)) { fprintf(stderr, "%s\n", memopt_arena_error(arena).reason); return 1; }
        loss = train_step(&net, &buffers, &state);
        if (step % 50 == 0 || step == STEPS - 1) printf("step %3u  loss %.4f\n", (unsigned)step, (double)loss);
        memopt_arena_rewind(arena, low); /* the whole step is free again: no list of pointers */
        memopt_arena_rewind(arena, top);
    }
    /* README: end */

    printf("\na dry run said %lu bytes; training used %lu at its peak\n\n",
           (unsigned long)needed, (unsigned long)memopt_arena_get_stats(arena).peak);
    if (memopt_ledger_report(ledger, text, sizeof text, NULL) == MEMOPT_OK) fputs(text, stdout);
    memopt_arena_destroy(arena);
    memopt_ledger_destroy(ledger);
    return 0;
}
