/* plan.h - which way a model is tuned within a memory, and what that takes.

   A way is where weights and states lie, and how many rows go through the head and the MLP at once; what the tape keeps
   is planned within what is left. Ways are tried from the fastest on, and the first that fits is taken. */
#ifndef FINETUNE_PLAN_H
#define FINETUNE_PLAN_H
#include "model.h"
#include "../parts/process.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

typedef struct way {
    int    slow;         /* MEMOPT_SHARD_SLOW_... on the disk */
    int    frozen_stays; /* with adapters */
    size_t head_chunk, mlp_chunk;
    const char *text;    /* of where things lie */
} way;

enum {
    WAYS_MAX = 6,
    PLAN_SLACK = 512 << 10 /* lists of what is saved, texts of settings: taken behind the plan, and not kept */
};

/* Ways in the order of their speed. States alone on the disk are none: a store that has no weights resumes no run. */
static size_t plan_ways(const model *m, int has_disk, way *ways) {
    static const char *const places[] = { "weights and states in memory", "weights and states on the disk" };
    static const int all = MEMOPT_SHARD_SLOW_STATES | MEMOPT_SHARD_SLOW_EXTRA | MEMOPT_SHARD_SLOW_WEIGHTS;
    const size_t rows = m->o->batch * m->o->context, few = rows / 8 > 128 ? round_up(rows / 8, 32) : 128;
    const size_t chunks[3][2] = { { 512, 0 }, { 128, few }, { 64, 128 } };
    const int place_count = m->o->adapter || has_disk ? 2 : 1;
    size_t n = 0;
    int i, k;

    for (i = 0; i < place_count; ++i)
        for (k = 0; k < 3; ++k) {
            way *w = &ways[n++];

            memset(w, 0, sizeof *w);
            w->slow = i && !m->o->adapter ? all : 0;
            w->frozen_stays = !i;
            w->head_chunk = chunks[k][0];
            w->mlp_chunk = chunks[k][1];
            w->text = !m->o->adapter ? places[i] : i ? "frozen weights read from their files, part by part"
                                                          : "frozen weights in memory";
        }
    return n;
}

/* The model is described as this way has it. */
static int plan_describe(model *m, const way *w) {
    m->shape.mlp_chunk = w->mlp_chunk;
    m->head.chunk = w->head_chunk;
    model_set_slow(m, w->slow);
    if (model_describe(m)) return 1;
    frozen_lay_out(m, w->frozen_stays);
    return 0;
}

/* Bytes of the process beside what model_plan() counts; with several, of the largest. */
static int plan_process(model *m, size_t *bytes) {
    double now = 0;

    touch_stacks(m->threads.run_fn ? &m->threads : NULL);
#ifdef __GLIBC__
    (void)malloc_trim(0); /* what was given back, and is counted again where it will be taken */
#endif
    if (team_most(m->team, &m->why, &now)) return 1; /* all have touched theirs */
    now = (double)(process_now() + PROCESS_SLACK + PLAN_SLACK);
    if (team_most(m->team, &m->why, &now)) return 1;
    *bytes = (size_t)now;
    return 0;
}

static int plan_is_same(const way *a, const way *b) { /* the same bits */
    return a->slow == b->slow && a->head_chunk == b->head_chunk && a->mlp_chunk == b->mlp_chunk;
}

static int plan_find_beside(model *m, int has_disk, size_t memory, size_t process, const way *before, way *found) {
    way ways[WAYS_MAX];
    const size_t n = plan_ways(m, has_disk, ways), ranks = m->team->in_process;
    const size_t of_rank = memory > process ? (memory - process) / ranks : 0;
    size_t i, least, smallest = SIZE_MAX;

    for (i = 0; i < n; ++i) {
        if (before && !plan_is_same(before, &ways[i])) continue;
        if (plan_describe(m, &ways[i]) || model_plan(m, of_rank, &least)) return 1;
        *found = ways[i];
        if (!least) return 0;
        if (least * ranks + process < smallest) smallest = least * ranks + process;
    }
    if (smallest == SIZE_MAX) return refuse(&m->why, "the run was begun with another --disk, --batch or --context");
    return refuse(&m->why, "--memory %.3fG is too little: %.3fG is the least%s", (double)memory / 1e9,
                  ceil((double)smallest / 1e6) / 1e3 + 0.001,
                  has_disk || m->o->adapter ? "; a smaller --context or --batch needs less"
                                            : "; with --disk DIR less will do");
}

/* The first way that fits into `memory` bytes of the process: the model is planned by it. 1: none does. before: NULL,
   or that of the run that goes on. The plan's own tables count, too: where they have made the process larger, again. */
static int plan_find(model *m, int has_disk, size_t memory, const way *before, way *found) {
    double given = -(double)memory; /* what machines have left differs: the least of all ranks counts */
    size_t process, now;

    if (team_most(m->team, &m->why, &given) || plan_process(m, &now)) return 1;
    memory = (size_t)-given;
    do {
        process = now;
        if (plan_find_beside(m, has_disk, memory, process, before, found) || plan_process(m, &now)) return 1;
    } while (now > process);
    m->process_bytes = m->in_process + (double)process;
    return 0;
}

/* ---- the frontier ---- */
/* Bytes of the process: at least, where most is computed twice, and with everything kept. */
static int plan_tell_way(model *m, const way *w, size_t process) {
    char text[96], mlp[24];
    double least, recomputed, disk, moved;
    size_t planned, none;

    if (plan_describe(m, w) || model_plan(m, 0, &planned) || model_plan(m, planned, &none)) return 1;
    while (none) { /* what it takes beside depends on the plan */
        planned = none;
        if (model_plan(m, planned, &none)) return 1;
    }
    least = (m->in_process + (double)process) / 1e9;
    recomputed = 100 * m->overhead;
    disk = (double)m->room.disk / 1e9;
    moved = (double)(m->bytes.slow_read + m->bytes.slow_written) / 1e9;
    if (model_plan(m, SIZE_MAX / 4, &none)) return 1;
    snprintf(mlp, sizeof mlp, w->mlp_chunk ? "%lu" : "all", (unsigned long)w->mlp_chunk);
    snprintf(text, sizeof text, "%s (%lu, %s)", w->text, (unsigned long)w->head_chunk, mlp);
    printf("%-52s %9.3f %9.0f%% %10.3f %9.3f %9.3f\n", text, least, recomputed,
           (m->in_process + (double)process) / 1e9, disk, moved);
    fflush(stdout);
    return 0;
}

static int plan_tell_frontier(model *m, int has_disk) {
    way ways[WAYS_MAX];
    const size_t n = plan_ways(m, has_disk, ways);
    size_t i, process;

    if (plan_process(m, &process)) return 1;
    if (m->team->rank) return 0;
    printf("%-52s %9s %10s %10s %9s %9s\n", "way (rows of head, of MLP at a time)", "least GB", "recomputed", "most GB",
           "disk GB", "GB a step");
    for (i = 0; i < n; ++i)
        if (plan_tell_way(m, &ways[i], process)) return 1;
    return 0;
}
#endif
