/* rehearse.h - how long a step takes, told before the run: steps of the model's first layers, by the same code, in the
   same sizes, on the same disk, and then so many more uses of each kind of part as the whole model's plan has. */
#ifndef FINETUNE_REHEARSE_H
#define FINETUNE_REHEARSE_H
#include "plan.h"

enum {
    REHEARSED_LAYERS = 2,
    REHEARSED_STEPS = 3 /* the first warms up; fewer where they take long */,
    REHEARSED_SECONDS = 20
};

typedef struct rehearsal {
    double seconds[KINDS][2]; /* of a step's forwards and backwards of a kind, with the steps inside them */
    double last, whole;       /* when the part before ended; of the step */
} rehearsal;

static double seconds_now(void) {
    memopt_host host;
    uint64_t t = 0;

    if (!memopt_host_resolve(NULL, &host)) (void)host.clock.now_fn(host.clock.user, &t);
    return (double)t * 1e-9;
}

static void rehearsal_told(model *m, size_t segment, int is_backward) {
    rehearsal *r = (rehearsal *)m->told_user;
    const double t = seconds_now();

    r->seconds[m->own[segment].kind][is_backward] += t - r->last;
    r->last = t;
}

/* Tokens without a meaning; each sequence is one document. */
static int rehearsal_load(model *m, void *user, uint64_t step, size_t unit) {
    size_t i;

    (void)step;
    for (i = 0; i < transformer_rows(&m->shape); ++i) {
        m->ids[i] = m->targets[i] = (int32_t)((i + 1) * 7919 * (unit + 1) % m->shape.vocabulary);
        m->positions[i] = (int32_t)(i % m->shape.length);
    }
    m->shape.documents = 0;
    m->shape.row_positions = m->positions;
    ((rehearsal *)user)->last = seconds_now();
    return 0;
}

static int rehearsal_steps(model *few, rehearsal *r) {
    const double begin = seconds_now();
    double loss, taken = 0; /* by any rank: all make as many steps */
    int i;

    few->told_fn = rehearsal_told;
    few->told_user = r;
    for (i = 0; i < REHEARSED_STEPS && taken < REHEARSED_SECONDS; ++i) {
        const double start = seconds_now();

        memset(r, 0, sizeof *r);
        if (model_step(few, (uint64_t)i + 1, 0, rehearsal_load, r, &loss)) return 1;
        r->whole = seconds_now() - start;
        taken = seconds_now() - begin;
        if (team_most(few->team, &few->why, &taken)) return 1;
    }
    return 0;
}

/* Of the whole model by what a few layers took. */
static double rehearsal_seconds(const rehearsal *r, const model *m, const model *few) {
    double seconds = r->whole;
    int kind, direction;

    for (kind = 0; kind < KINDS; ++kind)
        for (direction = 0; direction < 2; ++direction) {
            const double runs = (double)few->runs[kind][direction];

            if (runs > 0) seconds += r->seconds[kind][direction] * ((double)m->runs[kind][direction] / runs - 1);
        }
    return seconds;
}

/* The seconds of a step of `m`, which is planned by `w`. store: where a file of the store may lie for a while. 0 where
   the model is hardly larger than what is rehearsed. */
static int rehearse(model *m, const way *w, const char *store, double *seconds) {
    model few;
    rehearsal r;
    size_t least;
    int wrong;

    *seconds = 0;
    if (m->layers < 2 * REHEARSED_LAYERS) return 0;
    memset(&few, 0, sizeof few);
    few.threads = m->threads;
    few.folder = m->folder;
    few.team = m->team;
    model_shape(&few, m->o, m->config, &m->shape);
    few.layers = REHEARSED_LAYERS;
    wrong = model_open_tables(&few) || plan_describe(&few, w) || model_plan(&few, m->planned, &least)
         || model_open(&few, store, 0) || (few.frozen_bytes && few.frozen_stays && frozen_bring_all(&few));
    wrong = team_wrong(few.team, &few.why, wrong) || model_read_weights(&few) || rehearsal_steps(&few, &r);
    if (!wrong) *seconds = rehearsal_seconds(&r, m, &few);
    model_close(&few);
    if (model_is_in_store(m)) (void)remove(store);
    return wrong && refuse(&m->why, "%s", few.why.text);
}
#endif
