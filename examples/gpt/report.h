/* report.h - what is told about a run: progress, plan, speed, the hash that stands for all weights. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H
#include "../parts/schedule_plot.h"

static void held_now(const engine *e, size_t *now, size_t *peak); /* bytes, of the process or of the card */

static double seconds_of(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void) { return seconds_of(CLOCK_MONOTONIC); }

static double seconds_worked(void) { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); } /* by all threads */

static double step_flops(const engine *e, const options *o) { /* of forward and backward, without what is made again */
    const model *m = &e->m;
    const transformer *t = &m->shape;
    const double length = (double)t->length;
    const double window = t->window && t->window < t->length ? (double)t->window : length;
    const double seen = window - window * window / (2 * length); /* by a token, in the middle; documents count for one */
    double products = 0;
    size_t i;
    for (i = 0; i < m->tensor_count; ++i) /* matrices; of the embedding only its use as the head */
        if (m->tensors[i].columns && stream_of(m, i) != STREAM_POSITIONS
            && (stream_of(m, i) != STREAM_TOKENS || !t->untied))
            products += (double)m->tensors[i].count;
    products += 2 * (double)(m->layers * transformer_attended_width(t)) * (m->vit ? length : seen); /* of a token */
    return 6 * products * (double)(transformer_rows(t) * o->accumulate);
}

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static uint64_t hash_bytes(uint64_t h, const unsigned char *bytes, size_t n) { /* FNV-1a */
    for (; n; --n) h = (h ^ *bytes++) * UINT64_C(0x100000001b3);
    return h;
}

static int in_a_table(const options *o) { return o->ladder || o->batch_table; }

/* A line on the terminal that is written over; into a file, a line for every tenth part. own: steps of those done that
   this process made, in so many seconds. */
static void progress(const engine *e, const options *o, size_t own, size_t done, double seconds) {
    const int terminal = isatty(2), last = done == o->steps;
    size_t held, peak;

    if (o->quiet || (!terminal && (in_a_table(o) || done * 10 / o->steps == (done - 1) * 10 / o->steps))) return;
    held_now(e, &held, &peak);
    fprintf(stderr, "%sstep %zu/%zu  loss %.4f  %.0f tokens/s  memory %.0f MB, peak %.0f MB  %.0f s left%s",
            terminal ? "\r" : "", done, o->steps, e->m.loss,
            (double)own * (double)(transformer_rows(&e->m.shape) * o->accumulate) / seconds, (double)held / 1e6,
            (double)peak / 1e6, seconds / (double)own * (double)(o->steps - done),
            !terminal       ? "\n"
            : !last         ? "   "
            : in_a_table(o) ? "\r\033[K"
                            : "\n");
}

/* --skip-outliers: is this step, with the loss that is there, not to be applied? tells: one of all ranks does. */
static int is_outlier(engine *e, const options *o, uint64_t step, double norm, int tells) {
    if (!(o->outliers > 0) || !outliers_skip(&e->windows, o->outliers, e->m.loss, norm)) return 0;
    if (tells && !o->quiet)
        fprintf(stderr, "%strain_gpt: step %llu is left out: loss %.4f, norm of its gradients %.4f\n",
                isatty(2) ? "\n" : "", (unsigned long long)step, e->m.loss, norm);
    return 1;
}

static void tell_skipped(const outcome *out) {
    printf("%llu steps of the run were left out as outliers\n", (unsigned long long)out->skipped);
}

static void tell_plan(const outcome *out) {
    int t;

    printf("%s\n%-18s %14s\n", out->switches[0] ? out->switches : "(no switch)", "peak by tag", "MB");
    for (t = 0; t < TAGS; ++t) printf("%-18s %14.3f\n", tag_names[t], (double)out->at_peak[t] / 1e6);
    printf("%-18s %14.3f   of %llu parameters, %llu tokens a step, batch %llu\n", "sum: predicted",
           (double)out->predicted_peak / 1e6, (unsigned long long)out->parameters, (unsigned long long)out->tokens,
           (unsigned long long)out->batch);
}

static void tell_feed(const outcome *out) {
    printf("data: %llu batches read ahead, %llu of them waited for, %.3f s\n", (unsigned long long)out->batches,
           (unsigned long long)out->batches_late, out->seconds_late);
}

static void tell_switches(const options *o, outcome *out) {
    options_describe(o, out->switches, sizeof out->switches);
    options_list(o, "\n", out->command, sizeof out->command);
}

static void describe_outcome(const engine *e, const options *o, outcome *out) {
    out->parameters = e->m.elements;
    out->tokens = transformer_rows(&e->m.shape) * o->accumulate;
    out->batch = o->batch;
    tell_memory(e, out);
}

static inline char *text_of(FILE *file) { /* what was written to it; NULL: it could not be read, or no memory */
    const long length = ftell(file);
    char *text = length < 0 ? NULL : (char *)malloc((size_t)length + 1);
    if (!text) return NULL;
    rewind(file);
    text[fread(text, 1, (size_t)length, file)] = 0;
    return text;
}

static inline char *strip_of(const engine *e) { /* the schedule as SVG; NULL when there is none, or no memory for it */
    memopt_chain chain;
    size_t count;
    const memopt_action *actions;
    char *text = NULL;
    FILE *file;
    if (!e->tape) return NULL;
    memset(&chain, 0, sizeof chain);
    actions = memopt_tape_actions(e->tape, &count);
    chain.segments = e->segments;
    chain.count = e->segment_count;
    chain.input_bytes = 64;
    file = tmpfile();
    if (!file) return NULL;
    if (!schedule_plot(&chain, actions, count, PLOT_SVG, file)) text = text_of(file);
    fclose(file);
    return text;
}
#endif
