/* apart.h - a training in a process of its own, so that its peak is its own. On a card nothing of CUDA may have been
   called before: a process that has, and forks, leaves its child without a device. */
#ifndef GPT_APART_H
#define GPT_APART_H

/* The program's: one run, without a line printed. 0: fine; else out->message says why. strip: see strip_of(). */
static int run_alone(const options *o, outcome *out, char **strip);

/* What a child of a table does: the outcome goes into the pipe, then the strip. Returns 1 when all is well. */
static int child_main(const options *o, const char *name, int to) {
    outcome *const out = (outcome *)calloc(1, sizeof *out);
    char *strip = NULL;
    size_t length;
    int fine;

    if (!out) return 0;
    fine = !run_alone(o, out, &strip);
    snprintf(out->name, sizeof out->name, "%s", name);
    fine = write(to, out, sizeof *out) == (ssize_t)sizeof *out && fine;
    length = strip ? strlen(strip) : 0;
    if (length)
        fine = write(to, &length, sizeof length) == (ssize_t)sizeof length
            && write(to, strip, length) == (ssize_t)length && fine;
    free(strip);
    free(out);
    return fine;
}

static size_t read_whole(int from, void *bytes, size_t count) { /* how many there were: fewer at the pipe's end */
    size_t got = 0;
    ssize_t n;

    while (got < count && (n = read(from, (char *)bytes + got, count - got)) > 0) got += (size_t)n;
    return got;
}

static char *read_strip(int from) { /* NULL: there is none, or no memory for it */
    size_t length = 0;
    char *text;

    if (read_whole(from, &length, sizeof length) < sizeof length) return NULL;
    text = (char *)malloc(length + 1);
    if (text) text[read_whole(from, text, length)] = 0;
    return text;
}

/* Runs a training in a child, and takes its outcome from a pipe. */
static void run_apart(const options *o, const char *name, outcome *out, char **strip) {
    int ends[2], status = 0;
    size_t got = 0;
    pid_t child;

    memset(out, 0, sizeof *out);
    snprintf(out->message, sizeof out->message, "The process of this row did not start.");
    if (pipe(ends)) return;
    fflush(NULL);
    child = fork();
    if (!child) {
        close(ends[0]);
        _exit(!child_main(o, name, ends[1]));
    }
    close(ends[1]);
    if (child > 0) {
        got = read_whole(ends[0], out, sizeof *out);
        if (strip && got == sizeof *out) *strip = read_strip(ends[0]);
        waitpid(child, &status, 0);
    }
    close(ends[0]);
    if (child > 0 && got < sizeof *out) {
        memset(out, 0, sizeof *out);
        snprintf(out->message, sizeof out->message, "The process ended early (%s).",
                 WIFSIGNALED(status) ? "killed: there was not enough memory, or a limit was met" : "see above");
    }
    snprintf(out->name, sizeof out->name, "%s", name);
}
#endif
