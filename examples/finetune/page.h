/* page.h - OUT.html: curves of loss, and what memory and time were told and taken. It is written anew where a loss of
   what is held back is told, and at the end; the losses are kept in the run's folder, a line a step, so that a run that
   goes on has the whole curve. A page that cannot be written stops nothing. */
#ifndef FINETUNE_PAGE_H
#define FINETUNE_PAGE_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_WIDTH = 900, PAGE_HEIGHT = 300, PAGE_POINTS = 900 /* of a curve, at most */ };

typedef struct page_line { uint64_t step; double loss, held, seconds; } page_line; /* held: NaN where it was not told */

typedef struct page {
    char       losses[1200], path[1200]; /* files */
    page_line *lines;
    size_t     count, room;
} page;

static int page_add(page *p, page_line line) {
    if (p->count == p->room) {
        const size_t room = p->room ? 2 * p->room : 256;
        page_line *lines = (page_line *)realloc(p->lines, room * sizeof *lines);

        if (!lines) return 1;
        p->lines = lines;
        p->room = room;
    }
    p->lines[p->count++] = line;
    return 0;
}

/* A run begins, or goes on after so many steps: what was written beyond them is done again. */
static void page_begin(page *p, uint64_t steps) {
    FILE *f = fopen(p->losses, "r");
    char text[160];
    uint64_t last = 0;
    size_t i;

    while (f && fgets(text, sizeof text, f)) {
        char *at = text;
        page_line line;

        line.step = strtoull(at, &at, 10);
        line.loss = strtod(at, &at);
        line.held = strtod(at, &at);
        line.seconds = strtod(at, &at);
        if (line.step <= last || line.step > steps || *at != '\n' || page_add(p, line)) break;
        last = line.step;
    }
    if (f) (void)fclose(f);
    f = fopen(p->losses, "w");
    for (i = 0; f && i < p->count; ++i)
        fprintf(f, "%llu %.9g %.9g %.4g\n", (unsigned long long)p->lines[i].step, p->lines[i].loss, p->lines[i].held,
                p->lines[i].seconds);
    if (f) (void)fclose(f);
}

static void page_step(page *p, uint64_t step, double loss, double held, double seconds) {
    const page_line line = { step, loss, held, seconds };
    FILE *f = fopen(p->losses, "a");

    (void)page_add(p, line);
    if (f) fprintf(f, "%llu %.9g %.9g %.4g\n", (unsigned long long)step, loss, held, seconds);
    if (f) (void)fclose(f);
}

/* ---- the picture ---- */
/* The mean of the lines that fall on a point; NaN: none has a number. */
static double page_mean(const page *p, size_t from, size_t to, int held) {
    double sum = 0;
    size_t i, n = 0;

    for (i = from; i < to; ++i) {
        const double x = held ? p->lines[i].held : p->lines[i].loss;

        if (x - x != 0) continue;
        sum += x;
        ++n;
    }
    return n ? sum / (double)n : (double)NAN;
}

static void page_curve(FILE *f, const page *p, uint64_t steps, double low, double high, int held) {
    const size_t points = p->count < PAGE_POINTS ? p->count : (size_t)PAGE_POINTS;
    size_t i;

    fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='%d' points='", held ? "#c0392b" : "#2c6fbb",
            held ? 2 : 1);
    for (i = 0; i < points; ++i) {
        const size_t from = i * p->count / points, to = (i + 1) * p->count / points;
        const double y = page_mean(p, from, to, held);

        if (y - y != 0) continue;
        fprintf(f, "%.1f,%.1f ", PAGE_WIDTH * (double)p->lines[to - 1].step / (double)steps,
                PAGE_HEIGHT * (1 - (y - low) / (high - low)));
    }
    fputs("'/>", f);
}

static void page_range(const page *p, double *low, double *high) {
    size_t i;

    *low = HUGE_VAL;
    *high = -HUGE_VAL;
    for (i = 0; i < p->count; ++i) {
        *low = fmin(*low, fmin(p->lines[i].loss, p->lines[i].held)); /* a NaN is passed over */
        *high = fmax(*high, fmax(p->lines[i].loss, p->lines[i].held));
    }
    if (!(*high > *low)) *high = *low + 1;
}

static void page_text(FILE *f, const char *text) {
    for (; *text; ++text) {
        if (*text == '<') fputs("&lt;", f);
        else if (*text == '&') fputs("&amp;", f);
        else fputc(*text, f);
    }
}

/* head: what the run was told, a line each. */
static void page_write(const page *p, const char *title, const char *head, uint64_t steps) {
    char beside[1300];
    double low, high;
    FILE *f;

    snprintf(beside, sizeof beside, "%s.tmp", p->path);
    (void)remove(beside); /* a link, too */
    if (!p->count || (f = fopen(beside, "w")) == NULL) return;
    page_range(p, &low, &high);
    fputs("<!doctype html><meta charset='utf-8'><title>finetune</title><body style='font:15px "
          "sans-serif;margin:2em'><h1>",
          f);
    page_text(f, title);
    fprintf(f, "</h1><p>step %llu of %llu, loss %.4f", (unsigned long long)p->lines[p->count - 1].step,
            (unsigned long long)steps, p->lines[p->count - 1].loss);
    fprintf(f,
            "</p><p><span style='color:#2c6fbb'>loss</span>, <span style='color:#c0392b'>of what is held back</span>;"
            " from %.4f to %.4f</p><svg viewBox='0 0 %d %d' width='%d' style='border:1px solid #ccc'>",
            low, high, PAGE_WIDTH, PAGE_HEIGHT, PAGE_WIDTH);
    page_curve(f, p, steps, low, high, 0);
    page_curve(f, p, steps, low, high, 1);
    fputs("</svg><pre>", f);
    page_text(f, head);
    fputs("</pre>\n", f);
    if (fclose(f)) (void)remove(beside);
    else if (rename(beside, p->path)) (void)remove(beside);
}

static void page_close(page *p) { free(p->lines); }
#endif
