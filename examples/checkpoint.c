/* checkpoint.c - a deep network with dropout and batch norm, trained in less and less memory.

   What to see: give the tape a budget in bytes. It keeps what fits, runs the rest of the forward again during backward,
   and says the peak before anything runs, to the byte. No bit of the training changes: dropout draws its masks again
   instead of storing them, and batch norm updates its running statistics once a batch, however often its forward runs.
   The exit status says whether all that came true.
   Build: cc -O2 checkpoint.c -o checkpoint -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 24, LAYERS = BLOCKS + 1 /* and the head */, BATCH = 32, WIDTH = 32, STEPS = 50, ROWS = 7 };

#define PLANE (BATCH * WIDTH * sizeof(float)) /* bytes of one activation */

/* ---- the engine ---- */
typedef struct block { /* output = input + dropout(relu(batch_norm(input * weights))) */
    float weights[WIDTH * WIDTH], scale[WIDTH], shift[WIDTH];
    float d_weights[WIDTH * WIDTH], d_scale[WIDTH], d_shift[WIDTH];
    float mean[WIDTH], variance[WIDTH]; /* running statistics, which evaluation uses in place of the batch's own */
} block;

typedef struct head {
    float weights[WIDTH], d_weights[WIDTH], target[BATCH];
} head; /* output: prediction - target */

typedef struct network {
    block blocks[BLOCKS];
    head top;
} network;

static double forward_work; /* multiplications in forwards, counted where they happen */

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static void multiply(float *out, const float *in, const float *w) {
    size_t row, i, o;

    for (row = 0; row < BATCH; ++row, in += WIDTH, out += WIDTH) {
        for (o = 0; o < WIDTH; ++o) out[o] = 0;
        for (i = 0; i < WIDTH; ++i)
            for (o = 0; o < WIDTH; ++o) out[o] += in[i] * w[i * WIDTH + o];
    }
    forward_work += (double)BATCH * WIDTH * WIDTH;
}

/* Which elements of a row dropout keeps: drawn by their place, so the same call gives the same mask, stored nowhere. */
static memopt_status draw(uint32_t *mask, const memopt_tape_call *call, size_t row) {
    size_t i;
    const memopt_status s = memopt_random_bits(mask, WIDTH, call->seed, call->stream, row * WIDTH, NULL);

    for (i = 0; i < WIDTH; ++i) mask[i] = call->evaluating || mask[i] % 10 != 0; /* one in ten is dropped */
    return s;
}

/* README: checkpoint forward */
static memopt_status block_forward(const memopt_tape_call *call) {
    block *b = (block *)call->user;
    const float *x = (const float *)call->input;
    float *y = (float *)call->output;
    float *unit = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, PLANE); /* what the backward will want again */
    float *inverse = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, WIDTH * sizeof(float));

    if (call->describing) return MEMOPT_OK; /* only the sizes are asked for */
    /* README: end */
    uint32_t mask[WIDTH];
    size_t row, i;
    memopt_status s;
    multiply(unit, x, b->weights);
    for (i = 0; i < WIDTH; ++i) { /* batch norm: mean 0, variance 1 */
        float mean = 0, variance = 0;
        for (row = 0; row < BATCH; ++row) mean += unit[row * WIDTH + i] / BATCH;
        for (row = 0; row < BATCH; ++row) {
            const float d = unit[row * WIDTH + i] - mean;

            variance += d * d / BATCH;
        }
        if (call->evaluating) {
            mean = b->mean[i];
            variance = b->variance[i];
        } else if (!call->is_recompute && !call->calibrating) { /* once a batch: not when run again, or measured */
            b->mean[i] += 0.1f * (mean - b->mean[i]);
            b->variance[i] += 0.1f * (variance - b->variance[i]);
        }
        inverse[i] = 1 / sqrtf(variance + 1e-5f);
        for (row = 0; row < BATCH; ++row) unit[row * WIDTH + i] = (unit[row * WIDTH + i] - mean) * inverse[i];
    }
    for (row = 0; row < BATCH; ++row) {
        if ((s = draw(mask, call, row)) != MEMOPT_OK) return s;
        for (i = 0; i < WIDTH; ++i) {
            const float h = b->scale[i] * unit[row * WIDTH + i] + b->shift[i];

            y[row * WIDTH + i] = x[row * WIDTH + i] + (mask[i] && h > 0 ? h : 0);
        }
    }
    return MEMOPT_OK;
}

static memopt_status block_backward(const memopt_tape_call *call) {
    block *b = (block *)call->user;
    const float *x = (const float *)call->input, *d_y = (const float *)call->grad_output;
    const float *unit = (const float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, PLANE);
    const float *inverse = (const float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, WIDTH * sizeof(float));
    float *d_x = (float *)call->grad_input, *d = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, PLANE);
    uint32_t mask[WIDTH];
    size_t row, i, o;
    memopt_status s;
    if (call->describing) return MEMOPT_OK;
    for (row = 0; row < BATCH; ++row) {
        if ((s = draw(mask, call, row)) != MEMOPT_OK) return s;
        for (i = 0; i < WIDTH; ++i) {
            const float h = b->scale[i] * unit[row * WIDTH + i] + b->shift[i];

            d[row * WIDTH + i] = mask[i] && h > 0 ? d_y[row * WIDTH + i] : 0;
        }
    }
    for (i = 0; i < WIDTH; ++i) {
        float sum = 0, dot = 0;

        for (row = 0; row < BATCH; ++row) {
            sum += d[row * WIDTH + i];
            dot += d[row * WIDTH + i] * unit[row * WIDTH + i];
        }
        b->d_shift[i] = sum;
        b->d_scale[i] = dot;
        for (row = 0; row < BATCH; ++row)
            d[row * WIDTH + i] =
                b->scale[i] * inverse[i] * (d[row * WIDTH + i] - (sum + unit[row * WIDTH + i] * dot) / BATCH);
    }
    memset(b->d_weights, 0, sizeof b->d_weights);
    for (row = 0; row < BATCH; ++row)
        for (i = 0; i < WIDTH; ++i) {
            float sum = d_y[row * WIDTH + i];

            for (o = 0; o < WIDTH; ++o) {
                sum += d[row * WIDTH + o] * b->weights[i * WIDTH + o];
                b->d_weights[i * WIDTH + o] += x[row * WIDTH + i] * d[row * WIDTH + o];
            }
            /* It may be d_y itself, which is read no more. NULL for the first block: nobody wants that of the data. */
            if (d_x) d_x[row * WIDTH + i] = sum;
        }
    return MEMOPT_OK;
}

static memopt_status head_forward(const memopt_tape_call *call) {
    const head *h = (const head *)call->user;
    const float *x = (const float *)call->input;
    float *error = (float *)call->output;
    size_t row, i;
    if (call->describing) return MEMOPT_OK; /* it takes nothing */
    for (row = 0; row < BATCH; ++row)
        for (error[row] = -h->target[row], i = 0; i < WIDTH; ++i) error[row] += x[row * WIDTH + i] * h->weights[i];
    forward_work += (double)BATCH * WIDTH;
    return MEMOPT_OK;
}

static memopt_status head_backward(const memopt_tape_call *call) { /* the backward begins here: there is no
                                                                      grad_output */
    head *h = (head *)call->user;
    const float *x = (const float *)call->input, *error = (const float *)call->output;
    float *d_x = (float *)call->grad_input;
    size_t row, i;
    if (call->describing) return MEMOPT_OK;
    memset(h->d_weights, 0, sizeof h->d_weights);
    for (row = 0; row < BATCH; ++row)
        for (i = 0; i < WIDTH; ++i) {
            h->d_weights[i] += 2 * error[row] / BATCH * x[row * WIDTH + i];
            d_x[row * WIDTH + i] = 2 * error[row] / BATCH * h->weights[i];
        }
    return MEMOPT_OK;
}

static void update(float *weights, const float *gradients, size_t count) {
    size_t i;

    for (i = 0; i < count; ++i) weights[i] -= 0.02f * gradients[i];
}

static void network_update(network *net) {
    size_t l;

    for (l = 0; l < BLOCKS; ++l) {
        update(net->blocks[l].weights, net->blocks[l].d_weights, WIDTH * WIDTH);
        update(net->blocks[l].scale, net->blocks[l].d_scale, WIDTH);
        update(net->blocks[l].shift, net->blocks[l].d_shift, WIDTH);
    }
    update(net->top.weights, net->top.d_weights, WIDTH);
}

static void network_open(network *net) {
    uint32_t state = 1;
    size_t l, i;

    memset(net, 0, sizeof *net);
    for (l = 0; l < BLOCKS; ++l) {
        for (i = 0; i < WIDTH * WIDTH; ++i) net->blocks[l].weights[i] = 0.3f * noise(&state);
        for (i = 0; i < WIDTH; ++i) {
            net->blocks[l].scale[i] = 0.1f;
            net->blocks[l].variance[i] = 1;
        }
    }
    for (i = 0; i < WIDTH; ++i) net->top.weights[i] = 0.1f * noise(&state);
}

static void sample(float *x, float *target, uint32_t *state) { /* to learn: a product and a maximum of the inputs */
    size_t row, i;
    for (row = 0; row < BATCH; ++row, x += WIDTH) {
        for (i = 0; i < WIDTH; ++i) x[i] = noise(state);
        target[row] = x[0] * x[1] + (x[2] > x[3] ? x[2] : x[3]);
    }
}

static double mean_square(const float *error) {
    double sum = 0;
    size_t row;

    for (row = 0; row < BATCH; ++row) sum += (double)error[row] * (double)error[row] / BATCH;
    return sum;
}

/* ---- the tape: what each layer needs, once; then forward and backward are a call each ---- */
/* README: checkpoint describe */
static memopt_status describe(network *net, memopt_tape_desc *desc) { /* a tape copies what its desc points to */
    static memopt_segment segments[LAYERS];
    static memopt_tape_layer layers[LAYERS];
    size_t l;

    for (l = 0; l < BLOCKS; ++l) {
        segments[l].output_bytes = segments[l].grad_bytes = PLANE;
        segments[l].grad_in_place = 1;                            /* its grad_input may be its grad_output */
        segments[l].forward_cost = (double)BATCH * WIDTH * WIDTH; /* any unit: multiplications will do */
        segments[l].backward_cost = 2 * segments[l].forward_cost;
        layers[l].forward_fn = block_forward;
        layers[l].backward_fn = block_backward;
        layers[l].user = &net->blocks[l];
    }
    segments[l].output_bytes = BATCH * sizeof(float); /* grad_bytes 0: the backward begins here, with the loss */
    segments[l].forward_cost = (double)BATCH * WIDTH;
    segments[l].backward_cost = 2 * segments[l].forward_cost;
    layers[l].forward_fn = head_forward;
    layers[l].backward_fn = head_backward;
    layers[l].user = &net->top;
    memset(desc, 0, sizeof *desc);
    desc->chain.segments = segments;
    desc->chain.count = LAYERS;
    desc->chain.input_bytes = PLANE;
    desc->layers = layers;
    desc->seed = 7;
    return memopt_tape_describe(layers, segments, LAYERS, NULL); /* fills in what is saved, and scratch */
}

/* README: end */

typedef struct outcome {
    double loss[STEPS], validation, work;
    size_t predicted, measured;
} outcome;

static int fail(const memopt_error *error) {
    char line[160];

    memopt_error_text(error, line, sizeof line, NULL);
    fprintf(stderr, "%s\n", line);
    return 0;
}

static int failed(const memopt_tape *tape) {
    const memopt_error why = memopt_tape_error(tape);

    return fail(&why);
}

/* One training from the start, in an arena that holds nothing but the tape's memory. */
static int train(network *net, memopt_schedule_rule rule, size_t budget, outcome *out) {
    static float x[BATCH * WIDTH], error[BATCH];
    memopt_tape_desc desc;
    memopt_tape *tape = NULL;
    memopt_source pages;
    memopt_arena_desc arena_desc = { 0 };
    memopt_arena *arena = NULL;
    uint32_t state = 2;
    int t;
    memopt_error why;

    if (describe(net, &desc) || memopt_source_pages(NULL, &pages)) return 0;
    arena_desc.source = &pages;
    arena_desc.capacity = (size_t)64 << 20;
    if (memopt_arena_create(&arena_desc, &arena)) return 0;
    network_open(net);
    forward_work = 0;
    /* README: checkpoint train */
    desc.arena = arena;
    desc.rule = rule;
    desc.budget = budget;
    desc.error = &why;
    if (memopt_tape_create(&desc, &tape)) return fail(&why); /* "budget 20000, least 20608" */
    out->predicted = memopt_tape_get_stats(tape).peak;       /* known now, before anything has run */
    for (t = 0; t < STEPS; ++t) {
        sample(x, net->top.target, &state);
        if (memopt_tape_forward(tape, x)) return failed(tape);
        out->loss[t] = mean_square((const float *)memopt_tape_output(tape));
        if (memopt_tape_backward(tape, NULL, NULL)) return failed(tape);
        network_update(net);
    }
    /* README: end */
    out->work = forward_work;
    out->measured = memopt_arena_get_stats(arena).peak;
    sample(x, net->top.target, &state);
    if (memopt_tape_evaluate(tape, x, error)) return failed(tape); /* by the running statistics, without dropout */
    out->validation = mean_square(error);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
    return 1;
}

int main(void) {
    static const double part[ROWS] = { 1, 0.75, 0.5, 0.25, 0.1, 0.05, 0 }; /* of the way from the least to all */

    static network net, kept;
    static outcome first, out;
    memopt_tape_desc desc;
    size_t least, i;
    int same = 1;
    if (describe(&net, &desc) || memopt_tape_min_budget(&desc, &least)) return 1;
    printf("budget bytes   predicted    measured   forward work       loss   validation\n");
    for (i = 0; i < ROWS; ++i) { /* the first one is what engines do without a tape */
        const memopt_schedule_rule rule = i ? MEMOPT_SCHEDULE_EXTENDED : MEMOPT_SCHEDULE_ALL;
        const size_t budget = i ? least + (size_t)(part[i] * (double)(first.predicted - least)) : SIZE_MAX;
        if (!train(&net, rule, budget, &out)) return 1;
        if (!i) {
            first = out;
            kept = net;
            printf("  everything");
        } else printf("%12lu", (unsigned long)budget);
        printf("%12lu%12lu%+13.1f %%%11.6f%13.6f\n", (unsigned long)out.predicted, (unsigned long)out.measured,
               100 * (out.work / first.work - 1), out.loss[STEPS - 1], out.validation);
        same = same && out.predicted == out.measured && out.predicted <= budget
            && !memcmp(out.loss, first.loss, sizeof out.loss) && !memcmp(&net, &kept, sizeof net);
    }
    printf("loss of the first step: %.6f\n", first.loss[0]);
    puts(same ? "all losses, weights and running statistics equal" : "something differs");
    return same && first.loss[STEPS - 1] < first.loss[0] ? 0 : 1;
}
