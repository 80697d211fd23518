/* plan_csv.h - the table of buffers that static memory planners exchange, as comma-separated text.

   The first line that is not empty names the columns, in any order; the rows follow, up to the first empty line or the
   end. No quotes, no comments, no spaces; lines end with \n or \r\n. Numbers are decimal, from 0 to 2^63 - 1.
     id, buffer, buffer_id   a name, kept as it is
     lower, begin, start     alive from this moment
     upper                   up to this one, not included;   end: the same, but included
     size                    bytes, at least 1
     alignment               optional: the offset is a multiple of it, at least 1
     offset                  optional: where it must lie; an empty field: anywhere
     hint                    optional: where it might lie; read and ignored
     gaps                    optional: lo-hi or lo-hi@from:to, separated by spaces: not used, or only bytes [from, to) used,
                             in [lo, hi). Read and checked; planned as if it were all used, which is valid but not tight
   Columns of other names are kept and ignored. A column may come once, under one of its names. */
#ifndef PLAN_CSV_H
#define PLAN_CSV_H
#include "memopt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_CSV_ID, PLAN_CSV_LOWER, PLAN_CSV_UPPER, PLAN_CSV_SIZE, PLAN_CSV_ALIGNMENT, PLAN_CSV_OFFSET, PLAN_CSV_HINT,
       PLAN_CSV_GAPS, PLAN_CSV_KINDS };
typedef struct plan_csv_text { const char *at; size_t length; } plan_csv_text; /* a piece of the file, no \0 at its end */
typedef struct plan_csv {
    memopt_plan_item *items; /* one a row */
    plan_csv_text    *rows;
    plan_csv_text     header;
    size_t count, column_count;
    size_t column[PLAN_CSV_KINDS]; /* where each kind stands; column_count: nowhere */
    int    inclusive;              /* `end` instead of `upper` */
    size_t line;                   /* what was wrong, and where */
    const char *error;
} plan_csv;

static inline int plan_csv_fail(plan_csv *csv, const char *error) { csv->error = error; return 1; }
static inline int plan_csv_is(plan_csv_text text, const char *word) {
    return text.length == strlen(word) && !memcmp(text.at, word, text.length);
}
/* Take the text up to the next `mark` off the front of *rest; 0 when nothing is left, not even an empty piece. */
static inline int plan_csv_next(plan_csv_text *rest, char mark, plan_csv_text *piece) {
    const char *end;
    if (!rest->at) return 0;
    end = rest->length ? (const char *)memchr(rest->at, mark, rest->length) : NULL;
    piece->at = rest->at;
    piece->length = end ? (size_t)(end - rest->at) : rest->length;
    rest->length -= piece->length;
    rest->at = end ? end + 1 : NULL;
    if (end) --rest->length;
    return 1;
}
static inline int plan_csv_next_line(plan_csv *csv, plan_csv_text *rest, plan_csv_text *line) {
    if (!plan_csv_next(rest, '\n', line)) return 0;
    ++csv->line;
    if (line->length && line->at[line->length - 1] == '\r') --line->length;
    return 1;
}
static inline int plan_csv_number(plan_csv_text text, size_t *out) { /* 1: no number, or too large */
    uint64_t value = 0; size_t i;
    if (!text.length) return 1;
    for (i = 0; i < text.length; ++i) {
        const unsigned digit = (unsigned)(unsigned char)text.at[i] - '0';
        if (digit > 9 || value > ((uint64_t)INT64_MAX - digit) / 10) return 1;
        value = value * 10 + digit;
    }
    *out = (size_t)value;
    return *out != value;
}
static inline int plan_csv_header(plan_csv *csv) {
    static const struct { const char *name; int kind; } names[] = {
        { "id", PLAN_CSV_ID }, { "buffer", PLAN_CSV_ID }, { "buffer_id", PLAN_CSV_ID }, { "lower", PLAN_CSV_LOWER },
        { "begin", PLAN_CSV_LOWER }, { "start", PLAN_CSV_LOWER }, { "upper", PLAN_CSV_UPPER }, { "end", PLAN_CSV_UPPER },
        { "size", PLAN_CSV_SIZE }, { "alignment", PLAN_CSV_ALIGNMENT }, { "offset", PLAN_CSV_OFFSET },
        { "hint", PLAN_CSV_HINT }, { "gaps", PLAN_CSV_GAPS }
    };
    plan_csv_text rest = csv->header, name; size_t i, kind, seen[PLAN_CSV_KINDS];
    memset(seen, 0, sizeof seen);
    for (csv->column_count = 0; plan_csv_next(&rest, ',', &name); ++csv->column_count)
        for (i = 0; i < sizeof names / sizeof names[0]; ++i) {
            if (!plan_csv_is(name, names[i].name)) continue;
            if (seen[names[i].kind]++) return plan_csv_fail(csv, "the header names a column twice");
            csv->column[names[i].kind] = csv->column_count;
            if (!strcmp(names[i].name, "end")) csv->inclusive = 1;
        }
    for (kind = 0; kind < PLAN_CSV_KINDS; ++kind)
        if (!seen[kind]) csv->column[kind] = csv->column_count;
    for (kind = PLAN_CSV_ID; kind <= PLAN_CSV_SIZE; ++kind)
        if (!seen[kind]) return plan_csv_fail(csv, "the header lacks id, lower, upper or size");
    return 0;
}
/* lo-hi, or with another mark between the two; 1: wrong. The second one must be larger. */
static inline int plan_csv_range(plan_csv_text text, char mark, size_t more, size_t *from, size_t *to) {
    plan_csv_text piece;
    if (!plan_csv_next(&text, mark, &piece) || plan_csv_number(piece, from) || !text.at || plan_csv_number(text, to)) return 1;
    *to += more; /* a wrap to 0 is refused too */
    return *to <= *from;
}
static inline int plan_csv_gaps(plan_csv *csv, plan_csv_text text, const memopt_plan_item *item) {
    plan_csv_text gap, time; size_t from, to;
    if (!text.length) return 0;
    while (plan_csv_next(&text, ' ', &gap)) {
        plan_csv_next(&gap, '@', &time);
        if (plan_csv_range(time, '-', (size_t)csv->inclusive, &from, &to) || from < item->first || to > item->last)
            return plan_csv_fail(csv, "a gap is not lo-hi within the lifetime");
        if (gap.at && (plan_csv_range(gap, ':', 0, &from, &to) || to > item->size))
            return plan_csv_fail(csv, "the window of a gap is not from:to within the size");
    }
    return 0;
}
static inline int plan_csv_row(plan_csv *csv, plan_csv_text row, memopt_plan_item *item) {
    plan_csv_text field[PLAN_CSV_KINDS + 1], rest = row, piece; size_t at, kind, ignored;
    for (kind = 0; kind <= PLAN_CSV_KINDS; ++kind) { field[kind].at = NULL; field[kind].length = 0; }
    for (at = 0; plan_csv_next(&rest, ',', &piece); ++at)
        for (kind = 0; kind < PLAN_CSV_KINDS; ++kind)
            if (csv->column[kind] == at && at < csv->column_count) field[kind] = piece;
    if (at != csv->column_count) return plan_csv_fail(csv, "the row has not as many fields as the header");
    memset(item, 0, sizeof *item);
    if (plan_csv_number(field[PLAN_CSV_LOWER], &item->first) || plan_csv_number(field[PLAN_CSV_UPPER], &item->last)
        || plan_csv_number(field[PLAN_CSV_SIZE], &item->size))
        return plan_csv_fail(csv, "lower, upper or size is no number from 0 to 2^63 - 1");
    if (csv->inclusive) {
        const uint64_t upper = (uint64_t)item->last + 1;
        item->last = (size_t)upper;
        if (item->last != upper || upper > (uint64_t)INT64_MAX) return plan_csv_fail(csv, "end is too large");
    }
    if (item->first >= item->last) return plan_csv_fail(csv, "the lifetime is empty");
    if (!item->size) return plan_csv_fail(csv, "the size is 0");
    if (field[PLAN_CSV_ALIGNMENT].at && (plan_csv_number(field[PLAN_CSV_ALIGNMENT], &item->alignment) || !item->alignment))
        return plan_csv_fail(csv, "alignment is no number from 1 to 2^63 - 1");
    if (field[PLAN_CSV_HINT].length && plan_csv_number(field[PLAN_CSV_HINT], &ignored))
        return plan_csv_fail(csv, "hint is no number from 0 to 2^63 - 1");
    if (field[PLAN_CSV_OFFSET].length) {
        if (plan_csv_number(field[PLAN_CSV_OFFSET], &item->offset)) return plan_csv_fail(csv, "offset is no number from 0 to 2^63 - 1");
        if (item->alignment && item->offset % item->alignment) return plan_csv_fail(csv, "the offset is no multiple of the alignment");
        item->fixed = 1;
    }
    return plan_csv_gaps(csv, field[PLAN_CSV_GAPS], item);
}
static inline void plan_csv_free(plan_csv *csv) {
    free(csv->items); free(csv->rows);
    csv->items = NULL; csv->rows = NULL; csv->count = 0;
}
/* Read a table; 1: csv->error tells what is wrong and csv->line where, and nothing is kept. `text` must outlive csv. */
static inline int plan_csv_parse(plan_csv *csv, const char *text, size_t length) {
    plan_csv_text rest, line; size_t lines = 1, i;
    memset(csv, 0, sizeof *csv);
    for (i = 0; i < length; ++i) lines += text[i] == '\n';
    csv->items = (memopt_plan_item *)calloc(lines, sizeof *csv->items);
    csv->rows = (plan_csv_text *)calloc(lines, sizeof *csv->rows);
    if (!csv->items || !csv->rows) { plan_csv_free(csv); return plan_csv_fail(csv, "out of memory"); }
    rest.at = text; rest.length = length;
    while (plan_csv_next_line(csv, &rest, &csv->header) && !csv->header.length) {}
    if (!csv->header.length) { plan_csv_free(csv); return plan_csv_fail(csv, "there is no header"); }
    if (plan_csv_header(csv)) { plan_csv_free(csv); return 1; }
    while (plan_csv_next_line(csv, &rest, &line) && line.length) {
        if (plan_csv_row(csv, line, &csv->items[csv->count])) { plan_csv_free(csv); return 1; }
        csv->rows[csv->count++] = line;
    }
    return 0;
}
/* Write the rows as they were, with the offsets of the items in the column `offset`, which is added when missing. */
static inline void plan_csv_write_row(const plan_csv *csv, FILE *file, plan_csv_text row, const char *offset) {
    plan_csv_text piece; size_t at;
    for (at = 0; plan_csv_next(&row, ',', &piece); ++at) {
        if (at) fputc(',', file);
        if (at == csv->column[PLAN_CSV_OFFSET]) fputs(offset, file);
        else if (piece.length) fwrite(piece.at, 1, piece.length, file);
    }
    if (csv->column[PLAN_CSV_OFFSET] == csv->column_count) fprintf(file, ",%s", offset);
    fputc('\n', file);
}
static inline int plan_csv_write(const plan_csv *csv, FILE *file) { /* 1: the file said no */
    size_t i; char number[32];
    plan_csv_write_row(csv, file, csv->header, "offset");
    for (i = 0; i < csv->count; ++i) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)csv->items[i].offset);
        plan_csv_write_row(csv, file, csv->rows[i], number);
    }
    return fflush(file) != 0 || ferror(file);
}
#endif
