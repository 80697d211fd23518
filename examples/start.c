/* start.c - the shortest whole program: a model in an arena, stepped by 8-bit AdamW, and a table of who holds what.

   The model is a line of a million numbers that shall become another line; your forward and backward take its place.
   Build: cc -O2 -fopenmp start.c -o start -lm      (memopt.h beside it or with -I; without -fopenmp one thread steps) */
#define MEMOPT_STATIC         /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION /* in exactly one file of a program; everywhere else plainly #include "memopt.h" */
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1 << 20, STEPS = 200 };

static int failed(memopt_error why) { /* "the arena is full: asked 4.0 MiB, free 1.0 MiB, ..." */
    MEMOPT_ERROR_PRINT(stderr, why);
    return 1;
}

/* Stands for your network: the loss, a mean of squares, and the gradient of each weight. */
static double forward_backward(float *gradients, const float *weights) {
    double loss = 0;
    size_t i;

    for (i = 0; i < COUNT; ++i) {
        const double error = (double)weights[i] - sin(0.001 * (double)i);

        loss += error * error / COUNT;
        gradients[i] = (float)(2 * error);
    }
    return loss;
}

int main(void) {
    memopt_ledger *ledger;                /* who holds what */
    memopt_source pages;                  /* where bytes come from: pages of the system */
    memopt_arena_desc room = { 0 };
    memopt_arena *arena;
    memopt_threads cores = { 0 };
    float *weights, *gradients;
    memopt_optim_tensor tensor = { 0 };   /* your model has many */
    memopt_optim_desc desc = { 0 };
    memopt_optim *optim;
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run = { 0 };
    memopt_error why;
    double first = 0, loss = 0;
    char table[4096];
    int step;

    if (memopt_ledger_create(NULL, &ledger) || memopt_source_pages(NULL, &pages)) return 1;
    room.source = &pages;
    room.ledger = ledger;
    room.capacity = (size_t)1 << 30;      /* addresses; memory is taken as it is reached */
    room.error = &why;
    if (memopt_arena_create(&room, &arena)) return failed(why);

    weights = MEMOPT_PUSH(arena, float, COUNT, MEMOPT_TAG_PARAMETERS);
    gradients = MEMOPT_PUSH(arena, float, COUNT, MEMOPT_TAG_GRADIENTS);
    if (!weights || !gradients) return failed(memopt_arena_error(arena));
    memset(weights, 0, COUNT * sizeof(float));

    tensor.count = COUNT;
    tensor.weights = weights;
    tensor.gradients = gradients;
    desc.kind = MEMOPT_OPTIM_ADAMW;
    desc.state = MEMOPT_STATE_8BIT;       /* 2.03 bytes a weight in the place of 8 */
    desc.tensors = &tensor;
    desc.tensor_count = 1;
    desc.threads = memopt_threads_openmp(0, &cores) ? NULL : &cores; /* all cores with -fopenmp; else one */
    desc.error = &why;
    if (memopt_optim_open(&desc, arena, &optim)) return failed(why);

    group.rate = 0.01;
    run.groups = &group;
    run.group_count = 1;
    for (step = 1; step <= STEPS; ++step) {
        loss = forward_backward(gradients, weights);
        if (step == 1) first = loss;
        run.step = (uint64_t)step;
        if (memopt_optim_step(optim, &run)) return failed(memopt_optim_error(optim));
    }
    printf("loss %.4f at first, %.6f after %d steps\n\n", first, loss, STEPS);
    if (memopt_ledger_report(ledger, table, sizeof table, NULL) == MEMOPT_OK) fputs(table, stdout);
    memopt_arena_destroy(arena);
    memopt_ledger_destroy(ledger);
    return loss < 0.001 ? 0 : 1;
}
