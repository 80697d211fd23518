/* progress.h - a run that is stopped goes on: what decides the next bit is saved in a folder of its own beside OUT.

   In memory   weights, states and the number of the step, every so many steps and at Ctrl-C, by memopt_save.
   On a disk   the store itself, which has each step as a whole or not at all, goes on. Several ranks have a store each
               and save what is in them, as one of them may be a step behind.
   Settings    What decides the bits of a run is a text in that folder. A run that would go on in another way is
               refused, with the line that differs. */
#ifndef FINETUNE_PROGRESS_H
#define FINETUNE_PROGRESS_H
#include <signal.h>
#include "model.h"

enum { SAVE_TILE = 1 << 16 /* four are under way: beside the plan, so they are small */ };

typedef struct progress {
    model *m;
    memopt_save_desc save;
    memopt_save_lock *lock;
    memopt_save_item *items;
    char   (*names)[32];
    uint64_t step;          /* done */
    char   folder[1024], store[1100]; /* of the run; the store's file */
} progress;

static volatile sig_atomic_t progress_stop; /* Ctrl-C, or a queue of jobs ends this one (SIGTERM) */

static void progress_ask(int number) {
    progress_stop = 1;
    signal(number, number == SIGINT ? SIG_DFL : progress_ask); /* a second Ctrl-C ends at once */
}

/* ---- settings ---- */
static void progress_first_difference(const char *a, const char *b, char *line, size_t capacity) {
    while (*a && *a == *b) {
        const size_t n = strcspn(a, "\n");

        if (n != strcspn(b, "\n") || memcmp(a, b, n)) break;
        a += n + (a[n] != 0);
        b += n + (b[n] != 0);
    }
    snprintf(line, capacity, "%.*s", (int)strcspn(b, "\n"), b);
}

/* Of a run that was begun here, or "". */
static int progress_read_settings(progress *p, const memopt_host *host, char *text, size_t capacity) {
    const memopt_files *f = &host->files;
    char path[1200];
    void *file = NULL;
    size_t got = 0;
    memopt_status s;

    text[0] = 0;
    snprintf(path, sizeof path, "%s/settings", p->folder);
    if (f->open_fn(f->user, path, MEMOPT_OPEN_READ, &file)) return 0;
    s = f->read_fn(f->user, file, 0, text, capacity - 1, &got);
    (void)f->close_fn(f->user, file);
    text[s ? 0 : got] = 0;
    return failed(&p->m->why, path, s);
}

/* Are they those of the run that was begun here? A new run's are written. */
static int progress_settle(progress *p, const memopt_host *host, const char *settings, const char *before) {
    const memopt_files *f = &host->files;
    char path[1200], beside[1200], line[256];
    void *file = NULL;
    memopt_status s;

    snprintf(path, sizeof path, "%s/settings", p->folder);
    snprintf(beside, sizeof beside, "%s/settings.tmp", p->folder);
    progress_first_difference(settings, before, line, sizeof line);
    if (*before && strcmp(before, settings))
        return refuse(&p->m->why, "%s: a run was begun there with \"%s\"; go on as it was, or remove that folder",
                      p->folder, line);
    if (*before) return 0;
    s = f->open_fn(f->user, beside, MEMOPT_OPEN_WRITE, &file);
    if (!s) s = f->resize_fn(f->user, file, 0);
    if (!s) s = f->write_fn(f->user, file, 0, settings, strlen(settings));
    if (!s) s = f->sync_fn(f->user, file);
    if (file) (void)f->close_fn(f->user, file);
    if (!s) s = f->rename_fn(f->user, beside, path);
    return failed(&p->m->why, path, s);
}

/* ---- what is saved ---- */
static int progress_list(progress *p) {
    model *m = p->m;
    size_t i;
    memopt_status s = MEMOPT_OK;

    p->items = (memopt_save_item *)calloc(m->tensor_count * MEMOPT_SAVE_OPTIM_ITEMS + 1, sizeof *p->items);
    p->names = (char (*)[32])calloc(m->tensor_count, sizeof *p->names);
    if (!p->items || !p->names) return refuse(&m->why, "no memory for the list of what is saved");
    for (i = 0; !s && i < m->tensor_count; ++i) {
        snprintf(p->names[i], sizeof p->names[i], "tensor.%lu", (unsigned long)i);
        s = memopt_save_shard_items(m->shard, i, p->names[i], p->items, &p->save.item_count);
    }
    if (model_failed(m, "what is saved", s)) return 1;
    p->items[p->save.item_count].name = "step";
    p->items[p->save.item_count].type = MEMOPT_TENSOR_U64;
    p->items[p->save.item_count].count = p->items[p->save.item_count].held = 1;
    p->items[p->save.item_count++].data = &p->step;
    p->save.items = p->items;
    p->save.tile = SAVE_TILE;
    p->save.lock = p->lock;
    return 0;
}

/* Nobody else works in this run's folder. */
static int progress_lock(progress *p) {
    p->save.path = p->folder;
    p->save.comm = p->m->team->comm;
    p->save.error = &p->m->why.error;
    return failed(&p->m->why, p->folder, memopt_save_lock_open(&p->save, &p->lock));
}

/* The model is open. *is_there: weights and p->step are those of an earlier run. */
static int progress_resume(progress *p, int *is_there) {
    memopt_saved *saved = NULL;
    memopt_status s;

    *is_there = 0;
    if (model_is_in_store(p->m)) {
        const uint64_t step = memopt_store_get_stats(p->m->store).step;

        *is_there = step != MEMOPT_STORE_NO_STEP;
        if (*is_there) p->step = step;
        return 0;
    }
    if (progress_list(p)) return 1;
    s = memopt_saved_open(&p->save, &saved);
    if (s == MEMOPT_ERR_STATE) return 0;
    if (!s) s = memopt_saved_read(saved, &p->save);
    memopt_saved_close(saved);
    if (!s) s = memopt_shard_share(p->m->shard);
    *is_there = !s;
    return model_failed(p->m, p->folder, s);
}

static int progress_write(progress *p) {
    if (model_is_in_store(p->m)) return 0; /* each step is there */
    p->save.step = p->step;
    return failed(&p->m->why, p->folder, memopt_save_write(&p->save));
}

/* ---- a run that is over ---- */
typedef struct progress_walk {
    const memopt_files *files;
    const char *folder;
    int depth;
} progress_walk;

static int progress_is_own(const char *name) {
    return !strncmp(name, "gen-", 4) || !strcmp(name, "lock") || !strcmp(name, "settings")
        || !strcmp(name, "settings.tmp") || !strcmp(name, "losses");
}

static memopt_status progress_remove_name(void *context, const char *name) {
    progress_walk *w = (progress_walk *)context;
    const memopt_files *f = w->files;
    progress_walk inner = { w->files, NULL, w->depth + 1 };
    char path[1400];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", w->folder, name) >= sizeof path) return MEMOPT_OK;
    inner.folder = path;
    if (!w->depth && !progress_is_own(name)) return MEMOPT_OK;
    if (!w->depth && !strncmp(name, "gen-", 4)) (void)f->list_dir_fn(f->user, path, progress_remove_name, &inner);
    (void)f->remove_fn(f->user, path);
    return MEMOPT_OK;
}

/* OUT is there: nothing of the run is needed. What is not its own stays, and the folder with it. */
static void progress_remove(progress *p, const memopt_host *host) {
    const memopt_files *f = &host->files;
    progress_walk w = { f, p->folder, 0 };

    memopt_store_destroy(p->m->store);
    p->m->store = NULL;
    if (model_is_in_store(p->m)) (void)f->remove_fn(f->user, p->store);
    memopt_save_lock_close(p->lock);
    p->lock = NULL;
    (void)f->list_dir_fn(f->user, p->folder, progress_remove_name, &w);
    (void)f->remove_fn(f->user, p->folder);
}

static void progress_close(progress *p) {
    memopt_save_lock_close(p->lock);
    free(p->items);
    free(p->names);
}
#endif
