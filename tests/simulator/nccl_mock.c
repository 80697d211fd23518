/* nccl_mock.c - see nccl_mock.h. One lock holds everything; whoever asks a stream or an event makes all streams go on as far
   as the answer needs. */
#define _POSIX_C_SOURCE 200809L
#include "nccl_mock.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECES = 2 * MOCK_RANKS, OBJECTS = 4096, SPLITS = 8 };
typedef enum op_kind { OP_RECORD, OP_WAIT, OP_HOST, OP_HOLD, OP_CALL } op_kind;
typedef enum call_kind { CALL_PIECES, CALL_ALL_GATHER, CALL_BROADCAST, CALL_ALL_TO_ALL } call_kind;
typedef struct piece { int is_send, peer, is_done; const void *from; void *to; size_t bytes; } piece;
typedef struct op {
    op_kind kind;
    cudaEvent_t event; unsigned long version;       /* of a record or wait */
    struct CUstream_st *other; unsigned long place; /* of a wait: the record's */
    cudaHostFn_t fn; void *argument;
    ncclComm_t comm; unsigned long sequence; call_kind call; const void *send; void *receive; size_t bytes; int root;
    piece pieces[PIECES]; int piece_count, is_done, asked;
    struct op *next;
} op;
struct CUstream_st { int device; unsigned long given, wanted, done; op *first, *last; struct CUstream_st *next; };
struct CUevent_st { unsigned long recorded, done; struct CUstream_st *stream; unsigned long place; };
typedef struct world { char id[NCCL_UNIQUE_ID_BYTES]; int count, joined, connecting, finalized; struct ncclComm *comms[MOCK_RANKS]; struct world *next; } world;
typedef enum comm_life { JOINING, WORKING, FINALIZING, FINALIZED, ABORTED, DESTROYED } comm_life;
struct ncclComm {
    world *w; int rank, device; comm_life life; cudaStream_t stream; op *pending; unsigned long sequence; int polls, for_ever, connects;
    struct { int color, key; } split[SPLITS]; int splits; struct ncclComm **child; /* child: NULL, or where the last split puts it */
    ncclResult_t async; struct ncclComm *next;
};
typedef struct block { void *memory; size_t bytes; int is_pinned; } block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *streams;
static world *worlds;
static struct ncclComm *comms;
static block blocks[OBJECTS];
static int block_count, event_count, stream_count, findings, mismatches, delay, remote_errors, is_released, ids;
static struct { unsigned long n; ncclResult_t result; } faults[MOCK_FAULTS][MOCK_RANKS];
static unsigned long nccl_calls[MOCK_RANKS], cuda_calls[MOCK_RANKS], queries[MOCK_RANKS], aborts[MOCK_RANKS];
static __thread int device, depth;
static __thread op *group;
static __thread cudaError_t last_error;

static void find(const char *what, int rank) { ++findings; fprintf(stderr, "nccl_mock: rank %d: %s\n", rank, what); }
static int hits(mock_fault what, int rank, unsigned long count) { return faults[what][rank].n && faults[what][rank].n == count; }
static cudaError_t failed(cudaError_t e) { if (e) last_error = e; return e; }
static int cuda_fails(void) { return hits(MOCK_CUDA, device, ++cuda_calls[device]); } /* with the lock */

void mock_nap(void) { const struct timespec t = { 0, 100000 }; (void)nanosleep(&t, NULL); } /* who asks in a loop leaves the processor to others */

static int query_fails(void) { return ++queries[device] >= faults[MOCK_QUERY][device].n && faults[MOCK_QUERY][device].n; }

/* ---- what a test asks for ---- */
void mock_begin(void) {
    struct ncclComm *c; world *w;
    pthread_mutex_lock(&lock);
    while ((c = comms)) { comms = c->next; free(c->pending); free(c); }
    while ((w = worlds)) { worlds = w->next; free(w); }
    memset(faults, 0, sizeof faults);
    memset(nccl_calls, 0, sizeof nccl_calls); memset(cuda_calls, 0, sizeof cuda_calls);
    memset(queries, 0, sizeof queries); memset(aborts, 0, sizeof aborts);
    findings = mismatches = delay = remote_errors = is_released = 0;
    pthread_mutex_unlock(&lock);
}
void mock_fail(mock_fault what, int rank, unsigned long n, ncclResult_t result) {
    pthread_mutex_lock(&lock);
    faults[what][rank].n = n + (what == MOCK_CUDA ? cuda_calls[rank] : what == MOCK_QUERY ? queries[rank] : what <= MOCK_PROGRESS ? nccl_calls[rank] : 0);
    faults[what][rank].result = result;
    pthread_mutex_unlock(&lock);
}
static unsigned long read_locked(const unsigned long *x) {
    unsigned long value;
    pthread_mutex_lock(&lock); value = *x; pthread_mutex_unlock(&lock);
    return value;
}
static int read_int(const int *x) {
    int value;
    pthread_mutex_lock(&lock); value = *x; pthread_mutex_unlock(&lock);
    return value;
}
void mock_delay(int polls) { pthread_mutex_lock(&lock); delay = polls; pthread_mutex_unlock(&lock); }
void mock_remote_errors(int on) { pthread_mutex_lock(&lock); remote_errors = on; pthread_mutex_unlock(&lock); }
unsigned long mock_calls(int rank, int of_cuda) { return read_locked(of_cuda ? &cuda_calls[rank] : &nccl_calls[rank]); }
unsigned long mock_aborts(int rank) { return read_locked(&aborts[rank]); }
int mock_findings(void) { return read_int(&findings); }
int mock_mismatches(void) { return read_int(&mismatches); }
void mock_release(void) {
    pthread_mutex_lock(&lock); is_released = 1; pthread_cond_broadcast(&released); pthread_mutex_unlock(&lock);
}
int mock_live(void) {
    const struct ncclComm *c; int n;
    pthread_mutex_lock(&lock);
    n = block_count + event_count + stream_count;
    for (c = comms; c; c = c->next) n += c->life < ABORTED;
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- streams ---- */
static unsigned long give(cudaStream_t s, op *o) {
    if (s->last) s->last->next = o; else s->first = o;
    s->last = o;
    return ++s->given;
}
static op *make(op_kind kind) { op *o = (op *)calloc(1, sizeof *o); if (!o) abort(); o->kind = kind; return o; }
static int want(cudaStream_t s, unsigned long place) { if (s->wanted >= place) return 0; s->wanted = place; return 1; }
static int same_call(const op *a, const op *b) {
    return a->call == b->call && (a->call == CALL_PIECES || (a->bytes == b->bytes && a->root == b->root));
}
/* What a rank has begun as call `sequence`, where its stream has come to it. *moves: a stream has been asked to go on. */
static op *come(const world *w, int rank, unsigned long sequence, int *moves) {
    struct ncclComm *c = w->comms[rank]; op *o; unsigned long place;
    if (!c || c->life >= ABORTED || !c->stream) return NULL;
    place = c->stream->done;
    for (o = c->stream->first; o; o = o->next) { ++place; if (o->kind == OP_CALL && o->comm == c && o->sequence == sequence) break; }
    if (!o) return NULL;
    *moves |= want(c->stream, place);
    return o == c->stream->first ? o : NULL;
}
static void copy(void *to, const void *from, size_t n) { /* who waits for pieces may look at them already */
    size_t i; const unsigned char *f = (const unsigned char *)from; unsigned char *t = (unsigned char *)to;
    if (t == f) return;
    if (n > 64) { memcpy(to, from, n); return; }
    for (i = 0; i < n; ++i) __atomic_store_n(t + i, __atomic_load_n(f + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}
static void move_all(op *const *ops, int count) { /* all ranks have come */
    int r, s;
    for (r = 0; r < count; ++r) {
        unsigned char *to = (unsigned char *)ops[r]->receive; const size_t n = ops[r]->bytes;
        if (ops[r]->call == CALL_BROADCAST) copy(to, ops[ops[r]->root]->send, n);
        else for (s = 0; s < count; ++s)
            copy(to + (size_t)s * n, (const unsigned char *)ops[s]->send + (ops[s]->call == CALL_ALL_TO_ALL ? (size_t)r * n : 0), n);
        ops[r]->is_done = 1;
    }
}
static int move_pieces(op *o, int rank, op *const *ops) {
    int i, k, moves = 0, left = 0;
    for (i = 0; i < o->piece_count; ++i) {
        piece *p = &o->pieces[i]; op *other = ops[p->peer];
        for (k = 0; !p->is_done && other && k < other->piece_count; ++k) {
            piece *q = &other->pieces[k];
            if (q->is_done || q->is_send == p->is_send || q->peer != rank) continue;
            if (q->bytes != p->bytes) { if (o->root != -2) { o->root = -2; ++mismatches; } break; } /* nothing comes of it */
            copy(p->is_send ? q->to : p->to, p->is_send ? p->from : q->from, p->bytes);
            p->is_done = q->is_done = moves = 1;
        }
        left += !p->is_done;
    }
    o->is_done = !left;
    return moves || !left;
}
static int run_call(op *o) { /* 1: something has changed */
    const world *w = o->comm->w; op *ops[MOCK_RANKS]; int r, moves = 0, missing = 0;
    if (o->comm->life >= ABORTED) return o->is_done = ++o->asked > 5; /* the device takes its time to leave it */
    for (r = 0; r < w->count; ++r) { ops[r] = come(w, r, o->sequence, &moves); missing += !ops[r]; }
    for (r = 0; r < w->count; ++r) if (ops[r] && !same_call(o, ops[r])) {
        if (!o->is_done && o->root != -2) { o->root = -2; ++mismatches; } /* never again the same as another */
        return moves;
    }
    if (o->call == CALL_PIECES) return move_pieces(o, o->comm->rank, ops) | moves;
    if (missing) return moves;
    move_all(ops, w->count);
    return 1;
}
static int run(op *o, int *moves) { /* 1: it is over */
    switch (o->kind) {
    case OP_RECORD: if (o->event->done < o->version) o->event->done = o->version; return 1;
    case OP_WAIT:
        if (o->event->done >= o->version) return 1;
        *moves |= want(o->other, o->place);
        return 0;
    case OP_HOST: o->fn(o->argument); return 1;
    case OP_HOLD: return is_released;
    case OP_CALL: if (!o->is_done) *moves |= run_call(o); return o->is_done;
    }
    return 0;
}
static void progress(void) {
    int moves; cudaStream_t s;
    do {
        moves = 0;
        for (s = streams; s; s = s->next) while (s->first && s->done < s->wanted) {
            op *o = s->first;
            if (!run(o, &moves)) break;
            s->first = o->next; if (!s->first) s->last = NULL;
            ++s->done; moves = 1; free(o);
        }
    } while (moves);
}

static void finish(void) { int i; for (i = 0; i < 10; ++i) progress(); }

/* ---- the runtime ---- */
cudaError_t cudaSetDevice(int d) { if (d < 0 || d >= MOCK_RANKS) return failed(cudaErrorInvalidDevice); device = d; return cudaSuccess; }
#define CUDA_BEGIN() do { pthread_mutex_lock(&lock); if (cuda_fails()) { pthread_mutex_unlock(&lock); return failed(cudaErrorUnknown); } } while (0)
#define CUDA_END(e) do { const cudaError_t end = (e); pthread_mutex_unlock(&lock); if (end == cudaErrorNotReady) mock_nap(); return failed(end); } while (0)
cudaError_t cudaGetDevice(int *d) { CUDA_BEGIN(); *d = device; CUDA_END(cudaSuccess); }
cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) { const cudaError_t e = last_error; last_error = cudaSuccess; return e; }
const char *cudaGetErrorString(cudaError_t e) { return e == cudaErrorUnknown ? "unknown error" : e ? "some error" : "no error"; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned int flags) {
    CUDA_BEGIN();
    if (flags != cudaStreamNonBlocking) find("a stream that waits for the legacy one", device);
    *s = (cudaStream_t)calloc(1, sizeof **s); if (!*s) abort();
    (*s)->device = device; (*s)->next = streams; streams = *s; ++stream_count;
    CUDA_END(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) { /* what it holds runs as far as it can */
    cudaStream_t *p; struct ncclComm *c;
    pthread_mutex_lock(&lock);
    (void)want(s, s->given); finish();
    if (s->first) find("a stream is destroyed that is not empty", device);
    while (s->first) { op *o = s->first; s->first = o->next; free(o); }
    for (p = &streams; *p != s; p = &(*p)->next) {}
    *p = s->next;
    for (c = comms; c; c = c->next) if (c->stream == s) c->stream = NULL;
    free(s); --stream_count;
    CUDA_END(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
    pthread_mutex_lock(&lock);
    if (query_fails()) CUDA_END(cudaErrorUnknown);
    (void)want(s, s->given); progress();
    CUDA_END(s->first ? cudaErrorNotReady : cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned int flags) {
    CUDA_BEGIN();
    (void)flags; *e = (cudaEvent_t)calloc(1, sizeof **e); if (!*e) abort();
    ++event_count;
    CUDA_END(cudaSuccess);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    cudaStream_t s; op *o;
    pthread_mutex_lock(&lock);
    for (s = streams; s; s = s->next) for (o = s->first; o; o = o->next) if (o->event == e) find("an event is destroyed that is in use", device);
    free(e); --event_count;
    CUDA_END(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    op *o;
    CUDA_BEGIN();
    o = make(OP_RECORD); o->event = e; o->version = ++e->recorded;
    e->stream = s; e->place = give(s, o);
    CUDA_END(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    pthread_mutex_lock(&lock);
    if (query_fails()) CUDA_END(cudaErrorUnknown);
    if (e->done < e->recorded) { (void)want(e->stream, e->place); progress(); }
    CUDA_END(e->done < e->recorded ? cudaErrorNotReady : cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int flags) {
    op *o;
    CUDA_BEGIN();
    (void)flags;
    if (e->done < e->recorded) { o = make(OP_WAIT); o->event = e; o->version = e->recorded; o->other = e->stream; o->place = e->place; (void)give(s, o); }
    CUDA_END(cudaSuccess);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *argument) {
    op *o;
    pthread_mutex_lock(&lock);
    o = make(OP_HOST); o->fn = fn; o->argument = argument; (void)give(s, o);
    CUDA_END(cudaSuccess);
}
void mock_hold(cudaStream_t s) { pthread_mutex_lock(&lock); (void)give(s, make(OP_HOLD)); pthread_mutex_unlock(&lock); }
static cudaError_t allocate(void **memory, size_t bytes, int is_pinned) {
    pthread_mutex_lock(&lock);
    if (is_pinned && cuda_fails()) CUDA_END(cudaErrorUnknown);
    if (block_count == OBJECTS) abort();
    *memory = malloc(bytes); if (!*memory) abort();
    blocks[block_count].memory = *memory; blocks[block_count].bytes = bytes; blocks[block_count++].is_pinned = is_pinned;
    CUDA_END(cudaSuccess);
}
static int inside(const void *x, size_t n, const block *b) {
    return (const char *)x >= (char *)b->memory && (const char *)x + n <= (char *)b->memory + b->bytes;
}
/* Waits for all of the device: here it looks whether that would end. */
static cudaError_t release(void *memory, int is_pinned) {
    int i; cudaStream_t s;
    if (!memory) return cudaSuccess;
    pthread_mutex_lock(&lock);
    for (i = 0; i < block_count && blocks[i].memory != memory; ++i) {}
    if (i == block_count || blocks[i].is_pinned != is_pinned) { find("memory is freed that is none", device); CUDA_END(cudaErrorInvalidValue); }
    for (s = streams; s; s = s->next) if (s->device == device) (void)want(s, s->given);
    finish();
    for (s = streams; s; s = s->next) if (s->device == device && s->first) find("memory is freed while the device is at work: for ever", device);
    blocks[i] = blocks[--block_count];
    free(memory);
    CUDA_END(cudaSuccess);
}
cudaError_t cudaMalloc(void **memory, size_t bytes) { return allocate(memory, bytes, 0); }
cudaError_t cudaMallocHost(void **memory, size_t bytes) { return allocate(memory, bytes, 1); }
cudaError_t cudaFree(void *memory) { return release(memory, 0); }
cudaError_t cudaFreeHost(void *memory) { return release(memory, 1); }

/* ---- NCCL ---- */
const char *ncclGetErrorString(ncclResult_t r) {
    return r == ncclRemoteError ? "remote error" : r == ncclSystemError ? "system error" : r == ncclInternalError ? "internal error" : "another error";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    pthread_mutex_lock(&lock); (void)snprintf(id->internal, sizeof id->internal, "%d", ++ids); pthread_mutex_unlock(&lock);
    return ncclSuccess;
}
/* A call that can fail, of a device; `comm` NULL: it is being made. With the lock. */
static ncclResult_t enter(ncclComm_t comm, int own) {
    const unsigned long n = ++nccl_calls[own];
    if (device != own) find("a call on another rank's device", own);
    if (comm && comm->life >= FINALIZING) { find("a call after the end", own); return ncclInvalidUsage; }
    if (comm && (comm->life == JOINING || comm->polls || comm->for_ever || comm->connects || comm->child)) { find("a call before the one before is through", own); return ncclInvalidUsage; }
    if (hits(MOCK_CALL, own, n)) return faults[MOCK_CALL][own].result;
    if (comm && comm->async) return comm->async;
    if (comm && hits(MOCK_ASYNC, own, n)) comm->async = faults[MOCK_ASYNC][own].result;
    return ncclSuccess;
}
static void take_in(ncclComm_t c) {
    op *o = c->pending;
    if (!o) return;
    c->pending = NULL;
    (void)give(c->stream, o);
}
/* The call has been made: through now, or after a few polls. */
static ncclResult_t leave(ncclComm_t c) {
    if (hits(MOCK_PROGRESS, c->device, nccl_calls[c->device])) c->for_ever = 1;
    c->polls = delay;
    if (c->pending && c->pending->call == CALL_PIECES && c->pending->sequence == 1) { c->connects = delay > 0; ++c->w->connecting; }
    if (c->polls || c->for_ever) return ncclInProgress;
    take_in(c);
    return c->life == FINALIZING ? ncclInProgress : ncclSuccess;
}
static ncclComm_t comm_make(const char *id, int count, int rank) {
    world *w; ncclComm_t c;
    for (w = worlds; w && memcmp(w->id, id, sizeof w->id); w = w->next) {}
    if (!w) {
        w = (world *)calloc(1, sizeof *w); if (!w) abort();
        memcpy(w->id, id, sizeof w->id); w->count = count; w->next = worlds; worlds = w;
    }
    c = (ncclComm_t)calloc(1, sizeof *c); if (!c) abort();
    if (w->count != count || w->comms[rank]) find("a rank that is there already", device);
    c->w = w; c->rank = rank; c->device = device; c->life = JOINING; c->next = comms; comms = c; w->comms[rank] = c; ++w->joined;
    return c;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int count, ncclUniqueId id, int rank, ncclConfig_t *config) {
    ncclComm_t c; ncclResult_t r;
    pthread_mutex_lock(&lock);
    r = enter(NULL, rank);
    if (r) { pthread_mutex_unlock(&lock); return r; }
    if (config->blocking != 0 || config->magic != 0xcafebeef || config->size != sizeof *config) find("a communicator that blocks", rank);
    c = comm_make(id.internal, count, rank);
    (void)leave(c);
    *out = c;
    pthread_mutex_unlock(&lock);
    return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    ncclResult_t r;
    pthread_mutex_lock(&lock);
    r = enter(c, c->device);
    *out = NULL;
    if (config) find("a group that is not like its parent", c->device);
    if (c->stream && c->stream->first) find("a split while calls are under way", c->device);
    if (!r && (c->splits == SPLITS || color < NCCL_SPLIT_NOCOLOR)) r = ncclInvalidArgument;
    if (!r) {
        c->split[c->splits].color = color; c->split[c->splits++].key = key; c->child = out;
        (void)leave(c);
        r = ncclInProgress;
    }
    pthread_mutex_unlock(&lock);
    return r;
}
/* All ranks have asked for theirs. */
static void split_end(ncclComm_t c) {
    const int n = c->splits - 1, color = c->split[n].color, key = c->split[n].key;
    char id[NCCL_UNIQUE_ID_BYTES] = ""; int r, count = 0, before = 0;
    for (r = 0; r < c->w->count; ++r) if (c->w->comms[r]->split[n].color == color) {
        const int other = c->w->comms[r]->split[n].key;
        ++count; before += other < key || (other == key && r < c->rank);
    }
    (void)snprintf(id, sizeof id, "%.40s.%d.%d", c->w->id, n, color);
    *c->child = color == NCCL_SPLIT_NOCOLOR ? NULL : comm_make(id, count, before);
    if (*c->child) (*c->child)->life = WORKING;
    c->child = NULL;
}
static int split_has_all(const struct ncclComm *c) {
    int r;
    for (r = 0; r < c->w->count; ++r) if (!c->w->comms[r] || c->w->comms[r]->life >= ABORTED || c->w->comms[r]->splits < c->splits) return 0;
    return 1;
}
static ncclResult_t ask(ncclComm_t c, int *out, int value) {
    ncclResult_t r;
    pthread_mutex_lock(&lock); r = enter(c, c->device); *out = value; pthread_mutex_unlock(&lock);
    return r;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank) { return ask(c, rank, c->rank); }
ncclResult_t ncclCommCount(const ncclComm_t c, int *count) { return ask(c, count, c->w->count); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out) {
    ncclResult_t r = ncclSuccess; int waits;
    pthread_mutex_lock(&lock);
    if (c->life >= ABORTED) { find("a question after the end", c->device); r = ncclInvalidArgument; }
    else if (c->async) *out = c->async;
    else if (c->for_ever || c->polls > 0) { *out = ncclInProgress; if (!c->for_ever && !--c->polls && !c->connects) take_in(c); }
    else if (c->connects) { *out = ncclInProgress; if (c->w->connecting == c->w->count) { c->connects = 0; take_in(c); } }
    else if (c->child) { *out = ncclInProgress; if (split_has_all(c)) { split_end(c); *out = ncclSuccess; } }
    else if (c->life == JOINING) { if (c->w->joined == c->w->count) c->life = WORKING; *out = c->life == JOINING ? ncclInProgress : ncclSuccess; }
    else if (c->life == FINALIZING) {
        if (c->w->finalized == c->w->count) c->life = FINALIZED;
        *out = c->life == FINALIZED ? ncclSuccess : ncclInProgress;
    } else *out = ncclSuccess;
    waits = !r && !c->async && !c->polls && *out == ncclInProgress;
    pthread_mutex_unlock(&lock);
    if (waits) mock_nap();
    return r;
}
ncclResult_t ncclCommFinalize(ncclComm_t c) {
    ncclResult_t r;
    pthread_mutex_lock(&lock);
    r = enter(c, c->device);
    if (!r) { c->life = FINALIZING; ++c->w->finalized; r = leave(c); }
    pthread_mutex_unlock(&lock);
    return r;
}
static ncclResult_t end(ncclComm_t c, mock_fault hang, comm_life life) {
    int r;
    pthread_mutex_lock(&lock);
    if (device != c->device) find("the end on another rank's device", c->device);
    if (c->life >= ABORTED) find("ended twice", c->device);
    if (life == DESTROYED && c->life != FINALIZED) find("destroyed, and not finalized", c->device);
    if (life == ABORTED) ++aborts[c->device];
    while (faults[hang][c->device].n && !is_released) pthread_cond_wait(&released, &lock);
    c->life = life;
    for (r = 0; life == ABORTED && remote_errors && r < c->w->count; ++r)
        if (c->w->comms[r] && c->w->comms[r]->life < ABORTED && !c->w->comms[r]->async) c->w->comms[r]->async = ncclRemoteError;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) { return end(c, MOCK_ABORT, ABORTED); }
ncclResult_t ncclCommDestroy(ncclComm_t c) { return end(c, MOCK_DESTROY, DESTROYED); }
static void must_reach(const void *x, size_t n, int rank) {
    int i;
    for (i = 0; i < block_count && !inside(x, n, &blocks[i]); ++i) {}
    if (i == block_count) find("memory that the device does not reach", rank);
}
static ncclResult_t submit(ncclComm_t c, op *o, cudaStream_t s) { /* o is the library's from here on */
    if (c->stream && c->stream != s) find("another stream than before", c->device);
    c->stream = s; o->comm = c; o->sequence = ++c->sequence; c->pending = o;
    return leave(c);
}
static ncclResult_t collective(call_kind kind, const void *send, void *receive, size_t n, size_t sends, size_t receives, int root, ncclDataType_t type, ncclComm_t c, cudaStream_t s) {
    ncclResult_t r; op *o;
    pthread_mutex_lock(&lock);
    r = enter(c, c->device);
    if (depth) find("a call of all ranks in a group", c->device);
    if (type != ncclUint8) find("another type than bytes", c->device);
    if (!r) {
        must_reach(send, n * sends, c->device); must_reach(receive, n * receives, c->device);
        o = make(OP_CALL); o->call = kind; o->send = send; o->receive = receive; o->bytes = n; o->root = root;
        r = submit(c, o, s);
    }
    pthread_mutex_unlock(&lock);
    return r;
}
ncclResult_t ncclAllGather(const void *send, void *receive, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t s) {
    return collective(CALL_ALL_GATHER, send, receive, n, 1, (size_t)c->w->count, 0, type, c, s);
}
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t n, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t s) {
    return collective(CALL_BROADCAST, send, receive, n, 1, 1, root, type, c, s);
}
#if NCCL_VERSION_CODE >= 22800
ncclResult_t ncclAlltoAll(const void *send, void *receive, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t s) {
    return collective(CALL_ALL_TO_ALL, send, receive, n, (size_t)c->w->count, (size_t)c->w->count, 0, type, c, s);
}
#endif
ncclResult_t ncclGroupStart(void); /* nccl.h leaves out the void */
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupStart(void) {
    pthread_mutex_lock(&lock);
    ++nccl_calls[device];
    if (hits(MOCK_CALL, device, nccl_calls[device])) { const ncclResult_t r = faults[MOCK_CALL][device].result; pthread_mutex_unlock(&lock); return r; }
    ++depth;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}
static ncclResult_t add(int is_send, const void *from, void *to, size_t n, int peer, ncclDataType_t type, ncclComm_t c, cudaStream_t s) {
    ncclResult_t r; piece *p;
    pthread_mutex_lock(&lock);
    r = enter(c, c->device);
    if (!depth) find("a piece without a group", c->device);
    if (type != ncclUint8) find("another type than bytes", c->device);
    if (!r) {
        if (!group) { group = make(OP_CALL); group->call = CALL_PIECES; group->comm = c; }
        if (c->stream && c->stream != s) find("another stream than before", c->device);
        c->stream = s;
        must_reach(is_send ? from : to, n, c->device);
        if (peer < 0 || peer >= c->w->count || group->piece_count == PIECES) abort();
        p = &group->pieces[group->piece_count++];
        p->is_send = is_send; p->peer = peer; p->from = from; p->to = to; p->bytes = n;
    }
    if (!r && delay) r = ncclInProgress; /* allowed, and nothing that one may wait for in a group */
    pthread_mutex_unlock(&lock);
    return r;
}
ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) { return add(1, from, NULL, n, peer, type, c, s); }
ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) { return add(0, NULL, to, n, peer, type, c, s); }
ncclResult_t ncclGroupEnd(void) {
    ncclResult_t r = ncclSuccess; op *o = group;
    pthread_mutex_lock(&lock);
    if (--depth < 0) { find("the end of no group", device); depth = 0; }
    ++nccl_calls[device];
    if (hits(MOCK_CALL, device, nccl_calls[device])) { r = faults[MOCK_CALL][device].result; free(o); group = NULL; }
    else if (o && !depth) {
        if (hits(MOCK_ASYNC, device, nccl_calls[device])) o->comm->async = faults[MOCK_ASYNC][device].result;
        group = NULL;
        r = submit(o->comm, o, o->comm->stream);
    }
    pthread_mutex_unlock(&lock);
    return r;
}
