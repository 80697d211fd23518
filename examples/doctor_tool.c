/* doctor_tool.c - what the memory of a step is held for, and what would hold less, from a trace of doctor.h or the
   snapshot of a ledger.

   Build: cc -O2 doctor_tool.c -o doctor_tool -lm     Usage: see below */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "doctor/trace.h"
#include "doctor/findings.h"
#include "doctor/report.h"

static const char usage[] =
    "usage: doctor_tool FILE [--page FILE.html]\n"
    "  FILE    doctor.trace, written by examples/doctor.h; or a ledger's snapshot (parts/ledger_export.h, JSON), which\n"
    "          knows lifetimes only\n"
    "  --page  a picture: every buffer over time\n"
    "prints what was found, the largest first; what an arena, a plan (memopt_plan_solve), values in place, values made\n"
    "again, the step inside backward and a tape would hold, which want phases named forward, backward and step; and a\n"
    "chart over time\n"
    "exit status 0: done; 1: a file is wrong, what and where is on stderr; 2: usage\n";

static char *read_all(const char *path) { /* the file as text; NULL: it cannot be read */
    FILE *file = fopen(path, "rb");
    size_t room = 65536, length = 0, got;
    char *text, *more;

    if (!file) return NULL;
    text = (char *)malloc(room + 1);
    while (text && (got = fread(text + length, 1, room - length, file)) > 0) {
        length += got;
        if (length < room) continue;
        room *= 2;
        more = (char *)realloc(text, room + 1);
        if (!more) free(text);
        text = more;
    }
    if (text && (ferror(file) || memchr(text, 0, length))) {
        free(text);
        text = NULL;
    }
    fclose(file);
    if (text) text[length] = 0;
    return text;
}

static int write_page(const findings *f, const char *path) {
    FILE *out = fopen(path, "wb");
    int bad = !out || report_page(f, out);

    if (out && fclose(out)) bad = 1;
    if (bad) fprintf(stderr, "doctor_tool: cannot write %s\n", path);
    return bad;
}

static int tell(const findings *f, const char *page) {
    const trace *t = f->t;

    printf("%.3f MB at the peak, %lu buffers, %lu marks%s\n\n", report_mb(f->held), (unsigned long)t->buffer_count,
           (unsigned long)t->mark_count, t->lifetimes_only ? ", lifetimes only: who reads and writes is not known" : "");
    if (!report_findings(f, stdout)) {
        report_ways(f, stdout);
        if (!report_chart(f, stdout)) return page ? write_page(f, page) : 0;
    }
    fprintf(stderr, "doctor_tool: out of memory\n");
    return 1;
}

int main(int argc, char **argv) {
    const char *page = argc == 4 && !strcmp(argv[2], "--page") ? argv[3] : NULL;
    findings f;
    trace t;
    char *text;
    memopt_status s;
    int failed;

    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc != 2 && !page) {
        fputs(usage, stderr);
        return 2;
    }
    text = read_all(argv[1]);
    if (!text) {
        fprintf(stderr, "doctor_tool: cannot read %s as text\n", argv[1]);
        return 1;
    }
    if (trace_read(&t, text)) {
        fprintf(stderr, "%s:%s%lu: %s\n", argv[1], t.lifetimes_only ? " event " : "", (unsigned long)t.line, t.error);
        free(text);
        return 1;
    }
    s = findings_make(&f, &t);
    if (s) fprintf(stderr, "doctor_tool: %s\n", memopt_status_text(s));
    failed = s ? 1 : tell(&f, page);
    findings_free(&f);
    trace_free(&t);
    free(text);
    return failed;
}
