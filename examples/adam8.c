/* adam8.c - an engine with an Adam loop of its own gets 8-bit AdamW: the lines between the marks "README".

   What to see: the same network, trained twice from the same start on the same data. The state takes a quarter of the
   bytes (beside it the optimizer itself, 4 KiB for a model of any size), and the losses are the same but for noise.
   The exit status says whether that came true.
   Build: cc -O2 adam8.c -o adam8 -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, BATCH = 32, SHARES = 2, STEPS = 400, LAST = 100 /* steps whose mean loss is compared */ };

static const size_t width[LAYERS + 1] = { 32, 128, 128, 1 };

/* ---- the engine, as it was ---- */
typedef struct network { /* of each layer: weights, their gradients, Adam's moments; biases are the last row */
    float *weights[LAYERS], *gradients[LAYERS], *m[LAYERS], *v[LAYERS];
    size_t count[LAYERS];
    uint32_t random;
} network;

typedef struct curve {
    double loss[STEPS], last;
    size_t state_bytes, object_bytes;
} curve;

/* Memory: zeroed, aligned to 64, given back all at once. */
static unsigned char pool[1 << 20];
static size_t pool_used;

static void *take(size_t bytes) {
    const size_t start = pool_used + (64 - ((uintptr_t)pool + pool_used) % 64) % 64;

    if (bytes > sizeof pool - start) {
        fprintf(stderr, "the pool is too small\n");
        exit(1);
    }
    pool_used = start + bytes;
    return memset(pool + start, 0, bytes);
}

static float *take_floats(size_t count) { return (float *)take(count * sizeof(float)); }

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static void network_open(network *net) {
    size_t l, i;

    memset(net, 0, sizeof *net);
    pool_used = 0;
    net->random = 1;
    for (l = 0; l < LAYERS; ++l) {
        net->count[l] = (width[l] + 1) * width[l + 1];
        net->weights[l] = take_floats(net->count[l]);
        net->gradients[l] = take_floats(net->count[l]);
        for (i = 0; i < net->count[l]; ++i) net->weights[l][i] = noise(&net->random) * (l ? 0.12f : 0.24f);
    }
}

static void forward(float *out, const float *in, const float *w, size_t n_in, size_t n_out, int relu) {
    size_t row, i, o;

    for (row = 0; row < BATCH; ++row, in += n_in, out += n_out) {
        for (o = 0; o < n_out; ++o) out[o] = w[n_in * n_out + o];
        for (i = 0; i < n_in; ++i)
            for (o = 0; o < n_out; ++o) out[o] += in[i] * w[i * n_out + o];
        for (o = 0; relu && o < n_out; ++o)
            if (out[o] < 0) out[o] = 0;
    }
}

static void backward(float *d_in, float *d_w, const float *d_out, const float *in, const float *w, size_t n_in,
                     size_t n_out) {
    size_t row, i, o;
    for (i = 0; i < (n_in + 1) * n_out; ++i) d_w[i] = 0;
    for (row = 0; row < BATCH; ++row, in += n_in, d_in += n_in, d_out += n_out) {
        for (i = 0; i < n_in; ++i) {
            float sum = 0;

            for (o = 0; o < n_out; ++o) {
                sum += d_out[o] * w[i * n_out + o];
                d_w[i * n_out + o] += d_out[o] * in[i];
            }
            d_in[i] = in[i] > 0 ? sum : 0; /* the input is the output of a ReLU, but for the first layer's */
        }
        for (o = 0; o < n_out; ++o) d_w[n_in * n_out + o] += d_out[o];
    }
}

/* A new batch, forward, backward; returns the loss. To learn: a product and a maximum of inputs, under noise. */
static double network_gradients(network *net) {
    static float output[LAYERS + 1][BATCH * 128], d[2][BATCH * 128];
    double loss = 0;
    size_t l, i, row;

    for (i = 0; i < BATCH * width[0]; ++i) output[0][i] = noise(&net->random);
    for (l = 0; l < LAYERS; ++l)
        forward(output[l + 1], output[l], net->weights[l], width[l], width[l + 1], l + 1 < LAYERS);
    for (row = 0; row < BATCH; ++row) {
        const float *x = output[0] + row * width[0];
        const float target = 2 * x[0] * x[1] + (x[2] > x[3] ? x[2] : x[3]) + 0.5f * noise(&net->random);
        const float error = output[LAYERS][row] - target;

        loss += (double)error * (double)error / BATCH;
        d[LAYERS % 2][row] = 2 * error / BATCH;
    }
    for (l = LAYERS; l-- > 0;)
        backward(d[l % 2], net->gradients[l], d[(l + 1) % 2], output[l], net->weights[l], width[l], width[l + 1]);
    return loss;
}

/* The loop that every engine has. */
static void adam_step(network *net, int t) {
    const float rate = 1e-3f, b1 = 0.9f, b2 = 0.999f, eps = 1e-8f, decay = 1e-2f;
    const float c1 = 1 - powf(b1, (float)t), c2 = 1 - powf(b2, (float)t);
    size_t l, i;

    for (l = 0; l < LAYERS; ++l)
        for (i = 0; i < net->count[l]; ++i) {
            const float g = net->gradients[l][i];
            float *w = &net->weights[l][i], *m = &net->m[l][i], *v = &net->v[l][i];

            *m = b1 * *m + (1 - b1) * g;
            *v = b2 * *v + (1 - b2) * g * g;
            *w -= rate * (decay * *w + *m / c1 / (sqrtf(*v / c2) + eps));
        }
}

static void train_before(curve *c) {
    network net;
    size_t l, used;
    int t;
    network_open(&net);
    used = pool_used;
    for (l = 0; l < LAYERS; ++l) {
        net.m[l] = take_floats(net.count[l]);
        net.v[l] = take_floats(net.count[l]);
    }
    c->state_bytes = pool_used - used;
    for (t = 0; t < STEPS; ++t) {
        c->loss[t] = network_gradients(&net);
        adam_step(&net, t + 1);
    }
}

/* ---- the same with 8-bit AdamW ---- */
static const char *why(memopt_error error) {
    static char text[256];
    return memopt_error_text(&error, text, sizeof text, NULL) ? "no reason" : text;
}

static int fail(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    return 0;
}

/* README: adam8 */
static memopt_optim *open_adam8(memopt_optim_tensor *tensors, const network *net) {
    memopt_optim_desc desc = { 0 };
    memopt_optim *optim = NULL;
    memopt_threads cores = { 0 };
    memopt_error refused;
    size_t l;

    for (l = 0; l < LAYERS; ++l) {
        tensors[l].count = net->count[l];
        tensors[l].weights = net->weights[l];
        tensors[l].gradients = net->gradients[l];
    }
    desc.kind = MEMOPT_OPTIM_ADAMW;
    desc.state = MEMOPT_STATE_8BIT;
    desc.tensors = tensors;
    desc.tensor_count = LAYERS;
    desc.error = &refused;
    desc.threads = memopt_threads_openmp(0, &cores) ? NULL : &cores; /* all cores with -fopenmp; else one */
    if (memopt_optim_open(&desc, NULL, &optim)) fail(why(refused));  /* from malloc, or from your arena */
    return optim;
}

/* README: end */
/* The same moments as bitsandbytes has them; a file of theirs comes the other way. */
static int export_states(memopt_optim *optim, const memopt_optim_tensor *tensors) {
    memopt_optim_tensor theirs[LAYERS];
    memopt_optim_desc desc = { 0 };
    memopt_optim *other = NULL;
    size_t l;
    int good = 1;

    memcpy(theirs, tensors, sizeof theirs);
    desc.kind = MEMOPT_OPTIM_ADAMW;
    desc.state = MEMOPT_STATE_BNB;
    desc.tensors = theirs;
    desc.tensor_count = LAYERS;
    if (memopt_optim_open(&desc, NULL, &other)) return fail("no memory for other states");
    for (l = 0; l < LAYERS && good; ++l)
        if (memopt_optim_state_convert(other, optim, l)) good = fail(why(memopt_optim_error(other)));
    memopt_optim_close(other); /* before that, memopt_optim_state_view() says where state1, absmax1 and so on are */
    return good;
}

static int train_after(curve *c) {
    memopt_optim_tensor tensors[LAYERS] = { { 0 } };
    memopt_optim *optim;
    memopt_optim_run run = { 0 };
    memopt_optim_view state;

    memopt_optim_desc desc = { 0 };
    network net;
    uint64_t skipped, all_skipped = 0;
    size_t l, bytes;
    int t;
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); /* the constants of adam_step() */
    network_open(&net);
    optim = open_adam8(tensors, &net);
    if (!optim) return 0;
    desc.kind = MEMOPT_OPTIM_ADAMW;
    desc.state = MEMOPT_STATE_8BIT;
    desc.tensors = tensors;
    desc.tensor_count = LAYERS;
    c->object_bytes = (size_t)((unsigned char *)tensors[0].state - (unsigned char *)optim);
    for (l = 0; l < LAYERS; ++l) /* moments, and the largest magnitude of each block */
        if (!memopt_optim_state_view(optim, l, &state))
            c->state_bytes += (size_t)state.moments * (state.held * (size_t)state.bits / 8 + state.blocks * 4);
    /* README: adam8 step */
    run.groups = &group;
    run.group_count = 1;
    for (t = 0; t < STEPS; ++t) {
        c->loss[t] = network_gradients(&net);
        run.step = (uint64_t)t + 1;
        if (memopt_optim_step(optim, &run)) return fail(why(memopt_optim_error(optim)));
    }
    /* README: end */
    if (memopt_optim_applied(optim, 0) != net.count[0]) return fail("a tensor was not stepped");
    /* Threads of your own can step, too, a share each; here one after the other. */
    (void)network_gradients(&net);
    ++run.step;
    if (memopt_optim_begin(optim, &run)) return fail(why(memopt_optim_error(optim)));
    for (l = 0; l < SHARES; ++l) {
        if (memopt_optim_apply_share(optim, l, SHARES, &skipped)) return fail(why(memopt_optim_error(optim)));
        all_skipped += skipped;
    }
    if (memopt_optim_end(optim) || all_skipped || memopt_optim_skipped(optim)) return fail("gradients are not finite");
    /* Bytes that come from a file are asked before the first step: are they the state of this tensor? */
    for (l = 0; l < LAYERS; ++l) {
        if (memopt_optim_state_bytes(&desc, l, &bytes) || memopt_optim_state_check(optim, l, bytes))
            return fail(why(memopt_optim_error(optim)));
    }
    if (!export_states(optim, tensors)) return 0;
    memopt_optim_close(optim);
    return 1;
}

int main(void) {
    static curve before, after;
    double distance;
    int t;
    train_before(&before);
    if (!train_after(&after)) return 1;
    printf("step    loss, 32-bit Adam    loss, 8-bit Adam\n");
    for (t = 0; t < STEPS; ++t) {
        if (t % 50 == 0 || t == STEPS - 1) printf("%4d %20.4f %19.4f\n", t + 1, before.loss[t], after.loss[t]);
        if (t >= STEPS - LAST) {
            before.last += before.loss[t] / LAST;
            after.last += after.loss[t] / LAST;
        }
    }
    distance = fabs(after.last / before.last - 1);
    printf("\nmean loss of the last %d steps: %.4f and %.4f, %.2f %% apart\n", LAST, before.last, after.last,
           100 * distance);
    printf("state: %lu bytes and %lu (and %lu for the optimizer itself)\n", (unsigned long)before.state_bytes,
           (unsigned long)after.state_bytes, (unsigned long)after.object_bytes);
    return distance < 0.02 && after.state_bytes < before.state_bytes / 3 ? 0 : 1;
}
