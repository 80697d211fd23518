/* process.h - what a process holds beside its arena, so that a plan is one of the whole process. Part of it can only be
   measured: code and data of the program and its libraries, the C library's heap, stacks. So it is measured, before
   anything is planned, and made to stay: every worker has touched its stack by then, and large blocks come as pages of
   the system, which go back to it; free() would keep them. */
#ifndef GPT_PROCESS_H
#define GPT_PROCESS_H
#ifdef MEMOPT_PTHREADS
#include <pthread.h>
#endif

#define PROCESS_SLACK ((size_t)512 << 10) /* which pages of code and stack come in differs a little from run to run */
#define STACK_TOUCHED ((size_t)64 << 10)  /* of each worker; operators take less */
#define LARGE_BLOCK   ((size_t)64 << 10)
#define HUGE_FROM     ((size_t)256 << 20) /* bytes of an arena: below, up to 2 MiB for the last huge page is too much */
#define SMALLEST_PAGE ((size_t)4 << 10)

/* A line of a file in /proc/self, in bytes; 0 where the system has no such line. */
static size_t process_bytes(const char *path, const char *field) {
    char line[256];
    size_t kib = 0;
    FILE *f = fopen(path, "r");

    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) {
            kib = (size_t)strtoull(line + strlen(field), NULL, 10);
            break;
        }
    fclose(f);
    return kib * 1024;
}

/* Now. The sum over all mappings is exact; the counter beside it lags behind on kernels that count by processor. */
static size_t process_now(void) {
    const size_t exact = process_bytes("/proc/self/smaps_rollup", "Rss:");

    return exact ? exact : process_bytes("/proc/self/status", "VmRSS:");
}

static size_t process_anonymous(void) { /* without what is a file's */
    const size_t exact = process_bytes("/proc/self/smaps_rollup", "Anonymous:");

    return exact ? exact : process_bytes("/proc/self/status", "RssAnon:");
}

static size_t process_highest(void) {
    const size_t told = process_bytes("/proc/self/status", "VmHWM:"), now = process_now();

    return told > now ? told : now;
}

/* ---- pages of the system: for the arena, and for large blocks of the tape's own ---- */
static memopt_status arena_pages(size_t capacity, memopt_source *out) {
    memopt_pages_desc desc = { 0 };

    desc.no_huge = capacity < HUGE_FROM;
    return memopt_source_pages(&desc, out);
}

/* So many bytes as pages; up: or more, else or fewer. */
static size_t in_pages(size_t bytes, int up) {
    memopt_source pages;

    if (arena_pages(bytes, &pages)) return bytes;
    return (up ? bytes + pages.granularity - 1 : bytes) & ~(pages.granularity - 1);
}

static int pages_for(size_t bytes, memopt_source *pages, size_t *whole) { /* 0: pages are not what to take here */
    if (bytes < LARGE_BLOCK || bytes > SIZE_MAX / 2 || arena_pages(0, pages)) return 0;
    *whole = (bytes + pages->granularity - 1) & ~(pages->granularity - 1);
    return 1;
}

static void *block_alloc(void *user, size_t bytes, size_t alignment) {
    memopt_source pages;
    memopt_host host;
    size_t whole;
    void *block;

    (void)user;
    if (!pages_for(bytes, &pages, &whole))
        return memopt_host_resolve(NULL, &host) ? NULL : host.allocator.alloc_fn(host.allocator.user, bytes, alignment);
    if (pages.reserve_fn(&pages, whole, &block)) return NULL;
    if (!pages.commit_fn(&pages, block, whole)) return block;
    pages.release_fn(&pages, block, whole);
    return NULL;
}

static void block_free(void *user, void *block, size_t bytes, size_t alignment) {
    memopt_source pages;
    memopt_host host;
    size_t whole;

    (void)user;
    if (pages_for(bytes, &pages, &whole)) pages.release_fn(&pages, block, whole);
    else if (!memopt_host_resolve(NULL, &host)) host.allocator.free_fn(host.allocator.user, block, bytes, alignment);
}

static memopt_host process_host(void) {
    memopt_host host = { 0 };

    host.allocator.alloc_fn = block_alloc;
    host.allocator.free_fn = block_free;
    return host;
}

/* ---- stacks ---- */
static void touch_stack(void) {
    volatile unsigned char stack[STACK_TOUCHED];
    size_t i;

    for (i = 0; i < sizeof stack; i += 1024) stack[i] = 0;
}

#ifdef MEMOPT_PTHREADS
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t complete;
    size_t missing;
} meeting;

static void touch_and_meet(void *task, size_t chunk, int worker) { /* nobody leaves, and takes two, before all came */
    meeting *m = (meeting *)task;

    (void)chunk;
    (void)worker;
    touch_stack();
    pthread_mutex_lock(&m->lock);
    if (!--m->missing) pthread_cond_broadcast(&m->complete);
    while (m->missing) pthread_cond_wait(&m->complete, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static void touch_stacks(const memopt_threads *threads) {
    meeting m;

    if (!threads || pthread_mutex_init(&m.lock, NULL)) {
        touch_stack();
        return;
    }
    if (!pthread_cond_init(&m.complete, NULL)) {
        m.missing = (size_t)threads->worker_count;
        threads->run_fn(threads->user, m.missing, touch_and_meet, &m);
        pthread_cond_destroy(&m.complete);
    }
    pthread_mutex_destroy(&m.lock);
}
#else
static void touch_stacks(const memopt_threads *threads) {
    (void)threads;
    touch_stack();
}
#endif
#endif
