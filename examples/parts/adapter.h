/* adapter.h - a low-rank adapter beside a linear layer whose weights are frozen (LoRA).

   What it does   output = layer(input) + scale (dropout(input) A^T) B^T, and back: gradients of A, B and the input. The
                  layer's own gradients of weights and bias are not made: no product, no memory.
   How to use     Fill in a memopt_linear as ever (its grad_weights, grad_bias stay NULL) and an adapter, and call
                  adapter_forward() and adapter_backward() in place of memopt_linear_forward() and _backward().
                  A whole network's: adapter_rank of transformer.h.
                  adapter_merge() writes weights + scale B A, rounded once. The layer's weights may be of 8 bits
                  (memopt_linear.quantized): to merge, decode them first. Where the layer is several side by side, as
                  queries, keys and values, each can have an A and a B of its own: set `pieces`.
   What it costs  Kept from forward to backward: rows x rank floats a piece. Beside it: adapter_work_bytes(), shared by
                  all adapters. No copy of input or output. Time: 2 rank / outputs + 2 rank / inputs of the layer's.
   Order          Forward adds the layer's product first, then the adapter's, each rounded to `type`; backward the other
                  way round. A and B may be of another type than the layer: products are of floats then. */
#ifndef PARTS_ADAPTER_H
#define PARTS_ADAPTER_H
#include <string.h>
#include "refuse.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct adapter { /* zero it, then set what you need */
    size_t      rank;
    size_t      pieces;      /* that the outputs are made of, at most ADAPTER_PIECES; 0 = 1 */
    const size_t *piece_outputs; /* of each; not looked at with one */
    float       scale;       /* alpha / rank (or, rank-stabilised, alpha / sqrt(rank)); 0 = 1 */
    memopt_type type;        /* of A and B */
    memopt_type gradient_type; /* with dropout float32 */
    const void *a;           /* rank x inputs, of each piece; begins at random: memopt_random_normal() */
    const void *b;           /* outputs x rank; begins with 0 */
    float      *low;         /* rows x rank * pieces, kept from forward to backward: scale dropout(input) A^T */
    void       *grad_a, *grad_b;
    int         accumulate;  /* of these two */
    float       rate;        /* of dropout; 0 = none */
    memopt_noise noise;      /* as of memopt_dropout; the place of an element in it is that in the layer's input */
    void       *work;        /* adapter_work_bytes(), aligned to 64; not kept between calls */
} adapter;

enum { ADAPTER_PIECES = 3 };
enum { ADAPTER_ROWS = 64 };  /* whose dropped input is in work at a time: a multiple of 32, so no bit depends on it */

static inline size_t adapter_pieces(const adapter *a) { return a->pieces ? a->pieces : 1; }

static inline size_t adapter_width(const adapter *a) { return a->rank * adapter_pieces(a); } /* of low */

static inline size_t adapter_outputs(const memopt_linear *x, const adapter *a, size_t piece) {
    return a->pieces > 1 ? a->piece_outputs[piece] : x->outputs;
}

/* What work begins with: gradients of `low`. */
static inline size_t adapter_low_bytes(const memopt_linear *x, const adapter *a) {
    return (x->rows * adapter_width(a) * sizeof(float) + 63) / 64 * 64;
}

/* And then some rows of dropped input. */
static inline size_t adapter_work_bytes(const memopt_linear *x, const adapter *a) {
    const size_t input = a->rate > 0 ? ADAPTER_ROWS * x->inputs * memopt_type_bytes(x->type) : 0;

    return adapter_low_bytes(x, a) + input;
}

/* Do the pieces make up the outputs, each no smaller than the rank? */
static inline int adapter_pieces_fit(const memopt_linear *x, const adapter *a) {
    size_t i, left = x->outputs;

    for (i = 0; i < adapter_pieces(a); ++i) {
        const size_t outputs = adapter_outputs(x, a, i);

        if (a->rank > outputs || outputs > left) return 0;
        left -= outputs;
    }
    return !left;
}

static inline memopt_status adapter_check(const memopt_ops *ops, const memopt_linear *x, const adapter *a) {
    memopt_error *error = ops ? ops->error : NULL;

    if (!x || !a) return part_refuse(error, "adapter", MEMOPT_ERR_ARGUMENT, "its struct", "is NULL");
    if (a->pieces > ADAPTER_PIECES || (a->pieces > 1 && !a->piece_outputs))
        return part_refuse(error, "adapter", MEMOPT_ERR_ARGUMENT, "pieces", "are too many, or have no outputs");
    if (!a->rank || a->rank > x->inputs || !adapter_pieces_fit(x, a))
        return part_refuse(error, "adapter", MEMOPT_ERR_ARGUMENT, "rank",
                           "must be 1 to inputs and to outputs, which pieces add up to");
    if (!(a->scale - a->scale >= 0))
        return part_refuse(error, "adapter", MEMOPT_ERR_ARGUMENT, "scale", "must be finite");
    if (x->grad_weights || x->grad_bias)
        return part_refuse(error, "adapter", MEMOPT_ERR_ARGUMENT, "grad_weights", "is given, but the layer is frozen");
    if (x->activation || x->pre_activation)
        return part_refuse(error, "adapter", MEMOPT_ERR_ARGUMENT, "activation", "must follow in a call of its own");
    if (a->rate > 0 && a->grad_a && a->gradient_type) /* each ADAPTER_ROWS rows would be rounded */
        return part_refuse(error, "adapter", MEMOPT_ERR_ARGUMENT, "gradient_type", "must be float32 with dropout");
    if (ops && ops->count_scratch) return MEMOPT_OK;
    if (!a->a || !a->b || (x->rows && (!a->low || !a->work)))
        return part_refuse(error, "adapter", MEMOPT_ERR_ARGUMENT, "a, b, low or work", "is NULL");
    return MEMOPT_OK;
}

/* What a backward reads and works in, before it writes anything: the layer's own check comes last. */
static inline memopt_status adapter_check_backward(const memopt_ops *ops, const memopt_linear *x) {
    const uintptr_t odd = (uintptr_t)memopt_type_bytes(x->type) - 1;
    memopt_ops dry;
    size_t bytes = 0;
    memopt_status s;

    memset(&dry, 0, sizeof dry);
    if (ops) dry = *ops;
    dry.count_scratch = &bytes;
    s = memopt_linear_backward(&dry, x);
    if (s || (ops && ops->count_scratch)) return s;
    if (dry.scratch_bytes < bytes || (bytes && (!dry.scratch || (uintptr_t)dry.scratch % 64)))
        return part_refuse(dry.error, "adapter", MEMOPT_ERR_BUFFER, "scratch", "is less than a dry run tells");
    if (x->rows && (!x->grad_output || !x->input || !x->weights))
        return part_refuse(dry.error, "adapter", MEMOPT_ERR_ARGUMENT, "grad_output, input or weights", "is NULL");
    if (((uintptr_t)x->grad_output | (uintptr_t)x->input | (uintptr_t)x->grad_input) & odd)
        return part_refuse(dry.error, "adapter", MEMOPT_ERR_ARGUMENT, "grad_output, input or grad_input",
                           "is misaligned");
    return MEMOPT_OK;
}

static inline float adapter_scale(const adapter *a) { return a->scale > 0 || a->scale < 0 ? a->scale : 1; }

/* ---- products: the types and strides of what is multiplied ---- */
static inline memopt_product adapter_product(size_t rows, size_t columns, size_t depth, const void *left,
                                             memopt_type left_type, const void *right, memopt_type right_type,
                                             void *result, memopt_type type) {
    memopt_product p;

    memset(&p, 0, sizeof p);
    p.rows = rows;
    p.columns = columns;
    p.depth = depth;
    p.left = left;
    p.left_type = left_type;
    p.left_stride = depth;
    p.right = right;
    p.right_type = right_type;
    p.right_stride = columns;
    p.result = result;
    p.result_type = type;
    p.result_stride = columns;
    return p;
}

/* By the gemm that the operators take. */
static inline memopt_status adapter_multiply(const memopt_ops *ops, const memopt_product *p) {
    memopt_gemm gemm;
    const memopt_status s = memopt_gemm_resolve(ops ? &ops->gemm : NULL, &gemm);

    if (s || !p->rows || !p->columns) return s;
    return gemm.multiply_fn(gemm.user, p, ops ? ops->threads : NULL, ops ? ops->scratch : NULL);
}

static inline void adapter_times(float *x, size_t n, float factor) {
    size_t i;
    for (i = 0; i < n; ++i) x[i] *= factor;
}

/* ---- the input that the adapter sees, some rows at a time ---- */
static inline const void *adapter_at(const void *array, memopt_type type, size_t i) {
    return (const unsigned char *)array + i * memopt_type_bytes(type);
}

static inline size_t adapter_step(const adapter *a, size_t rows) {
    return a->rate > 0 && rows > ADAPTER_ROWS ? (size_t)ADAPTER_ROWS : rows;
}

/* Of `rows` rows from a row on. */
static inline memopt_dropout adapter_dropout(const memopt_linear *x, const adapter *a, size_t row, size_t rows) {
    memopt_dropout d;

    memset(&d, 0, sizeof d);
    d.n = rows * x->inputs;
    d.type = x->type;
    d.rate = a->rate;
    d.noise = a->noise;
    d.first = row * x->inputs;
    return d;
}

/* `rows` from a row on, as they are, or dropped, in work; NULL: *s says why. */
static inline const void *adapter_input(const memopt_ops *ops, const memopt_linear *x, const adapter *a, size_t row,
                                        size_t rows, memopt_status *s) {
    memopt_dropout d = adapter_dropout(x, a, row, rows);

    *s = MEMOPT_OK;
    d.input = adapter_at(x->input, x->type, row * x->inputs);
    if (!(a->rate > 0)) return d.input;
    d.output = (unsigned char *)a->work + adapter_low_bytes(x, a);
    *s = memopt_dropout_forward(ops, &d);
    return *s ? NULL : d.output;
}

/* low = scale dropout(input) A^T */
static inline memopt_status adapter_lower(const memopt_ops *ops, const memopt_linear *x, const adapter *a) {
    const size_t step = adapter_step(a, x->rows);
    size_t row, rows;
    memopt_status s = MEMOPT_OK;

    for (row = 0; row < x->rows && !s; row += rows) {
        const void *input;

        rows = step < x->rows - row ? step : x->rows - row;
        input = adapter_input(ops, x, a, row, rows, &s);
        if (!s) {
            memopt_product p = adapter_product(rows, adapter_width(a), x->inputs, input, x->type, a->a, a->type,
                                               a->low + row * adapter_width(a), MEMOPT_TYPE_F32);
            p.right_transposed = 1;
            p.right_stride = x->inputs;
            s = adapter_multiply(ops, &p);
        }
    }
    if (!s) adapter_times(a->low, x->rows * adapter_width(a), adapter_scale(a));
    return s;
}

/* ---- products with B, a piece at a time ---- */
static inline memopt_product adapter_raise(const memopt_linear *x, const adapter *a, size_t piece, size_t first) {
    const size_t outputs = adapter_outputs(x, a, piece);
    memopt_product p = adapter_product(x->rows, outputs, a->rank, a->low + piece * a->rank, MEMOPT_TYPE_F32,
                                       adapter_at(a->b, a->type, first * a->rank), a->type,
                                       (void *)(uintptr_t)adapter_at(x->output, x->type, first), x->type);

    p.left_stride = adapter_width(a);
    p.right_transposed = 1;
    p.right_stride = a->rank;
    p.result_stride = x->outputs;
    p.accumulate = 1;
    return p;
}

static inline memopt_product adapter_lower_gradient(const memopt_linear *x, const adapter *a, size_t piece,
                                                    size_t first) {
    memopt_product p = adapter_product(x->rows, a->rank, adapter_outputs(x, a, piece),
                                       adapter_at(x->grad_output, x->type, first), x->type,
                                       adapter_at(a->b, a->type, first * a->rank), a->type,
                                       (float *)a->work + piece * a->rank, MEMOPT_TYPE_F32);

    p.left_stride = x->outputs;
    p.result_stride = adapter_width(a);
    return p;
}

static inline memopt_product adapter_grad_b(const memopt_linear *x, const adapter *a, size_t piece, size_t first) {
    memopt_product p = adapter_product(adapter_outputs(x, a, piece), a->rank, x->rows,
                                       adapter_at(x->grad_output, x->type, first), x->type, a->low + piece * a->rank,
                                       MEMOPT_TYPE_F32,
                                       (void *)(uintptr_t)adapter_at(a->grad_b, a->gradient_type, first * a->rank),
                                       a->gradient_type);

    p.left_transposed = 1;
    p.left_stride = x->outputs;
    p.right_stride = adapter_width(a);
    p.accumulate = a->accumulate;
    return p;
}

typedef memopt_product adapter_piece_fn(const memopt_linear *x, const adapter *a, size_t piece, size_t first);

static inline memopt_status adapter_each_piece(const memopt_ops *ops, const memopt_linear *x, const adapter *a,
                                               adapter_piece_fn *product_fn) {
    memopt_status s = MEMOPT_OK;
    size_t i, first = 0;

    for (i = 0; i < adapter_pieces(a) && !s; ++i) {
        const memopt_product p = product_fn(x, a, i, first);

        s = adapter_multiply(ops, &p);
        first += adapter_outputs(x, a, i);
    }
    return s;
}

/* ---- the calls ---- */
static inline memopt_status adapter_forward(const memopt_ops *ops, const memopt_linear *x, const adapter *a) {
    memopt_status s = adapter_check(ops, x, a);

    if (!s) s = memopt_linear_forward(ops, x);
    if (s || (ops && ops->count_scratch)) return s;
    s = adapter_lower(ops, x, a);
    return s ? s : adapter_each_piece(ops, x, a, adapter_raise);
}

/* grad_a (onto what is there) += low's gradient^T dropout(input) */
static inline memopt_status adapter_grad_a(const memopt_ops *ops, const memopt_linear *x, const adapter *a,
                                           const float *grad_low) {
    const size_t step = adapter_step(a, x->rows);
    size_t row, rows;
    memopt_status s = MEMOPT_OK;

    if (!x->rows && !a->accumulate) 
        memset(a->grad_a, 0, adapter_width(a) * x->inputs * memopt_type_bytes(a->gradient_type));
    for (row = 0; row < x->rows && !s; row += rows) {
        const void *input;

        rows = step < x->rows - row ? step : x->rows - row;
        input = adapter_input(ops, x, a, row, rows, &s);
        if (!s) {
            memopt_product p = adapter_product(adapter_width(a), x->inputs, rows, grad_low + row * adapter_width(a),
                                               MEMOPT_TYPE_F32, input, x->type, a->grad_a, a->gradient_type);
            p.left_transposed = 1;
            p.left_stride = adapter_width(a);
            p.accumulate = a->accumulate || row;
            s = adapter_multiply(ops, &p);
        }
    }
    return s;
}

/* grad_input receives the adapter's part, onto which the layer adds its own. */
static inline memopt_status adapter_grad_input(const memopt_ops *ops, const memopt_linear *x, const adapter *a,
                                               const float *grad_low) {
    memopt_product p = adapter_product(x->rows, x->inputs, adapter_width(a), grad_low, MEMOPT_TYPE_F32, a->a, a->type,
                                       x->grad_input, x->type);
    memopt_linear layer = *x;
    memopt_dropout d = adapter_dropout(x, a, 0, x->rows);
    memopt_status s;

    p.accumulate = x->accumulate_input && !(a->rate > 0);
    s = adapter_multiply(ops, &p);
    if (!s && a->rate > 0) {
        d.grad_output = d.grad_input = x->grad_input;
        s = memopt_dropout_backward(ops, &d);
    }
    layer.accumulate_input = 1;
    return s ? s : memopt_linear_backward(ops, &layer);
}

static inline memopt_status adapter_backward(const memopt_ops *ops, const memopt_linear *x, const adapter *a) {
    float *grad_low = a ? (float *)a->work : NULL;
    memopt_status s = adapter_check(ops, x, a);

    if (s) return s;
    if (a->rate > 0 && x->accumulate_input)
        return part_refuse(ops ? ops->error : NULL, "adapter", MEMOPT_ERR_ARGUMENT, "accumulate_input",
                           "is set, and there is dropout");
    s = adapter_check_backward(ops, x);
    if (ops && ops->count_scratch && !s) return memopt_linear_backward(ops, x);
    if (!s) s = adapter_each_piece(ops, x, a, adapter_lower_gradient);
    if (s) return s;
    adapter_times(grad_low, x->rows * adapter_width(a), adapter_scale(a));
    if (a->grad_b) s = adapter_each_piece(ops, x, a, adapter_grad_b);
    if (!s && a->grad_a) s = adapter_grad_a(ops, x, a, grad_low);
    return s || !x->grad_input ? s : adapter_grad_input(ops, x, a, grad_low);
}

/* weights += scale B A, rounded once. b_times: outputs x rank floats. */
static inline memopt_status adapter_merge(const memopt_ops *ops, const memopt_linear *x, const adapter *a,
                                          void *weights, float *b_times) {
    const size_t n = x->outputs * a->rank;
    size_t i, first = 0;
    memopt_status s = MEMOPT_OK;

    if (a->type == MEMOPT_TYPE_F32) memcpy(b_times, a->b, n * sizeof *b_times);
    else if (a->type == MEMOPT_TYPE_BF16) s = memopt_f32_from_bf16(b_times, (const uint16_t *)a->b, n, NULL);
    else s = memopt_f32_from_f16(b_times, (const uint16_t *)a->b, n, NULL);
    adapter_times(b_times, s ? 0 : n, adapter_scale(a));
    for (i = 0; i < adapter_pieces(a) && !s; ++i) {
        const size_t outputs = adapter_outputs(x, a, i);
        memopt_product p = adapter_product(
            outputs, x->inputs, a->rank, b_times + first * a->rank, MEMOPT_TYPE_F32,
            adapter_at(a->a, a->type, i * a->rank * x->inputs), a->type,
            (unsigned char *)weights + first * x->inputs * memopt_type_bytes(x->weight_type), x->weight_type);

        p.accumulate = 1;
        s = adapter_multiply(ops, &p);
        first += outputs;
    }
    return s;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
