/* pipeline.h - one model over ranks by layers: each has runs of consecutive segments of one chain (stages), and the
   micro-batches of a step go through them. The bits are those of one process that runs them in order. Copy it.

   Schedules    A list of actions for each rank (stage, micro-batch, forward or backward), by pipeline_list(): 1F1B, and
                with `chunks` stages a rank the interleaved form [Narayanan 2021, arXiv:2104.04473]. Stage s is on rank
                s % ranks. pipeline_simulate() runs all lists against each other before anything starts: every action
                is there once, backwards are in the order of micro-batches, both ends of each link have the messages in
                the same order, nobody waits for ever; it tells how many micro-batches are under way at most in each
                stage, seconds, and the share of them in which ranks wait.
   Memory       A stage keeps what its backward needs of each micro-batch that is under way, and works in memory that is
                there once: a tape for each of them, with held_apart. pipeline_plan() cuts the chain so that the largest
                stage is the smallest there is, by dry runs: what a rank takes, with its weights, gradients and states,
                is known to the byte before anything runs. Of several chunks a rank the cuts are then moved while the
                largest rank becomes smaller: these are not proven to be the best.
   Bits         Gradients of a stage are made in the order of micro-batches, on one rank. A segment's random numbers are
                those of its place in the whole chain and of the micro-batch's number.
   Tied tokens  The last rank has a copy of them. The head's gradient of each micro-batch goes to the first rank before
                its backward, which adds onto it: as in one process that adds up micro-batches outside, by done_fn. With
                `accumulate` one process adds the head's onto the embedding's of the micro-batch before, which would be
                a wait of all ranks for each other: refused. Up to `tied_slots` of them are under way: with fewer than
                the simulation asks for the last rank waits. pipeline_share_tokens() follows the optimizer.
   Links        Communicators of two ranks, of yours, one for each direction: the sender is rank 0 of it, the receiver
                rank 1, as a message is a broadcast. On one for both directions, or for all ranks, calls would have an
                order that both ends know only from this schedule. They are `unchecked`: a call that is compared begins
                when both ranks are there, which is a send that blocks, and with those 1F1B deadlocks, as the
                simulation tells. Messages go on while the rank computes, PIPELINE_SENDS on a link.
   Failure      A rank that fails gives up its links, so that its neighbours fail, and theirs. With `all`, a
                communicator of all ranks, everybody is told who failed first: the rank that does not answer there.
   How to use   examples/pipeline.c is a whole program. Optimizer, loss and sums over other ranks stay yours. Include
                memopt.h before this file. */
#ifndef PARTS_PIPELINE_H
#define PARTS_PIPELINE_H
#include <stdlib.h>
#include <string.h>
#include "refuse.h"
#include "transformer.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

#define PIPELINE_SENDS 2 /* messages of a link that the sender has not waited for, while it computes the next one */

/* ---- schedules ---- */
typedef struct pipeline_shape { /* zero it, then set what you need */
    size_t ranks;
    size_t chunks;        /* stages of each rank; 0 = 1. More take two ranks, and micro_batches a multiple of ranks */
    size_t micro_batches; /* of a step */
} pipeline_shape;

typedef struct pipeline_action {
    size_t stage, micro_batch;
    int    is_backward;
} pipeline_action;

static inline size_t pipeline_chunks(const pipeline_shape *s) {
    return s->chunks ? s->chunks : 1;
}

static inline size_t pipeline_stages(const pipeline_shape *s) {
    return s->ranks * pipeline_chunks(s);
}

static inline size_t pipeline_count(const pipeline_shape *s) { /* actions of a rank */
    return 2 * s->micro_batches * pipeline_chunks(s);
}

static inline memopt_status pipeline_refuse(memopt_error *error, memopt_status status, const char *argument,
                                            const char *reason) {
    return part_refuse(error, "pipeline", status, argument, reason);
}

/* A number with its limit. */
static inline memopt_status pipeline_refuse_count(memopt_error *error, const char *argument, size_t got,
                                                  const char *bound, size_t limit) {
    (void)pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, argument, bound);
    if (!error) return MEMOPT_ERR_ARGUMENT;
    error->got.kind = error->limit.kind = MEMOPT_QUANTITY_COUNT;
    error->got.count = got;
    error->limit.count = limit;
    error->bound = bound;
    return MEMOPT_ERR_ARGUMENT;
}

static inline memopt_status pipeline_check_shape(const pipeline_shape *s, memopt_error *error) {
    const size_t most = MEMOPT_CHAIN_MAX;

    if (!s) return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, "shape", "is NULL");
    if (!s->ranks) return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, "ranks", "is 0");
    if (!s->micro_batches) return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, "micro_batches", "is 0");
    if (s->ranks > most / pipeline_chunks(s))
        return pipeline_refuse_count(error, "ranks", s->ranks, "with their chunks at most", most);
    if (s->micro_batches > most)
        return pipeline_refuse_count(error, "micro_batches", s->micro_batches, "at most", most);
    if (pipeline_chunks(s) == 1) return MEMOPT_OK;
    if (s->ranks == 1) return pipeline_refuse_count(error, "ranks", s->ranks, "with chunks at least", 2);
    if (s->micro_batches % s->ranks)
        return pipeline_refuse_count(error, "micro_batches", s->micro_batches, "with chunks a multiple of ranks",
                                     s->ranks);
    return MEMOPT_OK;
}

/* The nth forward or backward of a rank: `ranks` micro-batches go through a chunk, then through the next one. */
static inline pipeline_action pipeline_nth(const pipeline_shape *s, size_t rank, size_t n, int is_backward) {
    const size_t chunks = pipeline_chunks(s);
    const size_t chunk = n / s->ranks % chunks;
    pipeline_action a;

    a.stage = (is_backward ? chunks - 1 - chunk : chunk) * s->ranks + rank;
    a.micro_batch = n / (s->ranks * chunks) * s->ranks + n % s->ranks;
    a.is_backward = is_backward;
    return a;
}

/* Forwards of a rank before its first backward: the farther from the last rank, the more. */
static inline size_t pipeline_warm_up(const pipeline_shape *s, size_t rank) {
    const size_t behind = s->ranks - 1 - rank;
    const size_t chunks = pipeline_chunks(s);
    const size_t forwards = s->micro_batches * chunks;
    const size_t n = chunks == 1 ? behind : 2 * behind + (chunks - 1) * s->ranks;

    return n < forwards ? n : forwards;
}

/* A rank's pipeline_count() actions: forwards to warm up, then one forward and one backward, then what is left. */
static inline void pipeline_list(const pipeline_shape *s, size_t rank, pipeline_action *actions) {
    const size_t warm_up = pipeline_warm_up(s, rank);
    const size_t forwards = s->micro_batches * pipeline_chunks(s);
    size_t n;

    for (n = 0; n < forwards + warm_up; ++n) {
        if (n < forwards) *actions++ = pipeline_nth(s, rank, n, 0);
        if (n >= warm_up) *actions++ = pipeline_nth(s, rank, n - warm_up, 1);
    }
}

/* ---- messages ---- */
typedef enum pipeline_link_kind { /* from whom to whom; each is a queue */
    PIPELINE_ACTIVATIONS, /* a rank to the next one */
    PIPELINE_GRADIENTS,   /* to the one before */
    PIPELINE_TIED,        /* the last rank to the first: the head's gradient of the tokens */
    PIPELINE_LINK_KINDS
} pipeline_link_kind;

static inline int pipeline_receives(const pipeline_shape *s, int is_tied, const pipeline_action *a, int kind) {
    const size_t last = pipeline_stages(s) - 1;

    if (kind == PIPELINE_ACTIVATIONS) return !a->is_backward && a->stage > 0;
    if (kind == PIPELINE_GRADIENTS) return a->is_backward && a->stage < last;
    return is_tied && last && a->is_backward && a->stage == 0;
}

static inline int pipeline_sends(const pipeline_shape *s, int is_tied, const pipeline_action *a, int kind) {
    const size_t last = pipeline_stages(s) - 1;

    if (kind == PIPELINE_ACTIVATIONS) return !a->is_backward && a->stage < last;
    if (kind == PIPELINE_GRADIENTS) return a->is_backward && a->stage > 0;
    return is_tied && last && a->is_backward && a->stage == last;
}

static inline size_t pipeline_sender(const pipeline_shape *s, size_t rank, int kind) { /* of what `rank` receives */
    if (kind == PIPELINE_TIED) return s->ranks - 1;
    return (rank + (kind == PIPELINE_ACTIVATIONS ? s->ranks - 1 : 1)) % s->ranks;
}

static inline size_t pipeline_receiver(const pipeline_shape *s, size_t rank, int kind) { /* of what `rank` sends */
    if (kind == PIPELINE_TIED) return 0;
    return (rank + (kind == PIPELINE_ACTIVATIONS ? 1 : s->ranks - 1)) % s->ranks;
}

/* ---- all lists against each other ---- */
typedef struct pipeline_schedule { /* zero it, then set what you need */
    pipeline_shape         shape;
    const pipeline_action *actions; /* pipeline_count() of each rank, rank by rank */
    size_t sends;       /* messages of a link that are sent and not received; 0: a send blocks until it is received.
                           PIPELINE_SENDS here */
    size_t tied_slots;  /* 0: nothing is tied; else so many gradients of tokens that are made and not received */
    const double *forward_seconds, *backward_seconds; /* of each stage; NULL: 1 */
    double        latency; /* seconds of a message */
} pipeline_schedule;

typedef struct pipeline_course { /* what a simulation tells */
    double  seconds;
    double  waiting;    /* share of all ranks' seconds in which they compute nothing: the bubble */
    size_t  tied_slots; /* so many were in use; of a simulation with micro_batches of them: more would be for nothing */
    size_t *under_way;  /* NULL, or an array of yours: of each stage, the most micro-batches between forward and
                           backward */
} pipeline_course;

static inline const pipeline_action *pipeline_actions_of(const pipeline_schedule *s, size_t rank) {
    return s->actions + rank * pipeline_count(&s->shape);
}

/* Of action `at` in a rank's list. */
static inline memopt_status pipeline_refuse_action(memopt_error *error, size_t rank, size_t at,
                                                   const pipeline_action *a, const char *reason) {
    const char *what = a->is_backward ? "backward of micro-batch" : "forward of micro-batch";

    (void)pipeline_refuse(error, MEMOPT_ERR_STATE, what, reason);
    if (!error) return MEMOPT_ERR_STATE;
    error->got.kind = MEMOPT_QUANTITY_COUNT;
    error->got.count = a->micro_batch;
    error->bound = reason;
    error->place = "rank";
    error->index = rank;
    error->action = at;
    error->segment = a->stage;
    return MEMOPT_ERR_STATE;
}

static inline int pipeline_is(const pipeline_action *a, size_t stage, size_t micro_batch, int is_backward) {
    return a->stage == stage && a->micro_batch == micro_batch && a->is_backward == is_backward;
}

/* Each action once, and after those that must come before it on the same rank: so all are there. */
static inline memopt_status pipeline_check_list(const pipeline_schedule *s, size_t rank, memopt_error *error) {
    const pipeline_action *list = pipeline_actions_of(s, rank);
    size_t at, i;

    for (at = 0; at < pipeline_count(&s->shape); ++at) {
        const pipeline_action *a = &list[at];
        size_t same = 0, forwards = 0, before = 0;

        if (a->stage >= pipeline_stages(&s->shape) || a->stage % s->shape.ranks != rank)
            return pipeline_refuse_action(error, rank, at, a, "is of a stage of another rank");
        if (a->micro_batch >= s->shape.micro_batches)
            return pipeline_refuse_action(error, rank, at, a, "does not exist");
        for (i = 0; i < at; ++i) {
            same += (size_t)pipeline_is(&list[i], a->stage, a->micro_batch, a->is_backward);
            forwards += (size_t)pipeline_is(&list[i], a->stage, a->micro_batch, 0);
            before += (size_t)(a->micro_batch && pipeline_is(&list[i], a->stage, a->micro_batch - 1, 1));
        }
        if (same) return pipeline_refuse_action(error, rank, at, a, "is there twice");
        if (!a->is_backward) continue;
        if (!forwards) return pipeline_refuse_action(error, rank, at, a, "comes before its forward");
        if (a->micro_batch && !before)
            return pipeline_refuse_action(error, rank, at, a, "comes before that of the micro-batch before it");
    }
    return MEMOPT_OK;
}

/* What a rank sends on a link is received there in the same order. */
static inline memopt_status pipeline_check_link(const pipeline_schedule *s, size_t rank, int kind,
                                                memopt_error *error) {
    const size_t other = pipeline_receiver(&s->shape, rank, kind);
    const size_t count = pipeline_count(&s->shape);
    const pipeline_action *from = pipeline_actions_of(s, rank), *to = pipeline_actions_of(s, other);
    const int tied = s->tied_slots > 0;
    size_t i, j = 0;

    for (i = 0; i < count; ++i) {
        size_t stage;

        if (!pipeline_sends(&s->shape, tied, &from[i], kind)) continue;
        while (j < count && !pipeline_receives(&s->shape, tied, &to[j], kind)) ++j;
        stage = kind == PIPELINE_TIED ? 0 : kind == PIPELINE_ACTIVATIONS ? from[i].stage + 1 : from[i].stage - 1;
        if (j == count || !pipeline_is(&to[j], stage, from[i].micro_batch, kind != PIPELINE_ACTIVATIONS))
            return pipeline_refuse_action(error, rank, i, &from[i], "is sent in another order than it is received");
        ++j;
    }
    return MEMOPT_OK;
}

typedef struct pipeline_clock { /* of a rank in a simulation */
    size_t at;   /* in its list */
    int    step; /* of this action */
    double now, busy;
    size_t sent[PIPELINE_LINK_KINDS], received[PIPELINE_LINK_KINDS];
    double *sent_at[PIPELINE_LINK_KINDS], *received_at[PIPELINE_LINK_KINDS]; /* of what it sends */
} pipeline_clock;

enum { PIPELINE_RECEIVE, PIPELINE_ROOM, PIPELINE_COMPUTE, PIPELINE_SEND, PIPELINE_BLOCK, PIPELINE_STEPS };

static inline double pipeline_later(double a, double b) {
    return a > b ? a : b;
}

/* One step of one kind of message of a rank's action; 0: it has to wait for another rank. */
static inline int pipeline_advance(const pipeline_schedule *s, pipeline_clock *clocks, size_t rank) {
    pipeline_clock *c = &clocks[rank];
    const pipeline_action *a = &pipeline_actions_of(s, rank)[c->at];
    const int kind = c->step % PIPELINE_LINK_KINDS;
    const int sends = pipeline_sends(&s->shape, s->tied_slots > 0, a, kind);
    pipeline_clock *from = &clocks[pipeline_sender(&s->shape, rank, kind)];
    pipeline_clock *to = &clocks[pipeline_receiver(&s->shape, rank, kind)];
    const size_t slots = !s->sends ? SIZE_MAX : kind == PIPELINE_TIED ? s->tied_slots : s->sends;
    const double *seconds = a->is_backward ? s->backward_seconds : s->forward_seconds;
    size_t n;

    switch (c->step / PIPELINE_LINK_KINDS) {
    case PIPELINE_RECEIVE:
        if (!pipeline_receives(&s->shape, s->tied_slots > 0, a, kind)) break;
        n = c->received[kind];
        if (n == from->sent[kind]) return 0;
        c->now = pipeline_later(c->now, from->sent_at[kind][n] + s->latency);
        from->received_at[kind][c->received[kind]++] = c->now;
        break;
    case PIPELINE_ROOM:
        n = c->sent[kind];
        if (!sends || n < slots) break;
        if (n - to->received[kind] >= slots) return 0;
        c->now = pipeline_later(c->now, c->received_at[kind][n - slots]);
        break;
    case PIPELINE_COMPUTE:
        if (kind) break;
        c->now += seconds ? seconds[a->stage] : 1;
        c->busy += seconds ? seconds[a->stage] : 1;
        break;
    case PIPELINE_SEND:
        if (sends) c->sent_at[kind][c->sent[kind]++] = c->now;
        break;
    default: /* PIPELINE_BLOCK */
        if (s->sends || !sends) break;
        if (to->received[kind] < c->sent[kind]) return 0;
        c->now = pipeline_later(c->now, c->received_at[kind][c->sent[kind] - 1]);
    }
    if (++c->step < PIPELINE_STEPS * PIPELINE_LINK_KINDS) return 1;
    c->step = 0;
    ++c->at;
    return 1;
}

/* Until all lists are at their ends, or nobody gets on. */
static inline memopt_status pipeline_run_clocks(const pipeline_schedule *s, pipeline_clock *clocks,
                                                memopt_error *error) {
    const size_t count = pipeline_count(&s->shape);
    size_t rank, moved = 1;

    while (moved) {
        moved = 0;
        for (rank = 0; rank < s->shape.ranks; ++rank)
            while (clocks[rank].at < count && pipeline_advance(s, clocks, rank)) ++moved;
    }
    for (rank = 0; rank < s->shape.ranks; ++rank)
        if (clocks[rank].at < count)
            return pipeline_refuse_action(error, rank, clocks[rank].at,
                                          &pipeline_actions_of(s, rank)[clocks[rank].at],
                                          s->sends ? "waits for ever, with buffered sends"
                                                   : "waits for ever, with sends that block");
    return MEMOPT_OK;
}

static inline void pipeline_count_under_way(const pipeline_schedule *s, size_t *under_way) {
    size_t stage, at;

    for (stage = 0; stage < pipeline_stages(&s->shape); ++stage) {
        const pipeline_action *list = pipeline_actions_of(s, stage % s->shape.ranks);
        size_t now = 0;

        under_way[stage] = 0;
        for (at = 0; at < pipeline_count(&s->shape); ++at) {
            if (list[at].stage != stage) continue;
            if (list[at].is_backward) --now;
            else if (++now > under_way[stage]) under_way[stage] = now;
        }
    }
}

/* How many gradients of tokens there are at once between the last rank's backward and the first one's receipt. */
static inline size_t pipeline_tied_at_once(const pipeline_schedule *s, const pipeline_clock *last) {
    const size_t m = last->sent[PIPELINE_TIED];
    size_t most = 0, i, j;

    for (i = 0; i < m; ++i) {
        const double begins = last->sent_at[PIPELINE_TIED][i]
            - (s->backward_seconds ? s->backward_seconds[pipeline_stages(&s->shape) - 1] : 1);
        size_t n = 0;

        for (j = 0; j <= i; ++j) n += (size_t)(last->received_at[PIPELINE_TIED][j] > begins);
        if (n > most) most = n;
    }
    return most;
}

static inline void *pipeline_alloc(const memopt_host *host, size_t bytes) {
    const memopt_allocator *a = host ? &host->allocator : NULL;

    return a && a->alloc_fn ? a->alloc_fn(a->user, bytes, 64) : malloc(bytes);
}

static inline void pipeline_free(const memopt_host *host, void *memory, size_t bytes) {
    const memopt_allocator *a = host ? &host->allocator : NULL;

    if (memory && a && a->alloc_fn) a->free_fn(a->user, memory, bytes, 64);
    else free(memory);
}

static inline pipeline_clock *pipeline_lay_out_clocks(const pipeline_shape *s, memopt_carver *room) {
    pipeline_clock *clocks = (pipeline_clock *)memopt_carve(room, s->ranks, sizeof *clocks, 0);
    size_t rank, kind;

    for (rank = 0; rank < s->ranks; ++rank)
        for (kind = 0; kind < PIPELINE_LINK_KINDS; ++kind) {
            double *times = (double *)memopt_carve(room, pipeline_count(s), sizeof *times, 0);

            if (!times) continue;
            clocks[rank].sent_at[kind] = times;
            clocks[rank].received_at[kind] = times + pipeline_count(s) / 2;
        }
    return clocks;
}

/**
 * Run all ranks' lists against each other.
 *
 * host     its allocator lends memory; NULL = malloc
 * course   what it tells; on failure untouched
 * returns  OK; ERR_ARGUMENT; ERR_STATE: the lists do not go together; ERR_MEMORY. error->index is the rank,
 *          error->action the place in its list, error->segment the stage
 */
static inline memopt_status pipeline_simulate(const pipeline_schedule *s, const memopt_host *host,
                                              pipeline_course *course, memopt_error *error) {
    memopt_carver room = memopt_carver_begin(NULL);
    pipeline_clock *clocks;
    memopt_status status;
    size_t rank, bytes;
    double busy = 0;
    int kind;

    if (!s || !s->actions || !course)
        return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, !s ? "schedule" : !course ? "course" : "actions", "is NULL");
    status = pipeline_check_shape(&s->shape, error);
    for (rank = 0; rank < s->shape.ranks && !status; ++rank) status = pipeline_check_list(s, rank, error);
    for (rank = 0; rank < s->shape.ranks && !status; ++rank)
        for (kind = 0; kind < PIPELINE_LINK_KINDS && !status; ++kind)
            status = pipeline_check_link(s, rank, kind, error);
    if (status) return status;
    (void)pipeline_lay_out_clocks(&s->shape, &room);
    bytes = room.bytes;
    room = memopt_carver_begin(pipeline_alloc(host, bytes));
    if (!room.base) return pipeline_refuse(error, MEMOPT_ERR_MEMORY, NULL, "no memory to simulate the schedule");
    memset(room.base, 0, bytes);
    clocks = pipeline_lay_out_clocks(&s->shape, &room);
    status = pipeline_run_clocks(s, clocks, error);
    if (!status) {
        course->seconds = 0;
        for (rank = 0; rank < s->shape.ranks; ++rank) {
            course->seconds = pipeline_later(course->seconds, clocks[rank].now);
            busy += clocks[rank].busy;
        }
        course->waiting = course->seconds > 0 ? 1 - busy / (course->seconds * (double)s->shape.ranks) : 0;
        course->tied_slots = pipeline_tied_at_once(s, &clocks[s->shape.ranks - 1]);
        if (course->under_way) pipeline_count_under_way(s, course->under_way);
    }
    pipeline_free(host, room.base, bytes);
    return status;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
