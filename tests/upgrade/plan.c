/* plan.c - buffers whose lifetimes are known beforehand, put into the least memory.

   What to see: the peak, and beside it the lower bound that no plan can beat: when they are equal, it is proven.
   Build: cc -O2 plan.c -o plan -lm */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>

int main(void) {
    /* README: plan */
    /*  what                 lives in [first, last)  bytes */
    memopt_plan_item items[5] = { { 0 } };
    memopt_plan_result result;
    size_t i;
    items[0].first = 0; items[0].last = 9; items[0].size = 4096;  /* the residual stream */
    items[1].first = 1; items[1].last = 4; items[1].size = 12288; /* queries, keys, values */
    items[2].first = 3; items[2].last = 6; items[2].size = 4096;  /* the attention's output */
    items[3].first = 5; items[3].last = 8; items[3].size = 16384; /* the wide layer */
    items[4].first = 7; items[4].last = 9; items[4].size = 16384; /* its GELU, in place: */
    items[4].in_place_of = 1 + 3;
    if (memopt_plan_solve(items, 5, NULL, NULL, &result)) return 1;
    for (i = 0; i < 5; ++i) printf("buffer %u at offset %5lu\n", (unsigned)i, (unsigned long)items[i].offset);
    printf("%lu bytes, where no plan can do with fewer than %lu\n", (unsigned long)result.peak, (unsigned long)result.lower_bound);
    /* README: end */
    return 0;
}
