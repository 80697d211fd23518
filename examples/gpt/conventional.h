/* conventional.h - the same network as most engines written in C hold it: every activation of every layer in memory of
   its own, a gradient for each of them, scores and probabilities of every head, logits and probabilities of each token,
   and all of the gradients set to zero each step. The inventory is that of llm.c's train_gpt2.c: 16 bytes a parameter
   and 2 A. Its products add the residual, so PROJECTED and DOWN_ROWS stay unwritten. Weights, operators' structs and
   tensors are those of the parts; losses and weights have the bits of the lean form. */
#ifndef GPT_CONVENTIONAL_H
#define GPT_CONVENTIONAL_H

enum { ENCODED, NORM1, NORM1_STATISTICS, QKV_ROWS, ATTENDED, SCORES, PROBABILITIES, PROJECTED, RESIDUAL2, NORM2,
       NORM2_STATISTICS, UP_ROWS, GELU_ROWS, DOWN_ROWS, RESIDUAL3, NORMED, NORMED_STATISTICS, LOGITS,
           TOKEN_PROBABILITIES,
       LOSSES, ACTIVATIONS };
typedef struct conventional {
    size_t counts[ACTIVATIONS];                        /* floats of a layer, or of all where there is one only */
    float *acts[ACTIVATIONS], *grads[ACTIVATIONS];
    size_t *valid; memopt_ops ops;
} conventional;
static int of_each_layer(int which) { return which >= NORM1 && which <= RESIDUAL3; }
static void conventional_count(const model *m, conventional *x) {
    const size_t rows = transformer_rows(&m->shape), n = rows * m->shape.width, targets = target_count(m);
    size_t *c = x->counts; int i;
    for (i = 0; i < ACTIVATIONS; ++i) c[i] = n;
    c[QKV_ROWS] = 3 * n; c[UP_ROWS] = c[GELU_ROWS] = 4 * n;
    c[SCORES] = c[PROBABILITIES] = rows * m->shape.length * m->shape.heads;
    c[NORM1_STATISTICS] = c[NORM2_STATISTICS] = c[NORMED_STATISTICS] = 2 * rows;
    c[LOGITS] = c[TOKEN_PROBABILITIES] = targets * m->shape.padded; c[LOSSES] = targets;
}
static float *act(const conventional *x, int which, size_t layer) { return x->acts[which] + layer * x->counts[which]; }
static float *grad(const conventional *x, int which, size_t layer) {
    return x->grads[which] + layer * x->counts[which]; }
/* What a part's operators work with, without a tape. */
static transformer_work work_of(const conventional *x, memopt_tape_call *call, transformer_part *part,
                                transformer_tensors_fn *tensors_fn) {
    transformer_work w;
    call->user = part;
    w = transformer_begin(call, tensors_fn, 1);
    w.ops = x->ops;
    return w;
}
static void copy(const transformer_work *w, float *to, const float *from) {
    if (!w->call->describing) memcpy(to, from, transformer_bytes(w->shape, w->shape->width));
}
static matrices matrices_of(const conventional *x, float *const *of, size_t layer, size_t each) {
    matrices r;
    r.scores = of[SCORES] + layer * x->counts[SCORES]; r.probabilities = of[PROBABILITIES] + layer * x->counts[SCORES];
    r.each = each; r.valid = x->valid; r.narrow = NULL; /* of floats */
    return r;
}
static const float *entering(const conventional *x, size_t layer) {
    return layer ? act(x, RESIDUAL3, layer - 1) : x->acts[ENCODED];
}
static memopt_status block_forward(model *m, const conventional *x, memopt_tape_call *call, size_t l) {
    const transformer_work a = work_of(x, call, &m->blocks[l].attention, transformer_attention_tensors);
    const transformer_work b = work_of(x, call, &m->blocks[l].mlp, transformer_mlp_tensors);
    const memopt_linear qkv = transformer_linear(&a, TRANSFORMER_QKV, act(x, NORM1, l), act(x, QKV_ROWS, l));
    const matrices whole = matrices_of(x, x->acts, l, m->shape.length * m->shape.length);
    const memopt_linear up = transformer_linear(&b, TRANSFORMER_UP, act(x, NORM2, l), act(x, UP_ROWS, l));
    memopt_linear project = transformer_linear(&a, TRANSFORMER_PROJECT, act(x, ATTENDED, l), act(x, RESIDUAL2, l));
    memopt_linear down = transformer_linear(&b, TRANSFORMER_DOWN, act(x, GELU_ROWS, l), act(x, RESIDUAL3, l));
    memopt_attention attention = transformer_attention(&m->shape, act(x, QKV_ROWS, l), act(x, QKV_ROWS, l));
    memopt_status s;
    const memopt_activation_args gelu = transformer_gelu(&b, act(x, UP_ROWS, l), act(x, GELU_ROWS, l));
    attention.output = act(x, ATTENDED, l);
    project.residual = entering(x, l); down.residual = act(x, RESIDUAL2, l);
    if ((s = transformer_norm_forward(&a, TRANSFORMER_NORM_SCALE, entering(x, l), act(x, NORM1, l),
        act(x, NORM1_STATISTICS, l))) != MEMOPT_OK
        || (s = memopt_linear_forward(&a.ops, &qkv)) != MEMOPT_OK
        || (s = whole_attention_forward(&a.ops, &attention, &whole)) != MEMOPT_OK
        || (s = memopt_linear_forward(&a.ops, &project)) != MEMOPT_OK
        || (s = transformer_norm_forward(&b, TRANSFORMER_NORM_SCALE, act(x, RESIDUAL2, l), act(x, NORM2, l),
            act(x, NORM2_STATISTICS, l))) != MEMOPT_OK
        || (s = memopt_linear_forward(&b.ops, &up)) != MEMOPT_OK
        || (s = memopt_activation_forward(&b.ops, &gelu)) != MEMOPT_OK) return s;
    return memopt_linear_forward(&b.ops, &down);
}
static memopt_status block_backward(model *m, const conventional *x, memopt_tape_call *call, size_t l) {
    const transformer_work a = work_of(x, call, &m->blocks[l].attention, transformer_attention_tensors);
    const transformer_work b = work_of(x, call, &m->blocks[l].mlp, transformer_mlp_tensors);
    const size_t each = m->shape.length * m->shape.length;
    const matrices whole = matrices_of(x, x->acts, l, each), whole_grad = matrices_of(x, x->grads, l, each);
    float *grad_in = l ? grad(x, RESIDUAL3, l - 1) : x->grads[ENCODED], *grad_qkv = grad(x, QKV_ROWS, l);
    memopt_attention attention = transformer_attention(&m->shape, act(x, QKV_ROWS, l), act(x, QKV_ROWS, l));
    memopt_activation_args gelu = transformer_gelu(&b, act(x, UP_ROWS, l), NULL); memopt_status s;
    attention.grad_output = grad(x, ATTENDED, l); attention.grad_queries = grad_qkv;
    attention.grad_keys = grad_qkv + m->shape.width; attention.grad_values = grad_qkv + 2 * m->shape.width;
    gelu.grad_output = grad(x, GELU_ROWS, l); gelu.grad_input = grad(x, UP_ROWS, l);
    copy(&b, grad(x, DOWN_ROWS, l), grad(x, RESIDUAL3, l));
    copy(&b, grad(x, RESIDUAL2, l), grad(x, RESIDUAL3, l)); /* to which the norm's is added */
    if ((s = transformer_linear_backward(&b, TRANSFORMER_DOWN, act(x, GELU_ROWS, l), grad(x, DOWN_ROWS, l),
        grad(x, GELU_ROWS, l))) != MEMOPT_OK
        || (s = memopt_activation_backward(&b.ops, &gelu)) != MEMOPT_OK
        || (s = transformer_linear_backward(&b, TRANSFORMER_UP, act(x, NORM2, l), grad(x, UP_ROWS, l),
            grad(x, NORM2, l))) != MEMOPT_OK
        || (s = transformer_norm_backward(&b, TRANSFORMER_NORM_SCALE, act(x, RESIDUAL2, l), act(x, NORM2_STATISTICS, l),
            grad(x, NORM2, l), grad(x, RESIDUAL2, l), 1)) != MEMOPT_OK) return s;
    copy(&a, grad(x, PROJECTED, l), grad(x, RESIDUAL2, l));
    copy(&a, grad_in, grad(x, RESIDUAL2, l));
    if ((s = transformer_linear_backward(&a, TRANSFORMER_PROJECT, act(x, ATTENDED, l), grad(x, PROJECTED, l),
        grad(x, ATTENDED, l))) != MEMOPT_OK
        || (s = whole_attention_backward(&a.ops, &attention, &whole, &whole_grad)) != MEMOPT_OK
        || (s = transformer_linear_backward(&a, TRANSFORMER_QKV, act(x, NORM1, l), grad_qkv,
            grad(x, NORM1, l))) != MEMOPT_OK) return s;
    return transformer_norm_backward(&a, TRANSFORMER_NORM_SCALE, entering(x, l), act(x, NORM1_STATISTICS, l),
                                     grad(x, NORM1, l), grad_in, 1);
}
/* Logits and probabilities of every target, then everything back to the residual stream. */
static memopt_status head_both(model *m, const conventional *x, memopt_tape_call *call) {
    const transformer *t = &m->shape; const size_t n = target_count(m), c = t->width;
    transformer_work w = work_of(x, call, &m->head.part, transformer_head_tensors); memopt_status s;
    float *in = act(x, RESIDUAL3, m->layers - 1), *out = grad(x, RESIDUAL3, m->layers - 1), *grad_in = out;
    memopt_softmax softmax = { 0 }; memopt_cross_entropy entropy = { 0 }; memopt_loss loss = { 0 };
    memopt_product p = { 0 };
    w.rows = n;
    if (m->vit) { /* the rows of class tokens, behind their normed form */
        (void)transformer_head_copy(&w, x->acts[NORMED] + n * c, 1, in, t->length);
        in = x->acts[NORMED] + n * c; grad_in = x->grads[NORMED] + n * c;
    }
    p.rows = n; p.columns = t->padded; p.depth = c; p.left = x->acts[NORMED]; p.left_stride = p.right_stride = c;
    p.right = m->vit ? transformer_weights(&w, TRANSFORMER_HEAD) : m->embedding.weights; p.right_transposed = 1;
    p.result = x->acts[LOGITS]; p.result_stride = t->padded;
    softmax.rows = n; softmax.columns = t->vocabulary; softmax.stride = t->padded; softmax.input = x->acts[LOGITS];
    softmax.output = x->acts[TOKEN_PROBABILITIES];
    entropy.rows = n; entropy.vocabulary = t->vocabulary; entropy.stride = t->padded; entropy.logits = x->grads[LOGITS];
    entropy.targets = m->head.targets; entropy.losses = x->acts[LOSSES]; entropy.rule = m->head.rule;
    if ((s = transformer_norm_forward(&w, TRANSFORMER_FINAL_SCALE, in, x->acts[NORMED],
        x->acts[NORMED_STATISTICS])) != MEMOPT_OK
        || (s = multiply(&w.ops, p)) != MEMOPT_OK || (s = memopt_softmax_forward(&w.ops, &softmax)) != MEMOPT_OK)
        return s;
    if (!call->describing) memcpy(x->grads[LOGITS], x->acts[LOGITS], x->counts[LOGITS] * sizeof(float));
    if ((s = memopt_cross_entropy_loss(&w.ops, &entropy, &loss)) != MEMOPT_OK) return s;
    m->head.loss = loss.loss;
    p.rows = t->padded; p.columns = c; p.depth = n; p.left = x->grads[LOGITS]; p.left_stride = t->padded;
    p.left_transposed = 1;
    p.right = x->acts[NORMED]; p.right_transposed = 0; p.result_stride = c; p.accumulate = 1;
    p.result = m->vit ? w.gradients[TRANSFORMER_HEAD] : m->embedding.gradients;
    if ((s = multiply(&w.ops, p)) != MEMOPT_OK) return s;
    p.rows = n; p.depth = t->padded; p.left_transposed = 0; p.result = x->grads[NORMED];
    p.right = m->vit ? transformer_weights(&w, TRANSFORMER_HEAD) : m->embedding.weights;
    if ((s = multiply(&w.ops, p)) != MEMOPT_OK) return s;
    s = transformer_norm_backward(&w, TRANSFORMER_FINAL_SCALE, in, x->acts[NORMED_STATISTICS], x->grads[NORMED],
                                  grad_in, 1);
    if (m->vit) (void)transformer_head_copy(&w, out, t->length, grad_in, 1);
    return s;
}
/* dry: nothing is computed, and ops.count_scratch says how much scratch it takes. */
static memopt_status conventional_pass(model *m, const conventional *x, const void *input, int dry) {
    memopt_tape_fn *const ends[2] = { m->vit ? patches_forward : transformer_embedding_forward,
                                            m->vit ? patches_backward : transformer_embedding_backward };
    memopt_tape_call call; memopt_status s; size_t l;
    memset(&call, 0, sizeof call);
    call.input = input; call.output = x->acts[ENCODED]; call.grad_output = x->grads[ENCODED]; call.describing = dry;
    for (l = 0; !dry && l < ACTIVATIONS; ++l) memset(x->grads[l], 0,
        x->counts[l] * (of_each_layer((int)l) ? m->layers : 1) * sizeof(float));
    if (!dry && !m->shape.accumulate)
        memset(m->gradients, 0, m->elements * memopt_type_bytes(m->shape.gradient_type));
    m->shape.accumulate = 1; m->shape.ops = x->ops;
    call.user = &m->embedding;
    s = ends[0](&call);
    for (l = 0; !s && l < m->layers; ++l) s = block_forward(m, x, &call, l);
    if (!s) s = head_both(m, x, &call);
    for (l = m->layers; !s && l-- > 0;) s = block_backward(m, x, &call, l);
    call.user = &m->embedding;
    return s ? s : ends[1](&call);
}
#endif
