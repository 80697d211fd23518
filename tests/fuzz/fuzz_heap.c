/* fuzz_heap.c - the fuzzer's bytes as calls of a heap: on offsets, on memory that is committed (and sometimes refused), or
   on reservations; with records, plans and steps. One byte a unit says what is whose, and every figure is compared. */
#define MEMOPT_DEBUG 2
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "../heap_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_UNIT   64
#define FUZZ_UNITS  1024
#define FUZZ_CELL   1024
#define FUZZ_BLOCKS 96
#define FUZZ_BASE   ((size_t)1 << 20)
static unsigned char fuzz_there[FUZZ_UNITS * FUZZ_UNIT / FUZZ_CELL]; /* memory that the source gave, by cells */
static int fuzz_failing;       /* the next call to the source says no */
static void fuzz_must(int x) { if (!x) abort(); }
static memopt_status fuzz_set(void *start, size_t bytes, int there) {
    const size_t first = ((size_t)(uintptr_t)start - FUZZ_BASE) / FUZZ_CELL; size_t i;
    fuzz_must(bytes && bytes % FUZZ_CELL == 0 && (size_t)(uintptr_t)start % FUZZ_CELL == 0);
    fuzz_must(first + bytes / FUZZ_CELL <= sizeof fuzz_there);
    if (fuzz_failing) { fuzz_failing = 0; return MEMOPT_ERR_DEVICE; }
    for (i = first; i < first + bytes / FUZZ_CELL; ++i) {
        fuzz_must(fuzz_there[i] != there);
        fuzz_there[i] = (unsigned char)there;
    }
    return MEMOPT_OK;
}
static memopt_status fuzz_commit(memopt_source *s, void *start, size_t bytes) { (void)s; return fuzz_set(start, bytes, 1); }
static memopt_status fuzz_decommit(memopt_source *s, void *start, size_t bytes) { (void)s; return fuzz_set(start, bytes, 0); }
static memopt_status fuzz_reserve_range(memopt_source *s, size_t bytes, void **base) {
    (void)s;
    fuzz_must(bytes <= FUZZ_UNITS * FUZZ_UNIT);
    *base = (void *)(uintptr_t)FUZZ_BASE;
    return MEMOPT_OK;
}
static void fuzz_release_range(memopt_source *s, void *base, size_t bytes) { (void)s; (void)base; (void)bytes; memset(fuzz_there, 0, sizeof fuzz_there); }
static memopt_status fuzz_reserve_extent(memopt_source *s, size_t bytes, void **base) { /* the last place that is free */
    size_t i = sizeof fuzz_there, run = 0;
    (void)s;
    while (i && run < bytes / FUZZ_CELL) run = fuzz_there[--i] ? 0 : run + 1;
    if (run < bytes / FUZZ_CELL) return MEMOPT_ERR_MEMORY;
    *base = (void *)(uintptr_t)(FUZZ_BASE + i * FUZZ_CELL);
    return fuzz_set(*base, bytes, 1);
}
static void fuzz_release_extent(memopt_source *s, void *base, size_t bytes) { (void)s; fuzz_failing = 0; fuzz_must(!fuzz_set(base, bytes, 0)); }

typedef struct fuzz_block { memopt_block block; size_t bytes, size; } fuzz_block;
typedef struct fuzz_state {
    memopt_heap *heap;
    size_t base, held_cells, count, used, requested;
    int kind; /* 0 offsets, 1 a source that commits, 2 one that does not */
    unsigned char units[FUZZ_UNITS];
    fuzz_block blocks[FUZZ_BLOCKS];
} fuzz_state;
static void fuzz_mark(fuzz_state *f, const fuzz_block *b, unsigned char whose) {
    const size_t first = (b->block.offset - f->base) / FUZZ_UNIT; size_t i;
    fuzz_must(b->block.offset >= f->base && first + b->size / FUZZ_UNIT <= FUZZ_UNITS);
    for (i = first; i < first + b->size / FUZZ_UNIT; ++i) {
        fuzz_must(f->units[i] != whose);
        f->units[i] = whose;
        if (f->kind) fuzz_must(fuzz_there[i * FUZZ_UNIT / FUZZ_CELL]);
    }
}
static int fuzz_fits(const fuzz_state *f, size_t size, size_t alignment) {
    size_t i, run = 0;
    for (i = f->heap->capacity / FUZZ_UNIT; i-- > 0; ) {
        run = f->units[i] ? 0 : run + 1;
        if (run >= size / FUZZ_UNIT && (f->base + i * FUZZ_UNIT) % alignment == 0) return 1;
    }
    return 0;
}
static void fuzz_alloc(fuzz_state *f, size_t bytes, size_t alignment, memopt_tag tag) {
    fuzz_block *b = &f->blocks[f->count]; const int failing = fuzz_failing; memopt_status s;
    if (f->count == FUZZ_BLOCKS) return;
    s = memopt_heap_alloc(f->heap, bytes, alignment, tag, &b->block);
    b->bytes = bytes; b->size = (bytes + FUZZ_UNIT - 1) / FUZZ_UNIT * FUZZ_UNIT;
    if (!bytes) { fuzz_must(s == MEMOPT_ERR_ARGUMENT); return; }
    if (s) { fuzz_must(f->kind == 2 || (failing && !fuzz_failing) || !fuzz_fits(f, b->size, alignment > FUZZ_UNIT ? alignment : FUZZ_UNIT)); return; }
    fuzz_must(!alignment || b->block.offset % alignment == 0);
    fuzz_mark(f, b, 1);
    ++f->count; f->used += b->size; f->requested += bytes;
}
static void fuzz_free(fuzz_state *f, size_t k) {
    const fuzz_block b = f->blocks[k];
    fuzz_must(memopt_heap_free(f->heap, b.block) == MEMOPT_OK && memopt_heap_free(f->heap, b.block) == MEMOPT_ERR_STATE);
    fuzz_mark(f, &b, 0);
    f->used -= b.size; f->requested -= b.bytes;
    f->blocks[k] = f->blocks[--f->count];
}
static void fuzz_compare(const fuzz_state *f) {
    const memopt_heap_stats s = memopt_heap_get_stats(f->heap); heap_entry e; size_t sums[3] = { 0, 0, 0 }, largest = 0, i, there = 0;
    memset(&e, 0, sizeof e);
    while (heap_walk(f->heap, &e)) {
        sums[e.kind] += e.bytes;
        if (e.kind == HEAP_FREE && e.bytes > largest) largest = e.bytes;
        for (i = (e.offset - f->base) / FUZZ_UNIT; i < (e.offset - f->base + e.bytes) / FUZZ_UNIT; ++i)
            fuzz_must(f->units[i] == (e.kind == HEAP_USED));
    }
    fuzz_must(s.used == f->used && s.requested == f->requested && s.used_blocks == f->count && sums[HEAP_USED] == f->used);
    fuzz_must(s.free_bytes == sums[HEAP_FREE] && s.largest == largest && s.idle <= sums[HEAP_IDLE]);
    for (i = 0; i < sizeof fuzz_there; ++i) there += (size_t)fuzz_there[i] * FUZZ_CELL;
    fuzz_must(heap_check(f->heap) == MEMOPT_OK);
    fuzz_must(s.reserved == s.used + s.free_bytes + s.idle && (!f->kind || s.reserved == there));
}
static memopt_status fuzz_zero(memopt_source *s, void *start, size_t bytes) { (void)s; (void)start; (void)bytes; return MEMOPT_OK; }
static int fuzz_open(fuzz_state *f, memopt_source *s, unsigned how) {
    memopt_heap_desc d;
    memset(f, 0, sizeof *f); memset(s, 0, sizeof *s); memset(&d, 0, sizeof d);
    f->kind = (int)(how % 3);
    f->base = f->kind ? FUZZ_BASE : 0;
    s->reserve_fn = f->kind == 1 ? fuzz_reserve_range : fuzz_reserve_extent;
    s->release_fn = f->kind == 1 ? fuzz_release_range : fuzz_release_extent;
    s->zero_fn = fuzz_zero;
    if (f->kind == 1) { s->commit_fn = fuzz_commit; s->decommit_fn = fuzz_decommit; }
    s->granularity = FUZZ_CELL; s->base_alignment = FUZZ_CELL; s->alignment = FUZZ_UNIT; s->capacity = FUZZ_UNITS * FUZZ_UNIT;
    d.source = f->kind ? s : NULL; d.alignment = FUZZ_UNIT;
    d.capacity = FUZZ_UNITS * FUZZ_UNIT >> how / 3 % 3; d.extent = (size_t)1 << (8 + how / 9 % 6);
    return memopt_heap_create(&d, &f->heap) == MEMOPT_OK;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fuzz_state f; static const memopt_plan_options quick = { 0, 0, 0, 1, NULL }; memopt_source s; size_t i;
    fuzz_failing = 0;
    memset(fuzz_there, 0, sizeof fuzz_there);
    if (!size || !fuzz_open(&f, &s, data[0])) return 0;
    for (i = 1; i + 1 < size && i < 600; i += 2) {
        const unsigned x = data[i], y = data[i + 1];
        switch (x % 16) {
        case 0: case 1: case 2: fuzz_alloc(&f, (size_t)y * 8, 0, x / 16 % 2); break;
        case 3: fuzz_alloc(&f, (size_t)y * 300, 0, x / 16 % 2); break;
        case 4: fuzz_alloc(&f, (size_t)(y + 1) * 30, (size_t)1 << x / 16, x / 16 % 2); break;
        case 5: fuzz_failing = f.kind != 0; break;
        case 6: (void)memopt_heap_trim(f.heap, NULL); break;
        case 7: (void)heap_grow(f.heap, (size_t)y * 100); break;
        case 8: (void)memopt_heap_record(f.heap); break;
        case 9: (void)memopt_heap_plan(f.heap, NULL, &quick, NULL); break;
        case 10: fuzz_must(memopt_heap_begin_step(f.heap) == MEMOPT_OK); break;
        case 11: if (y < 64) fuzz_must(memopt_heap_unplan(f.heap) == MEMOPT_OK); break;
        default: if (f.count) fuzz_free(&f, y % f.count);
        }
        fuzz_compare(&f);
    }
    while (f.count) fuzz_free(&f, f.count - 1);
    fuzz_compare(&f);
    memopt_heap_destroy(f.heap);
    for (i = 0; i < sizeof fuzz_there; ++i) fuzz_must(!fuzz_there[i]);
    return 0;
}
