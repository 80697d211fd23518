# header.awk - a memopt.h with only the sections that you need, and what they use.
#
#   make header PARTS="optim tape"                                  writes build/memopt.h; OUT=FILE: that file
#   PARTS="optim tape" awk -f header.awk memopt.h > lean/memopt.h   the same by hand
#
# A part is a section by its name in the CONTENTS, with its declarations, or a whole group (memory, numbers, ...). What
# they use follows from the lines `@section NAME : uses`; where a function is declared, the section that defines it comes
# along. More parts later: the same command with more words. HEADER_NAME: the name of the new file, when it is not
# memopt.h, because the header includes itself. Nothing is printed when it fails. -v list=1: the parts, and nothing else.

function fail(why) {
    print "header.awk: " why >"/dev/stderr"
    failed = 1
    exit 1
}

function read_marker(text,    fields, count, i) { # "/* @section NAME : uses", the comment's end or not; as contents.py
    if (text !~ /^\/\* @section [a-z][a-z0-9_]* :( [a-z0-9_]+)*( \*\/)?$/) fail("not \"/* @section NAME : uses\": " text)
    sub(/ \*\/$/, "", text)
    count = split(text, fields, " ")
    section = fields[3]
    if (section in first) fail("two sections " section)
    name[++sections] = section
    first[section] = NR
    uses[section] = " "
    for (i = 5; i <= count; i++) uses[section] = uses[section] fields[i] " "
    if (section == "platform") in_body = 1
}

function read_public(text) { # a declaration or definition, up to its ; or {
    if (!match(text, /memopt_[a-z0-9_]+ *\(/)) return
    text = substr(text, RSTART, RLENGTH - 1)
    sub(/ +$/, "", text)
    if (in_body) defined_in[text] = defined_in[text] " " section
    else if (!(text in declared_in)) declared_in[text] = section
}

{ sub(/\r$/, "") }

# Lines that tell groups apart are the whole header's own.
/^#if MEMOPT_I_GROUPS & / || /^#endif \/\* groups \*\/$/ || /^#ifndef MEMOPT_I_WIDTH \/\* of a group \*\/$/ { next }

{ line[NR] = $0 }
/^[ \t]*(\/\*+|\*|\/\/)[ \t]*@section/ { read_marker($0) }
/^MEMOPT_API / { statement = ""; open_statement = 1 }
open_statement {
    statement = statement " " $0
    if ($0 ~ /[;{]/) {
        open_statement = 0
        read_public(statement)
    }
}

# ---- the banner: groups and rows of the CONTENTS ----
!sections && /^   CONTENTS / { in_contents = 1 }
!sections && /^$/ { in_contents = 0 }
in_contents && /^     [A-Z]+ / {
    order[++groups] = group = tolower($1)
    if (match($0, /\(with [a-z_ ]+\)/)) also[group] = substr($0, RSTART + 6, RLENGTH - 7)
    next
}
in_contents && group != "" && /^     / {
    row = $1 == "api_" ? $2 : $1
    group_of[row] = group
    if ($1 == "api_") group_of["api_" row] = group
}

# ---- what is taken ----
function take(section) {
    if (section in taken) return
    taken[section] = 1
    todo[++waiting] = section
}

function take_part(part,    i, known, list) {
    if (part in first && part != "groups") { known = 1; take(part) }
    if ("api_" part in first) { known = 1; take("api_" part) }
    for (i = 1; i <= sections; i++)
        if (group_of[name[i]] == part) { known = 1; take(name[i]) }
    for (i = split(also[part], list, " "); i; i--) take_part(list[i])
    return known
}

function list_parts(    i, list, of, both) { # a group's name means the group, also where a section has it too
    for (i = 1; i <= sections; i++) {
        if (name[i] ~ /^(groups|api_end|end|config|platform|widths)$/ || (name[i] ~ /^api_/ && substr(name[i], 5) in first)) continue
        of[group_of[name[i]]] = of[group_of[name[i]]] " " (name[i] ~ /^api_/ ? substr(name[i], 5) : name[i])
    }
    for (i = 1; i <= groups; i++) {
        list = list "\n  " order[i] ":" of[order[i]]
        if (order[i] in first || "api_" order[i] in first) both = both (both ? " and " : "") order[i]
    }
    return list (both ? "\n" both ": the whole group, not only its section of this name" : "")
}

function take_all(    i, n, function_name, list, section) {
    for (function_name in declared_in) {
        if (!(function_name in defined_in)) fail(function_name " is defined nowhere")
        needs[declared_in[function_name]] = needs[declared_in[function_name]] defined_in[function_name]
    }
    take("config"); take("api_end"); take("platform"); take("end")
    for (i = 1; i <= waiting; i++) {
        section = todo[i]
        n = split(uses[section] needs[section], list, " ")
        if (section == "vec") list[++n] = "widths"
        while (n) {
            if (!(list[n] in first)) fail("section " section " uses " list[n] ", which is none")
            if (list[n] != "groups") take(list[n])
            n--
        }
    }
}

# ---- what is written ----
function write(text) { out[++lines] = text }

function is_option(word,    i) { # does it change anything here?
    if (word ~ /^MEMOPT_ONLY_/) return 0
    if (word ~ /^MEMOPT_NO_/) return "simd" in taken
    if (word == "MEMOPT_HEADER") return "widths" in taken
    if (word != "MEMOPT_PTHREADS") return 1
    for (i = 1; i <= sections; i++)
        if (name[i] in taken && name[i] != "platform" && index(text_of[name[i]], "MEMOPT_I_POOL")) return 1
    return 0
}

function write_head(parts,    i, word, keep, option, row, row_section, waiting_group, list, text) {
    text = line[1]
    word = parts ~ / / ? " and what they use - " : " and what it uses - " # not inside sub(): some awks match it there
    sub(/ - train the same network in less memory - /, " - only " parts word, text)
    if (text == line[1]) fail("the first line is not that of the whole memopt.h")
    write(text)
    write("")
    for (i = 2; i < first[name[1]]; i++) {
        if (!(i in line)) continue
        text = line[i]
        if (match(text, /^   [A-Z]+( [A-Z]+)*( |$)/)) { # a chapter begins
            word = substr(text, 4, RLENGTH - 3)
            sub(/ $/, "", word)
            keep = word != "CUDA"
            row_section = waiting_group = ""
            if (word == "WHAT IT IS") {
                write("   WHAT IT IS  Sections of memopt.h with all that they use, their code and comments as they stand there, written by")
                write("                   make header PARTS=\"" parts "\"")
                write("               beside the whole memopt.h; one more part is one more word. Comments may speak of sections that the")
                write("               CONTENTS do not name, and the CONVENTIONS of functions that are not declared here: the whole has them.")
                if (asks_for_workers()) write("               For workers, which memopt_threads names: add host_threads to PARTS.")
                write("")
                keep = 0
            } else if (word == "QUICK START") keep = "arena" in direct || "api_arena" in direct
            else if (word == "CONTENTS") {
                write("   CONTENTS    Search for \"@section NAME\", or \"@section api_NAME\" for the declarations, where api_ stands before it. All")
                write("               declarations come first; bottom up: a section uses only what its marker names, and what that uses.")
                keep = -1
            }
            if (word == "INDEX") index_line = text
            else if (keep == 1) write(text)
            option = word == "OPTIONS"
            continue
        }
        if (word == "CONTENTS") {
            if (text == "") { write(""); word = "" }
            else if (text ~ /^     [A-Z]+ /) { split(text, list, " "); waiting_group = list[1] }
            else if (text ~ /^     / && text !~ /^               /) {
                split(text, list, " ")
                row = list[1] == "api_" ? list[2] : list[1]
                if (row in taken || "api_" row in taken) {
                    if (waiting_group != "") write("     " waiting_group)
                    waiting_group = ""
                    if (list[1] == "api_" && !("api_" row in taken)) text = "         " substr(text, 10)
                    write(text)
                }
            }
            continue
        }
        if (word == "INDEX") {
            if (text ~ /^     [a-z]/) { split(text, list, " "); row_section = list[1] }
            if (row_section in taken && index_line != "") { write(index_line); index_line = "" }
            if (text == "" ? index_line == "" : row_section in taken) write(text)
            continue
        }
        if (option && text ~ /^     MEMOPT_/) {
            split(text, list, /[ (]+/)
            keep = is_option(list[2])
        }
        if (keep || (option && text == "")) write(text)
        if (text == "") option = 0
    }
}

function asks_for_workers(    i) { # something is declared that takes workers, but not what makes them
    if ("api_host_threads" in taken) return 0
    for (i = 1; i <= sections && name[i] != "platform"; i++)
        if (name[i] in taken && name[i] != "api_host" && index(text_of[name[i]], "memopt_threads")) return 1
    return 0
}

function own_name(text,    at, done) { # the new file's name where it is in quotes, or an error begins with it
    while (at = index(text, "\"memopt.h")) {
        done = done substr(text, 1, at) file_name
        text = substr(text, at + 9)
    }
    return done text
}

END {
    if (failed) exit 1
    if (!sections || !("platform" in first) || !("groups" in first)) fail("that is not the whole memopt.h")
    if (list) {
        print "PARTS=\"part...\": a group, or any of its parts" list_parts()
        exit 0
    }
    file_name = "HEADER_NAME" in ENVIRON ? ENVIRON["HEADER_NAME"] : "memopt.h"
    if (file_name == "" || file_name ~ /["\\\/[:cntrl:]]/) fail("HEADER_NAME=" file_name " is no name of a file that #include takes")
    wanted = ENVIRON["PARTS"]
    gsub(/[^A-Za-z0-9_]+/, " ", wanted)
    count = split(tolower(wanted), asked, " ")
    if (!count) fail("PARTS=\"part...\": a group, or any of its parts" list_parts())
    for (i = 1; i <= count; i++) {
        if (asked[i] in said) continue
        said[asked[i]] = 1
        if (!take_part(asked[i])) fail("no part " asked[i] "; there are, by group," list_parts())
        parts = parts (i > 1 ? " " : "") asked[i]
    }
    for (i = 1; i <= waiting; i++) direct[todo[i]] = 1
    take_all()
    for (i = 1; i <= sections; i++) {
        section = name[i]
        last = i < sections ? first[name[i + 1]] : NR + 1
        if (!(section in taken)) continue
        text = ""
        for (at = first[section]; at < last; at++) if (at in line) text = text (line[at] ~ /^#/ ? own_name(line[at]) : line[at]) "\n"
        if (section == "config") {
            sub(/config : groups/, "config :", text)
            sub(/#define MEMOPT_H\n/, "#define MEMOPT_H\n#define MEMOPT_I_SOME 1 /* of the sections alone */\n", text)
        }
        text_of[section] = text
    }
    write_head(parts)
    for (i = 1; i <= lines; i++) print own_name(out[i])
    for (i = 1; i <= sections; i++) if (name[i] in taken) printf "%s", text_of[name[i]]
}
