/* offload.c - a network whose weights and optimizer states lie in a file: the lines between the marks "README".

   What to see: the same network trained twice, in memory and from the file: the same losses and weights. In memory there
   are two layers, their gradients and three buffers at a time, however many layers the file holds.
   Build: cc -O2 offload.c -o offload -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <string.h>

enum { LAYERS = 32, WIDTH = 128, WEIGHTS = WIDTH * WIDTH, ROWS = 4, STEPS = 8 };

typedef struct result {
    double loss[STEPS];
    uint32_t hash; /* of weights and states */
    memopt_shard_bytes bytes;
} result;

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static void layer(float *to, const float *from, const float *w) { /* a small step away from its input */
    for (size_t r = 0; r < ROWS; ++r)
        for (size_t o = 0; o < WIDTH; ++o) {
            float sum = from[r * WIDTH + o];

            for (size_t i = 0; i < WIDTH; ++i) sum += from[r * WIDTH + i] * w[i * WIDTH + o];
            to[r * WIDTH + o] = sum;
        }
}

static void layer_backward(float *d_from, float *d_w, const float *d_to, const float *from, const float *w) {
    memset(d_w, 0, WEIGHTS * sizeof *d_w);
    for (size_t r = 0; r < ROWS; ++r)
        for (size_t i = 0; i < WIDTH; ++i) {
            float sum = d_to[r * WIDTH + i];

            for (size_t o = 0; o < WIDTH; ++o) {
                sum += d_to[r * WIDTH + o] * w[i * WIDTH + o];
                d_w[i * WIDTH + o] += from[r * WIDTH + i] * d_to[r * WIDTH + o];
            }
            d_from[r * WIDTH + i] = sum;
        }
}

/* Forward and backward through all layers; their weights come from the file one layer ahead. */
static memopt_status pass(memopt_shard *shard, size_t step, double *loss) {
    static float x[LAYERS + 1][ROWS * WIDTH], d[2][ROWS * WIDTH];
    memopt_status s = MEMOPT_OK;
    uint32_t state = (uint32_t)step + 1;

    for (size_t i = 0; i < ROWS * WIDTH; ++i) x[0][i] = noise(&state);
    for (size_t g = 0; !s && g < LAYERS; ++g) {
        s = memopt_shard_forward(shard, g);
        if (!s) layer(x[g + 1], x[g], (const float *)memopt_shard_weights(shard, g));
    }
    *loss = 0;
    for (size_t i = 0; i < ROWS * WIDTH; ++i) {
        d[LAYERS % 2][i] = (x[LAYERS][i] - 0.5f * x[0][i]) / (ROWS * WIDTH);
        *loss += 0.5 * (double)d[LAYERS % 2][i] * (double)(x[LAYERS][i] - 0.5f * x[0][i]);
    }
    for (size_t g = LAYERS; !s && g-- > 0;) {
        s = memopt_shard_backward(shard, g);
        if (!s)
            layer_backward(d[g % 2], (float *)memopt_shard_gradients(shard, g), d[(g + 1) % 2], x[g],
                           (const float *)memopt_shard_weights(shard, g));
        if (!s) s = memopt_shard_reduce(shard, g);
    }
    return s;
}

/* README: offload */
static memopt_status open_tier(memopt_shard_desc *desc, memopt_shard_bytes *bytes, size_t *tiles, size_t most) {
    memopt_store_desc tier = { 0 };
    memopt_status s;

    desc->stage = 3; /* two layers are in memory at a time */
    desc->slow = MEMOPT_SHARD_SLOW_WEIGHTS | MEMOPT_SHARD_SLOW_STATES;
    desc->steps_inside = 1;             /* in backward: gradients of one layer at a time */
    s = memopt_shard_plan(desc, bytes); /* memory, file, bytes read and written a step */
    if (!s && bytes->slow_tiles > most) s = MEMOPT_ERR_BUFFER;
    if (!s) s = memopt_shard_tiles(desc, tiles);
    tier.tiles = bytes->slow_tiles;
    tier.each_bytes = tiles;
    tier.transfers = bytes->slow_transfers;
    tier.aligned = 1;            /* nothing is copied */
    tier.path = "offload.tiles"; /* NULL: other memory of the host */
    tier.error = desc->error;
    return s ? s : memopt_store_create(&tier, &desc->store); /* a full disk is known here */
}

/* README: end */

/* Weights are written at first; they and their states are read at the end. */
static memopt_status all_weights(memopt_shard *shard, int write, uint32_t *crc) {
    memopt_status s = MEMOPT_OK;

    for (size_t g = 0; !s && g < LAYERS; ++g) {
        memopt_optim_tensor slice = { 0 };
        memopt_optim_view view; /* of the state, while its slice is there */
        uint32_t state = (uint32_t)g + 99;

        for (size_t at = 0; !s && at < WEIGHTS; at = slice.first + slice.held) {
            s = memopt_shard_bring(shard, g, at, &slice);
            if (s) break;
            for (size_t i = 0; write && i < slice.held; ++i) ((float *)slice.weights)[i] = 0.02f * noise(&state);
            if (write) s = memopt_shard_put(shard);
            else {
                *crc = memopt_crc32c(*crc, slice.weights, slice.held * sizeof(float));
                s = memopt_optim_state_view(memopt_shard_optim(shard), g, &view);
                for (int m = 0; !s && m < view.moments; ++m) *crc = memopt_crc32c(*crc, view.moment[m], view.held);
            }
        }
    }
    return s || !write ? s : memopt_shard_share(shard); /* the file holds them now */
}

static memopt_status train(memopt_shard_desc *desc, result *out) {
    memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run = { 0 };
    memopt_shard *shard = NULL;
    memopt_status s = memopt_shard_open(desc, NULL, &shard);

    if (!s) s = all_weights(shard, 1, NULL);
    run.groups = &rates;
    run.group_count = 1;
    run.fused = 1;
    for (size_t step = 0; !s && step < STEPS; ++step) {
        size_t unit;

        run.step = step + 1;
        s = memopt_shard_step_inside(shard, &run);
        if (!s) s = memopt_shard_next_unit(shard, &unit);
        if (!s) s = pass(shard, step, &out->loss[step]);
        if (!s) s = memopt_shard_next_unit(shard, &unit);
        if (!s) s = memopt_shard_step(shard, &run); /* the file turns to the new step as a whole */
    }
    if (!s) s = all_weights(shard, 0, &out->hash);
    if (s && shard)
        fprintf(stderr, memopt_shard_is_intact(shard) ? "weights and states are those before this step\n"
                                                      : "the run goes on from a save\n");
    memopt_shard_close(shard);
    return s;
}

int main(void) {
    static memopt_shard_tensor tensors[LAYERS];

    static result memory, file;
    size_t tiles[4 * LAYERS];
    memopt_shard_desc desc = { 0 };
    memopt_error why = { 0 };
    char text[256];
    int same;

    for (size_t g = 0; g < LAYERS; ++g) {
        tensors[g].count = WEIGHTS;
        tensors[g].group = g;
    }
    desc.tensors = tensors;
    desc.tensor_count = LAYERS;
    desc.optim.state = MEMOPT_STATE_8BIT;
    desc.error = &why;
    if (memopt_shard_plan(&desc, &memory.bytes) || train(&desc, &memory)
        || open_tier(&desc, &file.bytes, tiles, 4 * LAYERS) || train(&desc, &file)) {
        fprintf(stderr, "%s\n", memopt_error_text(&why, text, sizeof text, NULL) ? "no reason" : text);
        return 1;
    }
    memopt_store_destroy(desc.store); /* with it goes the file */
    for (size_t step = 0; step < STEPS; ++step)
        printf("step %d: loss %.6f and %.6f\n", (int)step + 1, memory.loss[step], file.loss[step]);
    printf("%.2f MB in memory; %.2f MB with a file of %.2f MB, of which a step reads %.2f and writes %.2f\n",
           (double)memory.bytes.total / 1e6, (double)file.bytes.total / 1e6,
           (double)(file.bytes.slow_weights + file.bytes.slow_states) / 1e6, (double)file.bytes.slow_read / 1e6,
           (double)file.bytes.slow_written / 1e6);
    same = memory.hash == file.hash && !memcmp(memory.loss, file.loss, sizeof memory.loss);
    printf("weights, states and losses: %s\n", same ? "the same bits" : "OTHERS");
    return !same;
}
