#!/bin/sh
# run.sh - memopt beside torch, OpenBLAS and bitsandbytes on the CPU, taking turns, in one run.
#
# First gpt.py: a whole step of GPT-2 124M and the products of bench_gemm, written to tests/bench/results/peers-PROCESSOR.md: ten
# minutes and 8 GB of memory. Then the rest, printed: peers.py (AdamW and conversions, with bitsandbytes) takes five minutes more.
# Installs them from PyPI into an environment in a temporary folder and removes it afterwards: about 3 GB to download
# and 6 GB of disk where only PyPI's torch can be had, which brings CUDA along; a tenth of it where PyTorch's own index
# can be reached. What is missing is said, and is no failure: the page is written, with the reason in its rows.
#   PEERS_VENV=DIR   use the environment in DIR; made there when it is not there yet, and kept
#   PEERS_ONLY=ranks one of peers, fused, attention, gpt, ranks (two ranks, torch's FSDP2 beside: half an hour)
#   PEERS_MI="16 64" sizes, in 2^20 elements      PEERS_THREADS="1 2"      PEERS_ROUNDS=7
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
skip() { # the page without torch
    echo "peers: skipped: $1"
    case ${PEERS_ONLY:-gpt} in gpt) PEERS_MISSING=$1 python3 "$here/gpt.py" "$root/build/train_gpt" "$root/build/bench_gemm" "$root/tests/bench/results" ;; esac
    exit 0
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

python3 -c 'import venv, ensurepip' 2>/dev/null || skip "no python3 with venv here (Debian: apt-get install python3-venv)"
for compiler in "${CC:-}" cc gcc clang; do
    [ -n "$compiler" ] && $compiler --version >/dev/null 2>&1 && break
    compiler=
done
[ -n "$compiler" ] || skip "no C compiler here"

venv=${PEERS_VENV:-$work/venv}
has() { "$venv/bin/python" -c "import $1" 2>"$work/import.log"; }
if ! has 'torch, numpy'; then
    parent=$(dirname "$venv"); mkdir -p "$parent" || exit 1
    [ "$(df -Pk "$parent" | awk 'NR == 2 { print int($4 / 1048576) }')" -ge 8 ] || skip "less than 8 GiB free in $parent"
    python3 -m venv "$venv" || skip "python3 -m venv does not work here (Debian: apt-get install python3-venv)"
    pip() { "$venv/bin/python" -m pip install --quiet --no-compile --no-cache-dir --retries 1 "$@" >>"$work/pip.log" 2>&1; }
    echo "peers: installing torch and bitsandbytes into $venv" >&2
    [ "$(uname -s)" = Linux ] && pip --timeout 5 --retries 0 --index-url https://download.pytorch.org/whl/cpu torch
    pip --timeout 30 torch numpy || skip "PyPI cannot be reached, or has no torch for this machine: $(grep -v '^ ' "$work/pip.log" | tail -n 1)"
    pip --timeout 30 bitsandbytes || echo "peers: no bitsandbytes: $(grep -v '^ ' "$work/pip.log" | tail -n 1)" >&2
    has 'torch, numpy' || skip "what PyPI has does not start on this machine: $(tail -n 1 "$work/import.log")"
fi
peer() { # name, arguments
    [ -z "${PEERS_ONLY:-}" ] || [ "$PEERS_ONLY" = "$1" ] || return 0
    name=$1; shift
    "$venv/bin/python" "$here/$name.py" "$@"
}
peer gpt "$root/build/train_gpt" "$root/build/bench_gemm" "$root/tests/bench/results" || exit 1
[ "${PEERS_ONLY:-}" != gpt ] || exit 0
$compiler -O2 -fPIC -shared -DMEMOPT_PTHREADS -pthread -I"$root" "$here/glue.c" -o "$work/glue.so" -lm || exit 1
$compiler -O2 -I"$root" "$root/tests/quant_tool.c" -o "$work/quant_tool" -lm || exit 1
${MAKE:-make} -C "$root" -s build/train_gpt_mpi >/dev/null 2>&1 # where there is no MPI, ranks.py says so
! has bitsandbytes || peer peers "$work/glue.so" "$work/quant_tool" || exit 1
peer fused "$work/glue.so" && peer attention "$work/glue.so" && peer ranks "$root/build/train_gpt" "$root/build/train_gpt_mpi"
