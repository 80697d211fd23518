/* test_state_codec.c - the 8-bit codes of optimizer states, section state_codec. Expected levels are built here from
   the widths of the octaves, in double; expected codes by looking for the level: the nearest one, of two equally near
   ones that with the even code, and the one below where the section rounds down. Then what it is for: updates against
   Adam in double, and rows that are touched once, both through the whole optimizer. */
#include "test.h"

static const int state_codec_of_signed[19] = { 5, 4, 4, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0, 0, 0, 0 };
static const int state_codec_of_unsigned[25] =
    { 6, 5, 5, 4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0 };
/* The magnitudes, smallest first; octave k is [2^-(k+1), 2^-k). Signed: 128, the first is 0. Unsigned: 256. */
static int state_codec_build(double *level, int is_signed) {
    const int *width = is_signed ? state_codec_of_signed : state_codec_of_unsigned;
    int k = is_signed ? 19 : 25, j, n = 0;
    if (is_signed) level[n++] = 0;
    while (k-- > 0)
        for (j = 0; j < 1 << width[k]; ++j) level[n++] = ldexp(1 + ldexp((double)j, -width[k]), -(k + 1));
    level[n++] = 1;
    return n;
}
/* What is looked for among the levels. */
static float state_codec_scaled(float x, float inverse, int is_signed) {
    volatile float y;
    if (!is_signed) return fmaf(x, inverse, (float)ldexp(1, -26)); /* exact, once rounded */
    y = fabsf(x) * inverse;
    return y;
}
/* The number of y's level, which is at least *from: the sweeps go upwards, and do not look from the start again. */
static int state_codec_find(const double *level, int count, int is_signed, float y, int from) {
    const double x = (double)y; double below, above;
    while (from + 1 < count && level[from + 1] <= x) ++from;
    if (from + 1 == count || (is_signed && x < ldexp(1, -15))) return from; /* rounding down, for decay's sake */
    below = x - level[from]; above = level[from + 1] - x;
    return above < below || (!(below < above) && from % 2 != 0) ? from + 1 : from;
}
static uint8_t state_codec_code(const double *level, int is_signed, float x, float inverse) {
    const int k = state_codec_find(level, is_signed ? 128 : 256, is_signed,
                                   state_codec_scaled(x, inverse, is_signed), 0);
    return (uint8_t)(is_signed ? k * 2 + (int)(memopt_i_float_bits(x) >> 31) : k);
}
static void state_codec_levels(void) {
    static double level[2][256]; static memopt_i_state_codec t; float x[256], scaled[256]; uint8_t all[256], back[256];
    int s, i, at;
    CHECK(state_codec_build(level[1], 1) == 128 && state_codec_build(level[0], 0) == 256);
    CHECK(sizeof t % 64 == 0 && offsetof(struct memopt_optim, codes) % 64 == 0); /* whole lines of the cache, in the object */
    for (i = 0; i < 256; ++i) all[i] = (uint8_t)i;
    for (s = 0; s < 2; ++s) {
        memopt_i_state_codec_init(&t, s);
        for (at = 1; at <= memopt_simd_best(); ++at) {
            MEMOPT_I_DISPATCH(at, state_codec_decode, (&t, x, all, 256));
            for (i = 0; i < 256; ++i) {
                const double want = s ? level[1][i / 2] * (i % 2 ? -1 : 1) : level[0][i];
                CHECK_AT((double)x[i] == want && memopt_i_float_bits(x[i]) >> 31 == (uint32_t)(s && i % 2), i);
                CHECK_AT((memopt_i_float_bits(x[i]) & 0xffff) == 0, i); /* a bfloat16 */
                scaled[i] = x[i] * 24.0f; /* exact: 7 bits and 2 */
            }
            memset(back, 0, sizeof back);
            MEMOPT_I_DISPATCH(at, state_codec_encode, (&t, back, x, 256, 1));
            CHECK_AT(memcmp(all, back, 256) == 0, at);
            memset(back, 0, sizeof back);
            MEMOPT_I_DISPATCH(at, state_codec_encode, (&t, back, scaled, 256, memopt_i_inverse(24)));
            CHECK_AT(memcmp(all, back, 256) == 0, at);
        }
    }
}
/* One value at each level, in the middle of a vector as well as in the tail. */
static void state_codec_expect(const memopt_i_state_codec *t, const double *level, float x, float inverse) {
    const uint8_t want = state_codec_code(level, t->is_signed, x, inverse); float in[65]; uint8_t out[65]; int at, i;
    for (i = 0; i < 65; ++i) in[i] = x;
    for (at = 1; at <= memopt_simd_best(); ++at) {
        memset(out, want ^ 0x55, sizeof out);
        MEMOPT_I_DISPATCH(at, state_codec_encode, (t, out, in, 65, inverse));
        CHECK_AT(out[0] == want && out[37] == want && out[64] == want, memopt_i_float_bits(x));
    }
}
static void state_codec_planted(void) {
    static double level[256]; static memopt_i_state_codec t; int s, i, d, count;
    for (s = 0; s < 2; ++s) {
        memopt_i_state_codec_init(&t, s);
        count = state_codec_build(level, s);
        for (i = 0; i + 1 < count; ++i) { /* the middle between two levels, the level, and the floats around them */
            const float middle = (float)((level[i] + level[i + 1]) / 2), here = (float)level[i];
            for (d = -2; d <= 2; ++d) {
                const float a = memopt_i_bits_float(memopt_i_float_bits(middle) + (uint32_t)d);
                const float b = memopt_i_bits_float(memopt_i_float_bits(here) + (uint32_t)(here > 0 ? d : d + 2));
                state_codec_expect(&t, level, a, 1); state_codec_expect(&t, level, b, 1);
                if (s) { state_codec_expect(&t, level, -a, 1); state_codec_expect(&t, level, -b, 1); }
                else state_codec_expect(&t, level, a - (float)ldexp(1, -26), 1); /* the middle after lifting */
            }
        }
        for (i = -149; i <= 0; ++i) { /* every exponent, denormals too */
            state_codec_expect(&t, level, (float)ldexp(1, i), 1);
            state_codec_expect(&t, level, (float)ldexp(1.9375, i), 0.5f);
            if (s) state_codec_expect(&t, level, (float)-ldexp(1.25, i), 0.5f);
        }
        state_codec_expect(&t, level, 0, 1);
        state_codec_expect(&t, level, memopt_i_bits_float(0x3f800001u), 1); /* a scale's inverse is rounded */
    }
    memopt_i_state_codec_init(&t, 1);
    state_codec_build(level, 1);
    state_codec_expect(&t, level, -0.0f, 1);
    CHECK(state_codec_code(level, 1, -0.0f, 1) == 1 && state_codec_code(level, 1, 0, 1) == 0); /* what this test expects, spelled out: */
    CHECK(state_codec_code(level, 1, 1, 1) == 254 && state_codec_code(level, 1, -1, 1) == 255);
    CHECK(state_codec_code(level, 1, (float)ldexp(1, -19), 1) == 2
          && state_codec_code(level, 1, (float)ldexp(0.999, -19), 1) == 0);
    CHECK(state_codec_code(level, 1, (float)ldexp(0.999, -15), 1) == 8 && state_codec_code(level, 1, (float)ldexp(1, -15), 1) == 10);
    state_codec_build(level, 0);
    CHECK(state_codec_code(level, 0, 0, 1) == 0 && state_codec_code(level, 0, 0, 0) == 0
          && state_codec_code(level, 0, 1, 1) == 255);
}
/* Never zero: a second moment that is lost makes the next step explode. */
static void state_codec_never_zero(void) {
    static memopt_i_state_codec t; static const float tiny[] = { 0, 1e-45f, 1e-38f, 1e-20f, 1e-9f }; uint8_t code[5]; float x[5];
    int at, i;
    memopt_i_state_codec_init(&t, 0);
    for (at = 1; at <= memopt_simd_best(); ++at) {
        MEMOPT_I_DISPATCH(at, state_codec_encode, (&t, code, tiny, 5, 1));
        MEMOPT_I_DISPATCH(at, state_codec_decode, (&t, x, code, 5));
        for (i = 0; i < 5; ++i) CHECK((double)x[i] == ldexp(1, -25));
    }
}
static void state_codec_scales(void) { /* of a block: none, denormal, huge */
    static double level[2][256]; static memopt_i_state_codec t[2]; static const float scales[] = { 0, 1e-45f, 1e-41f, 2.9e-39f, 2.94e-39f,
        1.1754944e-38f, 1e-30f, 1.7f, 3.4028235e38f }; size_t k; int s;
    for (s = 0; s < 2; ++s) { memopt_i_state_codec_init(&t[s], s); state_codec_build(level[s], s); }
    for (k = 0; k < sizeof scales / sizeof *scales; ++k) {
        const float inverse = memopt_i_inverse(scales[k]); const double exact = k ? 1 / (double)scales[k] : 0;
        CHECK_AT((memopt_i_float_bits(inverse) & 0x7f800000) != 0x7f800000, k); /* finite */
        if (exact < 3.4028234e38) CHECK_AT(fabs((double)inverse - exact) <= exact * ldexp(1, -24), k);
        else CHECK_AT(memopt_i_float_bits(inverse) == 0x7f7fffffu, k);
        for (s = 0; s < 2; ++s) {
            state_codec_expect(&t[s], level[s], scales[k], inverse);
            state_codec_expect(&t[s], level[s], scales[k] * 0.5f, inverse);
            state_codec_expect(&t[s], level[s], scales[k] * 0.001f, inverse);
            if (s) state_codec_expect(&t[s], level[s], -scales[k], inverse);
        }
    }
}
/* The codes of floats with the bits first, first + stride, ...: ascending, so the reference only walks upwards. */
static void state_codec_sweep(int is_signed, uint32_t first, uint32_t last, uint32_t stride) {
    enum { N = 4096 };
    static double level[256]; static memopt_i_state_codec t; static float x[N]; static uint8_t want[N], code[N];
    uint64_t at = first; int from = 0, lane; size_t n, i; const int count = state_codec_build(level, is_signed);
    memopt_i_state_codec_init(&t, is_signed);
    while (at <= last) {
        for (n = 0; n < N && at <= last; ++n, at += stride) {
            float y;
            x[n] = memopt_i_bits_float((uint32_t)at);
            y = state_codec_scaled(x[n], 1, is_signed);
            while (from + 1 < count && level[from + 1] <= (double)y) ++from;
            want[n] = (uint8_t)(state_codec_find(level, count, is_signed, y, from) << is_signed);
        }
        for (lane = 1; lane <= memopt_simd_best(); ++lane) {
            MEMOPT_I_DISPATCH(lane, state_codec_encode, (&t, code, x, n, 1));
            CHECK_AT(memcmp(want, code, n) == 0, at);
        }
        if (is_signed) {
            for (i = 0; i < n; ++i) { x[i] = -x[i]; want[i] |= 1; }
            for (lane = 1; lane <= memopt_simd_best(); ++lane) {
                MEMOPT_I_DISPATCH(lane, state_codec_encode, (&t, code, x, n, 1));
                CHECK_AT(memcmp(want, code, n) == 0, at);
            }
        }
    }
}
static void state_codec_all_floats(void) { /* from 0 to 1; below 2^-33 there is nothing to see */
    const uint32_t one = 0x3f800000u, low = (127u - 33) << 23; int s;
    for (s = 0; s < 2; ++s) {
#ifdef TEST_LONG
        state_codec_sweep(s, 0, low, 61);
        state_codec_sweep(s, low, one, 1);
#else
        state_codec_sweep(s, 0, low, 15485863);
        state_codec_sweep(s, low, one, 3571);
#endif
    }
}
static void state_codec_random_and_tails(void) {
    enum { N = 131 };
    static double level[256]; static memopt_i_state_codec t; float x[N + 3], back[N + 3]; uint8_t want[N], code[N + 3], guard[N + 3];
    uint64_t seed = 3; int s, at, k; size_t n, i;
    for (s = 0; s < 2; ++s) {
        memopt_i_state_codec_init(&t, s);
        state_codec_build(level, s);
        for (n = 0; n < N; ++n) for (k = 0; k < 2; ++k) { /* k: where the arrays begin */
            const float largest = (float)ldexp(1 + (double)test_below(&seed, 1 << 20) / (1 << 20), (int)test_below(&seed, 200) - 100);
            const float inverse = memopt_i_inverse(largest);
            for (i = 0; i < n; ++i) {
                const double part = ldexp((double)test_below(&seed, 1 << 24), -24 - (int)test_below(&seed, 30));
                x[i + (size_t)k] = (float)(part * (double)largest) * (s && test_below(&seed, 2) ? -1.0f : 1.0f);
                if (i % 50 == 49) x[i + (size_t)k] = largest;
                want[i] = state_codec_code(level, s, x[i + (size_t)k], inverse);
            }
            for (at = 1; at <= memopt_simd_best(); ++at) {
                memset(code, 0xA5, sizeof code); memset(guard, 0xA5, sizeof guard);
                MEMOPT_I_DISPATCH(at, state_codec_encode, (&t, code + k, x + k, n, inverse));
                CHECK_AT(n == 0 || memcmp(code + k, want, n) == 0, n);
                CHECK_AT(memcmp(code + k + n, guard, 3 - (size_t)k) == 0 && (!k || code[0] == 0xA5), n);
                for (i = 0; i < N + 3; ++i) back[i] = 77;
                MEMOPT_I_DISPATCH(at, state_codec_decode, (&t, back + k, code + k, n));
                for (i = 0; i < n; ++i)
                    CHECK_AT(memopt_i_float_bits(back[i + (size_t)k]) == memopt_i_float_bits(s && want[i] % 2
                        ? (float)-level[want[i] / 2] : (float)level[s ? want[i] / 2 : want[i]]), n);
                CHECK_AT((double)back[n + (size_t)k] == 77 && (!k || (double)back[0] == 77), n);
            }
        }
    }
}

/* One block of 256 moments, hot entries among quiet ones, through memopt_optim_step(); weights are put back to 0 before each
   step, so that what is read is the update. A copy of Adam in double goes along. */
enum { TAPER_BLOCK = 256, TAPER_STEPS = 600 };
typedef struct state_codec_adam {
    unsigned char object[32768], state[64 * 32], *memory;
    memopt_optim *optim; memopt_optim_desc desc; memopt_optim_tensor tensor;
    float  w[TAPER_BLOCK], g[TAPER_BLOCK];
    double m[TAPER_BLOCK], v[TAPER_BLOCK], moved[TAPER_BLOCK], should[TAPER_BLOCK], error, size;
} state_codec_adam;
static double state_codec_gauss(uint64_t *seed) {
    const double u = ((double)(test_random(seed) >> 11) + 1) * ldexp(1, -53), v = (double)(test_random(seed) >> 11) * ldexp(1, -53);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
static int state_codec_open(state_codec_adam *a) {
    size_t bytes = 0, state = 0;
    memset(a, 0, sizeof *a);
    a->memory = a->object + (64 - (uintptr_t)a->object % 64) % 64;
    a->tensor.weights = a->w; a->tensor.gradients = a->g; a->tensor.count = TAPER_BLOCK;
    a->tensor.state = a->state + (64 - (uintptr_t)a->state % 64) % 64;
    a->desc.kind = MEMOPT_OPTIM_ADAMW; a->desc.state = MEMOPT_STATE_8BIT; a->desc.min_quantized = 1;
    a->desc.tensors = &a->tensor; a->desc.tensor_count = 1;
    CHECK(memopt_optim_bytes(&a->desc, &bytes) == MEMOPT_OK && bytes + 64 <= sizeof a->object);
    CHECK(memopt_optim_state_bytes(&a->desc, 0, &state) == MEMOPT_OK && state == 64 + 2 * 64 + 2 * 256);
    if (bytes + 64 > sizeof a->object || memopt_optim_create(&a->desc, a->memory, bytes, &a->optim)) return 0;
    return memopt_optim_state_init(a->optim, 0) == MEMOPT_OK;
}
static int state_codec_is_hot(int half, int i) { return half ? i % 2 == 0 : i == 0; }
/* quiet gradients are `ratio` times as large as hot ones; touched: they are there in that step only (0: in all). */
static void state_codec_adam_run(state_codec_adam *a, double ratio, int half, int touched, uint64_t seed) {
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); memopt_optim_run run; int t, i;
    if (!state_codec_open(a)) { CHECK(a->optim != NULL && touched < 0); return; }
    group.weight_decay = 0; group.eps = 1e-12;
    memset(&run, 0, sizeof run);
    run.groups = &group; run.group_count = 1;
    for (t = 1; t <= TAPER_STEPS; ++t) {
        const double c1 = 1 - pow(0.9, t), c2 = 1 - pow(0.999, t);
        for (i = 0; i < TAPER_BLOCK; ++i) {
            const double g = state_codec_gauss(&seed)
                * (state_codec_is_hot(half, i) ? 1 : touched && t != touched ? 0 : ratio);
            a->g[i] = (float)g; a->w[i] = 0;
        }
        run.step = (uint64_t)t;
        if (memopt_optim_step(a->optim, &run)) { CHECK_AT(t < 0, t); return; }
        for (i = 0; i < TAPER_BLOCK; ++i) {
            const double g = (double)a->g[i], u = -(double)a->w[i] / group.rate; double want;
            a->m[i] = 0.9 * a->m[i] + (1 - 0.9) * g; a->v[i] = 0.999 * a->v[i] + (1 - 0.999) * g * g;
            want = a->m[i] / c1 / (sqrt(a->v[i] / c2) + 1e-12);
            a->moved[i] += u; a->should[i] += want;
            if (half || (state_codec_is_hot(0, i) && ratio < 1)) continue;
            a->error += (u - want) * (u - want); a->size += want * want;
        }
    }
}
static void state_codec_accuracy(void) {
    static const struct { double ratio, most; } row[] = { { 1, 0.04 }, { 1e-2, 0.13 }, { 1e-4, 0.35 } };
    static state_codec_adam a; int i; uint64_t seed;
    for (i = 0; i < 3; ++i) {
        double sum = 0;
        for (seed = 1; seed <= 3; ++seed) { state_codec_adam_run(&a, row[i].ratio, 0, 0, seed * 1000003); sum += sqrt(a.error / a.size); }
#ifdef TEST_LONG
        printf("update error, gradients %g times the hot one: %.3f\n", row[i].ratio, sum / 3);
#endif
        CHECK_AT(sum / 3 <= row[i].most, i);
        CHECK_AT(sum / 3 > 0.005, i); /* 8 bits: nobody is that good, so something was measured */
    }
}
static void state_codec_touched_once(void) {
    static const double ratios[] = { 1, 1e-2, 1e-4 }; static state_codec_adam a; int half, late, r, i;
    for (half = 0; half < 2; ++half) for (late = 0; late < 2; ++late) for (r = 0; r < 3; ++r) {
        double sum = 0; int n = 0;
        if (test_is_passed_over()) continue;
        state_codec_adam_run(&a, ratios[r], half, late ? 50 : 1, 12345);
        for (i = 0; i < TAPER_BLOCK; ++i) {
            if (state_codec_is_hot(half, i)) continue;
            sum += fabs(a.moved[i]) / fabs(a.should[i]); ++n;
        }
#ifdef TEST_LONG
        printf("touched once in step %d, %s hot, %g: moves %.2f times as far\n", late ? 50 : 1, half ? "half" : "one", ratios[r], sum / n);
#endif
        CHECK_AT(sum / n <= 1.5, half * 100 + late * 10 + r);
        CHECK_AT(sum / n >= 0.1, half * 100 + late * 10 + r);
    }
}
static void test_state_codec(void) {
    RUN(state_codec_levels);
    RUN(state_codec_planted);
    RUN(state_codec_never_zero);
    RUN(state_codec_scales);
    RUN(state_codec_all_floats);
    RUN(state_codec_random_and_tails);
    RUN(state_codec_accuracy);
    RUN(state_codec_touched_once);
}
#ifndef TEST_COMBINED
int main(void) { test_state_codec(); return test_totals(); }
#endif
