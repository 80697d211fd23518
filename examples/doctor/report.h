/* report.h - findings as text: what was found, first the largest; what each way would hold; bytes over time. */
#ifndef DOCTOR_REPORT_H
#define DOCTOR_REPORT_H

enum { REPORT_ROWS = 12, REPORT_BAR = 48, REPORT_MARKS = 40 };

typedef struct report_row { char what[96]; const char *where; size_t bytes, count; } report_row;

static inline double report_mb(size_t bytes) { return (double)bytes * 1e-6; }

static inline void report_add(report_row *rows, size_t *count, const char *what, const char *where, size_t bytes) {
    size_t i;

    for (i = 0; i < *count; ++i)
        if (!strcmp(rows[i].what, what) && !strcmp(rows[i].where, where)) break;
    if (i == *count) {
        memset(&rows[i], 0, sizeof rows[i]);
        snprintf(rows[i].what, sizeof rows[i].what, "%s", what);
        rows[i].where = where;
        ++*count;
    }
    rows[i].bytes += bytes;
    ++rows[i].count;
}

static inline int report_by_bytes(const void *a, const void *b) {
    const report_row *x = (const report_row *)a;
    const report_row *y = (const report_row *)b;

    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->what, y->what);
}

/* What a buffer is, in words; empty: nothing can be said against it. */
static inline void report_kind(const findings *f, size_t buffer, char *what, size_t room) {
    const trace *t = f->t;
    const finding_value *v = &f->values[f->values_from[buffer]];
    const trace_touch *x = t->touches;
    const char *first = f->kinds[buffer] == FINDING_UNUSED || !v->touch_count ? "" : finding_phase(t, x[v->touch].mark);
    size_t i;

    *what = 0;
    switch ((finding_kind)f->kinds[buffer]) {
    case FINDING_UNUSED: snprintf(what, room, "%s", t->buffers[buffer].touch_count ? "zeroed, and never used" : "never used"); break;
    case FINDING_MARK: snprintf(what, room, "used at one mark of %.40s only", first); break;
    case FINDING_PHASE: snprintf(what, room, "used at some marks of %.40s only", first); break;
    case FINDING_IDLE:
        snprintf(what, room, "holds values of several phases, each for one");
        for (; v < f->values + f->values_from[buffer + 1] && strstr(what, "several"); ++v)
            for (i = v->touch + 1; i < v->touch + v->touch_count; ++i) {
                first = finding_phase(t, x[i - 1].mark);
                if (!strcmp(finding_phase(t, x[i].mark), first)) continue;
                snprintf(what, room, "written in %.30s, idle until %.30s", first, finding_phase(t, x[i].mark));
                break;
            }
        break;
    default: break;
    }
}

static inline int report_findings(const findings *f, FILE *out) { /* 1: no memory */
    const trace *t = f->t;
    report_row *rows = (report_row *)malloc((4 * t->buffer_count + 1) * sizeof *rows);
    char what[96];
    size_t i, count = 0;

    if (!rows) return 1;
    for (i = 0; i < t->buffer_count; ++i) {
        const trace_buffer *b = &t->buffers[i];

        report_kind(f, i, what, sizeof what);
        if (*what) report_add(rows, &count, what, b->where, b->bytes);
        if (f->early[i]) report_add(rows, &count, "zeroed before the mark that first uses it", b->where, b->bytes);
        if (f->twice[i]) report_add(rows, &count, "written twice, not read at a mark between", b->where, b->bytes);
    }
    for (i = 0; i < f->mirror_count; ++i) {
        const trace_buffer *b = &t->buffers[f->mirrors[i].buffer];

        snprintf(what, sizeof what, "mirrored: the same bytes as one of %.50s", t->buffers[f->mirrors[i].of].where);
        report_add(rows, &count, what, b->where, b->bytes);
    }
    if (count) qsort(rows, count, sizeof *rows, report_by_bytes);
    fprintf(out, "%10s %8s  finding\n", "MB", "buffers");
    for (i = 0; i < count && i < REPORT_ROWS; ++i)
        fprintf(out, "%10.3f %8lu  %s (%s)\n", report_mb(rows[i].bytes), (unsigned long)rows[i].count, rows[i].what, rows[i].where);
    if (count > REPORT_ROWS) fprintf(out, "%10s %8s  and %lu smaller ones\n", "", "", (unsigned long)(count - REPORT_ROWS));
    if (!t->lifetimes_only) fprintf(out, "%10.3f %8s  kept from step to step\n", report_mb(f->bytes[FINDING_KEPT]), "");
    free(rows);
    return 0;
}

static inline void report_ways(const findings *f, FILE *out) {
    const size_t news[FINDING_WAYS] = { 1, 1, f->pairs, f->early_steps, f->again }; /* 0: it would change nothing */
    int order[FINDING_WAYS], i, k, way;
    char note[96];

    for (i = 0; i < FINDING_WAYS; ++i) { /* sorted by what they hold */
        for (k = i; k > 0 && f->peaks[order[k - 1]] > f->peaks[i]; --k) order[k] = order[k - 1];
        order[k] = i;
    }
    fprintf(out, "\n%10s %10s  way (%.3f MB are held now)\n", "saves MB", "holds MB", report_mb(f->held));
    for (i = 0; i < FINDING_WAYS; ++i) {
        way = order[i];
        switch ((finding_way)way) {
        case FINDING_ARENA: snprintf(note, sizeof note, "an arena, pushed and rewound at marks"); break;
        case FINDING_PLAN: snprintf(note, sizeof note, "a plan of %lu values", (unsigned long)f->value_count); break;
        case FINDING_IN_PLACE: snprintf(note, sizeof note, "a plan, and %lu values in place, if their operators can", (unsigned long)f->pairs); break;
        case FINDING_STEP: snprintf(note, sizeof note, "a plan, and the step inside backward for %lu gradients", (unsigned long)f->early_steps); break;
        default: snprintf(note, sizeof note, "a plan, and a tape: backward makes %lu values again", (unsigned long)f->again); break;
        }
        if (f->peaks[way] < f->held && news[way])
            fprintf(out, "%10.3f %10.3f  %s\n", report_mb(f->held - f->peaks[way]), report_mb(f->peaks[way]), note);
    }
}

/* ---- over time ---- */
typedef struct report_moment { size_t held, alive, touched; } report_moment;

static inline report_moment report_at(const findings *f, size_t time, size_t mark) {
    const trace *t = f->t;
    report_moment m;
    size_t i, k;

    memset(&m, 0, sizeof m);
    for (i = 0; i < t->buffer_count; ++i)
        if (t->buffers[i].born <= time && time < t->buffers[i].died) m.held += t->buffers[i].bytes;
    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];
        const size_t bytes = t->buffers[v->buffer].bytes;

        if (time < v->first || time >= v->last) continue;
        m.alive += bytes;
        for (k = v->touch; k < v->touch + v->touch_count; ++k)
            if (t->touches[k].mark == mark) m.touched += bytes;
    }
    return m;
}

/* The moment of a mark at which most is held. */
static inline report_moment report_of_mark(const findings *f, size_t mark) {
    const trace *t = f->t;
    const size_t first = t->marks[mark].time;
    report_moment most = report_at(f, first, mark);
    size_t i;

    for (i = 0; i < t->buffer_count; ++i) {
        report_moment m;

        if (t->buffers[i].born <= first || t->buffers[i].born >= trace_mark_end(t, mark)) continue;
        m = report_at(f, t->buffers[i].born, mark);
        if (m.held > most.held) most = m;
    }
    return most;
}

static inline void report_chart(const findings *f, FILE *out) {
    const trace *t = f->t;
    const double unit = f->held ? (double)REPORT_BAR / (double)f->held : 0;
    const size_t each = (t->mark_count + REPORT_MARKS - 1) / REPORT_MARKS;
    size_t i, k;
    int c;

    fprintf(out, "\n%-20s %9s  # used at this mark, = kept for later, . held for nothing\n", "mark", "held MB");
    for (i = 0; i < t->mark_count; i += each) {
        report_moment m = report_of_mark(f, i);

        for (k = i + 1; k < i + each && k < t->mark_count; ++k) {
            const report_moment other = report_of_mark(f, k);

            if (other.held > m.held) m = other;
        }
        fprintf(out, "%4lu %-15.15s %9.3f  ", (unsigned long)i, t->marks[i].name, report_mb(m.held));
        for (c = 0; c < (int)((double)m.held * unit + 0.5); ++c)
            fputc(c < (int)((double)m.touched * unit + 0.5) ? '#' : c < (int)((double)m.alive * unit + 0.5) ? '=' : '.', out);
        fputc('\n', out);
    }
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
    size_t mark = t->mark_count;

    while (mark > 0 && t->marks[mark - 1].time > time) --mark;
    if (!mark) return 0;
    return 1000 * ((double)(mark - 1) + (double)(time - t->marks[mark - 1].time)
                   / (double)(trace_mark_end(t, mark - 1) - t->marks[mark - 1].time)) / (double)t->mark_count;
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
