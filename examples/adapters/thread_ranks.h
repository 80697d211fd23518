/* thread_ranks.h - memopt's ranks as threads of one process, which are yours: for tests, and for machines where each
   rank has its own workers. Copy it.

   DO THIS   #include memopt.h, then this file
                 memopt_ranks_create(&ranks_desc, &ranks);
                 desc.transport = memopt_ranks_transport(ranks, rank);            (each rank, of its own comm)
                 memopt_comm_create(&desc, &comm);
                 ...
                 memopt_comm_destroy(comm);
                 memopt_ranks_destroy(ranks);                                     (when no rank calls any more)
   WHAT      moves bytes, and adds nothing. A rank copies what it receives, in its wait.
   HOW       A rank posts its call in its slot, which is free again when all ranks have copied what they receive from
             it. In a wait a rank serves all its calls to which all ranks have come; otherwise two ranks that wait in
             different orders would deadlock. So a rank in a wait is never the late one. A rank leaves a broken wait
             only when nobody copies: its memory is its own then.
   FAILURE   A rank that gives up or does not come before the deadline breaks all: the calls of all ranks return a
             status that names it, and nobody reads memory of others any more.
   THREADS   A rank is for one thread at a time. Needs POSIX threads (-pthread) or Windows. */
#ifndef MEMOPT_THREAD_RANKS_H
#define MEMOPT_THREAD_RANKS_H
#include <string.h>
#if defined(_WIN32)
#  if !defined(NOMINMAX)
#    define NOMINMAX
#  endif
#  include <windows.h>
#else
#  include <pthread.h>
#  include <sys/time.h>
#endif
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct memopt_ranks_desc { /* zero it, then set what you need */
    size_t             rank_count; /* 1 to 1024 */
    uint64_t           deadline;   /* nanoseconds that a wait may take; 0 = for ever */
    const memopt_host *host;       /* its allocator and clock; NULL = the C library's. Used by all ranks, in turns */
    memopt_error      *error;      /* NULL, or filled in when memopt_ranks_create() fails */
} memopt_ranks_desc;

typedef struct memopt_ranks memopt_ranks;

/* ---- locks ---- */

#if defined(_WIN32)
typedef SRWLOCK memopt_ranks_mutex;
typedef CONDITION_VARIABLE memopt_ranks_condition;

static inline int memopt_ranks_mutex_open(memopt_ranks_mutex *m) {
    InitializeSRWLock(m);
    return 0;
}

static inline int memopt_ranks_condition_open(memopt_ranks_condition *c) {
    InitializeConditionVariable(c);
    return 0;
}

static inline void memopt_ranks_mutex_close(memopt_ranks_mutex *m) { (void)m; }
static inline void memopt_ranks_condition_close(memopt_ranks_condition *c) { (void)c; }
static inline void memopt_ranks_mutex_lock(memopt_ranks_mutex *m) { AcquireSRWLockExclusive(m); }
static inline void memopt_ranks_mutex_unlock(memopt_ranks_mutex *m) { ReleaseSRWLockExclusive(m); }
static inline void memopt_ranks_condition_wake(memopt_ranks_condition *c) { WakeAllConditionVariable(c); }

static inline void memopt_ranks_condition_wait(memopt_ranks_condition *c, memopt_ranks_mutex *m) {
    (void)SleepConditionVariableSRW(c, m, INFINITE, 0);
}

static inline void memopt_ranks_condition_wait_for(memopt_ranks_condition *c, memopt_ranks_mutex *m,
                                                   uint64_t nanoseconds) {
    (void)SleepConditionVariableSRW(c, m, nanoseconds < 1000000000 ? (DWORD)(nanoseconds / 1000000 + 1) : 1000, 0);
}
#else
typedef pthread_mutex_t memopt_ranks_mutex;
typedef pthread_cond_t memopt_ranks_condition;

static inline int memopt_ranks_mutex_open(memopt_ranks_mutex *m) { return pthread_mutex_init(m, NULL); }
static inline int memopt_ranks_condition_open(memopt_ranks_condition *c) { return pthread_cond_init(c, NULL); }
static inline void memopt_ranks_mutex_close(memopt_ranks_mutex *m) { pthread_mutex_destroy(m); }
static inline void memopt_ranks_condition_close(memopt_ranks_condition *c) { pthread_cond_destroy(c); }
static inline void memopt_ranks_mutex_lock(memopt_ranks_mutex *m) { pthread_mutex_lock(m); }
static inline void memopt_ranks_mutex_unlock(memopt_ranks_mutex *m) { pthread_mutex_unlock(m); }
static inline void memopt_ranks_condition_wake(memopt_ranks_condition *c) { pthread_cond_broadcast(c); }

static inline void memopt_ranks_condition_wait(memopt_ranks_condition *c, memopt_ranks_mutex *m) {
    pthread_cond_wait(c, m);
}

/* So long at most, and at most a second: then the caller looks at a clock that nobody sets. */
static inline void memopt_ranks_condition_wait_for(memopt_ranks_condition *c, memopt_ranks_mutex *m,
                                                   uint64_t nanoseconds) {
    const uint64_t second = 1000000000;
    uint64_t until = nanoseconds < second ? nanoseconds : second;
    struct timeval now;
    struct timespec time;

    if (gettimeofday(&now, NULL)) return;
    until += (uint64_t)now.tv_usec * 1000;
    time.tv_sec = now.tv_sec + (time_t)(until / second);
    time.tv_nsec = (long)(until % second);
    (void)pthread_cond_timedwait(c, m, &time);
}
#endif

/* ---- calls ---- */

typedef struct memopt_ranks_post { /* what a rank has begun in a slot; all read it, under the lock */
    uint64_t turn; /* how often the slot has been used, from 1; 0: never */
    int is_open;   /* this rank has not waited for it */
    int is_copied; /* this rank has what it receives */
    memopt_comm_call call;
} memopt_ranks_post;

typedef struct memopt_rank {
    memopt_ranks *ranks;
    size_t rank;
    size_t waits_for; /* a slot; MEMOPT_COMM_SLOTS: it is in no wait */
    memopt_ranks_post posts[MEMOPT_COMM_SLOTS];
} memopt_rank;

struct memopt_ranks {
    memopt_host host;
    size_t bytes, rank_count, copying; /* copying: ranks that read others' memory right now */
    uint64_t deadline;
    memopt_ranks_mutex lock;
    memopt_ranks_condition changed;
    memopt_status broken; /* MEMOPT_OK: not */
    const char *reason;
    size_t culprit;
    size_t copied[MEMOPT_COMM_SLOTS];   /* ranks that have what they receive in this turn */
    uint64_t turns[MEMOPT_COMM_SLOTS];  /* that are over */
    memopt_rank *each;
};

static inline void memopt_ranks_break(memopt_ranks *x, memopt_status status, const char *reason, size_t culprit) {
    if (x->broken) return;
    x->broken = status;
    x->reason = reason;
    x->culprit = culprit;
    memopt_ranks_condition_wake(&x->changed);
}

static inline memopt_status memopt_ranks_reason(const memopt_ranks *x, memopt_error *error) {
    error->reason = x->reason;
    error->index = x->culprit;
    return x->broken;
}

/* The first rank that has not come to this turn of a slot; rank_count: all are there. */
static inline size_t memopt_ranks_missing(const memopt_ranks *x, size_t slot, uint64_t turn) {
    size_t r;

    for (r = 0; r < x->rank_count && x->each[r].posts[slot].turn == turn; ++r) {}
    return r;
}

/* Who holds up a turn of a slot: the first rank in no wait that has not come to it or, where all have come, has not
   copied. If all of those wait, follow one of them to what it waits for. SIZE_MAX: not known. */
static inline size_t memopt_ranks_find_late(const memopt_ranks *x, size_t slot, uint64_t turn) {
    size_t steps, r;

    for (steps = 0; steps < x->rank_count; ++steps) { /* ranks that disagree may wait in a circle */
        const int all_came = memopt_ranks_missing(x, slot, turn) == x->rank_count;
        size_t held = 0;

        for (r = 0; r < x->rank_count; ++r) {
            const memopt_ranks_post *post = &x->each[r].posts[slot];

            if (all_came ? post->is_copied : post->turn == turn) continue;
            if (x->each[r].waits_for == MEMOPT_COMM_SLOTS) return r;
            held = r;
        }
        if (all_came) break; /* they copy right now */
        slot = x->each[held].waits_for;
        turn = x->each[held].posts[slot].turn;
    }
    return SIZE_MAX;
}

static inline void memopt_ranks_break_late(memopt_ranks *x, size_t slot, uint64_t turn) {
    const size_t culprit = memopt_ranks_find_late(x, slot, turn);

    memopt_ranks_break(x, MEMOPT_ERR_IO,
                       culprit == SIZE_MAX ? "is not over by the deadline" : "has not come before the deadline",
                       culprit);
}

static inline int memopt_ranks_agree(const memopt_ranks *x, size_t slot) { /* or it is broken */
    const memopt_comm_call *first = &x->each[0].posts[slot].call;
    size_t r;

    for (r = 1; r < x->rank_count; ++r) {
        const memopt_comm_call *call = &x->each[r].posts[slot].call;

        if (call->kind == first->kind && call->bytes == first->bytes
            && (call->kind != MEMOPT_COMM_BROADCAST || call->root == first->root)) continue;
        return 0;
    }
    return 1;
}

/* Without the lock: posts stay as they are. */
static inline void memopt_ranks_copy(const memopt_rank *own, size_t slot) {
    const memopt_comm_call *call = &own->posts[slot].call;
    const size_t bytes = call->bytes;
    unsigned char *to = (unsigned char *)call->receive;
    size_t r;

    for (r = 0; r < own->ranks->rank_count; ++r) {
        const memopt_comm_call *its = &own->ranks->each[r].posts[slot].call;
        const unsigned char *from = (const unsigned char *)its->send;

        if (call->kind == MEMOPT_COMM_BROADCAST && r != call->root) continue;
        if (call->kind == MEMOPT_COMM_ALL_TO_ALL) from += own->rank * (its->stride ? its->stride : bytes);
        if (to != from) memcpy(to, from, bytes);
        to += bytes;
    }
}

/* Serve those of a rank's calls to which all ranks have come; 0: there was none, and it may sleep. With the lock. */
static inline int memopt_ranks_serve(memopt_rank *own) {
    memopt_ranks *x = own->ranks;
    int served = 0;
    size_t slot;

    for (slot = 0; slot < MEMOPT_COMM_SLOTS && !x->broken; ++slot) {
        memopt_ranks_post *post = &own->posts[slot];

        if (!post->is_open || post->is_copied || memopt_ranks_missing(x, slot, post->turn) < x->rank_count) continue;
        if (!memopt_ranks_agree(x, slot)) {
            memopt_ranks_break(x, MEMOPT_ERR_STATE, "the ranks do not ask for the same call", SIZE_MAX);
            return 1;
        }
        ++x->copying;
        memopt_ranks_mutex_unlock(&x->lock);
        memopt_ranks_copy(own, slot);
        memopt_ranks_mutex_lock(&x->lock);
        --x->copying;
        post->is_copied = served = 1;
        if (++x->copied[slot] == x->rank_count) {
            x->copied[slot] = 0;
            x->turns[slot] = post->turn;
        }
        memopt_ranks_condition_wake(&x->changed);
    }
    return served;
}

static inline memopt_status memopt_ranks_begin(void *user, const memopt_comm_call *call, size_t slot,
                                               memopt_error *error) {
    memopt_rank *own = (memopt_rank *)user;
    memopt_ranks *x = own->ranks;
    memopt_ranks_post *post = &own->posts[slot];
    memopt_status s;

    memopt_ranks_mutex_lock(&x->lock);
    s = x->broken ? memopt_ranks_reason(x, error) : MEMOPT_OK;
    if (!s) {
        ++post->turn;
        post->is_open = 1;
        post->is_copied = 0;
        post->call = *call;
        memopt_ranks_condition_wake(&x->changed);
    }
    memopt_ranks_mutex_unlock(&x->lock);
    return s;
}

/* Until something changes; without end, or until the deadline, which breaks all. */
static inline void memopt_ranks_sleep(memopt_ranks *x, size_t slot, uint64_t turn, uint64_t since) {
    uint64_t now = since;

    if (!x->deadline) {
        memopt_ranks_condition_wait(&x->changed, &x->lock);
        return;
    }
    if (x->host.clock.now_fn(x->host.clock.user, &now))
        memopt_ranks_break(x, MEMOPT_ERR_IO, "the clock failed", SIZE_MAX);
    else if (now - since >= x->deadline) memopt_ranks_break_late(x, slot, turn);
    else memopt_ranks_condition_wait_for(&x->changed, &x->lock, x->deadline - (now - since));
}

static inline memopt_status memopt_ranks_wait(void *user, size_t slot, memopt_error *error) {
    memopt_rank *own = (memopt_rank *)user;
    memopt_ranks *x = own->ranks;
    memopt_ranks_post *post = &own->posts[slot];
    memopt_status s = MEMOPT_OK;
    uint64_t since = 0;

    memopt_ranks_mutex_lock(&x->lock);
    if (x->deadline && x->host.clock.now_fn(x->host.clock.user, &since))
        memopt_ranks_break(x, MEMOPT_ERR_IO, "the clock failed", SIZE_MAX);
    own->waits_for = slot;
    while (!x->broken && x->turns[slot] < post->turn)
        if (!memopt_ranks_serve(own)) memopt_ranks_sleep(x, slot, post->turn, since);
    if (x->turns[slot] < post->turn) s = memopt_ranks_reason(x, error);
    while (s && x->copying) memopt_ranks_condition_wait(&x->changed, &x->lock);
    own->waits_for = MEMOPT_COMM_SLOTS;
    post->is_open = 0;
    memopt_ranks_mutex_unlock(&x->lock);
    return s;
}

static inline void memopt_ranks_abort(void *user) {
    memopt_rank *own = (memopt_rank *)user;
    memopt_ranks *x = own->ranks;

    memopt_ranks_mutex_lock(&x->lock);
    memopt_ranks_break(x, MEMOPT_ERR_STATE, "has given up", own->rank);
    while (x->copying) memopt_ranks_condition_wait(&x->changed, &x->lock);
    memopt_ranks_mutex_unlock(&x->lock);
}

/* ---- the object ---- */

static inline memopt_status memopt_ranks_refuse(memopt_error *error, memopt_status status, const char *argument,
                                                const char *reason) {
    if (!error) return status;
    memset(error, 0, sizeof *error);
    error->status = status;
    error->subject = "ranks";
    error->argument = argument;
    error->reason = reason;
    error->index = error->action = error->segment = SIZE_MAX;
    return status;
}

/* OK, ERR_ARGUMENT, ERR_MEMORY, ERR_STATE (the system has no lock left) */
static inline memopt_status memopt_ranks_create(const memopt_ranks_desc *desc, memopt_ranks **out) {
    memopt_host host;
    memopt_ranks *x;
    size_t r, bytes;

    if (!desc) return MEMOPT_ERR_ARGUMENT;
    if (!out) return memopt_ranks_refuse(desc->error, MEMOPT_ERR_ARGUMENT, "out", "is NULL");
    if (!desc->rank_count || desc->rank_count > 1024)
        return memopt_ranks_refuse(desc->error, MEMOPT_ERR_ARGUMENT, "rank_count", "is not from 1 to 1024");
    if (memopt_host_resolve(desc->host, &host))
        return memopt_ranks_refuse(desc->error, MEMOPT_ERR_ARGUMENT, "host", "is half set");
    bytes = sizeof *x + desc->rank_count * sizeof *x->each;
    x = (memopt_ranks *)host.allocator.alloc_fn(host.allocator.user, bytes, 64);
    if (!x) return memopt_ranks_refuse(desc->error, MEMOPT_ERR_MEMORY, NULL, "no memory for it");
    memset(x, 0, bytes);
    x->host = host;
    x->bytes = bytes;
    x->rank_count = desc->rank_count;
    x->deadline = desc->deadline;
    x->each = (memopt_rank *)(void *)(x + 1);
    for (r = 0; r < x->rank_count; ++r) {
        x->each[r].ranks = x;
        x->each[r].rank = r;
        x->each[r].waits_for = MEMOPT_COMM_SLOTS;
    }
    if (memopt_ranks_mutex_open(&x->lock)) goto no_lock;
    if (memopt_ranks_condition_open(&x->changed)) goto no_condition;
    *out = x;
    return MEMOPT_OK;
no_condition:
    memopt_ranks_mutex_close(&x->lock);
no_lock:
    host.allocator.free_fn(host.allocator.user, x, bytes, 64);
    return memopt_ranks_refuse(desc->error, MEMOPT_ERR_STATE, NULL, "the system has no lock left");
}

/* Of one rank, for one thread at a time; all zero for NULL, and where there is no such rank. */
static inline memopt_transport memopt_ranks_transport(memopt_ranks *ranks, size_t rank) {
    memopt_transport t;

    memset(&t, 0, sizeof t);
    if (!ranks || rank >= ranks->rank_count) return t;
    t.begin_fn = memopt_ranks_begin;
    t.wait_fn = memopt_ranks_wait;
    t.abort_fn = memopt_ranks_abort;
    t.user = &ranks->each[rank];
    t.rank = rank;
    t.rank_count = ranks->rank_count;
    return t;
}

/* When no rank calls any more. NULL is fine. */
static inline void memopt_ranks_destroy(memopt_ranks *ranks) {
    memopt_host host;

    if (!ranks) return;
    host = ranks->host;
    memopt_ranks_condition_close(&ranks->changed);
    memopt_ranks_mutex_close(&ranks->lock);
    host.allocator.free_fn(host.allocator.user, ranks, ranks->bytes, 64);
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
