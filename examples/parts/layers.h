/* layers.h - norms, linear layers, and the end of a half of a block, with the weights of a part: what block.h and
   head.h have in common. They are applied to the rows in work: w->rows from w->row on. */
#ifndef PARTS_LAYERS_H
#define PARTS_LAYERS_H
#include "transformer.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

enum { /* of both halves: the norm, the layers after it */
    TRANSFORMER_NORM_SCALE,
    TRANSFORMER_NORM_SHIFT,
    TRANSFORMER_QKV,
    TRANSFORMER_QKV_BIAS,
    TRANSFORMER_PROJECT,
    TRANSFORMER_PROJECT_BIAS,
    TRANSFORMER_QUERY_NORM,
    TRANSFORMER_KEY_NORM,
    TRANSFORMER_UP = TRANSFORMER_QKV,
    TRANSFORMER_DOWN = TRANSFORMER_PROJECT
};

static inline int transformer_is_cut(size_t i) { /* by tensor.h, of both halves */
    return i == TRANSFORMER_QKV || i == TRANSFORMER_QKV_BIAS || i == TRANSFORMER_PROJECT;
}

/* ---- gradients of weights, where a cut by length makes them of runs of rows ---- */
/* A backward's room for sums: above the gradients themselves a level for each time that two become one. Levels are as
   aligned as gradients are: a device may add up in another order where a product's result lies otherwise. */
static inline void transformer_take_levels(transformer_work *w) {
    size_t i, levels = 0;

    while ((size_t)1 << levels < transformer_row_parts(w->shape)) ++levels;
    for (i = 0; levels && i + 1 < TRANSFORMER_TENSORS_MAX; ++i)
        if (w->level < w->list[i].count + w->list[i + 1].count) w->level = w->list[i].count + w->list[i + 1].count;
    w->level = transformer_up(w->level, 64 / sizeof(float));
    w->levels = (float *)memopt_tape_take(w->call, MEMOPT_TAPE_SCRATCH, levels * w->level * sizeof(float));
}

/* Makes the gradients i and i + 1 of the rows in work, which begin at `row` of what args point to. */
typedef memopt_status transformer_rows_fn(const transformer_work *w, size_t i, size_t row, const void *args);

/* Where the gradient of tensor i + k is at a level. */
static inline float *transformer_level(const transformer_work *w, size_t i, size_t k, size_t level) {
    if (!level) return (float *)w->gradients[i + k];
    return w->levels + (level - 1) * w->level + (k ? w->list[i].count : 0);
}

/* Onto the one below. */
static inline memopt_status transformer_join_levels(const transformer_work *w, size_t i, size_t level) {
    memopt_status s = MEMOPT_OK;
    size_t k;

    for (k = 0; k < 2 && !s; ++k)
        if (w->list[i + k].count)
            s = transformer_plus(&w->ops, transformer_level(w, i, k, level - 1), transformer_level(w, i, k, level),
                                 w->list[i + k].count);
    return s;
}

/* Run by run: the gradients of a run go to the next level, and from there down as long as they complete a pair. */
static inline memopt_status transformer_sum_rows(const transformer_work *w, size_t i, transformer_rows_fn *rows_fn,
                                                 const void *args) {
    const size_t runs = transformer_row_parts(w->shape);
    transformer_work of = *w;
    size_t run, pairs, level = 0, k;
    memopt_status s = MEMOPT_OK;

    if (runs == 1) return rows_fn(w, i, 0, args);
    of.is_run = 1;
    of.rows = w->rows / runs;
    for (run = 0; run < runs && !s; ++run) {
        of.row = run * of.rows;
        for (k = 0; k < 2; ++k)
            if (w->list[i + k].count) of.gradients[i + k] = transformer_level(w, i, k, level);
        s = rows_fn(&of, i, of.row, args);
        if (s || w->call->describing) break; /* the others need no more */
        for (++level, pairs = run + 1; pairs % 2 == 0 && !s; pairs /= 2) s = transformer_join_levels(w, i, --level);
    }
    return s;
}

/* ---- norms: tensor `i` is the scale, the next one the shift ---- */
static inline memopt_norm transformer_norm(const transformer_work *w, size_t i, const void *input, void *output,
                                           float *statistics) {
    memopt_norm n;

    memset(&n, 0, sizeof n);
    n.rows = w->rows;
    n.width = w->shape->width;
    n.rms = w->shape->rms;
    n.eps = w->shape->eps;
    n.type = w->shape->type;
    n.weight_type = w->shape->weight_type;
    n.gradient_type = w->shape->gradient_type;
    n.input = input;
    n.scale = transformer_weights(w, i);
    n.shift = transformer_weights(w, i + 1);
    n.output = output;
    n.statistics = statistics;
    return n;
}

static inline memopt_status transformer_norm_forward(const transformer_work *w, size_t i, const void *input,
                                                     void *output, float *statistics) {
    const memopt_norm n = transformer_norm(w, i, input, output, statistics);

    return memopt_norm_forward(&w->ops, &n);
}

static inline memopt_status transformer_norm_rows(const transformer_work *w, size_t i, size_t row, const void *args) {
    const memopt_norm *whole = (const memopt_norm *)args;
    const size_t at = row * whole->width;
    memopt_norm n = *whole;

    n.rows = w->rows;
    n.input = transformer_at(n.input, at, n.type);
    n.statistics = (float *)transformer_at(n.statistics, 2 * row, MEMOPT_TYPE_F32);
    n.grad_output = transformer_at(n.grad_output, at, n.type);
    n.grad_input = transformer_at(n.grad_input, at, n.type);
    n.grad_scale = w->gradients[i];
    n.grad_shift = w->gradients[i + 1];
    n.accumulate = transformer_accumulates(w);
    return memopt_norm_backward(&w->ops, &n);
}

/* residual: 1 adds the norm's gradient onto what is in grad_input. */
static inline memopt_status transformer_norm_backward(const transformer_work *w, size_t i, const void *input,
                                                      float *statistics, const void *grad_output, void *grad_input,
                                                      int residual) {
    memopt_norm n = transformer_norm(w, i, input, NULL, statistics);

    n.grad_output = grad_output;
    n.grad_input = grad_input;
    n.accumulate_input = residual;
    return transformer_sum_rows(w, i, transformer_norm_rows, &n);
}

/* ---- linear layers: tensor `i` is the matrix, the next one the bias ---- */
static inline memopt_linear transformer_linear(const transformer_work *w, size_t i, const void *input, void *output) {
    memopt_linear l;

    memset(&l, 0, sizeof l);
    l.rows = w->rows;
    l.inputs = w->list[i].columns;
    l.outputs = w->list[i].count / l.inputs;
    l.type = w->shape->type;
    l.weight_type = w->shape->weight_type;
    l.gradient_type = w->shape->gradient_type;
    l.input = input;
    l.weights = transformer_weights(w, i);
    if (w->part->is_coded) {
        l.weights = w->part->codes ? w->part->codes + w->list[i].first : NULL;
        l.quantized = &w->quantized[i];
    }
    l.bias = transformer_weights(w, i + 1);
    l.output = output;
    return l;
}

/* That of tensor `i`: both matrices of a half have one. */
static inline adapter transformer_adapter(const transformer_work *w, size_t i) {
    const size_t k = i - TRANSFORMER_QKV;
    adapter a;

    memset(&a, 0, sizeof a);
    a.rank = w->part->rank;
    a.pieces = k ? 1 : transformer_pieces(w->part);
    a.piece_outputs = w->part->piece_outputs;
    a.scale = w->shape->adapter_scale;
    a.gradient_type = w->shape->gradient_type;
    a.a = transformer_at(w->part->adapters, w->adapters[k].first, MEMOPT_TYPE_F32);
    a.b = transformer_at(w->part->adapters, w->adapters[k + 1].first, MEMOPT_TYPE_F32);
    a.low = w->low;
    a.work = w->call->is_backward ? w->grad_low : w->low; /* a forward does not look there */
    a.grad_a = w->adapter_gradients[k];
    a.grad_b = w->adapter_gradients[k + 1];
    a.accumulate = transformer_accumulates(w);
    return a;
}

/* So many rows of a layer, from `row` on. */
static inline memopt_linear transformer_linear_at(const memopt_linear *whole, size_t row, size_t rows) {
    const size_t in = row * whole->inputs, out = row * whole->outputs;
    memopt_linear l = *whole;

    l.rows = rows;
    l.input = transformer_at(l.input, in, l.type);
    l.output = transformer_at(l.output, out, l.type);
    l.residual = transformer_at(l.residual, out, l.type);
    l.pre_activation = transformer_at(l.pre_activation, out, l.type);
    l.grad_output = transformer_at(l.grad_output, out, l.type);
    l.grad_input = transformer_at(l.grad_input, in, l.type);
    return l;
}

/* Products of how many runs of rows? Of those of a cut by length where the number of rows may change bits. */
static inline size_t transformer_product_runs(const transformer_work *w) {
    return transformer_rows_are_alone(&w->ops) ? 1 : transformer_row_parts(w->shape);
}

static inline memopt_status transformer_linear_forward(const transformer_work *w, size_t i, const memopt_linear *l) {
    const size_t runs = transformer_product_runs(w), rows = l->rows / runs;
    const adapter a = transformer_adapter(w, i);
    memopt_status s = MEMOPT_OK;
    size_t run;

    if (w->part->rank) return adapter_forward(&w->ops, l, &a);
    for (run = 0; run < runs && !s; ++run) {
        const memopt_linear of_run = transformer_linear_at(l, run * rows, rows);

        s = memopt_linear_forward(&w->ops, &of_run);
    }
    return s;
}

/* An adapter's gradients, and that of the input, as below. What it had made of the input is made again. */
static inline memopt_status transformer_adapter_backward(const transformer_work *w, size_t i, memopt_linear *l,
                                                         memopt_activation activation, const void *pre_activation) {
    const adapter a = transformer_adapter(w, i);
    memopt_status s = w->call->describing ? MEMOPT_OK : adapter_lower(&w->ops, l, &a);
    memopt_activation_args x;

    if (!s) s = adapter_backward(&w->ops, l, &a);
    if (s || !activation) return s;
    memset(&x, 0, sizeof x);
    x.n = l->rows * l->inputs;
    x.activation = activation;
    x.type = l->type;
    x.input = pre_activation;
    x.grad_output = x.grad_input = l->grad_input;
    return memopt_activation_backward(&w->ops, &x);
}

static inline memopt_status transformer_linear_rows(const transformer_work *w, size_t i, size_t row, const void *args) {
    memopt_linear l = transformer_linear_at((const memopt_linear *)args, row, w->rows);

    l.grad_weights = w->gradients[i];
    l.grad_bias = w->gradients[i + 1];
    l.accumulate = transformer_accumulates(w);
    return memopt_linear_backward_through(&w->ops, &l, MEMOPT_ACTIVATION_NONE, NULL);
}

static inline memopt_status transformer_linear_input_backward(const transformer_work *w, const memopt_linear *l,
                                                              memopt_activation activation,
                                                              const void *pre_activation) {
    const size_t runs = transformer_product_runs(w), rows = l->rows / runs;
    memopt_status s = MEMOPT_OK;
    size_t run;

    for (run = 0; run < runs && !s; ++run) {
        const memopt_linear of_run = transformer_linear_at(l, run * rows, rows);

        s = memopt_linear_backward_through(&w->ops, &of_run, activation,
                                           transformer_at(pre_activation, run * rows * l->inputs, l->type));
    }
    return s;
}

/* The gradients of the weights, and then, in a call of its own, that of the input, or of what went into the activation
   that made it: it may lie where the input lay. */
static inline memopt_status transformer_linear_backward_through(const transformer_work *w, size_t i, const void *input,
                                                                const void *grad_output, void *grad_input,
                                                                memopt_activation activation,
                                                                const void *pre_activation) {
    memopt_linear l = transformer_linear(w, i, input, NULL);
    memopt_status s;

    l.grad_output = grad_output;
    if (w->part->rank) {
        l.grad_input = grad_input;
        return transformer_adapter_backward(w, i, &l, activation, pre_activation);
    }
    s = transformer_sum_rows(w, i, transformer_linear_rows, &l);
    l.input = NULL;
    l.grad_input = grad_input;
    return s || !grad_input ? s : transformer_linear_input_backward(w, &l, activation, pre_activation);
}

static inline memopt_status transformer_linear_backward(const transformer_work *w, size_t i, const void *input,
                                                        const void *grad_output, void *grad_input) {
    return transformer_linear_backward_through(w, i, input, grad_output, grad_input, MEMOPT_ACTIVATION_NONE, NULL);
}

/* ---- the end of a half: output = x + dropout(linear(input)), and back ---- */
static inline memopt_dropout transformer_dropout(const transformer_work *w) {
    memopt_dropout d;

    memset(&d, 0, sizeof d);
    d.n = w->rows * w->shape->width;
    d.first = (transformer_first_row(w->shape) + w->row) * w->shape->width;
    d.type = w->shape->type;
    d.rate = w->shape->dropout;
    d.noise = memopt_noise_make(w->call->seed, w->call->stream);
    return d;
}

static inline memopt_status transformer_half_forward(const transformer_work *w, const void *input) {
    void *output = transformer_row(w, w->call->output);
    const void *residual = transformer_row(w, w->call->input);
    memopt_linear l = transformer_linear(w, TRANSFORMER_PROJECT, input, output);
    memopt_dropout d = transformer_dropout(w);
    const int drops = d.rate > 0 && !w->call->evaluating;
    memopt_status s;

    if (!drops) l.residual = residual;
    s = transformer_linear_forward(w, TRANSFORMER_PROJECT, &l);
    d.input = d.output = output;
    d.residual = residual;
    return s || !drops ? s : memopt_dropout_forward(&w->ops, &d);
}

/* *grad receives where the gradient of the linear layer's output is: `plane` where there is dropout. */
static inline memopt_status transformer_half_backward(const transformer_work *w, void *plane, const void **grad) {
    memopt_dropout d = transformer_dropout(w);

    *grad = d.grad_output = transformer_row(w, w->call->grad_output);
    if (!(d.rate > 0)) return MEMOPT_OK;
    *grad = d.grad_input = plane;
    return memopt_dropout_backward(&w->ops, &d);
}

/* Does anything need the gradient of the normed rows? Not of the first part that is trained, if its norm is not. */
static inline int transformer_reaches_back(const transformer_work *w) {
    return w->call->describing || w->call->grad_input || !w->part->is_frozen;
}

/* The beginning of a half on the way back: grad_input = grad_output + the gradient through the norm. */
static inline memopt_status transformer_half_end(const transformer_work *w, float *statistics,
                                                 const void *grad_normed) {
    const memopt_tape_call *call = w->call;
    void *grad_input = transformer_row(w, call->grad_input);
    memopt_status s = MEMOPT_OK;

    if (!transformer_reaches_back(w)) return MEMOPT_OK;
    if (grad_input && call->grad_input != call->grad_output)
        s = transformer_copy(&w->ops, grad_input, transformer_row(w, call->grad_output),
                             w->rows * w->shape->width * memopt_type_bytes(w->shape->type));
    return s ? s : transformer_norm_backward(w, TRANSFORMER_NORM_SCALE, transformer_row(w, call->input), statistics,
                                             grad_normed, grad_input, grad_input != NULL);
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
