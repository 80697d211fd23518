/* tiles.h - the instructions of matrix units (AMX) as functions, so that what is built on them can be tested on machines
   without. Include it before memopt.h. The arithmetic is that of the instruction reference: for each 32 depths two chains
   from 0, of even and odd ones, joined and added; denormals are 0, and whether a result is one is asked after rounding. */
#if !defined(MEMOPT_TEST_TILES_H) && defined(__x86_64__)
#define MEMOPT_TEST_TILES_H
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MEMOPT_I_TILES_EMULATED tiles_granted

#define TILES_UNUSED __attribute__((unused)) /* the header has no use for them with MEMOPT_NO_AVX512 */
#define TILES_FN static TILES_UNUSED
TILES_UNUSED static int tiles_granted = 1; /* a test may say that the system refuses them */
static __thread unsigned char tiles_data[8][16][64];
static __thread int tiles_ready;
static void tiles_must(int holds, const char *what) { /* the machine would stop the program as well */
    if (holds) return;
    printf("tiles.h: %s\n", what);
    abort();
}
TILES_FN void tiles_config(const void *from) {
    const unsigned char *c = (const unsigned char *)from; int i;
    tiles_must(c[0] == 1 && c[1] == 0, "palette");
    for (i = 2; i < 64; ++i) tiles_must(c[i] == (i >= 16 && i < 32 ? (i % 2 ? 0 : 64) : i >= 48 && i < 56 ? 16 : 0), "configuration");
    memset(tiles_data, 0, sizeof tiles_data);
    tiles_ready = 1;
}
TILES_FN void tiles_release(void) { tiles_ready = 0; }
TILES_FN void tiles_load(int tile, const void *from, long stride) {
    int i;
    tiles_must(tiles_ready, "a load without a configuration");
    for (i = 0; i < 16; ++i) memcpy(tiles_data[tile][i], (const char *)from + i * stride, 64);
}
TILES_FN void tiles_store(int tile, void *to, long stride) {
    int i;
    tiles_must(tiles_ready, "a store without a configuration");
    for (i = 0; i < 16; ++i) memcpy((char *)to + i * stride, tiles_data[tile][i], 64);
}
TILES_FN void tiles_zero(int tile) {
    tiles_must(tiles_ready, "a zero without a configuration");
    memset(tiles_data[tile], 0, sizeof tiles_data[tile]);
}
static float tiles_flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }
static float tiles_bf16(const unsigned char *p) {
    const uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24; float x;
    memcpy(&x, &bits, 4);
    return tiles_flushed(x);
}
static float tiles_fma(float x, float y, float z) {
    const double sum = (double)x * (double)y + (double)z;
    if (fabs(sum) < (double)FLT_MIN * (1 - ldexp(1.0, -25))) return copysignf(0, (float)sum);
    return fmaf(x, y, z);
}
TILES_FN void tiles_multiply(int sums, int left, int right) {
    int i, j, k;
    tiles_must(tiles_ready, "a product without a configuration");
    for (i = 0; i < 16; ++i)
        for (j = 0; j < 16; ++j) {
            float even = 0, odd = 0, sum;
            for (k = 0; k < 16; ++k) {
                even = tiles_fma(tiles_bf16(&tiles_data[left][i][4 * k]), tiles_bf16(&tiles_data[right][k][4 * j]), even);
                odd = tiles_fma(tiles_bf16(&tiles_data[left][i][4 * k + 2]), tiles_bf16(&tiles_data[right][k][4 * j + 2]), odd);
            }
            memcpy(&sum, &tiles_data[sums][i][4 * j], 4);
            sum = tiles_flushed(tiles_flushed(sum) + tiles_flushed(even + odd));
            memcpy(&tiles_data[sums][i][4 * j], &sum, 4);
        }
}
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig tiles_config
#define _tile_release tiles_release
#define _tile_loadd tiles_load
#define _tile_stream_loadd tiles_load
#define _tile_stored tiles_store
#define _tile_zero tiles_zero
#define _tile_dpbf16ps tiles_multiply
#endif
