/* inplace.c - an engine whose blocks update one buffer in place: x += f(x). A stack of copies is all it needs.

   What to see: forward pushes x before each block; backward pops it and makes again what the block's backward needs.
   Exact copies change no bit of the training. Copies in bf16 take half the bytes; the training then runs on rounded
   values, forward and backward the same ones. The exit status says whether that came true.
   Build: cc -O2 inplace.c -o inplace -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 16, ROWS = 32, WIDTH = 32, COUNT = ROWS * WIDTH, STEPS = 100 };

typedef struct network {
    float weights[BLOCKS][WIDTH * WIDTH], gradients[BLOCKS][WIDTH * WIDTH];
} network;

typedef struct outcome {
    double loss[STEPS];
    size_t peak;
} outcome; /* peak: bytes of activations */

/* ---- the engine ---- */
static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* A block is x += hidden, where hidden = tanh(x * w). Its backward needs hidden and x as it was before. */
static void block_hidden(float *hidden, const float *x, const float *w) {
    size_t row, i, o;

    for (row = 0; row < ROWS; ++row, x += WIDTH, hidden += WIDTH) {
        for (o = 0; o < WIDTH; ++o) hidden[o] = 0;
        for (i = 0; i < WIDTH; ++i)
            for (o = 0; o < WIDTH; ++o) hidden[o] += x[i] * w[i * WIDTH + o];
        for (o = 0; o < WIDTH; ++o) hidden[o] = tanhf(hidden[o]);
    }
}

static void block_add(float *x, const float *hidden) {
    size_t i;

    for (i = 0; i < COUNT; ++i) x[i] += hidden[i];
}

/* d becomes the gradient of the input, in place as well */
static void block_backward(float *d, const float *x, const float *hidden, const float *w, float *d_w) {
    float d_hidden[WIDTH];
    size_t row, i, o;

    memset(d_w, 0, WIDTH * WIDTH * sizeof *d_w);
    for (row = 0; row < ROWS; ++row, d += WIDTH, x += WIDTH, hidden += WIDTH) {
        for (o = 0; o < WIDTH; ++o) d_hidden[o] = d[o] * (1 - hidden[o] * hidden[o]);
        for (i = 0; i < WIDTH; ++i)
            for (o = 0; o < WIDTH; ++o) {
                d[i] += d_hidden[o] * w[i * WIDTH + o];
                d_w[i * WIDTH + o] += x[i] * d_hidden[o];
            }
    }
}

static double loss_and_gradient(float *d, const float *x, const float *input) { /* to learn: each row in reverse */
    double sum = 0;
    size_t i;
    for (i = 0; i < COUNT; ++i) {
        const float error = x[i] - input[i / WIDTH * WIDTH + (WIDTH - 1 - i % WIDTH)];

        sum += (double)error * (double)error / COUNT;
        d[i] = 2 * error / ROWS;
    }
    return sum;
}

static void network_open(network *net) {
    uint32_t state = 1;
    size_t l, i;

    for (l = 0; l < BLOCKS; ++l)
        for (i = 0; i < WIDTH * WIDTH; ++i) net->weights[l][i] = 0.05f * noise(&state);
}

static void network_update(network *net) {
    size_t l, i;

    for (l = 0; l < BLOCKS; ++l)
        for (i = 0; i < WIDTH * WIDTH; ++i) net->weights[l][i] -= 0.05f * net->gradients[l][i];
}

static void sample(float *input, uint32_t *state) {
    size_t i;

    for (i = 0; i < COUNT; ++i) input[i] = noise(state);
}

/* As it was: each block's x and hidden are kept. */
static void train_before(network *net, outcome *out) {
    static float x[BLOCKS + 1][COUNT], hidden[BLOCKS][COUNT], d[COUNT];
    uint32_t state = 2;
    size_t l;
    int t;

    network_open(net);
    for (t = 0; t < STEPS; ++t) {
        sample(x[0], &state);
        for (l = 0; l < BLOCKS; ++l) {
            block_hidden(hidden[l], x[l], net->weights[l]);
            memcpy(x[l + 1], x[l], sizeof x[l]);
            block_add(x[l + 1], hidden[l]);
        }
        out->loss[t] = loss_and_gradient(d, x[BLOCKS], x[0]);
        for (l = BLOCKS; l-- > 0;) block_backward(d, x[l], hidden[l], net->weights[l], net->gradients[l]);
        network_update(net);
    }
    out->peak = sizeof x + sizeof hidden;
}

/* In place: one x, one hidden, and the stash. */
static memopt_status train_after(network *net, outcome *out, memopt_codec codec) {
    static unsigned char memory[BLOCKS * COUNT * sizeof(float) + 64];
    static float x[COUNT], hidden[COUNT], d[COUNT], input[COUNT];
    uint32_t state = 2;
    size_t l;
    int t;
    memopt_source block;
    memopt_arena_desc desc = { 0 };
    memopt_arena *arena = NULL;
    memopt_stash *stash = NULL;
    memopt_status s = memopt_source_block(memory, sizeof memory, &block);

    desc.source = &block;
    desc.capacity = BLOCKS * memopt_stash_bytes(COUNT, codec); /* to the byte */
    if (!s) s = memopt_arena_create(&desc, &arena);
    if (!s) s = memopt_stash_create(arena, BLOCKS, NULL, &stash);
    network_open(net);
    for (t = 0; !s && t < STEPS; ++t) {
        sample(input, &state);
        memcpy(x, input, sizeof x);
        /* README: inplace */
        for (l = 0; !s && l < BLOCKS; ++l) {
            s = memopt_stash_push(stash, x, COUNT, codec); /* a lossy codec rounds x as well */
            block_hidden(hidden, x, net->weights[l]);
            block_add(x, hidden);
        }
        out->loss[t] = loss_and_gradient(d, x, input);
        for (l = BLOCKS; !s && l-- > 0;) {
            s = memopt_stash_pop(stash, x, COUNT);
            block_hidden(hidden, x, net->weights[l]);
            block_backward(d, x, hidden, net->weights[l], net->gradients[l]);
        }
        /* README: end */
        network_update(net);
    }
    out->peak = sizeof x + sizeof hidden + memopt_arena_get_stats(arena).peak;
    memopt_stash_destroy(stash);
    memopt_arena_destroy(arena);
    return s;
}

int main(void) {
    static network before, exact, rounded;
    static outcome out_before, out_exact, out_rounded;
    int t;
    train_before(&before, &out_before);
    if (train_after(&exact, &out_exact, MEMOPT_CODEC_EXACT) || train_after(&rounded, &out_rounded, MEMOPT_CODEC_BF16))
        return 1;
    printf("step    loss, all kept    in place, exact    in place, bf16\n");
    for (t = 0; t < STEPS; ++t)
        if (t % 20 == 0 || t == STEPS - 1)
            printf("%4d %17.6f %18.6f %17.6f\n", t + 1, out_before.loss[t], out_exact.loss[t], out_rounded.loss[t]);
    printf("\nbytes of activations: %lu, %lu, %lu\n", (unsigned long)out_before.peak, (unsigned long)out_exact.peak,
           (unsigned long)out_rounded.peak);
    return !memcmp(&before, &exact, sizeof before) && !memcmp(out_before.loss, out_exact.loss, sizeof out_exact.loss)
                && out_before.loss[STEPS - 1] < 0.5 * out_before.loss[0]
                && fabs(out_rounded.loss[STEPS - 1] / out_exact.loss[STEPS - 1] - 1) < 0.05
             ? 0
             : 1;
}
