/* ranks_card.h - ranks on CUDA devices: a rank is a thread of this process, or with --id-file a process, and has a card of
   its own, number rank % cards. Compiled with -DTRAIN_GPT_NCCL.

   Shard    All of a rank lies on its card, which adds and steps, too: memopt_cuda_shard_open() and _kernels(). The host
            has tables, and in pinned memory what ranks compare.
   Streams  A stream of its own computes on the card. Calls of NCCL and copies run in others, ordered by events: weights
            of the next group come, and gradients of the last one leave, beside it. But ranks compare a call before it
            begins, behind all calls before it: in stage 3 a group computes when those gradients have left.
   Layers   With --pipeline micro-batches pass from card to card. The host of a rank waits until a message is there, and
            then launches what needs it: a card idles for a launch with each. What it sends leaves while it computes.
            Ids and targets of all micro-batches of a step lie on the card, and each loss has a place of its own there.
   Memory   All ranks of a process have theirs before the first call moves anything: a kernel of NCCL runs until those
            of all cards have come, and CUDA may hold a thread that asks for memory until the kernels of all cards are
            over. If one fails until then, all of them learn of it at once.
   Values   of the host, as losses, pass through the card's memory: NCCL moves nothing else. rank_exchange().
   Saves    Each rank writes what lies on its card, as the CPU's ranks write theirs, to the same files: a run may go on
            with other ranks, on one card, or on the CPU. What ranks tell each other for that is the host's, too.
   Failure  A rank that fails says so in its next comparison, or aborts; one that is silent is missed after
            TRAIN_GPT_SECONDS. Of a process that was killed the others say which rank it was.
   Plan     What NCCL itself takes of a card for each communicator, of which a rank in a pipeline has up to nine, and
            cuBLASLt beside its workspace, is not in it. */
#ifndef GPT_RANKS_CARD_H
#define GPT_RANKS_CARD_H
#include "ranks_groups.h"
#include "rendezvous.h"
#ifndef TRAIN_GPT_SECONDS
#  define TRAIN_GPT_SECONDS 120 /* that a rank waits for the others, who may be in a long pass */
#endif

#define RANK_LESS "--stage 3 and more --ranks need less"

enum { RANK_ALIGNMENT = CARD_ALIGNMENT, /* of what the tape takes of the arena */
       RANK_WARMS = 1 };                /* the first step is not in the speed: see outcome_speed() */

typedef struct rank_here {
    card c;
    int  cards;                    /* that there are */
    const ncclUniqueId *id;        /* the same for all ranks, and so is the next */
    size_t *settled, own_ranks;    /* of this process: ranks that ask for no more memory, where one that failed before
                                      counts as all of them; ranks */
    size_t *ended;                 /* ranks that begin no more calls, and have given up those that were begun */
    int  is_settled;               /* this one has been counted */
    memopt_nccl nccl[COMMS];
    int  is_stuck;                 /* NCCL did not come to its end */
    memopt_cuda_shard cuda;
    memopt_shard_device table;     /* of it */
    memopt_shard_kernels kernels;
    memopt_cuda_memory pinned_memory;
    memopt_source pinned_source;
    memopt_arena *pinned;
    void *d_exchange;              /* what rank_exchange() moves */
    memopt_comm *host;             /* of saves: moves bytes of the host */
    unsigned char *piece;          /* that it moves at a time */
} rank_here;

#include "ranks.h"

static engine *rank_engine(rank *r) { return &r->here.c.e; }

/* ---- a card, or what a plan has for it ---- */
static memopt_status planned_zero(void *user, void *d_to, size_t bytes) {
    (void)user; (void)d_to; (void)bytes;
    return MEMOPT_ERR_STATE; /* nothing is ever moved */
}
static memopt_status planned_out(void *user, void *to, const void *d_from, size_t bytes, int is_there, size_t slot) {
    (void)d_from; (void)is_there; (void)slot;
    return planned_zero(user, to, bytes);
}
static memopt_status planned_in(void *user, void *d_to, const void *from, size_t bytes, size_t slot) {
    return planned_out(user, d_to, from, bytes, 0, slot);
}
static memopt_status planned_wait(void *user, size_t slot) { return planned_zero(user, NULL, slot); }
static memopt_status planned_join(void *user) { return planned_zero(user, NULL, 0); }

static memopt_shard_device planned_device(rank *r) {
    memopt_shard_device d;

    d.zero_fn = planned_zero;
    d.copy_out_fn = planned_out;
    d.copy_in_fn = planned_in;
    d.wait_fn = planned_wait;
    d.join_fn = planned_join;
    d.user = &r->here.cuda;
    d.kernels = NULL;
    return d;
}

/* In the group of this one; 0: NO_GROUP. */
static size_t group_ranks(const options *o, int kind, size_t number) {
    const int group = group_of(o, kind, number);
    size_t i, count = 0;

    for (i = 0; group != NO_GROUP && i < o->ranks; ++i) count += group_of(o, kind, i) == group;
    return count;
}

/* Whether any rank is in a group of this kind with others. */
static int kind_connects(const options *o, int kind) {
    size_t i;

    for (i = 0; i < o->ranks; ++i) if (group_ranks(o, kind, i) > 1) return 1;
    return 0;
}

/* Communicators of some ranks, in an order that all have in common. Who is in none of a kind helps to make it. */
static memopt_status rank_connect_groups(rank *r) {
    memopt_nccl *nccl = r->here.nccl;
    memopt_status s = MEMOPT_OK;
    int i;

    for (i = OWN_SET; !s && i < COMMS; ++i) {
        const int group = group_ranks(&r->o, i, r->number) > 1 ? group_of(&r->o, i, r->number) : NO_GROUP;
        const int key = group_is_reversed(i) ? -(int)r->number : (int)r->number;

        if (!kind_connects(&r->o, i)) continue;
        s = memopt_nccl_split(&nccl[i], &nccl[ALL_RANKS], group, key, r->here.c.stream, TRAIN_GPT_SECONDS,
                              &r->transports[i]);
    }
    return s;
}

static int rank_connect(rank *r) {
    rank_here *h = &r->here;
    memopt_status s = memopt_nccl_open(&h->nccl[ALL_RANKS], h->id, (int)r->number, (int)r->o.ranks, h->c.stream,
                                       TRAIN_GPT_SECONDS, &r->transports[ALL_RANKS]);

    if (!s) s = rank_connect_groups(r);
    if (!s) return 0;
    r->told = 1; /* if another rank gave up meanwhile, its reason is the one to tell */
    if (s == MEMOPT_ERR_UNSUPPORTED)
        snprintf(r->e->message, sizeof r->e->message, "Ranks that share a pass take NCCL 2.18 or later: this is %d.",
                 NCCL_VERSION_CODE);
    else if (r->o.ranks > (size_t)h->cards)
        snprintf(r->e->message, sizeof r->e->message, "NCCL does not connect %zu ranks on %d cards, as it wants one "
                 "for each: give --ranks %d.", r->o.ranks, h->cards, h->cards);
    else
        snprintf(r->e->message, sizeof r->e->message, "NCCL does not connect the ranks (%s): run it with "
                 "NCCL_DEBUG=WARN in the environment, which tells why.", memopt_status_text(s));
    return 1;
}

static int rank_take_card(rank *r) {
    rank_here *h = &r->here;
    const int device = (int)(r->number % (size_t)h->cards);

    if (card_said(&h->c, "The card", device_status(cudaSetDevice(device)))) return 1;
    if (open_stream(&h->c) || (r->o.ranks > 1 && rank_connect(r))) return 1;
    return card_said(&h->c, "The card", memopt_cuda_shard_open(device, h->c.stream, &h->cuda, &h->table));
}

static int rank_prepare(rank *r, int plans) {
    rank_here *h = &r->here;

    if (plans) h->table = planned_device(r);
    else if (rank_take_card(r)) return 1;
    memopt_cuda_shard_kernels(&h->kernels);
    h->table.kernels = &h->kernels;
    return 0;
}

/* ---- to open ---- */
static int rank_describe_model(rank *r) {
    model *m = &r->e->m;
    transformer_ops ops;

    memset(&ops, 0, sizeof ops);
    ops.stream = r->here.c.stream;
    describe_model(r->e, &r->o, &ops, transformer_add_embedding, NULL, card_type(&r->o));
    if (r->o.parts) rank_cut(r);
    m->shape.grain = options_grain(&r->o);
    m->split = m->fuse = 0; /* both are the shard's to do */
    return 0;
}

static size_t exchange_bytes(const options *o) { /* reports, or losses: see rank.losses */
    const size_t rounds = (o->units + o->ranks - 1) / o->ranks;

    return o->ranks * most(sizeof(rank_report), (rounds + 1) * sizeof(double));
}

static int rank_open_arena(rank *r, size_t capacity) {
    rank_here *h = &r->here;

    if (open_arena(&h->c, &r->o, capacity) || push_batch(r->e) || push_results(&h->c, &r->o)) return 1;
    return !(h->d_exchange = push(r->e, exchange_bytes(&r->o), TAG_DATA));
}

static void rank_describe_memory(rank *r, memopt_shard_desc *d) {
    d->device = &r->here.table;
    d->optim.muon = card_muon(&r->here.c, d->optim.kind);
    d->pinned = r->here.pinned;
}

static int rank_ready_passes(rank *r) { return open_gemm(&r->here.c, &r->o) || open_host(&r->here.c, &r->o); }

static void rank_settle(rank *r, size_t counts) {
    if (!r->here.is_settled) (void)__atomic_add_fetch(r->here.settled, counts, __ATOMIC_RELEASE);
    r->here.is_settled = 1;
}

/* Until all ranks have their memory, or one has failed. */
static int rank_await_others(rank *r) {
    size_t settled;

    rank_settle(r, 1);
    while ((settled = __atomic_load_n(r->here.settled, __ATOMIC_ACQUIRE)) < r->here.own_ranks) (void)sched_yield();
    if (settled == r->here.own_ranks) return 0;
    snprintf(r->e->message, sizeof r->e->message, "Another rank has failed.");
    r->told = 1;
    return 1;
}

static int rank_ready_shard(rank *r, const memopt_shard_bytes *b, memopt_shard_desc *d) {
    rank_here *h = &r->here;
    memopt_arena_desc a;

    if (card_said(&h->c, "Pinned memory", memopt_cuda_source_pinned(MEMOPT_CUDA_CURRENT_DEVICE, &h->pinned_memory,
                                                                    &h->pinned_source))) return 1;
    memset(&a, 0, sizeof a);
    a.source = &h->pinned_source;
    a.capacity = b->staging;
    a.error = &r->e->error;
    if (said(r->e, "Pinned memory", memopt_arena_create(&a, &h->pinned))) return 1;
    d->pinned = h->pinned;
    return rank_await_others(r);
}

/* A card has no stores. */
static void rank_describe_tape(const rank *r, memopt_tape_desc *d) { (void)r; d->not_host_visible = 2; }
static void rank_stored(const rank *r, uint64_t *moved) { (void)r; moved[0] = moved[1] = 0; }

static int rank_plan_stores(rank *r, memopt_shard_desc *d, const memopt_shard_bytes *b, rank_report *told) {
    (void)r; (void)d; (void)b; (void)told;
    return 0;
}

static size_t rank_bytes(const rank *r, const ranks_plan *p) { return (size_t)p->reports[r->number].predicted[HELD]; }

/* ---- to close ---- */
static void rank_end(rank *r) {
    rank_settle(r, r->here.own_ranks);
    (void)__atomic_add_fetch(r->here.ended, 1, __ATOMIC_RELEASE);
}

static void rank_never_ran(rank *r) { rank_end(r); }

/* All ranks do it at the same time, as NCCL wants; and it gives memory back, for which CUDA may hold this thread while a
   kernel waits for that of another rank. */
static void rank_leave(rank *r) {
    int i;

    rank_end(r);
    while (__atomic_load_n(r->here.ended, __ATOMIC_ACQUIRE) < r->here.own_ranks) (void)sched_yield();
    memopt_shard_close(r->shard);
    r->shard = NULL;
    for (i = 0; i < COMMS; ++i) { /* that of all ranks first: when it is closed, nobody's calls wait for anybody */
        memopt_comm_destroy(r->comms[i]);
        r->comms[i] = NULL;
        r->here.is_stuck |= memopt_nccl_close(&r->here.nccl[i]) != MEMOPT_OK;
    }
}

static void rank_close(rank *r) {
    rank_here *h = &r->here;

    saves_close(&r->saves);
    memopt_comm_destroy(h->host);
    free(h->piece);
    data_close(&r->d);
    pipeline_close(r->pipe);
    card_close(&h->c);
    memopt_ledger_destroy(r->e->ledger);
    memopt_arena_destroy(h->pinned);
    (void)memopt_cuda_shard_close(&h->cuda);
    rank_free(r);
}

/* ---- to train ---- */
static int rank_pass(rank *r, uint64_t number, size_t round) {
    card *c = &r->here.c;

    c->e.m.shape.ops.d_loss = c->d_losses + round;
    return load_batch(c, &r->o, &r->d, number, 0, 0) || pass(c, 0);
}

static int rank_load(rank *r, uint64_t number, int held_back, int32_t *ids, int32_t *targets) {
    return load_to(&r->here.c, &r->o, &r->d, number, held_back, ids, targets);
}

static void rank_take_up(rank *r, const int32_t *ids, size_t unit) {
    (void)ids;
    r->e->m.shape.ops.d_loss = r->here.c.d_losses + unit;
}

static int rank_read_losses(rank *r) {
    const card *c = &r->here.c;
    const int has_them = r->number == rank_of_loss(&r->o, pass_of(&r->o, r->number));
    const size_t count = has_them ? rank_units(&r->o, r->number) : 0;
    double sum;
    size_t i;

    if (count && read_losses(&r->here.c, count, &sum)) return 1;
    for (i = 0; i < count; ++i) rank_losses(r, r->number)[i] = c->losses[i].loss;
    return 0;
}

static int rank_evaluate(rank *r, size_t number, double *loss) {
    return evaluate(&r->here.c, &r->o, &r->d, number, loss);
}

/* In place: what is sent is a part of what is received. */
static memopt_status rank_exchange(rank *r, const memopt_comm_call *call) {
    rank_here *h = &r->here;
    memopt_cuda_transfer *const transfer = h->c.transfer;
    const cudaStream_t stream = h->c.stream;
    const size_t all = call->bytes * (call->kind == MEMOPT_COMM_ALL_GATHER ? r->o.ranks : 1);
    memopt_comm_call there = *call;
    memopt_status s;

    if (r->o.ranks == 1) return MEMOPT_OK;
    there.receive = h->d_exchange;
    there.send = (unsigned char *)h->d_exchange
        + ((const unsigned char *)call->send - (const unsigned char *)call->receive);
    s = memopt_cuda_to_status(memopt_cuda_transfer_in(transfer, h->d_exchange, call->receive, all, stream));
    if (s) return s;
    s = memopt_comm_run(r->comms[ALL_RANKS], &there);
    if (s) r->e->error = memopt_comm_error(r->comms[ALL_RANKS]);
    if (!s) s = memopt_cuda_to_status(memopt_cuda_transfer_out(transfer, call->receive, h->d_exchange, all, stream));
    if (!s) s = memopt_cuda_to_status(memopt_cuda_transfer_wait(transfer));
    return s;
}

/* ---- saves ---- */
/* All of a call, in pieces for which rank_exchange() has room. */
static memopt_status host_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    rank *r = (rank *)user;
    const int gathers = call->kind == MEMOPT_COMM_ALL_GATHER;
    const size_t room = exchange_bytes(&r->o) / r->o.ranks;
    memopt_comm_call part = *call;
    memopt_status s = MEMOPT_OK;
    size_t at, k;

    (void)slot;
    if (call->kind == MEMOPT_COMM_ALL_TO_ALL) return MEMOPT_ERR_UNSUPPORTED; /* no save has one */
    part.receive = r->here.piece;
    for (at = 0; at < call->bytes && !s; at += part.bytes) {
        unsigned char *own;

        part.bytes = least(call->bytes - at, room);
        own = r->here.piece + (gathers ? r->number * part.bytes : 0);
        part.send = own;
        if (gathers || call->root == r->number) memcpy(own, (const unsigned char *)call->send + at, part.bytes);
        s = rank_exchange(r, &part);
        for (k = 0; !s && k < (gathers ? r->o.ranks : 1); ++k)
            memcpy((unsigned char *)call->receive + k * call->bytes + at, r->here.piece + k * part.bytes, part.bytes);
    }
    if (s) *error = memopt_comm_error(r->comms[ALL_RANKS]);
    return s;
}

static memopt_status host_wait(void *user, size_t slot, memopt_error *error) { /* the bytes are there */
    (void)user; (void)slot; (void)error;
    return MEMOPT_OK;
}

static void host_abort(void *user) { (void)user; } /* rank_give_up() tells the others */

/* What this rank has of a tensor, by an optimizer of its own. */
static memopt_status rank_list(void *user, size_t tensor, const char *name, memopt_save_item *items, size_t *count) {
    rank *r = (rank *)user;
    memopt_optim_desc d = rank_describe_shard(r).optim;
    memopt_optim_tensor part;
    memopt_optim *optim = NULL;
    void *table = NULL;
    memopt_status s = memopt_shard_part(r->shard, tensor, &part);
    size_t bytes = 0;

    d.tensors = &part;
    d.tensor_count = 1;
    d.error = &r->e->error;
    if (!s) s = memopt_optim_bytes(&d, &bytes);
    if (!s && !card_table(&table, bytes)) s = MEMOPT_ERR_MEMORY;
    if (!s) s = memopt_optim_create(&d, table, bytes, &optim);
    if (!s) s = card_list_of(&r->here.c, &d, optim, 0, name, items, count);
    free(table);
    return s;
}

static int rank_open_saves(rank *r, saves *s) {
    rank_here *h = &r->here;
    memopt_comm_desc d;

    s->list_fn = rank_list;
    s->user = r;
    if (!r->o.save && !r->o.resume) return 0;
    memset(&d, 0, sizeof d);
    d.unchecked = 1; /* the calls that it makes are compared */
    d.error = &r->e->error;
    if (r->o.ranks > 1) {
        d.transport.begin_fn = host_begin;
        d.transport.wait_fn = host_wait;
        d.transport.abort_fn = host_abort;
        d.transport.user = r;
        d.transport.rank = r->number;
        d.transport.rank_count = r->o.ranks;
    }
    h->piece = (unsigned char *)calloc(1, exchange_bytes(&r->o));
    if (!h->piece) return said(r->e, "The saves", MEMOPT_ERR_MEMORY);
    if (said(r->e, "The saves", memopt_comm_create(&d, &h->host))) return 1;
    s->desc.comm = h->host;
    return 0;
}

static int rank_init_slice(rank *r, size_t tensor, memopt_optim_tensor *slice, void *user) {
    (void)user;
    return each_piece(&r->here.c, tensor, slice, put_part, &r->o.seed);
}

static int rank_hash_weights(rank *r, size_t tensor, memopt_optim_tensor *slice, void *hash) {
    slice->extra = NULL;
    return each_piece(&r->here.c, tensor, slice, hash_part, hash);
}

static int rank_hash_extra(rank *r, size_t tensor, memopt_optim_tensor *slice, void *hash) {
    slice->weights = slice->extra;
    return rank_hash_weights(r, tensor, slice, hash);
}

static int rank_after(rank *r) { (void)r; return 0; }

/* ---- all ranks ---- */
static int ranks_stuck; /* NCCL did not come to its end: nothing is given back, and _exit() ends the program */

static size_t process_rank; /* 0: of threads, too */

static size_t own_rank(void) { return process_rank; }

/* Before anything else is asked of CUDA. It would load a kernel when it is first launched, and may wait for what runs
   meanwhile: kernels of NCCL, which wait for ranks whose kernels are not loaded. */
static int ranks_prepare(size_t count, int makes_id, int *cards, ncclUniqueId *id, outcome *out) {
    cudaError_t wrong;
    ncclResult_t result;

    if (count > 1) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (count > 1) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* as adapters/nccl.h says of groups */
    wrong = cudaGetDeviceCount(cards);
    result = wrong || count == 1 || !makes_id ? ncclSuccess : ncclGetUniqueId(id);
    if (wrong) snprintf(out->message, sizeof out->message, "The cards: %s.", cudaGetErrorString(wrong));
    if (result) snprintf(out->message, sizeof out->message, "NCCL does not start: %s.", ncclGetErrorString(result));
    return wrong || result;
}

static int ranks_train(rank *ranks, const ranks_plan *p, outcome *out) {
    const size_t n = p->o->ranks;
    ncclUniqueId id;
    int cards;
    size_t i, settled = 0, ended = 0;

    if (ranks_prepare(n, 1, &cards, &id, out)) return 1;
    for (i = 0; i < n; ++i) {
        ranks[i].here.cards = cards;
        ranks[i].here.id = &id;
        ranks[i].here.settled = &settled;
        ranks[i].here.ended = &ended;
        ranks[i].here.own_ranks = n;
    }
    ranks_start(ranks, p, out);
    for (i = 0; i < n; ++i) ranks_stuck |= ranks[i].here.is_stuck;
    if (ranks_wrong(ranks, n, out)) return 1;
    memcpy(p->reports, ranks[0].reports, n * sizeof *p->reports);
    return 0;
}

static int ranks_run_threads(const ranks_plan *p, outcome *out) {
    const size_t n = p->o->ranks;
    rank *ranks = (rank *)calloc(n, sizeof *ranks);
    size_t i;
    int wrong = !ranks;

    for (i = 0; !wrong && i < n; ++i) wrong = rank_begin(&ranks[i], p, out, i);
    if (wrong) snprintf(out->message, sizeof out->message, "No memory for the ranks.");
    wrong = wrong || ranks_train(ranks, p, out);
    if (ranks_stuck) return wrong;
    for (i = 0; ranks && i < n; ++i) rank_close(&ranks[i]);
    free(ranks);
    return wrong;
}

/* A launcher says which process this is, and of how many; switches may say otherwise. */
static int ranks_take_launcher(int *argc, char ***argv) {
    static const char *const names[][2] = { { "RANK", "WORLD_SIZE" },
                                            { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
                                            { "PMI_RANK", "PMI_SIZE" },
                                            { "SLURM_PROCID", "SLURM_NTASKS" } };
    static char of_rank[] = "--rank", of_count[] = "--ranks";
    char *number = NULL, *count = NULL, **all;
    size_t i;
    int k, meets = 0;

    for (k = 1; k < *argc; ++k) meets |= !strncmp((*argv)[k], "--id-file", 9);
    for (i = 0; meets && i < sizeof names / sizeof *names && (!number || !count); ++i) {
        number = getenv(names[i][0]);
        count = getenv(names[i][1]);
    }
    if (!number || !count) return 0;
    all = (char **)malloc(((size_t)*argc + 5) * sizeof *all);
    if (!all) return 1;
    all[0] = (*argv)[0];
    all[1] = of_rank;
    all[2] = number;
    all[3] = of_count;
    all[4] = count;
    memcpy(all + 5, *argv + 1, (size_t)*argc * sizeof *all); /* with the NULL behind them */
    *argv = all;
    *argc += 4;
    return 0;
}

/* This process is one of them. */
static int ranks_run_process(const ranks_plan *p, rendezvous *v, outcome *out) {
    const options *o = p->o;
    char *const message = out->message;
    rank *r = (rank *)calloc(1, sizeof *r);
    ncclUniqueId id;
    size_t settled = 0, ended = 0, lost;
    char gone[80];
    int wrong;

    memset(&id, 0, sizeof id);
    if (!r || rank_begin(r, p, out, o->rank)) {
        snprintf(message, sizeof out->message, "No memory for the ranks.");
        free(r);
        return 1;
    }
    r->o.rank = 0; /* the switches of all are the same, as they are saved */
    r->o.id_file = NULL;
    r->here.id = &id;
    r->here.settled = &settled;
    r->here.ended = &ended;
    r->here.own_ranks = 1;
    wrong = ranks_prepare(o->ranks, !o->rank, &r->here.cards, &id, out)
         || rendezvous_share(v, &id, TRAIN_GPT_SECONDS, message, sizeof out->message);
    if (!wrong) {
        rank_run(r, p);
        wrong = r->wrong;
        ranks_stuck = r->here.is_stuck;
        lost = wrong ? rendezvous_lost(v) : o->ranks;
        snprintf(gone, sizeof gone, " The process of rank %zu is gone.", lost);
        if (wrong)
            snprintf(message, sizeof out->message, "rank %zu: %.300s%s", o->rank, r->e->message,
                     lost < o->ranks ? gone : "");
        if (!wrong) memcpy(p->reports, r->reports, o->ranks * sizeof *p->reports);
    }
    if (ranks_stuck) return wrong;
    rank_close(r);
    free(r);
    return wrong;
}

static int ranks_run(const ranks_plan *p, outcome *out) {
    const options *o = p->o;
    rendezvous v;
    int wrong;

    if (!o->id_file) return ranks_run_threads(p, out);
    process_rank = o->rank;
    wrong = rendezvous_open(&v, o->id_file, o->rank, o->ranks, out->message, sizeof out->message);
    if (!wrong) {
        wrong = ranks_run_process(p, &v, out);
        rendezvous_end(&v);
    }
    rendezvous_close(&v);
    if (wrong && o->rank) fprintf(stderr, "train_gpt: %s\n", out->message); /* ranks_main() tells that of rank 0 */
    return wrong;
}
#endif
