/* A file that includes a part: MEMOPT_CUDA_ONLY_ADAMW steps as the CPU does and says what it has left out. Which
   kernels it compiles, tests/check.sh asks nvcc: cuda_part. */
#define MEMOPT_CUDA_ONLY_ADAMW
#include "test_cuda.h"

enum { PART_COUNT = 5000, PART_STEPS = 3 };

typedef struct cuda_part { /* one tensor, on the CPU or on the device */
    memopt_optim_tensor tensor;
    memopt_optim *optim;
    size_t state_bytes;
    unsigned char object[1 << 14];
} cuda_part;

/* Aligned to 64; the object's place in `part` is not. */
static memopt_status cuda_part_open(cuda_part *part, memopt_optim_kind kind, memopt_state_format state, size_t block) {
    memopt_optim_desc desc;
    size_t bytes;
    memopt_status s;

    memset(part, 0, sizeof *part);
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    desc.state = state;
    desc.block = block;
    desc.tensors = &part->tensor;
    desc.tensor_count = 1;
    part->tensor.count = PART_COUNT;
    s = memopt_optim_bytes(&desc, &bytes);
    CHECK(!s && bytes + 64 <= sizeof part->object);
    if (!s) s = memopt_optim_state_bytes(&desc, 0, &part->state_bytes);
    return s ? s : memopt_optim_create(&desc, (void *)(((uintptr_t)part->object + 63) & ~(uintptr_t)63), bytes, &part->optim);
}

static void cuda_part_same(memopt_state_format state) {
    static cuda_part cpu, gpu;
    static float weights[PART_COUNT], gradients[PART_COUNT], got[PART_COUNT];
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run;
    memopt_cuda_optim_outcome outcome;
    void *d_scratch, *memory;
    size_t bytes = 0;

    CHECK(!cuda_part_open(&cpu, MEMOPT_OPTIM_ADAMW, state, 0) && !cuda_part_open(&gpu, MEMOPT_OPTIM_ADAMW, state, 0));
    for (int i = 0; i < PART_COUNT; ++i) weights[i] = (float)(i % 37) * 0.01f - 0.2f;
    memory = malloc(cpu.state_bytes + 64);
    cpu.tensor.state = (void *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    cpu.tensor.weights = weights;
    cpu.tensor.gradients = gradients;
    gpu.tensor.weights = test_device(sizeof weights);
    gpu.tensor.gradients = test_device(sizeof gradients);
    gpu.tensor.state = test_device(gpu.state_bytes);
    test_put(gpu.tensor.weights, weights, sizeof weights);
    CHECK(!memopt_optim_state_init(cpu.optim, 0) && !memopt_cuda_optim_state_init(gpu.optim, 0, NULL));
    CHECK(!memopt_cuda_optim_scratch(gpu.optim, &bytes));
    d_scratch = test_device(bytes);
    memset(&run, 0, sizeof run);
    run.groups = &group;
    run.group_count = 1;
    for (run.step = 1; run.step <= PART_STEPS; ++run.step) {
        for (int i = 0; i < PART_COUNT; ++i) gradients[i] = (float)((i * 7 + (int)run.step) % 101) * 0.02f - 1.0f;
        test_put((void *)(uintptr_t)gpu.tensor.gradients, gradients, sizeof gradients);
        CHECK(!memopt_optim_step(cpu.optim, &run) && !memopt_cuda_optim_step(gpu.optim, &run, d_scratch, bytes, NULL));
    }
    CHECK(!memopt_cuda_optim_result(gpu.optim, d_scratch, bytes, &outcome, NULL) && !outcome.skipped);
    test_get(got, gpu.tensor.weights, sizeof got);
    CHECK(!memcmp(got, weights, sizeof weights));
    free(memory);
}

static void cuda_part_steps(void) {
    cuda_part_same(MEMOPT_STATE_8BIT);
    cuda_part_same(MEMOPT_STATE_F32);
}

/* What is left out is refused with its reason by whatever takes the scratch. */
static void cuda_part_refuses(void) {
    static cuda_part part;
    const struct { memopt_optim_kind kind; memopt_state_format state; size_t block; memopt_status want; } c[] = {
        { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 256, MEMOPT_OK }, { MEMOPT_OPTIM_ADAM, MEMOPT_STATE_BF16, 0, MEMOPT_OK },
        { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 128, MEMOPT_ERR_UNSUPPORTED },
        { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BNB, 0, MEMOPT_ERR_UNSUPPORTED },
        { MEMOPT_OPTIM_LION, MEMOPT_STATE_F32, 0, MEMOPT_ERR_UNSUPPORTED },
        { MEMOPT_OPTIM_LAMB, MEMOPT_STATE_8BIT, 0, MEMOPT_ERR_UNSUPPORTED } };
    memopt_optim_run run;
    memopt_cuda_muon muon;
    size_t bytes = 0;

    CHECK(!memopt_cuda_muon_products(&muon, NULL, MEMOPT_TYPE_BF16));
    memset(&run, 0, sizeof run);
    run.step = 1;
    run.group_count = 1;
    for (size_t i = 0; i < sizeof c / sizeof *c; ++i) {
        const memopt_optim_group group = memopt_optim_group_default(c[i].kind);
        memopt_cuda_status s;

        run.groups = &group;
        CHECK_AT(!cuda_part_open(&part, c[i].kind, c[i].state, c[i].block), i);
        part.tensor.weights = test_device(4 * PART_COUNT);
        part.tensor.gradients = test_device(4 * PART_COUNT);
        part.tensor.state = test_device(part.state_bytes);
        CHECK_AT(!memopt_cuda_optim_scratch(part.optim, &bytes), i);
        s = memopt_cuda_optim_begin(part.optim, &run, test_device(bytes), bytes, NULL);
        CHECK_AT(s == (memopt_cuda_status)c[i].want, i);
        if (s) CHECK_AT(strstr(memopt_optim_error(part.optim).reason, c[i].state == MEMOPT_STATE_BNB ? "MEMOPT_STATE_BNB" : "MEMOPT_CUDA_ONLY_ADAMW") != NULL, i);
    }
}

int main(void) {
    RUN(cuda_part_steps);
    RUN(cuda_part_refuses);
    return test_totals();
}
