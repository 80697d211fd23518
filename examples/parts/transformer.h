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
   On a card    device.h, included before these files, is the same network on a CUDA device. */
#ifndef PARTS_TRANSFORMER_H
#define PARTS_TRANSFORMER_H
#include <string.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

/* ---- what operators run with, and the memory they work in; device.h has its own ---- */
#ifndef PARTS_DEVICE_H
typedef memopt_ops transformer_ops;

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
#endif

/* An attention of your own, in forward and backward (call->is_backward). What it works in it takes first, with
   memopt_tape_take(). While call->describing it does nothing but raise *ops->count_scratch to the scratch it needs. */
typedef struct transformer_attention_fns {
    void (*take_fn)(const memopt_tape_call *call, const memopt_attention *attention, void *room[2]);
    memopt_status (*run_fn)(const memopt_tape_call *call, const transformer_ops *ops,
                            const memopt_attention *attention, void *const room[2]);
} transformer_attention_fns;

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
    const int32_t *rotary_positions; /* NULL: they begin anew with each sequence; else of each row, for documents */
    size_t mlp_chunk;        /* 0: all rows go through the MLP at once, and what goes into its activation is kept;
                                else so many at a time, up to a multiple of 32, and it is made again: the same bits with
                                float32 gradients */
    const transformer_attention_fns *attention; /* NULL: memopt_attention_forward() and _backward() */
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
} transformer_tensor;

typedef struct transformer_part { /* what every part has, and its callbacks know it by */
    const transformer *shape;
    const void *weights;     /* one array, as the list of tensors says */
    void       *gradients;   /* the same; NULL: in scratch, for done_fn */
    size_t      first_tensor, tensor_count; /* the numbers of its tensors for done_fn; absent ones are not counted */
} transformer_part;

typedef size_t transformer_tensors_fn(const transformer *shape, transformer_tensor *list); /* returns the elements */
enum { TRANSFORMER_TENSORS_MAX = 8 };

typedef struct transformer_chain { /* zero it, then set what there is */
    const transformer   *shape;
    void                *weights, *gradients; /* of all parts; NULL while counting; gradients NULL: in scratch */
    memopt_optim_tensor *tensors;             /* NULL, or filled in for an optimizer */
    memopt_tape_layer   *layers;              /* NULL, or filled in, as are the segments: sizes without scratch */
    memopt_segment      *segments;
    size_t elements, tensor_count, count;     /* so far: parameters, tensors, segments */
    memopt_segment       counted;             /* where a segment goes while there is no array of them */
} transformer_chain;

/* ---- parameters ---- */
/* Set tensor `i` of a list, behind the one before it. */
static inline void transformer_list(transformer_tensor *list, size_t i, const char *name, size_t rows, size_t columns) {
    list[i].name = name;
    list[i].first = i ? list[i - 1].first + list[i - 1].count : 0;
    list[i].count = columns ? rows * columns : rows;
    list[i].columns = list[i].count ? columns : 0;
}

/* Move the tensors of a list to where a shape with a grain has them. Returns the elements, of `elements` without it. */
static inline size_t transformer_place(const transformer *t, transformer_tensor *list, size_t elements) {
    size_t i, end = 0;

    for (i = 0; t->grain && i < TRANSFORMER_TENSORS_MAX; ++i) {
        list[i].first = (end + t->grain - 1) / t->grain * t->grain;
        if (list[i].count) end = list[i].first + list[i].count;
    }
    return t->grain ? (end + t->grain - 1) / t->grain * t->grain : elements;
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

static inline void *transformer_at(const void *array, size_t element, memopt_type type) { /* NULL stays NULL */
    return array ? (unsigned char *)(uintptr_t)array + element * memopt_type_bytes(type) : NULL;
}

/* ---- a part of a chain ---- */
/* Its place in the arrays; its layer; its segment, which is returned, with output_bytes. */
static inline memopt_segment *transformer_add(transformer_chain *c, transformer_part *part,
                                              transformer_tensors_fn *tensors_fn, memopt_tape_fn *forward_fn,
                                              memopt_tape_fn *backward_fn, size_t output_bytes) {
    const transformer *t = c->shape;
    memopt_segment *segment = c->segments ? &c->segments[c->count] : &c->counted;
    transformer_tensor list[TRANSFORMER_TENSORS_MAX];
    size_t i, elements;

    memset(list, 0, sizeof list);
    elements = transformer_place(t, list, tensors_fn(t, list));
    part->shape = t;
    part->weights = transformer_at(c->weights, c->elements, t->weight_type);
    part->gradients = transformer_at(c->gradients, c->elements, t->gradient_type);
    part->first_tensor = c->tensor_count;
    part->tensor_count = 0;
    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) {
        memopt_optim_tensor *x = c->tensors ? &c->tensors[c->tensor_count] : NULL;

        if (!list[i].count) continue;
        ++c->tensor_count;
        ++part->tensor_count;
        if (!x) continue;
        memset(x, 0, sizeof *x);
        x->weights = transformer_at(part->weights, list[i].first, t->weight_type);
        x->gradients = transformer_at(part->gradients, list[i].first, t->gradient_type);
        x->count = list[i].count;
        x->columns = list[i].columns;
    }
    if (c->layers) {
        c->layers[c->count].forward_fn = forward_fn;
        c->layers[c->count].backward_fn = backward_fn;
        c->layers[c->count].user = part;
    }
    memset(segment, 0, sizeof *segment);
    segment->output_bytes = output_bytes;
    c->elements += elements;
    ++c->count;
    return segment;
}

/* ---- what a callback works with ---- */
typedef struct transformer_work {
    const memopt_tape_call *call;
    const transformer_part *part;
    const transformer      *shape;
    transformer_tensor      list[TRANSFORMER_TENSORS_MAX];
    void                   *gradients[TRANSFORMER_TENSORS_MAX]; /* of a backward */
    size_t                  row, rows; /* the rows in work: all, unless a part goes through them in chunks */
    transformer_ops         ops;       /* set once everything has been taken */
} transformer_work;

/* Begin a callback. A backward takes room for gradients here, if its part has none. */
static inline transformer_work transformer_begin(const memopt_tape_call *call, transformer_tensors_fn *tensors_fn,
                                                 int backward) {
    transformer_work w;
    size_t i;

    memset(&w, 0, sizeof w);
    w.call = call;
    w.part = (const transformer_part *)call->user;
    w.shape = w.part->shape;
    w.rows = transformer_rows(w.shape);
    (void)transformer_place(w.shape, w.list, tensors_fn(w.shape, w.list));
    for (i = 0; backward && i < TRANSFORMER_TENSORS_MAX; ++i) {
        const size_t bytes = w.list[i].count * memopt_type_bytes(w.shape->gradient_type);

        w.gradients[i] = transformer_at(w.part->gradients, w.list[i].first, w.shape->gradient_type);
        if (!w.part->gradients || !bytes) w.gradients[i] = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, bytes);
    }
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

static inline float *transformer_take_statistics(const transformer_work *w) { /* of a norm */
    return (float *)memopt_tape_take(w->call, MEMOPT_TAPE_SCRATCH, 2 * w->rows * sizeof(float));
}

/* The rows in work, of rows as wide as the residual stream. */
static inline void *transformer_row(const transformer_work *w, const void *stream) {
    return transformer_at(stream, w->row * w->shape->width, w->shape->type);
}

/* Are gradients of weights added to? To those of a pass before, or of the rows before. */
static inline int transformer_accumulates(const transformer_work *w) {
    return w->shape->accumulate || w->row > 0;
}

static inline const void *transformer_weights(const transformer_work *w, size_t i) {
    return w->list[i].count ? transformer_at(w->part->weights, w->list[i].first, w->shape->weight_type) : NULL;
}

/* End a backward: its gradients are complete. */
static inline memopt_status transformer_done(const transformer_work *w, memopt_status s) {
    const transformer *t = w->shape;
    size_t tensor = w->part->first_tensor;
    size_t i;

    if (!t->done_fn || w->call->describing || w->call->calibrating) return s;
    for (i = 0; i < TRANSFORMER_TENSORS_MAX && s == MEMOPT_OK; ++i)
        if (w->list[i].count) s = t->done_fn(t->user, tensor++, w->gradients[i]);
    return s;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
