/* Memory of a device: sources under arenas, heaps and ledgers; transfers and the store under streams that run as late as
   they may, at once, or at random; and a tape over a device, held to the same network on the CPU, bit for bit. */
#include <cuda_runtime.h>
#if !defined(__CUDACC__) && !defined(MEMOPT_CUDA_CU)
/* Waits for events are counted, and one can be left out, to see that somebody notices. */
static long cuda_memory_waits, cuda_memory_skipped;
static inline cudaError_t cuda_memory_wait(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    ++cuda_memory_waits;
    return cuda_memory_waits == cuda_memory_skipped ? cudaSuccess : cudaStreamWaitEvent(stream, event, flags);
}
#  define cudaStreamWaitEvent cuda_memory_wait
#  define CUDA_MEMORY_WAITS 1
#endif
#include "test_cuda.h"
#include "heap_check.h"
#undef cudaStreamWaitEvent

enum { CUDA_MEMORY_ORDERS = 202 }; /* late, at once, and 200 seeds */
static int cuda_memory_order(int i) { /* 0 after the last, as a loop wants it */
#ifndef __CUDACC__
    simulator_streams(i == 0 ? MODE_LAZY : i == 1 ? MODE_EAGER : MODE_RANDOM, (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + 1);
#endif
    (void)i;
    return 1;
}
#define CUDA_MEMORY_EACH_ORDER(n) for (int order = 0; order < (test_on_card() ? 1 : (n)) && cuda_memory_order(order); ++order)

static void cuda_memory_schedule(int schedule) {
#ifndef __CUDACC__
    simulator_schedule(schedule);
#endif
    (void)schedule;
}
static void cuda_memory_fail_call(size_t k) {
#ifndef __CUDACC__
    simulator_fail_call(k);
#endif
    (void)k;
}
static void cuda_memory_fail_malloc(size_t k) {
#ifndef __CUDACC__
    simulator_fail_malloc(k);
#endif
    (void)k;
}
static void cuda_memory_pending(int code) {
#ifndef __CUDACC__
    simulator_pending_error(code);
#endif
    (void)code;
}
static size_t cuda_memory_calls(void) {
#ifndef __CUDACC__
    return simulator_calls();
#else
    return 0;
#endif
}
static size_t cuda_memory_free(void) {
    size_t left = 0, total = 0;
    test_cuda_must(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
    return left;
}
static int cuda_memory_device(void) {
    int device = -7;
    test_cuda_must(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}
static int cuda_memory_devices(void) {
    int count = 0;
    test_cuda_must(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return count;
}
static unsigned char *cuda_memory_bytes(size_t n, uint64_t seed) {
    unsigned char *p = (unsigned char *)malloc(n ? n : 1); size_t i;
    if (!p) { printf("no memory for the test\n"); exit(1); }
    for (i = 0; i < n; ++i) p[i] = (unsigned char)test_random(&seed);
    return p;
}
static int cuda_memory_all(const unsigned char *p, size_t n, unsigned char value) {
    size_t i = 0;
    while (i < n && p[i] == value) ++i;
    return i == n;
}

/* -- status -- */

static void cuda_memory_status_texts(void) {
    int i;
    for (i = -200; i < 9000; ++i) CHECK_AT(memopt_cuda_status_text(i) != NULL && memopt_cuda_status_text(i)[0], i);
    CHECK(!strcmp(memopt_cuda_status_text(0), memopt_status_text(MEMOPT_OK)));
    CHECK(!strcmp(memopt_cuda_status_text(-3), memopt_status_text(MEMOPT_ERR_MEMORY)));
    for (i = -106; i <= -101; ++i) CHECK_AT(strcmp(memopt_cuda_status_text(i), "no such status"), -i);
    CHECK(!strcmp(memopt_cuda_status_text(-107), "no such status"));
    CHECK(!strcmp(memopt_cuda_status_text(999), "no such status"));
    CHECK(!strcmp(memopt_cuda_status_text(8000), "no such status"));
    CHECK(!strcmp(memopt_cuda_status_text(MEMOPT_CUDA_BASE_RUNTIME + 2),
                  cudaGetErrorString(cudaErrorMemoryAllocation)));
    CHECK(!strcmp(memopt_cuda_status_text(MEMOPT_CUDA_BASE_PENDING + 700),
                  cudaGetErrorString(cudaErrorIllegalAddress)));
    CHECK(!strcmp(memopt_cuda_status_text(MEMOPT_CUDA_BASE_DRIVER + 2), cudaGetErrorString(cudaErrorMemoryAllocation)));
    CHECK(!strcmp(memopt_cuda_status_text(MEMOPT_CUDA_BASE_BLAS + 7), cublasLtGetStatusString((cublasStatus_t)7)));
    CHECK(memopt_cuda_to_status(MEMOPT_CUDA_BASE_RUNTIME + 2) == MEMOPT_ERR_MEMORY);
    CHECK(memopt_cuda_to_status(MEMOPT_CUDA_BASE_DRIVER + 2) == MEMOPT_ERR_MEMORY);
    CHECK(memopt_cuda_to_status(MEMOPT_CUDA_BASE_PENDING + 2) == MEMOPT_ERR_DEVICE);
    CHECK(memopt_cuda_to_status(MEMOPT_CUDA_ERR_NULL) == MEMOPT_ERR_ARGUMENT);
}

/* -- sources -- */

enum { CUDA_MEMORY_BLOCK, CUDA_MEMORY_PINNED, CUDA_MEMORY_MANAGED, CUDA_MEMORY_VISIBLE, CUDA_MEMORY_PAGES,
       CUDA_MEMORY_KINDS };
enum { CUDA_MEMORY_GRANULE = 2 << 20 };
static memopt_cuda_status cuda_memory_source(int kind, int device, memopt_cuda_memory *m, memopt_source *s) {
    switch (kind) {
    case CUDA_MEMORY_BLOCK:   return memopt_cuda_source_malloc(device, m, s);
    case CUDA_MEMORY_PINNED:  return memopt_cuda_source_pinned(device, m, s);
    case CUDA_MEMORY_MANAGED: return memopt_cuda_source_managed(device, 0, m, s);
    case CUDA_MEMORY_VISIBLE: return memopt_cuda_source_managed(device, 1, m, s);
    default:                  return memopt_cuda_source_pages(device, CUDA_MEMORY_GRANULE, NULL, m, s);
    }
}
static memopt_ledger *cuda_memory_ledger(void) {
    memopt_ledger *ledger = NULL;
    if (memopt_ledger_create(NULL, &ledger)) { printf("no memory for the test\n"); exit(1); }
    return ledger;
}
/* What each says of itself. */
static void cuda_memory_tables(void) {
    size_t left = 0, total = 0; int kind; memopt_cuda_memory m; memopt_source s;
    CHECK(memopt_cuda_memory_available(MEMOPT_CUDA_CURRENT_DEVICE, &left, &total) == 0 && left && left <= total);
    CHECK(memopt_cuda_memory_available(0, NULL, NULL) == 0);
    CHECK(memopt_cuda_memory_available(-2, &left, &total) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_memory_available(cuda_memory_devices(), &left, &total) == MEMOPT_ERR_ARGUMENT);
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) {
        memset(&m, 0x55, sizeof m);
        CHECK_AT(cuda_memory_source(kind, 0, &m, &s) == 0, kind);
        CHECK_AT(m.status == 0 && m.device == 0 && m.stream == NULL && m.free_bytes == 0 && !m.no_wait, kind);
        CHECK_AT(s.alignment == 256 && s.base_alignment >= 256 && s.user == &m && !s.fresh_is_zero, kind);
        CHECK_AT(s.kind == (kind == CUDA_MEMORY_PINNED ? MEMOPT_SOURCE_PINNED : MEMOPT_SOURCE_DEVICE), kind);
        CHECK_AT(s.host_visible == (kind == CUDA_MEMORY_PINNED || kind == CUDA_MEMORY_VISIBLE), kind);
        CHECK_AT(m.granularity == (kind == CUDA_MEMORY_PAGES ? (size_t)CUDA_MEMORY_GRANULE : 0), kind);
        CHECK_AT(s.capacity <= total || s.capacity == SIZE_MAX / 2, kind);
        { memopt_i_checks c = memopt_i_checks_begin(NULL, NULL); CHECK_AT(!memopt_i_source_check(&c, &s), kind); }
    }
}
static void cuda_memory_bad_sources(void) {
    int kind; memopt_cuda_memory m; memopt_source s, untouched;
    memset(&untouched, 0x33, sizeof untouched);
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) {
        s = untouched;
        CHECK_AT(cuda_memory_source(kind, 0, NULL, &s) == MEMOPT_CUDA_ERR_NULL, kind);
        CHECK_AT(cuda_memory_source(kind, 0, &m, NULL) == MEMOPT_CUDA_ERR_NULL, kind);
        CHECK_AT(cuda_memory_source(kind, -5, &m, &s) == MEMOPT_ERR_ARGUMENT, kind);
        CHECK_AT(cuda_memory_source(kind, cuda_memory_devices(), &m, &s) == MEMOPT_ERR_ARGUMENT, kind);
        CHECK_AT(!memcmp(&s, &untouched, sizeof s), kind);
        if (test_on_card()) continue;
        cuda_memory_pending(cudaErrorIllegalAddress);
        CHECK_AT(cuda_memory_source(kind, 0, &m, &s) == MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress, kind);
        CHECK_AT(cudaPeekAtLastError() == cudaErrorIllegalAddress, kind); /* still there */
        cuda_memory_pending(0);
        CHECK_AT(!memcmp(&s, &untouched, sizeof s), kind);
    }
    s = untouched;
    CHECK(memopt_cuda_source_managed(0, 2, &m, &s) == MEMOPT_ERR_ARGUMENT && memopt_cuda_source_managed(0, -1, &m, &s) == MEMOPT_ERR_ARGUMENT);
    CHECK(!memcmp(&s, &untouched, sizeof s));
    CHECK(memopt_cuda_source_pages(0, 3 << 20, NULL, &m, &s) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_source_pages(0, 4096, NULL, &m, &s) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_source_pages(0, ~(SIZE_MAX >> 1), NULL, &m, &s) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_source_pages(0, 0, NULL, &m, &s) == 0 && m.granularity == (size_t)32 << 20);
    CHECK(s.capacity % m.granularity == 0);
}
/* An arena on each: figures of the ledger, bytes, zeroes, rewinds. */
static void cuda_memory_arena_on(int kind, int device) {
    const size_t capacity = 3 * (size_t)CUDA_MEMORY_GRANULE; memopt_cuda_memory m; memopt_source s; memopt_arena_desc d;
    memopt_arena *a = NULL; memopt_mark mark; memopt_footprint held; unsigned char *p, *q, *back; size_t n = 12345;
    memopt_ledger *ledger = cuda_memory_ledger(); unsigned char *host = cuda_memory_bytes(n, 7);
    const size_t before = cuda_memory_free(); const int here = cuda_memory_device();
    back = cuda_memory_bytes(n, 8);
    CHECK(cuda_memory_source(kind, device, &m, &s) == 0);
    s.ledger = ledger;
    memset(&d, 0, sizeof d);
    d.source = &s; d.capacity = capacity; d.ledger = ledger;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
    held = memopt_ledger_footprint(ledger);
    CHECK(held.reserved == capacity && held.committed == (kind == CUDA_MEMORY_PAGES ? 0 : capacity));
    p = (unsigned char *)memopt_arena_push(a, n, MEMOPT_TAG_PARAMETERS);
    CHECK(p && (uintptr_t)p % 256 == 0);
    held = memopt_ledger_footprint(ledger);
    CHECK(held.committed == (kind == CUDA_MEMORY_PAGES ? (size_t)CUDA_MEMORY_GRANULE : capacity));
    CHECK(s.copy_in_fn(&s, p, host, n) == MEMOPT_OK && s.copy_out_fn(&s, back, p, n) == MEMOPT_OK);
    CHECK(!memcmp(host, back, n));
    mark = memopt_arena_mark(a);
    q = (unsigned char *)memopt_arena_push_zero(a, n, MEMOPT_TAG_GRADIENTS);
    CHECK(q && (uintptr_t)q % 256 == 0 && s.copy_out_fn(&s, back, q, n) == MEMOPT_OK && cuda_memory_all(back, n, 0));
    CHECK(s.copy_fn(&s, q, p, n) == MEMOPT_OK && s.copy_out_fn(&s, back, q, n) == MEMOPT_OK && !memcmp(host, back, n));
    CHECK(memopt_ledger_usage(ledger, MEMOPT_TAG_GRADIENTS).now >= n);
    CHECK(memopt_arena_rewind(a, mark) == MEMOPT_OK);
    q = (unsigned char *)memopt_arena_push_zero(a, n, MEMOPT_TAG_GRADIENTS); /* used before: it must be written */
    CHECK(q && s.copy_out_fn(&s, back, q, n) == MEMOPT_OK && cuda_memory_all(back, n, 0));
    if (s.host_visible) { /* the CPU's as well */
        memcpy(q, host, n);
        CHECK(s.copy_out_fn(&s, back, q, n) == MEMOPT_OK && !memcmp(host, back, n));
    }
    CHECK(memopt_arena_check(a) == MEMOPT_OK);
    CHECK(s.zero_fn(&s, p, 0) == MEMOPT_OK && s.copy_fn(&s, q, p, 0) == MEMOPT_OK);
    memopt_arena_destroy(a);
    held = memopt_ledger_footprint(ledger);
    CHECK(held.reserved == 0 && held.committed == 0 && memopt_ledger_total(ledger).now == 0);
    CHECK(m.status == 0 && cuda_memory_device() == here);
    if (!test_on_card()) CHECK(cuda_memory_free() == before);
    memopt_ledger_destroy(ledger);
    free(host); free(back);
}
static void cuda_memory_arenas(void) {
    int kind;
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) {
        CUDA_MEMORY_EACH_ORDER(4) cuda_memory_arena_on(kind, MEMOPT_CUDA_CURRENT_DEVICE);
        if (cuda_memory_devices() > 1) cuda_memory_arena_on(kind, 1);
    }
}
/* Every call fails in turn, wherever it is: a status that says why, nothing left behind, the device as it was. */
static void cuda_memory_failures_on(int kind, int device) {
    const int here = cuda_memory_device(); const size_t before = cuda_memory_free(); unsigned char host[64]; size_t k;
    for (k = 1; k < 1000; ++k) {
        memopt_cuda_memory m; memopt_source s; memopt_arena_desc d; memopt_arena *a = NULL; memopt_cuda_status why;
        void *p = NULL; int failed = 0; const size_t calls = cuda_memory_calls();
        memset(&m, 0, sizeof m);
        memset(&d, 0, sizeof d);
        cuda_memory_fail_call(k);
        why = cuda_memory_source(kind, device, &m, &s);
        if (!why) {
            d.source = &s; d.capacity = 3 * (size_t)CUDA_MEMORY_GRANULE;
            failed = memopt_arena_create(&d, &a) != MEMOPT_OK;
            CHECK_AT(!failed == !!a, k);
        }
        if (a) {
            p = memopt_arena_push_zero(a, 2 * (size_t)CUDA_MEMORY_GRANULE, MEMOPT_TAG_OTHER);
            failed |= !p;
        }
        if (p) failed |= s.copy_in_fn(&s, p, host, 64) != MEMOPT_OK || s.copy_fn(&s, (char *)p + 1, p, 63) != MEMOPT_OK
            || s.copy_out_fn(&s, host, p, 64) != MEMOPT_OK || memopt_arena_trim(a) != MEMOPT_OK;
        cuda_memory_fail_call(0);
        if (why) CHECK_AT(why > 0, k);
        else if (failed) CHECK_AT(m.status != 0, k);
        CHECK_AT(cudaPeekAtLastError() == cudaSuccess, k); /* told, so taken */
        (void)cudaGetLastError();
        /* A device that cannot be put back stays; nobody can do anything then. */
        if (cuda_memory_device() != here) test_cuda_must(cudaSetDevice(here), "cudaSetDevice");
        if (!why) { /* what has failed can be done again */
            if (a && !p) p = memopt_arena_push_zero(a, 2 * (size_t)CUDA_MEMORY_GRANULE, MEMOPT_TAG_OTHER);
            CHECK_AT(!a == !p, k);
            memset(host, 1, sizeof host);
            if (p) CHECK_AT(s.copy_in_fn(&s, p, host, 64) == MEMOPT_OK && s.copy_out_fn(&s, host, p, 64) == MEMOPT_OK, k);
            memopt_arena_destroy(a);
        }
        CHECK_AT(cuda_memory_free() == before, k);
        if (!why && !failed && cuda_memory_calls() - calls < k) return;
    }
    CHECK(k < 1000);
}
static void cuda_memory_failures(void) {
    int kind;
    if (test_on_card()) { SKIP("calls fail on demand on the simulator only"); return; }
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) {
        cuda_memory_failures_on(kind, MEMOPT_CUDA_CURRENT_DEVICE);
        cuda_memory_failures_on(kind, 1);
    }
}
/* A range that is given back is there, all of it, or it is not, as the status says: also where the device that was
   current before cannot be put back. */
static void cuda_memory_decommit_failures(void) {
    const int here = cuda_memory_device(); size_t k; unsigned char host[16];
    if (test_on_card()) { SKIP("calls fail on demand on the simulator only"); return; }
    for (k = 1; k < 100; ++k) {
        memopt_cuda_memory m; memopt_source s; void *base = NULL; memopt_status given; const size_t two = 2 * (size_t)CUDA_MEMORY_GRANULE;
        const size_t calls = cuda_memory_calls();
        CHECK(memopt_cuda_source_pages(1, CUDA_MEMORY_GRANULE, NULL, &m, &s) == 0);
        CHECK(s.reserve_fn(&s, two, &base) == MEMOPT_OK && s.commit_fn(&s, base, two) == MEMOPT_OK);
        const size_t made = cuda_memory_calls() - calls;
        cuda_memory_fail_call(k);
        given = s.decommit_fn(&s, base, two);
        cuda_memory_fail_call(0);
        CHECK_AT(simulator_live(LIVE_MAPPINGS) == (given ? 2u : 0u), k);
        test_cuda_must(cudaSetDevice(here), "cudaSetDevice");
        if (given) CHECK_AT(m.status != 0 && s.copy_in_fn(&s, base, host, 16) == MEMOPT_OK, k);
        s.release_fn(&s, base, two);
        CHECK_AT(cudaGetLastError() == cudaSuccess && !simulator_live(LIVE_MAPPINGS), k);
        if (!given && !m.status) break;
        CHECK_AT(k < made + 20, k);
    }
    CHECK(k > 4 && k < 100);
}
static void cuda_memory_full(void) { /* the device is full; in the middle of a commit too */
    int kind; size_t k;
    if (test_on_card()) { SKIP("memory runs out on demand on the simulator only"); return; }
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) for (k = 1; k <= 3; ++k) {
        memopt_cuda_memory m; memopt_source s; memopt_arena_desc d; memopt_arena *a = NULL; memopt_error e; void *p;
        const size_t before = cuda_memory_free();
        CHECK(cuda_memory_source(kind, 0, &m, &s) == 0);
        memset(&d, 0, sizeof d);
        d.source = &s; d.capacity = 4 * (size_t)CUDA_MEMORY_GRANULE;
        if (kind != CUDA_MEMORY_PAGES) {
            cuda_memory_fail_malloc(1);
            CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_MEMORY && !a);
            CHECK(m.status == MEMOPT_CUDA_BASE_RUNTIME + 2 && m.free_bytes == before);
            CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
        } else {
            CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
            cuda_memory_fail_malloc(k);
            CHECK(!memopt_arena_push(a, 3 * (size_t)CUDA_MEMORY_GRANULE, MEMOPT_TAG_OTHER));
            e = memopt_arena_error(a);
            CHECK(e.status == MEMOPT_ERR_MEMORY && m.status == MEMOPT_CUDA_BASE_DRIVER + 2 && m.free_bytes == before);
            CHECK(cuda_memory_free() == before && memopt_arena_get_stats(a).committed == 0); /* undone */
        }
        cuda_memory_fail_malloc(0);
        p = memopt_arena_push_zero(a, 3 * (size_t)CUDA_MEMORY_GRANULE, MEMOPT_TAG_OTHER);
        CHECK(p != NULL);
        memopt_arena_destroy(a);
        CHECK(cuda_memory_free() == before);
    }
}
static void cuda_memory_pending_errors(void) {
    int kind; unsigned char host[16];
    if (test_on_card()) { SKIP("errors are pending on demand on the simulator only"); return; }
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) {
        const memopt_cuda_status earlier = MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress;
        memopt_cuda_memory m; memopt_source s; void *base = NULL, *other = NULL; const size_t before = cuda_memory_free();
        CHECK(cuda_memory_source(kind, 0, &m, &s) == 0);
        CHECK(s.reserve_fn(&s, CUDA_MEMORY_GRANULE, &base) == MEMOPT_OK);
        if (s.commit_fn) CHECK(s.commit_fn(&s, base, CUDA_MEMORY_GRANULE) == MEMOPT_OK);
        cuda_memory_pending(cudaErrorIllegalAddress);
        CHECK(s.reserve_fn(&s, CUDA_MEMORY_GRANULE, &other) == MEMOPT_ERR_DEVICE && !other && m.status == earlier);
        m.status = 0;
        CHECK(s.zero_fn(&s, base, 16) == MEMOPT_ERR_DEVICE && m.status == earlier);
        m.status = 0;
        CHECK(s.copy_in_fn(&s, base, host, 16) == MEMOPT_ERR_DEVICE && m.status == earlier);
        CHECK(s.copy_out_fn(&s, host, base, 16) == MEMOPT_ERR_DEVICE && s.copy_fn(&s, base, base, 16) == MEMOPT_ERR_DEVICE);
        if (s.commit_fn) CHECK(s.decommit_fn(&s, base, CUDA_MEMORY_GRANULE) == MEMOPT_ERR_DEVICE);
        CHECK(memopt_cuda_memory_available(0, NULL, NULL) == earlier);
        s.release_fn(&s, base, CUDA_MEMORY_GRANULE); /* in any case */
        CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress); /* not swallowed */
        cuda_memory_pending(0);
        CHECK(cuda_memory_free() == before);
    }
}

/* -- copies that overlap, and what waits for whom -- */

static void cuda_memory_overlaps(void) {
    static const size_t sizes[] = { 1, 31, 256, 257, 8191, 8192, 8193, 20000 };
    static const size_t far[] = { 65535, 65536, 65537, 100000 };
    memopt_cuda_memory m; memopt_source s; size_t i, k; const size_t n = 400000;
    unsigned char *host = cuda_memory_bytes(n, 3), *expect = cuda_memory_bytes(n, 3), *back = cuda_memory_bytes(n, 4);
    unsigned char *d = (unsigned char *)test_device(n);
    CHECK(memopt_cuda_source_malloc(MEMOPT_CUDA_CURRENT_DEVICE, &m, &s) == 0);
    TEST_SCHEDULES(8) for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) for (k = 0; k < 6; ++k) {
        const size_t apart = k == 0 ? 0 : k == 1 ? 1 : k == 2 ? 17 : k == 3 ? 1024 : k == 4 ? sizes[i] / 2 : sizes[i];
        const size_t from = 40000, to = i % 2 ? from + apart : from - apart;
        memcpy(expect, host, n);
        memmove(expect + to, host + from, sizes[i]);
        test_put(d, host, n);
        CHECK_AT(s.copy_fn(&s, d + to, d + from, sizes[i]) == MEMOPT_OK, sizes[i] * 10 + k);
        test_get(back, d, n);
        CHECK_AT(!memcmp(back, expect, n), sizes[i] * 10 + k);
    }
    for (i = 0; i < 4; ++i) for (k = 0; k < 2; ++k) { /* in pieces */
        const size_t from = 100001, to = k ? from + far[i] : from - far[i], bytes = 190000;
        memcpy(expect, host, n);
        memmove(expect + to, host + from, bytes);
        test_put(d, host, n);
        CHECK_AT(s.copy_fn(&s, d + to, d + from, bytes) == MEMOPT_OK, far[i]);
        test_get(back, d, n);
        CHECK_AT(!memcmp(back, expect, n), far[i]);
    }
    free(host); free(expect); free(back);
}
static __global__ void cuda_memory_fill_kernel(unsigned char *p, size_t n, int value) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = (unsigned char)value;
}
static void cuda_memory_fill(unsigned char *p, size_t n, int value, cudaStream_t stream) {
    if (n) MEMOPT_I_CUDA_LAUNCH(cuda_memory_fill_kernel, (unsigned)((n + 255) / 256), 256, 0, stream, p, n, value);
}
static cudaStream_t cuda_memory_stream(void) {
    cudaStream_t stream = NULL;
    test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
}
static void cuda_memory_no_stream(cudaStream_t stream) {
    test_cuda_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    test_cuda_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}
/* zero and copies come after what the source's stream was given, and are there when they return; with no_wait they are
   in the stream's order. */
static void cuda_memory_waiting(void) {
    const size_t n = 1000; unsigned char host[1000]; int kind, lazy;
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) for (lazy = 0; lazy < 2; ++lazy) CUDA_MEMORY_EACH_ORDER(20) {
        memopt_cuda_memory m; memopt_source s; void *base = NULL; cudaStream_t other = cuda_memory_stream();
        unsigned char *p;
        CHECK(cuda_memory_source(kind, MEMOPT_CUDA_CURRENT_DEVICE, &m, &s) == 0);
        m.stream = cuda_memory_stream(); m.no_wait = lazy;
        CHECK(s.reserve_fn(&s, CUDA_MEMORY_GRANULE, &base) == MEMOPT_OK);
        if (s.commit_fn) CHECK(s.commit_fn(&s, base, CUDA_MEMORY_GRANULE) == MEMOPT_OK);
        p = (unsigned char *)base;
        cuda_memory_fill(p, n, 5, m.stream);
        CHECK(s.zero_fn(&s, p, n - 1) == MEMOPT_OK);
        if (!lazy) { /* done: any other stream finds it */
            test_cuda_must(cudaMemcpyAsync(host, p, n, cudaMemcpyDefault, other), "cudaMemcpyAsync");
            test_cuda_must(cudaStreamSynchronize(other), "cudaStreamSynchronize");
            CHECK_AT(cuda_memory_all(host, n - 1, 0) && host[n - 1] == 5, order);
        }
        memset(host, 9, n);
        CHECK(s.copy_in_fn(&s, p, host, 10) == MEMOPT_OK);
        memset(host, 1, n);                   /* the host's again */
        CHECK(s.copy_fn(&s, p + 20, p, 10) == MEMOPT_OK);
        CHECK(s.copy_out_fn(&s, host, p, n) == MEMOPT_OK);
        CHECK_AT(cuda_memory_all(host, 10, 9) && cuda_memory_all(host + 20, 10, 9), order);
        CHECK_AT(cuda_memory_all(host + 30, n - 31, 0) && host[n - 1] == 5, order);
        cuda_memory_fill(p, n, 6, m.stream); /* release waits for it */
        s.release_fn(&s, base, CUDA_MEMORY_GRANULE);
        CHECK(m.status == 0);
        cuda_memory_no_stream(m.stream);
        cuda_memory_no_stream(other);
    }
}

/* -- growing -- */

static void cuda_memory_growing(void) {
    const size_t g = CUDA_MEMORY_GRANULE;
    memopt_cuda_memory m; memopt_source s; memopt_arena_desc d; memopt_footprint held;
    memopt_arena *a = NULL; memopt_ledger *ledger = cuda_memory_ledger(); unsigned char *first, *p; size_t i; int ok = 1;
    memopt_mark mark; unsigned char host[64]; const size_t before = cuda_memory_free();
    CHECK(memopt_cuda_source_pages(MEMOPT_CUDA_CURRENT_DEVICE, g, NULL, &m, &s) == 0);
    s.ledger = ledger;
    memset(&d, 0, sizeof d);
    d.source = &s; d.ledger = ledger; /* capacity 0: as far as the device goes */
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
    CHECK(memopt_arena_get_stats(a).capacity == s.capacity);
    first = (unsigned char *)memopt_arena_push(a, 64, MEMOPT_TAG_PARAMETERS);
    memset(host, 0x42, sizeof host);
    CHECK(first && s.copy_in_fn(&s, first, host, 64) == MEMOPT_OK);
    mark = memopt_arena_mark(a);
    for (i = 0; i < 10; ++i) { /* it grows, and nothing moves */
        p = (unsigned char *)memopt_arena_push(a, g, MEMOPT_TAG_ACTIVATIONS);
        ok &= p == first + 256 + i * g;
        cuda_memory_fill(p, 1, (int)i, NULL);
        cuda_memory_fill(p + g - 1, 1, (int)i, NULL);
    }
    CHECK(ok && memopt_arena_get_stats(a).committed == 11 * g);
    if (!test_on_card()) CHECK(cuda_memory_free() == before - 11 * g);
    held = memopt_ledger_footprint(ledger);
    CHECK(held.committed == 11 * g && held.committed_peak == 11 * g && held.reserved == s.capacity);
    p = (unsigned char *)memopt_arena_push_top(a, 100, MEMOPT_TAG_SCRATCH);
    CHECK(p != NULL && memopt_arena_get_stats(a).committed == 12 * g);
    cuda_memory_fill(p, 100, 3, NULL);
    CHECK(memopt_arena_rewind(a, mark) == MEMOPT_OK && memopt_arena_trim(a) == MEMOPT_OK);
    CHECK(memopt_arena_get_stats(a).committed == 2 * g && memopt_ledger_footprint(ledger).committed == 2 * g);
    if (!test_on_card()) CHECK(cuda_memory_free() == before - 2 * g);
    p = (unsigned char *)memopt_arena_push_zero(a, 3 * g, MEMOPT_TAG_ACTIVATIONS); /* and again, where it was */
    CHECK(p == first + 256);
    memset(host, 0, sizeof host);
    CHECK(s.copy_out_fn(&s, host, first, 64) == MEMOPT_OK && cuda_memory_all(host, 64, 0x42));
    CHECK(s.copy_out_fn(&s, host, p + 3 * g - 64, 64) == MEMOPT_OK && cuda_memory_all(host, 64, 0));
    memopt_arena_destroy(a);
    CHECK(m.status == 0 && memopt_ledger_footprint(ledger).committed == 0
          && memopt_ledger_footprint(ledger).reserved == 0);
    if (!test_on_card()) CHECK(cuda_memory_free() == before);
    memopt_ledger_destroy(ledger);
}
/* Any granule can go and come back, in any order; two reservations at once; release takes what is left. */
static void cuda_memory_granules(void) {
    enum { N = 7 }; const size_t g = CUDA_MEMORY_GRANULE; memopt_cuda_memory m; memopt_source s; void *base[2] = { 0, 0 };
    int there[2][N] = { { 0 } }, r, i, k; uint64_t seed = 11; size_t count = 0; const size_t before = cuda_memory_free();
    test_faults f; memopt_host host;
    memset(&f, 0, sizeof f);
    host = test_host(&f);
    CHECK(memopt_cuda_source_pages(MEMOPT_CUDA_CURRENT_DEVICE, g, &host, &m, &s) == 0);
    f.fail_on = f.calls + 1;
    CHECK(s.reserve_fn(&s, N * g, &base[0]) == MEMOPT_ERR_MEMORY && m.status == MEMOPT_ERR_MEMORY && !base[0]);
    for (r = 0; r < 2; ++r) CHECK(s.reserve_fn(&s, N * g, &base[r]) == MEMOPT_OK && (uintptr_t)base[r] % s.base_alignment == 0);
    for (k = 0; k < 300; ++k) {
        int last, what; unsigned char *at;
        r = (int)test_below(&seed, 2); i = (int)test_below(&seed, N); what = there[r][i];
        for (last = i + 1; last < N && there[r][last] == what && test_below(&seed, 3); ++last) {}
        at = (unsigned char *)base[r] + (size_t)i * g;
        if (what) CHECK_AT(s.decommit_fn(&s, at, (size_t)(last - i) * g) == MEMOPT_OK, k);
        else {
            CHECK_AT(s.commit_fn(&s, at, (size_t)(last - i) * g) == MEMOPT_OK, k);
            cuda_memory_fill(at, 1, k, NULL);
            cuda_memory_fill(at + (size_t)(last - i) * g - 1, 1, k, NULL);
        }
        for (; i < last; ++i) { there[r][i] = !what; count += what ? (size_t)-1 : 1; }
        if (!test_on_card()) CHECK_AT(cuda_memory_free() == before - count * g, k);
    }
    s.release_fn(&s, base[0], N * g);
    s.release_fn(&s, base[1], N * g);
    if (!test_on_card()) CHECK(cuda_memory_free() == before);
    CHECK(m.status == MEMOPT_ERR_MEMORY && f.live_blocks == 0 && f.bad_frees == 0); /* of the refused one, above */
}
/* A heap: lifetimes in any order, growth, trimming, and a step that is planned and replayed. */
static void cuda_memory_heap_on(int kind) {
    enum { N = 40 }; memopt_cuda_memory m; memopt_source s; memopt_heap_desc d; memopt_heap *h = NULL; uint64_t seed = 5;
    memopt_block block[N]; size_t bytes[N], i, step, released = 0; memopt_ledger *ledger = cuda_memory_ledger();
    unsigned char one[4]; const size_t before = cuda_memory_free(); memopt_heap_stats stats;
    CHECK(cuda_memory_source(kind, MEMOPT_CUDA_CURRENT_DEVICE, &m, &s) == 0);
    s.ledger = ledger;
    memset(&d, 0, sizeof d);
    d.source = &s; d.ledger = ledger; d.capacity = 32 * (size_t)CUDA_MEMORY_GRANULE;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_OK);
    memset(block, 0, sizeof block);
    for (i = 0; i < N; ++i) bytes[i] = 1 + test_below(&seed, 500000);
    for (step = 0; step < 3; ++step) {
        if (step == 1) CHECK(memopt_heap_record(h) == MEMOPT_OK);
        for (i = 0; i < N; ++i) {
            unsigned char *p;
            CHECK(memopt_heap_alloc(h, bytes[i], 0, MEMOPT_TAG_ACTIVATIONS, &block[i]) == MEMOPT_OK);
            p = (unsigned char *)memopt_heap_pointer(h, block[i]);
            CHECK((uintptr_t)p % 256 == 0);
            cuda_memory_fill(p, 1, (int)i, NULL);
            cuda_memory_fill(p + bytes[i] - 1, 1, (int)i, NULL);
            if (i % 3 == 2) CHECK(memopt_heap_free(h, block[i - 1]) == MEMOPT_OK);
        }
        for (i = 0; i < N; ++i) if (i % 3 != 1) {
            unsigned char *p = (unsigned char *)memopt_heap_pointer(h, block[i]);
            CHECK(s.copy_out_fn(&s, one, p, 1) == MEMOPT_OK && one[0] == (unsigned char)i);
            CHECK(s.copy_out_fn(&s, one, p + bytes[i] - 1, 1) == MEMOPT_OK && one[0] == (unsigned char)i);
        }
        for (i = 0; i < N; ++i) if (i % 3 != 1 || i + 1 == N) CHECK(memopt_heap_free(h, block[i]) == MEMOPT_OK);
        if (step == 1) {
            CHECK(memopt_heap_plan(h, NULL, NULL, NULL) == MEMOPT_OK);
            CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
        }
    }
    stats = memopt_heap_get_stats(h);
    CHECK(stats.used == 0 && stats.served == N && heap_check(h) == MEMOPT_OK);
    CHECK(memopt_ledger_footprint(ledger).committed == stats.reserved && memopt_ledger_total(ledger).now == 0);
    CHECK(memopt_heap_unplan(h) == MEMOPT_OK && memopt_heap_trim(h, &released) == MEMOPT_OK && released > 0);
    CHECK(memopt_ledger_footprint(ledger).committed == stats.reserved - released);
    memopt_heap_destroy(h);
    CHECK(m.status == 0 && memopt_ledger_footprint(ledger).reserved == 0);
    if (!test_on_card()) CHECK(cuda_memory_free() == before);
    memopt_ledger_destroy(ledger);
}
static void cuda_memory_heaps(void) {
    int kind;
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) cuda_memory_heap_on(kind);
}

/* -- transfers -- */

static __global__ void cuda_memory_add_kernel(unsigned char *p, size_t n, int value) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = (unsigned char)(p[i] + value);
}
static void cuda_memory_add(unsigned char *p, size_t n, int value, cudaStream_t stream) {
    if (n) MEMOPT_I_CUDA_LAUNCH(cuda_memory_add_kernel, (unsigned)((n + 255) / 256), 256, 0, stream, p, n, value);
}
static memopt_cuda_transfer *cuda_memory_transfer(size_t bucket) {
    memopt_cuda_transfer_desc d; memopt_cuda_transfer *t = NULL;
    memset(&d, 0, sizeof d);
    d.bucket_bytes = bucket;
    CHECK(memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, &d, &t) == 0);
    if (!t) { printf("no transfer for the test\n"); exit(1); }
    return t;
}
/* The caller's stream writes, `in` writes over, the stream adds, `out` reads, the stream destroys. 1: all as it should. */
static int cuda_memory_round(memopt_cuda_transfer *t, size_t n, size_t skew, cudaStream_t stream, unsigned char *d) {
    unsigned char *host = cuda_memory_bytes(n + 8, n), *sent = cuda_memory_bytes(n + 8, n), *back, *twice; size_t i; int ok;
    back = cuda_memory_bytes(n + 8, 1); twice = cuda_memory_bytes(n + 8, 2);
    d += skew;
    cuda_memory_fill(d, n + 1, 0x77, stream);
    ok = !memopt_cuda_transfer_in(t, d, sent + skew, n, stream);
    memset(sent, 0, n + 8); /* ours again */
    cuda_memory_add(d, n, 1, stream);
    ok &= !memopt_cuda_transfer_out(t, back + skew, d, n, stream);
    cuda_memory_add(d, n, 1, stream);
    ok &= !memopt_cuda_transfer_out(t, twice, d, n, stream);
    cuda_memory_fill(d, n, 0x11, stream);
    ok &= !memopt_cuda_transfer_in(t, d, host, n, stream); /* behind the out, over another stream */
    ok &= !memopt_cuda_transfer_wait(t);
    for (i = 0; i < n && ok; ++i)
        ok = back[skew + i] == (unsigned char)(host[skew + i] + 1) && twice[i] == (unsigned char)(host[skew + i] + 2);
    test_cuda_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (n) test_get(back, d, n + 1);
    ok = ok && (!n || (!memcmp(back, host, n) && back[n] == 0x77));
    free(host); free(sent); free(back); free(twice);
    return ok;
}
static void cuda_memory_transfers(void) {
    static const size_t sizes[] = { 0, 1, 255, 256, 257, 511, 512, 513, 767, 769, 1024, 1025, 4099 };
    memopt_cuda_transfer *t = cuda_memory_transfer(200); /* rounded up to 256 */
    cudaStream_t stream = cuda_memory_stream(); unsigned char *d = (unsigned char *)test_device(8192); size_t i;
    CUDA_MEMORY_EACH_ORDER(CUDA_MEMORY_ORDERS) for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        if (order > 40 && i % 4 != 1 && sizes[i] != 1025) continue;
        CHECK_AT(cuda_memory_round(t, sizes[i], i % 4, order % 3 ? stream : NULL, d), sizes[i] * 1000 + (size_t)order);
    }
    CHECK(memopt_cuda_transfer_destroy(t) == 0 && memopt_cuda_transfer_destroy(NULL) == 0);
    cuda_memory_no_stream(stream);
}
/* A wait left out is seen by some order: so the orders are worth something. */
static void cuda_memory_waits_matter(void) {
#ifdef CUDA_MEMORY_WAITS
    long all, k; memopt_cuda_transfer *t = cuda_memory_transfer(256); cudaStream_t stream = cuda_memory_stream();
    unsigned char *d = (unsigned char *)test_device(8192);
    cuda_memory_waits = 0; cuda_memory_skipped = 0;
    CHECK(cuda_memory_round(t, 1000, 0, stream, d));
    all = cuda_memory_waits;
    CHECK(all == 8); /* two for each of the four transfers */
    for (k = 1; k < all; ++k) { /* behind the last one comes nothing but a synchronisation */
        int seen = 0;
        CUDA_MEMORY_EACH_ORDER(CUDA_MEMORY_ORDERS) if (!seen) {
            cuda_memory_waits = 0; cuda_memory_skipped = k;
            seen = !cuda_memory_round(t, 1000, 0, stream, d);
            test_synchronize();
        }
        CHECK_AT(seen, k);
    }
    cuda_memory_skipped = 0;
    CHECK(memopt_cuda_transfer_destroy(t) == 0);
    cuda_memory_no_stream(stream);
#else
    SKIP("waits are left out on the simulator only, in a program of its own");
#endif
}
/* Two buckets go without anybody waiting, and so does all that a pinned store does. As long as nobody waits, nothing runs
   in the late order: another stream finds the bytes as they were. */
static int cuda_memory_peek(unsigned char *pinned, const unsigned char *d, unsigned char value, cudaStream_t other) {
    test_cuda_must(cudaMemcpyAsync(pinned, d, 512, cudaMemcpyDeviceToHost, other), "cudaMemcpyAsync");
    test_cuda_must(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    return cuda_memory_all(pinned, 512, value);
}
static void cuda_memory_beside(void) {
    unsigned char host[512], *d = (unsigned char *)test_device(512); cudaStream_t stream, other; memopt_cuda_transfer *t;
    void *pinned = NULL;
    if (test_on_card()) { SKIP("how late a copy runs is known on the simulator only"); return; }
    stream = cuda_memory_stream(); other = cuda_memory_stream();
    test_cuda_must(cudaHostAlloc(&pinned, 512, cudaHostAllocDefault), "cudaHostAlloc");
    t = cuda_memory_transfer(256);
    cuda_memory_order(0);
    memset(host, 5, sizeof host);
    CHECK(memopt_cuda_transfer_in(t, d, host, 512, stream) == 0);
    CHECK(cuda_memory_peek((unsigned char *)pinned, d, 0xFF, other)); /* nothing has run */
    test_cuda_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    CHECK(cuda_memory_peek((unsigned char *)pinned, d, 5, other));
    memset(host, 6, sizeof host);
    CHECK(memopt_cuda_transfer_out(t, host, d, 512, stream) == 0 && cuda_memory_all(host, 512, 6));
    CHECK(memopt_cuda_transfer_wait(t) == 0 && cuda_memory_all(host, 512, 5));
    CHECK(memopt_cuda_transfer_destroy(t) == 0);
    test_cuda_must(cudaFreeHost(pinned), "cudaFreeHost");
    cuda_memory_no_stream(stream);
    cuda_memory_no_stream(other);
}
static void cuda_memory_buckets_told(void) { /* bytes told beforehand, booked, and from an arena of the caller */
    memopt_cuda_transfer_desc d; memopt_cuda_transfer *t = NULL; size_t bytes = 0; memopt_ledger *ledger = cuda_memory_ledger();
    memopt_cuda_memory m; memopt_source s; memopt_arena_desc ad; memopt_arena *a = NULL; test_faults f; memopt_host host;
    unsigned char *block = (unsigned char *)test_device(8192);
    memset(&f, 0, sizeof f);
    host = test_host(&f);
    memset(&d, 0, sizeof d);
    CHECK(memopt_cuda_transfer_bytes(NULL, &bytes) == 0 && bytes == (size_t)16 << 20);
    CHECK(memopt_cuda_transfer_bytes(&d, NULL) == MEMOPT_CUDA_ERR_NULL);
    d.bucket_bytes = SIZE_MAX;
    CHECK(memopt_cuda_transfer_bytes(&d, &bytes) == MEMOPT_ERR_OVERFLOW);
    d.bucket_bytes = SIZE_MAX / 2;
    CHECK(memopt_cuda_transfer_bytes(&d, &bytes) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_cuda_transfer_create(0, &d, &t) == MEMOPT_ERR_OVERFLOW && !t);
    d.bucket_bytes = 1000;
    CHECK(memopt_cuda_transfer_bytes(&d, &bytes) == 0 && bytes == 4096);
    d.ledger = ledger; d.host = &host;
    CHECK(memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, &d, &t) == 0);
    CHECK(memopt_ledger_usage(ledger, MEMOPT_TAG_COMMUNICATION).now == 4096 && f.live_blocks == 1 && f.live_bytes < 1024);
    CHECK(memopt_cuda_transfer_destroy(t) == 0);
    CHECK(memopt_ledger_total(ledger).now == 0 && f.live_blocks == 0 && f.bad_frees == 0);
    f.fail_on = f.calls + 1; t = NULL;
    CHECK(memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, &d, &t) == MEMOPT_ERR_MEMORY && !t);
    CHECK(memopt_cuda_source_pinned(MEMOPT_CUDA_CURRENT_DEVICE, &m, &s) == 0);
    memset(&ad, 0, sizeof ad);
    ad.source = &s; ad.capacity = bytes;
    CHECK(memopt_arena_create(&ad, &a) == MEMOPT_OK);
    d.pinned = memopt_arena_push(a, bytes, MEMOPT_TAG_COMMUNICATION);
    CHECK(memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, &d, &t) == 0 && memopt_ledger_total(ledger).now == 0);
    CUDA_MEMORY_EACH_ORDER(20) CHECK_AT(cuda_memory_round(t, 3000, 1, NULL, block), order);
    CHECK(memopt_cuda_transfer_destroy(t) == 0);
    t = NULL;
    d.pinned = (char *)d.pinned + 64;
    CHECK(memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, &d, &t) == MEMOPT_CUDA_ERR_ALIGNMENT && !t);
    memopt_arena_destroy(a);
    memopt_ledger_destroy(ledger);
}
static void cuda_memory_bad_transfers(void) {
    memopt_cuda_transfer *t = NULL; unsigned char host[600], *d = (unsigned char *)test_device(600);
    CHECK(memopt_cuda_transfer_create(0, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_create(-3, NULL, &t) == MEMOPT_ERR_ARGUMENT && !t);
    t = cuda_memory_transfer(256);
    memset(host, 7, sizeof host);
    CHECK(memopt_cuda_transfer_in(NULL, d, host, 1, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_in(t, NULL, host, 1, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_in(t, d, NULL, 1, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_out(t, NULL, d, 1, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_prefetch(t, NULL, host, 1, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_prefetch(NULL, d, host, 1, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_join(NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_wait(NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_transfer_in(t, NULL, NULL, 0, NULL) == 0 && memopt_cuda_transfer_out(t, NULL, NULL, 0, NULL) == 0);
    CHECK(memopt_cuda_transfer_prefetch(t, NULL, NULL, 0, NULL) == 0);
    if (!test_on_card()) { /* pending: reported, left, and nothing has moved */
        const memopt_cuda_status earlier = MEMOPT_CUDA_BASE_PENDING + cudaErrorLaunchFailure;
        memopt_cuda_transfer *other = NULL;
        cuda_memory_pending(cudaErrorLaunchFailure);
        CHECK(memopt_cuda_transfer_in(t, d, host, 600, NULL) == earlier);
        CHECK(memopt_cuda_transfer_out(t, host, d, 600, NULL) == earlier);
        CHECK(memopt_cuda_transfer_prefetch(t, d, host, 600, NULL) == earlier);
        CHECK(memopt_cuda_transfer_join(t, NULL) == earlier && memopt_cuda_transfer_wait(t) == earlier);
        CHECK(memopt_cuda_transfer_create(0, NULL, &other) == earlier && !other);
        CHECK(cudaPeekAtLastError() == cudaErrorLaunchFailure);
        cuda_memory_pending(0);
        CHECK(cuda_memory_all(host, 600, 7));
        test_get(host, d, 600);
        CHECK(cuda_memory_all(host, 600, 0xFF));
    }
    if (cuda_memory_devices() > 1) { /* a stream of another device */
        cudaStream_t stream; const int here = cuda_memory_device();
        test_cuda_must(cudaSetDevice(1 - here), "cudaSetDevice");
        stream = cuda_memory_stream();
        memset(host, 7, sizeof host);
        CHECK(memopt_cuda_transfer_in(t, d, host, 600, stream) == MEMOPT_CUDA_BASE_RUNTIME + cudaErrorInvalidResourceHandle);
        CHECK(memopt_cuda_transfer_out(t, host, d, 600, stream) == MEMOPT_CUDA_BASE_RUNTIME + cudaErrorInvalidResourceHandle);
        CHECK(cuda_memory_device() == 1 - here && cudaPeekAtLastError() == cudaSuccess && cuda_memory_all(host, 600, 7));
        cuda_memory_no_stream(stream);
        test_cuda_must(cudaSetDevice(here), "cudaSetDevice");
        test_get(host, d, 600);
        CHECK(cuda_memory_all(host, 600, 0xFF));
    }
    CHECK(memopt_cuda_transfer_destroy(t) == 0);
}
/* Every call fails in turn: nothing arrives late, and the transfer goes on working. */
static void cuda_memory_broken_transfers(void) {
    unsigned char *d = (unsigned char *)test_device(8192); size_t k; int what; const int here = cuda_memory_device();
    if (test_on_card()) { SKIP("calls fail on demand on the simulator only"); return; }
    for (what = 0; what < 2; ++what) CUDA_MEMORY_EACH_ORDER(6) for (k = 1; k < 1000; ++k) { /* what: on another device */
        memopt_cuda_transfer *t = NULL; unsigned char *host = cuda_memory_bytes(2000, 5), *back = cuda_memory_bytes(2000, 6);
        unsigned char *earlier = cuda_memory_bytes(300, 9); memopt_cuda_transfer_desc td; memopt_cuda_status s = 0;
        const size_t calls = cuda_memory_calls(); size_t made;
        memset(&td, 0, sizeof td);
        td.bucket_bytes = 256;
        if (what) test_cuda_must(cudaSetDevice(1), "cudaSetDevice");
        cuda_memory_fail_call(k);
        s = memopt_cuda_transfer_create(0, &td, &t);
        CHECK_AT(!s == !!t, k);
        if (t) {
            const memopt_cuda_status first = memopt_cuda_transfer_out(t, earlier, d, 300, NULL);
            const memopt_cuda_status up = memopt_cuda_transfer_in(t, d + 4096, host, 2000, NULL);
            const memopt_cuda_status down = memopt_cuda_transfer_out(t, back, d + 4096, 2000, NULL);
            if (down) memset(back, 0x3C, 2000); /* it may be anybody's now */
            made = cuda_memory_calls() - calls;
            cuda_memory_fail_call(0);
            CHECK_AT(memopt_cuda_transfer_wait(t) == 0, k);
            if (down) CHECK_AT(cuda_memory_all(back, 2000, 0x3C), k);
            else if (!up) CHECK_AT(!memcmp(back, host, 2000), k);
            if (!first) CHECK_AT(cuda_memory_all(earlier, 300, 0xFF), k); /* not taken along */
            s = memopt_i_cuda::first_error(up, down);
            s = memopt_i_cuda::first_error(s, first);
        } else made = cuda_memory_calls() - calls;
        cuda_memory_fail_call(0);
        CHECK_AT(cudaGetLastError() == cudaSuccess, k);
        test_cuda_must(cudaSetDevice(here), "cudaSetDevice");
        if (t) CHECK_AT(cuda_memory_round(t, 777, 0, NULL, d + 4096), k);
        CHECK_AT(memopt_cuda_transfer_destroy(t) == 0, k);
        free(host); free(back); free(earlier);
        if (!s && made < k) break;
    }
}
/* Parameters of the next layer while this one runs: two places, one stream of computing. */
static int cuda_memory_prefetch(memopt_cuda_transfer *t, const unsigned char *pinned, unsigned char *d, cudaStream_t stream) {
    enum { LAYERS = 12, N = 300 }; unsigned char *slot[2], *sum = d + 2 * N, got[N]; size_t i; int l, ok = 1; unsigned want;
    slot[0] = d; slot[1] = d + N;
    cuda_memory_fill(sum, N, 0, stream);
    ok &= !memopt_cuda_transfer_prefetch(t, slot[0], pinned, N, stream);
    for (l = 0; l < LAYERS; ++l) {
        ok &= !memopt_cuda_transfer_join(t, stream);
        if (l + 1 < LAYERS) ok &= !memopt_cuda_transfer_prefetch(t, slot[(l + 1) & 1], pinned + (l + 1) * N, N, stream);
        cuda_memory_add(slot[l & 1], N, l, stream); /* uses it; then into the sum, by a copy kept simple */
        test_cuda_must(cudaMemcpyAsync(sum + (size_t)(l + 1) * N, slot[l & 1], N, cudaMemcpyDeviceToDevice, stream), "copy");
    }
    test_cuda_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    for (l = 0; l < LAYERS; ++l) {
        test_get(got, sum + (size_t)(l + 1) * N, N);
        for (i = 0; i < N; ++i) { want = (unsigned)pinned[(size_t)l * N + i] + (unsigned)l; ok &= got[i] == (unsigned char)want; }
    }
    return ok;
}
static void cuda_memory_prefetches(void) {
    memopt_cuda_transfer *t = cuda_memory_transfer(256); cudaStream_t stream = cuda_memory_stream(); size_t i;
    unsigned char *d = (unsigned char *)test_device(16 * 300); void *pinned = NULL; uint64_t seed = 1;
    test_cuda_must(cudaHostAlloc(&pinned, 12 * 300, cudaHostAllocDefault), "cudaHostAlloc");
    for (i = 0; i < 12 * 300; ++i) ((unsigned char *)pinned)[i] = (unsigned char)test_random(&seed);
    CUDA_MEMORY_EACH_ORDER(CUDA_MEMORY_ORDERS)
        CHECK_AT(cuda_memory_prefetch(t, (const unsigned char *)pinned, d, stream), order);
#ifdef CUDA_MEMORY_WAITS
    { /* waits 8 to 11 are of the middle: of each the copy behind its place's reader, and the reader behind the copy */
        long k; int seen[4] = { 0, 0, 0, 0 };
        for (k = 8; k < 12; ++k) CUDA_MEMORY_EACH_ORDER(CUDA_MEMORY_ORDERS) {
            cuda_memory_waits = 0; cuda_memory_skipped = k;
            seen[k - 8] |= !cuda_memory_prefetch(t, (const unsigned char *)pinned, d, stream);
        }
        cuda_memory_skipped = 0;
        for (k = 0; k < 4; ++k) CHECK_AT(seen[k], k);
    }
#endif
    CHECK(memopt_cuda_transfer_destroy(t) == 0);
    cuda_memory_no_stream(stream);
    test_cuda_must(cudaFreeHost(pinned), "cudaFreeHost");
}

/* After a call that has failed nothing of it arrives: what it copies from is the caller's again. */
static void cuda_memory_broken_prefetches(void) {
    const int here = cuda_memory_device(); size_t k; memopt_cuda_status s = 1; unsigned char *d, got[300]; void *pinned = NULL;
    if (test_on_card()) { SKIP("calls fail on demand on the simulator only"); return; }
    test_cuda_must(cudaHostAlloc(&pinned, 300, cudaHostAllocPortable), "cudaHostAlloc");
    d = (unsigned char *)test_device(300);
    for (k = 1; s && k < 100; ++k) {
        memopt_cuda_transfer *t = cuda_memory_transfer(256);
        (void)cuda_memory_order(0); /* as late as it may */
        memset(pinned, 1, 300);
        test_cuda_must(cudaSetDevice(1), "cudaSetDevice");
        cuda_memory_fail_call(k);
        s = memopt_cuda_transfer_prefetch(t, d, pinned, 300, NULL);
        cuda_memory_fail_call(0);
        memset(pinned, 2, 300);
        test_cuda_must(cudaSetDevice(here), "cudaSetDevice");
        test_synchronize();
        test_get(got, d, 300);
        if (s) CHECK_AT(cuda_memory_all(got, 300, 0xFF) || cuda_memory_all(got, 300, 1), k);
        CHECK_AT(memopt_cuda_transfer_destroy(t) == 0 && cudaGetLastError() == cudaSuccess, k);
    }
    CHECK(k > 5 && k < 100);
    test_cuda_must(cudaFreeHost(pinned), "cudaFreeHost");
}

/* -- the store -- */

typedef struct cuda_memory_place { /* a store and what it stands on */
    memopt_cuda_memory memory; memopt_source source; memopt_cuda_transfer *transfer; memopt_cuda_store *store;
    memopt_tape_store table; memopt_ledger *ledger; size_t bytes;
} cuda_memory_place;
static void cuda_memory_place_open(cuda_memory_place *p, int pinned, size_t slots, size_t slot_bytes, cudaStream_t stream) {
    memopt_cuda_store_desc d;
    memset(p, 0, sizeof *p);
    memset(&d, 0, sizeof d);
    p->ledger = cuda_memory_ledger();
    p->transfer = cuda_memory_transfer(512);
    if (pinned) CHECK(memopt_cuda_source_pinned(MEMOPT_CUDA_CURRENT_DEVICE, &p->memory, &p->source) == 0);
    else CHECK(memopt_source_allocator(NULL, &p->source) == MEMOPT_OK);
    p->source.ledger = p->ledger;
    d.transfer = p->transfer; d.source = &p->source; d.slots = slots; d.slot_bytes = slot_bytes; d.stream = stream;
    d.ledger = p->ledger;
    CHECK(memopt_cuda_store_bytes(&d, &p->bytes) == 0 && p->bytes == slots * ((slot_bytes + 255) / 256 * 256));
    CHECK(memopt_cuda_store_create(&d, &p->store, &p->table) == 0);
    if (!p->store) { printf("no store for the test\n"); exit(1); }
    CHECK(memopt_ledger_footprint(p->ledger).reserved == p->bytes);
}
static void cuda_memory_place_close(cuda_memory_place *p) {
    CHECK(memopt_cuda_store_destroy(p->store) == 0 && memopt_cuda_transfer_destroy(p->transfer) == 0);
    CHECK(memopt_ledger_footprint(p->ledger).reserved == 0 && memopt_ledger_total(p->ledger).now == 0);
    memopt_ledger_destroy(p->ledger);
}
/* Values go and come in random order, while the stream makes them, writes over them and reads them. */
static int cuda_memory_store_walk(cuda_memory_place *p, unsigned char *d, size_t n, cudaStream_t stream, uint64_t seed,
                                  int steps) {
    enum { VALUES = 5 }; const memopt_tape_store *s = &p->table; int held[VALUES] = { 0 }, step, ok = 1; size_t v, many = 0;
    unsigned char *room = d + VALUES * n, *seen = room + n; unsigned char *back = cuda_memory_bytes(n * (size_t)steps, 1);
    unsigned char *want = cuda_memory_bytes((size_t)steps, 2);
    for (step = 0; step < steps; ++step) {
        v = test_below(&seed, VALUES);
        want[step] = 0;
        if (!held[v] && many < 3) { /* out; sometimes back at once, before anybody has waited */
            const int back_at_once = (int)test_below(&seed, 2);
            held[v] = 1 + (int)test_below(&seed, 100);
            ++many;
            cuda_memory_fill(room, n, 0xDD, stream);
            cuda_memory_fill(d + v * n, n, held[v], stream);
            ok &= !s->write_fn(s->user, v, d + v * n, n);
            if (back_at_once) { ok &= !s->read_fn(s->user, v, room, n); want[step] = (unsigned char)held[v]; }
            ok &= !s->wait_fn(s->user, v);
            cuda_memory_fill(d + v * n, n, 0xEE, stream); /* somebody else's */
        } else if (held[v]) { /* back; sometimes another one goes out into its slot at once */
            const int what = (int)test_below(&seed, 3);
            cuda_memory_fill(room, n, 0xDD, stream);
            if (what == 1) cuda_memory_fill(d + v * n, n, held[v] + 100, stream);
            ok &= !s->read_fn(s->user, v, room, n);
            want[step] = (unsigned char)held[v];
            if (what == 1) { held[v] += 100; ok &= !s->write_fn(s->user, v, d + v * n, n); }
            if (held[v] > 150) held[v] -= 100, ok &= !s->wait_fn(s->user, v), cuda_memory_fill(d + v * n, n, held[v], stream),
                ok &= !s->write_fn(s->user, v, d + v * n, n);
            if (what != 2) ok &= !s->wait_fn(s->user, v);
            else { s->forget_fn(s->user, v); held[v] = 0; --many; } /* that waits as well */
            cuda_memory_fill(d + v * n, n, 0xEE, stream);
        }
        test_cuda_must(cudaMemcpyAsync(seen + (size_t)step * n, room, n, cudaMemcpyDeviceToDevice, stream), "copy");
    }
    for (v = 0; v < VALUES; ++v) if (held[v]) s->forget_fn(s->user, v);
    test_cuda_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    test_get(back, seen, n * (size_t)steps);
    for (step = 0; step < steps; ++step) if (want[step]) ok &= cuda_memory_all(back + (size_t)step * n, n, want[step]);
    free(back); free(want);
    return ok && memopt_cuda_store_status(p->store) == 0;
}
static void cuda_memory_stores(void) {
    const size_t n = 1400; const int steps = 14; cudaStream_t stream = cuda_memory_stream(); int pinned;
    unsigned char *d = (unsigned char *)test_device(n * 20 + n * 14);
    for (pinned = 0; pinned < 2; ++pinned) {
        cuda_memory_place p;
        cuda_memory_place_open(&p, pinned, 3, n, stream);
        CUDA_MEMORY_EACH_ORDER(CUDA_MEMORY_ORDERS)
            CHECK_AT(cuda_memory_store_walk(&p, d, n, stream, (uint64_t)order, steps), order * 2 + pinned);
        CHECK(memopt_ledger_usage(p.ledger, MEMOPT_TAG_CHECKPOINTS).now == 0);
        cuda_memory_place_close(&p);
    }
    cuda_memory_no_stream(stream);
}
/* Of every wait of a pinned store somebody depends: left out, some order sees it. */
static void cuda_memory_store_waits(void) {
#ifdef CUDA_MEMORY_WAITS
    const size_t n = 700; cudaStream_t stream = cuda_memory_stream(); cuda_memory_place p; size_t all, k; int unseen = 0;
    unsigned char *d = (unsigned char *)test_device(n * 20 + n * 14);
    cuda_memory_place_open(&p, 1, 3, n, stream);
    cuda_memory_waits = cuda_memory_skipped = 0;
    CHECK(cuda_memory_store_walk(&p, d, n, stream, 3, 14));
    all = (size_t)cuda_memory_waits;
    for (k = 1; k <= all; ++k) {
        int seen = 0;
        CUDA_MEMORY_EACH_ORDER(60) if (!seen) {
            cuda_memory_waits = 0; cuda_memory_skipped = (long)k;
            seen = !cuda_memory_store_walk(&p, d, n, stream, 3, 14);
            test_synchronize();
        }
        unseen += !seen;
    }
    cuda_memory_skipped = 0;
    /* Not seen: the first use of a slot, that a tape's stream has waited before it forgets, and the wait in a read for a
       write that the stream has waited for. */
    CHECK_AT(unseen * 2 < (int)all, (size_t)unseen * 1000 + all);
    cuda_memory_place_close(&p);
    cuda_memory_no_stream(stream);
#else
    SKIP("waits are left out on the simulator only, in a program of its own");
#endif
}
static void cuda_memory_bad_stores(void) {
    cuda_memory_place p; memopt_cuda_store_desc d; memopt_cuda_store *store = NULL; memopt_tape_store table; size_t bytes, k;
    unsigned char *block = (unsigned char *)test_device(4096); memopt_cuda_memory m; memopt_source s, device; int pinned;
    for (pinned = 0; pinned < 2; ++pinned) {
        cuda_memory_place_open(&p, pinned, 2, 1000, NULL);
        CHECK(p.table.read_fn(p.table.user, 1, block, 1000) == MEMOPT_ERR_STATE); /* nothing there */
        CHECK(memopt_cuda_store_status(p.store) == MEMOPT_ERR_STATE);
        CHECK(p.table.wait_fn(p.table.user, 1) == MEMOPT_ERR_STATE);
        p.table.forget_fn(p.table.user, 1);
        CHECK(p.table.write_fn(p.table.user, 1, block, 1025) == MEMOPT_ERR_MEMORY);
        CHECK(p.table.write_fn(p.table.user, 1, block, 1000) == MEMOPT_OK);
        CHECK(p.table.write_fn(p.table.user, 1, block, 900) == MEMOPT_OK); /* again: the same slot */
        CHECK(memopt_ledger_usage(p.ledger, MEMOPT_TAG_CHECKPOINTS).now == 900);
        CHECK(p.table.write_fn(p.table.user, 2, block, 1000) == MEMOPT_OK);
        CHECK(p.table.write_fn(p.table.user, 3, block, 1000) == MEMOPT_ERR_MEMORY); /* full */
        CHECK(p.table.read_fn(p.table.user, 1, block, 1000) == MEMOPT_ERR_STATE);   /* not so many bytes */
        if (!test_on_card()) {
            cuda_memory_pending(cudaErrorLaunchFailure);
            CHECK(p.table.write_fn(p.table.user, 1, block, 900) == MEMOPT_ERR_DEVICE);
            CHECK(memopt_cuda_store_status(p.store) == MEMOPT_CUDA_BASE_PENDING + cudaErrorLaunchFailure);
            CHECK(p.table.read_fn(p.table.user, 2, block, 1000) == MEMOPT_ERR_DEVICE);
            CHECK(p.table.wait_fn(p.table.user, 2) == MEMOPT_ERR_DEVICE);
            cuda_memory_pending(0);
        }
        cuda_memory_place_close(&p); /* with a value in it */
    }
    p.transfer = cuda_memory_transfer(256);
    CHECK(memopt_cuda_source_pinned(MEMOPT_CUDA_CURRENT_DEVICE, &m, &s) == 0);
    memset(&d, 0, sizeof d);
    d.transfer = p.transfer; d.source = &s; d.slots = 2; d.slot_bytes = 300;
    CHECK(memopt_cuda_store_create(NULL, &store, &table) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_store_create(&d, NULL, &table) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_store_create(&d, &store, NULL) == MEMOPT_CUDA_ERR_NULL && !store);
    d.slots = 0;
    CHECK(memopt_cuda_store_create(&d, &store, &table) == MEMOPT_ERR_ARGUMENT && !store);
    d.slots = 2; d.slot_bytes = SIZE_MAX;
    CHECK(memopt_cuda_store_bytes(&d, &bytes) == MEMOPT_ERR_OVERFLOW);
    d.slot_bytes = 0;
    CHECK(memopt_cuda_store_bytes(&d, &bytes) == MEMOPT_ERR_ARGUMENT);
    d.slot_bytes = 300;
    CHECK(memopt_cuda_source_malloc(MEMOPT_CUDA_CURRENT_DEVICE, &m, &device) == 0);
    d.source = &device;
    CHECK(memopt_cuda_store_create(&d, &store, &table) == MEMOPT_ERR_ARGUMENT && !store); /* not the host's */
    d.source = &s;
    if (!test_on_card()) for (k = 1; k < 100; ++k) { /* every call of a creation, every call of its use */
        const size_t calls = cuda_memory_calls(), before = cuda_memory_free(); memopt_cuda_status why; int failed = 0;
        store = NULL;
        cuda_memory_fail_call(k);
        why = memopt_cuda_store_create(&d, &store, &table);
        CHECK_AT(!why == !!store, k);
        if (store) {
            failed = table.write_fn(store, 4, block, 300) || table.wait_fn(store, 4) || table.read_fn(store, 4, block, 300);
            table.forget_fn(store, 4);
        }
        cuda_memory_fail_call(0);
        if (failed) CHECK_AT(memopt_cuda_store_status(store) != 0, k);
        CHECK_AT(memopt_cuda_store_destroy(store) == 0 && cuda_memory_free() == before, k);
        CHECK_AT(cudaGetLastError() == cudaSuccess, k);
        if (!why && !failed && cuda_memory_calls() - calls < k) break;
    }
    CHECK(memopt_cuda_transfer_destroy(p.transfer) == 0);
}

/* A read that has failed brings nothing any more; nor does a store that is gone while its transfer stays. */
static void cuda_memory_broken_stores(void) {
    const int here = cuda_memory_device(); unsigned char *d = (unsigned char *)test_device(600), got[300], *block; size_t k; int pinned;
    if (test_on_card()) { SKIP("calls fail on demand on the simulator only"); return; }
    for (pinned = 0; pinned < 2; ++pinned) for (k = 1; k < 100; ++k) {
        cuda_memory_place p; memopt_status s; unsigned char *slot; cuda_memory_place_open(&p, pinned, 1, 300, NULL);
        slot = memopt_i_cuda::slot_at<>(p.store, p.store->slot);
        cuda_memory_fill(d, 300, 7, NULL);
        CHECK(p.table.write_fn(p.table.user, 1, d, 300) == MEMOPT_OK && memopt_cuda_transfer_wait(p.transfer) == 0);
        (void)cuda_memory_order(0);
        test_cuda_must(cudaSetDevice(1), "cudaSetDevice");
        cuda_memory_fail_call(k);
        s = p.table.read_fn(p.table.user, 1, d + 300, 300);
        cuda_memory_fail_call(0);
        test_cuda_must(cudaSetDevice(here), "cudaSetDevice");
        if (s) memset(slot, 9, 300);
        test_synchronize();
        test_get(got, d + 300, 300);
        if (s) CHECK_AT(memchr(got, 9, 300) == NULL, k);
        else CHECK_AT(cuda_memory_all(got, 300, 7), k);
        cuda_memory_place_close(&p);
        test_poison(d, 600);
        if (!s) break;
    }
    block = (unsigned char *)malloc(2048);
    for (k = 1; block && k < 100; ++k) {
        memopt_source source; memopt_cuda_store_desc sd; memopt_cuda_store *store = NULL; memopt_tape_store table;
        memopt_cuda_transfer *t = cuda_memory_transfer(256); memopt_cuda_status s; const size_t calls = cuda_memory_calls(); size_t made;
        CHECK(memopt_source_block(block, 2048, &source) == MEMOPT_OK);
        memset(&sd, 0, sizeof sd);
        sd.transfer = t; sd.source = &source; sd.slots = 1; sd.slot_bytes = 300;
        CHECK(memopt_cuda_store_create(&sd, &store, &table) == 0 && table.write_fn(table.user, 1, d, 300) == MEMOPT_OK);
        made = cuda_memory_calls() - calls;
        cuda_memory_fail_call(k);
        s = memopt_cuda_store_destroy(store);
        cuda_memory_fail_call(0);
        memset(block, 9, 2048); /* somebody else's */
        CHECK_AT(memopt_cuda_transfer_wait(t) == 0 && cuda_memory_all(block, 2048, 9), k);
        CHECK_AT(memopt_cuda_transfer_destroy(t) == 0 && cudaGetLastError() == cudaSuccess, k);
        if (!s) break;
        CHECK_AT(k < made + 50, k);
    }
    CHECK(k > 2 && k < 100);
    free(block);
}

/* -- a tape over a device -- */

/* A perceptron: layers of x W + b and GELU. Each number is made by one function for both sides, in one order, so a device
   and the CPU must give the same bits. */
enum { CUDA_MLP_LAYERS = 6, CUDA_MLP_ROWS = 4, CUDA_MLP_WIDTH = 18, CUDA_MLP_STEPS = 5,
       CUDA_MLP_VALUES = CUDA_MLP_ROWS * CUDA_MLP_WIDTH, CUDA_MLP_WEIGHTS = (CUDA_MLP_WIDTH + 1) * CUDA_MLP_WIDTH };
static __host__ __device__ __forceinline__ float cuda_mlp_linear(const float *x, const float *w, size_t i) {
    const size_t row = i / CUDA_MLP_WIDTH, column = i % CUDA_MLP_WIDTH; size_t k;
    float sum = w[CUDA_MLP_WIDTH * CUDA_MLP_WIDTH + column];
    for (k = 0; k < CUDA_MLP_WIDTH; ++k) sum = fmaf(x[row * CUDA_MLP_WIDTH + k], w[k * CUDA_MLP_WIDTH + column], sum);
    return sum;
}
static __host__ __device__ __forceinline__ float cuda_mlp_input(const float *g, const float *w, size_t i) {
    const size_t row = i / CUDA_MLP_WIDTH, column = i % CUDA_MLP_WIDTH; size_t k; float sum = 0;
    for (k = 0; k < CUDA_MLP_WIDTH; ++k) sum = fmaf(g[row * CUDA_MLP_WIDTH + k], w[column * CUDA_MLP_WIDTH + k], sum);
    return sum;
}
static __host__ __device__ __forceinline__ float cuda_mlp_weight(const float *x, const float *g, size_t i) {
    const size_t k = i / CUDA_MLP_WIDTH, column = i % CUDA_MLP_WIDTH; size_t row; float sum = 0;
    for (row = 0; row < CUDA_MLP_ROWS; ++row)
        sum = fmaf(k < CUDA_MLP_WIDTH ? x[row * CUDA_MLP_WIDTH + k] : 1.0f, g[row * CUDA_MLP_WIDTH + column], sum);
    return sum;
}
static __host__ __device__ __forceinline__ float cuda_mlp_loss(const float *y, const float *target) {
    float sum = 0; size_t i;
    for (i = 0; i < CUDA_MLP_VALUES; ++i) { const float d = memopt_i_sum(y[i], -target[i]); sum = fmaf(d, d, sum); }
    return sum;
}
enum { CUDA_MLP_FORWARD, CUDA_MLP_BEND, CUDA_MLP_INPUT, CUDA_MLP_WEIGHT, CUDA_MLP_GRAD, CUDA_MLP_LOSS, CUDA_MLP_STEP,
       CUDA_MLP_KEEP };
typedef struct cuda_mlp_job { float *to, *extra; const float *a, *b; size_t n; int what; } cuda_mlp_job;
static __host__ __device__ __forceinline__ void cuda_mlp_one(const cuda_mlp_job *j, size_t i) {
    float unused;
    switch (j->what) {
    case CUDA_MLP_FORWARD: {
        const float z = cuda_mlp_linear(j->a, j->b, i);
        if (j->extra) j->extra[i] = z;
        j->to[i] = memopt_i_v1_act(z, MEMOPT_ACTIVATION_GELU);
        break; }
    case CUDA_MLP_BEND:   j->to[i] = memopt_i_v1_act_grad(j->a[i], j->b[i], MEMOPT_ACTIVATION_GELU, &unused); break;
    case CUDA_MLP_INPUT:  j->to[i] = cuda_mlp_input(j->a, j->b, i); break;
    case CUDA_MLP_WEIGHT: j->to[i] = cuda_mlp_weight(j->a, j->b, i); break;
    case CUDA_MLP_GRAD:   j->to[i] = 2 * memopt_i_sum(j->a[i], -j->b[i]); break;
    case CUDA_MLP_LOSS:   j->to[i] = cuda_mlp_loss(j->a, j->b); break;
    case CUDA_MLP_STEP:   j->to[i] = fmaf(-0.05f, j->a[i], j->to[i]); break;
    default:              j->to[i] = j->a[i]; break;
    }
}
static __global__ void cuda_mlp_kernel(cuda_mlp_job job) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < job.n) cuda_mlp_one(&job, i);
}
typedef struct cuda_mlp {
    int on_device; cudaStream_t stream; float *weights, *grads, *grads_kept, *losses, *input, *target, *grad, *grad_input;
    size_t forwards; memopt_tape_layer layers[CUDA_MLP_LAYERS]; memopt_segment segments[CUDA_MLP_LAYERS];
} cuda_mlp;
static memopt_status cuda_mlp_do(cuda_mlp *m, int what, float *to, float *extra, const float *a, const float *b, size_t n) {
    cuda_mlp_job j; size_t i;
    j.to = to; j.extra = extra; j.a = a; j.b = b; j.n = n; j.what = what;
    if (!m->on_device) { for (i = 0; i < n; ++i) cuda_mlp_one(&j, i); return MEMOPT_OK; }
    MEMOPT_I_CUDA_LAUNCH(cuda_mlp_kernel, (unsigned)((n + 63) / 64), 64, 0, m->stream, j);
    return memopt_cuda_to_status(memopt_i_cuda::launched());
}
static memopt_status cuda_mlp_forward(const memopt_tape_call *s) {
    cuda_mlp *m = (cuda_mlp *)s->user;
    if (s->not_host_visible != (m->on_device ? 2 : 0)) return MEMOPT_ERR_STATE;
    ++m->forwards;
    return cuda_mlp_do(m, CUDA_MLP_FORWARD, (float *)s->output, (float *)s->saved, (const float *)s->input,
                       m->weights + s->segment * CUDA_MLP_WEIGHTS, CUDA_MLP_VALUES);
}
static memopt_status cuda_mlp_backward(const memopt_tape_call *s) {
    cuda_mlp *m = (cuda_mlp *)s->user; const float *w = m->weights + s->segment * CUDA_MLP_WEIGHTS;
    float *bent = (float *)s->scratch; memopt_status status;
    status = cuda_mlp_do(m, CUDA_MLP_BEND, bent, NULL, (const float *)s->saved, (const float *)s->grad_output,
                         CUDA_MLP_VALUES);
    if (!status) status = cuda_mlp_do(m, CUDA_MLP_WEIGHT, m->grads + s->segment * CUDA_MLP_WEIGHTS, NULL,
                                      (const float *)s->input, bent, CUDA_MLP_WEIGHTS);
    if (!status && s->grad_input)
        status = cuda_mlp_do(m, CUDA_MLP_INPUT, (float *)s->grad_input, NULL, bent, w, CUDA_MLP_VALUES);
    return status;
}
/* Everything that lives through the training, in one piece: weights, gradients, those of each step, losses, ends. */
enum { CUDA_MLP_ALL = CUDA_MLP_LAYERS * CUDA_MLP_WEIGHTS,
       CUDA_MLP_FLOATS = (2 + CUDA_MLP_STEPS) * CUDA_MLP_ALL + 64 + 4 * CUDA_MLP_VALUES };
static void cuda_mlp_begin(cuda_mlp *m, float *block, int on_device, cudaStream_t stream) {
    size_t i;
    memset(m, 0, sizeof *m);
    m->on_device = on_device; m->stream = stream;
    m->weights = block; m->grads = block + CUDA_MLP_ALL; m->grads_kept = block + 2 * CUDA_MLP_ALL;
    m->losses = block + (2 + CUDA_MLP_STEPS) * CUDA_MLP_ALL;
    m->input = m->losses + 64; m->target = m->input + CUDA_MLP_VALUES;
    m->grad = m->target + CUDA_MLP_VALUES; m->grad_input = m->grad + CUDA_MLP_VALUES;
    for (i = 0; i < CUDA_MLP_LAYERS; ++i) {
        const size_t bytes = CUDA_MLP_VALUES * sizeof(float); memopt_segment *s = &m->segments[i];
        m->layers[i].forward_fn = cuda_mlp_forward; m->layers[i].backward_fn = cuda_mlp_backward; m->layers[i].user = m;
        s->output_bytes = s->grad_bytes = bytes; s->saved_bytes = 2 * bytes; s->backward_scratch = bytes;
        s->forward_cost = 1; s->backward_cost = 2;
    }
}
static void cuda_mlp_values(float *block) {
    uint64_t seed = 99; size_t i;
    for (i = 0; i < CUDA_MLP_FLOATS; ++i) block[i] = (float)((double)(test_random(&seed) >> 40) / 8388608.0 - 1.0) * 0.4f;
}
static memopt_tape_desc cuda_mlp_desc(cuda_mlp *m, memopt_arena *arena, size_t budget) {
    memopt_tape_desc d;
    memset(&d, 0, sizeof d);
    d.chain.segments = m->segments; d.chain.count = CUDA_MLP_LAYERS;
    d.chain.input_bytes = d.chain.input_grad_bytes = CUDA_MLP_VALUES * sizeof(float);
    d.layers = m->layers; d.arena = arena; d.budget = budget;
    if (!budget) d.rule = MEMOPT_SCHEDULE_ALL;
    return d;
}
static memopt_status cuda_mlp_train(cuda_mlp *m, memopt_tape *tape) {
    memopt_status s = MEMOPT_OK; size_t step;
    for (step = 0; step < CUDA_MLP_STEPS && !s; ++step) {
        s = memopt_tape_forward(tape, m->input);
        if (s) return s;
        s = cuda_mlp_do(m, CUDA_MLP_LOSS, m->losses + step, NULL, (const float *)memopt_tape_output(tape), m->target, 1);
        if (!s) s = cuda_mlp_do(m, CUDA_MLP_GRAD, m->grad, NULL, (const float *)memopt_tape_output(tape), m->target,
                                CUDA_MLP_VALUES);
        if (!s) s = memopt_tape_backward(tape, m->grad, m->grad_input);
        if (!s) s = cuda_mlp_do(m, CUDA_MLP_KEEP, m->grads_kept + step * CUDA_MLP_ALL, NULL, m->grads, NULL, CUDA_MLP_ALL);
        if (!s) s = cuda_mlp_do(m, CUDA_MLP_STEP, m->weights, NULL, m->grads, NULL, CUDA_MLP_ALL);
        if (!s) s = cuda_mlp_do(m, CUDA_MLP_STEP, m->input, NULL, m->grad_input, NULL, CUDA_MLP_VALUES);
    }
    return s;
}
static float *cuda_mlp_on_the_cpu(void) { /* everything kept, in host memory: the reference */
    float *block = (float *)cuda_memory_bytes(CUDA_MLP_FLOATS * sizeof(float), 1); memopt_source s; memopt_arena_desc ad;
    memopt_arena *a = NULL; memopt_tape *tape = NULL; memopt_tape_desc d; cuda_mlp m;
    cuda_mlp_values(block);
    cuda_mlp_begin(&m, block, 0, NULL);
    CHECK(memopt_source_allocator(NULL, &s) == MEMOPT_OK);
    memset(&ad, 0, sizeof ad);
    ad.source = &s; ad.capacity = (size_t)1 << 20;
    CHECK(memopt_arena_create(&ad, &a) == MEMOPT_OK);
    d = cuda_mlp_desc(&m, a, 0);
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK && cuda_mlp_train(&m, tape) == MEMOPT_OK);
    CHECK(m.losses[0] > 0 && m.losses[CUDA_MLP_STEPS - 1] < m.losses[0]);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(a);
    return block;
}
/* A training on the device, with so much memory for the tape, under an order of streams. store: 0 none, 1 pinned, 2
   pageable. Returns the forwards; the bits are compared here. */
static size_t cuda_mlp_on_device(int kind, size_t budget, int store, const float *expect, int orders, size_t at) {
    const size_t bytes = CUDA_MLP_FLOATS * sizeof(float); memopt_cuda_memory memory; memopt_source source;
    memopt_arena_desc ad; memopt_arena *a = NULL; memopt_tape *tape = NULL; memopt_tape_desc d; cuda_mlp m; size_t forwards = 0;
    cudaStream_t stream = cuda_memory_stream(); float *first = (float *)malloc(bytes), *got = (float *)malloc(bytes);
    cuda_memory_place place; float *block; memopt_ledger *ledger = cuda_memory_ledger();
    cuda_mlp_values(first);
    CHECK(cuda_memory_source(kind, MEMOPT_CUDA_CURRENT_DEVICE, &memory, &source) == 0);
    memory.stream = stream;
    memset(&ad, 0, sizeof ad);
    ad.source = &source; ad.capacity = (size_t)CUDA_MEMORY_GRANULE; ad.ledger = ledger;
    CHECK(memopt_arena_create(&ad, &a) == MEMOPT_OK);
    block = (float *)memopt_arena_push(a, (bytes + 255) / 256 * 256, MEMOPT_TAG_PARAMETERS);
    cuda_mlp_begin(&m, block, 1, stream);
    d = cuda_mlp_desc(&m, a, budget);
    if (store) {
        cuda_memory_place_open(&place, store == 1, 3, CUDA_MLP_VALUES * sizeof(float), stream);
        d.store = place.table;
        d.offload.slots = 3; d.offload.write_cost = d.offload.read_cost = 0.1; d.offload.overlap = 1;
    }
    CHECK_AT(memopt_tape_create(&d, &tape) == MEMOPT_OK, at);
    if (tape) CUDA_MEMORY_EACH_ORDER(orders) {
        cuda_memory_schedule(order % 8);
        CHECK(source.copy_in_fn(&source, block, first, bytes) == MEMOPT_OK);
        m.forwards = 0;
        CHECK_AT(cuda_mlp_train(&m, tape) == MEMOPT_OK, at * 1000 + (size_t)order);
        CHECK(source.copy_out_fn(&source, got, block, bytes) == MEMOPT_OK);
        CHECK_AT(!memcmp(got, expect, bytes), at * 1000 + (size_t)order);
        forwards = m.forwards;
    }
    if (tape && budget) CHECK_AT(memopt_tape_get_stats(tape).peak <= budget, at);
    if (tape) CHECK_AT(memopt_ledger_usage(ledger, MEMOPT_TAG_ACTIVATIONS).peak == memopt_tape_get_stats(tape).peak, at);
    memopt_tape_destroy(tape);
    if (store) cuda_memory_place_close(&place);
    memopt_arena_destroy(a);
    CHECK(memopt_ledger_total(ledger).now == 0);
    memopt_ledger_destroy(ledger);
    cuda_memory_no_stream(stream);
    free(first); free(got);
    return forwards;
}
static size_t cuda_mlp_least(int store) {
    memopt_source s; memopt_arena_desc ad; memopt_arena *a = NULL; cuda_mlp m; memopt_tape_desc d; size_t least = 0;
    memopt_tape_store table; cuda_memory_place place;
    CHECK(memopt_source_counting(&s) == MEMOPT_OK);
    s.alignment = 256; /* as the device's */
    memset(&ad, 0, sizeof ad);
    memset(&table, 0, sizeof table);
    ad.source = &s; ad.capacity = (size_t)1 << 20;
    CHECK(memopt_arena_create(&ad, &a) == MEMOPT_OK);
    cuda_mlp_begin(&m, NULL, 1, NULL);
    d = cuda_mlp_desc(&m, a, 1);
    if (store) {
        cuda_memory_place_open(&place, 1, 3, CUDA_MLP_VALUES * sizeof(float), NULL);
        d.store = place.table;
        d.offload.slots = 3; d.offload.write_cost = d.offload.read_cost = 0.1; d.offload.overlap = 1;
    }
    CHECK(memopt_tape_min_budget(&d, &least) == MEMOPT_OK && least);
    if (store) cuda_memory_place_close(&place);
    memopt_arena_destroy(a);
    return least;
}
static void cuda_memory_tapes(void) {
    float *expect = cuda_mlp_on_the_cpu(); int kind, store; size_t i;
    const size_t all = 4 * (CUDA_MLP_LAYERS + 2) * (CUDA_MLP_VALUES * sizeof(float) + 256);
    CHECK(cuda_mlp_on_device(CUDA_MEMORY_BLOCK, 0, 0, expect, 10, 0) == CUDA_MLP_LAYERS * CUDA_MLP_STEPS);
    for (kind = 0; kind < CUDA_MEMORY_KINDS; ++kind) if (kind != CUDA_MEMORY_PINNED && kind != CUDA_MEMORY_VISIBLE)
        for (store = 0; store < 3; ++store) {
            const size_t least = cuda_mlp_least(store != 0); size_t before = 0, forwards;
            for (i = 0; i < 4; ++i) { /* from the least to all */
                const size_t budget = least + (all - least) * i / 3;
                forwards = cuda_mlp_on_device(kind, budget, store, expect, kind ? 4 : 12, i * 10 + (size_t)store);
                if (i && !store) CHECK_AT(forwards <= before, i);
                before = forwards;
            }
            if (!store) CHECK(before == CUDA_MLP_LAYERS * CUDA_MLP_STEPS);
        }
    free(expect);
}
static void cuda_memory_tape_orders(void) { /* the least memory, with a store: all the orders */
    float *expect = cuda_mlp_on_the_cpu(); const size_t least = cuda_mlp_least(1);
    (void)cuda_mlp_on_device(CUDA_MEMORY_PAGES, least, 1, expect, CUDA_MEMORY_ORDERS, 7);
    (void)cuda_mlp_on_device(CUDA_MEMORY_BLOCK, least, 2, expect, 60, 8);
    free(expect);
}
/* What a tape cannot do on a device it refuses, and what it could only do wrongly. */
static void cuda_memory_tape_refusals(void) {
    memopt_cuda_memory memory; memopt_source source; memopt_arena_desc ad; memopt_arena *a = NULL; memopt_tape *tape = NULL;
    cuda_mlp m; memopt_tape_desc d;
    CHECK(memopt_cuda_source_malloc(MEMOPT_CUDA_CURRENT_DEVICE, &memory, &source) == 0);
    memset(&ad, 0, sizeof ad);
    ad.source = &source; ad.capacity = 1 << 20;
    CHECK(memopt_arena_create(&ad, &a) == MEMOPT_OK);
    cuda_mlp_begin(&m, NULL, 1, NULL);
    d = cuda_mlp_desc(&m, a, 1 << 19);
    d.verify = 1;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_ERR_UNSUPPORTED && !tape);
    d.verify = 0; d.codec = MEMOPT_CODEC_BF16;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_ERR_UNSUPPORTED && !tape);
    memopt_arena_destroy(a);
}

/* Costs as the device has them: the clock waits for what a callback has queued. */
static void cuda_memory_clocks(void) {
    memopt_cuda_clock state; memopt_clock clock; test_faults f; memopt_host host; uint64_t t0 = 0, t1 = 0; void *pinned = NULL;
    cudaStream_t stream = cuda_memory_stream(); unsigned char *d = (unsigned char *)test_device(64);
    memset(&f, 0, sizeof f);
    host = test_host(&f);
    CHECK(memopt_cuda_clock_make(0, stream, &host, NULL, &clock) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_clock_make(0, stream, &host, &state, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_clock_make(99, stream, &host, &state, &clock) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_clock_make(MEMOPT_CUDA_CURRENT_DEVICE, stream, &host, &state, &clock) == 0);
    test_cuda_must(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault), "cudaHostAlloc");
    CUDA_MEMORY_EACH_ORDER(10) {
        memset(pinned, 0, 64);
        cuda_memory_fill(d, 64, 7, stream);
        test_cuda_must(cudaMemcpyAsync(pinned, d, 64, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
        CHECK(clock.now_fn(clock.user, &t0) == MEMOPT_OK && cuda_memory_all((unsigned char *)pinned, 64, 7));
        CHECK(clock.now_fn(clock.user, &t1) == MEMOPT_OK && t1 == t0 + 1000 && state.status == 0);
    }
    f.fail_on = f.calls + 1;
    CHECK(clock.now_fn(clock.user, &t1) == MEMOPT_ERR_IO);
    if (!test_on_card()) {
        cuda_memory_pending(cudaErrorLaunchFailure);
        CHECK(clock.now_fn(clock.user, &t1) == MEMOPT_ERR_DEVICE);
        CHECK(state.status == MEMOPT_CUDA_BASE_PENDING + cudaErrorLaunchFailure);
        cuda_memory_pending(0);
    }
    { /* under a tape */
        memopt_cuda_memory memory; memopt_source source; memopt_arena_desc ad; memopt_arena *a = NULL; memopt_tape *tape = NULL;
        cuda_mlp m; memopt_tape_desc td; memopt_host with; float *block;
        CHECK(memopt_cuda_source_malloc(MEMOPT_CUDA_CURRENT_DEVICE, &memory, &source) == 0);
        memset(&ad, 0, sizeof ad);
        ad.source = &source; ad.capacity = 1 << 20;
        CHECK(memopt_arena_create(&ad, &a) == MEMOPT_OK);
        block = (float *)memopt_arena_push_zero(a, CUDA_MLP_FLOATS * sizeof(float), MEMOPT_TAG_PARAMETERS);
        cuda_mlp_begin(&m, block, 1, stream);
        td = cuda_mlp_desc(&m, a, 1 << 19);
        memset(&with, 0, sizeof with);
        with.clock = clock; td.host = &with;
        CHECK(memopt_tape_create(&td, &tape) == MEMOPT_OK);
        CHECK(memopt_tape_calibrate(tape, m.input, m.grad, m.grad_input, 3) == MEMOPT_OK);
        CHECK(cuda_mlp_train(&m, tape) == MEMOPT_OK);
        test_synchronize();
        memopt_tape_destroy(tape);
        memopt_arena_destroy(a);
    }
    test_cuda_must(cudaFreeHost(pinned), "cudaFreeHost");
    cuda_memory_no_stream(stream);
}

static void test_cuda_memory(void) {
    RUN(cuda_memory_status_texts);
    RUN(cuda_memory_tables);
    RUN(cuda_memory_bad_sources);
    RUN(cuda_memory_arenas);
    RUN(cuda_memory_failures);
    RUN(cuda_memory_decommit_failures);
    RUN(cuda_memory_full);
    RUN(cuda_memory_pending_errors);
    RUN(cuda_memory_overlaps);
    RUN(cuda_memory_waiting);
    RUN(cuda_memory_growing);
    RUN(cuda_memory_granules);
    RUN(cuda_memory_heaps);
    RUN(cuda_memory_transfers);
    RUN(cuda_memory_waits_matter);
    RUN(cuda_memory_beside);
    RUN(cuda_memory_buckets_told);
    RUN(cuda_memory_bad_transfers);
    RUN(cuda_memory_broken_transfers);
    RUN(cuda_memory_prefetches);
    RUN(cuda_memory_broken_prefetches);
    RUN(cuda_memory_stores);
    RUN(cuda_memory_store_waits);
    RUN(cuda_memory_bad_stores);
    RUN(cuda_memory_broken_stores);
    RUN(cuda_memory_tapes);
    RUN(cuda_memory_tape_orders);
    RUN(cuda_memory_tape_refusals);
    RUN(cuda_memory_clocks);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_memory(); return test_totals(); }
#endif
