/* test_pieces.c - activations that ranks hold alike, kept once: as a store by itself, and under a tape. */
#include "test.h"

static void pieces_refusals(void) {
    memopt_pieces_desc right, x; memopt_pieces *out = NULL; test_faults f; memopt_host host = test_host(&f), half; memopt_tape_store s; memopt_error why; char line[200] = ""; unsigned char in[64] = "abc", back[64] = "";
    memset(&right, 0, sizeof right); memset(&f, 0, sizeof f); memset(&half, 0, sizeof half);
    half.allocator.alloc_fn = memopt_i_system_alloc;
    right.values = 3; right.host = &host;
    CHECK(memopt_pieces_create(NULL, &out) == MEMOPT_ERR_ARGUMENT);
    x = right; REFUSES(x.error, (void)0, memopt_pieces_create(&x, NULL), MEMOPT_ERR_ARGUMENT, "pieces: out is NULL");
    x = right; REFUSES(x.error, x.values = 0, memopt_pieces_create(&x, &out), MEMOPT_ERR_ARGUMENT, "pieces: values 0, at least 1");
    x = right; REFUSES(x.error, x.host = &half, memopt_pieces_create(&x, &out), MEMOPT_ERR_ARGUMENT, "pieces: host.allocator is half a table");
    x = right; REFUSES(x.error, x.values = SIZE_MAX / 8, memopt_pieces_create(&x, &out), MEMOPT_ERR_OVERFLOW, "pieces: values are too many for a size_t");
    x = right; x.error = &why; f.fail_on = f.calls + 1;
    CHECK(memopt_pieces_create(&x, &out) == MEMOPT_ERR_MEMORY && !out && why.status == MEMOPT_ERR_MEMORY);
    CHECK(!memopt_error_text(&why, line, sizeof line, NULL) && !strncmp(line, "pieces: no memory for it: asked ", 32));
    CHECK(memopt_pieces_create(&x, &out) == MEMOPT_OK && out);
    s = memopt_pieces_store(out);
    CHECK(s.write_fn(s.user, 3, in, 4) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_pieces_error(out), MEMOPT_ERR_ARGUMENT, "pieces: value 3, is beyond those of the desc"));
    CHECK(s.read_fn(s.user, 1, back, 4) == MEMOPT_ERR_STATE && test_error_says(memopt_pieces_error(out), MEMOPT_ERR_STATE, "pieces: value 1, has not been written with so many bytes"));
    CHECK(s.write_fn(s.user, 1, in, 4) == MEMOPT_OK && s.read_fn(s.user, 1, back, 5) == MEMOPT_ERR_STATE && s.read_fn(s.user, 3, back, 4) == MEMOPT_ERR_STATE);
    CHECK(s.read_fn(s.user, 1, back, 4) == MEMOPT_OK && s.wait_fn(s.user, 1) == MEMOPT_OK && s.wait_fn(s.user, 9) == MEMOPT_OK && !memcmp(in, back, 4));
    CHECK(s.write_fn(s.user, 1, in, 60) == MEMOPT_OK && memopt_pieces_get_stats(out).now == 60 && memopt_pieces_get_stats(out).peak == 60); /* written over */
    f.fail_on = f.calls + 1;
    CHECK(s.write_fn(s.user, 2, in, 60) == MEMOPT_ERR_MEMORY && test_error_says(memopt_pieces_error(out), MEMOPT_ERR_MEMORY, "pieces: value 2, has no memory for its piece"));
    s.forget_fn(s.user, 2); s.forget_fn(s.user, 9); s.forget_fn(s.user, 1); s.forget_fn(s.user, 1);
    CHECK(memopt_pieces_get_stats(out).now == 0 && s.write_fn(s.user, 0, in, 7) == MEMOPT_OK);
    memopt_pieces_destroy(out); memopt_pieces_destroy(NULL);
    CHECK(!f.live_blocks && !f.bad_frees);
    CHECK(!memopt_pieces_store(NULL).write_fn && memopt_pieces_get_stats(NULL).peak == 0 && memopt_pieces_error(NULL).status == MEMOPT_ERR_ARGUMENT);
}

/* ---- ranks ---- */
#if defined(MEMOPT_I_POOL)
enum { PIECES_VALUES = 12, PIECES_MOST = 5, PIECES_CHAIN = 9, PIECES_WIDTH = 333 };
static unsigned char pieces_byte(size_t value, size_t i) { return (unsigned char)(value * 57 + i * 31 + (i >> 7)); }
static size_t pieces_size(size_t value) { return value < 3 ? value + 1 : 100 + 77 * value; } /* some are less than ranks */
typedef struct pieces_failing { memopt_transport inner; uint64_t begins, fail; } pieces_failing;
static memopt_status pieces_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    pieces_failing *f = (pieces_failing *)user;
    if (++f->begins == f->fail) { error->reason = "is on fire"; return MEMOPT_ERR_IO; }
    return f->inner.begin_fn(f->inner.user, call, slot, error);
}
static memopt_status pieces_wait(void *user, size_t slot, memopt_error *error) { pieces_failing *f = (pieces_failing *)user; return f->inner.wait_fn(f->inner.user, slot, error); }
static void pieces_abort(void *user) { pieces_failing *f = (pieces_failing *)user; f->inner.abort_fn(f->inner.user); }
typedef struct pieces_world { memopt_ranks *ranks; size_t count, reads; uint64_t fail; int taped; float grads[PIECES_MOST][PIECES_WIDTH]; memopt_status status[PIECES_MOST]; } pieces_world;
/* Random writes, reads of up to all values at once, waits in another order. */
static memopt_status pieces_store_play(memopt_pieces *x, const memopt_ledger *ledger, size_t ranks) {
    unsigned char bytes[PIECES_VALUES][1200]; memopt_tape_store s = memopt_pieces_store(x); memopt_status status = MEMOPT_OK; size_t round, v, i, held;
    for (round = 0; !status && round < 6; ++round) {
        for (v = held = 0; !status && v < PIECES_VALUES; ++v) {
            for (i = 0; i < pieces_size(v); ++i) bytes[v][i] = pieces_byte(v + round, i);
            status = s.write_fn(s.user, v, bytes[v], pieces_size(v));
            held += pieces_size(v) / ranks + pieces_size(v) % ranks;
        }
        if (!status) CHECK(memopt_pieces_get_stats(x).now == held && memopt_ledger_usage(ledger, MEMOPT_TAG_CHECKPOINTS).now == held);
        memset(bytes, 0xee, sizeof bytes);
        for (v = 0; !status && v < PIECES_VALUES; ++v) status = s.read_fn(s.user, v, bytes[v], pieces_size(v));
        if (!status && round == 2) { /* forgotten while it travels: it has arrived then */
            s.forget_fn(s.user, 11);
            for (i = 0; i < pieces_size(11) && bytes[11][i] == pieces_byte(11 + round, i); ++i) {}
            CHECK(i == pieces_size(11) && s.read_fn(s.user, 11, bytes[11], pieces_size(11)) == MEMOPT_ERR_STATE);
        }
        for (i = 0; i < PIECES_VALUES; ++i) {
            const memopt_status one = s.wait_fn(s.user, i * 5 % PIECES_VALUES);
            if (!status) status = one;
        }
        for (v = 0; !status && v < PIECES_VALUES; ++v) {
            for (i = 0; i < pieces_size(v) && bytes[v][i] == pieces_byte(v + round, i); ++i) {}
            CHECK_AT(i == pieces_size(v) && bytes[v][i] == 0xee, v);
            if ((v + round) % 3 == 0) s.forget_fn(s.user, v);
        }
    }
    return status;
}
static memopt_status pieces_square(const memopt_tape_call *call) { /* out = in + in * in / 8 */
    const float *in = (const float *)call->input; size_t i;
    if (call->describing) return MEMOPT_OK;
    if (!call->is_backward) for (i = 0; i < PIECES_WIDTH; ++i) ((float *)call->output)[i] = memopt_i_sum(in[i], memopt_i_times(in[i], memopt_i_times(in[i], 0.125f)));
    else for (i = 0; i < PIECES_WIDTH; ++i) ((float *)call->grad_input)[i] = memopt_i_times(((const float *)call->grad_output)[i], memopt_i_sum(1, memopt_i_times(0.25f, in[i])));
    return MEMOPT_OK;
}
static memopt_status pieces_tape_play(memopt_pieces *x, float *grads, size_t *peak) { /* x NULL: without a store */
    memopt_segment chain[PIECES_CHAIN]; memopt_tape_layer layers[PIECES_CHAIN]; memopt_tape_desc d; memopt_tape *tape = NULL; size_t i; memopt_status s; float in[PIECES_WIDTH], ones[PIECES_WIDTH];
    memset(chain, 0, sizeof chain); memset(&d, 0, sizeof d);
    for (i = 0; i < PIECES_CHAIN; ++i) { chain[i].output_bytes = chain[i].grad_bytes = sizeof in; chain[i].forward_cost = 100; chain[i].backward_cost = 200; layers[i].forward_fn = layers[i].backward_fn = pieces_square; layers[i].user = NULL; }
    d.chain.segments = chain; d.chain.count = PIECES_CHAIN; d.chain.input_bytes = d.chain.input_grad_bytes = sizeof in; d.layers = layers; d.rule = MEMOPT_SCHEDULE_REVOLVE; d.budget = 6 * 1408;
    if (x) { d.store = memopt_pieces_store(x); d.offload.slots = MEMOPT_OFFLOAD_UNLIMITED; d.offload.write_cost = d.offload.read_cost = 1; d.offload.overlap = 1; }
    s = memopt_tape_open(&d, &tape);
    CHECK(s == MEMOPT_OK);
    for (i = 0; i < PIECES_WIDTH; ++i) { in[i] = (float)(i % 17) / 16 - 0.5f; ones[i] = 1; }
    if (!s) s = memopt_tape_forward(tape, in);
    if (!s) s = memopt_tape_backward(tape, ones, grads);
    *peak = memopt_tape_get_stats(tape).peak;
    memopt_tape_destroy(tape);
    return s;
}
static void pieces_rank(void *task, size_t rank, int worker) {
    pieces_world *w = (pieces_world *)task; memopt_comm_desc cd; memopt_pieces_desc d; memopt_pieces *x = NULL; memopt_ledger *ledger = NULL; pieces_failing f; memopt_status s; size_t peak; memopt_comm_stats stats;
    (void)worker;
    memset(&cd, 0, sizeof cd); memset(&d, 0, sizeof d);
    f.inner = cd.transport = memopt_ranks_transport(w->ranks, rank); f.begins = 0; f.fail = w->fail % w->count == rank ? w->fail : 0;
    cd.transport.begin_fn = pieces_begin; cd.transport.wait_fn = pieces_wait; cd.transport.abort_fn = pieces_abort; cd.transport.user = &f; cd.unchecked = 1;
    CHECK(memopt_comm_create(&cd, &d.comm) == MEMOPT_OK && memopt_ledger_create(NULL, &ledger) == MEMOPT_OK);
    d.values = PIECES_VALUES; d.ledger = ledger;
    CHECK(memopt_pieces_create(&d, &x) == MEMOPT_OK);
    s = w->status[rank] = w->taped ? pieces_tape_play(x, w->grads[rank], &peak) : pieces_store_play(x, ledger, w->count);
    stats = memopt_comm_get_stats(d.comm);
    if (rank == 0) w->reads = (size_t)stats.calls[1];
    if (!s && !w->taped) CHECK(stats.calls[1] <= 6 * PIECES_VALUES && stats.calls[1] >= 6 * (PIECES_VALUES - 3) * (w->count > 1));
    if (s) { CHECK(memopt_pieces_error(x).status != MEMOPT_OK && memopt_pieces_error(x).reason); memopt_comm_abort(d.comm); }
    memopt_pieces_destroy(x);
    CHECK(memopt_ledger_usage(ledger, MEMOPT_TAG_CHECKPOINTS).now == 0);
    memopt_ledger_destroy(ledger); memopt_comm_destroy(d.comm);
}
static int pieces_play(pieces_world *w) {
    memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads t;
    memset(&d, 0, sizeof d);
    d.rank_count = w->count;
    CHECK(memopt_ranks_create(&d, &w->ranks) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)w->count, &pool) == MEMOPT_OK);
    if (!pool || !w->ranks) return 0;
    t = memopt_thread_pool_threads(pool);
    t.run_fn(t.user, w->count, pieces_rank, w);
    memopt_thread_pool_destroy(pool); memopt_ranks_destroy(w->ranks);
    return 1;
}
static void pieces_ranks(void) {
    static pieces_world w; size_t count, r;
    for (count = 1; count <= PIECES_MOST; ++count) {
        memset(&w, 0, sizeof w);
        w.count = count;
        if (!pieces_play(&w)) return;
        for (r = 0; r < count; ++r) CHECK_AT(w.status[r] == MEMOPT_OK, count);
    }
}
static void pieces_taped(void) {
    static pieces_world w; static float plain[PIECES_WIDTH]; size_t count, r, peak;
    CHECK(pieces_tape_play(NULL, plain, &peak) == MEMOPT_OK);
    for (count = 1; count <= PIECES_MOST; ++count) {
        memset(&w, 0, sizeof w);
        w.count = count; w.taped = 1;
        if (!pieces_play(&w)) return;
        for (r = 0; r < count; ++r) CHECK_AT(w.status[r] == MEMOPT_OK && !memcmp(w.grads[r], plain, sizeof plain), count);
        CHECK_AT(count == 1 || w.reads > 1, count); /* something was sent away */
    }
}
static void pieces_fail(void) { /* in every call: all ranks learn it, nothing is left */
    static pieces_world w; uint64_t n; size_t r; int taped;
    for (taped = 0; taped < 2; ++taped) for (n = 1; n < 80; n += 1 + (uint64_t)(n > 10) * 6) {
        int failed = 0;
        memset(&w, 0, sizeof w);
        w.count = 3; w.fail = n; w.taped = taped;
        if (!pieces_play(&w)) return;
        for (r = 0; r < 3; ++r) failed += w.status[r] != MEMOPT_OK;
        CHECK_AT(failed == 3 || failed == 0, n);
        if (!failed) break;
    }
    CHECK(n > 3);
}
#else
static void pieces_no_threads(void) { SKIP("compiled without MEMOPT_PTHREADS"); }
#endif

void test_pieces(void);
void test_pieces(void) {
    RUN(pieces_refusals);
#if defined(MEMOPT_I_POOL)
    RUN(pieces_ranks); RUN(pieces_taped); RUN(pieces_fail);
#else
    RUN(pieces_no_threads);
#endif
}
#ifndef TEST_COMBINED
int main(void) { test_pieces(); return test_totals(); }
#endif
