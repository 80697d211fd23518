/* pipeline.h - one model over ranks by layers: each has runs of consecutive segments of one chain (stages), and the
   micro-batches of a step go through them. The bits are those of one process that runs them in order. Copy it.

   Schedules    A list of actions for each rank (stage, micro-batch, forward or backward), by pipeline_list(): 1F1B, and
                with `chunks` stages a rank the interleaved form [Narayanan 2021, arXiv:2104.04473]. Stage s is on rank
                s % ranks. pipeline_simulate() runs all lists against each other before anything starts: every action
                is there once, backwards are in the order of micro-batches, both ends of each link have the messages in
                the same order, nobody waits for ever; it tells how many micro-batches are under way at most in each
                stage, seconds, and the share of them in which ranks wait.
   Memory       A stage keeps what its backward needs of each micro-batch that is under way, and works in memory that is
                there once: a tape for each of them, with held_apart. What the CPU reads are tables, which lie in memory
                of their own. pipeline_plan() cuts the chain so that the largest stage is the smallest there is, by dry
                runs: what a rank takes, with its weights, gradients and states, is known to the byte before anything
                runs. With `limit` the slowest stage is the fastest of the cuts that keep within it: ends are large and
                quick, and stages that are equally large wait for each other. Of several chunks a rank the cuts are then
                moved while the largest rank becomes smaller, or with a limit a step shorter: these are not proven to be
                the best.
   Bits         Gradients of a stage are made in the order of micro-batches, on one rank. A segment's random numbers are
                those of its place in the whole chain and of the micro-batch's number.
   Tied tokens  The last rank has a copy of them. The head's gradient of each micro-batch goes to the first rank before
                its backward, which adds onto it: as in one process that adds up micro-batches outside, by done_fn. With
                `accumulate` one process adds the head's onto the embedding's of the micro-batch before, which would be
                a wait of all ranks for each other: refused. Up to `tied_slots` of them are under way; with few the
                last rank waits. pipeline_share_tokens() follows the optimizer.
   Evaluations  pipeline_evaluate() sends micro-batches through forwards alone, in the same memory, for a validation.
   Links        Communicators of two ranks, of yours, one for each direction: the sender is rank 0 of it, the receiver
                rank 1, as a message is a broadcast. On one for both directions, or for all ranks, calls would have an
                order that both ends know only from this schedule. They are `unchecked`: a call that is compared begins
                when both ranks are there, which is a send that blocks, and with those 1F1B deadlocks, as the
                simulation tells. Messages go on while the rank computes, PIPELINE_SENDS on a link.
   On a device  desc.tape.not_host_visible says that memory is one's; layers launch on one stream. Links move its bytes:
                a begin is ordered behind what that stream was given, a wait holds the host until the bytes are there,
                as in adapters/nccl.h. So a rank that receives launches nothing until the message has come: the device
                idles for a launch with each. `all` is of the host's memory.
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
            return pipeline_refuse_action(error, rank, clocks[rank].at, &pipeline_actions_of(s, rank)[clocks[rank].at],
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

static inline size_t pipeline_clock_bytes(const pipeline_shape *s) {
    memopt_carver room = memopt_carver_begin(NULL);

    (void)pipeline_lay_out_clocks(s, &room);
    return room.bytes;
}

/* A schedule whose lists are right, in pipeline_clock_bytes() of memory. */
static inline memopt_status pipeline_run(const pipeline_schedule *s, void *memory, pipeline_course *course,
                                         memopt_error *error) {
    memopt_carver room = memopt_carver_begin(memory);
    pipeline_clock *clocks;
    memopt_status status;
    double busy = 0;
    size_t rank;

    memset(memory, 0, pipeline_clock_bytes(&s->shape));
    clocks = pipeline_lay_out_clocks(&s->shape, &room);
    status = pipeline_run_clocks(s, clocks, error);
    if (status) return status;
    course->seconds = 0;
    for (rank = 0; rank < s->shape.ranks; ++rank) {
        course->seconds = pipeline_later(course->seconds, clocks[rank].now);
        busy += clocks[rank].busy;
    }
    course->waiting = course->seconds > 0 ? 1 - busy / (course->seconds * (double)s->shape.ranks) : 0;
    course->tied_slots = pipeline_tied_at_once(s, &clocks[s->shape.ranks - 1]);
    if (course->under_way) pipeline_count_under_way(s, course->under_way);
    return MEMOPT_OK;
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
    memopt_status status;
    void *memory;
    size_t rank, bytes;
    int kind;

    if (!s || !s->actions || !course)
        return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, !s ? "schedule" : !course ? "course" : "actions", "is NULL");
    status = pipeline_check_shape(&s->shape, error);
    for (rank = 0; rank < s->shape.ranks && !status; ++rank) status = pipeline_check_list(s, rank, error);
    for (rank = 0; rank < s->shape.ranks && !status; ++rank)
        for (kind = 0; kind < PIPELINE_LINK_KINDS && !status; ++kind)
            status = pipeline_check_link(s, rank, kind, error);
    if (status) return status;
    bytes = pipeline_clock_bytes(&s->shape);
    memory = pipeline_alloc(host, bytes);
    if (!memory) return pipeline_refuse(error, MEMOPT_ERR_MEMORY, NULL, "no memory to simulate the schedule");
    status = pipeline_run(s, memory, course, error);
    pipeline_free(host, memory, bytes);
    return status;
}

/* ---- a chain in stages ---- */
typedef struct pipeline_desc { /* zero it, then set what you need; the same on all ranks, but for layers and user */
    pipeline_shape shape;
    const memopt_tape_layer *layers;   /* of the whole chain, whose head begins the backward; weights of a rank's own
                                          stages alone are needed, and those when it runs */
    const memopt_segment    *segments; /* described; without skips */
    size_t            count, input_bytes; /* input_bytes: of a micro-batch */
    memopt_tape_desc  tape;            /* of each stage: rule, every, overhead, codec, seed, verify, host; no budget.
                                          not_host_visible is of memory of a device */
    uint64_t          stride;          /* from the number of a micro-batch to the next; 0 = 1 */
    size_t            limit;           /* bytes of a rank, for the fastest cut within them; 0, or where there is none:
                                          the smallest one, whose bytes tell */
    const transformer *tied;           /* NULL: nothing is tied; else the shape whose head has the tokens as weights */
    int               evaluates;       /* 1: memory for pipeline_evaluate(), too */
    size_t            tied_slots;      /* at most MEMOPT_COMM_CALLS. 0 = as many as the last rank never waits for, where
                                          all actions take the same time */
    /* NULL, or what lies on a rank for some segments beside the pipeline: weights, gradients, states. By dry runs */
    size_t          (*resident_fn)(void *user, size_t first, size_t count);
    /* NULL, or called around each action, for targets, `accumulate` and losses; what it returns ends the step */
    memopt_status   (*before_fn)(void *user, const pipeline_action *action);
    memopt_status   (*after_fn)(void *user, const pipeline_action *action);
    void             *user;
    memopt_error     *error;           /* NULL, or filled in when pipeline_plan() or pipeline_open() fails */
} pipeline_desc;

typedef struct pipeline_stage {
    size_t first, count;  /* segments */
    size_t under_way;     /* micro-batches at most */
    size_t held, work;    /* bytes: of each micro-batch under way; of a pass, once */
    size_t input, output, input_grad, output_grad; /* bytes of what is sent and received; 0: none */
    size_t resident;
    size_t tied_slots;    /* of the last stage, where tokens are tied: gradients of them at once */
} pipeline_stage;

typedef struct pipeline_bytes { /* of a rank */
    size_t resident; /* what resident_fn tells */
    size_t tokens;   /* the last rank's copy of tied tokens, an array of yours */
    size_t pipeline; /* for pipeline_open(): what passes and messages use */
    size_t total;    /* of these three */
    size_t tables;   /* what only the CPU uses: pipeline_open() takes it from desc.tape.host */
} pipeline_bytes;

typedef struct pipeline_links { /* of one rank; NULL where nothing is sent or received */
    memopt_comm *in[PIPELINE_LINK_KINDS], *out[PIPELINE_LINK_KINDS]; /* of two ranks each: the sender is rank 0 */
    memopt_comm *all; /* NULL, or of all ranks, of the host's memory: compares plans, and tells who failed */
} pipeline_links;

typedef struct pipeline_layer { /* a layer in its place in the whole chain */
    memopt_tape_layer layer;
    size_t first;
} pipeline_layer;

typedef struct pipeline_slot { /* a micro-batch under way */
    memopt_tape *tape;
    void  *input, *held;
    size_t micro_batch; /* SIZE_MAX: none */
    size_t sent;        /* its output is in message sent - 1; 0: in none */
} pipeline_slot;

typedef struct pipeline_chunk {
    pipeline_stage stage;
    pipeline_slot *slots; /* stage.under_way */
} pipeline_chunk;

typedef struct pipeline { /* of one rank */
    pipeline_desc    desc;
    memopt_host      host;      /* where this lies, with all tables: so many bytes */
    size_t           table_bytes;
    size_t           rank;
    pipeline_links   links;
    transformer_part *tokens;   /* of the first and the last rank */
    pipeline_chunk  *chunks;
    pipeline_action *actions;
    pipeline_layer  *layers;    /* of all its segments; and as tapes are told of them */
    memopt_tape_layer *wrapped;
    void            *work, *grad_input, *grad_outputs[PIPELINE_SENDS], *tied[MEMOPT_COMM_CALLS];
    size_t           tied_slots;
    uint64_t        *votes;     /* of all ranks */
    uint64_t         calls[PIPELINE_LINK_KINDS][MEMOPT_COMM_CALLS]; /* numbers of messages */
    size_t           sent[PIPELINE_LINK_KINDS], waited[PIPELINE_LINK_KINDS]; /* messages, in this step */
    int              is_broken;
    memopt_error     error;
} pipeline;

static inline size_t pipeline_tied_bytes_of(const transformer *t, memopt_type type) { /* of those that are here */
    return transformer_padded(t) / (t->cut ? t->cut->rank_count : 1) * t->width * memopt_type_bytes(type);
}

static inline size_t pipeline_tied_bytes(const pipeline_desc *d, memopt_type type) {
    return d->tied && d->shape.ranks > 1 ? pipeline_tied_bytes_of(d->tied, type) : 0;
}

static inline size_t pipeline_most(size_t a, size_t b) {
    return a > b ? a : b;
}

static inline size_t pipeline_up(size_t bytes) { /* SIZE_MAX stays above everything */
    return bytes > SIZE_MAX - 63 ? SIZE_MAX : (bytes + 63) & ~(size_t)63;
}

/* The tables of a rank with these stages, one for each chunk; a rank's own, or one of a plan that is tried. */
static inline pipeline *pipeline_lay_out_tables(memopt_carver *room, const pipeline_desc *d,
                                                const pipeline_stage *const *stages, size_t chunks) {
    pipeline *x = (pipeline *)memopt_carve(room, 1, sizeof *x, 0);
    pipeline_chunk *c = (pipeline_chunk *)memopt_carve(room, chunks, sizeof *c, 0);
    pipeline counted, *own = x ? x : &counted;
    size_t count = 0, k;

    own->chunks = c;
    own->actions = (pipeline_action *)memopt_carve(room, pipeline_count(&d->shape), sizeof *own->actions, 0);
    own->votes = (uint64_t *)memopt_carve(room, d->shape.ranks, sizeof *own->votes, 0);
    for (k = 0; k < chunks; ++k) {
        pipeline_slot *slots = (pipeline_slot *)memopt_carve(room, stages[k]->under_way, sizeof *slots, 0);

        if (c) c[k].slots = slots;
        if (c) c[k].stage = *stages[k];
        count += stages[k]->count;
    }
    own->layers = (pipeline_layer *)memopt_carve(room, count, sizeof *own->layers, 0);
    own->wrapped = (memopt_tape_layer *)memopt_carve(room, count, sizeof *own->wrapped, 0);
    return x;
}

/* What its passes and messages use, which may be a device's memory; x NULL: only counted. */
static inline void pipeline_lay_out(pipeline *x, memopt_carver *room, const pipeline_desc *d,
                                    const pipeline_stage *const *stages, size_t chunks) {
    pipeline counted, *own = x ? x : &counted;
    size_t work = 0, input_grad = 0, output_grad = 0, i, k;

    own->tied_slots = 0;
    for (k = 0; k < chunks; ++k) {
        const pipeline_stage *stage = stages[k];

        for (i = 0; i < stage->under_way; ++i) {
            void *input = memopt_carve(room, stage->first ? stage->input : 0, 1, 0);
            void *held = memopt_carve(room, stage->held, 1, 0);

            if (!x) continue;
            x->chunks[k].slots[i].input = input;
            x->chunks[k].slots[i].held = held;
            x->chunks[k].slots[i].micro_batch = SIZE_MAX;
        }
        work = pipeline_most(work, stage->work);
        input_grad = pipeline_most(input_grad, stage->input_grad);
        output_grad = pipeline_most(output_grad, stage->output_grad);
        own->tied_slots += stage->tied_slots;
    }
    own->work = memopt_carve(room, work, 1, 0);
    own->grad_input = memopt_carve(room, output_grad, 1, 0);
    for (i = 0; i < PIPELINE_SENDS; ++i) own->grad_outputs[i] = memopt_carve(room, input_grad, 1, 0);
    for (i = 0; i < own->tied_slots; ++i)
        own->tied[i] = memopt_carve(room, pipeline_tied_bytes(d, d->tied->gradient_type), 1, 0);
}

static inline size_t pipeline_sum(size_t a, size_t b) {
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* Of a rank with such stages; SIZE_MAX: does not fit a size_t. */
static inline pipeline_bytes pipeline_count_bytes(const pipeline_desc *d, const pipeline_stage *const *stages,
                                                  size_t chunks) {
    memopt_carver room = memopt_carver_begin(NULL), tables = room;
    pipeline_bytes b;
    size_t k;

    memset(&b, 0, sizeof b);
    (void)pipeline_lay_out_tables(&tables, d, stages, chunks);
    pipeline_lay_out(NULL, &room, d, stages, chunks);
    b.tables = tables.overflow ? SIZE_MAX : tables.bytes;
    b.pipeline = room.overflow ? SIZE_MAX : pipeline_up(room.bytes);
    for (k = 0; k < chunks; ++k) {
        b.resident = pipeline_sum(b.resident, stages[k]->resident);
        if (d->tied && stages[k]->first + stages[k]->count == d->count)
            b.tokens = pipeline_tied_bytes(d, d->tied->weight_type);
    }
    b.total = pipeline_sum(pipeline_sum(b.resident, pipeline_up(b.tokens)), b.pipeline);
    return b;
}

/* ---- parameters of a stage ---- */
/* What chain.weights, and with arrays of gradients chain.gradients, are while parts are added to be cut: an address at
   which nothing lies. pipeline_place() then gives a stage's parts, and the optimizer's tensors, arrays of their own. */
#define PIPELINE_NOWHERE ((void *)(uintptr_t)4096)

typedef struct pipeline_parameters {
    size_t first, count;               /* elements, in those of the whole chain */
    size_t first_tensor, tensor_count;
} pipeline_parameters;

static inline pipeline_parameters pipeline_parameters_of(const transformer_chain *chain, size_t first, size_t count) {
    const transformer_part *from = (const transformer_part *)chain->layers[first].user;
    const size_t type_bytes = memopt_type_bytes(chain->shape->weight_type), end = first + count;
    const transformer_part *to = end < chain->count ? (const transformer_part *)chain->layers[end].user : NULL;
    const uintptr_t nowhere = (uintptr_t)PIPELINE_NOWHERE;
    pipeline_parameters x;

    x.first = ((uintptr_t)from->weights - nowhere) / type_bytes;
    x.count = (to ? ((uintptr_t)to->weights - nowhere) / type_bytes : chain->elements) - x.first;
    x.first_tensor = from->first_tensor;
    x.tensor_count = (to ? to->first_tensor : chain->tensor_count) - x.first_tensor;
    return x;
}

/* Once for each stage of a rank: weights and gradients (NULL: in scratch), of as many elements as
   pipeline_parameters_of() told before. */
static inline void pipeline_place(const transformer_chain *chain, size_t first, size_t count, void *weights,
                                  void *gradients) {
    const transformer *t = chain->shape;
    const pipeline_parameters x = pipeline_parameters_of(chain, first, count);
    size_t i, k;

    for (i = first; i < first + count; ++i) {
        transformer_part *part = (transformer_part *)chain->layers[i].user;
        const pipeline_parameters own = pipeline_parameters_of(chain, i, 1);

        part->weights = transformer_at(weights, own.first - x.first, t->weight_type);
        part->gradients = transformer_at(gradients, own.first - x.first, t->gradient_type);
        for (k = 0; chain->tensors && k < own.tensor_count; ++k) {
            memopt_optim_tensor *o = &chain->tensors[own.first_tensor + k];
            const uintptr_t at = ((uintptr_t)o->weights - (uintptr_t)PIPELINE_NOWHERE)
                / memopt_type_bytes(t->weight_type) - x.first;

            o->weights = transformer_at(weights, at, t->weight_type);
            o->gradients = transformer_at(gradients, at, t->gradient_type);
        }
    }
}

/* ---- the plan ---- */
typedef struct pipeline_known { /* of segments first .. first + count - 1 */
    size_t held, work, resident;
    double forward, backward; /* costs of a micro-batch; what is made again is the backward's */
    int    is_known;
} pipeline_known;

typedef struct pipeline_planner {
    const pipeline_desc *desc;
    pipeline_known  *known;     /* count + 1 of each first segment */
    double          *best;      /* of each stage and end: how bad the worst stage so far is, by bytes or by cost */
    size_t          *cut;       /* and where the last one begins */
    size_t           limit;     /* of a rank's bytes, and of slowness; 0, below 0: none. Where bytes alone have one the
                                   aim is to be fast, else to be small */
    double           slowest;
    size_t          *under_way, tied_slots;
    pipeline_action *actions;
    pipeline_schedule schedule; /* of these, with costs as seconds, of each stage: */
    double          *forward, *backward;
    void            *clocks;    /* to run it */
    pipeline_stage  *stages;    /* tried */
    const pipeline_stage **own; /* a rank's */
} pipeline_planner;

static inline void pipeline_lay_out_planner(pipeline_planner *p, memopt_carver *room) {
    const pipeline_shape *s = &p->desc->shape;
    const size_t n = p->desc->count + 1;
    const size_t stages = pipeline_stages(s);

    p->known = (pipeline_known *)memopt_carve(room, n * n, sizeof *p->known, 0);
    p->best = (double *)memopt_carve(room, n * stages, sizeof *p->best, 0);
    p->cut = (size_t *)memopt_carve(room, n * stages, sizeof *p->cut, 0);
    p->under_way = (size_t *)memopt_carve(room, stages, sizeof *p->under_way, 0);
    p->actions = (pipeline_action *)memopt_carve(room, s->ranks * pipeline_count(s), sizeof *p->actions, 0);
    p->forward = (double *)memopt_carve(room, stages, sizeof *p->forward, 0);
    p->backward = (double *)memopt_carve(room, stages, sizeof *p->backward, 0);
    p->clocks = memopt_carve(room, pipeline_clock_bytes(s), 1, 0);
    p->stages = (pipeline_stage *)memopt_carve(room, stages, sizeof *p->stages, 0);
    p->own = (const pipeline_stage **)memopt_carve(room, pipeline_chunks(s), sizeof(void *), 0);
}

/* A stage may begin behind a value that has a gradient. */
static inline int pipeline_may_begin(const pipeline_desc *d, size_t segment) {
    return !segment || (d->segments[segment - 1].output_bytes && d->segments[segment - 1].grad_bytes);
}

static inline memopt_tape_desc pipeline_tape_desc(const pipeline_desc *d, const pipeline_stage *stage) {
    memopt_tape_desc t = d->tape;

    memset(&t.chain, 0, sizeof t.chain);
    t.chain.segments = d->segments + stage->first;
    t.chain.count = stage->count;
    t.chain.input_bytes = stage->input;
    t.chain.input_grad_bytes = stage->input_grad;
    t.layers = d->layers + stage->first;
    t.held_apart = 1;
    t.error = d->error;
    return t;
}

static inline pipeline_stage pipeline_stage_of(const pipeline_desc *d, size_t first, size_t count) {
    pipeline_stage s;

    memset(&s, 0, sizeof s);
    s.first = first;
    s.count = count;
    s.input = first ? d->segments[first - 1].output_bytes : d->input_bytes;
    s.input_grad = first ? d->segments[first - 1].grad_bytes : 0;
    s.output = first + count < d->count ? d->segments[first + count - 1].output_bytes : 0;
    s.output_grad = first + count < d->count ? d->segments[first + count - 1].grad_bytes : 0;
    return s;
}

/* Of segments that are equal to others, as blocks are, the sizes are those of the others. */
static inline memopt_status pipeline_measure(const pipeline_planner *p, size_t first, size_t count) {
    const pipeline_desc *d = p->desc;
    pipeline_known *known = &p->known[first * (d->count + 1) + count];
    const pipeline_stage stage = pipeline_stage_of(d, first, count);
    const memopt_tape_desc desc = pipeline_tape_desc(d, &stage);
    memopt_tape *tape = NULL;
    memopt_tape_stats stats;
    memopt_status status;
    size_t i;

    if (known->is_known) return MEMOPT_OK;
    known->resident = d->resident_fn ? d->resident_fn(d->user, first, count) : 0;
    for (i = 0; i + count <= d->count; ++i) {
        const pipeline_known *other = &p->known[i * (d->count + 1) + count];

        if (!other->is_known || memcmp(&d->segments[i], &d->segments[first], count * sizeof *d->segments)) continue;
        known->held = other->held;
        known->work = other->work;
        known->forward = other->forward;
        known->backward = other->backward;
        known->is_known = 1;
        return MEMOPT_OK;
    }
    status = memopt_tape_create(&desc, &tape);
    if (status) return status;
    stats = memopt_tape_get_stats(tape);
    memopt_tape_destroy(tape);
    known->held = pipeline_up(stats.held);
    known->work = pipeline_up(stats.peak - stats.held);
    for (i = first; i < first + count; ++i) known->forward += d->segments[i].forward_cost;
    known->backward = stats.cost - known->forward;
    if (d->evaluates) known->work = pipeline_most(known->work, pipeline_up(stats.evaluate_peak));
    known->is_known = 1;
    return MEMOPT_OK;
}

static inline memopt_status pipeline_try_stage(const pipeline_planner *p, size_t stage, size_t first, size_t count) {
    const memopt_status status = pipeline_measure(p, first, count);
    const pipeline_known *known = &p->known[first * (p->desc->count + 1) + count];

    p->stages[stage] = pipeline_stage_of(p->desc, first, count);
    p->stages[stage].under_way = p->under_way[stage];
    p->stages[stage].tied_slots = first + count == p->desc->count ? p->tied_slots : 0;
    p->stages[stage].held = known->held;
    p->stages[stage].work = known->work;
    p->stages[stage].resident = known->resident;
    return status;
}

#define PIPELINE_NEVER 1e300 /* worse than any stage */

static inline const pipeline_known *pipeline_known_of(const pipeline_planner *p, const pipeline_stage *s) {
    return &p->known[s->first * (p->desc->count + 1) + s->count];
}

/* How bad a stage is, taken for a rank by itself. */
static inline double pipeline_badness(const pipeline_planner *p, const pipeline_stage *own) {
    const size_t bytes = pipeline_count_bytes(p->desc, &own, 1).total;
    const pipeline_known *known = pipeline_known_of(p, own);
    const double cost = known->forward + known->backward;

    if ((p->limit && bytes > p->limit) || (p->slowest >= 0 && cost > p->slowest)) return PIPELINE_NEVER;
    return p->limit && p->slowest < 0 ? cost : (double)bytes;
}

/* The cuts whose worst stage is the best there is. */
static inline memopt_status pipeline_cut(const pipeline_planner *p) {
    const pipeline_desc *d = p->desc;
    const size_t n = d->count + 1, stages = pipeline_stages(&d->shape);
    memopt_status status = MEMOPT_OK;
    size_t s, first, end;

    for (s = 0; s < stages; ++s)
        for (end = s + 1; end < n; ++end) {
            double *best = &p->best[s * n + end];

            *best = PIPELINE_NEVER;
            if ((s + 1 == stages) != (end == d->count) || (end < d->count && !pipeline_may_begin(d, end))) continue;
            for (first = s; first < (s ? end : 1) && !status; ++first) {
                const double before = s ? p->best[(s - 1) * n + first] : 0;
                double worst;

                if (before >= *best) continue;
                status = pipeline_try_stage(p, s, first, end - first);
                worst = pipeline_later(before, pipeline_badness(p, &p->stages[s]));
                if (worst >= *best) continue;
                *best = worst;
                p->cut[s * n + end] = first;
            }
            if (status) return status;
        }
    if (p->best[(stages - 1) * n + d->count] >= PIPELINE_NEVER)
        return pipeline_refuse(d->error, MEMOPT_ERR_ARGUMENT, "segments",
                               "cannot be cut into so many stages, between values that have gradients");
    for (s = stages, end = d->count; s--; end = first) {
        first = p->cut[s * n + end];
        (void)pipeline_try_stage(p, s, first, end - first);
    }
    return MEMOPT_OK;
}

static inline pipeline_bytes pipeline_rank_bytes(const pipeline_planner *p, size_t rank) {
    const size_t chunks = pipeline_chunks(&p->desc->shape);
    size_t k;

    for (k = 0; k < chunks; ++k) p->own[k] = &p->stages[k * p->desc->shape.ranks + rank];
    return pipeline_count_bytes(p->desc, p->own, chunks);
}

static inline size_t pipeline_largest(const pipeline_planner *p) {
    size_t most = 0, rank;

    for (rank = 0; rank < p->desc->shape.ranks; ++rank)
        most = pipeline_most(most, pipeline_rank_bytes(p, rank).total);
    return most;
}

/* How slow these stages are: of one a rank by the slowest, in whose time all go on; of several by a step as it is
   run. */
static inline double pipeline_slowness(const pipeline_planner *p) {
    const size_t stages = pipeline_stages(&p->desc->shape);
    pipeline_course course;
    double most = 0;
    size_t s;

    for (s = 0; s < stages; ++s) {
        const pipeline_known *known = pipeline_known_of(p, &p->stages[s]);

        p->forward[s] = known->forward;
        p->backward[s] = known->backward;
        most = pipeline_later(most, known->forward + known->backward);
    }
    if (pipeline_chunks(&p->desc->shape) == 1) return most;
    memset(&course, 0, sizeof course);
    (void)pipeline_run(&p->schedule, p->clocks, &course, NULL); /* it was run before, with other seconds */
    return course.seconds;
}

/* How bad the worst rank is. */
static inline double pipeline_worst(const pipeline_planner *p) {
    const size_t largest = pipeline_largest(p);
    const double slowness = p->limit ? pipeline_slowness(p) : 0;

    if ((p->limit && largest > p->limit) || (p->slowest >= 0 && slowness > p->slowest)) return PIPELINE_NEVER;
    return p->limit && p->slowest < 0 ? slowness : (double)largest;
}

/* Stages a .. b - 1 by one segment to the left (or right): so stage a - 1 gives one to stage b (or takes one). */
static inline memopt_status pipeline_shift(const pipeline_planner *p, size_t a, size_t b, int left) {
    memopt_status status = MEMOPT_OK;
    size_t s;

    for (s = a - 1; s <= b && !status; ++s) {
        const pipeline_stage old = p->stages[s];
        const size_t first = s < a ? old.first : left ? old.first - 1 : old.first + 1;
        const size_t end = old.first + old.count + (s == b ? 0 : left ? (size_t)-1 : 1);

        if (first >= end || !pipeline_may_begin(p->desc, first)) return MEMOPT_ERR_BUFFER; /* no such cuts */
        status = pipeline_try_stage(p, s, first, end - first);
    }
    return status;
}

/* Of several chunks a rank: move cuts while the worst rank becomes better. `kept` has room for all stages. */
static inline memopt_status pipeline_improve(const pipeline_planner *p, pipeline_stage *kept) {
    const size_t stages = pipeline_stages(&p->desc->shape);
    const size_t bytes = stages * sizeof *kept;
    double best = pipeline_worst(p);
    size_t a, b, improved = 1;
    int left;

    memcpy(kept, p->stages, bytes);
    while (improved)
        for (improved = 0, a = 1; a < stages; ++a)
            for (b = a; b < stages; ++b)
                for (left = 0; left < 2; ++left) {
                    const memopt_status status = pipeline_shift(p, a, b, left);
                    const double worst = status ? PIPELINE_NEVER : pipeline_worst(p);

                    if (status && status != MEMOPT_ERR_BUFFER) return status;
                    if (worst < best) {
                        best = worst;
                        improved = 1;
                        memcpy(kept, p->stages, bytes);
                    } else memcpy(p->stages, kept, bytes);
                }
    return MEMOPT_OK;
}

static inline memopt_status pipeline_check_desc(const pipeline_desc *d) {
    memopt_error *error = d ? d->error : NULL;
    memopt_status status;

    if (!d) return MEMOPT_ERR_ARGUMENT;
    status = pipeline_check_shape(&d->shape, error);
    if (status) return status;
    if (!d->layers || !d->segments)
        return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, d->layers ? "segments" : "layers", "is NULL");
    if (d->count > MEMOPT_CHAIN_MAX)
        return pipeline_refuse_count(error, "count", d->count, "at most", MEMOPT_CHAIN_MAX);
    if (pipeline_stages(&d->shape) > d->count)
        return pipeline_refuse_count(error, "stages", pipeline_stages(&d->shape), "at most as many as segments",
                                     d->count);
    if (d->segments[d->count - 1].grad_bytes)
        return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, "grad_bytes", "of the last segment is not 0: a head begins "
                               "the backward");
    if (d->tape.arena || d->tape.budget || d->tape.store.write_fn || d->tape.random_bytes)
        return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, "tape", "has an arena, a budget, a store or a generator");
    if (d->tied && (d->tied->untied || d->tied->adapter_rank))
        return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, "tied", "has a head of its own, or frozen tokens");
    if (d->tied_slots > MEMOPT_COMM_CALLS)
        return pipeline_refuse_count(error, "tied_slots", d->tied_slots, "at most", MEMOPT_COMM_CALLS);
    return MEMOPT_OK;
}

/* The lists of all ranks, and what a simulation says of them. */
static inline memopt_status pipeline_plan_under_way(pipeline_planner *p) {
    const pipeline_desc *d = p->desc;
    pipeline_schedule *schedule = &p->schedule;
    pipeline_course course;
    memopt_status status = MEMOPT_OK;
    size_t rank;

    memset(&course, 0, sizeof course);
    schedule->shape = d->shape;
    schedule->actions = p->actions;
    schedule->sends = PIPELINE_SENDS;
    course.under_way = p->under_way;
    for (rank = 0; rank < d->shape.ranks; ++rank)
        pipeline_list(&d->shape, rank, p->actions + rank * pipeline_count(&d->shape));
    p->tied_slots = d->tied && d->shape.ranks > 1 ? d->tied_slots : 0;
    if (d->tied && d->shape.ranks > 1 && !p->tied_slots) {
        schedule->tied_slots = d->shape.micro_batches;
        status = pipeline_simulate(schedule, d->tape.host, &course, d->error);
        p->tied_slots = course.tied_slots < MEMOPT_COMM_CALLS ? course.tied_slots : MEMOPT_COMM_CALLS;
    }
    schedule->tied_slots = p->tied_slots;
    if (!status) status = pipeline_simulate(schedule, d->tape.host, &course, d->error);
    schedule->forward_seconds = p->forward;
    schedule->backward_seconds = p->backward;
    return status;
}

/* The smallest; and if that keeps within a limit, the fastest that does, and of these the smallest. `kept` as above. */
static inline memopt_status pipeline_choose(pipeline_planner *p, pipeline_stage *kept) {
    const size_t limit = p->desc->limit;
    const int improves = pipeline_chunks(&p->desc->shape) > 1;
    memopt_status status = pipeline_cut(p);

    if (!status && improves) status = pipeline_improve(p, kept);
    if (status || !limit || pipeline_largest(p) > limit) return status;
    p->limit = limit;
    status = improves ? pipeline_improve(p, kept) : pipeline_cut(p);
    if (status) return status;
    p->slowest = pipeline_slowness(p);
    return improves ? pipeline_improve(p, kept) : pipeline_cut(p);
}

/**
 * Cut the chain, and tell what every rank takes.
 *
 * stages  receives shape.ranks * chunks of them; stage s is on rank s % ranks
 * bytes   NULL, or receives shape.ranks of them
 * returns OK; ERR_ARGUMENT (NULL, more stages than segments, no such shape), what memopt_tape_create() returns,
 *         ERR_MEMORY
 */
static inline memopt_status pipeline_plan(const pipeline_desc *desc, pipeline_stage *stages, pipeline_bytes *bytes) {
    memopt_status status = pipeline_check_desc(desc);
    memopt_carver room = memopt_carver_begin(NULL);
    pipeline_planner p;
    size_t size, rank;

    if (status) return status;
    if (!stages) return pipeline_refuse(desc->error, MEMOPT_ERR_ARGUMENT, "stages", "is NULL");
    memset(&p, 0, sizeof p);
    p.desc = desc;
    p.slowest = -1;
    pipeline_lay_out_planner(&p, &room);
    size = room.bytes;
    room = memopt_carver_begin(room.overflow ? NULL : pipeline_alloc(desc->tape.host, size));
    if (!room.base) return pipeline_refuse(desc->error, MEMOPT_ERR_MEMORY, NULL, "no memory for a plan");
    memset(room.base, 0, size);
    pipeline_lay_out_planner(&p, &room);
    status = pipeline_plan_under_way(&p);
    if (!status) status = pipeline_choose(&p, stages);
    for (rank = 0; bytes && rank < desc->shape.ranks && !status; ++rank) bytes[rank] = pipeline_rank_bytes(&p, rank);
    if (!status) memcpy(stages, p.stages, pipeline_stages(&desc->shape) * sizeof *stages);
    pipeline_free(desc->tape.host, room.base, size);
    return status;
}

/* ---- a rank ---- */
static inline memopt_status pipeline_layer_forward(const memopt_tape_call *call) {
    const pipeline_layer *l = (const pipeline_layer *)call->user;
    memopt_tape_call c = *call;

    c.user = l->layer.user;
    c.segment += l->first;
    c.stream += l->first;
    return l->layer.forward_fn(&c);
}

static inline memopt_status pipeline_layer_backward(const memopt_tape_call *call) {
    const pipeline_layer *l = (const pipeline_layer *)call->user;
    memopt_tape_call c = *call;

    c.user = l->layer.user;
    c.segment += l->first;
    c.stream += l->first;
    return l->layer.backward_fn(&c);
}

/* Of the links that a rank needs, does each have two ranks, and is it the right one? */
static inline memopt_status pipeline_check_links(const pipeline_desc *d, size_t rank, const pipeline_links *links) {
    const int tied = d->tied != NULL;
    const size_t count = pipeline_count(&d->shape);
    size_t n, kind, way;

    for (kind = 0; kind < PIPELINE_LINK_KINDS; ++kind)
        for (way = 0; way < 2; ++way) {
            const memopt_comm *comm = way ? links->out[kind] : links->in[kind];
            const memopt_comm_stats stats = memopt_comm_get_stats(comm);
            int needed = 0;

            for (n = 0; n < count / 2 && !needed; ++n) {
                const pipeline_action a = pipeline_nth(&d->shape, rank, n, kind != PIPELINE_ACTIVATIONS);

                needed = way ? pipeline_sends(&d->shape, tied, &a, (int)kind)
                             : pipeline_receives(&d->shape, tied, &a, (int)kind);
            }
            if (needed && (stats.rank_count != 2 || stats.rank != !way))
                return pipeline_refuse(d->error, MEMOPT_ERR_ARGUMENT, way ? "links.out" : "links.in",
                                       "lacks a communicator of two ranks, of which the sender is rank 0");
        }
    if (!links->all) return MEMOPT_OK;
    if (memopt_comm_get_stats(links->all).rank_count == d->shape.ranks
        && memopt_comm_get_stats(links->all).rank == rank) return MEMOPT_OK;
    return pipeline_refuse(d->error, MEMOPT_ERR_ARGUMENT, "links.all", "has other ranks than the pipeline");
}

/* A wait or a call of a link failed: what it says, of a rank of all. Where all are asked, the one that is not there. */
static inline memopt_status pipeline_fail_link(pipeline *x, memopt_comm *comm, size_t other, memopt_status status) {
    const memopt_comm_stats stats = memopt_comm_get_stats(comm);
    memopt_error e = memopt_comm_error(comm);
    memopt_comm_call call;

    e.status = status;
    if (e.place && stats.rank_count == 2) e.index = e.index == stats.rank ? x->rank : other;
    memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_ALL_GATHER;
    call.bytes = sizeof *x->votes;
    call.send = &x->votes[x->rank];
    call.receive = x->votes;
    if (x->links.all && comm != x->links.all && memopt_comm_run(x->links.all, &call)) {
        const memopt_error of_all = memopt_comm_error(x->links.all);

        if (of_all.place && of_all.index != x->rank) {
            e = of_all;
            e.status = status;
        }
    }
    e.subject = "pipeline";
    x->error = e;
    return status;
}

static inline memopt_status pipeline_fail(pipeline *x, const pipeline_action *a, const memopt_error *e,
                                          memopt_status status) {
    memset(&x->error, 0, sizeof x->error);
    x->error.reason = "a function of yours failed";
    x->error.segment = x->error.action = SIZE_MAX;
    if (e) x->error = *e;
    else {
        x->error.subject = "pipeline";
        x->error.place = "micro-batch";
        x->error.index = a->micro_batch;
    }
    x->error.status = status;
    return status;
}

/* ---- messages of a rank ---- */
/* A message: a broadcast of the sender, which is rank 0 of the link (or rank 1, where tokens go back). */
static inline memopt_comm_call pipeline_message(size_t root, const void *send, void *receive, size_t bytes) {
    memopt_comm_call call;

    memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_BROADCAST;
    call.root = root;
    call.bytes = bytes;
    call.send = send;
    call.receive = receive;
    return call;
}

static inline memopt_status pipeline_receive(pipeline *x, int kind, void *to, size_t bytes) {
    const memopt_comm_call call = pipeline_message(0, NULL, to, bytes);
    const memopt_status status = memopt_comm_run(x->links.in[kind], &call);

    return status ? pipeline_fail_link(x, x->links.in[kind], pipeline_sender(&x->desc.shape, x->rank, kind), status)
                  : MEMOPT_OK;
}

/* Until no more than the first `count` messages of a link have been received. */
static inline memopt_status pipeline_wait(pipeline *x, int kind, size_t count) {
    const size_t other = pipeline_receiver(&x->desc.shape, x->rank, kind);
    memopt_status status = MEMOPT_OK;

    while (x->waited[kind] < count && !status)
        status = memopt_comm_wait(x->links.out[kind], x->calls[kind][x->waited[kind]++ % MEMOPT_COMM_CALLS]);
    return status ? pipeline_fail_link(x, x->links.out[kind], other, status) : MEMOPT_OK;
}

/* Before a message is computed: the memory that it is computed in is not being sent any more. */
static inline memopt_status pipeline_make_room(pipeline *x, const pipeline_action *a, int kind, size_t slots) {
    if (!pipeline_sends(&x->desc.shape, x->desc.tied != NULL, a, kind) || x->sent[kind] < slots) return MEMOPT_OK;
    return pipeline_wait(x, kind, x->sent[kind] - slots + 1);
}

static inline memopt_status pipeline_send(pipeline *x, int kind, const void *from, size_t bytes) {
    const memopt_comm_call call = pipeline_message(0, from, (void *)(uintptr_t)from, bytes);
    const memopt_status status = memopt_comm_begin(x->links.out[kind], &call,
                                                   &x->calls[kind][x->sent[kind] % MEMOPT_COMM_CALLS]);

    if (status)
        return pipeline_fail_link(x, x->links.out[kind], pipeline_receiver(&x->desc.shape, x->rank, kind), status);
    ++x->sent[kind];
    return MEMOPT_OK;
}

/* ---- actions of a rank ---- */
static inline pipeline_slot *pipeline_slot_of(const pipeline_chunk *c, size_t micro_batch) { /* SIZE_MAX: a free one */
    pipeline_slot *slot = c->slots;

    while (slot->micro_batch != micro_batch) ++slot; /* there is one: the plan has counted them */
    return slot;
}

static inline memopt_status pipeline_fail_tape(pipeline *x, const pipeline_chunk *c, const memopt_tape *tape,
                                               memopt_status status) {
    memopt_error e = memopt_tape_error(tape);

    if (e.segment != SIZE_MAX) e.segment += c->stage.first;
    if (e.place && !strcmp(e.place, "segment")) e.index += c->stage.first;
    return pipeline_fail(x, NULL, &e, status);
}

static inline memopt_status pipeline_before(pipeline *x, const pipeline_action *a) {
    const memopt_status status = x->desc.before_fn ? x->desc.before_fn(x->desc.user, a) : MEMOPT_OK;

    return status ? pipeline_fail(x, a, NULL, status) : MEMOPT_OK;
}

static inline memopt_status pipeline_forward(pipeline *x, const pipeline_action *a, const void *const *inputs,
                                             uint64_t number) {
    const pipeline_chunk *c = &x->chunks[a->stage / x->desc.shape.ranks];
    pipeline_slot *slot = pipeline_slot_of(c, SIZE_MAX);
    const void *input = a->stage ? slot->input : inputs[a->micro_batch];
    memopt_status status = MEMOPT_OK;

    if (a->stage) status = pipeline_receive(x, PIPELINE_ACTIVATIONS, slot->input, c->stage.input);
    if (!status) status = pipeline_make_room(x, a, PIPELINE_ACTIVATIONS, PIPELINE_SENDS);
    if (!status) status = pipeline_before(x, a);
    if (status) return status;
    status = memopt_tape_seek(slot->tape, number + a->micro_batch * (x->desc.stride ? x->desc.stride : 1));
    if (!status) status = memopt_tape_forward(slot->tape, input);
    if (status) return pipeline_fail_tape(x, c, slot->tape, status);
    slot->micro_batch = a->micro_batch;
    slot->sent = 0;
    if (x->desc.after_fn) status = x->desc.after_fn(x->desc.user, a);
    if (status) return pipeline_fail(x, a, NULL, status);
    if (!c->stage.output) return MEMOPT_OK;
    status = pipeline_send(x, PIPELINE_ACTIVATIONS, memopt_tape_output(slot->tape), c->stage.output);
    slot->sent = x->sent[PIPELINE_ACTIVATIONS];
    return status;
}

/* Tied tokens: the first rank gets what the head has left, the last one has room for what it leaves. */
static inline memopt_status pipeline_prepare_tokens(pipeline *x, const pipeline_action *a) {
    const int tied = x->desc.tied != NULL;
    memopt_status status = MEMOPT_OK;

    if (!tied || x->desc.shape.ranks == 1) return MEMOPT_OK;
    if (pipeline_receives(&x->desc.shape, tied, a, PIPELINE_TIED))
        status = pipeline_receive(x, PIPELINE_TIED, x->tokens->gradients,
                                  pipeline_tied_bytes(&x->desc, x->desc.tied->gradient_type));
    if (status || !pipeline_sends(&x->desc.shape, tied, a, PIPELINE_TIED)) return status;
    status = pipeline_make_room(x, a, PIPELINE_TIED, x->tied_slots);
    x->tokens->gradients = x->tied[x->sent[PIPELINE_TIED] % x->tied_slots];
    return status;
}

/* A head that adds onto the micro-batch before would need what the first rank has added to it meanwhile. */
static inline memopt_status pipeline_check_tokens(pipeline *x) {
    memopt_error e;

    if (!x->tokens || !x->tokens->shape || !x->tokens->shape->accumulate) return MEMOPT_OK;
    (void)pipeline_refuse(&e, MEMOPT_ERR_ARGUMENT, "accumulate", "is set, and tokens are tied: add up micro-batches "
                          "by done_fn");
    return pipeline_fail(x, NULL, &e, MEMOPT_ERR_ARGUMENT);
}

static inline memopt_status pipeline_backward(pipeline *x, const pipeline_action *a) {
    const pipeline_chunk *c = &x->chunks[a->stage / x->desc.shape.ranks];
    pipeline_slot *slot = pipeline_slot_of(c, a->micro_batch);
    void *grad_output = c->stage.output_grad ? x->grad_input : NULL;
    void *grad_input = c->stage.input_grad ? x->grad_outputs[x->sent[PIPELINE_GRADIENTS] % PIPELINE_SENDS] : NULL;
    memopt_status status = MEMOPT_OK;

    if (grad_output) status = pipeline_receive(x, PIPELINE_GRADIENTS, grad_output, c->stage.output_grad);
    if (!status) status = pipeline_make_room(x, a, PIPELINE_GRADIENTS, PIPELINE_SENDS);
    if (!status) status = pipeline_before(x, a);
    if (!status) status = pipeline_prepare_tokens(x, a);
    if (!status) status = pipeline_wait(x, PIPELINE_ACTIVATIONS, slot->sent);
    if (!status && x->desc.shape.ranks > 1) status = pipeline_check_tokens(x);
    if (status) return status;
    status = memopt_tape_backward(slot->tape, grad_output, grad_input);
    if (status) return pipeline_fail_tape(x, c, slot->tape, status);
    slot->micro_batch = SIZE_MAX;
    if (x->desc.after_fn) status = x->desc.after_fn(x->desc.user, a);
    if (status) return pipeline_fail(x, a, NULL, status);
    if (grad_input) status = pipeline_send(x, PIPELINE_GRADIENTS, grad_input, c->stage.input_grad);
    if (status || !pipeline_sends(&x->desc.shape, x->desc.tied != NULL, a, PIPELINE_TIED)) return status;
    return pipeline_send(x, PIPELINE_TIED, x->tokens->gradients,
                         pipeline_tied_bytes(&x->desc, x->desc.tied->gradient_type));
}

/* Its output lies in what a pass would hold, until it has been sent. */
static inline memopt_status pipeline_evaluate_one(pipeline *x, const pipeline_action *a, const void *const *inputs) {
    const pipeline_chunk *c = &x->chunks[a->stage / x->desc.shape.ranks];
    const size_t under_way = c->stage.under_way;
    const size_t sends = under_way < PIPELINE_SENDS ? under_way : PIPELINE_SENDS;
    const pipeline_slot *slot = &c->slots[a->micro_batch % under_way];
    const void *input = a->stage ? slot->input : inputs[a->micro_batch];
    void *output = c->stage.output ? slot->held : NULL;
    memopt_status status = MEMOPT_OK;

    if (a->stage) status = pipeline_receive(x, PIPELINE_ACTIVATIONS, slot->input, c->stage.input);
    if (!status) status = pipeline_make_room(x, a, PIPELINE_ACTIVATIONS, sends);
    if (!status) status = pipeline_before(x, a);
    if (status) return status;
    status = memopt_tape_evaluate(slot->tape, input, output);
    if (status) return pipeline_fail_tape(x, c, slot->tape, status);
    if (x->desc.after_fn) status = x->desc.after_fn(x->desc.user, a);
    if (status) return pipeline_fail(x, a, NULL, status);
    return output ? pipeline_send(x, PIPELINE_ACTIVATIONS, output, c->stage.output) : MEMOPT_OK;
}

/* All calls of this rank and its neighbours fail from here on; memory of calls that were begun is its own again. */
static inline void pipeline_give_up(pipeline *x) {
    size_t kind, k, i;

    if (x->is_broken) return;
    x->is_broken = 1;
    memopt_comm_abort(x->links.all);
    for (kind = 0; kind < PIPELINE_LINK_KINDS; ++kind) {
        memopt_comm_abort(x->links.in[kind]);
        memopt_comm_abort(x->links.out[kind]);
        for (; x->waited[kind] < x->sent[kind]; ++x->waited[kind])
            (void)memopt_comm_wait(x->links.out[kind], x->calls[kind][x->waited[kind] % MEMOPT_COMM_CALLS]);
    }
    for (k = 0; k < pipeline_chunks(&x->desc.shape); ++k)
        for (i = 0; i < x->chunks[k].stage.under_way; ++i) (void)memopt_tape_cancel(x->chunks[k].slots[i].tape);
}

static inline memopt_status pipeline_begin(pipeline *x, const void *const *inputs) {
    size_t i;

    if (!x) return MEMOPT_ERR_ARGUMENT;
    if (x->is_broken) return MEMOPT_ERR_STATE;
    for (i = 0; !x->rank && i < x->desc.shape.micro_batches; ++i)
        if (!inputs || !inputs[i]) return pipeline_refuse(&x->error, MEMOPT_ERR_ARGUMENT, "inputs", "is NULL");
    memset(x->sent, 0, sizeof x->sent);
    memset(x->waited, 0, sizeof x->waited);
    return MEMOPT_OK;
}

static inline memopt_status pipeline_end(pipeline *x, memopt_status status) {
    int kind;

    for (kind = 0; kind < PIPELINE_LINK_KINDS && !status; ++kind) status = pipeline_wait(x, kind, x->sent[kind]);
    if (status) pipeline_give_up(x);
    return status;
}

/**
 * A step: all micro-batches through this rank's stages, forward and backward.
 *
 * inputs   of the first rank: one for each micro-batch, which stay as they are until the step has returned; else NULL
 * number   of the first micro-batch, counted over all steps: random numbers are made of it
 * returns  OK; what a callback, a function of yours or a link returns: then this rank's links are given up, and the
 *          pipeline can only be closed. pipeline_error() says why, and its index is the rank that is to blame where
 *          `place` is "rank". ERR_ARGUMENT (no inputs), ERR_STATE (it has failed before): nothing has begun
 */
static inline memopt_status pipeline_step(pipeline *x, const void *const *inputs, uint64_t number) {
    memopt_status status = pipeline_begin(x, inputs);
    size_t i;

    if (status) return status;
    for (i = 0; i < pipeline_count(&x->desc.shape) && !status; ++i)
        status = x->actions[i].is_backward ? pipeline_backward(x, &x->actions[i])
                                           : pipeline_forward(x, &x->actions[i], inputs, number);
    return pipeline_end(x, status);
}

/** Forwards alone, as memopt_tape_evaluate(): before_fn and after_fn are called around each, and a head's loss is there
    after that of the last stage. inputs as of a step, and what it returns; ERR_STATE also without desc.evaluates. */
static inline memopt_status pipeline_evaluate(pipeline *x, const void *const *inputs) {
    memopt_status status = pipeline_begin(x, inputs);
    size_t i;

    if (status) return status;
    if (!x->desc.evaluates)
        return pipeline_refuse(&x->error, MEMOPT_ERR_STATE, "evaluates", "is 0: there is no memory for it");
    for (i = 0; i < pipeline_count(&x->desc.shape) / 2 && !status; ++i) {
        const pipeline_action a = pipeline_nth(&x->desc.shape, x->rank, i, 0);

        status = pipeline_evaluate_one(x, &a, inputs);
    }
    return pipeline_end(x, status);
}

/** When the optimizer has stepped the tokens of the first rank: the last one gets them. Others, and where nothing is
    tied, do nothing. As a step, when it fails. */
static inline memopt_status pipeline_share_tokens(pipeline *x) {
    const size_t ranks = x ? x->desc.shape.ranks : 0;
    const size_t bytes = x && x->desc.tied ? pipeline_tied_bytes(&x->desc, x->desc.tied->weight_type) : 0;
    memopt_comm *comm = x && !x->rank ? x->links.in[PIPELINE_TIED] : x ? x->links.out[PIPELINE_TIED] : NULL;
    memopt_comm_call call;
    memopt_status status;

    if (!x) return MEMOPT_ERR_ARGUMENT;
    if (x->is_broken) return MEMOPT_ERR_STATE;
    if (!bytes || (x->rank && x->rank + 1 < ranks)) return MEMOPT_OK;
    call = pipeline_message(1, x->tokens->weights, (void *)(uintptr_t)x->tokens->weights, bytes);
    status = memopt_comm_run(comm, &call);
    if (!status) return MEMOPT_OK;
    (void)pipeline_fail_link(x, comm, x->rank ? 0 : ranks - 1, status);
    pipeline_give_up(x);
    return status;
}

static inline memopt_error pipeline_error(const pipeline *x) { /* of the last call that failed */
    memopt_error e;

    (void)pipeline_refuse(&e, MEMOPT_ERR_ARGUMENT, "pipeline", "is NULL");
    return x ? x->error : e;
}

/* Gives up this rank: the others need not wait for it. When it ends its work before the others; NULL is fine. */
static inline void pipeline_abort(pipeline *x) {
    if (x) pipeline_give_up(x);
}

/* NULL is fine. Links and memory are yours. */
static inline void pipeline_close(pipeline *x) {
    memopt_host host;
    size_t k, i;

    for (k = 0; x && k < pipeline_chunks(&x->desc.shape); ++k)
        for (i = 0; i < x->chunks[k].stage.under_way; ++i) memopt_tape_destroy(x->chunks[k].slots[i].tape);
    if (x) host = x->host;
    if (x) pipeline_free(&host, x, x->table_bytes);
}

/* ---- opening ---- */
/* Do all ranks have the same plan? */
static inline memopt_status pipeline_compare(pipeline *x, const pipeline_stage *stages) {
    const size_t numbers = pipeline_stages(&x->desc.shape) * sizeof *stages / sizeof(size_t);
    memopt_comm_call call;
    memopt_status status;
    uint64_t hash = x->desc.shape.micro_batches;
    size_t i, word;

    if (!x->links.all) return MEMOPT_OK;
    for (i = 0; i < numbers; ++i) {
        memcpy(&word, (const unsigned char *)(const void *)stages + i * sizeof word, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    x->votes[x->rank] = hash;
    memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_ALL_GATHER;
    call.bytes = sizeof hash;
    call.send = &x->votes[x->rank];
    call.receive = x->votes;
    status = memopt_comm_run(x->links.all, &call);
    if (status) return pipeline_fail_link(x, x->links.all, 0, status);
    for (i = 0; i < x->desc.shape.ranks; ++i) {
        if (x->votes[i] == x->votes[0]) continue;
        (void)pipeline_refuse(&x->error, MEMOPT_ERR_STATE, NULL, "has another plan than rank 0");
        x->error.place = "rank";
        x->error.index = i;
        return MEMOPT_ERR_STATE;
    }
    return MEMOPT_OK;
}

static inline memopt_status pipeline_open_chunk(pipeline *x, pipeline_chunk *c, pipeline_layer *layers,
                                                memopt_tape_layer *wrapped) {
    memopt_tape_desc d = pipeline_tape_desc(&x->desc, &c->stage);
    memopt_status status = MEMOPT_OK;
    size_t i;

    for (i = 0; i < c->stage.count; ++i) {
        layers[i].layer = x->desc.layers[c->stage.first + i];
        layers[i].first = c->stage.first;
        wrapped[i].forward_fn = layers[i].layer.forward_fn ? pipeline_layer_forward : NULL;
        wrapped[i].backward_fn = pipeline_layer_backward;
        wrapped[i].user = &layers[i];
    }
    d.layers = wrapped;
    for (i = 0; i < c->stage.under_way && !status; ++i) {
        pipeline_slot *slot = &c->slots[i];

        status = memopt_tape_create(&d, &slot->tape);
        if (!status) status = memopt_tape_set_memory(slot->tape, x->work, c->stage.work);
        if (!status) status = memopt_tape_set_held(slot->tape, slot->held, c->stage.held);
    }
    return status;
}

static inline memopt_status pipeline_check_opening(const pipeline_desc *desc, const pipeline_stage *stages,
                                                   size_t rank, const pipeline_links *links,
                                                   const transformer_part *tokens, const void *memory,
                                                   pipeline **out) {
    const memopt_status status = pipeline_check_desc(desc);
    memopt_error *error = desc ? desc->error : NULL;

    if (status) return status;
    if (!stages || !links || !memory || !out)
        return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT,
                               !stages ? "stages" : !links ? "links" : memory ? "out" : "memory", "is NULL");
    if (rank >= desc->shape.ranks)
        return pipeline_refuse_count(error, "rank", rank, "below ranks", desc->shape.ranks);
    if ((uintptr_t)memory % 64) return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, "memory", "is not aligned to 64");
    if (desc->tied && desc->shape.ranks > 1 && (!rank || rank + 1 == desc->shape.ranks)
        && (!tokens || !tokens->weights || (!rank && !tokens->gradients)))
        return pipeline_refuse(error, MEMOPT_ERR_ARGUMENT, "tokens", "is NULL, or has no array, where they are tied");
    return pipeline_check_links(desc, rank, links);
}

/* With all tables, of which each knows its places in the memory; NULL: no memory for them. */
static inline pipeline *pipeline_make(const pipeline_desc *desc, const pipeline_stage *const *stages, void *memory) {
    const size_t chunks = pipeline_chunks(&desc->shape);
    const size_t bytes = pipeline_count_bytes(desc, stages, chunks).tables;
    memopt_carver tables = memopt_carver_begin(pipeline_alloc(desc->tape.host, bytes));
    memopt_carver room = memopt_carver_begin(memory);
    pipeline *x;

    if (!tables.base) return NULL;
    memset(tables.base, 0, bytes);
    x = pipeline_lay_out_tables(&tables, desc, stages, chunks);
    pipeline_lay_out(x, &room, desc, stages, chunks);
    x->desc = *desc;
    if (desc->tape.host) x->host = *desc->tape.host;
    x->table_bytes = bytes;
    return x;
}

/**
 * Open a rank. With `all` all ranks open at the same time, and their plans are compared.
 *
 * stages  of pipeline_plan(), all of them; need not stay
 * links   that this rank's messages take, copied
 * tokens  NULL but where tokens are tied: of the first rank its embedding; of the last one what its head is tied to, a
 *         part of its own, whose weights are a copy of them and whose gradients are set here
 * memory  pipeline_bytes.pipeline bytes of this rank, aligned to 64, a device's where desc.tape.not_host_visible is 2;
 *         it stays until pipeline_close()
 * out     receives it, with its tables: pipeline_bytes.tables of desc.tape.host; untouched on failure
 * returns OK; ERR_ARGUMENT, ERR_BUFFER (less memory), ERR_MEMORY, ERR_STATE (other ranks have another plan), what
 *         memopt_tape_create() returns
 */
static inline memopt_status pipeline_open(const pipeline_desc *desc, const pipeline_stage *stages, size_t rank,
                                          const pipeline_links *links, transformer_part *tokens, void *memory,
                                          size_t bytes, pipeline **out) {
    memopt_status status = pipeline_check_opening(desc, stages, rank, links, tokens, memory, out);
    memopt_error *error = desc ? desc->error : NULL;
    const pipeline_stage *own[MEMOPT_CHAIN_MAX];
    pipeline *x;
    size_t k, at = 0;

    if (status) return status;
    for (k = 0; k < pipeline_chunks(&desc->shape); ++k) own[k] = &stages[k * desc->shape.ranks + rank];
    if (bytes < pipeline_count_bytes(desc, own, k).pipeline)
        return pipeline_refuse(error, MEMOPT_ERR_BUFFER, "bytes", "are fewer than the plan tells");
    x = pipeline_make(desc, own, memory);
    if (!x) return pipeline_refuse(error, MEMOPT_ERR_MEMORY, NULL, "no memory for the tables");
    x->rank = rank;
    x->links = *links;
    x->tokens = tokens;
    pipeline_list(&desc->shape, rank, x->actions);
    for (k = 0; k < pipeline_chunks(&desc->shape) && !status; ++k) {
        status = pipeline_open_chunk(x, &x->chunks[k], x->layers + at, x->wrapped + at);
        at += own[k]->count;
    }
    if (!status) {
        status = pipeline_compare(x, stages);
        if (status && error) *error = x->error;
    }
    x->desc.error = x->desc.tape.error = NULL;
    if (status) {
        pipeline_give_up(x);
        pipeline_close(x);
    } else *out = x;
    return status;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
