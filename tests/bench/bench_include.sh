#!/bin/sh
# bench_include.sh [--json] - what a part of memopt.h costs its user at -O2 with MEMOPT_STATIC, a row a part and compiler
# (tests/parts.c): seconds of CPU to compile, and in the column n bytes of object code. The columns are those of bench.h;
# limit: a file that includes what the header itself includes (stddef.h, stdint.h). Medians of 3, in turn.
set -u
work=$(mktemp -d "${TMPDIR:-/tmp}/memopt.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
printf '#include <stddef.h>\n#include <stdint.h>\nint x;\n' >"$work/bare.c"
parts="declarations arena plan heap adam8 tape linear everything"

once() { # once COMPILER NAME TIMES SOURCE FLAGS...: a line of seconds, those of one compilation
    out=$work/$1-$2 repeat=$3 compiler=$1
    shift 3
    (
        i=0
        while [ $i -lt "$repeat" ]; do $compiler -O2 -I. -c "$@" -o "$out.o" || exit 1; i=$((i + 1)); done
        times
    ) | awk -F '[ms ]+' -v n="$repeat" 'NR == 2 { printf "%.4f\n", (60 * $1 + $2 + 60 * $3 + $4) / n }' >>"$out" # of what ended
}
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
row() { # name bytes seconds limit
    if [ "$json" ]; then format='{"name": "%s", "threads": 1, "n": %d, "value": %.4g, "unit": "s", "limit": %.4g, "of_limit": %.4f}\n'
    else format='%-28s %8d %10d %12.4g %-8s %12.4g %9.3f\n'
    fi
    awk -v json="$json" -v format="$format" -v name="$1" -v bytes="$2" -v value="$3" -v limit="$4" 'BEGIN {
        if (json) printf format, name, bytes, value, limit, limit / value
        else printf format, name, 1, bytes, value, "s", limit, limit / value }'
}

json=${1:-}
[ "$json" ] || printf 'include, CPU seconds of compiling one part, n: bytes of object code; limit: a file that includes stddef.h and stdint.h only\n%-28s %8s %10s %12s %-8s %12s %9s\n' \
    name threads n value unit limit "of limit"
for compiler in gcc clang; do
    command -v $compiler >/dev/null 2>&1 && command -v size >/dev/null 2>&1 || continue
    for i in 1 2 3; do
        once $compiler bare 20 "$work/bare.c"
        once $compiler declarations 20 tests/parts.c
        for part in ${parts#* }; do once $compiler $part 1 "-DPART_$(echo $part | tr '[:lower:]' '[:upper:]')" tests/parts.c; done
    done
    for part in $parts; do
        bytes=$(size "$work/$compiler-$part.o" | awk 'NR == 2 { print $1 + $2 + $3 }')
        row "include_$part, $compiler" "$bytes" "$(median "$work/$compiler-$part")" "$(median "$work/$compiler-bare")"
    done
done
