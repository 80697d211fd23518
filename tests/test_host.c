/* test_host.c - the doors outside: tables, the C library's allocator, files, clock, workers. */
#if !defined(TEST_COMBINED) && (defined(__unix__) || defined(__APPLE__)) && !defined(__cplusplus)
/* A system that fails on demand: these stand between the header and the C library, in this program only.
   Each is given a number of calls to spoil; a short transfer moves one byte. */
#define HOST_FAULTY 1
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
static int host_interrupt, host_short, host_nothing; /* EINTR; one byte; zero bytes */
static int host_open(const char *path, int flags, ...) {
    if (host_interrupt > 0) { --host_interrupt; errno = EINTR; return -1; }
    return open(path, flags, 0666);
}
static ssize_t host_pread(int file, void *bytes, size_t count, off_t offset) {
    if (host_interrupt > 0) { --host_interrupt; errno = EINTR; return -1; }
    if (host_short > 0) { --host_short; count = 1; }
    return lseek(file, offset, SEEK_SET) == offset ? read(file, bytes, count) : -1;
}
static ssize_t host_pwrite(int file, const void *bytes, size_t count, off_t offset) {
    if (host_interrupt > 0) { --host_interrupt; errno = EINTR; return -1; }
    if (host_nothing > 0) { --host_nothing; return 0; }
    if (host_short > 0) { --host_short; count = 1; }
    return lseek(file, offset, SEEK_SET) == offset ? write(file, bytes, count) : -1;
}
#define open host_open
#define pread host_pread
#define pwrite host_pwrite
#if defined(MEMOPT_PTHREADS)
#include <pthread.h>
static int host_refuse; /* 1: the first creation of a thread, mutex or condition from now on, 2: the second, ... */
static int host_refuses(void) { return host_refuse > 0 && --host_refuse == 0; }
static int host_thread_create(pthread_t *id, const pthread_attr_t *a, void *(*fn)(void *), void *argument) {
    return host_refuses() ? EAGAIN : pthread_create(id, a, fn, argument);
}
static int host_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) { return host_refuses() ? EAGAIN : pthread_mutex_init(m, a); }
static int host_cond_init(pthread_cond_t *c, const pthread_condattr_t *a) { return host_refuses() ? EAGAIN : pthread_cond_init(c, a); }
#define pthread_create host_thread_create
#define pthread_mutex_init host_mutex_init
#define pthread_cond_init host_cond_init
#endif
#endif
#include "test.h"

static memopt_host host_zero(void) { memopt_host h; memset(&h, 0, sizeof h); return h; }
static int host_same(const memopt_host *a, const memopt_host *b) { return memcmp(a, b, sizeof *a) == 0; }

/* -- the tables -- */
static void host_zero_is_the_library(void) {
    memopt_host zero = host_zero(), h, again;
    memset(&h, 0xA5, sizeof h);
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    CHECK(h.allocator.alloc_fn && h.allocator.free_fn && h.threads.run_fn && h.threads.worker_count == 1 && h.clock.now_fn);
    CHECK(h.files.open_fn && h.files.close_fn && h.files.read_fn && h.files.write_fn && h.files.size_fn
          && h.files.resize_fn && h.files.sync_fn && h.files.rename_fn && h.files.remove_fn);
    CHECK(h.threads.simd_level == 0);
    CHECK(memopt_host_resolve(&h, &again) == MEMOPT_OK && host_same(&h, &again)); /* resolved is resolved */
    CHECK(memopt_host_resolve(&zero, &again) == MEMOPT_OK && again.files.read_fn == h.files.read_fn);
    CHECK(memopt_host_resolve(&zero, &zero) == MEMOPT_OK && zero.clock.now_fn == h.clock.now_fn); /* in place */
    CHECK(memopt_host_resolve(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
}
static void host_refused(const memopt_host *bad, int line) {
    memopt_host out, before;
    memset(&out, 0xA5, sizeof out);
    before = out;
    CHECK_AT(memopt_host_resolve(bad, &out) == MEMOPT_ERR_ARGUMENT, line);
    CHECK_AT(host_same(&out, &before), line);
}
static void host_run_nothing(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    (void)user; (void)chunk_count; (void)fn; (void)task;
}
static void host_half_tables(void) {
    test_faults f; memopt_host full, h, out; int i;
    memset(&f, 0, sizeof f);
    full = test_host(&f);
    h = full; h.allocator.alloc_fn = NULL; host_refused(&h, __LINE__);
    h = full; h.allocator.free_fn = NULL;  host_refused(&h, __LINE__);
    for (i = 0; i < 9; ++i) {
        h = full;
        if (i == 0) h.files.open_fn = NULL;
        if (i == 1) h.files.close_fn = NULL;
        if (i == 2) h.files.read_fn = NULL;
        if (i == 3) h.files.write_fn = NULL;
        if (i == 4) h.files.size_fn = NULL;
        if (i == 5) h.files.resize_fn = NULL;
        if (i == 6) h.files.sync_fn = NULL;
        if (i == 7) h.files.rename_fn = NULL;
        if (i == 8) h.files.remove_fn = NULL;
        host_refused(&h, 1000 + i);
        h = host_zero(); /* and one alone */
        if (i == 0) h.files.open_fn = full.files.open_fn;
        if (i == 1) h.files.close_fn = full.files.close_fn;
        if (i == 2) h.files.read_fn = full.files.read_fn;
        if (i == 3) h.files.write_fn = full.files.write_fn;
        if (i == 4) h.files.size_fn = full.files.size_fn;
        if (i == 5) h.files.resize_fn = full.files.resize_fn;
        if (i == 6) h.files.sync_fn = full.files.sync_fn;
        if (i == 7) h.files.rename_fn = full.files.rename_fn;
        if (i == 8) h.files.remove_fn = full.files.remove_fn;
        host_refused(&h, 2000 + i);
    }
    h = host_zero(); h.threads.run_fn = host_run_nothing; host_refused(&h, __LINE__);
    h = host_zero(); h.threads.worker_count = 1;  host_refused(&h, __LINE__);
    h = host_zero(); h.threads.worker_count = -1; host_refused(&h, __LINE__);
    h.threads.run_fn = host_run_nothing;          host_refused(&h, __LINE__);
    h = host_zero(); h.threads.simd_level = -1;   host_refused(&h, __LINE__);

    h = full; h.threads.run_fn = host_run_nothing; h.threads.worker_count = 3; h.threads.simd_level = MEMOPT_SIMD_SCALAR;
    CHECK(memopt_host_resolve(&h, &out) == MEMOPT_OK && host_same(&h, &out)); /* a full host stays what it is */
    h = host_zero(); h.threads.simd_level = 2;
    CHECK(memopt_host_resolve(&h, &out) == MEMOPT_OK && out.threads.simd_level == 2 && out.threads.worker_count == 1);
}

/* -- the allocator -- */
static void host_allocator(void) {
    static const size_t sizes[] = { 0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097 };
    memopt_host h; size_t align, i, k; unsigned char *p[sizeof sizes / sizeof *sizes];
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    for (align = 1; align <= 4096; align *= 2) {
        for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
            p[i] = (unsigned char *)memopt_i_alloc(&h, sizes[i], align);
            CHECK(p[i] != NULL);
            if (!p[i]) return;
            CHECK_AT(((uintptr_t)p[i] & (align - 1)) == 0, align * 100 + i);
            memset(p[i], (int)(i + 1), sizes[i]);
        }
        for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
            for (k = 0; k < sizes[i]; ++k) if (p[i][k] != i + 1) break;
            CHECK_AT(k == sizes[i], align * 100 + i);
            memopt_i_free(&h, p[i], sizes[i], align);
        }
    }
    memopt_i_free(&h, NULL, 64, 64); /* nothing happens */
}
static void host_allocator_hostile(void) {
    memopt_host h; size_t align, d;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    for (align = 1; align <= 4096; align *= 2) {
        CHECK_AT(memopt_i_alloc(&h, SIZE_MAX, align) == NULL, align);
        CHECK_AT(memopt_i_alloc(&h, SIZE_MAX - align, align) == NULL, align);
        CHECK_AT(memopt_i_alloc(&h, SIZE_MAX - align + 1, align) == NULL, align);
        CHECK_AT(memopt_i_alloc(&h, SIZE_MAX / 2, align) == NULL, align);
        for (d = 0; d < 32; ++d) CHECK_AT(memopt_i_alloc(&h, SIZE_MAX - align - d, align) == NULL, align * 100 + d);
    }
    CHECK(memopt_i_alloc(&h, 1, SIZE_MAX / 2 + 1) == NULL);
}

/* -- files -- */
static void host_path(char path[600], const char *name) { /* of this process alone: tests run side by side */
    const char *folder = getenv("TMPDIR");
#if defined(_WIN32)
    folder = getenv("TEMP");
    snprintf(path, 600, "%s/memopt-%lu-%s", folder ? folder : ".", (unsigned long)GetCurrentProcessId(), name);
#else
    snprintf(path, 600, "%s/memopt-%ld-%s", folder ? folder : "/tmp", (long)getpid(), name);
#endif
}
static void host_files_read_write(void) {
    memopt_host h; void *file = NULL; char path[600]; unsigned char bytes[64], back[64]; size_t done = 99, i; uint64_t size = 99;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    host_path(path, "a");
    for (i = 0; i < sizeof bytes; ++i) bytes[i] = (unsigned char)(i * 7 + 1);
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_READ, &file) == MEMOPT_ERR_IO && file == NULL); /* not there */
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK && file != NULL);
    if (!file) return;
    CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 0);
    CHECK(h.files.read_fn(h.files.user, file, 0, back, 10, &done) == MEMOPT_OK && done == 0);
    CHECK(h.files.write_fn(h.files.user, file, 0, bytes, 64) == MEMOPT_OK);
    CHECK(h.files.write_fn(h.files.user, file, 10, bytes, 5) == MEMOPT_OK); /* into the middle */
    CHECK(h.files.write_fn(h.files.user, file, 70, bytes, 3) == MEMOPT_OK); /* behind the end: zeros between */
    CHECK(h.files.write_fn(h.files.user, file, 5, bytes, 0) == MEMOPT_OK);
    CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 73);
    CHECK(h.files.read_fn(h.files.user, file, 8, back, 10, &done) == MEMOPT_OK && done == 10);
    CHECK(back[0] == bytes[8] && back[1] == bytes[9] && memcmp(back + 2, bytes, 5) == 0 && back[7] == bytes[15]);
    memset(back, 0xA5, sizeof back);
    CHECK(h.files.read_fn(h.files.user, file, 60, back, 20, &done) == MEMOPT_OK && done == 13); /* to the end */
    CHECK(back[3] == bytes[63] && back[4] == 0 && back[9] == 0 && back[10] == bytes[0] && back[12] == bytes[2] && back[13] == 0xA5);
    CHECK(h.files.read_fn(h.files.user, file, 73, back, 1, &done) == MEMOPT_OK && done == 0);
    CHECK(h.files.read_fn(h.files.user, file, 1000, back, 1, &done) == MEMOPT_OK && done == 0);
    CHECK(h.files.read_fn(h.files.user, file, 3, back, 0, &done) == MEMOPT_OK && done == 0);
    CHECK(h.files.resize_fn(h.files.user, file, 12) == MEMOPT_OK);
    CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 12);
    CHECK(h.files.resize_fn(h.files.user, file, 20) == MEMOPT_OK);
    CHECK(h.files.read_fn(h.files.user, file, 0, back, 30, &done) == MEMOPT_OK && done == 20);
    CHECK(memcmp(back, bytes, 10) == 0 && back[11] == bytes[1] && back[12] == 0 && back[19] == 0);
    CHECK(h.files.sync_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK); /* kept as it is */
    CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 20);
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_READ, &file) == MEMOPT_OK);
    CHECK(h.files.read_fn(h.files.user, file, 1, back, 2, &done) == MEMOPT_OK && done == 2 && back[0] == bytes[1]);
    CHECK(h.files.write_fn(h.files.user, file, 0, bytes, 1) == MEMOPT_ERR_IO); /* opened for reading */
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.remove_fn(h.files.user, path) == MEMOPT_OK);
    CHECK(h.files.remove_fn(h.files.user, path) == MEMOPT_ERR_IO);
}
static void host_files_far(void) { /* offsets that no file has, and one far beyond 32 bits */
    static const uint64_t distant[] = { (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 1, UINT64_MAX };
    memopt_host h; void *file = NULL; char path[600], byte = 'x'; size_t done = 99, i; uint64_t size = 0;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    host_path(path, "far");
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK);
    if (!file) return;
    for (i = 0; i < 4; ++i) {
        CHECK_AT(h.files.write_fn(h.files.user, file, distant[i], &byte, 1) == MEMOPT_ERR_OVERFLOW, i);
        CHECK_AT(h.files.read_fn(h.files.user, file, distant[i], &byte, 1, &done) == MEMOPT_ERR_OVERFLOW && done == 99, i);
        CHECK_AT(i == 0 || h.files.resize_fn(h.files.user, file, distant[i]) == MEMOPT_ERR_OVERFLOW, i);
    }
#if defined(MEMOPT_I_POSIX)
    if (sizeof(size_t) > 4) { /* the last byte that has a position can be asked for, whatever the system says of it */
        CHECK(h.files.read_fn(h.files.user, file, (uint64_t)INT64_MAX - 1, &byte, 1, &done) != MEMOPT_ERR_OVERFLOW);
        CHECK(h.files.read_fn(h.files.user, file, (uint64_t)INT64_MAX - 1, &byte, 2, &done) == MEMOPT_ERR_OVERFLOW);
    }
#endif
    CHECK(h.files.resize_fn(h.files.user, file, (uint64_t)INT64_MAX) != MEMOPT_OK); /* a position, but no disk has it */
    CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 0);
    if (sizeof(size_t) > 4 && h.files.write_fn(h.files.user, file, UINT64_C(5) << 30, &byte, 1) == MEMOPT_OK) { /* a hole of 5 GiB */
        CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == (UINT64_C(5) << 30) + 1);
        byte = 0;
        CHECK(h.files.read_fn(h.files.user, file, UINT64_C(5) << 30, &byte, 1, &done) == MEMOPT_OK && done == 1 && byte == 'x');
        CHECK(h.files.read_fn(h.files.user, file, UINT64_C(1) << 30, &byte, 1, &done) == MEMOPT_OK && done == 1 && byte == 0);
    }
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.remove_fn(h.files.user, path) == MEMOPT_OK);
}
static void host_files_rename(void) {
    memopt_host h; void *file = NULL; char a[600], b[600], byte = 'a'; size_t done = 0;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    host_path(a, "from"); host_path(b, "to");
    CHECK(h.files.rename_fn(h.files.user, a, b) == MEMOPT_ERR_IO); /* nothing there */
    CHECK(h.files.open_fn(h.files.user, b, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK);
    CHECK(h.files.write_fn(h.files.user, file, 0, "bbbb", 4) == MEMOPT_OK);
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.open_fn(h.files.user, a, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK);
    CHECK(h.files.write_fn(h.files.user, file, 0, &byte, 1) == MEMOPT_OK);
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.rename_fn(h.files.user, a, b) == MEMOPT_OK); /* over the other */
    CHECK(h.files.open_fn(h.files.user, a, MEMOPT_OPEN_READ, &file) == MEMOPT_ERR_IO);
    CHECK(h.files.open_fn(h.files.user, b, MEMOPT_OPEN_READ, &file) == MEMOPT_OK);
    byte = 0;
    CHECK(h.files.read_fn(h.files.user, file, 0, &byte, 1, &done) == MEMOPT_OK && done == 1 && byte == 'a');
    CHECK(h.files.read_fn(h.files.user, file, 1, &byte, 1, &done) == MEMOPT_OK && done == 0);
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.remove_fn(h.files.user, b) == MEMOPT_OK);
    CHECK(h.files.open_fn(h.files.user, "no/such/folder/file", MEMOPT_OPEN_WRITE, &file) == MEMOPT_ERR_IO);
}
static void host_files_failing(void) { /* a file that is none, and a system that is interrupted and gives little */
#if !defined(_WIN32)
    memopt_host h; void *none = (void *)(intptr_t)1000000; char bytes[16]; size_t done = 99; uint64_t size = 99;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    CHECK(h.files.read_fn(h.files.user, none, 0, bytes, 4, &done) == MEMOPT_ERR_IO && done == 99);
    CHECK(h.files.write_fn(h.files.user, none, 0, "1234", 4) == MEMOPT_ERR_IO);
    CHECK(h.files.size_fn(h.files.user, none, &size) == MEMOPT_ERR_IO && size == 99);
    CHECK(h.files.resize_fn(h.files.user, none, 4) == MEMOPT_ERR_IO);
    CHECK(h.files.sync_fn(h.files.user, none) == MEMOPT_ERR_IO);
    CHECK(h.files.close_fn(h.files.user, none) == MEMOPT_ERR_IO);
#endif
#if defined(HOST_FAULTY)
    { void *file = NULL; char path[600];
      host_path(path, "faulty");
      host_interrupt = 2;
      CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK && host_interrupt == 0);
      host_interrupt = 1; host_short = 3;
      CHECK(h.files.write_fn(h.files.user, file, 100, "0123456789", 10) == MEMOPT_OK && host_interrupt + host_short == 0);
      host_interrupt = 1; host_short = 3;
      CHECK(h.files.read_fn(h.files.user, file, 100, bytes, 16, &done) == MEMOPT_OK && done == 10 && host_interrupt + host_short == 0);
      CHECK(memcmp(bytes, "0123456789", 10) == 0);
      host_nothing = 1; /* a disk that takes no byte must not be asked for ever */
      CHECK(h.files.write_fn(h.files.user, file, 0, "x", 1) == MEMOPT_ERR_IO);
      CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK && h.files.remove_fn(h.files.user, path) == MEMOPT_OK); }
#endif
}

/* -- the clock -- */
static void host_clock(void) {
    memopt_host h; uint64_t first = 0, before, now = 0; int i;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    CHECK(h.clock.now_fn(h.clock.user, &first) == MEMOPT_OK);
    for (before = first, i = 0; i < 10000; ++i, before = now) {
        CHECK_AT(h.clock.now_fn(h.clock.user, &now) == MEMOPT_OK && now >= before, i);
    }
    CHECK(now > first && now - first < UINT64_C(20000000000)); /* it goes, and in nanoseconds */
#if defined(MEMOPT_I_STEADY)
    for (i = 0; i < 1000; ++i) { /* it lies between two looks at the system's own */
        memopt_i_time a, b;
        CHECK(clock_gettime(MEMOPT_I_STEADY, &a) == 0);
        CHECK(h.clock.now_fn(h.clock.user, &now) == MEMOPT_OK);
        CHECK(clock_gettime(MEMOPT_I_STEADY, &b) == 0);
        CHECK_AT(now / 1000000000 >= (uint64_t)a.tv_sec && now / 1000000000 <= (uint64_t)b.tv_sec, i);
        CHECK_AT(now / 1000000000 > (uint64_t)a.tv_sec || now % 1000000000 >= (uint64_t)a.tv_nsec, i);
        CHECK_AT(now / 1000000000 < (uint64_t)b.tv_sec || now % 1000000000 <= (uint64_t)b.tv_nsec, i);
    }
#endif
#if !defined(_WIN32)
    { struct timeval pause; /* a pause of 20 ms takes 20 ms, or more where others run too */
      pause.tv_sec = 0; pause.tv_usec = 20000;
      CHECK(h.clock.now_fn(h.clock.user, &before) == MEMOPT_OK);
      (void)select(0, NULL, NULL, NULL, &pause);
      CHECK(h.clock.now_fn(h.clock.user, &now) == MEMOPT_OK);
      CHECK(now - before >= 15000000 && now - before < UINT64_C(20000000000)); }
#endif
}

/* -- workers -- */
enum { HOST_CHUNKS = 1000, HOST_WORKERS = 64 };
typedef struct host_run {
    const memopt_threads *threads;
    size_t inner;              /* chunks of a run inside each chunk */
    int bad_worker, two_at_once, bad_inner; /* written by whoever sees it */
    int outer_worker;          /* inside: the worker that asked */
    int busy[HOST_WORKERS];    /* of one worker, written by it alone: no lock, the sanitizer would see two */
    unsigned done[HOST_CHUNKS];
} host_run;
static void host_inner_chunk(void *task, size_t chunk, int worker) {
    host_run *r = (host_run *)task;
    if (worker != r->outer_worker) r->bad_inner = 1;
    ++r->done[chunk];
}
static void host_chunk(void *task, size_t chunk, int worker) {
    host_run *r = (host_run *)task; size_t i;
    if (worker < 0 || worker >= r->threads->worker_count || worker >= HOST_WORKERS) { r->bad_worker = 1; return; }
    if (r->busy[worker]++) r->two_at_once = 1;
    if (r->inner) { /* a run inside a run */
        host_run inside;
        memset(&inside, 0, sizeof inside);
        inside.outer_worker = worker;
        r->threads->run_fn(r->threads->user, r->inner, host_inner_chunk, &inside);
        for (i = 0; i < HOST_CHUNKS; ++i) if (inside.done[i] != (i < r->inner)) inside.bad_inner = 1;
        if (inside.bad_inner) r->bad_inner = 1;
    }
    ++r->done[chunk];
    --r->busy[worker];
}
static int host_runs(const memopt_threads *t, size_t chunks, size_t inner) { /* 1: all as it should be */
    host_run *r = (host_run *)malloc(sizeof *r); size_t i; int good;
    if (!r) return 0;
    memset(r, 0, sizeof *r);
    r->threads = t; r->inner = inner;
    t->run_fn(t->user, chunks, host_chunk, r);
    good = !r->bad_worker && !r->two_at_once && !r->bad_inner;
    for (i = 0; i < HOST_CHUNKS; ++i) if (r->done[i] != (i < chunks)) good = 0;
    free(r);
    return good;
}
static void host_run_all(const memopt_threads *t) {
    static const size_t chunks[] = { 0, 1, 2, 3, 7, 64, HOST_CHUNKS };
    size_t i; int again;
    for (i = 0; i < sizeof chunks / sizeof *chunks; ++i)
        for (again = 0; again < 5; ++again) {
            CHECK_AT(host_runs(t, chunks[i], 0), chunks[i]);
            if (chunks[i] < 100) CHECK_AT(host_runs(t, chunks[i], 9), chunks[i]);
        }
}
#if defined(MEMOPT_PTHREADS) || defined(_OPENMP)
/* Two chunks that wait for each other: they come to an end only when two workers run at the same time. */
typedef struct host_meeting { void *lock; int here; } host_meeting;
#if defined(_OPENMP)
static int host_arrive(host_meeting *m, int add) {
    int here;
#  pragma omp atomic capture
    { m->here += add; here = m->here; }
    return here;
}
#elif defined(MEMOPT_I_POOL)
static int host_arrive(host_meeting *m, int add) {
    int here;
    memopt_i_mutex_lock((memopt_i_mutex *)m->lock);
    here = m->here += add;
    memopt_i_mutex_unlock((memopt_i_mutex *)m->lock);
    return here;
}
#endif
#if defined(_OPENMP) || defined(MEMOPT_I_POOL)
static void host_meet(void *task, size_t chunk, int worker) {
    host_meeting *m = (host_meeting *)task; uint64_t begin = 0, now = 0;
    (void)chunk; (void)worker;
    (void)memopt_i_system_now(NULL, &begin);
    host_arrive(m, 1);
    do (void)memopt_i_system_now(NULL, &now);
    while (host_arrive(m, 0) < 2 && now - begin < UINT64_C(20000000000));
}
static int host_together(const memopt_threads *t) {
    host_meeting m; uint64_t begin = 0, end = 0;
#  if defined(MEMOPT_I_POOL)
    memopt_i_mutex lock;
    (void)memopt_i_mutex_open(&lock);
#  else
    int lock;
#  endif
    memset(&m, 0, sizeof m);
    m.lock = &lock;
    (void)memopt_i_system_now(NULL, &begin);
    t->run_fn(t->user, 2, host_meet, &m);
    (void)memopt_i_system_now(NULL, &end);
#  if defined(MEMOPT_I_POOL)
    memopt_i_mutex_close(&lock);
#  endif
    return end - begin < UINT64_C(15000000000);
}
#endif
#endif
static void host_workers_counted(void) { /* the calling thread is one */
    memopt_threads t; test_worker_set worker_set;
    memset(&t, 0, sizeof t);
    CHECK(memopt_i_worker_count(NULL) == 1 && memopt_i_worker_count(&t) == 1);
    t = test_workers(&worker_set, 7, 0);
    CHECK(memopt_i_worker_count(&t) == 7);
}
static void host_count_chunk(void *task, size_t chunk, int worker) {
    (void)worker;
    *(size_t *)task += chunk + 1;
}
static void host_run_one(void) { /* one chunk is not worth waking anybody; without workers the calling thread does all */
    test_worker_set worker_set; memopt_threads t, none; size_t sum, n;
    memset(&none, 0, sizeof none);
    for (n = 0; n < 5; ++n) {
        t = test_workers(&worker_set, 3, 0);
        sum = 0; memopt_i_parallel_for(&t, n, host_count_chunk, &sum);
        CHECK_AT(sum == n * (n + 1) / 2 && worker_set.runs == (n > 1), n);
        sum = 0; memopt_i_parallel_for(&none, n, host_count_chunk, &sum);
        CHECK_AT(sum == n * (n + 1) / 2, n);
        sum = 0; memopt_i_parallel_for(NULL, n, host_count_chunk, &sum);
        CHECK_AT(sum == n * (n + 1) / 2, n);
    }
}
static void host_calling_thread(void) {
    memopt_host h;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    host_run_all(&h.threads);
}
static void host_openmp(void) {
    memopt_threads t, before;
    memset(&t, 0xA5, sizeof t);
    before = t;
    CHECK(memopt_threads_openmp(-1, &t) == MEMOPT_ERR_ARGUMENT && memcmp(&t, &before, sizeof t) == 0);
    CHECK(memopt_threads_openmp(2, NULL) == MEMOPT_ERR_ARGUMENT);
#if defined(_OPENMP)
    { int workers;
      for (workers = 1; workers <= 4; ++workers) {
          CHECK(memopt_threads_openmp(workers, &t) == MEMOPT_OK && t.worker_count == workers && t.run_fn && t.simd_level == 0);
          host_run_all(&t);
          if (workers > 1) CHECK(host_together(&t));
      }
      CHECK(memopt_threads_openmp(0, &t) == MEMOPT_OK && t.worker_count == omp_get_max_threads());
      host_run_all(&t); }
#else
    CHECK(memopt_threads_openmp(2, &t) == MEMOPT_ERR_UNSUPPORTED && memcmp(&t, &before, sizeof t) == 0);
#endif
}
static void host_pool_arguments(void) {
    memopt_thread_pool *pool = (memopt_thread_pool *)&pool, *before = pool;
    memopt_host half = host_zero(); memopt_threads t;
    half.allocator.alloc_fn = test_alloc;
    CHECK(memopt_thread_pool_create(NULL, 0, &pool) == MEMOPT_ERR_ARGUMENT && memopt_thread_pool_create(NULL, -1, &pool) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_thread_pool_create(NULL, 1025, &pool) == MEMOPT_ERR_ARGUMENT && memopt_thread_pool_create(NULL, 2, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_thread_pool_create(&half, 2, &pool) == MEMOPT_ERR_ARGUMENT && pool == before);
    memopt_thread_pool_destroy(NULL);
    t = memopt_thread_pool_threads(NULL);
    CHECK(!t.run_fn && !t.user && !t.worker_count && !t.simd_level);
#if !defined(MEMOPT_I_POOL)
    CHECK(memopt_thread_pool_create(NULL, 2, &pool) == MEMOPT_ERR_UNSUPPORTED && pool == before);
#endif
}
#if defined(MEMOPT_I_POOL)
static void host_pool(void) {
    int workers;
    for (workers = 1; workers <= 5; ++workers) {
        memopt_thread_pool *pool = NULL; memopt_threads t;
        CHECK(memopt_thread_pool_create(NULL, workers, &pool) == MEMOPT_OK && pool);
        if (!pool) return;
        t = memopt_thread_pool_threads(pool);
        CHECK(t.worker_count == workers && t.run_fn && t.simd_level == 0);
        host_run_all(&t);
        if (workers > 1) CHECK(host_together(&t));
        memopt_thread_pool_destroy(pool);
    }
    { memopt_thread_pool *pool = NULL; memopt_threads t; /* more workers than chunks, and the most there can be */
      CHECK(memopt_thread_pool_create(NULL, HOST_WORKERS, &pool) == MEMOPT_OK);
      if (!pool) return;
      t = memopt_thread_pool_threads(pool);
      CHECK(host_runs(&t, 3, 2) && host_runs(&t, 500, 0));
      memopt_thread_pool_destroy(pool); }
}
/* A thread of the test's own. */
typedef struct host_thread {
    void (*fn)(void *argument); void *argument;
#if defined(MEMOPT_I_WINDOWS)
    HANDLE id;
#else
    pthread_t id;
#endif
} host_thread;
#if defined(MEMOPT_I_WINDOWS)
static unsigned __stdcall host_thread_main(void *thread) { ((host_thread *)thread)->fn(((host_thread *)thread)->argument); return 0; }
#else
static void *host_thread_main(void *thread) { ((host_thread *)thread)->fn(((host_thread *)thread)->argument); return NULL; }
#endif
static int host_thread_begin(host_thread *thread, void (*fn)(void *), void *argument) { /* 0: it runs */
    thread->fn = fn; thread->argument = argument;
#if defined(MEMOPT_I_WINDOWS)
    thread->id = (HANDLE)_beginthreadex(NULL, 0, host_thread_main, thread, 0, NULL);
    return thread->id == NULL;
#else
    return pthread_create(&thread->id, NULL, host_thread_main, thread);
#endif
}
static void host_thread_end(host_thread *thread) {
#if defined(MEMOPT_I_WINDOWS)
    (void)WaitForSingleObject(thread->id, INFINITE); (void)CloseHandle(thread->id);
#else
    pthread_join(thread->id, NULL);
#endif
}
/* Several threads with one pool: their runs take turns, and a worker still does one chunk at a time. */
typedef struct host_caller { memopt_threads threads; int bad; } host_caller;
static void host_call(void *argument) {
    host_caller *c = (host_caller *)argument; size_t i;
    for (i = 0; i < 60; ++i) if (!host_runs(&c->threads, i % 9, i % 4)) c->bad = 1;
}
static void host_pool_shared(void) {
    memopt_thread_pool *pool = NULL; host_caller callers[4]; host_thread ids[4]; int i, started = 0;
    CHECK(memopt_thread_pool_create(NULL, 3, &pool) == MEMOPT_OK);
    if (!pool) return;
    for (i = 0; i < 4; ++i) { callers[i].threads = memopt_thread_pool_threads(pool); callers[i].bad = 0; }
    for (; started < 3; ++started) if (host_thread_begin(&ids[started], host_call, &callers[started])) break;
    CHECK(started == 3);
    host_call(&callers[3]);
    for (i = 0; i < started; ++i) host_thread_end(&ids[i]);
    for (i = 0; i < 4; ++i) CHECK(!callers[i].bad);
    memopt_thread_pool_destroy(pool);
}
/* While one thread's run is on, another's must wait: no chunk of the second is done before the last of the first. */
typedef struct host_turn { memopt_i_mutex lock; int active, mixed; const memopt_threads *threads; } host_turn;
typedef struct host_mine { host_turn *turn; int id; } host_mine;
static void host_turn_chunk(void *task, size_t chunk, int worker) {
    host_mine *m = (host_mine *)task;
    (void)worker;
    memopt_i_mutex_lock(&m->turn->lock);
    if (m->turn->active && m->turn->active != m->id) m->turn->mixed = 1;
    m->turn->active = chunk == 19 ? 0 : m->id; /* chunks are taken in order; the last one that begins frees the turn */
    memopt_i_mutex_unlock(&m->turn->lock);
}
static void host_turns_call(void *argument) {
    host_mine *m = (host_mine *)argument; int i;
    for (i = 0; i < 50; ++i) m->turn->threads->run_fn(m->turn->threads->user, 20, host_turn_chunk, m);
}
static void host_pool_turns(void) { /* one worker, so that chunks also end in order */
    memopt_thread_pool *pool = NULL; host_turn turn; host_mine mine[2]; host_thread id; memopt_threads t; int refused;
    CHECK(memopt_thread_pool_create(NULL, 1, &pool) == MEMOPT_OK);
    if (!pool) return;
    t = memopt_thread_pool_threads(pool);
    (void)memopt_i_mutex_open(&turn.lock);
    turn.active = turn.mixed = 0; turn.threads = &t;
    mine[0].turn = mine[1].turn = &turn; mine[0].id = 1; mine[1].id = 2;
    refused = host_thread_begin(&id, host_turns_call, &mine[0]);
    CHECK(!refused);
    host_turns_call(&mine[1]);
    if (!refused) host_thread_end(&id);
    CHECK(!turn.mixed);
    memopt_i_mutex_close(&turn.lock);
    memopt_thread_pool_destroy(pool);
}
static void host_pool_memory(void) {
    test_faults f; size_t n;
    for (n = 1; n < 100; ++n) {
        memopt_thread_pool *pool = NULL; memopt_host h; memopt_status s; memopt_threads t;
        memset(&f, 0, sizeof f);
        f.fail_on = n;
        h = test_host(&f);
        s = memopt_thread_pool_create(&h, 3, &pool);
        CHECK_AT(s == MEMOPT_OK || (s == MEMOPT_ERR_MEMORY && !pool), n);
        if (!s) { t = memopt_thread_pool_threads(pool); CHECK_AT(host_runs(&t, 50, 0), n); }
        memopt_thread_pool_destroy(pool);
        CHECK_AT(f.live_blocks == 0 && f.bad_frees == 0, n);
        if (f.calls < n) { CHECK(s == MEMOPT_OK); return; }
    }
    CHECK(n < 100);
}
#if defined(HOST_FAULTY)
static void host_pool_refused(void) { /* the system refuses the nth thread, mutex or condition */
    test_faults f; int n;
    for (n = 1; n < 20; ++n) {
        memopt_thread_pool *pool = NULL; memopt_host h; memopt_status s;
        memset(&f, 0, sizeof f);
        h = test_host(&f);
        host_refuse = n;
        s = memopt_thread_pool_create(&h, 4, &pool);
        if (!s) { CHECK(n == 7); host_refuse = 0; memopt_thread_pool_destroy(pool); return; } /* a mutex, 2 conditions, 3 threads */
        CHECK_AT(s == MEMOPT_ERR_STATE && !pool && host_refuse == 0, n);
        CHECK_AT(f.live_blocks == 0 && f.bad_frees == 0, n);
    }
    CHECK(n < 20);
}
#endif
#endif
/* What is wrong with a host, as every creation with a desc tells it. */
static memopt_status host_told(memopt_error *error, const memopt_host *host) {
    memopt_i_checks c = memopt_i_checks_begin(error, "ledger");
    memopt_host out;

    return memopt_i_host_resolve(&c, host, &out);
}
static void host_errors(void) {
    memopt_error *door = NULL;
    test_faults f;
    memopt_host h, full;

    memset(&f, 0, sizeof f);
    full = test_host(&f);
    ACCEPTS(door, h = full, host_told(door, &h));
    REFUSES(door, (h = full, h.allocator.free_fn = NULL), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: host.allocator is half a table");
    REFUSES(door, (h = full, h.files.sync_fn = NULL), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: host.files 8, either 0 or 9");
    REFUSES(door, (h = host_zero(), h.threads.worker_count = -1), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: threads.worker_count -1, at least 0");
    REFUSES(door, (h = host_zero(), h.threads.simd_level = -7), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: threads.simd_level -7, at least 0");
    REFUSES(door, (h = host_zero(), h.threads.run_fn = host_run_nothing), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: threads have workers without run_fn, or run_fn without workers");
}
static void test_host_section(void) {
    RUN(host_zero_is_the_library);
    RUN(host_half_tables);
    RUN(host_errors);
    RUN(host_allocator);
    RUN(host_allocator_hostile);
    RUN(host_files_read_write);
    RUN(host_files_far);
    RUN(host_files_rename);
    RUN(host_files_failing);
    RUN(host_clock);
    RUN(host_workers_counted);
    RUN(host_run_one);
    RUN(host_calling_thread);
    RUN(host_openmp);
    RUN(host_pool_arguments);
#if defined(MEMOPT_I_POOL)
    RUN(host_pool);
    RUN(host_pool_shared);
    RUN(host_pool_turns);
    RUN(host_pool_memory);
#if defined(HOST_FAULTY)
    RUN(host_pool_refused);
#endif
#endif
}
#ifndef TEST_COMBINED
int main(void) { test_host_section(); return test_totals(); }
#endif
