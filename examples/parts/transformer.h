/* transformer.h - the shape of a transformer, and what block.h, head.h and embedding.h have in common.

   What it is   One description for all parts. All zero but the sizes it is GPT-2: layer norm, GELU, learned positions,
                biases, causal, tied head. With rms, swiglu, rotary, no_bias and untied set, and kv_heads, it is Llama.
   Parameters   A part has one array of weights and one of gradients. transformer_block_tensors(), and its like of head
                and embedding, list what lies in them: name, first element, elements, columns. Absent ones have 0.
   Gradients    Overwritten by every pass, or added to, with `accumulate`. A part without an array of gradients has them
                in scratch: done_fn takes each tensor's as soon as a segment has all of its own.
   How to use   Each part fills one or two layers and segments; memopt_tape_describe() then fills in the sizes:
                    transformer_embedding_layer(&embedding, &layers[0], &segments[0]);
                    for (i = 0; i < BLOCKS; ++i)
                        transformer_block_layers(&block[i], &layers[1 + 2 * i], &segments[1 + 2 * i]);
                    transformer_head_layer(&head, &layers[LAYERS - 1], &segments[LAYERS - 1]);
                    if (memopt_tape_describe(layers, segments, LAYERS, &why)) ...
                examples/transformer.c is a whole program. Include memopt.h before this file. */
#ifndef PARTS_TRANSFORMER_H
#define PARTS_TRANSFORMER_H
#include <string.h>

typedef struct transformer { /* zero it, then set what you need; parts point to it, so a change is for all of them */
    size_t batch, length;    /* sequences, and tokens of each. When they change: describe and reshape */
    size_t width, heads;     /* heads divide the width */
    size_t kv_heads;         /* 0 = heads; else it divides them: groups share keys and values */
    size_t hidden;           /* of the MLP; 0 = 4 * width */
    size_t vocabulary;
    size_t padded;           /* rows of the token embedding; 0 = vocabulary */
    int    rms;              /* 1: RMS norm, which has no shift; 0: layer norm */
    int    swiglu;           /* 1: SwiGLU; 0: GELU */
    int    rotary;           /* 1: rotary positions, in the attention; 0: learned ones, in the embedding */
    int    no_bias;          /* 1: linear layers without biases */
    int    not_causal;       /* 1: every token sees all of its sequence */
    int    untied;           /* 1: the head has weights of its own; 0: they are the token embedding */
    float  eps;              /* of norms; 0 = 1e-5 */
    double rotary_base;      /* 0 = 10000 */
    float  dropout;          /* rate, of what a half of a block adds to its input; an evaluation has none */
    memopt_type type, weight_type, gradient_type; /* of activations, weights, gradients of weights */
    memopt_ops  ops;         /* threads and gemm; scratch comes from the tape */
    int         accumulate;  /* 1: a pass adds to the gradients of the pass before; not with done_fn */
    /* NULL, or told when the gradients of a tensor are complete, in its segment's backward; with `user` an optimizer it
       is no more than a call of memopt_optim_apply_with(). Not called in a calibration */
    memopt_status (*done_fn)(void *user, size_t tensor, const void *gradients);
    void       *user;
} transformer;

typedef struct transformer_tensor { /* where a parameter lies in the array of its part */
    const char *name;
    size_t first, count; /* elements; a count of 0: this shape does not have it */
    size_t columns;      /* of a matrix, which lies row by row; 0: a vector */
} transformer_tensor;

typedef struct transformer_part { /* what every part has */
    const transformer *shape;
    const void *weights;     /* one array, as the list of tensors says */
    void       *gradients;   /* the same; NULL: in scratch, for done_fn */
    size_t      first_tensor;/* the number of its first tensor for done_fn; absent ones are not counted */
} transformer_part;

/* ---- parameters ---- */
/* Set tensor `i` of a list, behind the one before it. */
static inline void transformer_list(transformer_tensor *list, size_t i, const char *name, size_t rows, size_t columns) {
    list[i].name = name;
    list[i].first = i ? list[i - 1].first + list[i - 1].count : 0;
    list[i].count = columns ? rows * columns : rows;
    list[i].columns = list[i].count ? columns : 0;
}

/* The tensors of a part as an optimizer wants them: NULL, or as many as there are; returns how many that is. */
static inline size_t transformer_optim_tensors(const transformer_part *part, const transformer_tensor *list,
                                               size_t count, memopt_optim_tensor *out) {
    const size_t bytes = memopt_type_bytes(part->shape->weight_type);
    const size_t grad_bytes = memopt_type_bytes(part->shape->gradient_type);
    size_t n = 0;
    size_t i;

    for (i = 0; i < count; ++i) {
        if (!list[i].count) continue;
        if (out) {
            memset(&out[n], 0, sizeof out[n]);
            out[n].weights = (unsigned char *)(uintptr_t)part->weights + list[i].first * bytes;
            if (part->gradients) out[n].gradients = (unsigned char *)part->gradients + list[i].first * grad_bytes;
            out[n].count = list[i].count;
            out[n].columns = list[i].columns;
        }
        ++n;
    }
    return n;
}

/* ---- shapes ---- */
static inline size_t transformer_rows(const transformer *t) {
    return t->batch * t->length;
}

static inline size_t transformer_hidden(const transformer *t) {
    return t->hidden ? t->hidden : 4 * t->width;
}

static inline size_t transformer_padded(const transformer *t) {
    return t->padded ? t->padded : t->vocabulary;
}

static inline size_t transformer_bytes(const transformer *t, size_t columns) { /* of an activation */
    return transformer_rows(t) * columns * memopt_type_bytes(t->type);
}

/* ---- what a callback works with ---- */
enum { TRANSFORMER_TENSORS_MAX = 12 };
typedef size_t transformer_tensors_fn(const transformer *shape, transformer_tensor *list);

typedef struct transformer_work {
    const memopt_tape_call *call;
    const transformer_part *part;
    const transformer      *shape;
    transformer_tensor list[TRANSFORMER_TENSORS_MAX];
    size_t from, end;         /* the tensors of this segment */
    unsigned char *gradients; /* of tensor `from`, and of those behind it */
    memopt_ops ops;           /* set once everything has been taken */
} transformer_work;

/* Begin a callback whose segment has the tensors from..end - 1. A backward takes room for their gradients here. */
static inline transformer_work transformer_begin(const memopt_tape_call *call, transformer_tensors_fn *tensors_fn,
                                                 size_t from, size_t end, int backward) {
    transformer_work w;
    size_t first, count, size;

    memset(&w, 0, sizeof w);
    w.call = call;
    w.part = (const transformer_part *)call->user;
    w.shape = w.part->shape;
    w.from = from;
    w.end = end;
    (void)tensors_fn(w.shape, w.list);
    size = memopt_type_bytes(w.shape->gradient_type);
    first = w.list[from].first;
    count = w.list[end - 1].first + w.list[end - 1].count - first;
    if (!backward) return w;
    if (w.part->gradients) w.gradients = (unsigned char *)w.part->gradients + first * size;
    else w.gradients = (unsigned char *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, count * size);
    return w;
}

/* A mistake in how the parts were put together, told by memopt_tape_describe() or memopt_tape_error(). */
static inline memopt_status transformer_refuse(const memopt_tape_call *call, const char *reason) {
    if (call->error) {
        call->error->status = MEMOPT_ERR_ARGUMENT;
        call->error->reason = reason;
    }
    return MEMOPT_ERR_ARGUMENT;
}

/* The next room for an activation of so many columns. */
static inline void *transformer_take(const transformer_work *w, memopt_tape_part part, size_t columns) {
    return memopt_tape_take(w->call, part, transformer_bytes(w->shape, columns));
}

static inline float *transformer_take_statistics(const transformer_work *w) { /* of a norm */
    return (float *)memopt_tape_take(w->call, MEMOPT_TAPE_SCRATCH, 2 * transformer_rows(w->shape) * sizeof(float));
}

static inline const void *transformer_weights(const transformer_work *w, size_t i) {
    const size_t bytes = w->list[i].first * memopt_type_bytes(w->shape->weight_type);

    return w->list[i].count ? (const unsigned char *)w->part->weights + bytes : NULL;
}

static inline void *transformer_gradients(const transformer_work *w, size_t i) {
    const size_t bytes = (w->list[i].first - w->list[w->from].first) * memopt_type_bytes(w->shape->gradient_type);

    return w->list[i].count && w->gradients ? w->gradients + bytes : NULL;
}

/* End a backward: its gradients are complete. */
static inline memopt_status transformer_done(const transformer_work *w, memopt_status s) {
    const transformer *t = w->shape;
    size_t tensor = w->part->first_tensor;
    size_t i;

    if (!t->done_fn || w->call->describing || w->call->calibrating) return s;
    for (i = 0; i < w->end && s == MEMOPT_OK; ++i) {
        if (!w->list[i].count) continue;
        if (i >= w->from) s = t->done_fn(t->user, tensor, transformer_gradients(w, i));
        ++tensor;
    }
    return s;
}

/* ---- norms: tensor `i` is the scale, the next one the shift ---- */
static inline memopt_norm transformer_norm(const transformer_work *w, size_t i, const void *input, void *output,
                                           float *statistics) {
    memopt_norm n;

    memset(&n, 0, sizeof n);
    n.rows = transformer_rows(w->shape);
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

/* residual: 1 adds the norm's gradient onto what is in grad_input. */
static inline memopt_status transformer_norm_backward(const transformer_work *w, size_t i, const void *input,
                                                      float *statistics, const void *grad_output, void *grad_input,
                                                      int residual) {
    memopt_norm n = transformer_norm(w, i, input, NULL, statistics);

    n.grad_output = grad_output;
    n.grad_input = grad_input;
    n.accumulate_input = residual;
    n.grad_scale = transformer_gradients(w, i);
    n.grad_shift = transformer_gradients(w, i + 1);
    n.accumulate = w->shape->accumulate;
    return memopt_norm_backward(&w->ops, &n);
}

/* ---- linear layers: tensor `i` is the matrix, the next one the bias ---- */
static inline memopt_linear transformer_linear(const transformer_work *w, size_t i, const void *input, void *output) {
    memopt_linear l;

    memset(&l, 0, sizeof l);
    l.rows = transformer_rows(w->shape);
    l.inputs = w->list[i].columns;
    l.outputs = w->list[i].count / l.inputs;
    l.type = w->shape->type;
    l.weight_type = w->shape->weight_type;
    l.gradient_type = w->shape->gradient_type;
    l.input = input;
    l.weights = transformer_weights(w, i);
    l.bias = transformer_weights(w, i + 1);
    l.output = output;
    return l;
}

/* The gradients of the weights, and then, in a call of its own, that of the input: it may lie where the input lay. */
static inline memopt_status transformer_linear_backward(const transformer_work *w, size_t i, const void *input,
                                                        const void *grad_output, void *grad_input) {
    memopt_linear l = transformer_linear(w, i, input, NULL);
    memopt_status s;

    l.grad_output = grad_output;
    l.grad_weights = transformer_gradients(w, i);
    l.grad_bias = transformer_gradients(w, i + 1);
    l.accumulate = w->shape->accumulate;
    s = memopt_linear_backward(&w->ops, &l);
    l.grad_weights = NULL;
    l.grad_bias = NULL;
    l.input = NULL;
    l.grad_input = grad_input;
    return s ? s : memopt_linear_backward(&w->ops, &l);
}
#endif
