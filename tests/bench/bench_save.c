/* bench_save.c - a state of 256 MiB: saved, begun beside the training, and read back, GB/s. Beside each, in the same run,
   a plain loop that writes or reads the same bytes of a new file past the system's cache, one request of 4 MiB after
   the other, with the same room taken first and the same sync at the end. "blocked": how long memopt_save_begin() keeps
   the training waiting for the copy, beside one memcpy of the state into new memory. The files are in the folder that
   TMPDIR names, or in build/, and take four times the state. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"
#include <signal.h>

#define BENCH_BYTES   ((size_t)256 << 20)
#define BENCH_PIECE   ((size_t)4 << 20)
#define BENCH_REPEATS 5
static char bench_run[600], bench_plain[600];
static memopt_error bench_why;
static void bench_must(memopt_status s) {
    char line[256] = "";
    if (!s) return;
    (void)memopt_error_text(&bench_why, line, sizeof line, NULL);
    fprintf(stderr, "bench_save: %s (%s)\n", memopt_status_text(s), line);
    exit(1);
}
static double bench_rate(uint64_t start) { return (double)BENCH_BYTES / (double)(bench_now() - start); }
static double bench_loop(const memopt_files *f, unsigned char *bytes, int writes) {
    const uint64_t start = bench_now(); void *file = NULL; size_t i, done;
    bench_must(f->open_fn(NULL, bench_plain, writes ? MEMOPT_OPEN_WRITE_DIRECT : MEMOPT_OPEN_READ_DIRECT, &file));
    if (writes) bench_must(f->reserve_fn(NULL, file, BENCH_BYTES));
    for (i = 0; i < BENCH_BYTES; i += BENCH_PIECE)
        bench_must(writes ? f->write_fn(NULL, file, i, bytes + i, BENCH_PIECE) : f->read_fn(NULL, file, i, bytes, BENCH_PIECE, &done));
    if (writes) bench_must(f->sync_fn(NULL, file));
    bench_must(f->close_fn(NULL, file));
    return bench_rate(start);
}
static void bench_clean(void) {
    const memopt_files f = memopt_i_system_files(); memopt_host h; char text[900], old_text[900]; memopt_i_save_path p, old; size_t k; static const char *const suffixes[3] = { "", ".tmp", ".old" };
    if (memopt_host_resolve(NULL, &h)) return;
    p.text = text; p.bytes = sizeof text; old.text = old_text; old.bytes = sizeof old_text;
    for (k = 0; k < 3; ++k) memopt_i_save_clean(&h, bench_run, suffixes[k], &p, &old);
    snprintf(text, sizeof text, "%s/lock", bench_run);
    (void)f.remove_fn(NULL, text); (void)f.remove_fn(NULL, bench_run); (void)f.remove_fn(NULL, bench_plain);
}
static void bench_stopped(int number) { (void)number; bench_clean(); _Exit(1); }
int main(int argc, char **argv) {
    static const char *const names[4] = { "write", "begin and wait, a copy", "read: open and read", "blocked by begin, a copy" };
    const bench b = bench_begin(argc, argv, "save"); const char *folder = getenv("TMPDIR"); const memopt_files f = memopt_i_system_files();
    unsigned char *state = (unsigned char *)memopt_i_system_alloc(NULL, BENCH_BYTES, 4096), *other = (unsigned char *)memopt_i_system_alloc(NULL, BENCH_BYTES, 4096);
    memopt_save_item item; memopt_save_desc d; memopt_saved *saved; memopt_saving *saving; double values[4][BENCH_REPEATS], limits[4][BENCH_REPEATS]; size_t i; uint64_t start;
    if (!state || !other) { fprintf(stderr, "bench_save: out of memory\n"); return 1; }
    for (i = 0; i < BENCH_BYTES; ++i) state[i] = (unsigned char)(i * i >> 9);
    memset(other, 1, BENCH_BYTES);
    sprintf(bench_run, "%.500s/bench_save.run", folder ? folder : "build"); sprintf(bench_plain, "%.500s/bench_save.plain", folder ? folder : "build");
    (void)signal(SIGTERM, bench_stopped); (void)signal(SIGINT, bench_stopped); /* no files are left */
    bench_clean();
    memset(&d, 0, sizeof d); memset(&item, 0, sizeof item);
    item.name = "state"; item.type = MEMOPT_TENSOR_U8; item.count = item.held = BENCH_BYTES; item.data = state;
    d.path = bench_run; d.items = &item; d.item_count = 1; d.error = &bench_why;
    for (i = 0; i < BENCH_REPEATS; ++i) {
        (void)f.remove_fn(NULL, bench_plain); /* new files on both sides */
        limits[0][i] = limits[1][i] = bench_loop(&f, state, 1);
        start = bench_now();
        bench_must(memopt_save_write(&d));
        values[0][i] = bench_rate(start);
        limits[2][i] = bench_loop(&f, other, 0);
        saved = NULL; item.data = other;
        start = bench_now();
        bench_must(memopt_saved_open(&d, &saved)); bench_must(memopt_saved_read(saved, &d));
        values[2][i] = bench_rate(start);
        memopt_saved_close(saved);
        if (memcmp(state, other, BENCH_BYTES)) { fprintf(stderr, "bench_save: other bytes\n"); return 1; }
        memopt_i_system_free(NULL, other, BENCH_BYTES, 4096);
        start = bench_now();
        other = (unsigned char *)memopt_i_system_alloc(NULL, BENCH_BYTES, 4096);
        if (!other) { fprintf(stderr, "bench_save: out of memory\n"); return 1; }
        memcpy(other, state, BENCH_BYTES);
        limits[3][i] = bench_rate(start);
        item.data = state; d.beside = 1; saving = NULL;
        start = bench_now();
        bench_must(memopt_save_begin(&d, &saving));
        values[3][i] = bench_rate(start);
        bench_must(memopt_save_wait(saving));
        values[1][i] = bench_rate(start);
        d.beside = 0;
    }
    for (i = 0; i < 4; ++i) bench_row(&b, names[i], 1, BENCH_BYTES, bench_median(values[i], BENCH_REPEATS), "GB/s", bench_median(limits[i], BENCH_REPEATS), 1);
    bench_clean();
    memopt_i_system_free(NULL, state, BENCH_BYTES, 4096); memopt_i_system_free(NULL, other, BENCH_BYTES, 4096);
    return 0;
}
