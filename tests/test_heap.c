/* test_heap.c - the heap and its replay, against a model that knows nothing of bins, trees and plans: one byte for every
   unit of the address range, and a list of what is live. */
#include "test.h"
#include "heap_check.h"

#ifdef TEST_LONG
#  define HEAP_TEST_TIMES 60
#else
#  define HEAP_TEST_TIMES 1
#endif

/* -- a source that checks its caller, and fails on demand; it has addresses only -- */

#define HEAP_MOCK_BASE  ((size_t)1 << 30)
#define HEAP_MOCK_CELLS 4096
typedef struct heap_mock {
    memopt_source source;
    size_t cell, base;             /* what it is asked in: its granularity; its lowest address */
    unsigned char reserved[HEAP_MOCK_CELLS], committed[HEAP_MOCK_CELLS];
    size_t calls, fail_on, fail_from; /* 1 = the first call */
    size_t live, wrong;            /* cells reserved; calls that broke the rules */
    uint64_t seed;                 /* 0 = reservations follow each other, else they lie anywhere */
    int committing;
} heap_mock;
static int heap_mock_fails(heap_mock *m) { ++m->calls; return m->calls == m->fail_on || (m->fail_from && m->calls >= m->fail_from); }
static size_t heap_mock_index(heap_mock *m, const void *start, size_t bytes) { /* the first cell; counts what is out of place */
    const size_t at = (size_t)(uintptr_t)start - m->base;
    if (at % m->cell || bytes % m->cell || !bytes || at / m->cell + bytes / m->cell > HEAP_MOCK_CELLS) { ++m->wrong; return 0; }
    return at / m->cell;
}
static memopt_status heap_mock_reserve(memopt_source *s, size_t bytes, void **base) {
    heap_mock *m = (heap_mock *)s->user; const size_t count = bytes / m->cell; size_t first, i, tries;
    if (bytes % m->cell || !bytes) ++m->wrong;
    if (heap_mock_fails(m)) return MEMOPT_ERR_DEVICE;
    for (tries = 0; tries < HEAP_MOCK_CELLS; ++tries) {
        first = m->seed ? test_below(&m->seed, HEAP_MOCK_CELLS) : tries;
        for (i = 0; i < count && first + i < HEAP_MOCK_CELLS && !m->reserved[first + i]; ++i) {}
        if (i < count) continue;
        memset(m->reserved + first, 1, count);
        m->live += count;
        *base = (void *)(uintptr_t)(m->base + first * m->cell);
        return MEMOPT_OK;
    }
    return MEMOPT_ERR_MEMORY;
}
static void heap_mock_release(memopt_source *s, void *base, size_t bytes) {
    heap_mock *m = (heap_mock *)s->user; size_t i = heap_mock_index(m, base, bytes), end = i + bytes / m->cell;
    for (; i < end; ++i) { if (!m->reserved[i]) ++m->wrong; m->reserved[i] = m->committed[i] = 0; --m->live; }
}
static memopt_status heap_mock_commit(memopt_source *s, void *start, size_t bytes) {
    heap_mock *m = (heap_mock *)s->user; size_t i = heap_mock_index(m, start, bytes), end = i + bytes / m->cell;
    if (heap_mock_fails(m)) return MEMOPT_ERR_DEVICE;
    for (; i < end; ++i) { if (!m->reserved[i] || m->committed[i]) ++m->wrong; m->committed[i] = 1; }
    return MEMOPT_OK;
}
static memopt_status heap_mock_decommit(memopt_source *s, void *start, size_t bytes) {
    heap_mock *m = (heap_mock *)s->user; size_t i = heap_mock_index(m, start, bytes), end = i + bytes / m->cell;
    if (heap_mock_fails(m)) return MEMOPT_ERR_DEVICE;
    for (; i < end; ++i) { if (!m->committed[i]) ++m->wrong; m->committed[i] = 0; }
    return MEMOPT_OK;
}
static memopt_status heap_mock_nothing(memopt_source *s, void *start, size_t bytes) { (void)s; (void)start; (void)bytes; return MEMOPT_ERR_UNSUPPORTED; }
static void heap_mock_init(heap_mock *m, size_t cell, int committing, uint64_t seed) {
    memset(m, 0, sizeof *m);
    m->cell = cell; m->seed = seed; m->committing = committing;
    m->source.reserve_fn = heap_mock_reserve; m->source.release_fn = heap_mock_release; m->source.zero_fn = heap_mock_nothing;
    if (committing) { m->source.commit_fn = heap_mock_commit; m->source.decommit_fn = heap_mock_decommit; }
    m->source.granularity = cell; m->source.base_alignment = m->source.alignment = 64;
    m->base = HEAP_MOCK_BASE + (cell > 64 ? 192 : 0); /* a base need not be a multiple of what is committed */
    m->source.capacity = HEAP_MOCK_CELLS * cell;
    m->source.kind = MEMOPT_SOURCE_USER; m->source.user = m;
}
static size_t heap_mock_held(const heap_mock *m) { /* bytes that are somebody's memory */
    size_t i, n = 0;
    for (i = 0; i < HEAP_MOCK_CELLS; ++i) n += m->committing ? m->committed[i] : m->reserved[i];
    return n * m->cell;
}

/* -- the model -- */

#define HEAP_MODEL_UNITS  65536 /* of 64 bytes: 4 MiB, as much as the mock has with cells of 1 KiB */
#define HEAP_MODEL_BLOCKS 2048
typedef struct heap_model_block { memopt_block block; size_t bytes, size; memopt_tag tag; } heap_model_block;
typedef struct heap_model {
    memopt_heap *heap;
    heap_mock *source;         /* or NULL */
    size_t base, unit, capacity;
    int ranged;
    unsigned char used[HEAP_MODEL_UNITS];
    heap_model_block live[HEAP_MODEL_BLOCKS];
    size_t count, used_bytes, requested, peak_used, peak_requested;
    memopt_block stale;   /* freed once already */
    uint64_t seed, at;    /* at: the operation, for messages */
} heap_model;
static void heap_model_init(heap_model *m, memopt_heap *heap, heap_mock *source, size_t unit, size_t capacity, uint64_t seed) {
    memset(m, 0, sizeof *m);
    m->heap = heap; m->source = source; m->unit = unit; m->capacity = capacity; m->seed = seed;
    m->base = source ? source->base : 0;
    m->ranged = !source || source->committing;
}
static void heap_model_mark(heap_model *m, const heap_model_block *b, unsigned char what) {
    const size_t first = (b->block.offset - m->base) / m->unit, count = b->size / m->unit; size_t i;
    CHECK_AT(b->block.offset >= m->base && first + count <= HEAP_MODEL_UNITS, m->at);
    for (i = first; i < first + count && i < HEAP_MODEL_UNITS; ++i) { CHECK_AT(m->used[i] != what, m->at); m->used[i] = what; }
    if (!m->source || !what) return;
    for (i = (b->block.offset - m->base) / m->source->cell; i <= (b->block.offset - m->base + b->size - 1) / m->source->cell; ++i)
        CHECK_AT(m->source->committing ? m->source->committed[i] : m->source->reserved[i], m->at);
}
/* Whether a range heap must be able to serve the request: some aligned run of its addresses is nobody's. */
static int heap_model_fits(const heap_model *m, size_t start, size_t size, size_t alignment) {
    const size_t count = size / m->unit, units = m->capacity / m->unit, first = (start - m->base) / m->unit; size_t i, run = 0, at;
    for (i = units; i-- > 0; ) { /* downwards: run is how many are free from i on */
        run = m->used[first + i] ? 0 : run + 1;
        at = start + i * m->unit;
        if (run >= count && !(at & (alignment - 1))) return 1;
    }
    return 0;
}
static void heap_model_free(heap_model *m, size_t k) {
    const heap_model_block b = m->live[k];
    CHECK_AT(memopt_heap_free(m->heap, b.block) == MEMOPT_OK, m->at);
    heap_model_mark(m, &b, 0);
    m->used_bytes -= b.size; m->requested -= b.bytes;
    m->stale = b.block;
    m->live[k] = m->live[--m->count];
}
static memopt_status heap_model_alloc(heap_model *m, size_t bytes, size_t alignment, memopt_tag tag, memopt_block *out) {
    heap_model_block b; memopt_status s;
    memset(&b, 0, sizeof b);
    s = memopt_heap_alloc(m->heap, bytes, alignment, tag, &b.block);
    if (s) { CHECK_AT(!b.block.node && !b.block.offset && !b.block.serial, m->at); return s; }
    b.bytes = bytes; b.size = (bytes + m->unit - 1) / m->unit * m->unit; b.tag = tag;
    CHECK_AT(b.block.offset % (alignment > m->unit ? alignment : m->unit) == 0, m->at);
    heap_model_mark(m, &b, 1);
    m->live[m->count++] = b;
    m->used_bytes += b.size; m->requested += bytes;
    if (m->used_bytes > m->peak_used) m->peak_used = m->used_bytes;
    if (m->requested > m->peak_requested) m->peak_requested = m->requested;
    if (out) *out = b.block;
    return s;
}
static int heap_near(double a, double b) { return a - b < 1e-12 && b - a < 1e-12; } /* x87 keeps more digits than it stores */
/* Every figure that the heap tells, from the model or from the walk. */
static void heap_model_check(heap_model *m) {
    const memopt_heap_stats s = memopt_heap_get_stats(m->heap);
    size_t free_bytes = 0, free_blocks = 0, used = 0, used_blocks = 0, requested = 0, idle = 0, largest = 0, end = 0;
    heap_entry e;
    memset(&e, 0, sizeof e);
    while (heap_walk(m->heap, &e)) {
        CHECK_AT(e.offset >= end && e.bytes, m->at);
        end = e.offset + e.bytes;
        if (e.kind == HEAP_FREE) { free_bytes += e.bytes; ++free_blocks; if (e.bytes > largest) largest = e.bytes; }
        else if (e.kind == HEAP_IDLE) idle += e.bytes;
        else {
            const memopt_i_heap_node *node = &m->heap->nodes[e.block]; size_t k;
            for (k = 0; k < m->count && m->live[k].block.node != e.block; ++k) {}
            CHECK_AT(k < m->count && m->live[k].block.serial == node->serial && m->live[k].block.offset == e.offset
                     && m->live[k].bytes == e.bytes - memopt_i_heap_slack(node) && m->live[k].size == e.bytes
                     && m->live[k].tag == memopt_i_heap_tag(node), m->at);
            used += e.bytes; requested += e.bytes - memopt_i_heap_slack(node); ++used_blocks;
        }
    }
    CHECK_AT(heap_check(m->heap) == MEMOPT_OK, m->at);
    CHECK_AT(used == m->used_bytes && s.used == used && s.requested == m->requested && requested == m->requested, m->at);
    CHECK_AT(used_blocks == m->count && s.used_blocks == m->count && s.free_blocks == free_blocks, m->at);
    CHECK_AT(s.free_bytes == free_bytes && s.reserved == s.used + s.free_bytes + s.idle && s.idle <= idle, m->at);
    CHECK_AT(s.largest == largest && memopt_heap_largest(m->heap) == largest, m->at);
    CHECK_AT(heap_largest_grown(m->heap) >= largest && s.reserved <= s.capacity && s.peak_reserved >= s.reserved, m->at);
    CHECK_AT(s.peak_used == m->peak_used && s.peak_requested == m->peak_requested, m->at);
    CHECK_AT(heap_near(s.external_fragmentation, free_bytes ? 1.0 - (double)largest / (double)free_bytes : 0.0), m->at);
    CHECK_AT(heap_near(s.internal_fragmentation, used ? 1.0 - (double)requested / (double)used : 0.0), m->at);
    if (m->source) CHECK_AT(m->source->wrong == 0 && s.reserved == heap_mock_held(m->source), m->at);
}
/* The largest request succeeds without growth, and one unit more does not (unless the plan's region is given up for it). */
static void heap_model_probe_largest(heap_model *m) {
    const memopt_heap_stats s = memopt_heap_get_stats(m->heap); memopt_block b; size_t units = m->unit; memopt_status status;
    if (s.planned) return; /* giving the region up is no growth */
    if (s.largest) {
        CHECK_AT(memopt_heap_alloc(m->heap, s.largest, 0, 0, &b) == MEMOPT_OK, m->at);
        CHECK_AT(memopt_heap_get_stats(m->heap).reserved == s.reserved, m->at);
        CHECK_AT(memopt_heap_free(m->heap, b) == MEMOPT_OK, m->at);
        if (m->used_bytes + s.largest > m->peak_used) m->peak_used = m->used_bytes + s.largest;
        if (m->requested + s.largest > m->peak_requested) m->peak_requested = m->requested + s.largest;
    }
    status = memopt_heap_alloc(m->heap, s.largest + units, 0, 0, &b);
    CHECK_AT(status || memopt_heap_get_stats(m->heap).reserved > s.reserved, m->at);
    if (status) return;
    CHECK_AT(memopt_heap_free(m->heap, b) == MEMOPT_OK, m->at);
    if (m->used_bytes + s.largest + units > m->peak_used) m->peak_used = m->used_bytes + s.largest + units;
    if (m->requested + s.largest + units > m->peak_requested) m->peak_requested = m->requested + s.largest + units;
}
static size_t heap_model_size(heap_model *m) { /* mostly small, sometimes huge, sometimes the same again */
    static const size_t again[] = { 64, 192, 1000, 4096, 4097, 20000 };
    switch (test_below(&m->seed, 8)) {
    case 0: case 1: case 2: return 1 + test_below(&m->seed, 512);
    case 3: case 4: return again[test_below(&m->seed, 6)];
    case 5: return 1 + test_below(&m->seed, m->capacity / 4);
    case 6: return 1 + test_below(&m->seed, m->capacity / 32);
    default: return 1 + test_below(&m->seed, 8192);
    }
}
static void heap_model_try_alloc(heap_model *m, size_t start) {
    const size_t bytes = heap_model_size(m); const memopt_tag tag = (memopt_tag)test_below(&m->seed, 3);
    const size_t alignment = test_below(&m->seed, 4) ? 0 : (size_t)1 << test_below(&m->seed, 16);
    const size_t largest = memopt_heap_largest(m->heap); memopt_status s;
    if (m->count == HEAP_MODEL_BLOCKS) return;
    s = heap_model_alloc(m, bytes, alignment, tag, NULL);
    CHECK_AT(s == MEMOPT_OK || s == MEMOPT_ERR_MEMORY, m->at);
    CHECK_AT(s == MEMOPT_OK || bytes > largest || alignment > m->unit, m->at);
    if (s && m->ranged)
        CHECK_AT(!heap_model_fits(m, start, (bytes + m->unit - 1) / m->unit * m->unit, alignment > m->unit ? alignment : m->unit), m->at);
    if (s) CHECK_AT(memopt_heap_error(m->heap).status == s && memopt_heap_error(m->heap).got.count == bytes, m->at);
}
/* One random operation of any kind, right or wrong. */
static void heap_model_step(heap_model *m, size_t start, int with_plans) {
    static const memopt_plan_options quick = { 0, 0, 0, 1, NULL };
    memopt_block b; size_t released, k; memopt_heap_stats before;
    switch (test_below(&m->seed, with_plans ? 64 : 56)) {
    case 0: if (memopt_heap_trim(m->heap, &released) != MEMOPT_OK) CHECK_AT(0, m->at); break;
    case 1:
        k = heap_model_size(m);
        if (heap_grow(m->heap, k)) break;
        if (m->requested + k > m->peak_requested) m->peak_requested = m->requested + k;
        k = (k + m->unit - 1) / m->unit * m->unit;
        if (m->used_bytes + k > m->peak_used) m->peak_used = m->used_bytes + k;
        break;
    case 2: heap_model_probe_largest(m); break;
    case 3: /* calls that are wrong change nothing */
        before = memopt_heap_get_stats(m->heap);
        CHECK_AT(memopt_heap_alloc(m->heap, 0, 0, 0, &b) == MEMOPT_ERR_ARGUMENT, m->at);
        CHECK_AT(memopt_heap_alloc(m->heap, 1, 3, 0, &b) == MEMOPT_ERR_ARGUMENT, m->at);
        CHECK_AT(memopt_heap_alloc(m->heap, SIZE_MAX, 0, 0, &b) == (m->unit > 1 ? MEMOPT_ERR_OVERFLOW : MEMOPT_ERR_MEMORY), m->at);
        CHECK_AT(memopt_heap_alloc(m->heap, SIZE_MAX - 4096, 0, 0, &b) == MEMOPT_ERR_MEMORY, m->at);
        if (m->base) CHECK_AT(memopt_heap_alloc(m->heap, 64, SIZE_MAX / 2 + 1, 0, &b) == MEMOPT_ERR_MEMORY, m->at);
        if (m->stale.node) CHECK_AT(memopt_heap_free(m->heap, m->stale) == MEMOPT_ERR_STATE && !memopt_heap_pointer(m->heap, m->stale), m->at);
        memset(&b, 0, sizeof b);
        CHECK_AT(memopt_heap_free(m->heap, b) == MEMOPT_ERR_ARGUMENT, m->at);
        b.node = (uint32_t)test_random(&m->seed); b.serial = (uint32_t)test_random(&m->seed); b.offset = m->base;
        CHECK_AT(memopt_heap_free(m->heap, b) != MEMOPT_OK, m->at);
        if (m->count) {
            b = m->live[0].block; b.offset += m->unit;
            CHECK_AT(memopt_heap_free(m->heap, b) == MEMOPT_ERR_ARGUMENT, m->at);
        }
        CHECK_AT(memopt_heap_get_stats(m->heap).used == before.used, m->at);
        break;
    case 4: heap_model_check(m); break;
    case 5: for (k = m->count / 2; k--; ) heap_model_free(m, test_below(&m->seed, m->count)); break; /* room again */
    case 56: (void)memopt_heap_record(m->heap); break;
    case 57: (void)memopt_heap_plan(m->heap, NULL, &quick, NULL); break;
    case 58: if (!test_below(&m->seed, 4)) CHECK_AT(memopt_heap_unplan(m->heap) == MEMOPT_OK, m->at); break;
    case 59: case 60: case 61: CHECK_AT(memopt_heap_begin_step(m->heap) == MEMOPT_OK, m->at); break;
    default:
        if (m->count && test_below(&m->seed, 100) < 48) heap_model_free(m, test_below(&m->seed, m->count));
        else heap_model_try_alloc(m, start);
    }
}
static void heap_model_run(memopt_heap_desc d, heap_mock *source, uint64_t seed, size_t operations, int with_plans) {
    static heap_model m; memopt_heap *heap = NULL; size_t i, start;
    if (source) d.source = &source->source;
    CHECK(memopt_heap_create(&d, &heap) == MEMOPT_OK);
    if (!heap) return;
    heap_model_init(&m, heap, source, heap->unit, heap->capacity < HEAP_MODEL_UNITS * heap->unit ? heap->capacity : HEAP_MODEL_UNITS * heap->unit, seed);
    start = source ? heap->base : 0;
    for (i = 0; i < operations && test_failures < 20; ++i) { m.at = seed * 10000000 + i; heap_model_step(&m, start, with_plans); }
    heap_model_check(&m);
    while (m.count) heap_model_free(&m, m.count - 1);
    heap_model_check(&m);
    if (m.ranged && !memopt_heap_get_stats(heap).planned) CHECK(memopt_heap_get_stats(heap).free_blocks <= 1 || heap->held < heap->capacity);
    CHECK(memopt_heap_unplan(heap) == MEMOPT_OK && memopt_heap_trim(heap, &i) == MEMOPT_OK);
    CHECK(memopt_heap_get_stats(heap).reserved == 0 && (!source || heap_mock_held(source) == 0));
    memopt_heap_destroy(heap);
    if (source) CHECK(source->live == 0 && source->wrong == 0);
}
static void test_heap_model_offsets(void) {
    memopt_heap_desc d; uint64_t seed; static const size_t units[] = { 64, 1, 16, 4096 };
    for (seed = 1; seed <= 8; ++seed) {
        memset(&d, 0, sizeof d);
        d.alignment = units[seed % 4]; d.capacity = d.alignment * (((size_t)1 << (8 + seed)) - 3) + 33; d.extent = (size_t)1 << (8 + 2 * (seed % 4));
        heap_model_run(d, NULL, seed, 10000 * HEAP_TEST_TIMES, 0);
        heap_model_run(d, NULL, seed + 100, 10000 * HEAP_TEST_TIMES, 1);
    }
}
static void test_heap_model_committing(void) {
    memopt_heap_desc d; uint64_t seed; heap_mock source;
    for (seed = 1; seed <= 8; ++seed) {
        memset(&d, 0, sizeof d);
        heap_mock_init(&source, seed % 2 ? 1024 : 64, 1, seed % 3);
        d.capacity = ((size_t)1 << (14 + seed % 6)) / (seed % 2 ? 1 : 4) + 1; d.extent = (size_t)1 << (8 + seed % 6);
        heap_model_run(d, &source, seed + 200, 10000 * HEAP_TEST_TIMES, 0);
        heap_mock_init(&source, seed % 2 ? 1024 : 64, 1, seed % 3);
        heap_model_run(d, &source, seed + 300, 10000 * HEAP_TEST_TIMES, 1);
    }
}
static void test_heap_model_extents(void) {
    memopt_heap_desc d; uint64_t seed; heap_mock source;
    for (seed = 1; seed <= 8; ++seed) {
        if (test_is_passed_over()) continue;
        memset(&d, 0, sizeof d);
        heap_mock_init(&source, seed % 2 ? 1024 : 64, 0, seed % 4);
        d.capacity = seed % 2 ? 0 : 100000; d.extent = (size_t)1 << (8 + seed % 6);
        heap_model_run(d, &source, seed + 400, 10000 * HEAP_TEST_TIMES, 0);
        heap_mock_init(&source, seed % 2 ? 1024 : 64, 0, seed % 4);
        heap_model_run(d, &source, seed + 500, 10000 * HEAP_TEST_TIMES, 1);
    }
}

/* -- by hand -- */

static memopt_heap *heap_new(memopt_source *source, size_t capacity, size_t extent, memopt_ledger *ledger) { /* units of 64 bytes */
    memopt_heap_desc d; memopt_heap *h = NULL;
    memset(&d, 0, sizeof d);
    d.source = source; d.capacity = capacity; d.extent = extent; d.ledger = ledger;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_OK);
    if (!h) { printf("no heap, cannot go on\n"); exit(1); }
    return h;
}
static memopt_block heap_get(memopt_heap *h, size_t bytes, size_t alignment, memopt_tag tag) {
    memopt_block b;
    memset(&b, 0, sizeof b);
    CHECK(memopt_heap_alloc(h, bytes, alignment, tag, &b) == MEMOPT_OK);
    return b;
}
static int heap_stats_are(const memopt_heap *h, size_t reserved, size_t used, size_t requested, size_t largest, size_t free_blocks) {
    const memopt_heap_stats s = memopt_heap_get_stats(h);
    return s.reserved == reserved && s.used == used && s.requested == requested && s.largest == largest && s.free_blocks == free_blocks
        && s.free_bytes == reserved - used;
}
static void test_heap_offsets(void) {
    memopt_heap *h = heap_new(NULL, 4096, 1024, NULL); memopt_block a, b, c, d, e; memopt_heap_stats s;
    CHECK(heap_stats_are(h, 0, 0, 0, 0, 0) && heap_largest_grown(h) == 4096);
    a = heap_get(h, 1, 0, 0); b = heap_get(h, 64, 0, 0); c = heap_get(h, 65, 64, 0); d = heap_get(h, 640, 1, 0);
    CHECK(a.offset == 0 && b.offset == 64 && c.offset == 128 && d.offset == 256);
    CHECK(heap_stats_are(h, 1024, 896, 770, 128, 1) && heap_largest_grown(h) == 3200);
    CHECK(memopt_heap_free(h, b) == MEMOPT_OK);
    CHECK(heap_stats_are(h, 1024, 832, 706, 128, 2));
    s = memopt_heap_get_stats(h);
    CHECK(heap_near(s.external_fragmentation, 1.0 - 128.0 / 192.0) && heap_near(s.internal_fragmentation, 1.0 - 706.0 / 832.0) && s.used_blocks == 3 && s.capacity == 4096);
    CHECK(s.peak_used == 896 && s.peak_requested == 770 && s.peak_reserved == 1024 && !s.planned && !s.idle);
    e = heap_get(h, 50, 0, 0);
    CHECK(e.offset == 64 && memopt_heap_free(h, e) == MEMOPT_OK);      /* the piece that fits exactly */
    CHECK(memopt_heap_free(h, c) == MEMOPT_OK && heap_stats_are(h, 1024, 704, 641, 192, 2)); /* b and c are one */
    b = heap_get(h, 128, 0, 0);
    e = heap_get(h, 64, 128, 0);
    CHECK(b.offset == 896 && e.offset == 128 && heap_stats_are(h, 1024, 896, 833, 64, 2)); /* 64 in front, 64 behind */
    CHECK(memopt_heap_free(h, b) == MEMOPT_OK && memopt_heap_free(h, e) == MEMOPT_OK && memopt_heap_free(h, a) == MEMOPT_OK && heap_stats_are(h, 1024, 640, 640, 256, 2));
    CHECK(heap_grow(h, 256) == MEMOPT_OK && heap_grow(h, 250) == MEMOPT_OK && heap_stats_are(h, 1024, 640, 640, 256, 2));
    CHECK(heap_grow(h, 257) == MEMOPT_OK && heap_stats_are(h, 2048, 640, 640, 1152, 2)); /* at the end, joined */
    CHECK(heap_grow(h, 3201) == MEMOPT_ERR_MEMORY && heap_grow(h, 3200) == MEMOPT_OK && heap_stats_are(h, 4096, 640, 640, 3200, 2));
    CHECK(memopt_heap_free(h, d) == MEMOPT_OK && heap_stats_are(h, 4096, 0, 0, 4096, 1));
    CHECK(memopt_heap_get_stats(h).external_fragmentation == 0.0
          && memopt_heap_get_stats(h).internal_fragmentation == 0.0);
    CHECK(!memopt_heap_pointer(h, d) && memopt_heap_error(h).got.count == 3201);
    memopt_heap_destroy(h);
}
static void test_heap_alignment(void) { /* only one free piece happens to begin well, and no piece is sure to be enough */
    memopt_heap *h = heap_new(NULL, 64 * 64, 64 * 64, NULL); memopt_block b[64]; heap_entry e; size_t i;
    for (i = 0; i < 64; ++i) b[i] = heap_get(h, 64, 0, 0);
    CHECK(memopt_heap_largest(h) == 0 && memopt_heap_alloc(h, 1, 0, 0, &b[0]) == MEMOPT_ERR_MEMORY);
    for (i = 1; i < 64; i += 4) { CHECK(memopt_heap_free(h, b[i]) == MEMOPT_OK); CHECK(memopt_heap_free(h, b[i + 1]) == MEMOPT_OK); }
    CHECK(memopt_heap_alloc(h, 128, 1024, 0, &b[1]) == MEMOPT_ERR_MEMORY);
    CHECK(memopt_heap_free(h, b[48]) == MEMOPT_OK);                    /* 48, 49, 50: begins at a multiple of 1024 */
    CHECK(heap_get(h, 128, 1024, 0).offset == 48 * 64);
    CHECK(memopt_heap_alloc(h, 64, SIZE_MAX / 2 + 1, 0, &b[1]) == MEMOPT_ERR_MEMORY);
    CHECK(memopt_heap_free(h, b[0]) == MEMOPT_ERR_STATE || b[0].offset == 0);
    memset(&e, 0, sizeof e);
    for (i = 0; heap_walk(h, &e); ++i) CHECK(e.kind != HEAP_IDLE && e.bytes);
    CHECK(heap_walk(h, &e) == 0 || i); /* a walk that is over may be asked again */
    CHECK(heap_check(h) == MEMOPT_OK);
    memopt_heap_destroy(h);
}
static void test_heap_bad_descs(void) {
    memopt_heap_desc d; memopt_heap *h = NULL; memopt_source s; memopt_host half;
    memset(&d, 0, sizeof d); memset(&half, 0, sizeof half);
    CHECK(memopt_heap_create(NULL, &h) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_ERR_ARGUMENT);          /* no source, no capacity */
    d.capacity = 63;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_ERR_ARGUMENT);          /* not one unit */
    d.capacity = 4096;
    CHECK(memopt_heap_create(&d, NULL) == MEMOPT_ERR_ARGUMENT);
    for (d.alignment = 3; d.alignment <= 48; d.alignment *= 2) CHECK(memopt_heap_create(&d, &h) == MEMOPT_ERR_ARGUMENT);
    d.alignment = (size_t)1 << 21;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_ERR_ARGUMENT);
    d.alignment = 0;
    half.allocator.alloc_fn = test_alloc;
    d.host = &half;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_ERR_ARGUMENT);
    d.host = NULL;
    memset(&s, 0, sizeof s);
    d.source = &s;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_ERR_ARGUMENT);          /* a table without functions */
    CHECK(memopt_source_counting(&s) == MEMOPT_OK);
    d.alignment = 2 * s.base_alignment;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_ERR_ARGUMENT && h == NULL);
    d.alignment = 0; d.source = NULL; d.capacity = SIZE_MAX; d.extent = SIZE_MAX;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_OK);
    CHECK(heap_get(h, SIZE_MAX - 63, 0, 0).offset == 0);               /* all addresses there are */
    CHECK(memopt_heap_largest(h) == 0 && heap_check(h) == MEMOPT_OK);
    memopt_heap_destroy(h);
}
static void test_heap_bad_calls(void) {
    memopt_heap *h = heap_new(NULL, 1 << 20, 4096, NULL), *other = heap_new(NULL, 1 << 20, 4096, NULL);
    memopt_block a = heap_get(h, 100, 0, 0), b = heap_get(other, 100, 0, 0), none, bad; memopt_heap_stats before;
    const memopt_block untouched = a; uint32_t i;
    memset(&none, 0, sizeof none);
    before = memopt_heap_get_stats(h);
    CHECK(memopt_heap_alloc(NULL, 1, 0, 0, &bad) == MEMOPT_ERR_ARGUMENT && memopt_heap_alloc(h, 1, 0, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    bad = untouched;
    CHECK(memopt_heap_alloc(h, 0, 0, 0, &bad) == MEMOPT_ERR_ARGUMENT && memopt_heap_error(h).status == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_heap_alloc(h, 1, 3, 0, &bad) == MEMOPT_ERR_ARGUMENT && memopt_heap_alloc(h, 1, 96, 0, &bad) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_heap_alloc(h, 1, SIZE_MAX, 0, &bad) == MEMOPT_ERR_ARGUMENT && memopt_heap_alloc(h, 1, 0, 4096, &bad) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_heap_alloc(h, SIZE_MAX, 0, 0, &bad) == MEMOPT_ERR_OVERFLOW && memopt_heap_alloc(h, SIZE_MAX - 62, 0, 0, &bad) == MEMOPT_ERR_OVERFLOW);
    CHECK(memopt_heap_alloc(h, SIZE_MAX - 63, 0, 0, &bad) == MEMOPT_ERR_MEMORY && memopt_heap_alloc(h, SIZE_MAX - 63, 4096, 0, &bad) == MEMOPT_ERR_MEMORY);
    CHECK(memopt_heap_error(h).got.count == SIZE_MAX - 63 && memopt_heap_error(h).limit.count == before.largest && memopt_heap_error(h).free_bytes == before.free_bytes);
    CHECK(!memcmp(&bad, &untouched, sizeof bad));
    CHECK(memopt_heap_free(NULL, a) == MEMOPT_ERR_ARGUMENT && memopt_heap_free(h, none) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_heap_free(h, b) != MEMOPT_OK && memopt_heap_free(other, a) != MEMOPT_OK); /* the same offset, node and history */
    for (i = 0; i < 200; ++i) { bad = a; bad.node = i; CHECK(i == a.node || memopt_heap_free(h, bad) != MEMOPT_OK); }
    for (i = 0; i < 200; ++i) { bad = a; bad.serial = a.serial - 100 + i; CHECK(i == 100 || memopt_heap_free(h, bad) != MEMOPT_OK); }
    bad = a; bad.node = UINT32_MAX; CHECK(memopt_heap_free(h, bad) == MEMOPT_ERR_ARGUMENT);
    bad = a; bad.offset += 64;      CHECK(memopt_heap_free(h, bad) == MEMOPT_ERR_ARGUMENT);
    for (i = 0; i < 64; ++i) { bad.offset = 0; bad.node = i; bad.serial = h->nodes[i].serial; CHECK(i == a.node || memopt_heap_free(h, bad) != MEMOPT_OK || !i); }
    CHECK(memopt_heap_trim(NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_heap_record(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_heap_plan(NULL, h, NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_heap_begin_step(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_heap_unplan(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_heap_plan(h, NULL, NULL, NULL) == MEMOPT_ERR_STATE && memopt_heap_plan(h, other, NULL, NULL) == MEMOPT_ERR_STATE);
    CHECK(memopt_heap_largest(NULL) == 0 && memopt_heap_get_stats(NULL).capacity == 0);
    CHECK(memopt_heap_error(NULL).reason && memopt_heap_pointer(NULL, a) == NULL);
    memopt_heap_destroy(NULL);
    CHECK(memopt_heap_get_stats(h).used == before.used && memopt_heap_get_stats(h).reserved == before.reserved && heap_check(h) == MEMOPT_OK);
    CHECK(memopt_heap_free(h, a) == MEMOPT_OK && memopt_heap_free(h, a) == MEMOPT_ERR_STATE);
    for (i = 0; i < 100; ++i) { /* its node is used again, and again */
        a = heap_get(h, 100, 0, 0);
        CHECK(memopt_heap_free(h, untouched) == MEMOPT_ERR_STATE && memopt_heap_free(h, a) == MEMOPT_OK);
    }
    memopt_heap_destroy(h); memopt_heap_destroy(other);
}
static void test_heap_ledger(void) {
    memopt_ledger *l = NULL; memopt_heap *h; memopt_block a, b, c; memopt_usage u; memopt_source s;
    CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK && memopt_source_counting(&s) == MEMOPT_OK);
    s.ledger = l;
    h = heap_new(&s, 1 << 20, 4096, l);
    a = heap_get(h, 100, 0, MEMOPT_TAG_PARAMETERS); b = heap_get(h, 200, 0, MEMOPT_TAG_SCRATCH);
    CHECK(memopt_heap_alloc(h, 1, 0, 1000, &c) == MEMOPT_ERR_ARGUMENT && memopt_heap_get_stats(h).used == 384);
    u = memopt_ledger_usage(l, MEMOPT_TAG_PARAMETERS); CHECK(u.now == 128 && u.blocks == 1 && u.allocs == 1);
    u = memopt_ledger_usage(l, MEMOPT_TAG_SCRATCH);    CHECK(u.now == 256 && u.peak == 256);
    CHECK(memopt_ledger_footprint(l).reserved == 1 << 20 && memopt_ledger_footprint(l).committed == 4096);
    CHECK(memopt_heap_alloc(h, 1 << 21, 0, MEMOPT_TAG_SCRATCH, &c) == MEMOPT_ERR_MEMORY);
    CHECK(memopt_ledger_usage(l, MEMOPT_TAG_SCRATCH).failed == 1 && memopt_ledger_total(l).now == 384);
    CHECK(memopt_heap_free(h, b) == MEMOPT_OK && memopt_ledger_total(l).now == 128 && memopt_ledger_usage(l, MEMOPT_TAG_SCRATCH).frees == 1);
    CHECK(memopt_heap_free(h, b) == MEMOPT_ERR_STATE && memopt_ledger_total(l).now == 128);
    CHECK(memopt_ledger_add(l, 0, SIZE_MAX - 200, NULL, NULL) == MEMOPT_OK); /* the sum would not fit */
    CHECK(memopt_heap_alloc(h, 100, 0, 0, &c) == MEMOPT_ERR_OVERFLOW && memopt_heap_get_stats(h).used == 128);
    CHECK(memopt_ledger_remove(l, 0, SIZE_MAX - 200, NULL) == MEMOPT_OK);
    (void)a;
    memopt_heap_destroy(h); /* books out what is left */
    CHECK(memopt_ledger_total(l).now == 0 && memopt_ledger_total(l).blocks == 0 && memopt_ledger_footprint(l).committed == 0 && memopt_ledger_footprint(l).segments == 0);
    memopt_ledger_destroy(l);
}
/* Extents that touch join; trimming takes whole ones out of the middle of a joined piece. */
static void test_heap_extents_join(void) {
    static heap_mock m; memopt_heap *h; memopt_block a, b, c, d; size_t released;
    heap_mock_init(&m, 1024, 0, 0);
    h = heap_new(&m.source, 0, 1024, NULL);
    CHECK(memopt_heap_get_stats(h).capacity == (SIZE_MAX & ~(size_t)1023) && heap_largest_grown(h) == HEAP_MOCK_CELLS * 1024);
    a = heap_get(h, 1024, 0, 0); b = heap_get(h, 1024, 0, 0); c = heap_get(h, 1024, 0, 0); d = heap_get(h, 960, 0, 0);
    CHECK(h->extent_count == 4 && b.offset == a.offset + 1024 && d.offset == c.offset + 1024 && memopt_heap_pointer(h, b) == (void *)(uintptr_t)b.offset);
    CHECK(memopt_heap_free(h, b) == MEMOPT_OK && memopt_heap_free(h, c) == MEMOPT_OK && heap_stats_are(h, 4096, 1984, 1984, 2048, 2));
    b = heap_get(h, 2048, 0, 0); /* across two reservations */
    CHECK(b.offset == a.offset + 1024 && memopt_heap_free(h, b) == MEMOPT_OK);
    CHECK(memopt_heap_free(h, a) == MEMOPT_OK && memopt_heap_trim(h, &released) == MEMOPT_OK && released == 3072);
    CHECK(heap_stats_are(h, 1024, 960, 960, 64, 1) && h->extent_count == 1 && heap_check(h) == MEMOPT_OK);
    a = heap_get(h, 3000, 0, 0); /* comes back below the one that is left, and joins nothing in use */
    CHECK(a.offset < d.offset && h->extent_count == 2 && heap_check(h) == MEMOPT_OK);
    CHECK(memopt_heap_alloc(h, HEAP_MOCK_CELLS * (size_t)1024, 0, 0, &b) == MEMOPT_ERR_MEMORY);
    memopt_heap_destroy(h);
    CHECK(m.live == 0 && m.wrong == 0);
    heap_mock_init(&m, 64, 0, 0); /* base_alignment 64: an alignment above it needs room to spare */
    h = heap_new(&m.source, 0, 64, NULL);
    a = heap_get(h, 64, 0, 0); b = heap_get(h, 64, 4096, 0);
    CHECK(b.offset % 4096 == 0 && heap_check(h) == MEMOPT_OK);
    memopt_heap_destroy(h);
    CHECK(m.live == 0 && m.wrong == 0);
}
/* A growth that fails is tried again with no more than it takes; a growth that fails half way leaves sense behind. */
static void test_heap_growth_fails(void) {
    static heap_mock m; memopt_heap *h; memopt_block a, b; int committing; size_t released, reserved; memopt_ledger *l = NULL;
    CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK);
    for (committing = 0; committing < 2; ++committing) {
        heap_mock_init(&m, 1024, committing, 0);
        h = heap_new(&m.source, 64 << 10, 8 << 10, l);
        m.fail_on = m.calls + 1;
        a = heap_get(h, 3000, 0, 0);
        CHECK(memopt_heap_get_stats(h).reserved == 3072);
        m.fail_from = m.calls + 1;
        CHECK(memopt_heap_alloc(h, 3000, 0, 0, &b) == MEMOPT_ERR_DEVICE);
        CHECK(test_error_says(memopt_heap_error(h), MEMOPT_ERR_DEVICE, "the heap could not grow: its source refused: asked 2.9 KiB"));
        CHECK(heap_grow(h, 3000) == MEMOPT_ERR_DEVICE && memopt_heap_get_stats(h).reserved == 3072 && heap_check(h) == MEMOPT_OK);
        m.fail_from = 0;
        b = heap_get(h, 3000, 0, 0);
        CHECK(memopt_heap_free(h, b) == MEMOPT_OK);
        m.fail_from = committing ? m.calls + 1 : 0; /* releasing a reservation cannot fail */
        CHECK(memopt_heap_trim(h, &released) == (committing ? MEMOPT_ERR_DEVICE : MEMOPT_OK));
        if (committing) CHECK(test_error_says(memopt_heap_error(h), MEMOPT_ERR_DEVICE, "trimming: no memory for the tables, or the source refused"));
        m.fail_from = 0;
        CHECK(memopt_heap_trim(h, NULL) == MEMOPT_OK && memopt_heap_get_stats(h).reserved == 3072);
        CHECK(memopt_heap_free(h, a) == MEMOPT_OK && memopt_heap_trim(h, NULL) == MEMOPT_OK && heap_mock_held(&m) == 0);
        memopt_heap_destroy(h);
        CHECK(m.live == 0 && m.wrong == 0);
    }
    CHECK(memopt_ledger_usage(l, 0).retried == 6 && memopt_ledger_total(l).now == 0);
    memopt_ledger_destroy(l);
    heap_mock_init(&m, 1024, 1, 0); /* two gaps with a free block between them: the second one fails */
    h = heap_new(&m.source, 8 << 10, 1024, NULL);
    a = heap_get(h, 3072, 0, 0); b = heap_get(h, 1024, 0, 0);
    { memopt_block c = heap_get(h, 4096, 0, 0);
      CHECK(memopt_heap_free(h, a) == MEMOPT_OK && memopt_heap_free(h, c) == MEMOPT_OK && memopt_heap_trim(h, &released) == MEMOPT_OK && released == 7168); }
    CHECK(memopt_heap_free(h, b) == MEMOPT_OK && heap_stats_are(h, 1024, 0, 0, 1024, 1));
    m.fail_on = m.calls + 2;
    CHECK(memopt_heap_alloc(h, 8192, 0, 0, &a) == MEMOPT_ERR_DEVICE && heap_check(h) == MEMOPT_OK);
    reserved = memopt_heap_get_stats(h).reserved;
    CHECK(reserved == 4096 && reserved == heap_mock_held(&m) && memopt_heap_get_stats(h).used == 0);
    CHECK(heap_get(h, 8192, 0, 0).offset == h->base);
    memopt_heap_destroy(h);
    CHECK(m.live == 0 && m.wrong == 0);
}
/* The ready sources, with real bytes: nobody writes into anybody else's. */
static void test_heap_real_memory(void) {
    static unsigned char room[100000]; memopt_source s; memopt_heap *h; memopt_block b[200]; unsigned char *p; uint64_t seed = 5; size_t i, k, size[200]; int kind;
    for (kind = 0; kind < (TEST_STRIDE > 1 ? 3 : 4); ++kind) { /* 3: as many pages as there are, of each of which wine keeps a byte */
        memopt_status status = kind == 0 ? memopt_source_block(room + 1, sizeof room - 1, &s) : kind == 1 ? memopt_source_allocator(NULL, &s) : memopt_source_pages(NULL, &s);
        if (status == MEMOPT_ERR_UNSUPPORTED) continue;
        CHECK(status == MEMOPT_OK);
        h = heap_new(&s, kind == 2 ? (size_t)64 << 20 : 0, 4096, NULL);
        if (kind == 3) CHECK(memopt_heap_get_stats(h).capacity >= (size_t)64 << 20 && memopt_heap_get_stats(h).reserved == 0);
        for (i = 0; i < 200; ++i) size[i] = 0;
        for (i = 0; i < 4000; ++i) {
            k = test_below(&seed, 200);
            if (size[k]) {
                p = (unsigned char *)memopt_heap_pointer(h, b[k]);
                CHECK(p && p[0] == k % 251 && p[size[k] - 1] == k % 251);
                CHECK(memopt_heap_free(h, b[k]) == MEMOPT_OK);
                size[k] = 0;
            } else if (memopt_heap_alloc(h, 1 + test_below(&seed, 2000), 0, 0, &b[k]) == MEMOPT_OK) {
                size[k] = h->nodes[b[k].node].size;
                memset(memopt_heap_pointer(h, b[k]), (int)(k % 251), size[k]);
            } else CHECK(kind == 0);
        }
        CHECK(heap_check(h) == MEMOPT_OK);
        memopt_heap_destroy(h);
    }
}

/* A root that shrinks below its child is the largest no more. 259 and 258 units share a bin. */
static void test_heap_root_shrinks(void) {
    memopt_heap *h = heap_new(NULL, 600 * 64, 600 * 64, NULL); memopt_block a = heap_get(h, 258 * 64, 0, 0), b, c, d;
    b = heap_get(h, 64, 0, 0); c = heap_get(h, 259 * 64, 0, 0); d = heap_get(h, (600 - 258 - 1 - 259) * 64, 0, 0);
    CHECK(memopt_heap_free(h, a) == MEMOPT_OK && memopt_heap_free(h, c) == MEMOPT_OK && memopt_heap_largest(h) == 259 * 64);
    a = heap_get(h, 128, 0, 0);
    CHECK(a.offset == 259 * 64 && memopt_heap_largest(h) == 258 * 64 && heap_check(h) == MEMOPT_OK);
    CHECK(heap_get(h, 258 * 64, 0, 0).offset == 0 && memopt_heap_largest(h) == 257 * 64 && heap_check(h) == MEMOPT_OK);
    (void)b; (void)d;
    memopt_heap_destroy(h);
}
/* Trimming cuts each free block in three while the table of nodes is nearly full: it grows, or trimming is refused. */
static void test_heap_trim_needs_nodes(void) {
    static heap_mock m; test_faults f; memopt_host host; memopt_heap_desc d; memopt_heap *h; memopt_block big[30]; size_t i, released; int failing;
    for (failing = 0; failing < 2; ++failing) {
        memset(&f, 0, sizeof f); memset(&d, 0, sizeof d);
        host = test_host(&f);
        heap_mock_init(&m, 1024, 1, 0);
        d.source = &m.source; d.host = &host;
        h = NULL;
        CHECK(memopt_heap_create(&d, &h) == MEMOPT_OK);
        for (i = 0; i < 30; ++i) { big[i] = heap_get(h, 64 * 45, 0, 0); (void)heap_get(h, 64, 0, 0); }
        for (i = 0; i < 30; ++i) CHECK(memopt_heap_free(h, big[i]) == MEMOPT_OK);
        f.fail_from = failing ? 1 : 0;
        CHECK(h->node_count == 64 && memopt_heap_trim(h, &released) == (failing ? MEMOPT_ERR_MEMORY : MEMOPT_OK));
        CHECK((failing ? released == 0 : released >= 30 * 1024) && heap_check(h) == MEMOPT_OK);
        memopt_heap_destroy(h);
        CHECK(f.live_blocks == 0 && m.live == 0 && m.wrong == 0);
    }
}
/* A record that could not grow: the blocks are good, the plan is not made, and the next record is a new chance. */
static void test_heap_record_cut_short(void) {
    test_faults f; memopt_host host; memopt_heap_desc d; memopt_heap *h = NULL; memopt_block b[40]; size_t i;
    memset(&f, 0, sizeof f); memset(&d, 0, sizeof d);
    host = test_host(&f);
    d.capacity = 1 << 20; d.host = &host;
    CHECK(memopt_heap_create(&d, &h) == MEMOPT_OK && memopt_heap_record(h) == MEMOPT_OK);
    for (i = 0; i < 40; ++i) {
        if (i == 20) f.fail_from = 1;
        b[i] = heap_get(h, 64, 0, 0);
    }
    f.fail_from = 0;
    for (i = 0; i < 40; ++i) CHECK(memopt_heap_free(h, b[i]) == MEMOPT_OK);
    CHECK(memopt_heap_plan(h, NULL, NULL, NULL) == MEMOPT_ERR_MEMORY);
    CHECK(test_error_says(memopt_heap_error(h), MEMOPT_ERR_MEMORY, "the recording was cut short by a lack of memory, free 1.0 MiB, largest piece 1.0 MiB, fragmentation 0%"));
    CHECK(memopt_heap_record(h) == MEMOPT_OK && memopt_heap_free(h, heap_get(h, 64, 0, 0)) == MEMOPT_OK);
    CHECK(memopt_heap_plan(h, NULL, NULL, NULL) == MEMOPT_OK && memopt_heap_get_stats(h).planned == 64);
    memopt_heap_destroy(h);
    CHECK(f.live_blocks == 0 && f.bad_frees == 0);
}

/* -- record, plan, replay, by hand -- */

static const memopt_plan_options heap_quick = { 0, 0, 0, 1, NULL };
static const memopt_tag heap_kept = MEMOPT_TAG_ACTIVATIONS, heap_gone = MEMOPT_TAG_SCRATCH;
typedef struct heap_step { memopt_block a, b, c, d; } heap_step;
/* The step that is recorded: a(640) b(128) -b c(256) d(64) -c -d -a. By hand: a lives longest; b and c never meet. */
static void heap_record_step(memopt_heap *h) {
    memopt_block a, b, c, d;
    CHECK(memopt_heap_record(h) == MEMOPT_OK);
    a = heap_get(h, 640, 0, heap_kept);
    b = heap_get(h, 100, 0, heap_gone);
    CHECK(memopt_heap_free(h, b) == MEMOPT_OK);
    c = heap_get(h, 256, 0, heap_gone); d = heap_get(h, 64, 128, heap_gone);
    CHECK(memopt_heap_free(h, c) == MEMOPT_OK && memopt_heap_free(h, d) == MEMOPT_OK && memopt_heap_free(h, a) == MEMOPT_OK);
}
static memopt_heap *heap_planned(size_t capacity) { /* a heap without a source that replays that step */
    memopt_heap *dry = heap_new(NULL, 1 << 20, 64, NULL), *h = heap_new(NULL, capacity, 64, NULL); memopt_plan_result r;
    heap_record_step(dry);
    CHECK(memopt_heap_plan(h, dry, &heap_quick, &r) == MEMOPT_OK && r.peak == 960 && r.lower_bound == 960);
    memopt_heap_destroy(dry);
    return h;
}
static size_t heap_served(const memopt_heap *h) { return (size_t)memopt_heap_get_stats(h).served; }
static int heap_in_region(const memopt_heap *h, memopt_block b) {
    const memopt_i_heap_node *r = &h->nodes[h->replay.region];
    return h->replay.region && b.offset >= r->offset && b.offset < r->offset + r->size;
}
static void test_heap_replay(void) {
    memopt_heap *h = heap_planned(1 << 20); heap_step s; memopt_block before, extra; memopt_heap_stats st; int i; size_t served = 0;
    st = memopt_heap_get_stats(h);
    CHECK(st.planned == 960 && st.idle == 960 && st.reserved == 960 && st.used == 0 && st.free_bytes == 0);
    CHECK(memopt_heap_record(h) == MEMOPT_ERR_STATE && memopt_heap_plan(h, h, NULL, NULL) == MEMOPT_ERR_STATE);
    before = heap_get(h, 640, 0, heap_kept); /* no step has begun */
    CHECK(heap_served(h) == 0 && !heap_in_region(h, before));
    for (i = 0; i < 3; ++i) { /* exactly as recorded, then smaller */
        CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
        s.a = heap_get(h, i ? 500 : 640, 0, heap_kept); s.b = heap_get(h, i ? 1 : 100, 0, heap_gone);
        CHECK(memopt_heap_free(h, s.b) == MEMOPT_OK && memopt_heap_free(h, s.b) == MEMOPT_ERR_STATE);
        s.c = heap_get(h, i ? 200 : 256, 0, heap_gone); s.d = heap_get(h, 64, 128, heap_gone);
        st = memopt_heap_get_stats(h);
        CHECK(heap_served(h) == (served += 4) && heap_in_region(h, s.a) && heap_in_region(h, s.c) && heap_in_region(h, s.d) && s.d.offset % 128 == 0);
        CHECK(st.used == 640 + (i ? 512u + 256 + 64 : 960u) && st.idle == (i ? 128u : 0) && st.used_blocks == 4 && st.reserved == (i ? 1664u : 1600u));
        CHECK(heap_check(h) == MEMOPT_OK);
        extra = heap_get(h, 64, 0, heap_gone); /* one more than recorded */
        CHECK(!heap_in_region(h, extra) && memopt_heap_get_stats(h).fell_back == (uint64_t)i + 1);
        CHECK(memopt_heap_free(h, s.a) == MEMOPT_OK && memopt_heap_free(h, s.c) == MEMOPT_OK && memopt_heap_free(h, s.d) == MEMOPT_OK && memopt_heap_free(h, extra) == MEMOPT_OK);
        CHECK(memopt_heap_get_stats(h).used == 640 && heap_check(h) == MEMOPT_OK);
    }
    CHECK(memopt_heap_unplan(h) == MEMOPT_OK && memopt_heap_get_stats(h).planned == 0 && memopt_heap_get_stats(h).largest >= 960);
    CHECK(memopt_heap_free(h, before) == MEMOPT_OK && memopt_heap_get_stats(h).free_blocks == 1 && heap_check(h) == MEMOPT_OK);
    memopt_heap_destroy(h);
}
static void test_heap_replay_differs(void) {
    memopt_heap *h = heap_planned(1 << 20); heap_step s, t; memopt_block x; heap_entry e; size_t i, idle;
    /* b is missing: c is found one slot ahead; what asks for more, another tag or another alignment is not served */
    CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
    s.a = heap_get(h, 640, 0, heap_kept);
    x = heap_get(h, 641, 0, heap_kept); CHECK(!heap_in_region(h, x) && memopt_heap_free(h, x) == MEMOPT_OK);
    x = heap_get(h, 64, 0, 0);          CHECK(!heap_in_region(h, x) && memopt_heap_free(h, x) == MEMOPT_OK);
    x = heap_get(h, 64, 1 << 16, heap_gone); CHECK(!heap_in_region(h, x) && memopt_heap_free(h, x) == MEMOPT_OK);
    s.c = heap_get(h, 256, 0, heap_gone);
    CHECK(heap_in_region(h, s.c) && h->replay.cursor == 3 && memopt_heap_get_stats(h).fell_back == 3);
    s.d = heap_get(h, 64, 0, heap_gone);
    CHECK(heap_in_region(h, s.d) && memopt_heap_free(h, s.c) == MEMOPT_OK);
    memset(&e, 0, sizeof e);
    for (i = idle = 0; heap_walk(h, &e); ++i) idle += e.kind == HEAP_IDLE ? e.bytes : 0;
    CHECK(idle == 960 - 704 && memopt_heap_get_stats(h).idle == idle);
    /* a and d live on into the next step: their places are not given out, everything else is */
    CHECK(memopt_heap_begin_step(h) == MEMOPT_OK && h->replay.late_count == 2 && heap_check(h) == MEMOPT_OK);
    t.a = heap_get(h, 640, 0, heap_kept);
    CHECK(!heap_in_region(h, t.a));
    t.b = heap_get(h, 100, 0, heap_gone);
    CHECK(heap_in_region(h, t.b)); /* it lies where c does */
    t.c = heap_get(h, 256, 0, heap_gone); /* b should have gone by now */
    CHECK(!heap_in_region(h, t.c) && h->replay.late_count == 3 && heap_check(h) == MEMOPT_OK);
    CHECK(memopt_heap_free(h, t.b) == MEMOPT_OK && h->replay.late_count == 2 && memopt_heap_free(h, s.d) == MEMOPT_OK);
    t.d = heap_get(h, 64, 0, heap_gone);
    CHECK(heap_in_region(h, t.d) && memopt_heap_free(h, s.a) == MEMOPT_OK && h->replay.late_count == 0);
    CHECK(memopt_heap_free(h, t.a) == MEMOPT_OK && memopt_heap_free(h, t.c) == MEMOPT_OK && memopt_heap_free(h, t.d) == MEMOPT_OK);
    CHECK(memopt_heap_get_stats(h).used == 0 && heap_check(h) == MEMOPT_OK);
    memopt_heap_destroy(h);
}
/* More blocks outstay their record than are kept apart: nothing is served until they are gone. */
static void test_heap_replay_late(void) {
    memopt_heap *dry = heap_new(NULL, 1 << 20, 64, NULL), *h = heap_new(NULL, 1 << 20, 64, NULL); memopt_block b[40], c; size_t i; int k;
    CHECK(memopt_heap_record(dry) == MEMOPT_OK);
    for (i = 0; i < 40; ++i) b[i] = heap_get(dry, 64 + 64 * i, 0, 0);
    for (i = 0; i < 40; ++i) CHECK(memopt_heap_free(dry, b[i]) == MEMOPT_OK);
    CHECK(memopt_heap_plan(h, dry, &heap_quick, NULL) == MEMOPT_OK);
    for (k = 0; k < 2; ++k) {
        CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
        for (i = 0; i < 39; ++i) b[i] = heap_get(h, 64 + 64 * i, 0, 0);
        CHECK(heap_served(h) == 39u * (unsigned)(k + 1) + (unsigned)k);
        CHECK(memopt_heap_begin_step(h) == MEMOPT_OK && h->replay.late_count == MEMOPT_I_HEAP_LATE && h->replay.late_more == 39 - MEMOPT_I_HEAP_LATE);
        CHECK(memopt_heap_begin_step(h) == MEMOPT_OK && h->replay.late_more == 39 - MEMOPT_I_HEAP_LATE && heap_check(h) == MEMOPT_OK);
        for (i = 0; i < 40; ++i) { /* some places are known to be taken, of the last nobody knows that it is free */
            c = heap_get(h, 64 + 64 * i, 0, 0);
            CHECK(!heap_in_region(h, c) && memopt_heap_free(h, c) == MEMOPT_OK && h->replay.cursor == i + 1);
        }
        for (i = 0; i < 39; ++i) CHECK(memopt_heap_free(h, b[k ? i : 38 - i]) == MEMOPT_OK);
        CHECK(h->replay.late_count == 0 && h->replay.late_more == 0);
        CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
        c = heap_get(h, 64, 0, 0);
        CHECK(heap_in_region(h, c) && memopt_heap_free(h, c) == MEMOPT_OK && heap_check(h) == MEMOPT_OK);
    }
    memopt_heap_destroy(dry); memopt_heap_destroy(h);
}
/* No other way is left: the region is given back, and what was served from it lives on. What would not help costs no plan. */
static void test_heap_replay_gives_back(void) {
    memopt_heap *h = heap_planned(2048); heap_step s; memopt_block big, x; memopt_heap_stats before;
    CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
    s.a = heap_get(h, 640, 0, heap_kept);
    big = heap_get(h, 1088, 0, 0); /* region 960, and all the rest */
    x.node = h->replay.region; x.serial = h->nodes[x.node].serial; x.offset = h->nodes[x.node].offset;
    CHECK(memopt_heap_free(h, x) == MEMOPT_ERR_ARGUMENT && !memopt_heap_pointer(h, x)); /* forged: the region itself */
    before = memopt_heap_get_stats(h);
    CHECK(before.reserved == 2048 && before.largest == 0 && before.idle == 320);
    CHECK(memopt_heap_alloc(h, 321, 0, 0, &x) == MEMOPT_ERR_MEMORY && memopt_heap_get_stats(h).planned == 960);
    CHECK(memopt_heap_alloc(h, SIZE_MAX - 63, 0, 0, &x) == MEMOPT_ERR_MEMORY && memopt_heap_get_stats(h).planned == 960);
    x = heap_get(h, 320, 0, 0);
    CHECK(memopt_heap_get_stats(h).planned == 0 && memopt_heap_get_stats(h).used == 2048 && heap_check(h) == MEMOPT_OK);
    CHECK(memopt_heap_free(h, s.a) == MEMOPT_OK && memopt_heap_free(h, s.a) == MEMOPT_ERR_STATE && memopt_heap_free(h, x) == MEMOPT_OK);
    CHECK(memopt_heap_get_stats(h).largest == 960 && memopt_heap_begin_step(h) == MEMOPT_OK); /* without a plan, a step is nothing */
    heap_record_step(h);        /* and it can all begin again, now in place */
    CHECK(memopt_heap_plan(h, NULL, &heap_quick, NULL) == MEMOPT_OK && memopt_heap_get_stats(h).planned == 960);
    CHECK(memopt_heap_unplan(h) == MEMOPT_OK && memopt_heap_plan(h, h, &heap_quick, NULL) == MEMOPT_OK); /* the record is still there */
    CHECK(memopt_heap_begin_step(h) == MEMOPT_OK && heap_in_region(h, heap_get(h, 640, 0, heap_kept)));
    CHECK(memopt_heap_free(h, big) == MEMOPT_OK && heap_check(h) == MEMOPT_OK);
    memopt_heap_destroy(h); /* with a block in use and a plan */
    h = heap_new(NULL, 832, 64, NULL);
    { memopt_heap *dry = heap_new(NULL, 4096, 64, NULL); memopt_plan_result r; memset(&r, 1, sizeof r);
      CHECK(memopt_heap_record(dry) == MEMOPT_OK && memopt_heap_plan(h, dry, NULL, &r) == MEMOPT_OK && r.peak == 0); /* nothing to plan */
      heap_record_step(dry);
      CHECK(memopt_heap_plan(h, dry, &heap_quick, &r) == MEMOPT_ERR_MEMORY && r.peak == 0);
      CHECK(test_error_says(memopt_heap_error(h), MEMOPT_ERR_MEMORY, "the plan has no room for its region, or no memory for its tables: asked 960 B, "
                                                                     "free 0 B, largest piece 0 B, fragmentation 0%")); /* nothing is reserved yet */
      memopt_heap_destroy(dry); }
    CHECK(memopt_heap_get_stats(h).planned == 0 && heap_check(h) == MEMOPT_OK);
    memopt_heap_destroy(h);
}
/* Where the source commits, the region's memory comes when it is reached, and what was not reached is a gap afterwards. */
static void test_heap_replay_commits(void) {
    static heap_mock m; memopt_heap *dry = heap_new(NULL, 1 << 24, 64, NULL), *h; memopt_block a, b, c; const size_t cell = MEMOPT_I_HEAP_CELL; memopt_heap_stats s;
    heap_mock_init(&m, 1024, 1, 0);
    h = heap_new(&m.source, 0, 1024, NULL);
    CHECK(memopt_heap_record(dry) == MEMOPT_OK);
    a = heap_get(dry, 4 * cell, 0, 0); b = heap_get(dry, 2 * cell, 0, 0);
    CHECK(memopt_heap_free(dry, b) == MEMOPT_OK && memopt_heap_free(dry, a) == MEMOPT_OK);
    c = heap_get(h, 100, 0, 0);
    CHECK(memopt_heap_plan(h, dry, &heap_quick, NULL) == MEMOPT_OK);
    s = memopt_heap_get_stats(h);
    CHECK(s.reserved == 1024 && s.planned == 6 * cell + 1024 - 128 && s.idle == 1024 - 128 && heap_mock_held(&m) == 1024);
    CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
    m.fail_on = m.calls + 1; /* the region's commit fails: the ordinary way serves */
    a = heap_get(h, cell, 0, 0);
    CHECK(!heap_in_region(h, a) && memopt_heap_get_stats(h).planned && memopt_heap_free(h, a) == MEMOPT_OK && heap_check(h) == MEMOPT_OK);
    CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
    a = heap_get(h, cell, 0, 0);
    s = memopt_heap_get_stats(h);
    CHECK(heap_in_region(h, a) && s.reserved == heap_mock_held(&m) && s.idle == 1024 - 128 && heap_check(h) == MEMOPT_OK);
    b = heap_get(h, 64, 0, 0);
    CHECK(heap_in_region(h, b) && heap_check(h) == MEMOPT_OK);
    CHECK(memopt_heap_unplan(h) == MEMOPT_OK && memopt_heap_get_stats(h).reserved == heap_mock_held(&m) && heap_check(h) == MEMOPT_OK);
    CHECK(memopt_heap_free(h, a) == MEMOPT_OK && memopt_heap_free(h, b) == MEMOPT_OK && memopt_heap_free(h, c) == MEMOPT_OK);
    a = heap_get(h, h->capacity, 0, 0); /* fills all gaps */
    CHECK(a.offset == h->base && memopt_heap_free(h, a) == MEMOPT_OK && memopt_heap_trim(h, NULL) == MEMOPT_OK && heap_mock_held(&m) == 0);
    memopt_heap_destroy(dry); memopt_heap_destroy(h);
    CHECK(m.live == 0 && m.wrong == 0);
}
/* A field is changed: the check sees it, and sees that it is mended. */
#define HEAP_BREAK(h, lvalue, change) do { unsigned char saved[8]; memcpy(saved, &(lvalue), sizeof(lvalue)); \
    CHECK(heap_check(h) == MEMOPT_OK); lvalue ^= (change); CHECK(heap_check(h) == MEMOPT_ERR_CORRUPT); \
    memcpy(&(lvalue), saved, sizeof(lvalue)); } while (0)
/* A place that is reached at many points leaves many pieces when the region goes; the nodes for them are kept ready. */
static void test_heap_replay_pieces(void) {
    static heap_mock m; memopt_heap *dry = heap_new(NULL, 1 << 24, 64, NULL), *h; memopt_block a, b; const size_t cell = MEMOPT_I_HEAP_CELL; size_t i;
    heap_mock_init(&m, 1024, 1, 0);
    h = heap_new(&m.source, 0, 1024, NULL);
    CHECK(memopt_heap_record(dry) == MEMOPT_OK);
    a = heap_get(dry, 16 * cell, 8 * cell, 0); b = heap_get(dry, 16 * cell, 8 * cell, 0);
    CHECK(memopt_heap_free(dry, b) == MEMOPT_OK && memopt_heap_free(dry, a) == MEMOPT_OK);
    CHECK(memopt_heap_plan(h, dry, &heap_quick, NULL) == MEMOPT_OK);
    for (i = 0; i < 4; ++i) {
        CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
        a = heap_get(h, 64, 0, 0); b = heap_get(h, 64, cell << i, 0);
        CHECK(heap_in_region(h, a) && heap_in_region(h, b) && heap_check(h) == MEMOPT_OK);
        if (i == 3) HEAP_BREAK(h, h->pledged, h->pledged ^ 3u); /* four pieces lie idle, one of them before b */
        CHECK(memopt_heap_free(h, a) == MEMOPT_OK && memopt_heap_free(h, b) == MEMOPT_OK);
    }
    CHECK(memopt_heap_unplan(h) == MEMOPT_OK && heap_check(h) == MEMOPT_OK && memopt_heap_get_stats(h).reserved == heap_mock_held(&m));
    memopt_heap_destroy(dry); memopt_heap_destroy(h);
    CHECK(m.live == 0 && m.wrong == 0);
}
/* Each invariant, broken once. */
static void test_heap_check_sees(void) {
    memopt_heap *h = heap_planned(8192), *x; static heap_mock m; memopt_block a = heap_get(h, 640, 0, 0), b = heap_get(h, 64, 0, 0), c = heap_get(h, 640, 0, 0), s;
    CHECK(heap_grow(h, 640) == MEMOPT_OK && memopt_heap_free(h, a) == MEMOPT_OK);
    HEAP_BREAK(h, h->nodes[0].serial, 1u);
    HEAP_BREAK(h, h->nodes[b.node].serial, 1u);
    HEAP_BREAK(h, h->nodes[b.node].size, 64u);
    HEAP_BREAK(h, h->nodes[b.node].size, 1u);
    HEAP_BREAK(h, h->nodes[b.node].offset, 64u);
    HEAP_BREAK(h, h->nodes[b.node].before, MEMOPT_I_HEAP_OPEN);
    HEAP_BREAK(h, h->nodes[b.node].after, MEMOPT_I_HEAP_OPEN);
    HEAP_BREAK(h, h->nodes[a.node].up, 1u);
    HEAP_BREAK(h, h->cells[MEMOPT_I_HEAP_CHILD(a.node)], b.node);
    HEAP_BREAK(h, h->cells[MEMOPT_I_HEAP_CHILD(a.node)], h->unused[0]);
    HEAP_BREAK(h, h->bins[0], (uint64_t)1 << 63);
    HEAP_BREAK(h, h->bins[3], (uint64_t)1);
    HEAP_BREAK(h, h->levels, (uint64_t)8);
    HEAP_BREAK(h, h->top, 1u);
    HEAP_BREAK(h, h->held, 64u);
    HEAP_BREAK(h, h->used, 64u);
    HEAP_BREAK(h, h->used_blocks, 1u);
    HEAP_BREAK(h, h->unused_count, 1u);
    HEAP_BREAK(h, h->unused[0], h->unused[0] ^ c.node);
    HEAP_BREAK(h, h->unused[0], h->unused[0]);
    HEAP_BREAK(h, h->unused[0], h->unused[0] ^ UINT32_MAX);
    HEAP_BREAK(h, h->pledged, 1u << 30);
    HEAP_BREAK(h, h->capacity, (size_t)8192 | 64);
    HEAP_BREAK(h, h->replay.live, 1u);
    HEAP_BREAK(h, h->replay.in_use, (size_t)64);
    HEAP_BREAK(h, h->replay.missing, (size_t)64);
    CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
    s = heap_get(h, 640, 0, heap_kept);
    CHECK(heap_in_region(h, s));
    HEAP_BREAK(h, h->nodes[s.node].before, 1u);
    HEAP_BREAK(h, h->nodes[s.node].after, 1u);
    HEAP_BREAK(h, h->nodes[s.node].offset, (size_t)1 << 20);
    HEAP_BREAK(h, h->replay.cursor, 1u);
    HEAP_BREAK(h, h->replay.slots[0].late, 1u);
    HEAP_BREAK(h, h->replay.slots[0].late, 2u);
    CHECK(memopt_heap_begin_step(h) == MEMOPT_OK && h->replay.late_count == 1);
    HEAP_BREAK(h, h->replay.late[0], 1u);
    HEAP_BREAK(h, h->replay.late_count, 1u);
    HEAP_BREAK(h, h->replay.late_more, 1u);
    memopt_heap_destroy(h);
    heap_mock_init(&m, 1024, 0, 0);
    x = heap_new(&m.source, 0, 1024, NULL);
    a = heap_get(x, 1024, 0, 0); b = heap_get(x, 1024, 0, 0);
    HEAP_BREAK(x, x->extents[1].base, (size_t)1 << 20);
    HEAP_BREAK(x, x->extents[1].bytes, (size_t)1 << 20);
    HEAP_BREAK(x, x->extents[0].bytes, (size_t)1024);
    HEAP_BREAK(x, x->nodes[a.node].size, (size_t)64);
    memopt_heap_destroy(x);
}
/* Random steps on a plain heap and on one that replays, in the same capacity. Steps as recorded never fail. Where they
   differ, luck decides who can place what; it must not favour the plain heap. */
typedef struct heap_event { int is_alloc; size_t id; } heap_event;
#define HEAP_STEP_BLOCKS 60
static size_t heap_random_step(uint64_t *seed, size_t *size, memopt_tag *tag, heap_event *events, size_t *peak) {
    size_t live[HEAP_STEP_BLOCKS], count = 0, n = 0, events_count = 0, sum = 0, k; const int nested = test_below(seed, 2) != 0;
    for (*peak = 0; n < HEAP_STEP_BLOCKS || count; ) {
        heap_event *e = &events[events_count++];
        e->is_alloc = n < HEAP_STEP_BLOCKS && (count < 3 || test_below(seed, 100) < 52 || (nested && n < HEAP_STEP_BLOCKS / 2));
        if (e->is_alloc) {
            size[n] = 64 * (1 + test_below(seed, test_below(seed, 3) ? 64 : 1024)); tag[n] = (memopt_tag)test_below(seed, 3);
            sum += size[n];
            if (sum > *peak) *peak = sum;
            live[count++] = e->id = n++;
        } else {
            k = nested ? count - 1 - (count > 1 && !test_below(seed, 4)) : test_below(seed, count);
            e->id = live[k];
            live[k] = live[--count];
            sum -= size[e->id];
        }
    }
    return events_count;
}
static void test_heap_replay_and_plain(void) {
    static const unsigned slack[] = { 0, 5, 20 }; enum { SAME, SMALLER, MISSING, KINDS };
    size_t plain_only[KINDS] = { 0, 0, 0 }, replay_only[KINDS] = { 0, 0, 0 }; uint64_t seed = 11; size_t trace, i, k;
    for (trace = 0; trace < 150 * (HEAP_TEST_TIMES > 1 ? 20 : 1); ++trace) {
        size_t size[HEAP_STEP_BLOCKS], peak, count; memopt_tag tag[HEAP_STEP_BLOCKS]; heap_event events[2 * HEAP_STEP_BLOCKS];
        memopt_block b[2][HEAP_STEP_BLOCKS]; memopt_heap *dry, *h[2]; int step, over = 0; const int kind = (int)(trace % KINDS);
        count = heap_random_step(&seed, size, tag, events, &peak);
        dry = heap_new(NULL, 1 << 24, 64, NULL);
        peak = (peak + peak * slack[trace / KINDS % 3] / 100 + 63) / 64 * 64;
        h[0] = heap_new(NULL, peak, 64, NULL); h[1] = heap_new(NULL, peak, 64, NULL);
        CHECK(memopt_heap_record(dry) == MEMOPT_OK);
        for (i = 0; i < count; ++i)
            if (events[i].is_alloc) b[0][events[i].id] = heap_get(dry, size[events[i].id], 0, tag[events[i].id]);
            else CHECK(memopt_heap_free(dry, b[0][events[i].id]) == MEMOPT_OK);
        if (memopt_heap_plan(h[1], dry, &heap_quick, NULL)) over = 1; /* the greedy plan is larger than the capacity */
        for (step = 0; step < 8 && !over; ++step) {
            const size_t scale = kind == SMALLER ? 64 + test_below(&seed, 64) : 128;
            memset(b, 0, sizeof b);
            CHECK(memopt_heap_begin_step(h[1]) == MEMOPT_OK);
            for (i = 0; i < count && !over; ++i) {
                k = events[i].id;
                if (events[i].is_alloc) {
                    memopt_status s[2];
                    if (kind == MISSING && !test_below(&seed, 20)) continue;
                    s[0] = memopt_heap_alloc(h[0], size[k] * scale / 128, 0, tag[k], &b[0][k]);
                    s[1] = memopt_heap_alloc(h[1], size[k] * scale / 128, 0, tag[k], &b[1][k]);
                    CHECK_AT(s[1] == MEMOPT_OK || kind != SAME, trace);
                    plain_only[kind] += !s[0] && s[1]; replay_only[kind] += s[0] && !s[1];
                    over = !s[0] && s[1];
                    if (s[0] && !s[1]) { CHECK(memopt_heap_free(h[1], b[1][k]) == MEMOPT_OK); b[1][k].serial = 0; }
                } else if (b[0][k].serial && b[1][k].serial) {
                    CHECK(memopt_heap_free(h[0], b[0][k]) == MEMOPT_OK && memopt_heap_free(h[1], b[1][k]) == MEMOPT_OK);
                    b[0][k].serial = 0;
                }
            }
            CHECK_AT(heap_check(h[1]) == MEMOPT_OK, trace);
        }
        memopt_heap_destroy(dry); memopt_heap_destroy(h[0]); memopt_heap_destroy(h[1]);
    }
    CHECK(plain_only[SAME] == 0 && replay_only[SAME] > 0);
    CHECK(plain_only[SMALLER] * 50 <= replay_only[SMALLER] && plain_only[MISSING] * 50 <= replay_only[MISSING]);
}

/* -- every failure of the host's memory and of the source, one after the other -- */

static memopt_status heap_story(memopt_heap *h, size_t *failures) { /* a bit of everything; nothing is left in use */
    static const memopt_plan_options quick = { 0, 0, 0, 1, NULL }; memopt_block b[150]; size_t i, k; memopt_status s, worst = MEMOPT_OK; int round;
    memset(b, 0, sizeof b);
    for (round = 0; round < 4; ++round) {
        const size_t used = memopt_heap_get_stats(h).used;
        if (round == 1 && (s = memopt_heap_record(h)) != MEMOPT_OK) { ++*failures; worst = s; }
        if (round == 2 && (s = memopt_heap_plan(h, NULL, &quick, NULL)) != MEMOPT_OK) { ++*failures; worst = s; }
        if (round >= 2) CHECK(memopt_heap_begin_step(h) == MEMOPT_OK);
        CHECK(memopt_heap_get_stats(h).used == used && heap_check(h) == MEMOPT_OK);
        for (i = 0; i < 150; ++i) {
            const memopt_heap_stats before = memopt_heap_get_stats(h);
            s = memopt_heap_alloc(h, 64 + 64 * (i % 5) + (round == 3 ? i : 0), i % 7 ? 0 : 256, 0, &b[i]);
            if (s) {
                const memopt_heap_stats after = memopt_heap_get_stats(h);
                ++*failures; worst = s;
                CHECK(!b[i].serial && after.used == before.used && after.used_blocks == before.used_blocks && after.planned == before.planned);
            }
            if (i % 3 == 2 && b[i - 1].serial) { CHECK(memopt_heap_free(h, b[i - 1]) == MEMOPT_OK); b[i - 1].serial = 0; }
        }
        for (k = 0; k < 150; ++k) if (b[k].serial) { CHECK(memopt_heap_free(h, b[k]) == MEMOPT_OK); b[k].serial = 0; }
        CHECK(heap_check(h) == MEMOPT_OK && memopt_heap_get_stats(h).used == 0);
        s = memopt_heap_trim(h, NULL);
        if (s) { ++*failures; worst = s; }
    }
    return worst;
}

/* A user's source over one region that can be reserved once. */
#define HEAP_REGION ((size_t)1 << 20)
typedef struct heap_region { unsigned char *bytes; int taken; } heap_region;

static memopt_status heap_region_reserve(memopt_source *source, size_t bytes, void **base) {
    heap_region *region = (heap_region *)source->user;

    if (region->taken || bytes > source->capacity) return MEMOPT_ERR_MEMORY;
    region->taken = 1;
    *base = region->bytes;
    return MEMOPT_OK;
}

static void heap_region_release(memopt_source *source, void *base, size_t bytes) {
    (void)base;
    (void)bytes;
    ((heap_region *)source->user)->taken = 0;
}

/* largest_grown() succeeds, and one byte more does not, however full the heap is. */
static void heap_grown_is_true(memopt_heap *h, size_t first, size_t at) {
    const size_t promised = heap_largest_grown(h);
    memopt_heap_stats before = memopt_heap_get_stats(h);
    memopt_block filler, b;

    CHECK_AT(promised <= before.capacity && before.capacity <= HEAP_REGION && promised >= first, at);
    if (first) {
        CHECK_AT(memopt_heap_alloc(h, first, 0, 0, &filler) == MEMOPT_OK, at);
        heap_grown_is_true(h, 0, at);
        CHECK_AT(memopt_heap_free(h, filler) == MEMOPT_OK && memopt_heap_trim(h, NULL) == MEMOPT_OK, at);
        CHECK_AT(heap_largest_grown(h) == promised, at);
    }
    if (promised) CHECK_AT(memopt_heap_alloc(h, promised, 0, 0, &b) == MEMOPT_OK && memopt_heap_free(h, b) == MEMOPT_OK, at);
    CHECK_AT(memopt_heap_alloc(h, promised + 1, 0, 0, &b) == MEMOPT_ERR_MEMORY, at);
}

/* Capacity 0, all that the source has, more than it has, and less: for blocks as they happen to lie, for a source of a
   user's, and for one that commits. */
static void test_heap_capacity(void) {
    static const size_t capacities[] = { 0, HEAP_REGION, HEAP_REGION * 2, SIZE_MAX, HEAP_REGION / 2 + 5 };
    unsigned char *room = (unsigned char *)malloc(HEAP_REGION + 64);
    size_t skew, i, first;
    int kind;

    CHECK(room != NULL);
    if (!room) return;
    for (kind = 0; kind < 2; ++kind)
        for (skew = 0; skew < 64; skew += 9)
            for (i = 0; i < sizeof capacities / sizeof *capacities; ++i)
                for (first = 0; first < 4096; first += 1024) {
                    heap_region region;
                    memopt_source source;
                    memopt_heap *h;
                    size_t has;

                    if (kind == 0) CHECK(memopt_source_block(room + skew, HEAP_REGION, &source) == MEMOPT_OK);
                    else {
                        CHECK(memopt_source_allocator(NULL, &source) == MEMOPT_OK);
                        region.bytes = (unsigned char *)(((uintptr_t)room + 63) & ~(uintptr_t)63);
                        region.taken = 0;
                        source.reserve_fn = heap_region_reserve; source.release_fn = heap_region_release;
                        source.kind = MEMOPT_SOURCE_USER; source.user = &region; source.base_alignment = 64;
                        source.capacity = HEAP_REGION - 64 * skew; source.reserved_once = 1;
                    }
                    h = heap_new(&source, capacities[i], 0, NULL);
                    has = source.capacity / 64 * 64;
                    if (capacities[i] && capacities[i] < has) has = capacities[i] / 64 * 64;
                    CHECK_AT(memopt_heap_get_stats(h).capacity == has && heap_largest_grown(h) == has, skew);
                    heap_grown_is_true(h, first, skew);
                    memopt_heap_destroy(h);
                }
    free(room);
}
static void test_heap_failures(void) {
    static heap_mock m; test_faults f; memopt_host host; memopt_heap_desc d; memopt_heap *h; memopt_status s; size_t n, failures; int kind, from;
    for (kind = 0; kind < 6; ++kind) for (from = 0; from < 2; ++from) { /* host or source fails; offsets, committing, extents; once or from then on */
        for (n = 1; n < 2000; n += TEST_STRIDE) {
            memset(&f, 0, sizeof f); memset(&d, 0, sizeof d);
            host = test_host(&f);
            heap_mock_init(&m, 64, kind / 2 == 1, 0);
            *(from ? &f.fail_from : &f.fail_on) = kind % 2 ? 0 : n;
            *(from ? &m.fail_from : &m.fail_on) = kind % 2 ? n : 0;
            d.source = kind / 2 ? &m.source : NULL; d.host = &host; d.extent = 640;
            d.capacity = 120000;
            h = NULL; failures = 0;
            s = memopt_heap_create(&d, &h);
            CHECK((s == MEMOPT_OK) == (h != NULL) && (s == MEMOPT_OK || s == (kind % 2 ? MEMOPT_ERR_DEVICE : MEMOPT_ERR_MEMORY)));
            if (h) {
                s = heap_story(h, &failures);
                CHECK(!s == !failures && (!s || s == MEMOPT_ERR_MEMORY || (kind % 2 && s == MEMOPT_ERR_DEVICE)));
            }
            memopt_heap_destroy(h);
            CHECK(f.live_blocks == 0 && f.bad_frees == 0 && m.live == 0 && m.wrong == 0);
            if ((kind % 2 ? m.calls : f.calls) < n) { CHECK(s == MEMOPT_OK); break; }
        }
        CHECK(n < 2000); /* it got through */
    }
}
/* Why: of a creation in the desc's error, of other calls in the heap's. */
static memopt_status test_heap_no_reserve(memopt_source *s, size_t bytes, void **base) {
    (void)s; (void)bytes; (void)base;
    return MEMOPT_ERR_DEVICE;
}
static memopt_status heap_errors_commit(memopt_source *s, void *start, size_t bytes) {
    (void)s; (void)start; (void)bytes;
    return MEMOPT_OK;
}
#define HEAP_SAYS(change, want, text) REFUSES(d.error, (d = right, change), memopt_heap_create(&d, to), \
    MEMOPT_ERR_##want, "heap: " text)
#define HEAP_CALL(call, want, text) do { \
    CHECK((call) == MEMOPT_ERR_##want); \
    e = memopt_heap_error(h); \
    CHECK(test_says(&e, MEMOPT_ERR_##want, text)); } while (0)
static void test_heap_errors_of_plans(void) { /* no memory for the items, for the planner, for the tables */
    size_t n;

    for (n = 1; n < 4; ++n) {
        test_faults f; memopt_host host; memopt_heap_desc d; memopt_heap *h = NULL; memopt_block b; memopt_plan_options quick;
        memset(&f, 0, sizeof f); memset(&d, 0, sizeof d); memset(&quick, 0, sizeof quick);
        host = test_host(&f);
        d.capacity = 4096; d.host = &host;
        quick.work = 1; quick.error = &test_why;
        CHECK(memopt_heap_create(&d, &h) == MEMOPT_OK && memopt_heap_record(h) == MEMOPT_OK);
        CHECK(memopt_heap_alloc(h, 64, 0, 0, &b) == MEMOPT_OK && memopt_heap_free(h, b) == MEMOPT_OK);
        f.fail_on = f.calls + n;
        test_why_reset();
        CHECK(memopt_heap_plan(h, NULL, &quick, NULL) == MEMOPT_ERR_MEMORY);
        CHECK_AT(test_error_says(memopt_heap_error(h), MEMOPT_ERR_MEMORY,
            n == 1 ? (sizeof(size_t) > 4 ? "no memory to plan in: asked 56 B" : "no memory to plan in: asked 28 B")
            : n == 2 ? "the plan could not be made: the error of its options says why, free 4.0 KiB, largest piece 4.0 KiB, fragmentation 0%"
            : "the plan has no room for its region, or no memory for its tables: asked 64 B, free 4.0 KiB, largest piece 4.0 KiB, "
              "fragmentation 0%"), n);
        CHECK_AT(n == 2 ? test_why.status == MEMOPT_ERR_MEMORY : test_why_untouched(), n);
        CHECK(memopt_heap_plan(h, NULL, &quick, NULL) == MEMOPT_OK);
        memopt_heap_destroy(h);
        CHECK(f.live_blocks == 0 && f.bad_frees == 0);
    }
}
static void test_heap_errors(void) {
    memopt_heap *h = NULL, *other = NULL, **to = &h;
    memopt_heap_desc right, d;
    memopt_source s, half;
    memopt_block b, none;
    memopt_ledger *l = NULL;
    memopt_error e;
    memopt_host host;
    test_faults f;
    size_t n;
    char text[96];

    CHECK(memopt_source_counting(&s) == MEMOPT_OK && memopt_ledger_create(NULL, &l) == MEMOPT_OK);
    memset(&right, 0, sizeof right);
    memset(&host, 0, sizeof host);
    memset(&none, 0, sizeof none);
    right.capacity = 4096;
    HEAP_SAYS(to = NULL, ARGUMENT, "out is NULL");
    to = &h;
    HEAP_SAYS(d.capacity = 0, ARGUMENT, "capacity 0, at least 64");
    HEAP_SAYS(d.capacity = 63, ARGUMENT, "capacity 63, at least 64");
    HEAP_SAYS(d.alignment = 48, ARGUMENT, "alignment 48, must be a power of two");
    HEAP_SAYS(d.alignment = 2097152, ARGUMENT, "alignment 2097152, at most 1048576");
    HEAP_SAYS((half = s, half.base_alignment = 256, d.source = &half, d.alignment = 512), ARGUMENT,
              "alignment 512, at most source.base_alignment 256");
    HEAP_SAYS((half = s, half.reserve_fn = NULL, d.source = &half), ARGUMENT, "source.reserve_fn is NULL");
    HEAP_SAYS((host.allocator.free_fn = test_free, d.host = &host), ARGUMENT, "host.allocator is half a table");
    HEAP_SAYS((half = s, half.reserve_fn = test_heap_no_reserve, half.commit_fn = heap_errors_commit,
               half.decommit_fn = heap_errors_commit, d.source = &half), DEVICE, "capacity 4096, refused by the source");
    for (n = 1; n < 3; ++n) { /* the heap itself, and its table */
        memset(&f, 0, sizeof f);
        host = test_host(&f);
        f.fail_on = n;
        d = right;
        d.host = &host;
        d.error = &test_why;
        test_why_reset();
        CHECK(memopt_heap_create(&d, to) == MEMOPT_ERR_MEMORY && test_why.status == MEMOPT_ERR_MEMORY);
        CHECK(memopt_error_text(&test_why, text, sizeof text, NULL) == MEMOPT_OK);
        CHECK_AT(strncmp(text, "heap: no memory for it: asked ", 30) == 0 && f.live_blocks == 0, n);
    }
    CHECK(h == NULL);

    d = right;
    d.ledger = l;
    ACCEPTS(d.error, (void)0, memopt_heap_create(&d, &h));
    CHECK(memopt_heap_create(&right, &other) == MEMOPT_OK);
    CHECK(memopt_heap_alloc(h, 64, 0, 0, &b) == MEMOPT_OK && test_why_untouched());
    HEAP_CALL(memopt_heap_alloc(h, 64, 0, 0, NULL), ARGUMENT, "heap: out is NULL");
    HEAP_CALL(memopt_heap_alloc(h, 0, 0, 0, &b), ARGUMENT, "heap: bytes is 0");
    HEAP_CALL(memopt_heap_alloc(h, 64, 48, 0, &b), ARGUMENT, "heap: alignment 48, must be a power of two");
    CHECK(e.free_bytes == memopt_heap_get_stats(h).free_bytes);
    HEAP_CALL(memopt_heap_alloc(h, 64, 0, 8, &b), ARGUMENT, "heap: tag 8, below the ledger's 8");
    HEAP_CALL(memopt_heap_alloc(h, SIZE_MAX - 1, 0, 0, &b), OVERFLOW, sizeof(size_t) > 4 ? "heap: the size does not fit size_t: asked 15.9 EiB"
                                                                                         : "heap: the size does not fit size_t: asked 3.9 GiB");
    CHECK(e.got.count == SIZE_MAX - 1);
    HEAP_CALL(memopt_heap_alloc(h, 5000, 0, 0, &b), MEMORY, "no free piece is large enough, and the heap cannot grow: asked 4.8 KiB, "
                                                            "free 3.9 KiB, largest piece 3.9 KiB, fragmentation 0%");
    CHECK(e.got.count == 5000 && e.limit.count == memopt_heap_largest(h));
    CHECK(memopt_ledger_add(l, MEMOPT_TAG_OTHER, SIZE_MAX - 64 - 64, &s, NULL) == MEMOPT_OK); /* with the block above: 64 below the end */
    HEAP_CALL(memopt_heap_alloc(h, 65, 0, 0, &b), OVERFLOW, "heap: the ledger's sum does not fit size_t: asked 65 B");
    CHECK(memopt_ledger_remove(l, MEMOPT_TAG_OTHER, SIZE_MAX - 64 - 64, &s) == MEMOPT_OK);
    CHECK(memopt_heap_alloc(other, 64, 0, 4096, &b) == MEMOPT_ERR_ARGUMENT);
    e = memopt_heap_error(other);
    CHECK(test_says(&e, MEMOPT_ERR_ARGUMENT, "heap: tag 4096, below 4096"));
    HEAP_CALL(memopt_heap_free(h, none), ARGUMENT, "not a block of this heap");
    CHECK(memopt_heap_alloc(h, 64, 0, 0, &b) == MEMOPT_OK && memopt_heap_free(h, b) == MEMOPT_OK);
    HEAP_CALL(memopt_heap_free(h, b), STATE, "the block was freed before");
    HEAP_CALL(memopt_heap_plan(h, NULL, NULL, NULL), STATE, "nothing was recorded");
    CHECK(memopt_heap_record(h) == MEMOPT_OK && memopt_heap_alloc(h, 64, 0, 0, &b) == MEMOPT_OK);
    CHECK(memopt_heap_free(h, b) == MEMOPT_OK && memopt_heap_plan(h, NULL, NULL, NULL) == MEMOPT_OK);
    HEAP_CALL(memopt_heap_plan(h, NULL, NULL, NULL), STATE, "there is a plan already");
    HEAP_CALL(memopt_heap_record(h), STATE, "a plan is being replayed");
    memopt_heap_destroy(h);
    memopt_heap_destroy(other);
    memopt_ledger_destroy(l);
    test_heap_errors_of_plans();
}
static void test_heap(void) {
    RUN(test_heap_offsets);
    RUN(test_heap_alignment);
    RUN(test_heap_bad_descs);
    RUN(test_heap_bad_calls);
    RUN(test_heap_errors);
    RUN(test_heap_ledger);
    RUN(test_heap_extents_join);
    RUN(test_heap_growth_fails);
    RUN(test_heap_real_memory);
    RUN(test_heap_root_shrinks);
    RUN(test_heap_record_cut_short);
    RUN(test_heap_check_sees);
    RUN(test_heap_trim_needs_nodes);
    RUN(test_heap_replay);
    RUN(test_heap_replay_differs);
    RUN(test_heap_replay_late);
    RUN(test_heap_replay_gives_back);
    RUN(test_heap_replay_commits);
    RUN(test_heap_replay_pieces);
    RUN(test_heap_replay_and_plain);
    RUN(test_heap_capacity);
    RUN(test_heap_failures);
    RUN(test_heap_model_offsets);
    RUN(test_heap_model_committing);
    RUN(test_heap_model_extents);
}
#ifndef TEST_COMBINED
int main(void) { test_heap(); return test_totals(); }
#endif
