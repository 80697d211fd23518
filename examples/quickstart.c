/* quickstart.c - a small multi-layer perceptron, trained with all its buffers in one arena.

   What to see: training asks nobody for memory; a dry run of the same code tells the bytes beforehand, and they are the
   bytes; the ledger says who holds them. The exit status says whether that came true and the network learned.
   Build: cc -O2 quickstart.c -o quickstart -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <string.h>

/* A hidden layer with ReLU, and one output; a layer's biases are the last row of its weights. */
enum { INPUTS = 16, HIDDEN = 128, BATCH = 64, STEPS = 1000 };
enum { FIRST = (INPUTS + 1) * HIDDEN, WEIGHTS = FIRST + HIDDEN + 1 };
static float targets[BATCH], output[BATCH], loss[STEPS];

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static void initialise(float *weights) {
    uint32_t state = 1;
    size_t i;

    for (i = 0; i < WEIGHTS; ++i) weights[i] = noise(&state) * (i < FIRST ? 0.25f : 0.1f);
}

static void next_batch(float *input, size_t step) { /* to learn: a product and a maximum of the inputs */
    uint32_t state = (uint32_t)step + 2;
    size_t row, i;

    for (row = 0; row < BATCH; ++row) {
        float *x = input + row * INPUTS;

        for (i = 0; i < INPUTS; ++i) x[i] = noise(&state);
        targets[row] = x[0] * x[1] + (x[2] > x[3] ? x[2] : x[3]);
    }
}

/* hidden = relu(first layer of input); output, one number a row, the second layer of hidden */
static void forward(float *hidden, const float *input, const float *weights) {
    const float *second = weights + FIRST;
    size_t row, i, h;

    for (row = 0; row < BATCH; ++row, input += INPUTS, hidden += HIDDEN) {
        output[row] = second[HIDDEN];
        for (h = 0; h < HIDDEN; ++h) {
            float sum = weights[INPUTS * HIDDEN + h];

            for (i = 0; i < INPUTS; ++i) sum += input[i] * weights[i * HIDDEN + h];
            hidden[h] = sum > 0 ? sum : 0;
            output[row] += hidden[h] * second[h];
        }
    }
}

/* Gradients of all weights; d_hidden receives that of the hidden layer. Returns the loss, a mean square. */
static float backward(float *gradients, float *d_hidden, const float *hidden, const float *input, const float *weights) {
    const float *second = weights + FIRST;
    float sum = 0;
    size_t row, i, h;

    memset(gradients, 0, WEIGHTS * sizeof(float));
    for (row = 0; row < BATCH; ++row, input += INPUTS, hidden += HIDDEN, d_hidden += HIDDEN) {
        const float error = output[row] - targets[row];

        sum += error * error / BATCH;
        gradients[FIRST + HIDDEN] += 2 * error / BATCH;
        for (h = 0; h < HIDDEN; ++h) {
            gradients[FIRST + h] += 2 * error / BATCH * hidden[h];
            d_hidden[h] = hidden[h] > 0 ? 2 * error / BATCH * second[h] : 0;
            for (i = 0; i < INPUTS; ++i) gradients[i * HIDDEN + h] += d_hidden[h] * input[i];
            gradients[INPUTS * HIDDEN + h] += d_hidden[h];
        }
    }
    return sum;
}

static void update(float *weights, const float *gradients) {
    size_t i;

    for (i = 0; i < WEIGHTS; ++i) weights[i] -= 0.1f * gradients[i];
}

static int failed(memopt_error error) { /* "the arena is full: asked 1.0 MiB, free ..." */
    char text[256];

    memopt_error_text(&error, text, sizeof text, NULL);
    fprintf(stderr, "%s\n", text);
    return 1;
}

/* README: quick start */
static int train(memopt_arena *arena, size_t steps, int dry) { /* dry: only push; touch nothing */
    float *weights = MEMOPT_PUSH(arena, float, WEIGHTS, MEMOPT_TAG_PARAMETERS);
    float *gradients = MEMOPT_PUSH(arena, float, WEIGHTS, MEMOPT_TAG_GRADIENTS);
    size_t step;

    if (!weights || !gradients) return failed(memopt_arena_error(arena));
    if (!dry) initialise(weights);
    for (step = 0; step < steps; ++step) {
        const memopt_mark mark = memopt_arena_mark(arena);
        float *input = MEMOPT_PUSH(arena, float, BATCH * INPUTS, MEMOPT_TAG_ACTIVATIONS);
        float *hidden = MEMOPT_PUSH(arena, float, BATCH * HIDDEN, MEMOPT_TAG_ACTIVATIONS);
        float *d_hidden = MEMOPT_PUSH(arena, float, BATCH * HIDDEN, MEMOPT_TAG_SCRATCH);

        if (!input || !hidden || !d_hidden) return failed(memopt_arena_error(arena));
        if (!dry) {
            next_batch(input, step);
            forward(hidden, input, weights);
            loss[step] = backward(gradients, d_hidden, hidden, input, weights);
            update(weights, gradients);
        }
        memopt_arena_rewind(arena, mark); /* all three are free again: no list of pointers */
    }
    return 0;
}
/* README: end */

static size_t bytes_needed(void) {
    memopt_source counting;
    memopt_arena_desc desc = { 0 };
    memopt_arena *arena = NULL;
    size_t peak = 0;

    /* README: dry run */
    memopt_source_counting(&counting); /* addresses without memory: the same code runs, nobody touches them */
    desc.source = &counting;
    if (memopt_arena_create(&desc, &arena)) return 0;
    if (train(arena, 1, 1) == 0) peak = memopt_arena_get_stats(arena).peak;
    /* README: end */
    memopt_arena_destroy(arena);
    return peak;
}

int main(void) {
    memopt_source pages;
    memopt_arena_desc desc = { 0 };
    memopt_arena *arena = NULL;
    memopt_ledger *ledger = NULL;
    char text[4096];
    const size_t needed = bytes_needed();
    size_t used;

    /* README: open */
    if (memopt_ledger_create(NULL, &ledger)) return 1; /* who holds what */
    if (memopt_source_pages(NULL, &pages)) return 1;   /* where bytes come from: pages of the system */
    pages.ledger = ledger;                             /* is told of every reservation and commit */
    desc.source = &pages;
    desc.capacity = needed;                            /* or plenty: pages are committed as they are reached */
    desc.ledger = ledger;                              /* is told of every push and rewind */
    if (memopt_arena_create(&desc, &arena)) return 1;
    if (train(arena, STEPS, 0)) return 1;
    if (memopt_ledger_report(ledger, text, sizeof text, NULL) == MEMOPT_OK) fputs(text, stdout);
    /* README: end */

    used = memopt_arena_get_stats(arena).peak;
    printf("\na dry run said %lu bytes; training used %lu at its peak\n", (unsigned long)needed, (unsigned long)used);
    printf("loss of the first step %.4f, of the last %.4f\n", (double)loss[0], (double)loss[STEPS - 1]);
    memopt_arena_destroy(arena);
    memopt_ledger_destroy(ledger);
    return used == needed && loss[STEPS - 1] < 0.2f * loss[0] ? 0 : 1;
}
