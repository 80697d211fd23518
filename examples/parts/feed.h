/* feed.h - training tokens, read ahead from a file, in an order that is a function of the position.

   What it does   8, 16 or 32 bits a token, little endian. The file is cut into windows of `length` tokens and the token
                  after them: window w begins at token w * length. A rest at the end, shorter than length + 1 tokens, is
                  not used. Steps take sequences one after the other: unit u of step s has `samples` of them from number
                  (s * units + u) * samples on. Sequence n belongs to epoch n / windows; its window is n % windows, or
                  what that is shuffled to. So the data are a function of the position, for any number of ranks and any
                  disk; a save needs the step only.
   How to use         memopt_feed_desc desc = { 0 };
                      desc.path = "train.bin"; desc.offset = 1024; desc.token_bytes = 2;
                      desc.length = 1024; desc.samples = 4; desc.shuffle = 1; desc.seed = 42;
                      if (memopt_feed_create(&desc, &feed) || memopt_feed_seek(feed, step, 0)) ...
                      while (!memopt_feed_next(feed, ids, targets)) ...
   How it works   A ring of `ahead` windows as they lie in the file, filled by the queue of the host's files. Tokens are
                  widened to 32 bits on their way to the caller's arrays, which may be pinned: so a waiting window takes
                  a half or a quarter of the bytes, and its slot is free as soon as it has been returned.
   Order          This rank counts its windows: 0 is the first of unit `rank` of step 0. Window n is in slot n % ahead.
   Shuffle        A Feistel network of four rounds over 2 * half bits is a permutation of 4^half numbers; its round r of
                  a half x is word r of block x of the random stream ~epoch. A result beyond the windows goes through
                  again (cycle walking): a permutation of the windows that stores nothing. half is as small as possible,
                  so that takes four passes at most on average. [Black and Rogaway 2002]
   Invariant      taken <= begun <= taken + ahead; the windows in between, and no others, have a transfer in the queue.
   Failure        A window that cannot be read ends the reading ahead. The failure is returned when its turn comes, and
                  again until a seek. */
#ifndef PARTS_FEED_H
#define PARTS_FEED_H
#include <string.h>
#include "refuse.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct memopt_feed memopt_feed;

#define MEMOPT_FEED_AHEAD_MAX 1024

typedef struct memopt_feed_desc { /* zero it, then set what you need */
    const char        *path;
    uint64_t           offset;      /* bytes before the first token: the file's header */
    uint64_t           tokens;      /* 0 = all to the file's end */
    size_t             token_bytes; /* 1, 2 or 4; 0 = 2 */
    size_t             vocabulary;  /* tokens are below it, or refused as damage; 0 = 2^31 */
    size_t             length;      /* tokens of a sequence */
    size_t             samples;     /* sequences of a unit, which is a micro-batch; 0 = 1 */
    size_t             units;       /* of a step, of all ranks together; 0 = as many as ranks */
    size_t             rank, ranks; /* this rank takes units rank, rank + ranks, ..., as memopt_shard; 0 ranks = 1 */
    int                shuffle;     /* 1: each epoch in its own order, given by the seed; 0: in the file's order */
    uint64_t           seed;
    size_t             ahead;       /* sequences to read ahead, at most MEMOPT_FEED_AHEAD_MAX; 0 = two units */
    const memopt_host *host;        /* its allocator, files with their queue, and clock; NULL = the system's */
    memopt_error      *error;       /* NULL, or filled in when a call with this desc fails */
} memopt_feed_desc;

#define MEMOPT_FEED_STALL 100000 /* nanoseconds */

typedef struct memopt_feed_stats {
    uint64_t step;        /* of the next unit */
    size_t   unit;
    uint64_t windows;     /* sequences of an epoch */
    uint64_t units;       /* returned so far */
    uint64_t stalls;      /* units that memopt_feed_next() waited for longer than MEMOPT_FEED_STALL */
    uint64_t nanoseconds; /* waited in all */
} memopt_feed_stats;

enum { FEED_ROUNDS = 4 };

typedef struct memopt_feed_result {
    size_t done;
    memopt_status status;
} memopt_feed_result;

struct memopt_feed {
    memopt_host host;
    size_t bytes; /* of the object and its windows */
    memopt_feed_desc desc; /* with its defaults; what it points to was for the creation */
    void *file;
    void *queue; /* of the host's files; NULL: they have none, and read at once */
    memopt_feed_result *results; /* of each slot, then */
    unsigned char *slots;
    size_t slot_bytes;
    size_t own;     /* sequences of this rank in a step */
    uint64_t steps; /* that can be counted */
    uint64_t windows;
    uint64_t taken, begun, unit; /* windows of this rank; unit: where the next unit begins */
    memopt_status stuck; /* why no more is begun... */
    memopt_error why;    /* ...in full */
    uint64_t now;        /* the clock, when it was looked at last; 0: it failed */
    memopt_feed_stats stats;
    memopt_error error;
};

/* ---- refusals ---- */

/* "ARGUMENT GOT, BOUND LIMIT" */
static inline memopt_status memopt_feed_refuse_count(memopt_error *error, memopt_status status, const char *argument,
                                                     uint64_t got, const char *bound, uint64_t limit) {
    if (!error) return status;
    (void)part_refuse(error, "feed", status, argument, "is outside its range");
    error->got.kind = error->limit.kind = MEMOPT_QUANTITY_COUNT;
    error->got.count = got;
    error->bound = bound;
    error->limit.count = limit;
    return status;
}

/* ---- which window ---- */
static inline uint64_t memopt_feed_round(uint64_t seed, uint64_t epoch, unsigned half, uint64_t x) { /* all of them */
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    uint32_t words[4];
    int r;

    for (r = 0; r < FEED_ROUNDS; ++r) {
        const uint64_t old = left;

        (void)memopt_random_bits(words, 4, seed, ~epoch, 4 * right, NULL);
        left = right;
        right = old ^ (words[r] & mask);
    }
    return left << half | right;
}

static inline uint64_t memopt_feed_shuffle(uint64_t seed, uint64_t epoch, uint64_t windows, uint64_t x) {
    unsigned half = 1;

    while (half < 32 && (uint64_t)1 << 2 * half < windows) ++half;
    do x = memopt_feed_round(seed, epoch, half, x);
    while (x >= windows);
    return x;
}

static inline uint64_t memopt_feed_window(const memopt_feed *x, uint64_t sequence) {
    const uint64_t epoch = sequence / x->windows, place = sequence % x->windows;

    return x->desc.shuffle ? memopt_feed_shuffle(x->desc.seed, epoch, x->windows, place) : place;
}

static inline uint64_t memopt_feed_sequence(const memopt_feed *x, uint64_t step, size_t unit, size_t sample) {
    return (step * x->desc.units + unit) * x->desc.samples + sample;
}

/* The first token of window n of this rank. */
static inline uint64_t memopt_feed_first(const memopt_feed *x, uint64_t n) {
    const size_t in_step = (size_t)(n % x->own);
    const size_t unit = x->desc.rank + in_step / x->desc.samples * x->desc.ranks;
    const uint64_t sequence = memopt_feed_sequence(x, n / x->own, unit, in_step % x->desc.samples);

    return memopt_feed_window(x, sequence) * x->desc.length;
}

/* ---- a desc ---- */

static inline memopt_status memopt_feed_check(const memopt_feed_desc *d) {
    memopt_error *e = d->error;
    const memopt_status wrong = MEMOPT_ERR_ARGUMENT;
    const size_t vocabulary = (size_t)1 << 31;

    if (!d->length) return memopt_feed_refuse_count(e, wrong, "length", 0, "at least", 1);
    if (d->token_bytes != 1 && d->token_bytes != 2 && d->token_bytes != 4)
        return part_refuse(e, "feed", wrong, "token_bytes", "is not 1, 2 or 4");
    if (d->vocabulary > vocabulary)
        return memopt_feed_refuse_count(e, wrong, "vocabulary", d->vocabulary, "limit", vocabulary);
    if (d->rank >= d->ranks) return memopt_feed_refuse_count(e, wrong, "rank", d->rank, "limit", d->ranks - 1);
    if (d->units < d->ranks) return memopt_feed_refuse_count(e, wrong, "units", d->units, "at least ranks", d->ranks);
    if (d->ahead > MEMOPT_FEED_AHEAD_MAX)
        return memopt_feed_refuse_count(e, wrong, "ahead", d->ahead, "limit", MEMOPT_FEED_AHEAD_MAX);
    if (d->units > SIZE_MAX / d->samples)
        return part_refuse(e, "feed", MEMOPT_ERR_OVERFLOW, "samples", "of a step do not fit a size_t");
    if (d->length >= SIZE_MAX / 4 / d->samples)
        return part_refuse(e, "feed", MEMOPT_ERR_OVERFLOW, "length", "of a unit does not fit a size_t");
    return MEMOPT_OK;
}

static inline memopt_feed_desc memopt_feed_resolve(const memopt_feed_desc *desc) {
    memopt_feed_desc d = *desc;

    if (!d.token_bytes) d.token_bytes = 2;
    if (!d.vocabulary) d.vocabulary = (size_t)1 << 31;
    if (!d.samples) d.samples = 1;
    if (!d.ranks) d.ranks = 1;
    if (!d.units) d.units = d.ranks;
    if (!d.ahead) d.ahead = d.samples < MEMOPT_FEED_AHEAD_MAX / 2 ? 2 * d.samples : MEMOPT_FEED_AHEAD_MAX;
    return d;
}

static inline void memopt_feed_carve(memopt_feed *x, memopt_carver *room, const memopt_feed_desc *d) {
    x->slot_bytes = (d->length + 1) * d->token_bytes;
    (void)memopt_carve(room, 1, sizeof *x, 0);
    x->results = (memopt_feed_result *)memopt_carve(room, d->ahead, sizeof *x->results, 0);
    x->slots = (unsigned char *)memopt_carve(room, d->ahead, x->slot_bytes, 0);
    x->bytes = room->bytes;
}

/* Resolves and checks a desc, and counts the block's bytes. */
static inline memopt_status memopt_feed_plan(const memopt_feed_desc *desc, memopt_feed *x) {
    memopt_carver room = memopt_carver_begin(NULL);
    memopt_status status;

    memset(x, 0, sizeof *x);
    x->desc = memopt_feed_resolve(desc);
    status = memopt_feed_check(&x->desc);
    if (status) return status;
    status = memopt_host_resolve(desc->host, &x->host);
    if (status) return part_refuse(desc->error, "feed", status, "host", "is half set");
    memopt_feed_carve(x, &room, &x->desc);
    if (!room.overflow) return MEMOPT_OK;
    return part_refuse(desc->error, "feed", MEMOPT_ERR_OVERFLOW, "ahead", "sequences do not fit a size_t");
}

/* How many bytes a feed takes from the host's allocator, in one block: ahead * (length + 1) tokens as in the file, and
   the object. The file is not opened.

   returns OK, ERR_ARGUMENT (NULL, no length, token_bytes, fewer units than ranks, rank, shuffle, too many ahead, half a
           host), ERR_OVERFLOW */
static inline memopt_status memopt_feed_bytes(const memopt_feed_desc *desc, size_t *bytes) {
    memopt_status status;
    memopt_feed x;

    if (!desc) return MEMOPT_ERR_ARGUMENT;
    if (!bytes) return part_refuse(desc->error, "feed", MEMOPT_ERR_ARGUMENT, "bytes", "is NULL");
    status = memopt_feed_plan(desc, &x);
    if (!status) *bytes = x.bytes;
    return status;
}

/* ---- reading ahead ---- */

static inline memopt_status memopt_feed_transfer(memopt_feed *x, size_t slot, uint64_t at) {
    const memopt_files *f = &x->host.files;
    unsigned char *to = x->slots + slot * x->slot_bytes;
    memopt_feed_result *r = &x->results[slot];

    if (x->queue)
        return f->begin_fn(f->user, x->queue, (int)slot, x->file, MEMOPT_TRANSFER_READ, at, to, x->slot_bytes);
    r->done = 0;
    r->status = f->read_fn(f->user, x->file, at, to, x->slot_bytes, &r->done);
    return MEMOPT_OK;
}

static inline memopt_status memopt_feed_arrived(memopt_feed *x, uint64_t n, size_t *done) { /* waits for window n */
    const memopt_files *f = &x->host.files;
    const size_t slot = (size_t)(n % x->desc.ahead);

    if (x->queue) return f->wait_fn(f->user, x->queue, (int)slot, done);
    *done = x->results[slot].done;
    return x->results[slot].status;
}

static inline void memopt_feed_begin(memopt_feed *x, uint64_t n) { /* window n of this rank */
    if (n / x->own >= x->steps) {
        x->stuck = part_refuse(&x->why, "feed", MEMOPT_ERR_OVERFLOW, "step", "is beyond what can be counted");
        return;
    }
    x->stuck = memopt_feed_transfer(x, (size_t)(n % x->desc.ahead),
                                    x->desc.offset + memopt_feed_first(x, n) * x->desc.token_bytes);
    if (x->stuck) (void)part_refuse(&x->why, "feed", x->stuck, "file", "could not be read");
}

static inline void memopt_feed_fill(memopt_feed *x) {
    while (!x->stuck && x->begun - x->taken < x->desc.ahead) {
        memopt_feed_begin(x, x->begun);
        if (!x->stuck) ++x->begun;
    }
}

static inline void memopt_feed_drain(memopt_feed *x) { /* what is under way is waited for and forgotten */
    size_t done = 0;

    for (; x->taken < x->begun; ++x->taken) (void)memopt_feed_arrived(x, x->taken, &done);
}

/* Nothing is returned from here on until a seek. */
static inline memopt_status memopt_feed_stop(memopt_feed *x, memopt_status status) {
    memopt_feed_drain(x);
    x->stuck = status;
    x->why = x->error;
    return status;
}

/* ---- opening ---- */

static inline memopt_status memopt_feed_measure(memopt_feed *x, uint64_t bytes) { /* of the file */
    memopt_feed_desc *d = &x->desc;
    const memopt_status wrong = MEMOPT_ERR_FORMAT;
    const uint64_t rest = bytes < d->offset ? 0 : bytes - d->offset;
    const uint64_t there = rest / d->token_bytes;

    if (!d->tokens && rest % d->token_bytes)
        return memopt_feed_refuse_count(d->error, wrong, "file: bytes", rest, "no multiple of token_bytes",
                                        d->token_bytes);
    if (!d->tokens) d->tokens = there;
    if (d->tokens > there)
        return memopt_feed_refuse_count(d->error, wrong, "file: tokens", there, "at least", d->tokens);
    if (d->tokens <= d->length)
        return memopt_feed_refuse_count(d->error, wrong, "file: tokens", d->tokens, "more than length", d->length);
    x->windows = (d->tokens - 1) / d->length;
    return MEMOPT_OK;
}

static inline memopt_status memopt_feed_open(memopt_feed *x) {
    const memopt_files *f = &x->host.files;
    memopt_error *e = x->desc.error;
    uint64_t bytes = 0;
    memopt_status s = f->open_fn(f->user, x->desc.path, MEMOPT_OPEN_READ, &x->file);

    if (s) {
        x->file = NULL;
        return part_refuse(e, "feed", s, "file", "could not be opened");
    }
    s = f->size_fn(f->user, x->file, &bytes);
    if (s) return part_refuse(e, "feed", s, "file", "could not be measured");
    s = memopt_feed_measure(x, bytes);
    if (s) return s;
    if (f->queue_open_fn) s = f->queue_open_fn(f->user, (int)x->desc.ahead, &x->queue);
    if (s) x->queue = NULL;
    if (!s || s == MEMOPT_ERR_UNSUPPORTED) return MEMOPT_OK;
    return part_refuse(e, "feed", s, "file", "has no queue of transfers");
}

/* Waits for transfers under way. NULL is fine. */
static inline void memopt_feed_destroy(memopt_feed *feed) {
    memopt_host host;

    if (!feed) return;
    host = feed->host;
    if (feed->queue) host.files.queue_close_fn(host.files.user, feed->queue);
    if (feed->file) (void)host.files.close_fn(host.files.user, feed->file);
    host.allocator.free_fn(host.allocator.user, feed, feed->bytes, 64);
}

/* Open the file and begin to read, at step 0.

   out     receives the feed; untouched on failure
   returns as memopt_feed_bytes(); ERR_MEMORY, ERR_FORMAT (the file has no window, fewer tokens than desc.tokens, or a
           part of a token at its end), or what the host's files return
   threads one thread at a time for each feed; it starts none: the files' queue moves the bytes */
static inline memopt_status memopt_feed_create(const memopt_feed_desc *desc, memopt_feed **out) {
    memopt_feed size, *x;
    memopt_carver room;
    memopt_status status;

    if (!desc) return MEMOPT_ERR_ARGUMENT;
    if (!out || !desc->path)
        return part_refuse(desc->error, "feed", MEMOPT_ERR_ARGUMENT, out ? "path" : "out", "is NULL");
    status = memopt_feed_plan(desc, &size);
    if (status) return status;
    x = (memopt_feed *)size.host.allocator.alloc_fn(size.host.allocator.user, size.bytes, 64);
    if (!x) {
        (void)part_refuse(desc->error, "feed", MEMOPT_ERR_MEMORY, NULL, "no memory for it");
        if (desc->error) desc->error->got.kind = MEMOPT_QUANTITY_COUNT;
        if (desc->error) desc->error->got.count = size.bytes;
        return MEMOPT_ERR_MEMORY;
    }
    memset(x, 0, size.bytes); /* windows, too: valgrind and MSan do not see what the kernel writes */
    *x = size;
    room = memopt_carver_begin(x);
    memopt_feed_carve(x, &room, &x->desc);
    x->own = ((x->desc.units - x->desc.rank - 1) / x->desc.ranks + 1) * x->desc.samples;
    x->steps = UINT64_MAX / ((uint64_t)x->desc.units * x->desc.samples);
    (void)part_refuse(&x->error, "feed", MEMOPT_OK, NULL, memopt_status_text(MEMOPT_OK));
    status = memopt_feed_open(x);
    if (status) {
        memopt_feed_destroy(x);
        return status;
    }
    memopt_feed_fill(x);
    *out = x;
    return MEMOPT_OK;
}

/* ---- handing out ---- */

static inline uint64_t memopt_feed_passed(memopt_feed *x) { /* nanoseconds since the last look; 0: the clock failed */
    const uint64_t before = x->now;

    if (x->host.clock.now_fn(x->host.clock.user, &x->now)) x->now = 0;
    return before && x->now ? x->now - before : 0;
}

static inline memopt_status memopt_feed_wait(memopt_feed *x, uint64_t n) {
    size_t done = 0;
    memopt_status s;

    if (x->taken == x->begun) {
        x->error = x->why;
        return x->stuck;
    }
    s = memopt_feed_arrived(x, n, &done);
    ++x->taken;
    if (s) (void)part_refuse(&x->error, "feed", s, "file", "could not be read");
    else if (done != x->slot_bytes)
        s = part_refuse(&x->error, "feed", MEMOPT_ERR_FORMAT, "file", "has become shorter");
    return s ? memopt_feed_stop(x, s) : s;
}

static inline uint32_t memopt_feed_token(const unsigned char *b, size_t bytes) {
    const uint32_t low = bytes == 1 ? b[0] : (uint32_t)b[0] | (uint32_t)b[1] << 8;

    return bytes < 4 ? low : low | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Returns the largest token. One branch-free loop for each size, which compilers vectorise. */
static inline uint32_t memopt_feed_widen(const unsigned char *from, size_t bytes, size_t count, int32_t *to) {
    uint32_t largest = 0;
    size_t i;

    if (bytes == 1)
        for (i = 0; i < count; ++i) {
            to[i] = from[i];
            largest = from[i] > largest ? from[i] : largest;
        }
    else if (bytes == 2)
        for (i = 0; i < count; ++i) {
            const uint32_t token = (uint32_t)from[2 * i] | (uint32_t)from[2 * i + 1] << 8;

            to[i] = (int32_t)token;
            largest = token > largest ? token : largest;
        }
    else
        for (i = 0; i < count; ++i) {
            const uint32_t token = memopt_feed_token(from + 4 * i, 4);

            to[i] = (int32_t)(token & 0x7fffffff);
            largest = token > largest ? token : largest;
        }
    return largest;
}

static inline memopt_status memopt_feed_report_token(memopt_feed *x, uint64_t n, const unsigned char *from) {
    uint32_t token = 0;
    size_t i;

    for (i = 0; i <= x->desc.length && token < x->desc.vocabulary; ++i)
        token = memopt_feed_token(from + i * x->desc.token_bytes, x->desc.token_bytes);
    (void)memopt_feed_refuse_count(&x->error, MEMOPT_ERR_FORMAT, "token", token, "vocabulary", x->desc.vocabulary);
    x->error.place = "the file's token";
    x->error.index = (size_t)memopt_feed_first(x, n) + i - 1;
    return memopt_feed_stop(x, MEMOPT_ERR_FORMAT);
}

static inline memopt_status memopt_feed_convert(memopt_feed *x, uint64_t n, int32_t *inputs, int32_t *targets) {
    const unsigned char *from = x->slots + n % x->desc.ahead * x->slot_bytes;
    const size_t length = x->desc.length, bytes = x->desc.token_bytes;
    const uint32_t last = memopt_feed_token(from + length * bytes, bytes);
    const uint32_t largest = memopt_feed_widen(from, bytes, length, inputs);

    if (largest >= x->desc.vocabulary || last >= x->desc.vocabulary) return memopt_feed_report_token(x, n, from);
    if (!targets) return MEMOPT_OK;
    memcpy(targets, inputs + 1, (length - 1) * sizeof *targets);
    targets[length - 1] = (int32_t)last;
    return MEMOPT_OK;
}

/* Waits for up to `ahead` windows, converts them, and begins the next ones. */
static inline memopt_status memopt_feed_take(memopt_feed *x, uint64_t first, size_t count, int32_t *inputs,
                                             int32_t *targets, uint64_t *waited) {
    const size_t length = x->desc.length;
    memopt_status s = MEMOPT_OK;
    size_t i;

    (void)memopt_feed_passed(x);
    for (i = 0; !s && i < count; ++i) s = memopt_feed_wait(x, first + i);
    *waited += memopt_feed_passed(x);
    for (i = 0; !s && i < count; ++i)
        s = memopt_feed_convert(x, first + i, inputs + i * length, targets ? targets + i * length : NULL);
    if (s) return s;
    (void)memopt_feed_passed(x);
    memopt_feed_fill(x);
    *waited += memopt_feed_passed(x);
    return MEMOPT_OK;
}

/* The next unit of this rank, in this step or the next one. Waits until it has been read.

   inputs   samples * length numbers, such as a tape's input, or pinned memory; undefined after a failure
   targets  the same, each the token after its input; or NULL
   returns  OK, ERR_ARGUMENT (NULL), ERR_FORMAT (the file was cut; a token beyond the vocabulary), ERR_OVERFLOW (after
            the last step), or what the host's files return. No unit is skipped: a failure comes again until
            memopt_feed_seek() */
static inline memopt_status memopt_feed_next(memopt_feed *feed, int32_t *inputs, int32_t *targets) {
    uint64_t waited = 0;
    size_t i, count;

    if (!feed) return MEMOPT_ERR_ARGUMENT;
    if (!inputs) return part_refuse(&feed->error, "feed", MEMOPT_ERR_ARGUMENT, "inputs", "is NULL");
    for (i = 0; i < feed->desc.samples; i += count) {
        const size_t at = i * feed->desc.length;
        memopt_status s;

        count = feed->desc.samples - i < feed->desc.ahead ? feed->desc.samples - i : feed->desc.ahead;
        s = memopt_feed_take(feed, feed->unit + i, count, inputs + at, targets ? targets + at : NULL, &waited);
        if (s) return s;
    }
    feed->unit += feed->desc.samples;
    ++feed->stats.units;
    feed->stats.nanoseconds += waited;
    feed->stats.stalls += waited > MEMOPT_FEED_STALL;
    return MEMOPT_OK;
}

/* Make a position the next one, as when a training is resumed. Waits for transfers under way, and clears a failure.

   unit    of the step; the next one of this rank from there on, which may be in the next step
   returns OK, ERR_ARGUMENT (NULL, unit, a step whose sequences have no number of 64 bits) */
static inline memopt_status memopt_feed_seek(memopt_feed *feed, uint64_t step, size_t unit) {
    size_t round;

    if (!feed) return MEMOPT_ERR_ARGUMENT;
    if (step >= feed->steps)
        return memopt_feed_refuse_count(&feed->error, MEMOPT_ERR_ARGUMENT, "step", step, "limit", feed->steps - 1);
    if (unit >= feed->desc.units)
        return memopt_feed_refuse_count(&feed->error, MEMOPT_ERR_ARGUMENT, "unit", unit, "limit", feed->desc.units - 1);
    round = unit / feed->desc.ranks + (unit % feed->desc.ranks > feed->desc.rank);
    memopt_feed_drain(feed);
    feed->taken = feed->begun = feed->unit = step * feed->own + round * feed->desc.samples;
    feed->stuck = MEMOPT_OK;
    memopt_feed_fill(feed);
    return MEMOPT_OK;
}

/* all zero for NULL */
static inline memopt_feed_stats memopt_feed_get_stats(const memopt_feed *feed) {
    memopt_feed_stats s;

    memset(&s, 0, sizeof s);
    if (!feed) return s;
    s = feed->stats;
    s.windows = feed->windows;
    s.step = feed->unit / feed->own;
    s.unit = feed->desc.rank + (size_t)(feed->unit % feed->own) / feed->desc.samples * feed->desc.ranks;
    return s;
}

/* of the last call that failed */
static inline memopt_error memopt_feed_error(const memopt_feed *feed) {
    memopt_error e;

    if (feed) return feed->error;
    (void)part_refuse(&e, "feed", MEMOPT_ERR_ARGUMENT, NULL, "the feed is NULL");
    e.subject = NULL;
    return e;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
