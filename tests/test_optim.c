/* test_optim.c - optimizers, sections lanes, state, walk and optim; Adafactor has test_adafactor.c, the 8-bit codes have
   test_state_codec.c. Expected values come from the published rules in double, from the formulas of the sections'
   essays in plain float, and from an independent program (the golden bytes). Everything else is one promise seen from
   many sides: the numbers of a step are a function of tensors, groups and t. */
#include "test.h"

enum { OPTIM_TENSORS = 4, OPTIM_BLOCKS = 64 };
#define OPTIM_EACH_MOMENT(j, view) for (j = 0; j < 2; ++j) if ((view).moment[j])
typedef struct optim_spec {
    memopt_optim_kind kind; memopt_state_format state; memopt_i_weights weights; memopt_type gradients;
    int    moment;                        /* first_moment */
    size_t block, min_quantized;
    size_t count[OPTIM_TENSORS];          /* the first 0 ends them */
    size_t first, held;                   /* of tensor 0 */
} optim_spec;
typedef struct optim_model {
    optim_spec spec;
    memopt_optim_desc desc; memopt_optim_tensor tensor[OPTIM_TENSORS]; memopt_optim *optim;
    size_t held[OPTIM_TENSORS], state_bytes[OPTIM_TENSORS], bytes;
    unsigned char *gradients[OPTIM_TENSORS];
    void *blocks[OPTIM_BLOCKS]; int block_count;
    memopt_threads threads; /* of desc, where it has any */
} optim_model;
static unsigned char *optim_block(optim_model *m, size_t bytes, size_t offset) { /* 64-aligned plus offset, not zero */
    unsigned char *p = (unsigned char *)malloc(bytes + 192);
    CHECK(p && m->block_count < OPTIM_BLOCKS);
    m->blocks[m->block_count++] = p;
    memset(p, 0xA5, bytes + 192);
    return p + (64 - (uintptr_t)p % 64) + offset;
}
static void optim_close(optim_model *m) { while (m->block_count) free(m->blocks[--m->block_count]); }
static int optim_wide(const optim_model *m) {
    return memopt_i_weights_of(&m->desc) == MEMOPT_I_WEIGHTS_F32 || memopt_i_weights_of(&m->desc) == MEMOPT_I_WEIGHTS_F32_BF16;
}
static int optim_has_extra(const optim_model *m) { return m->desc.extra != 0; }
/* One more object over the model's tensors: it keeps nothing that a step needs, so objects can take turns. */
static memopt_optim *optim_object(optim_model *m, const memopt_threads *threads) {
    memopt_optim_desc d = m->desc; memopt_optim *o = NULL; size_t bytes = 0; void *memory;
    memopt_threads copied;
    if (threads) d.threads = threads;
    if (d.threads) copied = *d.threads;
    if (d.threads) d.threads = &copied;
    CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_OK && bytes > 0);
    memory = optim_block(m, bytes, 0);
    CHECK(memopt_optim_create(&d, memory, bytes, &o) == MEMOPT_OK && o);
    memset(&copied, 0xA5, sizeof copied); /* nobody reads it any more */
    return o;
}
static void optim_describe(optim_model *m, const optim_spec *s) {
    size_t k;
    memset(m, 0, sizeof *m);
    m->spec = *s;
    m->desc.kind = s->kind; m->desc.state = s->state; test_set_weights(&m->desc, s->weights); m->desc.gradients = s->gradients;
    m->desc.first_moment = s->moment; m->desc.block = s->block; m->desc.min_quantized = s->min_quantized; m->desc.seed = 42;
    m->desc.tensors = m->tensor;
    for (k = 0; k < OPTIM_TENSORS && s->count[k]; ++k) m->tensor[k].count = m->held[k] = s->count[k];
    m->desc.tensor_count = k;
    m->tensor[0].first = s->first; m->tensor[0].held = s->held;
    m->held[0] = s->held ? s->held : s->count[0] - s->first;
}
static void optim_open(optim_model *m, const optim_spec *s, const memopt_threads *threads) {
    size_t k;
    optim_describe(m, s);
    for (k = 0; k < m->desc.tensor_count; ++k) { /* aligned to their elements, and no more */
        m->tensor[k].weights = optim_block(m, m->held[k] * 4, optim_wide(m) ? 4 : 2);
        if (optim_has_extra(m)) m->tensor[k].extra = optim_block(m, m->held[k] * 2, 6);
        m->gradients[k] = optim_block(m, m->held[k] * 4, s->gradients == MEMOPT_TYPE_F32 ? 12 : 10);
        m->tensor[k].gradients = m->gradients[k];
        CHECK(memopt_optim_state_bytes(&m->desc, k, &m->state_bytes[k]) == MEMOPT_OK);
        m->tensor[k].state = m->state_bytes[k] ? optim_block(m, m->state_bytes[k], 0) : NULL;
    }
    if (threads) m->threads = *threads;
    if (threads) m->desc.threads = &m->threads;
    CHECK(memopt_optim_bytes(&m->desc, &m->bytes) == MEMOPT_OK);
    m->optim = optim_object(m, NULL);
    for (k = 0; k < m->desc.tensor_count; ++k) {
        CHECK(memopt_optim_state_init(m->optim, k) == MEMOPT_OK);
        CHECK(memopt_optim_state_check(m->optim, k, m->state_bytes[k]) == MEMOPT_OK);
    }
}
/* place_states: the states lie behind the object, one after another, and are those that memopt_optim_state_init()
   begins. What is refused changes neither tensors nor memory. */
static void optim_placed_one(const optim_spec *spec) {
    optim_model m;
    memopt_optim_tensor tensors[OPTIM_TENSORS];
    memopt_optim_desc d;
    memopt_optim *o = NULL;
    unsigned char *block, *at;
    size_t bytes = 0, total, k;

    optim_open(&m, spec, NULL);
    total = m.bytes;
    for (k = 0; k < m.desc.tensor_count; ++k) total += m.state_bytes[k];
    memcpy(tensors, m.tensor, sizeof tensors);
    d = m.desc;
    d.tensors = tensors;
    d.place_states = 1;
    CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_OK && bytes == total);
    block = optim_block(&m, bytes + 1, 0);
    CHECK(memopt_optim_create(&d, block, bytes - 1, &o) == MEMOPT_ERR_BUFFER && !o);
    CHECK(!memcmp(tensors, m.tensor, sizeof tensors) && block[0] == 0xA5 && block[bytes - 1] == 0xA5);
    CHECK(memopt_optim_create(&d, block, bytes, &o) == MEMOPT_OK && (void *)o == (void *)block && block[bytes] == 0xA5);
    for (at = block + m.bytes, k = 0; k < m.desc.tensor_count; at += m.state_bytes[k++]) {
        CHECK_AT(tensors[k].state == (m.state_bytes[k] ? at : NULL), k);
        CHECK_AT(!m.state_bytes[k] || !memcmp(at, m.tensor[k].state, m.state_bytes[k]), k);
        CHECK_AT(memopt_optim_state_check(o, k, m.state_bytes[k]) == MEMOPT_OK, k);
    }
    CHECK(at == block + bytes);
    optim_close(&m);
}

static void optim_placed(void) {
    optim_spec s;
    memopt_optim_desc d;
    memopt_optim_tensor t;
    size_t bytes = 77;
    int kind, state;

    memset(&s, 0, sizeof s);
    s.count[0] = 5000; s.count[1] = 7; s.count[2] = 4096;
    for (kind = MEMOPT_OPTIM_ADAMW; kind <= MEMOPT_OPTIM_RMSPROP; ++kind)
        for (state = MEMOPT_STATE_F32; state <= MEMOPT_STATE_BNB; ++state) {
            s.kind = (memopt_optim_kind)kind;
            s.state = (memopt_state_format)state;
            if (state == MEMOPT_STATE_BNB && kind > MEMOPT_OPTIM_ADAM) continue;
            for (s.moment = 0; s.moment < 2; ++s.moment) optim_placed_one(&s);
        }
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    t.count = 100;
    d.tensors = &t;
    d.tensor_count = 1;
    for (d.place_states = -1; d.place_states < 3; d.place_states += 3)
        CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_ERR_ARGUMENT && bytes == 77);
}

/* An arena of at most `capacity` bytes; kind 0: memory, 1: counting, 2: a device's. */
static memopt_arena *optim_arena(memopt_source *source, memopt_ledger *ledger, int kind, size_t capacity) {
    memopt_arena_desc d;
    memopt_arena *a = NULL;

    memset(&d, 0, sizeof d);
    CHECK(memopt_source_allocator(NULL, source) == MEMOPT_OK);
    if (kind == 1) CHECK(memopt_source_counting(source) == MEMOPT_OK);
    if (kind == 2) source->host_visible = 0;
    d.source = source; d.capacity = capacity; d.ledger = ledger; d.alignment = 16;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
    return a;
}

static void optim_opened_one(const memopt_optim_desc *desc, memopt_ledger *ledger) {
    memopt_optim_tensor tensors[3], before[3];
    memopt_optim_desc d = *desc;
    memopt_error why;
    memopt_optim *o = NULL, *second = NULL;
    memopt_source source;
    memopt_arena *a;
    size_t bytes = 0, k;

    memcpy(before, desc->tensors, sizeof before);
    memcpy(tensors, before, sizeof tensors);
    d.tensors = tensors; d.place_states = 1; d.error = &why;
    CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_OK);
    d.place_states = 0; /* open means it anyway */
    a = optim_arena(&source, ledger, 0, bytes + 128);
    CHECK(memopt_arena_push(a, 16, 0) != NULL); /* so that what follows is not aligned by chance */
    CHECK(memopt_optim_open(&d, a, &o) == MEMOPT_OK && o && (uintptr_t)o % 64 == 0);
    CHECK(memopt_arena_get_stats(a).used_low == 64 + bytes && memopt_ledger_usage(ledger, MEMOPT_TAG_OPTIMIZER).now >= bytes);
    for (k = 0; k < d.tensor_count; ++k) {
        size_t state = 0;
        CHECK(memopt_optim_state_bytes(&d, k, &state) == MEMOPT_OK);
        CHECK_AT(!state == !tensors[k].state && memopt_optim_state_check(o, k, state) == MEMOPT_OK, k);
    }
    memopt_optim_close(o); /* the arena's: nothing happens */
    memcpy(tensors, before, sizeof tensors);
    CHECK(memopt_optim_open(&d, a, &second) == MEMOPT_ERR_MEMORY && !second && !memcmp(tensors, before, sizeof before));
    CHECK(why.status == MEMOPT_ERR_MEMORY && why.got.count == bytes && memopt_arena_get_stats(a).used_low == 64 + bytes);
    memopt_arena_destroy(a);
    a = optim_arena(&source, ledger, 1, (size_t)1 << 28);
    o = (memopt_optim *)&d;
    CHECK(memopt_optim_open(&d, a, &o) == MEMOPT_OK && !o && !memcmp(tensors, before, sizeof before));
    CHECK(memopt_arena_get_stats(a).peak == bytes);
    memopt_arena_destroy(a);
    CHECK(memopt_optim_open(&d, NULL, &o) == MEMOPT_OK && o && tensors[0].state != before[0].state);
    CHECK((unsigned char *)tensors[0].state > (unsigned char *)o && (unsigned char *)tensors[0].state < (unsigned char *)o + bytes);
    memopt_optim_close(o);
}

static void optim_opened(void) {
    memopt_ledger *ledger = NULL;
    memopt_source source;
    memopt_arena *device;
    memopt_optim *o = NULL;
    memopt_error why;
    optim_spec s;
    optim_model m;
    int state;

    CHECK(memopt_ledger_create(NULL, &ledger) == MEMOPT_OK);
    memset(&s, 0, sizeof s);
    s.count[0] = 5000; s.count[1] = 7; s.count[2] = 4096;
    for (state = MEMOPT_STATE_F32; state <= MEMOPT_STATE_BNB; ++state) {
        s.state = (memopt_state_format)state;
        optim_open(&m, &s, NULL);
        optim_opened_one(&m.desc, ledger);
        optim_close(&m);
    }
    optim_open(&m, &s, NULL);
    m.desc.error = &why;
    device = optim_arena(&source, NULL, 2, 1 << 20);
    CHECK(memopt_optim_open(&m.desc, device, &o) == MEMOPT_ERR_UNSUPPORTED && !o);
    CHECK(test_error_says(why, MEMOPT_ERR_UNSUPPORTED, "optim: arena is a device's"));
    CHECK(memopt_arena_get_stats(device).used_low == 0);
    memopt_arena_destroy(device);
    CHECK(memopt_optim_open(&m.desc, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(why, MEMOPT_ERR_ARGUMENT, "optim: out is NULL"));
    m.desc.block = 33;
    CHECK(memopt_optim_open(&m.desc, NULL, &o) == MEMOPT_ERR_ARGUMENT && !o);
    CHECK(test_error_says(why, MEMOPT_ERR_ARGUMENT, "optim: block 33, must be a multiple of 32"));
    CHECK(memopt_optim_open(NULL, NULL, &o) == MEMOPT_ERR_ARGUMENT && !o);
    memopt_optim_close(NULL);
    optim_close(&m);
    memopt_ledger_destroy(ledger);
}

static float optim_widen(uint16_t high) { return memopt_i_bits_float((uint32_t)high << 16); }
static void optim_set_weight(optim_model *m, size_t k, size_t i, float w) { /* w: finite; formats of 16 bits cut it */
    uint32_t bits = memopt_i_float_bits(w); uint16_t *low = (uint16_t *)m->tensor[k].extra, *high = (uint16_t *)m->tensor[k].weights;
    switch (memopt_i_weights_of(&m->desc)) {
    case MEMOPT_I_WEIGHTS_F32_BF16: low[i] = 0xABCD; ((float *)m->tensor[k].weights)[i] = w; break;
    case MEMOPT_I_WEIGHTS_F32: ((float *)m->tensor[k].weights)[i] = w; break;
    case MEMOPT_I_WEIGHTS_NONE: break;
    case MEMOPT_I_WEIGHTS_BF16: high[i] = (uint16_t)(bits >> 16); break;
    case MEMOPT_I_WEIGHTS_SPLIT: high[i] = (uint16_t)((bits + 0x8000) >> 16); low[i] = (uint16_t)(bits & 0xffff); break;
    }
}
static float optim_weight(const optim_model *m, size_t k, size_t i) {
    const uint16_t *low = (const uint16_t *)m->tensor[k].extra, *high = (const uint16_t *)m->tensor[k].weights;
    if (optim_wide(m)) return ((const float *)m->tensor[k].weights)[i];
    if (memopt_i_weights_of(&m->desc) == MEMOPT_I_WEIGHTS_BF16) return optim_widen(high[i]);
    return memopt_i_bits_float(((uint32_t)high[i] << 16) - ((uint32_t)(low[i] & 0x8000) << 1) + low[i]); /* high is the nearest */
}
/* IEEE half precision by its definition. What it does not hold is cut; from 65536 on it is infinite. */
static uint16_t optim_half(float x) {
    const uint32_t sign = memopt_i_float_bits(x) >> 16 & 0x8000; const double a = fabs((double)x); int exponent;
    if ((memopt_i_float_bits(x) & 0x7fffffff) > 0x7f800000) return (uint16_t)(sign | 0x7e01);
    if (a >= 65536) return (uint16_t)(sign | 0x7c00);
    if (a < ldexp(1, -14)) return (uint16_t)(sign | (uint32_t)ldexp(a, 24));
    (void)frexp(a, &exponent);
    return (uint16_t)(sign | (uint32_t)(exponent + 14) << 10 | ((uint32_t)ldexp(a, 11 - exponent) & 0x3ff));
}
static float optim_half_value(uint16_t code) {
    const int exponent = code >> 10 & 31, mantissa = code & 0x3ff;
    const double a = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) return memopt_i_bits_float((uint32_t)(code & 0x8000) << 16 | (mantissa ? 0x7fc00000u : 0x7f800000u));
    return (float)(code & 0x8000 ? -a : a);
}
static void optim_set_gradient(optim_model *m, size_t k, size_t i, float g) {
    const uint32_t bits = memopt_i_float_bits(g);
    const uint16_t high = m->desc.gradients == MEMOPT_TYPE_F16 ? optim_half(g) : (uint16_t)(bits >> 16);
    if (m->desc.gradients == MEMOPT_TYPE_F32) memcpy(m->gradients[k] + 4 * i, &bits, 4);
    else memcpy(m->gradients[k] + 2 * i, &high, 2);
}
static float optim_gradient(const optim_model *m, size_t k, size_t i) {
    uint16_t high; float g;
    if (m->desc.gradients == MEMOPT_TYPE_F32) { memcpy(&g, m->gradients[k] + 4 * i, 4); return g; }
    memcpy(&high, m->gradients[k] + 2 * i, 2);
    return m->desc.gradients == MEMOPT_TYPE_F16 ? optim_half_value(high) : optim_widen(high);
}
/* Values by (seed, tensor, element of the whole tensor), so that a part of a tensor has those of the whole. */
static float optim_value(uint64_t seed, size_t k, uint64_t i) {
    uint64_t state = seed * 1000 + k + i * UINT64_C(0xd1342543de82ef95); uint32_t bits;
    bits = (uint32_t)(test_random(&state) >> 40); /* 24 bits: exact in a float */
    return ((float)bits - 8388608.0f) * (1.0f / 8388608.0f);
}
static void optim_start(optim_model *m, uint64_t seed) { /* weights that all formats hold */
    size_t k, i;
    for (k = 0; k < m->desc.tensor_count; ++k)
        for (i = 0; i < m->held[k]; ++i) {
            const float w = 0.5f * optim_value(seed, k, m->tensor[k].first + i);
            optim_set_weight(m, k, i, optim_widen((uint16_t)(memopt_i_float_bits(w) >> 16)));
        }
}
static void optim_feed(optim_model *m, uint64_t seed) { /* gradients of several sizes, some of them 0 */
    static const float size[8] = { 1, 0.01f, 0.3f, 1e-4f, 1, 30, 0.1f, 0 }; size_t k, i;
    for (k = 0; k < m->desc.tensor_count; ++k)
        for (i = 0; i < m->held[k]; ++i) {
            const uint64_t at = (uint64_t)m->tensor[k].first + i;
            optim_set_gradient(m, k, i, optim_value(seed, k + 8, at) * size[at / 3 % 8]);
        }
}
static memopt_optim_group optim_group(memopt_optim_kind kind, int moment) { /* nothing that a mistake could hide behind */
    memopt_optim_group g = memopt_optim_group_default(kind);
    g.rate = 0.01; g.weight_decay = 0.1;
    if (kind == MEMOPT_OPTIM_ADAMW || kind == MEMOPT_OPTIM_ADAM || kind == MEMOPT_OPTIM_LAMB) { g.beta1 = 0.8; g.beta2 = 0.97; g.eps = 1e-3; }
    if ((kind == MEMOPT_OPTIM_SGD && moment) || kind == MEMOPT_OPTIM_LARS) g.beta1 = 0.9;
    if (kind == MEMOPT_OPTIM_LARS) g.trust = 0.02;
    if (kind == MEMOPT_OPTIM_RMSPROP) { g.beta1 = moment ? 0.8 : 0; g.beta2 = 0.9; g.eps = 1e-3; }
    return g;
}
static memopt_optim_run optim_run(const memopt_optim_group *g, uint64_t step) {
    memopt_optim_run run;
    memset(&run, 0, sizeof run);
    run.step = step; run.groups = g; run.group_count = 1; run.gradient_factor = 0.5;
    return run;
}
static memopt_optim_view optim_view(const optim_model *m, size_t k) {
    memopt_optim_view v;
    memset(&v, 0, sizeof v);
    CHECK(memopt_optim_state_view(m->optim, k, &v) == MEMOPT_OK);
    return v;
}
static optim_spec optim_of(memopt_optim_kind kind, memopt_state_format state, size_t count) {
    optim_spec s;
    memset(&s, 0, sizeof s);
    s.kind = kind; s.state = state; s.moment = 1; s.min_quantized = 1; s.count[0] = count;
    if (kind == MEMOPT_OPTIM_ADAFACTOR) s.moment = 0;
    return s;
}
/* All that a step writes, to compare with later. */
static size_t optim_bytes_of(const optim_model *m) {
    size_t k, n = 0;
    for (k = 0; k < m->desc.tensor_count; ++k)
        n += m->held[k] * (optim_wide(m) ? 4 : 2) + (optim_has_extra(m) ? m->held[k] * 2 : 0) + m->state_bytes[k];
    return n;
}
static void optim_copy(const optim_model *m, unsigned char *to, const unsigned char *from, int back) {
    size_t k, at = 0; int i;
    for (k = 0; k < m->desc.tensor_count; ++k)
        for (i = 0; i < 3; ++i) {
            void *p = i == 0 ? m->tensor[k].weights : i == 1 ? m->tensor[k].extra : m->tensor[k].state;
            const size_t n = i == 0 ? m->held[k] * (optim_wide(m) ? 4 : 2) : i == 2 ? m->state_bytes[k]
                           : optim_has_extra(m) ? m->held[k] * 2 : 0;
            if (!n) continue;
            if (back) memcpy(p, from + at, n); else memcpy(to + at, p, n);
            at += n;
        }
}
static unsigned char *optim_save(const optim_model *m) { /* to be freed */
    unsigned char *all = (unsigned char *)malloc(optim_bytes_of(m));
    optim_copy(m, all, NULL, 0);
    return all;
}
static void optim_load(const optim_model *m, const unsigned char *all) { optim_copy(m, NULL, all, 1); }
static int optim_is(const optim_model *m, const unsigned char *all) {
    unsigned char *now = optim_save(m); const int same = memcmp(now, all, optim_bytes_of(m)) == 0;
    free(now);
    return same;
}
static void optim_steps(optim_model *m, uint64_t from, uint64_t to) {
    const memopt_optim_group g = optim_group(m->desc.kind, m->desc.first_moment); uint64_t t;
    for (t = from; t <= to; ++t) {
        const memopt_optim_run run = optim_run(&g, t);
        optim_feed(m, t);
        CHECK_AT(memopt_optim_step(m->optim, &run) == MEMOPT_OK, t);
    }
}

/* The published rules, in double. m, v: the moments; NULL where a kind has none. late: the decay after the update. */
typedef struct optim_rule { double *w, *m, *v, *g; size_t n; int late; } optim_rule;
static double optim_norm(const double *x, size_t n) {
    double sum = 0; size_t i;
    for (i = 0; i < n; ++i) sum += x[i] * x[i];
    return sqrt(sum);
}
static void optim_rule_adam(optim_rule *r, memopt_optim_kind kind, const memopt_optim_group *h, double t) {
    const double c1 = 1 - pow(h->beta1, t), c2 = 1 - pow(h->beta2, t); size_t i;
    double *u = (double *)malloc(r->n * sizeof *u), ratio = 1;
    for (i = 0; i < r->n; ++i) {
        const double g = kind == MEMOPT_OPTIM_ADAM ? r->g[i] + h->weight_decay * r->w[i] : r->g[i];
        r->m[i] = h->beta1 * r->m[i] + (1 - h->beta1) * g;
        r->v[i] = h->beta2 * r->v[i] + (1 - h->beta2) * g * g;
        u[i] = r->m[i] / c1 / (sqrt(r->v[i] / c2) + h->eps);
        if (kind == MEMOPT_OPTIM_LAMB) u[i] += h->weight_decay * r->w[i];
    }
    if (kind == MEMOPT_OPTIM_LAMB && (h->weight_decay > 0 || h->always_adapt)) {
        const double a = optim_norm(r->w, r->n), b = optim_norm(u, r->n);
        if (a > 0 && b > 0) ratio = a / b;
    }
    for (i = 0; i < r->n; ++i) {
        const double decay = kind == MEMOPT_OPTIM_ADAMW || r->late ? 1 - h->rate * (kind == MEMOPT_OPTIM_ADAMW ? h->weight_decay : 0) : 1;
        r->w[i] = r->late ? (r->w[i] - h->rate * u[i]) * decay : r->w[i] * decay - h->rate * ratio * u[i];
    }
    free(u);
}
static void optim_rule_step(optim_rule *r, memopt_optim_kind kind, const memopt_optim_group *h, uint64_t t) {
    double lambda = 1, a, b; size_t i;
    if (kind == MEMOPT_OPTIM_ADAMW || kind == MEMOPT_OPTIM_ADAM || kind == MEMOPT_OPTIM_LAMB) { optim_rule_adam(r, kind, h, (double)t); return; }
    if (kind == MEMOPT_OPTIM_LARS) {
        a = optim_norm(r->w, r->n); b = optim_norm(r->g, r->n);
        if (a > 0 && b > 0) lambda = h->trust * a / (b + h->weight_decay * a);
    }
    for (i = 0; i < r->n; ++i) {
        double g = r->g[i], d;
        if (kind == MEMOPT_OPTIM_LION) {
            d = h->beta1 * r->m[i] + (1 - h->beta1) * g;
            r->w[i] *= 1 - h->rate * h->weight_decay;
            r->w[i] -= h->rate * (d > 0 ? 1 : d < 0 ? -1 : 0);
            r->m[i] = h->beta2 * r->m[i] + (1 - h->beta2) * g;
            continue;
        }
        g += h->weight_decay * r->w[i];
        if (kind == MEMOPT_OPTIM_LARS) {
            r->m[i] = h->beta1 * r->m[i] + h->rate * lambda * g; r->w[i] -= r->m[i]; continue;
        }
        d = g;
        if (r->m) {
            r->m[i] = t == 1 ? g : h->beta1 * r->m[i] + (1 - h->dampening) * g;
            d = h->nesterov ? g + h->beta1 * r->m[i] : r->m[i];
        }
        r->w[i] -= h->rate * d;
    }
}
/* torch.optim.RMSprop's, as its documentation states it: alpha is beta2, the momentum beta1, and it is not centered. */
static void optim_rule_rmsprop(optim_rule *r, const memopt_optim_group *h) {
    size_t i;
    for (i = 0; i < r->n; ++i) {
        const double g = r->g[i] + h->weight_decay * r->w[i]; double average;
        r->v[i] = h->beta2 * r->v[i] + (1 - h->beta2) * g * g;
        average = sqrt(r->v[i]) + h->eps;
        if (!r->m) { r->w[i] -= h->rate * g / average; continue; }
        r->m[i] = h->beta1 * r->m[i] + g / average;
        r->w[i] -= h->rate * r->m[i];
    }
}
/* Twenty steps of one variant; how far off the motion of the weights is: the largest error by the bound of rounding, or
   (rms) the root of the mean squares, of the error by the motion. */
static double optim_deviation(const optim_spec *spec, const memopt_optim_group *h, int rms) {
    optim_model m; optim_rule r; uint64_t t; size_t i, k; double worst = 0, error = 0, motion = 0;
    optim_open(&m, spec, NULL);
    optim_start(&m, 1);
    for (k = 0; k < m.desc.tensor_count; ++k) {
        const size_t n = r.n = m.held[k]; double *all = (double *)calloc(n * 5, sizeof *all), *w0 = all + 4 * n;
        r.w = all; r.v = all + 2 * n; r.g = all + 3 * n;
        r.m = spec->moment || (spec->kind != MEMOPT_OPTIM_SGD && spec->kind != MEMOPT_OPTIM_RMSPROP) ? all + n : NULL;
        r.late = spec->state == MEMOPT_STATE_BNB;
        optim_start(&m, 1);
        CHECK(memopt_optim_state_init(m.optim, k) == MEMOPT_OK);
        for (i = 0; i < n; ++i) w0[i] = r.w[i] = (double)optim_weight(&m, k, i);
        for (t = 1; t <= 20; ++t) {
            const memopt_optim_run run = optim_run(h, t);
            optim_feed(&m, t);
            for (i = 0; i < n; ++i) r.g[i] = 0.5 * (double)optim_gradient(&m, k, i);
            if (spec->kind == MEMOPT_OPTIM_RMSPROP) optim_rule_rmsprop(&r, h); else optim_rule_step(&r, spec->kind, h, t);
            CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK && memopt_optim_skipped(m.optim) == 0);
        }
        for (i = 0; i < n; ++i) {
            const double d = fabs((double)optim_weight(&m, k, i) - r.w[i]), moved = fabs(r.w[i] - w0[i]);
            const double bound = 1e-5 * moved + 20 * ldexp(fabs(r.w[i]) + fabs(w0[i]) + moved, -24) + 1e-9;
            if (d / bound > worst || !(d >= 0)) worst = d >= 0 ? d / bound : 1e9;
            error += d * d; motion += moved * moved;
        }
        free(all);
    }
    optim_close(&m);
    return rms ? sqrt(error / motion) : worst;
}
static const char *optim_variant_name[] = { "AdamW", "AdamW, no decay", "AdamW, beta1 0", "Adam", "Adam, no decay", "SGD", "SGD, decay",
    "SGD, momentum", "SGD, dampening", "SGD, Nesterov", "Lion", "LARS", "LARS, no decay", "LAMB", "LAMB, no decay", "LAMB, always",
    "RMSprop", "RMSprop, no decay", "RMSprop, momentum", "RMSprop, momentum 0", "RMSprop, alpha 0" };
enum { OPTIM_VARIANTS = 21 };
static memopt_optim_group optim_variant(int i, optim_spec *s) {
    static const memopt_optim_kind kinds[OPTIM_VARIANTS] = { MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_ADAM, MEMOPT_OPTIM_ADAM,
        MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_LION,
        MEMOPT_OPTIM_LARS, MEMOPT_OPTIM_LARS, MEMOPT_OPTIM_LAMB,
        MEMOPT_OPTIM_LAMB, MEMOPT_OPTIM_LAMB, MEMOPT_OPTIM_RMSPROP, MEMOPT_OPTIM_RMSPROP, MEMOPT_OPTIM_RMSPROP, MEMOPT_OPTIM_RMSPROP,
        MEMOPT_OPTIM_RMSPROP };
    memopt_optim_group g = optim_group(kinds[i], 1);
    s->kind = kinds[i];
    if (i == 1 || i == 4 || i == 5 || i == 12 || i == 14 || i == 15 || i == 17) g.weight_decay = 0;
    if (i == 2) g.beta1 = 0;
    if (i == 5 || i == 6 || i == 16 || i == 17 || i == 20) { s->moment = 0; g.beta1 = 0; }
    if (i == 8) g.dampening = 0.3;
    if (i == 9) g.nesterov = 1;
    if (i == 15) g.always_adapt = 1;
    if (i == 19) g.beta1 = 0;
    if (i == 20) g.beta2 = 0;
    return g;
}
/* How far off leaner states may be: bitsandbytes' own loses the small second moments, Lion's sign flips where it is near 0. */
static double optim_bound(memopt_optim_kind kind, int state) {
    const int one = kind == MEMOPT_OPTIM_SGD || kind == MEMOPT_OPTIM_LARS;
    if (state == MEMOPT_STATE_F32) return 1;
    if (state == MEMOPT_STATE_BF16) return kind == MEMOPT_OPTIM_LION ? 0.04 : 0.006;
    if (state == MEMOPT_STATE_BNB) return 0.5;
    return kind == MEMOPT_OPTIM_LION ? 0.3 : one ? 0.02 : 0.08;
}
static void optim_formulas(void) { /* against double: float states within rounding, leaner ones as stated */
    int i, state;
    for (i = 0; i < OPTIM_VARIANTS; ++i)
        for (state = MEMOPT_STATE_F32; state <= MEMOPT_STATE_BNB; ++state) {
            optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, (memopt_state_format)state, 300);
            memopt_optim_group g; double off;
            s.count[1] = 70;
            g = optim_variant(i, &s);
            if (state == MEMOPT_STATE_BNB && s.kind != MEMOPT_OPTIM_ADAMW && s.kind != MEMOPT_OPTIM_ADAM) continue;
            off = optim_deviation(&s, &g, state != MEMOPT_STATE_F32);
#ifdef TEST_LONG
            printf("%s, state format %d: %.4f\n", optim_variant_name[i], state, off);
#endif
            if (state == MEMOPT_STATE_F32) { if (!(off <= 1)) printf("%s: %g times the bound\n", optim_variant_name[i], off); }
            CHECK_AT(off <= optim_bound(s.kind, state), i * 10 + state);
        }
}
static void optim_formulas_gradients(void) { /* gradients of 16 bits are taken as they are */
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, 301); const memopt_optim_group g = optim_group(MEMOPT_OPTIM_ADAMW, 1);
    int format;
    for (format = MEMOPT_TYPE_BF16; format <= MEMOPT_TYPE_F16; ++format) {
        s.gradients = (memopt_type)format;
        s.kind = MEMOPT_OPTIM_ADAMW;
        CHECK_AT(optim_deviation(&s, &g, 0) <= 1, format);
        s.kind = MEMOPT_OPTIM_LAMB;
        CHECK_AT(optim_deviation(&s, &g, 0) <= 1, format);
        s.kind = MEMOPT_OPTIM_RMSPROP;
        CHECK_AT(optim_deviation(&s, &g, 0) <= 1, format);
    }
}
static void optim_defaults(void) { /* those of the rules that are named */
    static const struct { memopt_optim_kind kind; double rate, beta1, beta2, eps, decay, trust; } want[] = {
        { MEMOPT_OPTIM_ADAMW, 1e-3, 0.9, 0.999, 1e-8, 1e-2, 0 }, { MEMOPT_OPTIM_ADAM, 1e-3, 0.9, 0.999, 1e-8, 0, 0 },
        { MEMOPT_OPTIM_SGD, 1e-3, 0, 0, 0, 0, 0 }, { MEMOPT_OPTIM_LION, 1e-4, 0.9, 0.99, 0, 0, 0 },
        { MEMOPT_OPTIM_LARS, 0.1, 0.9, 0, 0, 1e-4, 1e-3 }, { MEMOPT_OPTIM_LAMB, 1e-3, 0.9, 0.999, 1e-6, 1e-2, 0 },
        { MEMOPT_OPTIM_RMSPROP, 1e-2, 0, 0.99, 1e-8, 0, 0 } };
    size_t i;
    for (i = 0; i < sizeof want / sizeof *want; ++i) {
        const memopt_optim_group g = memopt_optim_group_default(want[i].kind);
        CHECK_AT(memcmp(&g.rate, &want[i].rate, sizeof(double)) == 0 && memcmp(&g.beta1, &want[i].beta1, sizeof(double)) == 0, i);
        CHECK_AT(memcmp(&g.beta2, &want[i].beta2, sizeof(double)) == 0 && memcmp(&g.eps, &want[i].eps, sizeof(double)) == 0, i);
        CHECK_AT(memcmp(&g.weight_decay, &want[i].decay, sizeof(double)) == 0 && memcmp(&g.trust, &want[i].trust, sizeof(double)) == 0, i);
        CHECK_AT(!g.nesterov && !g.always_adapt && !(g.dampening > 0), i);
    }
}

/* One step from a state that is read out, in the float formulas of the essay at `optim_kernels`: every scale to the
   bit, every code the nearest level. */
static int optim_levels(double *level, int is_signed) { /* as in test_state_codec.c: 2^width levels in each octave from 1 down */
    static const char *const widths[2] = { "6554444333322221111100000", "5443332222222210000" };
    int k = (int)strlen(widths[is_signed]), j, n = 0;
    if (is_signed) level[n++] = 0;
    while (k-- > 0)
        for (j = 0; j < 1 << (widths[is_signed][k] - '0'); ++j)
            level[n++] = ldexp(1 + ldexp((double)j, -(widths[is_signed][k] - '0')), -(k + 1));
    level[n++] = 1;
    return n;
}
typedef struct optim_codes { float level[2][256]; int bnb; } optim_codes; /* of each moment, by code */
static void optim_codes_fill(optim_codes *c, int bnb) {
    double level[256]; int i;
    c->bnb = bnb;
    if (bnb) {
        CHECK(memopt_quant_levels(MEMOPT_QUANT_SIGNED, c->level[0]) == MEMOPT_OK && memopt_quant_levels(MEMOPT_QUANT_UNSIGNED, c->level[1]) == MEMOPT_OK);
        return;
    }
    optim_levels(level, 1);
    for (i = 0; i < 256; ++i) c->level[0][i] = (float)(i % 2 ? -level[i / 2] : level[i / 2]);
    optim_levels(level, 0);
    for (i = 0; i < 256; ++i) c->level[1][i] = (float)level[i];
}
/* Is `code` right for x in a block of this scale? By looking at all 256 levels: none is nearer. */
static int optim_nearest(const optim_codes *c, int moment, int code, float x, float absmax) {
    volatile float inverse = 1.0f / absmax, product = x * inverse; double y = (double)product, d; int i;
    if (!(absmax > 0)) return c->bnb ? code == (moment ? 0 : 127) : moment ? code == 0 : code < 2;
    if (!c->bnb && moment) y = (double)fmaf(x, inverse, (float)ldexp(1, -26));
    d = fabs((double)c->level[moment][code] - y);
    if (!c->bnb && !moment && fabs(y) < ldexp(1, -15)) { /* rounds down: the largest that is not above */
        for (i = 0; i < 256; ++i)
            if (fabs((double)c->level[0][i]) <= fabs(y) && fabs((double)c->level[0][i]) > fabs((double)c->level[0][code])) return 0;
        return fabs((double)c->level[0][code]) <= fabs(y) && (code & 1) == (int)(memopt_i_float_bits(x) >> 31);
    }
    for (i = 0; i < 256; ++i) /* of equally near ones: test_state_codec.c, test_quant.c */
        if (fabs((double)c->level[moment][i] - y) < d && (double)c->level[moment][i] * y >= 0) return 0;
    return !((double)c->level[moment][code] * y < 0);
}
static float optim_rounded(double x) { volatile float f = (float)x; return f; } /* of exact products: one rounding */
static void optim_coded_step(memopt_optim_kind kind, int bnb, int level, size_t block, memopt_i_weights weights) {
    enum { N = 700 };
    static optim_codes c; static float m[N], v[N], w[N], scale[2][32]; static uint8_t code[2][N];
    optim_spec s = optim_of(kind, bnb ? MEMOPT_STATE_BNB : MEMOPT_STATE_8BIT, N); optim_model o; memopt_threads threads;
    const memopt_optim_group h = optim_group(kind, 1); const memopt_optim_run run = optim_run(&h, 11); memopt_optim_view view;
    const double f = 0.5, b1 = h.beta1, b2 = h.beta2, c1 = 1 - pow(b1, 11), c2 = 1 - pow(b2, 11); size_t i, b; int j;
    memset(&threads, 0, sizeof threads);
    threads.simd_level = level; s.block = block; s.weights = weights;
    optim_open(&o, &s, &threads);
    optim_start(&o, 1);
    optim_steps(&o, 1, 10);
    optim_codes_fill(&c, bnb);
    view = optim_view(&o, 0);
    CHECK(view.held == N && view.blocks == (N + block - 1) / block && view.bits == 8 && view.moments == 2);
    for (j = 0; j < 2; ++j) { memcpy(code[j], view.moment[j], N); memcpy(scale[j], view.scale[j], view.blocks * 4); }
    optim_feed(&o, 11);
    for (i = 0; i < N; ++i) { /* in float, with one rounding where the essay has one */
        const float x0 = optim_gradient(&o, 0, i), am = scale[0][i / block], av = scale[1][i / block];
        const float lm = c.level[0][code[0][i]], lv = c.level[1][code[1][i]];
        const int coupled = kind == MEMOPT_OPTIM_ADAM;
        const float g1 = (float)((1 - b1) * (coupled ? 1 : f)), g2 = (float)((1 - b2) * (coupled ? 1 : f * f)); float x = x0, t;
        w[i] = optim_weight(&o, 0, i);
        if (coupled) x = fmaf((float)h.weight_decay, w[i], optim_rounded(0.5 * (double)x0));
        t = optim_rounded((double)optim_rounded((double)g2 * (double)x) * (double)x);
        if (bnb) {
            m[i] = fmaf((float)b1, optim_rounded((double)lm * (double)am), optim_rounded((double)g1 * (double)x));
            v[i] = fmaf((float)b2, optim_rounded((double)lv * (double)av), t);
        } else {
            const float root = optim_rounded((double)optim_rounded((double)(float)sqrt(b2) * (double)av) * (double)lv);
            m[i] = fmaf(optim_rounded((double)(float)b1 * (double)am), lm, optim_rounded((double)g1 * (double)x));
            v[i] = optim_rounded(sqrt((double)fmaf(root, root, t)));
        }
    }
    CHECK(memopt_optim_step(o.optim, &run) == MEMOPT_OK);
    for (b = 0; b < view.blocks; ++b) for (j = 0; j < 2; ++j) {
        const float *x = j ? v : m; float largest = 0;
        for (i = b * block; i < N && i < (b + 1) * block; ++i) if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
        CHECK_AT(memopt_i_float_bits(view.scale[j][b]) == memopt_i_float_bits(largest), b);
        for (i = b * block; i < N && i < (b + 1) * block; ++i)
            CHECK_AT(optim_nearest(&c, j, ((const uint8_t *)view.moment[j])[i], x[i], largest), i);
    }
    for (i = 0; i < N; ++i) { /* what was decoded and stepped is not rounded to 8 bits before the weight gets it */
        const double u = (double)m[i] / c1 / ((bnb ? sqrt((double)v[i]) : (double)v[i]) / sqrt(c2) + h.eps);
        const double decay = kind == MEMOPT_OPTIM_ADAMW ? 1 - h.rate * h.weight_decay : 1;
        const double want = bnb ? ((double)w[i] - h.rate * u) * decay : (double)w[i] * decay - h.rate * u;
        CHECK_AT(fabs((double)optim_weight(&o, 0, i) - want) <= 1e-6 * fabs(h.rate * u) + ldexp(fabs((double)w[i]), -22), i);
    }
    optim_close(&o);
}
/* The same for RMSprop, with a first moment and without. */
static void optim_coded_rmsprop(int moment, int level, size_t block, memopt_i_weights weights) {
    enum { N = 700 };
    static optim_codes c; static float x[2][N], u[N], w[N];
    optim_spec s = optim_of(MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_8BIT, N); optim_model o; const memopt_threads threads = test_level(level);
    const memopt_optim_group h = optim_group(MEMOPT_OPTIM_RMSPROP, moment); const memopt_optim_run run = optim_run(&h, 11);
    memopt_optim_view view; size_t i, b; int j;
    s.block = block; s.weights = weights; s.moment = moment;
    optim_open(&o, &s, &threads);
    optim_start(&o, 1);
    optim_steps(&o, 1, 10);
    optim_codes_fill(&c, 0);
    view = optim_view(&o, 0);
    CHECK(view.held == N && view.blocks == (N + block - 1) / block && view.bits == 8 && view.moments == 1 + moment);
    CHECK(!view.moment[0] == !moment && !view.scale[0] == !moment && view.moment[1] && view.scale[1]);
    optim_feed(&o, 11);
    for (i = 0; i < N; ++i) {
        const float alpha = (float)sqrt(h.beta2), av = view.scale[1][i / block], lv = c.level[1][((const uint8_t *)view.moment[1])[i]];
        const float root = optim_rounded((double)optim_rounded((double)alpha * (double)av) * (double)lv); float g, t;
        w[i] = optim_weight(&o, 0, i);
        g = fmaf((float)h.weight_decay, w[i], optim_rounded(0.5 * (double)optim_gradient(&o, 0, i)));
        t = optim_rounded((double)optim_rounded((double)(float)(1 - h.beta2) * (double)g) * (double)g);
        x[1][i] = optim_rounded(sqrt((double)fmaf(root, root, t)));
        u[i] = optim_rounded((double)g / (double)optim_rounded((double)x[1][i] + (double)(float)h.eps));
        if (moment)
            u[i] = fmaf(optim_rounded((double)(float)h.beta1 * (double)view.scale[0][i / block]),
                        c.level[0][((const uint8_t *)view.moment[0])[i]], u[i]);
        x[0][i] = u[i];
    }
    CHECK(memopt_optim_step(o.optim, &run) == MEMOPT_OK);
    for (b = 0; b < view.blocks; ++b) OPTIM_EACH_MOMENT(j, view) {
        float largest = 0;
        for (i = b * block; i < N && i < (b + 1) * block; ++i) if (fabsf(x[j][i]) > largest) largest = fabsf(x[j][i]);
        CHECK_AT(memopt_i_float_bits(view.scale[j][b]) == memopt_i_float_bits(largest), b);
        for (i = b * block; i < N && i < (b + 1) * block; ++i)
            CHECK_AT(optim_nearest(&c, j, ((const uint8_t *)view.moment[j])[i], x[j][i], largest), i);
        for (i = 0; i < N && j; ++i) CHECK_AT(c.level[1][((const uint8_t *)view.moment[1])[i]] > 0, i); /* never zero */
    }
    for (i = 0; i < N; ++i)
        CHECK_AT(memopt_i_float_bits(optim_weight(&o, 0, i)) == memopt_i_float_bits(fmaf(-(float)h.rate, u[i], w[i])), i);
    optim_close(&o);
}
/* A tensor's moments in other formats. What a step of bitsandbytes' states does is one of float states between the two
   conversions, to the bit; the others by the definition: codes have none nearer, bf16 are nearest. */
static void optim_converted_steps(size_t block) {
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BNB, 5000); optim_model a, b, c; memopt_optim_group g = optim_group(MEMOPT_OPTIM_ADAMW, 1);
    uint64_t t; size_t k;
    s.count[1] = 31; s.count[2] = 4096; s.block = block; s.min_quantized = 64; /* the second one is too small for codes */
    g.weight_decay = 0; /* when it comes is a difference between the two */
    optim_open(&a, &s, NULL); optim_open(&c, &s, NULL);
    s.state = MEMOPT_STATE_F32;
    optim_open(&b, &s, NULL);
    optim_start(&a, 1); optim_start(&b, 1);
    for (t = 1; t <= 4; ++t) {
        const memopt_optim_run run = optim_run(&g, t);
        for (k = 0; k < 3; ++k) CHECK_AT(memopt_optim_state_convert(b.optim, a.optim, k) == MEMOPT_OK, k);
        optim_feed(&a, t); optim_feed(&b, t);
        CHECK(memopt_optim_step(a.optim, &run) == MEMOPT_OK && memopt_optim_step(b.optim, &run) == MEMOPT_OK);
        for (k = 0; k < 3; ++k) {
            CHECK_AT(memopt_optim_state_convert(c.optim, b.optim, k) == MEMOPT_OK, k);
            CHECK_AT(!memcmp(a.tensor[k].state, c.tensor[k].state, a.state_bytes[k]), k);
            CHECK_AT(!memcmp(a.tensor[k].weights, b.tensor[k].weights, a.held[k] * 4), k);
        }
    }
    optim_close(&a); optim_close(&b); optim_close(&c);
}
static void optim_converted_to(memopt_state_format state, size_t block, int level) {
    enum { N = 4400 };
    static optim_codes codes; optim_spec s = optim_of(MEMOPT_OPTIM_LAMB, MEMOPT_STATE_F32, N); optim_model from, to, back; memopt_optim_view x, y, z;
    memopt_threads threads; size_t i, b; int j;
    memset(&threads, 0, sizeof threads); threads.simd_level = level;
    optim_open(&from, &s, &threads); optim_open(&back, &s, &threads);
    s.state = state; s.block = block;
    optim_open(&to, &s, &threads);
    optim_codes_fill(&codes, 0);
    x = optim_view(&from, 0);
    for (i = 0; i < N; ++i) {
        ((float *)x.moment[0])[i] = i % 9 ? (float)((double)(i * 2654435761u % 20011) - 10000) * 1e-4f : 0;
        ((float *)x.moment[1])[i] = i < 256 ? 0 : (float)(i * 2654435761u % 10007) * 1e-7f;
    }
    CHECK(memopt_optim_state_convert(to.optim, from.optim, 0) == MEMOPT_OK && memopt_optim_state_convert(back.optim, to.optim, 0) == MEMOPT_OK);
    y = optim_view(&to, 0); z = optim_view(&back, 0);
    for (j = 0; j < 2; ++j) for (i = 0; i < N; ++i) {
        const float v = ((float *)x.moment[j])[i], want = j ? (float)sqrt((double)v) : v; float got = ((float *)z.moment[j])[i], scale = 0;
        if (state == MEMOPT_STATE_BF16) {
            const uint16_t code = memopt_to_bf16(v);
            CHECK_AT(((uint16_t *)y.moment[j])[i] == code && memopt_i_float_bits(got) == memopt_i_float_bits(memopt_from_bf16(code)), i);
            continue;
        }
        for (b = i / block * block; b < N && b < (i / block + 1) * block; ++b) {
            const float u = j ? (float)sqrt((double)((float *)x.moment[j])[b]) : fabsf(((float *)x.moment[j])[b]);
            if (u > scale) scale = u;
        }
        CHECK_AT(y.scale[j][i / block] >= scale && y.scale[j][i / block] <= scale, i);
        CHECK_AT(optim_nearest(&codes, j, ((uint8_t *)y.moment[j])[i], want, scale), i);
        scale = optim_rounded((double)codes.level[j][((uint8_t *)y.moment[j])[i]] * (double)scale);
        if (j) scale = optim_rounded((double)scale * (double)scale);
        CHECK_AT(memopt_i_float_bits(got) == memopt_i_float_bits(scale), i);
    }
    optim_close(&from); optim_close(&to); optim_close(&back);
}
static void optim_converted_bad(void) {
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 5000), other; optim_model a, b; int i;
    optim_open(&a, &s, NULL);
    for (i = 0; i < 7; ++i) {
        memopt_status want = MEMOPT_ERR_ARGUMENT; const char *why = "states differ in more than formats";
        other = s; other.state = MEMOPT_STATE_F32;
        if (i == 0) other.kind = MEMOPT_OPTIM_ADAM;
        if (i == 1) other.count[0] = 5001;
        if (i == 2) other.first = 256;
        if (i == 3) other.held = 256;
        optim_open(&b, &other, NULL);
        if (i == 4) { memset(b.tensor[0].state, 0, 8); want = MEMOPT_ERR_FORMAT; why = "the state to convert from is of another object"; }
        if (i == 5) { memset(a.tensor[0].state, 0, 8); want = MEMOPT_ERR_FORMAT; why = "is not of an optimizer"; }
        if (i == 6) { CHECK(memopt_optim_state_init(a.optim, 0) == MEMOPT_OK); want = MEMOPT_OK; }
        CHECK_AT(memopt_optim_state_convert(a.optim, b.optim, 0) == want, i);
        if (want) CHECK_AT(strstr(memopt_optim_error(a.optim).reason, why) != NULL, i);
        optim_close(&b);
    }
    CHECK(memopt_optim_state_convert(NULL, a.optim, 0) == MEMOPT_ERR_ARGUMENT && memopt_optim_state_convert(a.optim, NULL, 0) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_optim_state_convert(a.optim, a.optim, 1) == MEMOPT_ERR_ARGUMENT);
    optim_close(&a);
    other = s; s.held = other.held = 256; other.first = 512;
    optim_open(&a, &s, NULL); optim_open(&b, &other, NULL);
    CHECK(memopt_optim_state_convert(a.optim, b.optim, 0) == MEMOPT_ERR_ARGUMENT);
    optim_close(&a); optim_close(&b);
    s = optim_of(MEMOPT_OPTIM_ADAFACTOR, MEMOPT_STATE_F32, 5000);
    optim_open(&a, &s, NULL); optim_open(&b, &s, NULL);
    CHECK(memopt_optim_state_convert(a.optim, b.optim, 0) == MEMOPT_ERR_ARGUMENT);
    optim_close(&a); optim_close(&b);
}
static void optim_converted(void) {
    int level;
    optim_converted_steps(0); optim_converted_steps(96); optim_converted_steps(4096);
    for (level = 1; level <= memopt_simd_best(); ++level) {
        optim_converted_to(MEMOPT_STATE_8BIT, 256, level); optim_converted_to(MEMOPT_STATE_8BIT, 32, level);
        optim_converted_to(MEMOPT_STATE_8BIT, 4096, level); optim_converted_to(MEMOPT_STATE_BF16, 256, level);
    }
    optim_converted_bad();
}
static void optim_coded(void) {
    int level, bnb, moment;
    for (level = 1; level <= memopt_simd_best(); ++level) for (moment = 0; moment < 2; ++moment) {
        optim_coded_rmsprop(moment, level, 256, MEMOPT_I_WEIGHTS_F32);
        optim_coded_rmsprop(moment, level, 96, MEMOPT_I_WEIGHTS_SPLIT);
        optim_coded_rmsprop(moment, level, 512, MEMOPT_I_WEIGHTS_F32_BF16);
    }
    for (level = 1; level <= memopt_simd_best(); ++level) for (bnb = 0; bnb < 2; ++bnb) {
        optim_coded_step(MEMOPT_OPTIM_ADAMW, bnb, level, 256, MEMOPT_I_WEIGHTS_F32);
        optim_coded_step(MEMOPT_OPTIM_ADAM, bnb, level, 256, MEMOPT_I_WEIGHTS_SPLIT);
        optim_coded_step(MEMOPT_OPTIM_ADAMW, bnb, level, 96, MEMOPT_I_WEIGHTS_SPLIT);
        optim_coded_step(MEMOPT_OPTIM_ADAM, bnb, level, 512, MEMOPT_I_WEIGHTS_F32_BF16);
    }
}
/* bfloat16 states: each moment is one of the two neighbours of the exact one, and right in the mean. */
static void optim_bf16_state(void) {
    enum { N = 6000 };
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BF16, N); optim_model o; memopt_optim_group h = optim_group(MEMOPT_OPTIM_ADAMW, 1);
    const memopt_optim_run run = optim_run(&h, 6); double bias[2] = { 0, 0 }; size_t i; int j;
    static double want[2][N];
    optim_open(&o, &s, NULL);
    optim_start(&o, 1);
    optim_steps(&o, 1, 5);
    optim_feed(&o, 6);
    for (j = 0; j < 2; ++j) {
        const memopt_optim_view view = optim_view(&o, 0); const uint16_t *x = (const uint16_t *)view.moment[j];
        CHECK(view.bits == 16 && view.blocks == 0 && view.scale[0] == NULL);
        for (i = 0; i < N; ++i) {
            const double g = 0.5 * (double)optim_gradient(&o, 0, i), old = (double)optim_widen(x[i]);
            want[j][i] = j ? h.beta2 * old + (1 - h.beta2) * g * g : h.beta1 * old + (1 - h.beta1) * g;
        }
    }
    CHECK(memopt_optim_step(o.optim, &run) == MEMOPT_OK);
    for (j = 0; j < 2; ++j) {
        const memopt_optim_view view = optim_view(&o, 0); const uint16_t *x = (const uint16_t *)view.moment[j]; int up = 0, down = 0;
        for (i = 0; i < N; ++i) {
            const double d = (double)optim_widen(x[i]) - want[j][i], place = ldexp(1, want[j][i] == 0 ? -140 : ilogb(want[j][i]) - 7);
            CHECK_AT(fabs(d) <= place * 1.001, i);
            bias[j] += d / place;
            up += d > 0; down += d < 0;
        }
        CHECK(up > N / 4 && down > N / 4);
        CHECK(fabs(bias[j] / (double)N) < 4 * 0.5 / sqrt((double)N)); /* four deviations */
    }
    optim_close(&o);
}

/* A step in slices: tensors last to first, cut at random, the slices backwards. */
static memopt_status optim_sliced(const optim_model *m, memopt_optim *o, const memopt_optim_run *run, uint64_t *seed) {
    size_t cut[64], n, k, i; int again; memopt_status s = memopt_optim_begin(o, run);
    if (s) return s;
    for (k = m->desc.tensor_count; k-- > 0; ) {
        const size_t slice_alignment = memopt_i_optim_slice_alignment(&o->desc, &o->desc.tensors[k]), first = m->tensor[k].first;
        for (n = 0, i = 0; i < m->held[k] && n < 62; ++n) {
            cut[n] = i; i += slice_alignment * (1 + test_below(seed, 5));
        }
        cut[n] = m->held[k];
        again = memopt_i_kind_measures(o->desc.kind);
        while (again) {
            for (i = n; i-- > 0; ) if ((s = memopt_i_optim_measure(o, k, first + cut[i], cut[i + 1] - cut[i])) != MEMOPT_OK) return s;
            s = memopt_i_optim_join(o, k, &again);
            if (s) return s;
        }
        for (i = n; i-- > 0; ) if ((s = memopt_i_optim_apply(o, k, first + cut[i], cut[i + 1] - cut[i])) != MEMOPT_OK) return s;
        if (memopt_optim_applied(o, k) != m->held[k]) return MEMOPT_ERR_CORRUPT;
    }
    return memopt_optim_end(o);
}
static uint32_t optim_hash_word(uint32_t h, uint32_t x) { h = (h ^ x) * 0x9e3779b1u; return h ^ h >> 15; }
/* Of numbers, not of bytes: the same on machines of either byte order. */
static uint32_t optim_hash(const optim_model *m) {
    uint32_t h = 1; size_t k, i; int j;
    for (k = 0; k < m->desc.tensor_count; ++k) {
        memopt_optim_view v = optim_view(m, k);
        for (i = 0; i < m->held[k]; ++i) h = optim_hash_word(h, memopt_i_float_bits(optim_weight(m, k, i)));
        OPTIM_EACH_MOMENT(j, v) {
            for (i = 0; i < v.blocks; ++i) h = optim_hash_word(h, memopt_i_float_bits(v.scale[j][i]));
            for (i = 0; i < v.held; ++i)
                h = optim_hash_word(h, v.bits == 8 ? ((const uint8_t *)v.moment[j])[i] : v.bits == 16
                    ? ((const uint16_t *)v.moment[j])[i] : memopt_i_float_bits(((const float *)v.moment[j])[i]));
        }
    }
    return h;
}
/* Weights that are not finite, or round to what is not, in a tile among others: 8-bit states, each format of weights; bf16
   once more with a decay that takes the largest one beyond the middle to infinity, where nothing is left to chance. */
static void optim_large_weights(void) {
    enum { N = 512 };
    static const uint16_t odd[] = { 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff, 0x7f7e };
    static unsigned char object[65536], state[2][64 * 32]; static float g[N], w32[2][N]; static uint16_t w16[2][N], extra[2][N];
    int weights, level, k; size_t i;
    for (weights = 0; weights < 4; ++weights) for (level = 1; level <= memopt_simd_best(); ++level) {
        for (k = 0; k < 2; ++k) { /* the definition, then the level */
            memopt_optim_desc d; memopt_optim_tensor t; memopt_optim *o = NULL; memopt_optim_group group; memopt_optim_run run;
            const memopt_threads threads = test_level(k ? level : 1);
            memset(&d, 0, sizeof d); memset(&t, 0, sizeof t); memset(&run, 0, sizeof run);
            for (i = 0; i < N; ++i) {
                w16[k][i] = i % 100 == 7 ? odd[i / 100] : (uint16_t)(0x3f00 + i % 120);
                if (weights == 3) w16[k][i] = i % 61 ? 0x3f00 : 0x7f7f; /* one in a group of 32 */
                extra[k][i] = (uint16_t)(i * 40503); g[i] = 0.01f * (float)(i % 9) - 0.03f;
                w32[k][i] = memopt_i_bits_float((uint32_t)w16[k][i] << 16 | 0xfffe);
            }
            for (i = 5; i < 8 && weights < 3; ++i) w16[k][295 + i] = odd[i];
            d.kind = MEMOPT_OPTIM_ADAMW; d.state = MEMOPT_STATE_8BIT; d.min_quantized = 1; d.tensors = &t; d.tensor_count = 1;
            d.weights = weights != 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; d.threads = &threads;
            d.extra = weights % 3 == 0 ? MEMOPT_OPTIM_EXTRA_NONE : weights == 1 ? MEMOPT_OPTIM_EXTRA_SPLIT : MEMOPT_OPTIM_EXTRA_COPY;
            t.weights = weights != 2 ? (void *)w16[k] : (void *)w32[k]; t.extra = extra[k]; t.gradients = g; t.count = N;
            t.state = state[k] + (64 - (uintptr_t)state[k] % 64) % 64;
            CHECK(!memopt_optim_create(&d, object + (64 - (uintptr_t)object % 64) % 64, sizeof object - 64, &o));
            CHECK(!memopt_optim_state_init(o, 0));
            group = memopt_optim_group_default(d.kind);
            if (weights == 3) { group.rate = 1e-3; group.weight_decay = 2002.05; } /* times -1.00205 */
            run.groups = &group; run.group_count = 1;
            for (run.step = 1; run.step <= (weights == 3 ? 1u : 3u); ++run.step) CHECK(!memopt_optim_step(o, &run));
        }
        CHECK_AT(!memcmp(w16[0], w16[1], sizeof w16[0]) && !memcmp(extra[0], extra[1], sizeof extra[0]), weights * 10 + level);
        for (i = 0; i < N; ++i) CHECK_AT(w32[0][i] != w32[0][i] ? w32[1][i] != w32[1][i]
                                         : memopt_i_float_bits(w32[0][i]) == memopt_i_float_bits(w32[1][i]), i);
    }
}
/* `steps` steps of a model, twice: all of it at once at the scalar level, and with objects that take turns, one for each
   level and number of workers, whole or in slices. Equal after every step. Returns the hash of the end. */
static uint32_t optim_same_bits(const optim_spec *s, int steps) {
    static const int workers[] = { 0, 1, 2, 3, 8, 32 };
    enum { MANY = 12 };
    optim_model a, b; test_worker_set shuffle[MANY]; memopt_optim *object[MANY]; memopt_threads t; uint64_t seed = 11; int i, step;
    const memopt_optim_group g = optim_group(s->kind, s->moment); unsigned char *all; uint32_t hash; const int best = memopt_simd_best();
    t = test_workers(&shuffle[0], 0, MEMOPT_SIMD_SCALAR);
    optim_open(&a, s, &t);
    optim_open(&b, s, NULL);
    for (i = 0; i < MANY; ++i) {
        t = test_workers(&shuffle[i], workers[i % 6], i < best ? best - i : 1 + (int)test_below(&seed, (size_t)best));
        object[i] = optim_object(&b, &t);
    }
    optim_start(&a, 3); optim_start(&b, 3);
    for (step = 1; step <= steps; ++step) {
        const memopt_optim_run run = optim_run(&g, (uint64_t)step); const int which = step % MANY;
        optim_feed(&a, (uint64_t)step); optim_feed(&b, (uint64_t)step);
        if (step % 7 == 3) {
            optim_set_gradient(&a, 0, (size_t)step * 2, memopt_i_bits_float(0x7fc00000u));
            optim_set_gradient(&b, 0, (size_t)step * 2, memopt_i_bits_float(0x7fc00000u));
        }
        CHECK_AT(memopt_optim_step(a.optim, &run) == MEMOPT_OK, step);
        if (step / MANY % 2) CHECK_AT(optim_sliced(&b, object[which], &run, &seed) == MEMOPT_OK, step);
        else CHECK_AT(memopt_optim_step(object[which], &run) == MEMOPT_OK, step);
        CHECK_AT(memopt_optim_skipped(a.optim) == (step % 7 == 3), step);
        CHECK_AT(memopt_optim_skipped(object[which]) == (step % 7 == 3), step);
        all = optim_save(&a);
        if (!optim_is(&b, all)) {
            printf("kind %d, state %d, weights %d, gradients %d, block %d: ", (int)s->kind, (int)s->state, (int)s->weights,
                   (int)s->gradients, (int)s->block);
            CHECK_AT(step < 0, step);
            step = steps;
        }
        free(all);
    }
    hash = optim_hash(&a);
    optim_close(&a); optim_close(&b);
    return hash;
}
static const struct { memopt_optim_kind kind; memopt_state_format state; int moment; uint32_t hash; } optim_pairs[] = {
    { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, 0, 0x47ac753du },
    { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BF16, 0, 0x40cdd98cu },
    { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 0, 0x9dfb7f99u },
    { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BNB, 0, 0x1c2d0583u },
    { MEMOPT_OPTIM_ADAM, MEMOPT_STATE_F32, 0, 0xef10afecu },
    { MEMOPT_OPTIM_ADAM, MEMOPT_STATE_BF16, 0, 0x102ae171u },
    { MEMOPT_OPTIM_ADAM, MEMOPT_STATE_8BIT, 0, 0xf60b7dfau },
    { MEMOPT_OPTIM_ADAM, MEMOPT_STATE_BNB, 0, 0xb99b9047u },
    { MEMOPT_OPTIM_SGD, MEMOPT_STATE_F32, 0, 0x8431f3ceu },
    { MEMOPT_OPTIM_SGD, MEMOPT_STATE_F32, 1, 0xfa306243u },
    { MEMOPT_OPTIM_SGD, MEMOPT_STATE_BF16, 1, 0x87adb9f0u },
    { MEMOPT_OPTIM_SGD, MEMOPT_STATE_8BIT, 1, 0x0dac4e2au },
    { MEMOPT_OPTIM_LION, MEMOPT_STATE_F32, 0, 0xf736b9cau },
    { MEMOPT_OPTIM_LION, MEMOPT_STATE_BF16, 0, 0x29ec33f5u },
    { MEMOPT_OPTIM_LION, MEMOPT_STATE_8BIT, 0, 0xd6c0501du },
    { MEMOPT_OPTIM_LARS, MEMOPT_STATE_F32, 0, 0x8a2e27e1u },
    { MEMOPT_OPTIM_LARS, MEMOPT_STATE_BF16, 0, 0x035b01ccu },
    { MEMOPT_OPTIM_LARS, MEMOPT_STATE_8BIT, 0, 0xb14f3cf5u },
    { MEMOPT_OPTIM_LAMB, MEMOPT_STATE_F32, 0, 0x2931197du },
    { MEMOPT_OPTIM_LAMB, MEMOPT_STATE_BF16, 0, 0xb0122933u },
    { MEMOPT_OPTIM_LAMB, MEMOPT_STATE_8BIT, 0, 0x7433818eu },
    { MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_F32, 0, 0x115372e5u },
    { MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_F32, 1, 0xc2f9f6d1u },
    { MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_BF16, 0, 0x1e99c5b7u },
    { MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_BF16, 1, 0xc923c98eu },
    { MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_8BIT, 0, 0xbaa71b43u },
    { MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_8BIT, 1, 0x1cad898eu } };
enum { OPTIM_PAIRS = (int)(sizeof optim_pairs / sizeof *optim_pairs) };
static optim_spec optim_pair(int i, int weights, int gradients, size_t block) {
    optim_spec s = optim_of(optim_pairs[i].kind, optim_pairs[i].state, 4500);
    s.moment = optim_pairs[i].moment; s.block = block; s.min_quantized = 0; s.count[1] = 300; s.count[2] = 70;
    s.weights = (memopt_i_weights)weights; s.gradients = (memopt_type)gradients;
    return s;
}
/* A hundred steps of every kind and state format, and what came out when it was written: the same on every machine. */
static void optim_hundred_steps(void) {
    int i;
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        const optim_spec s = optim_pair(i, (i * 3 + 1) % 4, i / 2 % 2, i % 5 == 4 ? 96 : i % 5 == 3 ? 512 : 0); uint32_t hash;
        if (test_is_passed_over()) continue;
        hash = optim_same_bits(&s, 100);
        if (hash != optim_pairs[i].hash) printf("pair %d: hash 0x%08x\n", i, (unsigned)hash);
        CHECK_AT(hash == optim_pairs[i].hash, i);
    }
}
static void optim_all_combinations(void) { /* the full product; in `make test` only a few steps of each */
    static const size_t blocks[] = { 0, 32, 96, 512, 4096 }; int i, w, g, b;
#ifdef TEST_LONG
    const int steps = 50, most = 5;
#else
    const int steps = 3, most = 1;
#endif
    for (i = 0; i < OPTIM_PAIRS; ++i) for (w = 0; w < 4; ++w) for (g = 0; g < 3; ++g) for (b = 0; b < most; ++b) {
        const optim_spec s = optim_pair(i, w, g, blocks[(b + (most == 1 ? w + g + i : 0)) % 5]);
        if (!test_is_passed_over()) (void)optim_same_bits(&s, steps);
    }
}
static void optim_many_chunks(void) { /* tensors of several chunks, whose sums are joined in one order */
    int i;
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        optim_spec s = optim_pair(i, i % 4, i % 3, i % 3 ? 0 : 96);
        if (optim_pairs[i].state == MEMOPT_STATE_BF16 || optim_pairs[i].kind == MEMOPT_OPTIM_ADAM || test_is_passed_over()) continue;
        s.count[0] = 70; s.count[1] = 140001; s.count[2] = 5000;
        (void)optim_same_bits(&s, optim_pairs[i].kind == MEMOPT_OPTIM_LAMB
                              || optim_pairs[i].kind == MEMOPT_OPTIM_LARS ? 5 : 2);
    }
}
/* Gradients that 16 bits hold: largest, denormal, zeros of both signs, and what is skipped: infinities and NaN of every
   kind, in places of the first and the last group, of whole blocks and of odd ends. */
static void optim_narrow_feed(optim_model *m, uint64_t t) {
    static const uint16_t wild[2][12] = {
        { 0x7f7f, 0xff80, 0x0001, 0x8000, 0x7f80, 0x7f81, 0xffc0, 0x0080, 0x7fff, 0x3f80, 0xff7f, 0x0000 },
        { 0x7bff, 0xfc00, 0x0001, 0x8000, 0x7c00, 0x7c01, 0xfe00, 0x03ff, 0x7fff, 0x3c00, 0xfbff, 0x0400 } };
    const int half = m->desc.gradients == MEMOPT_TYPE_F16; size_t k, i, n;
    optim_feed(m, t);
    for (k = 0; k < m->desc.tensor_count; ++k)
        for (n = m->held[k], i = 0; i < n; i += t % 3 == 2 ? 1 + n / 40 : 1 + n / 4)
            if (t > 1) memcpy(m->gradients[k] + 2 * (t % 2 ? i : n - 1 - i), &wild[half][(i + t) % 12], 2);
}
/* A step on 16 bits against one on the same numbers in float, whole or in slices, at every level. */
static void optim_narrow_pair(int i, int weights, int format, int level) {
    const optim_spec narrow = optim_pair(i, weights, format, i % 4 == 3 ? 96 : 0); optim_spec wide = narrow;
    const memopt_optim_group g = optim_group(narrow.kind, narrow.moment); test_worker_set shuffle; optim_model a, b;
    memopt_threads t = test_workers(&shuffle, level % 3, level); uint64_t step, seed = (uint64_t)i + 5; size_t k, e;
    unsigned char *all;
    wide.gradients = MEMOPT_TYPE_F32;
    optim_open(&a, &wide, &t); optim_open(&b, &narrow, &t);
    optim_start(&a, 3); optim_start(&b, 3);
    for (step = 1; step <= 4; ++step) {
        const memopt_optim_run run = optim_run(&g, step);
        optim_narrow_feed(&b, step);
        for (k = 0; k < a.desc.tensor_count; ++k)
            for (e = 0; e < a.held[k]; ++e) optim_set_gradient(&a, k, e, optim_gradient(&b, k, e));
        CHECK(memopt_optim_step(a.optim, &run) == MEMOPT_OK);
        if (step % 2) CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
        else CHECK(optim_sliced(&b, b.optim, &run, &seed) == MEMOPT_OK);
        CHECK_AT(memopt_optim_skipped(a.optim) == memopt_optim_skipped(b.optim), i);
        CHECK((memopt_optim_skipped(b.optim) > 0) == (step > 1));
        all = optim_save(&a);
        CHECK_AT(optim_is(&b, all), i * 1000 + weights * 100 + format * 10 + level);
        free(all);
    }
    optim_close(&a); optim_close(&b);
}
static void optim_narrow_gradients(void) {
    int i, level, format;
    for (i = 0; i < OPTIM_PAIRS; ++i)
        for (level = 1; level <= memopt_simd_best(); ++level) {
            if (level == 2 && memopt_simd_best() > 2) continue; /* the scalar one again */
            if (test_is_passed_over()) continue;
            for (format = MEMOPT_TYPE_BF16; format <= MEMOPT_TYPE_F16; ++format)
                optim_narrow_pair(i, (i + level + format) % 4, format, level);
        }
}
/* A step by shares: each thread of a pool that is not the optimizer's takes one. */
typedef struct optim_shares { memopt_optim *optim; size_t count; memopt_status status[80]; uint64_t skipped[80]; } optim_shares;
static void optim_take_share(void *task, size_t share, int worker) {
    optim_shares *s = (optim_shares *)task;
    (void)worker;
    s->status[share] = memopt_optim_apply_share(s->optim, share, s->count, &s->skipped[share]);
}
static uint64_t optim_step_by_shares(memopt_optim *o, const memopt_optim_run *run, const memopt_threads *threads, size_t count) {
    optim_shares s; size_t i; uint64_t skipped = 0;
    s.optim = o; s.count = count;
    CHECK(memopt_optim_begin(o, run) == MEMOPT_OK);
    memopt_i_parallel_for(threads, count, optim_take_share, &s);
    for (i = 0; i < count; ++i) { CHECK_AT(s.status[i] == MEMOPT_OK, i); skipped += s.skipped[i]; }
    CHECK(memopt_optim_end(o) == MEMOPT_OK);
    return skipped;
}
static void optim_shares_are_the_step(void) {
    static const size_t counts[] = { 1, 2, 3, 7, 80 }; memopt_threads t; int i, step;
#ifdef MEMOPT_PTHREADS
    memopt_thread_pool *pool = NULL;
    CHECK(memopt_thread_pool_create(NULL, 3, &pool) == MEMOPT_OK);
    t = memopt_thread_pool_threads(pool);
#else
    memset(&t, 0, sizeof t);
#endif
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        optim_spec s = optim_pair(i, i % 4, i % 3, 0); optim_model a, b; unsigned char *all;
        const memopt_optim_group g = optim_group(s.kind, s.moment);
        if (s.kind == MEMOPT_OPTIM_LARS || s.kind == MEMOPT_OPTIM_LAMB || test_is_passed_over()) continue;
        s.count[3] = 150000;
        optim_open(&a, &s, NULL); optim_open(&b, &s, NULL);
        optim_start(&a, 1); optim_start(&b, 1);
        for (step = 1; step <= 5; ++step) {
            const memopt_optim_run run = optim_run(&g, (uint64_t)step);
            optim_feed(&a, (uint64_t)step); optim_feed(&b, (uint64_t)step);
            if (step == 3) {
                optim_set_gradient(&a, 0, 100, memopt_i_bits_float(0x7fc00000u));
                optim_set_gradient(&b, 0, 100, memopt_i_bits_float(0x7fc00000u));
            }
            CHECK_AT(memopt_optim_step(a.optim, &run) == MEMOPT_OK, step);
            CHECK_AT(optim_step_by_shares(b.optim, &run, &t, counts[step - 1]) == (step == 3), step);
            all = optim_save(&a);
            CHECK_AT(optim_is(&b, all), i * 10 + step);
            free(all);
        }
        optim_close(&a); optim_close(&b);
    }
#ifdef MEMOPT_PTHREADS
    memopt_thread_pool_destroy(pool);
#endif
}
static void optim_pool(void) { /* threads that are real */
#ifdef MEMOPT_PTHREADS
    int i;
    for (i = 2; i < OPTIM_PAIRS; i += 4) {
        optim_spec s = optim_pair(i, i % 4, i % 3, 0); optim_model a, b; memopt_thread_pool *pool = NULL; memopt_threads t; unsigned char *all;
        s.count[3] = 150000;
        CHECK(memopt_thread_pool_create(NULL, 3, &pool) == MEMOPT_OK);
        t = memopt_thread_pool_threads(pool);
        optim_open(&a, &s, NULL); optim_open(&b, &s, &t);
        optim_start(&a, 1); optim_start(&b, 1);
        optim_steps(&a, 1, 3); optim_steps(&b, 1, 3);
        all = optim_save(&a);
        CHECK_AT(optim_is(&b, all), i);
        free(all);
        optim_close(&a); optim_close(&b);
        memopt_thread_pool_destroy(pool);
    }
#else
    SKIP("compiled without MEMOPT_PTHREADS");
#endif
}

/* The bfloat16 nearest to a finite float, ties to even. */
static uint16_t optim_nearest_bf16(float x) {
    const uint32_t u = memopt_i_float_bits(x), low = u & 0xffff, high = u >> 16;
    return (uint16_t)(low > 0x8000 || (low == 0x8000 && (high & 1)) ? high + 1 : high);
}
static void optim_weight_formats(void) { /* split weights are the float master to the bit; the copy is its nearest */
    int i;
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        optim_spec s = optim_pair(i, MEMOPT_I_WEIGHTS_F32, i % 3, 0); optim_model m[3]; size_t k, e; int f, moved = 0;
        if (test_is_passed_over()) continue;
        s.count[0] = 4200; s.count[1] = 33; s.count[2] = 0;
        for (f = 0; f < 3; ++f) {
            s.weights = f == 0 ? MEMOPT_I_WEIGHTS_F32 : f == 1 ? MEMOPT_I_WEIGHTS_SPLIT : MEMOPT_I_WEIGHTS_F32_BF16;
            optim_open(&m[f], &s, NULL);
            optim_start(&m[f], 5);
            optim_steps(&m[f], 1, 50);
        }
        for (k = 0; k < 2; ++k) {
            CHECK(m[0].state_bytes[k] == m[1].state_bytes[k] && m[1].state_bytes[k] == m[2].state_bytes[k]);
            for (f = 1; f < 3 && m[0].state_bytes[k]; ++f)
                CHECK_AT(memcmp(m[0].tensor[k].state, m[f].tensor[k].state, m[0].state_bytes[k]) == 0, i);
            for (e = 0; e < m[0].held[k]; ++e) {
                const float w = optim_weight(&m[0], k, e);
                CHECK_AT(memopt_i_float_bits(w) == memopt_i_float_bits(optim_weight(&m[1], k, e)), e);
                CHECK_AT(memopt_i_float_bits(w) == memopt_i_float_bits(optim_weight(&m[2], k, e)), e);
                CHECK_AT(((const uint16_t *)m[2].tensor[k].extra)[e] == optim_nearest_bf16(w), e);
                moved += (memopt_i_float_bits(w) & 0xffff) != 0;
            }
        }
        CHECK_AT(moved > 3000, i); /* or nothing was seen */
        for (f = 0; f < 3; ++f) optim_close(&m[f]);
    }
}
/* bfloat16 weights: each step lands on one of the two neighbours of the float result, and is right in the mean. */
static void optim_bf16_weights(void) {
    enum { N = 20000 };
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, N); optim_model a, b; double bias = 0; size_t i; int up = 0, down = 0;
    optim_open(&a, &s, NULL);
    s.weights = MEMOPT_I_WEIGHTS_BF16;
    optim_open(&b, &s, NULL);
    optim_start(&a, 1); optim_start(&b, 1);
    optim_steps(&a, 1, 1); optim_steps(&b, 1, 1);
    for (i = 0; i < N; ++i) {
        const double w = (double)optim_weight(&a, 0, i), d = (double)optim_weight(&b, 0, i) - w;
        const double place = ldexp(1, w == 0 ? -140 : ilogb(w) - 7);
        CHECK_AT(fabs(d) <= place, i);
        bias += d / place; up += d > 0; down += d < 0;
    }
    CHECK(up > N / 4 && down > N / 4 && fabs(bias / (double)N) < 4 * 0.5 / sqrt((double)N));
    optim_close(&a); optim_close(&b);
}

/* Rounding noise is another one for every step: SGD does the same at each, and the same weights are rounded otherwise. */
static void optim_bf16_noise_of_steps(void) {
    enum { N = 4000 };
    optim_spec s = optim_of(MEMOPT_OPTIM_SGD, MEMOPT_STATE_F32, N); memopt_optim_group h; optim_model m; size_t i, other; int k;
    static float first[N];
    s.weights = MEMOPT_I_WEIGHTS_BF16; s.moment = 0;
    optim_open(&m, &s, NULL);
    h = optim_group(MEMOPT_OPTIM_SGD, 0);
    h.weight_decay = 0;
    for (k = -1; k < 63; ++k) {
        const memopt_optim_run run = optim_run(&h, k < 0 ? 1 : 1 + ((uint64_t)1 << k));
        optim_start(&m, 1);
        optim_feed(&m, 1);
        CHECK_AT(memopt_optim_step(m.optim, &run) == MEMOPT_OK, k);
        for (i = other = 0; i < N; ++i) {
            if (k < 0) first[i] = optim_weight(&m, 0, i);
            other += first[i] != optim_weight(&m, 0, i);
        }
        if (k >= 0) CHECK_AT(other > (size_t)(k > 0 && k < 6 ? N >> (k + 3) : N / 8), k); /* nearby steps: 2^-(k + 1) of them */
    }
    optim_close(&m);
}
/* The same update 64 times: rounded, it is the sum of them to less than a place; independent noise would be up to 3.5 off. */
static void optim_bf16_noise_adds_up(void) {
    enum { N = 4000 };
    optim_spec s = optim_of(MEMOPT_OPTIM_SGD, MEMOPT_STATE_F32, N); memopt_optim_group h; optim_model m; size_t i; int k;
    s.weights = MEMOPT_I_WEIGHTS_BF16; s.moment = 0;
    optim_open(&m, &s, NULL);
    h = optim_group(MEMOPT_OPTIM_SGD, 0);
    h.weight_decay = 0; h.rate = 1.0 / 128; /* a place of what is from 1 to 2 */
    for (i = 0; i < N; ++i) {
        const uint16_t start = 0x3fa0; /* 1.25 */
        memcpy((unsigned char *)m.tensor[0].weights + 2 * i, &start, 2);
    }
    for (k = 1; k <= 64; ++k) {
        const memopt_optim_run run = optim_run(&h, (uint64_t)(640 + k - 1));
        for (i = 0; i < N; ++i) optim_set_gradient(&m, 0, i, (float)i / (float)N - 0.5f); /* a quarter of a place at most */
        CHECK_AT(memopt_optim_step(m.optim, &run) == MEMOPT_OK, k);
        for (i = 0; i < N; ++i) {
            const double places = ((double)optim_weight(&m, 0, i) - 1.25) * 128 + 0.5 * k * ((double)i / (double)N - 0.5);
            CHECK_AT(fabs(places) < (k == 64 ? 1.0 : 3.5), i);
        }
    }
    optim_close(&m);
}
/* No gradient: the ratio of LARS and LAMB is 1 where a length is 0. Without decay nothing moves; else LARS decays. */
static void optim_nothing_to_do(void) {
    static const memopt_optim_kind kinds[2] = { MEMOPT_OPTIM_LARS, MEMOPT_OPTIM_LAMB };
    enum { N = 300 };
    size_t i; int k;
    for (k = 0; k < 3; ++k) {
        memopt_optim_group h = optim_group(kinds[k % 2], 1); optim_model m; const memopt_optim_run run = optim_run(&h, 1);
        optim_spec s = optim_of(kinds[k % 2], MEMOPT_STATE_F32, N);
        h.rate = 0.1; h.weight_decay = k < 2 ? 0 : 0.25;
        optim_open(&m, &s, NULL);
        for (i = 0; i < N; ++i) { optim_set_weight(&m, 0, i, 0.5f); optim_set_gradient(&m, 0, i, 0); }
        CHECK_AT(memopt_optim_step(m.optim, &run) == MEMOPT_OK, k);
        for (i = 0; i < N; ++i) CHECK_AT(fabs((double)optim_weight(&m, 0, i) - 0.5 * (1 - h.rate * h.weight_decay)) < (k < 2 ? 1e-30 : 1e-7), i);
        optim_close(&m);
    }
}
/* An eps of 0 and a gradient of 0: no step, and no 0 / 0. */
static void optim_eps_of_zero(void) {
    static const memopt_optim_kind kinds[4] = { MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_ADAM, MEMOPT_OPTIM_LAMB, MEMOPT_OPTIM_RMSPROP };
    enum { N = 4200 };
    size_t i; int k, level;
    for (k = 0; k < 12; ++k)
        for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
            const memopt_threads t = test_level(level); optim_model m; memopt_optim_group h = optim_group(kinds[k % 4], 1);
            optim_spec s = optim_of(kinds[k % 4], k / 4 == 0 ? MEMOPT_STATE_F32 : k / 4 == 1 ? MEMOPT_STATE_BF16 : MEMOPT_STATE_8BIT, N);
            const memopt_optim_run run = optim_run(&h, 1);
            h.eps = 0; h.weight_decay = 0;
            optim_open(&m, &s, &t);
            for (i = 0; i < N; ++i) { optim_set_weight(&m, 0, i, 0.5f); optim_set_gradient(&m, 0, i, i % 3 ? 0.25f : 0); }
            CHECK_AT(memopt_optim_step(m.optim, &run) == MEMOPT_OK, k);
            for (i = 0; i < N; ++i) CHECK_AT(i % 3 ? optim_weight(&m, 0, i) < 0.5f : optim_weight(&m, 0, i) == 0.5f, i);
            optim_close(&m);
        }
}

/* A tensor that several ranks hold parts of: cuts at multiples of the grain. LAMB's and LARS's sums are added up over them. */
static void optim_parts_of(const optim_spec *whole, const size_t *cut, int parts) {
    const memopt_optim_group g = optim_group(whole->kind, whole->moment); optim_model w, p[4]; memopt_optim_run run; size_t i, n; uint64_t t; int k, j, again;
    optim_open(&w, whole, NULL);
    optim_start(&w, 2);
    for (k = 0; k < parts; ++k) {
        optim_spec s = *whole;
        s.first = cut[k]; s.held = k + 1 < parts || cut[k] % 2 ? cut[k + 1] - cut[k] : 0; /* 0: all that follow */
        optim_open(&p[k], &s, NULL);
        CHECK(p[k].held[0] == cut[k + 1] - cut[k]);
        optim_start(&p[k], 2);
    }
    for (t = 1; t <= 4; ++t) {
        double *sums[4] = { NULL, NULL, NULL, NULL }; size_t count[4] = { 0, 0, 0, 0 };
        run = optim_run(&g, t);
        optim_feed(&w, t);
        CHECK(memopt_optim_step(w.optim, &run) == MEMOPT_OK);
        for (k = 0; k < parts; ++k) {
            optim_feed(&p[k], t);
            CHECK(memopt_optim_begin(p[k].optim, &run) == MEMOPT_OK);
            if (memopt_i_kind_measures(p[k].optim->desc.kind)) CHECK(memopt_i_optim_measure(p[k].optim, 0, cut[k], p[k].held[0]) == MEMOPT_OK);
            CHECK(memopt_i_optim_sums(p[k].optim, 0, &sums[k], &count[k]) == MEMOPT_OK && count[k] == count[0]);
        }
        for (i = 0; i < count[0]; ++i) { /* an all-reduce */
            double sum = 0; int have = 0;
            for (k = 0; k < parts; ++k) { sum += sums[k][i]; have += sums[k][i] > 0; }
            CHECK_AT(have == 1, i); /* each sum is one rank's: adding zeros rounds nothing */
            for (k = 0; k < parts; ++k) sums[k][i] = sum;
        }
        for (k = 0; k < parts; ++k) {
            if (memopt_i_kind_measures(p[k].optim->desc.kind)) CHECK(memopt_i_optim_join(p[k].optim, 0, &again) == MEMOPT_OK && !again);
            CHECK(memopt_i_optim_apply(p[k].optim, 0, cut[k], p[k].held[0]) == MEMOPT_OK && memopt_optim_end(p[k].optim) == MEMOPT_OK);
        }
    }
    for (k = 0; k < parts; ++k) {
        const memopt_optim_view a = optim_view(&w, 0), b = optim_view(&p[k], 0);
        n = p[k].held[0];
        for (i = 0; i < n; ++i)
            CHECK_AT(memopt_i_float_bits(optim_weight(&w, 0, cut[k] + i)) == memopt_i_float_bits(optim_weight(&p[k], 0, i)), cut[k] + i);
        CHECK(a.moments == b.moments && a.bits == b.bits);
        OPTIM_EACH_MOMENT(j, a) {
            const size_t size = (size_t)a.bits / 8;
            CHECK_AT(memcmp((const unsigned char *)a.moment[j] + cut[k] * size, b.moment[j], n * size) == 0, k);
            if (b.blocks) CHECK_AT(memcmp(a.scale[j] + cut[k] / 256, b.scale[j], b.blocks * 4) == 0, k);
        }
    }
    optim_close(&w);
    for (k = 0; k < parts; ++k) optim_close(&p[k]);
}
static void optim_parts(void) {
    static const size_t small[] = { 0, 1024, 4096, 5003 }, large[] = { 0, 65536, 131072, 136001 }; int i;
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        optim_spec s = optim_pair(i, i % 4, i % 3, 0);
        const int measures = optim_pairs[i].kind == MEMOPT_OPTIM_LAMB || optim_pairs[i].kind == MEMOPT_OPTIM_LARS;
        if (test_is_passed_over()) continue;
        s.count[0] = measures ? 136001 : 5003; s.count[1] = 0;
        optim_parts_of(&s, measures ? large : small, 3);
        if (measures) continue;
        s.min_quantized = 5003; /* judged on the whole: a part of 907 elements is in 8 bits nevertheless */
        optim_parts_of(&s, small, 3);
    }
}

/* Gradients that are no good: elements that have one keep weight and moments, and nobody else notices what it was. */
static const uint32_t optim_bad[] = { 0x7fc00000u, 0xffc00001u, 0x7f800000u, 0xff800000u, 0x7f7fffffu, 0x7e61b1e6u, 0x5e800000u,
    0xdf000000u }; /* NaN, -NaN, Inf, -Inf, the largest, 3e38 / 4, 2^62 and -2^63; the factor is 1 */
enum { OPTIM_BADS = (int)(sizeof optim_bad / sizeof *optim_bad), OPTIM_BAD_N = 600 };
static int optim_is_bad(int pattern, size_t i) { /* the positions of a pattern */
    static const size_t single[] = { 0, 1, 15, 16, 63, 64, 255, 256, 511, 512, 598, 599 };
    if (pattern < 12) return i == single[pattern];
    if (pattern == 12) return i >= 256 && i < 512;
    if (pattern == 13) return i % 7 == 3;
    return pattern == 14;
}
typedef struct optim_harm { optim_model m; unsigned char *warm, *first, *quiet; uint16_t kept; } optim_harm;
static void optim_harm_step(optim_harm *h, int pattern, uint32_t bits, size_t *bads) {
    memopt_optim_group g = optim_group(h->m.desc.kind, h->m.desc.first_moment); memopt_optim_run run = optim_run(&g, 5); size_t i;
    run.gradient_factor = 1;
    optim_load(&h->m, h->warm);
    optim_feed(&h->m, 5);
    for (*bads = i = 0; i < OPTIM_BAD_N; ++i) if (optim_is_bad(pattern, i)) { optim_set_gradient(&h->m, 0, i, memopt_i_bits_float(bits)); ++*bads; }
    CHECK(memopt_optim_step(h->m.optim, &run) == MEMOPT_OK);
}
/* The moment of an element as a number. */
static double optim_moment(const optim_codes *c, const memopt_optim_view *v, size_t block, int j, size_t i) {
    if (v->bits == 32) return (double)((const float *)v->moment[j])[i];
    if (v->bits == 16) return (double)optim_widen(((const uint16_t *)v->moment[j])[i]);
    return (double)c->level[j][((const uint8_t *)v->moment[j])[i]] * (double)v->scale[j][i / block];
}
static void optim_harm_look(optim_harm *h, int pattern, const optim_codes *c) {
    static float w[OPTIM_BAD_N]; static double old[2][OPTIM_BAD_N]; static unsigned char stepped[OPTIM_BAD_N * 16 + 4096];
    const memopt_optim_view v = optim_view(&h->m, 0); size_t i; int j; unsigned char *now;
    CHECK(optim_bytes_of(&h->m) <= sizeof stepped);
    optim_copy(&h->m, stepped, NULL, 0);
    optim_load(&h->m, h->warm);
    for (i = 0; i < OPTIM_BAD_N; ++i) w[i] = optim_weight(&h->m, 0, i);
    OPTIM_EACH_MOMENT(j, v) for (i = 0; i < OPTIM_BAD_N; ++i) old[j][i] = optim_moment(c, &v, 256, j, i);
    optim_load(&h->m, stepped);
    for (i = 0; i < OPTIM_BAD_N; ++i) {
        if (!optim_is_bad(pattern, i)) continue;
        CHECK_AT(memopt_i_float_bits(optim_weight(&h->m, 0, i)) == memopt_i_float_bits(w[i]), i);
        OPTIM_EACH_MOMENT(j, v) { /* 8 bits: the code that is right for it in its block's new scale */
            if (v.bits == 8) CHECK_AT(optim_nearest(c, j, ((const uint8_t *)v.moment[j])[i], (float)old[j][i], v.scale[j][i / 256]), i);
            else CHECK_AT(fabs(optim_moment(c, &v, 256, j, i) - old[j][i]) <= 0, i);
        }
    }
    now = optim_save(&h->m); /* weights that nothing happened to, and scales, are finite */
    for (i = 0; i < OPTIM_BAD_N; ++i) CHECK_AT((memopt_i_float_bits(optim_weight(&h->m, 0, i)) & 0x7f800000u) != 0x7f800000u, i);
    CHECK(memopt_optim_state_check(h->m.optim, 0, h->m.state_bytes[0]) == MEMOPT_OK);
    free(now);
}
/* What the others got, where the bad ones' own part does not reach: equal to a step in which those had the gradient 0. */
static void optim_harm_compare(optim_harm *h, int pattern, const optim_codes *c) {
    static float w[OPTIM_BAD_N]; static double x[2][OPTIM_BAD_N]; float scale[2][3]; size_t i, bads; int j;
    const memopt_optim_view v = optim_view(&h->m, 0);
    for (i = 0; i < OPTIM_BAD_N; ++i) w[i] = optim_weight(&h->m, 0, i);
    OPTIM_EACH_MOMENT(j, v) {
        for (i = 0; i < OPTIM_BAD_N; ++i) x[j][i] = optim_moment(c, &v, 256, j, i);
        for (i = 0; i < v.blocks; ++i) scale[j][i] = v.scale[j][i];
    }
    optim_harm_step(h, pattern, 0, &bads);
    CHECK(memopt_optim_skipped(h->m.optim) == 0);
    for (i = 0; i < OPTIM_BAD_N; ++i) {
        if (optim_is_bad(pattern, i)) continue;
        CHECK_AT(memopt_i_float_bits(w[i]) == memopt_i_float_bits(optim_weight(&h->m, 0, i)), i);
        OPTIM_EACH_MOMENT(j, v)
            if (!v.blocks || memopt_i_float_bits(scale[j][i / 256]) == memopt_i_float_bits(v.scale[j][i / 256]))
                CHECK_AT(fabs(x[j][i] - optim_moment(c, &v, 256, j, i)) <= 0, i);
    }
}
static void optim_skipped(void) {
    static optim_codes c; int i, level, pattern, b;
    for (i = 0; i < OPTIM_PAIRS; ++i) for (level = 1; level <= memopt_simd_best(); ++level) {
        optim_spec s = optim_pair(i, i % 4, 0, 0); optim_harm h; memopt_threads t; size_t bads = 0; int k;
        if ((level == 2 && memopt_simd_best() > 2) || test_is_passed_over()) continue; /* the scalar one again */
        s.count[0] = OPTIM_BAD_N; s.count[1] = 0; s.min_quantized = 1;
        memset(&t, 0, sizeof t);
        t.simd_level = level;
        optim_open(&h.m, &s, &t);
        optim_start(&h.m, 3);
        optim_steps(&h.m, 1, 4);
        h.warm = optim_save(&h.m);
        optim_codes_fill(&c, s.state == MEMOPT_STATE_BNB);
        for (pattern = 0; pattern < 15; ++pattern) {
            optim_harm_step(&h, pattern, optim_bad[0], &bads);
            CHECK_AT(memopt_optim_skipped(h.m.optim) == bads, pattern);
            if (s.moment || s.kind != MEMOPT_OPTIM_SGD) optim_harm_look(&h, pattern, &c);
            h.first = optim_save(&h.m);
            for (k = 0; k < 2; ++k) { /* in turn, so that all meet all */
                b = 1 + (pattern * 2 + k + i + level) % (OPTIM_BADS - 1);
                optim_harm_step(&h, pattern, optim_bad[b], &bads);
                CHECK_AT(memopt_optim_skipped(h.m.optim) == bads, pattern);
                CHECK_AT(optim_is(&h.m, h.first), i * 1000 + level * 100 + pattern);
            }
            if (s.kind != MEMOPT_OPTIM_LAMB && (s.moment || s.kind != MEMOPT_OPTIM_SGD))
                optim_harm_compare(&h, pattern, &c);
            free(h.first);
        }
        free(h.warm);
        optim_close(&h.m);
    }
}
static void optim_limits(void) { /* what is just not too large is stepped, and leaves nothing that is not finite; denormals, too */
    static const uint32_t good[] = { 0x5e7fffffu, 0xde7fffffu, 1u, 0x80000001u, 0x007fffffu, 0x80000000u, 0u }; int i, level; size_t k, e;
    for (i = 0; i < OPTIM_PAIRS; ++i) for (level = 1; level <= memopt_simd_best(); ++level) for (k = 0; k < sizeof good / sizeof *good; ++k) {
        optim_spec s = optim_pair(i, MEMOPT_I_WEIGHTS_F32, 0, 0); optim_model m; memopt_threads t; memopt_optim_group g; memopt_optim_run run;
        if (level == 2 && memopt_simd_best() > 2) continue;
        s.count[0] = 321; s.count[1] = 0; s.min_quantized = 1;
        memset(&t, 0, sizeof t);
        t.simd_level = level;
        optim_open(&m, &s, &t);
        optim_start(&m, 3);
        g = optim_group(s.kind, s.moment); run = optim_run(&g, 1);
        run.gradient_factor = k % 2 ? 0 : 1;
        for (e = 0; e < 321; ++e) optim_set_gradient(&m, 0, e, memopt_i_bits_float(e % 3 ? 0x3dcccccdu : good[k])); /* 0.1 */
        for (; run.step <= 3; ++run.step) CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK && memopt_optim_skipped(m.optim) == 0);
        for (e = 0; e < 321; ++e) CHECK_AT((memopt_i_float_bits(optim_weight(&m, 0, e)) & 0x7f800000u) != 0x7f800000u, e);
        CHECK(memopt_optim_state_check(m.optim, 0, m.state_bytes[0]) == MEMOPT_OK);
        /* the factor counts: 2 times 2^61 is too much, a half of 2^62 is not */
        for (e = 0; e < 321; ++e) optim_set_gradient(&m, 0, e, memopt_i_bits_float(e == 77 ? 0x5e000000u : 0x3dcccccdu));
        run.gradient_factor = 2;
        CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK && memopt_optim_skipped(m.optim) == 1);
        optim_set_gradient(&m, 0, 77, memopt_i_bits_float(0x5e800000u));
        run.gradient_factor = 0.5;
        CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK && memopt_optim_skipped(m.optim) == 0);
        optim_close(&m);
    }
}
static void optim_factors(void) { /* the factor is that of the gradients, at both ends of its range */
    static const double factors[] = { 1.0 / 281474976710656.0, 281474976710656.0 }; int i, k; size_t e;
    for (i = 0; i < OPTIM_PAIRS; ++i) for (k = 0; k < 2; ++k) {
        optim_spec s = optim_pair(i, MEMOPT_I_WEIGHTS_F32, 0, 0); optim_model a, b; memopt_optim_group g = optim_group(s.kind, s.moment);
        memopt_optim_run one, other; uint64_t t;
        s.count[0] = 300; s.count[1] = 0; s.min_quantized = 1;
        optim_open(&a, &s, NULL); optim_open(&b, &s, NULL);
        optim_start(&a, 1); optim_start(&b, 1);
        one = optim_run(&g, 1); other = one;
        one.gradient_factor = 1; other.gradient_factor = factors[k];
        for (t = 1; t <= 3; ++t) {
            one.step = other.step = t;
            optim_feed(&a, t); optim_feed(&b, t);
            for (e = 0; e < 300; ++e) optim_set_gradient(&b, 0, e, (float)((double)optim_gradient(&a, 0, e) / factors[k])); /* exact */
            CHECK(memopt_optim_step(a.optim, &one) == MEMOPT_OK && memopt_optim_step(b.optim, &other) == MEMOPT_OK);
            CHECK(memopt_optim_skipped(b.optim) == 0);
        }
        for (e = 0; e < 300; ++e)
            CHECK_AT(memopt_i_float_bits(optim_weight(&a, 0, e)) == memopt_i_float_bits(optim_weight(&b, 0, e)), i * 1000 + (int)e);
        optim_close(&a); optim_close(&b);
    }
}
/* Weights that are not finite reach the moments where the decay is coupled. That is the caller's; the bits are ours. In two
   parts they are looked at before a group is stepped, and the block before is encoded all the same. */
static void optim_wild_weights(void) {
    static const uint32_t wild[] = { 0x7fc00000u, 0x7f800000u, 0xff800000u, 0x7f7fffffu, 0xfe967699u, 0x7fc00000u, 0x7fffffffu };
    static const size_t place[] = { 300, 300, 271, 0, 599, 257, 290 }; int i, form, level; size_t k, e;
    static const int forms[] = { MEMOPT_I_WEIGHTS_F32, MEMOPT_I_WEIGHTS_SPLIT, MEMOPT_I_WEIGHTS_F32_BF16 };
    for (i = 0; i < OPTIM_PAIRS; ++i) for (form = 0; form < 3; ++form) for (k = 0; k < sizeof wild / sizeof *wild; ++k) {
        optim_spec s = optim_pair(i, forms[form], 0, 0); uint32_t want[2][600]; memopt_optim_group g = optim_group(s.kind, s.moment);
        s.count[0] = 600; s.count[1] = 0; s.min_quantized = 1;
        for (level = 1; level <= memopt_simd_best(); ++level) {
            optim_model m; memopt_threads t; memopt_optim_run run = optim_run(&g, 1); int off = 0;
            memset(&t, 0, sizeof t);
            t.simd_level = level;
            optim_open(&m, &s, &t);
            optim_start(&m, 1);
            optim_set_weight(&m, 0, place[k], memopt_i_bits_float(wild[k]));
            for (e = 256; e < 272 && k == 5; ++e) /* in most lanes of a register, whatever order its maximum is found in */
                if (e % 16 != 3 && e % 16 != 15) optim_set_weight(&m, 0, e, memopt_i_bits_float(wild[k]));
            for (; run.step <= 3; ++run.step) { optim_feed(&m, run.step); CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK); }
            for (e = 0; e < 600; ++e) {
                const memopt_optim_view v = optim_view(&m, 0); uint32_t moment = 0; int j;
                uint32_t w = memopt_i_float_bits(optim_weight(&m, 0, e));
                if ((w & 0x7fffffff) > 0x7f800000) w = 0x7fc00000; /* which NaN is nobody's business */
                OPTIM_EACH_MOMENT(j, v) {
                    uint32_t x = v.bits == 32 ? memopt_i_float_bits(((const float *)v.moment[j])[e]) : v.bits == 16
                        ? (uint32_t)((const uint16_t *)v.moment[j])[e] << 16 : ((const uint8_t *)v.moment[j])[e];
                    if (v.bits > 8 && (x & 0x7fffffff) > 0x7f800000) x = 0x7fc00000;
                    moment = optim_hash_word(moment, x);
                    if (v.blocks) moment = optim_hash_word(moment, memopt_i_float_bits(v.scale[j][e / 256]));
                }
                if (forms[form] == MEMOPT_I_WEIGHTS_F32_BF16) {
                    const uint32_t copy = ((const uint16_t *)m.tensor[0].extra)[e];
                    moment = optim_hash_word(moment, (copy & 0x7fff) > 0x7f80 ? 0x7fc0 : copy);
                }
                if (level == 1) { want[0][e] = w; want[1][e] = moment; }
                else off += want[0][e] != w || want[1][e] != moment;
            }
            CHECK_AT(off == 0, i * 1000 + form * 100 + (int)k * 10 + level);
            optim_close(&m);
        }
    }
}

/* The same of bf16 weights, which are rounded by chance: what is not finite or nearly infinite, and a gradient that is skipped,
   leave the noise of all others as it is. */
static void optim_wild_bf16(void) {
    static const uint32_t wild[] = { 0x7fff0000u, 0x7f800000u, 0xff800000u, 0x7f7f0000u, 0xff7f0000u }; int i, bf16, level; size_t e;
    for (i = 0; i < OPTIM_PAIRS; ++i) for (bf16 = 0; bf16 < 2; ++bf16) { /* are gradients, too? */
        optim_spec s = optim_pair(i, MEMOPT_I_WEIGHTS_BF16, bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32, 0); uint32_t want[1100]; const memopt_optim_group g = optim_group(s.kind, s.moment);
        s.count[0] = 1100; s.count[1] = 0; s.min_quantized = 1;
        for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
            const memopt_threads t = test_level(level); optim_model m; memopt_optim_run run = optim_run(&g, 1); int off = 0;
            optim_open(&m, &s, &t);
            optim_start(&m, 1);
            for (e = 0; e < 5; ++e) optim_set_weight(&m, 0, 130 + 129 * e, memopt_i_bits_float(wild[e]));
            for (; run.step <= 3; ++run.step) {
                optim_feed(&m, run.step);
                optim_set_gradient(&m, 0, 70, memopt_i_bits_float(0x7fc00000u)); optim_set_gradient(&m, 0, 530, memopt_i_bits_float(0x7f800000u));
                CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
            }
            for (e = 0; e < 1100; ++e) {
                uint32_t w = memopt_i_float_bits(optim_weight(&m, 0, e));
                if ((w & 0x7fffffff) > 0x7f800000) w = 0x7fc00000; /* which NaN is nobody's business */
                if (level == 1) want[e] = w;
                off += want[e] != w;
            }
            CHECK_AT(off == 0, i * 10 + level);
            optim_close(&m);
        }
    }
}

/* Scales from outside that are finite, and so large that a moment becomes infinite: it is no block's largest at any level,
   and what is left is a state. */
static void optim_huge_scales(void) {
    enum { N = 1100 };
    static const float huge[5] = { 1, 3e38f, 1e22f, 2.5e19f, 3.4e38f }; int i, level, j, k; size_t e;
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        optim_spec s = optim_pair(i, MEMOPT_I_WEIGHTS_F32, 0, 0); const memopt_optim_group g = optim_group(s.kind, s.moment);
        unsigned char *first = NULL;
        if (s.state != MEMOPT_STATE_8BIT) continue;
        s.count[0] = N; s.count[1] = 0; s.min_quantized = 1;
        for (level = 1; level <= memopt_simd_best(); ++level) {
            const memopt_threads t = test_level(level); optim_model m; memopt_optim_view v; memopt_optim_run run = optim_run(&g, 1);
            optim_open(&m, &s, &t);
            optim_start(&m, 1);
            v = optim_view(&m, 0);
            OPTIM_EACH_MOMENT(j, v) {
                for (k = 0; k < 5; ++k) v.scale[j][k] = huge[(k + 2 * j) % 5];
                for (e = 0; e < N; ++e) ((uint8_t *)v.moment[j])[e] = (uint8_t)(e * 37 + 5);
            }
            for (; run.step <= 2; ++run.step) {
                optim_feed(&m, run.step);
                CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
                CHECK_AT(memopt_optim_state_check(m.optim, 0, m.state_bytes[0]) == MEMOPT_OK, i * 10 + level);
            }
            if (level == 1) first = optim_save(&m);
            CHECK_AT(optim_is(&m, first), i * 10 + level);
            optim_close(&m);
        }
        free(first);
    }
}

/* Inside backward: what cannot be taken back is not begun. */
static void optim_fused(void) {
    int i, k;
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        optim_spec s = optim_pair(i, i % 4, i % 3, 0); optim_model a, b; unsigned char *all; int again = 0; size_t first;
        const memopt_optim_group g = optim_group(s.kind, s.moment); memopt_optim_run run = optim_run(&g, 1);
        if (test_is_passed_over()) continue;
        s.count[2] = 140000; run.gradient_factor = 1;
        optim_open(&a, &s, NULL); optim_open(&b, &s, NULL);
        optim_start(&a, 1); optim_start(&b, 1);
        all = optim_save(&b);
        run.fused = 1;
        for (k = 0; k < 3; ++k) {
            run.clips_norm = k == 0; run.accumulates = k == 1; run.scales_loss = k == 2;
            CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_ERR_ARGUMENT);
            CHECK(memopt_optim_error(b.optim).status == MEMOPT_ERR_ARGUMENT && strlen(memopt_optim_error(b.optim).reason) > 10);
            run.fused = 0; /* together with what it can be combined with */
            CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK && memopt_optim_end(b.optim) == MEMOPT_OK);
            run.fused = 1;
        }
        run.scales_loss = 0;
        CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_ERR_ARGUMENT); /* has no "all at once" */
        CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK && optim_is(&b, all));
        optim_feed(&a, 1); optim_feed(&b, 1);
        for (k = 2; k >= 0; --k) { /* as backward goes: the last tensor first */
            CHECK(memopt_optim_applied(b.optim, (size_t)k) == 0);
            if (k == 1) { /* in parts; the others at once, with gradients that the tensor does not name */
                if (memopt_i_kind_measures(b.optim->desc.kind)) {
                    CHECK(memopt_i_optim_measure(b.optim, (size_t)k, 0, s.count[k]) == MEMOPT_OK);
                    CHECK(memopt_i_optim_join(b.optim, (size_t)k, &again) == MEMOPT_OK && !again);
                }
                CHECK(memopt_i_optim_apply(b.optim, (size_t)k, 0, s.count[k]) == MEMOPT_OK);
            } else {
                const void *const gradients = b.tensor[k].gradients;
                b.tensor[k].gradients = k ? NULL : &b;
                CHECK(memopt_optim_apply_with(b.optim, (size_t)k, NULL) == MEMOPT_ERR_ARGUMENT);
                CHECK(memopt_optim_apply_with(b.optim, (size_t)k, gradients) == MEMOPT_OK);
                CHECK(b.tensor[k].gradients == (k ? NULL : (void *)&b));
                b.tensor[k].gradients = gradients;
                CHECK(memopt_optim_apply_with(b.optim, (size_t)k, gradients) == MEMOPT_ERR_STATE); /* a second time */
            }
            CHECK(memopt_optim_applied(b.optim, (size_t)k) == s.count[k]);
        }
        CHECK(memopt_optim_end(b.optim) == MEMOPT_OK && memopt_optim_skipped(b.optim) == 0);
        run.fused = 0;
        CHECK(memopt_optim_step(a.optim, &run) == MEMOPT_OK);
        free(all);
        all = optim_save(&a);
        CHECK_AT(optim_is(&b, all), i); /* the same bits */
        free(all);
        /* the second: tensor 2 in two slices, whose second one has what is not finite at its very end */
        run.fused = 1; run.step = 2;
        optim_feed(&b, 2);
        optim_set_gradient(&b, 2, s.count[2] - 1, memopt_i_bits_float(optim_bad[i % OPTIM_BADS]));
        CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_OK);
        first = memopt_i_optim_slice_alignment(&b.optim->desc, &b.optim->desc.tensors[2]);
        if (memopt_i_kind_measures(b.optim->desc.kind)) {
            for (k = 0; k < 3; ++k)
                CHECK(memopt_i_optim_measure(b.optim, (size_t)k, 0, s.count[k]) == MEMOPT_OK && memopt_i_optim_join(b.optim, (size_t)k, &again) == MEMOPT_OK);
        }
        CHECK(memopt_i_optim_apply(b.optim, 2, 0, first) == MEMOPT_OK && memopt_optim_applied(b.optim, 2) == first);
        all = optim_save(&b);
        CHECK(memopt_i_optim_apply(b.optim, 2, first, s.count[2] - first) == MEMOPT_ERR_STATE);
        CHECK(strlen(memopt_optim_error(b.optim).reason) > 10);
        CHECK_AT(optim_is(&b, all), i);
        CHECK(memopt_i_optim_apply(b.optim, 1, 0, s.count[1]) == MEMOPT_ERR_STATE && optim_is(&b, all));
        CHECK(memopt_i_optim_apply(b.optim, 0, 0, s.count[0]) == MEMOPT_ERR_STATE && optim_is(&b, all));
        CHECK(memopt_optim_applied(b.optim, 2) == first && memopt_optim_applied(b.optim, 1) == 0 && memopt_optim_applied(b.optim, 0) == 0);
        CHECK(memopt_optim_begin(b.optim, &run) == MEMOPT_ERR_STATE);
        CHECK(memopt_optim_end(b.optim) == MEMOPT_ERR_STATE && optim_is(&b, all));
        CHECK(memopt_optim_applied(b.optim, 2) == first); /* still known */
        CHECK(memopt_optim_end(b.optim) == MEMOPT_ERR_STATE);
        run.fused = 0;
        CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK && memopt_optim_skipped(b.optim) == 1);
        CHECK(!optim_is(&b, all));
        free(all);
        optim_close(&a); optim_close(&b);
    }
}

/* ---- what is refused ---- */
static void optim_try_desc(const memopt_optim_desc *d, memopt_status want, int line) {
    size_t bytes = 77; memopt_optim *out = (memopt_optim *)(void *)&bytes, *const before = out; static unsigned char memory[1024 + 64];
    void *aligned = memory + (64 - (uintptr_t)memory % 64);
    CHECK_AT(memopt_optim_bytes(d, &bytes) == want && bytes == 77, line);
    CHECK_AT(memopt_optim_state_bytes(d, 0, &bytes) == want && bytes == 77, line);
    CHECK_AT(memopt_optim_create(d, aligned, 1024, &out) == want && out == before, line);
}
#define OPTIM_TRY(field, value, want) do { d = good; t = tensor; d.tensors = &t; field = value; optim_try_desc(&d, want, __LINE__); } while (0)
static void optim_bad_descs(void) {
    memopt_optim_desc d, good; memopt_optim_tensor t, tensor; size_t bytes = 77; int k; memopt_optim *out = NULL;
    const memopt_threads none = test_level(0); memopt_threads few;
    static const size_t blocks[] = { 1, 16, 31, 33, 48, 100, 4097, 4128, 8192, SIZE_MAX, SIZE_MAX - 31 };
    memset(&good, 0, sizeof good); memset(&tensor, 0, sizeof tensor);
    good.state = MEMOPT_STATE_8BIT; good.tensor_count = 1; tensor.count = 10000;
    optim_try_desc(NULL, MEMOPT_ERR_ARGUMENT, __LINE__);
    OPTIM_TRY(d.tensors, NULL, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(d.tensor_count, 0, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(t.count, 0, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(t.first, 10001, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(t.first, SIZE_MAX, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(t.first, 100, MEMOPT_ERR_ARGUMENT); /* inside a block */
    OPTIM_TRY(t.held, 10001, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(t.held, SIZE_MAX, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(t.held, 100, MEMOPT_ERR_ARGUMENT); /* ends inside a block */
    OPTIM_TRY(t.held = 9999; t.first, 256, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(t.columns, 7, MEMOPT_ERR_ARGUMENT); /* 10000 is no multiple */
#ifndef __cplusplus /* where an enum never has such a value */
    for (k = 0; k < 8 && sizeof d.kind == sizeof(int); ++k) { /* with -fshort-enums there are fewer of them */
        static const int numbers[8] = { MEMOPT_OPTIM_MUON + 1, -1, MEMOPT_STATE_BNB + 1, -1, MEMOPT_TYPE_F16, 1 << 30,
                                        MEMOPT_TYPE_F16 + 1, -7 };
        d = good; d.tensors = &tensor;
        memcpy(k < 2 ? (void *)&d.kind : k < 4 ? (void *)&d.state : k < 6 ? (void *)&d.weights : (void *)&d.gradients, &numbers[k], sizeof(int));
        optim_try_desc(&d, MEMOPT_ERR_ARGUMENT, 10000 + k);
    }
#endif
    OPTIM_TRY(few = none; d.threads = &few; few.worker_count, -1, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(few = none; d.threads = &few; few.simd_level, -1, MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(few = none; d.threads = &few; few.run_fn, test_worker_set_run, MEMOPT_ERR_ARGUMENT); /* without workers */
    for (k = MEMOPT_OPTIM_SGD; k <= MEMOPT_OPTIM_RMSPROP; ++k) { OPTIM_TRY(d.state = MEMOPT_STATE_BNB; d.kind, (memopt_optim_kind)k, MEMOPT_ERR_ARGUMENT); }
    for (k = 0; k < (int)(sizeof blocks / sizeof *blocks); ++k) OPTIM_TRY(d.block, blocks[k], MEMOPT_ERR_ARGUMENT);
    OPTIM_TRY(t.count, SIZE_MAX, MEMOPT_ERR_OVERFLOW);
    OPTIM_TRY(t.count, SIZE_MAX / 16 + 1, MEMOPT_ERR_OVERFLOW);
    OPTIM_TRY(d.kind = MEMOPT_OPTIM_LAMB; t.held = 256; t.first, 128, MEMOPT_ERR_ARGUMENT); /* inside a block */
    d = good; d.tensors = &tensor;
    CHECK(memopt_optim_bytes(&d, NULL) == MEMOPT_ERR_ARGUMENT && memopt_optim_state_bytes(&d, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_optim_state_bytes(&d, 1, &bytes) == MEMOPT_ERR_ARGUMENT && memopt_optim_state_bytes(&d, SIZE_MAX, &bytes) == MEMOPT_ERR_ARGUMENT);
    CHECK(bytes == 77 && memopt_optim_bytes(&d, &bytes) == MEMOPT_OK);
    {
        unsigned char *block = (unsigned char *)malloc(bytes + 128), *p = block + (64 - (uintptr_t)block % 64); size_t n;
        memset(block, 0x5A, bytes + 128);
        CHECK(memopt_optim_create(&d, NULL, bytes, &out) == MEMOPT_ERR_ARGUMENT && memopt_optim_create(&d, p, bytes, NULL) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_optim_create(&d, p + 32, bytes, &out) == MEMOPT_ERR_ARGUMENT);
        for (n = 0; n < bytes; n += n < bytes - 70 ? 61 : 1) CHECK(memopt_optim_create(&d, p, n, &out) == MEMOPT_ERR_BUFFER);
        for (n = 0; n < bytes + 64; ++n) CHECK_AT(p[n] == 0x5A, n);
        CHECK(out == NULL && memopt_optim_create(&d, p, bytes, &out) == MEMOPT_OK && (void *)out == (void *)p);
        for (n = bytes; n < bytes + 64; ++n) CHECK_AT(p[n] == 0x5A, n); /* one past the end */
        CHECK(memopt_optim_error(out).status == MEMOPT_OK && memopt_optim_error(out).reason != NULL);
        CHECK(memopt_i_optim_slice_alignment(&out->desc, &out->desc.tensors[0]) == 256);
        free(block);
    }
    for (k = 32; k <= 4096; k += 32) { d.block = (size_t)k; CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_OK); }
}
/* Every call without an object; and every wrong argument of a step: nothing changes, and a good step works afterwards. */
#define OPTIM_RUN(field, value, want) do { g = good; run = optim_run(&g, 3); field = value; \
    CHECK_AT(memopt_optim_step(m.optim, &run) == (want) && optim_is(&m, all), __LINE__); \
    CHECK_AT(memopt_optim_begin(m.optim, &run) == (want) && optim_is(&m, all), __LINE__); \
    CHECK_AT(memopt_optim_error(m.optim).status == (want) && strlen(memopt_optim_error(m.optim).reason) > 5, __LINE__); } while (0)
static void optim_bad_runs(void) {
    const double not_number = (double)memopt_i_bits_float(0x7fc00000u), infinite = (double)memopt_i_bits_float(0x7f800000u); int kind;
    CHECK(memopt_optim_step(NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_optim_begin(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_measure(NULL, 0, 0, 1) == MEMOPT_ERR_ARGUMENT && memopt_i_optim_apply(NULL, 0, 0, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_join(NULL, 0, NULL) == MEMOPT_ERR_ARGUMENT && memopt_optim_end(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_sums(NULL, 0, NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_optim_error(NULL).status == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_optim_state_init(NULL, 0) == MEMOPT_ERR_ARGUMENT && memopt_optim_state_check(NULL, 0, 9) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_optim_state_view(NULL, 0, NULL) == MEMOPT_ERR_ARGUMENT && memopt_optim_skipped(NULL) == 0);
    CHECK(memopt_optim_applied(NULL, 0) == 0);
    for (kind = MEMOPT_OPTIM_ADAMW; kind <= MEMOPT_OPTIM_RMSPROP; ++kind) {
        optim_spec s = optim_of((memopt_optim_kind)kind, MEMOPT_STATE_8BIT, 700); optim_model m; memopt_optim_run run; unsigned char *all;
        memopt_optim_group g, good = optim_group((memopt_optim_kind)kind, 1);
        if (kind == MEMOPT_OPTIM_ADAFACTOR) continue; /* test_adafactor.c */
        s.weights = MEMOPT_I_WEIGHTS_SPLIT; s.count[1] = 40;
        optim_open(&m, &s, NULL);
        optim_start(&m, 1);
        optim_steps(&m, 1, 2);
        all = optim_save(&m);
        CHECK(memopt_optim_step(m.optim, NULL) == MEMOPT_ERR_ARGUMENT && memopt_optim_begin(m.optim, NULL) == MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(run.step, 0, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(run.groups, NULL, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(run.group_count, 0, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(run.gradient_factor, not_number, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(run.gradient_factor, -1, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(run.gradient_factor, infinite, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(run.gradient_factor, 3e14, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(run.gradient_factor, 3e-15, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.rate, not_number, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.rate, infinite, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.rate, -1e-9, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.beta1, 1, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.beta1, -0.1, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.beta1, not_number, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.beta2, 1, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.beta2, 1.5, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.beta2, not_number, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.eps, -1e-8, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.eps, not_number, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.eps, infinite, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.weight_decay, -0.1, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.weight_decay, not_number, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.dampening, -0.1, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.dampening, not_number, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.nesterov = 1; g.dampening, 0.1, MEMOPT_ERR_ARGUMENT);
        OPTIM_RUN(g.nesterov = 1; g.beta1, 0, MEMOPT_ERR_ARGUMENT);
        if (kind == MEMOPT_OPTIM_LARS) { OPTIM_RUN(g.trust, 0, MEMOPT_ERR_ARGUMENT); OPTIM_RUN(g.trust, not_number, MEMOPT_ERR_ARGUMENT); }
        m.tensor[1].group = 1;
        OPTIM_RUN(run.group_count, 1, MEMOPT_ERR_ARGUMENT);
        m.tensor[1].group = SIZE_MAX;
        OPTIM_RUN(run.group_count, 1, MEMOPT_ERR_ARGUMENT);
        m.tensor[1].group = 0;
        g = good; run = optim_run(&g, 3);
        CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK && !optim_is(&m, all));
        free(all);
        optim_close(&m);
    }
}
static void optim_no_momentum(void) { /* SGD without a moment has no state, and no momentum */
    optim_spec s = optim_of(MEMOPT_OPTIM_SGD, MEMOPT_STATE_8BIT, 5000); optim_model m; memopt_optim_group g = optim_group(MEMOPT_OPTIM_SGD, 0);
    memopt_optim_run run = optim_run(&g, 1); memopt_optim_view v;
    s.moment = 0;
    optim_open(&m, &s, NULL);
    optim_start(&m, 1);
    optim_feed(&m, 1);
    CHECK(m.state_bytes[0] == 0 && memopt_optim_state_view(m.optim, 0, &v) == MEMOPT_OK && v.moments == 0);
    CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
    g.beta1 = 0.9;
    CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_ERR_ARGUMENT);
    optim_close(&m);
}
/* RMSprop without a first moment: nothing is kept for one, and the second is where it always is in a view. */
static void optim_second_alone(void) {
    enum { N = 5000, BLOCKS = 20 };
    static const uint32_t hostile[] = { 0x7f800000u, 0x7fc00000u, 0xbf800000u }; const size_t scales = 128; /* 20 floats, to 64 */
    int state, moment; size_t i, k;
    for (state = MEMOPT_STATE_F32; state <= MEMOPT_STATE_8BIT; ++state) for (moment = 0; moment < 2; ++moment) {
        const size_t wide = state == MEMOPT_STATE_F32 ? 4 : state == MEMOPT_STATE_BF16 ? 2 : 1, each = (N * wide + 63) / 64 * 64;
        const size_t coded = state == MEMOPT_STATE_8BIT ? scales : 0, kept = (size_t)(1 + moment);
        optim_spec s = optim_of(MEMOPT_OPTIM_RMSPROP, (memopt_state_format)state, N); optim_model m; memopt_optim_view v;
        memopt_optim_group g = optim_group(MEMOPT_OPTIM_RMSPROP, moment); memopt_optim_run run = optim_run(&g, 1); unsigned char *p; uint32_t header[8];
        s.moment = moment;
        optim_open(&m, &s, NULL);
        optim_start(&m, 1);
        optim_feed(&m, 1);
        v = optim_view(&m, 0);
        p = (unsigned char *)m.tensor[0].state;
        memcpy(header, p, sizeof header);
        CHECK(header[4] == MEMOPT_OPTIM_RMSPROP && header[5] == (uint32_t)state && header[7] == (uint32_t)kept);
        CHECK_AT(m.state_bytes[0] == 64 + kept * (coded + each), state);
        CHECK(v.moments == 1 + moment && v.held == N && v.bits == (int)wide * 8 && v.blocks == (coded ? BLOCKS : 0) && !v.rows && !v.columns);
        CHECK((unsigned char *)v.moment[1] == p + m.state_bytes[0] - each && (!coded || (unsigned char *)v.scale[1] == p + 64 + (kept - 1) * scales));
        CHECK(!moment || (unsigned char *)v.moment[0] == p + m.state_bytes[0] - 2 * each);
        CHECK(!moment || !coded || (unsigned char *)v.scale[0] == p + 64);
        CHECK((moment || (!v.moment[0] && !v.scale[0])) && (coded || (!v.scale[0] && !v.scale[1])));
        CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK && memopt_optim_state_check(m.optim, 0, m.state_bytes[0]) == MEMOPT_OK);
        for (i = 0; i < N; ++i) { /* (1 - alpha) x x */
            const double w = 0.5 * (double)optim_widen((uint16_t)(memopt_i_float_bits(optim_value(1, 0, i)) >> 16)); /* as begun */
            const double x = 0.5 * (double)optim_gradient(&m, 0, i) + g.weight_decay * w;
            const double want = (1 - g.beta2) * x * x; double close = 1e-6, got = wide == 4 ? (double)((float *)v.moment[1])[i] : 0;
            if (wide == 2) { close = 1.0 / 128; got = (double)optim_widen(((uint16_t *)v.moment[1])[i]); }
            if (wide > 1) CHECK_AT(fabs(got - want) <= close * want + 1e-8 * fabs(x), i);
        }
        for (k = 0; k < sizeof hostile / sizeof *hostile && coded; ++k) {
            const float old = v.scale[1][BLOCKS - 1];
            memcpy(&v.scale[1][BLOCKS - 1], &hostile[k], 4);
            CHECK_AT(memopt_optim_state_check(m.optim, 0, m.state_bytes[0]) == MEMOPT_ERR_FORMAT, k);
            v.scale[1][BLOCKS - 1] = old;
        }
        g.beta1 = 0.5;
        CHECK(memopt_optim_step(m.optim, &run) == (moment ? MEMOPT_OK : MEMOPT_ERR_ARGUMENT));
        CHECK(moment || test_error_says(memopt_optim_error(m.optim), MEMOPT_ERR_ARGUMENT,
                                        "group 0: beta1 is above 0, which needs first_moment in the desc"));
        optim_close(&m);
    }
}
/* Pointers that are missing or misaligned, each in its turn. */
static void optim_bad_pointers(void) {
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 700); const memopt_optim_group g = optim_group(MEMOPT_OPTIM_ADAMW, 1);
    const memopt_optim_run run = optim_run(&g, 3); optim_model m; unsigned char *all; int w, gr; size_t k, size;
    for (w = 0; w < 4; ++w) for (gr = 0; gr < 3; ++gr) for (k = 0; k < 2; ++k) {
        memopt_optim_tensor t; int i;
        s.weights = (memopt_i_weights)w; s.gradients = (memopt_type)gr; s.count[1] = 33;
        optim_open(&m, &s, NULL);
        optim_start(&m, 1);
        optim_steps(&m, 1, 2);
        all = optim_save(&m);
        t = m.tensor[k];
        size = optim_wide(&m) ? 4 : 2;
        for (i = 0; i < 9; ++i) {
            if (!optim_has_extra(&m) && (i == 4 || i == 5)) continue;
            if (i == 0) m.tensor[k].weights = NULL;
            if (i == 1) m.tensor[k].weights = (unsigned char *)t.weights + size / 2;
            if (i == 2) m.tensor[k].gradients = NULL;
            if (i == 3) m.tensor[k].gradients = (const unsigned char *)t.gradients + (gr ? 1 : 2);
            if (i == 4) m.tensor[k].extra = NULL;
            if (i == 5) m.tensor[k].extra = (unsigned char *)t.extra + 1;
            if (i == 6) m.tensor[k].state = NULL;
            if (i == 7) m.tensor[k].state = (unsigned char *)t.state + 32;
            if (i == 8) m.tensor[k].state = (unsigned char *)t.state + 1;
            CHECK_AT(memopt_optim_step(m.optim, &run) == MEMOPT_ERR_ARGUMENT, i);
            CHECK_AT(strlen(memopt_optim_error(m.optim).reason) > 5, i);
            if (i < 6) { /* in parts, the pointers of a tensor are looked at when it is its turn */
                CHECK_AT(memopt_optim_begin(m.optim, &run) == MEMOPT_OK, i);
                CHECK_AT(memopt_i_optim_apply(m.optim, k, 0, s.count[k]) == MEMOPT_ERR_ARGUMENT, i);
                CHECK_AT(memopt_optim_end(m.optim) == MEMOPT_OK, i);
            } else {
                CHECK_AT(memopt_optim_begin(m.optim, &run) == MEMOPT_ERR_ARGUMENT, i);
                CHECK_AT(memopt_optim_state_init(m.optim, k) == MEMOPT_ERR_ARGUMENT, i);
                CHECK_AT(memopt_optim_state_check(m.optim, k, m.state_bytes[k]) == MEMOPT_ERR_ARGUMENT, i);
            }
            m.tensor[k] = t;
            CHECK_AT(optim_is(&m, all), i);
        }
        CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
        free(all);
        optim_close(&m);
    }
}
/* The right calls at the wrong time, and slices that are none. */
static void optim_order(void) {
    int kind;
    for (kind = MEMOPT_OPTIM_ADAMW; kind <= MEMOPT_OPTIM_RMSPROP; ++kind) {
        optim_spec s = optim_of((memopt_optim_kind)kind, MEMOPT_STATE_8BIT, 140000); optim_model m; unsigned char *all; size_t i, slice_alignment;
        const memopt_optim_group g = optim_group((memopt_optim_kind)kind, 1); const memopt_optim_run run = optim_run(&g, 1);
        const int measures = kind == MEMOPT_OPTIM_LARS || kind == MEMOPT_OPTIM_LAMB; double *sums = NULL; size_t count = 0; int again = 5, pass;
        static const size_t slices[][2] = { { 0, 0 }, { 1, 256 }, { 0, 255 }, { 128, 65536 }, { 0, 140001 }, { 140000, 1 },
            { SIZE_MAX, 1 }, { 0, SIZE_MAX }, { 65536, SIZE_MAX - 65535 }, { 131072, 8929 }, { 131072, 8927 } };
        if (kind == MEMOPT_OPTIM_ADAFACTOR) continue;
        s.count[1] = 50;
        optim_open(&m, &s, NULL);
        optim_start(&m, 1);
        optim_feed(&m, 1);
        all = optim_save(&m);
        slice_alignment = memopt_i_optim_slice_alignment(&m.optim->desc, &m.optim->desc.tensors[0]);
        CHECK(memopt_i_kind_measures(m.optim->desc.kind) == measures && slice_alignment == (measures ? 65536 : 256));
        CHECK(memopt_optim_end(m.optim) == MEMOPT_ERR_STATE && memopt_i_optim_apply(m.optim, 0, 0, 140000) == MEMOPT_ERR_STATE);
        CHECK(memopt_i_optim_measure(m.optim, 0, 0, 140000) == MEMOPT_ERR_STATE && memopt_i_optim_join(m.optim, 0, &again) == MEMOPT_ERR_STATE);
        CHECK(memopt_i_optim_sums(m.optim, 0, &sums, &count) == MEMOPT_ERR_STATE && again == 5 && sums == NULL && count == 0);
        CHECK(memopt_optim_begin(m.optim, &run) == MEMOPT_OK && memopt_optim_begin(m.optim, &run) == MEMOPT_ERR_STATE);
        CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_ERR_STATE);
        for (pass = 0; pass < 2; ++pass) {
            for (i = 0; i < sizeof slices / sizeof *slices; ++i) {
                CHECK_AT((measures && !pass ? memopt_i_optim_measure : memopt_i_optim_apply)(m.optim, 0, slices[i][0], slices[i][1]) == MEMOPT_ERR_ARGUMENT, i);
                CHECK_AT(memopt_optim_error(m.optim).status == MEMOPT_ERR_ARGUMENT, i);
            }
            CHECK(memopt_i_optim_apply(m.optim, 2, 0, 1) == MEMOPT_ERR_ARGUMENT && memopt_i_optim_measure(m.optim, 2, 0, 1) == MEMOPT_ERR_ARGUMENT);
            CHECK(memopt_i_optim_join(m.optim, 2, &again) == MEMOPT_ERR_ARGUMENT && memopt_i_optim_sums(m.optim, 2, &sums, &count) == MEMOPT_ERR_ARGUMENT);
            CHECK(memopt_i_optim_join(m.optim, 0, NULL) == MEMOPT_ERR_ARGUMENT && memopt_i_optim_sums(m.optim, 0, NULL, &count) == MEMOPT_ERR_ARGUMENT);
            CHECK(memopt_i_optim_sums(m.optim, 0, &sums, NULL) == MEMOPT_ERR_ARGUMENT && again == 5 && optim_is(&m, all));
            if (pass) break;
            if (!measures) {
                CHECK(memopt_i_optim_measure(m.optim, 0, 0, 140000) == MEMOPT_ERR_STATE);
                CHECK(memopt_i_optim_join(m.optim, 0, &again) == MEMOPT_ERR_STATE && again == 5 && optim_is(&m, all));
                continue;
            }
            CHECK(memopt_i_optim_apply(m.optim, 0, 0, 140000) == MEMOPT_ERR_STATE && optim_is(&m, all));
            CHECK(memopt_i_optim_measure(m.optim, 0, 65536, 74464) == MEMOPT_OK && memopt_i_optim_measure(m.optim, 0, 0, 65536) == MEMOPT_OK);
            CHECK(memopt_i_optim_apply(m.optim, 0, 0, 140000) == MEMOPT_ERR_STATE && optim_is(&m, all)); /* not joined yet */
            CHECK(memopt_i_optim_join(m.optim, 0, &again) == MEMOPT_OK && again == 0);
            again = 5;
            CHECK(memopt_i_optim_join(m.optim, 0, &again) == MEMOPT_ERR_STATE && again == 5);
            CHECK(memopt_i_optim_measure(m.optim, 0, 0, 65536) == MEMOPT_ERR_STATE);
            CHECK(memopt_i_optim_apply(m.optim, 1, 0, 50) == MEMOPT_ERR_STATE && optim_is(&m, all)); /* another tensor */
        }
        CHECK(memopt_i_optim_apply(m.optim, 0, 0, 65536) == MEMOPT_OK && memopt_i_optim_apply(m.optim, 0, 65536, 74464) == MEMOPT_OK);
        CHECK(memopt_optim_applied(m.optim, 0) == 140000 && memopt_optim_applied(m.optim, 2) == 0);
        free(all);
        all = optim_save(&m);
        CHECK(memopt_i_optim_apply(m.optim, 0, 0, 65536) == MEMOPT_ERR_STATE && memopt_i_optim_apply(m.optim, 0, 0, 140000) == MEMOPT_ERR_STATE);
        CHECK(optim_is(&m, all) && memopt_optim_end(m.optim) == MEMOPT_OK);
        CHECK(memopt_i_optim_apply(m.optim, 0, 0, 140000) == MEMOPT_ERR_STATE && optim_is(&m, all));
        CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
        free(all);
        optim_close(&m);
    }
}
/* States from outside: each byte of the header, each length, and scales that nobody wrote. */
static void optim_bad_states(void) {
    const memopt_optim_group g = optim_group(MEMOPT_OPTIM_ADAMW, 1);
    const memopt_optim_run run = optim_run(&g, 3); int i;
    static const uint32_t hostile[] = { 0x7f800000u, 0x7fc00000u, 0xff800000u, 0xbf800000u, 0x80000001u, 0x7f800001u, 0xffffffffu };
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 5000); optim_model m; unsigned char *all, *p; size_t n, k; memopt_optim_view v, w;
    s.count[1] = 70;
    optim_open(&m, &s, NULL);
    optim_start(&m, 1);
    optim_steps(&m, 1, 2);
    all = optim_save(&m);
    for (n = 0; n < m.state_bytes[0]; n += n < 200 || n > m.state_bytes[0] - 70 ? 1 : 37)
        CHECK_AT(memopt_optim_state_check(m.optim, 0, n) == MEMOPT_ERR_BUFFER, n);
    CHECK(memopt_optim_error(m.optim).status == MEMOPT_ERR_BUFFER);
    CHECK(memopt_optim_state_check(m.optim, 0, m.state_bytes[0]) == MEMOPT_OK && memopt_optim_state_check(m.optim, 0, SIZE_MAX) == MEMOPT_OK);
    CHECK(memopt_optim_state_check(m.optim, 2, m.state_bytes[0]) == MEMOPT_ERR_ARGUMENT && memopt_optim_state_init(m.optim, 2) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_optim_state_view(m.optim, 2, &v) == MEMOPT_ERR_ARGUMENT && memopt_optim_state_view(m.optim, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    for (k = 0; k < 2; ++k) {
        p = (unsigned char *)m.tensor[k].state;
        for (n = 0; n < 64 * 8; ++n) { /* every bit of the header means something */
            p[n / 8] = (unsigned char)(p[n / 8] ^ 1u << n % 8);
            memset(&v, 0xA5, sizeof v); w = v;
            CHECK_AT(memopt_optim_state_check(m.optim, k, m.state_bytes[k]) == MEMOPT_ERR_FORMAT, n);
            CHECK_AT(strlen(memopt_optim_error(m.optim).reason) > 10, n);
            CHECK_AT(memopt_optim_state_view(m.optim, k, &v) == MEMOPT_ERR_FORMAT && memcmp(&v, &w, sizeof v) == 0, n);
            CHECK_AT(memopt_optim_step(m.optim, &run) == MEMOPT_ERR_FORMAT && memopt_optim_begin(m.optim, &run) == MEMOPT_ERR_FORMAT, n);
            p[n / 8] = (unsigned char)(p[n / 8] ^ 1u << n % 8);
        }
        CHECK(optim_is(&m, all));
    }
    v = optim_view(&m, 0);
    for (i = 0; i < 2; ++i) for (n = 0; n < v.blocks; n += v.blocks - 1) for (k = 0; k < sizeof hostile / sizeof *hostile; ++k) {
        const float old = v.scale[i][n];
        memcpy(&v.scale[i][n], &hostile[k], 4);
        CHECK_AT(memopt_optim_state_check(m.optim, 0, m.state_bytes[0]) == MEMOPT_ERR_FORMAT, k);
        v.scale[i][n] = old;
    }
    CHECK(memopt_optim_state_check(m.optim, 0, m.state_bytes[0]) == MEMOPT_OK && optim_is(&m, all));
    /* every code is a code: with scales that are allowed, a step of whatever bytes stays in memory and ends */
    memset(v.moment[0], 0x81, 5000); memset(v.moment[1], 0xff, 5000);
    v.scale[0][0] = v.scale[1][0] = memopt_i_bits_float(0x7f7fffffu); v.scale[1][1] = 1e-45f; v.scale[0][2] = v.scale[1][2] = 0;
    CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
    free(all);
    optim_close(&m);
}
static void optim_other_states(void) { /* of another kind, format, block, size, part: refused by name, whatever they are */
    enum { OTHERS = 10 };
    optim_model m[OTHERS]; int a, b; const memopt_optim_group g = optim_group(MEMOPT_OPTIM_ADAMW, 1); const memopt_optim_run run = optim_run(&g, 1);
    for (a = 0; a < OTHERS; ++a) {
        optim_spec s = optim_of(a == 1 ? MEMOPT_OPTIM_ADAM : a == 2 ? MEMOPT_OPTIM_LION : a > 7 ? MEMOPT_OPTIM_RMSPROP : MEMOPT_OPTIM_ADAMW,
            a == 3 ? MEMOPT_STATE_BNB : a == 4 ? MEMOPT_STATE_F32 : MEMOPT_STATE_8BIT, a == 5 ? 8192 + 1 : 8192);
        s.block = a == 6 ? 512 : 256; s.held = a == 7 ? 4096 : 0; s.moment = a != 8;
        optim_open(&m[a], &s, NULL);
    }
    for (a = 0; a < OTHERS; ++a) for (b = 0; b < OTHERS; ++b) {
        void *own = m[a].tensor[0].state; unsigned char *block = (unsigned char *)calloc(1, 80000 + 64), *p = block + (64 - (uintptr_t)block % 64);
        memcpy(p, m[b].tensor[0].state, m[b].state_bytes[0]);
        m[a].tensor[0].state = p;
        CHECK_AT(memopt_optim_state_check(m[a].optim, 0, 80000) == (a == b ? MEMOPT_OK : MEMOPT_ERR_FORMAT), a * 10 + b);
        if (a != 2 && a != 8) CHECK_AT(memopt_optim_begin(m[a].optim, &run) == (a == b ? MEMOPT_OK : MEMOPT_ERR_FORMAT), a * 10 + b);
        if (a != 2 && a != 8 && a == b) CHECK(memopt_optim_end(m[a].optim) == MEMOPT_OK);
        m[a].tensor[0].state = own;
        free(block);
    }
    for (a = 0; a < OTHERS; ++a) optim_close(&m[a]);
}
/* A run that ends and goes on from the bytes of its state: on another object, with pointers elsewhere. */
static void optim_resume(void) {
    int i;
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        optim_spec s = optim_pair(i, i % 4, i % 3, 0); optim_model a, b; unsigned char *all;
        optim_open(&a, &s, NULL); optim_open(&b, &s, NULL);
        optim_start(&a, 1);
        optim_steps(&a, 1, 3);
        all = optim_save(&a);
        optim_load(&b, all);
        free(all);
        optim_steps(&a, 4, 6); optim_steps(&b, 4, 6);
        all = optim_save(&a);
        CHECK_AT(optim_is(&b, all), i);
        free(all);
        optim_close(&a); optim_close(&b);
    }
}
/* Two groups: each tensor is stepped with its own. Rate 0 moves no weight, to the bit; its moments go on. */
static void optim_groups(void) {
    int i;
    for (i = 0; i < OPTIM_PAIRS; ++i) {
        optim_spec s = optim_pair(i, i % 4, i % 3, 0); optim_model a, b; memopt_optim_group g[2]; memopt_optim_run run; uint64_t t; size_t e;
        float before[300]; unsigned char *old = NULL;
        optim_open(&a, &s, NULL); optim_open(&b, &s, NULL);
        optim_start(&a, 1); optim_start(&b, 1);
        g[0] = g[1] = optim_group(s.kind, s.moment);
        g[1].rate = 0;
        a.tensor[1].group = 1;
        run = optim_run(g, 1);
        for (e = 0; e < 300; ++e) before[e] = optim_weight(&a, 1, e);
        if (a.state_bytes[1]) { old = (unsigned char *)malloc(a.state_bytes[1]); memcpy(old, a.tensor[1].state, a.state_bytes[1]); }
        for (t = 1; t <= 4; ++t) {
            run.step = t;
            optim_feed(&a, t); optim_feed(&b, t);
            run.group_count = 2; CHECK(memopt_optim_step(a.optim, &run) == MEMOPT_OK);
            run.group_count = 1; CHECK(memopt_optim_step(b.optim, &run) == MEMOPT_OK);
        }
        for (e = 0; e < 300; ++e) CHECK_AT(memopt_i_float_bits(before[e]) == memopt_i_float_bits(optim_weight(&a, 1, e)), i);
        if (old && s.kind != MEMOPT_OPTIM_LARS) CHECK_AT(memcmp(old, a.tensor[1].state, a.state_bytes[1]) != 0, i); /* LARS: the rate is in it */
        if (old && s.kind == MEMOPT_OPTIM_LARS) CHECK_AT(memcmp(old, a.tensor[1].state, a.state_bytes[1]) == 0, i);
        for (e = 0; e < s.count[0]; ++e)
            CHECK_AT(memopt_i_float_bits(optim_weight(&a, 0, e)) == memopt_i_float_bits(optim_weight(&b, 0, e)), i);
        for (e = 0; e < s.count[2]; ++e)
            CHECK_AT(memopt_i_float_bits(optim_weight(&a, 2, e)) == memopt_i_float_bits(optim_weight(&b, 2, e)), i);
        free(old);
        optim_close(&a); optim_close(&b);
    }
}
/* What belongs to another kind changes nothing, to the bit; or it is refused. */
static void optim_foreign_fields(void) {
    int i, f;
    for (i = 0; i < OPTIM_PAIRS; ++i) for (f = 0; f < 6; ++f) {
        optim_spec s = optim_pair(i, 0, 0, 0); optim_model a, b; memopt_optim_group g = optim_group(s.kind, s.moment), h = g; uint64_t t;
        memopt_status status = MEMOPT_OK; unsigned char *all;
        if ((f < 2 && s.kind == MEMOPT_OPTIM_SGD) || (f == 2 && s.kind == MEMOPT_OPTIM_LARS) || (f == 3 && s.kind == MEMOPT_OPTIM_LAMB)) continue;
        if (f == 0) h.nesterov = 1;
        if (f == 1) h.dampening = 0.5;
        if (f == 2) h.trust = 3;
        if (f == 3) h.always_adapt = 1;
        if (f == 4) { h.clip = 0.25; h.min_scale = 7; }
        if (f == 5 && (s.kind == MEMOPT_OPTIM_SGD || s.kind == MEMOPT_OPTIM_LARS)) { h.beta2 = 0.5; h.eps = 0.5; }
        s.count[0] = 400; s.count[1] = 0; s.min_quantized = 1;
        optim_open(&a, &s, NULL); optim_open(&b, &s, NULL);
        optim_start(&a, 1); optim_start(&b, 1);
        for (t = 1; t <= 3 && !status; ++t) {
            const memopt_optim_run one = optim_run(&g, t), other = optim_run(&h, t);
            optim_feed(&a, t); optim_feed(&b, t);
            CHECK(memopt_optim_step(a.optim, &one) == MEMOPT_OK);
            status = memopt_optim_step(b.optim, &other);
        }
        all = optim_save(&a);
        CHECK_AT(status == MEMOPT_ERR_ARGUMENT || optim_is(&b, all), i * 10 + f);
        free(all);
        optim_close(&a); optim_close(&b);
    }
}
/* Which tensor is small enough for floats is judged on all of it; whether a step writes past a tensor's end, on guards. */
static void optim_small_tensors(void) {
    static const size_t counts[] = { 4095, 4096, 1, 255 }; optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 4095); optim_model m; size_t k;
    s.min_quantized = 0;
    for (k = 0; k < 4; ++k) s.count[k] = counts[k];
    optim_open(&m, &s, NULL);
    CHECK(optim_view(&m, 0).bits == 32 && optim_view(&m, 1).bits == 8 && optim_view(&m, 2).bits == 32 && optim_view(&m, 3).bits == 32);
    CHECK(optim_view(&m, 0).blocks == 0 && optim_view(&m, 1).blocks == 16);
    optim_close(&m);
    s.min_quantized = 255;
    optim_open(&m, &s, NULL);
    CHECK(optim_view(&m, 0).bits == 8 && optim_view(&m, 1).bits == 8 && optim_view(&m, 2).bits == 32 && optim_view(&m, 3).bits == 8);
    optim_close(&m);
}
static void optim_no_overrun(void) { /* nothing behind an array's end changes, whatever the count */
    int i; size_t n, k;
    for (i = 0; i < OPTIM_PAIRS; ++i) for (n = 1; n < 140; n += n < 20 ? 1 : 17) {
        optim_spec s = optim_pair(i, (i + (int)n) % 4, (int)n % 3, 32); optim_model m; const unsigned char *end[3];
        s.count[0] = n; s.count[1] = s.count[2] = 0; s.min_quantized = 1;
        optim_open(&m, &s, NULL);
        optim_start(&m, 1);
        end[0] = (const unsigned char *)m.tensor[0].weights + n * (optim_wide(&m) ? 4 : 2);
        end[1] = optim_has_extra(&m) ? (const unsigned char *)m.tensor[0].extra + n * 2 : NULL;
        end[2] = m.state_bytes[0] ? (const unsigned char *)m.tensor[0].state + m.state_bytes[0] : NULL;
        optim_steps(&m, 1, 2);
        for (k = 0; k < 40; ++k) {
            CHECK_AT(end[0][k] == 0xA5 && (!end[1] || end[1][k] == 0xA5) && (!end[2] || end[2][k] == 0xA5), n);
        }
        optim_close(&m);
    }
}

/* Sizes, and tensors of more than 2^32 elements of which a part is held. */
static void optim_sizes(void) {
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 65536); optim_model m; size_t bytes[4], k; test_worker_set shuffle;
    static const size_t scratch[3][2] = { { 256, 0 }, { 4096, 65536 }, { 512, 8192 } };
    optim_describe(&m, &s);
    CHECK(memopt_optim_state_bytes(&m.desc, 0, &bytes[0]) == MEMOPT_OK && bytes[0] == 64 + 2 * 1024 + 2 * 65536); /* 2.03 each */
    m.desc.state = MEMOPT_STATE_BF16;
    CHECK(memopt_optim_state_bytes(&m.desc, 0, &bytes[0]) == MEMOPT_OK && bytes[0] == 64 + 4 * 65536);
    m.desc.state = MEMOPT_STATE_F32;
    CHECK(memopt_optim_state_bytes(&m.desc, 0, &bytes[0]) == MEMOPT_OK && bytes[0] == 64 + 8 * 65536);
    m.desc.kind = MEMOPT_OPTIM_LION;
    CHECK(memopt_optim_state_bytes(&m.desc, 0, &bytes[0]) == MEMOPT_OK && bytes[0] == 64 + 4 * 65536);
    m.desc.state = MEMOPT_STATE_8BIT;
    CHECK(memopt_optim_state_bytes(&m.desc, 0, &bytes[0]) == MEMOPT_OK && bytes[0] == 64 + 1024 + 65536);
    m.desc.kind = MEMOPT_OPTIM_RMSPROP; m.desc.first_moment = 0;
    CHECK(memopt_optim_state_bytes(&m.desc, 0, &bytes[0]) == MEMOPT_OK && bytes[0] == 64 + 1024 + 65536);
    m.desc.first_moment = 1;
    CHECK(memopt_optim_state_bytes(&m.desc, 0, &bytes[0]) == MEMOPT_OK && bytes[0] == 64 + 2 * 1024 + 2 * 65536);
    m.desc.kind = MEMOPT_OPTIM_ADAMW;
    for (k = 0; k < 3; ++k) { /* of a worker: 2 blocks of 2 moments in float; up to 256 elements on its stack */
        m.desc.block = scratch[k][0];
        m.desc.threads = NULL;
        CHECK(memopt_optim_bytes(&m.desc, &bytes[0]) == MEMOPT_OK);
        m.threads = test_workers(&shuffle, 1, 0); m.desc.threads = &m.threads;
        CHECK(memopt_optim_bytes(&m.desc, &bytes[1]) == MEMOPT_OK && bytes[0] == bytes[1]);
        m.threads = test_workers(&shuffle, 2, 0);
        CHECK(memopt_optim_bytes(&m.desc, &bytes[2]) == MEMOPT_OK);
        CHECK(bytes[2] - bytes[1] >= scratch[k][1] && bytes[2] - bytes[1] <= scratch[k][1] + 64);
        m.threads = test_workers(&shuffle, 8, 0);
        CHECK(memopt_optim_bytes(&m.desc, &bytes[3]) == MEMOPT_OK && bytes[3] - bytes[2] == 6 * scratch[k][1]); /* 8 counts fit a line */
    }
    CHECK(bytes[0] < 64 * 1024);
}
static void optim_huge(void) {
    static const size_t low = 2560; optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 1); optim_model a, b, c, z; int i; size_t bytes, e, n;
    const uint64_t two32 = (uint64_t)1 << 32;
    if (sizeof(size_t) < 8) { SKIP("no tensor of this machine has more than 2^32 elements"); return; }
    optim_describe(&a, &s);
    a.tensor[0].count = (size_t)(two32 << 8); /* 2^40 */
    CHECK(memopt_optim_state_bytes(&a.desc, 0, &bytes) == MEMOPT_OK && bytes == 64 + 2 * ((size_t)(two32 << 8) + (size_t)two32 * 4));
    a.desc.kind = MEMOPT_OPTIM_LAMB;
    CHECK(memopt_optim_bytes(&a.desc, &bytes) == MEMOPT_OK && bytes > (size_t)1 << 28); /* two sums for each of 2^24 chunks */
    a.tensor[0].count = SIZE_MAX / 16;
    CHECK(memopt_optim_bytes(&a.desc, &bytes) == MEMOPT_OK);
    a.desc.tensor_count = 2; a.tensor[1].count = SIZE_MAX / 16 + 1;
    CHECK(memopt_optim_bytes(&a.desc, &bytes) == MEMOPT_ERR_OVERFLOW);
    for (i = 0; i < OPTIM_PAIRS; ++i) { /* a part across 2^32 is its two halves; and 2^32 is not 0 */
        int differs = 0;
        s = optim_pair(i, i % 2 ? MEMOPT_I_WEIGHTS_BF16 : i % 4, i / 2 % 2, 0);
        if (s.kind == MEMOPT_OPTIM_LAMB || s.kind == MEMOPT_OPTIM_LARS) continue;
        s.count[0] = (size_t)(two32 + 5000); s.count[1] = 0;
        s.first = (size_t)two32 - low; s.held = low + 5000; optim_open(&a, &s, NULL);
        s.held = low; optim_open(&b, &s, NULL);
        s.first = (size_t)two32; s.held = 0; optim_open(&c, &s, NULL);
        CHECK(c.held[0] == 5000);
        s.first = 0; s.held = 4864; optim_open(&z, &s, NULL);
        optim_start(&a, 1); optim_start(&b, 1); optim_start(&c, 1); optim_start(&z, 1);
        optim_steps(&a, 1, 3); optim_steps(&b, 1, 3); optim_steps(&c, 1, 3);
        for (n = 0; n < 4864; ++n) optim_set_weight(&z, 0, n, memopt_i_bits_float(0x3f000000u));
        for (e = 0; e < low + 5000; ++e)
            CHECK_AT(memopt_i_float_bits(optim_weight(&a, 0, e)) == memopt_i_float_bits(e < low ? optim_weight(&b, 0, e) : optim_weight(&c, 0, e - low)), e);
        if (c.state_bytes[0]) {
            const memopt_optim_view v = optim_view(&a, 0), u = optim_view(&c, 0); int j;
            OPTIM_EACH_MOMENT(j, v)
                CHECK_AT(memcmp((const unsigned char *)v.moment[j] + low * (size_t)v.bits / 8, u.moment[j], 5000 * (size_t)u.bits / 8) == 0, i);
        }
        if (s.weights == MEMOPT_I_WEIGHTS_BF16) { /* the same weights and gradients in both places are rounded by other bits */
            const memopt_optim_group g = optim_group(s.kind, s.moment); const memopt_optim_run run = optim_run(&g, 1);
            if (c.state_bytes[0]) CHECK(memopt_optim_state_init(c.optim, 0) == MEMOPT_OK);
            for (n = 0; n < 4864; ++n) {
                optim_set_weight(&c, 0, n, memopt_i_bits_float(0x3f000000u));
                optim_set_gradient(&c, 0, n, 1); optim_set_gradient(&z, 0, n, 1);
            }
            CHECK(memopt_optim_step(c.optim, &run) == MEMOPT_OK && memopt_optim_step(z.optim, &run) == MEMOPT_OK);
            for (n = 0; n < 4864; ++n) differs += memopt_i_float_bits(optim_weight(&c, 0, n)) != memopt_i_float_bits(optim_weight(&z, 0, n));
            CHECK_AT(differs > 100, i);
        }
        optim_close(&a); optim_close(&b); optim_close(&c); optim_close(&z);
    }
}

/* Golden bytes, kept for ever. They come from a program of its own, in rational numbers rounded to binary32 where the
   section's essay rounds: 40 elements in blocks of 32, three steps. */
static void optim_golden(void) {
    static const unsigned char header[64] = { 'm', 'e', 'm', 'o', 'p', 't', 'S', 0, /* order */ 4, 3, 2, 1, /* version */ 1, 0, 0, 0,
        /* kind */ 0, 0, 0, 0, /* format */ 2, 0, 0, 0, /* block */ 32, 0, 0, 0, /* moments */ 2, 0, 0, 0,
        /* count */ 104, 0, 0, 0, 0, 0, 0, 0, /* first */ 64, 0, 0, 0, 0, 0, 0, 0, /* held */ 40, 0, 0, 0, 0, 0, 0, 0,
        /* columns */ 0, 0, 0, 0, 0, 0, 0, 0 };
    static const uint32_t scales[4] = { 0x3e874a5fu, 0x3e4fae15u, 0x3e739ae9u, 0x3e7eb8a9u };
    static const unsigned char codes[2][40] = { {
            180, 83, 127, 96, 75, 83, 68, 20, 55, 254, 160, 84, 103, 105, 57, 71, 62, 30, 175, 198, 136, 86, 81, 85,
            42, 61, 63, 148, 129, 166, 118, 82, 69, 77, 52, 53, 255, 148, 103, 121 }, {
            219, 172, 148, 127, 110, 95, 80, 63, 55, 241, 174, 140, 120, 110, 94, 79, 64, 55, 253, 188, 144, 117,
            104, 92, 78, 63, 56, 255, 189, 159, 121, 102, 85, 74, 62, 53, 255, 189, 154, 126 } };
    static const uint32_t one = 1; unsigned char little[4];
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, 104); optim_model m; int level, t, i, j;
    const memopt_optim_group g = optim_group(MEMOPT_OPTIM_ADAMW, 1); memopt_optim_run run; const unsigned char *p;
    s.block = 32; s.first = 64;
    for (level = 1; level <= memopt_simd_best(); ++level) {
        memopt_threads threads;
        memset(&threads, 0, sizeof threads);
        threads.simd_level = level;
        optim_open(&m, &s, &threads);
        optim_start(&m, 1);
        for (t = 1; t <= 3; ++t) {
            for (i = 0; i < 40; ++i) optim_set_gradient(&m, 0, (size_t)i, (float)ldexp((double)((i * 37 + t * 11) % 41 - 20) / 8, -(i % 9)));
            run = optim_run(&g, (uint64_t)t);
            CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
        }
        p = (const unsigned char *)m.tensor[0].state;
        CHECK(m.state_bytes[0] == 5 * 64);
        memcpy(little, &one, 4);
        if (little[0]) CHECK(memcmp(p, header, 64) == 0);
        for (j = 0; j < 2; ++j) {
            float scale[16];
            memcpy(scale, p + 64 + 64 * j, 64);
            for (i = 0; i < 16; ++i) CHECK_AT(memopt_i_float_bits(scale[i]) == (i < 2 ? scales[2 * j + i] : 0), j * 16 + i);
            CHECK(memcmp(p + 192 + 64 * j, codes[j], 40) == 0);
            for (i = 40; i < 64; ++i) CHECK(p[192 + 64 * j + i] == 0); /* padding */
        }
        optim_close(&m);
    }
}

/* RMSprop's, from the same kind of program: a second moment alone, and both. The decay is coupled, so weights are in it. */
static void optim_golden_rmsprop(void) {
    static const uint32_t scales[2][4] = { { 0x3ed8b204u, 0x3ee38be6u }, { 0x40990e03u, 0x408c7c92u, 0x3ed906ecu, 0x3ee3b374u } };
    static const unsigned char codes[3][40] = {
        {
            216, 172, 145, 125, 111, 124, 98, 66, 62, 243, 181, 140, 120, 112, 95, 113, 72, 66, 255, 189, 153, 118,
            108, 98, 80, 91, 78, 255, 190, 160, 123, 103, 98, 72, 64, 73, 255, 188, 155, 127 },
        {
            118, 77, 175, 132, 129, 254, 236, 96, 221, 208, 200, 114, 171, 203, 132, 254, 192, 231, 172, 214, 210,
            112, 181, 209, 138, 238, 247, 192, 178, 220, 202, 151, 219, 194, 122, 255, 169, 196, 184, 177 },
        {
            216, 172, 145, 125, 111, 123, 98, 67, 60, 243, 181, 140, 120, 112, 95, 113, 73, 64, 255, 190, 153, 118,
            108, 98, 80, 90, 76, 255, 190, 160, 123, 104, 98, 75, 64, 71, 255, 188, 155, 126 } };
    static const uint32_t weights[2][40] = {
        {
            0xbf8f1e9fu, 0x3eb630e9u, 0x3d9ff0a4u, 0xbd6075f9u, 0xbd529eb4u, 0x3f701b45u, 0x3e44be4fu, 0xbc2cf587u,
            0xbc87d8a2u, 0xbdb39de0u, 0x3f4aa0d4u, 0x3e27809cu, 0xbc8d5255u, 0xbd30b9e3u, 0x3d5d88aau, 0x3f100790u,
            0x3cb2eb7cu, 0xbd2fd342u, 0xbe131cfbu, 0x3cf98056u, 0x3ed2fa93u, 0xbcbcff90u, 0xbdda3af2u, 0xbdb222aau,
            0x3ce75890u, 0x3e46bed5u, 0xbd846c00u, 0xbe6a82b4u, 0x3dc5d9cbu, 0x3b92bcfbu, 0x3d245d94u, 0xbe4769dbu,
            0xbe40fceeu, 0x3dba26e6u, 0x3bfe05c1u, 0xbd8675cfu, 0xbe9b9c1du, 0xbea54f68u, 0x3d495544u, 0x3cfb6e05u },
        {
            0xbf896b2cu, 0x3ece62d9u, 0x3e069065u, 0xbdb0e517u, 0xbd9a863bu, 0x3f61e019u, 0x3e081173u, 0xbd33b4ccu,
            0x3c7c5916u, 0xbd839d4fu, 0x3f514ce4u, 0x3e5497d6u, 0x3d0e4442u, 0x3c327fb3u, 0x3cc89ec3u, 0x3f01c5dbu,
            0xbce0bc17u, 0xbbb5a1bcu, 0xbe5911ccu, 0x3d4f9098u, 0x3ede180eu, 0x3ca73e6du, 0xbd600161u, 0xbd0ae2b3u,
            0x3a228e39u, 0x3e13c8d7u, 0xbc6aa32fu, 0xbe98d3c3u, 0x3ce4c0eau, 0x3cac41e7u, 0x3d829bb4u, 0xbe163760u,
            0xbe0a5b28u, 0x3ddd78cdu, 0xbc780a26u, 0xbc896cf8u, 0xbea740d9u, 0xbec84fffu, 0xbc96b3cbu, 0x3d190aecu } };
    int level, moment, t, i, j;
    for (level = 1; level <= memopt_simd_best(); ++level) for (moment = 0; moment < 2; ++moment) {
        const memopt_threads threads = test_level(level); const memopt_optim_group g = optim_group(MEMOPT_OPTIM_RMSPROP, moment);
        optim_spec s = optim_of(MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_8BIT, 104); optim_model m; const unsigned char *p; uint32_t header[16];
        s.block = 32; s.first = 64; s.moment = moment;
        optim_open(&m, &s, &threads);
        for (i = 0; i < 40; ++i) optim_set_weight(&m, 0, (size_t)i, (float)ldexp((double)(i * 29 % 37 - 18) / 16, -(i % 5)));
        for (t = 1; t <= 3; ++t) {
            const memopt_optim_run run = optim_run(&g, (uint64_t)t);
            for (i = 0; i < 40; ++i) optim_set_gradient(&m, 0, (size_t)i, (float)ldexp((double)((i * 37 + t * 11) % 41 - 20) / 8, -(i % 9)));
            CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
        }
        p = (const unsigned char *)m.tensor[0].state;
        memcpy(header, p, 64);
        CHECK(m.state_bytes[0] == (size_t)(3 + 2 * moment) * 64 && !memcmp(p, "memoptS", 8) && header[2] == 0x01020304 && header[3] == 1);
        CHECK(header[4] == 7 && header[5] == 2 && header[6] == 32 && header[7] == (uint32_t)moment + 1);
        for (j = 0; j <= moment; ++j) {
            const unsigned char *code = p + 64 * (2 + moment + j); float scale[16];
            memcpy(scale, p + 64 + 64 * j, 64);
            for (i = 0; i < 16; ++i) CHECK_AT(memopt_i_float_bits(scale[i]) == (i < 2 ? scales[moment][2 * j + i] : 0), j * 16 + i);
            CHECK(memcmp(code, codes[moment + j], 40) == 0);
            for (i = 40; i < 64; ++i) CHECK(code[i] == 0); /* padding */
        }
        for (i = 0; i < 40; ++i) CHECK_AT(memopt_i_float_bits(optim_weight(&m, 0, (size_t)i)) == weights[moment][i], i);
        optim_close(&m);
    }
}

/* A small network, trained: 12 inputs, 24 hidden, 1 output, on what another network says, with noise. */
enum { OPTIM_IN = 12, OPTIM_HIDDEN = 24, OPTIM_SAMPLES = 1024, OPTIM_BATCH = 64, OPTIM_TRAINED = OPTIM_HIDDEN * (OPTIM_IN + 2) + 1 };
typedef struct optim_task { float x[OPTIM_SAMPLES][OPTIM_IN], y[OPTIM_SAMPLES]; } optim_task;
static float optim_output(const float *w, const float *x, float *hidden, float *slope) {
    const float *b = w + OPTIM_HIDDEN * OPTIM_IN, *out = b + OPTIM_HIDDEN; float y = out[OPTIM_HIDDEN]; int h, i;
    for (h = 0; h < OPTIM_HIDDEN; ++h) {
        float a = b[h], q;
        for (i = 0; i < OPTIM_IN; ++i) a += w[h * OPTIM_IN + i] * x[i];
        q = 1.0f / (1.0f + fabsf(a));
        hidden[h] = a * q; slope[h] = q * q;
        y += out[h] * hidden[h];
    }
    return y;
}
/* The mean of the squares over samples first.., and its gradient when g is not NULL. */
static double optim_net(const float *w, const optim_task *task, int first, int count, float *g) {
    const float *out = w + OPTIM_HIDDEN * (OPTIM_IN + 1); float hidden[OPTIM_HIDDEN], slope[OPTIM_HIDDEN]; double loss = 0; int s, h, i;
    if (g) for (i = 0; i < OPTIM_TRAINED; ++i) g[i] = 0;
    for (s = first; s < first + count; ++s) {
        float d = optim_output(w, task->x[s], hidden, slope) - task->y[s];
        loss += (double)d * (double)d / count;
        if (!g) continue;
        d *= 2.0f / (float)count;
        g[OPTIM_TRAINED - 1] += d;
        for (h = 0; h < OPTIM_HIDDEN; ++h) {
            const float e = d * out[h] * slope[h];
            g[OPTIM_HIDDEN * (OPTIM_IN + 1) + h] += d * hidden[h];
            g[OPTIM_HIDDEN * OPTIM_IN + h] += e;
            for (i = 0; i < OPTIM_IN; ++i) g[h * OPTIM_IN + i] += e * task->x[s][i];
        }
    }
    return loss;
}
static double optim_train(const optim_spec *s, uint64_t seed, uint64_t steps) { /* the loss over all samples then */
    static optim_task task; float w[OPTIM_TRAINED], grad[OPTIM_TRAINED]; optim_model m; int i, k; uint64_t t;
    memopt_optim_group g = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); memopt_optim_run run = optim_run(&g, 1);
    run.gradient_factor = 0;
    for (i = 0; i < OPTIM_TRAINED; ++i) w[i] = optim_value(seed, 100, (uint64_t)i);
    for (k = 0; k < OPTIM_SAMPLES; ++k) {
        for (i = 0; i < OPTIM_IN; ++i) task.x[k][i] = 2 * optim_value(seed, 101, (uint64_t)(k * OPTIM_IN + i));
        task.y[k] = optim_output(w, task.x[k], grad, grad + OPTIM_HIDDEN) + 3 * optim_value(seed, 102, (uint64_t)k);
    }
    optim_open(&m, s, NULL);
    for (i = 0; i < OPTIM_TRAINED; ++i) optim_set_weight(&m, 0, (size_t)i, 0.4f * optim_value(seed, 103, (uint64_t)i));
    for (t = 1; t <= steps; ++t) {
        for (i = 0; i < OPTIM_TRAINED; ++i) w[i] = optim_weight(&m, 0, (size_t)i);
        (void)optim_net(w, &task, (int)(t * OPTIM_BATCH % OPTIM_SAMPLES), OPTIM_BATCH, grad);
        for (i = 0; i < OPTIM_TRAINED; ++i) optim_set_gradient(&m, 0, (size_t)i, grad[i]);
        run.step = t;
        g.rate = 0.05 * (1 - (double)(t - 1) / 200);
        CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
    }
    for (i = 0; i < OPTIM_TRAINED; ++i) w[i] = optim_weight(&m, 0, (size_t)i);
    optim_close(&m);
    return optim_net(w, &task, 0, OPTIM_SAMPLES, NULL);
}
/* Why: of calls with a desc in its error, of others in the optimizer's. Three tensors, two groups. */
typedef struct optim_told {
    memopt_optim_tensor t[3];
    memopt_optim_desc   d;
    memopt_optim_group  g[2];
    memopt_optim_run    run;
    memopt_optim       *optim;
    float weights[3][8], gradients[3][8];
    uint64_t states[3][64], memory[8192];
} optim_told;
static void *optim_at_64(void *p) { return (void *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }
static optim_told *optim_told_open(void) { /* everything is right */
    static optim_told o;
    size_t i;

    memset(&o, 0, sizeof o);
    for (i = 0; i < 3; ++i) {
        o.t[i].weights = o.weights[i];
        o.t[i].gradients = o.gradients[i];
        o.t[i].state = optim_at_64(o.states[i]);
        o.t[i].count = 8;
        o.t[i].group = i == 2;
    }
    o.d.kind = MEMOPT_OPTIM_ADAMW;
    o.d.tensors = o.t;
    o.d.tensor_count = 3;
    o.g[0] = o.g[1] = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    o.run.step = 1;
    o.run.groups = o.g;
    o.run.group_count = 2;
    return &o;
}
#define OPTIM_DESC_SAYS(change, want, text) REFUSES(o->d.error, (o = optim_told_open(), change), \
    memopt_optim_bytes(&o->d, &bytes), MEMOPT_ERR_##want, text)
static void optim_too_large(void) { /* alone, with what it is rounded up to, and all together */
    memopt_optim_tensor matrices[17];
    memopt_optim *opened = NULL;
    optim_told *o;
    size_t bytes = 7, i;

    OPTIM_DESC_SAYS((o->d.kind = MEMOPT_OPTIM_ADAFACTOR, o->d.block = 4096, o->t[1].columns = SIZE_MAX >> 9, /* odd: panels of 4096 rows */
                     o->t[1].count = 32 * o->t[1].columns), OVERFLOW, "tensor 1: columns are larger than memory can be");
    memset(matrices, 0, sizeof matrices);
    for (i = 0; i < 17; ++i) {
        matrices[i].columns = (SIZE_MAX >> 9) - 31; /* 32 times as many sums, a 16th of all that size_t can count */
        matrices[i].count = 32 * matrices[i].columns;
    }
    OPTIM_DESC_SAYS((o->d.kind = MEMOPT_OPTIM_ADAFACTOR, o->d.tensors = matrices, o->d.tensor_count = 17), OVERFLOW,
                    "tensor 16: its sums do not fit size_t");
    OPTIM_DESC_SAYS((o->d.kind = MEMOPT_OPTIM_ADAFACTOR, o->d.tensors = matrices, o->d.tensor_count = 16), OVERFLOW,
                    "optim: tensors are too large together: the object does not fit size_t");
    REFUSES(o->d.error, (o = optim_told_open(), o->t[0].count = o->t[1].count = o->t[2].count = SIZE_MAX / 32 + 1),
            memopt_optim_open(&o->d, NULL, &opened), MEMOPT_ERR_MEMORY,
            sizeof(size_t) > 4 ? "optim: no memory for it: asked 12.0 EiB" : "optim: no memory for it: asked 3.0 GiB");
    CHECK(bytes == 7 && opened == NULL);
}
static void optim_desc_errors(void) {
    optim_told *o = optim_told_open(); memopt_threads few = test_level(0);
    char text[96];
    size_t bytes = 7, need = 0;

    ACCEPTS(o->d.error, (void)0, memopt_optim_bytes(&o->d, &need));
    ACCEPTS(o->d.error, (void)0, memopt_optim_state_bytes(&o->d, 2, &need));
    ACCEPTS(o->d.error, need = sizeof o->memory - 64, memopt_optim_create(&o->d, optim_at_64(o->memory), need, &o->optim));
    OPTIM_DESC_SAYS(o->d.tensor_count = 0, ARGUMENT, "optim: tensor_count is 0");
    OPTIM_DESC_SAYS(o->d.tensors = NULL, ARGUMENT, "optim: tensors is NULL");
    OPTIM_DESC_SAYS(o->d.block = 48, ARGUMENT, "optim: block 48, must be a multiple of 32");
    OPTIM_DESC_SAYS(o->d.block = 4128, ARGUMENT, "optim: block 4128, at most 4096");
    OPTIM_DESC_SAYS((few.worker_count = -2, o->d.threads = &few), ARGUMENT, "optim: threads.worker_count -2, at least 0");
    OPTIM_DESC_SAYS(o->d.place_states = 2, ARGUMENT, "optim: place_states 2, must be 0 or 1");
    OPTIM_DESC_SAYS(o->d.first_moment = 2, ARGUMENT, "optim: first_moment 2, must be 0 or 1");
    OPTIM_DESC_SAYS(o->d.kind = (memopt_optim_kind)test_number_of(9), ARGUMENT, "optim: kind 9, at most 8");
    OPTIM_DESC_SAYS(o->d.state = (memopt_state_format)test_number_of(4), ARGUMENT, "optim: state 4, at most 3");
    OPTIM_DESC_SAYS(o->d.weights = (memopt_type)test_number_of(4), ARGUMENT, "optim: weights 4, at most 1");
    OPTIM_DESC_SAYS(o->d.extra = (memopt_optim_extra)test_number_of(3), ARGUMENT, "optim: extra 3, at most 2");
    OPTIM_DESC_SAYS(o->d.extra = MEMOPT_OPTIM_EXTRA_SPLIT, ARGUMENT, "optim: extra is MEMOPT_OPTIM_EXTRA_SPLIT, which only BF16 weights have");
    OPTIM_DESC_SAYS((o->d.weights = MEMOPT_TYPE_BF16, o->d.extra = MEMOPT_OPTIM_EXTRA_COPY), ARGUMENT,
                    "optim: extra is MEMOPT_OPTIM_EXTRA_COPY, which only F32 weights have");
    OPTIM_DESC_SAYS(o->d.gradients = (memopt_type)3, ARGUMENT, "optim: gradients 3, at most 2");
    OPTIM_DESC_SAYS((o->d.kind = MEMOPT_OPTIM_LION, o->d.state = MEMOPT_STATE_BNB), ARGUMENT,
                    "optim: state is MEMOPT_STATE_BNB, which only ADAMW and ADAM have");
    OPTIM_DESC_SAYS(o->t[1].count = 0, ARGUMENT, "tensor 1: count 0, at least 1");
    OPTIM_DESC_SAYS(o->t[1].first = 9, ARGUMENT, "tensor 1: first 9, at most count 8");
    OPTIM_DESC_SAYS(o->t[2].held = 9, ARGUMENT, "tensor 2: held 9, at most count - first 8");
    OPTIM_DESC_SAYS(o->t[2].columns = 3, ARGUMENT, "tensor 2: columns 3, must divide count 8");
    OPTIM_DESC_SAYS(o->t[0].first = 4, ARGUMENT, "tensor 0: first 4, must be a multiple of the block 256");
    OPTIM_DESC_SAYS(o->t[0].held = 4, ARGUMENT, "tensor 0: held 4, must be a multiple of the block 256");
    OPTIM_DESC_SAYS(o->t[0].count = SIZE_MAX / 8, OVERFLOW, "tensor 0: count is larger than memory can be");
    optim_too_large();
    CHECK(bytes == 7);
    o = optim_told_open();
    REFUSES(o->d.error, (void)0, memopt_optim_bytes(&o->d, NULL), MEMOPT_ERR_ARGUMENT, "optim: bytes is NULL");
    REFUSES(o->d.error, (void)0, memopt_optim_state_bytes(&o->d, 0, NULL), MEMOPT_ERR_ARGUMENT, "optim: bytes is NULL");
    REFUSES(o->d.error, (void)0, memopt_optim_state_bytes(&o->d, 3, &bytes), MEMOPT_ERR_ARGUMENT, "optim: tensor 3, below 3");
    CHECK(memopt_optim_bytes(&o->d, &need) == MEMOPT_OK && need <= sizeof o->memory - 64);
    snprintf(text, sizeof text, "optim: bytes %u, at least %u", (unsigned)need - 1, (unsigned)need);
    REFUSES(o->d.error, (void)0, memopt_optim_create(&o->d, optim_at_64(o->memory), need - 1, &o->optim),
            MEMOPT_ERR_BUFFER, text);
    REFUSES(o->d.error, (void)0, memopt_optim_create(&o->d, NULL, need, &o->optim), MEMOPT_ERR_ARGUMENT,
            "optim: memory is NULL");
    REFUSES(o->d.error, (void)0, memopt_optim_create(&o->d, (char *)optim_at_64(o->memory) + 8, need, &o->optim),
            MEMOPT_ERR_ARGUMENT, "optim: memory is misaligned");
    REFUSES(o->d.error, (void)0, memopt_optim_create(&o->d, optim_at_64(o->memory), need, NULL), MEMOPT_ERR_ARGUMENT,
            "optim: out is NULL");
    CHECK(o->optim == NULL && memopt_optim_bytes(NULL, &need) == MEMOPT_ERR_ARGUMENT);
}
static optim_told *optim_told_of(memopt_optim_kind kind) {
    optim_told *o = optim_told_open();
    size_t i;

    o->d.kind = kind;
    o->g[0] = o->g[1] = memopt_optim_group_default(kind);
    CHECK(memopt_optim_create(&o->d, optim_at_64(o->memory), sizeof o->memory - 64, &o->optim) == MEMOPT_OK);
    for (i = 0; i < 3; ++i) CHECK(memopt_optim_state_init(o->optim, i) == MEMOPT_OK);
    return o;
}
static optim_told *optim_told_begun(void) { return optim_told_of(MEMOPT_OPTIM_ADAMW); }
#define OPTIM_SAYS(change, call, want, text) do { \
    o = optim_told_begun(); \
    change; \
    CHECK((call) == MEMOPT_ERR_##want); \
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_##want, text)); } while (0)
static void optim_shape_errors(void) { /* of a part of a tensor, of split weights, of a state in 8 bits */
    static uint64_t state[4096];
    optim_told *o = optim_told_open();
    memopt_optim_view view;
    size_t bytes = 0;

    o->d.kind = MEMOPT_OPTIM_SGD; /* without a moment it has no state */
    o->g[0] = o->g[1] = memopt_optim_group_default(o->d.kind);
    o->t[1].count = 512; o->t[1].first = 256;
    CHECK(memopt_optim_create(&o->d, optim_at_64(o->memory), sizeof o->memory - 64, &o->optim) == MEMOPT_OK);
    CHECK(memopt_optim_begin(o->optim, &o->run) == MEMOPT_OK && memopt_i_optim_apply(o->optim, 1, 0, 256) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_ARGUMENT, "tensor 1: first 0, at least the tensor's first 256"));

    o = optim_told_open();
    o->d.kind = MEMOPT_OPTIM_SGD; o->d.weights = MEMOPT_TYPE_BF16; o->d.extra = MEMOPT_OPTIM_EXTRA_SPLIT;
    o->g[0] = o->g[1] = memopt_optim_group_default(o->d.kind);
    CHECK(memopt_optim_create(&o->d, optim_at_64(o->memory), sizeof o->memory - 64, &o->optim) == MEMOPT_OK);
    CHECK(memopt_optim_step(o->optim, &o->run) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_ARGUMENT, "tensor 0: extra is NULL"));

    o = optim_told_open();
    o->d.state = MEMOPT_STATE_8BIT;
    o->t[1].count = 4096; o->t[1].state = optim_at_64(state);
    CHECK(memopt_optim_create(&o->d, optim_at_64(o->memory), sizeof o->memory - 64, &o->optim) == MEMOPT_OK);
    CHECK(memopt_optim_state_bytes(&o->d, 1, &bytes) == MEMOPT_OK && bytes <= sizeof state - 64);
    CHECK(memopt_optim_state_init(o->optim, 1) == MEMOPT_OK && memopt_optim_state_view(o->optim, 1, &view) == MEMOPT_OK);
    CHECK(memopt_optim_state_check(o->optim, 1, bytes) == MEMOPT_OK && view.blocks == 16);
    view.scale[1][15] = memopt_i_bits_float(0x80000000u);
    CHECK(memopt_optim_state_check(o->optim, 1, bytes) == MEMOPT_ERR_FORMAT);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_FORMAT, "tensor 1: a scale of the state is negative or not finite"));
}
#define OPTIM_STEP_SAYS(change, text) OPTIM_SAYS(change, memopt_optim_step(o->optim, &o->run), ARGUMENT, text)
static void optim_run_errors(void) {
    const double not_number = (double)memopt_i_bits_float(0x7fc00000u);
    optim_told *o = optim_told_begun();
    memopt_optim_view view;
    double *sums;
    size_t count;
    int again;

    CHECK(memopt_optim_step(o->optim, &o->run) == MEMOPT_OK && memopt_optim_error(o->optim).status == MEMOPT_OK);
    OPTIM_SAYS((void)0, memopt_optim_step(o->optim, NULL), ARGUMENT, "run is NULL");
    OPTIM_SAYS((void)0, memopt_optim_begin(o->optim, NULL), ARGUMENT, "run is NULL");
    OPTIM_STEP_SAYS(o->run.step = 0, "optim: step 0, at least 1");
    OPTIM_STEP_SAYS(o->run.groups = NULL, "optim: groups is NULL");
    OPTIM_STEP_SAYS(o->run.group_count = 0, "optim: group_count 0, at least 1");
    OPTIM_STEP_SAYS(o->run.gradient_factor = -0.5, "optim: gradient_factor -0.5, must be 0, or from 2^-48 to 2^48");
    OPTIM_STEP_SAYS(o->run.fused = 1, "a fused step is applied tensor by tensor");
    OPTIM_STEP_SAYS(o->g[1].rate = -1, "group 1: rate -1, at least 0 and at most 1e+30");
    OPTIM_STEP_SAYS(o->g[0].rate = not_number, "group 0: rate NaN, at least 0 and at most 1e+30");
    OPTIM_STEP_SAYS(o->g[1].beta1 = 1, "group 1: beta1 1, at least 0 and below 1");
    OPTIM_STEP_SAYS(o->g[0].beta2 = -0.1, "group 0: beta2 -0.1, at least 0 and below 1");
    OPTIM_STEP_SAYS(o->g[0].eps = -1e-8, "group 0: eps -1e-8, at least 0 and at most 1e+30");
    OPTIM_STEP_SAYS(o->g[0].weight_decay = -0.01, "group 0: weight_decay -0.01, at least 0 and at most 1e+30");
    OPTIM_STEP_SAYS(o->g[0].dampening = 2, "group 0: dampening 2, at least 0 and at most 1");
    OPTIM_STEP_SAYS((o->g[0].nesterov = 1, o->g[0].beta1 = 0), "group 0: nesterov is set without a momentum: beta1 is 0");
    OPTIM_STEP_SAYS((o->g[0].nesterov = 1, o->g[0].dampening = 0.5), "group 0: nesterov is set, and there is a dampening");
    OPTIM_STEP_SAYS(o->t[2].group = 2, "tensor 2: group 2, below group_count 2");
    OPTIM_STEP_SAYS(o->t[1].weights = NULL, "tensor 1: weights is NULL");
    OPTIM_STEP_SAYS(o->t[1].gradients = (char *)o->gradients + 1, "tensor 1: gradients is misaligned");
    OPTIM_STEP_SAYS(o->t[2].state = NULL, "tensor 2: state is NULL");
    OPTIM_STEP_SAYS(o->t[2].state = (char *)o->t[2].state + 8, "tensor 2: state is misaligned");
    OPTIM_SAYS(memset(o->t[1].state, 0, 64), memopt_optim_step(o->optim, &o->run), FORMAT,
               "tensor 1: state is not of an optimizer");
    OPTIM_SAYS(((uint32_t *)o->t[1].state)[3] = 9, memopt_optim_state_check(o->optim, 1, 4096), FORMAT,
               "tensor 1: state version 9, expected 1");
    OPTIM_SAYS(((uint32_t *)o->t[1].state)[2] = 0x04030201, memopt_optim_state_check(o->optim, 1, 4096), FORMAT,
               "tensor 1: state has the other byte order");
    OPTIM_SAYS(((uint32_t *)o->t[1].state)[4] = 3, memopt_optim_state_check(o->optim, 1, 4096), FORMAT,
               "tensor 1: state kind 3, expected 0");
    OPTIM_SAYS(((uint64_t *)o->t[1].state)[4] = 16, memopt_optim_state_check(o->optim, 1, 4096), FORMAT,
               "tensor 1: state count 16, expected 8");
    OPTIM_SAYS((void)0, memopt_optim_state_check(o->optim, 1, 191), BUFFER, "tensor 1: state bytes 191, at least 192");
    OPTIM_SAYS((void)0, memopt_optim_state_check(o->optim, 3, 192), ARGUMENT, "optim: tensor 3, below 3");
    OPTIM_SAYS((void)0, memopt_optim_state_init(o->optim, 4), ARGUMENT, "optim: tensor 4, below 3");
    OPTIM_SAYS(o->t[0].state = NULL, memopt_optim_state_init(o->optim, 0), ARGUMENT, "tensor 0: state is NULL");
    OPTIM_SAYS((void)0, memopt_optim_state_view(o->optim, 5, &view), ARGUMENT, "optim: tensor 5, below 3");
    OPTIM_SAYS((void)0, memopt_optim_state_view(o->optim, 0, NULL), ARGUMENT, "out is NULL");
    OPTIM_SAYS(o->run.fused = o->run.clips_norm = 1, memopt_optim_begin(o->optim, &o->run), ARGUMENT,
               "optim: a fused step cannot clip by the global norm, which is known only after backward");
    OPTIM_SAYS(o->run.fused = o->run.accumulates = 1, memopt_optim_begin(o->optim, &o->run), ARGUMENT,
               "optim: a fused step cannot accumulate: it steps with each micro-batch's gradient");
    OPTIM_SAYS(o->run.fused = o->run.scales_loss = 1, memopt_optim_begin(o->optim, &o->run), ARGUMENT,
               "optim: a fused step cannot scale the loss dynamically: it could not take a step back");
    OPTIM_SAYS((void)0, memopt_i_optim_apply(o->optim, 0, 0, 8), STATE, "no step has begun");
    OPTIM_SAYS((void)0, memopt_optim_end(o->optim), STATE, "no step has begun");
    OPTIM_SAYS((void)0, memopt_i_optim_sums(o->optim, 0, &sums, &count), STATE, "no step has begun");
    OPTIM_SAYS((void)0, memopt_i_optim_join(o->optim, 0, NULL), ARGUMENT, "again is NULL");
    OPTIM_SAYS((void)0, memopt_i_optim_join(o->optim, 0, &again), STATE, "no step has begun");
    o = optim_told_of(MEMOPT_OPTIM_LARS);
    o->g[1].trust = 0;
    CHECK(memopt_optim_step(o->optim, &o->run) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_ARGUMENT, "group 1: trust 0, above 0 and at most 1e+30"));
    o = optim_told_of(MEMOPT_OPTIM_SGD);
    o->g[1].beta1 = 0.5;
    CHECK(memopt_optim_begin(o->optim, &o->run) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_ARGUMENT,
                    "group 1: beta1 is above 0, which needs first_moment in the desc"));
    o = optim_told_of(MEMOPT_OPTIM_LAMB);
    CHECK(memopt_optim_begin(o->optim, &o->run) == MEMOPT_OK && memopt_i_optim_apply(o->optim, 1, 0, 8) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_STATE, "tensor 1: the tensor is not measured and joined yet"));
    CHECK(memopt_i_optim_measure(o->optim, 1, 0, 8) == MEMOPT_OK && memopt_i_optim_join(o->optim, 1, &again) == MEMOPT_OK);
    CHECK(memopt_i_optim_join(o->optim, 1, &again) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_STATE, "tensor 1: the tensor is joined already"));
    CHECK(memopt_i_optim_measure(o->optim, 1, 0, 8) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_STATE, "tensor 1: the tensor is measured already"));
#define OPTIM_BEGUN_SAYS(call, want, text) OPTIM_SAYS(CHECK(memopt_optim_begin(o->optim, &o->run) == MEMOPT_OK), call, want, text)
    OPTIM_BEGUN_SAYS(memopt_optim_begin(o->optim, &o->run), STATE, "a step has begun already");
    OPTIM_BEGUN_SAYS(memopt_i_optim_apply(o->optim, 3, 0, 8), ARGUMENT, "optim: tensor 3, below 3");
    OPTIM_BEGUN_SAYS(memopt_i_optim_apply(o->optim, 1, 0, 0), ARGUMENT, "tensor 1: count 0, at least 1");
    OPTIM_BEGUN_SAYS(memopt_i_optim_apply(o->optim, 1, 8, 1), ARGUMENT, "tensor 1: first 8, below the end of the part 8");
    OPTIM_BEGUN_SAYS(memopt_i_optim_apply(o->optim, 1, 0, 9), ARGUMENT, "tensor 1: count 9, at most 8");
    OPTIM_BEGUN_SAYS(memopt_i_optim_apply(o->optim, 1, 4, 4), ARGUMENT,
                     "tensor 1: first 4, must be a multiple of the slice alignment 256");
    OPTIM_BEGUN_SAYS(memopt_i_optim_apply(o->optim, 1, 0, 4), ARGUMENT,
                     "tensor 1: first + count 4, must be a multiple of the slice alignment 256");
    OPTIM_BEGUN_SAYS(memopt_i_optim_measure(o->optim, 1, 0, 8), STATE, "tensor 1: this kind does not measure");
    OPTIM_BEGUN_SAYS(memopt_i_optim_join(o->optim, 1, &again), STATE, "tensor 1: this kind does not measure");
    OPTIM_BEGUN_SAYS(memopt_i_optim_sums(o->optim, 7, &sums, &count), ARGUMENT, "optim: tensor 7, below 3");
    OPTIM_BEGUN_SAYS(memopt_i_optim_sums(o->optim, 0, NULL, &count), ARGUMENT, "sums or count is NULL");
    OPTIM_BEGUN_SAYS((memopt_i_optim_apply(o->optim, 1, 0, 8), memopt_i_optim_apply(o->optim, 1, 0, 8)), STATE,
                     "tensor 1: this much was applied already");
    OPTIM_SAYS((void)0, memopt_optim_apply_share(o->optim, 0, 1, NULL), STATE, "optim: step has not begun");
    OPTIM_BEGUN_SAYS(memopt_optim_apply_share(o->optim, 0, 0, NULL), ARGUMENT, "optim: share 0, below 0");
    CHECK(memopt_optim_apply_share(o->optim, 3, 3, NULL) == MEMOPT_ERR_ARGUMENT); /* keeps no reason of its own */
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_ARGUMENT, "optim: share 0, below 0"));
    CHECK(memopt_optim_apply_share(NULL, 0, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    OPTIM_SAYS((o->run.fused = 1, (void)memopt_optim_begin(o->optim, &o->run)), memopt_optim_apply_share(o->optim, 0, 1, NULL),
               STATE, "optim: step is fused: it is applied tensor by tensor");
    OPTIM_SAYS((o->optim->desc.tensors[1].gradients = NULL, (void)memopt_optim_begin(o->optim, &o->run)),
               memopt_optim_apply_share(o->optim, 0, 2, NULL), ARGUMENT, "tensor 1: gradients is NULL");
    OPTIM_BEGUN_SAYS((o->optim->lane = 576, memopt_optim_apply_share(o->optim, 0, 2, NULL)), UNSUPPORTED,
                     "optim: block is too large for shares");
    o = optim_told_of(MEMOPT_OPTIM_LAMB);
    CHECK(memopt_optim_begin(o->optim, &o->run) == MEMOPT_OK && memopt_optim_apply_share(o->optim, 0, 2, NULL) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_UNSUPPORTED, "optim: kind measures: it has no shares"));
    OPTIM_SAYS((o->run.fused = 1, o->gradients[2][5] = memopt_i_bits_float(0x7f800000u),
                (void)memopt_optim_begin(o->optim, &o->run)), memopt_i_optim_apply(o->optim, 2, 0, 8), STATE,
               "tensor 2: a gradient is not finite; this slice and later ones are not stepped");
    CHECK(memopt_i_optim_apply(o->optim, 0, 0, 8) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_STATE,
                    "the fused step was stopped by a gradient that is not finite"));
    CHECK(memopt_optim_state_init(o->optim, 3) == MEMOPT_ERR_ARGUMENT); /* another error, so that end has to say it again */
    CHECK(memopt_optim_end(o->optim) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_optim_error(o->optim), MEMOPT_ERR_STATE,
                    "the fused step was stopped by a gradient that is not finite"));
    optim_shape_errors();
}
static void optim_training(void) {
    optim_spec s = optim_of(MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, OPTIM_TRAINED); double loss[4] = { 0, 0, 0, 0 }, begin = 0; uint64_t seed; int i;
    for (seed = 1; seed <= 5; ++seed) {
        begin += optim_train(&s, seed, 0) / 5;
        for (i = 0; i < 4; ++i) {
            s.state = i == 0 ? MEMOPT_STATE_F32 : i == 1 ? MEMOPT_STATE_BF16 : MEMOPT_STATE_8BIT;
            s.weights = i == 3 ? MEMOPT_I_WEIGHTS_BF16 : MEMOPT_I_WEIGHTS_F32; s.gradients = i == 3 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
            loss[i] += optim_train(&s, seed, 200) / 5;
        }
        s.state = MEMOPT_STATE_F32; s.weights = MEMOPT_I_WEIGHTS_F32; s.gradients = MEMOPT_TYPE_F32;
    }
#ifdef TEST_LONG
    printf("loss %.3f, after 200 steps: float %.5f, bf16 states %.5f, 8 bits %.5f, and bf16 weights and gradients %.5f\n",
           begin, loss[0], loss[1], loss[2], loss[3]);
#endif
    CHECK(begin > 1.4 * loss[0] && loss[0] > 2); /* it learned, and noise is left */
    CHECK(fabs(loss[1] / loss[0] - 1) <= 0.002);
    CHECK(fabs(loss[2] / loss[0] - 1) <= 0.002);
    CHECK(fabs(loss[3] / loss[0] - 1) <= 0.01); /* 8 bits of weight, rounded at random */
}
static void test_optim(void) {
#if defined(TEST_THREADS) /* a race is looked for, slowly: what runs on one thread has been seen elsewhere */
    RUN(optim_pool);
    RUN(optim_shares_are_the_step);
    return;
#endif
    RUN(optim_converted);
    RUN(optim_formulas);
    RUN(optim_formulas_gradients);
    RUN(optim_defaults);
    RUN(optim_coded);
    RUN(optim_bf16_state);
    RUN(optim_hundred_steps);
    RUN(optim_all_combinations);
    RUN(optim_many_chunks);
    RUN(optim_narrow_gradients);
    RUN(optim_pool);
    RUN(optim_shares_are_the_step);
    RUN(optim_opened);
    RUN(optim_weight_formats);
    RUN(optim_bf16_weights);
    RUN(optim_bf16_noise_of_steps);
    RUN(optim_bf16_noise_adds_up);
    RUN(optim_eps_of_zero);
    RUN(optim_nothing_to_do);
    RUN(optim_parts);
    RUN(optim_skipped);
    RUN(optim_limits);
    RUN(optim_factors);
    RUN(optim_wild_weights);
    RUN(optim_wild_bf16);
    RUN(optim_huge_scales);
    RUN(optim_fused);
    RUN(optim_placed);
    RUN(optim_bad_descs);
    RUN(optim_bad_runs);
    RUN(optim_no_momentum);
    RUN(optim_second_alone);
    RUN(optim_bad_pointers);
    RUN(optim_order);
    RUN(optim_bad_states);
    RUN(optim_desc_errors);
    RUN(optim_run_errors);
    RUN(optim_other_states);
    RUN(optim_resume);
    RUN(optim_groups);
    RUN(optim_foreign_fields);
    RUN(optim_small_tensors);
    RUN(optim_no_overrun);
    RUN(optim_sizes);
    RUN(optim_huge);
    RUN(optim_golden);
    RUN(optim_golden_rmsprop);
    RUN(optim_large_weights);
    RUN(optim_training);
}
#ifndef TEST_COMBINED
int main(void) { test_optim(); return test_totals(); }
#endif
