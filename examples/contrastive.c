/* contrastive.c - images and texts that find each other in a batch that does not fit, with the bits of the whole batch.

   What to see: every row of a contrastive loss is compared with all the others, so gradients of micro-batches that are
   added up are those of another loss. Cached gradients: the embeddings of all micro-batches first, forward only; the
   loss of the global batch and its gradient with regard to every embedding; then each micro-batch again, forward and
   backward with its rows of that gradient. It costs a second forward and takes the activations of one micro-batch. The
   exit status says whether losses, gradients and weights are those of the whole batch at once, bit for bit.
   How: operators give a row the same bits in any batch, and add gradients of weights in the order of rows. Dropout
   draws by pass (memopt_tape_seek: the step) and place (memopt_dropout.first: the row): a mask is the same in all
   forwards. The loss is memopt_head_loss() twice, with texts as weights of the images, and the reverse: the matrix of
   all pairs is there some rows at a time only.
   Build: cc -O2 contrastive.c -o contrastive -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 1024, MICRO = 64, STEPS = 20, LAYERS = 4, LATENT = 16, INPUTS = 32, HIDDEN = 256, EMBED = 32 };
enum { FIRST = (INPUTS + 1) * HIDDEN, MIDDLE = (HIDDEN + 1) * HIDDEN, LAST = (HIDDEN + 1) * EMBED };
enum { WEIGHTS = FIRST + (LAYERS - 2) * MIDDLE + LAST /* of an encoder */ };
#define TEMPERATURE 0.07f
enum { IMAGE, TEXT, SIDES, ROWS = BATCH * EMBED /* elements of the embeddings of a batch */ };

/* ---- the engine: two encoders, each a tape of linear layers ---- */
typedef struct layer {
    const struct encoder *encoder;
    size_t inputs, outputs;
    float *weights, *gradients; /* outputs x inputs, then the bias */
    int    is_last;             /* normalizes its rows, where the others have GELU and dropout */
} layer;

typedef struct encoder {
    layer  layers[LAYERS];
    size_t rows, first;     /* rows of a micro-batch; the place of its first one in the batch */
    float  length[EMBED];   /* what normalized rows are multiplied by: products are cosines / TEMPERATURE then */
    memopt_tape *tape;
} encoder;

typedef struct engine {
    encoder encoders[SIDES];
    float   weights[SIDES][WEIGHTS], gradients[SIDES][WEIGHTS];
    float   data[SIDES][BATCH * INPUTS];                 /* the batch, as a loader brings it */
    float  *embeddings[SIDES], *grad_embeddings[SIDES];  /* of the batch: all that a loss needs */
    double  loss[STEPS];
    size_t  peak;
} engine;

static memopt_linear layer_linear(const layer *l, const void *input) {
    memopt_linear x = { 0 };

    x.rows = l->encoder->rows;
    x.inputs = l->inputs;
    x.outputs = l->outputs;
    x.input = input;
    x.weights = l->weights;
    x.bias = l->weights + l->outputs * l->inputs;
    x.grad_weights = l->gradients;
    x.grad_bias = l->gradients + l->outputs * l->inputs;
    x.accumulate = l->encoder->first > 0; /* the first micro-batch overwrites */
    return x;
}

static memopt_dropout layer_dropout(const layer *l, const memopt_tape_call *call) {
    memopt_dropout x = { 0 };

    x.n = l->encoder->rows * l->outputs;
    x.rate = 0.125f;
    x.noise = memopt_noise_make(call->seed, call->stream);
    x.first = (uint64_t)l->encoder->first * l->outputs;
    return x;
}

static memopt_norm layer_norm(const layer *l, const float *z, float *statistics) {
    memopt_norm x = { 0 };

    x.rows = l->encoder->rows;
    x.width = EMBED;
    x.rms = 1;
    x.input = z;
    x.scale = l->encoder->length;
    x.statistics = statistics;
    return x;
}

/* Nothing but operators: while sizes are asked for they count, and no line here is about that. */
static memopt_status layer_forward(const memopt_tape_call *call) {
    const layer *l = (const layer *)call->user;
    const size_t rows = l->encoder->rows;
    float *z = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, rows * l->outputs * sizeof *z);
    float *statistics = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->is_last ? 2 * rows * sizeof *z : 0);
    const memopt_ops ops = memopt_ops_in(call, NULL);
    memopt_linear linear = layer_linear(l, call->input);
    memopt_dropout dropout = layer_dropout(l, call);
    memopt_norm norm = layer_norm(l, z, statistics);
    memopt_status s;

    linear.output = l->is_last ? z : call->output;
    linear.pre_activation = l->is_last ? NULL : z;
    linear.activation = l->is_last ? MEMOPT_ACTIVATION_NONE : MEMOPT_ACTIVATION_GELU;
    if ((s = memopt_linear_forward(&ops, &linear)) != MEMOPT_OK) return s;
    norm.output = dropout.output = call->output;
    dropout.input = call->output;
    return l->is_last ? memopt_norm_forward(&ops, &norm) : memopt_dropout_forward(&ops, &dropout);
}

static memopt_status layer_backward(const memopt_tape_call *call) {
    const layer *l = (const layer *)call->user;
    const size_t rows = l->encoder->rows;
    float *z = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, rows * l->outputs * sizeof *z);
    float *statistics = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->is_last ? 2 * rows * sizeof *z : 0);
    float *grad_z = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, rows * l->outputs * sizeof *z);
    const memopt_ops ops = memopt_ops_in(call, NULL);
    memopt_linear linear = layer_linear(l, call->input);
    memopt_dropout dropout = layer_dropout(l, call);
    memopt_norm norm = layer_norm(l, z, statistics);
    memopt_activation_args gelu = { 0 };
    memopt_status s;

    norm.grad_output = dropout.grad_output = call->grad_output;
    norm.grad_input = dropout.grad_input = grad_z;
    s = l->is_last ? memopt_norm_backward(&ops, &norm) : memopt_dropout_backward(&ops, &dropout);
    gelu.n = dropout.n;
    gelu.activation = MEMOPT_ACTIVATION_GELU;
    gelu.input = z;
    gelu.grad_output = gelu.grad_input = grad_z;
    if (!s && !l->is_last) s = memopt_activation_backward(&ops, &gelu);
    linear.grad_output = grad_z;
    linear.grad_input = call->grad_input;
    return s ? s : memopt_linear_backward(&ops, &linear);
}

static memopt_status encoder_open(encoder *e, memopt_arena *arena, size_t rows, uint64_t seed, float *weights,
                                  float *gradients) {
    memopt_segment segments[LAYERS] = { { 0 } };
    memopt_tape_layer callbacks[LAYERS];
    memopt_tape_desc desc = { 0 };
    memopt_status s;
    size_t i, k;

    e->rows = rows;
    for (i = 0; i < EMBED; ++i) e->length[i] = sqrtf(1 / (TEMPERATURE * EMBED)); /* normed rows: sqrt(EMBED) long */
    for (i = 0; i < LAYERS; ++i) {
        layer *l = &e->layers[i];

        l->encoder = e;
        l->is_last = i == LAYERS - 1;
        l->inputs = i ? HIDDEN : INPUTS;
        l->outputs = l->is_last ? EMBED : HIDDEN;
        l->weights = weights;
        l->gradients = gradients;
        if ((s = memopt_random_normal(weights, l->inputs * l->outputs, 3 + seed, i, 0, NULL)) != MEMOPT_OK) return s;
        for (k = 0; k < l->inputs * l->outputs; ++k) weights[k] *= 1.4f / sqrtf((float)l->inputs);
        weights += (l->inputs + 1) * l->outputs; /* the bias is 0 */
        gradients += (l->inputs + 1) * l->outputs;
        segments[i].output_bytes = segments[i].grad_bytes = rows * l->outputs * sizeof(float);
        callbacks[i].forward_fn = layer_forward;
        callbacks[i].backward_fn = layer_backward;
        callbacks[i].user = l;
    }
    if ((s = memopt_tape_describe(callbacks, segments, LAYERS, NULL)) != MEMOPT_OK) return s;
    desc.chain.segments = segments;
    desc.chain.count = LAYERS;
    desc.chain.input_bytes = rows * INPUTS * sizeof(float);
    desc.layers = callbacks;
    desc.rule = MEMOPT_SCHEDULE_ALL; /* or a budget: that saves within a micro-batch as well */
    desc.arena = arena;
    desc.seed = seed;
    return memopt_tape_create(&desc, &e->tape);
}

/* ---- the loss of the batch ---- */
/* Of each image among all texts and of each text among all images, and the gradient of both embeddings. */
static memopt_status contrast(engine *e, memopt_arena *arena, double *loss) {
    const memopt_mark mark = memopt_arena_mark(arena);
    float *own = MEMOPT_PUSH(arena, float, ROWS, MEMOPT_TAG_SCRATCH);
    static int32_t targets[BATCH];
    memopt_ops ops = { 0 };
    memopt_head head = { 0 };
    memopt_loss part;
    memopt_status s;
    size_t side, i;

    for (i = 0; i < BATCH; ++i) targets[i] = (int32_t)i; /* its own */
    head.rows = head.vocabulary = BATCH;
    head.width = EMBED;
    head.chunk = 64;
    head.targets = targets;
    head.rule.scale = 0.5; /* the mean of both */
    if ((s = memopt_head_scratch(&ops, &head, &ops.scratch_bytes)) != MEMOPT_OK) return s;
    ops.scratch = memopt_arena_push(arena, ops.scratch_bytes, MEMOPT_TAG_SCRATCH);
    if (!own || !ops.scratch) return MEMOPT_ERR_MEMORY;
    for (*loss = 0, side = 0; side < SIDES && !s; ++side) {
        head.input = e->embeddings[side];
        head.weights = e->embeddings[1 - side];
        head.grad_input = side ? own : e->grad_embeddings[side];
        head.grad_weights = e->grad_embeddings[1 - side];
        head.accumulate = side > 0;
        s = memopt_head_loss(&ops, &head, &part);
        *loss += part.loss / 2;
    }
    for (i = 0; i < ROWS; ++i) e->grad_embeddings[TEXT][i] += own[i];
    memopt_arena_rewind(arena, mark);
    return s;
}

/* ---- a step's gradients, both ways ---- */
static memopt_status whole(engine *e, memopt_arena *arena, size_t step) {
    memopt_status s = MEMOPT_OK;
    size_t side;

    for (side = 0; side < SIDES && !s; ++side) {
        s = memopt_tape_forward(e->encoders[side].tape, e->data[side]);
        if (!s) memcpy(e->embeddings[side], memopt_tape_output(e->encoders[side].tape), ROWS * sizeof(float));
    }
    if (!s) s = contrast(e, arena, &e->loss[step]);
    while (side-- > 0 && !s) s = memopt_tape_backward(e->encoders[side].tape, e->grad_embeddings[side], NULL);
    return s;
}

static memopt_status by_micro_batches(engine *e, memopt_arena *arena, size_t step) {
    memopt_status s = MEMOPT_OK;
    size_t side, first, again;

    for (again = 0; again < 2 && !s; ++again) { /* embeddings, and the loss; then gradients */
        for (side = 0; side < SIDES; ++side) {
            encoder *encode = &e->encoders[side];

            for (first = 0; first < BATCH && !s; first += MICRO) {
                const float *input = e->data[side] + first * INPUTS;

                encode->first = first;
                s = memopt_tape_seek(encode->tape, step); /* every micro-batch is part of the same pass */
                if (!s && !again) s = memopt_tape_evaluate(encode->tape, input, e->embeddings[side] + first * EMBED);
                if (!s && again) s = memopt_tape_forward(encode->tape, input);
                if (!s && again)
                    s = memopt_tape_backward(encode->tape, e->grad_embeddings[side] + first * EMBED, NULL);
            }
        }
        if (!s && !again) s = contrast(e, arena, &e->loss[step]);
    }
    return s;
}

/* ---- data and training ---- */
/* An image and its text are two views of the same hidden numbers. */
static memopt_status load(engine *e, uint64_t batch) {
    static float latent[BATCH * LATENT], view[INPUTS * LATENT];
    memopt_status s = memopt_random_normal(latent, BATCH * LATENT, 1, batch, 0, NULL);
    size_t side, row, i, k;

    for (side = 0; side < SIDES && !s; ++side) {
        s = memopt_random_normal(view, INPUTS * LATENT, 2, side, 0, NULL);
        for (row = 0; row < BATCH; ++row)
            for (i = 0; i < INPUTS; ++i) {
                float sum = 0;

                for (k = 0; k < LATENT; ++k) sum += latent[row * LATENT + k] * view[i * LATENT + k];
                e->data[side][row * INPUTS + i] = tanhf(sum);
            }
    }
    return s;
}

/* One training from the start, in an arena that holds embeddings and the tapes' passes. */
static memopt_status train(engine *e, size_t rows) {
    memopt_source pages;
    memopt_arena_desc desc = { 0 };
    memopt_arena *arena = NULL;
    memopt_status s = memopt_source_pages(NULL, &pages);
    size_t side, step, i;

    desc.source = &pages;
    desc.capacity = (size_t)256 << 20;
    if (!s) s = memopt_arena_create(&desc, &arena);
    for (side = 0; side < SIDES && !s; ++side) {
        e->embeddings[side] = MEMOPT_PUSH(arena, float, ROWS, MEMOPT_TAG_ACTIVATIONS);
        e->grad_embeddings[side] = MEMOPT_PUSH(arena, float, ROWS, MEMOPT_TAG_GRADIENTS);
        if (!e->embeddings[side] || !e->grad_embeddings[side]) s = MEMOPT_ERR_MEMORY;
        else s = encoder_open(&e->encoders[side], arena, rows, side, e->weights[side], e->gradients[side]);
    }
    for (step = 0; step < STEPS && !s; ++step) {
        if ((s = load(e, step)) != MEMOPT_OK) break;
        s = rows == BATCH ? whole(e, arena, step) : by_micro_batches(e, arena, step);
        for (side = 0; side < SIDES; ++side)
            for (i = 0; i < WEIGHTS; ++i) e->weights[side][i] -= 0.2f * e->gradients[side][i];
    }
    e->peak = memopt_arena_get_stats(arena).peak;
    for (side = 0; side < SIDES; ++side) memopt_tape_destroy(e->encoders[side].tape);
    memopt_arena_destroy(arena);
    return s;
}

int main(void) {
    static engine at_once, in_parts;
    const engine *each[2] = { &at_once, &in_parts };
    memopt_status s = train(&at_once, BATCH);
    int same, k;

    if (!s) s = train(&in_parts, MICRO);
    if (s) {
        fprintf(stderr, "%s\n", memopt_status_text(s));
        return 1;
    }
    printf("                 peak KiB   first loss    last loss\n");
    for (k = 0; k < 2; ++k)
        printf("%s%9lu%13.6f%13.6f\n", k ? "micro-batches   " : "batch at once   ",
               (unsigned long)(each[k]->peak >> 10), each[k]->loss[0], each[k]->loss[STEPS - 1]);
    same = !memcmp(at_once.loss, in_parts.loss, sizeof at_once.loss)
        && !memcmp(at_once.gradients, in_parts.gradients, sizeof at_once.gradients)
        && !memcmp(at_once.weights, in_parts.weights, sizeof at_once.weights);
    puts(same ? "losses, gradients and weights equal, bit for bit" : "something differs");
    return same && in_parts.peak < at_once.peak / 4 && in_parts.loss[STEPS - 1] < 0.7 * in_parts.loss[0] ? 0 : 1;
}
