/* test_tiles.c - products of bf16 by matrix units on machines without: test_gemm.c with their instructions as functions. */
#include "tiles.h"
#define TEST_COMBINED
#include "test_gemm.c"

static void tiles_level(void) {
    if (memopt_simd_best() < MEMOPT_SIMD_AMX) { SKIP("no AVX-512 with BF16 here"); return; }
    CHECK(memopt_simd_best() == MEMOPT_SIMD_AMX);
}
int main(void) { RUN(tiles_level); test_gemm(); return test_totals(); }
