#!/bin/sh
# card.sh [--rehearse] OUT [PROGRAMS] - all that is asked of a card, on a machine that has one. Nothing is compiled there: `make card`
# has put the programs into build/card (PROGRAMS: elsewhere). `python3 tests/card_report.py OUT` makes a page of what came back.
#
# What matters most comes first. Each part has a limit and a file of its own in OUT, eight in all, and says what it does: a line
# `$ name: command` before, `= name: verdict, seconds` behind it. The whole ends after SECONDS_OF_ALL (420). What is missing is
# SKIP, with the reason. Attention comes in two variants, by mma.sync and by wgmma. Exit status 1: something failed or was stopped.
#   PYTHON=python3   whose torch is timed beside
#   --rehearse       tiny sizes and long limits, for the simulator's programs: the figures mean nothing
set -u
cd "$(dirname "$0")/.." || exit 1
rehearse=
[ "${1:-}" != --rehearse ] || { rehearse=1; shift; }
[ $# -ge 1 ] || { echo "card.sh [--rehearse] OUT [PROGRAMS]"; exit 2; }
out=$1 programs=${2:-build/card} python=${PYTHON:-python3}
mkdir -p "$out" || exit 1
slower=1
[ -z "$rehearse" ] || slower=20
end=$(($(date +%s) + ${SECONDS_OF_ALL:-$((slower * 420))}))
wrong=0 file=

# cuBLASLt lies with the CUDA Toolkit, or where pip put it beside torch.
pip=$("$python" -c 'import glob, os, sysconfig
print(":".join(glob.glob(os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "*", "lib"))))' 2>/dev/null)
libraries=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64:$pip

say() { echo "= $1: $2"; [ -z "$file" ] || echo "= $1: $2" >>"$file"; }
part() { file=$out/$1.txt; : >"$file"; }

# run NAME LIMIT command...: within its limit, and within the whole. What it writes to OUT/json becomes a line of the file.
run() {
    name=$1 limit=$((slower * $2))
    shift 2
    begin=$(date +%s)
    [ "$limit" -lt $((end - begin)) ] || limit=$((end - begin))
    [ "$limit" -gt 0 ] || { say "$name" "SKIP: no time left for it"; return; }
    echo "\$ $name: $*" >>"$file"
    timeout -k 5 "$limit" "$@" >>"$file" 2>&1 </dev/null
    status=$?
    echo >>"$file"
    [ ! -f "$out/json" ] || { tr -d '\n' <"$out/json"; echo; } >>"$file"
    rm -f "$out/json"
    seconds=$(($(date +%s) - begin))
    case $status in
    0) say "$name" "ok, $seconds s" ;;
    124 | 137) say "$name" "stopped after $limit s"; wrong=1 ;;
    *) say "$name" "FAILED with status $status, $seconds s"; wrong=1 ;;
    esac
}

# run one of our programs: ours NAME LIMIT PROGRAM arguments...
ours() {
    name=$1 limit=$2 program=$3
    shift 3
    if [ ! -x "$programs/$program" ]; then say "$name" "SKIP: no $programs/$program: make card"
    elif [ -n "$no_card" ]; then say "$name" "SKIP: $no_card"
    else # shellcheck disable=SC2086
        run "$name" "$limit" env LD_LIBRARY_PATH="$libraries" $before "$programs/$program" "$@"
    fi
}

# ---- the machine ----
no_card='' before=''
if [ -n "$rehearse" ]; then
    tiny=--tiny steps=3 model="--layers 1 --width 32 --heads 1 --context 32 --batch 1"
    sections=number attention_sections=number checked=number
    export PEERS_GPT="1 32 1 32 256 1"
else
    tiny='' steps=31 model="--layers 12 --width 768 --heads 12 --context 1024 --vocab 50257 --batch 8"
    sections="attention optim scale norm softmax gemm head layer number quant fp8 codec fused muon batchnorm shard memory"
    attention_sections=attention checked="optim scale norm softmax"
    export PEERS_GPT="12 768 12 1024 50257 8"
fi
export PEERS_GPT_STEPS=$((steps - 1)) PEERS_GPT_ROUNDS=1
part 0-machine
# shellcheck disable=SC2086
ours machine 30 bench_mma $tiny none
no_card=$(sed -n 's/^SKIP: //p' "$file")
date "+%Y-%m-%d" >>"$file"
command -v nvidia-smi >/dev/null 2>&1 &&
    nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader >>"$file" 2>&1

# ---- 1: do they compute what they should? ----
part 1-tests
# shellcheck disable=SC2086
ours "tests of all sections, mma" 100 test_mma $sections
# shellcheck disable=SC2086
ours "tests of attention, wgmma" 30 test_wgmma $attention_sections

# ---- 2: attention; 3: optimizers, norms of gradients, layer norms, cross-entropy ----
part 2-attention
for variant in mma wgmma; do
    # shellcheck disable=SC2086
    ours "attention, $variant" 25 bench_$variant --json $tiny attention
done
part 3-kernels
# shellcheck disable=SC2086
ours kernels 60 bench_mma --json $tiny adamw_f32 adamw_8bit adamw_bf16 lion sgd gradients layer_norm cross_entropy

# ---- 4: a whole training step ----
part 4-train
[ -n "$rehearse" ] && text=examples/text.txt || text=memopt.h
train() { # name, program, switches
    name=$1 program=$2
    shift 2
    # shellcheck disable=SC2086
    ours "$name" 20 "$program" $model --steps $steps --lr 6e-4 --data "$text" --quiet --json "$out/json" "$@"
}
for variant in mma wgmma; do
    train "split weights, $variant" train_gpt_$variant --head chunk:2048 --weights split
    train "bf16, 8-bit Adam, checkpoints, $variant" train_gpt_$variant --head chunk:2048 --weights bf16 --optimizer adamw8 \
        --keep overhead:33 --fuse-step
done
train "split weights, a graph, wgmma" train_gpt_wgmma --head chunk:2048 --weights split --graph # the losses of the first of wgmma

# ---- 5: torch ----
part 5-peers
if [ -n "$no_card" ]; then why=$no_card
else why=$("$python" -c 'import sys
try:
    import torch
    torch.compile
except Exception:
    print("no torch here, or one without compile: set PYTHON to one that has it")
else:
    if not torch.cuda.is_available():
        print("torch sees no card")' 2>&1); fi
for row in "torch, fp32 masters, autocast, compiled" "torch, bf16 weights alone, compiled"; do
    if [ -n "$why" ]; then say "$row" "SKIP: $why"
    else run "$row" 70 "$python" tests/bench/peers/cuda_gpt.py none /dev/null "$row"; fi
done

# ---- 6: seconds of every kernel of two steps ----
part 6-profile
if [ -n "$no_card" ]; then say profile "SKIP: $no_card"
elif ! command -v ncu >/dev/null 2>&1; then say profile "SKIP: no ncu here (Nsight Compute)"
else
    before="ncu --clock-control none --csv --print-units base --print-kernel-base function --metrics gpu__time_duration.sum"
    # shellcheck disable=SC2086
    ours profile 40 train_gpt_wgmma $model --steps 2 --lr 6e-4 --data "$text" --quiet --head chunk:2048 --weights split
    before=''
fi

# ---- 7: what is left of the time: errors of memory ----
part 7-sanitizer
if [ -n "$no_card" ]; then say sanitizer "SKIP: $no_card"
elif ! command -v compute-sanitizer >/dev/null 2>&1; then say sanitizer "SKIP: no compute-sanitizer here"
else
    before="compute-sanitizer --tool memcheck --error-exitcode 9"
    # shellcheck disable=SC2086
    ours "memcheck of attention, wgmma" 60 test_wgmma $attention_sections
    # shellcheck disable=SC2086
    ours "memcheck of optimizers and norms, mma" 420 test_mma $checked
fi
exit $wrong
