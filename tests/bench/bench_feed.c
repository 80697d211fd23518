/* bench_feed.c - a file of 16-bit tokens handed out as numbers of 32 bits, in units of four sequences of 1024: GB/s of the
   file. "next" asks for one unit after the other, as fast as they come; its limit is a plain loop that reads the same
   windows through the same files into one buffer, and converts them. When units are waited for although each is computed
   with for a millisecond, that is told. The file is in the folder that TMPDIR names, or in build/, and takes 64 MiB. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "../../examples/parts/feed.h"
#include "bench.h"

enum { BENCH_LENGTH = 1024, BENCH_SAMPLES = 4, BENCH_UNITS = 4000, BENCH_REPEATS = 7 };
#define BENCH_TOKENS ((size_t)32 << 20)

static char bench_path[600];

static void bench_must(int wrong, const char *what) {
    if (!wrong) return;
    fprintf(stderr, "bench_feed: %s\n", what);
    (void)remove(bench_path);
    exit(1);
}

static void bench_write(void) {
    static uint16_t tokens[65536];
    FILE *file = fopen(bench_path, "wb");
    size_t i, n;

    bench_must(!file, "the file could not be made");
    for (n = 0; n < BENCH_TOKENS; n += 65536) {
        for (i = 0; i < 65536; ++i) tokens[i] = (uint16_t)(i * 40503u + n);
        bench_must(fwrite(tokens, 2, 65536, file) != 65536, "the file could not be written");
    }
    bench_must(fclose(file), "the file could not be written");
}

static double bench_rate(uint64_t start) {
    return 2.0 * BENCH_UNITS * BENCH_SAMPLES * BENCH_LENGTH / (double)(bench_now() - start);
}

static double bench_plain(const memopt_feed *feed, const memopt_files *f, void *file, int32_t *to, int32_t *next) {
    static uint16_t window[BENCH_LENGTH + 1];
    const uint64_t start = bench_now();
    uint64_t token;
    size_t u, s, i, done;

    for (u = 0; u < BENCH_UNITS; ++u)
        for (s = 0; s < BENCH_SAMPLES; ++s) {
            token = memopt_feed_window(feed, memopt_feed_sequence(feed, u, 0, s)) * BENCH_LENGTH;
            bench_must(f->read_fn(f->user, file, 2 * token, window, sizeof window, &done), "the file could not be read");
            for (i = 0; i < BENCH_LENGTH; ++i) to[s * BENCH_LENGTH + i] = window[i];
            for (i = 0; i < BENCH_LENGTH; ++i) next[s * BENCH_LENGTH + i] = window[i + 1];
        }
    return bench_rate(start);
}

/* work: nanoseconds that a unit is computed with */
static double bench_feed(memopt_feed *feed, int32_t *to, int32_t *next, size_t units, uint64_t work) {
    const uint64_t start = bench_now();
    size_t u;

    bench_must(memopt_feed_seek(feed, 0, 0), "it cannot begin anew");
    for (u = 0; u < units; ++u) {
        uint64_t begin;

        bench_must(memopt_feed_next(feed, to, next), "a unit does not come");
        for (begin = bench_now(); bench_now() - begin < work;) {}
    }
    return bench_rate(start);
}

int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "feed");
    const char *folder = getenv("TMPDIR");
    static int32_t to[BENCH_SAMPLES * BENCH_LENGTH], next[BENCH_SAMPLES * BENCH_LENGTH];
    double values[BENCH_REPEATS], limits[BENCH_REPEATS];
    const memopt_files f = memopt_i_system_files();
    memopt_feed_desc d;
    memopt_feed *feed = NULL;
    uint64_t stalls;
    void *file = NULL;
    size_t i;
    int shuffle;

    sprintf(bench_path, "%.500s/bench_feed.u16", folder ? folder : "build");
    bench_write();
    memset(&d, 0, sizeof d);
    d.path = bench_path;
    d.length = BENCH_LENGTH;
    d.samples = BENCH_SAMPLES;
    d.seed = 1;
    bench_must(f.open_fn(NULL, bench_path, MEMOPT_OPEN_READ, &file), "the file could not be opened");
    for (shuffle = 0; shuffle < 2; ++shuffle) {
        d.shuffle = shuffle;
        bench_must(memopt_feed_create(&d, &feed), "it could not be made");
        for (i = 0; i < BENCH_REPEATS; ++i) {
            limits[i] = bench_plain(feed, &f, file, to, next);
            values[i] = bench_feed(feed, to, next, BENCH_UNITS, 0);
        }
        bench_row(&b, shuffle ? "next, shuffled" : "next", 1, BENCH_UNITS, bench_median(values, BENCH_REPEATS), "GB/s",
                  bench_median(limits, BENCH_REPEATS), 1);
        stalls = memopt_feed_get_stats(feed).stalls;
        (void)bench_feed(feed, to, next, 500, 1000000);
        stalls = memopt_feed_get_stats(feed).stalls - stalls;
        if (stalls) fprintf(stderr, "bench_feed: %llu of 500 units were waited for\n", (unsigned long long)stalls);
        memopt_feed_destroy(feed);
    }
    (void)f.close_fn(NULL, file);
    (void)remove(bench_path);
    return 0;
}
