#!/bin/sh
# bench_include.sh [--json | --check] - what an include of memopt.h costs its user at -O2: seconds of CPU to compile, and in
# the column n bytes of object code. Rows: the whole, without AVX-512, each group alone (MEMOPT_ONLY_...), and single parts with
# MEMOPT_STATIC (tests/parts.c). ROUNDS=3: medians of 3, in turn.
#
# Seconds are compared by shares: the header of 48,277 lines, before it had groups, takes $whole times as long as a file of
# always the same 300 functions, which is compiled beside the rows. limit: the seconds that this allows for a row's share.
# --check: with gcc alone, each once; exit status 1 where a share or the bytes are above the limits in the table below. A
# share above is timed again between two more references, up to three times: what slows the machine down slows both down.
set -u
whole=9.4
work=$(mktemp -d "${TMPDIR:-/tmp}/memopt.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
printf '#define MEMOPT_IMPLEMENTATION\n#include "memopt.h"\n' >"$work/all.c"

# name, share of the former whole, KB with gcc 12 on x86-64, source, flags
cat >"$work/table" <<END
everything 0.84 800 $work/all.c
no_avx512 0.66 649 $work/all.c -DMEMOPT_NO_AVX512
no_simd 0.48 490 $work/all.c -DMEMOPT_NO_SIMD
memory 0.07 73 $work/all.c -DMEMOPT_ONLY_MEMORY
numbers 0.20 205 $work/all.c -DMEMOPT_ONLY_NUMBERS
activations 0.24 232 $work/all.c -DMEMOPT_ONLY_ACTIVATIONS
operators 0.43 334 $work/all.c -DMEMOPT_ONLY_OPERATORS
ranks 0.38 412 $work/all.c -DMEMOPT_ONLY_RANKS
advise 0.37 336 $work/all.c -DMEMOPT_ONLY_ADVISE
muon 0.32 225 $work/all.c -DMEMOPT_ONLY_MUON
static_adam8 0.15 110 tests/parts.c -DPART_ADAM8
static_arena 0.06 20 tests/parts.c -DPART_ARENA
static_plan 0.06 40 tests/parts.c -DPART_PLAN
static_heap 0.06 60 tests/parts.c -DPART_HEAP
static_tape 0.30 200 tests/parts.c -DPART_TAPE
static_linear 0.30 200 tests/parts.c -DPART_LINEAR
declarations 0.01 1 tests/parts.c
END
reference() { # a hundred times three functions: a search, sums, a walk over bytes
    awk 'BEGIN {
        print "#include <stdint.h>\n#include <string.h>"
        print "typedef struct table { size_t count, used; uint64_t keys[64]; float values[64]; struct table *next; } table;"
        for (i = 0; i < 100; i++) {
            print "size_t find_" i "(table *t, uint64_t key);\nsize_t find_" i "(table *t, uint64_t key) {"
            print "    size_t low = 0, high = t->count;\n    while (low < high) {\n        const size_t middle = low + (high - low) / 2;"
            print "        if (t->keys[middle & 63] * " 2 * i + 1 " < key) low = middle + 1; else high = middle;\n    }"
            print "    if (low == t->count && t->next) return t->count + low;\n    return low;\n}"
            print "float sum_" i "(const float *x, const float *y, size_t n, int kind);"
            print "float sum_" i "(const float *x, const float *y, size_t n, int kind) {\n    float sum = 0;\n    size_t k;\n    switch (kind) {"
            print "    case 0: for (k = 0; k < n; ++k) sum += x[k] * y[n - 1 - k]; break;"
            print "    case 1: for (k = 0; k + 4 <= n; k += 4) sum += x[k] - y[k + 1] * " i ".5f + x[k + 2] / (1 + y[k + 3] * y[k + 3]); break;"
            print "    case 2: for (k = 0; k < n; ++k) if (x[k] > sum) sum = x[k]; break;\n    default: sum = " i ";\n    }\n    return sum;\n}"
            print "int move_" i "(table *t, unsigned char *bytes, size_t n, uint64_t *hash);"
            print "int move_" i "(table *t, unsigned char *bytes, size_t n, uint64_t *hash) {\n    size_t k;\n    if (!t || !bytes || !hash) return -1;"
            print "    for (k = 0; k < n; ++k) {\n        *hash = (*hash ^ bytes[k]) * UINT64_C(" 2 * i + 99991 ");"
            print "        if (t->used < t->count) t->keys[t->used++ & 63] = *hash; else if (t->next) t = t->next;\n    }"
            print "    if (find_" i "(t, *hash) < t->count) memcpy(bytes, t->values, n < sizeof t->values ? n : sizeof t->values);\n    return n > 0;\n}"
        }
    }'
}
reference >"$work/reference.c"

once() { # once COMPILER NAME SOURCE FLAGS...: a line of seconds
    out=$work/$1-$2 compiler=$1
    shift 2
    ( $compiler -O2 -I. -c "$@" -o "$out.o" || exit 1; times ) |
        awk -F '[ms ]+' 'NR == 2 { printf "%.4f\n", 60 * $1 + $2 + 60 * $3 + $4 }' >>"$out" # of what ended
    [ -f "$out.o" ] || { echo "bench_include.sh: $* does not compile"; exit 1; }
}
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
least() { sort -n "$1" | head -n 1; }
within() { echo "$seconds $limit" | awk '{ exit !($1 <= 1.25 * $2) }'; } # a quarter is what a busy machine makes of it
again() { # of $name: its seconds and those of the reference, in turns
    grep "^$name " "$work/table" >"$work/row"
    read -r _ _ _ source flags <"$work/row"
    rm "$work/gcc-reference" "$work/gcc-$name"
    for i in 1 2 3; do
        once gcc reference "$work/reference.c"
        # shellcheck disable=SC2086
        once gcc "$name" "$source" $flags
        once gcc reference "$work/reference.c"
        seconds=$(least "$work/gcc-$name")
        limit=$(least "$work/gcc-reference" | awk -v whole=$whole -v share="$share" '{ print share * whole * $1 }')
        echo "$name, again: $seconds s of $limit"
        ! within || return 0
    done
    return 1
}
bytes_of() { size "$1" | awk 'NR == 2 { print $1 + $2 + $3 }'; }

mode=${1:-} broken=0 rounds=$(seq "${ROUNDS:-1}") compilers="gcc clang"
[ "$mode" != --check ] || compilers=gcc
command -v size >/dev/null 2>&1 || { echo "no size here: make deps"; exit 77; }
[ "$mode" ] || printf 'include, CPU seconds of compiling at -O2, n: bytes of object code; limit: the seconds of its share\n%-28s %8s %10s %12s %-8s %12s %9s\n' \
    name threads n value unit limit "of limit"
for compiler in $compilers; do
    command -v $compiler >/dev/null 2>&1 || continue
    for i in $rounds; do
        while read -r name _ _ source flags; do
            case "$mode $name" in "--check static_"[phtl]* | "--check no_simd" | "--check declarations") continue ;; esac
            case $name in everything | numbers | operators | static_adam8) once $compiler reference "$work/reference.c" ;; esac
            # shellcheck disable=SC2086
            once $compiler "$name" "$source" $flags
        done <"$work/table"
    done
    former=$(median "$work/$compiler-reference" | awk -v whole=$whole '{ print whole * $1 }')
    while read -r name share kb _; do
        [ -f "$work/$compiler-$name.o" ] || continue
        bytes=$(bytes_of "$work/$compiler-$name.o") seconds=$(median "$work/$compiler-$name")
        limit=$(echo "$former $share" | awk '{ print $1 * $2 }')
        case $mode in
        --check)
            printf '%-14s %6.2f s, %.2f of the former whole (at most %s), %7d bytes (at most %d)\n' "$name" "$seconds" "$(echo "$seconds $former" | awk '{ print $1 / $2 }')" "$share" "$bytes" "${kb}000"
            within || again || { echo "$name takes longer to compile than its share"; broken=1; }
            case "$(uname -m) $(gcc -dumpversion)" in "x86_64 12"*) # of which the limits are
                [ "$bytes" -le "${kb}000" ] || { echo "$name has become larger"; broken=1; } ;;
            esac ;;
        --json) echo "include_$name, $compiler|$bytes|$seconds|$limit" | awk -F'|' '{ printf "{\"name\": \"%s\", \"threads\": 1, \"n\": %d, \"value\": %.4g, \"unit\": \"s\", \"limit\": %.4g, \"of_limit\": %.4f}\n", $1, $2, $3, $4, $4 / $3 }' ;;
        *) echo "include_$name, $compiler|$bytes|$seconds|$limit" | awk -F'|' '{ printf "%-28s %8d %10d %12.4g %-8s %12.4g %9.3f\n", $1, 1, $2, $3, "s", $4, $4 / $3 }' ;;
        esac
    done <"$work/table"
done
exit $broken
