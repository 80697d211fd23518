#!/bin/sh
# key.sh tools | files COMMAND | key TOOLS COMMAND | program TOOLS FILE - what the result of a check depends on; in the
# project's root.
#
# key: a hash of the command, of TOOLS, which is what `key.sh tools` printed (compilers, other tools, flags, the machine),
# and of each file that `key.sh files` names. With the same key a check that passed need not run again (see run.sh).
# A command that is not known below depends on every file of the project.
set -u
hash() { if command -v sha256sum >/dev/null 2>&1; then sha256sum "$@"; else cksum "$@"; fi; }
one() { hash | sed 's/ .*//'; }

tools() {
    for tool in "${CC:-cc}" "${CXX:-c++}" gcc g++ clang clang++ "${NVCC:-nvcc}" s390x-linux-gnu-gcc aarch64-linux-gnu-gcc make \
        x86_64-w64-mingw32-gcc qemu-s390x qemu-aarch64 wine64 valgrind clang-tidy cppcheck python3 chromium; do
        # shellcheck disable=SC2086
        ! command -v "${tool%% *}" >/dev/null 2>&1 || { echo "$tool"; WINEDEBUG=-all $tool --version </dev/null 2>&1; }
    done
    uname -srm
    grep -m 2 -E '^(model name|flags)' /proc/cpuinfo 2>/dev/null
    # What was set on make's command line, but for what only says how to run; and what comes from the environment.
    printf '%s\n' "${OVERRIDES:-}" | tr ' ' '\n' | grep -v -E '^((FRESH|JOBS|LIMIT)=|$)'
    for name in CC CXX CFLAGS LDFLAGS WERROR WARN WARN_C NVCC BLAS CUDA_ARCH SAMPLE SECTION; do
        eval "echo \"$name=\${$name:-}\""
    done
}

files() { # command: its files, one a line
    {
        ls README.md memopt.h memopt_cuda.cu Makefile .clang-tidy 2>/dev/null
        # Not what prints the tables: it shows in their commands.
        find tests examples -type f ! -name '*.pyc' ! -name '*.md' ! -path tests/suite.sh
    } | case ${1#CC=[a-z]* } in
    "sh tests/check.sh analysed "* | "sh tests/check.sh tidy "* | "sh tests/check.sh check_cpp "*) # the header by itself
        grep -E '^(memopt\.h|\.clang-tidy|tests/check\.sh)$' ;;
    "sh tests/check.sh combined "* | "sh tests/check.sh memcheck" | "sh tests/check.sh threads "* | "sh tests/check.sh fuzz "* | \
    "sh tests/check.sh measured "* | "sh tests/check.sh bench "* | "sh tests/check.sh everything "* | "sh tests/check.sh gpt "* | \
    "sh tests/check.sh exhaustive "* | "sh tests/check.sh big_endian "*) # programs for the CPU
        grep -v -E '\.cu$|^README\.md$|^tests/(run|key)\.sh$|^tests/simulator/|^tests/mutants' ;;
    "sh tests/check.sh simulated "* | "sh tests/check.sh cuda"*) # the kernels, and the header they are compared with
        grep -v -E '\.c$|^README\.md$|^tests/(run|key)\.sh$|^tests/mutants|\.py$|\.txt$|^tests/check_gpt\.sh$'
        printf 'tests/%s\n' check_ptxas.py check_fuses.py check_flight.py count_kernels.py kernels.txt kernels_90a.txt ;;
    *" mutants" | *" mutants "*) grep -v -E '^README\.md$|^examples/|^tests/(run|key)\.sh$|^tests/(bench|fuzz)/' ;;
    *) cat ;;
    esac | sort
}

case $1 in
tools) tools | one ;;
files) files "$2" ;;
key) { echo "$2"; echo "$3"; files "$3" | xargs sh -c 'exec "$0" "$@"' "$(command -v sha256sum || command -v cksum)"; } | one ;;
program) { echo "$2"; cat "$3"; } | one ;;
*) echo "key.sh tools|files|key|program" >&2; exit 1 ;;
esac
