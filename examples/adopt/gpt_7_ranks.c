/* gpt_7_ranks.c - gpt_0_plain.c on two ranks, threads of this process here: each computes a batch, and has half the states.

   Then one rank computes both batches of every step: the weights must be the same to the bit. With MPI a process is a
   rank, and does what rank_of() does: see examples/adapters.
   Build: cc -O2 -pthread gpt_7_ranks.c memopt.o -o gpt_7_ranks -lm, memopt.o with -DMEMOPT_PTHREADS -pthread */
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
    STEPS = 2,
    UNITS = 2, /* batches of a step, whoever computes them */
    TEXT = 1 << 16,
    SQUARES = BATCH * HEADS * LENGTH * LENGTH,
    BLOCK_WEIGHTS = 12 * WIDTH * WIDTH + 13 * WIDTH,
    BLOCK_ACTS = ROWS * (15 * WIDTH + 4) + SQUARES,
    HEAD_ACTS = ROWS * (WIDTH + 2 + VOCABULARY),
    WEIGHTS = (VOCABULARY + LENGTH + 2) * WIDTH + LAYERS * BLOCK_WEIGHTS,
    ACTS = (LAYERS + 1) * ROWS * WIDTH + LAYERS * BLOCK_ACTS + HEAD_ACTS
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
    float *weights, *memory;
    float *tokens, *positions;
    block blocks[LAYERS];
    float *scale, *shift;
    float *stream[LAYERS + 1]; /* what each block reads; the last one is what the head reads */
    acts acts[LAYERS];
    float *norm, *stats, *logits;
} network;

typedef struct model {
    network now, grad;
    memopt_shard *shard;
    int input[ROWS], target[ROWS];
    float losses[ROWS];
} model;

typedef struct outcome { /* of so many ranks */
    memopt_ranks *ranks;
    float loss;
    unsigned long long hash;
} outcome;

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

static void place_memory(network *n, float *next) {
    int l;

    n->memory = next;
    for (l = 0; l <= LAYERS; ++l) n->stream[l] = take(&next, ROWS * WIDTH);
    for (l = 0; l < LAYERS; ++l) place_acts(&n->acts[l], &next);
    place_head(n, &next);
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
    size_t row, o, i;

    for (row = 0; row < ROWS; ++row)
        for (o = 0; o < outputs; ++o) {
            float sum = bias ? bias[o] : 0;

            for (i = 0; i < inputs; ++i) sum += in[row * inputs + i] * weights[o * inputs + i];
            out[row * outputs + o] = sum;
        }
}

static void linear_backward(float *d_in, float *d_weights, float *d_bias, const float *d_out, const float *in,
                            const float *weights, size_t inputs, size_t outputs) {
    size_t row, o, i;

    for (row = 0; row < ROWS; ++row)
        for (o = 0; o < outputs; ++o) {
            const float d = d_out[row * outputs + o];

            if (d_bias) d_bias[o] += d;
            for (i = 0; i < inputs; ++i) {
                d_in[row * inputs + i] += d * weights[o * inputs + i];
                d_weights[o * inputs + i] += d * in[row * inputs + i];
            }
        }
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

static float forward(model *net) {
    const network *n = &net->now;
    float loss = 0;
    int l, row;

    embedding_forward(n->stream[0], net->input, n->tokens, n->positions);
    for (l = 0; l < LAYERS; ++l) block_forward(&n->blocks[l], &n->acts[l], n->stream[l], n->stream[l + 1]);
    head_forward(net, n, n->stream[LAYERS]);
    for (row = 0; row < ROWS; ++row) loss += net->losses[row] / ROWS;
    return loss;
}

static void backward(model *net) {
    const network *n = &net->now;
    const network *g = &net->grad;
    int l;

    memset(g->weights, 0, WEIGHTS * sizeof(float));
    memset(g->memory, 0, ACTS * sizeof(float));
    head_backward(net, n, g, n->stream[LAYERS], g->stream[LAYERS]);
    for (l = LAYERS - 1; l >= 0; --l)
        block_backward(&n->blocks[l], &g->blocks[l], &n->acts[l], &g->acts[l], n->stream[l], g->stream[l + 1],
                       g->stream[l]);
    embedding_backward(g->tokens, g->positions, g->stream[0], net->input);
}

static void update(model *net, int step) { /* AdamW */
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    const memopt_optim_run run = { .step = (uint64_t)step, .groups = &group, .group_count = 1,
                                   .gradient_factor = 1.0 / UNITS };

    if (memopt_shard_step(net->shard, &run)) fail(memopt_shard_error(net->shard));
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

static void open_model(model *net, memopt_comm *comm) {
    static const memopt_shard_tensor all = { .count = WEIGHTS };
    memopt_error why;
    const memopt_shard_desc desc = { .stage = 1, .tensors = &all, .tensor_count = 1, .units = UNITS, .comm = comm,
                                     .error = &why };
    uint32_t state = 2;
    size_t i;

    if (memopt_shard_open(&desc, NULL, &net->shard)) fail(why);
    place_weights(&net->now, (float *)memopt_shard_weights(net->shard, 0));
    place_weights(&net->grad, (float *)memopt_shard_gradients(net->shard, 0));
    place_memory(&net->now, allocate(ACTS));
    place_memory(&net->grad, allocate(ACTS));
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

static void rank_of(void *user, size_t rank, int worker) {
    outcome *r = (outcome *)user;
    model *net = (model *)allocate(sizeof *net / sizeof(float));
    char *text = (char *)allocate(TEXT / sizeof(float));
    memopt_error why;
    const memopt_comm_desc desc = { .transport = memopt_ranks_transport(r->ranks, rank), .error = &why };
    memopt_comm *comm;
    uint32_t state;
    float loss;
    size_t unit;
    int step;

    (void)worker;
    if (memopt_comm_create(&desc, &comm)) fail(why);
    make_text(text);
    open_model(net, comm);
    for (step = 1; step <= STEPS; ++step) {
        while (!memopt_shard_next_unit(net->shard, &unit) && unit != MEMOPT_SHARD_DONE) {
            state = (uint32_t)(1000 * step) + (uint32_t)unit;
            next_batch(net, text, &state);
            loss = forward(net);
            backward(net);
            if (unit == UNITS - 1) r->loss = loss;
            if (memopt_shard_reduce(net->shard, 0)) fail(memopt_shard_error(net->shard));
        }
        update(net, step);
    }
    if (!rank) r->hash = hash(net->now.weights, WEIGHTS * sizeof(float));
    memopt_shard_close(net->shard);
    memopt_comm_destroy(comm);
    free(net->now.memory);
    free(net->grad.memory);
    free(text);
    free(net);
}

static outcome run_on(size_t count) {
    memopt_error why;
    const memopt_ranks_desc desc = { .rank_count = count, .error = &why };
    memopt_thread_pool *pool;
    memopt_threads threads;
    memopt_status status;
    outcome r = { 0 };

    if (memopt_ranks_create(&desc, &r.ranks)) fail(why);
    status = memopt_thread_pool_create(NULL, (int)count, &pool);
    if (status) {
        fprintf(stderr, "%s\n", memopt_status_text(status));
        exit(1);
    }
    threads = memopt_thread_pool_threads(pool);
    threads.run_fn(threads.user, count, rank_of, &r);
    memopt_thread_pool_destroy(pool);
    memopt_ranks_destroy(r.ranks);
    return r;
}

int main(void) {
    const outcome two = run_on(2);
    const outcome one = run_on(1);

    printf("loss %.6f peak %lu weights %016llx\n", (double)one.loss, peak_bytes(), one.hash);
    return one.hash != two.hash;
}
