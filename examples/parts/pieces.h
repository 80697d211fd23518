/* pieces.h - activations that ranks hold alike, kept once: a store for the tape.

   What it does   Ranks that compute with the same activations, as those of tensor parallelism do, need not each keep
                  all of them: each keeps a piece of what a tape sends away, and the pieces are gathered when the tape
                  asks for it again. Of a value of n bytes a rank keeps n / ranks (and all ranks the remainder, less
                  than a byte for each rank); a read sends n / ranks to each of the others. So all pieces travel in one
                  gather, in place.
   How to use     memopt_pieces_create(&desc, &pieces), then tape_desc.store = memopt_pieces_store(pieces), on all ranks
                  with the same schedule and memopt_offload, in memory of the CPU. After a failed pass
                  memopt_pieces_error() says why. See pieces.c.
   Invariant      A value's calls come in the tape's order, the same on all ranks. No more reads are open than the
                  communicator lets be open: one that is eight calls old is waited for. */
#ifndef PARTS_PIECES_H
#define PARTS_PIECES_H
#include <string.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct memopt_pieces memopt_pieces;

typedef struct memopt_pieces_desc { /* zero it, then set what you need */
    memopt_comm       *comm;   /* of these ranks, for the pieces alone; outlives them. NULL: one rank */
    size_t             values; /* of the tape: segments + 1 */
    const memopt_host *host;   /* its allocator holds the pieces; NULL = malloc */
    memopt_ledger     *ledger; /* NULL, or books them, tag CHECKPOINTS */
    memopt_error      *error;  /* NULL, or filled in when memopt_pieces_create() fails */
} memopt_pieces_desc;

typedef struct memopt_pieces_stats {
    size_t now, peak; /* bytes this rank holds */
} memopt_pieces_stats;

typedef struct memopt_pieces_value {
    unsigned char *own; /* the piece, and the rest behind it; NULL: nothing is kept */
    size_t   bytes;     /* of the whole */
    uint64_t call;      /* that gathers it; 0: none is open */
} memopt_pieces_value;

struct memopt_pieces {
    memopt_host host;
    size_t bytes; /* of the object */
    memopt_comm *comm;
    memopt_ledger *ledger;
    size_t count;
    memopt_pieces_value *values;
    uint64_t calls; /* of the comm: the number of the last one */
    size_t reading[MEMOPT_COMM_CALLS]; /* values, by the number of their call; SIZE_MAX: none */
    memopt_pieces_stats stats;
    memopt_error error;
};

static inline size_t memopt_pieces_ranks(const memopt_pieces *x) {
    return x->comm ? memopt_comm_get_stats(x->comm).rank_count : 1;
}

static inline size_t memopt_pieces_rank(const memopt_pieces *x) { return memopt_comm_get_stats(x->comm).rank; }

static inline size_t memopt_pieces_bytes(const memopt_pieces *x, size_t bytes) { /* that a rank keeps of a value */
    const size_t ranks = memopt_pieces_ranks(x);

    return bytes / ranks + bytes % ranks;
}

static inline memopt_status memopt_pieces_fail(memopt_error *error, memopt_status status, const char *argument,
                                               const char *reason) {
    if (!error) return status;
    memset(error, 0, sizeof *error);
    error->status = status;
    error->subject = "pieces";
    error->argument = argument;
    error->reason = reason;
    error->index = error->action = error->segment = SIZE_MAX;
    return status;
}

/* "value GOT, REASON" */
static inline memopt_status memopt_pieces_refuse(memopt_pieces *x, memopt_status status, const char *reason,
                                                 size_t value) {
    (void)memopt_pieces_fail(&x->error, status, "value", "is outside its range");
    x->error.got.kind = MEMOPT_QUANTITY_COUNT;
    x->error.got.count = value;
    x->error.bound = reason;
    return status;
}

static inline void memopt_pieces_copy(unsigned char *to, const unsigned char *from, size_t bytes) {
    if (bytes && to != from) memcpy(to, from, bytes);
}

static inline void memopt_pieces_free(const memopt_host *host, void *p, size_t bytes) {
    host->allocator.free_fn(host->allocator.user, p, bytes, 64);
}

/* ---- the store ---- */
static inline memopt_status memopt_pieces_wait(void *user, size_t value) {
    memopt_pieces *x = (memopt_pieces *)user;
    memopt_status s;

    if (value >= x->count || !x->values[value].call) return MEMOPT_OK;
    s = memopt_comm_wait(x->comm, x->values[value].call);
    x->reading[x->values[value].call % MEMOPT_COMM_CALLS] = SIZE_MAX;
    x->values[value].call = 0;
    if (s) x->error = memopt_comm_error(x->comm);
    return s;
}

static inline void memopt_pieces_forget(void *user, size_t value) {
    memopt_pieces *x = (memopt_pieces *)user;
    memopt_pieces_value *v = value < x->count ? &x->values[value] : NULL;

    if (!v || !v->own) return;
    (void)memopt_pieces_wait(x, value);
    (void)memopt_ledger_remove(x->ledger, MEMOPT_TAG_CHECKPOINTS, memopt_pieces_bytes(x, v->bytes), v->own);
    memopt_pieces_free(&x->host, v->own, memopt_pieces_bytes(x, v->bytes));
    x->stats.now -= memopt_pieces_bytes(x, v->bytes);
    v->own = NULL;
}

static inline memopt_status memopt_pieces_write(void *user, size_t value, const void *bytes, size_t count) {
    memopt_pieces *x = (memopt_pieces *)user;
    const size_t ranks = memopt_pieces_ranks(x), piece = count / ranks, own = memopt_pieces_bytes(x, count);
    const unsigned char *from = (const unsigned char *)bytes;
    memopt_pieces_value *v;

    if (value >= x->count) return memopt_pieces_refuse(x, MEMOPT_ERR_ARGUMENT, "is beyond those of the desc", value);
    memopt_pieces_forget(x, value);
    v = &x->values[value];
    v->own = (unsigned char *)x->host.allocator.alloc_fn(x->host.allocator.user, own, 64);
    if (!v->own) return memopt_pieces_refuse(x, MEMOPT_ERR_MEMORY, "has no memory for its piece", value);
    v->bytes = count;
    memopt_pieces_copy(v->own, from + memopt_pieces_rank(x) * piece, piece);
    memopt_pieces_copy(v->own + piece, from + ranks * piece, count % ranks);
    (void)memopt_ledger_add(x->ledger, MEMOPT_TAG_CHECKPOINTS, own, v->own, "pieces");
    x->stats.now += own;
    if (x->stats.peak < x->stats.now) x->stats.peak = x->stats.now;
    return MEMOPT_OK;
}

static inline memopt_status memopt_pieces_read(void *user, size_t value, void *bytes, size_t count) {
    memopt_pieces *x = (memopt_pieces *)user;
    const size_t ranks = memopt_pieces_ranks(x), piece = count / ranks;
    unsigned char *const to = (unsigned char *)bytes;
    unsigned char *const own = to + memopt_pieces_rank(x) * piece;
    memopt_pieces_value *v = value < x->count ? &x->values[value] : NULL;
    memopt_status s = MEMOPT_OK;
    memopt_comm_call call;
    size_t oldest;

    if (!v || !v->own || v->bytes != count)
        return memopt_pieces_refuse(x, MEMOPT_ERR_STATE, "has not been written with so many bytes", value);
    memopt_pieces_copy(own, v->own, piece);
    memopt_pieces_copy(to + ranks * piece, v->own + piece, count % ranks);
    if (ranks == 1 || !piece) return MEMOPT_OK;
    oldest = x->reading[(x->calls + 1) % MEMOPT_COMM_CALLS];
    if (oldest != SIZE_MAX) s = memopt_pieces_wait(x, oldest);
    if (s) return s;
    memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_ALL_GATHER;
    call.bytes = piece;
    call.send = own;
    call.receive = to;
    s = memopt_comm_begin(x->comm, &call, &v->call);
    if (s) x->error = memopt_comm_error(x->comm);
    if (s) return s;
    x->calls = v->call;
    x->reading[v->call % MEMOPT_COMM_CALLS] = value;
    return MEMOPT_OK;
}

/* ---- the object ---- */

/* OK, ERR_ARGUMENT (NULL, no values), ERR_OVERFLOW, ERR_MEMORY */
static inline memopt_status memopt_pieces_create(const memopt_pieces_desc *desc, memopt_pieces **out) {
    memopt_host host;
    memopt_pieces *x;
    size_t i, bytes;

    if (!desc) return MEMOPT_ERR_ARGUMENT;
    if (!out || !desc->values)
        return memopt_pieces_fail(desc->error, MEMOPT_ERR_ARGUMENT, out ? "values" : "out", out ? "are 0" : "is NULL");
    if (memopt_host_resolve(desc->host, &host))
        return memopt_pieces_fail(desc->error, MEMOPT_ERR_ARGUMENT, "host", "is half set");
    if (desc->values > (SIZE_MAX - sizeof *x) / sizeof *x->values)
        return memopt_pieces_fail(desc->error, MEMOPT_ERR_OVERFLOW, "values", "are too many for a size_t");
    bytes = sizeof *x + desc->values * sizeof *x->values;
    x = (memopt_pieces *)host.allocator.alloc_fn(host.allocator.user, bytes, 64);
    if (!x) {
        (void)memopt_pieces_fail(desc->error, MEMOPT_ERR_MEMORY, NULL, "no memory for it");
        if (desc->error) desc->error->got.kind = MEMOPT_QUANTITY_COUNT;
        if (desc->error) desc->error->got.count = bytes;
        return MEMOPT_ERR_MEMORY;
    }
    memset(x, 0, bytes);
    x->host = host;
    x->bytes = bytes;
    x->comm = desc->comm;
    x->ledger = desc->ledger;
    x->count = desc->values;
    x->values = (memopt_pieces_value *)(void *)(x + 1);
    for (i = 0; i < MEMOPT_COMM_CALLS; ++i) x->reading[i] = SIZE_MAX;
    (void)memopt_pieces_fail(&x->error, MEMOPT_OK, NULL, memopt_status_text(MEMOPT_OK));
    *out = x;
    return MEMOPT_OK;
}

/* For memopt_tape_desc; all zero for NULL. */
static inline memopt_tape_store memopt_pieces_store(memopt_pieces *pieces) {
    memopt_tape_store store;

    memset(&store, 0, sizeof store);
    if (!pieces) return store;
    store.write_fn = memopt_pieces_write;
    store.read_fn = memopt_pieces_read;
    store.wait_fn = memopt_pieces_wait;
    store.forget_fn = memopt_pieces_forget;
    store.user = pieces;
    return store;
}

/* Waits for what is on its way. NULL is fine. */
static inline void memopt_pieces_destroy(memopt_pieces *pieces) {
    memopt_host host;
    size_t i;

    if (!pieces) return;
    for (i = 0; i < pieces->count; ++i) memopt_pieces_forget(pieces, i);
    host = pieces->host;
    memopt_pieces_free(&host, pieces, pieces->bytes);
}

/* all zero for NULL */
static inline memopt_pieces_stats memopt_pieces_get_stats(const memopt_pieces *pieces) {
    memopt_pieces_stats s;

    memset(&s, 0, sizeof s);
    return pieces ? pieces->stats : s;
}

/* of the last call of the store that failed */
static inline memopt_error memopt_pieces_error(const memopt_pieces *pieces) {
    memopt_error e;

    if (pieces) return pieces->error;
    (void)memopt_pieces_fail(&e, MEMOPT_ERR_ARGUMENT, NULL, "the pieces are NULL");
    e.subject = NULL;
    return e;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
