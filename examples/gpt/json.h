/* json.h - the figures of a run as JSON, for programs. The file appears whole or not at all. */
#ifndef GPT_JSON_H
#define GPT_JSON_H
#include "outcome.h"
#include "replace.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/** 0: written; else nothing is there that was not there before. */
static inline int json_write(const char *path, const outcome *o);
/** A table of runs, such as a ladder: {"rungs": [...]}. */
static inline int json_write_all(const char *path, const outcome *rungs, size_t count);

static void json_text(FILE *f, const char *text) {
    fputc('"', f);
    for (; *text; ++text) {
        const unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') fprintf(f, "\\%c", c);
        else if (c < 0x20 || c == 0x7f) fprintf(f, "\\u%04x", c);
        else fputc(c, f);
    }
    fputc('"', f);
}

static void json_number(FILE *f, double x, int digits) { /* JSON knows neither infinity nor NaN */
    if (x - x == 0) fprintf(f, "%.*g", digits, x);
    else fputs("null", f);
}

static void json_count(FILE *f, const char *name, uint64_t n) {
    fprintf(f, ",\n  \"%s\": %llu", name, (unsigned long long)n);
}

static void json_real(FILE *f, const char *name, double x) {
    fprintf(f, ",\n  \"%s\": ", name);
    json_number(f, x, 10);
}

static void json_known(FILE *f, const char *name, double x) { /* 0 stands for not measured */
    if (x > 0) json_real(f, name, x);
    else fprintf(f, ",\n  \"%s\": null", name);
}

static void json_losses(FILE *f, const char *name, const float *losses, uint32_t count) {
    uint32_t i;

    fprintf(f, ",\n  \"%s\": [", name);
    for (i = 0; i < count && i < MOST_LOSSES; ++i) {
        if (i) fputs(", ", f);
        json_number(f, (double)losses[i], 9); /* enough for every bit of a float */
    }
    fputc(']', f);
}

static void json_feed(FILE *f, const outcome *o) {
    json_count(f, "batches_read_ahead", o->batches);
    json_count(f, "batches_waited_for", o->batches_late);
    json_real(f, "seconds_waited_for_batches", o->seconds_late);
}

static void json_command(FILE *f, const char *words) { /* a list of arguments */
    fputs(",\n  \"command\": [\"train_gpt\"", f);
    while (*words) {
        const size_t n = strcspn(words, "\n");
        char word[400];

        snprintf(word, sizeof word, "%.*s", (int)n, words);
        fputs(", ", f);
        json_text(f, word);
        words += n + (words[n] != 0);
    }
    fputc(']', f);
}

static void json_put(FILE *f, const outcome *o) {
    uint32_t i;

    fprintf(f, "{\n  \"ok\": %s,\n  \"name\": ", o->ok ? "true" : "false");
    json_text(f, o->name);
    fputs(",\n  \"switches\": ", f);
    json_text(f, o->switches);
    json_command(f, o->command);
    fputs(",\n  \"message\": ", f);
    json_text(f, o->message);
    json_count(f, "predicted_peak_bytes", o->predicted_peak);
    if (o->measured_peak) json_count(f, "measured_peak_bytes", o->measured_peak);
    else fputs(",\n  \"measured_peak_bytes\": null", f);
    fputs(",\n  \"bytes_at_peak\": {", f);
    for (i = 0; i < TAGS; ++i)
        fprintf(f, "%s\"%s\": %llu", i ? ", " : " ", tag_names[i], (unsigned long long)o->at_peak[i]);
    fputs(" }", f);
    json_count(f, "parameters", o->parameters);
    json_count(f, "tokens_per_step", o->tokens);
    json_count(f, "batch", o->batch);
    json_known(f, "tokens_per_second", o->tokens_per_second);
    json_known(f, "seconds_per_step", o->seconds_per_step);
    json_known(f, "cpu_seconds_per_step", o->cpu_seconds_per_step);
    json_known(f, "predicted_cpu_seconds_per_step", o->predicted_seconds);
    json_real(f, "flops_per_step", o->flops_per_step);
    json_known(f, "mfu", o->mfu);
    json_known(f, "gemm_flops_per_second", o->gemm_flops);
    if (o->graph_nodes) json_count(f, "nodes_of_the_graph", o->graph_nodes);
    else fputs(",\n  \"nodes_of_the_graph\": null", f);
    json_count(f, "steps", o->steps);
    json_count(f, "skipped_steps", o->skipped);
    json_count(f, "steps_of_a_loss", o->loss_steps);
    json_losses(f, "losses", o->losses, o->loss_count);
    json_losses(f, "seconds_of_steps", o->seconds, o->loss_count);
    json_feed(f, o);
    json_count(f, "steps_between_held_back", o->held_steps);
    json_losses(f, "held_back_losses", o->held, o->held_count);
    fprintf(f, ",\n  \"weights_hash\": \"%016llx\"\n}", (unsigned long long)o->weights_hash);
}

typedef struct json_list {
    const outcome *rungs;
    size_t count;
} json_list;

static void json_one(FILE *f, const void *what) {
    json_put(f, (const outcome *)what);
    fputc('\n', f);
}

static void json_all(FILE *f, const void *what) {
    const json_list *const list = (const json_list *)what;
    size_t i;

    fputs("{ \"rungs\": [\n", f);
    for (i = 0; i < list->count; ++i) {
        if (i) fputs(",\n", f);
        json_put(f, &list->rungs[i]);
    }
    fputs("\n] }\n", f);
}

static inline int json_write(const char *path, const outcome *o) { return file_replace(path, json_one, o); }

static inline int json_write_all(const char *path, const outcome *rungs, size_t count) {
    json_list list;

    list.rungs = rungs;
    list.count = count;
    return file_replace(path, json_all, &list);
}
#endif
