/* embedding.h - the first segment of a transformer: token ids to rows, with learned positions or none.

   What it keeps  Nothing: its backward reads the ids.
   What it costs  A row copied, or added, for each token; backward, the gradients of rows nobody used are zeroed.
   How to use     See transformer.h: transformer_add_embedding(&chain, &embedding), the first part. The input of the
                  tape is the ids, an int32_t for each row: chain.input_bytes of its desc is rows * sizeof(int32_t).
                  Tied to the head, it adds the tokens' gradient to what the head has left there: then it needs an array
                  of gradients, also where the other parts have theirs in scratch (set embedding.gradients). With a
                  done_fn that is the tokens' only, and positions have theirs in scratch. done_fn comes last, when both
                  have added theirs. */
#ifndef PARTS_EMBEDDING_H
#define PARTS_EMBEDDING_H
#include "transformer.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

enum { TRANSFORMER_TOKENS, TRANSFORMER_POSITIONS };

static inline size_t transformer_positions(const transformer *t) {
    return t->positions ? t->positions : t->length;
}

/* Fills in the list, and returns the elements of all of it. */
static inline size_t transformer_embedding_tensors(const transformer *t, transformer_tensor *list) {
    transformer_list(list, TRANSFORMER_TOKENS, "tokens", transformer_padded(t), t->width);
    transformer_list(list, TRANSFORMER_POSITIONS, "positions", t->rotary ? 0 : transformer_positions(t),
                     t->width);
    return list[TRANSFORMER_POSITIONS].first + list[TRANSFORMER_POSITIONS].count;
}

static inline memopt_embedding transformer_embedding(const transformer_work *w) {
    const transformer *t = w->shape;
    memopt_embedding e;

    memset(&e, 0, sizeof e);
    e.rows = transformer_rows(t);
    e.width = t->width;
    e.vocabulary = t->vocabulary;
    e.length = t->row_positions ? transformer_positions(t) : t->length;
    e.type = t->type;
    e.weight_type = t->weight_type;
    e.gradient_type = t->gradient_type;
    e.ids = (const int32_t *)w->call->input;
    e.tokens = transformer_weights(w, TRANSFORMER_TOKENS);
    e.positions = transformer_weights(w, TRANSFORMER_POSITIONS);
    e.places = t->rotary ? NULL : t->row_positions;
    return e;
}

static inline memopt_status transformer_embedding_forward(const memopt_tape_call *call) {
    transformer_work w = transformer_begin(call, transformer_embedding_tensors, 0);
    memopt_embedding e = transformer_embedding(&w);

    w.ops = memopt_ops_in(call, &w.shape->ops);
    e.output = call->output;
    return memopt_embedding_forward(&w.ops, &e);
}

static inline memopt_status transformer_embedding_backward(const memopt_tape_call *call) {
    transformer_work w = transformer_begin(call, transformer_embedding_tensors, 1);
    memopt_embedding e = transformer_embedding(&w);
    const size_t positions = w.list[TRANSFORMER_POSITIONS].count * memopt_type_bytes(e.gradient_type);
    memopt_status s;

    if (w.part->is_frozen) return MEMOPT_OK;
    if (!w.shape->untied && !w.part->gradients)
        return transformer_refuse(call, "a tied embedding has no array of gradients, where the head's lie, too");
    if (!w.shape->untied && w.shape->done_fn)
        w.gradients[TRANSFORMER_POSITIONS] = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, positions);
    w.ops = memopt_ops_in(call, &w.shape->ops);
    e.grad_output = call->grad_output;
    e.grad_tokens = w.gradients[TRANSFORMER_TOKENS];
    e.accumulate = !w.shape->untied || w.shape->accumulate; /* tied: onto what the head has left */
    s = memopt_embedding_backward(&w.ops, &e);
    e.grad_tokens = NULL;
    e.grad_positions = w.gradients[TRANSFORMER_POSITIONS];
    e.accumulate = w.shape->accumulate;
    if (!s && e.grad_positions && !e.accumulate && !call->describing)
        s = transformer_zero(&w.ops, e.grad_positions, positions);
    if (!s && e.grad_positions) s = memopt_embedding_backward(&w.ops, &e);
    return transformer_done(&w, s);
}

static inline void transformer_add_embedding(transformer_chain *c, transformer_part *embedding) {
    memopt_segment *segment = transformer_add(c, embedding, transformer_embedding_tensors,
                                              transformer_embedding_forward, transformer_embedding_backward,
                                              transformer_bytes(c->shape, c->shape->width));

    if (!c->front) segment->grad_bytes = segment->output_bytes;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
