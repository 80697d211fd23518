#!/bin/sh
# bench_include.sh [--json] - what including memopt.h costs the compiler, over a file that includes what the header
# itself includes (stddef.h, stdint.h). Medians of 15, in turn. The columns are those of bench.h; limit: that bare file.
set -u
CC=${CC:-cc}
work=$(mktemp -d "${TMPDIR:-/tmp}/memopt.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
case $(date +%N) in *[!0-9]* | "") echo "bench_include.sh: date shows no nanoseconds here, nothing measured"; exit 0 ;; esac
printf '#include <stddef.h>\n#include <stdint.h>\nint x;\n' >"$work/bare.c"
printf '#include "memopt.h"\nint x;\n' >"$work/declarations.c"
printf '#define MEMOPT_IMPLEMENTATION\n#include "memopt.h"\nint x;\n' >"$work/implementation.c"

once() { # once NAME FLAGS: milliseconds
    begin=$(date +%s%N)
    $CC $2 -I. -c "$work/$1.c" -o "$work/$1.o" || exit 1
    end=$(date +%s%N)
    echo "$begin $end" | awk '{ printf "%.3f\n", ($2 - $1) / 1e6 }' >>"$work/$1$2"
}
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do once bare -O0; once declarations -O0; done
for i in 1 2 3 4 5; do once bare -O2; once implementation -O2; done

row() { # name value limit
    if [ "${1:-}" = --json ]; then
        format='{"name": "%s", "threads": 1, "n": 1, "value": %.4g, "unit": "ms", "limit": %.4g, "of_limit": %.4f}\n'
        shift
    else format='%-28s %8d %10d %12.4g %-8s %12.4g %9.3f\n'
    fi
    awk -v format="$format" -v name="$1" -v value="$2" -v limit="$3" 'BEGIN {
        if (format ~ /^{/) printf format, name, value, limit, limit / value
        else printf format, name, 1, 1, value, "ms", limit, limit / value }'
}
[ "${1:-}" = --json ] || printf 'include, medians; limit: a file that includes stddef.h and stdint.h only, in the same run\n%-28s %8s %10s %12s %-8s %12s %9s\n' \
    name threads n value unit limit "of limit"
row ${1:-} include_declarations "$(median "$work/declarations-O0")" "$(median "$work/bare-O0")"
row ${1:-} include_implementation "$(median "$work/implementation-O2")" "$(median "$work/bare-O2")"
