/* replayed_disk.h - a disk of a test's own behind a memopt_files: it keeps a log of all that is done to it, and gives the
   disks that a power cut could have left at any point of it. Include it after test.h.

   Life     replay_new(), then replay_host(): the table. fail_write, fail_sync, fail_dir: the how manieth call of its kind
            fails once, 1: the next. die: after so many calls that change something the process is dead: a write is torn,
            and every call fails. replay_kill(): a new process; what the system had in its cache is there, or, with
            `drops`, only what it had not yet given up to write.
   Promises The file systems': a file's bytes outlive a cut from its sync_fn on, a name from the sync_dir_fn of its
            directory on. A sync that fails has written any part of the bytes, forgets the rest, and the next one says OK; the
            file's length is the file system's own, which does not forget it.
   Cut      Of a file that was not synced since, each sector of 512 bytes is that of any moment since, apart from all
            others, as is the file's length; each change of a directory happened or did not.
   Use      replay_again() begins at the empty disk, replay_step() does one thing more of the log (0: the end), and
            replay_cut() copies what is left then. replay_mark() notes numbers in the log; after a step they are in
            `mark`. Deterministic: by seeds alone. */
#ifndef REPLAYED_DISK_H
#define REPLAYED_DISK_H

enum { REPLAY_SECTOR = 512, REPLAY_NAME = 128, REPLAY_HANDLES = 64 };
enum { REPLAY_NONE, REPLAY_ALL, REPLAY_TORN, REPLAY_ANY, REPLAY_WAYS, REPLAY_BYTES = REPLAY_WAYS }; /* of a cut: what reached the disk; TORN: up to a moment; BYTES: any but the length, which is all */
typedef enum replay_kind { REPLAY_FILE, REPLAY_WRITE, REPLAY_RESIZE, REPLAY_SYNC, REPLAY_LOST, REPLAY_ENTRY, REPLAY_SYNC_DIR, REPLAY_MARK } replay_kind;
typedef struct replay_entry { int dir, inode; char name[REPLAY_NAME]; } replay_entry; /* inode -1: removed */
typedef struct replay_event {
    replay_kind kind; int inode; /* FILE: 1 is a directory's */
    uint64_t offset; size_t count; unsigned char *bytes; /* WRITE: whole sectors; RESIZE: offset; LOST: offset, the seed */
    replay_entry entries[2]; int entry_count; long mark[4];
} replay_event;
typedef struct replay_inode { int is_dir; unsigned char *now, *safe; size_t size, safe_size; size_t *pending, pending_count; } replay_inode;
typedef struct replay_names { replay_entry *all; size_t count; } replay_names;
typedef struct replayed_disk {
    replay_inode *inodes; size_t inode_count;
    replay_names now, safe; size_t *pending, pending_count; /* of names */
    replay_event *events; size_t event_count, next; int is_copy; /* of events: another's log, done up to next */
    struct { int inode, is_open, locks; } handles[REPLAY_HANDLES];
    long fail_write, fail_sync, fail_dir, die, changes; int is_dead; uint64_t seed;
    long mark[4];
} replayed_disk;

static inline void *replay_more(void *old, size_t count, size_t bytes) { /* one more behind `count`, by powers of two */
    void *p = old;
    if (!(count & (count - 1))) p = realloc(old, (count ? 2 * count : 1) * bytes);
    if (!p) { printf("replayed_disk.h: out of memory\n"); exit(1); }
    return p;
}
static inline unsigned char *replay_bytes(unsigned char *old, size_t had, size_t bytes) { /* so many; new ones are 0 */
    unsigned char *p = (unsigned char *)realloc(old, bytes + 1);
    if (!p) { printf("replayed_disk.h: out of memory\n"); exit(1); }
    if (bytes > had) memset(p + had, 0, bytes - had);
    return p;
}
/* -- what is on the disk -- */
static inline size_t replay_moment(int way, uint64_t *seed, size_t shared, size_t n) {
    return way == REPLAY_NONE ? 0 : way == REPLAY_ALL ? n : way == REPLAY_TORN ? shared + (shared < n && test_below(seed, 2)) : test_below(seed, n + 1);
}
/* The bytes of a file when each sector, and the length, have come to a moment of what is pending. */
static inline unsigned char *replay_settled(const replayed_disk *d, const replay_inode *f, int way, uint64_t *seed, size_t *bytes) {
    const size_t n = f->pending_count, shared = n ? test_below(seed, n + 1) : 0, until = replay_moment(way == REPLAY_BYTES ? REPLAY_ALL : way, seed, shared, n);
    size_t size = f->safe_size, most = size, i, k, least = 0, limit = n, *moments; unsigned char *out;
    for (i = 0; i < n; ++i) { /* a file that was cut has no sector of before; one that was not, none of after */
        const replay_event *e = &d->events[f->pending[i]]; const size_t end = e->kind == REPLAY_WRITE ? (size_t)e->offset + e->count : (size_t)e->offset;
        const int cuts = e->kind == REPLAY_RESIZE;
        most = most < end ? end : most;
        if (i < until) { if (cuts && end < size) least = i + 1; size = cuts ? end : size < end ? end : size; }
        else if (cuts && end < most && limit == n) limit = i;
    }
    moments = (size_t *)malloc((most / REPLAY_SECTOR + 1) * sizeof *moments);
    if (!moments) exit(1);
    for (k = 0; k <= most / REPLAY_SECTOR; ++k) {
        moments[k] = replay_moment(way, seed, shared, n);
        if (moments[k] < least) moments[k] = least;
        if (moments[k] > limit) moments[k] = limit;
    }
    out = replay_bytes(NULL, 0, most);
    if (f->safe_size) memcpy(out, f->safe, f->safe_size);
    for (i = 0; i < n; ++i) {
        const replay_event *e = &d->events[f->pending[i]];
        if (e->kind == REPLAY_RESIZE) { if (i < least && e->offset < most) memset(out + e->offset, 0, most - (size_t)e->offset); continue; }
        for (k = 0; k < e->count; k += REPLAY_SECTOR)
            if (i < moments[((size_t)e->offset + k) / REPLAY_SECTOR]) memcpy(out + e->offset + k, e->bytes + k, e->count - k < REPLAY_SECTOR ? e->count - k : (size_t)REPLAY_SECTOR);
    }
    free(moments);
    *bytes = size;
    return out;
}
static inline void replay_settle(replayed_disk *d, replay_inode *f, int way, uint64_t *seed) {
    size_t bytes = 0; unsigned char *out = replay_settled(d, f, way, seed, &bytes);
    free(f->safe);
    f->safe = out; f->safe_size = bytes; f->pending_count = 0;
}
static inline size_t replay_entry_at(const replay_names *n, int dir, const char *name) { /* count: there is none */
    size_t i = 0;
    while (i < n->count && (n->all[i].dir != dir || strcmp(n->all[i].name, name))) ++i;
    return i;
}
static inline void replay_enter(replay_names *n, const replay_event *e) {
    int k; size_t i;
    for (k = 0; k < e->entry_count; ++k) {
        if ((i = replay_entry_at(n, e->entries[k].dir, e->entries[k].name)) < n->count) n->all[i] = n->all[--n->count];
        if (e->entries[k].inode < 0) continue;
        n->all = (replay_entry *)replay_more(n->all, n->count, sizeof *n->all);
        n->all[n->count++] = e->entries[k];
    }
}
/* One event more, of the log at `i`. */
static inline void replay_apply(replayed_disk *d, size_t i) {
    const replay_event *e = &d->events[i]; replay_inode *f = e->kind == REPLAY_FILE || e->inode < 0 ? NULL : &d->inodes[e->inode]; size_t k, left = 0; uint64_t seed = e->offset;
    switch (e->kind) {
    case REPLAY_FILE:
        d->inodes = (replay_inode *)replay_more(d->inodes, d->inode_count, sizeof *d->inodes);
        f = &d->inodes[d->inode_count++];
        memset(f, 0, sizeof *f); f->is_dir = e->inode;
        break;
    case REPLAY_WRITE: case REPLAY_RESIZE:
        if (!f) break;
        f->pending = (size_t *)replay_more(f->pending, f->pending_count, sizeof *f->pending);
        f->pending[f->pending_count++] = i;
        break;
    case REPLAY_SYNC: replay_settle(d, f, REPLAY_ALL, &seed); break;
    case REPLAY_LOST: replay_settle(d, f, REPLAY_BYTES, &seed); break;
    case REPLAY_ENTRY:
        replay_enter(&d->now, e);
        d->pending = (size_t *)replay_more(d->pending, d->pending_count, sizeof *d->pending);
        d->pending[d->pending_count++] = i;
        break;
    case REPLAY_SYNC_DIR:
        for (k = 0; k < d->pending_count; ++k) {
            const replay_event *p = &d->events[d->pending[k]];
            if (p->entries[0].dir == e->inode || p->entries[p->entry_count - 1].dir == e->inode) replay_enter(&d->safe, p);
            else d->pending[left++] = d->pending[k];
        }
        d->pending_count = left;
        break;
    case REPLAY_MARK: memcpy(d->mark, e->mark, sizeof d->mark); break;
    }
}
static inline replay_event *replay_log(replayed_disk *d, replay_kind kind, int inode, uint64_t offset) {
    replay_event *e;
    d->events = (replay_event *)replay_more(d->events, d->event_count, sizeof *d->events);
    e = &d->events[d->event_count++];
    memset(e, 0, sizeof *e);
    e->kind = kind; e->inode = inode; e->offset = offset;
    return e;
}
static inline void replay_did(replayed_disk *d) { replay_apply(d, d->event_count - 1); } /* what was logged last */
static inline void replay_mark(replayed_disk *d, long a, long b, long c, long e) {
    replay_event *m = replay_log(d, REPLAY_MARK, -1, 0);
    m->mark[0] = a; m->mark[1] = b; m->mark[2] = c; m->mark[3] = e;
    replay_did(d);
}
/* -- the table -- */
static inline int replay_dies(replayed_disk *d) { /* 1: at this call; 2: long since */
    if (d->is_dead) return 2;
    if (d->die < 0 || d->changes++ < d->die) return 0;
    return d->is_dead = 1;
}
/* Where a path is: 0 and its directory and last name; its inode, or -1. */
static inline int replay_find(const replayed_disk *d, const char *path, int *dir, char *name, int *inode) {
    int at = 0;
    *dir = 0; *inode = 0; name[0] = 0;
    for (;;) {
        size_t length, i;
        while (*path == '/') ++path;
        if (!*path) return 0;
        length = strcspn(path, "/");
        if (at < 0 || !d->inodes[at].is_dir || length >= REPLAY_NAME) return 1;
        if (length == 1 && *path == '.') { ++path; continue; }
        memcpy(name, path, length); name[length] = 0; path += length;
        *dir = at;
        i = replay_entry_at(&d->now, at, name);
        *inode = at = i < d->now.count ? d->now.all[i].inode : -1;
    }
}
static inline void replay_link(replayed_disk *d, int dir, const char *name, int inode) { /* inode -1: no longer */
    replay_event *e = replay_log(d, REPLAY_ENTRY, -1, 0);
    e->entry_count = 1; e->entries[0].dir = dir; e->entries[0].inode = inode; strcpy(e->entries[0].name, name);
    replay_did(d);
}
static inline int replay_made(replayed_disk *d, int is_dir, int dir, const char *name) {
    (void)replay_log(d, REPLAY_FILE, is_dir, 0); replay_did(d);
    replay_link(d, dir, name, (int)d->inode_count - 1);
    return (int)d->inode_count - 1;
}
static inline memopt_status replay_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    replayed_disk *d = (replayed_disk *)user; const memopt_open_mode plain = MEMOPT_I_OPEN_PLAIN(mode); char name[REPLAY_NAME]; int dir, inode, h;
    if (d->is_dead || replay_find(d, path, &dir, name, &inode)) return MEMOPT_ERR_IO;
    if (inode >= 0 && (plain == MEMOPT_OPEN_NEW || plain == MEMOPT_OPEN_SCRATCH)) return MEMOPT_ERR_STATE;
    if (inode < 0 && (plain == MEMOPT_OPEN_READ || replay_dies(d))) return MEMOPT_ERR_IO;
    if (inode < 0) inode = replay_made(d, 0, dir, name);
    if (d->inodes[inode].is_dir && plain != MEMOPT_OPEN_READ) return MEMOPT_ERR_IO;
    if (plain == MEMOPT_OPEN_SCRATCH) replay_link(d, dir, name, -1);
    for (h = 0; h < REPLAY_HANDLES && d->handles[h].is_open; ++h) {}
    if (h == REPLAY_HANDLES) return MEMOPT_ERR_IO;
    d->handles[h].is_open = 1; d->handles[h].locks = 0; d->handles[h].inode = inode;
    *file = (void *)(intptr_t)(h + 1);
    return MEMOPT_OK;
}
static inline int replay_inode_of(const replayed_disk *d, void *file) { return d->handles[(intptr_t)file - 1].inode; }
static inline memopt_status replay_close(void *user, void *file) {
    replayed_disk *d = (replayed_disk *)user;
    if (d->is_dead) return MEMOPT_ERR_IO;
    CHECK(d->handles[(intptr_t)file - 1].is_open);
    d->handles[(intptr_t)file - 1].is_open = 0;
    return MEMOPT_OK;
}
static inline memopt_status replay_lock(void *user, void *file) {
    replayed_disk *d = (replayed_disk *)user; int h;
    if (d->is_dead) return MEMOPT_ERR_IO;
    for (h = 0; h < REPLAY_HANDLES; ++h) if (d->handles[h].is_open && d->handles[h].locks && d->handles[h].inode == replay_inode_of(d, file)) return MEMOPT_ERR_STATE;
    d->handles[(intptr_t)file - 1].locks = 1;
    return MEMOPT_OK;
}
static inline memopt_status replay_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    replayed_disk *d = (replayed_disk *)user; const replay_inode *f = &d->inodes[replay_inode_of(d, file)]; const size_t left = offset < f->size ? f->size - (size_t)offset : 0;
    if (d->is_dead || f->is_dir) return MEMOPT_ERR_IO;
    *done = left < count ? left : count;
    if (*done) memcpy(bytes, f->now + offset, *done);
    return MEMOPT_OK;
}
static inline memopt_status replay_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    replayed_disk *d = (replayed_disk *)user; const int inode = replay_inode_of(d, file); replay_inode *f = &d->inodes[inode]; const int dies = replay_dies(d), fails = d->fail_write > 0 && --d->fail_write == 0;
    replay_event *e; size_t end, start = (size_t)offset / REPLAY_SECTOR * REPLAY_SECTOR;
    if (dies == 2) return MEMOPT_ERR_IO;
    if (dies || fails) count = test_below(&d->seed, count + 1);
    if (count) {
        end = (size_t)offset + count;
        if (end > f->size) { f->now = replay_bytes(f->now, f->size, end); f->size = end; }
        memcpy(f->now + offset, bytes, count);
        end = (end + REPLAY_SECTOR - 1) / REPLAY_SECTOR * REPLAY_SECTOR;
        if (end > f->size) end = f->size;
        e = replay_log(d, REPLAY_WRITE, inode, start);
        e->count = end - start; e->bytes = replay_bytes(NULL, 0, e->count);
        memcpy(e->bytes, f->now + start, e->count);
        replay_did(d);
    }
    return dies || fails ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static inline memopt_status replay_size(void *user, void *file, uint64_t *bytes) {
    replayed_disk *d = (replayed_disk *)user; const replay_inode *f = &d->inodes[replay_inode_of(d, file)];
    if (d->is_dead || f->is_dir) return MEMOPT_ERR_IO;
    *bytes = f->size;
    return MEMOPT_OK;
}
static inline memopt_status replay_resize(void *user, void *file, uint64_t bytes) {
    replayed_disk *d = (replayed_disk *)user; const int inode = replay_inode_of(d, file); replay_inode *f = &d->inodes[inode];
    if (replay_dies(d)) return MEMOPT_ERR_IO;
    f->now = replay_bytes(f->now, f->size, (size_t)bytes); f->size = (size_t)bytes;
    (void)replay_log(d, REPLAY_RESIZE, inode, bytes); replay_did(d);
    return MEMOPT_OK;
}
static inline memopt_status replay_reserve(void *user, void *file, uint64_t bytes) {
    replayed_disk *d = (replayed_disk *)user;
    return bytes > d->inodes[replay_inode_of(d, file)].size ? replay_resize(user, file, bytes) : d->is_dead ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static inline memopt_status replay_sync(void *user, void *file) {
    replayed_disk *d = (replayed_disk *)user; const int inode = replay_inode_of(d, file);
    if (replay_dies(d)) return MEMOPT_ERR_IO;
    if (d->fail_sync > 0 && --d->fail_sync == 0) { (void)replay_log(d, REPLAY_LOST, inode, test_random(&d->seed)); replay_did(d); return MEMOPT_ERR_IO; }
    (void)replay_log(d, REPLAY_SYNC, inode, 0); replay_did(d);
    return MEMOPT_OK;
}
static inline int replay_is_empty(const replayed_disk *d, int dir) {
    size_t i;
    for (i = 0; i < d->now.count; ++i) if (d->now.all[i].dir == dir) return 0;
    return 1;
}
static inline memopt_status replay_rename(void *user, const char *from, const char *to) {
    replayed_disk *d = (replayed_disk *)user; char name[2][REPLAY_NAME]; int dir[2], inode[2]; replay_event *e;
    if (d->is_dead || replay_find(d, from, &dir[0], name[0], &inode[0]) || replay_find(d, to, &dir[1], name[1], &inode[1]) || inode[0] < 1 || replay_dies(d)) return MEMOPT_ERR_IO;
    if (inode[1] >= 0 && (d->inodes[inode[1]].is_dir != d->inodes[inode[0]].is_dir || !replay_is_empty(d, inode[1]))) return MEMOPT_ERR_IO;
    e = replay_log(d, REPLAY_ENTRY, -1, 0);
    e->entry_count = 2;
    e->entries[0].dir = dir[0]; e->entries[0].inode = -1; memcpy(e->entries[0].name, name[0], REPLAY_NAME);
    e->entries[1].dir = dir[1]; e->entries[1].inode = inode[0]; memcpy(e->entries[1].name, name[1], REPLAY_NAME);
    replay_did(d);
    return MEMOPT_OK;
}
static inline memopt_status replay_remove(void *user, const char *path) {
    replayed_disk *d = (replayed_disk *)user; char name[REPLAY_NAME]; int dir, inode;
    if (d->is_dead || replay_find(d, path, &dir, name, &inode) || inode < 1 || !replay_is_empty(d, inode) || replay_dies(d)) return MEMOPT_ERR_IO;
    replay_link(d, dir, name, -1);
    return MEMOPT_OK;
}
static inline memopt_status replay_align(void *user, void *file, size_t *alignment) { (void)file; *alignment = 1; return ((replayed_disk *)user)->is_dead ? MEMOPT_ERR_IO : MEMOPT_OK; }
static inline memopt_status replay_make_dir(void *user, const char *path) {
    replayed_disk *d = (replayed_disk *)user; char name[REPLAY_NAME]; int dir, inode;
    if (d->is_dead || replay_find(d, path, &dir, name, &inode)) return MEMOPT_ERR_IO;
    if (inode >= 0) return d->inodes[inode].is_dir ? MEMOPT_ERR_STATE : MEMOPT_ERR_IO;
    if (replay_dies(d)) return MEMOPT_ERR_IO;
    (void)replay_made(d, 1, dir, name);
    return MEMOPT_OK;
}
static inline memopt_status replay_list_dir(void *user, const char *path, memopt_name_fn *each_fn, void *context) {
    replayed_disk *d = (replayed_disk *)user; char name[REPLAY_NAME]; int dir, inode; size_t i; memopt_status s = MEMOPT_OK;
    if (d->is_dead) return MEMOPT_ERR_IO;
    if (replay_find(d, path, &dir, name, &inode) || inode < 0) return MEMOPT_OK;
    if (!d->inodes[inode].is_dir) return MEMOPT_ERR_IO;
    for (i = 0; i < d->now.count && !s; ++i) if (d->now.all[i].dir == inode) { strcpy(name, d->now.all[i].name); s = each_fn(context, name); }
    return s;
}
static inline memopt_status replay_sync_dir(void *user, const char *path) {
    replayed_disk *d = (replayed_disk *)user; char name[REPLAY_NAME]; int dir, inode;
    if (d->is_dead || replay_find(d, path, &dir, name, &inode) || inode < 0 || !d->inodes[inode].is_dir || replay_dies(d)) return MEMOPT_ERR_IO;
    if (d->fail_dir > 0 && --d->fail_dir == 0) return MEMOPT_ERR_IO;
    (void)replay_log(d, REPLAY_SYNC_DIR, inode, 0); replay_did(d);
    return MEMOPT_OK;
}
static inline memopt_host replay_host(replayed_disk *d) {
    memopt_host h; memopt_files *f = &h.files;
    memset(&h, 0, sizeof h);
    f->open_fn = replay_open; f->close_fn = replay_close; f->read_fn = replay_read; f->write_fn = replay_write; f->size_fn = replay_size; f->resize_fn = replay_resize;
    f->sync_fn = replay_sync; f->rename_fn = replay_rename; f->remove_fn = replay_remove; f->reserve_fn = replay_reserve; f->align_fn = replay_align;
    f->make_dir_fn = replay_make_dir; f->list_dir_fn = replay_list_dir; f->sync_dir_fn = replay_sync_dir; f->lock_fn = replay_lock; f->user = d;
    return h;
}
/* -- lives of a disk -- */
static inline replayed_disk *replay_blank(void) {
    replayed_disk *d = (replayed_disk *)calloc(1, sizeof *d);
    if (!d) { printf("replayed_disk.h: out of memory\n"); exit(1); }
    d->die = -1;
    return d;
}
static inline replayed_disk *replay_new(uint64_t seed) {
    replayed_disk *d = replay_blank();
    d->seed = seed;
    (void)replay_log(d, REPLAY_FILE, 1, 0); replay_did(d); /* the root */
    return d;
}
static inline void replay_free(replayed_disk *d) {
    size_t i;
    for (i = 0; i < d->inode_count; ++i) { free(d->inodes[i].now); free(d->inodes[i].safe); free(d->inodes[i].pending); }
    for (i = 0; !d->is_copy && i < d->event_count; ++i) free(d->events[i].bytes);
    if (!d->is_copy) free(d->events);
    free(d->inodes); free(d->now.all); free(d->safe.all); free(d->pending);
    free(d);
}
/* The process has ended, the machine goes on. */
static inline void replay_kill(replayed_disk *d, int drops) {
    size_t i, bytes = 0;
    memset(d->handles, 0, sizeof d->handles);
    d->die = -1; d->changes = 0; d->is_dead = 0; d->fail_write = d->fail_sync = d->fail_dir = 0;
    for (i = 0; drops && i < d->inode_count; ++i) {
        unsigned char *now = replay_settled(d, &d->inodes[i], REPLAY_ALL, &d->seed, &bytes);
        free(d->inodes[i].now);
        d->inodes[i].now = now; d->inodes[i].size = bytes;
    }
}
static inline replayed_disk *replay_again(const replayed_disk *of) { /* lives as long as the log */
    replayed_disk *d = replay_blank();
    d->events = of->events; d->event_count = of->event_count; d->is_copy = 1;
    return d;
}
static inline int replay_step(replayed_disk *d) {
    if (d->next == d->event_count) return 0;
    replay_apply(d, d->next++);
    return 1;
}
static inline replayed_disk *replay_cut(const replayed_disk *of, int way, uint64_t seed) {
    replayed_disk *d = replay_blank(); size_t i; const size_t shared = test_below(&seed, of->pending_count + 1);
    d->seed = seed;
    for (i = 0; i < of->inode_count; ++i) {
        replay_inode *f;
        (void)replay_log(d, REPLAY_FILE, of->inodes[i].is_dir, 0); replay_did(d);
        f = &d->inodes[i];
        f->safe = replay_settled(of, &of->inodes[i], way, &seed, &f->safe_size);
        f->size = f->safe_size; f->now = replay_bytes(NULL, 0, f->size);
        memcpy(f->now, f->safe, f->size);
    }
    for (i = 0; i < of->safe.count; ++i) replay_link(d, of->safe.all[i].dir, of->safe.all[i].name, of->safe.all[i].inode);
    for (i = 0; i < of->pending_count; ++i)
        if (way == REPLAY_ALL || (way == REPLAY_TORN && i < shared) || (way == REPLAY_ANY && test_below(&seed, 2))) replay_enter(&d->now, &of->events[of->pending[i]]);
    free(d->safe.all);
    memset(&d->safe, 0, sizeof d->safe);
    for (i = 0; i < d->now.count; ++i) { /* one after the other: replay_more() counts on that */
        d->safe.all = (replay_entry *)replay_more(d->safe.all, i, sizeof *d->safe.all);
        d->safe.all[d->safe.count++] = d->now.all[i];
    }
    d->pending_count = 0;
    return d;
}
#endif
