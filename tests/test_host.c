/* test_host.c - the doors outside: tables, the C library's allocator, files, clock, workers. */
#if !defined(TEST_COMBINED) && (defined(__unix__) || defined(__APPLE__)) && !defined(__cplusplus)
/* A system that fails on demand: these stand between the header and the C library, in this program only.
   Each is given a number of calls to spoil; a short transfer moves one byte. */
#define HOST_FAULTY 1
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>
static int host_interrupt, host_short, host_nothing; /* EINTR; one byte; zero bytes */
static int host_strict; /* transfers begin at multiples of 4096, also where the file system of this test takes any */
static int host_refused_flags;
static int host_no_direct; /* a file system without direct transfers; taken back by the open that it refused */
#if defined(__linux__) /* -std=c99 hides them */
extern int symlink(const char *to, const char *path);
extern int kill(pid_t process, int signal);
#endif
static int host_no_unlink; /* a directory that keeps its names */
static int host_no_locks_errno;
static int host_unlink(const char *path) {
    if (!host_no_unlink) return unlink(path);
    errno = EPERM;
    return -1;
}
static int host_flock(int file, int how) {
    if (host_interrupt > 0) { --host_interrupt; errno = EINTR; return -1; }
    if (!host_no_locks_errno) return flock(file, how);
    errno = host_no_locks_errno;
    return -1;
}
static int host_open(const char *path, int flags, ...) {
    if (host_no_direct) { host_no_direct = 0; host_refused_flags = flags; errno = EINVAL; return -1; }
    if (host_interrupt > 0) { --host_interrupt; errno = EINTR; return -1; }
    { va_list rights; int made;
      va_start(rights, flags);
      made = open(path, flags, va_arg(rights, int));
      va_end(rights);
      return made; }
}
#if defined(__linux__) && !defined(_FILE_OFFSET_BITS) /* -std=c99 hides them */
extern ssize_t pread(int file, void *bytes, size_t count, off_t offset);
extern ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset);
#endif
static ssize_t host_pread(int file, void *bytes, size_t count, off_t offset) {
    if (host_interrupt > 0) { --host_interrupt; errno = EINTR; return -1; }
    if (host_strict && offset % 4096) { errno = EINVAL; return -1; }
    if (host_short > 0) { --host_short; count = 1; }
    return pread(file, bytes, count, offset);
}
static ssize_t host_pwrite(int file, const void *bytes, size_t count, off_t offset) {
    if (host_interrupt > 0) { --host_interrupt; errno = EINTR; return -1; }
    if (host_nothing > 0) { --host_nothing; return 0; }
    if (host_short > 0) { --host_short; count = 1; }
    return pwrite(file, bytes, count, offset);
}
static int host_room; /* an errno that the system gives when it is asked for room */
static int host_fallocate(int file, off_t offset, off_t bytes) {
    (void)file; (void)offset; (void)bytes;
    if (host_interrupt > 0) { --host_interrupt; return EINTR; }
    return host_room;
}
#include <sys/stat.h>
#include <dirent.h>
static int host_list_error; /* of readdir */
static int host_sync_error; /* of fsync */
static struct dirent *host_readdir(DIR *dir) {
    struct dirent *entry = readdir(dir);
    if (host_list_error) { errno = host_list_error; return NULL; }
    return entry;
}
static int host_fsync(int file) {
    if (!host_sync_error) return fcntl(file, F_GETFD) < 0 ? -1 : 0;
    errno = host_sync_error;
    return -1;
}
#define posix_fallocate host_fallocate
#define readdir host_readdir
#define fsync host_fsync
#define open host_open
#define unlink host_unlink
#define flock(file, how) host_flock(file, how)
#define pread host_pread
#define pwrite host_pwrite
#define MEMOPT_I_FILE_CALL_MAX ((size_t)4096) /* so that whatever is longer takes several calls */
#if defined(__linux__)
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#if defined(SYS_io_uring_setup) && defined(SYS_io_uring_enter)
extern long syscall(long number, ...);
static int host_ring_refuse, host_ring_old; /* errno of its set-up, for ever; 1: it lacks features */
static int host_enter_refuse, host_enter_times, host_ring_calls; /* errno of so many calls of enter */
static long host_syscall(long number, ...) {
    long a[6]; int i; va_list rest;
    va_start(rest, number);
    for (i = 0; i < (number == SYS_io_uring_setup ? 2 : 6); ++i) a[i] = va_arg(rest, long);
    va_end(rest);
    ++host_ring_calls;
    if (number == SYS_io_uring_setup) {
        long file;
        if (host_ring_refuse) { errno = host_ring_refuse; return -1; }
        file = syscall(number, a[0], a[1]);
        if (host_ring_old && file >= 0) memset((char *)a[1] + 5 * 4, 0, 4); /* params.features */
        return file;
    }
    if (host_enter_times > 0) { --host_enter_times; errno = host_enter_refuse; return -1; }
    return syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
static int host_map_refuse; /* 1: the next mapping, 2: the one after it */
static void *host_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (host_map_refuse > 0 && --host_map_refuse == 0) { errno = ENOMEM; return MAP_FAILED; }
    return mmap(at, bytes, protection, flags, file, offset);
}
#define syscall host_syscall
#define mmap host_mmap
#define HOST_FAULTY_RING 1
#endif
#endif
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
    CHECK(h.files.reserve_fn && h.files.align_fn && h.files.make_dir_fn && h.files.list_dir_fn && h.files.sync_dir_fn);
    CHECK(MEMOPT_I_FILES_HAVE_DIRS(&h.files));
#if defined(MEMOPT_I_RING) || defined(MEMOPT_I_POOL)
    CHECK(h.files.queue_open_fn && h.files.queue_close_fn && h.files.begin_fn && h.files.wait_fn && h.files.ready_fn);
#endif
    CHECK(h.files.lock_fn && MEMOPT_I_FILES_HAVE_LOCKS(&h.files));
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
static void host_queue_alone(memopt_host *h, const memopt_host *full) {
    h->files.queue_open_fn = full->files.queue_open_fn; h->files.queue_close_fn = full->files.queue_close_fn;
    h->files.begin_fn = full->files.begin_fn; h->files.wait_fn = full->files.wait_fn;
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
    for (i = 0; i < 5; ++i) { /* the five of directories */
        h = full;
        if (i == 0) h.files.reserve_fn = NULL;
        if (i == 1) h.files.align_fn = NULL;
        if (i == 2) h.files.make_dir_fn = NULL;
        if (i == 3) h.files.list_dir_fn = NULL;
        if (i == 4) h.files.sync_dir_fn = NULL;
        host_refused(&h, 3000 + i);
        h = full;
        if (i != 0) h.files.reserve_fn = NULL;
        if (i != 1) h.files.align_fn = NULL;
        if (i != 2) h.files.make_dir_fn = NULL;
        if (i != 3) h.files.list_dir_fn = NULL;
        if (i != 4) h.files.sync_dir_fn = NULL;
        host_refused(&h, 4000 + i);
    }
    h = full;
    h.files.open_fn = NULL; h.files.close_fn = NULL; h.files.read_fn = NULL; h.files.write_fn = NULL; h.files.size_fn = NULL;
    h.files.resize_fn = NULL; h.files.sync_fn = NULL; h.files.rename_fn = NULL; h.files.remove_fn = NULL;
    host_refused(&h, __LINE__); /* directories without files */
    for (i = 0; i < 4; ++i) { /* three of a queue; one alone; all, without the others */
        h = full;
        if (i == 0) h.files.queue_open_fn = NULL;
        if (i == 1) h.files.queue_close_fn = NULL;
        if (i == 2) h.files.begin_fn = NULL;
        if (i == 3) h.files.wait_fn = NULL;
        host_refused(&h, 3000 + i);
        h = full;
        if (i != 0) h.files.queue_open_fn = NULL;
        if (i != 1) h.files.queue_close_fn = NULL;
        if (i != 2) h.files.begin_fn = NULL;
        if (i != 3) h.files.wait_fn = NULL;
        host_refused(&h, 4000 + i);
    }
    h = host_zero(); host_queue_alone(&h, &full); host_refused(&h, __LINE__);
    h = host_zero(); h.files.lock_fn = full.files.lock_fn; host_refused(&h, __LINE__);
    h = full; h.files.queue_open_fn = NULL; h.files.queue_close_fn = NULL; h.files.begin_fn = NULL; h.files.wait_fn = NULL;
    CHECK(memopt_host_resolve(&h, &out) == MEMOPT_OK && !out.files.begin_fn && out.files.read_fn == h.files.read_fn); /* a table may be without */
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

static memopt_status host_no_name(void *context, const char *name) {
    (void)name;
    *(int *)context = 1;
    return MEMOPT_OK;
}
static void host_no_dirs(void) { /* nine functions are a table without directories */
    test_faults f; memopt_host h, again; size_t align = 99; int called = 0;
    memset(&f, 0, sizeof f);
    h = test_host(&f);
    CHECK(memopt_host_resolve(&h, &again) == MEMOPT_OK && MEMOPT_I_FILES_HAVE_DIRS(&again.files));
    h.files.reserve_fn = NULL; h.files.align_fn = NULL; h.files.make_dir_fn = NULL; h.files.list_dir_fn = NULL; h.files.sync_dir_fn = NULL;
    CHECK(memopt_host_resolve(&h, &h) == MEMOPT_OK && !MEMOPT_I_FILES_HAVE_DIRS(&h.files) && h.files.open_fn == test_open);
    CHECK(memopt_host_resolve(&h, &again) == MEMOPT_OK && host_same(&h, &again));
    CHECK(h.files.reserve_fn(h.files.user, NULL, 1) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(h.files.align_fn(h.files.user, NULL, &align) == MEMOPT_ERR_UNSUPPORTED && align == 99);
    CHECK(h.files.make_dir_fn(h.files.user, ".") == MEMOPT_ERR_UNSUPPORTED);
    CHECK(h.files.list_dir_fn(h.files.user, ".", host_no_name, &called) == MEMOPT_ERR_UNSUPPORTED && !called);
    CHECK(h.files.sync_dir_fn(h.files.user, ".") == MEMOPT_ERR_UNSUPPORTED);
    CHECK(MEMOPT_I_FILES_HAVE_LOCKS(&h.files));
}
static memopt_status host_mode_told(void *user, const char *path, memopt_open_mode mode, void **file) {
    (void)path;
    *(memopt_open_mode *)user = mode; *file = user;
    return MEMOPT_OK;
}
static void host_no_locks(void) { /* a table without is never asked for the modes that go with them */
    test_faults f; memopt_host h, again; void *file = NULL; memopt_open_mode told = MEMOPT_OPEN_READ;
    memset(&f, 0, sizeof f);
    h = test_host(&f);
    h.files.lock_fn = NULL; h.files.open_fn = host_mode_told;
    CHECK(memopt_host_resolve(&h, &h) == MEMOPT_OK && !MEMOPT_I_FILES_HAVE_LOCKS(&h.files) && MEMOPT_I_FILES_HAVE_DIRS(&h.files));
    CHECK(memopt_host_resolve(&h, &again) == MEMOPT_OK && host_same(&h, &again));
    CHECK(h.files.lock_fn(h.files.user, &f) == MEMOPT_ERR_UNSUPPORTED && memopt_i_files_lock(&h.files, &f) == MEMOPT_OK);
    h.files.user = &told;
    CHECK(memopt_i_files_open(&h.files, "x", MEMOPT_OPEN_SCRATCH, &file) == MEMOPT_OK && told == MEMOPT_OPEN_WRITE);
    CHECK(memopt_i_files_open(&h.files, "x", MEMOPT_OPEN_OWN_DIRECT, &file) == MEMOPT_OK && told == MEMOPT_OPEN_WRITE_DIRECT);
    h.files.lock_fn = test_lock;
    CHECK(memopt_i_files_open(&h.files, "x", MEMOPT_OPEN_SCRATCH_DIRECT, &file) == MEMOPT_OK && told == MEMOPT_OPEN_SCRATCH_DIRECT);
    h.files.user = &f; f.fail_on = f.calls + 1;
    CHECK(memopt_i_files_lock(&h.files, &f) == MEMOPT_ERR_IO);
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
static void host_files_read_write(void) {
    memopt_host h; void *file = NULL; char path[600]; unsigned char bytes[64], back[64]; size_t done = 99, i; uint64_t size = 99;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    test_path(path, "a");
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
    test_path(path, "far");
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
#if defined(MEMOPT_I_POSIX)
static void host_files_apart(void) { /* no file is handed to a program that is started; a directory is none, nor is a pipe */
    void *file = NULL; uint64_t bytes = 77; int flags; char path[600];
    CHECK(memopt_i_system_open(NULL, ".", MEMOPT_OPEN_READ, &file) == MEMOPT_OK);
    flags = fcntl(memopt_i_file_number(file), F_GETFD);
    CHECK(flags >= 0 && (flags & FD_CLOEXEC));
    CHECK(memopt_i_system_size(NULL, file, &bytes) == MEMOPT_ERR_IO && bytes == 77);
    CHECK(memopt_i_system_close(NULL, file) == MEMOPT_OK);
    test_path(path, "pipe");
    (void)remove(path);
    if (mkfifo(path, 0600)) { SKIP("no pipes in this directory"); return; }
    alarm(60); /* an opening that waits for a writer would wait for ever */
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_READ, &file) == MEMOPT_OK);
    alarm(0);
    CHECK(!(fcntl(memopt_i_file_number(file), F_GETFL) & O_NONBLOCK)); /* for the opening alone */
    CHECK(memopt_i_system_size(NULL, file, &bytes) != MEMOPT_OK || bytes == 0);
    CHECK(memopt_i_system_close(NULL, file) == MEMOPT_OK && remove(path) == 0);
}
#endif
static void host_files_rename(void) {
    memopt_host h; void *file = NULL; char a[600], b[600], byte = 'a'; size_t done = 0;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    test_path(a, "from"); test_path(b, "to");
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
/* Names are counted in `seen`, a bit for each of "a", "b" and "c"; the third call is refused when asked for. */
typedef struct host_names { int seen, calls, stop_at; } host_names;
static memopt_status host_name(void *context, const char *name) {
    host_names *n = (host_names *)context;
    if (++n->calls == n->stop_at) return MEMOPT_ERR_STATE;
    if (name[0] < 'a' || name[0] > 'c' || name[1]) n->seen |= 8;
    else n->seen |= 1 << (name[0] - 'a');
    return MEMOPT_OK;
}
static int host_put(const memopt_host *h, const char *path, const char *text) {
    void *file = NULL;
    if (h->files.open_fn(h->files.user, path, MEMOPT_OPEN_WRITE, &file)) return 0;
    if (h->files.write_fn(h->files.user, file, 0, text, strlen(text))) return 0;
    return !h->files.close_fn(h->files.user, file);
}
static void host_files_dirs(void) {
    memopt_host h; char dir[600], moved[620], a[620], b[620], c[620]; host_names n; int i;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    test_path(dir, "dir");
    snprintf(moved, sizeof moved, "%s.moved", dir);
    snprintf(a, sizeof a, "%s/a", dir); snprintf(b, sizeof b, "%s/b", dir); snprintf(c, sizeof c, "%s/c", dir);
    memset(&n, 0, sizeof n);
    CHECK(h.files.list_dir_fn(h.files.user, dir, host_name, &n) == MEMOPT_OK && n.calls == 0); /* not there: nothing in it */
    CHECK(h.files.sync_dir_fn(h.files.user, dir) == MEMOPT_ERR_IO);
    CHECK(h.files.make_dir_fn(h.files.user, a) == MEMOPT_ERR_IO); /* nor what it would be in */
    CHECK(h.files.make_dir_fn(h.files.user, dir) == MEMOPT_OK);
    CHECK(h.files.make_dir_fn(h.files.user, dir) == MEMOPT_ERR_STATE);
    CHECK(h.files.list_dir_fn(h.files.user, dir, host_name, &n) == MEMOPT_OK && n.calls == 0); /* empty */
    CHECK(host_put(&h, a, "1") && host_put(&h, b, "2") && h.files.make_dir_fn(h.files.user, c) == MEMOPT_OK);
    CHECK(h.files.make_dir_fn(h.files.user, a) == MEMOPT_ERR_IO); /* that is a file */
    CHECK(h.files.sync_dir_fn(h.files.user, a) == MEMOPT_ERR_IO);
    CHECK(h.files.list_dir_fn(h.files.user, a, host_name, &n) == MEMOPT_ERR_IO && n.calls == 0);
    CHECK(h.files.list_dir_fn(h.files.user, dir, host_name, &n) == MEMOPT_OK && n.calls == 3 && n.seen == 7);
    for (i = 1; i <= 3; ++i) {
        memset(&n, 0, sizeof n);
        n.stop_at = i;
        CHECK(h.files.list_dir_fn(h.files.user, dir, host_name, &n) == MEMOPT_ERR_STATE && n.calls == i);
    }
    CHECK(h.files.sync_dir_fn(h.files.user, dir) == MEMOPT_OK);
    CHECK(h.files.remove_fn(h.files.user, dir) == MEMOPT_ERR_IO); /* not empty */
    CHECK(h.files.rename_fn(h.files.user, dir, moved) == MEMOPT_OK);
    memset(&n, 0, sizeof n);
    CHECK(h.files.list_dir_fn(h.files.user, moved, host_name, &n) == MEMOPT_OK && n.seen == 7);
    n.calls = 0;
    CHECK(h.files.list_dir_fn(h.files.user, dir, host_name, &n) == MEMOPT_OK && !n.calls);
    CHECK(h.files.rename_fn(h.files.user, moved, dir) == MEMOPT_OK);
#if defined(HOST_FAULTY)
    host_list_error = EIO;
    CHECK(h.files.list_dir_fn(h.files.user, dir, host_name, &n) == MEMOPT_ERR_IO);
    host_list_error = 0;
    host_sync_error = EIO;
    CHECK(h.files.sync_dir_fn(h.files.user, dir) == MEMOPT_ERR_IO);
    host_sync_error = EINVAL; /* a file system without */
    CHECK(h.files.sync_dir_fn(h.files.user, dir) == MEMOPT_OK);
    host_sync_error = 0;
#endif
    CHECK(h.files.remove_fn(h.files.user, a) == MEMOPT_OK && h.files.remove_fn(h.files.user, b) == MEMOPT_OK);
    CHECK(h.files.remove_fn(h.files.user, c) == MEMOPT_OK && h.files.remove_fn(h.files.user, dir) == MEMOPT_OK);
    CHECK(h.files.remove_fn(h.files.user, dir) == MEMOPT_ERR_IO);
}
static memopt_status host_parent_told(void *user, const char *path) {
    strcpy((char *)user, path);
    return MEMOPT_ERR_STATE;
}
static void host_parents(void) { /* the directory that a path is in: what is a separator depends on the system */
    static const struct { const char *path, *posix, *windows; } paths[] = {
        { "run", ".", "." }, { "run//", ".", "." }, { "", ".", "." }, { "/", "/", "/" }, { "/run", "/", "/" }, { "a/b/", "a/", "a/" },
        { "a/b\\c", "a/", "a/b\\" }, { "b\\c", ".", "b\\" }, { "a/c\\", "a/", "a/" }, { "C:\\run", ".", "C:\\" } };
    size_t i; char path[20], told[20]; memopt_files f;
    memset(&f, 0, sizeof f);
    f.sync_dir_fn = host_parent_told; f.user = told;
    for (i = 0; i < sizeof paths / sizeof *paths; ++i) {
        strcpy(path, paths[i].path);
        CHECK_AT(memopt_i_files_sync_parent(&f, path) == MEMOPT_ERR_STATE && !strcmp(path, paths[i].path), i);
#if defined(_WIN32)
        CHECK_AT(!strcmp(told, paths[i].windows), i);
#else
        CHECK_AT(!strcmp(told, paths[i].posix), i);
#endif
    }
}
static void host_files_reserve(void) {
    memopt_host h; void *file = NULL; char path[600], bytes[8]; uint64_t size = 99; size_t done = 0, i;
    static const uint64_t rooms[] = { 0, 1, 4096, 100, 5000, 20000, 8192, 40960 };
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    test_path(path, "room");
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK);
    if (!file) return;
    for (i = 0; i < sizeof rooms / sizeof *rooms; ++i) { /* as long as the largest until now; what is there stays */
        const uint64_t want = i == 0 ? 0 : i == 1 ? 1 : i <= 3 ? 4096 : i == 4 ? 5000 : i <= 6 ? 20000 : 40960;
#if defined(HOST_FAULTY) && defined(__linux__)
        host_room = EOPNOTSUPP; /* written by hand */
        if (i % 2) host_interrupt = 2;
        if (i == 5) host_room = EINVAL;
#endif
        CHECK_AT(h.files.reserve_fn(h.files.user, file, rooms[i]) == MEMOPT_OK, i);
        CHECK_AT(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == want, i);
        CHECK_AT(i != 2 || !h.files.write_fn(h.files.user, file, 4090, "abcdef", 6), i);
    }
    CHECK(h.files.read_fn(h.files.user, file, 4090, bytes, 8, &done) == MEMOPT_OK && done == 8 && !memcmp(bytes, "abcdef\0\0", 8));
    for (i = 4096; i < 40960; ++i) {
        CHECK_AT(h.files.read_fn(h.files.user, file, i, bytes, 1, &done) == MEMOPT_OK && done == 1 && !bytes[0], i);
        if (i > 4200 && i < 40900) i += 96;
    }
    CHECK(h.files.reserve_fn(h.files.user, file, UINT64_MAX) != MEMOPT_OK);
    CHECK(h.files.reserve_fn(h.files.user, file, (uint64_t)INT64_MAX + 1) != MEMOPT_OK);
#if defined(HOST_FAULTY) && defined(__linux__)
    { static const int full[] = { ENOSPC, EDQUOT, EFBIG, EIO };
      host_interrupt = 0;
      for (i = 0; i < 4; ++i) { /* what the system says, and the file is as long as before */
          host_room = full[i];
          CHECK_AT(h.files.reserve_fn(h.files.user, file, 50000) == (i < 3 ? MEMOPT_ERR_MEMORY : MEMOPT_ERR_IO), i);
          CHECK_AT(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 40960, i);
      }
      host_room = EOPNOTSUPP;
      host_short = 1; /* a disk that takes one byte more */
      CHECK(h.files.reserve_fn(h.files.user, file, 50000) == MEMOPT_ERR_MEMORY && host_short == 0);
      CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 40960);
      host_room = EIO; /* would be met if it were asked for ever */
      host_interrupt = 150;
      CHECK(h.files.reserve_fn(h.files.user, file, 45000) == MEMOPT_OK && host_interrupt == 0);
      host_room = 0; /* the file grows whatever the system's call did to its length */
      CHECK(h.files.reserve_fn(h.files.user, file, 50000) == MEMOPT_OK);
      CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 50000); }
#endif
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK && h.files.remove_fn(h.files.user, path) == MEMOPT_OK);
}
/* Past the cache: whole blocks go both ways, the end of a file lies where it is set, reads stop there. */
static void host_files_direct(void) {
    memopt_host h; void *file = NULL; char path[600]; size_t align = 0, plain = 0, done = 0, i; uint64_t size = 0;
    unsigned char *block;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    block = (unsigned char *)memopt_i_alloc(&h, 16384, 4096);
    CHECK(block != NULL);
    if (!block) return;
    test_path(path, "direct");
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_READ_DIRECT, &file) == MEMOPT_ERR_IO && !file);
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE_DIRECT, &file) == MEMOPT_OK && file);
    if (!file) return;
    CHECK(h.files.align_fn(h.files.user, file, &align) == MEMOPT_OK && (align == 1 || align == 4096));
    for (i = 0; i < 8192; ++i) block[i] = (unsigned char)(i % 251);
    CHECK(h.files.reserve_fn(h.files.user, file, 12288) == MEMOPT_OK);
    CHECK(h.files.write_fn(h.files.user, file, 4096, block, 8192) == MEMOPT_OK);
    CHECK(h.files.resize_fn(h.files.user, file, 9001) == MEMOPT_OK && h.files.sync_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 9001);
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_READ_DIRECT, &file) == MEMOPT_OK);
    memset(block, 0xA5, 16384);
#if defined(HOST_FAULTY)
    host_strict = 1;
    CHECK(h.files.read_fn(h.files.user, file, 9001, block, 4096, &done) == MEMOPT_ERR_IO && done == 0);
#endif
    CHECK(h.files.read_fn(h.files.user, file, 0, block, 16384, &done) == MEMOPT_OK && done == 9001); /* across the end */
    for (i = 0; i < 9001; ++i) CHECK_AT(block[i] == (i < 4096 ? 0 : (i - 4096) % 251), i);
    CHECK(h.files.read_fn(h.files.user, file, 12288, block, 4096, &done) == MEMOPT_OK && done == 0);
#if defined(HOST_FAULTY)
    host_strict = 0;
#endif
#if !defined(_WIN32) /* wine takes any place */
    if (align > 1) CHECK(h.files.read_fn(h.files.user, file, 1, block, 4096, &done) == MEMOPT_ERR_IO); /* no multiple */
#endif
    CHECK(h.files.write_fn(h.files.user, file, 0, block, 4096) == MEMOPT_ERR_IO); /* opened for reading */
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK);
    CHECK(h.files.align_fn(h.files.user, file, &plain) == MEMOPT_OK && plain == 1);
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
#if defined(HOST_FAULTY)
    host_no_direct = 1; /* a file system without: the file is one of the cache */
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE_DIRECT, &file) == MEMOPT_OK && !host_no_direct);
    CHECK((host_refused_flags & MEMOPT_I_DIRECT) == MEMOPT_I_DIRECT); /* it was asked for */
    CHECK(h.files.align_fn(h.files.user, file, &plain) == MEMOPT_OK && plain == 1);
    CHECK(h.files.write_fn(h.files.user, file, 3, block + 1, 5) == MEMOPT_OK);
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK);
#endif
    CHECK(h.files.remove_fn(h.files.user, path) == MEMOPT_OK);
    memopt_i_free(&h, block, 16384, 4096);
}
/* The modes that follow no link: what they refuse, what they leave, and that a scratch file leaves nothing. */
static int host_there(const char *path) {
    void *file = NULL;
    if (memopt_i_system_open(NULL, path, MEMOPT_OPEN_READ, &file)) return 0;
    return memopt_i_system_close(NULL, file) == MEMOPT_OK;
}
static int host_holds(const char *path, const char *text) { /* and nothing else */
    void *file = NULL; char bytes[64]; size_t done = 0; const size_t length = strlen(text);
    if (memopt_i_system_open(NULL, path, MEMOPT_OPEN_READ, &file)) return 0;
    return memopt_i_system_read(NULL, file, 0, bytes, sizeof bytes, &done) == MEMOPT_OK && memopt_i_system_close(NULL, file) == MEMOPT_OK
        && done == length && memcmp(bytes, text, length) == 0;
}
static void host_leave(const char *path, const char *text) {
    void *file = NULL;
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK);
    CHECK(file && memopt_i_system_resize(NULL, file, 0) == MEMOPT_OK && memopt_i_system_write(NULL, file, 0, text, strlen(text)) == MEMOPT_OK);
    CHECK(memopt_i_system_close(NULL, file) == MEMOPT_OK);
}
static void host_files_own(void) {
    static const memopt_open_mode modes[] = { MEMOPT_OPEN_OWN, MEMOPT_OPEN_NEW, MEMOPT_OPEN_SCRATCH,
                                              MEMOPT_OPEN_OWN_DIRECT, MEMOPT_OPEN_NEW_DIRECT, MEMOPT_OPEN_SCRATCH_DIRECT };
    char path[600], other[600]; size_t m, done, align = 0;
    unsigned char *block = (unsigned char *)memopt_i_system_alloc(NULL, 8192, 4096);
    CHECK(block != NULL);
    if (!block) return;
    test_path(path, "own"); test_path(other, "others");
    for (m = 0; m < 6; ++m) {
        const memopt_open_mode mode = modes[m], plain = modes[m % 3]; void *file = NULL;
        CHECK_AT(memopt_i_system_open(NULL, path, mode, &file) == MEMOPT_OK && file, m); /* nothing is there */
        if (!file) continue;
        CHECK_AT(memopt_i_system_align(NULL, file, &align) == MEMOPT_OK && (align == 1 || (m >= 3 && align == 4096)), m);
        memset(block, (int)m + 1, 4096); memset(block + 4096, 0, 4096);
        CHECK_AT(memopt_i_system_write(NULL, file, 4096, block, 4096) == MEMOPT_OK, m);
        CHECK_AT(memopt_i_system_read(NULL, file, 4096, block + 4096, 4096, &done) == MEMOPT_OK && done == 4096, m);
        CHECK_AT(memcmp(block, block + 4096, 4096) == 0, m);
#if defined(MEMOPT_I_POSIX)
        CHECK_AT(fcntl(memopt_i_file_number(file), F_GETFD) & FD_CLOEXEC, m);
        CHECK_AT(!(fcntl(memopt_i_file_number(file), F_GETFL) & O_NONBLOCK), m);
        CHECK_AT(host_there(path) == (plain != MEMOPT_OPEN_SCRATCH), m); /* open, and gone */
        { struct stat info; const mode_t others = 077;
          CHECK_AT(plain != MEMOPT_OPEN_SCRATCH || (!fstat(memopt_i_file_number(file), &info) && !(info.st_mode & others)), m); }
#endif
        CHECK_AT(memopt_i_system_close(NULL, file) == MEMOPT_OK, m);
        CHECK_AT(host_there(path) == (plain != MEMOPT_OPEN_SCRATCH), m);
        host_leave(path, "mine"); /* the name is taken by a file */
        file = NULL;
        CHECK_AT(memopt_i_system_open(NULL, path, mode, &file) == (plain == MEMOPT_OPEN_OWN ? MEMOPT_OK : MEMOPT_ERR_STATE), m);
        CHECK_AT(plain == MEMOPT_OPEN_OWN ? memopt_i_system_close(NULL, file) == MEMOPT_OK : !file, m);
        CHECK_AT(host_holds(path, "mine") && memopt_i_system_remove(NULL, path) == MEMOPT_OK, m); /* bytes stay */
#if defined(HOST_FAULTY)
        host_leave(other, "another's"); /* by a link to another's file, and by one that leads nowhere */
        CHECK_AT(symlink(other, path) == 0, m);
        file = NULL;
        CHECK_AT(memopt_i_system_open(NULL, path, mode, &file) == MEMOPT_ERR_STATE && !file && host_holds(other, "another's"), m);
        CHECK_AT(remove(other) == 0 && memopt_i_system_open(NULL, path, mode, &file) == MEMOPT_ERR_STATE && !file, m);
        CHECK_AT(!host_there(other) && remove(path) == 0, m);
        host_interrupt = 2;
        CHECK_AT(memopt_i_system_open(NULL, path, mode, &file) == MEMOPT_OK && host_interrupt == 0, m);
        CHECK_AT(memopt_i_system_close(NULL, file) == MEMOPT_OK, m);
        (void)remove(path);
        file = NULL;
        host_no_unlink = plain == MEMOPT_OPEN_SCRATCH; /* a name that stays is told */
        CHECK_AT(memopt_i_system_open(NULL, path, mode, &file) == (host_no_unlink ? MEMOPT_ERR_IO : MEMOPT_OK), m);
        CHECK_AT(host_no_unlink ? !file : memopt_i_system_close(NULL, file) == MEMOPT_OK, m);
        host_no_unlink = 0;
        CHECK_AT(remove(path) == 0, m);
#endif
        file = NULL;
        CHECK_AT(memopt_i_system_open(NULL, "no/such/folder/file", mode, &file) == MEMOPT_ERR_IO && !file, m);
        CHECK_AT(!host_there(path), m);
    }
    memopt_i_system_free(NULL, block, 8192, 4096);
}
typedef struct host_taken { int calls, times; memopt_status then; char names[2][64]; } host_taken;
static memopt_status host_open_taken(void *user, const char *path, memopt_open_mode mode, void **file) { /* names are taken so many times */
    host_taken *t = (host_taken *)user;
    CHECK(mode == MEMOPT_OPEN_SCRATCH_DIRECT && strlen(path) == 4 + MEMOPT_I_SCRATCH_NAME && !memcmp(path, "run.", 4));
    if (t->calls < 2) memcpy(t->names[t->calls], path, 4 + MEMOPT_I_SCRATCH_NAME + 1);
    if (t->calls++ < t->times) return MEMOPT_ERR_STATE;
    *file = user;
    return t->then;
}
static memopt_status host_stuck(void *user, uint64_t *nanoseconds) { (void)user; *nanoseconds = 77; return MEMOPT_OK; }
static void host_scratch_names(void) { /* another one until one is free, also when the clock stands still; the path stays as it was */
    static const int times[] = { 0, 1, 99, 100, 1000 };
    memopt_host h; host_taken t; char name[3 + 4 + MEMOPT_I_SCRATCH_NAME] = "run."; void *file; size_t i;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    h.files.open_fn = host_open_taken; h.files.user = &t; h.clock.now_fn = host_stuck;
    for (i = 0; i < 10; ++i) {
        const int n = times[i % 5];
        memset(&t, 0, sizeof t); t.times = n; file = NULL;
        if (i >= 5) t.then = MEMOPT_ERR_IO; /* another error is told at once */
        CHECK_AT(memopt_i_files_open_scratch(&h, name, 1, &file) == (n >= 100 ? MEMOPT_ERR_STATE : t.then), i);
        CHECK_AT(t.calls == (n >= 100 ? 100 : n + 1) && !file == (n >= 100) && strcmp(name, "run.") == 0, i);
        CHECK_AT(t.calls < 2 || strcmp(t.names[0], t.names[1]), i);
    }
}
static void host_files_lock(void) { /* of one opening of a file, however many there are; gone when it is closed */
    char path[600]; void *a = NULL, *b = NULL;
    test_path(path, "lock");
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_NEW, &a) == MEMOPT_OK && memopt_i_system_open(NULL, path, MEMOPT_OPEN_OWN, &b) == MEMOPT_OK);
    if (!a || !b) return;
    CHECK(memopt_i_system_lock(NULL, a) == MEMOPT_OK && memopt_i_system_lock(NULL, b) == MEMOPT_ERR_STATE);
    CHECK(memopt_i_system_write(NULL, b, 0, "still", 5) == MEMOPT_OK && host_holds(path, "still")); /* it is no wall */
    CHECK(memopt_i_system_close(NULL, a) == MEMOPT_OK && memopt_i_system_lock(NULL, b) == MEMOPT_OK);
    CHECK(memopt_i_system_close(NULL, b) == MEMOPT_OK && memopt_i_system_remove(NULL, path) == MEMOPT_OK);
#if defined(MEMOPT_I_POSIX)
    CHECK(memopt_i_system_lock(NULL, (void *)(intptr_t)1000000) == MEMOPT_ERR_IO);
#endif
#if defined(HOST_FAULTY)
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_NEW, &a) == MEMOPT_OK);
    host_interrupt = 2;
    CHECK(memopt_i_system_lock(NULL, a) == MEMOPT_OK && host_interrupt == 0);
    host_no_locks_errno = ENOLCK; /* a file system without */
    CHECK(memopt_i_system_lock(NULL, a) == MEMOPT_ERR_UNSUPPORTED);
    host_no_locks_errno = 0;
    CHECK(memopt_i_system_close(NULL, a) == MEMOPT_OK && remove(path) == 0);
#endif
}
#if defined(HOST_FAULTY)
#include <signal.h>
#include <sys/wait.h>
static void host_files_lock_dies(void) { /* another process has it, until it is killed */
    char path[600], byte = 0; void *file = NULL; int ends[2] = { -1, -1 }; pid_t child;
    test_path(path, "killed");
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        const int had = memopt_i_system_open(NULL, path, MEMOPT_OPEN_OWN, &file) == MEMOPT_OK && memopt_i_system_lock(NULL, file) == MEMOPT_OK;
        if (write(ends[1], had ? "y" : "n", 1) != 1) _exit(1);
        for (;;) (void)pause();
    }
    CHECK(child > 0 && read(ends[0], &byte, 1) == 1 && byte == 'y');
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_OWN, &file) == MEMOPT_OK && memopt_i_system_lock(NULL, file) == MEMOPT_ERR_STATE);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    CHECK(memopt_i_system_lock(NULL, file) == MEMOPT_OK);
    CHECK(memopt_i_system_close(NULL, file) == MEMOPT_OK && remove(path) == 0);
    (void)close(ends[0]); (void)close(ends[1]);
}
#endif
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
    CHECK(h.files.reserve_fn(h.files.user, none, 4) == MEMOPT_ERR_IO);
    CHECK(h.files.align_fn(h.files.user, none, &done) == MEMOPT_ERR_IO && done == 99);
#endif
#if defined(HOST_FAULTY)
    { void *file = NULL; char path[600];
      test_path(path, "faulty");
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

/* -- queues -- */
#if defined(MEMOPT_I_RING) || defined(MEMOPT_I_POOL)
enum { HOST_RING = MEMOPT_I_QUEUE_RING, HOST_MOVERS = MEMOPT_I_QUEUE_MOVERS };
static int host_has_ring(const void *queue) {
#if defined(MEMOPT_I_RING)
    return ((const memopt_i_system_queue *)queue)->backend == &memopt_i_ring_backend;
#else
    return queue == NULL;
#endif
}
static void *host_queue_file(char path[600], const char *name) {
    void *file = NULL;
    test_path(path, name);
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK);
    return file;
}
static void host_queue_file_end(const char *path, void *file) {
    CHECK(memopt_i_system_close(NULL, file) == MEMOPT_OK && memopt_i_system_remove(NULL, path) == MEMOPT_OK);
}
/* Transfers of random places and lengths against a plain copy of the file, slots begun and waited for in random order. */
static void host_queue_play(int backends, int depth, size_t area, uint64_t seed) {
    const size_t slots = (size_t)depth, all = slots * area; size_t round, i, k, done, counts[64]; uint64_t offsets[64]; int kinds[64], taken[64]; uint64_t size = 0;
    unsigned char *model = (unsigned char *)malloc(all), *bytes = (unsigned char *)malloc(all); void *queue = NULL, *file; char path[600];
    memopt_status s = memopt_i_system_queue_create(depth, backends, &queue);
    CHECK(model && bytes && s == MEMOPT_OK && queue);
    if (!model || !bytes || !queue) { free(model); free(bytes); return; }
    CHECK(host_has_ring(queue) == (backends == HOST_RING));
    file = host_queue_file(path, "queue");
    memset(model, 0, all); memset(bytes, 0, all); memset(taken, 0, sizeof taken);
    CHECK(memopt_i_system_resize(NULL, file, all) == MEMOPT_OK);
    for (round = 0; round < 400; ++round) {
        const size_t slot = test_below(&seed, slots); unsigned char *mine = bytes + slot * area; const uint64_t from = slot * area;
        if (!taken[slot]) { /* its area of the file is its own */
            offsets[slot] = test_below(&seed, area); counts[slot] = test_below(&seed, area - (size_t)offsets[slot] + 1); kinds[slot] = (int)test_below(&seed, 2);
            if (slot + 1 == slots && kinds[slot] == 0 && test_below(&seed, 2)) counts[slot] = area; /* beyond the end of the file */
            if (kinds[slot]) {
                for (i = 0; i < counts[slot]; ++i) mine[i] = (unsigned char)test_random(&seed);
                memcpy(model + from + offsets[slot], mine, counts[slot]);
            } else memset(mine, 0xA5, area);
            s = memopt_i_system_begin(NULL, queue, (int)slot, file, kinds[slot] ? MEMOPT_TRANSFER_WRITE : MEMOPT_TRANSFER_READ, from + offsets[slot], mine, counts[slot]);
            CHECK_AT(s == MEMOPT_OK, round);
            taken[slot] = 1;
            CHECK_AT(memopt_i_system_begin(NULL, queue, (int)slot, file, MEMOPT_TRANSFER_READ, 0, mine, 1) == MEMOPT_ERR_STATE, round);
        } else {
            const size_t there = memopt_i_min(counts[slot], area - (size_t)offsets[slot]);
            done = 99999999;
            while (round % 2 && !memopt_i_system_ready(NULL, queue, (int)slot)) {}
            if (round % 2) CHECK_AT(((memopt_i_system_queue *)queue)->slots[slot].is_ended, round); /* so nobody waits */
            CHECK_AT(memopt_i_system_wait(NULL, queue, (int)slot, &done) == MEMOPT_OK && done == (kinds[slot] ? counts[slot] : there), round);
            CHECK_AT(memcmp(mine, model + from + offsets[slot], there) == 0, round);
            for (k = there; k < area && mine[k] == 0xA5; ++k) {}
            CHECK_AT(kinds[slot] || k == area, round);
            taken[slot] = 0;
            CHECK_AT(memopt_i_system_wait(NULL, queue, (int)slot, &done) == MEMOPT_ERR_STATE, round);
        }
    }
    memopt_i_system_queue_close(NULL, queue); /* waits for what is still under way */
    memset(bytes, 0, all);
    CHECK(memopt_i_system_size(NULL, file, &size) == MEMOPT_OK && size == all);
    CHECK(memopt_i_system_read(NULL, file, 0, bytes, all, &done) == MEMOPT_OK && done == all && memcmp(bytes, model, all) == 0);
    host_queue_file_end(path, file);
    free(model); free(bytes);
}
static int host_queue_can(int backends) {
    void *queue = NULL;
    if (memopt_i_system_queue_create(1, backends, &queue)) return 0;
    memopt_i_system_queue_close(NULL, queue);
    return 1;
}
static void host_queue_arguments(int backends) {
    void *queue = NULL, *file, *reader = NULL; char path[600], bytes[8] = "abcdefg"; size_t done = 99; memopt_status s; const memopt_transfer no_kind = (memopt_transfer)test_number_of(2);
    CHECK(memopt_i_system_queue_create(0, backends, &queue) == MEMOPT_ERR_ARGUMENT && memopt_i_system_queue_create(-1, backends, &queue) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_queue_create(1025, backends, &queue) == MEMOPT_ERR_ARGUMENT && memopt_i_system_queue_create(1, backends, NULL) == MEMOPT_ERR_ARGUMENT && !queue);
    CHECK(memopt_i_system_queue_create(1024, backends, &queue) == MEMOPT_OK);
    memopt_i_system_queue_close(NULL, queue); memopt_i_system_queue_close(NULL, NULL);
    CHECK(memopt_i_system_queue_create(3, backends, &queue) == MEMOPT_OK);
    file = host_queue_file(path, "queue");
    CHECK(memopt_i_system_begin(NULL, NULL, 0, file, MEMOPT_TRANSFER_READ, 0, bytes, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_begin(NULL, queue, -1, file, MEMOPT_TRANSFER_READ, 0, bytes, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_begin(NULL, queue, 3, file, MEMOPT_TRANSFER_READ, 0, bytes, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_begin(NULL, queue, 0, NULL, MEMOPT_TRANSFER_READ, 0, bytes, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_begin(NULL, queue, 0, file, MEMOPT_TRANSFER_READ, 0, NULL, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_begin(NULL, queue, 0, file, no_kind, 0, bytes, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_begin(NULL, queue, 0, file, MEMOPT_TRANSFER_READ, UINT64_MAX, bytes, 1) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_i_system_wait(NULL, NULL, 0, &done) == MEMOPT_ERR_ARGUMENT && memopt_i_system_wait(NULL, queue, -1, &done) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_wait(NULL, queue, 3, &done) == MEMOPT_ERR_ARGUMENT && memopt_i_system_wait(NULL, queue, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_system_wait(NULL, queue, 0, &done) == MEMOPT_ERR_STATE && done == 99); /* nothing was taken by all that */
    CHECK(memopt_i_system_ready(NULL, NULL, 0) && memopt_i_system_ready(NULL, queue, -1) && memopt_i_system_ready(NULL, queue, 3) && memopt_i_system_ready(NULL, queue, 0));
    CHECK(memopt_i_system_begin(NULL, queue, 2, file, MEMOPT_TRANSFER_WRITE, 5, NULL, 0) == MEMOPT_OK);
    CHECK(memopt_i_system_wait(NULL, queue, 2, &done) == MEMOPT_OK && done == 0);
    CHECK(memopt_i_system_begin(NULL, queue, 2, file, MEMOPT_TRANSFER_READ, 0, bytes, 1) == MEMOPT_OK);
    done = 99;
    CHECK(memopt_i_system_wait(NULL, queue, 2, &done) == MEMOPT_OK && done == 0 && bytes[0] == 'a'); /* an empty file */
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_READ, &reader) == MEMOPT_OK);
    s = memopt_i_system_begin(NULL, queue, 1, reader, MEMOPT_TRANSFER_WRITE, 0, bytes, 4); /* refused by the system */
    CHECK(s == MEMOPT_OK);
    done = 99;
    CHECK(memopt_i_system_wait(NULL, queue, 1, &done) == MEMOPT_ERR_IO && done == 99);
    CHECK(memopt_i_system_begin(NULL, queue, 1, file, MEMOPT_TRANSFER_WRITE, 0, bytes, 4) == MEMOPT_OK); /* the slot goes on */
    CHECK(memopt_i_system_wait(NULL, queue, 1, &done) == MEMOPT_OK && done == 4);
    memopt_i_system_queue_close(NULL, queue);
    CHECK(memopt_i_system_close(NULL, reader) == MEMOPT_OK);
    host_queue_file_end(path, file);
}
static void host_queue_moves(int backends) {
    host_queue_arguments(backends);
    host_queue_play(backends, 1, 3000, 1);
    host_queue_play(backends, 2, 50000, 2);
    host_queue_play(backends, 7, 5000, 3);
    host_queue_play(backends, 64, 9000, 4);
}
static void host_queue_by_threads(void) {
    if (!host_queue_can(HOST_MOVERS)) { SKIP("compiled without MEMOPT_PTHREADS"); return; }
    host_queue_moves(HOST_MOVERS);
}
static void host_queue_by_ring(void) {
    if (!host_queue_can(HOST_RING)) { SKIP("no io_uring here"); return; }
    host_queue_moves(HOST_RING);
}
#if defined(MEMOPT_I_RING)
/* A transfer that the ring has not been told of: what the kernel answers is ours to say. */
static void host_ring_answered(void *queue, void *file, memopt_transfer kind, unsigned char *bytes, size_t count, int32_t answer, memopt_status want, size_t had) {
    memopt_i_system_queue *q = (memopt_i_system_queue *)queue; size_t done = 0; memopt_status s;
    CHECK(memopt_i_system_begin(NULL, q, 0, file, kind, 1000, bytes, 0) == MEMOPT_OK);
    q->slots[0].count = count; q->slots[0].is_ended = 0;
    memopt_i_ring_answer(q, 0, answer);
    s = memopt_i_system_wait(NULL, q, 0, &done);
    CHECK_AT(s == want && (s || done == had), answer < 0 ? -answer : answer);
}
static void host_queue_answers(void) {
    void *queue = NULL, *file; char path[600]; unsigned char bytes[9000], back[9000]; size_t i, done; static const int again[] = { EINTR, EAGAIN, ECANCELED };
    if (memopt_i_system_queue_create(2, HOST_RING, &queue)) { SKIP("no io_uring here"); return; }
    file = host_queue_file(path, "answers");
    for (i = 0; i < sizeof bytes; ++i) bytes[i] = (unsigned char)(i * 7 + 1 + (i >> 8));
    memset(back, 0, sizeof back);
    for (i = 0; i < 3; ++i) { /* the whole of it, by other ways */
        CHECK(memopt_i_system_resize(NULL, file, 0) == MEMOPT_OK);
        host_ring_answered(queue, file, MEMOPT_TRANSFER_WRITE, bytes, 9000, -again[i], MEMOPT_OK, 9000);
        host_ring_answered(queue, file, MEMOPT_TRANSFER_READ, back, 9000, -again[i], MEMOPT_OK, 9000);
        CHECK_AT(memcmp(bytes, back, 9000) == 0, i);
    }
    CHECK(memopt_i_system_resize(NULL, file, 0) == MEMOPT_OK);
    host_ring_answered(queue, file, MEMOPT_TRANSFER_WRITE, bytes, 9000, 777, MEMOPT_OK, 9000); /* short: the rest is asked for */
    CHECK(memopt_i_system_read(NULL, file, 1000, back, 9000, &done) == MEMOPT_OK && done == 9000);
    CHECK(memcmp(back + 777, bytes + 777, 9000 - 777) == 0 && back[0] == 0 && back[776] == 0);
    memset(back, 0, sizeof back);
    host_ring_answered(queue, file, MEMOPT_TRANSFER_READ, back, 9000, 777, MEMOPT_OK, 9000);
    CHECK(memcmp(back + 777, bytes + 777, 9000 - 777) == 0 && back[776] == 0);
    CHECK(memopt_i_system_resize(NULL, file, 1777) == MEMOPT_OK);
    host_ring_answered(queue, file, MEMOPT_TRANSFER_READ, back, 9000, 777, MEMOPT_OK, 777); /* short, and the end */
    host_ring_answered(queue, file, MEMOPT_TRANSFER_READ, back, 9000, 776, MEMOPT_OK, 777);
    host_ring_answered(queue, file, MEMOPT_TRANSFER_READ, back, 9000, 0, MEMOPT_OK, 0);
    host_ring_answered(queue, file, MEMOPT_TRANSFER_WRITE, bytes, 9000, 0, MEMOPT_ERR_IO, 0);
    host_ring_answered(queue, file, MEMOPT_TRANSFER_WRITE, bytes, 9000, -ENOSPC, MEMOPT_ERR_IO, 0);
    host_ring_answered(queue, file, MEMOPT_TRANSFER_READ, back, 9000, -EIO, MEMOPT_ERR_IO, 0);
    for (i = 0; i < 2; ++i) { /* interrupted after a part of it: the rest, at its own place */
        const memopt_transfer kind = i ? MEMOPT_TRANSFER_READ : MEMOPT_TRANSFER_WRITE; memopt_i_system_queue *q = (memopt_i_system_queue *)queue;
        memset(back, 0, sizeof back);
        CHECK(memopt_i_system_begin(NULL, q, 1, file, kind, 1000, i ? back : bytes, 0) == MEMOPT_OK);
        q->slots[1].count = 9000; q->slots[1].had = 777; q->slots[1].is_ended = 0;
        memopt_i_ring_answer(q, 1, -EINTR);
        CHECK(memopt_i_system_wait(NULL, q, 1, &done) == MEMOPT_OK && done == 9000);
        if (!i) CHECK(memopt_i_system_read(NULL, file, 1000, back, 9000, &done) == MEMOPT_OK && done == 9000);
        CHECK(memcmp(back + 777, bytes + 777, 9000 - 777) == 0 && (!i || back[776] == 0));
    }
    memopt_i_system_queue_close(NULL, queue);
    host_queue_file_end(path, file);
}
#endif
#if defined(HOST_FAULTY_RING) && defined(MEMOPT_I_RING)
static int host_ring_is(int wanted) { /* does a queue open, with a ring or without */
    void *queue = NULL; int has; memopt_status s = memopt_i_system_queue_open(NULL, 4, &queue);
    if (s) return s == MEMOPT_ERR_UNSUPPORTED && !queue && wanted == 0 && !host_queue_can(HOST_MOVERS);
    has = host_has_ring(queue);
    memopt_i_system_queue_close(NULL, queue);
    return has == wanted;
}
static void host_queue_ring_fails(void) { /* whatever its set-up says, others take over; and whatever enter says, all is moved */
    static const int no[] = { EPERM, ENOSYS, ENOMEM, EINVAL, EMFILE }, hard[] = { EAGAIN, EBUSY, EINTR, EBADF }; size_t i; int n;
    if (!host_queue_can(HOST_RING)) { SKIP("no io_uring here"); return; }
    CHECK(host_ring_is(1));
    for (i = 0; i < sizeof no / sizeof *no; ++i) {
        host_ring_refuse = no[i];
        CHECK_AT(host_ring_is(0), no[i]);
    }
    host_ring_refuse = 0; host_ring_old = 1;
    CHECK(host_ring_is(0));
    host_ring_old = 0;
    for (n = 1; n <= 2; ++n) { host_map_refuse = n; CHECK_AT(host_ring_is(0) && host_map_refuse == 0, n); }
    CHECK(host_ring_is(1));
    for (i = 0; i < sizeof hard / sizeof *hard; ++i) for (n = 1; n < 200; n += 1 + n / 3) {
        host_enter_refuse = hard[i]; host_enter_times = n;
        host_queue_play(HOST_RING, 5, 20000, (uint64_t)n);
        CHECK_AT(host_enter_times == 0, n);
    }
}
#include <poll.h>
#include <sys/wait.h>
static void host_queue_ring_mute(void) { /* nobody may wait for it any more: a transfer that takes its time is waited for all the same, without spinning */
    void *queue = NULL; int ends[2] = { -1, -1 }, told = 0; char bytes[8] = ""; size_t done = 0; pid_t child; memopt_status s;
    if (memopt_i_system_queue_create(1, HOST_RING, &queue)) { SKIP("no io_uring here"); return; }
    CHECK(pipe(ends) == 0);
    CHECK(memopt_i_system_begin(NULL, queue, 0, (void *)((intptr_t)ends[0] + 1), MEMOPT_TRANSFER_READ, 0, bytes, 8) == MEMOPT_OK);
    fflush(stdout);
    child = fork();
    if (child == 0) { (void)poll(NULL, 0, 100); _exit(write(ends[1], "eight by", 8) != 8); }
    host_enter_refuse = EBADF; host_enter_times = 1 << 30; host_ring_calls = 0;
    s = memopt_i_system_wait(NULL, queue, 0, &done);
    CHECK(host_ring_calls > 0 && host_ring_calls < 1000);
    host_enter_times = 0;
    CHECK(s == MEMOPT_OK && done == 8 && memcmp(bytes, "eight by", 8) == 0);
    CHECK(child > 0 && waitpid(child, &told, 0) == child && WIFEXITED(told) && WEXITSTATUS(told) == 0);
    memopt_i_system_queue_close(NULL, queue);
    (void)close(ends[0]); (void)close(ends[1]);
}
#if defined(MEMOPT_I_POOL)
static void host_queue_threads_fail(void) { /* no mutex, no condition, no thread; some of the threads are enough */
    int n;
    for (n = 1; n <= 8; ++n) {
        void *queue = NULL; memopt_status s;
        host_refuse = n;
        s = memopt_i_system_queue_create(3, HOST_MOVERS, &queue);
        CHECK_AT(n <= 4 ? s == MEMOPT_ERR_UNSUPPORTED && !queue : s == MEMOPT_OK && queue, n);
        CHECK_AT(s || ((memopt_i_system_queue *)queue)->movers.thread_count == (n <= 6 ? (size_t)n - 4 : 3), n);
        memopt_i_system_queue_close(NULL, queue);
    }
    host_refuse = 0;
}
#endif
#endif
#if defined(__linux__) && defined(MEMOPT_I_RING)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
static void host_queue_forbidden(void) { /* a process that may not use io_uring, as in many containers */
    const unsigned number = (unsigned)offsetof(struct seccomp_data, nr);
    struct sock_filter filter[] = {
        { BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 }, { BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_io_uring_setup },
        { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM }, { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW } };
    struct sock_fprog program; int told = 0; pid_t child;
    filter[0].k = number;
    program.len = 4; program.filter = filter;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        const int before = test_failures;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(77);
        if (host_queue_can(HOST_RING)) _exit(76); /* not forbidden */
        if (host_queue_can(HOST_MOVERS)) {
            void *queue = NULL;
            CHECK(memopt_i_system_queue_open(NULL, 3, &queue) == MEMOPT_OK && !host_has_ring(queue));
            memopt_i_system_queue_close(NULL, queue);
            host_queue_moves(HOST_MOVERS);
        }
        fflush(stdout);
        _exit(test_failures != before);
    }
    CHECK(child > 0 && waitpid(child, &told, 0) == child && WIFEXITED(told));
    if (WIFEXITED(told) && WEXITSTATUS(told) == 77) { SKIP("no seccomp here"); return; }
    CHECK(WIFEXITED(told) && WEXITSTATUS(told) == 0);
}
#endif
#endif
/* What sections use: a queue over any table, with or without one of its own. */
typedef struct host_table { int opens, closes, begins, waits; memopt_status open_status; size_t reads, writes; memopt_status status; } host_table;
static memopt_status host_table_open(void *user, int depth, void **queue) { host_table *t = (host_table *)user; ++t->opens; *queue = t; return depth == 5 ? t->open_status : MEMOPT_ERR_ARGUMENT; }
static void host_table_close(void *user, void *queue) { ++((host_table *)user)->closes; (void)queue; }
static memopt_status host_table_begin(void *user, void *queue, int slot, void *file, memopt_transfer kind, uint64_t offset, void *bytes, size_t count) {
    host_table *t = (host_table *)user; ++t->begins;
    CHECK(queue == t && slot == 4 && file == &t->begins && kind == MEMOPT_TRANSFER_WRITE && offset == UINT64_C(1) << 40 && bytes == t && count == 3);
    return t->status;
}
static memopt_status host_table_wait(void *user, void *queue, int slot, size_t *done) { host_table *t = (host_table *)user; ++t->waits; CHECK(queue == t && slot == 4); *done = 3; return t->status; }
static memopt_status host_table_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) { host_table *t = (host_table *)user; ++t->reads; CHECK(file == t && offset == 7 && bytes == t && count == 9); if (!t->status) *done = 2; return t->status; }
static memopt_status host_table_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) { host_table *t = (host_table *)user; ++t->writes; CHECK(file == t && offset == 7 && bytes == t && count == 9); return t->status; }
static void host_queue_of_table(void) {
    host_table t; memopt_files files; memopt_i_queue q; memopt_i_slot_result results[5]; size_t done = 0;
    memset(&t, 0, sizeof t); memset(&files, 0, sizeof files);
    files.user = &t; files.read_fn = host_table_read; files.write_fn = host_table_write;
    CHECK(memopt_i_queue_open(&q, &files, 5, results) == MEMOPT_OK && !q.queue); /* none: at once */
    CHECK(memopt_i_queue_begin(&q, 4, &t, MEMOPT_TRANSFER_WRITE, 7, &t, 9) == MEMOPT_OK && t.writes == 1);
    CHECK(memopt_i_queue_begin(&q, 3, &t, MEMOPT_TRANSFER_READ, 7, &t, 9) == MEMOPT_OK && t.reads == 1);
    t.status = MEMOPT_ERR_FORMAT; /* told by the wait of its slot */
    CHECK(memopt_i_queue_begin(&q, 0, &t, MEMOPT_TRANSFER_READ, 7, &t, 9) == MEMOPT_OK && memopt_i_queue_begin(&q, 2, &t, MEMOPT_TRANSFER_WRITE, 7, &t, 9) == MEMOPT_OK);
    CHECK(memopt_i_queue_wait(&q, 4, &done) == MEMOPT_OK && done == 9 && memopt_i_queue_wait(&q, 3, &done) == MEMOPT_OK && done == 2);
    CHECK(memopt_i_queue_wait(&q, 0, &done) == MEMOPT_ERR_FORMAT && memopt_i_queue_wait(&q, 2, &done) == MEMOPT_ERR_FORMAT && done == 2);
    memopt_i_queue_close(&q);
    files.queue_open_fn = host_table_open; files.queue_close_fn = host_table_close; files.begin_fn = host_table_begin; files.wait_fn = host_table_wait;
    t.open_status = MEMOPT_ERR_UNSUPPORTED; t.status = MEMOPT_OK;
    CHECK(memopt_i_queue_open(&q, &files, 5, results) == MEMOPT_OK && !q.queue && t.opens == 1); /* none after all */
    memopt_i_queue_close(&q);
    t.open_status = MEMOPT_ERR_DEVICE;
    CHECK(memopt_i_queue_open(&q, &files, 5, results) == MEMOPT_ERR_DEVICE && !q.queue && t.opens == 2 && t.closes == 0);
    CHECK(memopt_i_queue_open(&q, &files, 1025, results) == MEMOPT_ERR_ARGUMENT && t.opens == 2);
    t.open_status = MEMOPT_OK;
    CHECK(memopt_i_queue_open(&q, &files, 5, results) == MEMOPT_OK && q.queue == &t && t.opens == 3);
    CHECK(memopt_i_queue_begin(&q, 4, &t.begins, MEMOPT_TRANSFER_WRITE, UINT64_C(1) << 40, &t, 3) == MEMOPT_OK && memopt_i_queue_wait(&q, 4, &done) == MEMOPT_OK && done == 3);
    t.status = MEMOPT_ERR_IO;
    CHECK(memopt_i_queue_begin(&q, 4, &t.begins, MEMOPT_TRANSFER_WRITE, UINT64_C(1) << 40, &t, 3) == MEMOPT_ERR_IO && memopt_i_queue_wait(&q, 4, &done) == MEMOPT_ERR_IO);
    memopt_i_queue_close(&q); memopt_i_queue_close(&q);
    CHECK(t.closes == 1 && t.begins == 2 && t.waits == 2 && t.writes == 2 && t.reads == 2);
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
static void host_dirs_alone(memopt_host *h, const memopt_host *full) {
    h->files.reserve_fn = full->files.reserve_fn;
    h->files.align_fn = full->files.align_fn;
    h->files.make_dir_fn = full->files.make_dir_fn;
    h->files.list_dir_fn = full->files.list_dir_fn;
    h->files.sync_dir_fn = full->files.sync_dir_fn;
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
    REFUSES(door, (h = full, h.files.align_fn = NULL), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: host.files, of its directories 4, either 0 or 5");
    REFUSES(door, (h = host_zero(), host_dirs_alone(&h, &full)), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: host.files has directories alone");
    REFUSES(door, (h = full, h.files.wait_fn = NULL), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: host.files, of its queue 3, either 0 or 4");
    REFUSES(door, (h = host_zero(), host_queue_alone(&h, &full)), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: host.files has a queue alone");
    REFUSES(door, (h = host_zero(), h.files.lock_fn = full.files.lock_fn), host_told(door, &h), MEMOPT_ERR_ARGUMENT,
            "ledger: host.files has a lock alone");
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
    RUN(host_no_dirs);
    RUN(host_no_locks);
    RUN(host_errors);
    RUN(host_allocator);
    RUN(host_allocator_hostile);
    RUN(host_files_read_write);
    RUN(host_files_far);
    RUN(host_files_rename);
#if defined(MEMOPT_I_POSIX)
    RUN(host_files_apart);
#endif
    RUN(host_files_dirs);
    RUN(host_parents);
    RUN(host_files_reserve);
    RUN(host_files_direct);
    RUN(host_files_own);
    RUN(host_scratch_names);
    RUN(host_files_lock);
#if defined(HOST_FAULTY)
    RUN(host_files_lock_dies);
#endif
    RUN(host_files_failing);
#if defined(MEMOPT_I_RING) || defined(MEMOPT_I_POOL)
    RUN(host_queue_by_threads);
    RUN(host_queue_by_ring);
#if defined(MEMOPT_I_RING)
    RUN(host_queue_answers);
#endif
#if defined(HOST_FAULTY_RING) && defined(MEMOPT_I_RING)
    RUN(host_queue_ring_fails); RUN(host_queue_ring_mute);
#if defined(MEMOPT_I_POOL)
    RUN(host_queue_threads_fail);
#endif
#endif
#if defined(__linux__) && defined(MEMOPT_I_RING)
    RUN(host_queue_forbidden);
#endif
#endif
    RUN(host_queue_of_table);
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
