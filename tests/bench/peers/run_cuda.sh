#!/bin/sh
# run_cuda.sh - train_gpt.cu beside torch on the card of this machine; the table goes to tests/bench/results/cuda-peers.md.
# Needs nvcc, a card, and a python3 whose torch sees it (PYTHON=...). What is missing is said, and is no failure.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=${PYTHON:-python3}
skip() { echo "peers-cuda: skipped: $1"; exit 0; }

nvidia-smi -L 2>/dev/null | grep -q GPU || skip "no card here (nvidia-smi -L finds none): run it on a machine that has one"
command -v "${NVCC:-nvcc}" >/dev/null 2>&1 || skip "no nvcc here: install the CUDA Toolkit, or set NVCC"
"$python" -c 'import torch' 2>/dev/null || skip "$python has no torch: pip install torch, in an environment of its own, and set PYTHON to it"
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || skip "torch sees no card: pip install one for CUDA"
${MAKE:-make} -C "$root" -s build/train_gpt_cuda || exit 1
exec "$python" "$here/cuda_gpt.py" "$root/build/train_gpt_cuda" "$root/tests/bench/results/cuda-peers.md"
