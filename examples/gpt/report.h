/* report.h - what is told about a run: progress, plan, speed, the hash that stands for all weights. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

static double seconds_of(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double now(void) { return seconds_of(CLOCK_MONOTONIC); }
static double seconds_worked(void) { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); } /* by all threads */
/* Operations a second of products as this network has them, in the arena of a training that is over. */
static double gemm_peak(engine *e) {
    enum { TRIES = 60 }; /* the first ones wake the workers */
    const int wrong = memopt_arena_rewind(e->arena, e->empty) || memopt_arena_trim(e->arena);
    const size_t scratch = gemm_bytes(&e->m.shape.ops), bytes = memopt_arena_get_stats(e->arena).capacity;
    memopt_product p = { 0 }; memopt_ops ops = e->m.shape.ops; double best = 0, since, begin; size_t n = 512; float *x;
    int i;

    while (n > 16 && 3 * n * n * sizeof *x + scratch + 64 > bytes) n /= 2;
    x = (float *)memopt_arena_push_zero(e->arena, 3 * n * n * sizeof *x, MEMOPT_TAG_OTHER);
    ops.scratch = scratch ? memopt_arena_push(e->arena, scratch, MEMOPT_TAG_SCRATCH) : NULL;
    if (wrong || !x || (scratch && !ops.scratch)) return 0;
    p.rows = p.columns = p.depth = p.left_stride = p.right_stride = p.result_stride = n; p.right_transposed = 1;
    p.left = x; p.right = x + n * n; p.result = x + 2 * n * n;
    begin = now();
    for (i = 0; i < TRIES && now() - begin < 0.3; ++i) {
        since = now();
        if (multiply(&ops, p)) break;
        if (2.0 * (double)(n * n * n) / (now() - since) > best) best = 2.0 * (double)(n * n * n) / (now() - since);
    }
    return best;
}
static double step_flops(const engine *e, const options *o) { /* of forward and backward, without what is made again */
    const model *m = &e->m; const transformer *t = &m->shape; double products = 0; size_t i;
    for (i = 0; i < m->tensor_count; ++i) /* matrices; of the embedding only its use as the head */
        if (m->tensors[i].columns && stream_of(m, i) != STREAM_POSITIONS) products += (double)m->tensors[i].count;
    products += 2 * (double)(m->layers * t->width) * (double)t->length / (m->vit ? 1 : 2); /* of attention, a token */
    return 6 * products * (double)(transformer_rows(t) * o->accumulate);
}
#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)
static uint64_t hash_bytes(uint64_t h, const unsigned char *bytes, size_t n) { /* FNV-1a */
    for (; n; --n) h = (h ^ *bytes++) * UINT64_C(0x100000001b3);
    return h;
}
static uint64_t weights_hash(const model *m) {
    uint64_t h = HASH_BEGIN; size_t i;
    for (i = 0; i < m->tensor_count; ++i) {
        const memopt_optim_tensor *t = &m->tensors[i];
        const size_t bytes = t->count * memopt_type_bytes(m->shape.weight_type);
        h = hash_bytes(h, (const unsigned char *)t->weights, bytes);
        if (t->extra) h = hash_bytes(h, (const unsigned char *)t->extra, bytes);
    }
    return h;
}
static int in_a_table(const options *o) { return o->ladder || o->batch_table; }
/* A line on the terminal that is written over; into a file, a line for every tenth part. own: steps of those done that
   this process made, in so many seconds. */
static void progress(const engine *e, const options *o, size_t own, size_t done, double seconds) {
    const int terminal = isatty(2), last = done == o->steps;
    if (o->quiet || (!terminal && (in_a_table(o) || done * 10 / o->steps == (done - 1) * 10 / o->steps))) return;
    fprintf(stderr, "%sstep %zu/%zu  loss %.4f  %.0f tokens/s  memory %.0f MB, peak %.0f MB  %.0f s left%s",
        terminal ? "\r" : "",
            done, o->steps, e->m.loss,
                (double)own * (double)(transformer_rows(&e->m.shape) * o->accumulate) / seconds,
            (double)process_bytes("/proc/self/status", "VmRSS:") / 1e6,
            (double)process_bytes("/proc/self/status", "VmHWM:") / 1e6,
            seconds / (double)own * (double)(o->steps - done),
                !terminal ? "\n" : !last ? "   " : in_a_table(o) ? "\r\033[K" : "\n");
}
static void tell_plan(const outcome *out) {
    int t;
    printf("%s\n%-18s %14s\n", out->switches[0] ? out->switches : "(no switch)", "peak by tag", "MB");
    for (t = 0; t < TAGS; ++t) printf("%-18s %14.3f\n", tag_names[t], (double)out->at_peak[t] / 1e6);
    printf("%-18s %14.3f   of %llu parameters, %llu tokens a step, batch %llu\n", "sum: predicted",
        (double)out->predicted_peak / 1e6,
           (unsigned long long)out->parameters, (unsigned long long)out->tokens, (unsigned long long)out->batch);
}
static void tell_switches(const options *o, outcome *out) {
    options_describe(o, out->switches, sizeof out->switches);
    options_list(o, "\n", out->command, sizeof out->command);
}
static void describe_outcome(const engine *e, const options *o, outcome *out) {
    out->parameters = e->m.elements; out->tokens = transformer_rows(&e->m.shape) * o->accumulate; out->batch = o->batch;
    tell_memory(e, out);
}
static char *strip_of(const engine *e) { /* the schedule as SVG; NULL when there is none, or no memory for it */
    memopt_chain chain = { 0 }; size_t count, length = 0; const memopt_action *actions; char *text = NULL;
    if (!e->tape) return NULL;
    actions = memopt_tape_actions(e->tape, &count);
    chain.segments = e->segments; chain.count = e->segment_count; chain.input_bytes = 64;
    (void)memopt_schedule_plot(&chain, actions, count, MEMOPT_PLOT_SVG, NULL, NULL, 0, &length);
    if (length) text = (char *)malloc(length + 1);
    if (text && memopt_schedule_plot(&chain, actions, count, MEMOPT_PLOT_SVG, NULL, text, length + 1, &length)) {
        free(text); text = NULL; }
    return text;
}
#endif
