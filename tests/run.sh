#!/bin/sh
# run.sh FOLDER < TABLE - run a table of checks, a line of verdict each, and end with the totals line.
#
# A line of the table is `name | command`; the command runs under sh in the current folder, its output is kept in FOLDER.
# Exit status 0: passed. 77: skipped, and the last line of the output says why. Anything else: failed, output shown.
# When the output has a totals line of its own (`N passed, N failed, N skipped`), its numbers are added to the totals;
# without one the check counts as one. JOBS commands run at a time; one that needs more than LIMIT seconds has failed. With
# UNTIL=SECONDS (of the clock, as `date +%s` tells it) what would begin after that is skipped.
#
# With KEEP=FOLDER2 what passed is noted there under its key (see key.sh): a check with the same key is not run again, but
# counted with the numbers it had. Failures and skips are not noted. FRESH=1: run all, and note them anew.
# FOLDER/summary.md is the table of verdicts and times (by the clock, and of all processors), with the machine, the compilers and the commit of each row.
set -u
totals='^[0-9][0-9]* passed, [0-9][0-9]* failed, [0-9][0-9]* skipped$'

command -v timeout >/dev/null 2>&1 || timeout() { shift; "$@"; } # without it nothing is stopped

shorten() { # the beginning tells what does not compile, the end what went wrong in a run
    [ "$(wc -l <"$1")" -gt 60 ] || { cat "$1"; return; }
    head -n 20 "$1"; echo "... all of it: $1 ..."; tail -n 30 "$1"
}

one() { # one FOLDER NUMBER: run line NUMBER of the table
    folder=$1 number=$2 log=$1/$2.log
    line=$(sed -n "${number}p" "$folder/table")
    name=${line%% | *} command=${line#* | }
    [ -z "$KEEP" ] || key=$(sh tests/key.sh key "$TOOLS_KEY" "$command")
    begin=$(date +%s)
    if [ "$begin" -ge "${UNTIL:-9999999999}" ]; then
        echo "no time left for it" >"$log"; status=77
    else # in the background, with a trap, so that an interrupt ends it too: timeout has a process group of its own
        timeout "$LIMIT" sh -c "$command" >"$log" 2>&1 </dev/null &
        child=$!
        trap 'kill $child 2>/dev/null; exit 255' INT TERM
        wait $child; status=$?
    fi
    times >"$folder/$number.times" # of what ended: the second line
    now=$(date +%s)
    [ $status = 124 ] && echo "stopped: it needed more than $LIMIT s" >>"$log"

    own=$(grep -e "$totals" "$log" | tail -n 1)
    # shellcheck disable=SC2086
    set -- ${own:-0 passed, 0 failed, 0 skipped}
    passed=$1 failed=$3 skipped=$5
    if [ $status = 77 ]; then verdict=skipped passed=0 failed=0 skipped=1
    elif [ $status != 0 ] || [ "$failed" != 0 ]; then verdict=FAILED; [ "$failed" != 0 ] || failed=1
    else verdict=ok; [ -n "$own" ] || passed=1
    fi
    seconds=$((now - begin)) cpu=$(awk -F '[ms ]+' 'NR == 2 { printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }' "$folder/$number.times") today=$(date +%Y-%m-%d)
    echo "$passed $failed $skipped|$verdict|$seconds|$cpu|$today|$COMMIT|$name" >"$folder/$number.result"
    # Only if nobody has changed its sources meanwhile.
    if [ -n "$KEEP" ] && [ $verdict = ok ] && [ "$key" = "$(sh tests/key.sh key "$TOOLS_KEY" "$command")" ]; then
        cp "$log" "$KEEP/$key.log" && cp "$folder/$number.result" "$KEEP/$key.new" && mv "$KEEP/$key.new" "$KEEP/$key"
    fi

    ready=$(ls "$folder" | grep -c 'result$') all=$(wc -l <"$folder/table") kept=$(cat "$folder/kept") left=
    remaining=$(( (now - $(cat "$folder/start")) * (all - ready) / (ready - kept) ))
    [ $remaining -lt 30 ] || left=", about $(( (remaining + 59) / 60 )) min left"
    {
        printf '[%d/%d] %-8s%s (%s%d s%s)\n' "$ready" "$all" "$verdict" "$name" "${own:+$own, }" $seconds "$left"
        case $verdict in
        ok) grep '^skipped ' "$log" | sed 's/^/        /' ;;
        skipped) tail -n 1 "$log" | sed 's/^/        /' ;;
        FAILED) echo "        $command"; shorten "$log" | sed 's/^/        | /' ;;
        esac
    } >"$folder/$number.said"
    cat "$folder/$number.said" # in one piece, so that lines of two jobs do not mix
}

kept() { # kept FOLDER NUMBER: is line NUMBER one that passed before? Then that is its result
    folder=$1 number=$2
    line=$(sed -n "${number}p" "$folder/table")
    key=$(sh tests/key.sh key "$TOOLS_KEY" "${line#* | }")
    [ -f "$KEEP/$key" ] || return 1
    cp "$KEEP/$key" "$folder/$number.result"; cp "$KEEP/$key.log" "$folder/$number.log"
    IFS='|' read -r _ _ seconds _ date _ <"$KEEP/$key"
    own=$(grep -e "$totals" "$folder/$number.log" | tail -n 1)
    echo "        kept    ${line%% | *} (${own:+$own, }passed on $date in $seconds s)"
}

summary() { # summary FOLDER TOTALS: in Markdown
    echo "$2; $(date +%Y-%m-%d), commit $COMMIT"
    echo
    model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
    echo "Machine: $(uname -srm), ${model:-processor not known}, $(nproc 2>/dev/null || echo '?') cores; $JOBS checks at a time."
    for tool in gcc clang "${NVCC:-nvcc}" valgrind qemu-s390x; do
        # shellcheck disable=SC2086
        ! command -v $tool >/dev/null 2>&1 || echo "$(basename "$tool"): $($tool --version 2>/dev/null | grep -m 1 -i -E 'version|release|[0-9]\.[0-9]')."
    done
    printf '\n| check | result | passed | failed | skipped | s | CPU s | on | commit |\n|---|---|--:|--:|--:|--:|--:|---|---|\n'
    for number in $(awk '{ print NR }' "$1/table"); do
        if [ ! -f "$1/$number.result" ]; then echo "| $(sed -n "${number}p" "$1/table" | sed 's/ | .*//') | not run | | | | | | | |"; continue; fi
        IFS='|' read -r numbers verdict seconds cpu date commit name <"$1/$number.result"
        # shellcheck disable=SC2086
        set -- "$1" $numbers
        echo "| $name | $verdict | $2 | $3 | $4 | $seconds | $cpu | $date | $commit |"
    done
}

if [ "$1" = --one ]; then one "$2" "$3"; exit 0; fi

# The command line variables of the make above are in the environment; its job server is not for these jobs.
case ${MAKEFLAGS:-} in *'-- '*) OVERRIDES=${MAKEFLAGS#*-- } ;; *=*) OVERRIDES=$MAKEFLAGS ;; *) OVERRIDES= ;; esac
export OVERRIDES
unset MAKEFLAGS MFLAGS MAKELEVEL
LIMIT=${LIMIT:-600} KEEP=${KEEP:-} FRESH=${FRESH:-} JOBS=${JOBS:-2}
COMMIT=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || COMMIT="$COMMIT, changed"
TOOLS_KEY=
[ -z "$KEEP" ] || TOOLS_KEY=$(sh tests/key.sh tools) || exit 1
export LIMIT KEEP COMMIT TOOLS_KEY
folder=$1
rm -rf "$folder" && mkdir -p "$folder" ${KEEP:+"$KEEP"} || exit 1
[ -z "$FRESH" ] || [ -z "$KEEP" ] || rm -f "$KEEP"/program-* # of check.sh
cat >"$folder/table"
date +%s >"$folder/start"
numbers=$(awk '{ print NR }' "$folder/table") left=
for number in $numbers; do
    if [ -n "$KEEP" ] && [ -z "$FRESH" ] && kept "$folder" "$number"; then :; else left="$left $number"; fi
done
find "$folder" -name '*.result' | wc -l >"$folder/kept"
# shellcheck disable=SC2086
[ -z "$left" ] || printf '%s\n' $left | xargs -n 1 -P "$JOBS" sh "$0" --one "$folder"
said=$(for number in $numbers; do
    cat "$folder/$number.result" 2>/dev/null || echo "0 1 0" # interrupted
done | awk '{ p += $1; f += $2; s += $3 } END { print p + 0 " passed, " f + 0 " failed, " s + 0 " skipped" }')
summary "$folder" "$said" >"$folder/summary.md"
for number in $(awk "{ print NR }" "$folder/table"); do # once more at the end, where one looks
    grep -s '|FAILED|' "$folder/$number.result" >/dev/null || continue
    echo "FAILED  $(sed -n "${number}p" "$folder/table"), all of it in $folder/$number.log:"
    tail -n 8 "$folder/$number.log" | cut -c 1-240 | sed 's/^/        | /'
done
[ "$(cat "$folder/kept")" -eq 0 ] || echo "$(cat "$folder/kept" | tr -d ' ') of $(wc -l <"$folder/table" | tr -d ' ') checks passed before, on the same sources, and were not run"
echo "$said"
case $said in "0 passed"*) exit 1 ;; *", 0 failed,"*) exit 0 ;; *) exit 1 ;; esac
