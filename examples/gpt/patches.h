/* patches.h - the beginning of a ViT, on the CPU: patches of an image to rows, a class token, positions. */
#ifndef GPT_PATCHES_H
#define GPT_PATCHES_H

enum { PATCHES, PATCHES_BIAS, CLASS_TOKEN, VIT_POSITIONS };

static size_t patches_tensors(const transformer *t, transformer_tensor *list) {
    transformer_list(list, PATCHES, "patches", t->width, PATCH);
    transformer_list(list, PATCHES_BIAS, "patches bias", t->width, 0);
    transformer_list(list, CLASS_TOKEN, "class token", t->width, 0);
    transformer_list(list, VIT_POSITIONS, "positions", t->length, t->width);
    return list[VIT_POSITIONS].first + list[VIT_POSITIONS].count;
}

static float number_at(const void *x, memopt_type type, size_t i) {
    return type == MEMOPT_TYPE_F32  ? ((const float *)x)[i]
         : type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(((const uint16_t *)x)[i])
                                    : memopt_from_f16(((const uint16_t *)x)[i]);
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
#endif
