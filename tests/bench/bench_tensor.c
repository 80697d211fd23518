/* bench_tensor.c - what a model that is cut by width costs: a pass of four blocks and a head of GPT-2 124M's width, in parts on
   one rank, and on two ranks, which are threads. The limit is the pass of block.h with as many workers in all, taken in turn.
       bench_tensor [--json] [rows]     rows: a multiple of 1024; default 1024
   Needs -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "examples/parts/tensor.h"
#include "bench.h"

enum { LAYERS = 4, MOST_RANKS = 2, PASSES = 5, VOCABULARY = 8192 };
typedef struct model {
    transformer         shape;
    transformer_cut     cut;
    transformer_part    embedding;
    transformer_block   blocks[LAYERS];
    transformer_head    head;
    transformer_chain   chain;
    memopt_tape_layer   layers[2 * LAYERS + 2];
    memopt_segment      segments[2 * LAYERS + 2];
    memopt_tape        *tape;
    memopt_thread_pool *pool;
    memopt_threads      threads;
    memopt_comm        *comm;
} model;
typedef struct setting { const char *name; size_t heads, parts, ranks; int workers; } setting;
typedef struct run { model ranks[MOST_RANKS]; memopt_ranks *all; setting s; double seconds[PASSES]; } run;
static size_t rows = 1024;
static memopt_type type;
static int32_t *ids;

static void must(memopt_status s, const memopt_error *why) {
    if (!s) return;
    if (why) MEMOPT_ERROR_PRINT(stderr, *why);
    exit(1);
}

static void add(model *m) {
    transformer_chain *c = &m->chain;
    size_t i;

    c->elements = c->tensor_count = c->count = 0;
    if (m->shape.cut) tensor_add_embedding(c, &m->embedding);
    else transformer_add_embedding(c, &m->embedding);
    for (i = 0; i < LAYERS; ++i)
        if (m->shape.cut) tensor_add_block(c, &m->blocks[i]);
        else transformer_add_block(c, &m->blocks[i]);
    if (m->shape.cut) tensor_add_head(c, &m->head, &m->embedding);
    else transformer_add_head(c, &m->head, &m->embedding);
}

static void open_model(model *m, const run *r, size_t rank) {
    memopt_comm_desc link = { 0 };
    memopt_tape_desc d = { 0 };
    memopt_error why = { 0 };
    size_t i;

    must(memopt_thread_pool_create(NULL, r->s.workers, &m->pool), NULL);
    m->threads = memopt_thread_pool_threads(m->pool);
    m->shape.batch = rows / 1024;
    m->shape.length = 1024;
    m->shape.width = 768;
    m->shape.heads = r->s.heads;
    m->shape.vocabulary = VOCABULARY;
    m->shape.type = m->shape.weight_type = type;
    m->shape.ops.threads = &m->threads;
    if (r->s.parts) {
        link.transport = memopt_ranks_transport(r->all, rank);
        must(memopt_comm_create(&link, &m->comm), NULL);
        m->cut.parts = r->s.parts;
        m->cut.rank = rank;
        m->cut.rank_count = r->s.ranks;
        m->cut.comm = m->comm;
        m->shape.cut = &m->cut;
    }
    m->chain.shape = &m->shape;
    add(m);
    m->chain.weights = malloc(m->chain.elements * memopt_type_bytes(type));
    m->chain.gradients = malloc(m->chain.elements * sizeof(float));
    for (i = 0; i < m->chain.elements; ++i) {
        const float x = (float)((i * 2654435761u >> 8) % 2001) * 2e-5f - 0.02f;

        if (type == MEMOPT_TYPE_F32) ((float *)m->chain.weights)[i] = x;
        else ((uint16_t *)m->chain.weights)[i] = memopt_to_bf16(x);
    }
    m->chain.layers = m->layers;
    m->chain.segments = m->segments;
    add(m);
    d.chain.segments = m->segments;
    d.chain.count = m->chain.count;
    d.chain.input_bytes = rows * sizeof *ids;
    d.layers = m->layers;
    d.budget = SIZE_MAX;
    d.error = &why;
    must(memopt_tape_describe(m->layers, m->segments, m->chain.count, &why), &why);
    must(memopt_tape_open(&d, &m->tape), &why);
    m->head.targets = ids;
}

static void *pass(void *user) {
    model *m = (model *)user;
    memopt_status s = memopt_tape_forward(m->tape, ids);
    const memopt_error why = memopt_tape_error(m->tape);

    if (!s) s = memopt_tape_backward(m->tape, NULL, NULL);
    must(s, &why);
    return NULL;
}

static void time_pass(run *r, int k) {
    const uint64_t begin = bench_now();
    pthread_t threads[MOST_RANKS];
    size_t i;

    for (i = 0; i < r->s.ranks; ++i) if (pthread_create(&threads[i], NULL, pass, &r->ranks[i])) exit(1);
    for (i = 0; i < r->s.ranks; ++i) (void)pthread_join(threads[i], NULL);
    r->seconds[k] = 1e-9 * (double)(bench_now() - begin);
}

/* The first of the settings is the limit of all. */
static void compare(const bench *b, const setting *settings, int count) {
    static run runs[4];
    double limit = 0;
    int i, k;

    memset(runs, 0, sizeof runs);
    for (i = 0; i < count; ++i) {
        memopt_ranks_desc d = { 0 };
        size_t r;

        runs[i].s = settings[i];
        d.rank_count = settings[i].ranks;
        must(memopt_ranks_create(&d, &runs[i].all), NULL);
        for (r = 0; r < settings[i].ranks; ++r) open_model(&runs[i].ranks[r], &runs[i], r);
        time_pass(&runs[i], 0); /* memory is touched */
    }
    for (k = 0; k < PASSES; ++k) for (i = 0; i < count; ++i) time_pass(&runs[i], k);
    for (i = 0; i < count; ++i) {
        const double seconds = bench_median(runs[i].seconds, PASSES);
        char name[40];

        snprintf(name, sizeof name, "%s, %s", settings[i].name, type == MEMOPT_TYPE_F32 ? "fp32" : "bf16");
        if (!i) limit = seconds;
        bench_row(b, name, settings[i].workers * (int)settings[i].ranks, rows, 1e3 * seconds, "ms", 1e3 * limit, 0);
    }
    for (i = 0; i < count; ++i) {
        size_t r;

        for (r = 0; r < settings[i].ranks; ++r) {
            model *m = &runs[i].ranks[r];

            memopt_tape_destroy(m->tape);
            memopt_comm_destroy(m->comm);
            memopt_thread_pool_destroy(m->pool);
            free(m->chain.weights);
            free(m->chain.gradients);
        }
        memopt_ranks_destroy(runs[i].all);
    }
}

int main(int argc, char **argv) {
    static const setting alone[4] = { { "block.h", 12, 0, 1, 1 }, { "1 part", 12, 1, 1, 1 }, { "2 parts", 12, 2, 1, 1 },
        { "4 parts", 12, 4, 1, 1 } };
    static const setting eight[2] = { { "block.h, 8 heads", 8, 0, 1, 1 }, { "8 parts", 8, 8, 1, 1 } };
    static const setting two[3] = { { "block.h", 12, 0, 1, 2 }, { "2 parts", 12, 2, 1, 2 }, { "2 parts, 2 ranks", 12, 2, 2, 1 } };
    const bench b = bench_begin(argc, argv, "tensor");
    const char *last = argc > 1 ? argv[argc - 1] : "";
    size_t i;

    if (*last >= '0' && *last <= '9') rows = (size_t)atoi(last);
    if (!rows || rows % 1024) return 1;
    ids = (int32_t *)malloc(rows * sizeof *ids);
    for (i = 0; ids && i < rows; ++i) ids[i] = (int32_t)(i * 7919 % VOCABULARY);
    for (i = 0; ids && i < 2; ++i) {
        type = i ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        compare(&b, alone, 4);
        compare(&b, eight, 2);
        compare(&b, two, 3);
    }
    free(ids);
    return 0;
}
