/* block.h - a pre-norm transformer block as two segments of a tape: x + project(attention(norm(x))), and then
   x + down(activation(up(norm(x)))).

   What it keeps  Queries, keys, values and the attended rows; what goes into the activation. Norms, activations and
                  dropout are made again: they cost next to nothing. In planes of batch * length * width elements, with
                  as many kv_heads as heads and hidden = 4 * width:
                                  kept beside the output   scratch of a backward
                      attention   4                        3, and 8 bytes a row
                      GELU MLP    4                        5, and 8 bytes a row
                      gated MLP   8                        5, and 8 bytes a row
                  Scratch of the operators comes on top (mostly the gemm's), and the gradients of the part's weights
                  where it has no array for them. On a card attention of 16 bits keeps 4 bytes for each row and head
                  more, and its scratch is 4 planes: below the MLP's.
                  The gradient of the residual stream is turned in place: one plane, whatever the depth. Of a block that
                  ends a chain the gradient that you hand in is written over; set grad_in_place of its segment to 0 to
                  keep it. With mlp_chunk rows at a time the MLP keeps nothing
                  beside its output, and its scratch is 9 or 13 planes of so many rows.
                  With adapters: 4 bytes for each row and number of the rank (of each piece) more in forward's
                  scratch, 8 in backward's.
   What it costs  A backward computes the norm, the activation and the scores of attention once more; no product with
                  weights is made twice; with mlp_chunk, the first one of the MLP is. Where adapters are trained it
                  makes none for gradients of weights, but five of their rank for each adapter.
   How to use     See transformer.h: transformer_add_block(&chain, &block). Its weights, the attention half's and then
                  the MLP half's, are one array. QKV has the rows of the queries, head by head, then of the keys, then
                  of the values; UP, with SwiGLU or GeGLU, the rows of the gate, then of up. Rotary pairs are i and
                  i + half, as in Llama's checkpoints from Hugging Face. Dropout is that of the residual stream; attention
                  has none of its own, and works by whole rows of scores. Another one can take its place: see
                  transformer_attention_fns. */
#ifndef PARTS_BLOCK_H
#define PARTS_BLOCK_H
#include "layers.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct transformer_block {
    transformer_part attention, mlp;
} transformer_block;

/* ---- shapes and parameters ---- */
static inline size_t transformer_head_width(const transformer *t) {
    if (t->head_width) return t->head_width;
    return t->heads ? t->width / t->heads : 0; /* 0: refused by the attention operator */
}

static inline size_t transformer_attended_width(const transformer *t) {
    return t->head_width ? t->heads * t->head_width : t->width;
}

static inline size_t transformer_kv_width(const transformer *t) {
    return (t->kv_heads ? t->kv_heads : t->heads) * transformer_head_width(t);
}

static inline size_t transformer_qkv_width(const transformer *t) {
    return transformer_attended_width(t) + 2 * transformer_kv_width(t);
}

/* Room for such rows that serves rows of the residual stream as well. */
static inline size_t transformer_plane(const transformer *t, size_t columns) {
    return columns > t->width ? columns : t->width;
}

static inline int transformer_is_gated(const transformer *t) {
    return t->swiglu || t->geglu;
}

static inline size_t transformer_up_width(const transformer *t) {
    return transformer_hidden(t) * (transformer_is_gated(t) ? 2 : 1);
}

static inline size_t transformer_half_tensors(const transformer *t, transformer_tensor *list, const char *const *names,
                                              size_t outputs, size_t inputs, int first_bias) {
    const size_t c = t->width;

    transformer_list(list, 0, names[0], c, 0);
    transformer_list(list, 1, names[1], t->rms ? 0 : c, 0);
    transformer_list(list, 2, names[2], outputs, c);
    transformer_list(list, 3, names[3], first_bias ? outputs : 0, 0);
    transformer_list(list, 4, names[4], c, inputs);
    transformer_list(list, 5, names[5], t->no_bias ? 0 : c, 0);
    return list[5].first + list[5].count;
}

static inline size_t transformer_attention_tensors(const transformer *t, transformer_tensor *list) {
    static const char *const names[6] = { "norm1 scale", "norm1 shift", "qkv", "qkv bias", "project", "project bias" };

    (void)transformer_half_tensors(t, list, names, transformer_qkv_width(t), transformer_attended_width(t),
                                   !t->no_bias || t->qkv_bias);
    transformer_list(list, TRANSFORMER_QUERY_NORM, "query norm", t->qk_norm ? transformer_head_width(t) : 0, 0);
    transformer_list(list, TRANSFORMER_KEY_NORM, "key norm", t->qk_norm ? transformer_head_width(t) : 0, 0);
    return list[TRANSFORMER_KEY_NORM].first + list[TRANSFORMER_KEY_NORM].count;
}

static inline size_t transformer_mlp_tensors(const transformer *t, transformer_tensor *list) {
    static const char *const names[6] = { "norm2 scale", "norm2 shift", "up", "up bias", "down", "down bias" };

    return transformer_half_tensors(t, list, names, transformer_up_width(t), transformer_hidden(t), !t->no_bias);
}

/* ---- the attention half ---- */
/* Norms of heads: qkv stays as it is for the backward, and what they make lies in rows as wide. */
static inline size_t transformer_normed_heads(const transformer *t) { /* queries, then keys */
    return t->qk_norm ? t->heads + (t->kv_heads ? t->kv_heads : t->heads) : 0;
}

static inline memopt_norm transformer_head_norm(const transformer_work *w, size_t head, const void *qkv, void *output,
                                                float *statistics) {
    const transformer *t = w->shape;
    const size_t at = head * transformer_head_width(t);
    memopt_norm n = transformer_norm(w, 0, transformer_at(qkv, at, t->type), transformer_at(output, at, t->type),
                                     statistics ? statistics + 2 * w->rows * head : NULL);

    n.width = transformer_head_width(t);
    n.stride = transformer_qkv_width(t);
    n.rms = 1;
    n.scale = transformer_weights(w, head < t->heads ? TRANSFORMER_QUERY_NORM : TRANSFORMER_KEY_NORM);
    n.shift = NULL;
    return n;
}

static inline memopt_status transformer_heads_forward(const transformer_work *w, const void *qkv, void *normed,
                                                      float *statistics) {
    memopt_status s = MEMOPT_OK;
    size_t head;

    for (head = 0; head < transformer_normed_heads(w->shape) && !s; ++head) {
        const memopt_norm n = transformer_head_norm(w, head, qkv, normed, statistics);

        s = memopt_norm_forward(&w->ops, &n);
    }
    return s;
}

typedef struct transformer_heads { /* all of them, of all rows */
    const transformer_work *whole;
    const void *qkv;
    float      *statistics;
    void       *grads; /* in place */
} transformer_heads;

static inline memopt_status transformer_heads_rows(const transformer_work *w, size_t i, size_t row, const void *args) {
    const transformer_heads *x = (const transformer_heads *)args;
    const transformer *t = w->shape;
    memopt_status s = MEMOPT_OK;
    size_t head;

    for (head = 0; head < transformer_normed_heads(t) && !s; ++head) {
        memopt_norm n = transformer_head_norm(x->whole, head, x->qkv, NULL, x->statistics);

        n.rows = w->rows;
        n.input = transformer_at(n.input, row * n.stride, t->type);
        n.statistics = (float *)transformer_at(n.statistics, 2 * row, MEMOPT_TYPE_F32);
        n.grad_output = n.grad_input = transformer_at(x->grads, row * n.stride + head * n.width, t->type);
        n.grad_scale = w->gradients[head < t->heads ? i : i + 1];
        n.accumulate = transformer_accumulates(w) || (head && head != t->heads);
        s = memopt_norm_backward(&w->ops, &n);
    }
    return s;
}

static inline memopt_status transformer_heads_backward(const transformer_work *w, const void *qkv, float *statistics,
                                                       void *grads) {
    transformer_heads x;

    x.whole = w;
    x.qkv = qkv;
    x.statistics = statistics;
    x.grads = grads;
    return transformer_sum_rows(w, TRANSFORMER_QUERY_NORM, transformer_heads_rows, &x);
}

/* Queries and keys lie side by side in a row: they are rotated as the heads of both. */
static inline memopt_rotary transformer_rotary(const transformer *t) {
    memopt_rotary r;

    memset(&r, 0, sizeof r);
    r.rows = transformer_own_rows(t);
    r.heads = t->heads + (t->kv_heads ? t->kv_heads : t->heads);
    r.width = transformer_head_width(t);
    r.stride = transformer_qkv_width(t);
    r.base = t->rotary_base;
    r.frequencies = t->rotary_frequencies;
    r.magnitude = t->rotary_magnitude;
    r.positions = t->row_positions ? t->row_positions + transformer_first_row(t) : NULL;
    r.length = t->row_positions ? 0 : t->length;
    r.type = t->type;
    return r;
}

/* turned: where queries and keys are, as attention takes them; the values are in qkv. */
static inline memopt_attention transformer_attention(const transformer *t, void *turned, void *qkv) {
    memopt_attention a;

    memset(&a, 0, sizeof a);
    a.batch = transformer_by_length(t) ? 1 : t->batch;
    a.length = transformer_by_length(t) ? transformer_own_rows(t) : t->length;
    a.heads = t->heads;
    a.kv_heads = t->kv_heads;
    a.width = transformer_head_width(t);
    a.causal = !t->not_causal;
    a.window = t->window;
    a.documents = t->documents;
    a.starts = t->starts;
    a.type = t->type;
    a.queries = turned;
    a.keys = transformer_at(turned, transformer_attended_width(t), t->type);
    a.values = transformer_at(qkv, transformer_attended_width(t) + transformer_kv_width(t), t->type);
    a.query_stride = a.kv_stride = transformer_qkv_width(t);
    return a;
}

/* Statistics of rows, where attention has a use for them. 1: the attended rows are kept for the backward as well. */
static inline int transformer_take_attention_statistics(const transformer_work *w, memopt_attention *a) {
    const transformer *t = w->shape;

    if (t->attention) return t->attention->keeps_output;
    if (!transformer_keeps_statistics(&t->ops, a)) return 0;
    a->online = 1;
    if (w->call->saves)
        a->statistics = (float *)memopt_tape_take(w->call, MEMOPT_TAPE_SAVED, w->rows * t->heads * sizeof(float));
    return 1;
}

static inline memopt_status transformer_attention_forward(const memopt_tape_call *call) {
    transformer_work w = transformer_begin(call, transformer_attention_tensors, 0);
    const transformer *t = w.shape;
    void *qkv = transformer_take(&w, MEMOPT_TAPE_SAVED, transformer_qkv_width(t));
    /* until then, the normed rows */
    void *attended = transformer_take(&w, MEMOPT_TAPE_SAVED, transformer_plane(t, transformer_attended_width(t)));
    void *turned = t->qk_norm ? transformer_take(&w, MEMOPT_TAPE_SCRATCH, transformer_qkv_width(t)) : qkv;
    const memopt_linear linear = transformer_linear(&w, TRANSFORMER_QKV, attended, qkv);
    memopt_rotary rotary = transformer_rotary(t);
    memopt_attention attention = transformer_attention(t, turned, qkv);
    void *room[2] = { NULL, NULL };
    memopt_status s;

    if (!t->head_width && t->heads && t->width % t->heads)
        return transformer_refuse(call, "heads do not divide the width");
    (void)transformer_take_attention_statistics(&w, &attention);
    if (t->attention) t->attention->take_fn(call, &attention, room);
    transformer_take_low(&w);
    w.ops = memopt_ops_in(call, &t->ops);
    rotary.input = rotary.output = turned;
    attention.output = attended;
    s = transformer_norm_forward(&w, TRANSFORMER_NORM_SCALE, call->input, attended, NULL);
    if (!s) s = transformer_linear_forward(&w, TRANSFORMER_QKV, &linear);
    if (!s) s = transformer_heads_forward(&w, qkv, turned, NULL);
    if (!s && t->rotary) s = memopt_rotary_forward(&w.ops, &rotary);
    if (s) return s;
    s = t->attention ? t->attention->run_fn(call, &w.ops, &attention, room)
                     : memopt_attention_forward(&w.ops, &attention);
    return s ? s : transformer_half_forward(&w, attended);
}

static inline memopt_status transformer_attention_backward(const memopt_tape_call *call) {
    transformer_work w = transformer_begin(call, transformer_attention_tensors, 1);
    const transformer *t = w.shape;
    void *qkv = transformer_take(&w, MEMOPT_TAPE_SAVED, transformer_qkv_width(t));
    void *attended = transformer_take(&w, MEMOPT_TAPE_SAVED, transformer_plane(t, transformer_attended_width(t)));
    void *grad_qkv = transformer_take(&w, MEMOPT_TAPE_SCRATCH, transformer_plane(t, transformer_qkv_width(t)));
    float *statistics = transformer_take_statistics(&w);
    void *turned = t->qk_norm ? transformer_take(&w, MEMOPT_TAPE_SCRATCH, transformer_qkv_width(t)) : qkv;
    float *of_heads = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH,
                                                2 * w.rows * transformer_normed_heads(t) * sizeof(float));
    memopt_rotary rotary = transformer_rotary(t);
    memopt_attention attention = transformer_attention(t, turned, qkv);
    const int kept = transformer_take_attention_statistics(&w, &attention);
    void *grad_attended = kept ? transformer_take(&w, MEMOPT_TAPE_SCRATCH, transformer_attended_width(t)) : attended;
    void *room[2] = { NULL, NULL };
    const void *grad;
    memopt_status s;

    if (t->attention) t->attention->take_fn(call, &attention, room);
    transformer_take_low(&w);
    transformer_take_levels(&w);
    w.ops = memopt_ops_in(call, &t->ops);
    s = transformer_half_backward(&w, grad_qkv, &grad); /* attended becomes its own gradient, unless it is kept: */
    if (!s) s = transformer_linear_backward(&w, TRANSFORMER_PROJECT, attended, grad, grad_attended);
    if (!s) s = transformer_heads_forward(&w, qkv, turned, of_heads);
    rotary.input = rotary.output = turned;
    if (!s && t->rotary && t->qk_norm) s = memopt_rotary_forward(&w.ops, &rotary);
    if (s) return s;
    if (kept) attention.output = attended;
    attention.grad_output = grad_attended;
    attention.grad_queries = grad_qkv;
    attention.grad_keys = transformer_at(grad_qkv, transformer_attended_width(t), t->type);
    attention.grad_values = transformer_at(grad_qkv, transformer_attended_width(t) + transformer_kv_width(t), t->type);
    s = t->attention ? t->attention->run_fn(call, &w.ops, &attention, room)
                     : memopt_attention_backward(&w.ops, &attention);
    rotary.grad_output = rotary.grad_input = grad_qkv;
    if (!s && t->rotary) s = memopt_rotary_backward(&w.ops, &rotary);
    if (!s) s = transformer_heads_backward(&w, qkv, of_heads, grad_qkv);
    if (!s) s = transformer_norm_forward(&w, TRANSFORMER_NORM_SCALE, call->input, attended, statistics);
    if (!s)
        s = transformer_linear_backward(&w, TRANSFORMER_QKV, attended, grad_qkv,
                                        transformer_reaches_back(&w) ? attended : NULL);
    if (!s) s = transformer_half_end(&w, statistics, attended);
    return transformer_done(&w, s);
}

/* ---- the MLP half ---- */
/* The same struct serves forward and backward, as of every operator. */
static inline memopt_swiglu transformer_gated(const transformer_work *w, void *up, void *hidden) {
    memopt_swiglu x;

    memset(&x, 0, sizeof x);
    x.rows = w->rows;
    x.width = transformer_hidden(w->shape);
    x.type = w->shape->type;
    x.input = x.grad_input = up; /* in place */
    x.output = hidden;
    x.grad_output = hidden;
    return x;
}

static inline memopt_activation_args transformer_gelu(const transformer_work *w, void *up, void *hidden) {
    memopt_activation_args x;

    memset(&x, 0, sizeof x);
    x.n = w->rows * transformer_hidden(w->shape);
    x.activation = MEMOPT_ACTIVATION_GELU;
    x.type = w->shape->type;
    x.input = up;
    x.output = hidden;
    x.grad_output = x.grad_input = hidden; /* in place */
    return x;
}

static inline memopt_status transformer_activation(const transformer_work *w, void *up, void *hidden) {
    const memopt_swiglu gated = transformer_gated(w, up, hidden);
    const memopt_activation_args gelu = transformer_gelu(w, up, hidden);

    return w->shape->geglu  ? memopt_geglu_forward(&w->ops, &gated)
         : w->shape->swiglu ? memopt_swiglu_forward(&w->ops, &gated)
                            : memopt_activation_forward(&w->ops, &gelu);
}

/* From the gradient of the rows after DOWN to that at up: a gated one comes to lie at up, GELU's, inside the product,
   at hidden. */
static inline memopt_status transformer_down_backward(const transformer_work *w, const void *grad, void *up,
                                                      void *hidden) {
    const memopt_activation inside = transformer_is_gated(w->shape) ? MEMOPT_ACTIVATION_NONE : MEMOPT_ACTIVATION_GELU;
    memopt_swiglu gated = transformer_gated(w, up, hidden);
    memopt_status s = transformer_linear_backward_through(w, TRANSFORMER_DOWN, hidden, grad, hidden, inside, up);

    gated.output = NULL;
    if (s || !transformer_is_gated(w->shape)) return s;
    return w->shape->geglu ? memopt_geglu_backward(&w->ops, &gated) : memopt_swiglu_backward(&w->ops, &gated);
}

/* Does a forward write what goes into GELU also where nobody wants it? A product that does not may add up in another
   order on a device; and what is kept, or which ranks make which forwards again, is to change no bit. */
static inline int transformer_same_products(const transformer *t) {
    return !transformer_rows_are_alone(&t->ops);
}

/* Rows at a time: a multiple of 32, because sums over rows are made of groups of 32. */
static inline size_t transformer_mlp_rows(const transformer *t) {
    const size_t rows = transformer_own_rows(t);
    const size_t chunk = t->mlp_chunk && t->mlp_chunk < rows ? (t->mlp_chunk + 31) / 32 * 32 : rows;

    return chunk < rows ? chunk : rows;
}

/* On to the rows of chunk number *chunk, which is counted on; 0: there are none. A description needs the first ones
   only; without rows there is a chunk of none, whose gradients of weights are 0. */
static inline int transformer_mlp_next(transformer_work *w, size_t *chunk) {
    const size_t rows = transformer_own_rows(w->shape), most = transformer_mlp_rows(w->shape);

    w->row = *chunk * most;
    if (*chunk && (w->row >= rows || w->call->describing)) return 0;
    w->rows = rows - w->row < most ? rows - w->row : most;
    ++*chunk;
    return 1;
}

static inline memopt_status transformer_mlp_rows_forward(const transformer_work *w, void *up, void *hidden) {
    void *normed = transformer_row(w, w->call->output); /* until the result */
    const int inside = !transformer_is_gated(w->shape) && !w->part->rank;
    memopt_linear linear = transformer_linear(w, TRANSFORMER_UP, normed, inside ? hidden : up);
    memopt_status s = transformer_norm_forward(w, TRANSFORMER_NORM_SCALE, transformer_row(w, w->call->input), normed,
                                               NULL);

    if (inside) { /* GELU inside the product; what goes into it is only kept for a backward */
        linear.activation = MEMOPT_ACTIVATION_GELU;
        linear.pre_activation = up;
    }
    if (!s) s = transformer_linear_forward(w, TRANSFORMER_UP, &linear);
    if (!s && !inside) s = transformer_activation(w, up, hidden);
    return s ? s : transformer_half_forward(w, hidden);
}

static inline memopt_status transformer_mlp_forward(const memopt_tape_call *call) {
    transformer_work w = transformer_begin(call, transformer_mlp_tensors, 0);
    const transformer *t = w.shape;
    const int whole = transformer_mlp_rows(t) == w.rows;
    const int kept = whole && call->saves;
    const int written = kept || transformer_is_gated(t) || w.part->rank || transformer_same_products(t);
    size_t chunk = 0;
    void *up, *hidden;
    memopt_status s = MEMOPT_OK;

    if (t->swiglu && t->geglu) return transformer_refuse(call, "swiglu and geglu are both set");
    w.rows = transformer_mlp_rows(t);
    up = transformer_take(&w, kept ? MEMOPT_TAPE_SAVED : MEMOPT_TAPE_SCRATCH, written ? transformer_up_width(t) : 0);
    hidden = transformer_take(&w, MEMOPT_TAPE_SCRATCH, transformer_hidden(t));
    transformer_take_low(&w);
    w.ops = memopt_ops_in(call, &t->ops);
    while (!s && transformer_mlp_next(&w, &chunk)) s = transformer_mlp_rows_forward(&w, up, hidden);
    return s;
}

/* up: what went into the activation, or, with `again`, room for it. */
static inline memopt_status transformer_mlp_rows_backward(const transformer_work *w, void *up, int again, void *hidden,
                                                          void *plane, float *statistics) {
    const memopt_linear linear = transformer_linear(w, TRANSFORMER_UP, plane, up);
    const void *input = transformer_row(w, w->call->input);
    const void *grad;
    memopt_status s = MEMOPT_OK;

    if (again) s = transformer_norm_forward(w, TRANSFORMER_NORM_SCALE, input, plane, NULL);
    if (!s && again) s = transformer_linear_forward(w, TRANSFORMER_UP, &linear);
    if (!s) s = transformer_half_backward(w, plane, &grad);
    if (!s) s = transformer_activation(w, up, hidden); /* hidden is made again, and becomes its own gradient: */
    if (!s) s = transformer_down_backward(w, grad, up, hidden);
    if (!s) s = transformer_norm_forward(w, TRANSFORMER_NORM_SCALE, input, plane, statistics);
    if (!s)
        s = transformer_linear_backward(w, TRANSFORMER_UP, plane, transformer_is_gated(w->shape) ? up : hidden, plane);
    return s ? s : transformer_half_end(w, statistics, plane);
}

static inline memopt_status transformer_mlp_backward(const memopt_tape_call *call) {
    transformer_work w = transformer_begin(call, transformer_mlp_tensors, 1);
    const transformer *t = w.shape;
    const int again = transformer_mlp_rows(t) < w.rows;
    size_t chunk = 0;
    void *up, *hidden, *plane;
    float *statistics;
    memopt_status s = MEMOPT_OK;

    w.rows = transformer_mlp_rows(t);
    up = transformer_take(&w, again ? MEMOPT_TAPE_SCRATCH : MEMOPT_TAPE_SAVED, transformer_up_width(t));
    hidden = transformer_take(&w, MEMOPT_TAPE_SCRATCH, transformer_hidden(t));
    plane = transformer_take(&w, MEMOPT_TAPE_SCRATCH, t->width);
    statistics = transformer_take_statistics(&w);
    transformer_take_low(&w);
    transformer_take_levels(&w);
    w.ops = memopt_ops_in(call, &t->ops);
    while (!s && transformer_mlp_next(&w, &chunk))
        s = transformer_mlp_rows_backward(&w, up, again, hidden, plane, statistics);
    return transformer_done(&w, s);
}

/* ---- both as segments of a chain ---- */
/* again: what its backward makes again, as a share of the forward's products with weights and of its scores. */
static inline void transformer_add_half(transformer_chain *c, transformer_part *part,
                                        transformer_tensors_fn *tensors_fn, memopt_tape_fn *forward_fn,
                                        memopt_tape_fn *backward_fn, double scores, double again) {
    const transformer *t = c->shape;
    const size_t first = c->elements + c->code_elements, first_adapter = c->adapter_elements;
    memopt_segment *segment = transformer_add_part(c, part, 1, tensors_fn, forward_fn, backward_fn,
                                                   transformer_bytes(t, t->width));
    const double rows = (double)transformer_own_rows(t);
    const double products = rows * (double)(c->elements + c->code_elements - first);
    const double adapters = rows * (double)(c->adapter_elements - first_adapter);

    segment->forward_cost = products + adapters + scores;
    if (c->front) return;
    segment->grad_bytes = segment->output_bytes;
    segment->grad_in_place = 1;
    segment->backward_cost = (part->is_frozen ? 1 : 2) * products + 3 * adapters + 2 * scores
                           + again * (scores > 0 ? scores : products);
}

static inline void transformer_add_block(transformer_chain *c, transformer_block *block) {
    const transformer *t = c->shape;
    const size_t seen = t->window && t->window < t->length ? t->window : t->length;
    const double scores = (double)transformer_own_rows(t) * (double)seen * (double)transformer_attended_width(t)
                        * (t->not_causal || seen < t->length ? 2 : 1);

    block->attention.pieces = 3;
    block->attention.piece_outputs[0] = transformer_attended_width(t);
    block->attention.piece_outputs[1] = block->attention.piece_outputs[2] = transformer_kv_width(t);
    block->mlp.pieces = transformer_is_gated(t) ? 2 : 1;
    block->mlp.piece_outputs[0] = block->mlp.piece_outputs[1] = transformer_hidden(t);
    transformer_add_half(c, &block->attention, transformer_attention_tensors, transformer_attention_forward,
                         transformer_attention_backward, scores, t->attention ? 0 : 0.5);
    transformer_add_half(c, &block->mlp, transformer_mlp_tensors, transformer_mlp_forward, transformer_mlp_backward, 0,
                         transformer_mlp_rows(t) < transformer_own_rows(t) ? 0.5 : 0);
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
