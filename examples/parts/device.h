/* device.h - the parts on a CUDA device: in a .cu file, include it behind memopt_cuda.cu and before the other parts.

   What it is     What operators of a device run with, under the name that the parts have for it; and for every operator
                  that they call, an overload that takes that and calls the twin in memopt_cuda.cu. A twin takes the
                  same struct, its pointers being the device's. So block.h, head.h and embedding.h are the network here, too.
   How to use it  As on the CPU, on a tape whose arena is the device's. Set in the shape's ops
                      gemm     of memopt_cuda_gemm_create(); NULL while only bytes are counted
                      stream   in which everything is launched; nothing waits
                      d_loss   a memopt_loss on the device, that of the last pass: head.loss stays 0
                      d_noise  what dropout draws, on the device: one for each segment; NULL: that of the call
                  Targets and ids are the device's. type, weight_type are one, gradient_type is that or float32.
   What it costs  No byte: scratch is counted by what the twins say they need. */
#ifndef PARTS_DEVICE_H
#define PARTS_DEVICE_H
#include <cuda_runtime.h>
#include "adapter.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct transformer_ops {
    memopt_cuda_gemm   *gemm;
    memopt_cuda_stream  stream;
    memopt_loss        *d_loss;
    const memopt_noise *d_noise;
    memopt_error       *error; /* NULL, or filled in when a call fails */
    memopt_cuda_ops     cuda;          /* set by memopt_ops_in(), and so is: */
    size_t             *count_scratch; /* not NULL: nothing is launched, this is raised to the scratch it would need */
    const memopt_noise *noise;         /* that of this call in d_noise, or NULL */
} transformer_ops;

enum { DEVICE_SCRATCH = 256 /* what scratch is aligned to; a tape aligns to 64 */ };

/* What a twin said, for a tape; and while scratch is counted, how much it needs. */
static inline memopt_status device_told(const transformer_ops *ops, size_t bytes, memopt_cuda_status s) {
    if (ops->count_scratch && bytes && *ops->count_scratch < bytes + DEVICE_SCRATCH - 64)
        *ops->count_scratch = bytes + DEVICE_SCRATCH - 64;
    if (s && ops->error) {
        ops->error->status = memopt_cuda_to_status(s);
        ops->error->reason = memopt_cuda_status_text(s);
    }
    return memopt_cuda_to_status(s);
}

static inline transformer_ops memopt_ops_in(const memopt_tape_call *call, const transformer_ops *ops) {
    const memopt_ops in = memopt_ops_in(call, (const memopt_ops *)NULL);
    const size_t gap = (size_t)(0 - (uintptr_t)in.scratch) % DEVICE_SCRATCH;
    transformer_ops o = *ops;

    o.error = in.error;
    o.count_scratch = in.count_scratch;
    o.cuda.gemm = ops->gemm;
    if (o.d_noise) o.noise = o.d_noise + call->segment;
    if (in.scratch_bytes <= gap) return o;
    o.cuda.d_scratch = (unsigned char *)in.scratch + gap;
    o.cuda.scratch_bytes = in.scratch_bytes - gap;
    return o;
}

/* ---- memory: from the device, or from the host's ---- */
static inline memopt_cuda_status device_status(cudaError_t e) {
    return e == cudaSuccess ? 0 : MEMOPT_CUDA_BASE_RUNTIME + (int)e;
}

static inline memopt_status transformer_copy(const transformer_ops *ops, void *to, const void *from, size_t bytes) {
    return device_told(ops, 0, device_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ops->stream)));
}

static inline memopt_status transformer_zero(const transformer_ops *ops, void *to, size_t bytes) {
    return device_told(ops, 0, device_status(cudaMemsetAsync(to, 0, bytes, ops->stream)));
}

/* `rows` pieces of `bytes`; steps are in bytes, too. */
static inline memopt_status transformer_copy_rows(const transformer_ops *ops, void *to, size_t to_step,
                                                  const void *from, size_t from_step, size_t bytes, size_t rows) {
    return device_told(ops, 0, device_status(cudaMemcpy2DAsync(to, to_step, from, from_step, bytes, rows,
                                                               cudaMemcpyDefault, ops->stream)));
}

/* to += from: what a dropout that drops nothing adds to a residual. */
static inline memopt_status transformer_plus(const transformer_ops *ops, float *to, const float *from, size_t n) {
    memopt_dropout d;

    memset(&d, 0, sizeof d);
    d.n = n;
    d.input = from;
    d.residual = d.output = to;
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_dropout_forward(&ops->cuda, &d, ops->stream));
}

template <int = 0> static __global__ void device_fill_kernel(float *d_to, float value, size_t n) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) d_to[i] = value;
}

enum { DEVICE_BLOCK = 256 }; /* threads of a block of the kernels here */

/* A kernel of one's own, a thread for each of n; n is below 2^31 blocks. */
#define DEVICE_RUN(ops, kernel, n, ...)                                                                                \
    device_told(ops, 0, !(n) ? 0 : (MEMOPT_I_CUDA_LAUNCH(kernel, (unsigned)(((n) + DEVICE_BLOCK - 1) / DEVICE_BLOCK),  \
                                                         DEVICE_BLOCK, 0, (ops)->stream, __VA_ARGS__),                 \
                                    device_status(cudaGetLastError())))

/* What changes no sum that it is added to: -0. */
static inline memopt_status transformer_no_summand(const transformer_ops *ops, float *to, size_t n) {
    return DEVICE_RUN(ops, device_fill_kernel<>, n, to, -0.0f, n);
}

/* ---- attention by tensor cores: its statistics save a backward two products of nine ---- */
static inline int transformer_keeps_statistics(const transformer_ops *, const memopt_attention *x) {
    return x->type != MEMOPT_TYPE_F32 && x->width <= 128;
}

/* ---- cuBLASLt chooses how it adds by the shape of a product: by its rows, too, and by the heads in a batch ---- */
static inline int transformer_rows_are_alone(const transformer_ops *) { return 0; }

static inline int transformer_heads_are_alone(const transformer_ops *ops, const memopt_attention *x) {
    return transformer_keeps_statistics(ops, x);
}

/* ---- not here: the adapters of transformer.h ---- */
static inline memopt_status adapter_forward(const transformer_ops *ops, const memopt_linear *, const adapter *) {
    return device_told(ops, 0, MEMOPT_ERR_UNSUPPORTED);
}

static inline memopt_status adapter_backward(const transformer_ops *ops, const memopt_linear *, const adapter *) {
    return device_told(ops, 0, MEMOPT_ERR_UNSUPPORTED);
}

static inline memopt_status adapter_lower(const transformer_ops *ops, const memopt_linear *, const adapter *) {
    return device_told(ops, 0, MEMOPT_ERR_UNSUPPORTED);
}

/* ---- operators that need no scratch ---- */
static inline memopt_status memopt_norm_forward(const transformer_ops *ops, const memopt_norm *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_norm_forward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_activation_forward(const transformer_ops *ops, const memopt_activation_args *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_activation_forward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_activation_backward(const transformer_ops *ops, const memopt_activation_args *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_activation_backward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_swiglu_forward(const transformer_ops *ops, const memopt_swiglu *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_swiglu_forward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_swiglu_backward(const transformer_ops *ops, const memopt_swiglu *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_swiglu_backward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_geglu_forward(const transformer_ops *ops, const memopt_swiglu *x) {
    (void)x;
    return device_told(ops, 0, MEMOPT_ERR_UNSUPPORTED);
}

static inline memopt_status memopt_geglu_backward(const transformer_ops *ops, const memopt_swiglu *x) {
    (void)x;
    return device_told(ops, 0, MEMOPT_ERR_UNSUPPORTED);
}

static inline memopt_status memopt_dropout_forward(const transformer_ops *ops, const memopt_dropout *x) {
    if (ops->count_scratch) return MEMOPT_OK;
    return device_told(ops, 0,
                       ops->noise ? memopt_cuda_dropout_forward_with_noise(&ops->cuda, x, ops->noise, ops->stream)
                                  : memopt_cuda_dropout_forward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_dropout_backward(const transformer_ops *ops, const memopt_dropout *x) {
    if (ops->count_scratch) return MEMOPT_OK;
    return device_told(ops, 0,
                       ops->noise ? memopt_cuda_dropout_backward_with_noise(&ops->cuda, x, ops->noise, ops->stream)
                                  : memopt_cuda_dropout_backward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_embedding_forward(const transformer_ops *ops, const memopt_embedding *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_embedding_forward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_head_logits(const transformer_ops *ops, const memopt_head *x, size_t first,
                                               size_t count, float *d_logits) {
    return device_told(ops, 0, memopt_cuda_head_logits(&ops->cuda, x, first, count, d_logits, ops->stream));
}

static inline memopt_status memopt_rotary_forward(const transformer_ops *ops, const memopt_rotary *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_rotary_forward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_rotary_backward(const transformer_ops *ops, const memopt_rotary *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_rotary_backward(&ops->cuda, x, ops->stream));
}

static inline memopt_status memopt_linear_forward(const transformer_ops *ops, const memopt_linear *x) {
    return device_told(ops, 0, ops->count_scratch ? 0 : memopt_cuda_linear_forward(&ops->cuda, x, ops->stream));
}

/* ---- operators with scratch ---- */
static inline memopt_status memopt_norm_backward(const transformer_ops *ops, const memopt_norm *x) {
    size_t bytes = 0;
    const memopt_cuda_status s = ops->count_scratch ? memopt_cuda_norm_scratch(&ops->cuda, x, &bytes)
                                                    : memopt_cuda_norm_backward(&ops->cuda, x, ops->stream);

    return device_told(ops, bytes, s);
}

static inline memopt_status memopt_embedding_backward(const transformer_ops *ops, const memopt_embedding *x) {
    size_t bytes = 0;
    const memopt_cuda_status s = ops->count_scratch ? memopt_cuda_embedding_scratch(&ops->cuda, x, &bytes)
                                                    : memopt_cuda_embedding_backward(&ops->cuda, x, ops->stream);

    return device_told(ops, bytes, s);
}

static inline memopt_status memopt_linear_backward_through(const transformer_ops *ops, const memopt_linear *x,
                                                           memopt_activation activation, const void *pre_activation) {
    size_t bytes = 0;
    const memopt_cuda_status s = ops->count_scratch ? memopt_cuda_linear_scratch(&ops->cuda, x, &bytes)
        : memopt_cuda_linear_backward_through(&ops->cuda, x, activation, pre_activation, ops->stream);

    return device_told(ops, bytes, s);
}

static inline memopt_status memopt_attention_forward(const transformer_ops *ops, const memopt_attention *x) {
    size_t bytes = 0;
    const memopt_cuda_status s = ops->count_scratch ? memopt_cuda_attention_scratch(&ops->cuda, x, &bytes)
                                                    : memopt_cuda_attention_forward(&ops->cuda, x, ops->stream);

    return device_told(ops, bytes, s);
}

static inline memopt_status memopt_attention_backward(const transformer_ops *ops, const memopt_attention *x) {
    size_t bytes = 0;
    const memopt_cuda_status s = ops->count_scratch ? memopt_cuda_attention_scratch(&ops->cuda, x, &bytes)
                                                    : memopt_cuda_attention_backward(&ops->cuda, x, ops->stream);

    return device_told(ops, bytes, s);
}

static inline memopt_status memopt_head_loss(const transformer_ops *ops, const memopt_head *x, memopt_loss *loss) {
    size_t bytes = 0;
    const memopt_cuda_status s = ops->count_scratch ? memopt_cuda_head_scratch(&ops->cuda, x, &bytes)
                                                    : memopt_cuda_head_loss(&ops->cuda, x, ops->d_loss, ops->stream);

    memset(loss, 0, sizeof *loss);
    return device_told(ops, bytes, s);
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
