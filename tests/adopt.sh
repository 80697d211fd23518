#!/bin/sh
# adopt.sh - build and run every stage of examples/adopt, print their figures as a table, and hold the limits there.
#
# A stage is examples/adopt/ENGINE_N_STAGE.c; stage 0 is the plain engine. Its last line is `loss X peak BYTES weights HEX`.
# examples/adopt/limits.txt names the limits of each. Lines are those of `diff PLAIN STAGE` that are added, but for blank
# lines and comments. Peaks are the process's; where the system does not tell them they are 0 and not looked at.
set -u
MAKE=${MAKE:-make} folder=build/adopt
mkdir -p $folder

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

run() { # stage: writes its last line and its seconds of processor time to STAGE.said, in one line
    (
        "$folder/$1" >"$folder/$1.out" || exit 1
        times >"$folder/$1.times"
    ) || return 1
    seconds=$(tail -n 1 "$folder/$1.times" | sed 's/[ms]/ /g' | awk '{ printf "%.1f", 60 * ($1 + $3) + $2 + $4 }')
    echo "$(tail -n 1 "$folder/$1.out") $seconds" >"$folder/$1.said"
}

for source in examples/adopt/*_[0-9]_*.c; do
    stage=$(basename "$source" .c)
    number=${stage#*_} engine=${stage%%_*}
    number=${number%%_*}
    set -- examples/adopt/"$engine"_0_*.c
    plain=$1 before=$1
    [ "$number" = 0 ] || set -- examples/adopt/"$engine"_$((number - 1))_*.c
    [ ! -f "$1" ] || before=$1
    $MAKE -s "$folder/$stage" || exit 1
    run "$stage" || { echo "$stage has failed" >&2; exit 1; }
    echo "$stage $(basename "$plain" .c) $(added "$plain" "$source") $(added "$before" "$source") $(cat "$folder/$stage.said")"
done >$folder/figures || exit 1

awk '
    function miss(what) { missed = missed stage ": " what "\n" }
    BEGIN { format = "%-18s %6s %6s %9s %6s %10s  %-24s %7s\n"; printf format, "stage", "lines", "new", "peak MB", "share", "loss", "same bits as", "seconds" }
    FNR == NR {
        if ($0 !~ /^#/ && NF) {
            lines[$1] = $2; new[$1] = $3; share[$1] = $4; apart[$1] = $5; same[$1] = $6
        }
        next
    }
    {
        if ($5 != "loss" || $7 != "peak" || $9 != "weights" || NF != 11) { print "not a last line: " $0; bad = 1; exit }
        stage = $1; order[++count] = stage; plain[stage] = $2; total[stage] = $3; step[stage] = $4
        loss[stage] = $6; peak[stage] = $8; weights[stage] = $10; seconds[stage] = $11
    }
    END {
        if (bad) exit 1
        for (i = 1; i <= count; ++i) {
            stage = order[i]; p = plain[stage]
            part = peak[p] ? 100 * peak[stage] / peak[p] : 0
            percent = 100 * (loss[stage] - loss[p]) / loss[p]
            bits = "-"
            if (!(stage in lines)) miss("has no limits in examples/adopt/limits.txt")
            else {
                if (lines[stage] != "-" && total[stage] > lines[stage]) miss("more than " lines[stage] " lines added to " p)
                if (new[stage] != "-" && step[stage] > new[stage]) miss("more than " new[stage] " lines added to the stage before")
                if (share[stage] != "-" && part > share[stage]) miss("the peak is more than " share[stage] " % of that of " p)
                if (apart[stage] != "-" && !(percent <= apart[stage] && -percent <= apart[stage])) miss("the loss is more than " apart[stage] " % apart from that of " p)
                if (same[stage] != "-") {
                    equal = weights[stage] == weights[same[stage]] && loss[stage] == loss[same[stage]]
                    bits = same[stage] (equal ? ": yes" : ": NO")
                    if (!equal) miss("not the bits of " same[stage])
                }
            }
            printf format, stage, total[stage], stage == p ? 0 : step[stage], sprintf("%.1f", peak[stage] / 1e6), peak[stage] ? sprintf("%.0f %%", part) : "-", loss[stage], bits, seconds[stage]
        }
        for (stage in lines) if (!(stage in plain)) miss("has limits, but there is no such stage")
        printf "%s", missed
        exit missed != ""
    }' examples/adopt/limits.txt $folder/figures
