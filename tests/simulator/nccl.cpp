/* nccl.cpp - NCCL on the simulator: ranks are threads that take turns, see include/nccl.h, each with streams of its own,
   on one device or several, or, with SIMULATOR_PROCESSES=1 in the environment, processes of one machine; with SIMULATOR_APART=1 in the environment each must have a device of its own, as NCCL wants
   it. A call begins when its last rank has come to it; until then ncclCommGetAsyncError() says ncclInProgress. It is then
   in every rank's stream, behind an event of each of them, and what a rank is sent arrives as late as the simulator's
   streams like. A rank that aborts, or a call that CUDA refuses, is a remote error to all. */
#include "simulator.h"
#include "nccl.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
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
struct shared_world;
struct world {
    shared_world *shared; /* of processes; NULL: ranks are threads */
    int shared_file;
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
/* ---- processes: a file in memory that all of them map ----
   A call begins when all have come to it, as above. It is one operation of each rank's stream: what the rank sends goes into
   its box, once all have emptied it of the call before; and what is for the rank comes out of the others' boxes, once that is
   in them. So a rank waits within an operation for ranks that have come, and for no other. Each rank locks a byte of the file:
   a byte that is free is that of a process which is gone. */
enum : size_t { BOX = (size_t)256 << 20, BOXES_AT = (size_t)1 << 20 }; /* pages that nobody writes are none */
struct shared_piece { int peer; size_t at, bytes; };
struct shared_rank {
    std::atomic<uint64_t> arrived, filled, emptied; /* calls */
    std::atomic<int> joined, ended;
    int device, kind, root, piece_count;
    size_t bytes;
    shared_piece pieces[PIECES];
};
struct shared_world { std::atomic<int> lost; shared_rank ranks[RANKS]; };
struct crossing { world *w; int rank; uint64_t number; call c; };

static unsigned char *box_of(const world *w, int rank) { return (unsigned char *)w->shared + BOXES_AT + (size_t)rank * BOX; }
static bool is_there(const world *w, int rank) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_start = rank;
    lock.l_len = 1;
    return fcntl(w->shared_file, F_GETLK, &lock) || lock.l_type != F_UNLCK;
}
static bool shared_is_lost(const world *w, int own) {
    for (int r = 0; r < w->count; ++r)
        if (r != own && w->shared->ranks[r].joined && !w->shared->ranks[r].ended && !is_there(w, r)) w->shared->lost = 1;
    return w->shared->lost != 0;
}
/* false: somebody is gone */
static bool await_all(const world *w, int own, std::atomic<uint64_t> shared_rank::*what, uint64_t number) {
    for (int r = 0, polls = 0; r < w->count;) {
        if (w->shared->ranks[r].*what >= number) { ++r; continue; }
        if (++polls % 64 == 0 && shared_is_lost(w, own)) return false;
        usleep(20);
    }
    return true;
}
static void fill_box(const crossing *x) {
    shared_rank *own = &x->w->shared->ranks[x->rank];
    unsigned char *box = box_of(x->w, x->rank);
    size_t at = 0;
    own->kind = x->c.kind; own->root = x->c.root; own->bytes = x->c.bytes; own->piece_count = 0;
    if (x->c.kind == PIECES_OF) {
        for (int i = 0; i < x->c.piece_count; ++i) {
            const piece *p = &x->c.pieces[i];
            if (!p->is_send) continue;
            shared_piece *to = &own->pieces[own->piece_count++];
            to->peer = p->peer; to->at = at; to->bytes = p->bytes;
            at += p->bytes;
            if (at > BOX) abort();
            memcpy(box + to->at, p->from, p->bytes);
        }
        return;
    }
    if (x->c.kind == BROADCAST && x->rank != x->c.root) return;
    at = x->c.bytes * (x->c.kind == ALL_TO_ALL ? (size_t)x->w->count : 1);
    if (at > BOX) abort();
    memcpy(box, x->c.send, at);
}
static void empty_boxes(const crossing *x) {
    for (int from = 0; from < x->w->count; ++from) {
        const shared_rank *s = &x->w->shared->ranks[from];
        const unsigned char *box = box_of(x->w, from);
        unsigned char *const to = (unsigned char *)x->c.receive;
        if (s->kind == ALL_GATHER) memcpy(to + (size_t)from * s->bytes, box, s->bytes);
        else if (s->kind == ALL_TO_ALL) memcpy(to + (size_t)from * s->bytes, box + (size_t)x->rank * s->bytes, s->bytes);
        else if (s->kind == BROADCAST && from == s->root) memcpy(to, box, s->bytes);
        else if (s->kind == PIECES_OF)
            for (int i = 0; i < s->piece_count; ++i)
                for (int k = 0; s->pieces[i].peer == x->rank && k < x->c.piece_count; ++k)
                    if (!x->c.pieces[k].is_send && x->c.pieces[k].peer == from) memcpy(x->c.pieces[k].to, box + s->pieces[i].at, s->pieces[i].bytes);
    }
}
static void cross(void *argument) {
    const crossing *x = (const crossing *)argument;
    shared_rank *own = &x->w->shared->ranks[x->rank];
    if (!await_all(x->w, x->rank, &shared_rank::emptied, x->number - 1)) return;
    fill_box(x);
    own->filled = x->number;
    if (!await_all(x->w, x->rank, &shared_rank::filled, x->number)) return;
    empty_boxes(x);
    own->emptied = x->number;
}
static void crossed(void *argument) { delete (crossing *)argument; }
static ncclResult_t shared_arrive(ncclComm_t comm, const call &c) {
    world *w = comm->w;
    w->calls[comm->rank] = c;
    w->waits[comm->rank] = true;
    ++w->shared->ranks[comm->rank].arrived;
    simulator_kernel_waits(1);
    return ncclInProgress;
}
/* When all have come, the call is in this rank's stream. */
static ncclResult_t shared_progress(ncclComm_t comm) {
    world *w = comm->w;
    const uint64_t number = w->shared->ranks[comm->rank].arrived;
    if (shared_is_lost(w, comm->rank)) { simulator_kernel_waits(0); return ncclRemoteError; }
    for (int r = 0; r < w->count; ++r)
        if (!w->shared->ranks[r].joined || w->shared->ranks[r].arrived < number) { usleep(100); return ncclInProgress; }
    w->is_connected = true;
    if (!w->waits[comm->rank]) return ncclSuccess;
    w->waits[comm->rank] = false;
    simulator_kernel_waits(0);
    crossing *x = new crossing{ w, comm->rank, number, w->calls[comm->rank] };
    if (!simulator_host_function(x->c.stream, cross, crossed, x)) return ncclSuccess;
    (void)cudaGetLastError();
    delete x;
    w->shared->lost = 1;
    return ncclUnhandledCudaError;
}
static bool shared_open(ncclComm_t comm, const char *path, int count, int rank) {
    world *w = comm->w = new world();
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_start = rank;
    lock.l_len = 1;
    comm->rank = rank;
    w->count = count;
    w->shared_file = open(path, O_RDWR);
    if (w->shared_file < 0 || fcntl(w->shared_file, F_SETLK, &lock)) return false;
    void *const at = mmap(NULL, BOXES_AT + (size_t)count * BOX, PROT_READ | PROT_WRITE, MAP_SHARED, w->shared_file, 0);
    if (at == MAP_FAILED) return false;
    w->shared = (shared_world *)at;
    shared_rank *own = &w->shared->ranks[rank];
    if (cudaGetDevice(&own->device) || own->joined.exchange(1)) return false;
    for (int r = 0; r < count && getenv("SIMULATOR_APART"); ++r)
        if (r != rank && w->shared->ranks[r].joined && w->shared->ranks[r].device == own->device) w->shared->lost = 1;
    return true;
}
static void shared_close(ncclComm_t comm) { /* the stream is through, or the program ends */
    comm->w->shared->ranks[comm->rank].ended = 1;
    delete comm;
}
static char shared_path[NCCL_UNIQUE_ID_BYTES];
static void shared_remove(void) { (void)unlink(shared_path); }
static ncclResult_t shared_make(ncclUniqueId *id) {
    snprintf(shared_path, sizeof shared_path, "%s", "/dev/shm/simulator_nccl.XXXXXX");
    const int file = mkstemp(shared_path);
    if (file < 0 || ftruncate(file, (off_t)(BOXES_AT + RANKS * BOX))) return ncclSystemError;
    (void)close(file);
    atexit(shared_remove);
    memcpy(id->internal, shared_path, sizeof shared_path);
    return ncclSuccess;
}
static bool are_processes(void) { return getenv("SIMULATOR_PROCESSES") != NULL; }

/* ---- all ranks ---- */
static ncclResult_t arrive(ncclComm_t comm, const call &c) {
    world *w = comm->w;
    if (w->shared) return shared_arrive(comm, c);
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
    if (are_processes()) return shared_make(id);
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
    if (are_processes()) return shared_open(*comm, id.internal, count, rank) ? ncclInProgress : ncclSystemError;
    (*comm)->w = world_of(number, count);
    (*comm)->rank = rank;
    join((*comm)->w, rank);
    return (*comm)->w->is_lost ? ncclSystemError : (*comm)->w->is_connected ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
    const world *w = comm->w;
    if (w->shared_file > 0) { *result = w->shared ? shared_progress(comm) : ncclSystemError; return ncclSuccess; }
    *result = w->is_lost ? ncclRemoteError : !w->is_connected || w->waits[comm->rank] ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->w->is_lost || (comm->w->shared && comm->w->shared->lost) ? ncclRemoteError : ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    world *w = comm->w;
    if (w->shared) { shared_close(comm); return ncclSuccess; }
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
    if (comm->w->shared) comm->w->shared->lost = 1;
    simulator_kernel_waits(0);
    return ncclCommDestroy(comm);
}
const char *ncclGetErrorString(ncclResult_t result) { return result == ncclRemoteError ? "remote error" : "an error of NCCL"; }
