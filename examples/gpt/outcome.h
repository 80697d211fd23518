/* outcome.h - what one run of train_gpt tells: printed, written as JSON, drawn. Plain values, so that a process can
   hand it to another through a pipe. */
#ifndef GPT_OUTCOME_H
#define GPT_OUTCOME_H
#include "memopt.h"
#include "../parts/feed.h"
#include <string.h>

enum { TAGS = 7, MOST_LOSSES = 1000, MOST_MOMENTS = 1200 };

static const char *const tag_names[TAGS] = { "process",          "parameters",  "gradients", "optimizer",
                                             "kept activations", "working set", "data" };

typedef struct outcome {
    int ok;                                                   /* 0: it failed, and `message` says why and what to do */
    char message[400], name[64], switches[200], command[400]; /* command: a word a line */
    uint64_t predicted_peak, measured_peak; /* bytes of the process; measured 0: a dry run, or not known here */
    uint64_t at_peak[TAGS];                 /* bytes by tag at the predicted peak; sum = predicted_peak */
    uint64_t parameters, tokens;            /* of the model; of a step */
    double tokens_per_second, seconds_per_step, cpu_seconds_per_step, flops_per_step, mfu,
        gemm_flops;                  /* gemm_flops: measured peak, a second */
    uint64_t graph_nodes;            /* of a card: launches, sets and copies that are one; 0: no --graph */
    double predicted_seconds;        /* of the CPU, a step, as --advise has it with --speeds; 0: not known */
    uint64_t steps;                  /* that were trained */
    uint64_t skipped;                /* of the whole run, resumed or not: --skip-outliers */
    uint32_t loss_count, loss_steps; /* each loss is the mean of so many steps, the last one of what is left */
    float losses[MOST_LOSSES], seconds[MOST_LOSSES]; /* seconds: by the clock, of a step, as the losses */
    double first_step[2], all_steps[2];              /* seconds by the clock, and of processors */
    uint32_t held_count, held_steps; /* losses of what is held back: after each so many steps, and at the end */
    float held[MOST_LOSSES];
    uint64_t weights_hash;
    uint32_t moment_count; /* memory through one training step, in the order of what happens */

    struct moment {
        float bytes[TAGS];
        float when;
    } moments[MOST_MOMENTS]; /* when: 0 to 1 */

    uint64_t batch;                 /* sequences */
    uint64_t batches, batches_late; /* read ahead; of these, waited for; 0: images, or a dry run */
    double seconds_late;
} outcome;

/* What a feed says at its end, of each rank. */
static inline void outcome_feed(outcome *o, memopt_feed_stats f) {
    o->batches += f.units;
    o->batches_late += f.stalls;
    o->seconds_late += 1e-9 * (double)f.nanoseconds;
}

static inline void outcome_mean(float *of, uint32_t first, uint32_t in_group, double x) {
    if (!in_group) of[first] = (float)x;
    else of[first] += ((float)x - of[first]) / (float)(in_group + 1);
}

/* A step more, in so many seconds by the clock and of processors. A long training has more of them than there is room
   for: then two become one. */
static inline void outcome_step(outcome *o, double loss, double seconds, double worked) {
    uint32_t in_group, i;

    if (!o->steps) o->loss_steps = 1;
    in_group = (uint32_t)(o->steps % o->loss_steps);
    if (!in_group && o->loss_count == MOST_LOSSES) {
        for (i = 0; i < MOST_LOSSES / 2; ++i) {
            o->losses[i] = 0.5f * (o->losses[2 * i] + o->losses[2 * i + 1]);
            o->seconds[i] = 0.5f * (o->seconds[2 * i] + o->seconds[2 * i + 1]);
        }
        o->loss_count = MOST_LOSSES / 2;
        o->loss_steps *= 2;
    }
    if (!in_group) ++o->loss_count;
    outcome_mean(o->losses, o->loss_count - 1, in_group, loss);
    outcome_mean(o->seconds, o->loss_count - 1, in_group, seconds);
    o->all_steps[0] += seconds;
    o->all_steps[1] += worked;
    if (!o->steps++) memcpy(o->first_step, o->all_steps, sizeof o->first_step);
}

/* How fast the steps were. warms: but the first, where there are others; on a card that one loads kernels and chooses
   products. */
static inline void outcome_speed(outcome *o, int warms) {
    const int leaves = warms && o->steps > 1;
    const double steps = (double)(o->steps - (leaves ? 1 : 0));

    o->seconds_per_step = (o->all_steps[0] - (leaves ? o->first_step[0] : 0)) / steps;
    o->cpu_seconds_per_step = (o->all_steps[1] - (leaves ? o->first_step[1] : 0)) / steps;
    o->tokens_per_second = (double)o->tokens / o->seconds_per_step;
}
#endif
