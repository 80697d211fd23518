/* fuzz_available.c - the texts of /proc, /sys and the cgroups, behind a table of files that serves the fuzzer's bytes.
   The input is cut at 0xFF: the first piece is /proc/meminfo, the second /proc/self/cgroup, the third the size of a huge
   page; every other file that is asked for gets the next of the rest, in turn, and an empty piece is a file that is missing. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_PIECES 32
typedef struct fuzz_piece { const uint8_t *bytes; size_t length; } fuzz_piece;
typedef struct fuzz_system {
    fuzz_piece pieces[FUZZ_PIECES];
    size_t count, next, open;
    int no_cgroups;
} fuzz_system;
static void fuzz_must(int x) { if (!x) abort(); }
static memopt_status fuzz_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    fuzz_system *f = (fuzz_system *)user; size_t k;
    fuzz_must(mode == MEMOPT_OPEN_READ && strlen(path) < 4096 && (!strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5)));
    if (!strcmp(path, "/proc/meminfo")) k = 0;
    else if (!strcmp(path, "/proc/self/cgroup")) { if (f->no_cgroups) return MEMOPT_ERR_IO; k = 1; }
    else if (!strcmp(path, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")) k = 2;
    else k = f->count > 3 ? 3 + f->next++ % (f->count - 3) : FUZZ_PIECES;
    if (k >= f->count || !f->pieces[k].length) return MEMOPT_ERR_IO;
    ++f->open;
    *file = &f->pieces[k];
    return MEMOPT_OK;
}
static memopt_status fuzz_close(void *user, void *file) {
    fuzz_system *f = (fuzz_system *)user;
    fuzz_must(f->open == 1 && file);
    --f->open;
    return MEMOPT_OK;
}
static memopt_status fuzz_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    const fuzz_piece *p = (const fuzz_piece *)file;
    size_t n = offset < p->length ? p->length - (size_t)offset : 0;
    fuzz_must(((fuzz_system *)user)->open == 1);
    if (n > count) n = count;
    memcpy(bytes, p->bytes + (n ? offset : 0), n);
    *done = n;
    return MEMOPT_OK;
}
/* The rest of the table is there because half a table is refused; nobody may call it. */
static memopt_status fuzz_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    (void)user; (void)file; (void)offset; (void)bytes; (void)count;
    abort();
}
static memopt_status fuzz_size(void *user, void *file, uint64_t *bytes) { (void)user; (void)file; (void)bytes; abort(); }
static memopt_status fuzz_resize(void *user, void *file, uint64_t bytes) { (void)user; (void)file; (void)bytes; abort(); }
static memopt_status fuzz_sync(void *user, void *file) { (void)user; (void)file; abort(); }
static memopt_status fuzz_rename(void *user, const char *from, const char *to) { (void)user; (void)from; (void)to; abort(); }
static memopt_status fuzz_remove(void *user, const char *path) { (void)user; (void)path; abort(); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t nothing = 0;
    fuzz_system f; memopt_host h; memopt_pages_desc d; memopt_source s; uint64_t with = 42, without = 42; memopt_status a, b; size_t i, begin = 0;
    memset(&f, 0, sizeof f);
    memset(&h, 0, sizeof h);
    memset(&d, 0, sizeof d);
    for (i = 0; i <= size && f.count < FUZZ_PIECES; ++i)
        if (i == size || data[i] == 0xFF) {
            f.pieces[f.count].bytes = size ? data + begin : &nothing;
            f.pieces[f.count++].length = i - begin;
            begin = i + 1;
        }
    h.files.open_fn = fuzz_open; h.files.close_fn = fuzz_close; h.files.read_fn = fuzz_read; h.files.write_fn = fuzz_write;
    h.files.size_fn = fuzz_size; h.files.resize_fn = fuzz_resize; h.files.sync_fn = fuzz_sync;
    h.files.rename_fn = fuzz_rename; h.files.remove_fn = fuzz_remove; h.files.user = &f;
    a = memopt_memory_available(&h, &with);
    f.no_cgroups = 1;
    b = memopt_memory_available(&h, &without);
    fuzz_must(a == b && f.open == 0); /* cgroups can lower the figure; they cannot make it fail, and cannot raise it */
    fuzz_must(a == MEMOPT_OK ? with <= without && without % 1024 == 0 : with == 42 && without == 42);
    d.host = &h;
    if (memopt_source_pages(&d, &s) == MEMOPT_OK)
        fuzz_must(s.granularity >= 4096 && s.granularity <= (size_t)32 << 20 && !(s.granularity & (s.granularity - 1)) && f.open == 0);
    return 0;
}
