/* test_scale.c - policies, loss scaling, unscale and measure, clipping, accumulation. Expected values come from the
   definitions: conversions by searching the nearest code, products in double, sums as the header describes them written
   down once more, PyTorch's scale from powers of two kept as integers and from tables that a Python program printed. */
#include "test.h"
#include <float.h>

#define SCALE_PIECE 65536
#define SCALE_LEAF  4096 /* what the header promises */
#define SCALE_NAN   0x7FC00000u

/* ---- numbers by their definitions ---- */
static double scale_compute(memopt_type type, unsigned code) { /* the infinity's code is the next power of two */
    const int bits = type == MEMOPT_TYPE_BF16 ? 7 : 10, bias = type == MEMOPT_TYPE_BF16 ? 127 : 15;
    const int exponent = (int)(code & 0x7FFF) >> bits, mantissa = (int)code & ((1 << bits) - 1);
    const double size = exponent ? ldexp((double)((1 << bits) + mantissa), exponent - bias - bits)
                                 : ldexp((double)mantissa, 1 - bias - bits);
    return code & 0x8000 ? -size : size;
}
static double scale_decode(memopt_type type, unsigned code) {
    static double table[2][65536]; static int filled; unsigned i;
    if (!filled) for (filled = 1, i = 0; i < 65536; ++i) {
        table[0][i] = scale_compute(MEMOPT_TYPE_BF16, i);
        table[1][i] = scale_compute(MEMOPT_TYPE_F16, i);
    }
    return table[type == MEMOPT_TYPE_F16][code];
}
static unsigned scale_infinity(memopt_type type) { return type == MEMOPT_TYPE_BF16 ? 0x7F80 : 0x7C00; }
static float scale_float(memopt_type type, unsigned code) { /* exact: every value of both types is a float */
    if ((code & 0x7FFF) == scale_infinity(type)) return memopt_i_bits_float((code & 0x8000) << 16 | 0x7F800000u);
    if ((code & 0x7FFF) > scale_infinity(type)) return memopt_i_bits_float(SCALE_NAN);
    return (float)scale_decode(type, code);
}
static unsigned scale_nearest(memopt_type type, float x) {
    const unsigned sign = memopt_i_float_bits(x) >> 16 & 0x8000, infinity = scale_infinity(type);
    const uint32_t size = memopt_i_float_bits(x) & 0x7FFFFFFFu; const double a = (double)memopt_i_bits_float(size);
    unsigned low = 0, high = infinity; double below, above;
    if (size > 0x7F800000u) return infinity | 1u << (type == MEMOPT_TYPE_BF16 ? 6 : 9) | sign;
    if (size == 0x7F800000u || a >= scale_decode(type, infinity)) return infinity | sign;
    while (high - low > 1) { /* decode(low) <= a < decode(high) */
        const unsigned middle = (low + high) / 2;
        if (scale_decode(type, middle) <= a) low = middle; else high = middle;
    }
    below = a - scale_decode(type, low); above = scale_decode(type, high) - a;
    return (above < below || (above == below && low % 2) ? high : low) | sign;
}
static float scale_times(float a, float b) { /* rounded once: the product is exact in double */
    volatile float rounded = (float)((double)a * (double)b); /* whatever the registers hold */
    const float x = rounded;
    return (memopt_i_float_bits(x) & 0x7FFFFFFFu) > 0x7F800000u ? memopt_i_bits_float(SCALE_NAN) : x;
}
static float scale_fused(float w, float x, float y) {
    const float z = fmaf(w, x, y);
    return (memopt_i_float_bits(z) & 0x7FFFFFFFu) > 0x7F800000u ? memopt_i_bits_float(SCALE_NAN) : z;
}
static double scale_plus(double a, double b) { /* rounded once, to double, by any compiler */
    volatile double one = 1;
    return fma(one, a, b);
}
static int scale_is_nan(float x) { return (memopt_i_float_bits(x) & 0x7FFFFFFFu) > 0x7F800000u; }
static uint64_t scale_double_bits(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }

/* Gradients as they come: mostly moderate, some tiny, zero, denormal, large; never NaN or infinite. */
static float scale_random(uint64_t *seed) {
    const uint64_t r = test_random(seed); const uint32_t mantissa = (uint32_t)r & 0x807FFFFFu;
    const unsigned kind = (unsigned)(r >> 40) % 64;
    if (kind == 0) return memopt_i_bits_float((uint32_t)r & 0x80000000u);
    if (kind == 1) return memopt_i_bits_float(mantissa);
    if (kind == 2) return memopt_i_bits_float(mantissa | 0x38000000u); /* fp16: between its denormals and normals */
    if (kind == 3) return memopt_i_bits_float(mantissa | 0x47000000u); /* 32768 to 65535 */
    return memopt_i_bits_float(mantissa | (uint32_t)(0x3A + (r >> 32 & 7)) << 24);
}
static size_t scale_size(memopt_type type) { return type == MEMOPT_TYPE_F32 ? 4 : 2; }
static void scale_put(memopt_type type, void *values, size_t i, float x) {
    const uint16_t code = type == MEMOPT_TYPE_F32 ? 0 : (uint16_t)scale_nearest(type, x);
    if (type == MEMOPT_TYPE_F32) memcpy((unsigned char *)values + 4 * i, &x, 4);
    else memcpy((unsigned char *)values + 2 * i, &code, 2);
}
static float scale_get(memopt_type type, const void *values, size_t i) {
    float x; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, (const unsigned char *)values + 4 * i, 4); return x; }
    memcpy(&code, (const unsigned char *)values + 2 * i, 2);
    return scale_float(type, code);
}
static void *scale_alloc(size_t bytes) { /* never NULL, and with the size asked for, so that sanitizers see its end */
    void *p = malloc(bytes ? bytes : 1);
    if (!p) { printf("test_scale: out of memory\n"); exit(1); }
    return p;
}
static memopt_gradient scale_tensor(memopt_type type, void *values, size_t count) {
    memopt_gradient g;
    memset(&g, 0, sizeof g);
    g.values = values; g.count = count; g.type = type;
    return g;
}
static memopt_gradients scale_list(memopt_gradient *tensors, size_t count) { /* with exactly the scratch that is asked for */
    memopt_gradients list;
    memset(&list, 0, sizeof list); list.tensors = tensors; list.count = count;
    CHECK(memopt_gradients_scratch(&list, &list.scratch_bytes) == MEMOPT_OK);
    list.scratch = scale_alloc(list.scratch_bytes);
    return list;
}

/* ---- types and policies ---- */
static void scale_types(void) {
    CHECK(memopt_type_bytes(MEMOPT_TYPE_F32) == 4 && memopt_type_bytes(MEMOPT_TYPE_BF16) == 2 && memopt_type_bytes(MEMOPT_TYPE_F16) == 2);
    CHECK(memopt_type_bytes((memopt_type)3) == 0 && MEMOPT_TYPE_F32 == 0);
}
static void scale_policy_starters(void) {
    const char *why = NULL; memopt_precision p;
    memset(&p, 0, sizeof p); /* everything fp32 */
    CHECK(memopt_precision_check(&p, &why) == MEMOPT_OK && why && !*why);
    CHECK(memopt_precision_check(&p, NULL) == MEMOPT_OK);
    p = memopt_precision_bf16();
    CHECK(memopt_precision_check(&p, &why) == MEMOPT_OK && !*why);
    CHECK(p.weights == MEMOPT_TYPE_BF16 && p.master == MEMOPT_TYPE_F32 && p.gradients == MEMOPT_TYPE_BF16);
    CHECK(p.reduction == MEMOPT_TYPE_F32 && p.buffers == MEMOPT_TYPE_F32 && !p.loss_scaling);
    p = memopt_precision_bf16_lean();
    CHECK(memopt_precision_check(&p, &why) == MEMOPT_OK && p.master == MEMOPT_TYPE_BF16 && p.reduction == MEMOPT_TYPE_BF16);
    p = memopt_precision_f16();
    CHECK(memopt_precision_check(&p, &why) == MEMOPT_OK && p.weights == MEMOPT_TYPE_F16 && p.gradients == MEMOPT_TYPE_F16);
    CHECK(p.loss_scaling == 1 && p.master == MEMOPT_TYPE_F32 && p.reduction == MEMOPT_TYPE_F32);
    CHECK(memopt_precision_check(NULL, &why) == MEMOPT_ERR_ARGUMENT && why && *why);
}
/* What goes together, written as a list: weights, master, gradients, reduction, scaling. f: fp32, b: bf16, h: fp16. */
static void scale_policy_all(void) {
    static const char *const good[] = { "ffff0", "ffbf0", "ffbb0", "ffhf1", "bfff0", "bfbf0", "bfbb0", "bbff0", "bbbf0", "bbbb0",
                                        "hfff1", "hfhf1" };
    static const char letters[] = "fbh"; int w, m, g, r, b, keep, scaling; size_t i, found = 0;
    for (w = 0; w < 3; ++w) for (m = 0; m < 3; ++m) for (g = 0; g < 3; ++g) for (r = 0; r < 3; ++r)
        for (b = 0; b < 3; ++b) for (keep = 0; keep < 16; ++keep) for (scaling = 0; scaling < 2; ++scaling) {
            memopt_precision p; char name[6]; const char *why = NULL; int fits = 0;
            p.weights = (memopt_type)w; p.master = (memopt_type)m; p.gradients = (memopt_type)g;
            p.reduction = (memopt_type)r; p.buffers = (memopt_type)b; p.keep_f32 = (unsigned)keep; p.loss_scaling = scaling;
            name[0] = letters[w]; name[1] = letters[m]; name[2] = letters[g]; name[3] = letters[r];
            name[4] = (char)('0' + scaling); name[5] = 0;
            for (i = 0; i < sizeof good / sizeof *good; ++i) fits |= !strcmp(name, good[i]);
            fits = fits && (b == 0 || (b == w && !(keep & 1)));
            CHECK_AT(memopt_precision_check(&p, &why) == (fits ? MEMOPT_OK : MEMOPT_ERR_ARGUMENT), w * 10000 + m * 1000 + g * 100 + r * 10 + b);
            CHECK_AT(why && (*why == 0) == fits, w);
            found += (size_t)fits;
        }
    CHECK(found == 12 * 16 + 8 * 8); /* buffers fp32, keep whatever; buffers as 16-bit weights, norms not kept */
    for (i = 0; i < 7; ++i) {
        memopt_precision p; const char *why = NULL;
        memset(&p, 0, sizeof p);
        switch (i) {
        case 0: p.weights = (memopt_type)3; break;   case 1: p.master = (memopt_type)3; break;
        case 2: p.gradients = (memopt_type)3; break; case 3: p.reduction = (memopt_type)3; break;
        case 4: p.buffers = (memopt_type)3; break;   case 5: p.keep_f32 = 16; break;
        default: p.loss_scaling = 2;
        }
        CHECK_AT(memopt_precision_check(&p, &why) == MEMOPT_ERR_ARGUMENT && why && *why, i);
    }
}

/* ---- loss scaling ---- */
static memopt_scaler scale_scaler(void) {
    memopt_scaler s;
    memset(&s, 0xA5, sizeof s);
    CHECK(memopt_scaler_default(&s) == MEMOPT_OK);
    return s;
}
static void scale_scaler_start(void) {
    memopt_scaler s = scale_scaler();
    CHECK(s.scale == 65536 && s.floor == 1 && s.growth_factor == 2 && s.backoff_factor == 0.5);
    CHECK(s.growth_interval == 2000 && s.growth_tracker == 0 && s.unscaled == 0 && s.found_nonfinite == 0);
    CHECK(memopt_scaler_check(&s) == MEMOPT_OK);
    CHECK(memopt_scaler_default(NULL) == MEMOPT_ERR_ARGUMENT && memopt_scaler_check(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(sizeof s == 40 && offsetof(memopt_scaler, floor) == 4 && offsetof(memopt_scaler, growth_factor) == 8);
    CHECK(offsetof(memopt_scaler, backoff_factor) == 16 && offsetof(memopt_scaler, growth_interval) == 24);
    CHECK(offsetof(memopt_scaler, growth_tracker) == 28 && offsetof(memopt_scaler, unscaled) == 32 && offsetof(memopt_scaler, found_nonfinite) == 36);
}
static void scale_scaler_inverse(void) { /* numpy: float32(1 / float64(scale)) */
    static const uint32_t table[][2] = {
        { 0x3F800000, 0x3F800000 }, { 0x47800000, 0x37800000 }, { 0x40400000, 0x3EAAAAAB }, { 0x3FC00000, 0x3F2AAAAB },
        { 0x40E00000, 0x3E124925 }, { 0x3DCCCCCD, 0x41200000 }, { 0x7F000000, 0x00400000 }, { 0x7F7FFFFF, 0x00200000 },
        { 0x3A83126F, 0x4479FFFF }, { 0x4640E6B6, 0x38A9DE8C }, { 0x00400000, 0x7F000000 }, { 0x00600000, 0x7EAAAAAB },
        { 0x0020AAC8, 0x7F7AC5A7 }, { 0x47434F00, 0x37A7C688 } };
    size_t i; memopt_scaler s = scale_scaler();
    s.floor = memopt_i_bits_float(0x00200001);
    for (i = 0; i < sizeof table / sizeof *table; ++i) {
        s.scale = memopt_i_bits_float(table[i][0]);
        CHECK_AT(memopt_i_float_bits(memopt_i_scaler_inverse(&s)) == table[i][1], i);
    }
    s.unscaled = 2;
    CHECK(memopt_i_scaler_inverse(&s) == 0 && memopt_i_scaler_inverse(NULL) == 0);
}
/* A million steps against a model that knows only exponents. Phases with many overflows reach the floor, phases with
   none reach the largest scale there is. */
static void scale_scaler_million(void) {
    uint64_t seed = 18; int exponent = 16, interval, step = 0, floors = 0, tops = 0, grown = 0;
    uint32_t tracker = 0; memopt_scaler s = scale_scaler(); float value = 1;
    memopt_gradient g = scale_tensor(MEMOPT_TYPE_F32, &value, 1); memopt_gradients list = scale_list(&g, 1);
    memopt_gradient_total total;
    while (step < 1000000) {
        const int steps = 1 + (int)test_below(&seed, 3000); const size_t odds = (size_t)1 << test_below(&seed, 12); int i;
        interval = 1 + (int)test_below(&seed, 9);
        if (test_below(&seed, 3) == 0) interval = 2000;
        s.growth_interval = (uint32_t)interval;
        if (tracker >= (uint32_t)interval) s.growth_tracker = tracker = 0;
        for (i = 0; i < steps && step < 1000000; ++i, ++step) {
            const int found = test_below(&seed, odds) == 0, elsewhere = test_below(&seed, 8) == 0; memopt_status status;
            if (step % 16 == 0) { /* the whole way */
                value = found && !elsewhere ? memopt_i_bits_float(0x7F800000u | (uint32_t)test_below(&seed, 2)) : (float)step;
                CHECK_AT(memopt_scaler_measure(&s, &list, &total, NULL) == MEMOPT_OK, step);
                CHECK_AT(total.overflow == (found && !elsewhere) && total.factor == ldexp(1, -exponent), step);
            } else { s.unscaled = 1; s.found_nonfinite = (uint32_t)(found && !elsewhere); }
            status = memopt_scaler_update(&s, found);
            if (found && exponent == 0) {
                ++floors;
                CHECK_AT(status == MEMOPT_ERR_OVERFLOW && s.unscaled == 1, step);
                CHECK_AT(memopt_scaler_cancel(&s) == MEMOPT_OK, step);
            } else {
                CHECK_AT(status == MEMOPT_OK, step);
                if (found) { --exponent; tracker = 0; }
                else if (++tracker == (uint32_t)interval) {
                    tracker = 0; ++grown;
                    if (exponent < 127) ++exponent; else ++tops;
                }
            }
            CHECK_AT(s.scale == (float)ldexp(1, exponent) && s.growth_tracker == tracker && !s.unscaled && !s.found_nonfinite, step);
        }
    }
    CHECK(floors > 100 && tops > 100 && grown > 1000);
    free(list.scratch);
}
static void scale_scaler_odd_factors(void) { /* 1000, growth 1.3, backoff 0.7, interval 3: overflow, scale, tracker, by numpy */
    static const struct { int found; uint32_t scale, tracker; } table[] = {
        { 0, 0x447A0000, 1 }, { 1, 0x442F0000, 0 }, { 0, 0x442F0000, 1 }, { 1, 0x43F50000, 0 }, { 0, 0x43F50000, 1 },
        { 0, 0x43F50000, 2 }, { 0, 0x441F4000, 0 }, { 0, 0x441F4000, 1 }, { 1, 0x43DEF333, 0 }, { 0, 0x43DEF333, 1 },
        { 1, 0x439C10A4, 0 }, { 0, 0x439C10A4, 1 }, { 0, 0x439C10A4, 2 }, { 0, 0x43CAE26F, 0 }, { 0, 0x43CAE26F, 1 },
        { 1, 0x438E04E7, 0 }, { 0, 0x438E04E7, 1 }, { 1, 0x4346D3AA, 0 }, { 0, 0x4346D3AA, 1 }, { 0, 0x4346D3AA, 2 },
        { 0, 0x43813CC8, 0 }, { 0, 0x43813CC8, 1 }, { 1, 0x4334EEB2, 0 }, { 0, 0x4334EEB2, 1 }, { 1, 0x42FD4E2C, 0 },
        { 0, 0x42FD4E2C, 1 }, { 0, 0x42FD4E2C, 2 }, { 0, 0x4324A603, 0 }, { 0, 0x4324A603, 1 }, { 1, 0x42E68204, 0 },
        { 0, 0x42E68204, 1 }, { 1, 0x42A15B03, 0 }, { 0, 0x42A15B03, 1 }, { 0, 0x42A15B03, 2 }, { 0, 0x42D1C31E, 0 },
        { 0, 0x42D1C31E, 1 }, { 1, 0x4292D562, 0 }, { 0, 0x4292D562, 1 }, { 1, 0x424D9123, 0 }, { 0, 0x424D9123, 1 } };
    memopt_scaler s = scale_scaler(), saved; size_t i;
    s.scale = 1000; s.growth_factor = 1.3; s.backoff_factor = 0.7; s.growth_interval = 3;
    for (i = 0; i < sizeof table / sizeof *table; ++i) {
        s.unscaled = 1;
        CHECK_AT(memopt_scaler_update(&s, table[i].found) == MEMOPT_OK, i);
        CHECK_AT(memopt_i_float_bits(s.scale) == table[i].scale && s.growth_tracker == table[i].tracker, i);
        if (i == 11) { saved = s; memset(&s, 0xA5, sizeof s); s = saved; } /* a restart is a copy */
    }
    s.scale = (float)FLT_MAX; s.growth_tracker = 2; s.unscaled = 1; /* what would be infinite is not taken, the count restarts */
    CHECK(memopt_scaler_update(&s, 0) == MEMOPT_OK && s.scale == (float)FLT_MAX && s.growth_tracker == 0);
    s.scale = ldexpf(1, 127); s.growth_factor = 1.9999999; s.growth_tracker = 2; s.unscaled = 1; /* just below 2^128 */
    CHECK(memopt_scaler_update(&s, 0) == MEMOPT_OK && memopt_i_float_bits(s.scale) == 0x7F7FFFFFu);
    s.scale = ldexpf(1, 127); s.growth_factor = 1.99999997; s.growth_tracker = 2; s.unscaled = 1; /* rounds to 2^128 */
    CHECK(memopt_scaler_update(&s, 0) == MEMOPT_OK && s.scale == ldexpf(1, 127) && s.growth_tracker == 0);
    s.growth_factor = 2 - ldexp(1, -24); s.growth_tracker = 2; s.unscaled = 1; /* between the largest and 2^128: a tie, to 2^128 */
    CHECK(memopt_scaler_update(&s, 0) == MEMOPT_OK && s.scale == ldexpf(1, 127) && s.growth_tracker == 0);
    s.growth_factor = 2 - ldexp(1, -24) - ldexp(1, -50); s.growth_tracker = 2; s.unscaled = 1; /* just below it */
    CHECK(memopt_scaler_update(&s, 0) == MEMOPT_OK && memopt_i_float_bits(s.scale) == 0x7F7FFFFFu);
    s.scale = 1.5f; s.unscaled = 1; s.backoff_factor = 0.75; /* to just above the floor, and not below it */
    CHECK(memopt_scaler_update(&s, 1) == MEMOPT_OK && (double)s.scale == 1.125);
    s.unscaled = 1; saved = s;
    CHECK(memopt_scaler_update(&s, 1) == MEMOPT_ERR_OVERFLOW && !memcmp(&s, &saved, sizeof s));
    s.backoff_factor = 1 / 1.125; s.unscaled = 1;
    CHECK(memopt_scaler_update(&s, 1) == MEMOPT_OK && s.scale == 1); /* exactly the floor is allowed */
}
static void scale_scaler_order(void) {
    float value = 3; memopt_gradient g = scale_tensor(MEMOPT_TYPE_F32, &value, 1); memopt_gradients list = scale_list(&g, 1);
    memopt_scaler s = scale_scaler(), before; memopt_gradient_total total; int second;
    before = s;
    CHECK(memopt_scaler_update(&s, 0) == MEMOPT_ERR_STATE && memopt_scaler_update(&s, 1) == MEMOPT_ERR_STATE);
    CHECK(memopt_scaler_cancel(&s) == MEMOPT_ERR_STATE && !memcmp(&s, &before, sizeof s));
    for (second = 0; second < 4; ++second) { /* unscale or measure, then either again */
        value = 3;
        CHECK((second & 1 ? memopt_scaler_unscale : memopt_scaler_measure)(&s, &list, &total, NULL) == MEMOPT_OK);
        CHECK((double)value == (second & 1 ? 3.0 / 65536 : 3.0) && total.factor == (second & 1 ? 1 : 1.0 / 65536));
        CHECK(sqrt(total.squares) * total.factor == 3.0 / 65536 && !total.overflow && !total.nonfinite);
        before = s; memset(&total, 0x5A, sizeof total);
        CHECK((second & 2 ? memopt_scaler_unscale : memopt_scaler_measure)(&s, &list, &total, NULL) == MEMOPT_ERR_STATE);
        CHECK((double)value == (second & 1 ? 3.0 / 65536 : 3.0) && !memcmp(&s, &before, sizeof s) && total.overflow == 0x5A5A5A5A);
        CHECK(memopt_scaler_cancel(&s) == MEMOPT_OK && s.scale == 65536 && s.growth_tracker == 0);
    }
    value = memopt_i_bits_float(0x7F800000u); /* this rank found it: "none found" cannot be the sum over the ranks */
    CHECK(memopt_scaler_unscale(&s, &list, &total, NULL) == MEMOPT_OK && total.overflow == 1 && s.found_nonfinite == 1);
    before = s;
    CHECK(memopt_scaler_update(&s, 0) == MEMOPT_ERR_ARGUMENT && !memcmp(&s, &before, sizeof s));
    CHECK(memopt_scaler_update(&s, 1) == MEMOPT_OK && s.scale == 32768 && !s.found_nonfinite && !s.unscaled);
    s.scale = 0.5f; s.floor = 0.25f; value = 3e38f; /* finite, but not when divided by a scale below 1 */
    CHECK(memopt_scaler_unscale(&s, &list, &total, NULL) == MEMOPT_OK && total.overflow && total.nonfinite == 1 && s.found_nonfinite);
    free(list.scratch);
}
static void scale_scaler_bad(void) {
    const float nan = memopt_i_bits_float(SCALE_NAN), infinity = memopt_i_bits_float(0x7F800000u); int i; float value = 3;
    memopt_gradient g = scale_tensor(MEMOPT_TYPE_F32, &value, 1); memopt_gradients list = scale_list(&g, 1);
    memopt_gradient_total total;
    for (i = 0; i < 24; ++i) {
        memopt_scaler s = scale_scaler(), before;
        switch (i) {
        case 0: s.scale = nan; break;                   case 1: s.scale = infinity; break;
        case 2: s.scale = 0; break;                     case 3: s.scale = -65536; break;
        case 4: s.scale = 0.5f; break;                  case 5: s.floor = nan; break;
        case 6: s.floor = infinity; break;              case 7: s.floor = 0; break;
        case 8: s.floor = -1; break;                    case 9: s.floor = memopt_i_bits_float(0x00200000u); break;
        case 10: s.growth_factor = 1; break;            case 11: s.growth_factor = (double)nan; break;
        case 12: s.growth_factor = (double)infinity; break; case 13: s.growth_factor = -2; break;
        case 14: s.backoff_factor = 1; break;           case 15: s.backoff_factor = 0; break;
        case 16: s.backoff_factor = (double)nan; break; case 17: s.backoff_factor = -0.5; break;
        case 18: s.growth_interval = 0; break;          case 19: s.growth_tracker = 2000; break;
        case 20: s.unscaled = 2; break;                 case 21: s.found_nonfinite = 1; break;
        case 22: s.found_nonfinite = 2; s.unscaled = 1; break; default: s.backoff_factor = -(double)infinity;
        }
        before = s;
        CHECK_AT(memopt_scaler_check(&s) == MEMOPT_ERR_ARGUMENT && memopt_i_scaler_inverse(&s) == 0, i);
        CHECK_AT(memopt_scaler_update(&s, 0) == MEMOPT_ERR_ARGUMENT && memopt_scaler_cancel(&s) == MEMOPT_ERR_ARGUMENT, i);
        CHECK_AT(memopt_scaler_unscale(&s, &list, &total, NULL) == MEMOPT_ERR_ARGUMENT, i);
        CHECK_AT(memopt_scaler_measure(&s, &list, &total, NULL) == MEMOPT_ERR_ARGUMENT, i);
        CHECK_AT(!memcmp(&s, &before, sizeof s) && value == 3, i);
    }
    CHECK(memopt_scaler_update(NULL, 0) == MEMOPT_ERR_ARGUMENT && memopt_scaler_cancel(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_scaler_unscale(NULL, &list, &total, NULL) == MEMOPT_ERR_ARGUMENT);
    { memopt_scaler s = scale_scaler(), before = s; /* the list is refused: nothing was begun */
      CHECK(memopt_scaler_unscale(&s, NULL, &total, NULL) == MEMOPT_ERR_ARGUMENT);
      CHECK(memopt_scaler_unscale(&s, &list, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
      --list.scratch_bytes;
      CHECK(memopt_scaler_measure(&s, &list, &total, NULL) == MEMOPT_ERR_BUFFER);
      CHECK(!memcmp(&s, &before, sizeof s) && value == 3); }
    free(list.scratch);
}

/* ---- scale and measure ---- */
/* The definition, once more: the values after the call, and the sum of their squares in its order. */
static double scale_in_pairs(double *x, size_t n) { /* of neighbours, until one is left */
    size_t i;
    for (; n > 1; n = (n + 1) / 2) {
        for (i = 0; i < n / 2; ++i) x[i] = scale_plus(x[2 * i], x[2 * i + 1]);
        if (n % 2) x[n / 2] = x[n - 1];
    }
    return n ? x[0] : 0;
}
static void scale_expect(memopt_type type, void *values, size_t n, float factor, double *squares, size_t *nonfinite) {
    double *leaves = (double *)scale_alloc((n / SCALE_LEAF + 1) * sizeof *leaves); size_t i, first, count = 0;
    *nonfinite = 0;
    for (first = 0; first < n; first += SCALE_LEAF) {
        double sums[32] = { 0 };
        for (i = first; i < n && i < first + SCALE_LEAF; ++i) {
            float x = scale_get(type, values, i);
            if (factor != 1) {
                scale_put(type, values, i, scale_times(x, factor));
                x = scale_get(type, values, i);
            }
            if ((memopt_i_float_bits(x) & 0x7F800000u) == 0x7F800000u) ++*nonfinite;
            sums[(i - first) % 32] = fma((double)x, (double)x, sums[(i - first) % 32]);
        }
        leaves[count++] = scale_in_pairs(sums, 32);
    }
    *squares = *nonfinite ? HUGE_VAL : scale_in_pairs(leaves, count);
    free(leaves);
}
static void scale_one_size(memopt_type type, size_t n, float factor, int poison, uint64_t *seed) {
    const size_t bytes = (n + 2) * scale_size(type), lead = scale_size(type); size_t i, nonfinite; int level; double squares;
    unsigned char *in = (unsigned char *)scale_alloc(bytes), *want = (unsigned char *)scale_alloc(bytes), *got = (unsigned char *)scale_alloc(bytes);
    memset(in, 0x3C, bytes);
    for (i = 0; i < n; ++i) scale_put(type, in + lead, i, scale_random(seed));
    if (poison && n) scale_put(type, in + lead, test_below(seed, n), memopt_i_bits_float(poison == 1 ? SCALE_NAN : 0xFF800000u));
    memcpy(want, in, bytes);
    scale_expect(type, want + lead, n, factor, &squares, &nonfinite);
    CHECK(nonfinite >= (size_t)(poison && n));
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) { /* misaligned by one element, with a guard on both sides */
        const memopt_threads threads = test_level(level); memopt_gradient g = scale_tensor(type, got + lead, n);
        memopt_gradients list = scale_list(&g, 1); memopt_gradient_total total, after;
        memcpy(got, in, bytes); memset(&total, 0xA5, sizeof total);
        CHECK_AT(memopt_gradients_scale(&list, (double)factor, &total, &threads) == MEMOPT_OK, n);
        CHECK_AT(!memcmp(got, want, bytes), n * 10 + (size_t)level);
        CHECK_AT(scale_double_bits(total.squares) == scale_double_bits(squares) && total.nonfinite == nonfinite, n * 10 + (size_t)level);
        CHECK_AT(total.overflow == (nonfinite != 0) && total.factor == 1, n);
        CHECK_AT(scale_double_bits(g.squares) == scale_double_bits(squares) && g.nonfinite == nonfinite, n);
        CHECK_AT(memopt_gradients_measure(&list, &after, &threads) == MEMOPT_OK && !memcmp(got, want, bytes), n);
        CHECK_AT(!memcmp(&after.squares, &total.squares, 8) && after.nonfinite == nonfinite && after.factor == 1, n);
        free(list.scratch);
    }
    free(in); free(want); free(got);
}
static void scale_definition(void) {
    static const size_t sizes[] = { 0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 255, 256, 257, 273, 1023, 1024, 1025, 4099 };
    static const float factors[] = { 1, 1.0f / 65536, 0.3f, -2, 65536, 0, 1e30f }; /* the last two lose or overflow */
    uint64_t seed = 5; size_t i, k; int type;
    for (type = 0; type < 3; ++type)
        for (k = 0; k < sizeof factors / sizeof *factors; ++k) {
            for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
                scale_one_size((memopt_type)type, sizes[i], factors[k], factors[k] > 0 ? (int)test_below(&seed, 3) : 0, &seed);
            if (k < 3 && !test_is_passed_over()) scale_one_size((memopt_type)type, SCALE_PIECE + 4321, factors[k], 0, &seed);
        }
    for (type = 0; type < 3; ++type)
        for (k = 1; k <= 5; ++k)
            for (i = k * SCALE_LEAF - 1; i <= k * SCALE_LEAF + 1; ++i)
                if (!test_is_passed_over()) scale_one_size((memopt_type)type, i, 1.0f / 1024, 0, &seed);
}
/* Any number of pieces: nobody has to have their values. */
static void scale_many_pieces(void) {
    enum { MANY = 3000 }; static memopt_i_scale_piece pieces[MANY]; static double sums[MANY]; uint64_t seed = 6; size_t i, n;
    for (i = 0; i < MANY; ++i) pieces[i].squares = ldexp((double)(test_random(&seed) >> 11), (int)test_below(&seed, 40));
    for (n = 0; n <= MANY; n += n < 40 ? 1 : 37) {
        memopt_gradient g = scale_tensor(MEMOPT_TYPE_BF16, NULL, n * SCALE_PIECE); const memopt_i_scale_piece *p = pieces;
        for (i = 0; i < n; ++i) sums[i] = pieces[i].squares;
        memopt_i_gradient_join(&g, &p);
        CHECK_AT(p == pieces + n && scale_double_bits(g.squares) == scale_double_bits(scale_in_pairs(sums, n)), n);
    }
}
/* A tensor in parts, as ranks have it: whole pieces added up elsewhere, and what borders cut. */
static void scale_in_parts(void) {
    enum { N = 6 * SCALE_PIECE + 777 }; float *x = (float *)scale_alloc(N * 4); uint64_t seed = 12; size_t i, n, nonfinite; double squares; int round;
    for (i = 0; i < N; ++i) x[i] = scale_random(&seed);
    scale_expect(MEMOPT_TYPE_F32, x, N, 1, &squares, &nonfinite);
    for (round = 0; round < 20; ++round) {
        memopt_i_scale_sum sum; const int level = round % 2 ? memopt_simd_best() : 1;
        memset(&sum, 0, sizeof sum);
        for (i = 0; i < N; i += n) {
            n = memopt_i_min(256 * (1 + test_below(&seed, 300)), N - i);
            if (i % SCALE_PIECE == 0 && N - i > SCALE_PIECE && test_below(&seed, 2))
                memopt_i_scale_sum_add_piece(&sum, i / SCALE_PIECE, memopt_i_scale_values(level, MEMOPT_TYPE_F32, x + i, n = SCALE_PIECE, 1));
            else {
                n = memopt_i_min(n, SCALE_PIECE - i % SCALE_PIECE);
                memopt_i_scale_sum_continue(&sum, level, MEMOPT_TYPE_F32, x + i, n, 1, i);
            }
        }
        CHECK_AT(scale_double_bits(memopt_i_scale_sum_end(&sum)) == scale_double_bits(squares), round);
    }
    free(x);
}
static void scale_every_code(void) { /* all 16-bit values at once, NaN and infinities included, by a factor that rounds */
    uint16_t *codes = (uint16_t *)scale_alloc(65536 * 2); int level, type; size_t i;
    for (type = 1; type < 3; ++type)
        for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
            const memopt_threads threads = test_level(level); const memopt_type t = (memopt_type)type;
            memopt_gradient g = scale_tensor(t, codes, 65536); memopt_gradients list = scale_list(&g, 1); memopt_gradient_total total;
            for (i = 0; i < 65536; ++i) codes[i] = (uint16_t)i;
            CHECK(memopt_gradients_scale(&list, 0.7, &total, &threads) == MEMOPT_OK);
            for (i = 0; i < 65536; ++i) {
                const float x = scale_float(t, (unsigned)i);
                if (scale_is_nan(x)) CHECK_AT(scale_is_nan(scale_float(t, codes[i])), i);
                else CHECK_AT(codes[i] == scale_nearest(t, scale_times(x, 0.7f)), i);
            }
            CHECK(total.nonfinite == 2 * (0x8000 - (size_t)scale_infinity(t)) && total.overflow);
            CHECK(total.squares == HUGE_VAL && g.squares == HUGE_VAL && g.nonfinite == total.nonfinite);
            free(list.scratch);
        }
    free(codes);
}
/* The sum by halves: a few units in the last place off, where a plain sum is off by hundreds. */
static double scale_sum_of_squares(const float *x, size_t n) {
    return n == 1 ? (double)x[0] * (double)x[0] : scale_sum_of_squares(x, n / 2) + scale_sum_of_squares(x + n / 2, n - n / 2);
}
static void scale_norm_is_the_norm(void) {
    const size_t n = 200000; float *x = (float *)scale_alloc(n * 4); size_t i; uint64_t seed = 9; double sum;
    memopt_gradient g = scale_tensor(MEMOPT_TYPE_F32, x, n); memopt_gradients list = scale_list(&g, 1); memopt_gradient_total total;
    for (i = 0; i < n; ++i) x[i] = scale_random(&seed);
    sum = scale_sum_of_squares(x, n);
    CHECK(memopt_gradients_measure(&list, &total, NULL) == MEMOPT_OK);
    CHECK(fabs(total.squares - sum) <= 1e-14 * sum && sum > 0);
    for (i = 0; i < n; ++i) x[i] = 3e38f; /* squares that no float holds */
    CHECK(memopt_gradients_measure(&list, &total, NULL) == MEMOPT_OK && !total.overflow);
    CHECK(fabs(sqrt(total.squares) / (3e38 * sqrt((double)n)) - 1) < 1e-7);
    for (i = 0; i < n; ++i) x[i] = memopt_i_bits_float(1); /* and those it would drop */
    CHECK(memopt_gradients_measure(&list, &total, NULL) == MEMOPT_OK);
    CHECK(fabs(sqrt(total.squares) / (ldexp(1, -149) * sqrt((double)n)) - 1) < 1e-12);
    free(list.scratch); free(x);
}
/* Many tensors, large and tiny, of all types: any order of pieces, any worker numbers, any level, the same bits; and the
   tensor's own sum does not depend on its neighbours. */
enum { SCALE_MANY = 60 };
static void scale_any_workers(void) {
    memopt_gradient tensors[SCALE_MANY], alone; void *first[SCALE_MANY]; int level, workers; size_t i, k, nonfinite; uint64_t seed = 77;
    double squares[SCALE_MANY], all = 0; memopt_gradients list; memopt_gradient_total total;
    for (i = 0; i < SCALE_MANY; ++i) {
        const memopt_type type = (memopt_type)(i % 3);
        const size_t n = i == 20 ? 3 * SCALE_PIECE + 5 : i == 41 ? SCALE_PIECE : i == 42 ? SCALE_PIECE + 1 : i % 7 == 3 ? 0 : test_below(&seed, 2000);
        first[i] = scale_alloc(n * scale_size(type));
        for (k = 0; k < n; ++k) scale_put(type, first[i], k, scale_random(&seed));
        tensors[i] = scale_tensor(type, n ? scale_alloc(n * scale_size(type)) : NULL, n);
    }
    for (i = 0; i < SCALE_MANY; ++i) {
        void *copy = scale_alloc(tensors[i].count * scale_size(tensors[i].type));
        memcpy(copy, first[i], tensors[i].count * scale_size(tensors[i].type));
        scale_expect(tensors[i].type, copy, tensors[i].count, 0.3f, &squares[i], &nonfinite);
        all = scale_plus(all, squares[i]);
        free(copy);
    }
    list = scale_list(tensors, SCALE_MANY);
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level))
        for (workers = 0; workers <= 32; workers += workers < 4 ? 1 : 7) {
            test_worker_set worker_set; memopt_threads threads = test_level(level);
            if (test_is_passed_over()) continue;
            if (workers) threads = test_workers(&worker_set, workers, level);
            for (i = 0; i < SCALE_MANY; ++i)
                if (tensors[i].count) memcpy(tensors[i].values, first[i], tensors[i].count * scale_size(tensors[i].type));
            CHECK(memopt_gradients_scale(&list, (double)0.3f, &total, &threads) == MEMOPT_OK && (!workers || worker_set.runs == 1));
            CHECK_AT(scale_double_bits(total.squares) == scale_double_bits(all), workers);
            for (i = 0; i < SCALE_MANY; ++i) CHECK_AT(scale_double_bits(tensors[i].squares) == scale_double_bits(squares[i]), i);
        }
    alone = tensors[20];
    free(list.scratch); list = scale_list(&alone, 1);
    CHECK(memopt_gradients_measure(&list, &total, NULL) == MEMOPT_OK && scale_double_bits(total.squares) == scale_double_bits(squares[20]));
    free(list.scratch);
    for (i = 0; i < SCALE_MANY; ++i) { free(first[i]); free(tensors[i].values); }
}
static void scale_empty(void) {
    memopt_gradients none; memopt_gradient g = scale_tensor(MEMOPT_TYPE_BF16, NULL, 0); memopt_gradient_total total; size_t bytes = 1;
    memset(&none, 0, sizeof none);
    CHECK(memopt_gradients_scratch(&none, &bytes) == MEMOPT_OK && bytes == 0);
    memset(&total, 0xA5, sizeof total);
    CHECK(memopt_gradients_measure(&none, &total, NULL) == MEMOPT_OK && total.squares == 0 && !total.overflow && !total.nonfinite && total.factor == 1);
    none.tensors = &g; none.count = 1; g.squares = 7; g.nonfinite = 7;
    CHECK(memopt_gradients_scale(&none, 2, &total, NULL) == MEMOPT_OK && total.squares == 0 && g.squares == 0 && g.nonfinite == 0);
    CHECK(memopt_gradients_clip_value(&none, 1, NULL) == MEMOPT_OK);
}
#if defined(MEMOPT_I_POOL)
static void scale_pool(void) { /* real threads, for the thread sanitizer */
    memopt_thread_pool *pool = NULL; memopt_threads threads; float *x = (float *)scale_alloc((5 * SCALE_PIECE + 3) * 4); size_t i; uint64_t seed = 3;
    memopt_gradient g[3]; memopt_gradients list; memopt_gradient_total one, many; float *y = (float *)scale_alloc((5 * SCALE_PIECE + 3) * 4);
    for (i = 0; i < 5 * SCALE_PIECE + 3; ++i) x[i] = scale_random(&seed);
    memcpy(y, x, (5 * SCALE_PIECE + 3) * 4);
    g[0] = scale_tensor(MEMOPT_TYPE_F32, x, 3); g[1] = scale_tensor(MEMOPT_TYPE_F32, x + 3, 5 * SCALE_PIECE - 100);
    g[2] = scale_tensor(MEMOPT_TYPE_F32, x + 5 * SCALE_PIECE - 97, 100);
    list = scale_list(g, 3);
    CHECK(memopt_gradients_scale(&list, 0.3, &one, NULL) == MEMOPT_OK);
    CHECK(memopt_thread_pool_create(NULL, 3, &pool) == MEMOPT_OK);
    threads = memopt_thread_pool_threads(pool);
    for (i = 0; i < 3; ++i) g[i].values = y + (g[i].values == x ? 0 : (float *)g[i].values - x);
    CHECK(memopt_gradients_scale(&list, 0.3, &many, &threads) == MEMOPT_OK);
    CHECK(!memcmp(&one.squares, &many.squares, 8) && !memcmp(x, y, (5 * SCALE_PIECE + 3) * 4));
    memopt_thread_pool_destroy(pool);
    free(list.scratch); free(x); free(y);
}
#endif
/* Twice 2^32 elements and some: nobody has to have them to see how they are cut. And once the end of them for true. */
static size_t scale_seen;
static void scale_look(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    const memopt_gradients *list = (const memopt_gradients *)user; const memopt_i_scale_piece *p = (const memopt_i_scale_piece *)list->scratch;
    size_t i, tensor = 0, at = 0;
    for (i = 0; i < chunk_count; ++i) {
        while (at == list->tensors[tensor].count) { ++tensor; at = 0; }
        CHECK_AT(p[i].tensor == tensor && p[i].first == at, i);
        at = memopt_i_min(list->tensors[tensor].count, at + SCALE_PIECE);
    }
    CHECK(tensor == 2 && at == list->tensors[2].count);
    scale_seen = chunk_count;
    if (list->tensors[1].nonfinite == 1) fn(task, chunk_count - 2, 0); /* the last piece of the large one */
}
static void scale_huge(void) {
#if SIZE_MAX > 0xFFFFFFFF
    const size_t n = ((size_t)1 << 33) + 4321, bytes = n * 2, tail = 1 << 20; uint16_t small[3] = { 0, 0, 0 };
    memopt_gradient g[3]; memopt_gradients list; memopt_gradient_total total; memopt_threads threads = test_level(0); unsigned char *map;
    g[0] = scale_tensor(MEMOPT_TYPE_BF16, small, 3); g[1] = scale_tensor(MEMOPT_TYPE_BF16, small, n); g[2] = scale_tensor(MEMOPT_TYPE_BF16, small, 1);
    list = scale_list(g, 3);
    threads.run_fn = scale_look; threads.user = &list; threads.worker_count = 1;
    CHECK(memopt_gradients_measure(&list, &total, &threads) == MEMOPT_OK && scale_seen == 131072 + 1 + 2 && total.squares == 0);
    map = (unsigned char *)memopt_i_pages_map((bytes + tail) / tail * tail);
    if (!map || memopt_i_pages_open(map + bytes / tail * tail, tail)) {
        if (map) memopt_i_pages_unmap(map, (bytes + tail) / tail * tail);
        free(list.scratch);
        SKIP("no room for 17 GB of addresses");
        return;
    }
    g[1].values = map; g[1].nonfinite = 1;
    scale_put(MEMOPT_TYPE_BF16, map + bytes - 2, 0, 3); /* the last element */
    scale_put(MEMOPT_TYPE_BF16, map + bytes - 4321 * 2, 0, 4); /* the first of the last piece */
    CHECK(memopt_gradients_scale(&list, 2, &total, &threads) == MEMOPT_OK && total.squares == 36 + 64 && !total.overflow);
    CHECK(scale_get(MEMOPT_TYPE_BF16, map + bytes - 2, 0) == 6 && g[1].squares == 100);
    memopt_i_pages_unmap(map, (bytes + tail) / tail * tail);
    free(list.scratch);
#else
    (void)scale_look;
    SKIP("size_t has 32 bits");
#endif
}

/* ---- clipping ---- */
static void scale_clip_codes(void) { /* every 16-bit value, limits of all kinds, by comparing values */
    static const float limits[] = { 0, 1, 0.3f, 1e-40f, 65504, 65519.996f, 65520, 1e6f, 3e38f, FLT_MAX }; size_t k, i; int type, level;
    uint16_t *codes = (uint16_t *)scale_alloc(65536 * 2 + 2);
    for (type = 1; type < 3; ++type) for (k = 0; k <= sizeof limits / sizeof *limits; ++k) for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
        const float limit = k < sizeof limits / sizeof *limits ? limits[k] : memopt_i_bits_float(0x7F800000u);
        const memopt_threads threads = test_level(level); const memopt_type t = (memopt_type)type;
        const float most = scale_float(t, scale_nearest(t, limit)); const unsigned top = scale_nearest(t, limit);
        memopt_gradient g = scale_tensor(t, codes + 1, 65535 - k); memopt_gradients list = scale_list(&g, 1);
        for (i = 0; i <= 65536; ++i) codes[i] = (uint16_t)i;
        CHECK(memopt_gradients_clip_value(&list, limit, &threads) == MEMOPT_OK);
        for (i = 1; i < 65536 - k; ++i) {
            const float x = scale_float(t, (unsigned)i);
            const unsigned want = scale_is_nan(x) ? (unsigned)i : x > most ? top : x < -most ? top | 0x8000 : (unsigned)i;
            CHECK_AT(codes[i] == want, i);
        }
        for (; i <= 65536; ++i) CHECK_AT(codes[i] == (uint16_t)i, i);
        CHECK(codes[0] == 0);
        free(list.scratch);
    }
    free(codes);
}
static void scale_clip_floats(void) {
    static const float limits[] = { 0, 1, 0.3f, 1e-40f, FLT_MAX }; uint64_t seed = 21; size_t k, i, n; int level;
    uint32_t x[1100]; float y[1100]; /* bits: a float register may change a NaN */
    for (k = 0; k <= sizeof limits / sizeof *limits; ++k) for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) for (n = 0; n < 1090; n += n < 40 ? 1 : 75) {
        const uint32_t limit = k < sizeof limits / sizeof *limits ? memopt_i_float_bits(limits[k]) : 0x7F800000u;
        const memopt_threads threads = test_level(level); memopt_gradient g = scale_tensor(MEMOPT_TYPE_F32, y + 1, n); memopt_gradients list = scale_list(&g, 1);
        for (i = 0; i < 1100; ++i) {
            const uint64_t r = test_random(&seed);
            const uint32_t close = limit + (uint32_t)(r >> 40 & 3) - (limit ? 1 : 0); /* the limit and its neighbours */
            x[i] = (r & 7) == 0 ? (uint32_t)(r >> 32) : (r & 7) == 1 ? close | (uint32_t)(r >> 8 & 1) << 31 : memopt_i_float_bits(scale_random(&seed));
        }
        memcpy(y, x, sizeof x);
        CHECK(memopt_gradients_clip_value(&list, memopt_i_bits_float(limit), &threads) == MEMOPT_OK);
        for (i = 0; i < 1100; ++i) {
            const uint32_t size = x[i] & 0x7FFFFFFFu; uint32_t want = x[i]; /* without sign, bits are ordered as values are */
            if (i >= 1 && i <= n && size <= 0x7F800000u && size > limit) want = limit | (x[i] & 0x80000000u);
            CHECK_AT(!memcmp(y + i, &want, 4), i);
        }
        free(list.scratch);
    }
}
static void scale_clip_minus_zero(void) { /* is a limit of zero */
    float x[20]; size_t i; int level;
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
        const memopt_threads threads = test_level(level); memopt_gradient g = scale_tensor(MEMOPT_TYPE_F32, x, 20); memopt_gradients list = scale_list(&g, 1);
        for (i = 0; i < 20; ++i) x[i] = (float)i - 7;
        CHECK(memopt_gradients_clip_value(&list, -0.0f, &threads) == MEMOPT_OK);
        for (i = 0; i < 20; ++i) CHECK_AT(memopt_i_float_bits(x[i]) == (i < 7 ? 0x80000000u : 0), i);
        free(list.scratch);
    }
}
static void scale_clip_norm(void) { /* Python: min(1, max_norm / (norm + 1e-6)) */
    static const struct { double norm, most; uint64_t factor; } table[] = {
        { 10.0, 1.0, UINT64_C(0x3FB999996EA67C1E) }, { 1.0, 1.0, UINT64_C(0x3FEFFFFDE7212F19) },
        { 0.999, 1.0, UINT64_C(0x3FF0000000000000) }, { 0.0, 0.0, UINT64_C(0x0000000000000000) },
        { 5.0, 0.0, UINT64_C(0x0000000000000000) }, { 1e-30, 1e-40, UINT64_C(0x38E09D8792FB4C49) },
        { 3.0, 2.5, UINT64_C(0x3FEAAAAA1589313B) }, { 1e+300, 1e-05, UINT64_C(0x009C16C5C5253575) },
        { 0.0, 1e-07, UINT64_C(0x3FB999999999999A) }, { 123.456, 7.89, UINT64_C(0x3FB05C5DF36CD68E) } };
    size_t i; double f = 7; const double nan = (double)memopt_i_bits_float(SCALE_NAN);
    for (i = 0; i < sizeof table / sizeof *table; ++i) {
        CHECK_AT(memopt_clip_norm(table[i].norm, table[i].most, &f) == MEMOPT_OK, i);
#if FLT_EVAL_METHOD == 2 /* x87 rounds twice: the last bit may differ */
        CHECK_AT(scale_double_bits(f) + 1 - table[i].factor <= 2, i);
#else
        CHECK_AT(scale_double_bits(f) == table[i].factor, i);
#endif
    }
    CHECK(memopt_clip_norm(5, HUGE_VAL, &f) == MEMOPT_OK && f == 1);
    CHECK(memopt_clip_norm(-0.0, -0.0, &f) == MEMOPT_OK && f == 0);
    f = 7;
    CHECK(memopt_clip_norm(5, -1, &f) == MEMOPT_ERR_ARGUMENT && memopt_clip_norm(5, nan, &f) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_clip_norm(nan, 1, &f) == MEMOPT_ERR_ARGUMENT && memopt_clip_norm(-nan, 1, &f) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_clip_norm(HUGE_VAL, 1, &f) == MEMOPT_ERR_ARGUMENT && memopt_clip_norm(-1, 1, &f) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_clip_norm(5, -HUGE_VAL, &f) == MEMOPT_ERR_ARGUMENT && memopt_clip_norm(5, 1, NULL) == MEMOPT_ERR_ARGUMENT && f == 7);
}
static void scale_clip_together(void) { /* a list over the norm comes down to it; one below keeps every bit */
    float x[3] = { 3, 0, 0 }, y[2] = { 0, 4 }; memopt_gradient g[2]; memopt_gradients list; memopt_gradient_total total; double f = 0;
    g[0] = scale_tensor(MEMOPT_TYPE_F32, x, 3); g[1] = scale_tensor(MEMOPT_TYPE_F32, y, 2);
    list = scale_list(g, 2);
    CHECK(memopt_gradients_measure(&list, &total, NULL) == MEMOPT_OK && total.squares == 25 && g[0].squares == 9 && g[1].squares == 16);
    CHECK(memopt_clip_norm(sqrt(total.squares), 1, &f) == MEMOPT_OK);
    CHECK(memopt_gradients_scale(&list, f, NULL, NULL) == MEMOPT_OK);
    CHECK(x[0] == scale_times(3, (float)(1 / 5.000001)) && y[1] == scale_times(4, (float)(1 / 5.000001)));
    CHECK(memopt_gradients_measure(&list, &total, NULL) == MEMOPT_OK && fabs(sqrt(total.squares) - 1) < 1e-6);
    CHECK(memopt_clip_norm(sqrt(total.squares), 2, &f) == MEMOPT_OK && f == 1);
    free(list.scratch);
}

/* ---- a step that meets a non-finite gradient: nothing moves, on any rank ---- */
enum { SCALE_RANKS = 3, SCALE_TENSORS = 5 };
typedef struct scale_rank {
    memopt_gradient g[SCALE_TENSORS]; memopt_gradients list; memopt_scaler scaler; memopt_gradient_total total;
    float *weights, *momentum; size_t count;
} scale_rank;
static void scale_rank_begin(scale_rank *r, const size_t *counts, size_t rank) {
    size_t i; r->count = 0;
    for (i = 0; i < SCALE_TENSORS; ++i) {
        const memopt_type type = (memopt_type)((i + rank) % 3);
        r->g[i] = scale_tensor(type, scale_alloc(counts[i] * scale_size(type)), counts[i]);
        r->count += counts[i];
    }
    r->list = scale_list(r->g, SCALE_TENSORS);
    r->scaler = scale_scaler();
    r->scaler.growth_interval = 5; r->scaler.scale = 1024;
    r->weights = (float *)scale_alloc(r->count * 4); r->momentum = (float *)scale_alloc(r->count * 4);
    for (i = 0; i < r->count; ++i) { r->weights[i] = (float)(i % 100) / 50; r->momentum[i] = 0; }
}
static void scale_rank_end(scale_rank *r) {
    size_t i;
    for (i = 0; i < SCALE_TENSORS; ++i) free(r->g[i].values);
    free(r->list.scratch); free(r->weights); free(r->momentum);
}
static void scale_backward(scale_rank *r, float target) { /* the gradient of (w - target)^2 / 2, times the scale */
    size_t i, k, at = 0;
    for (i = 0; i < SCALE_TENSORS; ++i)
        for (k = 0; k < r->g[i].count; ++k, ++at) scale_put(r->g[i].type, r->g[i].values, k, (r->weights[at] - target) * r->scaler.scale);
}
static void scale_sgd(scale_rank *r, float gradient_factor) { /* any optimizer: it reads the gradients once */
    size_t i, k, at = 0;
    for (i = 0; i < SCALE_TENSORS; ++i)
        for (k = 0; k < r->g[i].count; ++k, ++at) {
            r->momentum[at] = 0.5f * r->momentum[at] + gradient_factor * scale_get(r->g[i].type, r->g[i].values, k);
            r->weights[at] -= 0.1f * r->momentum[at];
        }
}
static uint64_t scale_hash(const scale_rank *r) {
    uint64_t h = 1469598103934665603u; size_t i;
    for (i = 0; i < r->count; ++i) {
        h = (h ^ memopt_i_float_bits(r->weights[i])) * 1099511628211u;
        h = (h ^ memopt_i_float_bits(r->momentum[i])) * 1099511628211u;
    }
    return h;
}
static size_t scale_position(uint64_t *seed, size_t n) { /* first, last, ends of vectors, blocks and pieces, anywhere */
    static const size_t edges[] = { 0, 1, 3, 4, 7, 8, 15, 16, 31, 32, 1023, 1024, 65535, 65536 };
    const size_t kind = test_below(seed, 20);
    if (kind < 14 && edges[kind] < n) return edges[kind];
    return kind < 16 ? n - 1 : test_below(seed, n);
}
static void scale_training(const size_t *counts, int steps, int level, uint64_t seed) {
    static const uint32_t poisons[] = { 0x7F800000u, 0xFF800000u, SCALE_NAN, 0xFFC00001u, 0x7F800001u, 0x7FFFFFFFu };
    scale_rank ranks[SCALE_RANKS]; uint64_t before[SCALE_RANKS]; size_t i; int step, scale = 10, tracker = 0;
    const memopt_threads threads = test_level(level); float worst = 0;
    for (i = 0; i < SCALE_RANKS; ++i) scale_rank_begin(&ranks[i], counts, i);
    for (step = 0; step < steps; ++step) {
        const int poison = test_below(&seed, 4) != 0 && scale > 1; size_t bad_rank = test_below(&seed, SCALE_RANKS), bad = test_below(&seed, SCALE_TENSORS), found = 0;
        int overflow = 0;
        for (i = 0; i < SCALE_RANKS; ++i) {
            scale_rank *r = &ranks[i]; memopt_gradient *g = &r->g[bad];
            scale_backward(r, step % 2 ? 1.25f : 0.75f); /* never at rest */
            if (poison && i == bad_rank) {
                const float x = memopt_i_bits_float(poisons[test_below(&seed, 6)]); const size_t at = scale_position(&seed, g->count);
                if (g->type == MEMOPT_TYPE_F32) ((uint32_t *)g->values)[at] = memopt_i_float_bits(x);
                else scale_put(g->type, g->values, at, x);
            }
            before[i] = scale_hash(r);
            CHECK_AT((step % 2 ? memopt_scaler_measure : memopt_scaler_unscale)(&r->scaler, &r->list, &r->total, &threads) == MEMOPT_OK, step);
            CHECK_AT(r->total.overflow == (poison && i == bad_rank) && r->total.nonfinite == (size_t)r->total.overflow, step);
            CHECK_AT(!r->total.overflow || g->nonfinite == 1, step);
            found += r->total.nonfinite; overflow |= r->total.overflow;
        }
        CHECK_AT(found == (size_t)poison && overflow == poison, step);
        for (i = 0; i < SCALE_RANKS; ++i) {
            if (!overflow) scale_sgd(&ranks[i], (float)ranks[i].total.factor);
            CHECK_AT(memopt_scaler_update(&ranks[i].scaler, overflow) == MEMOPT_OK, step);
            CHECK_AT((scale_hash(&ranks[i]) == before[i]) == poison, step);
        }
        if (poison) { --scale; tracker = 0; } else if (++tracker == 5) { ++scale; tracker = 0; }
        for (i = 0; i < SCALE_RANKS; ++i)
            CHECK_AT(ranks[i].scaler.scale == ldexpf(1, scale) && ranks[i].scaler.growth_tracker == (uint32_t)tracker, step);
        if (scale < 3) for (scale = 10, tracker = 0, i = 0; i < SCALE_RANKS; ++i) { ranks[i].scaler.scale = 1024; ranks[i].scaler.growth_tracker = 0; }
    }
    for (i = 0; i < SCALE_RANKS; ++i) {
        size_t k;
        for (k = 0; k < ranks[i].count; ++k) worst = fmaxf(worst, fabsf(ranks[i].weights[k] - 1));
        for (k = 0; k < ranks[i].count; ++k) CHECK_AT(!scale_is_nan(ranks[i].weights[k]), k);
        scale_rank_end(&ranks[i]);
    }
    CHECK(steps < 200 || (double)worst < 0.5); /* and what was not skipped has trained: they began up to 1 away */
}
static void scale_injections(void) {
    static const size_t tiny[SCALE_TENSORS] = { 1, 17, 16, 5, 33 }, large[SCALE_TENSORS] = { 1025, 3, SCALE_PIECE + 40, 1, 2048 };
    int level;
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) scale_training(large, 6, level, (uint64_t)level);
    scale_training(tiny, TEST_STRIDE == 1 ? 6000 : 1000, 0, 1); /* three quarters of them poisoned */
    scale_training(tiny, 700, MEMOPT_SIMD_SCALAR, 2);
}

/* ---- accumulation ---- */
static memopt_micro_batch scale_batch(uint64_t tokens, int is_mean, const memopt_noise *noise) {
    memopt_micro_batch b;
    b.tokens = tokens; b.is_mean = is_mean; b.noise = noise;
    return b;
}
/* One element by the definition. how: 0 fp32, 1 bf16 stochastic, 2 bf16 with rest */
static void scale_add(int how, void *sums, uint16_t *rest, size_t i, float g, float weight, int start, uint32_t noise) {
    const memopt_type type = how ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; float t = 0; uint16_t code; unsigned high;
    if (!start) {
        t = scale_get(type, sums, i);
        if (how == 2) t = scale_fused(1, scale_get(type, rest, i), t);
    }
    t = start ? scale_times(weight, g) : scale_fused(weight, g, t);
    if (how == 0) { memcpy((float *)sums + i, &t, 4); return; }
    if (how == 1) { /* up if the part cut off, in 65536ths, and the noise make one */
        const uint32_t u = memopt_i_float_bits(t), size = u & 0x7FFFFFFFu;
        high = size > 0x7F7F0000u ? scale_nearest(type, t) : (u >> 16) + ((u & 0xFFFF) + noise > 0xFFFF);
        code = (uint16_t)high; memcpy((uint16_t *)sums + i, &code, 2);
        return;
    }
    high = scale_nearest(type, t);
    code = (uint16_t)high; memcpy((uint16_t *)sums + i, &code, 2);
    t = scale_fused(-1, scale_float(type, high), t);
    code = (uint16_t)scale_nearest(type, t); memcpy(rest + i, &code, 2);
}
static void scale_accumulate_size(int how, memopt_type from, size_t n, uint64_t *seed, int poison) {
    const memopt_type to = how ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; const size_t width = scale_size(to); int level, k;
    unsigned char *g = (unsigned char *)scale_alloc(4 * n * scale_size(from)), *sum = (unsigned char *)scale_alloc((n + 1) * width), *want = (unsigned char *)scale_alloc((n + 1) * width);
    uint16_t *rest = (uint16_t *)scale_alloc((n + 1) * 2), *want_rest = (uint16_t *)scale_alloc((n + 1) * 2); size_t i;
    const uint64_t tokens[4] = { 7, 1000, 1, 16777217 }; const int is_mean[4] = { 1, 0, 1, 1 }; const uint64_t first = test_random(seed) >> 30;
    for (i = 0; i < 4 * n; ++i) scale_put(from, g, i, scale_random(seed));
    if (poison && n) for (k = 0; k < 4; ++k) { /* some of them meet */
        scale_put(from, g, (size_t)k * n + test_below(seed, n), memopt_i_bits_float(0x7F800000u | (uint32_t)k << 31));
        scale_put(from, g, (size_t)k * n + (n - 1), memopt_i_bits_float(k % 2 ? SCALE_NAN : 0xFFC00000u));
        scale_put(from, g, (size_t)k * n, memopt_i_bits_float(0x7F800000u | (uint32_t)k << 31));
    }
    memset(want, 0x3C, (n + 1) * width); memset(want_rest, 0x3C, (n + 1) * 2);
    for (k = 0; k < 4; ++k) {
        const memopt_noise noise = memopt_noise_make(4, (uint64_t)k);
        for (i = 0; i < n; ++i)
            scale_add(how, want, want_rest, i, scale_get(from, g, (size_t)k * n + i), is_mean[k] ? (float)tokens[k] : 1, k == 0, memopt_i_noise16(noise, first + i));
    }
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
        const memopt_threads threads = test_level(level); memopt_gradient s = scale_tensor(to, sum, n), d = scale_tensor(from, g, n);
        memopt_gradients sums, gradients; memopt_accumulation a = { 0, 0 };
        memset(sum, 0x3C, (n + 1) * width); memset(rest, 0x3C, (n + 1) * 2); /* the first batch needs no zeros */
        s.first = first; s.compensation = how == 2 ? rest : NULL;
        sums = scale_list(&s, 1); memset(&gradients, 0, sizeof gradients); gradients.tensors = &d; gradients.count = 1;
        for (k = 0; k < 4; ++k) {
            const memopt_noise noise = memopt_noise_make(4, (uint64_t)k); const memopt_micro_batch b = scale_batch(tokens[k], is_mean[k], how == 1 ? &noise : NULL);
            d.values = g + (size_t)k * n * scale_size(from);
            CHECK_AT(memopt_gradients_accumulate(&sums, &gradients, &b, &a, &threads) == MEMOPT_OK, n);
        }
        CHECK_AT(a.tokens == 7 + 1000 + 1 + 16777217 && a.micro_batches == 4, n);
        CHECK_AT(!memcmp(sum, want, (n + 1) * width), n * 100 + (size_t)(10 * how + level));
        CHECK_AT(how != 2 || !memcmp(rest, want_rest, (n + 1) * 2), n * 100 + (size_t)(10 * how + level));
        free(sums.scratch);
    }
    free(g); free(sum); free(want); free(rest); free(want_rest);
}
static void scale_accumulate(void) {
    static const size_t sizes[] = { 0, 1, 15, 16, 17, 31, 33, 1023, 1024, 1025, 2100 }; uint64_t seed = 31; size_t i; int how, from;
    for (how = 0; how < 3; ++how)
        for (from = 0; from < 3; ++from) {
            for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) scale_accumulate_size(how, (memopt_type)from, sizes[i], &seed, i % 2 ? 0 : 1);
            if (from == how % 2 && !test_is_passed_over()) scale_accumulate_size(how, (memopt_type)from, SCALE_PIECE + 77, &seed, 0);
        }
}
/* 4000 micro-batches of 1/256 + 1: bf16 sums that round to nearest would stop at 2. */
static void scale_accumulate_long(void) {
    enum { N = 512, BATCHES = 4000 }; float g[N], f32[N]; uint16_t plain[N], high[N], rest[N]; int k; size_t i; double mean = 0, part;
    memopt_gradient s[3], d[3]; memopt_gradients sums, gradients; memopt_accumulation a = { 0, 0 };
    for (i = 0; i < N; ++i) g[i] = 1.0f / 256;
    s[0] = scale_tensor(MEMOPT_TYPE_F32, f32, N); s[1] = scale_tensor(MEMOPT_TYPE_BF16, plain, N); s[2] = scale_tensor(MEMOPT_TYPE_BF16, high, N);
    s[2].compensation = rest; s[1].first = 1000;
    d[0] = d[1] = d[2] = scale_tensor(MEMOPT_TYPE_F32, g, N);
    sums = scale_list(s, 3); gradients = sums; gradients.tensors = d;
    for (k = 0; k < BATCHES; ++k) {
        const memopt_noise noise = memopt_noise_make(6, (uint64_t)k); const memopt_micro_batch b = scale_batch(1, 1, &noise);
        CHECK_AT(memopt_gradients_accumulate(&sums, &gradients, &b, &a, NULL) == MEMOPT_OK, k);
    }
    for (i = 0; i < N; ++i) {
        const double exact = 4000 / 256.0, both = (double)scale_float(MEMOPT_TYPE_BF16, high[i]) + (double)scale_float(MEMOPT_TYPE_BF16, rest[i]);
        CHECK_AT((double)f32[i] == exact, i);
        CHECK_AT(fabs(both - exact) < 0.01 && fabs((double)scale_float(MEMOPT_TYPE_BF16, high[i]) - exact) <= exact / 256, i);
        part = (double)scale_float(MEMOPT_TYPE_BF16, plain[i]);
        CHECK_AT(fabs(part - exact) < 5, i);
        mean += part / 512;
    }
    CHECK(fabs(mean - 4000 / 256.0) < 0.25); /* 512 walks whose deviation is about 0.6: 0.25 is 9 deviations of their mean */
    free(sums.scratch);
}
/* The mean over all tokens does not depend on how they fall into micro-batches. */
static void scale_accumulate_tokens(void) {
    float tokens[60], sum[1], g[1]; uint64_t seed = 12; int split; double mean, exact = 0; size_t i;
    for (i = 0; i < 60; ++i) { tokens[i] = (float)test_below(&seed, 4096) - 2048; exact += (double)tokens[i] / 60; }
    for (split = 0; split < 50; ++split) {
        memopt_gradient s = scale_tensor(MEMOPT_TYPE_F32, sum, 1), d = scale_tensor(MEMOPT_TYPE_F32, g, 1); memopt_gradients sums = scale_list(&s, 1), gradients = sums;
        memopt_accumulation a = { 0, 0 };
        gradients.tensors = &d;
        sum[0] = memopt_i_bits_float(SCALE_NAN); /* must not be read */
        for (i = 0; i < 60; ) {
            const size_t take = memopt_i_min(test_below(&seed, 6), 60 - i); const int is_mean = take == 1 || take == 2 || take == 4; size_t k; float total = 0; memopt_micro_batch b;
            for (k = 0; k < take; ++k) total += tokens[i + k];
            b = scale_batch(take, is_mean, NULL);
            g[0] = take == 0 ? memopt_i_bits_float(SCALE_NAN) : is_mean ? (float)(total / (float)take) : total; /* 0 / 0 is NaN, and is not read */
            CHECK_AT(memopt_gradients_accumulate(&sums, &gradients, &b, &a, NULL) == MEMOPT_OK, i);
            i += take;
        }
        CHECK(a.tokens == 60 && memopt_accumulation_mean(&a, &mean) == MEMOPT_OK);
        CHECK_AT(fabs((double)sum[0] * mean - exact) < 1e-3 && fabs(mean * 60 - 1) < 1e-15, split);
        free(sums.scratch);
    }
}
static void scale_accumulate_any_workers(void) {
    enum { N = SCALE_PIECE + 100 }; float *g = (float *)scale_alloc(N * 4); uint16_t *small = (uint16_t *)scale_alloc(N * 2); uint64_t seed = 41; size_t i; int workers, level;
    uint16_t *one = (uint16_t *)scale_alloc(N * 4), *many = (uint16_t *)scale_alloc(N * 4), *rest = (uint16_t *)scale_alloc(40);
    for (i = 0; i < N; ++i) { g[i] = scale_random(&seed); scale_put(MEMOPT_TYPE_BF16, small, i, scale_random(&seed)); }
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) for (workers = 0; workers <= 32; workers += workers < 2 ? 1 : 30) {
        memopt_gradient s[3], d[3]; memopt_gradients sums, gradients; memopt_accumulation a = { 0, 0 }; test_worker_set worker_set; int k; uint16_t *to = workers || level > 1 ? many : one;
        const memopt_noise noise = memopt_noise_make(1, 2); const memopt_micro_batch b = scale_batch(3, 1, &noise); memopt_threads threads = test_level(level);
        if (workers) threads = test_workers(&worker_set, workers, level);
        s[0] = scale_tensor(MEMOPT_TYPE_BF16, to, N); s[1] = scale_tensor(MEMOPT_TYPE_BF16, to + N, 20); s[2] = scale_tensor(MEMOPT_TYPE_BF16, to + N + 20, N - 20);
        s[1].compensation = rest; s[2].first = N;
        d[0] = scale_tensor(MEMOPT_TYPE_F32, g, N); d[1] = scale_tensor(MEMOPT_TYPE_F32, g, 20); d[2] = scale_tensor(MEMOPT_TYPE_BF16, small, N - 20);
        sums = scale_list(s, 3); gradients = sums; gradients.tensors = d;
        for (k = 0; k < 3; ++k) CHECK(memopt_gradients_accumulate(&sums, &gradients, &b, &a, &threads) == MEMOPT_OK);
        CHECK_AT(!memcmp(to, one, N * 4), workers * 10 + level);
        free(sums.scratch);
    }
    free(g); free(small); free(one); free(many); free(rest);
}
static void scale_accumulate_bad(void) {
    float g[4] = { 1, 2, 3, 4 }, sum[4] = { 9, 9, 9, 9 }; uint16_t half[4] = { 9, 9, 9, 9 }, rest[4] = { 9, 9, 9, 9 }; int i; double mean = 7;
    memopt_accumulation none = { 0, 0 };
    for (i = 0; i < 17; ++i) {
        memopt_gradient s = scale_tensor(i >= 9 && i <= 11 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32, i >= 9 && i <= 11 ? (void *)half : (void *)sum, 4), d = scale_tensor(MEMOPT_TYPE_F32, g, 4);
        memopt_gradients sums = scale_list(&s, 1), gradients = sums; memopt_micro_batch b = scale_batch(5, 1, NULL); memopt_accumulation a = { 2, 0 }, before; memopt_threads t = test_level(0);
        memopt_status want = MEMOPT_ERR_ARGUMENT, got; void *scratch = sums.scratch; const memopt_gradients *p = &sums, *q = &gradients; const memopt_micro_batch *r = &b; memopt_accumulation *o = &a;
        gradients.tensors = &d;
        switch (i) {
        case 0: p = NULL; break;            case 1: q = NULL; break;
        case 2: r = NULL; break;            case 3: o = NULL; break;
        case 4: d.count = 3; break;         case 5: gradients.count = 0; break;
        case 6: d.values = NULL; break;     case 7: s.values = NULL; break;
        case 8: s.compensation = rest; break; case 9: break; /* bf16 without rest and noise */
        case 10: s.type = MEMOPT_TYPE_F16; break;
        case 11: s.compensation = (uint16_t *)(void *)((char *)rest + 1); break;
        case 12: a.tokens = UINT64_MAX - 4; want = MEMOPT_ERR_OVERFLOW; break;
        case 13: --sums.scratch_bytes; want = MEMOPT_ERR_BUFFER; break;
        case 14: t.simd_level = -1; break;  case 15: d.type = (memopt_type)3; break;
        default: s.type = (memopt_type)3;
        }
        before = a;
        got = memopt_gradients_accumulate(p, q, r, o, &t);
        CHECK_AT(got == want && !memcmp(&a, &before, sizeof a), i);
        free(scratch);
    }
    for (i = 0; i < 4; ++i) CHECK(sum[i] == 9 && half[i] == 9 && rest[i] == 9 && g[i] == (float)(i + 1));
    { memopt_gradient s = scale_tensor(MEMOPT_TYPE_F32, sum, 4), d = scale_tensor(MEMOPT_TYPE_F32, g, 4); /* the last token that fits */
      memopt_gradients sums = scale_list(&s, 1), gradients = sums; const memopt_micro_batch b = scale_batch(5, 0, NULL);
      memopt_accumulation a;
      memset(&a, 0, sizeof a);
      a.tokens = UINT64_MAX - 5; a.micro_batches = 3; gradients.tensors = &d;
      CHECK(memopt_gradients_accumulate(&sums, &gradients, &b, &a, NULL) == MEMOPT_OK);
      CHECK(a.tokens == UINT64_MAX && a.micro_batches == 4 && sum[0] == 10 && sum[3] == 13);
      free(sums.scratch); }
    CHECK(memopt_accumulation_mean(&none, &mean) == MEMOPT_ERR_STATE && memopt_accumulation_mean(NULL, &mean) == MEMOPT_ERR_ARGUMENT && mean == 7);
    none.tokens = UINT64_MAX;
    CHECK(memopt_accumulation_mean(&none, NULL) == MEMOPT_ERR_ARGUMENT && memopt_accumulation_mean(&none, &mean) == MEMOPT_OK && mean == ldexp(1, -64));
}

/* ---- lists that are wrong ---- */
static void scale_lists_bad(void) {
    float x[4] = { 1, 2, 3, 4 }; uint16_t rest[4] = { 0, 0, 0, 0 }; int i; double aligned[32];
    for (i = 0; i < 15; ++i) {
        memopt_gradient g[2], before[2]; memopt_gradients list; memopt_gradient_total total; memopt_threads t = test_level(0); memopt_status want = MEMOPT_ERR_ARGUMENT; size_t bytes = 77;
        g[0] = scale_tensor(MEMOPT_TYPE_F32, x, 4); g[1] = scale_tensor(MEMOPT_TYPE_F32, x, 4); g[0].squares = g[1].squares = 5;
        memset(&list, 0, sizeof list); list.tensors = g; list.count = 2; list.scratch = aligned; list.scratch_bytes = sizeof aligned;
        switch (i) {
        case 0: list.tensors = NULL; break;               case 1: g[1].values = NULL; break;
        case 2: g[1].type = (memopt_type)3; break;        case 3: g[1].type = (memopt_type)3; g[1].count = 0; break;
        case 4: g[1].values = (char *)x + 2; break;       case 5: g[1].type = MEMOPT_TYPE_BF16; g[1].values = (char *)x + 1; break;
        case 6: g[1].count = SIZE_MAX; want = MEMOPT_ERR_OVERFLOW; break;
        case 7: g[1].count = SIZE_MAX / 4 + 1; want = MEMOPT_ERR_OVERFLOW; break;
        case 8: g[1].type = MEMOPT_TYPE_F16; g[1].count = SIZE_MAX / 2 + 1; want = MEMOPT_ERR_OVERFLOW; break;
        case 9: g[1].compensation = (uint16_t *)(void *)((char *)rest + 1); break;
        case 10: list.scratch = NULL; break;              case 11: list.scratch = (char *)aligned + 4; break;
        case 12: list.scratch_bytes = 2 * sizeof(memopt_i_scale_piece) - 1; want = MEMOPT_ERR_BUFFER; break;
        case 13: t.worker_count = 2; break;               default: t.worker_count = -1;
        }
        memcpy(before, g, sizeof g); memset(&total, 0x5A, sizeof total);
        CHECK_AT(memopt_gradients_measure(&list, &total, &t) == want, i);
        CHECK_AT(memopt_gradients_scale(&list, 2, &total, &t) == want && memopt_gradients_scale(&list, 2, NULL, &t) == want, i);
        CHECK_AT(memopt_gradients_clip_value(&list, 1, &t) == want, i);
        CHECK_AT(memopt_gradients_scratch(&list, &bytes) == (i < 10 ? want : MEMOPT_OK) && (i >= 10) == (bytes != 77), i);
        CHECK_AT(!memcmp(before, g, sizeof g) && total.overflow == 0x5A5A5A5A && x[0] == 1 && x[3] == 4, i);
    }
    { memopt_gradient g = scale_tensor(MEMOPT_TYPE_F32, x, 4); memopt_gradients list = scale_list(&g, 1); size_t bytes = 77; memopt_gradient_total total;
      const float nan = memopt_i_bits_float(SCALE_NAN), infinity = memopt_i_bits_float(0x7F800000u);
      CHECK(memopt_gradients_scratch(NULL, &bytes) == MEMOPT_ERR_ARGUMENT && bytes == 77 && memopt_gradients_scratch(&list, NULL) == MEMOPT_ERR_ARGUMENT);
      CHECK(memopt_gradients_measure(NULL, &total, NULL) == MEMOPT_ERR_ARGUMENT && memopt_gradients_measure(&list, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
      CHECK(memopt_gradients_scale(&list, (double)nan, &total, NULL) == MEMOPT_ERR_ARGUMENT && memopt_gradients_scale(&list, (double)infinity, &total, NULL) == MEMOPT_ERR_ARGUMENT);
      CHECK(memopt_gradients_scale(&list, -1e39, &total, NULL) == MEMOPT_ERR_ARGUMENT && memopt_gradients_scale(NULL, 1, &total, NULL) == MEMOPT_ERR_ARGUMENT);
      CHECK(memopt_gradients_clip_value(&list, nan, NULL) == MEMOPT_ERR_ARGUMENT && memopt_gradients_clip_value(&list, -1, NULL) == MEMOPT_ERR_ARGUMENT);
      CHECK(memopt_gradients_clip_value(&list, -infinity, NULL) == MEMOPT_ERR_ARGUMENT && memopt_gradients_clip_value(NULL, 1, NULL) == MEMOPT_ERR_ARGUMENT);
      CHECK(x[0] == 1 && x[1] == 2 && x[2] == 3 && x[3] == 4 && g.squares == 0);
      free(list.scratch); }
    { /* as many pieces as there can be: their number overflows, nobody looks at the values */
      const size_t most = SIZE_MAX / 2; memopt_gradient *g; memopt_gradients list; size_t k, bytes = 77; const size_t tensors = 140000;
      g = (memopt_gradient *)scale_alloc(tensors * sizeof *g);
      for (k = 0; k < tensors; ++k) g[k] = scale_tensor(MEMOPT_TYPE_BF16, rest, most);
      memset(&list, 0, sizeof list); list.tensors = g; list.count = tensors;
      REFUSES(list.error, (void)0, memopt_gradients_scratch(&list, &bytes), MEMOPT_ERR_OVERFLOW, "tensor 131071: count makes the list larger than memory can be");
      CHECK(bytes == 77);
      list.count = 140; /* on 64 bits: pieces that can be counted, but whose scratch cannot */
      if (SIZE_MAX > 0xFFFFFFFF) CHECK(memopt_gradients_scratch(&list, &bytes) == MEMOPT_OK);
      list.count = 69000;
      REFUSES(list.error, (void)0, memopt_gradients_scratch(&list, &bytes), MEMOPT_ERR_OVERFLOW, "gradients: scratch is larger than memory can be");
      free(g); }
}

/* Why: each change to what is right is told by its own line. */
enum { SCALE_SCRATCH = 2 * sizeof(memopt_i_scale_piece) }; /* of two tensors of one piece: 64, or 40 with pointers of 4 bytes */
#define LIST_SAYS(change, call, want, text) REFUSES(list.error, (g[0] = g[1] = right, list = fine, change), call, \
    MEMOPT_ERR_##want, text)
#define LIST_MEASURE_SAYS(change, want, text) LIST_SAYS(change, memopt_gradients_measure(&list, &total, threads), want, text)
static void scale_list_errors(void) {
    static float x[8];
    static double scratch[32];
    memopt_gradient right = scale_tensor(MEMOPT_TYPE_F32, x, 8), g[2];
    memopt_gradients fine, list;
    memopt_gradient_total total;
    memopt_threads bad = test_level(0), *threads = NULL;
    memopt_scaler scaler;
    size_t bytes;

    memset(&fine, 0, sizeof fine);
    fine.tensors = g;
    fine.count = 2;
    fine.scratch = scratch;
    fine.scratch_bytes = sizeof scratch;
    CHECK(memopt_scaler_default(&scaler) == MEMOPT_OK);
    ACCEPTS(list.error, (g[0] = g[1] = right, list = fine), memopt_gradients_measure(&list, &total, NULL));
    ACCEPTS(list.error, (g[0] = g[1] = right, list = fine), memopt_gradients_scratch(&list, &bytes));
    LIST_MEASURE_SAYS(list.tensors = NULL, ARGUMENT, "gradients: tensors is NULL");
    LIST_MEASURE_SAYS(g[1].values = NULL, ARGUMENT, "tensor 1: values is NULL");
    LIST_MEASURE_SAYS(g[0].values = (char *)x + 2, ARGUMENT, "tensor 0: values is misaligned");
    LIST_MEASURE_SAYS(g[1].type = (memopt_type)3, ARGUMENT, "tensor 1: type 3, no such memopt_type");
    LIST_MEASURE_SAYS(g[1].compensation = (uint16_t *)(void *)((char *)x + 1), ARGUMENT,
                      "tensor 1: compensation is misaligned");
    LIST_MEASURE_SAYS(g[1].count = SIZE_MAX / 2, OVERFLOW, "tensor 1: values are larger than memory can be");
    LIST_MEASURE_SAYS(list.scratch = NULL, ARGUMENT, "gradients: scratch is NULL");
    LIST_MEASURE_SAYS(list.scratch = (char *)scratch + 4, ARGUMENT, "gradients: scratch is misaligned");
    LIST_SAYS((void)0, memopt_gradients_scratch(&list, NULL), ARGUMENT, "gradients: bytes is NULL");
    LIST_SAYS((void)0, memopt_gradients_measure(&list, NULL, NULL), ARGUMENT, "gradients: total is NULL");
    LIST_SAYS((void)0, memopt_gradients_scale(&list, -1e39, NULL, NULL), ARGUMENT,
              "gradients: factor -1e+39, must be finite as a float");
    LIST_SAYS((void)0, memopt_gradients_clip_value(&list, -1, NULL), ARGUMENT, "gradients: limit -1, at least 0");
    LIST_SAYS((void)0, memopt_scaler_measure(&scaler, &list, NULL, NULL), ARGUMENT, "gradients: total is NULL");
    LIST_SAYS(scaler.unscaled = 1, memopt_scaler_unscale(&scaler, &list, &total, NULL), STATE,
              "gradients: they are unscaled or measured already, and not yet updated");
    scaler.unscaled = 0;
    LIST_SAYS(scaler.growth_factor = 1, memopt_scaler_measure(&scaler, &list, &total, NULL), ARGUMENT,
              "gradients: scaler has a growth_factor that is not finite and above 1");
    LIST_SAYS((void)memopt_scaler_default(&scaler), (scaler.backoff_factor = 1, memopt_scaler_measure(&scaler, &list, &total,
              NULL)), ARGUMENT, "gradients: scaler has a backoff_factor that is not between 0 and 1");
    LIST_SAYS((void)memopt_scaler_default(&scaler), (scaler.scale = 0.5f, memopt_scaler_measure(&scaler, &list, &total, NULL)),
              ARGUMENT, "gradients: scaler has a scale below its floor");
    LIST_SAYS((void)memopt_scaler_default(&scaler), (scaler.floor = 0, memopt_scaler_measure(&scaler, &list, &total, NULL)),
              ARGUMENT, "gradients: scaler has a floor whose inverse is not finite");
    LIST_SAYS((void)memopt_scaler_default(&scaler), (scaler.growth_tracker = 2000, memopt_scaler_measure(&scaler, &list, &total,
              NULL)), ARGUMENT, "gradients: scaler has a growth_tracker that is not below growth_interval");
    LIST_SAYS((void)memopt_scaler_default(&scaler), (scaler.found_nonfinite = 1, memopt_scaler_measure(&scaler, &list, &total, NULL)),
              ARGUMENT, "gradients: scaler has found_nonfinite or unscaled set wrongly");
    LIST_SAYS((void)memopt_scaler_default(&scaler), (scaler.scale = memopt_i_bits_float(0x7f800000u),
              memopt_scaler_measure(&scaler, &list, &total, NULL)), ARGUMENT,
              "gradients: scaler has a scale or a floor that is not finite");
    LIST_SAYS((void)0, memopt_scaler_measure(NULL, &list, &total, NULL), ARGUMENT, "gradients: scaler is NULL");
    bad.worker_count = 3;
    threads = &bad;
    LIST_MEASURE_SAYS((void)0, ARGUMENT, "gradients: threads have workers without run_fn, or run_fn without workers");
    threads = NULL;
    LIST_MEASURE_SAYS(list.scratch_bytes = SCALE_SCRATCH - 1, BUFFER,
                      SCALE_SCRATCH == 64 ? "gradients: scratch_bytes 63, at least 64" : "gradients: scratch_bytes 39, at least 40");
}
#define SUMS_SAYS(change, want, text) REFUSES(sums.error, (s[0] = s[1] = sum, g[0] = g[1] = gradient, sums = fine, \
    gradients.count = 2, gradients.tensors = g, batch.tokens = 5, batch.noise = NULL, change), \
    memopt_gradients_accumulate(&sums, list, to_batch, &a, NULL), MEMOPT_ERR_##want, text)
static void scale_sums_errors(void) {
    static float x[8], y[8];
    static double scratch[32];
    static uint16_t narrow[16];
    memopt_gradient sum = scale_tensor(MEMOPT_TYPE_F32, x, 8), gradient = scale_tensor(MEMOPT_TYPE_F32, y, 8), s[2], g[2];
    memopt_gradients fine, sums, gradients;
    const memopt_gradients *list = &gradients;
    memopt_accumulation a = { 0, 0 };
    memopt_micro_batch batch;
    const memopt_micro_batch *to_batch = &batch;

    memset(&fine, 0, sizeof fine);
    memset(&gradients, 0, sizeof gradients);
    memset(&batch, 0, sizeof batch);
    fine.tensors = s;
    fine.count = 2;
    fine.scratch = scratch;
    fine.scratch_bytes = sizeof scratch;
    SUMS_SAYS(s[1].values = NULL, ARGUMENT, "sum 1: values is NULL");
    SUMS_SAYS(g[1].values = NULL, ARGUMENT, "gradient 1: values is NULL");
    SUMS_SAYS(gradients.count = 1, ARGUMENT, "gradients: sums->count 2, must be gradients->count 1");
    SUMS_SAYS(g[1].count = 7, ARGUMENT, "sum 1: count 8, must be the gradient's 7");
    SUMS_SAYS((s[1].type = MEMOPT_TYPE_F16), ARGUMENT, "sum 1: type is MEMOPT_TYPE_F16: sums are F32 or BF16");
    SUMS_SAYS(s[0].compensation = narrow, ARGUMENT, "sum 0: compensation is given, and the sum is not BF16");
    SUMS_SAYS(s[0].type = MEMOPT_TYPE_BF16, ARGUMENT, "sum 0: compensation is NULL, and the batch has no noise");
    SUMS_SAYS(sums.scratch_bytes = 0, BUFFER,
              SCALE_SCRATCH == 64 ? "gradients: scratch_bytes 0, at least 64" : "gradients: scratch_bytes 0, at least 40");
    a.tokens = UINT64_MAX - 2;
    SUMS_SAYS((void)0, OVERFLOW, "gradients: batch.tokens 5, at most 2");
    list = NULL;
    SUMS_SAYS((void)0, ARGUMENT, "gradients: gradient list is NULL");
    list = &gradients;
    to_batch = NULL;
    SUMS_SAYS((void)0, ARGUMENT, "gradients: batch is NULL");
    to_batch = &batch;
    REFUSES(sums.error, (s[0] = s[1] = sum, sums = fine), memopt_gradients_accumulate(&sums, list, to_batch, NULL, NULL),
            MEMOPT_ERR_ARGUMENT, "gradients: accumulation is NULL");
    a.tokens = 0;
    s[0] = s[1] = sum;
    sums = fine;
    ACCEPTS(sums.error, (void)0, memopt_gradients_accumulate(&sums, &gradients, &batch, &a, NULL));
}

static void test_scale(void) {
#if defined(TEST_THREADS) /* a race is looked for, slowly: what runs on one thread has been seen elsewhere */
    RUN(scale_pool);
    return;
#endif
    RUN(scale_types);
    RUN(scale_policy_starters);
    RUN(scale_policy_all);
    RUN(scale_scaler_start);
    RUN(scale_scaler_inverse);
    RUN(scale_scaler_million);
    RUN(scale_scaler_odd_factors);
    RUN(scale_scaler_order);
    RUN(scale_scaler_bad);
    RUN(scale_definition);
    RUN(scale_many_pieces);
    RUN(scale_in_parts);
    RUN(scale_every_code);
    RUN(scale_norm_is_the_norm);
    RUN(scale_any_workers);
    RUN(scale_empty);
#if defined(MEMOPT_I_POOL)
    RUN(scale_pool);
#endif
    RUN(scale_huge);
    RUN(scale_clip_codes);
    RUN(scale_clip_floats);
    RUN(scale_clip_minus_zero);
    RUN(scale_clip_norm);
    RUN(scale_clip_together);
    RUN(scale_injections);
    RUN(scale_accumulate);
    RUN(scale_accumulate_long);
    RUN(scale_accumulate_tokens);
    RUN(scale_accumulate_any_workers);
    RUN(scale_accumulate_bad);
    RUN(scale_lists_bad);
    RUN(scale_list_errors);
    RUN(scale_sums_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_scale(); return test_totals(); }
#endif
