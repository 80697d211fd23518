#!/bin/sh
# run.sh FOLDER < TABLE - run a table of checks, a line of verdict each, and end with the totals line.
#
# A line of the table is `name | command`; the command runs under sh in the current folder, its output is kept in FOLDER.
# Exit status 0: passed. 77: skipped, and the last line of the output says why. Anything else: failed, output shown.
# When the output has a totals line of its own (`N passed, N failed, N skipped`), its numbers are added to the totals;
# without one the check counts as one. JOBS commands run at a time; one that needs more than LIMIT seconds has failed.
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
    begin=$(date +%s)
    # In the background, with a trap, so that an interrupt ends it too: timeout has a process group of its own.
    timeout "$LIMIT" sh -c "$command" >"$log" 2>&1 </dev/null &
    child=$!
    trap 'kill $child 2>/dev/null; exit 255' INT TERM
    wait $child; status=$?
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
    echo "$passed $failed $skipped" >"$folder/$number.result"

    ready=$(ls "$folder" | grep -c 'result$') all=$(wc -l <"$folder/table") left=
    remaining=$(( (now - $(cat "$folder/start")) * (all - ready) / ready ))
    [ $remaining -lt 30 ] || left=", about $(( (remaining + 59) / 60 )) min left"
    {
        printf '[%d/%d] %-8s%s (%s%d s%s)\n' "$ready" "$all" "$verdict" "$name" "${own:+$own, }" $((now - begin)) "$left"
        case $verdict in
        ok) grep '^skipped ' "$log" | sed 's/^/        /' ;;
        skipped) tail -n 1 "$log" | sed 's/^/        /' ;;
        FAILED) echo "        $command"; shorten "$log" | sed 's/^/        | /' ;;
        esac
    } >"$folder/$number.said"
    cat "$folder/$number.said" # in one piece, so that lines of two jobs do not mix
}

if [ "$1" = --one ]; then one "$2" "$3"; exit 0; fi

# The command line variables of the make above are in the environment; its job server is not for these jobs.
unset MAKEFLAGS MFLAGS MAKELEVEL
LIMIT=${LIMIT:-600}
export LIMIT
folder=$1
rm -rf "$folder" && mkdir -p "$folder" || exit 1
cat >"$folder/table"
date +%s >"$folder/start"
awk '{ print NR }' "$folder/table" | xargs -n 1 -P "${JOBS:-2}" sh "$0" --one "$folder"
for number in $(awk '{ print NR }' "$folder/table"); do
    cat "$folder/$number.result" 2>/dev/null || echo "0 1 0" # interrupted
done | awk '{ p += $1; f += $2; s += $3 } END { print p + 0 " passed, " f + 0 " failed, " s + 0 " skipped"; exit f > 0 || p == 0 }'
