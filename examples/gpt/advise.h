/* advise.h - which switches make a model fit: every combination that could be the best is planned by a dry run; chunks of
   head and MLP of every power of two below all rows are among them. Formats come in the order of what they round; of each
   the fastest plan, then the smallest: by CPU seconds where --speeds has them, else by operations and by what chunks
   read. The first format that fits is the advice. Switches that were given stay as they are; with --ranks the
   budget is that of a rank, and the lowest stage that fits is taken, as it sends least. With --processors it is that of
   all ranks, of which there may be fewer with more threads each: they hold fewer copies and send less. The frontier is
   what the same rule says of smaller budgets. --fit is the other way round: switches stay, and the largest batch that
   fits is found. */
#ifndef GPT_ADVISE_H
#define GPT_ADVISE_H

enum {
    FRONTIER = 8,
    MORE_ROWS = 8 /* of a chunk: it reads its weights and adds to their gradient, as long as those take */
};

#include "speeds.h"

typedef struct advised {
    options o;
    double cost, seconds;
    size_t peak;
} advised; /* peak 0: nothing fits; seconds of the CPU, 0: not known */

static const struct advised_format {
    const char *name;
    weights_kind weights;
    memopt_state_format states;
} advised_formats[] = { { "the same bits", WEIGHTS_F32, MEMOPT_STATE_F32 },
                        { "8-bit states", WEIGHTS_F32, MEMOPT_STATE_8BIT },
                        { "bf16 split", WEIGHTS_SPLIT, MEMOPT_STATE_F32 },
                        { "bf16 split, 8-bit states", WEIGHTS_SPLIT, MEMOPT_STATE_8BIT },
                        { "bf16, 8-bit states", WEIGHTS_BF16, MEMOPT_STATE_8BIT } };

enum { ADVISED_FORMATS = sizeof advised_formats / sizeof *advised_formats, ADVISED_FORMS = 32 };

typedef struct adviser { /* what is asked, and with what it is answered */
    options asked;
    const memopt_ops *ops;
    beside b;
    speeds *s; /* NULL: by operations */
    char *message;
    size_t capacity, least[ADVISED_FORMATS]; /* bytes that any plan of a format takes; 0: there is none */
} adviser;

static int was_given(const options *o, int id) { return (int)(o->given >> id & 1); }

/* Head: rows of the smallest chunk, and how many sizes there are, each twice the one before. With more than 8 chunks sums
   of gradients of 16 bits take scratch of their own, in which smaller chunks would not always be less: a form of their own. */
static int head_sizes(const options *x, int form, size_t *first) {
    const size_t rows = head_rows(x), many = x->gradients == MEMOPT_TYPE_F32 ? 0 : (rows - 1) / 8;
    size_t size;
    int n = 0;

    if ((form & 16) && !many) return 0;
    for (*first = x->weights == WEIGHTS_BF16 ? 32 : 1; (form & 16) && *first <= many;) *first *= 2;
    for (size = *first; size < rows && (!many || (form & 16) || size <= many); size *= 2) ++n;
    return n;
}

static int mlp_sizes(const options *x) {
    size_t size;
    int n = 0;

    for (size = LEAST_MLP; size < mlp_rows(x); size *= 2) ++n;
    return n;
}

/* A combination within a budget, 0 for the least, with the smallest chunks; 1: it is none, or not one that was asked for. */
static int advised_options(const options *asked, size_t budget, int format, int form, options *x) {
    static const int ids[4] = { ON_HEAD, ON_ATTENTION, ON_MLP, ON_FUSE_STEP };
    char ignored[400];
    int i;

    *x = *asked;
    for (i = 0; i < 4; ++i)
        if ((form >> i & 1) && was_given(asked, ids[i])) return 1;
    if ((form & 2) && x->lean_attention) return 1;
    if (form & 2) x->lean_attention = 1;
    if (form & 4) x->mlp_chunk = LEAST_MLP;
    if (form & 8) x->fuse_step = 1;
    x->weights = advised_formats[format].weights;
    if (was_given(asked, ON_WEIGHTS) && x->weights != asked->weights) return 1;
    if (was_given(asked, ON_OPTIMIZER) && format && advised_formats[format - 1].weights == x->weights)
        return 1; /* states stay */
    if (!was_given(asked, ON_OPTIMIZER)) x->states = advised_formats[format].states;
    if (!was_given(asked, ON_KEEP)) {
        x->keep = budget ? KEEP_BUDGET : KEEP_LEAST;
        x->budget = budget;
    }
    if (!was_given(asked, ON_GRADIENTS))
        x->gradients = x->weights == WEIGHTS_BF16 && !x->parts ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    if (form & 1 ? !head_sizes(x, form, &x->head_chunk) : form & 16) return 1;
    if ((form & 4) && !mlp_sizes(x)) return 1;
    return options_wrong(x, 0, ignored, sizeof ignored);
}

/* The next lower number of ranks that the processors can be dealt to; 0: there is none, or they are as given. */
static size_t fewer_ranks(const adviser *a, size_t ranks) {
    if (!a->asked.processors) return 0;
    do --ranks;
    while (ranks && a->asked.processors % ranks);
    return ranks;
}

/* What is asked, with so many ranks, each of which has a share of the processors as its threads. */
static options dealt(const adviser *a, size_t ranks, size_t stage) {
    options o = a->asked;

    o.ranks = ranks;
    o.stage = stage;
    if (o.processors) o.threads = o.processors / ranks;
    return o;
}

static size_t sharers(const adviser *a, const options *o) {
    return a->asked.processors ? o->ranks : 1;
} /* of the budget */

/* Which pages come in differs from run to run; what a rank's arena holds does not. */
static size_t advised_slack(const adviser *a) { return a->asked.ranks ? 0 : PROCESS_SLACK; }

/* The plan of x->o. 1: there is none within the budget; 0 bytes: whatever it takes. */
static int advised_plan(const adviser *a, size_t budget, advised *x, work *w) {
    if (x->o.ranks) x->peak = planned_rank(&x->o, w) * sharers(a, &x->o);
    else {
        engine e;

        x->peak = engine_open(&e, &x->o, a->ops, 0, &a->b) ? 0 : predicted_peak(&a->b, e.peak);
        if (x->peak) *w = pass_work(&e);
        engine_close(&e);
    }
    return !x->peak || (budget && x->peak + advised_slack(a) > budget);
}

static uint32_t
cost_class(double cost) { /* those of one class, 1/256 to 1/128 wide, are equal: so much of a float's bits */
    const float x = (float)cost;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 16;
}

static int is_better(const advised *x, const advised *than) {
    const uint32_t cost = cost_class(x->cost), other = cost_class(than->cost);

    return !than->peak || cost < other || (cost == other && x->peak < than->peak);
}

static double more_rows(size_t rows, size_t chunk) { /* that chunks are worth, as a share of all */
    return chunk && chunk < rows ? MORE_ROWS * (double)((rows - 1) / chunk) / (double)rows : 0;
}

/* What the work takes with the chunks of x. 1: it could not be measured. */
static int advised_cost(const adviser *a, advised *x, const work *w) {
    x->seconds = a->s ? step_seconds(a->s, &x->o, w) : 0;
    if (x->seconds < 0) {
        snprintf(a->message, a->capacity, "--speeds: a network could not be measured: %s", a->s->why);
        return 1;
    }
    x->cost = a->s ? x->seconds
                   : 2
                         * (w->cost + w->of[MLP_KIND] * more_rows(mlp_rows(&x->o), x->o.mlp_chunk)
                            + w->of[HEAD_KIND] * more_rows(head_rows(&x->o), x->o.head_chunk));
    return 0;
}

/* Of chunks of o's rows or 2, 4, ... times as many: so many sizes of the head and of the MLP. Smaller chunks leave more to
   what is kept, so that no work is less than that of the smallest, and larger ones take less beside it: what is not better
   with both is not looked into. */
static int advise_chunks(const adviser *a, size_t budget, const options *o, int heads, int mlps, advised *best) {
    advised x, bound;
    work w;
    options up;
    int is_head, n;

    x.o = *o;
    if (advised_plan(a, budget, &x, &w)) return 0; /* nor do larger ones fit */
    if (advised_cost(a, &x, &w)) return 1;
    if (is_better(&x, best)) *best = x;
    while (heads > 1 || mlps > 1) {
        bound = x;
        bound.o.head_chunk <<= heads - 1;
        bound.o.mlp_chunk <<= mlps - 1;
        if (advised_cost(a, &bound, &w)) return 1;
        if (!is_better(&bound, best)) return 0;
        is_head = heads >= mlps;
        n = is_head ? heads : mlps;
        up = *o;
        if (is_head) {
            heads -= n / 2;
            up.head_chunk <<= heads;
        } else {
            mlps -= n / 2;
            up.mlp_chunk <<= mlps;
        }
        if (advise_chunks(a, budget, &up, is_head ? n / 2 : heads, is_head ? mlps : n / 2, best)) return 1;
    }
    return 0;
}

/* The best of a format, a stage and a number of ranks; best->peak 0: none fits. 1: a time could not be measured. */
static int advise_ranks(const adviser *a, size_t budget, int format, const options *asked, advised *best) {
    const size_t sharing = sharers(a, asked);
    int form;
    options o;
    size_t first;

    for (form = 0; form < ADVISED_FORMS; ++form) {
        if (advised_options(asked, (budget + sharing - 1) / sharing, format, form ^ 8, &o))
            continue; /* steps inside first: they cost nothing */
        if (advise_chunks(a, budget, &o, form & 1 ? head_sizes(&o, form, &first) : 1, form & 4 ? mlp_sizes(&o) : 1,
                          best))
            return 1;
    }
    return 0;
}

static int advise_stage(const adviser *a, size_t budget, int format, size_t stage, advised *best) {
    size_t ranks = a->asked.ranks;
    options asked;

    do {
        asked = dealt(a, ranks, stage);
        if (advise_ranks(a, budget, format, &asked, best)) return 1;
    } while ((ranks = fewer_ranks(a, ranks)) != 0);
    return 0;
}

static int has_stages(const adviser *a) {
    return a->asked.ranks && !was_given(&a->asked, ON_STAGE) && !(a->asked.offload & OFFLOAD_WEIGHTS);
}

static int advise_format(const adviser *a, size_t budget, int format, advised *best) {
    size_t stage = has_stages(a) ? 0 : a->asked.stage;
    const size_t last = has_stages(a) ? 3 : stage;

    best->peak = 0;
    if (!a->least[format] || a->least[format] + advised_slack(a) > budget) return 0;
    for (; stage <= last && !best->peak; ++stage)
        if (advise_stage(a, budget, format, stage, best)) return 1;
    return 0;
}

/* The least that any combination of a format, a stage and a number of ranks takes. */
static size_t least_of(const adviser *a, int format, size_t ranks, size_t stage) {
    const options asked = dealt(a, ranks, stage);
    size_t least_peak = 0;
    int form;
    advised x;
    work w;

    for (form = 0; form < ADVISED_FORMS; ++form) {
        if (advised_options(&asked, 0, format, form, &x.o) || advised_plan(a, 0, &x, &w)) continue;
        if (!least_peak || x.peak < least_peak) least_peak = x.peak;
    }
    return least_peak;
}

/* Of all of them: what a stage holds beside its parts may be more than it saves. */
static size_t format_least(const adviser *a, int format) {
    size_t ranks = a->asked.ranks, stage, least_peak = 0;
    const size_t first = has_stages(a) ? 0 : a->asked.stage, last = has_stages(a) ? 3 : first;

    do
        for (stage = first; stage <= last; ++stage) {
            const size_t peak = least_of(a, format, ranks, stage);

            if (peak && (!least_peak || peak < least_peak)) least_peak = peak;
        }
    while ((ranks = fewer_ranks(a, ranks)) != 0);
    return least_peak;
}

static size_t advised_least(const adviser *a) {
    size_t least_peak = 0;
    int format;

    for (format = 0; format < ADVISED_FORMATS; ++format)
        if (a->least[format] && (!least_peak || a->least[format] < least_peak)) least_peak = a->least[format];
    return least_peak ? least_peak + advised_slack(a) : 0;
}

static void advised_tell(const char *name, const advised *x) {
    options shown = x->o;
    char text[400];

    if (!x->peak) {
        printf("%-26s %12s\n", name, "-");
        return;
    }
    options_advised(&shown);
    options_describe(&shown, text, sizeof text);
    printf("%-26s %12.1f ", name, (double)x->peak / 1e6);
    if (x->seconds > 0) printf("%10.4g", x->seconds);
    else printf("%10.3g", x->cost);
    printf("  %s %s\n", shown.program, text);
}

/* A line for each format, and the first that fits into *best. */
static int advise(adviser *a, advised *best) {
    advised x;
    int format;

    for (format = 0; format < ADVISED_FORMATS; ++format) a->least[format] = format_least(a, format);
    printf("%-26s %12s %10s  %s\n", "", "predicted MB", a->s ? "CPU s, step" : "operations", "command");
    for (format = 0, best->peak = 0; format < ADVISED_FORMATS; ++format) {
        if (advise_format(a, a->asked.advise, format, &x)) return 1;
        advised_tell(advised_formats[format].name, &x);
        if (x.peak && !best->peak) *best = x;
    }
    if (!best->peak)
        snprintf(a->message, a->capacity,
                 "Nothing fits into %.1f MB: the least is %.1f MB; a smaller --batch or --context needs less.",
                 (double)a->asked.advise / 1e6,
                 ceil((double)(advised_least(a) + advised_slack(a)) / 1e5) / 10); /* also in the next process */
    return !best->peak;
}

/* A plan of the same format that is smaller and as fast, as where a lower stage fits again. */
static int is_dominated(const advised *x, const advised *by) {
    return x->peak == by->peak || (x->o.weights == by->o.weights && x->o.states == by->o.states && x->cost >= by->cost);
}

/* Plans come in steps: with a budget just above one, a process that takes a little more or less than this one would choose
   another. Half the slack above it takes the same. */
static void settle_budget(const adviser *a, advised *x) {
    const size_t slack = advised_slack(a);
    advised y = *x;
    work w;

    y.o.budget = x->peak + slack + slack / 2;
    if (slack && x->o.keep == KEEP_BUDGET && y.o.budget <= a->asked.advise && !advised_plan(a, y.o.budget, &y, &w)
        && y.peak == x->peak)
        *x = y;
}

/* Of budgets from the least to the one that was asked for, the first format that fits; those that are worth it. */
static int advise_frontier(const adviser *a, const advised *best, advised *rows, size_t *count) {
    const double least_peak = (double)advised_least(a), ratio = (double)a->asked.advise / least_peak;
    int format, i;

    for (i = 0, *count = 0; i < FRONTIER; ++i) {
        advised *x = &rows[*count];
        const size_t budget =
            i == FRONTIER - 1 ? a->asked.advise : (size_t)ceil(least_peak * pow(ratio, (double)i / (FRONTIER - 1)));

        for (format = 0, x->peak = 0; i < FRONTIER - 1 && format < ADVISED_FORMATS && !x->peak; ++format)
            if (advise_format(a, budget, format, x)) return 1;
        if (i == FRONTIER - 1) *x = *best;
        if (x->peak) settle_budget(a, x);
        if (x->peak && !(*count && is_dominated(x, x - 1))) ++*count;
    }
    return 0;
}

/* ---- --fit ---- */
static int fits_plan(const options *o, void *user) {
    const adviser *a = (const adviser *)user;
    advised x;
    work w;

    x.o = *o;
    return !advised_plan(a, o->fit, &x, &w);
}

static size_t planned_bytes(const options *o, void *user) {
    const adviser *a = (const adviser *)user;
    advised x;
    work w;

    x.o = *o;
    (void)advised_plan(a, 0, &x, &w);
    return x.peak;
}

static adviser adviser_of(const options *o, const memopt_ops *ops, const beside *b, char *message, size_t capacity) {
    adviser a;

    memset(&a, 0, sizeof a);
    a.asked = *o;
    a.ops = ops;
    a.message = message;
    a.capacity = capacity;
    if (b) a.b = *b;
    return a;
}

static int fit(options *o, const memopt_ops *ops, const beside *b, char *message, size_t capacity) {
    adviser a = adviser_of(o, ops, b, message, capacity);

    return fit_batch(o, fits_plan, planned_bytes, &a, message, capacity);
}

/* Why there is no plan has been told; where a budget is too small, what needs less as well. */
static int tell_small_budget(const options *o, const memopt_ops *ops, const beside *b, char *message, size_t capacity) {
    adviser a = adviser_of(o, ops, b, message, capacity);
    options x = *o;

    x.keep = KEEP_LEAST;
    if (o->keep == KEEP_BUDGET) tell_leaner(&x, planned_bytes, &a, message, capacity);
    return 1;
}
#endif
