/* options_text.h - options as a line of switches, and the page of --help. Part of options.h. */
#ifndef GPT_OPTIONS_TEXT_H
#define GPT_OPTIONS_TEXT_H

static void options_pick(char *text, size_t capacity, const char *choices, int which) {
    for (; which; --which) choices += strcspn(choices, "|") + 1;
    snprintf(text, capacity, "%.*s", (int)strcspn(choices, "|"), choices);
}
/* The value of a switch as it would be written; flags: "1" or "". */
static void options_value(const options *o, int id, char *v, size_t n) {
    static const char *const bits[] = { "", "16", "8", "" };
    const char *const choices = switch_rows[id].value; options copy = *o; size_t row; int digits = 6, bit;
    const double x = id == ON_LR ? o->rate : id == ON_CLIP ? o->clip : id == ON_DROPOUT ? o->dropout
                   : id == ON_SKIP_OUTLIERS ? o->outliers : o->overhead * 100;
    char number[32];
    if (o->processors) copy.ranks = 0; /* which follow */
    do snprintf(number, sizeof number, "%.*g", digits, x); while (strtod(number, NULL) != x && ++digits < 18);
    if (count_find(id, &row)) {
        snprintf(v, n, "%zu", *count_at(&copy, row));
        if (id == ON_PIPELINE && o->pipeline_bytes) snprintf(v + strlen(v), n - strlen(v), ":%zu", o->pipeline_bytes);
        return;
    }
    switch (id) {
    case ON_MODEL:     options_pick(v, n, model_names, (int)o->model); break;
    case ON_SCHEDULE:  options_pick(v, n, choices, (int)o->schedule); break;
    case ON_WEIGHTS:   options_pick(v, n, choices, (int)o->weights); break;
    case ON_GRADIENTS: options_pick(v, n, choices, (int)o->gradients); break;
    case ON_ATTENTION: options_pick(v, n, choices, o->lean_attention); break;
    case ON_GEMM:      options_pick(v, n, choices, o->blas); break;
    case ON_HEAD: case ON_MLP: {
        const size_t rows = id == ON_HEAD ? o->head_chunk : o->mlp_chunk;
        if (rows) snprintf(v, n, "chunk:%zu", rows); else snprintf(v, n, "whole");
        break; }
    case ON_LR: case ON_CLIP: case ON_DROPOUT: case ON_SKIP_OUTLIERS: snprintf(v, n, "%s", number); break;
    case ON_SEED:      snprintf(v, n, "%llu", (unsigned long long)o->seed); break;
    case ON_FIT:       snprintf(v, n, "%zu", o->fit); break;
    case ON_ADVISE:    snprintf(v, n, "%zu", o->advise); break;
    case ON_PRESET:    snprintf(v, n, "%s", o->preset); break;
    case ON_OPTIMIZER: options_pick(v, n, optimizer_names, (int)o->optimizer);
                       snprintf(v + strlen(v), n - strlen(v), "%s", bits[o->states]); break;
    case ON_KEEP:
        if (o->keep == KEEP_EVERY) snprintf(v, n, "every:%zu", o->every);
        else if (o->keep == KEEP_BUDGET) snprintf(v, n, "budget:%zu", o->budget);
        else if (o->keep == KEEP_OVERHEAD) snprintf(v, n, "overhead:%s", number);
        else options_pick(v, n, "conventional|arena", (int)o->keep);
        break;
    case ON_OFFLOAD:
        for (bit = 0, v[0] = 0; o->offload >> bit; ++bit) {
            char name[16];
            if (!(o->offload >> bit & 1)) continue;
            options_pick(name, sizeof name, offload_names, bit);
            snprintf(v + strlen(v), n - strlen(v), "%s%s", v[0] ? "," : "", name);
        }
        if (o->offload) snprintf(v + strlen(v), n - strlen(v), "=%s", o->offload_to ? o->offload_to : "host");
        break;
    case ON_DATA:      snprintf(v, n, "%s", o->data ? o->data : ""); break;
    case ON_SPEEDS:    snprintf(v, n, "%s", o->speeds ? o->speeds : ""); break;
    case ON_JSON:      snprintf(v, n, "%s", o->json ? o->json : ""); break;
    case ON_ID_FILE:   snprintf(v, n, "%s", o->id_file ? o->id_file : ""); break;
    case ON_SAVE:      snprintf(v, n, "%s", o->save ? o->save : ""); break;
    case ON_RESUME:    snprintf(v, n, "%s", o->resume ? o->resume : ""); break;
    default: {
        const int on = id == ON_FUSE_STEP ? o->fuse_step : id == ON_GRAPH ? o->graph : id == ON_DOCUMENTS ? o->documents
                     : id == ON_DRY_RUN ? o->dry_run : id == ON_LADDER ? o->ladder
                     : id == ON_ENDS ? o->ends : id == ON_FRONTIER ? o->frontier : id == ON_GRIDS ? o->grids : id == ON_BATCH_TABLE ? o->batch_table : id == ON_QUIET ? o->quiet : o->help;
        snprintf(v, n, "%s", on ? "1" : ""); }
    }
}
static void options_add(char *text, size_t capacity, const char *more) { /* as much of it as there is room for */
    size_t used = strlen(text);
    while (*more && used + 1 < capacity) text[used++] = *more++;
    text[used] = 0;
}
static void options_list(const options *o, const char *between, char *text, size_t capacity) {
    options d; char value[256], usual[256]; int id;
    if (!capacity) return;
    text[0] = 0;
    options_default(&d, preset_find("tiny"), MODEL_GPT, MEMOPT_OPTIM_ADAMW);
    for (id = 0; id < SWITCHES; ++id) {
        options_value(o, id, value, sizeof value);
        options_value(&d, id, usual, sizeof usual);
        if (id == ON_PRESET) { /* those two are told, and the others' defaults follow from them */
            options_default(&d, preset_find(o->preset), o->model, o->optimizer);
            d.optimizer = MEMOPT_OPTIM_ADAMW;
            if (o->weights == WEIGHTS_BF16 && !o->parts) d.gradients = MEMOPT_TYPE_BF16;
        }
        if (!strcmp(value, usual)) continue;
        if (*text) options_add(text, capacity, between);
        options_add(text, capacity, "--");
        options_add(text, capacity, switch_rows[id].name);
        if (!switch_rows[id].value) continue;
        options_add(text, capacity, between);
        options_add(text, capacity, value);
    }
}
static void options_describe(const options *o, char *text, size_t capacity) { options_list(o, " ", text, capacity); }
static void options_help_examples(FILE *to, uint64_t without) {
    static const struct { int id; const char *text; } examples[] = { /* id: a switch that it shows */
        { ON_SAMPLE, "--steps 300 --sample 200               a small one, of text.txt, Newton in 1730" },
        { ON_LADDER, "--preset gpt2-124m --ladder --dry-run  what each technique would save" },
        { ON_KEEP, "--keep every:1 --optimizer adamw8 --head chunk:512 --attention lean --fuse-step" },
        { ON_FIT, "--preset gpt2-1558m --fit 24G --json run.json" },
        { ON_SAVE, "--steps 5000 --save run --save-every 100, and after a stop the same with --resume run" },
        { ON_TENSOR, "--ranks 4 --tensor 2 --parts 4      two passes at a time, each by two ranks" },
        { ON_SEQUENCE, "--ranks 4 --sequence 4 --context 4096   one long context over four ranks" },
        { ON_GRIDS, "--ranks 8 --parts 4 --advise 3G --grids  the fastest way to lay them out" },
        { ON_RANKS, "--ranks 4 --stage 3 --units 8          four ranks, the bits of one" } };
    size_t i;

    fputs("\nExamples\n", to);
    for (i = 0; i < sizeof examples / sizeof *examples; ++i)
        if (!(without >> examples[i].id & 1)) fprintf(to, "  train_gpt %s\n", examples[i].text);
    if (!(without >> ON_THREADS & 1)) fputs("  mpirun --bind-to none -n 4 build/train_gpt_mpi --stage 3 --units 8\n", to);
}
static void options_help(FILE *to, uint64_t without) {
    int id; size_t i;
    fputs("train_gpt - trains a language model or a vision transformer, in as little memory as you ask for\n\n"
          "  train_gpt [--switch [value]] ...\n", to);
    for (id = 0; id < SWITCHES; ++id) {
        const switch_row *const r = &switch_rows[id]; char left[64];
        if (without >> id & 1) continue;
        if (r->chapter) fprintf(to, "\n%s\n", r->chapter);
        snprintf(left, sizeof left, "--%s%s%s", r->name, r->value ? " " : "", r->value ? r->value : "");
        fprintf(to, "  %-34s  %s\n", left, r->text);
    }
    fputs("\nPresets         layers  width  heads  context  vocab  batch\n", to);
    for (i = 0; i < sizeof presets / sizeof *presets; ++i)
        fprintf(to, "  %-12s  %6zu %6zu %6zu %8zu %6zu %6zu\n", presets[i].name, presets[i].layers, presets[i].width,
                presets[i].heads, presets[i].context, presets[i].vocab, presets[i].batch);
    fputs("\nBYTES may end in k, M, G, T (powers of 1000) or Ki, Mi, Gi, Ti (powers of 1024).\n", to);
    options_help_examples(to, without);
}
#endif
