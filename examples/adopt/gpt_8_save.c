/* gpt_8_save.c - gpt_4_tape.c that survives a kill at any moment: started again, it goes on from its last save.

   Weights, states of the optimizer and the place in the text are saved. The end has the bits of a run without a kill.
   Build: cc -O2 gpt_8_save.c memopt.o -o gpt_8_save -lm; run: gpt_8_save DIRECTORY */
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
    SQUARES = BATCH * HEADS * LENGTH * LENGTH,
    BLOCK_WEIGHTS = 12 * WIDTH * WIDTH + 13 * WIDTH,
    BLOCK_ACTS = ROWS * (15 * WIDTH + 4) + SQUARES,
    HEAD_ACTS = ROWS * (WIDTH + 2 + VOCABULARY),
    WEIGHTS = (VOCABULARY + LENGTH + 2) * WIDTH + LAYERS * BLOCK_WEIGHTS,
    EMBEDDING_WEIGHTS = (VOCABULARY + LENGTH) * WIDTH,
    STREAM = ROWS * WIDTH * sizeof(float)
};

typedef struct block { /* weights of a block, or their gradients */
    float *scale1, *shift1;
    float *qkv, *qkv_bias;
    float *proj, *proj_bias;
    float *scale2, *shift2;
    float *up, *up_bias;
    float *down, *down_bias;
} block;

typedef struct acts { /* what a block computes on its way, or its gradients */
    float *norm1, *stats1;
    float *qkv, *att, *mix, *middle;
    float *norm2, *stats2;
    float *up, *gelu;
} acts;

typedef struct network { /* weights and activations, or the gradients of both */
    float *weights;
    float *tokens, *positions;
    block blocks[LAYERS];
    float *scale, *shift;
    float *embedded;
    float *norm, *stats, *logits;
} network;

typedef struct model {
    network now, grad;
    memopt_optim *optim;
    memopt_optim_tensor tensors[LAYERS + 2]; /* the embedding, the blocks, the last norm */
    memopt_tape *tape;
    int input[ROWS], target[ROWS];
    float losses[ROWS];
} model;

static memopt_error why;
static memopt_ops ops = { .error = &why };
static unsigned char scratch[MEMOPT_GEMM_SCRATCH + 64];

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

static void place_acts(acts *a, float **next) {
    a->norm1 = take(next, ROWS * WIDTH);
    a->stats1 = take(next, ROWS * 2);
    a->qkv = take(next, ROWS * 3 * WIDTH);
    a->att = take(next, SQUARES);
    a->mix = take(next, ROWS * WIDTH);
    a->middle = take(next, ROWS * WIDTH);
    a->norm2 = take(next, ROWS * WIDTH);
    a->stats2 = take(next, ROWS * 2);
    a->up = take(next, ROWS * 4 * WIDTH);
    a->gelu = take(next, ROWS * 4 * WIDTH);
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

static void place_head(network *n, float **next) {
    n->norm = take(next, ROWS * WIDTH);
    n->stats = take(next, ROWS * 2);
    n->logits = take(next, ROWS * VOCABULARY);
}

/* ---- operators: a backward adds to the gradients it is given ---- */
static void embedding_forward(float *out, const int *ids, const float *tokens, const float *positions) {
    size_t row, i;

    for (row = 0; row < ROWS; ++row)
        for (i = 0; i < WIDTH; ++i)
            out[row * WIDTH + i] = tokens[(size_t)ids[row] * WIDTH + i] + positions[row % LENGTH * WIDTH + i];
}

static void embedding_backward(float *d_tokens, float *d_positions, const float *d_out, const int *ids) {
    size_t row, i;

    for (row = 0; row < ROWS; ++row)
        for (i = 0; i < WIDTH; ++i) {
            d_tokens[(size_t)ids[row] * WIDTH + i] += d_out[row * WIDTH + i];
            d_positions[row % LENGTH * WIDTH + i] += d_out[row * WIDTH + i];
        }
}

static void norm_forward(float *out, float *stats, const float *in, const float *scale, const float *shift) {
    size_t row, i;

    for (row = 0; row < ROWS; ++row, in += WIDTH, out += WIDTH, stats += 2) {
        float mean = 0;
        float variance = 0;

        for (i = 0; i < WIDTH; ++i) mean += in[i];
        mean /= WIDTH;
        for (i = 0; i < WIDTH; ++i) variance += (in[i] - mean) * (in[i] - mean);
        stats[0] = mean;
        stats[1] = 1 / sqrtf(variance / WIDTH + 1e-5f);
        for (i = 0; i < WIDTH; ++i) out[i] = (in[i] - mean) * stats[1] * scale[i] + shift[i];
    }
}

static void norm_backward(float *d_in, float *d_scale, float *d_shift, const float *d_out, const float *in,
                          const float *stats, const float *scale) {
    size_t row, i;

    for (row = 0; row < ROWS; ++row, d_in += WIDTH, d_out += WIDTH, in += WIDTH, stats += 2) {
        float sum = 0;
        float dot = 0;

        for (i = 0; i < WIDTH; ++i) {
            const float unit = (in[i] - stats[0]) * stats[1];

            sum += d_out[i] * scale[i];
            dot += d_out[i] * scale[i] * unit;
            d_scale[i] += d_out[i] * unit;
            d_shift[i] += d_out[i];
        }
        for (i = 0; i < WIDTH; ++i) {
            const float unit = (in[i] - stats[0]) * stats[1];

            d_in[i] += stats[1] * (d_out[i] * scale[i] - (sum + unit * dot) / WIDTH);
        }
    }
}

/* weights: outputs x inputs */
static void linear_forward(float *out, const float *in, const float *weights, const float *bias, size_t inputs,
                           size_t outputs) {
    const memopt_linear x = { .rows = ROWS, .inputs = inputs, .outputs = outputs, .input = in, .weights = weights,
                              .bias = bias, .output = out };

    if (memopt_linear_forward(&ops, &x)) fail(why);
}

static void linear_backward(float *d_in, float *d_weights, float *d_bias, const float *d_out, const float *in,
                            const float *weights, size_t inputs, size_t outputs) {
    const memopt_linear x = { .rows = ROWS, .inputs = inputs, .outputs = outputs, .input = in, .weights = weights,
                              .grad_output = d_out, .grad_input = d_in, .accumulate_input = 1,
                              .grad_weights = d_weights, .grad_bias = d_bias, .accumulate = 1 };

    if (memopt_linear_backward(&ops, &x)) fail(why);
}

static float dot_product(const float *a, const float *b, size_t count) {
    float sum = 0;
    size_t i;

    for (i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *to, const float *from, float factor, size_t count) {
    size_t i;

    for (i = 0; i < count; ++i) to[i] += factor * from[i];
}

/* One head of one sequence: rows of qkv are queries, keys and values; att is LENGTH x LENGTH. */
static void head_of_attention(float *out, float *att, const float *q) {
    const float *k = q + WIDTH;
    const float *v = q + 2 * WIDTH;
    size_t i, j;

    for (i = 0; i < LENGTH; ++i) {
        float *row = att + i * LENGTH;
        float largest = -1e30f;
        float sum = 0;

        for (j = 0; j <= i; ++j) {
            row[j] = dot_product(q + i * 3 * WIDTH, k + j * 3 * WIDTH, HEAD) / sqrtf(HEAD);
            if (row[j] > largest) largest = row[j];
        }
        for (j = 0; j <= i; ++j) {
            row[j] = expf(row[j] - largest);
            sum += row[j];
        }
        memset(out + i * WIDTH, 0, HEAD * sizeof *out);
        for (j = 0; j <= i; ++j) {
            row[j] /= sum;
            add_scaled(out + i * WIDTH, v + j * 3 * WIDTH, row[j], HEAD);
        }
    }
}

static void head_of_attention_backward(float *d_q, float *d_att, const float *d_out, const float *q, const float *att) {
    const size_t k = WIDTH;
    const size_t v = 2 * WIDTH;
    size_t i, j;

    for (i = 0; i < LENGTH; ++i) {
        float dot = 0;

        for (j = 0; j <= i; ++j) {
            const float p = att[i * LENGTH + j];

            d_att[i * LENGTH + j] = dot_product(d_out + i * WIDTH, q + v + j * 3 * WIDTH, HEAD);
            add_scaled(d_q + v + j * 3 * WIDTH, d_out + i * WIDTH, p, HEAD);
            dot += p * d_att[i * LENGTH + j];
        }
        for (j = 0; j <= i; ++j) {
            const float d = att[i * LENGTH + j] * (d_att[i * LENGTH + j] - dot) / sqrtf(HEAD);

            add_scaled(d_q + i * 3 * WIDTH, q + k + j * 3 * WIDTH, d, HEAD);
            add_scaled(d_q + k + j * 3 * WIDTH, q + i * 3 * WIDTH, d, HEAD);
        }
    }
}

static void attention_forward(float *out, float *att, const float *qkv) {
    size_t b, h;

    for (b = 0; b < BATCH; ++b)
        for (h = 0; h < HEADS; ++h) {
            const size_t at = b * LENGTH * WIDTH + h * HEAD;
            const size_t from = b * LENGTH * 3 * WIDTH + h * HEAD;

            head_of_attention(out + at, att + (b * HEADS + h) * LENGTH * LENGTH, qkv + from);
        }
}

static void attention_backward(float *d_qkv, float *d_att, const float *d_out, const float *qkv, const float *att) {
    size_t b, h;

    for (b = 0; b < BATCH; ++b)
        for (h = 0; h < HEADS; ++h) {
            const size_t at = b * LENGTH * WIDTH + h * HEAD;
            const size_t from = b * LENGTH * 3 * WIDTH + h * HEAD;
            const size_t square = (b * HEADS + h) * LENGTH * LENGTH;

            head_of_attention_backward(d_qkv + from, d_att + square, d_out + at, qkv + from, att + square);
        }
}

static void gelu_forward(float *out, const float *in, size_t count) {
    size_t i;

    for (i = 0; i < count; ++i)
        out[i] = 0.5f * in[i] * (1 + tanhf(0.7978846f * (in[i] + 0.044715f * in[i] * in[i] * in[i])));
}

static void gelu_backward(float *d_in, const float *d_out, const float *in, size_t count) {
    size_t i;

    for (i = 0; i < count; ++i) {
        const float x = in[i];
        const float t = tanhf(0.7978846f * (x + 0.044715f * x * x * x));

        d_in[i] += d_out[i] * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978846f * (1 + 3 * 0.044715f * x * x));
    }
}

/* Logits become probabilities. */
static void loss_forward(float *losses, float *logits, const int *target) {
    size_t row, i;

    for (row = 0; row < ROWS; ++row, logits += VOCABULARY) {
        float largest = logits[0];
        float sum = 0;

        for (i = 1; i < VOCABULARY; ++i) largest = logits[i] > largest ? logits[i] : largest;
        for (i = 0; i < VOCABULARY; ++i) {
            logits[i] = expf(logits[i] - largest);
            sum += logits[i];
        }
        for (i = 0; i < VOCABULARY; ++i) logits[i] /= sum;
        losses[row] = -logf(logits[target[row]]);
    }
}

static void loss_backward(float *d_logits, const float *probabilities, const int *target) {
    size_t row, i;

    for (row = 0; row < ROWS; ++row)
        for (i = 0; i < VOCABULARY; ++i) {
            const float p = probabilities[row * VOCABULARY + i];

            d_logits[row * VOCABULARY + i] = (p - ((size_t)target[row] == i ? 1.0f : 0.0f)) / ROWS;
        }
}

/* ---- the network ---- */
static void block_forward(const block *w, const acts *a, const float *input, float *output) {
    norm_forward(a->norm1, a->stats1, input, w->scale1, w->shift1);
    linear_forward(a->qkv, a->norm1, w->qkv, w->qkv_bias, WIDTH, 3 * WIDTH);
    attention_forward(a->mix, a->att, a->qkv);
    linear_forward(a->middle, a->mix, w->proj, w->proj_bias, WIDTH, WIDTH);
    add_scaled(a->middle, input, 1, ROWS * WIDTH);
    norm_forward(a->norm2, a->stats2, a->middle, w->scale2, w->shift2);
    linear_forward(a->up, a->norm2, w->up, w->up_bias, WIDTH, 4 * WIDTH);
    gelu_forward(a->gelu, a->up, ROWS * 4 * WIDTH);
    linear_forward(output, a->gelu, w->down, w->down_bias, 4 * WIDTH, WIDTH);
    add_scaled(output, a->middle, 1, ROWS * WIDTH);
}

static void block_backward(const block *w, const block *g, const acts *a, const acts *d, const float *input,
                           const float *d_output, float *d_input) {
    linear_backward(d->gelu, g->down, g->down_bias, d_output, a->gelu, w->down, 4 * WIDTH, WIDTH);
    gelu_backward(d->up, d->gelu, a->up, ROWS * 4 * WIDTH);
    linear_backward(d->norm2, g->up, g->up_bias, d->up, a->norm2, w->up, WIDTH, 4 * WIDTH);
    add_scaled(d->middle, d_output, 1, ROWS * WIDTH);
    norm_backward(d->middle, g->scale2, g->shift2, d->norm2, a->middle, a->stats2, w->scale2);
    linear_backward(d->mix, g->proj, g->proj_bias, d->middle, a->mix, w->proj, WIDTH, WIDTH);
    attention_backward(d->qkv, d->att, d->mix, a->qkv, a->att);
    linear_backward(d->norm1, g->qkv, g->qkv_bias, d->qkv, a->norm1, w->qkv, WIDTH, 3 * WIDTH);
    add_scaled(d_input, d->middle, 1, ROWS * WIDTH);
    norm_backward(d_input, g->scale1, g->shift1, d->norm1, input, a->stats1, w->scale1);
}

static void head_forward(model *net, const network *n, const float *input) {
    norm_forward(n->norm, n->stats, input, n->scale, n->shift);
    linear_forward(n->logits, n->norm, n->tokens, NULL, WIDTH, VOCABULARY);
    loss_forward(net->losses, n->logits, net->target);
}

static void head_backward(const model *net, const network *n, const network *g, const float *input, float *d_input) {
    loss_backward(g->logits, n->logits, net->target);
    linear_backward(g->norm, g->tokens, NULL, g->logits, n->norm, n->tokens, WIDTH, VOCABULARY);
    norm_backward(d_input, g->scale, g->shift, g->norm, input, n->stats, n->scale);
}

/* ---- a tape of the blocks and the head ---- */
static memopt_status run_block(const memopt_tape_call *call) {
    const model *net = call->user;
    float *next = memopt_tape_take(call, MEMOPT_TAPE_SAVED, BLOCK_ACTS * sizeof(float));
    acts a;

    if (call->describing) return MEMOPT_OK;
    place_acts(&a, &next);
    block_forward(&net->now.blocks[call->segment], &a, call->input, call->output);
    return MEMOPT_OK;
}

static memopt_status run_block_backward(const memopt_tape_call *call) {
    const model *net = call->user;
    float *saved = memopt_tape_take(call, MEMOPT_TAPE_SAVED, BLOCK_ACTS * sizeof(float));
    float *next = memopt_tape_take(call, MEMOPT_TAPE_ZEROED, (BLOCK_WEIGHTS + BLOCK_ACTS) * sizeof(float));
    acts a, d;
    block g;

    if (call->describing) return MEMOPT_OK;
    memset(call->grad_input, 0, call->grad_input_bytes);
    place_acts(&a, &saved);
    place_block(&g, &next);
    place_acts(&d, &next);
    block_backward(&net->now.blocks[call->segment], &g, &a, &d, call->input, call->grad_output, call->grad_input);
    return memopt_tape_step(call, net->optim, 1 + call->segment, call->scratch);
}

/* The head has no forward: losses, logits and their gradients are made in its backward, and are gone then. */
static memopt_status run_head_backward(const memopt_tape_call *call) {
    model *net = call->user;
    float *next = memopt_tape_take(call, MEMOPT_TAPE_ZEROED, 2 * (WIDTH + HEAD_ACTS) * sizeof(float));

    if (call->describing) return MEMOPT_OK;
    memset(call->grad_input, 0, call->grad_input_bytes);
    net->grad.scale = take(&next, WIDTH);
    net->grad.shift = take(&next, WIDTH);
    place_head(&net->grad, &next);
    place_head(&net->now, &next);
    head_forward(net, &net->now, call->input);
    head_backward(net, &net->now, &net->grad, call->input, call->grad_input);
    return memopt_tape_step(call, net->optim, 1 + call->segment, call->scratch);
}

static void open_tape(model *net) {
    const memopt_arena_desc pages = { .capacity = (size_t)1 << 30, .error = &why };
    memopt_tape_desc desc = {
        .chain = { .count = LAYERS + 1, .input_bytes = STREAM, .input_grad_bytes = STREAM },
        .segment = { .output_bytes = STREAM, .grad_bytes = STREAM },
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
    float loss = 0;
    int row;

    embedding_forward(n->embedded, net->input, n->tokens, n->positions);
    if (memopt_tape_forward(net->tape, n->embedded)) fail(memopt_tape_error(net->tape));
    if (memopt_optim_begin(net->optim, &run)) fail(memopt_optim_error(net->optim));
    memset(g->tokens, 0, EMBEDDING_WEIGHTS * sizeof(float));
    if (memopt_tape_backward(net->tape, NULL, g->embedded)) fail(memopt_tape_error(net->tape));
    embedding_backward(g->tokens, g->tokens + VOCABULARY * WIDTH, g->embedded, net->input);
    if (memopt_optim_apply_with(net->optim, 0, g->tokens)) fail(memopt_optim_error(net->optim));
    if (memopt_optim_end(net->optim)) fail(memopt_optim_error(net->optim));
    for (row = 0; row < ROWS; ++row) loss += net->losses[row] / ROWS;
    return loss;
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
    const memopt_optim_desc desc = { .kind = MEMOPT_OPTIM_ADAMW, .state = MEMOPT_STATE_F32, .tensors = net->tensors,
                                     .tensor_count = LAYERS + 2, .error = &why };
    uint32_t state = 2;
    float *next = allocate(WEIGHTS);
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
    for (i = 0; i < WIDTH; ++i) net->now.scale[i] = 1;
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

int main(int argc, char **argv) {
    static model net;
    static char text[TEXT];
    uint32_t state = 3;
    const memopt_save_item place = { .name = "text", .type = MEMOPT_TENSOR_U8, .count = sizeof state,
                                     .held = sizeof state, .data = &state };
    memopt_save_desc save = { .path = argc > 1 ? argv[1] : "gpt.run", .items = &place, .item_count = 1, .error = &why };
    float loss = 0;

    ops.scratch = scratch + (64 - (uintptr_t)scratch % 64);
    ops.scratch_bytes = memopt_gemm_scratch(NULL);
    make_text(text);
    open_model(&net);
    save.optim = net.optim;
    if (memopt_save_lock_open(&save, &save.lock)) fail(why); /* another run saves there */
    if (memopt_save_resume(&save, &save.step, NULL)) fail(why); /* nothing saved yet: step 0 */
    while (save.step < STEPS) {
        next_batch(&net, text, &state);
        loss = train_step(&net, (int)++save.step);
        if (memopt_save_write(&save)) fail(why);
    }
    memopt_save_lock_close(save.lock);
    printf("overhead %.3f\n", memopt_tape_get_stats(net.tape).overhead);
    printf("loss %.6f peak %lu weights %016llx\n", (double)loss, peak_bytes(),
           hash(net.now.weights, WEIGHTS * sizeof(float)));
    return 0;
}
