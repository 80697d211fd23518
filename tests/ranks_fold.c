/* ranks_fold.c [--json] [MEBI] - sums of 64 Mi floats of each rank, or MEBI Mi, by MPI: memopt_shard's fold in the order of units, all of
   them as many as ranks, beside MPI_Reduce_scatter_block of the same, in turns; milliseconds of the slowest rank, medians. Limit:
   MPI's. Run by bench_ranks.sh: mpirun -n 4 build/ranks_fold */
#include <mpi.h>
#define MEMOPT_STATIC
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench/bench.h"
#include "../examples/adapters/mpi.h"

enum { BENCH_ROUNDS = 9 };
static memopt_shard *shard;

static void bench_must(int wrong, const char *what) {
    const memopt_error e = memopt_shard_error(shard); char text[200] = "";
    if (!wrong) return;
    (void)memopt_error_text(&e, text, sizeof text, NULL);
    fprintf(stderr, "ranks_fold: %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
static double bench_slowest(double seconds) {
    double most = 0;
    bench_must(MPI_Allreduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD), "a time");
    return most;
}
static double bench_fold(float *gradients, size_t count) {
    size_t unit = 0, i; double since;
    bench_must(memopt_shard_next_unit(shard, &unit), "a round");
    for (i = 0; i < count; ++i) gradients[i] = (float)(i % 1021) * 0x1p-10f; /* the fold has left sums there */
    bench_must(MPI_Barrier(MPI_COMM_WORLD), "a barrier");
    since = MPI_Wtime();
    bench_must(memopt_shard_reduce(shard, 0), "gradients");
    bench_must(memopt_shard_next_unit(shard, &unit), "sums");
    since = bench_slowest(MPI_Wtime() - since);
    bench_must(memopt_shard_cancel(shard), "the end");
    return since;
}
static double bench_mpi(float *gradients, float *sums, size_t count) {
    double since; size_t i;
    for (i = 0; i < count; ++i) gradients[i] = (float)(i % 1021) * 0x1p-10f;
    bench_must(MPI_Barrier(MPI_COMM_WORLD), "a barrier");
    since = MPI_Wtime();
    bench_must(MPI_Reduce_scatter_block(gradients, sums, (int)(count / memopt_comm_get_stats(shard->desc.comm).rank_count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "MPI_Reduce_scatter_block");
    return bench_slowest(MPI_Wtime() - since);
}
int main(int argc, char **argv) {
    static memopt_mpi mpi; static double folds[BENCH_ROUNDS + 1], theirs[BENCH_ROUNDS + 1]; memopt_shard_tensor tensor = { 0, 0, 0, 0, 0 }; memopt_shard_desc d; memopt_comm_desc c; memopt_optim_tensor part;
    float *gradients, *sums; size_t i, ranks, round; int level, json, wrong = 0; bench b;
    memset(&c, 0, sizeof c); memset(&d, 0, sizeof d); memset(&part, 0, sizeof part);
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level) || memopt_mpi_open(&mpi, MPI_COMM_WORLD, 600, &c.transport)) return 1;
    json = argc > 1 && !strcmp(argv[1], "--json");
    ranks = c.transport.rank_count;
    tensor.count = (size_t)(argc > 1 + json ? atoi(argv[1 + json]) : 64) << 20;
    c.unchecked = 1;
    bench_must(memopt_comm_create(&c, &d.comm), "a communicator");
    d.stage = 1; d.tensors = &tensor; d.tensor_count = 1; d.optim.kind = MEMOPT_OPTIM_SGD;
    bench_must(memopt_shard_open(&d, NULL, &shard), "a shard");
    gradients = (float *)memopt_shard_gradients(shard, 0);
    sums = (float *)malloc(tensor.count / ranks * sizeof *sums);
    bench_must(!sums || memopt_shard_part(shard, 0, &part) || part.held != tensor.count / ranks, "as many ranks as divide it");
    for (round = 0; round <= BENCH_ROUNDS; ++round) { /* the first is not timed */
        theirs[round] = bench_mpi(gradients, sums, tensor.count);
        folds[round] = bench_fold(gradients, tensor.count);
        for (i = 0; i < part.held; i += 4099) wrong |= ((float *)part.gradients)[i] != sums[i]; /* exact in any order */
    }
    bench_must(wrong, "other sums");
    if (!c.transport.rank) {
        b = bench_begin(argc, argv, "ranks over MPI");
        bench_row(&b, "fold of units", (int)ranks, tensor.count, 1e3 * bench_median(folds + 1, BENCH_ROUNDS), "ms", 1e3 * bench_median(theirs + 1, BENCH_ROUNDS), 0);
    }
    free(sums);
    memopt_shard_close(shard); memopt_comm_destroy(d.comm);
    memopt_mpi_close(&mpi, 0);
    return MPI_Finalize();
}
