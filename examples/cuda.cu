/* cuda.cu - an arena in a device's memory, and 8-bit AdamW that steps weights where they lie.

   What to see: the arena is the one of memopt.h, on another source. Memory is committed as it is reached, and nothing
   moves. After 20 steps the device's weights are those of the CPU's optimizer, bit for bit. What is asked in vain comes
   back as a status with its reason. The exit status says whether that came true; without a device it says so, and 0.
   Build: nvcc -O2 cuda.cu -o cuda -lcublasLt      (memopt.h and memopt_cuda.cu beside it or with -I) */
#define MEMOPT_CUDA_IMPLEMENTATION
#include "memopt_cuda.cu"
#include <stdio.h>

enum { COUNT = 100000, STEPS = 20 };
static float weights[COUNT], gradients[COUNT], from_device[COUNT];
static int fail(const char *what, memopt_cuda_status status) {
    fprintf(stderr, "%s: %s\n", what, memopt_cuda_status_text(status));
    return 1;
}
static void make_gradients(unsigned step) {
    unsigned random = step * 2654435761u + 1; size_t i;
    for (i = 0; i < COUNT; ++i) {
        random = random * 1664525u + 1013904223u;
        gradients[i] = (float)(random >> 8) / 8388608.0f - 1.0f;
    }
}
/* The optimizer object lives on the host in both cases; its tensors lie where the pointers say. */
static memopt_optim *make_optim(memopt_optim_tensor *tensor, void *object, size_t object_bytes, size_t *state_bytes) {
    memopt_optim_desc desc = {}; memopt_optim *optim = NULL; size_t bytes;
    desc.kind = MEMOPT_OPTIM_ADAMW; desc.state = MEMOPT_STATE_8BIT;
    desc.tensors = tensor; desc.tensor_count = 1;
    tensor->count = COUNT;
    if (memopt_optim_bytes(&desc, &bytes) || bytes > object_bytes) return NULL;
    if (memopt_optim_state_bytes(&desc, 0, state_bytes)) return NULL;
    return memopt_optim_create(&desc, object, bytes, &optim) ? NULL : optim;
}
static memopt_optim_run make_run(const memopt_optim_group *group, unsigned step) {
    memopt_optim_run run = {};
    run.step = step; run.groups = group; run.group_count = 1;
    return run;
}
alignas(64) static unsigned char object_memory[2][1 << 16], state_memory[COUNT * 3];

static int train_on_the_cpu(void) {
    memopt_optim_tensor tensor = {}; size_t bytes = 0; unsigned t;
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim *optim = make_optim(&tensor, object_memory[0], sizeof object_memory[0], &bytes);
    if (!optim || bytes > sizeof state_memory) return 0;
    tensor.weights = weights; tensor.gradients = gradients; tensor.state = state_memory;
    if (memopt_optim_state_init(optim, 0)) return 0;
    for (t = 1; t <= STEPS; ++t) {
        const memopt_optim_run run = make_run(&group, t);
        make_gradients(t);
        if (memopt_optim_step(optim, &run)) return 0;
    }
    return 1;
}
/* README: cuda */
static memopt_cuda_status train_on_the_device(memopt_arena *arena, memopt_cuda_transfer *transfer) {
    memopt_optim_tensor tensor = {}; size_t state_bytes = 0, scratch_bytes = 0; memopt_cuda_status s; unsigned t;
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim *optim = make_optim(&tensor, object_memory[1], sizeof object_memory[1], &state_bytes);
    if (!optim || (s = memopt_cuda_optim_scratch(optim, &scratch_bytes)) != 0) return MEMOPT_ERR_ARGUMENT;
    float *d_weights = MEMOPT_PUSH(arena, float, COUNT, MEMOPT_TAG_PARAMETERS);      /* pushes as ever: */
    float *d_gradients = MEMOPT_PUSH(arena, float, COUNT, MEMOPT_TAG_GRADIENTS);     /* addresses of the device */
    void *d_state = memopt_arena_push(arena, state_bytes, MEMOPT_TAG_OPTIMIZER);
    void *d_scratch = memopt_arena_push(arena, scratch_bytes, MEMOPT_TAG_SCRATCH);
    if (!d_weights || !d_gradients || !d_state || !d_scratch) return memopt_arena_error(arena).status;
    tensor.weights = d_weights; tensor.gradients = d_gradients; tensor.state = d_state;
    s = memopt_cuda_transfer_in(transfer, d_weights, weights, sizeof weights, NULL); /* NULL: the default stream */
    if (!s) s = memopt_cuda_optim_state_init(optim, 0, NULL);
    for (t = 1; t <= STEPS && !s; ++t) {
        const memopt_optim_run run = make_run(&group, t);
        make_gradients(t); /* yours again after `in` */
        s = memopt_cuda_transfer_in(transfer, d_gradients, gradients, sizeof gradients, NULL);
        if (!s) s = memopt_cuda_optim_step(optim, &run, d_scratch, scratch_bytes, NULL);
    }
    if (!s) s = memopt_cuda_transfer_out(transfer, from_device, d_weights, sizeof from_device, NULL);
    return s ? s : memopt_cuda_transfer_wait(transfer);
}
/* README: end */
/* Copies on a stack in the device's memory: x comes back as it was pushed, rounded to bf16 as the CPU rounds it. */
static memopt_status stash_on_the_device(memopt_arena *arena, memopt_cuda_transfer *transfer) {
    static uint16_t rounded[COUNT]; memopt_cuda_codec codec; memopt_device_codec on_device; memopt_stash *stash = NULL;
    float *d_x = MEMOPT_PUSH(arena, float, COUNT, MEMOPT_TAG_ACTIVATIONS);
    memopt_status s = d_x ? memopt_stash_create(arena, 1, NULL, &stash) : memopt_arena_error(arena).status;
    if (!s && memopt_cuda_codec_make(&codec, &on_device, NULL)) s = MEMOPT_ERR_DEVICE; /* NULL: the default stream */
    if (!s) s = memopt_stash_set_codec(stash, &on_device);
    if (!s && memopt_cuda_transfer_in(transfer, d_x, weights, sizeof weights, NULL)) s = MEMOPT_ERR_DEVICE;
    if (!s) s = memopt_stash_push(stash, d_x, COUNT, MEMOPT_CODEC_BF16);
    if (!s && memopt_cuda_transfer_in(transfer, d_x, gradients, sizeof gradients, NULL)) s = MEMOPT_ERR_DEVICE;
    if (!s) s = memopt_stash_pop(stash, d_x, COUNT);
    if (!s && memopt_cuda_transfer_out(transfer, from_device, d_x, sizeof from_device, NULL)) s = MEMOPT_ERR_DEVICE;
    if (memopt_cuda_transfer_wait(transfer) && !s) s = MEMOPT_ERR_DEVICE;
    if (!s) s = memopt_bf16_from_f32(rounded, weights, COUNT, NULL);
    if (!s) s = memopt_f32_from_bf16(weights, rounded, COUNT, NULL);
    memopt_stash_destroy(stash);
    return s;
}
int main(void) {
    memopt_cuda_memory memory; memopt_source source; memopt_arena_desc desc = {}; memopt_arena *arena = NULL;
    memopt_cuda_transfer *transfer = NULL; size_t free_bytes = 0, total_bytes = 0, i; int different = 1;
    memopt_cuda_status s = memopt_cuda_memory_available(MEMOPT_CUDA_CURRENT_DEVICE, &free_bytes, &total_bytes);
    if (s) { printf("no device: %s\n", memopt_cuda_status_text(s)); return 0; }
    printf("device memory: %zu MiB free of %zu\n", free_bytes >> 20, total_bytes >> 20);
    s = memopt_cuda_source_pages(MEMOPT_CUDA_CURRENT_DEVICE, 0, NULL, &memory, &source);
    if (s) s = memopt_cuda_source_malloc(MEMOPT_CUDA_CURRENT_DEVICE, &memory, &source); /* cannot grow */
    if (s) return fail("no source", s);
    desc.source = &source; desc.capacity = (size_t)256 << 20;
    if (memopt_arena_create(&desc, &arena)) return fail("no arena", memory.status);
    s = memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, NULL, &transfer);

    for (i = 0; i < COUNT; ++i) weights[i] = (float)(i % 1000) / 1000.0f;
    if (!s) s = train_on_the_device(arena, transfer);
    if (s) fail("the device", s);
    else if (train_on_the_cpu()) different = memcmp(weights, from_device, sizeof weights) != 0;
    printf("%d steps of 8-bit AdamW: the weights are %s as on the CPU\n", (int)STEPS,
           different ? "NOT the same" : "the same bits");
    printf("arena: %zu KiB used, %zu MiB committed\n", memopt_arena_get_stats(arena).used_low >> 10,
           memopt_arena_get_stats(arena).committed >> 20);
    if (!different)
        different = stash_on_the_device(arena, transfer) || memcmp(weights, from_device, sizeof weights) != 0;
    printf("a copy in bf16 on a stack: %s as on the CPU\n", different ? "NOT the same" : "the same bits");
    s = memopt_cuda_transfer_in(transfer, NULL, weights, sizeof weights, NULL);     /* in vain */
    printf("a copy to NULL: %d, %s\n", s, memopt_cuda_status_text(s));
    different |= s != MEMOPT_CUDA_ERR_NULL;
    s = memopt_cuda_transfer_destroy(transfer);
    memopt_arena_destroy(arena);
    return different || s || memory.status;
}
