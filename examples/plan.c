/* plan.c - lifetimes that are known beforehand, put into the least memory: from a list, or from a step that was recorded.

   What to see: first a list of buffers: the peak, and beside it the lower bound that no plan can beat; when they are
   equal, it is proven. Then an engine that allocates and frees tensors in any order: a step is run dry on a heap without
   memory, planned, and replayed. The real heap serves each tensor from its planned place, also in steps with shorter
   sequences, and holds hardly a byte more than was ever asked for.
   Build: cc -O2 plan.c -o plan -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>

static int failed(memopt_error error) { /* "the heap is full: asked 1.0 MiB, free ..." */
    MEMOPT_ERROR_PRINT(stderr, error);
    return 1;
}

/* ---- a list of buffers ---- */
static memopt_plan_item buffer(size_t first, size_t last, size_t bytes) {
    memopt_plan_item item = { 0 };

    item.first = first;
    item.last = last;
    item.size = bytes;
    return item;
}

static int plan_a_list(void) {
    memopt_plan_item items[5];
    memopt_plan_result result;
    size_t i;

    /* README: plan */
    /*        lives in [first, last),  bytes */
    items[0] = buffer(0, 9, 4096);  /* the residual stream */
    items[1] = buffer(1, 4, 12288); /* queries, keys, values */
    items[2] = buffer(3, 6, 4096);  /* the attention's output */
    items[3] = buffer(5, 8, 16384); /* the wide layer */
    items[4] = buffer(7, 9, 16384); /* its GELU, in place: */
    items[4].in_place_of = 1 + 3;
    if (memopt_plan_solve(items, 5, NULL, NULL, &result)) return 1; /* items[].offset, result.peak, .lower_bound */
    /* README: end */
    for (i = 0; i < 5; ++i) printf("buffer %u at offset %5lu\n", (unsigned)i, (unsigned long)items[i].offset);
    printf("%lu bytes, where no plan can do with fewer than %lu\n\n", (unsigned long)result.peak,
           (unsigned long)result.lower_bound);
    return 0;
}

/* ---- a step that allocates and frees ---- */
enum { LAYERS = 12, WIDTH = 768, KEPT = 4 /* tensors of a layer */, STEPS = 6 };

static const size_t widths[KEPT] = { WIDTH, 3 * WIDTH, WIDTH, 4 * WIDTH };

/* The engine's own work. A heap without a source has offsets only: a dry run computes nothing. */
static void compute(const memopt_heap *heap, memopt_block tensor) {
    float *x = (float *)memopt_heap_pointer(heap, tensor);

    if (x) x[0] = 1;
}

static memopt_status tensor(memopt_heap *heap, size_t tokens, size_t width, memopt_tag tag, memopt_block *out) {
    const memopt_status s = memopt_heap_alloc(heap, tokens * width * sizeof(float), 0, tag, out);

    if (!s) compute(heap, *out);
    return s;
}

/* A step as an engine makes it: forward keeps four tensors a layer, backward frees them and makes gradients. */
static memopt_status train_step(memopt_heap *heap, size_t tokens) {
    memopt_block kept[LAYERS * KEPT], gradient, next;
    memopt_status s = MEMOPT_OK;
    size_t i;

    for (i = 0; !s && i < LAYERS * KEPT; ++i)
        s = tensor(heap, tokens, widths[i % KEPT], MEMOPT_TAG_ACTIVATIONS, &kept[i]);
    if (!s) s = tensor(heap, tokens, WIDTH, MEMOPT_TAG_SCRATCH, &gradient);
    if (s) return s;
    for (i = LAYERS * KEPT; i-- > 0;) {
        s = tensor(heap, tokens, widths[i % KEPT], MEMOPT_TAG_SCRATCH, &next);
        if (!s) s = memopt_heap_free(heap, gradient);
        if (!s) s = memopt_heap_free(heap, kept[i]);
        if (s) return s;
        gradient = next;
    }
    return memopt_heap_free(heap, gradient);
}

static int tell(memopt_heap *heap, const memopt_plan_result *result) {
    const double mib = 1048576;
    const memopt_heap_stats stats = memopt_heap_get_stats(heap);
    size_t released = 0;

    printf("planned %.1f MiB, where no plan can do with less than %.1f MiB\n", (double)result->peak / mib,
           (double)result->lower_bound / mib);
    printf("held at most %.1f MiB for %.1f MiB asked for: %.3f\n", (double)stats.peak_reserved / mib,
           (double)stats.peak_requested / mib, (double)stats.peak_reserved / (double)stats.peak_requested);
    printf("%lu requests from the plan, %lu from the heap\n", (unsigned long)stats.served,
           (unsigned long)stats.fell_back);

    memopt_heap_unplan(heap); /* for work of another kind: the plan's region is ordinary free memory again */
    printf("without the plan one piece of %.1f MiB is free", (double)memopt_heap_largest(heap) / mib);
    if (memopt_heap_trim(heap, &released)) return failed(memopt_heap_error(heap)); /* or the system has it back */
    printf(", and %.1f MiB went back to the system\n", (double)released / mib);
    return 0;
}

static int replay_a_step(void) {
    static const size_t tokens[STEPS] = { 1024, 371, 888, 128, 640, 1000 };
    memopt_heap_desc dry_desc = { 0 };
    memopt_heap_desc desc = { 0 };
    memopt_heap *dry = NULL;
    memopt_heap *heap = NULL;
    memopt_plan_result result = { 0 };
    memopt_source pages;
    int wrong;

    /* README: replay */
    dry_desc.capacity = SIZE_MAX / 2; /* offsets only: no source, no memory */
    if (memopt_heap_create(&dry_desc, &dry) || memopt_heap_record(dry) || train_step(dry, 1024)) return 1;

    if (memopt_source_pages(NULL, &pages)) return 1;
    desc.source = &pages;
    desc.capacity = (size_t)1 << 30;
    if (memopt_heap_create(&desc, &heap) || memopt_heap_plan(heap, dry, NULL, &result)) return 1;
    for (size_t i = 0; i < STEPS; ++i) {
        memopt_heap_begin_step(heap);
        if (train_step(heap, tokens[i])) return failed(memopt_heap_error(heap));
    }
    /* README: end */

    wrong = tell(heap, &result);
    memopt_heap_destroy(heap);
    memopt_heap_destroy(dry);
    return wrong;
}

int main(void) {
    return plan_a_list() || replay_a_step();
}
