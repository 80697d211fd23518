/* test_store.c - tiles in memory and in files: against a plain model, with failing hosts, damaged files, full disks. */
#include "test.h"
#include "replayed_disk.h"
#if defined(MEMOPT_I_POSIX)
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#if defined(__linux__) && !defined(__cplusplus) /* -std=c99 hides them */
extern int symlink(const char *to, const char *path);
extern int kill(pid_t process, int signal);
#endif
#endif

enum { STORE_TILES = 6, STORE_ROOM = 16384 };
static const size_t store_bytes[STORE_TILES] = { 1, 4096, 5000, 12288, 63, 8192 };
static int store_there(const char *path) {
    void *file = NULL;
    if (memopt_i_system_open(NULL, path, MEMOPT_OPEN_READ, &file)) return 0;
    (void)memopt_i_system_close(NULL, file);
    return 1;
}
/* How many files there are whose names begin as this path; with `removes`, none is left. */
typedef struct store_names { char folder[600]; const char *begin; int found, removes; } store_names;
static memopt_status store_name(void *context, const char *name) {
    store_names *n = (store_names *)context; char all[1200];
    if (strncmp(name, n->begin, strlen(n->begin))) return MEMOPT_OK;
    ++n->found;
    if (!n->removes) return MEMOPT_OK;
    snprintf(all, sizeof all, "%s/%s", n->folder, name);
    return memopt_i_system_remove(NULL, all);
}
static int store_named(const char *path, int removes) {
    store_names n; const char *end = strrchr(path, '/');
    if (!end) return -1;
    n.found = 0; n.removes = removes; n.begin = end + 1;
    memcpy(n.folder, path, (size_t)(end - path)); n.folder[end - path] = 0;
    CHECK(memopt_i_system_list_dir(NULL, n.folder, store_name, &n) == MEMOPT_OK);
    return n.found;
}
static void store_gone(const char *path) { CHECK(store_named(path, 1) == 0); }
/* What is synced would outlive a power cut; a test outlives none, and does not wait for the disk. */
static memopt_status store_no_sync(void *user, void *file) { (void)user; (void)file; return MEMOPT_OK; }
static memopt_status store_no_sync_dir(void *user, const char *path) { (void)user; (void)path; return MEMOPT_OK; }
static memopt_status store_lock_status;
static memopt_status store_no_lock(void *user, void *file) { (void)user; (void)file; return store_lock_status; }
static const memopt_host *store_host(void) {
    static memopt_host h;
    memset(&h, 0, sizeof h);
    h.files = memopt_i_system_files(); h.files.sync_fn = store_no_sync; h.files.sync_dir_fn = store_no_sync_dir;
    return &h;
}
static memopt_store_desc store_desc(const char *path) {
    memopt_store_desc d;
    memset(&d, 0, sizeof d);
    d.tiles = STORE_TILES; d.each_bytes = store_bytes; d.path = path; d.host = store_host();
    return d;
}
static void store_content(unsigned char *bytes, size_t tile, uint64_t step, size_t count) {
    size_t i;
    for (i = 0; i < count; ++i) bytes[i] = (unsigned char)(i * 31 + tile * 57 + (size_t)step * 101 + (i >> 8) + 1);
}
static int store_is(const unsigned char *bytes, size_t tile, uint64_t step, size_t count) {
    unsigned char want[STORE_ROOM];
    store_content(want, tile, step, count);
    return !memcmp(bytes, want, count);
}
static uint32_t store_crc(uint32_t crc, const unsigned char *bytes, size_t count) { /* by the definition, a bit at a time */
    size_t i; int k;
    for (crc = ~crc, i = 0; i < count; ++i) for (crc ^= bytes[i], k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    return ~crc;
}

/* -- who moves -- */
enum { STORE_AT_ONCE, STORE_RING, STORE_MOVERS, STORE_BACKENDS };
#if defined(MEMOPT_I_RING) || defined(MEMOPT_I_POOL)
static memopt_status store_open_ring(void *user, int depth, void **queue) { (void)user; return memopt_i_system_queue_create(depth, MEMOPT_I_QUEUE_RING, queue); }
static memopt_status store_open_movers(void *user, int depth, void **queue) { (void)user; return memopt_i_system_queue_create(depth, MEMOPT_I_QUEUE_MOVERS, queue); }
#endif
static int store_backend(memopt_host *h, int backend) { /* 0: not here */
    if (!h->files.open_fn) h->files = store_host()->files;
    if (backend == STORE_AT_ONCE) {
        h->files.queue_open_fn = NULL; h->files.queue_close_fn = NULL; h->files.begin_fn = NULL; h->files.wait_fn = NULL;
        return 1;
    }
#if defined(MEMOPT_I_RING) || defined(MEMOPT_I_POOL)
    { void *queue = NULL;
      h->files.queue_open_fn = backend == STORE_RING ? store_open_ring : store_open_movers;
      if (h->files.queue_open_fn(NULL, 1, &queue)) return 0;
      memopt_i_system_queue_close(NULL, queue);
      return 1; }
#else
    return 0;
#endif
}

/* -- sizes and refusals -- */
static void store_sizes(void) {
    char path[600]; memopt_store_desc d; memopt_store_sizes z; memopt_store *x = NULL; test_faults f; memopt_host h; memopt_ledger *ledger = NULL; int file, aligned, single; void *opened = NULL; uint64_t size = 0;
    memset(&z, 0, sizeof z);
    test_path(path, "sizes");
    d = store_desc(path);
    CHECK(memopt_store_bytes(&d, &z) == MEMOPT_OK && z.alignment == 4096 && z.room == 12288);
    CHECK(z.disk == 2 * 4096 + 2 * (4096 + 4096 + 8192 + 12288 + 4096 + 8192));
    d.no_atomic = 1;
    CHECK(memopt_store_bytes(&d, &z) == MEMOPT_OK && z.disk == 2 * 4096 + 40960);
    d.each_bytes = NULL; d.tile_bytes = 4097; d.tiles = 127; /* 72 + 127 * 32 = 4136 */
    CHECK(memopt_store_bytes(&d, &z) == MEMOPT_OK && z.disk == 2 * 8192 + 127 * 8192 && z.room == 8192);
    d.tiles = 125; /* 72 + 125 * 32 = 4072 */
    CHECK(memopt_store_bytes(&d, &z) == MEMOPT_OK && z.disk == 2 * 4096 + 125 * 8192);
    d = store_desc(NULL);
    CHECK(memopt_store_bytes(&d, &z) == MEMOPT_OK && z.alignment == 64 && z.room == 12288 && z.disk == 0 && z.memory > 2 * (64 + 4096 + 5056 + 12288 + 64 + 8192));
    CHECK(z.memory < 2 * (64 + 4096 + 5056 + 12288 + 64 + 8192) + 4096);
    for (file = 0; file < 2; ++file) for (aligned = 0; aligned < 2; ++aligned) for (single = 0; single < 2; ++single) { /* what it says is what it takes */
        memset(&f, 0, sizeof f); h = test_host(&f);
        if (!aligned) h.files.lock_fn = NULL; /* a table without locks: the file has the name as it is given */
        d = store_desc(file ? path : NULL); d.aligned = aligned; d.no_atomic = single; d.transfers = 3; d.host = &h; d.tag = MEMOPT_TAG_OPTIMIZER;
        CHECK(memopt_ledger_create(NULL, &ledger) == MEMOPT_OK);
        d.ledger = ledger;
        CHECK(memopt_store_bytes(&d, &z) == MEMOPT_OK && f.calls == 0 && !store_there(path));
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && f.live_bytes == z.memory && f.live_blocks == 1);
        CHECK(memopt_ledger_usage(ledger, MEMOPT_TAG_OPTIMIZER).now == z.memory);
        CHECK(!file || z.memory < (aligned ? 8192 + 4096 : 3 * 12288 + 8192 + 4096));
        if (file && aligned) CHECK(memopt_i_system_size(NULL, x->file, &size) == MEMOPT_OK && size == z.disk && !store_there(path));
        else if (file) CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_READ, &opened) == MEMOPT_OK && memopt_i_system_size(NULL, opened, &size) == MEMOPT_OK && size == z.disk && memopt_i_system_close(NULL, opened) == MEMOPT_OK);
        memopt_store_destroy(x);
        CHECK(f.live_blocks == 0 && f.bad_frees == 0 && memopt_ledger_usage(ledger, MEMOPT_TAG_OPTIMIZER).now == 0);
        memopt_ledger_destroy(ledger);
        store_gone(path);
    }
}
static memopt_status store_try(const memopt_store_desc *d) { /* the sizes refuse what the creation does */
    memopt_store *x = NULL; memopt_status s = memopt_store_create(d, &x);
    memopt_store_destroy(x);
    return s;
}
static void store_refusals(void) {
    const size_t each[2] = { 5, 0 }, large[3] = { 5, SIZE_MAX - 5, 7 }, huge[3] = { SIZE_MAX / 8 * 3, SIZE_MAX / 8 * 3, SIZE_MAX / 8 * 3 };
    char path[600], line[256]; memopt_store_desc right, x; memopt_store *out = NULL; memopt_store_sizes z; memopt_host half; memopt_error why; test_faults f; memopt_host host = test_host(&f);
    memset(&half, 0, sizeof half); memset(&f, 0, sizeof f);
    half.allocator.alloc_fn = memopt_i_system_alloc;
    test_path(path, "refused");
    right = store_desc(path);
    CHECK(memopt_store_create(NULL, &out) == MEMOPT_ERR_ARGUMENT && memopt_store_bytes(NULL, &z) == MEMOPT_ERR_ARGUMENT);
    x = right; REFUSES(x.error, (void)0, memopt_store_create(&x, NULL), MEMOPT_ERR_ARGUMENT, "store: out is NULL");
    x = right; REFUSES(x.error, (void)0, memopt_store_bytes(&x, NULL), MEMOPT_ERR_ARGUMENT, "store: out is NULL");
    x = right; REFUSES(x.error, x.tiles = 0, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: tiles 0, at least 1");
    x = right; REFUSES(x.error, x.tile_bytes = 4, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: each_bytes and tile_bytes exclude each other");
    x = right; REFUSES(x.error, x.each_bytes = NULL, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: tile_bytes 0, at least 1");
    x = right; REFUSES(x.error, (x.each_bytes = each, x.tiles = 2), store_try(&x), MEMOPT_ERR_ARGUMENT, "store: each_bytes 0 at tile 1, at least 1");
    x = right; REFUSES(x.error, (x.each_bytes = large, x.tiles = 3), store_try(&x), MEMOPT_ERR_OVERFLOW, "store: is too large at tile 1");
    if (sizeof(size_t) == 8) { x = right; REFUSES(x.error, (x.each_bytes = huge, x.tiles = 3), store_try(&x), MEMOPT_ERR_OVERFLOW, "store: is too far for a file at tile 0"); }
    x = right; x.each_bytes = NULL; REFUSES(x.error, (x.tile_bytes = SIZE_MAX / 4, x.tiles = SIZE_MAX / 8), store_try(&x), MEMOPT_ERR_OVERFLOW, sizeof(size_t) == 8 ? "store: is too far for a file" : "store: its memory does not fit size_t");
    x = right; x.each_bytes = NULL; REFUSES(x.error, (x.tile_bytes = 1 << 20, x.tiles = SIZE_MAX / 8), store_try(&x), MEMOPT_ERR_OVERFLOW, sizeof(size_t) == 8 ? "store: tiles are too many for a file" : "store: its memory does not fit size_t");
    x = right; x.each_bytes = NULL; REFUSES(x.error, (x.path = NULL, x.tile_bytes = SIZE_MAX / 64, x.tiles = 40), store_try(&x), MEMOPT_ERR_OVERFLOW, sizeof(size_t) == 8 ? "store: tiles are too many for a file" : "store: its memory does not fit size_t");
    x = right; x.each_bytes = NULL; REFUSES(x.error, (x.tile_bytes = SIZE_MAX / 512, x.tiles = 1, x.transfers = 1024), store_try(&x), MEMOPT_ERR_OVERFLOW, "store: its memory does not fit size_t");
    x = right; REFUSES(x.error, x.transfers = 1025, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: transfers 1025, at most 1024");
    x = right; REFUSES(x.error, x.reopen = 2, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: reopen 2, must be 0 or 1");
    x = right; REFUSES(x.error, x.keep = -1, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: keep -1, must be 0 or 1");
    x = right; REFUSES(x.error, x.no_atomic = 2, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: no_atomic 2, must be 0 or 1");
    x = right; REFUSES(x.error, x.no_direct = 2, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: no_direct 2, must be 0 or 1");
    x = right; REFUSES(x.error, x.aligned = 2, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: aligned 2, must be 0 or 1");
    x = right; REFUSES(x.error, (x.path = NULL, x.keep = 1), store_try(&x), MEMOPT_ERR_ARGUMENT, "store: path is NULL: memory can be neither reopened nor kept");
    x = right; REFUSES(x.error, (x.path = NULL, x.reopen = 1), store_try(&x), MEMOPT_ERR_ARGUMENT, "store: path is NULL: memory can be neither reopened nor kept");
    x = right; REFUSES(x.error, x.path = "", store_try(&x), MEMOPT_ERR_ARGUMENT, "store: path is empty");
    x = right; REFUSES(x.error, x.host = &half, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: host.allocator is half a table");
    x = right; REFUSES(x.error, x.path = "no/such/folder/file", store_try(&x), MEMOPT_ERR_IO, "store: path cannot be opened");
    x = right; REFUSES(x.error, (x.reopen = 1, x.keep = 1), store_try(&x), MEMOPT_ERR_IO, "store: path cannot be opened");
    x = right; REFUSES(x.error, x.reopen = 1, store_try(&x), MEMOPT_ERR_ARGUMENT, "store: reopen without keep: a scratch file is nobody's to go on with");
    x = right; x.error = &why; x.host = &host; f.fail_on = f.calls + 1;
    CHECK(memopt_store_create(&x, &out) == MEMOPT_ERR_MEMORY && !out && !memopt_error_text(&why, line, sizeof line, NULL) && !strncmp(line, "store: no memory for it: asked ", 31));
    store_gone(path);
    CHECK(f.live_blocks == 0);
    memopt_store_destroy(NULL);
    CHECK(memopt_store_get_stats(NULL).reads == 0 && memopt_store_get_tile(NULL, 0).count == 0 && memopt_store_error(NULL).status == MEMOPT_ERR_ARGUMENT && !memopt_store_for_tape(NULL).write_fn);
    CHECK(memopt_store_write(NULL, 0, line, 1) == MEMOPT_ERR_ARGUMENT && memopt_store_read(NULL, 0, line, 1) == MEMOPT_ERR_ARGUMENT && memopt_store_wait(NULL, 0) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_store_commit(NULL, 0) == MEMOPT_ERR_ARGUMENT && memopt_store_abandon(NULL) == MEMOPT_ERR_ARGUMENT);
}
/* A table of files in front of the system's: fails, or gives less, where a test says so. */
typedef struct store_table { memopt_files inner; memopt_status reserve, align, queue, begin, wait, sync, write, size, resize; int lets; size_t alignment, cut; int late; int tile_writes, syncs, table_writes, open, most, slots, begins[2]; } store_table;
static memopt_status store_table_reserve(void *user, void *file, uint64_t bytes) { store_table *t = (store_table *)user; if (t->reserve && !t->lets) { (void)t->inner.resize_fn(NULL, file, bytes); return t->reserve; } if (t->lets) --t->lets; return t->inner.reserve_fn(NULL, file, bytes); } /* part of it was there */
static memopt_status store_table_size(void *user, void *file, uint64_t *bytes) { store_table *t = (store_table *)user; return t->size ? t->size : t->inner.size_fn(NULL, file, bytes); }
static memopt_status store_table_resize(void *user, void *file, uint64_t bytes) { store_table *t = (store_table *)user; return t->resize && !bytes ? t->resize : t->inner.resize_fn(NULL, file, bytes); }
static memopt_status store_table_align(void *user, void *file, size_t *alignment) { store_table *t = (store_table *)user; memopt_status s = t->align ? t->align : t->inner.align_fn(NULL, file, alignment); if (!s && t->alignment) *alignment = t->alignment - 1; return s; }
static memopt_status store_table_queue(void *user, int depth, void **queue) { store_table *t = (store_table *)user; t->slots = depth; *queue = t; return t->queue; }
static void store_table_queue_close(void *user, void *queue) { store_table *t = (store_table *)user; CHECK(queue == t && t->open == 0); }
static memopt_i_slot_result store_table_results[1024];
static struct store_late { void *file, *bytes; uint64_t offset; memopt_transfer kind; } store_table_late[1024];
static void store_table_move(store_table *t, int slot) {
    const struct store_late *m = &store_table_late[slot]; memopt_i_slot_result *r = &store_table_results[slot];
    r->status = m->kind == MEMOPT_TRANSFER_READ ? t->inner.read_fn(NULL, m->file, m->offset, m->bytes, r->done, &r->done) : t->inner.write_fn(NULL, m->file, m->offset, m->bytes, r->done);
}
static memopt_status store_table_begin(void *user, void *queue, int slot, void *file, memopt_transfer kind, uint64_t offset, void *bytes, size_t count) {
    store_table *t = (store_table *)user; memopt_i_slot_result *r = &store_table_results[slot];
    CHECK(queue == t && slot < t->slots && offset % 4096 == 0 && (uintptr_t)bytes % 4096 == 0 && count % 4096 == 0 && count > 0);
    if (t->begin) return t->begin;
    if (++t->open > t->most) t->most = t->open;
    ++t->begins[kind == MEMOPT_TRANSFER_WRITE];
    r->done = count;
    store_table_late[slot].file = file; store_table_late[slot].offset = offset; store_table_late[slot].bytes = bytes; store_table_late[slot].kind = kind;
    if (!t->late) store_table_move(t, slot);
    return MEMOPT_OK;
}
static memopt_status store_table_wait(void *user, void *queue, int slot, size_t *done) { store_table *t = (store_table *)user; (void)queue; --t->open; if (t->late) store_table_move(t, slot); *done = store_table_results[slot].done - t->cut; return t->wait ? t->wait : store_table_results[slot].status; }
static memopt_status store_table_sync(void *user, void *file) { store_table *t = (store_table *)user; ++t->syncs; return t->sync && !--t->tile_writes ? t->sync : t->inner.sync_fn(NULL, file); }
static memopt_status store_table_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    store_table *t = (store_table *)user; ++t->table_writes;
    if (t->write) { (void)t->inner.write_fn(NULL, file, offset, bytes, count / 2 / 4096 * 4096); return t->write; } /* torn */
    return t->inner.write_fn(NULL, file, offset, bytes, count);
}
static memopt_host store_table_host(store_table *t) {
    memopt_host h;
    memset(t, 0, sizeof *t); memset(&h, 0, sizeof h);
    h.files = t->inner = store_host()->files;
    h.files.user = t; h.files.size_fn = store_table_size; h.files.resize_fn = store_table_resize; h.files.reserve_fn = store_table_reserve; h.files.align_fn = store_table_align; h.files.sync_fn = store_table_sync; h.files.write_fn = store_table_write;
    h.files.queue_open_fn = store_table_queue; h.files.queue_close_fn = store_table_queue_close; h.files.begin_fn = store_table_begin; h.files.wait_fn = store_table_wait;
    return h;
}
static int store_says(const memopt_store *x, memopt_status got, memopt_status want, const char *text) { return got == want && test_error_says(memopt_store_error(x), want, text); }
static void store_calls_refused(int file, int aligned) { /* arguments: refused, and the store goes on */
    char path[600]; memopt_store_desc d; memopt_store *x = NULL; unsigned char *memory = (unsigned char *)memopt_i_system_alloc(NULL, 2 * STORE_ROOM, 4096), *a = memory, *b = memory + STORE_ROOM;
    test_path(path, "calls");
    d = store_desc(file ? path : NULL); d.aligned = aligned;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK);
    memset(memory, 7, 2 * STORE_ROOM);
    CHECK(memopt_store_error(x).status == MEMOPT_OK);
    CHECK(store_says(x, memopt_store_write(x, 6, a, 1), MEMOPT_ERR_ARGUMENT, "store: tile 6, below 6"));
    CHECK(store_says(x, memopt_store_wait(x, 6), MEMOPT_ERR_ARGUMENT, "store: tile 6, below 6"));
    CHECK(store_says(x, memopt_store_write(x, 2, NULL, 1), MEMOPT_ERR_ARGUMENT, "store: bytes is NULL at tile 2"));
    CHECK(store_says(x, memopt_store_write(x, 2, a, 0), MEMOPT_ERR_ARGUMENT, "store: count 0 at tile 2, at least 1"));
    CHECK(store_says(x, memopt_store_write(x, 2, a, 5001), MEMOPT_ERR_ARGUMENT, "store: count 5001 at tile 2, at most 5000"));
    CHECK(store_says(x, memopt_store_read(x, 2, a, 5000), MEMOPT_ERR_STATE, "store: count 5000 at tile 2, but written were 0"));
    if (aligned) CHECK(store_says(x, memopt_store_write(x, 2, a + 32, 100), MEMOPT_ERR_ARGUMENT, "store: bytes is misaligned at tile 2"));
    CHECK(store_says(x, memopt_store_commit(x, MEMOPT_STORE_NO_STEP), MEMOPT_ERR_ARGUMENT, "store: step is MEMOPT_STORE_NO_STEP"));
    CHECK(memopt_store_get_tile(x, 2).count == 0 && memopt_store_get_tile(x, 2).step == MEMOPT_STORE_NO_STEP && memopt_store_get_tile(x, 6).step == 0);
    CHECK(memopt_store_write(x, 2, a, 100) == MEMOPT_OK && memopt_store_write(x, 3, a, 100) == MEMOPT_OK); /* two may read one place */
    if (file) CHECK(store_says(x, memopt_store_read(x, 2, a, 100), MEMOPT_ERR_ARGUMENT, "store: bytes overlaps those of a transfer that is under way at tile 2"));
    CHECK(memopt_store_wait(x, 2) == MEMOPT_OK && memopt_store_wait(x, 3) == MEMOPT_OK && memopt_store_wait(x, 3) == MEMOPT_OK && memopt_store_wait(x, 0) == MEMOPT_OK);
    CHECK(store_says(x, memopt_store_read(x, 2, b, 99), MEMOPT_ERR_STATE, "store: count 99 at tile 2, but written were 100"));
    CHECK(memopt_store_read(x, 2, b, 100) == MEMOPT_OK);
    if (file) CHECK(memopt_store_write(x, 4, b, 63) == MEMOPT_ERR_ARGUMENT && memopt_store_read(x, 3, b, 100) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_store_wait(x, 2) == MEMOPT_OK && b[99] == 7);
    CHECK(memopt_store_commit(x, 3) == MEMOPT_OK && memopt_store_get_tile(x, 2).step == 3 && memopt_store_get_tile(x, 2).count == 100 && memopt_store_get_stats(x).step == 3);
    CHECK(memopt_store_get_stats(x).writes == 2 && memopt_store_get_stats(x).written_bytes == 200 && memopt_store_get_stats(x).reads == 1 && memopt_store_get_stats(x).read_bytes == 100);
    memopt_store_destroy(x);
    store_gone(path);
    memopt_i_system_free(NULL, memory, 2 * STORE_ROOM, 4096);
}
static void store_one_place(void) { /* aligned: what is zeroed behind one write must not be what another is writing; and by a ring, too */
    char path[600]; memopt_store_desc d; memopt_store *x = NULL; unsigned char *a = (unsigned char *)memopt_i_system_alloc(NULL, STORE_ROOM, 4096); store_table t; memopt_host h = store_table_host(&t); int ring;
    test_path(path, "place");
    for (ring = 0; ring < 2; ++ring) {
        d = store_desc(path); d.aligned = 1;
        if (!ring) d.host = &h; /* here a transfer moves when it is waited for */
        t.late = 1;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK);
        store_content(a, 3, 1, 12288);
        CHECK(memopt_store_write(x, 3, a, 12288) == MEMOPT_OK);
        CHECK(store_says(x, memopt_store_write(x, 2, a, 100), MEMOPT_ERR_ARGUMENT, "store: bytes behind count overlap those of a write that is under way at tile 2"));
        CHECK(store_says(x, memopt_store_write(x, 2, a + 4096, 4097), MEMOPT_ERR_ARGUMENT, "store: bytes behind count overlap those of a write that is under way at tile 2"));
        CHECK(store_is(a, 3, 1, 12288) && memopt_store_wait(x, 3) == MEMOPT_OK);
        CHECK(memopt_store_write(x, 2, a, 100) == MEMOPT_OK); /* and the other way round: it has been zeroed already, or will be */
        CHECK(store_says(x, memopt_store_write(x, 3, a, 12288), MEMOPT_ERR_ARGUMENT, "store: bytes overlap those behind count of a write that is under way, which are zeroed at tile 3"));
        CHECK(memopt_store_wait(x, 2) == MEMOPT_OK);
        store_content(a, 3, 1, 12288);
        CHECK(memopt_store_write(x, 3, a, 12288) == MEMOPT_OK);
        CHECK(memopt_store_write(x, 1, a + 8192, 4096) == MEMOPT_OK && memopt_store_write(x, 5, a, 8192) == MEMOPT_OK); /* whole blocks: nothing is behind */
        CHECK(memopt_store_wait(x, 3) == MEMOPT_OK && memopt_store_wait(x, 1) == MEMOPT_OK && memopt_store_wait(x, 5) == MEMOPT_OK);
        CHECK(memopt_store_write(x, 3, a, 12288) == MEMOPT_OK && memopt_store_write(x, 3, a, 100) == MEMOPT_OK); /* of one tile: the first is waited for */
        CHECK(memopt_store_write(x, 2, a, 100) == MEMOPT_OK && memopt_store_wait(x, 2) == MEMOPT_OK && memopt_store_wait(x, 3) == MEMOPT_OK); /* behind the bytes of both */
        memset(a, 0, STORE_ROOM);
        CHECK(memopt_store_read(x, 2, a, 100) == MEMOPT_OK && memopt_store_wait(x, 2) == MEMOPT_OK && store_is(a, 3, 1, 100));
        CHECK(memopt_store_read(x, 3, a, 100) == MEMOPT_OK && memopt_store_wait(x, 3) == MEMOPT_OK && store_is(a, 3, 1, 100));
        CHECK(memopt_store_read(x, 5, a, 8192) == MEMOPT_OK && memopt_store_wait(x, 5) == MEMOPT_OK && store_is(a, 3, 1, 8192));
        memopt_store_destroy(x);
        store_gone(path);
    }
    memopt_i_system_free(NULL, a, STORE_ROOM, 4096);
}
static void store_calls(void) { store_calls_refused(0, 0); store_calls_refused(0, 1); store_calls_refused(1, 0); store_calls_refused(1, 1); }

/* -- against a model -- */
typedef struct store_model { size_t held, written; uint64_t step; unsigned char bytes[2][STORE_ROOM]; int way; } store_model; /* counts; bytes of both; way: 1 reads, 2 writes */
static void store_play(memopt_store_desc d, uint64_t seed, size_t rounds) {
    static store_model m[STORE_TILES]; memopt_store *x = NULL; unsigned char *memory = (unsigned char *)memopt_i_system_alloc(NULL, STORE_TILES * STORE_ROOM, 4096); size_t round, i; uint64_t step = MEMOPT_STORE_NO_STEP;
    memset(m, 0, sizeof m);
    memset(memory, 0, STORE_TILES * STORE_ROOM);
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK);
    for (round = 0; x && round < rounds; ++round) {
        const size_t tile = test_below(&seed, STORE_TILES), what = test_below(&seed, 100); store_model *t = &m[tile];
        unsigned char *place = memory + tile * STORE_ROOM; const size_t newest = t->written ? t->written : t->held; const unsigned char *now = t->bytes[t->written > 0];
        if (!d.aligned && seed % 3) place += seed % 97;
        if (t->way) { /* its memory is taken: wait for it first; or leave it to the next call of it, which waits as well */
            CHECK_AT(memopt_store_wait(x, tile) == MEMOPT_OK, round);
            t->way = 0;
        }
        if (what < 40) {
            const size_t count = test_below(&seed, 2) ? store_bytes[tile] : 1 + test_below(&seed, store_bytes[tile]);
            for (i = 0; i < count; ++i) place[i] = (unsigned char)test_random(&seed);
            CHECK_AT(memopt_store_write(x, tile, place, count) == MEMOPT_OK, round);
            memcpy(t->bytes[1], place, count);
            t->written = count; t->way = 2;
        } else if (what < 80 && newest) {
            memset(place, 0xA5, newest + (d.aligned ? 0 : 9));
            CHECK_AT(memopt_store_read(x, tile, place, newest) == MEMOPT_OK, round);
            if (test_below(&seed, 2)) CHECK_AT(memopt_store_wait(x, (tile + 1) % STORE_TILES) == MEMOPT_OK, round);
            CHECK_AT(memopt_store_wait(x, tile) == MEMOPT_OK && !memcmp(place, now, newest), round);
            for (i = 0; !d.aligned && i < 9 && place[newest + i] == 0xA5; ++i) {}
            CHECK_AT(d.aligned || i == 9, round);
            CHECK_AT(memopt_store_get_tile(x, tile).count == newest && memopt_store_get_tile(x, tile).step == (t->written ? MEMOPT_STORE_NO_STEP : t->step), round);
        } else if (what < 90) {
            step = 1000 + round;
            CHECK_AT(memopt_store_commit(x, step) == MEMOPT_OK && memopt_store_get_stats(x).step == step, round);
            for (i = 0; i < STORE_TILES; ++i) {
                if (m[i].written) { memcpy(m[i].bytes[0], m[i].bytes[1], m[i].written); m[i].held = m[i].written; m[i].step = step; }
                m[i].written = 0; m[i].way = 0;
            }
        } else if (what < 95 && !d.no_atomic) {
            CHECK_AT(memopt_store_abandon(x) == MEMOPT_OK, round);
            for (i = 0; i < STORE_TILES; ++i) { m[i].written = 0; m[i].way = 0; }
        } else if (d.keep && !d.no_atomic) {
            memopt_store_destroy(x);
            x = NULL;
            d.reopen = 1;
            CHECK_AT(memopt_store_create(&d, &x) == MEMOPT_OK && x && memopt_store_get_stats(x).step == step, round);
            for (i = 0; i < STORE_TILES; ++i) { m[i].written = 0; m[i].way = 0; }
        }
    }
    memopt_store_destroy(x);
    memopt_i_system_free(NULL, memory, STORE_TILES * STORE_ROOM, 4096);
    if (d.path && d.keep) CHECK(memopt_i_system_remove(NULL, d.path) == MEMOPT_OK);
}
static void store_in_memory(void) {
    memopt_store_desc d = store_desc(NULL); int flags;
    for (flags = 0; flags < 4; ++flags) { d.no_atomic = flags & 1; d.aligned = flags >> 1; store_play(d, (uint64_t)flags, 2000); }
}
static void store_in_file(int backend) {
    char path[600]; memopt_store_desc d; memopt_host h; int flags;
    memset(&h, 0, sizeof h);
    test_path(path, "model");
    if (!store_backend(&h, backend)) { SKIP(backend == STORE_RING ? "no io_uring here" : "compiled without MEMOPT_PTHREADS"); return; }
    for (flags = 0; flags < 16; ++flags) {
        d = store_desc(path);
        d.host = &h; d.no_atomic = flags & 1; d.aligned = flags >> 1 & 1; d.no_direct = flags >> 2 & 1; d.keep = flags >> 3; d.transfers = (size_t)flags % 5;
        store_play(d, (uint64_t)flags + 100, d.keep ? 200 : 400);
        store_gone(path);
    }
}
static void store_at_once(void) { store_in_file(STORE_AT_ONCE); }
static void store_by_ring(void) { store_in_file(STORE_RING); }
static void store_by_threads(void) { store_in_file(STORE_MOVERS); }

/* -- a file's bytes -- */
static memopt_store *store_of_steps(memopt_store_desc *d, uint64_t steps) { /* each tile whole, step after step; the last is committed */
    memopt_store *x = NULL; unsigned char bytes[STORE_TILES][STORE_ROOM]; uint64_t step; size_t tile;
    CHECK(memopt_store_create(d, &x) == MEMOPT_OK);
    for (step = 1; x && step <= steps; ++step) {
        for (tile = 0; tile < STORE_TILES; ++tile) {
            store_content(bytes[tile], tile, step, store_bytes[tile]);
            CHECK(memopt_store_write(x, tile, bytes[tile], store_bytes[tile]) == MEMOPT_OK);
        }
        CHECK(memopt_store_commit(x, step) == MEMOPT_OK);
    }
    return x;
}
static void store_number(unsigned char *at, uint64_t n) { int i; for (i = 0; i < 8; ++i) at[i] = (unsigned char)(n >> 8 * i); }
static void store_golden(void) { /* every byte of a kept file, made here from its description */
    const size_t disk = 2 * 4096 + 2 * 40960; size_t tile, done = 0, place; char path[600]; memopt_store_desc d; memopt_store *x; void *file = NULL; uint64_t copy;
    unsigned char *want = (unsigned char *)calloc(disk, 1), *got = (unsigned char *)calloc(disk, 1);
    test_path(path, "golden");
    d = store_desc(path); d.keep = 1;
    x = store_of_steps(&d, 2);
    memopt_store_destroy(x);
    for (copy = 0; copy < 2; ++copy) { /* table 1 at 0: empty; at 4096: of step 1; then at 0: of step 2 */
        unsigned char *t = want + (copy ? 0 : 4096), sizes[8 * STORE_TILES]; uint32_t crc; const uint64_t step = copy + 1;
        memcpy(t, "memopt store", 12);
        store_number(t + 16, 1); store_number(t + 24, 2); store_number(t + 32, STORE_TILES);
        for (tile = 0; tile < STORE_TILES; ++tile) store_number(sizes + 8 * tile, store_bytes[tile]);
        store_number(t + 40, store_crc(0, sizes, sizeof sizes));
        store_number(t + 48, 2 + copy); store_number(t + 56, step);
        for (tile = place = 0; tile < STORE_TILES; ++tile) {
            unsigned char *e = t + 72 + 32 * tile, *bytes = want + 8192 + (step == 2 ? 40960 : 0) + place;
            store_content(bytes, tile, step, store_bytes[tile]);
            store_number(e, store_bytes[tile]); store_number(e + 8, step); store_number(e + 16, store_crc(0, bytes, store_bytes[tile])); store_number(e + 24, step);
            place += (store_bytes[tile] + 4095) / 4096 * 4096;
        }
        crc = store_crc(store_crc(0, t, 64), t + 72, 32 * STORE_TILES);
        store_number(t + 64, crc);
    }
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_READ, &file) == MEMOPT_OK);
    CHECK(memopt_i_system_read(NULL, file, 0, got, disk, &done) == MEMOPT_OK && done == disk && !memcmp(want, got, disk));
    CHECK(memopt_i_system_close(NULL, file) == MEMOPT_OK && memopt_i_system_remove(NULL, path) == MEMOPT_OK);
    free(want); free(got);
}
/* Bytes of the file, read or written behind the store's back. */
static void store_poke(const char *path, uint64_t offset, void *bytes, size_t count, int writes) {
    void *file = NULL; size_t done = 0;
    CHECK(memopt_i_system_open(NULL, path, writes ? MEMOPT_OPEN_WRITE : MEMOPT_OPEN_READ, &file) == MEMOPT_OK);
    if (writes) CHECK(memopt_i_system_write(NULL, file, offset, bytes, count) == MEMOPT_OK);
    else CHECK(memopt_i_system_read(NULL, file, offset, bytes, count, &done) == MEMOPT_OK && done == count);
    CHECK(memopt_i_system_close(NULL, file) == MEMOPT_OK);
}
static void store_flip(const char *path, uint64_t offset, int bit) {
    unsigned char byte;
    store_poke(path, offset, &byte, 1, 0);
    byte ^= (unsigned char)(1 << bit);
    store_poke(path, offset, &byte, 1, 1);
}
static memopt_status store_read_tile(memopt_store *x, size_t tile, unsigned char *bytes) {
    memopt_status s = memopt_store_read(x, tile, bytes, store_bytes[tile]);
    return s ? s : memopt_store_wait(x, tile);
}
/* Which tiles are found to be damaged, as bits; each is asked for anew. Those that are not have the bytes of the step. */
static unsigned store_damaged(memopt_store *x, uint64_t step) {
    unsigned char bytes[STORE_ROOM]; unsigned found = 0; size_t tile;
    for (tile = 0; tile < STORE_TILES; ++tile) {
        const memopt_status s = store_read_tile(x, tile, bytes); char text[80];
        if (!s) { CHECK_AT(store_is(bytes, tile, step, store_bytes[tile]), tile); continue; }
        snprintf(text, sizeof text, "store: is not what was written: its CRC-32C differs at tile %u", (unsigned)tile);
        CHECK(store_says(x, s, MEMOPT_ERR_FORMAT, text));
        found |= 1u << tile;
        CHECK(memopt_store_wait(x, (tile + 1) % STORE_TILES) == MEMOPT_ERR_FORMAT); /* it sticks, in every call */
        CHECK(memopt_store_write(x, 1, bytes, 1) == MEMOPT_ERR_FORMAT && memopt_store_read(x, 1, bytes, 1) == MEMOPT_ERR_FORMAT);
        CHECK(memopt_store_wait(x, STORE_TILES) == MEMOPT_ERR_ARGUMENT && store_says(x, memopt_store_commit(x, 9), MEMOPT_ERR_FORMAT, text));
        CHECK(memopt_store_abandon(x) == MEMOPT_OK);
    }
    return found;
}
static void store_found(void) {
    static const uint64_t places[STORE_TILES] = { 0, 4096, 8192, 16384, 28672, 32768 }; /* in a region */
    char path[600]; memopt_store_desc d; memopt_store *x; size_t tile; unsigned char a[12288], b[12288]; int reopened; memopt_store_tile told;
    test_path(path, "found");
    for (reopened = 0; reopened < 2; ++reopened) {
        const uint64_t region = 8192 + 40960; /* the second: step 2 */
        d = store_desc(path); d.keep = 1;
        x = store_of_steps(&d, 2);
        if (reopened) { memopt_store_destroy(x); d.reopen = 1; x = NULL; CHECK(memopt_store_create(&d, &x) == MEMOPT_OK); }
        told = memopt_store_get_tile(x, 3);
        CHECK(told.count == 12288 && told.step == 2);
        CHECK(store_damaged(x, 2) == 0);
        for (tile = 0; tile < STORE_TILES; ++tile) { /* a bit of its first byte, of its last one; behind it nobody minds */
            store_flip(path, region + places[tile], 3); CHECK_AT(store_damaged(x, 2) == 1u << tile, tile); store_flip(path, region + places[tile], 3);
            store_flip(path, region + places[tile] + store_bytes[tile] - 1, 7); CHECK_AT(store_damaged(x, 2) == 1u << tile, tile); store_flip(path, region + places[tile] + store_bytes[tile] - 1, 7);
            if (store_bytes[tile] % 4096) { store_flip(path, region + places[tile] + store_bytes[tile], 0); CHECK_AT(store_damaged(x, 2) == 0, tile); }
        }
        store_poke(path, region + places[1], a, 4096, 0); store_poke(path, region + places[2], b, 4096, 0); /* two swapped */
        store_poke(path, region + places[1], b, 4096, 1); store_poke(path, region + places[2], a, 4096, 1);
        CHECK(store_damaged(x, 2) == (1u << 1 | 1u << 2));
        store_poke(path, region + places[1], a, 4096, 1); store_poke(path, region + places[2], b, 4096, 1);
        store_poke(path, region + places[3], b, 12288, 0); store_poke(path, 8192 + places[3], a, 12288, 0); /* that of the step before */
        store_poke(path, region + places[3], a, 12288, 1); CHECK(store_damaged(x, 2) == 1u << 3);
        store_poke(path, region + places[3], b, 8192, 1); CHECK(store_damaged(x, 2) == 1u << 3); /* torn: the end is old */
        store_poke(path, region + places[3], b, 12288, 1); CHECK(store_damaged(x, 2) == 0);
        { void *file = NULL; /* cut while it is open: in the last tile */
          CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK && memopt_i_system_resize(NULL, file, region + places[5] + 4096) == MEMOPT_OK && memopt_i_system_close(NULL, file) == MEMOPT_OK); }
        CHECK(store_says(x, store_read_tile(x, 5, a), MEMOPT_ERR_FORMAT, "store: the file ends before it does at tile 5"));
        CHECK(memopt_store_wait(x, 0) == MEMOPT_ERR_FORMAT && memopt_store_abandon(x) == MEMOPT_OK && store_read_tile(x, 4, a) == MEMOPT_OK);
        memopt_store_destroy(x);
        d.reopen = 1;
        REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_FORMAT, "store: the file's bytes 86016, at least 90112");
        CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
    }
}
static void store_tables(void) { /* every bit of a table: the other one is taken; both: refused; and files of others */
    char path[600]; memopt_store_desc d, e; memopt_store *x; size_t at; int bit; unsigned char table[2][4096], zeros[4096]; size_t other[STORE_TILES];
    test_path(path, "tables");
    d = store_desc(path); d.keep = 1; d.no_direct = 1;
    memopt_store_destroy(store_of_steps(&d, 2));
    d.reopen = 1;
    memset(zeros, 0, sizeof zeros);
    store_poke(path, 0, table[0], 4096, 0); store_poke(path, 4096, table[1], 4096, 0); /* of step 2; of step 1 */
    for (at = 0; at < 72 + 32 * STORE_TILES; ++at) for (bit = (int)(at % 3); bit < 8; bit += 3) {
        store_flip(path, at, bit);
        x = NULL;
        CHECK_AT(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == 1 && store_damaged(x, 1) == 0, at);
        memopt_store_destroy(x);
        store_poke(path, 4096, zeros, 4096, 1);
        CHECK_AT(store_try(&d) == MEMOPT_ERR_FORMAT, at);
        store_poke(path, 4096, table[1], 4096, 1);
        store_flip(path, at, bit);
        store_flip(path, 4096 + at, bit);
        x = NULL;
        CHECK_AT(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == 2, at);
        memopt_store_destroy(x);
        store_flip(path, 4096 + at, bit);
    }
    x = NULL;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == 2 && store_damaged(x, 2) == 0);
    memopt_store_destroy(x);
    memcpy(other, store_bytes, sizeof other); other[2] = 5001;
    e = d; REFUSES(e.error, e.each_bytes = other, store_try(&e), MEMOPT_ERR_FORMAT, "store: path has other tiles than the desc");
    e = d; REFUSES(e.error, e.tiles = 5, store_try(&e), MEMOPT_ERR_FORMAT, "store: path has other tiles than the desc");
    e = d; REFUSES(e.error, e.no_atomic = 1, store_try(&e), MEMOPT_ERR_FORMAT, "store: path has another no_atomic than the desc");
    store_flip(path, 100, 1); store_flip(path, 4196, 1);
    e = d; REFUSES(e.error, (void)0, store_try(&e), MEMOPT_ERR_FORMAT, "store: path is damaged");
    store_flip(path, 100, 1); store_flip(path, 4196, 1);
    store_flip(path, 16, 1); store_flip(path, 4112, 1);
    e = d; REFUSES(e.error, (void)0, store_try(&e), MEMOPT_ERR_FORMAT, "store: path is damaged, or of a newer version");
    store_poke(path, 0, zeros, 4096, 1); store_poke(path, 4096, zeros, 4096, 1);
    e = d; REFUSES(e.error, (void)0, store_try(&e), MEMOPT_ERR_FORMAT, "store: path is not a store's");
    store_number(table[0] + 24, 3); /* the mark of a store with no_atomic, under a right CRC */
    store_number(table[0] + 64, store_crc(store_crc(0, table[0], 64), table[0] + 72, 32 * STORE_TILES));
    store_poke(path, 0, table[0], 4096, 1);
    e = d; REFUSES(e.error, (void)0, store_try(&e), MEMOPT_ERR_FORMAT, "store: path has another no_atomic than the desc");
    store_number(table[0] + 24, 2);
    for (at = 0; at < 3; ++at) { /* entries that no store writes, under a right CRC */
        unsigned char *entry = table[0] + 72 + 32;
        store_number(entry, at == 0 ? 4097 : at == 1 ? 4096 : 0); store_number(entry + 24, at == 1 ? 3 : 2);
        store_number(table[0] + 64, store_crc(store_crc(0, table[0], 64), table[0] + 72, 32 * STORE_TILES));
        store_poke(path, 0, table[0], 4096, 1);
        e = d; REFUSES(e.error, (void)0, store_try(&e), MEMOPT_ERR_FORMAT, "store: path has an entry that cannot be");
    }
    CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
}

/* -- steps -- */
static void store_copy_file(const char *from, const char *to, size_t bytes) { /* as it lies there now: what a crash would leave */
    unsigned char *all = (unsigned char *)malloc(bytes);
    store_poke(from, 0, all, bytes, 0); store_poke(to, 0, all, bytes, 1);
    free(all);
}
static int store_refused(const memopt_store_desc *desc) { /* a step was cut off */
    memopt_store_desc d = *desc; memopt_store *x = NULL; memopt_error why; char line[160] = ""; memopt_status s;
    memset(&why, 0, sizeof why);
    d.error = &why;
    s = memopt_store_create(&d, &x);
    return s == MEMOPT_ERR_FORMAT && !x && !memopt_error_text(&why, line, sizeof line, NULL)
        && !strcmp(line, "store: path holds half a step: one of a store with no_atomic was cut off");
}
static void store_crash(void) { /* between two commits: all tiles are of the one before; not atomic: the file is not opened */
    char path[600], copy[600]; memopt_store_desc d; memopt_store *x, *y; unsigned char bytes[STORE_ROOM]; size_t tile; int single;
    test_path(path, "crash"); test_path(copy, "crashed");
    for (single = 0; single < 2; ++single) {
        memopt_store_sizes z;
        memset(&z, 0, sizeof z);
        d = store_desc(path); d.keep = 1; d.no_atomic = single;
        CHECK(memopt_store_bytes(&d, &z) == MEMOPT_OK);
        x = store_of_steps(&d, 3);
        for (tile = 0; tile < 4; ++tile) {
            store_content(bytes, tile, 4, store_bytes[tile]);
            CHECK(memopt_store_write(x, tile, bytes, store_bytes[tile]) == MEMOPT_OK && memopt_store_wait(x, tile) == MEMOPT_OK);
            CHECK(store_read_tile(x, tile, bytes) == MEMOPT_OK && store_is(bytes, tile, 4, store_bytes[tile])); /* a step sees what it wrote */
        }
        store_copy_file(path, copy, (size_t)z.disk);
        d.path = copy; d.reopen = 1; y = NULL;
        if (single) CHECK(store_refused(&d));
        else {
            CHECK(memopt_store_create(&d, &y) == MEMOPT_OK && memopt_store_get_stats(y).step == 3 && store_damaged(y, 3) == 0);
            memopt_store_destroy(y);
        }
        CHECK(memopt_store_abandon(x) == MEMOPT_OK); /* the step fails */
        store_copy_file(path, copy, (size_t)z.disk);
        if (single) CHECK(store_refused(&d)); /* tiles are still those of two steps */
        for (tile = 0; tile < STORE_TILES; ++tile) CHECK_AT(store_read_tile(x, tile, bytes) == MEMOPT_OK && store_is(bytes, tile, single && tile < 4 ? 4 : 3, store_bytes[tile]), tile);
        CHECK(memopt_store_get_tile(x, 1).step == (single ? MEMOPT_STORE_NO_STEP : 3) && memopt_store_get_tile(x, 5).step == 3);
        CHECK(memopt_store_commit(x, 4) == MEMOPT_OK && memopt_store_commit(x, 5) == MEMOPT_OK); /* from here on the file is whole again */
        store_copy_file(path, copy, (size_t)z.disk);
        y = NULL;
        CHECK(memopt_store_create(&d, &y) == MEMOPT_OK && memopt_store_get_stats(y).step == 5);
        for (tile = 0; tile < STORE_TILES; ++tile) CHECK_AT(store_read_tile(y, tile, bytes) == MEMOPT_OK && store_is(bytes, tile, single && tile < 4 ? 4 : 3, store_bytes[tile]), tile);
        memopt_store_destroy(y);
        memopt_store_destroy(x);
        CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK && memopt_i_system_remove(NULL, copy) == MEMOPT_OK);
    }
}
/* Two steps and their reading back; with `again`, what fails is abandoned and done once more. */
static memopt_status store_script(const memopt_store_desc *d, int again, uint64_t *made, memopt_store **made_store) {
    static unsigned char bytes[STORE_TILES][STORE_ROOM]; memopt_store *x = NULL; size_t tile, tries = 0; uint64_t step; memopt_status s = memopt_store_create(d, &x), first;
    first = s;
    *made = 0; *made_store = x;
    if (s && !x && !again) return s;
    while (!x && again && tries++ < 3) s = memopt_store_create(d, &x);
    *made_store = x;
    for (step = 1; x && step <= 2; ) {
        for (tile = 0, s = MEMOPT_OK; !s && tile < STORE_TILES; ++tile) {
            store_content(bytes[tile], tile, step, store_bytes[tile]);
            s = memopt_store_write(x, tile, bytes[tile], store_bytes[tile]);
        }
        for (tile = 0; !s && tile < STORE_TILES; tile += 2) s = memopt_store_wait(x, tile);
        for (tile = 0; !s && tile < STORE_TILES; tile += 3) s = memopt_store_read(x, tile, memset(bytes[tile], 0, STORE_ROOM), store_bytes[tile]);
        for (tile = 0; !s && tile < STORE_TILES; tile += 3) { s = memopt_store_wait(x, tile); CHECK(s || store_is(bytes[tile], tile, step, store_bytes[tile])); }
        if (!s) s = memopt_store_commit(x, step);
        if (!s) { *made = step++; continue; }
        if (!first) first = s;
        CHECK(memopt_store_error(x).status == s && memopt_store_error(x).reason);
        if (!again || tries++ > 4) return first;
        while (memopt_store_abandon(x) && tries++ < 9) {}
    }
    return first;
}
static memopt_status store_faulty_sync(void *user, void *file) { (void)file; return test_fails((test_faults *)user) ? MEMOPT_ERR_IO : MEMOPT_OK; }
static memopt_status store_faulty_reserve(void *user, void *file, uint64_t bytes) { return test_fails((test_faults *)user) ? MEMOPT_ERR_MEMORY : memopt_i_system_resize(NULL, file, bytes); }
static void store_faults_of(int backend, int flags) {
    char path[600]; memopt_store_desc d, clean; memopt_store *x; test_faults f; memopt_host h, plain; size_t n = 0; int again, from;
    memset(&plain, 0, sizeof plain);
    if (!store_backend(&plain, backend)) return;
    test_path(path, "faults");
    for (again = 0; again < 2; ++again) for (from = 0; from < 2 - again; ++from) for (n = 1; n < 400; ++n) {
        uint64_t made = 0; memopt_status s; unsigned char bytes[STORE_ROOM]; size_t tile;
        memset(&f, 0, sizeof f); h = test_host(&f); h.files.sync_fn = store_faulty_sync; h.files.reserve_fn = store_faulty_reserve;
        if (backend == STORE_AT_ONCE) { h.files.queue_open_fn = NULL; h.files.queue_close_fn = NULL; h.files.begin_fn = NULL; h.files.wait_fn = NULL; }
        if (backend == STORE_MOVERS) h.files.queue_open_fn = plain.files.queue_open_fn;
        if (from) f.fail_from = n; else f.fail_on = n;
        d = store_desc(flags & 1 ? path : NULL); d.host = &h; d.keep = flags >> 1 & flags & 1; d.no_atomic = flags >> 2; d.transfers = 2; d.no_direct = backend == STORE_AT_ONCE;
        s = store_script(&d, again, &made, &x);
        CHECK_AT(!again || made == 2, n);
        CHECK_AT(s == MEMOPT_OK || s == MEMOPT_ERR_IO || s == MEMOPT_ERR_MEMORY, n);
        f.fail_from = f.fail_on = 0;
        if (!s) CHECK_AT(made == 2 && (f.calls < n || n == 2), n); /* 2: looked for a file that is not there */
        memopt_store_destroy(x);
        CHECK_AT(f.live_blocks == 0 && f.bad_frees == 0, n);
        if (!x || !d.keep) { if (!from && f.calls != n) store_gone(path); } /* unless it was removing it that failed */
        else { /* the file holds one whole step: that of the last commit that went well, or of the one that failed */
            clean = d; clean.host = &plain; clean.reopen = 1; x = NULL;
            CHECK_AT(memopt_store_create(&clean, &x) == MEMOPT_OK || (d.no_atomic && store_refused(&clean)), n);
            if (x) {
                const uint64_t step = memopt_store_get_stats(x).step, now = step == MEMOPT_STORE_NO_STEP ? 0 : step;
                CHECK_AT(now == made || now == made + 1, n);
                for (tile = 0; now && tile < STORE_TILES; ++tile) CHECK_AT(store_read_tile(x, tile, bytes) == MEMOPT_OK && store_is(bytes, tile, now, store_bytes[tile]), n);
            }
            memopt_store_destroy(x);
        }
        if (store_there(path)) CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
        if (!s && f.calls < n) break;
    }
    CHECK(n > 1 && n < 400);
}
/* One region: a store that was never committed holds nothing that could be half; a mark that cannot be written destroys nothing. */
static void store_marks(void) {
    char path[600], copy[600]; memopt_store_desc d, e; memopt_store *x = NULL, *y = NULL; unsigned char bytes[STORE_ROOM]; test_faults f; memopt_host h; memopt_store_sizes z; size_t syncs;
    memset(&z, 0, sizeof z);
    test_path(path, "marks"); test_path(copy, "marked");
    d = store_desc(path); d.keep = 1; d.no_atomic = 1; e = d; e.path = copy; e.reopen = 1;
    CHECK(memopt_store_bytes(&d, &z) == MEMOPT_OK && memopt_store_create(&d, &x) == MEMOPT_OK);
    store_content(bytes, 1, 1, store_bytes[1]);
    CHECK(memopt_store_write(x, 1, bytes, store_bytes[1]) == MEMOPT_OK && memopt_store_wait(x, 1) == MEMOPT_OK);
    store_copy_file(path, copy, (size_t)z.disk);
    CHECK(memopt_store_create(&e, &y) == MEMOPT_OK && memopt_store_get_tile(y, 1).count == 0);
    memopt_store_destroy(y); memopt_store_destroy(x);
    memset(&f, 0, sizeof f); h = test_host(&f); h.files.sync_fn = store_faulty_sync; /* each sync of the mark fails once */
    for (syncs = 1; syncs < 3; ++syncs) {
        const memopt_host *plain = d.host;
        x = store_of_steps(&d, 3);
        memopt_store_destroy(x);
        e = d; e.reopen = 1; e.host = &h; x = NULL;
        CHECK(memopt_store_create(&e, &x) == MEMOPT_OK);
        f.calls = 0; f.fail_on = syncs == 1 ? 1 : 3; /* sync, table, sync */
        CHECK(memopt_store_write(x, 1, bytes, store_bytes[1]) == MEMOPT_ERR_IO);
        f.fail_on = 0;
        CHECK(memopt_store_abandon(x) == MEMOPT_OK);
        memopt_store_destroy(x);
        e.host = plain; x = NULL;
        CHECK(memopt_store_create(&e, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == 3 && store_damaged(x, 3) == 0);
        memopt_store_destroy(x);
    }
    x = store_of_steps(&d, 3); /* a sync that failed once and then says nothing: what it left out is not committed as if it were there */
    memopt_store_destroy(x);
    e.host = &h; x = NULL;
    CHECK(memopt_store_create(&e, &x) == MEMOPT_OK && memopt_store_write(x, 1, bytes, store_bytes[1]) == MEMOPT_OK && memopt_store_wait(x, 1) == MEMOPT_OK);
    f.calls = 0; f.fail_on = 1;
    CHECK(memopt_store_commit(x, 4) == MEMOPT_ERR_IO);
    f.fail_on = 0;
    CHECK(memopt_store_abandon(x) == MEMOPT_OK && memopt_store_get_tile(x, 1).count == 0 && memopt_store_commit(x, 4) == MEMOPT_OK);
    CHECK(memopt_store_read(x, 1, bytes, store_bytes[1]) == MEMOPT_ERR_STATE && store_read_tile(x, 0, bytes) == MEMOPT_OK);
    memopt_store_destroy(x);
    CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK && memopt_i_system_remove(NULL, copy) == MEMOPT_OK);
}
static void store_faults(void) {
    int backend, flags;
    for (backend = STORE_AT_ONCE; backend < STORE_BACKENDS; ++backend) for (flags = 0; flags < 8; ++flags)
        if (backend == STORE_AT_ONCE || flags == 1 || flags == 3) store_faults_of(backend, flags);
}
/* A file in memory, on a disk behind a cache. Killed: the cache stays. A power cut: of what was not synced any blocks are there. */
enum { STORE_DISK = 2 * 4096 + 2 * 40960 };
static struct store_disk { memopt_host host; unsigned char now[STORE_DISK], safe[STORE_DISK], dirty[STORE_DISK / 4096]; int there, named, unreadable, once, garbled, forgets; long ops, die; } store_disk, store_disk_killed, store_disk_cut;
static int store_disk_dies(void) { return store_disk.die >= 0 && store_disk.ops++ >= store_disk.die; } /* and is dead from then on */
static memopt_status store_disk_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    (void)user; (void)path;
    if (!store_disk.there && (mode == MEMOPT_OPEN_READ || mode == MEMOPT_OPEN_READ_DIRECT)) return MEMOPT_ERR_IO;
    store_disk.there = 1; *file = &store_disk;
    return MEMOPT_OK;
}
static memopt_status store_disk_close(void *user, void *file) { (void)user; (void)file; return MEMOPT_OK; }
static memopt_status store_disk_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    (void)user; (void)file;
    if (offset < 8192 && store_disk.unreadable >> (int)(offset / 4096) & 1) {
        if (store_disk.once == 2) { memcpy(bytes, store_disk.now + (size_t)offset, count / 2); *done = count / 2; return MEMOPT_OK; } /* it ends in the middle */
        store_disk.unreadable &= store_disk.once - 1;
        return MEMOPT_ERR_IO;
    }
    memcpy(bytes, store_disk.now + (size_t)offset, count); *done = count;
    if (offset < 8192 && store_disk.garbled >> (int)(offset / 4096) & 1) ((unsigned char *)bytes)[100] ^= 1;
    return MEMOPT_OK;
}
static memopt_status store_disk_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    const int dies = store_disk_dies(); size_t i;
    (void)user; (void)file;
    if (dies && store_disk.ops - 1 > store_disk.die) return MEMOPT_ERR_IO;
    if (dies) count /= 2; /* torn */
    memcpy(store_disk.now + (size_t)offset, bytes, count);
    for (i = (size_t)offset / 4096; i * 4096 < offset + count; ++i) store_disk.dirty[i] = 1;
    return dies ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_status store_disk_size(void *user, void *file, uint64_t *bytes) { (void)user; (void)file; *bytes = STORE_DISK; return MEMOPT_OK; }
static memopt_status store_disk_resize(void *user, void *file, uint64_t bytes) { (void)user; (void)file; if (!bytes) { memset(store_disk.now, 0, STORE_DISK); memset(store_disk.dirty, 1, sizeof store_disk.dirty); } return MEMOPT_OK; }
static memopt_status store_disk_sync(void *user, void *file) {
    size_t i;
    (void)user; (void)file;
    if (store_disk_dies()) { if (store_disk.forgets) memset(store_disk.dirty, 0, sizeof store_disk.dirty); return MEMOPT_ERR_IO; } /* a system may throw away what it could not write */
    for (i = 0; i < sizeof store_disk.dirty; ++i) if (store_disk.dirty[i]) memcpy(store_disk.safe + i * 4096, store_disk.now + i * 4096, 4096);
    memset(store_disk.dirty, 0, sizeof store_disk.dirty);
    return MEMOPT_OK;
}
static memopt_status store_disk_remove(void *user, const char *path) { (void)user; (void)path; store_disk.there = 0; return MEMOPT_OK; }
static memopt_status store_disk_reserve(void *user, void *file, uint64_t bytes) { (void)user; (void)file; CHECK(bytes == STORE_DISK); return MEMOPT_OK; }
static memopt_status store_disk_align(void *user, void *file, size_t *alignment) { (void)user; (void)file; *alignment = 1; return MEMOPT_OK; }
static memopt_status store_disk_sync_dir(void *user, const char *path) { (void)user; (void)path; if (store_disk_dies()) return MEMOPT_ERR_IO; store_disk.named = 1; return MEMOPT_OK; }
static void store_disk_host(void) {
    memopt_files *f = &store_disk.host.files;
    memset(&store_disk, 0, sizeof store_disk);
    *f = memopt_i_system_files();
    f->open_fn = store_disk_open; f->close_fn = store_disk_close; f->read_fn = store_disk_read; f->write_fn = store_disk_write; f->size_fn = store_disk_size; f->resize_fn = store_disk_resize;
    f->sync_fn = store_disk_sync; f->remove_fn = store_disk_remove; f->reserve_fn = store_disk_reserve; f->align_fn = store_disk_align; f->sync_dir_fn = store_disk_sync_dir;
    f->queue_open_fn = NULL; f->queue_close_fn = NULL; f->begin_fn = NULL; f->wait_fn = NULL;
    f->lock_fn = NULL; store_disk.die = -1;
}
static void store_disk_power_cut(uint64_t *seed, int way) { /* 0: nothing more reached the disk; 1: all; else any */
    size_t i;
    for (i = 0; i < sizeof store_disk.dirty; ++i) if (store_disk.dirty[i] && !(way == 0 || (way > 1 && test_below(seed, 2)))) memcpy(store_disk.safe + i * 4096, store_disk.now + i * 4096, 4096);
    memcpy(store_disk.now, store_disk.safe, STORE_DISK); memset(store_disk.dirty, 0, sizeof store_disk.dirty);
    store_disk.there = store_disk.named; store_disk.die = -1;
}
/* Two steps, first and the one after; ok: the last that was committed, begun: the last whose commit was called. */
static int store_disk_steps(memopt_store *x, uint64_t first, uint64_t *ok, uint64_t *begun) {
    unsigned char bytes[STORE_ROOM]; uint64_t step; size_t tile;
    for (step = first; step < first + 2; ++step) {
        for (tile = 0; tile < STORE_TILES; ++tile) {
            store_content(bytes, tile, step, store_bytes[tile]);
            if (memopt_store_write(x, tile, bytes, store_bytes[tile]) || memopt_store_wait(x, tile)) return 0;
        }
        *begun = step;
        if (memopt_store_commit(x, step)) return 0;
        *ok = step;
    }
    return 1;
}
static uint64_t store_disk_look(const memopt_store_desc *d, memopt_store **x, uint64_t or_else, long at) { /* reopens: the step */
    uint64_t step;
    *x = NULL;
    CHECK_AT(memopt_store_create(d, x) == MEMOPT_OK, at);
    step = memopt_store_get_stats(*x).step;
    if (!*x || step == MEMOPT_STORE_NO_STEP) return or_else;
    CHECK_AT(store_damaged(*x, step) == 0, at);
    return step;
}
static void store_killed_then_cut(void) { /* at each call of the disk; a second run goes on, and has a power cut at each of its calls */
    memopt_store_desc d; memopt_store *x; uint64_t seed = 9; long kill, cut; int way, forgets, done = 0, over;
    for (forgets = 0; forgets < 2; ++forgets) for (kill = 0, done = 0; !done; ++kill) {
        uint64_t ok = 0, begun = 0, step;
        store_disk_host(); store_disk.die = kill; store_disk.forgets = forgets; x = NULL;
        d = store_desc("a file"); d.keep = 1; d.host = &store_disk.host;
        if (memopt_store_create(&d, &x)) { CHECK(kill < 3); continue; }
        done = store_disk_steps(x, 1, &ok, &begun);
        memopt_store_destroy(x);
        store_disk_killed = store_disk; d.reopen = 1;
        for (cut = 0, over = 0; !over; ++cut) {
            uint64_t ok2 = ok, begun2 = begun;
            store_disk = store_disk_killed; store_disk.ops = 0; store_disk.die = cut; x = NULL;
            if (!memopt_store_create(&d, &x)) {
                step = memopt_store_get_stats(x).step == MEMOPT_STORE_NO_STEP ? 0 : memopt_store_get_stats(x).step;
                CHECK_AT(step >= ok && step <= begun, kill);
                ok2 = begun2 = step; /* what has been told is safe */
                over = store_disk_steps(x, 10, &ok2, &begun2);
                memopt_store_destroy(x);
            }
            store_disk_cut = store_disk;
            for (way = 0; way < 5; ++way) {
                store_disk = store_disk_cut;
                store_disk_power_cut(&seed, way);
                step = store_disk_look(&d, &x, 0, kill * 100 + cut);
                CHECK_AT(step == ok2 || step == begun2, kill * 100 + cut);
                memopt_store_destroy(x);
            }
        }
        CHECK(cut > 20);
    }
    CHECK(kill > 20);
    store_disk_host(); x = NULL; /* killed before the file's name was safe */
    store_disk.die = 2; d.reopen = 0;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_ERR_IO);
    store_disk.there = 1; store_disk.die = -1; d.reopen = 1;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && store_disk.named);
    memopt_store_destroy(x);
}
static void store_opening(void) { /* what a file needs before there is a store */
    char path[600]; store_table t; memopt_host h = store_table_host(&t); memopt_store_desc d; memopt_store *x = NULL; unsigned char byte = 1;
    test_path(path, "opening");
    d = store_desc(path); d.host = &h;
    t.reserve = MEMOPT_ERR_MEMORY; /* a full disk is known before the first step, and nothing is left of the file */
    REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_MEMORY, "store: the disk has no room for it, or it is above the limit of a file (ulimit -f): asked 88.0 KiB"); store_gone(path);
    t.reserve = MEMOPT_ERR_IO;
    REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_IO, "store: its room could not be taken: asked 88.0 KiB"); store_gone(path);
    t.reserve = MEMOPT_OK; t.align = MEMOPT_ERR_IO;
    REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_IO, "store: path has no alignment"); store_gone(path);
    t.align = MEMOPT_OK; t.alignment = 8192 + 1;
    REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_UNSUPPORTED, "store: the file's alignment 8192, must divide 4096"); store_gone(path);
    t.alignment = 1;
    REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_UNSUPPORTED, "store: the file's alignment 0, must divide 4096"); store_gone(path);
    t.alignment = 0; t.queue = MEMOPT_ERR_MEMORY;
    REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_MEMORY, "store: path has no queue"); store_gone(path);
    t.queue = MEMOPT_OK; d.keep = 1; t.write = MEMOPT_ERR_IO;
    REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_IO, "store: path cannot be written"); store_gone(path);
    t.write = MEMOPT_OK; d.keep = 0;
    h.files.reserve_fn = NULL; h.files.align_fn = NULL; h.files.make_dir_fn = NULL; h.files.list_dir_fn = NULL; h.files.sync_dir_fn = NULL; /* no directories: no direct files */
    d.keep = 1;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && !memopt_store_get_stats(x).direct);
    CHECK(memopt_store_write(x, 0, &byte, 1) == MEMOPT_OK && memopt_store_commit(x, 1) == MEMOPT_OK);
    memopt_store_destroy(x);
    x = NULL; d.reopen = 1;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == 1);
    memopt_store_destroy(x);
    d.reopen = 0; x = NULL; /* made anew over one that has gone further: nothing of it is left, also when nothing is written */
    memopt_store_destroy(store_of_steps(&d, 3));
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK);
    memopt_store_destroy(x);
    d.reopen = 1; x = NULL;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == MEMOPT_STORE_NO_STEP && memopt_store_get_tile(x, 1).count == 0);
    memopt_store_destroy(x);
    d.reopen = 0; d.keep = 0; x = NULL;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_tile(x, 0).count == 0 && memopt_store_get_stats(x).step == MEMOPT_STORE_NO_STEP);
    memopt_store_destroy(x);
    CHECK(store_named(path, 0) == 1 && memopt_i_system_remove(NULL, path) == MEMOPT_OK); /* a scratch file has a name of its own */
}
static uint64_t store_file_bytes(const char *path) {
    void *file = NULL; uint64_t bytes = 0;
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_READ, &file) == MEMOPT_OK && memopt_i_system_size(NULL, file, &bytes) == MEMOPT_OK && memopt_i_system_close(NULL, file) == MEMOPT_OK);
    return bytes;
}
static int store_open_fails; static const char *store_closing; /* the open that fails; a name that is gone before its file is closed */
static memopt_status store_open_once(void *user, const char *path, memopt_open_mode mode, void **file) {
    (void)user;
    return store_open_fails && --store_open_fails == 0 ? MEMOPT_ERR_IO : memopt_i_system_open(NULL, path, mode, file);
}
static memopt_status store_close_looks(void *user, void *file) {
    (void)user;
#if !defined(_WIN32) /* which removes no file that is open */
    if (store_closing) CHECK(!store_there(store_closing));
#endif
    return memopt_i_system_close(NULL, file);
}
static void store_not_removed(void) { /* a kept file whose first look failed, or whose name another may have the moment it is closed */
    char path[600]; store_table t; memopt_host h = store_table_host(&t); memopt_store_desc d;
    test_path(path, "look");
    d = store_desc(path); d.keep = 1;
    memopt_store_destroy(store_of_steps(&d, 2));
    h.files.open_fn = store_open_once; h.files.lock_fn = NULL; d.host = &h;
    store_open_fails = 1; t.align = MEMOPT_ERR_IO;
    CHECK(store_try(&d) == MEMOPT_ERR_IO && !store_open_fails && store_there(path));
    CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
    h = store_table_host(&t); h.files.open_fn = store_open_once; h.files.close_fn = store_close_looks;
    t.align = MEMOPT_ERR_IO; store_closing = path;
    CHECK(store_try(&d) == MEMOPT_ERR_IO && !store_there(path));
    store_closing = NULL;
}
static void store_replaced(void) { /* a file that is there: as it was, unless it has been emptied; then it is gone */
    char path[600]; store_table t; memopt_host h = store_table_host(&t); memopt_store_desc d, other, whole; memopt_store *x; int way; memopt_status s;
    test_path(path, "replaced");
    whole = store_desc(path); whole.keep = 1;
    for (way = 0; way < 10; ++way) {
        const int goes = way >= 7;
        h = store_table_host(&t); whole.reopen = 0;
        memopt_store_destroy(store_of_steps(&whole, 2));
        d = whole; d.host = &h; other = d; other.each_bytes = NULL; other.tile_bytes = way == 5 ? 4096 : 40000; test_why_reset(); other.error = &test_why; x = NULL;
        if (way == 0) t.size = MEMOPT_ERR_IO;
        if (way == 1) t.align = MEMOPT_ERR_IO;
        if (way == 2) t.alignment = 8192 + 1;
        if (way == 3) t.queue = MEMOPT_ERR_MEMORY;
        if (way == 4) t.reserve = MEMOPT_ERR_MEMORY;
        if (way == 5) t.resize = MEMOPT_ERR_IO; /* smaller than what is there */
        if (way == 6) t.resize = MEMOPT_ERR_IO; /* larger */
        if (way == 7) { t.reserve = MEMOPT_ERR_MEMORY; t.lets = 1; } /* another took the room in between */
        if (way == 8) t.write = MEMOPT_ERR_IO;
        if (way == 9) { t.sync = MEMOPT_ERR_IO; t.tile_writes = 1; }
        s = memopt_store_create(&other, &x);
        CHECK_AT(s && !x, way);
        if (way == 0) CHECK(test_error_says(test_why, MEMOPT_ERR_IO, "store: path cannot be measured"));
        if (way == 5 || way == 6) CHECK(test_error_says(test_why, MEMOPT_ERR_IO, "store: path cannot be emptied"));
        CHECK_AT(store_there(path) == !goes, way);
        if (goes) continue;
        CHECK_AT(store_file_bytes(path) == 2 * 4096 + 2 * 40960, way);
        whole.reopen = 1; x = NULL;
        CHECK_AT(memopt_store_create(&whole, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == 2 && store_damaged(x, 2) == 0, way);
        memopt_store_destroy(x);
    }
    whole.reopen = 0; whole.host = &h; h = store_table_host(&t); /* files without reserve_fn's group: as well, over a longer one and a shorter one */
    h.files.reserve_fn = NULL; h.files.align_fn = NULL; h.files.make_dir_fn = NULL; h.files.list_dir_fn = NULL; h.files.sync_dir_fn = NULL;
    for (way = 0; way < 3; ++way) {
        other = whole; if (way != 1) { other.each_bytes = NULL; other.tile_bytes = 40000; }
        x = NULL;
        CHECK_AT(memopt_store_create(&other, &x) == MEMOPT_OK && store_file_bytes(path) == (way == 1 ? 2u * 4096 + 2 * 40960 : 2u * 4096 + 12 * 40960), way);
        memopt_store_destroy(x);
    }
    store_flip(path, 2 * 4096 + 12 * 40960 - 1, 4);
    t.resize = MEMOPT_ERR_IO; whole.each_bytes = NULL; whole.tile_bytes = 4096;
    CHECK(store_try(&whole) == MEMOPT_ERR_IO && store_file_bytes(path) == 2 * 4096 + 12 * 40960);
    { unsigned char last = 0; store_poke(path, 2 * 4096 + 12 * 40960 - 1, &last, 1, 0); CHECK(last == 16); }
    CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
}
#if defined(MEMOPT_I_POSIX)
static int store_hold(const memopt_store_desc *d, int told) { /* in a process of its own, until it is killed */
    memopt_store *x = NULL; unsigned char byte = 7, answer = (unsigned char)memopt_store_create(d, &x);
    if (!answer && (memopt_store_write(x, 0, &byte, 1) || memopt_store_wait(x, 0) || memopt_store_commit(x, 5))) answer = 99;
    if (told >= 0 && write(told, &answer, 1) != 1) return 1;
    for (;;) (void)pause();
}
#endif
static void store_own_names(void) { /* a file that somebody else has is neither written nor cut, by no name and by no link */
    char path[600], other[600], text[8] = ""; memopt_store_desc d, scratch; memopt_store *x = NULL, *y = NULL; unsigned char bytes[STORE_ROOM]; size_t tile; int way; test_faults f; memopt_host h;
    test_path(path, "names"); test_path(other, "others");
    scratch = store_desc(path);
    CHECK(memopt_store_create(&scratch, &x) == MEMOPT_OK && memopt_store_create(&scratch, &y) == MEMOPT_OK); /* two runs of one path */
    for (tile = 0; tile < STORE_TILES; ++tile) for (way = 0; way < 2; ++way) {
        store_content(bytes, tile, 1 + (uint64_t)way, store_bytes[tile]);
        CHECK(memopt_store_write(way ? y : x, tile, bytes, store_bytes[tile]) == MEMOPT_OK && memopt_store_wait(way ? y : x, tile) == MEMOPT_OK);
    }
    CHECK(store_damaged(x, 1) == 0 && store_damaged(y, 2) == 0);
#if defined(MEMOPT_I_POSIX)
    CHECK(store_named(path, 0) == 0); /* while they are open: nothing can remain */
#endif
    memopt_store_destroy(x); memopt_store_destroy(y);
    store_gone(path);
    store_poke(path, 0, (void *)(uintptr_t)"mine", 4, 1);
    CHECK(store_try(&scratch) == MEMOPT_OK && store_named(path, 0) == 1);
    store_poke(path, 0, text, 4, 0);
    CHECK(!strcmp(text, "mine") && memopt_i_system_remove(NULL, path) == MEMOPT_OK);
    memset(&f, 0, sizeof f); h = test_host(&f); scratch.host = &h; f.fail_on = 2; /* without a clock as well */
    CHECK(store_try(&scratch) == MEMOPT_OK && f.calls > 2);
    store_gone(path);

    d = store_desc(path); d.keep = 1; /* a kept file is one store's at a time */
    x = store_of_steps(&d, 2); y = NULL;
    REFUSES(d.error, (void)0, memopt_store_create(&d, &y), MEMOPT_ERR_STATE, "store: path is open already: another process or store has it");
    CHECK(!y && store_there(path) && store_damaged(x, 2) == 0);
    d.reopen = 1;
    REFUSES(d.error, (void)0, memopt_store_create(&d, &y), MEMOPT_ERR_STATE, "store: path is open already: another process or store has it");
    memopt_store_destroy(x);
    CHECK(memopt_store_create(&d, &y) == MEMOPT_OK && memopt_store_get_stats(y).step == 2 && store_damaged(y, 2) == 0);
    memopt_store_destroy(y);
    for (way = 1; way < 3; ++way) { /* the lock fails: the file stays if it was there */
        if (way == 2) { CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK); d.reopen = 0; }
        h = *store_host(); h.files.lock_fn = store_no_lock; d.host = &h; store_lock_status = MEMOPT_ERR_IO;
        REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_IO, "store: path cannot be locked");
        CHECK_AT(store_there(path) == (way == 1), way);
        store_lock_status = MEMOPT_ERR_UNSUPPORTED; /* a file system without locks */
        CHECK_AT(store_try(&d) == MEMOPT_OK, way);
        store_lock_status = MEMOPT_ERR_STATE; /* made by this one, and taken by another before this one had it */
        if (way == 2) CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
        CHECK_AT(store_try(&d) == MEMOPT_ERR_STATE && store_there(path), way);
    }
    CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
#if defined(MEMOPT_I_POSIX)
    d = store_desc(path); d.keep = 1;
    for (way = 0; way < 4; ++way) { /* a link to a file, and to nothing */
        store_poke(other, 0, (void *)(uintptr_t)"mine", 4, 1);
        if (way & 1) CHECK(memopt_i_system_remove(NULL, other) == MEMOPT_OK);
        CHECK(symlink(other, path) == 0);
        d.reopen = way >> 1;
        if (way == 3) { REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_IO, "store: path cannot be opened"); }
        else { REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_STATE, "store: path is a link"); }
        CHECK_AT(store_try(&scratch) == MEMOPT_OK, way);
        CHECK_AT(memopt_i_system_remove(NULL, path) == MEMOPT_OK && store_there(other) == !(way & 1), way);
        if (way & 1) continue;
        store_poke(other, 0, text, 4, 0);
        CHECK_AT(!strcmp(text, "mine") && store_file_bytes(other) == 4 && memopt_i_system_remove(NULL, other) == MEMOPT_OK, way);
    }
    for (way = 0; way < 2; ++way) { /* another process, until it is killed: a kept file opens then, a scratch file is gone */
        int ends[2] = { -1, -1 }; pid_t child; unsigned char answer = 55;
        if (!way) scratch = store_desc(path);
        d = way ? store_desc(path) : scratch; d.keep = way; d.reopen = 0;
        CHECK(pipe(ends) == 0);
        fflush(stdout);
        child = fork();
        if (child == 0) _exit(store_hold(&d, ends[1]));
        CHECK(child > 0 && read(ends[0], &answer, 1) == 1 && answer == 0);
        d.reopen = way;
        if (way) { REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_STATE, "store: path is open already: another process or store has it"); }
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        (void)close(ends[0]); (void)close(ends[1]);
        if (!way) { store_gone(path); continue; }
        x = NULL;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == 5);
        memopt_store_destroy(x);
        CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
    }
#endif
}
static void store_reopen_fails(void) { /* reading the tables; the file is left as it is */
    char path[600]; memopt_store_desc d; test_faults f; memopt_host h = test_host(&f); size_t n; memopt_store *x = NULL; int io = 0; char line[256];
    test_path(path, "reopen");
    d = store_desc(path); d.keep = 1;
    memset(&f, 0, sizeof f);
    memopt_store_destroy(store_of_steps(&d, 2)); /* the first table is the newer */
    d.reopen = 1; d.host = &h; h.files.sync_fn = store_no_sync; h.files.sync_dir_fn = store_no_sync_dir;
    for (n = 1; n < 100; ++n) {
        memset(&f, 0, sizeof f); f.fail_on = n; x = NULL;
        test_why_reset(); d.error = &test_why;
        if (!memopt_store_create(&d, &x)) {
            if (f.calls < n) break;
            CHECK_AT(memopt_store_get_stats(x).step == 2 && store_damaged(x, 2) == 0, n);
            memopt_store_destroy(x); /* else only a close that failed */
            continue;
        }
        CHECK_AT(!x && store_there(path) && f.live_blocks == 0, n);
        if (!memopt_error_text(&test_why, line, sizeof line, NULL) && !strcmp(line, "store: path cannot be read")) ++io;
    }
    CHECK(n > 5 && n < 100 && io == 3); /* both tables, and the newer one when it is read again */
    f.fail_on = 0;
    CHECK(x && store_damaged(x, 2) == 0);
    memopt_store_destroy(x);
    CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
}
static void store_garbled(void) { /* one table: the other is taken, and what is written then does not depend on which is read later */
    char path[600]; memopt_store_desc d; memopt_store *x; unsigned char bytes[STORE_ROOM]; int newer; uint64_t step;
    test_path(path, "unreadable");
    for (newer = 0; newer < 2; ++newer) {
        store_disk_host(); store_disk.there = store_disk.named = 0;
        d = store_desc(path); d.keep = 1; d.host = &store_disk.host;
        memopt_store_destroy(store_of_steps(&d, 2)); /* the first table is the newer */
        d.reopen = 1; x = NULL; step = newer ? 1 : 2;
        store_disk.garbled = newer ? 1 : 2;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == step && store_damaged(x, step) == 0);
        memopt_store_destroy(x); /* only looked at: the next one may have the newer again */
        store_disk.garbled = 0; x = NULL;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == 2 && store_damaged(x, 2) == 0);
        memopt_store_destroy(x);
        store_disk.garbled = newer ? 1 : 2; x = NULL;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK);
        store_content(bytes, 1, 7, 4096);
        store_disk.die = store_disk.ops; /* the other table cannot be put right: nothing is written */
        CHECK(store_says(x, memopt_store_write(x, 1, bytes, 4096), MEMOPT_ERR_IO, "store: the file could not be synced") && memopt_store_abandon(x) == MEMOPT_ERR_IO);
        store_disk.die = -1;
        CHECK(memopt_store_abandon(x) == MEMOPT_OK && memopt_store_write(x, 1, bytes, 4096) == MEMOPT_OK && memopt_store_wait(x, 1) == MEMOPT_OK);
        memopt_store_destroy(x);
        store_disk.garbled = 0; x = NULL;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == step && store_damaged(x, step) == 0);
        memopt_store_destroy(x);
        store_disk.garbled = newer ? 1 : 2; x = NULL; /* the same, and nobody abandons anything */
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_write(x, 1, bytes, 4096) == MEMOPT_OK);
        memopt_store_destroy(x);
        store_disk.garbled = 0; x = NULL;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == step && store_damaged(x, step) == 0);
        memopt_store_destroy(x);
        store_disk.garbled = 3;
        REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_FORMAT, "store: path is damaged");
        store_disk.garbled = 0; store_disk.die = store_disk.ops;
        REFUSES(d.error, (void)0, store_try(&d), MEMOPT_ERR_IO, "store: path cannot be written");
    }
}
static void store_unreadable(void) { /* either table, once or always: which is the newer is not known, and nothing is taken for it or written */
    memopt_store_desc d; memopt_store *x; int steps, which, once; static unsigned char before[STORE_DISK];
    for (steps = 1; steps <= 2; ++steps) for (which = 1; which <= 3; ++which) for (once = 0; once < 3; ++once) { /* the second table is the newer; the first is */
        store_disk_host();
        d = store_desc("a file"); d.keep = 1; d.host = &store_disk.host;
        memopt_store_destroy(store_of_steps(&d, (uint64_t)steps));
        memcpy(before, store_disk.now, STORE_DISK);
        d.reopen = 1; store_disk.unreadable = which; store_disk.once = once; x = NULL;
        test_why_reset(); d.error = &test_why;
        CHECK_AT(memopt_store_create(&d, &x) == MEMOPT_ERR_IO && !x && test_error_says(test_why, MEMOPT_ERR_IO, "store: path cannot be read"), steps * 100 + which * 10 + once);
        memopt_store_destroy(x);
        store_disk.unreadable = 0; x = NULL;
        CHECK_AT(!memcmp(before, store_disk.now, STORE_DISK), which);
        CHECK_AT(memopt_store_create(&d, &x) == MEMOPT_OK && memopt_store_get_stats(x).step == (uint64_t)steps && store_damaged(x, (uint64_t)steps) == 0, which);
        memopt_store_destroy(x);
    }
}
static void store_half_a_step(void) { /* one region: a step that overwrote tiles and failed leaves no store that opens, however many and whatever is called */
    char path[600]; store_table t; memopt_host h; memopt_store_desc d; memopt_store *x; unsigned char bytes[STORE_ROOM]; size_t tile, count; int way;
    test_path(path, "half");
    for (count = 1; count <= STORE_TILES; ++count) for (way = 0; way < 4; ++way) { /* the table is not written, its sync fails, that of the tiles fails; nothing was held */
        h = store_table_host(&t); d = store_desc(path); d.host = &h; d.keep = 1; d.no_atomic = 1;
        x = store_of_steps(&d, way == 3 ? 0 : 1);
        if (way == 3) CHECK(memopt_store_commit(x, 1) == MEMOPT_OK);
        for (tile = 0; tile < count; ++tile) {
            store_content(bytes, tile, 2, store_bytes[tile]);
            CHECK(memopt_store_write(x, tile, bytes, store_bytes[tile]) == MEMOPT_OK && memopt_store_wait(x, tile) == MEMOPT_OK);
        }
        if (way == 0 || way == 3) t.write = MEMOPT_ERR_IO; else { t.sync = MEMOPT_ERR_IO; t.tile_writes = way == 1 ? 2 : 1; }
        CHECK_AT(memopt_store_commit(x, 2) == MEMOPT_ERR_IO, way);
        t.write = t.sync = MEMOPT_OK;
        CHECK_AT(memopt_store_abandon(x) == MEMOPT_OK, way);
        memopt_store_destroy(x);
        d.host = store_host(); d.reopen = 1;
        CHECK_AT(store_refused(&d), count * 10 + (size_t)way);
        CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
    }
}
static void store_transfers_fail(void) { /* each way of failing, in each place; it sticks, and then all goes on */
    char path[600]; store_table t; memopt_host h; memopt_store_desc d; memopt_store *x = NULL; unsigned char a[STORE_ROOM], b[STORE_ROOM]; int single; size_t i;
    test_path(path, "transfers");
    for (single = 0; single < 2; ++single) {
        h = store_table_host(&t); d = store_desc(path); d.host = &h; d.no_atomic = single; d.transfers = 2;
        x = store_of_steps(&d, 2);
        CHECK(t.most == 2 && t.slots == 2 && t.syncs == 0 && t.table_writes == 0); /* no more than it may; a scratch file is not synced */
        memset(a, 1, sizeof a);
        t.begin = MEMOPT_ERR_DEVICE;
        CHECK(store_says(x, memopt_store_read(x, 1, b, 4096), MEMOPT_ERR_DEVICE, "store: its transfer could not be begun at tile 1"));
        t.begin = MEMOPT_OK;
        CHECK(memopt_store_wait(x, 0) == MEMOPT_ERR_DEVICE && memopt_store_commit(x, 3) == MEMOPT_ERR_DEVICE && memopt_store_abandon(x) == MEMOPT_OK && store_read_tile(x, 1, b) == MEMOPT_OK);
        CHECK(memopt_store_read(x, 2, b, 5000) == MEMOPT_OK);
        t.cut = 4096; /* less than was asked for */
        CHECK(store_says(x, memopt_store_wait(x, 2), MEMOPT_ERR_FORMAT, "store: the file ends before it does at tile 2"));
        t.cut = 0;
        CHECK(memopt_store_abandon(x) == MEMOPT_OK && store_read_tile(x, 2, b) == MEMOPT_OK && store_is(b, 2, 2, 5000));
        CHECK(memopt_store_read(x, 2, b, 5000) == MEMOPT_OK);
        t.wait = MEMOPT_ERR_IO;
        CHECK(store_says(x, memopt_store_wait(x, 2), MEMOPT_ERR_IO, "store: could not be read at tile 2"));
        t.wait = MEMOPT_OK;
        CHECK(memopt_store_write(x, 0, a, 1) == MEMOPT_ERR_IO && memopt_store_abandon(x) == MEMOPT_OK);
        for (i = 0; i < 3; ++i) { /* told by its own wait; by the transfer that needs its slot; by the next one of its tile */
            memopt_status s;
            CHECK(memopt_store_write(x, 4, a, 63) == MEMOPT_OK);
            t.wait = MEMOPT_ERR_IO;
            s = i == 0 ? memopt_store_wait(x, 4) : i == 1 ? memopt_store_read(x, 4, b, 63) : memopt_store_write(x, 3, a, 9);
            if (i == 2) s = memopt_store_write(x, 1, a, 9); /* the third takes the slot of the first */
            CHECK(store_says(x, s, MEMOPT_ERR_IO, "store: could not be written at tile 4"));
            t.wait = MEMOPT_OK;
            CHECK(memopt_store_get_tile(x, 4).count == (single ? 0u : 63u) && memopt_store_abandon(x) == MEMOPT_OK && t.open == 0);
            if (single) {
                CHECK(memopt_store_read(x, 4, b, 63) == MEMOPT_ERR_STATE); /* overwritten, and not known by what */
                CHECK(memopt_store_write(x, 4, a, 63) == MEMOPT_OK && memopt_store_wait(x, 4) == MEMOPT_OK);
            } else CHECK(store_read_tile(x, 4, b) == MEMOPT_OK && store_is(b, 4, 2, 63));
        }
        CHECK(memopt_store_write(x, 1, a, 4096) == MEMOPT_OK);
        t.wait = MEMOPT_ERR_IO;
        CHECK(store_says(x, memopt_store_commit(x, 3), MEMOPT_ERR_IO, "store: could not be written at tile 1") && memopt_store_get_stats(x).step == 2); /* the step is refused */
        t.wait = MEMOPT_OK;
        CHECK(memopt_store_abandon(x) == MEMOPT_OK && memopt_store_write(x, 1, a, 4096) == MEMOPT_OK && memopt_store_commit(x, 3) == MEMOPT_OK && memopt_store_get_tile(x, 1).step == 3);
        CHECK(memopt_store_write(x, 1, a, 4096) == MEMOPT_OK && memopt_store_write(x, 2, a, 4096) == MEMOPT_OK); /* waited for at the end */
        memopt_store_destroy(x);
        store_gone(path);
    }
}
static void store_commit_fails(void) { /* the data's sync, the table, its sync; and what the file holds after each */
    char path[600]; store_table t; memopt_host h; memopt_store_desc d, clean; memopt_store *x = NULL, *y; unsigned char a[STORE_ROOM]; int way, abandons; size_t tile;
    test_path(path, "commit");
    for (way = 0; way < 3; ++way) for (abandons = 0; abandons < 2; ++abandons) {
        h = store_table_host(&t); d = store_desc(path); d.host = &h; d.keep = 1;
        x = store_of_steps(&d, 2);
        CHECK(t.syncs == 1 + 2 * 2 && t.table_writes == 1 + 2);
        for (tile = 0; tile < STORE_TILES; ++tile) {
            store_content(a, tile, 3, store_bytes[tile]);
            CHECK(memopt_store_write(x, tile, a, store_bytes[tile]) == MEMOPT_OK && memopt_store_wait(x, tile) == MEMOPT_OK);
        }
        if (way == 1) t.write = MEMOPT_ERR_IO; else { t.sync = MEMOPT_ERR_IO; t.tile_writes = way ? 2 : 1; } /* which sync */
        CHECK(store_says(x, memopt_store_commit(x, 3), MEMOPT_ERR_IO, way ? "store: the file's table could not be written" : "store: the file could not be synced"));
        CHECK(t.table_writes == (way ? 4 : 3) && memopt_store_get_stats(x).step == 2);
        CHECK(memopt_store_commit(x, 3) == MEMOPT_ERR_IO && memopt_store_wait(x, 0) == MEMOPT_ERR_IO && t.table_writes == (way ? 4 : 3)); /* a sync is not tried again */
        if (abandons) {
            if (way == 1) CHECK(memopt_store_abandon(x) == MEMOPT_ERR_IO && memopt_store_read(x, 1, a, 4096) == MEMOPT_ERR_IO); /* still */
            t.write = t.sync = MEMOPT_OK;
            CHECK(memopt_store_abandon(x) == MEMOPT_OK && t.table_writes == (way == 0 ? 3 : way == 1 ? 6 : 5)); /* the old step once more, in a newer table */
            CHECK(store_damaged(x, 2) == 0);
            store_content(a, 1, 9, 4096); /* goes where step 3 was */
            CHECK(memopt_store_write(x, 1, a, 4096) == MEMOPT_OK && memopt_store_wait(x, 1) == MEMOPT_OK);
        }
        memopt_store_destroy(x);
        clean = d; clean.host = store_host(); clean.reopen = 1; y = NULL;
        CHECK(memopt_store_create(&clean, &y) == MEMOPT_OK);
        CHECK(memopt_store_get_stats(y).step == (way == 2 && !abandons ? 3u : 2u)); /* its table was there, only not known to be safe */
        CHECK(store_damaged(y, way == 2 && !abandons ? 3 : 2) == 0);
        memopt_store_destroy(y);
        CHECK(memopt_i_system_remove(NULL, path) == MEMOPT_OK);
    }
}
#if defined(MEMOPT_I_POSIX)
static void store_full(void) { /* a process whose files may be a megabyte */
    char path[600]; int told = 0; pid_t child;
    test_path(path, "full");
    fflush(stdout);
    child = fork();
    if (child == 0) {
        struct rlimit limit; memopt_store_desc d = store_desc(path); const int before = test_failures;
        limit.rlim_cur = limit.rlim_max = 1 << 20;
        if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit)) _exit(77);
        d.each_bytes = NULL; d.tile_bytes = 1 << 18; d.tiles = 8;
        CHECK(store_try(&d) == MEMOPT_ERR_MEMORY);
        store_gone(path);
        d.tiles = 1;
        CHECK(store_try(&d) == MEMOPT_OK);
        fflush(stdout);
        _exit(test_failures != before);
    }
    CHECK(child > 0 && waitpid(child, &told, 0) == child && WIFEXITED(told));
    if (WIFEXITED(told) && WEXITSTATUS(told) == 77) { SKIP("no limit for files here"); return; }
    CHECK(WIFEXITED(told) && WEXITSTATUS(told) == 0);
}
#endif

/* -- on a disk that is replayed -- */
/* Lives of a kept store on a disk that fails, of processes that die, and power cuts at every moment of all of it: what is
   opened is the last commit that was told, or the one that had begun after it, whole. One region: or it is refused as half a
   step, from its first write on. MEMOPT_REPLAYS in the environment: so many power cuts, instead of a second or two. */
enum { STORE_IMAGES = 64, STORE_MUST = 0, STORE_HALF = 1, STORE_MAY = 2 }; /* what opening may do but open: nothing; refuse half a step; anything */
typedef struct store_image { uint64_t step, version[STORE_TILES]; size_t count[STORE_TILES]; } store_image; /* count 0: no bytes */
typedef struct store_lives { replayed_disk *disk; memopt_host host; store_image images[STORE_IMAGES], now; size_t count; long ok, begun, may; int single; uint64_t scenario, seed, versions, since; } store_lives;
static void store_note(store_lives *l, long ok, long begun, long may) {
    l->ok = ok; l->begun = begun; l->may = may;
    replay_mark(l->disk, ok, begun, may, -1);
}
static int store_has(memopt_store *x, const store_image *m) { /* exactly these tiles */
    unsigned char bytes[STORE_ROOM]; size_t tile;
    if (memopt_store_get_stats(x).step != m->step) return 0;
    for (tile = 0; tile < STORE_TILES; ++tile) {
        if (memopt_store_get_tile(x, tile).count != m->count[tile]) return 0;
        if (!m->count[tile]) continue;
        if (memopt_store_read(x, tile, bytes, m->count[tile]) || memopt_store_wait(x, tile) || !store_is(bytes, tile, m->version[tile], m->count[tile])) return 0;
    }
    return 1;
}
static memopt_store_desc store_lives_desc(const store_lives *l, const memopt_host *host, int reopen, memopt_error *why) {
    memopt_store_desc d = store_desc("a folder/a store");
    d.keep = 1; d.reopen = reopen; d.no_atomic = l->single; d.host = host; d.error = why;
    return d;
}
/* Opens the store as it lies there: which image it is, or -1 where it may be refused, or where the process died on the way. */
static long store_opened(const store_lives *l, const replayed_disk *disk, const memopt_host *host, const long *mark, memopt_store **out) {
    memopt_error why; memopt_store_desc d = store_lives_desc(l, host, 1, &why); memopt_store *x = NULL; memopt_status s; char text[160] = ""; int may; const long faults = disk->fail_sync;
    memset(&why, 0, sizeof why);
    s = memopt_store_create(&d, &x);
    if (s) {
        (void)memopt_error_text(&why, text, sizeof text, NULL);
        may = disk->is_dead || disk->fail_sync != faults || mark[2] == STORE_MAY || (mark[2] == STORE_HALF && s == MEMOPT_ERR_FORMAT && strstr(text, "half a step"));
        CHECK(may);
        if (!may) printf("  scenario %lu: %s; images %ld and %ld, may %ld\n", (unsigned long)l->scenario, text, mark[0], mark[1], mark[2]);
        return -1;
    }
    may = mark[0] >= 0 && store_has(x, &l->images[mark[0]]) ? 0 : mark[1] >= 0 && store_has(x, &l->images[mark[1]]) ? 1 : mark[3] >= 0 && store_has(x, &l->images[mark[3]]) ? 3 : -1;
    CHECK(may >= 0);
    if (may < 0) printf("  scenario %lu: another; images %ld and %ld, may %ld\n", (unsigned long)l->scenario, mark[0], mark[1], mark[2]);
    if (out) *out = x; else memopt_store_destroy(x);
    return may < 0 ? -1 : mark[may];
}
static void store_lost(store_lives *l, const memopt_store *x) { /* one region: after a sync that failed nothing that was written since is known */
    size_t tile; const memopt_error e = memopt_store_error(x);
    for (tile = 0; tile < STORE_TILES; ++tile) if (l->single && e.reason && strstr(e.reason, "synced") && l->now.version[tile] > l->since) l->now.count[tile] = 0;
}
static int store_abandoned(store_lives *l, memopt_store *x) { /* 0: it could not be */
    int tries;
    for (tries = 0; tries < 3; ++tries) {
        if (!memopt_store_abandon(x)) {
            if (!l->single) l->now = l->images[l->ok];
            store_note(l, l->ok, -1, l->may);
            return 1;
        }
        store_lost(l, x);
    }
    return 0;
}
static int store_lives_step(store_lives *l, memopt_store *x, uint64_t step) { /* 0: the process gives up */
    static unsigned char bytes[STORE_TILES][STORE_ROOM]; size_t tile; memopt_status s = MEMOPT_OK; const uint64_t tiles = test_random(&l->seed); const int fault = (int)test_below(&l->seed, 6);
    if (fault == 0) l->disk->fail_sync = 1 + (long)test_below(&l->seed, 4);
    if (fault == 1) l->disk->fail_write = 1 + (long)test_below(&l->seed, 9);
    for (tile = 0; tile < STORE_TILES && !s; ++tile) {
        const size_t count = test_below(&l->seed, 2) ? store_bytes[tile] : 1 + test_below(&l->seed, store_bytes[tile]); const uint64_t version = ++l->versions;
        if (!(tiles >> tile & 1) && !(tiles >> 20 & 1)) continue;
        store_content(bytes[tile], tile, version, count);
        if (l->single && l->images[l->ok].step != MEMOPT_STORE_NO_STEP) store_note(l, l->ok, l->begun, STORE_HALF);
        s = memopt_store_write(x, tile, bytes[tile], count);
        if (s) { store_lost(l, x); break; }
        s = memopt_store_wait(x, tile);
        l->now.version[tile] = version; l->now.count[tile] = s ? 0 : count;
        if (s && !l->single) l->now = l->images[l->ok];
    }
    if (!s && test_below(&l->seed, 8) == 0) return store_abandoned(l, x);
    if (!s) {
        store_image *next = &l->images[l->count];
        *next = l->now; next->step = step;
        store_note(l, l->ok, (long)l->count++, l->may);
        s = memopt_store_commit(x, step);
        if (!s) { l->now = *next; l->since = l->versions; store_note(l, l->begun, -1, STORE_MUST); return 1; }
        store_lost(l, x);
    }
    return test_below(&l->seed, 2) && store_abandoned(l, x);
}
static void store_live(store_lives *l, uint64_t scenario) { /* up to four processes, one after the other */
    int life, reopen = 0; uint64_t step = 0;
    memset(l, 0, sizeof *l);
    l->scenario = l->seed = scenario; l->single = (int)(scenario & 1); l->count = 1; l->images[0].step = MEMOPT_STORE_NO_STEP;
    l->disk = replay_new(scenario); l->host = replay_host(l->disk);
    store_note(l, -1, 0, STORE_MAY); /* the second thing in the log, after the root */
    CHECK(replay_make_dir(l->disk, "a folder") == MEMOPT_OK && replay_sync_dir(l->disk, ".") == MEMOPT_OK);
    for (life = 0; life < 4; ++life) {
        memopt_error why; memopt_store_desc d = store_lives_desc(l, &l->host, 0, &why); memopt_store *x = NULL; const long mark[4] = { l->ok, l->begun, l->may, -1 }; long found = 0;
        if (test_below(&l->seed, 2)) l->disk->die = (long)test_below(&l->seed, 80);
        if (test_below(&l->seed, 6) == 0) l->disk->fail_sync = 1 + (long)test_below(&l->seed, 2);
        if (reopen) found = store_opened(l, l->disk, &l->host, mark, &x);
        else {
            l->begun = 0; l->may = STORE_MAY; /* what was there is replaced: the last, or the one that had begun */
            replay_mark(l->disk, l->ok, 0, STORE_MAY, mark[1]);
            reopen = !memopt_store_create(&d, &x);
        }
        if (x) {
            store_note(l, found, -1, STORE_MUST); /* what has been told is safe */
            l->now = l->images[found]; l->since = l->versions;
            while (l->count < STORE_IMAGES - 1 && !l->disk->is_dead && test_below(&l->seed, 5) && store_lives_step(l, x, ++step)) {}
            memopt_store_destroy(x);
        } else if (l->may != STORE_MUST) reopen = (int)test_below(&l->seed, 2);
        replay_kill(l->disk, (int)test_below(&l->seed, 2));
    }
}
static void store_replayed(void) {
    static store_lives l; const char *asked = getenv("MEMOPT_REPLAYS"); const long want = asked ? atol(asked) : 2000; long states = 0, opened = 0, refused = 0; uint64_t seed = 0;
    while (states < want) {
        replayed_disk *again; int left = 1;
        store_live(&l, ++seed);
        again = replay_again(l.disk);
        while (left) {
            int way;
            left = replay_step(again);
            if (again->next < 2 || test_below(&l.seed, 6)) continue; /* many lives, and some moments of each */
            for (way = 0; way < 2; ++way, ++states) {
                replayed_disk *cut = replay_cut(again, way ? REPLAY_ANY : (int)test_below(&l.seed, 3), test_random(&l.seed)); memopt_host h = replay_host(cut);
                const long found = store_opened(&l, cut, &h, again->mark, NULL);
                ++*(found < 0 ? &refused : &opened);
                replay_free(cut);
            }
        }
        replay_free(again); replay_free(l.disk);
    }
    CHECK(opened > states / 4 && refused > states / 50);
    if (asked) printf("%ld power cuts: %ld opened, %ld refused\n", states, opened, refused);
}

/* -- under a tape -- */
enum { STORE_CHAIN = 9, STORE_WIDTH = 1333 };
static memopt_status store_square(const memopt_tape_call *call) { /* out = in + in * in / 8 */
    const float *in = (const float *)call->input; size_t i;
    if (call->describing) return MEMOPT_OK;
    if (!call->is_backward) for (i = 0; i < STORE_WIDTH; ++i) ((float *)call->output)[i] = memopt_i_sum(in[i], memopt_i_times(in[i], memopt_i_times(in[i], 0.125f)));
    else for (i = 0; i < STORE_WIDTH; ++i) ((float *)call->grad_input)[i] = memopt_i_times(((const float *)call->grad_output)[i], memopt_i_sum(1, memopt_i_times(0.25f, in[i])));
    return MEMOPT_OK;
}
static memopt_status store_pass(memopt_store *x, float *grads) { /* two passes; x NULL: all kept in memory */
    static float in[STORE_WIDTH], ones[STORE_WIDTH];
    memopt_segment chain[STORE_CHAIN]; memopt_tape_layer layers[STORE_CHAIN]; memopt_tape_desc d; memopt_tape *tape = NULL; size_t i; memopt_status s; int pass;
    memset(chain, 0, sizeof chain); memset(&d, 0, sizeof d);
    for (i = 0; i < STORE_CHAIN; ++i) { chain[i].output_bytes = chain[i].grad_bytes = sizeof in; chain[i].forward_cost = 100; chain[i].backward_cost = 200; layers[i].forward_fn = layers[i].backward_fn = store_square; layers[i].user = NULL; }
    d.chain.segments = chain; d.chain.count = STORE_CHAIN; d.chain.input_bytes = d.chain.input_grad_bytes = sizeof in; d.layers = layers; d.rule = MEMOPT_SCHEDULE_REVOLVE; d.budget = x ? 6 * 5376 : 32 * 5376;
    if (x) { d.store = memopt_store_for_tape(x); d.offload.slots = MEMOPT_OFFLOAD_UNLIMITED; d.offload.write_cost = d.offload.read_cost = 1; d.offload.overlap = 1; }
    s = memopt_tape_open(&d, &tape);
    CHECK(s == MEMOPT_OK);
    for (i = 0; i < STORE_WIDTH; ++i) { in[i] = (float)(i % 17) / 16 - 0.5f; ones[i] = 1; }
    for (pass = 0; !s && pass < 2; ++pass) {
        s = memopt_tape_forward(tape, in);
        if (!s) s = memopt_tape_backward(tape, ones, grads);
    }
    memopt_tape_destroy(tape);
    return s;
}
static void store_tape(void) {
    static float plain[STORE_WIDTH], grads[STORE_WIDTH]; char path[600]; memopt_store_desc d; memopt_store *x; int backend, single; memopt_host h; memopt_tape_store table; size_t tile;
    test_path(path, "tape");
    CHECK(store_pass(NULL, plain) == MEMOPT_OK);
    for (backend = -1; backend < STORE_BACKENDS; ++backend) for (single = 0; single < 2; ++single) {
        memset(&h, 0, sizeof h); memset(&d, 0, sizeof d); memset(grads, 0, sizeof grads);
        if (backend >= 0 && !store_backend(&h, backend)) continue;
        d.tiles = STORE_CHAIN; d.tile_bytes = STORE_WIDTH * 4; d.no_atomic = single; d.host = &h; d.path = backend < 0 ? NULL : path; x = NULL;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK);
        CHECK(store_pass(x, grads) == MEMOPT_OK && !memcmp(grads, plain, sizeof plain));
        CHECK(memopt_store_get_stats(x).writes > 4 && memopt_store_get_stats(x).reads > 2 && memopt_store_get_stats(x).written_bytes == memopt_store_get_stats(x).writes * STORE_WIDTH * 4);
        for (tile = 0; tile < STORE_CHAIN; ++tile) CHECK_AT(memopt_store_get_tile(x, tile).count == 0, tile); /* all forgotten */
        table = memopt_store_for_tape(x);
        CHECK(table.write_fn(table.user, 0, plain, 4) == MEMOPT_ERR_ARGUMENT && table.write_fn(table.user, STORE_CHAIN + 1, plain, 4) == MEMOPT_ERR_ARGUMENT && table.wait_fn(table.user, 0) == MEMOPT_ERR_ARGUMENT);
        table.forget_fn(table.user, 0); table.forget_fn(table.user, STORE_CHAIN + 1);
        CHECK(table.write_fn(table.user, 1, plain, 4) == MEMOPT_OK && table.read_fn(table.user, 1, grads, 4) == MEMOPT_OK && table.wait_fn(table.user, 1) == MEMOPT_OK && grads[0] == plain[0]);
        memopt_store_destroy(x);
        store_gone(path);
    }
}
static void store_tape_fails(void) { /* in each call of the host: the pass fails, and the next one has the same bits again */
    static float plain[STORE_WIDTH], grads[STORE_WIDTH]; char path[600]; memopt_store_desc d; memopt_store *x; test_faults f; memopt_host h = test_host(&f); size_t n, failed = 0;
    test_path(path, "tape");
    CHECK(store_pass(NULL, plain) == MEMOPT_OK);
    for (n = 1; n < 300; n += 3) {
        memopt_status s;
        memset(&f, 0, sizeof f); memset(&d, 0, sizeof d);
        d.tiles = STORE_CHAIN; d.tile_bytes = STORE_WIDTH * 4; d.no_atomic = 1; d.host = &h; d.path = path; d.transfers = 2; x = NULL;
        CHECK(memopt_store_create(&d, &x) == MEMOPT_OK);
        f.fail_on = f.calls + n;
        s = store_pass(x, grads);
        if (s) { ++failed; CHECK(s == MEMOPT_ERR_IO && memopt_store_error(x).status == MEMOPT_ERR_IO && memopt_store_abandon(x) == MEMOPT_OK && store_pass(x, grads) == MEMOPT_OK); }
        CHECK(!memcmp(grads, plain, sizeof plain));
        memopt_store_destroy(x);
        if (f.calls != f.fail_on) store_gone(path);
        (void)memopt_i_system_remove(NULL, path);
        if (!s && f.calls < f.fail_on) break;
    }
    CHECK(n < 300 && failed > 5);
}

static void store_tape_forgets(void) { /* a value while it travels: its memory is the tape's again */
    char path[600]; store_table t; memopt_host h = store_table_host(&t); memopt_store_desc d; memopt_store *x = NULL; memopt_tape_store table; unsigned char bytes[4096];
    test_path(path, "forgets");
    d = store_desc(path); d.host = &h; d.no_atomic = 1;
    CHECK(memopt_store_create(&d, &x) == MEMOPT_OK);
    table = memopt_store_for_tape(x);
    memset(bytes, 3, sizeof bytes);
    CHECK(table.write_fn(table.user, 2, bytes, 4096) == MEMOPT_OK && t.open == 1);
    table.forget_fn(table.user, 2);
    CHECK(t.open == 0 && memopt_store_get_tile(x, 1).count == 0 && table.read_fn(table.user, 2, bytes, 4096) == MEMOPT_ERR_STATE);
    memopt_store_destroy(x); store_gone(path);
}

/* -- rates -- */
static void store_rates_both(void) { /* a round of writes, one of reads, one of either in turn */
    char path[600]; store_table t; memopt_host h = store_table_host(&t); memopt_store_desc d; memopt_store_rates r;
    test_path(path, "both");
    d = store_desc(path); d.host = &h; d.each_bytes = NULL; d.tile_bytes = 5000; d.tiles = 8;
    CHECK(memopt_store_measure(&d, 0, &r) == MEMOPT_OK && t.begins[1] == 8 + 4 && t.begins[0] == 8 + 4 && t.most == 4);
    store_gone(path);
}
typedef struct store_clock { uint64_t now; size_t calls, stops, back; } store_clock;
static memopt_status store_now(void *user, uint64_t *nanoseconds) { /* stands still from a call on, and goes back at one */
    store_clock *c = (store_clock *)user;
    if (++c->calls < c->stops) c->now += 1000;
    *nanoseconds = c->calls == c->back ? 0 : c->now;
    return MEMOPT_OK;
}
static void store_stopped_clock(void) { /* it is told, and nothing is measured for ever */
    memopt_store_desc d; memopt_store_rates r = { 1, 2, 3 }; memopt_host h = *store_host(); memopt_error why; store_clock c; size_t stops;
    memset(&d, 0, sizeof d);
    d.tiles = 4; d.tile_bytes = 1; d.host = &h; d.error = &why; /* counts as 1024, so that little is moved until it is told */
    h.clock.now_fn = store_now; h.clock.user = &c;
    for (stops = 1; stops <= 3; stops += 2) {
        if (test_is_passed_over()) continue;
        memset(&c, 0, sizeof c); c.now = 5000; c.stops = stops;
        CHECK_AT(memopt_store_measure(&d, 100000, &r) == MEMOPT_ERR_IO && test_says(&why, MEMOPT_ERR_IO, "store: the clock failed") && r.read == 1, stops);
    }
    memset(&c, 0, sizeof c); c.now = 5000; c.stops = 90; c.back = 6;
    CHECK(memopt_store_measure(&d, 0, &r) == MEMOPT_ERR_IO && test_says(&why, MEMOPT_ERR_IO, "store: the clock failed"));
    d.tile_bytes = 1 << 16;
    memset(&c, 0, sizeof c); c.now = 5000; c.stops = 90;
    CHECK(memopt_store_measure(&d, 0, &r) == MEMOPT_OK && r.read > 1e9);
}
static void store_rates(void) {
    char path[600]; memopt_store_desc d; memopt_store_rates r; test_faults f; memopt_host h = test_host(&f); size_t n; void *file = NULL; int tier;
    test_path(path, "rates");
    for (tier = 0; tier < 3; ++tier) {
        memset(&d, 0, sizeof d); memset(&r, 0, sizeof r);
        d.tiles = 4; d.tile_bytes = tier == 1 ? 10000 : 65536; d.path = tier ? path : NULL; d.no_atomic = tier == 2; d.aligned = tier == 2;
        CHECK(memopt_store_measure(&d, 1000000, &r) == MEMOPT_OK && r.read > 0 && r.write > 0 && r.both > 0 && r.read < 1e15 && r.write < 1e15 && r.both < 1e15);
        store_gone(path);
    }
    d.tiles = 8; d.tile_bytes = 5000; d.aligned = 0; d.host = &h; d.path = path;
    memset(&f, 0, sizeof f);
    CHECK(memopt_store_measure(&d, 0, &r) == MEMOPT_OK); /* a clock of a microsecond a call: 8 tiles, each written with one call, in 8 and the last look; */
    CHECK(r.write > 8 * 5000 * 1e9 / 9001 - 1 && r.write < 8 * 5000 * 1e9 / 8999 + 1 && r.read == r.write && r.both == r.write);
    d.each_bytes = NULL; d.host = NULL;
    REFUSES(d.error, (void)0, memopt_store_measure(&d, 0, NULL), MEMOPT_ERR_ARGUMENT, "store: out is NULL");
    CHECK(memopt_store_measure(NULL, 0, &r) == MEMOPT_ERR_ARGUMENT);
    REFUSES(d.error, d.tiles = 1, memopt_store_measure(&d, 0, &r), MEMOPT_ERR_ARGUMENT, "store: tiles 1, at least 2");
    d.tiles = 8;
    REFUSES(d.error, d.keep = 1, memopt_store_measure(&d, 0, &r), MEMOPT_ERR_ARGUMENT, "store: desc is of a file that is kept");
    d.keep = 0;
    REFUSES(d.error, d.tile_bytes = 0, memopt_store_measure(&d, 0, &r), MEMOPT_ERR_ARGUMENT, "store: tile_bytes 0, at least 1");
    d.tile_bytes = 5000;
    CHECK(memopt_i_system_open(NULL, path, MEMOPT_OPEN_WRITE, &file) == MEMOPT_OK && memopt_i_system_write(NULL, file, 0, "mine", 4) == MEMOPT_OK);
    REFUSES(d.error, (void)0, memopt_store_measure(&d, 0, &r), MEMOPT_ERR_STATE, "store: path is there already");
    { char back[5] = ""; size_t done = 0; CHECK(memopt_i_system_read(NULL, file, 0, back, 4, &done) == MEMOPT_OK && !strcmp(back, "mine")); }
    CHECK(memopt_i_system_close(NULL, file) == MEMOPT_OK && memopt_i_system_remove(NULL, path) == MEMOPT_OK);
    d.host = &h;
    { int seen[3] = { 0, 0, 0 }; char line[256];
      for (n = 1; n < 300; ++n) {
        memopt_error why; memopt_status s;
        memset(&f, 0, sizeof f); f.fail_on = n; d.error = &why; r.read = 77;
        s = memopt_store_measure(&d, 0, &r);
        CHECK_AT(f.live_blocks == 0 && (s == MEMOPT_OK || r.read == 77), n);
        if (f.calls != n) store_gone(path);
        (void)memopt_i_system_remove(NULL, path);
        if (!s && f.calls < n) break;
        if (!s) continue; /* closing or removing a scratch file */
        CHECK_AT(why.status == s && !memopt_error_text(&why, line, sizeof line, NULL), n);
        if (!strcmp(line, "store: a transfer failed")) ++seen[0];
        if (!strcmp(line, "store: the clock failed")) ++seen[1];
        if (!strncmp(line, "store: no memory for it: asked ", 31)) ++seen[2];
      }
      CHECK(n > 20 && n < 300 && seen[0] > 8 && seen[1] > 8 && seen[2] == 2); }
}

/* Checksums are made by the host's workers, at every level, and are those of the definition. */
static void store_workers(void) {
    static unsigned char bytes[600000], back[600000];
    size_t runs; int level;
    store_content(bytes, 3, 29, sizeof bytes);
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        char path[600] = ""; test_worker_set workers; memopt_host h = *store_host(); memopt_store_desc d = store_desc(path); memopt_store *x = NULL;
        test_path(path, "workers");
        h.threads = test_workers(&workers, 3, level);
        d.tiles = 1; d.each_bytes = NULL; d.tile_bytes = sizeof bytes; d.host = &h;
        if (memopt_store_create(&d, &x)) { CHECK(0); return; }
        CHECK(!memopt_store_write(x, 0, bytes, sizeof bytes) && !memopt_store_commit(x, 1) && workers.chunks > 2);
        CHECK_AT(x->tiles[0].held.crc == store_crc(0, bytes, sizeof bytes), level);
        runs = workers.runs;
        CHECK(!memopt_store_read(x, 0, back, sizeof back) && !memopt_store_wait(x, 0) && !memcmp(bytes, back, sizeof bytes) && workers.runs > runs);
        memopt_store_destroy(x);
    }
}

void test_store(void);
void test_store(void) {
    RUN(store_sizes); RUN(store_refusals); RUN(store_calls); RUN(store_one_place); RUN(store_in_memory); RUN(store_at_once); RUN(store_by_ring); RUN(store_by_threads);
    RUN(store_golden); RUN(store_found); RUN(store_tables); RUN(store_crash); RUN(store_marks); RUN(store_killed_then_cut); RUN(store_faults); RUN(store_opening); RUN(store_not_removed); RUN(store_replaced); RUN(store_own_names); RUN(store_reopen_fails); RUN(store_garbled); RUN(store_unreadable);
    RUN(store_half_a_step); RUN(store_transfers_fail); RUN(store_commit_fails);
#if defined(MEMOPT_I_POSIX)
    RUN(store_full);
#endif
    RUN(store_replayed);
    RUN(store_tape); RUN(store_tape_fails); RUN(store_tape_forgets); RUN(store_rates); RUN(store_stopped_clock); RUN(store_rates_both); RUN(store_workers);
}
#ifndef TEST_COMBINED
int main(void) { test_store(); return test_totals(); }
#endif
