/* plan_tool.c - plan a table of buffers (see plan_csv.h) and print one line of JSON about the plan. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "plan_csv.h"

static const char usage[] =
    "usage: plan_tool FILE.csv [--ms N] [--capacity N] [--out FILE]\n"
    "  FILE.csv      buffers: id, lower, upper, size, and optionally alignment, offset, hint, gaps\n"
    "                (a gap is planned as if it were used: valid, though more may be possible)\n"
    "  --ms N        stop soon after N milliseconds (default 1000; 0: greedy orders only)\n"
    "  --capacity N  stop at the first plan of N bytes or less; adds the key \"fits\"\n"
    "  --out FILE    write the rows with their offsets\n"
    "prints one line of JSON: buffers, lower_bound, peak, ratio, ms, valid, optimal, work, cut (why a smaller plan may have\n"
    "been missed), orders\n"
    "exit status 0: planned; 1: a file is wrong, what and where is on stderr; 2: usage\n";

typedef struct plan_tool { const char *file, *out; size_t ms, capacity; int has_capacity; } plan_tool;

static int plan_tool_arguments(int argc, char **argv, plan_tool *t) { /* 1: wrong */
    int i;
    memset(t, 0, sizeof *t);
    t->ms = 1000;
    for (i = 1; i < argc; ++i) {
        const char *name = argv[i]; plan_csv_text value;
        if (strncmp(name, "--", 2)) {
            if (t->file) return 1;
            t->file = name;
            continue;
        }
        if (++i == argc) return 1;
        value.at = argv[i]; value.length = strlen(argv[i]);
        if (!strcmp(name, "--out")) t->out = argv[i];
        else if (!strcmp(name, "--ms")) { if (plan_csv_number(value, &t->ms)) return 1; }
        else if (!strcmp(name, "--capacity")) { if (plan_csv_number(value, &t->capacity)) return 1; t->has_capacity = 1; }
        else return 1;
    }
    return !t->file;
}
static char *plan_tool_read(const char *path, size_t *length) { /* the whole file; NULL: it cannot be read */
    FILE *file = fopen(path, "rb"); size_t room = 65536, got; char *text, *more;
    if (!file) return NULL;
    *length = 0;
    text = (char *)malloc(room);
    while (text && (got = fread(text + *length, 1, room - *length, file)) > 0) {
        *length += got;
        if (*length < room) continue;
        more = room > SIZE_MAX / 2 ? NULL : (char *)realloc(text, room *= 2);
        if (!more) free(text);
        text = more;
    }
    if (text && ferror(file)) { free(text); text = NULL; }
    fclose(file);
    return text;
}
/* Is the plan valid? Written apart from the planner: every two buffers, by the definition. */
static int plan_tool_valid(const memopt_plan_item *items, const memopt_plan_item *before, size_t count, size_t peak) {
    size_t i, k, top = 0;
    for (i = 0; i < count; ++i) {
        const memopt_plan_item *a = &items[i]; const size_t a_end = a->offset + a->size;
        if (a_end < a->offset || (a->alignment > 1 && a->offset % a->alignment)) return 0;
        if (before[i].fixed && a->offset != before[i].offset) return 0;
        if (a_end > top) top = a_end;
        for (k = 0; k < i; ++k) {
            const memopt_plan_item *b = &items[k];
            const int apart_in_time = a->last <= b->first || b->last <= a->first;
            const int apart_in_memory = a_end <= b->offset || b->offset + b->size <= a->offset;
            if (!apart_in_time && !apart_in_memory) return 0;
        }
    }
    return top == peak;
}
static void plan_tool_print(const plan_tool *t, size_t count, const memopt_plan_result *r, double ms, int valid) {
    static const char *const why[] = { "time", "work", "visits", "count", "memory" };
    static const char *const order[] = { "life, size", "size, life", "area, size", "conflicts, size",
        "long lives, size", "early, size", "late, size", "as the heap" };
    unsigned i; const char *comma = "";
    printf("{\"buffers\": %llu, \"lower_bound\": %llu, \"peak\": %llu, \"ratio\": %.6f, \"ms\": %.3f, \"valid\": %s, "
           "\"optimal\": %s, \"work\": %llu, \"cut\": [", (unsigned long long)count, (unsigned long long)r->lower_bound,
           (unsigned long long)r->peak, r->lower_bound ? (double)r->peak / (double)r->lower_bound : 1.0, ms,
           valid ? "true" : "false", r->optimal ? "true" : "false", (unsigned long long)r->work);
    for (i = 0; i < sizeof why / sizeof why[0]; ++i)
        if (r->cut >> i & 1) { printf("%s\"%s\"", comma, why[i]); comma = ", "; }
    printf("], \"orders\": [");
    comma = "";
    for (i = 0; i < sizeof order / sizeof order[0]; ++i)
        if (r->orders >> i & 1) { printf("%s\"%s\"", comma, order[i]); comma = ", "; }
    printf("]");
    if (t->has_capacity) printf(", \"fits\": %s", r->peak <= t->capacity ? "true" : "false");
    printf("}\n");
}
static int plan_tool_solve(const plan_tool *t, plan_csv *csv) {
    memopt_host host; memopt_plan_options options; memopt_plan_result r; memopt_status s; uint64_t start = 0, stop = 0;
    memopt_plan_item *before = (memopt_plan_item *)malloc((csv->count + 1) * sizeof *before); int valid;
    FILE *out;
    if (!before) { fprintf(stderr, "plan_tool: out of memory\n"); return 1; }
    if (csv->count) memcpy(before, csv->items, csv->count * sizeof *before);
    memset(&options, 0, sizeof options);
    options.time_ns = t->ms < UINT64_MAX / 1000000 ? (uint64_t)t->ms * 1000000 : UINT64_MAX;
    options.no_search = t->ms == 0;
    options.capacity = t->capacity;
    memopt_host_resolve(NULL, &host);
    host.clock.now_fn(host.clock.user, &start);
    s = memopt_plan_solve(csv->items, csv->count, &options, &host, &r);
    host.clock.now_fn(host.clock.user, &stop);
    if (s) {
        fprintf(stderr, "%s: %s\n", t->file, s == MEMOPT_ERR_ARGUMENT ? "two fixed offsets clash" : memopt_status_text(s));
        free(before);
        return 1;
    }
    valid = plan_tool_valid(csv->items, before, csv->count, r.peak);
    free(before);
    plan_tool_print(t, csv->count, &r, (double)(stop - start) * 1e-6, valid);
    if (!t->out) return !valid;
    out = fopen(t->out, "wb");
    if (!out || (int)(plan_csv_write(csv, out) | fclose(out)) != 0) {
        fprintf(stderr, "plan_tool: cannot write %s\n", t->out);
        return 1;
    }
    return !valid;
}
int main(int argc, char **argv) {
    plan_tool t; plan_csv csv; char *text; size_t length; int failed;
    if (argc == 2 && !strcmp(argv[1], "--help")) { fputs(usage, stdout); return 0; }
    if (plan_tool_arguments(argc, argv, &t)) { fputs(usage, stderr); return 2; }
    text = plan_tool_read(t.file, &length);
    if (!text) { fprintf(stderr, "plan_tool: cannot read %s\n", t.file); return 1; }
    if (plan_csv_parse(&csv, text, length)) {
        fprintf(stderr, "%s:%llu: %s\n", t.file, (unsigned long long)csv.line, csv.error);
        free(text);
        return 1;
    }
    failed = plan_tool_solve(&t, &csv);
    plan_csv_free(&csv);
    free(text);
    return failed;
}
