/* nccl.cpp - NCCL on the simulator: ranks are threads that take turns, see include/nccl.h, each with streams of its own,
   on one device or several; or, with SIMULATOR_PROCESSES=1 in the environment, processes of one machine. With
   SIMULATOR_APART=1 there each must have a device of its own, as NCCL wants it.

   Calls    The first of a communicator is in progress until all ranks have come to theirs, as they connect. Any other is in
            the rank's stream at once, and the host goes on. Its stream stands there until the streams of all ranks have
            come to their call of the same number; those of a rank's other communicators go on beside it.
   Memory   All ranks of a communicator share a page of what each has done, and a box for each: in anonymous memory, or in a
            file of /dev/shm. In a stream a call is two operations. One puts what the rank sends into its box, once all
            have taken what the box had before. The other takes what is for the rank, once all boxes are full.
   Failure  A rank that aborts, a call that CUDA refuses, or a process that is gone is a remote error to all ranks of the
            communicator. Its calls end then, and move nothing. A process has a lock on a byte of the file as long as it
            lives. With SIMULATOR_NCCL_FAILS=N in the environment the N-th call of this program fails. */
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
#include <algorithm>
#include <atomic>
#include <string>
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

/* ---- communicators ---- */
enum { RANKS = 16, PIECES = 2 * RANKS, SPLITS = 64 };
enum : size_t { BOX = (size_t)256 << 20, BOXES_AT = (size_t)1 << 20 }; /* pages that nobody writes are none */
enum { PIECES_OF, ALL_GATHER, BROADCAST, ALL_TO_ALL };
struct piece { bool is_send; int peer; const void *from; void *to; size_t bytes; };
struct call {
    int kind, root, piece_count;
    const void *send; void *receive; size_t bytes;
    piece pieces[PIECES];
    cudaStream_t stream;
};
struct shared_piece { int peer; size_t at, bytes; };
struct shared_rank {
    std::atomic<uint64_t> made, filled, emptied; /* calls: of the host; in its box; taken out of all boxes */
    std::atomic<int> joined, finalized, splits;
    int device, kind, root, piece_count;
    size_t bytes;
    shared_piece pieces[PIECES];
    struct { int color, key; } split[SPLITS];
};
struct shared_world { std::atomic<int> lost; shared_rank ranks[RANKS]; };
static_assert(sizeof(shared_world) <= BOXES_AT, "the boxes begin behind it");
struct world { /* what a process has of a communicator: one for all its ranks */
    std::string name; /* of processes: the file's */
    shared_world *shared;
    int file;         /* -1: ranks are threads */
    int count, users; /* users: communicators, and calls in streams */
    bool is_own[RANKS];
};
struct ncclComm {
    world *w; int rank;
    ncclComm_t *child; /* NULL, or where ncclCommSplit() puts made */
    ncclComm_t made;
};
struct crossing { world *w; int rank, operations; uint64_t number; call c; };

static std::vector<world *> worlds;
static std::vector<std::string> files; /* that are there until all have joined, or this program ends */
static int ids, depth;
static call grouped;
static ncclComm_t group_comm;

static bool are_processes(void) { return getenv("SIMULATOR_PROCESSES") != NULL; }
static void file_remove(const std::string &name) {
    const std::vector<std::string>::iterator i = std::find(files.begin(), files.end(), name);
    if (i == files.end()) return;
    (void)unlink(name.c_str());
    files.erase(i);
}
static void files_remove(void) { while (!files.empty()) file_remove(std::string(files.back())); }
static void file_expect(const std::string &name) {
    if (std::find(files.begin(), files.end(), name) != files.end()) return;
    if (files.empty()) (void)atexit(files_remove);
    files.push_back(name);
}
static unsigned char *box_of(const world *w, int rank) { return (unsigned char *)w->shared + BOXES_AT + (size_t)rank * BOX; }
static struct flock lock_of(int rank) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
}
static bool is_there(const world *w, int rank) {
    struct flock lock = lock_of(rank);
    return w->is_own[rank] || fcntl(w->file, F_GETLK, &lock) || lock.l_type != F_UNLCK;
}
static bool is_lost(const world *w) {
    for (int r = 0; w->file >= 0 && !w->shared->lost && r < w->count; ++r) {
        const shared_rank *const s = &w->shared->ranks[r];
        if (s->joined && !s->finalized && !is_there(w, r)) w->shared->lost = 1;
    }
    return w->shared->lost != 0;
}
template <class T> static bool all_have(const world *w, std::atomic<T> shared_rank::*what, T number) {
    for (int r = 0; r < w->count; ++r) if (w->shared->ranks[r].*what < number) return false;
    return true;
}
/* A kernel of a rank of this process waits for a call that another rank has not made. */
static int kernel_waits(void) {
    for (const world *w : worlds)
        for (int r = 0; r < w->count && !w->shared->lost; ++r)
            if (w->is_own[r] && !all_have<uint64_t>(w, &shared_rank::made, w->shared->ranks[r].made)) return 1;
    return 0;
}
static world *world_of(const std::string &name, int count, int create) { /* create: O_CREAT, or 0 where the file is there */
    const size_t bytes = BOXES_AT + (size_t)count * BOX;
    for (world *w : worlds) if (w->name == name) return w;
    world *const w = new world();
    w->name = name;
    w->count = count;
    w->file = are_processes() ? open(name.c_str(), O_RDWR | create, 0600) : -1;
    const bool wrong = are_processes() && (w->file < 0 || ftruncate(w->file, (off_t)bytes));
    void *const at = wrong ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, are_processes() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, w->file, 0);
    if (at == MAP_FAILED) { delete w; return NULL; }
    w->shared = (shared_world *)at;
    worlds.push_back(w);
    if (are_processes() && create) file_expect(name);
    return w;
}
static void world_leave(world *w) {
    if (--w->users || (!w->shared->lost && !all_have(w, &shared_rank::joined, 1))) return;
    (void)munmap(w->shared, BOXES_AT + (size_t)w->count * BOX);
    if (w->file >= 0) (void)close(w->file);
    worlds.erase(std::find(worlds.begin(), worlds.end(), w));
    delete w;
}
static ncclComm_t join(const std::string &name, int count, int rank, int create) {
    world *const w = world_of(name, count, create);
    struct flock lock = lock_of(rank);
    if (!w) return NULL;
    shared_rank *const own = &w->shared->ranks[rank];
    w->is_own[rank] = true;
    ++w->users;
    if ((w->file >= 0 && fcntl(w->file, F_SETLK, &lock)) || cudaGetDevice(&own->device)) w->shared->lost = 1;
    if (own->joined.exchange(1)) w->shared->lost = 1;
    for (int r = 0; getenv("SIMULATOR_APART") && r < count; ++r)
        if (r != rank && w->shared->ranks[r].joined && w->shared->ranks[r].device == own->device) w->shared->lost = 1;
    simulator_ranks(kernel_waits, simulator_yield);
    return new ncclComm{ w, rank, NULL, NULL };
}

/* ---- calls ---- */
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
static int is_through(const crossing *x, std::atomic<uint64_t> shared_rank::*what, uint64_t number) {
    if (all_have(x->w, what, number) || is_lost(x->w)) return 1;
    if (x->w->file >= 0) usleep(20);
    return 0;
}
static int may_fill(void *x) { return is_through((crossing *)x, &shared_rank::emptied, ((crossing *)x)->number - 1); }
/* Pieces for the host are there as they come, and show who has not. */
static void show_pieces(const crossing *x) {
    for (int k = 0; k < x->c.piece_count; ++k) {
        const piece *const own = &x->c.pieces[k];
        const shared_rank *const from = &x->w->shared->ranks[own->peer];
        if (own->is_send || from->filled < x->number || !simulator_is_pinned(own->to)) continue;
        for (int i = 0; i < from->piece_count; ++i)
            if (from->pieces[i].peer == x->rank) memcpy(own->to, box_of(x->w, own->peer) + from->pieces[i].at, from->pieces[i].bytes);
    }
}
static int may_empty(void *argument) {
    const crossing *const x = (const crossing *)argument;
    if (is_through(x, &shared_rank::filled, x->number)) return 1;
    if (x->c.kind == PIECES_OF) show_pieces(x);
    return 0;
}
static void fill(void *argument) {
    const crossing *x = (const crossing *)argument;
    if (x->w->shared->lost) return;
    fill_box(x);
    x->w->shared->ranks[x->rank].filled = x->number;
}
static void empty(void *argument) {
    const crossing *x = (const crossing *)argument;
    if (x->w->shared->lost) return;
    empty_boxes(x);
    x->w->shared->ranks[x->rank].emptied = x->number;
}
static void crossed(void *argument) {
    crossing *x = (crossing *)argument;
    if (--x->operations) return;
    world_leave(x->w);
    delete x;
}
static bool give(crossing *x, int (*is_ready)(void *), void (*fn)(void *)) {
    ++x->operations;
    if (!simulator_awaiting_function(x->c.stream, is_ready, fn, crossed, x)) return true;
    --x->operations;
    return false;
}
/* What a call that was begun before has come to. */
static ncclResult_t progress(ncclComm_t comm) {
    const world *w = comm->w;
    const shared_rank *own = &w->shared->ranks[comm->rank];
    if (is_lost(w)) return ncclRemoteError;
    if (all_have(w, &shared_rank::joined, 1)) file_remove(w->name);
    const bool goes_on = all_have(w, &shared_rank::joined, 1) && all_have<uint64_t>(w, &shared_rank::made, own->made > 0)
                      && (!own->finalized || all_have(w, &shared_rank::finalized, 1))
                      && (!comm->child || all_have<int>(w, &shared_rank::splits, own->splits));
    if (goes_on) return ncclSuccess;
    if (w->file >= 0) usleep(100);
    return ncclInProgress;
}
static ncclResult_t submit(ncclComm_t comm, const call &c) {
    static long calls_left = getenv("SIMULATOR_NCCL_FAILS") ? atol(getenv("SIMULATOR_NCCL_FAILS")) : 0;
    world *w = comm->w;
    if (is_lost(w)) return ncclRemoteError;
    if (calls_left && !--calls_left) return ncclInternalError;
    crossing *x = new crossing{ w, comm->rank, 1, ++w->shared->ranks[comm->rank].made, c };
    ++w->users;
    const bool is_given = give(x, may_fill, fill) && give(x, may_empty, empty);
    crossed(x);
    if (is_given) return progress(comm);
    (void)cudaGetLastError();
    w->shared->lost = 1;
    return ncclUnhandledCudaError;
}
static ncclResult_t whole(int kind, const void *send, void *receive, size_t bytes, int root, ncclComm_t comm, cudaStream_t stream) {
    call c;
    memset(&c, 0, sizeof c);
    c.kind = kind; c.root = root; c.send = send; c.receive = receive; c.bytes = bytes; c.stream = stream;
    return submit(comm, c);
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
ncclResult_t ncclGroupEnd(void) { return --depth || !group_comm ? ncclSuccess : submit(group_comm, grouped); }
static ncclResult_t add(bool is_send, const void *from, void *to, size_t bytes, int peer, ncclComm_t comm, cudaStream_t stream) {
    if (!depth || grouped.piece_count == PIECES) return ncclInvalidUsage;
    piece *p = &grouped.pieces[grouped.piece_count++];
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

/* ---- to open and to close ---- */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    if (!are_processes()) { (void)snprintf(id->internal, sizeof id->internal, "%d", ++ids); return ncclSuccess; }
    (void)snprintf(id->internal, sizeof id->internal, "/dev/shm/simulator_nccl.XXXXXX");
    const int file = mkstemp(id->internal);
    if (file < 0) return ncclSystemError;
    (void)close(file);
    file_expect(id->internal);
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int count, ncclUniqueId id, int rank, ncclConfig_t *) {
    *comm = NULL;
    if (count > RANKS) return ncclInvalidArgument;
    *comm = join(id.internal, count, rank, 0);
    return !*comm || (*comm)->w->shared->lost ? ncclSystemError : progress(*comm);
}
/* The ranks of this one's color, in the order of their keys, and of their ranks where keys are equal. */
static ncclComm_t split_join(ncclComm_t comm) {
    const shared_rank *const ranks = comm->w->shared->ranks;
    const int number = ranks[comm->rank].splits - 1, color = ranks[comm->rank].split[number].color, key = ranks[comm->rank].split[number].key;
    int count = 0, before = 0;
    for (int r = 0; r < comm->w->count; ++r) {
        if (ranks[r].split[number].color != color) continue;
        const int other = ranks[r].split[number].key;
        ++count;
        before += other < key || (other == key && r < comm->rank);
    }
    return join(comm->w->name + "." + std::to_string(number) + "." + std::to_string(color), count, before, O_CREAT);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *) {
    shared_rank *const own = &comm->w->shared->ranks[comm->rank];
    *child = NULL;
    if (is_lost(comm->w)) return ncclRemoteError;
    if (comm->child || own->splits == SPLITS || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) return ncclInvalidArgument;
    own->split[own->splits].color = color;
    own->split[own->splits].key = key;
    ++own->splits;
    comm->child = child;
    return ncclInProgress;
}
/* The new communicator is where it was asked for when all of it have joined, and not before. */
static ncclResult_t split_progress(ncclComm_t comm) {
    const shared_rank *const own = &comm->w->shared->ranks[comm->rank];
    const bool is_none = own->split[own->splits - 1].color == NCCL_SPLIT_NOCOLOR;
    if (!is_none && !comm->made && !(comm->made = split_join(comm))) return ncclSystemError;
    const ncclResult_t result = is_none ? ncclSuccess : progress(comm->made);
    if (result) return result;
    *comm->child = comm->made;
    comm->made = NULL;
    comm->child = NULL;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) { *count = comm->w->count; return ncclSuccess; }
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) { *rank = comm->rank; return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
    *result = progress(comm);
    if (!*result && comm->child) *result = split_progress(comm);
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    if (is_lost(comm->w)) return ncclRemoteError;
    comm->w->shared->ranks[comm->rank].finalized = 1;
    return progress(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (comm->made) (void)ncclCommAbort(comm->made);
    world_leave(comm->w);
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->w->shared->lost = 1;
    return ncclCommDestroy(comm);
}
const char *ncclGetErrorString(ncclResult_t result) { return result == ncclRemoteError ? "remote error" : "an error of NCCL"; }
