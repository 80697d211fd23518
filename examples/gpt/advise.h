/* advise.h - which switches make a model fit: every combination is planned by a dry run, and nothing is trained. Formats
   come in the order of what they round; of each the plan that computes least again, then the smallest. The first format
   that fits is the advice. Switches that were given stay as they are. */
#ifndef GPT_ADVISE_H
#define GPT_ADVISE_H

typedef struct advised { options o; double cost; size_t peak; } advised; /* peak 0: nothing fits */
static const struct advised_format { const char *name; weights_kind weights; memopt_state_format states; } advised_formats[] = {
    { "the same bits", WEIGHTS_F32, MEMOPT_STATE_F32 }, { "8-bit states", WEIGHTS_F32, MEMOPT_STATE_8BIT },
    { "bf16 split", WEIGHTS_SPLIT, MEMOPT_STATE_F32 }, { "bf16 split, 8-bit states", WEIGHTS_SPLIT, MEMOPT_STATE_8BIT },
    { "bf16, 8-bit states", WEIGHTS_BF16, MEMOPT_STATE_8BIT } };
enum { ADVISED_FORMATS = sizeof advised_formats / sizeof *advised_formats, ADVISED_FORMS = 16 };

static int was_given(const options *o, int id) { return (int)(o->given >> id & 1); }
/* A combination; 1: it is none, or not one that was asked for. */
static int advised_options(const options *asked, int format, int form, options *x) {
    static const int ids[4] = { ON_HEAD, ON_ATTENTION, ON_MLP, ON_FUSE_STEP }; char ignored[400]; int i;
    *x = *asked;
    for (i = 0; i < 4; ++i) if ((form >> i & 1) && was_given(asked, ids[i])) return 1;
    if (form & 1) x->head_chunk = 64;
    if (form & 2) x->lean_attention = 1;
    if (form & 4) x->mlp_chunk = 512;
    if (form & 8) x->fuse_step = 1;
    x->weights = advised_formats[format].weights; x->states = advised_formats[format].states;
    if (was_given(asked, ON_WEIGHTS) && x->weights != asked->weights) return 1;
    if (was_given(asked, ON_OPTIMIZER) && x->states != asked->states) return 1;
    if (!was_given(asked, ON_GRADIENTS)) x->gradients = x->weights == WEIGHTS_BF16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    if (!was_given(asked, ON_KEEP)) { x->keep = KEEP_BUDGET; x->budget = asked->advise; }
    return options_wrong(x, 0, ignored, sizeof ignored);
}
static void advise_format(const options *asked, int format, const memopt_ops *ops, const beside *b, advised *best) {
    int form; engine e; advised a;
    best->peak = 0; best->cost = 0;
    for (form = 0; form < ADVISED_FORMS; ++form) {
        if (advised_options(asked, format, form, &a.o)) continue;
        a.peak = engine_open(&e, &a.o, ops, 0, b) ? 0 : predicted_peak(b, e.peak);
        a.cost = a.peak && e.tape ? memopt_tape_get_stats(e.tape).cost : 0;
        engine_close(&e);
        if (!a.peak || a.peak + PROCESS_SLACK > asked->advise) continue;
        if (!best->peak || a.cost < best->cost || (!(a.cost > best->cost) && a.peak < best->peak)) *best = a;
    }
}
/* The least that any combination takes: all that saves is on. */
static size_t advised_least(const options *asked, const memopt_ops *ops, const beside *b) {
    size_t least_peak = 0, peak; int format, form; options x; char ignored[400];
    for (format = 0; format < ADVISED_FORMATS; ++format) for (form = 0; form < ADVISED_FORMS; ++form) {
        if (advised_options(asked, format, form, &x)) continue;
        if (!was_given(asked, ON_KEEP)) x.keep = KEEP_LEAST;
        peak = planned_arena(&x, ops, b, ignored, sizeof ignored);
        if (peak && (!least_peak || predicted_peak(b, peak) < least_peak)) least_peak = predicted_peak(b, peak);
    }
    return least_peak;
}
/* A line for each format, and the first that fits into *o. */
static int advise(options *o, const memopt_ops *ops, const beside *b, char *message, size_t capacity) {
    const options asked = *o; advised best; options shown; char text[400]; int format, found = 0;
    printf("%-26s %12s %10s  %s\n", "", "predicted MB", "operations", "command");
    for (format = 0; format < ADVISED_FORMATS; ++format) {
        advise_format(&asked, format, ops, b, &best);
        if (!best.peak) { printf("%-26s %12s\n", advised_formats[format].name, "-"); continue; }
        shown = best.o; shown.advise = 0; shown.dry_run = 0;
        options_describe(&shown, text, sizeof text);
        printf("%-26s %12.1f %10.3g  train_gpt %s\n", advised_formats[format].name, (double)best.peak / 1e6, 2 * best.cost, text);
        if (!found) *o = best.o;
        found = 1;
    }
    if (!found)
        snprintf(message, capacity, "Nothing fits into %.1f MB: the least is %.1f MB; a smaller --batch or --context needs less.",
                 (double)asked.advise / 1e6, ceil((double)(advised_least(&asked, ops, b) + PROCESS_SLACK) / 1e5) / 10);
    return !found;
}
#endif
