#!/bin/sh
# bench_ranks.sh [--json] - memopt_shard's fold beside MPI_Reduce_scatter_block, 4 ranks; where there is no MPI that is said. RANKS=N, MEBI=N
set -u
if ! command -v "${MPICC:-mpicc}" >/dev/null 2>&1 || ! command -v mpirun >/dev/null 2>&1; then
    echo "no MPI here, so no fold beside MPI's: apt-get install openmpi-bin libopenmpi-dev, or make deps" >&2
    exit 0
fi
${MAKE:-make} -s build/ranks_fold || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
more=
mpirun --version 2>/dev/null | grep -q 'Open MPI' && more='--oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
# shellcheck disable=SC2086
exec mpirun $more -n "${RANKS:-4}" build/ranks_fold ${1:-} ${MEBI:-64}
