/* ranks.h - the ranks that tune one model: threads of this process (--ranks R), or, compiled with -DFINETUNE_MPI, the
   processes of mpirun. Each has its part of weights, gradients and states, and passes its own units of a step.

   Alike     All do the same in the same order, each with the model and the text opened for itself. What may differ from
             rank to rank, such as a signal or what a process holds, they agree on first. Rank 0 alone tells, and writes
             what there is once.
   Failure   A rank that ends with a reason gives up, and what the others wait for fails. */
#ifndef FINETUNE_RANKS_H
#define FINETUNE_RANKS_H
#include "reason.h"
#ifdef MEMOPT_PTHREADS
#include <pthread.h>
#endif
#ifdef FINETUNE_MPI
#include <mpi.h>
#include "../adapters/mpi.h"
#endif

enum { RANKS_MAX = 1024, RANKS_SECONDS = 3600 /* that processes wait for one that writes the result, say */ };

typedef struct team {
    memopt_transport transport;
    memopt_comm *comm;      /* NULL: one rank alone */
    size_t rank, count;
    size_t in_process;      /* of them, threads of this process */
    int    was_told;        /* by another rank, that something is wrong there */
} team;

static int team_open(team *t, reason *why) {
    memopt_comm_desc d;

    if (t->count < 2) return 0;
    memset(&d, 0, sizeof d);
    d.transport = t->transport;
    d.error = &why->error;
    return failed(why, "--ranks", memopt_comm_create(&d, &t->comm));
}

static void team_give_up(team *t) {
    if (t->comm) memopt_comm_abort(t->comm);
    else if (t->transport.abort_fn) t->transport.abort_fn(t->transport.user);
}

/* Of each rank so many bytes, in place. */
static int team_gather(const team *t, reason *why, void *all, size_t bytes) {
    memopt_comm_call call;
    memopt_status s;

    if (t->count < 2) return 0;
    memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_ALL_GATHER;
    call.bytes = bytes;
    call.send = (unsigned char *)all + t->rank * bytes;
    call.receive = all;
    s = memopt_comm_run(t->comm, &call);
    if (s) why->error = memopt_comm_error(t->comm);
    return failed(why, "the ranks", s);
}

/* The largest number that a rank says: nobody goes on before all have said theirs. */
static int team_most(const team *t, reason *why, double *number) {
    double all[RANKS_MAX];
    size_t i;

    all[t->rank] = *number;
    if (team_gather(t, why, all, sizeof *all)) return 1;
    for (i = 0; i < t->count; ++i)
        if (all[i] > *number) *number = all[i];
    return 0;
}

/* 1: something is wrong with a rank, and each has a reason. */
static int team_wrong(team *t, reason *why, int wrong) {
    double any = wrong;

    if (team_most(t, why, &any)) return 1;
    if (!wrong && any > 0) t->was_told = refuse(why, "another rank could not go on");
    return any > 0;
}

/* Which reason is told: that of a rank which has one of its own, if there is such a rank. */
static int team_hearsay(const team *t) {
    return t->was_told ? 2 : memopt_comm_error(t->comm).status != MEMOPT_OK;
}

/* ---- processes ---- */
#ifdef FINETUNE_MPI
static memopt_mpi ranks_mpi;

static int ranks_begin(int *argc, char ***argv, team *first) {
    int level;

    memset(first, 0, sizeof *first);
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level)
        || memopt_mpi_open(&ranks_mpi, MPI_COMM_WORLD, RANKS_SECONDS, &first->transport)) return 1;
    first->rank = first->transport.rank;
    return 0;
}

static int ranks_count(team *first, size_t asked, reason *why) {
    first->count = first->transport.rank_count;
    first->in_process = 1;
    if (first->count > RANKS_MAX) return refuse(why, "mpirun started more than %d ranks", (int)RANKS_MAX);
    return asked > 1 && asked != first->count && refuse(why, "--ranks is what mpirun says: leave it out");
}

/* While there is still memory that calls which failed may write to: then it ends all processes. */
static void ranks_broken(void) {
    (void)fflush(NULL);
    if (ranks_mpi.broken) memopt_mpi_close(&ranks_mpi, 0);
}

static void ranks_end(void) {
    memopt_mpi_close(&ranks_mpi, 0);
    (void)MPI_Finalize();
}
#else
static int ranks_begin(int *argc, char ***argv, team *first) {
    (void)argc;
    (void)argv;
    memset(first, 0, sizeof *first);
    return 0;
}

static int ranks_count(team *first, size_t asked, reason *why) {
    (void)why;
    first->count = first->in_process = asked;
    return 0;
}

static void ranks_broken(void) {}
static void ranks_end(void) {}
#endif

/* ---- threads ---- */
typedef void *ranks_fn(void *rank);

/* The function of each element of an array, which begins with its team, in a thread of its own but for the first. 1:
   there are not as many threads. */
static int ranks_run(ranks_fn *fn, void *array, size_t bytes, size_t count) {
    unsigned char *const ranks = (unsigned char *)array;
#ifdef MEMOPT_PTHREADS
    pthread_t threads[RANKS_MAX];
    size_t started = 1, i;

    while (started < count && !pthread_create(&threads[started], NULL, fn, ranks + started * bytes)) ++started;
    for (i = started; i < count; ++i) team_give_up((team *)(void *)(ranks + i * bytes));
    (void)fn(ranks);
    for (i = 1; i < started; ++i) (void)pthread_join(threads[i], NULL);
    return started < count;
#else
    (void)bytes;
    (void)fn(ranks);
    return count > 1;
#endif
}
#endif
