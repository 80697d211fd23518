/* residual_cnn.h - a residual block of a convolutional network, with batch norm, as a segment of a tape. Copy it.

   What     output = relu(norm(conv3x3(relu(norm(conv3x3(input))))) + skip). The skip is the input, or norm(conv1x1(
            input)) where the block has weights for it: it must with stride 2 or another number of channels. Float32,
            channels last: batch x height x width x channels. Convolutions have no bias: the norm's shift is one.
   Memory   Kept for backward: four planes of the output's size (two sums of products, what lies between the two
            convolutions, the output), five with a projection. Scratch: the columns of one convolution, 9 times a plane
            of the output's size with the larger number of channels; in backward twice that, and a plane or two.
   Norm     Running statistics move once a batch: not when a forward runs again, and not while the tape calibrates.
            memopt_tape_evaluate() uses them.
   Bits     The same for every budget, number of workers and SIMD level.
   Use      residual_cnn block = { 0 };
            block.batch = 32; block.height = block.width = 16; block.inputs = 64; block.outputs = 128; block.stride = 2;
            block.first.weights = w1; block.first.scale = ...       (and the other pointers of a residual_cnn_conv)
            block.second.weights = w2; block.skip.weights = w3; ...
            residual_cnn_layer(&block, &layers[i], &segments[i]);   (a block for each segment; it stays where it is)
            memopt_tape_describe(layers, segments, count, &error);  (once, for all segments of the chain)
            desc.chain.segments = segments; desc.layers = layers;   (and the rest of a memopt_tape_desc)
            memopt_tape_create(&desc, &tape);                       (then memopt_tape_forward(), memopt_tape_backward())
            Include memopt.h before this file. */
#ifndef PARTS_RESIDUAL_CNN_H
#define PARTS_RESIDUAL_CNN_H
#include <string.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct residual_cnn_conv { /* a convolution and its norm */
    const float *weights;                      /* outputs x (kernel rows, kernel columns, inputs) */
    const float *scale, *shift;                /* outputs each */
    float       *running_mean, *running_variance; /* outputs each, of variance 1 in the beginning */
    float       *grad_weights, *grad_scale, *grad_shift;
} residual_cnn_conv;

typedef struct residual_cnn { /* zero it, then set what it has */
    size_t batch, height, width; /* of the input */
    size_t inputs, outputs;      /* channels */
    size_t stride;               /* of `first` and `skip`; 0 = 1 */
    residual_cnn_conv first, second;
    residual_cnn_conv skip;      /* weights NULL: the skip is the input */
    float  eps, momentum;        /* 0 = default: those of memopt_batch_norm */
    int    accumulate;           /* 1: gradients are added onto what is there; 0: overwritten */
    memopt_ops ops;              /* threads and gemm; scratch comes from the tape */
} residual_cnn;

typedef struct residual_cnn_step { /* one convolution of a block, as it runs */
    size_t height, width, channels, kernel, stride, out_height, out_width;
    const float *from;           /* what it reads, or columns of gradients */
    float  *to;
    int     adds;                /* 1: gradients are added onto what is there */
    memopt_batch_norm norm;
} residual_cnn_step;

typedef struct residual_cnn_memory {
    float *sums[3];              /* of products: first, second, skip */
    float *statistics;           /* of all three */
    float *between;              /* output of the first, input of the second */
    float *columns, *grad_columns;
    float *plane;                /* forward: what a projection makes; backward: gradient of `between` */
    float *grad;                 /* backward: of the sum before the last relu */
    float *folded;               /* evaluation: weights and bias with the norm in them */
} residual_cnn_memory;

static inline size_t residual_cnn_rows(const residual_cnn *b) { /* pixels of the output, of all images */
    return b->batch * ((b->height - 1) / b->stride + 1) * ((b->width - 1) / b->stride + 1);
}

/* The sizes: once, for forward and backward. A forward that saves nothing uses one plane for all sums. */
static inline residual_cnn_memory residual_cnn_take(const memopt_tape_call *call, const residual_cnn *b, int backward) {
    const size_t plane = residual_cnn_rows(b) * b->outputs * sizeof(float);
    const size_t channels = b->inputs > b->outputs ? b->inputs : b->outputs;
    const size_t columns = residual_cnn_rows(b) * 9 * channels * sizeof(float);
    const size_t folded = b->outputs * (9 * channels + 1) * sizeof(float);
    residual_cnn_memory m;

    memset(&m, 0, sizeof m);
    m.sums[0] = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, plane);
    m.sums[1] = call->saves ? (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, plane) : m.sums[0];
    m.sums[2] = call->saves && b->skip.weights ? (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, plane) : m.sums[0];
    m.between = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, plane);
    m.statistics = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, 6 * b->outputs * sizeof(float));
    m.columns = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, columns);
    if (backward || b->skip.weights) m.plane = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, plane);
    if (backward) m.grad_columns = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, columns);
    m.grad = (float *)call->grad_output; /* in place; but grad_input may be there, and a projection comes after it */
    if (backward && b->skip.weights) m.grad = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, plane);
    if (!call->saves) m.folded = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, folded);
    return m;
}

static inline residual_cnn_step residual_cnn_at(const memopt_tape_call *call, const residual_cnn *b,
                                                const residual_cnn_memory *m, int which) {
    const residual_cnn_conv *convs[3];
    const residual_cnn_conv *c;
    residual_cnn_step t;

    convs[0] = &b->first;
    convs[1] = &b->second;
    convs[2] = &b->skip;
    c = convs[which];
    memset(&t, 0, sizeof t);
    t.out_height = (b->height - 1) / b->stride + 1;
    t.out_width = (b->width - 1) / b->stride + 1;
    t.height = which == 1 ? t.out_height : b->height;
    t.width = which == 1 ? t.out_width : b->width;
    t.channels = which == 1 ? b->outputs : b->inputs;
    t.stride = which == 1 ? 1 : b->stride;
    t.kernel = which == 2 ? 1 : 3;
    t.norm.linear.rows = residual_cnn_rows(b);
    t.norm.linear.inputs = t.kernel * t.kernel * t.channels;
    t.norm.linear.outputs = b->outputs;
    t.norm.linear.input = m->columns;
    t.norm.linear.weights = c->weights;
    t.norm.linear.pre_activation = m->sums[which];
    t.norm.linear.activation = which == 0 ? MEMOPT_ACTIVATION_RELU : MEMOPT_ACTIVATION_NONE;
    t.norm.linear.grad_weights = c->grad_weights;
    t.norm.linear.accumulate = b->accumulate;
    t.norm.eps = b->eps;
    t.norm.momentum = b->momentum;
    t.norm.no_update = call->is_recompute || call->calibrating;
    t.norm.scale = c->scale;
    t.norm.shift = c->shift;
    t.norm.running_mean = c->running_mean;
    t.norm.running_variance = c->running_variance;
    t.norm.statistics = m->statistics ? m->statistics + (size_t)which * 2 * b->outputs : NULL;
    t.norm.grad_scale = c->grad_scale;
    t.norm.grad_shift = c->grad_shift;
    return t;
}

/* For each image. */
static inline void residual_cnn_run(const residual_cnn *b, memopt_task_fn *fn, residual_cnn_step *t) {
    const memopt_threads *threads = b->ops.threads;
    size_t image;

    if (threads && threads->run_fn) threads->run_fn(threads->user, b->batch, fn, t);
    else
        for (image = 0; image < b->batch; ++image) fn(t, image, 0);
}

/* A row of columns: the pixels under the kernel, zeros beyond the border. */
static inline void residual_cnn_spread(void *task, size_t image, int worker) {
    const residual_cnn_step *t = (const residual_cnn_step *)task;
    const size_t border = t->kernel / 2;
    const size_t bytes = t->channels * sizeof(float);
    const float *from = t->from + image * t->height * t->width * t->channels;
    float *to = t->to + image * t->out_height * t->out_width * t->norm.linear.inputs;
    size_t row, column, ky, kx;

    (void)worker;
    for (row = 0; row < t->out_height; ++row)
        for (column = 0; column < t->out_width; ++column)
            for (ky = 0; ky < t->kernel; ++ky)
                for (kx = 0; kx < t->kernel; ++kx, to += t->channels) {
                    const size_t y = row * t->stride + ky - border; /* wraps around below 0: then it is large */
                    const size_t x = column * t->stride + kx - border;

                    if (y < t->height && x < t->width) memcpy(to, from + (y * t->width + x) * t->channels, bytes);
                    else memset(to, 0, bytes);
                }
}

/* The reverse for gradients: a pixel's are added up in the order of the kernel's elements. */
static inline void residual_cnn_gather(void *task, size_t image, int worker) {
    const residual_cnn_step *t = (const residual_cnn_step *)task;
    const size_t border = t->kernel / 2;
    const size_t wide = t->norm.linear.inputs;
    const float *from = t->from + image * t->out_height * t->out_width * wide;
    float *to = t->to + image * t->height * t->width * t->channels;
    size_t y, x, ky, kx, i;

    (void)worker;
    for (y = 0; y < t->height; ++y)
        for (x = 0; x < t->width; ++x, to += t->channels) {
            if (!t->adds) memset(to, 0, t->channels * sizeof *to);
            for (ky = 0; ky < t->kernel; ++ky)
                for (kx = 0; kx < t->kernel; ++kx) {
                    const size_t row = (y + border - ky) / t->stride;
                    const size_t column = (x + border - kx) / t->stride;
                    const float *grad;

                    if (row * t->stride + ky != y + border || column * t->stride + kx != x + border) continue;
                    if (row >= t->out_height || column >= t->out_width) continue;
                    grad = from + (row * t->out_width + column) * wide + (ky * t->kernel + kx) * t->channels;
                    for (i = 0; i < t->channels; ++i) to[i] += grad[i];
                }
        }
}

static inline memopt_status residual_cnn_convolve(const memopt_tape_call *call, const memopt_ops *ops,
                                                  const residual_cnn_memory *m, int which, const float *from,
                                                  float *to) {
    const residual_cnn *b = (const residual_cnn *)call->user;
    residual_cnn_step t = residual_cnn_at(call, b, m, which);
    memopt_linear *linear = &t.norm.linear;
    memopt_status s;

    t.from = from;
    t.to = m->columns;
    linear->output = to;
    if (!call->describing) residual_cnn_run(b, residual_cnn_spread, &t);
    if (!call->evaluating) return memopt_batch_norm_forward(ops, &t.norm);
    s = memopt_batch_norm_fold(ops, &t.norm, m->folded, m->folded + linear->outputs * linear->inputs);
    linear->weights = m->folded;
    linear->bias = m->folded + linear->outputs * linear->inputs;
    linear->pre_activation = NULL;
    return s ? s : memopt_linear_forward(ops, linear);
}

static inline memopt_status residual_cnn_forward(const memopt_tape_call *call) {
    const residual_cnn *b = (const residual_cnn *)call->user;
    const residual_cnn_memory m = residual_cnn_take(call, b, 0);
    const memopt_ops ops = memopt_ops_in(call, &b->ops);
    const float *input = (const float *)call->input;
    const float *skip = b->skip.weights ? m.plane : input;
    const size_t count = residual_cnn_rows(b) * b->outputs;
    float *output = (float *)call->output;
    memopt_status s;
    size_t i;

    if (!b->skip.weights && (b->stride != 1 || b->inputs != b->outputs)) {
        call->error->status = MEMOPT_ERR_ARGUMENT; /* found while sizes are asked for */
        call->error->reason = "residual_cnn: stride or channels make a projection necessary, but skip.weights is NULL";
        return MEMOPT_ERR_ARGUMENT;
    }
    s = residual_cnn_convolve(call, &ops, &m, 0, input, m.between);
    if (!s) s = residual_cnn_convolve(call, &ops, &m, 1, m.between, output);
    if (!s && b->skip.weights) s = residual_cnn_convolve(call, &ops, &m, 2, input, m.plane);
    if (s || call->describing) return s;
    for (i = 0; i < count; ++i) {
        const float sum = output[i] + skip[i];

        output[i] = sum <= 0 ? 0 : sum; /* a NaN stays one */
    }
    return MEMOPT_OK;
}

/* grad_output is of the convolution's output; grad_input NULL: nobody wants it. */
static inline memopt_status residual_cnn_back(const memopt_tape_call *call, const memopt_ops *ops,
                                              const residual_cnn_memory *m, int which, const float *from,
                                              const float *grad_output, float *grad_input, int adds) {
    const residual_cnn *b = (const residual_cnn *)call->user;
    residual_cnn_step t = residual_cnn_at(call, b, m, which);
    memopt_status s;

    t.from = from;
    t.to = m->columns;
    if (!call->describing) residual_cnn_run(b, residual_cnn_spread, &t);
    t.norm.linear.grad_output = grad_output;
    t.norm.linear.grad_input = grad_input ? m->grad_columns : NULL;
    s = memopt_batch_norm_backward(ops, &t.norm);
    if (s || !grad_input || call->describing) return s;
    t.from = m->grad_columns;
    t.to = grad_input;
    t.adds = adds;
    residual_cnn_run(b, residual_cnn_gather, &t);
    return MEMOPT_OK;
}

static inline memopt_status residual_cnn_backward(const memopt_tape_call *call) {
    const residual_cnn *b = (const residual_cnn *)call->user;
    const residual_cnn_memory m = residual_cnn_take(call, b, 1);
    const memopt_ops ops = memopt_ops_in(call, &b->ops);
    const float *input = (const float *)call->input;
    float *grad_input = (float *)call->grad_input;
    memopt_activation_args relu;
    memopt_status s;

    memset(&relu, 0, sizeof relu);
    relu.n = residual_cnn_rows(b) * b->outputs;
    relu.activation = MEMOPT_ACTIVATION_RELU;
    relu.input = call->output; /* above 0 where what went into the relu is */
    relu.grad_output = call->grad_output;
    relu.grad_input = m.grad;
    s = memopt_activation_backward(&ops, &relu);
    if (!s) s = residual_cnn_back(call, &ops, &m, 1, m.between, m.grad, m.plane, 0);
    if (!s && !b->skip.weights && grad_input && grad_input != m.grad)
        memcpy(grad_input, m.grad, relu.n * sizeof(float));
    if (!s) s = residual_cnn_back(call, &ops, &m, 0, input, m.plane, grad_input, !b->skip.weights);
    if (!s && b->skip.weights) s = residual_cnn_back(call, &ops, &m, 2, input, m.grad, grad_input, 1);
    return s;
}

/* The block as a segment, but for the sizes that memopt_tape_describe() fills in. The gradient of the output is written
   over: where the block ends the chain, that is what memopt_tape_backward() was given. */
static inline void residual_cnn_layer(residual_cnn *b, memopt_tape_layer *layer, memopt_segment *segment) {
    size_t taps;

    if (!b->stride) b->stride = 1;
    taps = 9 * (b->inputs + b->outputs) + (b->skip.weights ? b->inputs : 0);
    memset(segment, 0, sizeof *segment);
    segment->output_bytes = segment->grad_bytes = residual_cnn_rows(b) * b->outputs * sizeof(float);
    segment->forward_cost = (double)residual_cnn_rows(b) * (double)b->outputs * (double)taps;
    segment->backward_cost = 2 * segment->forward_cost;
    segment->grad_in_place = 1;
    layer->forward_fn = residual_cnn_forward;
    layer->backward_fn = residual_cnn_backward;
    layer->user = b;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
