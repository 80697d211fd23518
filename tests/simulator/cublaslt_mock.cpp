/* cublaslt_mock.cpp - cuBLASLt on the simulator: its descriptors, its rules, and its products in double.

   Descriptors  With -DSIMULATOR_REAL_CUBLASLT they are the library's own (they work without a driver): this file is
                then compiled with the toolkit's headers and linked with -lcublasLt, and replaces four calls only:
                cublasLtCreate, Destroy, MatmulAlgoGetHeuristic, Matmul. Without, they are the structs below. Either way
                everything is read back through GetAttribute, so that what is tested is what the library would have
                seen.
   Rules        The library says little about a wrong call (a size of an attribute, INVALID_VALUE, or nothing at all),
                so what its documentation demands is checked here; a broken rule is printed, counted and refused.
   Algorithms   carry a hash of the problem that they were found for, and the alignments that were promised: a cached
                one that is used for something else is a broken rule.
   Products     are operations of their stream, on copies of the descriptors taken at the call. Sums, bias and epilogue
                are double, and rounded once to the type of the result. With SIMULATOR_ORDERS in the environment they
                are float, in an order of the algorithm's: another shape may be another one, or another alignment. The
                workspace an algorithm asked for is overwritten. */
#include <cublasLt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#include "cublaslt_mock.h"
#include "simulator.h"

extern "C" {
/* the simulator's; by another name, because the toolkit's headers may declare it already */
int mock_last_error(void) __asm__("cudaGetLastError");
}
namespace {
struct { size_t calls, fail_at, heuristics_seen, none_at; int fail_with; unsigned refused; int capability, quiet; }
    faults = { 0, 0, 0, 0, 0, 0, 90, 0 };
cublaslt_mock_counts counts;
cublaslt_mock_product last_product;
const char *last_finding = "";

cublasStatus_t broken(const char *rule) {
    ++counts.findings;
    last_finding = rule;
    if (!faults.quiet) fprintf(stderr, "cublaslt_mock: %s\n", rule);
    return CUBLAS_STATUS_INVALID_VALUE;
}
bool fails(cublasStatus_t *status) {
    ++counts.calls;
    if (!faults.fail_at || --faults.fail_at) return false;
    *status = (cublasStatus_t)faults.fail_with;
    return true;
}

/* ---- numbers ---- */
int bytes_of(int type) {
    switch (type) {
    case CUDA_R_32F: return 4;
    case CUDA_R_16F: case CUDA_R_16BF: return 2;
    case CUDA_R_8F_E4M3: case CUDA_R_8F_E5M2: return 1;
    }
    return 0;
}
/* sign, `exponent` bits, `mantissa` bits; e4m3 has no infinity and one NaN */
double decode(unsigned code, int exponent, int mantissa, bool has_infinity) {
    const unsigned e = code >> mantissa & ((1u << exponent) - 1), m = code & ((1u << mantissa) - 1);
    const int bias = (1 << (exponent - 1)) - 1;
    const double sign = code >> (exponent + mantissa) & 1 ? -1 : 1;
    if (has_infinity && e == (1u << exponent) - 1) return m ? (double)NAN : sign * (double)INFINITY;
    if (!has_infinity && e == (1u << exponent) - 1 && m == (1u << mantissa) - 1) return (double)NAN;
    return sign *
           (e ? ldexp((double)(m | 1u << mantissa), (int)e - bias - mantissa) : ldexp((double)m, 1 - bias - mantissa));
}
double load(const void *data, int type, size_t i) {
    switch (type) {
    case CUDA_R_16F:     return decode(((const uint16_t *)data)[i], 5, 10, true);
    case CUDA_R_16BF:    return decode(((const uint16_t *)data)[i], 8, 7, true);
    case CUDA_R_8F_E4M3: return decode(((const uint8_t *)data)[i], 4, 3, false);
    case CUDA_R_8F_E5M2: return decode(((const uint8_t *)data)[i], 5, 2, true);
    }
    return (double)((const float *)data)[i];
}
/* to the nearest of `digits` binary digits, none of them below 2^least; ties to even */
double nearest(double x, int digits, int least) {
    int e;
    if (!(fabs(x) <= 1e300) || x == 0) return x;
    frexp(x, &e);
    e = e - digits > least ? e - digits : least;
    return ldexp(nearbyint(ldexp(x, -e)), e);
}
void store(void *data, int type, size_t i, double x) {
    if (type == CUDA_R_16F) {
        const double y = nearest(x, 11, -24), size = fabs(y);
        unsigned code;
        int e;
        if (x != x) code = 0x7e00;
        else if (size >= 65536) code = 0x7c00;
        else if (size < 6.103515625e-05) code = (unsigned)ldexp(size, 24);
        else { frexp(size, &e); code = (unsigned)ldexp(size, 11 - e) - 1024 + ((unsigned)(e + 14) << 10); }
        ((uint16_t *)data)[i] = (uint16_t)(code | (signbit(y) ? 0x8000 : 0));
    } else {
        const float y = (float)(type == CUDA_R_16BF ? nearest(x, 8, -133) : x); /* beyond the largest: infinity */
        uint32_t bits;
        memcpy(&bits, &y, sizeof bits);
        if (type == CUDA_R_16BF) ((uint16_t *)data)[i] = (uint16_t)(x != x ? 0x7fc0 : bits >> 16);
        else ((float *)data)[i] = y;
    }
}
double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* ---- a problem: everything the descriptors say ---- */
struct Matrix { int32_t type, order, batch; uint64_t rows, columns; int64_t ld, step; };
struct Problem {
    int32_t  compute, scale_type, pointer_mode, turn_a, turn_b, turn_c, aux_type, bias_type;
    uint32_t epilogue;
    int8_t   fast;
    void    *bias, *aux, *scale_a, *scale_b, *scale_c, *scale_d, *amax;
    int64_t  bias_step, aux_ld, aux_step;
    Matrix   a, b, c, d;
    uint64_t m, n, k;
};
template <class T> bool get(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T *value) {
    size_t written = 0;
    return cublasLtMatmulDescGetAttribute(desc, attribute, value, sizeof *value, &written) == CUBLAS_STATUS_SUCCESS
        && written == sizeof *value;
}
template <class T> bool get(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T *value) {
    size_t written = 0;
    return cublasLtMatrixLayoutGetAttribute(layout, attribute, value, sizeof *value, &written) == CUBLAS_STATUS_SUCCESS
        && written == sizeof *value;
}
bool read(cublasLtMatrixLayout_t l, Matrix *x) {
    return l && get(l, CUBLASLT_MATRIX_LAYOUT_TYPE, &x->type) && get(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &x->order)
        && get(l, CUBLASLT_MATRIX_LAYOUT_ROWS, &x->rows) && get(l, CUBLASLT_MATRIX_LAYOUT_COLS, &x->columns)
        && get(l, CUBLASLT_MATRIX_LAYOUT_LD, &x->ld) && get(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &x->batch)
        && get(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x->step);
}
bool read(cublasLtMatmulDesc_t d, Problem *p) {
    return d && get(d, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &p->compute) &&
           get(d, CUBLASLT_MATMUL_DESC_SCALE_TYPE, &p->scale_type) &&
           get(d, CUBLASLT_MATMUL_DESC_POINTER_MODE, &p->pointer_mode) &&
           get(d, CUBLASLT_MATMUL_DESC_TRANSA, &p->turn_a) && get(d, CUBLASLT_MATMUL_DESC_TRANSB, &p->turn_b) &&
           get(d, CUBLASLT_MATMUL_DESC_TRANSC, &p->turn_c) && get(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue) &&
           get(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias) &&
           get(d, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &p->bias_step) &&
           get(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux) &&
           get(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->aux_ld) &&
           get(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &p->aux_step) &&
           get(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &p->aux_type) &&
           get(d, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &p->bias_type) &&
           get(d, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &p->fast) &&
           get(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->scale_a) &&
           get(d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->scale_b) &&
           get(d, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, &p->scale_c) &&
           get(d, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, &p->scale_d) &&
           get(d, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, &p->amax);
}
enum { DREADS_AUX = 64, AUX = 128, BGRAD = 16, BIAS = 4 };
bool reads_bias(const Problem &p) { return p.epilogue < 256 && (p.epilogue & BIAS); }
bool writes_bias(const Problem &p) {
    return p.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD || p.epilogue == CUBLASLT_EPILOGUE_BGRADA
        || p.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool has_aux(const Problem &p) { return p.epilogue < 256 && (p.epilogue & AUX); }
bool is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

/* ---- the documented rules ---- */
const char *wrong_matrix(const Matrix &x) {
    if (!bytes_of(x.type)) return "a type of matrix that this mock does not know";
    if (x.order != CUBLASLT_ORDER_COL) return "only columns one after the other are supported here";
    if (!x.rows || !x.columns) return "a matrix without elements";
    if (x.ld < 0 || (uint64_t)x.ld < x.rows) return "leading dimension below the rows";
    if (x.batch < 1) return "batch count below 1";
    return NULL;
}
const char *wrong_types(const Problem &p) {
    const int a = p.a.type, b = p.b.type, d = p.d.type;
    if (p.c.type != d) return "C is not of D's type";
    if (p.scale_type != CUDA_R_32F) return "scale type is not float";
    if (p.compute != CUBLAS_COMPUTE_32F && !(p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a == CUDA_R_32F))
        return "compute type does not go with these types";
    if (is_fp8(a) || is_fp8(b)) {
        if (!is_fp8(a) || !is_fp8(b)) return "fp8 with another type";
        if (a == CUDA_R_8F_E5M2 && b == CUDA_R_8F_E5M2) return "both operands are e5m2";
        if (d != CUDA_R_16BF && d != CUDA_R_16F && d != CUDA_R_32F) return "fp8 result of a type not supported here";
        if (((uintptr_t)p.scale_a | (uintptr_t)p.scale_b) & 15) return "a scale that is not aligned to 16"; /* seen on a card */
        return NULL;
    }
    if (p.fast) return "FAST_ACCUM without fp8";
    if (p.scale_a || p.scale_b || p.scale_c || p.scale_d || p.amax) return "scale pointers without fp8";
    if (a != b) return "A and B are of different types";
    if (d != a && d != CUDA_R_32F) return "D is neither of A's type nor float";
    return NULL;
}
const char *wrong_shape(Problem *p) {
    const Matrix &a = p->a, &b = p->b, &c = p->c, &d = p->d;
    p->m = p->turn_a ? a.columns : a.rows;
    p->k = p->turn_a ? a.rows : a.columns;
    p->n = p->turn_b ? b.rows : b.columns;
    if ((p->turn_b ? b.columns : b.rows) != p->k) return "A and B have different depths";
    if (d.rows != p->m || d.columns != p->n) return "D is not of the product's shape";
    if (c.rows != d.rows || c.columns != d.columns) return "C is not of D's shape";
    if (p->turn_c) return "C cannot be transposed";
    if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch) return "batch counts differ";
    if (d.batch > 1) {
        const int64_t whole = d.ld * ((int64_t)d.columns - 1) + (int64_t)d.rows, step = d.step < 0 ? -d.step : d.step;
        const bool apart = step >= whole,
                   between = step >= (int64_t)d.rows && step * (d.batch - 1) + (int64_t)d.rows <= d.ld;
        if (!apart && !between) return "results of a batch overlap";
    }
    return NULL;
}
const char *wrong_fp8(const Problem &p) {
    if (!is_fp8(p.a.type)) return NULL;
    if (p.turn_a != CUBLAS_OP_T || p.turn_b != CUBLAS_OP_N) return "fp8 wants A transposed and B not (TN)";
    if (p.m % 16 || p.n % 16 || p.k % 16) return "fp8 wants dimensions that are multiples of 16";
    if (p.a.ld % 16 || p.b.ld % 16 || p.c.ld * bytes_of(p.c.type) % 16 || p.d.ld * bytes_of(p.d.type) % 16)
        return "fp8 wants leading dimensions that are multiples of 16 bytes";
    return NULL;
}
int wanted_bias_type(const Problem &p) {
    return is_fp8(p.a.type) && p.d.type == CUDA_R_32F ? (int)CUDA_R_16BF : p.d.type;
}
const char *wrong_epilogue(const Problem &p) {
    switch (p.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: case CUBLASLT_EPILOGUE_BIAS: case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS: case CUBLASLT_EPILOGUE_GELU: case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX: case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD: case CUBLASLT_EPILOGUE_BGRADA: case CUBLASLT_EPILOGUE_BGRADB: break;
    default: return "an epilogue that there is not, or not in this mock";
    }
    if ((reads_bias(p) || writes_bias(p)) && (p.bias_type == -1 ? p.d.type : p.bias_type) != wanted_bias_type(p))
        return "bias is not of the type that goes with D";
    if (writes_bias(p) && p.d.batch > 1) return "gradient of a bias of a batch";
    if (has_aux(p)) {
        if (p.aux_ld % 8) return "leading dimension of aux is no multiple of 8";
        if (p.aux_ld < (int64_t)p.m) return "leading dimension of aux below the rows of D";
        if (p.d.batch > 1 && p.aux_step % 8) return "batch stride of aux is no multiple of 8";
        if (p.aux_type != -1 && p.aux_type != p.d.type) return "aux is not of D's type";
    }
    return NULL;
}
const char *wrong(Problem *p) {
    const char *rule;
    const Matrix *each[] = { &p->a, &p->b, &p->c, &p->d };
    for (const Matrix *x : each)
        if ((rule = wrong_matrix(*x))) return rule;
    if (p->pointer_mode != CUBLASLT_POINTER_MODE_HOST) return "alpha and beta are the host's in this mock";
    if ((rule = wrong_types(*p)) || (rule = wrong_shape(p)) || (rule = wrong_fp8(*p))) return rule;
    return wrong_epilogue(*p);
}

/* ---- algorithms ---- */
uint64_t mix(uint64_t h, uint64_t x) { return (h ^ x) * UINT64_C(0x9e3779b97f4a7c15) + (h >> 29); }
uint64_t mix(uint64_t h, const Matrix &x) {
    h = mix(mix(mix(h, (uint64_t)x.type), x.rows), x.columns);
    return mix(mix(mix(h, (uint64_t)x.ld), (uint64_t)x.batch), x.batch > 1 ? (uint64_t)x.step : 0);
}
uint64_t hash(const Problem &p) {
    uint64_t h = mix(mix(mix(77, (uint64_t)p.compute), (uint64_t)p.epilogue), (uint64_t)(p.turn_a * 2 + p.turn_b));
    h = mix(mix(mix(mix(h, p.a), p.b), p.c), p.d);
    return mix(mix(h, (uint64_t)p.fast), has_aux(p) ? (uint64_t)p.aux_ld : 0);
}
struct Algorithm { /* what is in a cublasLtMatmulAlgo_t */
    uint64_t hash, workspace;
    uint32_t align[4], reduction, magic;
    uint64_t bias_align, aux_align;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "too large");
enum { MAGIC = 0x6d6f636b };
uint64_t alignment_of(const void *p) {
    const uint64_t a = (uint64_t)(uintptr_t)p & (uint64_t)(0 - (uint64_t)(uintptr_t)p);
    return a && a < 256 ? a : 256;
}

/* ---- a product, as an operation of a stream ---- */
struct Work {
    Problem p;
    float   alpha, beta;
    const void *a, *b, *c;
    void   *d, *workspace;
    size_t  workspace_bytes;
    uint64_t order; /* of what is added up */
};
/* op(X) as doubles: rows x columns, row by row */
void unpack(std::vector<double> *to, const void *data, const Matrix &x, int turned, int64_t batch, double scale) {
    const uint64_t rows = turned ? x.columns : x.rows, columns = turned ? x.rows : x.columns;
    const size_t at = (size_t)(batch * x.step);
    to->resize(rows * columns);
    for (uint64_t i = 0; i < rows; ++i)
        for (uint64_t k = 0; k < columns; ++k)
            (*to)[i * columns + k] =
                scale * load(data, x.type, at + (turned ? i * (uint64_t)x.ld + k : k * (uint64_t)x.ld + i));
}
/* What follows the sum of an element; `before` the epilogue is what the bias' gradient takes. */
double finish(const Work &w, uint64_t i, uint64_t j, int64_t batch, double x) {
    const Problem &p = w.p;
    const size_t aux = (size_t)(batch * p.aux_step) + (size_t)j * (size_t)p.aux_ld + i;
    if (reads_bias(p)) x += load(p.bias, wanted_bias_type(p), (size_t)(batch * p.bias_step) + i);
    switch (p.epilogue) {
    case CUBLASLT_EPILOGUE_RELU: case CUBLASLT_EPILOGUE_RELU_BIAS: return x > 0 || x != x ? x : 0;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        store(p.aux, p.d.type, aux, x);
        return gelu(x);
    case CUBLASLT_EPILOGUE_GELU: case CUBLASLT_EPILOGUE_GELU_BIAS: return gelu(x);
    case CUBLASLT_EPILOGUE_DGELU: case CUBLASLT_EPILOGUE_DGELU_BGRAD: return x * gelu_slope(load(p.aux, p.d.type, aux));
    }
    return x;
}
void bias_gradient_of_operand(const Problem &p, const std::vector<double> &x, uint64_t count, uint64_t step_i,
                              uint64_t step_k) {
    for (uint64_t i = 0; i < count; ++i) {
        double sum = 0;
        for (uint64_t k = 0; k < p.k; ++k) sum += x[i * step_i + k * step_k];
        store(p.bias, p.d.type, i, sum);
    }
}
uint64_t order_of(const Algorithm &t) {
    uint64_t h = t.hash;
    for (uint32_t align : t.align) h = mix(h, align);
    return h >> 32;
}
void one_product(const Work &w, int64_t batch) {
    static const bool orders = getenv("SIMULATOR_ORDERS") != NULL;
    const Problem &p = w.p;
    std::vector<double> a, b, sums(p.m, 0.0), column(p.m);
    const double scale =
        (p.scale_a ? (double)*(const float *)p.scale_a : 1) * (p.scale_b ? (double)*(const float *)p.scale_b : 1);
    unpack(&a, w.a, p.a, !p.turn_a, batch, 1); /* k x m, so that a column of D is added up along memory */
    unpack(&b, w.b, p.b, p.turn_b, batch, 1);  /* k x n */
    for (uint64_t j = 0; j < p.n; ++j) {
        for (uint64_t i = 0; i < p.m; ++i) column[i] = 0;
        for (uint64_t k = 0; k < p.k; ++k) {
            const uint64_t at = orders ? (w.order + k) % p.k : k;
            const double y = b[at * p.n + j];
            const double *x = &a[at * p.m];
            for (uint64_t i = 0; i < p.m; ++i) column[i] = orders ? (float)(column[i] + x[i] * y) : column[i] + x[i] * y;
        }
        for (uint64_t i = 0; i < p.m; ++i) {
            const size_t at = (size_t)j * (size_t)p.d.ld + i;
            double x = (double)w.alpha * scale * column[i];
            if (w.beta != 0)
                x += (double)w.beta * load(w.c, p.c.type, (size_t)(batch * p.c.step) + (size_t)j * (size_t)p.c.ld + i);
            x = finish(w, i, j, batch, x);
            sums[i] += x;
            store(w.d, p.d.type, (size_t)(batch * p.d.step) + at, x);
        }
    }
    if (p.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
        for (uint64_t i = 0; i < p.m; ++i) store(p.bias, p.d.type, i, sums[i]);
    if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA) bias_gradient_of_operand(p, a, p.m, 1, p.m);
    if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB) bias_gradient_of_operand(p, b, p.n, 1, p.n);
}
void work(void *argument) {
    Work *w = (Work *)argument;
    if (simulator_only_lists()) {
        fprintf(stderr, "product %s: %llu x %llu x %llu, %d\n", w->p.d.type == CUDA_R_32F ? "f32" : "16 bits",
                (unsigned long long)w->p.m, (unsigned long long)w->p.n, (unsigned long long)w->p.k, (int)w->p.epilogue);
        return;
    }
    if (w->workspace_bytes) memset(w->workspace, 0xFF, w->workspace_bytes);
    for (int64_t i = 0; i < w->p.d.batch; ++i) one_product(*w, i);
}
void work_end(void *argument) { delete (Work *)argument; }
/* ---- what only a product has: pointers ---- */
struct Range { uintptr_t begin, end; };
Range range_of(const void *data, const Matrix &x) {
    const int64_t far = x.step * (x.batch - 1), first = far < 0 ? far : 0, last = far > 0 ? far : 0;
    const int64_t size = x.ld * ((int64_t)x.columns - 1) + (int64_t)x.rows, bytes = bytes_of(x.type);
    Range r = { (uintptr_t)data + (uintptr_t)(first * bytes), (uintptr_t)data + (uintptr_t)((last + size) * bytes) };
    return r;
}
bool share(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }
/* Have two matrices an element in common? Columns of one matrix, such as the heads of one tensor, have not. */
bool overlap(const void *p, const Matrix &x, const void *q, const Matrix &y) {
    const uint64_t step = (uint64_t)x.ld * (uint64_t)bytes_of(x.type), wide = x.rows * (uint64_t)bytes_of(x.type);
    const uint64_t other = y.rows * (uint64_t)bytes_of(y.type), apart = ((uintptr_t)q - (uintptr_t)p) % step;
    if (!share(range_of(p, x), range_of(q, y))) return false;
    if (x.batch > 1 || step != (uint64_t)y.ld * (uint64_t)bytes_of(y.type)) return true;
    return (uintptr_t)q < (uintptr_t)p ? overlap(q, y, p, x) : apart < wide || apart + other > step;
}
const char *wrong_pointers(const Work &w, const Algorithm &t) {
    const Problem &p = w.p;
    const void *each[] = { w.a, w.b, w.c, w.d };
    const Matrix *of[] = { &p.a, &p.b, &p.c, &p.d };
    const Range space = { (uintptr_t)w.workspace, (uintptr_t)w.workspace + w.workspace_bytes };
    for (int i = 0; i < 4; ++i) {
        if (i == 2 && w.beta == 0) continue;
        if (!each[i]) return "a matrix that is NULL";
        if ((uintptr_t)each[i] % (unsigned)bytes_of(of[i]->type)) return "a matrix that is misaligned";
        if (alignment_of(each[i]) < t.align[i]) return "a matrix is less aligned than the heuristic was told";
        if (is_fp8(p.a.type) && (uintptr_t)each[i] % 16) return "fp8 wants matrices aligned to 16 bytes";
        if (share(space, range_of(each[i], *of[i]))) return "workspace overlaps a matrix";
    }
    if (overlap(w.d, p.d, w.a, p.a) || overlap(w.d, p.d, w.b, p.b)) return "D overlaps an operand";
    if (w.beta != 0 && w.c != w.d && overlap(w.d, p.d, w.c, p.c)) return "D overlaps C, and is not C";
    if (w.beta != 0 && w.c == w.d && (p.c.ld != p.d.ld || (p.d.batch > 1 && p.c.step != p.d.step)))
        return "C in place with another layout than D";
    if (reads_bias(p) || writes_bias(p)) {
        if (!p.bias) return "bias is NULL";
        if ((uintptr_t)p.bias % (unsigned)bytes_of(wanted_bias_type(p))) return "bias is misaligned";
        if (alignment_of(p.bias) < t.bias_align) return "bias is less aligned than at the heuristic";
    }
    if (has_aux(p)) {
        Matrix aux = p.d;
        aux.ld = p.aux_ld;
        aux.step = p.aux_step;
        if (!p.aux) return "aux is NULL";
        if ((uintptr_t)p.aux % (unsigned)bytes_of(p.d.type)) return "aux is misaligned";
        if (alignment_of(p.aux) < t.aux_align) return "aux is less aligned than at the heuristic";
        if (overlap(p.aux, aux, w.d, p.d)) return "aux overlaps D";
    }
    return NULL;
}
const char *wrong_workspace(const Work &w, const Algorithm &t, size_t given) {
    if (t.workspace > given) return "workspace is smaller than the algorithm's";
    if (t.workspace && !w.workspace) return "workspace is NULL";
    if ((uintptr_t)w.workspace % 256) return "workspace is not aligned to 256 bytes";
    return NULL;
}
} /* namespace */

extern "C" {
void cublaslt_mock_reset(void) {
    const size_t handles = counts.handles;
    memset(&faults, 0, sizeof faults);
    memset(&counts, 0, sizeof counts);
    memset(&last_product, 0, sizeof last_product);
    faults.capability = 90;
    counts.handles = handles;
    last_finding = "";
}
void cublaslt_mock_fail(size_t k, int status) { faults.fail_at = k; faults.fail_with = status; }
void cublaslt_mock_no_algorithm(size_t k) { faults.none_at = k; }
void cublaslt_mock_refuse(unsigned epilogues) { faults.refused = epilogues; }
void cublaslt_mock_capability(int capability) { faults.capability = capability; }
void cublaslt_mock_quiet(int on) { faults.quiet = on; }
cublaslt_mock_counts cublaslt_mock_counted(void) { return counts; }
cublaslt_mock_product cublaslt_mock_last(void) { return last_product; }
const char *cublaslt_mock_finding(void) { return last_finding; }

/* For programs with no test around them: SIMULATOR_LAUNCHES. */
static struct launches_told {
    ~launches_told() {
        if (getenv("SIMULATOR_LAUNCHES")) fprintf(stderr, "%zu kernels, %zu products\n", simulator_launches(), counts.products);
    }
} at_the_end;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lightHandle) {
    cublasStatus_t status;
    if (!lightHandle) return broken("cublasLtCreate(NULL)");
    if (fails(&status)) return status;
    *lightHandle = (cublasLtHandle_t)malloc(16);
    ++counts.handles;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
    if (!lightHandle) return broken("cublasLtDestroy(NULL)");
    free(lightHandle);
    --counts.handles;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc,
                                              cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                              cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                              cublasLtMatmulPreference_t preference, int requestedAlgoCount,
                                              cublasLtMatmulHeuristicResult_t heuristicResultsArray[],
                                              int *returnAlgoCount) {
    Problem p;
    Algorithm t;
    size_t most = 0, written = 0;
    const char *rule;
    cublasStatus_t status;
    const cublasLtMatmulPreferenceAttributes_t aligns[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    memset(&p, 0, sizeof p);
    memset(&t, 0, sizeof t);
    if (!lightHandle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requestedAlgoCount < 1 || !heuristicResultsArray || !returnAlgoCount || !preference)
        return broken("heuristic without room for its results");
    if (fails(&status)) return status;
    ++counts.heuristics;
    if (!read(operationDesc, &p) || !read(Adesc, &p.a) || !read(Bdesc, &p.b) || !read(Cdesc, &p.c) ||
        !read(Ddesc, &p.d))
        return broken("a descriptor that cannot be read");
    if ((rule = wrong(&p))) return broken(rule);
    cublasLtMatmulPreferenceGetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most,
                                         &written);
    cublasLtMatmulPreferenceGetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &t.reduction,
                                         sizeof t.reduction, &written);
    for (int i = 0; i < 4; ++i)
        cublasLtMatmulPreferenceGetAttribute(preference, aligns[i], &t.align[i], sizeof t.align[i], &written);
    *returnAlgoCount = 0;
    if (faults.none_at && (faults.none_at == SIZE_MAX || !--faults.none_at)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.epilogue & faults.refused) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (is_fp8(p.a.type) && faults.capability < 89) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.a.type == CUDA_R_16BF && faults.capability < 80) return CUBLAS_STATUS_NOT_SUPPORTED;
    t.hash = hash(p);
    t.magic = MAGIC;
    t.workspace = most < 4096 ? 0 : most < 65536 ? 4096 : 65536;
    t.bias_align = alignment_of(p.bias);
    t.aux_align = alignment_of(p.aux);
    memset(&heuristicResultsArray[0], 0, sizeof heuristicResultsArray[0]);
    memcpy(&heuristicResultsArray[0].algo, &t, sizeof t);
    heuristicResultsArray[0].workspaceSize = (size_t)t.workspace;
    heuristicResultsArray[0].state = CUBLAS_STATUS_SUCCESS;
    heuristicResultsArray[0].wavesCount = 1;
    *returnAlgoCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc,
                              const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspaceSizeInBytes, cudaStream_t stream) {
    Work *w;
    Work call;
    Algorithm t;
    const char *rule;
    cublasStatus_t status;
    memset(&call, 0, sizeof call);
    memset(&t, 0, sizeof t);
    if (!lightHandle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta || !algo) return broken("alpha, beta or the algorithm is NULL");
    if (fails(&status)) return status;
    if (!read(computeDesc, &call.p) || !read(Adesc, &call.p.a) || !read(Bdesc, &call.p.b) || !read(Cdesc, &call.p.c)
        || !read(Ddesc, &call.p.d)) return broken("a descriptor that cannot be read");
    if ((rule = wrong(&call.p))) return broken(rule);
    memcpy(&t, algo, sizeof t);
    if (t.magic != MAGIC) return broken("an algorithm that no heuristic has given");
    if (t.hash != hash(call.p)) return broken("an algorithm of another problem");
    call.alpha = *(const float *)alpha; call.beta = *(const float *)beta;
    call.a = A; call.b = B; call.c = C; call.d = D;
    call.workspace = workspace; call.workspace_bytes = (size_t)t.workspace; call.order = order_of(t);
    if ((rule = wrong_workspace(call, t, workspaceSizeInBytes)) || (rule = wrong_pointers(call, t)))
        return broken(rule);
    ++counts.products;
    last_product.rows = call.p.m; last_product.columns = call.p.n; last_product.depth = call.p.k;
    last_product.batch = call.p.d.batch; last_product.epilogue = (int32_t)call.p.epilogue;
    last_product.compute = call.p.compute;
    last_product.left_type = call.p.a.type;
    last_product.result_type = call.p.d.type;
    last_product.reduction = t.reduction; last_product.workspace = (size_t)t.workspace;
    w = new Work(call);
    if (simulator_host_function((void *)stream, work, work_end, w)) {
        delete w;
        (void)mock_last_error(); /* the library has a runtime of its own: its errors are not the caller's */
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

#ifndef SIMULATOR_REAL_CUBLASLT
/* ---- descriptors of our own, where there is no library. They live in the caller's opaque blocks. ---- */
const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:          return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:  return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:     return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:    return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:    return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:    return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:   return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:    return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:    return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "CUBLAS_STATUS_UNKNOWN";
}
const char *cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }
size_t cublasLtGetVersion(void) { return 130100; }

struct Field { int attribute; size_t offset, bytes; };
static cublasStatus_t set(const Field *fields, size_t count, void *object, int attribute, const void *from,
                          size_t bytes) {
    for (size_t i = 0; i < count; ++i)
        if (fields[i].attribute == attribute) {
            if (!from || bytes != fields[i].bytes) return broken("an attribute set with the wrong size");
            memcpy((char *)object + fields[i].offset, from, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    return broken("an attribute that this mock does not know");
}
static cublasStatus_t get(const Field *fields, size_t count, const void *object, int attribute, void *to, size_t bytes,
                          size_t *written) {
    for (size_t i = 0; i < count; ++i)
        if (fields[i].attribute == attribute) {
            if (!bytes && written) { *written = fields[i].bytes; return CUBLAS_STATUS_SUCCESS; }
            if (!to || bytes != fields[i].bytes) return broken("an attribute read with the wrong size");
            memcpy(to, (const char *)object + fields[i].offset, bytes);
            if (written) *written = bytes;
            return CUBLAS_STATUS_SUCCESS;
        }
    return broken("an attribute that this mock does not know");
}
struct Preference { int32_t search; uint32_t reduction, align[4]; uint64_t workspace; };
#define FIELD(type, member, attribute) { attribute, offsetof(type, member), sizeof(((type *)NULL)->member) }
static const Field desc_fields[] = { FIELD(Problem, compute, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE),
                                     FIELD(Problem, scale_type, CUBLASLT_MATMUL_DESC_SCALE_TYPE),
                                     FIELD(Problem, pointer_mode, CUBLASLT_MATMUL_DESC_POINTER_MODE),
                                     FIELD(Problem, turn_a, CUBLASLT_MATMUL_DESC_TRANSA),
                                     FIELD(Problem, turn_b, CUBLASLT_MATMUL_DESC_TRANSB),
                                     FIELD(Problem, turn_c, CUBLASLT_MATMUL_DESC_TRANSC),
                                     FIELD(Problem, epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE),
                                     FIELD(Problem, bias, CUBLASLT_MATMUL_DESC_BIAS_POINTER),
                                     FIELD(Problem, bias_step, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE),
                                     FIELD(Problem, aux, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
                                     FIELD(Problem, aux_ld, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD),
                                     FIELD(Problem, aux_step, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE),
                                     FIELD(Problem, aux_type, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE),
                                     FIELD(Problem, bias_type, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE),
                                     FIELD(Problem, fast, CUBLASLT_MATMUL_DESC_FAST_ACCUM),
                                     FIELD(Problem, scale_a, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER),
                                     FIELD(Problem, scale_b, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER),
                                     FIELD(Problem, scale_c, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER),
                                     FIELD(Problem, scale_d, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER),
                                     FIELD(Problem, amax, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER) };
static const Field layout_fields[] = {
    FIELD(Matrix, type, CUBLASLT_MATRIX_LAYOUT_TYPE), FIELD(Matrix, order, CUBLASLT_MATRIX_LAYOUT_ORDER),
    FIELD(Matrix, rows, CUBLASLT_MATRIX_LAYOUT_ROWS), FIELD(Matrix, columns, CUBLASLT_MATRIX_LAYOUT_COLS),
    FIELD(Matrix, ld, CUBLASLT_MATRIX_LAYOUT_LD), FIELD(Matrix, batch, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT),
    FIELD(Matrix, step, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
};
static const Field preference_fields[] = { FIELD(Preference, search, CUBLASLT_MATMUL_PREF_SEARCH_MODE),
                                           FIELD(Preference, workspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES),
                                           FIELD(Preference, reduction, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
                                           FIELD(Preference, align[0], CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
                                           FIELD(Preference, align[1], CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
                                           FIELD(Preference, align[2], CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES),
                                           FIELD(Preference, align[3], CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) };
#  define COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* A description without its matrices, which have blocks of their own. */
enum { DESC_BYTES = offsetof(Problem, a) };
static_assert(DESC_BYTES <= sizeof(cublasLtMatmulDescOpaque_t), "too large");
static_assert(sizeof(Matrix) <= sizeof(cublasLtMatrixLayoutOpaque_t), "too large");
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "too large");

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmulDesc, size_t size,
                                               cublasComputeType_t computeType, cudaDataType scaleType) {
    Problem p;
    if (!matmulDesc || size < DESC_BYTES) return CUBLAS_STATUS_ALLOC_FAILED;
    memset(&p, 0, sizeof p);
    p.compute = computeType;
    p.scale_type = scaleType;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    p.aux_type = p.bias_type = -1;
    memset(matmulDesc, 0, size);
    memcpy(matmulDesc, &p, DESC_BYTES);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matLayout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
    Matrix x;
    if (!matLayout || size < sizeof x) return CUBLAS_STATUS_ALLOC_FAILED;
    memset(&x, 0, sizeof x);
    x.type = type; x.rows = rows; x.columns = cols; x.ld = ld; x.batch = 1;
    memset(matLayout, 0, size);
    memcpy(matLayout, &x, sizeof x);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size) {
    Preference x;
    if (!pref || size < sizeof x) return CUBLAS_STATUS_ALLOC_FAILED;
    memset(&x, 0, sizeof x);
    x.reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
    for (int i = 0; i < 4; ++i) x.align[i] = 256;
    memset(pref, 0, size);
    memcpy(pref, &x, sizeof x);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *matmulDesc, cublasComputeType_t computeType,
                                        cudaDataType scaleType) {
    *matmulDesc = (cublasLtMatmulDesc_t)malloc(sizeof **matmulDesc);
    return cublasLtMatmulDescInit(*matmulDesc, computeType, scaleType);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *matLayout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
    *matLayout = (cublasLtMatrixLayout_t)malloc(sizeof **matLayout);
    return cublasLtMatrixLayoutInit(*matLayout, type, rows, cols, ld);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref) {
    *pref = (cublasLtMatmulPreference_t)malloc(sizeof **pref);
    return cublasLtMatmulPreferenceInit(*pref);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
    free(matmulDesc);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
    free(matLayout);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
    free(pref);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc, cublasLtMatmulDescAttributes_t attr,
                                              const void *buf, size_t sizeInBytes) {
    return set(desc_fields, COUNT(desc_fields), matmulDesc, attr, buf, sizeInBytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc, cublasLtMatmulDescAttributes_t attr,
                                              void *buf, size_t sizeInBytes, size_t *sizeWritten) {
    return get(desc_fields, COUNT(desc_fields), matmulDesc, attr, buf, sizeInBytes, sizeWritten);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout, cublasLtMatrixLayoutAttribute_t attr,
                                                const void *buf, size_t sizeInBytes) {
    return set(layout_fields, COUNT(layout_fields), matLayout, attr, buf, sizeInBytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout, cublasLtMatrixLayoutAttribute_t attr,
                                                void *buf, size_t sizeInBytes, size_t *sizeWritten) {
    return get(layout_fields, COUNT(layout_fields), matLayout, attr, buf, sizeInBytes, sizeWritten);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr, const void *buf,
                                                    size_t sizeInBytes) {
    return set(preference_fields, COUNT(preference_fields), pref, attr, buf, sizeInBytes);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr, void *buf,
                                                    size_t sizeInBytes, size_t *sizeWritten) {
    return get(preference_fields, COUNT(preference_fields), pref, attr, buf, sizeInBytes, sizeWritten);
}
#endif
} /* extern "C" */
