/* test_ring.c - examples/parts/ring.h: attention of one context over 1 to 8 ranks, as threads, against one rank (bits equal) and against
   the definition in double precision; in blocks of a transformer; what it keeps, works in and sends; ranks that fail or disagree. */
#include "test.h"
#include "examples/parts/block.h"
#include "examples/parts/embedding.h"
static int ring_heads_meet; /* 1: as on a device whose bits of a head depend on those beside it: a call for each of kv_heads, and no statistics */
#ifdef PARTS_RING_H
enum { RING_MEETS = 0 }; /* it is there already, as the CPU has it */
#else
enum { RING_MEETS = 1 };
static int ring_heads_are_alone(const memopt_ops *ops, const memopt_attention *a) { (void)ops; (void)a; return !ring_heads_meet; }
#  define transformer_heads_are_alone ring_heads_are_alone
#  include "examples/parts/ring.h"
#  undef transformer_heads_are_alone
#endif

enum { RING_MOST = 8, RING_DOCUMENTS = 4 };
typedef struct ring_case { size_t ranks, rows /* of all */, heads, kv_heads, width, window, documents; const size_t *starts; int not_causal; memopt_type type; } ring_case;

/* ---- a segment of attention alone: rows of queries, keys and values, as a block has them, to rows of heads ---- */
typedef struct ring_segment { transformer_part part; float *statistics; } ring_segment;
static memopt_status ring_segment_run(const memopt_tape_call *call) {
    const ring_segment *x = (const ring_segment *)call->user; const transformer *t = x->part.shape; memopt_status s;
    const size_t size = memopt_type_bytes(t->type), in = t->length * transformer_qkv_width(t) * size, out = t->length * transformer_attended_width(t) * size;
    void *qkv = memopt_tape_take(call, MEMOPT_TAPE_SAVED, in), *attended = memopt_tape_take(call, MEMOPT_TAPE_SAVED, out), *room[2] = { NULL, NULL };
    void *grad_attended = memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, call->is_backward ? out : 0);
    memopt_attention a = transformer_attention(t, qkv, qkv); memopt_ops ops;
    t->attention->take_fn(call, &a, room);
    ops = memopt_ops_in(call, &t->ops);
    a.output = attended;
    if (call->is_backward) {
        a.grad_output = grad_attended; a.grad_queries = call->grad_input;
        a.grad_keys = transformer_at(call->grad_input, transformer_attended_width(t), t->type);
        a.grad_values = transformer_at(call->grad_input, transformer_attended_width(t) + transformer_kv_width(t), t->type);
    }
    if (!call->describing && !call->is_backward) memcpy(qkv, call->input, in);
    if (!call->describing && call->is_backward) memcpy(grad_attended, call->grad_output, out);
    s = t->attention->run_fn(call, &ops, &a, room);
    if (s || call->describing || call->is_backward) return s;
    memcpy(call->output, attended, out);
    if (ring_heads_meet) memset(x->statistics, 0, t->length * t->heads * sizeof(float));
    else memcpy(x->statistics, room[1], t->length * t->heads * sizeof(float));
    return MEMOPT_OK;
}

static transformer ring_shape(const ring_case *c, size_t rows) {
    transformer t;
    memset(&t, 0, sizeof t);
    t.batch = 1; t.length = rows; t.heads = c->heads; t.kv_heads = c->kv_heads; t.head_width = c->width; t.width = c->heads * c->width; t.not_causal = c->not_causal;
    t.window = c->window; t.documents = c->documents; t.starts = c->starts; t.type = t.weight_type = c->type;
    return t;
}
static memopt_tape_desc ring_desc(const transformer *t, ring_segment *user) {
    memopt_tape_desc d; const size_t size = memopt_type_bytes(t->type);
    memset(&d, 0, sizeof d); memset(user, 0, sizeof *user);
    user->part.shape = t;
    d.chain.count = 1;
    d.chain.input_bytes = d.chain.input_grad_bytes = t->length * transformer_qkv_width(t) * size;
    d.segment.output_bytes = d.segment.grad_bytes = t->length * transformer_attended_width(t) * size;
    d.layer.forward_fn = d.layer.backward_fn = ring_segment_run; d.layer.user = user;
    return d;
}

/* ---- what is refused, when sizes are asked for ---- */
static memopt_status ring_nothing(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) { (void)user; (void)call; (void)slot; (void)error; return MEMOPT_ERR_IO; }
static memopt_status ring_never(void *user, size_t slot, memopt_error *error) { (void)user; (void)slot; (void)error; return MEMOPT_ERR_IO; }
static void ring_silent(void *user) { (void)user; }
static void ring_refusals(void) {
    ring_case c; memopt_comm_desc cd; memopt_comm *comm = NULL; transformer_attention_fns fns, none; transformer right, t; ring_segment user; memopt_tape_desc d; memopt_segment segment; memopt_tape_call call; memopt_attention a; size_t scratch = 0; memopt_ops ops; void *room[2] = { NULL, NULL }; memopt_error *door = NULL;
    memset(&c, 0, sizeof c); memset(&cd, 0, sizeof cd); memset(&call, 0, sizeof call); memset(&ops, 0, sizeof ops);
    cd.transport.begin_fn = ring_nothing; cd.transport.wait_fn = ring_never; cd.transport.abort_fn = ring_silent; cd.transport.rank_count = 4;
    CHECK(memopt_comm_create(&cd, &comm) == MEMOPT_OK);
    c.heads = 8; c.kv_heads = 4; c.width = 6; c.type = MEMOPT_TYPE_F32;
    fns = ring_attention(comm); none = ring_attention(NULL);
    right = ring_shape(&c, 10); right.attention = &fns;
    d = ring_desc(&t, &user); segment = d.segment;
    t = right; ACCEPTS(door, (void)0, memopt_tape_describe(&d.layer, &segment, 1, door));
    t = right; REFUSES(door, t.attention = &none, memopt_tape_describe(&d.layer, &segment, 1, door), MEMOPT_ERR_ARGUMENT, "segment 0: forward: ring: there is no comm");
    t = right; REFUSES(door, t.batch = 2, memopt_tape_describe(&d.layer, &segment, 1, door), MEMOPT_ERR_ARGUMENT, "segment 0: forward: ring: batch is not 1; several sequences are documents");
    t = right; REFUSES(door, t.kv_heads = 2, memopt_tape_describe(&d.layer, &segment, 1, door), MEMOPT_ERR_ARGUMENT, "segment 0: forward: ring: the ranks do not divide heads and kv_heads");
    t = right; REFUSES(door, t.heads = t.kv_heads = 6, memopt_tape_describe(&d.layer, &segment, 1, door), MEMOPT_ERR_ARGUMENT, "segment 0: forward: ring: the ranks do not divide heads and kv_heads");
    t = right; REFUSES(door, t.heads = 6, memopt_tape_describe(&d.layer, &segment, 1, door), MEMOPT_ERR_ARGUMENT, "segment 0: forward: ring: the ranks do not divide heads and kv_heads"); /* of which there are 4 */
    t = right; REFUSES(door, t.window = 3; t.not_causal = 1, memopt_tape_describe(&d.layer, &segment, 1, door), MEMOPT_ERR_ARGUMENT, "segment 0: forward: attention: window needs causal");
    a = transformer_attention(&right, NULL, NULL); /* from elsewhere than a block */
    call.user = &user; call.describing = 1; call.error = &test_why; ops.count_scratch = &scratch;
    t = right; test_why_reset(); --a.query_stride;
    CHECK(test_refused(ring_run(&call, &ops, &a, room), MEMOPT_ERR_ARGUMENT, "ring: a row of queries has no room for its keys and values"));
    ++a.query_stride;
    CHECK(ring_run(&call, &ops, &a, room) == MEMOPT_OK && scratch);
    test_why_reset(); call.describing = 0; a.batch = 2; /* a shape that has changed since */
    CHECK(test_refused(ring_run(&call, &ops, &a, room), MEMOPT_ERR_ARGUMENT, "ring: batch is not 1; several sequences are documents") && memopt_comm_error(comm).status == MEMOPT_OK);
    memopt_comm_destroy(comm);
}

#if defined(MEMOPT_I_POOL)
/* ---- one rank: the operator itself, which keeps what it needs ---- */
static void ring_plain_take(const memopt_tape_call *call, const memopt_attention *a, void *room[2]) {
    room[1] = memopt_tape_take(call, MEMOPT_TAPE_SAVED, a->length * a->heads * sizeof(float));
}
static memopt_status ring_plain_run(const memopt_tape_call *call, const memopt_ops *ops, const memopt_attention *a, void *const room[2]) {
    memopt_attention x = *a;
    x.online = !ring_heads_meet; x.statistics = ring_heads_meet ? NULL : (float *)room[1];
    return call->is_backward ? memopt_attention_backward(ops, &x) : memopt_attention_forward(ops, &x);
}
static const transformer_attention_fns ring_plain = { ring_plain_take, ring_plain_run, 1, NULL };

/* ---- a transport that fails in the call that is asked for ---- */
typedef struct ring_failing { memopt_transport inner; size_t begins, waits, fail_begin, fail_wait; } ring_failing;
static memopt_status ring_begin_fails(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    ring_failing *f = (ring_failing *)user;
    if (++f->begins == f->fail_begin) { error->reason = "is on fire"; return MEMOPT_ERR_IO; }
    return f->inner.begin_fn(f->inner.user, call, slot, error);
}
static memopt_status ring_wait_fails(void *user, size_t slot, memopt_error *error) {
    ring_failing *f = (ring_failing *)user; const memopt_status s = f->inner.wait_fn(f->inner.user, slot, error);
    if (++f->waits != f->fail_wait) return s;
    error->reason = "is on fire";
    return MEMOPT_ERR_IO;
}
static void ring_abort(void *user) { ring_failing *f = (ring_failing *)user; f->inner.abort_fn(f->inner.user); }

/* ---- a world of ranks ---- */
typedef struct ring_bits { unsigned char *in, *grad, *out, *back; float *statistics; } ring_bits; /* of all rows: given, given, made, made, made */
typedef struct ring_world {
    const ring_case *c; const ring_bits *x; memopt_ranks *ranks; const memopt_threads *threads; uint64_t nanoseconds;
    size_t fail_rank, fail_begin, fail_wait, passes, evaluations; memopt_status (*multiply_fn)(void *, const memopt_product *, const memopt_threads *, void *);
    size_t longer; /* the last rank's rows are so many more */
    memopt_segment segment[RING_MOST]; size_t peak[RING_MOST]; memopt_comm_stats forward[RING_MOST], stats[RING_MOST]; memopt_status status[RING_MOST]; char why[RING_MOST][200];
} ring_world;
/* A document's statistics lie head by head; so do a rank's, of its heads. */
static void ring_put_statistics(const ring_case *c, size_t rank, const float *from, float *to) {
    const size_t heads = c->heads / c->ranks, all[2] = { 0, c->rows }, *starts = c->documents ? c->starts : all; size_t d, h, i;
    for (d = 0; d < (c->documents ? c->documents : 1); ++d)
        for (h = 0; h < heads; ++h)
            for (i = 0; i < starts[d + 1] - starts[d]; ++i) {
                const size_t length = starts[d + 1] - starts[d];
                to[starts[d] * c->heads + (rank * heads + h) * length + i] = from[starts[d] * heads + h * length + i];
            }
}
static memopt_status ring_pass(ring_world *w, size_t rank, memopt_tape *tape, const transformer *t, memopt_comm *comm, float *statistics) {
    const size_t size = memopt_type_bytes(t->type), first = rank * (w->c->rows / w->c->ranks), in = first * transformer_qkv_width(t) * size, out = first * transformer_attended_width(t) * size;
    memopt_status s = MEMOPT_OK; size_t i;
    for (i = 0; i < w->evaluations && !s; ++i) s = memopt_tape_evaluate(tape, w->x->in + in, NULL);
    for (i = 0; i < w->passes && !s; ++i) {
        s = memopt_tape_forward(tape, w->x->in + in);
        if (s) break;
        memcpy(w->x->out + out, memopt_tape_output(tape), t->length * transformer_attended_width(t) * size);
        w->forward[rank] = memopt_comm_get_stats(comm);
        s = memopt_tape_backward(tape, w->x->grad + out, w->x->back + in);
    }
    if (!s) ring_put_statistics(w->c, rank, statistics, w->x->statistics);
    return s;
}
static void ring_rank(void *task, size_t rank, int worker) {
    ring_world *w = (ring_world *)task; const ring_case *c = w->c; memopt_comm_desc cd; memopt_comm *comm = NULL; memopt_tape *tape = NULL; memopt_arena *arena = NULL; memopt_arena_desc ad;
    const int last = rank + 1 == c->ranks; transformer t = ring_shape(c, c->rows / c->ranks + (last ? w->longer : 0)); ring_failing f; transformer_attention_fns fns; ring_segment user; memopt_tape_desc d; memopt_error why; size_t n;
    float *statistics = (float *)malloc((t.length * t.heads + 1) * sizeof *statistics);
    (void)worker;
    memset(&cd, 0, sizeof cd); memset(&f, 0, sizeof f); memset(&ad, 0, sizeof ad);
    if (w->ranks) {
        f.inner = cd.transport = memopt_ranks_transport(w->ranks, rank);
        if (rank == w->fail_rank) { f.fail_begin = w->fail_begin; f.fail_wait = w->fail_wait; }
        cd.transport.begin_fn = ring_begin_fails; cd.transport.wait_fn = ring_wait_fails; cd.transport.abort_fn = ring_abort; cd.transport.user = &f;
        CHECK(memopt_comm_create(&cd, &comm) == MEMOPT_OK);
    }
    fns = ring_attention(comm);
    t.attention = w->ranks ? &fns : &ring_plain;
    t.ops.threads = w->threads;
    if (rank == w->fail_rank) t.ops.gemm.multiply_fn = w->multiply_fn;
    d = ring_desc(&t, &user);
    user.statistics = statistics;
    ad.capacity = (size_t)64 << 20;
    CHECK(statistics && memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    w->segment[rank] = d.segment;
    CHECK(memopt_tape_describe(&d.layer, &w->segment[rank], 1, &why) == MEMOPT_OK);
    d.arena = arena;
    CHECK(memopt_tape_open(&d, &tape) == MEMOPT_OK);
    w->status[rank] = ring_pass(w, rank, tape, &t, comm, statistics);
    w->stats[rank] = memopt_comm_get_stats(comm);
    w->peak[rank] = memopt_arena_get_stats(arena).peak;
    if (!w->status[rank] && w->passes) CHECK(w->peak[rank] == memopt_tape_get_stats(tape).peak); /* as the dry run told */
    why = memopt_tape_error(tape);
    if (w->status[rank]) CHECK(memopt_error_text(&why, w->why[rank], sizeof w->why[rank], &n) == MEMOPT_OK);
    CHECK(memopt_arena_get_stats(arena).used_low == 0 && memopt_arena_get_stats(arena).used_top == 0);
    memopt_tape_destroy(tape); memopt_arena_destroy(arena); memopt_comm_destroy(comm);
    free(statistics);
}

/* What is given is made of, for rows of queries, keys and values, and of gradients of the output. */
static void ring_fill(unsigned char *to, memopt_type type, size_t n, uint64_t seed) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const float x = (float)test_below(&seed, 20001) / 10000 - 1;
        if (type == MEMOPT_TYPE_F32) ((float *)(void *)to)[i] = x;
        else ((uint16_t *)(void *)to)[i] = memopt_to_bf16(x);
    }
}
static size_t ring_columns(const ring_case *c) { return (c->heads + 2 * c->kv_heads) * c->width; }
static size_t ring_in_bytes(const ring_case *c) { return c->rows * ring_columns(c) * memopt_type_bytes(c->type); }
static size_t ring_out_bytes(const ring_case *c) { return c->rows * c->heads * c->width * memopt_type_bytes(c->type); }
static void ring_open(ring_bits *x, const ring_case *c, const ring_bits *given) { /* NULL: made */
    memset(x, 0, sizeof *x);
    x->in = given ? given->in : (unsigned char *)malloc(ring_in_bytes(c)); x->grad = given ? given->grad : (unsigned char *)malloc(ring_out_bytes(c));
    x->out = (unsigned char *)calloc(1, ring_out_bytes(c)); x->back = (unsigned char *)calloc(1, ring_in_bytes(c)); x->statistics = (float *)calloc(c->rows * c->heads, sizeof(float));
    if (!x->in || !x->grad || !x->out || !x->back || !x->statistics) { printf("test_ring.c: out of memory\n"); exit(1); }
    if (given) return;
    ring_fill(x->in, c->type, c->rows * ring_columns(c), 3);
    ring_fill(x->grad, c->type, c->rows * c->heads * c->width, 7);
}
static void ring_close(ring_bits *x, const ring_bits *given) {
    if (!given) { free(x->in); free(x->grad); }
    free(x->out); free(x->back); free(x->statistics);
}
static int ring_equal(const ring_case *c, const ring_bits *a, const ring_bits *b) {
    return !memcmp(a->out, b->out, ring_out_bytes(c)) && !memcmp(a->back, b->back, ring_in_bytes(c)) && !memcmp(a->statistics, b->statistics, c->rows * c->heads * sizeof(float));
}
static void ring_alone(ring_world *w, const ring_case *c, const ring_bits *x) { /* one rank, without a ring */
    ring_case one = *c;
    memset(w, 0, sizeof *w);
    one.ranks = 1;
    w->c = &one; w->x = x; w->passes = 1;
    ring_rank(w, 0, 0);
    CHECK(w->status[0] == MEMOPT_OK);
    w->c = c;
}
static uint64_t ring_now(void) {
    uint64_t now = 0;
    (void)memopt_i_system_now(NULL, &now);
    return now;
}

static int ring_play(ring_world *w, const ring_case *c, const ring_bits *x, uint64_t deadline) {
    memopt_ranks_desc rd; memopt_thread_pool *pool = NULL; memopt_threads t; uint64_t since;
    memset(&rd, 0, sizeof rd);
    w->c = c; w->x = x; w->passes = w->passes ? w->passes : 1;
    rd.rank_count = c->ranks; rd.deadline = deadline;
    CHECK(memopt_ranks_create(&rd, &w->ranks) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)c->ranks, &pool) == MEMOPT_OK);
    if (!w->ranks || !pool) return 0;
    t = memopt_thread_pool_threads(pool);
    since = ring_now();
    t.run_fn(t.user, c->ranks, ring_rank, w);
    w->nanoseconds = ring_now() - since;
    memopt_thread_pool_destroy(pool); memopt_ranks_destroy(w->ranks);
    w->ranks = NULL;
    return 1;
}

/* ---- the definition, in double precision ---- */
static double ring_number(const unsigned char *x, memopt_type type, size_t i) {
    return type == MEMOPT_TYPE_F32 ? (double)((const float *)(const void *)x)[i] : (double)memopt_from_bf16(((const uint16_t *)(const void *)x)[i]);
}
static int ring_sees(const ring_case *c, size_t row, size_t column) {
    size_t d;
    for (d = 0; d < c->documents; ++d) if ((row < c->starts[d + 1]) != (column < c->starts[d + 1])) return 0;
    if (!c->not_causal && column > row) return 0;
    return !c->window || column + c->window > row;
}
static void ring_define(const ring_case *c, const ring_bits *x, double *out, double *back) {
    const size_t qkv = ring_columns(c), w = c->width, group = c->heads / c->kv_heads; size_t h, i, j, k; double *p = (double *)calloc(2 * c->rows, sizeof *p), *dp = p + c->rows;
    memset(out, 0, c->rows * c->heads * w * sizeof *out); memset(back, 0, c->rows * qkv * sizeof *back);
    if (!p) return;
    for (h = 0; h < c->heads; ++h) for (i = 0; i < c->rows; ++i) {
        const size_t q = i * qkv + h * w, o = (i * c->heads + h) * w; double most = -1e300, sum = 0, mean = 0; const double scale = 1 / sqrt((double)w);
        for (j = 0; j < c->rows; ++j) {
            const size_t key = j * qkv + (c->heads + h / group) * w;
            p[j] = -1e300;
            if (!ring_sees(c, i, j)) continue;
            for (p[j] = 0, k = 0; k < w; ++k) p[j] += scale * ring_number(x->in, c->type, q + k) * ring_number(x->in, c->type, key + k);
            if (p[j] > most) most = p[j];
        }
        for (j = 0; j < c->rows; ++j) sum += p[j] = ring_sees(c, i, j) ? exp(p[j] - most) : 0;
        for (j = 0; j < c->rows; ++j) {
            const size_t value = j * qkv + (c->heads + c->kv_heads + h / group) * w;
            p[j] /= sum; dp[j] = 0;
            for (k = 0; k < w && p[j] > 0; ++k) {
                const double v = ring_number(x->in, c->type, value + k), g = ring_number(x->grad, c->type, o + k);
                out[o + k] += p[j] * v; dp[j] += g * v; back[value + k] += p[j] * g;
            }
            mean += p[j] * dp[j];
        }
        for (j = 0; j < c->rows; ++j) for (k = 0; k < w && p[j] > 0; ++k) {
            const size_t key = j * qkv + (c->heads + h / group) * w; const double ds = scale * p[j] * (dp[j] - mean);
            back[q + k] += ds * ring_number(x->in, c->type, key + k); back[key + k] += ds * ring_number(x->in, c->type, q + k);
        }
    }
    free(p);
}
static void ring_near(const ring_case *c, const unsigned char *got, const double *want, size_t n, uint64_t at) {
    const double bound = c->type == MEMOPT_TYPE_F32 ? 4e-6 : 0.016; double most = 0; size_t i, bad = 0; /* 2^-8 and the steps between */
    for (i = 0; i < n; ++i) if (fabs(want[i]) > most) most = fabs(want[i]);
    for (i = 0; i < n; ++i) if (!(fabs(ring_number(got, c->type, i) - want[i]) <= bound * (most > 1 ? most : 1))) ++bad;
    CHECK_AT(!bad && most > 0, at);
}

/* ---- the bits of one rank ---- */
enum { RING_CAUSAL, RING_ALL, RING_WINDOW, RING_PACKED, RING_PACKED_ALL, RING_WINDOW_PACKED, RING_KINDS };
static ring_case ring_of(int kind, int grouped, memopt_type type) { /* 328 rows: of 8 ranks 41 each, two tiles of columns */
    static const size_t starts[RING_DOCUMENTS + 1] = { 0, 30, 30, 290, 328 };
    ring_case c;
    memset(&c, 0, sizeof c);
    c.rows = 328; c.heads = grouped ? 16 : 8; c.kv_heads = 8; c.width = grouped ? 4 : 12; c.type = type;
    c.not_causal = kind == RING_ALL || kind == RING_PACKED_ALL;
    c.window = kind == RING_WINDOW ? 100 : kind == RING_WINDOW_PACKED ? 50 : 0;
    if (kind >= RING_PACKED) { c.documents = RING_DOCUMENTS; c.starts = starts; }
    return c;
}
static void ring_traffic(const ring_world *w) { /* as the essay of ring.h says */
    const ring_case *c = w->c; const size_t row = 2 * (c->heads + c->kv_heads) * c->width * memopt_type_bytes(c->type); size_t r;
    const uint64_t sent = (uint64_t)(c->ranks - 1) * (c->rows / c->ranks) * row / c->ranks, groups = ring_heads_meet ? c->kv_heads / c->ranks : 1;
    for (r = 0; r < c->ranks; ++r) {
        CHECK_AT(w->forward[r].calls[0] == 4 * groups && w->forward[r].sent[0] == sent && w->forward[r].received[0] == sent, r);
        CHECK_AT(w->stats[r].calls[0] == 12 * groups && w->stats[r].sent[0] == 3 * sent && w->stats[r].received[0] == 3 * sent && !w->stats[r].calls[1] && !w->stats[r].calls[2], r);
    }
}
static void ring_one(const ring_case *one, uint64_t id) {
    static ring_world w; ring_case c = *one; ring_bits alone, x; size_t r; double *out, *back;
    ring_open(&alone, &c, NULL);
    ring_alone(&w, &c, &alone);
    out = (double *)malloc(c.rows * c.heads * c.width * sizeof *out); back = (double *)malloc(c.rows * ring_columns(&c) * sizeof *back);
    if (out && back) {
        ring_define(&c, &alone, out, back);
        ring_near(&c, alone.out, out, c.rows * c.heads * c.width, id);
        ring_near(&c, alone.back, back, c.rows * ring_columns(&c), id);
    }
    free(out); free(back);
    for (c.ranks = 1; c.ranks <= RING_MOST; c.ranks *= 2) {
        ring_open(&x, &c, &alone);
        memset(&w, 0, sizeof w);
        if (!ring_play(&w, &c, &x, 0)) return;
        for (r = 0; r < c.ranks; ++r) CHECK_AT(w.status[r] == MEMOPT_OK, id * 10 + c.ranks);
        CHECK_AT(ring_equal(&c, &x, &alone), id * 10 + c.ranks);
        ring_traffic(&w);
        ring_close(&x, &alone);
    }
    ring_close(&alone, NULL);
}
static void ring_same_bits(void) {
    int kind, grouped, bf16;
    for (kind = 0; kind < RING_KINDS; ++kind) for (grouped = 0; grouped < 2; ++grouped) for (bf16 = 0; bf16 < 2; ++bf16) {
        const ring_case c = ring_of(kind, grouped, bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32);
        if (test_is_passed_over()) continue;
        ring_one(&c, 100 * (uint64_t)kind + 10 * (uint64_t)grouped + (uint64_t)bf16);
    }
    for (ring_heads_meet = 1, kind = RING_WINDOW; RING_MEETS && kind < RING_KINDS; kind += 3) {
        const ring_case c = ring_of(kind, 1, MEMOPT_TYPE_F32);
        ring_one(&c, 1000 + (uint64_t)kind);
    }
    ring_heads_meet = 0;
}
/* ---- a length that ranks do not divide: it is padded, and the padding, whatever is in it, is a document of its own ---- */
static void ring_padded(void) {
    static const size_t starts[3] = { 0, 77, 80 }; static ring_world w; int bf16;
    for (bf16 = 0; bf16 < 2; ++bf16) {
        ring_case odd = ring_of(RING_CAUSAL, 0, bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32), c = odd; ring_bits alone, x; size_t r;
        odd.rows = 77; c.rows = 80; c.ranks = 4; c.documents = 2; c.starts = starts;
        ring_open(&alone, &odd, NULL); ring_open(&x, &c, NULL);
        ring_alone(&w, &odd, &alone);
        memset(x.in, 0xff, ring_in_bytes(&c)); memset(x.grad, 0xff, ring_out_bytes(&c)); /* NaN */
        memcpy(x.in, alone.in, ring_in_bytes(&odd)); memcpy(x.grad, alone.grad, ring_out_bytes(&odd));
        memset(&w, 0, sizeof w);
        if (!ring_play(&w, &c, &x, 0)) return;
        for (r = 0; r < 4; ++r) CHECK_AT(w.status[r] == MEMOPT_OK, r);
        CHECK(!memcmp(x.out, alone.out, ring_out_bytes(&odd)) && !memcmp(x.back, alone.back, ring_in_bytes(&odd)));
        CHECK(!memcmp(x.statistics, alone.statistics, odd.rows * odd.heads * sizeof(float)));
        ring_close(&alone, NULL); ring_close(&x, NULL);
    }
}

/* ---- more passes of a tape, and evaluations between them ---- */
static void ring_again(void) {
    static ring_world w; ring_case c = ring_of(RING_WINDOW, 1, MEMOPT_TYPE_BF16); ring_bits alone, x; size_t r;
    c.ranks = 4;
    ring_open(&alone, &c, NULL); ring_open(&x, &c, &alone);
    ring_alone(&w, &c, &alone);
    memset(&w, 0, sizeof w);
    w.passes = 3; w.evaluations = 2;
    if (!ring_play(&w, &c, &x, 0)) return;
    for (r = 0; r < 4; ++r) CHECK_AT(w.status[r] == MEMOPT_OK && w.stats[r].calls[0] == 3 * 12 + 2 * 4, r);
    CHECK(ring_equal(&c, &x, &alone));
    ring_close(&x, &alone); ring_close(&alone, NULL);
}

/* ---- blocks: positions, window and documents are the whole context's ---- */
enum { RING_ROWS = 96, RING_BLOCKS = 2, RING_SEGMENTS = 1 + 2 * RING_BLOCKS, RING_WEIGHTS = 60000 };
typedef struct ring_model { transformer t; transformer_part embedding; transformer_block blocks[RING_BLOCKS]; memopt_tape_layer layers[RING_SEGMENTS]; memopt_segment segments[RING_SEGMENTS]; size_t tokens, elements; } ring_model;
typedef struct ring_net { /* what ranks share */
    memopt_ranks *ranks; const transformer *t; size_t rank_count; int again; /* 1: forwards run again in the backward */ const float *weights; int32_t ids[RING_ROWS], places[RING_ROWS];
    unsigned char out[RING_ROWS * 64 * 4], grad[RING_ROWS * 64 * 4]; float gradients[RING_MOST][RING_WEIGHTS]; memopt_status status[RING_MOST]; size_t tokens, forwards;
} ring_net;
static void ring_model_open(ring_model *m, const float *weights, float *gradients) {
    transformer_chain c; memopt_error why; int count; size_t i;
    for (count = 1; count >= 0; --count) {
        memset(&c, 0, sizeof c);
        c.shape = &m->t;
        if (!count) { c.weights = transformer_at(weights, 0, MEMOPT_TYPE_F32); c.gradients = gradients; c.layers = m->layers; c.segments = m->segments; }
        transformer_add_embedding(&c, &m->embedding);
        for (i = 0; i < RING_BLOCKS; ++i) transformer_add_block(&c, &m->blocks[i]);
    }
    m->elements = c.elements;
    CHECK(c.elements <= RING_WEIGHTS && memopt_tape_describe(m->layers, m->segments, c.count, &why) == MEMOPT_OK);
}
static void ring_net_rank(void *task, size_t rank, int worker) {
    ring_net *n = (ring_net *)task; static ring_model models[RING_MOST]; ring_model *m = &models[rank]; memopt_tape_desc d; memopt_comm_desc cd; memopt_comm *comm = NULL; memopt_tape *tape = NULL; transformer_attention_fns fns;
    const size_t rows = RING_ROWS / n->rank_count, bytes = rows * n->t->width * memopt_type_bytes(n->t->type); memopt_status s;
    (void)worker;
    memset(m, 0, sizeof *m); memset(&d, 0, sizeof d); memset(&cd, 0, sizeof cd);
    m->t = *n->t;
    if (n->ranks) { cd.transport = memopt_ranks_transport(n->ranks, rank); CHECK(memopt_comm_create(&cd, &comm) == MEMOPT_OK); }
    fns = ring_attention(comm);
    m->t.attention = n->ranks ? &fns : &ring_plain;
    m->t.length = rows; m->t.row_positions = n->places + rank * rows;
    ring_model_open(m, n->weights, n->gradients[rank]);
    if (rank == 0) n->tokens = m->t.padded * m->t.width;
    d.chain.segments = m->segments; d.chain.count = RING_SEGMENTS; d.chain.input_bytes = rows * sizeof(int32_t); d.layers = m->layers;
    d.budget = SIZE_MAX; d.rule = n->again ? MEMOPT_SCHEDULE_EVERY : MEMOPT_SCHEDULE_ALL; d.every = 2;
    CHECK(memopt_tape_open(&d, &tape) == MEMOPT_OK);
    s = memopt_tape_forward(tape, n->ids + rank * rows);
    if (!s) { memcpy(n->out + rank * bytes, memopt_tape_output(tape), bytes); s = memopt_tape_backward(tape, n->grad + rank * bytes, NULL); }
    n->status[rank] = s;
    if (rank == 0) n->forwards = memopt_tape_get_stats(tape).forwards;
    memopt_tape_destroy(tape); memopt_comm_destroy(comm);
}
static int ring_net_play(ring_net *n, size_t ranks) { /* 0: one rank, without a ring */
    memopt_ranks_desc rd; memopt_thread_pool *pool = NULL; memopt_threads t;
    memset(&rd, 0, sizeof rd); memset(n->out, 0, sizeof n->out); memset(n->gradients, 0, sizeof n->gradients);
    n->ranks = NULL; n->rank_count = rd.rank_count = ranks ? ranks : 1;
    ring_fill(n->grad, n->t->type, RING_ROWS * n->t->width, 11); /* a tape may write over what it was handed */
    if (!ranks) { ring_net_rank(n, 0, 0); return n->status[0] == MEMOPT_OK; }
    CHECK(memopt_ranks_create(&rd, &n->ranks) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)ranks, &pool) == MEMOPT_OK);
    if (!n->ranks || !pool) return 0;
    t = memopt_thread_pool_threads(pool);
    t.run_fn(t.user, ranks, ring_net_rank, n);
    memopt_thread_pool_destroy(pool); memopt_ranks_destroy(n->ranks);
    return 1;
}
static transformer ring_net_shape(int kind) { /* learned positions; rotary ones; with norms of heads and a window; documents */
    static const size_t starts[RING_DOCUMENTS + 1] = { 0, 10, 55, 55, RING_ROWS };
    transformer t;
    memset(&t, 0, sizeof t);
    t.batch = 1; t.width = 32; t.heads = 8; t.kv_heads = 8; t.vocabulary = t.padded = RING_ROWS; t.positions = RING_ROWS; t.untied = 1; t.hidden = 40;
    if (kind) { t.rotary = t.rms = t.swiglu = t.no_bias = 1; t.head_width = 4; t.positions = 0; }
    if (kind >= 2) { t.heads = 16; t.qk_norm = 1; t.window = 21; }
    if (kind == 3) { t.documents = RING_DOCUMENTS; t.starts = starts; }
    t.type = kind == 1 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    return t;
}
/* Every id is there once, so that gradients of tokens and positions are those of single rows: a rank has those of its rows. */
static void ring_net_compare(const ring_net *one, const ring_net *n, uint64_t at) {
    const size_t width = n->t->width, rows = RING_ROWS / n->rank_count; size_t i;
    CHECK_AT(!memcmp(one->out, n->out, sizeof n->out), at);
    for (i = 0; i < RING_ROWS; ++i) {
        const size_t token = (size_t)n->ids[i] * width, position = n->tokens + (size_t)n->places[i] * width;
        CHECK_AT(!memcmp(one->gradients[0] + token, n->gradients[i / rows] + token, width * sizeof(float)) && one->gradients[0][token] != 0, at);
        if (n->t->positions) CHECK_AT(!memcmp(one->gradients[0] + position, n->gradients[i / rows] + position, width * sizeof(float)) && one->gradients[0][position] != 0, at);
    }
}
static void ring_blocks(void) {
    static ring_net one, n; static float weights[RING_WEIGHTS]; int kind, again; size_t i, ranks; uint64_t seed = 5;
    for (i = 0; i < RING_WEIGHTS; ++i) weights[i] = 0.5f * ((float)test_below(&seed, 2001) / 1000 - 1);
    for (kind = 0; kind < 4; ++kind) {
        const transformer t = ring_net_shape(kind);
        if (test_is_passed_over()) continue;
        one.t = &t; one.weights = weights;
        for (i = 0; i < RING_ROWS; ++i) { /* a permutation; and places, which begin anew with a document */
            size_t d = 0, start = 0;
            for (; d < t.documents && t.starts[d] <= i; ++d) start = t.starts[d];
            one.ids[i] = (int32_t)(i * 37 % RING_ROWS); one.places[i] = (int32_t)(i - start);
        }
        CHECK(ring_net_play(&one, 0));
        n = one;
        for (ranks = 1; ranks <= RING_MOST; ranks *= 2) for (again = 0; again < 2; ++again) {
            n.again = again;
            if (!ring_net_play(&n, ranks)) return;
            for (i = 0; i < ranks; ++i) CHECK_AT(n.status[i] == MEMOPT_OK, ranks);
            CHECK_AT(again ? n.forwards > RING_SEGMENTS : n.forwards == RING_SEGMENTS, n.forwards);
            ring_net_compare(&one, &n, 100 * (uint64_t)kind + 10 * ranks + (uint64_t)again);
        }
    }
}

/* ---- a rank fails in each of its calls, or in a product: all others end, and are told who it was ---- */
static memopt_status ring_no_product(void *user, const memopt_product *p, const memopt_threads *threads, void *scratch) { (void)user; (void)p; (void)threads; (void)scratch; return MEMOPT_ERR_DEVICE; }
static int ring_tells(const ring_world *w, size_t rank, size_t culprit) {
    char text[40];
    snprintf(text, sizeof text, "at rank %u, has given up", (unsigned)culprit);
    if (strstr(w->why[rank], rank == culprit ? "is on fire" : text)) return 1;
    printf("rank %u says '%s'\n", (unsigned)rank, w->why[rank]);
    return 0;
}
static void ring_fails(void) {
    static ring_world w; static const uint64_t deadline = (uint64_t)100 * 1000 * 1000 * 1000; ring_case c = ring_of(RING_CAUSAL, 0, MEMOPT_TYPE_F32); ring_bits x; size_t n, r; int waits;
    c.rows = 16;
    ring_open(&x, &c, NULL);
    for (c.ranks = 2; c.ranks <= 4; c.ranks *= 2) for (waits = 0; waits < 2; ++waits) for (n = 1; n <= 2 * 12 + 1; ++n) { /* a comparison before each call */
        size_t failed = 0;
        memset(&w, 0, sizeof w);
        w.fail_rank = n % c.ranks;
        if (waits) w.fail_wait = n; else w.fail_begin = n;
        if (!ring_play(&w, &c, &x, deadline)) return;
        for (r = 0; r < c.ranks; ++r) {
            failed += w.status[r] != MEMOPT_OK;
            if (w.status[r]) CHECK_AT(ring_tells(&w, r, w.fail_rank), n);
        }
        /* after its last call nobody asks for a rank */
        CHECK_AT(w.status[w.fail_rank] == (n <= 24 ? MEMOPT_ERR_IO : MEMOPT_OK) && (failed == (n <= 24 ? c.ranks : 0) || (waits && n == 24)), n);
    }
    memset(&w, 0, sizeof w);
    c.ranks = 4; w.fail_rank = 2; w.multiply_fn = ring_no_product;
    if (!ring_play(&w, &c, &x, deadline)) return;
    for (r = 0; r < 4; ++r) CHECK_AT(w.status[r] == (r == 2 ? MEMOPT_ERR_DEVICE : MEMOPT_ERR_STATE) && (r == 2 || ring_tells(&w, r, 2)), r);
    ring_close(&x, NULL);
}
static void ring_disagrees(void) { /* about the length: nothing is moved */
    static ring_world w; ring_case c = ring_of(RING_CAUSAL, 0, MEMOPT_TYPE_F32); ring_bits x; size_t r;
    c.ranks = 4; c.rows = 32;
    ring_open(&x, &c, NULL);
    memset(&w, 0, sizeof w);
    c.rows = 28; w.longer = 1; /* so many are there */
    if (!ring_play(&w, &c, &x, 0)) return;
    for (r = 0; r < 4; ++r) {
        CHECK_AT(w.status[r] == MEMOPT_ERR_STATE && !w.stats[r].calls[0] && !w.stats[r].received[0], r);
        CHECK_AT(strstr(w.why[r], "call 1 at rank ") != NULL, r);
    }
    ring_close(&x, NULL);
}

/* ---- bytes and time ---- */
static memopt_segment ring_sizes(const ring_case *c, memopt_comm *comm, const transformer_attention_fns *fns) {
    memopt_comm_stats s = memopt_comm_get_stats(comm); const transformer_attention_fns ring = ring_attention(comm); transformer t = ring_shape(c, c->rows / (s.rank_count ? s.rank_count : 1)); ring_segment user; memopt_tape_desc d = ring_desc(&t, &user); memopt_segment segment = d.segment; memopt_error why;
    t.attention = fns ? fns : &ring;
    CHECK(memopt_tape_describe(&d.layer, &segment, 1, &why) == MEMOPT_OK);
    return segment;
}
/* Of the operator's own scratch every rank has as much as one: it does not grow with the length. */
static void ring_bytes(void) {
    static const memopt_type types[2] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16 }; size_t i, k;
    for (i = 0; i < 2; ++i) for (k = 1; k <= RING_MOST; k *= 2) {
        ring_case c = ring_of(RING_CAUSAL, 1, types[i]); memopt_ranks_desc rd; memopt_ranks *ranks = NULL; memopt_comm_desc cd; memopt_comm *comm = NULL; memopt_segment plain, ring; size_t operators;
        c.rows = 32768;
        memset(&rd, 0, sizeof rd); memset(&cd, 0, sizeof cd);
        rd.rank_count = k;
        CHECK(memopt_ranks_create(&rd, &ranks) == MEMOPT_OK);
        cd.transport = memopt_ranks_transport(ranks, 0);
        CHECK(memopt_comm_create(&cd, &comm) == MEMOPT_OK);
        plain = ring_sizes(&c, NULL, &ring_plain); ring = ring_sizes(&c, comm, NULL);
        operators = plain.backward_scratch - ring_out_bytes(&c); /* what the segment of this test takes by itself */
        CHECK_AT(ring.saved_bytes * k == plain.saved_bytes && plain.saved_bytes == ring_in_bytes(&c) + 2 * ring_out_bytes(&c) + c.rows * c.heads * sizeof(float), k);
        CHECK_AT((ring.forward_scratch - plain.forward_scratch) * k == ring_in_bytes(&c) && ring.plain_scratch == ring.saved_bytes - ring.output_bytes + ring.forward_scratch, k);
        CHECK_AT((ring.backward_scratch - operators) * k == ring_out_bytes(&c), k);
        memopt_comm_destroy(comm); memopt_ranks_destroy(ranks);
    }
}
static double ring_seconds(const ring_case *one, const ring_bits *x, size_t workers) { /* one rank, without a ring */
    static ring_world w; memopt_thread_pool *pool = NULL; memopt_threads t; ring_case c = *one; uint64_t since;
    CHECK(memopt_thread_pool_create(NULL, (int)workers, &pool) == MEMOPT_OK);
    if (!pool) return 1;
    t = memopt_thread_pool_threads(pool);
    memset(&w, 0, sizeof w);
    c.ranks = 1;
    w.c = &c; w.x = x; w.passes = 1; w.threads = &t;
    since = ring_now();
    ring_rank(&w, 0, 0);
    since = ring_now() - since;
    CHECK(w.status[0] == MEMOPT_OK);
    memopt_thread_pool_destroy(pool);
    return (double)since / 1e9;
}
#if defined(TEST_COMBINED)
enum { RING_LONG = 2048 }; /* where processors are simulated */
#else
enum { RING_LONG = 32768 };
#endif
static void ring_long(void) { /* over 4 ranks, and over 2 */
    static ring_world w; size_t k;
    for (k = 4; k >= 2; k -= 2) {
        ring_case c = ring_of(RING_CAUSAL, 0, k == 4 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16); ring_bits alone, x; double plain; size_t r, longest;
        c.rows = k == 4 ? RING_LONG : RING_LONG / 4; c.heads = c.kv_heads = 4; c.width = k == 4 ? 8 : 64; c.ranks = k;
        ring_open(&alone, &c, NULL); ring_open(&x, &c, &alone);
        plain = ring_seconds(&c, &alone, k);
        memset(&w, 0, sizeof w);
        if (!ring_play(&w, &c, &x, 0)) return;
        for (r = 0; r < k; ++r) {
            longest = w.segment[r].forward_scratch > w.segment[r].backward_scratch ? w.segment[r].forward_scratch : w.segment[r].backward_scratch;
            CHECK_AT(w.status[r] == MEMOPT_OK && w.peak[r] == w.segment[r].saved_bytes + longest, r);
        }
        CHECK(ring_equal(&c, &x, &alone));
        printf("ring: %u rows, %u ranks: %.2f s, %.2f of one rank with %u workers\n", (unsigned)c.rows, (unsigned)k, (double)w.nanoseconds / 1e9, (double)w.nanoseconds / 1e9 / plain, (unsigned)k);
        ring_close(&x, &alone); ring_close(&alone, NULL);
    }
}
#else
static void ring_no_threads(void) { SKIP("compiled without MEMOPT_PTHREADS"); }
#endif

void test_ring(void);
void test_ring(void) {
    RUN(ring_refusals);
#if defined(MEMOPT_I_POOL)
    RUN(ring_same_bits); RUN(ring_padded); RUN(ring_again); RUN(ring_blocks); RUN(ring_fails); RUN(ring_disagrees); RUN(ring_bytes); RUN(ring_long);
#else
    RUN(ring_no_threads);
#endif
}
#ifndef TEST_COMBINED
int main(void) {
    test_ring();
    return test_totals();
}
#endif
