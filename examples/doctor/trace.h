/* trace.h - what doctor.h has recorded, or the events of a ledger's snapshot (MEMOPT_EXPORT_SNAPSHOT_JSON), as tables.

   The trace is lines of text; times count marks, allocations and frees:
       doctor 1
       mark TIME NAME                         the first mark is 0
       buffer BORN DIED BYTES BLOCK OFFSET WHERE      born 0: before the step; died = the end: after it
       touch MARK r|w|rw HASH                 of the buffer above: read, written, read and then written; hash: see doctor.h
       end TIME */
#ifndef DOCTOR_TRACE_H
#define DOCTOR_TRACE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trace_mark { size_t time; const char *name; } trace_mark;
typedef struct trace_touch { size_t mark; int read, write; uint64_t hash; } trace_touch; /* hash 0: zeros */
typedef struct trace_buffer {
    size_t born, died, bytes, block, offset;
    size_t touch, touch_count; /* in trace.touches */
    const char *where;
} trace_buffer;

typedef struct trace {
    trace_mark *marks;
    trace_buffer *buffers;
    trace_touch *touches;
    size_t mark_count, buffer_count, touch_count, end;
    int lifetimes_only;  /* of a ledger: who reads and writes is not known */
    size_t layer;        /* of the ledger's last event */
    size_t line;         /* where it is wrong */
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

static inline int trace_add_mark(trace *t, char *rest) {
    trace_mark *m = &t->marks[t->mark_count];

    if (t->buffer_count) return trace_fail(t, "a mark behind a buffer");
    if (trace_size(&rest, &m->time)) return trace_fail(t, "the time of a mark is no number");
    if (t->mark_count && m->time <= m[-1].time) return trace_fail(t, "marks are not in the order of time");
    m->name = rest + strspn(rest, " ");
    if (!*m->name) return trace_fail(t, "a mark has no name");
    ++t->mark_count;
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

static inline int trace_finish(trace *t, char *rest) {
    size_t i, sum = 0;

    if (trace_size(&rest, &t->end)) return trace_fail(t, "the end is no number");
    if (!t->mark_count) return trace_fail(t, "there is no mark");
    if (t->end <= t->marks[t->mark_count - 1].time) return trace_fail(t, "the end is before the last mark");
    for (i = 0; i < t->buffer_count; ++i) {
        if (t->buffers[i].died > t->end) return trace_fail(t, "a buffer dies after the end");
        if (t->buffers[i].bytes > SIZE_MAX / 4 - sum) return trace_fail(t, "the bytes of all buffers do not fit");
        sum += t->buffers[i].bytes;
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
        else if (!strcmp(word, "buffer")) { if (trace_add_buffer(t, line)) return 1; }
        else if (!strcmp(word, "touch")) { if (trace_add_touch(t, line)) return 1; }
        else if (strcmp(word, "end")) return trace_fail(t, "a line is mark, buffer, touch or end");
        else if (trace_finish(t, line)) return 1;
        else ended = 1;
    }
    return ended ? 0 : trace_fail(t, "the trace is cut off: there is no end");
}

/* ---- a ledger's snapshot: its events in order; a mark where step or layer change ---- */
/* The text behind "key": within an event; NULL: it has none. */
static inline char *trace_field(char *event, const char *key) {
    char *at = strstr(event, key);

    return at ? at + strlen(key) + strspn(at + strlen(key), ": \"") : NULL;
}

static inline int trace_add_event(trace *t, char *event, size_t time, uint64_t *addresses) {
    char *const size = trace_field(event, "\"size\""), *const address = trace_field(event, "\"addr\"");
    char *const step = trace_field(event, "\"filename\""), *const layer = trace_field(event, "\"line\"");
    char *const name = trace_field(event, "\"name\"");
    const uint64_t at = address ? strtoull(address, NULL, 10) : 0;
    size_t i = t->buffer_count;
    trace_buffer *b = &t->buffers[i];

    if (!size || !address || !step || !layer || !name) return trace_fail(t, "an event lacks size, address or frames");
    if (!strncmp(event, "free", 4)) {
        while (i-- > 0)
            if (addresses[i] == at && !t->buffers[i].died) {
                t->buffers[i].died = time;
                break;
            }
        return 0;
    }
    addresses[i] = at;
    b->born = time;
    b->bytes = (size_t)strtoull(size, NULL, 10);
    b->block = i;
    b->where = name;
    step[strcspn(step, "\"")] = name[strcspn(name, "\"")] = 0;
    if (!b->bytes || b->bytes > SIZE_MAX / 4) return trace_fail(t, "an event has no bytes, or too many");
    if (!t->mark_count || strcmp(t->marks[t->mark_count - 1].name, step) || t->layer != (size_t)strtoull(layer, NULL, 10)) {
        t->marks[t->mark_count].time = time;
        t->marks[t->mark_count++].name = step;
        t->layer = (size_t)strtoull(layer, NULL, 10);
    }
    ++t->buffer_count;
    return 0;
}

static inline int trace_read_events(trace *t, char *text, size_t most) {
    static const char mark[] = "{\"action\": \"";
    uint64_t *addresses = (uint64_t *)calloc(most, sizeof *addresses);
    char *event = strstr(text, mark);
    size_t time = 0, i;

    t->lifetimes_only = 1;
    if (!addresses) return trace_fail(t, "out of memory");
    for (; event && !t->error; ++time) {
        char *next = strstr(event + 1, mark);

        if (next) *next++ = 0;
        event += sizeof mark - 1;
        if (!strncmp(event, "alloc", 5) || !strncmp(event, "free", 4)) (void)trace_add_event(t, event, time + 1, addresses);
        event = next ? next - 1 : NULL;
        if (next) *event = '{';
    }
    free(addresses);
    t->end = time + 2;
    for (i = 0; i < t->buffer_count; ++i)
        if (!t->buffers[i].died) t->buffers[i].died = t->end;
    if (!t->error && !t->buffer_count) return trace_fail(t, "the snapshot has no events: give the ledger an event_capacity");
    return t->error != NULL;
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
