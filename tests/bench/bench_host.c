/* bench_host.c - what it costs to hand chunks to workers: a run of chunks that do nothing, on the calling thread, on the
   pool (compile with -DMEMOPT_PTHREADS -pthread) and on OpenMP (-fopenmp). The limit is the loop that calls the function. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define BENCH_CHUNKS  64
#define BENCH_REPEATS 51
static size_t bench_done[BENCH_CHUNKS];
static void bench_chunk(void *task, size_t chunk, int worker) { (void)worker; ((volatile size_t *)task)[chunk] += 1; }
static void bench_loop(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    size_t i;
    (void)user;
    for (i = 0; i < chunk_count; ++i) fn(task, i, 0);
}
static double bench_run(const memopt_threads *threads, size_t chunks) { /* median us a run */
    double times[BENCH_REPEATS]; size_t repeat, i;
    void (*volatile run)(void *, size_t, memopt_task_fn *, void *) = threads->run_fn;
    for (repeat = 0; repeat < BENCH_REPEATS; ++repeat) {
        const uint64_t start = bench_now();
        for (i = 0; i < 100; ++i) run(threads->user, chunks, bench_chunk, bench_done);
        times[repeat] = (double)(bench_now() - start) / 1e3 / 100;
    }
    return bench_median(times, BENCH_REPEATS);
}
static void bench_rows(const bench *b, const char *name, const char *one, memopt_threads threads, int workers) {
    memopt_threads loop;
    memset(&loop, 0, sizeof loop);
    loop.run_fn = bench_loop;
    bench_row(b, name, workers, BENCH_CHUNKS, bench_run(&threads, BENCH_CHUNKS), "us", bench_run(&loop, BENCH_CHUNKS), 0);
    bench_row(b, one, workers, 1, bench_run(&threads, 1), "us", bench_run(&loop, 1), 0);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "host");
    memopt_host host; memopt_threads openmp; memopt_thread_pool *pool = NULL; int workers;
    if (memopt_host_resolve(NULL, &host)) return 1;
    bench_rows(&b, "host_run_calling_thread", "host_run_calling_thread_1", host.threads, 1);
    for (workers = 1; workers <= 4; workers *= 2) {
        const memopt_status s = memopt_thread_pool_create(NULL, workers, &pool);
        if (s) { fprintf(stderr, "bench_host: no pool (%s), host_run_pool left out\n", memopt_status_text(s)); break; }
        bench_rows(&b, "host_run_pool", "host_run_pool_1", memopt_thread_pool_threads(pool), workers);
        memopt_thread_pool_destroy(pool);
        pool = NULL;
    }
    for (workers = 1; workers <= 4; workers *= 2) {
        const memopt_status s = memopt_threads_openmp(workers, &openmp);
        if (s) { fprintf(stderr, "bench_host: no OpenMP (%s), host_run_openmp left out\n", memopt_status_text(s)); break; }
        bench_rows(&b, "host_run_openmp", "host_run_openmp_1", openmp, workers);
    }
    return 0;
}
