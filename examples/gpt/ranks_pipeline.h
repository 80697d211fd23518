/* ranks_pipeline.h - ranks that have layers of their own (--pipeline): a step's units are the micro-batches of a pipeline.
   A rank's shard is that of its stage; all other tensors are absent there. Units are begun, and reduced, by backwards,
   which come in the order of units: so the bits are those of ranks that have all layers. Part of ranks.h. */
#ifndef GPT_RANKS_PIPELINE_H
#define GPT_RANKS_PIPELINE_H

static size_t stage_of_rank(const options *o, size_t number) { return number % pass_ranks(o) / o->tensor; }

static size_t micro_batches(const options *o) { return o->units / pass_count(o); } /* they divide */

/* ---- what a stage has ---- */
/* The tensors of segments first .. first + count - 1 are here, those of a segment in a group. */
static void rank_take_stage(rank *r, size_t first, size_t count) {
    const size_t segments = r->e->segment_count;
    size_t i, t, last = SIZE_MAX, group = 0;

    for (t = 0; t < r->e->m.tensor_count; ++t) {
        for (i = 0; i + 1 < segments; ++i) { /* whose it is */
            const transformer_part *part = (const transformer_part *)r->e->layers[i].user;

            if (t - part->first_tensor < part->tensor_count) break;
        }
        r->tensors[t].absent = i - first >= count || r->e->m.tensors[t].first > 0;
        if (!r->tensors[t].absent) {
            group += last != SIZE_MAX && i != last;
            last = i;
            r->layers[i].group = group;
        }
        r->tensors[t].group = group; /* what is absent takes no room in it */
    }
    r->use_count = 0;
}

static size_t rank_resident(void *user, size_t first, size_t count) { /* of a stage that may be */
    rank *r = (rank *)user;
    uint64_t held[HELD] = { 0 };
    memopt_shard_bytes b = { 0 };
    memopt_shard_desc d;

    rank_take_stage(r, first, count);
    d = rank_describe_shard(r);
    d.comm = d.replicas = d.others = NULL;
    d.rank_count = set_ranks(&r->o);
    d.replica_count = r->o.replicas;
    return memopt_shard_plan(&d, &b) ? SIZE_MAX / 4 : predict_shard(&b, held);
}

static size_t slot_elements(const rank *r) { return (transformer_rows(&r->e->m.shape) + 15) & ~(size_t)15; }

static memopt_status rank_before(void *user, const pipeline_action *a) {
    rank *r = (rank *)user;
    size_t unit;
    memopt_status s;

    r->e->m.head.targets = r->slots + (2 * a->micro_batch + 1) * slot_elements(r);
    if (!a->is_backward) return MEMOPT_OK;
    s = memopt_shard_next_unit(r->shard, &unit);
    if (s) r->e->error = memopt_shard_error(r->shard);
    return s;
}

static memopt_status rank_behind(void *user, const pipeline_action *a) {
    rank *r = (rank *)user;

    if (a->is_backward) rank_losses(r, r->number)[a->micro_batch] = r->e->m.head.loss;
    return MEMOPT_OK;
}

/* A callback of the pipeline's tapes: gradients of a segment are complete after its backward. */
static memopt_status rank_pipe_call(rank_layer *l, const memopt_tape_call *call) {
    rank *r = l->rank;
    memopt_tape_call inner = *call;
    memopt_status s;

    inner.user = l->layer.user;
    rank_place(r, (transformer_part *)l->layer.user);
    s = call->is_backward ? l->layer.backward_fn(&inner) : l->layer.forward_fn(&inner);
    if (s || !call->is_backward || call->describing) return s;
    s = memopt_shard_reduce(r->shard, l->group);
    if (s && call->error) *call->error = memopt_shard_error(r->shard);
    return s;
}

/* ---- the plan ---- */
static pipeline_desc rank_describe_pipeline(rank *r) {
    const model *m = &r->e->m;
    pipeline_desc d;

    memset(&d, 0, sizeof d);
    d.shape.ranks = r->o.pipeline;
    d.shape.micro_batches = micro_batches(&r->o);
    d.layers = r->calls;
    d.segments = r->e->segments;
    d.count = r->e->segment_count;
    d.input_bytes = input_bytes(m);
    d.tape = describe_tape(r->e, &r->o);
    d.tape.arena = NULL;
    d.tape.budget = 0; /* by --keep overhead, which else is none */
    d.tied = m->shape.untied ? NULL : &m->shape;
    d.stride = pass_count(&r->o);
    d.resident_fn = rank_resident;
    d.before_fn = rank_before;
    d.after_fn = rank_behind;
    d.user = r;
    d.error = &r->e->error;
    return d;
}

/* Which segments each rank of a pass has, and what that takes. */
static int rank_plan_pipeline(rank *r, pipeline_stage *stages, pipeline_bytes *bytes) {
    const pipeline_desc d = rank_describe_pipeline(r);

    return said(r->e, "The plan of the pipeline", pipeline_plan(&d, stages, bytes));
}

/* Bytes that a rank of a stage sends to others of its pass, of a unit: to other stages, and by width. */
static int rank_stage_sends(rank *r, const pipeline_stage *s, uint64_t *bytes) {
    const transformer *t = &r->e->m.shape;
    const pipeline_desc d = rank_describe_pipeline(r);
    memopt_tape_desc desc = pipeline_tape_desc(&d, s);
    memopt_tape *tape = NULL;

    *bytes = s->output + s->input_grad;
    if (s->first + s->count == d.count && !t->untied) *bytes += pipeline_tied_bytes_of(t, t->gradient_type);
    if (said(r->e, "The plan of the activations", memopt_tape_create(&desc, &tape))) return 1;
    *bytes += rank_tape_sends(r, tape, s->first);
    memopt_tape_destroy(tape);
    return 0;
}

/* What the ranks of a stage take; the shards of all others are planned, too, and not looked at. */
static int rank_plan_stage(rank *r, ranks_plan *p, size_t stage, memopt_shard_bytes *kept) {
    const pipeline_stage *s = &p->stages[stage];
    size_t i, largest;

    rank_take_stage(r, s->first, s->count);
    if (plan_shards(r, p, &largest) || rank_stage_sends(r, s, &p->sends)) return 1;
    p->tape = p->pipes[stage].pipeline;
    p->tokens = p->pipes[stage].tokens;
    for (i = 0; i < r->o.ranks; ++i) {
        if (stage_of_rank(&r->o, i) != stage) continue;
        predict(p, i);
        kept[i] = p->bytes[i];
    }
    return 0;
}

static int plan_pipeline(rank *r, ranks_plan *p) {
    const size_t stages = r->o.pipeline;
    memopt_shard_bytes *kept = (memopt_shard_bytes *)calloc(r->o.ranks, sizeof *kept);
    size_t s;
    int wrong = rank_open_model(r, 0);

    p->data = r->e->by_tag[TAG_DATA];
    p->working = r->e->by_tag[TAG_WORKING];
    p->stages = (pipeline_stage *)calloc(stages, sizeof *p->stages);
    p->pipes = (pipeline_bytes *)calloc(stages, sizeof *p->pipes);
    if (!wrong && (!kept || !p->stages || !p->pipes)) wrong = said(r->e, "The stages", MEMOPT_ERR_MEMORY);
    wrong = wrong || rank_plan_pipeline(r, p->stages, p->pipes);
    for (s = 0; !wrong && s < stages; ++s) wrong = rank_plan_stage(r, p, s, kept);
    if (!wrong) memcpy(p->bytes, kept, r->o.ranks * sizeof *kept);
    free(kept);
    return wrong;
}

/* ---- a rank ---- */
static int rank_push_slots(rank *r) { /* ids and targets of each micro-batch of a step */
    const size_t bytes = 2 * micro_batches(&r->o) * slot_elements(r) * sizeof *r->slots;

    r->slots = (int32_t *)push(r->e, bytes, TAG_DATA);
    r->inputs = (const void **)calloc(micro_batches(&r->o), sizeof *r->inputs);
    return !r->slots || !r->inputs;
}

static memopt_comm *rank_link(const rank *r, int kind, size_t first) { /* between stages first and first + 1 */
    return r->comms[kind + (int)(first % 2)];
}

static pipeline_links rank_links(const rank *r) {
    const size_t stage = stage_of_rank(&r->o, r->number), last = r->o.pipeline - 1;
    pipeline_links l;

    memset(&l, 0, sizeof l);
    if (stage) l.in[PIPELINE_ACTIVATIONS] = rank_link(r, LINK_ON, stage - 1);
    if (stage) l.out[PIPELINE_GRADIENTS] = rank_link(r, LINK_BACK, stage - 1);
    if (stage < last) l.out[PIPELINE_ACTIVATIONS] = rank_link(r, LINK_ON, stage);
    if (stage < last) l.in[PIPELINE_GRADIENTS] = rank_link(r, LINK_BACK, stage);
    if (!stage) l.in[PIPELINE_TIED] = r->comms[LINK_TIED];
    if (stage == last) l.out[PIPELINE_TIED] = r->comms[LINK_TIED];
    return l;
}

static int rank_take_own_stage(rank *r, const ranks_plan *p) {
    const pipeline_stage *s = &p->stages[stage_of_rank(&r->o, r->number)];

    rank_take_stage(r, s->first, s->count);
    return 0;
}

/* Behind the shard: a copy of tied tokens, and what the pipeline works in. */
static int rank_open_pipeline(rank *r, const ranks_plan *p) {
    const size_t stage = stage_of_rank(&r->o, r->number), bytes = p->pipes[stage].pipeline;
    const pipeline_desc d = rank_describe_pipeline(r);
    const pipeline_links links = rank_links(r);
    model *m = &r->e->m;
    transformer_part *tokens = stage ? &r->tokens : &m->embedding;
    void *memory;

    if (!stage) rank_place(r, &m->embedding);
    if (p->pipes[stage].tokens) {
        r->tokens = m->embedding;
        r->tokens.weights = push(r->e, p->pipes[stage].tokens, TAG_PARAMETERS);
        m->head.tied = &r->tokens;
        if (!r->tokens.weights) return 1;
    }
    memory = push(r->e, bytes, TAG_KEPT);
    if (!memory) return 1;
    return said(r->e, "The pipeline", pipeline_open(&d, p->stages, stage, &links, tokens, memory, bytes, &r->pipe));
}

static int rank_pipe_said(rank *r, const char *what, memopt_status s) {
    if (s) r->e->error = pipeline_error(r->pipe);
    return said(r->e, what, s);
}

static int rank_share_tokens(rank *r) {
    return r->pipe && rank_pipe_said(r, "The tokens", pipeline_share_tokens(r->pipe));
}

/* All units of a step that are this pass's. */
static int rank_pipe_units(rank *r, size_t step) {
    const size_t pass = pass_of(&r->o, r->number), n = slot_elements(r), rows = transformer_rows(&r->e->m.shape);
    const uint64_t first = (uint64_t)step * r->o.units + pass, before = rank_pass_sent(r);
    size_t k, unit;
    memopt_status s;

    for (k = 0; k < micro_batches(&r->o); ++k) {
        int32_t *ids = r->slots + 2 * k * n;

        if (rank_load(r, first + k * pass_count(&r->o))) return 1;
        memcpy(ids, r->e->input, rows * sizeof *ids);
        memcpy(ids + n, r->e->targets, rows * sizeof *ids);
        r->inputs[k] = ids;
    }
    s = pipeline_step(r->pipe, r->inputs, first);
    if (rank_pipe_said(r, "A pass", s)) return 1;
    r->pass_sent += rank_pass_sent(r) - before;
    return rank_said(r, "A round", memopt_shard_next_unit(r->shard, &unit)); /* there is none */
}
#endif
