/* test_parts.c - examples/parts: transformer blocks, embedding and head, against a plain engine that calls the same operators one
   after the other, keeps every buffer and knows no tape (bits equal), and against loops in double precision. */
#include "test.h"
#include "examples/parts/block.h"
#include "examples/parts/embedding.h"
#include "examples/parts/head.h"
#include "examples/parts/adapter.h"

enum { PARTS_BLOCKS = 3, PARTS_SEGMENTS = 2 * PARTS_BLOCKS + 2, PARTS_TENSORS = PARTS_BLOCKS * 14 + 5,
       PARTS_MAX = 40000 /* parameters */, PARTS_ROWS = 96 };
enum { PARTS_FUSED = 1 /* gradients in scratch, for done_fn */, PARTS_CLASSES = 2 /* a target for each sequence */ };

/* A layer that remembers with which seed and stream it was called last. */
typedef struct parts_recorder { memopt_tape_layer inner; uint64_t seed, stream; } parts_recorder;
typedef struct parts_model {
    transformer t;
    size_t blocks, total, tensors;
    transformer_part embedding; transformer_block block[PARTS_BLOCKS]; transformer_head head;
    memopt_optim_tensor optim[PARTS_TENSORS];
    memopt_tape_layer layers[PARTS_SEGMENTS]; memopt_segment segments[PARTS_SEGMENTS]; parts_recorder recorders[PARTS_SEGMENTS];
    size_t first[PARTS_TENSORS], count[PARTS_TENSORS]; /* of each tensor, in the whole of the weights */
    float weights[PARTS_MAX], gradients[PARTS_MAX];    /* or 16-bit numbers */
    int32_t ids[PARTS_ROWS], targets[PARTS_ROWS], classes[PARTS_ROWS];
    memopt_threads threads;
    int done; /* calls of done_fn */
} parts_model;

static memopt_status parts_forward(const memopt_tape_call *call) {
    parts_recorder *r = (parts_recorder *)call->user; memopt_tape_call c = *call;
    c.user = r->inner.user; r->seed = call->seed; r->stream = call->stream;
    return r->inner.forward_fn(&c);
}
static memopt_status parts_backward(const memopt_tape_call *call) {
    parts_recorder *r = (parts_recorder *)call->user; memopt_tape_call c = *call;
    c.user = r->inner.user;
    return r->inner.backward_fn(&c);
}
static memopt_status parts_done(void *user, size_t tensor, const void *gradients) {
    parts_model *m = (parts_model *)user; const size_t size = memopt_type_bytes(m->t.gradient_type);
    unsigned char *to = (unsigned char *)m->gradients + m->first[tensor] * size;
    CHECK(tensor < m->tensors && gradients);
    CHECK(m->t.untied || m->t.rotary || tensor != 1 || to != gradients); /* positions: the array is that of the tokens */
    if (to != gradients) memcpy(to, gradients, m->count[tensor] * size);
    ++m->done;
    return MEMOPT_OK;
}
static void parts_put(void *to, memopt_type type, size_t i, float x) {
    if (type == MEMOPT_TYPE_F32) ((float *)to)[i] = x;
    else ((uint16_t *)to)[i] = memopt_to_bf16(x);
}
/* The list of a part is what lies in its arrays: its tensors are numbered, and an optimizer is told the same. */
static void parts_number(parts_model *m, const transformer_part *part, transformer_tensors_fn *tensors_fn, size_t at) {
    transformer_tensor list[TRANSFORMER_TENSORS_MAX]; const size_t size = memopt_type_bytes(m->t.weight_type); size_t i, end = 0;
    memset(list, 0, sizeof list);
    CHECK(part->first_tensor == m->tensors && part->weights == (unsigned char *)m->weights + at * size);
    CHECK(tensors_fn(&m->t, list) <= PARTS_MAX - at);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i)
        if (list[i].count) {
            const memopt_optim_tensor *x = &m->optim[m->tensors];
            CHECK(list[i].name && list[i].first == end && (!list[i].columns || list[i].count % list[i].columns == 0));
            CHECK(x->weights == (unsigned char *)m->weights + (at + end) * size && x->count == list[i].count && x->columns == list[i].columns);
            CHECK(x->gradients == (part->gradients ? (unsigned char *)m->gradients + (at + end) * memopt_type_bytes(m->t.gradient_type) : NULL));
            m->first[m->tensors] = at + end; m->count[m->tensors++] = list[i].count;
            end += list[i].count;
        }
    CHECK(end == tensors_fn(&m->t, list));
}
static void parts_add(parts_model *m, transformer_chain *c) {
    size_t i;
    transformer_add_embedding(c, &m->embedding);
    for (i = 0; i < m->blocks; ++i) transformer_add_block(c, &m->block[i]);
    transformer_add_head(c, &m->head, &m->embedding);
}
static void parts_open(parts_model *m, const transformer *shape, size_t blocks, int how) {
    const int fused = how & PARTS_FUSED;
    transformer_chain c; memopt_error why; uint64_t seed = 5; size_t i, at, rows = shape->batch * shape->length;
    memset(m, 0, sizeof *m); memset(&c, 0, sizeof c);
    m->t = *shape; m->blocks = blocks; m->head.classes = how & PARTS_CLASSES ? 1 : 0;
    if (fused) { m->t.done_fn = parts_done; m->t.user = m; }
    c.shape = &m->t;
    parts_add(m, &c);
    CHECK(c.elements <= PARTS_MAX && c.tensor_count <= PARTS_TENSORS && c.count == 2 * blocks + 2);
    m->total = c.elements;
    memset(&c, 0, sizeof c);
    c.shape = &m->t; c.weights = m->weights; c.gradients = fused ? NULL : m->gradients; c.tensors = m->optim;
    c.layers = m->layers; c.segments = m->segments;
    parts_add(m, &c);
    CHECK(c.elements == m->total);
    parts_number(m, &m->embedding, transformer_embedding_tensors, 0);
    for (i = 0; i < blocks; ++i) {
        parts_number(m, &m->block[i].attention, transformer_attention_tensors, m->first[m->tensors - 1] + m->count[m->tensors - 1]);
        parts_number(m, &m->block[i].mlp, transformer_mlp_tensors, m->first[m->tensors - 1] + m->count[m->tensors - 1]);
    }
    at = m->first[m->tensors - 1] + m->count[m->tensors - 1];
    parts_number(m, &m->head.part, transformer_head_tensors, at);
    CHECK(m->tensors == c.tensor_count && m->first[m->tensors - 1] + m->count[m->tensors - 1] == m->total);
    if (!m->t.untied) m->embedding.gradients = m->gradients;
    m->head.targets = m->targets; m->head.chunk = 5;
    for (i = 0; i < m->total; ++i)
        parts_put(m->weights, m->t.weight_type, i, 0.5f * ((float)test_below(&seed, 2001) / 1000 - 1));
    CHECK(rows <= PARTS_ROWS);
    for (i = 0; i < rows; ++i) {
        m->ids[i] = (int32_t)test_below(&seed, m->t.vocabulary);
        m->targets[i] = test_below(&seed, 6) ? (int32_t)test_below(&seed, m->t.vocabulary) : -1;
    }
    for (i = 0; i < rows && m->head.classes; ++i) { /* to all others that is a target for every row, of which most are ignored */
        if (i % m->t.length) m->targets[i] = -1;
        else m->classes[i / m->t.length] = m->targets[i] = (int32_t)test_below(&seed, m->t.vocabulary);
        m->head.targets = m->classes;
    }
    CHECK(memopt_tape_describe(m->layers, m->segments, c.count, &why) == MEMOPT_OK);
    for (i = 0; i < c.count; ++i) {
        m->recorders[i].inner = m->layers[i];
        m->layers[i].user = &m->recorders[i]; m->layers[i].forward_fn = parts_forward; m->layers[i].backward_fn = parts_backward;
    }
}
static memopt_tape_desc parts_desc(parts_model *m) {
    memopt_tape_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.chain.segments = m->segments; desc.chain.count = 2 * m->blocks + 2;
    desc.chain.input_bytes = transformer_rows(&m->t) * sizeof(int32_t);
    desc.layers = m->layers; desc.seed = 3;
    return desc;
}
/* Passes within a budget (0: all is kept): gradients in m, the last loss in m->head.loss. Fails on any of CHECKs. */
static void parts_train(parts_model *m, memopt_schedule_rule rule, size_t budget, size_t passes) {
    memopt_tape_desc desc = parts_desc(m); memopt_arena_desc arena_desc; memopt_arena *arena = NULL; memopt_tape *tape = NULL;
    memopt_source pages; memopt_error why; char text[256] = ""; memopt_status s = MEMOPT_OK; size_t i;
    memset(&arena_desc, 0, sizeof arena_desc); memset(&why, 0, sizeof why);
    CHECK(memopt_source_pages(NULL, &pages) == MEMOPT_OK);
    arena_desc.capacity = (size_t)16 << 20; arena_desc.source = &pages;
    CHECK(memopt_arena_create(&arena_desc, &arena) == MEMOPT_OK);
    desc.arena = arena; desc.rule = rule; desc.budget = budget ? budget : SIZE_MAX; desc.error = &why;
    desc.verify = rule == MEMOPT_SCHEDULE_REVOLVE;
    CHECK(memopt_tape_create(&desc, &tape) == MEMOPT_OK);
    if (!tape) { memopt_error_text(&why, text, sizeof text, NULL); printf("%s\n", text); memopt_arena_destroy(arena); return; }
    CHECK(!budget || memopt_tape_get_stats(tape).peak <= budget);
    for (i = 0; i < passes && !s; ++i) {
        m->t.accumulate = i > 0;
        s = memopt_tape_forward(tape, m->ids);
        if (!s) s = memopt_tape_backward(tape, NULL, NULL);
    }
    if (s) { why = memopt_tape_error(tape); memopt_error_text(&why, text, sizeof text, NULL); printf("%s\n", text); }
    CHECK(s == MEMOPT_OK);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
}

/* ---- the plain engine: a buffer for everything ---- */
typedef struct plain_engine { const parts_model *m; const transformer *t; memopt_ops ops; unsigned char *pool; size_t used; float *gradients;
                              size_t rows, tensor; int accumulate; double loss; } plain_engine;
enum { PLAIN_POOL = 4 << 20 };
static void *plain_new(plain_engine *p, size_t columns) {
    void *result = p->pool + p->used;
    p->used += (p->rows * columns * sizeof(float) + 63) / 64 * 64;
    CHECK(p->used <= PLAIN_POOL);
    return result;
}
static const void *plain_weights(const plain_engine *p, size_t tensor) {
    return (const unsigned char *)p->m->weights + p->m->first[tensor] * memopt_type_bytes(p->t->weight_type);
}
static void *plain_gradients(const plain_engine *p, size_t tensor) {
    return (unsigned char *)p->gradients + p->m->first[tensor] * memopt_type_bytes(p->t->gradient_type);
}
typedef struct plain_block { /* the numbers of tensors, SIZE_MAX: absent; and values */
    size_t norm[2][2], qkv[2], project[2], heads[2], up[2], down[2];
    void *x[3], *normed[2], *qkv_rows, *rotated, *attended, *projected, *pre, *hidden, *lowered; float *statistics[2];
} plain_block;
static size_t plain_per(const transformer *t) { /* tensors of a block */
    return 12 - 2 * (size_t)t->rms - 4 * (size_t)t->no_bias + (size_t)(t->no_bias && t->qkv_bias) + 2 * (size_t)t->qk_norm;
}
static size_t plain_number(size_t *next, int present) { return present ? (*next)++ : SIZE_MAX; }
static void plain_numbers(const plain_engine *p, plain_block *b, size_t next) {
    const int bias = !p->t->no_bias, shift = !p->t->rms;
    b->norm[0][0] = plain_number(&next, 1); b->norm[0][1] = plain_number(&next, shift);
    b->qkv[0] = plain_number(&next, 1); b->qkv[1] = plain_number(&next, bias || p->t->qkv_bias);
    b->project[0] = plain_number(&next, 1); b->project[1] = plain_number(&next, bias);
    b->heads[0] = plain_number(&next, p->t->qk_norm); b->heads[1] = plain_number(&next, p->t->qk_norm);
    b->norm[1][0] = plain_number(&next, 1); b->norm[1][1] = plain_number(&next, shift);
    b->up[0] = plain_number(&next, 1); b->up[1] = plain_number(&next, bias);
    b->down[0] = plain_number(&next, 1); b->down[1] = plain_number(&next, bias);
}
static memopt_norm plain_norm(const plain_engine *p, const size_t *tensor, const void *in, void *out, float *statistics) {
    memopt_norm n;
    memset(&n, 0, sizeof n);
    n.rows = p->rows; n.width = p->t->width; n.rms = p->t->rms; n.eps = p->t->eps; n.type = p->t->type;
    n.weight_type = p->t->weight_type; n.gradient_type = p->t->gradient_type; n.input = in; n.output = out;
    n.statistics = statistics; n.scale = plain_weights(p, tensor[0]); n.accumulate = p->accumulate;
    if (tensor[1] != SIZE_MAX) n.shift = plain_weights(p, tensor[1]);
    return n;
}
static void plain_norm_back(const plain_engine *p, memopt_norm n, const size_t *tensor, const void *grad, void *grad_in) {
    n.output = NULL; n.grad_output = grad; n.grad_input = grad_in; n.grad_scale = plain_gradients(p, tensor[0]);
    if (tensor[1] != SIZE_MAX) n.grad_shift = plain_gradients(p, tensor[1]);
    CHECK(memopt_norm_backward(&p->ops, &n) == MEMOPT_OK);
}
static memopt_linear plain_linear(const plain_engine *p, const size_t *tensor, size_t inputs, size_t outputs, const void *in, void *out) {
    memopt_linear l;
    memset(&l, 0, sizeof l);
    l.rows = p->rows; l.inputs = inputs; l.outputs = outputs; l.type = p->t->type; l.weight_type = p->t->weight_type;
    l.gradient_type = p->t->gradient_type; l.input = in; l.output = out; l.weights = plain_weights(p, tensor[0]);
    if (tensor[1] != SIZE_MAX) l.bias = plain_weights(p, tensor[1]);
    return l;
}
static void plain_linear_back(const plain_engine *p, memopt_linear l, const size_t *tensor, const void *grad, void *grad_in) {
    l.output = NULL; l.grad_output = grad; l.grad_input = grad_in; l.accumulate = p->accumulate;
    l.grad_weights = plain_gradients(p, tensor[0]);
    if (tensor[1] != SIZE_MAX) l.grad_bias = plain_gradients(p, tensor[1]);
    CHECK(memopt_linear_backward(&p->ops, &l) == MEMOPT_OK);
}
static memopt_dropout plain_dropout(const plain_engine *p, size_t segment) {
    memopt_dropout d;
    memset(&d, 0, sizeof d);
    d.n = p->rows * p->t->width; d.type = p->t->type; d.rate = p->t->dropout;
    d.noise = memopt_noise_make(p->m->recorders[segment].seed, p->m->recorders[segment].stream);
    return d;
}
/* out = residual + dropout(linear); in 16 bits and without dropout the product adds the residual, which is rounded once. */
static void plain_add(plain_engine *p, memopt_linear l, size_t segment, const void *residual, void *out) {
    memopt_dropout d = plain_dropout(p, segment);
    if (p->t->type != MEMOPT_TYPE_F32 && !(d.rate > 0)) {
        l.residual = residual; l.output = out;
        CHECK(memopt_linear_forward(&p->ops, &l) == MEMOPT_OK);
        return;
    }
    d.input = l.output; d.residual = residual; d.output = out;
    CHECK(memopt_linear_forward(&p->ops, &l) == MEMOPT_OK);
    CHECK(memopt_dropout_forward(&p->ops, &d) == MEMOPT_OK);
}
static size_t plain_each(const transformer *t) { return t->head_width ? t->head_width : t->width / t->heads; }
static int plain_is_gated(const transformer *t) { return t->swiglu || t->geglu; }
static size_t plain_qkv(const transformer *t) { return (t->heads + 2 * (t->kv_heads ? t->kv_heads : t->heads)) * plain_each(t); }
static memopt_rotary plain_rotary(const plain_engine *p) {
    memopt_rotary r;
    memset(&r, 0, sizeof r);
    r.rows = p->rows; r.heads = p->t->heads + (p->t->kv_heads ? p->t->kv_heads : p->t->heads); r.width = plain_each(p->t);
    r.stride = plain_qkv(p->t); r.base = p->t->rotary_base; r.length = p->t->row_positions ? 0 : p->t->length; r.positions = p->t->row_positions;
    r.frequencies = p->t->rotary_frequencies; r.magnitude = p->t->rotary_magnitude; r.type = p->t->type;
    return r;
}
static memopt_attention plain_attention(const plain_engine *p, unsigned char *qkv) {
    const size_t size = memopt_type_bytes(p->t->type), all = p->t->heads * plain_each(p->t), kv = (plain_qkv(p->t) - all) / 2; memopt_attention a;
    memset(&a, 0, sizeof a);
    a.batch = p->t->batch; a.length = p->t->length; a.heads = p->t->heads; a.kv_heads = p->t->kv_heads; a.type = p->t->type;
    a.width = plain_each(p->t); a.window = p->t->window; a.documents = p->t->documents; a.starts = p->t->starts; a.causal = !p->t->not_causal; a.query_stride = a.kv_stride = plain_qkv(p->t);
    a.queries = qkv; a.keys = qkv + all * size; a.values = qkv + (all + kv) * size;
    return a;
}
static memopt_activation_args plain_gelu(const plain_engine *p, size_t hidden, const void *in) {
    memopt_activation_args x;
    memset(&x, 0, sizeof x);
    x.n = p->rows * hidden; x.activation = MEMOPT_ACTIVATION_GELU; x.type = p->t->type; x.input = in;
    return x;
}
static memopt_swiglu plain_swiglu(const plain_engine *p, size_t hidden, const void *in) {
    memopt_swiglu x;
    memset(&x, 0, sizeof x);
    x.rows = p->rows; x.width = hidden; x.type = p->t->type; x.input = in;
    return x;
}
/* The norm of a head by itself: its rows are copied out; NULL grad: forward, and into `to`. */
static void plain_head_norm(plain_engine *p, plain_block *b, size_t head, unsigned char *grad, unsigned char *to) {
    const transformer *t = p->t; const size_t size = memopt_type_bytes(t->type), w = plain_each(t), row = plain_qkv(t), tensor[2] = { b->heads[head >= t->heads], SIZE_MAX };
    unsigned char *x = (unsigned char *)plain_new(p, w), *y = (unsigned char *)plain_new(p, w), *at = (grad ? grad : to) + head * w * size; size_t r;
    memopt_norm n = plain_norm(p, tensor, x, y, (float *)plain_new(p, 2));
    n.width = w; n.rms = 1; n.shift = NULL;
    for (r = 0; r < p->rows; ++r) memcpy(x + r * w * size, (unsigned char *)b->qkv_rows + (r * row + head * w) * size, w * size);
    CHECK(memopt_norm_forward(&p->ops, &n) == MEMOPT_OK);
    if (grad) {
        for (r = 0; r < p->rows; ++r) memcpy(y + r * w * size, at + r * row * size, w * size);
        n.accumulate = p->accumulate || (head && head != t->heads);
        plain_norm_back(p, n, tensor, y, y);
    }
    for (r = 0; r < p->rows; ++r) memcpy(at + r * row * size, y + r * w * size, w * size);
}
static size_t plain_normed(const transformer *t) { return t->qk_norm ? t->heads + (t->kv_heads ? t->kv_heads : t->heads) : 0; }
static void plain_block_forward(plain_engine *p, plain_block *b, size_t segment) {
    const transformer *t = p->t; const size_t c = t->width, e = t->heads * plain_each(t), qkv = plain_qkv(t), h = t->hidden ? t->hidden : 4 * c, up = plain_is_gated(t) ? 2 * h : h;
    memopt_norm n; memopt_linear l; memopt_rotary r = plain_rotary(p); memopt_attention a; memopt_activation_args g; memopt_swiglu w; int i;
    for (i = 0; i < 2; ++i) { b->normed[i] = plain_new(p, c); b->statistics[i] = (float *)plain_new(p, 2); b->x[i + 1] = plain_new(p, c); }
    b->qkv_rows = plain_new(p, qkv); b->rotated = plain_new(p, qkv); b->attended = plain_new(p, e); b->projected = plain_new(p, c);
    b->pre = plain_new(p, up); b->hidden = plain_new(p, h); b->lowered = plain_new(p, c);
    n = plain_norm(p, b->norm[0], b->x[0], b->normed[0], b->statistics[0]);
    CHECK(memopt_norm_forward(&p->ops, &n) == MEMOPT_OK);
    l = plain_linear(p, b->qkv, c, qkv, b->normed[0], b->qkv_rows);
    CHECK(memopt_linear_forward(&p->ops, &l) == MEMOPT_OK);
    memcpy(b->rotated, b->qkv_rows, p->rows * qkv * memopt_type_bytes(t->type));
    for (i = 0; (size_t)i < plain_normed(t); ++i) plain_head_norm(p, b, (size_t)i, NULL, (unsigned char *)b->rotated);
    r.input = r.output = b->rotated;
    if (t->rotary) CHECK(memopt_rotary_forward(&p->ops, &r) == MEMOPT_OK);
    a = plain_attention(p, (unsigned char *)b->rotated); a.output = b->attended;
    CHECK(memopt_attention_forward(&p->ops, &a) == MEMOPT_OK);
    plain_add(p, plain_linear(p, b->project, e, c, b->attended, b->projected), segment, b->x[0], b->x[1]);
    n = plain_norm(p, b->norm[1], b->x[1], b->normed[1], b->statistics[1]);
    CHECK(memopt_norm_forward(&p->ops, &n) == MEMOPT_OK);
    l = plain_linear(p, b->up, c, up, b->normed[1], b->pre);
    CHECK(memopt_linear_forward(&p->ops, &l) == MEMOPT_OK);
    g = plain_gelu(p, h, b->pre); w = plain_swiglu(p, h, b->pre); g.output = w.output = b->hidden;
    CHECK((t->geglu ? memopt_geglu_forward(&p->ops, &w) : t->swiglu ? memopt_swiglu_forward(&p->ops, &w) : memopt_activation_forward(&p->ops, &g)) == MEMOPT_OK);
    plain_add(p, plain_linear(p, b->down, h, c, b->hidden, b->lowered), segment + 1, b->x[1], b->x[2]);
}
static void *plain_undrop(plain_engine *p, size_t segment, const void *grad) {
    memopt_dropout d = plain_dropout(p, segment);
    d.grad_output = grad; d.grad_input = plain_new(p, p->t->width);
    CHECK(memopt_dropout_backward(&p->ops, &d) == MEMOPT_OK);
    return d.grad_input;
}
/* the residual's gradient and the norm's, added in float32 */
static void *plain_begin_back(plain_engine *p, memopt_norm n, const size_t *tensor, const void *grad_normed, const void *grad) {
    void *to = plain_new(p, p->t->width);
    memcpy(to, grad, p->rows * p->t->width * memopt_type_bytes(p->t->type));
    n.accumulate_input = 1;
    plain_norm_back(p, n, tensor, grad_normed, to);
    return to;
}
static void *plain_block_backward(plain_engine *p, plain_block *b, size_t segment, const void *grad) {
    const transformer *t = p->t; const size_t c = t->width, e = t->heads * plain_each(t), qkv = plain_qkv(t), h = t->hidden ? t->hidden : 4 * c, up = plain_is_gated(t) ? 2 * h : h;
    const void *dropped = plain_undrop(p, segment + 1, grad); void *grad_hidden = plain_new(p, h), *grad_pre = plain_new(p, up);
    void *grad_normed = plain_new(p, c), *grad_attended = plain_new(p, e), *x; unsigned char *grad_qkv = (unsigned char *)plain_new(p, qkv);
    memopt_activation_args g = plain_gelu(p, h, b->pre); memopt_swiglu w = plain_swiglu(p, h, b->pre); memopt_rotary r = plain_rotary(p);
    memopt_attention a = plain_attention(p, (unsigned char *)b->rotated), to = plain_attention(p, grad_qkv);
    plain_linear_back(p, plain_linear(p, b->down, h, c, b->hidden, NULL), b->down, dropped, grad_hidden);
    g.grad_output = w.grad_output = grad_hidden; g.grad_input = w.grad_input = grad_pre;
    CHECK((t->geglu ? memopt_geglu_backward(&p->ops, &w) : t->swiglu ? memopt_swiglu_backward(&p->ops, &w) : memopt_activation_backward(&p->ops, &g)) == MEMOPT_OK);
    plain_linear_back(p, plain_linear(p, b->up, c, up, b->normed[1], NULL), b->up, grad_pre, grad_normed);
    x = plain_begin_back(p, plain_norm(p, b->norm[1], b->x[1], NULL, b->statistics[1]), b->norm[1], grad_normed, grad);
    dropped = plain_undrop(p, segment, x); grad_normed = plain_new(p, c);
    plain_linear_back(p, plain_linear(p, b->project, e, c, b->attended, NULL), b->project, dropped, grad_attended);
    a.output = b->attended; a.grad_output = grad_attended;
    a.grad_queries = grad_qkv; a.grad_keys = (void *)(uintptr_t)to.keys; a.grad_values = (void *)(uintptr_t)to.values;
    CHECK(memopt_attention_backward(&p->ops, &a) == MEMOPT_OK);
    r.grad_output = r.grad_input = grad_qkv;
    if (t->rotary) CHECK(memopt_rotary_backward(&p->ops, &r) == MEMOPT_OK);
    { size_t i; for (i = 0; i < plain_normed(t); ++i) plain_head_norm(p, b, i, grad_qkv, NULL); }
    plain_linear_back(p, plain_linear(p, b->qkv, c, qkv, b->normed[0], NULL), b->qkv, grad_qkv, grad_normed);
    return plain_begin_back(p, plain_norm(p, b->norm[0], b->x[0], NULL, b->statistics[0]), b->norm[0], grad_normed, x);
}
/* All logits at once where everything is float32. With 16 bits by the head: its logits are float32 all the same, and gradients
   are rounded with each chunk. Returns the gradient of its input. */
static void *plain_head(plain_engine *p, void *normed, size_t weights) {
    const transformer *t = p->t; const size_t padded = t->padded ? t->padded : t->vocabulary, tensor[2] = { weights, SIZE_MAX };
    void *grad = plain_new(p, t->width); memopt_loss loss;
    if (t->type == MEMOPT_TYPE_F32 && t->gradient_type == MEMOPT_TYPE_F32) {
        void *logits = plain_new(p, padded); memopt_linear l = plain_linear(p, tensor, t->width, padded, normed, logits);
        memopt_cross_entropy x;
        memset(&x, 0, sizeof x);
        x.rows = p->rows; x.vocabulary = t->vocabulary; x.stride = padded; x.logits = logits; x.targets = p->m->targets;
        x.rule = p->m->head.rule;
        CHECK(memopt_linear_forward(&p->ops, &l) == MEMOPT_OK);
        CHECK(memopt_cross_entropy_loss(&p->ops, &x, &loss) == MEMOPT_OK);
        plain_linear_back(p, l, tensor, logits, grad);
    } else {
        memopt_head h;
        memset(&h, 0, sizeof h);
        h.rows = p->rows; h.width = t->width; h.vocabulary = t->vocabulary; h.padded = padded; h.chunk = 5; h.type = t->type;
        h.weight_type = t->weight_type; h.gradient_type = t->gradient_type; h.input = normed; h.weights = plain_weights(p, weights);
        h.targets = p->m->targets; h.rule = p->m->head.rule; h.grad_input = grad; h.grad_weights = plain_gradients(p, weights); h.accumulate = p->accumulate;
        CHECK(memopt_head_loss(&p->ops, &h, &loss) == MEMOPT_OK);
    }
    p->loss = loss.loss;
    return grad;
}
static void plain_pass(const parts_model *m, float *gradients, int accumulate, double *loss) {
    static unsigned char scratch[(2 << 20) + 64]; plain_engine p; plain_block b[PARTS_BLOCKS]; memopt_embedding e; memopt_norm n; void *normed, *grad; size_t i;
    const size_t shift = !m->t.rms, head = m->tensors - 1 - (size_t)m->t.untied - shift;
    const size_t final_norm[2] = { head, shift ? head + 1 : SIZE_MAX }, positions = m->t.rotary ? 0 : 1;
    memset(&p, 0, sizeof p); memset(b, 0, sizeof b); memset(&e, 0, sizeof e);
    p.m = m; p.t = &m->t; p.gradients = gradients; p.accumulate = accumulate; p.rows = m->t.batch * m->t.length;
    p.ops.scratch = scratch + (64 - (uintptr_t)scratch % 64) % 64; p.ops.scratch_bytes = sizeof scratch - 64;
    p.pool = (unsigned char *)malloc(PLAIN_POOL);
    if (!p.pool) { printf("test_parts: out of memory\n"); exit(1); }
    e.rows = p.rows; e.width = m->t.width; e.vocabulary = m->t.vocabulary; e.length = m->t.length; e.type = m->t.type;
    e.weight_type = m->t.weight_type; e.gradient_type = m->t.gradient_type; e.ids = m->ids; e.tokens = plain_weights(&p, 0);
    e.positions = positions ? plain_weights(&p, 1) : NULL; e.output = plain_new(&p, m->t.width);
    CHECK(memopt_embedding_forward(&p.ops, &e) == MEMOPT_OK);
    for (i = 0; i < m->blocks; ++i) {
        b[i].x[0] = i ? b[i - 1].x[2] : e.output;
        plain_numbers(&p, &b[i], 1 + positions + i * plain_per(&m->t));
        plain_block_forward(&p, &b[i], 1 + 2 * i);
    }
    normed = plain_new(&p, m->t.width);
    n = plain_norm(&p, final_norm, b[m->blocks - 1].x[2], normed, (float *)plain_new(&p, 2));
    CHECK(memopt_norm_forward(&p.ops, &n) == MEMOPT_OK);
    grad = plain_head(&p, normed, m->t.untied ? m->tensors - 1 : 0);
    n.output = NULL; normed = plain_new(&p, m->t.width);
    plain_norm_back(&p, n, final_norm, grad, normed);
    grad = normed;
    for (i = m->blocks; i-- > 0;) grad = plain_block_backward(&p, &b[i], 1 + 2 * i, grad);
    e.grad_output = grad; e.grad_tokens = plain_gradients(&p, 0); e.accumulate = !m->t.untied || accumulate;
    CHECK(memopt_embedding_backward(&p.ops, &e) == MEMOPT_OK);
    e.grad_tokens = NULL; e.grad_positions = positions ? plain_gradients(&p, 1) : NULL; e.accumulate = accumulate;
    if (positions && !accumulate) memset(plain_gradients(&p, 1), 0, m->count[1] * memopt_type_bytes(m->t.gradient_type));
    if (positions) CHECK(memopt_embedding_backward(&p.ops, &e) == MEMOPT_OK);
    *loss = p.loss;
    free(p.pool);
}

/* ---- shapes ---- */
static transformer parts_gpt(void) {
    transformer t;
    memset(&t, 0, sizeof t);
    t.batch = 2; t.length = 7; t.width = 24; t.heads = 3; t.vocabulary = 29; t.padded = 32; t.positions = 9;
    return t;
}
static transformer parts_llama(void) {
    transformer t;
    memset(&t, 0, sizeof t);
    t.batch = 3; t.length = 6; t.width = 32; t.heads = 4; t.kv_heads = 2; t.hidden = 20; t.vocabulary = 31;
    t.rms = t.swiglu = t.rotary = t.no_bias = t.untied = 1; t.eps = 1e-6f; t.rotary_base = 500000;
    return t;
}
static transformer parts_mixed(void) { /* what neither of them has together */
    transformer t = parts_gpt();
    t.swiglu = t.rotary = t.not_causal = t.untied = 1; t.kv_heads = 1; t.hidden = 8; t.padded = 0;
    return t;
}
static transformer parts_packed(void) { /* documents, a window, wide heads, a bias of queries, keys and values alone */
    static const size_t starts[5] = { 0, 3, 8, 9, 14 }; static const double frequencies[5] = { 1, 0.3, 0.1, 0.05, 0.01 };
    static const int32_t positions[14] = { 0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 4 }; transformer t;
    memset(&t, 0, sizeof t);
    t.batch = 2; t.length = 7; t.width = 24; t.heads = 4; t.head_width = 10; t.kv_heads = 2; t.hidden = 20; t.vocabulary = 31;
    t.rms = t.swiglu = t.rotary = t.no_bias = t.qkv_bias = t.qk_norm = 1; t.window = 3; t.documents = 4; t.starts = starts;
    t.row_positions = positions; t.rotary_frequencies = frequencies; t.rotary_magnitude = 1.25f;
    return t;
}
static transformer parts_narrow(void) { /* heads that together are narrower than the stream; and GeGLU */
    transformer t = parts_packed();
    t.swiglu = 0; t.geglu = 1;
    t.head_width = 2; t.documents = 0; t.starts = NULL; t.row_positions = NULL; t.kv_heads = 1; t.qkv_bias = t.no_bias = 0; t.rotary_frequencies = NULL;
    return t;
}

/* ---- bits ---- */
/* Are the gradients those of the plain engine? Says where the first one differs. */
static int parts_equal(const parts_model *m, const float *want) {
    const size_t size = memopt_type_bytes(m->t.gradient_type); size_t i;
    for (i = 0; i < m->total * size && ((const unsigned char *)m->gradients)[i] == ((const unsigned char *)want)[i]; ++i) {}
    if (i < m->total * size) printf("parameter %d of %d\n", (int)(i / size), (int)m->total);
    return i == m->total * size && memcmp(m->gradients, want, sizeof m->gradients) == 0;
}
static parts_model parts_one, parts_other;
static float parts_expected[PARTS_MAX];
static void parts_compare(const transformer *shape, int how) {
    parts_model *m = &parts_one, *f = &parts_other; memopt_tape_desc desc; size_t least, i; double loss = 0;
    memopt_tape *tape = NULL; size_t most;
    parts_open(m, shape, PARTS_BLOCKS, how);
    desc = parts_desc(m);
    CHECK(memopt_tape_min_budget(&desc, &least) == MEMOPT_OK);
    desc.budget = SIZE_MAX; desc.rule = MEMOPT_SCHEDULE_ALL;
    CHECK(memopt_tape_create(&desc, &tape) == MEMOPT_OK);
    most = memopt_tape_get_stats(tape).peak;
    memopt_tape_destroy(tape);
    CHECK(least <= most);
    for (i = 0; i < 6; ++i) {
        const size_t budget = i ? least + (most - least) * (5 - i) / 4 : 0;
        memset(m->gradients, 0xA5, sizeof m->gradients); memset(parts_expected, 0xA5, sizeof parts_expected);
        m->head.loss = -1;
        parts_train(m, budget ? MEMOPT_SCHEDULE_EXTENDED : MEMOPT_SCHEDULE_ALL, budget, 1);
        plain_pass(m, parts_expected, 0, &loss);
        CHECK_AT(memcmp(&loss, &m->head.loss, sizeof loss) == 0, i);
        CHECK_AT(parts_equal(m, parts_expected), i);
    }
    /* gradients in scratch, taken by done_fn */
    parts_open(f, shape, PARTS_BLOCKS, how | PARTS_FUSED);
    desc = parts_desc(f);
    memset(f->gradients, 0xA5, sizeof f->gradients);
    CHECK(memopt_tape_min_budget(&desc, &least) == MEMOPT_OK);
    parts_train(f, MEMOPT_SCHEDULE_EXTENDED, least, 1);
    CHECK(f->done == (int)f->tensors);
    CHECK(parts_equal(f, parts_expected) && memcmp(&f->head.loss, &loss, sizeof loss) == 0);
}
static void parts_same_bits(void) {
    static const memopt_type types[4][3] = {
        { MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32 }, { MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16 },
        { MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32, MEMOPT_TYPE_F32 }, { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16 } };
    size_t i, k; int drops;
    for (i = 0; i < 5; ++i)
        for (k = 0; k < 4; ++k)
            for (drops = 0; drops < 2; ++drops) {
                transformer t = i == 0 ? parts_gpt() : i == 1 ? parts_llama() : i == 2 ? parts_mixed() : i == 3 ? parts_packed() : parts_narrow();
                if (test_is_passed_over()) continue;
                t.type = types[k][0]; t.weight_type = types[k][1]; t.gradient_type = types[k][2]; t.dropout = drops ? 0.25f : 0;
                parts_compare(&t, 0);
            }
}

/* An attention of one's own: it keeps what it made, and its backward finds it again. */
static void parts_own_take(const memopt_tape_call *call, const memopt_attention *a, void *room[2]) {
    const size_t bytes = a->batch * a->length * a->heads * a->width * memopt_type_bytes(a->type);
    room[0] = memopt_tape_take(call, MEMOPT_TAPE_SAVED, bytes);
    room[1] = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, call->is_backward ? bytes : 0);
}
static memopt_status parts_own_run(const memopt_tape_call *call, const memopt_ops *ops, const memopt_attention *a, void *const room[2]) {
    const size_t bytes = a->batch * a->length * a->heads * a->width * memopt_type_bytes(a->type); memopt_attention again = *a;
    memopt_status s = MEMOPT_OK;
    CHECK(room[0] && (room[1] != NULL) == call->is_backward);
    if (!call->describing && call->is_backward) /* what the forward wrote, where it is kept; else its place is a gradient's */
        CHECK(((const transformer_part *)call->user)->shape->attention->keeps_output ? a->output && !memcmp(a->output, room[0], bytes) : !a->output);
    if (call->is_backward) {
        again.grad_output = NULL; again.grad_queries = again.grad_keys = again.grad_values = NULL; again.output = room[1];
    }
    s = memopt_attention_forward(ops, &again);
    if (!call->describing && call->is_backward) CHECK(memcmp(room[0], room[1], bytes) == 0);
    if (!call->describing && !call->is_backward) memcpy(room[0], a->output, bytes);
    return s || !call->is_backward ? s : memopt_attention_backward(ops, a);
}
static const transformer_attention_fns parts_own[2] = { { parts_own_take, parts_own_run, 0, NULL }, { parts_own_take, parts_own_run, 1, NULL } };
/* Each option of a part changes no bit: the MLP some rows at a time, an attention of one's own; and targets of sequences are those
   of their first rows. Chunks become multiples of 32 rows; with 16-bit gradients they round more often, so these are not here. */
static void parts_options(void) {
    static const size_t chunks[6] = { 5, 1, 0, 33, 20, 32 };
    size_t i, k;
    for (i = 0; i < 3; ++i)
        for (k = 0; k < 6; ++k) {
            transformer t = i == 0 ? parts_gpt() : i == 1 ? parts_llama() : parts_mixed();
            if (test_is_passed_over()) continue;
            t.attention = k % 2 ? &parts_own[k > 1] : NULL; t.dropout = k == 1 || k == 2 || k == 5 ? 0.25f : 0;
            t.mlp_chunk = chunks[k]; t.batch = 2; t.length = 20; t.positions = 0;
            if (k >= 4) t.type = MEMOPT_TYPE_BF16;
            parts_compare(&t, k == 2 || k == 3 ? PARTS_CLASSES : 0);
        }
}

/* ---- double precision: the loss from the definitions, and its gradients by differences ---- */
enum { EXACT_MAX = PARTS_ROWS * 200 };
static void exact_linear(double *out, const double *in, size_t rows, size_t inputs, size_t outputs, const double *w, const double *bias) {
    size_t r, o, i;
    for (r = 0; r < rows; ++r)
        for (o = 0; o < outputs; ++o) {
            double sum = bias ? bias[o] : 0;
            for (i = 0; i < inputs; ++i) sum += in[r * inputs + i] * w[o * inputs + i];
            out[r * outputs + o] = sum;
        }
}
static void exact_norm(double *out, const double *in, const transformer *t, const double *scale, const double *shift) {
    const size_t c = t->width; size_t r, i;
    for (r = 0; r < t->batch * t->length; ++r) {
        const double *x = in + r * c; double mean = 0, square = 0;
        if (!t->rms) for (i = 0; i < c; ++i) mean += x[i] / (double)c;
        for (i = 0; i < c; ++i) square += (x[i] - mean) * (x[i] - mean) / (double)c;
        for (i = 0; i < c; ++i)
            out[r * c + i] = (x[i] - mean) / sqrt(square + (t->eps > 0 ? (double)t->eps : 1e-5)) * scale[i] + (shift ? shift[i] : 0);
    }
}
static void exact_rotate(double *qkv, const transformer *t) { /* heads of queries and keys, in the first half pairs with the second */
    const size_t d = plain_each(t), heads = t->heads + (t->kv_heads ? t->kv_heads : t->heads); size_t r, h, i;
    for (r = 0; r < t->batch * t->length; ++r)
        for (h = 0; h < heads; ++h)
            for (i = 0; i < d / 2; ++i) {
                double *x = qkv + r * plain_qkv(t) + h * d + i; const double a = x[0], b = x[d / 2];
                const double each = t->rotary_frequencies ? t->rotary_frequencies[i] : pow(t->rotary_base > 0 ? t->rotary_base : 10000, -2 * (double)i / (double)d);
                const double angle = (t->row_positions ? (double)t->row_positions[r] : (double)(r % t->length)) * each, by = t->rotary_magnitude > 0 ? (double)t->rotary_magnitude : 1;
                x[0] = by * (a * cos(angle) - b * sin(angle)); x[d / 2] = by * (b * cos(angle) + a * sin(angle));
            }
}
static void exact_norm_heads(double *qkv, const transformer *t, const double *q, const double *k) {
    const size_t d = plain_each(t); size_t r, h, i;
    for (r = 0; r < t->batch * t->length; ++r) for (h = 0; h < plain_normed(t); ++h) {
        double *x = qkv + r * plain_qkv(t) + h * d, square = 0;
        for (i = 0; i < d; ++i) square += x[i] * x[i] / (double)d;
        for (i = 0; i < d; ++i) x[i] *= (h < t->heads ? q : k)[i] / sqrt(square + (t->eps > 0 ? (double)t->eps : 1e-5));
    }
}
static int exact_sees(const transformer *t, size_t i, size_t j) { /* rows of all */
    size_t k = 0;
    if (!t->documents) { if (i / t->length != j / t->length) return 0; }
    else { while (t->starts[k + 1] <= i) ++k; if (j < t->starts[k] || j >= t->starts[k + 1]) return 0; }
    return t->not_causal || (j <= i && (!t->window || i - j < t->window));
}
static void exact_attention(double *out, const double *qkv, const transformer *t) {
    const size_t d = plain_each(t), c = t->heads * d, kv = t->kv_heads ? t->kv_heads : t->heads, stride = plain_qkv(t), rows = t->batch * t->length; size_t h, i, j, k;
    for (h = 0; h < t->heads; ++h)
        for (i = 0; i < rows; ++i) {
            const size_t group = h / (t->heads / kv); double p[PARTS_ROWS], sum = 0, *to = out + i * c + h * d;
            for (j = 0; j < rows; ++j) {
                const double *q = qkv + i * stride + h * d, *key = qkv + j * stride + c + group * d;
                for (p[j] = 0, k = 0; k < d; ++k) p[j] += q[k] * key[k];
                p[j] = exact_sees(t, i, j) ? exp(p[j] / sqrt((double)d)) : 0;
                sum += p[j];
            }
            for (k = 0; k < d; ++k)
                for (to[k] = 0, j = 0; j < rows; ++j) to[k] += p[j] / sum * qkv[j * stride + c + kv * d + group * d + k];
        }
}
static double exact_gelu(double x) { return x / (1 + exp(-2 * sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x))); }
static double exact_loss(const parts_model *m, const double *w, const double *masks) { /* masks: what dropout multiplies by */
    static double x[EXACT_MAX], y[EXACT_MAX], z[EXACT_MAX], u[EXACT_MAX];
    const transformer *t = &m->t; const size_t rows = t->batch * t->length, c = t->width, h = t->hidden ? t->hidden : 4 * c;
    const size_t per = plain_per(t), e = t->heads * plain_each(t), head = m->tensors - 1 - (size_t)t->untied - (size_t)!t->rms;
    plain_engine p; plain_block b; double loss = 0; size_t l, r, i, counted = 0;
#define EXACT_AT(tensor) ((tensor) == SIZE_MAX ? NULL : w + m->first[tensor])
    memset(&p, 0, sizeof p); memset(&b, 0, sizeof b);
    p.m = m; p.t = t;
    for (r = 0; r < rows; ++r)
        for (i = 0; i < c; ++i)
            x[r * c + i] = w[(size_t)m->ids[r] * c + i] + (t->rotary ? 0 : w[m->first[1] + r % t->length * c + i]);
    for (l = 0; l < m->blocks; ++l) {
        plain_numbers(&p, &b, 2 - (size_t)t->rotary + l * per);
        exact_norm(y, x, t, EXACT_AT(b.norm[0][0]), EXACT_AT(b.norm[0][1]));
        exact_linear(z, y, rows, c, plain_qkv(t), EXACT_AT(b.qkv[0]), EXACT_AT(b.qkv[1]));
        if (t->qk_norm) exact_norm_heads(z, t, EXACT_AT(b.heads[0]), EXACT_AT(b.heads[1]));
        if (t->rotary) exact_rotate(z, t);
        exact_attention(y, z, t);
        exact_linear(z, y, rows, e, c, EXACT_AT(b.project[0]), EXACT_AT(b.project[1]));
        for (i = 0; i < rows * c; ++i) x[i] += z[i] * (masks ? masks[(1 + 2 * l) * rows * c + i] : 1);
        exact_norm(y, x, t, EXACT_AT(b.norm[1][0]), EXACT_AT(b.norm[1][1]));
        exact_linear(z, y, rows, c, plain_is_gated(t) ? 2 * h : h, EXACT_AT(b.up[0]), EXACT_AT(b.up[1]));
        for (r = 0; r < rows; ++r)
            for (i = 0; i < h; ++i) {
                const double *gate = z + r * (plain_is_gated(t) ? 2 * h : h) + i;
                u[r * h + i] = (t->swiglu ? gate[0] / (1 + exp(-gate[0])) : exact_gelu(gate[0])) * (plain_is_gated(t) ? gate[h] : 1);
            }
        exact_linear(z, u, rows, h, c, EXACT_AT(b.down[0]), EXACT_AT(b.down[1]));
        for (i = 0; i < rows * c; ++i) x[i] += z[i] * (masks ? masks[(2 + 2 * l) * rows * c + i] : 1);
    }
    exact_norm(y, x, t, w + m->first[head], t->rms ? NULL : w + m->first[head + 1]);
    exact_linear(z, y, rows, c, t->vocabulary, w + (t->untied ? m->first[m->tensors - 1] : 0), NULL);
    for (r = 0; r < rows; ++r) {
        double sum = 0;
        if (m->targets[r] < 0) continue;
        for (i = 0; i < t->vocabulary; ++i) sum += exp(z[r * t->vocabulary + i]);
        loss += log(sum) - z[r * t->vocabulary + (size_t)m->targets[r]];
        ++counted;
    }
#undef EXACT_AT
    return loss / (double)counted;
}
/* Gradients of one pass differ by less than 1e-6 of the largest one from differences of the exact loss; the loss itself by 1e-7. */
static void parts_exact_shape(transformer t, size_t hidden, int how) {
    static double w[PARTS_MAX], masks[PARTS_SEGMENTS * PARTS_ROWS * 8], want[PARTS_MAX]; static float ones[PARTS_ROWS * 8], mask[PARTS_ROWS * 8];
    parts_model *m = &parts_one; double largest = 0, worst = 0, exact; size_t i, k, n; plain_engine p;
    t.batch = 2; t.length = 5; t.width = 8; t.heads = 2; t.kv_heads = t.kv_heads ? 1 : 0; t.hidden = hidden; t.vocabulary = 11; t.dropout = 0.25f;
    if (t.padded) { t.padded = 12; t.positions = 6; }
    parts_open(m, &t, 2, how);
    n = t.batch * t.length * t.width;
    parts_train(m, MEMOPT_SCHEDULE_ALL, 0, 1);
    memset(&p, 0, sizeof p);
    p.m = m; p.t = &m->t; p.rows = t.batch * t.length;
    for (i = 0; i < n; ++i) ones[i] = 1;
    for (k = 0; k < 2 * m->blocks + 2; ++k) {
        memopt_dropout d = plain_dropout(&p, k);
        d.input = ones; d.output = mask;
        CHECK(memopt_dropout_forward(&p.ops, &d) == MEMOPT_OK);
        for (i = 0; i < n; ++i) masks[k * n + i] = (double)mask[i];
    }
    for (i = 0; i < m->total; ++i) w[i] = (double)m->weights[i];
    exact = exact_loss(m, w, masks);
    CHECK(fabs(m->head.loss - exact) < 1e-7 * exact);
    for (i = 0; i < m->total; ++i) {
        const double at = w[i], step = 1e-5; double more;
        w[i] = at + step; more = exact_loss(m, w, masks);
        w[i] = at - step; want[i] = (more - exact_loss(m, w, masks)) / (2 * step);
        w[i] = at;
        if (fabs(want[i]) > largest) largest = fabs(want[i]);
    }
    for (i = 0; i < m->total; ++i) {
        const double off = fabs((double)m->gradients[i] - want[i]) / largest;
        if (off > worst) worst = off;
        CHECK_AT(off < 1e-6, i);
    }
    if (getenv("TEST_SAYS")) printf("loss off by %g, gradients by %g\n", fabs(m->head.loss - exact) / exact, worst);
}
static void parts_exact(void) {
    static const size_t starts[4] = { 0, 3, 7, 10 }; static const int32_t positions[10] = { 0, 1, 2, 0, 1, 2, 3, 0, 1, 2 };
    transformer t = parts_mixed();
    parts_exact_shape(parts_gpt(), 0, 0);
    parts_exact_shape(parts_llama(), 10, 0);
    parts_exact_shape(t, 6, 0);
    t.mlp_chunk = 3; t.attention = parts_own;
    parts_exact_shape(t, 6, PARTS_CLASSES);
    t = parts_packed(); t.documents = 3; t.starts = starts; t.row_positions = positions; t.head_width = 6;
    parts_exact_shape(t, 10, 0);
    t = parts_narrow();
    parts_exact_shape(t, 10, 0);
}

/* Passes that add up. */
static void parts_accumulate(void) {
    transformer shapes[2]; double loss; size_t i, k;
    shapes[0] = parts_gpt(); shapes[1] = parts_llama();
    for (i = 0; i < 4; ++i) {
        transformer t = shapes[i / 2]; parts_model *m = &parts_one;
        if (i % 2) t.type = t.weight_type = t.gradient_type = MEMOPT_TYPE_BF16;
        parts_open(m, &t, 2, 0);
        m->head.rule.scale = 3; m->head.rule.count = 40; /* of a loss that is scaled, and of more rows than these */
        parts_train(m, MEMOPT_SCHEDULE_SQRT, 0, 2);
        memset(parts_expected, 0, sizeof parts_expected);
        for (k = 0; k < 2; ++k) plain_pass(m, parts_expected, k > 0, &loss); /* no dropout: both passes are the same */
        CHECK_AT(parts_equal(m, parts_expected), i);
        CHECK_AT(m->head.loss == loss, i);
    }
}
/* The loss of an evaluation, and logits to sample from. */
static void parts_evaluate(void) {
    transformer shapes[4]; size_t i, k, r; /* the last one with a target for each sequence */
    shapes[0] = parts_gpt(); shapes[1] = parts_llama(); shapes[2] = shapes[3] = parts_mixed();
    shapes[3].mlp_chunk = 3; shapes[3].attention = parts_own;
    for (i = 0; i < 4; ++i) {
        static double w[PARTS_MAX]; static float logits[64]; parts_model *m = &parts_one; memopt_tape_desc desc; memopt_tape *tape = NULL;
        memopt_tape_stats stats; static unsigned char memory[(4 << 20) + 64]; unsigned char *room = memory + (64 - (uintptr_t)memory % 64) % 64;
        float out = 0; double exact, sum;
        shapes[i].dropout = 0.5f; /* an evaluation has none */
        parts_open(m, &shapes[i], 2, i == 3 ? PARTS_CLASSES : 0);
        for (k = 0; k < m->total; ++k) w[k] = (double)m->weights[k];
        desc = parts_desc(m); desc.overhead = 1;
        CHECK(memopt_tape_create(&desc, &tape) == MEMOPT_OK);
        stats = memopt_tape_get_stats(tape);
        CHECK(stats.evaluate_peak < (4 << 20) && memopt_tape_set_memory(tape, room, stats.evaluate_peak) == MEMOPT_OK);
        CHECK(memopt_tape_evaluate(tape, m->ids, &out) == MEMOPT_OK);
        exact = exact_loss(m, w, NULL);
        CHECK(fabs((double)out - exact) < 1e-5 && fabs(m->head.loss - exact) < 1e-5);
        m->head.logits = logits; m->head.first_row = i == 3 ? 0 : 3; m->head.row_count = 2;
        CHECK(memopt_tape_evaluate(tape, m->ids, NULL) == MEMOPT_OK);
        m->head.logits = NULL;
        for (r = 0; r < 2; ++r) { /* the loss of one row, from its logits */
            for (sum = 0, k = 0; k < m->t.vocabulary; ++k) sum += exp((double)logits[r * m->t.vocabulary + k]);
            for (k = 0; k < transformer_rows(&m->t); ++k) m->targets[k] = k == (i == 3 ? r * m->t.length : 3 + r) ? 5 : -1;
            CHECK(fabs(log(sum) - (double)logits[r * m->t.vocabulary + 5] - exact_loss(m, w, NULL)) < 1e-5);
        }
        memopt_tape_destroy(tape);
    }
}
/* Workers and levels change no bit; nothing differs when it is made again, which `verify` looks for. */
static void parts_workers(void) {
    transformer t = parts_llama(); int level;
    t.dropout = 0.1f;
    parts_open(&parts_one, &t, PARTS_BLOCKS, 0);
    parts_train(&parts_one, MEMOPT_SCHEDULE_ALL, 0, 1);
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        test_worker_set set; parts_model *m = &parts_other; memopt_threads threads = test_workers(&set, 3, level); transformer u = t;
        u.ops.threads = &threads;
        parts_open(m, &u, PARTS_BLOCKS, 0);
        parts_train(m, MEMOPT_SCHEDULE_REVOLVE, 0, 1);
        CHECK_AT(parts_equal(m, parts_one.gradients) && m->head.loss == parts_one.head.loss, level);
    }
}
static void parts_no_rows(void) { /* a batch of none has gradients all the same: zeros */
    static parts_model m; size_t i; int k;
    for (k = 0; k < 8; ++k) {
        transformer t = k & 1 ? parts_llama() : parts_gpt();
        t.batch = 0; t.mlp_chunk = k & 2 ? 32 : 0;
        parts_open(&m, &t, 2, k & 4 ? PARTS_FUSED : 0);
        for (i = 0; i < m.total; ++i) m.gradients[i] = 7;
        parts_train(&m, MEMOPT_SCHEDULE_ALL, 0, 1);
        for (i = 0; i < m.total; ++i) CHECK_AT(m.gradients[i] == 0, i);
        CHECK(!(k & 4) || m.done == (int)m.tensors);
    }
}
static memopt_status parts_refuse(void *user, size_t tensor, const void *gradients) {
    (void)user; (void)gradients;
    return tensor == 5 ? MEMOPT_ERR_STATE : MEMOPT_OK;
}
/* Mistakes are told: a tied embedding without gradients, a head that is tied to nothing, a done_fn that says no; and a calibration
   calls no done_fn. */
static void parts_mistakes(void) {
    parts_model *m = &parts_one; transformer t = parts_gpt(); memopt_tape_desc desc; memopt_tape *tape = NULL; size_t peak;
    static unsigned char memory[(4 << 20) + 64]; unsigned char *room = memory + (64 - (uintptr_t)memory % 64) % 64;
    memopt_tape_layer layer; memopt_segment segment; memopt_error why;
    parts_open(m, &t, 1, 1);
    m->embedding.gradients = NULL;
    layer.user = &m->embedding; layer.forward_fn = transformer_embedding_forward; layer.backward_fn = transformer_embedding_backward;
    memset(&segment, 0, sizeof segment);
    CHECK(memopt_tape_describe(&layer, &segment, 1, &why) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_says(&why, MEMOPT_ERR_ARGUMENT, "segment 0: backward: a tied embedding has no array of gradients, where the head's lie, too"));
    m->head.tied = NULL;
    layer.user = &m->head; layer.forward_fn = transformer_head_forward; layer.backward_fn = transformer_head_backward;
    CHECK(memopt_tape_describe(&layer, &segment, 1, &why) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_says(&why, MEMOPT_ERR_ARGUMENT, "segment 0: forward: the head is neither tied nor untied"));
    m->t.heads = 0; /* forgotten */
    memset(&segment, 0, sizeof segment);
    CHECK(memopt_tape_describe(&m->layers[1], &segment, 1, &why) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_says(&why, MEMOPT_ERR_ARGUMENT, "segment 0: forward: attention: heads is 0"));
    m->t.heads = 5; /* of 32 numbers */
    CHECK(memopt_tape_describe(&m->layers[1], &segment, 1, &why) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_says(&why, MEMOPT_ERR_ARGUMENT, "segment 0: forward: heads do not divide the width"));
    m->t.swiglu = m->t.geglu = 1;
    CHECK(memopt_tape_describe(&m->layers[2], &segment, 1, &why) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_says(&why, MEMOPT_ERR_ARGUMENT, "segment 0: forward: swiglu and geglu are both set"));
    t = parts_llama();
    parts_open(m, &t, 1, 1);
    desc = parts_desc(m); desc.overhead = 1;
    CHECK(memopt_tape_create(&desc, &tape) == MEMOPT_OK);
    peak = memopt_tape_get_stats(tape).peak;
    CHECK(peak < (4 << 20) && memopt_tape_set_memory(tape, room, peak) == MEMOPT_OK);
    CHECK(memopt_tape_calibrate(tape, m->ids, NULL, NULL, 1) == MEMOPT_OK && m->done == 0);
    CHECK(memopt_tape_set_memory(tape, NULL, 0) == MEMOPT_OK);
    peak = memopt_tape_get_stats(tape).peak;
    CHECK(peak < (4 << 20) && memopt_tape_set_memory(tape, room, peak) == MEMOPT_OK);
    m->t.done_fn = parts_refuse;
    CHECK(memopt_tape_forward(tape, m->ids) == MEMOPT_OK);
    CHECK(memopt_tape_backward(tape, NULL, NULL) == MEMOPT_ERR_STATE);
    memopt_tape_destroy(tape);
}

/* A block by itself: its gradient comes from outside, where it stays as it is, and goes outside, or nowhere. */
static void parts_alone(void) {
    static float x[PARTS_ROWS * 32], grad[PARTS_ROWS * 32], given[PARTS_ROWS * 32], out[PARTS_ROWS * 32]; static unsigned char scratch[(1 << 20) + 64];
    static unsigned char memory[(2 << 20) + 64]; unsigned char *room = memory + (64 - (uintptr_t)memory % 64) % 64;
    parts_model *m = &parts_one; transformer t = parts_llama(); int wants; size_t i, bytes, end;
    t.dropout = 0.25f;
    parts_open(m, &t, 1, 0);
    bytes = transformer_bytes(&m->t, m->t.width);
    end = m->first[m->block[0].mlp.first_tensor + 2] + m->count[m->block[0].mlp.first_tensor + 2]; /* its third: down */
    CHECK(memopt_random_normal(x, bytes / 4, 1, 0, 0, NULL) == MEMOPT_OK && memopt_random_normal(grad, bytes / 4, 1, 1, 0, NULL) == MEMOPT_OK);
    for (wants = 0; wants < 2; ++wants) {
        memopt_tape_desc desc = parts_desc(m); memopt_tape *tape = NULL; plain_engine p; plain_block b;
        desc.chain.segments = m->segments + 1; desc.chain.count = 2; desc.chain.input_bytes = bytes;
        desc.chain.input_grad_bytes = wants ? bytes : 0; desc.layers = m->layers + 1; desc.overhead = 1;
        m->segments[2].grad_in_place = 0; /* grad is the caller's */
        memcpy(given, grad, sizeof grad);
        CHECK(memopt_tape_create(&desc, &tape) == MEMOPT_OK);
        CHECK(memopt_tape_get_stats(tape).peak < (2 << 20));
        CHECK(memopt_tape_set_memory(tape, room, memopt_tape_get_stats(tape).peak) == MEMOPT_OK);
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK);
        memset(&p, 0, sizeof p); memset(&b, 0, sizeof b);
        p.m = m; p.t = &m->t; p.gradients = parts_expected; p.rows = transformer_rows(&m->t); p.pool = (unsigned char *)malloc(PLAIN_POOL);
        p.ops.scratch = scratch + (64 - (uintptr_t)scratch % 64) % 64; p.ops.scratch_bytes = sizeof scratch - 64;
        if (!p.pool) { printf("test_parts: out of memory\n"); exit(1); }
        b.x[0] = x;
        plain_numbers(&p, &b, m->block[0].attention.first_tensor);
        plain_block_forward(&p, &b, 1);
        CHECK(memcmp(memopt_tape_output(tape), b.x[2], bytes) == 0);
        CHECK(memopt_tape_backward(tape, given, wants ? out : NULL) == MEMOPT_OK && memcmp(given, grad, sizeof grad) == 0);
        i = m->first[m->block[0].attention.first_tensor];
        CHECK(!wants || memcmp(out, plain_block_backward(&p, &b, 1, grad), bytes) == 0);
        CHECK(!wants || memcmp(m->gradients + i, parts_expected + i, (end - i) * sizeof(float)) == 0);
        memopt_tape_destroy(tape);
        free(p.pool);
    }
}
/* Shorter sequences: weights stay where they are, sizes are described again, and the tape is reshaped. */
static void parts_reshape(void) {
    static unsigned char memory[(4 << 20) + 64]; unsigned char *room = memory + (64 - (uintptr_t)memory % 64) % 64;
    transformer t = parts_gpt(); parts_model *m = &parts_one; memopt_tape_desc desc; memopt_tape *tape = NULL; transformer_chain c; double loss; int i;
    parts_open(m, &t, 2, 0);
    desc = parts_desc(m); desc.overhead = 1;
    CHECK(memopt_tape_create(&desc, &tape) == MEMOPT_OK);
    for (i = 0; i < 2; ++i) {
        CHECK(memopt_tape_get_stats(tape).peak < (4 << 20) && memopt_tape_set_memory(tape, room, memopt_tape_get_stats(tape).peak) == MEMOPT_OK);
        CHECK(memopt_tape_forward(tape, m->ids) == MEMOPT_OK);
        CHECK(*(const float *)memopt_tape_output(tape) == 0); /* the loss is made in the backward */
        CHECK(memopt_tape_backward(tape, NULL, NULL) == MEMOPT_OK);
        CHECK(memopt_tape_set_memory(tape, NULL, 0) == MEMOPT_OK);
        memset(parts_expected, 0, sizeof parts_expected);
        plain_pass(m, parts_expected, 0, &loss);
        CHECK_AT(parts_equal(m, parts_expected) && loss == m->head.loss, i);
        m->t.length = 4; m->t.batch = 1;
        memset(&c, 0, sizeof c);
        c.shape = &m->t; c.weights = m->weights; c.gradients = m->gradients; c.segments = m->segments;
        parts_add(m, &c);
        CHECK(c.elements == m->total && memopt_tape_describe(m->layers, m->segments, c.count, NULL) == MEMOPT_OK);
        desc.chain.input_bytes = 4 * sizeof(int32_t);
        CHECK(memopt_tape_reshape(tape, &desc.chain) == MEMOPT_OK);
    }
    memopt_tape_destroy(tape);
}

/* The table in block.h: twice the sequences take so many planes more. What operators take does not grow with them. */
static void parts_chunk_sizes(int swiglu) { /* the MLP in chunks: of the batch nothing, of the chunk these planes */
    static const size_t forward[2] = { 4, 12 }, backward[2] = { 9, 13 };
    memopt_segment s[3]; transformer t = parts_gpt(); size_t i, plane, rows;
    t.length = 32; t.positions = 0; t.width = 8; t.heads = 1; t.swiglu = swiglu;
    for (i = 0; i < 3; ++i) {
        t.batch = i == 1 ? 2 : 3; t.mlp_chunk = i == 2 ? 64 : 4; /* 32 */
        parts_open(&parts_one, &t, 1, 0);
        s[i] = parts_one.segments[2];
        CHECK_AT(s[i].saved_bytes == s[i].output_bytes && s[i].output_bytes == transformer_bytes(&t, t.width), i);
    }
    rows = 32; plane = rows * t.width * sizeof(float);
    CHECK(s[0].forward_scratch == s[1].forward_scratch && s[0].plain_scratch == s[1].plain_scratch && s[0].backward_scratch == s[1].backward_scratch);
    CHECK(s[2].forward_scratch - s[0].forward_scratch == plane * forward[swiglu] && s[2].plain_scratch == s[2].forward_scratch);
    CHECK(s[2].backward_scratch - s[0].backward_scratch >= plane * backward[swiglu]
          && s[2].backward_scratch - s[0].backward_scratch <= plane * backward[swiglu] + 8 * rows + 64); /* statistics, at multiples of 64 */
}
static void parts_sizes(void) {
    static const size_t kept[3] = { 4, 4, 8 }, forward[3] = { 0, 4, 4 }, plain[3] = { 4, 4, 12 }, backward[3] = { 3, 5, 5 };
    int swiglu; size_t i;
    for (swiglu = 0; swiglu < 2; ++swiglu) {
        transformer t = parts_gpt(); memopt_segment small[2]; size_t plane, row;
        t.length = 4; t.width = 32; t.heads = 4; t.swiglu = swiglu;
        parts_open(&parts_one, &t, 1, 0);
        memcpy(small, parts_one.segments + 1, sizeof small);
        CHECK(parts_one.segments[3].forward_scratch == 0 && parts_one.segments[3].plain_scratch > 0);
        plane = transformer_bytes(&t, t.width); row = 8 * transformer_rows(&t);
        t.batch *= 2;
        parts_open(&parts_one, &t, 1, 0);
        for (i = 0; i < 2; ++i) {
            const memopt_segment *large = parts_one.segments + 1 + i; const size_t k = i ? 1 + (size_t)swiglu : 0;
            CHECK_AT(large->grad_in_place == 1 && large->output_bytes == 2 * plane && large->saved_bytes == 2 * plane * (1 + kept[k]), k);
            CHECK_AT(large->forward_scratch - small[i].forward_scratch == plane * forward[k], k);
            CHECK_AT(large->plain_scratch - small[i].plain_scratch == plane * plain[k], k);
            CHECK_AT(large->backward_scratch - small[i].backward_scratch == plane * backward[k] + row, k);
        }
        parts_chunk_sizes(swiglu);
    }
}

/* ---- adapters: against loops in double ---- */
enum { ADAPTED_ROWS = 150, ADAPTED_IN = 20, ADAPTED_OUT = 14, ADAPTED_RANK = 5 };
typedef struct parts_adapted { float w[ADAPTED_OUT * ADAPTED_IN], bias[ADAPTED_OUT], a[ADAPTED_RANK * ADAPTED_IN], b[ADAPTED_OUT * ADAPTED_RANK],
    x[ADAPTED_ROWS * ADAPTED_IN], g[ADAPTED_ROWS * ADAPTED_OUT], y[ADAPTED_ROWS * ADAPTED_OUT], dx[ADAPTED_ROWS * ADAPTED_IN],
    da[ADAPTED_RANK * ADAPTED_IN], db[ADAPTED_OUT * ADAPTED_RANK], low[ADAPTED_ROWS * ADAPTED_RANK]; memopt_linear l; adapter p; memopt_ops ops; memopt_error error; unsigned char *room; } parts_adapted;
static double parts_get(const void *from, memopt_type type, size_t i) {
    return type == MEMOPT_TYPE_F32 ? (double)((const float *)from)[i] : (double)memopt_i_bits_float((uint32_t)((const uint16_t *)from)[i] << 16);
}
static void parts_random(void *to, memopt_type type, size_t n, uint64_t *seed) {
    size_t i;
    for (i = 0; i < n; ++i) parts_put(to, type, i, (float)((int)test_below(seed, 255) - 127) / 128);
}
static parts_adapted *parts_adapt(memopt_type type, memopt_type a_type, float rate, size_t rows) {
    parts_adapted *t = (parts_adapted *)calloc(1, sizeof *t); uint64_t seed = 5; memopt_linear *l; adapter *p;
    if (!t) { printf("test_parts: out of memory\n"); exit(1); }
    l = &t->l; p = &t->p;
    parts_random(t->w, type, ADAPTED_OUT * ADAPTED_IN, &seed); parts_random(t->bias, type, ADAPTED_OUT, &seed);
    parts_random(t->a, a_type, ADAPTED_RANK * ADAPTED_IN, &seed); parts_random(t->b, a_type, ADAPTED_OUT * ADAPTED_RANK, &seed);
    parts_random(t->x, type, ADAPTED_ROWS * ADAPTED_IN, &seed); parts_random(t->g, type, ADAPTED_ROWS * ADAPTED_OUT, &seed);
    parts_random(t->da, MEMOPT_TYPE_F32, ADAPTED_RANK * ADAPTED_IN, &seed); parts_random(t->db, MEMOPT_TYPE_F32, ADAPTED_OUT * ADAPTED_RANK, &seed);
    parts_random(t->dx, type, ADAPTED_ROWS * ADAPTED_IN, &seed);
    l->rows = rows; l->inputs = ADAPTED_IN; l->outputs = ADAPTED_OUT; l->type = l->weight_type = type; l->input = t->x; l->weights = t->w; l->bias = t->bias;
    l->output = t->y; l->grad_output = t->g; l->grad_input = t->dx;
    p->rank = ADAPTED_RANK; p->scale = 1.5f; p->type = a_type; p->a = t->a; p->b = t->b; p->low = t->low; p->grad_a = t->da; p->grad_b = t->db;
    p->accumulate = 1; p->rate = rate; p->noise = memopt_noise_make(3, 4); p->work = malloc(adapter_work_bytes(l, p) + 1);
    t->ops.error = &t->error;
    t->ops.count_scratch = &t->ops.scratch_bytes; /* both calls, dry */
    CHECK(p->work && adapter_forward(&t->ops, l, p) == MEMOPT_OK && adapter_backward(&t->ops, l, p) == MEMOPT_OK && t->ops.scratch_bytes);
    t->ops.count_scratch = NULL; t->room = (unsigned char *)malloc(t->ops.scratch_bytes + 64); CHECK(t->room != NULL);
    t->ops.scratch = t->room + (0 - (uintptr_t)t->room) % 64;
    return t;
}
static void parts_adapted_free(parts_adapted *t) { free(t->p.work); free(t->room); free(t); }
/* What the adapter sees of the input, in double. */
static void parts_dropped(const parts_adapted *t, double *x, double *mask) {
    float ones[ADAPTED_ROWS * ADAPTED_IN], out[ADAPTED_ROWS * ADAPTED_IN]; memopt_dropout d; size_t i; const size_t n = t->l.rows * ADAPTED_IN;
    memset(&d, 0, sizeof d);
    for (i = 0; i < n; ++i) ones[i] = 1;
    d.n = n; d.rate = t->p.rate; d.noise = t->p.noise; d.input = ones; d.output = out;
    CHECK(memopt_dropout_forward(NULL, &d) == MEMOPT_OK);
    for (i = 0; i < n; ++i) { mask[i] = (double)out[i]; x[i] = mask[i] * parts_get(t->x, t->l.type, i); }
}
static int parts_close(double got, double want, double size, memopt_type type) {
    return fabs(got - want) <= size * (type == MEMOPT_TYPE_F32 ? 2e-6 : 0.02);
}
static void parts_adapter_case(memopt_type type, memopt_type a_type, float rate, size_t rows, int onto) {
    parts_adapted *t = parts_adapt(type, a_type, rate, rows), *first = parts_adapt(type, a_type, rate, rows); size_t i, j, k, r; const double s = 1.5;
    static double x[ADAPTED_ROWS * ADAPTED_IN], mask[ADAPTED_ROWS * ADAPTED_IN], low[ADAPTED_ROWS * ADAPTED_RANK], dlow[ADAPTED_ROWS * ADAPTED_RANK];
    t->l.accumulate_input = onto; t->p.accumulate = rows != 150; /* there, by several parts of rows */
    CHECK(adapter_forward(&t->ops, &t->l, &t->p) == MEMOPT_OK && adapter_backward(&t->ops, &t->l, &t->p) == MEMOPT_OK);
    parts_dropped(t, x, mask);
    for (i = 0; i < rows; ++i) for (r = 0; r < ADAPTED_RANK; ++r) {
        double sum = 0, back = 0;
        for (k = 0; k < ADAPTED_IN; ++k) sum += x[i * ADAPTED_IN + k] * parts_get(t->a, a_type, r * ADAPTED_IN + k);
        for (j = 0; j < ADAPTED_OUT; ++j) back += parts_get(t->g, type, i * ADAPTED_OUT + j) * parts_get(t->b, a_type, j * ADAPTED_RANK + r);
        low[i * ADAPTED_RANK + r] = s * sum; dlow[i * ADAPTED_RANK + r] = s * back;
    }
    for (i = 0; i < rows; ++i) for (j = 0; j < ADAPTED_OUT; ++j) {
        double y = parts_get(t->bias, type, j);
        for (k = 0; k < ADAPTED_IN; ++k) y += parts_get(t->x, type, i * ADAPTED_IN + k) * parts_get(t->w, type, j * ADAPTED_IN + k);
        for (r = 0; r < ADAPTED_RANK; ++r) y += low[i * ADAPTED_RANK + r] * parts_get(t->b, a_type, j * ADAPTED_RANK + r);
        CHECK_AT(parts_close(parts_get(t->y, type, i * ADAPTED_OUT + j), y, 8, type), i * 100 + j);
    }
    for (i = 0; i < rows; ++i) for (k = 0; k < ADAPTED_IN; ++k) {
        double d = 0, own = onto ? parts_get(first->dx, type, i * ADAPTED_IN + k) : 0;
        for (r = 0; r < ADAPTED_RANK; ++r) d += dlow[i * ADAPTED_RANK + r] * parts_get(t->a, a_type, r * ADAPTED_IN + k);
        d *= mask[i * ADAPTED_IN + k];
        for (j = 0; j < ADAPTED_OUT; ++j) own += parts_get(t->g, type, i * ADAPTED_OUT + j) * parts_get(t->w, type, j * ADAPTED_IN + k);
        CHECK_AT(parts_close(parts_get(t->dx, type, i * ADAPTED_IN + k), d + own, 8, type), i * 100 + k);
    }
    for (r = 0; r < ADAPTED_RANK; ++r) {
        for (k = 0; k < ADAPTED_IN; ++k) {
            double d = t->p.accumulate ? (double)first->da[r * ADAPTED_IN + k] : 0;
            for (i = 0; i < rows; ++i) d += dlow[i * ADAPTED_RANK + r] * x[i * ADAPTED_IN + k];
            CHECK_AT(parts_close((double)t->da[r * ADAPTED_IN + k], d, 60, type == MEMOPT_TYPE_F32 ? type : MEMOPT_TYPE_BF16), r * 100 + k);
        }
        for (j = 0; j < ADAPTED_OUT; ++j) {
            double d = t->p.accumulate ? (double)first->db[j * ADAPTED_RANK + r] : 0;
            for (i = 0; i < rows; ++i) d += parts_get(t->g, type, i * ADAPTED_OUT + j) * low[i * ADAPTED_RANK + r];
            CHECK_AT(parts_close((double)t->db[j * ADAPTED_RANK + r], d, 60, type), j * 100 + r);
        }
    }
    parts_adapted_free(t); parts_adapted_free(first);
}
static void parts_adapters(void) {
    static const size_t rows[] = { 1, 63, 64, 65, 150 }; size_t i; int k;
    for (i = 0; i < 5; ++i) for (k = 0; k < 8; ++k) {
        const memopt_type type = k & 1 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32, a_type = k & 2 ? type : MEMOPT_TYPE_F32;
        parts_adapter_case(type, a_type, k & 4 ? 0.3f : 0, rows[i], !(k & 4) && i % 2);
    }
}
static void parts_adapter_merge(void) {
    int k; size_t i, j, r;
    for (k = 0; k < 3; ++k) {
        const memopt_type type = k ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32, a_type = k == 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        parts_adapted *t = parts_adapt(type, a_type, 0, 4); float merged[ADAPTED_OUT * ADAPTED_IN], b[ADAPTED_OUT * ADAPTED_RANK];
        memcpy(merged, t->w, sizeof merged);
        CHECK(adapter_merge(&t->ops, &t->l, &t->p, merged, b) == MEMOPT_OK);
        for (i = 0; i < ADAPTED_OUT; ++i) for (j = 0; j < ADAPTED_IN; ++j) {
            double w = parts_get(t->w, type, i * ADAPTED_IN + j);
            for (r = 0; r < ADAPTED_RANK; ++r) w += 1.5 * parts_get(t->b, a_type, i * ADAPTED_RANK + r) * parts_get(t->a, a_type, r * ADAPTED_IN + j);
            CHECK_AT(fabs(parts_get(merged, type, i * ADAPTED_IN + j) - w) <= (k ? fabs(w) / 256 : 2e-6), i * 100 + j); /* one rounding */
        }
        parts_adapted_free(t);
    }
}
/* Two layers side by side with an adapter each: the bits of both one by one; the input's gradient is the sum of theirs. */
static void parts_adapter_pieces(void) {
    enum { ROWS = 70, RANK = 2 }; static const size_t outputs[2] = { 9, 5 }; int piece; size_t i, j, first = 0;
    parts_adapted *t = parts_adapt(MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 0.25f, ROWS); float merged[ADAPTED_OUT * ADAPTED_IN], b[ADAPTED_OUT * RANK], sum[ROWS * ADAPTED_IN] = { 0 };
    memcpy(merged, t->w, sizeof merged);
    t->p.rank = RANK; t->p.pieces = 2; t->p.piece_outputs = outputs; t->p.accumulate = 0;
    CHECK(adapter_work_bytes(&t->l, &t->p) >= ROWS * 2 * RANK * sizeof(float));
    CHECK(adapter_forward(&t->ops, &t->l, &t->p) == MEMOPT_OK && adapter_backward(&t->ops, &t->l, &t->p) == MEMOPT_OK);
    CHECK(adapter_merge(&t->ops, &t->l, &t->p, merged, b) == MEMOPT_OK);
    for (piece = 0; piece < 2; ++piece) {
        const size_t n = outputs[piece]; parts_adapted *u = parts_adapt(MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 0.25f, ROWS); float one[ADAPTED_OUT * ADAPTED_IN];
        u->l.outputs = n; u->l.weights = u->w + first * ADAPTED_IN; u->l.bias = u->bias + first;
        u->p.rank = RANK; u->p.a = u->a + (size_t)piece * RANK * ADAPTED_IN; u->p.b = u->b + first * RANK; u->p.accumulate = 0;
        for (i = 0; i < ROWS; ++i) for (j = 0; j < n; ++j) u->g[i * n + j] = t->g[i * ADAPTED_OUT + first + j];
        CHECK(adapter_forward(&u->ops, &u->l, &u->p) == MEMOPT_OK && adapter_backward(&u->ops, &u->l, &u->p) == MEMOPT_OK);
        memcpy(one, u->w + first * ADAPTED_IN, n * ADAPTED_IN * sizeof *one);
        CHECK(adapter_merge(&u->ops, &u->l, &u->p, one, b) == MEMOPT_OK && !memcmp(one, merged + first * ADAPTED_IN, n * ADAPTED_IN * sizeof *one));
        for (i = 0; i < ROWS; ++i) CHECK_AT(!memcmp(u->y + i * n, t->y + i * ADAPTED_OUT + first, n * sizeof *u->y), i);
        CHECK(!memcmp(u->da, t->da + (size_t)piece * RANK * ADAPTED_IN, RANK * ADAPTED_IN * sizeof *u->da) && !memcmp(u->db, t->db + first * RANK, n * RANK * sizeof *u->db));
        for (i = 0; i < ROWS * ADAPTED_IN; ++i) sum[i] += u->dx[i];
        first += n; parts_adapted_free(u);
    }
    for (i = 0; i < ROWS * ADAPTED_IN; ++i) CHECK_AT(fabs((double)t->dx[i] - (double)sum[i]) < 1e-5, i);
    parts_adapted_free(t);
}
/* Frozen weights of 8 bits: the bits of an adapter beside what they decode to. */
static void parts_adapter_quantized(void) {
    enum { BLOCK = 64 }; int k;
    for (k = 0; k < 2; ++k) {
        const memopt_type type = k ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; const size_t n = ADAPTED_OUT * ADAPTED_IN, size = memopt_type_bytes(type);
        parts_adapted *t = parts_adapt(type, MEMOPT_TYPE_F32, 0.25f, 70), *u = parts_adapt(type, MEMOPT_TYPE_F32, 0.25f, 70);
        uint8_t codes[ADAPTED_OUT * ADAPTED_IN]; float absmax[ADAPTED_OUT * ADAPTED_IN / BLOCK + 1], wide[ADAPTED_OUT * ADAPTED_IN]; memopt_quantized q; size_t i;
        for (i = 0; i < n; ++i) wide[i] = (float)parts_get(t->w, type, i);
        memset(&q, 0, sizeof q);
        q.absmax = absmax; q.map = MEMOPT_QUANT_LINEAR; q.block = BLOCK;
        CHECK(memopt_quantize_f32(codes, absmax, wide, n, q.map, BLOCK, NULL) == MEMOPT_OK && memopt_dequantize_f32(wide, codes, absmax, n, q.map, BLOCK, NULL) == MEMOPT_OK);
        for (i = 0; i < n; ++i) parts_put(t->w, type, i, wide[i]);
        u->l.weights = codes; u->l.quantized = &q;
        CHECK(adapter_forward(&t->ops, &t->l, &t->p) == MEMOPT_OK && adapter_backward(&t->ops, &t->l, &t->p) == MEMOPT_OK);
        CHECK(adapter_forward(&u->ops, &u->l, &u->p) == MEMOPT_OK && adapter_backward(&u->ops, &u->l, &u->p) == MEMOPT_OK);
        CHECK(!memcmp(t->y, u->y, 70 * ADAPTED_OUT * size) && !memcmp(t->dx, u->dx, 70 * ADAPTED_IN * size));
        CHECK(!memcmp(t->da, u->da, sizeof t->da) && !memcmp(t->db, u->db, sizeof t->db));
        parts_adapted_free(t); parts_adapted_free(u);
    }
}
static void parts_adapter_refuses(void) {
    parts_adapted *t = parts_adapt(MEMOPT_TYPE_F32, MEMOPT_TYPE_F32, 0.5f, 3); memopt_linear l; adapter p; int i;
    static const char *const said[] = { "its struct", "rank", "rank", "rank", "grad_weights", "activation", "a, b, low or work", "accumulate_input", "input", "gradient_type", "scale", "scale", "pieces", "pieces", "rank", "rank", "rank" };
    static const size_t beyond[2] = { 9, 6 }, below[2] = { 9, 4 }, narrow[2] = { 10, 4 };
    for (i = 0; i < 17; ++i) {
        l = t->l; p = t->p;
        switch (i) {
        case 1: p.rank = 0; break;               case 2: p.rank = ADAPTED_OUT + 1; break;
        case 3: p.rank = SIZE_MAX; break;        case 4: l.grad_weights = t->w; break;
        case 5: l.activation = MEMOPT_ACTIVATION_GELU; break;
        case 6: p.b = NULL; break;               case 7: l.accumulate_input = 1; break;
        case 8: l.input = NULL; break;           case 9: p.gradient_type = MEMOPT_TYPE_BF16; break;
        case 10: p.scale = (float)NAN; break;    case 11: p.scale = (float)-INFINITY; break;
        case 12: p.pieces = ADAPTER_PIECES + 1; p.piece_outputs = beyond; break; case 13: p.pieces = 2; p.piece_outputs = NULL; break;
        case 14: p.pieces = 2; p.piece_outputs = beyond; break; case 15: p.pieces = 2; p.piece_outputs = below; break;
        default: p.pieces = 2; p.piece_outputs = narrow; /* a piece narrower than the rank */
        }
        if (i != 7) CHECK_AT(adapter_forward(&t->ops, &l, i ? &p : NULL) == MEMOPT_ERR_ARGUMENT && !strcmp(t->error.argument, said[i]), i);
        else CHECK(adapter_backward(&t->ops, &l, &p) == MEMOPT_ERR_ARGUMENT && !strcmp(t->error.argument, said[i]));
    }
    for (i = 0; i < 6; ++i) { /* a backward that is refused has written nothing */
        memopt_ops ops = t->ops; float before[ADAPTED_OUT * ADAPTED_RANK]; memopt_status want = MEMOPT_ERR_ARGUMENT;
        memcpy(before, t->db, sizeof before);
        l = t->l; p = t->p; ops.error = &t->error;
        switch (i) {
        case 0: l.grad_output = NULL; break;     case 1: l.weights = NULL; break;
        case 2: ops.scratch = NULL; want = MEMOPT_ERR_BUFFER; break;
        case 3: ops.scratch_bytes -= 1; want = MEMOPT_ERR_BUFFER; break;
        case 4: l.grad_input = (char *)t->dx + 1; break;
        default: l.type = (memopt_type)7;
        }
        CHECK_AT(adapter_backward(&ops, &l, &p) == want && !memcmp(before, t->db, sizeof before), i);
    }
    l = t->l; l.rows = 0; p = t->p; p.accumulate = 0; p.rate = 0;
    CHECK(adapter_backward(&t->ops, &l, &p) == MEMOPT_OK && t->da[3] == 0 && t->db[3] == 0);
    parts_adapted_free(t);
}

/* ---- a network's adapters, and what lies in front of them ---- */
enum { TUNED_MAX = 4000, TUNED_RANK = 2, TUNED_BLOCK = 32, TUNED_SEGMENTS = 2 * PARTS_BLOCKS + 2, TUNED_HOW_DONE = 1, TUNED_HOW_CODES = 2 };
typedef struct parts_tuned { /* of the blocks of parts_one, those from `first` on have adapters */
    size_t first, count, front_count, adapters;
    float a[TUNED_MAX], grad[TUNED_MAX], absmax[PARTS_MAX / TUNED_BLOCK], hidden[PARTS_ROWS * 64]; uint8_t codes[PARTS_MAX];
    memopt_optim_tensor optim[8 * PARTS_BLOCKS];
    memopt_tape_layer front_layers[TUNED_SEGMENTS], layers[TUNED_SEGMENTS]; memopt_segment front_segments[TUNED_SEGMENTS], segments[TUNED_SEGMENTS];
    memopt_tape *front, *tape; size_t done, forward_uses, backward_uses, made, others; int is_backward;
} parts_tuned;
static parts_tuned parts_tune;
static memopt_status parts_tuned_done(void *user, size_t tensor, const void *gradients) {
    parts_tuned *x = (parts_tuned *)user; const memopt_optim_tensor *o = &x->optim[tensor];
    CHECK(o->count && o->columns && !o->gradients);
    memcpy(x->grad + ((const float *)o->weights - x->a), gradients, o->count * sizeof(float));
    ++x->done;
    return MEMOPT_OK;
}
static void parts_tuned_add(parts_tuned *x, parts_model *m, transformer_chain *front, transformer_chain *chain) {
    size_t i;
    transformer_add_embedding(front, &m->embedding);
    for (i = 0; i < m->blocks; ++i) transformer_add_block(i < x->first ? front : chain, &m->block[i]);
    transformer_add_head(chain, &m->head, &m->embedding);
}
static void parts_tuned_code(parts_tuned *x, parts_model *m, size_t block, uint8_t *codes, float *absmax) { /* and the weights become what they decode to */
    const transformer_part *const part[2] = { &m->block[block].attention, &m->block[block].mlp }; size_t i, k; transformer_lists lists; plain_engine p; plain_block b;
    memset(&p, 0, sizeof p); p.m = m; p.t = &m->t;
    plain_numbers(&p, &b, 2 - (size_t)m->t.rotary + block * plain_per(&m->t));
    for (i = 0; i < 4; ++i) {
        const size_t tensor = i == 0 ? b.qkv[0] : i == 1 ? b.project[0] : i == 2 ? b.up[0] : b.down[0];
        float *w = m->weights + m->first[tensor];
        transformer_list_part(part[i / 2], i < 2 ? transformer_attention_tensors : transformer_mlp_tensors, &lists);
        k = lists.list[i % 2 ? TRANSFORMER_PROJECT : TRANSFORMER_QKV].first;
        CHECK(k % TUNED_BLOCK == 0 && part[i / 2]->codes >= codes && part[i / 2]->codes + k + m->count[tensor] <= x->codes + sizeof x->codes);
        k += (size_t)(part[i / 2]->codes - codes);
        CHECK(memopt_quantize_f32(codes + k, absmax + k / TUNED_BLOCK, w, m->count[tensor], m->t.quantized_map, TUNED_BLOCK, NULL) == MEMOPT_OK);
        CHECK(memopt_dequantize_f32(w, codes + k, absmax + k / TUNED_BLOCK, m->count[tensor], m->t.quantized_map, TUNED_BLOCK, NULL) == MEMOPT_OK);
    }
}
/* The weights that are no matrices of blocks, side by side, as the chains of a network with codes have them. */
static float *parts_tuned_squeeze(parts_model *m) {
    static float squeezed[PARTS_MAX]; const size_t ends = 2 - (size_t)m->t.rotary; size_t i, at = 0;
    for (i = 0; i < m->tensors; ++i) {
        const int is_matrix = m->optim[i].columns && i >= ends && i < ends + m->blocks * plain_per(&m->t);
        if (!is_matrix) { memcpy(squeezed + at, m->weights + m->first[i], m->count[i] * sizeof(float)); at += m->count[i]; }
    }
    return squeezed;
}
/* Both chains, in arrays of which the front has `elements` and `codes`. */
static void parts_tuned_place(parts_tuned *x, parts_model *m, float *weights, size_t elements, size_t codes, int how) {
    transformer_chain front, chain;
    memset(&front, 0, sizeof front); memset(&chain, 0, sizeof chain);
    front.shape = chain.shape = &m->t; front.front = 1;
    front.weights = weights; chain.weights = weights + elements;
    front.codes = x->codes; chain.codes = x->codes + codes; front.absmax = x->absmax; chain.absmax = x->absmax + codes / TUNED_BLOCK;
    front.layers = x->front_layers; front.segments = x->front_segments; chain.layers = x->layers; chain.segments = x->segments;
    chain.adapters = x->a; chain.tensors = x->optim; chain.adapter_gradients = how & TUNED_HOW_DONE ? NULL : x->grad;
    parts_tuned_add(x, m, &front, &chain);
    x->front_count = front.count; x->count = chain.count;
    CHECK(front.elements == elements && front.code_elements == codes && chain.adapter_elements == x->adapters);
}
static void parts_tuned_open(parts_tuned *x, parts_model *m, transformer t, size_t blocks, size_t first, int how) {
    transformer_chain front, chain; memopt_tape_desc d; memopt_error why; uint64_t seed = 9; size_t i;
    parts_open(m, &t, blocks, 0);
    memset(x, 0, sizeof *x); memset(&front, 0, sizeof front); memset(&chain, 0, sizeof chain); memset(&why, 0, sizeof why);
    x->first = first;
    m->t.adapter_rank = TUNED_RANK; m->t.adapter_scale = 1.5f;
    if (how & TUNED_HOW_CODES) { m->t.quantized_block = TUNED_BLOCK; m->t.quantized_map = MEMOPT_QUANT_LINEAR; }
    if (how & TUNED_HOW_DONE) { m->t.done_fn = parts_tuned_done; m->t.user = x; }
    front.shape = chain.shape = &m->t; front.front = 1;
    parts_tuned_add(x, m, &front, &chain); /* counts */
    CHECK(!front.adapter_elements && !front.tensor_count && chain.tensor_count == 8 * (blocks - first) && chain.adapter_elements <= TUNED_MAX);
    CHECK(how & TUNED_HOW_CODES ? front.code_elements % TUNED_BLOCK == 0 && front.code_elements + chain.code_elements <= PARTS_MAX
                                : front.elements + chain.elements == m->total && !chain.code_elements);
    x->adapters = chain.adapter_elements;
    for (i = 0; i < x->adapters; ++i) x->a[i] = 0.3f * ((float)test_below(&seed, 2001) / 1000 - 1);
    parts_tuned_place(x, m, how & TUNED_HOW_CODES ? parts_tuned_squeeze(m) : m->weights, front.elements, front.code_elements, how);
    for (i = 0; i < blocks && (how & TUNED_HOW_CODES); ++i)
        parts_tuned_code(x, m, i, i < first ? x->codes : x->codes + front.code_elements, i < first ? x->absmax : x->absmax + front.code_elements / TUNED_BLOCK);
    m->head.targets = m->targets; m->head.chunk = 5;
    CHECK(memopt_tape_describe(x->front_layers, x->front_segments, x->front_count, &why) == MEMOPT_OK && memopt_tape_describe(x->layers, x->segments, x->count, &why) == MEMOPT_OK);
    memset(&d, 0, sizeof d);
    d.layers = x->front_layers; d.chain.segments = x->front_segments; d.chain.count = x->front_count; d.chain.input_bytes = transformer_rows(&m->t) * sizeof(int32_t); d.error = &why;
    d.budget = SIZE_MAX;
    CHECK(memopt_tape_open(&d, &x->front) == MEMOPT_OK);
    d.layers = x->layers; d.chain.segments = x->segments; d.chain.count = x->count; d.chain.input_bytes = transformer_bytes(&m->t, m->t.width);
    CHECK(memopt_tape_open(&d, &x->tape) == MEMOPT_OK);
}
static void parts_tuned_pass(parts_tuned *x, parts_model *m) {
    CHECK(memopt_tape_evaluate(x->front, m->ids, x->hidden) == MEMOPT_OK);
    CHECK(memopt_tape_forward(x->tape, x->hidden) == MEMOPT_OK);
    x->is_backward = 1;
    CHECK(memopt_tape_backward(x->tape, NULL, NULL) == MEMOPT_OK);
}
static void parts_tuned_close(parts_tuned *x) { memopt_tape_destroy(x->front); memopt_tape_destroy(x->tape); }
/* Matrices of adapted blocks become W + s B A, where A and B are those of `a`, in their order. */
static void parts_tuned_merge(const parts_tuned *x, const parts_model *m, const double *a, double *w) {
    size_t l, k, i, j, r; plain_engine p; plain_block b;
    memset(&p, 0, sizeof p); p.m = m; p.t = &m->t;
    for (i = 0; i < m->total; ++i) w[i] = (double)m->weights[i];
    for (l = x->first; l < m->blocks; ++l) {
        plain_numbers(&p, &b, 2 - (size_t)m->t.rotary + l * plain_per(&m->t));
        for (k = 0; k < 4; ++k) {
            const size_t tensor = k == 0 ? b.qkv[0] : k == 1 ? b.project[0] : k == 2 ? b.up[0] : b.down[0], n = m->optim[tensor].columns, rows = m->count[tensor] / n;
            const double *other = a + TUNED_RANK * n;
            for (i = 0; i < rows; ++i) for (j = 0; j < n; ++j) for (r = 0; r < TUNED_RANK; ++r) w[m->first[tensor] + i * n + j] += 1.5 * other[i * TUNED_RANK + r] * a[r * n + j];
            a = other + rows * TUNED_RANK;
        }
    }
}
/* Loss and gradients of A and B against differences of the exact loss of the merged network. */
static void parts_tuned_exact(transformer t, size_t hidden, size_t first, int how) {
    static double a[TUNED_MAX], w[PARTS_MAX], want[TUNED_MAX]; parts_tuned *x = &parts_tune; parts_model *m = &parts_one; double largest = 0, exact; size_t i;
    t.batch = 2; t.length = 5; t.width = 8; t.heads = 2; t.kv_heads = t.kv_heads ? 1 : 0; t.hidden = hidden; t.vocabulary = 11;
    if (t.padded) { t.padded = 12; t.positions = 6; }
    parts_tuned_open(x, m, t, 2, first, how);
    parts_tuned_pass(x, m);
    for (i = 0; i < x->adapters; ++i) a[i] = (double)x->a[i];
    parts_tuned_merge(x, m, a, w);
    exact = exact_loss(m, w, NULL);
    CHECK(fabs(m->head.loss - exact) < 1e-7 * exact);
    for (i = 0; i < x->adapters; ++i) {
        const double at = a[i], step = 1e-5; double more;
        a[i] = at + step; parts_tuned_merge(x, m, a, w); more = exact_loss(m, w, NULL);
        a[i] = at - step; parts_tuned_merge(x, m, a, w); want[i] = (more - exact_loss(m, w, NULL)) / (2 * step);
        a[i] = at;
        if (fabs(want[i]) > largest) largest = fabs(want[i]);
    }
    CHECK(largest > 0 && (!(how & TUNED_HOW_DONE) || x->done == 8 * (2 - first)));
    for (i = 0; i < x->adapters; ++i) CHECK_AT(fabs((double)x->grad[i] - want[i]) < 2e-6 * largest, i);
    if (!(how & TUNED_HOW_DONE)) { /* onto those */
        m->t.accumulate = 1;
        parts_tuned_pass(x, m);
        for (i = 0; i < x->adapters; ++i) CHECK_AT(fabs((double)x->grad[i] - 2 * want[i]) < 4e-6 * largest, i);
    }
    parts_tuned_close(x);
}
static void parts_tuned_exacts(void) {
    static const size_t starts[4] = { 0, 3, 7, 10 }; static const int32_t positions[10] = { 0, 1, 2, 0, 1, 2, 3, 0, 1, 2 };
    transformer t = parts_packed();
    parts_tuned_exact(parts_gpt(), 0, 0, 0);
    parts_tuned_exact(parts_gpt(), 0, 1, TUNED_HOW_DONE);
    parts_tuned_exact(parts_llama(), 10, 1, 0);
    parts_tuned_exact(parts_gpt(), 0, 1, TUNED_HOW_CODES);
    parts_tuned_exact(parts_llama(), 10, 0, TUNED_HOW_CODES | TUNED_HOW_DONE);
    t.documents = 3; t.starts = starts; t.row_positions = positions; t.head_width = 6;
    parts_tuned_exact(t, 10, 1, 0);
}
/* Of products: those that read a block's frozen matrix, those that write gradients of adapters. */
static memopt_status parts_tuned_multiply(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) {
    parts_tuned *x = (parts_tuned *)user; const parts_model *m = &parts_one; memopt_gemm own; size_t i;
    const size_t ends = 2 - (size_t)m->t.rotary;
    for (i = ends; i < ends + m->blocks * plain_per(&m->t); ++i)
        if (m->optim[i].columns && p->right == m->weights + m->first[i]) { if (x->is_backward) ++x->backward_uses; else ++x->forward_uses; }
    for (i = 0; i < 8 * (m->blocks - x->first); ++i) if (p->result == x->optim[i].gradients) ++x->made;
    if ((const float *)p->result >= m->gradients && (const float *)p->result < m->gradients + PARTS_MAX) ++x->others;
    if (memopt_gemm_resolve(NULL, &own)) return MEMOPT_ERR_ARGUMENT;
    return own.multiply_fn(own.user, p, threads, scratch);
}
/* What is in front costs no product on the way back, and no byte between forward and backward. */
static void parts_tuned_front(void) {
    parts_tuned *x = &parts_tune; parts_model *m = &parts_one; size_t first, peak[3], evaluate[3], count, i, backwards; memopt_gemm own; transformer_tensor list[TRANSFORMER_TENSORS_MAX]; const memopt_action *actions;
    CHECK(memopt_gemm_resolve(NULL, &own) == MEMOPT_OK);
    memset(list, 0, sizeof list);
    for (first = 0; first < 3; ++first) {
        transformer t = first ? parts_llama() : parts_gpt();
        t.ops.gemm = own; t.ops.gemm.multiply_fn = parts_tuned_multiply; t.ops.gemm.user = x;
        parts_tuned_open(x, m, t, first + 1, first, 0); /* one block has adapters */
        parts_tuned_pass(x, m);
        CHECK_AT(x->forward_uses == 4 * (first + 1) && x->backward_uses == 3 && x->made == 8 && !x->others, first); /* not that of the first matrix */
        actions = memopt_tape_actions(x->tape, &count);
        for (backwards = i = 0; i < count; ++i) backwards += actions[i].op == MEMOPT_ACTION_BACKWARD;
        CHECK_AT(backwards == 3 && x->front_count == 1 + 2 * first, first);
        { /* costs: a product forward and one back with each frozen weight, three more with each adapter's */
            const double rows = (double)transformer_rows(&t), frozen = (double)transformer_mlp_tensors(&t, list), of_adapters = 2 * ((double)list[TRANSFORMER_UP].columns
                + (double)(list[TRANSFORMER_UP].count / list[TRANSFORMER_UP].columns) + (double)list[TRANSFORMER_DOWN].columns + (double)t.width);
            CHECK(x->segments[1].forward_cost == rows * (frozen + of_adapters) && x->segments[1].backward_cost == rows * (frozen + 3 * of_adapters));
            CHECK(x->segments[2].backward_cost == 2 * rows * (double)t.width * (double)transformer_padded(&t));
        }
        peak[first] = memopt_tape_get_stats(x->tape).peak; evaluate[first] = memopt_tape_get_stats(x->front).evaluate_peak;
        for (i = 0; i < x->front_count; ++i) CHECK_AT(!x->front_segments[i].grad_bytes && !x->front_segments[i].backward_scratch, i);
        parts_tuned_close(x);
    }
    CHECK(peak[1] == peak[2] && evaluate[1] == evaluate[2]); /* one and two blocks in front */
}
/* The bits of codes are those of what they decode to; those of few bytes those of many; and chunks of the MLP change none. */
static void parts_tuned_bits(void) {
    static float want[TUNED_MAX], decoded[PARTS_MAX]; parts_tuned *x = &parts_tune; parts_model *m = &parts_one; size_t i, k, n; double loss;
    for (k = 0; k < 2; ++k) {
        const transformer t = k ? parts_llama() : parts_gpt(); transformer u = t; memopt_tape_desc d; memopt_tape *lean = NULL; size_t least = 0;
        parts_tuned_open(x, m, t, 3, 1, TUNED_HOW_CODES);
        parts_tuned_pass(x, m);
        n = x->adapters; loss = m->head.loss;
        memcpy(want, x->grad, sizeof want); memcpy(decoded, m->weights, sizeof decoded);
        parts_tuned_close(x);
        u.mlp_chunk = 5; u.batch = 8; /* 40 rows or more: two chunks */
        for (i = 0; i < 2; ++i) {
            parts_tuned_open(x, m, t, 3, 1, 0);
            memcpy(m->weights, decoded, sizeof decoded);
            memset(&d, 0, sizeof d);
            d.layers = x->layers; d.chain.segments = x->segments; d.chain.count = x->count; d.chain.input_bytes = transformer_bytes(&m->t, m->t.width);
            CHECK(memopt_tape_min_budget(&d, &least) == MEMOPT_OK);
            d.budget = least;
            if (i) { CHECK(memopt_tape_open(&d, &lean) == MEMOPT_OK); memopt_tape_destroy(x->tape); x->tape = lean; }
            parts_tuned_pass(x, m);
            CHECK_AT(n == x->adapters && m->head.loss == loss && !memcmp(want, x->grad, n * sizeof *want), 2 * k + i);
            parts_tuned_close(x);
        }
        for (i = 0; i < 2; ++i) {
            u.mlp_chunk = i ? 5 : 0;
            parts_tuned_open(x, m, u, 2, 1, 0);
            parts_tuned_pass(x, m);
            CHECK_AT(!i || (m->head.loss == loss && !memcmp(want, x->grad, x->adapters * sizeof *want)), k);
            loss = m->head.loss; memcpy(want, x->grad, sizeof want);
            parts_tuned_close(x);
        }
    }
}

static void test_parts(void) {
    RUN(parts_same_bits);
    RUN(parts_options);
    RUN(parts_exact);
    RUN(parts_accumulate);
    RUN(parts_evaluate);
    RUN(parts_workers);
    RUN(parts_no_rows);
    RUN(parts_alone);
    RUN(parts_reshape);
    RUN(parts_sizes);
    RUN(parts_mistakes);
    RUN(parts_adapters);
    RUN(parts_adapter_merge);
    RUN(parts_adapter_pieces);
    RUN(parts_adapter_quantized);
    RUN(parts_adapter_refuses);
    RUN(parts_tuned_exacts);
    RUN(parts_tuned_front);
    RUN(parts_tuned_bits);
}
#ifndef TEST_COMBINED
int main(void) { test_parts(); return test_totals(); }
#endif
