/* nccl.cpp - NCCL on the simulator: ranks are threads that take turns, see include/nccl.h, each with streams of its own,
   on one device or several; with SIMULATOR_APART=1 in the environment each must have a device of its own, as NCCL wants
   it. A call begins when its last rank has come to it; until then ncclCommGetAsyncError() says ncclInProgress. It is then
   in every rank's stream, behind an event of each of them, and what a rank is sent arrives as late as the simulator's
   streams like. A rank that aborts, or a call that CUDA refuses, is a remote error to all. */
#include "simulator.h"
#include "nccl.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

/* ---- threads that take turns ---- */
#undef sched_yield
#undef pthread_create
#undef pthread_join
#undef pthread_detach
enum { TURNS = 64 };
struct turn {
    enum { FREE, RUNS, IS_OVER } state;
    bool is_detached;
    pthread_t thread;
    pthread_cond_t comes;
    void *(*fn)(void *);
    void *user, *result;
};
static pthread_mutex_t turns_lock = PTHREAD_MUTEX_INITIALIZER;
static turn turns[TURNS] = { { turn::RUNS, false, {}, PTHREAD_COND_INITIALIZER, NULL, NULL, NULL } }; /* the first: main() */
static int running; /* whose turn it is */
static thread_local int own_turn;

static void turn_await(void) { while (running != own_turn) (void)pthread_cond_wait(&turns[own_turn].comes, &turns_lock); }
static void turn_hand_on(void) {
    do running = (running + 1) % TURNS; while (turns[running].state != turn::RUNS);
    (void)pthread_cond_signal(&turns[running].comes);
}
int simulator_yield(void) {
    (void)pthread_mutex_lock(&turns_lock);
    turn_hand_on();
    turn_await();
    (void)pthread_mutex_unlock(&turns_lock);
    return 0;
}
static void *turn_main(void *user) {
    turn *const t = (turn *)user;
    own_turn = (int)(t - turns);
    (void)pthread_mutex_lock(&turns_lock);
    turn_await();
    (void)pthread_mutex_unlock(&turns_lock);
    t->result = t->fn(t->user);
    (void)pthread_mutex_lock(&turns_lock);
    t->state = t->is_detached ? turn::FREE : turn::IS_OVER;
    turn_hand_on();
    (void)pthread_mutex_unlock(&turns_lock);
    return t->result;
}
int simulator_thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user) {
    int i = 1;
    while (i < TURNS && turns[i].state != turn::FREE) ++i;
    if (i == TURNS) return 11;
    turn *const t = &turns[i];
    t->fn = fn;
    t->user = user;
    t->is_detached = false;
    (void)pthread_cond_init(&t->comes, NULL);
    const int wrong = pthread_create(&t->thread, attributes, turn_main, t);
    if (wrong) return wrong;
    t->state = turn::RUNS;
    *thread = t->thread;
    return 0;
}
static turn *turn_of(pthread_t thread) {
    turn *t = turns + 1;
    while (t->state == turn::FREE || !pthread_equal(t->thread, thread)) ++t;
    return t;
}
int simulator_thread_join(pthread_t thread, void **result) {
    turn *const t = turn_of(thread);
    while (t->state == turn::RUNS) (void)simulator_yield();
    t->state = turn::FREE;
    return pthread_join(thread, result);
}
int simulator_thread_detach(pthread_t thread) {
    turn *const t = turn_of(thread);
    t->is_detached = true;
    if (t->state == turn::IS_OVER) t->state = turn::FREE;
    return pthread_detach(thread);
}

/* ---- NCCL ---- */
enum { RANKS = 8, PIECES = 2 * RANKS };
enum { PIECES_OF, ALL_GATHER, BROADCAST, ALL_TO_ALL };
struct piece { bool is_send; int peer; const void *from; void *to; size_t bytes; };
struct call {
    int kind, root, piece_count;
    const void *send; void *receive; size_t bytes;
    piece pieces[PIECES];
    cudaStream_t stream;
};
struct world {
    int id, count, joined, arrived, lives;
    bool is_connected, is_lost;
    int devices[RANKS];
    call calls[RANKS];
    bool waits[RANKS];
    cudaEvent_t came[RANKS], went[RANKS];
};
struct ncclComm { world *w; int rank; };
struct delivery { call calls[RANKS]; int count, to; };

static std::vector<world *> worlds;
static int ids, depth;
static call grouped;
static ncclComm_t group_comm;

/* What rank d->to receives, from memory of all of them. */
static void deliver(void *argument) {
    const delivery *const d = (const delivery *)argument;
    const call &own = d->calls[d->to];
    simulator_reach_all(1);
    for (int from = 0; from < d->count; ++from) {
        const call &c = d->calls[from];
        unsigned char *const to = (unsigned char *)own.receive;
        if (c.kind == ALL_GATHER) memmove(to + (size_t)from * c.bytes, c.send, c.bytes);
        else if (c.kind == ALL_TO_ALL) memmove(to + (size_t)from * c.bytes, (const unsigned char *)c.send + (size_t)d->to * c.bytes, c.bytes);
        else if (c.kind == BROADCAST && from == c.root) memmove(to, c.send, c.bytes);
        else if (c.kind == PIECES_OF)
            for (int i = 0; i < c.piece_count; ++i)
                for (int k = 0; c.pieces[i].is_send && c.pieces[i].peer == d->to && k < own.piece_count; ++k)
                    if (!own.pieces[k].is_send && own.pieces[k].peer == from) memmove(own.pieces[k].to, c.pieces[i].from, c.pieces[i].bytes);
    }
    simulator_reach_all(0);
}
static void delivered(void *argument) { delete (delivery *)argument; }
static bool start(world *w) {
    bool wrong = false;
    for (int r = 0; r < w->count; ++r) wrong |= cudaEventRecord(w->came[r], w->calls[r].stream) != cudaSuccess;
    for (int r = 0; r < w->count; ++r) {
        for (int q = 0; q < w->count && q != r; ++q) wrong |= cudaStreamWaitEvent(w->calls[r].stream, w->came[q], 0) != cudaSuccess;
        for (int q = r + 1; q < w->count; ++q) wrong |= cudaStreamWaitEvent(w->calls[r].stream, w->came[q], 0) != cudaSuccess;
        if (wrong) return false;
        delivery *d = new delivery;
        memcpy(d->calls, w->calls, sizeof d->calls);
        d->count = w->count;
        d->to = r;
        if (cudaSetDevice(w->devices[r]) || simulator_host_function(w->calls[r].stream, deliver, delivered, d)) { delete d; return false; }
        if (cudaEventRecord(w->went[r], w->calls[r].stream) != cudaSuccess) return false;
    }
    for (int r = 0; r < w->count; ++r) /* what is sent is read until then */
        for (int q = 0; q < w->count; ++q) wrong |= q != r && cudaStreamWaitEvent(w->calls[r].stream, w->went[q], 0) != cudaSuccess;
    return !wrong;
}
static ncclResult_t arrive(ncclComm_t comm, const call &c) {
    world *w = comm->w;
    if (w->is_lost) return ncclRemoteError;
    w->calls[comm->rank] = c;
    w->waits[comm->rank] = true;
    simulator_kernel_waits(++w->arrived < w->count);
    if (w->arrived < w->count) return ncclInProgress;
    w->arrived = 0;
    memset(w->waits, 0, sizeof w->waits);
    const bool starts = start(w);
    if (cudaSetDevice(w->devices[comm->rank]) == cudaSuccess && starts) return ncclSuccess;
    (void)cudaGetLastError();
    w->is_lost = true;
    return ncclUnhandledCudaError;
}
static ncclResult_t whole(int kind, const void *send, void *receive, size_t bytes, int root, ncclComm_t comm, cudaStream_t stream) {
    call c;
    memset(&c, 0, sizeof c);
    c.kind = kind; c.root = root; c.send = send; c.receive = receive; c.bytes = bytes; c.stream = stream;
    return arrive(comm, c);
}
ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t, ncclComm_t comm, cudaStream_t stream) {
    return whole(ALL_GATHER, send, receive, count, 0, comm, stream);
}
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t, int root, ncclComm_t comm, cudaStream_t stream) {
    return whole(BROADCAST, send, receive, count, root, comm, stream);
}
ncclResult_t ncclAlltoAll(const void *send, void *receive, size_t count, ncclDataType_t, ncclComm_t comm, cudaStream_t stream) {
    return whole(ALL_TO_ALL, send, receive, count, 0, comm, stream);
}
ncclResult_t ncclGroupStart(void) {
    if (!depth++) { memset(&grouped, 0, sizeof grouped); group_comm = NULL; }
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) { return --depth || !group_comm ? ncclSuccess : arrive(group_comm, grouped); }
static ncclResult_t add(bool is_send, const void *from, void *to, size_t bytes, int peer, ncclComm_t comm, cudaStream_t stream) {
    piece *p = &grouped.pieces[grouped.piece_count++];
    if (!depth || grouped.piece_count > PIECES) return ncclInvalidUsage;
    p->is_send = is_send; p->peer = peer; p->from = from; p->to = to; p->bytes = bytes;
    grouped.kind = PIECES_OF; grouped.stream = stream;
    group_comm = comm;
    return ncclSuccess;
}
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(true, from, NULL, count, peer, comm, stream);
}
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(false, NULL, to, count, peer, comm, stream);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    ++ids;
    memcpy(id->internal, &ids, sizeof ids);
    return ncclSuccess;
}
static world *world_of(int id, int count) {
    for (world *w : worlds) if (w->id == id) return w;
    world *w = new world();
    w->id = id;
    w->count = count;
    worlds.push_back(w);
    return w;
}
/* What a rank brings: events of its device, which is its own where that is asked for. */
static void join(world *w, int rank) {
    const char *const apart = getenv("SIMULATOR_APART");
    const bool wrong = cudaGetDevice(&w->devices[rank]) != cudaSuccess
                    || cudaEventCreateWithFlags(&w->came[rank], cudaEventDisableTiming) != cudaSuccess
                    || cudaEventCreateWithFlags(&w->went[rank], cudaEventDisableTiming) != cudaSuccess;
    if (wrong) (void)cudaGetLastError();
    w->is_lost |= wrong;
    for (int r = 0; apart && r < w->count; ++r)
        w->is_lost |= r != rank && w->came[r] && w->devices[r] == w->devices[rank];
    ++w->lives;
    w->is_connected = ++w->joined == w->count;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int count, ncclUniqueId id, int rank, ncclConfig_t *) {
    int number;
    *comm = NULL;
    if (count > RANKS) return ncclInvalidArgument;
    memcpy(&number, id.internal, sizeof number);
    *comm = new ncclComm;
    (*comm)->w = world_of(number, count);
    (*comm)->rank = rank;
    join((*comm)->w, rank);
    return (*comm)->w->is_lost ? ncclSystemError : (*comm)->w->is_connected ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
    const world *w = comm->w;
    *result = w->is_lost ? ncclRemoteError : !w->is_connected || w->waits[comm->rank] ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->w->is_lost ? ncclRemoteError : ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    world *w = comm->w;
    delete comm;
    if (--w->lives || (w->joined < w->count && !w->is_lost)) return ncclSuccess;
    for (int r = 0; r < w->count; ++r) {
        if (w->came[r]) (void)cudaEventDestroy(w->came[r]);
        if (w->went[r]) (void)cudaEventDestroy(w->went[r]);
    }
    for (size_t i = 0; i < worlds.size(); ++i) if (worlds[i] == w) worlds.erase(worlds.begin() + (long)i--);
    delete w;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->w->is_lost = true;
    simulator_kernel_waits(0);
    return ncclCommDestroy(comm);
}
const char *ncclGetErrorString(ncclResult_t result) { return result == ncclRemoteError ? "remote error" : "an error of NCCL"; }
