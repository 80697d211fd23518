/* ring.h - attention of one long context whose rows (tokens) are cut over ranks, which are called a ring here.

   What it is     Of a context of R * length rows each of the R ranks has `length`; rank 0 has the first ones.
                  What a transformer does with single rows a rank does by itself. Attention, where rows meet, is this.
                  Output, statistics and the gradients of queries, keys and values are the bits of one rank that calls
                  memopt_attention with `online`, for every R.
   Idea           Heads do not know of each other. Each rank trades its rows of all heads for all rows of its heads,
                  calls the usual operator for these, and trades back.
   Memory         Of a rank, in planes of length * width elements (fewer where groups share keys and values):
                      kept                  4, as without ranks, and 4 bytes for each row and head: all of it 1 / R
                      scratch of a forward  3
                      of a backward         none: arrays change places with those of the block. They were read for the
                                            last time
                  The operator's scratch comes on top, as much as on one rank: it does not grow with the context.
   Traffic        A rank sends (R - 1) / R of 2 planes of queries and 2 of keys in a forward, in 4 calls, and twice as
                  much in a backward, in 8.
   Why not else   To pass keys and values on from rank to rank, as ring attention does, R is not limited by heads. But
                  gradients of keys are sums over rows, and those of queries over columns, whose order is one rank's:
                  each rank would wait for the sums of the one before it, in both directions; what a row has so far
                  would be kept as floats; and of causal attention the last rank would do (2 R - 1) / R times its share.
                  By heads all ranks do the same work, and need no operator but the usual one.
   Limits         R must divide kv_heads, so that nobody shares the sums of a head. Of a whole model S divides all rows
                  and the padded vocabulary; float32 gradients; no adapters, codes, mlp_chunk, classes, accumulate,
                  done_fn. Of attention alone batch is 1: several sequences are documents. All ranks have as many rows:
                  pad the context, and let the padding be a document of its own, whose targets are -1: the bits are
                  those without it.
   On a card      With device.h, and a comm over NCCL; on the CPU that of threads or MPI. Products on a card may add up
                  in another order when their shape is another one. So with by_length those with weights are made of one
                  part of the rows at a time; an MLP's forward has room for what goes into its activation also where
                  that is not kept; and attention without tensor cores (float32, or heads wider than 128) is called for
                  as few heads at a time as each of S ranks could have, in as many calls of the comm, and keeps no
                  statistics. row_positions lie on the card.
   A whole model  With shape.cut and by_length a model is cut so, and has the same bits for any number of ranks. The
                  rows are S parts, whatever R is; gradients of a block's weights are sums over parts, added as a tree:
                  a rank has a branch of it. Both ends are cut by the vocabulary, as in tensor.h: so nobody needs room
                  for sums over rows of what is as large as that. What a rank has of gradients is a summand: its branch,
                  or where another rank has computed them -0, which changes no sum. memopt_shard_desc.unit_ranks = R
                  adds them up: so ranks of a context cut weights and states among themselves as those of a batch do.
                      transformer_cut cut = { 8, rank, ranks, comm, 1 };
                      const transformer_attention_fns attention = ring_attention(comm);
                      shape.cut = &cut; shape.attention = &attention;
                      shape.row_positions = places;                      rotary ones, of all rows
                      tensor_add_embedding(&chain, &embedding); transformer_add_block(&chain, &blocks[i]); ...
                      tensor_add_head(&chain, &head, &embedding);
                  The shape is the whole model's, with any number of sequences. All ranks call the tape with the ids and
                  targets of all rows. The head's scratch has planes of all rows: that is not cut. A backward has room
                  for the gradients of the largest matrix log2(S / R) times more.
   Attention      Alone it goes with a shape of a rank's rows, where window and documents are the whole context's:
                      shape.batch = 1;
                      shape.length = rows;                               R times as many in all
                      for (i = 0; i < rows; ++i) places[i] = (int32_t)(r * rows + i);
                      shape.row_positions = places;                      or its place in its document
                      shape.positions = R * rows;                        where positions are learned
                      shape.documents = n; shape.starts = starts;        n + 1 rows of all R * rows
                  Gradients of weights are sums over all rows: those of ranks are parts of them, for you to add up.
                  All ranks run the same passes by the same schedule: describe and open a tape with the same sizes and
                  budget, and let none calibrate by itself.
   Failure        When a call fails on a rank, the passes of all ranks end, and tell which call and, where known, which
                  rank. Ranks of different lengths are found by the comm's comparison. A rank whose pass ends elsewhere
                  calls memopt_comm_abort(). Over MPI the tape's memory must stay until memopt_mpi_close(). */
#ifndef PARTS_RING_H
#define PARTS_RING_H
#include "tensor.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct ring_array { /* of this rank's rows, all heads */
    unsigned char *rows;
    size_t stride, bytes; /* from row to row; in a row, of the heads of one group */
} ring_array;

typedef struct ring_work {
    const memopt_tape_call *call;
    const transformer_ops  *ops;
    memopt_comm     *comm;
    size_t           ranks, rows; /* rows of each rank */
    size_t           groups;      /* of heads, of each rank: one call of attention for each */
    ring_array       qkv[3], output;
    ring_array       grads[3], grad_output;
    size_t           at[3]; /* where all rows of queries, keys and values lie in memory for the three: bytes */
    memopt_attention whole; /* all rows, the heads of this rank's first group */
} ring_work;

/* ---- what there is to do ---- */
static inline const transformer *ring_shape_of(const memopt_tape_call *call) {
    return ((const transformer_part *)call->user)->shape;
}

static inline size_t ring_kv_heads(const memopt_attention *a) {
    return a->kv_heads ? a->kv_heads : a->heads;
}

static inline size_t ring_row_bytes(const memopt_attention *a, size_t heads) {
    return heads * a->width * memopt_type_bytes(a->type);
}

static inline ring_array ring_array_of(const ring_work *w, const memopt_attention *a, const void *rows, size_t stride,
                                       size_t heads) {
    ring_array x;

    x.rows = (unsigned char *)transformer_at(rows, 0, a->type);
    x.stride = stride ? stride * memopt_type_bytes(a->type) : ring_row_bytes(a, heads);
    x.bytes = ring_row_bytes(a, heads / w->ranks / w->groups);
    return x;
}

/* Of a rank. Where the bits of a head depend on those beside it, groups are the same for any number of ranks. */
static inline size_t ring_groups(const ring_work *w, const transformer *t, const memopt_attention *a) {
    size_t all = transformer_by_length(t) ? t->cut->parts : ring_kv_heads(a);

    if (transformer_heads_are_alone(w->ops, a)) return 1;
    while (all > w->ranks && ring_kv_heads(a) % all) all /= 2;
    return all > w->ranks ? all / w->ranks : 1;
}

static inline ring_work ring_begin(const memopt_tape_call *call, const transformer_ops *ops,
                                   const memopt_attention *a) {
    const size_t kv_heads = ring_kv_heads(a);
    const transformer *t = ring_shape_of(call);
    const int is_cut = transformer_by_length(t);
    ring_work w;

    memset(&w, 0, sizeof w);
    w.call = call;
    w.ops = ops;
    w.comm = (memopt_comm *)t->attention->user;
    w.ranks = is_cut ? t->cut->rank_count : w.comm ? memopt_comm_get_stats(w.comm).rank_count : 1;
    w.rows = a->length;
    w.groups = ring_groups(&w, t, a);
    w.qkv[0] = ring_array_of(&w, a, a->queries, a->query_stride, a->heads);
    w.qkv[1] = ring_array_of(&w, a, a->keys, a->kv_stride, kv_heads);
    w.qkv[2] = ring_array_of(&w, a, a->values, a->kv_stride, kv_heads);
    w.output = ring_array_of(&w, a, a->output, a->output_stride, a->heads);
    w.grads[0] = ring_array_of(&w, a, a->grad_queries, a->query_stride, a->heads);
    w.grads[1] = ring_array_of(&w, a, a->grad_keys, a->kv_stride, kv_heads);
    w.grads[2] = ring_array_of(&w, a, a->grad_values, a->kv_stride, kv_heads);
    w.grad_output = ring_array_of(&w, a, a->grad_output, a->output_stride, a->heads);
    w.at[1] = w.rows * ring_row_bytes(a, a->heads);
    w.at[2] = w.at[1] + w.rows * ring_row_bytes(a, kv_heads);
    w.whole = *a;
    w.whole.batch = is_cut ? t->batch : 1;
    w.whole.length = is_cut ? t->length : w.ranks * w.rows;
    w.whole.heads = a->heads / w.ranks / w.groups;
    w.whole.kv_heads = kv_heads / w.ranks / w.groups;
    w.whole.query_stride = w.whole.kv_stride = w.whole.output_stride = 0;
    w.whole.online = transformer_heads_are_alone(ops, a);
    return w;
}

/* NULL, or why it cannot be done. */
static inline const char *ring_reason(const ring_work *w, const memopt_attention *a) {
    const size_t kv_heads = ring_kv_heads(a);

    const transformer *t = ring_shape_of(w->call);
    const int is_alone = transformer_by_length(t) && (w->ranks == 1 || w->call->describing);

    if (!w->comm && !is_alone) return "ring: there is no comm";
    if (transformer_by_length(t) && t->rotary && !t->row_positions) return "ring: row_positions are not told";
    if (a->batch != 1) return "ring: batch is not 1; several sequences are documents";
    if (a->heads % w->ranks || kv_heads % w->ranks) return "ring: the ranks do not divide heads and kv_heads";
    if (a->query_stride < (a->heads + 2 * kv_heads) * a->width)
        return "ring: a row of queries has no room for its keys and values";
    return NULL;
}

/* ---- between rows and heads ---- */
/* The rows of this rank, to the pieces that ranks are sent: of each group of heads all these rows. A call sends a group
   to each rank. */
static inline memopt_status ring_pack(const ring_work *w, ring_array x, unsigned char *pieces) {
    memopt_status s = MEMOPT_OK;
    size_t i;

    for (i = 0; i < w->ranks * w->groups && !s; ++i)
        s = transformer_copy_rows(w->ops, pieces + i * w->rows * x.bytes, x.bytes, x.rows + i * x.bytes, x.stride,
                                  x.bytes, w->rows);
    return s;
}

/* The pieces that ranks have sent, to rows. */
static inline memopt_status ring_unpack(const ring_work *w, ring_array x, const unsigned char *pieces) {
    memopt_status s = MEMOPT_OK;
    size_t i;

    for (i = 0; i < w->ranks * w->groups && !s; ++i)
        s = transformer_copy_rows(w->ops, x.rows + i * x.bytes, x.stride, pieces + i * w->rows * x.bytes, x.bytes,
                                  x.bytes, w->rows);
    return s;
}

/* Pieces come from ranks in the order of their rows: what is received are, group by group, all rows of this rank's
   heads. */
static inline memopt_status ring_exchange(const ring_work *w, ring_array x, const unsigned char *send,
                                          unsigned char *receive) {
    memopt_comm_call c;
    memopt_status s = MEMOPT_OK;
    size_t group;

    memset(&c, 0, sizeof c);
    c.kind = MEMOPT_COMM_ALL_TO_ALL;
    c.bytes = w->rows * x.bytes;
    if (!w->comm) return transformer_copy(w->ops, receive, send, w->groups * c.bytes);
    for (group = 0; group < w->groups && !s; ++group) {
        c.send = send + group * w->ranks * c.bytes;
        c.receive = receive + group * w->ranks * c.bytes;
        s = memopt_comm_run(w->comm, &c);
    }
    if (s && w->call->error) *w->call->error = memopt_comm_error(w->comm);
    return s;
}

/* In its own place. */
static inline memopt_status ring_to_heads(const ring_work *w, ring_array x, unsigned char *stage) {
    const memopt_status s = ring_pack(w, x, stage);

    return s ? s : ring_exchange(w, x, stage, x.rows);
}

/* ---- forward and backward ---- */
/* All rows of a group's heads lie behind those of the group before. Where there are several, none has statistics. */
static inline memopt_attention ring_group(const ring_work *w, size_t group) {
    const size_t rows = group * w->ranks * w->rows;
    const size_t at = rows * w->whole.heads * w->whole.width, kv_at = rows * w->whole.kv_heads * w->whole.width;
    memopt_attention a = w->whole;

    a.queries = transformer_at(a.queries, at, a.type);
    a.keys = transformer_at(a.keys, kv_at, a.type);
    a.values = transformer_at(a.values, kv_at, a.type);
    a.output = transformer_at(a.output, at, a.type);
    a.grad_output = transformer_at(a.grad_output, at, a.type);
    a.grad_queries = transformer_at(a.grad_queries, at, a.type);
    a.grad_keys = transformer_at(a.grad_keys, kv_at, a.type);
    a.grad_values = transformer_at(a.grad_values, kv_at, a.type);
    return a;
}

/* Of all groups; a description needs the first one. */
static inline memopt_status ring_attend(const ring_work *w) {
    const size_t groups = w->call->describing ? 1 : w->groups;
    memopt_status s = MEMOPT_OK;
    size_t group;

    for (group = 0; group < groups && !s; ++group) {
        const memopt_attention a = ring_group(w, group);

        s = w->call->is_backward ? memopt_attention_backward(w->ops, &a) : memopt_attention_forward(w->ops, &a);
    }
    return s;
}

static inline memopt_status ring_forward(ring_work *w, unsigned char *room) {
    unsigned char *stage = w->output.rows; /* nothing is there yet */
    memopt_status s = MEMOPT_OK;
    size_t i;

    for (i = 0; i < 3 && !s; ++i) {
        s = ring_pack(w, w->qkv[i], stage);
        if (!s) s = ring_exchange(w, w->qkv[i], stage, room + w->at[i]);
    }
    w->whole.queries = room;
    w->whole.keys = room + w->at[1];
    w->whole.values = room + w->at[2];
    if (!s) s = ring_attend(w);
    if (!s) s = ring_exchange(w, w->output, w->output.rows, room);
    return s ? s : ring_unpack(w, w->output, room);
}

static inline memopt_status ring_backward(ring_work *w) {
    unsigned char *qkv = w->qkv[0].rows;
    unsigned char *grads = w->grads[0].rows;
    memopt_status s = ring_to_heads(w, w->output, grads);
    size_t i;

    if (!s) s = ring_to_heads(w, w->grad_output, grads);
    for (i = 0; i < 3 && !s; ++i) s = ring_pack(w, w->qkv[i], grads + w->at[i]);
    for (i = 0; i < 3 && !s; ++i) s = ring_exchange(w, w->qkv[i], grads + w->at[i], qkv + w->at[i]);
    w->whole.queries = qkv;
    w->whole.keys = qkv + w->at[1];
    w->whole.values = qkv + w->at[2];
    w->whole.grad_queries = grads;
    w->whole.grad_keys = grads + w->at[1];
    w->whole.grad_values = grads + w->at[2];
    if (!s) s = ring_attend(w);
    for (i = 0; i < 3 && !s; ++i) s = ring_exchange(w, w->grads[i], grads + w->at[i], qkv + w->at[i]);
    for (i = 0; i < 3 && !s; ++i) s = ring_unpack(w, w->grads[i], qkv + w->at[i]);
    return s;
}

/* ---- for a block ---- */
/* room[0]: all rows of queries, keys and values. room[1]: statistics of all rows; there are as many of them as of a
   rank's rows and all heads. */
static inline void ring_take(const memopt_tape_call *call, const memopt_attention *a, void *room[2]) {
    const size_t row = ring_row_bytes(a, a->heads + 2 * ring_kv_heads(a));
    const size_t statistics = transformer_heads_are_alone(&ring_shape_of(call)->ops, a) ? a->heads * sizeof(float) : 0;

    room[0] = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, call->is_backward ? 0 : a->length * row);
    room[1] = memopt_tape_take(call, MEMOPT_TAPE_SAVED, a->length * statistics);
}

static inline memopt_status ring_run(const memopt_tape_call *call, const transformer_ops *ops,
                                     const memopt_attention *a, void *const room[2]) {
    ring_work w = ring_begin(call, ops, a);
    const char *reason = ring_reason(&w, a);
    memopt_status s;

    if (reason) return transformer_refuse(call, reason);
    w.whole.statistics = (float *)room[1];
    if (call->describing) return ring_attend(&w);
    s = call->is_backward ? ring_backward(&w) : ring_forward(&w, (unsigned char *)room[0]);
    if (s) memopt_comm_abort(w.comm); /* the others must not wait for this rank */
    return s;
}

/* The attention of a shape. comm: of the ranks that share a context; each has one of its own, as ever. */
static inline transformer_attention_fns ring_attention(memopt_comm *comm) {
    transformer_attention_fns x;

    x.take_fn = ring_take;
    x.run_fn = ring_run;
    x.keeps_output = 1;
    x.user = comm;
    return x;
}

/* ---- the plan of what is sent ---- */
/* Of a model that is cut by length, as tensor_sends(): segment `i` of so many; attention is every other one. */
static inline uint64_t ring_sends(const transformer *t, size_t i, size_t count, int is_backward, int evaluates) {
    const uint64_t columns = 2 * (transformer_attended_width(t) + transformer_kv_width(t));
    const uint64_t row = columns / t->cut->rank_count * (t->cut->rank_count - 1) * memopt_type_bytes(t->type);

    if (!i || i + 1 == count) return tensor_sends(t, i, count, is_backward, evaluates);
    return i % 2 ? transformer_own_rows(t) * row * (is_backward ? 2 : 1) : 0;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
