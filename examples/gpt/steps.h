/* steps.h - what a step is made of: its batch, its rate, the tokens. */
#ifndef GPT_STEPS_H
#define GPT_STEPS_H
#include <math.h>

/* ---- switches that need less, found by dry runs ---- */
typedef size_t planned_fn(const options *o, void *user); /* bytes; 0: there is no such plan */

enum {
    LEAN_HEAD = 64,
    LEAN_MLP = 512, /* rows of a chunk, where there are more */
    LEAST_MLP = 32  /* fewer are made as many */
};

static size_t head_rows(const options *o) { return o->batch * (is_vit(o) ? 1 : o->context); }

static size_t mlp_rows(const options *o) { return o->batch * (o->context + (is_vit(o) ? 1 : 0)); }

static size_t chunk_below(size_t rows,
                          size_t chunk) { /* of a power of two: the next that is not all rows; 0: there is none */
    while (chunk >= rows) chunk /= 2;
    return chunk;
}

enum { LEANER = 7 }; /* those that round last */

static const int leaner_ids[LEANER] = {
    ON_KEEP, ON_ATTENTION, ON_HEAD, ON_MLP, ON_FUSE_STEP, ON_OPTIMIZER, ON_WEIGHTS
};

/* Makes o leaner by one switch. 0: it is as lean already, or does not go with the rest. */
static int make_leaner(options *o, int which) {
    options x = *o;
    char before[300], after[300];

    switch (leaner_ids[which]) {
    case ON_KEEP:
        if (x.keep < KEEP_BUDGET) {
            x.keep = KEEP_OVERHEAD;
            x.overhead = 0.33;
        }
        break;
    case ON_ATTENTION: x.lean_attention = 1; break;
    case ON_HEAD:
        if (!x.head_chunk) x.head_chunk = chunk_below(head_rows(&x), LEAN_HEAD);
        break;
    case ON_MLP:
        if (!x.mlp_chunk) x.mlp_chunk = chunk_below(mlp_rows(&x), LEAN_MLP);
        break;
    case ON_FUSE_STEP: x.fuse_step = 1; break;
    case ON_OPTIMIZER: x.states = MEMOPT_STATE_8BIT; break;
    default:
        if (!(x.given >> ON_GRADIENTS & 1)) x.gradients = MEMOPT_TYPE_BF16;
        x.weights = WEIGHTS_BF16;
    }
    options_value(o, leaner_ids[which], before, sizeof before);
    options_value(&x, leaner_ids[which], after, sizeof after);
    if (!strcmp(before, after) || options_wrong(&x, 0, after, sizeof after)) return 0;
    *o = x;
    return 1;
}

static options made_leaner(const options *o, const int *on, int but) {
    options x = *o;
    int i;

    for (i = 0; i < LEANER; ++i)
        if (on[i] && i != but) (void)make_leaner(&x, i);
    return x;
}

/* Adds the switches that need less than o to a message; of all, those without which it would be more. */
static void tell_leaner(const options *o, planned_fn *planned, void *user, char *message, size_t n) {
    options all = *o, x;
    int on[LEANER], i, count = 0, told = 0;
    const size_t now = planned(o, user);
    size_t bytes, less;

    for (i = 0; i < LEANER; ++i) on[i] = make_leaner(&all, i);
    bytes = planned(&all, user);
    for (i = LEANER; i-- > 0;) {
        if (!on[i]) continue;
        x = made_leaner(o, on, i);
        less = planned(&x, user);
        if (!less || less > bytes) {
            ++count;
            continue;
        }
        on[i] = 0;
        bytes = less;
    }
    if (!now || (count && !bytes)) return;
    if (*message) message[strlen(message) - 1] = ';';
    for (i = 0; i < LEANER; ++i) {
        char value[300];

        if (!on[i]) continue;
        options_value(&all, leaner_ids[i], value, sizeof value);
        options_add(message, n, !told ? " " : told < count - 1 ? ", " : " and ");
        options_add(message, n, "--");
        options_add(message, n, switch_rows[leaner_ids[i]].name);
        if (leaner_ids[i] != ON_FUSE_STEP) {
            options_add(message, n, " ");
            options_add(message, n, value);
        }
        ++told;
    }
    options_add(message, n,
                !count      ? " a smaller --batch or --context needs less."
                : count > 1 ? " need less."
                            : " needs less.");
}

/* --fit: the largest batch with which a run fits. 1: not even one does. */
static int fit_batch(options *o, int (*fits_fn)(const options *o, void *user), planned_fn *planned, void *user,
                     char *message, size_t n) {
    options x = *o;
    size_t fits = 0, over = 1;

    for (x.batch = over; fits_fn(&x, user); x.batch = over) {
        fits = over;
        over *= 2;
    }
    while (over - fits > 1) {
        x.batch = fits + (over - fits) / 2;
        if (fits_fn(&x, user)) fits = x.batch;
        else over = x.batch;
    }
    o->batch = fits;
    if (!fits && !message[0]) {
        snprintf(message, n, "Not even a batch of 1 fits into %.1f MB.", (double)o->fit / 1e6);
        x.batch = 1;
        tell_leaner(&x, planned, user, message, n);
    }
    return !fits;
}

static double rate_at(const options *o, size_t step) { /* step 0 is the first */
    const double whole = o->rate * (o->scale_rate ? (double)(o->batch * o->accumulate) / (double)o->scale_rate : 1);
    const double after = o->steps > o->warmup ? (double)(o->steps - o->warmup) : 1;
    const double gone = (double)(step - least(step, o->warmup)) / after;
    if (step < o->warmup) return whole * (double)(step + 1) / (double)o->warmup;
    return o->schedule == RATE_CONSTANT ? whole
         : o->schedule == RATE_LINEAR   ? whole * (1 - gone)
                                        : whole * 0.5 * (1 + cos(3.14159265358979323846 * gone));
}

/* From here on batches are read ahead: this rank's, of `units` of all ranks a step. */
static int open_feed(engine *e, const options *o, data *d, size_t units, size_t rank, size_t ranks) {
    data_shape shape;

    shape.seed = o->seed;
    shape.batch = o->batch;
    shape.context = o->context;
    shape.units = units;
    shape.rank = rank;
    shape.ranks = ranks;
    return !is_vit(o) && data_feed(d, &shape, e->ahead, e->message, sizeof e->message);
}

/* number: of a batch, of those that are trained on, or of those that are not. Without a feed, in a rehearsal and on a
   rank that never has a batch, nobody looks at what is in it. */
static int load_tokens(const options *o, data *d, uint64_t number, int held_back, size_t batch, int32_t *ids,
                       int32_t *targets, char *message, size_t n) {
    const size_t bytes = batch * o->context * sizeof *ids;

    if (held_back)
        return data_held_back(d, data_held_batches(d, o->batch, o->context) * o->batch, (size_t)number * batch, batch,
                              o->context, ids, targets, message, n);
    if (d->feed) return data_batch(d, number, ids, targets, message, n);
    memset(ids, 0, bytes);
    memset(targets, 0, bytes);
    return 0;
}
#endif
