/* ranks_pipeline.h - ranks that have layers of their own (--pipeline): a step's units are the micro-batches of a pipeline.
   A rank's shard is that of its stages, one for each of --chunks; all other tensors are absent there. Each stage's
   backwards reduce its groups in the order of units: so the bits are those of ranks that have all layers. Part of
   ranks.h. */
#ifndef GPT_RANKS_PIPELINE_H
#define GPT_RANKS_PIPELINE_H

static size_t stage_count(const options *o) { return o->pipeline * o->chunks; }

static size_t micro_batches(const options *o) { return o->units / pass_count(o); } /* they divide */

/* ---- what a rank has ---- */
/* Is a segment in one of `count` stages, which are `stride` apart? */
static int is_in_stages(const pipeline_stage *stages, size_t count, size_t stride, size_t segment) {
    size_t k;

    for (k = 0; k < count; ++k) if (segment - stages[k * stride].first < stages[k * stride].count) return 1;
    return 0;
}

/* The tensors of these stages are here, those of a segment in a group. */
static void rank_take_stages(rank *r, const pipeline_stage *stages, size_t count, size_t stride) {
    const size_t segments = r->e->segment_count;
    size_t i, t, owner = 0, last = SIZE_MAX, group = 0;

    for (t = 0; t < r->e->m.tensor_count; ++t) {
        for (i = owner; i + 1 < segments; ++i) { /* whose it is: in their order, but for the head's */
            const transformer_part *part = (const transformer_part *)r->e->layers[i].user;

            if (t - part->first_tensor < part->tensor_count) break;
        }
        if (i + 1 < segments) owner = i;
        r->tensors[t].absent = !is_in_stages(stages, count, stride, i) || r->e->m.tensors[t].first > 0;
        if (!r->tensors[t].absent) {
            group += last != SIZE_MAX && i != last;
            last = i;
            r->layers[i].group = group;
        }
        r->tensors[t].group = group; /* what is absent takes no room in it */
    }
    r->use_count = 0;
}

static void rank_take_own_stages(rank *r, const ranks_plan *p) {
    rank_take_stages(r, p->stages + place_in_pipeline(&r->o, r->number), r->o.chunks, r->o.pipeline);
}

static size_t rank_resident(void *user, size_t first, size_t count) { /* of a stage that may be */
    rank *r = (rank *)user;
    uint64_t held[HELD] = { 0 };
    memopt_shard_bytes b;
    pipeline_stage stage;
    memopt_shard_desc d;

    memset(&b, 0, sizeof b);
    memset(&stage, 0, sizeof stage);
    stage.first = first;
    stage.count = count;
    rank_take_stages(r, &stage, 1, 1);
    d = rank_describe_shard(r);
    d.comm = d.replicas = d.others = NULL;
    d.rank_count = set_ranks(&r->o);
    d.replica_count = r->o.replicas;
    return memopt_shard_plan(&d, &b) ? SIZE_MAX / 4 : predict_shard(&b, held);
}

static size_t slot_elements(const rank *r) {
    return pushed(&r->o, transformer_rows(&r->e->m.shape) * sizeof(int32_t)) / sizeof(int32_t);
}

/* Before a stage's backward: what its groups have sent of the unit before has left, and is written again. */
static memopt_status rank_before(void *user, const pipeline_action *a) {
    rank *r = (rank *)user;
    const int32_t *ids = r->slots + 2 * a->micro_batch * slot_elements(r);
    const pipeline_stage *own = &r->stages[a->stage];
    memopt_status s = MEMOPT_OK;
    size_t i;

    r->e->m.head.targets = ids + slot_elements(r);
    rank_take_up(r, ids, a->micro_batch);
    for (i = own->first; a->is_backward && !s && i < own->first + own->count; ++i)
        s = memopt_shard_backward(r->shard, r->layers[i].group);
    return s;
}

static memopt_status rank_behind(void *user, const pipeline_action *a) {
    rank *r = (rank *)user;

    if (a->stage + 1 == stage_count(&r->o)) /* a card's: see rank_read_losses() */
        rank_losses(r, r->number)[a->micro_batch] = r->e->m.head.loss;
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
    const size_t pushed_before = r->e->by_tag[TAG_DATA] + r->e->by_tag[TAG_WORKING];
    pipeline_desc d;

    memset(&d, 0, sizeof d);
    d.shape.ranks = r->o.pipeline;
    d.shape.chunks = r->o.chunks;
    d.shape.micro_batches = micro_batches(&r->o);
    d.layers = r->calls;
    d.segments = r->e->segments;
    d.count = r->e->segment_count;
    d.input_bytes = input_bytes(m);
    d.tape = describe_tape(r->e, &r->o);
    d.tape.arena = NULL;
    rank_describe_tape(r, &d.tape);
    d.tape.budget = 0; /* by --keep overhead, which else is none */
    d.limit = r->o.pipeline_bytes > pushed_before ? r->o.pipeline_bytes - pushed_before : 0;
    d.tied = m->shape.untied ? NULL : &m->shape;
    d.stride = pass_count(&r->o);
    d.evaluates = r->o.validate > 0;
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

/* Of a unit: the bytes that a stage sends to others of its pass, to other stages and by width; and its work. */
static int rank_plan_stage(rank *r, ranks_plan *p, size_t stage) {
    const pipeline_stage *s = &p->stages[stage];
    const transformer *t = &r->e->m.shape;
    const pipeline_desc d = rank_describe_pipeline(r);
    memopt_tape_desc desc = pipeline_tape_desc(&d, s);
    double *forward = &p->costs[stage], *backward = &p->costs[stage_count(&r->o) + stage];
    memopt_tape *tape = NULL;
    size_t i;

    p->sends += s->output + s->input_grad;
    if (s->first + s->count == d.count && !t->untied) p->sends += pipeline_tied_bytes_of(t, t->gradient_type);
    if (said(r->e, "The plan of the activations", memopt_tape_create(&desc, &tape))) return 1;
    p->sends += rank_tape_sends(r, tape, s->first);
    for (i = s->first; i < s->first + s->count; ++i) *forward += d.segments[i].forward_cost;
    *backward = memopt_tape_get_stats(tape).cost - *forward; /* with what it makes again */
    memopt_tape_destroy(tape);
    return 0;
}

/* Each rank's work, of the mean. */
static void rank_compare_work(const options *o, ranks_plan *p) {
    double all = 0;
    size_t i, k;

    for (i = 0; i < 2 * stage_count(o); ++i) all += p->costs[i];
    for (i = 0; i < o->ranks; ++i)
        for (p->reports[i].work = 0, k = 0; k < 2 * o->chunks; ++k)
            p->reports[i].work += p->costs[place_in_pipeline(o, i) + k * o->pipeline] / all * (double)o->pipeline;
}

/* The stages against each other. seconds: of each one's forward, then of each one's backward; latency: of a message. */
static int rank_run_stages(rank *r, const ranks_plan *p, const double *seconds, double latency,
                           pipeline_course *course) {
    const pipeline_desc d = rank_describe_pipeline(r);
    const size_t stages = stage_count(&r->o), count = pipeline_count(&d.shape);
    pipeline_action *actions = (pipeline_action *)calloc(r->o.pipeline * count, sizeof *actions);
    pipeline_schedule s;
    size_t i;
    int wrong = !actions && said(r->e, "The schedule", MEMOPT_ERR_MEMORY);

    memset(&s, 0, sizeof s);
    memset(course, 0, sizeof *course);
    s.shape = d.shape;
    s.actions = actions;
    s.sends = PIPELINE_SENDS;
    s.tied_slots = p->stages[stages - 1].tied_slots;
    s.forward_seconds = seconds;
    s.backward_seconds = seconds + stages;
    s.latency = latency;
    for (i = 0; !wrong && i < r->o.pipeline; ++i) pipeline_list(&d.shape, i, actions + i * count);
    wrong = wrong || said(r->e, "The schedule", pipeline_simulate(&s, NULL, course, &r->e->error));
    free(actions);
    return wrong;
}

/* What the ranks at a place of the pipeline take; the shards of all others are planned, too, and not looked at. */
static int rank_plan_place(rank *r, ranks_plan *p, size_t place, memopt_shard_bytes *kept) {
    size_t i, largest;

    rank_take_stages(r, p->stages + place, r->o.chunks, r->o.pipeline);
    if (plan_shards(r, p, &largest)) return 1;
    for (p->sends = i = 0; i < r->o.chunks; ++i)
        if (rank_plan_stage(r, p, i * r->o.pipeline + place)) return 1;
    p->tape = pushed(&r->o, p->pipes[place].pipeline);
    p->tokens = p->pipes[place].tokens;
    for (i = 0; i < r->o.ranks; ++i) {
        if (place_in_pipeline(&r->o, i) != place) continue;
        predict(p, i);
        kept[i] = p->bytes[i];
    }
    return 0;
}

static int plan_pipeline(rank *r, ranks_plan *p) {
    memopt_shard_bytes *kept = (memopt_shard_bytes *)calloc(r->o.ranks, sizeof *kept);
    pipeline_course course;
    size_t place;
    int wrong = rank_open_model(r, 0);

    p->data = r->e->by_tag[TAG_DATA];
    p->working = r->e->by_tag[TAG_WORKING];
    p->stages = (pipeline_stage *)calloc(stage_count(&r->o), sizeof *p->stages);
    p->pipes = (pipeline_bytes *)calloc(r->o.pipeline, sizeof *p->pipes);
    p->costs = (double *)calloc(2 * stage_count(&r->o), sizeof *p->costs);
    if (!wrong && (!kept || !p->stages || !p->pipes || !p->costs)) wrong = said(r->e, "The stages", MEMOPT_ERR_MEMORY);
    wrong = wrong || rank_plan_pipeline(r, p->stages, p->pipes);
    for (place = 0; !wrong && place < r->o.pipeline; ++place) wrong = rank_plan_place(r, p, place, kept);
    wrong = wrong || rank_run_stages(r, p, p->costs, 0, &course); /* where time is as the work is */
    p->waiting = wrong ? 0 : course.waiting;
    if (!wrong) rank_compare_work(&r->o, p);
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

/* Between places first and first + 1; behind the last one comes the first. */
static memopt_comm *rank_link(const rank *r, size_t first, int is_gradients) {
    if (first + 1 == r->o.pipeline) return r->comms[is_gradients ? LINK_BACK_AROUND : LINK_ON_AROUND];
    return r->comms[(is_gradients ? LINK_BACK : LINK_ON) + (int)(first % 2)];
}

static pipeline_links rank_links(const rank *r) {
    const size_t place = place_in_pipeline(&r->o, r->number), last = r->o.pipeline - 1;
    const size_t before = place ? place - 1 : last;
    pipeline_links l;

    memset(&l, 0, sizeof l);
    l.in[PIPELINE_ACTIVATIONS] = rank_link(r, before, 0);
    l.out[PIPELINE_ACTIVATIONS] = rank_link(r, place, 0);
    l.in[PIPELINE_GRADIENTS] = rank_link(r, place, 1);
    l.out[PIPELINE_GRADIENTS] = rank_link(r, before, 1);
    if (!place) l.in[PIPELINE_TIED] = r->comms[LINK_TIED];
    if (place == last) l.out[PIPELINE_TIED] = r->comms[LINK_TIED];
    return l;
}

/* Behind the shard: a copy of tied tokens, and what the pipeline works in. */
static int rank_open_pipeline(rank *r, const ranks_plan *p) {
    const size_t place = place_in_pipeline(&r->o, r->number), bytes = p->pipes[place].pipeline;
    const pipeline_desc d = rank_describe_pipeline(r);
    const pipeline_links links = rank_links(r);
    model *m = &r->e->m;
    transformer_part *tokens = place ? &r->tokens : &m->embedding;
    void *memory;

    r->stages = p->stages;
    if (!place) rank_place(r, &m->embedding);
    if (p->pipes[place].tokens) {
        r->tokens = m->embedding;
        r->tokens.weights = push(r->e, p->pipes[place].tokens, TAG_PARAMETERS);
        m->head.tied = &r->tokens;
        if (!r->tokens.weights) return 1;
    }
    memory = push(r->e, bytes, TAG_KEPT);
    if (!memory) return 1;
    return said(r->e, "The pipeline", pipeline_open(&d, p->stages, place, &links, tokens, memory, bytes, &r->pipe));
}

static int rank_pipe_said(rank *r, const char *what, memopt_status s) {
    const memopt_error e = pipeline_error(r->pipe);
    const int is_ours = e.place && !strcmp(e.place, "micro-batch"); /* of rank_before() it knows no more than that */

    if (s) r->e->error = is_ours ? memopt_shard_error(r->shard) : e;
    return said(r->e, what, s);
}

static int rank_share_tokens(rank *r) {
    return r->pipe && rank_pipe_said(r, "The tokens", pipeline_share_tokens(r->pipe));
}

/* This pass's batches, from number `first` of all passes on. Of those that are held back the last one stands for those
   beyond it. */
static int rank_load_slots(rank *r, uint64_t first, uint64_t last, int held_back) {
    const size_t n = slot_elements(r), passes = pass_count(&r->o);
    size_t k;

    for (k = 0; k < micro_batches(&r->o); ++k) {
        const uint64_t number = first + pass_of(&r->o, r->number) + k * passes;
        int32_t *ids = r->slots + 2 * k * n;

        if (rank_load(r, number < last ? number : last, held_back, ids, ids + n)) return 1;
        r->inputs[k] = ids;
    }
    return 0;
}

static int rank_pipe_evaluate(rank *r, size_t first, size_t batches) { /* as many as a step has */
    return rank_load_slots(r, first, batches - 1, 1)
        || rank_pipe_said(r, "An evaluation", pipeline_evaluate(r->pipe, r->inputs)) || rank_read_losses(r);
}

/* All units of a step that are this pass's. */
static int rank_pipe_units(rank *r, size_t step) {
    const uint64_t first = (uint64_t)step * r->o.units, before = rank_pass_sent(r);
    size_t unit;
    memopt_status s;

    if (rank_said(r, "A round", memopt_shard_next_unit(r->shard, &unit))) return 1;
    if (rank_load_slots(r, first, UINT64_MAX, 0)) return 1;
    s = pipeline_step(r->pipe, r->inputs, first + pass_of(&r->o, r->number));
    if (rank_pipe_said(r, "A pass", s)) return 1;
    r->pass_sent += rank_pass_sent(r) - before;
    return rank_said(r, "A round", memopt_shard_next_unit(r->shard, &unit)); /* there is none */
}
#endif
