/* test_quant.c - levels, codes, absmax, arrays. The levels are those of an independent program: bitsandbytes'
   create_dynamic_map(), run under torch 2.15 (CPU, AVX2 and AVX-512 give the same). A code is asked of its definition:
   the number of middles between neighbouring levels that lie below the value, by looking at all 255 of them. */
#include "test.h"

static const uint32_t quant_torch_signed[256] = {
    0xbf7e3333, 0xbf7a999a, 0xbf770000, 0xbf736666, 0xbf6fcccd, 0xbf6c3333, 0xbf68999a, 0xbf650000, 0xbf616666,
    0xbf5dcccd, 0xbf5a3333, 0xbf56999a, 0xbf530000, 0xbf4f6666, 0xbf4bcccd, 0xbf483333, 0xbf44999a, 0xbf410000,
    0xbf3d6666, 0xbf39cccd, 0xbf363334, 0xbf32999a, 0xbf2f0000, 0xbf2b6666, 0xbf27cccd, 0xbf243334, 0xbf20999a,
    0xbf1d0000, 0xbf196666, 0xbf15cccd, 0xbf123334, 0xbf0e999a, 0xbf0b0000, 0xbf076666, 0xbf03cccc, 0xbf003333,
    0xbef93332, 0xbef20000, 0xbeeacccc, 0xbee3999a, 0xbedc6666, 0xbed53333, 0xbece0000, 0xbec6cccc, 0xbebf999a,
    0xbeb86666, 0xbeb13333, 0xbeaa0000, 0xbea2cccc, 0xbe9b999a, 0xbe946666, 0xbe8d3334, 0xbe860000, 0xbe7d9999,
    0xbe6f3333, 0xbe60cccd, 0xbe526666, 0xbe440000, 0xbe35999a, 0xbe273333, 0xbe18cccd, 0xbe0a6666, 0xbdf80000,
    0xbddb3334, 0xbdc9eb85, 0xbdc428f7, 0xbdbe6667, 0xbdb8a3d7, 0xbdb2e148, 0xbdad1eb8, 0xbda75c2a, 0xbda1999a,
    0xbd9bd70a, 0xbd96147b, 0xbd9051eb, 0xbd8a8f5d, 0xbd84cccd, 0xbd7e147b, 0xbd728f5d, 0xbd670a3d, 0xbd5b851f,
    0xbd500000, 0xbd447ae1, 0xbd38f5c3, 0xbd2d70a3, 0xbd21eb85, 0xbd166667, 0xbd0ae148, 0xbcfeb852, 0xbce7ae15,
    0xbcd0a3d7, 0xbcb9999a, 0xbca28f5d, 0xbc8b851f, 0xbc68f5c3, 0xbc3ae148, 0xbc1f3b64, 0xbc160418, 0xbc0ccccd,
    0xbc039581, 0xbbf4bc6a, 0xbbe24dd3, 0xbbcfdf3b, 0xbbbd70a4, 0xbbab020d, 0xbb989374, 0xbb8624dd, 0xbb676c8a,
    0xbb428f5c, 0xbb1db22d, 0xbaf1a9fc, 0xbaa7ef9d, 0xba7765ff, 0xba59e83e, 0xba3c6a80, 0xba1eecc1, 0xba016f01,
    0xb9c7e283, 0xb98ce705, 0xb923d70b, 0xb8ba1f4b, 0xb88aefb3, 0xb8378034, 0xb7b24206, 0xb70205ff, 0xb65a1a94,
    0xb513a3b7, 0x00000000, 0x3513a3b7, 0x365a1a94, 0x370205ff, 0x37b24206, 0x38378034, 0x388aefb3, 0x38ba1f4b,
    0x3923d70b, 0x398ce705, 0x39c7e283, 0x3a016f01, 0x3a1eecc1, 0x3a3c6a80, 0x3a59e83e, 0x3a7765ff, 0x3aa7ef9d,
    0x3af1a9fc, 0x3b1db22d, 0x3b428f5c, 0x3b676c8a, 0x3b8624dd, 0x3b989374, 0x3bab020d, 0x3bbd70a4, 0x3bcfdf3b,
    0x3be24dd3, 0x3bf4bc6a, 0x3c039581, 0x3c0ccccd, 0x3c160418, 0x3c1f3b64, 0x3c3ae148, 0x3c68f5c3, 0x3c8b851f,
    0x3ca28f5d, 0x3cb9999a, 0x3cd0a3d7, 0x3ce7ae15, 0x3cfeb852, 0x3d0ae148, 0x3d166667, 0x3d21eb85, 0x3d2d70a3,
    0x3d38f5c3, 0x3d447ae1, 0x3d500000, 0x3d5b851f, 0x3d670a3d, 0x3d728f5d, 0x3d7e147b, 0x3d84cccd, 0x3d8a8f5d,
    0x3d9051eb, 0x3d96147b, 0x3d9bd70a, 0x3da1999a, 0x3da75c2a, 0x3dad1eb8, 0x3db2e148, 0x3db8a3d7, 0x3dbe6667,
    0x3dc428f7, 0x3dc9eb85, 0x3ddb3334, 0x3df80000, 0x3e0a6666, 0x3e18cccd, 0x3e273333, 0x3e35999a, 0x3e440000,
    0x3e526666, 0x3e60cccd, 0x3e6f3333, 0x3e7d9999, 0x3e860000, 0x3e8d3334, 0x3e946666, 0x3e9b999a, 0x3ea2cccc,
    0x3eaa0000, 0x3eb13333, 0x3eb86666, 0x3ebf999a, 0x3ec6cccc, 0x3ece0000, 0x3ed53333, 0x3edc6666, 0x3ee3999a,
    0x3eeacccc, 0x3ef20000, 0x3ef93332, 0x3f003333, 0x3f03cccc, 0x3f076666, 0x3f0b0000, 0x3f0e999a, 0x3f123334,
    0x3f15cccd, 0x3f196666, 0x3f1d0000, 0x3f20999a, 0x3f243334, 0x3f27cccd, 0x3f2b6666, 0x3f2f0000, 0x3f32999a,
    0x3f363334, 0x3f39cccd, 0x3f3d6666, 0x3f410000, 0x3f44999a, 0x3f483333, 0x3f4bcccd, 0x3f4f6666, 0x3f530000,
    0x3f56999a, 0x3f5a3333, 0x3f5dcccd, 0x3f616666, 0x3f650000, 0x3f68999a, 0x3f6c3333, 0x3f6fcccd, 0x3f736666,
    0x3f770000, 0x3f7a999a, 0x3f7e3333, 0x3f800000 };
static const uint32_t quant_torch_unsigned[256] = {
    0x00000000, 0x34ae7baa, 0x35500998, 0x360e9b38, 0x3692ccf6, 0x36de4c51, 0x3714e5d5, 0x3783126e, 0x37e171a0,
    0x381fe868, 0x384f1800, 0x387e479a, 0x3896bb99, 0x38ae5364, 0x38c5eb31, 0x3906594b, 0x394154ca, 0x397c5049,
    0x399ba5e4, 0x39b923a2, 0x39d6a163, 0x39f41f22, 0x3a08ce71, 0x3a178d50, 0x3a264c30, 0x3a350b10, 0x3a43c9ef,
    0x3a5288d0, 0x3a6147af, 0x3a70068e, 0x3a7ec56e, 0x3a958106, 0x3aba5e35, 0x3adf3b64, 0x3b020c4a, 0x3b147ae1,
    0x3b26e978, 0x3b395810, 0x3b4bc6a7, 0x3b5e3540, 0x3b70a3d7, 0x3b818937, 0x3b8ac082, 0x3b93f7cf, 0x3b9d2f1a,
    0x3ba66666, 0x3baf9db2, 0x3bb8d4fd, 0x3bc20c4a, 0x3bcb4395, 0x3bd47ae1, 0x3bddb22e, 0x3be6e978, 0x3bf020c5,
    0x3bf9580f, 0x3c0147ae, 0x3c05e354, 0x3c0a7ef9, 0x3c0f1aa0, 0x3c13b645, 0x3c1851eb, 0x3c1ced92, 0x3c218937,
    0x3c2f5c2a, 0x3c466667, 0x3c5d70a3, 0x3c747ae2, 0x3c85c28f, 0x3c9147af, 0x3c9ccccd, 0x3ca851eb, 0x3cb3d70b,
    0x3cbf5c29, 0x3ccae147, 0x3cd66667, 0x3ce1eb87, 0x3ced70a3, 0x3cf8f5c3, 0x3d023d70, 0x3d080000, 0x3d0dc28f,
    0x3d13851f, 0x3d1947af, 0x3d1f0a3d, 0x3d24cccd, 0x3d2a8f5c, 0x3d3051eb, 0x3d36147b, 0x3d3bd70a, 0x3d41999a,
    0x3d475c28, 0x3d4d1eb8, 0x3d52e147, 0x3d58a3d7, 0x3d5e6667, 0x3d6428f7, 0x3d69eb87, 0x3d6fae15, 0x3d7570a3,
    0x3d7b3333, 0x3d807ae2, 0x3d835c2a, 0x3d863d71, 0x3d891eb8, 0x3d8c0000, 0x3d8ee148, 0x3d91c290, 0x3d94a3d7,
    0x3d97851f, 0x3d9a6667, 0x3d9d47af, 0x3da028f6, 0x3da30a3e, 0x3da5eb85, 0x3da8cccd, 0x3dabae15, 0x3dae8f5c,
    0x3db170a4, 0x3db451eb, 0x3db73333, 0x3dba147b, 0x3dbcf5c3, 0x3dbfd70b, 0x3dc2b852, 0x3dc5999a, 0x3dc87ae2,
    0x3dcb5c29, 0x3dd40000, 0x3de26666, 0x3df0cccd, 0x3dff3333, 0x3e06cccc, 0x3e0e0000, 0x3e153334, 0x3e1c6666,
    0x3e23999a, 0x3e2acccc, 0x3e320000, 0x3e393334, 0x3e406666, 0x3e47999a, 0x3e4ecccc, 0x3e560000, 0x3e5d3334,
    0x3e646666, 0x3e6b999a, 0x3e72cccc, 0x3e7a0000, 0x3e809999, 0x3e843333, 0x3e87cccd, 0x3e8b6666, 0x3e8f0000,
    0x3e92999a, 0x3e963333, 0x3e99cccc, 0x3e9d6666, 0x3ea10000, 0x3ea4999a, 0x3ea83333, 0x3eabcccc, 0x3eaf6666,
    0x3eb30000, 0x3eb6999a, 0x3eba3333, 0x3ebdcccc, 0x3ec16666, 0x3ec50000, 0x3ec8999a, 0x3ecc3333, 0x3ecfcccc,
    0x3ed36666, 0x3ed70000, 0x3eda999a, 0x3ede3333, 0x3ee1cccc, 0x3ee56666, 0x3ee90000, 0x3eec999a, 0x3ef03333,
    0x3ef3cccc, 0x3ef76666, 0x3efb0000, 0x3efe9999, 0x3f01199a, 0x3f02e666, 0x3f04b333, 0x3f068000, 0x3f084ccc,
    0x3f0a199a, 0x3f0be666, 0x3f0db334, 0x3f0f8000, 0x3f114ccd, 0x3f13199a, 0x3f14e666, 0x3f16b334, 0x3f188000,
    0x3f1a4ccd, 0x3f1c199a, 0x3f1de666, 0x3f1fb334, 0x3f218000, 0x3f234ccd, 0x3f25199a, 0x3f26e666, 0x3f28b334,
    0x3f2a8000, 0x3f2c4ccd, 0x3f2e199a, 0x3f2fe666, 0x3f31b334, 0x3f338000, 0x3f354ccd, 0x3f37199a, 0x3f38e666,
    0x3f3ab334, 0x3f3c8000, 0x3f3e4ccd, 0x3f40199a, 0x3f41e666, 0x3f43b334, 0x3f458000, 0x3f474ccc, 0x3f49199a,
    0x3f4ae666, 0x3f4cb334, 0x3f4e8000, 0x3f504ccc, 0x3f52199a, 0x3f53e666, 0x3f55b334, 0x3f578000, 0x3f594ccc,
    0x3f5b199a, 0x3f5ce666, 0x3f5eb334, 0x3f608000, 0x3f624ccc, 0x3f64199a, 0x3f65e666, 0x3f67b334, 0x3f698000,
    0x3f6b4ccc, 0x3f6d199a, 0x3f6ee666, 0x3f70b334, 0x3f728000, 0x3f744ccc, 0x3f76199a, 0x3f77e666, 0x3f79b334,
    0x3f7b8000, 0x3f7d4ccc, 0x3f7f199a, 0x3f800000 };
#define QUANT_MAPS 3
static const memopt_quant_map quant_maps[QUANT_MAPS] = { MEMOPT_QUANT_SIGNED, MEMOPT_QUANT_UNSIGNED, MEMOPT_QUANT_LINEAR };
static float quant_level(int map, int code) {
    if (map == 0) return memopt_i_bits_float(quant_torch_signed[code]);
    if (map == 1) return memopt_i_bits_float(quant_torch_unsigned[code]);
    return (float)(code - 127) / 128.0f;
}
static double quant_middle(int map, int code) { return ((double)quant_level(map, code) + (double)quant_level(map, code + 1)) / 2; }
static uint8_t quant_code(int map, float y) {
    static double middles[QUANT_MAPS][255]; int code = 0;
    if (y != y) return map == 1 ? 0 : 127;
    if (middles[map][254] == 0)
        for (; code < 255; ++code) middles[map][code] = quant_middle(map, code);
    for (code = 0; code < 255 && (double)y > middles[map][code]; ++code) { }
    return (uint8_t)code;
}
static float quant_product(float a, float b) { volatile float c = a * b; return c; }
static float quant_random(uint64_t *seed) { /* of either sign, over eight decades */
    const uint64_t r = test_random(seed);
    return ((float)(r >> 40) / 8388608.0f - 1.0f) * (float)pow(10.0, -(double)(r & 7));
}
/* A block by the definition: its codes and absmax. */
static float quant_block(int map, uint8_t *codes, const float *x, size_t n) {
    float most = 0, inverse; size_t i;
    for (i = 0; i < n; ++i) {
        const uint32_t u = memopt_i_float_bits(x[i]) & 0x7fffffff;
        if (u < 0x7f800000 && memopt_i_bits_float(u) > most) most = memopt_i_bits_float(u);
    }
    inverse = most > 0 ? (float)(1.0 / (double)most > 3.4028234663852886e38 ? 3.4028234663852886e38 : 1.0 / (double)most) : 0;
    for (i = 0; i < n; ++i) codes[i] = quant_code(map, quant_product(x[i], inverse));
    return most;
}
static uint16_t quant_bf16(float v) { /* the nearer of two, a tie to the even one */
    const uint32_t u = memopt_i_float_bits(v), low = u & 0xffff;
    return (uint16_t)((u >> 16) + (low > 0x8000 || (low == 0x8000 && (u >> 16 & 1))));
}
static void quant_levels(void) {
    float levels[256]; int map, code;
    for (map = 0; map < QUANT_MAPS; ++map) {
        CHECK(memopt_quant_levels(quant_maps[map], levels) == MEMOPT_OK);
        for (code = 0; code < 256; ++code)
            CHECK_AT(memopt_i_float_bits(levels[code]) == memopt_i_float_bits(quant_level(map, code)), map * 256 + code);
        for (code = 1; code < 256; ++code) CHECK_AT(levels[code] > levels[code - 1], map * 256 + code);
        CHECK(levels[map == 1 ? 0 : 127] == 0 && levels[255] == 1);
    }
    levels[0] = 5;
    CHECK(memopt_quant_levels((memopt_quant_map)3, levels) == MEMOPT_ERR_ARGUMENT && levels[0] == 5);
    CHECK(memopt_quant_levels(MEMOPT_QUANT_SIGNED, NULL) == MEMOPT_ERR_ARGUMENT);
}
/* Around every boundary and every level, at every exponent, at both ends and beyond. */
static size_t quant_plant(int map, float *x) {
    size_t n = 0; int code, d; uint32_t u, e;
    for (code = 0; code < 256; ++code)
        for (d = -3; d <= 3; ++d) {
            const float middle = (float)(code < 255 ? quant_middle(map, code) : 1), level = quant_level(map, code);
            u = memopt_i_float_bits(middle); x[n++] = memopt_i_bits_float(d < 0 && u << 1 < 6 ? u : u + (uint32_t)d);
            u = memopt_i_float_bits(level); x[n++] = memopt_i_bits_float(d < 0 && u << 1 < 6 ? u : u + (uint32_t)d);
        }
    for (e = 0; e < 127; ++e)
        for (d = 0; d < 4; ++d) {
            u = e << 23 | (d == 1 ? 0x7fffffu : d == 2 ? 1u : d == 3 ? 0x3504f3u : 0u);
            x[n++] = memopt_i_bits_float(u); x[n++] = memopt_i_bits_float(u | 0x80000000);
        }
    for (u = 0x3f800000; u < 0x3f800005; ++u) { x[n++] = memopt_i_bits_float(u); x[n++] = memopt_i_bits_float(u | 0x80000000); }
    for (d = 0; d < 2; ++d) { /* NaN: quiet, signalling, with payloads; infinities */
        const uint32_t sign = d ? 0x80000000u : 0;
        x[n++] = memopt_i_bits_float(sign | 0x7f800000); x[n++] = memopt_i_bits_float(sign | 0x7fc00000);
        x[n++] = memopt_i_bits_float(sign | 0x7f800001); x[n++] = memopt_i_bits_float(sign | 0x7fffffff);
        x[n++] = memopt_i_bits_float(sign | 0x7fa5a5a5);
    }
    return n;
}
#define QUANT_PLANTED (256 * 14 + 127 * 8 + 10 + 10)
static void quant_codes(void) {
    static float x[QUANT_PLANTED]; static uint8_t want[QUANT_PLANTED], got[QUANT_PLANTED + 1]; int map, level, turned; size_t n, i;
    for (map = 0; map < QUANT_MAPS; ++map) for (turned = 1; turned >= 0; --turned) { /* the scale of a block may be negative, too */
        n = quant_plant(map, x);
        CHECK(n == QUANT_PLANTED);
        for (i = 0; i < n; ++i) want[i] = quant_code(map, turned ? -x[i] : x[i]);
        for (level = 1; level <= memopt_simd_best(); ++level) {
            memset(got, 0xEE, sizeof got);
            MEMOPT_I_DISPATCH(level, encode_any, (quant_maps[map], got, x, 0, n, turned ? -1.0f : 1.0f, 0));
            for (i = 0; i < n; ++i) CHECK_AT(got[i] == want[i], i);
            CHECK(got[n] == 0xEE);
        }
        if (turned) continue;
        for (i = 0; i < n; ++i) { /* zero stays zero, no sign flips: of codes that the definition and the header share */
            const float y = quant_level(map, got[i]);
            if (x[i] == 0 || x[i] != x[i]) CHECK_AT(y == 0, i);
            CHECK_AT(!(x[i] > 0 && y < 0) && !(x[i] < 0 && y > 0), i);
        }
    }
    /* two that are equally near: the lower, whatever the sign */
    for (level = 1; level <= memopt_simd_best(); ++level) {
        static const float four[4] = { 0.5f / 128, -0.5f / 128, 100.5f / 128, -100.5f / 128 };
        static const uint8_t lower[4] = { 127, 126, 227, 26 };
        float ties[70]; uint8_t codes[70];
        for (i = 0; i < 70; ++i) ties[i] = four[i % 4];
        MEMOPT_I_DISPATCH(level, encode_any, (MEMOPT_QUANT_LINEAR, codes, ties, 0, 70, 1.0f, 0));
        for (i = 0; i < 70; ++i) CHECK_AT(codes[i] == lower[i % 4], i);
    }
}
/* Every length around the vectors' own, not aligned; nothing beyond is touched. The inverse is no power of two. */
static void quant_lengths(void) {
    static float x[300], back[300]; static uint8_t codes[300]; uint64_t seed = 3; int map, level; size_t n, i;
    const float inverse = 1.7f, absmax = 0.3f;
    for (i = 0; i < 300; ++i) x[i] = quant_random(&seed) * 0.58f;
    for (map = 0; map < QUANT_MAPS; ++map)
        for (level = 1; level <= memopt_simd_best(); ++level)
            for (n = 0; n < 200; n = n < 140 ? n + 1 : n + 13) {
                const size_t at = n % 5;
                float most = 0;
                memset(codes, 0xEE, sizeof codes); memset(back, 0xEE, sizeof back);
                MEMOPT_I_DISPATCH(level, encode_any, (quant_maps[map], codes + at, x + at, 0, n, inverse, 0));
                MEMOPT_I_DISPATCH(level, decode_any, (quant_maps[map], back + at, codes + at, n, absmax, 0));
                for (i = 0; i < n; ++i) {
                    const uint8_t want = quant_code(map, quant_product(x[at + i], inverse));
                    CHECK_AT(codes[at + i] == want, n);
                    CHECK_AT(back[at + i] == quant_product(quant_level(map, want), absmax), n);
                    if (fabsf(x[at + i]) > most) most = fabsf(x[at + i]);
                }
                CHECK_AT(codes[at + n] == 0xEE && memopt_i_float_bits(back[at + n]) == 0xEEEEEEEE, n);
                if (at) CHECK_AT(codes[at - 1] == 0xEE && memopt_i_float_bits(back[at - 1]) == 0xEEEEEEEE, n);
                CHECK_AT(MEMOPT_I_DISPATCH(level, absmax, (x + at, n)) == most, n);
                memset(back, 0xEE, sizeof back);
                MEMOPT_I_DISPATCH(level, decode_any, (quant_maps[map], back + at, codes + at, n, absmax, 1));
                memopt_i_number_fence();
                for (i = 0; i < n; ++i) CHECK_AT(back[at + i] == quant_product(quant_level(map, codes[at + i]), absmax), n);
                CHECK_AT(memopt_i_float_bits(back[at + n]) == 0xEEEEEEEE, n);
                if (at) CHECK_AT(memopt_i_float_bits(back[at - 1]) == 0xEEEEEEEE, n);
            }
    for (level = 1; level <= memopt_simd_best(); ++level)
        for (n = 0; n < 200; ++n) {
            uint8_t from[201], to[270];
            for (i = 0; i < n; ++i) from[i] = (uint8_t)(i + 1);
            memset(to, 0xEE, sizeof to);
            memopt_i_quant_copy(level, to + n % 67, from, n);
            memopt_i_number_fence();
            CHECK_AT(!memcmp(to + n % 67, from, n) && to[n % 67 + n] == 0xEE && (n % 67 == 0 || to[n % 67 - 1] == 0xEE), n);
        }
}
static void quant_all_codes(void) { /* every code decodes to its level and is reached again */
    static const float most = 0.7f; static uint8_t codes[256], back[256]; float levels[256], absmax; int map, level, i;
    memopt_threads t;
    memset(&t, 0, sizeof t);
    for (map = 0; map < QUANT_MAPS; ++map)
        for (level = 1; level <= memopt_simd_best(); ++level) {
            t.simd_level = level;
            absmax = most;
            for (i = 0; i < 256; ++i) codes[i] = (uint8_t)(i * 37);
            CHECK(memopt_dequantize_f32(levels, codes, &absmax, 256, quant_maps[map], 256, &t) == MEMOPT_OK);
            absmax = 0;
            CHECK(memopt_quantize_f32(back, &absmax, levels, 256, quant_maps[map], 0, &t) == MEMOPT_OK);
            CHECK(absmax == most);
            for (i = 0; i < 256; ++i) CHECK_AT(back[i] == codes[i], i);
        }
}
static void quant_run_backwards(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    size_t i;
    (void)user;
    for (i = chunk_count; i-- > 0;) fn(task, i, (int)(i % 3));
}
/* Arrays of many sizes and blocks, at all levels, with workers that come in another order; from float32 and bf16. */
static void quant_arrays(void) {
    enum { MOST = 66000 };
    static float x[MOST], back[MOST + 1], absmax[MOST / 32 + 2], want_absmax[MOST / 32 + 2];
    static uint16_t narrow[MOST], narrow_back[MOST + 1]; static uint8_t codes[MOST + 1], want[MOST];
    static const size_t sizes[] = { 1, 31, 32, 33, 255, 256, 257, 4099, MOST }, blocks[] = { 32, 96, 256, 4096 };
    size_t s, b, i, n, block; uint64_t seed = 4; int map, level, bf16; memopt_threads t;
    for (i = 0; i < MOST; ++i) {
        x[i] = quant_random(&seed) * (i / 700 % 2 ? 1e-30f : 1e10f);
        narrow[i] = (uint16_t)(memopt_i_float_bits(x[i]) >> 16);
    }
    memset(&t, 0, sizeof t);
    for (s = 0; s < sizeof sizes / sizeof *sizes; ++s)
        for (b = 0; b < sizeof blocks / sizeof *blocks; ++b)
            for (bf16 = 0; bf16 < 2; ++bf16) {
                n = sizes[s]; block = blocks[b]; map = (int)((s + b) % QUANT_MAPS);
                if (n == MOST && b != 1 && b != 2) continue;
                for (i = 0; i < n; i += block) {
                    static float exact[4096]; const size_t count = n - i < block ? n - i : block; size_t k;
                    for (k = 0; k < count; ++k) exact[k] = bf16 ? memopt_i_bits_float((uint32_t)narrow[i + k] << 16) : x[i + k];
                    want_absmax[i / block] = quant_block(map, want + i, exact, count);
                }
                for (level = 1; level <= memopt_simd_best(); ++level) {
                    t.simd_level = level;
                    t.run_fn = level % 2 ? quant_run_backwards : NULL; t.worker_count = level % 2 ? 3 : 0;
                    memset(codes, 0xEE, sizeof codes); memset(absmax, 0xEE, sizeof absmax);
                    memset(back, 0xEE, sizeof back); memset(narrow_back, 0xEE, sizeof narrow_back);
                    if (bf16) CHECK(!memopt_quantize_bf16(codes, absmax, narrow, n, quant_maps[map], block, &t));
                    else CHECK(!memopt_quantize_f32(codes, absmax, x, n, quant_maps[map], block, &t));
                    CHECK_AT(!memcmp(codes, want, n) && codes[n] == 0xEE, n * 10000 + block);
                    i = (n + block - 1) / block;
                    CHECK(memopt_quantize_blocks(n, block) == i);
                    CHECK_AT(!memcmp(absmax, want_absmax, i * sizeof *absmax) && memopt_i_float_bits(absmax[i]) == 0xEEEEEEEE, n);
                    CHECK(!memopt_dequantize_f32(back, codes, absmax, n, quant_maps[map], block, &t));
                    CHECK(!memopt_dequantize_bf16(narrow_back, codes, absmax, n, quant_maps[map], block, &t));
                    for (i = 0; i < n; ++i) {
                        const float v = quant_product(quant_level(map, codes[i]), absmax[i / block]);
                        CHECK_AT(memopt_i_float_bits(back[i]) == memopt_i_float_bits(v), i);
                        CHECK_AT(narrow_back[i] == quant_bf16(v), i);
                    }
                    CHECK(memopt_i_float_bits(back[n]) == 0xEEEEEEEE && narrow_back[n] == 0xEEEE);
                }
            }
}
/* What the public calls do from 8 Mi elements on, here for few: the same bytes. */
static void quant_streamed(void) {
    enum { N = 20000 };
    static float x[N], back[N + 16], absmax[N / 32 + 1]; static uint8_t codes[N + 64], want[N];
    static uint16_t narrow[N + 16]; int level; size_t i, block, at;
    uint64_t seed = 5;
    for (i = 0; i < N; ++i) x[i] = quant_random(&seed);
    for (block = 96; block <= 4096; block = block == 96 ? 256 : block * 16)
        for (level = 1; level <= memopt_simd_best(); ++level)
            for (at = 0; at < 3; ++at) {
                if (test_is_passed_over()) continue;
                memopt_i_quant q = memopt_i_quant_task(N - at * 7, MEMOPT_QUANT_SIGNED, block);
                for (i = 0; i < q.n; i += block)
                    (void)quant_block(0, want + i, x + i, q.n - i < block ? q.n - i : block);
                CHECK(memopt_i_quant_check(&q, x, 4, codes, absmax, NULL) == MEMOPT_OK && !q.stream);
                q.level = level; q.stream = 1;
                memset(codes, 0xEE, sizeof codes);
                q.from_f32 = x; q.to_codes = codes + at; q.to_absmax = absmax;
                memopt_i_quant_run(&q, memopt_i_quantize_chunk, NULL);
                CHECK_AT(!memcmp(codes + at, want, q.n) && codes[at + q.n] == 0xEE, block);
                memset(back, 0xEE, sizeof back);
                q.from_codes = codes + at; q.from_absmax = absmax; q.to_f32 = back + at;
                memopt_i_quant_run(&q, memopt_i_dequantize_chunk, NULL);
                for (i = 0; i < q.n; ++i)
                    CHECK_AT(back[at + i] == quant_product(quant_level(0, want[i]), absmax[i / block]), i);
                CHECK(memopt_i_float_bits(back[at + q.n]) == 0xEEEEEEEE);
                memset(narrow, 0xEE, sizeof narrow);
                q.to_f32 = NULL; q.to_bf16 = narrow + at; /* to bf16 and, codes of bf16 being codes of its floats, from it */
                memopt_i_quant_run(&q, memopt_i_dequantize_chunk, NULL);
                for (i = 0; i < q.n; ++i)
                    CHECK_AT(narrow[at + i] == quant_bf16(back[at + i]), i);
                CHECK(narrow[at + q.n] == 0xEEEE);
                for (i = 0; i < q.n; ++i) back[i] = memopt_i_bits_float((uint32_t)narrow[at + i] << 16);
                for (i = 0; i < q.n; i += block)
                    (void)quant_block(0, want + i, back + i, q.n - i < block ? q.n - i : block);
                q.from_f32 = NULL; q.from_bf16 = narrow + at;
                memopt_i_quant_run(&q, memopt_i_quantize_chunk, NULL);
                CHECK_AT(!memcmp(codes + at, want, q.n), block);
            }
}
/* NaN and infinities in every position of a block: their own codes as said, everybody else's as without them. */
static void quant_not_finite(void) {
    static const uint32_t odd[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xff812345 };
    float x[96], absmax[1]; uint8_t codes[96], want[96]; float want_absmax; size_t i, k; uint64_t seed = 6; int map, level;
    uint16_t narrow[96];
    memopt_threads t;
    memset(&t, 0, sizeof t);
    for (map = 0; map < QUANT_MAPS; ++map)
        for (level = 1; level <= memopt_simd_best(); ++level)
            for (i = 0; i < 96; ++i)
                for (k = 0; k < sizeof odd / sizeof *odd; ++k) {
                    size_t j;
                    for (j = 0; j < 96; ++j) x[j] = quant_random(&seed);
                    x[i] = 0;
                    want_absmax = quant_block(map, want, x, 96);
                    want[i] = k == 0 ? 255 : k == 1 ? 0 : map == 1 ? 0 : 127;
                    x[i] = memopt_i_bits_float(odd[k]);
                    t.simd_level = level;
                    CHECK(!memopt_quantize_f32(codes, absmax, x, 96, quant_maps[map], 96, &t));
                    CHECK_AT(absmax[0] == want_absmax && !memcmp(codes, want, 96), i * 10 + k);
                    x[i] = 0; /* and in bf16 */
                    for (j = 0; j < 96; ++j) { narrow[j] = memopt_to_bf16(x[j]); x[j] = memopt_from_bf16(narrow[j]); }
                    want_absmax = quant_block(map, want, x, 96);
                    want[i] = k == 0 ? 255 : k == 1 ? 0 : map == 1 ? 0 : 127;
                    narrow[i] = (uint16_t)(odd[k] >> 16 | (k > 1));
                    CHECK(!memopt_quantize_bf16(codes, absmax, narrow, 96, quant_maps[map], 96, &t));
                    CHECK_AT(absmax[0] == want_absmax && !memcmp(codes, want, 96), i * 10 + k);
                }
    for (level = 1; level <= memopt_simd_best(); ++level) { /* nothing finite but zeros */
        t.simd_level = level;
        for (i = 0; i < 96; ++i) x[i] = memopt_i_bits_float(i % 3 == 2 ? 0 : odd[i % 6]);
        CHECK(!memopt_quantize_f32(codes, absmax, x, 96, MEMOPT_QUANT_SIGNED, 96, &t));
        CHECK(absmax[0] == 0);
        for (i = 0; i < 96; ++i) CHECK_AT(codes[i] == 127, i);
    }
}
static void quant_extremes(void) { /* absmax at the ends of the floats, and what decoding makes of any absmax */
    static const float most[] = { 0, 1.4e-45f, 1e-40f, 2.9387359e-39f, 2.938736e-39f, 1.1754942e-38f, 1.1754944e-38f, 1e-30f,
                                  1e30f, 3.4028235e38f };
    static const uint32_t inverses[][2] = { { 0, 0 }, { 0x80000000, 0 }, { 0x40800000, 0x3e800000 }, { 0x40400000, 0x3eaaaaab },
        { 0x00000001, 0x7f7fffff }, { 0x00200000, 0x7f7fffff }, { 0x00200001, 0x7f7ffff8 }, /* 2^-128 and the next */
        { 0x00800000, 0x7e800000 }, { 0x7f000000, 0x00400000 }, { 0x7f7fffff, 0x00200000 } };
    float x[64], absmax[2], back[64]; uint8_t codes[64], want[64]; size_t i, k; int level, map; memopt_threads t; uint64_t seed = 7;
    memset(&t, 0, sizeof t);
    for (k = 0; k < sizeof most / sizeof *most; ++k)
        for (map = 0; map < QUANT_MAPS; ++map)
            for (level = 1; level <= memopt_simd_best(); ++level) {
                t.simd_level = level;
                for (i = 0; i < 64; ++i) x[i] = quant_random(&seed) * most[k];
                x[5] = -most[k]; x[6] = most[k];
                (void)quant_block(map, want, x, 64);
                CHECK(!memopt_quantize_f32(codes, absmax, x, 64, quant_maps[map], 64, &t));
                CHECK_AT(absmax[0] == most[k] && !memcmp(codes, want, 64), k);
                CHECK(!memopt_dequantize_f32(back, codes, absmax, 64, quant_maps[map], 64, &t));
                for (i = 0; i < 64; ++i) CHECK_AT(back[i] == quant_product(quant_level(map, codes[i]), most[k]), k);
                if ((double)most[k] > 3e-39) CHECK_AT(back[6] == most[k], k);
            }
    for (i = 0; i < sizeof inverses / sizeof *inverses; ++i)
        CHECK_AT(memopt_i_float_bits(memopt_i_inverse(memopt_i_bits_float(inverses[i][0]))) == inverses[i][1], i);
    for (level = 1; level <= memopt_simd_best(); ++level) {
        t.simd_level = level;
        for (i = 0; i < 64; ++i) codes[i] = (uint8_t)(i * 4);
        absmax[0] = memopt_i_bits_float(0x7f800000); absmax[1] = memopt_i_bits_float(0x7fc00000);
        CHECK(!memopt_dequantize_f32(back, codes, absmax, 64, MEMOPT_QUANT_SIGNED, 32, &t));
        for (i = 0; i < 32; ++i) CHECK_AT(memopt_i_float_bits(back[i]) == (codes[i] < 127 ? 0xff800000 : 0x7f800000), i);
        for (; i < 64; ++i) CHECK_AT((memopt_i_float_bits(back[i]) & 0x7fffffff) > 0x7f800000, i);
    }
}
static void quant_bad_input(void) {
    static float x[512], absmax[16]; static uint8_t codes[512]; static uint16_t narrow[512]; size_t i, n; memopt_threads t;
    static const size_t bad_blocks[] = { 1, 16, 31, 33, 255, 4097, 4128, 8192, SIZE_MAX, SIZE_MAX - 31 };
    const memopt_quant_map map = MEMOPT_QUANT_SIGNED;
    memset(x, 0xEE, sizeof x); memset(absmax, 0xEE, sizeof absmax); memset(codes, 0xEE, sizeof codes); memset(narrow, 0xEE, sizeof narrow);
    memset(&t, 0, sizeof t);
#define QUANT_ALL(status, c, a, f, h, n, map, block, t) do { \
        CHECK(memopt_quantize_f32(c, a, f, n, map, block, t) == (status)); \
        CHECK(memopt_quantize_bf16(c, a, h, n, map, block, t) == (status)); \
        CHECK(memopt_dequantize_f32(f, c, a, n, map, block, t) == (status)); \
        CHECK(memopt_dequantize_bf16(h, c, a, n, map, block, t) == (status)); } while (0)
    QUANT_ALL(MEMOPT_ERR_ARGUMENT, NULL, absmax, x, narrow, 512, map, 256, NULL);
    QUANT_ALL(MEMOPT_ERR_ARGUMENT, codes, NULL, x, narrow, 512, map, 256, NULL);
    QUANT_ALL(MEMOPT_ERR_ARGUMENT, codes, absmax, NULL, NULL, 512, map, 256, NULL);
    QUANT_ALL(MEMOPT_ERR_ARGUMENT, codes, absmax, x, narrow, 512, (memopt_quant_map)3, 256, NULL);
    for (i = 0; i < sizeof bad_blocks / sizeof *bad_blocks; ++i) {
        QUANT_ALL(MEMOPT_ERR_ARGUMENT, codes, absmax, x, narrow, 512, map, bad_blocks[i], NULL);
        QUANT_ALL(MEMOPT_ERR_ARGUMENT, NULL, NULL, NULL, NULL, 0, map, bad_blocks[i], NULL);
        CHECK(memopt_quantize_blocks(512, bad_blocks[i]) == 0);
    }
    t.worker_count = 2;
    QUANT_ALL(MEMOPT_ERR_ARGUMENT, codes, absmax, x, narrow, 512, map, 256, &t);
    t.worker_count = 0; t.simd_level = -1;
    QUANT_ALL(MEMOPT_ERR_ARGUMENT, codes, absmax, x, narrow, 512, map, 256, &t);
    n = SIZE_MAX / 2 + 2; /* times 2 and 4 it is small again */
    QUANT_ALL(MEMOPT_ERR_OVERFLOW, codes, absmax, x, narrow, n, map, 256, NULL);
    QUANT_ALL(MEMOPT_ERR_OVERFLOW, codes, absmax, x, narrow, SIZE_MAX, map, 256, NULL);
    n = SIZE_MAX / 8 + 1; /* fits size_t as bytes, but no array is that long */
    CHECK(memopt_quantize_f32(codes, absmax, x, n, map, 256, NULL) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_dequantize_bf16(narrow, codes, absmax, n * 2, map, 256, NULL) == MEMOPT_ERR_OVERFLOW);
    QUANT_ALL(MEMOPT_OK, NULL, NULL, NULL, NULL, 0, map, 0, NULL);
    CHECK(memopt_quantize_blocks(0, 256) == 0 && memopt_quantize_blocks(1, 0) == 1 && memopt_quantize_blocks(257, 0) == 2);
    CHECK(memopt_quantize_blocks(SIZE_MAX, 32) == SIZE_MAX / 32 + 1);
    /* arrays that overlap, by one byte at either end, and that just do not */
    CHECK(memopt_quantize_f32((uint8_t *)x + 511, absmax, x, 128, map, 256, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_dequantize_f32(x + 48, (uint8_t *)x + 192 - 127, absmax, 128, map, 256, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_quantize_f32(codes, x + 127, x, 128, map, 256, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_quantize_f32((uint8_t *)(absmax + 1) - 1, absmax, x, 128, map, 256, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_quantize_f32((uint8_t *)x, absmax, x, 128, map, 256, NULL) == MEMOPT_ERR_ARGUMENT);
    for (i = 0; i < 512; ++i) CHECK_AT(codes[i] == 0xEE && narrow[i] == 0xEEEE && memopt_i_float_bits(x[i]) == 0xEEEEEEEE, i);
    for (i = 0; i < 16; ++i) CHECK_AT(memopt_i_float_bits(absmax[i]) == 0xEEEEEEEE, i);
    CHECK(memopt_quantize_f32((uint8_t *)(x + 128), x + 160, x, 128, map, 256, NULL) == MEMOPT_OK);
#undef QUANT_ALL
}
/* Why there is no 4-bit first moment: the update's error against exact Adam (one hot gradient of 128, the others `ratio`
   times smaller, 600 steps; the second moment is held as 8 bits of its root). m keeps beta1 of its rounding error, so an
   error of e a step becomes e * sqrt(0.81 / 0.19) = 2 e; even the best 16 levels for normal numbers make e about 0.1 of
   the spread, and 0.2 is five times what 8 bits may have. */
static double quant_gauss(uint64_t *seed) {
    const double u = ((double)(test_random(seed) >> 11) + 1) / 9007199254740993.0, v = (double)(test_random(seed) >> 11) / 9007199254740992.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
static double quant_rounded(const float *levels, int count, double y) { /* the nearest of sorted levels */
    int low = 0, high = count - 1;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if ((double)levels[middle] <= y) low = middle;
        else high = middle;
    }
    return y - (double)levels[low] <= (double)levels[high] - y ? (double)levels[low] : (double)levels[high];
}
static double quant_adam_error(const float *levels, int count, double ratio) {
    static double m[128], v[128], exact_m[128], exact_v[128], c1 = 1, c2 = 1; double off = 0, all = 0; float roots[256];
    uint64_t seed = 7; int t, i;
    for (i = 0; i < 256; ++i) roots[i] = quant_level(1, i);
    memset(m, 0, sizeof m); memset(v, 0, sizeof v); memset(exact_m, 0, sizeof m); memset(exact_v, 0, sizeof v);
    for (t = 0, c1 = c2 = 1; t < 600; ++t) {
        double most_m = 0, most_v = 0;
        c1 *= 0.9; c2 *= 0.999;
        for (i = 0; i < 128; ++i) {
            const double g = quant_gauss(&seed) * (i ? ratio : 1);
            double u, want;
            m[i] = 0.9 * m[i] + 0.1 * g; v[i] = 0.999 * v[i] + 0.001 * g * g;
            exact_m[i] = 0.9 * exact_m[i] + 0.1 * g; exact_v[i] = 0.999 * exact_v[i] + 0.001 * g * g;
            u = m[i] / (1 - c1) / (sqrt(v[i] / (1 - c2)) + 1e-8); want = exact_m[i] / (1 - c1) / (sqrt(exact_v[i] / (1 - c2)) + 1e-8);
            if (i || ratio >= 1) { off += (u - want) * (u - want); all += want * want; }
            v[i] = sqrt(v[i]);
            if (fabs(m[i]) > most_m) most_m = fabs(m[i]);
            if (v[i] > most_v) most_v = v[i];
        }
        for (i = 0; i < 128; ++i) {
            m[i] = most_m * quant_rounded(levels, count, m[i] / most_m);
            v[i] = most_v * quant_rounded(roots, 256, v[i] / most_v);
            if (v[i] <= 0) v[i] = most_v * (double)roots[1];
            v[i] *= v[i];
        }
    }
    return sqrt(off / all);
}
static void quant_four_bits(void) {
    static const float nf4[16] = { -1.0f, -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f, -0.09105004f, 0,
        0.07958030f, 0.16093020f, 0.24611230f, 0.33791524f, 0.44070983f, 0.56261700f, 0.72295684f, 1 };
    static const float dynamic[16] = { -0.8875f, -0.6625f, -0.4375f, -0.2125f, -0.0775f, -0.0325f, -0.0055f, 0,
        0.0055f, 0.0325f, 0.0775f, 0.2125f, 0.4375f, 0.6625f, 0.8875f, 1 };
    float eight[256], linear[16]; double e; int i;
    for (i = 0; i < 256; ++i) eight[i] = quant_level(0, i);
    for (i = 0; i < 16; ++i) linear[i] = (float)(i - 7) / 8;
    e = quant_adam_error(eight, 256, 1);    CHECK(e > 0.02 && e < 0.04); /* measured 0.028 */
    e = quant_adam_error(eight, 256, 1e-2); CHECK(e > 0.05 && e < 0.13); /* 0.10 */
    e = quant_adam_error(eight, 256, 1e-4); CHECK(e > 0.1 && e < 0.35);  /* 0.30 */
    e = quant_adam_error(nf4, 16, 1);       CHECK(e > 0.15 && e < 0.25); /* 0.20 */
    e = quant_adam_error(nf4, 16, 1e-2);    CHECK(e > 0.8);              /* 1.2 */
    e = quant_adam_error(linear, 16, 1);    CHECK(e > 0.15 && e < 0.25); /* 0.21 */
    e = quant_adam_error(dynamic, 16, 1);   CHECK(e > 0.2 && e < 0.4);   /* 0.30 */
    e = quant_adam_error(dynamic, 16, 1e-2); CHECK(e > 0.5);             /* 0.68 */
}
#ifdef TEST_LONG
static void quant_long(void) { /* long enough to be streamed by the public calls */
    const size_t n = ((size_t)8 << 20) + 777; size_t i; uint64_t seed = 8;
    float *x = (float *)malloc(n * 4), *back = (float *)malloc(n * 4), *absmax = (float *)malloc((n / 256 + 1) * 4);
    uint8_t *codes = (uint8_t *)malloc(n), want[256];
    CHECK(x && back && absmax && codes);
    if (x && back && absmax && codes) {
        for (i = 0; i < n; ++i) x[i] = quant_random(&seed);
        CHECK(!memopt_quantize_f32(codes, absmax, x, n, MEMOPT_QUANT_UNSIGNED, 0, NULL));
        CHECK(!memopt_dequantize_f32(back, codes, absmax, n, MEMOPT_QUANT_UNSIGNED, 0, NULL));
        for (i = 0; i < n; ++i) {
            if (i % 256 == 0) CHECK_AT(quant_block(1, want, x + i, n - i < 256 ? n - i : 256) == absmax[i / 256], i);
            CHECK_AT(codes[i] == want[i % 256] && back[i] == quant_product(quant_level(1, codes[i]), absmax[i / 256]), i);
        }
    }
    free(x); free(back); free(absmax); free(codes);
}
#endif
static void test_quant(void) {
    RUN(quant_levels);
    RUN(quant_codes);
    RUN(quant_lengths);
    RUN(quant_all_codes);
    RUN(quant_arrays);
    RUN(quant_streamed);
    RUN(quant_not_finite);
    RUN(quant_extremes);
    RUN(quant_bad_input);
    RUN(quant_four_bits);
#ifdef TEST_LONG
    RUN(quant_long);
#endif
}
#ifndef TEST_COMBINED
int main(void) { test_quant(); return test_totals(); }
#endif
