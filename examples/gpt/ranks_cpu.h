/* ranks_cpu.h - ranks on the CPU: threads of this process, or, compiled with -DTRAIN_GPT_MPI, the processes of mpirun.

   Sets     With --replicas the ranks of a set cut the model among themselves, and those of all sets with the same part
            hand sums on: three communicators, of all ranks, of a set, and between sets.
   Offload  Of the rank's part, states and weights may lie in a store, a file of its own: the shard brings them when they
            are needed. Outputs that the tape keeps may lie in another. One process is one rank.
   mpirun   Tell it --bind-to none: else it may bind a rank, with all of its --threads, to one core. */
#ifndef GPT_RANKS_CPU_H
#define GPT_RANKS_CPU_H
#include "ranks_groups.h"

#define RANK_LESS "--advise BYTES tells the switches that need less"

enum { RANK_ALIGNMENT = 64, /* of what the tape takes of the arena */
       RANK_WARMS = 0,      /* the first step is as the others */
       RANK_BYTE_COST = 16 }; /* multiply-adds in the time of a byte to or from a disk: 2 GB/s beside 32 G/s */

typedef struct rank_here {
    engine        e;
    memopt_ops    ops;
    memopt_thread_pool *pool;
    memopt_threads threads;
    memopt_store *store; /* of the shard */
} rank_here;

#include "ranks.h"

static engine *rank_engine(rank *r) { return &r->here.e; }

static int rank_prepare(rank *r, int plans) {
    rank_here *h = &r->here;

    (void)plans; /* of a run, the transports are there */
    return open_ops(&r->o, &h->pool, &h->threads, &h->ops, h->e.message, sizeof h->e.message);
}

/* ---- kept outputs in a store of their own ---- */
/* What a plan has for a store: nothing is ever moved. */
static memopt_status planned_write(void *user, size_t value, const void *bytes, size_t count) {
    (void)user; (void)value; (void)bytes; (void)count;
    return MEMOPT_ERR_STATE;
}
static memopt_status planned_read(void *user, size_t value, void *bytes, size_t count) {
    return planned_write(user, value, bytes, count);
}
static memopt_status planned_wait(void *user, size_t value) { return planned_write(user, value, NULL, 0); }
static void planned_forget(void *user, size_t value) { (void)user; (void)value; }

static void rank_describe_tape(const rank *r, memopt_tape_desc *d) {
    static const memopt_tape_store planned = { planned_write, planned_read, planned_wait, planned_forget, NULL };

    if (!(r->o.offload & OFFLOAD_ACTIVATIONS)) return;
    d->offload.slots = MEMOPT_OFFLOAD_UNLIMITED;
    d->offload.write_byte_cost = d->offload.read_byte_cost = RANK_BYTE_COST;
    d->offload.overlap = 1;
    d->store = r->e->kept ? memopt_store_for_tape(r->e->kept) : planned;
}

/* The store of a rank: memory, or a file that is gone with it. told: its bytes are added there; out NULL: they are all
   that is asked for. */
static int rank_open_store(rank *r, const char *name, memopt_store_desc *d, rank_report *told, memopt_store **out) {
    memopt_store_sizes sizes = { 0 };
    memopt_host host = { 0 };
    char path[1024], what[280];
    int wrong;

    snprintf(what, sizeof what, "--offload to %s", r->o.offload_to ? r->o.offload_to : "host");
    if (r->here.ops.threads) host.threads = *r->here.ops.threads; /* they make checksums, too */
    d->host = &host;
    snprintf(path, sizeof path, "%.1000s/train_gpt.%zu.%s", r->o.offload_to ? r->o.offload_to : "", r->number, name);
    d->aligned = 1;
    d->path = r->o.offload_to ? path : NULL;
    d->error = &r->e->error;
    wrong = said(r->e, what, memopt_store_bytes(d, &sizes));
    told->slow_room += d->path ? sizes.disk : sizes.memory;
    told->slow_memory += d->path ? sizes.memory : 0;
    if (out) wrong = wrong || said(r->e, what, memopt_store_create(d, out));
    d->host = NULL;
    return wrong;
}

static int rank_open_kept(rank *r, rank_report *told, memopt_store **out) {
    memopt_store_desc d = { 0 };
    size_t *outputs;
    size_t i;
    int wrong;

    if (!(r->o.offload & OFFLOAD_ACTIVATIONS)) return 0;
    outputs = (size_t *)calloc(r->e->segment_count, sizeof *outputs);
    if (!outputs) return said(r->e, "The kept outputs", MEMOPT_ERR_MEMORY);
    for (i = 0; i < r->e->segment_count; ++i) outputs[i] = most(r->e->segments[i].output_bytes, 1);
    d.tiles = r->e->segment_count;
    d.each_bytes = outputs;
    d.transfers = 2; /* one that leaves or comes, and the next */
    d.no_atomic = 1;
    wrong = rank_open_store(r, "kept", &d, told, out);
    free(outputs);
    return wrong;
}

/* ---- to open ---- */
static int rank_describe_model(rank *r) {
    engine *e = r->e;
    model *m = &e->m;

    e->host = process_host();
    describe_cpu_model(e, &r->o, &r->here.ops);
    if (r->o.parts) rank_cut(r);
    m->shape.grain = options_grain(&r->o);
    m->split = m->fuse = 0; /* both are the shard's to do */
    m->shape.done_fn = NULL;
    return 0;
}

static int rank_load(rank *r, uint64_t number, int held_back, int32_t *ids, int32_t *targets) {
    const size_t bytes = transformer_rows(&r->e->m.shape) * sizeof *ids;

    if (load_batch(r->e, &r->o, &r->d, number, held_back)) return 1;
    memcpy(ids, r->e->input, bytes);
    memcpy(targets, r->e->targets, bytes);
    return 0;
}

static void rank_take_up(rank *r, const int32_t *ids, size_t unit) {
    (void)unit;
    if (r->e->m.documents) mark_documents(r->e, &r->d, ids);
}

static int rank_open_arena(rank *r, size_t capacity) {
    return open_arena(r->e, capacity) || push_batch(r->e) || push_ahead(r->e);
}

static void rank_describe_memory(rank *r, memopt_shard_desc *d) {
    const options *o = &r->o;

    d->optim.threads = r->e->m.shape.ops.threads;
    /* a single unit is its own sum */
    if (o->units == 1 && o->replicas == 1 && o->gradients == MEMOPT_TYPE_BF16) d->optim.gradients = MEMOPT_TYPE_BF16;
    if (o->offload & OFFLOAD_STATES) d->slow |= MEMOPT_SHARD_SLOW_STATES | MEMOPT_SHARD_SLOW_EXTRA;
    if (o->offload & OFFLOAD_WEIGHTS) d->slow |= MEMOPT_SHARD_SLOW_WEIGHTS;
    d->steps_inside = o->offload && o->fuse_step && o->units <= pass_count(o);
    d->store = r->here.store;
}

static int rank_open_tiles(rank *r, memopt_shard_desc *d, const memopt_shard_bytes *b, rank_report *told,
                           memopt_store **out) {
    memopt_store_desc s = { 0 };
    size_t *tiles = (size_t *)calloc(b->slow_tiles, sizeof *tiles);
    int wrong;

    if (!tiles) return said(r->e, "The tiles", MEMOPT_ERR_MEMORY);
    wrong = said(r->e, "The tiles", memopt_shard_tiles(d, tiles));
    s.tiles = b->slow_tiles;
    s.each_bytes = tiles;
    s.transfers = b->slow_transfers;
    wrong = wrong || rank_open_store(r, "tiles", &s, told, out);
    free(tiles);
    return wrong;
}

static int rank_plan_stores(rank *r, memopt_shard_desc *d, const memopt_shard_bytes *b, rank_report *told) {
    told->slow_room = told->slow_memory = 0;
    return rank_open_kept(r, told, NULL) || (d->slow && rank_open_tiles(r, d, b, told, NULL));
}

static int rank_ready_passes(rank *r) {
    const size_t rows = r->e->positions ? transformer_rows(&r->e->m.shape) : 0;
    rank_report told = { 0 }; /* as in the plan */
    size_t i;

    for (i = 0; i < rows; ++i) r->e->positions[i] = (int32_t)(i % r->e->m.shape.length);
    return rank_open_kept(r, &told, &r->e->kept);
}

static int rank_ready_shard(rank *r, const memopt_shard_bytes *b, memopt_shard_desc *d) {
    rank_report told = { 0 }; /* as in the plan */

    if (d->slow && rank_open_tiles(r, d, b, &told, &r->here.store)) return 1;
    d->store = r->here.store;
    return 0;
}

/* Bytes that went to all stores and came from them so far. */
static void rank_stored(const rank *r, uint64_t *moved) {
    const memopt_store_stats a = memopt_store_get_stats(r->here.store), b = memopt_store_get_stats(r->e->kept);

    moved[0] = a.read_bytes + b.read_bytes;
    moved[1] = a.written_bytes + b.written_bytes;
}

static void rank_leave(rank *r) { (void)r; }
#if defined(MEMOPT_PTHREADS) && !defined(TRAIN_GPT_MPI)
static void rank_never_ran(rank *r) { rank_give_up(r); }
#endif

static void rank_close(rank *r) {
    rank_here *h = &r->here;
    int i;

    saves_close(&r->saves);
    data_close(&r->d); /* batches that come lie in the arena */
    pipeline_close(r->pipe);
    memopt_shard_close(r->shard);
    memopt_store_destroy(h->store);
    engine_close(r->e); /* the tape waits for its transfers */
    memopt_store_destroy(h->e.kept);
    memopt_ledger_destroy(r->e->ledger);
    for (i = 0; i < COMMS; ++i) memopt_comm_destroy(r->comms[i]);
    memopt_thread_pool_destroy(h->pool);
    rank_free(r);
}

/* ---- the plan ---- */
/* Of its arena. A sample, when all is trained and told, has evaluations on ranks that never had a pass, too. */
static size_t rank_bytes(const rank *r, const ranks_plan *p) {
    const uint64_t *held = p->reports[r->number].predicted;
    const size_t sample = r->o.sample ? RANK_SECTOR + round64(p->evaluation) : 0;

    return in_pages((size_t)(held[HELD] - held[HELD_ACTIVATIONS]) + most((size_t)held[HELD_ACTIVATIONS], sample), 1);
}

/* The plan of one rank alone as that of its process: what that has now, what stores and tables take, and the arena. */
static void tell_alone(rank *r, const ranks_plan *p, outcome *out) {
    static const int tags[HELD] = { TAG_PARAMETERS, TAG_GRADIENTS, TAG_OPTIMIZER, TAG_KEPT, TAG_OPTIMIZER, TAG_WORKING,
        TAG_DATA };
    const rank_report *x = &p->reports[0];
    engine *e = r->e;
    data d;
    int t;

    memset(&d, 0, sizeof d);
    touch_stacks(r->here.ops.threads);
    if (!is_vit(&r->o)) (void)data_open(r->o.data, r->o.vocab, r->o.context, &d, e->message, sizeof e->message);
    e->beside.process = process_now() + (size_t)x->slow_memory + round64(p->bytes[0].tables);
    e->beside.highest = process_highest();
    data_close(&d);
    memset(e->by_tag, 0, sizeof e->by_tag);
    for (t = 0; t < HELD; ++t) if (tags[t] != TAG_KEPT) e->by_tag[tags[t]] += (size_t)x->predicted[t];
    e->peak = rank_bytes(r, p);
    tell_memory(e, out);
    if (p->user) *(char **)p->user = strip_of(e);
}

/* ---- to train ---- */
static int rank_open_saves(rank *r, saves *s) {
    s->desc.comm = r->comms[ALL_RANKS];
    return 0;
}

static int rank_pass(rank *r, uint64_t number, size_t round) {
    if (load_batch(r->e, &r->o, &r->d, number, 0) || pass(r->e)) return 1;
    rank_losses(r, r->number)[round] = r->e->m.loss;
    return 0;
}

static int rank_read_losses(rank *r) { (void)r; return 0; } /* they are there */

static int rank_evaluate(rank *r, size_t number, double *loss) {
    if (load_batch(r->e, &r->o, &r->d, number, 1) || evaluate(r->e)) return 1;
    *loss = r->e->m.head.loss;
    return 0;
}

static memopt_status rank_exchange(rank *r, const memopt_comm_call *call) {
    const memopt_status s = memopt_comm_run(r->comms[ALL_RANKS], call);

    if (s) r->e->error = memopt_comm_error(r->comms[ALL_RANKS]);
    return s;
}

static int rank_init_slice(rank *r, size_t tensor, memopt_optim_tensor *slice, void *user) {
    (void)user;
    return said(r->e, "The weights", init_tensor(&r->e->m, tensor, slice, r->o.seed));
}

static void rank_hash_bytes(const rank *r, const void *bytes, size_t count, void *hash) {
    uint64_t *h = (uint64_t *)hash;

    *h = hash_bytes(*h, (const unsigned char *)bytes, count * memopt_type_bytes(r->e->m.shape.weight_type));
}

static int rank_hash_weights(rank *r, size_t tensor, memopt_optim_tensor *slice, void *hash) {
    (void)tensor;
    rank_hash_bytes(r, slice->weights, slice->held, hash);
    return 0;
}

static int rank_hash_extra(rank *r, size_t tensor, memopt_optim_tensor *slice, void *hash) {
    (void)tensor;
    rank_hash_bytes(r, slice->extra, slice->held, hash);
    return 0;
}

static int rank_after(rank *r) { return r->o.sample && sample(r->e, &r->o, &r->d, r->out != NULL); }

/* ---- all ranks: processes ---- */
#ifdef TRAIN_GPT_MPI
static memopt_mpi mpi[COMMS];
static memopt_transport mpi_transports[COMMS];
#ifndef TRAIN_GPT_SECONDS
#  define TRAIN_GPT_SECONDS 600 /* that a rank waits for the others, who may be in a long pass */
#endif

static size_t own_rank(void) { return mpi_transports[ALL_RANKS].rank; }

/* --ranks is what mpirun says, and a switch behind it must say the same. */
static int ranks_begin(int *argc, char ***argv) {
    static char number[24], name[] = "--ranks";
    char **all;
    int level;

    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level)
        || memopt_mpi_open(&mpi[ALL_RANKS], MPI_COMM_WORLD, TRAIN_GPT_SECONDS, &mpi_transports[ALL_RANKS])) {
        fputs("train_gpt: MPI does not start: run it as mpirun -n 4 build/train_gpt_mpi\n", stderr);
        return 1;
    }
    snprintf(number, sizeof number, "%zu", mpi_transports[ALL_RANKS].rank_count);
    all = (char **)malloc(((size_t)*argc + 3) * sizeof *all);
    if (!all) return 1;
    all[0] = (*argv)[0]; all[1] = name; all[2] = number;
    memcpy(all + 3, *argv + 1, (size_t)*argc * sizeof *all); /* with the NULL behind them */
    *argv = all;
    *argc += 2;
    return 0;
}

/* After a failure that ranks have told each other it ends them all. */
static int ranks_end(int status) {
    int i;

    (void)fflush(NULL);
    for (i = COMMS; i-- > 0;) if (mpi_transports[i].rank_count) memopt_mpi_close(&mpi[i], 0);
    (void)MPI_Finalize();
    return status;
}

/* The communicators of sets; 0: open, or none are asked for. All ranks call it. */
static int ranks_split(const options *o) {
    int i, wrong = 0;

    for (i = OWN_SET; !wrong && i < COMMS; ++i) {
        MPI_Comm part;

        const int group = group_of(o, i, own_rank()), number = (int)own_rank();

        wrong = MPI_Comm_split(MPI_COMM_WORLD, group == NO_GROUP ? MPI_UNDEFINED : group,
                               group_is_reversed(i) ? -number : number, &part);
        if (wrong || group == NO_GROUP) continue;
        wrong = memopt_mpi_open(&mpi[i], part, TRAIN_GPT_SECONDS, &mpi_transports[i]) != MEMOPT_OK;
        (void)MPI_Comm_free(&part);
    }
    return wrong;
}

static int ranks_run(const ranks_plan *p, outcome *out) { /* this process is one of them */
    rank *r = (rank *)calloc(1, sizeof *r);
    int wrong = !r || rank_begin(r, p, out, own_rank());

    if (p->o->ranks != mpi_transports[ALL_RANKS].rank_count) {
        snprintf(out->message, sizeof out->message, "--ranks %zu, and mpirun started %zu: leave --ranks out.",
                 p->o->ranks, mpi_transports[ALL_RANKS].rank_count);
        wrong = 1;
    } else if (ranks_split(p->o)) {
        snprintf(out->message, sizeof out->message, "MPI does not split its ranks into %zu sets.", p->o->replicas);
        wrong = 1;
    } else if (!wrong) {
        memcpy(r->transports, mpi_transports, sizeof r->transports);
        rank_run(r, p);
        wrong = r->wrong;
        if (!wrong) memcpy(p->reports, r->reports, p->o->ranks * sizeof *p->reports);
    }
    if (wrong && mpi[ALL_RANKS].broken) (void)ranks_end(1); /* MPI still has memory of calls that failed */
    if (r) rank_close(r);
    free(r);
    return wrong;
}
#else

/* ---- all ranks: threads ---- */
static size_t own_rank(void) { return 0; }
static int ranks_begin(int *argc, char ***argv) { (void)argc; (void)argv; return 0; }
static int ranks_end(int status) { return status; }

/* Ranks are in one memory: there must be room for all of them. */
static int ranks_fit(const ranks_plan *p, outcome *out) {
    uint64_t available, sum = 0;
    size_t i;

    for (i = 0; i < p->o->ranks; ++i) sum += p->reports[i].predicted[HELD];
    if (memopt_memory_available(NULL, &available) || sum <= available) return 1;
    snprintf(out->message, sizeof out->message, "The ranks take %.1f MB together, and the system has less: --dry-run "
             "tells what each of them takes.", (double)sum / 1e6);
    return 0;
}

/* The communicator of a rank and those behind it that are in its group; 0 and up: how many. */
static memopt_status ranks_connect_group(const options *o, rank *ranks, size_t first, int kind, memopt_ranks **group) {
    const int number = group_of(o, kind, first);
    memopt_ranks_desc d = { 0 };
    size_t i, own = 0;
    memopt_status s;

    for (i = first; i < o->ranks; ++i) d.rank_count += group_of(o, kind, i) == number;
    s = memopt_ranks_create(&d, group);
    for (i = first; !s && i < o->ranks; ++i)
        if (group_of(o, kind, i) == number) {
            const size_t place = group_is_reversed(kind) ? d.rank_count - 1 - own : own;

            ranks[i].transports[kind] = memopt_ranks_transport(*group, place);
            ++own;
        }
    return s;
}

static memopt_status ranks_connect(const options *o, rank *ranks, memopt_ranks **groups) {
    memopt_status s = MEMOPT_OK;
    size_t i;
    int kind;

    for (kind = ALL_RANKS; kind < COMMS; ++kind)
        for (i = 0; !s && i < o->ranks; ++i)
            if (group_of(o, kind, i) != NO_GROUP && !ranks[i].transports[kind].rank_count)
                s = ranks_connect_group(o, ranks, i, kind, groups++);
    return s;
}

static int ranks_run(const ranks_plan *p, outcome *out) {
    const size_t n = p->o->ranks, most_groups = COMMS * n;
    rank *ranks = ranks_fit(p, out) ? (rank *)calloc(n, sizeof *ranks) : NULL;
    memopt_ranks **groups = (memopt_ranks **)calloc(most_groups, sizeof *groups);
    memopt_status s = MEMOPT_OK;
    size_t i;
    int wrong = !ranks || !groups;

    for (i = 0; !wrong && i < n; ++i) wrong = rank_begin(&ranks[i], p, out, i);
    if (wrong && !out->message[0]) snprintf(out->message, sizeof out->message, "No memory for the ranks.");
    if (!wrong && n > 1) s = ranks_connect(p->o, ranks, groups);
    if (s) snprintf(out->message, sizeof out->message, "No ranks as threads (%s): compile with -DMEMOPT_PTHREADS "
                    "-pthread.", memopt_status_text(s));
    if (!wrong && !s && n == 1) rank_run(&ranks[0], p);
    if (!wrong && !s && n > 1) ranks_start(ranks, p, out);
    wrong = wrong || s || ranks_wrong(ranks, n, out);
    if (!wrong) memcpy(p->reports, ranks[0].reports, n * sizeof *p->reports);
    for (i = 0; ranks && i < n; ++i) rank_close(&ranks[i]);
    for (i = 0; groups && i < most_groups; ++i) memopt_ranks_destroy(groups[i]);
    free(groups); free(ranks);
    return wrong;
}
#endif

/* ---- plans and rows of tables ---- */
static void tell_work(rank *r, const ranks_plan *p, outcome *out) {
    (void)out;
    *(work *)p->user = pass_work(r->e);
}

/* The bytes that the largest rank holds, by dry run; 0: there is no such plan. */
static size_t planned_rank(const options *asked, work *w) {
    ranks_plan p = { 0 };
    options dry = *asked, o;
    outcome *out = (outcome *)calloc(1, sizeof *out);
    size_t peak = 0;

    memset(w, 0, sizeof *w);
    dry.dry_run = 1;
    p.tell_fn = tell_work;
    p.user = w;
    if (out && !ranks_plan_and_run(&dry, &p, &o, out)) peak = largest_rank(&p, 0);
    ranks_plan_free(&p);
    free(out);
    return peak;
}

/* A row of a table: one rank, told as run() tells a process. */
static int rank_alone(const options *asked, outcome *out, char **strip) {
    ranks_plan p = { 0 };
    options o;
    int wrong;

    p.tell_fn = tell_alone;
    p.user = strip;
    wrong = ranks_plan_and_run(asked, &p, &o, out);
    if (!wrong && !o.dry_run) out->measured_peak = process_highest();
    ranks_plan_free(&p);
    return wrong;
}
#endif
