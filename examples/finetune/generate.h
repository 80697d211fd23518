/* generate.h - what the model says to a prompt, token by token, with a cache of keys and values.

   How      The tape of training, reshaped: one pass over the prompt, then one over each token, evaluated; the attention
            of the parts is replaced by one that keeps keys and values, and attends to those that are kept. The memory
            of a pass is that of training, which is never less; the cache is told beforehand.
   Which    The likeliest token, or one drawn by temperature from bits that are a function of seed, step and place. */
#ifndef FINETUNE_GENERATE_H
#define FINETUNE_GENERATE_H
#include "model.h"

typedef struct generator {
    model  *m;
    unsigned char *cache; /* of a block: keys, then values, `room` rows of each */
    size_t  room, held;   /* tokens */
    float  *logits, *scores, *row; /* of the vocabulary; of `room`; two heads */
    transformer before;   /* the shape of training */
    double  temperature;
} generator;

/* ---- attention with a cache ---- */
static size_t generate_plane(const generator *g) { /* bytes of keys, or values, of a block */
    return g->room * transformer_kv_width(&g->m->shape) * memopt_type_bytes(g->m->shape.type);
}

static void generate_take(const memopt_tape_call *call, const memopt_attention *attention, void *room[2]) {
    (void)call;
    (void)attention;
    (void)room;
}

static void generate_keep(const generator *g, size_t block, const memopt_attention *a) {
    const size_t bytes = transformer_kv_width(&g->m->shape) * memopt_type_bytes(a->type);
    unsigned char *keys = g->cache + 2 * block * generate_plane(g), *values = keys + generate_plane(g);
    size_t i;

    for (i = 0; i < a->length; ++i) {
        memcpy(keys + (g->held + i) * bytes, transformer_at(a->keys, i * a->kv_stride, a->type), bytes);
        memcpy(values + (g->held + i) * bytes, transformer_at(a->values, i * a->kv_stride, a->type), bytes);
    }
}

static const float *generate_floats(const void *from, memopt_type type, size_t n, float *room) {
    if (type == MEMOPT_TYPE_F32) return (const float *)from;
    (void)memopt_f32_from_bf16(room, (const uint16_t *)from, n, NULL);
    return room;
}

/* A head of the one row there is, over what is kept, itself included. */
static void generate_attend(const generator *g, size_t block, const memopt_attention *a, size_t head) {
    const size_t kv = transformer_kv_width(&g->m->shape), rows = g->held + 1, w = a->width;
    const size_t shared = a->kv_heads ? a->heads / a->kv_heads : 1; /* heads with these keys */
    const size_t at = head / shared * w, first = a->window && a->window < rows ? rows - a->window : 0;
    const unsigned char *keys = g->cache + 2 * block * generate_plane(g), *values = keys + generate_plane(g);
    const float *query = generate_floats(transformer_at(a->queries, head * w, a->type), a->type, w, g->row);
    float largest = -INFINITY, sum = 0, out[CONFIG_HEAD_MAX];
    size_t i, k;

    memset(out, 0, w * sizeof *out);
    for (i = first; i < rows; ++i) {
        const float *key = generate_floats(transformer_at(keys, i * kv + at, a->type), a->type, w, g->row + w);
        float score = 0;

        for (k = 0; k < w; ++k) score += query[k] * key[k];
        g->scores[i] = score / sqrtf((float)w);
        if (g->scores[i] > largest) largest = g->scores[i];
    }
    for (i = first; i < rows; ++i) sum += g->scores[i] = expf(g->scores[i] - largest);
    for (i = first; i < rows; ++i) {
        const float *value = generate_floats(transformer_at(values, i * kv + at, a->type), a->type, w, g->row + w);

        for (k = 0; k < w; ++k) out[k] += g->scores[i] / sum * value[k];
    }
    if (a->type == MEMOPT_TYPE_F32) memcpy((float *)a->output + head * w, out, w * sizeof *out);
    else (void)memopt_bf16_from_f32((uint16_t *)a->output + head * w, out, w, NULL);
}

static memopt_status generate_run(const memopt_tape_call *call, const transformer_ops *ops,
                                  const memopt_attention *attention, void *const room[2]) {
    const transformer_part *part = (const transformer_part *)call->user;
    const generator *g = (const generator *)part->shape->user;
    size_t block, head;

    (void)room;
    for (block = 0; !call->describing && &g->m->blocks[block].attention != part; ++block) {}
    if (!call->describing) generate_keep(g, block, attention);
    if (call->describing || !g->held) return memopt_attention_forward(ops, attention);
    for (head = 0; head < attention->heads; ++head) generate_attend(g, block, attention, head);
    return MEMOPT_OK;
}

/* ---- shapes ---- */
static int generate_reshape(model *m) {
    memopt_tape_desc front = model_tape(m, 1), d = model_tape(m, 0);
    memopt_status s;
    size_t i;

    for (i = 0; i < m->count; ++i) { /* never read, as in model_describe() */
        transformer_part *part = model_part(m, i);

        part->gradients = part->is_frozen ? NULL : m->sizes;
        part->adapter_gradients = m->sizes;
    }
    s = memopt_tape_describe(m->layer_list, m->segments, m->count, &m->why.error);
    if (!s && m->front_tape) s = memopt_tape_reshape(m->front_tape, &front.chain);
    return failed(&m->why, "the shape of a prompt", s ? s : memopt_tape_reshape(m->tape, &d.chain));
}

/* The parts' sizes of activations follow from the shape. */
static int generate_set_rows(generator *g, size_t length) {
    static const transformer_attention_fns cached = { generate_take, generate_run, 0, NULL };
    transformer *t = &g->m->shape;
    size_t i;

    t->batch = 1;
    t->length = length;
    t->documents = 0;
    t->starts = NULL;
    t->row_positions = g->m->positions;
    t->attention = &cached;
    t->user = g;
    for (i = 0; i < length; ++i) g->m->positions[i] = (int32_t)(g->held + i);
    for (i = 0; i + 1 < g->m->count; ++i) g->m->segments[i].output_bytes = transformer_bytes(t, t->width);
    return generate_reshape(g->m);
}

static int generate_restore(generator *g) {
    model *m = g->m;
    size_t i;

    m->shape = g->before;
    m->head.logits = NULL;
    for (i = 0; i + 1 < m->count; ++i) m->segments[i].output_bytes = transformer_bytes(&m->shape, m->shape.width);
    return generate_reshape(m);
}

/* ---- tokens ---- */
static int32_t generate_choose(const generator *g, uint64_t step) {
    const size_t n = g->m->shape.vocabulary;
    size_t i, best = 0;
    double sum = 0, at;
    uint32_t bits = 0;

    for (i = 1; i < n; ++i)
        if (g->logits[i] > g->logits[best]) best = i;
    if (!(g->temperature > 0)) return (int32_t)best;
    for (i = 0; i < n; ++i) sum += exp(((double)g->logits[i] - (double)g->logits[best]) / g->temperature);
    (void)memopt_random_bits(&bits, 1, g->m->o->seed, UINT64_C(1) << 63 | step, g->held, NULL);
    for (at = sum * ((double)bits + 0.5) / 4294967296.0, i = 0; i + 1 < n; ++i) {
        at -= exp(((double)g->logits[i] - (double)g->logits[best]) / g->temperature);
        if (at < 0) break;
    }
    return (int32_t)i;
}

/* Bytes beside the model: the cache, logits, scores. */
static size_t generate_bytes(const model *m, size_t room) {
    const size_t cache = 2 * m->layers * room * transformer_kv_width(&m->shape) * memopt_type_bytes(m->shape.type);

    return round_up(cache, 64) + (m->shape.vocabulary + room + 2 * CONFIG_HEAD_MAX) * sizeof(float);
}

/* place: generate_bytes() of it. */
static generator generate_begin(model *m, unsigned char *place, size_t room, double temperature) {
    generator g;

    memset(&g, 0, sizeof g);
    g.m = m;
    g.room = room;
    g.before = m->shape;
    g.temperature = temperature;
    g.cache = place;
    g.logits = (float *)(void *)(place + round_up(2 * m->layers * generate_plane(&g), 64));
    g.scores = g.logits + m->shape.vocabulary;
    g.row = g.scores + room;
    return g;
}

/* Tokens after a prompt of `count` in `tokens`, until there are `most`, or the one that ends a text. Returns 1, or 0
   and *count is what there is then. */
static int generate(generator *g, int32_t *tokens, size_t *count, size_t most, int32_t end, uint64_t step) {
    model *m = g->m;
    size_t ready = 0; /* tokens that went through the model */
    int wrong = 0;

    m->head.logits = g->logits;
    m->head.row_count = 1;
    while (!wrong && *count < most) {
        const size_t rows = *count - ready;
        int32_t next;

        g->held = ready;
        m->head.first_row = rows - 1;
        memcpy(m->ids, tokens + ready, rows * sizeof *tokens);
        wrong = generate_set_rows(g, rows) || model_evaluate(m);
        ready = *count;
        next = generate_choose(g, step);
        if (wrong || next == end) break;
        tokens[(*count)++] = next;
    }
    return generate_restore(g) || wrong;
}
#endif
