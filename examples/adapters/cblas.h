/* cblas.h - matrix products of memopt's operators by a CBLAS: OpenBLAS, BLIS, MKL, or any other. Copy it.

   DO THIS   #include <cblas.h>  (OpenBLAS, BLIS)  or  <mkl.h>, then memopt.h, then this file
                 memopt_ops ops = { 0 };
                 ops.gemm = memopt_cblas();
             and ask for scratch as always. Link with the library.
   THREADS   memopt_cblas() sets the library's own threads to 1, for the whole program, as they would compete with
             ours: OpenBLAS, BLIS (include <blis.h> too) and MKL; others by environment (VECLIB_MAXIMUM_THREADS=1).
             The result is cut among memopt's workers; each calls the library for its part. A product that is asked
             for inside a worker stays on it.
   TYPES     float32 goes straight to the library. 16-bit operands and results are converted piece by piece in scratch:
             MEMOPT_CBLAS_SCRATCH bytes for each worker. Sums stay float32 for the whole depth. Two operands of bf16 go
             to an OpenBLAS that has cblas_sbgemm() as they are (gcc and clang on ELF systems: it is asked when it runs).
   BITS      are the library's: they may differ between machines, versions and numbers of workers. The built-in product
             promises more. Sizes and strides beyond the library's int are MEMOPT_ERR_OVERFLOW. */
#ifndef MEMOPT_CBLAS_H
#define MEMOPT_CBLAS_H
#include <limits.h>
#include <string.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

#define MEMOPT_CBLAS_PIECE 256 /* rows, columns and depth of a piece that is converted */
#define MEMOPT_CBLAS_SCRATCH ((size_t)3 * MEMOPT_CBLAS_PIECE * MEMOPT_CBLAS_PIECE * sizeof(float))

/* Products of bf16: OpenBLAS declares the function also where the library was built without it. */
#if defined(OPENBLAS_CONFIG_H) && defined(__ELF__) && defined(__GNUC__)
#  pragma weak cblas_sbgemm
static int memopt_cblas_has_bf16(void) { return &cblas_sbgemm != NULL; }
static void memopt_cblas_bf16(const memopt_product *p, size_t i, size_t j, size_t rows, size_t columns, float *to,
                              size_t to_stride) {
    const size_t left = p->left_transposed ? i : i * p->left_stride;
    const size_t right = p->right_transposed ? j * p->right_stride : j;
    cblas_sbgemm(CblasRowMajor, p->left_transposed ? CblasTrans : CblasNoTrans,
                 p->right_transposed ? CblasTrans : CblasNoTrans,
                 (int)rows, (int)columns, (int)p->depth, 1.0f, (const bfloat16 *)p->left + left, (int)p->left_stride,
                 (const bfloat16 *)p->right + right, (int)p->right_stride, 1.0f, to, (int)to_stride);
}
#else
static int memopt_cblas_has_bf16(void) { return 0; }
static void memopt_cblas_bf16(const memopt_product *p, size_t i, size_t j, size_t rows, size_t columns, float *to,
                              size_t to_stride) {
    (void)p; (void)i; (void)j; (void)rows; (void)columns; (void)to; (void)to_stride;
}
#endif
static int memopt_cblas_is_bf16(const memopt_product *p) {
    return p->left_type == MEMOPT_TYPE_BF16 && p->right_type == MEMOPT_TYPE_BF16 && memopt_cblas_has_bf16();
}

typedef struct memopt_cblas_work {
    const memopt_product *product;
    unsigned char        *scratch;
    size_t                tall, wide, down; /* rows and columns of a chunk; chunks below one another */
} memopt_cblas_work;

static const void *memopt_cblas_at(const void *x, memopt_type type, size_t at) {
    return (const unsigned char *)x + at * memopt_type_bytes(type);
}
static memopt_status memopt_cblas_to_floats(float *dst, const void *src, memopt_type type, size_t n) {
    if (type == MEMOPT_TYPE_BF16) return memopt_f32_from_bf16(dst, (const uint16_t *)src, n, NULL);
    if (type == MEMOPT_TYPE_F16) return memopt_f32_from_f16(dst, (const uint16_t *)src, n, NULL);
    memcpy(dst, src, n * sizeof *dst);
    return MEMOPT_OK;
}
/* An operand's piece as floats: where it is, or converted. rows and columns are those of memory. */
static const float *memopt_cblas_floats(float *own, const void *x, memopt_type type, size_t at, size_t *stride,
                                        size_t rows, size_t columns) {
    size_t i;
    if (type == MEMOPT_TYPE_F32) return (const float *)x + at;
    for (i = 0; i < rows; ++i)
        (void)memopt_cblas_to_floats(own + i * columns, memopt_cblas_at(x, type, at + i * *stride), type, columns);
    *stride = columns;
    return own;
}
/* rows x columns of the result from (i, j) on, for the depths k..k+depth; to: already begun */
static void memopt_cblas_step(const memopt_product *p, float *own, size_t i, size_t j, size_t k, size_t rows,
                              size_t columns, size_t depth, float *to, size_t to_stride) {
    size_t left_stride = p->left_stride, right_stride = p->right_stride;
    const float *left = memopt_cblas_floats(own, p->left, p->left_type,
        p->left_transposed ? k * left_stride + i : i * left_stride + k, &left_stride,
        p->left_transposed ? depth : rows, p->left_transposed ? rows : depth);
    const float *right = memopt_cblas_floats(own + MEMOPT_CBLAS_PIECE * MEMOPT_CBLAS_PIECE, p->right, p->right_type,
        p->right_transposed ? j * right_stride + k : k * right_stride + j, &right_stride,
        p->right_transposed ? columns : depth, p->right_transposed ? depth : columns);
    cblas_sgemm(CblasRowMajor, p->left_transposed ? CblasTrans : CblasNoTrans,
                p->right_transposed ? CblasTrans : CblasNoTrans,
                (int)rows, (int)columns, (int)depth, 1.0f, left, (int)left_stride, right, (int)right_stride, 1.0f, to,
                (int)to_stride);
}
/* The elements' beginning, as floats. */
static void memopt_cblas_begin(const memopt_product *p, size_t i, size_t j, size_t rows, size_t columns, float *to,
                               size_t to_stride) {
    size_t r, at;
    for (r = 0; r < rows; ++r) {
        at = (i + r) * p->result_stride + j;
        if (p->accumulate && p->result_type == MEMOPT_TYPE_F32) return; /* it is there */
        if (p->accumulate)
            (void)memopt_cblas_to_floats(to + r * to_stride, memopt_cblas_at(p->result, p->result_type, at),
                                         p->result_type, columns);
        else if (p->bias) memcpy(to + r * to_stride, p->bias + j, columns * sizeof *to);
        else memset(to + r * to_stride, 0, columns * sizeof *to);
    }
}
static void memopt_cblas_end(const memopt_product *p, size_t i, size_t j, size_t rows, size_t columns,
                             const float *from) {
    size_t r;
    for (r = 0; r < rows; ++r) {
        uint16_t *row = (uint16_t *)p->result + (i + r) * p->result_stride + j;
        if (p->result_type == MEMOPT_TYPE_BF16) (void)memopt_bf16_from_f32(row, from + r * columns, columns, NULL);
        else (void)memopt_f16_from_f32(row, from + r * columns, columns, NULL);
    }
}
static void memopt_cblas_chunk(void *task, size_t chunk, int worker) {
    const memopt_cblas_work *w = (const memopt_cblas_work *)task; const memopt_product *p = w->product;
    float *own = (float *)(void *)(w->scratch + (size_t)worker * MEMOPT_CBLAS_SCRATCH);
    const size_t i = chunk % w->down * w->tall, j = chunk / w->down * w->wide;
    const size_t rows = p->rows - i < w->tall ? p->rows - i : w->tall;
    const size_t columns = p->columns - j < w->wide ? p->columns - j : w->wide;
    const int is_small = p->result_type != MEMOPT_TYPE_F32;
    const size_t step = is_small || p->left_type != MEMOPT_TYPE_F32 || p->right_type != MEMOPT_TYPE_F32
                      ? MEMOPT_CBLAS_PIECE : p->depth, stride = is_small ? columns : p->result_stride;
    float *to = is_small ? own + 2 * MEMOPT_CBLAS_PIECE * MEMOPT_CBLAS_PIECE
                         : (float *)p->result + i * p->result_stride + j;
    size_t k, depth;
    memopt_cblas_begin(p, i, j, rows, columns, to, stride);
    if (p->depth && memopt_cblas_is_bf16(p)) memopt_cblas_bf16(p, i, j, rows, columns, to, stride);
    else for (k = 0; k < p->depth; k += depth) {
        depth = p->depth - k < step ? p->depth - k : step;
        memopt_cblas_step(p, own, i, j, k, rows, columns, depth, to, stride);
    }
    if (is_small) memopt_cblas_end(p, i, j, rows, columns, to);
}
/* What operators call. They have checked the product. */
static memopt_status memopt_cblas_multiply(void *user, const memopt_product *p, const memopt_threads *threads,
                                           void *scratch) {
    const size_t most = INT_MAX; memopt_cblas_work w; size_t chunks, i;
    const int is_float = p->result_type == MEMOPT_TYPE_F32
                      && ((p->left_type == MEMOPT_TYPE_F32 && p->right_type == MEMOPT_TYPE_F32)
                          || memopt_cblas_is_bf16(p));
    (void)user;
    if (p->quantized) return MEMOPT_ERR_ARGUMENT; /* operators do not ask for it */
    if (!p->rows || !p->columns) return MEMOPT_OK;
    if (p->rows > most || p->columns > most || p->depth > most || p->left_stride > most || p->right_stride > most
        || p->result_stride > most) return MEMOPT_ERR_OVERFLOW;
    w.product = p; w.scratch = (unsigned char *)scratch;
    w.tall = p->rows; w.wide = p->columns;
    if (!is_float) { /* pieces that fit the scratch */
        if (w.tall > MEMOPT_CBLAS_PIECE) w.tall = MEMOPT_CBLAS_PIECE;
        if (w.wide > MEMOPT_CBLAS_PIECE) w.wide = MEMOPT_CBLAS_PIECE;
    } else if (threads && threads->run_fn) { /* one for each worker, along the longer side */
        const size_t workers = (size_t)threads->worker_count;
        if (p->rows >= p->columns) w.tall = p->rows / workers + (p->rows % workers != 0);
        else w.wide = p->columns / workers + (p->columns % workers != 0);
    }
    w.down = p->rows / w.tall + (p->rows % w.tall != 0);
    chunks = w.down * (p->columns / w.wide + (p->columns % w.wide != 0));
    if (threads && threads->run_fn && chunks > 1) threads->run_fn(threads->user, chunks, memopt_cblas_chunk, &w);
    else for (i = 0; i < chunks; ++i) memopt_cblas_chunk(&w, i, 0);
    return MEMOPT_OK;
}
static inline memopt_gemm memopt_cblas(void) {
    memopt_gemm gemm;
#if defined(OPENBLAS_CONFIG_H)
    openblas_set_num_threads(1);
#elif defined(BLIS_H)
    bli_thread_set_num_threads(1);
#elif defined(INTEL_MKL_VERSION)
    mkl_set_num_threads(1);
#endif
    gemm.multiply_fn = memopt_cblas_multiply; gemm.scratch_bytes = MEMOPT_CBLAS_SCRATCH; gemm.user = NULL;
    return gemm;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
