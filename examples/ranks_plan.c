/* ranks_plan.c - what a model would take on many ranks: bytes of a rank, and how long a step would wait for the network.

   What to see: nothing here has the memory of such a model, nor the network; memopt_shard_plan() tells bytes and traffic
   to the byte all the same, and memopt_shard_simulate() walks through a step's calls over links that only count seconds.
   All of it takes less than a second; the exit status says whether it did.
   Build: cc -O2 ranks_plan.c -o ranks_plan -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <time.h>

enum { LAYERS = 500, TOKENS = 4096 /* of a rank, a step */ };

typedef struct format { const char *name; memopt_type weights, gradients; memopt_optim_extra extra; memopt_state_format state; } format;

static const format formats[4] = {
    { "fp32", MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE, MEMOPT_STATE_F32 },
    { "bf16, fp32 master", MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_COPY, MEMOPT_STATE_F32 },
    { "bf16 split, 8-bit Adam", MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_SPLIT, MEMOPT_STATE_8BIT },
    { "bf16, 8-bit Adam", MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_NONE, MEMOPT_STATE_8BIT } };

static memopt_status step_seconds(const memopt_shard_desc *desc, size_t layer, memopt_shard_seconds *seconds) {
    static double uses[2 * LAYERS]; /* each layer's forward, then each layer's backward */
    memopt_shard_machine machine = { 0 };

    machine.comm.latency = 2e-5; /* a network of 50 GB/s a rank; half of 400 Tflop/s are reached */
    machine.comm.bandwidth = 50e9;
    for (size_t i = 0; i < 2 * desc->tensor_count; ++i)
        uses[i] = (i < desc->tensor_count ? 2.0 : 4.0) * (double)layer * TOKENS / 200e12;
    machine.uses = uses;
    machine.step = 20.0 * (double)layer * (double)desc->tensor_count / (double)desc->rank_count / 1e12; /* its bytes */
    return memopt_shard_simulate(desc, &machine, seconds);
}
/* A line: GB of a rank in each stage without what two layers and a bucket take, and stage 3's step. */
static int tell(const char *name, size_t layer, size_t layers, size_t ranks, const format *f) {
    static memopt_shard_tensor tensors[LAYERS];
    memopt_shard_desc desc = { 0 }; memopt_shard_bytes bytes = { 0 }; memopt_shard_seconds seconds = { 0 }; char text[256] = ""; memopt_error why = { 0 };
    memopt_status s = MEMOPT_OK;

    for (size_t i = 0; i < layers; ++i) { tensors[i].count = layer; tensors[i].group = i; }
    desc.tensors = tensors; desc.tensor_count = layers; desc.rank_count = ranks; desc.gradients = f->gradients;
    desc.optim.weights = f->weights; desc.optim.extra = f->extra; desc.optim.state = f->state; desc.optim.gradients = f->gradients;
    desc.error = &why;
    printf("%-16s %-23s", name, f->name);
    for (desc.stage = 0; !s && desc.stage < 4; ++desc.stage) {
        s = memopt_shard_plan(&desc, &bytes);
        if (!s) printf(" %9.2f", (double)(bytes.weights + bytes.extra + bytes.states + bytes.sums + (desc.stage < 2 ? bytes.gradients : 0)) / 1e9);
    }
    desc.stage = 3;
    if (!s) s = step_seconds(&desc, layer, &seconds);
    if (!s) printf("  %8.2f %9.1f %8.2f %8.2f %8.2f\n", (double)bytes.total / 1e9, (double)(bytes.sent_gradients + bytes.sent_weights) / 1e9,
                   seconds.total, seconds.communication, seconds.exposed);
    else fprintf(stderr, "%s: %s\n", name, memopt_error_text(&why, text, sizeof text, NULL) ? "" : text);
    return s != MEMOPT_OK;
}
int main(void) {
    int wrong = 0; double took;

    if (SIZE_MAX <= 0xffffffffu) { fprintf(stderr, "such models need a size_t of 64 bits\n"); return 77; }
    printf("%-40s %39s   stage 3, with two layers and a bucket:\n%-40s %9s %9s %9s %9s  %8s %9s %8s %8s %8s\n", "", "GB a rank, by stage:", "", "0", "1", "2", "3",
           "GB", "GB sent", "seconds", "network", "exposed");
    for (int i = 0; i < 4; ++i) wrong |= tell("7.5B, 64 ranks", 75000000, 100, 64, &formats[i]);
    for (int i = 0; i < 4; ++i) wrong |= tell("1T, 1024 ranks", 2000000000, LAYERS, 1024, &formats[i]);
    took = (double)clock() / CLOCKS_PER_SEC;
    printf("planned and simulated in %.2f s\n", took);
    return wrong || took >= 1;
}
