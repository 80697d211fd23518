/* saves.h - a run that goes on where it was stopped: --save, --save-every, --resume, and Ctrl-C. What decides the next
   bit is saved: weights and states, the loss scale, and the number of the step, from which batches, noise and dropout
   follow. So a run that was stopped ends with the weights of one that never was. Each rank saves its part; a run may go
   on with other --ranks and --stage, with or without --offload: only --units, --optimizer and --seed are to stay. */
#ifndef GPT_SAVES_H
#define GPT_SAVES_H
#include <signal.h>

typedef struct saves {
    memopt_save_desc desc; /* its comm: of all ranks, or NULL */
    memopt_shard *shard;   /* of this rank; NULL: the engine's optimizer has it all */
    memopt_save_item *items;
    char   (*names)[32];
    uint64_t step, first;  /* done so far; when this process began */
    char   switches[200], same[64];
    memopt_tensor_metadata texts[2];
} saves;

static volatile sig_atomic_t saves_stop; /* Ctrl-C was pressed */

static void saves_ask(int number) {
    (void)number;
    saves_stop = 1;
    signal(SIGINT, SIG_DFL); /* a second one ends at once */
}

static void saves_add(saves *s, const char *name, memopt_tensor_type type, uint64_t count, void *bytes) {
    memopt_save_item *item = &s->items[s->desc.item_count++];

    item->name = name;
    item->type = type;
    item->count = item->held = count;
    item->data = bytes;
}

/* What there is to save. The switches stand in the save for people; which of them may change is theirs to know, but for
   the optimizer, which has other states, and the seed. */
static int saves_list(saves *s, engine *e, const options *o) {
    const size_t tensors = e->m.tensor_count;
    char optimizer[32];
    size_t i;

    s->items = (memopt_save_item *)calloc(tensors * MEMOPT_SAVE_OPTIM_ITEMS + 2, sizeof *s->items);
    s->names = (char (*)[32])calloc(tensors, sizeof *s->names);
    if (!s->items || !s->names) return said(e, "The list of what is saved", MEMOPT_ERR_MEMORY);
    for (i = 0; i < tensors; ++i) {
        snprintf(s->names[i], sizeof s->names[i], "tensor.%zu", i);
        if (said(e, "What is saved", s->shard
                 ? memopt_save_shard_items(s->shard, i, s->names[i], s->items, &s->desc.item_count)
                 : memopt_save_optim_items(e->optim, i, s->names[i], s->items, &s->desc.item_count))) return 1;
    }
    saves_add(s, "step", MEMOPT_TENSOR_U64, 1, &s->step);
    saves_add(s, "scaler", MEMOPT_TENSOR_U8, sizeof e->scaler, &e->scaler);
    options_describe(o, s->switches, sizeof s->switches);
    options_value(o, ON_OPTIMIZER, optimizer, sizeof optimizer);
    snprintf(s->same, sizeof s->same, "--optimizer %s --seed %llu", optimizer, (unsigned long long)o->seed);
    s->texts[0].key = "switches";
    s->texts[0].value = s->switches;
    s->texts[1].key = "same";
    s->texts[1].value = s->same;
    s->desc.items = s->items;
    s->desc.metadata = s->texts;
    s->desc.metadata_count = 2;
    s->desc.error = &e->error;
    return 0;
}

/* Another optimizer would find some of its states, and another seed other batches. */
static int saves_differ(const saves *s, engine *e, const options *o, const memopt_saved *saved) {
    const char *same = memopt_saved_value(saved, "same");

    if (!same || !strcmp(same, s->same)) return 0;
    snprintf(e->message, sizeof e->message, "--resume %s: it was saved with %s, which are to stay.", o->resume, same);
    return 1;
}

static int saves_resume(saves *s, engine *e, const options *o) {
    memopt_saved *saved = NULL;
    memopt_error newer;
    char why[256] = "";
    memopt_status status;
    int differ;

    s->desc.path = o->resume;
    status = memopt_saved_open(&s->desc, &saved);
    if (!status && memopt_saved_refused(saved, &newer) && !memopt_error_text(&newer, why, sizeof why, NULL))
        fprintf(stderr, "train_gpt: a newer save is left out: %s\n", why);
    differ = !status && saves_differ(s, e, o, saved);
    if (!status && !differ) status = memopt_saved_read(saved, &s->desc);
    memopt_saved_close(saved);
    if (differ) return 1;
    if (!status) status = memopt_scaler_check(&e->scaler);
    if (!status && s->shard) status = memopt_shard_share(s->shard);
    else if (!status && e->tape) status = memopt_tape_seek(e->tape, s->step * o->accumulate);
    if (said(e, "--resume", status)) return 1;
    if (s->step < o->steps) return 0;
    snprintf(e->message, sizeof e->message, "--resume %s: %llu steps are done; give --steps with more of them.", o->resume,
             (unsigned long long)s->step);
    return 1;
}

static int saves_open(saves *s, engine *e, const options *o, memopt_shard *shard, memopt_comm *comm) {
    memset(s, 0, sizeof *s);
    s->shard = shard;
    s->desc.comm = comm;
    if (!o->save && !o->resume) return 0;
    if (saves_list(s, e, o) || (o->resume && saves_resume(s, e, o))) return 1;
    s->first = s->step;
    if (o->save) signal(SIGINT, saves_ask);
    return 0;
}

static void saves_close(saves *s) {
    free(s->items);
    free(s->names);
}

/* A step is done: save where that is due. stops: Ctrl-C was pressed, on any rank. */
static int saves_after(saves *s, engine *e, const options *o, size_t done, int stops) {
    s->step = done;
    if (!o->save || !(stops || done == o->steps || (o->save_every && done % o->save_every == 0))) return 0;
    s->desc.path = o->save;
    s->desc.step = done;
    if (said(e, "--save", memopt_save_write(&s->desc))) return 1;
    if (stops && !memopt_comm_get_stats(s->desc.comm).rank)
        fprintf(stderr, "train_gpt: stopped and saved after step %zu; --resume %s goes on\n", done, o->save);
    return 0;
}
#endif
