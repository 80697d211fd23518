/* cnn_1_tape.c - cnn_0_plain.c with a tape: activations are made again in backward, and no bit changes.

   An array of layers, each with its output and the gradient of its output (delta). A layer reads the output of the one
   before; a shortcut adds that of an earlier one.
   Build: cc -O2 cnn_1_tape.c memopt.c -o cnn_1_tape -lm      (memopt.h with -I) */
#include "memopt.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kernel stands alone, as it would in a file of its own: put into the function that calls it, it runs slower, or not,
   as registers are left there. */
#ifdef __GNUC__
#define KERNEL __attribute__((noinline)) static
#else
#define KERNEL static
#endif

enum { BATCH = 32, SIDE = 32, COLORS = 3, WIDTH = 8, BLOCKS = 4, CLASSES = 4, STEPS = 8, MAX_LAYERS = 80 };

typedef enum kind { INPUT, CONVOLUTION, NORM, RELU, SHORTCUT, HEAD, SOFTMAX } kind;

typedef struct layer {
    kind    kind;
    int     from;               /* SHORTCUT: the layer that is added */
    int     channels, side;     /* of the output: BATCH x channels x side x side */
    int     stride;             /* CONVOLUTION */
    float  *output, *delta;
    size_t  weight_count;
    float  *weights, *gradients, *momentum; /* NORM: scale, then shift; HEAD: the last row is the bias */
    float  *mean, *inverse;     /* NORM: of this batch: mean and 1 / standard deviation */
    float  *running;            /* NORM: means, then variances; used by evaluation */
} layer;

static layer layers[MAX_LAYERS];
static int layer_count;
static int ends[MAX_LAYERS]; /* segment s is the layers from ends[s] + 1 to ends[s + 1]: no shortcut crosses an end */
static size_t segment_count;
static memopt_tape *tape;
static memopt_error why;

static float images[BATCH * COLORS * SIDE * SIDE];
static int labels[BATCH];
static int training;
static int repeated; /* this forward has run before in this pass */
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

    for (n = 0; n < BATCH; ++n) {
        const float phase = 3.0f * noise(&state);

        labels[n] = (int)(2.0f * noise(&state) + 2.0f);
        for (c = 0; c < COLORS; ++c)
            for (y = 0; y < SIDE; ++y)
                for (x = 0; x < SIDE; ++x)
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

static size_t image_size(const layer *l) { /* elements of one image */
    return (size_t)l->channels * (size_t)l->side * (size_t)l->side;
}

static size_t layer_size(const layer *l) { /* elements */
    return BATCH * image_size(l);
}

static size_t layer_bytes(const layer *l) {
    return layer_size(l) * sizeof(float);
}

static layer *add_layer(kind k, int channels, int side, size_t weight_count, float scale) {
    static uint32_t seed = 3;
    layer *l = &layers[layer_count++];
    size_t i;

    l->kind = k;
    l->channels = channels;
    l->side = side;
    l->weight_count = weight_count;
    if (weight_count) {
        l->weights = allocate(weight_count);
        l->gradients = allocate(weight_count);
        l->momentum = allocate(weight_count);
    }
    for (i = 0; i < weight_count; ++i) l->weights[i] = scale * noise(&seed);
    return l;
}

static void add_convolution(int channels, int stride) { /* 3 x 3, and its batch norm */
    const layer *before = &layers[layer_count - 1];
    const int side = before->side / stride;
    const int inputs = 9 * before->channels;
    layer *l = add_layer(CONVOLUTION, channels, side, (size_t)(inputs * channels), sqrtf(6.0f / (float)inputs));
    int c;

    l->stride = stride;
    l = add_layer(NORM, channels, side, (size_t)(2 * channels), 0);
    l->mean = allocate((size_t)channels);
    l->inverse = allocate((size_t)channels);
    l->running = allocate((size_t)(2 * channels));
    for (c = 0; c < channels; ++c) l->weights[c] = l->running[channels + c] = 1.0f;
}

static void add_relu(void) {
    add_layer(RELU, layers[layer_count - 1].channels, layers[layer_count - 1].side, 0, 0);
}

static void add_block(void) {
    const int from = layer_count - 1;
    const int channels = layers[from].channels;

    add_convolution(channels, 1);
    add_relu();
    add_convolution(channels, 1);
    add_layer(SHORTCUT, channels, layers[from].side, 0, 0)->from = from;
    add_relu();
    ends[++segment_count] = layer_count - 1;
}

static void build(void) {
    int stage, i;

    add_layer(INPUT, COLORS, SIDE, 0, 0)->output = images;
    for (stage = 0; stage < 2; ++stage) {
        add_convolution(WIDTH << stage, 1 + stage);
        add_relu();
        ends[++segment_count] = layer_count - 1;
        for (i = 0; i < BLOCKS; ++i) add_block();
    }
    add_layer(HEAD, CLASSES, 1, (2 * WIDTH + 1) * CLASSES, 0.2f);
    add_layer(SOFTMAX, CLASSES, 1, 0, 0);
    ends[++segment_count] = layer_count - 1;
}

/* ---- operators: backwards add to the delta of what was read ---- */

/* The outputs from begin to end - 1 have an input at position * stride + tap - 1. */
static int tap_begin(int tap) {
    return tap == 0;
}

static int tap_end(int tap, int stride, int side) {
    return tap == 2 && stride == 1 ? side - 1 : side;
}

KERNEL void convolution_forward(layer *l, const layer *before) {
    const int side = l->side;
    int n, o, i, ky, kx, y, x;

    memset(l->output, 0, layer_bytes(l));
    for (n = 0; n < BATCH; ++n)
        for (o = 0; o < l->channels; ++o)
            for (i = 0; i < before->channels; ++i)
                for (ky = 0; ky < 3; ++ky)
                    for (kx = 0; kx < 3; ++kx) {
                        const float w = l->weights[((o * before->channels + i) * 3 + ky) * 3 + kx];
                        const float *in = before->output + (n * before->channels + i) * before->side * before->side;
                        float *out = l->output + (n * l->channels + o) * side * side;

                        for (y = tap_begin(ky); y < tap_end(ky, l->stride, side); ++y)
                            for (x = tap_begin(kx); x < tap_end(kx, l->stride, side); ++x)
                                out[y * side + x] +=
                                    w * in[(y * l->stride + ky - 1) * before->side + x * l->stride + kx - 1];
                    }
}

KERNEL void convolution_backward(layer *l, layer *before) {
    const int side = l->side;
    int n, o, i, ky, kx, y, x;

    for (n = 0; n < BATCH; ++n)
        for (o = 0; o < l->channels; ++o)
            for (i = 0; i < before->channels; ++i)
                for (ky = 0; ky < 3; ++ky)
                    for (kx = 0; kx < 3; ++kx) {
                        const int at = ((o * before->channels + i) * 3 + ky) * 3 + kx;
                        const int plane = (n * before->channels + i) * before->side * before->side;
                        const float *d = l->delta + (n * l->channels + o) * side * side;
                        float sum = 0;

                        for (y = tap_begin(ky); y < tap_end(ky, l->stride, side); ++y)
                            for (x = tap_begin(kx); x < tap_end(kx, l->stride, side); ++x) {
                                const int in = plane + (y * l->stride + ky - 1) * before->side + x * l->stride + kx - 1;

                                sum += d[y * side + x] * before->output[in];
                                if (before->delta) before->delta[in] += d[y * side + x] * l->weights[at];
                            }
                        l->gradients[at] += sum;
                    }
}

KERNEL void norm_forward(layer *l, const layer *before) {
    const int plane = l->side * l->side;
    const float count = (float)(BATCH * plane);
    int c, n, i;

    for (c = 0; c < l->channels; ++c) {
        float *running = l->running + c;
        float mean = 0;
        float variance = 0;

        for (n = 0; n < BATCH; ++n)
            for (i = 0; i < plane; ++i) mean += before->output[(n * l->channels + c) * plane + i];
        mean /= count;
        for (n = 0; n < BATCH; ++n)
            for (i = 0; i < plane; ++i) {
                const float difference = before->output[(n * l->channels + c) * plane + i] - mean;

                variance += difference * difference;
            }
        variance /= count;
        if (training && !repeated) {
            running[0] += 0.1f * (mean - running[0]);
            running[l->channels] += 0.1f * (variance - running[l->channels]);
        }
        l->mean[c] = training ? mean : running[0];
        l->inverse[c] = 1.0f / sqrtf((training ? variance : running[l->channels]) + 1e-5f);
        for (n = 0; n < BATCH; ++n)
            for (i = (n * l->channels + c) * plane; i < (n * l->channels + c + 1) * plane; ++i)
                l->output[i] = (before->output[i] - l->mean[c]) * l->inverse[c] * l->weights[c]
                    + l->weights[l->channels + c];
    }
}

KERNEL void norm_backward(layer *l, layer *before) {
    const int plane = l->side * l->side;
    const float count = (float)(BATCH * plane);
    int c, n, i;

    for (c = 0; c < l->channels; ++c) {
        float sum = 0;
        float dot = 0;

        for (n = 0; n < BATCH; ++n)
            for (i = (n * l->channels + c) * plane; i < (n * l->channels + c + 1) * plane; ++i) {
                sum += l->delta[i];
                dot += l->delta[i] * (before->output[i] - l->mean[c]) * l->inverse[c];
            }
        l->gradients[c] += dot;
        l->gradients[l->channels + c] += sum;
        for (n = 0; n < BATCH; ++n)
            for (i = (n * l->channels + c) * plane; i < (n * l->channels + c + 1) * plane; ++i) {
                const float unit = (before->output[i] - l->mean[c]) * l->inverse[c];

                before->delta[i] += l->weights[c] * l->inverse[c] * (l->delta[i] - (sum + unit * dot) / count);
            }
    }
}

/* A linear layer of the mean of each channel. */
static void head_forward(layer *l, const layer *before) {
    const int inputs = (int)image_size(before);
    const int plane = before->side * before->side;
    int n, i, o;

    for (n = 0; n < BATCH; ++n)
        for (o = 0; o < CLASSES; ++o) {
            float sum = 0;

            for (i = 0; i < inputs; ++i) sum += before->output[n * inputs + i] * l->weights[i / plane * CLASSES + o];
            l->output[n * CLASSES + o] = sum / (float)plane + l->weights[before->channels * CLASSES + o];
        }
}

static void head_backward(layer *l, layer *before) {
    const int inputs = (int)image_size(before);
    const int plane = before->side * before->side;
    int n, i, o;

    for (n = 0; n < BATCH; ++n)
        for (o = 0; o < CLASSES; ++o) {
            const float d = l->delta[n * CLASSES + o] / (float)plane;

            for (i = 0; i < inputs; ++i) {
                before->delta[n * inputs + i] += d * l->weights[i / plane * CLASSES + o];
                l->gradients[i / plane * CLASSES + o] += d * before->output[n * inputs + i];
            }
            l->gradients[before->channels * CLASSES + o] += l->delta[n * CLASSES + o];
        }
}

static void softmax_forward(layer *l, const layer *before) {
    int n, i;

    for (n = 0; n < BATCH; ++n) {
        const float *in = before->output + n * CLASSES;
        float *out = l->output + n * CLASSES;
        float sum = 0;
        int best = 0;

        for (i = 0; i < CLASSES; ++i) {
            if (in[i] > in[best]) best = i;
            sum += expf(in[i]);
        }
        for (i = 0; i < CLASSES; ++i) out[i] = expf(in[i]) / sum;
        loss -= log((double)out[labels[n]]) / BATCH;
        correct += best == labels[n];
    }
}

static void softmax_backward(layer *l, layer *before) {
    int n, i;

    for (n = 0; n < BATCH; ++n)
        for (i = 0; i < CLASSES; ++i)
            before->delta[n * CLASSES + i] += (l->output[n * CLASSES + i] - (float)(i == labels[n])) / BATCH;
}

static void layer_forward(int at) {
    layer *l = &layers[at];
    const layer *before = &layers[at - 1];
    const layer *from = &layers[l->from];
    const size_t count = layer_size(l);
    const float *x = before->output;
    size_t i;

    switch (l->kind) {
    case INPUT:
        break;
    case CONVOLUTION:
        convolution_forward(l, before);
        break;
    case NORM:
        norm_forward(l, before);
        break;
    case RELU:
        for (i = 0; i < count; ++i) l->output[i] = x[i] > 0 ? x[i] : 0;
        break;
    case SHORTCUT:
        for (i = 0; i < count; ++i) l->output[i] = x[i] + from->output[i];
        break;
    case HEAD:
        head_forward(l, before);
        break;
    case SOFTMAX:
        softmax_forward(l, before);
        break;
    }
}

static void layer_backward(int at) {
    layer *l = &layers[at];
    layer *before = &layers[at - 1];
    layer *from = &layers[l->from];
    const size_t count = layer_size(l);
    float *d_x = before->delta;
    size_t i;

    switch (l->kind) {
    case INPUT:
        break;
    case CONVOLUTION:
        convolution_backward(l, before);
        break;
    case NORM:
        norm_backward(l, before);
        break;
    case RELU:
        for (i = 0; i < count; ++i) d_x[i] += l->output[i] > 0 ? l->delta[i] : 0;
        break;
    case SHORTCUT:
        for (i = 0; i < count; ++i) d_x[i] += l->delta[i];
        for (i = 0; i < count; ++i) from->delta[i] += l->delta[i];
        break;
    case HEAD:
        head_backward(l, before);
        break;
    case SOFTMAX:
        softmax_backward(l, before);
        break;
    }
}

/* ---- training ---- */

/* The layers of a segment, in the tape's memory. */
static memopt_status run_segment(const memopt_tape_call *call) {
    const int begin = ends[call->segment];
    const int end = ends[call->segment + 1];
    int i;

    for (i = begin + 1; i < end; ++i) {
        const size_t bytes = layer_bytes(&layers[i]);

        layers[i].output = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, bytes);
        if (call->is_backward) layers[i].delta = (float *)memopt_tape_take(call, MEMOPT_TAPE_ZEROED, bytes);
    }
    if (call->describing) return MEMOPT_OK;
    layers[begin].output = (float *)(uintptr_t)call->input;
    layers[begin].delta = (float *)call->grad_input;
    layers[end].output = (float *)call->output;
    layers[end].delta = (float *)call->grad_output;
    if (call->grad_input) memset(call->grad_input, 0, call->grad_input_bytes);
    repeated = call->is_recompute || call->calibrating;
    for (i = begin + 1; i <= end && !call->is_backward; ++i) layer_forward(i);
    for (i = end; i > begin && call->is_backward; --i) layer_backward(i);
    return MEMOPT_OK;
}

static void check(memopt_status status) {
    if (!status) return;
    MEMOPT_ERROR_PRINT(stderr, tape ? memopt_tape_error(tape) : why);
    exit(1);
}

static void open_tape(void) {
    static memopt_segment segments[MAX_LAYERS];
    const memopt_tape_desc desc = {
        .chain = { .segments = segments, .count = segment_count, .input_bytes = sizeof images },
        .layer = { run_segment, run_segment, NULL },
        .overhead = 0.33, .error = &why
    };
    size_t i;

    for (i = 0; i < segment_count; ++i)
        segments[i].output_bytes = segments[i].grad_bytes = layer_bytes(&layers[ends[i + 1]]);
    segments[segment_count - 1].grad_bytes = 0; /* the backward begins there */
    check(memopt_tape_open(&desc, &tape));
}

static void update(void) {
    int k;
    size_t i;

    for (k = 0; k < layer_count; ++k) {
        layer *l = &layers[k];

        for (i = 0; i < l->weight_count; ++i) {
            l->momentum[i] = 0.9f * l->momentum[i] + l->gradients[i] + 1e-4f * l->weights[i];
            l->weights[i] -= 0.05f * l->momentum[i];
            l->gradients[i] = 0;
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

static uint64_t hash_floats(uint64_t hash, const float *values, size_t count) { /* FNV-1a; NULL with 0 is fine */
    const unsigned char *p = (const unsigned char *)values;
    size_t i;

    for (i = 0; i < count * sizeof(float); ++i) hash = (hash ^ p[i]) * 1099511628211u;
    return hash;
}

int main(void) {
    uint64_t hash = 14695981039346656037u;
    double last = 0;
    int i, step;

    build();
    open_tape();
    for (step = 1; step <= STEPS; ++step) {
        train();
        last = loss;
        printf("step %d loss %.6f correct %d of %d\n", step, loss, correct, BATCH);
    }
    evaluate();
    printf("evaluation: correct %d of %d\n", correct, BATCH);
    for (i = 0; i < layer_count; ++i) {
        hash = hash_floats(hash, layers[i].weights, layers[i].weight_count);
        if (layers[i].running) hash = hash_floats(hash, layers[i].running, (size_t)(2 * layers[i].channels));
    }
    printf("overhead %.3f\n", memopt_tape_get_stats(tape).overhead);
    printf("loss %.6f peak %lu weights %08lx%08lx\n", last, (unsigned long)peak_bytes(), (unsigned long)(hash >> 32),
           (unsigned long)(hash & 0xffffffffu));
    return 0;
}
