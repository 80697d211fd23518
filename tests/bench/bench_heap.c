/* bench_heap.c - the offset allocator, and record, plan, replay on steps of variable length. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

static uint64_t bench_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static void bench_must(memopt_status s) {
    if (s) { fprintf(stderr, "bench_heap: %s\n", memopt_status_text(s)); exit(1); }
}

/* -- alloc + free: `count` blocks of 64 B to 4 KiB are allocated, then freed in random order -- */

#define BENCH_MOST   20000
#define BENCH_ROUNDS 15
static memopt_block bench_blocks[BENCH_MOST];
static size_t bench_sizes[BENCH_MOST];
static uint32_t bench_order[BENCH_MOST];

static void bench_shuffle(size_t count, uint64_t *seed) { /* new sizes, and a new order to free in */
    size_t i, k; uint32_t t;
    for (i = 0; i < count; ++i) { bench_sizes[i] = 64 + (size_t)(bench_random(seed) % 4033); bench_order[i] = (uint32_t)i; }
    for (i = count; i-- > 1; ) {
        k = (size_t)(bench_random(seed) % (i + 1));
        t = bench_order[i]; bench_order[i] = bench_order[k]; bench_order[k] = t;
    }
}
static double bench_pairs(size_t count, size_t repeats) { /* median ns a pair */
    double times[BENCH_ROUNDS]; uint64_t seed = 1, start; size_t round, r, i;
    memopt_heap *heap = NULL; memopt_heap_desc d;
    memset(&d, 0, sizeof d);
    d.capacity = (size_t)256 << 20; d.extent = d.capacity;
    bench_must(memopt_heap_create(&d, &heap));
    for (round = 0; round < BENCH_ROUNDS; ++round) {
        uint64_t total = 0;
        for (r = 0; r < repeats; ++r) {
            bench_shuffle(count, &seed);
            start = bench_now();
            for (i = 0; i < count; ++i) bench_must(memopt_heap_alloc(heap, bench_sizes[i], 0, MEMOPT_TAG_ACTIVATIONS, &bench_blocks[i]));
            for (i = 0; i < count; ++i) bench_must(memopt_heap_free(heap, bench_blocks[bench_order[i]]));
            total += bench_now() - start;
        }
        times[round] = (double)total / (double)(count * repeats);
    }
    memopt_heap_destroy(heap);
    return bench_median(times, BENCH_ROUNDS);
}
/* -- training steps of variable length: the blocks of a GPT-2 of 124 million parameters, float32, 4 sequences a step -- */

#define GPT_LAYERS 12
#define GPT_BATCH  4
#define GPT_WIDTH  768
#define GPT_HEADS  12
#define GPT_VOCAB  50257
#define GPT_LONGEST 1024
typedef struct gpt {
    memopt_heap *heap;
    size_t length;      /* of the sequences of this step */
    uint64_t allocs;
} gpt;
typedef struct gpt_layer { memopt_block input, ln1, ln1_mean, ln1_rstd, qkv, weights, mixed, middle, ln2, ln2_mean, ln2_rstd, hidden, gelu; } gpt_layer;

static memopt_block gpt_get(gpt *g, size_t floats, memopt_tag tag) {
    memopt_block b;
    bench_must(memopt_heap_alloc(g->heap, floats * 4, 0, tag, &b));
    ++g->allocs;
    return b;
}
static void gpt_put(gpt *g, memopt_block b) { bench_must(memopt_heap_free(g->heap, b)); }
static memopt_block gpt_rows(gpt *g, size_t width, memopt_tag tag) { return gpt_get(g, GPT_BATCH * g->length * width, tag); }
static memopt_block gpt_square(gpt *g, memopt_tag tag) { return gpt_get(g, GPT_BATCH * GPT_HEADS * g->length * g->length, tag); }

/* One layer forward: what its backward needs stays, temporaries go. Returns the output. */
static memopt_block gpt_forward(gpt *g, gpt_layer *l, memopt_block input) {
    const memopt_tag keep = MEMOPT_TAG_ACTIVATIONS, scratch = MEMOPT_TAG_SCRATCH; memopt_block scores, projected, output;
    l->input = input;
    l->ln1 = gpt_rows(g, GPT_WIDTH, keep); l->ln1_mean = gpt_rows(g, 1, keep); l->ln1_rstd = gpt_rows(g, 1, keep);
    l->qkv = gpt_rows(g, 3 * GPT_WIDTH, keep);
    scores = gpt_square(g, scratch);
    l->weights = gpt_square(g, keep);
    gpt_put(g, scores);
    l->mixed = gpt_rows(g, GPT_WIDTH, keep);
    projected = gpt_rows(g, GPT_WIDTH, scratch);
    l->middle = gpt_rows(g, GPT_WIDTH, keep);
    gpt_put(g, projected);
    l->ln2 = gpt_rows(g, GPT_WIDTH, keep); l->ln2_mean = gpt_rows(g, 1, keep); l->ln2_rstd = gpt_rows(g, 1, keep);
    l->hidden = gpt_rows(g, 4 * GPT_WIDTH, keep);
    l->gelu = gpt_rows(g, 4 * GPT_WIDTH, keep);
    projected = gpt_rows(g, GPT_WIDTH, scratch);
    output = gpt_rows(g, GPT_WIDTH, keep);
    gpt_put(g, projected);
    return output;
}
static void gpt_forget(gpt *g, gpt_layer *l) { /* all but the input: it will be computed again */
    gpt_put(g, l->ln1); gpt_put(g, l->ln1_mean); gpt_put(g, l->ln1_rstd); gpt_put(g, l->qkv); gpt_put(g, l->weights); gpt_put(g, l->mixed);
    gpt_put(g, l->middle); gpt_put(g, l->ln2); gpt_put(g, l->ln2_mean); gpt_put(g, l->ln2_rstd); gpt_put(g, l->hidden); gpt_put(g, l->gelu);
}
/* One layer backward: from the gradient of its output to that of its input; activations go as they have been used. */
static memopt_block gpt_backward(gpt *g, gpt_layer *l, memopt_block d_output) {
    const memopt_tag tag = MEMOPT_TAG_SCRATCH; memopt_block d_gelu, d_hidden, d_ln, d_middle, d_mixed, d_weights, d_scores, d_qkv, d_input;
    d_gelu = gpt_rows(g, 4 * GPT_WIDTH, tag);
    gpt_put(g, l->gelu);
    d_hidden = gpt_rows(g, 4 * GPT_WIDTH, tag);
    gpt_put(g, d_gelu); gpt_put(g, l->hidden);
    d_ln = gpt_rows(g, GPT_WIDTH, tag);
    gpt_put(g, d_hidden); gpt_put(g, l->ln2);
    d_middle = gpt_rows(g, GPT_WIDTH, tag);
    gpt_put(g, d_ln); gpt_put(g, d_output); gpt_put(g, l->middle); gpt_put(g, l->ln2_mean); gpt_put(g, l->ln2_rstd);
    d_mixed = gpt_rows(g, GPT_WIDTH, tag);
    gpt_put(g, l->mixed);
    d_weights = gpt_square(g, tag);
    d_scores = gpt_square(g, tag);
    gpt_put(g, d_weights); gpt_put(g, l->weights);
    d_qkv = gpt_rows(g, 3 * GPT_WIDTH, tag);
    gpt_put(g, d_scores); gpt_put(g, d_mixed); gpt_put(g, l->qkv);
    d_ln = gpt_rows(g, GPT_WIDTH, tag);
    gpt_put(g, d_qkv); gpt_put(g, l->ln1);
    d_input = gpt_rows(g, GPT_WIDTH, tag);
    gpt_put(g, d_ln); gpt_put(g, d_middle); gpt_put(g, l->input); gpt_put(g, l->ln1_mean); gpt_put(g, l->ln1_rstd);
    return d_input;
}
static void gpt_step(gpt *g, int checkpointed) {
    gpt_layer layers[GPT_LAYERS]; memopt_block x, ln, mean, rstd, logits, losses, d_logits, d; int i;
    memset(layers, 0, sizeof layers);
    x = gpt_rows(g, GPT_WIDTH, MEMOPT_TAG_ACTIVATIONS);
    for (i = 0; i < GPT_LAYERS; ++i) {
        x = gpt_forward(g, &layers[i], x);
        if (checkpointed) gpt_forget(g, &layers[i]);
    }
    ln = gpt_rows(g, GPT_WIDTH, MEMOPT_TAG_ACTIVATIONS);
    mean = gpt_rows(g, 1, MEMOPT_TAG_ACTIVATIONS); rstd = gpt_rows(g, 1, MEMOPT_TAG_ACTIVATIONS);
    logits = gpt_rows(g, GPT_VOCAB, MEMOPT_TAG_ACTIVATIONS);
    losses = gpt_rows(g, 1, MEMOPT_TAG_ACTIVATIONS);
    d_logits = gpt_rows(g, GPT_VOCAB, MEMOPT_TAG_SCRATCH);
    gpt_put(g, logits); gpt_put(g, losses);
    d = gpt_rows(g, GPT_WIDTH, MEMOPT_TAG_SCRATCH);
    gpt_put(g, d_logits); gpt_put(g, ln); gpt_put(g, mean); gpt_put(g, rstd); gpt_put(g, x);
    for (i = GPT_LAYERS; i-- > 0; ) {
        if (checkpointed) gpt_put(g, gpt_forward(g, &layers[i], layers[i].input));
        d = gpt_backward(g, &layers[i], d);
    }
    gpt_put(g, d);
}
static void gpt_long_lived(gpt *g) { /* weights, gradients, two moments; as the tensors come */
    static const size_t widths[] = { 2, 3 * GPT_WIDTH + 3, GPT_WIDTH + 1, 2, 4 * GPT_WIDTH + 4, 4 * GPT_WIDTH + 1 };
    static const memopt_tag tags[] = { MEMOPT_TAG_PARAMETERS, MEMOPT_TAG_GRADIENTS, MEMOPT_TAG_OPTIMIZER, MEMOPT_TAG_OPTIMIZER };
    size_t copy, i, k;
    for (copy = 0; copy < 4; ++copy) {
        (void)gpt_get(g, (size_t)GPT_VOCAB * GPT_WIDTH, tags[copy]);
        (void)gpt_get(g, (size_t)GPT_LONGEST * GPT_WIDTH, tags[copy]);
        for (i = 0; i < GPT_LAYERS; ++i)
            for (k = 0; k < sizeof widths / sizeof *widths; ++k) (void)gpt_get(g, GPT_WIDTH * widths[k], tags[copy]);
        (void)gpt_get(g, 2 * GPT_WIDTH, tags[copy]);
    }
}
/* Bytes that the heap holds of its source / bytes asked for, both at their highest and with everything that lives long,
   over 12 steps with lengths drawn from 128 to 1024. Memory is counted, not touched, and committed in granules: 2 MiB, as
   huge pages and devices have them, or 64 KiB. The longest step there can be, 1024, is planned by a dry run before; the
   dry run counts on neither side. */
static double gpt_train(uint64_t seed, int checkpointed, int planned, size_t granularity) {
    gpt g; double ratio; memopt_source source; memopt_heap_desc d; memopt_heap *dry = NULL; memopt_heap_stats s; int step;
    memopt_plan_options quick;
    memset(&quick, 0, sizeof quick); quick.no_search = 1;
    memset(&g, 0, sizeof g); memset(&d, 0, sizeof d);
    bench_must(memopt_source_counting(&source));
    source.granularity = granularity;
    d.source = &source; d.capacity = (size_t)24 << 30;
    bench_must(memopt_heap_create(&d, &g.heap));
    gpt_long_lived(&g);
    if (planned) {
        gpt rehearsal;
        memset(&rehearsal, 0, sizeof rehearsal);
        d.source = NULL;
        bench_must(memopt_heap_create(&d, &dry));
        rehearsal.heap = dry; rehearsal.length = GPT_LONGEST;
        bench_must(memopt_heap_record(dry));
        gpt_step(&rehearsal, checkpointed);
        bench_must(memopt_heap_plan(g.heap, dry, &quick, NULL));
        memopt_heap_destroy(dry);
    }
    for (step = 0; step < 12; ++step) {
        g.length = 128 + (size_t)(bench_random(&seed) % (GPT_LONGEST - 128 + 1));
        bench_must(memopt_heap_begin_step(g.heap));
        gpt_step(&g, checkpointed);
    }
    s = memopt_heap_get_stats(g.heap);
    ratio = (double)s.peak_reserved / (double)s.peak_requested;
    memopt_heap_destroy(g.heap);
    return ratio;
}
/* Replay alone: a step exactly as planned, ns for a pair of alloc and free. */
static double bench_replay(void) {
    double times[BENCH_ROUNDS]; size_t round, r; gpt g; memopt_heap_desc d; memopt_plan_options quick; uint64_t start;
    memset(&quick, 0, sizeof quick); quick.no_search = 1;
    memset(&g, 0, sizeof g); memset(&d, 0, sizeof d);
    d.capacity = SIZE_MAX / 4;
    bench_must(memopt_heap_create(&d, &g.heap));
    g.length = GPT_LONGEST;
    bench_must(memopt_heap_record(g.heap));
    gpt_step(&g, 1);
    bench_must(memopt_heap_plan(g.heap, NULL, &quick, NULL));
    for (round = 0; round < BENCH_ROUNDS; ++round) {
        g.allocs = 0;
        start = bench_now();
        for (r = 0; r < 50; ++r) { bench_must(memopt_heap_begin_step(g.heap)); gpt_step(&g, 1); }
        times[round] = (double)(bench_now() - start) / (double)g.allocs;
    }
    if (memopt_heap_get_stats(g.heap).fell_back) { fprintf(stderr, "bench_heap: not all was served\n"); exit(1); }
    memopt_heap_destroy(g.heap);
    return bench_median(times, BENCH_ROUNDS);
}
#define BENCH_RUNS 20 /* seeds, with all activations kept and with layers recomputed: the worst counts */
static double bench_worst(int planned, size_t granularity) {
    double worst = 0; uint64_t seed; int checkpointed;
    for (checkpointed = 0; checkpointed < 2; ++checkpointed)
        for (seed = 1; seed <= BENCH_RUNS; ++seed) {
            const double ratio = gpt_train(seed, checkpointed, planned, granularity);
            if (ratio > worst) worst = ratio;
        }
    return worst;
}
/* What the machine itself needs for a pair: the same handles, and one record of 32 bytes each, from a stack and back. */
static double bench_stack(size_t count, size_t repeats) {
    static struct { size_t offset, size; uint32_t links[4]; } nodes[BENCH_MOST]; static uint32_t stack[BENCH_MOST];
    double times[BENCH_ROUNDS]; size_t round, r, i, top; uint64_t seed = 1, start;
    for (i = 0; i < count; ++i) stack[i] = (uint32_t)i;
    for (round = 0, top = count; round < BENCH_ROUNDS; ++round) {
        uint64_t total = 0;
        for (r = 0; r < repeats; ++r) {
            bench_shuffle(count, &seed);
            start = bench_now();
            for (i = 0; i < count; ++i) {
                const uint32_t n = stack[--top];
                nodes[n].size = bench_sizes[i]; nodes[n].links[0]++;
                bench_blocks[i].node = n; bench_blocks[i].serial = nodes[n].links[0]; bench_blocks[i].offset = nodes[n].offset;
            }
            for (i = 0; i < count; ++i) {
                const memopt_block b = bench_blocks[bench_order[i]];
                if (nodes[b.node].links[0] != b.serial) exit(1);
                nodes[b.node].links[0]++;
                stack[top++] = b.node;
            }
            total += bench_now() - start;
        }
        times[round] = (double)total / (double)(count * repeats);
    }
    return bench_median(times, BENCH_ROUNDS);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "heap");
    const double limit_1k = bench_stack(1000, 200), limit_20k = bench_stack(20000, 10);
    bench_row(&b, "heap_1k", 1, 1000, bench_pairs(1000, 200), "ns", limit_1k, 0);
    bench_row(&b, "heap_20k", 1, 20000, bench_pairs(20000, 10), "ns", limit_20k, 0);
    bench_row(&b, "replay_alloc", 1, 520, bench_replay(), "ns", limit_1k, 0);
    bench_row(&b, "replay_variable", 1, 12, bench_worst(1, (size_t)2 << 20), "ratio", 1.0, 0);
    bench_row(&b, "replay_variable_64k", 1, 12, bench_worst(1, (size_t)64 << 10), "ratio", 1.0, 0);
    bench_row(&b, "replay_variable_plain", 1, 12, bench_worst(0, (size_t)2 << 20), "ratio", 1.0, 0);
    return 0;
}
