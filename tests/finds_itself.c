/* finds_itself.c - is the wide code there, under whatever name and path the header is? Built by check.sh finds_itself. */
#ifndef HEADER
#define HEADER "memopt.h"
#endif
#define V 7
#define R(x) ((x) + 1)
#define MEMOPT_STATIC
#define MEMOPT_IMPLEMENTATION
#ifndef AMALGAMATED /* there it stands above this file */
#include HEADER
#endif
#include <stdio.h>

static double square_sum(int level, float *x, size_t n) {
    unsigned char scratch[64];
    memopt_gradient gradient;
    memopt_gradients list;
    memopt_gradient_total total;
    memopt_threads threads;

    memset(&gradient, 0, sizeof gradient);
    memset(&list, 0, sizeof list);
    memset(&threads, 0, sizeof threads);
    memset(&total, 0, sizeof total);
    gradient.values = x;
    gradient.count = n;
    gradient.type = MEMOPT_TYPE_F32;
    list.tensors = &gradient;
    list.count = 1;
    list.scratch = (void *)(((uintptr_t)scratch + 15) & ~(uintptr_t)15);
    list.scratch_bytes = 40;
    threads.simd_level = level;
    return memopt_gradients_scale(&list, 0.5, &total, &threads) == MEMOPT_OK ? total.squares : -1;
}

int main(void) {
    float wide[1003], plain[1003];
    double a, b;
    size_t i;

    for (i = 0; i < 1003; ++i) wide[i] = plain[i] = (float)(i * 7919 % 1009) / 1009;
    a = square_sum(0, wide, 1003);
    b = square_sum(MEMOPT_SIMD_SCALAR, plain, 1003);
    printf("%s: %.17g, scalar %.17g\n", memopt_simd_text(memopt_simd_best()), a, b);
#ifndef AMALGAMATED
    if (V != 7 || R(1) != 2) return 2; /* the macros of who includes it */
#endif
    return a > 0 && a == b && !memcmp(wide, plain, sizeof wide) ? 0 : 1;
}
