/* page.h - the ladder as one page of HTML: bars, table, memory through a step, schedule strips, loss curves. It needs
   no network and no script: text is HTML, so that it stays readable on a phone; only shapes are SVG, and stretch. */
#ifndef GPT_PAGE_H
#define GPT_PAGE_H
#include "outcome.h"
#include "replace.h"
#include <math.h>
#include <string.h>

typedef struct page {
    const char *title, *about; /* about: a line under the title: model, machine, command */
    const outcome *rungs;      /* the first is what the others are compared with */
    size_t count;
    const char *const *strips; /* NULL, or of each rung its schedule as SVG text, or NULL */
    int on_card;               /* bytes are those of a card, not of a process */
} page;

/** 0: written; else nothing is there that was not there before. */
static inline int page_write(const char *path, const page *p);
/** The bars alone as an SVG file, for a README: readable on white and on black. */
static inline int page_chart_svg(const char *path, const page *p);

/* One colour for each tag, apart for all kinds of colour vision, and whether text on it is dark. */
static const char *const page_colours[TAGS] = { "#8a8f98", "#0072b2", "#e69f00", "#009e73",
                                                "#d55e00", "#56b4e9", "#cc79a7" };
static const int page_dark_text[TAGS] = { 1, 0, 1, 1, 1, 1, 1 };

/* ---- text ---- */
static void page_text(FILE *f, const char *text) {
    for (; *text; ++text) switch (*text) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '"': fputs("&quot;", f); break;
        default:
            if ((unsigned char)*text >= 0x20) fputc(*text, f);
        }
}

/* A number of three digits with its unit, in one of a few buffers in turn: "20.4 GB". */
typedef struct words {
    char text[32];
} words;

static words page_bytes(double bytes) {
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB" };

    words w;
    int unit = 0;
    int digits;
    while (bytes >= 999.5 && unit < 4) {
        bytes /= 1000;
        ++unit;
    }
    digits = unit < 2 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
    snprintf(w.text, sizeof w.text, "%.*f %s", digits, bytes, units[unit]);
    return w;
}

static words page_times(double x) {
    words w;
    snprintf(w.text, sizeof w.text, x >= 99.5 ? "%.0f" : "%.1f", x);
    return w;
}

static words page_count(uint64_t n) { /* with thin spaces between thousands */
    char digits[24];
    words w;
    size_t i, at = 0, length;
    length = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)(n > 999999999999 ? 999999999999 : n));
    for (i = 0; i < length; ++i) {
        if (i && (length - i) % 3 == 0) {
            memcpy(w.text + at, "\xe2\x80\x89", 3);
            at += 3;
        }
        w.text[at++] = digits[i];
    }
    w.text[at] = 0;
    return w;
}

static double page_tick(double most) { /* 1, 2 or 5 times a power of ten: four or five fit */
    double tick = 1;
    if (!(most > 0)) return 1;
    while (tick * 5 < most) tick *= 10;
    while (tick * 5 > most * 10) tick /= 10;
    if (tick * 5 > most * 4) tick /= 5;
    else if (tick * 5 > most * 2) tick /= 2;
    return tick;
}

/* ---- what the figures say ---- */
static int page_same(const outcome *a, const outcome *b) { /* 1 the same bits, 0 not, -1 nobody knows */
    if (!a->ok || !b->ok || !a->weights_hash || !b->weights_hash) return -1;
    return a->weights_hash == b->weights_hash;
}

static uint32_t page_losses(const outcome *o) {
    return o->loss_count < MOST_LOSSES ? o->loss_count : (uint32_t)MOST_LOSSES;
}

static uint32_t page_held(const outcome *o) {
    return o->held_count < MOST_LOSSES ? o->held_count : (uint32_t)MOST_LOSSES;
}

static double page_peak(const page *p) { /* the largest, so that all bars fit */
    double most = 1;
    size_t i;
    for (i = 0; i < p->count; ++i) {
        if ((double)p->rungs[i].predicted_peak > most) most = (double)p->rungs[i].predicted_peak;
        if ((double)p->rungs[i].measured_peak > most) most = (double)p->rungs[i].measured_peak;
    }
    return most;
}

static int page_has(const page *p, size_t tag) { /* bytes of it, in any rung */
    size_t i;
    for (i = 0; i < p->count; ++i)
        if (p->rungs[i].at_peak[tag]) return 1;
    return 0;
}

static const char *page_holder(const page *p) { return p->on_card ? "card" : "process"; }

static const outcome *page_least(const page *p, int exact) { /* exact: with the first one's bits */
    const outcome *best = &p->rungs[0];
    size_t i;
    for (i = 1; i < p->count; ++i) {
        const outcome *const o = &p->rungs[i];

        if (o->ok && o->predicted_peak < best->predicted_peak && (!exact || page_same(o, &p->rungs[0]) == 1)) best = o;
    }
    return best;
}

/* ---- the parts of the page ---- */
static void page_style(FILE *f) {
    static const char *const css[] = {
        ":root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#5c6670;--line:#dfe3e8;",
        "--yes:#0a7a55}",
        "@media(prefers-color-scheme:dark){:root{--ground:#0e1116;--card:#171b21;--ink:#e8ebef;--soft:#9aa4af;",
        "--line:#2c333c;--yes:#4cc79b}.strip img{filter:invert(.91) hue-rotate(180deg)}}*{box-sizing:border-box}",
        "body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',",
        "Roboto,'Helvetica Neue',Arial,sans-serif}main{max-width:68rem;margin:0 auto;padding:2rem 1.25rem 3rem}",
        "h1{font-size:2rem;line-height:1.15;margin:0 0 .4rem;letter-spacing:-.02em}",
        "h2{font-size:1.2rem;margin:0 0 .2rem;letter-spacing:-.01em}h3{font-size:.95rem;margin:0;font-weight:600}",
        "p{margin:0 0 1rem;color:var(--soft);text-wrap:pretty}",
        "section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1.4rem 1.5rem;",
        "margin:1.25rem 0}.tiles{display:grid;grid-template-columns:repeat(4,1fr);gap:1rem;margin:1.5rem 0 1.25rem}",
        ".tiles div{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:.9rem 1.1rem}",
        ".tiles b{display:block;font-size:1.75rem;line-height:1.2;letter-spacing:-.02em}",
        ".tiles span{color:var(--soft);font-size:.86rem;display:block}",
        ".legend{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;font-size:.86rem;color:var(--soft);margin:0 0 1rem}",
        ".legend span{display:inline-flex;align-items:center;gap:.4rem}",
        ".legend i{width:.8rem;height:.8rem;border-radius:3px;flex:none}",
        ".legend i.m{width:2px;border-radius:0;background:var(--ink)}.legend svg{width:2rem;height:.8rem;flex:none}",
        ".row{display:grid;grid-template-columns:13.5rem 1fr 5rem;gap:.2rem .8rem;align-items:center;",
        "margin:.3rem 0;font-size:.9rem}.row b{font-weight:500;overflow-wrap:anywhere}",
        ".row em{font-style:normal;text-align:right;font-variant-numeric:tabular-nums}",
        ".bar{position:relative;display:flex;height:1.6rem}",
        ".bar u{flex:none;height:100%;overflow:hidden;display:flex;flex-wrap:wrap;text-decoration:none;",
        "font-size:.78rem;line-height:1.6rem;color:#fff;border-right:1px solid var(--card)}.bar u.k{color:#111}",
        ".bar u::before{content:'';height:1.6rem}.bar u span{padding:0 .4rem;white-space:nowrap}",
        ".bar i{position:absolute;top:-.2rem;bottom:-.2rem;width:2px;margin-left:-1px;background:var(--ink)}",
        ".zoom{margin-top:1.4rem;padding-top:1.1rem;border-top:1px solid var(--line)}",
        ".wide{overflow-x:auto;margin:0 -1.5rem;padding:0 1.5rem}",
        "table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}",
        "th,td{padding:.45rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}",
        "th{font-weight:500;color:var(--soft);font-size:.82rem;vertical-align:bottom}",
        "tr:last-child td{border-bottom:0}th:first-child,td:first-child{text-align:left;padding-left:0}",
        "td:first-child{white-space:normal;min-width:11rem}",
        "td small{display:block;color:var(--soft);font-size:.76rem;overflow-wrap:anywhere;max-width:22rem}",
        "td s{text-decoration:none;display:inline-block}td.yes{color:var(--yes);font-weight:600}",
        "td.why{text-align:left;white-space:normal;color:var(--soft)}",
        ".three{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:1.2rem 1.4rem}",
        ".two{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1.2rem 1.6rem}figure{margin:0}",
        "figcaption{font-size:.82rem;color:var(--soft);margin:0 0 .5rem}",
        ".plot{position:relative;height:var(--h);margin-left:3.9rem}",
        ".plot>svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}",
        ".plot>span{position:absolute;right:100%;margin-right:.5rem;transform:translateY(50%);font-size:.75rem;",
        "color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums}",
        ".x{display:flex;justify-content:space-between;margin:.3rem 0 0 3.9rem;font-size:.75rem;color:var(--soft)}",
        ".grid{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}",
        ".curve{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round}",
        ".strip{overflow-x:auto;margin-top:1rem}",
        ".strip img{display:block;max-width:100%;min-width:40rem;border-radius:6px}",
        "footer{color:var(--soft);font-size:.86rem;margin-top:1.5rem}",
        "@media(max-width:46rem){main{padding:1.25rem .75rem 2rem}h1{font-size:1.6rem}section{padding:1.1rem 1rem}",
        ".tiles,.two{grid-template-columns:repeat(2,minmax(0,1fr));gap:.6rem}.tiles div{padding:.7rem .8rem}",
        ".tiles b{font-size:1.35rem}.three,.two{grid-template-columns:minmax(0,1fr)}",
        ".plot{height:calc(var(--h)*.75)}.row{grid-template-columns:1fr auto;margin:.7rem 0}.row .bar{grid-row:2;",
        "grid-column:1/3}.wide{margin:0 -1rem;padding:0 1rem}td:first-child,th:first-child{position:sticky;left:0;",
        "background:var(--card);box-shadow:-1rem 0 var(--card);min-width:9rem}}"
    };
    size_t i;
    fputs("<style>\n", f);
    for (i = 0; i < sizeof css / sizeof *css; ++i) fputs(css[i], f);
    fputc('\n', f);
    for (i = 0; i < TAGS; ++i) fprintf(f, ".t%d{background:%s;fill:%s}", (int)i, page_colours[i], page_colours[i]);
    fputs("\n</style>\n", f);
}

static void page_tile(FILE *f, const char *figure, const char *text) {
    fprintf(f, "<div><b>%s</b><span>%s</span></div>\n", figure, text);
}

static void page_head(FILE *f, const page *p) {
    const outcome *const first = &p->rungs[0], *const least = page_least(p, 0), *const exact = page_least(p, 1);
    const double peak = (double)first->predicted_peak;
    char text[96];

    words w;
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width="
          "device-width,initial-scale=1\"/>\n<title>",
          f);
    page_text(f, p->title);
    fputs("</title>\n", f);
    page_style(f);
    fputs("</head><body><main>\n<header><h1>", f);
    page_text(f, p->title);
    fputs("</h1><p>", f);
    page_text(f, p->about);
    fputs("</p></header>\n<div class=\"tiles\">\n", f);
    w = page_bytes(peak);
    page_tile(f, w.text, "peak of the first rung");
    w = page_bytes((double)least->predicted_peak);
    page_tile(f, w.text, "peak of the leanest");
    w = page_times(peak / (double)(least->predicted_peak ? least->predicted_peak : 1));
    snprintf(text, sizeof text, "%s\xc3\x97", w.text);
    page_tile(f, text, "less memory");
    if (exact != first) {
        w = page_times(peak / (double)(exact->predicted_peak ? exact->predicted_peak : 1));
        snprintf(text, sizeof text, "%s\xc3\x97", w.text);
        page_tile(f, text, "less with the very same bits");
    } else {
        w = page_count(first->parameters);
        page_tile(f, w.text, "parameters");
    }
    fputs("</div>\n", f);
}

static void page_legend(FILE *f, const page *p, int measured) {
    size_t t;

    fputs("<div class=\"legend\">", f);
    for (t = 0; t < TAGS; ++t)
        if (page_has(p, t)) fprintf(f, "<span><i class=\"t%d\"></i>%s</span>", (int)t, tag_names[t]);
    if (measured) fprintf(f, "<span><i class=\"m\"></i>measured peak of the %s</span>", page_holder(p));
    fputs("</div>\n", f);
}

static void page_bar(FILE *f, const outcome *o, double scale) {
    size_t t;

    words w = page_bytes((double)o->predicted_peak);
    fputs("<div class=\"row\"><b>", f);
    page_text(f, o->name);
    fputs("</b><div class=\"bar\">", f);
    for (t = 0; t < TAGS; ++t) {
        const words part = page_bytes((double)o->at_peak[t]);
        if (!o->at_peak[t]) continue;
        fprintf(f, "<u class=\"t%d%s\" style=\"width:%.3f%%\" title=\"%s: %s\"><span>%s</span></u>", (int)t,
                page_dark_text[t] ? " k" : "", 100 * (double)o->at_peak[t] / scale, tag_names[t], part.text,
                tag_names[t]);
    }
    if (o->measured_peak) {
        const words m = page_bytes((double)o->measured_peak);
        fprintf(f, "<i style=\"left:%.3f%%\" title=\"measured: %s\"></i>", 100 * (double)o->measured_peak / scale,
                m.text);
    }
    fprintf(f, "</div><em>%s</em></div>\n", w.text);
}

static void page_bars(FILE *f, const page *p) {
    const double peak = page_peak(p);
    double rest = 0;
    size_t i, from = p->count;
    int measured = 0;

    for (i = 0; i < p->count; ++i) measured |= p->rungs[i].measured_peak != 0;
    fputs("<section id=\"bars\"><h2>Where the memory is</h2><p>What is alive at the peak of a training step, rung by "
          "rung. Each rung has what those above it have.</p>\n",
          f);
    page_legend(f, p, measured);
    for (i = 0; i < p->count; ++i) page_bar(f, &p->rungs[i], peak);
    while (from > 0 && (double)p->rungs[from - 1].predicted_peak < peak / 4) --from;
    for (i = from; i < p->count; ++i) {
        if (rest < (double)p->rungs[i].predicted_peak) rest = (double)p->rungs[i].predicted_peak;
        if (rest < (double)p->rungs[i].measured_peak) rest = (double)p->rungs[i].measured_peak;
    }
    if (p->count - from >= 2 && rest > 0) {
        const words w = page_times(peak / rest);
        fprintf(f, "<div class=\"zoom\"><h3>The lower rungs, %s times as large</h3>\n", w.text);
        for (i = from; i < p->count; ++i) page_bar(f, &p->rungs[i], rest);
        fputs("</div>", f);
    }
    fputs("</section>\n", f);
}

static void page_switches(FILE *f, const char *switches) { /* a switch and its value stay on one line */
    while (*switches) {
        const char *const next = strstr(switches, " --");
        char one[256];

        snprintf(one, sizeof one, "%.*s", next ? (int)(next - switches) : (int)strlen(switches), switches);
        fputs("<s>", f);
        page_text(f, one);
        fputs("</s> ", f);
        switches = next ? next + 1 : "";
    }
}

static void page_cell(FILE *f, const char *text) { fprintf(f, "<td>%s</td>", text); }

static void page_table_row(FILE *f, const page *p, size_t i, int any_held) {
    const outcome *const o = &p->rungs[i];
    const double predicted = (double)o->predicted_peak;

    words w;
    char text[64];
    const int same = i ? page_same(o, &p->rungs[i - 1]) : -1;
    fputs("<tr><td>", f);
    page_text(f, o->name);
    fputs("<small>", f);
    page_switches(f, o->switches);
    fputs("</small></td>", f);
    w = page_bytes(predicted);
    page_cell(f, o->predicted_peak ? w.text : "\xe2\x80\x93");
    if (!o->ok) {
        fprintf(f, "<td class=\"why\" colspan=\"%d\">", 6 + any_held);
        page_text(f, o->message);
        fputs("</td></tr>\n", f);
        return;
    }
    w = page_bytes((double)o->measured_peak);
    page_cell(f, o->measured_peak ? w.text : "\xe2\x80\x93");
    if (o->measured_peak && predicted > 0) snprintf(text, sizeof text, "%.3f", (double)o->measured_peak / predicted);
    page_cell(f, o->measured_peak && predicted > 0 ? text : "\xe2\x80\x93");
    w = page_times((double)p->rungs[0].predicted_peak / (predicted > 0 ? predicted : 1));
    snprintf(text, sizeof text, "%s\xc3\x97", w.text);
    page_cell(f, text);
    w = page_count((uint64_t)(o->tokens_per_second + 0.5));
    page_cell(f, o->tokens_per_second > 0 ? w.text : "\xe2\x80\x93");
    if (o->loss_count) snprintf(text, sizeof text, "%.5f", (double)o->losses[page_losses(o) - 1]);
    page_cell(f, o->loss_count ? text : "\xe2\x80\x93");
    if (o->held_count) snprintf(text, sizeof text, "%.5f", (double)o->held[page_held(o) - 1]);
    if (any_held) page_cell(f, o->held_count ? text : "\xe2\x80\x93");
    fprintf(f, same == 1 ? "<td class=\"yes\">yes</td>" : "<td>%s</td>", same == 0 ? "no" : "\xe2\x80\x93");
    fputs("</tr>\n", f);
}

static void page_table(FILE *f, const page *p) {
    size_t i;
    uint64_t steps = 0;
    int any_held = 0;

    for (i = 0; i < p->count; ++i) {
        if (steps < p->rungs[i].steps) steps = p->rungs[i].steps;
        any_held |= p->rungs[i].held_count != 0;
    }
    fprintf(f, "<section id=\"table\"><h2>The figures</h2><p>Predicted before anything ran; measured as %s.</p>\n",
            p->on_card ? "the bytes of the card that the rung's own process took"
                       : "the peak resident memory of the rung's own process");
    fputs("<div class=\"wide\" tabindex=\"0\"><table><tr><th>rung</th>"
          "<th>predicted<br/>peak</th><th>measured<br/>peak</th><th>measured /<br/>predicted</th>"
          "<th>less<br/>memory</th><th>tokens<br/>a second</th>",
          f);
    fprintf(f, "<th>loss after<br/>%llu steps</th>%s<th>same bits<br/>as above</th></tr>\n", (unsigned long long)steps,
            any_held ? "<th>of what was<br/>held back</th>" : "");
    for (i = 0; i < p->count; ++i) page_table_row(f, p, i, any_held);
    fputs("</table></div></section>\n", f);
}

#include "page_charts.h" /* page_step(), page_strips(), page_curves(), page_chart_svg() */

static void page_put(FILE *f, const void *what) {
    const page *const p = (const page *)what;
    page_head(f, p);
    page_bars(f, p);
    page_table(f, p);
    page_step(f, p);
    page_strips(f, p);
    page_curves(f, p);
    fputs("<footer>Made by train_gpt --ladder of memopt.h. Bytes are in powers of 1000.</footer>\n"
          "</main></body></html>\n",
          f);
}

static inline int page_write(const char *path, const page *p) { return !p->count || file_replace(path, page_put, p); }
#endif
