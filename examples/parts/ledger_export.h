/* ledger_export.h - what a ledger knows, for the viewers that people have: PyTorch's memory viewer, Perfetto, Chrome.

   What it writes  LEDGER_SNAPSHOT_JSON: the fields of PyTorch's memory snapshot. LEDGER_SNAPSHOT_PICKLE: the same in
                   Python's own format, which the viewer opens (pytorch.org/memory_viz). LEDGER_TRACE_JSON: a counter
                   for each tag over time, for ui.perfetto.dev and chrome://tracing.
   How to use      Give the ledger a block_capacity (what is live, for a snapshot) and an event_capacity (what happened,
                   for both), and call ledger_export(ledger, LEDGER_TRACE_JSON, file) with a file opened "wb".
   What it costs   Memory: a pointer for each live block. Time: live blocks times reservations.
   How it works    One walk writes a document of dicts, lists, texts and numbers; JSON and pickle (protocol 2) differ in
                   how each of these begins and ends. See snapshot.c. */
#ifndef PARTS_LEDGER_EXPORT_H
#define PARTS_LEDGER_EXPORT_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef enum ledger_format { LEDGER_SNAPSHOT_JSON, LEDGER_SNAPSHOT_PICKLE, LEDGER_TRACE_JSON } ledger_format;

enum { LEDGER_TAGS = 4096 }; /* a ledger has no more */

/* ---- documents ---- */

typedef struct ledger_document {
    const memopt_ledger *ledger;
    const memopt_ledger_block **blocks; /* by address */
    size_t block_count;
    FILE *file;
    int pickle;
    int comma; /* JSON: one is due before the next item */
} ledger_document;

static inline void ledger_put(ledger_document *d, const char *json, const char *pickle) {
    fputs(d->pickle ? pickle : json, d->file);
}

static inline void ledger_little_endian(ledger_document *d, uint64_t n, int bytes) {
    for (; bytes > 0; --bytes, n >>= 8) fputc((int)(n & 0xff), d->file);
}

static inline void ledger_item(ledger_document *d) {
    if (d->comma) ledger_put(d, ", ", "");
    d->comma = 1;
}

static inline void ledger_begin_dict(ledger_document *d) {
    ledger_item(d);
    ledger_put(d, "{", "}(");
    d->comma = 0;
}

static inline void ledger_end_dict(ledger_document *d) {
    ledger_put(d, "}", "u");
    d->comma = 1;
}

static inline void ledger_begin_list(ledger_document *d) {
    ledger_item(d);
    ledger_put(d, "[", "](");
    d->comma = 0;
}

static inline void ledger_end_list(ledger_document *d) {
    ledger_put(d, "]", "e");
    d->comma = 1;
}

/* A long list is filled a thousand items at a time, as Python does: the viewer takes each as arguments of a call. */
static inline void ledger_pause(ledger_document *d, uint64_t done) {
    if (done % 1000 == 999) ledger_put(d, "", "e(");
}

/* The bytes of the character that a text begins with, as UTF-8 (RFC 3629); 0 where it is a control character, the end,
   or no UTF-8: cut off, too long, a surrogate, above U+10FFFF. */
static inline size_t ledger_utf8(const char *text) {
    const unsigned char *t = (const unsigned char *)text;
    const size_t bytes = t[0] < 0x80 ? 1 : t[0] < 0xC2 ? 0 : t[0] < 0xE0 ? 2 : t[0] < 0xF0 ? 3 : t[0] < 0xF5 ? 4 : 0;
    size_t i;

    if (bytes == 1) return t[0] >= ' ' && t[0] != 0x7F;
    for (i = 1; i < bytes; ++i)
        if ((t[i] & 0xC0) != 0x80) return 0;
    if ((t[0] == 0xE0 && t[1] < 0xA0) || (t[0] == 0xED && t[1] > 0x9F)) return 0;
    if ((t[0] == 0xF0 && t[1] < 0x90) || (t[0] == 0xF4 && t[1] > 0x8F)) return 0;
    return bytes;
}

/* Names may hold anything: UTF-8 is written through; control characters and bytes that are no UTF-8 become question
   marks. The length stays, which a pickle tells before the text. */
static inline void ledger_text_item(ledger_document *d, const char *text) {
    const size_t length = strlen(text);
    size_t i, bytes;

    ledger_item(d);
    ledger_put(d, "\"", "X");
    if (d->pickle) ledger_little_endian(d, length, 4);
    for (i = 0; i < length; i += bytes ? bytes : 1) {
        bytes = ledger_utf8(text + i);
        if (text[i] == '"' || text[i] == '\\') ledger_put(d, "\\", "");
        fwrite(bytes ? text + i : "?", 1, bytes ? bytes : 1, d->file);
    }
    ledger_put(d, "\"", "");
}

static inline void ledger_number(ledger_document *d, uint64_t n) {
    int bytes = 1;

    ledger_item(d);
    if (!d->pickle) {
        fprintf(d->file, "%llu", (unsigned long long)n);
        return;
    }
    if (n <= 0x7fffffff) {
        fputc('J', d->file);
        ledger_little_endian(d, n, 4);
        return;
    }
    /* with a sign bit, and no more than it needs: the viewer cannot add numbers of 9 bytes to numbers of 8 */
    while (bytes < 9 && n >> (8 * bytes - 1)) ++bytes;
    fputc(0x8a, d->file);
    ledger_little_endian(d, (uint64_t)bytes, 1);
    ledger_little_endian(d, n, bytes);
}

static inline void ledger_key(ledger_document *d, const char *key) {
    ledger_text_item(d, key);
    ledger_put(d, ": ", "");
    d->comma = 0;
}

static inline void ledger_field(ledger_document *d, const char *key, uint64_t n) {
    ledger_key(d, key);
    ledger_number(d, n);
}

static inline void ledger_text_field(ledger_document *d, const char *key, const char *text) {
    ledger_key(d, key);
    ledger_text_item(d, text);
}

/* The two zeros of the pool that everything is in: a tuple, because scripts compare it with one. */
static inline void ledger_pool(ledger_document *d, const char *key) {
    ledger_key(d, key);
    ledger_put(d, "[", "");
    ledger_number(d, 0);
    ledger_number(d, 0);
    ledger_put(d, "]", "\x86");
    d->comma = 1;
}

/* ---- the snapshot ----
   A "stack frame" is where a block comes from: tag and name, step, layer. Blocks that lie in a segment tile it together
   with the free bytes between them; a block that lies in none is a segment of its own. A block that overlaps the one
   before it, or the segment's end, is left out: a segment is never more than full. */

static inline uint64_t ledger_address(const void *p) { return (uintptr_t)p; }

static inline int ledger_by_address(const void *a, const void *b) { /* for qsort() */
    const uint64_t x = ledger_address((*(const memopt_ledger_block *const *)a)->address);
    const uint64_t y = ledger_address((*(const memopt_ledger_block *const *)b)->address);

    return (x > y) - (x < y);
}

/* The smallest segment that an address lies in, since a source may stand on a block of another; NULL: none. */
static inline const memopt_ledger_segment *ledger_segment_of(const memopt_ledger *ledger, const void *address) {
    const memopt_ledger_segment *best = NULL;
    const memopt_ledger_segment *s = NULL;

    while ((s = memopt_ledger_next_segment(ledger, s)) != NULL) {
        const uint64_t offset = ledger_address(address) - ledger_address(s->base);

        if (offset < s->reserved && (!best || s->reserved < best->reserved)) best = s;
    }
    return best;
}

static inline void ledger_frame(ledger_document *d, const char *filename, uint32_t line, const char *name) {
    ledger_begin_dict(d);
    ledger_text_field(d, "filename", filename);
    ledger_field(d, "line", line);
    ledger_text_field(d, "name", name);
    ledger_end_dict(d);
}

static inline void ledger_frames(ledger_document *d, memopt_tag tag, const char *name, uint32_t step, uint32_t layer) {
    const char *const tag_name = memopt_ledger_tag_name(d->ledger, tag);
    char where[32];

    snprintf(where, sizeof where, "step %lu", (unsigned long)step);
    ledger_key(d, "frames");
    ledger_begin_list(d);
    ledger_frame(d, where, layer, name ? name : tag_name);
    ledger_frame(d, "memopt", tag, tag_name);
    ledger_end_list(d);
}

static inline void ledger_no_frames(ledger_document *d) {
    ledger_key(d, "frames");
    ledger_begin_list(d);
    ledger_end_list(d);
}

/* A live block, or with NULL free bytes. */
static inline void ledger_block(ledger_document *d, uint64_t address, uint64_t bytes, const memopt_ledger_block *b) {
    ledger_begin_dict(d);
    ledger_field(d, "address", address);
    ledger_field(d, "size", bytes);
    ledger_field(d, "requested_size", b ? bytes : 0);
    ledger_text_field(d, "state", b ? "active_allocated" : "inactive");
    if (b) ledger_frames(d, b->tag, b->name, b->step, b->layer);
    else ledger_no_frames(d);
    ledger_end_dict(d);
}

/* The first of blocks[i..last) that lies in the segment, in its bytes from `at` on; or last. Without a segment: i. */
static inline size_t ledger_next_inside(const ledger_document *d, const memopt_ledger_segment *s, uint64_t at,
                                        size_t i, size_t last) {
    for (; s && i < last; ++i) {
        const memopt_ledger_block *b = d->blocks[i];
        const uint64_t offset = ledger_address(b->address) - ledger_address(s->base);

        if (offset >= at && b->bytes <= s->reserved - offset && ledger_segment_of(d->ledger, b->address) == s) break;
    }
    return i;
}

static inline void ledger_blocks(ledger_document *d, const memopt_ledger_segment *s, size_t first, size_t last) {
    const uint64_t base = ledger_address(s ? s->base : d->blocks[first]->address);
    uint64_t at = 0;
    uint64_t done = 0;
    size_t i;

    ledger_begin_list(d);
    for (i = first; (i = ledger_next_inside(d, s, at, i, last)) < last; ++i) {
        const memopt_ledger_block *b = d->blocks[i];
        const uint64_t offset = ledger_address(b->address) - base;

        if (offset > at) ledger_block(d, base + at, offset - at, NULL);
        ledger_block(d, base + offset, b->bytes, b);
        at = offset + b->bytes;
        ledger_pause(d, done++);
    }
    if (s && s->reserved > at) ledger_block(d, base + at, s->reserved - at, NULL);
    ledger_end_list(d);
}

/* A segment with those of blocks[first..last) that lie in it; NULL: the block `first` alone. */
static inline void ledger_segment(ledger_document *d, const memopt_ledger_segment *s, size_t first, size_t last) {
    uint64_t at = 0;
    uint64_t active = 0;
    size_t i;

    for (i = first; (i = ledger_next_inside(d, s, at, i, last)) < last; ++i) {
        active += d->blocks[i]->bytes;
        if (s) at = ledger_address(d->blocks[i]->address) - ledger_address(s->base) + d->blocks[i]->bytes;
    }
    ledger_begin_dict(d);
    ledger_field(d, "device", 0);
    ledger_field(d, "address", ledger_address(s ? s->base : d->blocks[first]->address));
    ledger_field(d, "total_size", s ? s->reserved : active);
    ledger_field(d, "allocated_size", active);
    ledger_field(d, "active_size", active);
    ledger_field(d, "requested_size", active);
    ledger_field(d, "stream", 0);
    ledger_text_field(d, "segment_type", "large");
    ledger_pool(d, "segment_pool_id");
    ledger_no_frames(d);
    ledger_key(d, "blocks");
    ledger_blocks(d, s, first, last);
    ledger_end_dict(d);
}

static inline void ledger_segments(ledger_document *d) {
    const memopt_ledger_segment *s = NULL;
    uint64_t done = 0;
    size_t first, last;

    ledger_key(d, "segments");
    ledger_begin_list(d);
    while ((s = memopt_ledger_next_segment(d->ledger, s)) != NULL) {
        const uint64_t base = ledger_address(s->base);

        for (first = 0; first < d->block_count && ledger_address(d->blocks[first]->address) < base; ++first) {}
        for (last = first; last < d->block_count; ++last)
            if (ledger_address(d->blocks[last]->address) - base >= s->reserved) break;
        ledger_segment(d, s, first, last);
        ledger_pause(d, done++);
    }
    for (first = 0; first < d->block_count; ++first) {
        if (ledger_segment_of(d->ledger, d->blocks[first]->address)) continue;
        ledger_segment(d, NULL, first, first + 1);
        ledger_pause(d, done++);
    }
    ledger_end_list(d);
}

static inline void ledger_event(ledger_document *d, const memopt_ledger_event *e, const char *action) {
    const int failed = e->kind == MEMOPT_LEDGER_FAILED;

    ledger_begin_dict(d);
    ledger_text_field(d, "action", action);
    ledger_field(d, "addr", failed ? 0 : ledger_address(e->address));
    ledger_field(d, "size", e->bytes);
    ledger_field(d, "stream", 0);
    ledger_field(d, "time_us", e->time / 1000);
    if (failed) ledger_field(d, "device_free", ledger_address(e->address));
    ledger_pool(d, "pool_id");
    ledger_frames(d, e->tag, e->name, e->step, e->layer);
    ledger_end_dict(d);
}

static inline void ledger_events(ledger_document *d, const memopt_ledger_event *e) {
    switch (e->kind) {
    case MEMOPT_LEDGER_ALLOC:
        if (e->alone) ledger_event(d, e, "segment_alloc");
        ledger_event(d, e, "alloc");
        break;
    case MEMOPT_LEDGER_FREE:
        ledger_event(d, e, "free_requested");
        ledger_event(d, e, "free_completed");
        if (e->alone) ledger_event(d, e, "segment_free");
        break;
    case MEMOPT_LEDGER_FAILED:
        ledger_event(d, e, "oom");
        break;
    case MEMOPT_LEDGER_RESERVE:
        ledger_event(d, e, "segment_alloc");
        break;
    case MEMOPT_LEDGER_RELEASE:
        ledger_event(d, e, "segment_free");
        break;
    default:
        break; /* a retry has no name there */
    }
}

static inline void ledger_snapshot(ledger_document *d) {
    const memopt_ledger_event *e = NULL;
    uint64_t done = 0;

    ledger_put(d, "", "\x80\x02");
    ledger_begin_dict(d);
    ledger_segments(d);
    ledger_key(d, "device_traces");
    ledger_begin_list(d);
    ledger_begin_list(d);
    while ((e = memopt_ledger_next_event(d->ledger, e)) != NULL) {
        ledger_events(d, e);
        ledger_pause(d, done++);
    }
    ledger_end_list(d);
    ledger_end_list(d);
    ledger_end_dict(d);
    ledger_put(d, "", ".");
}

/* Takes and sorts the blocks, and writes the snapshot. */
static inline memopt_status ledger_write_snapshot(ledger_document *d) {
    const memopt_ledger_block *b = NULL;
    size_t i = 0;

    while ((b = memopt_ledger_next_block(d->ledger, b)) != NULL) ++d->block_count;
    if (d->block_count) {
        d->blocks = (const memopt_ledger_block **)malloc(d->block_count * sizeof *d->blocks);
        if (!d->blocks) return MEMOPT_ERR_MEMORY;
        while ((b = memopt_ledger_next_block(d->ledger, b)) != NULL) d->blocks[i++] = b;
        qsort((void *)d->blocks, d->block_count, sizeof *d->blocks, ledger_by_address);
    }
    ledger_snapshot(d);
    free((void *)d->blocks);
    return MEMOPT_OK;
}

/* ---- the trace ----
   The running sum of each tag as a counter; steps and failures as instants. The oldest events may be lost, so the sums
   begin with what is live now, less what the events say came and went. */

static inline void ledger_trace_event(ledger_document *d, const char *name, const char *phase, uint64_t time,
                                      const char *key, uint64_t value) {
    ledger_begin_dict(d);
    ledger_text_field(d, "name", name);
    ledger_text_field(d, "ph", phase);
    if (*phase == 'i') ledger_text_field(d, "s", "g");
    ledger_field(d, "pid", 0);
    ledger_field(d, "tid", 0);
    ledger_field(d, "ts", time / 1000);
    ledger_key(d, "args");
    ledger_begin_dict(d);
    ledger_field(d, key, value);
    ledger_end_dict(d);
    ledger_end_dict(d);
}

/* Does an event change what a tag holds? */
static inline int ledger_moves(const memopt_ledger_event *e, memopt_tag tag) {
    return e->tag == tag && (e->kind == MEMOPT_LEDGER_ALLOC || e->kind == MEMOPT_LEDGER_FREE);
}

static inline void ledger_trace_tag(ledger_document *d, memopt_tag tag) {
    const char *name = memopt_ledger_tag_name(d->ledger, tag);
    const memopt_ledger_event *first = memopt_ledger_next_event(d->ledger, NULL);
    const memopt_ledger_event *e = NULL;
    uint64_t sum = memopt_ledger_usage(d->ledger, tag).now;
    int any = sum != 0;

    while ((e = memopt_ledger_next_event(d->ledger, e)) != NULL) { /* back to what it was before the first event */
        if (!ledger_moves(e, tag)) continue;
        sum = e->kind == MEMOPT_LEDGER_ALLOC ? sum - e->bytes : sum + e->bytes;
        any = 1;
    }
    if (!any || !first) return;
    ledger_trace_event(d, name, "C", first->time, "bytes", sum);
    while ((e = memopt_ledger_next_event(d->ledger, e)) != NULL) {
        if (!ledger_moves(e, tag)) continue;
        sum = e->kind == MEMOPT_LEDGER_ALLOC ? sum + e->bytes : sum - e->bytes;
        ledger_trace_event(d, name, "C", e->time, "bytes", sum);
    }
}

static inline void ledger_trace(ledger_document *d) {
    const memopt_ledger_event *e = NULL;
    uint32_t step = 0;
    memopt_tag tag;
    int first = 1;

    ledger_begin_dict(d);
    ledger_text_field(d, "displayTimeUnit", "ms");
    ledger_key(d, "traceEvents");
    ledger_begin_list(d);
    for (tag = 0; tag < LEDGER_TAGS; ++tag)
        if (memopt_ledger_usage(d->ledger, tag).allocs) ledger_trace_tag(d, tag);
    while ((e = memopt_ledger_next_event(d->ledger, e)) != NULL) {
        if (first || e->step != step) ledger_trace_event(d, "step", "i", e->time, "step", e->step);
        first = 0;
        step = e->step;
        if (e->kind == MEMOPT_LEDGER_FAILED) ledger_trace_event(d, "out of memory", "i", e->time, "bytes", e->bytes);
        if (e->kind == MEMOPT_LEDGER_RETRIED) ledger_trace_event(d, "retried", "i", e->time, "bytes", e->bytes);
    }
    ledger_end_list(d);
    ledger_end_dict(d);
}

/* Writes what the ledger knows. OK, ERR_ARGUMENT (NULL, no such format), ERR_MEMORY; ERR_IO: `file` could not be
   written. */
static inline memopt_status ledger_export(const memopt_ledger *ledger, ledger_format format, FILE *file) {
    memopt_status status = MEMOPT_OK;
    ledger_document d;

    if (!ledger || !file) return MEMOPT_ERR_ARGUMENT;
    memset(&d, 0, sizeof d);
    d.ledger = ledger;
    d.file = file;
    d.pickle = format == LEDGER_SNAPSHOT_PICKLE;
    switch (format) {
    case LEDGER_SNAPSHOT_JSON:
    case LEDGER_SNAPSHOT_PICKLE:
        status = ledger_write_snapshot(&d);
        break;
    case LEDGER_TRACE_JSON:
        ledger_trace(&d);
        break;
    default: return MEMOPT_ERR_ARGUMENT;
    }
    return !status && ferror(file) ? MEMOPT_ERR_IO : status;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
