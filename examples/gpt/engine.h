/* engine.h - everything a run allocates, handed out by the same functions twice: over memopt_source_counting() they
   tell the bytes, over memory they are the run. So any size is planned at once, and the plan is what happens. What only a
   CPU or only a card has of it is in plan.h and card.h. */
#ifndef GPT_ENGINE_H
#define GPT_ENGINE_H
#include "outliers.h"
#include <errno.h>

typedef struct beside {
    size_t process, highest;
} beside; /* bytes without the arena; the process's peak so far */

typedef struct engine {
    memopt_source source;
    memopt_arena *arena;
    memopt_ledger *ledger; /* NULL: nobody counts what is pushed */
    model m;
    struct conventional *plain; /* NULL: there is a tape */
    memopt_tape_layer *layers;
    memopt_segment *segments;
    size_t segment_count;
    memopt_tape *tape;
    memopt_store *kept; /* of outputs that the tape keeps; NULL: those are in the arena */
    memopt_optim_desc optim_desc;
    memopt_optim *optim;
    memopt_gradient *listed;
    memopt_gradients list;
    memopt_scaler scaler; /* of all gradients, where there are such */
    outlier_windows windows; /* steps that were looked at, and were not applied */
    void *input;
    float *pixels;
    int32_t *targets;
    size_t *starts;       /* with --documents: of those of a batch */
    int32_t *positions;
    void *ahead;          /* of the batches that are read ahead */
    struct beside beside; /* what the process has without the arena */
    unsigned char *base;
    memopt_mark empty;         /* of the arena: its first push, and before it */
    size_t alignment;          /* of the arena's pushes and the tape's buffers; 0: the usual */
    memopt_host host;          /* of the tape's own memory */
    size_t by_tag[TAGS], peak; /* of the arena, in whole pages; tags without the activations */
    memopt_error error;        /* why an operator, a creation or a step failed */
    char message[400];
} engine;

enum { TAG_PROCESS, TAG_PARAMETERS, TAG_GRADIENTS, TAG_OPTIMIZER, TAG_KEPT, TAG_WORKING, TAG_DATA };

static int said(engine *e, const char *what, memopt_status s) { /* a status as a sentence; returns whether it is one */
    char why[256];

    if (s && e->optim && e->error.status != s) e->error = memopt_optim_error(e->optim);
    if (!s || e->error.status != s || memopt_error_text(&e->error, why, sizeof why, NULL))
        snprintf(why, sizeof why, "%s", memopt_status_text(s));
    if (s && !e->message[0]) snprintf(e->message, sizeof e->message, "%s: %s.", what, why);
    return s != MEMOPT_OK;
}

static size_t model_hidden(const options *o) {
    const model_row *m = model_row_of(o);
    const size_t hidden = (o->width * m->hidden + m->divisor - 1) / m->divisor;

    return m->is_llama ? (hidden + 31) / 32 * 32 : hidden;
}

static void describe_shape(transformer *t, const options *o) { /* what --model names */
    const model_row *row = model_row_of(o);

    t->head_width = row->wide > 1 ? model_head_width(o) : 0;
    t->kv_heads = model_group(o) > 1 ? o->heads / model_group(o) : 0;
    t->hidden = model_hidden(o);
    t->rms = t->swiglu = t->rotary = t->no_bias = row->is_llama;
    t->qkv_bias = row->qkv_bias;
    t->qk_norm = row->qk_norm;
    t->untied = row->untied;
    t->eps = (float)row->eps;
    t->rotary_base = row->base;
    t->window = o->window;
}

static void describe_model(engine *e, const options *o, const transformer_ops *ops, chain_begin_fn *begin_fn,
                           const transformer_attention_fns *attention, memopt_type type) {
    model *m = &e->m;
    transformer *t = &m->shape;
    m->layers = o->layers;
    m->vit = is_vit(o);
    m->documents = o->documents;
    m->begin_fn = begin_fn;
    m->block_fn = transformer_add_block;
    m->head_fn = transformer_add_head;
    m->split = o->weights == WEIGHTS_SPLIT;
    m->fuse = o->fuse_step;
    t->batch = o->batch;
    t->length = o->context + (is_vit(o) ? 1 : 0);
    t->width = o->width;
    t->heads = o->heads;
    describe_shape(t, o);
    t->vocabulary = m->vit ? (size_t)IMAGE_CLASSES : o->vocab;
    t->padded = (t->vocabulary + 127) / 128 * 128;
    t->not_causal = m->vit;
    t->dropout = (float)o->dropout;
    t->mlp_chunk = o->mlp_chunk;
    t->attention = attention;
    t->type = type;
    t->weight_type = o->weights == WEIGHTS_F32 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16;
    t->gradient_type = o->gradients;
    t->ops = *ops;
    t->ops.error = &e->error;
    m->head.classes = m->vit;
    m->head.chunk = o->head_chunk ? o->head_chunk : target_count(m);
    m->head.rule.count = target_count(m) * o->accumulate;
}

/* Tables of pointers and sizes: a few hundred bytes a layer, from malloc, and part of the process. */
static int take_tables(engine *e) {
    model *m = &e->m;

    e->segment_count = segment_count(m);
    m->blocks = (transformer_block *)calloc(m->layers, sizeof *m->blocks);
    if (m->blocks) describe_chain(m, NULL, NULL); /* counts */
    m->tensors = (memopt_optim_tensor *)calloc(m->tensor_count, sizeof *m->tensors);
    e->listed = (memopt_gradient *)calloc(m->tensor_count, sizeof *e->listed);
    e->layers = (memopt_tape_layer *)calloc(e->segment_count, sizeof *e->layers);
    e->segments = (memopt_segment *)calloc(e->segment_count, sizeof *e->segments);
    if (m->blocks && m->tensors && e->listed && e->layers && e->segments) return 0;
    return said(e, "The tables of the model", MEMOPT_ERR_MEMORY);
}

static void engine_close(engine *e) {
    memopt_tape_destroy(e->tape);
    memopt_arena_destroy(e->arena);
    free(e->m.blocks);
    free(e->m.tensors);
    free(e->listed);
    free(e->layers);
    free(e->segments);
    free(e->plain);
}

static void *push(engine *e, size_t bytes, int tag) { /* long-lived; NULL leaves a message */
    static const memopt_tag tags[TAGS] = { MEMOPT_TAG_OTHER,     MEMOPT_TAG_PARAMETERS,  MEMOPT_TAG_GRADIENTS,
                                           MEMOPT_TAG_OPTIMIZER, MEMOPT_TAG_ACTIVATIONS, MEMOPT_TAG_SCRATCH,
                                           MEMOPT_TAG_OTHER };
    const size_t unit = e->alignment ? e->alignment : 64, whole = (bytes + unit - 1) & ~(unit - 1);
    void *p = memopt_arena_push(e->arena, whole ? whole : unit, tags[tag]);
    if (!p) (void)said(e, "Memory for the model", memopt_arena_error(e->arena).status);
    else e->by_tag[tag] += whole;
    if (!e->base) e->base = (unsigned char *)p;
    return p;
}

static size_t predicted_peak(const beside *b, size_t arena) { return most(b->process + arena, b->highest); }

static int push_parameters(engine *e) {
    model *m = &e->m;
    const size_t bytes = m->elements * memopt_type_bytes(m->shape.weight_type);
    const size_t gradients = gradient_elements(m) * memopt_type_bytes(m->shape.gradient_type);

    if (!(m->weights = push(e, bytes, TAG_PARAMETERS))) return 1;
    if (m->split && !(m->extra = push(e, bytes, TAG_PARAMETERS))) return 1;
    if (gradients && !(m->gradients = push(e, gradients, TAG_GRADIENTS))) return 1;
    describe_chain(m, e->layers, e->segments); /* places */
    return 0;
}

static memopt_optim_desc describe_optimizer(const engine *e, const options *o,
                                            const memopt_threads *threads) { /* but for its tensors */
    memopt_optim_desc d;
    memset(&d, 0, sizeof d);
    d.kind = o->optimizer;
    d.state = o->states;
    d.weights = e->m.shape.weight_type;
    d.seed = o->seed;
    d.extra = o->weights == WEIGHTS_SPLIT ? MEMOPT_OPTIM_EXTRA_SPLIT : MEMOPT_OPTIM_EXTRA_NONE;
    d.gradients = o->gradients;
    d.threads = threads;
    if (o->optimizer == MEMOPT_OPTIM_MUON) d.muon = memopt_muon_products(MEMOPT_TYPE_BF16);
    return d;
}

/* Of a step: what the blocks' matrices, and what all other tensors are stepped with. They differ with Muon alone. */
static void describe_groups(memopt_optim_kind kind, double rate, memopt_optim_group *two, memopt_optim_run *run) {
    two[0] = memopt_optim_group_default(kind);
    two[1] = memopt_optim_group_default(kind == MEMOPT_OPTIM_MUON ? MEMOPT_OPTIM_ADAMW : kind);
    two[0].rate = two[1].rate = rate;
    two[0].match_rms = 1;
    run->groups = two;
    run->group_count = 2;
}

static int measures_norm(const options *o) { return o->clip > 0 || o->outliers > 0; }

static void list_gradients(engine *e) { /* all of them, for norms and loss scaling */
    size_t i;
    for (i = 0; i < e->m.tensor_count; ++i) {
        e->listed[i].values = (void *)(uintptr_t)e->m.tensors[i].gradients;
        e->listed[i].count = e->m.tensors[i].count;
        e->listed[i].type = e->m.shape.gradient_type;
    }
    e->list.tensors = e->listed;
    e->list.count = e->m.tensor_count;
    e->list.error = &e->error;
}

static size_t pixel_count(const model *m) { return m->shape.batch * (m->shape.length - 1) * PATCH; }

static size_t input_bytes(const model *m) {
    return m->vit ? pixel_count(m) * memopt_type_bytes(m->shape.type) : transformer_rows(&m->shape) * sizeof(int32_t);
}

/* Where the documents of a batch begin, and the place of each token in its own; or the latter alone, for rows that are
   cut by length. */
static int push_documents(engine *e) {
    transformer *t = &e->m.shape;
    const size_t rows = transformer_rows(t);

    if (e->m.documents && !(e->starts = (size_t *)push(e, (rows + 1) * sizeof *e->starts, TAG_DATA))) return 1;
    e->positions = (int32_t *)push(e, rows * sizeof *e->positions, TAG_DATA);
    t->row_positions = e->positions;
    return !e->positions;
}

static int push_batch(engine *e) {
    const model *m = &e->m;

    if (m->vit && !(e->pixels = (float *)push(e, pixel_count(m) * sizeof(float), TAG_DATA))) return 1;
    e->input = e->pixels;
    if (!m->vit || m->shape.type != MEMOPT_TYPE_F32) e->input = push(e, input_bytes(m), TAG_DATA);
    if ((m->documents || (transformer_by_length(&m->shape) && m->shape.rotary)) && push_documents(e)) return 1;
    return !e->input || !(e->targets = (int32_t *)push(e, target_count(m) * sizeof(int32_t), TAG_DATA));
}

/* slack: what a run may take beside its plan, half of it asked for; what is told is enough in the next run, too. */
static int budget_is_below(engine *e, const options *o, size_t least_peak, size_t slack) {
    if (o->budget >= least_peak + slack / 2) return 0;
    snprintf(e->message, sizeof e->message,
             "A budget of %.1f MB is too small: the least is %.1f MB with these switches.", (double)o->budget / 1e6,
             ceil((double)(least_peak + slack) / 1e5) / 10);
    return 1;
}

static memopt_tape_desc describe_tape(engine *e, const options *o) {
    memopt_tape_desc d;

    memset(&d, 0, sizeof d);
    d.chain.segments = e->segments;
    d.chain.count = e->segment_count;
    d.layers = e->layers;
    d.chain.input_bytes = input_bytes(&e->m);
    d.arena = e->arena;
    d.seed = o->seed;
    d.rule = o->keep == KEEP_ARENA ? MEMOPT_SCHEDULE_ALL
           : o->keep == KEEP_EVERY ? MEMOPT_SCHEDULE_EVERY
                                   : MEMOPT_SCHEDULE_EXTENDED;
    d.every = 2 * o->every; /* a block is two segments */
    d.budget = SIZE_MAX;
    d.host = &e->host;
    if (o->keep == KEEP_OVERHEAD) {
        d.budget = 0;
        d.overhead = o->overhead;
    }
    return d;
}

/* ---- memory through one training step: what the tape's actions hold, one after the other ---- */
typedef struct walk { /* most: bytes beside what is always there, at their highest; and then by tag */
    const engine *e;
    outcome *out;
    double cost, whole;
    size_t held, most, kept_then, gradients_then;
} walk;

static void moment_add(walk *w, size_t working, size_t gradients) {
    const size_t n = w->out->moment_count;
    int t;

    if (w->held + working + gradients > w->most) {
        w->most = w->held + working + gradients;
        w->kept_then = w->held;
        w->gradients_then = gradients;
    }
    if (n == MOST_MOMENTS) return;
    for (t = 0; t < TAGS; ++t) w->out->moments[n].bytes[t] = (float)w->e->by_tag[t];
    w->out->moments[n].bytes[TAG_PROCESS] = (float)w->e->beside.process;
    w->out->moments[n].bytes[TAG_KEPT] += (float)w->held;
    w->out->moments[n].bytes[TAG_WORKING] += (float)working;
    w->out->moments[n].bytes[TAG_GRADIENTS] += (float)gradients;
    w->out->moments[n].when = (float)(w->cost / w->whole);
    ++w->out->moment_count;
}

static void walk_action(walk *w, memopt_action a) {
    const memopt_segment *s = &w->e->segments[a.index];
    const size_t fused = fused_bytes(&w->e->m, (const transformer_part *)w->e->layers[a.index].user);
    const size_t grad_in = a.index && !s->grad_in_place ? w->e->segments[a.index - 1].grad_bytes : 0;

    switch ((memopt_action_kind)a.op) {
    case MEMOPT_ACTION_FORWARD:
    case MEMOPT_ACTION_FORWARD_SAVE:
        moment_add(w, (a.op == MEMOPT_ACTION_FORWARD ? s->plain_scratch : s->forward_scratch) + s->output_bytes, 0);
        w->held += a.op == MEMOPT_ACTION_FORWARD ? s->output_bytes : s->saved_bytes;
        w->cost += s->forward_cost;
        break;
    case MEMOPT_ACTION_BACKWARD:
        moment_add(w, s->backward_scratch - fused + s->grad_bytes + grad_in, fused);
        w->held -= s->saved_bytes;
        w->cost += s->backward_cost;
        break;
    case MEMOPT_ACTION_READ:
        if (a.index) w->held += w->e->segments[a.index - 1].output_bytes;
        break;
    case MEMOPT_ACTION_DROP:
        if (a.index) w->held -= w->e->segments[a.index - 1].output_bytes;
        break;
    default: break;
    }
}

/* Fills in moments and bytes at the peak: of the plan, so that they add up to the predicted peak to the byte. */
static void tell_memory(const engine *e, outcome *out) {
    walk w;
    size_t count = 0, i, rest;
    const memopt_action *actions;
    int t;
    memset(&w, 0, sizeof w);
    w.e = e;
    w.out = out;
    out->predicted_peak = predicted_peak(&e->beside, e->peak);
    out->moment_count = 0;
    w.whole = e->tape ? memopt_tape_get_stats(e->tape).cost : 1;
    moment_add(&w, 0, 0);
    actions = e->tape ? memopt_tape_actions(e->tape, &count) : NULL;
    for (i = 0; i < count; ++i) walk_action(&w, actions[i]);
    w.cost = w.whole;
    w.held = 0;
    moment_add(&w, 0, 0);
    for (t = 0, rest = (size_t)out->predicted_peak; t < TAGS; ++t) {
        out->at_peak[t] = t == TAG_PROCESS ? rest - e->peak : t == TAG_WORKING ? 0 : e->by_tag[t];
        if (t == TAG_KEPT) out->at_peak[t] += w.kept_then;
        if (t == TAG_GRADIENTS) out->at_peak[t] += w.gradients_then;
        rest -= (size_t)out->at_peak[t];
    }
    out->at_peak[TAG_WORKING] = rest; /* with the gaps between buffers, and the last page */
}
#endif
