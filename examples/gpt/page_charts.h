/* page_charts.h - what is drawn over time, and the bars as a picture of their own. Part of page.h.
   Curves are drawn in a box of 1000 x 1000 that the page stretches; strokes keep their width, and text is outside. */
#ifndef GPT_PAGE_CHARTS_H
#define GPT_PAGE_CHARTS_H

/* Lines across, and beside them their values: multiples of `tick` within low..high. */
static void page_grid(FILE *f, double low, double high, double tick, int bytes) {
    const double unit = !bytes || high < 1e3 ? 1 : high < 1e6 ? 1e3 : high < 1e9 ? 1e6 : 1e9;
    double at;
    const char *const name = !bytes ? "" : unit < 2 ? " B" : unit < 1e4 ? " kB" : unit < 1e7 ? " MB" : " GB";

    for (at = ceil(low / tick - 1e-9) * tick; at <= high + 1e-9 * (high - low); at += tick) {
        const double number = fabs(at) < tick / 2 ? 0 : at / unit;

        fprintf(f,
                fabs(number) < 1000 ? "<span style=\"bottom:%.2f%%\">%.4g%s</span>"
                                    : "<span style=\"bottom:%.2f%%\">%.0f%s</span>",
                100 * (at - low) / (high - low), number, number != 0 ? name : "");
    }
    fputs("<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">", f);
    for (at = ceil(low / tick - 1e-9) * tick; at <= high + 1e-9 * (high - low); at += tick)
        fprintf(f, "<path class=\"grid\" d=\"M0 %.1fH1000\"/>", 1000 - 1000 * (at - low) / (high - low));
}

/* ---- memory through a step ---- */
/* Tag upon tag, each as the area from the ground to its top, the topmost first; the next covers what is not its own. */
static void page_areas(FILE *f, const outcome *o, double scale) {
    const uint32_t count = o->moment_count < MOST_MOMENTS ? o->moment_count : (uint32_t)MOST_MOMENTS;
    size_t tag, t;
    uint32_t i;

    for (tag = TAGS; tag-- > 0;) {
        long drawn = 0;

        fprintf(f, "<path class=\"t%d\" d=\"M0 1000", (int)tag);
        for (i = 0; i < count; ++i) {
            double bytes = 0;
            long y;

            for (t = 0; t <= tag; ++t) bytes += (double)o->moments[i].bytes[t];
            y = (long)(1000 * bytes / scale + 0.5);
            if (y != drawn) fprintf(f, "H%.2fV%ld", 1000 * (double)o->moments[i].when, 1000 - y);
            drawn = y;
        }
        fprintf(f, "H1000V1000Z\"><title>%s</title></path>", tag_names[tag]);
    }
}

static double page_highest(const outcome *o) {
    const uint32_t count = o->moment_count < MOST_MOMENTS ? o->moment_count : (uint32_t)MOST_MOMENTS;
    double most = 0;
    uint32_t i;

    for (i = 0; i < count; ++i) {
        double sum = 0;
        size_t t;

        for (t = 0; t < TAGS; ++t) sum += (double)o->moments[i].bytes[t];
        if (sum > most) most = sum;
    }
    return most;
}

static size_t page_chosen(const page *p, size_t *chosen) { /* at most 3 */
    size_t have = 0, seen = 0, i, n = 0;
    for (i = 0; i < p->count; ++i) have += p->rungs[i].moment_count != 0;
    for (i = 0; i < p->count && n < 3; ++i) {
        if (!p->rungs[i].moment_count) continue;
        if (seen == 0 || seen == have / 2 || seen == have - 1) chosen[n++] = i;
        ++seen;
    }
    return n;
}

static void page_panel(FILE *f, const outcome *o, double scale, int height) {
    const words w = page_bytes(page_highest(o));
    fputs("<figure><h3>", f);
    page_text(f, o->name);
    fprintf(f, "</h3><figcaption>up to %s</figcaption><div class=\"plot\" style=\"--h:%dpx\">", w.text, height);
    page_grid(f, 0, scale, page_tick(scale), 1);
    page_areas(f, o, scale);
    fputs("</svg></div><div class=\"x\"><span>begin</span><span>end of the step</span></div></figure>\n", f);
}

static void page_step(FILE *f, const page *p) {
    size_t chosen[3], n = page_chosen(p, chosen), i;
    double most = 0;

    if (!n) return;
    for (i = 0; i < n; ++i)
        if (page_highest(&p->rungs[chosen[i]]) > most) most = page_highest(&p->rungs[chosen[i]]);
    fprintf(f,
            "<section id=\"step\"><h2>One training step</h2><p>The bytes of the %s, from the first layer forward to "
            "the last weight's step.</p>\n",
            page_holder(p));
    page_legend(f, p, 0);
    fputs("<div class=\"three\">", f);
    for (i = 0; i < n; ++i) page_panel(f, &p->rungs[chosen[i]], most, 230);
    fputs("</div>\n<div class=\"zoom\"><h3>The same, each on a scale of its own</h3><p></p><div class=\"three\">", f);
    for (i = 0; i < n; ++i) page_panel(f, &p->rungs[chosen[i]], page_highest(&p->rungs[chosen[i]]), 230);
    fputs("</div></div></section>\n", f);
}

/* ---- schedules: each a picture by itself, because its styles are made for a page of its own ---- */
static void page_base64(FILE *f, const char *text) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t n = strlen(text);
    size_t i;

    for (i = 0; i < n; i += 3) {
        const unsigned a = (unsigned char)text[i], b = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        const unsigned c = i + 2 < n ? (unsigned char)text[i + 2] : 0, all = a << 16 | b << 8 | c;
        fputc(digits[all >> 18], f);
        fputc(digits[all >> 12 & 63], f);
        fputc(i + 1 < n ? digits[all >> 6 & 63] : '=', f);
        fputc(i + 2 < n ? digits[all & 63] : '=', f);
    }
}

static void page_strips(FILE *f, const page *p) {
    size_t i;
    int any = 0;

    for (i = 0; p->strips && i < p->count; ++i) {
        if (!p->strips[i]) continue;
        if (!any++)
            fputs("<section id=\"strips\"><h2>The schedule</h2><p>Layers across, time downwards: what is held, "
                  "made, made again, and when backward uses it.</p>\n",
                  f);
        fputs("<figure><h3>", f);
        page_text(f, p->rungs[i].name);
        fputs("</h3><div class=\"strip\" tabindex=\"0\"><img alt=\"schedule of ", f);
        page_text(f, p->rungs[i].name);
        fputs("\" src=\"data:image/svg+xml;base64,", f);
        page_base64(f, p->strips[i]);
        fputs("\"/></div></figure>\n", f);
    }
    if (any) fputs("</section>\n", f);
}

/* ---- losses: rungs with the same bits are one curve ---- */
static const char *const curve_colours[8] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                              "#e69f00", "#56b4e9", "#8a8f98", "#a0522d" };
static const char *const curve_dashes[3] = { "", "7 4", "2 3" };

static int page_same_losses(const outcome *a, const outcome *b) {
    return page_losses(a) == page_losses(b) && !memcmp(a->losses, b->losses, page_losses(a) * sizeof *a->losses);
}

static int page_leads(const page *p, size_t rung) { /* the first of those with its losses, and it has some */
    size_t i;
    for (i = 0; i < rung; ++i)
        if (page_same_losses(&p->rungs[i], &p->rungs[rung])) return 0;
    return page_losses(&p->rungs[rung]) > 1;
}

static void page_pen(FILE *f, size_t curve) { /* the first is broad, so that it shows beneath the others */
    fprintf(f, "stroke=\"%s\" stroke-width=\"%s\" stroke-dasharray=\"%s\"", curve_colours[curve % 8],
            curve ? "1.8" : "4", curve_dashes[curve / 8 % 3]);
}

typedef enum curve_kind { CURVE_LOSS, CURVE_APART /* from the first rung's */, CURVE_HELD } curve_kind;

static uint32_t page_points(const outcome *o, curve_kind kind) {
    return kind == CURVE_HELD ? page_held(o) : page_losses(o);
}

static double page_loss(const page *p, size_t rung, uint32_t point, curve_kind kind) {
    const outcome *const o = &p->rungs[rung];

    if (kind == CURVE_HELD) return (double)o->held[point];
    if (kind == CURVE_LOSS) return (double)o->losses[point];
    return point < page_losses(&p->rungs[0]) ? (double)o->losses[point] - (double)p->rungs[0].losses[point]
                                             : (double)NAN;
}

static double page_each(const outcome *o, curve_kind kind) { /* steps from point to point */
    const uint32_t steps = kind == CURVE_HELD ? o->held_steps : o->loss_steps;
    return steps ? (double)steps : 1;
}

static double page_at(const outcome *o, uint32_t point, curve_kind kind) { /* the step: the last point is the end */
    const double at = page_each(o, kind) * ((double)point + 1), steps = (double)o->steps;
    return steps > 0 && at > steps ? steps : at;
}

static void page_curve_title(FILE *f, const page *p, curve_kind kind) {
    fputs("<figure>", f);
    if (kind == CURVE_HELD) fputs("<h3>Loss of what was held back</h3><figcaption>never trained on", f);
    else if (kind == CURVE_APART)
        fputs("<h3>Difference from the first rung</h3><figcaption>0 means: no bit is different", f);
    else if (p->rungs[0].loss_steps < 2) fputs("<h3>Loss</h3><figcaption>of each step's batch", f);
    else fprintf(f, "<h3>Loss</h3><figcaption>mean of %u steps", (unsigned)p->rungs[0].loss_steps);
    fputs("</figcaption><div class=\"plot\" style=\"--h:260px\">", f);
}

static void page_curve_plot(FILE *f, const page *p, curve_kind kind) {
    const int apart = kind == CURVE_APART;
    size_t i, curve = 0;
    uint32_t s, longest = 0;
    double low = apart ? 0 : HUGE_VAL, high = apart ? 0 : -HUGE_VAL, first = HUGE_VAL, last = 0, tick;

    for (i = 0; i < p->count; ++i)
        for (s = 0; s < page_points(&p->rungs[i], kind); ++s) {
            const double x = page_loss(p, i, s, kind), at = page_at(&p->rungs[i], s, kind);

            if (x - x != 0) continue; /* NaN, or infinite */
            if (x < low) low = x;
            if (x > high) high = x;
            if (at < first) first = at;
            if (at > last) last = at;
            if (s + 1 > longest) longest = s + 1;
        }
    if (longest < 2) return;
    if (!(high - low > 1e-9 * fabs(high))) {
        low -= 0.5;
        high += 0.5;
    }
    tick = page_tick(high - low);
    low = floor(low / tick + 1e-9) * tick;
    high = ceil(high / tick - 1e-9) * tick;
    page_curve_title(f, p, kind);
    page_grid(f, low, high, tick, 0);
    for (i = 0; i < p->count; ++i) {
        const char *pen = "M";

        if (!page_leads(p, i)) continue;
        fputs("<path class=\"curve\" ", f);
        page_pen(f, curve++);
        fputs(" d=\"", f);
        for (s = 0; s < page_points(&p->rungs[i], kind); ++s) {
            const double x = page_loss(p, i, s, kind), at = page_at(&p->rungs[i], s, kind);

            if (x - x != 0) {
                pen = "M";
                continue;
            }
            fprintf(f, "%s%.4g %.4g", pen, 1000 * (at - first) / (last - first),
                    1000 - 1000 * (x - low) / (high - low));
            pen = "L";
        }
        fputs("\"><title>", f);
        page_text(f, p->rungs[i].name);
        fputs("</title></path>", f);
    }
    fprintf(f, "</svg></div><div class=\"x\"><span>step %.0f</span><span>step %.0f</span></div></figure>\n", first,
            last);
}

static void page_curves(FILE *f, const page *p) {
    size_t i, j, curve = 0;

    for (i = 0; i < p->count && !page_leads(p, i); ++i) {}
    if (i == p->count) return;
    fputs("<section id=\"loss\"><h2>The loss</h2><p>Rungs whose losses are the same to the last bit share a curve.</p>"
          "\n<div class=\"legend\">",
          f);
    for (i = 0; i < p->count; ++i) {
        size_t same = 0;

        if (!page_leads(p, i)) continue;
        for (j = i + 1; j < p->count; ++j) same += (size_t)page_same_losses(&p->rungs[i], &p->rungs[j]);
        fputs("<span><svg viewBox=\"0 0 32 12\"><path d=\"M0 6H32\" ", f);
        page_pen(f, curve++);
        fputs("/></svg>", f);
        page_text(f, p->rungs[i].name);
        if (same) fprintf(f, " and %d more", (int)same);
        fputs("</span>", f);
    }
    fputs("</div><div class=\"two\">", f);
    page_curve_plot(f, p, CURVE_LOSS);
    if (curve > 1) page_curve_plot(f, p, CURVE_APART);
    page_curve_plot(f, p, CURVE_HELD);
    fputs("</div></section>\n", f);
}

/* ---- the bars alone; greys that are readable on white and on black ---- */
static void page_svg_bar(FILE *f, const page *p, size_t rung, int left, int wide, int y) {
    const outcome *const o = &p->rungs[rung];
    const double peak = page_peak(p);
    double x = left;
    size_t t;

    const words bytes = page_bytes((double)o->predicted_peak);
    const double own = o->predicted_peak ? (double)o->predicted_peak : 1;
    const words times = page_times((double)p->rungs[0].predicted_peak / own);
    fprintf(f, "<text class=\"e\" x=\"%d\" y=\"%d\">", left - 10, y + 15);
    page_text(f, o->name);
    fputs("</text>", f);
    for (t = 0; t < TAGS; ++t) {
        const double width = wide * (double)o->at_peak[t] / peak;

        if (width > 0)
            fprintf(f, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"20\" fill=\"%s\"/>", x, y, width,
                    page_colours[t]);
        if (width > 24 + 7 * (double)strlen(tag_names[t]))
            fprintf(f, "<text class=\"%s\" x=\"%.1f\" y=\"%d\">%s</text>", page_dark_text[t] ? "k" : "w", x + 8, y + 15,
                    tag_names[t]);
        x += width;
    }
    fprintf(f, "<text x=\"%.1f\" y=\"%d\"><tspan class=\"b\">%s</tspan>", x + 8, y + 15, bytes.text);
    if (rung && o->predicted_peak) fprintf(f, "  %s\xc3\x97 less", times.text);
    fputs("</text>\n", f);
}

static void page_svg_put(FILE *f, const void *what) {
    const page *const p = (const page *)what;
    size_t i, t, longest = 12;
    double x = 4;
    const int top = 44, step = 28, height = top + (int)p->count * step + 8;
    int left;
    for (i = 0; i < p->count; ++i)
        if (strlen(p->rungs[i].name) > longest) longest = strlen(p->rungs[i].name);
    left = 24 + (int)(longest < 40 ? longest : 40) * 7;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"%d\" viewBox=\"0 0 860 %d\" "
            "role=\"img\">\n<title>",
            height, height);
    page_text(f, p->title);
    fputs("</title>\n<style>text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif;fill:#717d8a}"
          ".e{text-anchor:end}.b{font-weight:600}.k{fill:#111}.w{fill:#fff}</style>\n",
          f);
    for (t = 0; t < TAGS; ++t) {
        if (!page_has(p, t)) continue;
        fprintf(f, "<rect x=\"%.0f\" y=\"10\" width=\"12\" height=\"12\" rx=\"3\" fill=\"%s\"/>", x, page_colours[t]);
        fprintf(f, "<text x=\"%.0f\" y=\"21\">%s</text>\n", x + 17, tag_names[t]);
        x += 44 + 6.9 * (double)strlen(tag_names[t]);
    }
    for (i = 0; i < p->count; ++i) page_svg_bar(f, p, i, left, 860 - left - 130, top + (int)i * step);
    fputs("</svg>\n", f);
}

static inline int page_chart_svg(const char *path, const page *p) {
    return !p->count || file_replace(path, page_svg_put, p);
}
#endif
