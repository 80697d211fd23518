#!/bin/sh
# run.sh - memopt beside torch (fused AdamW on the CPU) and bitsandbytes, taking turns on the same arrays, in one run.
#
# Installs both from PyPI into an environment in a temporary folder and removes it afterwards: about 3 GB to download
# and 6 GB of disk where only PyPI's torch can be had, which brings CUDA along; a tenth of it where PyTorch's own index
# can be reached. Takes five minutes, and the whole step of gpt.py a quarter of an hour and 8 GB of memory more. What is missing is said, and is no failure.
#   PEERS_VENV=DIR   use the environment in DIR; made there when it is not there yet, and kept
#   PEERS_ONLY=ranks one of peers, fused, attention, gpt, ranks (two ranks, torch's FSDP2 beside: half an hour)
#   PEERS_MI="16 64" sizes, in 2^20 elements      PEERS_THREADS="1 2"      PEERS_ROUNDS=7
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
skip() { echo "peers: skipped: $1"; exit 0; }
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
if ! "$venv/bin/python" -c 'import torch, bitsandbytes' 2>/dev/null; then
    parent=$(dirname "$venv"); mkdir -p "$parent" || exit 1
    [ "$(df -Pk "$parent" | awk 'NR == 2 { print int($4 / 1048576) }')" -ge 8 ] || skip "less than 8 GiB free in $parent"
    python3 -m venv "$venv" || skip "python3 -m venv does not work here (Debian: apt-get install python3-venv)"
    pip() { "$venv/bin/python" -m pip install --quiet --no-compile --no-cache-dir --retries 1 "$@" >>"$work/pip.log" 2>&1; }
    echo "peers: installing torch and bitsandbytes into $venv" >&2
    [ "$(uname -s)" = Linux ] && pip --timeout 5 --retries 0 --index-url https://download.pytorch.org/whl/cpu torch
    pip --timeout 30 torch bitsandbytes numpy ||
        skip "PyPI cannot be reached, or has no torch and bitsandbytes for this machine: $(grep -v '^ ' "$work/pip.log" | tail -n 1)"
    "$venv/bin/python" -c 'import torch, bitsandbytes' 2>"$work/import.log" ||
        skip "what PyPI has does not start on this machine: $(tail -n 1 "$work/import.log")"
fi
$compiler -O2 -fPIC -shared -DMEMOPT_PTHREADS -pthread -I"$root" "$here/glue.c" -o "$work/glue.so" -lm || exit 1
$compiler -O2 -I"$root" "$root/tests/quant_tool.c" -o "$work/quant_tool" -lm || exit 1
peer() { # name, arguments
    [ -z "${PEERS_ONLY:-}" ] || [ "$PEERS_ONLY" = "$1" ] || return 0
    name=$1; shift
    "$venv/bin/python" "$here/$name.py" "$@"
}
${MAKE:-make} -C "$root" -s build/train_gpt_mpi >/dev/null 2>&1 # where there is no MPI, ranks.py says so
peer peers "$work/glue.so" "$work/quant_tool" && peer fused "$work/glue.so" && peer attention "$work/glue.so" &&
    peer gpt "$root/build/train_gpt" && peer ranks "$root/build/train_gpt" "$root/build/train_gpt_mpi"
