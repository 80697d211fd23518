/* schedule_tool.c - schedules for people and scripts: REVOLVE's figures; the best schedule of a chain in a table. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "revolve.h"
#include "../examples/parts/schedule_plot.h"
#include <errno.h>
#include <stdio.h>

static const char usage[] =
    "usage: schedule_tool --revolve L C [--slow SLOTS,WRITE,READ]\n"
    "       schedule_tool --chain FILE.csv [--input BYTES] [--input-grad BYTES] [--budget N | --overhead P] [...]\n"
    "  --revolve L C     forwards to reverse L equal segments with C values in memory, beside one for each backward;\n"
    "                    with --slow the whole time, when a forward takes 1, a backward 2\n"
    "  --chain FILE.csv  a row a segment; the first line names the columns, in any order: output, saved (all that its\n"
    "                    backward keeps, its own output included), grad, forward_scratch, backward_scratch,\n"
    "                    forward_cost, backward_cost\n"
    "  --input BYTES     what enters the first segment (default 0); --input-grad BYTES: its gradient\n"
    "  --budget N        the fastest schedule within N bytes, the input included\n"
    "  --overhead P      the least memory for at most P percent more time than keeping everything takes\n"
    "                    (without both: the fastest schedule)\n"
    "  --rule RULE       extended (default), rotor, revolve; or of the textbook: all, none, every:K, sqrt\n"
    "  --slow SLOTS,WRITE,READ  a second place for SLOTS values (-1: any number), and what each transfer costs\n"
    "  --overlap         transfers run beside the computing\n"
    "  --slots N         points kept for each part of the chain, 16 to 65535 (default: 280 to 1024, as 64 MiB hold)\n"
    "  --frontier        adds every peak at which the cost falls\n"
    "  --strip FILE.txt, --svg FILE.svg  draw the schedule\n"
    "prints a number, or one line of JSON: feasible, peak, cost, extra, overhead_percent, minimum, steps, forwards,\n"
    "seconds\n"
    "exit status 0: done, also when the budget is too small (feasible is false, minimum tells what is needed); 1: out\n"
    "of memory; 2: usage, or a file is wrong: what and where is on stderr\n";

typedef struct schedule_tool {
    const char *chain_file, *strip_file, *svg_file;
    int         revolve, has_budget, has_overhead, frontier, textbook;
    uint64_t    segments, values;
    size_t      budget, input, input_grad, every, slots;
    double      overhead;
    memopt_schedule_rule rule;
    memopt_offload offload;
    memopt_segment *rows; /* of the chain */
    memopt_chain    chain;
    memopt_action  *actions;
    size_t          action_count;
} schedule_tool;

static const char schedule_tool_slots[] = "--slots wants a number from 16 to 65535";

static int schedule_tool_failed(const char *why) { fprintf(stderr, "schedule_tool: %s\n", why); return 2; }

/* -- numbers and arguments -- */

static int schedule_tool_integer(const char *text, uint64_t *out) { /* 1: not a whole number, or too large */
    uint64_t value = 0;
    if (!*text) return 1;
    for (; *text; ++text) {
        const unsigned digit = (unsigned)(unsigned char)*text - '0';
        if (digit > 9 || value > (UINT64_MAX - digit) / 10) return 1;
        value = value * 10 + digit;
    }
    *out = value;
    return 0;
}
static int schedule_tool_size(const char *text, size_t *out) {
    uint64_t value;
    if (schedule_tool_integer(text, &value) || value > SIZE_MAX) return 1;
    *out = (size_t)value;
    return 0;
}
static int schedule_tool_cost(const char *text, double *out) { /* 1: not finite and decimal, or below 0 */
    char *end;
    /* strtod takes blanks, signs, nan and hexadecimal too */
    if (!(*text >= '0' && *text <= '9') && *text != '.') return 1;
    if (strchr(text, 'x') || strchr(text, 'X')) return 1;
    *out = strtod(text, &end);
    return *end || end == text || !(*out <= 1e300);
}
static int schedule_tool_slow(const char *text, memopt_offload *offload) { /* SLOTS,WRITE,READ */
    char part[3][64]; size_t i, length;
    for (i = 0; i < 3; ++i) {
        length = strcspn(text, ",");
        if (length >= sizeof part[i] || (text[length] != ',') != (i == 2)) return 1;
        memcpy(part[i], text, length);
        part[i][length] = 0;
        text += length + (i < 2);
    }
    if (!strcmp(part[0], "-1")) offload->slots = MEMOPT_OFFLOAD_UNLIMITED;
    else if (schedule_tool_size(part[0], &offload->slots)) return 1;
    return schedule_tool_cost(part[1], &offload->write_cost) || schedule_tool_cost(part[2], &offload->read_cost);
}
static int schedule_tool_rule(const char *text, schedule_tool *t) {
    static const struct { const char *name; memopt_schedule_rule rule; } names[] = {
        { "extended", MEMOPT_SCHEDULE_EXTENDED }, { "rotor", MEMOPT_SCHEDULE_ROTOR }, { "revolve", MEMOPT_SCHEDULE_REVOLVE },
        { "all", MEMOPT_SCHEDULE_ALL }, { "none", MEMOPT_SCHEDULE_NONE }, { "sqrt", MEMOPT_SCHEDULE_SQRT }
    };
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; ++i)
        if (!strcmp(text, names[i].name)) break;
    t->rule = i < sizeof names / sizeof names[0] ? names[i].rule : MEMOPT_SCHEDULE_EVERY;
    t->textbook = t->rule >= MEMOPT_SCHEDULE_ALL;
    if (t->rule != MEMOPT_SCHEDULE_EVERY) return 0;
    return strncmp(text, "every:", 6) || schedule_tool_size(text + 6, &t->every) || !t->every;
}
/* One option with a value. NULL, or what is wrong. */
static const char *schedule_tool_option(schedule_tool *t, const char *name, const char *value) {
    if (!strcmp(name, "--chain")) { t->chain_file = value; return NULL; }
    if (!strcmp(name, "--strip")) { t->strip_file = value; return NULL; }
    if (!strcmp(name, "--svg"))   { t->svg_file = value; return NULL; }
    if (!strcmp(name, "--input"))
        return schedule_tool_size(value, &t->input) ? "--input wants a number of bytes" : NULL;
    if (!strcmp(name, "--input-grad"))
        return schedule_tool_size(value, &t->input_grad) ? "--input-grad wants a number of bytes" : NULL;
    if (!strcmp(name, "--slots"))
        return schedule_tool_size(value, &t->slots) ? schedule_tool_slots : NULL;
    if (!strcmp(name, "--rule"))
        return schedule_tool_rule(value, t) ? "--rule wants extended, rotor, revolve, all, none, every:K, sqrt" : NULL;
    if (!strcmp(name, "--slow"))
        return schedule_tool_slow(value, &t->offload) ? "--slow wants SLOTS,WRITE,READ" : NULL;
    if (!strcmp(name, "--budget")) {
        t->has_budget = 1;
        return schedule_tool_size(value, &t->budget) ? "--budget wants a number of bytes" : NULL;
    }
    if (!strcmp(name, "--overhead")) {
        t->has_overhead = 1;
        return schedule_tool_cost(value, &t->overhead) ? "--overhead wants percent, not negative" : NULL;
    }
    return "unknown argument";
}
static const char *schedule_tool_arguments(int argc, char **argv, schedule_tool *t) { /* NULL, or what is wrong */
    const char *why; int i;
    memset(t, 0, sizeof *t);
    for (i = 1; i < argc; ++i) {
        const char *name = argv[i];
        if (!strcmp(name, "--frontier")) { t->frontier = 1; continue; }
        if (!strcmp(name, "--overlap")) { t->offload.overlap = 1; continue; }
        if (!strcmp(name, "--revolve")) {
            if (i + 2 >= argc || schedule_tool_integer(argv[i + 1], &t->segments)
                || schedule_tool_integer(argv[i + 2], &t->values))
                return "--revolve wants two numbers";
            t->revolve = 1;
            i += 2;
            continue;
        }
        if (++i == argc) return "unknown argument, or its value is missing";
        why = schedule_tool_option(t, name, argv[i]);
        if (why) return why;
    }
    if (t->revolve == (t->chain_file != NULL)) return "either --revolve or --chain is wanted";
    if (t->has_budget && t->has_overhead) return "--budget and --overhead exclude each other";
    if (t->textbook && (t->has_overhead || t->frontier || t->offload.slots))
        return "a rule of the textbook has no overhead, frontier or offload store";
    return NULL;
}

/* -- the table -- */

enum { SCHEDULE_TOOL_COLUMNS = 7, SCHEDULE_TOOL_LINE = 4096 };
static const char *const schedule_tool_names[SCHEDULE_TOOL_COLUMNS] = {
    "output", "saved", "grad", "forward_scratch", "backward_scratch", "forward_cost", "backward_cost"
};
typedef struct schedule_tool_table {
    char   line[SCHEDULE_TOOL_LINE];
    size_t number; /* of the line, from 1 */
    int    column[64], columns;
} schedule_tool_table;

/* The next line without its end. 0: there is none; -1: it is too long, or has a 0 in it */
static int schedule_tool_line(FILE *file, schedule_tool_table *t) {
    size_t length = 0; int c;
    while ((c = getc(file)) != EOF && c != '\n') {
        if (!c || length + 1 == sizeof t->line) return -1;
        t->line[length++] = (char)c;
    }
    if (c == EOF && !length) return 0;
    if (length && t->line[length - 1] == '\r') --length;
    t->line[length] = 0;
    ++t->number;
    return 1;
}
static char *schedule_tool_field(char **rest) { /* the text up to the next comma; NULL at the end */
    char *field = *rest, *comma;
    if (!field) return NULL;
    comma = strchr(field, ',');
    if (comma) *comma = 0;
    *rest = comma ? comma + 1 : NULL;
    return field;
}
static const char *schedule_tool_header(schedule_tool_table *t) { /* NULL, or what is wrong */
    char *rest = t->line, *field; int seen[SCHEDULE_TOOL_COLUMNS] = { 0 }, i;
    for (t->columns = 0; (field = schedule_tool_field(&rest)) != NULL; ++t->columns) {
        if (t->columns == 64) return "there are more than 64 columns";
        t->column[t->columns] = -1; /* not one of ours: ignored */
        for (i = 0; i < SCHEDULE_TOOL_COLUMNS; ++i) {
            if (strcmp(field, schedule_tool_names[i])) continue;
            if (seen[i]++) return "a column is there twice";
            t->column[t->columns] = i;
        }
    }
    for (i = 0; i < SCHEDULE_TOOL_COLUMNS; ++i)
        if (!seen[i])
            return "a column is missing: output, saved, grad, forward_scratch, backward_scratch, forward_cost or "
                   "backward_cost";
    return NULL;
}
static const char *schedule_tool_row(schedule_tool_table *t, memopt_segment *s) { /* NULL, or what is wrong */
    char *rest = t->line, *field; size_t *sizes[5]; int i, wrong = 0;
    memset(s, 0, sizeof *s);
    sizes[0] = &s->output_bytes; sizes[1] = &s->saved_bytes; sizes[2] = &s->grad_bytes;
    sizes[3] = &s->forward_scratch; sizes[4] = &s->backward_scratch;
    for (i = 0; (field = schedule_tool_field(&rest)) != NULL; ++i) {
        const int column = i < t->columns ? t->column[i] : -1;
        if (column >= 5) wrong |= schedule_tool_cost(field, column == 5 ? &s->forward_cost : &s->backward_cost);
        else if (column >= 0) wrong |= schedule_tool_size(field, sizes[column]);
    }
    if (i != t->columns) return "the row has not as many fields as the header";
    if (wrong) return "a field is no number of bytes, or no cost (finite, not negative)";
    return s->saved_bytes < s->output_bytes ? "saved is less than output, which it includes" : NULL;
}
/* NULL, or what is wrong */
static const char *schedule_tool_rows(FILE *file, schedule_tool_table *table, schedule_tool *t) {
    const char *why; int got;
    do got = schedule_tool_line(file, table); while (got > 0 && !table->line[0]);
    if (!got) return "there is no header";
    if (got < 0) return "the line is too long, or no text";
    why = schedule_tool_header(table);
    if (why) return why;
    while ((got = schedule_tool_line(file, table)) > 0) {
        if (!table->line[0]) continue;
        if (t->chain.count == MEMOPT_CHAIN_MAX) return "there are too many segments";
        why = schedule_tool_row(table, &t->rows[t->chain.count]);
        if (why) return why;
        ++t->chain.count;
    }
    if (got < 0) { ++table->number; return "the line is too long, or no text"; }
    return t->chain.count ? NULL : "there are no segments";
}
static int schedule_tool_read(schedule_tool *t) { /* 0, or the exit status */
    static schedule_tool_table table; const char *why; FILE *file = fopen(t->chain_file, "rb");
    if (!file) { fprintf(stderr, "schedule_tool: cannot read %s: %s\n", t->chain_file, strerror(errno)); return 2; }
    t->rows = (memopt_segment *)calloc(MEMOPT_CHAIN_MAX, sizeof *t->rows);
    if (!t->rows) { fclose(file); schedule_tool_failed("out of memory"); return 1; }
    why = schedule_tool_rows(file, &table, t);
    if (!why && ferror(file)) why = "cannot be read";
    fclose(file);
    if (why) {
        fprintf(stderr, "%s:%llu: %s\n", t->chain_file, (unsigned long long)(table.number ? table.number : 1), why);
        return 2;
    }
    t->chain.segments = t->rows;
    t->chain.input_bytes = t->input; t->chain.input_grad_bytes = t->input_grad;
    return 0;
}

/* -- results -- */

static double schedule_tool_seconds(void) {
    memopt_host host; uint64_t now = 0;
    memopt_host_resolve(NULL, &host);
    host.clock.now_fn(host.clock.user, &now);
    return (double)now * 1e-9;
}
/* 0, or the exit status */
static int schedule_tool_draw(const schedule_tool *t, const char *path, plot_format format) {
    FILE *file = fopen(path, "wb");
    const memopt_status s = file ? schedule_plot(&t->chain, t->actions, t->action_count, format, file) : MEMOPT_ERR_IO;
    if (file && !fclose(file) && !s) return 0;
    if (s == MEMOPT_ERR_MEMORY) { schedule_tool_failed("out of memory"); return 1; }
    fprintf(stderr, "schedule_tool: cannot write %s\n", path);
    return 2;
}
static int schedule_tool_print_frontier(const memopt_schedule *schedule) {
    size_t count = 0, i; memopt_schedule_point *points;
    memopt_schedule_frontier(schedule, NULL, 0, &count);
    points = (memopt_schedule_point *)malloc((count + 1) * sizeof *points);
    if (!points || memopt_schedule_frontier(schedule, points, count, &count)) { free(points); return 1; }
    printf(", \"frontier\": [");
    for (i = 0; i < count; ++i)
        printf("%s{\"peak\": %llu, \"cost\": %.15g}", i ? ", " : "", (unsigned long long)points[i].peak,
               points[i].cost);
    printf("]");
    free(points);
    return 0;
}
static void schedule_tool_print(const schedule_tool *t, const memopt_schedule_result *r, int feasible, size_t minimum,
                                double seconds) {
    printf("{\"feasible\": %s", feasible ? "true" : "false");
    if (t->action_count)
        printf(", \"peak\": %llu, \"cost\": %.15g, \"extra\": %.15g, \"overhead_percent\": %.6g",
               (unsigned long long)r->peak, r->cost, r->extra,
               r->cost - r->extra > 0 ? 100 * r->extra / (r->cost - r->extra) : 0);
    printf(", \"minimum\": %llu", (unsigned long long)minimum);
    if (t->action_count)
        printf(", \"steps\": %llu, \"forwards\": %llu", (unsigned long long)r->actions,
               (unsigned long long)r->forwards);
    printf(", \"seconds\": %.6f", seconds);
}
/* Why a chain is refused although every row is fine by itself. */
static int schedule_tool_refused(const schedule_tool *t, memopt_status s) {
    const char *where = t->chain_file ? t->chain_file : "schedule_tool";
    if (s == MEMOPT_ERR_OVERFLOW) fprintf(stderr, "%s: the sizes or costs are too large when summed\n", where);
    else if (s == MEMOPT_ERR_ARGUMENT) schedule_tool_failed(schedule_tool_slots);
    else fprintf(stderr, "schedule_tool: %s\n", memopt_status_text(s));
    return s == MEMOPT_ERR_MEMORY ? 1 : 2;
}
static int schedule_tool_textbook(schedule_tool *t) {
    memopt_schedule_result r; const double start = schedule_tool_seconds(); double seconds;
    memopt_status s = memopt_schedule_textbook(&t->chain, t->rule, t->every, NULL, 0, &t->action_count);
    if (s != MEMOPT_ERR_BUFFER) return schedule_tool_refused(t, s);
    t->actions = (memopt_action *)malloc(t->action_count * sizeof *t->actions);
    if (!t->actions) { schedule_tool_failed("out of memory"); return 1; }
    s = memopt_schedule_textbook(&t->chain, t->rule, t->every, t->actions, t->action_count, &t->action_count);
    seconds = schedule_tool_seconds() - start;
    if (!s) s = memopt_schedule_simulate(&t->chain, NULL, t->actions, t->action_count, NULL, &r);
    if (s) return schedule_tool_refused(t, s);
    schedule_tool_print(t, &r, !t->has_budget || r.peak <= t->budget, r.peak, seconds);
    printf("}\n");
    return 0;
}
static memopt_status schedule_tool_ask(const schedule_tool *t, const memopt_schedule *schedule, memopt_action *actions,
                                       size_t capacity, memopt_schedule_result *r) {
    if (t->has_overhead) return memopt_schedule_for_overhead(schedule, t->overhead / 100, actions, capacity, NULL, r);
    return memopt_schedule_for_budget(schedule, t->has_budget ? t->budget : SIZE_MAX, actions, capacity, NULL, r);
}
/* The actions that are asked for: how many, memory for them, and once more. */
static memopt_status schedule_tool_take(schedule_tool *t, const memopt_schedule *schedule, memopt_schedule_result *r) {
    const memopt_status s = schedule_tool_ask(t, schedule, NULL, 0, r);
    if (s != MEMOPT_ERR_BUFFER) return s;
    t->actions = (memopt_action *)malloc(r->actions * sizeof *t->actions);
    if (!t->actions) return MEMOPT_ERR_MEMORY;
    t->action_count = r->actions;
    return schedule_tool_ask(t, schedule, t->actions, t->action_count, r);
}
static int schedule_tool_answer(schedule_tool *t, const memopt_schedule *schedule, double seconds) {
    memopt_schedule_result r; memopt_status s; size_t minimum;
    memset(&r, 0, sizeof r);
    minimum = memopt_schedule_for_budget(schedule, 0, NULL, 0, NULL, &r) == MEMOPT_ERR_MEMORY ? r.peak : 0;
    s = schedule_tool_take(t, schedule, &r);
    if (s && !(s == MEMOPT_ERR_MEMORY && t->has_budget && t->budget < minimum)) return schedule_tool_refused(t, s);
    schedule_tool_print(t, &r, t->action_count != 0, minimum, seconds);
    if (t->frontier && schedule_tool_print_frontier(schedule)) { schedule_tool_failed("out of memory"); return 1; }
    printf("}\n");
    return 0;
}
static memopt_status schedule_tool_solve(const schedule_tool *t, void **memory, const memopt_schedule **schedule) {
    memopt_schedule_desc d; size_t bytes; memopt_status s;
    memset(&d, 0, sizeof d);
    d.chain = t->chain; d.rule = t->rule; d.offload = t->offload; d.slots = t->slots;
    s = memopt_schedule_bytes(&d, &bytes);
    if (s) return s;
    if (bytes > SIZE_MAX - 64) return MEMOPT_ERR_OVERFLOW;
    *memory = malloc(bytes + 64);
    if (!*memory) return MEMOPT_ERR_MEMORY;
    return memopt_schedule_solve(&d, (unsigned char *)*memory + (64 - (uintptr_t)*memory % 64), bytes, schedule);
}
static int schedule_tool_chain(schedule_tool *t) {
    void *memory = NULL; const memopt_schedule *schedule = NULL; double start; memopt_status s;
    int status = schedule_tool_read(t);
    if (status) return status;
    if (t->textbook) status = schedule_tool_textbook(t);
    else {
        start = schedule_tool_seconds();
        s = schedule_tool_solve(t, &memory, &schedule);
        status = s ? schedule_tool_refused(t, s) : schedule_tool_answer(t, schedule, schedule_tool_seconds() - start);
        free(memory);
    }
    if (!status && t->action_count && t->strip_file) status = schedule_tool_draw(t, t->strip_file, PLOT_TEXT);
    if (!status && t->action_count && t->svg_file) status = schedule_tool_draw(t, t->svg_file, PLOT_SVG);
    return status;
}
/* With an offload store: segments of one byte and nothing saved; the values in memory, and two on the way. */
static int schedule_tool_revolve(schedule_tool *t) {
    void *memory = NULL; const memopt_schedule *schedule = NULL; memopt_schedule_result r; memopt_status s; size_t i;
    if (!t->offload.slots) {
        const uint64_t forwards = revolve_forwards(t->segments, t->values);
        if (forwards == UINT64_MAX)
            return schedule_tool_failed("--revolve: no values in memory, or the number does not fit 64 bits");
        printf("%llu\n", (unsigned long long)forwards);
        return 0;
    }
    if (!t->segments || t->segments > MEMOPT_CHAIN_MAX || !t->values)
        return schedule_tool_failed("--revolve with --slow wants 1 to 4096 segments and a value in memory");
    t->rows = (memopt_segment *)calloc((size_t)t->segments, sizeof *t->rows);
    if (!t->rows) { schedule_tool_failed("out of memory"); return 1; }
    for (i = 0; i < t->segments; ++i) {
        t->rows[i].output_bytes = t->rows[i].saved_bytes = 1;
        t->rows[i].forward_cost = 1; t->rows[i].backward_cost = 2;
    }
    t->chain.segments = t->rows; t->chain.count = (size_t)t->segments; t->chain.input_bytes = 1;
    t->rule = MEMOPT_SCHEDULE_REVOLVE;
    t->budget = t->values < t->segments ? (size_t)t->values + 2 : (size_t)t->segments + 2; t->has_budget = 1;
    s = schedule_tool_solve(t, &memory, &schedule);
    if (!s) s = schedule_tool_take(t, schedule, &r);
    free(memory);
    if (s) return schedule_tool_refused(t, s);
    printf("%.15g\n", r.cost - (double)t->segments); /* without the forward that each backward needs anyway */
    return 0;
}
int main(int argc, char **argv) {
    schedule_tool t; const char *why; int status;
    if (argc == 2 && !strcmp(argv[1], "--help")) { fputs(usage, stdout); return 0; }
    why = schedule_tool_arguments(argc, argv, &t);
    if (why) { fprintf(stderr, "schedule_tool: %s\n%s", why, usage); return 2; }
    status = t.revolve ? schedule_tool_revolve(&t) : schedule_tool_chain(&t);
    if (fflush(stdout) || ferror(stdout)) status = schedule_tool_failed("cannot write to standard output");
    free(t.rows);
    free(t.actions);
    return status;
}
