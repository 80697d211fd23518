#!/bin/sh
# ranks.sh - train_gpt over 1, 2, 4 and 8 ranks in stages 0 to 3, as threads and, where there is MPI, as processes: what the rank
# that holds most holds, what it sends, and whether all weights have one hash. For `make ranks`; STEPS=N steps, 3 by default. A table,
# and the same as bars in build/ranks.html.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
switches="--quiet --batch 1 --units 8 --steps ${STEPS:-3} --dropout 0.1 --clip 1 --attention lean"
first='' wrong=0 kind=threads
: >"$work/rows"

# One line of the table, of the run in $work/run.json.
line() { # ranks, stage
    hash=$(sed -n 's/.*"weights_hash": "\(.*\)".*/\1/p' "$work/run.json")
    first=${first:-$hash}
    same=yes
    [ -n "$hash" ] && [ "$hash" = "$first" ] || { same=NO; wrong=1; }
    awk -v ranks="$1" -v stage="$2" -v steps="${STEPS:-3}" -v same="$same" '
        function number(name) { return match($0, "\"" name "\": [0-9]+") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0 : 0 }
        /"rank":/ { ++at; off = 0 }
        /"predicted_bytes"/ { sub(/.*"predicted_bytes": /, ""); planned = $0; sub(/,$/, "", planned) }
        /"measured_bytes"/ { sub(/.*"measured_bytes": /, ""); measured = $0; sub(/,$/, "", measured); if (measured != planned) differs = 1
            if (number("peak") > peak) { peak = number("peak"); largest = at; for (i = 1; i <= n; ++i) held[i] = number(tag[i]) } }
        /"predicted_traffic"/ { sub(/.*_traffic": /, ""); planned = $0 }
        /"counted_traffic"/ { sub(/.*_traffic": /, ""); if ($0 != planned) differs = 1; if (largest == at) { sent = number("sent"); calls = number("calls") } }
        BEGIN { n = split("parameters gradients optimizer activations buckets", tag, " ") }
        END { printf "%5d %5d", ranks, stage; for (i = 1; i <= n; ++i) printf " %11.3f", held[i] / 1e6
              printf " %9.3f %8.3f %6d  %-10s %s\n", peak / 1e6, sent / 1e6 / steps, calls / steps, differs ? "NO" : "yes", same; exit differs }' "$work/run.json" \
        >"$work/row" || wrong=1
    cat "$work/row"
    sed "s/^/$kind /" "$work/row" >>"$work/rows"
}
# The rows as bars: text is HTML, no script, no network. The colours are those of the ladder's page.
page() {
    awk -v weights="$first" -v command="build/train_gpt --ranks R --stage S $switches" '
        function bar(width, colour, name, mb) {
            if (mb > 0) printf "<span class=\"bar\" style=\"width:%.2f%%;background:%s\" title=\"%s: %.3f MB\"></span>", width * 100, colour, name, mb
        }
        BEGIN { split("#0072b2 #e69f00 #009e73 #d55e00 #56b4e9", colour, " "); n = split("parameters gradients optimizer activations buckets", name, " ") }
        { row[NR] = $0; if ($9 > most) most = $9; if ($10 > sends) sends = $10 }
        END {
            print "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Many ranks as one</title>"
            print "<style>body{font:15px/1.4 system-ui,sans-serif;max-width:60em;margin:1em auto;padding:0 1em}table{border-collapse:collapse;width:100%}"
            print "td,th{padding:2px 8px;text-align:right;white-space:nowrap}td.bars{width:45%;text-align:left}td.sent{width:20%;text-align:left}"
            print ".bar{display:inline-block;height:1em;vertical-align:middle}.key{margin-right:1em}tr.first td{padding-top:10px}</style>"
            printf "<h1>Many ranks as one</h1><p><code>%s</code></p><p>What the rank with most holds, and what it sends in a step. Weights of all rows: %s</p><p>", command, weights
            for (i = 1; i <= n; ++i) printf "<span class=\"key\"><span class=\"bar\" style=\"width:1em;background:%s\"></span> %s</span>", colour[i], name[i]
            print "</p><table><tr><th>ranks<th>stage<th style=\"text-align:left\">memory<th>MB<th style=\"text-align:left\">sent<th>MB<th>as planned<th>same bits"
            for (r = 1; r <= NR; ++r) {
                split(row[r], x, " ")
                printf "<tr%s><td>%d, %s<td>%d<td class=\"bars\">", x[3] == 0 ? " class=\"first\"" : "", x[2], x[1], x[3]
                for (i = 1; i <= n; ++i) bar(x[3 + i] / most, colour[i], name[i], x[3 + i])
                printf "<td>%.1f<td class=\"sent\">", x[9]
                bar(sends > 0 ? x[10] / sends : 0, "#8a8f98", "sent", x[10])
                printf "<td>%.1f<td>%s<td>%s\n", x[10], x[12], x[13]
            }
            print "</table></html>"
        }' "$work/rows" >build/ranks.html
}
head_of_table() {
    printf '%5s %5s %11s %11s %11s %11s %11s %9s %8s %6s  %-10s %s\n' "" "" "MB of the" "rank with" most "" "" "" "a step:" "" as "same bits"
    printf '%5s %5s %11s %11s %11s %11s %11s %9s %8s %6s  %-10s %s\n' ranks stage parameters gradients optimizer activations buckets peak "MB sent" calls planned "as above"
}

echo "build/train_gpt --ranks R --stage S $switches"
head_of_table
for ranks in 1 2 4 8; do
    for stage in 0 1 2 3; do
        # shellcheck disable=SC2086
        build/train_gpt --ranks $ranks --stage $stage $switches --json "$work/run.json" >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
        line $ranks $stage
    done
done
echo "weights $first"
if command -v "${MPICC:-mpicc}" >/dev/null 2>&1 && command -v mpirun >/dev/null 2>&1; then
    ${MAKE:-make} -s build/train_gpt_mpi || exit 1
    kind=processes
    more=
    mpirun --version 2>/dev/null | grep -q 'Open MPI' && more='--oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    echo "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun $more -n R build/train_gpt_mpi --stage S $switches"
    head_of_table
    for ranks in 2 4; do
        for stage in 0 1 2 3; do
            # shellcheck disable=SC2086
            mpirun $more -n $ranks build/train_gpt_mpi --stage $stage $switches --json "$work/run.json" >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
            line $ranks $stage
        done
    done
else
    echo "no MPI here, so ranks are threads only: apt-get install openmpi-bin libopenmpi-dev, or make deps"
fi
page && echo "the same as bars: build/ranks.html"
[ $wrong = 0 ] && echo "all as planned, and one hash" || echo "NOT as planned, or more than one hash"
exit $wrong
