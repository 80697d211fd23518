/* bench_source.c - what reserving, committing and looking at the available memory cost, against the bare system calls. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define BENCH_REPEATS 101
static void bench_must(memopt_status s) {
    if (s) { fprintf(stderr, "bench_source: %s\n", memopt_status_text(s)); exit(1); }
}
static memopt_source bench_pages(int no_huge, int touch) {
    memopt_pages_desc d; memopt_source s;
    memset(&d, 0, sizeof d);
    d.no_huge = no_huge; d.touch = touch;
    bench_must(memopt_source_pages(&d, &s));
    return s;
}
#if defined(MEMOPT_I_POSIX)
/* Reserve and release a GiB, 100 times; us each. bare: map and unmap, not aligned to anything but a page. */
static double bench_reserve(int bare) {
    double times[BENCH_REPEATS]; memopt_source s = bench_pages(0, 0); size_t repeat, i; const size_t bytes = (size_t)1 << 30;
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (i = 0; i < 100; ++i) {
            void *base = NULL;
            if (bare) { memopt_i_pages_unmap(memopt_i_pages_map(bytes), bytes); continue; }
            bench_must(memopt_i_source_reserve(&s, bytes, &base));
            memopt_i_source_release(&s, base, bytes, 0);
        }
        times[repeat] = (double)(bench_now() - start) / 1e3 / 100;
    }
    return bench_median(times, BENCH_REPEATS);
}
/* Commit 64 MiB in steps of 64 KiB, front to back, nothing touched; us a step. bare: a mprotect each. */
static double bench_commit(int bare) {
    double times[BENCH_REPEATS]; memopt_source s = bench_pages(1, 0); size_t repeat, i; const size_t step = s.granularity;
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        void *base = NULL; uint64_t start;
        bench_must(memopt_i_source_reserve(&s, 1000 * step, &base));
        start = bench_now();
        for (i = 0; i < 1000; ++i) {
            unsigned char *at = (unsigned char *)base + i * step;
            if (bare) { if (memopt_i_pages_open(at, step)) exit(1); } else bench_must(memopt_i_source_commit(&s, at, step));
        }
        times[repeat] = (double)(bench_now() - start) / 1e3 / 1000;
        memopt_i_source_release(&s, base, 1000 * step, 0);
    }
    return bench_median(times, BENCH_REPEATS);
}
/* 64 MiB there and touched at the reservation; us a MiB. bare: mapped, and a byte of every page written. */
static double bench_touch(int no_huge, int bare) {
    double times[15]; memopt_source s = bench_pages(no_huge, 1); size_t repeat, k; const size_t bytes = (size_t)64 << 20;
    for (repeat = 0; repeat < 15; ++repeat) {
        const uint64_t start = bench_now(); void *base = NULL;
        if (bare) {
            base = memopt_i_pages_map(bytes);
            if (!base || memopt_i_pages_open(base, bytes)) exit(1);
            if (!no_huge) (void)memopt_i_pages_advise_huge(base, bytes);
            for (k = 0; k < bytes; k += 4096) ((volatile char *)base)[k] = 1;
        } else bench_must(memopt_i_source_reserve(&s, bytes, &base));
        times[repeat] = (double)(bench_now() - start) / 1e3 / 64;
        if (bare) memopt_i_pages_unmap(base, bytes); else memopt_i_source_release(&s, base, bytes, 0);
    }
    return bench_median(times, 15);
}
#endif
#if defined(__linux__)
static double bench_available(int bare) { /* us a call; bare: /proc/meminfo read once */
    double times[BENCH_REPEATS]; size_t repeat, i; memopt_host h; char text[MEMOPT_I_TEXT_MAX];
    bench_must(memopt_host_resolve(NULL, &h));
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (i = 0; i < 10; ++i) {
            uint64_t bytes = 0;
            bench_must(bare ? memopt_i_text_file(&h, "/proc/meminfo", text) : memopt_memory_available(&h, &bytes));
        }
        times[repeat] = (double)(bench_now() - start) / 1e3 / 10;
    }
    return bench_median(times, BENCH_REPEATS);
}
#endif
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "source");
#if defined(MEMOPT_I_POSIX)
    bench_row(&b, "source_reserve", 1, (size_t)1 << 30, bench_reserve(0), "us", bench_reserve(1), 0);
    bench_row(&b, "source_commit", 1, (size_t)1 << 16, bench_commit(0), "us", bench_commit(1), 0);
    bench_row(&b, "source_touch_huge", 1, 64, bench_touch(0, 0), "us/MiB", bench_touch(0, 1), 0);
    bench_row(&b, "source_touch_small", 1, 64, bench_touch(1, 0), "us/MiB", bench_touch(1, 1), 0);
#else
    (void)bench_pages;
#endif
#if defined(__linux__)
    bench_row(&b, "source_available", 1, 1, bench_available(0), "us", bench_available(1), 0);
#endif
    return 0;
}
