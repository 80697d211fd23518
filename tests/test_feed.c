/* test_feed.c - tokens of a file, read ahead. What must come is computed here from the definition in memopt.h, with a
   Philox of its own; the orders in tables were made by a program in python. The files lie in memory: reads end in a
   random order, as late as they may, and fail, end early or take long when they are told to. */
#include "test.h"
#include "../examples/parts/feed.h"

enum { FEED_FILE = 6000, FEED_ROOM = 2048 };

typedef struct feed_read {
    int taken, ended;
    uint64_t offset;
    void *bytes;
    size_t count, done;
} feed_read;

typedef struct feed_disk {
    unsigned char bytes[FEED_FILE];
    uint64_t size; /* of the file now */
    feed_read reads[MEMOPT_FEED_AHEAD_MAX];
    int depth, files, queues;
    size_t begins, waits, under_way, most_under_way;
    size_t fail_begin, fail_wait, fail_read; /* the n-th; 0: none */
    uint64_t random, now, delay, clocks; /* of a wait, or a read at once */
    memopt_status open, queue_open, measure;
} feed_disk;

static memopt_status feed_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    feed_disk *d = (feed_disk *)user;

    CHECK(strcmp(path, "tokens") == 0 && mode == MEMOPT_OPEN_READ);
    if (d->open) return d->open;
    ++d->files;
    *file = d;
    return MEMOPT_OK;
}
static memopt_status feed_close(void *user, void *file) {
    CHECK(file == user && ((feed_disk *)user)->files == 1 && !((feed_disk *)user)->queues);
    --((feed_disk *)user)->files;
    return MEMOPT_ERR_IO; /* which is of no interest after reading */
}
static size_t feed_copy(const feed_disk *d, uint64_t offset, void *bytes, size_t count) {
    const uint64_t rest = offset < d->size ? d->size - offset : 0;
    const size_t done = rest < count ? (size_t)rest : count;

    CHECK(offset <= FEED_FILE && count <= FEED_FILE);
    if (done) memcpy(bytes, d->bytes + offset, done);
    return done;
}
static memopt_status feed_read_now(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    feed_disk *d = (feed_disk *)user;

    CHECK(file == user);
    d->now += d->delay;
    if (++d->begins == d->fail_read) return MEMOPT_ERR_IO;
    *done = feed_copy(d, offset, bytes, count);
    return MEMOPT_OK;
}
static memopt_status feed_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    (void)user; (void)file; (void)offset; (void)bytes; (void)count;
    CHECK(0);
    return MEMOPT_ERR_IO;
}
static memopt_status feed_size(void *user, void *file, uint64_t *bytes) {
    CHECK(file == user);
    *bytes = ((feed_disk *)user)->size;
    return ((feed_disk *)user)->measure;
}
static memopt_status feed_resize(void *user, void *file, uint64_t bytes) { return feed_write(user, file, bytes, NULL, 0); }
static memopt_status feed_sync(void *user, void *file) { return feed_write(user, file, 0, NULL, 0); }
static memopt_status feed_remove(void *user, const char *path) { (void)path; return feed_write(user, NULL, 0, NULL, 0); }
static memopt_status feed_rename(void *user, const char *from, const char *to) { (void)from; return feed_remove(user, to); }
static memopt_status feed_queue_open(void *user, int depth, void **queue) {
    feed_disk *d = (feed_disk *)user;

    CHECK(depth >= 1 && depth <= MEMOPT_FEED_AHEAD_MAX && !d->queues);
    if (d->queue_open) return d->queue_open;
    d->depth = depth;
    ++d->queues;
    *queue = &d->depth;
    return MEMOPT_OK;
}
static void feed_end(feed_disk *d, feed_read *r) {
    if (!r->taken || r->ended) return;
    r->done = feed_copy(d, r->offset, r->bytes, r->count);
    r->ended = 1;
}
static void feed_queue_close(void *user, void *queue) {
    feed_disk *d = (feed_disk *)user;
    int i;

    CHECK(queue == &d->depth && d->queues == 1);
    for (i = 0; i < d->depth; ++i) {
        feed_end(d, &d->reads[i]); /* its bytes must still be there */
        d->reads[i].taken = 0;
    }
    d->under_way = 0;
    --d->queues;
}
static memopt_status feed_begin(void *user, void *queue, int slot, void *file, memopt_transfer kind, uint64_t offset,
                                void *bytes, size_t count) {
    feed_disk *d = (feed_disk *)user;
    feed_read *r = &d->reads[slot];

    CHECK(queue == &d->depth && file == user && kind == MEMOPT_TRANSFER_READ);
    CHECK(slot >= 0 && slot < d->depth && !r->taken);
    if (++d->begins == d->fail_begin) return MEMOPT_ERR_DEVICE;
    memset(bytes, 0xEE, count);
    r->taken = 1;
    r->ended = 0;
    r->offset = offset;
    r->bytes = bytes;
    r->count = count;
    if (++d->under_way > d->most_under_way) d->most_under_way = d->under_way;
    return MEMOPT_OK;
}
static memopt_status feed_wait(void *user, void *queue, int slot, size_t *done) {
    feed_disk *d = (feed_disk *)user;
    feed_read *r = &d->reads[slot];
    int i;

    CHECK(queue == &d->depth && slot >= 0 && slot < d->depth && r->taken);
    for (i = 0; i < 3; ++i) feed_end(d, &d->reads[test_below(&d->random, (size_t)d->depth)]);
    feed_end(d, r);
    d->now += d->delay;
    r->taken = 0;
    --d->under_way;
    if (++d->waits == d->fail_wait) return MEMOPT_ERR_IO;
    *done = r->done;
    return MEMOPT_OK;
}
static memopt_status feed_now(void *user, uint64_t *nanoseconds) {
    *nanoseconds = ((feed_disk *)user)->now += 10;
    return MEMOPT_OK;
}
static memopt_status feed_no_clock(void *user, uint64_t *nanoseconds) { /* fails every second time */
    feed_disk *d = (feed_disk *)user;

    d->now += UINT64_C(1) << 40;
    *nanoseconds = d->now;
    return ++d->clocks % 2 ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_host feed_host(feed_disk *d, int at_once) {
    memopt_host h;

    memset(&h, 0, sizeof h);
    h.files.open_fn = feed_open; h.files.close_fn = feed_close; h.files.read_fn = feed_read_now; h.files.write_fn = feed_write;
    h.files.size_fn = feed_size; h.files.resize_fn = feed_resize; h.files.sync_fn = feed_sync;
    h.files.rename_fn = feed_rename; h.files.remove_fn = feed_remove;
    h.files.user = h.clock.user = d;
    h.clock.now_fn = feed_now;
    if (at_once) return h;
    h.files.queue_open_fn = feed_queue_open; h.files.queue_close_fn = feed_queue_close;
    h.files.begin_fn = feed_begin; h.files.wait_fn = feed_wait;
    return h;
}
static feed_disk feed_disks; /* one test at a time */
static memopt_host feed_hosts;
static memopt_feed_desc feed_desc(int at_once) { /* a disk full of random bytes; 1,000 tokens of 16 bits after 6 bytes */
    memopt_feed_desc d;
    uint64_t seed = 1;
    size_t i;

    memset(&feed_disks, 0, sizeof feed_disks);
    for (i = 0; i < FEED_FILE; ++i) feed_disks.bytes[i] = (unsigned char)test_random(&seed);
    for (i = 1; i < FEED_FILE; i += 4) feed_disks.bytes[i] &= 0x7f; /* 32 bits, from 6 on, are then no negative number */
    feed_disks.size = 2006;
    feed_hosts = feed_host(&feed_disks, at_once);
    memset(&d, 0, sizeof d);
    d.path = "tokens";
    d.offset = 6;
    d.length = 7;
    d.host = &feed_hosts;
    return d;
}

/* ---- the definition once more ---- */
static void feed_philox(uint32_t c[4], uint64_t seed, uint64_t stream, uint64_t block) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    int r;

    c[0] = (uint32_t)block; c[1] = (uint32_t)(block >> 32); c[2] = (uint32_t)stream; c[3] = (uint32_t)(stream >> 32);
    for (r = 0; r < 10; ++r) {
        const uint64_t a = UINT64_C(0xD2511F53) * c[0], b = UINT64_C(0xCD9E8D57) * c[2];

        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0; c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1; c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
}
static uint64_t feed_order(uint64_t seed, uint64_t epoch, uint64_t windows, uint64_t x) {
    uint64_t side = 2, left, right, next;
    uint32_t w[4];
    int r;

    while (side < UINT64_C(1) << 32 && side * side < windows) side *= 2;
    do {
        left = x / side;
        right = x % side;
        for (r = 0; r < 4; ++r) {
            feed_philox(w, seed, UINT64_MAX - epoch, right);
            next = left ^ (w[r] % side);
            left = right;
            right = next;
        }
        x = left * side + right;
    } while (x >= windows);
    return x;
}
/* Does a unit hold what it should? d: with all fields set. */
static int feed_is(const memopt_feed_desc *d, uint64_t step, size_t unit, const int32_t *inputs, const int32_t *targets) {
    const uint64_t tokens = d->tokens ? d->tokens : (feed_disks.size - d->offset) / d->token_bytes;
    const uint64_t windows = (tokens - 1) / d->length;
    size_t i, k, b;

    for (i = 0; i < d->samples; ++i) {
        const uint64_t n = (step * d->units + unit) * d->samples + i;
        const uint64_t window = d->shuffle ? feed_order(d->seed, n / windows, windows, n % windows) : n % windows;

        for (k = 0; k <= d->length; ++k) {
            uint32_t token = 0;

            for (b = d->token_bytes; b-- > 0;)
                token = token << 8 | feed_disks.bytes[d->offset + (window * d->length + k) * d->token_bytes + b];
            if (k < d->length && inputs[i * d->length + k] != (int32_t)token) return 0;
            if (k && targets && targets[i * d->length + k - 1] != (int32_t)token) return 0;
        }
    }
    return 1;
}

static void feed_orders(void) {
    static const unsigned char first[23] = { 17, 19, 20, 11, 6, 9, 1, 16, 22, 0, 21, 2, 5, 7, 4, 3, 8, 10, 15, 14, 13, 18, 12 };
    static const unsigned char eighth[23] = { 7, 0, 2, 18, 6, 21, 8, 22, 20, 19, 5, 16, 10, 11, 1, 12, 14, 17, 15, 13, 4, 9, 3 };
    static const unsigned char five[5] = { 3, 1, 0, 2, 4 };
    memopt_feed_desc d = feed_desc(0);
    memopt_feed *x = NULL;
    size_t i;

    d.tokens = 23 * 7 + 1; d.shuffle = 1; d.seed = 42;
    CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK);
    for (i = 0; i < 23; ++i) {
        CHECK_AT(memopt_feed_window(x, i) == first[i] && memopt_feed_window(x, 7 * 23 + i) == eighth[i], i);
    }
    memopt_feed_destroy(x);
    for (i = 0; i < 5; ++i) CHECK_AT(memopt_feed_shuffle((UINT64_C(1) << 63) + 5, 0, 5, i) == five[i], i);
    CHECK(memopt_feed_shuffle(1, UINT64_C(1) << 40, 1, 0) == 0);
    CHECK(memopt_feed_shuffle(3, 2, (UINT64_C(1) << 62) + 1, 0) == UINT64_C(0x17e3f6a6253cd3bc)); /* halves of 32 bits */
    CHECK(memopt_feed_shuffle(3, 2, (UINT64_C(1) << 62) + 1, UINT64_C(1) << 62) == UINT64_C(0x12029dd10f9c7d74));
}
static void feed_permutations(void) {
    uint64_t windows, epoch, i;

    for (windows = 1; windows < 300; windows += windows < 20 ? 1 : 13) {
        for (epoch = 0; epoch < 4; ++epoch) {
            unsigned char seen[300] = { 0 };
            size_t same_seed = 0, same_epoch = 0, unmoved = 0;

            for (i = 0; i < windows; ++i) {
                const uint64_t at = memopt_feed_shuffle(5, epoch, windows, i);

                CHECK_AT(at < windows && !seen[at], windows);
                if (at < windows) seen[at] = 1;
                same_seed += at == memopt_feed_shuffle(6, epoch, windows, i);
                same_epoch += at == memopt_feed_shuffle(5, epoch + 1, windows, i);
                unmoved += at == i;
            }
            if (windows > 15) CHECK_AT(same_seed < 8 && same_epoch < 8 && unmoved < 8, windows); /* one is the mean */
        }
    }
}

/* All depths, types, shapes and orders; positions one after the other, and sought. */
static void feed_walk(memopt_feed_desc d, uint64_t *random) {
    static int32_t room[2][FEED_ROOM + 2];
    const size_t n = d.samples * d.length;
    memopt_feed *x = NULL;
    uint64_t step = 0, units = 0;
    size_t unit = d.rank, i;

    CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK);
    if (!x) return;
    for (i = 0; i < 40; ++i) {
        int32_t *const targets = i % 8 == 5 ? NULL : room[1] + 1;
        memopt_feed_stats s = memopt_feed_get_stats(x);

        CHECK(s.step == step && s.unit == unit && s.units == units);
        memset(room, 0x55, sizeof room);
        CHECK(memopt_feed_next(x, room[0] + 1, targets) == MEMOPT_OK);
        CHECK_AT(feed_is(&d, step, unit, room[0] + 1, targets), step);
        CHECK(room[0][0] == 0x55555555 && room[1][0] == 0x55555555 && room[0][n + 1] == 0x55555555 && room[1][n + 1] == 0x55555555);
        ++units;
        unit += d.ranks;
        if (unit >= d.units) { unit = d.rank; ++step; }
        if (i % 7 != 6) continue;
        step = i == 20 ? UINT64_MAX / (d.units * d.samples) - 1 - test_below(random, 40) - 40 : test_below(random, 3000);
        unit = test_below(random, d.units);
        CHECK(memopt_feed_seek(x, step, unit) == MEMOPT_OK);
        while (unit % d.ranks != d.rank && unit < d.units) ++unit; /* the next of ours */
        if (unit >= d.units) { unit = d.rank; ++step; }
    }
    memopt_feed_destroy(x);
}
static void feed_contents(void) {
    static const size_t bytes[3] = { 1, 2, 4 }, lengths[3] = { 7, 1, 60 };
    uint64_t random = 3;
    size_t k;

    for (k = 0; k < 600; ++k) {
        memopt_feed_desc d = feed_desc(k % 5 == 4);

        d.ahead = 1 + k % 8;
        d.token_bytes = bytes[k % 3];
        d.length = lengths[test_below(&random, 3)];
        d.samples = 1 + test_below(&random, 5);
        d.ranks = 1 + test_below(&random, 3);
        d.units = d.ranks + test_below(&random, 4);
        d.rank = test_below(&random, d.ranks);
        d.shuffle = (int)test_below(&random, 2);
        d.seed = test_random(&random);
        feed_disks.random = k;
        feed_disks.size = d.offset + d.token_bytes * (d.length + 1 + test_below(&random, 1200));
        if (k % 4 == 1) d.tokens = (feed_disks.size - d.offset) / d.token_bytes - test_below(&random, 2) * (d.length > 7);
        if (d.tokens && d.tokens <= d.length) d.tokens = 0;
        feed_walk(d, &random);
        CHECK_AT(feed_disks.files == 0 && feed_disks.queues == 0 && feed_disks.most_under_way == (k % 5 == 4 ? 0 : d.ahead), k);
    }
}
static void feed_defaults(void) {
    memopt_feed_desc d = feed_desc(0), all = d;
    int32_t inputs[7], targets[7];
    memopt_feed *x = NULL;
    uint64_t step;

    CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK && feed_disks.under_way == 2); /* two units */
    all.token_bytes = 2; all.samples = all.units = all.ranks = 1;
    for (step = 0; step < 300; ++step) /* more than two epochs of 142 windows */
        CHECK_AT(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && feed_is(&all, step, 0, inputs, targets), step);
    CHECK(memopt_feed_get_stats(x).windows == 142);
    memopt_feed_destroy(x);
    d.samples = 300;
    CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK && feed_disks.under_way == 600);
    memopt_feed_destroy(x);
    d.samples = 600;
    CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK && feed_disks.under_way == 1024);
    memopt_feed_destroy(x);
    memopt_feed_destroy(NULL);
    CHECK(memopt_feed_get_stats(NULL).windows == 0);
    CHECK(test_error_says(memopt_feed_error(NULL), MEMOPT_ERR_ARGUMENT, "the feed is NULL"));
}
/* Bytes: what is told is what is taken, in one block. */
static void feed_memory(void) {
    size_t k;

    for (k = 0; k < 20; ++k) {
        memopt_feed_desc d = feed_desc(0);
        test_faults f;
        size_t bytes = 0;
        char line[256] = "";
        memopt_feed *x = NULL;

        memset(&f, 0, sizeof f);
        feed_hosts.allocator = test_host(&f).allocator;
        d.samples = 1 + k % 3;
        d.ahead = k % 4 * 100;
        d.length = 1 + 13 * k;
        d.token_bytes = (size_t)1 << k % 3;
        CHECK(memopt_feed_bytes(&d, &bytes) == MEMOPT_OK && memopt_feed_create(&d, &x) == MEMOPT_OK);
        CHECK_AT(f.peak_bytes == bytes && f.calls == 1 && bytes >= (d.ahead ? d.ahead : 2 * d.samples) * (d.length + 1) * d.token_bytes, k);
        memopt_feed_destroy(x);
        CHECK(!f.live_blocks && !f.bad_frees);
        f.fail_from = 1;
        d.error = &test_why;
        CHECK(memopt_feed_create(&d, &x) == MEMOPT_ERR_MEMORY && memopt_error_text(&test_why, line, sizeof line, NULL) == MEMOPT_OK);
        CHECK(strncmp(line, "feed: no memory for it: asked ", 30) == 0 && test_why.got.count == bytes);
        CHECK(!f.live_blocks && feed_disks.files == 0);
    }
}

/* ---- what goes wrong ---- */
static void feed_refusals(void) {
    memopt_feed_desc d = feed_desc(0);
    memopt_feed *x = NULL;
    size_t bytes = 77;

#define FEED_REFUSES(change, back, want, text) do { \
        REFUSES(d.error, change, memopt_feed_create(&d, &x), want, text); \
        REFUSES(d.error, (void)0, memopt_feed_bytes(&d, &bytes), want, text); \
        back; } while (0)
    FEED_REFUSES(d.length = 0, d.length = 7, MEMOPT_ERR_ARGUMENT, "feed: length 0, at least 1");
    FEED_REFUSES(d.token_bytes = 3, d.token_bytes = 0, MEMOPT_ERR_ARGUMENT, "feed: token_bytes is not 1, 2 or 4");
    FEED_REFUSES(d.token_bytes = 8, d.token_bytes = 0, MEMOPT_ERR_ARGUMENT, "feed: token_bytes is not 1, 2 or 4");
    FEED_REFUSES(d.vocabulary = ((size_t)1 << 31) + 1, d.vocabulary = 0, MEMOPT_ERR_ARGUMENT, "feed: vocabulary 2147483649, limit 2147483648");
    FEED_REFUSES(d.rank = 1, d.rank = 0, MEMOPT_ERR_ARGUMENT, "feed: rank 1, limit 0");
    FEED_REFUSES((void)(d.units = 2, d.ranks = 3), (void)(d.units = d.ranks = 0), MEMOPT_ERR_ARGUMENT, "feed: units 2, at least ranks 3");
    FEED_REFUSES(d.ahead = 1025, d.ahead = 0, MEMOPT_ERR_ARGUMENT, "feed: ahead 1025, limit 1024");
    FEED_REFUSES((void)(d.units = SIZE_MAX, d.samples = 2), (void)(d.units = d.samples = 0), MEMOPT_ERR_OVERFLOW, "feed: samples of a step do not fit a size_t");
    FEED_REFUSES(d.samples = SIZE_MAX, d.samples = 0, MEMOPT_ERR_OVERFLOW, "feed: length of a unit does not fit a size_t");
    FEED_REFUSES(d.length = SIZE_MAX / 4, d.length = 7, MEMOPT_ERR_OVERFLOW, "feed: length of a unit does not fit a size_t");
    FEED_REFUSES((void)(d.length = SIZE_MAX / 5, d.ahead = 9), (void)(d.length = 7, d.ahead = 0), MEMOPT_ERR_OVERFLOW, "feed: ahead sequences do not fit a size_t");
    FEED_REFUSES(feed_hosts.allocator.free_fn = test_free, feed_hosts.allocator.free_fn = NULL, MEMOPT_ERR_ARGUMENT, "feed: host is half set");
    REFUSES(d.error, d.path = NULL, memopt_feed_create(&d, &x), MEMOPT_ERR_ARGUMENT, "feed: path is NULL");
    ACCEPTS(d.error, (void)0, memopt_feed_bytes(&d, &bytes)); /* which opens nothing */
    d.path = "tokens";
    REFUSES(d.error, (void)0, memopt_feed_create(&d, NULL), MEMOPT_ERR_ARGUMENT, "feed: out is NULL");
    REFUSES(d.error, (void)0, memopt_feed_bytes(&d, NULL), MEMOPT_ERR_ARGUMENT, "feed: bytes is NULL");
    CHECK(memopt_feed_create(NULL, &x) == MEMOPT_ERR_ARGUMENT && memopt_feed_bytes(NULL, &bytes) == MEMOPT_ERR_ARGUMENT);
    CHECK(!x && feed_disks.files == 0 && feed_disks.begins == 0);
#undef FEED_REFUSES
}
static void feed_files(void) {
    memopt_feed_desc d = feed_desc(0);
    memopt_feed *x = NULL;

    REFUSES(d.error, feed_disks.open = MEMOPT_ERR_IO, memopt_feed_create(&d, &x), MEMOPT_ERR_IO, "feed: file could not be opened");
    feed_disks.open = MEMOPT_OK;
    REFUSES(d.error, feed_disks.measure = MEMOPT_ERR_IO, memopt_feed_create(&d, &x), MEMOPT_ERR_IO, "feed: file could not be measured");
    { memopt_feed_desc of = d; of.path = "."; of.host = NULL; CHECK(memopt_feed_create(&of, &x) == MEMOPT_ERR_IO); } /* a directory */
    feed_disks.measure = MEMOPT_OK;
    REFUSES(d.error, feed_disks.queue_open = MEMOPT_ERR_MEMORY, memopt_feed_create(&d, &x), MEMOPT_ERR_MEMORY, "feed: file has no queue of transfers");
    feed_disks.queue_open = MEMOPT_OK;
    REFUSES(d.error, feed_disks.size = 2007, memopt_feed_create(&d, &x), MEMOPT_ERR_FORMAT, "feed: file: bytes 2001, no multiple of token_bytes 2");
    REFUSES(d.error, d.tokens = 1001, memopt_feed_create(&d, &x), MEMOPT_ERR_FORMAT, "feed: file: tokens 1000, at least 1001");
    REFUSES(d.error, d.tokens = UINT64_MAX, memopt_feed_create(&d, &x), MEMOPT_ERR_FORMAT, "feed: file: tokens 1000, at least 18446744073709551615");
    REFUSES(d.error, d.tokens = 7, memopt_feed_create(&d, &x), MEMOPT_ERR_FORMAT, "feed: file: tokens 7, more than length 7");
    d.tokens = 0;
    REFUSES(d.error, feed_disks.size = 20, memopt_feed_create(&d, &x), MEMOPT_ERR_FORMAT, "feed: file: tokens 7, more than length 7");
    REFUSES(d.error, feed_disks.size = 6, memopt_feed_create(&d, &x), MEMOPT_ERR_FORMAT, "feed: file: tokens 0, more than length 7");
    REFUSES(d.error, feed_disks.size = 5, memopt_feed_create(&d, &x), MEMOPT_ERR_FORMAT, "feed: file: tokens 0, more than length 7");
    REFUSES(d.error, d.offset = UINT64_MAX, memopt_feed_create(&d, &x), MEMOPT_ERR_FORMAT, "feed: file: tokens 0, more than length 7");
    CHECK(!x && feed_disks.files == 0 && feed_disks.queues == 0 && feed_disks.begins == 0);
    d.offset = 6;
    feed_disks.size = 22; /* one window */
    ACCEPTS(d.error, (void)0, memopt_feed_create(&d, &x));
    CHECK(memopt_feed_get_stats(x).windows == 1);
    memopt_feed_destroy(x);
    feed_disks.size = 2007; /* more than what is asked for, and cut within a token, is fine */
    ACCEPTS(d.error, d.tokens = 1000, memopt_feed_create(&d, &x));
    memopt_feed_destroy(x);
}
/* The calls on a feed, and the last steps that can be counted. */
static void feed_calls(void) {
    memopt_feed_desc d = feed_desc(0), all;
    const uint64_t steps = UINT64_MAX / 6;
    int32_t inputs[14], targets[14];
    memopt_feed *x = NULL;

    d.samples = 2; d.units = 3; d.ranks = 2; d.rank = 1; d.token_bytes = 2;
    all = d;
    CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK && memopt_feed_error(x).status == MEMOPT_OK);
    CHECK(memopt_feed_next(x, NULL, targets) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_feed_error(x), MEMOPT_ERR_ARGUMENT, "feed: inputs is NULL"));
    CHECK(memopt_feed_next(NULL, inputs, targets) == MEMOPT_ERR_ARGUMENT && memopt_feed_seek(NULL, 0, 0) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && feed_is(&all, 0, 1, inputs, targets));
    CHECK(memopt_feed_seek(x, steps, 0) == MEMOPT_ERR_ARGUMENT
          && test_error_says(memopt_feed_error(x), MEMOPT_ERR_ARGUMENT, "feed: step 3074457345618258602, limit 3074457345618258601"));
    CHECK(memopt_feed_seek(x, 0, 3) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_feed_error(x), MEMOPT_ERR_ARGUMENT, "feed: unit 3, limit 2"));
    CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && feed_is(&all, 1, 1, inputs, targets)); /* where it was */
    CHECK(memopt_feed_seek(x, steps - 2, 1) == MEMOPT_OK);
    CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && feed_is(&all, steps - 2, 1, inputs, targets));
    CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && feed_is(&all, steps - 1, 1, inputs, targets));
    CHECK(memopt_feed_get_stats(x).step == steps);
    CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_ERR_OVERFLOW && test_error_says(memopt_feed_error(x), MEMOPT_ERR_OVERFLOW, "feed: step is beyond what can be counted"));
    CHECK(memopt_feed_seek(x, steps - 1, 2) == MEMOPT_OK); /* the next of this rank is there no more */
    CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_feed_window(x, memopt_feed_sequence(x, steps - 1, 2, 1)) == (steps * 6 - 1) % 142);
    memopt_feed_destroy(x);
}
/* A read fails, at its begin or its end, or ends early: the units before it come, it comes never, until a seek. */
static void feed_failures(void) {
    static const char *const text[4] = { "feed: file could not be read", "feed: file could not be read", "feed: file could not be read", "feed: file has become shorter" };
    static const memopt_status status[4] = { MEMOPT_ERR_DEVICE, MEMOPT_ERR_IO, MEMOPT_ERR_IO, MEMOPT_ERR_FORMAT };
    size_t kind, n, ahead, k;

    for (kind = 0; kind < 4; ++kind)
        for (ahead = 1; ahead <= 5; ++ahead)
            for (n = 1; n < 20; ++n) {
                memopt_feed_desc d = feed_desc(kind == 2), all;
                int32_t inputs[21], targets[21];
                memopt_feed *x = NULL;
                memopt_status s = MEMOPT_OK;

                d.samples = 3; d.ahead = ahead; d.token_bytes = 2; d.units = d.ranks = 1;
                all = d;
                if (kind == 0) feed_disks.fail_begin = n;
                if (kind == 1) feed_disks.fail_wait = n;
                if (kind == 2) feed_disks.fail_read = n;
                CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK);
                if (kind == 3) feed_disks.size = 6 + 14 * n; /* window n - 1 has lost its last token */
                for (k = 0; k < 10 && !s; ++k) {
                    s = memopt_feed_next(x, inputs, targets);
                    if (!s && kind != 3) CHECK_AT(feed_is(&all, k, 0, inputs, targets), k);
                }
                CHECK_AT(s == status[kind] && k == (n - 1) / 3 + 1 && test_error_says(memopt_feed_error(x), s, text[kind]), n);
                CHECK(feed_disks.under_way == 0);
                CHECK(memopt_feed_seek(x, 0, 1) == MEMOPT_ERR_ARGUMENT); /* another failure, which changes nothing */
                CHECK(memopt_feed_next(x, inputs, NULL) == s && test_error_says(memopt_feed_error(x), s, text[kind]));
                CHECK(memopt_feed_get_stats(x).step == k - 1 && memopt_feed_get_stats(x).units == k - 1);
                feed_disks.size = 2006;
                CHECK(memopt_feed_seek(x, k - 1, 0) == MEMOPT_OK && memopt_feed_next(x, inputs, targets) == MEMOPT_OK && feed_is(&all, k - 1, 0, inputs, targets));
                CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && feed_is(&all, k, 0, inputs, targets));
                memopt_feed_destroy(x);
                CHECK(feed_disks.files == 0 && feed_disks.queues == 0);
            }
}
static void feed_vocabulary(void) {
    static const struct { size_t bytes, vocabulary, limit; unsigned char token[4]; unsigned long is, below; } rows[] = {
        { 1, 200, 199, { 200, 0, 0, 0 }, 200, 200 },
        { 2, 0x1234, 0x1233, { 0x34, 0x12, 0, 0 }, 4660, 4660 },
        { 4, 0, 0, { 0, 0, 0, 0x80 }, 2147483648ul, 2147483648ul },
        { 4, 100, 0, { 0xff, 0xff, 0xff, 0xff }, 4294967295ul, 100 },
    };
    int32_t inputs[7], targets[7];
    size_t i, place;
    char text[100];

    for (i = 0; i < sizeof rows / sizeof *rows; ++i)
        for (place = 8; place <= 14; place += 6) { /* within the second window; the target of its last */
            memopt_feed_desc d = feed_desc(0);
            unsigned char *at = feed_disks.bytes + 6 + place * rows[i].bytes;
            memopt_feed *x = NULL;

            sprintf(text, "feed: token %lu at the file's token %lu, vocabulary %lu", rows[i].is, (unsigned long)place, rows[i].below);
            d.token_bytes = rows[i].bytes; d.vocabulary = rows[i].vocabulary; d.tokens = 15;
            memset(feed_disks.bytes, 0, sizeof feed_disks.bytes);
            memcpy(at, rows[i].token, rows[i].bytes);
            CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK && memopt_feed_next(x, inputs, targets) == MEMOPT_OK);
            CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_ERR_FORMAT && test_error_says(memopt_feed_error(x), MEMOPT_ERR_FORMAT, text));
            CHECK(memopt_feed_next(x, inputs, NULL) == MEMOPT_ERR_FORMAT && test_error_says(memopt_feed_error(x), MEMOPT_ERR_FORMAT, text));
            memset(at, 0, rows[i].bytes);
            if (i < 2) at[0] = (unsigned char)rows[i].limit; /* the last one that there is */
            if (i == 1) at[1] = (unsigned char)(rows[i].limit >> 8);
            CHECK(memopt_feed_seek(x, 1, 0) == MEMOPT_OK && memopt_feed_next(x, inputs, targets) == MEMOPT_OK && targets[place - 8] == (int32_t)rows[i].limit);
            memopt_feed_destroy(x);
        }
}
/* Time that is waited for is counted, and which units it was too long for. */
static void feed_stalls(void) {
    int at_once, k;

    for (at_once = 0; at_once < 2; ++at_once) {
        memopt_feed_desc d = feed_desc(at_once);
        int32_t inputs[14], targets[14];
        memopt_feed_stats s;
        memopt_feed *x = NULL;

        d.samples = 2;
        feed_disks.delay = 49000;
        CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK);
        for (k = 0; k < 10; ++k) CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK); /* 2 x 49,000, and the clock's 2 x 10 */
        s = memopt_feed_get_stats(x);
        CHECK(s.units == 10 && s.stalls == 0 && s.nanoseconds == 10 * (2 * 49000 + 20));
        feed_disks.delay = MEMOPT_FEED_STALL / 2 - 10; /* just not one */
        CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && memopt_feed_get_stats(x).stalls == 0);
        ++feed_disks.delay;
        CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && memopt_feed_get_stats(x).stalls == 1);
        feed_disks.delay = 0;
        CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && memopt_feed_get_stats(x).stalls == 1);
        memopt_feed_destroy(x);
        d = feed_desc(at_once);
        feed_hosts.clock.now_fn = feed_no_clock; /* where it fails nothing is counted, and all comes */
        CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK);
        for (k = 0; k < 10; ++k) {
            feed_disks.clocks = (uint64_t)k; /* before a wait, or after it */
            CHECK(memopt_feed_next(x, inputs, targets) == MEMOPT_OK);
        }
        s = memopt_feed_get_stats(x);
        CHECK(s.units == 10 && s.stalls == 0 && s.nanoseconds == 0);
        memopt_feed_destroy(x);
    }
}
/* The system's files and their queue, with everything failing once, at each call. */
static void feed_system(void) {
    const char *path = "memopt-test-feed.tmp";
    memopt_feed_desc d = feed_desc(0), all;
    FILE *file = fopen(path, "wb");
    int32_t inputs[21], targets[21];
    memopt_feed *x = NULL;
    size_t n, k;

    if (!file) { SKIP("no file can be made here"); return; }
    fwrite(feed_disks.bytes, 1, 2006, file);
    fclose(file);
    d.path = path; d.samples = 3; d.units = d.ranks = 1; d.token_bytes = 2; d.shuffle = 1; d.ahead = 4;
    all = d;
    for (n = 1; n < 400; ++n) {
        test_faults f;
        memopt_host host;
        memopt_status s;
        int failed = 0;

        memset(&f, 0, sizeof f);
        f.fail_on = n;
        host = test_host(&f);
        d.host = &host;
        x = NULL;
        s = memopt_feed_create(&d, &x);
        CHECK_AT(s == MEMOPT_OK ? x != NULL : (s == MEMOPT_ERR_IO || s == MEMOPT_ERR_MEMORY) && !x, n);
        for (k = 0; k < 9 && x; ++k) {
            s = memopt_feed_next(x, inputs, targets);
            CHECK_AT(s == MEMOPT_OK || (s == MEMOPT_ERR_IO && !failed++ && memopt_feed_seek(x, k, 0) == MEMOPT_OK && memopt_feed_next(x, inputs, targets) == MEMOPT_OK), n);
            CHECK_AT(feed_is(&all, k, 0, inputs, targets), n);
        }
        memopt_feed_destroy(x);
        CHECK_AT(!f.live_blocks && !f.bad_frees, n);
        if (f.calls < n) break;
    }
    CHECK(n > 30 && n < 400);
    d.host = NULL;
    CHECK(memopt_feed_create(&d, &x) == MEMOPT_OK);
    for (k = 0; k < 200; ++k) CHECK_AT(memopt_feed_next(x, inputs, targets) == MEMOPT_OK && feed_is(&all, k, 0, inputs, targets), k);
    memopt_feed_destroy(x);
    remove(path);
    CHECK(memopt_feed_create(&d, &x) == MEMOPT_ERR_IO);
}

static void test_feed(void) {
    RUN(feed_orders);
    RUN(feed_permutations);
    RUN(feed_contents);
    RUN(feed_defaults);
    RUN(feed_memory);
    RUN(feed_refusals);
    RUN(feed_files);
    RUN(feed_calls);
    RUN(feed_failures);
    RUN(feed_vocabulary);
    RUN(feed_stalls);
    RUN(feed_system);
}
#ifndef TEST_COMBINED
int main(void) { test_feed(); return test_totals(); }
#endif
