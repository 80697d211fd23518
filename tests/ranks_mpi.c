/* ranks_mpi.c WHAT - examples/adapters/mpi.h, run by mpirun; see `mpi` in check.sh. Rank 0 prints what came of it.
     bytes      random calls of all kinds, up to eight begun at once, waited for in any order: every byte is looked at
     disagree   the last rank asks for something else: all get a status with its name
     gives_up   the last rank gives up before a call: likewise
     stuck      the last rank is stopped: the others get a status with its name within the deadline of a second and two
                more, and end it
     large      a piece of 2^31 + 5 bytes goes to one other rank */
#include <mpi.h>
#define MEMOPT_STATIC
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "examples/adapters/mpi.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 3000, ROOM = MOST + 2, CALLS = 200 };
static int rank, ranks;
static memopt_mpi mpi;
static memopt_comm *comm;

static void fail(const char *why) {
    char text[200] = "";
    const memopt_error e = memopt_comm_error(comm);
    (void)memopt_error_text(&e, text, sizeof text, NULL);
    printf("rank %d: %s (%s)\n", rank, why, text);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
}
#define MUST(x) do { if (!(x)) fail(#x); } while (0)
static unsigned draw(unsigned *state, unsigned n) { return (*state = *state * 1664525u + 1013904223u) >> 8 & 0xffffff ? (*state >> 8) % n : 0; }
static unsigned char byte(size_t from, size_t call, size_t i) { return (unsigned char)(from * 89 + call * 41 + i * 7 + (i >> 8)); }
static memopt_comm_call nth(size_t call) { /* the same for all ranks */
    unsigned state = 12345u + 977u * (unsigned)call; memopt_comm_call c;
    memset(&c, 0, sizeof c);
    (void)draw(&state, 2);
    c.kind = (memopt_comm_kind)draw(&state, 3);
    c.bytes = 1 + draw(&state, draw(&state, 2) ? MOST : 9);
    c.root = draw(&state, (unsigned)ranks);
    return c;
}
static size_t apart(const memopt_comm_call *c, size_t from, size_t call) { /* the stride of a rank in an all-to-all */
    return c->kind == MEMOPT_COMM_ALL_TO_ALL && call % 2 ? c->bytes + from % 3 : 0;
}
static int right(size_t call, const memopt_comm_call *c) {
    const unsigned char *got = (const unsigned char *)c->receive; size_t from, i;
    for (from = 0; from < (c->kind == MEMOPT_COMM_BROADCAST ? 1u : (size_t)ranks); ++from)
        for (i = 0; i < c->bytes; ++i)
            if (got[from * c->bytes + i] != byte(c->kind == MEMOPT_COMM_BROADCAST ? c->root : from, call,
                                                 c->kind == MEMOPT_COMM_ALL_TO_ALL ? (size_t)rank * (apart(c, from, call) ? apart(c, from, call) : c->bytes) + i : i)) return 0;
    return 1;
}
static void begin(size_t call, memopt_comm_call *c, unsigned char *memory, uint64_t *number) {
    const size_t room = (size_t)ranks * ROOM; size_t i, n;
    unsigned char *send = memory + room;
    *c = nth(call);
    if (c->kind == MEMOPT_COMM_ALL_GATHER && call % 2) send = memory + (size_t)rank * c->bytes;
    if (c->kind == MEMOPT_COMM_BROADCAST && call % 2) send = memory;
    c->stride = apart(c, (size_t)rank, call);
    n = (c->stride ? c->stride : c->bytes) * (c->kind == MEMOPT_COMM_ALL_TO_ALL ? (size_t)ranks : 1);
    for (i = 0; i < n; ++i) send[i] = byte((size_t)rank, call, i);
    c->send = send; c->receive = memory;
    MUST(memopt_comm_begin(comm, c, number) == MEMOPT_OK);
}
static void bytes(void) {
    const size_t room = 2 * (size_t)ranks * ROOM; unsigned char *memory = (unsigned char *)malloc(8 * room);
    size_t first, k, call; unsigned state = 99u + (unsigned)rank; memopt_comm_stats s;
    MUST(memory != NULL);
    for (first = 0; first < CALLS; first += k) {
        memopt_comm_call c[8]; uint64_t number[8]; size_t left = first % 9 % 8 + 1, of[8];
        for (k = 0; k < left && first + k < CALLS; ++k) { of[k] = k; begin(first + k, &c[k], memory + k * room, &number[k]); }
        for (left = k; left; --left) {
            const size_t pick = draw(&state, (unsigned)left);
            MUST(memopt_comm_wait(comm, number[of[pick]]) == MEMOPT_OK);
            MUST(right(first + of[pick], &c[of[pick]]));
            of[pick] = of[left - 1];
        }
    }
    s = memopt_comm_get_stats(comm);
    for (call = 0; call < 3; ++call) MUST(s.calls[call] > CALLS / 6);
    free(memory);
}
static void large(void) { /* two ranks */
    const size_t n = ((size_t)1 << 31) + 5; unsigned char *x = (unsigned char *)malloc(n); memopt_comm_call c;
    size_t i;
    MUST(x != NULL);
    memset(&c, 0, sizeof c);
    c.kind = MEMOPT_COMM_BROADCAST; c.root = 1;
    memset(x, rank, n);
    if (rank == 1) for (i = 0; i < n; i += 4097) x[i] = byte(1, 0, i);
    if (rank == 1) x[n - 1] = 77;
    c.bytes = n; c.send = x; c.receive = x;
    MUST(memopt_comm_run(comm, &c) == MEMOPT_OK);
    for (i = 0; i < n - 1; ++i) if (x[i] != (i % 4097 ? 1 : byte(1, 0, i))) break;
    MUST(i == n - 1 && x[i] == 77);
    free(x);
}
/* Goes wrong in call 4, of the last rank: `want` is the reason that the others get. */
static void accident(const char *what, const char *want) {
    unsigned char in[64 * 16] = "", out[64 * 16]; int k; memopt_status s = MEMOPT_OK; const double since = MPI_Wtime(); memopt_error e;
    for (k = 0; !s && k < 9; ++k) {
        memopt_comm_call c;
        memset(&c, 0, sizeof c);
        c.bytes = 16; c.send = in; c.receive = out;
        if (k == 3 && rank == ranks - 1) {
            if (!strcmp(what, "disagree")) c.bytes = 15;
            if (!strcmp(what, "gives_up")) { memopt_comm_abort(comm); break; }
            if (!strcmp(what, "stuck")) (void)raise(SIGSTOP);
        }
        s = memopt_comm_run(comm, &c);
    }
    e = memopt_comm_error(comm);
    MUST(k == 4 || rank == ranks - 1);
    if (rank < ranks - 1) MUST(s != MEMOPT_OK && !strcmp(e.reason, want) && e.index == (size_t)ranks - 1 && e.got.count == 4);
    MUST(rank == ranks - 1 || MPI_Wtime() - since < 3.5);
}
int main(int argc, char **argv) {
    memopt_comm_desc d; int level; const char *what = argc > 1 ? argv[1] : "bytes";
    memset(&d, 0, sizeof d);
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level)) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (memopt_mpi_open(&mpi, MPI_COMM_WORLD, strcmp(what, "stuck") ? 60 : 1, &d.transport)) return 1;
    d.unchecked = argc > 2;
    if (memopt_comm_create(&d, &comm)) return 1;
    if (!strcmp(what, "bytes")) bytes();
    else if (!strcmp(what, "large")) large();
    else {
        accident(what, !strcmp(what, "disagree") ? "asks for another call than rank 0" : !strcmp(what, "stuck")
                 ? "has not come before the deadline" : "has given up");
        if (rank == 0) printf("%s with %d ranks: as it should\n", what, ranks);
        fflush(stdout);
        if (rank) { /* rank 0 ends all, once the others have looked */
            const double since = MPI_Wtime();
            while (MPI_Wtime() - since < 10) {}
        }
        { const double since = MPI_Wtime(); while (MPI_Wtime() - since < 0.5) {} }
        memopt_comm_destroy(comm);
        memopt_mpi_close(&mpi, 42);
    }
    memopt_comm_destroy(comm);
    memopt_mpi_close(&mpi, 0);
    if (rank == 0) printf("%s with %d ranks: as it should\n", what, ranks);
    MPI_Finalize();
    return 0;
}
