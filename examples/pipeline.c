/* pipeline.c - one model over ranks by layers: each has a run of its segments, and micro-batches go through them.

   A small Llama learns to count. Its chain of segments (embedding, two for each block, head) is cut into four stages so
   that the largest takes the least memory; each stage is a rank, here a thread, with the weights, gradients and states
   of its own segments alone. While rank 3 computes with one micro-batch, rank 0 is at work with another (1F1B).
   What to see: what each rank takes, planned beforehand and measured; the share of time in which ranks wait; and the
   bits of one rank. The exit status says so.
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread pipeline.c -o pipeline -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "parts/block.h"
#include "parts/embedding.h"
#include "parts/head.h"
#include "parts/pipeline.h"
#include <stdio.h>

enum { RANKS = 4, BLOCKS = 6, SEGMENTS = 2 * BLOCKS + 2, BATCH = 4, LENGTH = 32, ROWS = BATCH * LENGTH, WORDS = 32,
       MICRO_BATCHES = 8, STEPS = 40, TENSORS = 10 * BLOCKS + 4 };

typedef struct model { /* of a rank: all parts, of which its own have weights */
    transformer         shape;
    transformer_part    embedding;
    transformer_block   blocks[BLOCKS];
    transformer_head    head;
    transformer_chain   chain;
    memopt_optim_tensor tensors[TENSORS];
    memopt_tape_layer   layers[SEGMENTS];
    memopt_segment      segments[SEGMENTS];
    int32_t             ids[MICRO_BATCHES][ROWS], targets[MICRO_BATCHES][ROWS];
    double              loss; /* of the step, on the last rank */
    size_t              last_stage;
} model;

typedef struct run { /* of all ranks */
    size_t          ranks;
    memopt_ranks   *forth[RANKS], *back[RANKS], *all; /* a pair for each two neighbours and direction, by the sender */
    pipeline_stage  stages[RANKS];
    pipeline_bytes  planned[RANKS];
    size_t          measured[RANKS];
    double          first_loss, loss;
    uint32_t        hash[SEGMENTS]; /* of the weights of each segment */
    memopt_status   status[RANKS];
} run;

static void describe(model *m) {
    transformer *t = &m->shape;

    t->batch = BATCH;
    t->length = LENGTH;
    t->width = 32;
    t->heads = 4;
    t->hidden = 96;
    t->vocabulary = WORDS;
    t->rms = t->swiglu = t->rotary = t->no_bias = t->untied = 1;
    t->dropout = 0.05f;
    m->head.rule.count = ROWS * MICRO_BATCHES;
    m->chain.shape = t;
    m->chain.weights = m->chain.gradients = PIPELINE_NOWHERE; /* a rank's own get theirs by pipeline_place() */
    m->chain.tensors = m->tensors;
    m->chain.layers = m->layers;
    m->chain.segments = m->segments;
    transformer_add_embedding(&m->chain, &m->embedding);
    for (size_t i = 0; i < BLOCKS; ++i) transformer_add_block(&m->chain, &m->blocks[i]);
    transformer_add_head(&m->chain, &m->head, &m->embedding);
}

static void fill(float *weights, size_t first, size_t count) { /* by place: whoever holds it */
    for (size_t i = 0; i < count; ++i) {
        uint32_t x = (uint32_t)(first + i) * 2654435761u;

        x = (x ^ x >> 15) * 2246822519u;
        weights[i] = 0.5f * ((float)(x >> 8) / 16777216.0f - 0.5f);
    }
}

/* Weights, gradients and states of some segments. resident() does it in an arena that only counts. */
static memopt_optim *push_stage(model *m, memopt_arena *arena, size_t first, size_t count, int counts) {
    const pipeline_parameters x = pipeline_parameters_of(&m->chain, first, count);
    memopt_optim_tensor tensors[TENSORS];
    float *weights = MEMOPT_PUSH(arena, float, x.count, MEMOPT_TAG_PARAMETERS);
    float *gradients = MEMOPT_PUSH(arena, float, x.count, MEMOPT_TAG_GRADIENTS);
    memopt_optim_desc desc = { 0 };
    memopt_optim *optim = NULL;

    if (!counts) {
        pipeline_place(&m->chain, first, count, weights, gradients);
        fill(weights, x.first, x.count);
    }
    memcpy(tensors, m->tensors + x.first_tensor, x.tensor_count * sizeof *tensors);
    desc.kind = MEMOPT_OPTIM_ADAMW;
    desc.tensors = counts ? tensors : m->tensors + x.first_tensor;
    desc.tensor_count = x.tensor_count;
    (void)memopt_optim_open(&desc, arena, &optim);
    return optim;
}

static size_t resident(void *user, size_t first, size_t count) {
    memopt_arena_desc desc = { 0 };
    memopt_arena *arena = NULL;
    memopt_source counting;
    size_t bytes;

    if (memopt_source_counting(&counting)) return SIZE_MAX;
    desc.source = &counting;
    if (memopt_arena_create(&desc, &arena)) return SIZE_MAX;
    (void)push_stage((model *)user, arena, first, count, 1);
    bytes = memopt_arena_get_stats(arena).peak;
    memopt_arena_destroy(arena);
    return bytes;
}

static memopt_status before(void *user, const pipeline_action *action) {
    model *m = (model *)user;

    if (!action->is_backward) return MEMOPT_OK;
    m->shape.accumulate = action->micro_batch > 0;
    m->head.targets = m->targets[action->micro_batch];
    return MEMOPT_OK;
}

static memopt_status after(void *user, const pipeline_action *action) {
    model *m = (model *)user;

    if (action->is_backward && action->stage == m->last_stage) m->loss += m->head.loss;
    return MEMOPT_OK;
}

static void sample(model *m, size_t step) { /* rows that count up, from anywhere */
    for (size_t b = 0; b < MICRO_BATCHES; ++b)
        for (size_t i = 0; i < ROWS; ++i) {
            m->ids[b][i] = (int32_t)((step * 7 + b * 5 + i / LENGTH * 11 + i % LENGTH) % WORDS);
            m->targets[b][i] = (m->ids[b][i] + 1) % WORDS;
        }
}

static memopt_comm *link_to(memopt_ranks *ranks, size_t rank, int unchecked) {
    memopt_comm_desc desc = { 0 };
    memopt_comm *comm = NULL;

    desc.transport = memopt_ranks_transport(ranks, rank);
    desc.unchecked = unchecked;
    (void)memopt_comm_create(&desc, &comm);
    return comm;
}

static memopt_status train(model *m, run *r, size_t rank, pipeline *p, memopt_optim *optim) {
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run step = { 0 };
    const void *inputs[MICRO_BATCHES];
    memopt_status s = MEMOPT_OK;

    group.rate = 1e-2;
    step.groups = &group;
    step.group_count = 1;
    for (size_t b = 0; b < MICRO_BATCHES; ++b) inputs[b] = m->ids[b];
    for (step.step = 1; step.step <= STEPS && !s; ++step.step) {
        sample(m, (size_t)step.step);
        m->loss = 0;
        s = pipeline_step(p, inputs, (step.step - 1) * MICRO_BATCHES);
        if (!s) s = memopt_optim_step(optim, &step);
        if (rank + 1 < r->ranks) continue;
        if (step.step == 1) r->first_loss = m->loss;
        r->loss = m->loss;
    }
    return s;
}

static void rank(void *user, size_t index, int worker) {
    static model models[RANKS];
    run *r = (run *)user;
    model *m = &models[index];
    pipeline_desc desc = { 0 };
    pipeline_links links = { 0 };
    memopt_arena_desc arena_desc = { 0 };
    memopt_arena *arena = NULL;
    memopt_optim *optim = NULL;
    pipeline_stage stages[RANKS];
    pipeline_bytes bytes[RANKS];
    pipeline *p = NULL;
    memopt_error why = { 0 };
    memopt_status s;

    (void)worker;
    memset(m, 0, sizeof *m);
    describe(m);
    desc.shape.ranks = r->ranks;
    desc.shape.micro_batches = MICRO_BATCHES;
    desc.layers = m->layers;
    desc.segments = m->segments;
    desc.count = m->chain.count;
    desc.input_bytes = sizeof m->ids[0];
    desc.tape.rule = MEMOPT_SCHEDULE_ALL;
    desc.resident_fn = resident;
    desc.before_fn = before;
    desc.after_fn = after;
    desc.user = m;
    desc.error = &why;
    m->last_stage = r->ranks - 1;
    m->shape.accumulate = 1; /* described with what may take more scratch */
    s = memopt_tape_describe(m->layers, m->segments, m->chain.count, &why);
    if (!s) s = pipeline_plan(&desc, stages, bytes); /* on every rank the same */
    if (s) MEMOPT_ERROR_PRINT(stderr, why);
    if (index + 1 < r->ranks) links.out[PIPELINE_ACTIVATIONS] = link_to(r->forth[index], 0, 1);
    if (index) links.in[PIPELINE_ACTIVATIONS] = link_to(r->forth[index - 1], 1, 1);
    if (index) links.out[PIPELINE_GRADIENTS] = link_to(r->back[index], 0, 1);
    if (index + 1 < r->ranks) links.in[PIPELINE_GRADIENTS] = link_to(r->back[index + 1], 1, 1);
    links.all = link_to(r->all, index, 0);
    if (!s) {
        arena_desc.capacity = bytes[index].total;
        s = memopt_arena_create(&arena_desc, &arena);
    }
    if (!s) {
        void *memory;

        r->stages[index] = stages[index];
        r->planned[index] = bytes[index];
        optim = push_stage(m, arena, stages[index].first, stages[index].count, 0);
        memory = memopt_arena_push(arena, bytes[index].pipeline, MEMOPT_TAG_ACTIVATIONS);
        s = pipeline_open(&desc, stages, index, &links, NULL, memory, bytes[index].pipeline, &p);
        if (s) MEMOPT_ERROR_PRINT(stderr, why);
    }
    if (!s) s = train(m, r, index, p, optim);
    if (s && p) MEMOPT_ERROR_PRINT(stderr, pipeline_error(p));
    if (s) pipeline_abort(p);
    for (size_t i = 0; !s && i < stages[index].count; ++i) {
        const memopt_optim_tensor *t = m->tensors;

        for (size_t k = 0; k < m->chain.tensor_count; ++k) { /* those of this segment's part */
            const transformer_part *part = (const transformer_part *)m->layers[stages[index].first + i].user;
            uint32_t *hash = &r->hash[stages[index].first + i];

            if (k < part->first_tensor || k >= part->first_tensor + part->tensor_count) continue;
            *hash = memopt_crc32c(*hash, t[k].weights, t[k].count * sizeof(float));
        }
    }
    r->measured[index] = memopt_arena_get_stats(arena).peak;
    r->status[index] = s;
    pipeline_close(p);
    memopt_arena_destroy(arena);
    for (int kind = 0; kind < PIPELINE_LINK_KINDS; ++kind) {
        memopt_comm_destroy(links.in[kind]);
        memopt_comm_destroy(links.out[kind]);
    }
    memopt_comm_destroy(links.all);
}

static int start(run *r, size_t ranks) { /* 0: done */
    memopt_ranks_desc desc = { 0 };
    memopt_thread_pool *pool = NULL;
    memopt_threads threads;
    int failed = 0;

    r->ranks = desc.rank_count = ranks;
    desc.deadline = UINT64_C(60000000000);
    failed |= memopt_ranks_create(&desc, &r->all) || memopt_thread_pool_create(NULL, (int)ranks, &pool);
    desc.rank_count = 2;
    for (size_t i = 0; i < ranks && !failed; ++i)
        failed |= memopt_ranks_create(&desc, &r->forth[i]) || memopt_ranks_create(&desc, &r->back[i]);
    if (!failed) {
        threads = memopt_thread_pool_threads(pool);
        threads.run_fn(threads.user, ranks, rank, r); /* a thread each */
    }
    memopt_thread_pool_destroy(pool);
    for (size_t i = 0; i < ranks; ++i) {
        memopt_ranks_destroy(r->forth[i]);
        memopt_ranks_destroy(r->back[i]);
        failed |= r->status[i] != MEMOPT_OK;
    }
    memopt_ranks_destroy(r->all);
    return failed;
}

static double bubble(void) {
    static pipeline_action actions[RANKS * 2 * MICRO_BATCHES];
    pipeline_schedule schedule = { 0 };
    pipeline_course course = { 0 };

    schedule.shape.ranks = RANKS;
    schedule.shape.micro_batches = MICRO_BATCHES;
    schedule.actions = actions;
    schedule.sends = PIPELINE_SENDS;
    for (size_t i = 0; i < RANKS; ++i) pipeline_list(&schedule.shape, i, actions + i * pipeline_count(&schedule.shape));
    return pipeline_simulate(&schedule, NULL, &course, NULL) ? 1 : course.waiting;
}

int main(void) {
    static run alone, many;
    int same, exact = 1;

    if (start(&alone, 1) || start(&many, RANKS)) {
        fprintf(stderr, "failed (ranks as threads need -DMEMOPT_PTHREADS -pthread)\n");
        return 77;
    }
    printf("one rank   %2u segments                       %7u bytes, planned %7u\n", (unsigned)alone.stages[0].count,
           (unsigned)alone.measured[0], (unsigned)alone.planned[0].total);
    for (size_t i = 0; i < RANKS; ++i) {
        exact &= many.measured[i] == many.planned[i].total;
        printf("rank %u     %2u segments, %u micro-batches kept, %7u bytes, planned %7u\n", (unsigned)i,
               (unsigned)many.stages[i].count, (unsigned)many.stages[i].under_way, (unsigned)many.measured[i],
               (unsigned)many.planned[i].total);
    }
    same = !memcmp(alone.hash, many.hash, sizeof alone.hash) && alone.loss == many.loss;
    printf("ranks wait %.0f %% of the time, where all actions take the same time\n", 100 * bubble());
    printf("loss %.4f, then %.4f; losses and weights: %s\n", many.first_loss, many.loss,
           same ? "the same bits" : "OTHERS");
    return !same || !exact || alone.measured[0] != alone.planned[0].total || many.loss > many.first_loss / 2;
}
