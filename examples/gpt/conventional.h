/* conventional.h - the same network as most engines written in C hold it: every activation of every layer in memory of
   its own, a gradient for each of them, scores and probabilities of every head, logits and probabilities of every token,
   and all of the gradients set to zero each step. The inventory is that of llm.c's train_gpt2.c: 16 bytes a parameter
   and 2 A. Losses and weights have the bits of the lean form. */
#ifndef GPT_CONVENTIONAL_H
#define GPT_CONVENTIONAL_H

enum { ENCODED, NORM1, NORM1_STATISTICS, QKV_ROWS, ATTENDED, SCORES, PROBABILITIES, PROJECTED, RESIDUAL2, NORM2,
       NORM2_STATISTICS, UP_ROWS, GELU_ROWS, DOWN_ROWS, RESIDUAL3, NORMED, NORMED_STATISTICS, LOGITS,
           TOKEN_PROBABILITIES,
       LOSSES, ACTIVATIONS };
typedef struct conventional {
    size_t counts[ACTIVATIONS];                        /* floats of a layer, or of all where there is one only */
    float *acts[ACTIVATIONS], *grads[ACTIVATIONS];
    size_t activations;                                /* A, in floats */
    size_t *valid; void *scratch; size_t scratch_bytes;
} conventional;
static int of_each_layer(int which) { return which >= NORM1 && which <= RESIDUAL3; }
static void conventional_count(const model *m, conventional *x) {
    const size_t n = m->rows * m->width, matrix = m->rows * m->length * m->heads, logits = m->target_count * m->padded;
    int i;
    size_t *c = x->counts;
    for (i = 0; i < ACTIVATIONS; ++i) c[i] = n;
    c[QKV_ROWS] = 3 * n; c[UP_ROWS] = c[GELU_ROWS] = 4 * n; c[SCORES] = c[PROBABILITIES] = matrix;
    c[NORM1_STATISTICS] = c[NORM2_STATISTICS] = c[NORMED_STATISTICS] = 2 * m->rows;
    c[LOGITS] = c[TOKEN_PROBABILITIES] = logits; c[LOSSES] = m->target_count;
    for (x->activations = 0, i = 0; i < ACTIVATIONS; ++i) x->activations += c[i] * (of_each_layer(i) ? m->layers : 1);
    x->scratch_bytes = most(most(gemm_bytes(m), linear_bytes(m, OUTSIDE + UP, m->rows)),
        linear_bytes(m, OUTSIDE + DOWN, m->rows));
    x->scratch_bytes = most(x->scratch_bytes, linear_bytes(m, OUTSIDE + QKV, m->rows));
    {   /* the ends of the network bring their own figures */
        memopt_carver r = memopt_carver_begin(NULL); memopt_cross_entropy e = { 0 }; head_room h = { 0 };
        size_t bytes = 0;
        e.rows = m->target_count; e.vocabulary = m->vocab; e.stride = m->padded;
        (void)memopt_cross_entropy_scratch(&m->ops, &e, &bytes);
        if (m->vit) { head_forward_room(m, &h, &r); bytes = most(carved(&r) + 2 * m->target_count * sizeof(float) + 64,
                                                                 linear_bytes(m, PATCHES, m->length - 1)); }
        x->scratch_bytes = most(x->scratch_bytes, bytes);
    }
}
static float *act(const conventional *x, int which, size_t layer) { return x->acts[which] + layer * x->counts[which]; }
static float *grad(const conventional *x, int which, size_t layer) {
    return x->grads[which] + layer * x->counts[which]; }
static memopt_status add(const model *m, const float *a, const float *b, float *out) { /* out = a + b */
    memopt_dropout d = { 0 };
    d.n = m->rows * m->width; d.type = m->type; d.input = b; d.residual = a; d.output = out;
    return memopt_dropout_forward(&m->ops, &d);
}
static matrices matrices_of(const conventional *x, float *const *of, size_t layer) {
    matrices r;
    r.scores = of[SCORES] + layer * x->counts[SCORES]; r.probabilities = of[PROBABILITIES] + layer * x->counts[SCORES];
    r.each = 0; r.valid = x->valid;
    return r;
}
static const float *entering(const conventional *x, size_t layer) {
    return layer ? act(x, RESIDUAL3, layer - 1) : x->acts[ENCODED];
}
static memopt_status block_forward(const model *m, const memopt_ops *ops, const conventional *x, size_t l) {
    const size_t i = at_layer(l, 0), n = m->rows; const float *in = entering(x, l);
    matrices full = matrices_of(x, x->acts, l);
    const memopt_norm norm1 = norm_of(m, i + NORM1_SCALE, n, in, act(x, NORM1, l), act(x, NORM1_STATISTICS, l));
    const memopt_linear qkv = linear_of(m, i + QKV, n, act(x, NORM1, l), act(x, QKV_ROWS, l));
    const memopt_linear project = linear_of(m, i + PROJECT, n, act(x, ATTENDED, l), act(x, PROJECTED, l));
    const memopt_norm norm2 = norm_of(m, i + NORM2_SCALE, n, act(x, RESIDUAL2, l), act(x, NORM2, l),
        act(x, NORM2_STATISTICS, l));
    const memopt_linear down = linear_of(m, i + DOWN, n, act(x, GELU_ROWS, l), act(x, DOWN_ROWS, l));
    memopt_linear up = linear_of(m, i + UP, n, act(x, NORM2, l), act(x, GELU_ROWS, l)); memopt_status s;
    up.activation = MEMOPT_ACTIVATION_GELU; up.pre_activation = act(x, UP_ROWS, l);
    full.each = m->length * m->length;
    if ((s = memopt_norm_forward(ops, &norm1)) != MEMOPT_OK || (s = memopt_linear_forward(ops, &qkv)) != MEMOPT_OK
        || (s = full_attention_forward(m, ops, act(x, QKV_ROWS, l), &full, act(x, ATTENDED, l))) != MEMOPT_OK
        || (s = memopt_linear_forward(ops, &project)) != MEMOPT_OK
        || (s = add(m, in, act(x, PROJECTED, l), act(x, RESIDUAL2, l))) != MEMOPT_OK
        || (s = memopt_norm_forward(ops, &norm2)) != MEMOPT_OK || (s = memopt_linear_forward(ops, &up)) != MEMOPT_OK
        || (s = memopt_linear_forward(ops, &down)) != MEMOPT_OK) return s;
    return add(m, act(x, RESIDUAL2, l), act(x, DOWN_ROWS, l), act(x, RESIDUAL3, l));
}
static memopt_status linear_back(const model *m, const memopt_ops *ops, size_t weights, const float *input,
                                 const float *grad_output, float *grad_input) {
    memopt_linear l = linear_gradients(m, weights, linear_of(m, weights, m->rows, input, NULL), grad_output, 1);
    l.grad_input = grad_input; l.accumulate_input = 1; /* onto zeros */
    return memopt_linear_backward(ops, &l);
}
static memopt_status block_backward(const model *m, const memopt_ops *ops, const conventional *x, size_t l) {
    const size_t i = at_layer(l, 0), bytes = plane(m, m->rows); const float *in = entering(x, l); memopt_status s;
    float *grad_in = l ? grad(x, RESIDUAL3, l - 1) : x->grads[ENCODED];
    const memopt_norm norm1 = norm_of(m, i + NORM1_SCALE, m->rows, in, NULL, act(x, NORM1_STATISTICS, l));
    const memopt_norm norm2 = norm_of(m, i + NORM2_SCALE, m->rows, act(x, RESIDUAL2, l), NULL,
        act(x, NORM2_STATISTICS, l));
    memopt_activation_args gelu = { 0 };
    matrices full = matrices_of(x, x->acts, l), full_grad = matrices_of(x, x->grads, l);
    full.each = full_grad.each = m->length * m->length;
    gelu.n = x->counts[UP_ROWS];
    gelu.activation = MEMOPT_ACTIVATION_GELU; gelu.type = m->type; gelu.input = act(x, UP_ROWS, l);
    gelu.grad_output = grad(x, GELU_ROWS, l); gelu.grad_input = grad(x, UP_ROWS, l);
    memcpy(grad(x, DOWN_ROWS, l), grad(x, RESIDUAL3, l), bytes);
    if ((s = linear_back(m, ops, i + DOWN, act(x, GELU_ROWS, l), grad(x, DOWN_ROWS, l),
        grad(x, GELU_ROWS, l))) != MEMOPT_OK
        || (s = memopt_activation_backward(ops, &gelu)) != MEMOPT_OK
        || (s = linear_back(m, ops, i + UP, act(x, NORM2, l), grad(x, UP_ROWS, l), grad(x, NORM2, l))) != MEMOPT_OK
        || (s = norm_backward(m, norm2, i + NORM2_SCALE, grad(x, NORM2, l), grad(x, RESIDUAL3, l),
            grad(x, RESIDUAL2, l), 1))
               != MEMOPT_OK) return s;
    memcpy(grad(x, PROJECTED, l), grad(x, RESIDUAL2, l), bytes);
    if ((s = linear_back(m, ops, i + PROJECT, act(x, ATTENDED, l), grad(x, PROJECTED, l),
        grad(x, ATTENDED, l))) != MEMOPT_OK
        || (s = full_attention_backward(m, ops, act(x, QKV_ROWS, l), &full, &full_grad, grad(x, ATTENDED, l),
                                        grad(x, QKV_ROWS, l))) != MEMOPT_OK
        || (s = linear_back(m, ops, i + QKV, act(x, NORM1, l), grad(x, QKV_ROWS, l),
            grad(x, NORM1, l))) != MEMOPT_OK) return s;
    return norm_backward(m, norm1, i + NORM1_SCALE, grad(x, NORM1, l), grad(x, RESIDUAL2, l), grad_in, 1);
}
/* Logits and probabilities of every token, then everything back to the residual stream. */
static memopt_status head_both(model *m, const memopt_ops *ops, const conventional *x) {
    const size_t n = m->rows, c = m->width; float *out_grad = grad(x, RESIDUAL3, m->layers - 1); memopt_status s;
    memopt_norm norm = norm_of(m, FINAL_SCALE, n, act(x, RESIDUAL3, m->layers - 1), x->acts[NORMED],
        x->acts[NORMED_STATISTICS]);
    memopt_softmax softmax = { 0 }; memopt_cross_entropy entropy = { 0 }; memopt_loss loss = { 0 };
    memopt_product p = { 0 };
    p.rows = n; p.columns = m->padded; p.depth = c; p.left = x->acts[NORMED]; p.left_stride = p.right_stride = c;
    p.right = weights_of(m, TOKENS); p.right_transposed = 1; p.result = x->acts[LOGITS]; p.result_stride = m->padded;
    softmax.rows = n; softmax.columns = m->vocab; softmax.stride = m->padded; softmax.input = x->acts[LOGITS];
    softmax.output = x->acts[TOKEN_PROBABILITIES];
    entropy.rows = n; entropy.vocabulary = m->vocab; entropy.stride = m->padded; entropy.logits = x->grads[LOGITS];
    entropy.targets = m->targets; entropy.losses = x->acts[LOSSES]; entropy.rule.scale = m->loss_scale;
    entropy.rule.count = m->loss_count;
    if ((s = memopt_norm_forward(ops, &norm)) != MEMOPT_OK || (s = multiply(ops, p)) != MEMOPT_OK
        || (s = memopt_softmax_forward(ops, &softmax)) != MEMOPT_OK) return s;
    memcpy(x->grads[LOGITS], x->acts[LOGITS], x->counts[LOGITS] * sizeof(float));
    if ((s = memopt_cross_entropy_loss(ops, &entropy, &loss)) != MEMOPT_OK) return s;
    m->loss += loss.loss;
    p.rows = m->padded; p.columns = c; p.depth = n; p.left = x->grads[LOGITS]; p.left_stride = m->padded;
    p.left_transposed = 1;
    p.right = x->acts[NORMED]; p.right_transposed = 0; p.result = m->gradients[TOKENS]; p.result_stride = c;
    p.accumulate = 1;
    if ((s = multiply(ops, p)) != MEMOPT_OK) return s;
    p.rows = n;
    p.depth = m->padded; p.left_transposed = 0; p.right = weights_of(m, TOKENS); p.result = x->grads[NORMED];
    if ((s = multiply(ops, p)) != MEMOPT_OK) return s;
    norm.output = NULL; norm.grad_output = x->grads[NORMED]; norm.grad_input = out_grad; norm.accumulate_input = 1;
    norm.grad_scale = m->gradients[FINAL_SCALE]; norm.grad_shift = m->gradients[FINAL_SHIFT]; norm.accumulate = 1;
    return memopt_norm_backward(ops, &norm);
}
static memopt_status conventional_pass(model *m, const conventional *x, const void *input) {
    memopt_ops ops = m->ops; part self; memopt_tape_call ends; memopt_status s; float unused; size_t l;
    ops.scratch = x->scratch; ops.scratch_bytes = x->scratch_bytes;
    self.m = m; self.layer = 0;
    memset(&ends, 0, sizeof ends);
    ends.user = &self; ends.scratch = x->scratch; ends.scratch_bytes = x->scratch_bytes;
    for (l = 0; l < ACTIVATIONS; ++l) memset(x->grads[l], 0,
        x->counts[l] * (of_each_layer((int)l) ? m->layers : 1) * sizeof(float));
    if (!m->accumulate)
        for (l = 0; l < m->tensor_count; ++l) if (m->tensors[l]->count) memset(m->gradients[l], 0,
            gradient_bytes(m, l));
    m->accumulate = 1;
    ends.input = input; ends.output = x->acts[ENCODED];
    if ((s = m->vit ? patches_forward(&ends) : embed_forward(&ends)) != MEMOPT_OK) return s;
    for (l = 0; l < m->layers; ++l) if ((s = block_forward(m, &ops, x, l)) != MEMOPT_OK) return s;
    if (m->vit) {
        ends.input = act(x, RESIDUAL3, m->layers - 1); ends.output = &unused;
        ends.grad_input = grad(x, RESIDUAL3, m->layers - 1);
        s = head_backward(&ends);
    } else s = head_both(m, &ops, x);
    for (l = m->layers; !s && l-- > 0;) s = block_backward(m, &ops, x, l);
    ends.input = input; ends.grad_output = x->grads[ENCODED]; ends.grad_input = NULL;
    if (s) return s;
    return m->vit ? patches_backward(&ends) : embed_backward(&ends);
}
#endif
