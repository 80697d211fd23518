/* ranks_mpi.c WHAT - examples/adapters/mpi.h, run by mpirun; see `mpi` in check.sh. Rank 0 prints what came of it.
     bytes      random calls of all kinds, up to eight begun at once, waited for in any order: every byte is looked at
     disagree   the last rank asks for something else: all get a status with its name
     gives_up   the last rank gives up before a call: likewise
     stuck      the last rank is stopped: the others get a status with its name within the deadline of a second and two
                more, and end it
     open       of one process: what memopt_mpi_open() took is given back when it fails later; and types of a call that
                MPI refuses, whatever step of making them fails
     early      the last rank asks for something else and gives up, and that is heard before what it asks for: no matter
     late       the last rank comes past the deadline of a second, when it is asked for: all goes on
     waits      the last rank does something else; another waits in an earlier call than rank 0: it is not to blame
     done       rank 0 has made its broadcast and does something else; rank 1 is stuck: rank 0 is not to blame
     circle     unchecked, each waits for the broadcast of the next: it ends, and nobody is to blame
     large      a piece of 2^31 + 5 bytes goes to one other rank */
#include <mpi.h>
#define MEMOPT_STATIC
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int steps, fail_on, live, many; /* of opening: communicators that live, and how many ranks there seem to be */
static int failing_dup(MPI_Comm from, MPI_Comm *to) {
    if (++steps == fail_on) return MPI_ERR_OTHER;
    ++live;
    return MPI_Comm_dup(from, to);
}
static int failing_handler(MPI_Comm c, MPI_Errhandler e) { return ++steps == fail_on ? MPI_ERR_OTHER : MPI_Comm_set_errhandler(c, e); }
static int counted_free(MPI_Comm *c) { --live; return MPI_Comm_free(c); }
static int faked_size(MPI_Comm c, int *n) { const int wrong = MPI_Comm_size(c, n); if (many) *n = many; return wrong; }
typedef struct spoken { const void *at; int bytes; unsigned char was[32]; } spoken;
static spoken said[1000]; static int said_count; /* nobody knows when they have arrived: they stay as they were */
static int kept_isend(const void *at, int n, MPI_Datatype type, int to, int tag, MPI_Comm c, MPI_Request *request) {
    spoken *w = &said[said_count++]; int size = 0;
    if (said_count > 1000 || MPI_Type_size(type, &size) || n * size > 32) return MPI_ERR_OTHER;
    w->at = at; w->bytes = n * size; memcpy(w->was, at, (size_t)w->bytes);
    return MPI_Isend(at, n, type, to, tag, c, request);
}
static int typed; /* types that live */
#define FAILING(call) (++steps == fail_on ? MPI_ERR_OTHER : (call))
static int failing_contiguous(int n, MPI_Datatype of, MPI_Datatype *type) { const int wrong = FAILING(MPI_Type_contiguous(n, of, type)); typed += !wrong; return wrong; }
static int failing_struct(int n, const int *lengths, const MPI_Aint *places, const MPI_Datatype *of, MPI_Datatype *type) {
    const int wrong = FAILING(MPI_Type_create_struct(n, lengths, places, of, type));
    typed += !wrong;
    return wrong;
}
static int failing_resized(MPI_Datatype of, MPI_Aint low, MPI_Aint extent, MPI_Datatype *type) { const int wrong = FAILING(MPI_Type_create_resized(of, low, extent, type)); typed += !wrong; return wrong; }
static int failing_commit(MPI_Datatype *type) { return FAILING(MPI_Type_commit(type)); }
static int failing_all_to_all(const void *from, int n, MPI_Datatype of, void *to, int m, MPI_Datatype type, MPI_Comm c, MPI_Request *request) {
    return FAILING(MPI_Ialltoall(from, n, of, to, m, type, c, request));
}
static int counted_type_free(MPI_Datatype *type) { --typed; return MPI_Type_free(type); }
#define MPI_Type_contiguous failing_contiguous
#define MPI_Type_create_struct failing_struct
#define MPI_Type_create_resized failing_resized
#define MPI_Type_commit failing_commit
#define MPI_Type_free counted_type_free
#define MPI_Ialltoall failing_all_to_all
#define MPI_Comm_dup failing_dup
#define MPI_Comm_set_errhandler failing_handler
#define MPI_Comm_free counted_free
#define MPI_Comm_size faked_size
#define MPI_Isend kept_isend
#include "examples/adapters/mpi.h"

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
static void opens(void) {
    memopt_mpi m; memopt_transport t, before; int k;
    memset(&t, 77, sizeof t); before = t;
    for (k = 1; k < 5; ++k) {
        steps = 0; fail_on = k; live = 0;
        MUST(memopt_mpi_open(&m, MPI_COMM_WORLD, 1, &t) == MEMOPT_ERR_IO && !live && !memcmp(&t, &before, sizeof t));
    }
    fail_on = 0; many = 65537;
    MUST(memopt_mpi_open(&m, MPI_COMM_WORLD, 1, &t) == MEMOPT_ERR_UNSUPPORTED && !live && !memcmp(&t, &before, sizeof t));
    MUST(memopt_mpi_open(&m, MPI_COMM_WORLD, -1, &t) == MEMOPT_ERR_ARGUMENT && !live && !memcmp(&t, &before, sizeof t));
    many = 0;
    MUST(memopt_mpi_open(&m, MPI_COMM_WORLD, 1, &t) == MEMOPT_OK && live == 2);
    memopt_mpi_close(&m, 0);
    MUST(!live);
}
/* A piece that no int counts, with a stride: seven steps, each of which fails. Then a small one, which goes through. */
static void refused_types(void) {
    const size_t n = (size_t)1 << 31; unsigned char *memory = (unsigned char *)malloc(2 * n); int k;
    MUST(memory != NULL);
    for (k = 1; k <= 8; ++k) {
        memopt_mpi m; memopt_transport t; memopt_comm_call c; memopt_error e; memopt_status s;
        memset(&c, 0, sizeof c); memset(&e, 0, sizeof e);
        c.kind = MEMOPT_COMM_ALL_TO_ALL; c.bytes = k > 7 ? 16 : n; c.stride = n; c.send = memory; c.receive = memory + n;
        fail_on = 0;
        MUST(memopt_mpi_open(&m, MPI_COMM_WORLD, 60, &t) == MEMOPT_OK);
        steps = 0; fail_on = k;
        s = t.begin_fn(t.user, &c, 0, &e);
        MUST(k > 7 ? s == MEMOPT_OK && typed == 1 : s == MEMOPT_ERR_IO && !typed && !strcmp(e.reason, "MPI reports an error"));
        MUST(s || (t.wait_fn(t.user, 0, &e) == MEMOPT_OK && !typed));
        memopt_mpi_close(&m, 0);
    }
    free(memory); fail_on = 0;
}
static unsigned char in[64 * 16], out[3][64 * 16];
static memopt_comm_call small(memopt_comm_kind kind, int k) { /* a call of 16 bytes a piece */
    memopt_comm_call c;
    memset(&c, 0, sizeof c);
    c.kind = kind; c.bytes = 16; c.send = in; c.receive = out[k];
    return c;
}
static void late(void) { /* and asked for each time: in call 1, and in call 3 */
    int k; const double since = MPI_Wtime();
    for (k = 0; k < 4; ++k) {
        const memopt_comm_call c = small(MEMOPT_COMM_ALL_GATHER, 0); int asked = k % 2 || rank < ranks - 1;
        while (!asked) MUST(!MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi.words, &asked, MPI_STATUS_IGNORE));
        MUST(memopt_comm_run(comm, &c) == MEMOPT_OK);
    }
    MUST(MPI_Wtime() - since > 1.9);
}
/* The last status of this rank, and whom it blames; -1: nobody. */
static void blames(memopt_status s, const char *reason, int who, double since) {
    const memopt_error e = memopt_comm_error(comm);
    MUST(s != MEMOPT_OK && e.reason && !strcmp(e.reason, reason) && e.index == (size_t)who);
    MUST(MPI_Wtime() - since < 5);
}
static void early(void) {
    memopt_comm_call c = small(MEMOPT_COMM_ALL_GATHER, 0); const double since = MPI_Wtime();
    if (rank == ranks - 1) {
        c.bytes = 15; mpi.culprit = rank;
        memopt_mpi_say_to_all(&mpi, MEMOPT_MPI_GAVE_UP);
        usleep(300000);
    }
    blames(memopt_comm_run(comm, &c), "asks for another call than rank 0", ranks - 1, since);
}
static void waits(void) {
    uint64_t number[3]; int k; const double since = MPI_Wtime();
    if (rank == ranks - 1) { usleep(5000000); return; }
    if (rank) usleep(200000); /* rank 0 comes to its deadline first */
    for (k = 0; k < (rank ? 1 : 3); ++k) {
        const memopt_comm_call c = small(MEMOPT_COMM_ALL_TO_ALL, k);
        MUST(memopt_comm_begin(comm, &c, &number[k]) == MEMOPT_OK);
    }
    blames(memopt_comm_wait(comm, number[0]), "has not come before the deadline", ranks - 1, since);
}
static void done(void) { /* how many wait for rank 1 is up to MPI */
    const memopt_comm_call c = small(MEMOPT_COMM_BROADCAST, 0); uint64_t number; memopt_status s; const double since = MPI_Wtime();
    MUST(memopt_comm_begin(comm, &c, &number) == MEMOPT_OK);
    if (rank == 1) { usleep(5000000); return; }
    s = memopt_comm_wait(comm, number);
    MUST(rank || s == MEMOPT_OK);
    if (rank == 0) usleep(3500000);
    else if (s && memopt_comm_error(comm).index != 1) blames(s, "is not over by the deadline", -1, since);
}
static void circle(void) {
    memopt_comm_call c = small(MEMOPT_COMM_BROADCAST, 0); const double since = MPI_Wtime();
    c.root = (size_t)((rank + 1) % ranks);
    blames(memopt_comm_run(comm, &c), "is not over by the deadline", -1, since);
}
int main(int argc, char **argv) {
    memopt_comm_desc d; int level; const char *what = argc > 1 ? argv[1] : "bytes";
    memset(&d, 0, sizeof d);
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level)) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (memopt_mpi_open(&mpi, MPI_COMM_WORLD, strstr("stuck late waits done circle", what) ? 1 : 60, &d.transport)) return 1;
    d.unchecked = argc > 2;
    if (memopt_comm_create(&d, &comm)) return 1;
    if (!strcmp(what, "bytes")) bytes();
    else if (!strcmp(what, "large")) large();
    else if (!strcmp(what, "late")) late();
    else if (!strcmp(what, "open")) { opens(); refused_types(); }
    else {
        if (!strcmp(what, "early")) early();
        else if (!strcmp(what, "waits")) waits();
        else if (!strcmp(what, "done")) done();
        else if (!strcmp(what, "circle")) circle();
        else accident(what, !strcmp(what, "disagree") ? "asks for another call than rank 0" : !strcmp(what, "stuck")
                 ? "has not come before the deadline" : "has given up");
        if (rank == 0) printf("%s with %d ranks: as it should\n", what, ranks);
        fflush(stdout);
        if (rank) { /* rank 0 ends all, once the others have looked */
            const double since = MPI_Wtime();
            while (MPI_Wtime() - since < 10) {}
        }
        { const double since = MPI_Wtime(); while (MPI_Wtime() - since < 0.5) {} }
        memopt_mpi_close(&mpi, 42);
    }
    while (said_count) { --said_count; MUST(!memcmp(said[said_count].at, said[said_count].was, (size_t)said[said_count].bytes)); }
    memopt_comm_destroy(comm);
    memopt_mpi_close(&mpi, 0);
    if (rank == 0) printf("%s with %d ranks: as it should\n", what, ranks);
    MPI_Finalize();
    return 0;
}
