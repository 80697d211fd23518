/* exhaustive_cuda.cu - by hand, on the simulator: all 2^32 floats through the device's own conversions and encoders, called
   by the host, against the definitions of memopt.h. About 4 minutes of one core.
   usage: exhaustive_cuda      exit status 0: all equal */
#include "test_cuda.h"

static unsigned long long exhaustive_wrong;
static void exhaustive_differs(const char *what, uint32_t u, uint32_t got, uint32_t want) {
    if (exhaustive_wrong++ < 20) printf("%s: %08x gives %x, not %x\n", what, (unsigned)u, (unsigned)got, (unsigned)want);
}
template <int kind> static void exhaustive_nearest(const char *what) {
    for (uint32_t m = 0; m <= 0x7f800000; ++m) { /* the sign is put on afterwards: here every other one is negative */
        const uint32_t u = m | m << 31, sign = u >> 31 << (sizeof(typename memopt_i_cuda::format_of<kind>::one) * 8 - 1);
        for (int saturate = 0; saturate < (kind == MEMOPT_I_F16 ? 1 : 2); ++saturate) {
            const uint32_t got = memopt_i_cuda::nearest_code<kind>(u, saturate) | sign;
            const uint32_t want = memopt_i_cuda::code_for<kind>(u, saturate, 0, 0);
            if (got != want) exhaustive_differs(what, u, got, want);
        }
    }
    printf("%s to nearest: all magnitudes\n", what);
    fflush(stdout);
}
template <int kind> static void exhaustive_dither(const char *what) {
    typedef memopt_i_cuda::format_of<kind> f; uint64_t seed = kind;
    for (uint32_t m = 0; m <= (uint32_t)f::largest; ++m) {
        const int e = (int)(m >> 23), d = 23 - f::bits + (f::lowest > e ? f::lowest - e : 0);
        const uint32_t mantissa = (m & 0x7fffff) | 0x800000, r = (uint32_t)test_random(&seed);
        const uint32_t near_carry = d < 32 ? ~(mantissa << (32 - d)) : d < 56 ? ~(mantissa >> (d - 32)) : 0xffffffff;
        const uint32_t randoms[3] = { r, near_carry + (r & 3) - 1, near_carry };
        for (int k = 0; k < 3; ++k) {
            const uint32_t got = memopt_i_cuda::dither<kind>(m, randoms[k]), want = memopt_i_cuda::code_for<kind>(m, 0, 1, randoms[k]);
            if (got != want) exhaustive_differs(what, m, got, want);
        }
    }
    printf("%s with noise: all magnitudes up to the largest, three words each\n", what);
    fflush(stdout);
}
static void exhaustive_bf16(void) {
    uint32_t u = 0;
    do {
        if ((u & 0x7fffffff) > 0x7f800000) continue;
        if (memopt_i_cuda::bf16_upper(u) >> 16 != memopt_i_bf16_code(u, 0, 0))
            exhaustive_differs("bf16", u, memopt_i_cuda::bf16_upper(u) >> 16, memopt_i_bf16_code(u, 0, 0));
        if ((u + 0x8000) >> 16 != memopt_i_split_high(u)) exhaustive_differs("split", u, (u + 0x8000) >> 16, memopt_i_split_high(u));
    } while (++u);
    printf("bf16 and split: all floats\n");
    fflush(stdout);
}
/* The definition rises with y, so where both ends of a range have one code, all of it has. */
static void exhaustive_range(memopt_quant_map map, uint32_t from, uint32_t count) {
    const uint8_t first = memopt_i_encode_one(map, memopt_i_bits_float(from));
    const uint8_t last = memopt_i_encode_one(map, memopt_i_bits_float(from + count - 1));
    const uint32_t *bins = map == MEMOPT_QUANT_UNSIGNED ? memopt_i_cuda::unsigned_bins<0>()
                         : map == MEMOPT_QUANT_LINEAR ? memopt_i_cuda::signed_bins<true>() : memopt_i_cuda::signed_bins<false>();
    if (first != last) {
        exhaustive_range(map, from, count / 2);
        exhaustive_range(map, from + count / 2, count - count / 2);
        return;
    }
    for (uint32_t i = 0; i < count; ++i) {
        float4 y; uint32_t got;
        y.x = memopt_i_bits_float(from + i); y.y = -y.x; y.z = 0.5f; y.w = y.x;
        got = memopt_i_cuda::encode(bins, map != MEMOPT_QUANT_UNSIGNED, y);
        if ((got & 0xff) != first || got >> 24 != first) exhaustive_differs("code", from + i, got, first);
    }
}
static void exhaustive_codes(memopt_quant_map map) { /* up to 16 units of the last place above 1: products are up to 5 above */
    const uint32_t end = 0x3f800010;
    for (uint32_t sign = 0; sign < 2; ++sign)
        for (uint32_t from = 0; from < end; from += 1 << 16)
            exhaustive_range(map, from | sign << 31, from + (1 << 16) < end ? 1 << 16 : end - from);
    printf("map %d: all floats from -1 to 1, and a little beyond\n", (int)map);
    fflush(stdout);
}
int main(int argc, char **argv) {
    const int first = argc > 1 ? atoi(argv[1]) : 0, last = argc > 2 ? atoi(argv[2]) : 9;
    for (int part = first; part <= last; ++part)
        switch (part) {
        case 0: exhaustive_codes(MEMOPT_QUANT_SIGNED); break;
        case 1: exhaustive_codes(MEMOPT_QUANT_UNSIGNED); break;
        case 2: exhaustive_codes(MEMOPT_QUANT_LINEAR); break;
        case 3: exhaustive_bf16(); break;
        case 4: exhaustive_nearest<MEMOPT_I_F16>("f16"); break;
        case 5: exhaustive_nearest<MEMOPT_I_E4M3>("e4m3"); break;
        case 6: exhaustive_nearest<MEMOPT_I_E5M2>("e5m2"); break;
        case 7: exhaustive_dither<MEMOPT_I_F16>("f16"); break;
        case 8: exhaustive_dither<MEMOPT_I_E4M3>("e4m3"); break;
        case 9: exhaustive_dither<MEMOPT_I_E5M2>("e5m2"); break;
        }
    printf("%llu wrong\n", exhaustive_wrong);
    return exhaustive_wrong != 0;
}
