/* saves.h - a run that goes on where it was stopped: --save, --save-every, --resume, and Ctrl-C. What decides the next
   bit is saved: weights and states, the loss scale, the windows of outliers.h, and the number of the step, from which
   batches, noise and dropout follow. So a run that was stopped ends with the weights of one that never was. Each rank saves its part; a run may go
   on with other --ranks and --stage, with or without --offload. Model, --weights, --optimizer and --seed are to stay.
   What else decides the bits, such as --batch, --lr and --data, is the user's: what has changed is told. */
#ifndef GPT_SAVES_H
#define GPT_SAVES_H
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* What there is to save of a tensor: as memopt_save_optim_items() lists it. */
typedef memopt_status saves_list_fn(void *user, size_t tensor, const char *name, memopt_save_item *items, size_t *count);

typedef struct saves {
    memopt_save_desc desc; /* its comm: of all ranks, or NULL */
    memopt_shard *shard;   /* of this rank; NULL: the engine's optimizer has it all */
    saves_list_fn *list_fn; /* NULL, or what lies elsewhere: on a card */
    void  *user;
    memopt_save_item *items;
    memopt_save_lock *lock; /* of the directory that this run saves into */
    char   (*names)[32];
    uint64_t tokens;       /* of the data; 0: there are none */
    uint64_t step, first;  /* done so far; when this process began */
    uint64_t saved;        /* the step of the last save that is there */
    size_t   damaged;      /* saves that were newer than that which this began from */
    char   switches[200], same[256], settings[700];
    memopt_tensor_metadata texts[4];
} saves;

static volatile sig_atomic_t saves_stop; /* Ctrl-C was pressed, or a queue of jobs ends this one (SIGTERM) */

/* A file that grows beyond a limit (ulimit -f) would end the process: so whoever writes it is told. */
static void ignore_file_limit(void) { signal(SIGXFSZ, SIG_IGN); }

static void saves_ask(int number) {
    saves_stop = 1;
    signal(number, number == SIGINT ? SIG_DFL : saves_ask); /* a second Ctrl-C ends at once; queues send SIGTERM twice */
}

static void saves_add(saves *s, const char *name, memopt_tensor_type type, uint64_t count, void *bytes) {
    memopt_save_item *item = &s->items[s->desc.item_count++];

    item->name = name;
    item->type = type;
    item->count = item->held = count;
    item->data = bytes;
}

/* What a run that goes on has to share with the one that was saved, heads among it, which no tensor's shape tells. */
static void saves_describe(const options *o, char *text, size_t capacity) {
    static const int same[] = { ON_MODEL, ON_LAYERS, ON_WIDTH, ON_HEADS, ON_CONTEXT, ON_VOCAB, ON_WEIGHTS, ON_OPTIMIZER,
                                ON_SEED, ON_PARTS };
    char value[32];
    size_t i;

    text[0] = 0;
    for (i = 0; i < sizeof same / sizeof *same - !o->parts; ++i) {
        options_value(o, same[i], value, sizeof value);
        options_add(text, capacity, i ? " --" : "--");
        options_add(text, capacity, switch_rows[same[i]].name);
        options_add(text, capacity, " ");
        options_add(text, capacity, value);
    }
    if (o->sequence) options_add(text, capacity, " of --sequence"); /* others are of the width */
}

/* ---- what a run that goes on may do in another way ---- */
static const int saves_settings[] = { ON_BATCH, ON_ACCUMULATE, ON_LR, ON_WARMUP, ON_SCHEDULE, ON_STEPS, ON_SCALE_LR, ON_CLIP,
                                      ON_SKIP_OUTLIERS,
                                      ON_DROPOUT, ON_GRADIENTS, ON_VALIDATE, ON_GEMM, ON_DATA, ON_WINDOW,
                                      ON_DOCUMENTS };
enum { SAVES_SETTINGS = sizeof saves_settings / sizeof *saves_settings };

static void saves_plain(char *text) { /* the name of a file may be no UTF-8, or be cut off within a character */
    for (; *text; ++text) if (*text < ' ' || *text > '~') *text = '?';
}

/* As far as it decides the bits. Of ranks, o->accumulate is their units. tokens: of the data. */
static void saves_value(const options *o, uint64_t tokens, int id, char *v, size_t n) {
    options_value(o, id, v, n);
    if (id == ON_VALIDATE) snprintf(v, n, "%s", o->validate ? "on" : "off");
    if (id == ON_STEPS && o->schedule == RATE_CONSTANT) snprintf(v, n, "any");
    if (!*v) snprintf(v, n, "default");
    if (id == ON_DATA && tokens) {
        char text[40];

        snprintf(text, sizeof text, " of %llu tokens", (unsigned long long)tokens);
        v[n - sizeof text] = 0;
        options_add(v, n, text);
    }
    saves_plain(v);
}

static void saves_settle(const options *o, uint64_t tokens, char *text, size_t capacity) { /* a line each: name, value */
    char value[256];
    size_t i;

    snprintf(text, capacity, "\n");
    for (i = 0; i < SAVES_SETTINGS; ++i) {
        saves_value(o, tokens, saves_settings[i], value, sizeof value);
        options_add(text, capacity, switch_rows[saves_settings[i]].name);
        options_add(text, capacity, " ");
        options_add(text, capacity, value);
        options_add(text, capacity, "\n");
    }
}

/* What is not as in a save, as "--lr 0.002 (0.001 before)"; saved: its settings, NULL where it has none. */
static void saves_changes(const options *o, uint64_t tokens, const char *saved, char *text, size_t capacity) {
    char value[256], name[32], before[256];
    const char *at;
    size_t i;

    for (i = 0, *text = 0; saved && i < SAVES_SETTINGS; ++i) {
        const int id = saves_settings[i];

        snprintf(name, sizeof name, "\n%s ", switch_rows[id].name);
        if ((at = strstr(saved, name)) == NULL) continue;
        at += strlen(name);
        snprintf(before, sizeof before, "%.*s", (int)strcspn(at, "\n"), at);
        saves_value(o, tokens, id, value, sizeof value);
        if (!strcmp(value, before) || (id == ON_STEPS && (!strcmp(value, "any") || !strcmp(before, "any")))) continue;
        options_add(text, capacity, *text ? ", --" : "--");
        options_add(text, capacity, id == ON_ACCUMULATE && o->ranks ? "units" : switch_rows[id].name);
        options_add(text, capacity, " ");
        options_add(text, capacity, value);
        options_add(text, capacity, " (");
        options_add(text, capacity, before);
        options_add(text, capacity, " before)");
    }
}

/* ---- what is saved ---- */
/* Tables for all that there may be to save. All switches stand in the save for people. */
static int saves_tables(saves *s, engine *e, const options *o) {
    const size_t tensors = e->m.tensor_count;

    s->items = (memopt_save_item *)calloc(tensors * MEMOPT_SAVE_OPTIM_ITEMS + 3, sizeof *s->items);
    s->names = (char (*)[32])calloc(tensors, sizeof *s->names);
    if (!s->items || !s->names) return said(e, "The list of what is saved", MEMOPT_ERR_MEMORY);
    options_describe(o, s->switches, sizeof s->switches);
    saves_plain(s->switches);
    saves_describe(o, s->same, sizeof s->same);
    saves_settle(o, s->tokens, s->settings, sizeof s->settings);
    s->texts[0].key = "switches";
    s->texts[0].value = s->switches;
    s->texts[1].key = "same";
    s->texts[1].value = s->same;
    s->texts[2].key = "settings";
    s->texts[2].value = s->settings;
    s->texts[3].key = "outliers"; /* saves before them have none */
    s->texts[3].value = "in them";
    s->desc.items = s->items;
    s->desc.metadata = s->texts;
    s->desc.metadata_count = sizeof s->texts / sizeof *s->texts;
    s->desc.error = &e->error;
    return 0;
}

/* Of a tensor: as a card, a rank or the engine's optimizer has it. */
static memopt_status saves_list_tensor(saves *s, engine *e, size_t tensor) {
    size_t *const count = &s->desc.item_count;
    char *const name = s->names[tensor];

    snprintf(name, sizeof s->names[tensor], "tensor.%zu", tensor);
    if (s->list_fn) return s->list_fn(s->user, tensor, name, s->items, count);
    if (s->shard) return memopt_save_shard_items(s->shard, tensor, name, s->items, count);
    return memopt_save_optim_items(e->optim, tensor, name, s->items, count);
}

static int saves_list(saves *s, engine *e, const options *o) {
    size_t i;

    if (saves_tables(s, e, o)) return 1;
    for (i = 0; i < e->m.tensor_count; ++i)
        if (said(e, "What is saved", saves_list_tensor(s, e, i))) return 1;
    saves_add(s, "step", MEMOPT_TENSOR_U64, 1, &s->step);
    saves_add(s, "scaler", MEMOPT_TENSOR_U8, sizeof e->scaler, &e->scaler);
    saves_add(s, "outliers", MEMOPT_TENSOR_U8, sizeof e->windows, &e->windows); /* the last: saves_read() */
    return 0;
}

static void saves_close(saves *s) {
    memopt_save_lock_close(s->lock);
    free(s->items);
    free(s->names);
}

/* What a save takes of the C library's heap while it is written, for the plan of the process: of an engine that is not
   there yet, so each tensor has as many items as one may have, of all of its elements. A card does without. */
static inline int saves_memory(engine *e, const options *o, size_t *bytes) {
    static const char *const of[MEMOPT_SAVE_OPTIM_ITEMS] = { "0", "1", "2", "3", "4", "5", "6", "7" };
    const size_t tensors = e->m.tensor_count;
    saves s;
    size_t i;
    int wrong;

    memset(&s, 0, sizeof s);
    wrong = saves_tables(&s, e, o);
    s.desc.path = o->save;
    for (i = 0; !wrong && i < tensors * MEMOPT_SAVE_OPTIM_ITEMS; ++i) {
        const size_t tensor = i / MEMOPT_SAVE_OPTIM_ITEMS;

        snprintf(s.names[tensor], sizeof s.names[tensor], "tensor.%zu", tensor);
        saves_add(&s, s.names[tensor], MEMOPT_TENSOR_F32, e->m.tensors[tensor].count, &s);
        s.items[i].prefix = of[i % MEMOPT_SAVE_OPTIM_ITEMS];
    }
    wrong = wrong || said(e, "A save's memory", memopt_save_bytes(&s.desc, bytes, NULL));
    saves_close(&s);
    return wrong;
}

static int saves_differ(const saves *s, engine *e, const options *o, const memopt_saved *saved) {
    const char *same = memopt_saved_value(saved, "same");

    if (!same || !strcmp(same, s->same)) return 0;
    snprintf(e->message, sizeof e->message, "--resume %s: it was saved with %s, which are to stay.", o->resume, same);
    return 1;
}

static int saves_said(engine *e, const char *name, const char *path, memopt_status status) {
    char what[280];

    snprintf(what, sizeof what, "--%s %s", name, path);
    return said(e, what, status);
}

/* An older save has no windows: they begin empty. */
static memopt_status saves_read(saves *s, engine *e, memopt_saved *saved) {
    const size_t missing = !memopt_saved_value(saved, "outliers");
    memopt_status status;

    s->desc.item_count -= missing;
    status = memopt_saved_read(saved, &s->desc);
    s->desc.item_count += missing;
    if (!status) status = memopt_scaler_check(&e->scaler);
    return status || e->windows.skipped <= s->step ? status : MEMOPT_ERR_CORRUPT;
}

static int saves_resume(saves *s, engine *e, const options *o) {
    memopt_saved *saved = NULL;
    memopt_error newer;
    char why[256] = "", changes[1500] = "";
    memopt_status status;
    int differ;

    s->desc.path = o->resume;
    status = memopt_saved_open(&s->desc, &saved);
    memset(&newer, 0, sizeof newer); /* a rank that did not find it is not told */
    s->damaged = memopt_saved_refused(saved, &newer);
    if (!status && newer.status && !memopt_error_text(&newer, why, sizeof why, NULL))
        fprintf(stderr, "train_gpt: a newer save is left out: %s\n", why);
    differ = !status && saves_differ(s, e, o, saved);
    if (!status && !differ) saves_changes(o, s->tokens, memopt_saved_value(saved, "settings"), changes, sizeof changes);
    if (!status && !differ) status = saves_read(s, e, saved);
    memopt_saved_close(saved);
    if (differ) return 1;
    if (!status && s->shard) status = memopt_shard_share(s->shard);
    else if (!status && e->tape) status = memopt_tape_seek(e->tape, s->step * o->accumulate);
    if (saves_said(e, "resume", o->resume, status)) return 1;
    if (*changes && s->step < o->steps && !memopt_comm_get_stats(s->desc.comm).rank)
        fprintf(stderr, "train_gpt: --resume %s goes on with %s\n", o->resume, changes);
    if (s->step < o->steps) return 0;
    snprintf(e->message, sizeof e->message, "--resume %s: %llu steps are done; give --steps with more of them.", o->resume,
             (unsigned long long)s->step);
    return 1;
}

/* Another run's saves are not pushed out. Damaged ones are saves, too: ERR_STATE alone says that there are none. */
static int saves_taken(saves *s, engine *e, const options *o) {
    memopt_saved *saved = NULL;
    memopt_status status;

    s->desc.path = o->save;
    status = memopt_saved_open(&s->desc, &saved);
    memopt_saved_close(saved);
    if (status == MEMOPT_ERR_STATE) return 0;
    if (status) return saves_said(e, "save", o->save, status);
    snprintf(e->message, sizeof e->message, "--save %s: a run was saved there; --resume %s goes on with it, or name "
             "another directory.", o->save, o->save);
    return 1;
}

/* ---- room on the disk ---- */
enum { SAVES_BLOCK = 4096 }; /* that a disk deals out; a directory takes one */

typedef struct saves_room { /* bytes */
    uint64_t generation, file; /* of a generation that is to come; of its largest file, at most */
    uint64_t held, needed;     /* by generations that are there; by those that are to come, at their highest */
    uint64_t left;             /* by what a run that was killed has left, which the next save removes first */
    size_t   generations;      /* that are there */
    uint64_t *counted;         /* what is being looked at: held or left */
    memopt_files files;
    const char *path;          /* of the run; of a generation while its files are looked at */
} saves_room;

/* What a generation takes. Of several ranks, which write once what several hold, it is what there is to save and what
   each has to write beside that: so all ranks call it. */
static int saves_measure(saves *s, engine *e, const options *o, saves_room *room) {
    const memopt_comm_stats ranks = memopt_comm_get_stats(s->desc.comm);
    const size_t count = ranks.rank_count ? ranks.rank_count : 1;
    uint64_t (*each)[2] = (uint64_t (*)[2])calloc(count, sizeof *each), all = 0, held = 0;
    memopt_comm_call call;
    memopt_status status;
    size_t i;

    if (!each) return said(e, "The room of the saves", MEMOPT_ERR_MEMORY);
    for (i = 0; i < s->desc.item_count; ++i) {
        const uint64_t bytes = memopt_tensor_type_bits(s->items[i].type) / 8;

        all += s->items[i].count * bytes;
        held += s->items[i].held * bytes;
    }
    s->desc.path = o->save;
    s->desc.step = o->steps;
    status = memopt_save_bytes(&s->desc, NULL, &each[ranks.rank][0]);
    each[ranks.rank][1] = each[ranks.rank][0] - held + (count > 1 ? SAVES_BLOCK : 0); /* its last block may fill up less */
    memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_ALL_GATHER;
    call.bytes = sizeof *each;
    call.send = each[ranks.rank];
    call.receive = each;
    if (!status && count > 1) status = memopt_comm_run(s->desc.comm, &call);
    room->generation = SAVES_BLOCK + all;
    for (i = 0; i < count; ++i) {
        room->generation += each[i][1];
        room->file = room->file > each[i][0] ? room->file : each[i][0];
    }
    free(each);
    return status && saves_said(e, "save", o->save, status);
}

static memopt_status saves_add_file(void *context, const char *name) {
    saves_room *room = (saves_room *)context;
    char path[4096];
    struct stat file;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", room->path, name) < sizeof path && !stat(path, &file))
        *room->counted += ((uint64_t)file.st_size + SAVES_BLOCK - 1) / SAVES_BLOCK * SAVES_BLOCK;
    return MEMOPT_OK;
}

static memopt_status saves_add_generation(void *context, const char *name) {
    saves_room *room = (saves_room *)context;
    const char *const run = room->path;
    memopt_status status;
    char path[4096];

    if (strncmp(name, "gen-", 4) || (size_t)snprintf(path, sizeof path, "%s/%s", run, name) >= sizeof path) return MEMOPT_OK;
    room->counted = strchr(name, '.') ? &room->left : &room->held; /* gen-3-step-9.tmp or .old */
    room->generations += room->counted == &room->held;
    *room->counted += SAVES_BLOCK;
    room->path = path;
    status = room->files.list_dir_fn(room->files.user, path, saves_add_file, room);
    room->path = run;
    return status;
}

/* What comes on top of what is there: two generations stay, and a third is written beside them. A damaged one stays,
   too, and counts for none. */
static memopt_status saves_need(const saves *s, const options *o, saves_room *room) {
    const uint64_t every = o->save_every ? o->save_every : o->steps, one = room->generation;
    const uint64_t to_come = o->steps / every - s->step / every + (o->steps % every != 0);
    memopt_status status;
    uint64_t held;
    size_t whole;

    room->path = o->save;
    status = room->files.list_dir_fn(room->files.user, o->save, saves_add_generation, room);
    whole = room->generations > s->damaged ? room->generations - s->damaged : 0;
    held = whole ? room->held / room->generations * whole : 0;
    room->needed = one;
    if (to_come > 1 && 2 * one + (whole ? held / whole : 0) > held + room->needed)
        room->needed = 2 * one + (whole ? held / whole : 0) - held;
    if (to_come > 2 && 3 * one > held + room->needed) room->needed = 3 * one - held;
    room->needed -= room->left < room->needed ? room->left : room->needed;
    return status;
}

/* An empty file of that room, of a name that nobody has, and which is gone at once. */
static memopt_status saves_reserve(const saves_room *room, uint64_t bytes, void **file) {
    const memopt_files *f = &room->files;
    memopt_status status = MEMOPT_ERR_STATE;
    char path[4096];
    int i;

    for (i = 0; i < 100 && status == MEMOPT_ERR_STATE; ++i) {
        if ((size_t)snprintf(path, sizeof path, "%s/train_gpt.%ld.%d.room", room->path, (long)getpid(), i) >= sizeof path)
            return MEMOPT_ERR_ARGUMENT;
        status = f->open_fn(f->user, path, MEMOPT_OPEN_SCRATCH, file);
    }
    if (status) return status;
    status = f->reserve_fn(f->user, *file, bytes);
    if (status) (void)f->close_fn(f->user, *file);
    return status;
}

/* The room, in one file, or in more where files may not be so large. */
static memopt_status saves_reserve_all(const saves_room *room) {
    const memopt_files *f = &room->files;
    void **taken = (void **)calloc((size_t)(room->needed / room->file) + 2, sizeof *taken);
    memopt_status status = taken ? MEMOPT_OK : MEMOPT_ERR_MEMORY;
    uint64_t piece = room->needed, left = room->needed;
    size_t count = 0;

    while (!status && left) {
        const uint64_t bytes = left < piece ? left : piece;

        status = saves_reserve(room, bytes, &taken[count]);
        if (!status) { ++count; left -= bytes; }
        else if (status == MEMOPT_ERR_MEMORY && bytes > room->file) {
            piece = bytes / 2 > room->file ? bytes / 2 : room->file;
            status = MEMOPT_OK;
        }
    }
    while (count) (void)f->close_fn(f->user, taken[--count]);
    free(taken);
    return status;
}

/* What would keep a save from being written is told before the first step. */
static int saves_try(const saves *s, engine *e, const options *o, saves_room *room) {
    memopt_host host;
    memopt_status status;

    memset(&host, 0, sizeof host);
    status = memopt_host_resolve(NULL, &host);
    room->files = host.files;
    if (!status) status = saves_need(s, o, room);
    if (!status) status = saves_reserve_all(room);
    if (!status) return 0;
    if (status == MEMOPT_ERR_MEMORY) snprintf(e->message, sizeof e->message, "--save %s: the disk has no room for the "
        "run's saves, %.1f MB, or lets files not be as large as theirs, %.1f MB (ulimit -f): make some, or save elsewhere.",
        o->save, (double)room->needed / 1e6, (double)room->file / 1e6);
    else snprintf(e->message, sizeof e->message, "--save %s: the directory cannot be written into, or no more "
        "files can be opened: look at its permissions and at ulimit -n, or name another.", o->save);
    return 1;
}

static int saves_begin(saves *s, engine *e, const options *o) {
    saves_room room;

    memset(&room, 0, sizeof room);
    if (o->resume && !strcmp(o->save, o->resume)) s->saved = s->step;
    else if (saves_taken(s, e, o)) return 1;
    if (saves_measure(s, e, o, &room)) return 1;
    return !memopt_comm_get_stats(s->desc.comm).rank && saves_try(s, e, o, &room);
}

/* Another run that saves there is noticed before anything is read. */
static int saves_take(saves *s, engine *e, const options *o) {
    s->desc.path = o->save;
    if (saves_said(e, "save", o->save, memopt_save_lock_open(&s->desc, &s->lock))) return 1;
    if (o->resume && !strcmp(o->save, o->resume)) s->desc.lock = s->lock;
    return 0;
}

/* s: zero, but for its comm, its shard, the tokens, and how its items are listed. */
static int saves_open(saves *s, engine *e, const options *o) {
    if (!o->save && !o->resume) return 0;
    if (saves_list(s, e, o) || (o->save && saves_take(s, e, o)) || (o->resume && saves_resume(s, e, o))) return 1;
    s->first = s->step;
    if (!o->save) return 0;
    s->desc.lock = s->lock;
    if (saves_begin(s, e, o)) return 1;
    signal(SIGINT, saves_ask);
    signal(SIGTERM, saves_ask);
    return 0;
}

/* A save failed, and there will be another: the disk may have room by then. */
static void saves_failed(const saves *s, engine *e, const options *o) {
    char why[256];

    if (memopt_error_text(&e->error, why, sizeof why, NULL)) snprintf(why, sizeof why, "it failed");
    fprintf(stderr, "train_gpt: --save %s: step %zu is not saved: %s; ", o->save, (size_t)s->step, why);
    if (s->saved) fprintf(stderr, "step %zu is, and the training goes on\n", (size_t)s->saved);
    else fprintf(stderr, "no step is, and the training goes on\n");
}

/* A step is done: save where that is due. stops: Ctrl-C was pressed, on any rank. All ranks fail together. */
static int saves_after(saves *s, engine *e, const options *o, size_t done, int stops) {
    const int ends = stops || done == o->steps;
    const int tells = !memopt_comm_get_stats(s->desc.comm).rank;
    memopt_status status;

    s->step = done;
    if (!o->save || !(ends || (o->save_every && done % o->save_every == 0))) return 0;
    s->desc.path = o->save;
    s->desc.step = done;
    status = memopt_save_write(&s->desc);
    if (!status) s->saved = done;
    else if (ends) return saves_said(e, "save", o->save, status);
    else if (tells) saves_failed(s, e, o);
    if (stops && tells)
        fprintf(stderr, "train_gpt: stopped and saved after step %zu; --resume %s goes on\n", done, o->save);
    return 0;
}
#endif
