/* ranges.h - names of what the host asks the card for, as Nsight Systems and ncu --nvtx show them: a step, in it each
   batch, forward, backward and the optimizer, and the wait for the losses. Compiled with -DTRAIN_GPT_NVTX, which needs
   the headers nvtx3 of the CUDA Toolkit; without it these are nothing. Kernels run later than they are asked for. */
#ifndef GPT_RANGES_H
#define GPT_RANGES_H
#ifdef TRAIN_GPT_NVTX
#  include <nvtx3/nvToolsExt.h>

static void range_begin(const char *name) { (void)nvtxRangePushA(name); }
static void range_end(void) { (void)nvtxRangePop(); }
#else
static void range_begin(const char *name) { (void)name; }
static void range_end(void) {}
#endif
#endif
