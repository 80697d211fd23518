/* steps.h - what a step is made of: its batch, its rate, the tokens. */
#ifndef GPT_STEPS_H
#define GPT_STEPS_H
#include <math.h>

/* --fit: the largest batch with which a run fits. 1: not even one does. */
static int fit_batch(options *o, int (*fits_fn)(const options *o, void *user), void *user, char *message, size_t n) {
    options x = *o; size_t fits = 0, over = 1;

    for (x.batch = over; fits_fn(&x, user); x.batch = over) { fits = over; over *= 2; }
    while (over - fits > 1) {
        x.batch = fits + (over - fits) / 2;
        if (fits_fn(&x, user)) fits = x.batch;
        else over = x.batch;
    }
    o->batch = fits;
    if (!fits && !message[0])
        snprintf(message, n, "Not even a batch of 1 fits into %.1f MB; --attention lean, --head chunk:64, --mlp chunk:512, "
                 "--fuse-step, --keep overhead:33 and --weights bf16 need less.", (double)o->fit / 1e6);
    return !fits;
}

static double rate_at(const options *o, size_t step) { /* step 0 is the first */
    const double whole = o->rate * (o->scale_rate ? (double)(o->batch * o->accumulate) / (double)o->scale_rate : 1);
    const double after = o->steps > o->warmup ? (double)(o->steps - o->warmup) : 1;
    const double gone = (double)(step - least(step, o->warmup)) / after;
    if (step < o->warmup) return whole * (double)(step + 1) / (double)o->warmup;
    return o->schedule == RATE_CONSTANT ? whole : o->schedule == RATE_LINEAR ? whole * (1 - gone)
        : whole * 0.5 * (1 + cos(3.14159265358979323846 * gone));
}

/* From here on batches are read ahead: this rank's, of `units` of all ranks a step. */
static int open_feed(engine *e, const options *o, data *d, size_t units, size_t rank, size_t ranks) {
    data_shape shape;
    shape.seed = o->seed; shape.batch = o->batch; shape.context = o->context;
    shape.units = units; shape.rank = rank; shape.ranks = ranks;
    return !o->vit && data_feed(d, &shape, e->ahead, e->message, sizeof e->message);
}

/* number: of a batch, of those that are trained on, or of those that are not. Without a feed, in a rehearsal and on a
   rank that never has a batch, nobody looks at what is in it. */
static int load_tokens(const options *o, data *d, uint64_t number, int held_back, size_t batch, int32_t *ids, int32_t *targets,
                       char *message, size_t n) {
    const size_t bytes = batch * o->context * sizeof *ids;

    if (held_back)
        return data_held_back(d, data_held_batches(d, o->batch, o->context) * o->batch, (size_t)number * batch, batch, o->context, ids, targets, message, n);
    if (d->feed) return data_batch(d, number, ids, targets, message, n);
    memset(ids, 0, bytes);
    memset(targets, 0, bytes);
    return 0;
}
#endif
