#!/bin/sh
# check_size_7b.sh PROGRAM - size_7b with a few tiny layers: bits, bytes, refusals, a run that is killed and goes on. Called by
# `make test`.
# shellcheck disable=SC2086,SC2015
set -u
program=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/memopt.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() { echo "$*"; cat "$work/out" "$work/said"; exit 1; }

tiny="--layers 3 --width 64 --heads 4 --hidden 160 --vocabulary 256 --context 32 --rate 1e-2 --tile 8192 --threads 2"
run() { "$program" --dir "$work" $tiny "$@" >"$work/out" 2>"$work/said"; }
trains() { run --hash "$@" || fail "exit status with $*"; }
refuses() { # text, switches...: exit status 1 and a reason, and no file is left
    text=$1; shift
    run "$@"; [ $? = 1 ] || fail "not refused: $*"
    grep -q "^size_7b: .*$text" "$work/said" || fail "no reason that says \"$text\" with $*"
    [ ! -e "$work/size_7b.tiles" ] || fail "a file is left with $*"
}
bits() { sed -n 's/^step \([0-9]*\)  loss \([^ ]*\) .*/\1 \2/p; s/^weights  CRC-32C //p' "$work/out"; }
field() { sed -n "s/^$1 .*$2 \([0-9]*\) .*/\1/p; s/^$1 .*$2 \([0-9]*\)\$/\1/p" "$work/out"; } # the number behind a word

for type in "" --fp32; do
    trains --steps 3 --in-memory $type; bits >"$work/memory"
    [ "$(wc -l <"$work/memory")" = 4 ] || fail "no 3 losses and a checksum"
    trains --steps 3 $type; bits | cmp - "$work/memory" || fail "other bits on disk $type"
    # elements: embedding 16384, attention 2048 + 12288 + 4096 (a scale of 64 fills a sector), MLP 2048 + 20480 + 10240,
    # head 2048 + 16384; in fp32 sectors are of 1024 elements
    if [ "$type" ]; then weights=$((4 * (16384 + 3 * (1024 + 16384 + 1024 + 30720) + 1024 + 16384))) head=$((4 * 17408))
    else weights=$((2 * (16384 + 3 * (18432 + 32768) + 18432))) head=$((2 * 18432)); fi
    states=$(sed -n 's/^disk .* \([0-9]*\) of states.*/\1/p' "$work/out")
    [ "$(field disk 'bytes:')" = $weights ] || fail "weights are not $weights bytes"
    [ "$(field 'a step' reads)" = $((2 * weights - head + states)) ] || fail "a step reads other bytes"
    [ "$(field 'a step' writes)" = $((weights + states)) ] || fail "a step writes other bytes"
    grep -q "^moved    read $((3 * (2 * weights - head + states))) bytes, written $((3 * (weights + states)));" "$work/out" ||
        fail "other bytes were moved"
    trains --steps 3 --no-atomic $type; bits | cmp - "$work/memory" || fail "other bits with --no-atomic $type"
    [ ! -e "$work/size_7b.tiles" ] || fail "a file is left"
done

# Little memory: layers are computed again, and their weights read again.
long="--context 256 --layers 6 --steps 2"
trains $long --in-memory; bits >"$work/memory"
trains $long; grep -q '^  *from [0-9.]* to [0-9.]* s the first, .* by 3 steps of 2 layers' "$work/out" || fail "nothing was rehearsed"
awk '/^time / { first = $10 } / s the first, from / { fine = $2 <= first && first <= $4 } END { exit !fine }' "$work/out" || fail "the range is beside the time"
grep -q '^again    after [1-9][0-9]* % of the step: [0-9.]* s' "$work/out" || fail "the time is not told again"
reads=$(field 'a step' reads); most=$(sed -n 's/^memory   \([0-9]*\) bytes:.*/\1/p' "$work/out")
run $long --memory 1K && fail "1 KB of memory is enough"
least=$(sed -n 's/.*needs \([0-9.]*\) GB.*/\1/p' "$work/said" | awk '{ printf "%.0f", $1 * 1e9 + 1e5 }')
[ "$least" -lt "$most" ] || fail "the least memory is not below $most: $least"
trains $long --memory "$least"; bits | cmp - "$work/memory" || fail "other bits with $least bytes"
[ "$(field 'a step' reads)" -gt "$reads" ] || fail "nothing was computed again with $least bytes"

large="--vocabulary 2000000000 --tile 100G --memory 100000G"
refuses "of memory: 0.0010 GB are allowed" --memory 1M
refuses "GB free, and .* are needed; --no-atomic halves that" $large
refuses 'GB free, and .* are needed\.$' $large --no-atomic
refuses "GB of memory left, and" --context 8000000000 --memory 900000G
refuses "heads do not divide the width" --heads 3
refuses "must be even" --heads 64 --kv-heads 64
for bad in "--layers 0" "--layers x" "--layers" "--what" "--memory 3T" "--rate 2" "--in-memory --keep"; do
    "$program" $bad >"$work/out" 2>"$work/said"; [ $? = 2 ] || fail "exit status with $bad"
done
"$program" --help >"$work/out" || fail "--help"
run --dry-run || fail "--dry-run"
grep -q "^the disk and a layer of this size are measured" "$work/said" || fail "measured without a word"
grep -q '^a step   reads' "$work/out" && grep -q '^time ' "$work/out" || fail "--dry-run tells too little"
! grep -q '^step' "$work/out" || fail "--dry-run trains"
grep -q '^  *from [0-9.]* to [0-9.]* s the first' "$work/out" && fail "three layers are rehearsed"
[ ! -e "$work/size_7b.rates" ] || fail "the rehearsal's file is left"
grep -q '^choices .* nothing on the disk; 0.000 GB moved' "$work/out" && grep -q 'weights and states on the disk; ' "$work/out" ||
    fail "--dry-run tells no choices"

# A run that is kept, and one that is killed, go on with the bits of one.
trains --steps 6; bits | tail -n 1 >"$work/one"
run --steps 2 --keep || fail "--keep"
trains --steps 4 --keep; bits | tail -n 1 | cmp - "$work/one" || fail "other bits after --keep"
rm "$work/size_7b.tiles"
: >"$work/out" # of the run before, until this one begins
"$program" --dir "$work" $tiny --steps 100000 --keep >"$work/out" 2>"$work/said" & pid=$!
until [ "$(grep -c '^step' "$work/out")" -ge 3 ] || ! kill -0 $pid; do sleep 0.05; done
kill -9 $pid; wait $pid 2>"$work/said"
trains --steps 1 --keep
step=$(sed -n 's/^step \([0-9]*\) .*/\1/p' "$work/out"); bits >"$work/killed"
rm "$work/size_7b.tiles"
[ "$step" -ge 4 ] || fail "it did not go on: step $step"
trains --steps "$step"; bits | tail -n 2 | cmp - "$work/killed" || fail "other bits after a kill at step $step"

# Two runs in one directory disturb nobody, and however one ends, nothing is left of what it was not told to keep.
trains --steps 3; bits >"$work/one"
: >"$work/out"
"$program" --dir "$work" $tiny --steps 100000 >"$work/first" 2>"$work/said" & pid=$!
until [ "$(grep -c '^step' "$work/first")" -ge 1 ] || ! kill -0 $pid; do sleep 0.05; done
echo kept >"$work/size_7b.tiles"
trains --steps 3; bits | cmp - "$work/one" || fail "other bits beside another run"
kill -0 $pid || fail "a second run ends the first"
kill -9 $pid; wait $pid 2>/dev/null
[ "$(cat "$work/size_7b.tiles")" = kept ] || fail "a file that was there is gone"
rm "$work/size_7b.tiles"
[ -z "$(ls "$work" | grep size_7b)" ] || fail "a kill leaves a file"

# A directory with a link where the file goes; a kept file that another run has open.
echo mine >"$work/mine"
ln -s "$work/mine" "$work/size_7b.tiles"
run --steps 1 --keep && fail "a link is followed"
grep -q "is a link" "$work/said" || fail "no reason"
[ "$(cat "$work/mine")" = mine ] || fail "the link's target was written"
rm "$work/size_7b.tiles"
"$program" --dir "$work" $tiny --steps 100000 --keep >"$work/first" 2>"$work/said" & pid=$!
until [ "$(grep -c '^step' "$work/first")" -ge 1 ] || ! kill -0 $pid; do sleep 0.05; done
run --steps 1 --keep && fail "two runs of one file"
grep -q "is open already: another process or store has it" "$work/said" || fail "no reason"
kill -9 $pid; wait $pid 2>/dev/null
rm "$work/size_7b.tiles"

# A dry run that is stopped leaves a file that is not its own.
: >"$work/said"
echo kept >"$work/size_7b.tiles"
"$program" --dir "$work" --dry-run --layers 2 --width 2048 --vocabulary 256 >"$work/out" 2>"$work/said" & pid=$!
until [ -s "$work/said" ] || ! kill -0 $pid; do sleep 0.05; done
kill -TERM $pid; wait $pid 2>/dev/null
[ $? = 143 ] || fail "SIGTERM does not end a dry run as a signal does"
[ "$(cat "$work/size_7b.tiles")" = kept ] || fail "SIGTERM to a dry run takes a file that is not its own"
rm "$work/size_7b.tiles"
