/* nvToolsExt.h - in place of NVTX: with SIMULATOR_RANGES in the environment each range is a line where it begins, indented
   by how many it is in, and one that ends without having begun is said. Ranges are a thread's own. */
#ifndef SIMULATOR_NVTX_H
#define SIMULATOR_NVTX_H
#include <stdio.h>
#include <stdlib.h>

static thread_local int simulator_range_depth;

static inline int nvtxRangePushA(const char *name) {
    if (getenv("SIMULATOR_RANGES")) fprintf(stderr, "range %*s%s\n", simulator_range_depth, "", name);
    return simulator_range_depth++;
}

static inline int nvtxRangePop(void) {
    if (!simulator_range_depth) fprintf(stderr, "simulator: a range ends that has not begun\n");
    return simulator_range_depth -= simulator_range_depth > 0;
}
#endif
