/* test.h - what every test file needs: CHECK, RUN and SKIP, the totals line, a host that fails on demand, random numbers.

   A test file defines one function per thing tested, a function test_<section>() that RUNs them, and
       #ifndef TEST_COMBINED
       int main(void) { test_<section>(); return test_totals(); }
       #endif
   so that it is a program of its own, and also a part of the combined program tests/test_combined.c. With TEST_ONLY=text
   in the environment only the tests run whose names have it in them; with TEST_TIMES it tells the processor time of each. */
#ifndef MEMOPT_TEST_H
#define MEMOPT_TEST_H
#ifndef MEMOPT_DEBUG
#  define MEMOPT_DEBUG 2
#endif
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <time.h>

/* What a part of the header does not have, and its tests do without. */
#if defined(MEMOPT_I_GROUPS) && defined(MEMOPT_I_SOME) && !defined(MEMOPT_ONLY_RANKS) && !defined(MEMOPT_ONLY_ADVISE)
#  define TEST_NO_FILES
#  if !defined(MEMOPT_ONLY_NUMBERS)
#    define TEST_NO_OPTIM
#  endif
#  if !defined(MEMOPT_ONLY_NUMBERS) && !defined(MEMOPT_ONLY_ACTIVATIONS) && !defined(MEMOPT_ONLY_OPERATORS)
#    define TEST_NO_SIMD
#  endif
#endif

/* Loops over many cases take one of so many, where a processor is simulated or a compiler looks at every access:
       if (test_is_passed_over()) continue;
   The first case of every test is taken. */
#ifndef TEST_STRIDE
#  define TEST_STRIDE 1
#endif
/* How many random cases: the usual number, and that of the long rows of `make test-all` and of mutants. */
#if defined(TEST_LONG) || defined(TEST_STOP)
#  define TEST_CASES(usual, many) (many)
#else
#  define TEST_CASES(usual, many) (usual)
#endif
static unsigned test_case; /* of the test that runs */
static inline int test_is_passed_over(void) { return test_case++ % TEST_STRIDE != 0; }

static int test_passed, test_failed, test_skipped, test_failures; /* failures: CHECKs that failed */

/* With TEST_STOP the first CHECK that fails ends the program: tests/mutants asks no more of it. */
#if defined(TEST_STOP)
#  define TEST_FAILED() (fflush(stdout), _Exit(1))
#else
#  define TEST_FAILED() ((void)0)
#endif
#define CHECK(x) do { if (!(x)) { ++test_failures; printf("%s:%d: %s\n", __FILE__, __LINE__, #x); TEST_FAILED(); } } while (0)
/* For loops over random or exhaustive inputs: tells the seed or index, and gives up after the first few. */
#define CHECK_AT(x, at) do { if (!(x) && test_failures++ < 20) { \
    printf("%s:%d: %s (at %llu)\n", __FILE__, __LINE__, #x, (unsigned long long)(at)); TEST_FAILED(); } } while (0)
#define RUN(test) test_run(#test, test)
#define SKIP(why) do { ++test_skipped; --test_passed; printf("skipped %s:%d: %s\n", __FILE__, __LINE__, why); } while (0)

static inline void test_run(const char *name, void (*test)(void)) {
    const int before = test_failures; const char *only = getenv("TEST_ONLY"); const clock_t begin = clock();
    if (only && !strstr(name, only)) return;
    test_case = 0;
    test();
    if (getenv("TEST_TIMES")) printf("%.3f s %s\n", (double)(clock() - begin) / CLOCKS_PER_SEC, name);
    if (test_failures == before) { ++test_passed; return; }
    ++test_failed;
    printf("FAILED %s\n", name);
    fflush(stdout);
}
static inline int test_totals(void) {
    printf("%d passed, %d failed, %d skipped\n", test_passed, test_failed, test_skipped);
    return test_failed != 0;
}

/* A path of this process alone: tests run side by side. */
static inline void test_path(char path[600], const char *name) {
#if defined(_WIN32)
    const char *folder = getenv("TEMP");
    snprintf(path, 600, "%s/memopt-%lu-%s", folder ? folder : ".", (unsigned long)GetCurrentProcessId(), name);
#else
    const char *folder = getenv("TMPDIR");
    snprintf(path, 600, "%s/memopt-%ld-%s", folder ? folder : "/tmp", (long)getpid(), name);
#endif
}

/* A call that is refused returns a status and writes it, with a reason, into the caller's error, whose whole text is
   compared. `door` is the field that names that error; with NULL in it the status is the same. */
static memopt_error test_why;
static inline int test_says(const memopt_error *error, memopt_status status, const char *text) {
    char line[256] = "";

    if (memopt_error_text(error, line, sizeof line, NULL) == MEMOPT_OK && error->status == status && error->reason
        && status != MEMOPT_OK && strcmp(line, text) == 0) return 1;
    printf("got %d '%s', want %d '%s'\n", (int)error->status, line, (int)status, text);
    return 0;
}
static inline int test_error_says(memopt_error error, memopt_status status, const char *text) {
    return test_says(&error, status, text);
}
static inline int test_refused(memopt_status got, memopt_status want, const char *text) {
    return test_says(&test_why, want, text) && got == want;
}
static inline void test_why_reset(void) {
    memset(&test_why, 0, sizeof test_why);
    test_why.action = SIZE_MAX;
}
/* A call that succeeds has left the error alone. */
static inline int test_why_untouched(void) {
    memopt_error zero;

    memset(&zero, 0, sizeof zero);
    zero.action = SIZE_MAX;
    return memcmp(&test_why, &zero, sizeof zero) == 0;
}
#define REFUSES(door, change, call, want, text) do { \
    change; \
    test_why_reset(); \
    (door) = &test_why; \
    CHECK(test_refused((call), (want), (text))); \
    (door) = NULL; \
    CHECK((call) == (want)); } while (0)
#define ACCEPTS(door, change, call) do { \
    change; \
    test_why_reset(); \
    (door) = &test_why; \
    CHECK((call) == MEMOPT_OK && test_why_untouched()); } while (0)

/* A number that the compiler does not know, for enums that are to be wrong: C++ refuses those that it sees. */
static inline int test_number_of(int x) { volatile int unknown = x; return unknown; }

#ifndef TEST_NO_OPTIM
/* Weights as f32, bf16, split, f32 with a bf16 copy: as memopt_i_weights counts them. */
static inline void test_set_weights(memopt_optim_desc *d, memopt_i_weights form) {
    static const memopt_type type[4] = { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F32 };
    static const memopt_optim_extra extra[4] = { MEMOPT_OPTIM_EXTRA_NONE, MEMOPT_OPTIM_EXTRA_NONE,
                                                 MEMOPT_OPTIM_EXTRA_SPLIT, MEMOPT_OPTIM_EXTRA_COPY };
    d->weights = type[form]; d->extra = extra[form];
}
#endif

/* splitmix64: every seed is a good seed */
static inline uint64_t test_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static inline size_t test_below(uint64_t *state, size_t n) { return (size_t)(test_random(state) % n); }

/* Threads for a test: a level and no workers; or workers that take chunks in a scrambled order, under scrambled numbers. */
static inline memopt_threads test_level(int level) {
    memopt_threads t;
    memset(&t, 0, sizeof t);
    t.simd_level = level;
    return t;
}
#ifndef TEST_NO_SIMD
static inline int test_wider(int level) { /* the next level of this machine: either NEON, or the others */
    return level == MEMOPT_SIMD_SCALAR && memopt_simd_best() > MEMOPT_SIMD_NEON ? MEMOPT_SIMD_AVX2 : level + 1;
}
#endif
typedef struct test_worker_set { uint64_t seed; int workers; size_t runs, chunks; } test_worker_set;
static inline void test_worker_set_run(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    test_worker_set *worker_set = (test_worker_set *)user;
    size_t *order = (size_t *)malloc((chunk_count + 1) * sizeof *order), i;
    if (!order) { printf("test.h: out of memory\n"); exit(1); }
    for (i = 0; i < chunk_count; ++i) order[i] = i;
    for (i = chunk_count; i > 1; --i) {
        const size_t k = test_below(&worker_set->seed, i), t = order[k];
        order[k] = order[i - 1]; order[i - 1] = t;
    }
    for (i = 0; i < chunk_count; ++i)
        fn(task, order[i], (int)test_below(&worker_set->seed, (size_t)worker_set->workers));
    ++worker_set->runs; worker_set->chunks += chunk_count;
    free(order);
}
static inline memopt_threads test_workers(test_worker_set *worker_set, int workers, int level) { /* 0: none */
    memopt_threads t = test_level(level);
    if (!workers) return t;
    memset(worker_set, 0, sizeof *worker_set);
    worker_set->seed = (uint64_t)workers; worker_set->workers = workers;
    t.run_fn = test_worker_set_run; t.user = worker_set; t.worker_count = workers;
    return t;
}

/* A host whose every door can fail: the fail_on-th call (1 = the first), or every call from fail_from on.
   It counts what is live and notices a block freed with another size than it was asked with. */
typedef struct test_faults {
    size_t calls, fail_on, fail_from;
    size_t live_blocks, live_bytes, peak_bytes;
    size_t bad_frees;
    uint64_t now; /* the clock: advances by a microsecond a call */
} test_faults;
static inline int test_fails(test_faults *f) {
    ++f->calls;
    return f->calls == f->fail_on || (f->fail_from && f->calls >= f->fail_from);
}
static inline void *test_alloc(void *user, size_t bytes, size_t alignment) {
    test_faults *f = (test_faults *)user; unsigned char *p;
    if (test_fails(f)) return NULL;
    p = (unsigned char *)memopt_i_system_alloc(NULL, bytes + 16, alignment); /* 16 more: the size, to compare with at the free */
    if (!p) return NULL;
    memcpy(p + bytes, &bytes, sizeof bytes);
    memset(p, 0xA5, bytes); /* nobody may rely on zeros */
    ++f->live_blocks; f->live_bytes += bytes;
    if (f->live_bytes > f->peak_bytes) f->peak_bytes = f->live_bytes;
    return p;
}
static inline void test_free(void *user, void *block, size_t bytes, size_t alignment) {
    test_faults *f = (test_faults *)user; size_t asked;
    memcpy(&asked, (unsigned char *)block + bytes, sizeof asked);
    if (asked != bytes) ++f->bad_frees;
    --f->live_blocks; f->live_bytes -= bytes;
    memopt_i_system_free(NULL, block, bytes + 16, alignment);
}
static inline memopt_status test_now(void *user, uint64_t *nanoseconds) {
    test_faults *f = (test_faults *)user;
    if (test_fails(f)) return MEMOPT_ERR_IO;
    *nanoseconds = f->now += 1000;
    return MEMOPT_OK;
}
#ifndef TEST_NO_FILES
/* Files: the system's, behind the same counter. */
static inline memopt_status test_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_open(NULL, path, mode, file);
}
static inline memopt_status test_close(void *user, void *file) {
    const memopt_status s = memopt_i_system_close(NULL, file); /* closed whatever it returns */
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : s;
}
static inline memopt_status test_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_read(NULL, file, offset, bytes, count, done);
}
static inline memopt_status test_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_write(NULL, file, offset, bytes, count);
}
static inline memopt_status test_size(void *user, void *file, uint64_t *bytes) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_size(NULL, file, bytes);
}
static inline memopt_status test_resize(void *user, void *file, uint64_t bytes) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_resize(NULL, file, bytes);
}
static inline memopt_status test_sync(void *user, void *file) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_sync(NULL, file);
}
static inline memopt_status test_rename(void *user, const char *from, const char *to) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_rename(NULL, from, to);
}
static inline memopt_status test_remove(void *user, const char *path) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_remove(NULL, path);
}
static inline memopt_status test_reserve(void *user, void *file, uint64_t bytes) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_MEMORY : memopt_i_system_reserve(NULL, file, bytes);
}
static inline memopt_status test_align(void *user, void *file, size_t *alignment) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_align(NULL, file, alignment);
}
static inline memopt_status test_make_dir(void *user, const char *path) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_make_dir(NULL, path);
}
static inline memopt_status test_list_dir(void *user, const char *path, memopt_name_fn *each_fn, void *context) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_list_dir(NULL, path, each_fn, context);
}
static inline memopt_status test_sync_dir(void *user, const char *path) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_sync_dir(NULL, path);
}
static inline memopt_status test_lock(void *user, void *file) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_lock(NULL, file);
}
static inline memopt_status test_queue_open(void *user, int depth, void **queue) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_MEMORY : memopt_i_system_queue_open(NULL, depth, queue);
}
static inline void test_queue_close(void *user, void *queue) { (void)user; memopt_i_system_queue_close(NULL, queue); }
static inline memopt_status test_begin(void *user, void *queue, int slot, void *file, memopt_transfer kind, uint64_t offset, void *bytes, size_t count) {
    return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : memopt_i_system_begin(NULL, queue, slot, file, kind, offset, bytes, count);
}
static inline memopt_status test_wait(void *user, void *queue, int slot, size_t *done) { /* it has ended whatever it returns */
    size_t moved = 0;
    memopt_status s = memopt_i_system_wait(NULL, queue, slot, &moved);
    if (test_fails((test_faults *)user)) return MEMOPT_ERR_IO;
    if (!s) *done = moved;
    return s;
}
#endif
static inline memopt_host test_host(test_faults *f) {
    memopt_host h;
    memset(&h, 0, sizeof h);
    h.allocator.alloc_fn = test_alloc; h.allocator.free_fn = test_free; h.allocator.user = f;
#ifndef TEST_NO_FILES
    h.files.open_fn = test_open; h.files.close_fn = test_close; h.files.read_fn = test_read; h.files.write_fn = test_write;
    h.files.size_fn = test_size; h.files.resize_fn = test_resize; h.files.sync_fn = test_sync;
    h.files.rename_fn = test_rename; h.files.remove_fn = test_remove; h.files.user = f;
    h.files.reserve_fn = test_reserve; h.files.align_fn = test_align; h.files.make_dir_fn = test_make_dir;
    h.files.list_dir_fn = test_list_dir; h.files.sync_dir_fn = test_sync_dir;
    h.files.queue_open_fn = test_queue_open; h.files.queue_close_fn = test_queue_close; h.files.begin_fn = test_begin; h.files.wait_fn = test_wait;
    h.files.lock_fn = test_lock;
#endif
    h.clock.now_fn = test_now; h.clock.user = f;
    return h;
}
#endif
