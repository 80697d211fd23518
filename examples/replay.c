/* replay.c - an engine that allocates and frees tensors in any order: record a step, plan it, replay it.

   What to see: the step is first run dry on a heap without memory. The real heap then serves each tensor from its
   planned place, also in steps with shorter sequences, and holds hardly a byte more than was ever asked for.
   Build: cc -O2 replay.c -o replay -lm */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>

enum { LAYERS = 12, WIDTH = 768 };
static size_t floats(size_t tokens, size_t width) { return tokens * width * sizeof(float); }

/* The engine's own work. A heap without a source has offsets only: a dry run computes nothing. */
static void compute(const memopt_heap *heap, memopt_block tensor) {
    float *x = (float *)memopt_heap_pointer(heap, tensor);

    if (x) x[0] = 1;
}

/* A step as an engine makes it: forward keeps four tensors a layer, backward frees them and makes gradients. */
static memopt_status train_step(memopt_heap *heap, size_t tokens) {
    static const size_t width[4] = { WIDTH, 3 * WIDTH, WIDTH, 4 * WIDTH };
    memopt_block kept[LAYERS][4], gradient, next; memopt_status s;
    int layer, i;
    for (layer = 0; layer < LAYERS; ++layer)
        for (i = 0; i < 4; ++i) {
            s = memopt_heap_alloc(heap, floats(tokens, width[i]), 0, MEMOPT_TAG_ACTIVATIONS, &kept[layer][i]);
            if (s) return s;
            compute(heap, kept[layer][i]);
        }
    s = memopt_heap_alloc(heap, floats(tokens, WIDTH), 0, MEMOPT_TAG_SCRATCH, &gradient);
    for (layer = LAYERS; !s && layer-- > 0;) {
        for (i = 4; !s && i-- > 0;) {
            s = memopt_heap_alloc(heap, floats(tokens, width[i]), 0, MEMOPT_TAG_SCRATCH, &next);
            if (s) return s;
            compute(heap, next);
            memopt_heap_free(heap, gradient);
            s = memopt_heap_free(heap, kept[layer][i]);
            gradient = next;
        }
    }
    return s ? s : memopt_heap_free(heap, gradient);
}

static int failed(memopt_error error) { /* "the heap is full: asked 1.0 MiB, free ..." */
    char text[256];

    memopt_error_text(&error, text, sizeof text, NULL);
    fprintf(stderr, "%s\n", text);
    return 1;
}

int main(void) {
    memopt_source pages; memopt_heap_desc dry_desc = { 0 }, desc = { 0 }; memopt_heap *dry = NULL, *heap = NULL;
    memopt_plan_result result = { 0 }; memopt_heap_stats stats;
    static const size_t tokens[6] = { 1024, 371, 888, 128, 640, 1000 };
    size_t i, released = 0;

    /* README: replay */
    dry_desc.capacity = SIZE_MAX / 2; /* offsets only: no source, no memory */
    if (memopt_heap_create(&dry_desc, &dry) || memopt_heap_record(dry) || train_step(dry, 1024)) return 1;

    if (memopt_source_pages(NULL, &pages)) return 1;
    desc.source = &pages; desc.capacity = (size_t)1 << 30;
    if (memopt_heap_create(&desc, &heap) || memopt_heap_plan(heap, dry, NULL, &result)) return 1;
    for (i = 0; i < 6; ++i) {
        memopt_heap_begin_step(heap);
        if (train_step(heap, tokens[i])) return failed(memopt_heap_error(heap));
    }
    /* README: end */

    stats = memopt_heap_get_stats(heap);
    printf("planned %.1f MiB, where no plan can do with less than %.1f MiB\n", (double)result.peak / 1048576, (double)result.lower_bound / 1048576);
    printf("held at most %.1f MiB for %.1f MiB asked for: %.3f\n", (double)stats.peak_reserved / 1048576,
           (double)stats.peak_requested / 1048576, (double)stats.peak_reserved / (double)stats.peak_requested);
    printf("%lu requests from the plan, %lu from the heap\n", (unsigned long)stats.served, (unsigned long)stats.fell_back);
    memopt_heap_unplan(heap); /* for work of another kind: the plan's region is ordinary free memory again */
    printf("without the plan one piece of %.1f MiB is free", (double)memopt_heap_largest(heap) / 1048576);
    if (memopt_heap_trim(heap, &released)) return failed(memopt_heap_error(heap)); /* or the system has it back */
    printf(", and %.1f MiB went back to the system\n", (double)released / 1048576);
    memopt_heap_destroy(heap);
    memopt_heap_destroy(dry);
    return 0;
}
