/* pieces.c - tensor parallelism: ranks that compute with the same activations keep a piece of each, not all of it.

   A layer is x + relu(x A) B; of A each rank has some columns, of B the rows that go with them. So the activations x
   are the same on all ranks, and a tape that sends them away keeps a quarter of each on four ranks; when it asks for
   one again, the pieces are gathered. Ranks are threads of this process here.
   What to see: the bytes that a rank keeps, whole and in pieces, and the same gradients. The exit status says so.
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread pieces.c -o pieces -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, LAYERS = 12, ROWS = 32, WIDTH = 64, COUNT = ROWS * WIDTH, PART = 32 }; /* PART: a rank's columns */

typedef struct task { /* of all ranks */
    memopt_ranks *ranks[2]; /* for sums; for pieces, whose calls travel while sums are made */
    int           in_pieces;
    uint32_t      hash[RANKS];
    size_t        kept, peak; /* bytes of rank 0: kept activations; what its tape takes of the arena */
    int           failed[RANKS];
} task;

typedef struct layer { /* of one rank */
    float        a[WIDTH * PART], b[PART * WIDTH];
    float        d_a[WIDTH * PART], d_b[PART * WIDTH];
    memopt_comm *comm;
} layer;

static float noise(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* to[rows][n] (+)= x[rows][k] w[k][n], with strides for transposed operands */
static void multiply(float *to, size_t rows, size_t n, const float *x, size_t x_row, size_t x_k, size_t k,
                     const float *w, size_t w_k, size_t w_n) {
    for (size_t r = 0; r < rows; ++r)
        for (size_t j = 0; j < n; ++j) {
            float sum = 0;

            for (size_t i = 0; i < k; ++i) sum += x[r * x_row + i * x_k] * w[i * w_k + j * w_n];
            to[r * n + j] = sum;
        }
}

/* to = from + what all ranks have in `part`, added in their order */
static memopt_status add_parts(const memopt_tape_call *call, float *to, const float *from, const float *part) {
    memopt_comm *comm = ((const layer *)call->user)->comm;
    float all[RANKS * COUNT];
    memopt_comm_call gather = { 0 };
    memopt_status s;

    gather.kind = MEMOPT_COMM_ALL_GATHER;
    gather.bytes = COUNT * sizeof(float);
    gather.send = part;
    gather.receive = all;
    s = memopt_comm_run(comm, &gather);
    if (s) *call->error = memopt_comm_error(comm);
    for (size_t i = 0; !s && i < COUNT; ++i) {
        to[i] = from[i];
        for (size_t r = 0; r < RANKS; ++r) to[i] += all[r * COUNT + i];
    }
    return s;
}

static memopt_status forward(const memopt_tape_call *call) {
    const layer *l = (const layer *)call->user;
    const float *x = (const float *)call->input;
    float hidden[ROWS * PART], part[COUNT];

    if (call->describing) return MEMOPT_OK; /* it asks what scratch is needed: none */
    multiply(hidden, ROWS, PART, x, WIDTH, 1, WIDTH, l->a, PART, 1);
    for (size_t i = 0; i < ROWS * PART; ++i) hidden[i] = hidden[i] > 0 ? hidden[i] : 0;
    multiply(part, ROWS, WIDTH, hidden, PART, 1, PART, l->b, WIDTH, 1);
    return add_parts(call, (float *)call->output, x, part);
}

static memopt_status backward(const memopt_tape_call *call) {
    layer *l = (layer *)call->user;
    const float *x = (const float *)call->input, *d_y = (const float *)call->grad_output;
    float hidden[ROWS * PART], d_hidden[ROWS * PART], part[COUNT];

    if (call->describing) return MEMOPT_OK;
    multiply(hidden, ROWS, PART, x, WIDTH, 1, WIDTH, l->a, PART, 1);
    multiply(d_hidden, ROWS, PART, d_y, WIDTH, 1, WIDTH, l->b, 1, WIDTH);
    for (size_t i = 0; i < ROWS * PART; ++i) {
        d_hidden[i] = hidden[i] > 0 ? d_hidden[i] : 0;
        hidden[i] = hidden[i] > 0 ? hidden[i] : 0;
    }
    multiply(l->d_b, PART, WIDTH, hidden, 1, PART, ROWS, d_y, WIDTH, 1);
    multiply(l->d_a, WIDTH, PART, x, 1, WIDTH, ROWS, d_hidden, PART, 1);
    multiply(part, ROWS, WIDTH, d_hidden, PART, 1, PART, l->a, 1, PART);
    return add_parts(call, (float *)call->grad_input, d_y, part);
}

/* A pass through all layers. Of activations two are in memory at a time, as they are used; the others are kept. */
static memopt_status pass(task *t, layer *layers, memopt_comm *comm, size_t rank, memopt_error *why) {
    memopt_tape_layer fns[LAYERS];
    memopt_segment segments[LAYERS] = { { 0 } };
    memopt_pieces_desc desc = { 0 };
    memopt_tape_desc d = { 0 };
    memopt_pieces *pieces = NULL;
    memopt_tape *tape = NULL;
    float x[COUNT], ones[COUNT], d_x[COUNT];
    uint32_t state = 7;
    memopt_status s;

    for (size_t g = 0; g < LAYERS; ++g) {
        segments[g].output_bytes = segments[g].grad_bytes = COUNT * sizeof(float);
        segments[g].forward_cost = 100;
        segments[g].backward_cost = 200;
        fns[g].forward_fn = forward;
        fns[g].backward_fn = backward;
        fns[g].user = &layers[g];
    }
    for (size_t i = 0; i < COUNT; ++i) {
        x[i] = noise(&state);
        ones[i] = 1;
    }
    desc.values = LAYERS + 1;
    desc.comm = t->in_pieces ? comm : NULL; /* one rank alone keeps all of it */
    desc.error = d.error = why;
    s = memopt_pieces_create(&desc, &pieces);
    d.chain.segments = segments;
    d.chain.count = LAYERS;
    d.chain.input_bytes = d.chain.input_grad_bytes = COUNT * sizeof(float);
    d.layers = fns;
    d.budget = 6 * COUNT * sizeof(float);
    d.store = memopt_pieces_store(pieces);
    d.offload.slots = MEMOPT_OFFLOAD_UNLIMITED;
    d.offload.write_cost = d.offload.read_cost = 1;
    d.offload.overlap = 1;
    if (!s) s = memopt_tape_open(&d, &tape);
    if (!s) s = memopt_tape_forward(tape, x);
    if (!s) s = memopt_tape_backward(tape, ones, d_x);
    if (s && tape) *why = memopt_tape_error(tape);
    if (s && pieces && memopt_pieces_error(pieces).status) *why = memopt_pieces_error(pieces);
    if (rank == 0) {
        t->kept = memopt_pieces_get_stats(pieces).peak;
        t->peak = memopt_tape_get_stats(tape).peak;
    }
    memopt_tape_destroy(tape);
    memopt_pieces_destroy(pieces);
    for (size_t g = 0; g < LAYERS; ++g) {
        t->hash[rank] = memopt_crc32c(t->hash[rank], layers[g].d_a, sizeof layers[g].d_a);
        t->hash[rank] = memopt_crc32c(t->hash[rank], layers[g].d_b, sizeof layers[g].d_b);
    }
    return s;
}

/* Did another rank fail first? It says why, and this one says nothing. */
static int another_failed(const memopt_comm *comm, size_t rank) {
    const memopt_error e = memopt_comm_error(comm);

    return e.place && e.index != rank; /* "call 17 at rank 3, has given up" */
}

static void rank(void *user, size_t index, int worker) {
    static layer layers[RANKS][LAYERS];
    task *t = (task *)user;
    memopt_comm_desc desc = { 0 };
    memopt_comm *comms[2] = { NULL, NULL };
    memopt_error why = { 0 };
    memopt_status s = MEMOPT_OK;

    (void)worker;
    desc.error = &why;
    for (int i = 0; i < 2 && !s; ++i) {
        desc.transport = memopt_ranks_transport(t->ranks[i], index);
        s = memopt_comm_create(&desc, &comms[i]);
    }
    for (size_t g = 0; g < LAYERS; ++g) {
        uint32_t state = (uint32_t)(g * RANKS + index + 1);

        for (size_t i = 0; i < WIDTH * PART; ++i) layers[index][g].a[i] = 0.1f * noise(&state);
        for (size_t i = 0; i < PART * WIDTH; ++i) layers[index][g].b[i] = 0.1f * noise(&state);
        layers[index][g].comm = comms[0];
    }
    if (!s) s = pass(t, layers[index], comms[1], index, &why);
    if (s) {
        t->failed[index] = 1;
        if (!another_failed(comms[0], index) && !another_failed(comms[1], index)) MEMOPT_ERROR_PRINT(stderr, why);
        for (int i = 0; i < 2; ++i) { /* as memopt_comm_abort(), also without a comm: the others need not wait */
            const memopt_transport transport = memopt_ranks_transport(t->ranks[i], index);

            transport.abort_fn(transport.user);
        }
    }
    memopt_comm_destroy(comms[0]);
    memopt_comm_destroy(comms[1]);
}

int main(void) {
    static task tasks[2];
    int failed = 0;
    int same;

    for (int i = 0; i < 2; ++i) {
        task *t = &tasks[i];
        memopt_ranks_desc desc = { 0 };
        memopt_thread_pool *pool = NULL;
        memopt_threads threads;

        t->in_pieces = i;
        desc.rank_count = RANKS;
        if (memopt_ranks_create(&desc, &t->ranks[0]) || memopt_ranks_create(&desc, &t->ranks[1])
            || memopt_thread_pool_create(NULL, RANKS, &pool)) {
            fprintf(stderr, "ranks as threads need -DMEMOPT_PTHREADS -pthread\n");
            return 77;
        }
        threads = memopt_thread_pool_threads(pool);
        threads.run_fn(threads.user, RANKS, rank, t); /* a thread each */
        memopt_thread_pool_destroy(pool);
        memopt_ranks_destroy(t->ranks[0]);
        memopt_ranks_destroy(t->ranks[1]);
        for (size_t r = 0; r < RANKS; ++r) failed |= t->failed[r];
        printf("%-11s  each rank keeps %6u bytes of activations, and its tape takes %6u\n",
               i ? "in pieces:" : "whole:", (unsigned)t->kept, (unsigned)t->peak);
    }
    same = !memcmp(tasks[0].hash, tasks[1].hash, sizeof tasks[0].hash);
    printf("gradients: %s\n", same ? "the same bits" : "OTHERS");
    return !same || failed || tasks[1].kept * RANKS != tasks[0].kept;
}
