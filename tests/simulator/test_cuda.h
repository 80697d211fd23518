/* test_cuda.h - what every test of memopt_cuda.cu needs: test.h, the file itself, and device memory that is watched.

   The same tests run on the simulator, under any sanitizer, and, compiled by nvcc, on a card: there test_on_card() is
   1, there is one schedule, and what a test asks of the simulator does nothing. */
#ifndef MEMOPT_TEST_CUDA_H
#define MEMOPT_TEST_CUDA_H
#define MEMOPT_STATIC
#define MEMOPT_NO_SIMD
#define MEMOPT_CUDA_STATIC
#include "test.h"
#include <cuda_runtime.h>
#ifndef __CUDACC__
#  if defined(__GNUC__)
#    pragma GCC diagnostic push
#    pragma GCC diagnostic ignored "-Wunused-function" /* a test uses a part of the file */
#  endif
#endif
#include "memopt_cuda.cu"
#ifndef __CUDACC__
#  if defined(__GNUC__)
#    pragma GCC diagnostic pop
#  endif
static inline int test_on_card(void) { return 0; }
#else
static inline int test_on_card(void) { return 1; }
/* A card cannot be told to fail: see simulator.h. */
enum { MODE_EAGER, MODE_LAZY, MODE_RANDOM };
enum {
    LIVE_DEVICE_BYTES, LIVE_PINNED_BYTES, LIVE_MANAGED_BYTES, LIVE_STREAMS, LIVE_EVENTS,
    LIVE_RESERVATIONS, LIVE_HANDLES, LIVE_MAPPINGS, LIVE_KINDS
};
static inline void simulator_schedule(int) {}
static inline void simulator_streams(int, uint64_t) {}
static inline void simulator_fail_malloc(size_t) {}
static inline void simulator_fail_launch(size_t) {}
static inline void simulator_fail_call(size_t) {}
static inline void simulator_pending_error(int) {}
static inline size_t simulator_calls(void) { return 0; }
static inline size_t simulator_launches(void) { return 0; }
static inline size_t simulator_synchronisations(void) { return 0; }
static inline void simulator_run_blocks(size_t, size_t) {}
static inline void simulator_sparse(size_t) {}
static inline void simulator_devices(int) {}
static inline void simulator_memory(size_t) {}
static inline void simulator_capability(int, int) {}
static inline void simulator_attribute(int, int) {}
static inline void simulator_compiled(int) {}
static inline unsigned simulator_bank_conflicts(void) { return 1; }
static inline size_t simulator_live(int) { return 0; }
static inline size_t simulator_findings(void) { return 0; }
static inline const char *simulator_log(void) { return ""; }
static inline void simulator_forget(void) {}
static inline void simulator_quiet(int) {}
static inline size_t simulator_end_test(void) { return 0; }
static inline void simulator_totals(void) {}
#endif

/* ---- device memory of a test ------------------------------------------------------------------------------------- */
enum { TEST_DEVICE_BLOCKS = 4096, TEST_DEVICE_MARGIN = 64, TEST_DEVICE_BYTE = 0xA6 };
static struct test_device_block {
    unsigned char *base;
    size_t before, bytes, after; /* margins; `after` on a card only, where nobody else watches */
} test_device_blocks[TEST_DEVICE_BLOCKS];
static int test_device_count;

static inline void test_cuda_must(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    printf("test_cuda.h: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
static inline void test_synchronize(void) { test_cuda_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
/* A card's cudaMemset(), and the end of its cudaMemcpy() from memory that is not pinned, come after the call, and no
   stream of a test's own waits for them. */
static inline void test_settle(void) { if (test_on_card()) test_synchronize(); }
/* So many bytes of NaN, `offset` bytes into an aligned block; freed after the RUN, and what is around must be whole. */
static inline void *test_device_at(size_t bytes, size_t offset) {
    struct test_device_block *const b = &test_device_blocks[test_device_count];
    void *base = NULL;
    if (test_device_count == TEST_DEVICE_BLOCKS) { printf("test_cuda.h: too many blocks\n"); exit(1); }
    b->before = offset;
    b->bytes = bytes;
    b->after = test_on_card() ? (size_t)TEST_DEVICE_MARGIN : 0;
    test_cuda_must(cudaMalloc(&base, offset + bytes + b->after ? offset + bytes + b->after : 1), "cudaMalloc");
    b->base = (unsigned char *)base;
    ++test_device_count;
    if (offset) test_cuda_must(cudaMemset(b->base, TEST_DEVICE_BYTE, offset), "cudaMemset");
    if (b->after) test_cuda_must(cudaMemset(b->base + offset + bytes, TEST_DEVICE_BYTE, b->after), "cudaMemset");
    if (test_on_card() && bytes)
        test_cuda_must(cudaMemset(b->base + offset, 0xFF, bytes), "cudaMemset"); /* else it is */
    test_settle();
    return b->base + offset;
}
static inline void *test_device(size_t bytes) { return test_device_at(bytes, 0); }
static inline void test_put(void *d, const void *host, size_t bytes) {
    if (bytes) test_cuda_must(cudaMemcpy(d, host, bytes, cudaMemcpyHostToDevice), "test_put");
    test_settle();
}
static inline void test_get(void *host, const void *d, size_t bytes) {
    if (bytes) test_cuda_must(cudaMemcpy(host, d, bytes, cudaMemcpyDeviceToHost), "test_get");
}
static inline void test_poison(void *d, size_t bytes) { /* once more */
    if (bytes) test_cuda_must(cudaMemset(d, 0xFF, bytes), "test_poison");
    test_settle();
}
static inline int test_margin_whole(const unsigned char *d, size_t bytes) {
    unsigned char *const copy = (unsigned char *)malloc(bytes + 1);
    size_t i = 0;
    test_get(copy, d, bytes);
    while (i < bytes && copy[i] == TEST_DEVICE_BYTE) ++i;
    free(copy);
    return i == bytes;
}
/* Frees the blocks of this test from the `keep`-th on: for tests that need many. */
static inline int test_device_mark(void) { return test_device_count; }
static inline void test_device_free(int keep) {
    test_synchronize();
    while (test_device_count > keep) {
        struct test_device_block *const b = &test_device_blocks[--test_device_count];
        if (!test_margin_whole(b->base, b->before) || !test_margin_whole(b->base + b->before + b->bytes, b->after)) {
            ++test_failures;
            printf("a block of %zu bytes at offset %zu: something was written around it\n", b->bytes, b->before);
        }
        test_cuda_must(cudaFree(b->base), "cudaFree");
    }
}

/* ---- schedules and runs ------------------------------------------------------------------------------------------ */
static inline int test_schedule(int schedule, int count) {
    if (schedule < count && !test_on_card()) simulator_schedule(schedule);
    return schedule < (test_on_card() ? 1 : count);
}
#define TEST_SCHEDULES(n) for (int test_schedule_i = 0; test_schedule(test_schedule_i, n); ++test_schedule_i)

static void (*test_cuda_body)(void);
static inline void test_cuda_in_run(void) { /* the test, and what is left of it */
    test_cuda_body();
    simulator_fail_call(0);
    simulator_fail_malloc(0);
    simulator_fail_launch(0);
    if (!test_on_card()) (void)cudaSetDevice(0);
    test_device_free(0);
    test_failures += (int)simulator_end_test();
    if (test_on_card()) test_cuda_must(cudaGetLastError(), "an error nobody took");
}
static inline void test_cuda_run(const char *name, void (*test)(void)) {
    test_cuda_body = test;
    test_run(name, test_cuda_in_run);
}
static inline int test_cuda_totals(void) {
    simulator_totals();
    return test_totals();
}
#undef RUN
#define RUN(test) test_cuda_run(#test, test)
#define test_totals() test_cuda_totals()
#endif
