/* advise_ranks.h - --advise BYTES --grids: which ranks share a pass by layers and by width, what is cut among passes.

   Grids    Every --pipeline, --chunks (1, 2, 4), --tensor and --stage that --ranks can be laid out as and that
            options_rules.h allows; those that were given stay, and so do all other switches, such as --sequence. By
            width only with --parts. So all have the same bits.
   Bytes    Each grid is planned by the functions a run plans with: what its largest rank holds, and what the rank that
            sends most sends in a step. Both are exact.
   Seconds  Of a machine in numbers, where each rank has processors of its own: MACHINE below, or, with --speeds, what
            was measured here, which is text and may be another machine's. memopt_shard_simulate() tells what a rank
            waits for its shard, adds and steps; pipeline_simulate() runs the stages against each other. What ranks of a
            pass send each other by width or length, and gradients of tied tokens, take time of the one that sends; rows
            between stages that of their link.
   Choice   The fastest that fits, then the smallest of equals; it is trained, unless --dry-run is given. */
#ifndef GPT_ADVISE_RANKS_H
#define GPT_ADVISE_RANKS_H

enum { MOST_GRIDS = 4096,     /* of 1024 ranks and 10000 layers there are fewer */
       CUT_CALLS = 3,         /* of a half's forward or backward, about: parts/tensor.h, ring.h */
       ADD_BYTES = 12,        /* read and written to add an element to a sum */
       STEP_BYTES = 28 };     /* and to step it */

typedef struct grid_machine { /* a rank of it */
    double operations;        /* multiply-adds a second, of each thread */
    double memory;            /* bytes a second */
    double add;               /* seconds of an element that is added to a sum */
    memopt_shard_link link;
    int    is_measured;       /* 1: by these CPU seconds, of calls and to step the whole model */
    double pieces[PIECES], step;
} grid_machine;

static const grid_machine MACHINE = { 32e9, 10e9, ADD_BYTES / 10e9, { 1e-5, 2e9, 1 }, 0, { 0 }, 0 };

typedef struct grid {
    options  o;
    size_t   bytes;           /* of the largest rank; 0: there is no plan */
    uint64_t sent;            /* in a step, by the rank that sends most */
    double   bubble, seconds; /* share of a pipeline's seconds in which ranks wait; of a step */
} grid;

typedef struct grid_timer {
    const grid_machine *machine;
    grid   *g;
    int     wrong;            /* why: in the message */
    char   *message;
    size_t  capacity;
} grid_timer;

/* ---- the seconds of a plan ---- */
static double grid_segment_seconds(const grid_timer *t, const rank *r, size_t segment, int is_backward) {
    const grid_machine *m = t->machine;
    const memopt_segment *s = &r->e->segments[segment];
    const size_t kind = kind_of(segment, r->e->segment_count) + (is_backward ? KINDS : 0);
    const double own = is_backward ? s->backward_cost : s->forward_cost; /* of this rank */
    const double seconds = m->is_measured ? m->pieces[kind] / (double)cut_ranks(&r->o) : own / m->operations;
    const uint64_t sends = rank_segment_sends(r, segment, is_backward);

    return seconds / (double)r->o.threads
         + (sends ? CUT_CALLS * m->link.latency + (double)sends / m->link.bandwidth : 0);
}

typedef struct grid_uses { /* of a unit: a rank's own */
    memopt_shard_use *uses;
    double *seconds;          /* of each */
    size_t  count;
} grid_uses;

/* Adds those of a tape, whose first segment is number `first`. forward, backward: seconds before the first backward,
   and from then on, with what is computed again. */
static int grid_add_uses(const grid_timer *t, const rank *r, const memopt_tape *tape, size_t first, grid_uses *x,
                         double *forward, double *backward) {
    size_t count, i;
    const memopt_action *actions = memopt_tape_actions(tape, &count);
    memopt_shard_use *uses = (memopt_shard_use *)realloc(x->uses, (x->count + count) * sizeof *uses);
    double *seconds = (double *)realloc(x->seconds, (x->count + count) * sizeof *seconds);
    int begun = 0;

    x->uses = uses ? uses : x->uses;
    x->seconds = seconds ? seconds : x->seconds;
    if (!uses || !seconds) return said(r->e, "The uses of groups", MEMOPT_ERR_MEMORY);
    for (i = 0; i < count; ++i) {
        const int op = actions[i].op, is_backward = op == MEMOPT_ACTION_BACKWARD;
        const size_t segment = first + actions[i].index;

        if (!is_backward && op != MEMOPT_ACTION_FORWARD && op != MEMOPT_ACTION_FORWARD_SAVE) continue;
        begun |= is_backward;
        uses[x->count].group = r->layers[segment].group;
        uses[x->count].is_backward = is_backward;
        seconds[x->count] = grid_segment_seconds(t, r, segment, is_backward);
        *(begun ? backward : forward) += seconds[x->count++];
    }
    return 0;
}

/* CPU seconds that a rank steps its part. */
static double grid_step_seconds(const grid_timer *t, const rank *r) {
    double all = 0, here = 0;
    size_t i;

    for (i = 0; i < r->e->m.tensor_count; ++i) {
        all += (double)r->tensors[i].count;
        here += r->tensors[i].absent ? 0 : (double)r->tensors[i].count;
    }
    if (r->o.stage) here /= (double)set_ranks(&r->o);
    return t->machine->is_measured ? t->machine->step * here / all : STEP_BYTES * here / t->machine->memory;
}

/* Of a step, what a rank takes beside the computing of its passes: waiting for its shard, adding, stepping. */
static int grid_rest(const grid_timer *t, rank *r, const grid_uses *x, double *rest) {
    memopt_shard_desc d = rank_describe_shard(r);
    memopt_shard_machine m;
    memopt_shard_seconds told;
    size_t i;

    memset(&m, 0, sizeof m);
    d.uses = x->uses;
    d.use_count = x->count;
    d.rank_count = set_ranks(&r->o);
    d.replica_count = r->o.replicas;
    d.interleaved = 0; /* round by round */
    m.comm = m.replicas = t->machine->link;
    m.uses = x->seconds;
    m.add = t->machine->add;
    m.step = grid_step_seconds(t, r) / (double)r->o.threads;
    if (said(r->e, "The seconds of a step", memopt_shard_simulate(&d, &m, &told))) return 1;
    *rest = told.total;
    for (i = 0; i < x->count; ++i) *rest -= (double)rank_units(&r->o, 0) * x->seconds[i];
    return 0;
}

static void grid_free_uses(grid_uses *x) {
    free(x->uses);
    free(x->seconds);
}

/* A rank at a place of a pipeline: seconds of its stages, and the rest of its step. */
static int grid_place_seconds(const grid_timer *t, rank *r, const ranks_plan *p, size_t place, double *seconds,
                              double *rest) {
    const pipeline_desc d = rank_describe_pipeline(r);
    const size_t stages = stage_count(&r->o);
    grid_uses x = { NULL, NULL, 0 };
    size_t s;
    int wrong = 0;

    rank_take_stages(r, p->stages + place, r->o.chunks, r->o.pipeline);
    for (s = place; !wrong && s < stages; s += r->o.pipeline) {
        const memopt_tape_desc desc = pipeline_tape_desc(&d, &p->stages[s]);
        memopt_tape *tape = NULL;

        wrong = said(r->e, "The plan of the activations", memopt_tape_create(&desc, &tape))
             || grid_add_uses(t, r, tape, p->stages[s].first, &x, &seconds[s], &seconds[stages + s]);
        memopt_tape_destroy(tape);
    }
    wrong = wrong || grid_rest(t, r, &x, rest);
    grid_free_uses(&x);
    return wrong;
}

static int grid_pipeline_seconds(const grid_timer *t, rank *r, const ranks_plan *p) {
    const size_t stages = stage_count(&r->o);
    const transformer *shape = &r->e->m.shape;
    const memopt_shard_link *link = &t->machine->link;
    double *seconds = (double *)calloc(2 * stages, sizeof *seconds), rest = 0, most_rest = 0;
    pipeline_course course = { 0 };
    size_t place;
    int wrong = !seconds && said(r->e, "The schedule", MEMOPT_ERR_MEMORY);

    for (place = 0; !wrong && place < r->o.pipeline; ++place) {
        wrong = grid_place_seconds(t, r, p, place, seconds, &rest);
        most_rest = fmax(most_rest, rest);
    }
    if (!wrong && !shape->untied)
        seconds[2 * stages - 1] += (double)pipeline_tied_bytes_of(shape, shape->gradient_type) / link->bandwidth;
    wrong = wrong
         || rank_run_stages(r, p, seconds, link->latency + (double)p->stages[0].output / link->bandwidth, &course);
    t->g->bubble = course.waiting;
    t->g->seconds = course.seconds + most_rest;
    free(seconds);
    return wrong;
}

static int grid_pass_seconds(const grid_timer *t, rank *r) { /* of ranks that have all layers */
    grid_uses x = { NULL, NULL, 0 };
    double forward = 0, backward = 0, rest = 0;
    const int wrong = grid_add_uses(t, r, r->e->tape, 0, &x, &forward, &backward) || grid_rest(t, r, &x, &rest);

    t->g->seconds = (double)rank_units(&r->o, 0) * (forward + backward) + rest;
    grid_free_uses(&x);
    return wrong;
}

/* As they are told: grids that differ in how sums are rounded take as long as each other. */
static double seconds_told(double seconds) {
    char text[32];

    snprintf(text, sizeof text, "%.6g", seconds);
    return strtod(text, NULL);
}

static void grid_time(rank *r, const ranks_plan *p, outcome *out) {
    grid_timer *t = (grid_timer *)p->user;

    (void)out;
    t->wrong = r->o.pipeline > 1 ? grid_pipeline_seconds(t, r, p) : grid_pass_seconds(t, r);
    t->g->seconds = seconds_told(t->g->seconds);
    if (t->wrong) snprintf(t->message, t->capacity, "%s", r->e->message);
}

/* ---- the machine, measured ---- */
enum { LINK_CALLS = 200, LINK_BYTES = 1 << 22 };

typedef struct link_trial { /* two ranks */
    memopt_ranks  *ranks;
    unsigned char *memory[2];
    double         seconds[2][2]; /* of a call with few bytes, and with many */
    memopt_status  status[2];
} link_trial;

/* The least of some tries: others on the machine only make it longer. */
static void link_rank(void *user, size_t number, int worker) {
    link_trial *x = (link_trial *)user;
    memopt_comm_desc d;
    memopt_comm *comm = NULL;
    memopt_comm_call call;
    size_t i, many;

    (void)worker;
    memset(&d, 0, sizeof d);
    memset(&call, 0, sizeof call);
    d.transport = memopt_ranks_transport(x->ranks, number);
    x->status[number] = memopt_comm_create(&d, &comm);
    call.kind = MEMOPT_COMM_ALL_GATHER;
    for (many = 0; many < 2; ++many)
        for (i = 0; !x->status[number] && i < (many ? 10 : LINK_CALLS); ++i) {
            const double begin = now();

            call.bytes = many ? LINK_BYTES / 2 : 64;
            call.receive = x->memory[number];
            call.send = x->memory[number] + number * call.bytes;
            x->status[number] = memopt_comm_run(comm, &call);
            if (!i || now() - begin < x->seconds[number][many]) x->seconds[number][many] = now() - begin;
        }
    if (x->status[number]) memopt_comm_abort(comm);
    memopt_comm_destroy(comm);
}

static double add_seconds(float *sum, const float *more, size_t n) { /* of an element */
    double best = 0;
    size_t i;
    int k;

    for (k = 0; k < 5; ++k) {
        const double begin = now();

        for (i = 0; i < n; ++i) sum[i] += more[i];
        if (!k || now() - begin < best) best = now() - begin;
    }
    return best / (double)n;
}

/* Seconds of a call between two ranks that are threads, of a byte, and of an element that is added to a sum. */
static int measure_link(const options *o, measured *m) {
    memopt_ranks_desc d = { 0 };
    memopt_thread_pool *pool = NULL;
    link_trial x;
    memopt_status s;
    int i;

    (void)o;
    memset(&x, 0, sizeof x);
    d.rank_count = 2;
    s = memopt_ranks_create(&d, &x.ranks);
    if (!s) s = memopt_thread_pool_create(NULL, 2, &pool);
    for (i = 0; i < 2; ++i) x.memory[i] = (unsigned char *)calloc(1, LINK_BYTES);
    if (!x.memory[0] || !x.memory[1]) s = MEMOPT_ERR_MEMORY;
    if (!s) {
        const memopt_threads threads = memopt_thread_pool_threads(pool);

        threads.run_fn(threads.user, 2, link_rank, &x);
        s = x.status[0] ? x.status[0] : x.status[1];
        m->seconds[0] = x.seconds[0][0];
        m->seconds[1] = fmax(x.seconds[0][1] - x.seconds[0][0], 0) / (LINK_BYTES / 2);
        m->seconds[2] = add_seconds((float *)(void *)x.memory[0], (const float *)(void *)x.memory[1],
                                    LINK_BYTES / sizeof(float));
    }
    if (s) snprintf(m->why, sizeof m->why, "ranks as threads: %s.", memopt_status_text(s));
    memopt_thread_pool_destroy(pool);
    memopt_ranks_destroy(x.ranks);
    for (i = 0; i < 2; ++i) free(x.memory[i]);
    return s != MEMOPT_OK;
}

/* Of one process that has all of the model: its ranks share that out. 1: s->why says what could not be measured. */
static int grid_measure(speeds *s, const options *asked, grid_machine *m) {
    options x = *asked, none;
    const double *link;
    double first, more;
    size_t i;

    options_default(&none, preset_find("tiny"), MODEL_GPT, MEMOPT_OPTIM_ADAMW); /* of no model */
    x.ranks = x.units = x.parts = 0;
    x.pipeline = x.chunks = x.tensor = x.replicas = 1;
    x.stage = 3;
    x.sequence = 0;
    x.grids = 0;
    for (i = 0; i < PIECES; ++i)
        if ((m->pieces[i] = piece_seconds(s, &x, i)) < 0) return 1;
    first = beside_passes(s, &x, 1);
    more = beside_passes(s, &x, STEP_LAYERS);
    if (first < 0 || more < 0) return 1;
    m->step = first + fmax(more - first, 0) / (STEP_LAYERS - 1) * (double)(x.layers - 1);
    link = speed_of(s, "link", &none, measure_link);
    if (!link) return 1;
    m->link.latency = link[0];
    m->link.bandwidth = 1 / fmax(link[1], 1e-18);
    m->add = link[2];
    m->is_measured = 1;
    return 0;
}

static int grid_take_speeds(const options *asked, grid_machine *m, char *message, size_t capacity) {
    speeds *s = (speeds *)calloc(1, sizeof *s);
    const int keeps = !was_given(asked, ON_DRY_RUN);
    int wrong = !s;

#ifdef TRAIN_GPT_MPI
    snprintf(message, capacity, "--speeds measures ranks that are threads: leave it out with mpirun, or advise with "
             "train_gpt --ranks %zu.", asked->ranks);
    return 1;
#endif
    if (!s) snprintf(message, capacity, "No memory for --speeds.");
    wrong = wrong || speeds_open(asked->speeds, s, keeps, message, capacity);
    if (!wrong && grid_measure(s, asked, m)) {
        snprintf(message, capacity, "--speeds: a network could not be measured: %.300s", s->why);
        wrong = 1;
    }
    if (s && s->count && keeps) wrong |= speeds_close(asked->speeds, s, message, capacity);
    free(s);
    return wrong;
}

/* ---- the grids ---- */
enum { GRID_IDS = 4 };

static const int grid_ids[GRID_IDS] = { ON_PIPELINE, ON_CHUNKS, ON_TENSOR, ON_STAGE };

/* values: of these switches. 1: there is no such grid, or it was not asked for. */
static int grid_options(const options *asked, const size_t *values, options *x) {
    char ignored[400];
    size_t row, i;

    if (!was_given(asked, ON_CHUNKS) && values[1] != 1 && values[1] != 2 && values[1] != 4) return 1; /* enough */
    *x = *asked;
    for (i = 0; i < GRID_IDS; ++i) {
        (void)count_find(grid_ids[i], &row);
        if (was_given(asked, grid_ids[i]) && *count_at(x, row) != values[i]) return 1;
        *count_at(x, row) = values[i];
    }
    if (x->tensor > 1 && !x->parts) return 1;
    if (x->pipeline > 1 && !x->pipeline_bytes) x->pipeline_bytes = asked->advise; /* what fits may as well be fast */
    x->advise = 0;
    x->grids = 0;
    x->speeds = NULL;
    x->dry_run = was_given(asked, ON_DRY_RUN);
    return options_wrong(x, asked->given, ignored, sizeof ignored);
}

static void grid_take_plan(grid *g, const ranks_plan *p) {
    size_t i;

    g->bytes = largest_rank(p, 0);
    for (i = 0; i < p->o->ranks; ++i) {
        const uint64_t sent = (p->reports[i].planned.sent + p->reports[i].pass_planned) / p->o->steps;

        if (sent > g->sent) g->sent = sent;
    }
}

/* As a run of it is planned; tell_fn NULL: timed. 1: there is none, and why is in the message of the timer. */
static int grid_plan(grid_timer *t, grid *g, void (*tell_fn)(const ranks_plan *p)) {
    ranks_plan p;
    options dry = g->o, o;
    outcome *out = (outcome *)calloc(1, sizeof *out);
    int wrong = !out;

    memset(&p, 0, sizeof p);
    dry.dry_run = 1;
    t->g = g;
    t->wrong = 0;
    p.tell_fn = tell_fn ? NULL : grid_time;
    p.user = t;
    if (!out) snprintf(t->message, t->capacity, "No memory for the plan.");
    else if (ranks_plan_and_run(&dry, &p, &o, out)) {
        snprintf(t->message, t->capacity, "%s", out->message);
        wrong = 1;
    }
    wrong = wrong || t->wrong;
    if (!wrong && tell_fn) tell_fn(&p);
    if (!wrong) grid_take_plan(g, &p);
    ranks_plan_free(&p);
    free(out);
    return wrong;
}

static size_t list_grids(const options *asked, grid *grids) {
    size_t x[GRID_IDS], count = 0;

    for (x[0] = 1; x[0] <= asked->ranks; ++x[0])
        for (x[1] = 1; x[0] * x[1] <= 2 * asked->layers + 2; ++x[1])
            for (x[2] = 1; x[2] <= asked->ranks / x[0]; x[2] *= 2)
                for (x[3] = 0; x[3] < 4 && count < MOST_GRIDS; ++x[3])
                    count += (size_t)!grid_options(asked, x, &grids[count].o);
    return count;
}

/* ---- what is told ---- */
static void grid_tell(const grid *g, size_t budget, const char *why) {
    printf("%8zu %6zu %6zu %6zu %6zu ", g->o.pipeline, g->o.chunks, g->o.tensor, pass_count(&g->o), g->o.stage);
    if (!g->bytes) printf("%14s  %s\n", "-", why);
    else printf("%14zu %14llu %6.1f %% %10.6g  %s\n", g->bytes, (unsigned long long)g->sent, 100 * g->bubble,
                g->seconds, g->bytes <= budget ? "yes" : "no");
    (void)fflush(stdout); /* of many ranks the next one takes a while */
}

static void grid_tell_machine(const options *asked, const grid_machine *m) {
    printf("%zu ranks, %zu units; a machine of ", asked->ranks, asked->units);
    if (asked->speeds) printf("--speeds %s, ", asked->speeds);
    else printf("%.0f G multiply-adds/s a thread, memory of %.0f GB/s, ", m->operations / 1e9, m->memory / 1e9);
    printf("links of %.3g us and %.3g GB/s\n\n%8s %6s %6s %6s %6s %14s %14s %8s %10s  %s\n", 1e6 * m->link.latency,
           m->link.bandwidth / 1e9, "pipeline", "chunks", "tensor", "passes", "stage", "largest, bytes", "sends, bytes",
           "bubble", "s, step", "fits");
}

static void grid_text(const grid *g, char *text, size_t capacity) { /* its switches */
    char chunks[40] = "", bytes[40] = "";

    if (g->o.pipeline_bytes) snprintf(bytes, sizeof bytes, ":%zu", g->o.pipeline_bytes);
    if (g->o.chunks > 1) snprintf(chunks, sizeof chunks, "--chunks %zu ", g->o.chunks);
    snprintf(text, capacity, "--pipeline %zu%s %s--tensor %zu --stage %zu", g->o.pipeline, bytes, chunks, g->o.tensor,
             g->o.stage);
}

/* Bytes of each rank by tag, and of what it sends in a step by what it is for. */
static void grid_tell_ranks(const ranks_plan *p) {
    size_t i;
    int t;

    printf("\n%5s", "rank");
    for (t = 0; t < HELD; ++t) printf(" %11s", held_names[t]);
    printf(" %11s\n", "bytes");
    for (i = 0; i < p->o->ranks; ++i) {
        printf("%5zu", i);
        for (t = 0; t <= HELD; ++t) printf(" %11llu", (unsigned long long)p->reports[i].predicted[t]);
        putchar('\n');
    }
    printf("\n%5s %11s %11s %11s %11s %11s  bytes sent a step\n", "rank", "gradients", "weights", "sets", "passes",
           "calls");
    for (i = 0; i < p->o->ranks; ++i) {
        const memopt_shard_bytes *b = &p->bytes[i];

        printf("%5zu %11llu %11llu %11llu %11llu %11llu\n", i, (unsigned long long)b->sent_gradients,
               (unsigned long long)b->sent_weights, (unsigned long long)b->sent_replicas,
               (unsigned long long)(p->reports[i].pass_planned / p->o->steps), (unsigned long long)b->calls);
    }
    putchar('\n');
}

static int grid_is_better(const grid *x, const grid *than) {
    return !than || x->seconds < than->seconds || (x->seconds <= than->seconds && x->bytes < than->bytes);
}

/* The fastest within a budget; NULL: none fits. */
static const grid *grid_fastest(const grid *grids, size_t count, size_t budget, size_t *fitting) {
    const grid *best = NULL;
    size_t i;

    for (*fitting = i = 0; i < count; ++i) {
        if (!grids[i].bytes || grids[i].bytes > budget) continue;
        ++*fitting;
        if (grid_is_better(&grids[i], best)) best = &grids[i];
    }
    return best;
}

static const grid *grid_smallest(const grid *grids, size_t count) {
    const grid *best = NULL;
    size_t i;

    for (i = 0; i < count; ++i)
        if (grids[i].bytes && (!best || grids[i].bytes < best->bytes)) best = &grids[i];
    return best;
}

static void grid_tell_why(const grid *best, const grid *grids, size_t count, size_t budget, size_t fitting) {
    size_t all;
    const grid *fastest = grid_fastest(grids, count, SIZE_MAX, &all);
    char text[160], other[160];

    grid_text(best, text, sizeof text);
    printf("\n%s: the fastest of %zu grids that fit into %.3f MB a rank", text, fitting, (double)budget / 1e6);
    if (fastest != best) {
        grid_text(fastest, other, sizeof other);
        printf("; of all %zu it is %s, with %.3f MB", all, other, (double)fastest->bytes / 1e6);
    }
    puts("");
}

/* Why none fits, and what would. */
static void grids_tell_least(const options *asked, const grid *grids, size_t count, char *message, size_t capacity) {
    const grid *least_grid = grid_smallest(grids, count);
    adviser a = adviser_of(asked, NULL, NULL, message, capacity);
    char text[160];

    if (!least_grid) return; /* the last plan has told */
    grid_text(least_grid, text, sizeof text);
    snprintf(message, capacity, "Nothing fits into %.3f MB a rank: the least is %.3f MB, with %s.",
             (double)asked->advise / 1e6, ceil((double)least_grid->bytes / 1e3) / 1e3, text);
    tell_leaner(&least_grid->o, planned_bytes, &a, message, capacity);
}

/* ---- what --advise --grids does ---- */
/* Returns how many there are. */
static size_t grids_plan(const options *asked, const grid_machine *m, grid *grids, char *message, size_t n) {
    grid_timer t = { m, NULL, 0, message, n };
    const size_t count = list_grids(asked, grids);
    size_t i;

    if (!own_rank()) grid_tell_machine(asked, m);
    for (i = 0; i < count; ++i) {
        if (grid_plan(&t, &grids[i], NULL)) grids[i].bytes = 0;
        if (!own_rank()) grid_tell(&grids[i], asked->advise, message);
    }
    return count;
}

/* 0: *o is the grid to train. */
static int advise_grids(options *o, outcome *out) {
    char *const message = out->message;
    const size_t n = sizeof out->message;
    grid *grids = (grid *)calloc(MOST_GRIDS, sizeof *grids), chosen;
    grid_machine m = MACHINE;
    grid_timer t = { &m, NULL, 0, message, n };
    const grid *best;
    size_t count = 0, fitting;
    int wrong = !grids;

    if (!grids) snprintf(message, n, "No memory for the grids.");
    wrong = wrong || (o->speeds && grid_take_speeds(o, &m, message, n));
    if (!wrong) count = grids_plan(o, &m, grids, message, n);
    best = grid_fastest(grids, count, o->advise, &fitting);
    if (best) {
        message[0] = 0;
        if (!own_rank()) grid_tell_why(best, grids, count, o->advise, fitting);
        chosen = *best;
        if (!own_rank()) (void)grid_plan(&t, &chosen, grid_tell_ranks);
        *o = chosen.o;
    } else if (!wrong) grids_tell_least(o, grids, count, message, n);
    free(grids);
    return !best;
}
#endif
