/* test_parts_nets.c - examples/parts: the residual block of a CNN, and GRU and LSTM over time. A plain engine, which calls the
   same operators in plain order and keeps every buffer, has the same bits at every budget, number of workers and SIMD
   level; loops in double, written from the formulas, have the same values within 1e-4, and their finite differences the
   same gradients. */
#include "test.h"
#include "../examples/parts/residual_cnn.h"
#include "../examples/parts/recurrent.h"

/* ---- what both use ---- */
enum { NETS_POOL = 1 << 19, NETS_BUDGETS = 5 };
static float nets_pool[NETS_POOL]; static size_t nets_used; /* buffers of a test: all kept to its end */
static float *nets_floats(size_t n) {
    float *p = nets_pool + nets_used; size_t i;
    if (n > NETS_POOL - nets_used) { printf("the pool is too small\n"); exit(1); }
    for (i = 0; i < n; ++i) p[i] = NAN; /* nobody may rely on zeros */
    nets_used += n;
    return p;
}
static float *nets_random(size_t n, uint64_t seed, float size, float offset) {
    float *p = nets_floats(n); size_t i;
    for (i = 0; i < n; ++i) p[i] = size * ((float)(test_random(&seed) >> 40) * (1.0f / 8388608.0f) - 1.0f) + offset;
    return p;
}
static int nets_equal(const float *a, const float *b, size_t n) { return !memcmp(a, b, n * sizeof *a); }
static int nets_close(double a, double b) { return fabs(a - b) <= 1e-4 * (1 + fabs(b)); }

typedef struct nets_tape { memopt_tape *tape; void *memory; size_t bytes; } nets_tape;
static void nets_memory(nets_tape *t) { /* as much as a pass takes, and not a byte more */
    const memopt_tape_stats stats = memopt_tape_get_stats(t->tape);
    CHECK(memopt_tape_set_memory(t->tape, NULL, 0) == MEMOPT_OK);
    if (t->memory) memopt_i_system_free(NULL, t->memory, t->bytes, 64);
    t->bytes = stats.peak > stats.evaluate_peak ? stats.peak : stats.evaluate_peak;
    t->memory = memopt_i_system_alloc(NULL, t->bytes, 64);
    if (!t->memory) { printf("out of memory\n"); exit(1); }
    memset(t->memory, 0xA5, t->bytes);
    CHECK(memopt_tape_set_memory(t->tape, t->memory, t->bytes) == MEMOPT_OK);
}
/* budget 0: everything is kept; 1: what that takes, 4: the least, in steps */
static nets_tape nets_open(memopt_tape_desc desc, int budget) {
    nets_tape t = { NULL, NULL, 0 }; size_t all, least = 0;
    desc.verify = 1;
    desc.rule = MEMOPT_SCHEDULE_ALL;
    if (memopt_tape_create(&desc, &t.tape)) { printf("no tape\n"); exit(1); }
    if (budget) {
        all = memopt_tape_get_stats(t.tape).peak;
        memopt_tape_destroy(t.tape);
        desc.rule = MEMOPT_SCHEDULE_EXTENDED;
        CHECK(memopt_tape_min_budget(&desc, &least) == MEMOPT_OK && least <= all);
        desc.budget = least + (all - least) / (NETS_BUDGETS - 2) * (size_t)(NETS_BUDGETS - 1 - budget);
        if (memopt_tape_create(&desc, &t.tape)) { printf("no tape within a budget\n"); exit(1); }
        CHECK(memopt_tape_get_stats(t.tape).peak <= desc.budget);
    }
    nets_memory(&t);
    return t;
}
static void nets_close_tape(nets_tape *t) {
    memopt_tape_destroy(t->tape);
    memopt_i_system_free(NULL, t->memory, t->bytes, 64);
}
static memopt_ops nets_ops(const memopt_threads *threads) { /* of the plain engine: one scratch for all */
    static unsigned char block[(8 << 20) + 64]; memopt_ops o;
    memset(&o, 0, sizeof o);
    o.threads = threads;
    o.scratch = block + (64 - (uintptr_t)block % 64) % 64;
    o.scratch_bytes = sizeof block - 64;
    return o;
}

/* The built-in product with scratch of its own: else that would be the most of these small nets' memory, and no budget
   would need to drop anything. Workers of tests run one after the other. */
static memopt_status nets_multiply(void *user, const memopt_product *product, const memopt_threads *threads, void *scratch) {
    static unsigned char block[4 * MEMOPT_GEMM_SCRATCH + 64];
    (void)user; (void)scratch;
    return memopt_gemm_multiply(product, threads, block + (64 - (uintptr_t)block % 64) % 64, 4 * MEMOPT_GEMM_SCRATCH);
}
static memopt_gemm nets_gemm(void) {
    memopt_gemm g; memset(&g, 0, sizeof g);
    g.multiply_fn = nets_multiply;
    return g;
}

/* ---- the CNN ---- */
enum { NETS_BLOCKS = 16, NETS_BATCH = 3 };
static const size_t nets_shapes[NETS_BLOCKS][6] = { /* height, width, inputs, outputs, stride, 1: with a projection */
    { 7, 5, 4, 4, 1, 0 }, { 7, 5, 4, 4, 1, 0 }, { 7, 5, 4, 4, 1, 0 }, { 7, 5, 4, 4, 1, 0 }, { 7, 5, 4, 4, 1, 0 }, { 7, 5, 4, 4, 1, 0 },
    { 7, 5, 4, 6, 2, 1 }, { 4, 3, 6, 6, 1, 0 }, { 4, 3, 6, 6, 1, 1 }, { 4, 3, 6, 6, 1, 0 }, { 4, 3, 6, 6, 1, 0 }, { 4, 3, 6, 6, 1, 0 },
    { 4, 3, 6, 6, 1, 0 }, { 4, 3, 6, 6, 1, 0 }, { 4, 3, 6, 8, 2, 1 }, { 2, 2, 8, 8, 1, 0 } };
typedef struct nets_cnn {
    residual_cnn blocks[NETS_BLOCKS]; size_t count; /* of blocks */
    float *weights, *grads, *running; size_t weight_count, running_count; /* of all blocks, one after the other */
    float *input, *output, *grad_output, *grad_input; size_t inputs, outputs;
} nets_cnn;
static residual_cnn_conv *nets_conv(residual_cnn *b, int which) { return which == 0 ? &b->first : which == 1 ? &b->second : &b->skip; }
static size_t nets_taps(const residual_cnn *b, int which) { return which == 0 ? 9 * b->inputs : which == 1 ? 9 * b->outputs : b->inputs; }
/* From a row of nets_shapes on; the same numbers whenever it is opened. The pool begins anew. */
static void nets_cnn_open(nets_cnn *m, const size_t (*shapes)[6], size_t count, const memopt_threads *threads) {
    size_t l; int which;
    memset(m, 0, sizeof *m);
    nets_used = 0;
    m->count = count;
    for (l = 0; l < count; ++l) {
        residual_cnn *b = &m->blocks[l];
        b->batch = NETS_BATCH; b->height = shapes[l][0]; b->width = shapes[l][1];
        b->inputs = shapes[l][2]; b->outputs = shapes[l][3]; b->stride = shapes[l][4];
        b->ops.threads = threads;
        if (threads) b->ops.gemm = nets_gemm();
    }
    m->weights = nets_pool + nets_used;
    for (l = 0; l < count; ++l)
        for (which = 0; which < 2 + (int)shapes[l][5]; ++which) {
            residual_cnn *b = &m->blocks[l]; residual_cnn_conv *c = nets_conv(b, which);
            c->weights = nets_random(nets_taps(b, which) * b->outputs, 3 * l + (size_t)which, 0.25f, 0);
            c->scale = nets_random(b->outputs, 100 + l, 0.25f, 1);
            c->shift = nets_random(b->outputs, 200 + l, 0.25f, 0);
        }
    m->grads = nets_pool + nets_used;
    m->weight_count = (size_t)(m->grads - m->weights);
    for (l = 0; l < count; ++l)
        for (which = 0; which < 2 + (int)shapes[l][5]; ++which) {
            residual_cnn *b = &m->blocks[l]; residual_cnn_conv *c = nets_conv(b, which);
            c->grad_weights = nets_floats(nets_taps(b, which) * b->outputs);
            c->grad_scale = nets_floats(b->outputs);
            c->grad_shift = nets_floats(b->outputs);
        }
    m->running = nets_pool + nets_used;
    for (l = 0; l < count; ++l)
        for (which = 0; which < 2 + (int)shapes[l][5]; ++which) {
            residual_cnn *b = &m->blocks[l]; residual_cnn_conv *c = nets_conv(b, which);
            c->running_mean = nets_random(b->outputs, 300 + l, 0.25f, 0);
            c->running_variance = nets_random(b->outputs, 400 + l, 0.25f, 1);
        }
    m->running_count = (size_t)(nets_pool + nets_used - m->running);
    m->inputs = NETS_BATCH * shapes[0][0] * shapes[0][1] * shapes[0][2];
    m->outputs = residual_cnn_rows(&m->blocks[count - 1]) * shapes[count - 1][3];
    m->input = nets_random(m->inputs, 500, 1, 0);
    m->output = nets_floats(m->outputs);
    m->grad_output = nets_random(m->outputs, 501, 1, 0);
    m->grad_input = nets_floats(m->inputs);
}

/* The plain engine. A convolution is columns (kernel elements outermost) and a batch norm. */
typedef struct nets_plain { float *columns, *sums, *statistics, *output; } nets_plain;
static size_t nets_out(size_t in, size_t stride) { return (in + stride - 1) / stride; }
static memopt_batch_norm nets_norm(const residual_cnn *b, const residual_cnn_conv *c, size_t taps, int relu) {
    memopt_batch_norm n; memset(&n, 0, sizeof n);
    n.linear.rows = b->batch * nets_out(b->height, b->stride) * nets_out(b->width, b->stride);
    n.linear.inputs = taps; n.linear.outputs = b->outputs; n.linear.weights = c->weights;
    n.linear.activation = relu ? MEMOPT_ACTIVATION_RELU : MEMOPT_ACTIVATION_NONE;
    n.linear.grad_weights = c->grad_weights; n.grad_scale = c->grad_scale; n.grad_shift = c->grad_shift;
    n.scale = c->scale; n.shift = c->shift; n.running_mean = c->running_mean; n.running_variance = c->running_variance;
    return n;
}
/* to_columns 1: columns of x; 0: x += columns */
static void nets_columns(const residual_cnn *b, int which, float *x, float *columns, int to_columns) {
    const size_t stride = which == 1 ? 1 : b->stride, kernel = which == 2 ? 1 : 3, channels = which == 1 ? b->outputs : b->inputs;
    const long high = (long)(which == 1 ? nets_out(b->height, b->stride) : b->height);
    const long wide = (long)(which == 1 ? nets_out(b->width, b->stride) : b->width);
    const size_t out_high = nets_out((size_t)high, stride), out_wide = nets_out((size_t)wide, stride);
    size_t image, ky, kx, row, column, i;
    for (ky = 0; ky < kernel; ++ky)
        for (kx = 0; kx < kernel; ++kx)
            for (image = 0; image < b->batch; ++image)
                for (row = 0; row < out_high; ++row)
                    for (column = 0; column < out_wide; ++column) {
                        const long at_y = (long)(row * stride + ky) - (long)(kernel / 2), at_x = (long)(column * stride + kx) - (long)(kernel / 2);
                        const int inside = at_y >= 0 && at_y < high && at_x >= 0 && at_x < wide;
                        float *at = columns + (((image * out_high + row) * out_wide + column) * kernel * kernel + ky * kernel + kx) * channels;
                        for (i = 0; i < channels; ++i) {
                            float *pixel = inside ? x + (size_t)(((long)image * high + at_y) * wide + at_x) * channels + i : NULL;
                            if (to_columns) at[i] = pixel ? *pixel : 0;
                            else if (pixel) *pixel += at[i];
                        }
                    }
}
static nets_plain nets_plain_conv(const memopt_ops *ops, residual_cnn *b, int which, float *x) {
    memopt_batch_norm n = nets_norm(b, nets_conv(b, which), nets_taps(b, which), which == 0); nets_plain p;
    p.columns = nets_floats(n.linear.rows * n.linear.inputs);
    p.sums = nets_floats(n.linear.rows * b->outputs);
    p.output = nets_floats(n.linear.rows * b->outputs);
    p.statistics = nets_floats(2 * b->outputs);
    nets_columns(b, which, x, p.columns, 1);
    n.linear.input = p.columns; n.linear.pre_activation = p.sums; n.linear.output = p.output; n.statistics = p.statistics;
    CHECK(memopt_batch_norm_forward(ops, &n) == MEMOPT_OK);
    return p;
}
static void nets_plain_back(const memopt_ops *ops, residual_cnn *b, int which, const nets_plain *p, const float *grad_output, float *grad_x) {
    memopt_batch_norm n = nets_norm(b, nets_conv(b, which), nets_taps(b, which), which == 0);
    float *grad_columns = nets_floats(n.linear.rows * n.linear.inputs);
    n.linear.input = p->columns; n.linear.pre_activation = p->sums; n.statistics = p->statistics;
    n.linear.grad_output = grad_output; n.linear.grad_input = grad_columns;
    CHECK(memopt_batch_norm_backward(ops, &n) == MEMOPT_OK);
    nets_columns(b, which, grad_x, grad_columns, 0);
}
static void nets_cnn_plain(nets_cnn *m) { /* a pass: output, gradients, running statistics */
    const memopt_ops ops = nets_ops(NULL); nets_plain p[NETS_BLOCKS][3]; float *x[NETS_BLOCKS + 1], *sum[NETS_BLOCKS], *grad, *next;
    const size_t used = nets_used; size_t l, i, n;
    memset(p, 0, sizeof p);
    x[0] = m->input;
    for (l = 0; l < m->count; ++l) {
        residual_cnn *b = &m->blocks[l]; const float *skip = x[l];
        n = residual_cnn_rows(b) * b->outputs;
        p[l][0] = nets_plain_conv(&ops, b, 0, x[l]);
        p[l][1] = nets_plain_conv(&ops, b, 1, p[l][0].output);
        if (b->skip.weights) { p[l][2] = nets_plain_conv(&ops, b, 2, x[l]); skip = p[l][2].output; }
        sum[l] = nets_floats(n); x[l + 1] = nets_floats(n);
        for (i = 0; i < n; ++i) { sum[l][i] = p[l][1].output[i] + skip[i]; x[l + 1][i] = sum[l][i] > 0 ? sum[l][i] : 0; }
    }
    memcpy(m->output, x[m->count], m->outputs * sizeof(float));
    grad = m->grad_output;
    for (l = m->count; l-- > 0; grad = next) {
        residual_cnn *b = &m->blocks[l]; float *d, *between; const size_t in = b->batch * b->height * b->width * b->inputs;
        n = residual_cnn_rows(b) * b->outputs;
        d = nets_floats(n); between = nets_floats(n); next = l ? nets_floats(in) : m->grad_input;
        for (i = 0; i < n; ++i) { d[i] = sum[l][i] > 0 ? grad[i] : 0; between[i] = 0; }
        nets_plain_back(&ops, b, 1, &p[l][1], d, between);
        for (i = 0; i < in; ++i) next[i] = b->skip.weights ? 0 : d[i];
        nets_plain_back(&ops, b, 0, &p[l][0], between, next);
        if (b->skip.weights) nets_plain_back(&ops, b, 2, &p[l][2], d, next);
    }
    nets_used = used;
}
static void nets_update(float *weights, const float *grads, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) weights[i] -= 0.0625f * grads[i];
}

static memopt_tape_desc nets_cnn_desc(nets_cnn *m, memopt_segment *segments, memopt_tape_layer *layers) {
    memopt_tape_desc d; size_t l;
    memset(&d, 0, sizeof d);
    for (l = 0; l < m->count; ++l) residual_cnn_layer(&m->blocks[l], &layers[l], &segments[l]);
    CHECK(memopt_tape_describe(layers, segments, m->count, NULL) == MEMOPT_OK && segments[0].grad_in_place);
    d.chain.segments = segments; d.chain.count = m->count; d.layers = layers;
    d.chain.input_bytes = d.chain.input_grad_bytes = m->inputs * sizeof(float);
    return d;
}
static void nets_cnn_pass(nets_cnn *m, memopt_tape *tape) {
    const size_t used = nets_used; float *grad = nets_floats(m->outputs);
    memcpy(grad, m->grad_output, m->outputs * sizeof(float)); /* a block without projection writes over it */
    CHECK(memopt_tape_forward(tape, m->input) == MEMOPT_OK);
    memcpy(m->output, memopt_tape_output(tape), m->outputs * sizeof(float));
    CHECK(memopt_tape_backward(tape, grad, m->grad_input) == MEMOPT_OK);
    nets_used = used;
}
/* Two steps; everything that is to be equal is between the pool's start and its end. */
static void nets_cnn_train(nets_cnn *m, memopt_tape *tape) {
    int step;
    for (step = 0; step < 2; ++step) {
        if (tape) nets_cnn_pass(m, tape);
        else nets_cnn_plain(m);
        nets_update(m->weights, m->grads, m->weight_count);
    }
}
static void test_cnn_has_the_bits_of_a_plain_engine(void) {
    static float expected[1 << 16]; static nets_cnn m; memopt_segment segments[NETS_BLOCKS]; memopt_tape_layer layers[NETS_BLOCKS];
    test_worker_set set; size_t n, kept[NETS_BUDGETS]; int budget, variant;
    nets_cnn_open(&m, nets_shapes, NETS_BLOCKS, NULL);
    nets_cnn_train(&m, NULL);
    n = nets_used;
    CHECK(n <= sizeof expected / sizeof *expected);
    memcpy(expected, nets_pool, n * sizeof(float));
    for (budget = 0; budget < NETS_BUDGETS; ++budget)
        for (variant = 0; variant < 3; ++variant) {
            const memopt_threads threads = variant == 2 ? test_workers(&set, 3, MEMOPT_SIMD_SCALAR) : test_level(variant ? MEMOPT_SIMD_SCALAR : 0);
            memopt_tape_desc d; nets_tape t;
            nets_cnn_open(&m, nets_shapes, NETS_BLOCKS, variant ? &threads : NULL); /* NULL: all built in */
            d = nets_cnn_desc(&m, segments, layers);
            t = nets_open(d, budget);
            kept[budget] = memopt_tape_get_stats(t.tape).kept;
            nets_cnn_train(&m, t.tape);
            CHECK_AT(nets_used == n && nets_equal(nets_pool, expected, n), budget * 10 + variant);
            nets_close_tape(&t);
        }
    CHECK(kept[NETS_BUDGETS - 1] < kept[0]);
}
/* Neither calibration nor evaluation moves a running statistic. */
static void test_cnn_statistics_move_once_a_pass(void) {
    static float expected[4096]; static nets_cnn m; memopt_segment segments[NETS_BLOCKS]; memopt_tape_layer layers[NETS_BLOCKS];
    test_faults faults; const memopt_host host = test_host(&faults); const memopt_threads threads = test_level(0);
    memopt_tape_desc d; nets_tape t; float *grad, *before;
    memset(&faults, 0, sizeof faults);
    nets_cnn_open(&m, nets_shapes, NETS_BLOCKS, NULL);
    nets_cnn_plain(&m);
    CHECK(m.running_count <= 4096);
    memcpy(expected, m.running, m.running_count * sizeof(float));
    nets_cnn_open(&m, nets_shapes, NETS_BLOCKS, &threads);
    d = nets_cnn_desc(&m, segments, layers);
    d.host = &host;
    t = nets_open(d, NETS_BUDGETS - 2); /* at the least budget, measured costs may find no place */
    grad = nets_random(m.outputs, 7, 1, 0); before = nets_floats(m.running_count);
    memcpy(before, m.running, m.running_count * sizeof(float));
    CHECK(memopt_tape_calibrate(t.tape, m.input, grad, m.grad_input, 2) == MEMOPT_OK);
    nets_memory(&t);
    CHECK(memopt_tape_evaluate(t.tape, m.input, m.output) == MEMOPT_OK);
    CHECK(nets_equal(before, m.running, m.running_count));
    nets_cnn_pass(&m, t.tape);
    CHECK(nets_equal(expected, m.running, m.running_count));
    nets_close_tape(&t);
    CHECK(!faults.live_blocks && !faults.bad_frees);
}

/* ---- in double: numbers of the pool, wide, so that each can be moved a little ---- */
enum { NETS_WIDE = 1 << 13 };
static double nets_wide[NETS_WIDE];
static const double *nets_at(const float *p) { return nets_wide + (p - nets_pool); }
static void nets_widen(void) {
    size_t i;
    CHECK(nets_used <= NETS_WIDE);
    for (i = 0; i < nets_used && i < NETS_WIDE; ++i) nets_wide[i] = (double)nets_pool[i];
}
typedef double nets_double_fn(void *net);
/* Gradients of n numbers of the pool against finite differences. */
static void nets_differences(nets_double_fn *fn, void *net, const float *at, const float *grads, size_t n) {
    const double step = 1e-5; size_t i;
    for (i = 0; i < n; ++i) {
        double *x = nets_wide + (at - nets_pool) + i; const double old = *x; double up, down;
        *x = old + step; up = fn(net);
        *x = old - step; down = fn(net);
        *x = old;
        CHECK_AT(nets_close((double)grads[i], (up - down) / (2 * step)), i);
    }
}
/* relu(norm(conv)) of which convolution: a direct sum over the window; statistics by the definition */
static void nets_double_conv(const nets_cnn *m, const residual_cnn_conv *c, int which, const double *x, double *y, int evaluating) {
    const residual_cnn *b = &m->blocks[0]; const long kernel = which == 2 ? 1 : 3, stride = which == 1 ? 1 : (long)b->stride;
    const long out_high = (long)nets_out(b->height, b->stride), out_wide = (long)nets_out(b->width, b->stride);
    const long high = which == 1 ? out_high : (long)b->height, wide = which == 1 ? out_wide : (long)b->width;
    const long channels = (long)(which == 1 ? b->outputs : b->inputs), outputs = (long)b->outputs, rows = (long)b->batch * out_high * out_wide;
    long image, row, column, o, ky, kx, i, r;
    for (o = 0; o < outputs; ++o) {
        double mean = 0, variance = 0;
        for (r = 0; r < rows; ++r) {
            double sum = 0;
            image = r / (out_high * out_wide); row = r / out_wide % out_high; column = r % out_wide;
            for (ky = 0; ky < kernel; ++ky)
                for (kx = 0; kx < kernel; ++kx) {
                    const long at_y = row * stride + ky - kernel / 2, at_x = column * stride + kx - kernel / 2;
                    if (at_y < 0 || at_y >= high || at_x < 0 || at_x >= wide) continue;
                    for (i = 0; i < channels; ++i)
                        sum += x[((image * high + at_y) * wide + at_x) * channels + i] * nets_at(c->weights)[((o * kernel + ky) * kernel + kx) * channels + i];
                }
            y[r * outputs + o] = sum;
            mean += sum / (double)rows;
        }
        for (r = 0; r < rows; ++r) variance += (y[r * outputs + o] - mean) * (y[r * outputs + o] - mean) / (double)rows;
        if (evaluating) { mean = nets_at(c->running_mean)[o]; variance = nets_at(c->running_variance)[o]; }
        for (r = 0; r < rows; ++r) {
            double *v = &y[r * outputs + o];
            *v = (*v - mean) / sqrt(variance + 1e-5) * nets_at(c->scale)[o] + nets_at(c->shift)[o];
            if (which == 0 && *v < 0) *v = 0;
        }
    }
}
static void nets_double_block(const nets_cnn *m, double *y, int evaluating) {
    static double between[1024], skip[1024]; const residual_cnn *b = &m->blocks[0]; const double *other = nets_at(m->input); size_t i;
    nets_double_conv(m, &b->first, 0, nets_at(m->input), between, evaluating);
    nets_double_conv(m, &b->second, 1, between, y, evaluating);
    if (b->skip.weights) { nets_double_conv(m, &b->skip, 2, nets_at(m->input), skip, evaluating); other = skip; }
    for (i = 0; i < m->outputs; ++i) y[i] = y[i] + other[i] > 0 ? y[i] + other[i] : 0;
}
static double nets_double_cnn(void *net) {
    const nets_cnn *m = (const nets_cnn *)net; double y[1024], sum = 0; size_t i;
    nets_double_block(m, y, 0);
    for (i = 0; i < m->outputs; ++i) sum += y[i] * nets_at(m->grad_output)[i];
    return sum;
}
static void test_cnn_block_in_double(void) {
    static const size_t shapes[3][6] = { { 4, 3, 2, 2, 1, 0 }, { 5, 4, 2, 3, 2, 1 }, { 3, 4, 3, 2, 1, 1 } };
    static nets_cnn m; memopt_segment segment; memopt_tape_layer layer; nets_tape t; double y[1024]; size_t i; int k;
    for (k = 0; k < 3; ++k) {
        nets_cnn_open(&m, &shapes[k], 1, NULL);
        nets_widen();
        t = nets_open(nets_cnn_desc(&m, &segment, &layer), 0);
        CHECK(memopt_tape_evaluate(t.tape, m.input, m.output) == MEMOPT_OK);
        nets_double_block(&m, y, 1);
        for (i = 0; i < m.outputs; ++i) CHECK_AT(nets_close((double)m.output[i], y[i]), i);
        nets_cnn_pass(&m, t.tape);
        nets_double_block(&m, y, 0);
        for (i = 0; i < m.outputs; ++i) CHECK_AT(nets_close((double)m.output[i], y[i]), i);
        nets_differences(nets_double_cnn, &m, m.weights, m.grads, m.weight_count);
        nets_differences(nets_double_cnn, &m, m.input, m.grad_input, m.inputs);
        nets_close_tape(&t);
    }
}
static void test_cnn_without_a_projection_is_refused(void) {
    static nets_cnn m; memopt_segment segment; memopt_tape_layer layer; memopt_error why; char text[200];
    static const size_t shapes[2][6] = { { 4, 4, 2, 2, 2, 0 }, { 4, 4, 2, 3, 1, 0 } }; int k;
    for (k = 0; k < 2; ++k) {
        nets_cnn_open(&m, &shapes[k], 1, NULL);
        residual_cnn_layer(&m.blocks[0], &layer, &segment);
        CHECK(memopt_tape_describe(&layer, &segment, 1, &why) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_error_text(&why, text, sizeof text, NULL) == MEMOPT_OK && strstr(text, "skip.weights is NULL"));
    }
}

/* ---- over time ---- */
enum { NETS_STEPS = 10, NETS_ROWS = 3, NETS_IN = 5, NETS_HIDDEN = 7, NETS_WORDS = 11 };
typedef struct nets_rnn {
    recurrent r; float *weights, *grads, *grad_x, *first, *last, *grad_first, *grad_last; size_t weight_count, state; /* state: floats */
    float *head, *grad_head, *wanted; int32_t targets[NETS_STEPS * NETS_ROWS]; double loss; size_t calls;
} nets_rnn;
static void nets_rnn_open(nets_rnn *m, recurrent_kind kind, size_t steps, size_t per_segment, const memopt_threads *threads, int own) {
    recurrent *r = &m->r; const size_t rows = (kind == RECURRENT_LSTM ? 4 : 3) * NETS_HIDDEN; size_t i;
    memset(m, 0, sizeof *m);
    nets_used = 0;
    r->kind = kind; r->steps = steps; r->per_segment = per_segment; r->batch = NETS_ROWS; r->inputs = NETS_IN; r->hidden = NETS_HIDDEN;
    r->ops.threads = threads;
    if (own) r->ops.gemm = nets_gemm();
    r->user = m;
    m->weights = nets_pool;
    r->input_weights = nets_random(rows * NETS_IN, 1, 0.5f, 0); r->hidden_weights = nets_random(rows * NETS_HIDDEN, 2, 0.5f, 0);
    r->input_bias = nets_random(rows, 3, 0.5f, 0); r->hidden_bias = nets_random(rows, 4, 0.5f, 0);
    m->head = nets_random(NETS_WORDS * NETS_HIDDEN, 5, 1, 0);
    m->weight_count = nets_used;
    m->grads = nets_pool + nets_used;
    r->grad_input_weights = nets_floats(rows * NETS_IN); r->grad_hidden_weights = nets_floats(rows * NETS_HIDDEN);
    r->grad_input_bias = nets_floats(rows); r->grad_hidden_bias = nets_floats(rows);
    m->grad_head = nets_floats(NETS_WORDS * NETS_HIDDEN);
    r->x = nets_random(steps * NETS_ROWS * NETS_IN, 6, 1, 0);
    r->grad_x = m->grad_x = nets_floats(steps * NETS_ROWS * NETS_IN);
    m->state = recurrent_state(r) / sizeof(float);
    m->first = nets_random(m->state, 7, 0.5f, 0); m->last = nets_floats(m->state); m->grad_first = nets_floats(m->state);
    m->grad_last = nets_random(m->state, 8, 1, 0);
    m->wanted = nets_random(steps * NETS_ROWS * NETS_HIDDEN, 9, 1, 0);
    for (i = 0; i < NETS_STEPS * NETS_ROWS; ++i) m->targets[i] = (int32_t)(i * 7 % NETS_WORDS);
}
/* A head: loss and both gradients in backward, the loss alone in evaluations. */
static memopt_status nets_head_step(const memopt_tape_call *call, void *user, const memopt_ops *ops, size_t step, const float *h, float *grad_h) {
    nets_rnn *m = (nets_rnn *)user; memopt_head head; memopt_loss loss = { 0, 0 }; memopt_status s;
    memset(&head, 0, sizeof head);
    head.rows = NETS_ROWS; head.width = NETS_HIDDEN; head.vocabulary = NETS_WORDS; head.input = h; head.weights = m->head;
    head.targets = m->targets + step * NETS_ROWS; head.rule.count = NETS_STEPS * NETS_ROWS;
    head.grad_input = grad_h; head.grad_weights = grad_h ? m->grad_head : NULL; head.accumulate = 1;
    s = memopt_head_loss(ops, &head, &loss);
    if (call && (call->describing || call->calibrating)) return s;
    m->loss += loss.loss; ++m->calls;
    return s;
}
static memopt_status nets_wanted_step(const memopt_tape_call *call, void *user, const memopt_ops *ops, size_t step, const float *h, float *grad_h) {
    const nets_rnn *m = (const nets_rnn *)user; const size_t n = NETS_ROWS * NETS_HIDDEN;
    (void)ops; (void)h;
    if (!call->describing && grad_h) memcpy(grad_h, m->wanted + step * n, n * sizeof(float));
    return MEMOPT_OK;
}
/* A plain pass over time. What is between the products is the part's own; test_recurrent_in_double looks at that. */
static memopt_linear nets_linear(const float *input, size_t inputs, const float *weights, const float *bias, float *output, size_t outputs) {
    memopt_linear l; memset(&l, 0, sizeof l);
    l.rows = NETS_ROWS; l.inputs = inputs; l.outputs = outputs; l.input = input; l.weights = weights; l.bias = bias; l.output = output;
    return l;
}
static void nets_rnn_plain(nets_rnn *m) {
    const recurrent *r = &m->r; memopt_ops ops = nets_ops(NULL); const size_t used = nets_used, plane = NETS_ROWS * NETS_HIDDEN;
    const int lstm = r->kind == RECURRENT_LSTM; const size_t outputs = (lstm ? 4 : 3) * NETS_HIDDEN; size_t t, i;
    float *states[NETS_STEPS + 1], *kept[NETS_STEPS], *d = nets_floats(m->state), *d_h = nets_floats(plane), *x, *u;
    ops.gemm = r->ops.gemm; /* an LSTM's sums begin elsewhere with a product of one's own: see memopt_linear.residual */
    x = nets_floats(NETS_ROWS * outputs); u = lstm ? x : nets_floats(NETS_ROWS * outputs);
    memset(m->grad_head, 0, NETS_WORDS * NETS_HIDDEN * sizeof(float));
    states[0] = m->first;
    for (t = 0; t < NETS_STEPS; ++t) {
        memopt_linear of_x = nets_linear(r->x + t * NETS_ROWS * NETS_IN, NETS_IN, r->input_weights, r->input_bias, x, outputs);
        memopt_linear of_h = nets_linear(states[t], NETS_HIDDEN, r->hidden_weights, r->hidden_bias, u, outputs);
        states[t + 1] = nets_floats(m->state); kept[t] = nets_floats(4 * plane);
        if (lstm) of_h.residual = x;
        CHECK(memopt_linear_forward(&ops, &of_x) == MEMOPT_OK && memopt_linear_forward(&ops, &of_h) == MEMOPT_OK);
        if (lstm) recurrent_lstm(r, x, kept[t], states[t], states[t + 1]);
        else recurrent_gru(r, x, u, kept[t], states[t], states[t + 1]);
    }
    memcpy(m->last, states[NETS_STEPS], m->state * sizeof(float));
    memset(d, 0, m->state * sizeof(float));
    for (t = NETS_STEPS; t-- > 0;) {
        memopt_linear of_x = nets_linear(r->x + t * NETS_ROWS * NETS_IN, NETS_IN, r->input_weights, NULL, NULL, outputs);
        memopt_linear of_h = nets_linear(states[t], NETS_HIDDEN, r->hidden_weights, NULL, NULL, outputs);
        CHECK(nets_head_step(NULL, m, &ops, t, states[t + 1], d_h) == MEMOPT_OK);
        for (i = 0; i < plane; ++i) d[i] += d_h[i];
        if (lstm) recurrent_lstm_back(r, x, kept[t], states[t], states[t + 1], d);
        else recurrent_gru_back(r, x, u, kept[t], states[t], d);
        of_x.grad_output = x; of_x.grad_input = m->grad_x + t * NETS_ROWS * NETS_IN; of_x.accumulate = t + 1 < NETS_STEPS;
        of_x.grad_weights = r->grad_input_weights; of_x.grad_bias = r->grad_input_bias;
        of_h.grad_output = u; of_h.grad_input = d; of_h.accumulate_input = !lstm; of_h.accumulate = t + 1 < NETS_STEPS;
        of_h.grad_weights = r->grad_hidden_weights; of_h.grad_bias = r->grad_hidden_bias;
        CHECK(memopt_linear_backward(&ops, &of_x) == MEMOPT_OK && memopt_linear_backward(&ops, &of_h) == MEMOPT_OK);
    }
    memcpy(m->grad_first, d, m->state * sizeof(float));
    nets_used = used;
}
static memopt_tape_desc nets_rnn_desc(nets_rnn *m, memopt_segment *segments, memopt_tape_layer *layers) {
    memopt_tape_desc d; memset(&d, 0, sizeof d);
    d.chain.count = recurrent_layers(&m->r, layers, segments);
    CHECK(memopt_tape_describe(layers, segments, d.chain.count, NULL) == MEMOPT_OK);
    d.chain.segments = segments; d.layers = layers;
    d.chain.input_bytes = d.chain.input_grad_bytes = m->state * sizeof(float);
    return d;
}
static void nets_rnn_pass(nets_rnn *m, memopt_tape *tape) {
    memset(m->grad_head, 0, NETS_WORDS * NETS_HIDDEN * sizeof(float));
    CHECK(memopt_tape_forward(tape, m->first) == MEMOPT_OK);
    memcpy(m->last, memopt_tape_output(tape), m->state * sizeof(float));
    CHECK(memopt_tape_backward(tape, m->r.last_has_gradient ? m->grad_last : NULL, m->grad_first) == MEMOPT_OK);
}
static void nets_rnn_bits(recurrent_kind kind, size_t per_segment, int own) {
    static float expected[1 << 14]; static nets_rnn m; memopt_segment segments[NETS_STEPS]; memopt_tape_layer layers[NETS_STEPS];
    test_worker_set set; double loss; size_t n, kept[NETS_BUDGETS]; int budget, step;
    nets_rnn_open(&m, kind, NETS_STEPS, per_segment, NULL, own);
    for (step = 0; step < 2; ++step) {
        m.loss = 0;
        nets_rnn_plain(&m);
        nets_update(m.weights, m.grads, m.weight_count);
    }
    n = nets_used; loss = m.loss;
    CHECK(n <= sizeof expected / sizeof *expected);
    memcpy(expected, nets_pool, n * sizeof(float));
    for (budget = 0; budget < NETS_BUDGETS; ++budget) {
        const memopt_threads threads = budget % 2 ? test_workers(&set, 3, MEMOPT_SIMD_SCALAR) : test_level(0); nets_tape t;
        nets_rnn_open(&m, kind, NETS_STEPS, per_segment, &threads, own);
        m.r.step_fn = nets_head_step;
        t = nets_open(nets_rnn_desc(&m, segments, layers), budget);
        kept[budget] = memopt_tape_get_stats(t.tape).kept;
        for (step = 0; step < 2; ++step) {
            double before; size_t k;
            m.loss = 0; m.calls = 0;
            CHECK(memopt_tape_evaluate(t.tape, m.first, NULL) == MEMOPT_OK && m.calls == NETS_STEPS);
            before = m.loss; m.loss = 0; m.calls = 0;
            nets_rnn_pass(&m, t.tape);
            CHECK(m.calls == NETS_STEPS && fabs(m.loss - before) < 1e-12 * m.loss); /* the other way round: by a rounding */
            nets_update(m.weights, m.grads, m.weight_count);
            for (k = 0; step == 1 && k < n; ++k) CHECK_AT(nets_equal(nets_pool + k, expected + k, 1), k);
        }
        CHECK_AT(nets_used == n && m.loss == loss, budget);
        nets_close_tape(&t);
    }
    CHECK(!own || per_segment == NETS_STEPS || kept[NETS_BUDGETS - 1] < kept[0]);
}
static void test_recurrent_has_the_bits_of_a_plain_engine(void) {
    static const size_t per_segment[4] = { 0, 2, 3, NETS_STEPS }; int k;
    for (k = 0; k < 8; ++k) {
        if (test_is_passed_over()) continue;
        nets_rnn_bits(RECURRENT_GRU, per_segment[k % 4], k < 4);
        nets_rnn_bits(RECURRENT_LSTM, per_segment[k % 4], k < 4);
    }
}
/* The formulas, in double, and a loss that is a sum of all states, each times its own number. */
static double nets_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static void nets_double_step(const nets_rnn *m, size_t step, double *state) {
    const recurrent *r = &m->r; const int lstm = r->kind == RECURRENT_LSTM; const size_t n = NETS_HIDDEN, gates = lstm ? 4 : 3;
    size_t row, g, i, k;
    for (row = 0; row < NETS_ROWS; ++row) {
        double x[4 * NETS_HIDDEN], u[4 * NETS_HIDDEN], *h = state + row * n, *c = h + NETS_ROWS * n;
        for (g = 0; g < gates * n; ++g) {
            x[g] = nets_at(r->input_bias)[g]; u[g] = nets_at(r->hidden_bias)[g];
            for (k = 0; k < NETS_IN; ++k) x[g] += nets_at(r->x)[(step * NETS_ROWS + row) * NETS_IN + k] * nets_at(r->input_weights)[g * NETS_IN + k];
            for (k = 0; k < n; ++k) u[g] += h[k] * nets_at(r->hidden_weights)[g * n + k];
        }
        for (i = 0; i < n; ++i)
            if (lstm) {
                c[i] = nets_sigmoid(x[n + i] + u[n + i]) * c[i] + nets_sigmoid(x[i] + u[i]) * tanh(x[2 * n + i] + u[2 * n + i]);
                h[i] = nets_sigmoid(x[3 * n + i] + u[3 * n + i]) * tanh(c[i]);
            } else {
                const double keep = nets_sigmoid(x[n + i] + u[n + i]);
                h[i] = (1 - keep) * tanh(x[2 * n + i] + nets_sigmoid(x[i] + u[i]) * u[2 * n + i]) + keep * h[i];
            }
    }
}
static double nets_double_last[2 * NETS_ROWS * NETS_HIDDEN];
static double nets_double_rnn(void *net) {
    const nets_rnn *m = (const nets_rnn *)net; const size_t plane = NETS_ROWS * NETS_HIDDEN; double sum = 0; size_t t, i;
    memcpy(nets_double_last, nets_at(m->first), m->state * sizeof(double));
    for (t = 0; t < m->r.steps; ++t) {
        nets_double_step(m, t, nets_double_last);
        for (i = 0; i < plane; ++i) sum += nets_double_last[i] * nets_at(m->wanted)[t * plane + i];
    }
    for (i = 0; i < m->state; ++i) sum += nets_double_last[i] * nets_at(m->grad_last)[i];
    return sum;
}
static void test_recurrent_in_double(void) {
    static nets_rnn m; memopt_segment segments[NETS_STEPS]; memopt_tape_layer layers[NETS_STEPS]; nets_tape t; size_t i; int k;
    for (k = 0; k < 2; ++k) {
        nets_rnn_open(&m, k ? RECURRENT_LSTM : RECURRENT_GRU, 4, 3, NULL, 0);
        m.r.step_fn = nets_wanted_step;
        m.r.last_has_gradient = 1;
        nets_widen();
        t = nets_open(nets_rnn_desc(&m, segments, layers), NETS_BUDGETS - 1);
        nets_rnn_pass(&m, t.tape);
        nets_double_rnn(&m);
        for (i = 0; i < m.state; ++i) CHECK_AT(nets_close((double)m.last[i], nets_double_last[i]), i);
        nets_differences(nets_double_rnn, &m, m.weights, m.grads, (size_t)(m.head - m.weights));
        nets_differences(nets_double_rnn, &m, m.r.x, m.grad_x, m.r.steps * NETS_ROWS * NETS_IN);
        nets_differences(nets_double_rnn, &m, m.first, m.grad_first, m.state);
        nets_close_tape(&t);
    }
}
/* accumulate: twice the gradients; pointers that nobody wants may be NULL */
static void test_recurrent_accumulates(void) {
    static nets_rnn m; memopt_segment segments[NETS_STEPS]; memopt_tape_layer layers[NETS_STEPS]; memopt_tape_desc d; nets_tape t;
    const float *x; float *once; size_t i, n;
    nets_rnn_open(&m, RECURRENT_GRU, NETS_STEPS, 4, NULL, 1);
    m.r.step_fn = nets_head_step;
    m.r.grad_x = NULL; m.r.grad_input_bias = NULL;
    x = m.r.x;
    m.r.x = NULL; /* described before there is a batch */
    d = nets_rnn_desc(&m, segments, layers);
    m.r.x = x;
    d.chain.input_grad_bytes = 0;
    t = nets_open(d, NETS_BUDGETS - 1);
    n = (size_t)(m.r.grad_hidden_weights - m.grads);
    once = nets_floats(n);
    for (i = 0; i < 2; ++i) {
        m.r.accumulate = (int)i;
        CHECK(memopt_tape_forward(t.tape, m.first) == MEMOPT_OK);
        memset(m.grad_head, 0, NETS_WORDS * NETS_HIDDEN * sizeof(float));
        CHECK(memopt_tape_backward(t.tape, NULL, NULL) == MEMOPT_OK);
        if (!i) memcpy(once, m.grads, n * sizeof(float));
    }
    for (i = 0; i < n; ++i) CHECK_AT(nets_close((double)m.grads[i], 2 * (double)once[i]), i);
    nets_close_tape(&t);
}
/* Behind another segment, here one that copies the state: the same gradients. */
static memopt_status nets_copy_forward(const memopt_tape_call *call) {
    if (!call->describing) memcpy(call->output, call->input, *(const size_t *)call->user);
    return MEMOPT_OK;
}
static memopt_status nets_copy_backward(const memopt_tape_call *call) {
    if (!call->describing) memcpy(call->grad_input, call->grad_output, *(const size_t *)call->user);
    return MEMOPT_OK;
}
static void test_recurrent_behind_another_segment(void) {
    static nets_rnn m; static float expected[1 << 14]; memopt_segment segments[NETS_STEPS + 1]; memopt_tape_layer layers[NETS_STEPS + 1];
    memopt_tape_desc d; nets_tape t; size_t bytes, k, n = 0;
    for (k = 0; k < 2; ++k) {
        nets_rnn_open(&m, RECURRENT_LSTM, NETS_STEPS, 3, NULL, 1);
        m.r.step_fn = nets_head_step;
        m.r.first_segment = k;
        bytes = m.state * sizeof(float);
        memset(segments, 0, sizeof segments);
        segments[0].output_bytes = segments[0].grad_bytes = bytes;
        layers[0].forward_fn = nets_copy_forward; layers[0].backward_fn = nets_copy_backward; layers[0].user = &bytes;
        memset(&d, 0, sizeof d);
        d.chain.count = k + recurrent_layers(&m.r, layers + k, segments + k);
        CHECK(memopt_tape_describe(layers, segments, d.chain.count, NULL) == MEMOPT_OK);
        d.chain.segments = segments; d.layers = layers;
        d.chain.input_bytes = d.chain.input_grad_bytes = bytes;
        t = nets_open(d, NETS_BUDGETS - 1);
        nets_rnn_pass(&m, t.tape);
        nets_close_tape(&t);
        if (!k) memcpy(expected, nets_pool, (n = nets_used) * sizeof(float));
        CHECK(n <= sizeof expected / sizeof *expected && nets_used == n && nets_equal(nets_pool, expected, n));
    }
}

static void test_parts_nets(void) {
    RUN(test_cnn_has_the_bits_of_a_plain_engine);
    RUN(test_cnn_statistics_move_once_a_pass);
    RUN(test_cnn_block_in_double);
    RUN(test_cnn_without_a_projection_is_refused);
    RUN(test_recurrent_has_the_bits_of_a_plain_engine);
    RUN(test_recurrent_in_double);
    RUN(test_recurrent_accumulates);
    RUN(test_recurrent_behind_another_segment);
}
#ifndef TEST_COMBINED
int main(void) { test_parts_nets(); return test_totals(); }
#endif
