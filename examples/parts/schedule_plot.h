/* schedule_plot.h - a schedule as a picture: a column for the input and for each segment, time down, a row for each
   action that takes time.

   What to see    A diagonal down to the right is the first forward, one down to the left the backward, and every short
                  one in between is work done again; what stands between them is the memory it took. The bytes of a row
                  are the most that are alive while its action runs; the largest is the schedule's peak.
   How to use     schedule_plot(&chain, actions, count, PLOT_TEXT, stdout), or PLOT_SVG and a file; the actions are
                  those of memopt_schedule_for_budget(), memopt_tape_actions() and the like.
   What it costs  Text: rows times columns. SVG: about 60 bytes an action and layer. Memory: 8 bytes an action, 10 a
                  segment.
   How it works   As text, each row shows the state of all columns, and the action in its own. As SVG, what is held from
                  one row to another is one bar, so that the file grows with the actions and not with the picture. Bars
                  are drawn in layers, since what saves more must lie on top: copies, outputs, saved parts, then the
                  actions, then the bytes alive beside them.
   Trap           The list does not tell what a transfer costs, so costs here are those of computing. Numbers are
                  written by fprintf(), which asks the locale for the decimal point: SVG wants "C", as programs
                  begin. */
#ifndef PARTS_SCHEDULE_PLOT_H
#define PARTS_SCHEDULE_PLOT_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef enum plot_format { PLOT_TEXT, PLOT_SVG } plot_format;

enum { PLOT_COPIES, PLOT_OUTPUTS, PLOT_PARTS, PLOT_LAYERS }; /* of bars, the upper last */

enum { /* of the SVG, in pixels; CELL in units of the scaled drawing, of which one cell is so many wide and high */
    PLOT_LEFT = 64, PLOT_TOP = 116, PLOT_CURVE = 200, PLOT_GAP = 28, PLOT_LEAST = 880, PLOT_CELL = 10
};

typedef struct plot {
    FILE *file;
    const memopt_chain  *chain;
    const memopt_action *actions;
    size_t               count, rows;
    memopt_schedule_result sum;   /* of the whole schedule */
    size_t              *live;    /* of each action: the most bytes alive while it runs */
    uint32_t            *since;   /* of each column: the row in which its bar begins */
    uint32_t            *runs;    /* of each segment: forwards so far */
    unsigned char       *held;    /* of each column: a bit for each layer */
    size_t               row;     /* rows so far */
    size_t               width, height; /* of the SVG's grid */
} plot;

/* A text in which each # stands for the next number. */
static inline void plot_numbers(const plot *p, const char *text, const size_t *numbers) {
    for (; *text; ++text) {
        if (*text == '#') fprintf(p->file, "%llu", (unsigned long long)*numbers++);
        else fputc(*text, p->file);
    }
}

static inline void plot_bytes(char *text, size_t capacity, size_t bytes) { /* 12.3 MiB, rounded down */
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    unsigned long long whole = bytes;
    unsigned tenths = 0;
    int unit = 0;

    for (; whole >= 1024; whole /= 1024, ++unit) tenths = (unsigned)(whole % 1024 * 10 / 1024);
    if (unit) snprintf(text, capacity, "%llu.%u %s", whole, tenths, units[unit]);
    else snprintf(text, capacity, "%llu B", whole);
}

static inline void plot_title(const plot *p) {
    const size_t forwards[2] = { p->sum.forwards, p->sum.forwards - p->chain->count };
    const double least = p->sum.cost - p->sum.extra;
    char peak[32];

    plot_bytes(peak, sizeof peak, p->sum.peak);
    fprintf(p->file, "%lu segment%s: peak %s, cost %.6g", (unsigned long)p->chain->count,
            p->chain->count > 1 ? "s" : "", peak, p->sum.cost);
    if (least > 0) fprintf(p->file, ", %.6g%% above keeping all", p->sum.extra / least * 100);
    plot_numbers(p, "; # forwards, # of them again", forwards);
}

/* ---- going through the schedule ---- */

static inline int plot_has_row(memopt_action a) { return a.op != MEMOPT_ACTION_DROP && a.op != MEMOPT_ACTION_FORGET; }

/* The column of an action: that of the value it makes, moves or consumes; 0 is the input. */
static inline size_t plot_column(memopt_action a) { return (size_t)a.index + (a.op <= MEMOPT_ACTION_BACKWARD); }

static inline int plot_shows(const plot *p, size_t column, int layer) { return p->held[column] >> layer & 1; }

static inline int plot_is_again(const plot *p, memopt_action a) { /* the action that has just run */
    return a.op <= MEMOPT_ACTION_FORWARD_SAVE && p->runs[a.index] > 1;
}

static inline void plot_start(plot *p) {
    memset(p->held, 0, p->chain->count + 1);
    memset(p->runs, 0, p->chain->count * sizeof *p->runs);
    p->held[0] = 1 << PLOT_OUTPUTS;
    p->row = 0;
}

static inline void plot_step(plot *p, memopt_action a) {
    const unsigned copied = 1 << PLOT_COPIES;
    const unsigned output = 1 << PLOT_OUTPUTS;
    unsigned held = p->held[plot_column(a)];

    switch (a.op) {
    case MEMOPT_ACTION_FORWARD:      held |= output; break;
    case MEMOPT_ACTION_FORWARD_SAVE: held |= output | 1 << PLOT_PARTS; break;
    case MEMOPT_ACTION_BACKWARD:     held = 0; break;
    case MEMOPT_ACTION_DROP:         held &= ~output; break;
    case MEMOPT_ACTION_WRITE:        held |= copied; break;
    case MEMOPT_ACTION_READ:         held |= output; break;
    case MEMOPT_ACTION_FORGET:       held &= ~copied; break;
    default:                         break; /* WAIT */
    }
    p->held[plot_column(a)] = (unsigned char)held;
    if (a.op <= MEMOPT_ACTION_FORWARD_SAVE) ++p->runs[a.index];
    p->row += (size_t)plot_has_row(a);
}

/* ---- as text ---- */

static inline void plot_head(const plot *p) { /* what the letters mean; the numbers of the segments */
    const int columns = (int)p->chain->count;
    int i;

    plot_title(p);
    fputs("\n\n"
          "  > forward      S forward, saved     r R the same, again   < backward\n"
          "  | output held  # and saved part     ~ sent away only      . nothing\n"
          "  w being sent   b being brought back                       = waited for\n\n"
          "action in ", p->file);
    for (i = 0; i < columns; i += 10) fprintf(p->file, "%-*d", columns - i < 10 ? columns - i : 10, i);
    fputs("  bytes alive\n", p->file);
}

static inline void plot_row(const plot *p, size_t number) {
    const memopt_action a = p->actions[number];
    size_t v;
    int layer;

    fprintf(p->file, "%6lu  ", (unsigned long)number);
    for (v = 0; v <= p->chain->count; ++v) {
        char c = '.';

        for (layer = 0; layer < PLOT_LAYERS; ++layer)
            if (plot_shows(p, v, layer)) c = "~|#"[layer];
        if (v == plot_column(a)) c = plot_is_again(p, a) ? "rR"[a.op] : ">S<.wb="[a.op];
        fputc(c, p->file);
        if (!v) fputc(' ', p->file);
    }
    fprintf(p->file, "%13llu%s\n", (unsigned long long)p->live[number], number == p->sum.at ? "  peak" : "");
}

static inline void plot_text(plot *p) {
    size_t i;

    plot_head(p);
    plot_start(p);
    for (i = 0; i < p->count; ++i) {
        plot_step(p, p->actions[i]);
        if (plot_has_row(p->actions[i])) plot_row(p, i);
    }
}

/* ---- as SVG ---- */

static inline void plot_rect(const plot *p, const char *class_name, size_t x, size_t y, size_t width, size_t height) {
    const size_t box[] = { x, y, width, height };

    fprintf(p->file, "<rect class=\"%s\"", class_name);
    plot_numbers(p, " x=\"#\" y=\"#\" width=\"#\" height=\"#\"/>\n", box);
}

/* Its text and </text> follow. */
static inline void plot_label(const plot *p, const char *class_name, size_t x, size_t y) {
    const size_t place[] = { x, y };

    fprintf(p->file, "<text class=\"%s\"", class_name);
    plot_numbers(p, " x=\"#\" y=\"#\">", place);
}

static inline void plot_label_number(const plot *p, const char *class_name, size_t x, size_t y, size_t n) {
    plot_label(p, class_name, x, y);
    plot_numbers(p, "#</text>\n", &n);
}

static inline void plot_legend(const plot *p) {
    static const struct { const char *class_name, *text; size_t x, y; } entries[] = {
        { "f", "forward", 0, 0 }, { "s", "forward, saved", 100, 0 }, { "g", "forward again", 230, 0 },
        { "r", "again, saved", 355, 0 }, { "b", "backward", 475, 0 }, { "t", "sent, brought back", 580, 0 },
        { "v", "output held", 0, 1 }, { "p", "and saved part held", 100, 1 }, { "c", "sent away", 250, 1 },
        { "w", "waited for", 355, 1 }, { "m", "bytes alive", 475, 1 }
    };
    size_t i;

    for (i = 0; i < sizeof entries / sizeof *entries; ++i) {
        const size_t x = PLOT_LEFT + entries[i].x;
        const size_t y = 46 + 20 * entries[i].y;

        plot_rect(p, entries[i].class_name, x, y, 11, 11);
        plot_label(p, "l", x + 16, y + 10);
        fprintf(p->file, "%s</text>\n", entries[i].text);
    }
}

static inline size_t plot_right(const plot *p) { return PLOT_LEFT + p->width + PLOT_GAP; } /* of it: the bytes alive */

static inline void plot_open(const plot *p) {
    const size_t height = PLOT_TOP + p->height + 30;
    size_t width = plot_right(p) + PLOT_CURVE + PLOT_GAP;
    size_t sizes[4];

    if (width < PLOT_LEAST) width = PLOT_LEAST;
    sizes[0] = sizes[2] = width;
    sizes[1] = sizes[3] = height;
    plot_numbers(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"#\" height=\"#\" viewBox=\"0 0 # #\">\n", sizes);
    fputs("<style>text{font-family:sans-serif;fill:#333}"
          ".h{font-size:14px;font-weight:bold}.l{font-size:12px}.n{font-size:10px;text-anchor:middle}"
          ".e{font-size:10px;text-anchor:end}.a{fill:#fff}.k{fill:#f6f6f4}"
          ".v{fill:#c3dcf0}.p{fill:#5a9bcf}.c{fill:#e8d9b5}.f{fill:#37a35a}.s{fill:#0c6b2f}.g{fill:#f7a928}"
          ".r{fill:#d4570a}.b{fill:#7d4aa8}.t{fill:#8a6d3b}.w{fill:#9a9a9a}.m{fill:#d98a9b}"
          ".d{stroke:#a02040;stroke-dasharray:3 3}</style>\n", p->file);
    plot_rect(p, "a", 0, 0, width, height);
    plot_label(p, "h", PLOT_LEFT, 28);
    plot_title(p);
    fputs("</text>\n", p->file);
    plot_legend(p);
}

/* About twelve numbers along each side: 1, 2 or 5 times a power of ten apart. */
static inline size_t plot_stride(size_t count) {
    size_t stride = 1;
    size_t k = 0;

    for (; count / stride > 12; ++k) stride = k % 3 == 1 ? stride / 2 * 5 : stride * 2;
    return stride;
}

static inline void plot_axes(const plot *p) {
    const size_t n = p->chain->count;
    const size_t right = plot_right(p);
    const size_t stride = plot_stride(p->rows);
    char peak[32];
    size_t i;
    size_t row = 0;

    for (i = 0; i < n; i += plot_stride(n)) /* in the middle of column i + 1 */
        plot_label_number(p, "n", PLOT_LEFT + (2 * i + 3) * p->width / (2 * n + 2), PLOT_TOP - 6, i);
    for (i = 0; i < p->count; ++i) /* numbers of actions, at the rows that they have */
        if (plot_has_row(p->actions[i]) && row++ % stride == 0)
            plot_label_number(p, "e", PLOT_LEFT - 6, PLOT_TOP + (2 * row - 1) * p->height / (2 * p->rows) + 4, i);
    plot_rect(p, "k", PLOT_LEFT, PLOT_TOP, p->width, p->height);
    plot_rect(p, "k", right, PLOT_TOP, PLOT_CURVE, p->height);
    plot_label(p, "e", right + PLOT_CURVE, PLOT_TOP - 6);
    plot_bytes(peak, sizeof peak, p->sum.peak);
    fprintf(p->file, "%s</text>\n", peak);
}

/* What is inside is drawn in cells of CELL by CELL, and scaled to its place. */
static inline void plot_scale(const plot *p, size_t x, size_t width, size_t columns) {
    const size_t place[] = { x, PLOT_TOP };

    plot_numbers(p, "<g transform=\"translate(# #) ", place);
    fprintf(p->file, "scale(%.6g %.6g)\">\n", (double)width / (double)(columns * PLOT_CELL),
            (double)p->height / (double)(p->rows * PLOT_CELL));
}

/* One layer of bars: from the row in which something is there to the one after which it is gone. */
static inline void plot_bars(plot *p, int layer) {
    static const char *const classes[PLOT_LAYERS] = { "c", "v", "p" };
    const size_t cell = PLOT_CELL;
    size_t i;

    plot_start(p);
    p->since[0] = 0;
    for (i = 0; i <= p->count; ++i) { /* at the last one: the input, which stays */
        const size_t v = i < p->count ? plot_column(p->actions[i]) : 0;
        const int before = plot_shows(p, v, layer);
        const size_t row = p->row;
        int after = 0;

        if (i < p->count) {
            plot_step(p, p->actions[i]);
            after = plot_shows(p, v, layer);
        }
        if (!before && after) p->since[v] = (uint32_t)row;
        if (before && !after && p->row > p->since[v])
            plot_rect(p, classes[layer], v * cell + 1, p->since[v] * cell, cell - 2, (p->row - p->since[v]) * cell);
    }
}

static inline void plot_marks(plot *p) {
    static const char *const classes[] = { "f", "s", "b", "", "t", "t", "w" }; /* by action; colours: the style */
    static const char *const again[] = { "g", "r" };
    const size_t cell = PLOT_CELL;
    size_t i;

    plot_start(p);
    for (i = 0; i < p->count; ++i) {
        const memopt_action a = p->actions[i];

        plot_step(p, a);
        if (plot_has_row(a))
            plot_rect(p, plot_is_again(p, a) ? again[a.op] : classes[a.op], plot_column(a) * cell, (p->row - 1) * cell,
                      cell, cell);
    }
}

/* The bytes alive: the peak is CURVE cells wide. */
static inline void plot_curve(const plot *p) {
    const double wide = PLOT_CURVE * PLOT_CELL;
    size_t peak[2] = { 0, PLOT_CURVE * PLOT_CELL };
    size_t row = 0;
    size_t i;

    fputs("<path class=\"m\" d=\"M0 0", p->file);
    for (i = 0; i < p->count; ++i) {
        size_t point[2];

        row += (size_t)plot_has_row(p->actions[i]);
        point[0] = p->sum.peak ? (size_t)((double)p->live[i] / (double)p->sum.peak * wide) : 0;
        point[1] = row * PLOT_CELL;
        if (i == p->sum.at) peak[0] = point[1] - PLOT_CELL / 2;
        if (plot_has_row(p->actions[i])) plot_numbers(p, "H#V#", point);
    }
    plot_numbers(p, "H0Z\"/>\n<path class=\"d\" vector-effect=\"non-scaling-stroke\" d=\"M0 #H#\"/>\n", peak);
}

static inline void plot_svg(plot *p) {
    const size_t columns = p->chain->count + 1;
    int layer;

    p->width = columns * 18 < 960 ? columns * 18 : 960;
    p->height = p->rows * 10 < 1600 ? p->rows * 10 : 1600;
    plot_open(p);
    plot_axes(p);
    plot_scale(p, PLOT_LEFT, p->width, columns);
    for (layer = 0; layer < PLOT_LAYERS; ++layer) plot_bars(p, layer);
    plot_marks(p);
    fputs("</g>\n", p->file);
    plot_scale(p, plot_right(p), PLOT_CURVE, PLOT_CURVE);
    plot_curve(p);
    fputs("</g>\n</svg>\n", p->file);
}

static inline memopt_status plot_draw(plot *p, const memopt_offload *offload, plot_format format) {
    const size_t columns = p->chain->count + 1;
    const int whole = (p->live = (size_t *)malloc(p->count * sizeof *p->live)) != NULL
        && (p->since = (uint32_t *)malloc(columns * sizeof *p->since)) != NULL
        && (p->runs = (uint32_t *)malloc(columns * sizeof *p->runs)) != NULL
        && (p->held = (unsigned char *)malloc(columns)) != NULL;
    memopt_status status = MEMOPT_ERR_MEMORY;

    if (whole) status = memopt_schedule_live(p->chain, offload, p->actions, p->count, NULL, p->live);
    if (!status && format == PLOT_TEXT) plot_text(p);
    if (!status && format == PLOT_SVG) plot_svg(p);
    free(p->live);
    free(p->since);
    free(p->runs);
    free(p->held);
    return status;
}

/* Draws a schedule. OK; ERR_STATE: the actions are no schedule of this chain, and chain->error says why; ERR_ARGUMENT
   (NULL, no such format), ERR_MEMORY; ERR_IO: `file` could not be written. */
static inline memopt_status schedule_plot(const memopt_chain *chain, const memopt_action *actions, size_t count,
                                          plot_format format, FILE *file) {
    static const memopt_offload any = { MEMOPT_OFFLOAD_UNLIMITED, 0, 0, 0, 0, 0 }; /* a store that any list can use */
    memopt_status status;
    plot p;
    size_t i;

    if (!file || (format != PLOT_TEXT && format != PLOT_SVG)) return MEMOPT_ERR_ARGUMENT;
    memset(&p, 0, sizeof p);
    status = memopt_schedule_simulate(chain, &any, actions, count, NULL, &p.sum);
    if (status) return status;
    p.file = file;
    p.chain = chain;
    p.actions = actions;
    p.count = count;
    for (i = 0; i < count; ++i) p.rows += (size_t)plot_has_row(actions[i]);
    status = plot_draw(&p, &any, format);
    return !status && ferror(file) ? MEMOPT_ERR_IO : status;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
