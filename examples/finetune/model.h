/* model.h - the model that is tuned: its parts over a shard of memopt, weights of a folder, plans within a memory.

   Trained   All weights: each part is a group of memopt_shard, which brings its weights before a segment uses them and
             steps them once its gradients are complete; states, or weights and states, may lie in a store on a disk.
             Or adapters: they are the groups, and the folder's weights are frozen, in bf16, float32 or 8 bits. Frozen
             ones stay in memory, or one part's at a time is read from the files that they came in.
   Memory    One arena: what is held, then what a pass takes. Over memopt_source_counting() it is only counted.
   Plan      What the tape recomputes decides how often weights are read, and what is held decides what is left for the
             tape: model_plan() goes round until both fit. All ranks have the plan of the one that holds most. */
#ifndef FINETUNE_MODEL_H
#define FINETUNE_MODEL_H
#include <time.h>
#include "folder.h"
#include "ranks.h"

#define HUGE_FROM ((size_t)256 << 20) /* bytes of the arena: below, its last huge pages are too much */
#define HUGE_PAGE ((size_t)2 << 20)
enum { SECTOR = 4096 /* where slow weights begin */, GRAIN = 256 };

typedef struct tuning { /* of a run */
    size_t batch, context, units; /* units: batches of a step */
    size_t adapter;        /* rank; 0: all weights are trained */
    double adapter_alpha;
    size_t frozen_bits;    /* with adapters: 8, 16, 32 */
    int    fp32, split;    /* weights: else bf16, rounded stochastically */
    memopt_optim_kind kind;
    memopt_state_format state;
    double rate, decay, clip; /* rate: of this step; clip 0: none */
    uint64_t seed;
} tuning;

typedef struct model_segment { /* what a callback is given: the part's own, and where its weights come from */
    memopt_tape_layer layer;
    struct model *model;
    int    kind;
    size_t number;         /* of its first tensor in the folder */
    size_t frozen_at;      /* bytes, of what is frozen where all of it stays */
} model_segment;

typedef struct model {
    const tuning *o;
    const config *config;
    folder *folder;
    team *team;
    transformer shape;
    memopt_threads threads;
    transformer_part embedding;
    transformer_block *blocks;
    transformer_head head;
    size_t layers, count, front, tensor_count; /* segments: all, and those in front; tensors that are trained */
    memopt_optim_tensor *sizes;
    memopt_shard_tensor *tensors;
    memopt_tape_layer *layer_list, *calls;     /* of the parts; through model_segment and the shard */
    model_segment *own;
    memopt_segment *segments;
    memopt_shard_segment *sharded;
    memopt_shard_use *uses;
    size_t use_count, *tiles;
    double *losses;        /* of a step's units: those of a rank side by side */
    memopt_source source;
    memopt_arena *arena;
    memopt_tape *tape, *front_tape;            /* front_tape: with adapters */
    memopt_store *store;
    memopt_shard *shard;
    memopt_shard_bytes bytes;
    memopt_store_sizes room;
    int    slow;           /* MEMOPT_SHARD_SLOW_... */
    int    frozen_stays;
    size_t frozen_bytes, front_peak, arena_bytes, budget; /* budget: of the tape */
    double overhead;       /* of the plan: what is recomputed, of the time of a pass that keeps everything */
    unsigned char *frozen; /* all of it, or one segment's */
    unsigned char *aside;  /* aside_bytes, for who asked for them before the plan */
    size_t aside_bytes;
    size_t frozen_now;     /* the segment that is there */
    void  *hidden;         /* what leaves the front */
    int32_t *ids, *targets, *positions;
    size_t *starts;
    void (*told_fn)(struct model *, size_t segment, int is_backward); /* NULL, or after every callback */
    void  *told_user;
    size_t runs[KINDS][2]; /* forwards and backwards of the plan */
    size_t planned;        /* bytes that the plan was made for */
    double in_process;     /* what all ranks of this process take, by the plan */
    double process_bytes;  /* and the process with them */
    reason why;
} model;

static int model_failed(model *m, const char *what, memopt_status s) {
    if (s && m->shard && memopt_shard_error(m->shard).status == s) m->why.error = memopt_shard_error(m->shard);
    if (s && m->store && memopt_store_error(m->store).status == s)
        m->why.error = memopt_store_error(m->store); /* nearer */
    return failed(&m->why, what, s);
}

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* ---- the parts ---- */
static void model_shape(model *m, const tuning *o, const config *c, const transformer *shape) {
    transformer *t = &m->shape;
    const int is_bf16 = o->adapter ? o->frozen_bits < 32 : !o->fp32;

    *t = *shape;
    m->o = o;
    m->config = c;
    m->layers = c->layers;
    t->batch = o->batch;
    t->length = o->context;
    t->type = t->weight_type = is_bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    t->gradient_type = o->adapter ? MEMOPT_TYPE_F32 : t->weight_type;
    t->adapter_rank = o->adapter;
    t->adapters_apart = !c->is_gpt2; /* as the matrices in the files */
    t->adapter_scale = o->adapter ? (float)(o->adapter_alpha / (double)o->adapter) : 0;
    t->quantized_block = o->adapter && o->frozen_bits == 8 ? 64 : 0;
    t->quantized_map = MEMOPT_QUANT_SIGNED;
    t->ops.threads = &m->threads;
    t->ops.error = &m->why.error;
}

/* Where slow weights may lie, tensors begin at sectors. */
static void model_set_slow(model *m, int slow) {
    m->slow = slow;
    m->shape.grain = slow & MEMOPT_SHARD_SLOW_WEIGHTS ? SECTOR / memopt_type_bytes(m->shape.weight_type) : GRAIN;
}

/* The head's tensors come behind the embedding's: where it is tied to that, both are one group. */
static void model_add_parts(model *m, transformer_chain *front, transformer_chain *chain) {
    const size_t first = front == chain;
    size_t i;

    transformer_add_embedding(front, &m->embedding);
    chain->count = first + 2 * m->layers;
    transformer_add_head(chain, &m->head, &m->embedding);
    for (chain->count = first, i = 0; i < m->layers; ++i) transformer_add_block(chain, &m->blocks[i]);
    ++chain->count;
}

static transformer_part *model_part(const model *m, size_t segment) {
    return (transformer_part *)m->layer_list[segment].user;
}

static size_t model_rounds(const model *m) { /* of a step, in each of which a rank has a unit or none */
    return (m->o->units + m->team->count - 1) / m->team->count;
}

static int model_open_tables(model *m) {
    const size_t count = 2 * m->layers + 2, tensors = count * 2 * TRANSFORMER_TENSORS_MAX;

    m->losses = (double *)calloc(m->team->count * model_rounds(m), sizeof *m->losses);
    m->blocks = (transformer_block *)calloc(m->layers, sizeof *m->blocks);
    m->sizes = (memopt_optim_tensor *)calloc(tensors, sizeof *m->sizes);
    m->tensors = (memopt_shard_tensor *)calloc(tensors, sizeof *m->tensors);
    m->layer_list = (memopt_tape_layer *)calloc(count, sizeof *m->layer_list);
    m->calls = (memopt_tape_layer *)calloc(count, sizeof *m->calls);
    m->own = (model_segment *)calloc(count, sizeof *m->own);
    m->segments = (memopt_segment *)calloc(count, sizeof *m->segments);
    m->sharded = (memopt_shard_segment *)calloc(count, sizeof *m->sharded);
    if (m->losses && m->blocks && m->sizes && m->tensors && m->layer_list && m->calls && m->own && m->segments
        && m->sharded) return 0;
    return refuse(&m->why, "no memory for the tables of %lu layers", (unsigned long)m->layers);
}

/* ---- frozen weights: of a part, elements, then codes, then their scales ---- */
static transformer_tensors_fn *model_tensors_fn(int kind) {
    return kind == EMBEDDING ? transformer_embedding_tensors : kind == ATTENTION ? transformer_attention_tensors
         : kind == MLP ? transformer_mlp_tensors : transformer_head_tensors;
}

static size_t frozen_codes_at(const transformer *t, const transformer_lists *x) {
    return round_up(x->elements * memopt_type_bytes(t->weight_type), 64);
}

static size_t frozen_scales_at(const transformer *t, const transformer_lists *x) {
    return frozen_codes_at(t, x) + round_up(x->code_elements, 64);
}

static size_t frozen_size(const transformer *t, const transformer_lists *x) {
    const size_t scales = t->quantized_block ? x->code_elements / t->quantized_block : 0;

    return frozen_scales_at(t, x) + round_up(scales * sizeof(float), 64);
}

/* The part's weights are at `to`. */
static void frozen_place(transformer_part *part, const transformer_lists *x, unsigned char *to) {
    part->weights = to;
    part->codes = part->is_coded ? to + frozen_codes_at(part->shape, x) : NULL;
    part->absmax = part->is_coded ? (const float *)(const void *)(to + frozen_scales_at(part->shape, x)) : NULL;
}

/* A matrix to codes, through a strip of its elements. */
static int frozen_quantize(model *m, size_t number, const transformer_tensor *tensor, uint8_t *codes, float *absmax) {
    const transformer *t = &m->shape;
    float *const strip = m->folder->strip;
    size_t at, n;

    for (at = 0; at < tensor->count; at += n) {
        memopt_status s;

        n = tensor->count - at < FOLDER_STRIP ? tensor->count - at : (size_t)FOLDER_STRIP;
        if (folder_move(m->folder, number, at, n, strip, MEMOPT_TYPE_F32, 0)) return 1;
        s = memopt_quantize_f32(codes + at, absmax + at / t->quantized_block, strip, n, t->quantized_map,
                                t->quantized_block, &m->threads);
        if (failed(&m->why, "8-bit weights", s)) return 1;
    }
    return 0;
}

/* All tensors of a part from the folder to where the part has them. */
static int frozen_read(model *m, const transformer_part *part, int kind, size_t number) {
    const size_t bytes = memopt_type_bytes(m->shape.weight_type);
    transformer_lists x;
    size_t i;
    int wrong = 0;

    transformer_list_part(part, model_tensors_fn(kind), &x);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX && !wrong; ++i) {
        const size_t first = x.list[i].first;

        if (!x.list[i].count) continue;
        if (part->is_coded && x.list[i].columns)
            wrong = frozen_quantize(m, number++, &x.list[i], (uint8_t *)(uintptr_t)part->codes + first,
                                    (float *)(uintptr_t)part->absmax + first / m->shape.quantized_block);
        else
            wrong = folder_move(m->folder, number++, 0, x.list[i].count,
                                (unsigned char *)(uintptr_t)part->weights + first * bytes, m->shape.weight_type, 0);
    }
    return wrong;
}

/* What a segment needs, which is the embedding beside a head that is tied to it. */
static size_t frozen_segment_size(const model *m, size_t segment) {
    transformer_lists x;
    size_t bytes;

    transformer_list_part(model_part(m, segment), model_tensors_fn(m->own[segment].kind), &x);
    bytes = frozen_size(&m->shape, &x);
    if (m->own[segment].kind != HEAD || m->shape.untied || m->frozen_stays) return bytes;
    return bytes + frozen_segment_size(m, 0);
}

static int frozen_bring(model *m, size_t segment, unsigned char *to) {
    transformer_part *part = model_part(m, segment);
    const int is_tied_head = m->own[segment].kind == HEAD && !m->shape.untied;
    transformer_lists x;

    transformer_list_part(part, model_tensors_fn(m->own[segment].kind), &x);
    frozen_place(part, &x, to);
    if (frozen_read(m, part, m->own[segment].kind, m->own[segment].number)) return 1;
    return is_tied_head && !m->frozen_stays && frozen_bring(m, 0, to + frozen_size(&m->shape, &x));
}

static int frozen_bring_all(model *m) {
    size_t i;

    for (i = 0; i < m->count; ++i)
        if (frozen_bring(m, i, m->frozen + m->own[i].frozen_at)) return 1;
    return 0;
}

static void frozen_lay_out(model *m, int stays) {
    size_t i;

    m->frozen_stays = stays;
    m->frozen_bytes = 0;
    for (i = 0; m->o->adapter && i < m->count; ++i) {
        const size_t bytes = frozen_segment_size(m, i);

        m->own[i].frozen_at = stays ? m->frozen_bytes : 0;
        if (stays) m->frozen_bytes += bytes;
        else if (bytes > m->frozen_bytes) m->frozen_bytes = bytes;
    }
}

/* ---- segments ---- */
static void model_place(const model *m, transformer_part *part) {
    part->weights = memopt_shard_weights(m->shard, part->first_tensor);
    part->gradients = memopt_shard_gradients(m->shard, part->first_tensor);
}

/* The part's weights and gradients are where they are now. */
static memopt_status model_call(const memopt_tape_call *call) {
    model_segment *own = (model_segment *)call->user;
    model *m = own->model;
    const size_t segment = (size_t)(own - m->own);
    transformer_part *part = (transformer_part *)own->layer.user;
    memopt_tape_call inner = *call;
    memopt_status s;

    inner.user = part;
    if (!m->o->adapter) {
        model_place(m, part);
        if (own->kind == HEAD) model_place(m, &m->embedding); /* whose tokens it may need */
    } else if (part->rank) {
        part->adapters = (const float *)memopt_shard_weights(m->shard, part->first_tensor);
        part->adapter_gradients = memopt_shard_gradients(m->shard, part->first_tensor);
    }
    if (m->o->adapter && !m->frozen_stays && m->frozen_now != segment) {
        m->frozen_now = SIZE_MAX;
        if (frozen_bring(m, segment, m->frozen)) return MEMOPT_ERR_IO;
        m->frozen_now = segment;
    }
    s = call->is_backward ? own->layer.backward_fn(&inner) : own->layer.forward_fn(&inner);
    if (m->told_fn) m->told_fn(m, segment, call->is_backward);
    return s;
}

static int kind_of(const model *m, size_t segment) {
    return !segment ? EMBEDDING : segment + 1 == m->count ? HEAD : segment % 2 ? ATTENTION : MLP;
}

static size_t model_tensors_of(const model *m, int kind) {
    transformer_tensor list[TRANSFORMER_TENSORS_MAX];
    size_t n = 0;
    int i;

    memset(list, 0, sizeof list);
    (void)model_tensors_fn(kind)(&m->shape, list);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) n += list[i].count > 0;
    return n;
}

/* The number of a segment's first tensor in the folder: embedding, head, then the blocks. */
static size_t model_number(const model *m, size_t segment) {
    const size_t head = model_tensors_of(m, EMBEDDING), blocks = head + model_tensors_of(m, HEAD);
    const size_t attention = model_tensors_of(m, ATTENTION), block = attention + model_tensors_of(m, MLP);

    if (!segment || segment + 1 == m->count) return segment ? head : 0;
    return blocks + (segment - 1) / 2 * block + (segment % 2 ? 0 : attention);
}

/* Groups: of all weights both ends, which are one where the head is tied, then the blocks; of adapters the blocks. */
static size_t model_group(const model *m, size_t segment) {
    const size_t ends = m->o->adapter ? 0 : m->shape.untied ? 2 : 1;

    if (!model_part(m, segment)->tensor_count) return MEMOPT_SHARD_NO_GROUP;
    return !segment ? 0 : segment + 1 == m->count ? ends - 1 : segment - 1 + ends;
}

/* What callbacks are given, and what a shard needs to know. */
static void model_describe_segments(model *m) {
    size_t i, t;

    for (i = 0; i < m->count; ++i) {
        const transformer_part *part = model_part(m, i);
        const int kind = kind_of(m, i);

        m->own[i].layer = m->layer_list[i];
        m->own[i].model = m;
        m->own[i].kind = kind;
        m->own[i].number = model_number(m, i);
        m->sharded[i].layer.forward_fn = m->sharded[i].layer.backward_fn = model_call;
        m->sharded[i].layer.user = &m->own[i];
        m->sharded[i].group = model_group(m, i);
        for (t = part->first_tensor; t < part->first_tensor + part->tensor_count; ++t) {
            m->tensors[t].count = m->sizes[t].count;
            m->tensors[t].columns = m->sizes[t].columns;
            m->tensors[t].group = m->sharded[i].group;
            m->tensors[t].adamw = !m->sizes[t].columns || kind == EMBEDDING || kind == HEAD;
            m->tensors[t].rates = (size_t)(m->o->kind == MEMOPT_OPTIM_MUON && m->tensors[t].adamw);
        }
    }
}

/* Parts, groups, and the sizes of segments; nothing has weights yet. */
static int model_describe(model *m) {
    transformer_chain front, chain;

    memset(&front, 0, sizeof front);
    memset(&chain, 0, sizeof chain);
    front.shape = chain.shape = &m->shape;
    front.front = 1;
    m->front = m->o->adapter > 0;
    front.layers = m->layer_list;
    front.segments = m->segments;
    chain.tensors = m->sizes;
    chain.layers = m->layer_list + m->front;
    chain.segments = m->segments + m->front;
    /* never read: gradients have a place, so none is taken of scratch */
    chain.weights = chain.gradients = chain.adapter_gradients = m->sizes;
    model_add_parts(m, m->front ? &front : &chain, &chain);
    m->count = front.count + chain.count;
    m->tensor_count = chain.tensor_count;
    model_describe_segments(m);
    if (failed(&m->why, "the layers", memopt_shard_layers(m->sharded, m->count, m->calls))) return 1;
    return failed(&m->why, "the layers",
                  memopt_tape_describe(m->layer_list, m->segments, m->count, &m->why.error));
}

static double model_parameters(const model *m) { /* that are trained */
    double sum = 0;
    size_t t;

    for (t = 0; t < m->tensor_count; ++t) sum += (double)m->tensors[t].count;
    return sum;
}

/* ---- what it takes ---- */
static int model_steps_inside(const model *m) {
    const memopt_optim_kind k = m->o->kind;
    const int measures = k == MEMOPT_OPTIM_LARS || k == MEMOPT_OPTIM_LAMB || k == MEMOPT_OPTIM_ADAFACTOR
                      || k == MEMOPT_OPTIM_MUON;

    return model_rounds(m) == 1 && !(m->o->clip > 0) && !measures;
}

static memopt_shard_desc model_shard(model *m) {
    memopt_shard_desc d;

    memset(&d, 0, sizeof d);
    d.stage = 3;
    d.steps_inside = model_steps_inside(m);
    d.slow = m->slow;
    d.tensors = m->tensors;
    d.tensor_count = m->tensor_count;
    d.uses = m->uses;
    d.use_count = m->use_count;
    d.units = m->o->units;
    d.gradients = m->shape.gradient_type;
    d.optim.kind = m->o->kind;
    d.optim.state = m->o->state;
    d.optim.weights = m->o->adapter ? MEMOPT_TYPE_F32 : m->shape.weight_type;
    d.optim.extra = !m->o->adapter && m->o->split ? MEMOPT_OPTIM_EXTRA_SPLIT : MEMOPT_OPTIM_EXTRA_NONE;
    d.optim.gradients = m->o->units == 1 ? m->shape.gradient_type : MEMOPT_TYPE_F32;
    d.optim.muon = m->o->kind == MEMOPT_OPTIM_MUON ? memopt_muon_products(MEMOPT_TYPE_BF16) : NULL;
    d.optim.seed = m->o->seed;
    d.optim.threads = &m->threads;
    d.store = m->store;
    d.comm = m->team->comm;
    d.error = &m->why.error;
    return d;
}

/* Does the store alone have all that goes on? Of several ranks some may have a step more than others. */
static int model_is_in_store(const model *m) {
    return m->slow && m->team->count == 1;
}

static memopt_store_desc model_store(const model *m, const char *path) {
    memopt_store_desc d;

    memset(&d, 0, sizeof d);
    d.tiles = m->bytes.slow_tiles;
    d.each_bytes = m->tiles;
    d.transfers = m->bytes.slow_transfers;
    d.path = path;
    d.aligned = 1;
    d.keep = model_is_in_store(m);
    d.no_atomic = !d.keep;
    return d;
}

static size_t model_batch_bytes(const model *m) { /* ids, targets, or positions */
    return round_up(transformer_rows(&m->shape) * sizeof(int32_t), 64);
}

static size_t model_starts_bytes(const model *m) {
    return round_up((transformer_rows(&m->shape) + 1) * sizeof(size_t), 64);
}

static size_t model_hidden_bytes(const model *m) {
    return m->front ? round_up(transformer_bytes(&m->shape, m->shape.width), 64) : 0;
}

/* Of the arena, without the tape. */
static size_t model_held(const model *m) {
    return m->bytes.total - round_up(m->bytes.tables, 64) + 3 * model_batch_bytes(m) + model_starts_bytes(m)
         + model_hidden_bytes(m) + round_up(m->frozen_bytes, 64) + round_up(m->aside_bytes, 64);
}

/* Bytes beside the arena: tables of the shard and the store, which are taken from malloc, and what the last huge page
   of each of its ends has more. */
static size_t model_beside(const model *m) {
    return m->bytes.tables + m->room.memory + (m->arena_bytes < HUGE_FROM ? 0 : 2 * HUGE_PAGE);
}

static memopt_tape_desc model_tape(model *m, int is_front) {
    memopt_tape_desc d;
    const size_t ids = transformer_rows(&m->shape) * sizeof(int32_t);

    memset(&d, 0, sizeof d);
    d.chain.segments = is_front ? m->segments : m->segments + m->front;
    d.chain.count = is_front ? m->front : m->count - m->front;
    d.chain.input_bytes = !is_front && m->front ? transformer_bytes(&m->shape, m->shape.width) : ids;
    d.layers = is_front ? m->calls : m->calls + m->front;
    d.arena = m->arena;
    d.budget = is_front ? SIZE_MAX : m->budget;
    d.seed = m->o->seed;
    d.error = &m->why.error;
    return d;
}

/* How often the plan runs parts of each kind. */
static void model_count_runs(model *m) {
    size_t i, count = 0;
    const memopt_action *actions = memopt_tape_actions(m->tape, &count);

    memset(m->runs, 0, sizeof m->runs);
    m->runs[EMBEDDING][0] = m->front > 0;
    for (i = 0; i < count; ++i)
        if (actions[i].op <= MEMOPT_ACTION_BACKWARD)
            ++m->runs[m->own[m->front + actions[i].index].kind][actions[i].op == MEMOPT_ACTION_BACKWARD];
}

/* The tapes of this budget, and which groups they use when. */
static int model_open_tapes(model *m) {
    memopt_tape_desc d = model_tape(m, 1);

    if (m->front && failed(&m->why, "the plan of a pass", memopt_tape_create(&d, &m->front_tape))) return 1;
    m->front_peak = memopt_tape_get_stats(m->front_tape).evaluate_peak;
    d = model_tape(m, 0);
    if (failed(&m->why, "the plan of a pass", memopt_tape_create(&d, &m->tape))) return 1;
    model_count_runs(m);
    free(m->uses);
    m->uses = NULL;
    (void)memopt_shard_tape_uses(m->tape, m->sharded + m->front, NULL, &m->use_count);
    m->uses = (memopt_shard_use *)calloc(m->use_count, sizeof *m->uses);
    if (!m->uses) return refuse(&m->why, "no memory for the order of the layers");
    return failed(&m->why, "the order of the layers",
                  memopt_shard_tape_uses(m->tape, m->sharded + m->front, m->uses, &m->use_count));
}

static void model_close_tapes(model *m) {
    memopt_tape_destroy(m->tape);
    memopt_tape_destroy(m->front_tape);
    m->tape = m->front_tape = NULL;
}

static int model_plan_store(model *m, const memopt_shard_desc *d) {
    memopt_store_desc s;

    memset(&m->room, 0, sizeof m->room);
    if (!m->slow) return 0;
    free(m->tiles);
    m->tiles = (size_t *)calloc(m->bytes.slow_tiles, sizeof *m->tiles);
    if (!m->tiles) return refuse(&m->why, "no memory for the tables of %lu tiles", (unsigned long)m->bytes.slow_tiles);
    if (failed(&m->why, "the tiles", memopt_shard_tiles(d, m->tiles))) return 1;
    s = model_store(m, "tiles");
    s.error = &m->why.error;
    return failed(&m->why, "the store", memopt_store_bytes(&s, &m->room));
}

static size_t model_pass(const model *m) { /* bytes of the arena */
    const size_t peak = memopt_tape_get_stats(m->tape).peak;

    return round_up(peak > m->front_peak ? peak : m->front_peak, 64);
}

/* Bytes of each rank, this one at last; *most: what the largest holds beside its pass. */
static int model_plan_ranks(model *m, size_t *most) {
    memopt_shard_desc d = model_shard(m);
    size_t i;

    d.comm = NULL;
    d.rank_count = m->team->count;
    for (*most = 0, m->in_process = 0, i = 1; i <= d.rank_count; ++i) {
        size_t held;

        d.rank = (m->team->rank + i) % d.rank_count;
        if (failed(&m->why, "the plan", memopt_shard_plan(&d, &m->bytes)) || model_plan_store(m, &d)) return 1;
        m->arena_bytes = model_held(m) + model_pass(m);
        held = model_held(m) + model_beside(m);
        if (held > *most) *most = held;
        if (m->team->in_process > 1 || i == d.rank_count) m->in_process += (double)(held + model_pass(m));
    }
    return 0;
}

/* One round: 1: it failed; else *fits says whether what is planned is within the memory. */
static int model_plan_round(model *m, size_t memory, size_t *held, size_t *least, int *fits) {
    const memopt_tape_desc t = model_tape(m, 0);
    size_t most;

    *fits = 0;
    if (model_plan_ranks(m, &most)) return 1;
    m->overhead = memopt_tape_get_stats(m->tape).overhead;
    *fits = m->tape && most + model_pass(m) <= memory;
    if (*fits) return 0;
    *held = *held + 64 > most ? *held + 64 : most;
    if (failed(&m->why, "the plan of a pass", memopt_tape_min_budget(&t, least))) return 1;
    if (*least < m->front_peak) *least = m->front_peak;
    if (memory < *held || memory - *held < *least) return 0;
    model_close_tapes(m);
    m->budget = memory - *held;
    return model_open_tapes(m);
}

/* A plan within `memory` bytes of a rank: m->bytes, room, uses and budget are those of the run. Nothing large is taken.
   *least: 0, or it does not fit, and about so much would be needed. */
static int model_plan(model *m, size_t memory, size_t *least) {
    memopt_arena_desc a;
    size_t held = 0, pass = 0;
    int wrong, fits = 0;

    memset(&a, 0, sizeof a);
    a.source = &m->source;
    m->planned = memory;
    *least = 0;
    (void)memopt_source_counting(&m->source);
    wrong = failed(&m->why, "the plan", memopt_arena_create(&a, &m->arena));
    m->budget = SIZE_MAX / 4; /* everything kept: what a shard holds depends on the uses of a plan, so there is one */
    wrong = wrong || model_open_tapes(m);
    while (!wrong && !fits && !*least) {
        wrong = model_plan_round(m, memory, &held, &pass, &fits);
        if (!wrong && !fits && (memory < held || memory - held < pass)) *least = held + pass;
    }
    model_close_tapes(m);
    memopt_arena_destroy(m->arena);
    m->arena = NULL;
    return wrong;
}

/* ---- the run's own ---- */
static int model_push(model *m) {
    const size_t n = model_batch_bytes(m) / sizeof(int32_t);

    m->ids = MEMOPT_PUSH(m->arena, int32_t, n, MEMOPT_TAG_OTHER);
    m->targets = MEMOPT_PUSH(m->arena, int32_t, n, MEMOPT_TAG_OTHER);
    m->positions = MEMOPT_PUSH(m->arena, int32_t, n, MEMOPT_TAG_OTHER);
    m->starts = MEMOPT_PUSH(m->arena, size_t, model_starts_bytes(m) / sizeof(size_t), MEMOPT_TAG_OTHER);
    if (m->front) m->hidden = memopt_arena_push(m->arena, model_hidden_bytes(m), MEMOPT_TAG_ACTIVATIONS);
    if (m->aside_bytes) m->aside = (unsigned char *)memopt_arena_push(m->arena, m->aside_bytes, MEMOPT_TAG_OTHER);
    if (m->frozen_bytes)
        m->frozen = (unsigned char *)memopt_arena_push(m->arena, m->frozen_bytes, MEMOPT_TAG_PARAMETERS);
    return failed(&m->why, "the memory", memopt_arena_error(m->arena).status);
}

/* A process that was killed may hold its file for a moment, until the system has ended what it had under way. */
static memopt_status model_open_store(const memopt_store_desc *s, memopt_store **store) {
    memopt_status status = memopt_store_create(s, store);
#if defined(__unix__) || defined(__APPLE__)
    const struct timespec moment = { 0, 100000000 };
    int i;

    for (i = 0; i < 30 && status == MEMOPT_ERR_STATE; ++i) {
        (void)nanosleep(&moment, NULL);
        status = memopt_store_create(s, store);
    }
#endif
    return status;
}

/* path: of the store, if anything is slow. */
static int model_open(model *m, const char *path, int reopen) {
    memopt_arena_desc a;
    memopt_pages_desc pages;
    memopt_store_desc s = model_store(m, path);
    memopt_shard_desc d;
    memopt_host host;
    size_t i;

    memset(&pages, 0, sizeof pages);
    memset(&a, 0, sizeof a);
    memset(&host, 0, sizeof host);
    host.threads = m->threads; /* they make checksums, too */
    s.host = &host;
    s.error = a.error = &m->why.error;
    s.reopen = reopen;
    a.source = &m->source;
    if (m->slow && failed(&m->why, path, model_open_store(&s, &m->store))) return 1;
    pages.no_huge = m->arena_bytes < HUGE_FROM;
    if (failed(&m->why, "the memory", memopt_source_pages(&pages, &m->source))) return 1;
    a.capacity = round_up(m->arena_bytes, m->source.granularity);
    if (failed(&m->why, "the memory", memopt_arena_create(&a, &m->arena)) || model_push(m) || model_open_tapes(m))
        return 1;
    m->head.targets = m->targets;
    m->frozen_now = SIZE_MAX;
    d = model_shard(m);
    if (failed(&m->why, "the memory", memopt_shard_open(&d, m->arena, &m->shard))) return 1;
    for (i = 0; i < m->count; ++i) m->sharded[i].shard = m->shard;
    return 0;
}

static void model_close(model *m) {
    model_close_tapes(m);
    memopt_shard_close(m->shard);
    memopt_store_destroy(m->store);
    memopt_arena_destroy(m->arena);
    free(m->blocks);
    free(m->sizes);
    free(m->tensors);
    free(m->layer_list);
    free(m->calls);
    free(m->own);
    free(m->segments);
    free(m->sharded);
    free(m->uses);
    free(m->tiles);
    free(m->losses);
}

/* ---- weights ---- */
/* Elements of an adapter's tensor from `first` on, the same whatever the slices: A is random, B is 0. */
static memopt_status model_begin_adapter(const model *m, size_t tensor, size_t first, size_t count, float *to) {
    const float deviation = (float)(1 / sqrt((double)m->sizes[tensor].columns));
    memopt_status s;
    size_t i;

    if (tensor % 2) return memset(to, 0, count * sizeof *to), MEMOPT_OK;
    s = memopt_random_normal(to, count, m->o->seed, tensor, first, &m->threads);
    for (i = 0; i < count; ++i) to[i] *= deviation;
    return s;
}

typedef int model_slice_fn(model *m, size_t tensor, const memopt_optim_tensor *slice);

/* This rank's part of all that is trained, slice by slice: puts: the function writes them. */
static int model_each_slice(model *m, model_slice_fn *fn, int puts) {
    size_t t, at;

    for (t = 0; t < m->tensor_count; ++t) {
        memopt_optim_tensor part, slice;

        if (model_failed(m, "the weights", memopt_shard_part(m->shard, t, &part))) return 1;
        for (at = part.first; at < part.first + part.held; at = slice.first + slice.held) {
            if (model_failed(m, "the weights", memopt_shard_bring(m->shard, t, at, &slice)) || fn(m, t, &slice))
                return 1;
            if (puts && model_failed(m, "the weights", memopt_shard_put(m->shard))) return 1;
        }
    }
    return 0;
}

static int model_read_slice(model *m, size_t tensor, const memopt_optim_tensor *slice) {
    if (!m->o->adapter)
        return folder_move(m->folder, tensor, slice->first, slice->held, slice->weights, m->shape.weight_type, 0);
    return failed(&m->why, "the adapters",
                  model_begin_adapter(m, tensor, slice->first, slice->held, (float *)slice->weights));
}

static int model_read_weights(model *m) {
    return team_wrong(m->team, &m->why, model_each_slice(m, model_read_slice, 1))
        || model_failed(m, "the weights", memopt_shard_share(m->shard));
}

/* ---- a pass ---- */
/* Forward and backward of the batch that is there. */
static int model_pass_batch(model *m) {
    const void *input = m->ids;
    memopt_status s = MEMOPT_OK;

    if (m->front) {
        s = memopt_tape_evaluate(m->front_tape, m->ids, m->hidden);
        if (s) m->why.error = memopt_tape_error(m->front_tape);
        input = m->hidden;
    }
    if (!s && ((s = memopt_tape_forward(m->tape, input)) || (s = memopt_tape_backward(m->tape, NULL, NULL))))
        m->why.error = memopt_tape_error(m->tape);
    return s && model_failed(m, "the pass", s);
}

/* The loss of the batch that is there. */
static int model_evaluate(model *m) {
    const void *input = m->ids;
    float loss;
    memopt_status s = MEMOPT_OK;

    if (m->front) s = memopt_tape_evaluate(m->front_tape, m->ids, m->hidden);
    if (m->front) input = m->hidden;
    if (!s && (s = memopt_tape_evaluate(m->tape, input, &loss))) m->why.error = memopt_tape_error(m->tape);
    return s && model_failed(m, "the evaluation", s);
}

static void model_rates(const model *m, memopt_optim_group *rates) {
    const memopt_optim_kind kinds[2] = { m->o->kind, MEMOPT_OPTIM_ADAMW };
    int i;

    for (i = 0; i < 2; ++i) {
        rates[i] = memopt_optim_group_default(kinds[i]);
        rates[i].rate = m->o->rate;
        if (m->o->decay >= 0) rates[i].weight_decay = m->o->decay;
        rates[i].match_rms = kinds[i] == MEMOPT_OPTIM_MUON;
    }
}

/* Reads unit `unit` of a step into the batch. */
typedef int model_load_fn(model *m, void *user, uint64_t step, size_t unit);

/* This rank's units of a step. */
static int model_pass_units(model *m, uint64_t step, model_load_fn *load_fn, void *user) {
    double *loss = m->losses + m->team->rank * model_rounds(m);
    memopt_status s;
    size_t unit;

    while (!(s = memopt_shard_next_unit(m->shard, &unit)) && unit != MEMOPT_SHARD_DONE) {
        if (unit == MEMOPT_SHARD_NO_UNIT) {
            if (model_failed(m, "the step", memopt_shard_skip_unit(m->shard))) return 1;
            continue;
        }
        if (load_fn(m, user, step, unit) || model_pass_batch(m)) return 1;
        *loss++ = m->head.loss;
    }
    return model_failed(m, "the step", s);
}

/* The sum of all units' losses, in their order. */
static int model_add_losses(model *m, double *loss) {
    const size_t rounds = model_rounds(m), count = m->team->count;
    size_t u;

    if (team_gather(m->team, &m->why, m->losses, rounds * sizeof *m->losses)) return 1;
    for (*loss = 0, u = 0; u < m->o->units; ++u) *loss += m->losses[u % count * rounds + u / count];
    return 0;
}

/* targets: of all units, by which the sum of their losses is divided. */
static int model_step(model *m, uint64_t step, size_t targets, model_load_fn *load_fn, void *user, double *loss) {
    memopt_optim_group rates[2];
    memopt_optim_run run;
    memopt_gradient_total total;
    memopt_status s = MEMOPT_OK;

    model_rates(m, rates);
    memset(&run, 0, sizeof run);
    run.step = step;
    run.groups = rates;
    run.group_count = m->o->kind == MEMOPT_OPTIM_MUON ? 2 : 1;
    run.fused = model_steps_inside(m);
    m->head.rule.count = targets;
    if (run.fused && model_failed(m, "the step", memopt_shard_step_inside(m->shard, &run))) return 1;
    if (model_pass_units(m, step, load_fn, user)) return 1;
    if (m->o->clip > 0) s = memopt_shard_measure(m->shard, NULL, &total);
    if (!s && m->o->clip > 0) {
        run.clips_norm = 1;
        s = memopt_clip_norm(sqrt(total.squares) * total.factor, m->o->clip, &run.gradient_factor);
    }
    if (!s) s = memopt_shard_step(m->shard, &run);
    m->head.rule.count = 0;
    return model_failed(m, "the step", s) || model_add_losses(m, loss);
}
#endif
