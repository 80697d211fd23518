/* findings.h - what a trace tells: which bytes are held for nothing, and what an arena, a plan, values in place, values
   made again, a step inside backward or a tape would hold instead. Needs memopt.h and trace.h.

   A value is what a buffer holds from a mark that begins by writing it to the last mark that touches it before it is
   written anew. A buffer that the step reads first is from the step before: one value, for the whole step. Zeros are no
   value: whoever zeroes at the mark that first uses a buffer need not hold it before. What is zeros when a mark ends was
   zeroed and not read there. A plan is exact for an engine that takes its buffers where a mark begins and gives them back
   where one ends; what is made again is planned without the scratch of its making.
   Everything is sorting and sweeping: n log n of all buffers and touches, but for the plans. */
#ifndef DOCTOR_FINDINGS_H
#define DOCTOR_FINDINGS_H

typedef enum finding_kind { /* of a buffer: the first of these that is true */
    FINDING_UNUSED,   /* nobody touches it, or somebody zeroes it and that is all */
    FINDING_KEPT,     /* holds something from step to step, or from the step on */
    FINDING_MARK,     /* each of its values is used at one mark only */
    FINDING_PHASE,    /* alive within one phase only */
    FINDING_IDLE,     /* written in one phase, next used in another */
    FINDING_KINDS
} finding_kind;

typedef enum finding_way {
    FINDING_ARENA,
    FINDING_PLAN,
    FINDING_IN_PLACE,
    FINDING_CHEAP, /* values made again from what is there */
    FINDING_STEP, /* inside backward */
    FINDING_TAPE,
    FINDING_WAYS
} finding_way;

typedef struct finding_value {
    size_t buffer, first, last; /* lives in [first, last) */
    size_t touch, touch_count;  /* in trace.touches, without zeros at its begin */
    int zeroed;                 /* it begins as zeros: somebody adds to it */
} finding_value;

typedef struct finding_mirror { /* the same bytes from the end of mark `from` to mark `to` */
    size_t buffer, of, from, to;
} finding_mirror;

typedef struct findings {
    const trace *t;
    unsigned char *kinds;       /* of each buffer */
    unsigned char *early;       /* of each buffer: zeroed before the mark that first uses it */
    unsigned char *twice;       /* of each buffer: written at two marks, and no mark between reads it */
    unsigned char *mirrored;    /* of each buffer: it is the copy of a mirror */
    unsigned char *cheap;       /* of each buffer: backward can make a value of it again at little cost */
    finding_value *values;      /* in the order of their buffers */
    size_t *values_from;        /* of each buffer, its first value; one more: how many there are */
    size_t *value_of;           /* of each touch, its value + 1; 0: zeros before a value */
    size_t *mark_touches, *mark_from; /* the touches of each mark; one more: how many there are */
    struct finding_change *changes; /* room for a sweep over all buffers or items */
    finding_mirror *mirrors;
    memopt_plan_item *items;    /* of the values, and room for as many more */
    size_t value_count, mirror_count, item_count;
    size_t held, used;          /* most bytes at a time: of all buffers; of those that are used */
    size_t bytes[FINDING_KINDS], early_bytes, twice_bytes, mirror_bytes, cheap_bytes;
    size_t peaks[FINDING_WAYS]; /* what each way would hold */
    size_t pairs, again, cheap_count, early_steps; /* in place; values made again, cheaply; gradients stepped in backward */
    size_t again_cost, cheap_cost; /* of making again, in the unit of trace.cost */
} findings;

static inline void findings_free(findings *f) {
    free(f->kinds);
    free(f->early);
    free(f->twice);
    free(f->mirrored);
    free(f->cheap);
    free(f->values);
    free(f->values_from);
    free(f->value_of);
    free(f->mark_touches);
    free(f->mark_from);
    free(f->changes);
    free(f->mirrors);
    free(f->items);
    memset(f, 0, sizeof *f);
}

static inline int finding_same_phase(const trace *t, size_t mark, size_t other) {
    const trace_mark *a = &t->marks[mark];
    const trace_mark *b = &t->marks[other];

    return a->phase == b->phase && !strncmp(a->name, b->name, a->phase);
}

/* By how its name begins. */
static inline int finding_in(const trace *t, size_t mark, const char *phase) {
    return strncmp(t->marks[mark].name, phase, strlen(phase)) == 0;
}

/* ---- values ---- */
static inline void finding_add_value(findings *f, size_t buffer, size_t touch, size_t count) {
    const trace *t = f->t;
    const trace_buffer *b = &t->buffers[buffer];
    const trace_touch *x = &t->touches[touch];
    finding_value *v = &f->values[f->value_count];

    memset(v, 0, sizeof *v);
    if (!x->read && x->write && !x->hash) {
        if (count == 1) return;
        f->early[buffer] = 1;
        v->zeroed = 1;
        ++x, ++touch, --count;
    }
    v->buffer = buffer;
    v->touch = touch;
    v->touch_count = count;
    v->first = t->marks[x->mark].time;
    v->last = trace_mark_end(t, x[count - 1].mark);
    if (v->first < b->born) v->first = b->born;
    if (v->last > b->died) v->last = b->died;
    ++f->value_count;
}

static inline void finding_add_values(findings *f, size_t buffer) {
    const trace *t = f->t;
    const trace_buffer *b = &t->buffers[buffer];
    const trace_touch *x = t->touches + b->touch;
    const size_t before = f->value_count;
    size_t i, from = 0;

    if (!b->touch_count && !t->lifetimes_only) return;
    if (t->lifetimes_only || (!b->born && x[0].read)) { /* one value */
        finding_value *v = &f->values[f->value_count++];

        memset(v, 0, sizeof *v);
        v->buffer = buffer;
        v->touch = b->touch;
        v->touch_count = b->touch_count;
        v->first = b->born;
        v->last = b->died;
        return;
    }
    for (i = 1; i <= b->touch_count; ++i) {
        if (i < b->touch_count && x[i].read) continue;
        finding_add_value(f, buffer, b->touch + from, i - from);
        if (i < b->touch_count && i == from + 1) f->twice[buffer] = 1;
        from = i;
    }
    if (b->born && b->died == t->end && f->value_count > before) f->values[f->value_count - 1].last = t->end;
}

static inline finding_kind finding_kind_of(const findings *f, size_t buffer) {
    const trace *t = f->t;
    const trace_buffer *b = &t->buffers[buffer];
    const finding_value *v = f->values + f->values_from[buffer];
    const size_t values = f->values_from[buffer + 1] - f->values_from[buffer];
    const trace_touch *x = t->touches;
    size_t i, k;
    int marks = 0, phases = 0;

    if (!values) return FINDING_UNUSED;
    if (t->lifetimes_only || (!b->born && x[b->touch].read) || (b->born && b->died == t->end))
        return FINDING_KEPT;
    for (i = 0; i < values; ++i)
        for (k = v[i].touch; k < v[i].touch + v[i].touch_count; ++k) {
            marks |= x[k].mark != x[v[i].touch].mark;
            phases |= !finding_same_phase(t, x[k].mark, x[v[0].touch].mark);
        }
    return !marks ? FINDING_MARK : phases ? FINDING_IDLE : FINDING_PHASE;
}

/* ---- the same bytes in two buffers ---- */
/* How long what a touch has written is still read; its own mark: not at all. Beyond the last mark: in the next step. */
static inline size_t finding_read_until(const trace *t, const trace_buffer *b, size_t touch) {
    const trace_touch *x = t->touches;
    size_t until = x[touch].mark;
    size_t i;

    for (i = touch + 1; i < b->touch + b->touch_count; ++i) {
        if (x[i].read) until = x[i].mark;
        if (x[i].write) return until;
    }
    if (b->born || b->died < t->end) return until;
    for (i = b->touch; i <= touch; ++i) {
        if (x[i].read) until = t->mark_count + x[i].mark;
        if (x[i].write) return until;
    }
    return until;
}

typedef struct finding_content { size_t buffer, touch, until; uint64_t hash; size_t bytes; } finding_content;
static inline int finding_by_content(const void *a, const void *b) {
    const finding_content *x = (const finding_content *)a;
    const finding_content *y = (const finding_content *)b;

    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->touch < y->touch ? -1 : x->touch > y->touch;
}

static inline void finding_compare(findings *f, const finding_content *a, const finding_content *b) {
    const trace_touch *x = f->t->touches;
    finding_mirror m;

    m.buffer = x[a->touch].mark > x[b->touch].mark ? a->buffer : b->buffer; /* the later one is the copy */
    m.of = m.buffer == a->buffer ? b->buffer : a->buffer;
    m.from = x[a->touch].mark > x[b->touch].mark ? x[a->touch].mark : x[b->touch].mark;
    m.to = a->until < b->until ? a->until : b->until;
    if (a->buffer == b->buffer || m.to <= m.from || f->mirrored[m.buffer]) return;
    f->mirrored[m.buffer] = 1;
    f->mirrors[f->mirror_count++] = m;
    f->mirror_bytes += f->t->buffers[m.buffer].bytes;
}

static inline int finding_mirrors(findings *f) {
    const trace *t = f->t;
    finding_content *all = (finding_content *)calloc(t->touch_count + 1, sizeof *all);
    size_t count = 0;
    size_t i, k, b;

    if (!all) return 1;
    for (b = 0; b < t->buffer_count; ++b)
        for (i = t->buffers[b].touch; i < t->buffers[b].touch + t->buffers[b].touch_count; ++i) {
            if (!t->touches[i].write || !t->touches[i].hash) continue;
            all[count].buffer = b;
            all[count].touch = i;
            all[count].until = finding_read_until(t, &t->buffers[b], i);
            all[count].hash = t->touches[i].hash;
            all[count++].bytes = t->buffers[b].bytes;
        }
    if (count) qsort(all, count, sizeof *all, finding_by_content);
    for (i = 0; i < count; ++i)
        for (k = i + 1; k < count && k < i + 16 && all[k].hash == all[i].hash && all[k].bytes == all[i].bytes; ++k)
            finding_compare(f, &all[i], &all[k]);
    free(all);
    return 0;
}

/* ---- the ways ---- */
typedef struct finding_change { size_t time, bytes; int ends; } finding_change;

static inline int finding_by_time(const void *a, const void *b) { /* what ends makes room for what begins */
    const finding_change *x = (const finding_change *)a;
    const finding_change *y = (const finding_change *)b;

    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return y->ends - x->ends;
}

static inline void finding_span(findings *f, size_t *count, size_t first, size_t last, size_t bytes) {
    finding_change *c = &f->changes[*count];

    if (first >= last) return;
    c[0].time = first;
    c[1].time = last;
    c[0].bytes = c[1].bytes = bytes;
    c[0].ends = 0;
    c[1].ends = 1;
    *count += 2;
}

static inline size_t finding_sweep(findings *f, size_t count) { /* the most bytes at a time */
    size_t sum = 0, most = 0, i;

    qsort(f->changes, count, sizeof *f->changes, finding_by_time);
    for (i = 0; i < count; ++i) {
        sum = f->changes[i].ends ? sum - f->changes[i].bytes : sum + f->changes[i].bytes;
        if (sum > most) most = sum;
    }
    return most;
}

static inline size_t finding_most(findings *f, int used) { /* that buffers hold at a time */
    const trace_buffer *b = f->t->buffers;
    size_t i, count = 0;

    for (i = 0; i < f->t->buffer_count; ++i)
        if (!used || f->kinds[i] != FINDING_UNUSED) finding_span(f, &count, b[i].born, b[i].died, b[i].bytes);
    return finding_sweep(f, count);
}

enum { FINDING_MANY = 50000 }; /* items: so many are placed as a heap would, which takes a second and no minute */

static inline size_t finding_events(findings *f) { /* of all items, in order; bytes is the number of the item */
    size_t i, k, count = 0;

    for (i = 0; i < f->item_count; ++i) {
        const size_t before = count;

        finding_span(f, &count, f->items[i].first, f->items[i].last, 1);
        for (k = before; k < count; ++k) f->changes[k].bytes = i;
    }
    qsort(f->changes, count, sizeof *f->changes, finding_by_time);
    return count;
}

/* blocks: of each item; heirs: which item takes its place + 1 */
static inline memopt_status finding_replay(findings *f, memopt_heap *heap, memopt_block *blocks, size_t *heirs) {
    const size_t count = finding_events(f);
    memopt_status s = MEMOPT_OK;
    size_t i;

    for (i = 0; i < f->item_count; ++i)
        if (f->items[i].in_place_of) heirs[f->items[i].in_place_of - 1] = i + 1;
    for (i = 0; !s && i < count; ++i) {
        const size_t item = f->changes[i].bytes, before = f->items[item].in_place_of;

        if (f->changes[i].ends && !heirs[item]) s = memopt_heap_free(heap, blocks[item]);
        else if (!f->changes[i].ends && before) blocks[item] = blocks[before - 1];
        else if (!f->changes[i].ends) s = memopt_heap_alloc(heap, f->items[item].size, 0, MEMOPT_TAG_OTHER, &blocks[item]);
    }
    return s;
}

static inline memopt_status finding_as_heap(findings *f, size_t *peak) {
    memopt_block *blocks = (memopt_block *)calloc(f->item_count + 1, sizeof *blocks);
    size_t *heirs = (size_t *)calloc(f->item_count + 1, sizeof *heirs);
    memopt_heap *heap = NULL;
    memopt_heap_desc desc;
    memopt_status s = MEMOPT_ERR_MEMORY;

    memset(&desc, 0, sizeof desc);
    desc.capacity = SIZE_MAX / 2;
    desc.extent = 64;
    if (blocks && heirs) s = memopt_heap_create(&desc, &heap);
    if (!s) s = finding_replay(f, heap, blocks, heirs);
    if (!s) *peak = memopt_heap_get_stats(heap).peak_reserved;
    memopt_heap_destroy(heap);
    free(heirs);
    free(blocks);
    return s;
}

static inline memopt_status finding_plan(findings *f, size_t *peak) {
    memopt_plan_options options;
    memopt_plan_result result;
    memopt_status s;

    if (f->item_count > FINDING_MANY) return finding_as_heap(f, peak);
    memset(&options, 0, sizeof options);
    memset(&result, 0, sizeof result);
    options.work = 2000; /* the same on every machine */
    s = memopt_plan_solve(f->items, f->item_count, &options, NULL, &result);
    if (!s) *peak = result.peak;
    return s;
}

static inline void finding_items(findings *f) { /* the values as they are */
    size_t i;

    memset(f->items, 0, (2 * f->value_count + 1) * sizeof *f->items);
    for (i = 0; i < f->value_count; ++i) {
        f->items[i].first = f->values[i].first;
        f->items[i].last = f->values[i].last;
        f->items[i].size = f->t->buffers[f->values[i].buffer].bytes;
        f->items[i].alignment = 64;
    }
    f->item_count = f->value_count;
}

/* ---- an arena ---- */
/* Of the items so far, by where they end: the sum of the sizes and the earliest begin of any range. Node 1 has them all. */
typedef struct finding_node { size_t bytes, first; } finding_node;

static inline finding_node finding_join(finding_node a, finding_node b) {
    a.bytes += b.bytes;
    if (b.first < a.first) a.first = b.first;
    return a;
}

static inline void finding_insert(finding_node *tree, size_t leaves, size_t at, const memopt_plan_item *x) {
    finding_node own;

    own.bytes = x->size;
    own.first = x->first;
    for (at += leaves; at > 0; at /= 2) tree[at] = finding_join(tree[at], own);
}

static inline finding_node finding_range(const finding_node *tree, size_t leaves, size_t from, size_t to) { /* [from, to) */
    finding_node all = { 0, SIZE_MAX };

    for (from += leaves, to += leaves; from < to; from /= 2, to /= 2) {
        if (from % 2) all = finding_join(all, tree[from++]);
        if (to % 2) all = finding_join(all, tree[--to]);
    }
    return all;
}

static inline int finding_by_size(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return x < y ? -1 : x > y;
}

static inline size_t finding_rank(const size_t *sorted, size_t count, size_t value) { /* how many are smaller */
    size_t below = 0, above = count;

    while (below < above) {
        const size_t middle = below + (above - below) / 2;

        if (sorted[middle] < value) below = middle + 1;
        else above = middle;
    }
    return below;
}

/* What outlives others that were pushed before it is pushed before them, where that is less; else they stay. */
static inline void finding_push_earlier(findings *f, finding_node *tree, size_t *ends) {
    memopt_plan_item *x = f->items;
    const size_t n = f->item_count;
    size_t i;

    for (i = 0; i < n; ++i) ends[i] = x[i].last;
    qsort(ends, n, sizeof *ends, finding_by_size);
    for (i = 0; i < 2 * n; ++i) {
        tree[i].bytes = 0;
        tree[i].first = SIZE_MAX;
    }
    for (i = 0; i < n; ++i) {
        const size_t own = finding_rank(ends, n, x[i].last), after = finding_rank(ends, n, x[i].first + 1);
        const finding_node inside = finding_range(tree, n, after < own ? after : own, own);

        if (inside.bytes > x[i].size && inside.first < x[i].first) x[i].first = inside.first;
        finding_insert(tree, n, own, &x[i]);
    }
}

static inline int finding_by_birth(const void *a, const void *b) {
    const memopt_plan_item *x = (const memopt_plan_item *)a;
    const memopt_plan_item *y = (const memopt_plan_item *)b;

    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->last != y->last) return x->last > y->last ? -1 : 1;
    return x->size > y->size ? -1 : x->size < y->size;
}

static inline size_t finding_layer_of(const trace *t, size_t time) { /* the mark that begins it */
    size_t below = 0, above = t->mark_count;

    while (below < above) {
        const size_t middle = below + (above - below) / 2;

        if (t->marks[middle].time <= time) below = middle + 1;
        else above = middle;
    }
    return below ? t->marks[below - 1].layer : 0;
}

static inline void finding_whole_layers(findings *f) { /* pushed where a layer begins, rewound where one ends */
    const trace *t = f->t;
    size_t i, begin, end;

    for (i = 0; i < f->item_count; ++i) {
        begin = t->marks[finding_layer_of(t, f->items[i].first)].time;
        end = finding_layer_of(t, f->items[i].last - 1);
        while (end + 1 < t->mark_count && t->marks[end + 1].layer == t->marks[end].layer) ++end;
        if (f->items[i].first > begin) f->items[i].first = begin;
        if (f->items[i].last < trace_mark_end(t, end)) f->items[i].last = trace_mark_end(t, end);
    }
}

/* What lives at one mark only is at the other end. 1: no memory. */
static inline int finding_arena(findings *f, size_t *peak) {
    memopt_plan_item *x = f->items;
    const size_t n = f->item_count;
    finding_node *tree = (finding_node *)malloc((2 * n + 1) * sizeof *tree);
    size_t *after = (size_t *)malloc((n + 1) * sizeof *after); /* the first item that begins when this one has ended */
    size_t i, k, count = 0;

    if (tree && after) {
        qsort(x, n, sizeof *x, finding_by_birth);
        finding_push_earlier(f, tree, after);
        qsort(x, n, sizeof *x, finding_by_birth);
        for (i = n; i-- > 0; after[i] = k) /* a rewind ends all that was pushed since */
            for (k = i + 1; k < n && x[k].first < x[i].last; k = after[k])
                if (x[k].last > x[i].last) x[i].last = x[k].last;
        for (i = 0; i < n; ++i) finding_span(f, &count, x[i].first, x[i].last, x[i].size);
        *peak = finding_sweep(f, count);
    }
    free(tree);
    free(after);
    return !tree || !after;
}

/* ---- in place ---- */
typedef struct finding_seat { size_t mark, size, first, value, next; } finding_seat; /* read for the last time at mark */

static inline int finding_by_seat(const void *a, const void *b) {
    const finding_seat *x = (const finding_seat *)a;
    const finding_seat *y = (const finding_seat *)b;

    if (x->mark != y->mark) return x->mark < y->mark ? -1 : 1;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static inline size_t finding_free_seat(finding_seat *seats, size_t i) { /* this one or the next that is not taken */
    while (seats[i].next != i) {
        seats[i].next = seats[seats[i].next].next;
        i = seats[i].next;
    }
    return i;
}

static inline size_t finding_seats(const findings *f, finding_seat *seats) { /* sorted; the last is none */
    const trace_touch *x = f->t->touches;
    size_t i, count = 0;

    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];
        const trace_touch *end;

        if (!v->touch_count || f->kinds[v->buffer] == FINDING_KEPT) continue;
        end = &x[v->touch + v->touch_count - 1];
        if (end->write) continue;
        seats[count].mark = end->mark;
        seats[count].size = f->items[i].size;
        seats[count].first = v->first;
        seats[count++].value = i;
    }
    qsort(seats, count, sizeof *seats, finding_by_seat);
    for (i = 0; i <= count; ++i) seats[i].next = i;
    return count;
}

/* A value that begins at the mark where another of its size is read for the last time could lie where that one lies. */
static inline int finding_in_place(findings *f) { /* 1: no memory */
    const trace_touch *x = f->t->touches;
    finding_seat *seats = (finding_seat *)malloc((f->value_count + 1) * sizeof *seats);
    size_t i, count;

    if (!seats) return 1;
    count = finding_seats(f, seats);
    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];
        size_t below = 0, above = count;

        if (!v->touch_count || v->zeroed || x[v->touch].read) continue;
        while (below < above) {
            const size_t middle = below + (above - below) / 2;
            const finding_seat *s = &seats[middle];

            if (s->mark < x[v->touch].mark || (s->mark == x[v->touch].mark && s->size < f->items[i].size)) below = middle + 1;
            else above = middle;
        }
        for (below = finding_free_seat(seats, below); below < count; below = finding_free_seat(seats, below + 1)) {
            const finding_seat *s = &seats[below];

            if (s->mark != x[v->touch].mark || s->size != f->items[i].size || s->first >= v->first) break;
            if (f->values[s->value].buffer == v->buffer) continue;
            f->items[i].in_place_of = s->value + 1;
            seats[below].next = below + 1;
            ++f->pairs;
            break;
        }
    }
    free(seats);
    return 0;
}

/* Gradients of weights: written in backward, read in the step. */
static inline void finding_step(findings *f) {
    const trace_touch *x = f->t->touches;
    size_t i, k;

    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];
        const size_t end = v->touch + v->touch_count;

        if (f->kinds[v->buffer] == FINDING_KEPT) continue;
        for (k = v->touch; k < end && finding_in(f->t, x[k].mark, "backward"); ++k) {}
        if (k == v->touch || k == end || !finding_in(f->t, x[k].mark, "step") || k + 1 != end || x[k].write) continue;
        f->items[i].last = trace_mark_end(f->t, x[k - 1].mark);
        ++f->early_steps;
    }
}

/* ---- values made again ---- */
static inline void finding_touches_of_marks(findings *f) {
    const trace_touch *x = f->t->touches;
    size_t i, k;

    for (i = 0; i < f->value_count; ++i)
        for (k = 0; k < f->values[i].touch_count; ++k) f->value_of[f->values[i].touch + k] = i + 1;
    for (i = 0; i < f->t->touch_count; ++i) ++f->mark_from[x[i].mark + 1];
    for (i = 0; i < f->t->mark_count; ++i) f->mark_from[i + 1] += f->mark_from[i];
    for (i = f->t->touch_count; i-- > 0;) f->mark_touches[--f->mark_from[x[i].mark + 1]] = i;
    for (i = 0; i < f->t->mark_count; ++i) f->mark_from[i] = f->mark_from[i + 1];
    f->mark_from[f->t->mark_count] = f->t->touch_count;
}

/* How many of a value's first touches are of the layer of the first; 0: none is, it is not made in forward. */
static inline size_t finding_made_by(const findings *f, const finding_value *v) {
    const trace *t = f->t;
    const trace_touch *x = t->touches + v->touch;
    size_t k = 0;

    if (!v->touch_count || v->zeroed || x[0].read || !finding_in(t, x[0].mark, "forward")) return 0;
    while (k < v->touch_count && t->marks[x[k].mark].layer == t->marks[x[0].mark].layer) ++k;
    return k;
}

static inline void finding_make_again(findings *f, size_t value, size_t used, size_t mark) { /* used: so many touches */
    const trace *t = f->t;
    const finding_value *v = &f->values[value];
    memopt_plan_item *second = &f->items[f->item_count++];

    *second = f->items[value];
    second->first = t->marks[mark].time;
    f->items[value].last = trace_mark_end(t, t->touches[v->touch + used - 1].mark);
}

/* What a layer has read that was there before it must be there when the layer is made again; until: of each layer. */
static inline void finding_hold_inputs(findings *f, const size_t *until) {
    const trace *t = f->t;
    size_t i, k;

    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];

        for (k = v->touch; k < v->touch + v->touch_count; ++k) {
            const size_t layer = t->marks[t->touches[k].mark].layer;

            if (t->touches[k].read && v->first < t->marks[layer].time && f->items[i].last < until[layer])
                f->items[i].last = until[layer];
        }
    }
}

/* Made by one layer of forward, next used in backward: the layer can be made again there. 1: no memory. */
static inline int finding_tape(findings *f) {
    const trace *t = f->t;
    size_t *until = (size_t *)calloc(t->mark_count + 1, sizeof *until);
    size_t i, k, used;

    if (!until) return 1;
    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];
        const trace_touch *x = t->touches + v->touch;
        size_t mark;

        used = finding_made_by(f, v);
        for (k = used; k < v->touch_count && finding_in(t, x[k].mark, "backward"); ++k) {}
        if (!used || used == v->touch_count || k < v->touch_count) continue;
        mark = t->marks[x[used].mark].layer;
        if (t->marks[mark].time < trace_mark_end(t, x[used - 1].mark)) continue;
        finding_make_again(f, i, used, mark);
        k = t->marks[x[0].mark].layer;
        if (until[k] < v->last) until[k] = v->last;
        ++f->again;
    }
    for (i = 0; i < t->mark_count; ++i)
        if (until[t->marks[i].layer]) f->again_cost += t->marks[i].cost;
    finding_hold_inputs(f, until);
    free(until);
    return 0;
}

/* ---- values made again from what is there: without holding anything longer, and cheaply ---- */
/* A mark of forward, what it writes that only backward reads then, and the first mark that does. */
typedef struct finding_maker { size_t mark, bytes, cost, until; } finding_maker;

static inline int finding_by_gain(const void *a, const void *b) { /* bytes for the time */
    const finding_maker *x = (const finding_maker *)a;
    const finding_maker *y = (const finding_maker *)b;
    const double gain = (double)x->bytes * (double)y->cost, other = (double)y->bytes * (double)x->cost;

    if (gain > other || gain < other) return gain > other ? -1 : 1;
    return x->mark < y->mark ? -1 : x->mark > y->mark;
}

/* The touch at which a phase behind forward first reads a value again; 0: it is written once more, or never read there. */
static inline size_t finding_read_again(const findings *f, const finding_value *v) {
    const trace *t = f->t;
    const trace_touch *x = t->touches + v->touch;
    size_t k, first = 0;

    if (!finding_made_by(f, v) || f->kinds[v->buffer] == FINDING_KEPT) return 0;
    for (k = 1; k < v->touch_count; ++k) {
        if (x[k].write) return 0;
        if (!first && !finding_same_phase(t, x[k].mark, x[0].mark)) first = k;
    }
    return first;
}

/* It is as the mark has read it, and there, when another mark begins. */
static inline int finding_is_there(const findings *f, size_t touch, size_t until) {
    const trace *t = f->t;
    const finding_value *v;
    size_t k;

    if (!f->value_of[touch] || t->touches[touch].write) return 0;
    v = &f->values[f->value_of[touch] - 1];
    for (k = touch + 1; k < v->touch + v->touch_count && t->touches[k].mark < until; ++k)
        if (t->touches[k].write) return 0;
    return v->last > t->marks[until].time;
}

enum { FINDING_PINNED = 1, FINDING_DROPPED = 2 }; /* of a value: another is made from it; it is made again */

/* Whether a mark can be run again: it changes nothing, and all that it reads is there. Else no value is dropped. */
static inline int finding_can_run(const findings *f, const finding_maker *m, const unsigned char *marks) {
    const trace_touch *x = f->t->touches;
    size_t i;

    for (i = f->mark_from[m->mark]; i < f->mark_from[m->mark + 1]; ++i) {
        const size_t touch = f->mark_touches[i];

        if (!x[touch].read) continue;
        if (!finding_is_there(f, touch, m->until) || marks[f->value_of[touch] - 1] & FINDING_DROPPED) return 0;
    }
    return 1;
}

static inline void finding_run_again(findings *f, const finding_maker *m, unsigned char *marks) {
    size_t i, used;
    int any = 0;

    for (i = f->mark_from[m->mark]; i < f->mark_from[m->mark + 1]; ++i) {
        const size_t touch = f->mark_touches[i], value = f->value_of[touch];
        const finding_value *v = &f->values[value ? value - 1 : 0];

        if (!value || v->touch != touch || marks[value - 1] & FINDING_PINNED) continue;
        used = finding_read_again(f, v);
        if (!used) continue;
        marks[value - 1] |= FINDING_DROPPED;
        finding_make_again(f, value - 1, used, m->until);
        if (!f->cheap[v->buffer]) f->cheap_bytes += f->t->buffers[v->buffer].bytes;
        f->cheap[v->buffer] = 1;
        ++f->cheap_count;
        any = 1;
    }
    if (!any) return;
    f->cheap_cost += m->cost;
    for (i = f->mark_from[m->mark]; i < f->mark_from[m->mark + 1]; ++i)
        if (f->t->touches[f->mark_touches[i]].read) marks[f->value_of[f->mark_touches[i]] - 1] |= FINDING_PINNED;
}

static inline void finding_makers(const findings *f, finding_maker *makers) { /* one for each mark */
    const trace *t = f->t;
    size_t i, k;

    for (i = 0; i < t->mark_count; ++i) {
        makers[i].mark = i;
        makers[i].cost = t->marks[i].cost;
        makers[i].until = SIZE_MAX;
    }
    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];
        finding_maker *m = v->touch_count ? &makers[t->touches[v->touch].mark] : NULL;

        k = m ? finding_read_again(f, v) : 0;
        if (!k) continue;
        m->bytes += t->buffers[v->buffer].bytes;
        if (t->touches[v->touch + k].mark < m->until) m->until = t->touches[v->touch + k].mark;
    }
}

/* Cheap: it takes a smaller share of the step's time than it gives of its bytes. 1: no memory. */
static inline int finding_cheap(findings *f) {
    const trace *t = f->t;
    finding_maker *makers = (finding_maker *)calloc(t->mark_count + 1, sizeof *makers);
    unsigned char *marks = (unsigned char *)calloc(f->value_count + 1, 1);
    size_t i;

    if (makers && marks && t->cost) {
        finding_makers(f, makers);
        qsort(makers, t->mark_count, sizeof *makers, finding_by_gain);
        for (i = 0; i < t->mark_count; ++i)
            if ((double)makers[i].bytes * (double)t->cost > (double)makers[i].cost * (double)f->held
                && finding_can_run(f, &makers[i], marks)) finding_run_again(f, &makers[i], marks);
    }
    free(makers);
    free(marks);
    return !makers || !marks;
}

/* ---- all together ---- */
static inline void finding_classify(findings *f) {
    const trace *t = f->t;
    size_t i;

    for (i = 0; i < t->buffer_count; ++i) {
        const size_t bytes = t->buffers[i].bytes;

        finding_add_values(f, i);
        f->values_from[i + 1] = f->value_count;
        f->kinds[i] = (unsigned char)finding_kind_of(f, i);
        f->bytes[f->kinds[i]] += bytes;
        if (f->early[i]) f->early_bytes += bytes;
        if (f->twice[i]) f->twice_bytes += bytes;
    }
}

static inline int finding_arenas(findings *f) { /* the better of two: by marks or by whole layers. 1: no memory */
    size_t by_layers = SIZE_MAX;

    if (finding_arena(f, &f->peaks[FINDING_ARENA])) return 1;
    finding_items(f);
    finding_whole_layers(f);
    if (finding_arena(f, &by_layers)) return 1;
    if (by_layers < f->peaks[FINDING_ARENA]) f->peaks[FINDING_ARENA] = by_layers;
    return 0;
}

static inline memopt_status finding_way_of(findings *f, finding_way way) {
    int failed = 0;

    finding_items(f);
    switch (way) {
    case FINDING_ARENA: return finding_arenas(f) ? MEMOPT_ERR_MEMORY : MEMOPT_OK;
    case FINDING_IN_PLACE: failed = finding_in_place(f); break;
    case FINDING_CHEAP: failed = finding_cheap(f); break;
    case FINDING_STEP: finding_step(f); break;
    case FINDING_TAPE: failed = finding_tape(f); break;
    default: break;
    }
    return failed ? MEMOPT_ERR_MEMORY : finding_plan(f, &f->peaks[way]);
}

static inline memopt_status finding_ways(findings *f) {
    memopt_status s = MEMOPT_OK;
    int way;

    finding_touches_of_marks(f);
    for (way = 0; !s && way < FINDING_WAYS; ++way) s = finding_way_of(f, (finding_way)way);
    return s;
}

static inline int finding_take(findings *f) { /* 1: no memory */
    const trace *t = f->t;
    const size_t values = t->touch_count + t->buffer_count + 1;

    f->kinds = (unsigned char *)calloc(t->buffer_count + 1, 1);
    f->early = (unsigned char *)calloc(t->buffer_count + 1, 1);
    f->twice = (unsigned char *)calloc(t->buffer_count + 1, 1);
    f->mirrored = (unsigned char *)calloc(t->buffer_count + 1, 1);
    f->cheap = (unsigned char *)calloc(t->buffer_count + 1, 1);
    f->values = (finding_value *)calloc(values, sizeof *f->values);
    f->values_from = (size_t *)calloc(t->buffer_count + 1, sizeof *f->values_from);
    f->value_of = (size_t *)calloc(t->touch_count + 1, sizeof *f->value_of);
    f->mark_touches = (size_t *)calloc(t->touch_count + 1, sizeof *f->mark_touches);
    f->mark_from = (size_t *)calloc(t->mark_count + 2, sizeof *f->mark_from);
    f->mirrors = (finding_mirror *)calloc(t->buffer_count + 1, sizeof *f->mirrors);
    f->items = (memopt_plan_item *)calloc(2 * values, sizeof *f->items);
    f->changes = (finding_change *)calloc(4 * values, sizeof *f->changes);
    return !f->kinds || !f->early || !f->twice || !f->mirrored || !f->cheap || !f->values || !f->values_from || !f->value_of
        || !f->mark_touches || !f->mark_from || !f->mirrors || !f->items || !f->changes;
}

/* t must outlive f. On failure nothing is kept. */
static inline memopt_status findings_make(findings *f, const trace *t) {
    memopt_status s = MEMOPT_ERR_MEMORY;

    memset(f, 0, sizeof *f);
    f->t = t;
    if (!finding_take(f)) {
        finding_classify(f);
        f->held = finding_most(f, 0);
        f->used = finding_most(f, 1);
        s = finding_mirrors(f) ? MEMOPT_ERR_MEMORY : finding_ways(f);
    }
    if (s) findings_free(f);
    return s;
}
#endif
