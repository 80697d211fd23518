/* bench_shard.c - a step over 2 ranks, threads of this process, beside what memopt_shard_simulate() says of it.
   sleeping: links and computing sleep for as long as they are told, so that calls move while a rank computes. Limit: the
   simulation of the same machine.
   threads: real weights and gradients, passes over them as computing. Limit: the simulation, from seconds of a call and an
   addition, measured before, and of uses and the step, measured in it. Bytes move only in a wait there. Needs -DMEMOPT_PTHREADS -pthread.
   of limit: 1 where the simulation is right; below, where the run takes longer. */
#define _DEFAULT_SOURCE 1 /* usleep */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#include <unistd.h>

enum { BENCH_RANKS = 2, BENCH_GROUPS = 6, BENCH_PASSES = 8, BENCH_STEPS = 11 };

static void bench_must(memopt_status s, const char *what) {
    if (!s) return;
    fprintf(stderr, "bench_shard: %s: %s\n", what, memopt_status_text(s));
    exit(1);
}
static double bench_seconds(uint64_t since) { return (double)(bench_now() - since) * 1e-9; }

/* ---- a link that sleeps: a call is over at a time that its begin tells ---- */
typedef struct bench_link { memopt_transport inner; memopt_shard_link link; uint64_t is_free, over[MEMOPT_COMM_SLOTS]; } bench_link;
static memopt_status bench_link_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    bench_link *l = (bench_link *)user; const uint64_t now = bench_now();
    const double takes = l->link.latency + (double)(call->bytes * (l->inner.rank_count - 1)) / l->link.bandwidth;
    l->is_free = (l->is_free > now ? l->is_free : now) + (uint64_t)(takes * 1e9);
    l->over[slot] = l->is_free;
    return l->inner.begin_fn(l->inner.user, call, slot, error);
}
static void bench_sleep_until(uint64_t then) {
    for (;;) {
        const uint64_t now = bench_now();
        if (now >= then) return;
        (void)usleep((useconds_t)((then - now) / 1000 + 1));
    }
}
static memopt_status bench_link_wait(void *user, size_t slot, memopt_error *error) {
    bench_link *l = (bench_link *)user; const memopt_status s = l->inner.wait_fn(l->inner.user, slot, error);
    bench_sleep_until(l->over[slot]);
    return s;
}
static void bench_link_abort(void *user) { bench_link *l = (bench_link *)user; l->inner.abort_fn(l->inner.user); }

/* ---- one rank ---- */
typedef struct bench_world {
    memopt_ranks *ranks; const memopt_shard_machine *machine; int sleeps; size_t count; /* elements of a group */
    memopt_shard_machine own; double uses[2 * BENCH_GROUPS], used[2 * BENCH_GROUPS][BENCH_STEPS], steps[BENCH_STEPS], seconds[BENCH_STEPS]; /* measured by rank 0 */
} bench_world;
typedef struct bench_rank { bench_world *w; memopt_shard *shard; memopt_comm *comm; int is_first; } bench_rank;

static memopt_shard_desc bench_describe(memopt_shard_tensor *tensors, size_t count) {
    memopt_shard_desc d; size_t g;
    memset(&d, 0, sizeof d);
    for (g = 0; g < BENCH_GROUPS; ++g) { memset(&tensors[g], 0, sizeof *tensors); tensors[g].count = count; tensors[g].group = g; }
    d.stage = 3; d.tensors = tensors; d.tensor_count = BENCH_GROUPS; d.rank_count = BENCH_RANKS;
    return d;
}
static volatile float bench_sink;
static void bench_work(const float *w, float *gradient, size_t count) { /* many passes over the weights; and a gradient of each */
    float sum = 0; size_t i, pass;
    for (pass = 0; pass < BENCH_PASSES; ++pass) for (i = 0; i < count; ++i) sum += w[i] * (float)pass;
    for (i = 0; gradient && i < count; ++i) gradient[i] = w[i] * 0.5f;
    bench_sink = sum;
}
static void bench_use(const bench_rank *r, size_t index, size_t group, int is_backward) {
    const float *w = (const float *)memopt_shard_weights(r->shard, group);
    if (r->w->sleeps) bench_sleep_until(bench_now() + (uint64_t)(r->w->machine->uses[index] * 1e9));
    else bench_work(w, is_backward ? (float *)memopt_shard_gradients(r->shard, group) : NULL, r->w->count);
}
static double bench_step(const bench_rank *r, size_t number) {
    memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); memopt_optim_run run; const uint64_t since = bench_now(); size_t unit = 0, i;
    uint64_t stepped;
    memset(&run, 0, sizeof run);
    run.step = number; run.groups = &rates; run.group_count = 1; run.gradient_factor = 1e-3;
    for (;;) {
        bench_must(memopt_shard_next_unit(r->shard, &unit), "a round");
        if (unit == MEMOPT_SHARD_DONE) break;
        for (i = 0; i < 2 * BENCH_GROUPS; ++i) {
            const size_t g = i < BENCH_GROUPS ? i : 2 * BENCH_GROUPS - 1 - i; const int back = i >= BENCH_GROUPS;
            uint64_t began;
            bench_must(back ? memopt_shard_backward(r->shard, g) : memopt_shard_forward(r->shard, g), "a use");
            began = bench_now();
            bench_use(r, i, g, back);
            if (r->is_first) r->w->used[i][number - 1] = bench_seconds(began);
            if (back) bench_must(memopt_shard_reduce(r->shard, g), "gradients");
        }
    }
    if (r->w->sleeps) bench_sleep_until(bench_now() + (uint64_t)(r->w->machine->step * 1e9));
    stepped = bench_now();
    bench_must(memopt_shard_step(r->shard, &run), "the step");
    if (r->is_first) r->w->steps[number - 1] = bench_seconds(stepped);
    return bench_seconds(since);
}
/* Seconds of an all-to-all of so many bytes a piece: the median of some. */
static double bench_call(const bench_rank *r, unsigned char *memory, size_t bytes) {
    double taken[9]; memopt_comm_call c; size_t i;
    memset(&c, 0, sizeof c);
    c.bytes = bytes; c.send = memory; c.receive = memory + BENCH_RANKS * bytes;
    for (i = 0; i < 9; ++i) { const uint64_t since = bench_now(); bench_must(memopt_comm_run(r->comm, &c), "a call"); taken[i] = bench_seconds(since); }
    return bench_median(taken, 9);
}
static double bench_addition(void) { /* seconds of an element */
    enum { COUNT = 1 << 20 };
    static float sums[COUNT], more[COUNT]; double taken[9]; size_t i, k;
    for (k = 0; k < 9; ++k) {
        const uint64_t since = bench_now();
        for (i = 0; i < COUNT; ++i) sums[i] += more[i];
        taken[k] = bench_seconds(since) / COUNT;
        bench_sink = sums[k];
    }
    return bench_median(taken, 9);
}
/* What the simulation needs to know of this machine; all ranks make the calls. */
static void bench_measure(const bench_rank *r) {
    const size_t large = r->w->count / BENCH_RANKS * sizeof(float); unsigned char *memory = (unsigned char *)calloc(2 * BENCH_RANKS, large); double small, all;
    if (!memory) bench_must(MEMOPT_ERR_MEMORY, "calls");
    small = bench_call(r, memory, 64);
    all = bench_call(r, memory, large);
    free(memory);
    if (!r->is_first) return;
    r->w->own.comm.latency = small;
    r->w->own.comm.bandwidth = (double)large / (all > 1.01 * small ? all - small : 0.01 * all);
    r->w->own.comm.waits = 1;
    r->w->own.add = bench_addition();
    r->w->own.uses = r->w->uses;
}
static void bench_run(void *task, size_t index, int worker) {
    bench_world *w = (bench_world *)task; memopt_shard_tensor tensors[BENCH_GROUPS]; memopt_shard_desc d = bench_describe(tensors, w->count); memopt_comm_desc c; bench_link link; bench_rank r; size_t i;
    (void)worker;
    memset(&c, 0, sizeof c); memset(&link, 0, sizeof link); memset(&r, 0, sizeof r);
    c.transport = memopt_ranks_transport(w->ranks, index); c.unchecked = 1;
    if (w->sleeps) {
        link.inner = c.transport; link.link = w->machine->comm;
        c.transport.begin_fn = bench_link_begin; c.transport.wait_fn = bench_link_wait; c.transport.abort_fn = bench_link_abort; c.transport.user = &link;
    }
    bench_must(memopt_comm_create(&c, &r.comm), "a communicator");
    d.comm = r.comm; r.w = w; r.is_first = !index;
    bench_must(memopt_shard_open(&d, NULL, &r.shard), "a shard");
    if (!w->sleeps) bench_measure(&r);
    for (i = 0; i < BENCH_STEPS; ++i) { const double taken = bench_step(&r, i + 1); if (!index) w->seconds[i] = taken; }
    memopt_shard_close(r.shard); memopt_comm_destroy(r.comm);
}
static void bench_world_run(const bench *b, const char *name, bench_world *w, memopt_threads t) {
    memopt_shard_tensor tensors[BENCH_GROUPS]; memopt_shard_desc d = bench_describe(tensors, w->count); memopt_shard_seconds s; memopt_ranks_desc ranks; char row[64]; size_t i;
    memset(&ranks, 0, sizeof ranks);
    ranks.rank_count = BENCH_RANKS;
    bench_must(memopt_ranks_create(&ranks, &w->ranks), "ranks");
    t.run_fn(t.user, BENCH_RANKS, bench_run, w);
    memopt_ranks_destroy(w->ranks);
    w->own.step = bench_median(w->steps + 2, BENCH_STEPS - 2);
    for (i = 0; i < 2 * BENCH_GROUPS; ++i) w->uses[i] = bench_median(w->used[i] + 2, BENCH_STEPS - 2);
    bench_must(memopt_shard_simulate(&d, w->sleeps ? w->machine : &w->own, &s), "the simulation");
    sprintf(row, "%s", name);
    bench_row(b, row, BENCH_RANKS, w->count * BENCH_GROUPS, 1e3 * bench_median(w->seconds + 2, BENCH_STEPS - 2), "ms", 1e3 * s.total, 0);
    sprintf(row, "%s: exposed", name);
    bench_row(b, row, BENCH_RANKS, w->count * BENCH_GROUPS, 1e3 * (bench_median(w->seconds + 2, BENCH_STEPS - 2) - s.computing), "ms", 1e3 * s.exposed, 0);
}
int main(int argc, char **argv) {
    static double uses[2 * BENCH_GROUPS]; memopt_shard_machine machine; bench_world w; memopt_thread_pool *pool = NULL; memopt_threads t; size_t i; bench b;
    if (memopt_thread_pool_create(NULL, BENCH_RANKS, &pool)) { fprintf(stderr, "bench_shard: ranks as threads need -DMEMOPT_PTHREADS -pthread\n"); return 0; }
    b = bench_begin(argc, argv, "shard");
    t = memopt_thread_pool_threads(pool);
    memset(&machine, 0, sizeof machine);
    for (i = 0; i < 2 * BENCH_GROUPS; ++i) uses[i] = i < BENCH_GROUPS ? 0.01 : 0.02;
    machine.comm.latency = 1e-3; machine.uses = uses; machine.step = 0.01;
    for (i = 0; i < 3; ++i) { /* a group's call takes 5, 21 and 83 ms, its forward 10 */
        static const double bandwidths[3] = { 64e6, 13e6, 3.2e6 }; static const char *const names[3] = { "sleeping, fast link", "sleeping, slower", "sleeping, slow" };
        memset(&w, 0, sizeof w);
        machine.comm.bandwidth = bandwidths[i];
        w.machine = &machine; w.sleeps = 1; w.count = 65536 * 2;
        bench_world_run(&b, names[i], &w, t);
    }
    memset(&w, 0, sizeof w);
    w.count = (size_t)1 << 22;
    bench_world_run(&b, "threads", &w, t);
    memopt_thread_pool_destroy(pool);
    return 0;
}
