/* bench_offload.c - a step of 64 Mi parameters with 8-bit AdamW states on a slow tier.
   step_host    states in other memory of the host
   step_disk    states in a file of the working directory
   step_both    states and weights in a file, stepped inside backward where they were computed with
   Their limit is the larger of the same step with all in memory, and the transfers of the step alone: what it asked of the
   disk, in its order, at its places and as many at once, from another file that was written before. All three are timed in
   turn, round by round, and what moves on the disk after the same rest: many disks are faster for a while after one.
   The disk of a virtual machine takes its processors, and then nothing reaches that limit: the limit of a second row,
   "beside", is the step in memory while another thread makes those transfers, none of which waits for the other.
   Of other memory, whose copies the thread that steps makes itself, the limit is the sum of the step
   in memory and of the bytes at memcpy's rate. Two threads need -DMEMOPT_PTHREADS -pthread. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

enum { BENCH_GROUPS = 16, BENCH_STEPS = 7, BENCH_REQUESTS = 4096 };
#define BENCH_COUNT ((size_t)4 << 20) /* parameters of a group */
#define BENCH_FILE  "bench_offload.tiles"
#define BENCH_PLAIN "bench_offload.plain"

static void bench_must(memopt_status s, const char *what) {
    if (!s) return;
    fprintf(stderr, "bench_offload: %s: %s\n", what, memopt_status_text(s));
    exit(1);
}

/* ---- what a step asks of the disk ---- */
typedef struct bench_request { memopt_transfer kind; uint64_t offset; size_t count; } bench_request;

static struct bench_log { /* of two steps, as what one writes the next one reads */
    bench_request list[2][BENCH_REQUESTS];
    size_t count[2], largest;
    uint64_t end;
    int records; /* 0: nothing; 1 + which step */
} bench_log;

static memopt_status bench_asked(void *user, void *queue, int slot, void *file, memopt_transfer kind, uint64_t offset,
                                 void *bytes, size_t count) {
    if (bench_log.records) {
        const int step = bench_log.records - 1;
        bench_request *r = &bench_log.list[step][bench_log.count[step]];

        bench_must(bench_log.count[step] + 1 == BENCH_REQUESTS ? MEMOPT_ERR_OVERFLOW : MEMOPT_OK, "requests");
        r->kind = kind;
        r->offset = offset;
        r->count = count;
        ++bench_log.count[step];
        if (count > bench_log.largest) bench_log.largest = count;
        if (offset + count > bench_log.end) bench_log.end = offset + count;
    }
    return memopt_i_system_begin(user, queue, slot, file, kind, offset, bytes, count);
}

typedef struct bench_disk { void *file, *queue; memopt_source pages; unsigned char *bytes; size_t depth, room, all; } bench_disk;

static memopt_status bench_move(const bench_disk *d, size_t number, bench_request r) {
    const size_t slot = number % d->depth;
    size_t done;

    if (number >= d->depth) bench_must(memopt_i_system_wait(NULL, d->queue, (int)slot, &done), "plain file");
    return memopt_i_system_begin(NULL, d->queue, (int)slot, d->file, r.kind, r.offset, d->bytes + slot * d->room, r.count);
}

static void bench_wait(const bench_disk *d, size_t number) {
    size_t slot, done;

    for (slot = 0; slot < d->depth && slot < number; ++slot)
        bench_must(memopt_i_system_wait(NULL, d->queue, (int)slot, &done), "plain file");
}

/* A file as long as what was asked for, all of it written: what never was is read without the disk. */
static void bench_open_plain(bench_disk *d, size_t depth) {
    const memopt_files f = memopt_i_system_files();
    bench_request r = { MEMOPT_TRANSFER_WRITE, 0, 0 };
    void *place = NULL;
    size_t n = 0;

    (void)f.remove_fn(NULL, BENCH_PLAIN);
    bench_must(f.open_fn(NULL, BENCH_PLAIN, MEMOPT_OPEN_WRITE_DIRECT, &d->file), "plain file");
    bench_must(f.reserve_fn(NULL, d->file, bench_log.end), "plain file");
    bench_must(f.queue_open_fn(NULL, (int)depth, &d->queue), "plain file");
    d->depth = depth;
    d->room = (bench_log.largest + 4095) / 4096 * 4096;
    bench_must(memopt_source_pages(NULL, &d->pages), "memory"); /* as those of the step: small ones make a disk slower */
    d->all = (depth * d->room / d->pages.granularity + 1) * d->pages.granularity;
    bench_must(d->pages.reserve_fn(&d->pages, d->all, &place), "memory");
    bench_must(d->pages.commit_fn(&d->pages, place, d->all), "memory");
    d->bytes = (unsigned char *)place;
    memset(d->bytes, 7, d->all);
    for (; r.offset < bench_log.end; r.offset += r.count, ++n) {
        r.count = (size_t)memopt_i_min(d->room, (size_t)(bench_log.end - r.offset));
        bench_must(bench_move(d, n, r), "plain file");
    }
    bench_wait(d, n);
}

static void bench_close_plain(bench_disk *d) {
    const memopt_files f = memopt_i_system_files();

    memopt_i_system_queue_close(NULL, d->queue);
    (void)f.close_fn(NULL, d->file);
    (void)f.remove_fn(NULL, BENCH_PLAIN);
    d->pages.release_fn(&d->pages, d->bytes, d->all);
}

static double bench_again(const bench_disk *d, size_t step) { /* seconds of its transfers alone */
    const uint64_t begin = bench_now();
    size_t i;

    for (i = 0; i < bench_log.count[step]; ++i)
        bench_must(bench_move(d, i, bench_log.list[step][i]), "plain file");
    bench_wait(d, i);
    return (double)(bench_now() - begin) * 1e-9;
}

/* ---- a step ---- */
static memopt_threads bench_workers; /* they step, and make checksums */

typedef struct bench_shard {
    memopt_shard_tensor tensors[BENCH_GROUPS];
    memopt_optim_group rates;
    memopt_optim_run run;
    memopt_shard_bytes bytes;
    memopt_store *store;
    memopt_shard *shard;
    memopt_host host;
    memopt_source source;
    memopt_arena *arena; /* of huge pages, which the kernel notes quickly for each transfer */
} bench_shard;

static void bench_store(bench_shard *x, memopt_shard_desc *d, const char *path) {
    memopt_store_desc s;
    size_t *tiles;

    memset(&s, 0, sizeof s);
    tiles = (size_t *)malloc(x->bytes.slow_tiles * sizeof *tiles);
    if (!tiles) exit(1);
    bench_must(memopt_shard_tiles(d, tiles), "tiles");
    x->host.threads = bench_workers;
    x->host.files = memopt_i_system_files();
    x->host.files.begin_fn = bench_asked;
    s.tiles = x->bytes.slow_tiles;
    s.each_bytes = tiles;
    s.transfers = x->bytes.slow_transfers;
    s.aligned = 1;
    s.path = path;
    s.host = &x->host;
    bench_must(memopt_store_create(&s, &x->store), "store");
    free(tiles);
    d->store = x->store;
}

static void bench_open(bench_shard *x, int slow, int inside, const char *path) {
    memopt_shard_desc d;
    memopt_arena_desc a;
    size_t i;

    memset(x, 0, sizeof *x);
    memset(&d, 0, sizeof d);
    memset(&a, 0, sizeof a);
    x->rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    for (i = 0; i < BENCH_GROUPS; ++i) {
        x->tensors[i].count = BENCH_COUNT;
        x->tensors[i].group = i;
    }
    d.stage = inside ? 3 : 1;
    d.tensors = x->tensors;
    d.tensor_count = BENCH_GROUPS;
    d.optim.state = MEMOPT_STATE_8BIT;
    d.optim.threads = &bench_workers;
    d.slow = slow;
    d.steps_inside = inside;
    bench_must(memopt_shard_plan(&d, &x->bytes), "plan");
    if (slow) bench_store(x, &d, path);
    bench_must(memopt_source_pages(NULL, &x->source), "memory");
    a.source = &x->source;
    a.capacity = (x->bytes.total / x->source.granularity + 2) * x->source.granularity;
    bench_must(memopt_arena_create(&a, &x->arena), "memory");
    bench_must(memopt_shard_open(&d, x->arena, &x->shard), "open");
    bench_must(memopt_shard_share(x->shard), "share");
    x->run.groups = &x->rates;
    x->run.group_count = 1;
    x->run.fused = inside;
}

static void bench_close(bench_shard *x) {
    memopt_shard_close(x->shard);
    memopt_store_destroy(x->store);
    memopt_arena_destroy(x->arena);
}

/* A unit whose gradients are there already, and its step: seconds. */
static double bench_step(bench_shard *b) {
    const uint64_t begin = bench_now();
    memopt_shard *x = b->shard;
    size_t unit, g;

    ++b->run.step;
    if (b->run.fused) bench_must(memopt_shard_step_inside(x, &b->run), "step inside");
    bench_must(memopt_shard_next_unit(x, &unit), "unit");
    for (g = 0; g < BENCH_GROUPS; ++g) bench_must(memopt_shard_forward(x, g), "forward");
    for (g = BENCH_GROUPS; g-- > 0;) {
        bench_must(memopt_shard_backward(x, g), "backward");
        bench_must(memopt_shard_reduce(x, g), "reduce");
    }
    bench_must(memopt_shard_next_unit(x, &unit), "round");
    bench_must(memopt_shard_step(x, &b->run), "step");
    return (double)(bench_now() - begin) * 1e-9;
}

static double bench_copy(double bytes) { /* seconds of so many bytes read and written by memcpy */
    static unsigned char *from, *to;
    const size_t room = (size_t)64 << 20;
    uint64_t begin;

    if (!from) {
        from = (unsigned char *)calloc(1, room);
        to = (unsigned char *)malloc(room);
        if (!from || !to) exit(1);
        memcpy(to, from, room);
    }
    begin = bench_now();
    memcpy(to, from, room);
    return (double)(bench_now() - begin) * 1e-9 * bytes / (double)room;
}

/* Of the disk: steps in memory, each of which takes what is returned. */
static double bench_rest(bench_shard *here) {
    double sum = 0;
    size_t count = 0;

    for (; sum < 0.3; ++count) sum += bench_step(here);
    return sum / (double)count;
}

#if defined(MEMOPT_I_POOL)
typedef struct bench_mover { const bench_disk *disk; size_t step; } bench_mover;

static void bench_mover_serve(void *argument) {
    const bench_mover *m = (const bench_mover *)argument;

    (void)bench_again(m->disk, m->step);
}

/* Seconds until a step in memory and the transfers of another one are both over. */
static double bench_beside(bench_shard *here, const bench_disk *disk, size_t step) {
    const uint64_t begin = bench_now();
    memopt_i_thread thread;
    bench_mover m;

    m.disk = disk;
    m.step = step;
    thread.fn = bench_mover_serve;
    thread.argument = &m;
    if (memopt_i_thread_start(&thread)) exit(1);
    (void)bench_step(here);
    memopt_i_thread_join(&thread);
    return (double)(bench_now() - begin) * 1e-9;
}
#else
static double bench_beside(bench_shard *here, const bench_disk *disk, size_t step) {
    return bench_step(here) + bench_again(disk, step);
}
#endif

static void bench_tier(const bench *b, const char *name, int slow, int inside, const char *path) {
    static bench_shard here, there;
    const int threads = bench_workers.run_fn ? bench_workers.worker_count : 1;
    double values[BENCH_STEPS], limits[BENCH_STEPS], beside[BENCH_STEPS], value;
    char line[64];
    bench_disk disk;
    size_t i;

    bench_open(&here, 0, inside, NULL);
    bench_open(&there, slow, inside, path);
    memset(&bench_log, 0, sizeof bench_log);
    for (i = 0; i < 4; ++i) { /* memory is touched, both regions of the file are written, then requests are noted */
        bench_log.records = i < 2 ? 0 : (int)i - 1;
        (void)bench_step(&here);
        (void)bench_step(&there);
    }
    bench_log.records = 0;
    if (path) bench_open_plain(&disk, there.bytes.slow_transfers);
    for (i = 0; i < BENCH_STEPS; ++i) {
        const double memory = bench_rest(&here);
        double moving;

        values[i] = bench_step(&there);
        if (path) (void)bench_rest(&here);
        if (path) {
            beside[i] = bench_beside(&here, &disk, i % 2);
            (void)bench_rest(&here);
        }
        moving = path ? bench_again(&disk, i % 2) : bench_copy((double)(there.bytes.slow_read + there.bytes.slow_written));
        limits[i] = !path ? memory + moving : memory > moving ? memory : moving;
    }
    value = bench_median(values, BENCH_STEPS);
    bench_row(b, name, threads, BENCH_GROUPS * BENCH_COUNT, value, "s", bench_median(limits, BENCH_STEPS), 0);
    if (path) {
        snprintf(line, sizeof line, "%s, beside", name);
        bench_row(b, line, threads, BENCH_GROUPS * BENCH_COUNT, value, "s", bench_median(beside, BENCH_STEPS), 0);
        bench_close_plain(&disk);
    }
    bench_close(&there);
    bench_close(&here);
}

int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "offload");
    memopt_thread_pool *pool = NULL;
    int threads;

    for (threads = 1; bench_threads(threads, &pool, &bench_workers); ++threads) {
        bench_tier(&b, "step_host", MEMOPT_SHARD_SLOW_STATES, 0, NULL);
        bench_tier(&b, "step_disk", MEMOPT_SHARD_SLOW_STATES, 0, BENCH_FILE);
        bench_tier(&b, "step_both", MEMOPT_SHARD_SLOW_STATES | MEMOPT_SHARD_SLOW_WEIGHTS, 1, BENCH_FILE);
    }
    return 0;
}
