/* model.h - the network: a GPT-2-shaped decoder, or a ViT, made of examples/parts; and what no part has: the beginning
   of a ViT, the first values of parameters, the 16 bits more of split weights. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

enum { PATCH_SIDE = 8, PATCH = PATCH_SIDE * PATCH_SIDE * 3 /* floats */ };

typedef struct model {
    transformer shape;
    size_t layers;
    int    vit;
    int    split; /* weights have 16 bits more, which make them exact floats */
    int    fuse;  /* a tensor is stepped as soon as its gradient is whole */
    transformer_part embedding;
    transformer_block *blocks;
    transformer_head head;
    size_t elements; /* of all tensors, which lie one after the other in each of these: */
    void  *weights, *extra, *gradients;
    size_t tensor_count;
    memopt_optim_tensor *tensors; /* as the optimizer wants them: of both ends, then of the blocks */
    memopt_optim *optim;
    double loss; /* of all micro-batches of a step */
} model;

static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* ---- the beginning of a ViT: patches, a class token, positions ---- */
enum { PATCHES, PATCHES_BIAS, CLASS_TOKEN, VIT_POSITIONS };

static size_t patches_tensors(const transformer *t, transformer_tensor *list) {
    transformer_list(list, PATCHES, "patches", t->width, PATCH);
    transformer_list(list, PATCHES_BIAS, "patches bias", t->width, 0);
    transformer_list(list, CLASS_TOKEN, "class token", t->width, 0);
    transformer_list(list, VIT_POSITIONS, "positions", t->length, t->width);
    return list[VIT_POSITIONS].first + list[VIT_POSITIONS].count;
}

static float number_at(const void *x, memopt_type type, size_t i) {
    return type == MEMOPT_TYPE_F32 ? ((const float *)x)[i] : type == MEMOPT_TYPE_BF16
        ? memopt_from_bf16(((const uint16_t *)x)[i]) : memopt_from_f16(((const uint16_t *)x)[i]);
}

static void number_put(void *to, memopt_type type, size_t i, float x) {
    if (type == MEMOPT_TYPE_F32) ((float *)to)[i] = x;
    else ((uint16_t *)to)[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
}

static const void *image_at(const transformer_work *w, size_t image) { /* its patches */
    return transformer_at(w->call->input, image * w->rows * PATCH, w->shape->type);
}

static void *stream_at(const transformer_work *w, const void *stream, size_t image, size_t row) {
    return transformer_at(stream, (image * w->shape->length + row) * w->shape->width, w->shape->type);
}

static memopt_status patches_forward(const memopt_tape_call *call) {
    transformer_work w = transformer_begin(call, patches_tensors, 0);
    const transformer *t = w.shape;
    memopt_status s;
    size_t b, i;
    const void *token = transformer_weights(&w, CLASS_TOKEN);
    const void *positions = transformer_weights(&w, VIT_POSITIONS);

    w.ops = memopt_ops_in(call, &t->ops);
    w.rows = t->length - 1;
    for (b = 0; b < t->batch; ++b) {
        void *first = stream_at(&w, call->output, b, 0);
        const memopt_linear l = transformer_linear(&w, PATCHES, image_at(&w, b), stream_at(&w, call->output, b, 1));

        s = memopt_linear_forward(&w.ops, &l);
        if (s || call->describing) return s;
        for (i = 0; i < t->width; ++i) number_put(first, t->type, i, number_at(token, t->weight_type, i));
        for (i = 0; i < t->length * t->width; ++i)
            number_put(first, t->type, i, number_at(first, t->type, i) + number_at(positions, t->weight_type, i));
    }
    return MEMOPT_OK;
}

static memopt_status patches_backward(const memopt_tape_call *call) {
    transformer_work w = transformer_begin(call, patches_tensors, 1);
    const transformer *t = w.shape;
    const size_t n = t->length * t->width;
    memopt_status s = MEMOPT_OK;
    size_t b, i;
    void *token = w.gradients[CLASS_TOKEN];
    void *positions = w.gradients[VIT_POSITIONS];

    w.ops = memopt_ops_in(call, &t->ops);
    w.rows = t->length - 1;
    for (b = 0; b < t->batch && !s; ++b) {
        w.row = b * w.rows; /* the first one overwrites gradients, the others add to them */
        s = transformer_linear_backward(&w, PATCHES, image_at(&w, b), stream_at(&w, call->grad_output, b, 1), NULL);
        if (call->describing) return s;
    }
    for (i = 0; i < n; ++i) { /* positions, and the class token at the first of them */
        float sum = t->accumulate ? number_at(positions, t->gradient_type, i) : 0;
        float own = i < t->width && t->accumulate ? number_at(token, t->gradient_type, i) : 0;

        for (b = 0; b < t->batch; ++b) {
            const float x = number_at(call->grad_output, t->type, b * n + i);

            sum += x;
            own += x;
        }
        number_put(positions, t->gradient_type, i, sum);
        if (i < t->width) number_put(token, t->gradient_type, i, own);
    }
    return transformer_done(&w, s);
}

static void add_patches(transformer_chain *c, transformer_part *part) {
    const size_t bytes = transformer_bytes(c->shape, c->shape->width);
    memopt_segment *s = transformer_add(c, part, patches_tensors, patches_forward, patches_backward, bytes);

    s->grad_bytes = bytes;
    s->forward_cost = s->backward_cost = (double)transformer_rows(c->shape) * (double)c->shape->width * PATCH;
}

/* ---- the chain ---- */
static size_t segment_count(const model *m) { return 2 * m->layers + 2; }

static memopt_status step_tensor(void *user, size_t tensor, const void *gradients) {
    return memopt_optim_apply_with(((const model *)user)->optim, tensor, gradients);
}

/* Count elements and tensors; place parts in the arrays there are; fill in layers and segments, which may be NULL. */
static void describe_chain(model *m, memopt_tape_layer *layers, memopt_segment *segments) {
    transformer_chain c = { 0 };
    size_t i;

    c.shape = &m->shape;
    c.weights = m->weights;
    c.gradients = m->fuse ? NULL : m->gradients;
    c.tensors = m->tensors;
    c.layers = layers;
    c.segments = segments;
    if (m->vit) add_patches(&c, &m->embedding);
    else transformer_add_embedding(&c, &m->embedding);
    c.count = segment_count(m) - 1;
    transformer_add_head(&c, &m->head, &m->embedding);
    for (c.count = 1, i = 0; i < m->layers; ++i) transformer_add_block(&c, &m->blocks[i]);
    m->elements = c.elements;
    m->tensor_count = c.tensor_count;
    if (m->fuse && !m->vit) m->embedding.gradients = m->gradients; /* of the tokens: begun by the head */
    if (m->fuse && !m->vit && m->tensors) m->tensors[0].gradients = m->gradients;
    for (i = 0; m->split && m->tensors && i < m->tensor_count; ++i)
        m->tensors[i].extra = (unsigned char *)m->extra
            + ((const unsigned char *)m->tensors[i].weights - (const unsigned char *)m->weights);
}

static size_t gradient_elements(const model *m) { /* that have memory of their own */
    return !m->fuse ? m->elements : m->vit ? 0 : transformer_padded(&m->shape) * m->shape.width;
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
enum { STREAM_POSITIONS = 1, STREAM_CLASS_TOKEN = 4, STREAM_FINAL_SCALE = 6, STREAM_BLOCKS = 8 };

static size_t stream_of(const model *m, size_t tensor) {
    static const unsigned char gpt[4] = { 0, STREAM_POSITIONS, STREAM_FINAL_SCALE, 7 };
    static const unsigned char vit[7] = { 2, 3, STREAM_CLASS_TOKEN, STREAM_POSITIONS, STREAM_FINAL_SCALE, 7, 5 };
    const size_t ends = m->vit ? 7 : 4;

    return tensor >= ends ? STREAM_BLOCKS + tensor - ends : m->vit ? vit[tensor] : gpt[tensor];
}

/* Of the part of tensor `i` that is held at t. Normal, deviation 0.02, of what adds to the residual stream
   0.02 / sqrt(2 layers); scales 1, the rest 0. */
static memopt_status init_tensor(const model *m, size_t i, const memopt_optim_tensor *t, uint64_t seed) {
    const size_t held = t->held ? t->held : t->count - t->first;
    const size_t stream = stream_of(m, i);
    const size_t which = stream < STREAM_BLOCKS ? SIZE_MAX : (stream - STREAM_BLOCKS) % 6; /* of a half of a block */
    const int is_scale = stream == STREAM_FINAL_SCALE || which == TRANSFORMER_NORM_SCALE;
    const double deviation = !t->columns && stream != STREAM_CLASS_TOKEN ? 0
        : which == TRANSFORMER_PROJECT ? 0.02 / sqrt(2 * (double)m->layers) : 0.02;
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
