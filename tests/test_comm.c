/* test_comm.c - bytes between ranks: one alone, threads, ranks that disagree, fail, give up or do not come. */
#if !defined(TEST_COMBINED) && (defined(__unix__) || defined(__APPLE__)) && !defined(__cplusplus) && defined(MEMOPT_PTHREADS)
#define COMM_FAULTY 1
#include <errno.h>
#include <pthread.h>
static int comm_refuse; /* 1: the next lock is refused; 2: the one after it */
static int comm_refuses(void) { return comm_refuse > 0 && --comm_refuse == 0; }
static int comm_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) { return comm_refuses() ? EAGAIN : pthread_mutex_init(m, a); }
static int comm_cond_init(pthread_cond_t *c, const pthread_condattr_t *a) { return comm_refuses() ? EAGAIN : pthread_cond_init(c, a); }
#define pthread_mutex_init comm_mutex_init
#define pthread_cond_init comm_cond_init
#endif
#include "test.h"

/* ---- one rank alone ---- */
static memopt_comm_call comm_call(memopt_comm_kind kind, size_t bytes, const void *send, void *receive) {
    memopt_comm_call c;
    memset(&c, 0, sizeof c);
    c.kind = kind; c.bytes = bytes; c.send = send; c.receive = receive;
    return c;
}
static memopt_comm *comm_make(memopt_transport t, int unchecked) {
    memopt_comm_desc d; memopt_comm *x = NULL;
    memset(&d, 0, sizeof d);
    d.transport = t; d.unchecked = unchecked;
    CHECK(memopt_comm_create(&d, &x) == MEMOPT_OK);
    return x;
}
static memopt_transport comm_nobody(void) { memopt_transport t; memset(&t, 0, sizeof t); return t; }
static void comm_alone(void) {
    char in[6] = "abcde", out[6] = ""; int kind; memopt_comm *x = comm_make(comm_nobody(), 0); memopt_comm_stats s;
    uint64_t n = 0, numbers[8]; memopt_comm_call c;
    if (!x) return;
    for (kind = 0; kind < 3; ++kind) {
        memset(out, 0, sizeof out);
        c = comm_call((memopt_comm_kind)kind, 5, in, out);
        CHECK(memopt_comm_run(x, &c) == MEMOPT_OK && !memcmp(in, out, 5) && !out[5]);
    }
    c = comm_call(MEMOPT_COMM_ALL_GATHER, 5, in, in); /* its piece is where it belongs */
    CHECK(memopt_comm_begin(x, &c, &n) == MEMOPT_OK && n == 4);
    CHECK(memopt_comm_wait(x, 3) == MEMOPT_ERR_ARGUMENT && memopt_comm_wait(x, 0) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_comm_wait(x, n) == MEMOPT_OK && !strcmp(in, "abcde"));
    CHECK(memopt_comm_wait(x, n) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_comm_error(x), MEMOPT_ERR_ARGUMENT, "comm: number 4, is no call that is begun"));
    for (kind = 0; kind < 8; ++kind) CHECK(memopt_comm_begin(x, &c, &numbers[kind]) == MEMOPT_OK && numbers[kind] == 5u + (unsigned)kind);
    CHECK(memopt_comm_begin(x, &c, &n) == MEMOPT_ERR_STATE && n == 4);
    CHECK(test_error_says(memopt_comm_error(x), MEMOPT_ERR_STATE, "comm: call 13, first wait for call 5"));
    CHECK(memopt_comm_wait(x, 7) == MEMOPT_OK && memopt_comm_begin(x, &c, &n) == MEMOPT_ERR_STATE); /* not the one */
    CHECK(memopt_comm_wait(x, 5) == MEMOPT_OK && memopt_comm_begin(x, &c, &n) == MEMOPT_OK && n == 13);
    s = memopt_comm_get_stats(x);
    CHECK(s.rank == 0 && s.rank_count == 1 && s.calls[0] == 1 && s.calls[1] == 11 && s.calls[2] == 1);
    CHECK(!s.sent[0] && !s.sent[1] && !s.sent[2] && !s.received[0] && !s.received[1] && !s.received[2]);
    memopt_comm_abort(x);
    CHECK(test_error_says(memopt_comm_error(x), MEMOPT_ERR_STATE, "comm: call 13, was given up"));
    CHECK(memopt_comm_wait(x, 77) == MEMOPT_ERR_ARGUMENT); /* what is wrong with this is not why the comm is broken */
    CHECK(test_error_says(memopt_comm_error(x), MEMOPT_ERR_STATE, "comm: call 13, was given up"));
    CHECK(memopt_comm_begin(x, &c, &n) == MEMOPT_ERR_STATE && n == 13);
    memopt_comm_destroy(x); memopt_comm_destroy(NULL); memopt_comm_abort(NULL);
    CHECK(memopt_comm_get_stats(NULL).rank_count == 0 && memopt_comm_error(NULL).status == MEMOPT_ERR_ARGUMENT);
}

/* ---- a transport that fails on demand, over another one: of three ranks here, of real ones below ---- */
typedef struct comm_faulty { memopt_transport inner; size_t fail_begin, fail_wait, begins, waits, aborts; const char *reason; size_t index; } comm_faulty;
static memopt_status comm_faulty_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    comm_faulty *f = (comm_faulty *)user;
    CHECK(slot < MEMOPT_COMM_SLOTS && error != NULL);
    if (++f->begins == f->fail_begin) { error->reason = f->reason; error->index = f->index; return MEMOPT_ERR_IO; }
    return f->inner.begin_fn ? f->inner.begin_fn(f->inner.user, call, slot, error) : MEMOPT_OK;
}
static memopt_status comm_faulty_wait(void *user, size_t slot, memopt_error *error) {
    comm_faulty *f = (comm_faulty *)user; memopt_status s = MEMOPT_OK;
    if (f->inner.wait_fn) s = f->inner.wait_fn(f->inner.user, slot, error);
    if (++f->waits == f->fail_wait) { error->reason = f->reason; error->index = f->index; return MEMOPT_ERR_IO; }
    return s;
}
static void comm_faulty_abort(void *user) {
    comm_faulty *f = (comm_faulty *)user;
    ++f->aborts;
    if (f->inner.abort_fn) f->inner.abort_fn(f->inner.user);
}
static memopt_transport comm_faulty_over(comm_faulty *f, memopt_transport inner, size_t rank, size_t count) {
    memopt_transport t;
    memset(&t, 0, sizeof t); memset(f, 0, sizeof *f);
    f->inner = inner; f->index = SIZE_MAX;
    t.begin_fn = comm_faulty_begin; t.wait_fn = comm_faulty_wait; t.abort_fn = comm_faulty_abort; t.user = f;
    t.rank = rank; t.rank_count = count;
    return t;
}
static void comm_breaks_once(void) { /* the transport is told once; the first reason stays; waits still reach it */
    comm_faulty f; memopt_comm *x = comm_make(comm_faulty_over(&f, comm_nobody(), 1, 3), 1); char in[12] = "", out[12];
    memopt_comm_call c = comm_call(MEMOPT_COMM_ALL_TO_ALL, 4, in, out); uint64_t a = 0, b = 0; memopt_comm_stats s;
    if (!x) return;
    CHECK(memopt_comm_begin(x, &c, &a) == MEMOPT_OK && memopt_comm_begin(x, &c, &b) == MEMOPT_OK);
    f.fail_wait = 1; f.reason = "is on fire"; f.index = 2;
    CHECK(memopt_comm_wait(x, b) == MEMOPT_ERR_IO && f.aborts == 1);
    CHECK(test_error_says(memopt_comm_error(x), MEMOPT_ERR_IO, "comm: call 2 at rank 2, is on fire") && memopt_comm_error(x).got.count == 2);
    CHECK(memopt_comm_begin(x, &c, &b) == MEMOPT_ERR_STATE && f.begins == 2);
    CHECK(memopt_comm_wait(x, a) == MEMOPT_OK && f.waits == 2 && f.aborts == 1); /* it went well, and nobody touches its memory */
    memopt_comm_abort(x);
    CHECK(f.aborts == 1 && test_error_says(memopt_comm_error(x), MEMOPT_ERR_IO, "comm: call 2 at rank 2, is on fire"));
    s = memopt_comm_get_stats(x);
    CHECK(s.calls[0] == 2 && s.sent[0] == 16 && s.received[0] == 16 && s.rank == 1 && s.rank_count == 3);
    memopt_comm_destroy(x);
    x = comm_make(comm_faulty_over(&f, comm_nobody(), 0, 3), 1);
    if (!x) return;
    f.fail_begin = 1; f.index = 3; /* no reason, and no rank */
    CHECK(memopt_comm_run(x, &c) == MEMOPT_ERR_IO && f.aborts == 1 && f.waits == 0);
    CHECK(test_error_says(memopt_comm_error(x), MEMOPT_ERR_IO, "comm: call 1, the transport failed"));
    CHECK(memopt_comm_get_stats(x).calls[0] == 0);
    memopt_comm_destroy(x);
}
static void comm_fails_twice(void) { /* the first status is the transport's; after that it is ERR_STATE, and the reason stays */
    comm_faulty f; memopt_comm *x = comm_make(comm_faulty_over(&f, comm_nobody(), 1, 3), 1); char in[12] = "", out[12];
    memopt_comm_call c = comm_call(MEMOPT_COMM_ALL_TO_ALL, 4, in, out); uint64_t n[3] = { 0, 0, 0 }; int k;
    if (!x) return;
    for (k = 0; k < 3; ++k) CHECK(memopt_comm_begin(x, &c, &n[k]) == MEMOPT_OK);
    f.fail_wait = 1; f.reason = "is on fire"; f.index = 2;
    CHECK(memopt_comm_wait(x, n[1]) == MEMOPT_ERR_IO);
    f.fail_wait = 2; f.index = 0;
    CHECK(memopt_comm_wait(x, n[0]) == MEMOPT_ERR_STATE && f.waits == 2 && f.aborts == 1);
    CHECK(memopt_comm_wait(x, n[2]) == MEMOPT_OK && f.waits == 3);
    CHECK(test_error_says(memopt_comm_error(x), MEMOPT_ERR_IO, "comm: call 2 at rank 2, is on fire"));
    memopt_comm_destroy(x);
}
static void comm_counts(void) { /* bytes, by who sends them */
    comm_faulty f; char in[64] = "", out[64]; size_t rank; memopt_comm_stats s;
    for (rank = 0; rank < 4; ++rank) {
        memopt_comm *x = comm_make(comm_faulty_over(&f, comm_nobody(), rank, 4), 1); memopt_comm_call c;
        if (!x) return;
        c = comm_call(MEMOPT_COMM_ALL_TO_ALL, 16, in, out); CHECK(memopt_comm_run(x, &c) == MEMOPT_OK);
        c = comm_call(MEMOPT_COMM_ALL_GATHER, 7, in, out); CHECK(memopt_comm_run(x, &c) == MEMOPT_OK && memopt_comm_run(x, &c) == MEMOPT_OK);
        c = comm_call(MEMOPT_COMM_BROADCAST, 9, in, out); c.root = 2; CHECK(memopt_comm_run(x, &c) == MEMOPT_OK);
        s = memopt_comm_get_stats(x);
        CHECK(s.sent[0] == 48 && s.received[0] == 48 && s.sent[1] == 42 && s.received[1] == 42);
        CHECK(s.sent[2] == (rank == 2 ? 27u : 0u) && s.received[2] == (rank == 2 ? 0u : 9u));
        CHECK(s.calls[0] == 1 && s.calls[1] == 2 && s.calls[2] == 1);
        memopt_comm_destroy(x);
    }
}

/* ---- what is refused ---- */
static void comm_create_refusals(void) {
    memopt_comm_desc right, x; memopt_comm *out = NULL; comm_faulty f; memopt_host host;
    memset(&right, 0, sizeof right);
    memset(&host, 0, sizeof host);
    right.transport = comm_faulty_over(&f, comm_nobody(), 1, 3);
    host.allocator.alloc_fn = memopt_i_system_alloc;
    CHECK(memopt_comm_create(NULL, &out) == MEMOPT_ERR_ARGUMENT);
    x = right; REFUSES(x.error, (void)0, memopt_comm_create(&x, NULL), MEMOPT_ERR_ARGUMENT, "comm: out is NULL");
    x = right; REFUSES(x.error, x.transport.abort_fn = NULL, memopt_comm_create(&x, &out), MEMOPT_ERR_ARGUMENT, "comm: transport 2, functions: either 0 or 3");
    x = right; REFUSES(x.error, x.transport.rank = 3, memopt_comm_create(&x, &out), MEMOPT_ERR_ARGUMENT, "comm: transport.rank 3, below 3");
    x = right; REFUSES(x.error, x.transport.rank_count = 0, memopt_comm_create(&x, &out), MEMOPT_ERR_ARGUMENT, "comm: transport.rank_count 0, at least 1");
    x = right; REFUSES(x.error, x.unchecked = 2, memopt_comm_create(&x, &out), MEMOPT_ERR_ARGUMENT, "comm: unchecked 2, must be 0 or 1");
    x = right; REFUSES(x.error, x.host = &host, memopt_comm_create(&x, &out), MEMOPT_ERR_ARGUMENT, "comm: host.allocator is half a table");
    x = right; REFUSES(x.error, x.transport.rank_count = SIZE_MAX / 16, memopt_comm_create(&x, &out), MEMOPT_ERR_OVERFLOW,
                       "comm: transport.rank_count is too large for a size_t");
    x = right; x.transport = comm_nobody();
    REFUSES(x.error, x.transport.rank_count = 2, memopt_comm_create(&x, &out), MEMOPT_ERR_ARGUMENT, "comm: transport.rank_count 2, without functions at most 1");
    x.transport.rank_count = 1;
    REFUSES(x.error, x.transport.rank = 1, memopt_comm_create(&x, &out), MEMOPT_ERR_ARGUMENT, "comm: transport.rank 1, without functions at most 0");
    CHECK(out == NULL);
    x.transport.rank = 0;
    ACCEPTS(x.error, (void)0, memopt_comm_create(&x, &out));
    memopt_comm_destroy(out);
}
static memopt_status comm_began(memopt_comm *x, const memopt_comm_call *c, uint64_t *n) { return memopt_comm_begin(x, c, n); }
#define COMM_REFUSES(change, want, text) do { \
    c = right; change; \
    CHECK(comm_began(x, &c, &n) == (want) && n == 77 && f.begins == 0 && test_error_says(memopt_comm_error(x), (want), (text))); } while (0)
static void comm_refusals(void) { /* and the rank may go on */
    comm_faulty f; memopt_comm *x = comm_make(comm_faulty_over(&f, comm_nobody(), 1, 3), 1); unsigned char room[64]; uint64_t n = 77;
    memopt_comm_call right, c;
    if (!x) return;
    right = comm_call(MEMOPT_COMM_ALL_TO_ALL, 5, room, room + 32);
    CHECK(memopt_comm_begin(NULL, &right, &n) == MEMOPT_ERR_ARGUMENT && memopt_comm_wait(NULL, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_comm_begin(x, NULL, &n) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_comm_error(x), MEMOPT_ERR_ARGUMENT, "comm: call is NULL"));
    CHECK(memopt_comm_begin(x, &right, NULL) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_comm_error(x), MEMOPT_ERR_ARGUMENT, "comm: number is NULL"));
    COMM_REFUSES(c.kind = (memopt_comm_kind)test_number_of(3), MEMOPT_ERR_ARGUMENT, "comm: kind 3, is no memopt_comm_kind");
    COMM_REFUSES(c.kind = (memopt_comm_kind)test_number_of(-1), MEMOPT_ERR_ARGUMENT, "comm: kind -1, is no memopt_comm_kind");
    COMM_REFUSES(c.bytes = 0, MEMOPT_ERR_ARGUMENT, "comm: bytes 0, at least 1");
    COMM_REFUSES(c.bytes = SIZE_MAX / 2, MEMOPT_ERR_OVERFLOW, "comm: bytes of all ranks are too many for a size_t");
    COMM_REFUSES(c.send = NULL, MEMOPT_ERR_ARGUMENT, "comm: send is NULL");
    COMM_REFUSES(c.receive = NULL, MEMOPT_ERR_ARGUMENT, "comm: receive is NULL");
    COMM_REFUSES(c.receive = room + 14, MEMOPT_ERR_ARGUMENT, "comm: send overlaps receive");
    COMM_REFUSES(c.receive = room, MEMOPT_ERR_ARGUMENT, "comm: send overlaps receive");
    COMM_REFUSES((c.kind = MEMOPT_COMM_ALL_GATHER, c.send = room + 32), MEMOPT_ERR_ARGUMENT, "comm: send overlaps receive"); /* piece 0 is not its own */
    COMM_REFUSES((c.kind = MEMOPT_COMM_ALL_GATHER, c.send = room + 46), MEMOPT_ERR_ARGUMENT, "comm: send overlaps receive");
    COMM_REFUSES((c.kind = MEMOPT_COMM_BROADCAST, c.root = 3), MEMOPT_ERR_ARGUMENT, "comm: root 3, below 3");
    COMM_REFUSES((c.kind = MEMOPT_COMM_BROADCAST, c.root = 1, c.send = NULL), MEMOPT_ERR_ARGUMENT, "comm: send is NULL");
    COMM_REFUSES((c.kind = MEMOPT_COMM_BROADCAST, c.root = 1, c.send = room + 30), MEMOPT_ERR_ARGUMENT, "comm: send overlaps receive");
    COMM_REFUSES(c.stride = 4, MEMOPT_ERR_ARGUMENT, "comm: stride 4, is of an all-to-all alone, and at least 5");
    COMM_REFUSES((c.kind = MEMOPT_COMM_ALL_GATHER, c.stride = 9), MEMOPT_ERR_ARGUMENT, "comm: stride 9, is of an all-to-all alone, and at least 5");
    COMM_REFUSES(c.stride = SIZE_MAX / 2, MEMOPT_ERR_OVERFLOW, "comm: bytes of all ranks are too many for a size_t");
    COMM_REFUSES((c.stride = 14, c.receive = room + 32), MEMOPT_ERR_ARGUMENT, "comm: send overlaps receive"); /* 0 to 33 */
    c = right; c.stride = 13; CHECK(memopt_comm_run(x, &c) == MEMOPT_OK); /* 0 to 31 */
    c = right; c.receive = room + 15; CHECK(memopt_comm_run(x, &c) == MEMOPT_OK); /* side by side */
    c = right; c.root = 99; CHECK(memopt_comm_run(x, &c) == MEMOPT_OK); /* nobody reads it */
    c.kind = MEMOPT_COMM_ALL_GATHER; c.send = room + 37; CHECK(memopt_comm_run(x, &c) == MEMOPT_OK); /* its own place */
    c.kind = MEMOPT_COMM_BROADCAST; c.root = 2; c.send = NULL; CHECK(memopt_comm_run(x, &c) == MEMOPT_OK);
    c.bytes = SIZE_MAX / 2; CHECK(memopt_comm_run(x, &c) == MEMOPT_OK); /* one piece, not three */
    c.bytes = 5; c.root = 1; c.send = c.receive; CHECK(memopt_comm_run(x, &c) == MEMOPT_OK);
    memopt_comm_destroy(x);
}

/* ---- ranks as threads. Each does the same script, of calls made up by their numbers ---- */
static void comm_ranks_refusals(void) {
    memopt_ranks_desc x; memopt_ranks *out = NULL; test_faults f; size_t k; memopt_host host = test_host(&f); memopt_status s; char line[80] = ""; memopt_error why;
    (void)why; (void)line;
    memset(&x, 0, sizeof x); memset(&f, 0, sizeof f);
    CHECK(memopt_ranks_create(NULL, &out) == MEMOPT_ERR_ARGUMENT);
    REFUSES(x.error, x.rank_count = 0, memopt_ranks_create(&x, &out), MEMOPT_ERR_ARGUMENT, "ranks: rank_count 0, at least 1");
    REFUSES(x.error, x.rank_count = 1025, memopt_ranks_create(&x, &out), MEMOPT_ERR_ARGUMENT, "ranks: rank_count 1025, at most 1024");
    REFUSES(x.error, x.rank_count = 4, memopt_ranks_create(&x, NULL), MEMOPT_ERR_ARGUMENT, "ranks: out is NULL");
    x.host = &host;
    for (k = 1; k < 3; ++k) {
        f.calls = 0; f.fail_on = k; s = memopt_ranks_create(&x, &out);
#if defined(MEMOPT_I_POOL)
        CHECK(s == (k == 1 ? MEMOPT_ERR_MEMORY : MEMOPT_OK) && (k == 1) == !out);
#else
        REFUSES(x.error, (void)0, memopt_ranks_create(&x, &out), MEMOPT_ERR_UNSUPPORTED, "ranks: compiled without MEMOPT_PTHREADS");
        CHECK(s == MEMOPT_ERR_UNSUPPORTED && !out && !memopt_ranks_transport(out, 0).begin_fn);
#endif
    }
    f.fail_on = 0;
    memopt_ranks_destroy(out); out = NULL;
#if defined(MEMOPT_I_POOL)
    x.error = &why; f.fail_from = 1;
    CHECK(memopt_ranks_create(&x, &out) == MEMOPT_ERR_MEMORY && !memopt_error_text(&why, line, sizeof line, NULL));
    CHECK(!strncmp(line, "ranks: no memory for it: asked ", 31));
    x.error = NULL; f.fail_from = 0;
#endif
#if defined(COMM_FAULTY)
    for (k = 1; k < 3; ++k) {
        comm_refuse = (int)k;
        REFUSES(x.error, (void)0, (comm_refuse = (int)k, memopt_ranks_create(&x, &out)), MEMOPT_ERR_STATE, "ranks: the system has no lock left");
        CHECK(!out && !f.live_blocks);
    }
#endif
    s = memopt_ranks_create(&x, &out);
    CHECK(s == (out ? MEMOPT_OK : MEMOPT_ERR_UNSUPPORTED));
    if (out) {
        CHECK(memopt_ranks_transport(out, 3).rank == 3 && memopt_ranks_transport(out, 3).rank_count == 4);
        CHECK(!memopt_ranks_transport(out, 4).begin_fn && !memopt_ranks_transport(NULL, 0).begin_fn);
    }
    memopt_ranks_destroy(out); memopt_ranks_destroy(NULL);
    CHECK(!f.live_blocks && !f.bad_frees);
}
static void comm_no_memory(void) {
    memopt_comm_desc d; memopt_comm *x = NULL; test_faults f; memopt_host host = test_host(&f); comm_faulty faulty; char line[80]; memopt_error why;
    memset(&d, 0, sizeof d); memset(&f, 0, sizeof f);
    d.host = &host; d.transport = comm_faulty_over(&faulty, comm_nobody(), 0, 3);
    f.fail_on = 1; d.error = &why;
    CHECK(memopt_comm_create(&d, &x) == MEMOPT_ERR_MEMORY && !x);
    CHECK(!memopt_error_text(&why, line, sizeof line, NULL) && !strncmp(line, "comm: no memory for it: asked ", 30));
    CHECK(memopt_comm_create(&d, &x) == MEMOPT_OK && x && f.live_blocks == 1);
    memopt_comm_destroy(x);
    CHECK(!f.live_blocks && !f.bad_frees);
}
#if defined(MEMOPT_I_POOL)
enum { COMM_RANKS = 8, COMM_CALLS = 40, COMM_PIECE = 700 };
typedef enum comm_accident { COMM_NONE, COMM_OTHER_KIND, COMM_OTHER_BYTES, COMM_OTHER_ROOT, COMM_NO_CALL, COMM_FAILS_BEGIN,
    COMM_FAILS_WAIT, COMM_GIVES_UP, COMM_STAYS_AWAY } comm_accident;
typedef struct comm_script { /* what ranks do; the accident happens to one of them, in one call */
    memopt_ranks *ranks;
    size_t rank_count, ahead, at, who; /* ahead: calls begun before the first wait */
    int unchecked; comm_accident accident; uint64_t seed;
    memopt_status status[COMM_RANKS]; memopt_error error[COMM_RANKS]; size_t done[COMM_RANKS];
} comm_script;
/* Bytes, kind and root of a call, the same for all ranks; and byte i of what rank r sends in it. */
static memopt_comm_call comm_nth(const comm_script *s, size_t call) {
    uint64_t r = s->seed * 1000 + call; memopt_comm_call c;
    memset(&c, 0, sizeof c);
    c.kind = (memopt_comm_kind)test_below(&r, 3); c.bytes = 1 + test_below(&r, test_below(&r, 2) ? COMM_PIECE : 8);
    c.root = test_below(&r, s->rank_count);
    return c;
}
/* From piece to piece of an all-to-all: of each rank another one. */
static size_t comm_apart(const memopt_comm_call *c, size_t rank, size_t call) {
    return c->kind == MEMOPT_COMM_ALL_TO_ALL && call % 2 ? c->bytes + rank % 3 : 0;
}
static unsigned char comm_byte(size_t rank, size_t call, size_t i) { return (unsigned char)(rank * 89 + call * 41 + i * 7 + (i >> 8)); }
static int comm_right(const comm_script *s, size_t rank, size_t call, const memopt_comm_call *c) { /* what was received */
    const unsigned char *got = (const unsigned char *)c->receive; size_t from, i;
    for (from = 0; from < (c->kind == MEMOPT_COMM_BROADCAST ? 1 : s->rank_count); ++from)
        for (i = 0; i < c->bytes; ++i) {
            const size_t sender = c->kind == MEMOPT_COMM_BROADCAST ? c->root : from;
            const size_t apart = comm_apart(c, from, call), at = c->kind == MEMOPT_COMM_ALL_TO_ALL ? rank * (apart ? apart : c->bytes) + i : i;
            if (got[from * c->bytes + i] != comm_byte(sender, call, at)) return 0;
        }
    return 1;
}
static void comm_fill(size_t rank, size_t call, size_t n, unsigned char *send) {
    size_t i;
    for (i = 0; i < n; ++i) send[i] = comm_byte(rank, call, i);
}
static void comm_dawdle(size_t n) { volatile size_t i; for (i = 0; i < n; i = i + 1) {} }
static void comm_mishap(const comm_script *s, memopt_comm_call *c) {
    c->stride = 0;
    if (s->accident == COMM_OTHER_KIND && !s->unchecked && s->at % 2 && c->kind == MEMOPT_COMM_ALL_TO_ALL) return; /* it alone has no stride */
    if (s->accident == COMM_OTHER_KIND) c->kind = (memopt_comm_kind)(((int)c->kind + 1) % 3);
    if (s->accident == COMM_OTHER_BYTES) c->bytes += c->bytes < COMM_PIECE ? 1 : (size_t)-1;
    if (s->accident == COMM_OTHER_ROOT) c->root = (c->root + 1) % s->rank_count;
}
/* One rank's part: `ahead` calls are begun, and waited for in an order of its own. Its memory is gone as soon as it is done. */
static void comm_rank(void *task, size_t rank, int worker) {
    comm_script *s = (comm_script *)task; comm_faulty f; memopt_comm_desc d; memopt_comm *x = NULL; uint64_t r = s->seed + rank * 17 + 5;
    const size_t room = COMM_RANKS * (COMM_PIECE + 2); size_t first, k, i; memopt_status status = MEMOPT_OK;
    unsigned char *memory = (unsigned char *)malloc(2 * MEMOPT_COMM_CALLS * room);
    (void)worker;
    memset(&d, 0, sizeof d);
    d.transport = comm_faulty_over(&f, memopt_ranks_transport(s->ranks, rank), rank, s->rank_count); d.unchecked = s->unchecked;
    if (!memory || memopt_comm_create(&d, &x)) { memopt_i_ranks_abort(memopt_ranks_transport(s->ranks, rank).user); free(memory); return; }
    for (first = 0; !status && first < COMM_CALLS; first += s->ahead) {
        memopt_comm_call calls[MEMOPT_COMM_CALLS]; uint64_t numbers[MEMOPT_COMM_CALLS]; size_t begun = 0, order[MEMOPT_COMM_CALLS];
        for (k = 0; !status && k < s->ahead && first + k < COMM_CALLS; ++k) {
            const size_t call = first + k; const int mine = call == s->at && rank == s->who;
            unsigned char *receive = memory + 2 * k * room, *send = receive + room;
            calls[k] = comm_nth(s, call);
            if (calls[k].kind != MEMOPT_COMM_ALL_TO_ALL && call % 2) send = receive + (calls[k].kind == MEMOPT_COMM_ALL_GATHER) * rank * calls[k].bytes;
            calls[k].stride = comm_apart(&calls[k], rank, call);
            comm_fill(rank, call, (calls[k].stride ? calls[k].stride : calls[k].bytes) * (calls[k].kind == MEMOPT_COMM_ALL_TO_ALL ? s->rank_count : 1), send);
            calls[k].send = send; calls[k].receive = receive;
            if (mine && s->accident == COMM_GIVES_UP) { memopt_comm_abort(x); status = MEMOPT_ERR_STATE; break; }
            if (mine && s->accident == COMM_STAYS_AWAY) { status = MEMOPT_ERR_IO; break; }
            if (mine && s->accident == COMM_NO_CALL) continue; /* it makes the next one instead */
            if (mine) comm_mishap(s, &calls[k]);
            if (mine && s->accident <= COMM_OTHER_ROOT) calls[k].send = receive + room; /* no overlap; nobody gets to see it */
            if (mine && s->accident == COMM_FAILS_BEGIN) { f.fail_begin = f.begins + 1 + !s->unchecked; f.reason = "is broken"; f.index = rank; }
            if (mine && s->accident == COMM_FAILS_WAIT) { f.fail_wait = f.waits + 1 + !s->unchecked; f.reason = "is broken"; f.index = rank; }
            if (test_below(&r, 4) == 0) comm_dawdle(test_below(&r, 20000));
            status = memopt_comm_begin(x, &calls[k], &numbers[begun]);
            if (!status) order[begun++] = k;
        }
        for (i = begun; i > 0; --i) { /* all of them, whatever one says: until then others may read this memory */
            const size_t pick = test_below(&r, i), which = order[pick]; const memopt_status one = memopt_comm_wait(x, numbers[pick]);
            if (!one && !status && s->accident == COMM_NONE) CHECK_AT(comm_right(s, rank, first + which, &calls[which]), first + which);
            if (!one) ++s->done[rank];
            status = status ? status : one;
            order[pick] = order[i - 1]; numbers[pick] = numbers[i - 1];
        }
    }
    s->status[rank] = status; s->error[rank] = memopt_comm_error(x);
    if (s->accident == COMM_NONE) {
        memopt_comm_stats t = memopt_comm_get_stats(x); uint64_t sent = 0, received = 0;
        for (k = 0; k < COMM_CALLS; ++k) {
            const memopt_comm_call c = comm_nth(s, k); const int root = c.kind == MEMOPT_COMM_BROADCAST && c.root == rank;
            if (c.kind != MEMOPT_COMM_BROADCAST || root) sent += (s->rank_count - 1) * c.bytes;
            if (c.kind != MEMOPT_COMM_BROADCAST) received += (s->rank_count - 1) * c.bytes; else if (!root) received += c.bytes;
        }
        CHECK(t.sent[0] + t.sent[1] + t.sent[2] == sent && t.received[0] + t.received[1] + t.received[2] == received);
        CHECK(t.calls[0] + t.calls[1] + t.calls[2] == COMM_CALLS);
    }
    free(memory);
    memopt_comm_destroy(x);
}
static int comm_play(comm_script *s, uint64_t deadline) { /* 0: no threads here */
    memopt_thread_pool *pool = NULL; memopt_threads t; memopt_ranks_desc d;
    memset(&d, 0, sizeof d); memset(s->status, 0, sizeof s->status); memset(s->done, 0, sizeof s->done);
    d.rank_count = s->rank_count; d.deadline = deadline;
    CHECK(memopt_ranks_create(&d, &s->ranks) == MEMOPT_OK);
    CHECK(memopt_thread_pool_create(NULL, (int)s->rank_count, &pool) == MEMOPT_OK);
    if (!pool || !s->ranks) return 0;
    t = memopt_thread_pool_threads(pool);
    t.run_fn(t.user, s->rank_count, comm_rank, s); /* as many workers as chunks, of which none ends before all have begun */
    memopt_thread_pool_destroy(pool);
    memopt_ranks_destroy(s->ranks);
    return 1;
}
static comm_script comm_script_of(size_t rank_count, size_t ahead, uint64_t seed) {
    comm_script s;
    memset(&s, 0, sizeof s);
    s.rank_count = rank_count; s.ahead = ahead; s.seed = seed; s.at = SIZE_MAX; s.unchecked = (int)(seed & 1);
    return s;
}
static void comm_threads(void) {
    static const size_t counts[5] = { 1, 2, 3, 5, 8 }; size_t i, ahead, r;
    for (i = 0; i < 5; ++i) for (ahead = 1; ahead <= 8; ahead += ahead < 2 ? 1 : 3) {
        comm_script s = comm_script_of(counts[i], ahead, 100 * i + ahead);
        if (!comm_play(&s, 0)) return;
        for (r = 0; r < counts[i]; ++r) CHECK_AT(s.status[r] == MEMOPT_OK && s.done[r] == COMM_CALLS && s.error[r].status == MEMOPT_OK, 10 * i + r);
    }
}
/* Something goes wrong on one rank: all learn it, and who it was; what was done before stands. */
static void comm_accident_happens(comm_accident accident, size_t at, size_t who, size_t ahead, int unchecked, uint64_t deadline) {
    comm_script s = comm_script_of(4, ahead, 7 + at); size_t r; memopt_comm_call c; const uint64_t id = 1000 * (uint64_t)accident + 10 * at + who;
    s.accident = accident; s.at = at; s.who = who; s.unchecked = unchecked;
    c = comm_nth(&s, at);
    if (accident == COMM_OTHER_ROOT && c.kind != MEMOPT_COMM_BROADCAST) return;
    if (!comm_play(&s, deadline)) return;
    for (r = 0; r < 4; ++r) {
        const memopt_error *e = &s.error[r];
        CHECK_AT(s.status[r] != MEMOPT_OK && s.done[r] < COMM_CALLS, id);
        if (accident == COMM_STAYS_AWAY && r == who) continue;
        CHECK_AT(e->status != MEMOPT_OK && e->reason && e->got.count >= (accident == COMM_GIVES_UP && r == who ? 0u : 1u) && e->got.count <= at + ahead + 1, id);
        if (!unchecked && accident <= COMM_NO_CALL) /* who differs from rank 0: all say the same */
            CHECK_AT(e->index == (who ? who : 1) && e->got.count == at + 1 && !strcmp(e->reason, "asks for another call than rank 0"), id);
        if (accident == COMM_FAILS_BEGIN || accident == COMM_FAILS_WAIT)
            CHECK_AT(e->index == who && !strcmp(e->reason, r == who ? "is broken" : "has given up"), id);
        if (accident == COMM_GIVES_UP && r != who) CHECK_AT(e->index == who && !strcmp(e->reason, "has given up"), id);
        if (accident == COMM_STAYS_AWAY) CHECK_AT(e->index == who && e->status == MEMOPT_ERR_IO, id);
    }
}
static void comm_disagree(void) {
    size_t at, who; int kind;
    for (at = 0; at < COMM_CALLS - 1; at += 3) for (who = 0; who < 4; ++who) for (kind = COMM_OTHER_KIND; kind <= COMM_NO_CALL; ++kind) {
        comm_accident_happens((comm_accident)kind, at, who, 1 + at % 3, 0, 0);
        if (kind != COMM_NO_CALL && at % 2) comm_accident_happens((comm_accident)kind, at, who, 1 + at % 3, 1, 0); /* threads see it, too */
    }
}
static void comm_fail(void) { /* in every call, on every rank */
    size_t at, who;
    for (at = 0; at < COMM_CALLS; at += 1 + at / 8) for (who = 0; who < 4; ++who) {
        comm_accident_happens(COMM_FAILS_BEGIN, at, who, 1 + at % 8, (int)(at & 1), 0);
        comm_accident_happens(COMM_FAILS_WAIT, at, who, 1, (int)(at & 1), 0);
        comm_accident_happens(COMM_GIVES_UP, at, who, 1 + at % 5, (int)(who & 1), 0);
    }
}
static void comm_deadline(void) {
    comm_accident_happens(COMM_STAYS_AWAY, 0, 2, 1, 1, 700000000);
    comm_accident_happens(COMM_STAYS_AWAY, 13, 0, 2, 0, 700000000);
    comm_accident_happens(COMM_STAYS_AWAY, 39, 3, 8, 1, 700000000);
}
/* ---- who is late. One thread is all three ranks: only a wait needs the others ---- */
typedef struct comm_three { memopt_ranks *ranks; memopt_comm *comm[3]; char in[8], out[3][4][24]; } comm_three;
static void comm_three_open(comm_three *t, uint64_t deadline, int unchecked) {
    memopt_ranks_desc d; size_t r;
    memset(t, 0, sizeof *t); memset(&d, 0, sizeof d);
    d.rank_count = 3; d.deadline = deadline;
    CHECK(memopt_ranks_create(&d, &t->ranks) == MEMOPT_OK);
    for (r = 0; r < 3; ++r) t->comm[r] = comm_make(memopt_ranks_transport(t->ranks, r), unchecked);
}
static void comm_three_close(comm_three *t) {
    size_t r;
    for (r = 0; r < 3; ++r) memopt_comm_destroy(t->comm[r]);
    memopt_ranks_destroy(t->ranks);
}
static memopt_status comm_three_begin(comm_three *t, size_t rank, uint64_t number) { /* all-gather `number` */
    memopt_comm_call c = comm_call(MEMOPT_COMM_ALL_GATHER, 8, t->in, t->out[rank][number - 1]); uint64_t n = 0;
    const memopt_status s = memopt_comm_begin(t->comm[rank], &c, &n);
    CHECK(s || n == number);
    return s;
}
static void comm_three_copies(comm_three *t, size_t rank) {
    memopt_i_mutex_lock(&t->ranks->lock);
    CHECK(memopt_i_ranks_serve(&t->ranks->each[rank]) == 1);
    memopt_i_mutex_unlock(&t->ranks->lock);
}
static void comm_late(void) {
    const uint64_t soon = 1000000; comm_three t;
    comm_three_open(&t, soon, 1); /* rank 1 waits in call 1, and is not late for call 2: rank 2 is, for both */
    CHECK(!comm_three_begin(&t, 0, 1) && !comm_three_begin(&t, 1, 1) && !comm_three_begin(&t, 0, 2));
    t.ranks->each[1].waits_for = 0;
    CHECK(memopt_comm_wait(t.comm[0], 2) == MEMOPT_ERR_IO && memopt_comm_wait(t.comm[0], 1) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_comm_error(t.comm[0]), MEMOPT_ERR_IO, "comm: call 2 at rank 2, has not come before the deadline"));
    comm_three_close(&t);
    comm_three_open(&t, soon, 1); /* rank 0 waits in call 2 for rank 1, which waits in call 1 for rank 2 */
    CHECK(!comm_three_begin(&t, 0, 1) && !comm_three_begin(&t, 1, 1) && !comm_three_begin(&t, 2, 1));
    t.ranks->turns[1] = t.ranks->each[0].posts[1].turn = t.ranks->each[1].posts[1].turn = t.ranks->each[2].posts[1].turn = 5;
    CHECK(!comm_three_begin(&t, 0, 2) && !comm_three_begin(&t, 2, 2));
    comm_three_copies(&t, 0);
    t.ranks->each[1].waits_for = 0;
    CHECK(memopt_i_ranks_find_late(t.ranks, 1, 6) == 2); /* rank 0 has not begun to wait */
    CHECK(memopt_comm_wait(t.comm[0], 2) == MEMOPT_ERR_IO);
    CHECK(test_error_says(memopt_comm_error(t.comm[0]), MEMOPT_ERR_IO, "comm: call 2 at rank 2, has not come before the deadline"));
    comm_three_close(&t);
    comm_three_open(&t, soon, 1); /* all have come; rank 0 has copied, and does something else */
    CHECK(!comm_three_begin(&t, 0, 1) && !comm_three_begin(&t, 1, 1) && !comm_three_begin(&t, 2, 1));
    comm_three_copies(&t, 0);
    CHECK(memopt_comm_wait(t.comm[1], 1) == MEMOPT_ERR_IO);
    CHECK(test_error_says(memopt_comm_error(t.comm[1]), MEMOPT_ERR_IO, "comm: call 1 at rank 2, has not come before the deadline"));
    comm_three_close(&t);
    comm_three_open(&t, soon, 1); /* all have come; rank 2 copies right now, in its wait for call 2, and it takes long */
    CHECK(!comm_three_begin(&t, 0, 1) && !comm_three_begin(&t, 1, 1) && !comm_three_begin(&t, 2, 1) && !comm_three_begin(&t, 2, 2));
    comm_three_copies(&t, 0);
    t.ranks->each[2].waits_for = 1;
    CHECK(memopt_comm_wait(t.comm[1], 1) == MEMOPT_ERR_IO);
    CHECK(test_error_says(memopt_comm_error(t.comm[1]), MEMOPT_ERR_IO, "comm: call 1, is not over by the deadline"));
    comm_three_close(&t);
    comm_three_open(&t, soon, 1); /* a circle: ranks 1 and 2 wait in call 2 for rank 0, which waits in call 3 for them */
    CHECK(!comm_three_begin(&t, 0, 1) && !comm_three_begin(&t, 1, 1) && !comm_three_begin(&t, 2, 1));
    t.ranks->each[0].posts[2].turn = t.ranks->each[1].posts[1].turn = t.ranks->each[2].posts[1].turn = 1;
    t.ranks->each[0].waits_for = 2; t.ranks->each[1].waits_for = t.ranks->each[2].waits_for = 1;
    CHECK(memopt_i_ranks_find_late(t.ranks, 2, 1) == SIZE_MAX && memopt_i_ranks_find_late(t.ranks, 1, 1) == SIZE_MAX);
    comm_three_close(&t);
}
/* Checked: all begin call 1, rank 0 compares call 2, rank 1 waits for call 1. Rank 2 does something else: it moves the clock. */
static memopt_status comm_clock(void *user, uint64_t *now) { *now = *(uint64_t *)user; return MEMOPT_OK; }
static void comm_late_rank(void *task, size_t rank, int worker) {
    comm_three *t = (comm_three *)task; int there = 0, turns;
    (void)worker;
    CHECK(!comm_three_begin(t, rank, 1));
    if (rank == 0) CHECK(comm_three_begin(t, 0, 2) == MEMOPT_ERR_IO);
    if (rank == 1) CHECK(memopt_comm_wait(t->comm[1], 1) == MEMOPT_ERR_IO);
    if (rank < 2) return;
    for (turns = 0; !there && turns < 20000; ++turns) {
        memopt_i_mutex_lock(&t->ranks->lock);
        there = t->ranks->each[0].posts[MEMOPT_COMM_CALLS].turn == 2 && t->ranks->each[0].waits_for == MEMOPT_COMM_CALLS && !t->ranks->each[1].waits_for;
        if (there || turns == 19999) *(uint64_t *)t->ranks->host.clock.user = 20000000;
        memopt_i_mutex_unlock(&t->ranks->lock);
        comm_dawdle(100000);
    }
}
static void comm_late_threads(void) {
    comm_three t; memopt_thread_pool *pool = NULL; memopt_threads threads; uint64_t now = 0;
    comm_three_open(&t, 20000000, 0);
    t.ranks->host.clock.now_fn = comm_clock; t.ranks->host.clock.user = &now;
    CHECK(memopt_thread_pool_create(NULL, 3, &pool) == MEMOPT_OK);
    if (!pool) return;
    threads = memopt_thread_pool_threads(pool);
    threads.run_fn(threads.user, 3, comm_late_rank, &t);
    CHECK(test_error_says(memopt_comm_error(t.comm[0]), MEMOPT_ERR_IO, "comm: call 2 at rank 2, has not come before the deadline"));
    CHECK(test_error_says(memopt_comm_error(t.comm[1]), MEMOPT_ERR_IO, "comm: call 1 at rank 2, has not come before the deadline"));
    memopt_thread_pool_destroy(pool);
    comm_three_close(&t);
}
/* A root sends where it lies, and waits for another communicator first: the other rank has what it receives without that. */
typedef struct comm_pair { memopt_ranks *ranks[2]; char got[2]; memopt_status status[2]; } comm_pair;
static void comm_pair_rank(void *task, size_t rank, int worker) {
    comm_pair *p = (comm_pair *)task; char mine = (char)(rank ? 'b' : 'a'); memopt_comm *there = comm_make(memopt_ranks_transport(p->ranks[0], rank), 1), *back = comm_make(memopt_ranks_transport(p->ranks[1], rank), 1);
    memopt_comm_call send = comm_call(MEMOPT_COMM_BROADCAST, 1, &mine, &mine), get = comm_call(MEMOPT_COMM_BROADCAST, 1, NULL, &p->got[rank]); uint64_t number = 0; memopt_status s; int k;
    (void)worker;
    send.root = rank; get.root = 1 - rank;
    for (k = 0, s = MEMOPT_OK; k < 12 && !s; ++k) { /* more than there are slots */
        if (rank) s = memopt_comm_run(there, &get);
        if (!s) s = memopt_comm_begin(rank ? back : there, &send, &number);
        if (!s && !rank) s = memopt_comm_run(back, &get);
        if (!s) s = memopt_comm_wait(rank ? back : there, number);
    }
    p->status[rank] = s;
    if (s) { memopt_comm_abort(there); memopt_comm_abort(back); }
    memopt_comm_destroy(there); memopt_comm_destroy(back);
}
static void comm_root_goes_on(void) {
    comm_pair p; memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads threads;
    memset(&p, 0, sizeof p); memset(&d, 0, sizeof d);
    d.rank_count = 2; d.deadline = UINT64_C(3000000000);
    CHECK(memopt_ranks_create(&d, &p.ranks[0]) == MEMOPT_OK && memopt_ranks_create(&d, &p.ranks[1]) == MEMOPT_OK && memopt_thread_pool_create(NULL, 2, &pool) == MEMOPT_OK);
    if (!pool) return;
    threads = memopt_thread_pool_threads(pool);
    threads.run_fn(threads.user, 2, comm_pair_rank, &p);
    CHECK(!p.status[0] && !p.status[1] && p.got[0] == 'b' && p.got[1] == 'a');
    memopt_thread_pool_destroy(pool); memopt_ranks_destroy(p.ranks[0]); memopt_ranks_destroy(p.ranks[1]);
}
#endif

static void test_comm(void) {
    RUN(comm_alone); RUN(comm_breaks_once); RUN(comm_fails_twice); RUN(comm_counts); RUN(comm_create_refusals); RUN(comm_refusals);
    RUN(comm_ranks_refusals); RUN(comm_no_memory);
#if defined(MEMOPT_I_POOL)
    RUN(comm_threads); RUN(comm_root_goes_on); RUN(comm_disagree); RUN(comm_fail); RUN(comm_deadline); RUN(comm_late); RUN(comm_late_threads);
#endif
}
#ifndef TEST_COMBINED
int main(void) { test_comm(); return test_totals(); }
#endif
