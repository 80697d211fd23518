/* test_save.c - saves of a run: what is written, what survives, what is refused, and on how many ranks it goes on. */
#include "test.h"
#include "replayed_disk.h"

/* ---- a disk in memory, which keeps a log, and of which only what was synced survives ---- */
enum { DISK_NAMES = 64, DISK_FILES = 64, DISK_OPS = 4096, DISK_PATH = 160, DISK_BLOCK = 4096, DISK_SLOTS = 1024 };
typedef enum disk_kind { DISK_WRITE, DISK_RESIZE, DISK_SYNC, DISK_CREATE, DISK_MKDIR, DISK_RENAME, DISK_REMOVE, DISK_SYNC_DIR } disk_kind;
typedef struct disk_op { disk_kind kind; int file; uint64_t offset; size_t count; unsigned char *bytes; char a[DISK_PATH], b[DISK_PATH]; } disk_op;
typedef struct save_disk {
    test_faults f;
    struct { char path[DISK_PATH]; int file; } names[DISK_NAMES]; /* file -1: a directory */
    char link[DISK_PATH], target[DISK_PATH]; /* a name that is a link to a directory */
    char rival[DISK_PATH];                  /* a directory that another run makes just before */
    char rival_file[DISK_PATH];             /* "", or a file that is in it when this run has made it */
    const char *forbidden;                  /* NULL, or a directory that must not be made */
    int broken; /* a file that gets no room: not because the disk is full */
    char stuck[DISK_PATH]; /* a name that cannot be removed, or synced */
    size_t name_count;
    struct { unsigned char *bytes; size_t size; } files[DISK_FILES];
    int file_count;
    intptr_t opens, locked[DISK_FILES];      /* handles so far; the one that has locked the file */
    int no_locks;                            /* of this file system */
    int open;                                /* files that are */
    size_t align; /* of direct files; 0: 1 */
    uint64_t lie; /* what a size is told too large */
    int bad_close; /* 1: the next close tells an error, 2: the one after it */
    int logs, any_name; /* 1: directories are where they are asked for */
    disk_op *ops; size_t op_count;
    size_t marks[16]; size_t mark_count; /* ops done when each save had ended */
    /* a queue: what is begun is done when somebody waits, the last first */
    struct { void *file; memopt_transfer kind; uint64_t offset; void *bytes; size_t count, done; memopt_status status; int state; } slots[DISK_SLOTS]; /* state 1: begun, 2: done */
    int order[DISK_SLOTS], begun, depth, most; /* most: as many at once */
} save_disk;

static int disk_find(const save_disk *d, const char *path) {
    size_t i; const size_t length = strlen(d->link); char through[2 * DISK_PATH];
    if (length && !strncmp(path, d->link, length) && path[length] == '/') { snprintf(through, sizeof through, "%s%s", d->target, path + length); path = through; }
    for (i = 0; i < d->name_count; ++i) if (!strcmp(d->names[i].path, path)) return (int)i;
    return -1;
}
static void disk_log(save_disk *d, disk_kind kind, int file, uint64_t offset, const void *bytes, size_t count, const char *a, const char *b) {
    disk_op *op;
    if (!d->logs) return;
    if (d->op_count == DISK_OPS) { printf("test_save.c: the log is full\n"); exit(1); }
    op = &d->ops[d->op_count++];
    memset(op, 0, sizeof *op);
    op->kind = kind; op->file = file; op->offset = offset; op->count = count;
    if (bytes && count) { op->bytes = (unsigned char *)malloc(count); memcpy(op->bytes, bytes, count); }
    if (a) strcpy(op->a, a);
    if (b) strcpy(op->b, b);
}
static int disk_add(save_disk *d, const char *path, int file) {
    if (d->name_count == DISK_NAMES || strlen(path) >= DISK_PATH) { printf("test_save.c: too many names\n"); exit(1); }
    strcpy(d->names[d->name_count].path, path);
    d->names[d->name_count].file = file;
    return (int)d->name_count++;
}
static void disk_grow(save_disk *d, int file, size_t size) {
    unsigned char *p = (unsigned char *)realloc(d->files[file].bytes, size + 1);
    if (!p) exit(1);
    if (size > d->files[file].size) memset(p + d->files[file].size, 0, size - d->files[file].size);
    d->files[file].bytes = p; d->files[file].size = size;
}
static int disk_has_parent(const save_disk *d, const char *path) {
    char parent[DISK_PATH]; char *slash;
    strcpy(parent, path);
    while (strlen(parent) > 1 && parent[strlen(parent) - 1] == '/') parent[strlen(parent) - 1] = 0;
    slash = strrchr(parent, '/');
    if (!slash || d->any_name) return 1;
    *slash = 0;
    return disk_find(d, parent) >= 0 && d->names[disk_find(d, parent)].file == -1;
}
/* what the log replays, too */
static void disk_do_rename(save_disk *d, const char *from, const char *to) {
    size_t i; const size_t length = strlen(from);
    for (i = 0; i < d->name_count; ++i) {
        char path[2 * DISK_PATH];
        if (strncmp(d->names[i].path, from, length) || (d->names[i].path[length] && d->names[i].path[length] != '/')) continue;
        strcpy(path, to); strcat(path, d->names[i].path + length); /* not by one snprintf: gcc counts with the longest of both */
        CHECK(strlen(path) < DISK_PATH);
        memcpy(d->names[i].path, path, strlen(path) + 1);
    }
}
static void disk_do_remove(save_disk *d, const char *path) {
    const int i = disk_find(d, path);
    if (!strcmp(d->link, path)) d->link[0] = 0; /* not what it leads to */
    if (i >= 0) d->names[i] = d->names[--d->name_count];
}
static memopt_status disk_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    save_disk *d = (save_disk *)user; int i = disk_find(d, path); const int direct = ((int)mode & 2) != 0; const memopt_open_mode plain = (memopt_open_mode)((int)mode & ~2); const int reads = plain == MEMOPT_OPEN_READ;
    CHECK(plain <= MEMOPT_OPEN_NEW);
    if (test_fails(&d->f)) return MEMOPT_ERR_IO;
    if (plain >= MEMOPT_OPEN_OWN && d->link[0] && !strcmp(path, d->link)) return MEMOPT_ERR_STATE;
    if (plain == MEMOPT_OPEN_NEW && i >= 0) return MEMOPT_ERR_STATE;
    if (i < 0 && (reads || !disk_has_parent(d, path))) return MEMOPT_ERR_IO;
    if (i < 0) {
        if (d->file_count == DISK_FILES) { printf("test_save.c: too many files\n"); exit(1); }
        i = disk_add(d, path, d->file_count++);
        disk_log(d, DISK_CREATE, d->names[i].file, 0, NULL, 0, path, NULL);
    }
    if (d->names[i].file < 0) return MEMOPT_ERR_IO;
    ++d->open;
    *file = (void *)((++d->opens * DISK_FILES + d->names[i].file) * 2 + 2 + direct);
    return MEMOPT_OK;
}
static int disk_number(void *file) { return (int)(((intptr_t)file / 2 - 1) % DISK_FILES); }
static size_t disk_unit(const save_disk *d, void *file) { return ((intptr_t)file & 1) && d->align ? d->align : 1; }
static memopt_status disk_close(void *user, void *file) {
    save_disk *d = (save_disk *)user;
    --d->open;
    if (d->locked[disk_number(file)] == (intptr_t)file) { /* it never fails: nothing was written */
        d->locked[disk_number(file)] = 0;
        return MEMOPT_OK;
    }
    if (d->bad_close && --d->bad_close == 0) return MEMOPT_ERR_IO;
    return test_fails(&d->f) ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_status disk_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    save_disk *d = (save_disk *)user; const int n = disk_number(file); size_t left = d->files[n].size > offset ? d->files[n].size - (size_t)offset : 0;
    if (test_fails(&d->f) || (offset | (uintptr_t)bytes | count) % disk_unit(d, file)) return MEMOPT_ERR_IO;
    *done = left < count ? left : count;
    if (*done) memcpy(bytes, d->files[n].bytes + offset, *done);
    return MEMOPT_OK;
}
static memopt_status disk_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    save_disk *d = (save_disk *)user; const int n = disk_number(file); const int fails = test_fails(&d->f);
    if ((offset | (uintptr_t)bytes | count) % disk_unit(d, file)) return MEMOPT_ERR_IO;
    if (fails) count /= 2; /* some of it has gone */
    if (offset + count > d->files[n].size) disk_grow(d, n, (size_t)offset + count);
    memcpy(d->files[n].bytes + offset, bytes, count);
    disk_log(d, DISK_WRITE, n, offset, bytes, count, NULL, NULL);
    return fails ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_status disk_size(void *user, void *file, uint64_t *bytes) {
    save_disk *d = (save_disk *)user;
    if (test_fails(&d->f)) return MEMOPT_ERR_IO;
    *bytes = d->files[disk_number(file)].size + d->lie;
    return MEMOPT_OK;
}
static memopt_status disk_resize(void *user, void *file, uint64_t bytes) {
    save_disk *d = (save_disk *)user;
    if (test_fails(&d->f)) return MEMOPT_ERR_IO;
    disk_grow(d, disk_number(file), (size_t)bytes);
    disk_log(d, DISK_RESIZE, disk_number(file), bytes, NULL, 0, NULL, NULL);
    return MEMOPT_OK;
}
static memopt_status disk_sync(void *user, void *file) {
    save_disk *d = (save_disk *)user;
    if (test_fails(&d->f)) return MEMOPT_ERR_IO;
    disk_log(d, DISK_SYNC, disk_number(file), 0, NULL, 0, NULL, NULL);
    return MEMOPT_OK;
}
static memopt_status disk_rename(void *user, const char *from, const char *to) {
    save_disk *d = (save_disk *)user;
    if (test_fails(&d->f) || disk_find(d, from) < 0 || disk_find(d, to) >= 0) return MEMOPT_ERR_IO;
    disk_do_rename(d, from, to);
    if (!strcmp(d->link, from)) strcpy(d->link, to);
    disk_log(d, DISK_RENAME, -1, 0, NULL, 0, from, to);
    return MEMOPT_OK;
}
static memopt_status disk_remove(void *user, const char *path) {
    save_disk *d = (save_disk *)user; size_t i; const size_t length = strlen(path);
    if (test_fails(&d->f) || disk_find(d, path) < 0) return MEMOPT_ERR_IO;
    for (i = 0; i < d->name_count; ++i) if (!strncmp(d->names[i].path, path, length) && d->names[i].path[length] == '/') return MEMOPT_ERR_IO;
    if (!strcmp(path, d->stuck)) return MEMOPT_ERR_IO;
    disk_do_remove(d, path);
    disk_log(d, DISK_REMOVE, -1, 0, NULL, 0, path, NULL);
    return MEMOPT_OK;
}
static memopt_status disk_reserve(void *user, void *file, uint64_t bytes) {
    save_disk *d = (save_disk *)user; const int n = disk_number(file);
    if (test_fails(&d->f)) return d->broken ? MEMOPT_ERR_IO : MEMOPT_ERR_MEMORY;
    if (bytes > d->files[n].size) { disk_grow(d, n, (size_t)bytes); disk_log(d, DISK_RESIZE, n, bytes, NULL, 0, NULL, NULL); }
    return MEMOPT_OK;
}
static memopt_status disk_alignment(void *user, void *file, size_t *alignment) {
    if (test_fails(&((save_disk *)user)->f)) return MEMOPT_ERR_IO;
    *alignment = disk_unit((save_disk *)user, file);
    return MEMOPT_OK;
}
static memopt_status disk_make_dir(void *user, const char *path) {
    save_disk *d = (save_disk *)user;
    if (test_fails(&d->f) || !disk_has_parent(d, path) || (d->forbidden && !strcmp(path, d->forbidden))) return MEMOPT_ERR_IO;
    if (d->rival_file[0] && !strcmp(path, d->rival)) {
        (void)disk_add(d, path, -1); (void)disk_add(d, d->rival_file, d->file_count++);
        d->rival[0] = d->rival_file[0] = 0;
        return MEMOPT_OK;
    }
    if (d->rival[0] && !strcmp(path, d->rival)) { /* another run is first by a moment */
        char file[DISK_PATH];
        snprintf(file, sizeof file, "%.80s/rank-0-of-1.safetensors", path);
        (void)disk_add(d, path, -1); (void)disk_add(d, file, d->file_count++);
        d->rival[0] = 0;
    }
    if (disk_find(d, path) >= 0) return d->names[disk_find(d, path)].file == -1 ? MEMOPT_ERR_STATE : MEMOPT_ERR_IO;
    (void)disk_add(d, path, -1);
    disk_log(d, DISK_MKDIR, -1, 0, NULL, 0, path, NULL);
    return MEMOPT_OK;
}
static memopt_status disk_list(void *user, const char *path, memopt_name_fn *each_fn, void *context) {
    save_disk *d = (save_disk *)user; size_t i, length; memopt_status s = MEMOPT_OK;
    if (test_fails(&d->f)) return MEMOPT_ERR_IO;
    if (d->link[0] && !strcmp(path, d->link)) path = d->target;
    length = strlen(path);
    for (i = 0; i < d->name_count && !s; ++i) {
        const char *p = d->names[i].path;
        if (!strncmp(p, path, length) && p[length] == '/' && !strchr(p + length + 1, '/')) s = each_fn(context, p + length + 1);
    }
    return s;
}
static memopt_status disk_sync_dir(void *user, const char *path) {
    save_disk *d = (save_disk *)user;
    if (test_fails(&d->f) || (strcmp(path, ".") && !d->any_name && (disk_find(d, path) < 0 || d->names[disk_find(d, path)].file >= 0)) || !strcmp(path, d->stuck)) return MEMOPT_ERR_IO;
    disk_log(d, DISK_SYNC_DIR, -1, 0, NULL, 0, path, NULL);
    return MEMOPT_OK;
}
static memopt_status disk_lock(void *user, void *file) {
    save_disk *d = (save_disk *)user;
    if (test_fails(&d->f)) return MEMOPT_ERR_IO;
    if (d->no_locks) return MEMOPT_ERR_UNSUPPORTED;
    if (d->locked[disk_number(file)]) return MEMOPT_ERR_STATE;
    d->locked[disk_number(file)] = (intptr_t)file;
    return MEMOPT_OK;
}
static memopt_status disk_queue_open(void *user, int depth, void **queue) {
    save_disk *d = (save_disk *)user;
    if (test_fails(&d->f)) return MEMOPT_ERR_MEMORY;
    CHECK(!d->depth && depth >= 1 && depth <= DISK_SLOTS);
    d->depth = depth;
    *queue = d;
    return MEMOPT_OK;
}
static void disk_queue_do(save_disk *d) {
    while (d->begun) {
        const int i = d->order[--d->begun];
        d->slots[i].done = d->slots[i].count;
        d->slots[i].status = d->slots[i].kind == MEMOPT_TRANSFER_READ ? disk_read(d, d->slots[i].file, d->slots[i].offset, d->slots[i].bytes, d->slots[i].count, &d->slots[i].done)
                                                                      : disk_write(d, d->slots[i].file, d->slots[i].offset, d->slots[i].bytes, d->slots[i].count);
        d->slots[i].state = 2;
    }
}
static void disk_queue_close(void *user, void *queue) {
    save_disk *d = (save_disk *)user;
    CHECK(queue == user);
    disk_queue_do(d);
    d->depth = 0;
    memset(d->slots, 0, sizeof d->slots);
}
static memopt_status disk_begin(void *user, void *queue, int slot, void *file, memopt_transfer kind, uint64_t offset, void *bytes, size_t count) {
    save_disk *d = (save_disk *)user;
    CHECK(queue == user && slot >= 0 && slot < d->depth && !d->slots[slot].state);
    if (test_fails(&d->f)) return MEMOPT_ERR_IO;
    d->slots[slot].file = file; d->slots[slot].kind = kind; d->slots[slot].offset = offset; d->slots[slot].bytes = bytes; d->slots[slot].count = count; d->slots[slot].state = 1;
    d->order[d->begun++] = slot;
    if (d->begun > d->most) d->most = d->begun;
    return MEMOPT_OK;
}
static memopt_status disk_wait(void *user, void *queue, int slot, size_t *done) {
    save_disk *d = (save_disk *)user;
    CHECK(queue == user && slot >= 0 && slot < d->depth && d->slots[slot].state);
    disk_queue_do(d);
    d->slots[slot].state = 0;
    if (!d->slots[slot].status) *done = d->slots[slot].done;
    return d->slots[slot].status;
}
static int disk_ready(void *user, void *queue, int slot) {
    save_disk *d = (save_disk *)user;
    CHECK(queue == user && slot >= 0 && slot < d->depth && d->slots[slot].state);
    return d->slots[slot].state == 2;
}
static save_disk *disk_new(void) {
    save_disk *d = (save_disk *)calloc(1, sizeof *d);
    if (!d) exit(1);
    d->ops = (disk_op *)calloc(DISK_OPS, sizeof *d->ops);
    if (!d->ops) exit(1);
    return d;
}
static void disk_clear(save_disk *d) {
    int i; size_t k;
    for (i = 0; i < d->file_count; ++i) free(d->files[i].bytes);
    for (k = 0; k < d->op_count; ++k) free(d->ops[k].bytes);
    memset(d->files, 0, sizeof d->files); memset(d->locked, 0, sizeof d->locked);
    d->file_count = 0; d->op_count = 0; d->name_count = 0; d->mark_count = 0;
}
static void disk_free(save_disk *d) { disk_clear(d); free(d->ops); free(d); }
static memopt_host disk_host(save_disk *d) {
    memopt_host h = test_host(&d->f);
    h.files.open_fn = disk_open; h.files.close_fn = disk_close; h.files.read_fn = disk_read; h.files.write_fn = disk_write;
    h.files.size_fn = disk_size; h.files.resize_fn = disk_resize; h.files.sync_fn = disk_sync; h.files.rename_fn = disk_rename;
    h.files.remove_fn = disk_remove; h.files.reserve_fn = disk_reserve; h.files.align_fn = disk_alignment;
    h.files.make_dir_fn = disk_make_dir; h.files.list_dir_fn = disk_list; h.files.sync_dir_fn = disk_sync_dir; h.files.lock_fn = disk_lock; h.files.user = d;
    h.files.queue_open_fn = NULL; h.files.queue_close_fn = NULL; h.files.begin_fn = NULL; h.files.wait_fn = NULL;
    return h;
}
static memopt_host disk_host_queue(save_disk *d) { /* with a queue of its own */
    memopt_host h = disk_host(d);
    h.files.queue_open_fn = disk_queue_open; h.files.queue_close_fn = disk_queue_close; h.files.begin_fn = disk_begin; h.files.wait_fn = disk_wait;
    h.files.ready_fn = disk_ready;
    return h;
}

/* ---- a small run: floats, codes, 16 bits and a counter, of which every element follows from the step ---- */
enum { RUN_WIDE = 3000, RUN_CODES = 700, RUN_HALF = 33 };
typedef struct save_run { float wide[RUN_WIDE]; unsigned char codes[RUN_CODES]; uint16_t half[RUN_HALF]; uint64_t state[2]; memopt_save_item items[4], model[3]; memopt_save_desc save; } save_run;
static void run_set(save_run *r, uint64_t step) {
    uint64_t seed = step * 77 + 5; size_t i;
    for (i = 0; i < RUN_WIDE; ++i) r->wide[i] = (float)(int64_t)(test_random(&seed) >> 40) / 1024;
    for (i = 0; i < RUN_CODES; ++i) r->codes[i] = (unsigned char)test_random(&seed);
    for (i = 0; i < RUN_HALF; ++i) r->half[i] = (uint16_t)test_random(&seed);
    r->state[0] = step; r->state[1] = test_random(&seed);
    r->save.step = step;
}
static memopt_save_item run_item(const char *prefix, const char *name, memopt_tensor_type type, uint64_t count, void *data) {
    memopt_save_item item;
    memset(&item, 0, sizeof item);
    item.prefix = prefix; item.name = name; item.type = type; item.count = item.held = count; item.data = data;
    return item;
}
static const uint64_t run_shape[2] = { 60, 50 };
static const memopt_tensor_metadata run_texts[2] = { { "data", "corpus \"1\"" }, { "rate", "0x1.8p-3" } };
static void run_begin(save_run *r, const memopt_host *host, const char *path) {
    memset(r, 0, sizeof *r);
    r->items[0] = run_item("w/", "h.0", MEMOPT_TENSOR_F32, RUN_WIDE, r->wide);
    r->items[0].shape = run_shape; r->items[0].dimensions = 2;
    r->items[1] = run_item("m/", "h.0", MEMOPT_TENSOR_U8, RUN_CODES, r->codes);
    r->items[2] = run_item(NULL, "lo/h.0@x", MEMOPT_TENSOR_BF16, RUN_HALF, r->half);
    r->items[3] = run_item("", "state", MEMOPT_TENSOR_U64, 2, r->state);
    r->save.path = path; r->save.items = r->items; r->save.item_count = 4; r->save.tile = 4096; r->save.host = host;
    r->save.metadata = run_texts; r->save.metadata_count = 2;
}
/* What others read: the same memory under other names, with a letter that JSON writes otherwise */
static void run_model(save_run *r, uint64_t file_bytes) {
    r->model[0] = run_item("h.", "0.weight", MEMOPT_TENSOR_F32, RUN_WIDE, r->wide);
    r->model[0].shape = run_shape; r->model[0].dimensions = 2;
    r->model[1] = run_item(NULL, "codes", MEMOPT_TENSOR_U8, RUN_CODES, r->codes);
    r->model[2] = run_item("b\"", "half", MEMOPT_TENSOR_BF16, RUN_HALF, r->half);
    r->save.model = r->model; r->save.model_count = 3; r->save.model_bytes = file_bytes;
}
static int run_same(const save_run *a, const save_run *b) {
    return !memcmp(a->wide, b->wide, sizeof a->wide) && !memcmp(a->codes, b->codes, sizeof a->codes)
        && !memcmp(a->half, b->half, sizeof a->half) && !memcmp(a->state, b->state, sizeof a->state);
}
static int run_is(save_run *r, uint64_t step) { /* 1: all of it is of this step */
    static save_run want;
    run_set(&want, step);
    return run_same(r, &want);
}
/* Load the newest: its step, 0: nothing could be loaded. */
static uint64_t run_load_told(const memopt_host *host, const char *path, memopt_status *status, size_t *refused, memopt_error *why) {
    static save_run r; memopt_saved *saved = NULL; uint64_t step = 0; memopt_status s;
    run_begin(&r, host, path);
    r.save.error = why;
    s = memopt_saved_open(&r.save, &saved);
    if (!s && why) (void)memopt_saved_refused(saved, why);
    if (!s) s = memopt_saved_read(saved, &r.save);
    if (!s) {
        step = memopt_saved_step(saved);
        if (!run_is(&r, step) || !step) step = 999999;
    }
    if (refused) *refused = memopt_saved_refused(saved, NULL);
    if (status) *status = s;
    memopt_saved_close(saved);
    return step;
}
static uint64_t run_load(const memopt_host *host, const char *path, memopt_status *status, size_t *refused) {
    return run_load_told(host, path, status, refused, NULL);
}

/* ---- one rank alone ---- */
typedef struct save_names { char text[2000]; size_t count; } save_names;
static memopt_status save_name(void *context, const char *name) {
    save_names *n = (save_names *)context;
    ++n->count;
    strcat(n->text, " "); strcat(n->text, name); /* few and short */
    return MEMOPT_OK;
}
static void save_remove_all(const memopt_host *h, const char *path) {
    char text[900], other[900]; memopt_i_save_path p, q; memopt_i_save_search s; size_t k; static const char *const suffixes[3] = { "", ".tmp", ".old" };
    p.text = text; q.text = other; p.bytes = q.bytes = sizeof text;
    for (k = 0; k < 3; ++k) memopt_i_save_clean(h, path, suffixes[k], &p, &q);
    CHECK(!memopt_i_save_newest(h, path, memopt_i_save_above_all(), NULL, &s) && !s.is_found);
    snprintf(text, sizeof text, "%.700s/lock", path);
    (void)h->files.remove_fn(h->files.user, text);
    (void)h->files.remove_fn(h->files.user, path);
}
static void save_alone(void) { /* on a real disk; memory and bytes as they were told */
    static save_run r; test_faults f; memopt_host h; char path[600]; memopt_saved *saved = NULL; uint64_t step, disk_bytes = 0, all = 0, size = 0;
    size_t memory = 0, k; save_names n; memopt_status s = MEMOPT_OK; memopt_error why = memopt_i_error(MEMOPT_OK, NULL); void *file = NULL;
    memset(&f, 0, sizeof f);
    h = test_host(&f);
    test_path(path, "save");
    save_remove_all(&h, path);
    run_begin(&r, &h, path);
    r.save.error = &test_why;
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_ERR_STATE && test_says(&test_why, MEMOPT_ERR_STATE, "save: path has no generation")); /* not even the directory */
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK && h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_ERR_IO && test_says(&test_why, MEMOPT_ERR_IO, "save: path could not be listed")); /* a file in its place */
    CHECK(h.files.remove_fn(h.files.user, path) == MEMOPT_OK);
    for (step = 100; step <= 500; step += 100) {
        run_set(&r, step);
        CHECK(memopt_save_bytes(&r.save, &memory, &disk_bytes) == MEMOPT_OK && f.live_blocks == 0);
        f.peak_bytes = 0;
        CHECK(memopt_save_write(&r.save) == MEMOPT_OK && f.live_blocks == 0 && f.bad_frees == 0);
        CHECK(f.peak_bytes == memory);
        if (f.peak_bytes != memory) printf("peak %zu, told %zu\n", f.peak_bytes, memory);
        CHECK(run_load(&h, path, &s, &k) == step && s == MEMOPT_OK && k == 0 && f.live_blocks == 0);
        memset(&n, 0, sizeof n);
        CHECK(h.files.list_dir_fn(h.files.user, path, save_name, &n) == MEMOPT_OK && n.count == (step == 100 ? 2 : 3)); /* one is "lock" */
    }
    CHECK(strstr(n.text, " gen-4-step-400") && strstr(n.text, " gen-5-step-500"));
    strcat(path, "/gen-5-step-500");
    memset(&n, 0, sizeof n);
    CHECK(h.files.list_dir_fn(h.files.user, path, save_name, &n) == MEMOPT_OK && n.count == 2);
    CHECK(strstr(n.text, " manifest") && strstr(n.text, " rank-0-of-1.safetensors"));
    strcat(path, "/manifest");
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_READ, &file) == MEMOPT_OK && h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK);
    all = (size + 4095) / 4096 * 4096 + 4096 + (4 * RUN_WIDE + RUN_CODES + 2 * RUN_HALF + 16 + 4095) / 4096 * 4096;
    CHECK(h.files.close_fn(h.files.user, file) == MEMOPT_OK && disk_bytes == all);
    *strrchr(path, '/') = 0; *strrchr(path, '/') = 0;
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_OK && memopt_saved_step(saved) == 500);
    CHECK(!strcmp(memopt_saved_value(saved, "data"), "corpus \"1\"") && !strcmp(memopt_saved_value(saved, "rate"), "0x1.8p-3"));
    CHECK(memopt_saved_value(saved, "none") == NULL && memopt_saved_value(saved, NULL) == NULL);
    CHECK(memopt_saved_refused(saved, &why) == 0 && why.status == MEMOPT_OK);
    { uint32_t crc = memopt_crc32c(0, r.wide, sizeof r.wide); /* in the order of the listing */
      crc = memopt_crc32c(crc, r.codes, sizeof r.codes); crc = memopt_crc32c(crc, r.half, sizeof r.half); crc = memopt_crc32c(crc, r.state, sizeof r.state);
      CHECK(memopt_saved_content(saved) == crc); }
    memopt_saved_close(saved);
    run_set(&r, 500); /* the same step again, and an older one: the newest save counts, not the largest step */
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && run_load(&h, path, &s, NULL) == 500);
    run_set(&r, 7);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && run_load(&h, path, &s, NULL) == 7);
    r.save.keep = 4;
    for (step = 8; step < 11; ++step) { run_set(&r, step); CHECK(memopt_save_write(&r.save) == MEMOPT_OK); }
    memset(&n, 0, sizeof n);
    CHECK(h.files.list_dir_fn(h.files.user, path, save_name, &n) == MEMOPT_OK && n.count == 5 && strstr(n.text, " gen-7-step-7") && strstr(n.text, " gen-10-step-10"));
    save_remove_all(&h, path);
    n.count = 0;
    CHECK(h.files.list_dir_fn(h.files.user, path, save_name, &n) == MEMOPT_OK && n.count == 0);
    memopt_saved_close(NULL);
    CHECK(!memopt_saved_step(NULL) && !memopt_saved_value(NULL, "x") && !memopt_saved_content(NULL) && !memopt_saved_refused(NULL, &why));
    memset(&test_why, 0, sizeof test_why);
}
static void save_file_is_safetensors(void) { /* names, types, shapes of the file of a rank, and what a hole before the end says */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_tensors *t = NULL; int file;
    d->align = 4096;
    run_begin(&r, &h, "run");
    run_set(&r, 3);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    CHECK(memopt_tensors_open(&h, "run/gen-1-step-3/rank-0-of-1.safetensors", &t, NULL) == MEMOPT_OK);
    if (!t) return;
    CHECK(t->count == 4 && t->data_begin == 4096 && t->metadata_count == 5);
    CHECK(!strcmp(t->tensors[0].name, "state@0") && t->tensors[0].type == MEMOPT_TENSOR_U64 && t->tensors[0].rank == 1 && t->tensors[0].shape[0] == 2);
    CHECK(!strcmp(t->tensors[1].name, "w/h.0@0") && t->tensors[1].type == MEMOPT_TENSOR_F32 && t->tensors[1].rank == 2 && t->tensors[1].shape[1] == 50);
    CHECK(!strcmp(t->tensors[2].name, "lo/h.0@x@0") && !strcmp(t->tensors[3].name, "m/h.0@0") && t->tensors[3].type == MEMOPT_TENSOR_U8);
    CHECK(!strcmp(memopt_tensors_value(t, "w/h.0@0"), "60,50") && !strcmp(memopt_tensors_value(t, "m/h.0@0"), "700") && !strcmp(memopt_tensors_value(t, "memopt.save"), "1"));
    file = d->names[disk_find(d, "run/gen-1-step-3/rank-0-of-1.safetensors")].file;
    CHECK(d->files[file].size == 4096 + 16 + 4 * RUN_WIDE + 2 * RUN_HALF + RUN_CODES);
    CHECK(!memcmp(d->files[file].bytes + 4096, r.state, 16) && !memcmp(d->files[file].bytes + 4112, r.wide, sizeof r.wide));
    memopt_tensors_close(t);
    d->align = 65536; /* larger blocks than ours: through the cache */
    run_set(&r, 4);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && run_load(&h, "run", NULL, NULL) == 4);
    disk_free(d);
}

/* ---- what is refused ---- */
static memopt_status save_both(save_run *r) { /* the dry run refuses what the save does */
    size_t memory = 77; uint64_t bytes = 77; const memopt_status s = memopt_save_bytes(&r->save, &memory, &bytes);
    CHECK(s == MEMOPT_OK || (memory == 77 && bytes == 77));
    CHECK(memopt_save_write(&r->save) == s);
    return s;
}
static void save_refuses(void) {
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d), plain; const uint64_t huge[2] = { UINT64_MAX, 3 }; memopt_tensor_metadata text[2];
    memopt_saved *saved = NULL; memopt_saving *saving = NULL;
    static const char bad[2] = { (char)0xff, 0 };
#define AGAIN run_begin(&r, &h, "run"), run_set(&r, 1)
#define NO(change, want, text) REFUSES(r.save.error, (AGAIN, change), save_both(&r), want, text)
    ACCEPTS(r.save.error, AGAIN, save_both(&r));
    NO(r.save.path = NULL, MEMOPT_ERR_ARGUMENT, "save: path is NULL");
    NO(r.save.item_count = 0, MEMOPT_ERR_ARGUMENT, "save: item_count is 0");
    NO(r.save.item_count = SIZE_MAX, MEMOPT_ERR_ARGUMENT, sizeof(size_t) > 4 ? "save: item_count 18446744073709551615, limit 100000000" : "save: item_count 4294967295, limit 100000000");
    NO(r.save.metadata_count = 100000001, MEMOPT_ERR_ARGUMENT, "save: metadata_count 100000001, limit 100000000");
    NO(r.save.items = NULL, MEMOPT_ERR_ARGUMENT, "save: items is NULL");
    NO(r.save.metadata = NULL, MEMOPT_ERR_ARGUMENT, "save: metadata is NULL");
    NO((text[0].key = NULL, text[0].value = "", r.save.metadata = text, r.save.metadata_count = 1), MEMOPT_ERR_ARGUMENT, "save: key is NULL at metadata 0");
    NO((text[0].key = "", text[0].value = bad, r.save.metadata = text, r.save.metadata_count = 1), MEMOPT_ERR_ARGUMENT, "save: value is not UTF-8 at metadata 0");
    NO((text[0].key = "memopt.x", text[0].value = "", r.save.metadata = text, r.save.metadata_count = 1), MEMOPT_ERR_ARGUMENT, "save: key begins with \"memopt.\" at metadata 0");
    NO((text[0].key = text[1].key = "x", text[0].value = text[1].value = "", r.save.metadata = text, r.save.metadata_count = 2), MEMOPT_ERR_ARGUMENT, "tensors: key occurs twice at metadata 1");
    r.save.error = NULL;
    CHECK(memopt_save_begin(&r.save, &saving) == MEMOPT_ERR_ARGUMENT); /* at once, not when all is written */
    NO(r.save.path = "", MEMOPT_ERR_ARGUMENT, "save: path is empty");
    NO(r.save.keep = 1, MEMOPT_ERR_ARGUMENT, "save: keep 1, at least 2");
    NO(r.save.tile = 4095, MEMOPT_ERR_ARGUMENT, "save: tile 4095, must be a multiple of 4096");
    NO(r.save.tile = ((size_t)1 << 30) + 4096, MEMOPT_ERR_ARGUMENT, "save: tile 1073745920, at most 1073741824");
    NO(r.items[1].name = NULL, MEMOPT_ERR_ARGUMENT, "save: name is NULL at item 1");
    NO(r.items[1].prefix = bad, MEMOPT_ERR_ARGUMENT, "save: prefix is not UTF-8 at item 1");
    NO(r.items[1].type = MEMOPT_TENSOR_BOOL, MEMOPT_ERR_ARGUMENT, "save: type is no type of whole bytes from U8 on at item 1");
    NO(r.items[1].type = (memopt_tensor_type)test_number_of(99), MEMOPT_ERR_ARGUMENT, "save: type is no type of whole bytes from U8 on at item 1");
    NO((r.items[1].count = 0, r.items[1].held = 0), MEMOPT_ERR_ARGUMENT, "save: count 0 at item 1, at least 1");
    NO(r.items[1].first = 701, MEMOPT_ERR_ARGUMENT, "save: first 701 at item 1, at most count 700");
    NO(r.items[1].first = 1, MEMOPT_ERR_ARGUMENT, "save: held 700 at item 1, at most count - first 699");
    NO(r.items[1].data = NULL, MEMOPT_ERR_ARGUMENT, "save: data is NULL at item 1");
    NO(r.items[1].dimensions = 1, MEMOPT_ERR_ARGUMENT, "save: shape is NULL at item 1");
    NO(r.items[0].dimensions = 11, MEMOPT_ERR_ARGUMENT, "save: dimensions 11 at item 0, limit 10");
    NO(r.items[0].dimensions = 1, MEMOPT_ERR_ARGUMENT, "save: shape 60 at item 0, must have elements 3000");
    NO(r.items[0].shape = huge, MEMOPT_ERR_OVERFLOW, "save: count is too large for a file at item 0");
    NO(r.items[0].count = UINT64_MAX, MEMOPT_ERR_OVERFLOW, "save: count is too large for a file at item 0");
    NO(r.items[0].count = UINT64_MAX / 8 + 1, MEMOPT_ERR_OVERFLOW, "save: count is too large for a file at item 0");
    NO((r.items[1].prefix = "w", r.items[1].name = "/h.0"), MEMOPT_ERR_ARGUMENT, "save: name occurs twice at item 1");
    if (sizeof(size_t) > 4) { /* more checksums than a reader takes: 2^29 of 4 bytes are 2 GiB */
        AGAIN; r.save.tile = 4096; r.save.error = &test_why;
        r.items[1].count = r.items[1].held = (uint64_t)1 << (41 - (r.items[1].type == MEMOPT_TENSOR_F32 ? 2 : 0));
        CHECK(memopt_save_bytes(&r.save, NULL, NULL) == MEMOPT_ERR_OVERFLOW && test_says(&test_why, MEMOPT_ERR_OVERFLOW, "save: tile makes too many checksums for a manifest"));
    }
    AGAIN;
    r.items[1].held = 699; /* the dry run knows of no others */
    r.save.error = &test_why;
    CHECK(memopt_save_bytes(&r.save, NULL, NULL) == MEMOPT_OK && memopt_save_write(&r.save) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_says(&test_why, MEMOPT_ERR_ARGUMENT, "save: element 699 at item 1, is held by no rank; count 700"));
    AGAIN;
    r.items[1].held = 699; r.items[1].first = 1;
    CHECK(memopt_save_write(&r.save) == MEMOPT_ERR_ARGUMENT);
    plain = h;
    plain.files.reserve_fn = NULL; plain.files.align_fn = NULL; plain.files.make_dir_fn = NULL; plain.files.list_dir_fn = NULL; plain.files.sync_dir_fn = NULL;
    NO(r.save.host = &plain, MEMOPT_ERR_UNSUPPORTED, "save: host.files have no directories");
    plain.allocator.alloc_fn = NULL;
    NO(r.save.host = &plain, MEMOPT_ERR_ARGUMENT, "save: host.allocator is half a table");
    CHECK(memopt_save_write(NULL) == MEMOPT_ERR_ARGUMENT && memopt_save_bytes(NULL, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_saved_open(NULL, &saved) == MEMOPT_ERR_ARGUMENT && memopt_saved_read(NULL, &r.save) == MEMOPT_ERR_ARGUMENT);
    REFUSES(r.save.error, AGAIN, memopt_saved_open(&r.save, NULL), MEMOPT_ERR_ARGUMENT, "save: out is NULL");
    REFUSES(r.save.error, (AGAIN, r.save.path = NULL), memopt_saved_open(&r.save, &saved), MEMOPT_ERR_ARGUMENT, "save: path is NULL");
    disk_clear(d);
    (void)disk_add(d, "run", -1);
    (void)disk_add(d, "run/gen-3-step-4.tmp", -1); (void)disk_add(d, "run/gen-03-step-4", -1); (void)disk_add(d, "run/gen-3-step-", -1); (void)disk_add(d, "run/gen-5", -1);
    REFUSES(r.save.error, AGAIN, memopt_saved_open(&r.save, &saved), MEMOPT_ERR_STATE, "save: path has no generation");
    (void)disk_add(d, "run/gen-18446744073709551614-step-4", -1);
    r.save.error = &test_why;
    AGAIN; r.save.error = &test_why;
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && disk_find(d, "run/gen-4-step-1") >= 0 && run_load(&h, "run", NULL, NULL) == 1); /* no run comes to that number; a leftover's is not used again */
    (void)disk_add(d, "run/gen-1000000000000000-step-4", -1);
    CHECK(memopt_save_write(&r.save) == MEMOPT_ERR_OVERFLOW && test_says(&test_why, MEMOPT_ERR_OVERFLOW, "save: path has the last number that there is"));
    CHECK(disk_find(d, "run/gen-3-step-4.tmp") < 0 && disk_find(d, "run/gen-03-step-4") >= 0); /* leftovers are cleaned, other names are not ours */
    disk_free(d);
}
/* Reading: items that are not there, or are otherwise; nothing is written before all have been found. */
static void save_read_refuses(void) {
    static save_run r, want; save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_saved *saved = NULL; memopt_status s = MEMOPT_OK; const uint64_t flat[1] = { RUN_WIDE };
    run_begin(&r, &h, "run");
    run_set(&r, 9);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && memopt_saved_open(&r.save, &saved) == MEMOPT_OK);
    if (!saved) return;
#undef AGAIN
#define AGAIN run_begin(&r, &h, "run"), run_set(&r, 2)
#define NOT(change, want, text) REFUSES(r.save.error, (AGAIN, change), memopt_saved_read(saved, &r.save), want, text); CHECK(run_is(&r, 2))
    NOT(r.items[3].name = "other", MEMOPT_ERR_FORMAT, "save: elements in the save 0 at item 3, wanted 2");
    NOT(r.items[0].prefix = "v/", MEMOPT_ERR_FORMAT, "save: elements in the save 0 at item 0, wanted 3000");
    NOT(r.items[1].type = MEMOPT_TENSOR_I8, MEMOPT_ERR_FORMAT, "save: type is another one in the save at item 1");
    NOT((r.items[1].count = 701), MEMOPT_ERR_FORMAT, "save: shape is another one in the save at item 1");
    NOT((r.items[0].shape = flat, r.items[0].dimensions = 1), MEMOPT_ERR_FORMAT, "save: shape is another one in the save at item 0");
    NOT(r.items[2].name = NULL, MEMOPT_ERR_ARGUMENT, "save: name is NULL at item 2");
    NOT(r.save.item_count = 0, MEMOPT_ERR_ARGUMENT, "save: item_count is 0");
    AGAIN;
    r.save.error = &test_why;
    d->f.fail_on = d->f.calls + 1;
    CHECK(memopt_saved_read(saved, &r.save) == MEMOPT_ERR_MEMORY && test_says(&test_why, MEMOPT_ERR_MEMORY, "save: no memory for it: asked 64 B"));
    CHECK(run_is(&r, 2));
    d->f.fail_on = 0;
    AGAIN; /* a part of one item alone */
    run_set(&want, 9);
    r.items[0].first = 1000; r.items[0].held = 500; r.items[0].data = r.wide + 1000;
    r.save.item_count = 1;
    CHECK(memopt_saved_read(saved, &r.save) == MEMOPT_OK && !memcmp(r.wide + 1000, want.wide + 1000, 2000));
    run_set(&want, 2);
    CHECK(!memcmp(r.wide, want.wide, 4000) && !memcmp(r.wide + 1500, want.wide + 1500, 6000) && !memcmp(r.codes, want.codes, sizeof r.codes));
    r.items[0].held = 0; r.items[0].data = NULL;
    CHECK(memopt_saved_read(saved, &r.save) == MEMOPT_OK);
    /* the disk changes between */
    d->files[d->names[disk_find(d, "run/gen-1-step-9/rank-0-of-1.safetensors")].file].bytes[4096 + 8000] ^= 1;
    REFUSES(r.save.error, AGAIN, memopt_saved_read(saved, &r.save), MEMOPT_ERR_CORRUPT, "save: file has another checksum at tile 1");
    disk_do_remove(d, "run/gen-1-step-9/rank-0-of-1.safetensors");
    REFUSES(r.save.error, AGAIN, memopt_saved_read(saved, &r.save), MEMOPT_ERR_CORRUPT, "save: file is not there at file 0");
    memopt_saved_close(saved);
    CHECK(run_load(&h, "run", &s, NULL) == 0 && s == MEMOPT_ERR_FORMAT);
    CHECK(d->f.live_blocks == 0 && d->f.bad_frees == 0);
    disk_free(d);
}

/* A reason in words, whichever it is. */
static int save_is_told(const memopt_error *why, memopt_status status) {
    char line[256] = "";
    return memopt_error_text(why, line, sizeof line, NULL) == MEMOPT_OK && why->status == status && why->reason;
}
/* ---- every door of the host fails, at every call ---- */
/* form 0: a save; 1: begun and waited for, its tiles go one after the other through a queue; 2: with memory for a copy */
static memopt_status save_form(save_run *r, int form) {
    memopt_saving *saving = NULL; memopt_status s; const uint64_t step = r->save.step;
    if (!form) return memopt_save_write(&r->save);
    r->save.beside = form == 2;
    s = memopt_save_begin(&r->save, &saving);
    CHECK(!s == !!saving);
    if (s) return s;
    run_set(r, 99); /* the training goes on */
    s = memopt_save_wait(saving);
    run_set(r, step);
    return s;
}
static void save_fails(void) {
    size_t n, from; static save_run r; memopt_status s;
    for (from = 0; from < 6; ++from)
        for (n = 1; n < 1000; ++n) {
            const int form = (int)from / 2;
            save_disk *d = disk_new(); memopt_host h = form ? disk_host_queue(d) : disk_host(d); uint64_t got; size_t calls; memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
            d->align = n % 2 ? 4096 : 0;
            run_begin(&r, &h, "run");
            if (form == 2) run_model(&r, 12000);
            r.save.error = &why;
            run_set(&r, 1); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
            run_set(&r, 2); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
            run_set(&r, 3);
            d->f.calls = 0;
            if (from % 2) d->f.fail_from = n; else d->f.fail_on = n;
            s = save_form(&r, form);
            calls = d->f.calls;
            d->f.fail_on = d->f.fail_from = 0;
            CHECK_AT(d->f.live_blocks == 0 && d->f.bad_frees == 0 && !d->begun && !d->depth && !d->open, n);
            CHECK_AT(s == MEMOPT_OK || save_is_told(&why, s), n);
            got = run_load(&h, "run", NULL, NULL);
            CHECK_AT(s == MEMOPT_OK ? got == 3 : got == 2 || got == 3, n); /* 3: all was done but the last sync */
            CHECK_AT(run_is(&r, 3), n);
            run_set(&r, 4); /* and again */
            CHECK_AT(save_form(&r, form) == MEMOPT_OK && run_load(&h, "run", NULL, NULL) == 4, n);
            disk_free(d);
            if (calls < n) break;
        }
    CHECK(n > 40 && n < 1000);
}
static void save_close_fails(void) { /* what was written may be lost then */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d);
    run_begin(&r, &h, "run");
    run_set(&r, 1);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    REFUSES(r.save.error, d->bad_close = 1, (d->bad_close = 1, memopt_save_write(&r.save)), MEMOPT_ERR_IO, "save: file could not be closed");
    REFUSES(r.save.error, d->bad_close = 2, (d->bad_close = 2, memopt_save_write(&r.save)), MEMOPT_ERR_IO, "save: manifest could not be closed");
    CHECK(d->name_count == 5 && run_load(&h, "run", NULL, NULL) == 1); /* the run, its lock, its generation, two files */
    disk_free(d);
}
static void load_fails(void) { /* the newest, or none, and then the newest with the next try: never an older one because a call failed */
    size_t n; static save_run r; memopt_status s = MEMOPT_OK; save_disk *d = disk_new(); memopt_host h = disk_host(d); size_t unread = 0; memopt_error why; int k;
    run_begin(&r, &h, "run");
    run_set(&r, 1); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    run_set(&r, 2); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    for (n = 1; n < 1000; ++n) {
        uint64_t got; size_t refused = 0;
        d->f.calls = 0; d->f.fail_on = n;
        why = memopt_i_error(MEMOPT_OK, NULL);
        got = run_load_told(&h, "run", &s, &refused, &why);
        CHECK_AT((!s && !refused) || why.status, n);
        (void)save_is_told(&why, s);
        CHECK_AT(d->f.live_blocks == 0 && d->f.bad_frees == 0, n);
        CHECK_AT(s ? got == 0 && (s == MEMOPT_ERR_MEMORY || s == MEMOPT_ERR_IO) : got == 2 && !refused, n);
        unread += s == MEMOPT_ERR_IO;
        if (d->f.calls < n) break;
        CHECK_AT(n > 1 || s == MEMOPT_ERR_MEMORY, n);
        d->f.fail_on = 0;
        CHECK_AT(run_load(&h, "run", NULL, NULL) == 2, n);
    }
    CHECK(n > 20 && n < 1000 && unread > 5);
    for (n = 1; n < 200; ++n) {
        d->f.calls = 0; d->f.fail_on = 0; d->f.fail_from = n;
        (void)run_load(&h, "run", &s, NULL);
        CHECK_AT(d->f.live_blocks == 0 && d->f.bad_frees == 0, n);
        if (!s) break;
    }
    d->f.fail_from = 0;
    for (k = 0; k < 2; ++k) { /* a file that is missing is damage */
        size_t refused = 0;
        disk_do_remove(d, k ? "run/gen-2-step-2/manifest" : "run/gen-2-step-2/rank-0-of-1.safetensors");
        why = memopt_i_error(MEMOPT_OK, NULL);
        CHECK_AT(run_load_told(&h, "run", &s, &refused, &why) == 1 && refused == 1 && test_says(&why, MEMOPT_ERR_FORMAT, k ? "save: manifest is not there" : "save: file is not there at file 0"), (size_t)k);
    }
    disk_free(d);
}

/* ---- the power fails at any moment ---- */
/* A disk as it may be after the first `ops` of a log: names as after `names` of the operations on names, which a file
   system writes in their order, at least those before the last sync of a directory; of the data of each file all that
   was synced, and of the rest any blocks, as `seed` says: 0 none, 1 all. */
static void crash_write(save_disk *to, const disk_op *op, size_t begin, size_t count) {
    if (op->offset + begin + count > to->files[op->file].size) disk_grow(to, op->file, (size_t)op->offset + begin + count);
    memcpy(to->files[op->file].bytes + op->offset + begin, op->bytes + begin, count);
}
static void crash_state(save_disk *to, const save_disk *from, size_t ops, size_t names, uint64_t seed) {
    size_t i, k; uint64_t random = seed;
    disk_clear(to);
    to->file_count = DISK_FILES;
    for (i = 0; i < ops; ++i) {
        const disk_op *op = &from->ops[i]; int synced = 0;
        if (op->kind == DISK_CREATE || op->kind == DISK_MKDIR || op->kind == DISK_RENAME || op->kind == DISK_REMOVE) {
            if (!names) continue;
            --names;
            if (op->kind == DISK_CREATE) (void)disk_add(to, op->a, op->file);
            if (op->kind == DISK_MKDIR && disk_find(to, op->a) < 0) (void)disk_add(to, op->a, -1);
            if (op->kind == DISK_RENAME) disk_do_rename(to, op->a, op->b);
            if (op->kind == DISK_REMOVE) disk_do_remove(to, op->a);
        }
        if (op->kind != DISK_WRITE && op->kind != DISK_RESIZE) continue;
        for (k = i + 1; k < ops && !synced; ++k) synced = from->ops[k].kind == DISK_SYNC && from->ops[k].file == op->file;
        if (op->kind == DISK_RESIZE) { if (synced || (seed && (seed == 1 || test_random(&random) % 2))) disk_grow(to, op->file, (size_t)op->offset); continue; }
        for (k = 0; k < op->count; k += DISK_BLOCK)
            if (synced || (seed && (seed == 1 || test_random(&random) % 2))) crash_write(to, op, k, memopt_i_min(op->count - k, DISK_BLOCK));
    }
}
static size_t crash_names(const save_disk *d, size_t ops, size_t *least) { /* operations on names; those that are sure */
    size_t i, all = 0;
    *least = 0;
    for (i = 0; i < ops; ++i) {
        const disk_kind k = d->ops[i].kind;
        if (k == DISK_CREATE || k == DISK_MKDIR || k == DISK_RENAME || k == DISK_REMOVE) ++all;
        if (k == DISK_SYNC_DIR) *least = all;
    }
    return all;
}
static size_t crashes_of(int form) { /* states that were looked at */
    static save_run r; save_disk *d = disk_new(), *after = disk_new(); memopt_host h = form ? disk_host_queue(d) : disk_host(d), back = disk_host(after);
    size_t ops, names, least, all, done = 0, states = 0; uint64_t step, seed;
    d->logs = 1;
    run_begin(&r, &h, "run");
    if (form) run_model(&r, 12000);
    for (step = 1; step <= 4; ++step) {
        run_set(&r, step);
        CHECK(save_form(&r, form) == MEMOPT_OK);
        d->marks[step] = d->op_count;
    }
    for (ops = 0; ops <= d->op_count; ++ops) {
        while (done < 4 && ops >= d->marks[done + 1]) ++done; /* saves that have said that they are there */
        all = crash_names(d, ops, &least);
        for (names = least; names <= all; ++names)
            for (seed = 0; seed < (form ? 12u : 40u); ++seed) {
                uint64_t got; memopt_status s = MEMOPT_OK;
                if (test_is_passed_over()) continue;
                crash_state(after, d, ops, names, seed < 2 ? seed : seed + ops * 1000 + names);
                got = run_load(&back, "run", &s, NULL);
                CHECK_AT(done ? got >= done && got <= done + 1 : got <= 1, ops * 1000 + names);
                CHECK_AT(got || s == MEMOPT_ERR_STATE || s == MEMOPT_ERR_FORMAT, ops * 1000 + names);
                ++states;
                if (seed == 5 && got) { /* the run goes on from there */
                    run_set(&r, 77);
                    r.save.host = &back;
                    after->file_count = d->file_count;
                    CHECK_AT(save_form(&r, form) == MEMOPT_OK && run_load(&back, "run", NULL, NULL) == 77, ops);
                    r.save.host = &h;
                    after->file_count = DISK_FILES;
                }
            }
    }
    disk_free(after);
    disk_free(d);
    return states;
}
static void save_crashes(void) {
    const size_t alone = crashes_of(0), beside = crashes_of(2);
    CHECK(alone >= 10000 / TEST_STRIDE && beside >= 10000 / TEST_STRIDE);
    if (alone < 10000 || beside < 10000) printf("%zu and %zu states\n", alone, beside);
}

/* ---- beside the training ---- */
static void save_beside(void) { /* what was copied is saved, whatever is done with it afterwards; memory as it was told */
    static save_run r; size_t tile, k, memory = 0; uint64_t step, bytes = 0; memopt_saving *saving = NULL; int form;
    for (form = 1; form <= 2; ++form)
        for (tile = 4096; tile <= 65536; tile *= 4) {
            save_disk *d = disk_new(); memopt_host h = disk_host_queue(d); memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
            d->align = 4096;
            run_begin(&r, &h, "run");
            if (tile > 4096) run_model(&r, tile > 16384 ? 0 : 12000);
            r.save.tile = tile; r.save.error = &why; r.save.beside = form == 2;
            for (step = 1; step <= 3; ++step) {
                size_t disk = 0;
                run_set(&r, step);
                CHECK(memopt_save_bytes(&r.save, &memory, &bytes) == MEMOPT_OK && d->f.live_blocks == 0);
                d->f.peak_bytes = 0; d->most = 0;
                saving = NULL;
                CHECK(memopt_save_begin(&r.save, &saving) == MEMOPT_OK && saving);
                /* 13 KB: 12,782 bytes of items, and of a model 12,000 and 766 in two files, or all in one */
                CHECK_AT(form == 1 ? d->most <= 4 : d->most == (tile == 4096 ? 4 : tile == 16384 ? 3 : 2), tile);
                CHECK_AT(d->begun > 0 && d->begun == d->most, tile); /* nothing was waited for */
                run_set(&r, 99);
                if (step == 3) CHECK_AT(run_load(&h, "run", NULL, NULL) == 2, tile); /* which takes memory, too */
                CHECK_AT(memopt_save_wait(saving) == MEMOPT_OK && d->f.live_blocks == 0 && d->f.bad_frees == 0, tile);
                CHECK_AT(step == 3 || d->f.peak_bytes == memory, tile);
                if (step < 3 && d->f.peak_bytes != memory) printf("peak %zu, told %zu\n", d->f.peak_bytes, memory);
                CHECK_AT(run_load(&h, "run", NULL, NULL) == step, tile);
                for (k = 0; k < d->name_count; ++k)
                    if (d->names[k].file >= 0 && strstr(d->names[k].path, step == 1 ? "gen-1-" : step == 2 ? "gen-2-" : "gen-3-"))
                        disk += (d->files[d->names[k].file].size + 4095) / 4096 * 4096; /* ranks' files, the model's, its index, the manifest */
                CHECK_AT(disk == bytes, tile);
            }
            disk_free(d);
        }
    CHECK(memopt_save_wait(NULL) == MEMOPT_OK && memopt_save_begin(NULL, &saving) == MEMOPT_ERR_ARGUMENT);
}
static void save_beside_ready(void) { /* asked while the training goes on, which waits for nothing */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host_queue(d); memopt_saving *saving = NULL; int form;
    CHECK(memopt_save_ready(NULL) == 1);
    for (form = 0; form < 4; ++form) { /* asked; its transfers end with an error; a table that cannot tell; no queue */
        if (form == 2) h.files.ready_fn = NULL;
        if (form == 3) { h = disk_host(d); h.files.ready_fn = disk_ready; }
        run_begin(&r, &h, "run");
        run_set(&r, (uint64_t)form + 1);
        r.save.beside = 1; r.save.tile = 4096;
        CHECK(memopt_save_begin(&r.save, &saving) == MEMOPT_OK && memopt_save_ready(saving) == (form >= 2));
        CHECK(memopt_save_ready(saving) == (form >= 2) && (form == 3 || d->begun == 4)); /* asking moved nothing */
        if (form == 0 && d->begun == 4) { /* the last one alone */
            d->slots[0].state = d->slots[1].state = d->slots[2].state = 2;
            CHECK(!memopt_save_ready(saving));
            d->slots[0].state = d->slots[1].state = d->slots[2].state = 1;
        }
        if (form == 1) d->f.fail_on = d->f.calls + 2;
        disk_queue_do(d);
        d->f.fail_on = 0;
        CHECK(memopt_save_ready(saving) == 1 && run_load(&h, "run", NULL, NULL) == (form == 3 ? 3 : form == 2 ? 1 : (uint64_t)form)); /* ready is not saved */
        CHECK(memopt_save_wait(saving) == (form == 1 ? MEMOPT_ERR_IO : MEMOPT_OK));
        CHECK(run_load(&h, "run", NULL, NULL) == (form == 1 ? 1 : (uint64_t)form + 1));
    }
    CHECK(d->f.live_blocks == 0);
    disk_free(d);
}
static void save_beside_refuses(void) { /* a disk that fails later is told by the wait, and nothing is left */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host_queue(d); memopt_saving *saving = NULL; memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
    run_begin(&r, &h, "run");
    run_set(&r, 1);
    r.save.error = &why; r.save.beside = 1;
    CHECK(memopt_save_begin(&r.save, NULL) == MEMOPT_ERR_ARGUMENT && test_says(&why, MEMOPT_ERR_ARGUMENT, "save: out is NULL") && d->name_count == 0);
    r.save.beside = 2;
    CHECK(memopt_save_begin(&r.save, &saving) == MEMOPT_ERR_ARGUMENT && test_says(&why, MEMOPT_ERR_ARGUMENT, "save: beside is neither 0 nor 1") && !saving);
    r.save.beside = 1;
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    run_set(&r, 2);
    CHECK(memopt_save_begin(&r.save, &saving) == MEMOPT_OK);
    d->f.fail_on = d->f.calls + 2; /* of four tiles under way */
    CHECK(memopt_save_wait(saving) == MEMOPT_ERR_IO && test_says(&why, MEMOPT_ERR_IO, "save: file could not be written"));
    d->f.fail_on = 0;
    CHECK(d->f.live_blocks == 0 && d->name_count == 5 && run_load(&h, "run", NULL, NULL) == 1); /* the run, its lock, its generation, two files */
    disk_free(d);
}
static void save_beside_large(void) { /* more tiles than a queue has places: several go together */
    enum { BYTES = 5000000 };
    save_disk *d = disk_new(); memopt_host h = disk_host_queue(d); memopt_save_desc s; memopt_save_item item; memopt_saving *saving = NULL; memopt_saved *saved = NULL; size_t i, memory = 0;
    unsigned char *bytes = (unsigned char *)malloc(BYTES), *back = (unsigned char *)calloc(1, BYTES);
    if (!bytes || !back) return;
    for (i = 0; i < BYTES; ++i) bytes[i] = (unsigned char)(i * i >> 7);
    memset(&s, 0, sizeof s);
    item = run_item(NULL, "x", MEMOPT_TENSOR_U8, BYTES, bytes);
    s.path = "run"; s.items = &item; s.item_count = 1; s.tile = 4096; s.host = &h; s.beside = 1;
    CHECK(memopt_save_bytes(&s, &memory, NULL) == MEMOPT_OK);
    d->f.peak_bytes = 0;
    CHECK(memopt_save_begin(&s, &saving) == MEMOPT_OK && d->most == (BYTES + 8191) / 8192 && d->begun == d->most);
    CHECK(memopt_save_wait(saving) == MEMOPT_OK && d->f.peak_bytes == memory);
    item.data = back;
    CHECK(memopt_saved_open(&s, &saved) == MEMOPT_OK && memopt_saved_read(saved, &s) == MEMOPT_OK && !memcmp(bytes, back, BYTES));
    memopt_saved_close(saved);
    free(bytes); free(back);
    disk_free(d);
}

/* ---- the model for others ---- */
static int disk_file(const save_disk *d, const char *path) { const int i = disk_find(d, path); return i < 0 ? -1 : d->names[i].file; }
static void save_model(void) { /* names, types, bytes; an index as Python's json.dumps(indent=2, sort_keys=True) writes it */
    static const char index[] = "{\n  \"metadata\": {\n    \"total_size\": 12766\n  },\n  \"weight_map\": {\n    \"b\\\"half\": \"model-00002-of-00002.safetensors\",\n"
        "    \"codes\": \"model-00002-of-00002.safetensors\",\n    \"h.0.weight\": \"model-00001-of-00002.safetensors\"\n  }\n}\n";
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_tensors *t = NULL; int file; uint64_t step;
    d->align = 4096;
    run_begin(&r, &h, "run");
    run_model(&r, 0);
    run_set(&r, 1);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && memopt_tensors_open(&h, "run/gen-1-step-1/model.safetensors", &t, NULL) == MEMOPT_OK);
    if (!t) return;
    CHECK(t->count == 3 && t->metadata_count == 1 && !strcmp(t->metadata[0].key, "format") && !strcmp(t->metadata[0].value, "pt") && t->data_begin == 4096);
    CHECK(!strcmp(t->tensors[0].name, "h.0.weight") && t->tensors[0].rank == 2 && t->tensors[0].shape[1] == 50 && t->tensors[0].type == MEMOPT_TENSOR_F32);
    CHECK(!strcmp(t->tensors[1].name, "b\"half") && t->tensors[1].type == MEMOPT_TENSOR_BF16 && !strcmp(t->tensors[2].name, "codes") && t->tensors[2].rank == 1 && t->tensors[2].shape[0] == RUN_CODES);
    memopt_tensors_close(t);
    file = disk_file(d, "run/gen-1-step-1/model.safetensors");
    CHECK(d->files[file].size == 4096 + sizeof r.wide + sizeof r.half + sizeof r.codes && !memcmp(d->files[file].bytes + 4096, r.wide, sizeof r.wide));
    CHECK(!memcmp(d->files[file].bytes + 4096 + sizeof r.wide, r.half, sizeof r.half) && !memcmp(d->files[file].bytes + 4096 + sizeof r.wide + sizeof r.half, r.codes, sizeof r.codes));
    CHECK(disk_find(d, "run/gen-1-step-1/model.safetensors.index.json") < 0);
    r.save.model_bytes = 12000; /* the first fills it */
    run_set(&r, 2);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    file = disk_file(d, "run/gen-2-step-2/model.safetensors.index.json");
    CHECK(file >= 0 && d->files[file].size == sizeof index - 1 && !memcmp(d->files[file].bytes, index, sizeof index - 1));
    file = disk_file(d, "run/gen-2-step-2/model-00001-of-00002.safetensors");
    CHECK(file >= 0 && d->files[file].size == 4096 + sizeof r.wide && !memcmp(d->files[file].bytes + 4096, r.wide, sizeof r.wide));
    file = disk_file(d, "run/gen-2-step-2/model-00002-of-00002.safetensors");
    CHECK(file >= 0 && d->files[file].size == 4096 + sizeof r.half + sizeof r.codes && !memcmp(d->files[file].bytes + 4096, r.half, sizeof r.half));
    r.save.model_bytes = 1; /* a file for each */
    run_set(&r, 3);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && disk_file(d, "run/gen-3-step-3/model-00003-of-00003.safetensors") >= 0);
    d->files[file].bytes[4200] ^= 1; /* no load looks at it */
    disk_do_remove(d, "run/gen-3-step-3/model-00003-of-00003.safetensors");
    CHECK(run_load(&h, "run", NULL, NULL) == 3);
    for (step = 4; step < 6; ++step) { run_set(&r, step); CHECK(memopt_save_write(&r.save) == MEMOPT_OK); }
    CHECK(d->name_count == 16 && disk_find(d, "run/gen-2-step-2") < 0 && disk_find(d, "run/gen-3-step-3") < 0); /* the run, its lock, two generations: of each three files of the model, index, rank's, manifest */
    CHECK(d->f.live_blocks == 0);
    disk_free(d);
}
static void save_model_refuses(void) {
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d);
#undef AGAIN
#define AGAIN run_begin(&r, &h, "run"), run_model(&r, 0), run_set(&r, 1)
    ACCEPTS(r.save.error, AGAIN, save_both(&r));
    NO(r.save.model = NULL, MEMOPT_ERR_ARGUMENT, "save: model is NULL");
    NO(r.save.model_count = 100000001, MEMOPT_ERR_ARGUMENT, "save: model_count 100000001, limit 100000000");
    NO(r.model[1].name = NULL, MEMOPT_ERR_ARGUMENT, "save: name is NULL at tensor of the model 1");
    NO((r.model[1].prefix = "h.", r.model[1].name = "0.weight"), MEMOPT_ERR_ARGUMENT, "save: name occurs twice at tensor of the model 1");
    NO((r.model[2].prefix = NULL, r.model[2].name = "__metadata__"), MEMOPT_ERR_ARGUMENT, "tensors: name is the one of the metadata at tensor 2");
    AGAIN;
    r.model[1].held = 699;
    r.save.error = &test_why;
    CHECK(memopt_save_write(&r.save) == MEMOPT_ERR_ARGUMENT && test_says(&test_why, MEMOPT_ERR_ARGUMENT, "save: element 699 at tensor of the model 1, is held by no rank; count 700"));
    CHECK(d->f.live_blocks == 0);
    disk_free(d);
}

/* ---- what lies in a run's directory ---- */
static void save_syncs_names(void) { /* the new directory's own name, wherever it is */
    static const struct { const char *path, *parent; } places[] = { { "run", "." }, { "run/", "." }, { "a/b/run", "a/b/" }, { "a/b/run//", "a/b/" }, { "/run", "/" }, { "a/b\\run", "a/" } }; /* the last is one name, where the system is not Windows */
    static save_run r; size_t i, k;
    for (i = 0; i < sizeof places / sizeof *places; ++i) {
        save_disk *d = disk_new(); memopt_host h = disk_host(d); size_t made = SIZE_MAX, synced = SIZE_MAX, renamed = SIZE_MAX;
        d->logs = d->any_name = 1;
#if defined(_WIN32)
        if (i + 1 == sizeof places / sizeof *places) { disk_free(d); break; }
#endif
        run_begin(&r, &h, places[i].path);
        run_set(&r, 1);
        CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK, i);
        for (k = d->op_count; k--;) {
            if (d->ops[k].kind == DISK_MKDIR && !strcmp(d->ops[k].a, places[i].path)) made = k;
            if (d->ops[k].kind == DISK_SYNC_DIR && !strcmp(d->ops[k].a, places[i].parent)) synced = k;
            if (d->ops[k].kind == DISK_RENAME) renamed = k;
        }
        CHECK_AT(made < synced && synced < renamed && renamed < d->op_count, i);
        disk_free(d);
    }
    { save_disk *d = disk_new(); memopt_host h = disk_host(d);
      run_begin(&r, &h, "run");
      run_set(&r, 1);
      REFUSES(r.save.error, strcpy(d->stuck, "."), memopt_save_write(&r.save), MEMOPT_ERR_IO, "save: path is in a directory that could not be synced");
      d->stuck[0] = 0;
      CHECK(run_load(&h, "run", NULL, NULL) == 0 && memopt_save_write(&r.save) == MEMOPT_OK && run_load(&h, "run", NULL, NULL) == 1);
      disk_free(d); }
}
static void save_spares(void) { /* what is not ours, whatever its place */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); uint64_t step; memopt_status s; size_t refused = 0;
    run_begin(&r, &h, "run");
    for (step = 1; step <= 2; ++step) { run_set(&r, step); CHECK(memopt_save_write(&r.save) == MEMOPT_OK); }
    (void)disk_add(d, "mine", -1); (void)disk_add(d, "mine/manifest", 0); (void)disk_add(d, "mine/thesis", 0);
    (void)disk_add(d, "run/gen-9-step-9.tmp", -1); strcpy(d->link, "run/gen-9-step-9.tmp"); strcpy(d->target, "mine");
    (void)disk_add(d, "run/gen-1-step-1/hf", -1); (void)disk_add(d, "run/gen-1-step-1/hf/config", 0);
    (void)disk_add(d, "run/gen-1-step-1/rank-0-of-1.safetensors.bak", 0); (void)disk_add(d, "run/gen-1-step-1/rank-x-of-1.safetensors", 0);
    (void)disk_add(d, "run/gen-8-step-8.old", -1); (void)disk_add(d, "run/gen-8-step-8.old/x", 0); strcpy(d->stuck, "run/gen-8-step-8.old/x");
    for (step = 3; step <= 5; ++step) { run_set(&r, step); CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK && run_load(&h, "run", &s, &refused) == step && !refused, step); }
    CHECK(disk_find(d, "mine/manifest") >= 0 && disk_find(d, "mine/thesis") >= 0 && disk_find(d, "run/gen-9-step-9.tmp") < 0 && disk_find(d, "run/gen-9-step-9.old") < 0);
    CHECK(disk_find(d, "run/gen-1-step-1.old/hf/config") >= 0 && disk_find(d, "run/gen-1-step-1.old/manifest") < 0 && disk_find(d, "run/gen-1-step-1.old/rank-0-of-1.safetensors") < 0);
    CHECK(disk_find(d, "run/gen-1-step-1.old/rank-0-of-1.safetensors.bak") >= 0 && disk_find(d, "run/gen-1-step-1.old/rank-x-of-1.safetensors") >= 0);
    CHECK(disk_find(d, "run/gen-8-step-8.old/x") >= 0 && disk_find(d, "run/gen-2-step-2") < 0 && disk_find(d, "run/gen-11-step-4") >= 0);
    disk_do_rename(d, "run/gen-11-step-4", "archive"); /* an old generation that was moved away, a link in its place */
    (void)disk_add(d, "run/gen-11-step-4", -1); strcpy(d->link, "run/gen-11-step-4"); strcpy(d->target, "archive");
    for (step = 6; step <= 7; ++step) { run_set(&r, step); CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK, step); }
    CHECK(disk_find(d, "archive/manifest") >= 0 && disk_find(d, "archive/rank-0-of-1.safetensors") >= 0 && disk_find(d, "run/gen-11-step-4") < 0 && disk_find(d, "run/gen-11-step-4.old") < 0);
    strcpy(d->stuck, "run/gen-13-step-6.old/manifest"); /* a leftover for ever: numbers go on, others are still retired */
    (void)disk_add(d, "run/gen-14-step-7.old", -1);
    (void)disk_add(d, "run/gen-14-step-7.old/x", 0);
    for (step = 8; step <= 12; ++step) { run_set(&r, step); CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK && run_load(&h, "run", NULL, NULL) == step, step); }
    CHECK(disk_find(d, "run/gen-12-step-5") < 0 && disk_find(d, "run/gen-13-step-6.old/manifest") >= 0 && disk_find(d, "run/gen-14-step-7") >= 0 && disk_find(d, "run/gen-15-step-8") < 0);
    disk_free(d);
}
static void save_two_runs(void) { /* of two that save into one directory at once, none is told that it has what the other has removed */
    static save_run r, q; save_disk *d = disk_new(); memopt_host h = disk_host(d); uint64_t step; memopt_saving *a, *b; size_t refused = 0; memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
    d->no_locks = 1; /* then this is what tells them */
    run_begin(&r, &h, "run"); run_begin(&q, &h, "run");
    r.save.error = &why;
    for (step = 1; step <= 4; ++step) {
        run_set(&r, step); run_set(&q, step);
        r.wide[7] += 1;
        CHECK_AT(memopt_save_begin(&r.save, &a) == MEMOPT_OK && memopt_save_begin(&q.save, &b) == MEMOPT_OK, step);
        CHECK_AT(memopt_save_wait(a) == MEMOPT_ERR_IO && test_says(&why, MEMOPT_ERR_IO, "save: generation was removed while it was written: does another run save here?"), step);
        CHECK_AT(memopt_save_wait(b) == MEMOPT_OK && run_load(&h, "run", NULL, &refused) == step && !refused, step);
    }
    disk_free(d);
}
static void save_same_number(void) { /* two runs find the same number free: one has it, the other is told and removes nothing */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
    run_begin(&r, &h, "run");
    r.save.error = &why;
    run_set(&r, 1);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    run_set(&r, 2);
    strcpy(d->rival, "run/gen-2-step-2.tmp");
    CHECK(memopt_save_write(&r.save) == MEMOPT_ERR_STATE && test_says(&why, MEMOPT_ERR_STATE, "save: generation was begun by another run that saves here"));
    CHECK(disk_find(d, "run/gen-2-step-2.tmp/rank-0-of-1.safetensors") >= 0 && run_load(&h, "run", NULL, NULL) == 1);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && disk_find(d, "run/gen-3-step-2") >= 0 && run_load(&h, "run", NULL, NULL) == 2);
    disk_free(d);
}
static void save_no_room(void) { /* of a full disk, and of one that fails */
    static save_run r; int broken;
    for (broken = 0; broken < 2; ++broken) {
        save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_error why = memopt_i_error(MEMOPT_OK, NULL); int told = 0; size_t n;
        d->broken = broken;
        for (n = 1; n < 40; ++n) {
            char line[256] = ""; memopt_status s;
            run_begin(&r, &h, "run");
            r.save.error = &why;
            run_set(&r, 1);
            d->f.fail_on = d->f.calls + n;
            s = memopt_save_write(&r.save);
            if (s) CHECK_AT(memopt_error_text(&why, line, sizeof line, NULL) == MEMOPT_OK && why.status == s, n);
            told += s == MEMOPT_ERR_MEMORY && !strcmp(line, "save: disk has no room");
            if (broken) told += s == MEMOPT_ERR_IO && !strcmp(line, "save: file could not be given its room");
        }
        CHECK_AT(told == 1 && run_load(&h, "run", NULL, NULL) == 1, broken);
        disk_free(d);
    }
}
static void save_looks_back(void) { /* somebody removes or changes files of a save that is not done yet */
    static const struct { const char *name; int grows; } files[] = { { "rank-0-of-1.safetensors", -1 }, { "rank-0-of-1.safetensors", 0 }, { "rank-0-of-1.safetensors", 4096 }, { "manifest", 0 } };
    static save_run r; size_t i; memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
    for (i = 0; i < sizeof files / sizeof *files; ++i) {
        save_disk *d = disk_new(); memopt_host h = disk_host(d); char path[DISK_PATH]; memopt_saving *saving = NULL; int other;
        if (i == 3) h.files.lock_fn = NULL; /* which would find that the manifest is there already */
        run_begin(&r, &h, "run");
        r.save.error = &why;
        run_set(&r, 1);
        CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK, i);
        run_set(&r, 2);
        CHECK_AT(memopt_save_begin(&r.save, &saving) == MEMOPT_OK, i);
        snprintf(path, sizeof path, "run/gen-2-step-2.tmp/%s", files[i].name);
        if (i < 3) disk_do_remove(d, path);
        if (files[i].grows >= 0) { /* a file of the same name, and of another run: of the same size, larger, empty */
            other = d->file_count++;
            (void)disk_add(d, path, other);
            disk_grow(d, other, i < 3 ? d->files[d->names[disk_find(d, "run/gen-1-step-1/rank-0-of-1.safetensors")].file].size + (size_t)files[i].grows : 9999);
            if (i == 2) memcpy(d->files[other].bytes, d->files[d->names[disk_find(d, "run/gen-1-step-1/rank-0-of-1.safetensors")].file].bytes, 4096); /* its header is the same */
        }
        CHECK_AT(memopt_save_wait(saving) == MEMOPT_ERR_IO && test_says(&why, MEMOPT_ERR_IO, "save: generation is not what was written: does another run save here?"), i);
        CHECK_AT(run_load(&h, "run", NULL, NULL) == 1 && disk_find(d, "run/gen-2-step-2.tmp") < 0, i);
        disk_free(d);
    }
}
static void save_looks_back_fails(void) { /* a disk that cannot be read is no other run */
    static save_run r; size_t n; int told[4] = { 0, 0, 0, 0 }, k; static const char *const texts[4] = { "save: manifest could not be opened to look at it", "save: manifest could not be read when it was written", "save: file could not be opened to look at it", "save: file could not be read when it was written" };
    for (n = 1; n < 80; ++n) {
        save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_error why = memopt_i_error(MEMOPT_OK, NULL); char line[256] = "";
        run_begin(&r, &h, "run");
        r.save.error = &why;
        run_set(&r, 1);
        d->f.fail_on = n;
        if (memopt_save_write(&r.save)) {
            CHECK_AT(memopt_error_text(&why, line, sizeof line, NULL) == MEMOPT_OK && !strstr(line, "another run") && !strstr(line, "was removed"), n);
            for (k = 0; k < 4; ++k) told[k] += why.status == MEMOPT_ERR_IO && !strcmp(line, texts[k]);
        }
        disk_free(d);
    }
    CHECK(told[0] == 1 && told[1] >= 2 && told[2] == 1 && told[3] >= 2); /* the size and the bytes */
}
/* Which generations would a resume take, if the newer ones were not there? */
static size_t run_resumable(save_disk *d, const memopt_host *h, const char *path) {
    size_t count = 0, k; static save_run r;
    save_disk *before = (save_disk *)malloc(sizeof *before);
    if (!before) return 0;
    memcpy(before, d, sizeof *d);
    for (;;) {
        memopt_saved *saved = NULL; memopt_i_generation g, of;
        run_begin(&r, h, path);
        if (memopt_saved_open(&r.save, &saved)) break;
        g = saved->generation;
        if (!memopt_saved_read(saved, &r.save) && run_is(&r, g.step)) ++count;
        memopt_saved_close(saved);
        for (k = d->name_count; k--;) {
            const char *name = d->names[k].path;
            if (strncmp(name, path, strlen(path)) || !memopt_i_save_generation(name + strlen(path) + 1, &of) || of.number < g.number) continue;
            d->names[k] = d->names[--d->name_count];
        }
    }
    memcpy(d->names, before->names, sizeof d->names);
    d->name_count = before->name_count;
    free(before);
    return count;
}
static void damage_data(save_disk *d, const char *path) { /* a byte of the items */
    const int i = disk_find(d, path);
    CHECK(i >= 0);
    if (i >= 0) d->files[d->names[i].file].bytes[9000] ^= 1;
}
/* What a resume refuses does not push out what it took: in the same process, in a later one, with a lock and without; any
   of those that stay may be damaged, not only the newest. */
static void save_keeps_what_resumes(void) {
    static save_run r; int form; uint64_t step; size_t keep, bad;
    for (form = 0; form < 6; ++form) /* bit 0: a lock; 0: nobody resumes, 2: resumed by this process, 4: by one before */
        for (keep = 2; keep <= 4; ++keep)
            for (bad = 1; bad < (size_t)1 << keep; ++bad) {
                save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_save_lock *lock = NULL; size_t k, good = 0, before; char path[DISK_PATH]; uint64_t got = 0;
                run_begin(&r, &h, "run");
                r.save.keep = keep;
                if (form & 1) CHECK(memopt_save_lock_open(&r.save, &lock) == MEMOPT_OK);
                for (step = 1; step <= keep; ++step) { run_set(&r, step); r.save.lock = lock; CHECK(memopt_save_write(&r.save) == MEMOPT_OK); }
                if (form >= 4) { /* what the process knew goes with it */
                    memopt_save_lock_close(lock); lock = NULL;
                    if (form & 1) CHECK(memopt_save_lock_open(&r.save, &lock) == MEMOPT_OK);
                    r.save.lock = lock;
                }
                for (k = 0; k < keep; ++k) { /* the newest first */
                    snprintf(path, sizeof path, "run/gen-%d-step-%d/rank-0-of-1.safetensors", (int)(keep - k), (int)(keep - k));
                    if (bad >> k & 1) damage_data(d, path);
                    else if (!good++) got = keep - k;
                }
                before = run_resumable(d, &h, "run");
                CHECK_AT(before == good, bad);
                if (form >= 2) { /* it goes on from there */
                    uint64_t at = 0; memopt_status s;
                    s = memopt_save_resume(&r.save, &at, NULL);
                    CHECK_AT(good ? s == MEMOPT_OK && at == got : s != MEMOPT_OK, bad);
                } else if (form & 1) { memopt_save_lock_close(lock); lock = NULL; CHECK(memopt_save_lock_open(&r.save, &lock) == MEMOPT_OK); r.save.lock = lock; }
                for (k = 1; k <= 4; ++k) {
                    run_set(&r, 100 + k);
                    CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK, bad);
                    CHECK_AT(run_resumable(d, &h, "run") == memopt_i_min(keep, good + k) && d->f.live_blocks == (lock ? 1 : 0) && d->f.bad_frees == 0, bad * 10 + k);
                    if (form & 2 && k == 2) CHECK_AT(memopt_save_resume(&r.save, NULL, NULL) == MEMOPT_OK, bad);
                }
                CHECK_AT(run_load(&h, "run", NULL, NULL) == 104, bad);
                memopt_save_lock_close(lock);
                CHECK_AT(d->f.live_blocks == 0, bad);
                disk_free(d);
            }
}
static void save_resumes_elsewhere(void) { /* a run that goes on from another one's directory has learnt nothing of its own */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); uint64_t step = 0; int k;
    for (k = 0; k < 2; ++k) {
        run_begin(&r, &h, k ? "run" : "other");
        for (step = 1; step <= 2; ++step) { run_set(&r, step); CHECK(memopt_save_write(&r.save) == MEMOPT_OK); }
    }
    damage_data(d, "run/gen-2-step-2/rank-0-of-1.safetensors");
    CHECK(memopt_save_lock_open(&r.save, &r.save.lock) == MEMOPT_OK);
    r.save.path = "other";
    CHECK(memopt_save_resume(&r.save, &step, NULL) == MEMOPT_OK && step == 2);
    r.save.path = "run";
    run_set(&r, 3);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && run_resumable(d, &h, "run") == 2);
    memopt_save_lock_close(r.save.lock);
    disk_free(d);
}
/* What that costs: nothing where the lock knows what holds; else one reading of each generation that stays. */
static size_t keeps_reads; /* bytes of ranks' files that were read */
static memopt_status keeps_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    const memopt_status s = disk_read(user, file, offset, bytes, count, done);
    if (!s && offset >= 4096) keeps_reads += *done;
    return s;
}
static void save_keeps_price(void) {
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); uint64_t step; const size_t data = 4 * RUN_WIDE + RUN_CODES + 2 * RUN_HALF + 16; int form;
    h.files.read_fn = keeps_read;
    for (form = 0; form < 2; ++form) {
        run_begin(&r, &h, "run");
        r.save.keep = 3;
        if (form) CHECK(memopt_save_lock_open(&r.save, &r.save.lock) == MEMOPT_OK && memopt_save_resume(&r.save, &step, NULL) == MEMOPT_OK && step == 6);
        for (step = 1; step <= 6; ++step) {
            run_set(&r, step);
            keeps_reads = 0;
            CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK, step);
            if (!form) CHECK_AT(keeps_reads == (step > 3 ? 2 * data : 0), step); /* the two before, when there is one to retire */
            else CHECK_AT(keeps_reads == (step == 1 ? data : 0), step); /* it was resumed from the newest: the one before that, once */
        }
        memopt_save_lock_close(r.save.lock);
    }
    disk_clear(d);
    run_begin(&r, &h, "run");
    r.save.keep = 4;
    for (step = 1; step <= 4; ++step) { run_set(&r, step); CHECK(memopt_save_write(&r.save) == MEMOPT_OK); }
    CHECK(memopt_save_lock_open(&r.save, &r.save.lock) == MEMOPT_OK && memopt_save_resume(&r.save, &step, NULL) == MEMOPT_OK && step == 4);
    for (step = 5; step <= 7; ++step) { /* the two that it was not resumed from, once */
        run_set(&r, step);
        keeps_reads = 0;
        CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK && keeps_reads == (step == 5 ? 2 * data : 0), step);
    }
    memopt_save_lock_close(r.save.lock);
    disk_free(d);
}
static void save_lock(void) { /* who saves into a directory that another run has is told so at once, and by its name */
    static save_run r, q; save_disk *d = disk_new(); memopt_host h = disk_host(d), plain; memopt_saving *saving = NULL; memopt_error why = memopt_i_error(MEMOPT_OK, NULL); memopt_save_lock *lock = NULL; size_t n; memopt_status s;
    static const char in_use[] = "save: path is in use, another run saves there: run";
    run_begin(&r, &h, "run"); run_begin(&q, &h, "run");
    q.save.error = &why;
    run_set(&r, 1); run_set(&q, 77);
    CHECK(memopt_save_lock_open(&r.save, &r.save.lock) == MEMOPT_OK && disk_find(d, "run/lock") >= 0);
    CHECK(memopt_save_lock_open(&q.save, &q.save.lock) == MEMOPT_ERR_STATE && test_says(&why, MEMOPT_ERR_STATE, in_use) && !q.save.lock);
    CHECK(memopt_save_write(&q.save) == MEMOPT_ERR_STATE && test_says(&why, MEMOPT_ERR_STATE, in_use)); /* between saves, too */
    CHECK(memopt_save_begin(&q.save, &saving) == MEMOPT_ERR_STATE && !saving && d->name_count == 2);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK && memopt_save_write(&q.save) == MEMOPT_ERR_STATE);
    CHECK(memopt_save_begin(&r.save, &saving) == MEMOPT_OK && memopt_save_write(&q.save) == MEMOPT_ERR_STATE && memopt_save_wait(saving) == MEMOPT_OK);
    CHECK(run_load(&h, "run", NULL, &n) == 1 && n == 0); /* reading needs none */
    q.save.path = "other"; q.save.lock = r.save.lock;
    CHECK(memopt_save_write(&q.save) == MEMOPT_ERR_ARGUMENT && test_says(&why, MEMOPT_ERR_ARGUMENT, "save: lock is that of another path"));
    q.save.lock = NULL;
    CHECK(memopt_save_write(&q.save) == MEMOPT_OK);
    q.save.path = "run";
    memopt_save_lock_close(r.save.lock); r.save.lock = NULL;
    CHECK(memopt_save_begin(&r.save, &saving) == MEMOPT_OK); /* without a lock of its own, it has one from here ... */
    CHECK(memopt_save_write(&q.save) == MEMOPT_ERR_STATE && memopt_save_lock_open(&q.save, &lock) == MEMOPT_ERR_STATE && !lock);
    CHECK(memopt_save_wait(saving) == MEMOPT_OK && memopt_save_write(&q.save) == MEMOPT_OK && run_load(&h, "run", NULL, NULL) == 77); /* ... to there */
    d->f.fail_on = d->f.calls + 30;
    s = memopt_save_write(&r.save); /* a save that fails lets go of it */
    d->f.fail_on = 0;
    CHECK(s && memopt_save_lock_open(&q.save, &lock) == MEMOPT_OK);
    memset(d->locked, 0, sizeof d->locked); /* its process dies */
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    memopt_save_lock_close(lock); lock = NULL;
    for (n = 1; n < 100; ++n) {
        d->f.calls = 0; d->f.fail_on = n;
        s = memopt_save_lock_open(&q.save, &lock);
        if (d->f.calls < n) break;
        CHECK_AT(s && !lock && why.status == s && why.reason && d->f.live_blocks == 0 && d->f.bad_frees == 0, n);
    }
    d->f.fail_on = 0;
    CHECK(s == MEMOPT_OK && n == 5); /* memory, the directory, the file, its lock */
    memopt_save_lock_close(lock); lock = NULL;
    d->f.calls = 0; d->f.fail_on = 3;
    CHECK(memopt_save_lock_open(&q.save, &lock) == MEMOPT_ERR_IO && test_says(&why, MEMOPT_ERR_IO, "save: path has a file \"lock\" that cannot be made or opened (permission? room? ulimit -n?): run"));
    d->f.fail_on = 0;
    memopt_save_lock_close(lock); lock = NULL;
    REFUSES(q.save.error, q.save.keep = 1, memopt_save_lock_open(&q.save, &lock), MEMOPT_ERR_ARGUMENT, "save: keep 1, at least 2");
    REFUSES(q.save.error, q.save.keep = SIZE_MAX, memopt_save_lock_open(&q.save, &lock), MEMOPT_ERR_OVERFLOW, "save: keep is too large for memory");
    q.save.keep = 0;
    REFUSES(q.save.error, q.save.path = NULL, memopt_save_lock_open(&q.save, &lock), MEMOPT_ERR_ARGUMENT, "save: path is NULL");
    q.save.path = "run";
    CHECK(memopt_save_lock_open(NULL, &lock) == MEMOPT_ERR_ARGUMENT);
    REFUSES(q.save.error, (void)0, memopt_save_lock_open(&q.save, NULL), MEMOPT_ERR_ARGUMENT, "save: out is NULL");
    CHECK(memopt_save_lock_open(&q.save, &q.save.lock) == MEMOPT_OK); /* a name that is gone protects nothing */
    disk_do_remove(d, "run/lock");
    n = d->name_count;
    REFUSES(q.save.error, (void)0, memopt_save_write(&q.save), MEMOPT_ERR_STATE, "save: path had a file \"lock\" that was removed, another run may save there: run");
    CHECK(d->name_count == n);
    memopt_save_lock_close(q.save.lock); q.save.lock = NULL;
    CHECK(memopt_save_lock_open(&q.save, &q.save.lock) == MEMOPT_OK && memopt_save_write(&q.save) == MEMOPT_OK);
    memopt_save_lock_close(q.save.lock); q.save.lock = NULL;
    strcpy(d->link, "run/lock"); strcpy(d->target, "elsewhere");
    REFUSES(q.save.error, (void)0, memopt_save_write(&q.save), MEMOPT_ERR_STATE, "save: path has a link as its file \"lock\": run");
    d->link[0] = 0;
    plain = h;
    plain.files.lock_fn = NULL; /* a host without locks: nobody is noticed, and nothing else is missing */
    q.save.host = &plain; d->no_locks = 1;
    CHECK(memopt_save_lock_open(&q.save, &lock) == MEMOPT_OK);
    q.save.lock = lock;
    CHECK(memopt_save_write(&q.save) == MEMOPT_OK && memopt_save_write(&r.save) == MEMOPT_OK && run_load(&h, "run", NULL, NULL) == 1);
    memopt_save_lock_close(lock); memopt_save_lock_close(NULL);
    CHECK(d->f.live_blocks == 0 && d->open == 0);
    disk_free(d);
}
#if defined(MEMOPT_I_POSIX)
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#if !defined(__cplusplus) /* -std=c99 hides them */
extern int symlink(const char *to, const char *path);
extern int kill(pid_t process, int number);
#endif
/* Processes: one that has the directory, or is in the midst of a save, and is killed; and names that are links. */
static void save_lock_process(void) {
    static save_run r; memopt_host h; char path[600], text[700], victim[640]; int form, pipes[2], lives[2]; memopt_error why = memopt_i_error(MEMOPT_OK, NULL); memopt_saving *saving = NULL; save_names n; void *file = NULL; uint64_t size = 0;
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK);
    test_path(path, "process");
    save_remove_all(&h, path);
    run_begin(&r, NULL, path);
    r.save.error = &why;
    run_set(&r, 1);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    for (form = 0; form < 2; ++form) {
        char ready = 0; pid_t child;
        CHECK(pipe(pipes) == 0 && pipe(lives) == 0);
        child = fork();
        if (!child) {
            run_set(&r, 2);
            ready = (form ? memopt_save_begin(&r.save, &saving) : memopt_save_lock_open(&r.save, &r.save.lock)) ? 'x' : 'y';
            (void)close(lives[1]);
            if (write(pipes[1], &ready, 1) == 1) (void)!read(lives[0], &ready, 1); /* until it is killed, or this test has ended */
            _exit(1);
        }
        CHECK(child > 0 && read(pipes[0], &ready, 1) == 1 && ready == 'y');
        run_set(&r, 3);
        snprintf(text, sizeof text, "save: path is in use, another run saves there: %s", path);
        CHECK(memopt_save_write(&r.save) == MEMOPT_ERR_STATE && (strlen(text) > 200 || test_says(&why, MEMOPT_ERR_STATE, text)));
        CHECK(run_load(NULL, path, NULL, NULL) == (form ? 3u : 1u));
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child && !close(pipes[0]) && !close(pipes[1]) && !close(lives[0]) && !close(lives[1]));
        CHECK(memopt_save_write(&r.save) == MEMOPT_OK && run_load(NULL, path, NULL, NULL) == 3);
        memset(&n, 0, sizeof n);
        CHECK(h.files.list_dir_fn(h.files.user, path, save_name, &n) == MEMOPT_OK && !strstr(n.text, ".tmp")); /* what the other had begun is gone */
    }
    for (form = 0; form < 2; ++form) { /* a process that was forked meanwhile lives on: the lock goes with the close, or the save */
        char wait = 0; pid_t child;
        CHECK(pipe(lives) == 0 && (form ? memopt_save_begin(&r.save, &saving) : memopt_save_lock_open(&r.save, &r.save.lock)) == MEMOPT_OK);
        child = fork();
        if (!child) {
            (void)close(lives[1]);
            (void)!read(lives[0], &wait, 1);
            _exit(0);
        }
        CHECK(child > 0);
        if (form) CHECK(memopt_save_wait(saving) == MEMOPT_OK);
        memopt_save_lock_close(r.save.lock); r.save.lock = NULL;
        CHECK_AT(memopt_save_write(&r.save) == MEMOPT_OK, form);
        CHECK(!close(lives[0]) && !close(lives[1]) && waitpid(child, NULL, 0) == child);
    }
    snprintf(victim, sizeof victim, "%s.victim", path); snprintf(text, sizeof text, "%s/lock", path);
    CHECK(h.files.open_fn(h.files.user, victim, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK && h.files.write_fn(h.files.user, file, 0, "dear", 4) == MEMOPT_OK && h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(remove(text) == 0 && symlink(victim, text) == 0);
    CHECK(memopt_save_write(&r.save) == MEMOPT_ERR_STATE && why.reason && !strcmp(why.reason, "has a link as its file \"lock\":"));
    CHECK(h.files.open_fn(h.files.user, victim, MEMOPT_OPEN_READ, &file) == MEMOPT_OK && h.files.size_fn(h.files.user, file, &size) == MEMOPT_OK && size == 4 && h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    CHECK(remove(text) == 0 && remove(victim) == 0 && memopt_save_write(&r.save) == MEMOPT_OK);
    save_remove_all(&h, path);
}
#endif
static void save_new_files(void) { /* what stands in the place of a file of a save that is written is neither overwritten nor followed */
    static const char *const names[3] = { "rank-0-of-1.safetensors", "manifest", "model.safetensors" }; static save_run r; size_t k;
    for (k = 0; k < 3; ++k) {
        save_disk *d = disk_new(); memopt_host h = disk_host(d); char text[80], path[DISK_PATH]; memopt_saving *saving = NULL; memopt_error why = memopt_i_error(MEMOPT_OK, NULL); int file;
        snprintf(text, sizeof text, "save: %s is there already, or a link", k == 1 ? "manifest" : "file");
        run_begin(&r, &h, "run");
        run_set(&r, 1);
        CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
        if (k == 2) run_model(&r, 0);
        run_set(&r, 2);
        r.save.error = &why;
        snprintf(path, sizeof path, "run/gen-2-step-2.tmp/%s", names[k]);
        if (k == 1) CHECK(memopt_save_begin(&r.save, &saving) == MEMOPT_OK);
        else strcpy(d->rival, "run/gen-2-step-2.tmp"), strcpy(d->rival_file, path);
        file = d->file_count;
        if (k == 1) (void)disk_add(d, path, d->file_count++);
        if (k == 1) CHECK_AT(memopt_save_wait(saving) == MEMOPT_ERR_STATE && test_says(&why, MEMOPT_ERR_STATE, text), k);
        else CHECK_AT(memopt_save_write(&r.save) == MEMOPT_ERR_STATE && test_says(&why, MEMOPT_ERR_STATE, text), k);
        CHECK_AT(d->files[file].size == 0 && run_load(&h, "run", NULL, NULL) == 1, k);
        disk_free(d);
    }
}
static void save_path_told(void) { /* why there is no directory to save into */
    static const struct { const char *path, *text; } paths[] = {
        { "mine", "save: path is a file: mine" }, { "mine/run", "save: path goes through a file: mine/run at name 0" },
        { "none/run", "save: path lacks a directory, or one cannot be opened: none/run at name 0" }, { "dir/none/run/", "save: path lacks a directory, or one cannot be opened: dir/none/run/ at name 1" },
        { "dir/mine/run", "save: path goes through a file: dir/mine/run at name 1" }, { "/none/run", "save: path lacks a directory, or one cannot be opened: /none/run at name 0" },
        { "dir/run", "save: path could not be made, though the directory above is there (permission?): dir/run" }, { "run", "save: path could not be made, though the directory above is there (permission?): run" } };
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); size_t k; memopt_save_lock *lock = NULL;
    (void)disk_add(d, "mine", d->file_count++); (void)disk_add(d, "dir", -1); (void)disk_add(d, "dir/mine", d->file_count++);
    d->any_name = 0;
    for (k = 0; k < sizeof paths / sizeof *paths; ++k) {
        run_begin(&r, &h, paths[k].path);
        run_set(&r, 1);
        if (k >= 6) d->forbidden = paths[k].path;
        REFUSES(r.save.error, (void)0, memopt_save_write(&r.save), MEMOPT_ERR_IO, paths[k].text);
        REFUSES(r.save.error, (void)0, memopt_save_lock_open(&r.save, &lock), MEMOPT_ERR_IO, paths[k].text);
    }
    CHECK(d->f.live_blocks == 0 && d->name_count == 3);
    disk_free(d);
}
static int overtaken; /* how often a run has yet to save twice while a reader opens a manifest */
static memopt_status overtake_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    static save_run w; memopt_host h = disk_host((save_disk *)user); static uint64_t step = 2; int k;
    if (!overtaken || !strstr(path, "manifest")) return disk_open(user, path, mode, file);
    --overtaken;
    run_begin(&w, &h, "run");
    for (k = 0; k < 2; ++k) { run_set(&w, ++step); CHECK(memopt_save_write(&w.save) == MEMOPT_OK); }
    return disk_open(user, path, mode, file);
}
static void load_overtaken(void) { /* all generations that were listed have been replaced: the newest of the new ones */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d), reader = h; size_t refused = 9; uint64_t step; memopt_status s;
    run_begin(&r, &h, "run");
    for (step = 1; step <= 2; ++step) { run_set(&r, step); CHECK(memopt_save_write(&r.save) == MEMOPT_OK); }
    reader.files.open_fn = overtake_open;
    overtaken = 1;
    CHECK(run_load(&reader, "run", &s, &refused) == 4 && refused == 0 && !overtaken);
    overtaken = 3;
    CHECK(run_load(&reader, "run", &s, &refused) == 10 && refused == 0 && !overtaken);
    CHECK(d->f.live_blocks == 0 && d->open == 0);
    disk_free(d);
}
static void save_keeps(void) { /* generations that hold, not names; of one number both */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); uint64_t step; size_t refused = 0; int k;
    run_begin(&r, &h, "run");
    for (step = 1; step <= 3; ++step) { run_set(&r, step); CHECK(memopt_save_write(&r.save) == MEMOPT_OK); }
    (void)disk_add(d, "run/gen-7-step-7", -1);
    k = d->names[disk_find(d, "run/gen-3-step-3/manifest")].file;
    d->files[k].bytes[d->files[k].size - 1] ^= 1;
    run_set(&r, 4); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    CHECK(disk_find(d, "run/gen-8-step-4") >= 0 && disk_find(d, "run/gen-7-step-7") >= 0 && disk_find(d, "run/gen-3-step-3") >= 0 && disk_find(d, "run/gen-2-step-2") >= 0);
    k = d->names[disk_find(d, "run/gen-8-step-4/manifest")].file;
    d->files[k].bytes[0] ^= 1;
    CHECK(run_load(&h, "run", NULL, &refused) == 2 && refused == 3);
    d->files[k].size = 3;
    run_set(&r, 5); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    CHECK(disk_find(d, "run/gen-2-step-2") >= 0);
    run_set(&r, 6); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    CHECK(disk_find(d, "run/gen-2-step-2") < 0 && disk_find(d, "run/gen-3-step-3") < 0 && disk_find(d, "run/gen-8-step-4") < 0);
    CHECK(disk_find(d, "run/gen-9-step-5") >= 0 && disk_find(d, "run/gen-10-step-6") >= 0);
    (void)disk_add(d, "run/gen-10-step-77", -1); (void)disk_add(d, "run/gen-10-step-2", -1); (void)disk_add(d, "run/gen-10-step-78", -1);
    CHECK(run_load(&h, "run", NULL, &refused) == 6 && refused == 2);
    d->names[disk_find(d, "run/gen-10-step-6/manifest")].file = d->names[disk_find(d, "run/gen-9-step-5/manifest")].file;
    CHECK(run_load(&h, "run", NULL, &refused) == 5 && refused == 4);
    disk_free(d);
}

/* ---- a disk that is replayed: syncs that fail, sectors that are torn, names that are lost, in life after life ---- */
static int run_rots(replayed_disk *d, uint64_t step) { /* a byte of the newest generation, if it is of that step; 0: it is not */
    char name[REPLAY_NAME], path[3 * REPLAY_NAME]; int dir, run_dir, inode; size_t i; memopt_i_generation g, newest;
    memset(&newest, 0, sizeof newest);
    if (replay_find(d, "run", &dir, name, &run_dir) || run_dir < 0) return 0;
    for (i = 0; i < d->now.count; ++i) {
        const char *rest = d->now.all[i].dir == run_dir ? memopt_i_save_generation(d->now.all[i].name, &g) : NULL;
        if (rest && !*rest && g.number > newest.number) newest = g;
    }
    snprintf(path, sizeof path, "run/gen-%d-step-%d/rank-0-of-1.safetensors", (int)newest.number, (int)newest.step);
    if (newest.step != step || replay_find(d, path, &dir, name, &inode) || inode < 0 || d->inodes[inode].size < 9000 || d->inodes[inode].safe_size < 9000) return 0;
    d->inodes[inode].now[8999] ^= 1; d->inodes[inode].safe[8999] ^= 1;
    return 1;
}
/* Lives of a run, one after the other, on one disk: what comes back after each is the last save that said that it was
   there, or one that was begun after it; where that has rotted, the one before it. A save that failed at its last sync may
   be there and resumed from, and gone after a power cut. */
static size_t run_lives(uint64_t seed, size_t states) {
    replayed_disk *d = replay_new(seed), *after; static save_run now; uint64_t step = 0, last = 0, before = 0, random = seed; size_t life, at; memopt_save_lock *lock; int is_last = 1; /* last, before: saves that returned OK; is_last: nothing was begun since, nor resumed from */
    for (life = 0; life < 4 && states; ++life, --states) {
        memopt_host h = replay_host(d); uint64_t got = 0; memopt_status s; int rots = 0; const size_t saves = test_below(&random, 4), kind = test_below(&random, 4); const long when = 1 + (long)test_below(&random, 12 * saves + 1);
        if (before && is_last && test_below(&random, 3) == 0 && run_rots(d, last)) rots = 1;
        run_begin(&now, &h, "run");
        if (test_below(&random, 2)) run_model(&now, 12000);
        now.save.keep = 2 + test_below(&random, 2);
        lock = NULL;
        if (test_below(&random, 2)) CHECK_AT(memopt_save_lock_open(&now.save, &lock) == MEMOPT_OK, seed);
        now.save.lock = lock;
        s = memopt_save_resume(&now.save, &got, NULL);
        CHECK_AT(s == MEMOPT_OK || (!last && !rots), seed); /* a first one that never said that it was there */
        CHECK_AT(!got || run_is(&now, got), seed);
        if (rots) CHECK_AT(got >= before && got < last, seed); /* between: its save failed at its last sync */
        else CHECK_AT(is_last ? got == last : got >= last && got <= step, seed);
        if (rots) { last = before; before = 0; }
        is_last = got == last;
        if (kind == 1) d->fail_sync = when / 4 + 1; /* once */
        if (kind == 2) d->fail_dir = when / 4 + 1;
        if (kind == 3) d->fail_write = when / 2 + 1;
        if (test_below(&random, 4)) d->die = 1 + (long)test_below(&random, 20 + 25 * saves);
        for (at = 0; at < saves && !d->is_dead; ++at) {
            run_set(&now, ++step);
            s = save_form(&now, test_below(&random, 2) ? 2 : 0);
            if (!s) before = last, last = step;
            is_last = !s;
        }
        memopt_save_lock_close(lock);
        if (test_below(&random, 4) == 0) { replay_kill(d, (int)test_below(&random, 2)); continue; } /* the process alone */
        after = replay_cut(d, (int)test_below(&random, REPLAY_WAYS), test_random(&random));
        replay_free(d);
        d = after;
    }
    replay_free(d);
    return life;
}
/* MEMOPT_REPLAYS in the environment: so many power cuts and kills */
static void save_replayed(void) {
    const char *text = getenv("MEMOPT_REPLAYS"); const size_t all = text ? (size_t)strtoul(text, NULL, 10) : 1500 / TEST_STRIDE; size_t done = 0; uint64_t seed;
    for (seed = 1; done < all; ++seed) done += run_lives(seed, all - done);
    if (text) printf("%zu states of saves\n", done);
}

/* ---- bits that are wrong ---- */
static int bad_loads_older(save_disk *d, const memopt_host *h) { /* the one before, with a reason */
    static save_run r; memopt_saved *saved = NULL; memopt_error why = memopt_i_error(MEMOPT_OK, NULL); int good;
    (void)d;
    run_begin(&r, h, "run");
    if (memopt_saved_open(&r.save, &saved)) return 0;
    good = memopt_saved_step(saved) == 1 && memopt_saved_refused(saved, &why) == 1 && why.status && why.reason
        && memopt_saved_read(saved, &r.save) == MEMOPT_OK && run_is(&r, 1);
    memopt_saved_close(saved);
    return good;
}
static void save_bits(void) {
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); int manifest, file; size_t i, header; uint64_t seed = 4;
    run_begin(&r, &h, "run");
    run_set(&r, 1); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    run_set(&r, 2); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    manifest = d->names[disk_find(d, "run/gen-2-step-2/manifest")].file;
    file = d->names[disk_find(d, "run/gen-2-step-2/rank-0-of-1.safetensors")].file;
    for (i = 0; i < d->files[manifest].size * 8; i += TEST_STRIDE) {
        d->files[manifest].bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        CHECK_AT(bad_loads_older(d, &h), i);
        d->files[manifest].bytes[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    header = 4096;
    for (i = 0; i < header * 8; i += TEST_STRIDE) {
        d->files[file].bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        CHECK_AT(bad_loads_older(d, &h), i);
        d->files[file].bytes[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    for (i = 0; i < TEST_CASES(8192, 65536); i += TEST_STRIDE * TEST_STRIDE) {
        const size_t bit = header * 8 + test_below(&seed, (d->files[file].size - header) * 8);
        d->files[file].bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK_AT(bad_loads_older(d, &h), bit);
        d->files[file].bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    CHECK(run_load(&h, "run", NULL, NULL) == 2);
    disk_free(d);
}
static void save_cuts(void) { /* every length below, and some above */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); int k; size_t i, whole;
    run_begin(&r, &h, "run");
    run_set(&r, 1); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    run_set(&r, 2); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    for (k = 0; k < 2; ++k) {
        const int file = d->names[disk_find(d, k ? "run/gen-2-step-2/rank-0-of-1.safetensors" : "run/gen-2-step-2/manifest")].file;
        whole = d->files[file].size;
        for (i = 0; i < whole + 20; ++i) {
            if (i == whole || test_is_passed_over()) continue;
            d->files[file].size = i;
            if (i > whole) { d->files[file].size = whole; disk_grow(d, file, i); }
            CHECK_AT(bad_loads_older(d, &h), i);
        }
        d->files[file].size = whole;
    }
    CHECK(run_load(&h, "run", NULL, NULL) == 2);
    disk_free(d);
}
/* A manifest that is sound in itself, and says what it should not. */
static void bad_rewrite(save_disk *d, int file, const char *from, const char *to) {
    unsigned char *b = d->files[file].bytes; const size_t n = d->files[file].size; size_t i; uint32_t crc; const size_t length = strlen(from);
    for (i = 0; i + length < n && memcmp(b + i, from, length); ++i) { }
    CHECK(i + length < n && strlen(to) == length);
    memcpy(b + i, to, length);
    crc = memopt_crc32c(0, b, n - 4);
    memcpy(b + n - 4, &crc, 4);
}
static void bad_number(save_disk *d, int file, size_t at, uint64_t number, size_t bytes) { /* in the data of a manifest */
    uint64_t header; uint32_t crc; const size_t n = d->files[file].size;
    memcpy(&header, d->files[file].bytes, 8);
    memcpy(d->files[file].bytes + 8 + header + at, &number, bytes);
    crc = memopt_crc32c(0, d->files[file].bytes, n - 4);
    memcpy(d->files[file].bytes + n - 4, &crc, 4);
}
static void save_foreign(void) {
    static const struct { const char *from, *to, *why; int twice; } texts[] = {
        { "\"memopt.save\":\"1\"", "\"memopt.save\":\"2\"", "save: version 2, this one reads 1", 0 },
        { "\"memopt.save\":\"1\"", "\"memopt.save\":\"x\"", "save: memopt.save is not there, or no number", 0 },
        { "\"memopt.save\":\"1\"", "\"Memopt.save\":\"1\"", "save: memopt.save is not there, or no number", 0 },
        { "\"memopt.step\":\"2\"", "\"memopt.stop\":\"2\"", "save: memopt.step is not there, or no number", 0 },
        { "\"memopt.step\":\"2\"", "\"memopt.step\":\"-\"", "save: memopt.step is not there, or no number", 0 },
        { "\"memopt.step\":\"2\"", "\"memopt.step\":\"1\"", "save: step of the manifest 1, the directory says 2", 0 },
        { "\"number\"", "\"numbed\"", "save: number is not the number that it should be", 0 },
        { "\"memopt.tile\":\"4096\"", "\"memopt.tile\":\"4097\"", "save: memopt.tile 4097, must be a multiple, up to 1 GiB, of 4096", 0 },
        { "\"memopt.tile\":\"4096\"", "\"memopt.tale\":\"4096\"", "save: memopt.tile is not there, or no number", 0 },
        { "\"files\"", "\"filed\"", "save: files is not the table that it should be", 0 },
        { "\"tiles\"", "\"tiled\"", "save: tiles is not the table that it should be", 0 },
        { "\"content\"", "\"contend\"", "save: content is not the number that it should be", 0 },
        { "\"shape\":[1,4]", "\"shape\":[4,1]", "save: tiles is not the table that it should be", 0 },
        { "\"shape\":[1,4]", "\"shape\":[2,2]", "save: tiles is not the table that it should be", 0 },
        { "\"shape\":[1,4]", "\"shape\":[2,2]", "save: files is not the table that it should be", 1 },
        { "{\"dtype\":\"U64\"", "{\"dtype\":\"I64\"", "save: files is not the table that it should be", 0 },
        { "{\"dtype\"", "{\"dtipe\"", "tensors: dtype is missing at byte 151", 0 }
    };
    static const struct { size_t at, bytes; uint64_t number; const char *why; } numbers[] = {
        { 0, 8, 0, "save: bytes of the file 16878 at file 0, the manifest says 0" },
        { 8, 8, 0, "save: manifest tells impossible sizes at file 0" },
        { 8, 8, 4095, "save: manifest tells impossible sizes at file 0" },
        { 8, 8, 8192, "save: header has another checksum at file 0" },
        { 8, 8, 1 << 20, "save: manifest tells impossible sizes at file 0" },
        { 8, 8, UINT64_MAX - 4095, "save: manifest tells impossible sizes at file 0" },
        { 16, 8, 1, "save: header has another checksum at file 0" },
        { 24, 8, 1, "save: manifest tells another checksum of the file than of its tiles at file 0" },
        { 32, 8, 1, "save: number of the manifest 1, the directory says 2" },
        { 44, 4, 1, "save: file has another checksum at tile 0" }
    };
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); int manifest, file; size_t i; unsigned char *keep; size_t size; memopt_saved *saved = NULL;
    memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
    run_begin(&r, &h, "run");
    run_set(&r, 1); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    run_set(&r, 2); CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    manifest = d->names[disk_find(d, "run/gen-2-step-2/manifest")].file;
    size = d->files[manifest].size;
    keep = (unsigned char *)malloc(size);
    if (!keep) return;
    memcpy(keep, d->files[manifest].bytes, size);
    for (i = 0; i < sizeof texts / sizeof *texts + sizeof numbers / sizeof *numbers; ++i) {
        const size_t k = i - sizeof texts / sizeof *texts; const char *text = i < sizeof texts / sizeof *texts ? texts[i].why : numbers[k].why;
        memcpy(d->files[manifest].bytes, keep, size);
        if (i < sizeof texts / sizeof *texts) {
            bad_rewrite(d, manifest, texts[i].from, texts[i].to);
            if (texts[i].twice) bad_rewrite(d, manifest, texts[i].from, texts[i].to);
        } else bad_number(d, manifest, numbers[k].at, numbers[k].number, numbers[k].bytes);
        CHECK_AT(memopt_saved_open(&r.save, &saved) == MEMOPT_OK && memopt_saved_step(saved) == 1 && memopt_saved_refused(saved, &why) == 1, i);
        CHECK_AT(test_says(&why, MEMOPT_ERR_FORMAT, text), i);
        memopt_saved_close(saved);
    }
    memcpy(d->files[manifest].bytes, keep, size);
    file = d->names[disk_find(d, "run/gen-2-step-2/rank-0-of-1.safetensors")].file;
    bad_number(d, manifest, 8, 8192, 8); /* a header that reaches into the data, by a checksum that is right */
    bad_number(d, manifest, 16, memopt_crc32c(0, d->files[file].bytes, 8192), 8);
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_OK && memopt_saved_refused(saved, &why) == 1 && test_says(&why, MEMOPT_ERR_FORMAT, "save: manifest tells impossible sizes at file 0"));
    memopt_saved_close(saved);
    memcpy(d->files[manifest].bytes, keep, size);
    d->lie = 8; /* a file that is shorter than it says */
    r.save.error = &why;
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_ERR_FORMAT && test_says(&why, MEMOPT_ERR_FORMAT, "save: manifest is cut off"));
    r.save.error = NULL;
    d->lie = 0;
    memcpy(d->files[manifest].bytes, "\x07\0\0\0\0\0\0\0{} ", 11); /* another safetensors file */
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_OK && memopt_saved_refused(saved, &why) == 1 && test_says(&why, MEMOPT_ERR_FORMAT, "save: manifest has another checksum"));
    memopt_saved_close(saved);
    disk_grow(d, manifest, 3);
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_OK && memopt_saved_refused(saved, &why) == 1);
    CHECK(test_says(&why, MEMOPT_ERR_FORMAT, "save: bytes of the manifest 3, at least 12, limit 1073741824"));
    memopt_saved_close(saved);
    disk_do_rename(d, "run/gen-1-step-1", "run/gen-1-step-1.old"); /* what is going away is not looked at */
    r.save.error = &why;
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_ERR_FORMAT && test_says(&why, MEMOPT_ERR_FORMAT, "save: bytes of the manifest 3, at least 12, limit 1073741824"));
    free(keep);
    disk_free(d);
}

static void save_foreign_two(void) { /* of two that are refused, why is the newest's; and tiles for which there is no checksum */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_saved *saved = NULL; memopt_error why = memopt_i_error(MEMOPT_OK, NULL); uint64_t step;
    run_begin(&r, &h, "run");
    r.save.keep = 3;
    r.save.error = &why;
    for (step = 1; step <= 3; ++step) {
        r.save.tile = step == 3 ? 8192 : 4096;
        run_set(&r, step);
        CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    }
    bad_rewrite(d, d->names[disk_find(d, "run/gen-3-step-3/manifest")].file, "\"memopt.tile\":\"8192\"", "\"memopt.tile\":\"4096\"");
    bad_rewrite(d, d->names[disk_find(d, "run/gen-2-step-2/manifest")].file, "\"memopt.save\":\"1\"", "\"memopt.save\":\"3\"");
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_OK && memopt_saved_step(saved) == 1 && memopt_saved_refused(saved, &why) == 2);
    CHECK(test_says(&why, MEMOPT_ERR_FORMAT, "save: manifest tells impossible sizes at file 0"));
    memopt_saved_close(saved);
    disk_do_remove(d, "run/gen-1-step-1/manifest");
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_ERR_FORMAT && test_says(&why, MEMOPT_ERR_FORMAT, "save: manifest tells impossible sizes at file 0"));
    disk_free(d);
}

/* ---- bytes that every later version reads ---- */
/* Written by version 1 of the format. Checksums and places were computed once more by a program of its own. */
static const char gold_manifest_text[] =
    "{\"__metadata__\":{\"memopt.save\":\"1\",\"memopt.step\":\"42\",\"memopt.tile\":\"4096\",\"data\":\"x \\\"y\\\"\"},"
    "\"files\":{\"dtype\":\"U64\",\"shape\":[1,4],\"data_offsets\":[0,32]},\"number\":{\"dtype\":\"U64\",\"shape\":[],\"data_offsets\":[32,40]},"
    "\"content\":{\"dtype\":\"U32\",\"shape\":[],\"data_offsets\":[40,44]},\"tiles\":{\"dtype\":\"U32\",\"shape\":[1,1],\"data_offsets\":[44,48]},"
    "\"crc\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[48,52]}}";
static const unsigned char gold_manifest_data[] = { 37, 16, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 202, 193, 226, 133, 0, 0, 0, 0, 44, 150, 55, 77, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 243, 80, 60, 184, 71, 251, 11, 139, 0, 129, 251, 14 };
static const char gold_file_text[] =
    "{\"__metadata__\":{\"memopt.save\":\"1\",\"w/a@0\":\"2,3\",\"m/a@0\":\"5\",\"step@0\":\"1\"},\"step@0\":{\"dtype\":\"U64\",\"shape\":[1],"
    "\"data_offsets\":[0,8]},\"w/a@0\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},\"m/a@0\":{\"dtype\":\"U8\",\"shape\":[5],"
    "\"data_offsets\":[32,37]}}";
static const unsigned char gold_file_data[] = { 42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 63, 0, 0, 0, 192, 0, 0, 0, 63, 0, 0, 64, 64, 0, 0, 128, 190, 0, 0, 0, 65, 1, 2, 3, 254, 255 };
/* As it is written since: with a checksum of the listing. Computed by the same program */
static const char gold_listing[] = "\"memopt.items\":\"3452180718\",";
static const unsigned char gold_listing_crc[4] = { 168, 4, 227, 26 };
static void gold_bytes(const char *text, size_t header, const unsigned char *data, size_t bytes, unsigned char *to) {
    const uint64_t length = header - 8;
    memcpy(to, &length, 8);
    memset(to + 8, ' ', header - 8);
    memcpy(to + 8, text, strlen(text));
    memcpy(to + header, data, bytes);
}
static void save_golden(void) {
    static const uint64_t shape[2] = { 2, 3 }; static unsigned char manifest[452], file[4133], now[484]; static char text_now[432];
    static const float weights[6] = { 1, -2, 0.5f, 3, -0.25f, 8 }; static const unsigned char codes[5] = { 1, 2, 3, 254, 255 };
    const memopt_tensor_metadata text = { "data", "x \"y\"" }; float w[6]; unsigned char c[5]; uint64_t step = 42; memopt_save_item items[3]; memopt_save_desc s;
    save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_saved *saved = NULL; int k;
    gold_bytes(gold_manifest_text, 400, gold_manifest_data, sizeof gold_manifest_data, manifest);
    gold_bytes(gold_file_text, 4096, gold_file_data, sizeof gold_file_data, file);
    memcpy(text_now, gold_manifest_text, (size_t)(strstr(gold_manifest_text, "\"data\"") - gold_manifest_text));
    strcat(text_now, gold_listing); strcat(text_now, strstr(gold_manifest_text, "\"data\""));
    gold_bytes(text_now, 432, gold_manifest_data, sizeof gold_manifest_data, now);
    memcpy(now + sizeof now - 4, gold_listing_crc, 4);
    memset(&s, 0, sizeof s);
    memcpy(w, weights, sizeof w); memcpy(c, codes, sizeof c);
    items[0] = run_item("w/", "a", MEMOPT_TENSOR_F32, 6, w); items[0].shape = shape; items[0].dimensions = 2;
    items[1] = run_item("m/", "a", MEMOPT_TENSOR_U8, 5, c); items[2] = run_item(NULL, "step", MEMOPT_TENSOR_U64, 1, &step);
    s.path = "run"; s.step = 42; s.items = items; s.item_count = 3; s.metadata = &text; s.metadata_count = 1; s.host = &h; s.tile = 4096;
    CHECK(memopt_save_write(&s) == MEMOPT_OK);
    k = d->names[disk_find(d, "run/gen-1-step-42/manifest")].file;
    CHECK(d->files[k].size == sizeof now && !memcmp(d->files[k].bytes, now, sizeof now));
    disk_grow(d, k, sizeof manifest);
    memcpy(d->files[k].bytes, manifest, sizeof manifest); /* whatever this version writes: these are read */
    k = d->names[disk_find(d, "run/gen-1-step-42/rank-0-of-1.safetensors")].file;
    CHECK(d->files[k].size == sizeof file && !memcmp(d->files[k].bytes, file, sizeof file));
    memcpy(d->files[k].bytes, file, sizeof file);
    memset(w, 0, sizeof w); memset(c, 0, sizeof c); step = 0;
    CHECK(memopt_saved_open(&s, &saved) == MEMOPT_OK && memopt_saved_read(saved, &s) == MEMOPT_OK && memopt_saved_step(saved) == 42);
    CHECK(!memcmp(w, weights, sizeof w) && !memcmp(c, codes, sizeof c) && step == 42 && !strcmp(memopt_saved_value(saved, "data"), "x \"y\""));
    CHECK(memopt_saved_content(saved) == 3090960627U);
    memopt_saved_close(saved);
    disk_free(d);
}
static void save_content(void) { /* all that was saved, in its order, is compared with its checksum; anything else is not */
    static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_saved *saved = NULL; memopt_save_item first; unsigned char *b; uint64_t header; uint32_t crc; size_t n;
    memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
    run_begin(&r, &h, "run");
    r.save.error = &why;
    run_set(&r, 5);
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    n = (size_t)d->names[disk_find(d, "run/gen-1-step-5/manifest")].file;
    b = d->files[n].bytes;
    memcpy(&header, b, 8);
    b[8 + header + 40] ^= 1; /* as if a range were elsewhere: every other checksum holds */
    crc = memopt_crc32c(0, b, d->files[n].size - 4);
    memcpy(b + d->files[n].size - 4, &crc, 4);
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_OK && memopt_saved_read(saved, &r.save) == MEMOPT_ERR_CORRUPT);
    CHECK(test_says(&why, MEMOPT_ERR_CORRUPT, "save: items are not those of which the save has the checksum"));
    first = r.items[0]; r.items[0] = r.items[1]; r.items[1] = first; /* another order */
    CHECK(memopt_saved_read(saved, &r.save) == MEMOPT_OK && run_is(&r, 5));
    r.items[0] = first; r.save.item_count = 1; /* one alone */
    CHECK(memopt_saved_read(saved, &r.save) == MEMOPT_OK);
    run_begin(&r, &h, "run"); /* a part of one */
    r.items[0].held = 100;
    CHECK(memopt_saved_read(saved, &r.save) == MEMOPT_OK);
    memopt_saved_close(saved);
    CHECK(d->f.live_blocks == 0);
    disk_free(d);
}
/* ---- what an optimizer steps, on any number of ranks ---- */
enum { NET_TENSORS = 3, NET_MOST = 12388, NET_RANKS = 8 };
static const size_t net_counts[NET_TENSORS] = { 5000, 700, NET_MOST }; /* 8 bits, floats, 8 bits; none a multiple of the block */
static const char *const net_names[NET_TENSORS] = { "a", "b", "c" };
typedef struct save_net { float weights[NET_TENSORS][NET_MOST]; uint16_t extra[NET_TENSORS][NET_MOST]; float gradients[NET_TENSORS][NET_MOST];
    memopt_optim_tensor tensors[NET_TENSORS]; memopt_optim *optim; size_t rank, ranks; uint64_t state[2];
    memopt_save_item items[NET_TENSORS * MEMOPT_SAVE_OPTIM_ITEMS + 1]; memopt_save_desc save; } save_net;
static size_t net_border(size_t count, size_t rank, size_t ranks) { /* at blocks; ranks may have nothing */
    const size_t blocks = (count + 255) / 256; const size_t at = blocks * rank / ranks * 256;
    return at < count ? at : count;
}
static int net_open(save_net *n, size_t rank, size_t ranks, memopt_optim_kind kind, memopt_state_format state, memopt_type weights, memopt_optim_extra extra) {
    memopt_optim_desc d; size_t i, k;
    memset(n, 0, sizeof *n);
    memset(&d, 0, sizeof d);
    n->rank = rank; n->ranks = ranks;
    for (i = 0; i < NET_TENSORS; ++i) {
        memopt_optim_tensor *t = &n->tensors[i]; const size_t first = net_border(net_counts[i], rank, ranks), end = net_border(net_counts[i], rank + 1, ranks);
        t->count = net_counts[i]; t->first = first; t->held = end - first;
        if (first == end) t->first = t->count, t->held = 0;
        t->columns = i == 0 ? 50 : i == 2 ? 76 : 0; t->adamw = i == 1;
        t->weights = n->weights[i]; t->extra = extra ? n->extra[i] : NULL; t->gradients = n->gradients[i];
        for (k = 0; k < end - first; ++k) {
            const float w = (float)((int)((first + k) * 7919 % 1000) - 500) / 512;
            if (weights == MEMOPT_TYPE_F32) n->weights[i][k] = w;
            else CHECK(memopt_bf16_from_f32((uint16_t *)(void *)n->weights[i] + k, &w, 1, NULL) == MEMOPT_OK);
        }
    }
    d.kind = kind; d.state = state; d.weights = weights; d.extra = extra; d.tensors = n->tensors; d.tensor_count = NET_TENSORS; d.seed = 7;
    d.first_moment = kind == MEMOPT_OPTIM_SGD || kind == MEMOPT_OPTIM_ADAFACTOR;
    if (kind == MEMOPT_OPTIM_MUON) d.muon = memopt_muon_products(MEMOPT_TYPE_BF16);
    if (memopt_optim_open(&d, NULL, &n->optim)) return 0;
    n->save.items = n->items;
    for (i = 0; i < NET_TENSORS; ++i) if (memopt_save_optim_items(n->optim, i, net_names[i], n->items, &n->save.item_count)) return 0;
    n->items[n->save.item_count++] = run_item(NULL, "state", MEMOPT_TENSOR_U64, 2, n->state); /* every rank has all of it */
    n->save.tile = 8192;
    return 1;
}
static memopt_status net_step(save_net *n, memopt_optim_kind kind, uint64_t step) {
    memopt_optim_group g = memopt_optim_group_default(kind); memopt_optim_run r; size_t i, k;
    memset(&r, 0, sizeof r);
    if (kind == MEMOPT_OPTIM_SGD) g.beta1 = 0.9;
    r.step = step; r.groups = &g; r.group_count = 1;
    for (i = 0; i < NET_TENSORS; ++i)
        for (k = 0; k < net_counts[i] - n->tensors[i].first; ++k) {
            uint64_t seed = step * 1000003 + i * 50021 + n->tensors[i].first + k;
            n->gradients[i][k] = (float)((double)(test_random(&seed) >> 40) / (1 << 24) - 0.5) * (float)(1 + (n->tensors[i].first + k) % 7);
        }
    n->state[0] = step; n->state[1] = step * step;
    return memopt_optim_step(n->optim, &r);
}
/* Everything of a whole net against the part that another one holds. */
static int net_same(save_net *whole, save_net *part) {
    size_t i;
    for (i = 0; i < whole->save.item_count; ++i) {
        const memopt_save_item *a = &whole->items[i], *b = &part->items[i]; const size_t element = memopt_tensor_type_bits(a->type) / 8;
        if (a->type != b->type || a->count != b->count || strcmp(a->name, b->name)) return 0;
        if (b->held && memcmp((const char *)a->data + (size_t)b->first * element, b->data, (size_t)b->held * element)) return 0;
    }
    return 1;
}
static const struct { memopt_optim_kind kind; memopt_state_format state; memopt_type weights; memopt_optim_extra extra; int ranks; const char *first, *last; } net_kinds[] = {
    { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE, 1, "w/a", "v.scale/c" },
    { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_SPLIT, 1, "w/a", "v.scale/c" },
    { MEMOPT_OPTIM_ADAM, MEMOPT_STATE_BF16, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_COPY, 1, "w/a", "v/c" },
    { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BNB, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_NONE, 1, "w/a", "absmax2/c" },
    { MEMOPT_OPTIM_SGD, MEMOPT_STATE_F32, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE, 1, "w/a", "m/c" },
    { MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE, 1, "w/a", "v.scale/c" },
    { MEMOPT_OPTIM_LION, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE, 1, "w/a", "m.scale/c" },
    { MEMOPT_OPTIM_ADAFACTOR, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE, 0, "w/a", "columns/c" },
    { MEMOPT_OPTIM_LAMB, MEMOPT_STATE_F32, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE, 0, "w/a", "v/c" },
    { MEMOPT_OPTIM_MUON, MEMOPT_STATE_8BIT, MEMOPT_TYPE_BF16, MEMOPT_OPTIM_EXTRA_SPLIT, 0, "w/a", "m.scale/c" }
};
static int net_is_called(const memopt_save_item *item, const char *name) {
    char full[40];
    snprintf(full, sizeof full, "%s%s", item->prefix, item->name);
    return !strcmp(full, name);
}
/* Each kind: 3 steps, a save, 3 more; loaded into a new one, and into parts of five ranks, one after the other. */
static void save_optims(void) {
    size_t k, rank; save_net *whole = (save_net *)malloc(sizeof *whole), *other = (save_net *)malloc(sizeof *other); uint64_t step; size_t count = 1;
    if (!whole || !other) return;
    for (k = 0; k < sizeof net_kinds / sizeof *net_kinds; ++k) {
        save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_saved *saved = NULL;
        CHECK_AT(net_open(whole, 0, 1, net_kinds[k].kind, net_kinds[k].state, net_kinds[k].weights, net_kinds[k].extra), k);
        CHECK_AT(net_is_called(&whole->items[0], net_kinds[k].first) && net_is_called(&whole->items[whole->save.item_count - 2], net_kinds[k].last), k);
        for (step = 1; step <= 3; ++step) CHECK_AT(net_step(whole, net_kinds[k].kind, step) == MEMOPT_OK, k);
        whole->save.path = "run"; whole->save.host = &h; whole->save.step = 3;
        CHECK_AT(memopt_save_write(&whole->save) == MEMOPT_OK && memopt_saved_open(&whole->save, &saved) == MEMOPT_OK, k);
        for (rank = 0; rank < 5; ++rank) { /* a part in a new optimizer, which begins with zeros */
            CHECK_AT(net_open(other, rank, 5, net_kinds[k].kind, net_kinds[k].state, net_kinds[k].weights, net_kinds[k].extra), k);
            memset(other->weights, 0, sizeof other->weights);
            CHECK_AT(memopt_saved_read(saved, &other->save) == MEMOPT_OK && net_same(whole, other) && other->state[1] == 9, k * 10 + rank);
            memopt_optim_close(other->optim);
        }
        CHECK_AT(net_open(other, 0, 1, net_kinds[k].kind, net_kinds[k].state, net_kinds[k].weights, net_kinds[k].extra), k);
        CHECK_AT(memopt_saved_read(saved, &other->save) == MEMOPT_OK, k);
        for (step = 4; step <= 6; ++step) CHECK_AT(net_step(whole, net_kinds[k].kind, step) == MEMOPT_OK && net_step(other, net_kinds[k].kind, step) == MEMOPT_OK, k);
        CHECK_AT(net_same(whole, other), k);
        memopt_saved_close(saved);
        memopt_optim_close(other->optim);
        memopt_optim_close(whole->optim);
        CHECK_AT(d->f.live_blocks == 0, k);
        disk_free(d);
    }
    CHECK(net_open(whole, 0, 1, MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE));
    CHECK(memopt_save_optim_items(NULL, 0, "a", whole->items, &count) == MEMOPT_ERR_ARGUMENT && count == 1);
    CHECK(memopt_save_optim_items(whole->optim, 0, NULL, whole->items, &count) == MEMOPT_ERR_ARGUMENT && count == 1);
    CHECK(test_error_says(memopt_optim_error(whole->optim), MEMOPT_ERR_ARGUMENT, "name, items or count is NULL"));
    CHECK(memopt_save_optim_items(whole->optim, 0, "a", NULL, &count) == MEMOPT_ERR_ARGUMENT && memopt_save_optim_items(whole->optim, 0, "a", whole->items, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_save_optim_items(whole->optim, 3, "a", whole->items, &count) == MEMOPT_ERR_ARGUMENT && count == 1);
    memopt_optim_close(whole->optim);
    free(other); free(whole);
}

/* An optimizer and the engine's own items by one call each: what lists by hand save, in the same order, and its bits. */
static void save_whole_optim(void) {
    static const char *const names[NET_TENSORS] = { "first", "second", "third" }; static const char *const twice[NET_TENSORS] = { "a", "b", "a" }, *const none[NET_TENSORS] = { "a", NULL, "c" };
    save_net *whole = (save_net *)malloc(sizeof *whole), *other = (save_net *)malloc(sizeof *other); save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_save_desc s; memopt_saved *saved = NULL; memopt_tensors *t = NULL;
    memopt_save_item own[2]; uint64_t step = 77, at, disk = 0; size_t memory = 0, k, n; uint32_t content = 0; memopt_error why = memopt_i_error(MEMOPT_OK, NULL), newest = why;
    if (!whole || !other) return;
    CHECK(net_open(whole, 0, 1, MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE) && net_open(other, 0, 1, MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE));
    for (at = 1; at <= 3; ++at) CHECK(net_step(whole, MEMOPT_OPTIM_ADAMW, at) == MEMOPT_OK);
    for (k = 0; k < 2; ++k) { /* with names, without */
        memset(&s, 0, sizeof s);
        own[0] = run_item(NULL, "step", MEMOPT_TENSOR_U64, 1, &whole->state[0]); own[1] = run_item(NULL, "square", MEMOPT_TENSOR_U64, 1, &whole->state[1]);
        step = 77;
        s.path = "run"; s.host = &h; s.items = own; s.item_count = 2; s.optim = whole->optim; s.names = k ? NULL : names; s.error = &why; s.step = 3;
        CHECK(memopt_save_resume(&s, &step, &newest) == MEMOPT_OK && step == 77 && !why.status && !newest.status && whole->state[0] == 3); /* nothing was saved yet */
        CHECK(memopt_save_bytes(&s, &memory, &disk) == MEMOPT_OK && d->f.live_blocks == 0);
        d->f.peak_bytes = 0;
        CHECK(memopt_save_write(&s) == MEMOPT_OK && d->f.live_blocks == 0 && d->f.bad_frees == 0 && d->f.peak_bytes == memory);
        CHECK(memopt_tensors_open(&h, "run/gen-1-step-3/rank-0-of-1.safetensors", &t, NULL) == MEMOPT_OK && t->count == whole->save.item_count + 1);
        CHECK(t && memopt_tensors_find(t, k ? "w/2@0" : "w/third@0") && memopt_tensors_find(t, k ? "v.scale/0@0" : "v.scale/first@0") && memopt_tensors_find(t, "square@0"));
        memopt_tensors_close(t); t = NULL;
        content = memopt_crc32c(0, whole->state, sizeof whole->state);
        for (n = 0; n < whole->save.item_count - 1; ++n) content = memopt_crc32c(content, whole->items[n].data, (size_t)whole->items[n].count * (memopt_tensor_type_bits(whole->items[n].type) / 8));
        CHECK(memopt_saved_open(&s, &saved) == MEMOPT_OK && memopt_saved_content(saved) == content);
        memopt_saved_close(saved); saved = NULL;
        s.optim = other->optim; own[0].data = &other->state[0]; own[1].data = &other->state[1];
        memset(other->weights, 0, sizeof other->weights); memset(other->state, 0, sizeof other->state); step = 77;
        for (n = 1; n < 300; ++n) { /* any call of the host fails */
            memopt_status got;
            d->f.calls = 0; d->f.fail_on = n; step = 77;
            why = memopt_i_error(MEMOPT_OK, NULL);
            got = memopt_save_resume(&s, &step, &newest);
            CHECK_AT((!got ? step == 3 && !why.status : step == 77 && save_is_told(&why, got)) && d->f.live_blocks == 0 && d->f.bad_frees == 0, n);
            if (d->f.calls < n) break;
        }
        d->f.fail_on = 0;
        CHECK(n > 10 && n < 300 && d->f.live_blocks == 0 && step == 3 && !newest.status && net_same(whole, other) && other->state[1] == 9);
        why = memopt_i_error(MEMOPT_OK, NULL); s.step = 4;
        CHECK(memopt_save_write(&s) == MEMOPT_OK);
        d->files[disk_find(d, "run/gen-2-step-4/manifest") < 0 ? 0 : d->names[disk_find(d, "run/gen-2-step-4/manifest")].file].bytes[20] ^= 1;
        CHECK(memopt_save_resume(&s, &step, &newest) == MEMOPT_OK && step == 3 && test_says(&newest, MEMOPT_ERR_FORMAT, "save: manifest has another checksum"));
        CHECK(memopt_save_resume(&s, NULL, NULL) == MEMOPT_OK);
        disk_clear(d);
    }
    REFUSES(s.error, s.names = twice, memopt_save_write(&s), MEMOPT_ERR_ARGUMENT, "save: name occurs twice at item 14");
    REFUSES(s.error, s.names = none, memopt_save_write(&s), MEMOPT_ERR_ARGUMENT, "save: names is NULL at tensor 1");
    REFUSES(s.error, (s.names = names, s.items = NULL), memopt_save_write(&s), MEMOPT_ERR_ARGUMENT, "save: items is NULL");
    s.item_count = 0; s.error = &why; /* the optimizer alone */
    CHECK(memopt_save_write(&s) == MEMOPT_OK && memopt_save_resume(&s, &step, NULL) == MEMOPT_OK && d->f.live_blocks == 0 && memopt_save_resume(NULL, &step, NULL) == MEMOPT_ERR_ARGUMENT);
    s.item_count = 100000001;
    CHECK(memopt_save_resume(&s, &step, NULL) == MEMOPT_ERR_ARGUMENT && test_says(&why, MEMOPT_ERR_ARGUMENT, "save: item_count 100000001, limit 100000000"));
    memopt_optim_close(whole->optim); memopt_optim_close(other->optim);
    free(other); free(whole);
    disk_free(d);
}

/* ---- a shard's, with a slow tier: the items, the bytes and the bits of an optimizer that has it all ---- */
typedef struct slow_net { memopt_shard_tensor tensors[NET_TENSORS]; size_t tiles[200]; memopt_shard_desc desc; memopt_shard *shard; memopt_store *store; uint64_t state[2];
    memopt_save_item items[NET_TENSORS * MEMOPT_SAVE_OPTIM_ITEMS + 1]; memopt_save_desc save; } slow_net;
static int slow_open(slow_net *n, size_t kind, int slow) {
    memopt_store_desc s; memopt_shard_bytes b; size_t i;
    memset(n, 0, sizeof *n); memset(&s, 0, sizeof s);
    for (i = 0; i < NET_TENSORS; ++i) { n->tensors[i].count = net_counts[i]; n->tensors[i].columns = i == 0 ? 50 : i == 2 ? 76 : 0; n->tensors[i].adamw = i == 1; n->tensors[i].group = i / 2; }
    n->desc.stage = 3; n->desc.tensors = n->tensors; n->desc.tensor_count = NET_TENSORS; n->desc.slow = slow; n->desc.tile = 2048;
    n->desc.optim.kind = net_kinds[kind].kind; n->desc.optim.state = net_kinds[kind].state; n->desc.optim.weights = net_kinds[kind].weights; n->desc.optim.extra = net_kinds[kind].extra;
    if (net_kinds[kind].kind == MEMOPT_OPTIM_MUON) n->desc.optim.muon = memopt_muon_products(MEMOPT_TYPE_BF16);
    n->desc.optim.seed = 7; n->desc.optim.first_moment = net_kinds[kind].kind == MEMOPT_OPTIM_SGD || net_kinds[kind].kind == MEMOPT_OPTIM_ADAFACTOR;
    if (memopt_shard_plan(&n->desc, &b) || b.slow_tiles > 200) return 0;
    if (slow) {
        if (memopt_shard_tiles(&n->desc, n->tiles)) return 0;
        s.tiles = b.slow_tiles; s.each_bytes = n->tiles; s.transfers = b.slow_transfers;
        if (memopt_store_create(&s, &n->store)) return 0;
        n->desc.store = n->store;
    }
    if (memopt_shard_open(&n->desc, NULL, &n->shard)) return 0;
    n->save.items = n->items;
    for (i = 0; i < NET_TENSORS; ++i) if (memopt_save_shard_items(n->shard, i, net_names[i], n->items, &n->save.item_count)) return 0;
    n->items[n->save.item_count++] = run_item(NULL, "state", MEMOPT_TENSOR_U64, 2, n->state);
    n->save.tile = 8192;
    return 1;
}
static void slow_close(slow_net *n) { memopt_shard_close(n->shard); memopt_store_destroy(n->store); }
static memopt_status slow_step(slow_net *n, const save_net *like, uint64_t step) { /* with its gradients */
    memopt_optim_group g = memopt_optim_group_default(n->desc.optim.kind); memopt_optim_run r; size_t unit, i; memopt_status s = memopt_shard_next_unit(n->shard, &unit);
    memset(&r, 0, sizeof r);
    if (n->desc.optim.kind == MEMOPT_OPTIM_SGD) g.beta1 = 0.9;
    r.step = step; r.groups = &g; r.group_count = 1;
    for (i = 0; !s && i < 4; ++i) {
        const size_t group = i < 2 ? i : 3 - i; size_t t;
        s = i < 2 ? memopt_shard_forward(n->shard, group) : memopt_shard_backward(n->shard, group);
        for (t = 2 * group; i > 1 && !s && t < 2 * group + 2 && t < NET_TENSORS; ++t) memcpy(memopt_shard_gradients(n->shard, t), like->gradients[t], net_counts[t] * sizeof(float));
        if (i > 1 && !s) s = memopt_shard_reduce(n->shard, group);
    }
    if (!s) s = memopt_shard_next_unit(n->shard, &unit);
    n->state[0] = step; n->state[1] = step * step;
    return s ? s : memopt_shard_step(n->shard, &r);
}
static uint32_t slow_content(memopt_save_desc *save, const char *path, const memopt_host *h, uint64_t step) { /* saved, and looked at; 0: it failed */
    memopt_saved *saved = NULL; uint32_t content = 0;
    save->path = path; save->host = h; save->step = step;
    if (!memopt_save_write(save) && !memopt_saved_open(save, &saved)) content = memopt_saved_content(saved);
    memopt_saved_close(saved);
    return content;
}
static void save_slow(void) {
    static const int tiers[] = { 0, 1, 3, 4, 7 }; size_t k, t; static slow_net n; save_net *whole = (save_net *)malloc(sizeof *whole); uint64_t step; memopt_saved *saved = NULL;
    for (k = 0; whole && k < sizeof net_kinds / sizeof *net_kinds; ++k) for (t = 0; t < sizeof tiers / sizeof *tiers; ++t) {
        save_disk *d; memopt_host h; uint32_t content; const size_t at = k * 10 + t;
        if (test_is_passed_over()) continue;
        d = disk_new(); h = disk_host(d);
        CHECK_AT(net_open(whole, 0, 1, net_kinds[k].kind, net_kinds[k].state, net_kinds[k].weights, net_kinds[k].extra), at);
        for (step = 1; step <= 3; ++step) CHECK_AT(net_step(whole, net_kinds[k].kind, step) == MEMOPT_OK, at);
        content = slow_content(&whole->save, "whole", &h, 3);
        if (!slow_open(&n, k, tiers[t])) { CHECK_AT(0, at); continue; }
        n.save.path = "whole"; n.save.host = &h;
        CHECK_AT(n.save.item_count == whole->save.item_count && memopt_saved_open(&n.save, &saved) == MEMOPT_OK && memopt_saved_read(saved, &n.save) == MEMOPT_OK && memopt_shard_share(n.shard) == MEMOPT_OK, at);
        memopt_saved_close(saved); saved = NULL;
        CHECK_AT(content && slow_content(&n.save, "slow", &h, 3) == content, at);
        CHECK_AT(net_step(whole, net_kinds[k].kind, 4) == MEMOPT_OK && slow_step(&n, whole, 4) == MEMOPT_OK, at);
        content = slow_content(&whole->save, "whole", &h, 4);
        CHECK_AT(content && slow_content(&n.save, "slow", &h, 4) == content, at); /* in the middle of a training */
        CHECK_AT(net_step(whole, net_kinds[k].kind, 5) == MEMOPT_OK && slow_step(&n, whole, 5) == MEMOPT_OK, at);
        CHECK_AT(slow_content(&n.save, "slow", &h, 5) == slow_content(&whole->save, "whole", &h, 5), at);
        slow_close(&n); memopt_optim_close(whole->optim); disk_free(d);
    }
    free(whole);
}
static memopt_status slow_fails(const memopt_save_item *item, uint64_t first, size_t count, void *bytes, int loads) {
    (void)item; (void)first; (void)count; (void)bytes;
    return loads ? MEMOPT_ERR_CORRUPT : MEMOPT_ERR_IO;
}
static void save_slow_refuses(void) {
    static slow_net n; static save_run r; save_disk *d = disk_new(); memopt_host h = disk_host(d); memopt_error why = memopt_i_error(MEMOPT_OK, NULL); memopt_saved *saved = NULL; size_t count = 0, unit, i; memopt_save_item items[MEMOPT_SAVE_OPTIM_ITEMS];
    CHECK(slow_open(&n, 0, 7));
    CHECK(memopt_save_shard_items(NULL, 0, "a", items, &count) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_save_shard_items(n.shard, 0, NULL, items, &count) == MEMOPT_ERR_ARGUMENT && memopt_save_shard_items(n.shard, 0, "a", NULL, &count) == MEMOPT_ERR_ARGUMENT && memopt_save_shard_items(n.shard, 0, "a", items, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_shard_error(n.shard), MEMOPT_ERR_ARGUMENT, "name, items or count is NULL"));
    CHECK(memopt_save_shard_items(n.shard, NET_TENSORS, "a", items, &count) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_shard_error(n.shard), MEMOPT_ERR_ARGUMENT, "no such tensor") && !count);
    n.save.path = "run"; n.save.host = &h; n.save.error = &why;
    CHECK(memopt_shard_next_unit(n.shard, &unit) == MEMOPT_OK && memopt_save_write(&n.save) == MEMOPT_ERR_STATE); /* within a step */
    CHECK(test_says(&why, MEMOPT_ERR_STATE, "save: move_fn did not move its elements at item 2") && test_error_says(memopt_shard_error(n.shard), MEMOPT_ERR_STATE, "shard: a step has begun"));
    slow_close(&n);
    CHECK(slow_open(&n, 0, 0) && memopt_save_shard_items(n.shard, NET_TENSORS, "a", items, &count) == MEMOPT_ERR_ARGUMENT && memopt_shard_error(n.shard).status == MEMOPT_ERR_ARGUMENT);
    slow_close(&n);
    run_begin(&r, &h, "run"); run_set(&r, 1);
    r.save.error = &why;
    CHECK(memopt_save_write(&r.save) == MEMOPT_OK);
    r.items[0].move_fn = slow_fails;
    CHECK(memopt_save_write(&r.save) == MEMOPT_ERR_IO && test_says(&why, MEMOPT_ERR_IO, "save: move_fn did not move its elements at item 0"));
    CHECK(memopt_saved_open(&r.save, &saved) == MEMOPT_OK && memopt_saved_step(saved) == 1 && memopt_saved_read(saved, &r.save) == MEMOPT_ERR_CORRUPT);
    r.items[0].move_fn = NULL;
    for (i = 0; saved->files[0].tensors.tensors[i].type != MEMOPT_TENSOR_F32; ++i) { }
    ++((memopt_tensor *)(uintptr_t)saved->files[0].tensors.tensors)[i].begin; /* as no file of ours has it */
    CHECK(memopt_saved_read(saved, &r.save) == MEMOPT_ERR_FORMAT && test_says(&why, MEMOPT_ERR_FORMAT, "save: place is not a multiple of its elements' bytes in the save at item 0"));
    ((memopt_tensor *)(uintptr_t)saved->files[0].tensors.tensors)[i].type = MEMOPT_TENSOR_F4; /* half a byte: nothing to divide by */
    CHECK(memopt_saved_read(saved, &r.save) == MEMOPT_ERR_FORMAT && test_says(&why, MEMOPT_ERR_FORMAT, "save: type is another one in the save at item 0"));
    memopt_saved_close(saved);
    disk_free(d);
}

#if defined(MEMOPT_I_POOL)
/* What is synced is not the question where ranks are: it takes most of the time. */
static memopt_status crowd_sync(void *user, void *file) { (void)user; (void)file; return MEMOPT_OK; }
static memopt_status crowd_sync_dir(void *user, const char *path) { (void)user; (void)path; return MEMOPT_OK; }
/* Ranks as threads. Each opens its part, loads what is there, makes three steps, saves. */
typedef struct crowd { memopt_ranks *ranks; size_t count; const char *path; const memopt_host *host; uint64_t begin; save_net *nets; memopt_status status[NET_RANKS]; memopt_error why[NET_RANKS];
    uint32_t content; size_t fail_rank, fail_on, calls; int odd, looks; uint64_t found[NET_RANKS]; } crowd;
static void crowd_rank(void *task, size_t rank, int worker) {
    crowd *c = (crowd *)task; save_net *n = &c->nets[rank]; memopt_comm_desc cd; memopt_comm *comm = NULL; memopt_saved *saved = NULL; memopt_status s; uint64_t step;
    test_faults f; memopt_host h = *c->host;
    (void)worker;
    memset(&f, 0, sizeof f);
    memset(&cd, 0, sizeof cd);
    cd.transport = memopt_ranks_transport(c->ranks, rank);
    s = memopt_comm_create(&cd, &comm);
    if (!s && !net_open(n, rank, c->count, MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE)) s = MEMOPT_ERR_MEMORY;
    if (c->fail_on && rank == c->fail_rank) { h = test_host(&f); f.fail_on = c->fail_on; }
    n->save.path = c->path; n->save.host = &h; n->save.comm = comm; n->save.error = &c->why[rank];
    if (c->odd && rank == 1) n->items[0].name = "other";
    if (c->looks) { /* which generation, and no more */
        if (!s) s = memopt_saved_open(&n->save, &saved);
        c->found[rank] = s ? 0 : memopt_saved_step(saved);
        if (!s) memopt_saved_close(saved);
        if (rank == c->fail_rank) c->calls = f.calls;
        c->status[rank] = s;
        memopt_comm_destroy(comm);
        return;
    }
    if (!s && c->begin > 1) {
        s = memopt_saved_open(&n->save, &saved);
        if (!s) s = memopt_saved_read(saved, &n->save);
        if (!s && (memopt_saved_step(saved) != c->begin - 1 || memopt_saved_refused(saved, NULL))) s = MEMOPT_ERR_STATE;
        memopt_saved_close(saved);
    }
    if (!s) s = memopt_save_lock_open(&n->save, &n->save.lock);
    for (step = c->begin; step < c->begin + 3 && !s; ++step) s = net_step(n, MEMOPT_OPTIM_ADAMW, step);
    n->save.step = c->begin + 2;
    if (!s) s = memopt_save_write(&n->save);
    if (!s) s = memopt_saved_open(&n->save, &saved);
    if (!s && !rank) c->content = memopt_saved_content(saved);
    if (!s) memopt_saved_close(saved);
    memopt_save_lock_close(n->save.lock);
    if (rank == c->fail_rank) c->calls = f.calls;
    c->status[rank] = s;
    memopt_comm_destroy(comm);
}
static int crowd_run(crowd *c, size_t count, uint64_t begin) { /* 1: all ranks went well */
    memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads t; size_t i; int good = 1;
    memset(&d, 0, sizeof d);
    d.rank_count = count; d.deadline = UINT64_C(60000000000);
    c->count = count; c->begin = begin;
    memset(c->why, 0, sizeof c->why);
    CHECK(memopt_ranks_create(&d, &c->ranks) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)count, &pool) == MEMOPT_OK);
    t = memopt_thread_pool_threads(pool);
    if (count > 1) t.run_fn(t.user, count, crowd_rank, c);
    else crowd_rank(c, 0, 0);
    for (i = 0; i < count; ++i) if (c->status[i]) good = 0;
    memopt_thread_pool_destroy(pool); memopt_ranks_destroy(c->ranks);
    return good;
}
/* Ranks that save under a path where nothing is yet; 0: no memory. */
static int crowd_begin(crowd *c, memopt_host *h, char path[600], const char *name) {
    memset(c, 0, sizeof *c);
    CHECK(memopt_host_resolve(NULL, h) == MEMOPT_OK);
    h->files.sync_fn = crowd_sync; h->files.sync_dir_fn = crowd_sync_dir;
    c->nets = (save_net *)calloc(NET_RANKS, sizeof *c->nets);
    c->path = path; c->host = h;
    test_path(path, name);
    save_remove_all(h, path);
    return c->nets != NULL;
}
static void crowd_close(crowd *c) {
    size_t i;
    for (i = 0; i < c->count; ++i) { memopt_optim_close(c->nets[i].optim); c->nets[i].optim = NULL; }
}
static void save_ranks(void) { /* R ranks save, R' go on: the bits of one that never stopped */
    static const size_t counts[] = { 1, 2, 3, 4, 8 };
    crowd c; memopt_host h; char path[600]; size_t a, b, i; save_net *whole = (save_net *)malloc(sizeof *whole); uint64_t step; uint32_t content = 0;
    if (!whole || !crowd_begin(&c, &h, path, "ranks")) return;
    CHECK(net_open(whole, 0, 1, MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE));
    for (step = 1; step <= 6; ++step) CHECK(net_step(whole, MEMOPT_OPTIM_ADAMW, step) == MEMOPT_OK);
    for (a = 0; a < 5; ++a)
        for (b = 0; b < 5; ++b) {
            if (test_is_passed_over()) continue;
            save_remove_all(&h, path);
            CHECK_AT(crowd_run(&c, counts[a], 1), a * 10 + b);
            if (!content) content = c.content;
            CHECK_AT(c.content == content, a * 10 + b);
            crowd_close(&c);
            CHECK_AT(crowd_run(&c, counts[b], 4), a * 10 + b);
            for (i = 0; i < counts[b]; ++i) CHECK_AT(net_same(whole, &c.nets[i]), a * 10 + b);
            crowd_close(&c);
        }
    { uint32_t crc = 0; /* the content is that of the whole, in the order of its items */
      for (i = 0; i < whole->save.item_count; ++i) crc = memopt_crc32c(crc, whole->items[i].data, (size_t)whole->items[i].count * (memopt_tensor_type_bits(whole->items[i].type) / 8));
      CHECK(c.content == crc); }
    save_remove_all(&h, path);
    memopt_optim_close(whole->optim);
    free(c.nets); free(whole);
}
/* Two pieces of an item that begin at the same place, though together they may have as many elements as it: not all of it. */
static void save_ranks_hole(void) {
    crowd c; memopt_host h; char path[600]; memopt_saved *saved = NULL; memopt_error why = memopt_i_error(MEMOPT_OK, NULL);
    save_net *n = (save_net *)malloc(sizeof *n);
    if (!n || !crowd_begin(&c, &h, path, "hole")) { free(n); return; }
    CHECK(crowd_run(&c, 2, 1));
    crowd_close(&c);
    CHECK(net_open(n, 0, 1, MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_TYPE_F32, MEMOPT_OPTIM_EXTRA_NONE));
    n->save.path = path; n->save.host = &h; n->save.error = &why;
    CHECK(memopt_saved_open(&n->save, &saved) == MEMOPT_OK && memopt_saved_read(saved, &n->save) == MEMOPT_OK);
    if (saved) {
        const memopt_save_item *item = &n->save.items[0];
        const memopt_tensors second = saved->files[1].tensors;

        CHECK(memopt_tensors_find(&saved->files[0].tensors, "state@0") && !memopt_tensors_find(&second, "state@0")); /* what both hold is written once */
        saved->files[1].tensors = saved->files[0].tensors; /* as a stranger's file might have them */
        n->save.item_count = 1;
        CHECK(memopt_saved_read(saved, &n->save) == MEMOPT_ERR_FORMAT && why.argument && !strcmp(why.argument, "elements in the save"));
        CHECK(why.got.count == net_border(net_counts[0], 1, 2) && why.limit.count == item->held); /* the first piece counts once, and the second is missing */
        saved->files[0].tensors = second; /* the pieces the other way round: nothing is missing, though the bytes lie elsewhere */
        CHECK(memopt_saved_read(saved, &n->save) != MEMOPT_ERR_FORMAT);
        saved->files[0].tensors = saved->files[1].tensors;
        saved->files[1].tensors = second;
    }
    memopt_saved_close(saved);
    memopt_optim_close(n->optim);
    save_remove_all(&h, path);
    free(c.nets); free(n);
}
static void save_ranks_fail(void) { /* one rank's host fails at any call: all know it, and what was there is there */
    crowd c; memopt_host h; char path[600]; size_t n, i; int good = 0;
    if (!crowd_begin(&c, &h, path, "fails")) return;
    c.odd = 1;
    CHECK(!crowd_run(&c, 3, 1));
    for (i = 0; i < 3; ++i) CHECK(c.status[i] == MEMOPT_ERR_ARGUMENT && test_says(&c.why[i], MEMOPT_ERR_ARGUMENT, "save: items are others than those of rank 0 at rank 1"));
    crowd_close(&c);
    c.odd = 0;
    CHECK(crowd_run(&c, 2, 1));
    crowd_close(&c);
    for (c.fail_rank = 0; c.fail_rank < 3; c.fail_rank += 2)
        for (n = 1, good = 0; n < 400 && !good; n += TEST_STRIDE) {
            size_t same = 0;
            c.fail_on = n;
            good = crowd_run(&c, 3, 4);
            for (i = 0; i < 3; ++i) same += c.status[i] == c.status[0] || c.status[i] == MEMOPT_ERR_CORRUPT;
            CHECK_AT(good || (same == 3 && c.status[0]), n);
            for (i = 0; i < 3 && !good; ++i) CHECK_AT(save_is_told(&c.why[i], c.status[i]) || c.status[i] == MEMOPT_ERR_STATE, n);
            if (n == 1) CHECK(test_says(&c.why[1], MEMOPT_ERR_MEMORY, c.fail_rank ? "save: another rank failed at rank 2" : "save: another rank failed at rank 0"));
            if (good) good = c.calls < n;
            crowd_close(&c);
            c.fail_on = 0;
            save_remove_all(&h, path);
            CHECK_AT(crowd_run(&c, 2, 1), n);
            crowd_close(&c);
        }
    CHECK(good && n > 30);
    save_remove_all(&h, path);
    free(c.nets);
}
typedef struct swap { memopt_ranks *ranks; memopt_host host; const char *path; unsigned char bytes[9000], more[700]; uint64_t state; uint32_t content[2]; memopt_status status[2]; } swap;
static void swap_rank(void *task, size_t rank, int worker) { /* the first rank has the end of an item, the second its begin */
    swap *w = (swap *)task; memopt_comm_desc cd; memopt_comm *comm = NULL; memopt_save_desc d; memopt_save_item items[2], whole[4]; memopt_saved *saved = NULL; memopt_status s;
    (void)worker;
    memset(&cd, 0, sizeof cd); memset(&d, 0, sizeof d);
    cd.transport = memopt_ranks_transport(w->ranks, rank);
    items[0] = run_item(NULL, "bytes", MEMOPT_TENSOR_U8, sizeof w->bytes, w->bytes + (rank ? 0 : 5000));
    items[0].first = rank ? 0 : 5000; items[0].held = rank ? 5000 : 4000;
    items[1] = run_item(NULL, "state", MEMOPT_TENSOR_U64, 1, &w->state);
    s = memopt_comm_create(&cd, &comm);
    d.path = w->path; d.items = items; d.item_count = 2; d.comm = comm; d.host = &w->host; d.step = 1;
    whole[0] = items[0]; whole[0].name = "b";
    whole[1] = run_item(NULL, "a", MEMOPT_TENSOR_U8, 3000, w->bytes + (rank ? 0 : 1000)); /* two ranges in this file, with one of others between */
    whole[1].first = rank ? 0 : 1000; whole[1].held = rank ? 1000 : 2000;
    whole[2] = run_item(NULL, "more", MEMOPT_TENSOR_U8, sizeof w->more, rank ? w->more : NULL); /* only one that is not the first has it */
    whole[2].held = rank ? sizeof w->more : 0;
    whole[3] = run_item(NULL, "state", MEMOPT_TENSOR_U64, 1, &w->state);
    d.model = whole; d.model_count = 4; d.model_bytes = 12000; d.beside = 1; d.tile = 4096;
    if (!s) s = memopt_save_write(&d);
    if (!s) s = memopt_saved_open(&d, &saved);
    if (!s) { w->content[rank] = memopt_saved_content(saved); memopt_saved_close(saved); }
    w->status[rank] = s;
    memopt_comm_destroy(comm);
}
static int swap_read(const memopt_host *h, const char *path, unsigned char *bytes, size_t count, size_t *done) {
    void *file = NULL; memopt_status s = h->files.open_fn(h->files.user, path, MEMOPT_OPEN_READ, &file);
    if (!s) s = h->files.read_fn(h->files.user, file, 0, bytes, count, done);
    return !s && !h->files.close_fn(h->files.user, file);
}
static memopt_status swap_make_dir(void *user, const char *path) { /* somebody puts a file where ranks are to write theirs together */
    memopt_host h; memopt_status s = memopt_host_resolve(NULL, &h); char file[700]; void *open = NULL;
    if (!s) s = h.files.make_dir_fn(user, path);
    snprintf(file, sizeof file, "%s/model-00001-of-00002.safetensors", path);
    if (!s && strstr(path, ".tmp") && !h.files.open_fn(user, file, MEMOPT_OPEN_WRITE, &open)) (void)h.files.close_fn(user, open);
    return s;
}
static void save_ranks_swapped(void) {
    static swap w; memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads t; char path[600]; size_t i; uint32_t crc;
    memset(&d, 0, sizeof d);
    d.rank_count = 2; d.deadline = UINT64_C(60000000000);
    CHECK(memopt_host_resolve(NULL, &w.host) == MEMOPT_OK && memopt_ranks_create(&d, &w.ranks) == MEMOPT_OK && memopt_thread_pool_create(NULL, 2, &pool) == MEMOPT_OK);
    test_path(path, "swapped");
    save_remove_all(&w.host, path);
    w.path = path; w.state = 7;
    memset(w.more, 0x5a, sizeof w.more);
    for (i = 0; i < sizeof w.bytes; ++i) w.bytes[i] = (unsigned char)(i * i >> 5);
    t = memopt_thread_pool_threads(pool);
    t.run_fn(t.user, 2, swap_rank, &w);
    crc = memopt_crc32c(memopt_crc32c(0, w.bytes, sizeof w.bytes), &w.state, sizeof w.state);
    for (i = 0; i < 2; ++i) CHECK_AT(w.status[i] == MEMOPT_OK && w.content[i] == crc, i);
    { static unsigned char got[20000]; size_t done = 0; const size_t end = strlen(path);
      strcat(path, "/gen-1-step-1/model-00001-of-00002.safetensors");
      CHECK(swap_read(&w.host, path, got, sizeof got, &done) && done == 4096 + 12000 && !memcmp(got + 4096, w.bytes, 3000) && !memcmp(got + 7096, w.bytes, 9000));
      path[end] = 0;
      strcat(path, "/gen-1-step-1/model-00002-of-00002.safetensors");
      CHECK(swap_read(&w.host, path, got, sizeof got, &done) && done == 4096 + 708 && !memcmp(got + 4096, &w.state, 8) && !memcmp(got + 4104, w.more, 700));
      path[end] = 0; }
    w.host.files.make_dir_fn = swap_make_dir;
    t.run_fn(t.user, 2, swap_rank, &w);
    CHECK(w.status[0] == MEMOPT_ERR_STATE && w.status[1] == MEMOPT_ERR_STATE); /* it is not written into */
    save_remove_all(&w.host, path);
    memopt_thread_pool_destroy(pool); memopt_ranks_destroy(w.ranks);
}
static void save_ranks_differ(void) { /* the newest is damaged to one rank, another one cannot look at it: all go the same way */
    crowd c; memopt_host h; char path[600]; size_t n, i, none = 0, unread = 0, older = 0; void *file = NULL; int good = 0;
    if (!crowd_begin(&c, &h, path, "differ")) return;
    CHECK(crowd_run(&c, 2, 1));
    crowd_close(&c);
    CHECK(crowd_run(&c, 2, 4));
    crowd_close(&c);
    i = strlen(path);
    strcat(path, "/gen-2-step-6/rank-0-of-2.safetensors");
    CHECK(h.files.open_fn(h.files.user, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK && h.files.write_fn(h.files.user, file, 9000, "x", 1) == MEMOPT_OK && h.files.close_fn(h.files.user, file) == MEMOPT_OK);
    path[i] = 0;
    c.looks = 1; c.fail_rank = 1;
    for (n = 1; n < 200 && !good; ++n) {
        c.fail_on = n;
        (void)crowd_run(&c, 2, 1);
        crowd_close(&c);
        CHECK_AT(c.found[0] == c.found[1] && c.status[0] == c.status[1], n);
        none += c.status[0] == MEMOPT_ERR_MEMORY;
        unread += c.status[0] == MEMOPT_ERR_IO;
        older += c.found[0] == 3;
        good = c.calls < n && c.found[0] == 3;
    }
    CHECK(good && none >= 4 && older >= 1 && unread >= 4);
    save_remove_all(&h, path);
    free(c.nets);
}
#endif

static void test_save(void) {
#if defined(MEMOPT_I_POOL)
    RUN(save_ranks);
    RUN(save_ranks_hole);
    RUN(save_ranks_fail);
    RUN(save_ranks_swapped);
    RUN(save_ranks_differ);
#endif
#ifdef TEST_THREADS /* as in test_tape.c: what runs on one thread has been seen elsewhere */
    if (test_passed) return;
#endif
    RUN(save_alone);
    RUN(save_file_is_safetensors);
    RUN(save_refuses);
    RUN(save_read_refuses);
    RUN(save_fails);
    RUN(save_close_fails);
    RUN(load_fails);
    RUN(save_crashes);
    RUN(save_beside);
    RUN(save_beside_ready);
    RUN(save_beside_refuses);
    RUN(save_beside_large);
    RUN(save_model);
    RUN(save_model_refuses);
    RUN(save_syncs_names);
    RUN(save_spares);
    RUN(save_two_runs); RUN(save_same_number); RUN(save_no_room);
    RUN(save_looks_back);
    RUN(save_looks_back_fails);
    RUN(save_keeps_what_resumes); RUN(save_resumes_elsewhere); RUN(save_keeps_price);
    RUN(save_lock);
#if defined(MEMOPT_I_POSIX)
    RUN(save_lock_process);
#endif
    RUN(save_new_files);
    RUN(save_path_told);
    RUN(load_overtaken);
    RUN(save_keeps);
    RUN(save_replayed);
    RUN(save_bits);
    RUN(save_cuts);
    RUN(save_foreign);
    RUN(save_foreign_two);
    RUN(save_golden);
    RUN(save_content);
    RUN(save_optims);
    RUN(save_whole_optim);
    RUN(save_slow);
    RUN(save_slow_refuses);
}
#ifndef TEST_COMBINED
int main(void) { test_save(); return test_totals(); }
#endif
