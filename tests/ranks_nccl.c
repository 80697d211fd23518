/* ranks_nccl.c [WHAT] - examples/adapters/nccl.h over tests/simulator/nccl_mock.c, ranks as threads; see `nccl` in check.sh.
     bytes      random calls of all kinds, up to eight begun at once, waited for in any order, odd sizes up to 1 MiB + 3,
                what is sent written as late as the stream allows: every byte is looked at
     agree      ranks that ask for something else, in every call: all get a status with its name
     absent     a rank that gives up, in every call, or never opens
     away       a rank that stays away, in every call
     faults     every call of NCCL and of the runtime fails, or stays in progress; errors that come by themselves
     unchecked  the same, where ranks do not compare what they ask for
     groups     memopt_nccl_split(): communicators of some ranks, used beside each other, in different orders; and its faults
     stuck      ncclCommAbort() and ncclCommDestroy() that hang, a stream that does not move, no thread
   After every one the memory of the calls is freed at once, and nothing is left open. Without WHAT: all.
   -DRANKS_OLD=VERSION: as NCCL of that, without ncclAlltoAll(), or ncclCommSplit(). -DRANKS_REAL: with the real libraries, a rank for each device there is. */
#define MEMOPT_STATIC
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <cuda_runtime.h>
#include <nccl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef RANKS_OLD
#  undef NCCL_VERSION_CODE
#  define NCCL_VERSION_CODE RANKS_OLD
#endif
#ifndef RANKS_REAL
#  include "tests/simulator/nccl_mock.h"
static int no_thread; /* 1: of the adapter's, none can be made */
static int thread_make(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *user) {
    return __atomic_load_n(&no_thread, __ATOMIC_RELAXED) ? EAGAIN : pthread_create(t, a, fn, user);
}
#  define pthread_create thread_make
#  include "examples/adapters/nccl.h"
#  undef pthread_create
#else
#  include "examples/adapters/nccl.h"
#endif

#ifdef RANKS_OLD
enum { IS_OLD = 1 };
#else
enum { IS_OLD = 0 };
#endif
enum { MOST_RANKS = 8, MOST = 3000, CALLS = 60, LARGE = (1 << 20) + 3, SHORT = 6 };
#define LATE 0.4 /* seconds: a deadline that is to be over */
typedef enum accident {
    NOTHING, OTHER_BYTES, OTHER_KIND, OTHER_ROOT, NO_CALL, GIVES_UP, STAYS_AWAY, NEVER_OPENS, HELD, FAULT
} accident;
typedef struct script { /* of all ranks */
    int ranks, at, who, also, unchecked, calls, is_small; /* at: a call, from 0; also: a second rank */
    accident what;
    double deadline;
    ncclUniqueId id;
    int over, opened;                  /* ranks */
    memopt_status status[MOST_RANKS], closed[MOST_RANKS], open[MOST_RANKS];
    memopt_error error[MOST_RANKS];
    double took[MOST_RANKS];           /* seconds in the last call */
    int stuck[MOST_RANKS];
    memopt_nccl nccl[MOST_RANKS], groups[MOST_RANKS][3];
    cudaStream_t compute[MOST_RANKS];
    void *memory[MOST_RANKS];          /* of a rank that is stuck */
} script;
typedef struct job { script *s; int rank; void (*fn)(script *s, int rank); } job;
static int failures;

static void fail(const script *s, int rank, int line, const char *why) {
    char text[200] = "";
    (void)memopt_error_text(&s->error[rank], text, sizeof text, NULL);
    printf("rank %d of %d, line %d: %s (status %d, open %d; %s; accident %d at %d of %d%s)\n", rank, s->ranks, line, why, s->status[rank], s->open[rank],
           text, s->what, s->at, s->who, s->unchecked ? ", unchecked" : "");
    fflush(stdout);
    if (__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED) > 20) exit(1);
}
#define MUST(x) do { if (!(x)) fail(s, rank, __LINE__, #x); } while (0)
static double now(void) {
    memopt_host h; uint64_t t = 0;
    (void)memopt_host_resolve(NULL, &h);
    (void)h.clock.now_fn(h.clock.user, &t);
    return (double)t * 1e-9;
}
static unsigned draw(unsigned *state, unsigned n) { *state = *state * 1664525u + 1013904223u; return (*state >> 8) % n; }
static unsigned char byte(size_t from, size_t call, size_t i) { return (unsigned char)(from * 89 + call * 41 + i * 7 + (i >> 8)); }

/* ---- memory of the device: written on a stream, read when that is allowed ---- */
static void *take(size_t n) { void *p = NULL; if (cudaMalloc(&p, n)) exit(2); return p; }
#ifdef RANKS_REAL
static void put(void *to, const unsigned char *from, size_t n, cudaStream_t s) { if (cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, s)) exit(2); }
static void get(unsigned char *to, const void *from, size_t n) { if (cudaMemcpy(to, from, n, cudaMemcpyDeviceToHost)) exit(2); }
#else
typedef struct copy { void *to; size_t n; unsigned char bytes[8]; } copy;
static void CUDART_CB put_now(void *user) { copy *c = (copy *)user; memcpy(c->to, c->bytes, c->n); free(c); }
static void put(void *to, const unsigned char *from, size_t n, cudaStream_t s) {
    copy *c = (copy *)malloc(sizeof *c + n);
    if (!c) exit(2);
    c->to = to; c->n = n; memcpy(c->bytes, from, n);
    if (cudaLaunchHostFunc(s, put_now, c)) exit(2);
}
static void get(unsigned char *to, const void *from, size_t n) { memcpy(to, from, n); }
#endif

/* ---- the bytes ---- */
static memopt_comm_call nth(const script *s, size_t call) { /* the same for all ranks */
    static const size_t odd[6] = { 1, 7, LARGE, 8, 9, 4099 };
    unsigned state = 12345u + 977u * (unsigned)call; memopt_comm_call c;
    memset(&c, 0, sizeof c);
    (void)draw(&state, 2);
    c.kind = (memopt_comm_kind)draw(&state, 3);
    c.bytes = 1 + draw(&state, draw(&state, 2) ? MOST : 9);
    if (call < 18) { c.kind = (memopt_comm_kind)(call % 3); c.bytes = odd[call / 3]; if (s->is_small && c.bytes > MOST) c.bytes = MOST; }
    c.root = draw(&state, (unsigned)s->ranks);
    return c;
}
static size_t step_of(const memopt_comm_call *c, size_t from, size_t call) { /* from piece to piece of what a rank sends to all */
    return c->kind != MEMOPT_COMM_ALL_TO_ALL ? 0 : call % 2 ? c->bytes + from % 3 : c->bytes;
}
static int right(const script *s, int rank, size_t call, const memopt_comm_call *c, unsigned char *got) {
    size_t from, i; const int is_one = c->kind == MEMOPT_COMM_BROADCAST;
    get(got, c->receive, c->bytes * (is_one ? 1 : (size_t)s->ranks));
    for (from = 0; from < (is_one ? 1u : (size_t)s->ranks); ++from) for (i = 0; i < c->bytes; ++i)
        if (got[from * c->bytes + i] != byte(is_one ? c->root : from, call, (size_t)rank * step_of(c, from, call) * (c->kind == MEMOPT_COMM_ALL_TO_ALL) + i)) return 0;
    return 1;
}
static void bytes_of(script *s, int rank, memopt_comm *comm) {
    const size_t most = (size_t)s->ranks * (s->is_small ? 4102 : LARGE + 2), ranks = (size_t)s->ranks; unsigned state = 99u + (unsigned)rank; size_t first, k, i;
    unsigned char *host = (unsigned char *)malloc(most), *memory[8], *stale = (unsigned char *)calloc(1, most); memopt_comm_stats stats; void *never = NULL;
    if (!host || !stale) exit(2);
    for (k = 0; k < 8; ++k) memory[k] = (unsigned char *)take((k < 3 ? 2 * most : 2 * ranks * 4102));
    for (first = 0; first < (size_t)s->calls; first += k) {
        memopt_comm_call c[8]; uint64_t number[8]; size_t left = first < 18 ? 3 : first % 9 % 8 + 1, of[8];
        for (k = 0; k < left && first + k < (size_t)s->calls; ++k) {
            const size_t call = first + k, room = k < 3 ? most : ranks * 4102; unsigned char *send = memory[k] + room; size_t n;
            c[k] = nth(s, call); of[k] = k;
            if (c[k].kind == MEMOPT_COMM_ALL_GATHER && call % 2) send = memory[k] + (size_t)rank * c[k].bytes;
            if (c[k].kind == MEMOPT_COMM_BROADCAST && call % 2) send = memory[k];
            if (call % 2) c[k].stride = step_of(&c[k], (size_t)rank, call);
            n = c[k].kind == MEMOPT_COMM_ALL_TO_ALL ? step_of(&c[k], (size_t)rank, call) * ranks : c[k].bytes;
            for (i = 0; i < n; ++i) host[i] = byte((size_t)rank, call, i);
            put(memory[k], stale, c[k].bytes * (c[k].kind == MEMOPT_COMM_BROADCAST ? 1 : ranks), s->compute[rank]);
            put(send, host, n, s->compute[rank]);
            c[k].send = c[k].kind == MEMOPT_COMM_BROADCAST && (int)c[k].root != rank ? never : send; c[k].receive = memory[k];
            s->status[rank] = memopt_comm_begin(comm, &c[k], &number[k]);
            s->error[rank] = memopt_comm_error(comm);
            MUST(!s->status[rank]);
            if (s->status[rank]) goto over;
        }
        for (left = k; left; --left) {
            const size_t pick = draw(&state, (unsigned)left);
            s->status[rank] = memopt_comm_wait(comm, number[of[pick]]);
            MUST(!s->status[rank] && right(s, rank, first + of[pick], &c[of[pick]], host));
            MUST(cudaGetLastError() == cudaSuccess); /* a program that looks for its own errors finds none of the adapter's */
            of[pick] = of[left - 1];
        }
    }
    stats = memopt_comm_get_stats(comm);
    MUST(stats.calls[0] + stats.calls[1] + stats.calls[2] == (size_t)s->calls && stats.rank == (size_t)rank);
over:
    for (k = 0; k < 8; ++k) (void)cudaFree(memory[k]);
    free(host); free(stale);
}

/* ---- what goes wrong, in a run of short calls, two of them begun at a time ---- */
#ifndef RANKS_REAL
static void short_calls(script *s, int rank, memopt_comm *comm) {
    const size_t most = 64; unsigned char *memory = (unsigned char *)take(4 * most * MOST_RANKS), in[64 * MOST_RANKS]; int k;
    memset(in, rank, sizeof in);
    for (k = 0; !s->status[rank] && k < s->calls; k += 2) {
        uint64_t number[2]; int i, begun = 0; double since = now();
        for (i = 0; !s->status[rank] && i < 2; ++i) {
            const int mine = k + i == s->at && (rank == s->who || rank == s->also); memopt_comm_call c;
            memset(&c, 0, sizeof c);
            c.kind = (memopt_comm_kind)((k + i) % 3); c.bytes = 16; c.root = 0;
            c.receive = memory + (size_t)i * 2 * most * MOST_RANKS; c.send = (unsigned char *)c.receive + most * MOST_RANKS;
            put((unsigned char *)c.receive + most * MOST_RANKS, in, 16 * (size_t)s->ranks, s->compute[rank]);
            if (mine && s->what == OTHER_BYTES) c.bytes = 15;
            if (mine && s->what == OTHER_KIND) c.kind = (memopt_comm_kind)((k + i + 1) % 3);
            if (mine && s->what == OTHER_ROOT) c.root = 1;
            if (mine && s->what == NO_CALL) continue;
            if (mine && s->what == GIVES_UP) { memopt_comm_abort(comm); s->status[rank] = MEMOPT_ERR_STATE; break; }
            if (mine && s->what == STAYS_AWAY) { s->status[rank] = MEMOPT_ERR_IO; break; }
            if (mine && s->what == HELD) mock_hold(s->compute[rank]);
            if (k + i == s->at && s->what == GIVES_UP) { int naps; for (naps = 0; naps < 200; ++naps) mock_nap(); } /* it has to wait for these */
            since = now();
            s->status[rank] = memopt_comm_begin(comm, &c, &number[begun]);
            s->took[rank] = now() - since;
            begun += !s->status[rank];
        }
        for (i = 0; i < begun; ++i) { /* all of them, whatever one says */
            memopt_status one;
            since = now();
            one = memopt_comm_wait(comm, number[i]);
            if (now() - since > s->took[rank]) s->took[rank] = now() - since;
            if (!s->status[rank]) s->status[rank] = one;
        }
    }
    s->error[rank] = memopt_comm_error(comm);
    if (s->status[rank] && s->what != STAYS_AWAY) { /* nothing goes on */
        memopt_comm_call c; uint64_t number; memopt_error why; memset(&c, 0, sizeof c); c.bytes = 16; c.send = memory; c.receive = memory + most * MOST_RANKS;
        MUST(memopt_comm_begin(comm, &c, &number) == MEMOPT_ERR_STATE);
        MUST(memopt_nccl_begin(&s->nccl[rank], &c, 0, &why) == s->nccl[rank].status && s->nccl[rank].status && why.reason); /* of the first failure */
        MUST(!strcmp(why.reason, "has given up") || !strcmp(why.reason, s->error[rank].reason));
        MUST(strcmp(why.reason, "has given up") || s->error[rank].status == MEMOPT_ERR_STATE);
    }
    if (s->what == STAYS_AWAY && (rank == s->who || rank == s->also)) while (__atomic_load_n(&s->over, __ATOMIC_ACQUIRE) < s->ranks - 1 - (s->also >= 0)) mock_nap();
    if (s->nccl[rank].is_stuck) s->memory[rank] = memory; /* cudaFree() would wait for ever */
    else (void)cudaFree(memory);
    __atomic_add_fetch(&s->over, 1, __ATOMIC_ACQ_REL);
}
#endif
static void one_rank(script *s, int rank) {
    memopt_comm_desc d; memopt_comm *comm = NULL; const double since = now(); cudaStream_t compute = NULL;
    memset(&d, 0, sizeof d);
    if (cudaSetDevice(rank) || cudaStreamCreateWithFlags(&s->compute[rank], cudaStreamNonBlocking)) { s->open[rank] = MEMOPT_ERR_DEVICE; return; }
    compute = s->compute[rank];
#ifndef RANKS_REAL
    if (s->what == NEVER_OPENS && rank == s->who) { (void)cudaStreamDestroy(compute); return; }
#endif
    s->open[rank] = memopt_nccl_open(&s->nccl[rank], &s->id, rank, s->ranks, compute, s->deadline, &d.transport);
    s->took[rank] = now() - since;
    s->stuck[rank] = s->nccl[rank].is_stuck;
    __atomic_add_fetch(&s->opened, 1, __ATOMIC_ACQ_REL);
    if (s->open[rank]) {
        MUST(!d.transport.begin_fn);
        __atomic_add_fetch(&s->over, 1, __ATOMIC_ACQ_REL);
        if (!s->stuck[rank]) (void)cudaStreamDestroy(compute);
        return;
    }
    d.unchecked = s->unchecked;
    if (memopt_comm_create(&d, &comm)) exit(2);
#ifndef RANKS_REAL
    if (s->what != NOTHING || s->calls == SHORT) short_calls(s, rank, comm); else
#endif
    bytes_of(s, rank, comm);
    memopt_comm_destroy(comm);
    s->closed[rank] = memopt_nccl_close(&s->nccl[rank]);
    s->stuck[rank] = s->nccl[rank].is_stuck;
    MUST((s->closed[rank] == MEMOPT_ERR_STATE) == s->stuck[rank]);
    if (!s->stuck[rank]) (void)cudaStreamDestroy(compute);
}
/* ---- groups: odd and even ranks in reverse order; pairs, without the last rank; all of them in an order of threes ---- */
enum { GROUPS = 3, ROUNDS = 4, PIECE = 24 };
static int color_of(const script *s, int group, int rank) { return group == 0 ? rank % 2 : group == 2 ? 0 : rank == s->ranks - 1 ? -5 : rank / 2; }
static int key_of(int group, int rank) { return group == 0 ? -rank : group == 1 ? 7 : rank % 3; }
static size_t members_of(const script *s, int group, int rank, int *members) { /* in their order */
    size_t n = 0, i; int key, r;
    for (key = -s->ranks; key < 8; ++key) for (r = 0; r < s->ranks; ++r)
        if (key_of(group, r) == key && color_of(s, group, r) == color_of(s, group, rank)) members[n++] = r;
    for (i = 0; i < n && members[i] != rank; ++i) {}
    members[n] = (int)i; /* behind them: where this one is */
    return n;
}
static memopt_status open_groups(script *s, int rank, memopt_transport *t) {
    int members[MOST_RANKS + 1], g;
    for (g = 0; g < GROUPS; ++g) {
        const size_t n = members_of(s, g, rank, members);
        const memopt_status status = memopt_nccl_split(&s->groups[rank][g], &s->nccl[rank], color_of(s, g, rank), key_of(g, rank), s->compute[rank], s->deadline, &t[g]);
        MUST(!s->groups[rank][g].is_stuck);
        if (status || color_of(s, g, rank) < 0) { MUST(!t[g].begin_fn && !t[g].rank_count && !s->groups[rank][g].is_open); if (status) return status; }
        else MUST(t[g].rank == (size_t)members[n] && t[g].rank_count == n);
    }
    return MEMOPT_OK;
}
/* A call in each group, begun in this or that order (at first, when they connect, in the same), and waited for in another.
   Checked, always in the same: a rank compares before it begins. */
static memopt_status round_of(script *s, int rank, int round, memopt_comm *const *comms, unsigned char *memory) {
    uint64_t numbers[GROUPS]; unsigned char in[PIECE], got[PIECE * MOST_RANKS]; int i, members[MOST_RANKS + 1]; size_t k, m;
    for (i = 0; i < GROUPS; ++i) {
        const int g = s->unchecked && round && (rank + round) % 2 ? GROUPS - 1 - i : i; unsigned char *to = memory + g * PIECE * (MOST_RANKS + 1); memopt_comm_call c;
        memopt_status status; const double since = now();
        if (!comms[g]) continue;
#ifndef RANKS_REAL
        if (rank == s->who && round == 2 && i == s->at && s->what == GIVES_UP) { memopt_comm_abort(comms[g]); return MEMOPT_ERR_STATE; }
        if (rank == s->who && round == 2 && i == s->at && s->what == STAYS_AWAY) {
            while (__atomic_load_n(&s->over, __ATOMIC_ACQUIRE) < s->ranks - 1) mock_nap();
            return MEMOPT_ERR_IO;
        }
#endif
        memset(in, 16 * rank + 4 * g + round, sizeof in); memset(&c, 0, sizeof c);
        put(to, in, PIECE, s->compute[rank]);
        c.kind = MEMOPT_COMM_ALL_GATHER; c.bytes = PIECE; c.send = to; c.receive = to + PIECE;
        status = memopt_comm_begin(comms[g], &c, &numbers[g]);
        if (now() - since > s->took[rank]) s->took[rank] = now() - since;
        if (status) { s->error[rank] = memopt_comm_error(comms[g]); return status; }
    }
    for (i = 0; i < GROUPS; ++i) {
        const int g = (i + round) % GROUPS; const unsigned char *to = memory + g * PIECE * (MOST_RANKS + 1); const size_t n = members_of(s, g, rank, members);
        memopt_status status; const double since = now();
        if (!comms[g]) continue;
        status = memopt_comm_wait(comms[g], numbers[g]);
        if (now() - since > s->took[rank]) s->took[rank] = now() - since;
        if (status) { s->error[rank] = memopt_comm_error(comms[g]); return status; }
        get(got, to + PIECE, PIECE * n);
        for (k = 0; k < n; ++k) for (m = 0; m < PIECE; ++m) MUST(got[k * PIECE + m] == 16 * members[k] + 4 * g + round);
    }
    return MEMOPT_OK;
}
static void grouped(script *s, int rank) {
    memopt_transport t[GROUPS + 1]; memopt_comm *comms[GROUPS + 1] = { NULL, NULL, NULL, NULL }; memopt_comm_desc d; int g, round; const double since = now();
    unsigned char *memory;
    memset(&d, 0, sizeof d); d.unchecked = s->unchecked;
    if (cudaSetDevice(rank) || cudaStreamCreateWithFlags(&s->compute[rank], cudaStreamNonBlocking)) { s->open[rank] = MEMOPT_ERR_DEVICE; return; }
    memory = (unsigned char *)take((size_t)GROUPS * PIECE * (MOST_RANKS + 1));
    s->open[rank] = memopt_nccl_open(&s->nccl[rank], &s->id, rank, s->ranks, s->compute[rank], s->deadline, &t[GROUPS]);
    if (!s->open[rank]) s->status[rank] = open_groups(s, rank, t);
    s->took[rank] = now() - since;
    for (g = 0; !s->open[rank] && g <= GROUPS; ++g) if ((g == GROUPS || s->groups[rank][g].is_open)) { d.transport = t[g]; if (memopt_comm_create(&d, &comms[g])) exit(2); }
    for (round = 0; !s->open[rank] && !s->status[rank] && round < ROUNDS; ++round) { s->status[rank] = round_of(s, rank, round, comms, memory); if (rank == 1) ++s->opened; }
    __atomic_add_fetch(&s->over, 1, __ATOMIC_ACQ_REL);
    if (s->status[rank] && comms[GROUPS]) memopt_comm_abort(comms[GROUPS]); /* and all others with it: nobody is to wait there */
    (void)cudaFree(memory);
    for (g = 0; g <= GROUPS; ++g) {
        memopt_nccl *m = g < GROUPS ? &s->groups[rank][g] : &s->nccl[rank];
        memopt_comm_destroy(comms[g]);
        s->closed[rank] = memopt_nccl_close(m) || s->closed[rank] ? MEMOPT_ERR_STATE : MEMOPT_OK;
    }
    MUST(!s->closed[rank]);
    (void)cudaStreamDestroy(s->compute[rank]);
}
static void *thread_of(void *user) { job *j = (job *)user; j->fn(j->s, j->rank); return NULL; }
static void play_by(script *s, void (*fn)(script *s, int rank)) {
    pthread_t threads[MOST_RANKS]; job jobs[MOST_RANKS]; int r;
    if (ncclGetUniqueId(&s->id)) exit(2);
    for (r = 0; r < s->ranks; ++r) {
        jobs[r].s = s; jobs[r].rank = r; jobs[r].fn = fn;
        if (pthread_create(&threads[r], NULL, thread_of, &jobs[r])) exit(2);
    }
    for (r = 0; r < s->ranks; ++r) (void)pthread_join(threads[r], NULL);
}
static void play(script *s) { play_by(s, one_rank); }
static void script_of(script *s, int ranks, int unchecked, double deadline) {
    memset(s, 0, sizeof *s);
    s->ranks = ranks; s->unchecked = unchecked; s->deadline = deadline; s->calls = CALLS; s->at = s->who = s->also = -1;
}
#ifdef RANKS_REAL
int main(void) {
    static script room; script *const s = &room; int devices = 0, r; memopt_transport t;
    if (cudaGetDeviceCount(&devices) || !devices) {
        const memopt_status status = memopt_nccl_open(&s->nccl[0], &s->id, 0, 1, NULL, 10, &t);
        printf("no device here; memopt_nccl_open: %s\n", memopt_status_text(status));
        return status != MEMOPT_ERR_DEVICE && status != MEMOPT_ERR_IO;
    }
    for (r = 0; r < 3; ++r) { script_of(s, devices < MOST_RANKS ? devices : MOST_RANKS, r, 60); play_by(s, r < 2 ? one_rank : grouped); }
    printf("%d devices: %d failures\n", devices, failures);
    return failures != 0;
}
#else
static void clean(script *s, int findings) { /* what hangs goes on, and is closed after all */
    int rank;
    mock_release();
    for (rank = 0; rank < s->ranks; ++rank) if (s->stuck[rank]) {
        memopt_nccl *m = &s->nccl[rank];
        while (m->end_fn && !__atomic_load_n(&no_thread, __ATOMIC_RELAXED) && !__atomic_load_n(&m->is_ended, __ATOMIC_ACQUIRE)) mock_nap();
        (void)cudaSetDevice(rank);
        if (m->end_fn && !m->is_ended) (void)m->end_fn(m->comm);
        while (cudaStreamQuery(m->stream) == cudaErrorNotReady) mock_nap();
        m->is_stuck = 0;
        (void)memopt_nccl_close(m);
        (void)cudaStreamDestroy(s->compute[rank]);
        (void)cudaFree(s->memory[rank]);
        (void)cudaSetDevice(0);
    }
    rank = 0;
    MUST(mock_findings() == findings && mock_live() == 0);
}
static void all_is_well(script *s) {
    int rank;
    for (rank = 0; rank < s->ranks; ++rank) MUST(!s->open[rank] && !s->status[rank] && !s->closed[rank] && mock_aborts(rank) == 0);
    rank = 0; MUST(mock_mismatches() == 0);
    clean(s, 0);
}
static void bytes(void) {
    static const int counts[5] = { 1, 2, 3, 4, 8 }; static script room; script *const s = &room; int i, k;
    for (i = 0; i < 5; ++i) for (k = 0; k < 3; ++k) {
        mock_begin(); mock_delay(k);
        script_of(s, counts[i], k == 1, 60); s->is_small = k != 0 || (IS_OLD && counts[i] > 4); /* it runs under the thread sanitizer */
        play(s); all_is_well(s);
    }
}
/* All ranks: the same reason, within the deadline and two seconds. index -1: nobody; -2: not looked at; number 0: likewise. */
static void learns(script *s, int rank, const char *reason, int index, int number) {
    const memopt_error *e = &s->error[rank];
    if (s->open[rank]) { MUST(index == -2 && s->took[rank] < s->deadline + 2); return; } /* while it opened another was through, and gone */
    MUST(s->status[rank] != MEMOPT_OK && e->status == s->status[rank] && e->reason != NULL);
    MUST(!e->reason || !reason || !strcmp(e->reason, reason));
    MUST(index == -2 || (index < 0 ? !e->place : e->place && e->index == (size_t)index));
    MUST(!number || e->got.count == (size_t)number);
    MUST(s->took[rank] < s->deadline + 2);
}
static void agree(void) {
    static script room; script *const s = &room; int at, who, rank; accident what; const int ranks = 3;
    for (what = OTHER_BYTES; what <= NO_CALL; what = (accident)(what + 1)) for (at = 0; at < SHORT; ++at) for (who = 0; who < ranks; ++who) {
        if ((what == OTHER_ROOT && at % 3 != 2) || (what == NO_CALL && at == SHORT - 1)) continue;
        mock_begin(); mock_delay(at % 2);
        script_of(s, ranks, 0, 20); s->what = what; s->at = at; s->who = who; s->calls = SHORT;
        play(s);
        for (rank = 0; rank < ranks; ++rank) {
            learns(s, rank, "asks for another call than rank 0", who ? who : 1, at + 1);
            MUST(s->closed[rank] == MEMOPT_OK && mock_aborts(rank) == 0 && s->took[rank] < 10);
        }
        rank = 0; MUST(mock_mismatches() == 0);
        clean(s, 0);
    }
}
static void disagree_unchecked(void) { /* NCCL's own way of going wrong: until the deadline */
    static script room; script *const s = &room; int rank; const int ranks = 3;
    mock_begin(); script_of(s, ranks, 1, LATE); s->what = OTHER_BYTES; s->at = 3; s->who = 1; s->calls = SHORT;
    play(s);
    for (rank = 0; rank < ranks; ++rank) learns(s, rank, NULL, -1, 0);
    rank = 0; MUST(mock_mismatches() > 0);
    clean(s, 0);
}
static void absent_at(accident what, int ranks, int at, int who, int unchecked, int remote) {
    static script room; script *const s = &room; int rank;
    const int says = what == GIVES_UP && !unchecked && at > 0, connects = (at + who) % 3; /* says: in the next comparison */
    mock_begin(); mock_remote_errors(remote); mock_delay(connects);
    script_of(s, ranks, unchecked, says || (remote && what == GIVES_UP) ? 20 : LATE);
    s->what = what; s->at = at; s->who = who; s->calls = SHORT;
    play(s);
    for (rank = 0; rank < ranks; ++rank) {
        if (rank == who) { if (what == GIVES_UP) learns(s, rank, "was given up", -2, at); continue; }
        if (says) { learns(s, rank, "has given up", who, at + 1); MUST(s->took[rank] < 10); }
        else if (remote) learns(s, rank, NULL, -2, 0);
        else if ((!unchecked || ranks == 2) && (at || !connects)) learns(s, rank, "has not come before the deadline", who, at + 1);
        else learns(s, rank, "not all ranks have come before the deadline", -1, 0);
        if (what == GIVES_UP && remote) MUST(s->took[rank] < 10);
        if (remote && !says && s->error[rank].place) MUST(s->error[rank].index == (size_t)who); /* nobody else is ever blamed */
        MUST(s->closed[rank] == MEMOPT_OK && mock_aborts(rank) == (says ? 0 : 1));
    }
    clean(s, 0);
}
static void absent(void) {
    static script room; script *const s = &room; int at, rank;
    for (at = 0; at < SHORT; ++at) {
        absent_at(GIVES_UP, 3, at, at % 3, 0, 0); absent_at(GIVES_UP, 2, at, 1, 0, 1); absent_at(GIVES_UP, 4, at, 3, 1, 1);
    }
    absent_at(GIVES_UP, 3, 2, 0, 1, 0);
    for (at = 0; at < 2; ++at) { /* that it was opened nobody knows but itself */
        mock_begin(); mock_delay(at);
        script_of(s, 3, 0, LATE); s->what = NEVER_OPENS; s->who = 2 * at; s->calls = SHORT;
        play(s);
        for (rank = 0; rank < 3; ++rank) MUST(rank == s->who || (s->open[rank] == MEMOPT_ERR_IO && s->took[rank] < s->deadline + 2));
        clean(s, 0);
    }
    mock_begin(); script_of(s, 4, 0, LATE); s->what = STAYS_AWAY; s->at = 2; s->who = 1; s->also = 3; s->calls = SHORT;
    play(s); /* two: nobody is named */
    for (rank = 0; rank < 4; rank += 2) learns(s, rank, "not all ranks have come before the deadline", -1, 3);
    clean(s, 0);
}
static void away(void) {
    int at;
    for (at = 0; at < SHORT; ++at) {
        absent_at(STAYS_AWAY, 3, at, (at + 1) % 3, 0, 0); absent_at(STAYS_AWAY, 8, at, 5, 0, 1); absent_at(STAYS_AWAY, 2, at, 0, 1, 0);
    }
}
/* A fault, of rank 1; what the others get to see is a status within the deadline. Returns whether it was hit. */
static int faulty(mock_fault fault, unsigned long n, ncclResult_t result, int unchecked, int remote, int ranks) {
    static script room; script *const s = &room; int rank, hit = 0, index; const int opens = n == 1 || (fault == MOCK_CUDA && n <= 14);
    const double deadline = remote && !opens && fault != MOCK_PROGRESS ? 20 : LATE; /* nobody knows of a rank that has not opened */
    mock_begin(); mock_fail(fault, 1, n, result); mock_remote_errors(remote); mock_delay((int)n % 3);
    script_of(s, ranks, unchecked, deadline); s->what = FAULT; s->at = (int)n; s->who = 1; s->calls = SHORT;
    play(s);
    rank = 1;
    hit = s->open[1] || s->status[1] || mock_aborts(1);
    index = result == ncclInternalError || fault == MOCK_CUDA || fault == MOCK_QUERY ? 1 : -2;
    if (s->status[1]) {
        learns(s, 1, fault == MOCK_CUDA || fault == MOCK_QUERY ? "unknown error" : fault == MOCK_PROGRESS ? "not all ranks have come before the deadline"
                      : ncclGetErrorString(result), index, 0);
        MUST(s->status[1] == (fault == MOCK_CUDA || fault == MOCK_QUERY ? MEMOPT_ERR_DEVICE : MEMOPT_ERR_IO));
        if (index == -2) MUST(!s->error[1].place || s->error[1].index != 1);
    }
    for (rank = 0; hit && rank < ranks; ++rank) {
        if (s->open[1] || (s->status[1] && s->error[1].got.count < SHORT - 1)) MUST(s->open[rank] || s->status[rank]); /* else nothing is begun after it */
        MUST(s->took[rank] < deadline + 2 && !s->stuck[rank]);
        if (rank != 1 && s->status[rank] && s->error[rank].place) MUST(s->error[rank].index == 1 && !remote); /* by its absence */
        if (remote) MUST(s->took[rank] < 10);
    }
    clean(s, 0);
    return hit;
}
static void faults_of(int k) {
    static script room; script *const s = &room; unsigned long calls, cuda, n, hits = 0; const int rank = 0;
    mock_begin(); script_of(s, 2, k, 20); s->calls = SHORT; play(s); all_is_well(s); /* how many there are */
    calls = mock_calls(1, 0); cuda = mock_calls(1, 1);
    for (n = 1; n <= calls; ++n) {
        MUST(faulty(MOCK_CALL, n, n % 2 ? ncclSystemError : ncclInternalError, k, 1, 2));
        hits += (unsigned long)faulty(MOCK_ASYNC, n, n % 3 ? ncclRemoteError : ncclInternalError, k, 1, 3);
        hits += (unsigned long)faulty(MOCK_PROGRESS, n, ncclInProgress, k, 0, 2);
    }
    for (n = 1; n <= cuda; ++n) MUST(faulty(MOCK_CUDA, n, ncclSuccess, k, 1, 2)); /* the first makes the test's own stream */
    for (n = 1; n <= 12; ++n) MUST(faulty(MOCK_QUERY, n, ncclSuccess, k, 1, 3) || n > SHORT);
    MUST(hits > calls);
}
static void faults(void) {
    static script room; const script *const s = &room; const int rank = 0;
    faults_of(0);
    MUST(faulty(MOCK_CALL, 7, ncclRemoteError, 0, 0, 4)); /* nobody tells the others */
    MUST(faulty(MOCK_ASYNC, 14, ncclRemoteError, 0, 0, 4));
    MUST(faulty(MOCK_PROGRESS, 17, ncclInProgress, 0, 0, 8)); /* the end of the first group */
}
static void faults_unchecked(void) { faults_of(1); }
/* A fault of rank 1 while groups are opened, used and closed. */
static int faulty_groups(mock_fault fault, unsigned long n, ncclResult_t result) {
    static script room; script *const s = &room; int rank, hit; const int opens = n <= (fault == MOCK_CUDA ? 14 : 2);
    mock_begin(); mock_fail(fault, 1, n, result); mock_remote_errors(1); mock_delay((int)n % 3);
    script_of(s, 3, 1, opens || fault == MOCK_PROGRESS ? LATE : 20); s->what = FAULT; s->at = (int)n; s->who = 1;
    play_by(s, grouped);
    hit = s->open[1] || s->status[1];
    for (rank = 0; rank < 3; ++rank) {
        if (hit && s->opened < ROUNDS) MUST(s->open[rank] || s->status[rank]);
        MUST(s->took[rank] < (opens || fault == MOCK_PROGRESS ? LATE * 3 + 2 : 10));
    }
    clean(s, 0);
    return hit;
}
static void groups(void) {
    static script room; script *const s = &room; memopt_transport t; int ranks, k, rank, hits = 0; unsigned long n, calls, cuda;
    for (ranks = 1; ranks <= MOST_RANKS; ++ranks) for (k = 0; k < 3; ++k) {
        mock_begin(); mock_delay(k); script_of(s, ranks, 1, 60);
        play_by(s, grouped); all_is_well(s);
    }
    mock_begin(); script_of(s, 3, 1, 60); play_by(s, grouped); all_is_well(s);
    calls = mock_calls(1, 0); cuda = mock_calls(1, 1);
    for (n = 1; n <= calls; ++n) {
        hits += faulty_groups(MOCK_CALL, n, n % 2 ? ncclSystemError : ncclInternalError);
        hits += faulty_groups(MOCK_ASYNC, n, ncclInternalError);
        if (n % 3 == 1) hits += faulty_groups(MOCK_PROGRESS, n, ncclInProgress);
    }
    rank = 0;
    MUST(hits > (int)calls + 10);
    for (n = 1; n <= cuda; ++n) MUST(faulty_groups(MOCK_CUDA, n, ncclSuccess) || n > cuda - GROUPS - 1); /* the last close */
    for (k = 0; k < 5 * GROUPS; ++k) { /* checked: a rank that gives up in one says so in all, and nobody waits for it; or it is missed once */
        const int away = k % 2; script_of(s, 5, 0, away ? LATE : 20); s->what = away ? STAYS_AWAY : GIVES_UP; s->who = k % 4; s->at = k / 5;
        mock_begin(); mock_delay(k % 3);
        play_by(s, grouped);
        for (rank = 0; rank < 5; ++rank) MUST(s->status[rank] && s->took[rank] < (away ? LATE + 3 : 10) && (away || mock_aborts(rank) <= 1)); /* the parent, of which no call is known */
        clean(s, 0);
    }
    rank = 0;
    mock_begin(); script_of(s, 1, 1, 60); /* what is no parent */
    MUST(memopt_nccl_split(&s->groups[0][0], &s->nccl[0], 0, 0, NULL, 1, &t) == MEMOPT_ERR_ARGUMENT && !t.begin_fn);
    s->nccl[0].is_open = 1;
    MUST(memopt_nccl_split(&s->groups[0][0], &s->nccl[0], 0, 0, NULL, 0, &t) == MEMOPT_ERR_ARGUMENT);
    s->nccl[0].is_open = 0; s->nccl[0].status = MEMOPT_ERR_IO;
    MUST(memopt_nccl_split(&s->groups[0][0], &s->nccl[0], 0, 0, NULL, 1, &t) == MEMOPT_ERR_IO && !t.begin_fn && !mock_live());
}
static void stuck_with(mock_fault fault, accident what, int at, int threads_fail) {
    static script room; script *const s = &room; int rank, ranks = 3;
    mock_begin();
    if (what != HELD) { mock_fail(fault, 0, 1, ncclSuccess); mock_fail(fault, 1, 1, ncclSuccess); }
    __atomic_store_n(&no_thread, threads_fail, __ATOMIC_RELAXED);
    script_of(s, ranks, 0, what == NOTHING ? 20 : LATE); s->what = what; s->at = at; s->who = 2; s->calls = SHORT;
    play(s);
    for (rank = 0; rank < ranks; ++rank) {
        const int hangs = what == HELD ? rank == 2 : rank < 2 || threads_fail;
        if (what != NOTHING && (rank != 2 || what == HELD)) learns(s, rank, NULL, -2, 0);
        if (what == HELD && s->error[rank].place) MUST(s->error[rank].index == 2); /* who holds up itself blames nobody else */
        if (what == HELD && rank == 2) MUST(!s->error[rank].place);
        if (what == NOTHING) MUST(!s->status[rank]);
        MUST(s->stuck[rank] == hangs && (s->closed[rank] == MEMOPT_ERR_STATE) == hangs);
    }
    clean(s, 0);
    __atomic_store_n(&no_thread, 0, __ATOMIC_RELAXED);
}
static void stuck(void) {
    int at;
    for (at = 0; at < SHORT; at += 2) { stuck_with(MOCK_ABORT, STAYS_AWAY, at, 0); stuck_with(MOCK_ABORT, HELD, at, 0); }
    stuck_with(MOCK_DESTROY, NOTHING, -1, 0);
    stuck_with(MOCK_ABORT, STAYS_AWAY, 3, 1);
}
static void refusals(void) {
    static script room; script *const s = &room; memopt_transport t; const int rank = 0; double none = 0;
    mock_begin(); script_of(s, 1, 0, 1);
    MUST(memopt_nccl_open(&s->nccl[0], &s->id, 0, 1, NULL, 0, &t) == MEMOPT_ERR_ARGUMENT);
    MUST(memopt_nccl_open(&s->nccl[0], &s->id, 0, 1, NULL, none / none, &t) == MEMOPT_ERR_ARGUMENT);
    MUST(memopt_nccl_open(&s->nccl[0], &s->id, 2, 2, NULL, 1, &t) == MEMOPT_ERR_ARGUMENT);
    MUST(memopt_nccl_open(&s->nccl[0], &s->id, -1, 2, NULL, 1, &t) == MEMOPT_ERR_ARGUMENT && !t.begin_fn && !mock_live());
#if NCCL_VERSION_CODE < 21800
    s->nccl[0].is_open = 1;
    MUST(memopt_nccl_split(&s->groups[0][0], &s->nccl[0], 0, 0, NULL, 1, &t) == MEMOPT_ERR_UNSUPPORTED && !t.begin_fn && !mock_live());
#endif
}
int main(int argc, char **argv) {
    static const struct { const char *name; void (*fn)(void); } all[10] = {
        { "bytes", bytes }, { "agree", agree }, { "agree", disagree_unchecked }, { "absent", absent }, { "away", away }, 
        { "faults", faults }, { "unchecked", faults_unchecked }, { "groups", groups }, { "stuck", stuck }, { "refusals", refusals } };
    int i;
    for (i = 0; i < 10; ++i) if (argc < 2 || !strcmp(argv[1], all[i].name)) {
        const double since = now();
        all[i].fn();
        printf("%s: %d failures, %.1f s\n", all[i].name, failures, now() - since);
        fflush(stdout);
    }
    return failures != 0;
}
#endif
