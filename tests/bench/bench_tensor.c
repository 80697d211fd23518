/* bench_tensor.c - what a model that is cut by width costs: a pass of some blocks and the head of GPT-2 124M, in parts on
   one rank beside block.h, and on several ranks beside one with as many workers. Ranks are threads.
       bench_tensor [layers] [rows] [bf16]
   The limit of both is the product of block.h: each line is a ratio to it, of the medians of passes taken in turn.
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread -I. tests/bench/bench_tensor.c -o build/bench_tensor -lm */
#define MEMOPT_STATIC
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "examples/parts/tensor.h"

enum { MOST_LAYERS = 12, MOST_RANKS = 4, PASSES = 5 };
typedef struct model {
    transformer         shape;
    transformer_cut     cut;
    transformer_part    embedding;
    transformer_block   blocks[MOST_LAYERS];
    transformer_head    head;
    transformer_chain   chain;
    memopt_tape_layer   layers[2 * MOST_LAYERS + 2];
    memopt_segment      segments[2 * MOST_LAYERS + 2];
    memopt_tape        *tape;
    memopt_thread_pool *pool;
    memopt_threads      threads;
    memopt_comm        *comm;
} model;
typedef struct setting { const char *name; size_t heads, parts, ranks; int workers; } setting;
typedef struct run { model ranks[MOST_RANKS]; memopt_ranks *all; setting s; double seconds[PASSES]; } run;
static size_t layers = 2, rows = 4096;
static memopt_type type = MEMOPT_TYPE_F32;
static int32_t *ids;

static double now(void) {
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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
    for (i = 0; i < layers; ++i)
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
    m->shape.vocabulary = 50257;
    m->shape.padded = 50304;
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
    const double begin = now();
    pthread_t threads[MOST_RANKS];
    size_t i;

    for (i = 0; i < r->s.ranks; ++i) if (pthread_create(&threads[i], NULL, pass, &r->ranks[i])) exit(1);
    for (i = 0; i < r->s.ranks; ++i) (void)pthread_join(threads[i], NULL);
    r->seconds[k] = now() - begin;
}

static int by_size(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void compare(const char *title, const setting *settings, int count) {
    static run runs[4];
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
    printf("%s\n", title);
    for (i = 0; i < count; ++i) {
        qsort(runs[i].seconds, PASSES, sizeof(double), by_size);
        printf("    %-34s %8.3f s  %5.3f\n", settings[i].name, runs[i].seconds[PASSES / 2],
               runs[i].seconds[PASSES / 2] / runs[0].seconds[PASSES / 2]);
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
    static const setting eight[2] = { { "1 part", 8, 1, 1, 1 }, { "8 parts", 8, 8, 1, 1 } };
    static const setting two[3] = { { "block.h, 2 workers", 12, 0, 1, 2 }, { "2 parts, 2 workers", 12, 2, 1, 2 },
        { "2 parts, 2 ranks of 1 worker", 12, 2, 2, 1 } };
    size_t i;

    if (argc > 1) layers = (size_t)atoi(argv[1]);
    if (argc > 2) rows = (size_t)atoi(argv[2]);
    if (argc > 3) type = MEMOPT_TYPE_BF16;
    if (!layers || layers > MOST_LAYERS || !rows || rows % 1024) return 1;
    ids = (int32_t *)malloc(rows * sizeof *ids);
    for (i = 0; ids && i < rows; ++i) ids[i] = (int32_t)(i * 7919 % 50257);
    if (!ids) return 1;
    printf("%u layers of GPT-2 124M and its head, %u rows, %s\n", (unsigned)layers, (unsigned)rows,
           type == MEMOPT_TYPE_F32 ? "fp32" : "bf16");
    compare("parts on one rank", alone, 4);
    compare("8 parts, of 8 heads of 96 columns", eight, 2);
    compare("two ranks beside two workers", two, 3);
    return 0;
}
