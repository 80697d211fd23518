/* findings.h - what a trace tells: which bytes are held for nothing, and what an arena, a plan, values in place, a step
   inside backward or a tape would hold instead. Needs memopt.h and trace.h.

   A value is what a buffer holds from a mark that begins by writing it to the last mark that touches it before it is
   written anew. A buffer that the step reads first is from the step before: one value, for the whole step. Zeros are no
   value: whoever zeroes at the mark that first uses a buffer need not hold it before. What is zeros when a mark ends was
   zeroed and not read there. A plan is exact for an engine that takes its buffers where a mark begins and gives them back
   where one ends. */
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
    finding_value *values;      /* in the order of their buffers */
    size_t *values_from;        /* of each buffer, its first value; one more: how many there are */
    finding_mirror *mirrors;
    memopt_plan_item *items;    /* of the values, and room for as many more */
    unsigned char *taken;       /* of each value: another one lies in its place */
    size_t value_count, mirror_count, item_count;
    size_t held, used;          /* most bytes at a time: of all buffers; of those that are used */
    size_t bytes[FINDING_KINDS], early_bytes, twice_bytes, mirror_bytes;
    size_t peaks[FINDING_WAYS]; /* what each way would hold */
    size_t pairs, again, early_steps; /* in place; values made again; gradients stepped inside backward */
} findings;

static inline void findings_free(findings *f) {
    free(f->kinds);
    free(f->early);
    free(f->twice);
    free(f->values);
    free(f->values_from);
    free(f->mirrors);
    free(f->items);
    free(f->taken);
    memset(f, 0, sizeof *f);
}

static inline const char *finding_phase(const trace *t, size_t mark) { return t->marks[mark].name; }

/* By how its name begins: "forward", "forward, head". */
static inline int finding_in(const trace *t, size_t mark, const char *phase) {
    return strncmp(finding_phase(t, mark), phase, strlen(phase)) == 0;
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
            phases |= strcmp(finding_phase(t, x[k].mark), finding_phase(t, x[v[0].touch].mark)) != 0;
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
    size_t i;

    m.buffer = x[a->touch].mark > x[b->touch].mark ? a->buffer : b->buffer; /* the later one is the copy */
    m.of = m.buffer == a->buffer ? b->buffer : a->buffer;
    m.from = x[a->touch].mark > x[b->touch].mark ? x[a->touch].mark : x[b->touch].mark;
    m.to = a->until < b->until ? a->until : b->until;
    if (a->buffer == b->buffer || m.to <= m.from) return;
    for (i = 0; i < f->mirror_count; ++i)
        if (f->mirrors[i].buffer == m.buffer) return;
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
static inline size_t finding_most(const findings *f, int used) { /* the most that buffers hold at a time */
    const trace *t = f->t;
    size_t most = 0;
    size_t i, k, sum;

    for (i = 0; i < t->buffer_count; ++i) { /* a birth is where it can become more */
        for (sum = k = 0; k < t->buffer_count; ++k)
            if (t->buffers[k].born <= t->buffers[i].born && t->buffers[i].born < t->buffers[k].died
                && (!used || f->kinds[k] != FINDING_UNUSED)) sum += t->buffers[k].bytes;
        if (sum > most) most = sum;
    }
    return most;
}

static inline memopt_status finding_plan(findings *f, size_t *peak) {
    memopt_plan_options options;
    memopt_plan_result result;
    memopt_status s;

    memset(&options, 0, sizeof options);
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

static inline int finding_by_birth(const void *a, const void *b) {
    const memopt_plan_item *x = (const memopt_plan_item *)a;
    const memopt_plan_item *y = (const memopt_plan_item *)b;

    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->last != y->last) return x->last > y->last ? -1 : 1;
    return x->size > y->size ? -1 : x->size < y->size;
}

/* An arena: what outlives others that were pushed before it is pushed before them, where that is less; else they stay.
   What lives at one mark only is at the other end. */
static inline size_t finding_arena(findings *f) {
    memopt_plan_item *x = f->items;
    size_t peak = 0;
    size_t i, k, sum;

    qsort(x, f->item_count, sizeof *x, finding_by_birth);
    for (i = 0; i < f->item_count; ++i) {
        size_t first = x[i].first;

        for (sum = k = 0; k < i; ++k)
            if (x[k].last > x[i].first && x[k].last < x[i].last) {
                sum += x[k].size;
                if (x[k].first < first) first = x[k].first;
            }
        if (sum > x[i].size) x[i].first = first;
    }
    qsort(x, f->item_count, sizeof *x, finding_by_birth);
    for (i = f->item_count; i-- > 0;)
        for (k = i + 1; k < f->item_count && x[k].first < x[i].last; ++k)
            if (x[k].last > x[i].last) x[i].last = x[k].last;
    for (i = 0; i < f->item_count; ++i) {
        for (sum = k = 0; k < f->item_count; ++k)
            if (x[k].first <= x[i].first && x[i].first < x[k].last) sum += x[k].size;
        if (sum > peak) peak = sum;
    }
    return peak;
}

/* A value that begins at the mark where another of its size is read for the last time could lie where that one lies. */
static inline void finding_in_place(findings *f) {
    const trace_touch *x = f->t->touches;
    size_t i, k;

    memset(f->taken, 0, f->value_count + 1);
    f->pairs = 0;
    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];

        if (!v->touch_count || v->zeroed || x[v->touch].read) continue;
        for (k = 0; k < f->value_count; ++k) {
            const finding_value *u = &f->values[k];
            const trace_touch *end = &x[u->touch + u->touch_count - 1];

            if (k == i || f->taken[k] || !u->touch_count || f->items[k].size != f->items[i].size || u->first >= v->first
                || u->buffer == v->buffer || f->kinds[u->buffer] == FINDING_KEPT) continue;
            if (end->mark != x[v->touch].mark || end->write) continue;
            f->taken[k] = 1;
            f->items[i].in_place_of = k + 1;
            ++f->pairs;
            break;
        }
    }
}

/* Gradients of weights: written in backward, read in the step. */
static inline void finding_step(findings *f) {
    const trace_touch *x = f->t->touches;
    size_t i, k;

    f->early_steps = 0;
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

/* What was read to make a value again must be there till then. */
static inline void finding_hold_inputs(findings *f, size_t mark, size_t last) {
    const trace_touch *x = f->t->touches;
    size_t i, k;

    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];

        if (v->first >= f->t->marks[mark].time) continue;
        for (k = v->touch; k < v->touch + v->touch_count; ++k)
            if (x[k].mark == mark && x[k].read && f->items[i].last < last) f->items[i].last = last;
    }
}

/* Made at one mark of forward, next used in backward, and by no other mark of forward: backward can make it again. */
static inline void finding_tape(findings *f) {
    const trace_touch *x = f->t->touches;
    size_t i, k;

    f->again = 0;
    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];
        const size_t mark = v->touch_count ? x[v->touch].mark : 0;
        memopt_plan_item *second = &f->items[f->item_count];

        if (v->touch_count < 2 || v->zeroed || x[v->touch].read || !finding_in(f->t, mark, "forward")) continue;
        for (k = 1; k < v->touch_count && finding_in(f->t, x[v->touch + k].mark, "backward"); ++k) {}
        if (k < v->touch_count) continue;
        *second = f->items[i];
        second->first = f->t->marks[x[v->touch + 1].mark].time;
        f->items[i].last = trace_mark_end(f->t, mark);
        if (f->items[i].last > second->first) continue;
        finding_hold_inputs(f, mark, second->last);
        ++f->item_count;
        ++f->again;
    }
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

static inline memopt_status finding_ways(findings *f) {
    memopt_status s;

    finding_items(f);
    s = finding_plan(f, &f->peaks[FINDING_PLAN]);
    if (s) return s;
    finding_in_place(f);
    s = finding_plan(f, &f->peaks[FINDING_IN_PLACE]);
    if (s) return s;
    finding_items(f);
    finding_step(f);
    s = finding_plan(f, &f->peaks[FINDING_STEP]);
    if (s) return s;
    finding_items(f);
    finding_tape(f);
    s = finding_plan(f, &f->peaks[FINDING_TAPE]);
    if (s) return s;
    finding_items(f);
    f->peaks[FINDING_ARENA] = finding_arena(f);
    return MEMOPT_OK;
}

/* t must outlive f. On failure nothing is kept. */
static inline memopt_status findings_make(findings *f, const trace *t) {
    const size_t values = t->touch_count + t->buffer_count + 1;
    memopt_status s = MEMOPT_ERR_MEMORY;

    memset(f, 0, sizeof *f);
    f->t = t;
    f->kinds = (unsigned char *)calloc(t->buffer_count + 1, 1);
    f->early = (unsigned char *)calloc(t->buffer_count + 1, 1);
    f->twice = (unsigned char *)calloc(t->buffer_count + 1, 1);
    f->values = (finding_value *)calloc(values, sizeof *f->values);
    f->values_from = (size_t *)calloc(t->buffer_count + 1, sizeof *f->values_from);
    f->mirrors = (finding_mirror *)calloc(t->buffer_count + 1, sizeof *f->mirrors);
    f->items = (memopt_plan_item *)calloc(2 * values, sizeof *f->items);
    f->taken = (unsigned char *)calloc(values, 1);
    if (f->kinds && f->early && f->twice && f->values && f->values_from && f->mirrors && f->items && f->taken) {
        finding_classify(f);
        f->held = finding_most(f, 0);
        f->used = finding_most(f, 1);
        s = finding_mirrors(f) ? MEMOPT_ERR_MEMORY : finding_ways(f);
    }
    if (s) findings_free(f);
    return s;
}
#endif
