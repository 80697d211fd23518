/* scratch.h - bytes of scratch that an operator needs, as its dry run tells. */
#ifndef SCRATCH_H
#define SCRATCH_H

/* `ops` as a dry run that raises *count. */
static inline memopt_ops scratch_dry(const memopt_ops *ops, size_t *count) {
    memopt_ops o;

    memset(&o, 0, sizeof o);
    if (ops) o = *ops;
    *count = 0;
    o.count_scratch = count;
    return o;
}

/* The status of a dry run; *bytes is set by one that succeeded. */
static inline memopt_status scratch_told(memopt_status status, size_t count, size_t *bytes) {
    if (status == MEMOPT_OK) *bytes = count;
    return status;
}

static inline memopt_status scratch_of_linear(const memopt_ops *ops, const memopt_linear *x, size_t *bytes) {
    size_t count;
    const memopt_ops o = scratch_dry(ops, &count);
    const memopt_status s = memopt_linear_forward(&o, x);

    return scratch_told(s, count, bytes);
}

static inline memopt_status scratch_of_attention(const memopt_ops *ops, const memopt_attention *x, size_t *bytes) {
    size_t count;
    const memopt_ops o = scratch_dry(ops, &count);
    const memopt_status s = memopt_attention_forward(&o, x);

    return scratch_told(s, count, bytes);
}

static inline memopt_status scratch_of_batch_norm(const memopt_ops *ops, const memopt_batch_norm *x, size_t *bytes) {
    size_t count;
    const memopt_ops o = scratch_dry(ops, &count);
    const memopt_status s = memopt_batch_norm_forward(&o, x);

    return scratch_told(s, count, bytes);
}

static inline memopt_status scratch_of_norm(const memopt_ops *ops, const memopt_norm *x, size_t *bytes) {
    size_t count;
    const memopt_ops o = scratch_dry(ops, &count);
    const memopt_status s = memopt_norm_backward(&o, x);

    return scratch_told(s, count, bytes);
}

static inline memopt_status scratch_of_cross_entropy(const memopt_ops *ops, const memopt_cross_entropy *x, size_t *bytes) {
    size_t count;
    const memopt_ops o = scratch_dry(ops, &count);
    memopt_loss loss;
    const memopt_status s = memopt_cross_entropy_loss(&o, x, &loss);

    return scratch_told(s, count, bytes);
}
#endif
