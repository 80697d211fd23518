/* onebit.c - 1-bit Adam, 1-bit LAMB and 0/1 Adam on four ranks, threads of this process: what they send, and the loss.

   What to see: after a warm-up that sends gradients whole, a step sends a bit an element; the loss goes where Adam's
   goes, and all ranks hold the same weights. Half way each run is saved, thrown away and goes on from its states.
   The exit status says whether all of it is so. With MPI instead of threads: examples/adapters/mpi.h.
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread onebit.c -o onebit -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, WIDTH = 64, WEIGHTS = WIDTH * WIDTH, ROWS = 16, STEPS = 1000, WARMUP = 200 };

typedef struct method {
    const char        *name;
    memopt_onebit_kind kind;
    uint64_t           freeze_step; /* STEPS: the warm-up lasts for ever, which is plain Adam */
    double             rate;
} method;

static const method methods[4] = {
    { "Adam", MEMOPT_ONEBIT_ADAM, STEPS, 5e-3 },
    { "1-bit Adam", MEMOPT_ONEBIT_ADAM, WARMUP, 5e-3 },
    { "1-bit LAMB", MEMOPT_ONEBIT_LAMB, WARMUP, 3e-2 },
    { "0/1 Adam", MEMOPT_ONEBIT_ZERO_ONE, WARMUP, 5e-3 }
};

typedef struct task { /* of all ranks */
    const method       *m;
    memopt_ranks       *ranks;
    float               weights[RANKS][WEIGHTS];
    double              losses[RANKS][RANKS]; /* a row a rank: a gather may still write when a step has failed */
    double              loss;
    memopt_onebit_sizes sizes;
    memopt_onebit_stats stats, before; /* at the end; before the save */
    uint64_t            sent;
    int                 failed[RANKS];
} task;

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* The loss of this rank's rows, and the gradient of y = x w: every rank has other rows. */
static double forward_backward(float *gradient, const float *w, size_t step, size_t rank) {
    uint32_t state = (uint32_t)(step * RANKS + rank + 1);
    float x[WIDTH];
    double loss = 0;

    memset(gradient, 0, WEIGHTS * sizeof *gradient);
    for (size_t r = 0; r < ROWS; ++r) {
        for (size_t i = 0; i < WIDTH; ++i) x[i] = noise(&state);
        for (size_t o = 0; o < WIDTH; ++o) {
            float error = 0.25f * x[WIDTH - 1 - o] - 0.5f * x[o] + 0.01f * noise(&state);

            for (size_t i = 0; i < WIDTH; ++i) error += x[i] * w[i * WIDTH + o];
            for (size_t i = 0; i < WIDTH; ++i) gradient[i * WIDTH + o] += error * x[i] / ROWS;
            loss += 0.5 * (double)error * (double)error / ROWS;
        }
    }
    return loss;
}

/* A save and a new beginning: the states of all ranks, as files would hold them; here this rank's is enough. On failure
   *desc->error says why. */
static memopt_status go_on(const memopt_onebit_desc *desc, size_t rank, memopt_onebit **x, void **memory) {
    const void *states[RANKS] = { NULL };
    memopt_onebit_sizes sizes;
    void *saved, *room;
    memopt_status s = memopt_onebit_bytes(desc, &sizes);

    if (s) return s;
    saved = malloc(sizes.state_bytes);
    room = malloc(sizes.bytes + 63); /* of one's own this time, aligned to 64 */
    *memory = room;
    if (saved && room) {
        memcpy(saved, memopt_onebit_state(*x), sizes.state_bytes);
        memopt_onebit_close(*x);
        *x = NULL;
        room = (unsigned char *)room + ((0 - (uintptr_t)room) & 63);
        s = memopt_onebit_create(desc, room, sizes.bytes, x);
        states[rank] = saved; /* with as many ranks as before, only this one is read */
        if (!s) {
            s = memopt_onebit_load(*x, states, sizes.state_bytes, RANKS);
            if (s) *desc->error = memopt_onebit_error(*x);
        }
    } else {
        desc->error->status = s = MEMOPT_ERR_MEMORY;
        desc->error->reason = "no memory for the save";
        desc->error->action = SIZE_MAX; /* none */
    }
    free(saved);
    return s;
}

static memopt_status train(task *t, memopt_comm *comm, size_t rank, memopt_error *why) {
    static float gradients[RANKS][WEIGHTS];
    memopt_onebit_tensor tensor = { 0 };
    memopt_onebit_desc desc = { 0 };
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM);
    memopt_onebit_run run = { 0 };
    memopt_onebit *x = NULL;
    double *losses = t->losses[rank];
    void *memory = NULL;
    memopt_status s;

    tensor.weights = t->weights[rank]; /* zero on all ranks */
    tensor.gradients = gradients[rank];
    tensor.count = WEIGHTS;
    desc.tensors = &tensor;
    desc.tensor_count = 1;
    desc.kind = t->m->kind;
    desc.comm = comm;
    desc.freeze_step = t->m->freeze_step;
    desc.local_double = 40; /* 0/1 Adam: ranks step alone for 2, 4, ... steps; more often than in a real run */
    desc.local_limit = 8;
    desc.error = why;
    run.groups = &group;
    run.group_count = 1;
    group.beta2 = 0.95; /* there is no bias correction: the second moment must settle within the warm-up */
    s = memopt_onebit_open(&desc, NULL, &x);
    for (size_t step = 0; !s && step < STEPS; ++step) {
        const double left = (double)(STEPS - step) / STEPS;
        memopt_comm_call gather = { 0 };
        uint64_t number;

        losses[rank] = forward_backward(gradients[rank], t->weights[rank], step, rank);
        gather.kind = MEMOPT_COMM_ALL_GATHER;
        gather.bytes = sizeof *losses;
        gather.send = &losses[rank];
        gather.receive = losses;
        group.rate = t->m->rate * left * left; /* signs are coarse: the last steps must be short */
        s = memopt_comm_begin(comm, &gather, &number); /* it travels beside the step */
        if (s) *why = memopt_comm_error(comm);
        else if ((s = memopt_onebit_step(x, &run)) != MEMOPT_OK) *why = memopt_onebit_error(x);
        else if ((s = memopt_comm_wait(comm, number)) != MEMOPT_OK) *why = memopt_comm_error(comm);
        if (s) break;
        for (size_t r = 0; rank == 0 && step >= STEPS - 10 && r < RANKS; ++r) t->loss += losses[r] / (10 * RANKS);
        if (step == STEPS / 2) {
            if (rank == 0) t->before = memopt_onebit_get_stats(x);
            s = go_on(&desc, rank, &x, &memory);
        }
    }
    if (rank == 0 && !s) {
        t->stats = memopt_onebit_get_stats(x);
        (void)memopt_onebit_bytes(&desc, &t->sizes);
    }
    memopt_onebit_close(x);
    free(memory);
    return s;
}

/* Did another rank fail first? It says why, and this one says nothing. */
static int another_failed(const memopt_comm *comm, size_t rank) {
    const memopt_error e = memopt_comm_error(comm);

    return e.place && e.index != rank; /* "call 17 at rank 3, has given up" */
}

static void rank(void *user, size_t index, int worker) {
    task *t = (task *)user;
    memopt_comm_desc desc = { 0 };
    memopt_comm *comm = NULL;
    memopt_error why = { 0 };

    (void)worker;
    desc.transport = memopt_ranks_transport(t->ranks, index); /* threads; memopt_mpi_open() fills in another one */
    desc.error = &why;
    if (memopt_comm_create(&desc, &comm) || train(t, comm, index, &why)) {
        t->failed[index] = 1;
        if (!another_failed(comm, index)) MEMOPT_ERROR_PRINT(stderr, why);
        desc.transport.abort_fn(desc.transport.user); /* as memopt_comm_abort(), also without a comm: nobody waits */
    }
    if (index == 0)
        for (int kind = 0; kind < 3; ++kind) t->sent += memopt_comm_get_stats(comm).sent[kind];
    memopt_comm_destroy(comm);
}

int main(void) {
    static task tasks[4];
    int wrong = 0;

    printf("method      exact  1 bit  alone   a step, exact   1 bit   sent in all     loss   ranks\n");
    for (int i = 0; i < 4; ++i) {
        task *t = &tasks[i];
        memopt_ranks_desc desc = { 0 };
        memopt_thread_pool *pool = NULL;
        memopt_threads threads;
        int failed = 0;
        int same;

        t->m = &methods[i];
        desc.rank_count = RANKS;
        if (memopt_ranks_create(&desc, &t->ranks) || memopt_thread_pool_create(NULL, RANKS, &pool)) {
            fprintf(stderr, "ranks as threads need -DMEMOPT_PTHREADS -pthread\n");
            return 77;
        }
        threads = memopt_thread_pool_threads(pool);
        threads.run_fn(threads.user, RANKS, rank, t); /* a thread each */
        memopt_thread_pool_destroy(pool);
        memopt_ranks_destroy(t->ranks);
        for (size_t r = 0; r < RANKS; ++r) failed |= t->failed[r];
        same = t->stats.is_met || t->m->kind == MEMOPT_ONEBIT_ZERO_ONE; /* which may end between two meetings */
        for (size_t r = 1; t->stats.is_met && r < RANKS; ++r)
            same &= !memcmp(t->weights[r], t->weights[0], sizeof t->weights[0]);
        wrong |= failed || !same || !(t->loss < 0.01) || (i && t->sent * 4 > tasks[0].sent); /* it was 6 at first */
        printf("%-10s %6u %6u %6u %15u %7u %13u %8.5f   %s\n", t->m->name,
               (unsigned)(t->before.exact + t->stats.exact), (unsigned)(t->before.compressed + t->stats.compressed),
               (unsigned)(t->before.local + t->stats.local), (unsigned)t->sizes.exact_sent,
               (unsigned)t->sizes.compressed_sent, (unsigned)t->sent, t->loss,
               !same ? "DIFFER" : t->stats.is_met ? "alike" : "apart");
    }
    return wrong;
}
