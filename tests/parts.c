/* parts.c - one user of one part of memopt.h, to see what that part costs: compile time and bytes of object code.
   Usage: cc -O2 -DPART_ARENA -c parts.c; without a PART_: the declarations alone, with PART_DECLARED they and
   the user. PART_EVERYTHING exports all of it. */
#if defined(PART_EVERYTHING)
#  define MEMOPT_IMPLEMENTATION
#elif !defined(PART_DECLARED) && (defined(PART_ARENA) || defined(PART_PLAN) || defined(PART_HEAP) || defined(PART_ADAM8) || defined(PART_TAPE) || defined(PART_LINEAR))
#  define MEMOPT_STATIC
#  define MEMOPT_IMPLEMENTATION
#endif
#include "memopt.h"
extern int part_is_used; /* no file may be empty */

#if defined(PART_ARENA)
size_t use_arena(size_t layers, char *why, size_t capacity);
size_t use_arena(size_t layers, char *why, size_t capacity) {
    memopt_source pages;
    memopt_arena_desc desc = { 0 };
    memopt_arena *arena = NULL;
    memopt_error error = { 0 };
    memopt_mark step;
    size_t layer, peak = 0;

    if (memopt_source_pages(NULL, &pages)) return 0;
    desc.source = &pages;
    desc.capacity = (size_t)1 << 30;
    desc.error = &error;
    if (memopt_arena_create(&desc, &arena) == MEMOPT_OK) {
        step = memopt_arena_mark(arena);
        for (layer = 0; layer < layers; ++layer)
            if (!MEMOPT_PUSH(arena, float, layer, MEMOPT_TAG_ACTIVATIONS)) error = memopt_arena_error(arena);
        if (!memopt_arena_push_top(arena, layers, MEMOPT_TAG_SCRATCH)) error = memopt_arena_error(arena);
        peak = memopt_arena_get_stats(arena).peak;
        memopt_arena_rewind(arena, step);
    }
    memopt_error_text(&error, why, capacity, NULL);
    memopt_arena_destroy(arena);
    return peak;
}
#elif defined(PART_PLAN)
size_t use_plan(memopt_plan_item *items, size_t count);
size_t use_plan(memopt_plan_item *items, size_t count) {
    memopt_plan_result result = { 0 };

    if (memopt_plan_solve(items, count, NULL, NULL, &result)) return 0;
    return result.peak;
}
#elif defined(PART_HEAP)
size_t use_heap(size_t bytes, char *why, size_t capacity);
size_t use_heap(size_t bytes, char *why, size_t capacity) {
    memopt_source pages;
    memopt_heap_desc desc = { 0 };
    memopt_heap *heap = NULL;
    memopt_error error = { 0 };
    memopt_block block = { 0 };
    size_t peak = 0;

    if (memopt_source_pages(NULL, &pages)) return 0;
    desc.source = &pages;
    desc.capacity = (size_t)1 << 30;
    desc.error = &error;
    if (memopt_heap_create(&desc, &heap) == MEMOPT_OK) {
        if (memopt_heap_alloc(heap, bytes, 0, MEMOPT_TAG_ACTIVATIONS, &block)) error = memopt_heap_error(heap);
        else *(char *)memopt_heap_pointer(heap, block) = 0;
        memopt_heap_free(heap, block);
        peak = memopt_heap_get_stats(heap).peak_reserved;
    }
    memopt_error_text(&error, why, capacity, NULL);
    memopt_heap_destroy(heap);
    return peak;
}
#elif defined(PART_ADAM8)
memopt_status use_adam8(memopt_optim_tensor *tensor, void *memory, size_t capacity, uint64_t steps);
memopt_status use_adam8(memopt_optim_tensor *tensor, void *memory, size_t capacity, uint64_t steps) {
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_desc desc = { 0 };
    memopt_optim_run run = { 0 };
    memopt_optim *optim = NULL;
    memopt_status status;
    size_t bytes = 0;

    desc.kind = MEMOPT_OPTIM_ADAMW;
    desc.state = MEMOPT_STATE_8BIT;
    desc.tensors = tensor;
    desc.tensor_count = 1;
    desc.place_states = 1;
    run.groups = &group;
    run.group_count = 1;
    status = memopt_optim_bytes(&desc, &bytes);
    if (!status && bytes > capacity) status = MEMOPT_ERR_BUFFER;
    if (!status) status = memopt_optim_create(&desc, memory, bytes, &optim);
    for (run.step = 1; !status && run.step <= steps; ++run.step) status = memopt_optim_step(optim, &run);
    return status;
}
#elif defined(PART_TAPE)
memopt_status use_tape(const memopt_tape_desc *desc, const void *input, const void *grad_output, void *grad_input);
memopt_status use_tape(const memopt_tape_desc *desc, const void *input, const void *grad_output, void *grad_input) {
    memopt_tape *tape = NULL;
    memopt_status status = memopt_tape_create(desc, &tape);

    if (!status) status = memopt_tape_forward(tape, input);
    if (!status) status = memopt_tape_output(tape) ? MEMOPT_OK : MEMOPT_ERR_STATE;
    if (!status) status = memopt_tape_backward(tape, grad_output, grad_input);
    memopt_tape_destroy(tape);
    return status;
}
#elif defined(PART_LINEAR)
memopt_status use_linear(memopt_ops *ops, const memopt_linear *linear, unsigned char *scratch, size_t capacity);
memopt_status use_linear(memopt_ops *ops, const memopt_linear *linear, unsigned char *scratch, size_t capacity) {
    memopt_status status;
    size_t bytes = 0;

    ops->count_scratch = &bytes;
    status = memopt_linear_forward(ops, linear);
    if (!status) status = memopt_linear_backward(ops, linear);
    ops->count_scratch = NULL;
    if (status || bytes > capacity) return status;
    ops->scratch_bytes = bytes;
    ops->scratch = scratch;
    status = memopt_linear_forward(ops, linear);
    return status ? status : memopt_linear_backward(ops, linear);
}
#endif
