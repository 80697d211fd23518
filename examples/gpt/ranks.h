/* ranks.h - one network over many ranks: memopt_shard cuts weights, gradients and states among them, and this is what
   an engine adds to have that. What a rank is says ranks_cpu.h (a thread, or a process of mpirun) or ranks_card.h (a
   thread with a card).

   Groups   What is used together: each segment of the tape, a half of a block, is a group. The embedding, and the head
            whose weights it is, are one, which has two backwards.
   Calls    A callback of the tape tells the shard what it is about to use, looks where that is, and, when the gradients
            of a group are complete, lets them go: rank_call(). What is used when is what the tape's actions say.
   Units    A step has so many batches, whatever the number of ranks; which sequences, what dropout, how much of the
            loss: all that goes by a batch's number. So weights have the same bits for any number of ranks.
   Plan     memopt_shard_plan() and a tape over an arena that only counts tell what each rank will hold and send; a
            ledger and the communicator tell what it was. */
#ifndef GPT_RANKS_H
#define GPT_RANKS_H

enum { HELD_PARAMETERS, HELD_GRADIENTS, HELD_OPTIMIZER, HELD_ACTIVATIONS, HELD_BUCKETS, HELD_WORKING, HELD_DATA, HELD };
static const char *const held_names[HELD] = { "parameters", "gradients", "optimizer", "activations", "buckets",
    "working", "data" };
static const memopt_tag held_tags[HELD] = { MEMOPT_TAG_PARAMETERS, MEMOPT_TAG_GRADIENTS, MEMOPT_TAG_OPTIMIZER,
    MEMOPT_TAG_ACTIVATIONS, MEMOPT_TAG_COMMUNICATION, MEMOPT_TAG_SCRATCH, MEMOPT_TAG_OTHER };

typedef struct traffic { uint64_t calls, sent, received; } traffic;

typedef struct rank_report { /* plain values: ranks send them to each other */
    uint64_t predicted[HELD + 1], measured[HELD + 1]; /* bytes of the arena by tag, when all of it is highest; that */
    traffic  planned, counted; /* of weights and gradients, in all steps; of LAMB, LARS, Adafactor with their sums */
    traffic  others;           /* norms and losses: counted only */
    double work;               /* in a pipeline: multiply-adds, of the mean of its ranks */
    uint64_t pass_planned, pass_counted; /* bytes that ranks of a pass send each other in passes */
    uint64_t slow_room, slow_planned[2], slow_counted[2]; /* bytes of the stores; that all steps read and write */
    uint64_t slow_memory;      /* that stores in files take beside the arena */
    memopt_feed_stats feed;
    uint64_t process;          /* highest, with all that is beside the arena; of threads that of all of them */
} rank_report;

struct rank;
typedef struct rank_layer { /* what a callback of the tape is given: the part's own, and whose it is */
    memopt_tape_layer layer;
    struct rank *rank;
    size_t group;
    int    completes; /* 1: its backward is the last of the group */
} rank_layer;

typedef struct rank {
    engine       *e;            /* in `here` */
    options       o;            /* its `accumulate` is the units: the loss and the rate go by all of them */
    rank_here     here;         /* of a CPU or a card */
    data          d;
    size_t        number;       /* of this rank */
    memopt_transport transports[COMMS];
    memopt_comm  *comms[COMMS];
    memopt_shard *shard;
    rank_layer   *layers;
    memopt_tape_layer *calls;   /* to them */
    memopt_shard_tensor *tensors;
    memopt_shard_use *uses;
    size_t       *use_layers;   /* of each use */
    size_t        use_count;
    double       *losses;       /* of all units: those of a rank side by side, behind them whether it is to stop */
    size_t rounds, skipped;     /* of a step; steps not applied: outliers, or not finite with a loss scale */
    traffic       others;
    transformer_attention_fns ring; /* of a cut by length */
    uint64_t      pass_sent;    /* to the others of its pass, in passes */
    struct pipeline *pipe;      /* NULL: no rank shares a pass by layers; else: */
    const struct pipeline_stage *stages; /* of all its ranks */
    transformer_part tokens;    /* the last stage's copy */
    int32_t      *slots;        /* ids and targets of each micro-batch */
    const void  **inputs;
    int           stops;        /* somebody pressed Ctrl-C */
    struct saves  saves;
    rank_report  *reports;      /* of all ranks; the own one is filled in before they are sent */
    outcome      *out;          /* of rank 0; of the others NULL */
    int           wrong, told;  /* told: by another rank, that something is wrong */
} rank;

typedef struct ranks_plan {
    options     *o;
    size_t       steps;         /* that figures are of: planned, or trained */
    size_t       tape, evaluation, budget; /* bytes of a pass, and without a backward; what the tape may take */
    uint64_t     kept[2];       /* bytes of outputs that a pass reads and writes */
    uint64_t     sends;         /* bytes that a pass sends within itself */
    struct pipeline_stage *stages; /* of a pipeline: what each has; what each of its ranks takes */
    struct pipeline_bytes *pipes;
    double      *costs;         /* of each stage's forward, then of each one's backward */
    double       waiting;       /* share of a step in which ranks of a pipeline wait, by these */
    size_t       tokens;        /* of a copy of tied tokens */
    size_t       data, working; /* of the arena, before the shard */
    rank_report *reports;
    memopt_shard_bytes *bytes;  /* of each rank */
    void       (*tell_fn)(rank *r, const struct ranks_plan *p, outcome *out); /* NULL, or who looks at it, too */
    void        *user;          /* of tell_fn */
} ranks_plan;

/* ---- what a CPU does in its way, and a card in its; 1: there is a message ---- */
static engine *rank_engine(rank *r);
static int rank_prepare(rank *r, int plans);         /* what operators need; unless it plans, the transports */
static int rank_describe_model(rank *r);
static int rank_open_arena(rank *r, size_t capacity); /* and what lies in it before the shard; 0 only counts */
static void rank_describe_tape(const rank *r, memopt_tape_desc *d);  /* a store of its own */
static void rank_describe_memory(rank *r, memopt_shard_desc *d);     /* where a shard's parts lie, who steps them */
static int rank_plan_stores(rank *r, memopt_shard_desc *d, const memopt_shard_bytes *b, rank_report *told);
static size_t rank_bytes(const rank *r, const ranks_plan *p);        /* of the arena */
static int rank_ready_passes(rank *r);               /* the model is there, and the tape is not */
static int rank_ready_shard(rank *r, const memopt_shard_bytes *b, memopt_shard_desc *d);
static int rank_open_saves(rank *r, saves *s);       /* its comm, and how it lists what lies elsewhere */
static int rank_pass(rank *r, uint64_t number, size_t round); /* of batch `number` of the run */
static int rank_load(rank *r, uint64_t number, int held_back, int32_t *ids, int32_t *targets); /* to these places */
static void rank_take_up(rank *r, const int32_t *ids, size_t unit); /* of those loaded so: what a pass of it goes by */
static int rank_read_losses(rank *r);                /* of the passes of a step */
static int rank_evaluate(rank *r, size_t number, double *loss); /* of a batch that is held back */
static memopt_status rank_exchange(rank *r, const memopt_comm_call *call); /* among all, of the host's memory */
/* As slice_fn; user is NULL. */
static int rank_init_slice(rank *r, size_t tensor, memopt_optim_tensor *slice, void *user);
static int rank_hash_weights(rank *r, size_t tensor, memopt_optim_tensor *slice, void *hash);
static int rank_hash_extra(rank *r, size_t tensor, memopt_optim_tensor *slice, void *hash);
static void rank_stored(const rank *r, uint64_t *moved); /* bytes that stores have read and written */
static int rank_after(rank *r);                      /* the training */
static void rank_leave(rank *r);                     /* the last of its thread, whether it failed or not */
static void rank_close(rank *r);
static int ranks_run(const ranks_plan *p, outcome *out);
static size_t own_rank(void);                        /* of this process */

static int keeps_in_file(const options *o) { return (o->offload & OFFLOAD_ACTIVATIONS) && o->offload_to; }

static size_t round64(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* Where the memory of the tape begins that is asked for at a place; a file is written from whole sectors. */
static size_t pushed(const options *o, size_t bytes) {
    const size_t unit = keeps_in_file(o) ? (size_t)RANK_SECTOR : (size_t)RANK_ALIGNMENT;

    return (bytes + unit - 1) & ~(unit - 1);
}

#include "ranks_cut.h"

/* ---- what a callback does ---- */
static int rank_said(rank *r, const char *what, memopt_status s) {
    if (s && r->shard) r->e->error = memopt_shard_error(r->shard);
    return said(r->e, what, s);
}

/* Where the weights of a part are now, and its gradients. */
static void rank_place(const rank *r, transformer_part *part) {
    part->weights = memopt_shard_weights(r->shard, part->first_tensor);
    part->gradients = memopt_shard_gradients(r->shard, part->first_tensor);
}

static memopt_status rank_use(rank *r, size_t group, int is_backward) {
    return is_backward ? memopt_shard_backward(r->shard, group) : memopt_shard_forward(r->shard, group);
}

static memopt_status rank_pipe_call(rank_layer *l, const memopt_tape_call *call);

static memopt_status rank_call(const memopt_tape_call *call) {
    rank_layer *l = (rank_layer *)call->user;
    rank *r = l->rank;
    memopt_tape_call inner = *call;
    memopt_status s;

    if (r->pipe) return rank_pipe_call(l, call);
    s = rank_use(r, l->group, call->is_backward);
    inner.user = l->layer.user;
    if (!s) {
        rank_place(r, (transformer_part *)l->layer.user);
        if (l->group == 0) rank_place(r, &r->e->m.embedding); /* whose tokens the head needs */
        s = call->is_backward ? l->layer.backward_fn(&inner) : l->layer.forward_fn(&inner);
        if (s) return s;
        if (call->is_backward && l->completes) s = memopt_shard_reduce(r->shard, l->group);
    }
    if (s && call->error) *call->error = memopt_shard_error(r->shard);
    return s;
}

/* ---- groups, and what is used when ---- */
static void rank_groups(rank *r) {
    const size_t last = r->e->segment_count - 1, outer = r->e->m.shape.untied ? 2 : 1; /* groups of both ends */
    size_t i, t;

    for (i = 0; i <= last; ++i) {
        rank_layer *l = &r->layers[i];
        const transformer_part *part = (const transformer_part *)r->e->layers[i].user;

        l->layer = r->e->layers[i];
        l->rank = r;
        l->group = i == 0 ? 0 : i == last ? outer - 1 : i - 1 + outer;
        l->completes = i < last || r->e->m.shape.untied;
        r->calls[i].forward_fn = r->calls[i].backward_fn = rank_call;
        r->calls[i].user = l;
        for (t = part->first_tensor; t < part->first_tensor + part->tensor_count; ++t) {
            r->tensors[t].count = r->e->m.tensors[t].count;
            r->tensors[t].columns = r->e->m.tensors[t].columns;
            r->tensors[t].rates = r->e->m.tensors[t].group;
            r->tensors[t].adamw = r->e->m.tensors[t].adamw;
            r->tensors[t].absent = r->e->m.tensors[t].first > 0; /* here is all of a tensor, or nothing */
            r->tensors[t].group = l->group;
        }
    }
}

/* The tape's actions are the same on all ranks, so they use groups in the same order. */
static int rank_uses(rank *r) {
    size_t count, i;
    const memopt_action *actions = memopt_tape_actions(r->e->tape, &count);

    free(r->uses); free(r->use_layers);
    r->use_count = 0;
    r->uses = (memopt_shard_use *)calloc(count, sizeof *r->uses);
    r->use_layers = (size_t *)calloc(count, sizeof *r->use_layers);
    if (!r->uses || !r->use_layers) return said(r->e, "The uses of groups", MEMOPT_ERR_MEMORY);
    for (i = 0; i < count; ++i) {
        const int op = actions[i].op, is_backward = op == MEMOPT_ACTION_BACKWARD;

        if (!is_backward && op != MEMOPT_ACTION_FORWARD && op != MEMOPT_ACTION_FORWARD_SAVE) continue;
        r->use_layers[r->use_count] = actions[i].index;
        r->uses[r->use_count].group = r->layers[actions[i].index].group;
        r->uses[r->use_count++].is_backward = is_backward;
    }
    return 0;
}

static int rank_push_slots(rank *r);
static int plan_pipeline(rank *r, ranks_plan *p);

/* ---- to open: the model and the tape over an arena, which only counts where capacity is 0 ---- */
/* So that they pass the system's cache, and nothing is copied. Of the last segment it is the loss alone. */
static void rank_round_outputs(rank *r) {
    size_t i;

    for (i = 0; keeps_in_file(&r->o) && i + 1 < r->e->segment_count; ++i)
        r->e->segments[i].output_bytes = pushed(&r->o, r->e->segments[i].output_bytes);
}

static int rank_open_model(rank *r, size_t capacity) {
    engine *e = r->e;
    model *m = &e->m;

    if (rank_describe_model(r) || take_tables(e)) return 1;
    r->layers = (rank_layer *)calloc(e->segment_count, sizeof *r->layers);
    r->calls = (memopt_tape_layer *)calloc(e->segment_count, sizeof *r->calls);
    r->tensors = (memopt_shard_tensor *)calloc(m->tensor_count, sizeof *r->tensors);
    if (!r->layers || !r->calls || !r->tensors) return said(e, "The tables of the model", MEMOPT_ERR_MEMORY);
    e->alignment = pushed(&r->o, 1);
    if (rank_open_arena(r, capacity) || (r->o.pipeline > 1 && rank_push_slots(r))) return 1;
    m->weights = m->gradients = e->input; /* until a callback knows better: sizes alone are asked for */
    describe_chain(m, e->layers, e->segments);
    rank_round_outputs(r);
    rank_groups(r);
    return said(e, "The layers", memopt_tape_describe(e->layers, e->segments, e->segment_count, &e->error));
}

static int rank_open_tape(rank *r, size_t budget) { /* budget: of --keep budget */
    memopt_tape_desc d = describe_tape(r->e, &r->o);

    memopt_tape_destroy(r->e->tape);
    r->e->tape = NULL;
    d.layers = r->calls;
    d.error = &r->e->error;
    if (r->o.keep == KEEP_BUDGET) d.budget = budget;
    rank_describe_tape(r, &d);
    if (said(r->e, "The plan of the activations", memopt_tape_create(&d, &r->e->tape))) return 1;
    return rank_uses(r);
}

static memopt_shard_desc rank_describe_shard(rank *r) {
    memopt_shard_desc d;

    memset(&d, 0, sizeof d);
    d.stage = (int)r->o.stage;
    d.tensors = r->tensors;
    d.tensor_count = r->e->m.tensor_count;
    d.uses = r->uses;
    d.use_count = r->use_count;
    d.units = r->o.units;
    d.interleaved = r->o.pipeline > 1;
    d.unit_ranks = length_ranks(&r->o);
    d.gradients = r->o.gradients;
    d.optim = describe_optimizer(r->e, &r->o, NULL);
    d.optim.gradients = MEMOPT_TYPE_F32;
    d.comm = r->comms[r->comms[OWN_SET] ? OWN_SET : ALL_RANKS];
    d.replicas = r->comms[BETWEEN_SETS];
    d.others = r->comms[OWN_PASS];
    d.error = &r->e->error;
    rank_describe_memory(r, &d);
    return d;
}

/* ---- the plan ---- */
static size_t rank_units(const options *o, size_t number) { /* of a step, that this rank computes */
    return o->units / pass_count(o) + (pass_of(o, number) < o->units % pass_count(o));
}

/* What a shard takes of the arena, by tag; returns the sum. */
static size_t predict_shard(const memopt_shard_bytes *b, uint64_t *held) {
    held[HELD_PARAMETERS] = round64(b->weights) + round64(b->window) + round64(b->landings) + round64(b->extra);
    held[HELD_GRADIENTS] = round64(b->gradients) + round64(b->sums);
    held[HELD_OPTIMIZER] = round64(b->states) + round64(b->tiles) + b->scratch; /* of a card, and the last */
    held[HELD_BUCKETS] = round64(b->buckets);
    return (size_t)(held[HELD_PARAMETERS] + held[HELD_GRADIENTS] + held[HELD_OPTIMIZER] + held[HELD_BUCKETS]);
}

/* What of the arena lies before the shard. */
static size_t beside_shard(const ranks_plan *p) { return p->data + p->working; }

/* Of weights and Muon's momenta: what each other rank of the set sends goes to all, so in equal shares. */
static uint64_t weights_received(const ranks_plan *p, size_t number) {
    const size_t size = set_ranks(p->o), own = holder_of(p->o, number);
    uint64_t sum = 0;
    size_t i;

    for (i = own / size * size; i < own / size * size + size; ++i)
        if (i != own) sum += p->bytes[i * model_ranks(p->o) + number % model_ranks(p->o)].sent_weights;
    return size > 1 ? sum / (size - 1) : 0;
}

static void predict(const ranks_plan *p, size_t number) {
    rank_report *x = &p->reports[number];
    const memopt_shard_bytes *b = &p->bytes[number];
    const uint64_t units = rank_units(p->o, number);
    size_t at, tape;

    x->predicted[HELD_DATA] = p->data;
    x->predicted[HELD_WORKING] = p->working;
    at = beside_shard(p) + predict_shard(b, x->predicted);
    if (p->tokens) x->predicted[HELD_PARAMETERS] += pushed(p->o, at) - at + pushed(p->o, p->tokens);
    if (p->tokens) at = pushed(p->o, at) + pushed(p->o, p->tokens);
    tape = most(units ? p->tape : 0, p->o->validate ? p->evaluation : 0); /* 0: this rank never has a pass */
    if (tape) x->predicted[HELD_ACTIVATIONS] = pushed(p->o, at) - at + round64(tape);
    x->predicted[HELD] = at + x->predicted[HELD_ACTIVATIONS];
    x->planned.calls = b->calls * p->o->steps;
    x->planned.sent = (b->sent_gradients + b->sent_weights + b->sent_replicas) * p->o->steps;
    x->planned.received = (b->sent_gradients + weights_received(p, number) + b->sent_replicas) * p->o->steps;
    x->pass_planned = p->sends * units * p->o->steps;
    /* where each set has as many units as any other */
    x->slow_planned[0] = (b->slow_read + p->kept[0] * units) * p->o->steps;
    x->slow_planned[1] = (b->slow_written + p->kept[1] * units) * p->o->steps;
}

/* What each rank holds beside activations; *largest is the most. */
static int plan_shards(rank *r, ranks_plan *p, size_t *largest) {
    memopt_shard_desc d = rank_describe_shard(r);
    uint64_t held[HELD] = { 0 };
    size_t i;

    d.rank_count = set_ranks(&r->o);
    d.replica_count = r->o.replicas;
    for (*largest = i = 0; i < r->o.ranks; ++i) {
        d.rank = holder_of(&r->o, i) % d.rank_count;
        if (said(r->e, "The plan of the ranks", memopt_shard_plan(&d, &p->bytes[i]))) return 1;
        if (rank_plan_stores(r, &d, &p->bytes[i], &p->reports[i])) return 1;
        *largest = most(*largest, predict_shard(&p->bytes[i], held));
    }
    return 0;
}

static int budget_of_rank_is_below(rank *r, const ranks_plan *p, size_t held) {
    memopt_tape_desc d = describe_tape(r->e, &r->o);
    size_t need = 0;

    d.layers = r->calls;
    d.error = &r->e->error;
    if (said(r->e, "The plan of the activations", memopt_tape_min_budget(&d, &need))) return 1;
    if (r->o.budget >= held + need) return 0;
    snprintf(r->e->message, sizeof r->e->message, "A budget of %.1f MB a rank is too small: it holds %.1f MB with "
             "--stage %zu, and activations need %.1f MB or more; %s.",
             (double)r->o.budget / 1e6, (double)(held - beside_shard(p)) / 1e6, r->o.stage,
             (double)(need + beside_shard(p)) / 1e6, RANK_LESS);
    return 1;
}

/* Bytes that a pass reads (0) or writes (1). */
static uint64_t rank_kept_bytes(const rank *r, int writes) {
    const int op = writes ? MEMOPT_ACTION_WRITE : MEMOPT_ACTION_READ;
    const memopt_action *actions;
    uint64_t bytes = 0;
    size_t count, i;

    actions = memopt_tape_actions(r->e->tape, &count);
    for (i = 0; i < count; ++i) if (actions[i].op == op) bytes += r->e->segments[actions[i].index - 1].output_bytes;
    return bytes;
}

/* Which groups are used when depends on the tape, how much the shard takes on that, and what a budget leaves for the
   tape on the shard: so plan until it fits. What a shard has once needed is set aside from then on: that ends. */
static int plan_all(rank *r, ranks_plan *p) {
    const int has_budget = r->o.keep == KEEP_BUDGET;
    size_t held = 0, largest;

    if (rank_open_model(r, 0)) return 1;
    p->data = r->e->by_tag[TAG_DATA];
    p->working = r->e->by_tag[TAG_WORKING];
    if (has_budget && plan_shards(r, p, &largest)) return 1; /* a forward and a backward of each group */
    if (has_budget) held = beside_shard(p) + largest;
    for (;;) {
        if (has_budget && budget_of_rank_is_below(r, p, held)) return 1;
        p->budget = has_budget ? r->o.budget - held : SIZE_MAX;
        if (rank_open_tape(r, p->budget) || plan_shards(r, p, &largest)) return 1;
        p->tape = memopt_tape_get_stats(r->e->tape).peak;
        p->evaluation = memopt_tape_get_stats(r->e->tape).evaluate_peak;
        p->kept[0] = rank_kept_bytes(r, 0);
        p->kept[1] = rank_kept_bytes(r, 1);
        p->sends = rank_tape_sends(r, r->e->tape, 0);
        if (!has_budget || pushed(&r->o, beside_shard(p) + largest) + round64(p->tape) <= r->o.budget) return 0;
        held = most(held + 64, beside_shard(p) + largest);
    }
}

static int plan_ranks(ranks_plan *p, outcome *out) {
    rank *r = (rank *)calloc(1, sizeof *r);
    size_t i;
    int wrong = !r;

    if (!wrong) {
        r->e = rank_engine(r);
        r->o = *p->o;
        wrong = rank_prepare(r, 1) || (r->o.pipeline > 1 ? plan_pipeline(r, p) : plan_all(r, p));
        snprintf(out->message, sizeof out->message, "%s", r->e->message);
        for (i = 0; !wrong && r->o.pipeline == 1 && i < r->o.ranks; ++i) predict(p, i);
        if (!wrong && p->tell_fn) p->tell_fn(r, p, out);
        for (i = 0; i < r->e->m.tensor_count; ++i) out->parameters += r->e->m.tensors ? r->e->m.tensors[i].count : 0;
        out->tokens = transformer_rows(&r->e->m.shape) * r->o.units;
        out->batch = r->o.batch;
        rank_close(r);
    } else snprintf(out->message, sizeof out->message, "No memory for the plan.");
    free(r);
    return wrong;
}

/* ---- ranks that share a pass by layers ---- */
static uint64_t rank_pass_sent(const rank *r);
static double *rank_losses(const rank *r, size_t number);
#include "ranks_pipeline.h"

/* ---- traffic ---- */
static traffic rank_traffic(const rank *r) {
    traffic x = { 0, 0, 0 };
    int i, kind;

    for (i = 0; i < OWN_PASS; ++i) { /* what ranks of a pass send each other is no weights, and no gradients */
        const memopt_comm_stats s = memopt_comm_get_stats(r->comms[i]);

        for (kind = 0; kind < 3; ++kind) {
            x.calls += s.calls[kind];
            x.sent += s.sent[kind];
            x.received += s.received[kind];
        }
    }
    return x;
}

static traffic traffic_less(traffic a, traffic b) {
    a.calls -= b.calls;
    a.sent -= b.sent;
    a.received -= b.received;
    return a;
}

static void traffic_add(traffic *to, traffic x) {
    to->calls += x.calls;
    to->sent += x.sent;
    to->received += x.received;
}

static int rank_gather(rank *r, const char *what, void *all, size_t bytes) { /* of each rank, in place */
    memopt_comm_call call;
    memopt_status s;

    memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_ALL_GATHER;
    call.bytes = bytes;
    call.send = (unsigned char *)all + r->number * bytes;
    call.receive = all;
    s = rank_exchange(r, &call);
    return said(r->e, what, s);
}

/* ---- one step ---- */
/* A round without a batch of its own: the others need the weights that are here, and send their gradients. */
static int rank_walk(rank *r) {
    memopt_status s = MEMOPT_OK;
    size_t i;

    for (i = 0; !s && i < r->use_count; ++i) {
        const rank_layer *l = &r->layers[r->use_layers[i]];
        const int is_backward = r->uses[i].is_backward;

        s = rank_use(r, l->group, is_backward);
        if (!s && is_backward && l->completes) s = memopt_shard_reduce(r->shard, l->group);
    }
    return rank_said(r, "A round", s);
}

static double *rank_losses(const rank *r, size_t number) { return r->losses + number * (r->rounds + 1); }

static uint64_t rank_pass_sent(const rank *r) { /* to the others of its pass */
    uint64_t sent = 0;
    int i;

    for (i = OWN_CUT; i < COMMS; ++i) {
        const memopt_comm_stats s = memopt_comm_get_stats(r->comms[i]);

        sent += s.sent[0] + s.sent[1] + s.sent[2];
    }
    return sent;
}

static int rank_count_pass(rank *r, uint64_t number, size_t round) {
    const uint64_t before = rank_pass_sent(r);

    if (rank_pass(r, number, round)) return 1;
    r->pass_sent += rank_pass_sent(r) - before;
    return 0;
}

static int rank_unit(rank *r, size_t step, size_t round, size_t unit) {
    engine *e = r->e;
    const uint64_t number = (uint64_t)step * r->o.units + unit;

    e->m.loss = 0;
    if (unit == MEMOPT_SHARD_NO_UNIT) return rank_walk(r);
    if (said(e, "A pass", memopt_tape_seek(e->tape, number))) return 1;
    return rank_count_pass(r, number, round);
}

/* All gradients are added up: measure them where that is asked for, then step. As apply(), of parts. */
static int rank_apply(rank *r, memopt_optim_run *run) {
    engine *e = r->e;
    const int scaling = r->o.gradients == MEMOPT_TYPE_F16;
    const traffic before = rank_traffic(r);
    memopt_gradient_total total;
    memopt_status s = MEMOPT_OK;
    double clip = 1;
    int leaves_out;

    memset(&total, 0, sizeof total);
    total.factor = 1;
    if (scaling || measures_norm(&r->o)) s = memopt_shard_measure(r->shard, scaling ? &e->scaler : NULL, &total);
    traffic_add(&r->others, traffic_less(rank_traffic(r), before));
    if (rank_said(r, "The gradients", s)) return 1;
    if (total.overflow && !scaling) {
        snprintf(e->message, sizeof e->message, "The gradients are not finite: a smaller --lr, or --warmup, may help.");
        return 1;
    }
    if (r->o.clip > 0 && !total.overflow)
        if (said(e, "Clipping", memopt_clip_norm(sqrt(total.squares) * total.factor, r->o.clip, &clip))) return 1;
    run->gradient_factor = total.factor * clip;
    leaves_out =
        total.overflow
        || is_outlier(e, &r->o, run->step + e->windows.skipped, sqrt(total.squares) * total.factor, r->out != NULL);
    s = leaves_out ? memopt_shard_cancel(r->shard) : memopt_shard_step(r->shard, run);
    if (rank_said(r, "The step", s) || rank_share_tokens(r)) return 1;
    r->skipped += (size_t)leaves_out;
    return scaling && said(e, "The loss scale", memopt_scaler_update(&e->scaler, total.overflow));
}

/* The rank that has the loss of a pass. */
static size_t rank_of_loss(const options *o, size_t pass) { return pass * pass_ranks(o) + (o->pipeline - 1) * o->tensor; }

/* Of all units, in their order: the same on every rank. */
static int rank_add_losses(rank *r) {
    const traffic before = rank_traffic(r);
    size_t u;

    if (rank_read_losses(r)) return 1;
    rank_losses(r, r->number)[r->rounds] = saves_stop;
    if (rank_gather(r, "The loss", r->losses, (r->rounds + 1) * sizeof *r->losses)) return 1;
    for (r->e->m.loss = 0, u = 0; u < r->o.units; ++u)
        r->e->m.loss += rank_losses(r, rank_of_loss(&r->o, u % pass_count(&r->o)))[u / pass_count(&r->o)];
    for (u = 0; u < r->o.ranks; ++u) r->stops |= rank_losses(r, u)[r->rounds] > 0;
    traffic_add(&r->others, traffic_less(rank_traffic(r), before));
    return 0;
}

static int rank_step(rank *r, size_t number) {
    memopt_optim_group groups[2];
    memopt_optim_run run;
    model *m = &r->e->m;
    size_t round, unit = MEMOPT_SHARD_DONE;

    memset(&run, 0, sizeof run);
    describe_groups(r->o.optimizer, rate_at(&r->o, number), groups, &run);
    run.step = number + 1 - r->e->windows.skipped;
    run.fused = r->o.fuse_step;
    run.clips_norm = r->o.clip > 0; run.scales_loss = r->o.gradients == MEMOPT_TYPE_F16;
    m->head.rule.scale = run.scales_loss ? (double)r->e->scaler.scale : 1;
    m->head.targets = r->e->targets;
    if (r->pipe && rank_pipe_units(r, number)) return 1;
    for (round = 0; !r->pipe; ++round) {
        memopt_status s = MEMOPT_OK;

        if (run.fused && round + 1 == r->rounds) s = memopt_shard_step_inside(r->shard, &run);
        if (!s) s = memopt_shard_next_unit(r->shard, &unit);
        if (rank_said(r, "A round", s)) return 1;
        if (unit == MEMOPT_SHARD_DONE) break;
        if (rank_unit(r, number, round, unit)) return 1;
    }
    if (r->o.outliers > 0) return rank_add_losses(r) || rank_apply(r, &run); /* by the loss, too */
    return rank_apply(r, &run) || rank_add_losses(r);
}

/* ---- a whole run of one rank ---- */
/* What this rank has of a tensor, slice by slice. */
typedef int slice_fn(rank *r, size_t tensor, memopt_optim_tensor *slice, void *user);

static int rank_each_slice(rank *r, const char *what, size_t tensor, slice_fn *fn, void *user) {
    memopt_optim_tensor part, slice;
    size_t at;

    memset(&part, 0, sizeof part);
    (void)memopt_shard_part(r->shard, tensor, &part);
    for (at = part.first; at < part.first + part.held; at = slice.first + slice.held) {
        if (rank_said(r, what, memopt_shard_bring(r->shard, tensor, at, &slice))) return 1;
        if (fn(r, tensor, &slice, user) || rank_said(r, what, memopt_shard_put(r->shard))) return 1;
    }
    return 0;
}

typedef struct rank_hashed { uint64_t hash, owner; } rank_hashed; /* of a tensor: which of those that have the model has it; 0: unknown */

/* What this rank has of a tensor, unless another one of its pass has it, too, and comes first. */
static int rank_hash_own(rank *r, size_t tensor, int extra, rank_hashed *h) {
    const uint64_t own = r->number % model_ranks(&r->o) + 1;

    if (r->tensors[tensor].absent || (h->owner && h->owner != own)) return 0;
    h->owner = own;
    return rank_each_slice(r, "The hash", tensor, extra ? rank_hash_extra : rank_hash_weights, &h->hash);
}

/* Weights tensor by tensor, and behind each the 16 bits more that it may have: each rank goes on with what the rank
   before has left, so that the hash is that of one process, whatever is cut where. */
static int rank_hash(rank *r, uint64_t *hash) {
    const size_t holders = (r->o.stage ? set_ranks(&r->o) : 1) * model_ranks(&r->o);
    rank_hashed h = { HASH_BEGIN, 0 };
    memopt_comm_call call;
    memopt_status s = MEMOPT_OK;
    size_t t, extra;

    memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_BROADCAST;
    call.bytes = sizeof h;
    call.send = call.receive = &h;
    for (t = 0; t < r->e->m.tensor_count; ++t)
        for (extra = 0; extra < (r->o.weights == WEIGHTS_SPLIT ? 2 : 1); ++extra)
            for (h.owner = 0, call.root = 0; call.root < holders && !s; ++call.root) {
                if (call.root == r->number && rank_hash_own(r, t, extra != 0, &h)) return 1;
                s = rank_exchange(r, &call);
            }
    *hash = h.hash;
    return said(r->e, "The hash", s);
}

/* What was planned for all steps, of those that were trained. */
static void rank_planned_for(rank_report *x, uint64_t all, uint64_t steps) {
    x->planned.calls = x->planned.calls / all * steps;
    x->planned.sent = x->planned.sent / all * steps;
    x->planned.received = x->planned.received / all * steps;
    x->pass_planned = x->pass_planned / all * steps;
    x->slow_planned[0] = x->slow_planned[0] / all * steps;
    x->slow_planned[1] = x->slow_planned[1] / all * steps;
}

static void rank_measure(rank *r, traffic counted, uint64_t steps) {
    rank_report *own = &r->reports[r->number];
    const memopt_shard_desc d = rank_describe_shard(r);
    memopt_shard_bytes b;
    size_t now, peak;
    int t;

    for (t = 0; t < HELD; ++t) own->measured[t] = memopt_ledger_usage(r->e->ledger, held_tags[t]).at_peak;
    own->measured[HELD] = memopt_ledger_total(r->e->ledger).peak;
    own->counted = counted;
    own->others = r->others;
    own->pass_counted = r->pass_sent;
    held_now(r->e, &now, &peak);
    own->process = peak;
    own->feed = memopt_feed_get_stats(r->d.feed);
    rank_planned_for(own, r->o.steps, steps);
    if (d.slow && !memopt_shard_plan(&d, &b)) { /* a step left out moves and says nothing */
        own->slow_planned[0] -= r->skipped * b.slow_written;
        own->slow_planned[1] -= r->skipped * b.slow_written;
        own->planned.calls -= set_ranks(&r->o) > 1 ? r->skipped : 0;
        if (d.stage == 0 || d.stage == 3) own->planned.sent = own->planned.received -= r->skipped * (set_ranks(&r->o) - 1);
    }
    if ((d.stage != 1 && d.stage != 2) || set_ranks(&r->o) == 1 || memopt_shard_plan(&d, &b)) return;
    own->planned.sent -= r->skipped * b.sent_weights; /* which had not changed */
    own->planned.received -= r->skipped * b.sent_weights;
    own->planned.calls -= r->skipped * (r->tensors[d.tensor_count - 1].group + 1);
}

/* The mean loss of what is held back, as validate() of one process: each pass looks at a batch, or at as many as are in
   its pipeline, and all add them up. */
static int rank_validate(rank *r) {
    const size_t batches = data_held_batches(&r->d, r->o.batch, r->o.context), passes = pass_count(&r->o);
    const size_t at_once = r->pipe ? r->o.units : passes;
    double sum = 0;
    size_t i, k;

    for (i = 0; i < batches; i += at_once) {
        const size_t own = least(i + pass_of(&r->o, r->number), batches - 1); /* beyond the last: all use the same weights together */

        if (r->pipe ? rank_pipe_evaluate(r, i, batches) : rank_evaluate(r, own, rank_losses(r, r->number))) return 1;
        if (rank_gather(r, "The loss", r->losses, (r->rounds + 1) * sizeof *r->losses)) return 1;
        for (k = 0; k < at_once && i + k < batches; ++k)
            sum += rank_losses(r, rank_of_loss(&r->o, k % passes))[k / passes] * (double)r->o.units;
    }
    if (r->out) r->out->held_steps = (uint32_t)r->o.validate;
    if (r->out) r->out->held[r->out->held_count++] = (float)(sum / (double)batches);
    /* stage 3: the last group is still there, and a step is planned from none */
    return r->o.stage == 3 && rank_said(r, "The weights", memopt_shard_share(r->shard));
}

typedef struct rank_watch { /* what validation and saves take of a run is no part of its steps */
    double   begin, begun; /* of a step: by the clock; seconds of all ranks that are threads of this process */
    uint64_t stored[2];
} rank_watch;

/* A step is done: tell it, and save where that is due. */
static int rank_stepped(rank *r, size_t done, rank_watch *w) {
    const traffic before = rank_traffic(r);
    uint64_t begun[2], moved[2];
    int i;

    if (r->out) outcome_step(r->out, r->e->m.loss, now() - w->begin, seconds_worked() - w->begun);
    if (r->out) progress(r->e, &r->o, done - (size_t)r->saves.first, done, r->out->all_steps[0]);
    rank_stored(r, begun);
    if (r->o.validate && (done % r->o.validate == 0 || done == r->o.steps) && rank_validate(r)) return 1;
    if (saves_after(&r->saves, r->e, &r->o, done, r->stops)) return 1;
    rank_stored(r, moved);
    traffic_add(&r->others, traffic_less(rank_traffic(r), before));
    for (i = 0; i < 2; ++i) w->stored[i] += moved[i] - begun[i];
    return 0;
}

static int rank_begin_weights(rank *r) {
    size_t i;

    for (i = 0; !r->o.resume && i < r->e->m.tensor_count; ++i)
        if (rank_each_slice(r, "The weights", i, rank_init_slice, NULL)) return 1;
    if (said(r->e, "The loss scale", memopt_scaler_default(&r->e->scaler))
        || rank_said(r, "The weights", memopt_shard_share(r->shard))) return 1;
    memset(&r->saves, 0, sizeof r->saves);
    r->saves.shard = r->shard;
    r->saves.tokens = r->d.tokens;
    return rank_open_saves(r, &r->saves) || saves_open(&r->saves, r->e, &r->o) || rank_share_tokens(r);
}

static int rank_train(rank *r) {
    rank_report *own = &r->reports[r->number];
    rank_watch w;
    traffic begin;
    uint64_t hash, steps;
    size_t i;

    if (rank_begin_weights(r)) return 1;
    begin = rank_traffic(r);
    rank_stored(r, w.stored);
    for (i = (size_t)r->saves.first; i < r->o.steps && !r->stops; ++i) {
        w.begin = now();
        w.begun = seconds_worked();
        if (rank_step(r, i) || rank_stepped(r, i + 1, &w)) return 1;
    }
    steps = i - r->saves.first;
    rank_measure(r, traffic_less(traffic_less(rank_traffic(r), begin), r->others), steps);
    rank_stored(r, own->slow_counted);
    for (i = 0; i < 2; ++i) own->slow_counted[i] -= w.stored[i];
    if (rank_gather(r, "The report", r->reports, sizeof *r->reports)) return 1;
    if (rank_hash(r, &hash)) return 1;
    if (!r->out) return 0;
    for (i = 0; i < r->o.ranks; ++i) outcome_feed(r->out, r->reports[i].feed);
    r->out->weights_hash = hash;
    r->out->flops_per_step = step_flops(r->e, &r->o);
    r->out->skipped = r->e->windows.skipped;
    outcome_speed(r->out, RANK_WARMS);
    return 0;
}

static int rank_open_comms(rank *r) {
    memopt_comm_desc c;
    int i;

    memset(&c, 0, sizeof c);
    c.error = &r->e->error;
    for (i = 0; i < COMMS; ++i) {
        c.transport = r->transports[i];
        c.unchecked = i >= LINK_ON; /* parts/pipeline.h says why */
        if (group_of(&r->o, i, r->number) == NO_GROUP) continue; /* of one rank alone a transport may be all 0 */
        if (said(r->e, "The communicator", memopt_comm_create(&c, &r->comms[i]))) return 1;
    }
    return 0;
}

static int rank_open_data(rank *r) {
    char *const message = r->e->message;
    const size_t n = sizeof r->e->message;

    if (!is_vit(&r->o) && data_open(r->o.data, r->o.vocab, r->o.context, &r->d, message, n)) return 1;
    return r->o.validate && r->d.file && data_hold_back(&r->d, r->o.context, message, n);
}

static int rank_open(rank *r, const ranks_plan *p) {
    memopt_shard_desc d;

    if (rank_prepare(r, 0) || rank_open_comms(r) || rank_open_data(r)) return 1;
    r->rounds = (r->o.units + pass_count(&r->o) - 1) / pass_count(&r->o);
    r->losses = (double *)calloc((r->rounds + 1) * r->o.ranks, sizeof *r->losses);
    if (!r->losses) return said(r->e, "The losses", MEMOPT_ERR_MEMORY);
    if (said(r->e, "The ledger", memopt_ledger_create(NULL, &r->e->ledger))) return 1;
    if (rank_open_model(r, rank_bytes(r, p)) || rank_ready_passes(r)) return 1;
    if (r->o.pipeline > 1) rank_take_own_stages(r, p);
    else if (rank_open_tape(r, p->budget)) return 1;
    if (open_feed(r->e, &r->o, &r->d, r->o.units, pass_of(&r->o, r->number), pass_count(&r->o))) return 1;
    d = rank_describe_shard(r);
    if (rank_ready_shard(r, &p->bytes[r->number], &d)) return 1;
    if (said(r->e, "The shard", memopt_shard_open(&d, r->e->arena, &r->shard))) return 1;
    return r->o.pipeline > 1 && rank_open_pipeline(r, p);
}

static void rank_free(rank *r) { /* tables */
    free(r->layers); free(r->calls); free(r->tensors); free(r->uses); free(r->use_layers);
    free(r->losses); free(r->reports); free(r->inputs);
}

static void rank_give_up(rank *r) {
    int i;

    for (i = 0; i < COMMS; ++i)
        if (r->comms[i]) memopt_comm_abort(r->comms[i]);
        else if (r->transports[i].abort_fn) r->transports[i].abort_fn(r->transports[i].user);
}

/* Of all ranks is the one that a communicator of some blames. */
static void rank_tell_which(rank *r) {
    char which[64];
    int i;

    for (i = OWN_SET; i < COMMS; ++i) {
        const memopt_error e = memopt_comm_error(r->comms[i]);

        if (!r->comms[i] || !e.status || !e.place || strcmp(e.place, "rank")) continue;
        snprintf(which, sizeof which, " That is rank %zu of all.", rank_of_group(&r->o, i, r->number, e.index));
        options_add(r->e->message, sizeof r->e->message, which);
        return;
    }
}

/* By a communicator that failed, unless this rank is to blame there, or gave it up itself, as a pipeline does when a pass
   fails. */
static int rank_was_told(const rank *r) {
    int i;

    for (i = 0; i < COMMS; ++i) {
        const memopt_error e = memopt_comm_error(r->comms[i]);
        const int blames = e.place && !strcmp(e.place, "rank");
        const int is_own = blames && e.index == memopt_comm_get_stats(r->comms[i]).rank;

        if (r->comms[i] && e.status && !is_own && strcmp(e.reason, "was given up")) return 1;
    }
    return 0;
}

/* Whoever fails tells the others, so that nobody waits for it. */
static void rank_run(rank *r, const ranks_plan *p) {
    r->wrong = rank_open(r, p) || rank_train(r) || rank_after(r);
    r->told |= r->wrong && rank_was_told(r);
    if (r->wrong) rank_tell_which(r);
#ifdef TRAIN_GPT_MPI
    if (r->wrong) fprintf(stderr, "train_gpt: rank %zu: %s\n", r->number, r->e->message);
#endif
    if (r->wrong) rank_give_up(r);
    rank_leave(r);
}

static int rank_begin(rank *r, const ranks_plan *p, outcome *out, size_t number) {
    const size_t bytes = p->o->ranks * sizeof *r->reports;

    r->e = rank_engine(r);
    r->o = *p->o;
    r->number = number;
    r->out = number ? NULL : out;
    r->reports = (rank_report *)malloc(bytes);
    if (r->reports) memcpy(r->reports, p->reports, bytes);
    return !r->reports;
}

/* ---- all ranks: threads; mpirun starts processes ---- */
#ifndef TRAIN_GPT_MPI
#if defined(MEMOPT_PTHREADS) || defined(TRAIN_GPT_NCCL)
typedef struct rank_thread { rank *r; const ranks_plan *p; pthread_t thread; int runs; } rank_thread;

static void *rank_main(void *user) {
    rank_thread *t = (rank_thread *)user;

    rank_run(t->r, t->p);
    return NULL;
}

static void rank_never_ran(rank *r); /* its thread did not start: nobody waits for it */

static void ranks_start(rank *ranks, const ranks_plan *p, outcome *out) {
    const size_t n = p->o->ranks;
    rank_thread *threads = (rank_thread *)calloc(n, sizeof *threads);
    size_t i;

    if (!threads) snprintf(out->message, sizeof out->message, "No memory for %zu threads.", n);
    for (i = 0; i < n; ++i) ranks[i].wrong = 1;
    for (i = 0; threads && i < n; ++i) {
        threads[i].r = &ranks[i];
        threads[i].p = p;
        threads[i].runs = !pthread_create(&threads[i].thread, NULL, rank_main, &threads[i]);
        if (threads[i].runs) continue;
        snprintf(out->message, sizeof out->message, "The system starts no thread for rank %zu: give fewer --ranks.", i);
        ranks[i].told = 1;
        rank_never_ran(&ranks[i]);
    }
    for (i = 0; threads && i < n; ++i) if (threads[i].runs) (void)pthread_join(threads[i].thread, NULL);
    free(threads);
}
#else
static void ranks_start(rank *ranks, const ranks_plan *p, outcome *out) {
    (void)ranks; (void)p; (void)out;
}
#endif

/* What the rank says that went wrong itself; the others only say that somebody has given up. */
static int ranks_wrong(const rank *ranks, size_t count, outcome *out) {
    size_t i, culprit = count;

    for (i = 0; i < count; ++i)
        if (ranks[i].wrong && (culprit == count || ranks[culprit].told > ranks[i].told)) culprit = i;
    if (culprit < count && !out->message[0])
        snprintf(out->message, sizeof out->message, "rank %zu: %.370s", culprit, ranks[culprit].e->message);
    return culprit < count;
}
#endif

static void ranks_plan_free(ranks_plan *p) {
    free(p->reports); free(p->bytes); free(p->stages); free(p->pipes); free(p->costs);
}

/* ---- what is told ---- */
#include "ranks_report.h" /* ranks_tell(), ranks_json_write(), largest_rank() */

/* For --pipeline P:BYTES, unless who plans looks at it himself. */
static int stages_are_too_large(const ranks_plan *p, outcome *out) {
    const size_t bytes = p->o->pipeline_bytes, largest = largest_rank(p, 0);

    if (!bytes || p->tell_fn || largest <= bytes) return 0;
    snprintf(out->message, sizeof out->message, "--pipeline %zu:%zu is too small: with these switches its largest rank "
             "takes %.3f MB or more; give as much, or more ranks.", p->o->pipeline, bytes,
             (double)((largest + 999) / 1000) / 1e3); /* rounded up: so much is enough */
    return 1;
}

static int ranks_plan_and_run(const options *asked, ranks_plan *p, options *o, outcome *out) {
    options shown = *asked;
    int wrong;

    shown.quiet = shown.ladder = 0;
    options_advised(&shown);
    tell_switches(&shown, out);
    *o = *asked;
    o->accumulate = o->units;
    p->o = o;
    p->reports = (rank_report *)calloc(o->ranks, sizeof *p->reports);
    p->bytes = (memopt_shard_bytes *)calloc(o->ranks, sizeof *p->bytes);
    wrong = !p->reports || !p->bytes;
    if (wrong) snprintf(out->message, sizeof out->message, "No memory for the plan of the ranks.");
    wrong = wrong || plan_ranks(p, out) || stages_are_too_large(p, out) || (!o->dry_run && ranks_run(p, out));
    p->steps = o->dry_run ? o->steps : (size_t)out->steps;
    out->ok = !wrong;
    return wrong;
}

static int ranks_main(const options *asked, outcome *out) {
    ranks_plan p;
    options o;
    int wrong;

    memset(&p, 0, sizeof p);
    wrong = ranks_plan_and_run(asked, &p, &o, out);

    if (wrong && out->message[0] && !own_rank()) fprintf(stderr, "train_gpt: %s\n", out->message);
    if (!wrong && !own_rank()) {
        ranks_tell(&p, out);
        wrong = o.json && ranks_json_write(o.json, &p, out);
        if (wrong)
            fprintf(stderr, "train_gpt: %s could not be written: is its folder there, and is there room?\n", o.json);
    }
    ranks_plan_free(&p);
    return wrong;
}
#endif
