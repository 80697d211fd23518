/* process.h - what a process holds beside its arena, so that a plan is one of the whole process.

   Part of it can only be measured: code and data of the program and its libraries, the C library's heap, stacks. So it
   is measured before anything is planned, and made to stay: every worker has touched its stack by then.

       touch_stacks(threads);
       beside = process_now() + PROCESS_SLACK;    (0 where the system does not tell it: then only the slack) */
#ifndef PARTS_PROCESS_H
#define PARTS_PROCESS_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef MEMOPT_PTHREADS
#include <pthread.h>
#endif
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

#define PROCESS_SLACK ((size_t)512 << 10) /* which pages of code and stack come in differs a little from run to run */
#define STACK_TOUCHED ((size_t)64 << 10)  /* of each worker; operators take less */

/* A line of a file in /proc/self, in bytes; 0 where the system has no such line. */
static inline size_t process_bytes(const char *path, const char *field) {
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
static inline size_t process_now(void) {
    const size_t exact = process_bytes("/proc/self/smaps_rollup", "Rss:");

    return exact ? exact : process_bytes("/proc/self/status", "VmRSS:");
}

static inline size_t process_anonymous(void) { /* without what is a file's */
    const size_t exact = process_bytes("/proc/self/smaps_rollup", "Anonymous:");

    return exact ? exact : process_bytes("/proc/self/status", "RssAnon:");
}

static inline size_t process_highest(void) {
    const size_t told = process_bytes("/proc/self/status", "VmHWM:"), now = process_now();

    return told > now ? told : now;
}

/* ---- stacks ---- */
static inline void touch_stack(void) {
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

/* Nobody leaves, and takes two, before all came. */
static inline void touch_and_meet(void *task, size_t chunk, int worker) {
    meeting *m = (meeting *)task;

    (void)chunk;
    (void)worker;
    touch_stack();
    pthread_mutex_lock(&m->lock);
    if (!--m->missing) pthread_cond_broadcast(&m->complete);
    while (m->missing) pthread_cond_wait(&m->complete, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static inline void touch_stacks(const memopt_threads *threads) {
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
static inline void touch_stacks(const memopt_threads *threads) {
    (void)threads;
    touch_stack();
}
#endif

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
