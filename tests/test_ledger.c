/* test_ledger.c - the books against a naive model that adds everything up again after every call; texts against texts
   written by hand. The snapshot's structure is looked at by check_exports.py, which loads it with Python. */
#include "test.h"
#include "../examples/parts/ledger_export.h"

static void *ledger_at(uint64_t address) { return (void *)(uintptr_t)address; } /* never looked into */
static memopt_ledger *ledger_new(size_t blocks, size_t events, size_t segments, const memopt_host *host) {
    memopt_ledger_desc d; memopt_ledger *l = NULL;
    memset(&d, 0, sizeof d);
    d.block_capacity = blocks; d.event_capacity = events; d.segment_capacity = segments; d.host = host;
    CHECK(memopt_ledger_create(&d, &l) == MEMOPT_OK && l);
    return l;
}
/* the caller frees it */
static char *ledger_text(const memopt_ledger *l, ledger_format format, size_t *length) {
    FILE *file = tmpfile(); char *text; long n;
    if (!file) exit(1);
    CHECK(ledger_export(l, format, file) == MEMOPT_OK);
    n = ftell(file);
    text = (char *)malloc((size_t)n + 1);
    if (!text) exit(1);
    rewind(file);
    CHECK(fread(text, 1, (size_t)n, file) == (size_t)n);
    text[n] = 0;
    if (length) *length = (size_t)n;
    fclose(file);
    return text;
}
static void ledger_same_text(const char *got, const char *want, int line) {
    CHECK_AT(strcmp(got, want) == 0, line);
    if (strcmp(got, want) != 0) printf("got:\n%s\nwant:\n%s\n", got, want);
}
static void ledger_export_is(const memopt_ledger *l, ledger_format format, const char *want, int line) {
    char *got = ledger_text(l, format, NULL);
    ledger_same_text(got, want, line);
    free(got);
}
static void ledger_report_is(const memopt_ledger *l, const char *want, int line) {
    char got[2000];
    CHECK(memopt_ledger_report(l, got, sizeof got, NULL) == MEMOPT_OK);
    ledger_same_text(got, want, line);
}

/* -- creation -- */
static void ledger_create(void) {
    memopt_ledger_desc d; memopt_ledger *l = (memopt_ledger *)ledger_at(64), *before = l; memopt_host half; test_faults f; size_t n;
    CHECK(memopt_ledger_create(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    memset(&d, 0, sizeof d); memset(&half, 0, sizeof half);
    d.tag_capacity = 7;              CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_ARGUMENT && l == before);
    d.tag_capacity = 4097;           CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_ARGUMENT && l == before);
    d.tag_capacity = SIZE_MAX;       CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_ARGUMENT && l == before);
    memset(&d, 0, sizeof d);
    d.event_capacity = SIZE_MAX;     CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_OVERFLOW && l == before);
    d.event_capacity = SIZE_MAX / sizeof(memopt_ledger_event); CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_OVERFLOW && l == before);
    memset(&d, 0, sizeof d);
    d.block_capacity = SIZE_MAX;     CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_OVERFLOW && l == before);
    d.block_capacity = SIZE_MAX / 2; CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_OVERFLOW && l == before);
    d.block_capacity = UINT32_MAX / 4; CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_OVERFLOW && l == before);
    memset(&d, 0, sizeof d);
    d.segment_capacity = SIZE_MAX;   CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_OVERFLOW && l == before);
    memset(&d, 0, sizeof d);
    half.allocator.alloc_fn = test_alloc; d.host = &half;
    CHECK(memopt_ledger_create(&d, &l) == MEMOPT_ERR_ARGUMENT && l == before);
    CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK && l != before);
    CHECK(l->tag_capacity == 32 && l->segment_capacity == 64 && !l->event_capacity && !l->block_capacity);
    memopt_ledger_destroy(l);
    memopt_ledger_destroy(NULL);
    for (n = 1; n < 10; ++n) { /* every allocation fails once */
        memopt_host h; memopt_status s;
        memset(&f, 0, sizeof f); memset(&d, 0, sizeof d);
        f.fail_on = n; h = test_host(&f);
        d.host = &h; d.tag_capacity = 8; d.block_capacity = 3; d.event_capacity = 5; d.segment_capacity = 1;
        l = NULL;
        s = memopt_ledger_create(&d, &l);
        CHECK_AT(s == MEMOPT_OK || (s == MEMOPT_ERR_MEMORY && !l), n);
        if (!s) {
            CHECK(memopt_ledger_add(l, 0, 1, ledger_at(16), NULL) == MEMOPT_OK && f.live_blocks == 1); /* one allocation, no later one */
            CHECK(f.live_bytes == l->memory);
        }
        memopt_ledger_destroy(l);
        CHECK_AT(f.live_blocks == 0 && f.bad_frees == 0, n);
        if (!s && n > 2) return;
    }
    CHECK(n < 10);
}
static void ledger_tags(void) {
    static const char *const names[] = { "other", "parameters", "gradients", "optimizer", "activations", "checkpoints", "scratch", "communication" };
    memopt_ledger_desc d; memopt_ledger *l; memopt_tag tag = 99; unsigned i; char name[64], long_name[64];
    memset(&d, 0, sizeof d);
    d.tag_capacity = 11;
    CHECK(memopt_ledger_create(&d, &l) == MEMOPT_OK);
    for (i = 0; i < 8; ++i) CHECK_AT(strcmp(memopt_ledger_tag_name(l, i), names[i]) == 0, i);
    CHECK(strcmp(memopt_ledger_tag_name(l, 8), "?") == 0 && strcmp(memopt_ledger_tag_name(l, UINT_MAX), "?") == 0);
    CHECK(strcmp(memopt_ledger_tag_name(NULL, 0), "?") == 0);
    CHECK(memopt_ledger_tag_add(NULL, "x", &tag) == MEMOPT_ERR_ARGUMENT && memopt_ledger_tag_add(l, NULL, &tag) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_ledger_tag_add(l, "", &tag) == MEMOPT_ERR_ARGUMENT && memopt_ledger_tag_add(l, "x", NULL) == MEMOPT_ERR_ARGUMENT && tag == 99);
    strcpy(name, "copied");
    CHECK(memopt_ledger_tag_add(l, name, &tag) == MEMOPT_OK && tag == MEMOPT_TAG_USER);
    strcpy(name, "gone");
    CHECK(strcmp(memopt_ledger_tag_name(l, tag), "copied") == 0);
    memset(long_name, 'a', sizeof long_name); long_name[63] = 0;
    CHECK(memopt_ledger_tag_add(l, long_name, &tag) == MEMOPT_OK && tag == 9 && strlen(memopt_ledger_tag_name(l, tag)) == 31);
    long_name[31] = 0;
    CHECK(memopt_ledger_tag_add(l, long_name, &tag) == MEMOPT_OK && tag == 10 && strcmp(memopt_ledger_tag_name(l, tag), long_name) == 0);
    CHECK(memopt_ledger_tag_add(l, "full", &tag) == MEMOPT_ERR_MEMORY && tag == 10);
    CHECK(strcmp(memopt_ledger_tag_name(l, 8), "copied") == 0 && l->tag_count == 11);
    memopt_ledger_destroy(l);
}
static void ledger_dirty(void) { /* leaves rubbish where the next function has its variables */
    volatile unsigned char rubbish[2048]; size_t i;
    for (i = 0; i < sizeof rubbish; ++i) rubbish[i] = 0xA5;
}
static void ledger_null(void) { /* no ledger: nothing is booked, and that is no error */
    memopt_usage u; memopt_footprint h; size_t n = 7;
    memopt_usage (*volatile usage)(const memopt_ledger *, memopt_tag) = memopt_ledger_usage;
    memopt_usage (*volatile all)(const memopt_ledger *) = memopt_ledger_total;
    memopt_footprint (*volatile held)(const memopt_ledger *) = memopt_ledger_footprint;
    memset(&u, 0xA5, sizeof u); memset(&h, 0xA5, sizeof h);
    CHECK(memopt_ledger_add(NULL, 99, 1, NULL, NULL) == MEMOPT_OK && memopt_ledger_remove(NULL, 0, 1, NULL) == MEMOPT_OK);
    CHECK(memopt_ledger_failed(NULL, 0, 1) == MEMOPT_OK && memopt_ledger_retried(NULL, 0, 1) == MEMOPT_OK);
    memopt_ledger_label(NULL, 1, 2);
    memopt_i_ledger_reserved(NULL, NULL, 1, 1); memopt_i_ledger_released(NULL, NULL, 1, 1);
    memopt_i_ledger_commit_by(NULL, NULL, 1, 0); memopt_i_ledger_commit_by(NULL, NULL, 0, 1);
    ledger_dirty(); u = usage(NULL, 0); CHECK(!u.now && !u.peak && !u.at_peak && !u.blocks && !u.allocs && !u.frees && !u.failed && !u.retried);
    ledger_dirty(); u = all(NULL);      CHECK(!u.now && !u.peak && !u.at_peak && !u.blocks && !u.allocs && !u.frees && !u.failed && !u.retried);
    ledger_dirty(); h = held(NULL);     CHECK(!h.reserved && !h.committed && !h.committed_peak && !h.segments);
    CHECK(memopt_ledger_report(NULL, NULL, 0, &n) == MEMOPT_ERR_ARGUMENT && n == 7);
    CHECK(!memopt_ledger_next_event(NULL, NULL) && !memopt_ledger_next_block(NULL, NULL) && !memopt_ledger_next_segment(NULL, NULL));
}

/* -- refused calls change nothing: the whole ledger is compared, tables and all -- */
static void ledger_refused(memopt_ledger *l, memopt_status want, memopt_tag tag, size_t bytes, const void *address, int add, int line) {
    char *before = (char *)malloc(l->memory);
    if (!before) exit(1);
    memcpy(before, l, l->memory);
    CHECK_AT((add ? memopt_ledger_add(l, tag, bytes, address, NULL) : memopt_ledger_remove(l, tag, bytes, address)) == want, line);
    CHECK_AT(memcmp(before, l, l->memory) == 0, line);
    free(before);
}
static void ledger_bad_calls(void) {
    memopt_ledger *l = ledger_new(8, 8, 0, NULL);
    char *before;
    ledger_refused(l, MEMOPT_ERR_ARGUMENT, 8, 1, ledger_at(16), 1, __LINE__);
    ledger_refused(l, MEMOPT_ERR_ARGUMENT, UINT_MAX, 1, ledger_at(16), 0, __LINE__);
    ledger_refused(l, MEMOPT_ERR_STATE, 0, 0, ledger_at(16), 0, __LINE__);
    ledger_refused(l, MEMOPT_ERR_STATE, 0, 1, ledger_at(16), 0, __LINE__);
    CHECK(memopt_ledger_add(l, 1, 100, ledger_at(16), "a") == MEMOPT_OK);
    CHECK(memopt_ledger_add(l, 2, 100, ledger_at(32), "b") == MEMOPT_OK);
    ledger_refused(l, MEMOPT_ERR_STATE, 1, 101, ledger_at(16), 0, __LINE__);      /* more than the tag has */
    ledger_refused(l, MEMOPT_ERR_STATE, 1, SIZE_MAX, ledger_at(16), 0, __LINE__);
    ledger_refused(l, MEMOPT_ERR_STATE, 3, 0, ledger_at(16), 0, __LINE__);        /* no block of that tag */
    ledger_refused(l, MEMOPT_ERR_STATE, 1, 100, ledger_at(48), 0, __LINE__);      /* no such block */
    ledger_refused(l, MEMOPT_ERR_STATE, 1, 100, NULL, 0, __LINE__);
    ledger_refused(l, MEMOPT_ERR_STATE, 1, 100, ledger_at(32), 0, __LINE__);      /* another tag's block */
    ledger_refused(l, MEMOPT_ERR_STATE, 1, 99, ledger_at(16), 0, __LINE__);       /* not its size */
    ledger_refused(l, MEMOPT_ERR_OVERFLOW, 3, SIZE_MAX - 199, ledger_at(64), 1, __LINE__);
    ledger_refused(l, MEMOPT_ERR_OVERFLOW, 1, SIZE_MAX, ledger_at(64), 1, __LINE__);
    before = (char *)malloc(l->memory);
    if (!before) exit(1);
    memcpy(before, l, l->memory);
    CHECK(memopt_ledger_failed(l, 8, 1) == MEMOPT_ERR_ARGUMENT && memopt_ledger_retried(l, 8, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memcmp(before, l, l->memory) == 0);
    free(before);
    CHECK(memopt_ledger_add(l, 3, SIZE_MAX - 200, ledger_at(64), NULL) == MEMOPT_OK); /* to the last byte */
    CHECK(memopt_ledger_total(l).now == SIZE_MAX && memopt_ledger_total(l).peak == SIZE_MAX);
    ledger_refused(l, MEMOPT_ERR_OVERFLOW, 3, 1, ledger_at(128), 1, __LINE__);
    CHECK(memopt_ledger_add(l, 3, 0, ledger_at(128), NULL) == MEMOPT_OK);
    CHECK(memopt_ledger_remove(l, 3, SIZE_MAX - 200, ledger_at(64)) == MEMOPT_OK);
    CHECK(memopt_ledger_remove(l, 1, 100, ledger_at(16)) == MEMOPT_OK);
    ledger_refused(l, MEMOPT_ERR_STATE, 1, 100, ledger_at(16), 0, __LINE__); /* twice */
    CHECK(memopt_ledger_total(l).now == 100 && memopt_ledger_usage(l, 3).blocks == 1 && memopt_ledger_usage(l, 8).allocs == 0);
    memopt_ledger_destroy(l);
}
/* What was live at the peak, by hand. */
static void ledger_peak(void) {
    memopt_ledger *l = ledger_new(0, 0, 0, NULL); memopt_usage u;
    ledger_refused(l, MEMOPT_ERR_STATE, 1, 0, ledger_at(16), 0, __LINE__); /* no bytes are too many where no block is */
    memopt_ledger_add(l, 1, 50, NULL, NULL); memopt_ledger_add(l, 2, 30, NULL, NULL);       /* 80: a peak */
    CHECK(memopt_ledger_usage(l, 1).at_peak == 50 && memopt_ledger_usage(l, 2).at_peak == 30 && memopt_ledger_total(l).at_peak == 80);
    memopt_ledger_remove(l, 1, 50, NULL);
    memopt_ledger_add(l, 2, 50, NULL, NULL);                                                /* 80 again: not a new one */
    CHECK(memopt_ledger_usage(l, 1).at_peak == 50 && memopt_ledger_usage(l, 2).at_peak == 30);
    memopt_ledger_remove(l, 2, 30, NULL);
    u = memopt_ledger_usage(l, 2);
    CHECK(u.now == 50 && u.peak == 80 && u.at_peak == 30 && u.blocks == 1 && u.allocs == 2 && u.frees == 1);
    memopt_ledger_add(l, 3, 31, NULL, NULL);                                                /* 81: a new one */
    memopt_ledger_remove(l, 3, 31, NULL);
    CHECK(memopt_ledger_usage(l, 1).at_peak == 0 && memopt_ledger_usage(l, 2).at_peak == 50 && memopt_ledger_usage(l, 3).at_peak == 31);
    u = memopt_ledger_total(l);
    CHECK(u.now == 50 && u.peak == 81 && u.at_peak == 81 && u.allocs == 4 && u.frees == 3 && u.blocks == 1);
    memopt_ledger_destroy(l);
}

/* -- the model -- */
enum { MODEL_BLOCKS = 160, MODEL_EVENTS = 40000, MODEL_TAGS = 12, MODEL_SEGMENTS = 12 };
typedef struct model_block { int listed; memopt_tag tag; size_t bytes; void *address; const char *name; uint32_t step, layer; } model_block;
typedef struct model_segment { uintptr_t base; size_t reserved, committed; int listed; } model_segment;
typedef struct model {
    model_block blocks[MODEL_BLOCKS]; size_t count, listed, capacity;
    model_segment segments[MODEL_SEGMENTS]; size_t segment_count, segment_listed, segment_capacity, committed_peak;
    memopt_usage tags[MODEL_TAGS], total; size_t tag_count;
    uint32_t step, layer;
    memopt_ledger_event events[MODEL_EVENTS]; size_t event_count;
    uint64_t clock, last_time; size_t clock_failures;
} model;
static size_t model_total(const model *m) {
    size_t i, n = 0;
    for (i = 0; i < m->count; ++i) n += m->blocks[i].bytes;
    return n;
}
static void model_add_up(model *m) { /* everything again from the blocks that live */
    size_t i, t;
    for (t = 0; t < MODEL_TAGS; ++t) m->tags[t].now = m->tags[t].blocks = 0;
    for (i = 0; i < m->count; ++i) { m->tags[m->blocks[i].tag].now += m->blocks[i].bytes; ++m->tags[m->blocks[i].tag].blocks; }
    m->total.now = model_total(m); m->total.blocks = m->count;
    for (t = 0; t < MODEL_TAGS; ++t) m->tags[t].peak = memopt_i_max(m->tags[t].peak, m->tags[t].now);
    if (m->total.now > m->total.peak) {
        m->total.peak = m->total.at_peak = m->total.now;
        for (t = 0; t < MODEL_TAGS; ++t) m->tags[t].at_peak = m->tags[t].now;
    }
}
static const model_segment *model_inside(const model *m, uintptr_t address) {
    size_t i;
    for (i = 0; i < m->segment_count; ++i)
        if (m->segments[i].listed && address >= m->segments[i].base && address < m->segments[i].base + m->segments[i].reserved) return &m->segments[i];
    return NULL;
}
static void model_event(model *m, int kind, memopt_tag tag, size_t bytes, void *address, const char *name, int listed, int clock_fails) {
    memopt_ledger_event e;
    memset(&e, 0, sizeof e);
    if (clock_fails) ++m->clock_failures; else m->last_time = m->clock += 1000;
    e.time = m->last_time; e.address = address; e.name = name; e.bytes = bytes; e.tag = tag;
    e.step = m->step; e.layer = m->layer; e.kind = (short)kind;
    e.alone = (short)(listed && !model_inside(m, (uintptr_t)address));
    m->events[m->event_count++] = e;
}
static int model_same_usage(memopt_usage a, memopt_usage b) {
    return a.now == b.now && a.peak == b.peak && a.at_peak == b.at_peak && a.blocks == b.blocks && a.allocs == b.allocs
        && a.frees == b.frees && a.failed == b.failed && a.retried == b.retried;
}
static int model_same_event(const memopt_ledger_event *a, const memopt_ledger_event *b) {
    return a->time == b->time && a->address == b->address && a->name == b->name && a->bytes == b->bytes && a->tag == b->tag
        && a->step == b->step && a->layer == b->layer && a->kind == b->kind && a->alone == b->alone;
}
static void model_compare(const model *m, const memopt_ledger *l, size_t at) {
    memopt_footprint held = memopt_ledger_footprint(l); size_t i, k, seen = 0, reserved = 0, committed = 0, first;
    for (i = 0; i < m->tag_count; ++i) CHECK_AT(model_same_usage(memopt_ledger_usage(l, (memopt_tag)i), m->tags[i]), at);
    CHECK_AT(model_same_usage(memopt_ledger_total(l), m->total), at);
    for (i = 0; i < l->block_slots; ++i) { /* every block in the table is one of the model's, and the other way round */
        const memopt_ledger_block *b = &l->blocks[i];
        if (!b->address) continue;
        for (k = 0; k < m->count; ++k) if (m->blocks[k].listed && m->blocks[k].address == b->address) break;
        CHECK_AT(k < m->count && m->blocks[k].bytes == b->bytes && m->blocks[k].tag == b->tag && m->blocks[k].name == b->name
                 && m->blocks[k].step == b->step && m->blocks[k].layer == b->layer, at);
        CHECK_AT(memopt_i_ledger_slot(l, b->address) == i, at); /* and is found */
        ++seen;
    }
    CHECK_AT(seen == m->listed && l->block_count == m->listed, at);
    CHECK_AT(l->untracked_blocks == (m->capacity ? m->count - m->listed : 0), at);
    for (i = 0; i < m->segment_count; ++i) {
        const model_segment *s = &m->segments[i];
        reserved += s->reserved; committed += s->committed;
        for (k = 0; k < l->segment_count; ++k) if ((uintptr_t)l->segments[k].base == s->base) break;
        CHECK_AT((k < l->segment_count) == s->listed, at);
        if (s->listed) CHECK_AT(l->segments[k].reserved == s->reserved && l->segments[k].committed == s->committed, at);
    }
    CHECK_AT(held.reserved == reserved && held.committed == committed && held.segments == m->segment_count, at);
    CHECK_AT(held.committed_peak == m->committed_peak && l->segment_count == m->segment_listed, at);
    CHECK_AT(l->untracked_segments == m->segment_count - m->segment_listed && l->clock_failures == m->clock_failures,
             at);
    if (!l->event_capacity) return;
    CHECK_AT(l->event_count == m->event_count, at);
    first = m->event_count > l->event_capacity ? m->event_count - l->event_capacity : 0;
    for (i = first; i < m->event_count && i < first + 3; ++i) CHECK_AT(model_same_event(&l->events[i % l->event_capacity], &m->events[i]), at);
    for (i = m->event_count > first + 3 ? m->event_count - 3 : m->event_count; i < m->event_count; ++i)
        CHECK_AT(model_same_event(&l->events[i % l->event_capacity], &m->events[i]), at);
}
static void model_do_add(model *m, memopt_ledger *l, uint64_t *seed, int clock_fails, size_t at) {
    static const char *const names[] = { NULL, "weights", "x" };
    model_block b; size_t k;
    if (m->count == MODEL_BLOCKS) return;
    b.tag = (memopt_tag)test_below(seed, m->tag_count);
    b.bytes = test_below(seed, 8) ? test_below(seed, 1000) : 0;
    b.address = ledger_at(test_below(seed, 20) ? 16 * (1 + test_below(seed, 300)) : 0);
    b.name = names[test_below(seed, 3)];
    b.step = m->step; b.layer = m->layer;
    b.listed = m->listed < m->capacity && b.address;
    for (k = 0; k < m->count; ++k) if (m->blocks[k].listed && m->blocks[k].address == b.address) b.listed = 0;
    CHECK_AT(memopt_ledger_add(l, b.tag, b.bytes, b.address, b.name) == MEMOPT_OK, at);
    m->blocks[m->count++] = b; m->listed += (size_t)b.listed;
    ++m->tags[b.tag].allocs; ++m->total.allocs;
    model_event(m, MEMOPT_LEDGER_ALLOC, b.tag, b.bytes, b.address, b.name, b.listed, clock_fails);
}
static void model_do_remove(model *m, memopt_ledger *l, uint64_t *seed, int clock_fails, size_t at) {
    size_t i, k; model_block b;
    if (!m->count) return;
    i = test_below(seed, m->count);
    for (k = 0; k < m->count; ++k) /* of two that cannot be told apart, the listed one goes */
        if (m->blocks[k].listed && m->blocks[k].address == m->blocks[i].address && m->blocks[k].tag == m->blocks[i].tag
            && m->blocks[k].bytes == m->blocks[i].bytes) i = k;
    b = m->blocks[i];
    CHECK_AT(memopt_ledger_remove(l, b.tag, b.bytes, b.address) == MEMOPT_OK, at);
    model_event(m, MEMOPT_LEDGER_FREE, b.tag, b.bytes, b.address, b.listed ? b.name : NULL, b.listed, clock_fails);
    m->listed -= (size_t)b.listed;
    m->blocks[i] = m->blocks[--m->count];
    ++m->tags[b.tag].frees; ++m->total.frees;
}
static void model_do_segment(model *m, memopt_ledger *l, uint64_t *seed, int clock_fails, size_t at) {
    model_segment s, *p; size_t i = test_below(seed, MODEL_SEGMENTS), bytes, committed = 0;
    (void)at;
    memset(&s, 0, sizeof s);
    s.base = 400 * i + 16; s.reserved = 200 + test_below(seed, 200); /* i-th place: they do not overlap */
    for (i = 0; i < m->segment_count && m->segments[i].base != s.base; ++i) {}
    p = &m->segments[i];
    if (i == m->segment_count) {
        s.listed = m->segment_listed < m->segment_capacity; s.committed = test_below(seed, 2) ? 0 : s.reserved / 2;
        memopt_i_ledger_reserved(l, ledger_at(s.base), s.reserved, s.committed);
        m->segment_listed += (size_t)s.listed;
        *p = s; ++m->segment_count;
        if (s.listed) model_event(m, MEMOPT_LEDGER_RESERVE, 0, s.reserved, ledger_at(s.base), NULL, 0, clock_fails);
    } else if (test_below(seed, 3)) {
        bytes = test_below(seed, p->reserved + 1);
        if (bytes > p->committed) memopt_i_ledger_commit_by(l, ledger_at(p->base + p->reserved - 1), bytes - p->committed, 0);
        else memopt_i_ledger_commit_by(l, ledger_at(p->base), 0, p->committed - bytes);
        p->committed = bytes;
    } else {
        memopt_i_ledger_released(l, ledger_at(p->base), p->reserved, p->committed);
        m->segment_listed -= (size_t)p->listed;
        s = *p; *p = m->segments[--m->segment_count];
        if (s.listed) model_event(m, MEMOPT_LEDGER_RELEASE, 0, s.reserved, ledger_at(s.base), NULL, 0, clock_fails);
    }
    for (i = 0; i < m->segment_count; ++i) committed += m->segments[i].committed;
    m->committed_peak = memopt_i_max(m->committed_peak, committed);
}
static size_t model_free(const model *m) {
    size_t i, committed = 0;
    for (i = 0; i < m->segment_count; ++i) committed += m->segments[i].committed;
    return committed > model_total(m) ? committed - model_total(m) : 0;
}
static void model_do_attempt(model *m, memopt_ledger *l, uint64_t *seed, int clock_fails, size_t at) {
    const memopt_tag tag = (memopt_tag)test_below(seed, m->tag_count); const size_t bytes = test_below(seed, 5000);
    if (test_below(seed, 2)) {
        CHECK_AT(memopt_ledger_failed(l, tag, bytes) == MEMOPT_OK, at);
        ++m->tags[tag].failed; ++m->total.failed;
        model_event(m, MEMOPT_LEDGER_FAILED, tag, bytes, ledger_at(model_free(m)), NULL, 0, clock_fails);
        CHECK_AT(l->last_failed.tag == tag && l->last_failed.bytes == bytes && l->last_failed.step == m->step && l->last_failed.layer == m->layer, at);
    } else {
        CHECK_AT(memopt_ledger_retried(l, tag, bytes) == MEMOPT_OK, at);
        ++m->tags[tag].retried; ++m->total.retried;
        model_event(m, MEMOPT_LEDGER_RETRIED, tag, bytes, NULL, NULL, 0, clock_fails);
    }
}
static void model_exports(const memopt_ledger *l) { /* every format of every state: the sanitizers look on, the lengths agree */
    size_t length = 0; char text[4000];
    CHECK(memopt_ledger_report(l, text, sizeof text, &length) == MEMOPT_OK && strlen(text) == length);
    free(ledger_text(l, LEDGER_SNAPSHOT_JSON, NULL));
    free(ledger_text(l, LEDGER_SNAPSHOT_PICKLE, NULL));
    free(ledger_text(l, LEDGER_TRACE_JSON, NULL));
}
static void model_run(uint64_t seed, size_t blocks, size_t events, size_t segments, size_t operations) {
    test_faults f; memopt_host h; memopt_ledger *l; size_t at; memopt_tag tag;
    model *m = (model *)calloc(1, sizeof *m);
    memset(&f, 0, sizeof f);
    h = test_host(&f);
    l = ledger_new(blocks, events, segments, &h);
    if (!m || !l) { free(m); return; }
    m->capacity = blocks; m->segment_capacity = segments ? segments : 64; m->tag_count = 8;
    for (at = 0; at < operations && m->event_count + 2 < MODEL_EVENTS; ++at) {
        const int clock_fails = events && test_below(&seed, 16) == 0;
        const size_t what = test_below(&seed, 100), grow = (at / 300) % 2 ? 60 : 30; /* it fills, and it empties */
        f.fail_on = clock_fails ? f.calls + 1 : 0;
        if (what < grow) model_do_add(m, l, &seed, clock_fails, at);
        else if (what < 85) model_do_remove(m, l, &seed, clock_fails, at);
        else if (what < 92) model_do_segment(m, l, &seed, clock_fails, at);
        else if (what < 96) model_do_attempt(m, l, &seed, clock_fails, at);
        else if (what < 99) { m->step = (uint32_t)test_random(&seed); m->layer = (uint32_t)at; memopt_ledger_label(l, m->step, m->layer); }
        else if (m->tag_count < MODEL_TAGS) { CHECK(memopt_ledger_tag_add(l, "own", &tag) == MEMOPT_OK && tag == m->tag_count); ++m->tag_count; }
        model_add_up(m);
        model_compare(m, l, at);
        if (at % 251 == 0) model_exports(l);
    }
    memopt_ledger_destroy(l);
    CHECK(f.live_blocks == 0 && f.bad_frees == 0);
    free(m);
}
#ifdef TEST_LONG
enum { MODEL_OPERATIONS = 30000 };
#else
enum { MODEL_OPERATIONS = 3000 };
#endif
static void ledger_model(void) {
    model_run(1, 0, 0, 0, MODEL_OPERATIONS);     /* sums alone */
    model_run(2, 1000, 100, 0, MODEL_OPERATIONS); /* all blocks known */
    model_run(3, 5, 7, 3, MODEL_OPERATIONS);      /* full tables, a ring that turns */
    model_run(4, 64, 1, 1, MODEL_OPERATIONS);
    model_run(5, 128, 50000, 12, MODEL_OPERATIONS);
    model_run(6, 1, 3, 2, MODEL_OPERATIONS);
    model_run(7, 2, 0, 5, MODEL_OPERATIONS);
}
/* Blocks that want the same place of the table: taken out in every order, the others are still found. */
static void ledger_collisions(void) {
    memopt_ledger *l = ledger_new(8, 0, 0, NULL); void *same[6]; size_t home, n, i, k, order; uint64_t address;
    for (home = 0; home < l->block_slots; ++home) { /* also at the end of the table, where the search wraps around */
        for (n = 0, address = 16; n < 6; address += 16) /* three of this home, three of the next */
            if (memopt_i_ledger_hash(l, ledger_at(address)) == ((home + n / 3) & (l->block_slots - 1))) same[n++] = ledger_at(address);
        for (order = 0; order < 720; ++order) {
            size_t left[6], rest = order;
            for (i = 0; i < 6; ++i) { left[i] = i; CHECK(memopt_ledger_add(l, 1, i + 1, same[i], "n") == MEMOPT_OK); }
            for (n = 6; n > 0; --n) {
                const size_t pick = rest % n, who = left[pick];
                rest /= n;
                left[pick] = left[n - 1];
                CHECK_AT(memopt_ledger_remove(l, 1, who + 1, same[who]) == MEMOPT_OK, order);
                for (k = 0; k + 1 < n; ++k) CHECK_AT(memopt_i_ledger_find(l, 1, left[k] + 1, same[left[k]]) != NULL, order);
            }
            CHECK_AT(l->block_count == 0 && l->untracked_blocks == 0, order);
        }
    }
    for (i = 0; i < l->block_slots; ++i) CHECK(!l->blocks[i].address);
    memopt_ledger_destroy(l);
}
/* A source that stands on a block of another source: what the inner one does is booked to the inner one. */
static void ledger_nested_segments(void) {
    memopt_ledger *l = ledger_new(4, 4, 2, NULL); memopt_footprint h; char *got; const char *found;
    memopt_i_ledger_reserved(l, ledger_at(0x1000), 0x1000, 0x800);
    memopt_i_ledger_reserved(l, ledger_at(0x1000), 0x400, 0);     /* at its beginning */
    memopt_i_ledger_commit_by(l, ledger_at(0x1100), 0x100, 0);
    CHECK(l->segments[0].committed == 0x800 && l->segments[1].committed == 0x100);
    memopt_i_ledger_commit_by(l, ledger_at(0x1fff), 1, 0);
    CHECK(l->segments[0].committed == 0x801);
    CHECK(memopt_ledger_add(l, 1, 0x300, ledger_at(0x1080), NULL) == MEMOPT_OK); /* a block of each, */
    CHECK(memopt_ledger_add(l, 2, 0x70, ledger_at(0x1710), NULL) == MEMOPT_OK);  /* shown in its own alone */
    got = ledger_text(l, LEDGER_SNAPSHOT_JSON, NULL);
    found = strstr(got, "\"address\": 4224, ");
    CHECK(found && !strstr(found + 1, "\"address\": 4224, "));
    CHECK(strstr(got, "\"total_size\": 4096, \"allocated_size\": 112, ") && strstr(got, "\"total_size\": 1024, \"allocated_size\": 768, "));
    free(got);
    memopt_i_ledger_reserved(l, ledger_at(0x1500), 0x100, 0x100); /* no place in the table; it lies in the first */
    CHECK(l->untracked_segments == 1 && l->segments[0].committed == 0x901);
    memopt_i_ledger_released(l, ledger_at(0x1500), 0x100, 0x100); /* its bytes were booked to the first */
    memopt_i_ledger_released(l, ledger_at(0x1000), 0x400, 0x100);
    h = memopt_ledger_footprint(l);
    CHECK(l->segment_count == 1 && l->segments[0].reserved == 0x1000 && l->untracked_segments == 0);
    CHECK(h.segments == 1 && h.reserved == 0x1000 && h.committed == 0x801 && h.committed_peak == 0xa01);
    CHECK(l->segments[0].committed == 0x801);
    memopt_i_ledger_released(l, ledger_at(0x1000), 0x1000, 0x801);
    h = memopt_ledger_footprint(l);
    CHECK(l->segment_count == 0 && h.segments == 0 && h.reserved == 0 && h.committed == 0);
    memopt_ledger_destroy(l);
}

/* -- texts -- */
static void ledger_sizes(void) {
    static const struct { size_t bytes; const char *text; } cases[] = {
        { 0, "0 B" }, { 1, "1 B" }, { 1023, "1023 B" }, { 1024, "1.0 KiB" }, { 1126, "1.0 KiB" }, { 1127, "1.1 KiB" },
        { 1535, "1.4 KiB" }, { 1536, "1.5 KiB" }, { 1048575, "1023.9 KiB" }, { 1048576, "1.0 MiB" }, { 1073741823, "1023.9 MiB" },
        { 1073741824, "1.0 GiB" }, { 3221225472u, "3.0 GiB" }, { 4294967295u, "3.9 GiB" },
#if SIZE_MAX > 0xffffffff
        { 1099511627775, "1023.9 GiB" }, { 1099511627776, "1.0 TiB" }, { 1234567890123456, "1.0 PiB" },
        { SIZE_MAX / 2 + 1, "8.0 EiB" }, { SIZE_MAX, "15.9 EiB" },
#endif
    };
    static const struct { uint64_t n; size_t width; const char *text; } numbers[] = {
        { 0, 1, "0" }, { 0, 3, "  0" }, { 9, 3, "  9" }, { 10, 3, " 10" }, { 99, 3, " 99" }, { 100, 3, "100" }, { 1000, 3, "1000" }, { 7, 0, "7" },
        { UINT64_C(999999999999999999), 20, "  999999999999999999" }, { UINT64_C(1000000000000000000), 20, " 1000000000000000000" },
        { UINT64_C(9999999999999999999), 20, " 9999999999999999999" }, { UINT64_C(10000000000000000000), 20, "10000000000000000000" },
        { UINT64_MAX, 22, "  18446744073709551615" }
    };
    size_t i; char text[64]; memopt_i_writer o;
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        memset(text, 0, sizeof text);
        o = memopt_i_writer_begin(text, sizeof text);
        memopt_i_put_bytes(&o, cases[i].bytes);
        CHECK_AT(strcmp(text, cases[i].text) == 0 && o.length == strlen(text), i);
        memset(text, 0, sizeof text);
        o = memopt_i_writer_begin(text, sizeof text);
        memopt_i_put_right_bytes(&o, cases[i].bytes, 12);
        CHECK_AT(strlen(text) == 12 && strcmp(text + 12 - strlen(cases[i].text), cases[i].text) == 0 && text[0] == ' ', i);
    }
    for (i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
        memset(text, 0, sizeof text);
        o = memopt_i_writer_begin(text, sizeof text);
        memopt_i_put_right_number(&o, numbers[i].n, numbers[i].width);
        CHECK_AT(strcmp(text, numbers[i].text) == 0, i);
    }
}
#define LEDGER_HEADING "memory                   now        peak at the peak  share at the peak      blocks     allocs  failed\n"
static void ledger_report(void) {
    memopt_ledger *l = ledger_new(0, 0, 0, NULL); memopt_tag own = 0;
    ledger_report_is(l, LEDGER_HEADING
        "total           " "         0 B" "         0 B" "         0 B" "  ...................." "        0" "          0" "       0" "\n", __LINE__);
    CHECK(memopt_ledger_tag_add(l, "my tag", &own) == MEMOPT_OK);
    memopt_ledger_label(l, 3, 7);
    memopt_ledger_add(l, MEMOPT_TAG_PARAMETERS, 1572864, NULL, NULL);
    memopt_ledger_add(l, MEMOPT_TAG_ACTIVATIONS, 524288, NULL, NULL);
    memopt_ledger_remove(l, MEMOPT_TAG_ACTIVATIONS, 524288, NULL);
    memopt_ledger_add(l, MEMOPT_TAG_OTHER, 100, NULL, NULL);
    memopt_ledger_failed(l, MEMOPT_TAG_GRADIENTS, 5242880);
    memopt_ledger_label(l, 4, 8);
    memopt_ledger_retried(l, MEMOPT_TAG_OPTIMIZER, 10);
    memopt_ledger_add(l, own, 1024, NULL, NULL);
    ledger_report_is(l, LEDGER_HEADING
        "parameters      " "     1.5 MiB" "     1.5 MiB" "     1.5 MiB" "  ###############....." "        1" "          1" "       0" "\n"
        "gradients       " "         0 B" "         0 B" "         0 B" "  ...................." "        0" "          0" "       1" "\n"
        "optimizer       " "         0 B" "         0 B" "         0 B" "  ...................." "        0" "          0" "       0" "\n"
        "activations     " "         0 B" "   512.0 KiB" "   512.0 KiB" "  #####..............." "        0" "          1" "       0" "\n"
        "my tag          " "     1.0 KiB" "     1.0 KiB" "         0 B" "  ...................." "        1" "          1" "       0" "\n"
        "other           " "       100 B" "       100 B" "         0 B" "  ...................." "        1" "          1" "       0" "\n"
        "total           " "     1.5 MiB" "     2.0 MiB" "     2.0 MiB" "  ####################" "        3" "          4" "       1" "\n"
        "failed attempts: 1, the last for 5.0 MiB of gradients at step 3, layer 7\n"
        "served by a fallback: 1\n", __LINE__);
    memopt_ledger_destroy(l);
}
static void ledger_report_left_out(void) { /* full tables, sources, a clock that fails: the table says so */
    test_faults f; memopt_host h; memopt_ledger *l;
    memset(&f, 0, sizeof f);
    h = test_host(&f);
    l = ledger_new(1, 1, 1, &h);
    f.fail_from = f.calls + 1;
    memopt_i_ledger_reserved(l, ledger_at(0x10000), 0x10000, 0x1000); /* event 1 */
    memopt_i_ledger_reserved(l, ledger_at(0x40000), 0x10000, 0x8000);
    memopt_i_ledger_commit_by(l, ledger_at(0x10000), 0, 0x800);
    memopt_ledger_add(l, MEMOPT_TAG_SCRATCH, 32, ledger_at(0x10000), NULL); /* 2 */
    memopt_ledger_add(l, MEMOPT_TAG_SCRATCH, 32, ledger_at(0x20000), NULL); /* 3 */
    memopt_ledger_add(l, MEMOPT_TAG_SCRATCH, 32, ledger_at(0x30000), NULL); /* 4 */
    ledger_report_is(l, LEDGER_HEADING
        "scratch         " "        96 B" "        96 B" "        96 B" "  ####################" "        3" "          3" "       0" "\n"
        "total           " "        96 B" "        96 B" "        96 B" "  ####################" "        3" "          3" "       0" "\n"
        "held by sources: reserved 128.0 KiB, committed 34.0 KiB, at most 36.0 KiB\n"
        "not listed one by one, only in the sums: 2 blocks, 1 reservations\n"
        "events with a repeated timestamp (the clock failed): 4\n", __LINE__);
    memopt_ledger_destroy(l);
    CHECK(f.live_blocks == 0);
}
static void ledger_long_name(void) { /* a name wider than its column moves the rest, and loses nothing */
    memopt_ledger *l = ledger_new(0, 0, 0, NULL); memopt_tag own = 0;
    CHECK(memopt_ledger_tag_add(l, "0123456789abcdef0123456789abcdefXYZ", &own) == MEMOPT_OK);
    memopt_ledger_add(l, own, 3, NULL, NULL);
    memopt_ledger_add(l, MEMOPT_TAG_OTHER, 1, NULL, NULL);
    ledger_report_is(l, LEDGER_HEADING
        "0123456789abcdef0123456789abcde" "         3 B" "         3 B" "         3 B" "  ###############....." "        1" "          1" "       0" "\n"
        "other           " "         1 B" "         1 B" "         1 B" "  #####..............." "        1" "          1" "       0" "\n"
        "total           " "         4 B" "         4 B" "         4 B" "  ####################" "        2" "          2" "       0" "\n", __LINE__);
    memopt_ledger_destroy(l);
}
static memopt_error ledger_error(memopt_status status, const char *reason, size_t asked, size_t free_bytes, size_t largest) {
    memopt_error e = memopt_i_error(status, reason);
    if (asked) e.got = memopt_i_count(asked);
    e.free_bytes = free_bytes; e.limit = memopt_i_count(largest);
    return e;
}
static void ledger_explained(const memopt_ledger *l, memopt_error e, const char *want, int line) {
    char text[400]; size_t n = 0, capacity; const size_t length = strlen(want);
    CHECK_AT(memopt_ledger_explain(l, &e, text, sizeof text, &n) == MEMOPT_OK && n == length, line);
    ledger_same_text(text, want, line);
    for (capacity = 0; capacity <= length + 1; ++capacity) { /* and at every size of the buffer */
        memset(text, 77, sizeof text);
        n = 0;
        CHECK_AT(memopt_ledger_explain(l, &e, capacity ? text : NULL, capacity, &n) == (capacity > length ? MEMOPT_OK : MEMOPT_ERR_BUFFER), capacity);
        CHECK_AT(n == length && text[capacity] == 77, capacity);
        if (capacity) CHECK_AT(strlen(text) == capacity - 1 && strncmp(text, want, capacity - 1) == 0, capacity);
    }
}
static void ledger_explain(void) {
    memopt_ledger *l = ledger_new(0, 0, 0, NULL); memopt_error e; char byte = 77;
    e = ledger_error(MEMOPT_ERR_MEMORY, "the heap is full", 3145728, 4194304, 1048576);
    ledger_explained(NULL, e, "the heap is full: asked 3.0 MiB, free 4.0 MiB, largest piece 1.0 MiB, fragmentation 75%", __LINE__);
    ledger_explained(l, e, "the heap is full: asked 3.0 MiB, free 4.0 MiB, largest piece 1.0 MiB, fragmentation 75%", __LINE__);
    memopt_ledger_add(l, MEMOPT_TAG_ACTIVATIONS, 2048, NULL, NULL);
    ledger_explained(l, e, "the heap is full: asked 3.0 MiB, free 4.0 MiB, largest piece 1.0 MiB, fragmentation 75%; held by activations 2.0 KiB", __LINE__);
    memopt_ledger_add(l, MEMOPT_TAG_PARAMETERS, 4096, NULL, NULL);
    memopt_ledger_add(l, MEMOPT_TAG_OTHER, 1, NULL, NULL);
    memopt_ledger_add(l, MEMOPT_TAG_COMMUNICATION, 3072, NULL, NULL);
    memopt_ledger_add(l, MEMOPT_TAG_SCRATCH, 0, NULL, NULL);
    e = ledger_error(MEMOPT_ERR_MEMORY, NULL, 0, 0, 0);
    ledger_explained(l, e, "out of memory, free 0 B, largest piece 0 B, fragmentation 0%; "
        "held by parameters 4.0 KiB, communication 3.0 KiB, activations 2.0 KiB", __LINE__);
    ledger_explained(l, ledger_error(MEMOPT_ERR_ARGUMENT, "zero bytes", 0, 5, 5),
        "zero bytes; held by parameters 4.0 KiB, communication 3.0 KiB, activations 2.0 KiB", __LINE__);
    ledger_explained(NULL, ledger_error(MEMOPT_ERR_OVERFLOW, NULL, SIZE_MAX, 0, 0),
        sizeof(size_t) == 8 ? "a size does not fit size_t: asked 15.9 EiB" : "a size does not fit size_t: asked 3.9 GiB", __LINE__);
    ledger_explained(NULL, ledger_error(MEMOPT_OK, NULL, 0, 0, 0), "no error", __LINE__);
    ledger_explained(NULL, ledger_error(MEMOPT_ERR_MEMORY, "full", 9, 3, 1), "full: asked 9 B, free 3 B, largest piece 1 B, fragmentation 66%", __LINE__);
    ledger_explained(NULL, ledger_error(MEMOPT_ERR_MEMORY, "full", 9, 7, 7), "full: asked 9 B, free 7 B, largest piece 7 B, fragmentation 0%", __LINE__);
    ledger_explained(NULL, ledger_error(MEMOPT_ERR_MEMORY, "full", 9, 7, 0), "full: asked 9 B, free 7 B, largest piece 0 B, fragmentation 100%", __LINE__);
    ledger_explained(NULL, ledger_error(MEMOPT_ERR_MEMORY, "odd", 9, 1, 1024), "odd: asked 9 B, free 1 B, largest piece 1.0 KiB, fragmentation 0%", __LINE__);
    CHECK(memopt_ledger_explain(l, NULL, &byte, 1, NULL) == MEMOPT_ERR_ARGUMENT && byte == 77);
    CHECK(memopt_ledger_explain(l, &e, NULL, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_ledger_explain(l, &e, &byte, 1, NULL) == MEMOPT_ERR_BUFFER && byte == 0);
    memopt_ledger_destroy(l);
}

/* -- the exports of one small ledger, written down by hand -- */
static memopt_ledger *ledger_small(test_faults *f, memopt_host *h) {
    memopt_ledger *l;
    memset(f, 0, sizeof *f);
    *h = test_host(f);
    l = ledger_new(4, 16, 0, h);
    memopt_i_ledger_reserved(l, ledger_at(4096), 256, 128);                     /* 1 us */
    memopt_ledger_label(l, 2, 5);
    memopt_ledger_add(l, MEMOPT_TAG_GRADIENTS, 64, ledger_at(4096 + 64), "g\"\\\n\x7f\xc3\xa9~"); /* 2 us */
    memopt_ledger_add(l, MEMOPT_TAG_SCRATCH, 32, ledger_at(0x90000000u), NULL); /* 3 us: in no segment, more than 31 bits */
    memopt_ledger_remove(l, MEMOPT_TAG_SCRATCH, 32, ledger_at(0x90000000u));    /* 4 us */
    memopt_ledger_failed(l, MEMOPT_TAG_OTHER, 999);                             /* 5 us */
    memopt_ledger_retried(l, MEMOPT_TAG_OTHER, 999);                            /* 6 us */
    memopt_i_ledger_commit_by(l, ledger_at(4096 + 128), 128, 0);                   /* too late for the one that failed */
    return l;
}
#define LEDGER_FRAMES(name, tag, number) "\"frames\": [{\"filename\": \"step 2\", \"line\": 5, \"name\": \"" name "\"}, " \
    "{\"filename\": \"memopt\", \"line\": " number ", \"name\": \"" tag "\"}]"
#define LEDGER_EVENT(action, addr, size, us, more, frames) "{\"action\": \"" action "\", \"addr\": " addr ", \"size\": " size \
    ", \"stream\": 0, \"time_us\": " us more ", \"pool_id\": [0, 0], " frames "}"
/* Every start of up to four bytes, by the definition: the number that the bits make is at least what needs so many bytes,
   is no surrogate, and ends at U+10FFFF. */
static size_t ledger_utf8_defined(const unsigned char *t) {
    static const uint32_t least[] = { 0, 0x20, 0x80, 0x800, 0x10000 };
    size_t bytes = 0, i;
    uint32_t c;

    if (t[0] < 0x80) bytes = 1;
    else if ((t[0] & 0xE0) == 0xC0) bytes = 2;
    else if ((t[0] & 0xF0) == 0xE0) bytes = 3;
    else if ((t[0] & 0xF8) == 0xF0) bytes = 4;
    else return 0;
    c = bytes == 1 ? t[0] : t[0] & (0x7Fu >> bytes);
    for (i = 1; i < bytes; ++i) {
        if (t[i] >> 6 != 2) return 0;
        c = c << 6 | (t[i] & 0x3F);
    }
    return c >= least[bytes] && c != 0x7F && !(c >= 0xD800 && c < 0xE000) && c <= 0x10FFFF ? bytes : 0;
}

static void ledger_characters(void) {
    static const unsigned char others[] = { 0, 1, 0x1F, ' ', '"', '~', 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xE1, 0xFF };
    unsigned char t[5] = { 0 };
    unsigned first, i, k, m;

    for (first = 0; first < 256; ++first)
        for (i = 0; i < 256; ++i)
            for (k = 0; k < sizeof others; ++k)
                for (m = 0; m < sizeof others; ++m) {
                    t[0] = (unsigned char)first; t[1] = (unsigned char)i; t[2] = others[k]; t[3] = others[m];
                    CHECK_AT(memopt_i_utf8((const char *)t) == ledger_utf8_defined(t), first << 24 | i << 16 | k << 8 | m);
                    CHECK_AT(ledger_utf8((const char *)t) == ledger_utf8_defined(t), first << 24 | i << 16 | k << 8 | m);
                }
}

static void ledger_snapshot_json(void) {
    test_faults f; memopt_host h; memopt_ledger *l = ledger_small(&f, &h);
    ledger_export_is(l, LEDGER_SNAPSHOT_JSON,
        "{\"segments\": [{\"device\": 0, \"address\": 4096, \"total_size\": 256, \"allocated_size\": 64, \"active_size\": 64, "
        "\"requested_size\": 64, \"stream\": 0, \"segment_type\": \"large\", \"segment_pool_id\": [0, 0], \"frames\": [], \"blocks\": ["
        "{\"address\": 4096, \"size\": 64, \"requested_size\": 0, \"state\": \"inactive\", \"frames\": []}, "
        "{\"address\": 4160, \"size\": 64, \"requested_size\": 64, \"state\": \"active_allocated\", "
        LEDGER_FRAMES("g\\\"\\\\?" "?" "\xc3\xa9" "~", "gradients", "2") "}, "
        "{\"address\": 4224, \"size\": 128, \"requested_size\": 0, \"state\": \"inactive\", \"frames\": []}]}], "
        "\"device_traces\": [["
        LEDGER_EVENT("segment_alloc", "4096", "256", "1", "", "\"frames\": [{\"filename\": \"step 0\", \"line\": 0, \"name\": \"other\"}, "
                     "{\"filename\": \"memopt\", \"line\": 0, \"name\": \"other\"}]") ", "
        LEDGER_EVENT("alloc", "4160", "64", "2", "", LEDGER_FRAMES("g\\\"\\\\?" "?" "\xc3\xa9" "~", "gradients", "2")) ", "
        LEDGER_EVENT("segment_alloc", "2415919104", "32", "3", "", LEDGER_FRAMES("scratch", "scratch", "6")) ", "
        LEDGER_EVENT("alloc", "2415919104", "32", "3", "", LEDGER_FRAMES("scratch", "scratch", "6")) ", "
        LEDGER_EVENT("free_requested", "2415919104", "32", "4", "", LEDGER_FRAMES("scratch", "scratch", "6")) ", "
        LEDGER_EVENT("free_completed", "2415919104", "32", "4", "", LEDGER_FRAMES("scratch", "scratch", "6")) ", "
        LEDGER_EVENT("segment_free", "2415919104", "32", "4", "", LEDGER_FRAMES("scratch", "scratch", "6")) ", "
        LEDGER_EVENT("oom", "0", "999", "5", ", \"device_free\": 64", LEDGER_FRAMES("other", "other", "0"))
        "]]}", __LINE__);
    memopt_ledger_destroy(l);
}
static void ledger_snapshot_pickle(void) { /* of an empty ledger, byte for byte; the rest is for Python to read */
    static const char want[] = "\x80\x02}(X\x08\x00\x00\x00segments](eX\x0d\x00\x00\x00" "device_traces](](eeu.";
    memopt_ledger *l = ledger_new(0, 0, 0, NULL); size_t length = 0; char *got = ledger_text(l, LEDGER_SNAPSHOT_PICKLE, &length);
    CHECK(length == sizeof want - 1 && memcmp(got, want, length) == 0);
    free(got);
    ledger_export_is(l, LEDGER_SNAPSHOT_JSON, "{\"segments\": [], \"device_traces\": [[]]}", __LINE__);
    ledger_export_is(l, LEDGER_TRACE_JSON, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": []}", __LINE__);
    memopt_ledger_destroy(l);
}
static void ledger_pickle_numbers(void) { /* as long as they must be: a sign bit, and no byte more */
    static const struct { uint64_t n; size_t length; const char *bytes; } cases[] = {
        { 0, 5, "J\0\0\0\0" }, { 1, 5, "J\1\0\0\0" }, { 0x7fffffff, 5, "J\xff\xff\xff\x7f" },
        { 0x80000000u, 7, "\x8a\5\0\0\0\x80\0" }, { 0xffffffffu, 7, "\x8a\5\xff\xff\xff\xff\0" },
        { UINT64_C(0x7fffffffff), 7, "\x8a\5\xff\xff\xff\xff\x7f" }, { UINT64_C(0x8000000000), 8, "\x8a\6\0\0\0\0\x80\0" },
        { UINT64_C(0x7f1122334455), 8, "\x8a\6\x55\x44\x33\x22\x11\x7f" },
        { UINT64_C(0x7fffffffffffffff), 10, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f" },
        { UINT64_C(0x8000000000000000), 11, "\x8a\x09\0\0\0\0\0\0\0\x80\0" }, { UINT64_MAX, 11, "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0" }
    };
    size_t i, length; char bytes[32]; ledger_document d;
    memset(&d, 0, sizeof d);
    d.pickle = 1;
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        d.file = tmpfile();
        if (!d.file) exit(1);
        ledger_number(&d, cases[i].n);
        rewind(d.file);
        length = fread(bytes, 1, sizeof bytes, d.file);
        CHECK_AT(length == cases[i].length && memcmp(bytes, cases[i].bytes, length) == 0, i);
        fclose(d.file);
    }
}
#define LEDGER_COUNT(name, ts, bytes) "{\"name\": \"" name "\", \"ph\": \"C\", \"pid\": 0, \"tid\": 0, \"ts\": " ts ", \"args\": {\"bytes\": " bytes "}}"
#define LEDGER_INSTANT(name, ts, key, n) "{\"name\": \"" name "\", \"ph\": \"i\", \"s\": \"g\", \"pid\": 0, \"tid\": 0, \"ts\": " ts ", \"args\": {\"" key "\": " n "}}"
static void ledger_trace_json(void) {
    test_faults f; memopt_host h; memopt_ledger *l = ledger_small(&f, &h);
    memopt_ledger_add(l, MEMOPT_TAG_GRADIENTS, 6, NULL, NULL); /* 7 us */
    ledger_export_is(l, LEDGER_TRACE_JSON, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": ["
        LEDGER_COUNT("gradients", "1", "0") ", " LEDGER_COUNT("gradients", "2", "64") ", " LEDGER_COUNT("gradients", "7", "70") ", "
        LEDGER_COUNT("scratch", "1", "0") ", " LEDGER_COUNT("scratch", "3", "32") ", " LEDGER_COUNT("scratch", "4", "0") ", "
        LEDGER_INSTANT("step", "1", "step", "0") ", " LEDGER_INSTANT("step", "2", "step", "2") ", "
        LEDGER_INSTANT("out of memory", "5", "bytes", "999") ", " LEDGER_INSTANT("retried", "6", "bytes", "999")
        "]}", __LINE__);
    memopt_ledger_destroy(l);
    memset(&f, 0, sizeof f);
    l = ledger_new(0, 2, 0, &h); /* the ring has lost the beginning: the sums begin where they were */
    memopt_ledger_add(l, 1, 100, NULL, NULL); memopt_ledger_add(l, 2, 7, NULL, NULL); memopt_ledger_add(l, 1, 10, NULL, NULL);
    memopt_ledger_remove(l, 1, 100, NULL);
    ledger_export_is(l, LEDGER_TRACE_JSON, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": ["
        LEDGER_COUNT("parameters", "3", "100") ", " LEDGER_COUNT("parameters", "3", "110") ", " LEDGER_COUNT("parameters", "4", "10") ", "
        LEDGER_COUNT("gradients", "3", "7") ", " LEDGER_INSTANT("step", "3", "step", "0") "]}", __LINE__);
    memopt_ledger_destroy(l);
}
/* Blocks that overlap, or hang over the end: a segment is tiled all the same, and never more than full. */
static void ledger_overlaps(void) {
    memopt_ledger *l = ledger_new(8, 0, 0, NULL); char *got;
    memopt_i_ledger_reserved(l, ledger_at(4096), 100, 0);
    memopt_ledger_add(l, 1, 50, ledger_at(4106), NULL);
    memopt_ledger_add(l, 1, 10, ledger_at(4116), NULL);        /* inside the one before */
    memopt_ledger_add(l, 1, 20, ledger_at(4156), NULL);
    memopt_ledger_add(l, 1, 30, ledger_at(4180), NULL);        /* over the end */
    memopt_ledger_add(l, 1, SIZE_MAX / 2, ledger_at(4190), NULL);
    got = ledger_text(l, LEDGER_SNAPSHOT_JSON, NULL);
    CHECK(strstr(got, "\"total_size\": 100, \"allocated_size\": 70, ") != NULL);
    CHECK(strstr(got, "{\"address\": 4096, \"size\": 10, ") && strstr(got, "{\"address\": 4106, \"size\": 50, "));
    CHECK(strstr(got, "{\"address\": 4156, \"size\": 20, ") && strstr(got, "{\"address\": 4176, \"size\": 20, "));
    CHECK(!strstr(got, "\"address\": 4116") && !strstr(got, "\"address\": 4180") && !strstr(got, "\"address\": 4190"));
    free(got);
    memopt_ledger_destroy(l);
}
/* Every capacity of the report: the buffer holds the beginning, the length is the whole, the next byte is untouched. */
static void ledger_buffers(void) {
    test_faults f; memopt_host h; memopt_ledger *l = ledger_small(&f, &h); size_t capacity, length = 0, n, held;
    char whole[2000], part[2000];
    CHECK(memopt_ledger_report(l, whole, sizeof whole, &length) == MEMOPT_OK && whole[length] == 0);
    for (capacity = 0; capacity < length + 5; ++capacity) {
        memset(part, 77, sizeof part);
        n = 0;
        CHECK_AT(memopt_ledger_report(l, part, capacity, &n) == (capacity < length + 1 ? MEMOPT_ERR_BUFFER : MEMOPT_OK), capacity);
        held = capacity < length + 1 ? (capacity ? capacity - 1 : 0) : length;
        CHECK_AT(n == length && memcmp(part, whole, held) == 0, capacity);
        if (capacity) CHECK_AT(part[held] == 0, capacity);
        CHECK_AT(part[capacity ? held + 1 : 0] == 77, capacity);
    }
    CHECK(memopt_ledger_report(l, part, length + 1, NULL) == MEMOPT_OK);
    CHECK(memopt_ledger_report(l, NULL, 1, &n) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_ledger_report(l, NULL, 0, NULL) == MEMOPT_ERR_BUFFER);
    memopt_ledger_destroy(l);
}
static void ledger_export_refused(void) {
    memopt_ledger *l = ledger_new(1, 1, 0, NULL); FILE *file = fopen("memopt.h", "rb");
    if (!file) file = fopen("../memopt.h", "rb");
    CHECK(ledger_export(l, LEDGER_TRACE_JSON, NULL) == MEMOPT_ERR_ARGUMENT);
    if (file) {
        CHECK(ledger_export(NULL, LEDGER_TRACE_JSON, file) == MEMOPT_ERR_ARGUMENT);
#ifndef __cplusplus
        CHECK(ledger_export(l, (ledger_format)77, file) == MEMOPT_ERR_ARGUMENT && !ferror(file));
#endif
        CHECK(ledger_export(l, LEDGER_TRACE_JSON, file) == MEMOPT_ERR_IO); /* opened for reading */
        fclose(file);
    }
    memopt_ledger_destroy(l);
}
static void ledger_sorted(void) { /* blocks, many and few, stand by their address, each once */
    uint64_t seed = 9; size_t count, i;
    for (count = 0; count <= 300; count = count < 20 ? count + 1 : count + 70) {
        static const char begin[] = "\"total_size\": 1, "; unsigned long long before = 0, address;
        memopt_ledger *l = ledger_new(count ? count : 1, 0, 0, NULL); char *text, *at;
        for (i = 0; i < count; ++i) memopt_ledger_add(l, 0, 1, ledger_at(test_random(&seed) >> 20), NULL);
        text = ledger_text(l, LEDGER_SNAPSHOT_JSON, NULL);
        for (i = 0, at = text; (at = strstr(at, begin)) != NULL; ++i) {
            while (*--at != '{') {}
            CHECK_AT(sscanf(at, "{\"device\": 0, \"address\": %llu", &address) == 1 && address > before, count);
            before = address;
            at = strstr(at, begin) + 1;
        }
        CHECK_AT(i == count && l->block_count == count, count);
        free(text);
        memopt_ledger_destroy(l);
    }
}
#define LEDGER_SAYS(change, want, text) REFUSES(d.error, (memset(&d, 0, sizeof d), change), memopt_ledger_create(&d, to), \
    MEMOPT_ERR_##want, "ledger: " text)
static void ledger_errors(void) {
    memopt_ledger *l = NULL, **to = &l;
    memopt_ledger_desc d;
    memopt_host h;
    test_faults f;
    char text[96];

    memset(&f, 0, sizeof f);
    memset(&h, 0, sizeof h);
    memset(&d, 0, sizeof d);
    ACCEPTS(d.error, d.tag_capacity = 8, memopt_ledger_create(&d, to));
    memopt_ledger_destroy(l);
    l = NULL;
    h.allocator.alloc_fn = test_alloc;
    LEDGER_SAYS(d.tag_capacity = 7, ARGUMENT, "tag_capacity 7, at least 8");
    LEDGER_SAYS(d.tag_capacity = 4097, ARGUMENT, "tag_capacity 4097, at most 4096");
    LEDGER_SAYS(d.event_capacity = SIZE_MAX, OVERFLOW, "its tables do not fit size_t");
    LEDGER_SAYS(d.block_capacity = UINT32_MAX / 4, OVERFLOW, "block_capacity 1073741823, below 1073741823");
    LEDGER_SAYS(d.host = &h, ARGUMENT, "host.allocator is half a table");
    LEDGER_SAYS(to = NULL, ARGUMENT, "out is NULL");
    to = &l;
    h = test_host(&f);
    f.fail_from = 1;
    d.host = &h;
    d.event_capacity = SIZE_MAX / 4096;
    test_why_reset();
    d.error = &test_why;
    CHECK(memopt_ledger_create(&d, to) == MEMOPT_ERR_MEMORY && test_why.status == MEMOPT_ERR_MEMORY);
    CHECK(memopt_error_text(&test_why, text, sizeof text, NULL) == MEMOPT_OK);
    CHECK(strncmp(text, "ledger: no memory for it: asked ", 32) == 0 && test_why.got.count > d.event_capacity);
    CHECK(l == NULL);
}
static void test_ledger(void) {
    RUN(ledger_create);
    RUN(ledger_tags);
    RUN(ledger_null);
    RUN(ledger_bad_calls);
    RUN(ledger_peak);
    RUN(ledger_model);
    RUN(ledger_collisions);
    RUN(ledger_nested_segments);
    RUN(ledger_sizes);
    RUN(ledger_report);
    RUN(ledger_report_left_out);
    RUN(ledger_long_name);
    RUN(ledger_explain);
    RUN(ledger_characters);
    RUN(ledger_snapshot_json);
    RUN(ledger_snapshot_pickle);
    RUN(ledger_pickle_numbers);
    RUN(ledger_trace_json);
    RUN(ledger_overlaps);
    RUN(ledger_buffers);
    RUN(ledger_export_refused);
    RUN(ledger_sorted);
    RUN(ledger_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_ledger(); return test_totals(); }
#endif
