/* im2col_1_tape.c - im2col_0_plain.c with a tape: activations are made again in backward, and no bit changes.

   A unit is a convolution of 3 x 3, its batch norm and a ReLU. A block is two units and a shortcut around them; where
   it halves the image, the shortcut takes every second pixel and has zeros in the new channels. The first block is
   one unit only.
   Build: cc -O3 -march=native -fopenmp im2col_1_tape.c memopt.c -o im2col_1_tape -lm      (memopt.h with -I)
   Run:   im2col_1_tape [side [batch [width [steps]]]], as 256 10 16 3 */
#include "memopt.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#define PARALLEL_FOR _Pragma("omp parallel for schedule(static)")
#else
#define PARALLEL_FOR
#endif

enum { COLORS = 3, CLASSES = 4, STAGES = 3, STAGE_BLOCKS = 2, BLOCKS = STAGES * STAGE_BLOCKS + 1 };
enum { TILE = 512, LANES = 16, MAX_PARAMETERS = 4 * BLOCKS + 1 };

typedef struct parameter {
    int    count;
    float *values, *gradients, *momentum;
} parameter;

typedef struct unit { /* output: batch x channels x side x side */
    int    inputs, channels, side, stride;
    int    weights, norm;       /* parameters; norm: scale, then shift */
    float *sums, *output;       /* of the convolution; of norm, shortcut and ReLU */
    float *mean, *inverse;      /* of this batch: mean and 1 / standard deviation */
    float *running;             /* means, then variances; used by evaluation */
} unit;

typedef struct block {
    int  unit_count;
    unit units[2];
} block;

static block blocks[BLOCKS];
static parameter parameters[MAX_PARAMETERS];
static int parameter_count, head;

static int side = 40, batch = 10, width = 16, steps = 3;
static float *images;
static int *labels;
static float *columns;      /* of one image */
static float *turned;       /* weights, transposed */
static float *pooled;       /* batch x channels of the last unit */
static memopt_tape *tape;
static memopt_error why;
static int training;
static int repeated;        /* this forward has run before in this pass */
static double loss;
static int correct;

/* ---- data ---- */

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* Stripes in noise: a class is a direction. */
static void next_batch(void) {
    static const float step_x[CLASSES] = { 0.8f, 0.0f, 0.6f, 0.6f };
    static const float step_y[CLASSES] = { 0.0f, 0.8f, 0.6f, -0.6f };
    static uint32_t state = 1;
    float *pixel = images;
    int n, c, x, y;

    for (n = 0; n < batch; ++n) {
        const float phase = 3.0f * noise(&state);

        labels[n] = (int)(2.0f * noise(&state) + 2.0f);
        for (c = 0; c < COLORS; ++c)
            for (y = 0; y < side; ++y)
                for (x = 0; x < side; ++x)
                    *pixel++ = sinf(phase + (float)c + (float)x * step_x[labels[n]] + (float)y * step_y[labels[n]])
                        + 0.5f * noise(&state);
    }
}

/* ---- the network ---- */

static void fail(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    exit(1);
}

static float *allocate(size_t count) {
    float *memory = (float *)calloc(count, sizeof(float));

    if (!memory) fail("out of memory");
    return memory;
}

static int plane_size(const unit *u) {
    return u->side * u->side;
}

static size_t output_size(const unit *u) { /* elements */
    return (size_t)batch * (size_t)u->channels * (size_t)plane_size(u);
}

static int add_parameter(int count, float scale) {
    static uint32_t seed = 3;
    parameter *p = &parameters[parameter_count];
    int i;

    p->count = count;
    p->values = allocate((size_t)count);
    p->gradients = allocate((size_t)count);
    p->momentum = allocate((size_t)count);
    for (i = 0; i < count; ++i) p->values[i] = scale * noise(&seed);
    return parameter_count++;
}

static void build_unit(unit *u, int inputs, int channels, int unit_side, int stride) {
    int c;

    u->inputs = inputs;
    u->channels = channels;
    u->side = unit_side;
    u->stride = stride;
    u->weights = add_parameter(9 * inputs * channels, sqrtf(6.0f / (float)(9 * inputs)));
    u->norm = add_parameter(2 * channels, 0);
    u->mean = allocate((size_t)channels);
    u->inverse = allocate((size_t)channels);
    u->running = allocate((size_t)(2 * channels));
    for (c = 0; c < channels; ++c) parameters[u->norm].values[c] = u->running[channels + c] = 1.0f;
}

static void build(void) {
    int channels = width;
    int at = side;
    int b;

    images = allocate((size_t)(batch * COLORS) * (size_t)(side * side));
    labels = (int *)allocate((size_t)batch);
    blocks[0].unit_count = 1;
    build_unit(&blocks[0].units[0], COLORS, width, side, 1);
    for (b = 1; b < BLOCKS; ++b) {
        const int stride = b > 1 && b % STAGE_BLOCKS == 1 ? 2 : 1;

        at /= stride;
        blocks[b].unit_count = 2;
        build_unit(&blocks[b].units[0], channels, channels * stride, at, stride);
        channels *= stride;
        build_unit(&blocks[b].units[1], channels, channels, at, 1);
    }
    head = add_parameter((channels + 1) * CLASSES, 0.2f); /* the last row is the bias */
    columns = allocate((size_t)(9 * (width > COLORS ? width : COLORS)) * (size_t)(side * side));
    turned = allocate((size_t)(9 * channels * channels));
    pooled = allocate((size_t)(batch * channels));
}

/* ---- operators ---- */

/* out[rows][count] = a[rows][inner] b[inner][count], a tile of columns at a time */
static void multiply(float *out, const float *a, const float *b, int rows, int inner, int count) {
    const int tiles = (count + TILE - 1) / TILE;
    int tile;

    PARALLEL_FOR
    for (tile = 0; tile < tiles; ++tile) {
        const int begin = tile * TILE;
        const int n = count - begin < TILE ? count - begin : TILE;
        int i, k, j;

        for (i = 0; i < rows; ++i) {
            const float *w = a + i * inner;
            float sum[TILE] = { 0 };

            for (k = 0; k + 3 < inner; k += 4) {
                const float *b0 = b + (size_t)k * (size_t)count + begin;
                const float *b1 = b0 + count;
                const float *b2 = b1 + count;
                const float *b3 = b2 + count;

                for (j = 0; j < n; ++j) sum[j] += w[k] * b0[j] + w[k + 1] * b1[j] + w[k + 2] * b2[j] + w[k + 3] * b3[j];
            }
            for (; k < inner; ++k)
                for (j = 0; j < n; ++j) sum[j] += w[k] * b[(size_t)k * (size_t)count + (size_t)(begin + j)];
            memcpy(out + (size_t)i * (size_t)count + begin, sum, (size_t)n * sizeof(float));
        }
    }
}

/* out[rows][inner] += a[rows][count] b[inner][count]^T */
static void multiply_turned(float *out, const float *a, const float *b, int rows, int inner, int count) {
    int k;

    PARALLEL_FOR
    for (k = 0; k < inner; ++k) {
        const float *y = b + (size_t)k * (size_t)count;
        int begin, i, j, lane;

        for (begin = 0; begin < count; begin += TILE)
            for (i = 0; i < rows; ++i) {
                const float *x = a + (size_t)i * (size_t)count;
                const int end = count - begin < TILE ? count : begin + TILE;
                float sums[LANES] = { 0 };

                for (j = begin; j + LANES <= end; j += LANES)
                    for (lane = 0; lane < LANES; ++lane) sums[lane] += x[j + lane] * y[j + lane];
                for (; j < end; ++j) sums[0] += x[j] * y[j];
                for (lane = 1; lane < LANES; ++lane) sums[0] += sums[lane];
                out[i * inner + k] += sums[0];
            }
    }
}

/* The positions from *begin to *end - 1 of a row have an input at position * stride + tap - 1. */
static void tap_range(int tap, int stride, int count, int *begin, int *end) {
    *begin = tap == 0;
    *end = tap == 2 && stride == 1 ? count - 1 : count;
}

/* Row (channel, ky, kx) of the columns: what that tap reads, for each position of the output. */
static void image_to_columns(const unit *u, const float *image) {
    const int in_side = u->side * u->stride;
    int row;

    PARALLEL_FOR
    for (row = 0; row < 9 * u->inputs; ++row) {
        const float *in = image + row / 9 * in_side * in_side;
        float *out = columns + (size_t)row * (size_t)plane_size(u);
        const int ky = row % 9 / 3;
        const int kx = row % 3;
        int x_begin, x_end, y_begin, y_end, y, x;

        tap_range(ky, u->stride, u->side, &y_begin, &y_end);
        tap_range(kx, u->stride, u->side, &x_begin, &x_end);
        for (y = 0; y < u->side; ++y) {
            const float *from = in + (y * u->stride + ky - 1) * in_side + kx - 1;

            for (x = 0; x < u->side; ++x, ++out)
                *out = y >= y_begin && y < y_end && x >= x_begin && x < x_end ? from[x * u->stride] : 0;
        }
    }
}

/* The transpose: each column adds to where it was read. */
static void columns_to_image(const unit *u, float *image) {
    const int in_side = u->side * u->stride;
    int c;

    PARALLEL_FOR
    for (c = 0; c < u->inputs; ++c) {
        float *in = image + c * in_side * in_side;
        int tap, x_begin, x_end, y_begin, y_end, y, x;

        memset(in, 0, (size_t)(in_side * in_side) * sizeof(float));
        for (tap = 0; tap < 9; ++tap) {
            const float *from = columns + (size_t)(9 * c + tap) * (size_t)plane_size(u);

            tap_range(tap / 3, u->stride, u->side, &y_begin, &y_end);
            tap_range(tap % 3, u->stride, u->side, &x_begin, &x_end);
            for (y = y_begin; y < y_end; ++y) {
                float *to = in + (y * u->stride + tap / 3 - 1) * in_side + tap % 3 - 1;

                for (x = x_begin; x < x_end; ++x) to[x * u->stride] += from[y * u->side + x];
            }
        }
    }
}

static void convolution_forward(unit *u, const float *input) {
    const size_t in_size = (size_t)(u->inputs * plane_size(u) * u->stride * u->stride);
    const size_t out_size = (size_t)(u->channels * plane_size(u));
    size_t n;

    for (n = 0; n < (size_t)batch; ++n) {
        image_to_columns(u, input + n * in_size);
        multiply(u->sums + n * out_size, parameters[u->weights].values, columns, u->channels, 9 * u->inputs,
                 plane_size(u));
    }
}

/* d_input: NULL when nobody wants it */
static void convolution_backward(unit *u, const float *input, const float *d_sums, float *d_input) {
    const size_t in_size = (size_t)(u->inputs * plane_size(u) * u->stride * u->stride);
    const size_t out_size = (size_t)(u->channels * plane_size(u));
    const float *weights = parameters[u->weights].values;
    const int inner = 9 * u->inputs;
    size_t n;
    int i;

    for (i = 0; i < u->channels * inner; ++i) turned[i % inner * u->channels + i / inner] = weights[i];
    for (n = 0; n < (size_t)batch; ++n) {
        image_to_columns(u, input + n * in_size);
        multiply_turned(parameters[u->weights].gradients, d_sums + n * out_size, columns, u->channels, inner,
                        plane_size(u));
        if (!d_input) continue;
        multiply(columns, turned, d_sums + n * out_size, inner, u->channels, plane_size(u));
        columns_to_image(u, d_input + n * in_size);
    }
}

/* Sums of x - shift and of its square over a channel's pixels; with d: of d and of d * (x - shift). */
static void channel_sums(const unit *u, int channel, const float *values, const float *d, float shift, double sums[2]) {
    const int plane = plane_size(u);
    int n, i, lane;

    sums[0] = sums[1] = 0;
    for (n = 0; n < batch; ++n) {
        const size_t at = (size_t)(n * u->channels + channel) * (size_t)plane;
        const float *x = values + at;
        const float *y = d ? d + at : NULL;
        float first[LANES] = { 0 };
        float second[LANES] = { 0 };

        for (i = 0; i + LANES <= plane; i += LANES)
            for (lane = 0; lane < LANES; ++lane) {
                const float difference = x[i + lane] - shift;
                const float factor = y ? y[i + lane] : difference;

                first[lane] += factor;
                second[lane] += factor * difference;
            }
        for (; i < plane; ++i) {
            first[0] += y ? y[i] : x[i] - shift;
            second[0] += (y ? y[i] : x[i] - shift) * (x[i] - shift);
        }
        for (lane = 0; lane < LANES; ++lane) sums[0] += (double)first[lane];
        for (lane = 0; lane < LANES; ++lane) sums[1] += (double)second[lane];
    }
}

/* Of a pixel of the block's input: the shortcut's value for one of the output. */
static float shortcut_at(const unit *u, const float *input, int n, int channel, int pixel, int stride) {
    const int channels = u->channels / stride;
    const int in_side = u->side * stride;
    const size_t plane = (size_t)(n * channels + channel) * (size_t)(in_side * in_side);

    return channel < channels ? input[plane + (size_t)(pixel / u->side * stride * in_side + pixel % u->side * stride)]
                              : 0;
}

static void update_running(unit *u, int channel, float variance) {
    float *running = u->running + channel;

    running[0] += 0.1f * (u->mean[channel] - running[0]);
    running[u->channels] += 0.1f * (variance - running[u->channels]);
}

/* Batch norm, the shortcut of a block whose input is not NULL, and ReLU. */
static void norm_forward(unit *u, const float *block_input, int stride) {
    const float *scale = parameters[u->norm].values;
    const int plane = plane_size(u);
    const double count = (double)batch * plane;
    int c;

    PARALLEL_FOR
    for (c = 0; c < u->channels; ++c) {
        double sums[2];
        float factor;
        int n, i;

        u->mean[c] = u->running[c];
        u->inverse[c] = 1.0f / sqrtf(u->running[u->channels + c] + 1e-5f);
        if (training) {
            channel_sums(u, c, u->sums, NULL, 0, sums);
            u->mean[c] = (float)(sums[0] / count);
            channel_sums(u, c, u->sums, NULL, u->mean[c], sums);
            u->inverse[c] = 1.0f / sqrtf((float)(sums[1] / count) + 1e-5f);
            if (!repeated) update_running(u, c, (float)(sums[1] / count));
        }
        factor = u->inverse[c] * scale[c];
        for (n = 0; n < batch; ++n) {
            const size_t at = (size_t)(n * u->channels + c) * (size_t)plane;

            for (i = 0; i < plane; ++i) {
                float y = (u->sums[at + (size_t)i] - u->mean[c]) * factor + scale[u->channels + c];

                if (block_input) y += shortcut_at(u, block_input, n, c, i, stride);
                u->output[at + (size_t)i] = y > 0 ? y : 0;
            }
        }
    }
}

/* d_output becomes the gradient of what the ReLU read, which is that of the shortcut, too. */
static void norm_backward(unit *u, float *d_output, float *d_sums) {
    parameter *p = &parameters[u->norm];
    const int plane = plane_size(u);
    const float count = (float)batch * (float)plane;
    int c;

    PARALLEL_FOR
    for (c = 0; c < u->channels; ++c) {
        double sums[2];
        float sum, dot;
        int n, i;

        for (n = 0; n < batch; ++n) {
            const size_t at = (size_t)(n * u->channels + c) * (size_t)plane;

            for (i = 0; i < plane; ++i) d_output[at + (size_t)i] *= u->output[at + (size_t)i] > 0 ? 1.0f : 0.0f;
        }
        channel_sums(u, c, u->sums, d_output, u->mean[c], sums);
        sum = (float)sums[0];
        dot = (float)sums[1] * u->inverse[c];
        p->gradients[c] += dot;
        p->gradients[u->channels + c] += sum;
        for (n = 0; n < batch; ++n) {
            const size_t at = (size_t)(n * u->channels + c) * (size_t)plane;

            for (i = 0; i < plane; ++i) {
                const float normed = (u->sums[at + (size_t)i] - u->mean[c]) * u->inverse[c];

                d_sums[at + (size_t)i] =
                    p->values[c] * u->inverse[c] * (d_output[at + (size_t)i] - (sum + normed * dot) / count);
            }
        }
    }
}

/* The gradient of the shortcut, added to that of the block's input. */
static void shortcut_backward(const unit *u, int stride, const float *d_output, float *d_input) {
    const int channels = u->channels / stride;
    const int in_side = u->side * stride;
    int c;

    PARALLEL_FOR
    for (c = 0; c < channels; ++c) {
        int n, y, x;

        for (n = 0; n < batch; ++n) {
            const float *d = d_output + (size_t)(n * u->channels + c) * (size_t)plane_size(u);
            float *to = d_input + (size_t)(n * channels + c) * (size_t)(in_side * in_side);

            for (y = 0; y < u->side; ++y)
                for (x = 0; x < u->side; ++x) to[y * stride * in_side + x * stride] += d[y * u->side + x];
        }
    }
}

/* Mean of each channel, a linear layer, softmax; sets the loss, and with d_input the gradient. */
static void head_run(const float *input, float *d_input) {
    const unit *u = &blocks[BLOCKS - 1].units[1];
    parameter *p = &parameters[head];
    const int plane = plane_size(u);
    int n, c, i, k;

    for (n = 0; n < batch; ++n) {
        float *mean = pooled + n * u->channels;
        float logits[CLASSES], total = 0;
        int best = 0;

        for (c = 0; c < u->channels; ++c) {
            const float *x = input + (size_t)(n * u->channels + c) * (size_t)plane;
            float sum = 0;

            for (i = 0; i < plane; ++i) sum += x[i];
            mean[c] = sum / (float)plane;
        }
        for (k = 0; k < CLASSES; ++k) {
            logits[k] = p->values[u->channels * CLASSES + k];
            for (c = 0; c < u->channels; ++c) logits[k] += mean[c] * p->values[c * CLASSES + k];
            if (logits[k] > logits[best]) best = k;
        }
        for (k = 0; k < CLASSES; ++k) total += expf(logits[k]);
        loss -= log((double)(expf(logits[labels[n]]) / total)) / batch;
        correct += best == labels[n];
        for (c = 0; d_input && c < u->channels; ++c) {
            float *d = d_input + (size_t)(n * u->channels + c) * (size_t)plane;
            float sum = 0;

            for (k = 0; k < CLASSES; ++k) {
                const float d_logit = (expf(logits[k]) / total - (float)(k == labels[n])) / (float)batch;

                p->gradients[c * CLASSES + k] += d_logit * mean[c];
                if (!c) p->gradients[u->channels * CLASSES + k] += d_logit;
                sum += d_logit * p->values[c * CLASSES + k];
            }
            for (i = 0; i < plane; ++i) d[i] = sum / (float)plane;
        }
    }
}

static void block_forward(block *b, const float *input) {
    unit *u = b->units;

    convolution_forward(&u[0], input);
    norm_forward(&u[0], NULL, 1);
    if (b->unit_count == 1) return;
    convolution_forward(&u[1], u[0].output);
    norm_forward(&u[1], input, u[0].stride);
}

/* d_output is written over; work: as large as the output; d_input: on the way it holds the gradient between the units,
   and in the first block it is NULL. */
static void block_backward(block *b, const float *input, float *d_output, float *d_input, float *work) {
    unit *u = b->units;
    float *d_between = d_output;

    if (b->unit_count == 2) {
        d_between = d_input;
        norm_backward(&u[1], d_output, work);
        convolution_backward(&u[1], u[0].output, work, d_between);
    }
    norm_backward(&u[0], d_between, work);
    convolution_backward(&u[0], input, work, d_input);
    if (b->unit_count == 2) shortcut_backward(&u[1], u[0].stride, d_output, d_input);
}

static unit *last_unit(block *b) {
    return &b->units[b->unit_count - 1];
}

/* ---- training ---- */

/* A segment is a block. */
static memopt_status run_block(const memopt_tape_call *call) {
    block *b = &blocks[call->segment];
    unit *last = last_unit(b);
    const size_t bytes = output_size(last) * sizeof(float);
    float *work = call->is_backward ? (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, bytes) : NULL;

    last->sums = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, bytes);
    if (b->unit_count == 2) {
        b->units[0].sums = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, bytes);
        b->units[0].output = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, bytes);
    }
    if (call->describing) return MEMOPT_OK;
    last->output = (float *)call->output;
    repeated = call->is_recompute || call->calibrating;
    if (!call->is_backward) block_forward(b, (const float *)call->input);
    else block_backward(b, (const float *)call->input, (float *)call->grad_output, (float *)call->grad_input, work);
    return MEMOPT_OK;
}

/* It begins the backward, and has a forward only where no backward follows. */
static memopt_status run_head(const memopt_tape_call *call) {
    if (!call->describing && (call->is_backward || call->evaluating))
        head_run((const float *)call->input, (float *)call->grad_input);
    return MEMOPT_OK;
}

static void check(memopt_status status) {
    if (!status) return;
    MEMOPT_ERROR_PRINT(stderr, tape ? memopt_tape_error(tape) : why);
    exit(1);
}

static void open_tape(void) {
    static memopt_segment segments[BLOCKS + 1];
    const size_t input_bytes = (size_t)(batch * COLORS) * (size_t)(side * side) * sizeof(float);
    const memopt_tape_desc desc = {
        .chain = { .segments = segments, .count = BLOCKS + 1, .input_bytes = input_bytes },
        .layer = { run_block, run_block, NULL },
        .head = { run_head, run_head, NULL },
        .overhead = 0.06, .error = &why
    };
    int b;

    for (b = 0; b < BLOCKS; ++b)
        segments[b].output_bytes = segments[b].grad_bytes = output_size(last_unit(&blocks[b])) * sizeof(float);
    check(memopt_tape_open(&desc, &tape));
}

static void update(void) {
    int k, i;

    for (k = 0; k < parameter_count; ++k) {
        parameter *p = &parameters[k];

        for (i = 0; i < p->count; ++i) {
            p->momentum[i] = 0.9f * p->momentum[i] + p->gradients[i] + 1e-4f * p->values[i];
            p->values[i] -= 0.02f * p->momentum[i];
            p->gradients[i] = 0;
        }
    }
}

static void train(void) {
    next_batch();
    loss = 0;
    correct = 0;
    training = 1;
    check(memopt_tape_forward(tape, images));
    check(memopt_tape_backward(tape, NULL, NULL));
    update();
}

static void evaluate(void) {
    next_batch();
    correct = 0;
    training = 0;
    check(memopt_tape_evaluate(tape, images, NULL));
}

/* ---- the report ---- */

static size_t peak_bytes(void) { /* the most this process has held; 0: not known here */
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long kilobytes = 0;

    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lu", &kilobytes) == 1) break;
    fclose(file);
    return (size_t)kilobytes * 1024;
}

static uint64_t hash_floats(uint64_t hash, const float *values, int count) { /* FNV-1a */
    const unsigned char *p = (const unsigned char *)values;
    size_t i;

    for (i = 0; i < (size_t)count * sizeof(float); ++i) hash = (hash ^ p[i]) * 1099511628211u;
    return hash;
}

static uint64_t hash_network(void) {
    uint64_t hash = 14695981039346656037u;
    int b, i;

    for (b = 0; b < BLOCKS; ++b)
        for (i = 0; i < blocks[b].unit_count; ++i)
            hash = hash_floats(hash, blocks[b].units[i].running, 2 * blocks[b].units[i].channels);
    for (i = 0; i < parameter_count; ++i) hash = hash_floats(hash, parameters[i].values, parameters[i].count);
    return hash;
}

int main(int argc, char **argv) {
    int *const settings[4] = { &side, &batch, &width, &steps };
    double last = 0;
    uint64_t hash;
    int i, step;

    for (i = 1; i < argc && i <= 4; ++i) {
        *settings[i - 1] = atoi(argv[i]);
        if (*settings[i - 1] < 1 || *settings[i - 1] > 1024) fail("[side [batch [width [steps]]]], each 1 to 1024");
    }
    if (side % (1 << (STAGES - 1))) fail("the side is halved twice: a multiple of 4");
    build();
    open_tape();
    for (step = 1; step <= steps; ++step) {
        train();
        last = loss;
        printf("step %d loss %.6f correct %d of %d\n", step, loss, correct, batch);
    }
    evaluate();
    printf("evaluation: correct %d of %d\n", correct, batch);
    hash = hash_network();
    printf("overhead %.3f\n", memopt_tape_get_stats(tape).overhead);
    printf("loss %.6f peak %lu weights %08lx%08lx\n", last, (unsigned long)peak_bytes(), (unsigned long)(hash >> 32),
           (unsigned long)(hash & 0xffffffffu));
    return 0;
}
