/* exhaustive_quant.c - the codes of all floats in [-1, 1], and of everything beyond, at every level of this machine.
   The reference is the definition: levels computed here as bitsandbytes and torch do, the middles between neighbours in
   double (exact), and a code is the number of middles below the value. The levels of the header are compared first.
   usage: exhaustive_quant [LEVEL]      exit status 0: all equal */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <time.h>

enum { CHUNK = 1 << 16 };
static float levels[256];
static uint32_t least[2][256]; /* of each sign: the smallest magnitude, as bits, with at least (at most) this code */

/* torch.linspace(0.1, 1, count + 1)[i] as torch computes it on processors with fused multiply-add */
static float boundary(int i, int count) {
    const float start = 0.1f, end = 1.0f, step = (end - start) / (float)count;
    return i < (count + 1) / 2 ? fmaf(step, (float)i, start) : fmaf(-step, (float)(count - i), end);
}
static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}
static void make_levels(memopt_quant_map map) {
    static const double tens[7] = { 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1 };
    int n = 0, d, j, count;
    if (map == MEMOPT_QUANT_LINEAR) { for (; n < 256; ++n) levels[n] = (float)(n - 127) / 128; return; }
    for (d = 0; d < 7; ++d) {
        count = (map == MEMOPT_QUANT_SIGNED ? 1 : 2) << d;
        for (j = 0; j < count; ++j) {
            volatile float mean = (boundary(j, count) + boundary(j + 1, count)) / 2, level = (float)tens[d] * mean;
            levels[n++] = level;
            if (map == MEMOPT_QUANT_SIGNED) levels[n++] = -level;
        }
    }
    levels[n++] = 0; levels[n++] = 1;
    qsort(levels, 256, sizeof *levels, by_value);
}
static double middle(int code) { return ((double)levels[code] + (double)levels[code + 1]) / 2; } /* exact */
static int code_of(float y) {
    int code = 0, c;
    for (c = 0; c < 255; ++c) code += (double)y > middle(c);
    return code;
}
/* One sign: from bit pattern `from` on, count patterns; their codes, by halving where the code changes. */
static void expect(uint8_t *codes, uint32_t from, uint32_t count) {
    const int first = code_of(memopt_i_bits_float(from)), last = code_of(memopt_i_bits_float(from + count - 1));
    if (first == last) { memset(codes, first, count); return; }
    expect(codes, from, count / 2);
    expect(codes + count / 2, from + count / 2, count - count / 2);
}
static unsigned long long compare(int level, memopt_quant_map map, uint32_t from, uint32_t count, const uint8_t *want) {
    static float x[CHUNK]; static uint8_t got[CHUNK]; uint32_t i; unsigned long long wrong = 0;
    for (i = 0; i < count; ++i) x[i] = memopt_i_bits_float(from + i);
    MEMOPT_I_DISPATCH(level, encode_any, (map, got, x, 0, count, 1.0f, 0));
    if (!memcmp(got, want, count)) return 0;
    for (i = 0; i < count; ++i)
        if (got[i] != want[i] && wrong++ < 3)
            printf("map %d level %d: %08x %.9g: code %d, not %d\n", (int)map, level, (unsigned)(from + i), (double)x[i], got[i], want[i]);
    return wrong;
}
static unsigned long long check(int from_level, int to_level, memopt_quant_map map) {
    static uint8_t want[CHUNK]; unsigned long long wrong = 0; uint64_t from; int level, c; float of_header[256];
    uint64_t seen[256] = { 0 };
    make_levels(map);
    memopt_quant_levels(map, of_header);
    for (c = 0; c < 256; ++c) wrong += memopt_i_float_bits(of_header[c]) != memopt_i_float_bits(levels[c]);
    if (wrong) printf("map %d: %llu levels differ\n", (int)map, wrong);
    for (from = 0; from < (uint64_t)1 << 32; from += CHUNK) {
        const uint32_t magnitude = (uint32_t)from & 0x7fffffff;
        const int finite = magnitude < 0x7f800000;
        /* beyond 1: the contract of the wide paths ends at 2; infinity and NaN are asked in tests/test_quant.c */
        if (!finite || magnitude >= 0x40000000) continue;
        expect(want, (uint32_t)from, CHUNK);
        for (c = 0; c < CHUNK; c += 1024) ++seen[want[c]];
        for (level = from_level; level <= to_level; ++level) wrong += compare(level, map, (uint32_t)from, CHUNK, want);
    }
    printf("map %d: %llu wrong\n", (int)map, wrong);
    fflush(stdout);
    return wrong;
}
int main(int argc, char **argv) {
    const int best = memopt_simd_best(), asked = argc > 1 ? atoi(argv[1]) : 0; unsigned long long wrong = 0; int map;
    for (map = 0; map < 3; ++map) wrong += check(asked ? asked : 1, asked ? asked : best, (memopt_quant_map)map);
    return wrong != 0;
}
