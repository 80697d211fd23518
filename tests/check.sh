#!/bin/sh
# check.sh ACTION ARGUMENT... - one check of the tables in suite.sh; run from the root of the project.
# Exit status 0: passed. 77: cannot be done here, the last line says why and what installs it. Else: failed.
set -u
CC=${CC:-cc} CXX=${CXX:-c++} MAKE=${MAKE:-make} WARN=${WARN:-} WARN_C=${WARN_C:-} WERROR=${WERROR-} TEST_FLAGS=${TEST_FLAGS:--DMEMOPT_STATIC}
work=$(mktemp -d "${TMPDIR:-/tmp}/memopt.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

skip() { echo "$*"; exit 77; }
fail() { echo "$*"; exit 1; }
need() { command -v "${1%% *}" >/dev/null 2>&1 || skip "no ${1%% *} here: make deps"; }
printf 'int main(void) { return 0; }\n' >"$work/empty.c"
printf 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d && n ? 0 : 0; }\n' >"$work/entry.c"
printf '#define MEMOPT_IMPLEMENTATION\n#include "memopt.h"\n' >"$work/impl.c"
printf '#define MEMOPT_STATIC\n#define MEMOPT_IMPLEMENTATION\n#include "memopt.h"\n' >"$work/static.c"

# can "compiler" "flags" ["runner"]: builds and runs an empty program, or skips
can() {
    need "$1"
    # shellcheck disable=SC2086
    $1 $2 "$work/empty.c" -o "$work/empty.exe" 2>"$work/why" ||
        skip "'$1 $2' does not work here ($(grep -m 1 -i -E 'error|cannot|unrecog' "$work/why" | cut -c 1-120)): make deps"
    [ -z "${3:-}" ] || need "$3"
    ${3:-} "$work/empty.exe" >/dev/null 2>"$work/why" || skip "'$1 $2' makes programs that do not run here: make deps"
}

# A language by what the compiler is called with: warnings that only C knows are left out for C++.
warnings_for() {
    case "$1 $2" in *++*) echo "$WARN -Wmisleading-indentation $WERROR" ;; *) echo "$WARN $WARN_C $WERROR" ;; esac
    case $1 in s390x*) echo "-Wno-double-promotion" ;; esac # C99 wants expressions of floats in double there
}

# ---- the tests in one program, one configuration of the matrix ----
combined() { # compiler flags [runner]
    case $1 in *++*) language="-x c++" ;; *) language= ;; esac
    can "$1" "$language $2" "${3:-}"
    # shellcheck disable=SC2046,SC2086
    $1 $language $2 $(warnings_for "$1" "$2") -I. tests/test_combined.c -o "$work/test.exe" -lm ||
        fail "does not compile"
    # qemu keeps tables for every page a program reserves: without a limit it would eat the machine.
    case ${3:-} in qemu*) ulimit -v 8388608 ;; esac
    # Standards mostly make the same program: in a run that keeps what passed (run.sh), its second run would tell nothing.
    same=
    [ -z "${KEEP:-}" ] || same=$KEEP/program-$(sh tests/key.sh program "${TOOLS_KEY:-} ${3:-}" "$work/test.exe")
    if [ -n "$same" ] && [ -f "$same" ]; then echo "byte for byte a program that has passed:"; cat "$same"; return 0; fi
    { ${3:-} "$work/test.exe"; echo $? >"$work/status"; } | tee "$work/said"
    status=$(cat "$work/status")
    [ -z "$same" ] || [ "$status" != 0 ] || { cp "$work/said" "$same.new" && mv "$same.new" "$same"; }
    return "$status"
}
several() { # test...: the source of one program of several tests, which compiles but once what they share
    echo "#define TEST_COMBINED"
    printf '#include "tests/%s.c"\n' "$@"
    echo "int main(void) {"
    for test in "$@"; do grep -o 'test_[a-z0-9_]*();' "tests/$test.c" | grep -v totals | tail -n 1; done # of its own main()
    echo "    return test_totals();"
    echo "}"
}
together() { # flags test...: in one program, otherwise as the Makefile's
    flags=$1; shift
    for test in "$@"; do
        [ "$(grep -c TEST_COMBINED "tests/$test.c")" = 1 ] || fail "$test has more alone than among others: it wants a row of its own"
    done
    several "$@" >"$work/together.c"
    # shellcheck disable=SC2086
    $CC $TEST_FLAGS $flags $WARN $WARN_C $WERROR -I. -Itests ${CFLAGS:-} "$work/together.c" -o "$work/test" ${LDFLAGS:-} -lm || fail "does not compile"
    "$work/test"
}
threads() { # flags test...: in one program, with the pool, under the thread sanitizer where it works
    can "$CC" "-pthread"
    sanitizer=-fsanitize=thread run=
    # Old sanitizers cannot live with the address layout of new kernels; setarch -R gives them the one they know.
    # shellcheck disable=SC2086
    if ! $CC $sanitizer "$work/empty.c" -o "$work/x" 2>/dev/null; then sanitizer=
    elif "$work/x" 2>/dev/null; then :
    elif setarch -R "$work/x" 2>/dev/null; then run="setarch -R"
    else sanitizer=
    fi
    [ -n "$sanitizer" ] || echo "without the thread sanitizer, which does not work here"
    flags=$1; shift
    several "$@" >"$work/threads.c"
    # shellcheck disable=SC2046,SC2086
    $CC -O1 -g1 $sanitizer -DMEMOPT_STATIC -DTEST_THREADS -DMEMOPT_PTHREADS -pthread $flags $(warnings_for "$CC" "") -I. -Itests "$work/threads.c" -o "$work/test" -lm || fail "does not compile"
    $run "$work/test"
}
big_endian() { # compiler runner: tests that know their bits, and the hashes of this machine. The options are for the tests' own
    # floats: neither more precise than float, nor fused; what the library computes needs none.
    can "$1" "-std=c99 -static" "$2"
    can "$CC" "-std=c99"
    unset TEST_TIMES # whose lines would stand among the hashes
    flags="-std=c99 -fexcess-precision=fast -ffp-contract=off -O1 -DMEMOPT_STATIC"
    # shellcheck disable=SC2086
    $1 $flags -static $(warnings_for "$1" "") -I. tests/hashes.c -o "$work/there" -lm || fail "does not compile"
    # shellcheck disable=SC2086
    $CC -std=c99 -O1 -ffp-contract=off -DMEMOPT_STATIC ${LANES:-} $(warnings_for "$CC" "") -I. tests/hashes.c -o "$work/here" -lm || fail "does not compile"
    "$work/here" | grep -v ' passed, ' >"$work/hashes" || fail "hashes.c fails here"
    "$2" "$work/there" tests >"$work/said" || { cat "$work/said"; fail "fails there"; }
    [ "$(wc -l <"$work/hashes")" -ge 50 ] || fail "few hashes"
    grep -v -e ' passed, ' -e '^skipped' "$work/said" | diff "$work/hashes" - || fail "other hashes than on this machine"
    tail -n 1 "$work/said"
}
cmake_project() { # a project of somebody else's that adds ours
    need cmake
    mkdir "$work/project"
    printf 'cmake_minimum_required(VERSION 3.11)\nproject(engine LANGUAGES C)\nadd_subdirectory("%s" memopt)\nadd_executable(engine engine.c)\ntarget_link_libraries(engine memopt::memopt)\n' \
        "$PWD/examples/cmake" >"$work/project/CMakeLists.txt"
    cp examples/checkpoint.c "$work/project/engine.c"
    cmake -DCMAKE_C_FLAGS=-O1 -S "$work/project" -B "$work/project/build" >"$work/cmake.out" 2>&1 && cmake --build "$work/project/build" >>"$work/cmake.out" 2>&1 ||
        { cat "$work/cmake.out"; fail "does not build"; }
    "$work/project/build/engine" >/dev/null || fail "the program does not run"
    version=$(sed -n 's/^project(memopt VERSION \([0-9.]*\).*/\1/p' examples/cmake/CMakeLists.txt)
    grep -q "^/\* memopt.h - v$version " memopt.h || fail "examples/cmake/CMakeLists.txt says version $version"
}
msvc() { # MSVC's rules, by a parser that knows them: no extension but Windows' own, no warning
    need clang
    printf '#define MEMOPT_PTHREADS\n#define MEMOPT_IMPLEMENTATION\n#include "memopt.h"\n' >"$work/msvc.c"
    for language in "-x c -std=c11" "-x c++ -std=c++14"; do
        for machine in x86_64 i686 aarch64; do
            # shellcheck disable=SC2086
            clang $language --target=$machine-pc-windows-msvc -U__clang__ -U__GNUC__ -fms-compatibility -fms-compatibility-version=19.29 -ffreestanding \
                -fsyntax-only -nostdlibinc -isystem tests/msvc -I. -pedantic -Wall -Wextra -Wno-unused-parameter -Wconversion -Wno-sign-conversion -Werror "$work/msvc.c" || fail "not by MSVC's rules: $language, $machine"
        done
    done
    clang -Dnear= -Dfar= -fsyntax-only -I. "$work/msvc.c" || fail "a name that <windows.h> defines, in code for clang there"
    printf 'int f(int x) { return ({ x; }); }\n' >"$work/planted.c"
    clang --target=x86_64-pc-windows-msvc -fms-compatibility -fsyntax-only -pedantic -Werror "$work/planted.c" 2>/dev/null && fail "misses a planted extension"
    return 0
}
windows() { # a runner: a Windows program under wine, its line ends as ours
    wine=$(command -v wine64 || command -v wine || echo /usr/lib/wine/wine64) # Debian's has no name in PATH
    WINEDEBUG=-all WINEPREFIX="$PWD/build/wine" "$wine" "$@" >"$work/windows.out"; status=$?
    tr -d '\r' <"$work/windows.out"
    return $status
}
analysed() { # compiler flags: the implementation with a compiler that looks harder; nothing is linked or run
    can "$1" "$2"
    printf '#include <stdlib.h>\nvoid f(void *p);\nvoid f(void *p) { free(p); free(p); }\n' >"$work/planted.c"
    # shellcheck disable=SC2086
    $1 $2 -Werror -c "$work/planted.c" -o "$work/planted.o" 2>/dev/null && fail "misses a planted bug"
    # shellcheck disable=SC2046,SC2086
    $1 $2 $(warnings_for "$1" "$2") -I. -c "$work/impl.c" -o "$work/impl.o"
}
everything() { # compiler flags: every example, tool and bench compiles without a warning
    can "$1" "$2"
    for source in examples/*.c tests/*_tool.c tests/bench/bench_*.c; do
        [ -f "$source" ] || continue
        # shellcheck disable=SC2046,SC2086
        $1 $2 $(warnings_for "$1" "$2") -I. -c "$source" -o "$work/x.o" || fail "$source does not compile"
    done
}

contents() { # the banner's CONTENTS and INDEX, and the #if lines of groups, say what the markers say
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    python3 tests/contents.py --selftest && python3 tests/contents.py
}
users() { # every public function is called by an example, a part, a tool or the kernels' file
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    python3 tests/check_users.py --selftest && python3 tests/check_users.py
}

mutants() { # the lists of faults name lines that are there
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    python3 tests/mutants/mutants.py --check
}

refusals() { # the text of every refusal is made by a test
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    can "$CC" ""
    CC=$CC python3 tests/refusals.py
}

# ---- `make test` ----
sanitized() { # test
    can "$CC" "-fsanitize=address,undefined"
    $MAKE -s "build/sanitized/$1" && "build/sanitized/$1"
}
emulated() { # test [flags]: the code for AVX-512 and matrix units, whose instructions are functions, on any machine with AVX2
    echo '#include <immintrin.h>
int main(void) { return !__builtin_cpu_supports("avx2"); }' >"$work/there.c"
    if ! gcc "$work/there.c" -o "$work/there" 2>/dev/null || ! "$work/there"; then skip "no gcc, or no AVX2, here"; fi
    # shellcheck disable=SC2046,SC2086
    gcc -std=gnu99 -O1 -Wno-psabi ${2:-} -include tests/tiles.h -include tests/lanes16.h $(warnings_for gcc "") -I. -Itests "tests/$1.c" -o "$work/test" -lm ||
        fail "does not compile"
    "$work/test"
}
example() { # name
    $MAKE -s "build/$1" || exit 1
    program=$PWD/build/$1
    cd "$work" && "$program" # some write files
}
advise() { # advise_tool: README's answers, a model in a file, what does not fit, what is not known
    $MAKE -s build/advise_tool || exit 1
    grep -E '^\| `[^`]*` \| [0-9.]+ of ' README.md >"$work/table" && [ "$(wc -l <"$work/table")" = 2 ] || fail "README has no two answers"
    while IFS='`' read -r _ arguments answer; do
        # shellcheck disable=SC2086
        build/advise_tool $arguments >"$work/said" || { cat "$work/said"; fail "$arguments: nothing fits"; }
        total=$(sed -n 's/^GB of a rank .*: //p' "$work/said")
        echo "$arguments: $total GB, README$answer"
        echo "$total $answer" | awk '{ exit !($1 - $3 < 0.06 && $3 - $1 < 0.06 && $1 <= $5) }' || fail "README says something else"
    done <"$work/table"
    printf '# GPT-2\nlayers 12\nwidth 768\nheads 12\nkv_heads 12\nmlp 3072\nvocabulary 50257\nlength 1024\npositions 1024\ntied 1\n' >"$work/model"
    build/advise_tool "$work/model" h100 >"$work/file" && build/advise_tool gpt2 h100 >"$work/name" && cmp "$work/file" "$work/name" || fail "a model in a file is not the one by name"
    build/advise_tool GPT2 H100 >"$work/upper" && cmp "$work/upper" "$work/name" || fail "names in upper case are not known"
    for folder in "$work h100" "gpt2 $work"; do
        build/advise_tool $folder >/dev/null 2>"$work/said" && fail "$folder: a folder is taken for a file"
        grep -q "could not be read" "$work/said" || fail "$folder: $(cat "$work/said")"
    done
    build/advise_tool gpt2 core --batch 4 >"$work/said"
    may=$(sed -n 's/^(--may \([a-z0-9,]*\) would do)$/\1/p' "$work/said")
    [ "$may" = bf16,8bit ] && build/advise_tool gpt2 core --batch 4 --may "$may" >/dev/null || { cat "$work/said"; fail "what would have to be allowed is not told as it is given"; }
    build/advise_tool gpt2 core --memory 0.1 >"$work/said"
    [ $? = 1 ] && grep -q "^Nothing that is permitted fits 0.10 GB. The least is " "$work/said" || fail "what does not fit is not told"
    build/advise_tool gpt2 4xcore --batch 8 --memory 2 >"$work/said" && grep -q "ranks of \(one thread\|several threads\) " "$work/said" || fail "four cores are not dealt to ranks and threads"
    echo "layers twelve" >"$work/model"
    echo "layers 1.5" >"$work/part"
    echo "layers 12 13" >"$work/two"
    printf 'layers 12\nlayers 13\n' >"$work/twice"
    # what is wrong, and, behind a |, what must be named
    while IFS='|' read -r wrong named; do
        # shellcheck disable=SC2086
        build/advise_tool $wrong >"$work/said" 2>&1
        [ $? = 2 ] && grep -q -e "$named" "$work/said" || { cat "$work/said"; fail "not refused: $wrong"; }
    done <<END
|machines:
gpt9 core|gpt9
gpt2 abacus|abacus
$work/model core|line 1
$work/part core|line 1
$work/two core|line 1
$work/twice core|line 2
gpt2 0xcore|0xcore
gpt2 xcore|xcore
gpt2 -4xcore|-4xcore
gpt2 99999999999999999999xcore|give 1 to
gpt2 4000000xcore|processors 4000000, at most 1048576
gpt2 core --fast 1|--fast
gpt2 core --batch|--batch
gpt2 core --batch 0|--batch 0
gpt2 core --batch 8x|--batch 8x
gpt2 core --batch -1|--batch -1
gpt2 core --length 0|--length 0
gpt2 core --memory -1|--memory -1
gpt2 core --memory nan|--memory nan
gpt2 core --memory 1e30|--memory 1e30
gpt2 core --may bf61|--may bf61
gpt2 core --may bf16,|--may bf16,
--measure $work/none --threads|--threads
--measure $work/none --threads 0|--threads 0
--measure $work/none --threads 4096|--threads 4096
END
}
advise_runs() { # cases: what train_gpt --advise says is run: budget, memory, CPU time; ADVISE_TIME=0: times are told alone
    need python3
    $MAKE -s build/train_gpt || exit 1
    python3 tests/check_advise.py build/train_gpt all && python3 tests/check_advise.py build/train_gpt "$1"
}
adopt() { # the stages of examples/adopt within their limits, but for times: what else runs beside this is not known
    ADOPT_TIME=0 sh tests/adopt.sh
}
mpi() { # examples/adapters/mpi.h with 1 to 8 processes: bytes, ranks that disagree, give up, are stuck or late; who is to blame
    need mpicc && need mpirun && need timeout
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # shellcheck disable=SC2086
    mpicc -std=c99 -O1 -g1 ${LANES:-} -Wall -Wextra -Wconversion -Wshadow -Wno-misleading-indentation -Werror -D_DEFAULT_SOURCE -I. tests/ranks_mpi.c -o "$work/ranks" -lm || fail "does not compile"
    mpirun --version 2>/dev/null | grep -q "Open MPI" && more=--oversubscribe || more=
    for what in "1 bytes" "2 bytes" "4 bytes" "8 bytes" "3 disagree" "2 gives_up" "4 gives_up" "2 stuck" "4 stuck" "4 stuck unchecked" \
        "1 open" "2 early" "2 late" "4 waits unchecked" "8 done" "3 circle unchecked"; do
        # shellcheck disable=SC2086
        timeout 100 mpirun $more -n ${what%% *} "$work/ranks" ${what#* } >"$work/said" 2>&1
        grep "as it should" "$work/said" || { cat "$work/said"; fail "$what"; }
        ! grep '^rank ' "$work/said" || fail "$what"
    done
    $MAKE -s build/train_gpt build/train_gpt_mpi || fail "no train_gpt_mpi"
    switches="--quiet --layers 2 --width 64 --heads 2 --context 32 --batch 2 --steps 3 --units 3 --dropout 0.1 --clip 0.5"
    # shellcheck disable=SC2086
    build/train_gpt --ranks 1 --stage 0 $switches >"$work/said" 2>&1 || { cat "$work/said"; fail "one rank"; }
    hash=$(grep -o 'weights [0-9a-f]*$' "$work/said") || fail "no hash"
    for stage in 1 3 "2 --replicas 2"; do # as many lines as ranks: each rank's plan and peak
        # shellcheck disable=SC2086
        timeout 100 mpirun $more -n 2 build/train_gpt_mpi --stage $stage $switches >"$work/said" 2>&1 || { cat "$work/said"; fail "train_gpt_mpi"; }
        grep -q "$hash" "$work/said" && grep -q 'held as planned' "$work/said" && [ "$(grep -c '^ *[01]  *[0-9.]*  *[0-9.]*  *[0-9]' "$work/said")" = 2 ] ||
            { cat "$work/said"; fail "train_gpt_mpi: other weights, not as planned, or no table"; }
        echo "train_gpt_mpi with 2 ranks, stage $stage: the weights of one"
    done
    wide="$switches --heads 8 --parts 4 --units 4"
    # shellcheck disable=SC2086
    build/train_gpt --ranks 1 --stage 0 $wide >"$work/said" 2>&1 || { cat "$work/said"; fail "one rank, 4 parts"; }
    hash=$(grep -o 'weights [0-9a-f]*$' "$work/said") || fail "no hash"
    for grid in "4 --tensor 2" "4 --tensor 4 --stage 1" "4 --tensor 2 --replicas 2" "2 --pipeline 2" "4 --pipeline 2 --tensor 2 --stage 0" "4 --pipeline 2 --chunks 2" "4 --pipeline 2 --chunks 3 --tensor 2"; do
        # shellcheck disable=SC2086
        timeout 100 mpirun $more -n ${grid%% *} build/train_gpt_mpi ${grid#* } $wide >"$work/said" 2>&1 && grep -q "$hash" "$work/said" && grep -q 'held as planned' "$work/said" ||
            { cat "$work/said"; fail "train_gpt_mpi -n $grid: other weights, or not as planned"; }
        echo "train_gpt_mpi, ranks $grid: the weights of one"
    done
    # shellcheck disable=SC2086
    build/train_gpt --ranks 1 --sequence 1 --stage 0 $wide >"$work/said" 2>&1 || { cat "$work/said"; fail "one rank, 4 parts of rows"; }
    hash=$(grep -o 'weights [0-9a-f]*$' "$work/said") || fail "no hash"
    # shellcheck disable=SC2086
    timeout 100 mpirun $more -n 4 build/train_gpt_mpi --sequence 2 $wide >"$work/said" 2>&1 && grep -q "$hash" "$work/said" && grep -q 'held as planned' "$work/said" ||
        { cat "$work/said"; fail "train_gpt_mpi, by length: other weights, or not as planned"; }
    # one is stopped: who waits for it, or for those who do, says which of all that is, though a communicator of two has none but 0 and 1
    mpicc -O1 -DTRAIN_GPT_MPI -DTRAIN_GPT_SECONDS=5 -DMEMOPT_PTHREADS -pthread -DMEMOPT_I_IMPLEMENTED -DMEMOPT_API=extern -I. examples/train_gpt.c build/memopt.o -o "$work/impatient" -lm || fail "does not compile"
    # shellcheck disable=SC2086
    timeout 100 mpirun $more -n 4 "$work/impatient" $wide --pipeline 2 --tensor 2 --steps 1000000 >"$work/said" 2>&1 &
    id=$!
    sleep 3
    for rank in /proc/[0-9]*; do
        tr '\0' ' ' <"$rank/cmdline" 2>/dev/null | grep -q "^$work/impatient" && tr '\0' '\n' <"$rank/environ" 2>/dev/null | grep -Eq '^(OMPI_COMM_WORLD|PMI)_RANK=3$' && kill -STOP "${rank#/proc/}" && break
    done || fail "rank 3 is not there: $(cat "$work/said")"
    wait $id
    grep 'at rank 1, .* That is rank [23] of all' "$work/said" || { cat "$work/said"; fail "not told which rank is late"; }
    # one of a pass is killed: mpirun ends all
    # shellcheck disable=SC2086
    timeout 100 mpirun $more -n 4 build/train_gpt_mpi $wide --pipeline 2 --tensor 2 --steps 1000000 >"$work/said" 2>&1 &
    id=$!
    sleep 3
    for rank in /proc/[0-9]*; do
        tr '\0' ' ' <"$rank/cmdline" 2>/dev/null | grep -q '^build/train_gpt_mpi .*--steps 1000000' && kill -9 "${rank#/proc/}" && break
    done || fail "no rank is there: $(cat "$work/said")"
    wait $id
    ended=$?
    [ $ended != 0 ] && [ $ended != 124 ] || fail "a rank was killed, and the others ended with $ended"
    echo "train_gpt_mpi: a rank of a pass was killed, and all have ended"
    # shellcheck disable=SC2086
    timeout 100 mpirun $more -n 1 build/train_gpt_mpi $switches : -n 1 build/train_gpt_mpi $switches --data "$work/none.txt" >"$work/said" 2>&1 && fail "a rank without data is no error"
    grep 'rank 1: .*o such file' "$work/said" || { cat "$work/said"; fail "not told which rank had no data"; }
}
nccl() { # examples/adapters/nccl.h: 1 to 8 ranks as threads over a stand-in that fails on demand; and with the real libraries
    need timeout
    toolkit=$(dirname "$(dirname "$(command -v "${NVCC:-nvcc}" || echo /usr/local/cuda/bin/nvcc)")")
    [ -f "$toolkit/include/nccl.h" ] && [ -f "$toolkit/include/cuda_runtime.h" ] || skip "no nccl.h of the CUDA Toolkit in $toolkit/include: install it, or set NVCC"
    can "$CC" "-fsanitize=address,undefined"
    with="-isystem $toolkit/include -I. -pthread ${LANES:-}"
    sources="tests/ranks_nccl.c tests/simulator/nccl_mock.c"
    cat >"$work/user.c" <<'END'
#include "memopt.h"
#include <cuda_runtime.h>
#include <nccl.h>
#ifdef RANKS_OLD
#  undef NCCL_VERSION_CODE
#  define NCCL_VERSION_CODE RANKS_OLD
#endif
#include "examples/adapters/nccl.h"
int main(void) {
    static memopt_nccl n, group;
    memopt_transport t;
    ncclUniqueId id;

    return ncclGetUniqueId(&id) || memopt_nccl_open(&n, &id, 0, 1, NULL, 1, &t) || memopt_nccl_split(&group, &n, 0, 0, NULL, 1, &t)
        || memopt_nccl_close(&group) || memopt_nccl_close(&n);
}
END
    for language in "$CC -std=c99 -x c" "$CC -std=c99 -x c -DRANKS_OLD=22700" "$CXX -std=c++11 -x c++" "$CXX -std=c++11 -x c++ -DRANKS_OLD=21400"; do
        # shellcheck disable=SC2046,SC2086
        $language $(warnings_for "$language" "") $with -c "$work/user.c" -o "$work/user.o" || fail "does not compile: $language"
    done
    # shellcheck disable=SC2046,SC2086
    $CC -std=c99 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all $(warnings_for "$CC" "") $with $sources -o "$work/address" -lm || fail "does not compile"
    # shellcheck disable=SC2086
    $CC -std=c99 -DRANKS_OLD=21400 $with $sources -o "$work/older" -lm && "$work/older" refusals || fail "with an older NCCL"
    kinds=address run=
    if $CC -fsanitize=thread "$work/empty.c" -o "$work/x" 2>/dev/null && setarch -R "$work/x" 2>/dev/null; then
        # shellcheck disable=SC2086
        $CC -std=c99 -O1 -g1 -fsanitize=thread -DRANKS_OLD=22700 $with $sources -o "$work/thread" -lm || fail "does not compile"
        kinds="address thread"
    else echo "without the thread sanitizer, which does not work here"
    fi
    for what in bytes agree absent away faults unchecked groups stuck refusals; do # at once: mostly they wait
        for kind in $kinds; do
            [ $kind = thread ] && run="setarch -R" || run=
            { timeout 100 $run "$work/$kind" $what >"$work/$kind.$what" 2>&1 || echo "failed: $kind" >>"$work/$kind.$what"; } &
        done
    done
    wait
    cat "$work"/address.* "$work"/thread.* 2>/dev/null
    ! grep -q -e '^failed: ' "$work"/address.* "$work"/thread.* 2>/dev/null || fail "see above"
    for library in lib64 lib; do [ -f "$toolkit/$library/libnccl.so" ] && break; done
    [ -f "$toolkit/$library/libnccl.so" ] || { echo "without the real libraries: no $toolkit/lib64/libnccl.so"; return 0; }
    # shellcheck disable=SC2086
    $CC -std=c99 -O1 -DRANKS_REAL $with tests/ranks_nccl.c -o "$work/real" -L"$toolkit/$library" -Wl,-rpath,"$toolkit/$library" -lnccl -lcudart -lm || fail "does not link"
    timeout 300 "$work/real" || fail "with the real libraries"
}
onebit_trains() { # 1-bit Adam on the tiny GPT beside Adam
    can "$CC" "-pthread"
    # shellcheck disable=SC2046,SC2086
    $CC -O2 -DMEMOPT_PTHREADS -pthread $(warnings_for "$CC" "") -I. tests/onebit_gpt.c -o "$work/test" -lm || fail "does not compile"
    "$work/test"
}
gpt() { # a check of train_gpt, see tests/check_gpt.sh
    need timeout
    sh tests/check_gpt.sh "$@"
}
plan_tool() {
    $MAKE -s build/plan_tool || exit 1
    # b lives with a and with c, which never meet: the peak is the larger of (a + b) and (b + c).
    printf 'id,lower,upper,size\na,0,10,4096\nb,5,20,1024\nc,10,20,2048\n' >"$work/in.csv"
    build/plan_tool "$work/in.csv" --ms 100 --out "$work/out.csv" >"$work/said" || fail "exit status"
    cat "$work/said" "$work/out.csv"
    for want in '"buffers": *3' '"lower_bound": *5120' '"peak": *5120' '"valid": *true'; do
        grep -q "$want" "$work/said" || fail "not printed: $want"
    done
    [ "$(head -n 1 "$work/out.csv")" = id,lower,upper,size,offset ] || fail "the first line of --out"
    [ "$(wc -l <"$work/out.csv")" = 4 ] || fail "the number of lines of --out"
    printf 'id,lower,upper,size\na,0,ten,4096\n' >"$work/bad.csv"
    if build/plan_tool "$work/bad.csv" --ms 100; then fail "accepted a number that is none"; fi
}
doctor() { # doctor.h in a conventional engine: what is named, against its dimensions; with the proof the same weights; bad input
    $MAKE -s build/doctor_tool || exit 1
    can "$CC" ""
    sed -f examples/adopt/doctor.sed examples/adopt/gpt_0_plain.c >"$work/watched.c"
    [ "$(diff examples/adopt/gpt_0_plain.c "$work/watched.c" | grep -c '^>')" = 11 ] || fail "doctor.sed does not find its places"
    for source in examples/adopt/gpt_0_plain.c "$work/watched.c"; do
        # shellcheck disable=SC2046,SC2086
        $CC -O2 $(warnings_for "$CC" "") -Iexamples "$source" -o "$work/$(basename "$source" .c)" -lm || fail "$source does not compile"
    done
    (cd "$work" && ./gpt_0_plain >plain && DOCTOR_PROVE=1 ./watched >proven) || fail "exit status"
    [ -f "$work/doctor.trace" ] || { tail -n 1 "$work/proven"; skip "doctor.h records on Linux, x86 and aarch64"; }
    for said in plain proven; do sed 's/peak [0-9]*//' "$work/$said" >"$work/$said.bits"; done
    cmp "$work/plain.bits" "$work/proven.bits" || fail "bytes that were called free were needed"
    build/doctor_tool "$work/doctor.trace" --page "$work/page.html" >"$work/said" || fail "exit status"
    cat "$work/said"
    grep -q '</html>' "$work/page.html" || fail "the page is not whole"
    # From the dimensions: w weights, a activations, s a residual stream, b what a block keeps. Everything is there four and two
    # times. The first rung has gradients of one block (b + 2 s) in place of a. At the first block's backward live three times
    # w, all blocks and the streams that they read, the block's gradients and those of the head's and its own weights.
    awk '
        function near(what, got, want, of) { if (got - want > of || want - got > of) { print what ": " got " MB, not " want; bad = 1 } }
        BEGIN {
            rows = 4 * 128; c = 128; layers = 8; v = 256; unit = 4e-6
            s = rows * c; b = rows * (15 * c + 4) + 4 * 4 * 128 * 128; each = 12 * c * c + 13 * c
            w = (v + 128 + 2) * c + layers * each; a = (layers + 1) * s + layers * b + rows * (c + 2 + v)
        }
        /at the peak/ { held = $1 }
        /kept from step to step/ { kept = $1 }
        /written in forward, idle until backward/ { idle = $1 }
        /of backward only|zeroed, and never used|never used \(/ { named += $1 }
        /written in backward, idle until step/ { gradients = $1 }
        /a plan of/ { plan = $2 }
        /and a tape/ { tape = $2 }
        END {
            near("held", held, unit * (4 * w + 2 * a), 0.001)
            k = 4096e-6 * layers * 16 # pages that begin with the first row of a head, always 1 and zeros: not known to be written
            near("kept: weights, both moments, such pages", kept, unit * 3 * w + k, 0.001)
            near("idle: the activations", idle, unit * a - k, 0.001)
            near("named: the gradients of the activations, and none else but rows of unused bytes", named, unit * a, 0.11)
            near("gradients of weights", gradients, unit * w, 0.11)
            if (named < 0.95 * unit * (a - b - 2 * s)) { print "less than 95 % of what the first rung saves"; bad = 1 }
            near("the plan", plan, unit * (3 * w + layers * (b + s) + b + 2 * s + v * c + each), 0.1)
            near("the tape", tape, unit * (4 * w + s + 2 * b + 2 * s) + k, 0.2)
            exit bad
        }' "$work/said" || fail "not as the dimensions say"
    printf 'doctor 1\nmark 1 a\nbuffer 0 1 0 0 0 x\nend 2\n' >"$work/bad"
    for bad in "$work/bad" "$work/none" "$work/watched"; do
        build/doctor_tool "$bad" >"$work/out" 2>"$work/said"; [ $? = 1 ] || fail "exit status with $bad"
        [ -s "$work/said" ] && [ ! -s "$work/out" ] || fail "no message, or output, with $bad"
    done
    build/doctor_tool "$work/bad" 2>&1 | grep -q 'bad:3: a buffer has no bytes' || fail "does not say where"
    build/doctor_tool >/dev/null 2>&1; [ $? = 2 ] || fail "exit status without a file"
    if build/doctor_tool "$work/doctor.trace" --page "$work/none/page.html" >/dev/null 2>&1; then fail "a folder that is not there is no error"; fi
}
doctor_gpt() { # doctor.h in the conventional engine of train_gpt: what the ladder's next rung saves, and nothing else
    $MAKE -s build/doctor_tool build/train_gpt || exit 1
    can "$CC" ""
    mkdir "$work/src" && cp -r examples/gpt examples/parts examples/adapters examples/doctor.h examples/text.txt "$work/src" && cp examples/text.txt "$work" || exit 1 # both train on one text
    for source in train_gpt.c gpt/conventional.h; do
        sed -f examples/gpt/doctor.sed "examples/$source" >"$work/src/$source" || exit 1
    done
    [ "$(cat "$work/src/train_gpt.c" "$work/src/gpt/conventional.h" | grep -c 'doctor_mark\|doctor_step\|doctor\.h')" = 28 ] || fail "doctor.sed does not find its places"
    # shellcheck disable=SC2086
    $CC -O1 -fexpensive-optimizations ${LANES:-} -Wall -Wextra -Wno-misleading-indentation -I. "$work/src/train_gpt.c" -o "$work/watched" -lm || fail "it does not compile"
    (cd "$work" && DOCTOR_PROVE=1 ./watched --keep conventional --steps 3 --quiet >proven) || fail "exit status"
    [ -f "$work/doctor.trace" ] || skip "doctor.h records on Linux, x86 and aarch64"
    program=$PWD/build/train_gpt
    (cd "$work" && "$program" --keep conventional --steps 3 --quiet >plain) || fail "exit status"
    for said in plain proven; do sed -n 's/.*\(loss .*weights\)/\1/p' "$work/$said" >"$work/$said.bits"; done
    [ -s "$work/plain.bits" ] && cmp "$work/plain.bits" "$work/proven.bits" || fail "bytes that were called free were needed"
    for keep in conventional arena; do
        build/train_gpt --keep $keep --dry-run | sed -n "s/^sum: predicted *\([0-9.]*\).*/$keep \1/p; s/^working set *\([0-9.]*\)/working $keep \1/p"
    done >"$work/peaks"
    build/doctor_tool "$work/doctor.trace" >"$work/said" || fail "exit status"
    cat "$work/peaks" "$work/said"
    # From the dimensions, in floats: n a residual stream, s the scores of a layer, t all targets' logits, a all activations.
    # Held for a moment or for nothing: their gradients; scores, what the products add into, the probabilities of tokens, losses; and
    # norms and GELU, which are made again. Beside them the scratch of products.
    awk '
        BEGIN {
            rows = 8 * 128; n = rows * 128; s = rows * 128 * 4; t = rows * 256; layers = 4; unit = 4e-6
            a = layers * (18 * n + 2 * s + 4 * rows) + 2 * n + 2 * rows + 2 * t + rows
            again = layers * (6 * n + 4 * rows) + n + 2 * rows
            free = unit * (a + layers * (s + 2 * n) + t + rows + again)
        }
        $1 == "conventional" { peak = $2 }
        $1 == "arena" { saved = peak - $2 }
        $1 == "working" && $2 == "conventional" { scratch = $3 - unit * a }
        /of (forward|backward) only|zeroed, and never used|never used \(|make it again/ { named += $1 }
        /made again from what is there/ { planned = $1 }
        END {
            print "the rung saves " saved " MB; named " named ", a plan without them saves " planned "; by dimensions " free " and " scratch
            if (!(saved > 0 && named >= 0.95 * saved && planned >= 0.95 * saved)) { print "less than 95 %"; exit 1 }
            if (named > free + scratch + 0.2) { print "more than there is: some is false"; exit 1 }
        }' "$work/peaks" "$work/said" || fail "not as the dimensions say"
}
export_tool() { # what a ledger exports, loaded by Python's own modules
    $MAKE -s build/export_tool || exit 1
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    python3 tests/check_exports.py build/export_tool
}
bench() { # name: it starts and prints rows; the figures are for `make bench`
    need timeout
    $MAKE -s "build/$1" || exit 1
    timeout 3 "build/$1" --json >"$work/rows"; status=$?
    cat "$work/rows"
    [ $status = 0 ] || [ $status = 124 ] || fail "exit status $status"
    grep -v '^{"name": ".*", "threads": .*, "value": .*, "of_limit": .*}$' "$work/rows" && fail "not a row"
    [ $status = 124 ] || [ -s "$work/rows" ] || fail "no rows"
}
quant_tool() { # codes and scales, both ways, against exact fractions; then bad arguments and input
    $MAKE -s build/quant_tool || exit 1
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    python3 tests/check_quant.py build/quant_tool || exit 1
    for bad in "" "--map" "--map foo" "--map signed --block" "--map signed --block 31" "--map signed --block 0" "--map signed --bogus"; do
        # shellcheck disable=SC2086
        build/quant_tool $bad </dev/null >"$work/out" 2>"$work/said"; [ $? = 2 ] || fail "exit status with '$bad'"
        [ -s "$work/said" ] && [ ! -s "$work/out" ] || fail "no message, or output, with '$bad'"
    done
    if printf abc | build/quant_tool --map signed >"$work/out"; then fail "accepted a float cut off"; fi
    [ ! -e /dev/full ] || ! head -c 400 /dev/zero | build/quant_tool --map signed >/dev/full || fail "a full disk is no error"
}
tensors_tool() { # a file that is none, and no file
    $MAKE -s build/tensors_tool || exit 1
    printf '\010\0\0\0\0\0\0\0{}      ' >"$work/empty"
    printf '\010\0\0\0\0\0\0\0{}     x' >"$work/bad"
    build/tensors_tool "$work/empty" "$work/bad" "$work/none" >"$work/out" || fail "exit status"
    printf '%s\n' "accepted 0 0" "refused tensors: something follows the header's object at byte 15" "refused tensors: file could not be opened" |
        cmp - "$work/out" || fail "what it printed"
    cmp "$work/empty" "$work/empty.again" || fail "what it wrote"
    build/tensors_tool 2>"$work/said"; [ $? = 2 ] || fail "exit status without a file"
}
model_tool() { # what it refuses; the loss of zeros; and, where transformers is, shapes of examples/parts beside it
    $MAKE -s build/model_tool || exit 1
    build/model_tool "$work" 2>/dev/null && fail "no shape is no reason to stop"
    printf 'batch 1\nlength 4\nwidth 8\nheads 2\nvocabulary 61\nblocks 1\ncolour 3\n' >"$work/shape"
    build/model_tool "$work" 2>&1 | grep -q 'colour: is no part of a shape' || fail "a shape with a colour is taken"
    printf 'batch 1\nlength 4\nwidth 8\nheads 2\nvocabulary 61\nblocks 1\nrms 1\nrotary 1\nno_bias 1\n' >"$work/shape"
    for name in weights:5120 ids:16 targets:16; do # 1,280 parameters: tokens 488, a block 8 + 192 + 64 + 8 + 512, the last norm 8
        head -c "${name#*:}" /dev/zero >"$work/${name%:*}"
    done
    build/model_tool "$work" >"$work/said" || fail "zeros cannot be run"
    awk '{ exit !($1 - log(61) < 1e-6 && log(61) - $1 < 1e-6) }' "$work/said" || { cat "$work/said"; fail "the loss of zeros is log(61)"; }
    head -c 5000 /dev/zero >"$work/weights"
    build/model_tool "$work" 2>&1 | grep -q 'weights: is not as long' || fail "weights that are cut are taken"
    python3 -c 'import torch, transformers' 2>/dev/null || { echo "no torch and transformers here, so they are not compared"; return 0; }
    python3 tests/check_models.py build/model_tool
}
tokeniser_tool() { # ids by hand, what is no UTF-8, a file that is none, and no file
    $MAKE -s build/tokeniser_tool || exit 1
    printf '{"pre_tokenizer":null,"decoder":{"type":"Fuse"},"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}' >"$work/t.json"
    { printf '\004\0\0\0aabb\0\0\0\0\002\0\0\0a\377'; } | build/tokeniser_tool "$work/t.json" >"$work/said" || fail "exit status"
    printf '0 2 1|61616262\n|\n!byte 1 of the text is no UTF-8\n' | cmp - "$work/said" || fail "what it printed"
    if printf '\004\0\0\0a' | build/tokeniser_tool "$work/t.json" >/dev/null 2>&1; then fail "accepted a text cut off"; fi
    build/tokeniser_tool "$work/t.json" --time examples/text.txt >"$work/said" || fail "--time"
    cat "$work/said"
    build/tokeniser_tool "$work/said" 2>&1 | grep -q 'line 1, byte 0: ' || fail "does not say where"
    build/tokeniser_tool "$work/none" >/dev/null 2>&1; [ $? = 1 ] || fail "exit status with no file"
    build/tokeniser_tool >/dev/null 2>&1; [ $? = 2 ] || fail "exit status without a file"
}
tokenizers() { # strings: of each kind of tokeniser so many, beside the library
    python=${PYTHON:-python3}
    "$python" -c 'import tokenizers' 2>/dev/null || skip "no python3 with tokenizers here: pip install tokenizers"
    $MAKE -s build/tokeniser_tool || exit 1
    "$python" tests/check_tokeniser.py build/tokeniser_tool "${1:-2000}"
}
unicode_tables() { # of examples/finetune/unicode.h
    "${PYTHON:-python3}" -c '' 2>/dev/null || skip "no python3 here: make deps"
    "${PYTHON:-python3}" tests/unicode_tables.py
}
tensors_python() { # headers of 2,000 files: read as the reference reads them, apart from what is refused on purpose
    python=${PYTHON:-python3}
    "$python" -c 'import safetensors, numpy' 2>/dev/null || skip "no python3 with safetensors here: pip install safetensors numpy"
    $MAKE -s build/tensors_tool || exit 1
    "$python" tests/check_tensors.py build/tensors_tool "${1:-2000}"
}
save_python() { # the model that examples/save.c writes beside its states
    python=${PYTHON:-python3}
    "$python" -c 'import safetensors, numpy' 2>/dev/null || skip "no python3 with safetensors here: pip install safetensors numpy"
    $MAKE -s build/save || exit 1
    here=$(pwd)
    (cd "$work" && "$here/build/save" keep >/dev/null) || fail "exit status"
    "$python" - "$work/save-run/gen-4-step-60" <<'END' || exit 1
import sys
from safetensors import safe_open
def read(name):
    with safe_open(sys.argv[1] + "/" + name, "numpy") as file:
        return file.metadata(), {key: file.get_tensor(key) for key in file.keys()}
metadata, model = read("model.safetensors")
_, state = read("rank-0-of-1.safetensors")
assert metadata == {"format": "pt"} and list(model) == ["layer.weight"], (metadata, list(model))
weights = model["layer.weight"]
assert weights.shape == (200, 100) and weights.dtype == "float32" and weights.std() > 0.001, weights
assert weights.tobytes() == state["w/layer@0"].tobytes()
END
}
finetune() { # tiny models in and out, their losses computed once more, what is to be refused
    python=${PYTHON:-python3}
    "$python" -c 'import resource' 2>/dev/null || skip "no python3 here, or not on POSIX: make deps"
    $MAKE -s build/finetune || exit 1
    "$python" tests/check_finetune.py build/finetune
}
finetune_mpi() { # finetune's ranks as the processes of mpirun
    need mpicc && need mpirun
    python=${PYTHON:-python3}
    "$python" -c 'import resource' 2>/dev/null || skip "no python3 here, or not on POSIX: make deps"
    $MAKE -s build/finetune build/finetune_mpi || exit 1
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun --version 2>/dev/null | grep -q "Open MPI" && more=--oversubscribe || more=
    # shellcheck disable=SC2086
    "$python" tests/check_finetune.py build/finetune mpirun $more -n 2 "$(pwd)/build/finetune_mpi"
}
finetune_peers() { # six models and their adapters, beside transformers and peft
    python=${PYTHON:-python3}
    "$python" -c 'import torch, transformers, peft' 2>/dev/null ||
        skip "no python3 with torch, transformers and peft here: pip install torch transformers peft"
    $MAKE -s build/finetune || exit 1
    "$python" tests/check_finetune_peers.py build/finetune
}
schedule_tool() { # known figures, a chain with its drawings, then what is to be refused
    $MAKE -s build/schedule_tool || exit 1
    [ "$(build/schedule_tool --revolve 100 5)" = 316 ] || fail "--revolve 100 5"
    [ "$(build/schedule_tool --revolve 48 2 --slow -1,0.5,0.5)" = 188 ] || fail "--revolve 48 2 with an offload store"
    [ "$(build/schedule_tool --revolve 48 5 --slow 4,0.5,0.5)" = 186.5 ] || fail "--revolve 48 5 with 4 slow slots"
    # 24 blocks between an embedding and a head of five times their cost; columns in another order, one more, \r\n
    header=saved,output,grad,forward_scratch,backward_scratch,forward_cost,backward_cost,name
    { printf '%s\r\n1,1,1,0,0,0,0,embedding\r\n' $header
      for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do printf '17,1,1,0,0,1,2,block\r\n'; done
      printf '85,1,0,0,0,5,10,head'; } >"$work/gpt.csv"
    said() { # arguments...: a line of JSON that holds $want
        build/schedule_tool --chain "$work/gpt.csv" "$@" >"$work/said" || fail "exit status with $*"
        cat "$work/said"
        for part in $want; do grep -q "\"${part%:*}\": *${part#*:}[,}]" "$work/said" || fail "not printed: $part with $*"; done
    }
    want="feasible:true cost:87 extra:0 minimum:87"; said
    want="feasible:true peak:91 cost:111 extra:24"; said --budget 91 --strip "$work/s.txt" --svg "$work/s.svg"
    grep -q 'peak 91 B' "$work/s.txt" && grep -q '<svg' "$work/s.svg" && grep -q '</svg>' "$work/s.svg" || fail "the drawings"
    want="feasible:true peak:91 cost:111"; said --overhead 27.6
    want="feasible:false minimum:87"; said --budget 86
    want="feasible:true cost:111"; said --rule rotor --budget 91
    want="feasible:false peak:111 cost:111 minimum:111"; said --rule every:1 --budget 110
    want="feasible:true cost:87"; said --frontier
    grep -q '"frontier": \[{"peak": 87, "cost": 131}, ' "$work/said" || fail "no frontier"
    for row in 1,1,1,0,0,1 1,1,1,0,0,1,1,x,x nan,1,1,0,0,1,1,x 1,2,1,0,0,1,1,x 1,1,1,0,0,nan,1,x 1,1,1,0,0,1,-1,x 1,1,1,0,0,inf,1,x \
        1,1,1,0,0,1e999,1,x -1,1,1,0,0,1,1,x 1,1,1,0,0,,1,x 18446744073709551616,1,1,0,0,1,1,x 18446744073709551615,1,1,0,0,1,1,x; do
        printf '%s\n1,1,1,0,0,1,1,x\n%s\n' $header $row >"$work/bad.csv"
        build/schedule_tool --chain "$work/bad.csv" >"$work/out" 2>"$work/said"; [ $? = 2 ] || fail "exit status with the row $row"
        [ -s "$work/said" ] && [ ! -s "$work/out" ] || fail "no message, or output, with the row $row"
    done
    : >"$work/bad.csv"
    for bad in "" "--chain" "--chain $work/bad.csv" "--chain $work/none.csv" "--revolve 3" "--revolve 3 x" "--bogus 1" \
        "--chain $work/gpt.csv --rule fast" "--chain $work/gpt.csv --rule every:0" "--chain $work/gpt.csv --budget -1" \
        "--chain $work/gpt.csv --slots 1" "--chain $work/gpt.csv --slow 1,2" "--chain $work/gpt.csv --budget 1 --overhead 1"; do
        # shellcheck disable=SC2086
        build/schedule_tool $bad >"$work/out" 2>"$work/said"; [ $? = 2 ] || fail "exit status with '$bad'"
        [ -s "$work/said" ] && [ ! -s "$work/out" ] || fail "no message, or output, with '$bad'"
    done
}
page_tool() { # a page of made-up figures; looked at in a browser it is by `check_gpt.sh page`
    $MAKE -s build/page_tool && build/page_tool "$work/page.html" "$work/chart.svg" || fail "exit status"
    grep -q '</html>' "$work/page.html" && grep -q '</svg>' "$work/chart.svg" || fail "not written to the end"
    if build/page_tool "$work/none/page.html" "$work/chart.svg"; then fail "a folder that is not there is no error"; fi
}
exhaustive() { # every float there is
    $MAKE -s "build/$1" && "build/$1"
}
keeps() { # run.sh runs what failed, was skipped or depends on what has changed, and nothing else; key.sh knows what is included
    mkdir "$work/tests" "$work/examples" "$work/ran" && cp tests/run.sh tests/key.sh "$work/tests" || exit 1
    for source in memopt.h memopt_cuda.cu Makefile README.md tests/x.c; do echo 1 >"$work/$source"; done
    echo 'echo x >>ran/cpu; echo "3 passed, 0 failed, 1 skipped"' >"$work/tests/check.sh"
    cat >"$work/table" <<'END'
passes | echo x >>ran/any
fails | echo x >>ran/fails; exit 1
is skipped | echo x >>ran/skipped; echo not here; exit 77
changes its own sources | echo x >>ran/changes; [ -f no_more ] || echo x >>examples/x.c
is for the CPU | sh tests/check.sh combined cc
END
    ran() { # how often each has run by now, the totals, setting...
        want=$1 totals=$2; shift 2
        (cd "$work" && env KEEP=kept JOBS=1 FRESH= MAKEFLAGS= "$@" sh tests/run.sh log <table >said 2>&1) && fail "the failed row is not told"
        got=$(for name in any fails skipped changes cpu; do wc -l <"$work/ran/$name"; done | tr -d ' ' | tr '\n' ' ')
        [ "$got" = "$want " ] && [ "$(tail -n 1 "$work/said")" = "$totals" ] || { cat "$work/said"; fail "ran $got, not $want"; }
    }
    : >"$work/no_more"
    ran "1 1 1 1 1" "5 passed, 1 failed, 2 skipped"
    ran "1 2 2 1 1" "5 passed, 1 failed, 2 skipped" MAKEFLAGS=" -- JOBS=1" # those that passed are kept, with their numbers
    grep -q 'kept    is for the CPU (3 passed, 0 failed, 1 skipped, passed on ' "$work/said" || fail "does not tell what it kept"
    echo 2 >"$work/memopt_cuda.cu"; ran "2 3 3 2 1" "5 passed, 1 failed, 2 skipped"
    echo 2 >"$work/tests/x.c"; ran "3 4 4 3 2" "5 passed, 1 failed, 2 skipped"
    echo 1 >"$work/tests/x.c"; ran "3 5 5 3 2" "5 passed, 1 failed, 2 skipped" # what was changed back
    ran "4 6 6 4 3" "5 passed, 1 failed, 2 skipped" CFLAGS=-O7
    ran "5 7 7 5 4" "5 passed, 1 failed, 2 skipped" MAKEFLAGS=" -- BLAS=none"
    ran "6 8 8 6 5" "5 passed, 1 failed, 2 skipped" FRESH=1
    ran "7 9 9 7 6" "5 passed, 1 failed, 2 skipped" KEEP= # `make test` keeps nothing
    rm "$work/no_more"
    ran "8 10 10 8 7" "5 passed, 1 failed, 2 skipped" CFLAGS=-O8
    rm "$work/examples/x.c"; : >"$work/no_more"
    ran "8 11 11 9 8" "5 passed, 1 failed, 2 skipped" CFLAGS=-O8 # the first had ended when its sources changed
    echo 1 >"$work/program"
    one=$(sh tests/key.sh program x "$work/program") other=$(sh tests/key.sh program y "$work/program")
    echo 2 >"$work/program"
    [ "$one" != "$other" ] && [ "$one" != "$(sh tests/key.sh program x "$work/program")" ] || fail "programs that differ have the same key"
}
knows() { # key.sh names every file that the compiler reads
    reads() { # action, compiler and arguments...
        action=$1; shift
        sh tests/key.sh files "sh tests/check.sh $action x" >"$work/named"
        "$@" -DMEMOPT_I_IMPLEMENTED -MM -I. >"$work/rules" || exit 1 # the implementation includes the header alone
        tr ' \\' '\n\n' <"$work/rules" | grep -v -E '^/|:$|^$' | sed ':a;s,[a-z0-9_]*/\.\./,,;ta' | sort -u >"$work/read"
        grep -q '^memopt.h$' "$work/read" || skip "$1 does not list what is included (-MM)"
        comm -23 "$work/read" "$work/named" | grep . && fail "these are not named for $action"
    }
    # shellcheck disable=SC2046,SC2086
    reads combined $CC $(ls tests/*.c | grep -v /ranks_) tests/fuzz/*.c tests/bench/*.c examples/*.c
    # shellcheck disable=SC2086
    reads simulated $CXX -x c++ -Itests -Itests/simulator -Itests/simulator/include tests/*.cu tests/simulator/*.cpp examples/*.cu
    return 0
}
combined_is_complete() { # every test is in its programs
    sh tests/suite.sh test >"$work/rows"
    for test in $TESTS; do
        grep -q -w "$test" "$work/rows" || fail "tests/suite.sh has no row with $test"
        case $test in test_gpt | test_tiles) continue ;; esac # of an example, whose names are its own; and test_gemm again
        grep -q "\"$test.c\"" tests/test_combined.c || fail "tests/test_combined.c does not include $test.c"
        grep -q -E " $test(_section)?\(\)" tests/test_combined.c || fail "tests/test_combined.c does not run $test()"
    done
    for test in $CUDA_TESTS; do
        case $test in test_cuda_part | test_cuda_simulator) continue ;; esac # of one section alone; of the simulator itself
        grep -q "\"$test.cu\"" tests/test_cuda.cu || fail "tests/test_cuda.cu does not include $test.cu"
        grep -q " \"[a-z0-9]*\", $test }" tests/test_cuda.cu || fail "tests/test_cuda.cu does not run $test()"
    done
}

# ---- the header as a neighbour ----
# the functions of math.h, and what compilers and glibc make of them
mathematics='(a?(cos|sin|tan)h?|atan2|sincos|exp(2|10|m1)?|pow|log(2|10|1p|b)?|ilogb|cbrt|hypot|sqrt|erfc?|lgamma|tgamma|fma|fabs'
mathematics=$mathematics'|fmod|modf|remainder|remquo|fmin|fmax|fdim|frexp|ldexp|scalbl?n|ceil|floor|trunc|l?l?round|l?l?rint|nearbyint'
mathematics=$mathematics'|nextafter|copysign)[fl]?(_finite)?(@.*)?'
symbols() { # nothing exported but memopt_*; no writable data; neither printing nor ending the program
    can "$CC" "-fno-pic -no-pie"; need nm; need size
    # Not position-independent: in such code even a constant table of pointers must be written to once, by the loader.
    for source in impl static; do $CC -fno-pic -I. -c "$work/$source.c" -o "$work/$source.o" || exit 1; done
    nm -g "$work/impl.o" | sed -n 's/^.* [A-TV-Za-z] _*//p' | grep -v '^memopt_' && fail "exported, and not memopt_*"
    nm -g "$work/impl.o" | grep -q ' T _*memopt_status_text' || fail "the check itself sees no symbols"
    nm -g "$work/static.o" | grep ' [A-TV-Z] ' && fail "exported in spite of MEMOPT_STATIC"
    nm "$work/impl.o" | grep -i ' [bdgs] ' && fail "writable data"
    size "$work/impl.o" | awk 'NR == 2 && $2 + $3 != 0 { print "writable data: " $2 + $3 " bytes"; exit 1 }' || exit 1
    nm -u "$work/impl.o" | grep -w -E 'abort|_?exit|_Exit|raise|v?f?printf|puts|fputs|putchar|perror|std(out|err)|__assert_fail' &&
        fail "prints or ends the program"
    # Of the C library's mathematics only what IEEE 754 defines to the bit: everything else differs from machine to machine.
    nm -u "$work/impl.o" | sed -n 's/^ *U _*//p' | grep -v -x -E '(sqrt|fma|ldexp|floor|fabs)f?' | grep -x -E "$mathematics" &&
        fail "calls mathematics whose bits are the C library's"
    echo sinhf | grep -q -x -E "$mathematics" || fail "the check itself knows no mathematics"
    return 0
}
macros() { # the implementation leaves no macro behind but MEMOPT_* and those of the system headers it includes
    can "$CC" ""
    printf '\n' >"$work/nothing.c"
    $CC -I. -E -dM "$work/nothing.c" 2>/dev/null | grep -q '#define __STDC__' || skip "$CC does not list macros (-dM)"
    $CC -I. -E -dI "$work/impl.c" | awk '
        /^# [0-9]+ "/ { inside = $3 ~ /memopt\.h"$/ }
        inside && /^#include *</ { print $1, $2 }' >"$work/system.c"
    grep -q '<stddef.h>' "$work/system.c" || fail "the check itself sees no #include"
    for source in impl system; do
        $CC -I. -E -dM "$work/$source.c" | awk '{ sub(/\(.*/, "", $2); print $2 }' | sort -u >"$work/$source.macros"
    done
    grep -q '^MEMOPT_VERSION$' "$work/impl.macros" || fail "the check itself sees no macros"
    comm -23 "$work/impl.macros" "$work/system.macros" | grep -v '^MEMOPT_' && fail "macros left behind"
    for what in define undef; do # of the kernels by their text: another compiler would have to read them
        sed -n "s/^# *$what \\([A-Za-z_0-9]*\\).*/\\1/p" memopt_cuda.cu | sort -u >"$work/$what"
    done
    comm -23 "$work/define" "$work/undef" | grep -v '^MEMOPT_' && fail "macros that memopt_cuda.cu leaves behind"
    return 0
}
late_static() { # MEMOPT_STATIC defined after the first include would give two kinds of linkage: refused, in words
    printf '#include "memopt.h"\n#define MEMOPT_STATIC\n#define MEMOPT_IMPLEMENTATION\n#include "memopt.h"\n' >"$work/late.c"
    $CC -I. -c "$work/late.c" -o "$work/late.o" >"$work/said" 2>&1 && fail "was accepted"
    grep 'define it before the first #include' "$work/said" || fail "was refused with other words: $(cat "$work/said")"
}
upgrade() { # programs written for 0.1.0 compile once examples/upgrade.sed has renamed what they name, to names that exist
    for name in $(sed -n 's/^s\/.*[/.>]\([A-Za-z_][A-Za-z0-9_]*\)\(\\1\)\{0,1\}\/g$/\1/p' examples/upgrade.sed); do
        grep -q -w "$name" memopt.h memopt_cuda.cu || fail "examples/upgrade.sed: $name is no name any more"
    done
    for old in tests/upgrade/*.c; do
        sed -f examples/upgrade.sed "$old" >"$work/new.c"
        # The declarations are enough, and what the implementation includes.
        $CC -std=c11 -I. -DMEMOPT_I_IMPLEMENTED -include stdlib.h -include string.h -include math.h -Werror=implicit-function-declaration \
            -fsyntax-only "$work/new.c" >"$work/said" 2>&1 || fail "$old: $(cat "$work/said")"
    done
}
finds_itself() { # the header includes itself for its wide code: under another name, from other folders, in other files
    built() { # name flags... source; at -O1: see two_copies
        name=$1; shift
        # shellcheck disable=SC2046
        "$@" -O1 ${LANES:-} $(warnings_for "$CC" "") -o "$work/found" -lm >"$work/said" 2>&1 && "$work/found" >>"$work/said" ||
            fail "$name: $(cat "$work/said")"
    }
    root=$PWD; source=$root/tests/finds_itself.c
    mkdir -p "$work/a/b" "$work/link" "$work/renamed"
    cp memopt.h "$work/renamed/mine.h"; cp memopt.h "$work/a/memopt.h"; ln -s "$root/memopt.h" "$work/link/memopt.h"
    built "plainly" "$CC" -I. "$source"
    built "prefix maps" "$CC" "-ffile-prefix-map=$root=/somewhere" "-fdebug-prefix-map=$root=." -I. "$source"
    built "a link" "$CC" "-I$work/link" "$source"
    built "renamed" "$CC" "-I$work/renamed" '-DHEADER="mine.h"' '-DMEMOPT_HEADER="mine.h"' "$source"
    (cd "$work/a/b" && built "relative -I" "$CC" -I.. "$source") || exit 1
    (cd "$work/a" && built "by a path" "$CC" -I. '-DHEADER="b/../memopt.h"' "$source") || exit 1
    # pasted into another file, it says what to do
    { printf '#define MEMOPT_STATIC\n#define MEMOPT_IMPLEMENTATION\n'; cat memopt.h; printf '#define AMALGAMATED\n'; sed '/^#define MEMOPT/d' "$source"; } >"$work/all.c"
    (cd "$work/b" 2>/dev/null || cd "$work/renamed"; $CC -c "$work/all.c" -o "$work/all.o") >"$work/said" 2>&1 &&
        [ -z "$($CC -dM -E -x c /dev/null | grep -E '__x86_64__|__aarch64__')" ] && fail "pasted: was accepted"
    grep -q 'MEMOPT_NO_SIMD' "$work/said" || fail "pasted: other words: $(head -5 "$work/said")"
    built "pasted, MEMOPT_NO_SIMD" "$CC" -DMEMOPT_NO_SIMD "$work/all.c"
}
two_copies() { # two private copies and a public one in one program
    warnings=$(warnings_for "$CC" "") # static ones at -O1: at -O0 gcc compiles functions that nobody calls
    # shellcheck disable=SC2086
    $CC $warnings -I. -c tests/two.c -o "$work/two.o" && $CC -O1 ${LANES:-} $warnings -I. tests/two_a.c tests/two_b.c "$work/two.o" -o "$work/two" -lm && "$work/two"
}
declarations() { # compiler standard language
    can "$1" "-std=$2 -x $3"
    # shellcheck disable=SC2046
    $1 -x "$3" -std="$2" $(warnings_for "$1" "") $(case $3 in c++) echo -Wold-style-cast ;; esac) -I. -c tests/decl.c -o "$work/decl.o"
}
old_style_casts() { # compiler: parts and MEMOPT_PUSH give a C++ engine no warnings of C's casts, which keeps those of its own
    can "$1" "-x c++"
    for part in examples/parts/*.h; do
        case $part in */device.h | */tensor_device.h) continue ;; esac # they include what is not everywhere
        printf '#include "memopt.h"\n#include "%s"\n' "$part" >"$work/casts.cpp"
        $1 -std=c++11 -Wold-style-cast -Werror -I. -fsyntax-only "$work/casts.cpp" || fail "$part"
        echo 'double engine(int x) { return (double)x; }' >>"$work/casts.cpp"
        $1 -std=c++11 -Wold-style-cast -Werror -I. -fsyntax-only "$work/casts.cpp" 2>"$work/said" && fail "$part leaves the warning off"
    done
    for adapter in cblas mpi; do
        with=$1
        [ $adapter = cblas ] || with="env OMPI_CXX=$1 MPICH_CXX=$1 mpicxx -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -Wno-unused-command-line-argument"
        echo "#include <$adapter.h>" >"$work/casts.cpp"
        $with -fsyntax-only "$work/casts.cpp" 2>/dev/null || { echo "no <$adapter.h> here, so its adapter is not looked at"; continue; }
        printf '#include "memopt.h"\n#include "examples/adapters/%s.h"\n' "$adapter" >>"$work/casts.cpp"
        $with -std=c++11 -Wold-style-cast -Werror -I. -fsyntax-only "$work/casts.cpp" || fail "$adapter.h"
    done
    echo 'float *take(memopt_arena *a) { return MEMOPT_PUSH(a, float, 1, MEMOPT_TAG_OTHER); }' >"$work/casts.cpp"
    $1 -std=c++11 -Wold-style-cast -Werror -I. -include memopt.h -fsyntax-only "$work/casts.cpp" || fail "MEMOPT_PUSH"
}
zeroed() { # `memopt_x x = { 0 };` compiles for every struct that is declared, also in C++, where an enum cannot come first
    {
        printf '#include "memopt.h"\n#include "memopt_cuda.cu"\nint main(void) {\n'
        cat memopt.h memopt_cuda.cu | sed -n '/^typedef struct memopt_i_/d
            s/^typedef struct \(memopt_[a-z0-9_]*\) {.*/    { \1 x = { 0 }; (void)x; }/p'
        printf '    return 0;\n}\n'
    } >"$work/zeroed.c"
    count=$(grep -c '= { 0 }' "$work/zeroed.c")
    echo "$count structs"
    [ "$count" -ge 131 ] || fail "the check itself sees too few"
    $CC -std=c99 -Wall -Wno-missing-braces -Werror -I. -fsyntax-only "$work/zeroed.c" || fail "not in C"
    $CXX -x c++ -std=c++11 -Wall -Wno-missing-braces -Werror -I. -fsyntax-only "$work/zeroed.c" || fail "not in C++"
}
groups() { # [all]: each group alone, and two pairs: no warning by any compiler; bytes; what it declares is what it defines
    can "$CC" "-std=c99"; need nm; need size
    printf '#include "memopt.h"\n' >"$work/user.c"
    printf '#define MEMOPT_ONLY_MEMORY\n#include "memopt.h"\n#undef MEMOPT_ONLY_MEMORY\n#define MEMOPT_ONLY_RANKS\n#include "memopt.h"\n' >"$work/two.c"
    $CC -I. -fsyntax-only "$work/two.c" 2>"$work/said" && fail "another choice in the same file is not refused"
    grep -q 'before with other MEMOPT_ONLY' "$work/said" || fail "another choice is refused in other words"
    while read -r limit other chosen; do
        flags=
        for group in $chosen; do flags="$flags -DMEMOPT_ONLY_$group"; done
        while IFS='|' read -r compiler language; do
            [ "${1:-}" = all ] || [ "$compiler" = "$CC" ] || [ "$compiler" = "$CXX" ] || continue
            command -v "${compiler%% *}" >/dev/null 2>&1 || continue
            # shellcheck disable=SC2046,SC2086
            $compiler $language $flags $(warnings_for "$compiler" "$language") -I. -fsyntax-only "$work/impl.c" || fail "$chosen, $compiler $language"
        done <<ENDS
$CC|-std=c99
$CXX|-x c++ -std=c++20
gcc|-std=c17
g++|-x c++ -std=c++11
clang|-std=c99
clang++|-x c++ -std=c++20
ENDS
        # shellcheck disable=SC2086
        $CC -std=c99 -O0 $flags -I. -c "$work/impl.c" -o "$work/impl.o" && $CC -std=c99 $flags -I. -E -P "$work/user.c" >"$work/user.i" || fail "$chosen"
        tr '\n' ' ' <"$work/user.i" | tr ';' '\n' | sed -n 's/^.*extern [^(]*\(memopt_[a-z0-9_]*\) *(.*/\1/p' | sort -u >"$work/declared"
        nm -g --defined-only "$work/impl.o" | sed -n 's/.* T //p' | sort -u >"$work/defined"
        diff "$work/declared" "$work/defined" || fail "$chosen: declared is not what is defined"
        [ -s "$work/declared" ] && ! grep -q -x "$other" "$work/declared" || fail "$chosen: has $other"
        printf '#include "memopt.h"\nint main(void) { return %s != 0; }\n' "$other" >"$work/call.c"
        # shellcheck disable=SC2086
        $CC $flags -I. -fsyntax-only "$work/call.c" 2>/dev/null && fail "$chosen: $other compiles"
        bytes=$(size "$work/impl.o" | awk 'NR == 2 { print $1 }')
        echo "$chosen: $(wc -l <"$work/defined") functions, $bytes bytes at -O0 of at most $limit"
        case $(uname -m) in x86_64) [ "$bytes" -le "$limit" ] || fail "$chosen has become larger: python3 tests/contents.py --lines" ;; esac
        [ "$bytes" -ge $((limit / 4)) ] || fail "the check itself sees no code"
    done <<END
160000 memopt_quantize MEMORY
400000 memopt_heap_create NUMBERS
480000 memopt_norm_forward ACTIVATIONS
502000 memopt_tape_create OPERATORS
760000 memopt_advise_solve RANKS
750000 memopt_norm_forward ADVISE
380000 memopt_norm_forward MUON
620000 memopt_tape_create MEMORY OPERATORS
940000 memopt_norm_forward ACTIVATIONS RANKS
END
}
cut_to() { # parts: a header of only these, in $work/cut
    mkdir -p "$work/cut"
    PARTS="$1" awk -f examples/header.awk memopt.h >"$work/cut/memopt.h" || fail "PARTS=$1 is not cut"
}
cut() { # make header: limits, what it says of itself, names with odd characters, refusals; a few parts compile, and pass their tests
    can "$CC" "-std=c99"
    while read -r part lines bytes; do
        cut_to "$part"
        got="$(wc -l <"$work/cut/memopt.h") $(wc -c <"$work/cut/memopt.h")"
        echo "$part: $got of at most $lines lines, $bytes bytes"
        [ "${got% *}" -le "$lines" ] && [ "${got#* }" -le "$bytes" ] || fail "$part has become larger: python3 tests/contents.py --lines"
        [ "${got% *}" -ge $((lines / 4)) ] || fail "the check itself sees no lines"
    done <<END
arena 4500 500000
optim 12000 500000
tape 15000 750000
END
    version=$(sed -n 's/^\/\* memopt.h - \(v[0-9.]*\) - .*/\1/p' memopt.h)
    mkdir "$work/a & b"
    $MAKE -s header PARTS="arena, plan" OUT="$work/a & b/lean & mean.h" >/dev/null || fail "a path with blanks and &"
    head -n 1 "$work/a & b/lean & mean.h" | grep -q "^/\* memopt.h - $version - only arena plan and what they use - " || fail "the first line"
    grep -q '^   QUICK START' "$work/a & b/lean & mean.h" || fail "the arena without its QUICK START"
    $MAKE -s header PARTS="optim,optim" OUT="$work/new & b/c d/le & an.h" >"$work/said" || fail "a folder that is not there"
    grep -q ' of [0-9]* lines, [0-9]* of [0-9]* KB$' "$work/said" || fail "other words: $(cat "$work/said")"
    printf '#define MEMOPT_IMPLEMENTATION\n#include "le & an.h"\n' >"$work/new & b/c d/impl.c"
    # shellcheck disable=SC2046
    $CC -std=c99 $(warnings_for "$CC" "") -fsyntax-only "$work/new & b/c d/impl.c" || fail "under a name with blanks it does not compile"
    sed 's/$/\r/' memopt.h | PARTS=optim HEADER_NAME="le & an.h" NAME=host awk -f examples/header.awk | cmp - "$work/new & b/c d/le & an.h" || fail "lines that end with CR LF"
    grep -n -e '"memopt\.h' -e '^   QUICK START' "$work/new & b/c d/le & an.h" && fail "optim: another file's name, or another section's QUICK START"
    grep -q 'PARTS="optim"' "$work/new & b/c d/le & an.h" && grep -q 'add host_threads to PARTS' "$work/new & b/c d/le & an.h" || fail "optim: the banner"
    refused() { # OUT words
        $MAKE -s header PARTS=arena OUT="$1" >/dev/null 2>"$work/said" && fail "OUT=$1 is accepted"
        grep -q "$2" "$work/said" || fail "OUT=$1 is refused in other words: $(cat "$work/said")"
        [ ! -e "$1.new" ] && [ ! -e "$1/${1##*/}.new" ] && [ ! -e "$1/.new" ] || fail "OUT=$1 leaves a file"
    }
    ln -s "$PWD/memopt.h" "$work/link.h"
    for out in memopt.h "$PWD/memopt.h" "../${PWD##*/}/memopt.h" "$work/link.h"; do refused "$out" 'is the whole header'; done
    for out in "$work/a & b" "$work/not there/"; do refused "$out" 'is a folder'; done
    for out in "$work/a\"b.h" "$work/a\\b.h"; do refused "$out" 'a quote or a backslash'; done
    $MAKE -s header PARTS= OUT="$work/none.h" >"$work/said" && grep -q '^  base:.* host_threads' "$work/said" || fail "no list of parts"
    sed 's/^\(\/\* @section a[a-z]*\) :/\1:/' memopt.h | PARTS=plan awk -f examples/header.awk >/dev/null 2>&1 && fail "a marker that contents.py refuses is accepted"
    $MAKE -s header PARTS="arena no_such_part" OUT="$work/none.h" >/dev/null 2>"$work/said" && fail "an unknown part is accepted"
    grep -q 'no part no_such_part' "$work/said" && grep -q '^  memory:.* arena ' "$work/said" || fail "an unknown part is refused in other words"
    ls "$work" | grep -q '^none' && fail "something is written when it fails"
    PARTS=arena awk -f examples/header.awk "$work/cut/memopt.h" >/dev/null 2>&1 && fail "a cut header is cut again"
    cut_to memory
    grep -n 'MEMOPT_I_GROUPS\|MEMOPT_ONLY\|MEMOPT_NO_SIMD\|/\* of a group \*/$\|/\* groups \*/$' "$work/cut/memopt.h" | grep -v '#  error' && fail "lines of groups, or options that are none, are left"
    sed -n '/^   CONTENTS /,/^$/s/^     \(api_\)\{0,1\} *\([a-z_0-9][a-z_0-9]*\)  .*/\2/p' "$work/cut/memopt.h" | sort -u >"$work/rows"
    sed -n 's/^\/\* @section \([a-z_0-9]*\) .*/\1/p' "$work/cut/memopt.h" | sed 's/^api_//' | grep -v -x end | sort -u | diff "$work/rows" - || fail "its CONTENTS are not its sections"
    for test in test_arena test_heap test_schedule test_quant; do on_its_parts $test; done
}
on_its_parts() { # test: on a header of the sections that it names
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    cut_to "status base text host $(python3 tests/contents.py --parts "tests/$1.c")"
    without=
    for what in "api_optim OPTIM" "simd SIMD" "host_files FILES"; do
        grep -q "^/\* @section ${what% *} " "$work/cut/memopt.h" || without="$without -DTEST_NO_${what#* }"
    done
    # shellcheck disable=SC2046,SC2086
    $CC -std=c99 -O1 -DMEMOPT_STATIC ${LANES:-} $without $(warnings_for "$CC" "") -I"$work/cut" -I. -Itests "tests/$1.c" -o "$work/test" -lm || fail "$1 does not compile on $(head -n 1 "$work/cut/memopt.h")"
    "$work/test" >"$work/said" || { cat "$work/said"; fail "$1 on its parts"; }
    echo "$1 on $(wc -l <"$work/cut/memopt.h") lines: $(tail -n 1 "$work/said")"
}
cut_everywhere() { # every section alone compiles when it is cut, in C and C++; the tests of sections, each on its parts
    can "$CC" "-std=c99"; can "$CXX" "-x c++"
    for part in $(sed -n 's/^\/\* @section \([a-z_0-9]*\) .*/\1/p' memopt.h | grep -v -x -E 'groups|end|api_end'); do
        cut_to "$part"
        cp "$work/impl.c" "$work/cut/impl.c"
        # shellcheck disable=SC2046,SC2086
        $CC -std=c99 $(warnings_for "$CC" "") -fsyntax-only "$work/cut/impl.c" || fail "$part alone, C"
        case $part in api_*) continue ;; esac
        # shellcheck disable=SC2046,SC2086
        $CXX -x c++ -std=c++11 $(warnings_for "$CXX" "-x c++") -fsyntax-only "$work/cut/impl.c" || fail "$part alone, C++"
    done
    for test in test_optim test_scale test_gemm test_norm test_fused test_graph test_store test_feed test_tensors test_source; do on_its_parts $test; done
}
parts() { # with MEMOPT_STATIC one part costs one part: bytes of its user's object code, and no warning
    need size
    tried=
    for part in PLAN HEAP TAPE LINEAR; do # of which bench_include tells the bytes
        # shellcheck disable=SC2046
        $CC $(warnings_for "$CC" "") -I. -DPART_$part -DPART_DECLARED -fsyntax-only tests/parts.c || fail "$part does not compile"
    done
    while read -r compiler part limit; do
        command -v "$compiler" >/dev/null 2>&1 || continue
        # shellcheck disable=SC2046
        "$compiler" -O2 $(warnings_for "$compiler" "") -I. "-DPART_$part" -c tests/parts.c -o "$work/part.o" || fail "$part does not compile with $compiler"
        bytes=$(size "$work/part.o" | awk 'NR == 2 { print $1 + $2 + $3 }')
        echo "$compiler $part: $bytes bytes of at most $limit"
        [ "$bytes" -le "$limit" ] || fail "$part has become larger: what does it call that it did not call before?"
        [ "$bytes" -ge $((limit / 4)) ] || fail "the check itself sees no code"
        tried=yes
    done <<'END'
gcc ARENA 20000
gcc ADAM8 110000
clang ARENA 28000
clang ADAM8 160000
END
    [ "$tried" ] || skip "neither gcc nor clang here: make deps"
}
include() { # seconds and bytes of an include, the whole, by groups and by parts
    need gcc; need size
    sh tests/bench/bench_include.sh --check
}
cplusplus() { # the implementation in C++
    can "$CXX" "-std=$1 -x c++"
    # shellcheck disable=SC2046
    $CXX -x c++ -std="$1" $(warnings_for "$CXX" "-x c++") -Wold-style-cast -I. -c "$work/impl.c" -o "$work/impl.o"
}
exceptions() { # thrown by callbacks, through this file compiled as C and as C++
    can "$CXX" "-x c++ -std=c++11 -pthread"
    for language in "$CC -std=c99 -fexceptions" "$CXX -x c++ -std=c++11"; do
        $language -O1 -DMEMOPT_ONLY_RANKS -DMEMOPT_NO_SIMD -DMEMOPT_PTHREADS -pthread -I. -c "$work/impl.c" -o "$work/impl.o" || fail "$language does not compile"
        # shellcheck disable=SC2046
        $CXX -x c++ -std=c++11 -O1 $(warnings_for "$CXX" "-x c++") -pthread -I. tests/jump.cpp -x none "$work/impl.o" -lm -o "$work/jump" || fail "the engine does not compile"
        "$work/jump" || fail "over $language: what it threw left something"
    done
}
readme() { # its code stands in examples that are compiled and run
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    python3 tests/check_readme.py README.md examples/*.c examples/*.cu examples/*/*.[ch]
}
house() { # figures of header and kernels, and the size of README.md, stay below their limits
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    python3 tests/house.py --check
}
layers() {
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    python3 tests/check_layers.py --selftest && python3 tests/check_layers.py --prefix 'memopt|MEMOPT|V_' memopt.h &&
        python3 tests/check_layers.py memopt_cuda.cu
}

# ---- tools of the matrix ----
memcheck() {
    need valgrind
    $CC -O1 -g -I. tests/test_combined.c -o "$work/test" -lm || fail "does not compile"
    valgrind -q --child-silent-after-fork=yes --error-exitcode=9 --leak-check=full --show-leak-kinds=all --errors-for-leak-kinds=all "$work/test"
}
# The analysers get the header itself as their main file, because they look at included files less. Each must first
# find a bug that was planted: a tool that reads its settings wrongly finds nothing, and would pass.
tidy() { # macros [checks to leave out]
    need clang-tidy
    checks="--checks=${2:-}" found=NullDereference
    [ -z "${2:-}" ] || found=bugprone-branch-clone # the analyser is what may be left out
    printf 'int f(int *p);\nint f(int *p) { if (p) return 1; return *p; }\n
        int g(int i);\nint g(int i) { if (i) { return 1; } else { return 1; } }\n' >"$work/planted.c"
    clang-tidy --config-file=.clang-tidy "$checks" --quiet "$work/planted.c" -- 2>/dev/null | grep -q $found || fail "misses a planted bug"
    # A check is a call, in which calls are nested: without them the analyser takes what was refused for accepted.
    # shellcheck disable=SC2086
    clang-tidy --config-file=.clang-tidy "$checks" --quiet --warnings-as-errors='*' memopt.h -- -x c -std=c99 -DMEMOPT_IMPLEMENTATION $1 \
        -Xclang -analyzer-inline-max-stack-depth -Xclang 12 -Xclang -analyzer-disable-retry-exhausted
}
check_cpp() { # macros
    need cppcheck
    printf 'int f(void);\nint f(void) { int a[2]; a[0] = 1; return a[2]; }\n' >"$work/planted.c"
    cppcheck --quiet --error-exitcode=1 "$work/planted.c" 2>/dev/null && fail "misses a planted bug"
    # Off: pointerSize, which takes the pointer that is stored below a block for a mistake; two that judge style.
    # shellcheck disable=SC2086
    cppcheck --quiet --error-exitcode=1 --language=c --std=c99 --enable=warning,portability --suppress=missingIncludeSystem \
        --suppress=pointerSize --suppress=arrayIndexThenCheck --suppress=duplicateAssignExpression \
        -D__GNUC__ -D__unix__ -D__linux__ -DMEMOPT_IMPLEMENTATION $1 memopt.h
}
# ---- memopt_cuda.cu ----
simulated() { # kind test: the kernels on the CPU
    compiler=$CXX run=
    case $1 in clang | thread) compiler=clang++ ;; esac
    [ "$1" != blas ] || [ -f /usr/local/cuda/include/cublasLt.h ] || skip "no cuBLASLt here: install the CUDA Toolkit"
    case $1 in
    address) can "$compiler" "-x c++ -fsanitize=address,undefined" ;;
    thread)
        can "$compiler" "-x c++ -fsanitize=thread" "setarch -R"
        run="setarch -R" ;;
    *) can "$compiler" "-x c++" ;;
    esac
    # shellcheck disable=SC2086
    $MAKE -s "build/simulator/$1/$2" && $run "build/simulator/$1/$2"
}
train_gpt_cuda() { # kind: the GPT on a simulated card, beside the CPU's: losses, bytes, bits, refusals
    can "$CXX" "-x c++"
    $MAKE -s build/train_gpt "build/simulator/$1/example_train_gpt" || fail "does not compile"
    python3 tests/check_train_gpt_cuda.py build/train_gpt "build/simulator/$1/example_train_gpt"
}
card() { # tests/card.sh and its page, with the simulator's programs and stand-ins for a card's tools; without a card; cut off
    can "$CXX" "-x c++"
    need timeout
    for program in test_cuda_number bench_cuda example_train_gpt; do $MAKE -s "build/simulator/plain/$program" || fail "does not compile"; done
    python3 tests/check_card.py build/simulator/plain
}
need_nvcc() { command -v "$NVCC" >/dev/null 2>&1 || skip "no nvcc here: install the CUDA Toolkit, or set NVCC"; }
cuda() { # architecture...: without a warning, a spill or a local stack; on sm_90, what the hot kernels issue and move
    need_nvcc
    targets=
    for arch in "$@"; do targets="$targets -gencode arch=compute_$arch,code=sm_$arch"; done
    # shellcheck disable=SC2086
    "$NVCC" -std=c++17 $targets -t 2 -I. -Werror all-warnings -Xcompiler -Wall,-Wextra -Xptxas -v --keep --keep-dir "$work" \
        -c memopt_cuda.cu -o "$work/cuda.o" 2>"$work/report" || { grep -v 'ptxas info' "$work/report"; fail "does not compile"; }
    python3 tests/check_ptxas.py <"$work/report" || fail "kernels that spill"
    [ ! -f "$work/memopt_cuda.cubin" ] || mv "$work/memopt_cuda.cubin" "$work/memopt_cuda.compute_$1.cubin" # where it is the only one
    [ -f "$work/memopt_cuda.compute_90.cubin" ] || return 0
    python3 tests/count_kernels.py "$work/memopt_cuda.compute_90.cubin"
}
cuda_groups() { # attention by groups of warps: what ptxas says of them, spills, and what their loops issue
    need_nvcc
    {
        printf '#define MEMOPT_CUDA_STATIC\n#include "memopt_cuda.cu"\nusing namespace memopt_i_cuda;\nextern void *const kernels[];\nvoid *const kernels[] = {\n'
        for type in bf16_t f16_t; do for width in 64 128; do
            printf '(void *)group_forward_kernel<%s, %s>,\n' $type $width
            for columns in 0 1; do printf '(void *)group_backward_kernel<%s, %s, %s>,\n' $type $width $columns; done
        done; done
        printf '};\n'
    } >"$work/groups.cu"
    # As a user compiles it: code of 9.0a, and PTX for others, without a body.
    "$NVCC" -std=c++17 -arch=sm_90a -DMEMOPT_CUDA_WGMMA -I. -Werror all-warnings -Xptxas -v --keep --keep-dir "$work" \
        -c "$work/groups.cu" -o "$work/groups.o" 2>"$work/report" || { grep -v 'ptxas info' "$work/report"; fail "does not compile"; }
    ! grep '(C75' "$work/report" || fail "products that wait for each other"
    python3 tests/check_ptxas.py <"$work/report" || fail "kernels that spill"
    python3 tests/check_flight.py "$work"/groups*.cubin || fail "registers under way"
    python3 tests/count_kernels.py "$work"/groups*.cubin --rows tests/kernels_90a.txt || fail "loops are not as counted"
    "$NVCC" -std=c++17 -arch=compute_90 -Xcicc -O0 -Werror all-warnings -DMEMOPT_CUDA_WGMMA -I. -ptx memopt_cuda.cu -o "$work/none.ptx" ||
        fail "the whole file for an architecture without groups: warnings"
    [ "$(grep -A 4 '\.entry.*group_' "$work/none.ptx" | grep -c 'maxntid 32,')" -eq 12 ] || fail "kernels without a body that can be launched"
}
cuda_includes() { # as memopt.h: an include gives the declarations, C89 and C++98; compiled by itself it is all
    printf '#include "memopt_cuda.cu"\nint main(void) { return memopt_cuda_status_text(0) == 0; }\n' >"$work/user.c"
    for compiler in "$CC -std=c89" "$CXX -x c++ -std=c++98"; do
        $compiler -Wall -Wextra -Wno-misleading-indentation -pedantic-errors -Werror -I. -c "$work/user.c" -o "$work/user.o" || fail "$compiler: not compiled"
    done
    printf '#define MEMOPT_CUDA_IMPLEMENTATION\n#include "memopt_cuda.cu"\n' >"$work/groups.cpp"
    for group in NUMBERS ACTIVATIONS OPERATORS RANKS MUON; do # each beside the numbers is whole, on the simulator's CUDA
        $CXX -x c++ -std=c++17 -fsyntax-only -Wall -Wextra -Wno-unused-function -Werror -Itests/simulator/include -Itests/simulator -Itests -I. \
            -DMEMOPT_ONLY_NUMBERS "-DMEMOPT_ONLY_$group" "$work/groups.cpp" || fail "MEMOPT_ONLY_$group: not compiled"
    done
    for family in ATTENTION NORM BATCH_NORM CONVERT SCALE F16; do # and without each family
        $CXX -x c++ -std=c++17 -fsyntax-only -Wall -Wextra -Wno-unused-function -Werror -Itests/simulator/include -Itests/simulator -Itests -I. \
            "-DMEMOPT_CUDA_NO_$family" "$work/groups.cpp" || fail "MEMOPT_CUDA_NO_$family: not compiled"
    done
    need_nvcc
    cp "$work/user.c" "$work/user.cu"
    printf '#define MEMOPT_IMPLEMENTATION\n#include "memopt_cuda.cu"\n#define MEMOPT_CUDA_IMPLEMENTATION\n#include "memopt_cuda.cu"\n' >"$work/both.cu"
    while read -r count arguments; do
        # shellcheck disable=SC2086
        "$NVCC" -E -arch=sm_80 -I. $arguments >"$work/said" || fail "nvcc does not read $arguments"
        found=$(grep -c 'norm_forward_kernel(norm_task' "$work/said")
        [ "$found" -eq "$count" ] || fail "$arguments: $found implementations, not $count"
    done <<END
1 memopt_cuda.cu
0 memopt_cuda.cu -DMEMOPT_CUDA_DECLARATIONS
0 $work/user.cu
1 $work/user.cu -DMEMOPT_CUDA_IMPLEMENTATION
1 $work/user.cu -DMEMOPT_CUDA_STATIC
1 $work/both.cu
END
}
cuda_clang() { # kernels and their tests, which only the rows of `make simulator` compile with clang
    need clang++
    clang++ -fsyntax-only -x c++ -std=c++17 -Wall -Wextra -Wshadow -Werror -Itests/simulator/include -Itests/simulator -Itests -I. tests/test_cuda.cu
}
cuda_part() { # the static form compiles the kernels of what a file calls, and no others
    need_nvcc
    "$NVCC" -std=c++17 -arch=compute_90 -I. -Itests -Itests/simulator -ptx tests/test_cuda_part.cu -o "$work/part.ptx" || fail "does not compile"
    found=$(sed -n 's/.*entry _ZN[0-9]*memopt_i_cuda[0-9]*\([a-z0-9_]*_kernel\)I\(\(Li[0-9]*E\)*\)E.*/\1<\2>/p' "$work/part.ptx" | sort | tr '\n' ' ')
    want="optim_begin_kernel<Li0E> optim_by_kernel<Li0E> optim_coded256_kernel<Li0ELi0E> \
optim_coded256_kernel<Li0ELi1E> optim_coded256_kernel<Li0ELi2E> optim_floats_kernel<Li0ELi0E> \
optim_floats_kernel<Li0ELi1E> \
optim_scan_kernel<Li0E> optim_state_kernel<Li0E> "
    [ "$found" = "$want" ] || fail "8-bit AdamW alone: $found"
    [ "$(grep -c '\.entry' "$work/part.ptx")" -eq 9 ] || fail "8-bit AdamW alone has kernels of other names"
    without= # the same, and the one of `memory`, where the file is compiled by itself
    for family in ATTENTION NORM BATCH_NORM CONVERT SCALE F16; do without="$without -DMEMOPT_CUDA_NO_$family"; done
    for only in -DMEMOPT_CUDA_ONLY_ADAMW "-DMEMOPT_CUDA_ONLY_ADAMW -DMEMOPT_ONLY_NUMBERS $without"; do
        # shellcheck disable=SC2086
        "$NVCC" -std=c++17 -arch=compute_90 -Xcicc -O0 -Werror all-warnings $only -I. -ptx memopt_cuda.cu -o "$work/only.ptx" ||
            fail "the whole file with $only: warnings"
    done
    [ "$(grep -c '\.entry' "$work/only.ptx")" -eq 10 ] || fail "8-bit AdamW alone, compiled by itself, has other kernels"
}
cuda_fuses() { # nvcc and ptxas may turn a product and a sum into one operation: no kernel of ours gives them a chance to
    need_nvcc
    for fuse in true false; do
        "$NVCC" -std=c++17 -arch=compute_90 -I. -fmad=$fuse -ptx memopt_cuda.cu -o "$work/$fuse.ptx" || fail "does not compile"
    done
    python3 tests/check_fuses.py "$work/true.ptx" "$work/false.ptx" || fail "nvcc fuses"
    ptxas=$(dirname "$(command -v "$NVCC")")/ptxas # which fuses what nvcc has left apart
    for fuse in true false; do "$ptxas" -arch=sm_90 "$work/$fuse.ptx" -o "$work/$fuse.cubin" || fail "ptxas fails"; done
    python3 tests/count_kernels.py "$work/true.cubin" --fused "$work/false.cubin"
}
cuda_programs() { # what `make cuda` builds, compiled only; ranks by the declarations of the simulator's NCCL
    need_nvcc
    cp tests/simulator/include/nccl.h "$work"
    for source in tests/test_cuda.cu tests/bench/bench_cuda.cu examples/cuda.cu examples/train_gpt.cu; do
        "$NVCC" -std=c++17 -gencode arch=compute_90,code=compute_90 -DTRAIN_GPT_NVTX -DTRAIN_GPT_NCCL -I"$work" -I. -Itests \
            -Itests/simulator -c "$source" -o "$work/x.o" || fail "$source does not compile"
    done
}
fuzz_smoke() { # entry: without libFuzzer, a fixed number of random inputs
    $CC -g1 -O1 -DMEMOPT_STATIC -I. "tests/fuzz/$1.c" tests/fuzz/driver.c -o "$work/fuzz" -lm && "$work/fuzz"
}
fuzz() { # entry seconds [inputs]; 0 seconds: as long as the inputs take
    need clang
    clang -fsanitize=fuzzer "$work/entry.c" -o "$work/entry" 2>/dev/null || skip "no libFuzzer here: make deps"
    clang -g -O1 -DMEMOPT_STATIC -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. "tests/fuzz/$1.c" -o "$work/fuzz" -lm ||
        fail "does not compile"
    mkdir "$work/corpus"
    "$work/fuzz" -max_total_time="$2" -runs="${3:--1}" -max_len=4096 -timeout=25 -artifact_prefix="$work/" "$work/corpus" >"$work/said" 2>&1 && {
        tail -n 1 "$work/said"; return 0; }
    tail -n 60 "$work/said"
    for input in "$work"/crash-* "$work"/timeout-* "$work"/leak-* "$work"/oom-*; do
        [ ! -f "$input" ] || { echo "$input:"; od -A x -t x1z "$input"; }
    done
    return 1
}
measured() { # lines branches: the coverage is at least this many percent
    python3 -c '' 2>/dev/null || skip "no python3 here: make deps"
    need gcc; need gcov
    python3 tests/coverage.py --build "$work" --lines "$1" --branches "$2"
}

"$@"
