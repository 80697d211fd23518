/* ranks_report.h - what many ranks held and sent, beside what was planned: a line for each, and as JSON. Part of
   ranks.h. */
#ifndef GPT_RANKS_REPORT_H
#define GPT_RANKS_REPORT_H

static int as_planned(const ranks_plan *p) { /* to the byte; what LAMB and its like add up goes beside the plan */
    size_t i;
    int t;

    for (i = 0; i < p->o->ranks; ++i) {
        const rank_report *x = &p->reports[i];

        for (t = 0; t <= HELD; ++t) if (x->predicted[t] != x->measured[t]) return 0;
        for (t = 0; t < 2; ++t) if (x->slow_planned[t] != x->slow_counted[t]) return 0;
        if (x->pass_planned != x->pass_counted) return 0;
    }
    return 1;
}

/* Bytes of the rank that holds most: predicted, or measured. */
static size_t largest_rank(const ranks_plan *p, int measured) {
    size_t bytes = 0;
    size_t i;

    for (i = 0; i < p->o->ranks; ++i)
        bytes = most(bytes, (size_t)(measured ? p->reports[i].measured : p->reports[i].predicted)[HELD]);
    return bytes;
}

static void tell_rank(const ranks_plan *p, size_t number) {
    const rank_report *x = &p->reports[number];
    const double steps = (double)p->steps * 1e6;

    printf("%5zu %13.3f ", number, (double)x->predicted[HELD] / 1e6);
    if (p->o->dry_run) {
        printf("%12s %17.3f %10s %10s %8.0f\n", "-", (double)x->planned.sent / steps, "-", "-",
               (double)x->planned.calls / (double)p->steps);
        return;
    }
    printf("%12.3f %17.3f %10.3f %10.3f %8.0f", (double)x->measured[HELD] / 1e6, (double)x->planned.sent / steps,
           (double)(x->counted.sent + x->others.sent) / steps,
           (double)(x->counted.received + x->others.received) / steps,
           (double)(x->counted.calls + x->others.calls) / (double)p->steps);
#ifdef TRAIN_GPT_MPI
    printf(" %11.1f", (double)x->process / 1e6);
#endif
    putchar('\n');
}

static void tell_offload(const ranks_plan *p, size_t number) {
    const rank_report *x = &p->reports[number];
    const double steps = (double)p->steps * 1e6;

    printf("%5zu offload: %.1f MB %s; a step reads %.3f MB and writes %.3f MB", number, (double)x->slow_room / 1e6,
           p->o->offload_to ? "of the disk" : "of the host's memory", (double)x->slow_planned[0] / steps,
           (double)x->slow_planned[1] / steps);
    if (!p->o->dry_run)
        printf("; measured %.3f and %.3f", (double)x->slow_counted[0] / steps, (double)x->slow_counted[1] / steps);
    putchar('\n');
}

static void tell_pass(const ranks_plan *p, size_t number) {
    const rank_report *x = &p->reports[number];
    const double steps = (double)p->steps * 1e6;

    printf("%5zu pass %zu: sends %.3f MB a step to those who share it", number, pass_of(p->o, number),
           (double)x->pass_planned / steps);
    if (!p->o->dry_run) printf("; measured %.3f", (double)x->pass_counted / steps);
    if (p->o->pipeline > 1) printf("; %.2f of the mean work", x->work);
    putchar('\n');
}

static void ranks_tell(const ranks_plan *p, const outcome *out) {
    const options *o = p->o;
    size_t i;

    printf("%s\n%zu rank%s, stage %zu, %zu units of %zu sequences a step: %llu parameters, %llu tokens a step\n\n",
           out->switches, o->ranks, o->ranks == 1 ? "" : "s", o->stage, o->units, o->batch, (unsigned long long)out->parameters,
           (unsigned long long)out->tokens);
    printf("%5s %13s %12s %17s %10s %10s %8s", "", "peak, MB", "", "MB a step:", "", "", "calls");
#ifdef TRAIN_GPT_MPI
    printf(" %11s", "process,");
#endif
    printf("\n%5s %13s %12s %17s %10s %10s %8s", "rank", "predicted", "measured", "sends, predicted", "sent",
           "received", "a step");
#ifdef TRAIN_GPT_MPI
    printf(" %11s", "MB");
#endif
    putchar('\n');
    for (i = 0; i < o->ranks; ++i) tell_rank(p, i);
    for (i = 0; i < o->ranks && o->offload; ++i) tell_offload(p, i);
    for (i = 0; i < o->ranks && pass_ranks(o) > 1; ++i) tell_pass(p, i);
    if (o->pipeline > 1)
        printf("pipeline: %zu ranks with %zu run%s of layers each, %zu units; by their work they wait %.1f %% of a step\n",
               o->pipeline, o->chunks, o->chunks > 1 ? "s" : "", o->units / pass_count(o), 100 * p->waiting);
    if (o->dry_run) return;
    printf("%s; norms and losses are in what was sent, not in the plan\n",
           as_planned(p) ? "held as planned, to the byte" : "NOT held as planned");
    if (out->batches) tell_feed(out);
    if (out->skipped) tell_skipped(out);
    if (out->held_count) printf("held back: loss %.5f\n", (double)out->held[out->held_count - 1]);
    printf("%.1f tokens/s, loss %.5f, weights %016llx\n", out->tokens_per_second,
           (double)out->losses[out->loss_count - 1], (unsigned long long)out->weights_hash);
}

/* ---- JSON ---- */
static void json_held(FILE *f, const char *name, const uint64_t *bytes) {
    int t;

    fprintf(f, "\"%s\": {", name);
    for (t = 0; t < HELD; ++t) fprintf(f, " \"%s\": %llu,", held_names[t], (unsigned long long)bytes[t]);
    fprintf(f, " \"peak\": %llu }", (unsigned long long)bytes[HELD]);
}

static void json_traffic(FILE *f, const char *name, traffic x) {
    fprintf(f, ",\n      \"%s\": { \"calls\": %llu, \"sent\": %llu, \"received\": %llu }", name,
            (unsigned long long)x.calls, (unsigned long long)x.sent, (unsigned long long)x.received);
}

static void json_rank(FILE *f, const ranks_plan *p, size_t number) {
    const rank_report *x = &p->reports[number];

    fprintf(f, "%s\n    { \"rank\": %zu,\n      ", number ? "," : "", number);
    json_held(f, "predicted_bytes", x->predicted);
    if (!p->o->dry_run) {
        fputs(",\n      ", f);
        json_held(f, "measured_bytes", x->measured);
    }
    if (p->o->pipeline > 1) fprintf(f, ",\n      \"work\": %.4f", x->work);
    json_traffic(f, "predicted_traffic", x->planned);
    if (pass_ranks(p->o) > 1) fprintf(f, ",\n      \"predicted_pass_sent\": %llu", (unsigned long long)x->pass_planned);
    if (pass_ranks(p->o) > 1 && !p->o->dry_run) fprintf(f, ", \"pass_sent\": %llu", (unsigned long long)x->pass_counted);
    if (p->o->offload) {
        fprintf(f, ",\n      \"offload_bytes\": %llu", (unsigned long long)x->slow_room);
        fprintf(f, ", \"predicted_read\": %llu, \"predicted_written\": %llu", (unsigned long long)x->slow_planned[0],
                (unsigned long long)x->slow_planned[1]);
        if (!p->o->dry_run)
            fprintf(f, ", \"read\": %llu, \"written\": %llu", (unsigned long long)x->slow_counted[0],
                    (unsigned long long)x->slow_counted[1]);
    }
    if (!p->o->dry_run) {
        json_traffic(f, "counted_traffic", x->counted);
        json_traffic(f, "norms_and_losses", x->others);
        fprintf(f, ",\n      \"process_peak_bytes\": %llu", (unsigned long long)x->process);
    }
    fputs(" }", f);
}

typedef struct ranks_told { const ranks_plan *p; const outcome *out; } ranks_told;

static void ranks_json_put(FILE *f, const void *what) {
    const ranks_told *told = (const ranks_told *)what;
    const options *o = told->p->o;
    const outcome *out = told->out;
    size_t i;

    fputs("{\n  \"ok\": true,\n  \"switches\": ", f);
    json_text(f, out->switches);
    json_command(f, out->command);
    json_count(f, "ranks", o->ranks);
    json_count(f, "stage", o->stage);
    json_count(f, "units", o->units);
    json_count(f, "replicas", o->replicas);
    json_count(f, "pipeline", o->pipeline);
    json_count(f, "chunks", o->chunks);
    if (o->pipeline > 1) json_known(f, "pipeline_waiting", told->p->waiting);
    json_count(f, "tensor", o->tensor);
    json_count(f, "sequence", o->sequence);
    json_count(f, "parts", o->parts);
    json_count(f, "predicted_peak_bytes", largest_rank(told->p, 0)); /* of a rank */
    if (!o->dry_run) json_count(f, "measured_peak_bytes", largest_rank(told->p, 1));
    json_count(f, "parameters", out->parameters);
    json_count(f, "tokens_per_step", out->tokens);
    json_count(f, "steps", out->steps);
    json_count(f, "skipped_steps", out->skipped);
    json_known(f, "tokens_per_second", out->tokens_per_second);
    json_known(f, "seconds_per_step", out->seconds_per_step);
    json_known(f, "cpu_seconds_per_step", out->cpu_seconds_per_step);
    json_known(f, "predicted_cpu_seconds_per_step", out->predicted_seconds);
    json_losses(f, "losses", out->losses, out->loss_count);
    json_losses(f, "seconds_of_steps", out->seconds, out->loss_count);
    json_feed(f, out);
    json_losses(f, "held_back_losses", out->held, out->held_count);
    if (o->dry_run) fputs(",\n  \"weights_hash\": null", f);
    else fprintf(f, ",\n  \"weights_hash\": \"%016llx\"", (unsigned long long)out->weights_hash);
    fputs(",\n  \"each_rank\": [", f);
    for (i = 0; i < o->ranks; ++i) json_rank(f, told->p, i);
    fputs("\n  ]\n}\n", f);
}

static int ranks_json_write(const char *path, const ranks_plan *p, const outcome *out) {
    ranks_told told;

    told.p = p;
    told.out = out;
    return file_replace(path, ranks_json_put, &told);
}
#endif
