/* trace.h - what doctor.h has recorded, or the events of a ledger's snapshot (parts/ledger_export.h), as tables.

   The trace is lines of text; times count marks, allocations and frees:
       doctor 1
       mark TIME NAME                         the first mark is 0; a phase, behind a comma a part of the layer before it
       cost MICROSECONDS                      of the mark above; of all or of none
       buffer BORN DIED BYTES BLOCK OFFSET WHERE      born 0: before the step; died = the end: after it
       touch MARK r|w|rw HASH                 of the buffer above: read, written, read and then written; hash: see doctor.h
       end TIME */
#ifndef DOCTOR_TRACE_H
#define DOCTOR_TRACE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trace_mark {
    size_t time, phase, cost; /* phase: the length of its name up to a comma */
    size_t layer;             /* the mark that begins it: the last one without a comma */
    const char *name;
} trace_mark;
typedef struct trace_touch { size_t mark; int read, write; uint64_t hash; } trace_touch; /* hash 0: zeros */
typedef struct trace_buffer {
    size_t born, died, bytes, block, offset;
    size_t touch, touch_count; /* in trace.touches */
    size_t line;
    const char *where;
} trace_buffer;

typedef struct trace {
    trace_mark *marks;
    trace_buffer *buffers;
    trace_touch *touches;
    size_t mark_count, buffer_count, touch_count, cost_count, cost, end; /* cost: of all marks */
    int lifetimes_only;  /* of a ledger: who reads and writes is not known */
    size_t line;         /* where it is wrong; in a ledger's snapshot the event */
    const char *error;   /* why; NULL: it is not */
} trace;

static inline int trace_fail(trace *t, const char *why) {
    t->error = why;
    return 1;
}

static inline void trace_free(trace *t) {
    free(t->marks);
    free(t->buffers);
    free(t->touches);
    t->marks = NULL;
    t->buffers = NULL;
    t->touches = NULL;
    t->mark_count = t->buffer_count = t->touch_count = 0;
}

/* The end of a mark is the time of the next. */
static inline size_t trace_mark_end(const trace *t, size_t mark) {
    return mark + 1 < t->mark_count ? t->marks[mark + 1].time : t->end;
}

/* ---- words of a line ---- */
static inline char *trace_word(char **rest) { /* NULL: none is left */
    char *word = *rest + strspn(*rest, " ");

    if (!*word) return NULL;
    *rest = word + strcspn(word, " ");
    if (**rest) *(*rest)++ = 0;
    return word;
}

static inline int trace_size(char **rest, size_t *out) { /* 1: no number, or too large */
    const char *word = trace_word(rest);
    size_t value = 0;

    if (!word) return 1;
    for (; *word; ++word) {
        const size_t digit = (size_t)((unsigned)(unsigned char)*word - '0');

        if (digit > 9 || value > (SIZE_MAX / 2 - digit) / 10) return 1;
        value = value * 10 + digit;
    }
    *out = value;
    return 0;
}

static inline int trace_hash(char **rest, uint64_t *out) {
    const char *word = trace_word(rest);
    uint64_t value = 0;

    if (!word) return 1;
    for (; *word; ++word) {
        const char *digits = "0123456789abcdef";
        const char *digit = strchr(digits, *word);

        if (!digit || value >> 60) return 1;
        value = value << 4 | (uint64_t)(digit - digits);
    }
    *out = value;
    return 0;
}

static inline void trace_place_mark(trace *t) { /* the next one, which has its name */
    trace_mark *m = &t->marks[t->mark_count];

    m->phase = strcspn(m->name, ",");
    m->layer = t->mark_count && m->name[m->phase] ? m[-1].layer : t->mark_count;
    ++t->mark_count;
}

static inline int trace_add_mark(trace *t, char *rest) {
    trace_mark *m = &t->marks[t->mark_count];

    if (t->buffer_count) return trace_fail(t, "a mark behind a buffer");
    if (t->cost_count && t->cost_count < t->mark_count) return trace_fail(t, "the mark before has no cost");
    if (trace_size(&rest, &m->time)) return trace_fail(t, "the time of a mark is no number");
    if (t->mark_count && m->time <= m[-1].time) return trace_fail(t, "marks are not in the order of time");
    m->name = rest + strspn(rest, " ");
    if (!*m->name) return trace_fail(t, "a mark has no name");
    trace_place_mark(t);
    return 0;
}

static inline int trace_add_cost(trace *t, char *rest) {
    if (t->buffer_count || t->cost_count + 1 != t->mark_count) return trace_fail(t, "a cost is not that of the mark above");
    if (trace_size(&rest, &t->marks[t->cost_count].cost)) return trace_fail(t, "a cost is no number");
    if (t->marks[t->cost_count].cost > SIZE_MAX / 2 - t->cost) return trace_fail(t, "the costs of all marks do not fit");
    t->cost += t->marks[t->cost_count++].cost;
    return 0;
}

static inline int trace_add_buffer(trace *t, char *rest) {
    trace_buffer *b = &t->buffers[t->buffer_count];

    if (trace_size(&rest, &b->born) || trace_size(&rest, &b->died) || trace_size(&rest, &b->bytes)
        || trace_size(&rest, &b->block) || trace_size(&rest, &b->offset))
        return trace_fail(t, "a buffer needs born, died, bytes, block and offset");
    if (b->born >= b->died) return trace_fail(t, "a buffer dies before it is born");
    if (!b->bytes) return trace_fail(t, "a buffer has no bytes");
    b->where = rest + strspn(rest, " ");
    b->touch = t->touch_count;
    b->line = t->line;
    ++t->buffer_count;
    return 0;
}

static inline int trace_add_touch(trace *t, char *rest) {
    trace_touch *x = &t->touches[t->touch_count];
    trace_buffer *b = t->buffer_count ? &t->buffers[t->buffer_count - 1] : NULL;
    const char *kind;

    if (!b) return trace_fail(t, "a touch without a buffer");
    if (trace_size(&rest, &x->mark) || x->mark >= t->mark_count) return trace_fail(t, "a touch at a mark that is not there");
    if (b->touch_count && x->mark <= x[-1].mark) return trace_fail(t, "touches are not in the order of marks");
    if (t->marks[x->mark].time >= b->died) return trace_fail(t, "a touch of a buffer that is dead");
    if (x->mark + 1 < t->mark_count && t->marks[x->mark + 1].time <= b->born)
        return trace_fail(t, "a touch of a buffer that is not there yet");
    kind = trace_word(&rest);
    if (!kind || (strcmp(kind, "r") && strcmp(kind, "w") && strcmp(kind, "rw"))) return trace_fail(t, "a touch is r, w or rw");
    x->read = *kind == 'r';
    x->write = kind[strlen(kind) - 1] == 'w';
    if (trace_hash(&rest, &x->hash)) return trace_fail(t, "a touch needs a hash");
    ++t->touch_count;
    ++b->touch_count;
    return 0;
}

static inline int trace_by_place(const void *a, const void *b) {
    const trace_buffer *x = *(trace_buffer *const *)a;
    const trace_buffer *y = *(trace_buffer *const *)b;

    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* The buffers of a block are parts of it. */
static inline int trace_check_blocks(trace *t) {
    trace_buffer **order = (trace_buffer **)malloc((t->buffer_count + 1) * sizeof *order);
    size_t i;

    if (!order) return trace_fail(t, "out of memory");
    for (i = 0; i < t->buffer_count; ++i) order[i] = &t->buffers[i];
    qsort(order, t->buffer_count, sizeof *order, trace_by_place);
    for (i = 1; i < t->buffer_count && !t->error; ++i) {
        const trace_buffer *x = order[i - 1], *y = order[i];

        if (x->block != y->block) continue;
        t->line = x->line > y->line ? x->line : y->line;
        if (x->born != y->born || x->died != y->died) (void)trace_fail(t, "a buffer lives longer than another of its block");
        else if (y->offset - x->offset < x->bytes) (void)trace_fail(t, "a buffer overlaps another of its block");
    }
    free(order);
    return t->error != NULL;
}

static inline int trace_finish(trace *t, char *rest) {
    size_t i, sum = 0;

    if (trace_size(&rest, &t->end)) return trace_fail(t, "the end is no number");
    if (!t->mark_count) return trace_fail(t, "there is no mark");
    if (t->cost_count && t->cost_count < t->mark_count) return trace_fail(t, "the last mark has no cost");
    if (t->end <= t->marks[t->mark_count - 1].time) return trace_fail(t, "the end is before the last mark");
    for (i = 0; i < t->buffer_count; ++i) {
        const trace_buffer *b = &t->buffers[i];

        if (b->died > t->end || b->bytes > SIZE_MAX / 4 - sum) t->line = b->line;
        if (b->died > t->end) return trace_fail(t, "a buffer dies after the end");
        if (b->bytes > SIZE_MAX / 4 - sum) return trace_fail(t, "the bytes of all buffers do not fit");
        sum += b->bytes;
    }
    return 0;
}

static inline int trace_take(trace *t, size_t lines) { /* tables for so many */
    t->marks = (trace_mark *)calloc(lines, sizeof *t->marks);
    t->buffers = (trace_buffer *)calloc(lines, sizeof *t->buffers);
    t->touches = (trace_touch *)calloc(lines, sizeof *t->touches);
    return t->marks && t->buffers && t->touches ? 0 : trace_fail(t, "out of memory");
}

static inline int trace_read_lines(trace *t, char *text) {
    char *line, *next, *word;
    int ended = 0;

    for (line = text; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (next > line && next[-1] == '\r') next[-1] = 0;
        if (*next) *next++ = 0;
        ++t->line;
        word = trace_word(&line);
        if (t->line == 1) {
            if (!word || strcmp(word, "doctor") || strcmp(line, "1")) return trace_fail(t, "this is no trace of doctor.h");
            continue;
        }
        if (!word) continue;
        if (ended) return trace_fail(t, "something follows the end");
        if (!strcmp(word, "mark")) { if (trace_add_mark(t, line)) return 1; }
        else if (!strcmp(word, "cost")) { if (trace_add_cost(t, line)) return 1; }
        else if (!strcmp(word, "buffer")) { if (trace_add_buffer(t, line)) return 1; }
        else if (!strcmp(word, "touch")) { if (trace_add_touch(t, line)) return 1; }
        else if (strcmp(word, "end")) return trace_fail(t, "a line is mark, cost, buffer, touch or end");
        else if (trace_finish(t, line)) return 1;
        else ended = 1;
    }
    return ended ? trace_check_blocks(t) : trace_fail(t, "the trace is cut off: there is no end");
}

/* ---- a ledger's snapshot: its events in order; a mark where step or layer change ---- */
/* The text behind "key": within an event; NULL: it has none. */
static inline char *trace_field(char *event, const char *key) {
    char *at = strstr(event, key);

    return at ? at + strlen(key) + strspn(at + strlen(key), ": \"") : NULL;
}

#define TRACE_FREED SIZE_MAX
typedef struct trace_address { uint64_t address; size_t buffer; } trace_address; /* its number + 1; 0: never seen */
typedef struct trace_events {
    trace_address *slots; /* by the hash of the address: twice as many as events at least */
    size_t mask, time;
    uint64_t clock;
    size_t layer; /* of the last event */
} trace_events;

static inline trace_address *trace_slot(const trace_events *e, uint64_t address) {
    size_t i = (size_t)((address * 0x9e3779b97f4a7c15u) >> 32) & e->mask;

    while (e->slots[i].buffer && e->slots[i].address != address) i = (i + 1) & e->mask;
    e->slots[i].address = address;
    return &e->slots[i];
}

static inline int trace_number(const char *text, uint64_t *out) { /* of JSON: 1: none, negative, or too large */
    uint64_t value = 0;

    if (!text || *text < '0' || *text > '9') return 1;
    for (; *text >= '0' && *text <= '9'; ++text) {
        const uint64_t digit = (uint64_t)(*text - '0');

        if (value > (UINT64_MAX - digit) / 10) return 1;
        value = value * 10 + digit;
    }
    *out = value;
    return *text == '.' || *text == 'e' || *text == 'E';
}

static inline void trace_mark_event(trace *t, const trace_events *e, const char *step) {
    t->marks[t->mark_count].time = e->time;
    t->marks[t->mark_count].name = step;
    trace_place_mark(t);
}

static inline void trace_begin_buffer(trace *t, const trace_events *e, size_t born, size_t bytes, const char *name) {
    trace_buffer *b = &t->buffers[t->buffer_count];

    b->born = born;
    b->bytes = bytes;
    b->block = t->buffer_count++;
    b->where = name;
    b->line = e->time;
}

static inline int trace_add_event(trace *t, char *event, trace_events *e) {
    char *const step = trace_field(event, "\"filename\""), *const name = trace_field(event, "\"name\"");
    const int is_free = !strncmp(event, "free", 4);
    uint64_t size, address, clock, layer;
    trace_address *slot;

    if (!step || !name) return trace_fail(t, "an event has no frames");
    if (trace_number(trace_field(event, "\"line\""), &layer)) return trace_fail(t, "the line of an event is no number");
    if (trace_number(trace_field(event, "\"size\""), &size)) return trace_fail(t, "the size of an event is no number");
    if (trace_number(trace_field(event, "\"addr\""), &address)) return trace_fail(t, "the address of an event is no number");
    if (trace_number(trace_field(event, "\"time_us\""), &clock)) return trace_fail(t, "the time of an event is no number");
    if (!size || size > SIZE_MAX / 4) return trace_fail(t, "an event has no bytes, or too many");
    if (clock < e->clock) return trace_fail(t, "an event is earlier than the one before");
    e->clock = clock;
    step[strcspn(step, "\"")] = name[strcspn(name, "\"")] = 0;
    slot = trace_slot(e, address);
    if (is_free && slot->buffer == TRACE_FREED) return trace_fail(t, "a block is freed that is free already");
    if (!is_free && slot->buffer && slot->buffer != TRACE_FREED) return trace_fail(t, "a block is where another one is");
    if (!t->mark_count || strcmp(t->marks[t->mark_count - 1].name, step) || e->layer != layer) trace_mark_event(t, e, step);
    e->layer = (size_t)layer;
    if (!is_free || !slot->buffer) {
        trace_begin_buffer(t, e, is_free ? 0 : e->time, (size_t)size, name); /* 0: before the oldest event */
        slot->buffer = t->buffer_count;
    }
    if (!is_free) return 0;
    if (t->buffers[slot->buffer - 1].bytes != size) return trace_fail(t, "a block is freed with other bytes than it has");
    t->buffers[slot->buffer - 1].died = e->time;
    slot->buffer = TRACE_FREED;
    return 0;
}

static inline int trace_end_events(trace *t, const trace_events *e) {
    size_t i, sum = 0;

    t->end = e->time + 1;
    if (!t->buffer_count) return trace_fail(t, "the snapshot has no events: give the ledger an event_capacity");
    for (i = 0; i < t->buffer_count; ++i) {
        if (!t->buffers[i].died) t->buffers[i].died = t->end;
        t->line = t->buffers[i].line;
        if (t->buffers[i].bytes > SIZE_MAX / 4 - sum) return trace_fail(t, "the bytes of all buffers do not fit");
        sum += t->buffers[i].bytes;
    }
    return 0;
}

static inline int trace_is_whole(const char *text) { /* a snapshot: it ends with the lists of events, of devices, and itself */
    size_t length = strlen(text), closed;

    for (closed = 0; length > 0 && closed < 3; --length) {
        if (strchr(" \t\r\n", text[length - 1])) continue;
        if (text[length - 1] != "}]]"[closed]) return 0;
        ++closed;
    }
    return closed == 3;
}

static inline int trace_read_events(trace *t, char *text, size_t most) {
    static const char mark[] = "{\"action\": \"";
    char *event = strstr(text, mark);
    const int whole = !event || trace_is_whole(text);
    trace_events e;

    memset(&e, 0, sizeof e);
    t->lifetimes_only = 1;
    for (e.mask = 1; e.mask < 2 * most; e.mask *= 2) {}
    e.slots = (trace_address *)calloc(e.mask--, sizeof *e.slots);
    if (!e.slots) return trace_fail(t, "out of memory");
    while (event && !t->error) {
        char *next = strstr(event + 1, mark);

        if (next) *next = 0;
        event += sizeof mark - 1;
        t->line = ++e.time;
        if (!strncmp(event, "alloc", 5) || !strncmp(event, "free_completed", 14)) (void)trace_add_event(t, event, &e);
        if (next) *next = '{';
        event = next;
    }
    free(e.slots);
    if (t->error) return 1;
    return whole ? trace_end_events(t, &e) : trace_fail(t, "the snapshot is cut off");
}

/* Read a text, which is written into and must outlive the trace. 1: t->error tells why, and nothing is kept. */
static inline int trace_read(trace *t, char *text) {
    size_t lines = 1;
    const char *c;
    int failed;

    memset(t, 0, sizeof *t);
    for (c = text; *c; ++c) lines += *c == '\n' || *c == '{';
    failed = trace_take(t, lines);
    if (!failed) failed = *text == '{' ? trace_read_events(t, text, lines) : trace_read_lines(t, text);
    if (failed) trace_free(t);
    return failed;
}
#endif
