#!/bin/sh
# adopt.sh - build and run every stage of examples/adopt, print their figures as a table, and hold the limits there.
#
# A stage is examples/adopt/ENGINE_N_STAGE.c; stage 0 is the plain engine. Its last line is `loss X peak BYTES weights HEX`;
# one with a tape prints `overhead X`, too: the time that its schedule adds, as a share. A stage that saves (*_save) is
# killed after its first save, and its figures are those of the run that goes on from there.
# examples/adopt/limits.txt names the limits of each. Lines are those of `diff PLAIN STAGE` that are added, but for blank
# lines and comments. Peaks are the process's; where the system does not tell them they are 0 and not looked at.
# Processor time is compared with that of the stage with the same bits, times 1 + overhead: the least of two runs of each,
# in turn, or three. Where runs of the same program differ by more than 5 % it is printed, and not held. ADOPT_TIME=0: not
# compared.
set -u
MAKE=${MAKE:-make} folder=build/adopt limits=examples/adopt/limits.txt
mkdir -p $folder

limit() { # stage column
    awk -v stage="$1" -v column="$2" '$1 == stage { print $column }' $limits
}

added() { # from to: lines of code that `to` has and `from` has not
    { diff "$1" "$2"; true; } | awk '
        FNR == NR { # which lines of `to` are code
            line = $0
            rest = ""
            while (line != "") {
                at = index(line, open ? "*/" : "/*")
                if (!open) rest = rest (at ? substr(line, 1, at - 1) : line)
                if (!at) break
                line = substr(line, at + 2)
                open = !open
            }
            code[FNR] = rest ~ /[^ \t]/
            next
        }
        /^[0-9,]+[ac][0-9,]+$/ {
            split($0, side, /[ac]/)
            count = split(side[2], range, ",")
            for (i = range[1] + 0; i <= range[count] + 0; ++i) sum += code[i]
        }
        END { print sum + 0 }' "$2" -
}

kill_after_a_save() { # stage
    rm -rf "$folder/$1.run"
    "$folder/$1" "$folder/$1.run" >"$folder/$1.out" &
    tries=0
    until [ -e "$folder/$1.run/gen-1-step-1" ] || [ $tries = 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -9 $! 2>"$folder/$1.killed"
    wait $! 2>"$folder/$1.killed"
    [ $? = 137 ] || { echo "$1 has ended before it was killed" >&2; return 1; }
}

run() { # stage: its output goes to STAGE.out, its seconds of processor time to STAGE.seconds
    case $1 in *_save) set -- "$1" "$folder/$1.run" ;; esac # the others' arguments are sizes, or none
    (
        "$folder/$1" ${2:+"$2"} >"$folder/$1.out" || exit 1
        times >"$folder/$1.times"
    ) || return 1
    tail -n 1 "$folder/$1.times" | sed 's/[ms]/ /g' | awk '{ printf "%.3f\n", 60 * ($1 + $3) + $2 + $4 }' >"$folder/$1.seconds"
}

compare() { # stage same limit: the ratio of processor times, and by how much the runs of either differ at most
    overhead=$(awk '$1 == "overhead" { print $2 }' "$folder/$1.out")
    for _ in 1 2 3; do
        for each in "$1" "$2"; do
            run "$each" || return 1
            echo "$each $(cat "$folder/$each.seconds")"
        done >>"$folder/$1.runs"
        awk -v overhead="${overhead:-0}" -v limit="$3" '
            {
                if (!($1 in least) || $2 < least[$1]) least[$1] = $2
                if ($2 > largest[$1]) largest[$1] = $2
                order[FNR] = $1
            }
            END {
                ratio = least[order[1]] / least[order[2]] / (1 + overhead)
                for (each in least) if (largest[each] / least[each] > differ) differ = largest[each] / least[each]
                printf "%.2f %.2f\n", ratio, differ
                exit FNR < 4 || ratio > limit || differ > 1.05
            }' "$folder/$1.runs" >"$folder/$1.ratio" && break
    done
    cat "$folder/$1.ratio"
}

for source in examples/adopt/*_[0-9]_*.c; do
    stage=$(basename "$source" .c)
    set -- examples/adopt/"${stage%%_*}"_0_*.c
    plain=$1 from=$(limit "$stage" 3) same=$(limit "$stage" 7) most=$(limit "$stage" 8)
    new=- ratio="- -"
    [ "${from:--}" = - ] || new=$(added "examples/adopt/$from.c" "$source")
    $MAKE -s "$folder/$stage" || exit 1
    case $stage in *_save) kill_after_a_save "$stage" || exit 1 ;; esac
    run "$stage" || { echo "$stage has failed" >&2; exit 1; }
    said="$(tail -n 1 "$folder/$stage.out") $(cat "$folder/$stage.seconds")"
    rm -f "$folder/$stage.runs"
    [ "${most:--}" = - ] || [ "${ADOPT_TIME:-1}" = 0 ] || ratio=$(compare "$stage" "$same" "$most") || { echo "$stage or $same has failed" >&2; exit 1; }
    echo "$stage $(basename "$plain" .c) $(added "$plain" "$source") $new $said $ratio"
done >$folder/figures || exit 1

awk '
    function miss(what) { missed = missed stage ": " what "\n" }
    BEGIN { format = "%-18s %6s %6s %9s %6s %10s  %-24s %7s  %s\n"; printf format, "stage", "lines", "new", "peak MB", "share", "loss", "same bits as", "seconds", "to its overhead" }
    FNR == NR {
        if ($0 !~ /^#/ && NF) {
            lines[$1] = $2; new[$1] = $4; share[$1] = $5; apart[$1] = $6; same[$1] = $7; cpu[$1] = $8
        }
        next
    }
    {
        if ($5 != "loss" || $7 != "peak" || $9 != "weights" || NF != 13) { print "not a last line: " $0; bad = 1; exit }
        stage = $1; order[++count] = stage; plain[stage] = $2; total[stage] = $3; step[stage] = $4
        loss[stage] = $6; peak[stage] = $8; weights[stage] = $10; seconds[stage] = $11; ratio[stage] = $12; differ[stage] = $13
    }
    END {
        if (bad) exit 1
        for (i = 1; i <= count; ++i) {
            stage = order[i]; p = plain[stage]
            part = peak[p] ? 100 * peak[stage] / peak[p] : 0
            percent = 100 * (loss[stage] - loss[p]) / loss[p]
            bits = time = "-"
            if (!(stage in lines)) miss("has no limits in examples/adopt/limits.txt")
            else {
                if (lines[stage] != "-" && total[stage] > lines[stage]) miss("more than " lines[stage] " lines added to " p)
                if (new[stage] != "-" && step[stage] > new[stage]) miss("more than " new[stage] " lines added to the stage it begins from")
                if (share[stage] != "-" && part > share[stage]) miss("the peak is more than " share[stage] " % of that of " p)
                if (apart[stage] != "-" && !(percent <= apart[stage] && -percent <= apart[stage])) miss("the loss is more than " apart[stage] " % apart from that of " p)
                if (cpu[stage] != "-" && ratio[stage] != "-") {
                    time = sprintf("%.2f%s", ratio[stage], differ[stage] > 1.05 ? " (not held: runs differ by " differ[stage] ")" : "")
                    if (ratio[stage] > cpu[stage] && differ[stage] <= 1.05) miss("the processor time is more than " cpu[stage] " times that of " same[stage] " and its overhead")
                }
                if (same[stage] != "-") {
                    equal = weights[stage] == weights[same[stage]] && loss[stage] == loss[same[stage]]
                    bits = same[stage] (equal ? ": yes" : ": NO")
                    if (!equal) miss("not the bits of " same[stage])
                }
            }
            printf format, stage, total[stage], step[stage], sprintf("%.1f", peak[stage] / 1e6), peak[stage] ? sprintf("%.0f %%", part) : "-", loss[stage], bits, sprintf("%.1f", seconds[stage]), time
        }
        for (stage in lines) if (!(stage in plain)) miss("has limits, but there is no such stage")
        printf "%s", missed
        exit missed != ""
    }' $limits $folder/figures
