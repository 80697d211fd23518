/* tables.h - several trainings side by side, each in a process of its own: the CPU's ladder, from a conventional engine
   to everything on and on a disk, and the largest batch that fits under one limit. */
#ifndef GPT_TABLES_H
#define GPT_TABLES_H
#include "apart.h"
#include "ladder.h"

static size_t planned_alone(const options *o) { /* whatever the threads: they take no memory worth the name */
    memopt_ops ops;
    char message[400];
    const beside nothing = { 0, 0 };
    memset(&ops, 0, sizeof ops);
    return planned_arena(o, &ops, &nothing, message, sizeof message);
}

static size_t memory_there(void) {
    uint64_t bytes = 0;

    return memopt_memory_available(NULL, &bytes) ? SIZE_MAX : (size_t)bytes;
}

static int run_alone(const options *asked, outcome *out, char **strip) {
    options o = *asked;

    if (o.ladder && planned_alone(&o) > memory_there() / 20 * 19)
        o.dry_run = 1; /* too large for this machine: only planned */
    return o.ranks ? rank_alone(&o, out, strip) : run(&o, out, strip);
}

/* ---- the ladder ---- */
static const rung rungs[RUNGS] = {
    { "conventional engine", CONVENTIONAL_RUNG, CONVENTIONAL_RUNG, NULL },
    { "arena: gradients of one layer", ARENA_RUNG, CONVENTIONAL_RUNG, NULL },
    { "+ checkpoints, +33 % operations", CHECKPOINTS_RUNG, ARENA_RUNG, NULL },
    { "+ step inside backward", FUSED_RUNG, CHECKPOINTS_RUNG, NULL },
    { "+ head in chunks", HEAD_RUNG, FUSED_RUNG, NULL },
    { "+ attention by rows", ATTENTION_RUNG, HEAD_RUNG, NULL },
    { "+ MLP in chunks", MLP_RUNG, ATTENTION_RUNG, NULL },
    { "+ 8-bit Adam", ADAM8_RUNG, MLP_RUNG, lossy },
    { "+ bf16: everything on", BF16_RUNG, ADAM8_RUNG, lossy },
    { "MLP in chunks, states on disk", STATES_DISK_RUNG, MLP_RUNG, NULL },
    { "MLP in chunks, weights on disk", WEIGHTS_DISK_RUNG, MLP_RUNG, NULL },
    { "MLP in chunks, outputs on disk", KEPT_DISK_RUNG, MLP_RUNG, NULL },
    { "all that keeps the bits, on disk", DISK_RUNG, MLP_RUNG, NULL },
    { "everything on, on disk", BF16_DISK_RUNG, BF16_RUNG, NULL },
};
static const rung ends[] = {
    { "conventional engine", CONVENTIONAL_RUNG, CONVENTIONAL_RUNG, NULL },
    { "all that keeps the bits", MLP_RUNG, CONVENTIONAL_RUNG, NULL },
    { "+ 8-bit Adam, bf16: everything on", BF16_RUNG, MLP_RUNG, lossy },
};

static int ladder_main(const options *o) {
    char where[32];

    ladder l;

    snprintf(where, sizeof where, "%zu threads", o->threads);
    l.rungs = o->ends ? ends : rungs;
    l.count = o->ends ? sizeof ends / sizeof *ends : (size_t)RUNGS;
    l.where = where;
    l.on_card = 0;
    return ladder_run(&l, o);
}

/* ---- the largest batch under one limit ---- */
static int batch_table_main(const options *base) {
    static const char *const names[] = { "baseline: fp32, keep everything", "16-bit: bf16 weights, gradients, kept",
                                         "checkpointing", "8-bit states", "all together" };
    size_t best = 0, i;
    outcome x;
    int vit, wrong = 0;

    for (vit = 0; vit < 2; ++vit) {
        printf("%s, %.0f MB\n%-40s %9s %12s %12s %12s\n", vit ? "ViT" : "GPT", (double)base->fit / 1e6, "", "batch",
               "samples/s", "predicted MB", "measured MB");
        for (i = 0, best = 0; i < sizeof names / sizeof *names; ++i) {
            options o = *base;
            const int all = i == 4;

            o.model = vit ? MODEL_VIT : MODEL_GPT;
            o.keep = i == 2 || all ? KEEP_OVERHEAD : KEEP_ARENA;
            o.overhead = 0.33;
            o.batch = 1;
            if (vit) {
                o.context = preset_find(o.preset)->patches;
                o.vocab = IMAGE_CLASSES;
            }
            o.weights = i == 1 || all ? WEIGHTS_BF16 : WEIGHTS_F32;
            o.gradients = i == 1 || all ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
            o.states = i == 3 || all ? MEMOPT_STATE_8BIT : MEMOPT_STATE_F32;
            if (all) {
                o.fuse_step = o.lean_attention = 1;
                o.head_chunk = 64;
                o.mlp_chunk = 512;
            }
            run_apart(&o, names[i], &x, NULL);
            if (!x.ok) {
                printf("%-40s %s\n", names[i], x.message);
                wrong = 1;
                continue;
            }
            printf("%-40s %9llu %12.2f %12.1f %12.1f\n", names[i], (unsigned long long)x.batch,
                   (double)x.batch / x.seconds_per_step, (double)x.predicted_peak / 1e6, (double)x.measured_peak / 1e6);
            fflush(stdout);
            if (i < 4 && x.batch > best) best = (size_t)x.batch;
            if (all && x.batch < best) wrong = 1;
        }
    }
    return wrong;
}
#endif
