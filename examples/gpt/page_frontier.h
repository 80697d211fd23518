/* page_frontier.h - speed against memory: what --advise predicts for smaller and smaller budgets, and what was measured.
   A page as that of the ladder, with a table beneath the picture. */
#ifndef GPT_PAGE_FRONTIER_H
#define GPT_PAGE_FRONTIER_H
#include "page.h"

enum { MOST_POINTS = 16 };

typedef struct frontier_point {
    double predicted_bytes, predicted_speed, measured_bytes, measured_speed;
    char switches[400];
} frontier_point; /* tokens of a CPU second; measured 0: not run */

typedef struct frontier {
    const char *about;
    size_t count;
    frontier_point of[MOST_POINTS];
} frontier;

/** 0: written; else nothing is there that was not there before. */
static inline int frontier_write(const char *path, const frontier *p);

typedef struct frontier_axes {
    double bytes, speed;
} frontier_axes; /* both begin at 0 */

static frontier_axes frontier_reach(const frontier *p) {
    frontier_axes a = { 1, 1 };
    size_t i;

    for (i = 0; i < p->count; ++i) {
        a.bytes = fmax(a.bytes, fmax(p->of[i].predicted_bytes, p->of[i].measured_bytes));
        a.speed = fmax(a.speed, fmax(p->of[i].predicted_speed, p->of[i].measured_speed));
    }
    a.bytes = ceil(a.bytes / page_tick(a.bytes)) * page_tick(a.bytes);
    a.speed = ceil(a.speed / page_tick(a.speed)) * page_tick(a.speed);
    return a;
}

/* A line through the points; dots: each as a dot instead. */
static void frontier_curve(FILE *f, const frontier *p, frontier_axes a, int measured, int dots) {
    const char *pen = "M";
    size_t i;

    fputs("<path class=\"curve\" ", f);
    page_pen(f, (size_t)measured);
    if (dots) fputs(" style=\"stroke-width:9;stroke-linecap:round\"", f);
    fputs(" d=\"", f);
    for (i = 0; i < p->count; ++i) {
        const frontier_point *x = &p->of[i];

        if (measured && !(x->measured_speed > 0)) continue;
        fprintf(f, "%s%.4g %.4g%s", pen, 1000 * (measured ? x->measured_bytes : x->predicted_bytes) / a.bytes,
                1000 - 1000 * (measured ? x->measured_speed : x->predicted_speed) / a.speed, dots ? "h0" : "");
        if (!dots) pen = "L";
    }
    fprintf(f, "\"><title>%s</title></path>", measured ? "measured" : "predicted");
}

static void frontier_row(FILE *f, const frontier_point *x) {
    const words predicted = page_bytes(x->predicted_bytes), measured = page_bytes(x->measured_bytes);
    fprintf(f, "<tr><td>%s</td>", predicted.text);
    if (x->measured_bytes > 0) fprintf(f, "<td>%s</td>", measured.text);
    else fputs("<td>-</td>", f);
    fprintf(f, "<td>%.0f</td>", x->predicted_speed);
    if (x->measured_speed > 0) fprintf(f, "<td>%.0f</td>", x->measured_speed);
    else fputs("<td>-</td>", f);
    fputs("<td class=\"why\">", f);
    page_switches(f, x->switches);
    fputs("</td></tr>\n", f);
}

static void frontier_put(FILE *f, const void *what) {
    const frontier *const p = (const frontier *)what;
    const frontier_axes a = frontier_reach(p);

    enum { TICKS = 4 };

    size_t i;
    int m, any = 0;
    for (i = 0; i < p->count; ++i) any |= p->of[i].measured_speed > 0;
    fputs("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
          "content=\"width=device-width,initial-scale=1\"/><title>Speed against memory</title>\n",
          f);
    page_style(f);
    fputs("</head><body><main><h1>Speed against memory</h1><p>", f);
    page_text(f, p->about);
    fputs("</p>\n<section><div class=\"legend\">", f);
    for (m = 0; m <= any; ++m) {
        fputs("<span><svg viewBox=\"0 0 32 12\"><path d=\"M0 6H32\" ", f);
        page_pen(f, (size_t)m);
        fprintf(f, "/></svg>%s</span>", m ? "measured" : "predicted");
    }
    fputs("</div><figure><figcaption>tokens of a CPU second, against the peak of memory</figcaption><div "
          "class=\"plot\" style=\"--h:320px\">",
          f);
    page_grid(f, 0, a.speed, page_tick(a.speed), 0);
    for (m = 0; m <= any; ++m) {
        frontier_curve(f, p, a, m, 0);
        frontier_curve(f, p, a, m, 1);
    }
    fputs("</svg></div><div class=\"x\" style=\"position:relative;height:1.2rem\">", f);
    for (i = 0; i <= TICKS; ++i) {
        const words at = page_bytes(a.bytes * (double)i / TICKS);
        fprintf(f,
                "<span style=\"position:absolute;white-space:nowrap;left:%d%%;transform:translateX(-%d%%)\">%s</span>",
                100 * (int)i / TICKS, i == TICKS ? 100 : 50, i ? at.text : "0");
    }
    fputs("</div></figure></section>\n", f);
    fputs("<section><div class=\"wide\" "
          "tabindex=\"0\"><table><tr><th>predicted<br/>peak</th><th>measured<br/>peak</th><th>predicted,<br/>tokens of "
          "a CPU second</th>"
          "<th>measured</th><th>switches</th></tr>\n",
          f);
    for (i = 0; i < p->count; ++i) frontier_row(f, &p->of[i]);
    fputs("</table></div></section>\n<footer>Made by train_gpt --advise of memopt.h. Bytes are in powers of "
          "1000.</footer>\n</main></body></html>\n",
          f);
}

static inline int frontier_write(const char *path, const frontier *p) {
    return !p->count || file_replace(path, frontier_put, p);
}
#endif
