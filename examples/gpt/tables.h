/* tables.h - several trainings side by side, each in a process of its own, so that its peak is its own: the ladder from a
   conventional engine to everything on, and the largest batch that fits under one limit. */
#ifndef GPT_TABLES_H
#define GPT_TABLES_H

/* What a child of a table does: the outcome goes into the pipe, then the strip. Returns 1 when all is well. */
static int child_main(const options *o, const char *name, int to) {
    outcome *out = (outcome *)calloc(1, sizeof *out); char *strip = NULL; size_t length; int fine;
    if (!out) return 0;
    fine = !(o->ranks ? rank_alone(o, out, &strip) : run(o, out, &strip));
    snprintf(out->name, sizeof out->name, "%s", name);
    fine = write(to, out, sizeof *out) == (ssize_t)sizeof *out && fine;
    length = strip ? strlen(strip) : 0;
    if (length) fine = write(to, &length, sizeof length) == (ssize_t)sizeof length
        && write(to, strip, length) == (ssize_t)length && fine;
    free(strip);
    free(out);
    return fine;
}
/* Runs a training in a child, and takes its outcome from a pipe. */
static void run_apart(const options *o, const char *name, outcome *out, char **strip) {
    int ends[2], status = 0; size_t got = 0, length = 0; pid_t child; ssize_t n;
    memset(out, 0, sizeof *out);
    snprintf(out->message, sizeof out->message, "The process of this row did not start.");
    if (pipe(ends)) return;
    fflush(NULL);
    child = fork();
    if (!child) {
        close(ends[0]);
        _exit(!child_main(o, name, ends[1]));
    }
    close(ends[1]);
    if (child > 0) {
        char *bytes = (char *)out;
        while (got < sizeof *out && (n = read(ends[0], bytes + got, sizeof *out - got)) > 0) got += (size_t)n;
        while (strip && got == sizeof *out && (n = read(ends[0], (char *)&length, sizeof length))
            == (ssize_t)sizeof length) {
            char *text = (char *)malloc(length + 1); size_t have = 0;
            while (text && have < length && (n = read(ends[0], text + have, length - have)) > 0) have += (size_t)n;
            if (text) text[have] = 0;
            *strip = text;
            break;
        }
        waitpid(child, &status, 0);
        if (got < sizeof *out) {
            memset(out, 0, sizeof *out);
            snprintf(out->message, sizeof out->message, "The process ended early (%s).",
                     WIFSIGNALED(status) ? "killed: there was not enough memory, or a limit was met" : "see above");
        }
    }
    close(ends[0]);
    snprintf(out->name, sizeof out->name, "%s", name);
}

static size_t planned_alone(const options *o) { /* whatever the threads: they take no memory worth the name */
    memopt_ops ops; char message[400]; const beside nothing = { 0, 0 };
    memset(&ops, 0, sizeof ops);
    return planned_arena(o, &ops, &nothing, message, sizeof message);
}
static size_t memory_there(void) {
    uint64_t bytes = 0;
    return memopt_memory_available(NULL, &bytes) ? SIZE_MAX : (size_t)bytes;
}

/* ---- the ladder ---- */
typedef struct rung { const char *name; int exact, which, like; } rung; /* exact: with the bits of the rung `like` */
enum { CONVENTIONAL_RUNG, ARENA_RUNG, CHECKPOINTS_RUNG, FUSED_RUNG, HEAD_RUNG, ATTENTION_RUNG, MLP_RUNG,
    ADAM8_RUNG, BF16_RUNG, STATES_DISK_RUNG, WEIGHTS_DISK_RUNG, KEPT_DISK_RUNG, DISK_RUNG, BF16_DISK_RUNG, RUNGS };
static const rung rungs[RUNGS] = {
    { "conventional engine", 1, CONVENTIONAL_RUNG, CONVENTIONAL_RUNG },
    { "arena: gradients of one layer", 1, ARENA_RUNG, CONVENTIONAL_RUNG },
    { "+ checkpoints, +33 % operations", 1, CHECKPOINTS_RUNG, ARENA_RUNG },
    { "+ step inside backward", 1, FUSED_RUNG, CHECKPOINTS_RUNG },
    { "+ head in chunks", 1, HEAD_RUNG, FUSED_RUNG },
    { "+ attention by rows", 1, ATTENTION_RUNG, HEAD_RUNG },
    { "+ MLP in chunks", 1, MLP_RUNG, ATTENTION_RUNG },
    { "+ 8-bit Adam", 0, ADAM8_RUNG, MLP_RUNG },
    { "+ bf16: everything on", 0, BF16_RUNG, ADAM8_RUNG },
    { "MLP in chunks, states on disk", 1, STATES_DISK_RUNG, MLP_RUNG },
    { "MLP in chunks, weights on disk", 1, WEIGHTS_DISK_RUNG, MLP_RUNG },
    { "MLP in chunks, outputs on disk", 1, KEPT_DISK_RUNG, MLP_RUNG },
    { "all that keeps the bits, on disk", 1, DISK_RUNG, MLP_RUNG },
    { "everything on, on disk", 1, BF16_DISK_RUNG, BF16_RUNG },
};
static const rung ends[] = {
    { "conventional engine", 1, CONVENTIONAL_RUNG, CONVENTIONAL_RUNG },
    { "all that keeps the bits", 1, MLP_RUNG, CONVENTIONAL_RUNG },
    { "+ 8-bit Adam, bf16: everything on", 0, BF16_RUNG, MLP_RUNG },
};
static void rung_options(options *o, int which) {
    static const int offloads[] = { OFFLOAD_STATES, OFFLOAD_WEIGHTS, OFFLOAD_ACTIVATIONS };
    const int is_lossy = which == ADAM8_RUNG || which == BF16_RUNG || which == BF16_DISK_RUNG;
    const size_t rows = o->batch * o->context;
    o->keep = which == CONVENTIONAL_RUNG ? KEEP_CONVENTIONAL : which < CHECKPOINTS_RUNG ? KEEP_ARENA : KEEP_OVERHEAD;
    o->overhead = 0.33;
    o->fuse_step = which >= FUSED_RUNG;
    o->head_chunk = which >= HEAD_RUNG ? most(64, rows / 32) : 0;
    o->lean_attention = which >= ATTENTION_RUNG;
    o->mlp_chunk = which >= MLP_RUNG ? most(64, rows / 8) : 0;
    o->states = is_lossy ? MEMOPT_STATE_8BIT : MEMOPT_STATE_F32;
    o->weights = which == BF16_RUNG || which == BF16_DISK_RUNG ? WEIGHTS_BF16 : WEIGHTS_F32;
    o->gradients = o->weights == WEIGHTS_BF16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    if (which < STATES_DISK_RUNG) return;
    o->ranks = o->units = 1; /* a single unit: the bits of a training without ranks */
    o->offload = which < DISK_RUNG ? offloads[which - STATES_DISK_RUNG]
                                   : OFFLOAD_STATES | OFFLOAD_WEIGHTS | OFFLOAD_ACTIVATIONS;
    o->offload_to = "build";
}
static int same_bits(const outcome *a, const outcome *b) {
    return a->weights_hash == b->weights_hash && a->loss_count == b->loss_count && a->held_count == b->held_count
        && !memcmp(a->losses, b->losses, a->loss_count * sizeof *a->losses)
        && !memcmp(a->held, b->held, a->held_count * sizeof *a->held);
}
static int ladder_main(const options *base) {
    const rung *const list = base->ends ? ends : rungs; const int count = base->ends ? sizeof ends / sizeof *ends : RUNGS;
    outcome *out = (outcome *)calloc(RUNGS, sizeof *out); char *strips[RUNGS] = { 0 }; int i, wrong = 0; struct stat st;
    page shown = { 0 }; char about[200];
    if (!out) { fputs("train_gpt: no memory for the results.\n", stderr); return 1; }
    snprintf(about, sizeof about, "%s: %zu layers of width %zu, %zu tokens in %zu sequences, %zu steps, %zu threads",
        base->preset,
             base->layers, base->width, base->batch * base->context, base->batch, base->steps, base->threads);
    if (stat("build", &st)) (void)mkdir("build", 0777); /* where files of the last rungs lie, too */
    printf("%s\n%-34s %12s %12s %7s %10s %11s %10s %10s  %s\n", about, "rung", "predicted MB", "measured MB", "ratio",
        "tokens/s", "CPU s, step", "last loss", base->validate ? "held back" : "", "same bits as above");
    for (i = 0; i < count; ++i) {
        options o = *base; const outcome *x = &out[i], *like = x; int same;
        rung_options(&o, list[i].which);
        if (planned_alone(&o) > memory_there() / 20 * 19) o.dry_run = 1; /* too large for this machine: only planned */
        run_apart(&o, list[i].name, &out[i], &strips[i]);
        if (!x->ok) { printf("%-34s %s\n", x->name, x->message); wrong = 1; continue; }
        while (like > out && list[like - out].which != list[i].like) --like;
        same = like->loss_count && x->loss_count && same_bits(x, like);
        if (list[i].exact && like->loss_count && x->loss_count && !same) wrong = 1;
        printf("%-34s %12.1f ", x->name, (double)x->predicted_peak / 1e6);
        if (x->loss_count) printf("%12.1f ", (double)x->measured_peak / 1e6);
        else printf("%12s ", "-");
        printf("%7.1f ", (double)out[0].predicted_peak / (double)x->predicted_peak);
        if (x->loss_count)
            printf("%10.1f %11.3f %10.5f ", x->tokens_per_second, x->cpu_seconds_per_step, (double)x->losses[x->loss_count - 1]);
        if (x->loss_count && x->held_count) printf("%10.5f  ", (double)x->held[x->held_count - 1]);
        else if (x->loss_count) printf("%10s  ", "");
        puts(!x->loss_count ? base->dry_run ? "" : " planned only: it does not fit here" : !i || !like->loss_count ? ""
             : same ? "yes" : list[i].exact ? "NO" : "no: lossy by choice");
        fflush(stdout);
    }
    shown.title = "The same network in less memory"; shown.about = about;
    shown.rungs = out; shown.count = (size_t)count; shown.strips = (const char *const *)strips;
    if (page_write("build/ladder.html", &shown) || page_chart_svg("build/ladder.svg", &shown)) {
        fputs("train_gpt: build/ladder.html could not be written; is this folder writable?\n", stderr); wrong = 1;
    } else puts("build/ladder.html shows it: where the bytes are, through one step, and the losses.");
    if (base->json && json_write_all(base->json, out, (size_t)count)) {
        fprintf(stderr, "train_gpt: %s could not be written: is its folder there, and is there room?\n", base->json);
        wrong = 1;
    }
    for (i = 0; i < count; ++i) free(strips[i]);
    free(out);
    return wrong;
}

/* ---- the largest batch under one limit ---- */
static int batch_table_main(const options *base) {
    static const char *const names[] = { "baseline: fp32, keep everything", "16-bit: bf16 weights, gradients, kept",
        "checkpointing",
                                         "8-bit states", "all together" };
    size_t best = 0, i; outcome x; int vit, wrong = 0;
    for (vit = 0; vit < 2; ++vit) {
        printf("%s, %.0f MB\n%-40s %9s %12s %12s %12s\n", vit ? "ViT" : "GPT", (double)base->fit / 1e6, "", "batch",
            "samples/s",
               "predicted MB", "measured MB");
        for (i = 0, best = 0; i < sizeof names / sizeof *names; ++i) {
            options o = *base; const int all = i == 4;
            o.vit = vit; o.keep = i == 2 || all ? KEEP_OVERHEAD : KEEP_ARENA; o.overhead = 0.33; o.batch = 1;
            if (vit) { o.context = preset_find(o.preset)->patches; o.vocab = IMAGE_CLASSES; }
            o.weights = i == 1 || all ? WEIGHTS_BF16 : WEIGHTS_F32;
            o.gradients = i == 1 || all ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
            o.states = i == 3 || all ? MEMOPT_STATE_8BIT : MEMOPT_STATE_F32;
            if (all) { o.fuse_step = o.lean_attention = 1; o.head_chunk = 64; o.mlp_chunk = 512; }
            run_apart(&o, names[i], &x, NULL);
            if (!x.ok) { printf("%-40s %s\n", names[i], x.message); wrong = 1; continue; }
            printf("%-40s %9llu %12.2f %12.1f %12.1f\n", names[i], (unsigned long long)x.batch,
                (double)x.batch / x.seconds_per_step,
                   (double)x.predicted_peak / 1e6, (double)x.measured_peak / 1e6);
            fflush(stdout);
            if (i < 4 && x.batch > best) best = (size_t)x.batch;
            if (all && x.batch < best) wrong = 1;
        }
    }
    return wrong;
}
#endif
