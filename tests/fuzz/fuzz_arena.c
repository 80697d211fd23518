/* fuzz_arena.c - a program of pushes, marks, rewinds and trims made of the fuzzer's bytes, on memory that is committed in
   small granules, some of which fail. Every live byte keeps its value, no two blocks meet, the books are right. */
#define MEMOPT_DEBUG 2
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_BYTES   16384
#define FUZZ_GRANULE 1024
#define FUZZ_BLOCKS  128
static unsigned char fuzz_room[FUZZ_BYTES + 4096];
static unsigned char *fuzz_memory;
static unsigned char fuzz_there[FUZZ_BYTES / FUZZ_GRANULE];
static int fuzz_failing; /* the next call to the source says no */
static void fuzz_must(int x) { if (!x) abort(); }
static memopt_status fuzz_reserve(memopt_source *s, size_t bytes, void **base) {
    (void)s;
    fuzz_must(bytes <= FUZZ_BYTES);
    *base = fuzz_memory;
    return MEMOPT_OK;
}
static void fuzz_release(memopt_source *s, void *base, size_t bytes) { (void)s; (void)base; (void)bytes; memset(fuzz_there, 0, sizeof fuzz_there); }
static memopt_status fuzz_set(void *start, size_t bytes, int there) {
    const size_t offset = (size_t)((unsigned char *)start - fuzz_memory); size_t i;
    fuzz_must(bytes && offset % FUZZ_GRANULE == 0 && bytes % FUZZ_GRANULE == 0 && offset + bytes <= FUZZ_BYTES);
    if (fuzz_failing) { fuzz_failing = 0; return MEMOPT_ERR_MEMORY; }
    for (i = offset / FUZZ_GRANULE; i < (offset + bytes) / FUZZ_GRANULE; ++i) {
        fuzz_must(fuzz_there[i] != there);
        fuzz_there[i] = (unsigned char)there;
    }
    memset(start, there ? 0 : 0x5A, bytes);
    return MEMOPT_OK;
}
static memopt_status fuzz_commit(memopt_source *s, void *start, size_t bytes) { (void)s; return fuzz_set(start, bytes, 1); }
static memopt_status fuzz_decommit(memopt_source *s, void *start, size_t bytes) { (void)s; return fuzz_set(start, bytes, 0); }

typedef struct fuzz_block { unsigned char *p; size_t bytes, used; unsigned char value; } fuzz_block;
typedef struct fuzz_state { memopt_arena *a; memopt_ledger *l; fuzz_block blocks[2][FUZZ_BLOCKS]; size_t count[2]; memopt_mark marks[16]; } fuzz_state;

static void fuzz_verify(const fuzz_state *f) {
    const memopt_arena_stats st = memopt_arena_get_stats(f->a); size_t i, k; int top;
    for (top = 0; top < 2; ++top)
        for (i = 0; i < f->count[top]; ++i)
            for (k = 0; k < f->blocks[top][i].bytes; ++k) fuzz_must(f->blocks[top][i].p[k] == f->blocks[top][i].value);
    fuzz_must(st.used_low == (f->count[0] ? f->blocks[0][f->count[0] - 1].used : 0));
    fuzz_must(st.used_top == (f->count[1] ? f->blocks[1][f->count[1] - 1].used : 0));
    fuzz_must(st.used_low + st.used_top + st.free_bytes == st.capacity && st.peak <= st.capacity && st.peak >= st.used_low + st.used_top);
    for (i = k = 0; i < sizeof fuzz_there; ++i) k += fuzz_there[i];
    fuzz_must(st.committed == k * FUZZ_GRANULE);
    fuzz_must(memopt_ledger_total(f->l).now == st.used_low + st.used_top && memopt_ledger_footprint(f->l).committed == st.committed);
    fuzz_must(memopt_arena_check(f->a) == MEMOPT_OK);
}
static void fuzz_push(fuzz_state *f, const uint8_t *d) { /* four bytes say how */
    memopt_push_options o; unsigned char *p; size_t i; const size_t bytes = (size_t)d[1] * (d[2] & 64 ? 64 : 3);
    const int top = d[2] & 1;
    fuzz_block *b;
    if (f->count[top] == FUZZ_BLOCKS) return;
    memset(&o, 0, sizeof o);
    o.top = top; o.zero = d[2] >> 1 & 1; o.tag = d[2] >> 2 & 15; /* half of the tags do not exist */
    o.alignment = d[3] & 128 ? 0 : (size_t)(d[3] & 64 ? d[3] & 63 : 1 << (d[3] & 15));
    p = (unsigned char *)memopt_arena_push_with(f->a, bytes, &o);
    if (!p) { /* where an argument is named, it is the argument that was got */
        const memopt_error e = memopt_arena_error(f->a);

        fuzz_must(e.status != MEMOPT_OK && e.reason && (e.argument || e.got.count == bytes));
        return;
    }
    fuzz_must(bytes && o.tag < 8 && (uintptr_t)p % (o.alignment ? o.alignment : 64) == 0);
    for (i = 0; o.zero && i < bytes; ++i) fuzz_must(p[i] == 0);
    b = &f->blocks[top][f->count[top]++];
    b->p = p; b->bytes = bytes; b->value = (unsigned char)(d[1] ^ f->count[top]);
    b->used = top ? memopt_arena_get_stats(f->a).used_top : memopt_arena_get_stats(f->a).used_low;
    memset(p, b->value, bytes);
}
static void fuzz_rewind(fuzz_state *f, memopt_mark m) {
    const int top = m.top;
    if (memopt_arena_rewind(f->a, m)) return;
    while (f->count[top] && f->blocks[top][f->count[top] - 1].used > m.used) --f->count[top];
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fuzz_state f;
    memopt_source s; memopt_arena_desc d; memopt_ledger_desc ld; size_t i;
    fuzz_memory = fuzz_room + (4096 - (uintptr_t)fuzz_room % 4096) % 4096;
    if (memopt_source_block(fuzz_memory, FUZZ_BYTES, &s)) abort(); /* for its zeroing and copying */
    memset(&f, 0, sizeof f);
    memset(&d, 0, sizeof d);
    memset(&ld, 0, sizeof ld);
    memset(fuzz_there, 0, sizeof fuzz_there);
    fuzz_failing = 0;
    s.reserve_fn = fuzz_reserve; s.release_fn = fuzz_release; s.commit_fn = fuzz_commit; s.decommit_fn = fuzz_decommit;
    s.granularity = FUZZ_GRANULE; s.base_alignment = 4096; s.fresh_is_zero = 1;
    ld.block_capacity = 20; ld.segment_capacity = 1;
    fuzz_must(memopt_ledger_create(&ld, &f.l) == MEMOPT_OK);
    s.ledger = f.l;
    d.source = &s; d.ledger = f.l; d.log_entries = size ? data[0] : 0;
    fuzz_must(memopt_arena_create(&d, &f.a) == MEMOPT_OK);
    for (i = 1; i + 4 <= size; i += 4) {
        const uint8_t what = data[i];
        if (what < 150) fuzz_push(&f, data + i);
        else if (what < 190) f.marks[data[i + 1] & 15] = data[i + 1] & 16 ? memopt_arena_mark_top(f.a) : memopt_arena_mark(f.a);
        else if (what < 230) fuzz_rewind(&f, f.marks[data[i + 1] & 15]);
        else if (what < 240) (void)memopt_arena_trim(f.a);
        else if (what < 245) fuzz_failing = 1;
        else fuzz_verify(&f);
    }
    fuzz_verify(&f);
    memopt_arena_destroy(f.a);
    fuzz_must(memopt_ledger_total(f.l).now == 0 && memopt_ledger_footprint(f.l).reserved == 0 && memopt_ledger_footprint(f.l).committed == 0);
    memopt_ledger_destroy(f.l);
    return 0;
}
