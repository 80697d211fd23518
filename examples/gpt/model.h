/* model.h - the network: a GPT-2-shaped decoder, or a ViT, as halves of blocks. Every layer is a forward and a backward
   that a memopt_tape can call (see memopt_tape_call): they read call->input, write call->output, and find what they
   need on the way in call->saved and call->scratch. What each needs is counted by the code that hands it out: a
   memopt_carver.

   A half of a block is x + f(norm(x)). Kept from forward to backward is only what is dear: queries, keys, values and the
   attended rows; the hidden layer before its GELU. Norms and GELU are made again; nothing else has a buffer for long. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

enum { TOKENS, POSITIONS, PATCHES, PATCHES_BIAS, CLASS_TOKEN, HEAD, FINAL_SCALE, FINAL_SHIFT, OUTSIDE /* of blocks */ };
enum { NORM1_SCALE, NORM1_SHIFT, QKV, QKV_BIAS, PROJECT, PROJECT_BIAS, /* of one block: the attention half... */
       NORM2_SCALE, NORM2_SHIFT, UP, UP_BIAS, DOWN, DOWN_BIAS, BLOCK /* ...and the MLP half */ };
typedef struct model {
    size_t layers, width, heads, length /* of a sequence */, batch, rows /* batch * length */;
    size_t vocab, padded, patch /* floats of one */;
    int    vit, lean_attention;
    size_t mlp_rows, head_rows;          /* rows at a time */
    float  dropout;
    memopt_type type, weight_type, gradient_type;
    int split; /* weights: 16 bits more for each, which make it an exact float */
    memopt_ops ops;                      /* without scratch */
    memopt_optim_tensor *stepped;        /* one after the other, as the optimizer wants them */
    memopt_optim_tensor **tensors, none; /* by number; `none` stands for what this model does not have */
    void **gradients; size_t stepped_count, tensor_count;
    int    fuse; memopt_optim *optim;    /* fuse: a tensor is stepped as soon as its gradient is whole */
    const int32_t *targets; size_t target_count;
    float *logits; size_t logits_row;    /* evaluating with logits: of this row only */
    int    accumulates;                  /* 1: steps have several micro-batches... */
    int    accumulate;                   /* ...and this one's gradients are added onto those before */
    double loss, loss_scale; size_t loss_count;
} model;
typedef struct part { model *m; size_t layer; } part; /* what a callback knows itself by */

/* The scratch of operators: the last part of a segment's own. */
static memopt_ops carve_ops(const model *m, memopt_carver *c, size_t bytes) {
    memopt_ops ops = m->ops;
    ops.scratch = memopt_carve(c, 1, bytes, 0); ops.scratch_bytes = bytes;
    return ops;
}
static size_t carved(const memopt_carver *c) { /* SIZE_MAX: more than that, which a tape refuses */
    return c->overflow ? SIZE_MAX : c->bytes;
}
static size_t plane(const model *m, size_t rows) { return rows * m->width * memopt_type_bytes(m->type); } /* bytes */
static void *row_of(const model *m, const void *rows, size_t row) {
    return (unsigned char *)(uintptr_t)rows + plane(m, row);
}
static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* ---- parameters ---- */
static size_t at_layer(size_t layer, size_t which) { return OUTSIDE + layer * BLOCK + which; }
static void *weights_of(const model *m, size_t tensor) { return m->tensors[tensor]->weights; }
static size_t gradient_bytes(const model *m, size_t tensor) {
    return m->tensors[tensor]->count * memopt_type_bytes(m->gradient_type);
}
static void describe_tensor(model *m, size_t i, size_t rows, size_t columns) { /* columns 0: a vector */
    m->tensors[i] = &m->stepped[m->stepped_count++];
    m->tensors[i]->count = columns ? rows * columns : rows; m->tensors[i]->columns = columns;
}
static void describe_tensors(model *m) {
    const size_t c = m->width; size_t l;
    m->stepped_count = 0;
    for (l = 0; l < m->tensor_count; ++l) m->tensors[l] = &m->none;
    if (m->vit) {
        describe_tensor(m, PATCHES, c, m->patch); describe_tensor(m, PATCHES_BIAS, c, 0);
        describe_tensor(m, CLASS_TOKEN, c, 0); describe_tensor(m, HEAD, m->padded, c);
    } else describe_tensor(m, TOKENS, m->padded, c);
    describe_tensor(m, POSITIONS, m->length, c);
    describe_tensor(m, FINAL_SCALE, c, 0); describe_tensor(m, FINAL_SHIFT, c, 0);
    for (l = 0; l < m->layers; ++l) {
        const size_t i = at_layer(l, 0);
        describe_tensor(m, i + NORM1_SCALE, c, 0); describe_tensor(m, i + NORM1_SHIFT, c, 0);
        describe_tensor(m, i + QKV, 3 * c, c); describe_tensor(m, i + QKV_BIAS, 3 * c, 0);
        describe_tensor(m, i + PROJECT, c, c); describe_tensor(m, i + PROJECT_BIAS, c, 0);
        describe_tensor(m, i + NORM2_SCALE, c, 0); describe_tensor(m, i + NORM2_SHIFT, c, 0);
        describe_tensor(m, i + UP, 4 * c, c); describe_tensor(m, i + UP_BIAS, 4 * c, 0);
        describe_tensor(m, i + DOWN, c, 4 * c); describe_tensor(m, i + DOWN_BIAS, c, 0);
    }
}
/* GPT-2's: normal, deviation 0.02, of what adds to the residual stream 0.02 / sqrt(2 layers); scales 1, the rest 0. */
static double init_deviation(const model *m, size_t i) {
    const size_t which = i < OUTSIDE ? i : (i - OUTSIDE) % BLOCK;
    if (i < OUTSIDE) return which == FINAL_SHIFT || which == FINAL_SCALE || which == PATCHES_BIAS ? 0 : 0.02;
    if (which == PROJECT || which == DOWN) return 0.02 / sqrt(2 * (double)m->layers);
    return which == QKV || which == UP ? 0.02 : 0;
}
static memopt_status init_tensor(model *m, size_t i, uint64_t seed) {
    const size_t which = i < OUTSIDE ? 0 : (i - OUTSIDE) % BLOCK; float x[1024]; size_t at, n, k; memopt_status s;
    const int is_scale = i == FINAL_SCALE || (i >= OUTSIDE && (which == NORM1_SCALE || which == NORM2_SCALE));
    memopt_optim_tensor *t = m->tensors[i];
    for (at = 0; at < t->count; at += n) {
        n = least(t->count - at, 1024);
        s = memopt_random_normal(x, n, seed, i, at, NULL);
        if (s) return s;
        for (k = 0; k < n; ++k) x[k] = is_scale ? 1.0f : (float)(init_deviation(m, i) * (double)x[k]);
        if (m->weight_type == MEMOPT_TYPE_F32) memcpy((float *)t->weights + at, x, n * sizeof *x);
        else if (!m->split) s = memopt_bf16_from_f32((uint16_t *)t->weights + at, x, n, NULL);
        else s = memopt_f32_split((uint16_t *)t->weights + at, (uint16_t *)t->extra + at, x, n, NULL);
        if (s) return s;
    }
    return MEMOPT_OK;
}

/* ---- gradients: in the model's own memory; or, fused, in the scratch of the segment that makes and uses them ---- */
static void lay_gradients(model *m, size_t first, size_t count, memopt_carver *r) {
    size_t i;
    if (m->fuse) for (i = first; i < first + count; ++i) m->gradients[i] = memopt_carve(r, 1, gradient_bytes(m, i), 0);
}
static memopt_status gradients_done(model *m, size_t first, size_t count) {
    memopt_status s = MEMOPT_OK; size_t i;
    for (i = first; m->fuse && !s && i < first + count; ++i) {
        const memopt_optim_tensor *t = m->tensors[i];
        if (t->count) s = memopt_optim_apply_with(m->optim, (size_t)(t - m->stepped), m->gradients[i]);
    }
    return s;
}

/* ---- operators of this model ---- */
static memopt_norm norm_of(const model *m, size_t scale, size_t rows, const void *input, void *output,
    float *statistics) {
    memopt_norm n = { 0 };
    n.rows = rows; n.width = m->width; n.type = m->type; n.weight_type = m->weight_type;
    n.gradient_type = m->gradient_type;
    n.input = input; n.output = output; n.statistics = statistics;
    n.scale = weights_of(m, scale); n.shift = weights_of(m, scale + 1);
    return n;
}
/* grad_input becomes the residual's gradient plus the norm's. */
static memopt_status norm_backward(const model *m, memopt_norm n, size_t scale, const void *grad_output,
                                   const void *grad_residual, void *grad_input, int accumulate) {
    memcpy(grad_input, grad_residual, plane(m, n.rows));
    n.output = NULL; n.grad_output = grad_output; n.grad_input = grad_input; n.accumulate_input = 1;
    n.grad_scale = m->gradients[scale]; n.grad_shift = m->gradients[scale + 1]; n.accumulate = accumulate;
    return memopt_norm_backward(&m->ops, &n);
}
static memopt_linear linear_of(const model *m, size_t weights, size_t rows, const void *input, void *output) {
    memopt_linear l = { 0 };
    l.rows = rows; l.inputs = m->tensors[weights]->columns; l.outputs = m->tensors[weights]->count / l.inputs;
    l.type = m->type; l.weight_type = m->weight_type; l.gradient_type = m->gradient_type;
    l.input = input; l.output = output; l.weights = weights_of(m, weights); l.bias = weights_of(m, weights + 1);
    return l;
}
static memopt_linear linear_gradients(const model *m, size_t weights, memopt_linear l, const void *grad_output,
                                      int accumulate) {
    l.grad_output = grad_output; l.accumulate = accumulate;
    l.grad_weights = m->gradients[weights]; l.grad_bias = m->gradients[weights + 1];
    return l;
}
static size_t linear_bytes(const model *m, size_t weights, size_t rows) {
    const memopt_linear l = linear_of(m, weights, rows, NULL, NULL); size_t bytes = 0;
    (void)memopt_linear_scratch(&m->ops, &l, &bytes);
    return bytes;
}
/* out += x, with dropout before; and the gradient on its way back. The place of an element picks its random bits. */
static memopt_status add_residual(const model *m, const memopt_tape_call *call, size_t row, size_t rows, const void *x,
    void *out) {
    memopt_dropout d = { 0 };
    d.n = rows * m->width; d.type = m->type; d.input = out; d.residual = x; d.output = out;
    d.rate = call->evaluating ? 0 : m->dropout; d.noise = memopt_noise_make(call->seed, call->stream);
    d.first = row * m->width;
    return memopt_dropout_forward(&m->ops, &d);
}
static memopt_status undo_dropout(const model *m, const memopt_tape_call *call, size_t row, size_t rows,
                                  const void *grad,
    void *out) {
    memopt_dropout d = { 0 };
    d.n = rows * m->width; d.type = m->type; d.grad_output = grad; d.grad_input = out; d.rate = m->dropout;
    d.noise = memopt_noise_make(call->seed, call->stream); d.first = row * m->width;
    return memopt_dropout_backward(&m->ops, &d);
}
static memopt_attention attention_of(const model *m, const void *qkv, void *output) {
    memopt_attention a = { 0 };
    a.batch = m->batch; a.length = m->length; a.heads = m->heads; a.width = m->width / m->heads; a.causal = !m->vit;
    a.type = m->type; a.query_stride = a.kv_stride = 3 * m->width; a.output = output;
    if (qkv) { a.queries = qkv; a.keys = row_of(m, qkv, 1); a.values = row_of(m, qkv, 2); }
    return a;
}

/* ---- the usual attention, which holds the matrix of every head. Its bits are those of the lean one ---- */
typedef struct matrices {
    float *scores, *probabilities; /* may be the same memory */
    size_t each;                   /* floats from a head's matrix to the next; 0 = one for all */
    size_t *valid;                 /* of each row, the columns it sees */
} matrices;
static memopt_status multiply(const memopt_ops *ops, memopt_product p) {
    memopt_gemm g; const memopt_status s = memopt_gemm_resolve(&ops->gemm, &g);
    return s ? s : g.multiply_fn(g.user, &p, ops->threads, ops->scratch);
}
static size_t gemm_bytes(const model *m) {
    memopt_gemm g;
    if (memopt_gemm_resolve(&m->ops.gemm, &g)) return 0;
    return ((g.scratch_bytes + 63) & ~(size_t)63) * (size_t)(m->ops.threads ? m->ops.threads->worker_count : 1);
}
/* result (rows x columns) = left * right, of the parts of this head; turned: see memopt_product */
static memopt_product head_product(const model *m, size_t rows, size_t columns, size_t depth) {
    memopt_product p = { 0 };
    p.rows = rows; p.columns = columns; p.depth = depth;
    p.left_type = p.right_type = p.result_type = m->type;
    return p;
}
static memopt_softmax softmax_of(const model *m, const matrices *x, size_t at) {
    memopt_softmax f = { 0 };
    f.rows = f.columns = m->length; f.valid = m->vit ? NULL : x->valid;
    f.scale = 1.0f / sqrtf((float)(m->width / m->heads));
    f.input = x->scores + at; f.output = x->probabilities + at;
    return f;
}
static memopt_status full_attention_forward(const model *m, const memopt_ops *ops, const void *qkv, const matrices *x,
    void *out) {
    const size_t t = m->length, c = m->width, d = c / m->heads, size = memopt_type_bytes(m->type); size_t b, h;
    memopt_status s = MEMOPT_OK;
    for (b = 0; b < t; ++b) x->valid[b] = b + 1;
    for (b = 0; b < m->batch; ++b)
        for (h = 0; h < m->heads && !s; ++h) {
            const size_t at = (b * m->heads + h) * x->each; memopt_softmax f = softmax_of(m, x, at); memopt_product p;
            const unsigned char *q = (const unsigned char *)row_of(m, qkv, 3 * b * t) + h * d * size;
            p = head_product(m, t, t, d);
            p.left = q; p.left_stride = p.right_stride = 3 * c; p.right = q + c * size; p.right_transposed = 1;
            p.result = x->scores + at; p.result_stride = t; p.result_type = MEMOPT_TYPE_F32;
            s = multiply(ops, p);
            if (!s) s = memopt_softmax_forward(ops, &f);
            p = head_product(m, t, d, t);
            p.left = f.output; p.left_stride = t; p.left_type = MEMOPT_TYPE_F32; p.right = q + 2 * c * size;
            p.right_stride = 3 * c;
            p.result = (unsigned char *)row_of(m, out, b * t) + h * d * size; p.result_stride = c;
            if (!s) s = multiply(ops, p);
        }
    return s;
}
/* grad: matrices of gradients; here grad->scores may be grad->probabilities */
static memopt_status full_attention_backward(const model *m, const memopt_ops *ops, const void *qkv, const matrices *x,
                                             const matrices *grad, const void *grad_out, void *grad_qkv) {
    const size_t t = m->length, c = m->width, d = c / m->heads, size = memopt_type_bytes(m->type); size_t b, h, i;
    memopt_status s = MEMOPT_OK;
    for (b = 0; b < t; ++b) x->valid[b] = b + 1;
    for (b = 0; b < m->batch; ++b)
        for (h = 0; h < m->heads && !s; ++h) {
            const size_t at = (b * m->heads + h) * x->each, grad_at = (b * m->heads + h) * grad->each;
            const unsigned char *q = (const unsigned char *)row_of(m, qkv, 3 * b * t) + h * d * size;
            unsigned char *dq = (unsigned char *)row_of(m, grad_qkv, 3 * b * t) + h * d * size;
            const unsigned char *out = (const unsigned char *)row_of(m, grad_out, b * t) + h * d * size;
            memopt_softmax f = softmax_of(m, x, at); memopt_product p[4];
            p[0] = head_product(m, t, t, d);                       /* probabilities' gradient = out values^T */
            p[0].left = out; p[0].left_stride = c; p[0].right = q + 2 * c * size; p[0].right_stride = 3 * c;
            p[0].right_transposed = 1;
            p[0].result = grad->probabilities + grad_at; p[0].result_stride = t; p[0].result_type = MEMOPT_TYPE_F32;
            p[1] = head_product(m, t, d, t);                       /* values' = probabilities^T out */
            p[1].left = x->probabilities + at; p[1].left_stride = t; p[1].left_transposed = 1;
            p[1].left_type = MEMOPT_TYPE_F32;
            p[1].right = out; p[1].right_stride = c; p[1].result = dq + 2 * c * size; p[1].result_stride = 3 * c;
            for (i = 0; i < 2 && !s; ++i) s = multiply(ops, p[i]);
            f.input = x->probabilities + at; f.grad_output = grad->probabilities + grad_at;
            f.output = grad->scores + grad_at;
            if (!s) s = memopt_softmax_backward(ops, &f);
            p[2] = head_product(m, t, d, t);                       /* queries' = scores' keys */
            p[2].left = f.output; p[2].left_stride = t; p[2].left_type = MEMOPT_TYPE_F32;
            p[2].right = q + c * size; p[2].right_stride = 3 * c; p[2].result = dq; p[2].result_stride = 3 * c;
            /* keys' = scores'^T queries */
            p[3] = p[2]; p[3].left_transposed = 1; p[3].right = q; p[3].result = dq + c * size;
            for (i = 2; i < 4 && !s; ++i) s = multiply(ops, p[i]);
        }
    return s;
}

/* ---- the attention half: x + project(attention(norm(x))) ---- */
typedef struct attention_room { /* where things are, in forward and backward */
    void *qkv, *attended, *grad_qkv, *dropped; float *statistics; matrices full, grad; memopt_ops ops;
} attention_room;
static size_t attention_ops_bytes(const model *m, size_t i) {
    const memopt_attention a = attention_of(m, NULL, NULL); size_t bytes = 0;
    if (m->lean_attention) (void)memopt_attention_scratch(&m->ops, &a, &bytes);
    return most(most(bytes, gemm_bytes(m)), most(linear_bytes(m, i + QKV, m->rows),
        linear_bytes(m, i + PROJECT, m->rows)));
}
static void attention_kept(const model *m, attention_room *a, memopt_carver *kept, int all) {
    a->qkv = memopt_carve(kept, 1, plane(m, 3 * m->rows), 0); a->attended = memopt_carve(kept, 1, plane(m, m->rows), 0);
    a->full.each = all ? m->length * m->length : 0;
    if (!m->lean_attention) a->full.probabilities = a->full.scores =
        (float *)memopt_carve(kept, (all ? m->batch * m->heads : 1) * m->length * m->length, sizeof(float), 0);
}
static void attention_forward_room(const model *m, size_t layer, attention_room *a, memopt_carver *scratch) {
    if (!m->lean_attention) a->full.valid = (size_t *)memopt_carve(scratch, m->length, sizeof(size_t), 0);
    a->ops = carve_ops(m, scratch, attention_ops_bytes(m, at_layer(layer, 0)));
}
static void attention_backward_room(model *m, size_t layer, attention_room *a, memopt_carver *scratch) {
    const size_t i = at_layer(layer, 0);
    lay_gradients(m, i, NORM2_SCALE, scratch);
    a->grad_qkv = memopt_carve(scratch, 1, plane(m, 3 * m->rows), 0);
    a->dropped = m->dropout > 0 ? memopt_carve(scratch, 1, plane(m, m->rows), 0) : NULL;
    a->statistics = (float *)memopt_carve(scratch, 2 * m->rows, sizeof(float), 0);
    if (!m->lean_attention) a->grad.probabilities = a->grad.scores =
        (float *)memopt_carve(scratch, m->length * m->length, sizeof(float), 0);
    attention_forward_room(m, layer, a, scratch);
}
static memopt_status attention_half_forward(const memopt_tape_call *call) {
    const part *p = (const part *)call->user; const model *m = p->m; const size_t i = at_layer(p->layer, 0);
    memopt_carver scratch = memopt_carver_begin(call->scratch), kept = memopt_carver_begin(call->saved);
    attention_room a = { 0 }; memopt_status s;
    memopt_norm norm; memopt_linear qkv, project; memopt_attention attention;
    attention_kept(m, &a, call->saved ? &kept : &scratch, call->saved != NULL);
    attention_forward_room(m, p->layer, &a, &scratch);
    /* until the attended rows are made there */
    norm = norm_of(m, i + NORM1_SCALE, m->rows, call->input, a.attended, NULL);
    qkv = linear_of(m, i + QKV, m->rows, a.attended, a.qkv);
    attention = attention_of(m, a.qkv, a.attended);
    project = linear_of(m, i + PROJECT, m->rows, a.attended, call->output);
    if ((s = memopt_norm_forward(&a.ops, &norm)) != MEMOPT_OK || (s = memopt_linear_forward(&a.ops, &qkv)) != MEMOPT_OK)
        return s;
    s = m->lean_attention ? memopt_attention_forward(&a.ops, &attention)
                          : full_attention_forward(m, &a.ops, a.qkv, &a.full, a.attended);
    if (!s) s = memopt_linear_forward(&a.ops, &project);
    return s ? s : add_residual(m, call, 0, m->rows, call->input, call->output);
}
static memopt_status attention_half_backward(const memopt_tape_call *call) {
    const part *p = (const part *)call->user; model *m = p->m; const size_t i = at_layer(p->layer, 0);
    memopt_carver scratch = memopt_carver_begin(call->scratch), kept = memopt_carver_begin(call->saved);
    attention_room a = { 0 }; memopt_status s;
    const void *grad = call->grad_output; memopt_norm norm; memopt_linear qkv, project; memopt_attention attention;
    attention_kept(m, &a, &kept, 1);
    attention_backward_room(m, p->layer, &a, &scratch);
    if (a.dropped) {
        if ((s = undo_dropout(m, call, 0, m->rows, grad, a.dropped)) != MEMOPT_OK) return s;
        grad = a.dropped;
    }
    project = linear_gradients(m, i + PROJECT, linear_of(m, i + PROJECT, m->rows, a.attended, NULL), grad,
        m->accumulate);
    project.grad_input = call->grad_input; /* for a while: of the attended rows */
    if ((s = memopt_linear_backward(&a.ops, &project)) != MEMOPT_OK) return s;
    attention = attention_of(m, a.qkv, NULL);
    attention.grad_output = call->grad_input; attention.grad_queries = a.grad_qkv;
    attention.grad_keys = row_of(m, a.grad_qkv, 1); attention.grad_values = row_of(m, a.grad_qkv, 2);
    s = m->lean_attention ? memopt_attention_backward(&a.ops, &attention)
        : full_attention_backward(m, &a.ops, a.qkv, &a.full, &a.grad, call->grad_input, a.grad_qkv);
    if (s) return s;
    /* made again, over what is done */
    norm = norm_of(m, i + NORM1_SCALE, m->rows, call->input, a.attended, a.statistics);
    qkv = linear_gradients(m, i + QKV, linear_of(m, i + QKV, m->rows, a.attended, NULL), a.grad_qkv, m->accumulate);
    qkv.grad_input = a.qkv;
    if ((s = memopt_norm_forward(&a.ops, &norm)) != MEMOPT_OK
        || (s = memopt_linear_backward(&a.ops, &qkv)) != MEMOPT_OK)
        return s;
    s = norm_backward(m, norm, i + NORM1_SCALE, a.qkv, call->grad_output, call->grad_input, m->accumulate);
    return s ? s : gradients_done(m, i, NORM2_SCALE);
}

/* ---- the MLP half: x + down(gelu(up(norm(x)))), mlp_rows at a time. All at once, the hidden layer is kept; in chunks
   nothing is, and the backward makes it again for one chunk after the other ---- */
typedef struct mlp_room { void *pre_activation, *hidden, *dropped; float *statistics; memopt_ops ops; } mlp_room;
static int mlp_whole(const model *m) { return m->mlp_rows >= m->rows; }
static size_t mlp_rows(const model *m) { return least(m->mlp_rows, m->rows); }
static void mlp_forward_room(const model *m, size_t layer, mlp_room *r, memopt_carver *scratch) {
    const size_t i = at_layer(layer, 0), n = mlp_rows(m);
    r->hidden = memopt_carve(scratch, 1, plane(m, 4 * n), 0);
    r->ops = carve_ops(m, scratch, most(linear_bytes(m, i + UP, n), linear_bytes(m, i + DOWN, n)));
}
static void mlp_backward_room(model *m, size_t layer, mlp_room *r, memopt_carver *scratch) {
    lay_gradients(m, at_layer(layer, NORM2_SCALE), BLOCK - NORM2_SCALE, scratch);
    if (!mlp_whole(m)) r->pre_activation = memopt_carve(scratch, 1, plane(m, 4 * mlp_rows(m)), 0);
    r->dropped = m->dropout > 0 ? memopt_carve(scratch, 1, plane(m, mlp_rows(m)), 0) : NULL;
    r->statistics = (float *)memopt_carve(scratch, 2 * mlp_rows(m), sizeof(float), 0);
    mlp_forward_room(m, layer, r, scratch);
}
static memopt_status mlp_half_forward(const memopt_tape_call *call) {
    const part *p = (const part *)call->user; const model *m = p->m; const size_t i = at_layer(p->layer, 0);
    memopt_carver scratch = memopt_carver_begin(call->scratch); mlp_room r = { 0 }; size_t row, n; memopt_status s;
    mlp_forward_room(m, p->layer, &r, &scratch);
    for (row = 0; row < m->rows; row += n) {
        void *out = row_of(m, call->output, row), *x = row_of(m, call->input, row); memopt_norm norm;
        memopt_linear up, down;
        n = least(mlp_rows(m), m->rows - row);
        norm = norm_of(m, i + NORM2_SCALE, n, x, out, NULL); /* there until the result is */
        up = linear_of(m, i + UP, n, out, r.hidden);
        up.activation = MEMOPT_ACTIVATION_GELU; up.pre_activation = mlp_whole(m) ? call->saved : NULL;
        down = linear_of(m, i + DOWN, n, r.hidden, out);
        if ((s = memopt_norm_forward(&r.ops, &norm)) != MEMOPT_OK
            || (s = memopt_linear_forward(&r.ops, &up)) != MEMOPT_OK
            || (s = memopt_linear_forward(&r.ops, &down)) != MEMOPT_OK
            || (s = add_residual(m, call, row, n, x, out)) != MEMOPT_OK) return s;
    }
    return MEMOPT_OK;
}
static memopt_status mlp_chunk_backward(const memopt_tape_call *call, mlp_room *r, size_t row, size_t n) {
    const part *p = (const part *)call->user; const model *m = p->m; const size_t i = at_layer(p->layer, 0);
    void *grad_x = row_of(m, call->grad_input, row); const void *grad = row_of(m, call->grad_output, row);
    const int accumulate = m->accumulate || row > 0; memopt_status s; memopt_linear up, down;
    memopt_activation_args gelu = { 0 };
    memopt_norm norm = norm_of(m, i + NORM2_SCALE, n, row_of(m, call->input, row), grad_x, r->statistics);
    if ((s = memopt_norm_forward(&r->ops, &norm)) != MEMOPT_OK) return s; /* in grad_x, which is written last */
    up = linear_of(m, i + UP, n, grad_x, r->pre_activation);
    if (!mlp_whole(m) && (s = memopt_linear_forward(&r->ops, &up)) != MEMOPT_OK) return s;
    if (r->dropped) {
        if ((s = undo_dropout(m, call, row, n, grad, r->dropped)) != MEMOPT_OK) return s;
        grad = r->dropped;
    }
    down = linear_of(m, i + DOWN, n, NULL, NULL); /* first to its input... */
    down.grad_output = grad; down.grad_input = r->hidden;
    if ((s = memopt_linear_backward(&r->ops, &down)) != MEMOPT_OK) return s;
    gelu.n = n * 4 * m->width;
    gelu.activation = MEMOPT_ACTIVATION_GELU; gelu.type = m->type; gelu.input = r->pre_activation;
    /* ...through the GELU, which is made again... */
    gelu.output = r->pre_activation; gelu.grad_output = gelu.grad_input = r->hidden;
    if ((s = memopt_activation_backward(&r->ops, &gelu)) != MEMOPT_OK) return s;
    down = linear_gradients(m, i + DOWN, linear_of(m, i + DOWN, n, r->pre_activation, NULL), grad, accumulate);
    if ((s = memopt_linear_backward(&r->ops, &down)) != MEMOPT_OK) return s; /* ...then to its weights */
    up = linear_gradients(m, i + UP, up, r->hidden, accumulate);
    up.grad_input = r->pre_activation;
    if ((s = memopt_linear_backward(&r->ops, &up)) != MEMOPT_OK) return s;
    return norm_backward(m, norm, i + NORM2_SCALE, r->pre_activation, row_of(m, call->grad_output, row), grad_x,
                         accumulate);
}
static memopt_status mlp_half_backward(const memopt_tape_call *call) {
    const part *p = (const part *)call->user; model *m = p->m;
    memopt_carver scratch = memopt_carver_begin(call->scratch);
    mlp_room r = { 0 }; size_t row, n; memopt_status s;
    mlp_backward_room(m, p->layer, &r, &scratch);
    if (mlp_whole(m)) r.pre_activation = call->saved;
    for (row = 0; row < m->rows; row += n) {
        n = least(mlp_rows(m), m->rows - row);
        if ((s = mlp_chunk_backward(call, &r, row, n)) != MEMOPT_OK) return s;
    }
    return gradients_done(m, at_layer(p->layer, NORM2_SCALE), BLOCK - NORM2_SCALE);
}

/* ---- the beginning: tokens and positions; or patches, a class token and positions ---- */
static memopt_embedding embedding_of(const model *m, const void *ids) {
    memopt_embedding e = { 0 };
    e.rows = m->rows; e.width = m->width; e.vocabulary = m->padded; e.length = m->length;
    e.type = m->type; e.weight_type = m->weight_type; e.gradient_type = m->gradient_type;
    e.ids = (const int32_t *)ids; e.tokens = weights_of(m, TOKENS); e.positions = weights_of(m, POSITIONS);
    return e;
}
static memopt_status embed_forward(const memopt_tape_call *call) {
    const model *m = ((const part *)call->user)->m; memopt_embedding e = embedding_of(m, call->input);
    e.output = call->output;
    return memopt_embedding_forward(&m->ops, &e);
}
static memopt_status embed_backward(const memopt_tape_call *call) {
    model *m = ((const part *)call->user)->m; memopt_carver scratch = memopt_carver_begin(call->scratch);
    memopt_embedding e = embedding_of(m, call->input); memopt_status s;
    lay_gradients(m, POSITIONS, 1, &scratch);
    e.grad_output = call->grad_output; e.grad_tokens = m->gradients[TOKENS];
    e.accumulate = 1; /* onto what the head, whose weights these are, has left */
    s = memopt_embedding_backward(&m->ops, &e);
    e.grad_tokens = NULL; e.grad_positions = m->gradients[POSITIONS]; e.accumulate = m->accumulate;
    if (!s) s = memopt_embedding_backward(&m->ops, &e);
    return s ? s : gradients_done(m, TOKENS, 2);
}
static float number_at(const void *x, memopt_type type, size_t i) {
    return type == MEMOPT_TYPE_F32 ? ((const float *)x)[i] : type == MEMOPT_TYPE_BF16
        ? memopt_from_bf16(((const uint16_t *)x)[i]) : memopt_from_f16(((const uint16_t *)x)[i]);
}
static void number_put(void *to, memopt_type type, size_t i, float x) {
    if (type == MEMOPT_TYPE_F32) ((float *)to)[i] = x;
    else ((uint16_t *)to)[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
}
static memopt_linear patches_of(const model *m, const void *patches, size_t image, const void *first_row) {
    const size_t n = m->length - 1, bytes = memopt_type_bytes(m->type);
    return linear_of(m, PATCHES, n, (const unsigned char *)patches + image * n * m->patch * bytes,
        row_of(m, first_row, 1));
}
static memopt_status patches_forward(const memopt_tape_call *call) {
    const model *m = ((const part *)call->user)->m; const size_t c = m->width;
    memopt_carver scratch = memopt_carver_begin(call->scratch);
    const memopt_ops ops = carve_ops(m, &scratch, linear_bytes(m, PATCHES, m->length - 1)); size_t b, i;
    for (b = 0; b < m->batch; ++b) {
        void *image = row_of(m, call->output, b * m->length);
        const memopt_linear l = patches_of(m, call->input, b, image);
        const memopt_status s = memopt_linear_forward(&ops, &l);
        if (s) return s;
        for (i = 0; i < c; ++i) number_put(image, m->type, i, number_at(weights_of(m, CLASS_TOKEN), m->weight_type, i));
        for (i = 0; i < m->length * c; ++i)
            number_put(image, m->type, i, number_at(image, m->type, i) + number_at(weights_of(m, POSITIONS),
                m->weight_type, i));
    }
    return MEMOPT_OK;
}
static memopt_status patches_backward(const memopt_tape_call *call) {
    model *m = ((const part *)call->user)->m; memopt_carver scratch = memopt_carver_begin(call->scratch);
    const size_t n = m->length * m->width;
    memopt_ops ops; memopt_status s = MEMOPT_OK; size_t b, i;
    lay_gradients(m, POSITIONS, CLASS_TOKEN + 1 - POSITIONS, &scratch);
    ops = carve_ops(m, &scratch, linear_bytes(m, PATCHES, m->length - 1));
    for (b = 0; b < m->batch && !s; ++b) {
        const void *image = row_of(m, call->grad_output, b * m->length);
        const memopt_linear l = linear_gradients(m, PATCHES, patches_of(m, call->input, b, image), row_of(m, image, 1),
                                                 m->accumulate || b > 0);
        s = memopt_linear_backward(&ops, &l);
    }
    for (i = 0; i < n; ++i) { /* positions, and the class token at the first of them */
        float sum = m->accumulate ? number_at(m->gradients[POSITIONS], m->gradient_type, i) : 0;
        float own = i < m->width && m->accumulate ? number_at(m->gradients[CLASS_TOKEN], m->gradient_type, i) : 0;
        for (b = 0; b < m->batch; ++b) {
            const float x = number_at(call->grad_output, m->type, b * n + i);
            sum += x; own += x;
        }
        number_put(m->gradients[POSITIONS], m->gradient_type, i, sum);
        if (i < m->width) number_put(m->gradients[CLASS_TOKEN], m->gradient_type, i, own);
    }
    return s ? s : gradients_done(m, POSITIONS, CLASS_TOKEN + 1 - POSITIONS);
}

/* ---- the end: norm, logits, loss. Loss and gradient are made together, in the backward; a ViT's of class tokens ---- */
typedef struct head_room { void *normed, *taken; float *statistics; memopt_ops ops; } head_room;
static memopt_head head_of(const model *m, const void *input) {
    memopt_head h = { 0 };
    h.rows = m->target_count; h.width = m->width; h.vocabulary = m->vocab; h.padded = m->padded; h.chunk = m->head_rows;
    h.type = m->type; h.weight_type = m->weight_type; h.gradient_type = m->gradient_type;
    h.input = input; h.weights = weights_of(m, m->vit ? HEAD : TOKENS); h.targets = m->targets;
    h.rule.scale = m->loss_scale; h.rule.count = m->loss_count;
    return h;
}
static void head_forward_room(const model *m, head_room *r, memopt_carver *scratch) {
    memopt_head h = head_of(m, NULL); size_t bytes = 0;
    h.accumulate = m->accumulates;
    (void)memopt_head_scratch(&m->ops, &h, &bytes);
    r->normed = memopt_carve(scratch, 1, plane(m, m->target_count), 0);
    r->taken = m->vit ? memopt_carve(scratch, 1, plane(m, m->target_count), 0) : NULL;
    r->ops = carve_ops(m, scratch, bytes);
}
static void head_backward_room(model *m, head_room *r, memopt_carver *scratch) {
    lay_gradients(m, FINAL_SCALE, 2, scratch);
    if (m->vit) lay_gradients(m, HEAD, 1, scratch);
    r->statistics = (float *)memopt_carve(scratch, 2 * m->target_count, sizeof(float), 0);
    head_forward_room(m, r, scratch);
}
static const void *head_input(const model *m, const head_room *r, const void *x) { /* the rows that have a target */
    size_t b;
    if (!m->vit) return x;
    for (b = 0; b < m->batch; ++b) memcpy(row_of(m, r->taken, b), row_of(m, x, b * m->length), plane(m, 1));
    return r->taken;
}
static memopt_status head_forward(const memopt_tape_call *call) {
    model *m = ((const part *)call->user)->m; memopt_carver scratch = memopt_carver_begin(call->scratch);
    head_room r = { 0 };
    memopt_norm norm; memopt_head head; memopt_loss loss = { 0 }; memopt_status s;
    memset(call->output, 0, sizeof(float));
    if (!call->evaluating) return MEMOPT_OK;
    head_forward_room(m, &r, &scratch);
    norm = norm_of(m, FINAL_SCALE, m->target_count, head_input(m, &r, call->input), r.normed, NULL);
    if (m->logits) { norm.rows = 1; norm.input = row_of(m, call->input, m->logits_row); }
    head = head_of(m, r.normed);
    if ((s = memopt_norm_forward(&r.ops, &norm)) != MEMOPT_OK) return s;
    if (m->logits) return memopt_head_logits(&r.ops, &head, 0, 1, m->logits);
    s = memopt_head_loss(&r.ops, &head, &loss);
    m->loss = loss.loss;
    return s;
}
static memopt_status head_backward(const memopt_tape_call *call) {
    model *m = ((const part *)call->user)->m; memopt_carver scratch = memopt_carver_begin(call->scratch);
    head_room r = { 0 };
    const size_t n = m->target_count; const void *x; memopt_norm norm; memopt_head head; memopt_loss loss = { 0 };
    memopt_status s; size_t b;
    head_backward_room(m, &r, &scratch);
    x = head_input(m, &r, call->input);
    norm = norm_of(m, FINAL_SCALE, n, x, r.normed, r.statistics);
    head = head_of(m, r.normed);
    head.grad_input = r.normed; head.grad_weights = m->gradients[m->vit ? HEAD : TOKENS];
    head.accumulate = m->accumulate;
    if ((s = memopt_norm_forward(&r.ops, &norm)) != MEMOPT_OK
        || (s = memopt_head_loss(&r.ops, &head, &loss)) != MEMOPT_OK) return s;
    m->loss += loss.loss;
    norm.output = NULL; norm.grad_output = r.normed; norm.grad_input = m->vit ? r.normed : call->grad_input;
    norm.grad_scale = m->gradients[FINAL_SCALE]; norm.grad_shift = m->gradients[FINAL_SHIFT];
    norm.accumulate = m->accumulate;
    if ((s = memopt_norm_backward(&r.ops, &norm)) != MEMOPT_OK) return s;
    if (m->vit) {
        memset(call->grad_input, 0, plane(m, m->rows));
        for (b = 0; b < n; ++b) memcpy(row_of(m, call->grad_input, b * m->length), row_of(m, r.normed, b), plane(m, 1));
    }
    s = gradients_done(m, FINAL_SCALE, 2);
    return s || !m->vit ? s : gradients_done(m, HEAD, 1);
}

/* ---- the chain: what each segment needs, counted by the code that hands it out ---- */
static size_t segment_count(const model *m) { return 2 * m->layers + 2; }
static void describe_half(model *m, size_t layer, int mlp, memopt_segment *s, size_t *gradient) {
    const size_t first = at_layer(layer, mlp ? NORM2_SCALE : 0), count = mlp ? BLOCK - NORM2_SCALE : NORM2_SCALE;
    const double rows = (double)m->rows, c = (double)m->width;
    memopt_carver r = memopt_carver_begin(NULL), kept = memopt_carver_begin(NULL), plain = memopt_carver_begin(NULL);
    attention_room a = { 0 }; mlp_room x = { 0 };
    s->output_bytes = s->grad_bytes = plane(m, m->rows);
    if (mlp) {
        mlp_forward_room(m, layer, &x, &plain);
        s->forward_scratch = s->plain_scratch = carved(&plain);
        if (mlp_whole(m)) (void)memopt_carve(&kept, 1, plane(m, 4 * m->rows), 0);
        mlp_backward_room(m, layer, &x, &r);
        s->forward_cost = 8 * rows * c * c;
        s->backward_cost = 2 * s->forward_cost + (mlp_whole(m) ? 0 : s->forward_cost / 2);
    } else {
        attention_kept(m, &a, &kept, 1);
        attention_forward_room(m, layer, &a, &r);
        s->forward_scratch = carved(&r);
        attention_kept(m, &a, &plain, 0);
        attention_forward_room(m, layer, &a, &plain);
        s->plain_scratch = carved(&plain);
        r = memopt_carver_begin(NULL);
        attention_backward_room(m, layer, &a, &r);
        s->forward_cost = rows * (4 * c * c + 2 * (double)m->length * c / (m->vit ? 1 : 2));
        s->backward_cost = 2 * s->forward_cost + (m->lean_attention
            ? rows * (double)m->length * c / (m->vit ? 1 : 2) : 0);
    }
    s->saved_bytes = s->output_bytes + carved(&kept);
    s->backward_scratch = carved(&r);
    r = memopt_carver_begin(NULL);
    lay_gradients(m, first, count, &r);
    *gradient = carved(&r);
}
/* segments: segment_count(m), zeroed; gradients: of each, the bytes of weights' gradients in its backward_scratch */
static void describe_chain(model *m, memopt_segment *segments, size_t *gradients) {
    const double logits = (double)m->target_count * (double)m->width * (double)m->padded;
    const size_t last = segment_count(m) - 1;
    const size_t patches = m->vit ? linear_bytes(m, PATCHES, m->length - 1) : 0; head_room h = { 0 };
    memopt_carver r = memopt_carver_begin(NULL); size_t l;
    lay_gradients(m, POSITIONS, m->vit ? CLASS_TOKEN + 1 - POSITIONS : 1, &r);
    gradients[0] = carved(&r);
    segments[0].output_bytes = segments[0].saved_bytes = segments[0].grad_bytes = plane(m, m->rows);
    (void)memopt_carve(&r, 1, patches, 0);
    segments[0].forward_scratch = patches; segments[0].backward_scratch = carved(&r);
    segments[0].forward_cost = m->vit ? (double)m->rows * (double)m->width * (double)m->patch : 0;
    segments[0].backward_cost = segments[0].forward_cost;
    for (l = 0; l < m->layers; ++l) {
        describe_half(m, l, 0, &segments[1 + 2 * l], &gradients[1 + 2 * l]);
        describe_half(m, l, 1, &segments[2 + 2 * l], &gradients[2 + 2 * l]);
    }
    segments[last].output_bytes = segments[last].saved_bytes = sizeof(float);
    r = memopt_carver_begin(NULL);
    head_forward_room(m, &h, &r); /* of an evaluation; training makes everything in the backward */
    segments[last].forward_scratch = 0; segments[last].plain_scratch = carved(&r);
    r = memopt_carver_begin(NULL);
    head_backward_room(m, &h, &r);
    segments[last].backward_scratch = carved(&r); segments[last].backward_cost = 3 * logits;
    r = memopt_carver_begin(NULL);
    lay_gradients(m, FINAL_SCALE, 2, &r);
    if (m->vit) lay_gradients(m, HEAD, 1, &r);
    gradients[last] = carved(&r);
}
static void describe_layers(model *m, part *parts, memopt_tape_layer *layers) {
    const size_t count = segment_count(m); size_t i;
    for (i = 0; i < count; ++i) {
        parts[i].m = m; parts[i].layer = (i - (i > 0)) / 2;
        layers[i].user = &parts[i];
        layers[i].forward_fn = i % 2 ? attention_half_forward : mlp_half_forward;
        layers[i].backward_fn = i % 2 ? attention_half_backward : mlp_half_backward;
    }
    layers[0].forward_fn = m->vit ? patches_forward : embed_forward;
    layers[0].backward_fn = m->vit ? patches_backward : embed_backward;
    layers[count - 1].forward_fn = head_forward; layers[count - 1].backward_fn = head_backward;
}
#endif
