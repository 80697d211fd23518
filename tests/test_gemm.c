/* test_gemm.c - the built-in product, bit for bit against a plain loop of fmaf over the definition, which in its turn is
   held to float64; at every level, for any workers, strides, types and sizes around those of tiles, chunks and blocks.
   With -DTEST_CBLAS -Iexamples also examples/adapters/cblas.h against float64; link with a CBLAS. */
#include "test.h"
#include <fenv.h>
#include <float.h>
#if defined(TEST_CBLAS)
#  include <cblas.h>
#  include "adapters/cblas.h"
#endif

/* ---- numbers by their definitions ---- */
static float gemm_decode(memopt_type type, unsigned code) {
    const int bits = type == MEMOPT_TYPE_BF16 ? 7 : 10, bias = type == MEMOPT_TYPE_BF16 ? 127 : 15;
    const int exponent = (int)(code & 0x7FFF) >> bits, mantissa = (int)code & ((1 << bits) - 1);
    double size = exponent ? ldexp((double)((1 << bits) + mantissa), exponent - bias - bits)
                           : ldexp((double)mantissa, 1 - bias - bits);
    if (exponent == (type == MEMOPT_TYPE_BF16 ? 255 : 31)) size = mantissa ? (double)NAN : (double)INFINITY;
    return (float)(code & 0x8000 ? -size : size);
}
static int gemm_is_nan(float x) { return (memopt_i_float_bits(x) & 0x7FFFFFFFu) > 0x7F800000u; }
static unsigned gemm_encode(memopt_type type, float x) { /* the nearest code, ties to even; infinity is a code like any */
    const unsigned sign = memopt_i_float_bits(x) >> 16 & 0x8000, infinity = type == MEMOPT_TYPE_BF16 ? 0x7F80 : 0x7C00;
    const double a = fabs((double)x); unsigned low = 0, high = infinity; double below, above;
    if (gemm_is_nan(x)) return sign | (infinity + 1);
    if (a > DBL_MAX) return sign | infinity;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if ((double)gemm_decode(type, middle) <= a) low = middle; else high = middle;
    }
    above = high == infinity ? ldexp(1.0, type == MEMOPT_TYPE_BF16 ? 128 : 16) : (double)gemm_decode(type, high);
    below = a - (double)gemm_decode(type, low); above -= a;
    return (above < below || (above <= below && low % 2) ? high : low) | sign;
}
static float gemm_get(const void *data, memopt_type type, size_t i) {
    float x; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, (const unsigned char *)data + 4 * i, 4); return x; }
    memcpy(&code, (const unsigned char *)data + 2 * i, 2);
    return gemm_decode(type, code);
}
static void gemm_put(void *data, memopt_type type, size_t i, float x) {
    const uint16_t code = type == MEMOPT_TYPE_F32 ? 0 : (uint16_t)gemm_encode(type, x);
    if (type == MEMOPT_TYPE_F32) memcpy((unsigned char *)data + 4 * i, &x, 4);
    else memcpy((unsigned char *)data + 2 * i, &code, 2);
}
static size_t gemm_size(memopt_type type) { return type == MEMOPT_TYPE_F32 ? 4 : 2; }
/* The same number; one NaN is as good as another. */
static int gemm_same(const void *a, const void *b, memopt_type type, size_t i) {
    const size_t size = gemm_size(type);
    return !memcmp((const unsigned char *)a + i * size, (const unsigned char *)b + i * size, size)
        || (gemm_is_nan(gemm_get(a, type, i)) && gemm_is_nan(gemm_get(b, type, i)));
}
static void *gemm_alloc(size_t bytes) { /* never NULL, and with the size asked for, so that sanitizers see its end */
    void *p = malloc(bytes ? bytes : 1);
    if (!p) { printf("test_gemm: out of memory\n"); exit(1); }
    return p;
}


/* ---- a product with its operands, and what should come out ---- */
typedef struct gemm_case {
    memopt_product p;
    void  *left, *right, *first, *wanted; /* first: the result before; wanted: after, gaps between rows included */
    float *bias;
    size_t result_bytes;
} gemm_case;
static float gemm_random(uint64_t *seed, int wild) {
    const uint64_t r = test_random(seed); const unsigned kind = (unsigned)(r >> 40) % 256;
    if (wild && kind < 4) return kind == 0 ? NAN : kind == 1 ? INFINITY : kind == 2 ? -INFINITY : 1e38f;
    if (kind < 8) return 0;
    if (kind < 12) return memopt_i_bits_float((uint32_t)r & 0x807FFFFFu); /* denormal */
    return memopt_i_bits_float(((uint32_t)r & 0x807FFFFFu) | (uint32_t)(0x3C + (r >> 32 & 3)) << 24);
}
/* Elements of a matrix that has not a byte after its last. */
static size_t gemm_elements(size_t rows, size_t columns, size_t stride) {
    return rows && columns ? (rows - 1) * stride + columns : 0;
}
static void *gemm_matrix(uint64_t *seed, memopt_type type, size_t rows, size_t columns, size_t stride, int wild) {
    const size_t n = gemm_elements(rows, columns, stride); void *data = gemm_alloc(n * gemm_size(type)); size_t i;
    for (i = 0; i < n; ++i) gemm_put(data, type, i, gemm_random(seed, wild));
    return data;
}
static size_t gemm_left_at(const memopt_product *p, size_t i, size_t k) {
    return p->left_transposed ? k * p->left_stride + i : i * p->left_stride + k;
}
static size_t gemm_right_at(const memopt_product *p, size_t k, size_t j) {
    return p->right_transposed ? j * p->right_stride + k : k * p->right_stride + j;
}
/* ---- bf16 times bf16 by its definition ---- */
static float gemm_flushed(float x) { return fabsf(x) < FLT_MIN ? (memopt_i_float_bits(x) >> 31 ? -0.0f : 0.0f) : x; }
/* x y + z rounded to 24 bits as if the exponent had no end; and 0 if that is below FLT_MIN. `sum` and what it misses
   are those of Dekker; only the sign of the latter is wanted. */
static float gemm_link(float x, float y, float z) {
    const double product = (double)x * (double)y, large = fabs(product) > fabs((double)z) ? product : (double)z;
    const double small = fabs(product) > fabs((double)z) ? (double)z : product;
    volatile double sum = large + small, part; double missed, m, low; int e;
    if (fabs(sum) > 1e-30) return fmaf(x, y, z); /* far from where it matters */
    if (!(fabs(sum) <= DBL_MAX) || sum == 0) return (float)sum;
    part = sum - large;
    missed = sum < 0 ? part - small : small - part;
    m = ldexp(frexp(fabs(sum), &e), 24); low = floor(m);
    if (m - low > 0.5 || (m - low >= 0.5 && (missed > 0 || (!(missed < 0) && fmod(low, 2) > 0)))) ++low;
    m = ldexp(low, e - 24);
    if (m < (double)FLT_MIN) m = 0;
    return sum < 0 ? -(float)m : (float)m;
}
/* The depths first..end of `depth` take part. */
static float gemm_chains(const float *left, const float *right, size_t first, size_t end, float sum) {
    size_t k, block;
    for (block = first / 32 * 32; first < end && block < end; block += 32) {
        float chain[2] = { 0, 0 };
        for (k = block; k < block + 32; ++k) {
            const int in = k >= first && k < end;
            chain[k & 1] = gemm_link(in ? gemm_flushed(left[k]) : 0.0f, in ? gemm_flushed(right[k]) : 0.0f, chain[k & 1]);
        }
        sum = gemm_flushed(gemm_flushed(sum) + gemm_flushed(chain[0] + chain[1]));
    }
    return sum;
}
static void gemm_want(gemm_case *g, int wild) {
    const memopt_product *p = &g->p; size_t i, j, k;
    const int is_bf16 = p->left_type == MEMOPT_TYPE_BF16 && p->right_type == MEMOPT_TYPE_BF16;
    float *left = (float *)gemm_alloc(p->depth * sizeof(float)), *right = (float *)gemm_alloc(p->depth * p->columns * sizeof(float));
    for (k = 0; k < p->depth; ++k)
        for (j = 0; j < p->columns; ++j) right[j * p->depth + k] = gemm_get(g->right, p->right_type, gemm_right_at(p, k, j));
    memcpy(g->wanted, g->first, g->result_bytes);
    for (i = 0; i < p->rows; ++i) {
        for (k = 0; k < p->depth; ++k) left[k] = gemm_get(g->left, p->left_type, gemm_left_at(p, i, k));
        for (j = 0; j < p->columns; ++j) {
            const size_t at = i * p->result_stride + j; const float *column = right + j * p->depth;
            float sum = p->accumulate ? gemm_get(g->first, p->result_type, at) : p->bias ? p->bias[j] : 0;
            double exact = (double)sum, size = fabs(exact);
            for (k = 0; k < p->depth; ++k) {
                const double product = (double)left[k] * (double)column[k];
                if (!is_bf16) sum = fmaf(left[k], column[k], sum);
                exact += product; size += fabs(product);
            }
            if (is_bf16) sum = gemm_chains(left, column, 0, p->depth, sum);
            /* depth roundings, each by at most 2^-24 of a partial sum or half the smallest denormal; of bf16 the smallest float */
            if (!wild) CHECK_AT(fabs((double)sum - exact) <= (double)(p->depth + 2) * (ldexp(size, -24) * 1.001 + ldexp(1.0, is_bf16 ? -118 : -150)), at);
            gemm_put(g->wanted, p->result_type, at, sum);
        }
    }
    free(left); free(right);
}
/* types: left + 3 right + 9 result; turned: left + 2 right; begin: 0 zeros, 1 bias, 2 accumulate; gaps between rows */
static gemm_case gemm_make(uint64_t *seed, size_t rows, size_t columns, size_t depth, int types, int turned, int begin,
                           size_t gap, int wild) {
    gemm_case g; memopt_product *p = &g.p; size_t n, i;
    memset(&g, 0, sizeof g);
    p->rows = rows; p->columns = columns; p->depth = depth;
    p->left_type = (memopt_type)(types % 3); p->right_type = (memopt_type)(types / 3 % 3); p->result_type = (memopt_type)(types / 9);
    p->left_transposed = turned & 1; p->right_transposed = turned >> 1;
    p->left_stride = (p->left_transposed ? rows : depth) + gap;
    p->right_stride = (p->right_transposed ? depth : columns) + gap;
    p->result_stride = columns + gap; p->accumulate = begin == 2;
    p->left = g.left = gemm_matrix(seed, p->left_type, p->left_transposed ? depth : rows, p->left_transposed ? rows : depth, p->left_stride, wild);
    p->right = g.right = gemm_matrix(seed, p->right_type, p->right_transposed ? columns : depth, p->right_transposed ? depth : columns,
                                     p->right_stride, wild);
    if (begin == 1) {
        p->bias = g.bias = (float *)gemm_alloc(columns * sizeof(float));
        for (i = 0; i < columns; ++i) g.bias[i] = gemm_random(seed, wild);
    }
    n = gemm_elements(rows, columns, p->result_stride);
    g.result_bytes = n * gemm_size(p->result_type);
    g.first = gemm_matrix(seed, p->result_type, rows, columns, p->result_stride, wild);
    g.wanted = gemm_alloc(g.result_bytes);
    gemm_want(&g, wild);
    return g;
}
static void gemm_free(gemm_case *g) {
    free(g->left); free(g->right); free(g->bias); free(g->first); free(g->wanted);
}
/* Runs it with exactly the scratch that is asked for, and compares every byte. */
static void gemm_run(const gemm_case *g, const memopt_threads *threads, uint64_t at) {
    const size_t bytes = memopt_gemm_scratch(threads), n = g->result_bytes / gemm_size(g->p.result_type);
    unsigned char *raw = (unsigned char *)gemm_alloc(bytes + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
    memopt_product p = g->p; size_t i, wrong = 0;
    memset(raw, 0xA5, bytes + 64);
    p.result = gemm_alloc(g->result_bytes);
    memcpy(p.result, g->first, g->result_bytes);
    CHECK_AT(memopt_gemm_multiply(&p, threads, scratch, bytes) == MEMOPT_OK, at);
    for (i = 0; i < n; ++i) wrong += !gemm_same(p.result, g->wanted, p.result_type, i);
    CHECK_AT(wrong == 0, at);
    for (wrong = 0, i = (size_t)(scratch - raw) + bytes; i < bytes + 64; ++i) wrong += raw[i] != 0xA5;
    CHECK_AT(wrong == 0, at);
    free(p.result); free(raw);
}
static void gemm_levels(const gemm_case *g, int workers, uint64_t at) {
    int level; test_worker_set worker_set;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        const memopt_threads t = test_workers(&worker_set, workers, level);
        gemm_run(g, &t, at * 10 + (uint64_t)level);
    }
}

/* ---- the tests ---- */
static void gemm_combinations(void) { /* every type, turn and beginning, at sizes around those of the tiles */
    static const size_t sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 23, 25, 31, 32, 33, 47, 64, 65 };
    const size_t count = sizeof sizes / sizeof *sizes; uint64_t seed = 1; int types, turned, begin;
    for (types = 0; types < 27; ++types)
        for (turned = 0; turned < 4; ++turned)
            for (begin = 0; begin < 3; ++begin) {
                const size_t rows = sizes[test_below(&seed, count)], columns = sizes[test_below(&seed, count)];
                gemm_case g = gemm_make(&seed, rows, columns, sizes[test_below(&seed, count)], types, turned, begin,
                                        test_below(&seed, 2) * (1 + test_below(&seed, 40)), 0);
                gemm_levels(&g, 0, (uint64_t)((types * 4 + turned) * 3 + begin));
                gemm_free(&g);
            }
}
static void gemm_every_size(void) { /* of rows, and of columns, past the largest tile */
    uint64_t seed = 2; size_t n;
    for (n = 1; n <= 70; ++n) {
        gemm_case g = gemm_make(&seed, n, 33, 19, 0, (int)(n % 4), (int)(n % 3), n % 2, 0);
        gemm_case h = gemm_make(&seed, 13, n, 18, 0, (int)(n / 2 % 4), (int)(n % 3), n % 2, 0);
        gemm_case f = gemm_make(&seed, 5, 34, n, 0, (int)(n / 2 % 4), (int)(n % 3), n % 2, 0);
        gemm_levels(&g, 0, n); gemm_levels(&h, 0, 100 + n); gemm_levels(&f, 0, 200 + n);
        gemm_free(&g); gemm_free(&h); gemm_free(&f);
    }
}
#if defined(TEST_LONG)
enum { GEMM_KINDS = 3, GEMM_ROUNDS = 4000 };
#else
enum { GEMM_KINDS = 1, GEMM_ROUNDS = 60 }; /* each size has one of: all float, all bf16, all f16 */
#endif
static void gemm_blocks(void) { /* sizes around those of chunks and blocks of depth, by 1 to 8 workers */
    static const size_t sizes[][3] = { { 385, 33, 65 }, { 70, 770, 300 }, { 17, 31, 257 }, { 33, 64, 513 }, { 400, 200, 300 },
                                       { 1, 800, 260 }, { 793, 1, 33 }, { 150, 800, 3 } };
    uint64_t seed = 3; size_t i, kind; int workers = 0;
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (kind = 0; kind < GEMM_KINDS; ++kind) {
            gemm_case g;
            if (test_is_passed_over()) continue;
            g = gemm_make(&seed, sizes[i][0], sizes[i][1], sizes[i][2], (int)((i + kind) % 3) * 13, (int)test_below(&seed, 4),
                          (int)test_below(&seed, 3), 3, 0);
            gemm_levels(&g, 1 + workers++ % 8, i * 27 + kind);
            gemm_free(&g);
        }
}
/* Few rows, whose right operand is read where it lies: each number of them, sizes that are whole vectors, chains and
   chunks, and others; deeper than the left operand that is packed at a time; strides whose lines share a set. */
static void gemm_few_rows(void) {
    static const size_t sizes[][2] = { { 32, 64 }, { 800, 40 }, { 41, 33 }, { 16, 9600 }, { 90, 7 }, { 33, 2100 }, { 64, 192 }, { 7, 96 } };
    static const int types[] = { 0, 4, 9, 13, 22, 3, 1, 8 }; /* all floats, all bf16, mixed, and what has no way of its own */
    uint64_t seed = 21; size_t rows, i;
    for (rows = 1; rows <= 17; ++rows)
        for (i = 0; i < 8; ++i) {
            const size_t at = (rows + i) % 8, gap = i % 3 == 2 ? 1024 - sizes[at][i & 1] % 1024 : i % 3;
            gemm_case g;
            if (test_is_passed_over() || (sizes[at][1] > 2000 && rows % 4 != 1)) continue;
            g = gemm_make(&seed, rows, sizes[at][0], sizes[at][1], types[i], (int)(rows + i / 2) % 4, (int)test_below(&seed, 3), gap, i == 3);
            gemm_levels(&g, (int)(rows % 3), rows * 100 + i);
            gemm_free(&g);
        }
}
/* ---- a right operand of 8 bits: what the codes decode to, element by element, and the product of that ---- */
static void gemm_quantized_case(uint64_t *seed, size_t rows, size_t columns, size_t depth, int types, int turned, const memopt_quantized *desc,
                                int wild, uint64_t at) {
    gemm_case g = gemm_make(seed, rows, columns, depth, types, turned, (int)test_below(seed, 3), test_below(seed, 2) * 5, wild);
    const memopt_type type = g.p.right_type; const size_t block = desc->block ? desc->block : 256;
    const size_t n = g.p.right_transposed ? gemm_elements(columns, depth, g.p.right_stride) : gemm_elements(depth, columns, g.p.right_stride);
    uint8_t *codes = (uint8_t *)gemm_alloc(n); float *absmax = (float *)gemm_alloc((n + block - 1) / block * sizeof *absmax);
    memopt_quantized q = *desc; size_t i;
    for (i = 0; i < (n + block - 1) / block; ++i) absmax[i] = fabsf(gemm_random(seed, wild));
    for (i = 0; i < n; ++i) {
        volatile float x;
        codes[i] = (uint8_t)test_random(seed);
        x = memopt_i_map_level(q.map, codes[i]) * absmax[i / block];
        gemm_put(g.right, type, i, x);
    }
    gemm_want(&g, wild);
    q.absmax = absmax;
    g.p.right = codes; g.p.quantized = &q;
    gemm_levels(&g, (int)(rows % 3), at);
    free(codes); free(absmax); gemm_free(&g);
}
static void gemm_quantized(void) {
    static const size_t sizes[][2] = { { 32, 64 }, { 70, 45 }, { 33, 400 }, { 9, 31 }, { 300, 96 }, { 1, 1 }, { 640, 33 } };
    static const size_t blocks[] = { 0, 32, 96, 256, 4096 };
    uint64_t seed = 22; size_t i;
    for (i = 0; i < 84; ++i) {
        const size_t rows = i % 4 ? 1 + i % 18 : 30 + test_below(&seed, 400); memopt_quantized q;
        if (test_is_passed_over()) continue;
        q.absmax = NULL; q.map = (memopt_quant_map)(i % 3); q.block = blocks[i % 5];
        gemm_quantized_case(&seed, rows, sizes[i % 7][0], sizes[i % 7][1], (int)(i % 3 + 3 * (i / 3 % 2) + 9 * (i / 2 % 3)), (int)(i / 4 % 4), &q, i % 6 == 5, i);
    }
}
static void gemm_deep(void) { /* deeper than what is packed at a time */
    static const size_t sizes[][3] = { { 70, 40, 1100 }, { 33, 41, 600 }, { 1, 33, 777 }, { 40, 32, 1300 }, { 35, 430, 40 }, { 64, 64, 1030 } };
    uint64_t seed = 16; size_t i; int types;
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (types = 4 + (int)(i % 2) * 9; types < 27; types += 18) { /* bf16 times bf16, to each type */
            gemm_case g;
            if (test_is_passed_over()) continue;
            g = gemm_make(&seed, sizes[i][0], sizes[i][1], sizes[i][2], types, (int)test_below(&seed, 4), (int)((i + (size_t)types) % 3), 3, 0);
            gemm_levels(&g, (int)(i % 3), i * 27 + (uint64_t)types);
            gemm_free(&g);
        }
}
static void gemm_much_to_carry(void) { /* more than fits scratch: by a narrower level, which other tests hold, and by the widest */
    uint64_t seed = 18; const size_t rows = 450, columns = 256, depth = 800, bytes = MEMOPT_GEMM_SCRATCH;
    unsigned char *raw = (unsigned char *)gemm_alloc(bytes + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
    uint16_t *left = (uint16_t *)gemm_matrix(&seed, MEMOPT_TYPE_BF16, rows, depth, depth, 0), *right = (uint16_t *)gemm_matrix(&seed, MEMOPT_TYPE_BF16, depth, columns, columns, 0);
    uint16_t *want = (uint16_t *)gemm_alloc(rows * columns * 2), *got = (uint16_t *)gemm_alloc(rows * columns * 2);
    memopt_product p; memopt_threads t; size_t i, wrong = 0;
    memset(raw, 0xA5, bytes + 64); memset(&p, 0, sizeof p); memset(&t, 0, sizeof t);
    p.rows = rows; p.columns = p.right_stride = p.result_stride = columns; p.depth = p.left_stride = depth;
    p.left = left; p.right = right; p.left_type = p.right_type = p.result_type = MEMOPT_TYPE_BF16;
    t.simd_level = MEMOPT_SIMD_AVX2; p.result = want;
    CHECK(memopt_gemm_multiply(&p, &t, scratch, bytes) == MEMOPT_OK);
    p.result = got;
    if (memopt_simd_best() > MEMOPT_SIMD_AVX2) /* else it was the widest */
        CHECK(memopt_gemm_multiply(&p, NULL, scratch, bytes) == MEMOPT_OK && !memcmp(want, got, rows * columns * 2));
    for (i = (size_t)(scratch - raw) + bytes; i < bytes + 64; ++i) wrong += raw[i] != 0xA5;
    CHECK(wrong == 0);
    free(raw); free(left); free(right); free(want); free(got);
}
static void gemm_workers(void) {
    uint64_t seed = 4; int workers, turned; test_worker_set worker_set;
    for (turned = 0; turned < 4; ++turned) {
        gemm_case g = gemm_make(&seed, 211, 230, 270, 0, turned, turned % 3, 0, 0);
        for (workers = 1; workers <= 8; ++workers) {
            const memopt_threads t = test_workers(&worker_set, workers, 0);
            if (test_is_passed_over()) continue;
            gemm_run(&g, &t, (uint64_t)(turned * 10 + workers));
            CHECK_AT(workers == 1 || worker_set.chunks >= (size_t)workers, workers); /* something to do for each */
        }
        gemm_run(&g, NULL, (uint64_t)turned);
        gemm_free(&g);
    }
}
static void gemm_wild(void) { /* NaN, infinities and what overflows: no zero hides them */
    uint64_t seed = 5; int types, n = 0;
    for (types = 0; types < 27; ++types) {
        gemm_case g = gemm_make(&seed, 29, 41, 13, types, types % 4, types % 3, 0, 1);
        for (n = 0; n < 29 * 41 && !gemm_is_nan(gemm_get(g.wanted, g.p.result_type, (size_t)n)); ++n) {}
        CHECK(n < 29 * 41);
        gemm_levels(&g, 0, (uint64_t)types);
        gemm_free(&g);
    }
}
static void gemm_parts(void) { /* by rows, and in steps of depth that are added: the bits of the whole */
    uint64_t seed = 6; int turned;
    for (turned = 0; turned < 4; ++turned) {
        gemm_case g = gemm_make(&seed, 61, 70, 300, 0, turned, 1, 2, 0); memopt_product p = g.p;
        unsigned char *raw = (unsigned char *)gemm_alloc(MEMOPT_GEMM_SCRATCH + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
        size_t row, k, rows, depth, i, wrong = 0;
        const float *left = (const float *)p.left, *right = (const float *)p.right;
        float *result = (float *)gemm_alloc(g.result_bytes);
        memcpy(result, g.first, g.result_bytes);
        for (row = 0; row < 61; row += rows) {
            rows = memopt_i_min(1 + test_below(&seed, 20), 61 - row);
            for (k = 0; k < 300; k += depth) {
                depth = memopt_i_min(1 + test_below(&seed, 150), 300 - k);
                p.rows = rows; p.depth = depth; p.accumulate = k > 0; p.bias = k ? NULL : g.bias;
                p.left = left + gemm_left_at(&g.p, row, k); p.right = right + gemm_right_at(&g.p, k, 0);
                p.result = result + row * p.result_stride;
                CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_OK);
            }
        }
        for (i = 0; i < g.result_bytes / 4; ++i) wrong += !gemm_same(result, g.wanted, MEMOPT_TYPE_F32, i);
        CHECK_AT(wrong == 0, turned);
        free(result); free(raw); gemm_free(&g);
    }
}
/* Of bf16 the steps of depth are multiples of 32. */
static void gemm_parts_of_32(void) {
    static const size_t steps[] = { 32, 64, 96, 1000 };
    uint64_t seed = 12; int turned; size_t which, level_of[4] = { MEMOPT_SIMD_SCALAR, MEMOPT_SIMD_NEON, MEMOPT_SIMD_AVX2, MEMOPT_SIMD_AVX512 };
    for (turned = 0; turned < 4; ++turned)
        for (which = 0; which < 16; ++which) {
            gemm_case g; memopt_product p; memopt_threads t; unsigned char *raw, *scratch;
            const uint16_t *left, *right; float *result; size_t i, k, wrong = 0;
            if (test_is_passed_over()) continue;
            g = gemm_make(&seed, 37, 41, 250, 4, turned, 1, 2, 0); p = g.p;
            raw = (unsigned char *)gemm_alloc(MEMOPT_GEMM_SCRATCH + 64); scratch = raw + (0 - (uintptr_t)raw) % 64;
            left = (const uint16_t *)p.left; right = (const uint16_t *)p.right;
            result = (float *)gemm_alloc(g.result_bytes);
            memset(&t, 0, sizeof t);
            t.simd_level = (int)level_of[which % 4];
            memcpy(result, g.first, g.result_bytes);
            for (k = 0; k < 250; k += p.depth) {
                p.depth = memopt_i_min(steps[which / 4], 250 - k); p.accumulate = k > 0; p.bias = k ? NULL : g.bias;
                p.left = left + gemm_left_at(&g.p, 0, k); p.right = right + gemm_right_at(&g.p, k, 0);
                p.result = result;
                CHECK(memopt_gemm_multiply(&p, &t, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_OK);
            }
            for (i = 0; i < g.result_bytes / 4; ++i) wrong += !gemm_same(result, g.wanted, MEMOPT_TYPE_F32, i);
            CHECK_AT(wrong == 0, turned * 16 + (int)which);
            free(result); free(raw); gemm_free(&g);
        }
}
/* Any bits at all: denormals, sums that fall below FLT_MIN, zeros of both signs, NaN and infinities. kind: 0 any exponent,
   1 products around the smallest float, 2 as 0 with NaN and infinities */
static uint16_t gemm_any_bf16(uint64_t *seed, int kind) {
    const uint64_t r = test_random(seed); const unsigned sign = (unsigned)(r >> 63) << 15, mantissa = (unsigned)r & 127;
    const unsigned what = (unsigned)(r >> 20) % 256;
    if (what < 16) return (uint16_t)(what < 8 ? sign : sign | mantissa);
    if (what == 16 && kind == 2) return (uint16_t)(sign | 0x7F80 | (r >> 40 & 1 ? mantissa : 0));
    return (uint16_t)(sign | ((unsigned)(r >> 30) % (kind == 1 ? 20 : 254) + (kind == 1 ? 55 : 0)) << 7 | mantissa);
}
static void gemm_bits(void) {
    uint64_t seed = 13; int round;
    for (round = 0; round < GEMM_ROUNDS; ++round) {
        const size_t rows = 1 + test_below(&seed, 40), columns = 1 + test_below(&seed, 70), depth = 1 + test_below(&seed, 230);
        gemm_case g; size_t i;
        if (test_is_passed_over()) continue;
        g = gemm_make(&seed, rows, columns, depth, 4 + 9 * (round % 2), round / 2 % 4, round / 8 % 3, 0, 1);
        for (i = 0; i < rows * depth; ++i) ((uint16_t *)g.left)[i] = gemm_any_bf16(&seed, round % 3);
        for (i = 0; i < columns * depth; ++i) ((uint16_t *)g.right)[i] = gemm_any_bf16(&seed, round % 3);
        for (i = 0; g.p.result_type == MEMOPT_TYPE_F32 && i < rows * columns; i += 3) /* denormals to begin with, and -0 */
            ((float *)g.first)[i] = memopt_i_bits_float((uint32_t)test_random(&seed) & (i % 2 ? 0x807FFFFFu : 0x80000000u));
        gemm_want(&g, 1);
        gemm_levels(&g, 0, (uint64_t)round);
        gemm_free(&g);
    }
}
/* Chains that end as -0, onto -0: only whole blocks keep the sign. And a sum that becomes a denormal. */
static void gemm_zeros(void) {
    uint64_t seed = 19; size_t depth, i;
    for (depth = 29; depth <= 65; ++depth) {
        gemm_case g = gemm_make(&seed, 5, 7, depth, 4, 2, 2, 0, 0);
        for (i = 0; i < 5 * depth; ++i) ((uint16_t *)g.left)[i] = (uint16_t)(0x8000u | 57u << 7); /* -2^-70 */
        for (i = 0; i < 7 * depth; ++i) ((uint16_t *)g.right)[i] = (uint16_t)(57u << 7);
        for (i = 0; i < 35; ++i) ((float *)g.first)[i] = memopt_i_bits_float(i % 2 ? 0x80000000u : 0x00c00000u);
        gemm_want(&g, 1);
        CHECK_AT((memopt_i_float_bits(((float *)g.wanted)[1]) == 0x80000000u) == (depth == 32 || depth == 64), depth);
        gemm_levels(&g, 0, depth);
        for (i = 0; i < 5 * depth; ++i) ((uint16_t *)g.left)[i] = (uint16_t)(i % depth ? 0 : 0x8000u | 64u << 7); /* -2^-63 */
        for (i = 0; i < 7 * depth; ++i) ((uint16_t *)g.right)[i] = (uint16_t)(64u << 7);
        gemm_want(&g, 1);
        CHECK_AT(memopt_i_float_bits(((float *)g.wanted)[0]) == 0, depth); /* 2^-127 */
        gemm_levels(&g, 0, 100 + depth);
        gemm_free(&g);
    }
}
/* Sums between FLT_MIN (1 - 2^-24), which IEEE's rounding makes FLT_MIN, and FLT_MIN (1 - 2^-25), which all round to it:
   what lies below the latter is 0. Each row has +-2^-126, then something around 2^-150, then something of any size. */
static void gemm_band(void) {
    uint64_t seed = 14; size_t inside = 0, i, round;
    for (round = 0; round < 40; ++round) {
        gemm_case g = gemm_make(&seed, 32, 32, 32, 4, 2, 0, 0, 0); uint16_t *left = (uint16_t *)g.left, *right = (uint16_t *)g.right;
        const size_t first = test_below(&seed, 14), second = first + 2 + test_below(&seed, 3) * 2, third = second + 2 + test_below(&seed, 8);
        const unsigned base = 40 + (unsigned)test_below(&seed, 50), tiny = 40 + (unsigned)test_below(&seed, 30);
        memset(left, 0, 2048); memset(right, 0, 2048);
        for (i = 0; i < 32; ++i) {
            left[32 * i + first] = (uint16_t)(base << 7);
            right[32 * i + first] = (uint16_t)((128 - base) << 7 | (unsigned)test_below(&seed, 2) << 15);
            left[32 * i + second] = (uint16_t)(tiny << 7 | (unsigned)test_below(&seed, 128));
            right[32 * i + second] = (uint16_t)((103 - tiny) << 7 | (unsigned)test_below(&seed, 128) | (unsigned)test_below(&seed, 2) << 15);
            left[32 * i + third] = (uint16_t)(tiny << 7 | (unsigned)test_below(&seed, 128));
            right[32 * i + third] = (uint16_t)((100 - tiny + (unsigned)test_below(&seed, 32)) << 7 | (unsigned)test_below(&seed, 128) | (unsigned)test_below(&seed, 2) << 15);
        }
        for (i = 0; i < 1024; ++i) {
            const size_t l = i / 32 * 32, r = i % 32 * 32;
            const double sum = fabs((double)gemm_decode(MEMOPT_TYPE_BF16, left[l + first]) * (double)gemm_decode(MEMOPT_TYPE_BF16, right[r + first])
                                    + (double)gemm_decode(MEMOPT_TYPE_BF16, left[l + second]) * (double)gemm_decode(MEMOPT_TYPE_BF16, right[r + second]));
            inside += sum >= (double)FLT_MIN * (1 - ldexp(1.0, -24)) && sum < (double)FLT_MIN * (1 - ldexp(1.0, -25));
        }
        gemm_want(&g, 1);
        gemm_levels(&g, 0, (uint64_t)round);
        gemm_free(&g);
    }
    CHECK(inside > 1000);
}
static memopt_i_band gemm_triangle(ptrdiff_t diagonal) {
    memopt_i_band b = memopt_i_band_all();
    b.high = diagonal;
    return b;
}
/* Triangles, and bands of any width: what a row does not take may be anything. */
static void gemm_bands(void) {
    uint64_t seed = 15; int round, level;
    for (round = 0; round < 288; ++round) {
        if (test_is_passed_over()) continue;
        const size_t rows = 1 + test_below(&seed, 80), columns = 1 + test_below(&seed, 40), depth = 1 + test_below(&seed, 210);
        const int turned = round & 1; const size_t across = turned ? rows : depth;
        const ptrdiff_t diagonal = (ptrdiff_t)test_below(&seed, across + 70) - 70;
        memopt_i_band band = gemm_triangle(diagonal); /* of 96 each: a triangle, a band, a triangle of the other side */
        gemm_case g = gemm_make(&seed, rows, columns, depth, round & 2 ? 4 : 0, turned | (round & 4 ? 2 : 0), 1 + (round >> 3 & 1), 0, 0);
        float *left = (float *)gemm_alloc(depth * sizeof(float)), *right = (float *)gemm_alloc(depth * sizeof(float));
        unsigned char *raw = (unsigned char *)gemm_alloc(MEMOPT_GEMM_SCRATCH + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
        size_t i, j, k, wrong;
        if (round >= 96) band.low = diagonal - (ptrdiff_t)test_below(&seed, round % 3 ? 16 : 120);
        if (round >= 192) band.high = memopt_i_band_all().high;
        if (round >= 192 && round % 12 == 10) band.low = 2 - (ptrdiff_t)rows; /* all but one number */
        if (round >= 192 && round % 12 == 11) { band = memopt_i_band_all(); band.high = (ptrdiff_t)rows - 2; }
        for (i = 0; i < rows; ++i) { /* the hidden part of the left operand is NaN, and a row that few take infinite */
            for (k = 0; k < depth; ++k)
                if ((ptrdiff_t)(turned ? i : k) > (ptrdiff_t)(turned ? k : i) + band.high || (ptrdiff_t)(turned ? i : k) < (ptrdiff_t)(turned ? k : i) + band.low)
                    gemm_put(g.left, g.p.left_type, gemm_left_at(&g.p, i, k), (i + k) % 3 ? NAN : INFINITY);
        }
        for (j = 0; j < columns; ++j) gemm_put(g.right, g.p.right_type, gemm_right_at(&g.p, turned ? 0 : depth - 1, j), INFINITY);
        for (i = 0; i < rows; ++i) {
            size_t first = depth, end = 0;
            for (k = 0; k < depth; ++k) {
                const ptrdiff_t row = (ptrdiff_t)(turned ? k : i), column = (ptrdiff_t)(turned ? i : k);
                if (column < row + band.low || column > row + band.high) continue;
                first = memopt_i_min(first, k); end = k + 1;
            }
            for (k = 0; k < depth; ++k) left[k] = gemm_get(g.left, g.p.left_type, gemm_left_at(&g.p, i, k));
            for (j = 0; j < columns; ++j) {
                float sum = g.p.accumulate ? gemm_get(g.first, g.p.result_type, i * g.p.result_stride + j) : g.p.bias ? g.p.bias[j] : 0;
                for (k = 0; k < depth; ++k) right[k] = gemm_get(g.right, g.p.right_type, gemm_right_at(&g.p, k, j));
                if (round & 2) sum = gemm_chains(left, right, first, end, sum);
                else for (k = first; k < end; ++k) sum = fmaf(left[k], right[k], sum);
                gemm_put(g.wanted, g.p.result_type, i * g.p.result_stride + j, sum);
            }
        }
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            memopt_product p = g.p; memopt_threads t;
            memset(&t, 0, sizeof t);
            t.simd_level = level;
            p.result = gemm_alloc(g.result_bytes);
            memcpy(p.result, g.first, g.result_bytes);
            memopt_i_gemm_run(&p, band, NULL, &t, scratch);
            for (wrong = 0, i = 0; i < g.result_bytes / 4; ++i) wrong += !gemm_same(p.result, g.wanted, MEMOPT_TYPE_F32, i);
            CHECK_AT(wrong == 0, round * 10 + level);
            free(p.result);
        }
        free(left); free(right); free(raw); gemm_free(&g);
    }
}
/* The end of a product: it adds a residual, which may be what the result overwrites. */
typedef struct gemm_residual { const void *data; memopt_type type; size_t stride; } gemm_residual;
static void gemm_add_residual(const void *user, int level, float *sums, size_t stride, size_t at, size_t rows, size_t n) {
    const gemm_residual *r = (const gemm_residual *)user; size_t i, j;
    (void)level;
    for (i = 0; i < rows; ++i) for (j = 0; j < n; ++j) sums[i * stride + j] += gemm_get(r->data, r->type, at + i * r->stride + j);
}
static void gemm_residuals(void) {
    uint64_t seed = 17; int round, level;
    for (round = 0; round < 48; ++round) {
        if (test_is_passed_over()) continue;
        const size_t rows = 1 + test_below(&seed, 70), columns = 1 + test_below(&seed, 70), depth = round % 6 == 5 ? 600 : 1 + test_below(&seed, 100);
        gemm_case g = gemm_make(&seed, rows, columns, depth, (round % 2 ? 4 : 0) + 9 * (round / 2 % 3), round & 2, round / 6 % 2, 2, 0);
        const memopt_type type = g.p.result_type; const size_t n = g.result_bytes / gemm_size(type);
        unsigned char *raw = (unsigned char *)gemm_alloc(MEMOPT_GEMM_SCRATCH + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
        float *sums = (float *)gemm_alloc((n + 1) * 4); memopt_product p = g.p; size_t i, wrong;
        p.result = sums; p.result_type = MEMOPT_TYPE_F32; /* the sums, by a product that other tests hold */
        for (i = 0; i < n; ++i) sums[i] = gemm_get(g.first, type, i);
        CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_OK);
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            void *residual = gemm_alloc(g.result_bytes); memopt_threads t; gemm_residual r; memopt_i_gemm_end end;
            memset(&t, 0, sizeof t);
            t.simd_level = level;
            p = g.p; p.result = gemm_alloc(g.result_bytes);
            memcpy(residual, g.first, g.result_bytes); memcpy(p.result, g.first, g.result_bytes);
            r.data = level % 2 ? residual : p.result; r.type = type; r.stride = p.result_stride;
            end.fn = gemm_add_residual; end.user = &r; end.is_aside = r.data == p.result;
            memopt_i_gemm_run(&p, memopt_i_band_all(), &end, &t, scratch);
            for (wrong = 0, i = 0; i < n; ++i) {
                const size_t column = i % p.result_stride; float want = gemm_get(g.first, type, i);
                if (column < columns) want += sums[i];
                gemm_put(residual, type, i, want);
                wrong += !gemm_same(residual, p.result, type, i);
            }
            CHECK_AT(wrong == 0, round * 10 + level);
            free(residual); free(p.result);
        }
        free(raw); free(sums); gemm_free(&g);
    }
}
/* Rows of a triangle that take no depth end as they begin: of two tiles of 32 rows the first takes none. */
static void gemm_no_depth(void) {
    static const uint16_t denormals[4] = { 0x0001, 0x8001, 0x007F, 0x8040 };
    uint64_t seed = 19; int turned, begin, level; size_t i, wrong;
    for (turned = 0; turned < 4; ++turned)
        for (begin = 1; begin < 3; ++begin) {
            gemm_case g = gemm_make(&seed, 64, 32, 70, 4 + 9 * MEMOPT_TYPE_BF16, turned, begin, 0, 0);
            unsigned char *raw = (unsigned char *)gemm_alloc(MEMOPT_GEMM_SCRATCH + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
            uint16_t *first = (uint16_t *)g.first, *result = (uint16_t *)gemm_alloc(g.result_bytes);
            for (i = 0; i < 32; ++i) if (begin == 1) g.bias[i] = gemm_decode(MEMOPT_TYPE_BF16, denormals[i % 4]);
            for (i = 0; i < 32 * 32; ++i) first[i] = denormals[i % 4];
            for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
                memopt_threads t; memset(&t, 0, sizeof t);
                t.simd_level = level; g.p.result = result;
                memcpy(result, first, g.result_bytes);
                memopt_i_gemm_run(&g.p, gemm_triangle(turned & 1 ? -70 : -33), NULL, &t, scratch);
                for (wrong = 0, i = 0; i < 32 * 32; ++i) wrong += result[i] != denormals[i % 4];
                CHECK_AT(wrong == 0, turned * 100 + begin * 10 + level);
            }
            free(raw); free(result); gemm_free(&g);
        }
}
/* Which level takes dot products; where they add in another way nobody does, and the bits are the same. */
static void gemm_dots(void) {
#if defined(MEMOPT_I_LANES_EMULATED)
    uint64_t seed = 21; int kind, level; gemm_case g = gemm_make(&seed, 70, 50, 100, 4, 0, 1, 3, 0);
    for (kind = 0; kind < LANES_DOTS_KINDS; ++kind)
        for (level = MEMOPT_SIMD_AVX2; level <= MEMOPT_SIMD_AMX; ++level) {
            memopt_threads t;
            memset(&t, 0, sizeof t);
            t.simd_level = level; lanes_dots = kind; lanes_dots_count = 0;
            gemm_run(&g, &t, (uint64_t)(kind * 10 + level));
            if (level == MEMOPT_SIMD_AMX && memopt_simd_best() < level) continue; /* the level below */
            CHECK_AT((lanes_dots_count >= 70 * 50 * 100 / 2) == (level == MEMOPT_SIMD_AVX512_BF16 && !kind), kind * 10 + level);
        }
    lanes_dots = LANES_DOTS_AS_TOLD;
    gemm_free(&g);
#else
    SKIP("not emulated");
#endif
}
/* The engine's rounding and the exceptions that it has seen so far. */
static void gemm_modes(void) {
    uint64_t seed = 20; int level;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        gemm_case g = gemm_make(&seed, 40, 40, 70, 4, 0, 0, 0, 0); memopt_threads t; int seen, before;
        unsigned char *raw = (unsigned char *)gemm_alloc(MEMOPT_GEMM_SCRATCH + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
        float *result = (float *)gemm_alloc(g.result_bytes);
        memset(&t, 0, sizeof t);
        t.simd_level = level; g.p.result = result;
        CHECK_AT(feclearexcept(FE_ALL_EXCEPT) == 0 && feraiseexcept(FE_DIVBYZERO) == 0, level);
        seen = fetestexcept(FE_DIVBYZERO); before = fegetround(); /* not there: a processor that does not tell, as valgrind's */
        CHECK_AT(memopt_gemm_multiply(&g.p, &t, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_OK, level);
        CHECK_AT(fetestexcept(FE_DIVBYZERO) == seen, level);
        CHECK_AT(fegetround() == before, level);
        free(raw); free(result); gemm_free(&g);
    }
    feclearexcept(FE_ALL_EXCEPT);
}
static void gemm_nothing(void) { /* no rows, no columns, no depth; pointers to nothing may be NULL */
    uint64_t seed = 7; int begin, types; memopt_product p;
    unsigned char *raw = (unsigned char *)gemm_alloc(MEMOPT_GEMM_SCRATCH + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
    memset(&p, 0, sizeof p);
    CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_OK);
    p.rows = 7; p.depth = p.left_stride = 3;
    p.left = raw;
    CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_OK);
    for (types = 0; types < 27; types += 9)
        for (begin = 0; begin < 3; ++begin) {
            gemm_case g = gemm_make(&seed, types == 9 ? 13 : 3, 37, 0, types, types % 4, begin, 1, 0);
            g.p.left = g.p.right = NULL;
            gemm_levels(&g, begin, (uint64_t)types);
            gemm_free(&g);
        }
    free(raw);
}
static void gemm_interleaved(void) { /* operands and result as columns of one tensor are no overlap */
    static float tensor[8][48], wanted[8][16]; static unsigned char raw[MEMOPT_GEMM_SCRATCH + 64];
    memopt_product p; uint64_t seed = 8; size_t i, j, k; unsigned char *scratch = raw + (0 - (uintptr_t)raw) % 64;
    for (i = 0; i < 8; ++i) for (j = 0; j < 48; ++j) tensor[i][j] = gemm_random(&seed, 0);
    for (i = 0; i < 8; ++i)
        for (j = 0; j < 16; ++j)
            for (k = 0; k < 8; ++k) wanted[i][j] = fmaf(tensor[i][16 + k], tensor[k][32 + j], wanted[i][j]);
    memset(&p, 0, sizeof p);
    p.rows = 8; p.columns = 16; p.depth = 8; p.left_stride = p.right_stride = p.result_stride = 48;
    p.left = &tensor[0][16]; p.right = &tensor[0][32]; p.result = &tensor[0][0];
    CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_OK);
    for (i = 0; i < 8; ++i) CHECK_AT(!memcmp(tensor[i], wanted[i], sizeof wanted[i]), i);
    p.result = &tensor[0][1]; /* its last column is the first of the left one */
    CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_ERR_ARGUMENT);
    p.left = &tensor[0][0]; p.result = &tensor[0][17]; /* ends in the first of the right one */
    CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_ERR_ARGUMENT);
    p.left = &tensor[0][44]; p.result = &tensor[0][0]; /* its rows end in the result's next ones */
    CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_ERR_ARGUMENT);
    p.left = &tensor[0][16]; p.right_stride = 49; /* and so do these, further down */
    CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_ERR_ARGUMENT);
    p.left = &tensor[0][0]; p.result = &tensor[0][16]; p.right_stride = 48;
    CHECK(memopt_gemm_multiply(&p, NULL, scratch, MEMOPT_GEMM_SCRATCH) == MEMOPT_OK);
}
static void gemm_overlaps(void) { /* two matrices anywhere: exactly where they have a byte in common */
    static unsigned char block[400], map[400]; uint64_t seed = 5; size_t i, k, r, b, counts[2] = { 0, 0 };
    for (i = 0; i < 100000; ++i) {
        memopt_i_gemm_matrix m[2]; size_t bytes[2], shared = 0;
        memset(map, 0, sizeof map);
        for (k = 0; k < 2; ++k) {
            const memopt_type type = test_below(&seed, 2) ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16; const size_t size = memopt_type_bytes(type);
            const size_t at = 2 * test_below(&seed, 60), rows = test_below(&seed, 7), columns = test_below(&seed, 5); size_t stride = columns + test_below(&seed, 7);
            if (!stride) stride = 1;
            m[k] = memopt_i_gemm_matrix_of(block + at, rows, columns, 0, stride, type);
            bytes[k] = rows && columns ? ((rows - 1) * stride + columns) * size : 0;
            for (r = 0; r < rows; ++r) for (b = 0; b < columns * size; ++b) {
                unsigned char *byte = map + at + r * stride * size + b;
                shared |= k && *byte; *byte |= !k;
            }
        }
        ++counts[shared];
        CHECK_AT(memopt_i_gemm_overlap(&m[0], bytes[0], &m[1], bytes[1]) == (int)shared, i);
    }
    CHECK(counts[0] > 20000 && counts[1] > 20000);
}
/* Everything that is refused, one thing wrong at a time. */
typedef struct gemm_bad {
    memopt_quantized q; memopt_product p; memopt_threads t; const memopt_threads *threads; void *scratch; size_t bytes;
} gemm_bad;
static const struct { memopt_status status; const char *text; } gemm_reasons[] = {
    { MEMOPT_ERR_ARGUMENT, NULL }, /* there is no product to name an error */
    { MEMOPT_ERR_ARGUMENT, "left is NULL" },
    { MEMOPT_ERR_ARGUMENT, "right is NULL" },
    { MEMOPT_ERR_ARGUMENT, "result is NULL" },
    { MEMOPT_ERR_ARGUMENT, "left is misaligned" },
    { MEMOPT_ERR_ARGUMENT, "right is misaligned" },
    { MEMOPT_ERR_ARGUMENT, "result is misaligned" },
    { MEMOPT_ERR_ARGUMENT, "left_stride 4, at least 5" },
    { MEMOPT_ERR_ARGUMENT, "right_stride 6, at least 7" },
    { MEMOPT_ERR_ARGUMENT, "result_stride 6, at least 7" },
    { MEMOPT_ERR_ARGUMENT, "left_type 3, no such memopt_type" },
    { MEMOPT_ERR_ARGUMENT, "right_type 3, no such memopt_type" },
    { MEMOPT_ERR_ARGUMENT, "result_type 3, no such memopt_type" },
    { MEMOPT_ERR_ARGUMENT, "accumulate is set, and there is a bias" },
    { MEMOPT_ERR_ARGUMENT, "accumulate 2, must be 0 or 1" },
    { MEMOPT_ERR_ARGUMENT, "left_transposed 2, must be 0 or 1" },
    { MEMOPT_ERR_ARGUMENT, "right_transposed -1, must be 0 or 1" },
    { MEMOPT_ERR_ARGUMENT, "bias is misaligned" },
    { MEMOPT_ERR_ARGUMENT, "result overlaps left" },
    { MEMOPT_ERR_ARGUMENT, "result overlaps right" },
    { MEMOPT_ERR_ARGUMENT, "result overlaps bias" },
    { MEMOPT_ERR_ARGUMENT, "result overlaps left" },
    { MEMOPT_ERR_ARGUMENT, "threads have workers without run_fn, or run_fn without workers" },
    { MEMOPT_ERR_ARGUMENT, "threads.simd_level -1, at least 0" },
    { MEMOPT_ERR_ARGUMENT, "scratch is NULL" },
    { MEMOPT_ERR_ARGUMENT, "scratch is misaligned" },
    { MEMOPT_ERR_ARGUMENT, "left_stride 5, at least 6" },
    { MEMOPT_ERR_BUFFER, "scratch_bytes 786431, at least 786432" },
    { MEMOPT_ERR_OVERFLOW, "result is larger than memory can be" },
    { MEMOPT_ERR_OVERFLOW, "result is larger than memory can be" },
    { MEMOPT_ERR_OVERFLOW, "left is larger than memory can be" },
    { MEMOPT_ERR_OVERFLOW, "left is larger than memory can be" },
    { MEMOPT_ERR_OVERFLOW, "result is larger than memory can be" },
    { MEMOPT_ERR_OVERFLOW, "right is larger than memory can be" },
    { MEMOPT_ERR_OVERFLOW, "left is larger than memory can be" },
    { MEMOPT_ERR_OVERFLOW, "right is larger than memory can be" },
    { MEMOPT_ERR_ARGUMENT, "quantized.map 3, at most 2" },
    { MEMOPT_ERR_ARGUMENT, "quantized.block 48, a multiple of 32, at most 4096" },
    { MEMOPT_ERR_ARGUMENT, "quantized.block 4128, a multiple of 32, at most 4096" },
    { MEMOPT_ERR_ARGUMENT, "quantized.absmax is NULL" },
    { MEMOPT_ERR_ARGUMENT, "quantized.absmax is misaligned" },
    { MEMOPT_ERR_ARGUMENT, "right_type 2, codes decode to float32 or bf16" },
    { MEMOPT_ERR_ARGUMENT, "result overlaps right" },
    { MEMOPT_ERR_ARGUMENT, "result overlaps quantized.absmax" },
    { MEMOPT_ERR_ARGUMENT, "right is NULL" }
};
enum { GEMM_REASONS = (int)(sizeof gemm_reasons / sizeof *gemm_reasons) };
static memopt_status gemm_bad_run(gemm_bad *b, int what) {
    float *result = (float *)b->p.result; const memopt_product *p = &b->p;
    if (what >= 36 && what < GEMM_REASONS) b->p.quantized = &b->q; /* right is codes, which may begin anywhere */
    switch (what) {
    case 0: p = NULL; break;
    case 1: b->p.left = NULL; break;
    case 2: b->p.right = NULL; break;
    case 3: b->p.result = NULL; break;
    case 4: b->p.left = (const unsigned char *)b->p.left + 2; break;
    case 5: b->p.right = (const unsigned char *)b->p.right + 1; break;
    case 6: b->p.result = (unsigned char *)b->p.result + 3; break;
    case 7: b->p.left_stride = 4; break;
    case 8: b->p.right_stride = 6; break;
    case 9: b->p.result_stride = 6; break;
    case 10: b->p.left_type = (memopt_type)3; break;
    case 11: b->p.right_type = (memopt_type)3; break;
    case 12: b->p.result_type = (memopt_type)3; break;
    case 13: b->p.accumulate = 1; break; /* and a bias */
    case 14: b->p.bias = NULL; b->p.accumulate = 2; break;
    case 15: b->p.left_transposed = 2; break;
    case 16: b->p.right_transposed = -1; break;
    case 17: b->p.bias = (const float *)(const void *)((const unsigned char *)b->p.bias + 1); break;
    case 18: b->p.result = (float *)(uintptr_t)b->p.left; break;
    case 19: b->p.result = (float *)(uintptr_t)b->p.right + 34; break; /* the right one's last element */
    case 20: b->p.result = (float *)(uintptr_t)b->p.bias - 6; break;
    case 21: b->p.left = result + 34; break;
    case 22: b->t.worker_count = 2; b->threads = &b->t; break; /* and no run_fn */
    case 23: b->t.simd_level = -1; b->threads = &b->t; break;
    case 24: b->scratch = NULL; break;
    case 25: b->scratch = (unsigned char *)b->scratch + 32; break;
    case 26: b->p.left_transposed = 1; break; /* its stride is below its rows */
    case 27: --b->bytes; break;
    case 28: b->p.rows = SIZE_MAX; break;
    case 29: b->p.columns = b->p.result_stride = b->p.right_stride = SIZE_MAX; break;
    case 30: b->p.depth = b->p.left_stride = SIZE_MAX; break;
    case 31: b->p.left_stride = SIZE_MAX / 4; break;
    case 32: b->p.result_stride = SIZE_MAX / 8; break;
    case 33: b->p.right_stride = SIZE_MAX / 4 + 1; break;
    case 34: b->p.depth = b->p.left_stride = SIZE_MAX / 4; break;
    case 35: b->p.right_stride = SIZE_MAX / 24; break; /* fits size_t, but no memory */
    case 36: b->q.map = (memopt_quant_map)3; break;
    case 37: b->q.block = 48; break;
    case 38: b->q.block = 4128; break;
    case 39: b->q.absmax = NULL; break;
    case 40: b->q.absmax = (const float *)(const void *)((const unsigned char *)b->q.absmax + 2); break;
    case 41: b->p.right_type = MEMOPT_TYPE_F16; break;
    case 42: b->p.right = (const unsigned char *)b->p.result - 34; break; /* the last code is the result's first byte */
    case 43: b->q.absmax = result + 40; break; /* of two blocks the second one; the first is in the result's last rows */
    case 44: b->p.right = NULL; break;
    default: return MEMOPT_ERR_OVERFLOW;
    }
    return memopt_gemm_multiply(p, b->threads, b->scratch, b->bytes);
}
static void gemm_refused(void) {
    static float operands[512], results[64], before[64]; int what; size_t i;
    unsigned char *raw = (unsigned char *)gemm_alloc(MEMOPT_GEMM_SCRATCH + 64); gemm_bad b, right; char text[128];
    for (i = 0; i < 512; ++i) operands[i] = (float)i;
    for (i = 0; i < 64; ++i) before[i] = results[i] = (float)i;
    for (what = 0; what <= GEMM_REASONS; ++what) { /* the last: nothing is wrong */
        memopt_status s;
        memset(&b, 0, sizeof b);
        b.p.rows = 6; b.p.columns = 7; b.p.depth = 5; b.p.left_stride = 5; b.p.right_stride = b.p.result_stride = 7;
        b.p.left = operands; b.p.right = operands + 128; b.p.bias = operands + 256; b.p.result = results;
        b.q.absmax = operands + 320; b.q.map = MEMOPT_QUANT_LINEAR; b.q.block = 32;
        b.scratch = raw + (0 - (uintptr_t)raw) % 64; b.bytes = MEMOPT_GEMM_SCRATCH;
        right = b;
        s = gemm_bad_run(&b, what);
        CHECK_AT(s == (what < GEMM_REASONS ? gemm_reasons[what].status : MEMOPT_ERR_OVERFLOW), what);
        if (what && what < GEMM_REASONS) { /* and why */
            b = right;
            b.p.error = &test_why;
            test_why_reset();
            s = gemm_bad_run(&b, what);
            snprintf(text, sizeof text, "gemm: %s", gemm_reasons[what].text);
            CHECK_AT(test_refused(s, gemm_reasons[what].status, text), what);
        }
        CHECK_AT(!memcmp(results, before, sizeof results), what);
        for (i = 0; i < 512; ++i) CHECK_AT(memopt_i_float_bits(operands[i]) == memopt_i_float_bits((float)i), what);
    }
    ACCEPTS(b.p.error, (void)0, memopt_gemm_multiply(&b.p, NULL, b.scratch, b.bytes));
    CHECK(memcmp(results, before, sizeof results));
    b.p.rows = b.p.columns = b.p.depth = 1; /* one element, on itself; a stride of one row is never taken */
    b.p.left = results; b.p.left_stride = b.p.right_stride = b.p.result_stride = SIZE_MAX / 4 + 1;
    CHECK(memopt_gemm_multiply(&b.p, NULL, b.scratch, b.bytes) != MEMOPT_OK);
    free(raw);
}
static memopt_status gemm_other(void *user, const memopt_product *product, const memopt_threads *threads, void *scratch) {
    (void)user; (void)product; (void)threads; (void)scratch;
    return MEMOPT_ERR_DEVICE;
}
static void gemm_tables(void) {
    memopt_gemm in, out; test_worker_set worker_set; memopt_threads t; int i;
    memset(&in, 0, sizeof in); memset(&out, 0, sizeof out);
    CHECK(memopt_gemm_resolve(NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_gemm_resolve(&in, NULL) == MEMOPT_ERR_ARGUMENT);
    in.scratch_bytes = 64;
    CHECK(memopt_gemm_resolve(&in, &out) == MEMOPT_ERR_ARGUMENT && !out.multiply_fn && !out.scratch_bytes && !out.user);
    in.scratch_bytes = 0; in.user = &in;
    CHECK(memopt_gemm_resolve(&in, &out) == MEMOPT_ERR_ARGUMENT && !out.multiply_fn && !out.scratch_bytes && !out.user);
    in.scratch_bytes = 77; in.multiply_fn = gemm_other;
    CHECK(memopt_gemm_resolve(&in, &out) == MEMOPT_OK && out.multiply_fn == gemm_other && out.scratch_bytes == 77 && out.user == &in);
    for (i = 0; i < 2; ++i) {
        memset(&in, 0, sizeof in);
        CHECK(memopt_gemm_resolve(i ? &in : NULL, &out) == MEMOPT_OK);
        CHECK(out.multiply_fn && out.scratch_bytes == MEMOPT_GEMM_SCRATCH && !out.user);
    }
    t = test_workers(&worker_set, 5, 0);
    CHECK(memopt_gemm_scratch(NULL) == MEMOPT_GEMM_SCRATCH && memopt_gemm_scratch(&t) == 5 * MEMOPT_GEMM_SCRATCH);
    CHECK(MEMOPT_GEMM_SCRATCH % 64 == 0); /* panel, block and tile fit, with a page to the next worker's */
    CHECK(4 * (MEMOPT_I_GEMM_BLOCK + MEMOPT_I_GEMM_DEPTH * MEMOPT_I_GEMM_TILE_COLUMNS_MAX + MEMOPT_I_GEMM_ROWS * MEMOPT_I_GEMM_COLUMNS_AS_FLOATS) + 4096
          <= MEMOPT_GEMM_SCRATCH);
}
#if defined(TEST_CBLAS)
/* The adapter: any order of sums, so against float64. depth roundings of sums and as many of products; a 16-bit result
   is rounded once more, by at most half of its last place. */
static void gemm_cblas_run(const gemm_case *g, const memopt_threads *threads, uint64_t at) {
    const memopt_gemm gemm = memopt_cblas(); const size_t bytes = gemm.scratch_bytes * (size_t)memopt_i_worker_count(threads);
    unsigned char *raw = (unsigned char *)gemm_alloc(bytes + 64), *scratch = raw + (0 - (uintptr_t)raw) % 64;
    const memopt_type type = g->p.result_type; const int bits = type == MEMOPT_TYPE_BF16 ? 8 : type == MEMOPT_TYPE_F16 ? 11 : 60;
    memopt_product p = g->p; size_t i, j, k;
    memset(raw, 0xA5, bytes + 64);
    p.result = gemm_alloc(g->result_bytes);
    memcpy(p.result, g->first, g->result_bytes);
    CHECK_AT(gemm.multiply_fn(gemm.user, &p, threads, scratch) == MEMOPT_OK, at);
    for (i = 0; i < p.rows; ++i)
        for (j = 0; j < p.columns + (i + 1 < p.rows ? p.result_stride - p.columns : 0); ++j) {
            const size_t to = i * p.result_stride + j; double exact, size;
            if (j >= p.columns) { CHECK_AT(gemm_same(p.result, g->first, type, to), at); continue; } /* the gap */
            exact = p.accumulate ? (double)gemm_get(g->first, type, to) : p.bias ? (double)p.bias[j] : 0;
            size = fabs(exact);
            for (k = 0; k < p.depth; ++k) {
                const double product = (double)gemm_get(p.left, p.left_type, gemm_left_at(&p, i, k))
                                     * (double)gemm_get(p.right, p.right_type, gemm_right_at(&p, k, j));
                exact += product; size += fabs(product);
            }
            CHECK_AT(fabs((double)gemm_get(p.result, type, to) - exact)
                     <= 2 * (double)(p.depth + 1) * ldexp(size, -24) + ldexp(fabs(exact), -bits) * 1.001 + ldexp(1.0, -25), at);
        }
    for (i = (size_t)(scratch - raw) + bytes; i < bytes + 64; ++i) CHECK_AT(raw[i] == 0xA5, at);
    free(p.result); free(raw);
}
#if defined(OPENBLAS_CONFIG_H) /* one that the library may lack, and that counts its calls */
static int gemm_bf16_calls;
void cblas_sbgemm(OPENBLAS_CONST enum CBLAS_ORDER order, OPENBLAS_CONST enum CBLAS_TRANSPOSE a, OPENBLAS_CONST enum CBLAS_TRANSPOSE b, OPENBLAS_CONST blasint m,
                  OPENBLAS_CONST blasint n, OPENBLAS_CONST blasint depth, OPENBLAS_CONST float alpha, OPENBLAS_CONST bfloat16 *x, OPENBLAS_CONST blasint lda,
                  OPENBLAS_CONST bfloat16 *y, OPENBLAS_CONST blasint ldb, OPENBLAS_CONST float beta, float *z, OPENBLAS_CONST blasint ldc) {
    blasint i, j, k;
    CHECK(order == CblasRowMajor && alpha == 1 && beta == 1);
    ++gemm_bf16_calls;
    for (i = 0; i < m; ++i) for (j = 0; j < n; ++j) {
        double sum = (double)z[i * ldc + j];
        for (k = 0; k < depth; ++k)
            sum += (double)memopt_from_bf16(x[a == CblasTrans ? k * lda + i : i * lda + k]) * (double)memopt_from_bf16(y[b == CblasTrans ? j * ldb + k : k * ldb + j]);
        z[i * ldc + j] = (float)sum;
    }
}
#endif
static void gemm_cblas(void) {
    static const size_t sizes[][3] = { { 1, 1, 1 }, { 1, 70, 33 }, { 13, 17, 0 }, { 37, 5, 64 }, { 300, 20, 40 }, { 20, 300, 270 } };
    uint64_t seed = 9; size_t i; int types, workers = 0; test_worker_set worker_set; memopt_product p;
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (types = 0; types < 27; ++types) {
            gemm_case g = gemm_make(&seed, sizes[i][0], sizes[i][1], sizes[i][2], types, (int)test_below(&seed, 4),
                                    types % 3, i % 2 * 3, 0);
            const memopt_threads t = test_workers(&worker_set, workers++ % 5, 0);
            gemm_cblas_run(&g, &t, i * 27 + (uint64_t)types);
            gemm_free(&g);
        }
    memset(&p, 0, sizeof p);
    CHECK(memopt_cblas().multiply_fn(NULL, &p, NULL, NULL) == MEMOPT_OK);
    p.rows = p.columns = 1; p.depth = (size_t)INT_MAX + 1;
    CHECK(memopt_cblas().multiply_fn(NULL, &p, NULL, NULL) == MEMOPT_ERR_OVERFLOW);
#if defined(OPENBLAS_CONFIG_H)
    CHECK(gemm_bf16_calls > 10);
#endif
}
#endif
void test_gemm(void);
void test_gemm(void) {
    RUN(gemm_combinations);
    RUN(gemm_every_size);
    RUN(gemm_blocks); RUN(gemm_few_rows); RUN(gemm_quantized); RUN(gemm_deep); RUN(gemm_much_to_carry);
    RUN(gemm_workers);
    RUN(gemm_wild);
    RUN(gemm_parts); RUN(gemm_parts_of_32); RUN(gemm_bits); RUN(gemm_band); RUN(gemm_zeros); RUN(gemm_bands); RUN(gemm_no_depth); RUN(gemm_residuals); RUN(gemm_modes); RUN(gemm_dots);
    RUN(gemm_nothing);
    RUN(gemm_interleaved);
    RUN(gemm_overlaps);
    RUN(gemm_refused);
    RUN(gemm_tables);
#if defined(TEST_CBLAS)
    RUN(gemm_cblas);
#endif
}
#ifndef TEST_COMBINED
int main(void) { test_gemm(); return test_totals(); }
#endif
