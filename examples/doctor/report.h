/* report.h - findings as text: what was found, first the largest; what each way would hold; bytes over time. */
#ifndef DOCTOR_REPORT_H
#define DOCTOR_REPORT_H

enum { REPORT_ROWS = 12, REPORT_BAR = 48, REPORT_MARKS = 40 };

typedef struct report_row { char what[96]; const char *where; size_t bytes, count; } report_row;
typedef struct report_rows { /* slots: the number of a row + 1, by the hash of its words; 0: free */
    report_row *rows;
    size_t *slots, count, room, failed;
} report_rows;

static inline double report_mb(size_t bytes) { return (double)bytes * 1e-6; }

static inline size_t report_hash(size_t hash, const char *text) {
    for (; *text; ++text) hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash ^ hash >> 15;
}

static inline size_t report_slot(const report_rows *r, const char *what, const char *where) {
    size_t i = report_hash(report_hash(2166136261u, what), where) & (2 * r->room - 1);

    while (r->slots[i] && (strcmp(r->rows[r->slots[i] - 1].what, what) || strcmp(r->rows[r->slots[i] - 1].where, where)))
        i = (i + 1) & (2 * r->room - 1);
    return i;
}

static inline int report_grow(report_rows *r) { /* room is a power of two; 1: no memory */
    const size_t room = r->room ? 2 * r->room : 64;
    report_row *rows = room > SIZE_MAX / 4 / sizeof *rows ? NULL : (report_row *)realloc(r->rows, room * sizeof *rows);
    size_t i;

    if (!rows) return 1;
    r->rows = rows;
    free(r->slots);
    r->slots = (size_t *)calloc(2 * room, sizeof *r->slots);
    r->room = r->slots ? room : 0;
    for (i = 0; i < r->count && r->slots; ++i) r->slots[report_slot(r, rows[i].what, rows[i].where)] = i + 1;
    return !r->slots;
}

static inline void report_add(report_rows *r, const char *what, const char *where, size_t bytes) {
    size_t slot;
    report_row *row;

    if (!r->failed && r->count == r->room) r->failed = (size_t)report_grow(r);
    if (r->failed) return;
    slot = report_slot(r, what, where);
    if (!r->slots[slot]) {
        row = &r->rows[r->count];
        memset(row, 0, sizeof *row);
        snprintf(row->what, sizeof row->what, "%s", what);
        row->where = where;
        r->slots[slot] = ++r->count;
    }
    row = &r->rows[r->slots[slot] - 1];
    row->bytes += bytes;
    ++row->count;
}

static inline int report_by_bytes(const void *a, const void *b) {
    const report_row *x = (const report_row *)a;
    const report_row *y = (const report_row *)b;

    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->what, y->what) ? strcmp(x->what, y->what) : strcmp(x->where, y->where);
}

static inline void report_words(char *what, size_t room, const trace *t, const char *before, size_t mark, const char *after) {
    snprintf(what, room, "%s%.*s%s", before, (int)(t->marks[mark].phase < 40 ? t->marks[mark].phase : 40),
             t->marks[mark].name, after);
}

/* What a buffer is, in words; empty: nothing can be said against it. */
static inline void report_kind(const findings *f, size_t buffer, char *what, size_t room) {
    const trace *t = f->t;
    const finding_value *v = &f->values[f->values_from[buffer]];
    const trace_touch *x = t->touches;
    size_t length, i;

    *what = 0;
    switch ((finding_kind)f->kinds[buffer]) {
    case FINDING_UNUSED: snprintf(what, room, "%s", t->buffers[buffer].touch_count ? "zeroed, and never used" : "never used"); break;
    case FINDING_MARK: report_words(what, room, t, "used at one mark of ", x[v->touch].mark, " only"); break;
    case FINDING_PHASE: report_words(what, room, t, "used at some marks of ", x[v->touch].mark, " only"); break;
    case FINDING_IDLE:
        snprintf(what, room, "holds values of several phases, each for one");
        for (; v < f->values + f->values_from[buffer + 1]; ++v)
            for (i = v->touch + 1; i < v->touch + v->touch_count; ++i) {
                if (finding_same_phase(t, x[i].mark, x[i - 1].mark)) continue;
                report_words(what, room, t, "written in ", x[i - 1].mark, ", idle until ");
                length = strlen(what);
                report_words(what + length, room - length, t, "", x[i].mark, "");
                return;
            }
        break;
    default: break;
    }
}

static inline int report_findings(const findings *f, FILE *out) { /* 1: no memory */
    const trace *t = f->t;
    report_rows r;
    char what[96];
    size_t i;

    memset(&r, 0, sizeof r);
    for (i = 0; i < t->buffer_count; ++i) {
        const trace_buffer *b = &t->buffers[i];

        report_kind(f, i, what, sizeof what);
        if (*what) report_add(&r, what, b->where, b->bytes);
        if (f->early[i]) report_add(&r, "zeroed before the mark that first uses it", b->where, b->bytes);
        if (f->cheap[i]) report_add(&r, "backward can make it again from what is there, cheaply", b->where, b->bytes);
        if (f->twice[i]) report_add(&r, "written twice, not read at a mark between", b->where, b->bytes);
    }
    for (i = 0; i < f->mirror_count; ++i) {
        const trace_buffer *b = &t->buffers[f->mirrors[i].buffer];

        snprintf(what, sizeof what, "mirrored: the same bytes as one of %.50s", t->buffers[f->mirrors[i].of].where);
        report_add(&r, what, b->where, b->bytes);
    }
    if (r.count) qsort(r.rows, r.count, sizeof *r.rows, report_by_bytes);
    if (!r.failed) fprintf(out, "%10s %8s  finding\n", "MB", "buffers");
    for (i = 0; !r.failed && i < r.count && i < REPORT_ROWS; ++i)
        fprintf(out, "%10.3f %8lu  %s (%s)\n", report_mb(r.rows[i].bytes), (unsigned long)r.rows[i].count, r.rows[i].what,
                r.rows[i].where);
    if (!r.failed && r.count > REPORT_ROWS)
        fprintf(out, "%10s %8s  and %lu smaller ones\n", "", "", (unsigned long)(r.count - REPORT_ROWS));
    if (!r.failed && !t->lifetimes_only)
        fprintf(out, "%10.3f %8s  kept from step to step\n", report_mb(f->bytes[FINDING_KEPT]), "");
    free(r.rows);
    free(r.slots);
    return r.failed != 0;
}

/* What a way is, in words. */
static inline void report_way(const findings *f, finding_way way, char *note, size_t room) {
    const double whole = f->t->cost ? (double)f->t->cost / 100 : 0;
    size_t length;

    switch (way) {
    case FINDING_ARENA: snprintf(note, room, "an arena, pushed and rewound at marks"); break;
    case FINDING_PLAN:
        snprintf(note, room, "a plan of %lu values%s", (unsigned long)f->value_count,
                 f->value_count > FINDING_MANY ? ": so many, as memopt_heap places them" : "");
        break;
    case FINDING_IN_PLACE:
        snprintf(note, room, "a plan, and %lu values in place, if their operators can", (unsigned long)f->pairs);
        break;
    case FINDING_CHEAP:
        snprintf(note, room, "a plan, and %lu values made again from what is there", (unsigned long)f->cheap_count);
        break;
    case FINDING_STEP:
        snprintf(note, room, "a plan, and the step inside backward for %lu gradients", (unsigned long)f->early_steps);
        break;
    default: snprintf(note, room, "a plan, and a tape: backward makes %lu values again", (unsigned long)f->again); break;
    }
    length = strlen(note);
    if (whole > 0 && (way == FINDING_CHEAP || way == FINDING_TAPE))
        snprintf(note + length, room - length, ", %.1f %% more time",
                 (double)(way == FINDING_CHEAP ? f->cheap_cost : f->again_cost) / whole);
}

/* Whether a way changes anything, and holds less than all that costs less: the arena and the plan cost nothing. */
static inline int report_is_worth(const findings *f, finding_way way) {
    const size_t news[FINDING_WAYS] = { 1, 1, f->pairs, f->cheap_count, f->early_steps, f->again };
    const size_t arena = f->peaks[FINDING_ARENA], plan = f->peaks[FINDING_PLAN], holds = f->peaks[way];
    const int tape_is_dearer = f->again_cost >= f->cheap_cost;

    if (!news[way] || holds >= f->held) return 0;
    if (way == FINDING_ARENA || way == FINDING_PLAN) return 1;
    if (holds >= (arena < plan ? arena : plan)) return 0;
    if (way == FINDING_TAPE) return !(news[FINDING_CHEAP] && tape_is_dearer && holds >= f->peaks[FINDING_CHEAP]);
    return way != FINDING_CHEAP || !news[FINDING_TAPE] || tape_is_dearer || holds < f->peaks[FINDING_TAPE];
}

static inline void report_ways(const findings *f, FILE *out) {
    int order[FINDING_WAYS], i, k, way;
    char note[120];

    for (i = 0; i < FINDING_WAYS; ++i) { /* sorted by what they hold */
        for (k = i; k > 0 && f->peaks[order[k - 1]] > f->peaks[i]; --k) order[k] = order[k - 1];
        order[k] = i;
    }
    fprintf(out, "\n%10s %10s  way (%.3f MB are held now)\n", "saves MB", "holds MB", report_mb(f->held));
    for (i = 0; i < FINDING_WAYS; ++i) {
        way = order[i];
        report_way(f, (finding_way)way, note, sizeof note);
        if (report_is_worth(f, (finding_way)way))
            fprintf(out, "%10.3f %10.3f  %s\n", report_mb(f->held - f->peaks[way]), report_mb(f->peaks[way]), note);
    }
}

/* ---- over time ---- */
typedef struct report_moment { size_t time, held, alive, touched; } report_moment;
typedef struct report_sweep { /* changes in the order of time, each as what it adds; sizes wrap when they take away */
    report_moment *changes, now;
    size_t count, next;
} report_sweep;

static inline int report_by_time(const void *a, const void *b) {
    const report_moment *x = (const report_moment *)a;
    const report_moment *y = (const report_moment *)b;

    return x->time < y->time ? -1 : x->time > y->time;
}

static inline report_moment *report_change(report_sweep *s, size_t time) {
    memset(&s->changes[s->count], 0, sizeof *s->changes);
    s->changes[s->count].time = time;
    return &s->changes[s->count++];
}

static inline void report_changes(report_sweep *s, const findings *f) {
    const trace *t = f->t;
    size_t i, k;

    for (i = 0; i < t->buffer_count; ++i) {
        report_change(s, t->buffers[i].born)->held += t->buffers[i].bytes;
        report_change(s, t->buffers[i].died)->held -= t->buffers[i].bytes;
    }
    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];
        const size_t bytes = t->buffers[v->buffer].bytes;

        report_change(s, v->first)->alive += bytes;
        report_change(s, v->last)->alive -= bytes;
        for (k = v->touch; k < v->touch + v->touch_count; ++k) {
            const size_t first = t->marks[t->touches[k].mark].time, last = trace_mark_end(t, t->touches[k].mark);

            report_change(s, first > v->first ? first : v->first)->touched += bytes;
            report_change(s, last < v->last ? last : v->last)->touched -= bytes;
        }
    }
    qsort(s->changes, s->count, sizeof *s->changes, report_by_time);
}

static inline int report_sweep_open(report_sweep *s, const findings *f) { /* 1: no memory */
    memset(s, 0, sizeof *s);
    s->changes = (report_moment *)malloc((2 * (f->t->buffer_count + f->value_count + f->t->touch_count) + 1) * sizeof *s->changes);
    if (!s->changes) return 1;
    report_changes(s, f);
    return 0;
}

static inline void report_go_to(report_sweep *s, size_t time) {
    for (; s->next < s->count && s->changes[s->next].time <= time; ++s->next) {
        s->now.held += s->changes[s->next].held;
        s->now.alive += s->changes[s->next].alive;
        s->now.touched += s->changes[s->next].touched;
    }
}

/* The moment of a mark at which most is held. Marks are asked for in their order. */
static inline report_moment report_of_mark(report_sweep *s, const trace *t, size_t mark) {
    report_moment most;

    report_go_to(s, t->marks[mark].time);
    most = s->now;
    while (s->next < s->count && s->changes[s->next].time < trace_mark_end(t, mark)) {
        report_go_to(s, s->changes[s->next].time);
        if (s->now.held > most.held) most = s->now;
    }
    return most;
}

static inline void report_bar(FILE *out, const findings *f, report_moment m) {
    const double unit = f->held ? (double)REPORT_BAR / (double)f->held : 0;
    int c;

    for (c = 0; c < (int)((double)m.held * unit + 0.5); ++c)
        fputc(c < (int)((double)m.touched * unit + 0.5) ? '#' : c < (int)((double)m.alive * unit + 0.5) ? '=' : '.', out);
    fputc('\n', out);
}

static inline int report_chart(const findings *f, FILE *out) { /* 1: no memory */
    const trace *t = f->t;
    const size_t each = (t->mark_count + REPORT_MARKS - 1) / REPORT_MARKS;
    report_sweep s;
    size_t i, k;

    if (report_sweep_open(&s, f)) return 1;
    fprintf(out, "\n%-20s %9s  # used at this mark, = kept for later, . held for nothing\n", "mark", "held MB");
    for (i = 0; i < t->mark_count; i += each) {
        report_moment m = report_of_mark(&s, t, i);

        for (k = i + 1; k < i + each && k < t->mark_count; ++k) {
            const report_moment other = report_of_mark(&s, t, k);

            if (other.held > m.held) m = other;
        }
        fprintf(out, "%4lu %-15.15s %9.3f  ", (unsigned long)i, t->marks[i].name, report_mb(m.held));
        report_bar(out, f, m);
    }
    free(s.changes);
    return 0;
}

/* ---- the same as a page: marks across, buffers downwards, as high as they are large ---- */
static inline void report_text(FILE *out, const char *text) { /* as HTML */
    for (; *text; ++text)
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out); break;
        }
}

static inline double report_x(const trace *t, size_t time) { /* of 1000: each mark is as wide as the next */
    size_t below = 0, above = t->mark_count;

    while (below < above) {
        const size_t middle = below + (above - below) / 2;

        if (t->marks[middle].time <= time) below = middle + 1;
        else above = middle;
    }
    if (!below) return 0;
    return 1000 * ((double)(below - 1) + (double)(time - t->marks[below - 1].time)
                   / (double)(trace_mark_end(t, below - 1) - t->marks[below - 1].time)) / (double)t->mark_count;
}

static inline void report_box(FILE *out, const trace *t, size_t from, size_t to, double y, double height, const char *kind) {
    const double x = report_x(t, from);
    const double end = to >= t->end ? 1000 : report_x(t, to);

    fprintf(out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.3f\" width=\"%.2f\" height=\"%.3f\"/>", kind, x, y, end - x, height);
}

static inline int report_page(const findings *f, FILE *out) { /* 1: it could not be written */
    const trace *t = f->t;
    double y = 0, all = 0;
    size_t i, k, value = 0;
    char what[96];

    for (i = 0; i < t->buffer_count; ++i) all += (double)t->buffers[i].bytes;
    fputs("<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>Memory of one step</title>\n<style>"
          "body{font:15px system-ui,sans-serif;margin:2em;max-width:70em;background:#fff;color:#222}"
          "svg{width:100%;height:75vh;background:#fff;border:1px solid #8a8f98}.h{fill:#c9cdd3}.a{fill:#56b4e9}.t{fill:#d55e00}"
          "b{padding:0 .6em;margin:0 .4em 0 1em}p span{display:inline-block;overflow:hidden;white-space:nowrap}</style>\n"
          "<h1>Memory of one step</h1><p>Across: marks. Downwards: every buffer, as high as it is large; point at one for "
          "its name.<b style=\"background:#d55e00\"></b>used<b style=\"background:#56b4e9\"></b>kept for later"
          "<b style=\"background:#c9cdd3\"></b>held for nothing</p>\n"
          "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">\n", out);
    for (i = 0; i < t->buffer_count; ++i) {
        const trace_buffer *b = &t->buffers[i];
        const double height = 1000 * (double)b->bytes / all;

        report_kind(f, i, what, sizeof what);
        fputs("<g><title>", out);
        report_text(out, b->where);
        fprintf(out, ", %.3f MB from byte %lu on: ", report_mb(b->bytes), (unsigned long)b->offset);
        report_text(out, *what ? what : "kept from step to step");
        fputs("</title>", out);
        report_box(out, t, b->born, b->died, y, height, "h");
        for (; value < f->value_count && f->values[value].buffer == i; ++value) {
            const finding_value *v = &f->values[value];

            report_box(out, t, v->first, v->last, y, height, "a");
            for (k = v->touch; k < v->touch + v->touch_count; ++k)
                report_box(out, t, t->marks[t->touches[k].mark].time, trace_mark_end(t, t->touches[k].mark), y, height, "t");
        }
        fputs("</g>\n", out);
        y += height;
    }
    fputs("</svg><p>", out);
    for (i = 0; i < t->mark_count; ++i) {
        fprintf(out, "<span style=\"width:%.3f%%\">", 100 / (double)t->mark_count);
        report_text(out, t->marks[i].name);
        fputs("</span>", out);
    }
    fputs("</p></html>\n", out);
    return fflush(out) != 0 || ferror(out);
}
#endif
