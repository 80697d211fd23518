/* ranks.c - one network over 1, 2, 3 and 6 ranks, threads of this process here: weights, gradients and states are cut
   among them. And what models would take on many ranks, without them.

   What to see: each rank holds less, the more there are, and all of them end with the same bits. Then a table: nothing
   here has the memory of such models, nor the network; memopt_shard_plan() tells bytes and traffic to the byte all the
   same, and memopt_shard_simulate() walks through a step's calls over links that only count seconds, in a fraction of
   one. The exit status says whether the bits are so. With MPI instead of threads: examples/adapters/mpi.h gives
   another `transport`, and nothing else changes.
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread ranks.c -o ranks -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- the network: layers without bias, one behind the other ---- */
enum { LAYERS = 4, WIDTH = 64, WEIGHTS = WIDTH * WIDTH, ROWS = 16, UNITS = 6, STEPS = 60 };

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* to = from w, or its backward: d_from = d_to w^T and d_w = from^T d_to. */
static void layer(float *to, const float *from, const float *w) {
    for (size_t r = 0; r < ROWS; ++r)
        for (size_t o = 0; o < WIDTH; ++o) {
            float sum = 0;

            for (size_t i = 0; i < WIDTH; ++i) sum += from[r * WIDTH + i] * w[i * WIDTH + o];
            to[r * WIDTH + o] = sum;
        }
}

static void layer_backward(float *d_from, float *d_w, const float *d_to, const float *from, const float *w) {
    for (size_t i = 0; i < WIDTH; ++i)
        for (size_t o = 0; o < WIDTH; ++o) {
            float sum = 0;

            for (size_t r = 0; r < ROWS; ++r) sum += from[r * WIDTH + i] * d_to[r * WIDTH + o];
            d_w[i * WIDTH + o] = sum;
        }
    for (size_t r = 0; r < ROWS; ++r)
        for (size_t i = 0; i < WIDTH; ++i) {
            float sum = 0;

            for (size_t o = 0; o < WIDTH; ++o) sum += d_to[r * WIDTH + o] * w[i * WIDTH + o];
            d_from[r * WIDTH + i] = sum;
        }
}

/* The rows of a unit, whoever computes it; and what its output should be. */
static void rows_of(float *x, float *y, size_t step, size_t unit) {
    uint32_t state = (uint32_t)(step * UNITS + unit + 1);

    for (size_t i = 0; i < ROWS * WIDTH; ++i) x[i] = noise(&state);
    for (size_t i = 0; i < ROWS * WIDTH; ++i) y[i] = 0.5f * x[i] - 0.25f * x[i % WIDTH ? i - 1 : i];
}

/* ---- a rank ---- */
typedef struct task {
    memopt_ranks *ranks;
    float  whole[LAYERS][WEIGHTS]; /* in the end, from all ranks */
    double loss[UNITS];
    memopt_shard_bytes bytes;
    int    failed[UNITS]; /* of each rank */
} task;

/* README: ranks */
static memopt_status one_unit(memopt_shard *shard, task *all, size_t step, size_t unit) {
    static const size_t bytes = ROWS * WIDTH * sizeof(float);
    float x[LAYERS + 1][ROWS * WIDTH], d[2][ROWS * WIDTH];
    memopt_status s = MEMOPT_OK;

    if (unit == MEMOPT_SHARD_NO_UNIT) return memopt_shard_skip_unit(shard); /* nothing to compute in this round */
    rows_of(x[0], d[0], step, unit);
    for (size_t g = 0; !s && g < LAYERS; ++g) {
        s = memopt_shard_forward(shard, g); /* its weights have arrived, those of the next are under way */
        if (!s) layer(x[g + 1], x[g], (const float *)memopt_shard_weights(shard, g));
    }
    all->loss[unit] = 0;
    for (size_t i = 0; i < ROWS * WIDTH; ++i) {
        d[0][i] = x[LAYERS][i] - d[0][i];
        all->loss[unit] += 0.5 * (double)d[0][i] * (double)d[0][i];
    }
    for (size_t g = LAYERS; !s && g-- > 0; ) {
        s = memopt_shard_backward(shard, g); /* and memory for its gradients */
        if (!s) layer_backward(d[1], (float *)memopt_shard_gradients(shard, g), d[0], x[g],
                               (const float *)memopt_shard_weights(shard, g));
        if (!s) s = memopt_shard_reduce(shard, g); /* its gradients leave */
        memcpy(d[0], d[1], bytes);
    }
    return s;
}
/* README: end */

/* Each rank writes its part of the first weights. */
static memopt_status begin_weights(memopt_shard *shard) {
    for (size_t g = 0; g < LAYERS; ++g) {
        uint32_t state = (uint32_t)g + 99;
        memopt_optim_tensor part;

        if (memopt_shard_part(shard, g, &part)) return MEMOPT_ERR_ARGUMENT;
        for (size_t i = 0; i < WEIGHTS; ++i) {
            const float w = 0.125f * noise(&state);

            if (i >= part.first && i < part.first + part.held) ((float *)part.weights)[i - part.first] = w;
        }
    }
    return memopt_shard_share(shard);
}

static memopt_status train(memopt_shard *shard, task *all) {
    memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_status s = begin_weights(shard);

    rates.rate = 3e-3;
    /* README: ranks_step */
    for (size_t step = 0; !s && step < STEPS; ++step) {
        memopt_optim_run run = { 0 };
        memopt_gradient_total total;
        double clip;
        size_t unit;

        while (!(s = memopt_shard_next_unit(shard, &unit)) && unit != MEMOPT_SHARD_DONE && !s)
            if ((s = one_unit(shard, all, step, unit)) != MEMOPT_OK) return s;
        if (!s) s = memopt_shard_measure(shard, NULL, &total); /* the norm of all, the same on every rank */
        if (s || (s = memopt_clip_norm(sqrt(total.squares) / (UNITS * ROWS), 1, &clip)) != MEMOPT_OK) return s;
        run.step = step + 1;
        run.groups = &rates;
        run.group_count = 1;
        run.gradient_factor = clip / (UNITS * ROWS);
        s = memopt_shard_step(shard, &run);
    }
    /* README: end */
    return s;
}

/* Did another rank fail first? It says why, and this one says nothing. */
static int another_failed(const memopt_comm *comm, size_t rank) {
    const memopt_error e = memopt_comm_error(comm);

    return e.place && e.index != rank; /* "call 17 at rank 3, has given up" */
}

static void rank(void *user, size_t index, int worker) {
    task *all = (task *)user;
    memopt_shard_tensor tensors[LAYERS] = { { 0, 0, 0, 0, 0, 0 } };
    memopt_comm_desc link = { 0 };
    memopt_shard_desc desc = { 0 };
    memopt_shard *shard = NULL;
    memopt_shard_bytes bytes;
    memopt_optim_tensor part;
    memopt_error why = { 0 };
    memopt_status s;

    (void)worker;
    /* README: ranks_open */
    link.transport = memopt_ranks_transport(all->ranks, index); /* threads; memopt_mpi_open() fills in another one */
    for (size_t g = 0; g < LAYERS; ++g) {
        tensors[g].count = WEIGHTS;
        tensors[g].group = g;
    }
    desc.stage = 3;
    desc.units = UNITS;
    desc.tensors = tensors;
    desc.tensor_count = LAYERS;
    desc.optim.state = MEMOPT_STATE_8BIT; /* kind, formats, seed: as for memopt_optim_open() */
    desc.error = link.error = &why;
    s = memopt_comm_create(&link, &desc.comm);
    if (!s) s = memopt_shard_open(&desc, NULL, &shard);
    /* README: end */
    if (!s) s = memopt_shard_plan(&desc, &bytes);
    if (!s) {
        if (index == 0) all->bytes = bytes;
        s = train(shard, all);
        if (s) why = memopt_shard_error(shard);
        if (s && !why.status) { /* it was not the shard that refused */
            why.status = s;
            why.reason = "the norm of the gradients is not finite";
        }
    }
    if (s) {
        all->failed[index] = 1;
        if (!another_failed(desc.comm, index)) MEMOPT_ERROR_PRINT(stderr, why);
        link.transport.abort_fn(link.transport.user); /* as memopt_comm_abort(), also without a comm: nobody waits */
    }
    for (size_t g = 0; shard && g < LAYERS; ++g)
        if (!memopt_shard_part(shard, g, &part) && part.held)
            memcpy(&all->whole[g][part.first], part.weights, part.held * sizeof(float));
    memopt_shard_close(shard);
    memopt_comm_destroy(desc.comm);
}

/* Trains over `count` ranks; 1: there are no threads. */
static int train_over(size_t count, task *t) {
    memopt_ranks_desc desc = { 0 };
    memopt_thread_pool *pool = NULL;
    memopt_threads threads;

    desc.rank_count = count;
    if (memopt_ranks_create(&desc, &t->ranks) || memopt_thread_pool_create(NULL, (int)count, &pool)) return 1;
    threads = memopt_thread_pool_threads(pool);
    threads.run_fn(threads.user, count, rank, t); /* a thread each */
    memopt_thread_pool_destroy(pool);
    memopt_ranks_destroy(t->ranks);
    return 0;
}

/* ---- what would be, on many ranks ---- */
enum { MOST_LAYERS = 500, TOKENS = 4096 /* of a rank, a step */ };

typedef struct format {
    const char *name;
    memopt_type weights, gradients;
    memopt_optim_extra extra;
    memopt_state_format state;
} format;

static const format formats[4] = {
    { "fp32", MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE, MEMOPT_STATE_F32 },
    { "bf16, fp32 master", MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_COPY, MEMOPT_STATE_F32 },
    { "bf16 split, 8-bit Adam", MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_SPLIT, MEMOPT_STATE_8BIT },
    { "bf16, 8-bit Adam", MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_NONE, MEMOPT_STATE_8BIT }
};

/* A network of 50 GB/s a rank; half of 400 Tflop/s are reached. */
static memopt_status step_seconds(const memopt_shard_desc *desc, size_t layer_weights, memopt_shard_seconds *seconds) {
    static double uses[2 * MOST_LAYERS]; /* each layer's forward, then each layer's backward */
    const double layers = (double)desc->tensor_count;
    memopt_shard_machine machine = { 0 };

    machine.comm.latency = 2e-5;
    machine.comm.bandwidth = 50e9;
    for (size_t i = 0; i < 2 * desc->tensor_count; ++i)
        uses[i] = (i < desc->tensor_count ? 2.0 : 4.0) * (double)layer_weights * TOKENS / 200e12;
    machine.uses = uses;
    machine.step = 20.0 * (double)layer_weights * layers / (double)desc->rank_count / 1e12; /* its bytes */
    return memopt_shard_simulate(desc, &machine, seconds);
}

/* A line: GB of a rank in each stage without what two layers and a bucket take, and stage 3's step. */
static int tell(const char *name, size_t layer_weights, size_t layers, size_t ranks, const format *f) {
    static memopt_shard_tensor tensors[MOST_LAYERS];
    memopt_shard_desc desc = { 0 };
    memopt_shard_bytes bytes = { 0 };
    memopt_shard_seconds seconds = { 0 };
    memopt_error why = { 0 };
    memopt_status s = MEMOPT_OK;

    for (size_t i = 0; i < layers; ++i) {
        tensors[i].count = layer_weights;
        tensors[i].group = i;
    }
    desc.tensors = tensors;
    desc.tensor_count = layers;
    desc.rank_count = ranks;
    desc.gradients = f->gradients;
    desc.optim.weights = f->weights;
    desc.optim.extra = f->extra;
    desc.optim.state = f->state;
    desc.optim.gradients = f->gradients;
    desc.error = &why;
    printf("%-16s %-23s", name, f->name);
    for (desc.stage = 0; !s && desc.stage < 4; ++desc.stage) {
        s = memopt_shard_plan(&desc, &bytes);
        if (!s) printf(" %9.2f", (double)(bytes.weights + bytes.extra + bytes.states + bytes.sums
                                          + (desc.stage < 2 ? bytes.gradients : 0)) / 1e9);
    }
    desc.stage = 3;
    if (!s) s = step_seconds(&desc, layer_weights, &seconds);
    if (s) {
        fprintf(stderr, "%s: ", name);
        MEMOPT_ERROR_PRINT(stderr, why);
        return 1;
    }
    printf("  %8.2f %9.1f %8.2f %8.2f %8.2f\n", (double)bytes.total / 1e9,
           (double)(bytes.sent_gradients + bytes.sent_weights) / 1e9, seconds.total, seconds.communication,
           seconds.exposed);
    return 0;
}

static int plan_many_ranks(void) {
    int wrong = 0;
    double took = (double)clock();

    printf("\n%-40s %39s   stage 3, with two layers and a bucket:\n", "", "GB a rank, by stage:");
    printf("%-40s %9s %9s %9s %9s  %8s %9s %8s %8s %8s\n", "", "0", "1", "2", "3", "GB", "GB sent", "seconds", "network",
           "exposed");
    for (int i = 0; i < 4; ++i) wrong |= tell("7.5B, 64 ranks", 75000000, 100, 64, &formats[i]);
    for (int i = 0; i < 4; ++i) wrong |= tell("1T, 1024 ranks", 2000000000, MOST_LAYERS, 1024, &formats[i]);
    took = ((double)clock() - took) / CLOCKS_PER_SEC;
    printf("planned and simulated in %.2f s\n", took);
    return wrong;
}

int main(void) {
    static const size_t counts[4] = { 1, 2, 3, 6 };
    static task tasks[4];
    int same = 1;

    printf("ranks   bytes a rank    sent a step     loss   the same bits\n");
    for (int i = 0; i < 4; ++i) {
        task *t = &tasks[i];
        double loss = 0;

        if (train_over(counts[i], t)) {
            fprintf(stderr, "ranks as threads need -DMEMOPT_PTHREADS -pthread\n");
            return 77;
        }
        for (size_t u = 0; u < UNITS; ++u) loss += t->loss[u] / (UNITS * ROWS);
        for (size_t r = 0; r < counts[i]; ++r) same &= !t->failed[r];
        same &= !memcmp(t->whole, tasks[0].whole, sizeof t->whole);
        printf("%5u %14llu %14llu %8.4f   %s\n", (unsigned)counts[i], (unsigned long long)t->bytes.total,
               (unsigned long long)(t->bytes.sent_gradients + t->bytes.sent_weights), loss, same ? "yes" : "NO");
    }
    if (SIZE_MAX <= 0xffffffffu) return !same; /* such models need a size_t of 64 bits */
    return plan_many_ranks() || !same;
}
