/* heap_check.h - a heap seen from inside, for its tests: every invariant, a walk over all blocks, the largest request with growth, growth alone. */
#ifndef HEAP_CHECK_H
#define HEAP_CHECK_H

static int heap_check_bin(const memopt_heap *h, uint32_t bin, size_t *count) {
    uint32_t i, child;
    size_t cell;

    if ((h->cells[bin] != 0) != (int)(h->bins[bin / MEMOPT_I_HEAP_FINE] >> bin % MEMOPT_I_HEAP_FINE & 1)) return 0;
    for (i = h->cells[bin], cell = bin; i; cell = MEMOPT_I_HEAP_NEXT(i), i = h->cells[cell])
        if (h->nodes[i].up != cell) return 0;
    for (i = h->cells[bin]; i; i = memopt_i_heap_next_in_bin(h, i)) {
        if (++*count > h->node_count || !memopt_i_heap_is_free(h, i)) return 0;
        if (memopt_i_heap_bin(h, h->nodes[i].size) != bin) return 0;
        for (cell = MEMOPT_I_HEAP_CHILD(i); (child = h->cells[cell]) != 0; cell = MEMOPT_I_HEAP_NEXT(child))
            if (h->nodes[child].up != cell || h->nodes[child].size > h->nodes[i].size) return 0;
    }
    return 1;
}

static int heap_check_bins(const memopt_heap *h) {
    size_t count = 0;
    uint32_t bin, level;
    uint32_t top = 0;

    for (bin = 0; bin < MEMOPT_I_HEAP_BINS; ++bin) {
        level = bin / MEMOPT_I_HEAP_FINE;
        if (!heap_check_bin(h, bin, &count) || (h->bins[level] != 0) != (int)(h->levels >> level & 1)) return 0;
        if (h->cells[bin]) top = bin;
    }
    if (top && (h->top != top || h->cells[MEMOPT_I_HEAP_NEXT(h->cells[top])])) return 0;
    return count == memopt_i_heap_free_blocks(h);
}

/* The blocks in order: aligned, apart, inside, free ones joined; their sums. */
static int heap_check_blocks(const memopt_heap *h, size_t *count) {
    size_t held = 0;
    size_t used = h->replay.in_use;
    size_t free_blocks = 0;
    size_t used_blocks = h->replay.live;
    size_t end = h->base;
    size_t e = 0;
    size_t i;
    uint32_t p = 0;
    uint32_t n;

    for (n = memopt_i_heap_after(h, 0); n; p = n, n = memopt_i_heap_after(h, n)) {
        const memopt_i_heap_node *b = &h->nodes[n];
        const int is_free = memopt_i_heap_is_free(h, n);

        if (++*count > h->node_count || memopt_i_heap_before(h, n) != p) return 0;
        if (!b->size || (b->offset | b->size) & (h->unit - 1) || b->offset < end) return 0;
        if (is_free && p && memopt_i_heap_is_free(h, p) && b->offset == end) return 0;
        if (h->solid && p && b->offset != end) return 0;
        if (p && (b->before != p) != (memopt_i_heap_is_free(h, p) && b->offset == end)) return 0;
        if (p && (h->nodes[p].after != n) != (is_free && b->offset == end)) return 0;
        if (h->ranged && b->offset != end && ((b->offset - h->base) % h->step || (end - h->base) % h->step)) return 0;
        for (end = b->offset; !h->ranged && end < b->offset + b->size; ) { /* each byte lies in an extent */
            while (e < h->extent_count && h->extents[e].base + h->extents[e].bytes <= end) ++e;
            if (e == h->extent_count || h->extents[e].base > end) return 0;
            end = memopt_i_min(b->offset + b->size, h->extents[e].base + h->extents[e].bytes);
        }
        end = b->offset + b->size;
        held += b->size;
        if (is_free) ++free_blocks;
        else if (n != h->replay.region) {
            used += b->size;
            ++used_blocks;
        }
    }
    for (i = 0, e = 0; i < h->extent_count; ++i) e += h->extents[i].bytes;
    if (memopt_i_heap_before(h, 0) != p || held != h->held || used != h->used) return 0;
    return free_blocks == memopt_i_heap_free_blocks(h) && used_blocks == h->used_blocks
        && (h->ranged ? end <= h->base + h->capacity : e == held);
}

static size_t heap_check_pieces(const memopt_i_replay *r, size_t start, size_t stop) { /* committed ones */
    size_t count = 0;
    int committed;

    while (start < stop) {
        start = memopt_i_replay_piece(r, start, stop, &committed);
        count += committed != 0;
    }
    return count;
}

/* Live slots lie in their places, apart, in committed cells; either their record or the late list accounts for them. */
static int heap_check_replay(const memopt_heap *h) {
    const memopt_i_replay *r = &h->replay;
    size_t in_use = 0;
    size_t missing = 0;
    size_t pieces = 0;
    size_t at, next;
    uint32_t k, i;
    uint32_t live = 0;
    uint32_t late = 0;
    uint32_t more = 0;
    int committed;

    if (!r->region) return !r->live && !h->pledged;
    at = h->nodes[r->region].offset;
    for (k = 0; k < r->count; ++k) {
        const memopt_i_replay_slot *s = &r->slots[r->order[k]];
        const memopt_i_heap_node *n = &h->nodes[s->node];

        if (!memopt_i_replay_live(h, s)) {
            if (s->late) return 0;
            continue;
        }
        if (n->before != MEMOPT_I_HEAP_SERVED || n->after != r->order[k] || n->offset < at) return 0;
        if (n->offset < r->start + s->offset || n->offset + n->size > r->start + s->offset + s->size) return 0;
        pieces += heap_check_pieces(r, at, n->offset);
        for (at = n->offset; at < n->offset + n->size; ) {
            at = memopt_i_replay_piece(r, at, n->offset + n->size, &committed);
            if (!committed) return 0;
        }
        if (!s->late && r->order[k] >= r->cursor) return 0;
        in_use += n->size;
        ++live;
        late += s->late == 1;
        more += s->late == 2;
    }
    for (k = 1; k <= r->passed; ++k) /* whose death the cursor has passed is late, or dead */
        for (i = r->slots[k].due; i; i = r->slots[i - 1].due_next)
            if (!r->slots[i - 1].late && memopt_i_replay_live(h, &r->slots[i - 1])) return 0;
    for (i = 0; i < r->late_count; ++i)
        if (r->slots[r->late[i]].late != 1) return 0;
    pieces += heap_check_pieces(r, at, memopt_i_heap_end(h, r->region));
    if (at > memopt_i_heap_end(h, r->region) || pieces > h->pledged) return 0; /* a node each when the region goes */
    for (at = r->grid; at < memopt_i_heap_end(h, r->region); at = next) {
        next = memopt_i_replay_piece(r, at, memopt_i_heap_end(h, r->region), &committed);
        if (!committed) missing += next - at;
    }
    return live == r->live && in_use == r->in_use && missing == r->missing && late == r->late_count
        && more == r->late_more;
}

static inline memopt_status heap_check(const memopt_heap *heap) {
    size_t count = 1;
    uint32_t i;

    if ((heap->nodes[0].serial & 1) || !heap_check_blocks(heap, &count)) return MEMOPT_ERR_CORRUPT;
    if (!heap_check_bins(heap)) return MEMOPT_ERR_CORRUPT;
    for (i = 0; i < heap->unused_count; ++i)
        if (!heap->unused[i] || heap->unused[i] >= heap->node_count || !memopt_i_heap_is_free(heap, heap->unused[i]))
            return MEMOPT_ERR_CORRUPT;
    if (heap->unused_count < heap->pledged || count + heap->unused_count + heap->replay.count != heap->node_count
        || !heap_check_replay(heap)) return MEMOPT_ERR_CORRUPT;
    return MEMOPT_OK;
}

enum heap_entry_kind { HEAP_FREE, HEAP_USED, HEAP_IDLE /* the plan's, not in use */ };

typedef struct heap_entry { /* zero it to begin a walk */
    size_t offset, bytes;
    enum heap_entry_kind kind;
    uint32_t block;      /* of a used block: its node */
    uint32_t node, slot; /* where the walk is */
} heap_entry;

static inline int heap_walk_to(heap_entry *e, enum heap_entry_kind kind, size_t offset, size_t bytes,
                                 uint32_t block) {
    e->kind = kind;
    e->offset = offset;
    e->bytes = bytes;
    e->block = block;
    return 1;
}

/* Inside the region: the next live slot, or the idle bytes before it. Returns 0 at the region's end. */
static inline int heap_walk_region(const memopt_heap *h, heap_entry *e) {
    const memopt_i_replay *r = &h->replay;
    const size_t region_end = memopt_i_heap_end(h, r->region);
    const size_t start = e->node == r->region ? e->offset + e->bytes : h->nodes[r->region].offset;
    size_t end = region_end;

    if (e->node != r->region) e->slot = 0;
    e->node = r->region;
    if (start == region_end) return 0;
    for (; e->slot < r->count; ++e->slot) {
        const uint32_t i = r->slots[r->order[e->slot]].node;

        if (!(h->nodes[i].serial & 1)) continue;
        end = h->nodes[i].offset;
        if (end > start) break;
        ++e->slot;
        return heap_walk_to(e, HEAP_USED, end, h->nodes[i].size, i);
    }
    return heap_walk_to(e, HEAP_IDLE, start, end - start, 0);
}

/* The next block in order of addresses; 0 after the last. */
static inline int heap_walk(const memopt_heap *h, heap_entry *e) {
    uint32_t i;

    if (e->node && e->node == h->replay.region && heap_walk_region(h, e)) return 1;
    i = memopt_i_heap_after(h, e->node);
    if (!i) return 0;
    if (i == h->replay.region) return heap_walk_region(h, e);
    e->node = i;
    return heap_walk_to(e, memopt_i_heap_is_free(h, i) ? HEAP_FREE : HEAP_USED,
                                 h->nodes[i].offset, h->nodes[i].size, i);
}

/* The largest request that succeeds with growth at the end, as far as the capacity goes. */
static inline size_t heap_largest_grown(const memopt_heap *heap) {
    size_t more;
    uint32_t last;

    if (!heap->ranged) {
        more = memopt_i_min(heap->capacity - heap->held - memopt_i_heap_margins(heap), heap->source->capacity);
        more = memopt_i_align_down(more, heap->step);
        more -= memopt_i_min(more, memopt_i_heap_margin(heap));
    } else {
        last = memopt_i_heap_before(heap, 0);
        more = heap->base + heap->capacity - (last ? memopt_i_heap_end(heap, last) : heap->base);
        if (last && memopt_i_heap_is_free(heap, last)) more += heap->nodes[last].size;
    }
    return memopt_i_max(more, memopt_heap_largest(heap));
}

/* Makes sure that the next request of so many bytes needs no growth. */
static inline memopt_status heap_grow(memopt_heap *heap, size_t bytes) {
    memopt_block b;
    const memopt_status status = memopt_heap_alloc(heap, bytes, 0, MEMOPT_TAG_OTHER, &b);

    return status ? status : memopt_heap_free(heap, b);
}
#endif
