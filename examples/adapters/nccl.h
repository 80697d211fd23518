/* nccl.h - memopt's ranks over NCCL, version 2.14 or later: a rank is a GPU, and a thread or process that drives it.
   Copy it; link with -lnccl -lcudart -lpthread.

   DO THIS   #include memopt.h, <cuda_runtime.h> and <nccl.h>, then this file
                 ncclGetUniqueId(&id);                 (on rank 0; the others get it from you: MPI, a socket, files)
                 cudaSetDevice(device);
                 memopt_nccl_open(&nccl, &id, rank, rank_count, stream, 60, &desc.transport);    (seconds: the deadline)
                 memopt_comm_create(&desc, &comm);
                 ...
                 memopt_comm_destroy(comm);
                 if (memopt_nccl_close(&nccl)) _exit(1);
             Groups of these ranks, each with a communicator of its own (NCCL 2.18 or later): a rank says which group
             by a color, and where in it by a key. All ranks do so before any of them begins a call: it takes memory.
                 memopt_nccl_split(&row, &nccl, rank / 4, rank, stream, 60, &desc.transport);
                 ... memopt_nccl_close(&row);          (all communicators in an order that all ranks have in common)
   WHAT      moves bytes of the device, and adds nothing. All calls move in order, on a stream of the adapter's own. A
             begin is ordered behind what `stream` (yours) was given before it; the host goes on. A wait holds the host
             until the bytes are there, as memopt_transport promises: no kernel ever sees bytes of a call that failed.
             The price: the device idles for a launch unless you launch what does not need the bytes before you wait.
             What ranks compare (slot MEMOPT_COMM_CALLS, memory of the host) moves through 32 bytes a rank of pinned
             memory, in order, too: checked, a begin lasts until the calls begun before it are over. Where calls are to
             overlap, set memopt_comm_desc.unchecked once the program runs.
   GROUPS    Calls of one communicator move in order. Those of several run beside each other, each in a stream of its
             own, so a rank may begin them in another order than its peers. But a kernel of NCCL that waits for other
             ranks occupies a part of the card as long as it waits (up to NCCL_MAX_CTAS multiprocessors): keep few calls
             begun at a time. And CUDA gives streams only 8 queues to the card, in which one kernel waits behind that of
             another stream: with more streams set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts. The first call of
             each communicator connects, and a begin then holds the host until all its ranks have come. They end as
             one: a rank whose call fails in one, or that gives up there, has given up in all of the same open.
   FAILURE   NCCL is asked without blocking, and watched. On an error or after the deadline the communicator is aborted
             and the call returns a status. The other ranks learn of it by ncclRemoteError where NCCL finds out, else by
             their own deadline; it counts from the begin or wait on, with the work of `stream` that a call waits for.
             Checked, the comparison shows which rank has not come, if it is one and not the first comparison of all (in
             it NCCL connects), and a rank that gives up between two calls says so in the next comparison. Else no rank
             is named but this one, for errors of its own.
             ncclCommAbort() may hang (NVIDIA/nccl#1013), so a thread calls it. When that takes more than a second, or
             the stream does not come to its end, the rank gets its status all the same, with is_stuck set, and close
             returns ERR_STATE: the device may still use the memory of calls, cudaFree() may wait for ever, and `nccl`
             has to stay where it is. End the process by _exit().
   THREADS   one at a time, with the device of memopt_nccl_open() as its current one. */
#ifndef MEMOPT_NCCL_H
#define MEMOPT_NCCL_H
#include <pthread.h>
#include <sched.h>
#include <string.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

#define MEMOPT_NCCL_COMPARED 32 /* bytes of a rank in a comparison; not all of them are 0, nor all 255 */

typedef enum memopt_nccl_state {
    MEMOPT_NCCL_UNCHECKED, /* no comparison is known of */
    MEMOPT_NCCL_COMPARING,
    MEMOPT_NCCL_COMPARED_ONLY, /* the call itself is not begun */
    MEMOPT_NCCL_AGREED,        /* it is begun: all ranks come to the next comparison */
    MEMOPT_NCCL_GIVEN_UP       /* and that one is begun: it says so */
} memopt_nccl_state;

typedef struct memopt_nccl { /* stays where it is, from open to close */
    ncclComm_t     comm;
    int            is_open;         /* comm has not been aborted or destroyed */
    cudaStream_t   compute, stream; /* yours, and the adapter's own */
    cudaEvent_t    before, after[MEMOPT_COMM_SLOTS];
    int            rank, rank_count, device;
    memopt_clock   clock;
    double         deadline;        /* seconds */
    unsigned char *compared;        /* pinned memory: a piece of each rank */
    memopt_comm_call comparison;
    memopt_nccl_state state;
    memopt_status  status;          /* the first failure */
    const char    *reason;
    size_t         culprit;         /* a rank; SIZE_MAX: not known */
    ncclResult_t (*end_fn)(ncclComm_t comm);
    int            is_ended;        /* end_fn has returned */
    int            is_stuck;
    struct memopt_nccl *next;       /* a ring of all that come from the same open */
} memopt_nccl;

static double memopt_nccl_now(const memopt_nccl *m) { /* seconds */
    uint64_t now;

    return m->clock.now_fn(m->clock.user, &now) ? 1e300 : (double)now * 1e-9; /* a clock that fails: all is late */
}

/* A query that says "not ready" is not to be found by your next cudaGetLastError(). */
static cudaError_t memopt_nccl_quiet(cudaError_t answer) {
    if (answer == cudaErrorNotReady && cudaPeekAtLastError() == cudaErrorNotReady) (void)cudaGetLastError();
    return answer;
}

static void *memopt_nccl_end_thread(void *user) {
    memopt_nccl *m = (memopt_nccl *)user;

    (void)cudaSetDevice(m->device);
    (void)m->end_fn(m->comm);
    __atomic_store_n(&m->is_ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Abort or destroy the communicator, and wait for the stream, a second in all. */
static void memopt_nccl_end(memopt_nccl *m, ncclResult_t (*end_fn)(ncclComm_t comm)) {
    const double begin = memopt_nccl_now(m);
    cudaError_t answer = cudaErrorNotReady;
    pthread_t thread;
    int is_ended = 0;

    m->is_open = 0;
    m->is_stuck = 1;
    m->end_fn = end_fn;
    if (pthread_create(&thread, NULL, memopt_nccl_end_thread, m)) return;
    while ((!is_ended || answer == cudaErrorNotReady) && memopt_nccl_now(m) - begin < 1) {
        (void)sched_yield();
        is_ended = __atomic_load_n(&m->is_ended, __ATOMIC_ACQUIRE);
        answer = memopt_nccl_quiet(cudaStreamQuery(m->stream));
    }
    if (is_ended) (void)pthread_join(thread, NULL);
    else (void)pthread_detach(thread);
    m->is_stuck = !is_ended || answer == cudaErrorNotReady;
}

static memopt_status memopt_nccl_said(const memopt_nccl *m, memopt_error *error) {
    error->reason = m->reason;
    error->index = m->culprit;
    return m->status;
}

static void memopt_nccl_blame(memopt_nccl *m, memopt_status status, const char *reason, size_t culprit) {
    if (m->status) return; /* the first reason is the one to tell */
    m->status = status;
    m->reason = reason;
    m->culprit = culprit;
}

/* The one rank that has not come, once this rank's device has: of two it is the other; of more it has no piece in a
   comparison. SIZE_MAX: none, or more than one. The device may be writing. */
static size_t memopt_nccl_missing(const memopt_nccl *m) {
    const size_t bytes = m->comparison.bytes, all = bytes * (size_t)m->rank_count;
    size_t i, came = SIZE_MAX, missing = SIZE_MAX, count = 0;
    ncclResult_t result;

    if (memopt_nccl_quiet(cudaEventQuery(m->before))) return SIZE_MAX;
    if (m->state != MEMOPT_NCCL_COMPARING) {
        const int is_begun = !ncclCommGetAsyncError(m->comm, &result) && !result;

        return is_begun && m->rank_count == 2 ? (size_t)(1 - m->rank) : SIZE_MAX;
    }
    for (i = 0; i < all; ++i) {
        if (__atomic_load_n(m->compared + i, __ATOMIC_RELAXED)) came = i / bytes;
        if (i % bytes != bytes - 1 || came == i / bytes) continue;
        missing = i / bytes;
        ++count;
    }
    return count == 1 ? missing : SIZE_MAX;
}

/* Of the ring that begins with `first`; NULL: that was all. */
static memopt_nccl *memopt_nccl_next(const memopt_nccl *m, const memopt_nccl *first) {
    return m->next == first ? NULL : m->next;
}

/* ncclInProgress: the deadline is over, and who has not come here is not waited for long elsewhere. */
static memopt_status memopt_nccl_fail(memopt_nccl *m, ncclResult_t why, memopt_error *error) {
    const int is_own = why != ncclInProgress && why != ncclRemoteError && why != ncclSystemError;
    const size_t culprit = is_own ? (size_t)m->rank : why == ncclInProgress ? memopt_nccl_missing(m) : SIZE_MAX;
    const cudaError_t wrong = why == ncclUnhandledCudaError ? cudaGetLastError() : cudaSuccess; /* it is told here */
    const char *reason = wrong ? cudaGetErrorString(wrong) : ncclGetErrorString(why);
    memopt_nccl *other;

    if (why == ncclInProgress) reason = culprit == SIZE_MAX ? "not all ranks have come before the deadline"
                                                            : "has not come before the deadline";
    memopt_nccl_blame(m, why == ncclUnhandledCudaError ? MEMOPT_ERR_DEVICE : MEMOPT_ERR_IO, reason, culprit);
    for (other = m; other && why == ncclInProgress; other = memopt_nccl_next(other, m))
        if (other->deadline > 1) other->deadline = 1;
    if (m->is_open) memopt_nccl_end(m, ncclCommAbort);
    return memopt_nccl_said(m, error);
}

/* A call of NCCL that has returned `result` may go on: nobody may use the communicator or its stream until it is done.
   Returns then, and when the stream has come to `event` (may be NULL). */
static memopt_status memopt_nccl_reach(memopt_nccl *m, ncclResult_t result, cudaEvent_t event, memopt_error *error) {
    const double begin = memopt_nccl_now(m);

    while (m->is_open) {
        const cudaError_t answer = event ? memopt_nccl_quiet(cudaEventQuery(event)) : cudaSuccess;
        ncclResult_t wrong = result;

        if (!result || result == ncclInProgress) wrong = ncclCommGetAsyncError(m->comm, &result);
        if (wrong) result = wrong;
        if (answer && answer != cudaErrorNotReady) result = ncclUnhandledCudaError;
        if (!answer && !result) return MEMOPT_OK;
        if (result && result != ncclInProgress) return memopt_nccl_fail(m, result, error);
        if (memopt_nccl_now(m) - begin >= m->deadline) return memopt_nccl_fail(m, ncclInProgress, error);
        (void)sched_yield();
    }
    return memopt_nccl_said(m, error);
}

static memopt_status memopt_nccl_drain(memopt_nccl *m, memopt_error *error) {
    const int wrong = cudaEventRecord(m->before, m->stream) != cudaSuccess;

    return memopt_nccl_reach(m, wrong ? ncclUnhandledCudaError : ncclSuccess, m->before, error);
}

/* A piece to each rank, and one from each; `step` is from one piece that is sent to the next. */
static ncclResult_t memopt_nccl_pieces(memopt_nccl *m, const void *send, size_t step, void *receive, size_t bytes) {
    ncclResult_t result = ncclGroupStart(), end;
    int r;

    if (result) return result;
    for (r = 0; r < m->rank_count && (!result || result == ncclInProgress); ++r) {
        const unsigned char *from = (const unsigned char *)send + (size_t)r * step;
        unsigned char *to = (unsigned char *)receive + (size_t)r * bytes;

        if (from == to) continue; /* what a rank compares is in its place */
        result = ncclSend(from, bytes, ncclUint8, r, m->comm, m->stream);
        if (!result || result == ncclInProgress) result = ncclRecv(to, bytes, ncclUint8, r, m->comm, m->stream);
    }
    end = ncclGroupEnd();
    return result && result != ncclInProgress ? result : end;
}

static ncclResult_t memopt_nccl_call(memopt_nccl *m, const memopt_comm_call *call) {
    const void *send = call->kind == MEMOPT_COMM_BROADCAST && (int)call->root != m->rank ? call->receive : call->send;

    if (call->kind == MEMOPT_COMM_ALL_GATHER)
        return ncclAllGather(send, call->receive, call->bytes, ncclUint8, m->comm, m->stream);
    if (call->kind == MEMOPT_COMM_BROADCAST)
        return ncclBroadcast(send, call->receive, call->bytes, ncclUint8, (int)call->root, m->comm, m->stream);
#if NCCL_VERSION_CODE >= 22800
    if (!call->stride) return ncclAlltoAll(send, call->receive, call->bytes, ncclUint8, m->comm, m->stream);
#endif
    return memopt_nccl_pieces(m, send, call->stride ? call->stride : call->bytes, call->receive, call->bytes);
}

/* This rank's piece to all, as pieces of their own: so it shows which ranks have come. */
static ncclResult_t memopt_nccl_compare(memopt_nccl *m) {
    const size_t bytes = m->comparison.bytes;

    return memopt_nccl_pieces(m, m->compared + (size_t)m->rank * bytes, 0, m->compared, bytes);
}

static memopt_status memopt_nccl_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    memopt_nccl *m = (memopt_nccl *)user;
    const int is_comparison = slot == MEMOPT_COMM_CALLS;
    memopt_status s;
    int wrong;

    if (m->status) return memopt_nccl_said(m, error);
    if (is_comparison) {
        if (call->bytes > MEMOPT_NCCL_COMPARED) return memopt_nccl_fail(m, ncclInvalidArgument, error);
        m->state = MEMOPT_NCCL_UNCHECKED;
        m->comparison = *call;
        memset(m->compared, 0, call->bytes * (size_t)m->rank_count);
        memcpy(m->compared + (size_t)m->rank * call->bytes, call->send, call->bytes);
    }
    wrong = cudaEventRecord(m->before, is_comparison ? m->stream : m->compute) != cudaSuccess;
    if (!wrong && !is_comparison) wrong = cudaStreamWaitEvent(m->stream, m->before, 0) != cudaSuccess;
    if (wrong) return memopt_nccl_fail(m, ncclUnhandledCudaError, error);
    s = memopt_nccl_reach(m, is_comparison ? memopt_nccl_compare(m) : memopt_nccl_call(m, call), NULL, error);
    if (s) return s;
    if (cudaEventRecord(m->after[slot], m->stream)) return memopt_nccl_fail(m, ncclUnhandledCudaError, error);
    if (is_comparison) m->state = MEMOPT_NCCL_COMPARING;
    else m->state = m->state == MEMOPT_NCCL_COMPARED_ONLY ? MEMOPT_NCCL_AGREED : MEMOPT_NCCL_UNCHECKED;
    return MEMOPT_OK;
}

static memopt_status memopt_nccl_wait(void *user, size_t slot, memopt_error *error) {
    memopt_nccl *m = (memopt_nccl *)user;
    const size_t bytes = m->comparison.bytes;
    const memopt_status s = memopt_nccl_reach(m, ncclSuccess, m->after[slot], error);
    size_t r, i;

    if (s || slot != MEMOPT_COMM_CALLS) return s;
    m->state = MEMOPT_NCCL_COMPARED_ONLY;
    for (r = 0; r < (size_t)m->rank_count; ++r) {
        for (i = 0; i < bytes && m->compared[r * bytes + i] == 255; ++i) {}
        if (i < bytes) continue;
        memopt_nccl_blame(m, MEMOPT_ERR_STATE, "has given up", r);
        return memopt_nccl_said(m, error);
    }
    memcpy(m->comparison.receive, m->compared, bytes * (size_t)m->rank_count);
    return MEMOPT_OK;
}

/* Where all ranks come to the next comparison, they read there that this one has given up. After a comparison they know
   what it knows. Else the communicator is aborted. */
static void memopt_nccl_give_up(memopt_nccl *m) {
    memopt_error ignored;

    memopt_nccl_blame(m, MEMOPT_ERR_STATE, "has given up", (size_t)m->rank);
    if (!m->is_open || m->state == MEMOPT_NCCL_COMPARED_ONLY || m->state == MEMOPT_NCCL_GIVEN_UP) return;
    if (m->state != MEMOPT_NCCL_AGREED) {
        memopt_nccl_end(m, ncclCommAbort);
        return;
    }
    m->state = MEMOPT_NCCL_GIVEN_UP;
    memset(m->compared + (size_t)m->rank * m->comparison.bytes, 255, m->comparison.bytes);
    (void)memopt_nccl_reach(m, memopt_nccl_compare(m), NULL, &ignored);
}

/* It says so in all communicators before it waits in any: ranks that are to come to one may be waiting in another. */
static void memopt_nccl_abort(void *user) {
    memopt_nccl *const first = (memopt_nccl *)user;
    memopt_error ignored;
    memopt_nccl *m;

    for (m = first; m; m = memopt_nccl_next(m, first)) memopt_nccl_give_up(m);
    for (m = first; m; m = memopt_nccl_next(m, first))
        if (m->is_open && m->state == MEMOPT_NCCL_GIVEN_UP) (void)memopt_nccl_drain(m, &ignored);
}

/* Waits for what is under way and for the other ranks' close, each as long as the deadline says. Returns OK; ERR_STATE:
   stuck, see FAILURE. */
static memopt_status memopt_nccl_close(memopt_nccl *m) {
    memopt_nccl *other;
    memopt_error ignored;
    size_t slot;

    if (m->is_open && !memopt_nccl_drain(m, &ignored)
        && !memopt_nccl_reach(m, ncclCommFinalize(m->comm), NULL, &ignored)) memopt_nccl_end(m, ncclCommDestroy);
    if (m->is_stuck) return MEMOPT_ERR_STATE;
    for (other = m->next; other && other->next != m; other = other->next) {}
    if (other) other->next = m->next;
    if (m->stream) (void)cudaStreamDestroy(m->stream);
    for (slot = 0; slot < MEMOPT_COMM_SLOTS; ++slot) if (m->after[slot]) (void)cudaEventDestroy(m->after[slot]);
    if (m->before) (void)cudaEventDestroy(m->before);
    if (m->compared) (void)cudaFreeHost(m->compared);
    memset(m, 0, sizeof *m);
    return MEMOPT_OK;
}

/* What a rank has beside NCCL's communicator. */
static memopt_status memopt_nccl_prepare(memopt_nccl *m, int rank_count, cudaStream_t compute, double seconds) {
    memopt_host host;
    size_t slot;
    int wrong;

    (void)memopt_host_resolve(NULL, &host);
    m->clock = host.clock;
    m->deadline = seconds;
    m->compute = compute;
    wrong = cudaGetDevice(&m->device) || cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking)
            || cudaEventCreateWithFlags(&m->before, cudaEventDisableTiming)
            || cudaMallocHost((void **)&m->compared, (size_t)rank_count * MEMOPT_NCCL_COMPARED);
    for (slot = 0; slot < MEMOPT_COMM_SLOTS && !wrong; ++slot)
        wrong = cudaEventCreateWithFlags(&m->after[slot], cudaEventDisableTiming) != cudaSuccess;
    return wrong ? MEMOPT_ERR_DEVICE : MEMOPT_OK;
}

/* The end of open and split: s as they have come out. parent: of a split. */
static memopt_status memopt_nccl_opened(memopt_nccl *m, memopt_nccl *parent, memopt_status s, memopt_transport *out) {
    if (s) {
        (void)memopt_nccl_close(m);
        return s;
    }
    m->next = parent ? parent->next : m;
    if (parent) parent->next = m;
    out->begin_fn = memopt_nccl_begin;
    out->wait_fn = memopt_nccl_wait;
    out->abort_fn = memopt_nccl_abort;
    out->user = m;
    out->rank = (size_t)m->rank;
    out->rank_count = (size_t)m->rank_count;
    return MEMOPT_OK;
}

/* On all ranks. seconds: how long a rank waits for the others, above 0. compute: the stream that writes what is sent
   and reads what is received. Returns OK; ERR_ARGUMENT, ERR_DEVICE, ERR_IO: nothing is open, unless is_stuck is set. */
static memopt_status memopt_nccl_open(memopt_nccl *m, const ncclUniqueId *id, int rank, int rank_count,
                                      cudaStream_t compute, double seconds, memopt_transport *out) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    memopt_error ignored;
    memopt_status s;

    memset(m, 0, sizeof *m);
    memset(out, 0, sizeof *out);
    if (!(seconds > 0) || rank < 0 || rank >= rank_count) return MEMOPT_ERR_ARGUMENT;
    m->rank = rank;
    m->rank_count = rank_count;
    s = memopt_nccl_prepare(m, rank_count, compute, seconds);
    if (!s) {
        ncclResult_t result;

        config.blocking = 0;
        result = ncclCommInitRankConfig(&m->comm, rank_count, *id, rank, &config);
        m->is_open = m->comm != NULL;
        s = m->is_open ? memopt_nccl_reach(m, result, NULL, &ignored) : MEMOPT_ERR_IO;
    }
    return memopt_nccl_opened(m, NULL, s, out);
}

#if NCCL_VERSION_CODE >= 21800
/* It is the parent that is in progress, and NCCL writes m->comm at the end. */
static memopt_status memopt_nccl_divide(memopt_nccl *m, memopt_nccl *parent, int color, int key) {
    const int own_color = color < 0 ? NCCL_SPLIT_NOCOLOR : color;
    const ncclResult_t result = ncclCommSplit(parent->comm, own_color, key, &m->comm, NULL);
    memopt_error ignored;
    memopt_status s = memopt_nccl_reach(parent, result, NULL, &ignored);

    m->is_stuck = s && parent->is_stuck; /* NCCL may still write */
    if (m->is_stuck || !m->comm) return s || color < 0 ? s : MEMOPT_ERR_IO;
    m->is_open = 1;
    if (!s && (ncclCommUserRank(m->comm, &m->rank) || ncclCommCount(m->comm, &m->rank_count))) s = MEMOPT_ERR_IO;
    if (s) memopt_nccl_end(m, ncclCommAbort);
    return s;
}
#endif

/* On all ranks of `parent`, none of whose calls is under way: a communicator of those that give the same color, in the
   order of their keys (equal ones: of their ranks). A color below 0: none, *out is all 0, and nothing is to close. The
   parent's deadline counts. Returns OK; ERR_ARGUMENT; ERR_UNSUPPORTED: NCCL is older than 2.18; ERR_DEVICE, ERR_IO:
   nothing is open, unless is_stuck is set, and the parent may have failed, too; what failed the parent before. */
static inline memopt_status memopt_nccl_split(memopt_nccl *m, memopt_nccl *parent, int color, int key,
                                              cudaStream_t compute, double seconds, memopt_transport *out) {
    memopt_status s = MEMOPT_ERR_UNSUPPORTED;

    memset(m, 0, sizeof *m);
    memset(out, 0, sizeof *out);
    if (!(seconds > 0) || (!parent->is_open && !parent->status)) return MEMOPT_ERR_ARGUMENT;
#if NCCL_VERSION_CODE >= 21800
    if (parent->status) return parent->status;
    s = memopt_nccl_prepare(m, parent->rank_count, compute, seconds);
    if (s) {
        memopt_error ignored;

        (void)memopt_nccl_fail(parent, ncclUnhandledCudaError, &ignored); /* so that the others learn of it */
    } else s = memopt_nccl_divide(m, parent, color, key);
    if (!s && color < 0) return memopt_nccl_close(m);
#else
    (void)color; (void)key; (void)compute;
#endif
    return memopt_nccl_opened(m, parent, s, out);
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
