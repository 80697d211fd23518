/* rehearsal.h - steps of a few of the model's layers just before the run, by the same code, in the same sizes, on the same
   disk: what reads and writes cost each other, and what others do on the machine now, are in their times.

   A step of the model is a rehearsed step and more uses of groups; each of those takes what a use of its kind took, stepping
   and waiting for the disk included. The first step is told by the first, which writes where nothing was written before. */
#ifndef SEVEN_REHEARSAL_H
#define SEVEN_REHEARSAL_H
#include "time.h"

enum { REHEARSED_LAYERS = 2, REHEARSED_STEPS = 3 /* fewer where they take long */, REHEARSED_SECONDS = 20 };

typedef struct uses { /* forwards and backwards of each kind in a step */
    double count[KINDS][2], seconds[KINDS][2];
} uses;

typedef struct rehearsal {
    int    steps;                  /* that were made; 0: the model is as small as a rehearsal */
    uses   of_step[REHEARSED_STEPS];
    double whole[REHEARSED_STEPS]; /* seconds */
    double begin;                  /* seconds of writing the weights, an element */
    double last;                   /* when the use before ended, while it goes on */
} rehearsal;

typedef struct told_time { double seconds, low, high; } told_time;

static rehearsal *rehearsed; /* by rehearsal_use() */

static void rehearsal_use(model *m) { /* after a callback */
    const memopt_shard_use use = m->uses[m->told - 1];
    const int kind = kind_of(m, use.group);
    uses *u = &rehearsed->of_step[rehearsed->steps];
    const double t = now();

    u->count[kind][use.is_backward] += 1;
    u->seconds[kind][use.is_backward] += t - rehearsed->last;
    rehearsed->last = t;
}

static int rehearse_steps(model *m, rehearsal *r) {
    double begin = now(), start;

    if (model_write_weights(m)) return 1;
    start = now();
    r->begin = (start - begin) / model_parameters(m);
    rehearsed = r;
    m->told_fn = rehearsal_use;
    for (r->steps = 0; r->steps < REHEARSED_STEPS && now() - start < REHEARSED_SECONDS; ++r->steps) {
        begin = r->last = now();
        if (model_step(m, (size_t)r->steps + 1)) return 1;
        r->whole[r->steps] = now() - begin;
    }
    return 0;
}

/* By a scratch file in the directory of `path`. */
static int rehearse(model *m, const char *path, rehearsal *r) {
    static model few;
    options o = *m->o;
    int wrong;

    if (o.layers < 2 * REHEARSED_LAYERS) return 0;
    o.layers = REHEARSED_LAYERS;
    o.keep = 0;
    few.threads = m->threads;
    model_shape(&few, &o);
    wrong = model_open_tables(&few) || model_describe(&few) || model_plan(&few, o.memory) || model_open(&few, path, 0)
         || rehearse_steps(&few, r);
    model_close(&few);
    return wrong && refuse(m, "%s", few.message);
}

static double rehearsed_seconds(const rehearsal *r, int step, const model *m) {
    const uses *u = &r->of_step[step];
    double seconds = r->whole[step];
    size_t i;
    int kind, way;

    for (kind = 0; kind < KINDS; ++kind)
        for (way = 0; way < 2; ++way) {
            const double each = u->count[kind][way] > 0 ? u->seconds[kind][way] / u->count[kind][way] : 0;
            double count = -u->count[kind][way];

            for (i = 0; i < m->use_count; ++i)
                count += kind_of(m, m->uses[i].group) == kind && m->uses[i].is_backward == way;
            seconds += count * each;
        }
    return seconds;
}

/* The steps of a rehearsal differ, and so will those of the run: at least by a tenth both ways. */
static told_time rehearsed_time(const rehearsal *r, const model *m, int is_first) {
    const double a = rehearsed_seconds(r, r->steps > 1, m), b = rehearsed_seconds(r, r->steps - 1, m);
    const double spread = a < b ? b / a : a / b;
    told_time t;

    t.seconds = is_first ? rehearsed_seconds(r, 0, m) : (a + b) / 2;
    t.low = t.seconds / spread * 0.9;
    t.high = t.seconds * spread * 1.1;
    return t;
}
#endif
