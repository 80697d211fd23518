/* bench_tape.c - what a tape takes for itself, beside the engine's work.
   callback_N: microseconds for each callback of a pass whose callbacks do nothing. Limit: the same callbacks in the
   same order in a plain loop. reshape_N: to another shape that was seen before. Limit: comparing its segments, once.
   push and pop: nanoseconds a float. Limit: memcpy of the same floats. Rows and limits take turns. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

enum { BENCH_MOST = 128, BENCH_ROUNDS = 9, BENCH_PASSES = 200, BENCH_DEPTH = 8 };
#define BENCH_FLOATS ((size_t)1 << 20)
static volatile uint64_t bench_calls; /* nobody reads it, but the compiler must not know */

static void bench_must(memopt_status s, const memopt_tape *tape) {
    if (!s) return;
    fprintf(stderr, "bench_tape: %s\n", tape ? memopt_tape_error(tape).reason : memopt_status_text(s));
    exit(1);
}
static memopt_arena *bench_arena(void) {
    static memopt_source pages; memopt_arena_desc desc; memopt_arena *arena = NULL;
    memset(&desc, 0, sizeof desc);
    bench_must(memopt_source_pages(NULL, &pages), NULL);
    desc.source = &pages; desc.capacity = (size_t)1 << 30;
    bench_must(memopt_arena_create(&desc, &arena), NULL);
    return arena;
}

/* ---- a tape over callbacks that do nothing ---- */
static memopt_status bench_nothing(const memopt_tape_call *step) {
    bench_calls = bench_calls + (step->output != NULL);
    return MEMOPT_OK;
}
typedef struct bench_net {
    memopt_segment   segments[BENCH_MOST];
    memopt_tape_layer     layers[BENCH_MOST];
    memopt_tape_desc desc;
} bench_net;
static void bench_describe(bench_net *net, size_t n, size_t rows, memopt_arena *arena) {
    size_t i;
    memset(net, 0, sizeof *net);
    for (i = 0; i < n; ++i) {
        net->segments[i].output_bytes = net->segments[i].grad_bytes = 256 * rows;
        net->segments[i].saved_bytes = 17 * 256 * rows;
        net->segments[i].forward_cost = 1; net->segments[i].backward_cost = 2;
        net->layers[i].forward_fn = net->layers[i].backward_fn = bench_nothing;
    }
    net->desc.chain.segments = net->segments; net->desc.chain.count = n;
    net->desc.chain.input_bytes = net->desc.chain.input_grad_bytes = 256 * rows;
    net->desc.layers = net->layers; net->desc.arena = arena; net->desc.overhead = 0.3;
}
static double bench_plain(const bench_net *net, const memopt_action *actions, size_t count, memopt_tape_call *step) {
    const uint64_t start = bench_now(); size_t t, pass;
    for (pass = 0; pass < BENCH_PASSES; ++pass)
        for (t = 0; t < count; ++t) {
            const memopt_tape_layer *layer = &net->layers[actions[t].index];
            if (actions[t].op > MEMOPT_ACTION_BACKWARD) continue;
            step->segment = actions[t].index; step->user = layer->user;
            bench_must((actions[t].op == MEMOPT_ACTION_BACKWARD ? layer->backward_fn : layer->forward_fn)(step), NULL);
        }
    return (double)(bench_now() - start) * 1e-3;
}
static void bench_callbacks(const bench *b, size_t n) {
    static bench_net net; static unsigned char value[256], grad[256]; memopt_arena *arena = bench_arena();
    double times[BENCH_ROUNDS], limits[BENCH_ROUNDS], calls; const memopt_action *actions; size_t count, pass;
    memopt_tape *tape = NULL; memopt_tape_call step; int round; char name[32];
    bench_describe(&net, n, 1, arena);
    bench_must(memopt_tape_create(&net.desc, &tape), NULL);
    actions = memopt_tape_actions(tape, &count);
    calls = (double)(memopt_tape_get_stats(tape).forwards + n) * BENCH_PASSES;
    memset(&step, 0, sizeof step);
    step.output = value;
    for (round = 0; round < BENCH_ROUNDS; ++round) {
        const uint64_t start = bench_now();
        for (pass = 0; pass < BENCH_PASSES; ++pass) {
            bench_must(memopt_tape_forward(tape, value), tape);
            bench_must(memopt_tape_backward(tape, value, grad), tape);
        }
        times[round] = (double)(bench_now() - start) * 1e-3 / calls;
        limits[round] = bench_plain(&net, actions, count, &step) / calls;
    }
    sprintf(name, "callback_%u", (unsigned)n);
    bench_row(b, name, 1, n, bench_median(times, BENCH_ROUNDS), "us", bench_median(limits, BENCH_ROUNDS), 0);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
}
static void bench_reshape(const bench *b, size_t n) {
    static bench_net nets[2]; static memopt_segment seen[2][BENCH_MOST]; memopt_arena *arena = bench_arena();
    double times[BENCH_ROUNDS], limits[BENCH_ROUNDS]; memopt_tape *tape = NULL; int round, i; char name[32];
    bench_describe(&nets[0], n, 1, arena); bench_describe(&nets[1], n, 2, arena);
    memcpy(seen[0], nets[0].segments, sizeof seen[0]); memcpy(seen[1], nets[1].segments, sizeof seen[1]);
    bench_must(memopt_tape_create(&nets[0].desc, &tape), NULL);
    bench_must(memopt_tape_reshape(tape, &nets[1].desc.chain), tape);
    for (round = 0; round < BENCH_ROUNDS; ++round) {
        uint64_t start = bench_now();
        for (i = 0; i < BENCH_PASSES; ++i) bench_must(memopt_tape_reshape(tape, &nets[i % 2].desc.chain), tape);
        times[round] = (double)(bench_now() - start) * 1e-3 / BENCH_PASSES;
        start = bench_now();
        for (i = 0; i < BENCH_PASSES; ++i)
            bench_calls = bench_calls + !memcmp(seen[i % 2], nets[i % 2].segments, n * sizeof *seen[0]);
        limits[round] = (double)(bench_now() - start) * 1e-3 / BENCH_PASSES;
    }
    sprintf(name, "reshape_%u", (unsigned)n);
    bench_row(b, name, 1, n, bench_median(times, BENCH_ROUNDS), "us", bench_median(limits, BENCH_ROUNDS), 0);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
}

/* ---- the stash ---- */
static void bench_stash(const bench *b, const char *push_name, const char *pop_name, memopt_codec codec) {
    static float *x, *copies; memopt_arena *arena = bench_arena(); memopt_stash *stash = NULL;
    double push[BENCH_ROUNDS], pop[BENCH_ROUNDS], limits[BENCH_ROUNDS], limit; int round; size_t i;
    if (!x) {
        memopt_arena *own = bench_arena(); /* stays until the end */
        x = (float *)memopt_arena_push(own, BENCH_FLOATS * sizeof *x, MEMOPT_TAG_OTHER);
        copies = (float *)memopt_arena_push(own, BENCH_DEPTH * BENCH_FLOATS * sizeof *x, MEMOPT_TAG_OTHER);
        if (!x || !copies) exit(1);
        for (i = 0; i < BENCH_FLOATS; ++i) x[i] = 1e-3f * (float)((i * 7919) % 2003) - 1;
    }
    bench_must(memopt_stash_create(arena, BENCH_DEPTH, NULL, &stash), NULL);
    for (round = 0; round < BENCH_ROUNDS; ++round) {
        const double floats = (double)(BENCH_FLOATS * BENCH_DEPTH); uint64_t start = bench_now();
        for (i = 0; i < BENCH_DEPTH; ++i) bench_must(memopt_stash_push(stash, x, BENCH_FLOATS, codec), NULL);
        push[round] = (double)(bench_now() - start) / floats;
        start = bench_now();
        for (i = 0; i < BENCH_DEPTH; ++i) bench_must(memopt_stash_pop(stash, x, BENCH_FLOATS), NULL);
        pop[round] = (double)(bench_now() - start) / floats;
        start = bench_now();
        for (i = 0; i < BENCH_DEPTH; ++i) memcpy(copies + i * BENCH_FLOATS, x, BENCH_FLOATS * sizeof *x);
        limits[round] = (double)(bench_now() - start) / floats;
    }
    limit = bench_median(limits, BENCH_ROUNDS);
    bench_row(b, push_name, 1, BENCH_FLOATS, bench_median(push, BENCH_ROUNDS), "ns", limit, 0);
    bench_row(b, pop_name, 1, BENCH_FLOATS, bench_median(pop, BENCH_ROUNDS), "ns", limit, 0);
    memopt_stash_destroy(stash);
    memopt_arena_destroy(arena);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "tape");
    bench_callbacks(&b, 24);
    bench_callbacks(&b, 128);
    bench_reshape(&b, 24);
    bench_reshape(&b, 128);
    bench_stash(&b, "push_exact", "pop_exact", MEMOPT_CODEC_EXACT);
    bench_stash(&b, "push_bf16", "pop_bf16", MEMOPT_CODEC_BF16);
    bench_stash(&b, "push_8bit", "pop_8bit", MEMOPT_CODEC_8BIT);
    return 0;
}
