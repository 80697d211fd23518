/* speeds.h - CPU seconds that the pieces of a training take on this machine: segments forward and backward, by
   memopt_tape_calibrate() over a network of few layers, and what a step takes beside its passes. Measured in processes
   of their own, so that they leave nothing in the memory of this one, and kept as text: a line for each network with
   its switches, a colon and the seconds. What is in the file is not measured again. */
#ifndef GPT_SPEEDS_H
#define GPT_SPEEDS_H

enum {
    MOST_SPEEDS = 4096,
    PASS_LAYERS = 4, /* at most, of the network whose passes are timed: they do not fit the caches */
    STEP_LAYERS = 3  /* of the second network whose step is timed */
};

typedef struct speed {
    char network[400];
    double seconds[PIECES];
} speed;

typedef struct speeds {
    speed of[MOST_SPEEDS];
    size_t count, read; /* read: that came from the file */
    char why[400];      /* a network could not be measured */
} speeds;

/* ---- the file ---- */
/* A line: "switches: seconds ...", each from 0 to 10^6. 1: it is none. */
static int speed_read(char *line, speed *out) {
    char *at = strrchr(line, ':'), *end;
    size_t i;

    memset(out, 0, sizeof *out);
    if (!at || at == line || (size_t)(at - line) >= sizeof out->network) return 1;
    memcpy(out->network, line, (size_t)(at - line));
    for (++at, i = 0; i < PIECES; ++i, at = end) {
        out->seconds[i] = strtod(at, &end);
        if (end == at || !(out->seconds[i] >= 0 && out->seconds[i] <= 1e6)) return 1;
    }
    return strspn(at, " \n") != strlen(at);
}

/* Whether a file can be made there, before minutes go into what it is to hold. */
static int speeds_new(const char *path, char *message, size_t capacity) {
    FILE *f = fopen(path, "wb");

    if (f) {
        fclose(f);
        remove(path);
        return 0;
    }
    snprintf(message, capacity, "--speeds %.200s: it cannot be written: %s.", path, strerror(errno));
    return 1;
}

/* No file: nothing has been measured yet. keeps: what will be is written there. */
static int speeds_open(const char *path, speeds *s, int keeps, char *message, size_t capacity) {
    char line[1024];
    FILE *f = fopen(path, "r");
    size_t number = 0;
    int wrong = 0;

    s->count = s->read = 0;
    if (!f && errno == ENOENT) return keeps && speeds_new(path, message, capacity);
    if (!f) {
        snprintf(message, capacity, "--speeds %.200s: %s.", path, strerror(errno));
        return 1;
    }
    while (!wrong && fgets(line, sizeof line, f)) {
        ++number;
        if (line[0] == '#') continue;
        wrong = s->count == MOST_SPEEDS || !strchr(line, '\n') || speed_read(line, &s->of[s->count]);
        s->count += !wrong;
    }
    if (ferror(f)) {
        snprintf(message, capacity, "--speeds %.200s: %s.", path, strerror(errno));
        fclose(f);
        return 1;
    }
    fclose(f);
    s->read = s->count;
    if (wrong)
        snprintf(message, capacity,
                 "--speeds %.200s: line %zu is no network with %d times behind a colon; remove "
                 "the file, and it is measured anew.",
                 path, number, PIECES);
    return wrong;
}

static void speeds_put(FILE *f, const void *what) {
    const speeds *s = (const speeds *)what;
    size_t i, k;

    fputs("# CPU seconds: forward of embedding, attention, MLP, head; their backward. With \"step\": one beside its "
          "passes\n",
          f);
    for (i = 0; i < s->count; ++i) {
        fprintf(f, "%s:", s->of[i].network);
        for (k = 0; k < PIECES; ++k) fprintf(f, " %.4g", s->of[i].seconds[k]);
        fputc('\n', f);
    }
}

static int speeds_close(const char *path, const speeds *s, char *message, size_t capacity) {
    if (s->count == s->read || !file_replace(path, speeds_put, s)) return 0;
    snprintf(message, capacity, "--speeds %.200s: it could not be written; is its folder there, and is there room?",
             path);
    return 1;
}

/* ---- measuring, in a process of its own ---- */
typedef struct measured {
    double seconds[PIECES];
    char why[400];
} measured; /* why: it could not be measured */

typedef int speed_fn(const options *o, measured *m); /* 0: measured */

static int speed_compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* From a process of its own; 0: the seconds are there. */
static int speed_apart(speed_fn *measure, const options *o, measured *m) {
    int to[2], wrong = 1;
    pid_t child;
    ssize_t got;

    memset(m, 0, sizeof *m);
    snprintf(m->why, sizeof m->why, "its process could not be started, or ended early; is memory left?");
    if (pipe(to)) return 1;
    fflush(NULL);
    child = fork();
    if (!child) {
        close(to[0]);
        m->why[0] = 0;
        wrong = measure(o, m);
        _exit(write(to[1], m, sizeof *m) != (ssize_t)sizeof *m || wrong);
    }
    close(to[1]);
    got = child > 0 ? read(to[0], m, sizeof *m) : -1; /* fewer than a pipe's buffer: whole, or nothing */
    close(to[0]);
    if (child > 0) (void)waitpid(child, &wrong, 0);
    return got != (ssize_t)sizeof *m || wrong;
}

/* A network in memory, with workers of its own: fork() has left those of the parent behind. */
typedef struct trial {
    engine e;
    memopt_thread_pool *pool;
    memopt_threads threads;
    memopt_ops ops;
    data d;
} trial;

static int trial_open(trial *t, const options *o) {
    const beside nothing = { 0, 0 };
    char *const message = t->e.message;
    const size_t n = sizeof t->e.message;
    size_t peak, i;

    memset(t, 0, sizeof *t);
    if (open_ops(o, &t->pool, &t->threads, &t->ops, message, n)) return 1;
    if (!is_vit(o) && data_open(o->data, o->vocab, o->context, &t->d, message, n)) return 1;
    peak = planned_arena(o, &t->ops, &nothing, message, n);
    if (!peak || engine_open(&t->e, o, &t->ops, peak, &nothing) || init_scale(&t->e)) return 1;
    if (open_feed(&t->e, o, &t->d, 1, 0, 1)) return 1;
    for (i = 0; i < t->e.m.tensor_count; ++i)
        if (said(&t->e, "The weights", init_tensor(&t->e.m, i, &t->e.m.tensors[i], o->seed))) return 1;
    t->e.m.head.rule.scale = 1;
    t->e.m.head.targets = t->e.targets;
    t->e.m.optim = t->e.optim;
    return load_batch(&t->e, o, &t->d, 0, 0);
}

static int trial_failed(const trial *t, measured *m) {
    snprintf(m->why, sizeof m->why, "%s", t->e.message);
    return 1;
}

static memopt_status worked_now(void *user, uint64_t *nanoseconds) {
    (void)user;
    *nanoseconds = (uint64_t)(1e9 * seconds_worked());
    return MEMOPT_OK;
}

/* Nothing is learned, and everything is read and written: a pass finds the caches as a step leaves them. */
static int trial_step(trial *t, const options *o, size_t number) {
    memopt_optim_group groups[2];
    memopt_optim_run run = { 0 };

    describe_groups(o->optimizer, 0, groups, &run);
    run.step = number + 1;
    run.clips_norm = o->clip > 0;
    run.scales_loss = o->gradients == MEMOPT_TYPE_F16;
    return apply(&t->e, o, &run);
}

static double median(double *x, size_t n) {
    qsort(x, n, sizeof *x, speed_compare);
    return x[n / 2];
}

/* Of the segments as they were calibrated, the mean of each kind. */
static void segment_means(const memopt_tape *tape, size_t layers, double *means) {
    size_t count, i;
    const memopt_segment *s = memopt_tape_segments(tape, &count);

    memset(means, 0, PIECES * sizeof *means);
    for (i = 0; i < count; ++i) {
        const size_t kind = kind_of(i, count);
        const double share = kind == ATTENTION_KIND || kind == MLP_KIND ? (double)layers : 1;

        means[kind] += s[i].forward_cost / share;
        means[KINDS + kind] += s[i].backward_cost / share;
    }
}

/* Forwards and backwards of the four kinds, by the CPU's clock: others on the machine do not change it. */
static int measure_pass(const options *o, measured *m) {
    enum { TRIES = 50 };

    static double took[PIECES][TRIES];
    double means[PIECES];
    trial t;
    memopt_tape_desc d;
    memopt_tape *tape;
    size_t n, i;
    double begin;

    if (trial_open(&t, o)) return trial_failed(&t, m);
    memopt_tape_destroy(t.e.tape);
    t.e.host.clock.now_fn = worked_now;
    d = describe_tape(&t.e, o);
    if (said(&t.e, "The tape", memopt_tape_create(&d, &tape))) return trial_failed(&t, m);
    begin = seconds_worked();
    for (n = 0; n < TRIES && (n < 3 || seconds_worked() - begin < 0.3) && (!n || seconds_worked() - begin < 3); ++n) {
        if (said(&t.e, "A pass", memopt_tape_calibrate(tape, t.e.input, NULL, NULL, 1)) || trial_step(&t, o, n))
            return trial_failed(&t, m);
        segment_means(tape, o->layers, means);
        for (i = 0; i < PIECES; ++i) took[i][n] = means[i];
    }
    for (i = 0; i < PIECES; ++i) m->seconds[i] = median(took[i], n);
    return 0;
}

/* What a step takes beside its passes, without ranks: gradients measured and weights stepped. */
static int measure_step(const options *o, measured *m) {
    enum { TRIES = 40 };

    double took[TRIES];
    trial t;
    size_t n;
    double begun;

    if (trial_open(&t, o)) return trial_failed(&t, m);
    begun = seconds_worked();
    for (n = 0; n < TRIES && (n < 5 || seconds_worked() - begun < 0.3); ++n) {
        double begin;

        if (pass(&t.e)) return trial_failed(&t, m);
        begin = seconds_worked();
        if (load_batch(&t.e, o, &t.d, n, 0) || trial_step(&t, o, n)) return trial_failed(&t, m);
        took[n] = seconds_worked() - begin;
    }
    m->seconds[0] = median(took, n);
    return 0;
}

/* A whole step over ranks, with its passes. */
static int measure_ranks(const options *o, measured *m) {
    ranks_plan p = { 0 };
    options silent = *o, x;
    outcome *out = (outcome *)calloc(1, sizeof *out);

    silent.quiet = 1;
    if (!out || ranks_plan_and_run(&silent, &p, &x, out)) {
        snprintf(m->why, sizeof m->why, "%s", out ? out->message : "No memory for the ranks.");
        return 1;
    }
    m->seconds[0] = out->cpu_seconds_per_step;
    return 0;
}

/* ---- a plan's seconds ---- */
/* NULL: it cannot be measured. */
static const double *speed_of(speeds *s, const char *what, const options *o, speed_fn *measure) {
    char switches[380];
    speed x;
    measured m;
    size_t i;

    memset(&x, 0, sizeof x);
    options_describe(o, switches, sizeof switches);
    snprintf(x.network, sizeof x.network, "%s %s", what, switches);
    for (i = 0; i < s->count; ++i)
        if (!strcmp(s->of[i].network, x.network)) return s->of[i].seconds;
    if (s->count == MOST_SPEEDS || speed_apart(measure, o, &m)) {
        snprintf(s->why, sizeof s->why, "%s", s->count < MOST_SPEEDS ? m.why : "its file is full: give another one.");
        return NULL;
    }
    memcpy(x.seconds, m.seconds, sizeof x.seconds);
    s->of[s->count] = x;
    return s->of[s->count++].seconds;
}

/* The network of so few layers whose speed is that of o's; what has nothing to do with it is as always. */
static options trial_options(const options *o, size_t layers) {
    options x = *o;

    x.layers = layers;
    x.steps = x.accumulate = x.seed = 1;
    x.warmup = x.scale_rate = 0;
    x.schedule = RATE_CONSTANT;
    x.keep = KEEP_ARENA;
    x.fuse_step = x.dry_run = x.frontier = 0;
    x.advise = x.fit = x.processors = 0;
    x.json = x.speeds = NULL;
    x.quiet = 0;
    return x;
}

enum { NOT_LEAN, LEAN, LEANEST, FEW_HEAD = 8 /* rows of the leanest chunk */ };

static options pass_options(const options *o, int lean) {
    options x = trial_options(o, least(o->layers, PASS_LAYERS));

    x.optimizer = MEMOPT_OPTIM_ADAMW;
    x.states = MEMOPT_STATE_F32;
    x.clip = 0;
    x.rate = 0;
    x.ranks = x.units = 0;
    x.replicas = 1;
    x.stage = 3;
    x.offload = 0;
    x.offload_to = NULL;
    x.head_chunk = lean ? chunk_below(head_rows(o), lean == LEAN ? LEAN_HEAD : FEW_HEAD) : 0;
    x.mlp_chunk = lean ? chunk_below(mlp_rows(o), lean == LEAN ? LEAN_MLP : LEAST_MLP) : 0;
    x.lean_attention = lean != NOT_LEAN;
    return x;
}

static size_t chunks_of(const options *o, size_t kind) { /* 1: all rows at once */
    const size_t rows = kind == HEAD_KIND ? head_rows(o) : mlp_rows(o),
                 chunk = kind == HEAD_KIND ? o->head_chunk : o->mlp_chunk;
    const size_t unit = kind == MLP_KIND ? LEAST_MLP : o->weights == WEIGHTS_BF16 ? 32 : 1;

    if ((kind != HEAD_KIND && kind != MLP_KIND) || !chunk || chunk >= rows) return 1;
    return (rows - 1) / ((chunk + unit - 1) / unit * unit) + 1;
}

/* Seconds of a call; below 0: not measured. They depend on the segment's form alone, and grow by as much with each chunk:
   two sizes are measured, and tell of all. */
static double piece_seconds(speeds *s, const options *o, size_t piece) {
    const size_t kind = piece % KINDS, chunks = chunks_of(o, kind);
    size_t few, many;
    options x = pass_options(o, chunks > 1 || (kind == ATTENTION_KIND && o->lean_attention) ? LEAN : NOT_LEAN);
    const double *seconds = speed_of(s, "pass", &x, measure_pass);
    double first, more;

    if (!seconds) return -1;
    first = seconds[piece];
    few = chunks_of(&x, kind);
    x = pass_options(o, LEANEST);
    many = chunks_of(&x, kind);
    if (chunks <= 1 || chunks == few || many == few) return first;
    seconds = speed_of(s, "pass", &x, measure_pass);
    if (!seconds) return -1;
    more = (seconds[piece] - first) / ((double)many - (double)few);
    return more > 0 ? fmax(first + more * ((double)chunks - (double)few), 0) : first;
}

/* Of a pass; below 0: not measured. */
static double pass_seconds(speeds *s, const options *o, const work *w) {
    double sum = 0, seconds;
    size_t i;

    for (i = 0; i < PIECES; ++i) {
        if (!w->calls[i]) continue;
        seconds = piece_seconds(s, o, i);
        if (seconds < 0) return -1;
        sum += (double)w->calls[i] * seconds;
    }
    return sum;
}

/* Of a step beside its passes, with so many layers; it takes nothing of a pass's size. */
static double beside_passes(speeds *s, const options *o, size_t layers) {
    options x = trial_options(o, layers);
    work w = { { 1, 0, 0, 1, 1, 0, 0, 1 }, 0, { 0 } };
    const double *seconds;
    double passes;

    x.batch = 1;
    x.head_chunk = x.mlp_chunk = 0;
    x.lean_attention = 0;
    x.rate = 0;
    x.steps = o->ranks ? 6 : 1;
    x.fuse_step = o->ranks && o->fuse_step;
    if (!o->ranks) {
        seconds = speed_of(s, "step", &x, measure_step);
        return seconds ? seconds[0] : -1;
    }
    seconds = speed_of(s, "ranks", &x, measure_ranks);
    w.calls[ATTENTION_KIND] = w.calls[MLP_KIND] = w.calls[KINDS + ATTENTION_KIND] = w.calls[KINDS + MLP_KIND] = layers;
    passes = pass_seconds(s, &x, &w);
    if (!seconds || passes < 0) return -1;
    return seconds[0] > (double)o->units * passes ? seconds[0] - (double)o->units * passes : 0;
}

/* CPU seconds of a step, which grow with each layer alike; below 0: not measured. */
static double step_seconds(speeds *s, const options *o, const work *w) {
    const double pass = pass_seconds(s, o, w), first = beside_passes(s, o, 1), more = beside_passes(s, o, STEP_LAYERS);

    if (pass < 0 || first < 0 || more < 0) return -1;
    return (double)(o->ranks ? o->units : o->accumulate) * pass + first
         + (more > first ? more - first : 0) / (STEP_LAYERS - 1) * (double)(o->layers - 1);
}
#endif
