/* transformer.h - the shape of a transformer, and what its parts, block.h, head.h and embedding.h, have in common.

   What it is   One description for all parts. All zero but the sizes it is GPT-2: layer norm, GELU, learned positions,
                biases, causal, tied head. With rms, swiglu, rotary, no_bias and untied set, and kv_heads, it is Llama
                2; with rotary_base and rotary_frequencies (rotary_scaling.h) Llama 3, with window Mistral, with
                qkv_bias Qwen2, with head_width and qk_norm Qwen3; SmolLM is Llama with a tied head. Of all of
                them logits and gradients are those of Python's transformers (tests/check_models.py).
   Parameters   A part, which is a segment of a tape, has one array of weights and one of gradients; those of a chain
                lie one after the other, in the order of the parts. The parts' functions, such as
                transformer_attention_tensors(), list what is where: name, first element, elements, columns. What a
                shape does not have is there with 0 elements. With a grain there are gaps between them, see `grain`.
   Gradients    Overwritten by every pass, or added to, with `accumulate`. A part without an array of gradients has them
                in scratch: done_fn takes each tensor's at the end of the part's backward.
   How to use   Parts are added to a chain, twice: to count, and once there are arrays to place.
                    transformer_chain chain = { 0 };
                    chain.shape = &shape;
                    transformer_add_embedding(&chain, &embedding);
                    for (i = 0; i < BLOCKS; ++i) transformer_add_block(&chain, &blocks[i]);
                    transformer_add_head(&chain, &head, &embedding);
                Now chain.elements and chain.tensor_count are known. Set the arrays and `elements`, `tensor_count` and
                `count` to 0, do the same again, and memopt_tape_describe(layers, segments, chain.count, &why).
                examples/transformer.c is a whole program. Include memopt.h before these files.
   Adapters     With adapter_rank the four matrices of each block have low-rank adapters (adapter.h), which alone are
                trained; all else is frozen: no gradients, no products for them. chain.adapters, of floats, and
                chain.adapter_gradients are arrays of chain.adapter_elements; an optimizer is told of A and B alone,
                as transformer_list_adapters() has them. Where the frozen matrices of blocks are codes of 8 bits, see
                quantized_block, transformer_list_part() tells where each lies in chain.codes, of code_elements.
   In front     What lies in front of the first part that is trained is a chain of its own, with `front` set: its parts
                have a forward alone. It needs a tape of its own, whose output is the input of the other one:
                    transformer_add_embedding(&front, &embedding);
                    for (i = 0; i < FIRST; ++i) transformer_add_block(&front, &blocks[i]);
                    for (; i < BLOCKS; ++i) transformer_add_block(&chain, &blocks[i]);
                    ...
                    memopt_tape_evaluate(front_tape, ids, hidden); memopt_tape_forward(tape, hidden); ...
                Dropout is only in what is trained.
   On a card    device.h, included before these files, is the same network on a CUDA device. */
#ifndef PARTS_TRANSFORMER_H
#define PARTS_TRANSFORMER_H
#include <string.h>
#include "adapter.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

/* ---- what operators run with, and the memory they work in; device.h has its own ---- */
#ifndef PARTS_DEVICE_H
typedef memopt_ops transformer_ops;

/* Does a forward of attention leave a number for each row and head to its backward? Here scores are made again. */
static inline int transformer_keeps_statistics(const transformer_ops *ops, const memopt_attention *attention) {
    (void)ops;
    (void)attention;
    return 0;
}

/* Are bits those of a row, or of a head of attention, whatever else is in the same call? */
static inline int transformer_rows_are_alone(const transformer_ops *ops) {
    (void)ops;
    return 1;
}

static inline int transformer_heads_are_alone(const transformer_ops *ops, const memopt_attention *attention) {
    (void)ops;
    (void)attention;
    return 1;
}

static inline memopt_status transformer_copy(const transformer_ops *ops, void *to, const void *from, size_t bytes) {
    (void)ops;
    memcpy(to, from, bytes);
    return MEMOPT_OK;
}

static inline memopt_status transformer_zero(const transformer_ops *ops, void *to, size_t bytes) {
    (void)ops;
    memset(to, 0, bytes);
    return MEMOPT_OK;
}

/* `rows` pieces of `bytes`; steps are in bytes, too. */
static inline memopt_status transformer_copy_rows(const transformer_ops *ops, void *to, size_t to_step,
                                                  const void *from, size_t from_step, size_t bytes, size_t rows) {
    size_t r;

    (void)ops;
    for (r = 0; r < rows; ++r)
        memcpy((unsigned char *)to + r * to_step, (const unsigned char *)from + r * from_step, bytes);
    return MEMOPT_OK;
}

/* to += from */
static inline memopt_status transformer_plus(const transformer_ops *ops, float *to, const float *from, size_t n) {
    size_t i, k;

    (void)ops;
    for (i = 0; i + 16 <= n; i += 16) {
        float a[16], b[16];

        memcpy(a, to + i, sizeof a);
        memcpy(b, from + i, sizeof b);
        for (k = 0; k < 16; ++k) a[k] += b[k];
        memcpy(to + i, a, sizeof a);
    }
    for (; i < n; ++i) to[i] += from[i];
    return MEMOPT_OK;
}

/* What changes no sum that it is added to: -0. */
static inline memopt_status transformer_no_summand(const transformer_ops *ops, float *to, size_t n) {
    size_t i;

    (void)ops;
    for (i = 0; i < n; ++i) to[i] = -0.0f;
    return MEMOPT_OK;
}
#endif

/* An attention of your own, in forward and backward (call->is_backward). What it works in it takes first, with
   memopt_tape_take(). While call->describing it does nothing but raise *ops->count_scratch to the scratch it needs. It
   may work in the rows of the output, and a backward in those of queries, output and grad_output, which nobody reads
   after it; rows of queries and of their gradients have room for keys and values. See ring.h. */
typedef struct transformer_attention_fns {
    void (*take_fn)(const memopt_tape_call *call, const memopt_attention *attention, void *room[2]);
    memopt_status (*run_fn)(const memopt_tape_call *call, const transformer_ops *ops,
                            const memopt_attention *attention, void *const room[2]);
    int   keeps_output; /* 1: attention->output is in the backward what it was after the forward. Scratch of a backward
                           has a plane of gradients more */
    void *user;         /* yours: in both functions call->user is a transformer_part, whose shape points here */
} transformer_attention_fns;

typedef struct transformer_cut { /* among ranks: by width, tensor.h, or by length, ring.h */
    size_t parts;             /* of the model, whatever the number of ranks: a power of two */
    size_t rank, rank_count;  /* which divides parts: each rank has as many, side by side */
    struct memopt_comm *comm; /* of these ranks, for passes alone: a shard leaves calls under way in its own; NULL: one
                                 rank, or sizes alone are asked for */
    int    by_length;         /* 1: parts are of the rows, and of the vocabulary. All ranks have all tensors, and what
                                 each has of their gradients is a summand */
} transformer_cut;

typedef struct transformer { /* zero it, then set what you need; parts point to it, so a change is for all of them */
    size_t batch, length;    /* sequences, and tokens of each. When they change: describe and reshape */
    size_t width, heads;     /* heads divide the width, but with a head_width of their own */
    size_t head_width;       /* 0 = width / heads */
    size_t kv_heads;         /* 0 = heads; else it divides them: groups share keys and values */
    size_t hidden;           /* of the MLP; 0 = 4 * width */
    size_t vocabulary;
    size_t padded;           /* rows of the token embedding; 0 = vocabulary */
    size_t positions;        /* rows of learned positions, at least length; 0 = length */
    size_t grain;            /* 0: tensors lie one behind the other; else each begins at a multiple of so many elements,
                                256 where memopt_shard lays them out: transformer_place() moves what a list tells */
    int    rms;              /* 1: RMS norm, which has no shift; 0: layer norm */
    int    swiglu;           /* 1: SwiGLU; 0: GELU */
    int    geglu;            /* 1: GeGLU, with swiglu 0 */
    int    rotary;           /* 1: rotary positions, in the attention; 0: learned ones, in the embedding */
    int    no_bias;          /* 1: linear layers without biases */
    int    qkv_bias;         /* 1: with no_bias, queries, keys and values have one all the same */
    int    qk_norm;          /* 1: RMS norm of each head of queries and keys, before they are rotated */
    int    not_causal;       /* 1: every token sees all of its sequence */
    int    untied;           /* 1: the head has weights of its own; 0: they are the token embedding */
    float  eps;              /* of norms; 0 = 1e-5 */
    double rotary_base;      /* 0 = 10000 */
    const double *rotary_frequencies; /* NULL, or head_width / 2 of them; then rotary_base is 0. As of memopt_rotary, */
    float  rotary_magnitude;          /* which has this, too */
    size_t window;           /* tokens that one attends to, itself and those before it; 0 = all of them */
    size_t documents;        /* 0: each sequence is one; else the rows are cut into so many, as of memopt_attention */
    const size_t  *starts;   /* of documents, none of which is longer than `length` */
    const int32_t *row_positions; /* NULL: they begin anew with each sequence; else of each row, for documents, or where
                                rotary ones are cut by length */
    size_t mlp_chunk;        /* 0: all rows go through the MLP at once, and what goes into its activation is kept;
                                else so many at a time, up to a multiple of 32, and it is made again: the same bits with
                                float32 gradients */
    const transformer_attention_fns *attention; /* NULL: memopt_attention_forward() and _backward() */
    size_t adapter_rank;     /* 0: all is trained; else adapters of that rank alone. Not on cards */
    float  adapter_scale;    /* alpha / rank; 0 = 1 */
    int    adapters_apart;   /* 1: queries, keys, values have an adapter each, so have gate and up; 0: one for all */
    size_t quantized_block;  /* 0: frozen matrices of blocks are of weight_type; else codes of 8 bits, as
                                memopt_quantize_f32() makes them of blocks of so many: chain.codes, chain.absmax */
    memopt_quant_map quantized_map;
    const transformer_cut *cut; /* NULL: all of it is here */
    float  dropout;          /* rate, of what a half of a block adds to its input; an evaluation has none */
    memopt_type type, weight_type, gradient_type; /* of activations, weights, gradients of weights */
    transformer_ops ops;     /* threads and gemm; scratch comes from the tape */
    int         accumulate;  /* 1: a pass adds to the gradients of the pass before; not with done_fn */
    /* NULL, or told when the gradients of a tensor are complete, in its part's backward; with `user` an optimizer, all
       it does is to call memopt_optim_apply_with(). Not called in a calibration */
    memopt_status (*done_fn)(void *user, size_t tensor, const void *gradients);
    void       *user;
} transformer;

typedef struct transformer_tensor { /* where a parameter lies in the array of its part */
    const char *name;
    size_t first, count; /* elements; a count of 0: this shape does not have it */
    size_t columns;      /* of a matrix, which lies row by row; 0: a vector */
    size_t pieces;       /* 0; or it is so many tensors of `count / pieces`, one behind the other, those of this rank */
} transformer_tensor;

typedef struct transformer_part { /* what every part has, and its callbacks know it by */
    const transformer *shape;
    const void *weights;     /* one array, as the list of tensors says */
    void       *gradients;   /* the same; NULL: in scratch, for done_fn */
    size_t      first_tensor, tensor_count; /* the numbers of its tensors for done_fn; absent and frozen ones are not
                                               counted */
    int         is_frozen;   /* 1: weights have no gradients */
    int         is_coded;    /* 1: matrices are codes */
    size_t      rank;        /* of adapters; 0: none */
    size_t      pieces, piece_outputs[ADAPTER_PIECES]; /* of the first matrix of a half, where adapters are apart */
    const float   *adapters;
    void          *adapter_gradients; /* NULL: in scratch, for done_fn */
    const uint8_t *codes;
    const float   *absmax;
} transformer_part;

typedef size_t transformer_tensors_fn(const transformer *shape, transformer_tensor *list); /* returns the elements */
enum { TRANSFORMER_TENSORS_MAX = 8 };

typedef struct transformer_chain { /* zero it, then set what there is */
    const transformer   *shape;
    void                *weights, *gradients; /* of all parts; NULL while counting; gradients NULL: in scratch */
    memopt_optim_tensor *tensors;             /* NULL, or filled in for an optimizer */
    memopt_tape_layer   *layers;              /* NULL, or filled in, as are the segments: sizes without scratch */
    memopt_segment      *segments;
    float               *adapters;            /* likewise, see `Adapters` */
    void                *adapter_gradients;
    uint8_t             *codes;               /* code_elements, */
    float               *absmax;              /* and one for each block of them */
    int                  front;               /* 1: nothing is trained, see `In front` */
    size_t elements, tensor_count, count;     /* so far: parameters, tensors that are trained, segments */
    size_t adapter_elements, code_elements;
    memopt_segment       counted;             /* where a segment goes while there is no array of them */
} transformer_chain;

/* ---- parameters ---- */
/* Set tensor `i` of a list, behind the one before it. */
static inline void transformer_list(transformer_tensor *list, size_t i, const char *name, size_t rows, size_t columns) {
    list[i].name = name;
    list[i].first = i ? list[i - 1].first + list[i - 1].count : 0;
    list[i].count = columns ? rows * columns : rows;
    list[i].columns = list[i].count ? columns : 0;
    list[i].pieces = 0;
}

/* A tensor of a list is so many tensors for an optimizer, on all ranks alike; those from *first on are here. */
static inline size_t transformer_numbers(const transformer *t, const transformer_tensor *l, size_t *first) {
    *first = l->pieces ? t->cut->rank * l->pieces : 0;
    return !l->count ? 0 : l->pieces ? t->cut->parts : 1;
}

static inline size_t transformer_up(size_t x, size_t unit) {
    return unit ? (x + unit - 1) / unit * unit : x;
}

/* Elements of a piece, and from it to the next one. */
static inline size_t transformer_piece(const transformer_tensor *l) {
    return l->pieces ? l->count / l->pieces : l->count;
}

/* Pieces of a cut by length are of one tensor. */
static inline size_t transformer_step(const transformer *t, const transformer_tensor *l) {
    return transformer_up(transformer_piece(l), l->pieces && !t->cut->by_length ? t->grain : 0);
}

static inline size_t transformer_span(const transformer *t, const transformer_tensor *l) { /* of all pieces */
    return (l->pieces ? l->pieces : 1) * transformer_step(t, l);
}

/* Move the tensors of a list to where a shape with a grain has them. Returns the elements, of `elements` without it. */
static inline size_t transformer_place(const transformer *t, transformer_tensor *list, size_t elements) {
    size_t i, end = 0;

    for (i = 0; t->grain && i < TRANSFORMER_TENSORS_MAX; ++i) {
        list[i].first = transformer_up(end, t->grain);
        if (list[i].count) end = list[i].first + transformer_span(t, &list[i]);
    }
    return t->grain ? transformer_up(end, t->grain) : elements;
}

/* ---- where the tensors of a part lie ---- */
typedef struct transformer_lists {
    transformer_tensor list[TRANSFORMER_TENSORS_MAX];     /* in weights and gradients; coded matrices in codes */
    transformer_tensor adapters[TRANSFORMER_TENSORS_MAX]; /* A and B of each matrix */
    size_t elements, adapter_elements, code_elements;
} transformer_lists;

/* Matrices to codes, each from a block on; what is left, side by side. */
static inline void transformer_list_codes(const transformer *t, transformer_lists *x) {
    size_t i, end = 0;

    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) {
        transformer_tensor *l = &x->list[i];

        l->first = l->columns ? x->code_elements : transformer_up(end, t->grain);
        if (l->columns) x->code_elements += transformer_up(l->count, t->quantized_block);
        else if (l->count) end = l->first + l->count;
    }
    x->elements = transformer_up(end, t->grain);
}

static inline size_t transformer_pieces(const transformer_part *part) {
    return part->shape->adapters_apart && part->pieces ? part->pieces : 1;
}

static inline void transformer_list_adapters(const transformer_part *part, transformer_lists *x) {
    size_t i, k = 0, elements = 0;

    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) {
        const transformer_tensor *l = &x->list[i];

        const size_t pieces = k ? 1 : transformer_pieces(part);

        if (!l->columns) continue;
        transformer_list(x->adapters, k++, "a", pieces * part->rank, l->columns);
        transformer_list(x->adapters, k++, "b", l->count / l->columns, part->rank);
        elements += part->rank * (pieces * l->columns + l->count / l->columns);
    }
    x->adapter_elements = transformer_place(part->shape, x->adapters, elements);
}

static inline void transformer_list_part(const transformer_part *part, transformer_tensors_fn *tensors_fn,
                                         transformer_lists *x) {
    memset(x, 0, sizeof *x);
    x->elements = transformer_place(part->shape, x->list, tensors_fn(part->shape, x->list));
    if (part->is_coded) transformer_list_codes(part->shape, x);
    if (part->rank) transformer_list_adapters(part, x);
}

/* What an optimizer steps; NULL: nothing is. */
static inline const transformer_tensor *transformer_trained(const transformer_part *part, const transformer_lists *x) {
    return part->rank ? x->adapters : part->is_frozen ? NULL : x->list;
}

/* ---- shapes ---- */
static inline size_t transformer_rows(const transformer *t) {
    return t->batch * t->length;
}

static inline int transformer_by_length(const transformer *t) {
    return t->cut && t->cut->by_length && t->cut->rank_count;
}

static inline size_t transformer_own_rows(const transformer *t) { /* of a block of this rank */
    return transformer_rows(t) / (transformer_by_length(t) ? t->cut->rank_count : 1);
}

static inline size_t transformer_first_row(const transformer *t) {
    return transformer_by_length(t) ? t->cut->rank * transformer_own_rows(t) : 0;
}

static inline size_t transformer_row_parts(const transformer *t) { /* runs of own rows, whose sums are a tree */
    return transformer_by_length(t) ? t->cut->parts / t->cut->rank_count : 1;
}

static inline size_t transformer_hidden(const transformer *t) {
    return t->hidden ? t->hidden : 4 * t->width;
}

static inline size_t transformer_padded(const transformer *t) {
    return t->padded ? t->padded : t->vocabulary;
}

static inline size_t transformer_bytes(const transformer *t, size_t columns) { /* of an activation */
    return transformer_own_rows(t) * columns * memopt_type_bytes(t->type);
}

static inline void *transformer_at(const void *array, size_t element, memopt_type type) { /* NULL stays NULL */
    return array ? (unsigned char *)(uintptr_t)array + element * memopt_type_bytes(type) : NULL;
}

/* ---- a part of a chain ---- */
static inline memopt_status transformer_no_backward(const memopt_tape_call *call) {
    return call->describing ? MEMOPT_OK : MEMOPT_ERR_STATE; /* nobody calls for it: a front is evaluated */
}

/* What its weights are to it, and its place in the arrays. */
static inline void transformer_place_part(const transformer_chain *c, transformer_part *part, int is_half) {
    const transformer *t = c->shape;

    part->shape = t;
    part->is_frozen = c->front || t->adapter_rank > 0;
    part->is_coded = is_half && part->is_frozen && t->quantized_block > 0;
    part->rank = is_half && !c->front ? t->adapter_rank : 0;
    part->weights = transformer_at(c->weights, c->elements, t->weight_type);
    part->gradients = part->is_frozen ? NULL : transformer_at(c->gradients, c->elements, t->gradient_type);
    part->adapters = c->adapters ? c->adapters + c->adapter_elements : NULL;
    part->adapter_gradients = transformer_at(c->adapter_gradients, c->adapter_elements, t->gradient_type);
    part->codes = c->codes ? c->codes + c->code_elements : NULL;
    part->absmax = c->absmax && part->is_coded ? c->absmax + c->code_elements / t->quantized_block : NULL;
    part->first_tensor = c->tensor_count;
    part->tensor_count = 0;
}

/* Piece `k` of a tensor, for an optimizer; here 0: another rank has it. */
static inline void transformer_fill_tensor(const transformer *t, const transformer_part *part,
                                           const transformer_tensor *l, size_t k, int here, memopt_optim_tensor *o) {
    const size_t count = transformer_piece(l), first = l->first + k * transformer_step(t, l);

    memset(o, 0, sizeof *o);
    o->count = count;
    o->columns = l->columns;
    o->first = here ? 0 : count;
    if (!here) return;
    o->weights = part->rank ? transformer_at(part->adapters, first, MEMOPT_TYPE_F32)
                            : transformer_at(part->weights, first, t->weight_type);
    o->gradients = transformer_at(part->rank ? part->adapter_gradients : part->gradients, first, t->gradient_type);
}

/* The tensors that are trained, for an optimizer. */
static inline void transformer_add_tensors(transformer_chain *c, transformer_part *part, const transformer_lists *x) {
    const transformer *t = c->shape;
    const transformer_tensor *list = transformer_trained(part, x);
    size_t i, k, first;

    for (i = 0; list && i < TRANSFORMER_TENSORS_MAX; ++i) {
        const size_t numbers = transformer_numbers(t, &list[i], &first), here = list[i].pieces ? list[i].pieces : 1;

        for (k = 0; c->tensors && k < numbers; ++k)
            transformer_fill_tensor(t, part, &list[i], k - first, k >= first && k - first < here,
                                    &c->tensors[c->tensor_count + k]);
        c->tensor_count += numbers;
        part->tensor_count += numbers;
    }
}

/* A part, which may be a half of a block; its layer; its segment, which is returned, with output_bytes. */
static inline memopt_segment *transformer_add_part(transformer_chain *c, transformer_part *part, int is_half,
                                                   transformer_tensors_fn *tensors_fn, memopt_tape_fn *forward_fn,
                                                   memopt_tape_fn *backward_fn, size_t output_bytes) {
    memopt_segment *segment = c->segments ? &c->segments[c->count] : &c->counted;
    transformer_lists x;

    transformer_place_part(c, part, is_half);
    transformer_list_part(part, tensors_fn, &x);
    transformer_add_tensors(c, part, &x);
    if (c->layers) {
        c->layers[c->count].forward_fn = forward_fn;
        c->layers[c->count].backward_fn = c->front ? transformer_no_backward : backward_fn;
        c->layers[c->count].user = part;
    }
    memset(segment, 0, sizeof *segment);
    segment->output_bytes = output_bytes;
    c->elements += x.elements;
    c->adapter_elements += x.adapter_elements;
    c->code_elements += x.code_elements;
    ++c->count;
    return segment;
}

static inline memopt_segment *transformer_add(transformer_chain *c, transformer_part *part,
                                              transformer_tensors_fn *tensors_fn, memopt_tape_fn *forward_fn,
                                              memopt_tape_fn *backward_fn, size_t output_bytes) {
    return transformer_add_part(c, part, 0, tensors_fn, forward_fn, backward_fn, output_bytes);
}

/* ---- what a callback works with ---- */
typedef struct transformer_work {
    const memopt_tape_call *call;
    const transformer_part *part;
    const transformer      *shape;
    transformer_tensor      list[TRANSFORMER_TENSORS_MAX];
    void                   *gradients[TRANSFORMER_TENSORS_MAX]; /* of a backward; NULL: frozen */
    transformer_tensor      adapters[TRANSFORMER_TENSORS_MAX];
    void                   *adapter_gradients[TRANSFORMER_TENSORS_MAX];
    float                  *low, *grad_low; /* of adapters; transformer_take_low() */
    memopt_quantized        quantized[TRANSFORMER_TENSORS_MAX]; /* what belongs to codes */
    size_t                  row, rows; /* the rows in work: all, unless a part goes through them in chunks */
    float                  *levels;    /* of sums over runs of rows; transformer_take_levels() */
    size_t                  level;     /* elements of one */
    int                     is_run;    /* 1: the rows in work are a run, whose gradients are a summand of their own */
    transformer_ops         ops;       /* set once everything has been taken */
} transformer_work;

/* Where gradients are, or room for them. */
static inline void transformer_take_gradients(const transformer_work *w, const transformer_tensor *list, void *array,
                                              void **gradients) {
    const memopt_type type = w->shape->gradient_type;
    size_t i;

    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) {
        const size_t bytes = transformer_span(w->shape, &list[i]) * memopt_type_bytes(type);

        gradients[i] = transformer_at(array, list[i].first, type);
        if (!array || !bytes) gradients[i] = memopt_tape_take(w->call, MEMOPT_TAPE_SCRATCH, bytes);
    }
}

/* Begin a callback. A backward takes room for gradients here, if its part has none. */
static inline transformer_work transformer_begin(const memopt_tape_call *call, transformer_tensors_fn *tensors_fn,
                                                 int backward) {
    transformer_work w;
    transformer_lists x;
    size_t i;

    memset(&w, 0, sizeof w);
    w.call = call;
    w.part = (const transformer_part *)call->user;
    w.shape = w.part->shape;
    w.rows = transformer_own_rows(w.shape);
    transformer_list_part(w.part, tensors_fn, &x);
    memcpy(w.list, x.list, sizeof w.list);
    memcpy(w.adapters, x.adapters, sizeof w.adapters);
    for (i = 0; w.part->is_coded && i < TRANSFORMER_TENSORS_MAX; ++i) {
        w.quantized[i].map = w.shape->quantized_map;
        w.quantized[i].block = w.shape->quantized_block;
        w.quantized[i].absmax = w.part->absmax ? w.part->absmax + w.list[i].first / w.shape->quantized_block : NULL;
    }
    if (backward && !w.part->is_frozen) transformer_take_gradients(&w, w.list, w.part->gradients, w.gradients);
    if (backward && w.part->rank)
        transformer_take_gradients(&w, w.adapters, w.part->adapter_gradients, w.adapter_gradients);
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

/* The next room for an activation of so many columns, of the rows in work. */
static inline void *transformer_take(const transformer_work *w, memopt_tape_part part, size_t columns) {
    return memopt_tape_take(w->call, part, w->rows * columns * memopt_type_bytes(w->shape->type));
}

/* What adapters work in, for the rows in work. */
static inline void transformer_take_low(transformer_work *w) {
    const size_t bytes = transformer_up(w->rows * w->part->rank * transformer_pieces(w->part) * sizeof(float), 64);

    if (!bytes) return;
    w->low = (float *)memopt_tape_take(w->call, MEMOPT_TAPE_SCRATCH, bytes);
    w->grad_low = (float *)memopt_tape_take(w->call, MEMOPT_TAPE_SCRATCH, w->call->is_backward ? bytes : 0);
}

static inline float *transformer_take_statistics(const transformer_work *w) { /* of a norm */
    return (float *)memopt_tape_take(w->call, MEMOPT_TAPE_SCRATCH, 2 * w->rows * sizeof(float));
}

/* The rows in work, of rows as wide as the residual stream. */
static inline void *transformer_row(const transformer_work *w, const void *stream) {
    return transformer_at(stream, w->row * w->shape->width, w->shape->type);
}

/* Are gradients of weights added to? To those of a pass before, or of the rows before. */
static inline int transformer_accumulates(const transformer_work *w) {
    return !w->is_run && (w->shape->accumulate || w->row > 0);
}

static inline const void *transformer_weights(const transformer_work *w, size_t i) {
    return w->list[i].count ? transformer_at(w->part->weights, w->list[i].first, w->shape->weight_type) : NULL;
}

/* End a backward: its gradients are complete. */
static inline memopt_status transformer_done(const transformer_work *w, memopt_status s) {
    const transformer *t = w->shape;
    const transformer_tensor *list = w->part->rank ? w->adapters : w->list;
    void *const *gradients = w->part->rank ? w->adapter_gradients : w->gradients;
    size_t tensor = w->part->first_tensor;
    size_t i, k, first;

    if (w->part->is_frozen && !w->part->rank) return s;
    if (!t->done_fn || w->call->describing || w->call->calibrating) return s;
    for (i = 0; i < TRANSFORMER_TENSORS_MAX && s == MEMOPT_OK; ++i) {
        const size_t numbers = transformer_numbers(t, &list[i], &first), here = list[i].pieces ? list[i].pieces : 1;

        for (k = 0; numbers && k < here && s == MEMOPT_OK; ++k)
            s = t->done_fn(t->user, tensor + first + k,
                           transformer_at(gradients[i], k * transformer_step(t, &list[i]), t->gradient_type));
        tensor += numbers;
    }
    return s;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
