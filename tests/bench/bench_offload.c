/* bench_offload.c - a step of 64 Mi parameters with 8-bit AdamW states on a slow tier.
   step_host    states in other memory of the host
   step_disk    states in a file of the working directory
   step_both    states and weights in a file, stepped inside backward where they were computed with
   Their limit is the larger of the same step with all in memory, and what the bytes that it moves take at the rate that
   the same tier was measured to have, reading and writing at once, just before and after; of other memory, whose copies
   the thread that steps makes itself, the sum of both. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

enum { BENCH_GROUPS = 16, BENCH_STEPS = 5, BENCH_TILES = 64 };
#define BENCH_COUNT ((size_t)4 << 20) /* parameters of a group */
#define BENCH_FILE  "bench_offload.tiles"

static void bench_must(memopt_status s, const char *what) {
    if (!s) return;
    fprintf(stderr, "bench_offload: %s: %s\n", what, memopt_status_text(s));
    exit(1);
}

static memopt_store *bench_store(const memopt_shard_desc *d, const char *path, size_t **tiles) {
    memopt_shard_bytes b;
    memopt_store_desc s;
    memopt_store *store = NULL;

    memset(&s, 0, sizeof s);
    bench_must(memopt_shard_plan(d, &b), "plan");
    *tiles = (size_t *)malloc(b.slow_tiles * sizeof **tiles);
    if (!*tiles) exit(1);
    bench_must(memopt_shard_tiles(d, *tiles), "tiles");
    s.tiles = b.slow_tiles;
    s.each_bytes = *tiles;
    s.transfers = b.slow_transfers;
    s.aligned = 1;
    s.path = path;
    bench_must(memopt_store_create(&s, &store), "store");
    return store;
}

/* A unit whose gradients are there already, and its step. */
static double bench_step(memopt_shard *x, const memopt_optim_run *run) {
    const uint64_t begin = bench_now();
    size_t unit, g;

    if (run->fused) bench_must(memopt_shard_step_inside(x, run), "step inside");
    bench_must(memopt_shard_next_unit(x, &unit), "unit");
    for (g = 0; g < BENCH_GROUPS; ++g) bench_must(memopt_shard_forward(x, g), "forward");
    for (g = BENCH_GROUPS; g-- > 0;) {
        bench_must(memopt_shard_backward(x, g), "backward");
        bench_must(memopt_shard_reduce(x, g), "reduce");
    }
    bench_must(memopt_shard_next_unit(x, &unit), "round");
    bench_must(memopt_shard_step(x, run), "step");
    return (double)(bench_now() - begin) * 1e-9;
}

/* Seconds of a step; *moved: bytes that it reads and writes. */
static double bench_run(int slow, int inside, const char *path, double *moved) {
    static memopt_shard_tensor tensors[BENCH_GROUPS];
    memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run;
    memopt_shard_desc d;
    memopt_shard_bytes b;
    memopt_shard *x = NULL;
    double seconds[BENCH_STEPS];
    size_t *tiles = NULL, i;

    memset(&run, 0, sizeof run);
    memset(&d, 0, sizeof d);
    for (i = 0; i < BENCH_GROUPS; ++i) {
        tensors[i].count = BENCH_COUNT;
        tensors[i].group = i;
    }
    d.stage = inside ? 3 : 1;
    d.tensors = tensors;
    d.tensor_count = BENCH_GROUPS;
    d.optim.state = MEMOPT_STATE_8BIT;
    d.slow = slow;
    d.steps_inside = inside;
    if (slow) d.store = bench_store(&d, path, &tiles);
    bench_must(memopt_shard_plan(&d, &b), "plan");
    bench_must(memopt_shard_open(&d, NULL, &x), "open");
    bench_must(memopt_shard_share(x), "share");
    run.groups = &rates;
    run.group_count = 1;
    run.fused = inside;
    for (i = 0; i <= BENCH_STEPS; ++i) { /* the first one touches memory */
        run.step = i + 1;
        seconds[i ? i - 1 : 0] = bench_step(x, &run);
    }
    memopt_shard_close(x);
    memopt_store_destroy(d.store);
    free(tiles);
    *moved = (double)(b.slow_read + b.slow_written);
    return bench_median(seconds, BENCH_STEPS);
}

static double bench_rate(const char *path) { /* bytes a second, both ways at once */
    memopt_store_desc s;
    memopt_store_rates rates = { 0, 0, 0 };

    memset(&s, 0, sizeof s);
    s.tiles = BENCH_TILES;
    s.tile_bytes = (size_t)4 << 20;
    s.aligned = 1;
    s.path = path;
    bench_must(memopt_store_measure(&s, 500000000, &rates), "rates");
    return rates.both;
}

static void bench_tier(const bench *b, const char *name, int slow, int inside, const char *path) {
    double moved;
    const double memory = bench_run(0, inside, NULL, &moved), before = bench_rate(path);
    const double value = bench_run(slow, inside, path, &moved);
    const double moving = moved / (0.5 * (before + bench_rate(path)));

    bench_row(b, name, 1, BENCH_GROUPS * BENCH_COUNT, value, "s",
              !path ? memory + moving : memory > moving ? memory : moving, 0);
}

int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "offload");

    bench_tier(&b, "step_host", MEMOPT_SHARD_SLOW_STATES, 0, NULL);
    bench_tier(&b, "step_disk", MEMOPT_SHARD_SLOW_STATES, 0, BENCH_FILE);
    bench_tier(&b, "step_both", MEMOPT_SHARD_SLOW_STATES | MEMOPT_SHARD_SLOW_WEIGHTS, 1, BENCH_FILE);
    return 0;
}
