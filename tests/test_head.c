/* test_head.c - cross-entropy in place, and the head: linear + softmax + cross-entropy without logits. Expected values
   are worked out here in double from the definition, the plain gradient is held against differences of the plain loss;
   then equal bits for any chunk, workers and level, batches in parts, and what is refused. */
#include "test.h"
#include "scratch.h"
#include <float.h>

/* ---- numbers ---- */
static void *head_alloc(size_t bytes) { /* never NULL, aligned to 64, 64 bytes more that nobody may write */
    unsigned char *p = (unsigned char *)memopt_i_system_alloc(NULL, bytes + 64, 64);
    if (!p) { printf("test_head: out of memory\n"); exit(1); }
    memset(p, 0xA5, bytes + 64);
    return p;
}
static void head_free(void *p, size_t bytes) {
    size_t i;
    for (i = 0; i < 64; ++i) CHECK_AT(((unsigned char *)p)[bytes + i] == 0xA5, i);
    memopt_i_system_free(NULL, p, bytes + 64, 64);
}
static size_t head_size(memopt_type type) { return type == MEMOPT_TYPE_F32 ? 4 : 2; }
static void head_put(memopt_type type, void *data, size_t i, float x) {
    uint16_t code = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
    if (type == MEMOPT_TYPE_F32) memcpy((unsigned char *)data + 4 * i, &x, 4);
    else memcpy((unsigned char *)data + 2 * i, &code, 2);
}
static double head_get(memopt_type type, const void *data, size_t i) {
    float x; uint16_t code;
    if (type == MEMOPT_TYPE_F32) { memcpy(&x, (const unsigned char *)data + 4 * i, 4); return (double)x; }
    memcpy(&code, (const unsigned char *)data + 2 * i, 2);
    return (double)(type == MEMOPT_TYPE_BF16 ? memopt_from_bf16(code) : memopt_from_f16(code));
}
static float head_normal(uint64_t *seed) { /* -1 to 1 */
    return (float)((double)(test_random(seed) >> 40) / 8388608.0 - 1.0);
}
/* What storing does to x at most: half a unit in the last place, of fp16's denormals too. */
static double head_rounding(memopt_type type, double x) {
    if (type == MEMOPT_TYPE_F32) return 0;
    return type == MEMOPT_TYPE_BF16 ? fabs(x) * ldexp(1, -8) : fabs(x) * ldexp(1, -11) + ldexp(1, -25);
}
static int head_is_nan(double x) { uint64_t u; memcpy(&u, &x, 8); return u << 1 > (uint64_t)0x7ff << 53; }
static float head_inf(void) { return memopt_i_bits_float(0x7f800000u); }
static float head_nan(void) { return memopt_i_bits_float(0x7fc00000u); }


/* ---- the definition ---- */
static double head_plain_loss(const double *x, size_t n, size_t target, double smoothing, double z, double *slopes) {
    double most = x[0], sum = 0, mean = 0, lse; size_t i;
    for (i = 0; i < n; ++i) { if (x[i] > most) most = x[i]; mean += x[i] / (double)n; }
    for (i = 0; i < n; ++i) sum += exp(x[i] - most);
    lse = most + log(sum);
    for (i = 0; i < n && slopes; ++i)
        slopes[i] = exp(x[i] - lse) * (1 + 2 * z * lse) - smoothing / (double)n - (i == target ? 1 - smoothing : 0);
    return lse - (1 - smoothing) * x[target] - (smoothing > 0 ? smoothing * mean : 0) + z * lse * lse;
}
static void head_differences(void) { /* the plain gradient is the derivative of the plain loss */
    double x[9], y[9]; uint64_t seed = 5; int i, k;
    for (k = 0; k < 8; ++k) {
        const double smoothing = k & 1 ? 0.1 : 0, z = k & 2 ? 1e-2 : 0, h = 1e-5; const size_t target = k & 4 ? 8 : 2;
        for (i = 0; i < 9; ++i) x[i] = (double)head_normal(&seed) * 4;
        (void)head_plain_loss(x, 9, target, smoothing, z, y);
        for (i = 0; i < 9; ++i) {
            const double was = x[i]; double up, down;
            x[i] = was + h; up = head_plain_loss(x, 9, target, smoothing, z, NULL);
            x[i] = was - h; down = head_plain_loss(x, 9, target, smoothing, z, NULL);
            x[i] = was;
            CHECK_AT(fabs((up - down) / (2 * h) - y[i]) < 1e-8, i);
        }
    }
}
/* ---- cross-entropy ---- */
static memopt_ops head_ops(const memopt_threads *t, void *scratch, size_t bytes) {
    memopt_ops o;
    memset(&o, 0, sizeof o);
    o.threads = t; o.scratch = scratch; o.scratch_bytes = bytes;
    return o;
}
static memopt_status head_entropy(const memopt_threads *t, const memopt_cross_entropy *x, memopt_loss *out) { /* with just the scratch */
    size_t bytes = 0; void *scratch; memopt_ops o; memopt_status s;
    o = head_ops(t, NULL, 0);
    CHECK(scratch_of_cross_entropy(&o, x, &bytes) == MEMOPT_OK && bytes == x->rows * 8);
    scratch = head_alloc(bytes);
    o = head_ops(t, scratch, bytes);
    s = memopt_cross_entropy_loss(&o, x, out);
    head_free(scratch, bytes);
    return s;
}
/* The same of a vocabulary in so many parts, each with logits of its own, which become gradients in its place of x. */
static memopt_status head_entropy_cut(const memopt_cross_entropy *x, size_t cuts, memopt_loss *out) {
    const size_t bytes = head_size(x->type), stride = x->stride ? x->stride : x->vocabulary, n = x->vocabulary;
    memopt_cross_entropy_row *rows = (memopt_cross_entropy_row *)head_alloc(2 * x->rows * sizeof *rows), *all = rows + x->rows;
    unsigned char *logits = (unsigned char *)head_alloc(x->rows * stride * bytes); double *scratch = (double *)head_alloc(x->rows * 8);
    int pass; size_t c, r; memopt_status s = MEMOPT_OK; memopt_loss other; memopt_ops o = head_ops(NULL, scratch, x->rows * 8);
    for (pass = 0; pass < 2; ++pass)
        for (c = 0; c < cuts && !s; ++c) {
            const size_t first = n * c / cuts, wide = n * (c + 1) / cuts - first, gap = c + 1 == cuts ? stride - n : 0;
            memopt_cross_entropy e = *x;
            e.first = first; e.whole = n; e.vocabulary = wide; e.stride = wide + gap; e.logits = logits;
            for (r = 0; r < x->rows; ++r) memcpy(logits + r * e.stride * bytes, (unsigned char *)x->logits + (r * stride + first) * bytes, e.stride * bytes);
            if (!pass) s = memopt_cross_entropy_measure(NULL, &e, rows);
            for (r = 0; !pass && r < x->rows; ++r) all[r] = c ? memopt_cross_entropy_join(all[r], rows[r]) : rows[r];
            if (pass) s = memopt_cross_entropy_part(&o, &e, all, c ? &other : out);
            if (pass && c) CHECK(!memcmp(&other, out, sizeof other)); /* all parts have the loss of the whole */
            for (r = 0; r < x->rows; ++r) memcpy((unsigned char *)x->logits + (r * stride + first) * bytes, logits + r * e.stride * bytes, e.stride * bytes);
        }
    head_free(rows, 2 * x->rows * sizeof *rows); head_free(logits, x->rows * stride * bytes); head_free(scratch, x->rows * 8);
    return s;
}
static double head_x[70000], head_y[70000];
/* One setting: loss of every row, gradient of every element, padding, and what lies behind. */
static void head_entropy_case(memopt_type type, size_t rows, size_t n, size_t gap, const memopt_loss_rule *rule, int keep, float size, uint64_t seed, size_t cuts) {
    const size_t stride = n + gap, bytes = rows * stride * head_size(type); size_t i, row, counted = 0; double total = 0, count;
    void *x = head_alloc(bytes), *y = head_alloc(bytes); int32_t *targets = (int32_t *)head_alloc(rows * 4);
    float *losses = (float *)head_alloc(rows * 4); memopt_cross_entropy e; memopt_loss out;
    memset(&e, 0, sizeof e); memset(&out, 0, sizeof out);
    for (i = 0; i < rows * stride; ++i) head_put(type, x, i, i % stride < n ? head_normal(&seed) * size : head_nan());
    memcpy(y, x, bytes);
    for (i = 0; i < rows; ++i) { targets[i] = i % 5 == 3 ? -1 - (int32_t)(i * 1000) : (int32_t)test_below(&seed, n); counted += targets[i] >= 0; }
    if (rows > 2) { targets[0] = 0; targets[1] = (int32_t)(n - 1); }
    e.rows = rows; e.vocabulary = n; e.stride = gap ? stride : 0; e.type = type; e.logits = y; e.keep_logits = keep;
    e.targets = targets; e.losses = losses; e.rule = *rule;
    CHECK((cuts ? head_entropy_cut(&e, cuts, &out) : head_entropy(NULL, &e, &out)) == MEMOPT_OK && out.counted == counted);
    count = rule->count ? (double)rule->count : counted ? (double)counted : 1;
    for (row = 0; row < rows; ++row) {
        const double factor = (rule->scale > 0 ? rule->scale : 1) / count, z = (double)rule->z_weight;
        const size_t target = targets[row] < 0 ? 0 : (size_t)targets[row]; double loss, most = 0;
        for (i = 0; i < n; ++i) { head_x[i] = head_get(type, x, row * stride + i); if (fabs(head_x[i]) > most) most = fabs(head_x[i]); }
        loss = head_plain_loss(head_x, n, target, (double)rule->smoothing, z, head_y);
        if (targets[row] < 0) { loss = 0; CHECK_AT(memopt_i_float_bits(losses[row]) == 0, row); }
        total += loss;
        /* sums of n / 16 floats, exponents rounded twice */
        CHECK_AT(fabs((double)losses[row] - loss) <= ldexp(loss, -23) + ldexp(4 * most + (double)n / 16 + 8, -24) * (1 + 2 * z * (most + 12)), row);
        for (i = 0; i < stride; ++i) {
            const double got = head_get(type, y, row * stride + i), q = (i == target ? 1.0 : 0) + (double)rule->smoothing / (double)n;
            const double want = targets[row] < 0 || i >= n ? 0 : head_y[i] * factor, p = i < n ? fabs(head_y[i]) + q : 0;
            const double bound = factor * (p * ldexp(4 * most + (double)n / 16 + 8, -24) + ldexp(p, -23) + ldexp(1, -94)) + 1e-37; /* tiny ones become 0 */
            if (keep) continue;
            if (targets[row] < 0 || i >= n) CHECK_AT(got >= 0 && got <= 0, i);
            else CHECK_AT(fabs(got - want) <= bound + head_rounding(type, fabs(want) + bound), row * 100000 + i);
        }
    }
    if (keep) CHECK(!memcmp(x, y, bytes));
    CHECK(fabs(out.loss - total / count) <= (fabs(total) * 1e-6 + (double)rows * ldexp(4 * (double)size + (double)n / 16 + 8, -24)) / count);
    head_free(x, bytes); head_free(y, bytes); head_free(targets, rows * 4); head_free(losses, rows * 4);
}
static void head_entropy_definition(void) {
    static const size_t sizes[] = { 1, 2, 7, 8, 9, 15, 16, 17, 33, 2047, 2048, 2049, 5003 }; size_t k, cuts; int type, variant;
    for (k = 0; k < sizeof sizes / sizeof *sizes; ++k)
        for (type = 0; type < 3; ++type)
            for (variant = 0; variant < 6; ++variant) {
                memopt_loss_rule rule;
                memset(&rule, 0, sizeof rule);
                if (variant & 1) { rule.smoothing = 0.1f; rule.scale = 512; }
                if (variant & 2) { rule.z_weight = 1e-3f; rule.count = 20; }
                if (variant == 5) rule.smoothing = 1;
                head_entropy_case((memopt_type)type, sizes[k] > 1000 ? 4 : 11, sizes[k], variant & 1 ? 5 : 0, &rule, variant == 4, variant & 2 ? 30.0f : 5.0f, k, 0);
                for (cuts = 1; cuts <= sizes[k] && cuts < 9; cuts += 1 + (size_t)variant)
                    head_entropy_case((memopt_type)type, 4, sizes[k], variant & 1 ? 5 : 0, &rule, variant == 4, variant & 2 ? 30.0f : 5.0f, k, cuts);
            }
}
static void head_entropy_large(void) { /* more than one turn of rows, and a vocabulary as they are */
    memopt_loss_rule rule;
    memset(&rule, 0, sizeof rule);
    head_entropy_case(MEMOPT_TYPE_F32, 300, 129, 0, &rule, 0, 3, 9, 0);
    rule.smoothing = 0.1f; rule.z_weight = 1e-4f;
    head_entropy_case(MEMOPT_TYPE_F32, 2, 50257, 47, &rule, 0, 3, 9, 0);
    head_entropy_case(MEMOPT_TYPE_BF16, 2, 50257, 47, &rule, 0, 3, 9, 0);
}
/* Loss scales that a float holds, or not, in the middle of the calculation. */
static void head_entropy_scales(void) {
    memopt_loss_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.scale = 1e37; head_entropy_case(MEMOPT_TYPE_F32, 4, 9, 0, &rule, 0, 3, 1, 0);
    rule.scale = 1e42; rule.count = 100000; head_entropy_case(MEMOPT_TYPE_F32, 4, 9, 0, &rule, 0, 3, 1, 0);
    rule.scale = 1e-10; rule.count = 1000000; head_entropy_case(MEMOPT_TYPE_F32, 4, 9, 0, &rule, 0, 3, 1, 0);
    rule.scale = 65536; rule.count = 4; head_entropy_case(MEMOPT_TYPE_F16, 4, 9, 0, &rule, 0, 3, 1, 0);
}
static float head_one(float *x, size_t n, int32_t target, float smoothing, memopt_type type, int keep) { /* a row's loss */
    uint16_t code[40]; float loss = 7; memopt_cross_entropy e; memopt_loss out; size_t i;
    memset(&e, 0, sizeof e); memset(&out, 0, sizeof out);
    for (i = 0; i < n; ++i) head_put(type, type == MEMOPT_TYPE_F32 ? (void *)x : (void *)code, i, x[i]);
    e.rows = 1; e.vocabulary = n; e.logits = type == MEMOPT_TYPE_F32 ? (void *)x : (void *)code; e.type = type;
    e.targets = &target; e.losses = &loss; e.rule.smoothing = smoothing; e.keep_logits = keep;
    CHECK(head_entropy(NULL, &e, &out) == MEMOPT_OK && out.counted == 1);
    for (i = 0; i < n; ++i) x[i] = (float)head_get(type, e.logits, i);
    CHECK(head_is_nan(out.loss) ? head_is_nan((double)loss) : (float)out.loss <= loss && (float)out.loss >= loss);
    return loss;
}
static void head_entropy_not_finite(void) {
    float x[37]; int type, i, what;
    for (type = 0; type < 2; ++type) {
        for (what = 0; what < 3; ++what) { /* NaN, +infinity, nothing but -infinity: no softmax */
            int nans = 0;
            for (i = 0; i < 37; ++i) x[i] = what == 2 ? -head_inf() : (float)(i % 5);
            if (what < 2) x[20 + 16 * what] = what ? head_inf() : head_nan();
            CHECK(head_is_nan((double)head_one(x, 37, 3, 0, (memopt_type)type, 0)));
            for (i = 0; i < 37; ++i) nans += head_is_nan((double)x[i]);
            CHECK_AT(nans == 37, what);
        }
        for (i = 0; i < 37; ++i) x[i] = i < 3 ? 0 : -head_inf(); /* probabilities of 0 */
        CHECK(fabs((double)head_one(x, 37, 1, 0, (memopt_type)type, 0) - log(3.0)) < 1e-6);
        CHECK(fabs((double)x[0] - 1 / 3.0) < 1e-3 && fabs((double)x[1] + 2 / 3.0) < 2e-3 && x[3] == 0 && x[36] == 0);
        for (i = 0; i < 37; ++i) x[i] = i < 3 ? 0 : -head_inf(); /* the target's too */
        CHECK(head_one(x, 37, 5, 0, (memopt_type)type, 0) >= head_inf() && x[5] == -1 && fabs((double)x[0] - 1 / 3.0) < 1e-3);
        for (i = 0; i < 37; ++i) x[i] = i < 3 ? 0 : -head_inf();
        CHECK(head_one(x, 37, 1, 0.5f, (memopt_type)type, 0) >= head_inf() && x[5] < 0 && x[5] > -1);
        for (i = 0; i < 37; ++i) x[i] = i < 3 ? 0 : -head_inf();
        CHECK(head_one(x, 37, 5, 1, (memopt_type)type, 0) >= head_inf());
        for (i = 0; i < 37; ++i) x[i] = i == 4 ? 1e30f : -1e30f;
        CHECK(fabs((double)head_one(x, 37, 4, 0, (memopt_type)type, 1)) < 1e-9);
        CHECK(fabs((double)head_one(x, 37, 5, 0, (memopt_type)type, 0) / 2e30 - 1) < 1e-2 && x[4] == 1 && x[5] == -1 && x[6] == 0);
        for (i = 0; i < 37; ++i) x[i] = i == 4 ? 3e38f : -3e38f; /* the difference is no float, the sum is not either */
        CHECK(head_one(x, 37, 5, 0, (memopt_type)type, 1) >= head_inf() && fabs((double)head_one(x, 37, 4, 0, (memopt_type)type, 1)) < 1e-9);
        CHECK(head_one(x, 37, 4, 0.1f, (memopt_type)type, 0) < 1e38f);
        x[0] = 123; /* a vocabulary of 1 */
        CHECK(head_one(x, 1, 0, 0.1f, (memopt_type)type, 0) == 0 && x[0] == 0);
    }
}
static void head_entropy_denormals(void) { /* products with them are 30 times slower: there are none */
    float x[400]; int32_t target = 3; memopt_cross_entropy e; memopt_loss out = { 0, 0 }; int i, some = 0;
    memset(&e, 0, sizeof e);
    for (i = 0; i < 400; ++i) x[i] = (float)i * -0.3f;
    e.rows = 1; e.vocabulary = 400; e.logits = x; e.targets = &target; e.rule.scale = 1e-9;
    CHECK(head_entropy(NULL, &e, &out) == MEMOPT_OK);
    for (i = 0; i < 400; ++i) {
        const uint32_t bits = memopt_i_float_bits(x[i]) & 0x7fffffffu;
        CHECK_AT(bits == 0 || bits >= 0x00800000u, i);
        some += bits != 0;
    }
    CHECK(some > 200 && some < 300); /* down to 2^-95 of 1e-9 */
}
static void head_entropy_ignored(void) { /* all of them; NaN too becomes 0 */
    float x[12]; int32_t targets[3] = { -1, -100, INT32_MIN }; float losses[3] = { 5, 5, 5 }; memopt_cross_entropy e; memopt_loss out = { 7, 7 };
    size_t i;
    memset(&e, 0, sizeof e);
    for (i = 0; i < 12; ++i) x[i] = head_nan();
    e.rows = 3; e.vocabulary = 4; e.logits = x; e.targets = targets; e.losses = losses;
    CHECK(head_entropy(NULL, &e, &out) == MEMOPT_OK && out.counted == 0 && !(out.loss > 0) && !(out.loss < 0));
    for (i = 0; i < 12; ++i) CHECK(memopt_i_float_bits(x[i]) == 0);
    for (i = 0; i < 3; ++i) CHECK(memopt_i_float_bits(losses[i]) == 0);
    e.rule.count = 7; out.loss = 1;
    CHECK(head_entropy(NULL, &e, &out) == MEMOPT_OK && out.counted == 0 && !(out.loss > 0) && !(out.loss < 0));
    e.rows = 0; e.logits = NULL; e.targets = NULL; out.loss = 1;
    CHECK(head_entropy(NULL, &e, &out) == MEMOPT_OK && out.counted == 0 && !(out.loss > 0) && !(out.loss < 0));
}
static void head_entropy_same_bits(void) {
    enum { ROWS = 41, N = 2500, STRIDE = 2503 };
    const size_t bytes = ROWS * STRIDE * 4; uint64_t seed = 2; size_t i; int type, level, workers;
    float *x = (float *)head_alloc(bytes), *y = (float *)head_alloc(bytes), *w = (float *)head_alloc(bytes);
    int32_t targets[ROWS]; float losses[ROWS]; memopt_loss out = { 0, 0 };
    for (type = 0; type < 3; ++type) {
        for (i = 0; i < ROWS * STRIDE; ++i) head_put((memopt_type)type, x, i, head_normal(&seed) * 20.0f);
        for (i = 0; i < ROWS; ++i) targets[i] = (int32_t)test_below(&seed, N + 300) - 300;
        for (level = memopt_simd_best(); level >= 1; --level)
            for (workers = 0; workers <= 8; workers += level == 1 ? 8 : 2) {
                const int first = level == memopt_simd_best() && !workers; memopt_cross_entropy e; test_worker_set worker_set = { 0, 0, 0, 0 };
                const memopt_threads t = test_workers(&worker_set, workers, level);
                float l[ROWS]; memopt_loss got = { 0, 0 };
                if (test_is_passed_over() && !first) continue;
                memset(&e, 0, sizeof e);
                memcpy(first ? y : w, x, bytes);
                e.rows = ROWS; e.vocabulary = N; e.stride = STRIDE; e.type = (memopt_type)type; e.logits = first ? y : w; e.targets = targets;
                e.losses = first ? losses : l; e.rule.smoothing = 0.05f; e.rule.z_weight = 1e-3f;
                CHECK(head_entropy(&t, &e, first ? &out : &got) == MEMOPT_OK && (!workers || worker_set.runs == 1));
                if (!first) CHECK_AT(!memcmp(y, w, bytes) && !memcmp(l, losses, sizeof l) && !memcmp(&out.loss, &got.loss, 8), level * 10 + workers);
                memcpy(w, x, bytes);
                e.logits = w; e.losses = l; e.keep_logits = 1; /* without the gradient: the same losses */
                CHECK(head_entropy(&t, &e, &got) == MEMOPT_OK && !memcmp(l, losses, sizeof l) && !memcmp(w, x, bytes) && !memcmp(&out.loss, &got.loss, 8));
            }
    }
    head_free(x, bytes); head_free(y, bytes); head_free(w, bytes);
}
static void head_entropy_bad(void) {
    static float x[64], losses[8]; static int32_t targets[8]; static double scratch_of[24]; int i; size_t k;
    unsigned char *scratch = (unsigned char *)scratch_of + (64 - ((uintptr_t)scratch_of & 63));
    for (i = 0; i < 33; ++i) {
        memopt_cross_entropy e; memopt_ops o = head_ops(NULL, scratch, 32); memopt_loss out = { 7, 7 }, *to = &out; memopt_status want = MEMOPT_ERR_ARGUMENT;
        memopt_threads t; size_t bytes = 7; const memopt_cross_entropy *p = &e; int scratch_too = 1;
        memset(&e, 0, sizeof e); memset(&t, 0, sizeof t);
        for (k = 0; k < 64; ++k) x[k] = 7;
        for (k = 0; k < 8; ++k) { losses[k] = 7; targets[k] = (int32_t)k % 4; }
        e.rows = 4; e.vocabulary = 5; e.stride = 6; e.logits = x; e.targets = targets; e.losses = losses;
        switch (i) {
        case 0: p = NULL; break;                         case 1: e.vocabulary = 0; break;
        case 2: e.stride = 4; break;                     case 3: e.type = (memopt_type)3; break;
        case 4: e.rule.scale = -1; break;                case 5: e.rule.scale = (double)head_inf(); break;
        case 6: e.rule.scale = (double)head_nan(); break; case 7: e.rule.smoothing = -0.1f; break;
        case 8: e.rule.smoothing = 1.01f; break;         case 9: e.rule.smoothing = head_nan(); break;
        case 10: e.rule.z_weight = -1; break;            case 11: e.rule.z_weight = head_inf(); break;
        case 12: e.rule.z_weight = head_nan(); break;    case 13: t.worker_count = 2; o.threads = &t; break;
        case 14: o.gemm.scratch_bytes = 1; break;        case 15: e.rows = SIZE_MAX / 8; want = MEMOPT_ERR_OVERFLOW; break;
        case 16: e.stride = SIZE_MAX / 2; want = MEMOPT_ERR_OVERFLOW; break;
        case 17: e.rows = SIZE_MAX; e.type = MEMOPT_TYPE_BF16; e.vocabulary = e.stride = 1; want = MEMOPT_ERR_OVERFLOW; break;
        default: scratch_too = 0;
        }
        if (scratch_too) {
            CHECK_AT(scratch_of_cross_entropy(&o, p, &bytes) == want && bytes == 7, i);
            CHECK_AT(memopt_cross_entropy_loss(&o, p, &out) == want && out.counted == 7, i);
        } else CHECK_AT(scratch_of_cross_entropy(&o, p, &bytes) == MEMOPT_OK && bytes == 32, i);
        switch (i) { /* what the question for scratch does not look at */
        case 18: e.logits = NULL; break;                 case 19: e.logits = (char *)x + 2; break;
        case 20: e.targets = NULL; break;                case 21: e.targets = (const int32_t *)(const void *)((const char *)targets + 1); break;
        case 22: e.losses = (float *)(void *)((char *)losses + 2); break;
        case 23: e.losses = x + 23; break;               case 24: e.targets = (const int32_t *)(const void *)(x + 20); break;
        case 25: e.losses = (float *)(void *)targets; break;
        case 26: targets[3] = 5; break;                  case 27: targets[0] = INT32_MAX; break;
        case 28: to = NULL; break;                       case 29: o.scratch_bytes = 31; want = MEMOPT_ERR_BUFFER; break;
        case 30: o.scratch = NULL; o.scratch_bytes = 0; want = MEMOPT_ERR_BUFFER; break;
        case 31: e.logits = scratch; break;              case 32: o.scratch = scratch + 8; break;
        }
        CHECK_AT(memopt_cross_entropy_loss(&o, p, to) == want && out.counted == 7, i);
        for (k = 0; k < 64; ++k) CHECK_AT(x[k] == 7 && losses[k / 8] == 7, i);
    }
}

/* ---- the head ---- */
typedef struct head_case { /* everything of one call, made from a seed */
    memopt_head h;
    void   *input, *weights, *grad_input, *grad_weights;
    float  *losses;
    int32_t *targets;
    size_t  in, out; /* bytes of input, and of weights; gradients of weights have out_gradient */
    size_t  out_gradient;
} head_case;
static head_case head_make(size_t rows, size_t width, size_t vocabulary, size_t padded, memopt_type type, memopt_type weights,
                           memopt_type gradients, uint64_t seed) {
    head_case c; size_t i; const size_t all = padded ? padded : vocabulary;
    memset(&c, 0, sizeof c);
    c.in = rows * width * head_size(type); c.out = all * width * head_size(weights); c.out_gradient = all * width * head_size(gradients);
    c.input = head_alloc(c.in); c.weights = head_alloc(c.out); c.grad_input = head_alloc(c.in);
    c.grad_weights = head_alloc(c.out_gradient); c.losses = (float *)head_alloc(rows * 4); c.targets = (int32_t *)head_alloc(rows * 4);
    for (i = 0; i < rows * width; ++i) head_put(type, c.input, i, head_normal(&seed) * 2);
    for (i = 0; i < all * width; ++i) head_put(weights, c.weights, i, i < vocabulary * width ? head_normal(&seed) : head_nan());
    for (i = 0; i < all * width; ++i) head_put(gradients, c.grad_weights, i, head_normal(&seed));
    for (i = 0; i < rows; ++i) c.targets[i] = i % 7 == 2 ? -1 : (int32_t)test_below(&seed, vocabulary);
    c.h.rows = rows; c.h.width = width; c.h.vocabulary = vocabulary; c.h.padded = padded; c.h.type = type; c.h.weight_type = weights;
    c.h.gradient_type = gradients; c.h.input = c.input; c.h.weights = c.weights; c.h.targets = c.targets;
    c.h.grad_input = c.grad_input; c.h.grad_weights = c.grad_weights; c.h.losses = c.losses;
    return c;
}
static void head_unmake(head_case *c) {
    head_free(c->input, c->in); head_free(c->weights, c->out); head_free(c->grad_input, c->in);
    head_free(c->grad_weights, c->out_gradient); head_free(c->losses, c->h.rows * 4); head_free(c->targets, c->h.rows * 4);
}
static int head_is_narrow(const memopt_head *h) { return h->type == MEMOPT_TYPE_BF16 && h->weight_type == MEMOPT_TYPE_BF16; }
static size_t head_chunk(const memopt_head *h) { /* bf16 comes by 32 rows */
    const size_t chunk = h->chunk ? h->chunk : 512;
    return head_is_narrow(h) ? (chunk + 31) / 32 * 32 : chunk;
}
static size_t head_sums(const memopt_threads *t, const memopt_head *h) { /* of 16-bit sums, for each worker */
    const size_t chunk = head_chunk(h), block = h->vocabulary < 128 ? h->vocabulary : 128;
    if (h->gradient_type == MEMOPT_TYPE_F32 || !h->rows || (!h->accumulate && (h->rows + chunk - 1) / chunk <= 8)) return 0;
    return (size_t)(t && t->run_fn ? t->worker_count : 1) * (64 + (block * h->width * 4 + 63) / 64 * 64);
}
static memopt_status head_loss(const memopt_threads *t, const memopt_head *h, memopt_loss *out) { /* with just the scratch */
    size_t bytes = 0, rows = head_chunk(h); void *scratch; memopt_ops o; memopt_status s;
    if (rows > h->rows) rows = h->rows;
    o = head_ops(t, NULL, 0);
    CHECK(memopt_head_scratch(&o, h, &bytes) == MEMOPT_OK);
    CHECK(bytes == memopt_gemm_scratch(t) + rows * ((h->padded ? h->padded : h->vocabulary) * 4 + 8) + head_sums(t, h));
    scratch = head_alloc(bytes);
    o = head_ops(t, scratch, bytes);
    s = memopt_head_loss(&o, h, out);
    head_free(scratch, bytes);
    return s;
}
/* Against the definition. before: the gradient of weights that is added onto, NULL = none. */
static void head_expect(const head_case *c, const void *input, const void *before, const memopt_loss *out) {
    const memopt_head *h = &c->h; const size_t w = h->width, v = h->vocabulary, all = h->padded ? h->padded : v; size_t row, i, k, counted = 0;
    const double narrow = head_is_narrow(h) ? ldexp(1, -8) : 0; /* the rounding of logits' gradients */
    double *gw = (double *)head_alloc(all * w * 8), *size = (double *)head_alloc(all * w * 8), total = 0, count;
    for (i = 0; i < all * w; ++i) { gw[i] = before ? head_get(h->gradient_type, before, i) : 0; size[i] = fabs(gw[i]); }
    for (row = 0; row < h->rows; ++row) counted += h->targets[row] >= 0;
    count = h->rule.count ? (double)h->rule.count : counted ? (double)counted : 1;
    CHECK(out->counted == counted);
    for (row = 0; row < h->rows; ++row) {
        const double factor = (h->rule.scale > 0 ? h->rule.scale : 1) / count; double loss = 0, reach = 0, noise;
        for (i = 0; i < v; ++i) {
            double sum = 0, of = 0;
            for (k = 0; k < w; ++k) {
                const double x = head_get(h->type, input, row * w + k) * head_get(h->weight_type, h->weights, i * w + k);
                sum += x; of += fabs(x);
            }
            head_x[i] = sum;
            if (of > reach) reach = of;
        }
        if (h->targets[row] >= 0) loss = head_plain_loss(head_x, v, (size_t)h->targets[row], (double)h->rule.smoothing, (double)h->rule.z_weight, head_y);
        noise = ldexp((double)w * reach + 4 * reach + (double)v / 16 + 16, -24) * (1 + 4 * (double)h->rule.z_weight * (reach + 10)); /* of logits, then relative to probabilities */
        total += loss;
        if (h->losses) CHECK_AT(fabs((double)h->losses[row] - loss) <= 2 * noise + ldexp(loss, -23), row);
        for (k = 0; k < w && h->grad_input; ++k) {
            double sum = 0, of = 0, got = head_get(h->type, h->grad_input, row * w + k);
            for (i = 0; i < v && h->targets[row] >= 0; ++i) {
                const double x = factor * head_get(h->weight_type, h->weights, i * w + k);
                sum += head_y[i] * x; of += fabs(x) * (fabs(head_y[i]) + (i == (size_t)h->targets[row] ? 1 : 0));
            }
            of *= 3 * noise + ldexp((double)v, -24) + narrow;
            CHECK_AT(fabs(got - sum) <= of + head_rounding(h->type, fabs(sum) + of), row * 1000 + k);
        }
        for (i = 0; i < v && h->targets[row] >= 0; ++i)
            for (k = 0; k < w; ++k) {
                const double x = factor * head_get(h->type, input, row * w + k);
                gw[i * w + k] += head_y[i] * x;
                size[i * w + k] += fabs(x) * (fabs(head_y[i]) + (i == (size_t)h->targets[row] ? 1 : 0)) * (1 + 3 * noise * 16777216 / ((double)h->rows + 1));
            }
    }
    CHECK(fabs(out->loss - total / count) <= 1e-5 * (1 + fabs(total) / count));
    for (i = 0; i < all * w && h->grad_weights; ++i) {
        const double got = head_get(h->gradient_type, h->grad_weights, i), bound = size[i] * (ldexp((double)h->rows + 1, -24) + narrow);
        const size_t chunk = head_chunk(h); const double chunks = (double)((h->rows + chunk - 1) / chunk); /* each rounds what there is */
        CHECK_AT(fabs(got - gw[i]) <= bound + 2 * chunks * head_rounding(h->gradient_type, size[i] + bound), i);
    }
    head_free(gw, all * w * 8); head_free(size, all * w * 8);
}
static void head_definition(void) {
    static const size_t shapes[][5] = { /* rows, width, vocabulary, padded, chunk */
        { 1, 1, 1, 0, 0 }, { 7, 5, 9, 0, 3 }, { 16, 8, 17, 32, 5 }, { 9, 33, 15, 16, 1 }, { 33, 7, 130, 0, 100 }, { 20, 16, 2100, 2112, 8 } };
    size_t k; int type, variant;
    for (k = 0; k < sizeof shapes / sizeof *shapes; ++k)
        for (type = 0; type < 5; ++type)
            for (variant = 0; variant < 4; ++variant) {
                static const memopt_type types[5][3] = { { MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32 },
                    { MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16 }, { MEMOPT_TYPE_F16, MEMOPT_TYPE_F16, MEMOPT_TYPE_F16 },
                    { MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32 }, { MEMOPT_TYPE_F32, MEMOPT_TYPE_F16, MEMOPT_TYPE_BF16 } };
                head_case c = head_make(shapes[k][0], shapes[k][1], shapes[k][2], shapes[k][3], types[type][0], types[type][1], types[type][2], k);
                void *was = head_alloc(c.out_gradient), *input = head_alloc(c.in); memopt_loss out = { 0, 0 };
                memcpy(was, c.grad_weights, c.out_gradient); memcpy(input, c.input, c.in);
                if ((k == 5 && (variant > 1 || type > 1)) || test_is_passed_over()) { head_free(was, c.out_gradient); head_free(input, c.in); head_unmake(&c); continue; }
                c.h.chunk = shapes[k][4]; c.h.accumulate = variant & 1;
                if (variant & 1) { c.h.rule.smoothing = 0.1f; c.h.rule.scale = 64; }
                if (variant & 2) { c.h.rule.z_weight = 1e-2f; c.h.rule.count = 40; c.h.grad_input = c.input; c.h.losses = NULL; }
                CHECK(head_loss(NULL, &c.h, &out) == MEMOPT_OK);
                head_expect(&c, input, variant & 1 ? was : NULL, &out);
                if (!(variant & 2)) CHECK(!memcmp(input, c.input, c.in));
                if (variant & 1) { /* rows of padding have not been touched */
                    const size_t from = c.h.vocabulary * c.h.width * head_size(c.h.gradient_type);
                    CHECK(!memcmp((char *)was + from, (char *)c.grad_weights + from, c.out_gradient - from));
                }
                head_free(was, c.out_gradient); head_free(input, c.in); head_unmake(&c);
            }
}
/* The same bits for any chunk, workers, level; in place; without the one or the other; in two calls. */
typedef struct head_bits { memopt_loss out; head_case c; } head_bits;
static int head_equal(const head_case *a, const head_case *b, const memopt_loss *x, const memopt_loss *y) {
    return !memcmp(&x->loss, &y->loss, 8) && !memcmp(a->losses, b->losses, a->h.rows * 4)
        && (!b->h.grad_weights || !memcmp(a->grad_weights, b->grad_weights, a->out_gradient))
        && (!b->h.grad_input || !memcmp(a->grad_input, b->h.grad_input, a->in));
}
static void head_same_bits(void) {
    int type, k;
    for (type = 0; type < 3; ++type) {
        head_case a = head_make(45, 19, 301, 320, (memopt_type)type, (memopt_type)type, MEMOPT_TYPE_F32, 3); memopt_loss x = { 0, 0 };
        a.h.chunk = 45; a.h.rule.smoothing = 0.05f; a.h.rule.z_weight = 1e-3f; a.h.accumulate = 1;
        CHECK(head_loss(NULL, &a.h, &x) == MEMOPT_OK);
        for (k = 0; k < 30; ++k) {
            static const size_t chunks[] = { 1, 7, 8, 15, 16, 17, 44, 46, 1000, 0 };
            head_case b; memopt_loss y = { 0, 0 };
            test_worker_set worker_set = { 0, 0, 0, 0 }; const int level = 1 + k % memopt_simd_best();
            const memopt_threads t = test_workers(&worker_set, k % 9, level);
            if (test_is_passed_over()) continue;
            b = head_make(45, 19, 301, 320, (memopt_type)type, (memopt_type)type, MEMOPT_TYPE_F32, 3);
            b.h.rule = a.h.rule; b.h.accumulate = 1; b.h.chunk = chunks[k % 10];
            if (k % 4 == 1) b.h.grad_input = b.input;
            if (k % 4 == 2) b.h.grad_input = NULL;
            if (k % 8 == 3 || k % 8 == 6) b.h.grad_weights = NULL;
            CHECK(head_loss(&t, &b.h, &y) == MEMOPT_OK);
            CHECK_AT(head_equal(&a, &b, &x, &y), k);
            head_unmake(&b);
        }
        head_unmake(&a);
    }
}
/* ---- with bf16 the gradients of logits are bf16, and all products those of bf16 ---- */
static float head_flushed(float x) { return fabsf(x) < FLT_MIN ? (memopt_i_float_bits(x) >> 31 ? -0.0f : 0.0f) : x; }
static float head_link(float x, float y, float z) {
    volatile double sum = (double)x * (double)y + (double)z;
    if (fabs(sum) < (double)FLT_MIN * (1 - ldexp(1, -25))) return memopt_i_double_bits(sum) >> 63 ? -0.0f : 0.0f;
    return fmaf(x, y, z);
}
/* sum + the product of n depths: by 32 two chains, of even and odd ones, the last ones filled up with +0 */
static float head_chains(float sum, const float *x, size_t x_step, const float *y, size_t y_step, size_t n) {
    size_t k, block;
    for (block = 0; block < n; block += 32) {
        float chain[2] = { 0, 0 };
        for (k = block; k < block + 32; ++k)
            chain[k % 2] = head_link(k < n ? head_flushed(x[k * x_step]) : 0.0f, k < n ? head_flushed(y[k * y_step]) : 0.0f, chain[k % 2]);
        sum = head_flushed(head_flushed(sum) + head_flushed(chain[0] + chain[1]));
    }
    return sum;
}
static float head_nearest(float x) { /* the bf16 nearest to x, ties to even, or NaN */
    const uint32_t u = memopt_i_float_bits(x), last = u >> 16 & 1;
    return head_is_nan((double)x) ? x : memopt_i_bits_float((u + 0x7fffu + last) & 0xffff0000u);
}
static int head_alike(float a, float b) { return memopt_i_float_bits(a) == memopt_i_float_bits(b) || (head_is_nan((double)a) && head_is_nan((double)b)); }
static float *head_floats(memopt_type type, const void *data, size_t n) {
    float *x = (float *)head_alloc(n * 4); size_t i;
    for (i = 0; i < n; ++i) x[i] = (float)head_get(type, data, i);
    return x;
}
/* grad_input and grad_weights of a call, which was on c with the gradient of weights `before`. */
static void head_expect_bits(const head_case *c, const float *before, size_t at) {
    const memopt_head *h = &c->h; const size_t rows = h->rows, w = h->width, v = h->vocabulary; size_t i, k; int bad = 0;
    float *x = head_floats(h->type, c->input, rows * w), *m = head_floats(h->weight_type, c->weights, v * w), *y = (float *)head_alloc(rows * v * 4);
    memopt_cross_entropy e; memopt_loss out;
    memset(&e, 0, sizeof e);
    for (i = 0; i < rows; ++i) for (k = 0; k < v; ++k) y[i * v + k] = head_chains(0, x + i * w, 1, m + k * w, 1, w);
    e.rows = rows; e.vocabulary = v; e.logits = y; e.targets = h->targets; e.rule = h->rule;
    CHECK(head_entropy(NULL, &e, &out) == MEMOPT_OK);
    for (i = 0; i < rows * v; ++i) y[i] = head_nearest(y[i]);
    for (i = 0; i < rows * w; ++i)
        bad += !head_alike((float)head_get(h->type, c->grad_input, i), head_nearest(head_chains(0, y + i / w * v, 1, m + i % w, w, v)));
    CHECK_AT(!bad, at);
    for (bad = 0, i = 0; i < v * w; ++i)
        bad += !head_alike(((float *)c->grad_weights)[i], head_chains(before ? before[i] : 0, y + i / w, v, x + i % w, w, rows));
    CHECK_AT(!bad, at);
    head_free(x, rows * w * 4); head_free(m, v * w * 4); head_free(y, rows * v * 4);
}
static head_case head_make_bf16(size_t rows, size_t width, size_t vocabulary, size_t odd, uint64_t seed) {
    static const uint32_t odds[] = { 0, 0x7fc00000u, 0x7f800000u, 0xff800000u, 0x00010000u };
    head_case c = head_make(rows, width, vocabulary, vocabulary + 7, MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, seed);
    const float x = memopt_i_bits_float(odds[odd % 5]); size_t i;
    for (i = 0; i < rows * width; i += 3) head_put(MEMOPT_TYPE_BF16, c.input, i, (float)head_get(MEMOPT_TYPE_BF16, c.input, i) * 0.01f);
    if (odd % 5) head_put(MEMOPT_TYPE_BF16, odd < 5 ? c.input : c.weights, odd < 5 ? rows / 2 * width : vocabulary / 2 * width + 1, x);
    return c;
}
static void head_bf16_bits(void) {
    static const size_t shapes[][3] = { { 1, 1, 1 }, { 31, 5, 33 }, { 33, 33, 65 }, { 97, 17, 70 }, { 130, 40, 301 } };
    static const size_t chunks[] = { 32, 64, 96, 1, 33, 0, 100000 }; size_t k, n, i; int level;
    for (k = 0; k < sizeof shapes / sizeof *shapes; ++k) for (n = 0; n < 7; ++n) {
        const size_t odd = k && k < 4 ? n + (n > 4 ? 1 : 0) : 0; float *before = NULL;
        if (test_is_passed_over()) continue;
        for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
            head_case c = head_make_bf16(shapes[k][0], shapes[k][1], shapes[k][2], odd, k + 3); memopt_loss out = { 0, 0 };
            test_worker_set worker_set = { 0, 0, 0, 0 }; const memopt_threads t = test_workers(&worker_set, (int)n % 4, level); const int adds = n % 2;
            c.h.chunk = chunks[n]; c.h.accumulate = adds; if (n == 3) c.h.rule.smoothing = 0.1f;
            if (!before) before = head_floats(MEMOPT_TYPE_F32, c.grad_weights, shapes[k][2] * shapes[k][1]);
            CHECK(head_loss(&t, &c.h, &out) == MEMOPT_OK);
            if (k < 4 || n < 3 || level == memopt_simd_best()) head_expect_bits(&c, adds ? before : NULL, k * 100 + n * 10 + (size_t)level);
            for (i = 0; i < 7 * shapes[k][1] && !adds; ++i) CHECK(((float *)c.grad_weights)[shapes[k][2] * shapes[k][1] + i] == 0);
            head_unmake(&c);
        }
        head_free(before, shapes[k][2] * shapes[k][1] * 4);
    }
}
/* Where one of the two is of another type the gradients stay floats, and no chunk is rounded up; two calls of which the
   first has a multiple of 32 rows add up to one. */
static void head_bf16_parts(void) {
    head_case a = head_make_bf16(90, 9, 50, 0, 5), b = head_make_bf16(90, 9, 50, 0, 5); memopt_loss x = { 0, 0 }, y = { 0, 0 }; memopt_head part = b.h; size_t bytes = 0;
    a.h.rule.count = part.rule.count = 70;
    CHECK(head_loss(NULL, &a.h, &x) == MEMOPT_OK);
    part.rows = 64;
    CHECK(head_loss(NULL, &part, &y) == MEMOPT_OK);
    part.rows = 26; part.accumulate = 1; part.targets += 64; part.losses += 64;
    part.input = (const uint16_t *)b.input + 64 * 9; part.grad_input = (uint16_t *)b.grad_input + 64 * 9;
    CHECK(head_loss(NULL, &part, &y) == MEMOPT_OK && !memcmp(a.grad_weights, b.grad_weights, a.out_gradient) && !memcmp(a.grad_input, b.grad_input, a.in));
    part = a.h; part.chunk = 33;
    CHECK(memopt_head_scratch(NULL, &part, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 64 * (57 * 4 + 8));
    part.weight_type = MEMOPT_TYPE_F16;
    CHECK(memopt_head_scratch(NULL, &part, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 33 * (57 * 4 + 8));
    part.weight_type = MEMOPT_TYPE_BF16; part.type = MEMOPT_TYPE_F32;
    CHECK(memopt_head_scratch(NULL, &part, &bytes) == MEMOPT_OK && bytes == MEMOPT_GEMM_SCRATCH + 33 * (57 * 4 + 8));
    head_unmake(&a); head_unmake(&b);
}
/* Sums of 16 bits: the same for any workers and level; and what is added does not drown. */
static void head_sums_same_bits(void) {
    int k;
    for (k = 0; k < 24; ++k) {
        const memopt_type type = k & 1 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F16; const int accumulate = k >> 1 & 1;
        const size_t rows = type == MEMOPT_TYPE_BF16 && !accumulate ? 300 : 45; /* ten chunks of 32, or nine of 5 */
        head_case a, b; memopt_loss x = { 0, 0 }, y = { 0, 0 }; test_worker_set worker_set = { 0, 0, 0, 0 }; const memopt_threads t = test_workers(&worker_set, k % 9, 1 + k % memopt_simd_best());
        if (test_is_passed_over()) continue;
        a = head_make(rows, 19, 301, 320, type, type, type, 3); b = head_make(rows, 19, 301, 320, type, type, type, 3);
        a.h.chunk = b.h.chunk = accumulate ? 45 : 5; a.h.accumulate = b.h.accumulate = accumulate; b.h.grad_input = b.input;
        CHECK(head_loss(NULL, &a.h, &x) == MEMOPT_OK && head_loss(&t, &b.h, &y) == MEMOPT_OK);
        CHECK_AT(head_equal(&a, &b, &x, &y), k);
        head_unmake(&a); head_unmake(&b);
    }
}
static void head_sums_unbiased(void) {
    static const memopt_type types[3] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16 };
    double sum[3] = { 0 }, error[3] = { 0 }; size_t i; int k;
    for (k = 0; k < 3; ++k) {
        head_case f = head_make(4096, 8, 40, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 2), c = head_make(4096, 8, 40, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, types[k], 2);
        memopt_loss x = { 0, 0 }, y = { 0, 0 };
        for (i = 0; i < 4096 * 8; ++i) ((float *)f.input)[i] = ((float *)c.input)[i] = 1 + ((float *)c.input)[i] / 8; /* nearly all alike */
        for (i = 0; i < 4096; ++i) f.targets[i] = c.targets[i] = i < 8 ? 39 : -(int32_t)(i % 8 == 7) ; /* then it is only pushed down */
        for (i = 0; i < 40 * 8; ++i) ((float *)f.weights)[i] = ((float *)c.weights)[i] = ((float *)c.weights)[i] / 4 - (i >= 39 * 8 ? 0.5f : 0);
        c.h.chunk = 2;
        CHECK(head_loss(NULL, &f.h, &x) == MEMOPT_OK && head_loss(NULL, &c.h, &y) == MEMOPT_OK && !memcmp(&x.loss, &y.loss, 8));
        for (i = 39 * 8; i < 40 * 8; ++i) { /* a token's row after 2047 roundings */
            sum[k] += head_get(MEMOPT_TYPE_F32, f.grad_weights, i);
            error[k] += head_get(types[k], c.grad_weights, i) - head_get(MEMOPT_TYPE_F32, f.grad_weights, i);
        }
        CHECK_AT(fabs(error[k]) <= (k == 0 ? 0 : k == 1 ? 0.05 : 0.01) * fabs(sum[k]), k);
        head_unmake(&f); head_unmake(&c);
    }
}
static void head_sums_chunks(void) { /* up to 8 chunks are rounded to nearest; head_loss() looks at the bytes */
    static const size_t rows[] = { 35, 36, 39, 40, 41, 44, 45, 46 }; size_t k;
    for (k = 0; k < sizeof rows / sizeof *rows; ++k) {
        head_case a = head_make(rows[k], 3, 5, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, k); memopt_loss x = { 0, 0 };
        a.h.chunk = 5;
        CHECK_AT(head_sums(NULL, &a.h) == (rows[k] <= 40 ? 0 : 128), k);
        CHECK_AT(head_loss(NULL, &a.h, &x) == MEMOPT_OK, k);
        head_unmake(&a);
    }
}
/* Rows so sure of their target that their loss is 0, and their gradients are not: 512 chunks of one row each add a 16th
   of a place, so that each element has been rounded up about 32 times, but for chunks that share their noise. */
static void head_sums_sure(void) {
    enum { ROWS = 512, WIDTH = 8, WORDS = 40 };
    head_case c = head_make(ROWS, WIDTH, WORDS, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, 1); memopt_loss x = { 1, 0 };
    const double ulp = ldexp(1, -7), p = exp(-42); double sum = 0; size_t i;
    for (i = 0; i < ROWS * WIDTH; ++i) ((float *)c.input)[i] = 1;
    for (i = 0; i < WORDS * WIDTH; ++i) ((float *)c.weights)[i] = i < WIDTH ? 0 : -5.25f;
    for (i = 0; i < WORDS * WIDTH; ++i) head_put(MEMOPT_TYPE_BF16, c.grad_weights, i, 1);
    for (i = 0; i < ROWS; ++i) c.targets[i] = 0;
    c.h.chunk = 1; c.h.accumulate = 1; c.h.rule.count = 1;
    c.h.rule.scale = ulp / 16 / p;
    CHECK(head_loss(NULL, &c.h, &x) == MEMOPT_OK && x.loss >= 0 && x.loss <= 0);
    for (i = WIDTH; i < WORDS * WIDTH; ++i) {
        const double up = (head_get(MEMOPT_TYPE_BF16, c.grad_weights, i) - 1) / ulp;
        CHECK_AT(up > 0 && up < 70, i);
        sum += up;
    }
    CHECK(fabs(sum / ((WORDS - 1) * WIDTH) - 32) < 2);
    head_unmake(&c);
}
#if defined(MEMOPT_I_POOL)
static void head_pool(void) { /* real threads, for the thread sanitizer */
    memopt_thread_pool *pool = NULL; memopt_threads t; int k;
    CHECK(memopt_thread_pool_create(NULL, 3, &pool) == MEMOPT_OK);
    t = memopt_thread_pool_threads(pool);
    for (k = 0; k < 2; ++k) {
        const memopt_type type = k ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; memopt_loss x = { 0, 0 }, y = { 0, 0 };
        head_case a = head_make(70, 19, 701, 0, type, type, type, 3), b = head_make(70, 19, 701, 0, type, type, type, 3);
        a.h.chunk = b.h.chunk = 30; a.h.accumulate = b.h.accumulate = 1; b.h.grad_input = b.input;
        CHECK(head_loss(NULL, &a.h, &x) == MEMOPT_OK && head_loss(&t, &b.h, &y) == MEMOPT_OK && head_equal(&a, &b, &x, &y));
        head_unmake(&a); head_unmake(&b);
    }
    memopt_thread_pool_destroy(pool);
}
#endif
static void head_parts(void) { /* with count and scale given, two calls add up to one */
    head_case a = head_make(45, 19, 301, 320, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 3);
    head_case b = head_make(45, 19, 301, 320, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, 3);
    memopt_loss x = { 0, 0 }, y = { 0, 0 }, w = { 0, 0 }; memopt_head part = b.h; size_t i;
    a.h.rule.count = 38; a.h.rule.scale = 1024; a.h.chunk = 64;
    CHECK(head_loss(NULL, &a.h, &x) == MEMOPT_OK && x.counted == 38);
    part.rule = a.h.rule; part.rows = 20; part.chunk = 8;
    CHECK(head_loss(NULL, &part, &y) == MEMOPT_OK);
    part.rows = 25; part.accumulate = 1;
    part.input = (const float *)b.input + 20 * 19; part.grad_input = (float *)b.grad_input + 20 * 19; part.targets += 20; part.losses += 20;
    CHECK(head_loss(NULL, &part, &w) == MEMOPT_OK);
    CHECK(!memcmp(a.grad_weights, b.grad_weights, a.out_gradient) && !memcmp(a.grad_input, b.grad_input, a.in) && !memcmp(a.losses, b.losses, 45 * 4));
    CHECK(y.counted + w.counted == 38 && fabs(y.loss + w.loss - x.loss) < 1e-12);
    for (i = 0; i < 19 * 19; ++i) CHECK_AT(memopt_i_float_bits(((float *)b.grad_weights)[301 * 19 + i]) == 0, i);
    head_unmake(&a); head_unmake(&b);
}
static void head_ignored(void) { /* all of the rows, and no rows */
    head_case c = head_make(5, 4, 6, 8, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, MEMOPT_TYPE_F16, 3); memopt_loss out = { 7, 7 }; size_t i;
    for (i = 0; i < 5; ++i) c.targets[i] = -1;
    CHECK(head_loss(NULL, &c.h, &out) == MEMOPT_OK && !(out.loss > 0) && !(out.loss < 0) && out.counted == 0);
    for (i = 0; i < c.in; ++i) CHECK(((unsigned char *)c.grad_input)[i] % 128 == 0); /* 0, of any sign */
    for (i = 0; i < c.out_gradient; ++i) CHECK(((unsigned char *)c.grad_weights)[i] % 128 == 0);
    for (i = 0; i < 5; ++i) CHECK(memopt_i_float_bits(c.losses[i]) == 0);
    memset(c.grad_weights, 0x11, c.out_gradient);
    c.h.rows = 0; c.h.accumulate = 1; out.counted = 7; out.loss = 7;
    CHECK(head_loss(NULL, &c.h, &out) == MEMOPT_OK && !(out.loss > 0) && out.counted == 0);
    for (i = 0; i < c.out_gradient; ++i) CHECK(((unsigned char *)c.grad_weights)[i] == 0x11);
    c.h.accumulate = 0; c.h.input = NULL; c.h.targets = NULL;
    CHECK(head_loss(NULL, &c.h, &out) == MEMOPT_OK);
    for (i = 0; i < c.out_gradient; ++i) CHECK(((unsigned char *)c.grad_weights)[i] == 0);
    c.h.rows = 5;
    head_unmake(&c);
}
static void head_loss_only(void) {
    head_case a = head_make(21, 9, 50, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 1), b = head_make(21, 9, 50, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 1);
    memopt_loss x = { 0, 0 }, y = { 0, 0 };
    b.h.grad_input = b.h.grad_weights = NULL; b.h.chunk = 4;
    CHECK(head_loss(NULL, &a.h, &x) == MEMOPT_OK && head_loss(NULL, &b.h, &y) == MEMOPT_OK && head_equal(&a, &b, &x, &y));
    head_unmake(&a); head_unmake(&b);
}
static void head_some_logits(void) {
    head_case c = head_make(12, 33, 70, 80, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16, MEMOPT_TYPE_F32, 1); size_t first, count, i, k, bytes = memopt_gemm_scratch(NULL);
    float *logits = (float *)head_alloc(12 * 70 * 4), *again = (float *)head_alloc(12 * 70 * 4); void *scratch = head_alloc(bytes); memopt_ops o = head_ops(NULL, scratch, bytes);
    c.targets[0] = 1000; /* not looked at, as are the gradients */
    c.h.grad_input = NULL; c.h.grad_weights = (char *)c.grad_weights + 1; c.h.losses = NULL;
    CHECK(memopt_head_logits(&o, &c.h, 0, 12, logits) == MEMOPT_OK);
    for (i = 0; i < 12 * 70; ++i) {
        double sum = 0, of = 0;
        for (k = 0; k < 33; ++k) {
            const double x = head_get(MEMOPT_TYPE_BF16, c.input, i / 70 * 33 + k) * head_get(MEMOPT_TYPE_F16, c.weights, i % 70 * 33 + k);
            sum += x; of += fabs(x);
        }
        CHECK_AT(fabs((double)logits[i] - sum) <= of * ldexp(33, -24), i);
    }
    for (first = 0; first <= 12; ++first)
        for (count = 0; count <= 12 - first; count += 3) {
            memset(again, 0xA5, 12 * 70 * 4);
            CHECK(memopt_head_logits(&o, &c.h, first, count, again) == MEMOPT_OK && !memcmp(again, logits + first * 70, count * 70 * 4));
            for (i = count * 70; i < 12 * 70; ++i) CHECK(memopt_i_float_bits(again[i]) == 0xA5A5A5A5u);
        }
    memset(again, 0xA5, 12 * 70 * 4);
    CHECK(memopt_head_logits(&o, &c.h, 13, 0, again) == MEMOPT_ERR_ARGUMENT && memopt_head_logits(&o, &c.h, 3, 10, again) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_head_logits(&o, &c.h, 1, SIZE_MAX, again) == MEMOPT_ERR_ARGUMENT && memopt_head_logits(&o, NULL, 1, 1, again) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_head_logits(&o, &c.h, 1, 1, NULL) == MEMOPT_ERR_ARGUMENT && memopt_head_logits(&o, &c.h, 1, 1, (float *)(void *)((char *)again + 2)) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_head_logits(&o, &c.h, 1, 1, (float *)c.input) == MEMOPT_ERR_ARGUMENT && memopt_head_logits(&o, &c.h, 1, 1, (float *)c.weights) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_head_logits(&o, &c.h, 1, 1, (float *)scratch) == MEMOPT_ERR_ARGUMENT);
    c.h.input = (char *)again + 64; c.h.rows = 2; /* it begins within the logits */
    CHECK(memopt_head_logits(&o, &c.h, 1, 1, again) == MEMOPT_ERR_ARGUMENT);
    c.h.input = c.input; c.h.rows = 12;
    o.scratch_bytes = bytes - 1;
    CHECK(memopt_head_logits(&o, &c.h, 1, 1, again) == MEMOPT_ERR_BUFFER);
    for (i = 0; i < 12 * 70; ++i) CHECK(memopt_i_float_bits(again[i]) == 0xA5A5A5A5u);
    head_free(logits, 12 * 70 * 4); head_free(again, 12 * 70 * 4); head_free(scratch, bytes); head_unmake(&c);
}
/* A gemm of somebody else's: it gets its scratch, and when it fails, that is told and out is not written. */
typedef struct head_gemm { int calls, fail; void *scratch; size_t columns, depth; } head_gemm;
static memopt_status head_gemm_multiply(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    head_gemm *g = (head_gemm *)user; void *own; memopt_status s; const size_t bytes = memopt_gemm_scratch(threads);
    if (++g->calls == g->fail) return MEMOPT_ERR_DEVICE;
    g->scratch = scratch;
    memset(scratch, 0x77, 100); /* all that was asked for */
    own = head_alloc(bytes);
    s = memopt_gemm_multiply(p, threads, own, bytes);
    head_free(own, bytes);
    return s;
}
static void head_other_gemm(void) {
    head_case a = head_make(21, 9, 50, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 1); memopt_loss x = { 0, 0 }; int fail;
    CHECK(head_loss(NULL, &a.h, &x) == MEMOPT_OK);
    for (fail = 0; fail <= 9; ++fail) {
        head_case b = head_make(21, 9, 50, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 1); memopt_loss y = { 0, 7 };
        head_gemm g = { 0, 0, NULL, 0, 0 }; memopt_ops o = head_ops(NULL, NULL, 0); size_t bytes = 0; void *scratch;
        g.fail = fail; b.h.chunk = 8; o.gemm.multiply_fn = head_gemm_multiply; o.gemm.scratch_bytes = 100; o.gemm.user = &g;
        CHECK(memopt_head_scratch(&o, &b.h, &bytes) == MEMOPT_OK && bytes == 128 + 8 * (50 * 4 + 8));
        scratch = head_alloc(bytes); o.scratch = scratch; o.scratch_bytes = bytes;
        CHECK_AT(memopt_head_loss(&o, &b.h, &y) == (fail ? MEMOPT_ERR_DEVICE : MEMOPT_OK), fail);
        if (fail) CHECK_AT(g.calls == fail && y.counted == 7, fail);
        else CHECK(g.calls == 9 && g.scratch == scratch && head_equal(&a, &b, &x, &y));
        head_free(scratch, bytes); head_unmake(&b);
    }
    head_unmake(&a);
}
static void head_other_gemm_sums(void) { /* called inside of workers */
    int fail;
    for (fail = 0; fail <= 3; ++fail) {
        head_case b = head_make(9, 9, 300, 0, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, 1); memopt_loss y = { 0, 7 };
        head_gemm g = { 0, 0, NULL, 0, 0 }; memopt_ops o = head_ops(NULL, NULL, 0); size_t bytes = 0; void *scratch;
        test_worker_set worker_set = { 0, 0, 0, 0 }; const memopt_threads t = test_workers(&worker_set, 3, 0);
        g.fail = fail ? fail + 1 : 0; b.h.accumulate = 1; o.threads = &t; o.gemm.multiply_fn = head_gemm_multiply; o.gemm.scratch_bytes = 100; o.gemm.user = &g;
        CHECK(memopt_head_scratch(&o, &b.h, &bytes) == MEMOPT_OK);
        scratch = head_alloc(bytes); o.scratch = scratch; o.scratch_bytes = bytes;
        CHECK_AT(memopt_head_loss(&o, &b.h, &y) == (fail ? MEMOPT_ERR_DEVICE : MEMOPT_OK) && (!fail || y.counted == 7), fail);
        CHECK_AT(g.calls == (fail ? 4 : 5), fail); /* logits, three blocks of 128 rows, the gradient of input */
        head_free(scratch, bytes); head_unmake(&b);
    }
}
static void head_bad(void) {
    enum { LAST = 47 };
    int i; size_t k;
    for (i = 0; i < LAST; ++i) {
        head_case c = head_make(6, 5, 7, 8, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 1), d = head_make(6, 5, 7, 8, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 1);
        const size_t need = memopt_gemm_scratch(NULL) + 4 * (8 * 4 + 8); void *scratch = head_alloc(need); memopt_ops o = head_ops(NULL, scratch, need);
        memopt_loss out = { 7, 7 }, *to = &out; memopt_status want = MEMOPT_ERR_ARGUMENT; memopt_threads t; const memopt_head *p = &c.h; memopt_head *h = &c.h; size_t bytes = 7;
        int shape = 1;
        memset(&t, 0, sizeof t);
        h->chunk = 4;
        switch (i) {
        case 0: p = NULL; break;                           case 1: h->width = 0; break;
        case 2: h->vocabulary = 0; break;                  case 3: h->padded = 6; break;
        case 4: h->type = (memopt_type)3; break;           case 5: h->weight_type = (memopt_type)3; break;
        case 6: h->gradient_type = (memopt_type)3; break;  case 7: h->rule.scale = -1; break;
        case 8: h->rule.smoothing = 1.5f; break;           case 9: h->rule.z_weight = -1; break;
        case 10: h->rows = SIZE_MAX / 4; want = MEMOPT_ERR_OVERFLOW; break;
        case 11: h->padded = SIZE_MAX / 4; want = MEMOPT_ERR_OVERFLOW; break;
        case 12: h->width = SIZE_MAX / 4; want = MEMOPT_ERR_OVERFLOW; break;
        case 13: h->width = 1; h->rows = h->chunk = (SIZE_MAX >> 20) + 1; h->padded = 1 << 20; want = MEMOPT_ERR_OVERFLOW; break;
        case 14: t.worker_count = 3; o.threads = &t; break; case 15: o.gemm.scratch_bytes = 64; break;
        case 16: o.scratch = (char *)scratch + 4; break;
        default: shape = 0;
        }
        if (shape) CHECK_AT(memopt_head_scratch(&o, p, &bytes) == want && bytes == 7, i);
        else CHECK_AT(memopt_head_scratch(&o, p, &bytes) == MEMOPT_OK && bytes == need, i);
        switch (i) {
        case 17: h->input = NULL; break;                   case 18: h->input = (char *)c.input + 2; break;
        case 19: h->weights = NULL; break;                 case 20: h->weights = (char *)c.weights + 2; break;
        case 21: h->targets = NULL; break;                 case 22: h->targets = (const int32_t *)(const void *)((char *)c.targets + 2); break;
        case 23: h->grad_input = (char *)c.grad_input + 1; break;
        case 24: h->grad_weights = (char *)c.grad_weights + 1; break;
        case 25: h->losses = (float *)(void *)((char *)c.losses + 1); break;
        case 26: c.targets[5] = 7; break;                  case 27: c.targets[0] = INT32_MAX; break;
        case 28: to = NULL; break;                         case 29: o.scratch_bytes = need - 1; want = MEMOPT_ERR_BUFFER; break;
        case 30: o.scratch = NULL; o.scratch_bytes = 0; want = MEMOPT_ERR_BUFFER; break;
        case 31: h->grad_input = (float *)c.input + 1; break;
        case 32: h->grad_input = c.weights; break;         case 33: h->grad_input = c.grad_weights; break;
        case 34: h->grad_weights = c.weights; break;       case 35: h->grad_weights = c.input; break;
        case 36: h->losses = (float *)c.input + 29; break; case 37: h->losses = (float *)(void *)c.targets; break;
        case 38: h->losses = (float *)c.weights; break;    case 39: h->losses = (float *)c.grad_input; break;
        case 40: h->losses = (float *)c.grad_weights; break; case 41: h->grad_input = scratch; break;
        case 42: h->input = (char *)scratch + need - 64; break; case 43: h->weights = scratch; break;
        case 44: h->grad_weights = scratch; break;         case 45: h->losses = (float *)scratch; break;
        case 46: h->targets = (const int32_t *)c.grad_weights; break;
        }
        CHECK_AT(memopt_head_loss(&o, p, to) == want && out.counted == 7, i);
        CHECK_AT(!memcmp(c.input, d.input, d.in) && !memcmp(c.weights, d.weights, d.out) && !memcmp(c.grad_weights, d.grad_weights, d.out_gradient), i);
        CHECK_AT(!memcmp(c.grad_input, d.grad_input, d.in) && !memcmp(c.losses, d.losses, 24), i);
        for (k = 0; k < need; ++k) if (((unsigned char *)scratch)[k] != 0xA5) break;
        CHECK_AT(k == need, i);
        c.h.rows = 6;
        head_free(scratch, need); head_unmake(&c); head_unmake(&d);
    }
    { memopt_head h; memset(&h, 0, sizeof h); h.width = h.vocabulary = 1; CHECK(memopt_head_scratch(NULL, &h, NULL) == MEMOPT_ERR_ARGUMENT); }
}
/* Parts without a finite logit, and with a NaN. */
static void head_entropy_joins(void) {
    const float inf = INFINITY; memopt_cross_entropy_row a = { 2, 1.5f, 1, 4 }, none = { -inf, 0, -inf, 0 }, r; int order;
    none.sum = head_nan(); /* of exp(-inf + inf) */
    for (order = 0; order < 2; ++order) {
        r = order ? memopt_cross_entropy_join(a, none) : memopt_cross_entropy_join(none, a);
        CHECK(r.largest == 2 && r.sum == 1.5f && r.at == 1 && r.total == 4);
        none.largest = head_nan();
        r = order ? memopt_cross_entropy_join(a, none) : memopt_cross_entropy_join(none, a);
        CHECK((memopt_i_float_bits(r.largest) & 0x7fffffff) > 0x7f800000); /* by the bits, also under -ffast-math */
        none.largest = -inf;
    }
    r = memopt_cross_entropy_join(none, none);
    CHECK(r.largest == -inf);
    none.largest = -2e38f; none.sum = 3; a.largest = 2e38f;
    r = memopt_cross_entropy_join(none, a);
    CHECK(r.largest == 2e38f && r.sum == 1.5f);
}
/* Why: each change to what is right is told by its own line. */
#define ENTROPY_SAYS(change, call, want, text) REFUSES(o.error, (x = right, o.scratch_bytes = 256, change), \
    memopt_cross_entropy_##call, MEMOPT_ERR_##want, "cross-entropy: " text)
static void head_entropy_errors(void) {
    static float room[256];
    static double scratch[64];
    int32_t targets[8] = { 0, 1, 2, -1, 0, 1, 2, 3 };
    memopt_cross_entropy_row parts[8];
    memopt_cross_entropy right, x;
    memopt_loss out;
    memopt_ops o;
    size_t bytes;

    memset(&o, 0, sizeof o);
    o.scratch = (void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
    o.scratch_bytes = 256;
    memset(&right, 0, sizeof right);
    right.rows = 8;
    right.vocabulary = 5;
    right.logits = room;
    right.targets = targets;
    right.losses = room + 64;
    ACCEPTS(o.error, x = right, memopt_cross_entropy_loss(&o, &x, &out));
    ACCEPTS(o.error, x = right, scratch_of_cross_entropy(&o, &x, &bytes));
    ENTROPY_SAYS((void)0, loss(&o, NULL, &out), ARGUMENT, "its struct is NULL");
    ENTROPY_SAYS((void)0, loss(&o, &x, NULL), ARGUMENT, "out is NULL");
    ENTROPY_SAYS(x.type = (memopt_type)3, loss(&o, &x, &out), ARGUMENT, "type 3, no such memopt_type");
    ENTROPY_SAYS(x.keep_logits = 77, loss(&o, &x, &out), ARGUMENT, "keep_logits 77, must be 0 or 1");
    ENTROPY_SAYS(x.vocabulary = 0, loss(&o, &x, &out), ARGUMENT, "vocabulary is 0");
    ENTROPY_SAYS(x.whole = 5, loss(&o, &x, &out), ARGUMENT, "whole is that of a part");
    ENTROPY_SAYS(x.first = 1, loss(&o, &x, &out), ARGUMENT, "whole is that of a part");
    ENTROPY_SAYS(x.whole = 4, measure(&o, &x, parts), ARGUMENT, "whole 4, at least vocabulary 5");
    ENTROPY_SAYS((x.whole = 7, x.first = 3), measure(&o, &x, parts), ARGUMENT, "first 3, at most whole - vocabulary 2");
    ENTROPY_SAYS(x.whole = 7, measure(&o, &x, NULL), ARGUMENT, "rows is NULL");
    ENTROPY_SAYS(x.whole = 7, part(&o, &x, NULL, &out), ARGUMENT, "rows is NULL");
    ENTROPY_SAYS(x.whole = 7, measure(&o, &x, (memopt_cross_entropy_row *)(void *)room), ARGUMENT, "logits overlaps rows");
    ENTROPY_SAYS(x.whole = 3, part(&o, &x, parts, &out), ARGUMENT, "whole 3, at least vocabulary 5");
    ACCEPTS(o.error, (x = right, x.whole = 7, x.first = 2), memopt_cross_entropy_measure(&o, &x, parts));
    ACCEPTS(o.error, (x = right, x.whole = 7, x.first = 2), memopt_cross_entropy_part(&o, &x, parts, &out));
    ENTROPY_SAYS(x.stride = 4, loss(&o, &x, &out), ARGUMENT, "stride 4, at least vocabulary 5");
    ENTROPY_SAYS(x.rule.scale = -2, loss(&o, &x, &out), ARGUMENT, "rule.scale -2, finite and at least 0");
    ENTROPY_SAYS(x.rule.smoothing = 1.5f, loss(&o, &x, &out), ARGUMENT, "rule.smoothing 1.5, at least 0 and at most 1");
    ENTROPY_SAYS(x.rule.z_weight = -1, loss(&o, &x, &out), ARGUMENT, "rule.z_weight -1, finite and at least 0");
    ENTROPY_SAYS(x.logits = NULL, loss(&o, &x, &out), ARGUMENT, "logits is NULL");
    ENTROPY_SAYS(x.targets = NULL, loss(&o, &x, &out), ARGUMENT, "targets is NULL");
    ENTROPY_SAYS(x.losses = (float *)(void *)((char *)room + 257), loss(&o, &x, &out), ARGUMENT, "losses is misaligned");
    ENTROPY_SAYS(x.losses = room + 39, loss(&o, &x, &out), ARGUMENT, "losses overlaps logits");
    ENTROPY_SAYS(x.losses = (float *)(void *)targets, loss(&o, &x, &out), ARGUMENT, "losses overlaps targets");
    ENTROPY_SAYS(x.losses = (float *)o.scratch, loss(&o, &x, &out), ARGUMENT, "scratch overlaps losses");
    ENTROPY_SAYS(o.scratch_bytes = 63, loss(&o, &x, &out), BUFFER, "scratch_bytes 63, at least 64");
    ENTROPY_SAYS(x.rows = SIZE_MAX / 8, loss(&o, &x, &out), OVERFLOW, "logits is larger than memory can be");
    targets[6] = 5;
    targets[7] = 9;
    ENTROPY_SAYS((void)0, loss(&o, &x, &out), ARGUMENT, "target 5 at row 6, limit 5");
}
#define HEAD_SAYS(change, call, want, text) REFUSES(o.error, (x = right, o = fine, change), memopt_head_##call, \
    MEMOPT_ERR_##want, "head: " text)
static memopt_status head_broken_gemm(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    (void)user; (void)p; (void)threads; (void)scratch;
    return MEMOPT_ERR_DEVICE;
}
static void head_errors(void) {
    static float room[512];
    int32_t targets[8] = { 0, 1, 2, -1, 0, 1, 2, 3 };
    const size_t need = MEMOPT_GEMM_SCRATCH + 8 * (5 * 4 + 8);
    memopt_head right, x;
    memopt_loss out;
    memopt_ops fine = head_ops(NULL, head_alloc(need), need), o = fine;
    size_t bytes = 0;

    memset(&right, 0, sizeof right);
    right.rows = 8;
    right.width = 4;
    right.vocabulary = 5;
    right.input = room;
    right.weights = room + 64;
    right.targets = targets;
    right.grad_input = room + 128;
    right.grad_weights = room + 192;
    right.losses = room + 256;
    ACCEPTS(o.error, x = right, memopt_head_loss(&o, &x, &out));
    ACCEPTS(o.error, x = right, memopt_head_scratch(&o, &x, &bytes));
    ACCEPTS(o.error, x = right, memopt_head_logits(&o, &x, 0, 8, room + 300));
    HEAD_SAYS(x.accumulate = 2, loss(&o, &x, &out), ARGUMENT, "accumulate 2, must be 0 or 1");
    CHECK(bytes == need);
    HEAD_SAYS((void)0, scratch(&o, &x, NULL), ARGUMENT, "bytes is NULL");
    HEAD_SAYS((void)0, scratch(&o, NULL, &bytes), ARGUMENT, "its struct is NULL");
    HEAD_SAYS((void)0, loss(&o, &x, NULL), ARGUMENT, "out is NULL");
    HEAD_SAYS(x.width = 0, scratch(&o, &x, &bytes), ARGUMENT, "width is 0");
    HEAD_SAYS(x.vocabulary = 0, scratch(&o, &x, &bytes), ARGUMENT, "vocabulary is 0");
    HEAD_SAYS(x.padded = 4, loss(&o, &x, &out), ARGUMENT, "padded 4, at least vocabulary 5");
    HEAD_SAYS(x.rule.smoothing = -1, loss(&o, &x, &out), ARGUMENT, "rule.smoothing -1, at least 0 and at most 1");
    HEAD_SAYS(x.type = (memopt_type)3, loss(&o, &x, &out), ARGUMENT, "type 3, no such memopt_type");
    HEAD_SAYS(x.weight_type = (memopt_type)3, loss(&o, &x, &out), ARGUMENT, "weight_type 3, no such memopt_type");
    HEAD_SAYS(x.gradient_type = (memopt_type)3, loss(&o, &x, &out), ARGUMENT, "gradient_type 3, no such memopt_type");
    HEAD_SAYS(x.rows = SIZE_MAX / 8, loss(&o, &x, &out), OVERFLOW, "input is larger than memory can be");
    HEAD_SAYS(x.padded = SIZE_MAX / 8, loss(&o, &x, &out), OVERFLOW, "weights is larger than memory can be");
    HEAD_SAYS((x.width = 1, x.rows = x.chunk = (SIZE_MAX >> 20) + 1, x.padded = 1 << 20), loss(&o, &x, &out), OVERFLOW,
              "scratch is larger than memory can be");
    HEAD_SAYS(x.input = NULL, loss(&o, &x, &out), ARGUMENT, "input is NULL");
    HEAD_SAYS(x.weights = NULL, loss(&o, &x, &out), ARGUMENT, "weights is NULL");
    HEAD_SAYS(x.targets = NULL, loss(&o, &x, &out), ARGUMENT, "targets is NULL");
    HEAD_SAYS(x.targets = (const int32_t *)(const void *)((const char *)targets + 2), loss(&o, &x, &out), ARGUMENT,
              "targets is misaligned");
    HEAD_SAYS(x.grad_input = room + 1, loss(&o, &x, &out), ARGUMENT, "grad_input overlaps input");
    HEAD_SAYS(x.grad_weights = room + 65, loss(&o, &x, &out), ARGUMENT, "grad_weights overlaps weights");
    HEAD_SAYS(x.losses = room + 129, loss(&o, &x, &out), ARGUMENT, "losses overlaps grad_input");
    HEAD_SAYS(x.losses = (float *)o.scratch, loss(&o, &x, &out), ARGUMENT, "scratch overlaps losses");
    HEAD_SAYS(o.scratch_bytes = need - 1, loss(&o, &x, &out), BUFFER, "scratch_bytes 786655, at least 786656");
    HEAD_SAYS((void)0, logits(&o, &x, 9, 0, room), ARGUMENT, "first 9, at most rows 8");
    HEAD_SAYS((void)0, logits(&o, &x, 6, 3, room), ARGUMENT, "count 3, at most rows - first 2");
    HEAD_SAYS((void)0, logits(&o, &x, 0, 1, NULL), ARGUMENT, "logits is NULL");
    HEAD_SAYS((void)0, logits(&o, &x, 0, 1, room + 31), ARGUMENT, "logits overlaps input");
    HEAD_SAYS(o.scratch_bytes = 4096, logits(&o, &x, 0, 1, room + 300), BUFFER, "scratch_bytes 4096, at least 786432");
    HEAD_SAYS(o.gemm.multiply_fn = head_broken_gemm, loss(&o, &x, &out), DEVICE, "the gemm failed");
    HEAD_SAYS(o.gemm.multiply_fn = head_broken_gemm, logits(&o, &x, 0, 1, room + 300), DEVICE, "the gemm failed");
    targets[7] = 50300;
    HEAD_SAYS((void)0, loss(&o, &x, &out), ARGUMENT, "target 50300 at row 7, limit 5");
    head_free(fine.scratch, need);
}
static void test_head(void) {
#if defined(TEST_THREADS) /* under a sanitizer that makes everything slow */
    RUN(head_pool);
    return;
#endif
    RUN(head_differences);
    RUN(head_entropy_definition);
    RUN(head_entropy_large);
    RUN(head_entropy_scales);
    RUN(head_entropy_not_finite);
    RUN(head_entropy_denormals);
    RUN(head_entropy_ignored);
    RUN(head_entropy_same_bits);
    RUN(head_entropy_bad);
    RUN(head_entropy_joins);
    RUN(head_definition);
    RUN(head_same_bits);
    RUN(head_bf16_bits);
    RUN(head_bf16_parts);
    RUN(head_sums_same_bits);
    RUN(head_sums_unbiased);
    RUN(head_sums_chunks);
    RUN(head_sums_sure);
#if defined(MEMOPT_I_POOL)
    RUN(head_pool);
#endif
    RUN(head_parts);
    RUN(head_ignored);
    RUN(head_loss_only);
    RUN(head_some_logits);
    RUN(head_other_gemm);
    RUN(head_other_gemm_sums);
    RUN(head_bad);
    RUN(head_entropy_errors);
    RUN(head_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_head(); return test_totals(); }
#endif
