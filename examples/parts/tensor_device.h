/* tensor_device.h - what tensor.h does by itself beside the operators, on a CUDA device: device.h has those. tensor.h
   includes it behind device.h.

   Shapes    cuBLASLt chooses how it adds by the shape of a product. So no shape of one depends on the number of ranks:
             products whose sums are handed out are those of the rows of a part, rows / parts, and the whole width. How
             matrices are aligned does not depend on it either.
   Ids       and targets are looked at by kernels alone. The row of an id that is not below the vocabulary becomes NaN,
             and its gradient goes to no token; a target like it makes the loss NaN. The rule of the head must have a
             count.
   Logits    are of `type`, as those of head.h are on a device. */
#ifndef PARTS_TENSOR_DEVICE_H
#define PARTS_TENSOR_DEVICE_H
#include "device.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

/* ---- products ---- */
enum { TENSOR_ALIGNED = 64 }; /* bytes, as far as a product looks */

static inline const char *tensor_device_problem(const transformer *t) {
    if (transformer_rows(t) * memopt_type_bytes(t->type) % TENSOR_ALIGNED)
        return "on a device a column of all rows is no multiple of 64 bytes";
    return transformer_rows(t) / t->cut->parts * t->width * memopt_type_bytes(t->type) % TENSOR_ALIGNED
         ? "on a device the rows of a part are no multiple of 64 bytes" : NULL;
}

static inline size_t tensor_block_rows(const transformer *t) { return transformer_rows(t) / t->cut->parts; }
static inline size_t tensor_block_columns(const transformer *t) { return t->width; }
static inline size_t tensor_workers(const transformer_ops *) { return 1; }

static inline void tensor_each(const transformer_ops *, size_t turns, memopt_task_fn *fn, void *task) {
    for (size_t i = 0; i < turns; ++i) fn(task, i, 0);
}

static inline memopt_status tensor_count_products(const transformer_ops *) { return MEMOPT_OK; }

static inline memopt_status tensor_multiply(const transformer_ops *ops, const memopt_product *q, size_t) {
    return device_told(ops, 0, memopt_cuda_gemm_multiply(ops->gemm, q, ops->stream));
}

/* ---- sums, in `type` ---- */
template <int = 0> static __global__ void tensor_store_kernel(void *d_to, const float *d_sums, const void *d_bias,
                                                              memopt_type type, size_t n, size_t columns) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, at = i % columns;
    float x;

    if (i >= n) return;
    x = d_sums[i];
    if (d_bias) x += type == MEMOPT_TYPE_F32  ? ((const float *)d_bias)[at]
                   : type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(((const uint16_t *)d_bias)[at])
                                              : memopt_from_f16(((const uint16_t *)d_bias)[at]);
    if (type == MEMOPT_TYPE_F32) ((float *)d_to)[i] = x;
    else ((uint16_t *)d_to)[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
}

static inline memopt_status tensor_store_rows(const transformer_ops *ops, const transformer *t, float *sums,
                                              size_t rows, const void *bias, void *to) {
    const size_t n = rows * t->width;

    return DEVICE_RUN(ops, tensor_store_kernel<>, n, to, (const float *)sums, bias, t->type, n, t->width);
}

/* ---- ids ---- */
template <int = 0> static __global__ void tensor_ids_kernel(int32_t *d_to, const int32_t *d_ids, size_t n, size_t first,
                                                            size_t count, int32_t none) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n) return;
    const size_t id = (size_t)d_ids[i] - first;
    d_to[i] = id < count ? (int32_t)id : none;
}

template <int = 0> static __global__ void tensor_sent_kernel(int32_t *d_to, const int32_t *d_ids, size_t n,
                                                             size_t count, size_t vocabulary) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n) return;
    const size_t id = (size_t)d_ids[i];
    d_to[i] = id < vocabulary ? (int32_t)(id / count * n + i) : -1;
}

static inline memopt_status tensor_check_ids(const memopt_tape_call *, const int32_t *, size_t, size_t) {
    return MEMOPT_OK;
}

static inline memopt_status tensor_own_ids(const transformer_ops *ops, int32_t *to, const int32_t *ids, size_t n,
                                           size_t first, size_t count) {
    return DEVICE_RUN(ops, tensor_ids_kernel<>, n, to, ids, n, first, count, 0);
}

static inline memopt_status tensor_sent_ids(const transformer_ops *ops, int32_t *to, const int32_t *ids, size_t n,
                                            size_t count, size_t vocabulary) {
    return DEVICE_RUN(ops, tensor_sent_kernel<>, n, to, ids, n, count, vocabulary);
}

static inline memopt_status tensor_own_rows_first(const transformer_ops *ops, memopt_embedding *e, void *, int32_t *to,
                                                  size_t first) {
    const size_t n = e->rows;
    const int32_t *const ids = e->ids;

    e->ids = to;
    return DEVICE_RUN(ops, tensor_ids_kernel<>, n, to, ids, n, first, e->vocabulary, -1);
}

/* ---- the head ---- */
static inline memopt_type tensor_logits_type(const transformer *t) { return t->type; }

static inline memopt_status tensor_narrow_logits(const transformer_ops *, const transformer *, void *, size_t, size_t) {
    return MEMOPT_OK; /* they are */
}

static inline memopt_status tensor_count_targets(const memopt_tape_call *call, const int32_t *, size_t, size_t *) {
    return transformer_refuse(call, "on a device the rule of a head that is cut has to have a count");
}

static inline memopt_status memopt_cross_entropy_measure(const transformer_ops *ops, const memopt_cross_entropy *x,
                                                         memopt_cross_entropy_row *rows) {
    return device_told(ops, 0, memopt_cuda_cross_entropy_measure(&ops->cuda, x, rows, ops->stream));
}

static inline memopt_status tensor_join_rows(const transformer_ops *ops, memopt_cross_entropy_row *rows, size_t count,
                                             size_t n) {
    return device_told(ops, 0, memopt_cuda_cross_entropy_join(rows, count, n, ops->stream));
}

static inline memopt_status memopt_cross_entropy_part(const transformer_ops *ops, const memopt_cross_entropy *x,
                                                      const memopt_cross_entropy_row *rows, memopt_loss *out) {
    size_t bytes = 0;
    const memopt_cuda_status s = ops->count_scratch ? memopt_cuda_cross_entropy_scratch(&ops->cuda, x, &bytes)
                               : memopt_cuda_cross_entropy_part(&ops->cuda, x, rows, out, ops->stream);

    return device_told(ops, bytes, s);
}

template <int = 0> static __global__ void tensor_loss_kernel(memopt_loss *d_sum, const memopt_loss *d_more, int first) {
    d_sum->loss = (first ? 0 : d_sum->loss) + d_more->loss;
    d_sum->counted = (first ? 0 : d_sum->counted) + d_more->counted;
}

/* Onto ops->d_loss. */
static inline memopt_status tensor_add_loss(const transformer_ops *ops, double *, const memopt_loss *of_rows,
                                            int first) {
    if (!ops->d_loss) return device_told(ops, 0, MEMOPT_CUDA_ERR_NULL);
    MEMOPT_I_CUDA_LAUNCH(tensor_loss_kernel<>, 1, 1, 0, ops->stream, ops->d_loss, of_rows, first);
    return device_told(ops, 0, device_status(cudaGetLastError()));
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
