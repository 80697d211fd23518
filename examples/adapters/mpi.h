/* mpi.h - memopt's ranks over MPI: Open MPI, MPICH, or any other of version 3 or later. Copy it.

   DO THIS   #include <mpi.h>, then memopt.h, then this file
                 MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
                 memopt_mpi mpi;
                 memopt_mpi_open(&mpi, MPI_COMM_WORLD, 60, &desc.transport);    (seconds that a call may take)
                 memopt_comm_create(&desc, &comm);
                 ...                                   (after a failure: memopt_mpi_close(&mpi, 1), before all else)
                 memopt_comm_destroy(comm);
                 memopt_mpi_close(&mpi, 0);
                 MPI_Finalize();
   WHAT      moves bytes, and adds nothing. A piece may have any number of bytes.
   FAILURE   MPI cannot take back a call, nor wake who waits for a rank that does not come. So a rank that gives up, or
             whose call takes longer than it may, tells the others on a communicator of its own, and the calls of all
             return a status. It names the rank that gave up, or the only one that does not answer within a second; when
             several do not, or all do, it names none.
             What has failed goes on inside MPI, which may still write: the memory of all calls that were begun, and the
             comm, stay until memopt_mpi_close(): it comes before memopt_comm_destroy(), memopt_shard_close() and all that
             gives memory back. After a failure it calls MPI_Abort(), which ends all processes, also one that is stuck.
             mpirun itself ends all when a process dies.
   THREADS   MPI is called by the thread that calls memopt_comm, and by no other. */
#ifndef MEMOPT_MPI_H
#define MEMOPT_MPI_H
#include <limits.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#  include <sched.h>
#  define MEMOPT_MPI_YIELD() (void)sched_yield() /* there may be more ranks than processors */
#else
#  define MEMOPT_MPI_YIELD() ((void)0)
#endif
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

/* What ranks say to each other: the tag of a message, which has the culprit in it, or nothing. */
typedef enum memopt_mpi_word { MEMOPT_MPI_ASK, MEMOPT_MPI_HERE, MEMOPT_MPI_GAVE_UP, MEMOPT_MPI_LATE } memopt_mpi_word;

typedef struct memopt_mpi { /* stays where it is, from open to close */
    MPI_Comm    calls, words;       /* communicators of its own: for what is moved, and for what ranks say */
    int         rank, rank_count;
    double      deadline;           /* seconds; 0 = none */
    MPI_Request requests[MEMOPT_COMM_SLOTS];
    MPI_Datatype types[MEMOPT_COMM_SLOTS]; /* of pieces whose bytes are no int; else MPI_BYTE */
    MPI_Datatype apart[MEMOPT_COMM_SLOTS]; /* of pieces with a stride; else MPI_BYTE */
    memopt_mpi_word broken;         /* MEMOPT_MPI_GAVE_UP, MEMOPT_MPI_LATE: by `culprit`; else 0 */
    int         culprit;            /* -1: not known. Words are sent from here: set once, when it breaks */
    double      until;              /* when it breaks: how long calls are still looked at */
} memopt_mpi;

/* A rank that gives up has begun what it began before: such calls get another second to end. */
static void memopt_mpi_break(memopt_mpi *m, memopt_mpi_word word, int culprit) {
    if (m->broken) return;
    m->broken = word;
    m->culprit = culprit;
    m->until = MPI_Wtime() + (word == MEMOPT_MPI_GAVE_UP);
}

static memopt_status memopt_mpi_said(const memopt_mpi *m, memopt_error *error) {
    error->index = (size_t)m->culprit;
    error->reason = m->broken == MEMOPT_MPI_GAVE_UP ? "has given up"
                    : m->culprit < 0 ? "is not over by the deadline" : "has not come before the deadline";
    return m->broken == MEMOPT_MPI_LATE ? MEMOPT_ERR_IO : MEMOPT_ERR_STATE;
}

/* Nobody waits for a word to arrive. */
static void memopt_mpi_say(memopt_mpi *m, int to, memopt_mpi_word word) {
    const int count = word >= MEMOPT_MPI_GAVE_UP;
    MPI_Request request;

    if (!MPI_Isend(&m->culprit, count, MPI_INT, to, (int)word, m->words, &request)) (void)MPI_Request_free(&request);
}

static void memopt_mpi_say_to_all(memopt_mpi *m, memopt_mpi_word word) {
    int to;

    for (to = 0; to < m->rank_count; ++to) if (to != m->rank) memopt_mpi_say(m, to, word);
}

/* What others have said. `here` (may be NULL) is set for those who ask or answer. */
static void memopt_mpi_listen(memopt_mpi *m, unsigned char *here) {
    MPI_Status status;
    int there = 1, culprit = -1;

    while (!MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, m->words, &there, &status) && there) {
        const int from = status.MPI_SOURCE, word = status.MPI_TAG;

        if (MPI_Recv(&culprit, 1, MPI_INT, from, word, m->words, MPI_STATUS_IGNORE)) return;
        if (word == MEMOPT_MPI_ASK) memopt_mpi_say(m, from, MEMOPT_MPI_HERE);
        if (word >= MEMOPT_MPI_GAVE_UP) memopt_mpi_break(m, (memopt_mpi_word)word, culprit);
        else if (here) here[from] = 1;
    }
}

/* The deadline is over. A rank that waits, in whatever call, answers; one that does not may be at work with this call
   behind it. So only a rank that is alone in its silence is known to hold up the others. */
static void memopt_mpi_find(memopt_mpi *m, MPI_Request *request, int *done) {
    const double begin = MPI_Wtime();
    unsigned char here[65536];
    int r, silent = 0, culprit = -1;

    memset(here, 0, sizeof here);
    memopt_mpi_say_to_all(m, MEMOPT_MPI_ASK);
    while (!m->broken && !*done && MPI_Wtime() - begin < 1) {
        memopt_mpi_listen(m, here);
        if (MPI_Test(request, done, MPI_STATUS_IGNORE)) *done = 0;
        MEMOPT_MPI_YIELD();
    }
    for (r = 0; r < m->rank_count; ++r) {
        if (r == m->rank || here[r]) continue;
        ++silent;
        culprit = r;
    }
    if (!*done) memopt_mpi_break(m, MEMOPT_MPI_LATE, silent == 1 ? culprit : -1);
}

static void memopt_mpi_forget_types(memopt_mpi *m, size_t slot) {
    if (m->types[slot] != MPI_BYTE) (void)MPI_Type_free(&m->types[slot]);
    if (m->apart[slot] != MPI_BYTE) (void)MPI_Type_free(&m->apart[slot]);
    m->types[slot] = m->apart[slot] = MPI_BYTE;
}

static memopt_status memopt_mpi_wait(void *user, size_t slot, memopt_error *error) {
    memopt_mpi *m = (memopt_mpi *)user;
    const double begin = MPI_Wtime();
    int done = 0, wrong = 0;
    long turns = 0;

    do {
        wrong = MPI_Test(&m->requests[slot], &done, MPI_STATUS_IGNORE);
        if (done || wrong) break;
        if (++turns % 64 == 0) {
            memopt_mpi_listen(m, NULL);
            if (!m->broken && m->deadline > 0 && MPI_Wtime() - begin > m->deadline)
                memopt_mpi_find(m, &m->requests[slot], &done);
        }
        MEMOPT_MPI_YIELD();
    } while (!done && (!m->broken || MPI_Wtime() < m->until));
    if (!done && !wrong) return memopt_mpi_said(m, error);
    memopt_mpi_forget_types(m, slot);
    if (wrong) error->reason = "MPI reports an error";
    return wrong ? MEMOPT_ERR_IO : MEMOPT_OK;
}

/* Ready to be used; else there is none. */
static int memopt_mpi_commit(int wrong, MPI_Datatype *type) {
    if (!wrong && (wrong = MPI_Type_commit(type)) != 0) (void)MPI_Type_free(type);
    if (wrong) *type = MPI_BYTE;
    return wrong;
}

/* A type of so many bytes, where they are no int: whole gibibytes, and the rest. */
static int memopt_mpi_type(size_t bytes, MPI_Datatype *type) {
    const size_t block = (size_t)1 << 30;
    const int lengths[2] = { (int)(bytes / block), (int)(bytes % block) };
    const MPI_Aint places[2] = { 0, (MPI_Aint)(bytes - bytes % block) };
    MPI_Datatype types[2];
    int wrong = MPI_Type_contiguous((int)block, MPI_BYTE, &types[0]);

    types[1] = MPI_BYTE;
    if (wrong) return wrong;
    wrong = MPI_Type_create_struct(2, lengths, places, types, type);
    (void)MPI_Type_free(&types[0]);
    return memopt_mpi_commit(wrong, type);
}

/* A piece so that the next one begins a stride further on. */
static int memopt_mpi_apart(int count, MPI_Datatype piece, size_t stride, MPI_Datatype *type) {
    MPI_Datatype whole;
    int wrong = MPI_Type_contiguous(count, piece, &whole);

    if (wrong) return wrong;
    wrong = MPI_Type_create_resized(whole, 0, (MPI_Aint)stride, type);
    (void)MPI_Type_free(&whole);
    return memopt_mpi_commit(wrong, type);
}

static memopt_status memopt_mpi_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    memopt_mpi *m = (memopt_mpi *)user;
    const int is_root = call->kind == MEMOPT_COMM_BROADCAST && (int)call->root == m->rank;
    const unsigned char *own = (unsigned char *)call->receive + (size_t)m->rank * call->bytes;
    MPI_Request *request = &m->requests[slot];
    MPI_Datatype *type = &m->types[slot], *apart = &m->apart[slot];
    int count = 1, wrong = 0;

    memopt_mpi_listen(m, NULL);
    if (m->broken) return memopt_mpi_said(m, error);
    *type = *apart = MPI_BYTE;
    if (call->bytes > INT_MAX) wrong = memopt_mpi_type(call->bytes, type);
    else count = (int)call->bytes;
    if (is_root && call->send != call->receive) memcpy(call->receive, call->send, call->bytes);
    if (!wrong && call->stride) wrong = memopt_mpi_apart(count, *type, call->stride, apart);
    if (!wrong && call->stride)
        wrong = MPI_Ialltoall(call->send, 1, *apart, call->receive, count, *type, m->calls, request);
    else if (!wrong && call->kind == MEMOPT_COMM_ALL_TO_ALL)
        wrong = MPI_Ialltoall(call->send, count, *type, call->receive, count, *type, m->calls, request);
    else if (!wrong && call->kind == MEMOPT_COMM_ALL_GATHER)
        wrong = MPI_Iallgather(call->send == own ? MPI_IN_PLACE : call->send, count, *type, call->receive, count, *type,
                               m->calls, request);
    else if (!wrong) wrong = MPI_Ibcast(call->receive, count, *type, (int)call->root, m->calls, request);
    if (!wrong) return MEMOPT_OK;
    memopt_mpi_forget_types(m, slot);
    error->reason = "MPI reports an error";
    return MEMOPT_ERR_IO;
}

static void memopt_mpi_abort(void *user) {
    memopt_mpi *m = (memopt_mpi *)user;

    memopt_mpi_break(m, MEMOPT_MPI_GAVE_UP, m->rank);
    memopt_mpi_say_to_all(m, m->broken);
}

/* On all ranks of `world`. seconds: how long a call may take, from its wait on; 0 = for ever. */
static memopt_status memopt_mpi_open(memopt_mpi *m, MPI_Comm world, double seconds, memopt_transport *out) {
    size_t slot;

    memset(m, 0, sizeof *m);
    if (!(seconds >= 0)) return MEMOPT_ERR_ARGUMENT;
    m->deadline = seconds;
    for (slot = 0; slot < MEMOPT_COMM_SLOTS; ++slot) m->requests[slot] = MPI_REQUEST_NULL;
    if (MPI_Comm_rank(world, &m->rank) || MPI_Comm_size(world, &m->rank_count)) return MEMOPT_ERR_IO;
    if (m->rank_count > 65536) return MEMOPT_ERR_UNSUPPORTED;
    if (MPI_Comm_dup(world, &m->calls)) return MEMOPT_ERR_IO;
    if (MPI_Comm_dup(world, &m->words)) goto no_words;
    if (MPI_Comm_set_errhandler(m->calls, MPI_ERRORS_RETURN) || MPI_Comm_set_errhandler(m->words, MPI_ERRORS_RETURN))
        goto no_handlers;
    memset(out, 0, sizeof *out);
    out->begin_fn = memopt_mpi_begin;
    out->wait_fn = memopt_mpi_wait;
    out->abort_fn = memopt_mpi_abort;
    out->user = m;
    out->rank = (size_t)m->rank;
    out->rank_count = (size_t)m->rank_count;
    return MEMOPT_OK;
no_handlers:
    (void)MPI_Comm_free(&m->words);
no_words:
    (void)MPI_Comm_free(&m->calls);
    return MEMOPT_ERR_IO;
}

/* code: of the processes, where there is nothing to do but end them all, after a failure. */
static void memopt_mpi_close(memopt_mpi *m, int code) {
    if (m->broken || code) {
        (void)MPI_Abort(m->calls, code ? code : 1);
        return;
    }
    (void)MPI_Comm_free(&m->words);
    (void)MPI_Comm_free(&m->calls);
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
