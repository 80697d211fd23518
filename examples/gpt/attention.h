/* attention.h - the usual attention, which holds the matrix of every head: an attention of one's own for a block of
   examples/parts. Its bits are those of memopt_attention_forward() and _backward(). */
#ifndef GPT_ATTENTION_H
#define GPT_ATTENTION_H

typedef struct matrices {
    float *scores, *probabilities; /* may be the same memory */
    size_t each;                   /* floats from a head's matrix to the next; 0 = one for all */
    size_t *valid;                 /* of each row, the columns it sees: written here */
    uint16_t *narrow;              /* a matrix as the products of bf16 take it; else NULL */
} matrices;

static size_t gemm_bytes(const memopt_ops *ops) {
    memopt_gemm g;

    if (memopt_gemm_resolve(&ops->gemm, &g)) return 0;
    return ((g.scratch_bytes + 63) & ~(size_t)63) * (size_t)(ops->threads ? ops->threads->worker_count : 1);
}

static memopt_status multiply(const memopt_ops *ops, memopt_product p) {
    memopt_gemm g;
    const memopt_status s = memopt_gemm_resolve(&ops->gemm, &g);

    if (s || !ops->count_scratch) return s ? s : g.multiply_fn(g.user, &p, ops->threads, ops->scratch);
    if (*ops->count_scratch < gemm_bytes(ops)) *ops->count_scratch = gemm_bytes(ops);
    return s;
}

/* result (rows x columns) = left * right, of one head */
static memopt_product head_product(const memopt_attention *a, size_t rows, size_t columns, size_t depth) {
    memopt_product p = { 0 };

    p.rows = rows;
    p.columns = columns;
    p.depth = depth;
    p.left_type = p.right_type = p.result_type = a->type;
    return p;
}

static memopt_softmax softmax_of(const memopt_attention *a, const matrices *x, size_t at) {
    memopt_softmax f = { 0 };

    f.rows = f.columns = a->length;
    f.valid = a->causal ? x->valid : NULL;
    f.scale = 1.0f / sqrtf((float)a->width);
    f.input = x->scores + at;
    f.output = x->probabilities + at;
    return f;
}

/* A matrix of a head as the left operand of a product: with bf16 it is rounded. */
static memopt_status take_matrix(const memopt_ops *ops, const memopt_attention *a, const matrices *x,
                                 const float *matrix, memopt_product *p) {
    p->left_stride = a->length;
    p->left_type = a->type == MEMOPT_TYPE_BF16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    p->left = p->left_type == MEMOPT_TYPE_BF16 ? (const void *)x->narrow : matrix;
    if (p->left == matrix || ops->count_scratch) return MEMOPT_OK;
    return memopt_bf16_from_f32(x->narrow, matrix, a->length * a->length, ops->threads);
}

/* The first row of a head, in an array of rows of heads. */
static void *head_at(const memopt_attention *a, const void *rows, size_t stride, size_t b, size_t h) {
    return transformer_at(rows, b * a->length * stride + h * a->width, a->type);
}

static memopt_status whole_attention_forward(const memopt_ops *ops, const memopt_attention *a, const matrices *x) {
    const size_t t = a->length;
    const size_t d = a->width;
    const size_t qkv = a->query_stride;
    memopt_status s = MEMOPT_OK;
    size_t b, h;

    for (b = 0; b < t && !ops->count_scratch; ++b) x->valid[b] = b + 1;
    for (b = 0; b < a->batch; ++b)
        for (h = 0; h < a->heads && !s; ++h) {
            const size_t at = (b * a->heads + h) * x->each;
            const memopt_softmax f = softmax_of(a, x, at);
            memopt_product p = head_product(a, t, t, d);

            p.left = head_at(a, a->queries, qkv, b, h);
            p.left_stride = qkv;
            p.right = head_at(a, a->keys, qkv, b, h);
            p.right_stride = qkv;
            p.right_transposed = 1;
            p.result = x->scores + at;
            p.result_stride = t;
            p.result_type = MEMOPT_TYPE_F32;
            s = multiply(ops, p);
            if (!s) s = memopt_softmax_forward(ops, &f);
            p = head_product(a, t, d, t);
            if (!s) s = take_matrix(ops, a, x, f.output, &p);
            p.right = head_at(a, a->values, qkv, b, h);
            p.right_stride = qkv;
            p.result = head_at(a, a->output, a->heads * d, b, h);
            p.result_stride = a->heads * d;
            if (!s) s = multiply(ops, p);
            if (ops->count_scratch) return s; /* the others need no more */
        }
    return s;
}

/* grad: matrices of gradients; here grad->scores may be grad->probabilities */
static memopt_status whole_attention_backward(const memopt_ops *ops, const memopt_attention *a, const matrices *x,
                                              const matrices *grad) {
    const size_t t = a->length;
    const size_t d = a->width;
    const size_t qkv = a->query_stride;
    memopt_status s = MEMOPT_OK;
    size_t b, h, i;

    for (b = 0; b < t && !ops->count_scratch; ++b) x->valid[b] = b + 1;
    for (b = 0; b < a->batch; ++b)
        for (h = 0; h < a->heads && !s; ++h) {
            const size_t at = (b * a->heads + h) * x->each;
            const size_t grad_at = (b * a->heads + h) * grad->each;
            const void *out = head_at(a, a->grad_output, a->heads * d, b, h);
            memopt_softmax f = softmax_of(a, x, at);
            memopt_product p[4];

            p[0] = head_product(a, t, t, d); /* probabilities' gradient = out values^T */
            p[0].left = out;
            p[0].left_stride = a->heads * d;
            p[0].right = head_at(a, a->values, qkv, b, h);
            p[0].right_stride = qkv;
            p[0].right_transposed = 1;
            p[0].result = grad->probabilities + grad_at;
            p[0].result_stride = t;
            p[0].result_type = MEMOPT_TYPE_F32;
            p[1] = head_product(a, t, d, t); /* values' = probabilities^T out */
            s = take_matrix(ops, a, x, x->probabilities + at, &p[1]);
            p[1].left_transposed = 1;
            p[1].right = out;
            p[1].right_stride = a->heads * d;
            p[1].result = head_at(a, a->grad_values, qkv, b, h);
            p[1].result_stride = qkv;
            for (i = 0; i < 2 && !s; ++i) s = multiply(ops, p[i]);
            f.input = x->probabilities + at;
            f.grad_output = grad->probabilities + grad_at;
            f.output = grad->scores + grad_at;
            if (!s) s = memopt_softmax_backward(ops, &f);
            p[2] = head_product(a, t, d, t); /* queries' = scores' keys */
            if (!s) s = take_matrix(ops, a, x, f.output, &p[2]);
            p[2].right = head_at(a, a->keys, qkv, b, h);
            p[2].right_stride = qkv;
            p[2].result = head_at(a, a->grad_queries, qkv, b, h);
            p[2].result_stride = qkv;
            p[3] = p[2];
            p[3].left_transposed = 1; /* keys' = scores'^T queries */
            p[3].right = head_at(a, a->queries, qkv, b, h);
            p[3].result = head_at(a, a->grad_keys, qkv, b, h);
            for (i = 2; i < 4 && !s; ++i) s = multiply(ops, p[i]);
            if (ops->count_scratch) return s;
        }
    return s;
}

/* ---- for a block: the probabilities of all heads are kept for the backward; without one, a matrix serves all ---- */
static void whole_attention_take(const memopt_tape_call *call, const memopt_attention *a, void *room[2]) {
    const size_t matrix = a->length * a->length * sizeof(float);
    const size_t narrow = a->type == MEMOPT_TYPE_BF16 ? matrix / 2 : 0;

    room[0] = memopt_tape_take(call, MEMOPT_TAPE_SAVED, (call->saves ? a->batch * a->heads : 1) * matrix);
    room[1] = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH,
                               a->length * sizeof(size_t) + (call->is_backward ? matrix : 0) + narrow);
}

static memopt_status whole_attention_run(const memopt_tape_call *call, const memopt_ops *ops, const memopt_attention *a,
                                         void *const room[2]) {
    float *after = (float *)(void *)((size_t *)room[1] + a->length);
    matrices x, grad;

    x.narrow = (uint16_t *)(void *)(call->is_backward ? after + a->length * a->length : after);
    x.scores = x.probabilities = (float *)room[0];
    x.each = call->saves ? a->length * a->length : 0;
    x.valid = (size_t *)room[1];
    if (!call->is_backward) return whole_attention_forward(ops, a, &x);
    grad.scores = grad.probabilities = after;
    grad.each = 0;
    return whole_attention_backward(ops, a, &x, &grad);
}

static const transformer_attention_fns whole_attention = { whole_attention_take, whole_attention_run, 0, NULL };
#endif
