/* tensor.h - a transformer cut by width among ranks (tensor parallelism), with the same bits for any number of them.

   What it is     Each rank has some heads of every attention, some columns of every MLP, some rows of the embedding and
                  of the head; the residual stream, norms and dropout are cut by rows: a rank has 1 / ranks of what is
                  kept there. Between the two, rows are gathered; and behind the products whose sums are cut, each rank
                  gets the sums of its rows.
   Same bits      A model is cut into `parts`, a number of its description, not into ranks: each of them makes what
                  belongs to its parts, one part like another. A sum over what is cut is always one of so many parts,
                  added as a tree: pairs, pairs of pairs. A rank has a branch of it. So one rank, two and eight give the
                  same losses, gradients and weights, if they have the same `parts`. Another number of parts is another
                  order of additions, and rounds otherwise.
   What it keeps  Of a block, in planes of rows * width / ranks: the stream, 1, and what block.h keeps beside it.
   Scratch        A plane of all rows for the gathered ones; what block.h uses, over ranks; and for sums TENSOR_ROWS
                  rows of floats for each rank, twice, and some more for each worker.
   What it costs  A forward of a half gathers rows once, its backward twice, and both hand out sums: 3 calls of
                  rows * width * (ranks - 1) / ranks elements of `type`, 2 of as many floats; tensor_sends() tells the
                  bytes. A recomputed half gathers and hands out once more. With several parts on a rank: a product
                  more for each, of less depth, and additions, see tests/bench/results/parallel.md.
   How to use     Set shape.cut, and add parts by the functions here in place of those of embedding.h, block.h, head.h:
                      transformer_cut cut = { 8, rank, ranks, comm };
                      shape.cut = &cut;
                      tensor_add_embedding(&chain, &embedding); tensor_add_block(&chain, &blocks[i]); ...
                      tensor_add_head(&chain, &head, &embedding);
                  All ranks call the tape in the same way, with the ids and targets of all rows. A tensor that is cut is
                  `parts` tensors for an optimizer, numbered alike on all ranks, which hold their own; whole ones
                  (norms, biases behind a sum, positions) all ranks hold, with the same gradients. tensor_copy() tells
                  where a piece lies in the tensor of block.h. The norm of all gradients: memopt_shard_measure(),
                  where the others of its desc are these ranks. A rank that fails calls memopt_comm_abort(): then all
                  others fail as well, and none waits for it.
                  float32 gradients; no adapters, codes, mlp_chunk, attention of your own, classes. By length, with
                  cut.by_length, the ends are these, too: see ring.h.
   On a device    Behind device.h it is the same on cards, with a comm that moves bytes of the device. Sums are handed
                  out by the rows of a part, so that no product has another shape for another number of ranks: they all
                  have the same bits, which are not those of the CPU. Attention of 16 bits keeps no statistics for its
                  backward. See tensor_device.h for ids and targets.
   Source         Shoeybi et al., Megatron-LM (2019); Korthikanti et al., Reducing activation recomputation (2022). */
#ifndef PARTS_TENSOR_H
#define PARTS_TENSOR_H
#include "block.h"
#include "embedding.h"
#include "head.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

enum { TENSOR_LEVELS = 16 }; /* of a tree: more parts than anybody has */

static inline size_t tensor_least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* ---- what a CPU does by itself; tensor_device.h has the same of a device ---- */
#ifdef PARTS_DEVICE_H
#  include "tensor_device.h"
#else
enum { TENSOR_ROWS = 384, TENSOR_COLUMNS = 768 }; /* of a worker's turn: the gemm's own */

static inline const char *tensor_device_problem(const transformer *t) {
    (void)t;
    return NULL;
}

static inline size_t tensor_block_rows(const transformer *t) {
    (void)t;
    return TENSOR_ROWS;
}

static inline size_t tensor_block_columns(const transformer *t) {
    (void)t;
    return TENSOR_COLUMNS;
}

static inline size_t tensor_workers(const transformer_ops *ops) {
    return ops->threads && ops->threads->run_fn && ops->threads->worker_count > 1
         ? (size_t)ops->threads->worker_count : 1;
}

/* Turns of workers, each of which tells its own status. */
static inline void tensor_each(const transformer_ops *ops, size_t turns, memopt_task_fn *fn, void *task) {
    size_t i;

    if (tensor_workers(ops) > 1) ops->threads->run_fn(ops->threads->user, turns, fn, task);
    else for (i = 0; i < turns; ++i) fn(task, i, 0);
}

/* The scratch of products, in a dry run. */
static inline memopt_status tensor_count_products(const transformer_ops *ops) {
    memopt_gemm gemm;
    const memopt_status s = memopt_gemm_resolve(&ops->gemm, &gemm);
    const size_t bytes = s ? 0 : tensor_workers(ops) * transformer_up(gemm.scratch_bytes, 64);

    if (*ops->count_scratch < bytes) *ops->count_scratch = bytes;
    return s;
}

/* By a worker alone, or, SIZE_MAX, by all of them. */
static inline memopt_status tensor_multiply(const transformer_ops *ops, const memopt_product *q, size_t worker) {
    memopt_gemm gemm;
    const memopt_status s = memopt_gemm_resolve(&ops->gemm, &gemm);
    const size_t at = worker == SIZE_MAX || s ? 0 : worker * transformer_up(gemm.scratch_bytes, 64);

    return s ? s : gemm.multiply_fn(gemm.user, q, worker == SIZE_MAX ? ops->threads : NULL,
                                    (unsigned char *)ops->scratch + at);
}

static inline memopt_status tensor_round(const transformer_ops *ops, memopt_type type, void *to, const float *from,
                                          size_t n) {
    if (type == MEMOPT_TYPE_BF16) return memopt_bf16_from_f32((uint16_t *)to, from, n, ops->threads);
    if (type == MEMOPT_TYPE_F16) return memopt_f16_from_f32((uint16_t *)to, from, n, ops->threads);
    memcpy(to, from, n * sizeof *from);
    return MEMOPT_OK;
}

static inline void tensor_add_bias(float *sums, const void *bias, memopt_type type, size_t rows, size_t columns) {
    float some[256];
    size_t at, n, r;

    for (at = 0; at < columns; at += n) {
        n = tensor_least(columns - at, 256);
        if (type == MEMOPT_TYPE_F32) memcpy(some, (const float *)bias + at, n * sizeof *some);
        else if (type == MEMOPT_TYPE_BF16) (void)memopt_f32_from_bf16(some, (const uint16_t *)bias + at, n, NULL);
        else (void)memopt_f32_from_f16(some, (const uint16_t *)bias + at, n, NULL);
        for (r = 0; r < rows; ++r) (void)transformer_plus(NULL, sums + r * columns + at, some, n);
    }
}

/* Sums of rows, with a bias or NULL, in `type`. */
static inline memopt_status tensor_store_rows(const transformer_ops *ops, const transformer *t, float *sums,
                                              size_t rows, const void *bias, void *to) {
    if (bias) tensor_add_bias(sums, bias, t->weight_type, rows, t->width);
    return tensor_round(ops, t->type, to, sums, rows * t->width);
}

static inline memopt_status tensor_check_ids(const memopt_tape_call *call, const int32_t *ids, size_t n,
                                             size_t vocabulary) {
    size_t r;

    for (r = 0; r < n; ++r)
        if (ids[r] < 0 || (size_t)ids[r] >= vocabulary)
            return transformer_refuse(call, "an id is not below the vocabulary");
    return MEMOPT_OK;
}

/* Ids among `count` tokens from `first` on; in place of the others the first of them, which nobody asks for. */
static inline memopt_status tensor_own_ids(const transformer_ops *ops, int32_t *to, const int32_t *ids, size_t n,
                                           size_t first, size_t count) {
    size_t r;

    (void)ops;
    for (r = 0; r < n; ++r) to[r] = (size_t)ids[r] - first < count ? (int32_t)((size_t)ids[r] - first) : 0;
    return MEMOPT_OK;
}

/* Of n rows where each is among those that ranks have sent, which have `count` tokens each. */
static inline memopt_status tensor_sent_ids(const transformer_ops *ops, int32_t *to, const int32_t *ids, size_t n,
                                            size_t count, size_t vocabulary) {
    size_t r;

    (void)ops;
    (void)vocabulary; /* they have been looked at */
    for (r = 0; r < n; ++r) to[r] = (int32_t)((size_t)ids[r] / count * n + r);
    return MEMOPT_OK;
}

/* For a backward: the rows of `plane` that asked for a token from `first` on come first, in their order. */
static inline memopt_status tensor_own_rows_first(const transformer_ops *ops, memopt_embedding *e, void *plane,
                                                  int32_t *to, size_t first) {
    const size_t bytes = e->width * memopt_type_bytes(e->type);
    unsigned char *rows = (unsigned char *)plane;
    size_t r, n = 0;

    (void)ops;
    for (r = 0; r < e->rows; ++r) {
        const size_t id = (size_t)e->ids[r] - first;

        if (id >= e->vocabulary) continue;
        if (n < r) memcpy(rows + n * bytes, rows + r * bytes, bytes);
        to[n++] = (int32_t)id;
    }
    e->rows = n;
    e->ids = to;
    return MEMOPT_OK;
}

static inline memopt_type tensor_logits_type(const transformer *t) {
    (void)t;
    return MEMOPT_TYPE_F32;
}

/* Gradients of logits, which are floats, in `type`, which is never wider: n of each part, behind those before it. */
static inline memopt_status tensor_narrow_logits(const transformer_ops *ops, const transformer *t, void *logits,
                                                 size_t p, size_t n) {
    const size_t size = memopt_type_bytes(t->type);
    const float *from = (const float *)logits + p * n;
    unsigned char *to = (unsigned char *)logits + p * n * size;
    uint16_t piece[512];
    size_t i, some;
    memopt_status s = MEMOPT_OK;

    for (i = 0; size < sizeof *from && i < n && !s; i += some) {
        some = tensor_least(n - i, 512);
        s = tensor_round(ops, t->type, piece, from + i, some);
        memcpy(to + i * size, piece, some * size);
    }
    return s;
}

static inline memopt_status tensor_count_targets(const memopt_tape_call *call, const int32_t *targets, size_t n,
                                                 size_t *count) {
    size_t r;

    (void)call;
    for (r = 0; r < n; ++r) *count += targets[r] >= 0;
    return MEMOPT_OK;
}

static inline memopt_status tensor_join_rows(const transformer_ops *ops, memopt_cross_entropy_row *rows, size_t count,
                                             size_t n) { /* as tensor_tree() */
    size_t half, i, r;

    (void)ops;
    for (half = 1; half < count; half *= 2)
        for (i = 0; i + half < count; i += 2 * half)
            for (r = 0; r < n; ++r)
                rows[i * n + r] = memopt_cross_entropy_join(rows[i * n + r], rows[(i + half) * n + r]);
    return MEMOPT_OK;
}

static inline memopt_status tensor_add_loss(const transformer_ops *ops, double *loss, const memopt_loss *of_rows,
                                            int is_first) {
    (void)ops;
    (void)is_first; /* it begins with 0 */
    *loss += of_rows->loss;
    return MEMOPT_OK;
}
#endif

/* ---- shapes ---- */
static inline size_t tensor_pieces(const transformer *t) { /* of a rank */
    return t->cut->parts / t->cut->rank_count;
}

static inline size_t tensor_own_rows(const transformer *t) {
    return transformer_rows(t) / t->cut->rank_count;
}

/* A part of a block: a narrow block, with all of the width in front of it and behind it. */
static inline transformer tensor_narrow(const transformer *t) {
    const size_t parts = t->cut->parts;
    transformer n = *t;

    n.cut = NULL;
    n.head_width = transformer_head_width(t);
    n.heads = t->heads / parts;
    n.kv_heads = (t->kv_heads ? t->kv_heads : t->heads) / parts;
    n.hidden = transformer_hidden(t) / parts;
    return n;
}

/* From the list of a part to that of a rank's parts: matrices side by side, what is whole as it is. */
static inline size_t tensor_widen(const transformer *t, transformer_tensor *list, size_t count) {
    size_t i, end = 0;

    for (i = 0; i < count; ++i) {
        list[i].pieces = transformer_is_cut(i) && list[i].count ? tensor_pieces(t) : 0;
        if (list[i].pieces) list[i].count *= list[i].pieces;
        list[i].first = end;
        end += list[i].count;
    }
    return end;
}

static inline size_t tensor_attention_tensors(const transformer *t, transformer_tensor *list) {
    const transformer n = tensor_narrow(t);

    (void)transformer_attention_tensors(&n, list);
    return tensor_widen(t, list, TRANSFORMER_KEY_NORM + 1);
}

static inline size_t tensor_mlp_tensors(const transformer *t, transformer_tensor *list) {
    const transformer n = tensor_narrow(t);

    (void)transformer_mlp_tensors(&n, list);
    return tensor_widen(t, list, TRANSFORMER_PROJECT_BIAS + 1);
}

static inline size_t tensor_vocabulary(const transformer *t) { /* rows of a part of the embedding */
    return transformer_padded(t) / t->cut->parts;
}

static inline size_t tensor_embedding_tensors(const transformer *t, transformer_tensor *list) {
    if (transformer_by_length(t)) return transformer_embedding_tensors(t, list);
    transformer_list(list, TRANSFORMER_TOKENS, "tokens", tensor_pieces(t) * tensor_vocabulary(t), t->width);
    list[TRANSFORMER_TOKENS].pieces = tensor_pieces(t);
    transformer_list(list, TRANSFORMER_POSITIONS, "positions", t->rotary ? 0 : transformer_positions(t), t->width);
    return list[TRANSFORMER_POSITIONS].first + list[TRANSFORMER_POSITIONS].count;
}

static inline size_t tensor_head_tensors(const transformer *t, transformer_tensor *list) {
    (void)transformer_head_tensors(t, list);
    if (t->untied && !transformer_by_length(t)) {
        list[TRANSFORMER_HEAD].count = tensor_pieces(t) * tensor_vocabulary(t) * t->width;
        list[TRANSFORMER_HEAD].pieces = tensor_pieces(t);
    }
    return list[TRANSFORMER_HEAD].first + list[TRANSFORMER_HEAD].count;
}

static inline const char *tensor_width_problem(const transformer *t) {
    const size_t parts = t->cut->parts;

    if (!t->heads || t->heads % parts) return "parts do not divide heads";
    if (t->kv_heads % parts) return "parts do not divide kv_heads";
    if (!t->head_width && t->width % t->heads) return "heads do not divide the width";
    if (transformer_hidden(t) % parts) return "parts do not divide the MLP";
    return t->attention ? "an attention of one's own is not cut" : NULL;
}

static inline const char *tensor_length_problem(const transformer *t) {
    if (!t->attention) return "no attention brings rows of ranks together";
    return t->accumulate || t->done_fn ? "what a rank has of gradients is a summand: no accumulate, no done_fn" : NULL;
}

/* Why a shape cannot be cut; NULL: it can. */
static inline const char *tensor_problem(const transformer *t) {
    const transformer_cut *c = t->cut;
    const memopt_comm_stats of = memopt_comm_get_stats(c ? c->comm : NULL);

    if (!c) return "the shape has no cut";
    if (!c->parts || (c->parts & (c->parts - 1)) || c->parts >> TENSOR_LEVELS) return "parts are no power of two";
    if (!c->rank_count || c->parts % c->rank_count) return "ranks do not divide the parts";
    if (c->rank >= c->rank_count) return "the rank is not below rank_count";
    if (c->comm && (of.rank != c->rank || of.rank_count != c->rank_count)) return "the comm is of other ranks";
    if (transformer_padded(t) % c->parts) return "parts do not divide the padded vocabulary";
    if (transformer_rows(t) % c->parts) return "parts do not divide the rows";
    if (t->gradient_type != MEMOPT_TYPE_F32) return "gradients are no floats";
    if (t->adapter_rank || t->quantized_block || t->mlp_chunk) return "adapters, codes and mlp_chunk are not cut";
    if (t->grain && !c->by_length && tensor_vocabulary(t) * t->width % t->grain)
        return "the grain does not divide parts of the head";
    if (t->vocabulary + tensor_vocabulary(t) <= transformer_padded(t)) return "a part of the vocabulary is all padding";
    if (t->swiglu && t->geglu) return "swiglu and geglu are both set";
    if (tensor_device_problem(t)) return tensor_device_problem(t);
    return c->by_length ? tensor_length_problem(t) : tensor_width_problem(t);
}

/* ---- what a callback works with ---- */
typedef struct tensor_work {
    transformer_work own;      /* the rows of this rank */
    transformer      narrow;   /* a part */
    size_t           pieces, rows, first; /* parts of this rank; rows of all ranks; the first of its own */
    size_t           sums;     /* elements of tensors that are whole */
    float           *leaves;   /* of a backward: their gradients, of each part and then of each rank */
    float           *send, *receive, *branches; /* for tensor_hand_out() */
    size_t           branch;   /* elements of one */
    memopt_status   *status, alone; /* of each worker; of the only one */
    size_t           turn, workers; /* rows of each rank in a turn of it */
    size_t           block_rows, block_columns; /* of a product */
} tensor_work;

/* Of a tensor that all ranks have: what this one computes with. */
static inline void tensor_find_own(tensor_work *x, size_t i) {
    transformer_tensor *l = &x->own.list[i];
    const size_t count = l->count / x->own.shape->cut->rank_count, first = x->own.shape->cut->rank * count;

    l->first += first;
    l->count = count;
    l->pieces = count ? x->pieces : 0;
    x->own.gradients[i] = transformer_at(x->own.gradients[i], first, MEMOPT_TYPE_F32);
}

/* Begin a callback of a shape that can be cut. */
static inline tensor_work tensor_begin(const memopt_tape_call *call, transformer_tensors_fn *tensors_fn, int backward) {
    tensor_work x;
    size_t i;

    memset(&x, 0, sizeof x);
    x.own = transformer_begin(call, tensors_fn, backward);
    x.narrow = tensor_narrow(x.own.shape);
    x.pieces = tensor_pieces(x.own.shape);
    x.rows = transformer_rows(x.own.shape);
    x.own.rows = tensor_own_rows(x.own.shape);
    x.first = x.own.shape->cut->rank * x.own.rows;
    x.workers = tensor_workers(&x.own.shape->ops);
    if (transformer_by_length(x.own.shape))
        tensor_find_own(&x, tensors_fn == tensor_embedding_tensors ? (size_t)TRANSFORMER_TOKENS
                                                                   : (size_t)TRANSFORMER_HEAD);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) if (!x.own.list[i].pieces) x.sums += x.own.list[i].count;
    return x;
}

static inline void *tensor_take(const tensor_work *x, memopt_tape_part part, size_t rows, size_t columns) {
    return memopt_tape_take(x->own.call, part, rows * columns * memopt_type_bytes(x->own.shape->type));
}

static inline float *tensor_take_floats(const tensor_work *x, size_t count) {
    return (float *)memopt_tape_take(x->own.call, MEMOPT_TAPE_SCRATCH, count * sizeof(float));
}

static inline size_t tensor_levels(const tensor_work *x) { /* of a rank's branch, above the result */
    size_t levels = 0;

    while ((size_t)1 << levels < x->pieces) ++levels;
    return levels;
}

/* The last that a callback takes: what it runs with, and room for its sums. */
static inline void tensor_ready(tensor_work *x, int backward) {
    const transformer *t = x->own.shape;
    const size_t ranks = t->cut->rank_count;

    x->block_rows = tensor_least(tensor_block_rows(t), x->rows);
    x->block_columns = tensor_least(tensor_block_columns(t), t->width);
    x->turn = tensor_least(x->own.rows, x->block_rows * (ranks > 1 ? 1 : x->workers));
    x->send = tensor_take_floats(x, ranks * x->turn * t->width);
    x->receive = ranks > 1 ? tensor_take_floats(x, ranks * x->turn * t->width) : x->send;
    x->branch = x->block_rows * x->block_columns;
    x->branches = tensor_take_floats(x, x->workers * tensor_levels(x) * x->branch);
    x->status = x->workers == 1 ? &x->alone
              : (memopt_status *)memopt_tape_take(x->own.call, MEMOPT_TAPE_SCRATCH, x->workers * sizeof *x->status);
    if (backward) x->leaves = tensor_take_floats(x, (x->pieces > ranks ? x->pieces : ranks) * x->sums);
    x->own.ops = memopt_ops_in(x->own.call, &t->ops);
}

/* Where part `p` has gradients: in pieces, and of what is whole in leaf p. */
static inline void tensor_place_gradients(const tensor_work *x, size_t p, void **gradients) {
    float *leaf = x->leaves ? x->leaves + p * x->sums : NULL;
    size_t i;

    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) {
        const transformer_tensor *l = &x->own.list[i];

        if (l->pieces)
            gradients[i] = transformer_at(x->own.gradients[i], p * transformer_step(x->own.shape, l), MEMOPT_TYPE_F32);
        else gradients[i] = l->count ? leaf : NULL;
        if (leaf && !l->pieces) leaf += l->count;
    }
}

/* Part `p` of this rank: all rows, its own piece of each matrix. */
static inline transformer_work tensor_part(const tensor_work *x, size_t p) {
    transformer_work w = x->own;
    size_t i;

    w.shape = &x->narrow;
    w.rows = x->rows;
    tensor_place_gradients(x, p, w.gradients);
    w.gradients[TRANSFORMER_PROJECT_BIAS] = NULL; /* of own rows: tensor_bias_backward() */
    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) {
        transformer_tensor *l = &w.list[i];

        if (!l->pieces) continue;
        l->first += p * transformer_step(x->own.shape, l);
        l->count /= l->pieces;
    }
    return w;
}

/* Plane `p` of those that parts have side by side. */
static inline void *tensor_plane(const tensor_work *x, const void *planes, size_t p, size_t columns) {
    return transformer_at(planes, p * x->rows * columns, x->own.shape->type);
}

static inline void *tensor_own(const tensor_work *x, const void *plane) { /* this rank's rows of a plane of all */
    return transformer_at(plane, x->first * x->own.shape->width, x->own.shape->type);
}

/* ---- calls ---- */
static inline memopt_status tensor_call(const tensor_work *x, memopt_comm_kind kind, size_t bytes, const void *send,
                                        void *receive) {
    memopt_comm *comm = x->own.shape->cut->comm;
    memopt_comm_call c;
    memopt_status s;

    if (x->own.call->describing || x->own.shape->cut->rank_count == 1) return MEMOPT_OK;
    if (!comm) return transformer_refuse(x->own.call, "the cut has no comm");
    memset(&c, 0, sizeof c);
    c.kind = kind;
    c.bytes = bytes;
    c.send = send;
    c.receive = receive;
    s = memopt_comm_run(comm, &c);
    if (s && x->own.call->error) *x->own.call->error = memopt_comm_error(comm);
    return s;
}

/* In place, `bytes` of each rank. */
static inline memopt_status tensor_gather(const tensor_work *x, void *all, size_t bytes) {
    return tensor_call(x, MEMOPT_COMM_ALL_GATHER, bytes,
                       (unsigned char *)all + x->own.shape->cut->rank * bytes, all);
}

static inline memopt_status tensor_gather_rows(const tensor_work *x, void *plane) {
    return tensor_gather(x, plane, x->own.rows * x->own.shape->width * memopt_type_bytes(x->own.shape->type));
}

/* ---- sums as trees ---- */
/* Of `count` arrays of n, `step` elements apart, into the first. */
static inline memopt_status tensor_tree(const tensor_work *x, float *arrays, size_t step, size_t count, size_t n) {
    memopt_status s = MEMOPT_OK;
    size_t half, i;

    for (half = 1; half < count; half *= 2)
        for (i = 0; i + half < count && !s; i += 2 * half)
            s = transformer_plus(&x->own.ops, arrays + i * step, arrays + (i + half) * step, n);
    return s;
}

/* The sum over parts of rows times a matrix, or its transpose, for the rows of all ranks; or floats that are there. */
typedef struct tensor_sum {
    const tensor_work *x;
    const void  *planes;      /* what is multiplied, of each part; NULL: `floats` are the sums of this rank's parts */
    const float *floats;
    const void  *weights;
    size_t       rows;        /* of a plane */
    size_t       depth, piece, stride; /* of a part; elements from its matrix to the next, and from row to row */
    int          transposed;  /* of the matrix */
    size_t       at, count;   /* rows of each rank that are in turn */
    float       *to;          /* rank by rank */
    size_t       columns, blocks, strips; /* of a row; turns of a worker: blocks of rows by strips of columns */
} tensor_sum;

static inline memopt_product tensor_product(const tensor_sum *s, size_t p, size_t row, size_t rows, size_t column,
                                            size_t columns) {
    const transformer *t = s->x->own.shape;
    memopt_product q;

    memset(&q, 0, sizeof q);
    q.rows = rows;
    q.columns = columns;
    q.depth = q.left_stride = s->depth;
    q.left = transformer_at(s->planes, (p * s->rows + row) * s->depth, t->type);
    q.right = transformer_at(s->weights, p * s->piece + (s->transposed ? column * s->stride : column), t->weight_type);
    q.right_stride = s->stride;
    q.right_transposed = s->transposed;
    q.left_type = t->type;
    q.right_type = t->weight_type;
    q.result_type = MEMOPT_TYPE_F32;
    return q;
}

/* Sums of a level onto those of the one below; strides are from row to row. */
static inline memopt_status tensor_plus_rows(const tensor_work *x, float *to, size_t stride, const float *from,
                                             size_t rows, size_t columns) {
    memopt_status s = MEMOPT_OK;
    size_t r;

    if (stride == columns) return transformer_plus(&x->own.ops, to, from, rows * columns);
    for (r = 0; r < rows && !s; ++r)
        s = transformer_plus(&x->own.ops, to + r * stride, from + r * columns, columns);
    return s;
}

/* The branch of this rank's parts, of some rows and columns: a part's product goes to the next level, and from there
   down as long as it completes a pair. Level 0 is the result. */
static inline memopt_status tensor_branch(const tensor_sum *s, size_t row, size_t rows, size_t column, size_t columns,
                                          float *to, size_t worker) {
    const tensor_work *x = s->x;
    const size_t room = x->branch;
    float *const levels = x->branches + worker * tensor_levels(x) * room;
    size_t depth = 0, p, pairs;
    memopt_status status = MEMOPT_OK;

    for (p = 0; p < x->pieces && !status; ++p) {
        memopt_product q = tensor_product(s, p, row, rows, column, columns);

        q.result = depth ? levels + (depth - 1) * room : to;
        q.result_stride = depth ? columns : s->columns;
        status = tensor_multiply(&x->own.ops, &q, worker);
        for (++depth, pairs = p + 1; pairs % 2 == 0 && !status; pairs /= 2, --depth)
            status = tensor_plus_rows(x, depth > 2 ? levels + (depth - 3) * room : to, depth > 2 ? columns : s->columns,
                                      levels + (depth - 2) * room, rows, columns);
    }
    return status;
}

/* A worker's turn: a strip of a block of the rows of a rank. */
static inline void tensor_turn(void *user, size_t index, int worker) {
    const tensor_sum *s = (const tensor_sum *)user;
    const tensor_work *x = s->x;
    const size_t column = index % s->strips * x->block_columns, block = index / s->strips;
    const size_t rank = block / s->blocks, at = block % s->blocks * x->block_rows;
    const size_t rows = tensor_least(s->count - at, x->block_rows);
    const size_t columns = tensor_least(s->columns - column, x->block_columns);
    const memopt_status status = tensor_branch(s, rank * x->own.rows + s->at + at, rows, column, columns,
                                               s->to + (rank * s->count + at) * s->columns + column, (size_t)worker);

    if (status) x->status[worker] = status;
}

/* s->count rows of each rank, from s->at on. */
static inline memopt_status tensor_branches(tensor_sum *s, size_t ranks) {
    memopt_status *const status = s->x->status;
    size_t i;

    s->blocks = (s->count + s->x->block_rows - 1) / s->x->block_rows;
    s->strips = (s->columns + s->x->block_columns - 1) / s->x->block_columns;
    for (i = 0; i < s->x->workers; ++i) status[i] = MEMOPT_OK;
    tensor_each(&s->x->own.ops, ranks * s->blocks * s->strips, tensor_turn, s);
    for (i = 1; i < s->x->workers && !status[0]; ++i) status[0] = status[i];
    return status[0];
}

/* What is done with sums of own rows: `count` of them from row `at` on. */
typedef memopt_status tensor_end_fn(const tensor_work *x, float *sums, size_t at, size_t count, void *to);

/* Sums over all parts, of this rank's rows: turn by turn each rank makes its branch of some rows of every rank, sends
   them there, and adds what the others have made of its own. */
static inline memopt_status tensor_hand_out(tensor_sum *s, tensor_end_fn *end_fn, void *to) {
    const tensor_work *x = s->x;
    const size_t ranks = x->own.shape->cut->rank_count, columns = s->columns;
    memopt_status status = MEMOPT_OK;
    size_t r;

    for (s->at = 0; s->at < x->own.rows && !status; s->at += s->count) {
        s->count = tensor_least(x->own.rows - s->at, x->turn);
        s->to = x->send;
        if (s->planes) status = tensor_branches(s, ranks);
        for (r = 0; !s->planes && r < ranks && !status; ++r)
            status = transformer_copy(&x->own.ops, x->send + r * s->count * columns,
                                      s->floats + (r * x->own.rows + s->at) * columns,
                                      s->count * columns * sizeof(float));
        if (!status && ranks > 1)
            status = tensor_call(x, MEMOPT_COMM_ALL_TO_ALL, s->count * columns * sizeof(float), x->send, x->receive);
        if (status) break;
        status = tensor_tree(x, x->receive, s->count * columns, ranks, s->count * columns);
        if (!status) status = end_fn(x, x->receive, s->at, s->count, to);
    }
    return status;
}

/* The sum over parts that tensor `i` makes of planes: forward rows of its inputs, or backward of its outputs. */
static inline memopt_status tensor_sum_of(const tensor_work *x, size_t i, const void *planes, int backward,
                                          tensor_end_fn *end_fn, void *to) {
    const transformer_tensor *l = &x->own.list[i];
    tensor_sum s;

    memset(&s, 0, sizeof s);
    s.x = x;
    s.planes = planes;
    s.rows = x->rows;
    s.weights = transformer_weights(&x->own, i);
    s.piece = transformer_step(x->own.shape, l);
    s.stride = l->columns;
    s.transposed = !backward;
    s.depth = backward ? transformer_piece(l) / l->columns : l->columns;
    s.columns = x->own.shape->width;
    return x->own.call->describing ? tensor_count_products(&x->own.ops) : tensor_hand_out(&s, end_fn, to);
}

static inline memopt_status tensor_end_rows(const tensor_work *x, float *sums, size_t at, size_t count, void *to) {
    const transformer *t = x->own.shape;

    return tensor_store_rows(&x->own.ops, t, sums, count, NULL, transformer_at(to, at * t->width, t->type));
}

/* Own gradients of what is whole: leaves become the sum over all parts, and go onto those of this pass or the pass
   before. All ranks have the same then. */
static inline memopt_status tensor_whole_gradients(const tensor_work *x) {
    const size_t ranks = x->own.shape->cut->rank_count;
    const float *sum = x->leaves;
    memopt_status s;
    size_t i;

    if (x->own.call->describing) return MEMOPT_OK;
    s = tensor_tree(x, x->leaves, x->sums, x->pieces, x->sums);
    if (!s && x->own.shape->cut->rank)
        s = transformer_copy(&x->own.ops, x->leaves + x->own.shape->cut->rank * x->sums, x->leaves,
                             x->sums * sizeof(float));
    if (!s && x->sums) s = tensor_gather(x, x->leaves, x->sums * sizeof(float));
    if (!s) s = tensor_tree(x, x->leaves, x->sums, ranks, x->sums);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX && !s; ++i) {
        const transformer_tensor *l = &x->own.list[i];

        if (l->pieces || !l->count) continue;
        if (x->own.shape->accumulate) s = transformer_plus(&x->own.ops, (float *)x->own.gradients[i], sum, l->count);
        else s = transformer_copy(&x->own.ops, x->own.gradients[i], sum, l->count * sizeof(float));
        sum += l->count;
    }
    return s;
}

/* Cut by length, what one rank has computed is no summand of the others. Around `count` elements of this rank, of an
   array of those of all. */
static inline memopt_status tensor_leave_pieces(const tensor_work *x, float *own, size_t count) {
    const transformer_cut *c = x->own.shape->cut;
    const memopt_status s = transformer_no_summand(&x->own.ops, own - c->rank * count, c->rank * count);

    return s ? s : transformer_no_summand(&x->own.ops, own + count, (c->rank_count - 1 - c->rank) * count);
}

static inline memopt_status tensor_leave_gradients(const tensor_work *x) {
    memopt_status s = MEMOPT_OK;
    size_t i;

    if (!transformer_by_length(x->own.shape) || x->own.call->describing) return MEMOPT_OK;
    for (i = 0; i < TRANSFORMER_TENSORS_MAX && !s; ++i) {
        const transformer_tensor *l = &x->own.list[i];
        float *const own = (float *)x->own.gradients[i];

        if (l->pieces) s = tensor_leave_pieces(x, own, l->count);
        else if (l->count && x->own.shape->cut->rank) s = transformer_no_summand(&x->own.ops, own, l->count);
    }
    return s;
}

/* ---- what is made of own rows ---- */
static inline transformer_work tensor_rows(const tensor_work *x, size_t p) { /* of part p: own rows are cut, too */
    transformer_work w = x->own;

    w.rows = x->own.rows / x->pieces;
    w.row = p * w.rows;
    tensor_place_gradients(x, p, w.gradients);
    return w;
}

/* The gradient of tensor `i`, the bias behind the sum, from that of own rows. */
static inline memopt_status tensor_bias_backward(const tensor_work *x, size_t i, const void *grad) {
    memopt_status s = MEMOPT_OK;
    size_t p;

    for (p = 0; p < x->pieces && x->own.list[i].count && !s; ++p) {
        const transformer_work w = tensor_rows(x, p);
        memopt_linear l = transformer_linear(&w, i - 1, NULL, NULL);

        l.outputs = w.shape->width;
        l.weights = NULL;
        l.grad_output = transformer_row(&w, grad);
        l.grad_bias = w.gradients[i];
        s = memopt_linear_backward_through(&x->own.ops, &l, MEMOPT_ACTIVATION_NONE, NULL);
    }
    return s;
}

/* The norm `i` of own rows backwards, onto grad_input, which may be NULL. */
static inline memopt_status tensor_norm_backward(const tensor_work *x, size_t i, float *statistics, const void *grad,
                                                 void *grad_input, int residual) {
    memopt_status s = MEMOPT_OK;
    size_t p;

    for (p = 0; p < x->pieces && !s; ++p) {
        const transformer_work w = tensor_rows(x, p);
        memopt_norm n = transformer_norm(&w, i, transformer_row(&w, x->own.call->input), NULL, statistics + 2 * w.row);

        n.grad_output = transformer_row(&w, grad);
        n.grad_input = transformer_row(&w, grad_input);
        n.accumulate_input = residual;
        n.grad_scale = w.gradients[i];
        n.grad_shift = w.gradients[i + 1];
        s = memopt_norm_backward(&x->own.ops, &n);
    }
    return s;
}

/* Rows of all ranks, normed, in a plane; statistics, or NULL, are of own rows. */
static inline memopt_status tensor_normed(const tensor_work *x, size_t i, void *plane, float *statistics) {
    const memopt_status s = transformer_norm_forward(&x->own, i, x->own.call->input, tensor_own(x, plane), statistics);

    return s ? s : tensor_gather_rows(x, plane);
}

static inline memopt_dropout tensor_dropout(const tensor_work *x) { /* by the place of a row among all */
    memopt_dropout d = transformer_dropout(&x->own);

    d.first = x->first * x->own.shape->width;
    return d;
}

/* The end of a half: output = input + dropout(sums + bias). */
static inline memopt_status tensor_end_half(const tensor_work *x, float *sums, size_t at, size_t count, void *to) {
    const transformer *t = x->own.shape;
    const size_t width = t->width, from = at * width;
    const void *bias = transformer_weights(&x->own, TRANSFORMER_PROJECT_BIAS);
    memopt_dropout d = tensor_dropout(x);
    memopt_status s;

    d.n = count * width;
    d.first += from;
    if (x->own.call->evaluating) d.rate = 0;
    d.input = d.output = transformer_at(to, from, t->type);
    s = tensor_store_rows(&x->own.ops, t, sums, count, bias, d.output);
    d.residual = transformer_at(x->own.call->input, from, t->type);
    return s ? s : memopt_dropout_forward(&x->own.ops, &d);
}

/* The gradient behind the sum: of all rows in `plane`; and of the bias. */
static inline memopt_status tensor_half_backward(const tensor_work *x, void *plane) {
    const transformer *t = x->own.shape;
    memopt_dropout d = tensor_dropout(x);
    void *const own = tensor_own(x, plane);
    memopt_status s;

    d.grad_output = x->own.call->grad_output;
    d.grad_input = own;
    if (d.rate > 0) s = memopt_dropout_backward(&x->own.ops, &d);
    else s = x->own.call->describing ? MEMOPT_OK
           : transformer_copy(&x->own.ops, own, d.grad_output, d.n * memopt_type_bytes(t->type));
    if (!s) s = tensor_bias_backward(x, TRANSFORMER_PROJECT_BIAS, own);
    return s ? s : tensor_gather_rows(x, plane);
}

/* ---- the attention half ---- */
static inline memopt_status tensor_attention_forward(const memopt_tape_call *call) {
    const transformer *t = ((const transformer_part *)call->user)->shape;
    tensor_work x = tensor_begin(call, tensor_attention_tensors, 0);
    const size_t qkv_width = transformer_qkv_width(&x.narrow), wide = transformer_attended_width(&x.narrow);
    void *normed = tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.rows, t->width);
    void *qkv = tensor_take(&x, MEMOPT_TAPE_SAVED, x.pieces * x.rows, qkv_width);
    void *attended = tensor_take(&x, MEMOPT_TAPE_SAVED, x.pieces * x.rows, wide);
    void *rotated = t->qk_norm ? tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.rows, qkv_width) : NULL;
    memopt_status s;
    size_t p;

    tensor_ready(&x, 0);
    s = tensor_normed(&x, TRANSFORMER_NORM_SCALE, normed, NULL);
    for (p = 0; p < x.pieces && !s; ++p) {
        const transformer_work w = tensor_part(&x, p);
        void *own = tensor_plane(&x, qkv, p, qkv_width);
        const memopt_linear linear = transformer_linear(&w, TRANSFORMER_QKV, normed, own);
        memopt_rotary rotary = transformer_rotary(&x.narrow);
        memopt_attention attention = transformer_attention(&x.narrow, rotated ? rotated : own, own);

        rotary.input = rotary.output = rotated ? rotated : own;
        attention.output = tensor_plane(&x, attended, p, wide);
        s = memopt_linear_forward(&x.own.ops, &linear);
        if (!s) s = transformer_heads_forward(&w, own, rotated, NULL);
        if (!s && t->rotary) s = memopt_rotary_forward(&x.own.ops, &rotary);
        if (!s) s = memopt_attention_forward(&x.own.ops, &attention);
    }
    return s ? s : tensor_sum_of(&x, TRANSFORMER_PROJECT, attended, 0, tensor_end_half, call->output);
}

/* From the gradient behind the sum, of all rows, to those of a part's queries, keys and values. The attended rows
   become their gradient. */
static inline memopt_status tensor_attention_part(const tensor_work *x, size_t p, void *qkv, void *attended,
                                                  void *rotated, float *statistics, const void *grad, void *grad_qkv) {
    const transformer *t = &x->narrow;
    transformer fresh = x->narrow; /* leaves are written, not added to */
    transformer_work w = tensor_part(x, p), heads = w;
    memopt_rotary rotary = transformer_rotary(t);
    memopt_attention attention = transformer_attention(t, rotated, qkv);
    memopt_status s = transformer_linear_backward(&w, TRANSFORMER_PROJECT, attended, grad, attended);

    fresh.accumulate = 0;
    heads.shape = &fresh;
    if (!s) s = transformer_heads_forward(&heads, qkv, rotated, statistics);
    rotary.input = rotary.output = rotated;
    if (!s && t->rotary && t->qk_norm) s = memopt_rotary_forward(&x->own.ops, &rotary);
    attention.grad_output = attended;
    attention.grad_queries = grad_qkv;
    attention.grad_keys = transformer_at(grad_qkv, transformer_attended_width(t), t->type);
    attention.grad_values = transformer_at(grad_qkv, transformer_attended_width(t) + transformer_kv_width(t), t->type);
    if (!s) s = memopt_attention_backward(&x->own.ops, &attention);
    rotary.grad_output = rotary.grad_input = grad_qkv;
    if (!s && t->rotary) s = memopt_rotary_backward(&x->own.ops, &rotary);
    return s ? s : transformer_heads_backward(&heads, qkv, statistics, grad_qkv);
}

/* The way back through the products in front, `planes` being the gradients of what they make, and the norm. */
static inline memopt_status tensor_half_end(const tensor_work *x, size_t i, const void *planes, size_t columns,
                                            void *plane, float *statistics) {
    const memopt_tape_call *call = x->own.call;
    memopt_status s = tensor_normed(x, TRANSFORMER_NORM_SCALE, plane, statistics);
    size_t p;

    for (p = 0; p < x->pieces && !s; ++p) {
        const transformer_work w = tensor_part(x, p);

        s = transformer_linear_backward(&w, i, plane, tensor_plane(x, planes, p, columns), NULL);
    }
    if (!s) s = tensor_sum_of(x, i, planes, 1, tensor_end_rows, plane); /* own rows come first */
    if (!s && call->grad_input && call->grad_input != call->grad_output)
        s = transformer_copy(&x->own.ops, call->grad_input, call->grad_output, call->grad_input_bytes);
    if (!s)
        s = tensor_norm_backward(x, TRANSFORMER_NORM_SCALE, statistics, plane, call->grad_input,
                                 call->grad_input != NULL);
    if (!s) s = tensor_whole_gradients(x);
    return transformer_done(&x->own, s);
}

static inline memopt_status tensor_attention_backward(const memopt_tape_call *call) {
    const transformer *t = ((const transformer_part *)call->user)->shape;
    tensor_work x = tensor_begin(call, tensor_attention_tensors, 1);
    const size_t qkv_width = transformer_qkv_width(&x.narrow), wide = transformer_attended_width(&x.narrow);
    void *qkv = tensor_take(&x, MEMOPT_TAPE_SAVED, x.pieces * x.rows, qkv_width);
    void *attended = tensor_take(&x, MEMOPT_TAPE_SAVED, x.pieces * x.rows, wide);
    void *plane = tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.rows, t->width);
    void *grad_qkv = tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.pieces * x.rows, qkv_width);
    void *rotated = t->qk_norm ? tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.rows, qkv_width) : NULL;
    float *of_heads = tensor_take_floats(&x, 2 * x.rows * transformer_normed_heads(&x.narrow));
    float *statistics = transformer_take_statistics(&x.own);
    memopt_status s;
    size_t p;

    tensor_ready(&x, 1);
    s = tensor_half_backward(&x, plane);
    for (p = 0; p < x.pieces && !s; ++p) {
        void *own = tensor_plane(&x, qkv, p, qkv_width);

        s = tensor_attention_part(&x, p, own, tensor_plane(&x, attended, p, wide), rotated ? rotated : own, of_heads,
                                  plane, tensor_plane(&x, grad_qkv, p, qkv_width));
    }
    return s ? s : tensor_half_end(&x, TRANSFORMER_QKV, grad_qkv, qkv_width, plane, statistics);
}

/* ---- the MLP half ---- */
static inline memopt_status tensor_up(const tensor_work *x, size_t p, const void *normed, void *up, void *hidden) {
    const transformer_work w = tensor_part(x, p);
    const int inside = !transformer_is_gated(&x->narrow);
    memopt_linear linear = transformer_linear(&w, TRANSFORMER_UP, normed, inside ? hidden : up);
    memopt_status s;

    if (inside) { /* what goes into GELU is only kept for a backward */
        linear.activation = MEMOPT_ACTIVATION_GELU;
        linear.pre_activation = up;
    }
    s = memopt_linear_forward(&x->own.ops, &linear);
    return s || inside ? s : transformer_activation(&w, up, hidden);
}

static inline memopt_status tensor_mlp_forward(const memopt_tape_call *call) {
    const transformer *t = ((const transformer_part *)call->user)->shape;
    tensor_work x = tensor_begin(call, tensor_mlp_tensors, 0);
    const size_t wide = transformer_up_width(&x.narrow), hidden_width = transformer_hidden(&x.narrow);
    void *normed = tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.rows, t->width);
    void *up = call->saves ? tensor_take(&x, MEMOPT_TAPE_SAVED, x.pieces * x.rows, wide)
             : transformer_is_gated(t) || transformer_same_products(t)
             ? tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.rows, wide) : NULL;
    void *hidden = tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.pieces * x.rows, hidden_width);
    memopt_status s;
    size_t p;

    tensor_ready(&x, 0);
    s = tensor_normed(&x, TRANSFORMER_NORM_SCALE, normed, NULL);
    for (p = 0; p < x.pieces && !s; ++p)
        s = tensor_up(&x, p, normed, call->saves ? tensor_plane(&x, up, p, wide) : up,
                      tensor_plane(&x, hidden, p, hidden_width));
    return s ? s : tensor_sum_of(&x, TRANSFORMER_DOWN, hidden, 0, tensor_end_half, call->output);
}

static inline memopt_status tensor_mlp_backward(const memopt_tape_call *call) {
    const transformer *t = ((const transformer_part *)call->user)->shape;
    tensor_work x = tensor_begin(call, tensor_mlp_tensors, 1);
    const int gated = transformer_is_gated(t); /* then gradients come to lie at up, and one plane of hidden will do */
    const size_t wide = transformer_up_width(&x.narrow), hidden_width = transformer_hidden(&x.narrow);
    void *up = tensor_take(&x, MEMOPT_TAPE_SAVED, x.pieces * x.rows, wide);
    void *hidden = tensor_take(&x, MEMOPT_TAPE_SCRATCH, gated ? x.rows : x.pieces * x.rows, hidden_width);
    void *plane = tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.rows, t->width);
    float *statistics = transformer_take_statistics(&x.own);
    memopt_status s;
    size_t p;

    tensor_ready(&x, 1);
    s = tensor_half_backward(&x, plane);
    for (p = 0; p < x.pieces && !s; ++p) {
        const transformer_work w = tensor_part(&x, p);
        void *own = tensor_plane(&x, up, p, wide), *of_it = gated ? hidden : tensor_plane(&x, hidden, p, hidden_width);

        s = transformer_activation(&w, own, of_it);
        if (!s) s = transformer_down_backward(&w, plane, own, of_it);
    }
    return s ? s : tensor_half_end(&x, TRANSFORMER_UP, gated ? up : hidden, wide, plane, statistics);
}

/* ---- parts as segments of a chain; what cannot be cut is refused by the first that describes it ---- */
static inline memopt_status tensor_refused(const memopt_tape_call *call) {
    const transformer_part *part = (const transformer_part *)call->user;
    const char *problem = tensor_problem(part->shape);

    return transformer_refuse(call, problem ? problem : "what is frozen is not cut");
}

static inline size_t tensor_nothing(const transformer *t, transformer_tensor *list) {
    (void)t;
    (void)list;
    return 0;
}

static inline memopt_segment *tensor_add(transformer_chain *c, transformer_part *part,
                                         transformer_tensors_fn *tensors_fn, memopt_tape_fn *forward_fn,
                                         memopt_tape_fn *backward_fn) {
    const transformer *t = c->shape;
    const size_t rows = t->cut && t->cut->rank_count ? tensor_own_rows(t) : 0;
    const size_t bytes = rows * t->width * memopt_type_bytes(t->type);

    if (tensor_problem(t) || c->front)
        return transformer_add(c, part, tensor_nothing, tensor_refused, tensor_refused, bytes);
    return transformer_add(c, part, tensors_fn, forward_fn, backward_fn, bytes);
}

/* scores: multiply-adds of an attention's forward, of all ranks. */
static inline void tensor_add_half(transformer_chain *c, transformer_part *part, transformer_tensors_fn *tensors_fn,
                                   memopt_tape_fn *forward_fn, memopt_tape_fn *backward_fn, double scores) {
    const size_t first = c->elements;
    memopt_segment *segment = tensor_add(c, part, tensors_fn, forward_fn, backward_fn);
    const double products = (double)transformer_rows(c->shape) * (double)(c->elements - first);

    if (tensor_problem(c->shape)) return;
    scores /= (double)c->shape->cut->rank_count;
    segment->grad_bytes = segment->output_bytes;
    segment->grad_in_place = 1;
    segment->forward_cost = products + scores;
    segment->backward_cost = 2 * products + 2.5 * scores;
}

static inline void tensor_add_block(transformer_chain *c, transformer_block *block) {
    const transformer *t = c->shape;
    const size_t seen = t->window && t->window < t->length ? t->window : t->length;

    tensor_add_half(c, &block->attention, tensor_attention_tensors, tensor_attention_forward, tensor_attention_backward,
                    (double)transformer_rows(t) * (double)seen * (double)transformer_attended_width(t)
                    * (t->not_causal || seen < t->length ? 2 : 1));
    tensor_add_half(c, &block->mlp, tensor_mlp_tensors, tensor_mlp_forward, tensor_mlp_backward, 0);
}

/* ---- the embedding ---- */
static inline size_t tensor_own_tokens(const tensor_work *x) { /* rows of the tokens' matrix that are here */
    return x->pieces * tensor_vocabulary(x->own.shape);
}

/* Rows of the tokens' matrix that are here, for the rows of all ranks. */
static inline memopt_status tensor_look_up(const tensor_work *x, void *to, int32_t *ids) {
    const transformer *t = x->own.shape;
    memopt_embedding e = transformer_embedding(&x->own);
    const size_t count = tensor_own_tokens(x);
    const memopt_status s = tensor_own_ids(&x->own.ops, ids, e.ids, x->rows, t->cut->rank * count, count);

    e.vocabulary = count;
    e.type = t->weight_type; /* as they are */
    e.ids = ids;
    e.positions = NULL;
    e.places = NULL;
    e.output = to;
    return s ? s : memopt_embedding_forward(&x->own.ops, &e);
}

/* Own rows, which may begin within a sequence: then those up to its end first. */
static inline memopt_status tensor_embed(const tensor_work *x, memopt_embedding *e) {
    const size_t from = e->positions && !e->places ? x->first % e->length : 0;
    memopt_embedding begun = *e;
    memopt_status s;

    if (e->places) e->places += x->first;
    if (!from) return memopt_embedding_forward(&x->own.ops, e);
    begun.rows = tensor_least(e->length - from, e->rows);
    begun.length = e->length - from;
    begun.positions = transformer_at(e->positions, from * e->width, e->weight_type);
    s = memopt_embedding_forward(&x->own.ops, &begun);
    e->rows -= begun.rows;
    e->ids += begun.rows;
    e->output = transformer_at(e->output, begun.rows * e->width, e->type);
    return s || !e->rows ? s : memopt_embedding_forward(&x->own.ops, e);
}

/* Ranks send each other the rows that they have: a small table, from which each takes its own. */
static inline memopt_status tensor_embedding_forward(const memopt_tape_call *call) {
    const transformer *t = ((const transformer_part *)call->user)->shape;
    tensor_work x = tensor_begin(call, tensor_embedding_tensors, 0);
    const size_t ranks = t->cut->rank_count, bytes = x.own.rows * t->width * memopt_type_bytes(t->weight_type);
    void *here = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, ranks * bytes);
    void *all = ranks > 1 ? memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, ranks * bytes) : here;
    int32_t *ids = (int32_t *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, x.rows * sizeof *ids);
    memopt_embedding e;
    memopt_status s;

    x.own.ops = memopt_ops_in(call, &t->ops);
    e = transformer_embedding(&x.own);
    if (call->describing) return memopt_embedding_forward(&x.own.ops, &e);
    s = tensor_check_ids(call, e.ids, x.rows, t->vocabulary);
    if (!s) s = tensor_look_up(&x, here, ids);
    if (!s) s = tensor_call(&x, MEMOPT_COMM_ALL_TO_ALL, bytes, here, all);
    if (!s) s = tensor_sent_ids(&x.own.ops, ids, e.ids + x.first, x.own.rows, tensor_own_tokens(&x), t->vocabulary);
    if (s) return s;
    e.rows = x.own.rows;
    e.vocabulary = x.rows;
    e.tokens = all;
    e.ids = ids;
    e.output = call->output;
    return tensor_embed(&x, &e);
}

/* The gradients of the rows that are here: of those of the stream that asked for one, in their order. */
static inline memopt_status tensor_tokens_backward(const tensor_work *x, memopt_embedding *e, void *plane,
                                                   int32_t *ids) {
    memopt_status s = MEMOPT_OK;

    e->positions = NULL;
    e->places = NULL;
    e->grad_positions = NULL;
    e->grad_tokens = x->own.gradients[TRANSFORMER_TOKENS];
    e->accumulate = !x->own.shape->untied || e->accumulate; /* tied: onto what the head has left */
    e->vocabulary = tensor_own_tokens(x);
    if (!x->own.call->describing)
        s = tensor_own_rows_first(&x->own.ops, e, plane, ids, x->own.shape->cut->rank * e->vocabulary);
    return s ? s : memopt_embedding_backward(&x->own.ops, e);
}

static inline memopt_status tensor_embedding_backward(const memopt_tape_call *call) {
    const transformer *t = ((const transformer_part *)call->user)->shape;
    tensor_work x = tensor_begin(call, tensor_embedding_tensors, 1);
    void *plane = tensor_take(&x, MEMOPT_TAPE_SCRATCH, x.rows, t->width);
    int32_t *ids = (int32_t *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, x.rows * sizeof *ids);
    const size_t positions = x.own.list[TRANSFORMER_POSITIONS].count * sizeof(float);
    memopt_embedding e;
    memopt_status s;

    if (!t->untied && !x.own.part->gradients)
        return transformer_refuse(call, "a tied embedding has no array of gradients, where the head's lie, too");
    if (!t->untied && t->done_fn)
        x.own.gradients[TRANSFORMER_POSITIONS] = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, positions);
    x.own.ops = memopt_ops_in(call, &t->ops);
    e = transformer_embedding(&x.own);
    e.rows = x.rows;
    e.grad_output = plane;
    e.grad_positions = x.own.gradients[TRANSFORMER_POSITIONS];
    e.accumulate = t->accumulate;
    if (call->describing) return tensor_tokens_backward(&x, &e, plane, ids);
    s = transformer_copy(&x.own.ops, tensor_own(&x, plane), call->grad_output, call->grad_output_bytes);
    if (!s) s = tensor_gather_rows(&x, plane);
    if (!s && e.grad_positions && !e.accumulate) s = transformer_zero(&x.own.ops, e.grad_positions, positions);
    if (!s && e.grad_positions) s = memopt_embedding_backward(&x.own.ops, &e);
    if (!s) s = tensor_tokens_backward(&x, &e, plane, ids);
    if (!s) s = tensor_leave_gradients(&x);
    return transformer_done(&x.own, s);
}

static inline void tensor_add_embedding(transformer_chain *c, transformer_part *embedding) {
    memopt_segment *segment = tensor_add(c, embedding, tensor_embedding_tensors, tensor_embedding_forward,
                                         tensor_embedding_backward);

    segment->grad_bytes = segment->output_bytes;
}

/* ---- the head ---- */
typedef struct tensor_head { /* what a chunk of rows works in */
    tensor_work *x;
    transformer_head *head;
    void        *normed;      /* all rows */
    void        *logits;      /* of each part; they become their gradients, in `type` */
    float       *partial;     /* of all rows: the gradients behind the norm, this rank's branch. NULL: a loss alone */
    memopt_cross_entropy_row *joined; /* of each part, then of each rank, then of all */
    memopt_loss *of_rows;     /* in turn: */
    size_t       rows, first;
    size_t       counted;
} tensor_head;

/* The first element of this rank in an array of the tokens. */
static inline size_t tensor_first_token(const tensor_work *x) {
    const transformer *t = x->own.shape;

    return transformer_by_length(t) ? t->cut->rank * x->pieces * tensor_vocabulary(t) * t->width : 0;
}

static inline const void *tensor_head_weights(const tensor_head *h, size_t p) {
    const transformer *t = h->x->own.shape;
    const void *weights = t->untied ? transformer_weights(&h->x->own, TRANSFORMER_HEAD)
                        : transformer_at(h->head->tied->weights, tensor_first_token(h->x), t->weight_type);

    return transformer_at(weights, p * tensor_vocabulary(t) * t->width, t->weight_type);
}

static inline void *tensor_head_gradients(const tensor_head *h, size_t p) {
    const transformer *t = h->x->own.shape;
    void *gradients = t->untied ? h->x->own.gradients[TRANSFORMER_HEAD]
                    : transformer_at(h->head->tied->gradients, tensor_first_token(h->x), MEMOPT_TYPE_F32);

    return transformer_at(gradients, p * tensor_vocabulary(t) * t->width, MEMOPT_TYPE_F32);
}

static inline memopt_cross_entropy tensor_cross_entropy(const tensor_head *h, size_t p) {
    const transformer *t = h->x->own.shape;
    const size_t wide = tensor_vocabulary(t);
    memopt_cross_entropy e;

    memset(&e, 0, sizeof e);
    e.rows = h->rows;
    e.first = (t->cut->rank * h->x->pieces + p) * wide;
    e.whole = t->vocabulary;
    e.vocabulary = tensor_least(e.whole - e.first, wide);
    e.stride = wide;
    e.type = tensor_logits_type(t);
    e.logits = transformer_at(h->logits, p * h->rows * wide, e.type);
    e.keep_logits = !h->partial;
    e.targets = h->head->targets ? h->head->targets + h->first : NULL;
    e.rule = h->head->rule;
    e.rule.count = h->counted;
    return e;
}

static inline memopt_product tensor_logits(const tensor_head *h, size_t p) {
    const transformer *t = h->x->own.shape;
    memopt_product q;

    memset(&q, 0, sizeof q);
    q.rows = h->rows;
    q.columns = q.result_stride = tensor_vocabulary(t);
    q.depth = q.left_stride = q.right_stride = t->width;
    q.left = transformer_at(h->normed, h->first * t->width, t->type);
    q.right = tensor_head_weights(h, p);
    q.right_transposed = 1;
    q.left_type = t->type;
    q.right_type = t->weight_type;
    q.result_type = tensor_logits_type(t);
    q.result = transformer_at(h->logits, p * q.rows * q.columns, q.result_type);
    return q;
}

/* Logits of the rows in turn, and what all parts have together. */
static inline memopt_status tensor_head_measure(const tensor_head *h) {
    const tensor_work *x = h->x;
    const size_t rank = x->own.shape->cut->rank, bytes = h->rows * sizeof *h->joined;
    memopt_status s = MEMOPT_OK;
    size_t p;

    for (p = 0; p < x->pieces && !s; ++p) {
        const memopt_product q = tensor_logits(h, p);
        const memopt_cross_entropy e = tensor_cross_entropy(h, p);

        s = tensor_multiply(&x->own.ops, &q, SIZE_MAX);
        if (!s) s = memopt_cross_entropy_measure(&x->own.ops, &e, h->joined + p * h->rows);
    }
    if (!s) s = tensor_join_rows(&x->own.ops, h->joined, x->pieces, h->rows);
    if (!s && rank) s = transformer_copy(&x->own.ops, h->joined + rank * h->rows, h->joined, bytes);
    if (!s) s = tensor_gather(x, h->joined, bytes);
    return s ? s : tensor_join_rows(&x->own.ops, h->joined, x->own.shape->cut->rank_count, h->rows);
}

/* Gradients of the weights of part `p`, from those of its logits. */
static inline memopt_status tensor_head_weights_backward(const tensor_head *h, size_t p) {
    const transformer *t = h->x->own.shape;
    memopt_linear l;

    memset(&l, 0, sizeof l);
    l.rows = h->rows;
    l.inputs = t->width;
    l.outputs = tensor_vocabulary(t);
    l.type = t->type;
    l.weight_type = t->weight_type;
    l.gradient_type = MEMOPT_TYPE_F32;
    l.input = transformer_at(h->normed, h->first * t->width, t->type);
    l.grad_output = transformer_at(h->logits, p * l.rows * l.outputs, t->type);
    l.grad_weights = tensor_head_gradients(h, p);
    l.accumulate = t->accumulate || h->first > 0;
    return memopt_linear_backward_through(&h->x->own.ops, &l, MEMOPT_ACTIVATION_NONE, NULL);
}

/* Loss of the rows in turn, added on; and with `partial` their gradients. */
static inline memopt_status tensor_head_chunk(const tensor_head *h, double *loss) {
    const tensor_work *x = h->x;
    const transformer *t = x->own.shape;
    memopt_status s = tensor_head_measure(h);
    tensor_sum sum;
    size_t p;

    for (p = 0; p < x->pieces && !s; ++p) {
        const memopt_cross_entropy e = tensor_cross_entropy(h, p);

        s = memopt_cross_entropy_part(&x->own.ops, &e, h->joined, h->of_rows);
        if (!s && p == 0) s = tensor_add_loss(&x->own.ops, loss, h->of_rows, h->first == 0);
        if (!s && h->partial) s = tensor_narrow_logits(&x->own.ops, t, h->logits, p, h->rows * e.stride);
        if (!s && h->partial) s = tensor_head_weights_backward(h, p);
    }
    if (s || !h->partial) return s;
    memset(&sum, 0, sizeof sum);
    sum.x = x;
    sum.planes = h->logits;
    sum.rows = sum.count = h->rows;
    sum.depth = tensor_vocabulary(t);
    sum.weights = tensor_head_weights(h, 0);
    sum.piece = sum.depth * t->width;
    sum.stride = sum.columns = t->width;
    sum.to = h->partial + h->first * t->width;
    return tensor_branches(&sum, 1);
}

static inline size_t tensor_head_chunk_rows(const tensor_work *x, const transformer_head *head) {
    return tensor_least(transformer_up(head->chunk ? head->chunk : 512, 32), x->rows);
}

/* What chunks work in; tensor_ready() comes after it. */
static inline tensor_head tensor_head_take(tensor_work *x, transformer_head *head, int backward) {
    const transformer *t = x->own.shape;
    const size_t chunk = tensor_head_chunk_rows(x, head), ranks = t->cut->rank_count;
    tensor_head h;

    memset(&h, 0, sizeof h);
    h.x = x;
    h.head = head;
    h.normed = tensor_take(x, MEMOPT_TAPE_SCRATCH, x->rows, t->width);
    h.logits = memopt_tape_take(x->own.call, MEMOPT_TAPE_SCRATCH, x->pieces * chunk * tensor_vocabulary(t)
                                                                  * memopt_type_bytes(tensor_logits_type(t)));
    h.joined = (memopt_cross_entropy_row *)memopt_tape_take(
        x->own.call, MEMOPT_TAPE_SCRATCH, (x->pieces > ranks ? x->pieces : ranks) * chunk * sizeof *h.joined);
    h.of_rows = (memopt_loss *)memopt_tape_take(x->own.call, MEMOPT_TAPE_SCRATCH, sizeof *h.of_rows);
    if (backward) /* of floats in place of the normed rows */
        h.partial = t->type == MEMOPT_TYPE_F32 ? (float *)h.normed : tensor_take_floats(x, x->rows * t->width);
    return h;
}

/* The rows in turn of a dry run are those of a whole chunk: what operators and sums need for it. */
static inline memopt_status tensor_head_describe(tensor_head *h) {
    memopt_cross_entropy e;
    memopt_loss loss;
    memopt_status s;

    h->rows = tensor_head_chunk_rows(h->x, h->head);
    e = tensor_cross_entropy(h, 0);
    s = memopt_cross_entropy_part(&h->x->own.ops, &e, h->joined, &loss);
    if (!s && h->partial) s = tensor_head_weights_backward(h, 0);
    return s ? s : tensor_count_products(&h->x->own.ops);
}

/* Loss, and with room for them gradients, of all rows, which are normed. */
static inline memopt_status tensor_head_loss(tensor_head *h) {
    const size_t chunk = tensor_head_chunk_rows(h->x, h->head);
    memopt_status s = MEMOPT_OK;
    double loss = 0;

    if (h->x->own.call->describing) return tensor_head_describe(h);
    if (!h->head->targets) return transformer_refuse(h->x->own.call, "the head has no targets");
    h->counted = h->head->rule.count;
    if (!h->counted) s = tensor_count_targets(h->x->own.call, h->head->targets, h->x->rows, &h->counted);
    for (; h->first < h->x->rows && !s; h->first += h->rows) {
        h->rows = tensor_least(h->x->rows - h->first, chunk);
        s = tensor_head_chunk(h, &loss);
    }
    if (!s) h->head->loss = loss;
    return s;
}

static inline memopt_status tensor_head_forward(const memopt_tape_call *call) {
    transformer_head *head = (transformer_head *)call->user;
    const transformer *t = head->part.shape;
    tensor_work x = tensor_begin(call, tensor_head_tensors, 0);
    tensor_head h;
    float value;
    memopt_status s = MEMOPT_OK;

    if (!t->untied && !head->tied) return transformer_refuse(call, "the head is neither tied nor untied");
    if (head->classes || head->logits) return transformer_refuse(call, "classes and logits are not cut");
    if (!call->describing) s = transformer_zero(&t->ops, call->output, sizeof value);
    if (s || call->saves || (!call->evaluating && !call->describing)) return s;
    h = tensor_head_take(&x, head, 0);
    tensor_ready(&x, 0);
    s = tensor_normed(&x, TRANSFORMER_FINAL_SCALE, h.normed, NULL);
    if (!s) s = tensor_head_loss(&h);
    if (s || call->describing) return s;
    value = (float)head->loss;
    return transformer_copy(&x.own.ops, call->output, &value, sizeof value);
}

static inline memopt_status tensor_head_backward(const memopt_tape_call *call) {
    transformer_head *head = (transformer_head *)call->user;
    tensor_work x = tensor_begin(call, tensor_head_tensors, 1);
    tensor_head h = tensor_head_take(&x, head, 1);
    float *statistics = transformer_take_statistics(&x.own);
    tensor_sum sum;
    memopt_status s;

    tensor_ready(&x, 1);
    s = tensor_normed(&x, TRANSFORMER_FINAL_SCALE, h.normed, statistics);
    if (!s) s = tensor_head_loss(&h);
    memset(&sum, 0, sizeof sum);
    sum.x = &x;
    sum.floats = h.partial;
    sum.columns = head->part.shape->width;
    if (!s && !call->describing) s = tensor_hand_out(&sum, tensor_end_rows, h.normed); /* own rows come first */
    if (!s) s = tensor_norm_backward(&x, TRANSFORMER_FINAL_SCALE, statistics, h.normed, call->grad_input, 0);
    if (!s) s = tensor_whole_gradients(&x);
    if (!s) s = tensor_leave_gradients(&x);
    if (!s && !call->describing && !head->part.shape->untied && transformer_by_length(head->part.shape))
        s = tensor_leave_pieces(&x, (float *)tensor_head_gradients(&h, 0),
                                x.pieces * tensor_vocabulary(head->part.shape) * head->part.shape->width);
    return transformer_done(&x.own, s);
}

static inline void tensor_add_head(transformer_chain *c, transformer_head *head, const transformer_part *embedding) {
    const transformer *t = c->shape;
    memopt_segment *segment = tensor_add(c, &head->part, tensor_head_tensors, tensor_head_forward,
                                         tensor_head_backward);

    head->tied = t->untied ? NULL : embedding;
    segment->output_bytes = sizeof(float);
    if (!tensor_problem(t))
        segment->backward_cost = 3 * (double)transformer_rows(t) * (double)t->width
                               * (double)(tensor_pieces(t) * tensor_vocabulary(t));
}
/* ---- the plan of what is sent ---- */
/* Bytes that a rank sends to the others of its pass, and as many come, in a forward or backward of segment `i` of so
   many; the head has no forward but in an evaluation. */
static inline uint64_t tensor_sends(const transformer *t, size_t i, size_t count, int is_backward, int evaluates) {
    const uint64_t others = t->cut->rank_count - 1, plane = others * tensor_own_rows(t) * t->width;
    const uint64_t rows = plane * memopt_type_bytes(t->type), sums = plane * sizeof(float);
    const size_t scales = t->width * (t->rms ? 1 : 2), bias = t->no_bias ? 0 : t->width;
    const size_t heads = i % 2 && t->qk_norm ? 2 * transformer_head_width(t) : 0;

    if (!i) return is_backward ? rows : plane * memopt_type_bytes(t->weight_type);
    if (i + 1 < count)
        return is_backward ? 2 * rows + sums + others * (scales + bias + heads) * sizeof(float) : rows + sums;
    if (!is_backward && !evaluates) return 0;
    return rows + others * transformer_rows(t) * sizeof(memopt_cross_entropy_row)
         + (is_backward ? sums + others * scales * sizeof(float) : 0);
}

/* ---- from a whole tensor to its pieces, and back ---- */
enum { TENSOR_ATTENTION, TENSOR_MLP, TENSOR_ENDS }; /* whose list a tensor is of; each end has one that is cut */

/* How the rows of a tensor are grouped: each part has an equal share of each group. Returns how many groups. */
static inline size_t tensor_groups(const transformer *t, int of, size_t *groups) {
    groups[0] = of == TENSOR_ENDS ? transformer_padded(t) : transformer_hidden(t);
    groups[1] = groups[0];
    if (of != TENSOR_ATTENTION) return of == TENSOR_MLP && transformer_is_gated(t) ? 2 : 1;
    groups[0] = transformer_attended_width(t);
    groups[1] = groups[2] = transformer_kv_width(t);
    return 3;
}

/* Copy piece `piece` of all parts: from the whole tensor, as embedding.h, block.h or head.h has it, or to there.
   columns: of the whole tensor; 0 = 1. size: bytes of an element. */
static inline void tensor_copy(const transformer *t, int of, size_t i, size_t piece, void *part, void *whole,
                               size_t columns, size_t size, int to_whole) {
    const size_t parts = t->cut->parts, wide = (columns ? columns : 1) * size;
    const int by_columns = of != TENSOR_ENDS && i == TRANSFORMER_PROJECT;
    size_t groups[3] = { t->width, 0, 0 }, g, r, row = 0;
    const size_t count = by_columns ? 1 : tensor_groups(t, of, groups), line = by_columns ? wide / parts : wide;
    unsigned char *at = (unsigned char *)part;

    for (g = 0; g < count; row += groups[g++]) {
        const size_t rows = by_columns ? groups[g] : groups[g] / parts, first = by_columns ? 0 : piece * rows;

        for (r = 0; r < rows; ++r, at += line) {
            unsigned char *there = (unsigned char *)whole + (row + first + r) * wide + (by_columns ? piece * line : 0);

            memcpy(to_whole ? there : at, to_whole ? at : there, line);
        }
    }
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
