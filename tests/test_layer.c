/* test_layer.c - linear layers, activations, SwiGLU, dropout, embeddings. Values are compared with plain double
   versions written here, gradients with differences of those; then the bits: every level, any workers, in parts. */
#include "test.h"
#include "examples/parts/rotary_scaling.h"
#include "scratch.h"

#define LAYER_BLOCKS 64
static void *layer_blocks[LAYER_BLOCKS]; static size_t layer_blocks_count;
static void *layer_alloc(size_t bytes) { /* with the size asked for, so that sanitizers see its end; freed by layer_done() */
    void *p = malloc(bytes + !bytes);
    if (!p || layer_blocks_count == LAYER_BLOCKS) { printf("test_layer: out of memory\n"); exit(1); }
    return layer_blocks[layer_blocks_count++] = p;
}
static void layer_done(void) { while (layer_blocks_count) free(layer_blocks[--layer_blocks_count]); }
static const memopt_type layer_types[] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16 };
static void layer_put(memopt_type type, void *data, size_t i, double x) {
    volatile float narrow = (float)x; const float f = narrow; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy((unsigned char *)data + 4 * i, &f, 4); return; }
    code = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(f) : memopt_to_f16(f);
    memcpy((unsigned char *)data + 2 * i, &code, 2);
}
static double layer_get(memopt_type type, const void *data, size_t i) {
    float f; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&f, (const unsigned char *)data + 4 * i, 4); return (double)f; }
    memcpy(&code, (const unsigned char *)data + 2 * i, 2);
    return (double)(type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(code) : memopt_from_f16(code));
}
/* n random elements from -2 to 2, and 4 bytes behind them that nobody may touch */
static void *layer_new(memopt_type type, size_t n, uint64_t seed) {
    unsigned char *p = (unsigned char *)layer_alloc(n * memopt_type_bytes(type) + 4); size_t i;
    for (i = 0; i < n; ++i) layer_put(type, p, i, (double)(test_random(&seed) >> 40) / 4194304.0 - 2);
    memset(p + n * memopt_type_bytes(type), 0x5a, 4);
    return p;
}
static int layer_end_is_kept(memopt_type type, const void *data, size_t n) {
    const unsigned char *p = (const unsigned char *)data + n * memopt_type_bytes(type);
    return p[0] == 0x5a && p[1] == 0x5a && p[2] == 0x5a && p[3] == 0x5a;
}
static double *layer_doubles(memopt_type type, const void *data, size_t n) {
    double *d = (double *)layer_alloc(n * sizeof *d); size_t i;
    for (i = 0; i < n; ++i) d[i] = layer_get(type, data, i);
    return d;
}
/* Half a unit in the last place of a type, relative; what float arithmetic on a few dozen terms may be off by besides. */
static double layer_unit(memopt_type type) {
    return type == MEMOPT_TYPE_F32 ? 0 : type == MEMOPT_TYPE_BF16 ? 1.0 / 256 : 1.0 / 2048;
}
static int layer_close(memopt_type type, double got, double want, double size) {
    return fabs(got - want) <= layer_unit(type) * fabs(want) * 1.01 + size * 4e-6 + (type == MEMOPT_TYPE_F16 ? 3e-8 : 0);
}
/* With the scratch that a linear layer asks for, to the byte. */
static memopt_ops layer_ops(const memopt_threads *threads, const memopt_linear *linear) {
    memopt_ops ops;
    memset(&ops, 0, sizeof ops);
    ops.threads = threads;
    if (linear) {
        unsigned char *p;
        CHECK(scratch_of_linear(&ops, linear, &ops.scratch_bytes) == MEMOPT_OK);
        p = (unsigned char *)layer_alloc(ops.scratch_bytes + 63);
        ops.scratch = p + (63 & (64 - (uintptr_t)p % 64));
    }
    return ops;
}

/* ---- plain versions, in double ---- */
static double layer_logistic(double z) { return 1 / (1 + exp(-z)); }
static double layer_active(memopt_activation a, double x) {
    const double z = a == MEMOPT_ACTIVATION_GELU ? 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)
        : x;
    return a == MEMOPT_ACTIVATION_NONE ? x : a == MEMOPT_ACTIVATION_RELU ? (x > 0 ? x : 0) : x * layer_logistic(z);
}
typedef struct layer_plain { /* loss = sum of g * output */
    size_t rows, inputs, outputs;
    memopt_activation activation;
    double *x, *w, *b, *g;
} layer_plain;
typedef double layer_loss_fn(const layer_plain *p);
static double layer_plain_linear(const layer_plain *p, size_t row, size_t column) {
    double z = p->b ? p->b[column] : 0; size_t k;
    for (k = 0; k < p->inputs; ++k) z += p->x[row * p->inputs + k] * p->w[column * p->inputs + k];
    return z;
}
static double layer_linear_loss(const layer_plain *p) {
    double loss = 0; size_t i, j;
    for (i = 0; i < p->rows; ++i)
        for (j = 0; j < p->outputs; ++j)
            loss += p->g[i * p->outputs + j] * layer_active(p->activation, layer_plain_linear(p, i, j));
    return loss;
}
static double layer_activation_loss(const layer_plain *p) {
    double loss = 0; size_t i;
    for (i = 0; i < p->rows; ++i) loss += p->g[i] * layer_active(p->activation, p->x[i]);
    return loss;
}
static double layer_swiglu_loss(const layer_plain *p) {
    double loss = 0; size_t i, j;
    for (i = 0; i < p->rows; ++i)
        for (j = 0; j < p->outputs; ++j)
            loss += p->g[i * p->outputs + j] * layer_active(p->activation, p->x[i * 2 * p->outputs + j])
                  * p->x[i * 2 * p->outputs + p->outputs + j];
    return loss;
}
static double layer_slope(layer_loss_fn *loss, const layer_plain *p, double *parameter) {
    const double kept = *parameter, step = 1e-4; double above, below;
    *parameter = kept + step; above = loss(p);
    *parameter = kept - step; below = loss(p);
    *parameter = kept;
    return (above - below) / (2 * step);
}

/* ---- linear ---- */
static memopt_linear layer_linear(size_t rows, size_t inputs, size_t outputs, memopt_type type, memopt_type weight_type,
                                  memopt_type gradient_type) {
    memopt_linear x;
    memset(&x, 0, sizeof x);
    x.rows = rows; x.inputs = inputs; x.outputs = outputs;
    x.type = type; x.weight_type = weight_type; x.gradient_type = gradient_type;
    x.input = layer_new(type, rows * inputs, 1); x.weights = layer_new(weight_type, outputs * inputs, 2);
    x.bias = layer_new(weight_type, outputs, 3); x.grad_output = layer_new(type, rows * outputs, 4);
    x.output = layer_new(type, rows * outputs, 5); x.grad_input = layer_new(type, rows * inputs, 6);
    x.grad_weights = layer_new(gradient_type, outputs * inputs, 7);
    x.grad_bias = layer_new(gradient_type, outputs, 8);
    return x;
}
static void layer_linear_case(size_t rows, size_t inputs, size_t outputs, memopt_type type, memopt_type weight_type,
                              memopt_type gradient_type, int accumulate) {
    memopt_linear x = layer_linear(rows, inputs, outputs, type, weight_type, gradient_type); layer_plain p; size_t i;
    memopt_ops ops = layer_ops(NULL, &x); const double unit = layer_unit(type); double *old_x, *old_w, *old_b;
    const double sizes = 4 * (double)(rows + inputs + outputs); int kind;
    memset(&p, 0, sizeof p);
    p.rows = rows; p.inputs = inputs; p.outputs = outputs;
    p.x = layer_doubles(type, x.input, rows * inputs); p.w = layer_doubles(weight_type, x.weights, outputs * inputs);
    p.b = layer_doubles(weight_type, x.bias, outputs); p.g = layer_doubles(type, x.grad_output, rows * outputs);
    for (kind = MEMOPT_ACTIVATION_NONE; kind <= MEMOPT_ACTIVATION_SILU; ++kind) {
        void *pre_activation = layer_new(type, rows * outputs, 9);
        x.activation = (memopt_activation)kind;
        CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK);
        for (i = 0; i < rows * outputs; ++i) {
            const double z = layer_plain_linear(&p, i / outputs, i % outputs);
            CHECK_AT(layer_close(type, layer_get(type, x.output, i), layer_active(x.activation, z),
                                 sizes + unit * fabs(z) * 1.2 / 4e-6), i);
        }
        CHECK(layer_end_is_kept(type, x.output, rows * outputs));
        { /* with `before`: the same, and what it was made of */
            void *first = x.output;
            x.pre_activation = pre_activation; x.output = layer_new(type, rows * outputs, 10);
            CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK);
            CHECK(!memcmp(first, x.output, rows * outputs * memopt_type_bytes(type)));
            for (i = 0; i < rows * outputs; ++i)
                CHECK_AT(layer_close(type, layer_get(type, pre_activation, i),
                                     layer_plain_linear(&p, i / outputs, i % outputs), sizes), i);
            CHECK(layer_end_is_kept(type, x.output, rows * outputs)
                  && layer_end_is_kept(type, pre_activation, rows * outputs));
            x.pre_activation = NULL;
        }
    }
    old_x = layer_doubles(type, x.grad_input, rows * inputs); old_b = layer_doubles(gradient_type, x.grad_bias, outputs);
    old_w = layer_doubles(gradient_type, x.grad_weights, outputs * inputs);
    x.accumulate = accumulate; x.accumulate_input = accumulate; p.activation = MEMOPT_ACTIVATION_NONE;
    CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK);
    for (i = 0; i < rows * inputs; ++i)
        CHECK_AT(layer_close(type, layer_get(type, x.grad_input, i), layer_slope(layer_linear_loss, &p, p.x + i)
                             + (accumulate ? old_x[i] : 0), sizes), i);
    for (i = 0; i < outputs * inputs; ++i)
        CHECK_AT(layer_close(gradient_type, layer_get(gradient_type, x.grad_weights, i),
                             layer_slope(layer_linear_loss, &p, p.w + i) + (accumulate ? old_w[i] : 0), sizes), i);
    for (i = 0; i < outputs; ++i)
        CHECK_AT(layer_close(gradient_type, layer_get(gradient_type, x.grad_bias, i),
                             layer_slope(layer_linear_loss, &p, p.b + i) + (accumulate ? old_b[i] : 0), sizes), i);
    CHECK(layer_end_is_kept(type, x.grad_input, rows * inputs) && layer_end_is_kept(gradient_type, x.grad_bias, outputs));
    CHECK(layer_end_is_kept(gradient_type, x.grad_weights, outputs * inputs));
    layer_done();
}
static void layer_linear_values(void) {
    static const size_t sizes[][3] = { { 1, 1, 1 }, { 2, 3, 17 }, { 7, 8, 9 }, { 5, 17, 16 }, { 9, 6, 33 },
                                       { 6, 2, 700 } }; /* two shares of columns */
    size_t i, t, w;
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (t = 0; t < 3; ++t)
            for (w = 0; w < 3; ++w)
                if (!test_is_passed_over())
                    layer_linear_case(sizes[i][0], sizes[i][1], sizes[i][2], layer_types[t], layer_types[w],
                                      layer_types[(t + w + i) % 3], (int)(i + w) % 2);
}
/* Frozen weights of 8 bits: the bits of the layer whose weights are what the codes decode to, in both directions. */
static void layer_linear_quantized(void) {
    static const size_t shapes[][3] = { { 1, 70, 45 }, { 3, 40, 33 }, { 8, 96, 64 }, { 21, 33, 50 }, { 400, 64, 31 } };
    uint64_t seed = 7; size_t i, k;
    for (i = 0; i < 20; ++i) {
        const size_t *d = shapes[i % 5], n = d[1] * d[2]; const memopt_type type = layer_types[i % 3], kind = i % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        memopt_linear x = layer_linear(d[0], d[1], d[2], type, kind, MEMOPT_TYPE_F32), y; memopt_ops ops = layer_ops(NULL, &x); memopt_quantized q; size_t bytes;
        uint8_t *codes = (uint8_t *)layer_alloc(n); float *absmax = (float *)layer_alloc(((n + 31) / 32) * sizeof *absmax), *decoded = (float *)(void *)layer_alloc(n * 4);
        for (k = 0; k < (n + 31) / 32; ++k) absmax[k] = (float)(1 + test_below(&seed, 1000)) / 4096;
        for (k = 0; k < n; ++k) {
            volatile float level, w;
            codes[k] = (uint8_t)test_random(&seed);
            level = memopt_i_map_level((memopt_quant_map)(i % 3), codes[k]);
            decoded[k] = w = level * absmax[k / 32];
        }
        memopt_i_from_f32(MEMOPT_SIMD_SCALAR, (void *)(uintptr_t)x.weights, decoded, kind, n);
        q.absmax = absmax; q.map = (memopt_quant_map)(i % 3); q.block = 32;
        y = x;
        y.weights = codes; y.quantized = &q; y.grad_weights = NULL;
        x.activation = y.activation = (memopt_activation)(i % 4);
        y.output = layer_new(type, d[0] * d[2], 11); y.grad_input = layer_new(type, d[0] * d[1], 12); y.grad_bias = layer_new(MEMOPT_TYPE_F32, d[2], 13);
        CHECK_AT(scratch_of_linear(&ops, &y, &bytes) == MEMOPT_OK && bytes == ops.scratch_bytes, i);
        CHECK_AT(memopt_linear_forward(&ops, &x) == MEMOPT_OK && memopt_linear_forward(&ops, &y) == MEMOPT_OK, i);
        CHECK_AT(!memcmp(x.output, y.output, d[0] * d[2] * memopt_type_bytes(type)), i);
        CHECK_AT(memopt_linear_backward(&ops, &x) == MEMOPT_OK && memopt_linear_backward(&ops, &y) == MEMOPT_OK, i);
        CHECK_AT(!memcmp(x.grad_input, y.grad_input, d[0] * d[1] * memopt_type_bytes(type)), i);
        CHECK_AT(!memcmp(x.grad_bias, y.grad_bias, d[2] * sizeof(float)), i);
        layer_done();
    }
}
static memopt_status layer_no_gemm(void *user, const memopt_product *p, const memopt_threads *t, void *scratch) {
    (void)user; (void)p; (void)t; (void)scratch;
    return MEMOPT_ERR_DEVICE;
}
static void layer_linear_quantized_refused(void) {
    memopt_linear x = layer_linear(3, 4, 5, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32), y; memopt_ops ops = layer_ops(NULL, &x), own; int i;
    static const char *const reasons[] = { "linear: quantized.map 3, at most 2", "linear: quantized.block 31, a multiple of 32, at most 4096", "linear: quantized.absmax is NULL",
        "linear: quantized.absmax is misaligned", "linear: weights is NULL", "linear: weight_type 2, codes decode to float32 or bf16",
        "linear: quantized is set, and the gemm is not the built-in one", "linear: grad_weights is set, and quantized weights are frozen" };
    memopt_quantized q; float absmax[2] = { 1, 1 }; unsigned char kept[60]; memopt_error why;
    memcpy(kept, x.output, 60);
    for (i = 0; i < 8; ++i) {
        char text[128]; size_t length;
        q.absmax = absmax; q.map = MEMOPT_QUANT_SIGNED; q.block = 0;
        y = x; y.quantized = &q; y.grad_weights = NULL; own = ops; own.error = &why;
        if (i == 0) q.map = (memopt_quant_map)3;
        if (i == 1) q.block = 31;
        if (i == 2) q.absmax = NULL;
        if (i == 3) q.absmax = (const float *)(const void *)((const unsigned char *)absmax + 1);
        if (i == 4) y.weights = NULL;
        if (i == 5) { y.weight_type = MEMOPT_TYPE_F16; y.bias = NULL; }
        if (i == 6) own.gemm.multiply_fn = layer_no_gemm;
        if (i == 7) y.grad_weights = x.grad_weights;
        memset(&why, 0, sizeof why);
        if (i < 7) CHECK_AT(memopt_linear_forward(&own, &y) == MEMOPT_ERR_ARGUMENT, i);
        else CHECK_AT(memopt_linear_backward(&own, &y) == MEMOPT_ERR_ARGUMENT, i);
        CHECK_AT(memopt_error_text(&why, text, sizeof text, &length) == MEMOPT_OK && !strcmp(text, reasons[i]), i);
        if (i < 7) CHECK_AT(memopt_linear_backward(&own, &y) == MEMOPT_ERR_ARGUMENT, i);
        CHECK_AT(!memcmp(kept, x.output, 60), i);
    }
    layer_done();
}
static void layer_linear_wanted(void) { /* what is NULL is neither needed nor made */
    memopt_linear x = layer_linear(3, 4, 5, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32), all = x, y;
    memopt_ops ops = layer_ops(NULL, &x); float grad[20], kept[20];
    CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK);
    memcpy(grad, x.grad_weights, sizeof grad);
    y = x; y.weights = NULL; y.grad_input = NULL; y.output = NULL; y.bias = NULL; y.grad_bias = NULL;
    CHECK(memopt_linear_backward(&ops, &y) == MEMOPT_OK);
    CHECK(!memcmp(grad, x.grad_weights, sizeof grad));
    memcpy(kept, x.grad_bias, 5 * sizeof *kept);
    y = x; y.input = NULL; y.grad_weights = NULL; y.grad_input = NULL; y.weights = NULL;
    CHECK(memopt_linear_backward(&ops, &y) == MEMOPT_OK && !memcmp(kept, x.grad_bias, 5 * sizeof *kept));
    y.grad_bias = NULL; y.grad_output = NULL; y.gradient_type = (memopt_type)3;
    CHECK(memopt_linear_backward(&ops, &y) == MEMOPT_OK);
    x.bias = NULL; y = x;
    CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK);
    memset((void *)(uintptr_t)all.bias, 0, 10);
    y.bias = all.bias; y.output = layer_new(MEMOPT_TYPE_F32, 15, 1);
    CHECK(memopt_linear_forward(&ops, &y) == MEMOPT_OK && !memcmp(x.output, y.output, 15 * sizeof(float)));
    x.rows = 0; x.input = x.grad_output = x.output = x.grad_input = NULL; /* no rows: gradients are 0 */
    CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK);
    x.accumulate = 1;
    CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK && !memcmp(grad, x.grad_weights, sizeof grad));
    x.accumulate = 0;
    CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK);
    memset(kept, 0, sizeof kept);
    CHECK(!memcmp(kept, x.grad_weights, 20 * sizeof *kept) && !memcmp(kept, x.grad_bias, 5 * sizeof *kept));
    layer_done();
}
/* A gradient of 16 bits is rounded once a call, not once a row: 600 rows of 2^-9 that one by one would all be lost. */
static void layer_sums_are_float(void) {
    memopt_linear x = layer_linear(600, 1, 1, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16); memopt_ops ops; size_t i;
    static int32_t ids[600]; memopt_embedding e;
    for (i = 0; i < 600; ++i) { layer_put(x.type, (void *)(uintptr_t)x.grad_output, i, 1.0 / 512); }
    for (i = 0; i < 600; ++i) { layer_put(x.type, (void *)(uintptr_t)x.input, i, 1); }
    layer_put(x.gradient_type, x.grad_bias, 0, 1); layer_put(x.gradient_type, x.grad_weights, 0, 1);
    x.accumulate = 1;
    ops = layer_ops(NULL, &x);
    CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK);
    CHECK(layer_get(x.gradient_type, x.grad_bias, 0) == 2.171875 && layer_get(x.gradient_type, x.grad_weights, 0) == 2.171875);
    memset(&e, 0, sizeof e); /* tokens: once for 256 rows; positions: once */
    e.rows = 600; e.width = 1; e.vocabulary = 3; e.length = 1; e.gradient_type = MEMOPT_TYPE_BF16; e.accumulate = 1;
    e.ids = ids; e.grad_output = x.grad_output; e.grad_tokens = layer_new(e.gradient_type, 3, 1);
    e.grad_positions = layer_new(e.gradient_type, 1, 1);
    layer_put(e.gradient_type, e.grad_tokens, 0, 1); layer_put(e.gradient_type, e.grad_positions, 0, 1);
    CHECK(memopt_embedding_backward(NULL, &e) == MEMOPT_OK);
    CHECK(layer_get(e.gradient_type, e.grad_positions, 0) == 2.171875); /* 2.171875: the nearest to 1 + 600 / 512 */
    CHECK(layer_get(e.gradient_type, e.grad_tokens, 0) == 2.171875);
    layer_done();
}

/* ---- activations, SwiGLU ---- */
static void layer_activation_values(void) {
    static const size_t sizes[] = { 0, 1, 7, 8, 9, 15, 16, 17, 33, 255, 256, 257, 700 }; size_t s, t, i; int kind;
    for (s = 0; s < sizeof sizes / sizeof *sizes; ++s)
        for (t = 0; t < 3; ++t)
            for (kind = MEMOPT_ACTIVATION_NONE; kind <= MEMOPT_ACTIVATION_SILU; ++kind) {
                const size_t n = sizes[s];
                const memopt_type type = layer_types[t]; memopt_activation_args x; layer_plain p;
                memset(&x, 0, sizeof x); memset(&p, 0, sizeof p);
                x.n = n; x.type = type; x.activation = p.activation = (memopt_activation)kind;
                x.input = layer_new(type, n, n); x.grad_output = layer_new(type, n, n + 1);
                x.output = layer_new(type, n, 3); x.grad_input = layer_new(type, n, 4);
                CHECK(memopt_activation_forward(NULL, &x) == MEMOPT_OK);
                p.rows = 1; p.x = layer_doubles(type, x.input, n); p.g = layer_doubles(type, x.grad_output, n);
                for (i = 0; i < n; ++i)
                    CHECK_AT(layer_close(type, layer_get(type, x.output, i), layer_active(x.activation, p.x[i]), 1), i);
                x.output = NULL;
                CHECK(memopt_activation_backward(NULL, &x) == MEMOPT_OK);
                for (i = 0; i < n; ++i) {
                    layer_plain one = p;
                    one.x += i; one.g += i;
                    CHECK_AT(layer_close(type, layer_get(type, x.grad_input, i),
                                         layer_slope(layer_activation_loss, &one, one.x), 1), i);
                }
                CHECK(layer_end_is_kept(type, x.grad_input, n));
                layer_done();
            }
}
static void layer_activation_in_place(void) { /* and the output once more */
    size_t t; int kind;
    for (t = 0; t < 3; ++t)
        for (kind = MEMOPT_ACTIVATION_NONE; kind <= MEMOPT_ACTIVATION_SILU; ++kind) {
            const size_t n = 777, bytes = n * memopt_type_bytes(layer_types[t]); memopt_activation_args x, y; void *out;
            memset(&x, 0, sizeof x);
            x.n = n; x.type = layer_types[t]; x.activation = (memopt_activation)kind;
            x.input = layer_new(x.type, n, 1); x.grad_output = layer_new(x.type, n, 2);
            out = x.output = layer_new(x.type, n, 3); x.grad_input = layer_new(x.type, n, 4);
            CHECK(memopt_activation_forward(NULL, &x) == MEMOPT_OK);
            x.output = layer_new(x.type, n, 5);
            CHECK(memopt_activation_backward(NULL, &x) == MEMOPT_OK && !memcmp(x.output, out, bytes));
            y = x;
            y.input = y.output = layer_new(x.type, n, 1); y.grad_output = y.grad_input = layer_new(x.type, n, 2);
            CHECK(memopt_activation_backward(NULL, &y) == MEMOPT_OK);
            CHECK(!memcmp(y.output, out, bytes) && !memcmp(y.grad_input, x.grad_input, bytes));
            y.input = y.output = layer_new(x.type, n, 1);
            CHECK(memopt_activation_forward(NULL, &y) == MEMOPT_OK && !memcmp(y.output, out, bytes));
            CHECK(layer_end_is_kept(x.type, y.output, n) && layer_end_is_kept(x.type, x.output, n));
            layer_done();
        }
}
typedef memopt_status layer_gated_fn(const memopt_ops *ops, const memopt_swiglu *x);
static void layer_gated_values(memopt_activation kind, layer_gated_fn *forward, layer_gated_fn *backward) {
    static const size_t sizes[][2] = { { 1, 1 }, { 3, 7 }, { 2, 8 }, { 1, 9 }, { 2, 15 }, { 3, 16 }, { 2, 17 }, { 2, 300 } };
    size_t s, t, i, j;
    for (s = 0; s < sizeof sizes / sizeof *sizes; ++s)
        for (t = 0; t < 3; ++t) {
            const memopt_type type = layer_types[t]; memopt_swiglu x; layer_plain p; void *out; size_t bytes;
            if (test_is_passed_over()) continue;
            memset(&x, 0, sizeof x); memset(&p, 0, sizeof p);
            x.rows = sizes[s][0]; x.width = sizes[s][1]; x.type = type;
            x.input = layer_new(type, x.rows * x.width * 2, 1); x.grad_output = layer_new(type, x.rows * x.width, 2);
            x.output = layer_new(type, x.rows * x.width, 3); x.grad_input = layer_new(type, x.rows * x.width * 2, 4);
            bytes = x.rows * x.width * memopt_type_bytes(type);
            CHECK(forward(NULL, &x) == MEMOPT_OK);
            p.x = layer_doubles(type, x.input, x.rows * x.width * 2); p.g = layer_doubles(type, x.grad_output, x.rows * x.width);
            p.rows = x.rows; p.outputs = x.width; p.activation = kind;
            for (i = 0; i < x.rows; ++i)
                for (j = 0; j < x.width; ++j)
                    CHECK_AT(layer_close(type, layer_get(type, x.output, i * x.width + j),
                                         layer_active(kind,
                             p.x[i * 2 * x.width + j]) * p.x[(i * 2 + 1) * x.width + j], 1), j);
            out = x.output; x.output = layer_new(type, x.rows * x.width, 5);
            CHECK(backward(NULL, &x) == MEMOPT_OK && !memcmp(out, x.output, bytes));
            for (i = 0; i < x.rows * x.width * 2; ++i)
                CHECK_AT(layer_close(type, layer_get(type, x.grad_input, i), layer_slope(layer_swiglu_loss, &p, p.x + i), 4), i);
            CHECK(layer_end_is_kept(type, x.output, x.rows * x.width) && layer_end_is_kept(type, out, x.rows * x.width));
            CHECK(layer_end_is_kept(type, x.grad_input, x.rows * x.width * 2));
            out = x.grad_input; x.grad_input = layer_new(type, x.rows * x.width * 2, 1); /* in place */
            x.input = x.grad_input; x.output = NULL;
            CHECK(backward(NULL, &x) == MEMOPT_OK && !memcmp(out, x.grad_input, 2 * bytes));
            layer_done();
        }
}
static void layer_swiglu_values(void) { layer_gated_values(MEMOPT_ACTIVATION_SILU, memopt_swiglu_forward, memopt_swiglu_backward); }
static void layer_geglu_values(void) { layer_gated_values(MEMOPT_ACTIVATION_GELU, memopt_geglu_forward, memopt_geglu_backward); }

/* ---- dropout ---- */
static memopt_dropout layer_dropout(memopt_type type, size_t n, float rate, uint64_t first) {
    memopt_dropout x;
    memset(&x, 0, sizeof x);
    x.n = n; x.type = type; x.rate = rate; x.noise = memopt_noise_make(3, 4); x.noise.shift = 0x9871a5c3u; x.first = first;
    x.input = layer_new(type, n, 1); x.residual = layer_new(type, n, 2); x.output = layer_new(type, n, 3);
    x.grad_output = layer_new(type, n, 4); x.grad_input = layer_new(type, n, 5);
    return x;
}
static void layer_dropout_values(void) {
    static const float rates[] = { 0, 0.1f, 0.5f, 0.999999f, 1e-6f }; static const unsigned thresholds[] = { 0, 6554, 32768, 65535, 0 };
    static const size_t sizes[] = { 0, 1, 7, 15, 16, 17, 33, 600 };
    static const uint64_t firsts[] = { 0, 1, 31, 77, ((uint64_t)1 << 33) - 40, ~(uint64_t)0 - 20 };
    size_t r, s, f, t, i;
    for (r = 0; r < 5; ++r) for (s = 0; s < 8; ++s) for (f = 0; f < 6; ++f) for (t = 0; t < 3; ++t) {
        const memopt_type type = layer_types[t]; const size_t n = sizes[s];
        memopt_dropout x = layer_dropout(type, n, rates[r], firsts[f]), y = x;
        const double factor = 65536.0 / (65536.0 - thresholds[r]);
        CHECK(memopt_dropout_forward(NULL, &x) == MEMOPT_OK && memopt_dropout_backward(NULL, &x) == MEMOPT_OK);
        y.residual = NULL; y.output = layer_new(type, n, 6);
        CHECK(memopt_dropout_forward(NULL, &y) == MEMOPT_OK);
        for (i = 0; i < n; ++i) {
            const int kept = memopt_i_noise16(x.noise, x.first + i) >= thresholds[r];
            const double in = layer_get(type, x.input, i), base = layer_get(type, x.residual, i), g = layer_get(type, x.grad_output, i);
            const double size = factor * 0.1;
            CHECK_AT(layer_close(type, layer_get(type, x.output, i), kept ? base + in * factor : base, size), i);
            CHECK_AT(layer_close(type, layer_get(type, y.output, i), kept ? in * factor : 0, size), i);
            CHECK_AT(layer_close(type, layer_get(type, x.grad_input, i), kept ? g * factor : 0, size), i);
            if (!kept) CHECK_AT(layer_get(type, y.output, i) == 0 && layer_get(type, x.output, i) == base, i);
        }
        CHECK(layer_end_is_kept(type, x.output, n) && layer_end_is_kept(type, x.grad_input, n));
        x.input = x.output = layer_new(type, n, 1); /* in place */
        CHECK(memopt_dropout_forward(NULL, &x) == MEMOPT_OK);
        y.residual = y.output = layer_new(type, n, 2);
        CHECK(memopt_dropout_forward(NULL, &y) == MEMOPT_OK && !memcmp(x.output, y.output, n * memopt_type_bytes(type)));
        layer_done();
    }
}
static void layer_dropout_chooses(void) { /* a residual that stays alone is rounded as any other: its NaN becomes quiet */
    enum { N = 64 + 7 };
    uint16_t x[N], base[N], y[N]; size_t i; int level;
    for (i = 0; i < N; ++i) { x[i] = 0x3f80; base[i] = (uint16_t)(0x7f81 + i % 63); }
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); ++level) {
        const memopt_threads threads = test_level(level); memopt_ops ops; memopt_dropout d;
        memset(&ops, 0, sizeof ops); memset(&d, 0, sizeof d);
        ops.threads = &threads; d.n = N; d.type = MEMOPT_TYPE_BF16; d.rate = 0.5f; d.noise = memopt_noise_make(1, 2);
        d.input = x; d.residual = base; d.output = y;
        CHECK(memopt_dropout_forward(&ops, &d) == MEMOPT_OK);
        for (i = 0; i < N; ++i) CHECK_AT(y[i] == (base[i] | 0x40), i);
    }
}
static void layer_dropout_statistics(void) {
    static const float rates[] = { 0.1f, 0.5f, 0.9f }; size_t r, i;
    for (r = 0; r < 3; ++r) {
        if (test_is_passed_over()) continue;
        const size_t n = (size_t)1 << 20; memopt_dropout x = layer_dropout(MEMOPT_TYPE_F32, n, rates[r], 5);
        float *ones = (float *)layer_alloc(n * sizeof *ones), *out = (float *)x.output; double sum = 0, zeros = 0;
        const double rate = (double)rates[r], deviation = sqrt((double)n * rate * (1 - rate));
        for (i = 0; i < n; ++i) ones[i] = 1;
        x.input = ones; x.residual = NULL;
        CHECK(memopt_dropout_forward(NULL, &x) == MEMOPT_OK);
        for (i = 0; i < n; ++i) { sum += (double)out[i]; zeros += out[i] == 0; }
        CHECK(fabs(zeros - (double)n * rate) < 5 * deviation + 16); /* 16: the rate's own step */
        CHECK(fabs(sum - (double)n) < 5 * deviation / (1 - rate) + 1);
        layer_done();
    }
}
static void layer_dropout_at_most(void) { /* a rate just below 1 leaves one of 65,536, where the noise is all ones */
    memopt_dropout x = layer_dropout(MEMOPT_TYPE_F32, 1, 0.999999f, 0);
    while (memopt_i_noise16(x.noise, x.first) != 65535) ++x.first;
    x.residual = NULL;
    CHECK(memopt_dropout_forward(NULL, &x) == MEMOPT_OK);
    CHECK(layer_get(x.type, x.output, 0) == layer_get(x.type, x.input, 0) * 65536);
    layer_done();
}
static void layer_dropout_of_infinity(void) { /* what is dropped is gone */
    memopt_dropout x = layer_dropout(MEMOPT_TYPE_F32, 1000, 0.5f, 0); float *in = (float *)layer_alloc(4000), *out; size_t i; int level;
    float *base = (float *)layer_alloc(4000); test_worker_set worker_set;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        const memopt_threads t = test_workers(&worker_set, 0, level); const memopt_ops ops = layer_ops(&t, NULL);
        for (i = 0; i < 1000; ++i) in[i] = memopt_i_bits_float(i % 2 ? 0x7f800000u : 0x7fc00000u);
        x.input = in; x.residual = NULL; out = (float *)x.output;
        CHECK(memopt_dropout_forward(&ops, &x) == MEMOPT_OK);
        for (i = 0; i < 1000; ++i) {
            const int kept = memopt_i_noise16(x.noise, i) >= 32768;
            const uint32_t bits = memopt_i_float_bits(out[i]) & 0x7fffffffu;
            CHECK_AT(kept ? (i % 2 ? bits == 0x7f800000u : bits > 0x7f800000u) : bits == 0, i);
        }
        for (i = 0; i < 1000; ++i) base[i] = -0.0f;
        x.residual = base;
        CHECK(memopt_dropout_forward(&ops, &x) == MEMOPT_OK);
        for (i = 0; i < 1000; ++i) /* -0 stays what it is */
            CHECK_AT(memopt_i_noise16(x.noise, i) >= 32768 || memopt_i_float_bits(out[i]) == 0x80000000u, i);
    }
    layer_done();
}

/* ---- embeddings ---- */
static memopt_embedding layer_embedding(size_t rows, size_t width, size_t vocabulary, size_t length, memopt_type type,
                                        memopt_type weight_type, memopt_type gradient_type) {
    memopt_embedding x; int32_t *ids = (int32_t *)layer_alloc(rows * 4); uint64_t seed = 9; size_t i;
    memset(&x, 0, sizeof x);
    for (i = 0; i < rows; ++i) ids[i] = (int32_t)(test_below(&seed, 3) ? test_below(&seed, vocabulary) : vocabulary - 1);
    x.rows = rows; x.width = width; x.vocabulary = vocabulary; x.length = length;
    x.type = type; x.weight_type = weight_type; x.gradient_type = gradient_type; x.ids = ids;
    x.tokens = layer_new(weight_type, vocabulary * width, 1); x.positions = layer_new(weight_type, length * width, 2);
    x.output = layer_new(type, rows * width, 3); x.grad_output = layer_new(type, rows * width, 4);
    x.grad_tokens = layer_new(gradient_type, vocabulary * width, 5);
    x.grad_positions = layer_new(gradient_type, length * width, 6);
    return x;
}
static void layer_embedding_case(size_t rows, size_t width, size_t vocabulary, size_t length, memopt_type type,
                                 memopt_type weight_type, memopt_type gradient_type, int accumulate) {
    memopt_embedding x = layer_embedding(rows, width, vocabulary, length, type, weight_type, gradient_type); size_t i, r, c;
    int32_t *places = (int32_t *)layer_alloc(rows * sizeof *places); uint64_t seed = 5;
    double *tokens = layer_doubles(gradient_type, x.grad_tokens, vocabulary * width), size;
    double *positions = layer_doubles(gradient_type, x.grad_positions, length * width);
    double *token_sizes = (double *)layer_alloc(vocabulary * width * sizeof(double));
    double *place_sizes = (double *)layer_alloc(length * width * sizeof(double));
    for (r = 0; r < rows; ++r) places[r] = (int32_t)(accumulate ? test_below(&seed, length) : r % length);
    if (accumulate) x.places = places;
    x.accumulate = accumulate;
    CHECK(memopt_embedding_forward(NULL, &x) == MEMOPT_OK && memopt_embedding_backward(NULL, &x) == MEMOPT_OK);
    for (i = 0; i < vocabulary * width; ++i) { if (!accumulate) tokens[i] = 0; token_sizes[i] = fabs(tokens[i]); }
    for (i = 0; i < length * width; ++i) { if (!accumulate) positions[i] = 0; place_sizes[i] = fabs(positions[i]); }
    for (r = 0; r < rows; ++r)
        for (c = 0; c < width; ++c) {
            const double g = layer_get(type, x.grad_output, r * width + c); const size_t token = (size_t)x.ids[r] * width + c;
            tokens[token] += g; token_sizes[token] += fabs(g);
            positions[(size_t)places[r] * width + c] += g; place_sizes[(size_t)places[r] * width + c] += fabs(g);
            CHECK_AT(layer_close(type, layer_get(type, x.output, r * width + c), layer_get(weight_type, x.tokens, token)
                                 + layer_get(weight_type, x.positions, (size_t)places[r] * width + c), 1), r);
        }
    for (i = 0; i < vocabulary * width; ++i) { /* rounded once for 256 rows */
        size = 1 + 0.1 * (double)rows + layer_unit(gradient_type) * token_sizes[i] * (double)((rows + 255) / 256 - 1) / 4e-6;
        CHECK_AT(layer_close(gradient_type, layer_get(gradient_type, x.grad_tokens, i), tokens[i], size), i);
    }
    for (i = 0; i < length * width; ++i) { /* likewise, where places say which */
        size = 1 + 0.1 * (double)rows;
        if (accumulate) size += layer_unit(gradient_type) * place_sizes[i] * (double)((rows + 255) / 256 - 1) / 4e-6;
        CHECK_AT(layer_close(gradient_type, layer_get(gradient_type, x.grad_positions, i), positions[i], size), i);
    }
    CHECK(layer_end_is_kept(type, x.output, rows * width) && layer_end_is_kept(gradient_type, x.grad_tokens, vocabulary * width));
    CHECK(layer_end_is_kept(gradient_type, x.grad_positions, length * width));
    layer_done();
}
static void layer_embedding_values(void) {
    size_t t;
    for (t = 0; t < 9; ++t) {
        const memopt_type a = layer_types[t % 3], b = layer_types[t / 3], c = layer_types[(t + t / 3 + 1) % 3];
        if (test_is_passed_over()) continue;
        layer_embedding_case(1, 1, 1, 1, a, b, c, 0);
        layer_embedding_case(9, 7, 5, 4, a, b, c, 1);
        layer_embedding_case(33, 17, 900, 33, a, b, c, 0); /* more tokens than lists */
        layer_embedding_case(600, 33, 40, 100, a, b, c, (int)t % 2);
        layer_embedding_case(5, 300, 1500, 8, a, b, c, 1); /* fewer rows than positions */
        layer_embedding_case(21, 1100, 30, 9, a, b, c, 0); /* two shares of columns, parts with one position more or less */
    }
}
static void layer_embedding_wanted(void) {
    memopt_embedding x = layer_embedding(10, 5, 4, 3, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32), y = x; size_t i;
    CHECK(memopt_embedding_backward(NULL, &x) == MEMOPT_OK);
    y.grad_positions = NULL; y.length = 0; y.grad_tokens = layer_new(MEMOPT_TYPE_F32, 20, 9);
    CHECK(memopt_embedding_backward(NULL, &y) == MEMOPT_OK && !memcmp(x.grad_tokens, y.grad_tokens, 80));
    y = x; y.grad_tokens = NULL; y.grad_positions = layer_new(MEMOPT_TYPE_F32, 15, 9);
    CHECK(memopt_embedding_backward(NULL, &y) == MEMOPT_OK && !memcmp(x.grad_positions, y.grad_positions, 60));
    y.grad_positions = NULL; y.grad_output = NULL;
    CHECK(memopt_embedding_backward(NULL, &y) == MEMOPT_OK);
    y = x; y.places = y.ids; /* not all below the length */
    CHECK(memopt_embedding_forward(NULL, &y) == MEMOPT_ERR_ARGUMENT && memopt_embedding_backward(NULL, &y) == MEMOPT_ERR_ARGUMENT);
    y = x; y.positions = NULL; y.length = 0;
    CHECK(memopt_embedding_forward(NULL, &y) == MEMOPT_OK);
    for (i = 0; i < 50; ++i)
        CHECK(layer_get(x.type, y.output, i) == layer_get(x.type, x.tokens, (size_t)x.ids[i / 5] * 5 + i % 5));
    x.rows = 0; x.ids = NULL; x.grad_output = x.output = NULL;
    CHECK(memopt_embedding_forward(NULL, &x) == MEMOPT_OK && memopt_embedding_backward(NULL, &x) == MEMOPT_OK);
    for (i = 0; i < 20; ++i) CHECK(layer_get(x.type, x.grad_tokens, i) == 0);
    for (i = 0; i < 15; ++i) CHECK(layer_get(x.type, x.grad_positions, i) == 0);
    layer_done();
}

/* ---- the same bits: levels, workers, parts ---- */
typedef struct layer_job { memopt_type type; size_t parts; const memopt_threads *threads; } layer_job;
typedef struct layer_result { unsigned char *bytes; size_t count; } layer_result;
typedef void layer_job_fn(const layer_job *job, layer_result *out);
static void layer_keep(layer_result *out, const void *data, memopt_type type, size_t n) {
    const size_t bytes = n * memopt_type_bytes(type);
    out->bytes = (unsigned char *)realloc(out->bytes, out->count + bytes);
    if (!out->bytes) { printf("test_layer: out of memory\n"); exit(1); }
    memcpy(out->bytes + out->count, data, bytes);
    out->count += bytes;
}
static size_t layer_cut(size_t n, size_t part, size_t parts) { return n * part / parts; } /* where a part begins */
static size_t layer_cut_32(size_t n, size_t part, size_t parts) { return part == parts ? n : layer_cut(n, part, parts) / 32 * 32; }
static const void *layer_from(const void *p, memopt_type type, size_t n) { return (const unsigned char *)p + n * memopt_type_bytes(type); }
static void *layer_to(void *p, memopt_type type, size_t n) { return (unsigned char *)p + n * memopt_type_bytes(type); }
static void layer_linear_job(const layer_job *job, layer_result *out, size_t rows, size_t inputs, size_t outputs) {
    memopt_linear x = layer_linear(rows, inputs, outputs, job->type, layer_types[(job->type + 1) % 3], MEMOPT_TYPE_F32);
    memopt_ops ops = layer_ops(job->threads, &x);
    size_t part; void *pre_activation = layer_new(job->type, rows * outputs, 11);
    x.activation = MEMOPT_ACTIVATION_GELU;
    for (part = 0; part < job->parts; ++part) {
        const size_t from = layer_cut_32(rows, part, job->parts), to = layer_cut_32(rows, part + 1, job->parts); memopt_linear y = x;
        y.rows = to - from; y.accumulate = part != 0;
        y.input = layer_from(x.input, x.type, from * inputs); y.output = layer_to(x.output, x.type, from * outputs);
        y.pre_activation = layer_to(pre_activation, x.type, from * outputs);
        y.grad_output = layer_from(x.grad_output, x.type, from * outputs); y.grad_input = layer_to(x.grad_input, x.type, from * inputs);
        CHECK(memopt_linear_forward(&ops, &y) == MEMOPT_OK && memopt_linear_backward(&ops, &y) == MEMOPT_OK);
    }
    layer_keep(out, x.output, x.type, rows * outputs); layer_keep(out, pre_activation, x.type, rows * outputs);
    layer_keep(out, x.grad_input, x.type, rows * inputs);
    layer_keep(out, x.grad_weights, x.gradient_type, outputs * inputs); layer_keep(out, x.grad_bias, x.gradient_type, outputs);
    layer_done();
}
static void layer_job_linear(const layer_job *job, layer_result *out) {
    layer_linear_job(job, out, 233, 17, 150);
    if (job->type == MEMOPT_TYPE_BF16) layer_linear_job(job, out, 386, 1, 1370); /* more than one block of rows */
}
static void layer_job_activation(const layer_job *job, layer_result *out) {
    const size_t n = 70000;
    memopt_activation_args x; memopt_ops ops = layer_ops(job->threads, NULL); size_t part; int kind;
    for (kind = MEMOPT_ACTIVATION_RELU; kind <= MEMOPT_ACTIVATION_GELU; ++kind) {
        memset(&x, 0, sizeof x);
        x.type = job->type; x.activation = (memopt_activation)kind;
        x.input = layer_new(x.type, n, 1); x.output = layer_new(x.type, n, 2);
        x.grad_output = layer_new(x.type, n, 3); x.grad_input = layer_new(x.type, n, 4);
        for (part = 0; part < job->parts; ++part) {
            const size_t from = layer_cut(n, part, job->parts); memopt_activation_args y = x;
            y.n = layer_cut(n, part + 1, job->parts) - from;
            y.input = layer_from(x.input, x.type, from); y.output = layer_to(x.output, x.type, from);
            y.grad_output = layer_from(x.grad_output, x.type, from); y.grad_input = layer_to(x.grad_input, x.type, from);
            CHECK(memopt_activation_backward(&ops, &y) == MEMOPT_OK);
        }
        layer_keep(out, x.output, x.type, n); layer_keep(out, x.grad_input, x.type, n);
        layer_done();
    }
}
static void layer_gated_job(const layer_job *job, layer_result *out, layer_gated_fn *forward, layer_gated_fn *backward) {
    const size_t rows = 230, width = 301; memopt_swiglu x; memopt_ops ops = layer_ops(job->threads, NULL); size_t part;
    memset(&x, 0, sizeof x);
    x.type = job->type; x.width = width;
    x.input = layer_new(x.type, rows * width * 2, 1); x.output = layer_new(x.type, rows * width, 2);
    x.grad_output = layer_new(x.type, rows * width, 3); x.grad_input = layer_new(x.type, rows * width * 2, 4);
    for (part = 0; part < job->parts; ++part) {
        const size_t from = layer_cut(rows, part, job->parts); memopt_swiglu y = x;
        y.rows = layer_cut(rows, part + 1, job->parts) - from;
        y.input = layer_from(x.input, x.type, from * width * 2); y.output = layer_to(x.output, x.type, from * width);
        y.grad_output = layer_from(x.grad_output, x.type, from * width);
        y.grad_input = layer_to(x.grad_input, x.type, from * width * 2);
        CHECK(backward(&ops, &y) == MEMOPT_OK);
        if (part) continue;
        y.output = layer_new(x.type, y.rows * width, 5);
        CHECK(forward(&ops, &y) == MEMOPT_OK);
        CHECK(!memcmp(y.output, x.output, y.rows * width * memopt_type_bytes(x.type)));
    }
    layer_keep(out, x.output, x.type, rows * width); layer_keep(out, x.grad_input, x.type, rows * width * 2);
    layer_done();
}
static void layer_job_swiglu(const layer_job *job, layer_result *out) { layer_gated_job(job, out, memopt_swiglu_forward, memopt_swiglu_backward); }
static void layer_job_geglu(const layer_job *job, layer_result *out) { layer_gated_job(job, out, memopt_geglu_forward, memopt_geglu_backward); }
static void layer_job_dropout(const layer_job *job, layer_result *out) {
    const size_t n = 70000; const uint64_t first = ((uint64_t)1 << 33) - 30001; size_t part;
    memopt_dropout x = layer_dropout(job->type, n, 0.3f, first); memopt_ops ops = layer_ops(job->threads, NULL);
    for (part = 0; part < job->parts; ++part) {
        const size_t from = layer_cut(n, part, job->parts); memopt_dropout y = x;
        y.n = layer_cut(n, part + 1, job->parts) - from; y.first = first + from;
        y.input = layer_from(x.input, x.type, from); y.residual = layer_from(x.residual, x.type, from);
        y.output = layer_to(x.output, x.type, from); y.grad_output = layer_from(x.grad_output, x.type, from);
        y.grad_input = layer_to(x.grad_input, x.type, from);
        CHECK(memopt_dropout_forward(&ops, &y) == MEMOPT_OK && memopt_dropout_backward(&ops, &y) == MEMOPT_OK);
    }
    layer_keep(out, x.output, x.type, n); layer_keep(out, x.grad_input, x.type, n);
    layer_done();
}
static void layer_job_embedding(const layer_job *job, layer_result *out) {
    const size_t rows = 280, width = 301, vocabulary = 300, length = 40; size_t part; memopt_ops ops = layer_ops(job->threads, NULL);
    memopt_embedding x = layer_embedding(rows, width, vocabulary, length, job->type, layer_types[(job->type + 1) % 3], MEMOPT_TYPE_F32);
    for (part = 0; part < job->parts; ++part) { /* whole sequences */
        const size_t from = layer_cut(rows / length, part, job->parts) * length; memopt_embedding y = x;
        y.rows = layer_cut(rows / length, part + 1, job->parts) * length - from; y.accumulate = part != 0;
        y.ids = x.ids + from; y.output = layer_to(x.output, x.type, from * width);
        y.grad_output = layer_from(x.grad_output, x.type, from * width);
        CHECK(memopt_embedding_forward(&ops, &y) == MEMOPT_OK && memopt_embedding_backward(&ops, &y) == MEMOPT_OK);
    }
    layer_keep(out, x.output, x.type, rows * width); layer_keep(out, x.grad_tokens, x.gradient_type, vocabulary * width);
    layer_keep(out, x.grad_positions, x.gradient_type, length * width);
    layer_done();
}
static int layer_job_same(layer_job_fn *fn, const layer_job *job, const layer_result *want) {
    layer_result got = { NULL, 0 }; int same;
    fn(job, &got);
    same = got.count == want->count && !memcmp(got.bytes, want->bytes, got.count);
    free(got.bytes);
    return same;
}
static void layer_same_bits(void) {
    static layer_job_fn *const jobs[] = { layer_job_linear, layer_job_activation, layer_job_swiglu, layer_job_geglu, layer_job_dropout, layer_job_embedding };
    size_t j, t; int level, workers; test_worker_set worker_set; memopt_threads threads;
    for (j = 0; j < sizeof jobs / sizeof *jobs; ++j)
        for (t = 0; t < 3; ++t) {
            layer_result want = { NULL, 0 }; layer_job job;
            if (test_is_passed_over()) continue;
            threads = test_workers(&worker_set, 0, MEMOPT_SIMD_SCALAR);
            job.type = layer_types[t]; job.parts = 1; job.threads = &threads;
            jobs[j](&job, &want);
            for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
                threads = test_workers(&worker_set, level % 2 ? 0 : 3, level); job.parts = 1;
                CHECK_AT(layer_job_same(jobs[j], &job, &want), j * 100 + (size_t)level);
                job.parts = 3;
                CHECK_AT(layer_job_same(jobs[j], &job, &want), j * 100 + (size_t)level);
            }
            job.parts = 1;
            for (workers = 1; workers <= 8; workers = workers < 2 ? 2 : workers * 2 + (workers == 2)) {
                threads = test_workers(&worker_set, workers > 8 ? 8 : workers, memopt_simd_best());
                CHECK_AT(layer_job_same(jobs[j], &job, &want), j * 100 + (size_t)workers);
            }
            job.threads = NULL; job.parts = 7;
            CHECK_AT(layer_job_same(jobs[j], &job, &want), j * 100);
            free(want.bytes);
        }
}

/* ---- what is refused, and has written nothing ---- */
static memopt_activation layer_wrong(int number) { /* C++ has no cast to what an enum does not hold */
    memopt_activation a;
    memcpy(&a, &number, sizeof a);
    return a;
}
#define LAYER_REFUSED(call, type, base, field, value, status) \
    do { type bad_ = base; bad_.field = value; CHECK(call(&ops, &bad_) == status); } while (0)
static void layer_linear_refused(void) {
    memopt_linear x = layer_linear(3, 4, 5, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16); memopt_ops ops = layer_ops(NULL, &x), bad;
    unsigned char kept[60], grad[48]; size_t bytes = 7; const size_t large = SIZE_MAX / 3; memopt_threads half;
    memcpy(kept, x.output, 60); memcpy(grad, x.grad_input, 48);
#define LAYER_LINEAR(field, value, status) LAYER_REFUSED(memopt_linear_forward, memopt_linear, x, field, value, status)
#define LAYER_BACK(field, value, status) LAYER_REFUSED(memopt_linear_backward, memopt_linear, x, field, value, status)
    LAYER_LINEAR(input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(weights, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(weight_type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(activation, layer_wrong(4), MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(activation, layer_wrong(-1), MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(input, (const unsigned char *)x.input + 2, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(bias, (const unsigned char *)x.bias + 1, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(pre_activation, (unsigned char *)x.output + 1, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(output, (unsigned char *)x.output + 2, MEMOPT_ERR_ARGUMENT);
    LAYER_LINEAR(rows, large, MEMOPT_ERR_OVERFLOW);
    LAYER_LINEAR(inputs, large, MEMOPT_ERR_OVERFLOW);
    LAYER_LINEAR(outputs, large, MEMOPT_ERR_OVERFLOW);
    LAYER_LINEAR(rows, SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    LAYER_BACK(grad_output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_BACK(weights, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_BACK(input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_BACK(gradient_type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_BACK(grad_weights, (unsigned char *)x.grad_weights + 1, MEMOPT_ERR_ARGUMENT);
    LAYER_BACK(grad_bias, (unsigned char *)x.grad_bias + 1, MEMOPT_ERR_ARGUMENT);
    LAYER_BACK(grad_input, (unsigned char *)x.grad_input + 2, MEMOPT_ERR_ARGUMENT);
    LAYER_BACK(outputs, SIZE_MAX / 2, MEMOPT_ERR_OVERFLOW);
    bad = ops; bad.scratch_bytes -= 1;
    CHECK(memopt_linear_forward(&bad, &x) == MEMOPT_ERR_BUFFER && memopt_linear_backward(&bad, &x) == MEMOPT_ERR_BUFFER);
    CHECK(memopt_linear_forward(NULL, &x) == MEMOPT_ERR_BUFFER);
    bad = ops; bad.scratch = (unsigned char *)ops.scratch + 32;
    CHECK(memopt_linear_forward(&bad, &x) == MEMOPT_ERR_ARGUMENT);
    memset(&half, 0, sizeof half); half.worker_count = 2;
    bad = ops; bad.threads = &half;
    CHECK(memopt_linear_backward(&bad, &x) == MEMOPT_ERR_ARGUMENT && scratch_of_linear(&bad, &x, &bytes) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_linear_forward(&ops, NULL) == MEMOPT_ERR_ARGUMENT && memopt_linear_backward(&ops, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(scratch_of_linear(&ops, NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    { /* shapes and types are all that counts */
        memopt_linear shape;
        memset(&shape, 0, sizeof shape);
        shape.rows = 3; shape.inputs = 4; shape.outputs = 5; shape.weight_type = MEMOPT_TYPE_F16;
        CHECK(scratch_of_linear(NULL, &shape, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 20);
        shape.weight_type = MEMOPT_TYPE_F32;
        CHECK(scratch_of_linear(NULL, &shape, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH);
        bytes = 7;
    }
    CHECK(bytes == 7 && !memcmp(kept, x.output, 60) && !memcmp(grad, x.grad_input, 48));
    CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK && memopt_linear_backward(&ops, &x) == MEMOPT_OK);
    layer_done();
}
static memopt_status layer_failing(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    (void)p; (void)threads; (void)scratch;
    return --*(int *)user < 0 ? MEMOPT_ERR_DEVICE : MEMOPT_OK;
}
static void layer_gemm_fails(void) { /* what it says comes back */
    memopt_linear x = layer_linear(386, 1, 1370, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32); memopt_ops ops; int left;
    memset(&ops, 0, sizeof ops);
    ops.gemm.multiply_fn = layer_failing; ops.gemm.user = &left;
    x.activation = MEMOPT_ACTIVATION_SILU;
    left = 1; CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_ERR_DEVICE && left == -1);
    left = 2; CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK && left == 0);
    left = 0; CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_ERR_DEVICE);
    left = 1; CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_ERR_DEVICE);
    left = 2; CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK);
    layer_done();
}
static void layer_elements_refused(void) {
    memopt_activation_args a; memopt_swiglu g; memopt_ops ops; memopt_threads half; unsigned char kept[64]; void *p = layer_new(MEMOPT_TYPE_F32, 16, 1);
    memset(&a, 0, sizeof a); memset(&g, 0, sizeof g); memset(&ops, 0, sizeof ops); memset(&half, 0, sizeof half);
    memcpy(kept, p, 64);
    a.n = 5; a.activation = MEMOPT_ACTIVATION_GELU; a.input = layer_new(MEMOPT_TYPE_F32, 5, 1); a.grad_output = layer_new(MEMOPT_TYPE_F32, 5, 1);
    a.output = a.grad_input = p;
#define LAYER_ACT(call, field, value, status) LAYER_REFUSED(call, memopt_activation_args, a, field, value, status)
    LAYER_ACT(memopt_activation_forward, input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_forward, output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_forward, type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_forward, activation, layer_wrong(9), MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_forward, n, SIZE_MAX / 4, MEMOPT_ERR_OVERFLOW);
    LAYER_ACT(memopt_activation_forward, n, SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    LAYER_ACT(memopt_activation_backward, grad_output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_backward, grad_input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_backward, input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_backward, grad_input, (unsigned char *)p + 2, MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_backward, output, (unsigned char *)p + 2, MEMOPT_ERR_ARGUMENT);
    LAYER_ACT(memopt_activation_backward, grad_output, (const unsigned char *)a.grad_output + 1, MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_activation_forward(&ops, NULL) == MEMOPT_ERR_ARGUMENT && memopt_activation_backward(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    g.rows = 1; g.width = 3; g.input = layer_new(MEMOPT_TYPE_F32, 6, 1); g.grad_output = layer_new(MEMOPT_TYPE_F32, 3, 1);
    g.output = p; g.grad_input = (float *)p + 8;
#define LAYER_GLU(call, field, value, status) LAYER_REFUSED(call, memopt_swiglu, g, field, value, status)
    LAYER_GLU(memopt_swiglu_forward, input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_GLU(memopt_swiglu_forward, output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_GLU(memopt_swiglu_forward, type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_GLU(memopt_swiglu_forward, width, SIZE_MAX / 2 + 2, MEMOPT_ERR_OVERFLOW);
    LAYER_GLU(memopt_swiglu_forward, rows, SIZE_MAX / 20, MEMOPT_ERR_OVERFLOW);
    LAYER_GLU(memopt_swiglu_backward, input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_GLU(memopt_swiglu_backward, grad_output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_GLU(memopt_swiglu_backward, grad_input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_GLU(memopt_swiglu_backward, output, (unsigned char *)p + 1, MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_swiglu_forward(&ops, NULL) == MEMOPT_ERR_ARGUMENT && memopt_swiglu_backward(&ops, NULL) == MEMOPT_ERR_ARGUMENT);
    half.worker_count = 1; ops.threads = &half;
    CHECK(memopt_activation_forward(&ops, &a) == MEMOPT_ERR_ARGUMENT && memopt_swiglu_forward(&ops, &g) == MEMOPT_ERR_ARGUMENT);
    CHECK(!memcmp(kept, p, 64));
    a.n = g.rows = 0; a.input = a.grad_output = NULL; a.output = a.grad_input = NULL; /* nothing of nothing */
    g.input = g.grad_output = NULL; g.output = g.grad_input = NULL;
    CHECK(memopt_activation_forward(NULL, &a) == MEMOPT_OK && memopt_activation_backward(NULL, &a) == MEMOPT_OK);
    CHECK(memopt_swiglu_forward(NULL, &g) == MEMOPT_OK && memopt_swiglu_backward(NULL, &g) == MEMOPT_OK);
    layer_done();
}
static void layer_dropout_refused(void) {
    memopt_dropout x = layer_dropout(MEMOPT_TYPE_BF16, 9, 0.5f, 0); memopt_ops ops; unsigned char kept[18];
    memset(&ops, 0, sizeof ops);
    memcpy(kept, x.output, 18);
#define LAYER_DROP(call, field, value, status) LAYER_REFUSED(call, memopt_dropout, x, field, value, status)
    LAYER_DROP(memopt_dropout_forward, rate, 1, MEMOPT_ERR_ARGUMENT);
    LAYER_DROP(memopt_dropout_forward, rate, -0.1f, MEMOPT_ERR_ARGUMENT);
    LAYER_DROP(memopt_dropout_backward, rate, memopt_i_bits_float(0x7fc00000u), MEMOPT_ERR_ARGUMENT);
    LAYER_DROP(memopt_dropout_forward, input, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_DROP(memopt_dropout_forward, output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_DROP(memopt_dropout_forward, residual, (const unsigned char *)x.residual + 1, MEMOPT_ERR_ARGUMENT);
    LAYER_DROP(memopt_dropout_forward, type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_DROP(memopt_dropout_forward, n, SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    LAYER_DROP(memopt_dropout_backward, grad_output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_DROP(memopt_dropout_backward, grad_input, NULL, MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_dropout_forward(NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_dropout_backward(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(!memcmp(kept, x.output, 18));
    x.input = NULL; x.output = NULL; x.residual = NULL;
    CHECK(memopt_dropout_backward(NULL, &x) == MEMOPT_OK); /* which needs none of them */
    layer_done();
}
static void layer_embedding_refused(void) {
    memopt_embedding x = layer_embedding(9, 5, 4, 3, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16); memopt_ops ops;
    int32_t ids[9] = { 0, 1, 2, 3, 3, 3, 3, 3, 4 }; unsigned char kept[180], grad[40];
    memset(&ops, 0, sizeof ops);
    memcpy(kept, x.output, 180); memcpy(grad, x.grad_tokens, 40);
#define LAYER_EMBED(call, field, value, status) LAYER_REFUSED(call, memopt_embedding, x, field, value, status)
    LAYER_EMBED(memopt_embedding_forward, ids, ids, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_backward, ids, ids, MEMOPT_ERR_ARGUMENT);
    ids[8] = -1;
    LAYER_EMBED(memopt_embedding_forward, ids, ids, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_backward, ids, ids, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, ids, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, tokens, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, length, 0, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, positions, (const unsigned char *)x.positions + 1, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, vocabulary, 0, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, weight_type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_forward, rows, SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    LAYER_EMBED(memopt_embedding_forward, width, SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    LAYER_EMBED(memopt_embedding_forward, length, SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    LAYER_EMBED(memopt_embedding_forward, vocabulary, SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    LAYER_EMBED(memopt_embedding_backward, grad_output, NULL, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_backward, length, 0, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_backward, gradient_type, (memopt_type)3, MEMOPT_ERR_ARGUMENT);
    LAYER_EMBED(memopt_embedding_backward, grad_tokens, (unsigned char *)x.grad_tokens + 1, MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_embedding_forward(NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_embedding_backward(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(!memcmp(kept, x.output, 180) && !memcmp(grad, x.grad_tokens, 40));
    layer_done();
}

/* ---- rotary positions ---- */
static memopt_rotary layer_rotary(size_t rows, size_t heads, size_t width, memopt_type type) {
    memopt_rotary x;
    memset(&x, 0, sizeof x);
    x.rows = rows; x.heads = heads; x.width = width; x.type = type;
    x.input = layer_new(type, rows * heads * width, 1); x.output = layer_new(type, rows * heads * width, 2);
    x.grad_output = layer_new(type, rows * heads * width, 3); x.grad_input = layer_new(type, rows * heads * width, 4);
    return x;
}
/* Each element by long double sines, or (sign -1) rotated back; everything between heads and rows as it was. */
static void layer_rotary_check(const memopt_rotary *x, const void *input, const double *old, const void *output, int sign) {
    const size_t rotated = x->rotated ? x->rotated : x->width, stride = x->stride ? x->stride : x->heads * x->width;
    const long double base = x->base > 0 ? (long double)x->base : 10000.0L; size_t row, head, i;
    const double *in = layer_doubles(x->type, input, x->rows * stride);
    for (row = 0; row < x->rows; ++row) {
        const long double position = x->positions ? (long double)x->positions[row] : (long double)(x->first + (x->length ? row % x->length : row));
        const double by = x->magnitude > 0 ? (double)x->magnitude : 1;
        for (head = 0; head < x->heads; ++head)
            for (i = 0; i < x->width; ++i) {
                const size_t at = row * stride + head * x->width, half = rotated / 2;
                const size_t pair = x->interleaved ? i / 2 : i % half, first = x->interleaved ? i - i % 2 : pair;
                const size_t second = x->interleaved ? first + 1 : first + half;
                const long double t = position * (x->frequencies ? (long double)x->frequencies[pair < rotated / 2 ? pair : 0] : powl(base, -2 * (long double)pair / (long double)rotated));
                const double got = layer_get(x->type, output, at + i); double a, b, want;
                if (i >= rotated) { CHECK_AT(memcmp(&got, &in[at + i], sizeof got) == 0, at + i); continue; }
                a = in[at + first]; b = in[at + second];
                want = by * (double)(i == first ? (long double)a * cosl(t) - sign * (long double)b * sinl(t)
                                                : (long double)b * cosl(t) + sign * (long double)a * sinl(t));
                CHECK_AT(fabs(got - want) <= by * (fabs(a) + fabs(b)) / 4194304 + layer_unit(x->type) * fabs(want) * 1.01
                                           + (x->type == MEMOPT_TYPE_F16 ? 3e-8 : 0), at + i);
            }
        for (i = x->heads * x->width; i < stride; ++i) {
            const double kept = layer_get(x->type, output, row * stride + i);
            CHECK_AT(memcmp(&kept, &old[row * stride + i], sizeof kept) == 0, row * stride + i);
        }
    }
}
static void layer_rotary_values(void) {
    static const size_t shapes[][4] = { /* rows, heads, width, rotated */
        { 1, 1, 2, 0 }, { 5, 3, 8, 0 }, { 9, 2, 40, 24 }, { 3, 2, 7, 4 }, { 2, 1, 600, 0 }, { 2, 2, 530, 514 }, { 40, 12, 64, 0 } };
    static const size_t firsts[] = { 0, 1000, 1048000 }; static const double bases[] = { 0, 1, 500000 };
    size_t i; int k, interleaved;
    for (i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (k = 0; k < 3; ++k)
            for (interleaved = 0; interleaved < 2; ++interleaved) {
                if (test_is_passed_over()) continue;
                const memopt_type type = layer_types[k]; memopt_rotary x = layer_rotary(shapes[i][0], shapes[i][1], shapes[i][2], type);
                const size_t n = x.rows * x.heads * x.width; double *old = layer_doubles(type, x.output, n);
                x.rotated = shapes[i][3]; x.interleaved = interleaved; x.first = firsts[(i + (size_t)k) % 3]; x.base = bases[i % 3];
                x.length = i % 2 ? 3 : 0;
                CHECK(memopt_rotary_forward(NULL, &x) == MEMOPT_OK && memopt_rotary_backward(NULL, &x) == MEMOPT_OK);
                layer_rotary_check(&x, x.input, old, x.output, 1);
                layer_rotary_check(&x, x.grad_output, old, x.grad_input, -1);
                CHECK(layer_end_is_kept(type, x.output, n) && layer_end_is_kept(type, x.grad_input, n));
                layer_done();
            }
}
static void layer_rotary_far(void) { /* the bound of the declaration, at 2^20 positions: one pair, the fastest */
    enum { N = 1 << 20 }; memopt_rotary x = layer_rotary(N / 64, 1, 2, MEMOPT_TYPE_F32); float *in = (float *)layer_alloc(N / 64 * 8), *out = (float *)x.output;
    size_t i, k; double worst = 0;
    for (i = 0; i < N / 64; ++i) { in[2 * i] = 1; in[2 * i + 1] = 0; }
    x.input = in;
    for (k = 0; k < 64; ++k) {
        if (test_is_passed_over()) continue;
        x.first = k * (N / 64) + 1;
        CHECK(memopt_rotary_forward(NULL, &x) == MEMOPT_OK);
        for (i = k % 7; i < N / 64; i += 7) {
            const long double t = (long double)(x.first + i); const double c = fabs((double)((long double)out[2 * i] - cosl(t))), s = fabs((double)((long double)out[2 * i + 1] - sinl(t)));
            if (c > worst) worst = c;
            if (s > worst) worst = s;
        }
    }
    CHECK(worst < 1.0 / 8388608 && worst > 0); /* 2^-23 */
    layer_done();
}
/* Frequencies, positions and a magnitude that are given: by the definition; the same bits in parts, and as the rule that
   they stand for. */
static void layer_rotary_given(void) {
    static const int32_t positions[9] = { 0, 1, 2, 0, 1, 0, 7, 1000000, INT32_MAX / 2048 }; double f[150]; int k, interleaved; size_t i;
    for (k = 0; k < 3; ++k) for (interleaved = 0; interleaved < 2; ++interleaved) {
        const memopt_type type = layer_types[k]; memopt_rotary x = layer_rotary(9, 2, 310, type), y = x; const size_t n = 9 * 2 * 310, size = memopt_type_bytes(type);
        double *old = layer_doubles(type, x.output, n); void *same = layer_new(type, n, 2);
        for (i = 0; i < 150; ++i) f[i] = i < 2 ? (double)i : 1.0 / (double)(1 + i * i);
        x.rotated = 300; x.interleaved = interleaved; x.positions = positions; x.frequencies = f; x.magnitude = k ? 1.1386294f : 0.25f;
        CHECK(memopt_rotary_forward(NULL, &x) == MEMOPT_OK && memopt_rotary_backward(NULL, &x) == MEMOPT_OK);
        layer_rotary_check(&x, x.input, old, x.output, 1);
        layer_rotary_check(&x, x.grad_output, old, x.grad_input, -1);
        y = x; y.positions = NULL; y.first = 1000000; y.rows = 1; /* its row 7 */
        y.input = (const unsigned char *)x.input + 7 * 620 * size; y.output = same;
        CHECK(memopt_rotary_forward(NULL, &y) == MEMOPT_OK && !memcmp(same, (unsigned char *)x.output + 7 * 620 * size, 620 * size));
        layer_done();
    }
}
/* Pairs and magnitudes that transformers 5.24 makes, in float, of the configs of Llama 3.1 8B, of Qwen2.5 with its YaRN, of a ramp
   with ends of its own, and of a linear factor: tests/rotary_scaling.py prints them. */
static void layer_rotary_scaling(void) {
    static const struct { int pair; double f; } want[4][9] = {
        { { 0, 1 }, { 1, 0.814617217 }, { 16, 0.0376060307 }, { 24, 0.00729266508 }, { 32, 0.000524846022 }, { 40, 3.42810235e-05 }, { 48, 6.64786967e-06 }, { 56, 1.28917316e-06 }, { 63, 3.06892588e-07 } },
        { { 0, 1 }, { 1, 0.805842221 }, { 16, 0.0316227786 }, { 24, 0.00537532149 }, { 32, 0.000602941145 }, { 40, 4.44569851e-05 }, { 48, 7.90569356e-06 }, { 56, 1.40585337e-06 }, { 63, 3.10234441e-07 } },
        { { 0, 1 }, { 1, 0.749894202 }, { 8, 0.100000001 }, { 12, 0.0316227786 }, { 16, 0.00374999968 }, { 20, 0.000197642366 }, { 24, 6.2500003e-05 }, { 28, 1.97642366e-05 }, { 31, 8.3345094e-06 } },
        { { 0, 0.400000006 }, { 1, 0.299957693 }, { 8, 0.0399999991 }, { 12, 0.0126491114 }, { 16, 0.00399999972 }, { 20, 0.00126491114 }, { 24, 0.000400000019 }, { 28, 0.000126491112 }, { 31, 5.33408602e-05 } } };
    double f[64]; float magnitude = 1; size_t k, i;
    for (k = 0; k < 4; ++k) {
        const size_t rotated = k < 2 ? 128 : 64;
        rotary_powers(f, rotated, k == 0 ? 500000 : k == 1 ? 1000000 : 10000);
        if (k == 0) rotary_llama3(f, rotated, 8, 1, 4, 8192);
        if (k == 1) magnitude = rotary_yarn(f, rotated, 1000000, 4, 32768, 32, 1);
        if (k == 1) CHECK(fabsf(magnitude - 1.138629436f) < 1e-6f);
        if (k == 2) magnitude = rotary_yarn(f, rotated, 10000, 16, 2048, 8, 2);
        if (k == 2) CHECK(fabsf(magnitude - 1.277258872f) < 1e-6f);
        if (k == 3) rotary_linear(f, rotated, 2.5);
        for (i = 0; i < 9; ++i) CHECK_AT(fabs(f[want[k][i].pair] - want[k][i].f) < 4e-6 * want[k][i].f, k * 100 + i);
    }
    rotary_powers(f, 64, 10000);
    CHECK(rotary_yarn(f, 64, 10000, 1, 2048, 32, 1) == 1 && f[31] == pow(10000, -62.0 / 64)); /* a factor of 1 changes nothing */
}
static void layer_rotary_everywhere(void) { /* the same bits on every machine: these are of gcc and clang, x86 and ARM */
    enum { N = 64 * 128 }; static float x[N], y[N]; memopt_rotary q; uint64_t hash = 1; size_t i;
    for (i = 0; i < N; ++i) x[i] = (float)((i * 7919 + 13) % 1009) / 512.0f - 1;
    memset(&q, 0, sizeof q);
    q.rows = 64; q.heads = 1; q.width = 128; q.input = x; q.output = y; q.first = 1000000; q.base = 500000;
    CHECK(memopt_rotary_forward(NULL, &q) == MEMOPT_OK);
    for (i = 0; i < N; ++i) hash = (hash ^ memopt_i_float_bits(y[i])) * UINT64_C(1099511628211);
    CHECK(hash == UINT64_C(0xab4213c11e4baf69));
}
static void layer_rotary_in_place(void) { /* inside a matrix of queries, keys and values; and back to where it was */
    int k, interleaved;
    for (k = 0; k < 3; ++k)
        for (interleaved = 0; interleaved < 2; ++interleaved) {
            const memopt_type type = layer_types[k]; const size_t rows = 11, stride = 3 * 32, n = rows * stride, size = memopt_type_bytes(type); size_t i;
            unsigned char *all = (unsigned char *)layer_new(type, n, 7), *first = (unsigned char *)layer_alloc(n * size); memopt_rotary x, y;
            double *old = layer_doubles(type, all, n);
            memcpy(first, all, n * size);
            memset(&x, 0, sizeof x);
            x.rows = rows; x.heads = 4; x.width = 8; x.stride = stride; x.type = type; x.interleaved = interleaved; x.first = 5; x.length = 4;
            x.input = x.output = all + 32 * size; x.rows = rows - 1; /* the keys; its last row would end behind the matrix's */
            CHECK(memopt_rotary_forward(NULL, &x) == MEMOPT_OK);
            layer_rotary_check(&x, first + 32 * size, layer_doubles(type, first + 32 * size, (rows - 1) * stride), x.output, 1);
            CHECK(memcmp(first, all, 32 * size) == 0 && layer_end_is_kept(type, all, n));
            y = x; y.grad_output = y.grad_input = x.output; y.input = y.output = NULL;
            CHECK(memopt_rotary_backward(NULL, &y) == MEMOPT_OK);
            for (i = 0; i < n; ++i)
                CHECK_AT(fabs(layer_get(type, all, i) - old[i]) <= 2e-6 + 8 * layer_unit(type), i);
            layer_done();
        }
}
static void layer_rotary_same_bits(void) { /* every level, any workers, and rows in parts */
    int k, interleaved, level, workers;
    for (k = 0; k < 3; ++k)
        for (interleaved = 0; interleaved < 2; ++interleaved) {
            const memopt_type type = layer_types[k]; const size_t rows = 700, row = 2 * 66, size = memopt_type_bytes(type);
            memopt_rotary x = layer_rotary(rows, 2, 66, type), part; unsigned char *want = (unsigned char *)layer_alloc(rows * row * size);
            const memopt_threads scalar = test_level(MEMOPT_SIMD_SCALAR); memopt_ops ops = layer_ops(&scalar, NULL); test_worker_set set;
            x.rotated = 38; x.interleaved = interleaved; x.first = 77777;
            CHECK(memopt_rotary_forward(&ops, &x) == MEMOPT_OK);
            memcpy(want, x.output, rows * row * size);
            for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
                for (workers = 0; workers <= 3; workers += 3) {
                    const memopt_threads threads = test_workers(&set, workers, level);
                    ops.threads = &threads;
                    memset(x.output, 0, rows * row * size);
                    part = x; part.rows = 123;
                    CHECK(memopt_rotary_forward(&ops, &part) == MEMOPT_OK);
                    part.rows = rows - 123; part.first += 123;
                    part.input = (const unsigned char *)x.input + 123 * row * size; part.output = (unsigned char *)x.output + 123 * row * size;
                    CHECK(memopt_rotary_forward(&ops, &part) == MEMOPT_OK);
                    CHECK_AT(memcmp(want, x.output, rows * row * size) == 0, level * 10 + workers);
                }
            layer_done();
        }
}

/* ---- the residual ---- */
/* An own gemm: notes what it was asked for, and lets the built-in one do it. */
typedef struct layer_asked { int calls, accumulate, bias; } layer_asked;
static memopt_status layer_asking(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    layer_asked *asked = (layer_asked *)user;
    ++asked->calls; asked->accumulate = p->accumulate; asked->bias = p->bias != NULL;
    return memopt_gemm_multiply(p, threads, scratch, memopt_gemm_scratch(threads));
}
/* What is to come out: the product in float32 by the gemm itself, through the activation, plus the residual, rounded once. */
static void layer_residual_want(const memopt_linear *x, const memopt_ops *ops, void *want) {
    const size_t n = x->rows * x->outputs; size_t i;
    float *z = (float *)layer_alloc(n * 4), *bias = (float *)layer_alloc(x->outputs * 4); memopt_product p;
    memset(&p, 0, sizeof p);
    for (i = 0; i < x->outputs; ++i) bias[i] = (float)layer_get(x->weight_type, x->bias, i);
    p.rows = x->rows; p.columns = x->outputs; p.depth = x->inputs; p.left = x->input; p.right = x->weights;
    p.left_stride = p.right_stride = x->inputs; p.right_transposed = 1; p.result_stride = x->outputs;
    p.left_type = x->type; p.right_type = x->weight_type; p.result = z; p.bias = x->bias ? bias : NULL;
    CHECK(memopt_gemm_multiply(&p, ops->threads, ops->scratch, ops->scratch_bytes) == MEMOPT_OK);
    if (x->activation != MEMOPT_ACTIVATION_NONE || x->pre_activation) { /* it sees what memory holds */
        memopt_activation_args a;
        for (i = 0; i < n; ++i) { layer_put(x->type, want, i, (double)z[i]); z[i] = (float)layer_get(x->type, want, i); }
        memset(&a, 0, sizeof a);
        a.n = n; a.activation = x->activation; a.input = a.output = z;
        CHECK(memopt_activation_forward(ops, &a) == MEMOPT_OK);
    }
    for (i = 0; i < n; ++i) {
        volatile float sum = z[i] + (float)layer_get(x->type, x->residual, i);
        layer_put(x->type, want, i, (double)sum);
    }
}
static void layer_residual_case(size_t rows, size_t inputs, size_t outputs, memopt_type type, memopt_activation activation, int keep) {
    const size_t n = rows * outputs, bytes = n * memopt_type_bytes(type); test_worker_set set; int level, workers, place;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (workers = 0; workers <= 3; workers += 3)
            for (place = 0; place < 2; ++place) {
                const memopt_threads threads = test_workers(&set, workers, level);
                memopt_linear x = layer_linear(rows, inputs, outputs, type, type, type);
                const memopt_ops ops = layer_ops(&threads, &x); void *want = layer_new(type, n, 1), *residual = layer_new(type, n, 77);
                x.activation = activation; x.residual = residual;
                if (keep) x.pre_activation = layer_new(type, n, 1);
                if (place && (keep || activation == MEMOPT_ACTIVATION_NONE)) x.output = residual; /* in place */
                layer_residual_want(&x, &ops, want);
                CHECK_AT(memopt_linear_forward(&ops, &x) == MEMOPT_OK, level);
                CHECK_AT(memcmp(want, x.output, bytes) == 0 && layer_end_is_kept(type, x.output, n), level * 100 + place);
                layer_done();
            }
}
static void layer_residual_values(void) { /* the bits of a pass that adds; sizes around tiles, and chunks of 288 and 768 columns */
    static const size_t sizes[][3] = { { 1, 1, 1 }, { 3, 0, 5 }, { 7, 5, 33 }, { 13, 193, 40 }, { 400, 3, 9 }, { 5, 400, 300 }, { 2, 7, 801 } };
    size_t i; int k;
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (k = 0; k < 3; ++k) {
            if (test_is_passed_over()) continue;
            layer_residual_case(sizes[i][0], sizes[i][1], sizes[i][2], layer_types[k], MEMOPT_ACTIVATION_NONE, 0);
            layer_residual_case(sizes[i][0], sizes[i][1], sizes[i][2], layer_types[k], MEMOPT_ACTIVATION_NONE, 1);
            layer_residual_case(sizes[i][0], sizes[i][1], sizes[i][2], layer_types[k], MEMOPT_ACTIVATION_GELU, (int)i & 1);
        }
    if (!test_is_passed_over()) layer_residual_case(800, 2, 1370, MEMOPT_TYPE_F32, MEMOPT_ACTIVATION_RELU, 0); /* in several steps of rows */
}
static void layer_residual_with_a_gemm(void) { /* of one's own: it adds onto residual + bias */
    const memopt_type types[2] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16 }; int k, place, biased;
    for (k = 0; k < 2; ++k)
        for (place = 0; place < 2; ++place)
            for (biased = 0; biased < 2; ++biased) {
                memopt_linear x = layer_linear(9, 30, 300, types[k], MEMOPT_TYPE_BF16, types[k]); layer_asked asked = { 0, 0, 0 };
                memopt_ops ops = layer_ops(NULL, &x); void *residual = layer_new(types[k], 2700, 55); layer_plain p; size_t i;
                double *old = layer_doubles(types[k], residual, 2700);
                ops.gemm.multiply_fn = layer_asking; ops.gemm.user = &asked; ops.gemm.scratch_bytes = MEMOPT_GEMM_SCRATCH;
                memset(&p, 0, sizeof p);
                p.inputs = 30; p.x = layer_doubles(types[k], x.input, 270); p.w = layer_doubles(MEMOPT_TYPE_BF16, x.weights, 9000);
                x.bias = biased ? x.bias : NULL;
                if (biased) p.b = layer_doubles(MEMOPT_TYPE_BF16, x.bias, 300);
                x.residual = residual;
                if (place) x.output = residual;
                CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK);
                CHECK(asked.calls == 1 && asked.accumulate && !asked.bias);
                for (i = 0; i < 2700; ++i) {
                    const double z = layer_plain_linear(&p, i / 300, i % 300) + old[i];
                    CHECK_AT(layer_close(types[k], layer_get(types[k], x.output, i), z, 200 + 4 * layer_unit(types[k]) / 4e-6), i);
                }
                x.activation = MEMOPT_ACTIVATION_SILU; asked.calls = 0; /* comes after, as with the built-in one */
                x.pre_activation = layer_new(types[k], 2700, 6);
                CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK && asked.calls == 1 && !asked.accumulate);
                layer_done();
            }
}
static void layer_steps_with_a_gemm(void) { /* of one's own: a product, activation and residual some rows at a time are the bits of all */
    int k;
    for (k = 0; k < 2; ++k) {
        const memopt_type type = k ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        memopt_linear x = layer_linear(800, 2, 1370, type, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32), y = x; layer_asked asked = { 0, 0, 0 };
        memopt_ops ops = layer_ops(NULL, &x);
        x.activation = y.activation = MEMOPT_ACTIVATION_RELU; x.residual = y.residual = layer_new(type, 800 * 1370, 9);
        y.output = layer_new(type, 800 * 1370, 8);
        CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK);
        ops.gemm.multiply_fn = layer_asking; ops.gemm.user = &asked; ops.gemm.scratch_bytes = MEMOPT_GEMM_SCRATCH;
        CHECK(memopt_linear_forward(&ops, &y) == MEMOPT_OK && asked.calls == 3);
        CHECK_AT(memcmp(x.output, y.output, 800 * 1370 * memopt_type_bytes(type)) == 0, k);
        memcpy(y.output, y.residual, 800 * 1370 * memopt_type_bytes(type)); /* in place */
        y.residual = y.output; y.pre_activation = layer_new(type, 800 * 1370, 7);
        CHECK(memopt_linear_forward(&ops, &y) == MEMOPT_OK);
        CHECK_AT(memcmp(x.output, y.output, 800 * 1370 * memopt_type_bytes(type)) == 0, k);
        layer_done();
    }
}
static void layer_residual_scratch(void) { /* the largest chunk of sums beside the result ends before the scratch does */
    const size_t needed = MEMOPT_GEMM_SCRATCH, all = needed + (1 << 20);
    memopt_linear x = layer_linear(384, 2, 768, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32); memopt_ops ops; size_t i, touched = 0;
    unsigned char *block = (unsigned char *)layer_alloc(all + 63);
    memset(&ops, 0, sizeof ops);
    ops.scratch = block = block + (63 & (64 - (uintptr_t)block % 64)); ops.scratch_bytes = needed;
    memset(block + needed, 0x5a, all - needed);
    x.residual = x.output;
    CHECK(memopt_linear_forward(&ops, &x) == MEMOPT_OK);
    for (i = needed; i < all; ++i) touched += block[i] != 0x5a;
    CHECK(touched == 0);
    layer_done();
}
static void layer_residual_gradient(void) { /* is grad_output: backward neither reads nor writes the residual */
    memopt_linear x = layer_linear(5, 6, 7, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32), y = x; const memopt_ops ops = layer_ops(NULL, &x);
    y.residual = (const char *)x.output + 1; y.grad_input = layer_new(MEMOPT_TYPE_F32, 30, 1); y.grad_weights = layer_new(MEMOPT_TYPE_F32, 42, 1);
    y.grad_bias = layer_new(MEMOPT_TYPE_F32, 7, 1);
    CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK && memopt_linear_backward(&ops, &y) == MEMOPT_OK);
    CHECK(!memcmp(x.grad_input, y.grad_input, 120) && !memcmp(x.grad_weights, y.grad_weights, 168) && !memcmp(x.grad_bias, y.grad_bias, 28));
    layer_done();
}
/* A gradient through the activation before the layer: the bits of two calls; the other gradients do not change. */
static void layer_through_case(size_t rows, size_t inputs, size_t outputs, memopt_type type, memopt_activation activation, int asks) {
    const size_t n = rows * inputs, bytes = memopt_type_bytes(type); test_worker_set set; int level, workers;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level))
        for (workers = 0; workers <= 3; workers += 3) {
            const memopt_threads threads = test_workers(&set, workers, level); layer_asked asked = { 0, 0, 0 };
            memopt_linear x = layer_linear(rows, inputs, outputs, type, type, type), y = x; memopt_activation_args a;
            memopt_ops ops = layer_ops(&threads, &x); const void *before = layer_new(type, n, 21);
            if (asks) { ops.gemm.multiply_fn = layer_asking; ops.gemm.user = &asked; ops.gemm.scratch_bytes = MEMOPT_GEMM_SCRATCH; }
            y.grad_input = layer_new(type, n, 22); y.grad_weights = layer_new(type, outputs * inputs, 23); y.grad_bias = layer_new(type, outputs, 24);
            memset(&a, 0, sizeof a);
            a.n = n; a.activation = activation; a.type = type; a.input = before; a.grad_output = a.grad_input = x.grad_input;
            CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK && memopt_activation_backward(&ops, &a) == MEMOPT_OK);
            CHECK_AT(memopt_linear_backward_through(&ops, &y, activation, before) == MEMOPT_OK, level);
            CHECK_AT(memcmp(x.grad_input, y.grad_input, n * bytes) == 0 && layer_end_is_kept(type, y.grad_input, n), level);
            CHECK_AT(memcmp(x.grad_weights, y.grad_weights, outputs * inputs * bytes) == 0, level);
            CHECK_AT(memcmp(x.grad_bias, y.grad_bias, outputs * bytes) == 0, level);
            layer_done();
        }
}
static void layer_through_values(void) { /* sizes around tiles, and chunks of 288 and 768 columns */
    static const size_t sizes[][3] = { { 1, 1, 1 }, { 3, 5, 0 }, { 7, 33, 5 }, { 13, 40, 193 }, { 400, 9, 3 }, { 5, 300, 400 }, { 2, 801, 7 } };
    size_t i; int k;
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (k = 0; k < 3; ++k) {
            if (test_is_passed_over()) continue;
            layer_through_case(sizes[i][0], sizes[i][1], sizes[i][2], layer_types[k], (memopt_activation)(1 + (i + (size_t)k) % 3), i == 3);
        }
    if (!test_is_passed_over()) layer_through_case(390, 2800, 1, MEMOPT_TYPE_BF16, MEMOPT_ACTIVATION_RELU, 0); /* in two steps of rows */
}
static void layer_through_nothing(void) { /* without an activation, or grad_input, it is the plain backward */
    memopt_linear x = layer_linear(5, 6, 7, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32), y = x; const memopt_ops ops = layer_ops(NULL, &x);
    y.grad_input = layer_new(MEMOPT_TYPE_F32, 30, 1); y.grad_weights = layer_new(MEMOPT_TYPE_F32, 42, 1);
    CHECK(memopt_linear_backward(&ops, &x) == MEMOPT_OK);
    CHECK(memopt_linear_backward_through(&ops, &y, MEMOPT_ACTIVATION_NONE, NULL) == MEMOPT_OK);
    CHECK(!memcmp(x.grad_input, y.grad_input, 120) && !memcmp(x.grad_weights, y.grad_weights, 168));
    y.grad_input = NULL; memset(y.grad_weights, 0, 168); y.accumulate_input = 1;
    CHECK(memopt_linear_backward_through(&ops, &y, MEMOPT_ACTIVATION_GELU, NULL) == MEMOPT_OK);
    CHECK(!memcmp(x.grad_weights, y.grad_weights, 168));
    layer_done();
}

/* ---- why: each change to what is right is told by its own line ---- */
static memopt_status layer_broken_gemm(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    (void)user; (void)p; (void)threads; (void)scratch;
    return MEMOPT_ERR_DEVICE;
}
static float layer_room[512];
static uint64_t layer_scratch[(2 * MEMOPT_GEMM_SCRATCH + 64) / 8 + 8];
static memopt_ops layer_fine(void) {
    memopt_ops o;

    memset(&o, 0, sizeof o);
    o.scratch = (void *)(((uintptr_t)layer_scratch + 63) & ~(uintptr_t)63);
    o.scratch_bytes = MEMOPT_GEMM_SCRATCH + 64;
    return o;
}
#define LAYER_ODD(p) ((void *)((char *)(p) + 1))
#define LINEAR_SAYS(change, call, want, text) REFUSES(o.error, (x = right, o = layer_fine(), change), \
    memopt_linear_##call, MEMOPT_ERR_##want, "linear: " text)
static void layer_linear_errors(void) {
    memopt_linear right, x;
    memopt_ops o = layer_fine();
    size_t bytes;

    memset(&right, 0, sizeof right);
    right.rows = right.inputs = right.outputs = 4;
    right.input = layer_room;
    right.weights = layer_room + 16;
    right.bias = layer_room + 32;
    right.output = layer_room + 48;
    right.pre_activation = layer_room + 64;
    right.grad_output = layer_room + 80;
    right.grad_input = layer_room + 96;
    right.grad_weights = layer_room + 112;
    right.grad_bias = layer_room + 128;
    ACCEPTS(o.error, x = right, memopt_linear_forward(&o, &x));
    LINEAR_SAYS(x.accumulate = 2, backward(&o, &x), ARGUMENT, "accumulate 2, must be 0 or 1");
    LINEAR_SAYS(x.accumulate_input = -1, backward(&o, &x), ARGUMENT, "accumulate_input -1, must be 0 or 1");
    ACCEPTS(o.error, x = right, memopt_linear_backward(&o, &x));
    ACCEPTS(o.error, x = right, scratch_of_linear(&o, &x, &bytes));
    LINEAR_SAYS((void)0, forward(&o, NULL), ARGUMENT, "its struct is NULL");
    LINEAR_SAYS(x.type = (memopt_type)test_number_of(9), forward(&o, &x), ARGUMENT, "type 9, no such memopt_type");
    LINEAR_SAYS(x.weight_type = (memopt_type)3, forward(&o, &x), ARGUMENT, "weight_type 3, no such memopt_type");
    LINEAR_SAYS(x.gradient_type = (memopt_type)3, backward(&o, &x), ARGUMENT, "gradient_type 3, no such memopt_type");
    LINEAR_SAYS(x.activation = (memopt_activation)test_number_of(7), forward(&o, &x), ARGUMENT, "activation 7, no such memopt_activation");
    LINEAR_SAYS(x.input = NULL, forward(&o, &x), ARGUMENT, "input is NULL");
    LINEAR_SAYS(x.input = NULL, backward(&o, &x), ARGUMENT, "input is NULL");
    LINEAR_SAYS(x.input = LAYER_ODD(layer_room), forward(&o, &x), ARGUMENT, "input is misaligned");
    LINEAR_SAYS(x.weights = NULL, forward(&o, &x), ARGUMENT, "weights is NULL");
    LINEAR_SAYS(x.weights = NULL, backward(&o, &x), ARGUMENT, "weights is NULL");
    LINEAR_SAYS(x.bias = LAYER_ODD(layer_room), forward(&o, &x), ARGUMENT, "bias is misaligned");
    LINEAR_SAYS(x.output = NULL, forward(&o, &x), ARGUMENT, "output is NULL");
    LINEAR_SAYS(x.pre_activation = LAYER_ODD(layer_room), forward(&o, &x), ARGUMENT, "pre_activation is misaligned");
    LINEAR_SAYS(x.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
    LINEAR_SAYS(x.grad_input = LAYER_ODD(layer_room), backward(&o, &x), ARGUMENT, "grad_input is misaligned");
    LINEAR_SAYS(x.grad_weights = LAYER_ODD(layer_room), backward(&o, &x), ARGUMENT, "grad_weights is misaligned");
    LINEAR_SAYS(x.grad_bias = LAYER_ODD(layer_room), backward(&o, &x), ARGUMENT, "grad_bias is misaligned");
    LINEAR_SAYS(x.residual = LAYER_ODD(layer_room), forward(&o, &x), ARGUMENT, "residual is misaligned");
    LINEAR_SAYS(x.residual = layer_room + 49, forward(&o, &x), ARGUMENT, "output overlaps residual");
    LINEAR_SAYS(x.residual = layer_room + 65, forward(&o, &x), ARGUMENT, "pre_activation overlaps residual");
    LINEAR_SAYS((x.residual = x.output, x.activation = MEMOPT_ACTIVATION_RELU, x.pre_activation = NULL), forward(&o, &x), ARGUMENT,
                "residual is output, where the activation works without pre_activation");
    LINEAR_SAYS((x.residual = x.pre_activation = x.output, x.activation = MEMOPT_ACTIVATION_RELU), forward(&o, &x), ARGUMENT,
                "residual is output, where the activation works without pre_activation");
    LINEAR_SAYS((void)0, backward_through(&o, &x, (memopt_activation)test_number_of(7), layer_room), ARGUMENT, "activation 7, no such memopt_activation");
    LINEAR_SAYS(x.accumulate_input = 1, backward_through(&o, &x, MEMOPT_ACTIVATION_SILU, layer_room), ARGUMENT,
                "accumulate_input is set, and there is an activation");
    LINEAR_SAYS((void)0, backward_through(&o, &x, MEMOPT_ACTIVATION_SILU, NULL), ARGUMENT, "pre_activation is NULL");
    LINEAR_SAYS((void)0, backward_through(&o, &x, MEMOPT_ACTIVATION_SILU, LAYER_ODD(layer_room)), ARGUMENT, "pre_activation is misaligned");
    LINEAR_SAYS((void)0, backward_through(&o, &x, MEMOPT_ACTIVATION_SILU, (float *)x.grad_input + 15), ARGUMENT, "grad_input overlaps pre_activation");
    ACCEPTS(o.error, x = right, memopt_linear_backward_through(&o, &x, MEMOPT_ACTIVATION_SILU, (float *)x.grad_input + 16));
    ACCEPTS(o.error, (x = right, x.residual = x.output), memopt_linear_forward(&o, &x));
    ACCEPTS(o.error, (x = right, x.residual = x.pre_activation = x.output), memopt_linear_forward(&o, &x));
    ACCEPTS(o.error, (x = right, x.residual = layer_room + 144), memopt_linear_forward(&o, &x));
    LINEAR_SAYS(x.rows = SIZE_MAX / 2, forward(&o, &x), OVERFLOW, "input is larger than memory can be");
    LINEAR_SAYS((x.inputs = 0, x.rows = SIZE_MAX / 2), forward(&o, &x), OVERFLOW, "output is larger than memory can be");
    LINEAR_SAYS((x.rows = 0, x.outputs = SIZE_MAX / 8), forward(&o, &x), OVERFLOW, "weights is larger than memory can be");
    LINEAR_SAYS((x.rows = x.inputs = 0, x.outputs = SIZE_MAX / 4), forward(&o, &x), OVERFLOW,
                "bias is larger than memory can be");
    LINEAR_SAYS(o.scratch_bytes = 100, forward(&o, &x), BUFFER, "scratch_bytes 100, at least 786432");
    LINEAR_SAYS(o.scratch_bytes = 786431, backward(&o, &x), BUFFER, "scratch_bytes 786431, at least 786432");
    LINEAR_SAYS(o.gemm.multiply_fn = layer_broken_gemm, forward(&o, &x), DEVICE, "the gemm failed");
    LINEAR_SAYS(o.gemm.multiply_fn = layer_broken_gemm, backward(&o, &x), DEVICE, "the gemm failed");
    LINEAR_SAYS((o.gemm.multiply_fn = layer_broken_gemm, o.gemm.scratch_bytes = SIZE_MAX), backward(&o, &x), OVERFLOW,
                "gemm.scratch_bytes does not fit size_t");
}
#define ELEMENTS_SAYS(operator, change, call, want, text) REFUSES(o.error, (x = right, o = layer_fine(), change), \
    memopt_##operator##_##call, MEMOPT_ERR_##want, #operator ": " text)
static void layer_activation_errors(void) {
    memopt_activation_args right, x;
    memopt_ops o = layer_fine();

    memset(&right, 0, sizeof right);
    right.n = 4;
    right.input = layer_room;
    right.output = layer_room + 16;
    right.grad_output = layer_room + 32;
    right.grad_input = layer_room + 48;
    ACCEPTS(o.error, x = right, memopt_activation_forward(&o, &x));
    ACCEPTS(o.error, x = right, memopt_activation_backward(&o, &x));
    ELEMENTS_SAYS(activation, x.input = NULL, forward(&o, &x), ARGUMENT, "input is NULL");
    ELEMENTS_SAYS(activation, x.output = NULL, forward(&o, &x), ARGUMENT, "output is NULL");
    ELEMENTS_SAYS(activation, x.output = LAYER_ODD(layer_room), backward(&o, &x), ARGUMENT, "output is misaligned");
    ELEMENTS_SAYS(activation, x.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
    ELEMENTS_SAYS(activation, x.grad_input = NULL, backward(&o, &x), ARGUMENT, "grad_input is NULL");
    ELEMENTS_SAYS(activation, x.type = (memopt_type)3, forward(&o, &x), ARGUMENT, "type 3, no such memopt_type");
    if (sizeof(memopt_activation) == sizeof(int)) /* -fshort-enums: 255 */
        ELEMENTS_SAYS(activation, x.activation = (memopt_activation)test_number_of(-1), forward(&o, &x), ARGUMENT,
                      "activation -1, no such memopt_activation");
    ELEMENTS_SAYS(activation, x.n = SIZE_MAX / 4, forward(&o, &x), OVERFLOW, "input is larger than memory can be");
    ELEMENTS_SAYS(activation, (void)0, backward(&o, NULL), ARGUMENT, "its struct is NULL");
}
static void layer_swiglu_errors(void) {
    memopt_swiglu right, x;
    memopt_ops o = layer_fine();

    memset(&right, 0, sizeof right);
    right.rows = right.width = 4;
    right.input = layer_room;
    right.output = layer_room + 32;
    right.grad_output = layer_room + 64;
    right.grad_input = layer_room + 128;
    ACCEPTS(o.error, x = right, memopt_swiglu_forward(&o, &x));
    ACCEPTS(o.error, x = right, memopt_swiglu_backward(&o, &x));
    ELEMENTS_SAYS(swiglu, x.input = NULL, forward(&o, &x), ARGUMENT, "input is NULL");
    ELEMENTS_SAYS(swiglu, x.output = NULL, forward(&o, &x), ARGUMENT, "output is NULL");
    ELEMENTS_SAYS(swiglu, (x.rows = x.width = 1, x.output = NULL), forward(&o, &x), ARGUMENT, "output is NULL");
    ELEMENTS_SAYS(swiglu, x.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
    ELEMENTS_SAYS(swiglu, x.grad_input = LAYER_ODD(layer_room), backward(&o, &x), ARGUMENT, "grad_input is misaligned");
    ELEMENTS_SAYS(swiglu, x.type = (memopt_type)3, forward(&o, &x), ARGUMENT, "type 3, no such memopt_type");
    ELEMENTS_SAYS(swiglu, x.width = SIZE_MAX, forward(&o, &x), OVERFLOW, "input is larger than memory can be");
    ELEMENTS_SAYS(swiglu, x.rows = SIZE_MAX / 8, forward(&o, &x), OVERFLOW, "input is larger than memory can be");
    ELEMENTS_SAYS(swiglu, (void)0, backward(&o, NULL), ARGUMENT, "its struct is NULL");
    ACCEPTS(o.error, x = right, memopt_geglu_forward(&o, &x));
    ELEMENTS_SAYS(geglu, x.input = NULL, forward(&o, &x), ARGUMENT, "input is NULL");
    ELEMENTS_SAYS(geglu, x.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
}
static void layer_dropout_errors(void) {
    memopt_dropout right, x;
    memopt_ops o = layer_fine();

    memset(&right, 0, sizeof right);
    right.n = 4;
    right.rate = 0.5f;
    right.input = layer_room;
    right.output = layer_room + 16;
    right.grad_output = layer_room + 32;
    right.grad_input = layer_room + 48;
    ACCEPTS(o.error, x = right, memopt_dropout_forward(&o, &x));
    ACCEPTS(o.error, x = right, memopt_dropout_backward(&o, &x));
    ELEMENTS_SAYS(dropout, x.rate = 1, forward(&o, &x), ARGUMENT, "rate 1, at least 0 and below 1");
    ELEMENTS_SAYS(dropout, x.rate = -0.25f, backward(&o, &x), ARGUMENT, "rate -0.25, at least 0 and below 1");
    ELEMENTS_SAYS(dropout, x.input = NULL, forward(&o, &x), ARGUMENT, "input is NULL");
    ELEMENTS_SAYS(dropout, x.residual = LAYER_ODD(layer_room), forward(&o, &x), ARGUMENT, "residual is misaligned");
    ELEMENTS_SAYS(dropout, x.output = NULL, forward(&o, &x), ARGUMENT, "output is NULL");
    ELEMENTS_SAYS(dropout, x.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
    ELEMENTS_SAYS(dropout, x.grad_input = NULL, backward(&o, &x), ARGUMENT, "grad_input is NULL");
    ELEMENTS_SAYS(dropout, x.type = (memopt_type)3, forward(&o, &x), ARGUMENT, "type 3, no such memopt_type");
    ELEMENTS_SAYS(dropout, x.n = SIZE_MAX / 4, forward(&o, &x), OVERFLOW, "input is larger than memory can be");
    ELEMENTS_SAYS(dropout, x.n = SIZE_MAX / 4, backward(&o, &x), OVERFLOW, "grad_output is larger than memory can be");
    ELEMENTS_SAYS(dropout, (void)0, forward(&o, NULL), ARGUMENT, "its struct is NULL");
}
static void layer_embedding_errors(void) {
    static int32_t ids[8];
    memopt_embedding right, x;
    memopt_ops o = layer_fine();

    memset(&right, 0, sizeof right);
    right.rows = 8;
    right.width = right.length = 4;
    right.vocabulary = 50257;
    right.ids = ids;
    right.tokens = layer_room;
    right.positions = layer_room + 16;
    right.output = layer_room + 32;
    right.grad_output = layer_room + 64;
    right.grad_positions = layer_room + 96;
    ACCEPTS(o.error, x = right, memopt_embedding_forward(&o, &x));
    ACCEPTS(o.error, x = right, memopt_embedding_backward(&o, &x));
    ELEMENTS_SAYS(embedding, ids[7] = 50300, forward(&o, &x), ARGUMENT, "id 50300 at row 7, limit 50257");
    ELEMENTS_SAYS(embedding, ids[2] = -1, backward(&o, &x), ARGUMENT, "id -1 at row 2, limit 50257");
    memset(ids, 0, sizeof ids);
    ELEMENTS_SAYS(embedding, x.accumulate = 7, backward(&o, &x), ARGUMENT, "accumulate 7, must be 0 or 1");
    ELEMENTS_SAYS(embedding, x.ids = NULL, forward(&o, &x), ARGUMENT, "ids is NULL");
    ELEMENTS_SAYS(embedding, x.ids = (const int32_t *)LAYER_ODD(ids), forward(&o, &x), ARGUMENT, "ids is misaligned");
    ELEMENTS_SAYS(embedding, x.tokens = NULL, forward(&o, &x), ARGUMENT, "tokens is NULL");
    ELEMENTS_SAYS(embedding, x.output = NULL, forward(&o, &x), ARGUMENT, "output is NULL");
    ELEMENTS_SAYS(embedding, x.positions = LAYER_ODD(layer_room), forward(&o, &x), ARGUMENT, "positions is misaligned");
    ELEMENTS_SAYS(embedding, x.length = 0, forward(&o, &x), ARGUMENT, "length is 0");
    ELEMENTS_SAYS(embedding, x.length = SIZE_MAX / 8, backward(&o, &x), OVERFLOW,
                  "grad_positions is larger than memory can be");
    ELEMENTS_SAYS(embedding, x.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
    ELEMENTS_SAYS(embedding, x.grad_tokens = LAYER_ODD(layer_room), backward(&o, &x), ARGUMENT,
                  "grad_tokens is misaligned");
    ELEMENTS_SAYS(embedding, x.type = (memopt_type)3, forward(&o, &x), ARGUMENT, "type 3, no such memopt_type");
    ELEMENTS_SAYS(embedding, x.weight_type = (memopt_type)3, forward(&o, &x), ARGUMENT, "weight_type 3, no such memopt_type");
    ELEMENTS_SAYS(embedding, x.gradient_type = (memopt_type)3, backward(&o, &x), ARGUMENT,
                  "gradient_type 3, no such memopt_type");
    ELEMENTS_SAYS(embedding, x.width = SIZE_MAX / 8, forward(&o, &x), OVERFLOW, "output is larger than memory can be");
    ELEMENTS_SAYS(embedding, (x.width = 0, x.rows = SIZE_MAX / 4), forward(&o, &x), OVERFLOW,
                  "ids is larger than memory can be");
    ELEMENTS_SAYS(embedding, x.vocabulary = SIZE_MAX / 4, forward(&o, &x), OVERFLOW, "tokens is larger than memory can be");
    ELEMENTS_SAYS(embedding, (void)0, forward(&o, NULL), ARGUMENT, "its struct is NULL");
}
static void layer_rotary_errors(void) {
    double f[4] = { 1, 1.5, 0, 0 };
    int32_t positions[2] = { 0, -1 };
    memopt_rotary right, x;
    memopt_ops o = layer_fine();

    memset(&right, 0, sizeof right);
    right.rows = 2; right.heads = 3; right.width = 8;
    right.input = layer_room; right.output = layer_room + 64; right.grad_output = layer_room + 128; right.grad_input = layer_room + 192;
    ACCEPTS(o.error, x = right, memopt_rotary_forward(&o, &x));
    ACCEPTS(o.error, x = right, memopt_rotary_backward(&o, &x));
    ACCEPTS(o.error, (x = right, x.rows = 0, x.input = NULL, x.output = NULL), memopt_rotary_forward(&o, &x));
    ACCEPTS(o.error, (x = right, x.heads = 0, x.input = NULL, x.output = NULL), memopt_rotary_forward(&o, &x));
    ELEMENTS_SAYS(rotary, (void)0, forward(&o, NULL), ARGUMENT, "its struct is NULL");
    ELEMENTS_SAYS(rotary, x.input = NULL, forward(&o, &x), ARGUMENT, "input is NULL");
    ELEMENTS_SAYS(rotary, x.output = NULL, forward(&o, &x), ARGUMENT, "output is NULL");
    ELEMENTS_SAYS(rotary, x.output = LAYER_ODD(x.output), forward(&o, &x), ARGUMENT, "output is misaligned");
    ELEMENTS_SAYS(rotary, x.grad_output = NULL, backward(&o, &x), ARGUMENT, "grad_output is NULL");
    ELEMENTS_SAYS(rotary, x.grad_input = NULL, backward(&o, &x), ARGUMENT, "grad_input is NULL");
    ELEMENTS_SAYS(rotary, x.type = (memopt_type)3, forward(&o, &x), ARGUMENT, "type 3, no such memopt_type");
    ELEMENTS_SAYS(rotary, x.interleaved = 2, forward(&o, &x), ARGUMENT, "interleaved 2, must be 0 or 1");
    ELEMENTS_SAYS(rotary, x.rotated = 10, forward(&o, &x), ARGUMENT, "rotated 10, at most width 8");
    ELEMENTS_SAYS(rotary, x.rotated = 5, backward(&o, &x), ARGUMENT, "rotated 5, must be even");
    ELEMENTS_SAYS(rotary, x.width = 5, forward(&o, &x), ARGUMENT, "rotated 5, must be even");
    ELEMENTS_SAYS(rotary, x.base = 0.5, forward(&o, &x), ARGUMENT, "base 0.5, finite and at least 1");
    ELEMENTS_SAYS(rotary, x.base = -1, forward(&o, &x), ARGUMENT, "base -1, finite and at least 1");
    ELEMENTS_SAYS(rotary, x.base = HUGE_VAL, forward(&o, &x), ARGUMENT, "base infinity, finite and at least 1");
    ELEMENTS_SAYS(rotary, x.stride = 23, forward(&o, &x), ARGUMENT, "stride 23, at least heads * width 24");
    ELEMENTS_SAYS(rotary, x.magnitude = -1, forward(&o, &x), ARGUMENT, "magnitude -1, finite and at least 0");
    ELEMENTS_SAYS(rotary, x.magnitude = HUGE_VALF, forward(&o, &x), ARGUMENT, "magnitude infinity, finite and at least 0");
    ELEMENTS_SAYS(rotary, x.frequencies = f, forward(&o, &x), ARGUMENT, "frequencies 1.5 at pair 1, at least 0 and at most 1");
    f[1] = -0.5;
    ELEMENTS_SAYS(rotary, x.frequencies = f, backward(&o, &x), ARGUMENT, "frequencies -0.5 at pair 1, at least 0 and at most 1");
    f[1] = (double)NAN;
    ELEMENTS_SAYS(rotary, x.frequencies = f, backward(&o, &x), ARGUMENT, "frequencies NaN at pair 1, at least 0 and at most 1");
    ELEMENTS_SAYS(rotary, (x.frequencies = f, x.base = 2), forward(&o, &x), ARGUMENT, "frequencies is given, and base as well");
    ELEMENTS_SAYS(rotary, x.positions = positions, forward(&o, &x), ARGUMENT, "positions -1 at row 1, limit 2147483648");
    ELEMENTS_SAYS(rotary, (x.positions = positions, x.first = 1), forward(&o, &x), ARGUMENT, "positions is given, and length or first as well");
    ELEMENTS_SAYS(rotary, (x.positions = positions, x.length = 1), backward(&o, &x), ARGUMENT, "positions is given, and length or first as well");
    ELEMENTS_SAYS(rotary, x.positions = (const int32_t *)(const void *)((const char *)positions + 1), forward(&o, &x), ARGUMENT, "positions is misaligned");
    ELEMENTS_SAYS(rotary, x.heads = SIZE_MAX / 4, forward(&o, &x), OVERFLOW, "heads * width does not fit size_t");
    ELEMENTS_SAYS(rotary, x.first = SIZE_MAX, forward(&o, &x), OVERFLOW, "first + length does not fit size_t");
    ELEMENTS_SAYS(rotary, x.rows = SIZE_MAX / 16, forward(&o, &x), OVERFLOW, "input is larger than memory can be");
    ELEMENTS_SAYS(rotary, x.rows = SIZE_MAX / 16, backward(&o, &x), OVERFLOW, "grad_output is larger than memory can be");
}

static void test_layer(void) {
    RUN(layer_linear_values); RUN(layer_linear_quantized); RUN(layer_linear_quantized_refused);
    RUN(layer_linear_wanted);
    RUN(layer_rotary_values);
    RUN(layer_rotary_far);
    RUN(layer_rotary_given);
    RUN(layer_rotary_scaling);
    RUN(layer_rotary_everywhere);
    RUN(layer_rotary_in_place);
    RUN(layer_rotary_same_bits);
    RUN(layer_rotary_errors);
    RUN(layer_residual_values);
    RUN(layer_residual_with_a_gemm);
    RUN(layer_residual_scratch);
    RUN(layer_steps_with_a_gemm);
    RUN(layer_residual_gradient);
    RUN(layer_through_values);
    RUN(layer_through_nothing);
    RUN(layer_sums_are_float);
    RUN(layer_activation_values);
    RUN(layer_activation_in_place);
    RUN(layer_swiglu_values);
    RUN(layer_geglu_values);
    RUN(layer_dropout_values);
    RUN(layer_dropout_chooses);
    RUN(layer_dropout_statistics);
    RUN(layer_dropout_at_most);
    RUN(layer_dropout_of_infinity);
    RUN(layer_embedding_values);
    RUN(layer_embedding_wanted);
    RUN(layer_same_bits);
    RUN(layer_linear_refused);
    RUN(layer_gemm_fails);
    RUN(layer_elements_refused);
    RUN(layer_dropout_refused);
    RUN(layer_embedding_refused);
    RUN(layer_linear_errors);
    RUN(layer_activation_errors);
    RUN(layer_swiglu_errors);
    RUN(layer_dropout_errors);
    RUN(layer_embedding_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_layer(); return test_totals(); }
#endif
