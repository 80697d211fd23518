#!/bin/sh
# deps.sh - install what the test matrix can use, on Debian and its relatives. Needs root or sudo.
# Each group is installed by itself, so that a package that is missing or broken does not keep the others out.
# Nothing here is needed to use memopt.h, or for `make test`: what is missing is skipped there, with the reason.
set -u
if ! command -v apt-get >/dev/null 2>&1; then
    echo "make deps knows apt-get only (Debian, Ubuntu); on this system install what 'make test' and 'make test-all' name"
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "make deps needs root: run it as root, or install sudo"; exit 1; }
    as_root=sudo
fi
# The update and every install together must end, also where the network hangs.
apt() { $as_root env DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq -o Acquire::Retries=2 -o Acquire::http::Timeout=30 \
    -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=60 "$@" </dev/null; }
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
apt update >"$log" 2>&1 || { echo "apt-get update failed:"; tail -n 3 "$log"; }

gcc_version=$(gcc -dumpversion 2>/dev/null | cut -d. -f1)
failed=0
group() { # group "what for" package...
    what=$1; shift
    missing=
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
    done
    if [ -z "$missing" ]; then echo "there      $what: $*"
    elif apt install -y --no-install-recommends "$@" >"$log" 2>&1; then echo "installed  $what:$missing"
    else
        failed=$((failed + 1))
        echo "FAILED     $what: $*"; grep -E '^E:|Depends|Breaks|Conflicts' "$log" | tail -n 4 | sed 's/^/           /'
    fi
}
group "the compiler"                gcc g++ libc6-dev
group "layers and coverage"         python3
group "clang, MSan, fuzzers"        clang libclang-rt-dev
group "OpenMP for clang"            libomp-dev
group "valgrind"                    valgrind
group "clang-tidy"                  clang-tidy
group "cppcheck"                    cppcheck
# Not gcc-multilib: that package refuses to live beside the cross compilers.
group "32 bit (-m32)"               "gcc-${gcc_version:-12}-multilib" "g++-${gcc_version:-12}-multilib"
group "other processors, to run"    qemu-user
group "aarch64"                     gcc-aarch64-linux-gnu libc6-dev-arm64-cross
group "s390x (big-endian)"          gcc-s390x-linux-gnu libc6-dev-s390x-cross
group "Windows, to compile"         gcc-mingw-w64-x86-64
group "Windows, to run"             wine64
group "mimalloc, a peer in a bench" libmimalloc-dev
group "a BLAS, for train_gpt"       libopenblas-dev pkg-config
group "MPI"                         openmpi-bin libopenmpi-dev
group "a browser, for the page"     chromium
# The disassembler of CUDA is a package of its own where the toolkit came by pip.
if command -v "${NVCC:-nvcc}" >/dev/null 2>&1 || [ -x /usr/local/cuda/bin/nvcc ]; then
    what="machine code of CUDA"
    if python3 tests/count_kernels.py --tool >/dev/null 2>&1; then echo "there      $what: nvdisasm"
    elif python3 -m pip install --quiet nvidia-cuda-nvdisasm >"$log" 2>&1; then echo "installed  $what: nvidia-cuda-nvdisasm"
    else failed=$((failed + 1)); echo "FAILED     $what: nvidia-cuda-nvdisasm"; tail -n 2 "$log" | sed 's/^/           /'; fi
fi
[ $failed = 0 ] || { echo "$failed groups could not be installed; what needs them will be skipped"; exit 1; }
