/* The arena: offsets worked out by hand, and long random programs held against a naive model that is written from the
   description alone: two stacks of blocks, marks that are valid or not, and sums. */
#include "test.h"
#include "test_device.h"
#if defined(__linux__)
#  include <errno.h>
#endif

#define TEST_ARENA_PAGES_ROOM ((size_t)8 << 16)
#if defined(TEST_LONG)
#  define TEST_ARENA_TIMES 40u
#else
#  define TEST_ARENA_TIMES 1u
#endif

static size_t test_arena_up(size_t x, size_t alignment) { return x % alignment ? x + alignment - x % alignment : x; }
static memopt_arena *test_arena_new(memopt_source *source, size_t capacity, memopt_ledger *ledger) {
    memopt_arena_desc d; memopt_arena *a = NULL;
    memset(&d, 0, sizeof d);
    d.source = source; d.capacity = capacity; d.ledger = ledger;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
    if (!a) { printf("no arena, cannot go on\n"); exit(1); }
    return a;
}
static size_t test_arena_at(const memopt_arena *a, const void *p) { /* from the arena's beginning */
    return p ? (size_t)((uintptr_t)p - (uintptr_t)a->base) : SIZE_MAX;
}
static const char *test_arena_name(const memopt_arena *a, const void *address) { /* in the log; NULL: it has none */
    size_t i; int top;
    for (top = 0; a->log && top < 2; ++top)
        for (i = 0; i < a->ends[top].log_count; ++i) {
            const memopt_i_log_entry *e = memopt_i_arena_entry(a, top, i);
            if ((uintptr_t)address - (uintptr_t)memopt_i_arena_block(a, top, e) < e->bytes) return e->name;
        }
    return NULL;
}
static int test_arena_is(const void *start, size_t bytes, unsigned value) {
    const unsigned char *p = (const unsigned char *)start;
    return !bytes || (p[0] == value && !memcmp(p, p + 1, bytes - 1));
}
static int test_arena_says(const memopt_arena *a, memopt_status want, const char *text) {
    return test_error_says(memopt_arena_error(a), want, text);
}
/* What a failed call must leave alone; committed memory and the ledger's `failed` may grow. */
typedef struct test_arena_state { memopt_arena_stats stats; memopt_mark low, top; memopt_usage total; } test_arena_state;
static test_arena_state test_arena_look(const memopt_arena *a, const memopt_ledger *l) {
    test_arena_state s;
    memset(&s, 0, sizeof s);
    s.stats = memopt_arena_get_stats(a); s.low = memopt_arena_mark(a); s.top = memopt_arena_mark_top(a);
    s.total = memopt_ledger_total(l);
    s.total.failed = 0; s.stats.committed = 0;
    return s;
}
static int test_arena_same(test_arena_state x, test_arena_state y) {
    return x.stats.capacity == y.stats.capacity && x.stats.used_low == y.stats.used_low && x.stats.used_top == y.stats.used_top
        && x.stats.free_bytes == y.stats.free_bytes && x.stats.peak == y.stats.peak
        && x.low.used == y.low.used && x.low.epoch == y.low.epoch && x.top.used == y.top.used && x.top.epoch == y.top.epoch
        && x.total.now == y.total.now && x.total.peak == y.total.peak && x.total.blocks == y.total.blocks
        && x.total.allocs == y.total.allocs && x.total.frees == y.total.frees;
}

/* -- By hand -- */

static void test_arena_offsets(void) { /* capacity 4096, alignment 64 */
    memopt_source s; memopt_arena *a; memopt_push_options o; memopt_arena_stats st; int kind;
    static unsigned char room[8192];
    unsigned char *const aligned = room + (4096 - (uintptr_t)room % 4096) % 4096;
    for (kind = 0; kind < 2; ++kind) {
        if (kind) CHECK(memopt_source_counting(&s) == MEMOPT_OK);
        else CHECK(memopt_source_block(aligned, 4096, &s) == MEMOPT_OK);
        a = test_arena_new(&s, 4096, NULL);
        memset(&o, 0, sizeof o);
        CHECK(test_arena_at(a, memopt_arena_push(a, 1, 0)) == 0);
        CHECK(test_arena_at(a, memopt_arena_push(a, 64, 0)) == 64);
        CHECK(test_arena_at(a, memopt_arena_push(a, 65, 0)) == 128);          /* used 193 */
        CHECK(test_arena_at(a, memopt_arena_push_top(a, 1, 0)) == 4032);      /* top used 64 */
        CHECK(test_arena_at(a, memopt_arena_push_top(a, 64, 0)) == 3968);     /* 128 */
        CHECK(test_arena_at(a, memopt_arena_push_top(a, 65, 0)) == 3840);     /* 256 */
        st = memopt_arena_get_stats(a);
        CHECK(st.capacity == 4096 && st.used_low == 193 && st.used_top == 256 && st.free_bytes == 4096 - 449 && st.peak == 512);
        CHECK(kind || st.committed == 4096);
        o.alignment = 16;
        CHECK(test_arena_at(a, memopt_arena_push_with(a, 3, &o)) == 208);     /* 193 to 208; used 211 */
        o.alignment = 1;
        CHECK(test_arena_at(a, memopt_arena_push_with(a, 3, &o)) == 211);     /* used 214 */
        o.alignment = 1024;
        CHECK(test_arena_at(a, memopt_arena_push_with(a, 10, &o)) == 1024);   /* used 1034 */
        CHECK(test_arena_at(a, memopt_arena_push_zero(a, 10, 0)) == 1088);    /* used 1098 */
        CHECK(test_arena_at(a, memopt_arena_push_array(a, 5, 7, 0)) == 1152); /* used 1187 */
        CHECK(test_arena_at(a, MEMOPT_PUSH(a, double, 2, 0)) == 1216);        /* used 1232 */
        CHECK(test_arena_at(a, memopt_arena_push_with(a, 4, NULL)) == 1280);  /* used 1284 */
        o.top = 1;
        CHECK(test_arena_at(a, memopt_arena_push_with(a, 10, &o)) == 3072);   /* 3830 down to 3072; used 1024 */
        o.alignment = 1;
        CHECK(test_arena_at(a, memopt_arena_push_with(a, 10, &o)) == 3062);   /* used 1034 */
        st = memopt_arena_get_stats(a);
        CHECK(st.used_low == 1284 && st.used_top == 1034 && st.free_bytes == 1778);
        CHECK(st.peak == 3072); /* 2318, in units of 1024: the largest alignment at the top */
        CHECK(!memopt_arena_push(a, 3062 - 1344 + 1, 0)); /* the next 64 above 1284 is 1344 */
        CHECK(test_arena_at(a, memopt_arena_push(a, 3062 - 1344, 0)) == 1344);
        CHECK(memopt_arena_get_stats(a).free_bytes == 0 && memopt_arena_get_stats(a).peak == 4096);
        CHECK(!memopt_arena_push(a, 1, 0) && !memopt_arena_push_top(a, 1, 0));
        o.top = 0;
        CHECK(!memopt_arena_push_with(a, 1, &o));
        memopt_arena_destroy(a);
    }
}
static void test_arena_whole(void) { /* the last byte of either end, and both ends meeting exactly */
    memopt_source s; memopt_arena *a; memopt_mark zero, zero_top; size_t low;
    CHECK(memopt_source_counting(&s) == MEMOPT_OK);
    a = test_arena_new(&s, 1024, NULL);
    zero = memopt_arena_mark(a); zero_top = memopt_arena_mark_top(a);
    CHECK(test_arena_at(a, memopt_arena_push(a, 1024, 0)) == 0 && !memopt_arena_push(a, 1, 0) && !memopt_arena_push_top(a, 1, 0));
    CHECK(memopt_arena_rewind(a, zero) == MEMOPT_OK && !memopt_arena_push(a, 1025, 0) && !memopt_arena_push_top(a, 1025, 0));
    CHECK(test_arena_at(a, memopt_arena_push_top(a, 1024, 0)) == 0 && !memopt_arena_push(a, 1, 0));
    CHECK(memopt_arena_rewind(a, zero_top) == MEMOPT_OK);
    for (low = 1; low <= 1024; ++low) { /* the top gets what is left, in units of 64, and not a byte more */
        const size_t left = 1024 - test_arena_up(low, 64);
        CHECK_AT(memopt_arena_push(a, low, 0) != NULL, low);
        CHECK_AT(!memopt_arena_push_top(a, left + 1, 0), low);
        CHECK_AT(memopt_arena_error(a).limit.count == left && memopt_arena_error(a).free_bytes == 1024 - low, low);
        if (left) CHECK_AT(test_arena_at(a, memopt_arena_push_top(a, left, 0)) == 1024 - left, low);
        CHECK(memopt_arena_rewind(a, zero) == MEMOPT_OK && memopt_arena_rewind(a, zero_top) == MEMOPT_OK);
    }
    CHECK(memopt_arena_get_stats(a).peak == 1024);
    memopt_arena_destroy(a);
}

/* -- Arguments -- */

static void test_arena_arguments(void) {
    memopt_source s, tiny; memopt_arena *a = NULL; memopt_arena_desc d; memopt_host h; size_t i; static unsigned char room[64 + 63 + 200];
    static const size_t bad[] = { 1, 2, 3, 8, 15, 17, 48, 100, SIZE_MAX, SIZE_MAX / 2 + 1, (size_t)4 << 20 };
    unsigned char *const aligned = room + (64 - (uintptr_t)room % 64) % 64;
    CHECK(memopt_source_counting(&s) == MEMOPT_OK);
    memset(&d, 0, sizeof d);
    CHECK(memopt_arena_create(NULL, &a) == MEMOPT_ERR_ARGUMENT && memopt_arena_create(&d, &a) == MEMOPT_ERR_ARGUMENT);
    d.source = &s;
    CHECK(memopt_arena_create(&d, NULL) == MEMOPT_ERR_ARGUMENT);
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        d.alignment = bad[i];
        CHECK_AT(memopt_arena_create(&d, &a) == MEMOPT_ERR_ARGUMENT, bad[i]);
    }
    for (d.alignment = 16; d.alignment <= s.base_alignment; d.alignment *= 2) {
        CHECK_AT(memopt_arena_create(&d, &a) == MEMOPT_OK, d.alignment);
        CHECK(test_arena_at(a, memopt_arena_push(a, 1, 0)) == 0 && test_arena_at(a, memopt_arena_push(a, 1, 0)) == d.alignment);
        CHECK(memopt_arena_get_stats(a).capacity == s.capacity);
        memopt_arena_destroy(a);
        a = NULL;
    }
    d.alignment = 0;
    d.capacity = SIZE_MAX;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_OVERFLOW);
    d.capacity = SIZE_MAX - 63;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_MEMORY);
    d.capacity = s.capacity + 1;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_MEMORY);
    d.capacity = 100;
    memset(&h, 0, sizeof h);
    h.allocator.alloc_fn = test_alloc;
    d.host = &h;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_ARGUMENT);
    d.host = NULL;
    CHECK(memopt_ledger_create(NULL, &d.ledger) == MEMOPT_OK);
    d.log_entries = SIZE_MAX;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_OVERFLOW);
    d.log_entries = SIZE_MAX / sizeof(memopt_i_log_entry);
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_OVERFLOW);
    memopt_ledger_destroy(d.ledger);
    d.ledger = NULL;
    CHECK(a == NULL);
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK); /* without a ledger there is no log */
    memopt_arena_destroy(a);
    a = NULL;
    d.log_entries = 0;

    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK && memopt_arena_get_stats(a).capacity == 128); /* rounded up */
    memopt_arena_destroy(a);
    d.source = &tiny; /* a block of 100 bytes has one whole unit of 64 */
    CHECK(memopt_source_block(aligned, 100, &tiny) == MEMOPT_OK);
    a = NULL;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_MEMORY && !a);
    d.capacity = 0;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK && memopt_arena_get_stats(a).capacity == 64);
    memopt_arena_destroy(a);
    tiny.base_alignment = 4096; /* (it is not, but nothing lies there) an alignment above the capacity */
    d.alignment = 256;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_ERR_MEMORY);
}
static void test_arena_null(void) {
    memopt_mark m; memopt_arena_stats st, zero; memopt_push_options o;
    memset(&zero, 0, sizeof zero);
    memset(&o, 0, sizeof o);
    memset(&m, 0, sizeof m);
    CHECK(!memopt_arena_push(NULL, 1, 0) && !memopt_arena_push_top(NULL, 1, 0) && !memopt_arena_push_zero(NULL, 1, 0));
    CHECK(!memopt_arena_push_array(NULL, 1, 1, 0) && !memopt_arena_push_with(NULL, 1, &o) && !memopt_arena_push_with(NULL, 1, NULL));
    CHECK(memopt_arena_rewind(NULL, m) == MEMOPT_ERR_ARGUMENT && memopt_arena_trim(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_arena_check(NULL) == MEMOPT_ERR_ARGUMENT);
    m = memopt_arena_mark(NULL);
    CHECK(!m.arena && !m.used && !m.epoch && !m.top);
    m = memopt_arena_mark_top(NULL);
    CHECK(!m.arena && !m.used && !m.epoch && !m.top);
    st = memopt_arena_get_stats(NULL);
    CHECK(st.capacity == 0 && st.used_low == 0 && st.used_top == 0 && st.free_bytes == 0 && st.peak == 0 && st.committed == 0);
    CHECK(memopt_arena_error(NULL).status == MEMOPT_ERR_ARGUMENT && memopt_arena_error(NULL).reason != NULL);
    memopt_arena_destroy(NULL);
}
static void test_arena_bad_pushes(void) {
    memopt_source s; memopt_arena *a; memopt_push_options o; test_arena_state before; memopt_error e; size_t i; int top; memopt_ledger *l = NULL;
    static const size_t huge[] = { SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 62, SIZE_MAX - 63, SIZE_MAX - 64, SIZE_MAX / 2, SIZE_MAX / 2 + 1, 4097, 4000 };
    static const size_t bad[] = { 3, 48, SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2 + 1, (size_t)4 << 20 };
    int with_ledger;
    for (with_ledger = 0; with_ledger < 2; ++with_ledger) { /* without one pushes may take the fast path */
        if (with_ledger) CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK);
        CHECK(memopt_source_counting(&s) == MEMOPT_OK);
        a = test_arena_new(&s, 4096, l);
        e = memopt_arena_error(a);
        CHECK(e.status == MEMOPT_OK && e.reason && !e.got.kind && !e.free_bytes && !e.limit.kind);
        CHECK(memopt_arena_push(a, 100, 0) && memopt_arena_push_top(a, 100, 0)); /* free: 128 to 3968 */
        before = test_arena_look(a, l);
        memset(&o, 0, sizeof o);
        for (i = 0; i < sizeof huge / sizeof *huge; ++i)
            for (top = 0; top < 2; ++top) {
                o.top = top;
                CHECK_AT(!(top ? memopt_arena_push_top(a, huge[i], 0) : memopt_arena_push(a, huge[i], 0)), i);
                e = memopt_arena_error(a);
                CHECK_AT(e.status == MEMOPT_ERR_MEMORY && e.got.count == huge[i] && e.free_bytes == 4096 - 100 - 128 && e.limit.count == 3968 - 128, i);
                CHECK_AT(!memopt_arena_push_with(a, huge[i], &o) && memopt_arena_error(a).got.count == huge[i], i);
                CHECK_AT(!memopt_arena_push_zero(a, huge[i], 0) && memopt_arena_error(a).status == MEMOPT_ERR_MEMORY, i);
            }
        CHECK(!l || memopt_ledger_total(l).failed == 6 * sizeof huge / sizeof *huge);
        for (top = 0; top < 2; ++top) {
            o.top = top; o.alignment = 0;
            CHECK(!memopt_arena_push_with(a, 0, &o));
            e = memopt_arena_error(a);
            CHECK(e.status == MEMOPT_ERR_ARGUMENT && e.got.count == 0 && e.free_bytes == 4096 - 228 && e.limit.count == 3840);
            for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
                o.alignment = bad[i];
                CHECK_AT(!memopt_arena_push_with(a, 1, &o), bad[i]);
                CHECK_AT(memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT, bad[i]);
            }
            for (i = 0; i < sizeof huge / sizeof *huge; ++i) { /* the largest alignment, the largest sizes */
                o.alignment = s.base_alignment;
                CHECK_AT(!memopt_arena_push_with(a, huge[i], &o) && memopt_arena_error(a).status == MEMOPT_ERR_MEMORY, i);
            }
        }
        CHECK(!memopt_arena_push(a, 0, 0) && memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT);
        CHECK(!memopt_arena_push_top(a, 0, 0) && memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT);
        CHECK(!memopt_arena_push_zero(a, 0, 0) && memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT);
        CHECK(!memopt_arena_push_array(a, 0, 8, 0) && memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT);
        CHECK(!memopt_arena_push_array(a, 8, 0, 0) && memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT);
        CHECK(!memopt_arena_push_array(a, SIZE_MAX / 2 + 1, 2, 0));
        e = memopt_arena_error(a);
        CHECK(e.status == MEMOPT_ERR_OVERFLOW && e.got.count == SIZE_MAX / 2 + 1 && e.free_bytes == 4096 - 228 && e.limit.count == SIZE_MAX / 2);
        CHECK(!memopt_arena_push_array(a, SIZE_MAX, SIZE_MAX, 0) && memopt_arena_error(a).status == MEMOPT_ERR_OVERFLOW);
        CHECK(!memopt_arena_push_array(a, SIZE_MAX, 1, 0) && memopt_arena_error(a).status == MEMOPT_ERR_MEMORY);
        if (l) {
            CHECK(!memopt_arena_push(a, 1, 8) && memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT); /* no such tag */
            CHECK(!memopt_arena_push(a, SIZE_MAX, 8) && memopt_arena_error(a).status == MEMOPT_ERR_MEMORY);
        }
        CHECK(test_arena_same(before, test_arena_look(a, l)));
        CHECK(test_arena_at(a, memopt_arena_push(a, 3840, 0)) == 128); /* what `largest` said */
        memopt_arena_destroy(a);
        memopt_ledger_destroy(l);
        l = NULL;
    }
}
/* `largest`: a push of so many bytes succeeds, of one more fails; at both ends, also for the alignment that was asked. */
static void test_arena_largest(void) {
    uint64_t seed = 5; size_t round;
    for (round = 0; round < 400 * TEST_ARENA_TIMES; ++round) {
        memopt_source s; memopt_arena *a; memopt_push_options o; memopt_error e; memopt_mark low, top; size_t i;
        CHECK(memopt_source_counting(&s) == MEMOPT_OK);
        a = test_arena_new(&s, 64 * (1 + test_below(&seed, 100)), NULL);
        memset(&o, 0, sizeof o);
        for (i = test_below(&seed, 8); i; --i) {
            o.alignment = (size_t)1 << test_below(&seed, 9); o.top = (int)test_below(&seed, 2);
            (void)memopt_arena_push_with(a, 1 + test_below(&seed, 1000), &o);
        }
        o.alignment = (size_t)1 << test_below(&seed, 10);
        low = memopt_arena_mark(a); top = memopt_arena_mark_top(a);
        for (o.top = 0; o.top < 2; ++o.top) {
            CHECK_AT(!memopt_arena_push_with(a, SIZE_MAX / 2, &o), round);
            e = memopt_arena_error(a);
            CHECK_AT(e.free_bytes == memopt_arena_get_stats(a).free_bytes && e.limit.count <= e.free_bytes, round);
            CHECK_AT(!memopt_arena_push_with(a, (size_t)e.limit.count + 1, &o), round);
            if (e.limit.count) CHECK_AT(memopt_arena_push_with(a, (size_t)e.limit.count, &o) != NULL, round);
            CHECK(memopt_arena_rewind(a, low) == MEMOPT_OK && memopt_arena_rewind(a, top) == MEMOPT_OK);
        }
        memopt_arena_destroy(a);
    }
}
static void test_arena_create_failures(void) { /* the nth call to the allocator or to the source fails */
    size_t n;
    for (n = 1; n < 20; ++n) {
        test_faults f; memopt_host h; test_device dev; memopt_source s, allocator; memopt_arena_desc d; memopt_arena *a = NULL; memopt_status status;
        memopt_ledger *l = NULL;
        memset(&f, 0, sizeof f);
        h = test_host(&f);
        CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK);
        test_device_open(&dev, &s, 65536, 4096, 0);
        memset(&d, 0, sizeof d);
        d.source = &s; d.host = &h; d.ledger = l; d.log_entries = 10;
        f.fail_on = n;
        if (n == 2) dev.fail_on = 1;
        status = memopt_arena_create(&d, &a);
        CHECK(status == (n == 1 ? MEMOPT_ERR_MEMORY : n == 2 ? MEMOPT_ERR_DEVICE : MEMOPT_OK) && (a != NULL) == (status == MEMOPT_OK));
        CHECK(f.live_blocks == (a != NULL) && (dev.reserved != 0) == (a != NULL));
        if (a) CHECK(f.live_bytes == test_arena_up(sizeof *a, 16) + 10 * sizeof(memopt_i_log_entry) && sizeof(memopt_i_log_entry) <= 32);
        memopt_arena_destroy(a);
        CHECK(f.live_blocks == 0 && f.live_bytes == 0 && f.bad_frees == 0 && dev.reserved == 0 && dev.mistakes == 0);

        a = NULL; /* and an arena in one block of an allocator that is asked twice */
        memset(&f, 0, sizeof f);
        f.fail_on = n;
        CHECK(memopt_source_allocator(&h, &allocator) == MEMOPT_OK);
        d.source = &allocator; d.capacity = 10000;
        status = memopt_arena_create(&d, &a);
        CHECK(status == (n <= 2 ? MEMOPT_ERR_MEMORY : MEMOPT_OK) && (a != NULL) == (n > 2));
        if (a) memset(memopt_arena_push(a, 10000, 0), 1, 10000);
        memopt_arena_destroy(a);
        CHECK(f.live_blocks == 0 && f.live_bytes == 0 && f.bad_frees == 0);
        memopt_ledger_destroy(l);
        test_device_close(&dev);
        if (n > 2) break;
    }
    CHECK(n == 3);
}

/* -- Exact: a dry run tells the byte -- */

#define TEST_ARENA_STEPS 80
/* A program made of a seed: pushes at both ends, marks, rewinds to marks that are still good. Returns how many of its pushes
   succeeded before one failed, and their places, counted from the end they belong to. */
static size_t test_arena_program(memopt_arena *a, uint64_t seed, size_t most_alignment, size_t places[TEST_ARENA_STEPS]) {
    memopt_mark marks[2][8]; size_t depth[2] = { 0, 0 }, count = 0, i;
    const size_t largest = (size_t)1 << (4 + test_below(&seed, 9)), capacity = memopt_arena_get_stats(a).capacity;
    for (i = 0; i < TEST_ARENA_STEPS; ++i) {
        const int top = (int)test_below(&seed, 2);
        const size_t what = test_below(&seed, 10), bytes = 1 + test_below(&seed, largest);
        memopt_push_options o; void *p;
        memset(&o, 0, sizeof o);
        o.top = top;
        if (test_below(&seed, 3) == 0) do o.alignment = (size_t)1 << test_below(&seed, 13); while (o.alignment > most_alignment);
        if (what < 2 && depth[top] < 8) marks[top][depth[top]++] = top ? memopt_arena_mark_top(a) : memopt_arena_mark(a);
        else if (what < 4 && depth[top]) {
            depth[top] = test_below(&seed, depth[top]);
            CHECK_AT(memopt_arena_rewind(a, marks[top][depth[top]]) == MEMOPT_OK, seed);
        } else {
            p = o.alignment ? memopt_arena_push_with(a, bytes, &o) : top ? memopt_arena_push_top(a, bytes, 0) : memopt_arena_push(a, bytes, 0);
            if (!p) return count;
            places[count++] = top ? capacity - test_arena_at(a, p) : test_arena_at(a, p);
        }
    }
    return count;
}
static void test_arena_exact_peak(void) {
    static unsigned char room[(TEST_ARENA_STEPS * 8192) + 4096];
    unsigned char *const aligned = room + (4096 - (uintptr_t)room % 4096) % 4096;
    uint64_t seed; size_t smaller = 0;
    for (seed = 1; seed <= 4000 * TEST_ARENA_TIMES; ++seed) {
        size_t dry[TEST_ARENA_STEPS], real[TEST_ARENA_STEPS], count, again, peak, unit; memopt_source s; memopt_arena *a = NULL; memopt_arena_desc d;
        const size_t most = (size_t)1 << (4 + seed % 9), ledgered = seed % 3 == 0;
        memopt_ledger *l = NULL;
        memset(&d, 0, sizeof d);
        d.source = &s; d.alignment = seed % 2 ? 64 : 16;
        CHECK(memopt_source_counting(&s) == MEMOPT_OK && memopt_arena_create(&d, &a) == MEMOPT_OK);
        count = test_arena_program(a, seed, most, dry);
        peak = memopt_arena_get_stats(a).peak;
        unit = a->top_alignment;
        CHECK_AT(unit <= memopt_i_max(most, d.alignment) && peak % unit == 0, seed);
        memopt_arena_destroy(a);

        if (ledgered) CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK); /* the slow path, at any level of MEMOPT_DEBUG */
        d.ledger = l; d.log_entries = 2 + (size_t)(seed % 50); d.capacity = peak;
        CHECK(memopt_source_block(aligned, sizeof room - 4096, &s) == MEMOPT_OK && memopt_arena_create(&d, &a) == MEMOPT_OK);
        if (peak) {
            CHECK_AT(memopt_arena_get_stats(a).capacity == peak, seed);
            again = test_arena_program(a, seed, most, real);
            CHECK_AT(again == count && !memcmp(dry, real, count * sizeof *dry), seed);
            CHECK_AT(memopt_arena_get_stats(a).peak == peak, seed);
        }
        memopt_arena_destroy(a);
        if (peak > unit) {
            d.capacity = peak - unit;
            CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
            CHECK_AT(memopt_arena_get_stats(a).capacity == peak - unit, seed);
            CHECK_AT(test_arena_program(a, seed, most, real) < count, seed); /* a unit less, and a push fails */
            memopt_arena_destroy(a);
            ++smaller;
        }
        CHECK(!l || memopt_ledger_total(l).now == 0);
        memopt_ledger_destroy(l);
    }
    CHECK(smaller > 2000);
}

/* -- Against a naive model -- */

#define TEST_ARENA_BLOCKS 256
#define TEST_ARENA_MARKS  24
typedef struct test_arena_block { unsigned char *p; size_t bytes, before, used; unsigned char value; memopt_tag tag; const char *name; int live; } test_arena_block;
typedef struct test_arena_end {
    test_arena_block blocks[TEST_ARENA_BLOCKS];
    size_t count, used;
    struct { size_t used; uint64_t when; } rewinds[TEST_ARENA_BLOCKS]; /* those that no later one went below */
    size_t rewind_count;
    int forgotten; /* there were more of them than the arena keeps: stale marks may pass */
} test_arena_end;
typedef struct test_arena_model {
    memopt_arena *a;
    memopt_source *source;
    memopt_ledger *ledger;
    test_device *device;  /* NULL, or what the source is */
    size_t capacity, highest_sum, top_alignment;
    size_t least_alignment; /* of the pushes that name one, as a power of two */
    test_arena_end ends[2];
    struct { memopt_mark mark; size_t used; int top, valid, set; } marks[TEST_ARENA_MARKS];
    uint64_t seed, step;
    size_t counts[8]; /* how often what happened, to see that it did */
} test_arena_model;
enum { TEST_ARENA_PUSHED, TEST_ARENA_FULL, TEST_ARENA_REWOUND, TEST_ARENA_STALE, TEST_ARENA_ZEROED, TEST_ARENA_TRIMMED, TEST_ARENA_NAMED };

static int test_arena_visible(const test_arena_model *m) { return m->source->host_visible; }
/* Where the CPU may look at the bytes of a block: there, in the device's shadow, or nowhere (counting). */
static unsigned char *test_arena_bytes(test_arena_model *m, unsigned char *p, size_t bytes) {
    if (m->device) return test_device_at(m->device, p, bytes); /* a mistake when they are not committed */
    return test_arena_visible(m) ? p : NULL;
}
static void test_arena_verify(test_arena_model *m) { /* every live byte is as it was written */
    size_t i; int top;
    for (top = 0; top < 2; ++top)
        for (i = 0; i < m->ends[top].count; ++i) {
            const test_arena_block *b = &m->ends[top].blocks[i]; unsigned char *p = test_arena_bytes(m, b->p, b->bytes);
            CHECK_AT(!p || test_arena_is(p, b->bytes, b->value), m->step);
        }
}
static void test_arena_model_push(test_arena_model *m) {
    static const char *const names[] = { "weights", "input", "output" };
    const int top = (int)test_below(&m->seed, 2), plain = test_below(&m->seed, 2) == 0;
    test_arena_end *end = &m->ends[top]; memopt_push_options o; unsigned char *p, *bytes_at; size_t bytes, alignment, start = 0; int fits;
    const size_t limit = m->capacity / (test_below(&m->seed, 8) == 0 ? 1 : 12);
    memset(&o, 0, sizeof o);
    bytes = 1 + test_below(&m->seed, limit);
    o.top = top; o.tag = (memopt_tag)test_below(&m->seed, 8);
    if (!plain) {
        if (test_below(&m->seed, 2)) o.alignment = (size_t)1 << (m->least_alignment + test_below(&m->seed, 13 - m->least_alignment));
        o.zero = (int)test_below(&m->seed, 2);
        if (test_below(&m->seed, 2)) o.name = names[test_below(&m->seed, 3)];
    }
    alignment = o.alignment ? o.alignment : m->source->alignment;
    if (top) { /* by definition */
        const size_t at = m->capacity - end->used;
        fits = bytes <= at;
        if (fits) { start = (at - bytes) / alignment * alignment; fits = start >= m->ends[0].used; }
    } else {
        start = test_arena_up(end->used, alignment);
        fits = start + bytes <= m->capacity - m->ends[1].used;
    }
    if (end->count == TEST_ARENA_BLOCKS) return;
    p = (unsigned char *)(plain ? top ? memopt_arena_push_top(m->a, bytes, o.tag) : memopt_arena_push(m->a, bytes, o.tag)
                                : memopt_arena_push_with(m->a, bytes, &o));
    CHECK_AT((p != NULL) == fits, m->step);
    if (!p) {
        CHECK_AT(memopt_arena_error(m->a).status == MEMOPT_ERR_MEMORY, m->step);
        ++m->counts[TEST_ARENA_FULL];
        return;
    }
    ++m->counts[TEST_ARENA_PUSHED];
    CHECK_AT(test_arena_at(m->a, p) == start && (uintptr_t)p % alignment == 0, m->step);
    bytes_at = test_arena_bytes(m, p, bytes);
    if (bytes_at && o.zero) { CHECK_AT(test_arena_is(bytes_at, bytes, 0), m->step); ++m->counts[TEST_ARENA_ZEROED]; }
    {
        test_arena_block *b = &end->blocks[end->count++];
        b->p = p; b->bytes = bytes; b->before = end->used; b->used = top ? m->capacity - start : start + bytes;
        b->value = (unsigned char)(1 + test_below(&m->seed, 200)); b->tag = o.tag; b->name = o.name;
        if (bytes_at) memset(bytes_at, b->value, bytes);
        end->used = b->used;
    }
    if (top && alignment > m->top_alignment) m->top_alignment = alignment;
    if (m->ends[0].used + m->ends[1].used > m->highest_sum) m->highest_sum = m->ends[0].used + m->ends[1].used;
}
static void test_arena_model_rewind(test_arena_model *m, size_t k) {
    const int top = m->marks[k].top; test_arena_end *end = &m->ends[top]; size_t i; memopt_status s;
    const size_t used = m->marks[k].used;
    if (!m->marks[k].valid && end->forgotten) return;
    s = memopt_arena_rewind(m->a, m->marks[k].mark);
    CHECK_AT(s == (m->marks[k].valid ? MEMOPT_OK : MEMOPT_ERR_STATE), m->step);
    if (s) { CHECK(memopt_arena_error(m->a).status == s); ++m->counts[TEST_ARENA_STALE]; return; }
    if (used == end->used) return;
    ++m->counts[TEST_ARENA_REWOUND];
    while (end->count && end->blocks[end->count - 1].used > used) --end->count;
    end->used = used;
    for (i = 0; i < TEST_ARENA_MARKS; ++i) if (m->marks[i].set && m->marks[i].top == top && m->marks[i].used > used) m->marks[i].valid = 0;
    while (end->rewind_count && end->rewinds[end->rewind_count - 1].used >= used) --end->rewind_count;
    end->rewinds[end->rewind_count++].used = used;
    if (end->rewind_count > 16) end->forgotten = 1;
}
static void test_arena_model_look(test_arena_model *m) {
    const memopt_arena_stats st = memopt_arena_get_stats(m->a); size_t i; int top;
    CHECK_AT(st.used_low == m->ends[0].used && st.used_top == m->ends[1].used && st.capacity == m->capacity, m->step);
    CHECK_AT(st.free_bytes == m->capacity - m->ends[0].used - m->ends[1].used, m->step);
    CHECK_AT(st.peak == test_arena_up(m->highest_sum, m->top_alignment), m->step);
    if (m->device) CHECK_AT(st.committed == m->device->committed && !m->device->mistakes, m->step);
    if (m->ledger) {
        memopt_usage sum, u; const memopt_usage total = memopt_ledger_total(m->ledger); memopt_tag tag; size_t by_tag[8];
        memset(&sum, 0, sizeof sum);
        memset(by_tag, 0, sizeof by_tag);
        for (top = 0; top < 2; ++top) for (i = 0; i < m->ends[top].count; ++i) by_tag[m->ends[top].blocks[i].tag] += m->ends[top].blocks[i].used - m->ends[top].blocks[i].before;
        for (tag = 0; tag < 8; ++tag) {
            u = memopt_ledger_usage(m->ledger, tag);
            sum.now += u.now; sum.blocks += u.blocks;
            if (m->a->log_capacity >= 2 * TEST_ARENA_BLOCKS) CHECK_AT(u.now == by_tag[tag], m->step);
            else if (tag) CHECK_AT(u.now <= by_tag[tag], m->step); /* what did not fit into the log is other's */
        }
        CHECK_AT(total.now == m->ends[0].used + m->ends[1].used && sum.now == total.now && sum.blocks == total.blocks, m->step);
        CHECK_AT(total.peak == m->highest_sum && total.allocs - total.frees == total.blocks, m->step);
        CHECK_AT(memopt_ledger_footprint(m->ledger).committed == st.committed, m->step);
        if (m->a->log_capacity >= 2 * TEST_ARENA_BLOCKS) {
            CHECK_AT(total.blocks == m->ends[0].count + m->ends[1].count, m->step);
            CHECK_AT(total.allocs == m->counts[TEST_ARENA_PUSHED], m->step); /* each booked in once, and out once */
        }
    }
    if (m->a->log && m->a->log_capacity >= 2 * TEST_ARENA_BLOCKS) { /* the name of a block, at its first and last byte */
        top = (int)test_below(&m->seed, 2);
        if (m->ends[top].count) {
            const test_arena_block *b = &m->ends[top].blocks[test_below(&m->seed, m->ends[top].count)];
            CHECK_AT(test_arena_name(m->a, b->p) == b->name && test_arena_name(m->a, b->p + b->bytes - 1) == b->name, m->step);
            m->counts[TEST_ARENA_NAMED] += b->name != NULL;
        }
    }
}
static void test_arena_model_run(test_arena_model *m, size_t steps) {
    size_t i; int top;
    for (m->step = 0; m->step < steps; ++m->step) {
        const size_t what = test_below(&m->seed, 100), k = test_below(&m->seed, TEST_ARENA_MARKS);
        if (what < 45) test_arena_model_push(m);
        else if (what < 70) {
            top = (int)test_below(&m->seed, 2);
            m->marks[k].mark = top ? memopt_arena_mark_top(m->a) : memopt_arena_mark(m->a);
            m->marks[k].used = m->ends[top].used; m->marks[k].top = top; m->marks[k].valid = m->marks[k].set = 1;
        } else if (what < 90) { if (m->marks[k].set) test_arena_model_rewind(m, k); }
        else if (what < 93) {
            test_arena_verify(m);
            CHECK_AT(memopt_arena_trim(m->a) == MEMOPT_OK, m->step);
            if (m->device) { /* afterwards no granule is committed that nobody uses */
                const size_t g = m->source->granularity, low = test_arena_up(m->ends[0].used, g), high = test_arena_up(m->ends[1].used, g);
                CHECK_AT(m->device->committed == (low + high < m->capacity ? low + high : m->capacity) || !m->source->commit_fn, m->step);
            }
            test_arena_verify(m);
            ++m->counts[TEST_ARENA_TRIMMED];
        } else if (what < 96) CHECK_AT(memopt_arena_check(m->a) == MEMOPT_OK, m->step);
        else test_arena_model_look(m);
        if (what == 99) test_arena_verify(m);
        /* Back to the beginning now and then, or one full arena would be all that is tested. */
        for (top = 0; top < 2; ++top)
            if (test_below(&m->seed, 60) == 0) {
                const memopt_mark zero = { m->a, 0, m->a->epoch, top };
                m->marks[k].mark = zero; m->marks[k].used = 0; m->marks[k].top = top; m->marks[k].valid = m->marks[k].set = 1;
                test_arena_model_rewind(m, k);
                m->ends[top].forgotten = 0; /* a rewind to 0 lies below all others */
                for (i = 0; i < TEST_ARENA_MARKS; ++i) CHECK_AT(!m->marks[i].set || m->marks[i].top != top || m->marks[i].used == 0 || !m->marks[i].valid, m->step);
            }
    }
    test_arena_verify(m);
}
static void test_arena_model_sources(void) {
    static test_arena_model m; static unsigned char room[65536 + 4096]; size_t counts[8]; int kind, ledgered; uint64_t seed; size_t i;
    const uint64_t seeds = (3 * TEST_ARENA_TIMES + TEST_STRIDE - 1) / TEST_STRIDE;
    unsigned char *const aligned = room + (4096 - (uintptr_t)room % 4096) % 4096;
    memset(counts, 0, sizeof counts);
    for (kind = 0; kind < 8; ++kind)
        for (ledgered = 0; ledgered < 3; ++ledgered) /* none; a log that holds all; one that is soon full */
            for (seed = 1; seed <= seeds; ++seed) {
                memopt_source s; test_device d; memopt_arena_desc desc; memopt_pages_desc pages; memopt_ledger *l = NULL; memopt_ledger_desc ld; memopt_status opened = MEMOPT_OK;
                memset(&m, 0, sizeof m);
                memset(&desc, 0, sizeof desc);
                memset(&pages, 0, sizeof pages);
                memset(&ld, 0, sizeof ld);
                pages.no_huge = 1; pages.touch = kind == 7;
                if (kind == 0) opened = memopt_source_block(aligned, 65536, &s);
                if (kind == 1) opened = memopt_source_counting(&s);
                if (kind == 2) opened = memopt_source_allocator(NULL, &s);
                if (kind >= 3 && kind < 6) { /* a device with small granules; visible and not; without commit */
                    test_device_open(&d, &s, 65536, kind == 3 ? 1024 : 8192, kind == 3);
                    s.fresh_is_zero = kind != 5;
                    if (kind == 5) s.commit_fn = s.decommit_fn = NULL;
                    m.device = &d;
                }
                if (kind >= 6) opened = memopt_source_pages(&pages, &s);
                if (opened) { if (seed == 1 && !ledgered) SKIP("no pages on this platform"); continue; }
                ld.block_capacity = seed % 2 ? 20 : 0; ld.event_capacity = 10;
                if (ledgered) CHECK(memopt_ledger_create(&ld, &l) == MEMOPT_OK);
                s.ledger = l;
                desc.source = &s; desc.ledger = l; desc.capacity = kind >= 6 ? TEST_ARENA_PAGES_ROOM : 65536;
                desc.log_entries = ledgered == 2 ? 1 + (size_t)((seed + (uint64_t)kind) % 7) : 2 * TEST_ARENA_BLOCKS + 2;
                CHECK(memopt_arena_create(&desc, &m.a) == MEMOPT_OK);
                m.source = &s; m.ledger = l; m.capacity = memopt_arena_get_stats(m.a).capacity; m.top_alignment = s.alignment;
                m.seed = seed * 1000 + (uint64_t)(kind * 10 + ledgered);
                test_arena_model_run(&m, kind >= 6 ? 800 : 1500);
                for (i = 0; i < 8; ++i) counts[i] += m.counts[i];
                memopt_arena_destroy(m.a);
                if (l) {
                    const memopt_usage total = memopt_ledger_total(l);
                    CHECK(total.now == 0 && total.blocks == 0 && total.allocs == total.frees && total.peak == m.highest_sum);
                    CHECK(memopt_ledger_footprint(l).reserved == 0 && memopt_ledger_footprint(l).committed == 0 && memopt_ledger_footprint(l).segments == 0);
                }
                memopt_ledger_destroy(l);
                if (m.device) {
                    CHECK(d.mistakes == 0 && d.reserved == 0);
                    test_device_close(&d);
                }
            }
    for (i = 0; i < 7; ++i) CHECK_AT(counts[i] > 200 / TEST_STRIDE, i); /* all of it did happen */
}

/* -- Marks by hand -- */

static void test_arena_marks(void) {
    memopt_source s, s2; memopt_arena *a, *b; memopt_mark m0, m1, m2, t0, t1, bad; size_t i; test_arena_state before;
    CHECK(memopt_source_counting(&s) == MEMOPT_OK && memopt_source_counting(&s2) == MEMOPT_OK);
    a = test_arena_new(&s, 65536, NULL);
    b = test_arena_new(&s2, 65536, NULL);
    m0 = memopt_arena_mark(a); t0 = memopt_arena_mark_top(a);
    CHECK(memopt_arena_push(a, 100, 0) && memopt_arena_push_top(a, 100, 0));
    m1 = memopt_arena_mark(a); t1 = memopt_arena_mark_top(a);
    CHECK(memopt_arena_push(a, 100, 0) && memopt_arena_push_top(a, 200, 0));
    m2 = memopt_arena_mark(a);
    before = test_arena_look(a, NULL);

    CHECK(memopt_arena_rewind(b, m1) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_arena_says(b, MEMOPT_ERR_ARGUMENT, "a mark of another arena"));
    memset(&bad, 0, sizeof bad);
    CHECK(memopt_arena_rewind(a, bad) == MEMOPT_ERR_ARGUMENT);
    bad = m1; bad.top = 2;
    CHECK(memopt_arena_rewind(a, bad) == MEMOPT_ERR_ARGUMENT);
    bad.top = -1;
    CHECK(memopt_arena_rewind(a, bad) == MEMOPT_ERR_ARGUMENT);
    bad = m2; bad.used += 1;
    CHECK(memopt_arena_rewind(a, bad) == MEMOPT_ERR_STATE); /* from the future */
    bad = m2; bad.used = SIZE_MAX;
    CHECK(memopt_arena_rewind(a, bad) == MEMOPT_ERR_STATE);
    bad = m1; bad.epoch += 1;
    CHECK(memopt_arena_rewind(a, bad) == MEMOPT_ERR_STATE);
    CHECK(test_arena_says(a, MEMOPT_ERR_STATE, "a mark from the future: the arena was rewound below it"));
    CHECK(test_arena_same(before, test_arena_look(a, NULL)));

    CHECK(memopt_arena_rewind(a, m2) == MEMOPT_OK); /* nothing since: nothing goes */
    CHECK(test_arena_same(before, test_arena_look(a, NULL)));
    CHECK(memopt_arena_rewind(a, m1) == MEMOPT_OK && memopt_arena_get_stats(a).used_low == 100 && memopt_arena_get_stats(a).used_top == 384);
    CHECK(memopt_arena_rewind(a, m1) == MEMOPT_OK); /* twice */
    CHECK(memopt_arena_rewind(a, m2) == MEMOPT_ERR_STATE);
    CHECK(memopt_arena_push(a, 1000, 0) != NULL);   /* other bytes lie at m2 now */
    CHECK(memopt_arena_rewind(a, m2) == MEMOPT_ERR_STATE);
    CHECK(test_arena_says(a, MEMOPT_ERR_STATE, "a stale mark: its bytes were rewound and pushed anew"));
    CHECK(memopt_arena_rewind(a, m1) == MEMOPT_OK && memopt_arena_get_stats(a).used_low == 100); /* m1 is as good as ever */
    CHECK(memopt_arena_rewind(a, t1) == MEMOPT_OK && memopt_arena_get_stats(a).used_top == 128);
    CHECK(memopt_arena_rewind(a, m0) == MEMOPT_OK && memopt_arena_rewind(a, m1) == MEMOPT_ERR_STATE);
    CHECK(memopt_arena_push(a, 164, 0) != NULL && memopt_arena_rewind(a, m1) == MEMOPT_ERR_STATE);
    CHECK(memopt_arena_rewind(a, t1) == MEMOPT_OK); /* the other end's rewinds are no business of the top's marks */
    CHECK(memopt_arena_rewind(a, t0) == MEMOPT_OK && memopt_arena_get_stats(a).used_top == 0 && memopt_arena_get_stats(a).used_low == 164);
    CHECK(memopt_arena_rewind(a, m0) == MEMOPT_OK);
    memopt_arena_destroy(a);

    /* A training loop: many rewinds to one mark count once, and do not push out what is known of those below. */
    a = test_arena_new(&s, 65536, NULL);
    m0 = memopt_arena_mark(a);
    CHECK(memopt_arena_push(a, 256, 0) != NULL);
    m1 = memopt_arena_mark(a); /* soon stale */
    CHECK(memopt_arena_rewind(a, m0) == MEMOPT_OK && memopt_arena_push(a, 640, 0) != NULL);
    m2 = memopt_arena_mark(a);
    for (i = 0; i < 100; ++i) CHECK(memopt_arena_push(a, 64, 0) && memopt_arena_rewind(a, m2) == MEMOPT_OK);
    CHECK(memopt_arena_rewind(a, m1) == MEMOPT_ERR_STATE && memopt_arena_rewind(a, m0) == MEMOPT_OK);
    memopt_arena_destroy(a);

    /* 128 levels of nesting, each rewound once and gone on from: the stale marks of all of them are known. */
    a = test_arena_new(&s, 65536, NULL);
    {
        memopt_mark inside[128], outside[128], low = memopt_arena_mark(a);
        for (i = 0; i < 128; ++i) {
            CHECK(memopt_arena_push(a, 64, 0) != NULL);
            outside[i] = memopt_arena_mark(a);
            CHECK(memopt_arena_push(a, 64, 0) != NULL);
            inside[i] = memopt_arena_mark(a);
            CHECK(memopt_arena_rewind(a, outside[i]) == MEMOPT_OK && memopt_arena_push(a, 64, 0) != NULL);
        }
        for (i = 0; i < 128; ++i) CHECK_AT(memopt_arena_rewind(a, inside[i]) == MEMOPT_ERR_STATE, i);
        for (i = 0; i < 40; ++i) { /* far deeper: a good mark is never refused */
            CHECK(memopt_arena_push(a, 64, 0) != NULL);
            m1 = memopt_arena_mark(a);
            CHECK(memopt_arena_push(a, 64, 0) != NULL && memopt_arena_rewind(a, m1) == MEMOPT_OK && memopt_arena_push(a, 64, 0) != NULL);
            m2 = memopt_arena_mark(a);
            CHECK(memopt_arena_push(a, 64, 0) != NULL && memopt_arena_rewind(a, m2) == MEMOPT_OK);
            CHECK_AT(memopt_arena_rewind(a, m1) == MEMOPT_OK && memopt_arena_rewind(a, m2) == MEMOPT_ERR_STATE, i);
        }
        for (i = 128; i--; ) CHECK_AT(memopt_arena_rewind(a, outside[i]) == MEMOPT_OK, i);
        CHECK(memopt_arena_rewind(a, low) == MEMOPT_OK && memopt_arena_get_stats(a).used_low == 0);
    }
    memopt_arena_destroy(a);
    memopt_arena_destroy(b);
}

/* -- Zeroed pushes, fresh and dirty -- */

static void test_arena_zero(void) {
    test_device d; memopt_source s; memopt_arena *a; memopt_push_options o; memopt_mark low, top; unsigned char *p, *q; int round;
    test_device_open(&d, &s, 65536, 4096, 1);
    a = test_arena_new(&s, 0, NULL);
    low = memopt_arena_mark(a); top = memopt_arena_mark_top(a);
    memset(&o, 0, sizeof o);
    o.zero = 1; o.top = 1;
    for (round = 0; round < 3; ++round) {
        p = (unsigned char *)memopt_arena_push_zero(a, 5000, 0);
        q = (unsigned char *)memopt_arena_push_with(a, 5000, &o);
        CHECK(p && q && test_arena_is(p, 5000, 0) && test_arena_is(q, 5000, 0));
        if (!p || !q) break;
        CHECK_AT(d.zero_calls == (round ? 2 * (size_t)round : 0), round); /* fresh bytes are zero: no need to write them */
        memset(p, 0xFF, 5000);
        memset(q, 0xFF, 5000);
        CHECK(memopt_arena_rewind(a, low) == MEMOPT_OK && memopt_arena_rewind(a, top) == MEMOPT_OK);
    }
    CHECK(memopt_arena_trim(a) == MEMOPT_OK && d.committed == 0);
    p = (unsigned char *)memopt_arena_push_zero(a, 5000, 0);
    q = (unsigned char *)memopt_arena_push_with(a, 5000, &o);
    CHECK(d.zero_calls == 4 && test_arena_is(p, 5000, 0) && test_arena_is(q, 5000, 0)); /* fresh again */
    memset(p, 0xFF, 5000);
    CHECK(memopt_arena_push(a, 100, 0) != NULL);
    CHECK(memopt_arena_rewind(a, low) == MEMOPT_OK && memopt_arena_push(a, 3000, 0) != NULL); /* to 3000 of 5100 that were used */
    CHECK(memopt_arena_trim(a) == MEMOPT_OK);
    p = (unsigned char *)memopt_arena_push_zero(a, 4000, 0); /* partly kept and dirty, partly fresh */
    CHECK(test_arena_is(p, 4000, 0));
    CHECK(memopt_arena_rewind(a, low) == MEMOPT_OK);
    p = (unsigned char *)memopt_arena_push(a, 40000, 0);
    memset(p, 0xFF, 40000); /* the low end goes far, and back; then the top end comes down into what it used */
    CHECK(memopt_arena_rewind(a, low) == MEMOPT_OK);
    q = (unsigned char *)memopt_arena_push_with(a, 50000, &o);
    CHECK(q && test_arena_is(q, 50000, 0));
    memset(q, 0xFF, 50000);
    CHECK(memopt_arena_rewind(a, top) == MEMOPT_OK);
    p = (unsigned char *)memopt_arena_push_zero(a, 60000, 0);
    CHECK(p && test_arena_is(p, 60000, 0));
    memopt_arena_destroy(a);

    s.fresh_is_zero = 0; /* a source whose fresh bytes are rubbish */
    a = test_arena_new(&s, 0, NULL);
    CHECK(test_arena_is(memopt_arena_push_zero(a, 5000, 0), 5000, 0) && test_arena_is(memopt_arena_push_with(a, 5000, &o), 5000, 0));
    memopt_arena_destroy(a);
    CHECK(d.mistakes == 0);
    test_device_close(&d);
}
static void test_arena_zero_after_failure(void) { /* a push that fails late must not leave its traces in fresh bytes */
    test_device d; memopt_source s; memopt_arena *a; memopt_ledger *l = NULL; memopt_push_options o; memopt_mark low; unsigned char *p; int top;
    for (top = 0; top < 2; ++top) {
        CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK);
        test_device_open(&d, &s, 65536, 4096, 1);
        a = test_arena_new(&s, 0, l);
        memset(&o, 0, sizeof o);
        o.top = top; o.tag = 99;
        CHECK(!memopt_arena_push_with(a, 3000, &o) && memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT);
        o.zero = 1;
        CHECK(!memopt_arena_push_with(a, 3000, &o));
        o.tag = 0;
        p = (unsigned char *)memopt_arena_push_with(a, 3000, &o);
        CHECK(p && test_arena_is(p, 3000, 0));
        memset(p, 1, 3000);
        /* Half dirty, half fresh; the device then refuses to zero. */
        low = top ? memopt_arena_mark_top(a) : memopt_arena_mark(a);
        CHECK(memopt_arena_push_with(a, 1000, &o) && memopt_arena_rewind(a, low) == MEMOPT_OK);
        d.fail_on = d.calls + 1;
        CHECK(!memopt_arena_push_with(a, 2000, &o));
        CHECK(test_arena_says(a, MEMOPT_ERR_DEVICE, "the source could not commit memory: asked 1.9 KiB"));
        d.fail_on = d.calls + 2; /* the commit succeeds */
        CHECK(!memopt_arena_push_with(a, 2000, &o));
        CHECK(test_arena_says(a, MEMOPT_ERR_DEVICE, "the source could not zero the bytes: asked 1.9 KiB"));
        CHECK(memopt_arena_check(a) == MEMOPT_OK);
        o.tag = 99; /* zeroed already, and then the books say no */
        CHECK(!memopt_arena_push_with(a, 2000, &o) && memopt_arena_error(a).status == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_arena_check(a) == MEMOPT_OK);
#if defined(MEMOPT_I_ASAN)
        CHECK(__asan_address_is_poisoned(top ? p - 64 : p + 3008) && __asan_address_is_poisoned(top ? p - 2000 : p + 4900));
#endif
        o.tag = 0;
        CHECK(memopt_arena_push_with(a, 1000, &o) != NULL);
        p = (unsigned char *)memopt_arena_push_with(a, 1000, &o);
        CHECK(p && test_arena_is(p, 1000, 0));
        CHECK(memopt_arena_check(a) == MEMOPT_OK);
        memopt_arena_destroy(a);
        CHECK(d.mistakes == 0 && memopt_ledger_total(l).now == 0);
        test_device_close(&d);
        memopt_ledger_destroy(l);
        l = NULL;
    }
}

/* -- Trimming where the two ends have met -- */

static void test_arena_trim(void) {
    int top; /* which end had the middle first */
    for (top = 0; top < 2; ++top) {
        test_device d; memopt_source s; memopt_arena *a; memopt_push_options o; memopt_mark first; unsigned char *p, *q;
        test_device_open(&d, &s, 16 * 4096, 4096, 1);
        a = test_arena_new(&s, 0, NULL);
        CHECK(memopt_arena_trim(a) == MEMOPT_OK && d.decommits == 0);
        memset(&o, 0, sizeof o);
        first = top ? memopt_arena_mark_top(a) : memopt_arena_mark(a);
        o.top = top;
        CHECK(memopt_arena_push_with(a, 12 * 4096, &o) && memopt_arena_rewind(a, first) == MEMOPT_OK && d.committed == 12 * 4096);
        o.top = !top;
        p = (unsigned char *)memopt_arena_push_with(a, 9 * 4096 + 100, &o); /* 4 granules of its own, the rest are the other's */
        CHECK(p && d.committed == 16 * 4096);
        memset(p, 0x77, 9 * 4096 + 100);
        o.top = top;
        q = (unsigned char *)memopt_arena_push_with(a, 100, &o);
        memset(q, 0x66, 100);
        CHECK(memopt_arena_trim(a) == MEMOPT_OK);
        CHECK(d.committed == 11 * 4096 && memopt_arena_get_stats(a).committed == 11 * 4096 && d.mistakes == 0);
        CHECK(test_device_at(&d, p, 9 * 4096 + 100) && test_arena_is(p, 9 * 4096 + 100, 0x77) && test_arena_is(q, 100, 0x66));
        CHECK(memopt_arena_check(a) == MEMOPT_OK && memopt_arena_trim(a) == MEMOPT_OK && d.decommits == 1);
        p = (unsigned char *)memopt_arena_push_with(a, 5 * 4096, &o); /* and the middle can be had again */
        CHECK(p && test_device_at(&d, p, 5 * 4096));
        memopt_arena_destroy(a);
        CHECK(d.mistakes == 0 && d.reserved == 0);
        test_device_close(&d);
    }
    for (top = 0; top < 2; ++top) { /* both ends in one granule: there is nothing to give back */
        test_device d; memopt_source s; memopt_arena *a; memopt_push_options o;
        test_device_open(&d, &s, 4 * 4096, 4096, 1);
        a = test_arena_new(&s, 0, NULL);
        memset(&o, 0, sizeof o);
        o.top = top;
        CHECK(memopt_arena_push_with(a, 2 * 4096 + 1000, &o) != NULL);
        o.top = !top;
        CHECK(memopt_arena_push_with(a, 4096 + 1000, &o) != NULL);
        CHECK(memopt_arena_trim(a) == MEMOPT_OK && d.committed == 4 * 4096 && d.decommits == 0);
        CHECK(memopt_arena_check(a) == MEMOPT_OK);
        memopt_arena_destroy(a);
        CHECK(d.mistakes == 0);
        test_device_close(&d);
    }
}
static void test_arena_trim_failures(void) { /* the nth decommit fails: nothing is lost, and it can be tried again */
    size_t n;
    for (n = 1; n <= 3; ++n) {
        test_device d; memopt_source s; memopt_arena *a; memopt_mark low, top; test_arena_state before; unsigned char *p, *q; memopt_status status;
        test_device_open(&d, &s, 65536, 4096, 1);
        a = test_arena_new(&s, 0, NULL);
        p = (unsigned char *)memopt_arena_push(a, 100, 0); q = (unsigned char *)memopt_arena_push_top(a, 100, 0);
        memset(p, 1, 100);
        memset(q, 2, 100);
        low = memopt_arena_mark(a); top = memopt_arena_mark_top(a);
        CHECK(memopt_arena_push(a, 10000, 0) && memopt_arena_push_top(a, 10000, 0));
        CHECK(memopt_arena_rewind(a, low) == MEMOPT_OK && memopt_arena_rewind(a, top) == MEMOPT_OK);
        before = test_arena_look(a, NULL);
        d.fail_on = d.calls + n;
        status = memopt_arena_trim(a);
        CHECK(status == (n <= 2 ? MEMOPT_ERR_DEVICE : MEMOPT_OK));
        if (status) CHECK(test_arena_says(a, MEMOPT_ERR_DEVICE, "the source could not take memory back"));
#if defined(MEMOPT_I_ASAN)
        {
            size_t i;
            for (i = 128; i < 65536 - 128; i += 8) CHECK_AT(__asan_address_is_poisoned(d.memory + i) || !d.is_committed[i / 4096], i);
        }
#endif
        CHECK(test_arena_same(before, test_arena_look(a, NULL)) && memopt_arena_get_stats(a).committed == d.committed);
        CHECK(memopt_arena_check(a) == MEMOPT_OK);
        d.fail_on = 0;
        CHECK(memopt_arena_trim(a) == MEMOPT_OK && d.committed == 2 * 4096 && memopt_arena_get_stats(a).committed == d.committed);
        CHECK(test_arena_is(p, 100, 1) && test_arena_is(q, 100, 2) && memopt_arena_check(a) == MEMOPT_OK);
        memopt_arena_destroy(a);
        CHECK(d.mistakes == 0);
        test_device_close(&d);
    }
}

/* -- Growth that fails half way -- */

static void test_arena_growth_failures(void) {
    static const size_t sizes[] = { 100, 5000, 200, 12000, 8192, 3000, 64, 9000 };
    size_t n, i; int kind, through = 0;
    for (kind = 0; kind < 4; ++kind)
        for (n = 1; n < 100; ++n) {
            test_device d; memopt_source s; memopt_arena *a; memopt_ledger *l = NULL; size_t failed = 0; memopt_error e;
            CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK);
            test_device_open(&d, &s, 65536, 4096, kind % 2);
            s.fresh_is_zero = kind / 2; /* when it is not, zeroing is one more call that fails */
            a = test_arena_new(&s, 0, l);
            d.fail_on = d.calls + n;
            for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
                const test_arena_state before = test_arena_look(a, l); const size_t committed = d.committed; memopt_push_options o; void *p; memopt_mark mark;
                memset(&o, 0, sizeof o);
                o.top = i % 3 == 1; o.zero = i % 2 == 1; o.tag = (memopt_tag)(i % 8); o.alignment = i == 5 ? 1024 : 0;
                p = memopt_arena_push_with(a, sizes[i], &o);
                if (!p) {
                    ++failed;
                    e = memopt_arena_error(a);
                    CHECK_AT(e.status == MEMOPT_ERR_DEVICE && e.got.count == sizes[i] && e.free_bytes == before.stats.free_bytes, n);
                    CHECK_AT(d.calls == d.fail_on && test_arena_same(before, test_arena_look(a, l)), n);
                    CHECK_AT(memopt_arena_get_stats(a).committed == d.committed && memopt_arena_check(a) == MEMOPT_OK, n);
                    if (d.committed == committed && strcmp(e.reason, "the source could not commit memory") == 0) { /* the commit: what is left is what is committed, and it can be had */
                        d.fail_from = d.calls;
                        mark = o.top ? memopt_arena_mark_top(a) : memopt_arena_mark(a);
                        o.zero = 0;
                        CHECK_AT(e.limit.count < sizes[i] && !memopt_arena_push_with(a, (size_t)e.limit.count + 1, &o), n);
                        if (e.limit.count) CHECK_AT(memopt_arena_push_with(a, (size_t)e.limit.count, &o) && memopt_arena_rewind(a, mark) == MEMOPT_OK, n);
                        o.zero = i % 2 == 1;
                        d.fail_from = 0;
                    }
                    p = memopt_arena_push_with(a, sizes[i], &o); /* the same push again */
                }
                CHECK_AT(p && test_device_at(&d, p, sizes[i]), n);
                if (o.zero) CHECK_AT(test_arena_is(test_device_at(&d, p, sizes[i]), sizes[i], 0), n);
                memset(test_device_at(&d, p, sizes[i]), 0xFF, sizes[i]);
            }
            CHECK_AT(failed == (d.calls >= d.fail_on) && memopt_arena_get_stats(a).committed == d.committed && d.mistakes == 0, n);
            CHECK(memopt_ledger_total(l).now == memopt_arena_get_stats(a).used_low + memopt_arena_get_stats(a).used_top);
            memopt_arena_destroy(a);
            CHECK(memopt_ledger_total(l).now == 0 && d.mistakes == 0 && d.reserved == 0);
            memopt_ledger_destroy(l);
            test_device_close(&d);
            if (!failed) { ++through; break; }
        }
    CHECK(through == 4);
}
static void test_arena_overflowing_ledger(void) { /* the books cannot hold the sum: the push fails and leaves nothing */
    memopt_source s; memopt_arena *a; memopt_ledger *l = NULL; test_arena_state before;
    CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK && memopt_source_counting(&s) == MEMOPT_OK);
    a = test_arena_new(&s, 4096, l);
    CHECK(memopt_ledger_add(l, MEMOPT_TAG_OTHER, SIZE_MAX - 100, &s, NULL) == MEMOPT_OK);
    before = test_arena_look(a, l);
    CHECK(!memopt_arena_push(a, 101, 0));
    CHECK(test_arena_says(a, MEMOPT_ERR_OVERFLOW, "the ledger's sum does not fit size_t: asked 101 B"));
    CHECK(test_arena_same(before, test_arena_look(a, l)));
    CHECK(memopt_arena_push(a, 100, 0) != NULL && memopt_ledger_total(l).now == SIZE_MAX);
    memopt_arena_destroy(a);
    CHECK(memopt_ledger_total(l).now == SIZE_MAX - 100);
    memopt_ledger_destroy(l);
}

/* -- The log: tags, joining, names -- */

static void test_arena_log_joined(void) { /* three entries: two for the low end at most, one is kept for the top */
    memopt_source s; memopt_arena *a = NULL; memopt_ledger *l = NULL; memopt_arena_desc d; memopt_push_options o; memopt_mark m[6]; unsigned char *p[6], *q; size_t i;
    CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK && memopt_source_counting(&s) == MEMOPT_OK);
    memset(&d, 0, sizeof d);
    d.source = &s; d.capacity = 65536; d.ledger = l; d.log_entries = 3;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
    memset(&o, 0, sizeof o);
    o.name = "named";
    for (i = 0; i < 6; ++i) { /* tags 1 2 2 3 3 3, 100 bytes each: 100, then 128 each with what is lost to alignment */
        m[i] = memopt_arena_mark(a);
        o.tag = (memopt_tag)(i == 0 ? 1 : i < 3 ? 2 : 3);
        p[i] = (unsigned char *)memopt_arena_push_with(a, 100, &o);
    }
#define TEST_ARENA_TAGS(t0, t1, t2, t3) CHECK(memopt_ledger_usage(l, 0).now == (t0) && memopt_ledger_usage(l, 1).now == (t1) \
        && memopt_ledger_usage(l, 2).now == (t2) && memopt_ledger_usage(l, 3).now == (t3))
    TEST_ARENA_TAGS(640, 100, 0, 0); /* the second entry took in the rest, and is nobody's */
    CHECK(memopt_ledger_total(l).blocks == 2 && memopt_ledger_total(l).peak == 740);
    CHECK(test_arena_name(a, p[0]) && !strcmp(test_arena_name(a, p[0]), "named") && !test_arena_name(a, p[1]) && !test_arena_name(a, p[5]));
    q = (unsigned char *)memopt_arena_push_top(a, 50, 4);
    CHECK(q && memopt_ledger_usage(l, 4).now == 64 && memopt_arena_push_top(a, 50, 4) && memopt_ledger_usage(l, 4).now == 128);
    CHECK(memopt_ledger_usage(l, 4).blocks == 1); /* of one tag: joined, and still that tag's */
    CHECK(memopt_arena_rewind(a, m[4]) == MEMOPT_OK); /* into the middle of what was joined */
    TEST_ARENA_TAGS(384, 100, 0, 0);
    CHECK(memopt_arena_rewind(a, m[3]) == MEMOPT_OK);
    TEST_ARENA_TAGS(256, 100, 0, 0);
    CHECK(memopt_arena_rewind(a, m[2]) == MEMOPT_OK && memopt_arena_rewind(a, m[1]) == MEMOPT_OK);
    TEST_ARENA_TAGS(0, 100, 0, 0);
    CHECK(memopt_arena_push(a, 100, 2) != NULL);
    TEST_ARENA_TAGS(0, 100, 128, 0); /* room again */
    CHECK(memopt_arena_rewind(a, m[0]) == MEMOPT_OK);
    TEST_ARENA_TAGS(0, 0, 0, 0);
    CHECK(memopt_ledger_total(l).now == 128);
    memopt_arena_destroy(a);
    CHECK(memopt_ledger_total(l).now == 0 && memopt_ledger_total(l).blocks == 0);
    memopt_ledger_destroy(l);
}
static void test_arena_unknown_segment(void) { /* the ledger's table of reservations is full: the sums are right all the same */
    test_device d[2]; memopt_source s[2]; memopt_arena *a[2]; memopt_ledger *l = NULL; memopt_ledger_desc desc; int i;
    memset(&desc, 0, sizeof desc);
    desc.segment_capacity = 1;
    CHECK(memopt_ledger_create(&desc, &l) == MEMOPT_OK);
    for (i = 0; i < 2; ++i) {
        test_device_open(&d[i], &s[i], 65536, 4096, 1);
        s[i].ledger = l;
        a[i] = test_arena_new(&s[i], 0, NULL);
        CHECK(memopt_arena_push(a[i], 5000, 0) && memopt_arena_push_top(a[i], 9000, 0) && d[i].committed == 5 * 4096);
    }
    CHECK(memopt_ledger_footprint(l).committed == 10 * 4096 && memopt_ledger_footprint(l).reserved == 2 * 65536 && memopt_ledger_footprint(l).segments == 2);
    memopt_arena_destroy(a[1]);
    CHECK(memopt_ledger_footprint(l).committed == 5 * 4096 && memopt_ledger_footprint(l).reserved == 65536 && memopt_ledger_footprint(l).segments == 1);
    memopt_arena_destroy(a[0]);
    CHECK(memopt_ledger_footprint(l).committed == 0 && memopt_ledger_footprint(l).reserved == 0 && memopt_ledger_footprint(l).segments == 0);
    memopt_ledger_destroy(l);
    test_device_close(&d[0]);
    test_device_close(&d[1]);
}
#if MEMOPT_DEBUG < 2 && !defined(MEMOPT_I_ASAN)
static void test_arena_fast_path(void) { /* where nothing has to be looked at, pushes into committed memory go the short way */
    test_device d; memopt_source s; memopt_arena *a; memopt_mark m;
    test_device_open(&d, &s, 65536, 4096, 1);
    a = test_arena_new(&s, 0, NULL);
    m = memopt_arena_mark(a);
    CHECK(memopt_arena_push(a, 5000, 0) && memopt_arena_push_top(a, 100, 0) && a->ends[0].limit == 8192 && a->ends[1].limit == 4096);
    CHECK(memopt_arena_rewind(a, m) == MEMOPT_OK && a->ends[0].limit == 8192);
    CHECK(memopt_arena_trim(a) == MEMOPT_OK && a->ends[0].limit == 0 && a->ends[1].limit == 4096);
    memopt_arena_destroy(a);
    test_device_close(&d);
}
#endif
static void test_arena_names(void) {
    memopt_source s; memopt_arena *a; memopt_ledger *l = NULL; memopt_push_options o; unsigned char *p, *q, *r; memopt_mark m;
    CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK && memopt_source_counting(&s) == MEMOPT_OK);
    a = test_arena_new(&s, 65536, l);
    memset(&o, 0, sizeof o);
    o.name = "weights";
    p = (unsigned char *)memopt_arena_push_with(a, 128, &o);
    m = memopt_arena_mark(a);
    q = (unsigned char *)memopt_arena_push(a, 128, 0);
    o.name = "scratch"; o.top = 1;
    r = (unsigned char *)memopt_arena_push_with(a, 128, &o);
    CHECK(!strcmp(test_arena_name(a, p), "weights") && !strcmp(test_arena_name(a, p + 127), "weights"));
    CHECK(!test_arena_name(a, q) && !test_arena_name(a, p + 128) && !test_arena_name(a, NULL) && !test_arena_name(a, p - 1));
    CHECK(!strcmp(test_arena_name(a, r), "scratch") && !strcmp(test_arena_name(a, r + 127), "scratch") && !test_arena_name(a, r - 1));
    CHECK(memopt_arena_rewind(a, m) == MEMOPT_OK && !strcmp(test_arena_name(a, p), "weights"));
    memopt_arena_destroy(a);
    memopt_ledger_destroy(l);
    a = test_arena_new(&s, 65536, NULL); /* without a ledger there is no log */
    p = (unsigned char *)memopt_arena_push_with(a, 128, &o);
    CHECK(p && !a->log && !test_arena_name(a, p));
    memopt_arena_destroy(a);
}

/* -- Debug: bytes written after they had been rewound -- */

static void test_arena_scribble(unsigned char *p) { /* what a bug would do; ASan is told to look away */
#if defined(MEMOPT_I_ASAN)
    __asan_unpoison_memory_region(p, 1);
#endif
    *p = (unsigned char)(*p + 1);
#if defined(MEMOPT_I_ASAN)
    __asan_poison_memory_region(p, 1);
#endif
}
static void test_arena_use_after_rewind(void) {
    static const size_t places[] = { 0, 1, 99, 63 }; /* of 100 bytes */
    size_t i; int top, trimmed;
    if (MEMOPT_DEBUG < 2) return; /* nothing is looked at */
    for (top = 0; top < 2; ++top)
        for (trimmed = 0; trimmed < 2; ++trimmed)
            for (i = 0; i < sizeof places / sizeof *places; ++i) {
                test_device d; memopt_source s; memopt_arena *a; memopt_push_options o; memopt_mark m; unsigned char *p, *q; test_arena_state before;
                test_device_open(&d, &s, 65536, 4096, 1);
                a = test_arena_new(&s, 0, NULL);
                memset(&o, 0, sizeof o);
                o.top = top;
                CHECK(memopt_arena_push_with(a, 100, &o) != NULL);
                m = top ? memopt_arena_mark_top(a) : memopt_arena_mark(a);
                p = (unsigned char *)memopt_arena_push_with(a, 100, &o);
                memset(p, 1, 100);
                CHECK(memopt_arena_push_with(a, 10000, &o) != NULL);
                CHECK(memopt_arena_rewind(a, m) == MEMOPT_OK);
                if (trimmed) CHECK(memopt_arena_trim(a) == MEMOPT_OK && d.committed == 4096);
                CHECK(memopt_arena_check(a) == MEMOPT_OK);
                test_arena_scribble(p + places[i]);
                before = test_arena_look(a, NULL);
                CHECK(memopt_arena_check(a) == MEMOPT_ERR_CORRUPT);
                CHECK(test_arena_says(a, MEMOPT_ERR_CORRUPT, "bytes were written after they had been rewound"));
                CHECK(memopt_arena_check(a) == MEMOPT_ERR_CORRUPT); /* looking does not mend it */
                q = (unsigned char *)memopt_arena_push_with(a, 100, &o);
                CHECK_AT(!q && test_arena_says(a, MEMOPT_ERR_CORRUPT, "bytes were written after they had been rewound: asked 100 B"), i);
                CHECK(test_arena_same(before, test_arena_look(a, NULL)));
                CHECK(memopt_arena_check(a) == MEMOPT_OK);
                q = (unsigned char *)memopt_arena_push_with(a, 100, &o);
                CHECK_AT(q == p, i); /* the next push goes through */
                memset(q, 0, 100);
                o.zero = 1; /* what lies behind, fresh bytes included, is zero when it must be */
                q = (unsigned char *)memopt_arena_push_with(a, 20000, &o);
                CHECK(q && test_arena_is(q, 20000, 0) && memopt_arena_check(a) == MEMOPT_OK);
                memopt_arena_destroy(a);
                CHECK(d.mistakes == 0);
                test_device_close(&d);
            }
}
static void test_arena_corrupt_then_fresh(void) { /* the refused push reached into fresh bytes: they stay fresh, and zero */
    int top;
    if (MEMOPT_DEBUG < 2) return;
    for (top = 0; top < 2; ++top) {
        test_device d; memopt_source s; memopt_arena *a; memopt_push_options o; memopt_mark m; unsigned char *p;
        test_device_open(&d, &s, 65536, 4096, 1);
        a = test_arena_new(&s, 0, NULL);
        memset(&o, 0, sizeof o);
        o.top = top;
        m = top ? memopt_arena_mark_top(a) : memopt_arena_mark(a);
        p = (unsigned char *)memopt_arena_push_with(a, 128, &o);
        CHECK(p && memopt_arena_rewind(a, m) == MEMOPT_OK);
        test_arena_scribble(p + 5);
        CHECK(!memopt_arena_push_with(a, 3000, &o) && memopt_arena_error(a).status == MEMOPT_ERR_CORRUPT);
        CHECK(memopt_arena_push_with(a, 128, &o) == p);
        o.zero = 1;
        p = (unsigned char *)memopt_arena_push_with(a, 2000, &o);
        CHECK(p && test_arena_is(p, 2000, 0) && d.zero_calls == 0);
        CHECK(memopt_arena_check(a) == MEMOPT_OK);
        memopt_arena_destroy(a);
        test_device_close(&d);
    }
}
static void test_arena_released_value(void) { /* at MEMOPT_DEBUG 2 what is rewound reads 0xDD; below it is left alone */
    static unsigned char room[8192]; memopt_source s; memopt_arena *a; memopt_mark m; unsigned char *p, seen[64]; size_t i;
    CHECK(memopt_source_block(room, sizeof room, &s) == MEMOPT_OK);
    a = test_arena_new(&s, 4096, NULL);
    m = memopt_arena_mark(a);
    p = (unsigned char *)memopt_arena_push(a, 64, 0);
    memset(p, 7, 64);
    CHECK(memopt_arena_rewind(a, m) == MEMOPT_OK);
    p = (unsigned char *)memopt_arena_push(a, 64, 0);
    for (i = 0; i < 64; ++i) seen[i] = p[i];
    CHECK(test_arena_is(seen, 64, MEMOPT_DEBUG >= 2 ? 0xDD : 7));
    memopt_arena_destroy(a);
}
#if defined(MEMOPT_I_ASAN)
static int test_arena_poisoned(const unsigned char *p, size_t bytes) { /* 1: all, 0: none, -1: some */
    size_t i, n = 0;
    for (i = 0; i < bytes; ++i) n += __asan_address_is_poisoned(p + i) != 0;
    return n == bytes ? 1 : n == 0 ? 0 : -1;
}
static void test_arena_asan(void) {
    test_device d; memopt_source s; memopt_arena *a; memopt_mark m, t; unsigned char *p, *q, *r; int commits;
    for (commits = 0; commits < 2; ++commits) {
        test_device_open(&d, &s, 65536, 4096, 1);
        if (!commits) s.commit_fn = s.decommit_fn = NULL;
        a = test_arena_new(&s, 0, NULL);
        if (!commits) CHECK(test_arena_poisoned(d.memory, 65536) == 1);
        p = (unsigned char *)memopt_arena_push(a, 100, 0);
        CHECK(test_arena_poisoned(p, 100) == 0 && test_arena_poisoned(p + 100, 3996) == 1); /* padding, and what is committed */
        m = memopt_arena_mark(a); t = memopt_arena_mark_top(a);
        q = (unsigned char *)memopt_arena_push(a, 50, 0);
        CHECK(q == p + 128 && test_arena_poisoned(p + 100, 28) == 1 && test_arena_poisoned(q, 50) == 0 && test_arena_poisoned(q + 50, 100) == 1);
        r = (unsigned char *)memopt_arena_push_top(a, 100, 0);
        CHECK(r == d.memory + 65536 - 128 && test_arena_poisoned(r, 100) == 0 && test_arena_poisoned(r + 100, 28) == 1 && test_arena_poisoned(r - 100, 100) == 1);
        CHECK(memopt_arena_check(a) == MEMOPT_OK);
        CHECK(test_arena_poisoned(r - 100, 100) == 1 && test_arena_poisoned(q + 50, 100) == 1 && test_arena_poisoned(r, 100) == 0);
        CHECK(memopt_arena_rewind(a, m) == MEMOPT_OK && test_arena_poisoned(p + 100, 3000) == 1 && test_arena_poisoned(p, 100) == 0);
        CHECK(memopt_arena_rewind(a, t) == MEMOPT_OK && test_arena_poisoned(r - 100, 228) == 1);
        CHECK(memopt_arena_push(a, 10000, 0) && memopt_arena_rewind(a, m) == MEMOPT_OK && memopt_arena_trim(a) == MEMOPT_OK);
        CHECK(test_arena_poisoned(p, 100) == 0 && test_arena_poisoned(p + 100, 3996) == 1);
        CHECK(!memopt_arena_push(a, 65536, 0) && test_arena_poisoned(p + 100, 3996) == 1); /* a refused one shows nothing */
        memopt_arena_destroy(a);
        CHECK(test_arena_poisoned(d.memory, 65536) == 0);
        test_device_close(&d);
    }
}
/* In the middle of random programs: the live bytes may be touched, and no others. ASan tells bytes apart only behind the
   first of eight, so with alignments below 8 a few released ones stay open. */
static void test_arena_asan_random(void) {
    static test_arena_model m; test_device d; memopt_source s; size_t i, wrong; int top; uint64_t seed;
    static unsigned char live[65536];
    for (seed = 1; seed <= 60 * TEST_ARENA_TIMES; ++seed) {
        memset(&m, 0, sizeof m);
        test_device_open(&d, &s, 65536, 4096, 1);
        m.device = &d; m.source = &s; m.capacity = 65536; m.top_alignment = 64; m.seed = seed; m.least_alignment = seed % 3 ? 3 : 0;
        m.a = test_arena_new(&s, 0, NULL);
        test_arena_model_run(&m, 20 + (size_t)(seed % 100));
        memset(live, 0, sizeof live);
        for (top = 0; top < 2; ++top)
            for (i = 0; i < m.ends[top].count; ++i) memset(live + (m.ends[top].blocks[i].p - d.base), 1, m.ends[top].blocks[i].bytes);
        for (i = wrong = 0; i < 65536; ++i) {
            const int poisoned = __asan_address_is_poisoned(d.memory + i) != 0;
            if (live[i]) wrong += poisoned != 0;
            else if (d.is_committed[i / 4096] && m.least_alignment) wrong += !poisoned;
        }
        CHECK_AT(wrong == 0, seed);
        memopt_arena_destroy(m.a);
        CHECK(test_arena_poisoned(d.memory, 65536) == 0);
        test_device_close(&d);
    }
}
#endif

static void test_arena_on_pages(void) { /* real pages: untouched memory stays untouched, huge or not */
    int no_huge;
    for (no_huge = 0; no_huge < 2; ++no_huge) {
        memopt_pages_desc d; memopt_source s; memopt_arena *a; unsigned char *p, *q; size_t g; memopt_mark m;
        memset(&d, 0, sizeof d);
        d.no_huge = no_huge;
        if (memopt_source_pages(&d, &s)) { SKIP("no pages on this platform"); return; }
        g = s.granularity;
        a = test_arena_new(&s, 8 * g, NULL);
        CHECK(memopt_arena_get_stats(a).committed == 0);
        p = (unsigned char *)memopt_arena_push(a, 1, 0);
        CHECK(p && memopt_arena_get_stats(a).committed == g);
        q = (unsigned char *)memopt_arena_push_top(a, g + 1, 0);
        CHECK(q && memopt_arena_get_stats(a).committed == 3 * g);
        *p = 1;
        memset(q, 2, g + 1);
        m = memopt_arena_mark(a);
        p = (unsigned char *)memopt_arena_push_zero(a, 5 * g, 0);
        CHECK(p && test_arena_is(p, 5 * g, 0) && memopt_arena_get_stats(a).committed == 8 * g);
        memset(p, 3, 5 * g);
        CHECK(memopt_arena_rewind(a, m) == MEMOPT_OK && memopt_arena_trim(a) == MEMOPT_OK && memopt_arena_get_stats(a).committed == 3 * g);
        CHECK(test_arena_is(q, g + 1, 2));
        p = (unsigned char *)memopt_arena_push_zero(a, 5 * g, 0);
        CHECK(p && test_arena_is(p, 5 * g, 0));
        memopt_arena_destroy(a);
    }
}

/* Why: of a creation in the desc's error, of a push in the arena's. */
static memopt_status test_arena_no_reserve(memopt_source *s, size_t bytes, void **base) {
    (void)s; (void)bytes; (void)base;
    return MEMOPT_ERR_DEVICE;
}
#define ARENA_SAYS(change, want, text) REFUSES(d.error, (d = right, change), memopt_arena_create(&d, to), \
    MEMOPT_ERR_##want, "arena: " text)
/* Without a source: pages that the arena owns, seen by its ledger, and given back with it. */
static void test_arena_of_its_own(void) {
    memopt_arena *a = NULL;
    memopt_arena_desc d;
    memopt_ledger *l = NULL;
    memopt_mark mark;
    unsigned char *p, *q;
    size_t n;

    CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK);
    memset(&d, 0, sizeof d);
    d.capacity = (size_t)1 << 26;
    d.ledger = l;
    if (memopt_arena_create(&d, &a) == MEMOPT_ERR_UNSUPPORTED) {
        memopt_ledger_destroy(l);
        SKIP("no pages here");
        return;
    }
    CHECK(a && memopt_ledger_footprint(l).reserved >= d.capacity && memopt_ledger_footprint(l).segments == 1);
    for (n = 0; n < 3; ++n) { /* in the first pages, and far from them */
        mark = memopt_arena_mark(a);
        p = (unsigned char *)memopt_arena_push(a, (size_t)1 << 25, MEMOPT_TAG_ACTIVATIONS);
        q = (unsigned char *)memopt_arena_push_top(a, 100, MEMOPT_TAG_SCRATCH);
        CHECK(p && q && (uintptr_t)p % 64 == 0);
        p[0] = p[((size_t)1 << 25) - 1] = q[99] = 7;
        CHECK(memopt_arena_rewind(a, mark) == MEMOPT_OK);
    }
    CHECK(memopt_ledger_footprint(l).committed >= (size_t)1 << 25);
    memopt_arena_destroy(a);
    CHECK(memopt_ledger_footprint(l).reserved == 0 && memopt_ledger_footprint(l).committed == 0);
    memopt_ledger_destroy(l);
}

static void test_arena_errors(void) {
    memopt_source s, half;
    memopt_arena *a = NULL, **to = &a;
    memopt_arena_desc right, d;
    memopt_push_options o;
    memopt_ledger *l = NULL;
    memopt_error e;
    memopt_host h;
    test_faults f;
    char text[96];

    CHECK(memopt_source_counting(&s) == MEMOPT_OK && memopt_ledger_create(NULL, &l) == MEMOPT_OK);
    memset(&right, 0, sizeof right);
    memset(&h, 0, sizeof h);
    memset(&f, 0, sizeof f);
    right.source = &s;
    right.capacity = 4096;
    ARENA_SAYS(to = NULL, ARGUMENT, "out is NULL");
    to = &a;
    ARENA_SAYS((d.source = NULL, d.capacity = 0), ARGUMENT, "capacity 0, without a source at least 1");
    ARENA_SAYS((half = s, half.zero_fn = NULL, d.source = &half), ARGUMENT, "source.zero_fn is NULL");
    ARENA_SAYS((h.allocator.alloc_fn = test_alloc, d.host = &h), ARGUMENT, "host.allocator is half a table");
    ARENA_SAYS(d.alignment = 48, ARGUMENT, "alignment 48, must be a power of two");
    ARENA_SAYS(d.alignment = 8, ARGUMENT, "alignment 8, at least 16");
    ARENA_SAYS((half = s, half.base_alignment = 4096, d.source = &half, d.alignment = 8192), ARGUMENT,
               "alignment 8192, at most source.base_alignment 4096");
    ARENA_SAYS(d.capacity = SIZE_MAX, OVERFLOW, "capacity does not fit size_t");
    ARENA_SAYS((half = s, half.capacity = 4096, d.source = &half, d.capacity = 4097), MEMORY,
               "capacity 4160, at most source.capacity 4096");
    ARENA_SAYS((half = s, half.capacity = 63, d.source = &half, d.capacity = 0), MEMORY,
               "source.capacity 63, at least 64");
    ARENA_SAYS((d.ledger = l, d.log_entries = SIZE_MAX), OVERFLOW, "log_entries do not fit size_t");
    d = right;
    d.error = &test_why;
    h = test_host(&f);
    d.host = &h;
    f.fail_on = 1;
    test_why_reset();
    CHECK(memopt_arena_create(&d, to) == MEMOPT_ERR_MEMORY && test_why.status == MEMOPT_ERR_MEMORY);
    CHECK(memopt_error_text(&test_why, text, sizeof text, NULL) == MEMOPT_OK);
    CHECK(strncmp(text, "arena: no memory for it: asked ", 31) == 0 && f.live_blocks == 0);
    ARENA_SAYS((half = s, half.reserve_fn = test_arena_no_reserve, d.source = &half), DEVICE,
               "capacity 4096, refused by the source");
    CHECK(a == NULL);

    d = right;
    d.ledger = l;
    ACCEPTS(d.error, (void)0, memopt_arena_create(&d, to));
    memset(&o, 0, sizeof o);
    CHECK(memopt_arena_push(a, 100, 0) != NULL && test_why_untouched());
    CHECK(!memopt_arena_push(a, 0, 0));
    e = memopt_arena_error(a);
    CHECK(test_says(&e, MEMOPT_ERR_ARGUMENT, "a push of no bytes"));
    o.alignment = 48;
    CHECK(!memopt_arena_push_with(a, 10, &o));
    e = memopt_arena_error(a);
    CHECK(test_says(&e, MEMOPT_ERR_ARGUMENT, "arena: alignment 48, must be a power of two") && e.free_bytes == 4096 - 100);
    o.alignment = 2 * s.base_alignment;
    CHECK(!memopt_arena_push_with(a, 10, &o));
    e = memopt_arena_error(a);
    snprintf(text, sizeof text, "arena: alignment %llu, at most source.base_alignment %llu",
             2 * (unsigned long long)s.base_alignment, (unsigned long long)s.base_alignment);
    CHECK(test_says(&e, MEMOPT_ERR_ARGUMENT, text));
    CHECK(!memopt_arena_push(a, 10, 9));
    e = memopt_arena_error(a);
    CHECK(test_says(&e, MEMOPT_ERR_ARGUMENT, "arena: tag 9, below the ledger's 8"));
    CHECK(!memopt_arena_push(a, 5000, 0));
    e = memopt_arena_error(a);
    CHECK(test_says(&e, MEMOPT_ERR_MEMORY,
                    "the arena is full: asked 4.8 KiB, free 3.9 KiB, largest piece 3.8 KiB, fragmentation 0%"));
    CHECK(!memopt_arena_push_array(a, SIZE_MAX / 2 + 1, 2, 0));
    CHECK(test_arena_says(a, MEMOPT_ERR_OVERFLOW, sizeof(size_t) > 4
        ? "arena: count 9223372036854775808, of this size at most 9223372036854775807"
        : "arena: count 2147483648, of this size at most 2147483647"));
    memopt_arena_destroy(a);
    memopt_ledger_destroy(l);
}
static void test_arena(void) {
    RUN(test_arena_offsets);
    RUN(test_arena_whole);
    RUN(test_arena_arguments);
    RUN(test_arena_null);
    RUN(test_arena_bad_pushes);
    RUN(test_arena_largest);
    RUN(test_arena_create_failures);
    RUN(test_arena_exact_peak);
    RUN(test_arena_model_sources);
    RUN(test_arena_marks);
    RUN(test_arena_zero);
    RUN(test_arena_zero_after_failure);
    RUN(test_arena_trim);
    RUN(test_arena_trim_failures);
    RUN(test_arena_growth_failures);
    RUN(test_arena_overflowing_ledger);
    RUN(test_arena_log_joined);
    RUN(test_arena_unknown_segment);
#if MEMOPT_DEBUG < 2 && !defined(MEMOPT_I_ASAN)
    RUN(test_arena_fast_path);
#endif
    RUN(test_arena_names);
    RUN(test_arena_of_its_own);
    RUN(test_arena_errors);
    RUN(test_arena_use_after_rewind);
    RUN(test_arena_corrupt_then_fresh);
    RUN(test_arena_released_value);
#if defined(MEMOPT_I_ASAN)
    RUN(test_arena_asan);
    RUN(test_arena_asan_random);
#endif
    RUN(test_arena_on_pages);
}
#ifndef TEST_COMBINED
int main(void) { test_arena(); return test_totals(); }
#endif
