/* plan.h - what an engine on the CPU has beside engine.h: pages, the optimizer, a conventional engine's activations, what a
   pass does, figures that are the CPU's. */
#ifndef GPT_PLAN_H
#define GPT_PLAN_H

static memopt_status step_tensor(void *user, size_t tensor, const void *gradients) {
    return memopt_optim_apply_with(((const model *)user)->optim, tensor, gradients);
}

static void describe_cpu_model(engine *e, const options *o, const memopt_ops *ops) {
    describe_model(e, o, ops, is_vit(o) ? add_patches : transformer_add_embedding,
                   o->lean_attention ? NULL : &whole_attention,
                   o->weights == WEIGHTS_BF16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32);
    if (!e->m.fuse) return;
    e->m.shape.done_fn = step_tensor;
    e->m.shape.user = &e->m;
}

/* Every page of the arena is had now: what is planned is there, and no page fault, no lack of memory, comes later. */
static int touch_arena(engine *e) {
    const memopt_arena_stats stats = memopt_arena_get_stats(e->arena);
    const memopt_mark mark = memopt_arena_mark(e->arena);
    const size_t rest = stats.free_bytes & ~(size_t)63;

    volatile unsigned char *const bytes = e->base;
    size_t i;

    if (rest && !memopt_arena_push(e->arena, rest, MEMOPT_TAG_OTHER))
        return said(e, "Memory for the activations", memopt_arena_error(e->arena).status);
    for (i = 0; i < stats.capacity; i += SMALLEST_PAGE) {
        const unsigned char same = bytes[i];

        bytes[i] = same;
    }
    return said(e, "Memory for the activations", memopt_arena_rewind(e->arena, mark));
}

static int push_optimizer(engine *e,
                          const options *o) { /* with its states; where bytes are only counted it stays NULL */
    memopt_optim_desc *d = &e->optim_desc;
    const size_t below = memopt_arena_get_stats(e->arena).used_low;
    *d = describe_optimizer(e, o, e->m.shape.ops.threads);
    d->tensors = e->m.tensors;
    d->tensor_count = e->m.tensor_count;
    d->error = &e->error;
    if (said(e, "The optimizer", memopt_optim_open(d, e->arena, &e->optim))) return 1;
    e->by_tag[TAG_OPTIMIZER] += memopt_arena_get_stats(e->arena).used_low - below;
    return 0;
}

static int push_ahead(engine *e) { /* the place of batches that are read ahead */
    const size_t bytes = e->m.vit ? 0 : data_feed_bytes(e->m.shape.batch, e->m.shape.length);

    if (!e->m.vit && !bytes) return said(e, "The batches", MEMOPT_ERR_OVERFLOW);
    return bytes && !(e->ahead = push(e, bytes, TAG_DATA));
}

static int push_list(engine *e, const options *o) { /* of all gradients, and what it takes to look at them */
    size_t bytes = 0;
    list_gradients(e);
    if (!measures_norm(o) && o->gradients != MEMOPT_TYPE_F16) return 0;
    if (said(e, "The gradients", memopt_gradients_scratch(&e->list, &bytes))) return 1;
    e->list.scratch_bytes = bytes;
    return !(e->list.scratch = push(e, bytes, TAG_WORKING));
}

static int push_conventional(engine *e) {
    conventional *const x = (conventional *)calloc(1, sizeof *x);
    size_t scratch = 0;
    int i;
    if (!x) return said(e, "The tables of the model", MEMOPT_ERR_MEMORY);
    e->plain = x;
    conventional_count(&e->m, x);
    for (i = 0; i < ACTIVATIONS; ++i) {
        const size_t bytes = x->counts[i] * (of_each_layer(i) ? e->m.layers : 1) * sizeof(float);

        if (!(x->acts[i] = (float *)push(e, bytes, TAG_KEPT)) || !(x->grads[i] = (float *)push(e, bytes, TAG_WORKING)))
            return 1;
    }
    if (!(x->valid = (size_t *)push(e, e->m.shape.length * sizeof(size_t), TAG_WORKING))) return 1;
    x->ops = e->m.shape.ops;
    x->ops.count_scratch = &scratch;
    if (said(e, "The operators", conventional_pass(&e->m, x, e->input, 1))) return 1;
    x->ops.count_scratch = NULL;
    x->ops.scratch_bytes = scratch;
    return !(x->ops.scratch = push(e, scratch, TAG_WORKING));
}

/* ---- what a pass does: which segments how often ---- */
enum {
    EMBEDDING_KIND,
    ATTENTION_KIND,
    MLP_KIND,
    HEAD_KIND,
    KINDS,             /* of segments */
    PIECES = 2 * KINDS /* forwards, then backwards */
};

typedef struct work {
    size_t calls[PIECES];
    double cost, of[KINDS]; /* multiply-adds of all, and of each kind */
} work;

static size_t kind_of(size_t segment, size_t count) {
    return !segment ? EMBEDDING_KIND : segment + 1 == count ? HEAD_KIND : segment % 2 ? ATTENTION_KIND : MLP_KIND;
}

static work pass_work(const engine *e) {
    work w;
    size_t count = 0, i;
    const memopt_action *actions = memopt_tape_actions(e->tape, &count);

    memset(&w, 0, sizeof w);
    w.cost = memopt_tape_get_stats(e->tape).cost;
    for (i = 0; i < count; ++i) {
        const size_t kind = kind_of(actions[i].index, e->segment_count);

        if (actions[i].op == MEMOPT_ACTION_BACKWARD) {
            ++w.calls[KINDS + kind];
            w.of[kind] += e->segments[actions[i].index].backward_cost;
        }
        if (actions[i].op == MEMOPT_ACTION_FORWARD || actions[i].op == MEMOPT_ACTION_FORWARD_SAVE) {
            ++w.calls[kind];
            w.of[kind] += e->segments[actions[i].index].forward_cost;
        }
    }
    return w;
}

/* ---- figures of a run ---- */
static void held_now(const engine *e, size_t *bytes, size_t *peak) {
    (void)e;
    *bytes = process_bytes("/proc/self/status", "VmRSS:");
    *peak = process_highest();
}

/* Operations a second of products as this network has them, in the arena of a training that is over. */
static double gemm_peak(engine *e) {
    enum { TRIES = 60 }; /* the first ones wake the workers */

    const int wrong = memopt_arena_rewind(e->arena, e->empty) || memopt_arena_trim(e->arena);
    const size_t scratch = gemm_bytes(&e->m.shape.ops), bytes = memopt_arena_get_stats(e->arena).capacity;
    memopt_product p = { 0 };
    memopt_ops ops = e->m.shape.ops;
    double best = 0, since, begin;
    size_t n = 512;
    float *x;
    int i;

    while (n > 16 && 3 * n * n * sizeof *x + scratch + 64 > bytes) n /= 2;
    x = (float *)memopt_arena_push_zero(e->arena, 3 * n * n * sizeof *x, MEMOPT_TAG_OTHER);
    ops.scratch = scratch ? memopt_arena_push(e->arena, scratch, MEMOPT_TAG_SCRATCH) : NULL;
    if (wrong || !x || (scratch && !ops.scratch)) return 0;
    p.rows = p.columns = p.depth = p.left_stride = p.right_stride = p.result_stride = n;
    p.right_transposed = 1;
    p.left = x;
    p.right = x + n * n;
    p.result = x + 2 * n * n;
    begin = now();
    for (i = 0; i < TRIES && now() - begin < 0.3; ++i) {
        since = now();
        if (multiply(&ops, p)) break;
        if (2.0 * (double)(n * n * n) / (now() - since) > best) best = 2.0 * (double)(n * n * n) / (now() - since);
    }
    return best;
}

static uint64_t weights_hash(const model *m) {
    uint64_t h = HASH_BEGIN;
    size_t i;

    for (i = 0; i < m->tensor_count; ++i) {
        const memopt_optim_tensor *t = &m->tensors[i];
        const size_t bytes = t->count * memopt_type_bytes(m->shape.weight_type);

        h = hash_bytes(h, (const unsigned char *)t->weights, bytes);
        if (t->extra) h = hash_bytes(h, (const unsigned char *)t->extra, bytes);
    }
    return h;
}
#endif
