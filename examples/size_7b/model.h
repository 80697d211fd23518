/* model.h - a decoder whose weights and states lie in a store: what size_7b.c trains.

   Groups   Each segment of the tape, the embedding, both halves of each layer and the head, is a group of memopt_shard,
            which brings its weights before a segment uses them and steps them once its gradients are complete.
   Memory   One arena: what the shard holds, then what a pass takes. Over memopt_source_counting() it is only counted.
   Plan     What the tape recomputes decides how often weights are read, and what the shard holds decides what is left
            for the tape: model_plan() goes round until both fit. It is called once more when times are known, which
            then decide what is recomputed. */
#ifndef SEVEN_MODEL_H
#define SEVEN_MODEL_H
#include <stdlib.h>
#include "../parts/block.h"
#include "../parts/embedding.h"
#include "../parts/head.h"

enum { SECTOR = 4096 }; /* where slow weights begin */

typedef struct options {
    size_t layers, width, heads, kv_heads, hidden, vocabulary, context, batch, steps, threads, memory, tile;
    double rate;
    const char *dir;
    int fp32, no_atomic, keep, in_memory, hash, dry_run;
} options;

typedef struct layer_call { /* what a callback is given: the part's own, and where its weights come from */
    memopt_tape_layer layer;
    struct model *model;
} layer_call;

typedef struct model {
    const options *o;
    transformer shape;
    memopt_threads threads;
    transformer_part embedding;
    transformer_block *blocks;
    transformer_head head;
    size_t count, tensor_count;      /* segments, and as many groups; parameters' tensors */
    memopt_optim_tensor *sizes;      /* of the tensors */
    memopt_shard_tensor *tensors;
    memopt_tape_layer *layers, *calls; /* of the parts; through layer_call and the shard */
    layer_call *own;
    memopt_segment *segments;
    memopt_shard_segment *sharded;
    memopt_shard_use *uses;
    size_t use_count;
    size_t *tiles;
    memopt_source source;            /* of the arena */
    memopt_arena *arena;
    memopt_tape *tape;
    memopt_store *store;
    memopt_shard *shard;
    memopt_shard_bytes bytes;
    memopt_store_sizes room;
    size_t arena_bytes, budget;      /* all of it; of the tape */
    int32_t *ids, *targets;
    void (*told_fn)(struct model *); /* NULL, or after every callback */
    size_t told;                     /* callbacks of this step */
    memopt_error error;
    char message[512];
} model;

static int refuse(model *m, const char *format, ...) { /* the first reason counts; returns 1 */
    va_list list;

    va_start(list, format);
    if (!m->message[0]) vsnprintf(m->message, sizeof m->message, format, list);
    va_end(list);
    return 1;
}

static int failed(model *m, const char *what, memopt_status s) { /* a status as a sentence; returns whether it is one */
    char why[256];

    if (!s) return 0;
    if (m->error.status != s || memopt_error_text(&m->error, why, sizeof why, NULL))
        snprintf(why, sizeof why, "%s", memopt_status_text(s));
    return refuse(m, "%s: %s", what, why);
}

static int shard_failed(model *m, const char *what, memopt_status s) {
    if (s && m->shard) m->error = memopt_shard_error(m->shard);
    if (s && m->store && memopt_store_error(m->store).status == s) m->error = memopt_store_error(m->store); /* nearer */
    return failed(m, what, s);
}

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* ---- the parts ---- */
static void model_shape(model *m, const options *o) {
    transformer *t = &m->shape;

    m->o = o;
    t->batch = o->batch;
    t->length = o->context;
    t->width = o->width;
    t->heads = o->heads;
    t->kv_heads = o->kv_heads;
    t->hidden = o->hidden;
    t->vocabulary = o->vocabulary;
    t->rms = t->swiglu = t->rotary = t->no_bias = t->untied = 1;
    t->type = t->weight_type = t->gradient_type = o->fp32 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16;
    t->grain = o->in_memory ? 256 : SECTOR / memopt_type_bytes(t->weight_type);
    t->ops.threads = &m->threads;
    t->ops.error = &m->error;
}

static void model_add_parts(model *m, transformer_chain *chain) {
    size_t i;

    transformer_add_embedding(chain, &m->embedding);
    for (i = 0; i < m->o->layers; ++i) transformer_add_block(chain, &m->blocks[i]);
    transformer_add_head(chain, &m->head, &m->embedding);
}

/* The part's weights and gradients are where the shard has them now. */
static memopt_status model_call(const memopt_tape_call *call) {
    layer_call *own = (layer_call *)call->user;
    model *m = own->model;
    transformer_part *part = (transformer_part *)own->layer.user;
    memopt_tape_call inner = *call;
    memopt_status s;

    inner.user = part;
    part->weights = memopt_shard_weights(m->shard, part->first_tensor);
    part->gradients = memopt_shard_gradients(m->shard, part->first_tensor);
    s = call->is_backward ? own->layer.backward_fn(&inner) : own->layer.forward_fn(&inner);
    ++m->told;
    if (m->told_fn) m->told_fn(m);
    return s;
}

static int model_open_tables(model *m) {
    const size_t count = 2 * m->o->layers + 2, tensors = count * TRANSFORMER_TENSORS_MAX;

    m->blocks = (transformer_block *)calloc(m->o->layers, sizeof *m->blocks);
    m->sizes = (memopt_optim_tensor *)calloc(tensors, sizeof *m->sizes);
    m->tensors = (memopt_shard_tensor *)calloc(tensors, sizeof *m->tensors);
    m->layers = (memopt_tape_layer *)calloc(count, sizeof *m->layers);
    m->calls = (memopt_tape_layer *)calloc(count, sizeof *m->calls);
    m->own = (layer_call *)calloc(count, sizeof *m->own);
    m->segments = (memopt_segment *)calloc(count, sizeof *m->segments);
    m->sharded = (memopt_shard_segment *)calloc(count, sizeof *m->sharded);
    if (m->blocks && m->sizes && m->tensors && m->layers && m->calls && m->own && m->segments && m->sharded) return 0;
    return refuse(m, "There is no memory for the tables of %lu layers.", (unsigned long)m->o->layers);
}

/* Parts, groups, and the sizes of segments; nothing has weights yet. */
static int model_describe(model *m) {
    transformer_chain chain;
    size_t i, t;

    memset(&chain, 0, sizeof chain);
    chain.shape = &m->shape;
    chain.tensors = m->sizes;
    chain.layers = m->layers;
    chain.segments = m->segments;
    chain.weights = chain.gradients = m->sizes; /* never read: gradients have a place, so none is taken of scratch */
    model_add_parts(m, &chain);
    m->count = chain.count;
    m->tensor_count = chain.tensor_count;
    for (i = 0; i < m->count; ++i) {
        const transformer_part *part = (const transformer_part *)m->layers[i].user;

        m->own[i].layer = m->layers[i];
        m->own[i].model = m;
        m->sharded[i].layer.forward_fn = m->sharded[i].layer.backward_fn = model_call;
        m->sharded[i].layer.user = &m->own[i];
        m->sharded[i].group = i;
        for (t = part->first_tensor; t < part->first_tensor + part->tensor_count; ++t) {
            m->tensors[t].count = m->sizes[t].count;
            m->tensors[t].columns = m->sizes[t].columns;
            m->tensors[t].group = i;
        }
    }
    if (failed(m, "The layers", memopt_shard_layers(m->sharded, m->count, m->calls))) return 1;
    return failed(m, "The layers", memopt_tape_describe(m->layers, m->segments, m->count, &m->error));
}

static double model_parameters(const model *m) {
    double sum = 0;
    size_t t;

    for (t = 0; t < m->tensor_count; ++t) sum += (double)m->tensors[t].count;
    return sum;
}

/* ---- what it takes ---- */
static memopt_shard_desc model_shard(model *m) {
    memopt_shard_desc d;

    memset(&d, 0, sizeof d);
    d.stage = 3;
    d.steps_inside = 1;
    if (!m->o->in_memory) d.slow = MEMOPT_SHARD_SLOW_WEIGHTS | MEMOPT_SHARD_SLOW_STATES;
    d.tensors = m->tensors;
    d.tensor_count = m->tensor_count;
    d.uses = m->uses;
    d.use_count = m->use_count;
    d.gradients = m->shape.gradient_type;
    d.optim.kind = MEMOPT_OPTIM_ADAMW;
    d.optim.state = m->o->fp32 ? MEMOPT_STATE_F32 : MEMOPT_STATE_8BIT;
    d.optim.weights = m->shape.weight_type;
    d.optim.gradients = m->shape.gradient_type;
    d.optim.seed = 1;
    d.optim.threads = &m->threads;
    d.tile = m->o->tile;
    d.store = m->store;
    d.error = &m->error;
    return d;
}

static memopt_store_desc model_store(const model *m, const char *path) {
    memopt_store_desc d;

    memset(&d, 0, sizeof d);
    d.tiles = m->bytes.slow_tiles;
    d.each_bytes = m->tiles;
    d.transfers = m->bytes.slow_transfers;
    d.path = path;
    d.aligned = 1;
    d.keep = m->o->keep;
    d.no_atomic = m->o->no_atomic;
    return d;
}

static size_t model_batch_bytes(const model *m) { /* ids, or targets */
    return round_up(transformer_rows(&m->shape) * sizeof(int32_t), 64);
}

/* Of the arena, without the tape. */
static size_t model_held(const model *m) {
    return m->bytes.total - round_up(m->bytes.tables, 64) + 2 * model_batch_bytes(m);
}

static memopt_tape_desc model_tape(model *m) {
    memopt_tape_desc d;

    memset(&d, 0, sizeof d);
    d.chain.segments = m->segments;
    d.chain.count = m->count;
    d.chain.input_bytes = transformer_rows(&m->shape) * sizeof(int32_t);
    d.layers = m->calls;
    d.arena = m->arena;
    d.budget = m->budget;
    d.error = &m->error;
    return d;
}

/* The tape of this budget, and which groups it uses when. */
static int model_open_tape(model *m) {
    const memopt_tape_desc d = model_tape(m);

    if (failed(m, "The plan of a pass", memopt_tape_create(&d, &m->tape))) return 1;
    free(m->uses);
    m->uses = NULL;
    (void)memopt_shard_tape_uses(m->tape, m->sharded, NULL, &m->use_count);
    m->uses = (memopt_shard_use *)calloc(m->use_count, sizeof *m->uses);
    if (!m->uses) return refuse(m, "There is no memory for the order of the layers.");
    return failed(m, "The order of the layers",
                  memopt_shard_tape_uses(m->tape, m->sharded, m->uses, &m->use_count));
}

static int model_plan_store(model *m) {
    const memopt_shard_desc d = model_shard(m);
    memopt_store_desc s;

    if (m->o->in_memory) return 0;
    free(m->tiles);
    m->tiles = (size_t *)calloc(m->bytes.slow_tiles, sizeof *m->tiles);
    if (!m->tiles)
        return refuse(m, "There is no memory for the tables of %lu tiles.", (unsigned long)m->bytes.slow_tiles);
    if (failed(m, "The tiles", memopt_shard_tiles(&d, m->tiles))) return 1;
    s = model_store(m, "size_7b.tiles");
    s.error = &m->error;
    return failed(m, "The store", memopt_store_bytes(&s, &m->room));
}

/* Bytes beside the arena: tables of the shard and the store, which are taken from malloc. */
static size_t model_beside(const model *m) {
    return m->bytes.tables + m->room.memory;
}

/* A plan within `memory` bytes: m->bytes, room, uses and budget are those of the run. Nothing large is taken. */
static int model_plan(model *m, size_t memory) {
    memopt_arena_desc a;
    size_t held = 0, least = 0;
    int wrong = 0;

    memset(&a, 0, sizeof a);
    a.source = &m->source;
    free(m->uses); /* of a plan before */
    m->uses = NULL;
    m->use_count = 0;
    (void)memopt_source_counting(&m->source);
    if (failed(m, "The plan", memopt_arena_create(&a, &m->arena))) return 1;
    while (!wrong) {
        const memopt_shard_desc d = model_shard(m);
        const memopt_tape_desc t = model_tape(m);

        wrong = failed(m, "The plan", memopt_shard_plan(&d, &m->bytes)) || model_plan_store(m);
        if (wrong) break;
        m->arena_bytes = model_held(m) + round_up(memopt_tape_get_stats(m->tape).peak, 64);
        if (m->tape && m->arena_bytes + model_beside(m) <= memory) break;
        held = held + 64 > model_held(m) + model_beside(m) ? held + 64 : model_held(m) + model_beside(m);
        wrong = failed(m, "The plan of a pass", memopt_tape_min_budget(&t, &least));
        if (!wrong && (memory < held || memory - held < least))
            wrong = refuse(m, "It needs %.4f GB of memory: %.4f GB are allowed, see --memory.",
                           (double)(held + least) / 1e9, (double)memory / 1e9);
        memopt_tape_destroy(m->tape);
        m->tape = NULL;
        m->budget = memory - held;
        wrong = wrong || model_open_tape(m);
    }
    memopt_tape_destroy(m->tape);
    memopt_arena_destroy(m->arena);
    m->tape = NULL;
    m->arena = NULL;
    return wrong;
}

/* ---- the run's own ---- */
static int model_open(model *m, const char *path, int reopen) {
    memopt_arena_desc a;
    memopt_store_desc s = model_store(m, path);
    memopt_shard_desc d;
    memopt_host host;
    size_t i;

    memset(&a, 0, sizeof a);
    memset(&host, 0, sizeof host);
    host.threads = m->threads; /* they make checksums, too */
    s.host = &host;
    a.source = &m->source;
    s.error = &m->error;
    s.reopen = reopen;
    if (!m->o->in_memory && failed(m, path, memopt_store_create(&s, &m->store))) return 1;
    if (failed(m, "The memory", memopt_source_pages(NULL, &m->source))) return 1;
    a.capacity = round_up(m->arena_bytes, m->source.granularity);
    if (failed(m, "The memory", memopt_arena_create(&a, &m->arena))) return 1;
    m->ids = MEMOPT_PUSH(m->arena, int32_t, model_batch_bytes(m) / sizeof(int32_t), MEMOPT_TAG_OTHER);
    m->targets = MEMOPT_PUSH(m->arena, int32_t, model_batch_bytes(m) / sizeof(int32_t), MEMOPT_TAG_OTHER);
    if (!m->ids || !m->targets) return refuse(m, "There is no memory for a batch.");
    if (model_open_tape(m)) return 1;
    m->head.targets = m->targets;
    d = model_shard(m);
    if (failed(m, "The memory", memopt_shard_open(&d, m->arena, &m->shard))) return 1;
    for (i = 0; i < m->count; ++i) m->sharded[i].shard = m->shard;
    return 0;
}

static void model_close(model *m) {
    memopt_tape_destroy(m->tape);
    memopt_shard_close(m->shard);
    memopt_store_destroy(m->store);
    memopt_arena_destroy(m->arena);
    free(m->blocks);
    free(m->sizes);
    free(m->tensors);
    free(m->layers);
    free(m->calls);
    free(m->own);
    free(m->segments);
    free(m->sharded);
    free(m->uses);
    free(m->tiles);
}

/* ---- weights ---- */
enum { PIECE = 65536 }; /* elements that are made at a time */

/* Elements of a tensor from `first` on, the same whatever the slices: matrices are random, vectors are scales. */
static memopt_status initial_weights(const model *m, size_t tensor, size_t first, size_t count, void *to) {
    static float piece[PIECE];
    const size_t bytes = memopt_type_bytes(m->shape.weight_type);
    memopt_status s = MEMOPT_OK;
    size_t at, i, n;

    for (at = 0; !s && at < count; at += n) {
        n = count - at < PIECE ? count - at : (size_t)PIECE;
        if (m->sizes[tensor].columns) s = memopt_random_normal(piece, n, 1, tensor, first + at, &m->threads);
        for (i = 0; i < n; ++i) piece[i] = m->sizes[tensor].columns ? 0.02f * piece[i] : 1;
        if (m->o->fp32) memcpy((float *)to + at, piece, n * bytes);
        else if (!s) s = memopt_bf16_from_f32((uint16_t *)to + at, piece, n, &m->threads);
    }
    return s;
}

static int model_write_weights(model *m) {
    size_t t, at;

    for (t = 0; t < m->tensor_count; ++t)
        for (at = 0; at < m->tensors[t].count;) {
            memopt_optim_tensor slice;

            if (shard_failed(m, "The weights", memopt_shard_bring(m->shard, t, at, &slice))) return 1;
            if (failed(m, "The weights", initial_weights(m, t, at, slice.held, slice.weights))) return 1;
            if (shard_failed(m, "The weights", memopt_shard_put(m->shard))) return 1;
            at = slice.first + slice.held;
        }
    return shard_failed(m, "The weights", memopt_shard_share(m->shard));
}

/* CRC-32C of all weights, tensor by tensor. */
static int model_hash(model *m, uint32_t *crc) {
    const size_t bytes = memopt_type_bytes(m->shape.weight_type);
    size_t t, at;

    for (*crc = 0, t = 0; t < m->tensor_count; ++t)
        for (at = 0; at < m->tensors[t].count;) {
            memopt_optim_tensor slice;

            if (shard_failed(m, "The weights", memopt_shard_bring(m->shard, t, at, &slice))) return 1;
            *crc = memopt_crc32c(*crc, slice.weights, slice.held * bytes);
            at = slice.first + slice.held;
        }
    return 0;
}

/* ---- a step ---- */
/* Something to learn, a function of the step alone: which of two tokens follows which. */
static void model_batch(model *m, size_t step) {
    const size_t rows = transformer_rows(&m->shape), tokens = m->o->vocabulary < 61 ? m->o->vocabulary : 61;
    uint32_t state = (uint32_t)step + 1;
    size_t i, token = step % tokens;

    for (i = 0; i < rows; ++i) {
        m->ids[i] = (int32_t)token;
        state = state * 1664525u + 1013904223u;
        token = (3 * token + 1 + (state >> 31)) % tokens;
        m->targets[i] = (int32_t)token;
    }
}

static int model_step(model *m, size_t step) {
    memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run;
    size_t unit;
    memopt_status s;

    memset(&run, 0, sizeof run);
    rates.rate = m->o->rate;
    run.step = step;
    run.groups = &rates;
    run.group_count = 1;
    run.fused = 1;
    m->told = 0;
    model_batch(m, step);
    s = memopt_shard_step_inside(m->shard, &run);
    if (!s) s = memopt_shard_next_unit(m->shard, &unit);
    if (shard_failed(m, "The step", s)) return 1;
    s = memopt_tape_forward(m->tape, m->ids);
    if (!s) s = memopt_tape_backward(m->tape, NULL, NULL);
    if (s) {
        m->error = memopt_tape_error(m->tape);
        return memopt_shard_error(m->shard).status ? shard_failed(m, "The step", s) : failed(m, "The step", s);
    }
    s = memopt_shard_next_unit(m->shard, &unit);
    if (!s) s = memopt_shard_step(m->shard, &run);
    return shard_failed(m, "The step", s);
}
#endif
