/* model.h - the network: a decoder, GPT-2's or Llama's kin (shapes.h), or a ViT, made of examples/parts; and what no part
   has: the first values of parameters, the 16 bits more of split weights. The same on the CPU and, behind
   parts/device.h, on a card. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

enum { PATCH_SIDE = 8, PATCH = PATCH_SIDE * PATCH_SIDE * 3 /* floats */ };

typedef void chain_begin_fn(transformer_chain *chain, transformer_part *first);
typedef void chain_block_fn(transformer_chain *chain, transformer_block *block);
typedef void chain_head_fn(transformer_chain *chain, transformer_head *head, const transformer_part *embedding);

typedef struct model {
    transformer shape;
    size_t layers;
    int vit;
    int documents;            /* sequences are cut into them, batch by batch */
    chain_block_fn *block_fn; /* transformer_add_block(), or of a model that is cut by width tensor_add_block() */
    chain_head_fn  *head_fn;
    transformer_cut cut;
    chain_begin_fn *begin_fn; /* adds the first part: transformer_add_embedding(), or of a ViT add_patches() */
    int split;                /* weights have 16 bits more, which make them exact floats */
    int fuse;                 /* a tensor is stepped as soon as its gradient is whole */
    transformer_part embedding;
    transformer_block *blocks;
    transformer_head head;
    size_t elements; /* of all tensors, which lie one after the other in each of these: */
    void *weights, *extra, *gradients;
    size_t tensor_count;
    memopt_optim_tensor *tensors; /* as the optimizer wants them: of both ends, then of the blocks */
    memopt_optim *optim;
    double loss; /* of all micro-batches of a step */
} model;

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t target_count(const model *m) { return m->vit ? m->shape.batch : transformer_rows(&m->shape); }

/* ---- the chain ---- */
static size_t segment_count(const model *m) { return 2 * m->layers + 2; }

/* Count elements and tensors; place parts in the arrays there are; fill in layers and segments, which may be NULL. */
static void describe_chain(model *m, memopt_tape_layer *layers, memopt_segment *segments) {
    transformer_chain c;
    size_t i, ends;

    memset(&c, 0, sizeof c);
    c.shape = &m->shape;
    c.weights = m->weights;
    c.gradients = m->fuse ? NULL : m->gradients;
    c.tensors = m->tensors;
    c.layers = layers;
    c.segments = segments;
    m->begin_fn(&c, &m->embedding);
    c.count = segment_count(m) - 1;
    m->head_fn(&c, &m->head, &m->embedding);
    ends = c.tensor_count;
    for (c.count = 1, i = 0; i < m->layers; ++i) m->block_fn(&c, &m->blocks[i]);
    m->elements = c.elements;
    m->tensor_count = c.tensor_count;
    if (m->fuse && !m->shape.untied) m->embedding.gradients = m->gradients; /* of the tokens: begun by the head */
    if (m->fuse && !m->shape.untied && m->tensors) m->tensors[0].gradients = m->gradients;
    for (i = 0; m->tensors && i < m->tensor_count; ++i) /* Muon steps the blocks' matrices */
        m->tensors[i].group = (size_t)(m->tensors[i].adamw = i < ends || !m->tensors[i].columns);
    for (i = 0; m->split && m->tensors && i < m->tensor_count; ++i)
        m->tensors[i].extra = (unsigned char *)m->extra
                            + ((const unsigned char *)m->tensors[i].weights - (const unsigned char *)m->weights);
}

static size_t gradient_elements(const model *m) { /* that have memory of their own */
    return !m->fuse ? m->elements : m->shape.untied ? 0 : transformer_padded(&m->shape) * m->shape.width;
}

/* Bytes of the gradients that the backward of a part has in scratch. */
static size_t fused_bytes(const model *m, const transformer_part *part) {
    size_t bytes = 0;
    size_t i;

    for (i = part->first_tensor; i < part->first_tensor + part->tensor_count; ++i)
        if (!m->tensors[i].gradients)
            bytes += (m->tensors[i].count * memopt_type_bytes(m->shape.gradient_type) + 63) & ~(size_t)63;
    return bytes;
}

/* ---- first values: GPT-2's ---- */
/* Random streams: each tensor of either model has one of its own. */
enum { STREAM_TOKENS, STREAM_POSITIONS, STREAM_CLASS_TOKEN = 4, STREAM_FINAL_SCALE = 6, STREAM_BLOCKS = 8 };

static size_t end_count(const model *m) { /* tensors that are no block's */
    return m->embedding.tensor_count + m->head.part.tensor_count;
}

/* Of a tensor that is cut, each piece: of so many parts. Cut by length are rows alone. */
static size_t part_count(const model *m) {
    return m->shape.cut && !m->shape.cut->by_length ? m->shape.cut->parts : 1;
}

/* What tensor `i` of both ends is, and which piece of it: tokens, and an untied head, are cut. */
static size_t end_of(const model *m, size_t i, size_t *piece) {
    const size_t more = part_count(m) - 1, head = m->embedding.tensor_count - more + (m->shape.rms ? 1 : 2);

    *piece = i <= more ? i : 0;
    i -= least(i, more);
    if (i > head) *piece = i - head;
    return least(i, head);
}

static size_t stream_of(const model *m, size_t tensor) {
    static const unsigned char text[2] = { STREAM_TOKENS, STREAM_POSITIONS };
    static const unsigned char images[4] = { 2, 3, STREAM_CLASS_TOKEN, STREAM_POSITIONS };
    static const unsigned char rms[2] = { STREAM_FINAL_SCALE, 5 }, head[3] = { STREAM_FINAL_SCALE, 7, 5 };
    const size_t first = m->embedding.tensor_count - (part_count(m) - 1);
    size_t piece, end;

    if (tensor >= end_count(m)) return STREAM_BLOCKS + tensor - end_count(m);
    end = end_of(m, tensor, &piece);
    piece <<= 24; /* there are fewer tensors of blocks */
    if (end < first) return piece + (m->vit ? images[end] : text[end]);
    return piece + (m->shape.rms ? rms[end - first] : head[end - first]);
}

/* What tensor `i` is in its half of a block; SIZE_MAX: it is no block's. */
static size_t role_of(const model *m, size_t i) {
    const transformer_block *b = &m->blocks[0];
    const size_t half = b->attention.tensor_count, in_block = half + b->mlp.tensor_count;
    const size_t at = i < end_count(m) ? 0 : (i - end_count(m)) % in_block;
    size_t left = at < half ? at : at - half, role = 0;
    transformer_tensor list[TRANSFORMER_TENSORS_MAX];

    if (i < end_count(m)) return SIZE_MAX;
    memset(list, 0, sizeof list);
    (void)(at < half ? transformer_attention_tensors : transformer_mlp_tensors)(&m->shape, list);
    for (;; ++role) {
        const size_t pieces = !list[role].count ? 0 : transformer_is_cut(role) ? part_count(m) : 1;

        if (left < pieces) return role;
        left -= pieces;
    }
}

/* Of the part of tensor `i` that is held at t. Normal, deviation 0.02, of what adds to the residual stream
   0.02 / sqrt(2 layers); scales 1, the rest 0. */
static memopt_status init_tensor(const model *m, size_t i, const memopt_optim_tensor *t, uint64_t seed) {
    const size_t held = t->held ? t->held : t->count - t->first;
    const size_t stream = stream_of(m, i);
    const size_t role = role_of(m, i);
    const int is_scale = stream == STREAM_FINAL_SCALE || role == TRANSFORMER_NORM_SCALE
                      || role == TRANSFORMER_QUERY_NORM || role == TRANSFORMER_KEY_NORM;
    const double deviation = !t->columns && stream != STREAM_CLASS_TOKEN ? 0
                           : role == TRANSFORMER_PROJECT                 ? 0.02 / sqrt(2 * (double)m->layers)
                                                                         : 0.02;
    float x[1024];
    size_t at, n, k;
    memopt_status s;

    for (at = 0; at < held; at += n) {
        n = least(held - at, 1024);
        s = memopt_random_normal(x, n, seed, stream, t->first + at, NULL);
        if (s) return s;
        for (k = 0; k < n; ++k) x[k] = is_scale ? 1.0f : (float)(deviation * (double)x[k]);
        if (m->shape.weight_type == MEMOPT_TYPE_F32) memcpy((float *)t->weights + at, x, n * sizeof *x);
        else if (!t->extra) s = memopt_bf16_from_f32((uint16_t *)t->weights + at, x, n, NULL);
        else s = memopt_f32_split((uint16_t *)t->weights + at, (uint16_t *)t->extra + at, x, n, NULL);
        if (s) return s;
    }
    return MEMOPT_OK;
}
#endif
