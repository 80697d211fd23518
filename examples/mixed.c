/* mixed.c - fp16 gradients, micro-batches of different length, clipping: what has to happen between backward and step.

   What to see: the loss scale falls until the gradients fit fp16, and rises again later on; steps that overflowed leave
   weights and state as they are; every token weighs the same. The exit status says whether the network learned.
   Build: cc -O2 mixed.c -o mixed -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { INPUTS = 32, OUTPUTS = 16, WEIGHTS = INPUTS * OUTPUTS, STEPS = 300, MICRO_BATCHES = 3 };

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* Forward and backward of a linear layer whose target is another one: gradients in fp16, of the loss summed over tokens
   and multiplied by the scale. Returns the loss without it. */
static double micro_batch(uint16_t *gradients, const float *weights, const float *target, size_t tokens, float scale,
                          uint32_t *state) {
    static float sum[WEIGHTS];
    float input[INPUTS];
    double loss = 0;
    size_t i, o, token;
    memset(sum, 0, sizeof sum);
    for (token = 0; token < tokens; ++token) {
        for (i = 0; i < INPUTS; ++i) input[i] = noise(state);
        for (o = 0; o < OUTPUTS; ++o) {
            float error = 0.1f * noise(state);

            for (i = 0; i < INPUTS; ++i) error += input[i] * (weights[i * OUTPUTS + o] - target[i * OUTPUTS + o]);
            loss += 0.5 * (double)error * (double)error;
            for (i = 0; i < INPUTS; ++i) sum[i * OUTPUTS + o] += error * scale * input[i];
        }
    }
    for (i = 0; i < WEIGHTS; ++i) gradients[i] = memopt_to_f16(sum[i]);
    return loss;
}

static const char *why(memopt_error error) {
    static char text[256];
    return memopt_error_text(&error, text, sizeof text, NULL) ? "no reason" : text;
}

static int fail(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    return 1;
}

static void *aligned(unsigned char *block) { return block + (64 - (uintptr_t)block % 64) % 64; }

static void print_policies(void) {
    const memopt_precision policies[3] = { memopt_precision_bf16(), memopt_precision_bf16_lean(),
                                           memopt_precision_f16() };
    static const char *const names[3] = { "bf16", "bf16, lean", "fp16" };
    size_t i;

    for (i = 0; i < 3; ++i) {
        const memopt_precision *p = &policies[i];
        const size_t master = p->master == p->weights ? 0 : memopt_type_bytes(p->master); /* or in place */

        printf("%-10s  %lu bytes for a weight, its gradient and its master%s\n", names[i],
               (unsigned long)(memopt_type_bytes(p->weights) + memopt_type_bytes(p->gradients) + master),
               p->loss_scaling ? ", with loss scaling" : "");
    }
}

int main(void) {
    static const uint64_t tokens[MICRO_BATCHES] = { 20, 7, 13 };
    static float weights[WEIGHTS], target[WEIGHTS], sums_memory[WEIGHTS];
    static uint16_t gradients_memory[WEIGHTS];
    static unsigned char scratch[256], object[1 << 15];
    memopt_gradient sum = { 0 }, gradient = { 0 };
    memopt_gradients sums = { 0 }, gradients = { 0 };
    memopt_gradient_total total = { 0 };
    memopt_scaler scaler;
    memopt_optim_tensor tensor = { 0 };
    memopt_optim_desc desc = { 0 };
    memopt_optim *optim = NULL;
    memopt_precision policy = memopt_precision_f16();
    const char *reason = NULL;
    memopt_optim_run run = { 0 };
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    const double max_norm = 1.0;
    double mean = 1, clip, loss = 0, first = 0;
    uint32_t random = 1;
    size_t i;
    int step, skipped = 0;

    print_policies();
    policy.weights = policy.master; /* forward and backward read the fp32 weights themselves */
    if (memopt_precision_check(&policy, &reason)) return fail(reason);
    for (i = 0; i < WEIGHTS; ++i) target[i] = 3 * noise(&random);
    sum.values = sums_memory;
    sum.count = WEIGHTS;
    sum.type = policy.reduction;
    gradient.values = gradients_memory;
    gradient.count = WEIGHTS;
    gradient.type = policy.gradients;
    sums.tensors = &sum;
    sums.count = 1;
    sums.scratch = aligned(scratch);
    sums.scratch_bytes = sizeof scratch - 64;
    gradients.tensors = &gradient;
    gradients.count = 1;
    tensor.weights = weights;
    tensor.gradients = sums_memory;
    tensor.count = WEIGHTS;
    desc.kind = MEMOPT_OPTIM_ADAMW;
    desc.tensors = &tensor;
    desc.tensor_count = 1;
    desc.place_states = 1;
    if (memopt_optim_create(&desc, aligned(object), sizeof object - 64, &optim) || memopt_scaler_default(&scaler))
        return 1;
    scaler.growth_interval = 100;
    group.rate = 0.05;
    run.groups = &group;
    run.group_count = 1;
    run.step = 1;

    for (step = 0; step < STEPS; ++step) {
        memopt_accumulation accumulation = { 0 };

        for (i = 0, loss = 0; i < MICRO_BATCHES; ++i) {
            memopt_micro_batch batch = { 0 };

            batch.tokens = tokens[i];
            loss += micro_batch(gradients_memory, weights, target, (size_t)tokens[i], scaler.scale, &random);
            if (memopt_gradients_accumulate(&sums, &gradients, &batch, &accumulation, NULL)) return 1;
        }
        /* README: mixed */
        if (memopt_scaler_measure(&scaler, &sums, &total, NULL)) return 1;
        if (!total.overflow) { /* several ranks: of any of them */
            if (memopt_accumulation_mean(&accumulation, &mean)
                || memopt_clip_norm(sqrt(total.squares) * total.factor * mean, max_norm, &clip))
                return 1;
            run.gradient_factor = total.factor * mean * clip; /* unscaled, averaged, clipped: in the step's own pass */
            if (memopt_optim_step(optim, &run)) return fail(why(memopt_optim_error(optim)));
            ++run.step;
        }
        if (memopt_scaler_update(&scaler, total.overflow)) return fail("the loss is broken: no scale helps");
        /* README: end */
        loss /= (double)accumulation.tokens;
        if (step == 0) first = loss;
        skipped += total.overflow;
        if (step < 6 || step % 50 == 0 || step == STEPS - 1)
            printf("step %3d  loss %8.4f  scale %6.0f%s\n", step, loss, (double)scaler.scale,
                   total.overflow ? "  skipped" : "");
    }
    printf("%d of %d steps were skipped\n", skipped, STEPS);
    /* For an optimizer of your own the last sums once more, in passes that write: unscaled, averaged, cut off. */
    if (memopt_scaler_unscale(&scaler, &sums, &total, NULL)) return 1;
    if (!total.overflow
        && (memopt_gradients_scale(&sums, mean, &total, NULL) || memopt_gradients_clip_value(&sums, 0.5f, NULL)
            || memopt_gradients_measure(&sums, &total, NULL)))
        return 1;
    printf("norm of the last gradients: %.4f\n", sqrt(total.squares));
    if (memopt_scaler_cancel(&scaler)) return 1; /* no step was taken: the scale stays */
    return loss < first / 100 && skipped > 0 && skipped < STEPS / 4 ? 0 : 1;
}
