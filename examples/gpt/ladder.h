/* ladder.h - the ladder: the same training rung by rung, from everything kept to everything on, each in a process of its
   own; as lines, as a page and as JSON. Which rungs there are is the program's: a CPU has more of them than a card. */
#ifndef GPT_LADDER_H
#define GPT_LADDER_H

enum {
    CONVENTIONAL_RUNG,
    ARENA_RUNG,
    CHECKPOINTS_RUNG,
    FUSED_RUNG,
    HEAD_RUNG,
    ATTENTION_RUNG,
    MLP_RUNG,
    ADAM8_RUNG,
    BF16_RUNG,
    STATES_DISK_RUNG,
    WEIGHTS_DISK_RUNG,
    KEPT_DISK_RUNG,
    DISK_RUNG,
    BF16_DISK_RUNG,
    RUNGS
};

typedef struct rung {
    const char *name;
    int which, like;     /* one of the above; and the rung above this one with which it is compared */
    const char *why_not; /* NULL: it has that rung's bits; else why it need not */
} rung;

static const char lossy[] = "lossy by choice"; /* why not, of most */

typedef struct ladder {
    const rung *rungs;
    size_t count;
    const char *where; /* on what it runs, behind the sizes */
    int on_card;       /* peaks are a card's, not a process's */
} ladder;

/* ---- what a rung has ---- */
static void rung_offloads(options *o, int which) {
    static const int offloads[] = { OFFLOAD_STATES, OFFLOAD_WEIGHTS, OFFLOAD_ACTIVATIONS };

    if (which < STATES_DISK_RUNG) return;
    o->ranks = o->units = 1; /* a single unit: the bits of a training without ranks */
    o->offload =
        which < DISK_RUNG ? offloads[which - STATES_DISK_RUNG] : OFFLOAD_STATES | OFFLOAD_WEIGHTS | OFFLOAD_ACTIVATIONS;
    o->offload_to = "build";
}

static void rung_options(options *o, int which) {
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
    rung_offloads(o, which);
}

/* ---- a line of the table ---- */
static int same_bits(const outcome *a, const outcome *b) {
    return a->weights_hash == b->weights_hash && a->loss_count == b->loss_count && a->held_count == b->held_count
        && !memcmp(a->losses, b->losses, a->loss_count * sizeof *a->losses)
        && !memcmp(a->held, b->held, a->held_count * sizeof *a->held);
}

static void tell_rungs_head(const options *o, const char *about) {
    printf("%s\n%-34s %12s %12s %7s %10s %11s %10s %10s  %s\n", about, "rung", "predicted MB", "measured MB", "ratio",
           "tokens/s", "CPU s, step", "last loss", o->validate ? "held back" : "", "same bits as above");
}

/* A rung that was trained. like: what it is compared with, or NULL. 1: it should have that one's bits, and has not. */
static int tell_trained(const rung *r, const outcome *x, const outcome *like) {
    const int same = like && same_bits(x, like);

    printf("%10.1f %11.3f %10.5f ", x->tokens_per_second, x->cpu_seconds_per_step,
           (double)x->losses[x->loss_count - 1]);
    if (x->held_count) printf("%10.5f  ", (double)x->held[x->held_count - 1]);
    else printf("%10s  ", "");
    if (!like) puts("");
    else if (same) puts("yes");
    else if (r->why_not) printf("no: %s\n", r->why_not);
    else puts("NO");
    return like && !same && !r->why_not;
}

/* The line of rung i, whose outcome is out[i]. Returns whether something is wrong. */
static int tell_rung(const ladder *l, const options *base, const outcome *out, size_t i) {
    const rung *const r = &l->rungs[i];
    const outcome *const x = &out[i];
    size_t like = i;

    if (!x->ok) {
        printf("%-34s %s\n", x->name, x->message);
        return 1;
    }
    while (like && l->rungs[like].which != r->like) --like;
    printf("%-34s %12.1f ", x->name, (double)x->predicted_peak / 1e6);
    if (x->loss_count) printf("%12.1f ", (double)x->measured_peak / 1e6);
    else printf("%12s ", "-");
    printf("%7.1f ", (double)out[0].predicted_peak / (double)x->predicted_peak);
    if (x->loss_count) return tell_trained(r, x, i && out[like].loss_count ? &out[like] : NULL);
    puts(base->dry_run ? "" : " planned only: it does not fit here");
    return 0;
}

/* ---- the whole ---- */
static int ladder_write(const ladder *l, const options *base, const char *about, const outcome *out,
                        char *const *strips) {
    page shown;
    int wrong = 0;

    memset(&shown, 0, sizeof shown);
    shown.title = "The same network in less memory";
    shown.about = about;
    shown.rungs = out;
    shown.count = l->count;
    shown.strips = (const char *const *)strips;
    shown.on_card = l->on_card;
    if (page_write("build/ladder.html", &shown) || page_chart_svg("build/ladder.svg", &shown)) {
        fputs("train_gpt: build/ladder.html could not be written; is this folder writable?\n", stderr);
        wrong = 1;
    } else puts("build/ladder.html shows it: where the bytes are, through one step, and the losses.");
    if (base->json && json_write_all(base->json, out, l->count)) {
        fprintf(stderr, "train_gpt: %s could not be written: is its folder there, and is there room?\n", base->json);
        wrong = 1;
    }
    return wrong;
}

static int ladder_run(const ladder *l, const options *base) {
    outcome *const out = (outcome *)calloc(RUNGS, sizeof *out);
    char *strips[RUNGS], about[200];

    struct stat st;
    size_t i;
    int wrong = 0;

    if (!out) {
        fputs("train_gpt: no memory for the results.\n", stderr);
        return 1;
    }
    memset(strips, 0, sizeof strips);
    snprintf(about, sizeof about, "%s: %zu layers of width %zu, %zu tokens in %zu sequences, %zu steps, %s",
             base->preset, base->layers, base->width, base->batch * base->context, base->batch, base->steps, l->where);
    if (stat("build", &st)) (void)mkdir("build", 0777); /* where files of the last rungs lie, too */
    tell_rungs_head(base, about);
    for (i = 0; i < l->count; ++i) {
        options o = *base;

        rung_options(&o, l->rungs[i].which);
        run_apart(&o, l->rungs[i].name, &out[i], &strips[i]);
        wrong |= tell_rung(l, base, out, i);
        fflush(stdout);
    }
    wrong |= ladder_write(l, base, about, out, strips);
    for (i = 0; i < l->count; ++i) free(strips[i]);
    free(out);
    return wrong;
}
#endif
