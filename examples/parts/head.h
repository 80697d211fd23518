/* head.h - the last segment of a language model: final norm, logits, cross-entropy. Loss and gradients are made in one
   go, in the backward, some rows of logits at a time; the forward of a training does nothing.

   What it keeps  Nothing. Scratch: a plane of normed rows, which become their gradient, 8 bytes a row, min(chunk, rows)
                  rows of padded floats, and without a gradients array of its own, those. With `classes` the rows are
                  the first of each sequence, as in a ViT, and their input takes as much once more.
   What it costs  The logits' product once, and both of its gradients; no forward again.
   How to use     See transformer.h: transformer_add_head(&chain, &head, &embedding), the last part. The embedding is
                  not looked at when the shape is untied. Before a pass set the targets, an int32_t for each row or,
                  with `classes`, for each sequence (negative: ignored); head.loss is that of the pass, made in its
                  backward.
                      head.targets = targets;
                      memopt_tape_forward(tape, ids); memopt_tape_backward(tape, NULL, NULL); printf(..., head.loss);
                  An evaluation makes head.loss, too, and its output, one float; or, with `logits` set, no loss but the
                  logits of some rows, to sample from. */
#ifndef PARTS_HEAD_H
#define PARTS_HEAD_H
#include "layers.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

enum { TRANSFORMER_FINAL_SCALE, TRANSFORMER_FINAL_SHIFT, TRANSFORMER_HEAD };

typedef struct transformer_head {
    transformer_part        part;    /* first: it is what callbacks are given */
    const transformer_part *tied;    /* the embedding whose tokens are the weights; NULL when untied */
    const int32_t          *targets;
    size_t                  chunk;   /* rows of logits at a time; 0 = 512 */
    int                     classes; /* 1: a sequence has one target, that of its first row; 0: every row has */
    memopt_loss_rule        rule;    /* its scale and count: loss scaling, micro-batches */
    double                  loss;
    float                  *logits;  /* evaluating: NULL, or receives rows first_row.. (of those with targets) */
    size_t                  first_row, row_count;
} transformer_head;

/* Fills in the list, and returns the elements of all of it. */
static inline size_t transformer_head_tensors(const transformer *t, transformer_tensor *list) {
    transformer_list(list, TRANSFORMER_FINAL_SCALE, "final scale", t->width, 0);
    transformer_list(list, TRANSFORMER_FINAL_SHIFT, "final shift", t->rms ? 0 : t->width, 0);
    transformer_list(list, TRANSFORMER_HEAD, "head", t->untied ? transformer_padded(t) : 0, t->width);
    return list[TRANSFORMER_HEAD].first + list[TRANSFORMER_HEAD].count;
}

/* With `classes`: one row in `length` of the stream to rows side by side, or back. The steps are in rows. */
static inline memopt_status transformer_head_copy(const transformer_work *w, void *to, size_t to_step,
                                                  const void *from, size_t from_step) {
    const transformer *t = w->shape;
    memopt_status s = MEMOPT_OK;
    size_t i;

    for (i = 0; i < w->rows && !s && !w->call->describing; ++i)
        s = transformer_copy(&w->ops, transformer_at(to, i * to_step * t->width, t->type),
                             transformer_at(from, i * from_step * t->width, t->type),
                             t->width * memopt_type_bytes(t->type));
    return s;
}

/* The rows that have a target, which may be all; `room` is for them. */
static inline memopt_status transformer_head_input(const transformer_work *w, void *room, const void **input) {
    *input = room ? room : w->call->input;
    return room ? transformer_head_copy(w, room, 1, w->call->input, w->shape->length) : MEMOPT_OK;
}

static inline memopt_head transformer_head_of(const transformer_work *w, void *normed) {
    const transformer_head *x = (const transformer_head *)w->call->user;
    const transformer *t = w->shape;
    memopt_head h;

    memset(&h, 0, sizeof h);
    h.rows = w->rows;
    h.width = t->width;
    h.vocabulary = t->vocabulary;
    h.padded = t->padded;
    h.chunk = x->chunk;
    h.type = t->type;
    h.weight_type = t->weight_type;
    h.gradient_type = t->gradient_type;
    h.input = normed;
    h.weights = t->untied ? transformer_weights(w, TRANSFORMER_HEAD) : x->tied->weights;
    h.targets = x->targets;
    h.rule = x->rule;
    return h;
}

static inline memopt_status transformer_head_forward(const memopt_tape_call *call) {
    transformer_head *x = (transformer_head *)call->user;
    transformer_work w = transformer_begin(call, transformer_head_tensors, 0);
    float value;
    memopt_loss loss;
    memopt_head h;
    void *normed, *room;
    const void *input;
    memopt_status s = MEMOPT_OK;

    if (!w.shape->untied && !x->tied) return transformer_refuse(call, "the head is neither tied nor untied");
    if (!call->describing) s = transformer_zero(&w.shape->ops, call->output, sizeof value);
    if (s || call->saves || (!call->evaluating && !call->describing)) return s;
    if (x->classes) w.rows = w.shape->batch;
    normed = transformer_take(&w, MEMOPT_TAPE_SCRATCH, w.shape->width);
    room = transformer_take(&w, MEMOPT_TAPE_SCRATCH, x->classes ? w.shape->width : 0);
    w.ops = memopt_ops_in(call, &w.shape->ops);
    h = transformer_head_of(&w, normed);
    s = transformer_head_input(&w, room, &input);
    if (!s) s = transformer_norm_forward(&w, TRANSFORMER_FINAL_SCALE, input, normed, NULL);
    if (!s && x->logits && !call->describing)
        return memopt_head_logits(&w.ops, &h, x->first_row, x->row_count, x->logits);
    if (!s) s = memopt_head_loss(&w.ops, &h, &loss);
    if (s || call->describing) return s;
    x->loss = loss.loss;
    value = (float)loss.loss;
    return transformer_copy(&w.ops, call->output, &value, sizeof value);
}

static inline memopt_status transformer_head_backward(const memopt_tape_call *call) {
    transformer_head *x = (transformer_head *)call->user;
    transformer_work w = transformer_begin(call, transformer_head_tensors, 1);
    const transformer *t = w.shape;
    void *normed, *room, *grad_input;
    float *statistics;
    const void *input;
    memopt_loss loss;
    memopt_head h;
    memopt_status s;

    if (x->classes) w.rows = t->batch;
    normed = transformer_take(&w, MEMOPT_TAPE_SCRATCH, t->width);
    room = transformer_take(&w, MEMOPT_TAPE_SCRATCH, x->classes ? t->width : 0);
    statistics = transformer_take_statistics(&w);
    w.ops = memopt_ops_in(call, &t->ops);
    h = transformer_head_of(&w, normed);
    h.grad_input = normed; /* in place */
    h.grad_weights = t->untied ? w.gradients[TRANSFORMER_HEAD] : x->tied->gradients;
    h.accumulate = t->accumulate || (call->describing && !t->done_fn); /* which may need more scratch */
    grad_input = x->classes ? normed : call->grad_input;
    s = transformer_head_input(&w, room, &input);
    if (!s) s = transformer_norm_forward(&w, TRANSFORMER_FINAL_SCALE, input, normed, statistics);
    if (!s) s = memopt_head_loss(&w.ops, &h, &loss);
    if (!s) s = transformer_norm_backward(&w, TRANSFORMER_FINAL_SCALE, input, statistics, normed, grad_input, 0);
    if (s || call->describing) return s;
    x->loss = loss.loss;
    if (x->classes && call->grad_input) {
        s = transformer_zero(&w.ops, call->grad_input, transformer_bytes(t, t->width));
        if (!s) s = transformer_head_copy(&w, call->grad_input, t->length, normed, 1);
    }
    return transformer_done(&w, s);
}

static inline void transformer_add_head(transformer_chain *c, transformer_head *head,
                                        const transformer_part *embedding) {
    const transformer *t = c->shape;
    memopt_segment *segment = transformer_add(c, &head->part, transformer_head_tensors, transformer_head_forward,
                                              transformer_head_backward, sizeof(float));

    head->tied = t->untied ? NULL : embedding;
    segment->backward_cost = (head->part.is_frozen ? 2 : 3)
        * (double)(head->classes ? t->batch : transformer_rows(t)) * (double)t->width * (double)transformer_padded(t);
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
