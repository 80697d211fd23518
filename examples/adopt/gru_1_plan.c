/* gru_1_plan.c - gru_0_plain.c with all values and gradients planned into one block.

   A value lives until its last reader has read it, a gradient from its first addend on. No bit changes.

   Each operation is a node with its value and its gradient. The graph of all time steps is built once; a training step
   runs it forward, then backward in reverse order. The states at the end of a window begin the next one.
   Build: cc -O2 gru_1_plan.c memopt.c -o gru_1_plan -lm      (memopt.h with -I) */
#include "memopt.h"
#include "../parts/graph.h"
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

enum { LAYERS = 2, HIDDEN = 64, BATCH = 64, TIMES = 80, SYMBOLS = 28, STEPS = 12 };
enum { MAX_NODES = LAYERS + TIMES * (16 * LAYERS + 3), MAX_PARAMETERS = 6 * LAYERS + 2 };

typedef enum operation {
    STATE, EMBED, LINEAR, ADD, SUBTRACT, MULTIPLY, SIGMOID, TANH, LOSS
} operation;

typedef struct node { /* BATCH rows */
    operation kind;
    int       a, b;      /* the nodes it reads; -1: none */
    int       parameter; /* -1: none */
    int       columns;
    int       time;      /* EMBED, LOSS: whose symbols */
    float    *value, *gradient;
} node;

typedef struct parameter { /* LINEAR: the last row is the bias */
    int    rows, columns;
    float *weights, *gradients;
    float *mean, *square; /* AdamW's moments */
} parameter;

static node nodes[MAX_NODES];
static parameter parameters[MAX_PARAMETERS];
static int node_count, parameter_count;

/* nodes: at first, and after each time step */
static int states[TIMES + 1][LAYERS];
static graph_use uses[MAX_NODES];

/* from window to window: outlives what is planned */
static float carried[LAYERS][BATCH * HIDDEN];

static unsigned char text[BATCH][TIMES + 1];
static double loss_sum;
static int correct;

/* ---- data ---- */

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float noise(uint32_t *state) { /* in [-1, 1) */
    return (float)next_random(state) / 8388608.0f - 1.0f;
}

/* The next symbol of a stream: words of a small vocabulary, one after the other. */
static unsigned char next_symbol(int stream) {
    static const char *const words[8] = { "the ", "cat ", "sat ", "on ", "a ", "mat. ", "then ", "slept. " };
    static const char *rest[BATCH];
    static uint32_t seeds[BATCH];
    char letter;

    if (!rest[stream] || !*rest[stream]) {
        if (!rest[stream]) seeds[stream] = (uint32_t)stream + 1;
        rest[stream] = words[next_random(&seeds[stream]) >> 4 & 7];
    }
    letter = *rest[stream]++;
    return (unsigned char)(letter == ' ' ? 26 : letter == '.' ? 27 : letter - 'a');
}

/* The next window of every stream: its first symbol is the last one of the window before. */
static void next_window(void) {
    int stream, t;

    for (stream = 0; stream < BATCH; ++stream) {
        text[stream][0] = text[stream][TIMES];
        for (t = 1; t <= TIMES; ++t) text[stream][t] = next_symbol(stream);
    }
}

/* ---- the graph ---- */

static void fail(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    exit(1);
}

static float *allocate(size_t count) {
    float *memory = (float *)calloc(count, sizeof(float));

    if (!memory) fail("out of memory");
    return memory;
}

static size_t node_size(const node *n) { /* elements */
    return (size_t)BATCH * (size_t)n->columns;
}

static size_t node_bytes(const node *n) {
    return node_size(n) * sizeof(float);
}

static int add_node(operation kind, int a, int b, int columns) {
    node *n = &nodes[node_count];

    n->kind = kind;
    n->a = a;
    n->b = b;
    n->parameter = -1;
    n->columns = columns;
    return node_count++;
}

static int add_parameter(int rows, int columns, uint32_t *seed) {
    parameter *p = &parameters[parameter_count];
    const size_t count = (size_t)rows * (size_t)columns;
    const float scale = 1.0f / sqrtf((float)rows);
    size_t i;

    p->rows = rows;
    p->columns = columns;
    p->weights = allocate(count);
    p->gradients = allocate(count);
    p->mean = allocate(count);
    p->square = allocate(count);
    for (i = 0; i < count; ++i) p->weights[i] = scale * noise(seed);
    return parameter_count++;
}

static int embed(int table, int time) {
    const int n = add_node(EMBED, -1, -1, HIDDEN);

    nodes[n].parameter = table;
    nodes[n].time = time;
    return n;
}

static int linear(int a, int weights) {
    const int n = add_node(LINEAR, a, -1, parameters[weights].columns);

    nodes[n].parameter = weights;
    return n;
}

static int unary(operation kind, int a) {
    return add_node(kind, a, -1, nodes[a].columns);
}

static int binary(operation kind, int a, int b) {
    return add_node(kind, a, b, nodes[a].columns);
}

/* One time step of a layer; its parameters are six matrices: two each for the gates r and z, and for the candidate. */
static int gru(int x, int h, int first) {
    const int r = unary(SIGMOID, binary(ADD, linear(x, first), linear(h, first + 1)));
    const int z = unary(SIGMOID, binary(ADD, linear(x, first + 2), linear(h, first + 3)));
    const int candidate = unary(TANH, binary(ADD, linear(x, first + 4), binary(MULTIPLY, r, linear(h, first + 5))));

    return binary(ADD, candidate, binary(MULTIPLY, z, binary(SUBTRACT, h, candidate)));
}

static void build(void) {
    uint32_t seed = 7;
    int i, layer, t, table, head;

    table = add_parameter(SYMBOLS, HIDDEN, &seed);
    for (i = 0; i < 6 * LAYERS; ++i) add_parameter(HIDDEN + 1, HIDDEN, &seed);
    head = add_parameter(HIDDEN + 1, SYMBOLS, &seed);
    for (layer = 0; layer < LAYERS; ++layer) states[0][layer] = add_node(STATE, -1, -1, HIDDEN);
    for (t = 0; t < TIMES; ++t) {
        int x = embed(table, t);

        for (layer = 0; layer < LAYERS; ++layer) x = states[t + 1][layer] = gru(x, states[t][layer], 1 + 6 * layer);
        x = unary(LOSS, linear(x, head));
        nodes[x].time = t;
    }
}

static void check(memopt_status status, const memopt_error *why) {
    if (!status) return;
    MEMOPT_ERROR_PRINT(stderr, *why);
    exit(1);
}

static void place_nodes(void) {
    static graph_node graph_nodes[MAX_NODES];
    static graph_edge edges[2 * MAX_NODES];
    static memopt_plan_item items[2 * MAX_NODES];
    memopt_error why;
    graph network = { .nodes = graph_nodes, .node_count = (size_t)node_count, .edges = edges, .error = &why };
    const memopt_plan_options options = { .no_search = 1, .error = &why };
    memopt_plan_result plan;
    size_t count;
    float *block;
    int i;

    for (i = 0; i < node_count; ++i) {
        const operation kind = nodes[i].kind;

        graph_nodes[i].bytes = graph_nodes[i].grad_bytes = node_bytes(&nodes[i]);
        graph_nodes[i].reads_output = kind == SIGMOID || kind == TANH || kind == LOSS;
        graph_nodes[i].reads_inputs = kind == LINEAR || kind == MULTIPLY;
        if (nodes[i].a >= 0) edges[network.edge_count].from = (size_t)nodes[i].a;
        if (nodes[i].a >= 0) edges[network.edge_count++].to = (size_t)i;
        if (nodes[i].b >= 0) edges[network.edge_count].from = (size_t)nodes[i].b;
        if (nodes[i].b >= 0) edges[network.edge_count++].to = (size_t)i;
    }
    check(graph_to_plan(&network, items, 2 * MAX_NODES, &count, uses), &why);
    check(memopt_plan_solve(items, count, &options, NULL, &plan), &why);
    block = allocate(plan.peak / sizeof(float));
    for (i = 0; i < node_count; ++i) {
        nodes[i].value = block + items[uses[i].value_item].offset / sizeof(float);
        nodes[i].gradient = block + items[uses[i].grad_item].offset / sizeof(float);
    }
}

/* ---- forward ---- */

KERNEL void linear_forward(float *out, const float *in, const parameter *p) {
    const int inputs = p->rows - 1;
    int row, i, o;

    for (row = 0; row < BATCH; ++row, in += inputs, out += p->columns) {
        memcpy(out, p->weights + inputs * p->columns, (size_t)p->columns * sizeof(float));
        for (i = 0; i < inputs; ++i)
            for (o = 0; o < p->columns; ++o) out[o] += in[i] * p->weights[i * p->columns + o];
    }
}

/* The value is softmax(a); the loss goes to loss_sum. */
static void loss_forward(float *out, const float *in, int time) {
    int row, i;

    for (row = 0; row < BATCH; ++row, in += SYMBOLS, out += SYMBOLS) {
        const int target = text[row][time + 1];
        int best = 0;
        float sum = 0;

        for (i = 1; i < SYMBOLS; ++i)
            if (in[i] > in[best]) best = i;
        for (i = 0; i < SYMBOLS; ++i) {
            out[i] = expf(in[i] - in[best]);
            sum += out[i];
        }
        for (i = 0; i < SYMBOLS; ++i) out[i] /= sum;
        loss_sum -= log((double)out[target]);
        correct += best == target;
    }
}

static void node_forward(const node *n) {
    const float *a = n->a >= 0 ? nodes[n->a].value : NULL;
    const float *b = n->b >= 0 ? nodes[n->b].value : NULL;
    const size_t count = node_size(n);
    float *out = n->value;
    size_t i;

    switch (n->kind) {
    case STATE:
        memcpy(out, carried[n - nodes], node_bytes(n));
        break;
    case EMBED:
        for (i = 0; i < BATCH; ++i)
            memcpy(out + i * HIDDEN, parameters[n->parameter].weights + text[i][n->time] * HIDDEN,
                   HIDDEN * sizeof(float));
        break;
    case LINEAR:
        linear_forward(out, a, &parameters[n->parameter]);
        break;
    case ADD:
        for (i = 0; i < count; ++i) out[i] = a[i] + b[i];
        break;
    case SUBTRACT:
        for (i = 0; i < count; ++i) out[i] = a[i] - b[i];
        break;
    case MULTIPLY:
        for (i = 0; i < count; ++i) out[i] = a[i] * b[i];
        break;
    case SIGMOID:
        for (i = 0; i < count; ++i) out[i] = 1.0f / (1.0f + expf(-a[i]));
        break;
    case TANH:
        for (i = 0; i < count; ++i) out[i] = tanhf(a[i]);
        break;
    case LOSS:
        loss_forward(out, a, n->time);
        break;
    }
}

static void forward(void) {
    int i;

    for (i = 0; i < node_count; ++i) node_forward(&nodes[i]);
}

/* ---- backward: each node adds to the gradients of what it has read ---- */

KERNEL void linear_backward(float *d_in, const float *in, const float *d_out, const parameter *p) {
    const int inputs = p->rows - 1;
    int row, i, o;

    for (row = 0; row < BATCH; ++row, in += inputs, d_in += inputs, d_out += p->columns) {
        for (i = 0; i < inputs; ++i) {
            float sum = 0;

            for (o = 0; o < p->columns; ++o) {
                sum += d_out[o] * p->weights[i * p->columns + o];
                p->gradients[i * p->columns + o] += in[i] * d_out[o];
            }
            d_in[i] += sum;
        }
        for (o = 0; o < p->columns; ++o) p->gradients[inputs * p->columns + o] += d_out[o];
    }
}

static void loss_backward(float *d_in, const float *softmax, int time) {
    int row, i;

    for (row = 0; row < BATCH; ++row, d_in += SYMBOLS, softmax += SYMBOLS)
        for (i = 0; i < SYMBOLS; ++i)
            d_in[i] += (softmax[i] - (float)(i == text[row][time + 1])) / (BATCH * TIMES);
}

static void embed_backward(const float *d_out, int time, const parameter *p) {
    int row, i;

    for (row = 0; row < BATCH; ++row)
        for (i = 0; i < HIDDEN; ++i) p->gradients[text[row][time] * HIDDEN + i] += d_out[row * HIDDEN + i];
}

static void node_backward(const node *n) {
    const float *a = n->a >= 0 ? nodes[n->a].value : NULL;
    const float *b = n->b >= 0 ? nodes[n->b].value : NULL;
    const float *y = n->value;
    const float *d = n->gradient;
    float *d_a = n->a >= 0 ? nodes[n->a].gradient : NULL;
    float *d_b = n->b >= 0 ? nodes[n->b].gradient : NULL;
    const size_t count = node_size(n);
    size_t i;

    switch (n->kind) {
    case STATE:
        break;
    case EMBED:
        embed_backward(d, n->time, &parameters[n->parameter]);
        break;
    case LINEAR:
        linear_backward(d_a, a, d, &parameters[n->parameter]);
        break;
    case ADD:
        for (i = 0; i < count; ++i) d_a[i] += d[i];
        for (i = 0; i < count; ++i) d_b[i] += d[i];
        break;
    case SUBTRACT:
        for (i = 0; i < count; ++i) d_a[i] += d[i];
        for (i = 0; i < count; ++i) d_b[i] -= d[i];
        break;
    case MULTIPLY:
        for (i = 0; i < count; ++i) d_a[i] += d[i] * b[i];
        for (i = 0; i < count; ++i) d_b[i] += d[i] * a[i];
        break;
    case SIGMOID:
        for (i = 0; i < count; ++i) d_a[i] += d[i] * y[i] * (1.0f - y[i]);
        break;
    case TANH:
        for (i = 0; i < count; ++i) d_a[i] += d[i] * (1.0f - y[i] * y[i]);
        break;
    case LOSS:
        loss_backward(d_a, y, n->time);
        break;
    }
}

/* Right before its first addend, which comes from the last of its readers. */
static void clear_gradient(int n, int reader) {
    if (n >= 0 && uses[n].first_grad == (size_t)reader) memset(nodes[n].gradient, 0, node_bytes(&nodes[n]));
}

static void backward(void) {
    int i;

    for (i = node_count - 1; i >= 0; --i) {
        clear_gradient(nodes[i].a, i);
        clear_gradient(nodes[i].b, i);
        node_backward(&nodes[i]);
    }
}

/* ---- training ---- */

static void adamw(parameter *p, int step) { /* step: 1 is the first */
    const size_t count = (size_t)p->rows * (size_t)p->columns;
    const float rate = 0.01f;
    const float correction1 = 1.0f - powf(0.9f, (float)step);
    const float correction2 = 1.0f - powf(0.999f, (float)step);
    size_t i;

    for (i = 0; i < count; ++i) {
        const float g = p->gradients[i];

        p->mean[i] = 0.9f * p->mean[i] + 0.1f * g;
        p->square[i] = 0.999f * p->square[i] + 0.001f * g * g;
        p->weights[i] -= rate * 0.01f * p->weights[i];
        p->weights[i] -= rate * (p->mean[i] / correction1) / (sqrtf(p->square[i] / correction2) + 1e-8f);
        p->gradients[i] = 0;
    }
}

static double train(int step) {
    int i;

    next_window();
    loss_sum = 0;
    correct = 0;
    forward();
    for (i = 0; i < LAYERS; ++i)
        memcpy(carried[i], nodes[states[TIMES][i]].value, sizeof carried[i]);
    backward();
    for (i = 0; i < parameter_count; ++i) adamw(&parameters[i], step);
    return loss_sum / (BATCH * TIMES);
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

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) { /* FNV-1a */
    const unsigned char *p = (const unsigned char *)bytes;
    size_t i;

    for (i = 0; i < count; ++i) hash = (hash ^ p[i]) * 1099511628211u;
    return hash;
}

int main(void) {
    uint64_t hash = 14695981039346656037u;
    double loss = 0;
    int i, step;

    build();
    place_nodes();
    for (i = 0; i < BATCH; ++i) text[i][TIMES] = next_symbol(i);
    for (step = 1; step <= STEPS; ++step) {
        loss = train(step);
        printf("step %d loss %.6f correct %.1f %%\n", step, loss, 100.0 * correct / (BATCH * TIMES));
    }
    for (i = 0; i < parameter_count; ++i)
        hash = hash_bytes(hash, parameters[i].weights,
                          (size_t)parameters[i].rows * (size_t)parameters[i].columns * sizeof(float));
    printf("loss %.6f peak %lu weights %08lx%08lx\n", loss, (unsigned long)peak_bytes(), (unsigned long)(hash >> 32),
           (unsigned long)(hash & 0xffffffffu));
    return 0;
}
