#!/usr/bin/env python3
"""draw.py - propose faults for header.txt by rule.

    draw.py SECTION COUNT [SEED]

Prints COUNT faults of a section of memopt.h, always the same ones: one a line at most, spread over the functions, only
in code that the preprocessor leaves on this machine. The rules are the table below. What it prints is read, thinned out
and put into header.txt by hand.
"""
import os, random, re, subprocess, sys
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import mutants

STATEMENT = r"(?:\+\+|--)?[\w\->.\[\]]+(?: [-+*|&]?= [^;=]*|\([^;]*\))?;"
RULES = [  # name, pattern, replacements: \1, \2 ... are its groups; a fault replaces what matched
    ("boundary", r"(?<=[\w)\]] )<(?= [\w(\-!])", ["<="]),
    ("boundary", r"(?<=[\w)\]] )<=(?= [\w(\-!])", ["<"]),
    ("boundary", r"(?<=[\w)\]] )>(?= [\w(\-!])", [">="]),
    ("boundary", r"(?<=[\w)\]] )>=(?= [\w(\-!])", [">"]),
    ("equality", r"(?<= )==(?= )", ["!="]),
    ("equality", r"(?<= )!=(?= )", ["=="]),
    ("logic", r"(?<= )&&(?= )", ["||"]),
    ("logic", r"(?<= )\|\|(?= )", ["&&"]),
    ("off by one", r" ([-+]) 1\b(?![.<\w])", ["", r" \1 2"]),
    ("sign", r"(?<=[\w)\]]) \+ (?=[\w(])", [" - "]),
    ("sign", r"(?<=[\w)\]]) - (?=[\w(])", [" + "]),
    ("sign", r" \+= ", [" -= ", " = "]),
    ("sign", r" -= ", [" += ", " = "]),
    ("factor", r"(?<=[\w)\]]) \* (?=[\w(])", [" + "]),
    ("factor", r"(?<=[\w)\]]) / (?=[\w(])", [" * "]),
    ("minimum", r"\bmemopt_i_min\(", ["memopt_i_max("]),
    ("minimum", r"\bmemopt_i_max\(", ["memopt_i_min("]),
    ("status", r"\breturn MEMOPT_ERR_(ARGUMENT|OVERFLOW)\b", ["return MEMOPT_ERR_STATE", "return MEMOPT_OK"]),
    ("status", r"\breturn MEMOPT_ERR_(STATE|MEMORY|IO|UNSUPPORTED)\b", ["return MEMOPT_ERR_ARGUMENT", "return MEMOPT_OK"]),
    ("shift", r"(<<|>>) (\d+)\b", [r"\1 (\2 + 1)", r"\1 (\2 - 1)"]),
    ("mask", r"(?<=[\w)\]]) & (?=[\w(~])", [" | "]),
    ("mask", r"(?<=[\w)\]]) \| (?=[\w(])", [" & "]),
    ("constant", r"(?<![\w.])0x[0-9a-f]+u?\b(?!\))", ["@+1", "@-1"]),
    ("constant", r"(?<![\w.])(1\.0f|0\.5f|2\.0f)", ["(@ * 1.25f)"]),
    ("constant", r"(?<![\w.\[])([2-9]|[1-9]\d+)u?(?![\w.\]])", ["@+1", "@-1"]),
    ("negation", r"(?<=[(&| ])!(?=[\w(])", [""]),
    ("dropped guard", r"(?:(?<=^)|(?<=; ))if \([^;{}]*\) (?:return[^;]*|continue|break|goto \w+);", ["(void)0;"]),
    ("dropped statement", r"^" + STATEMENT, ["(void)0;"]),
    ("dropped statement", r"(?<=[;{] )" + STATEMENT, ["(void)0;"]),
    ("dropped statement", r"(?<=\) )" + STATEMENT + r"(?=$| \w)", ["(void)0;"]),
    ("sides", r"\? ([^?:;,]+) : ([^?:;,()]+)(?=[;,)])", [r"? \2 : \1"]),
]
WEIGHTS = {"boundary": 6, "off by one": 6, "logic": 4, "minimum": 4, "dropped guard": 4, "equality": 1, "sign": 1}
SKIP = re.compile(r"^\s*(#|typedef\b|struct\b|enum\b|case [A-Z]|default:|\(void\)|MEMOPT_ASSERT|static const .*\{|extern\b)")


def active_lines(path):
    """The numbers of the lines that the preprocessor leaves, bodies of macros too."""
    out = subprocess.run([*mutants.CC, "-E", "-dD", "-DMEMOPT_IMPLEMENTATION", "-DMEMOPT_STATIC", "-DMEMOPT_DEBUG=0",
                          "-DMEMOPT_PTHREADS", path], stdout=subprocess.PIPE, check=True, text=True).stdout
    lines, active, here, at = mutants.read(path).split("\n"), set(), False, 0
    for line in out.split("\n"):
        mark = re.match(r'# (\d+) "([^"]*)"', line)
        if mark:
            at, here = int(mark.group(1)), mark.group(2) == path
            continue
        if here and line.strip():
            last = at
            while lines[last - 1].endswith("\\"):
                last += 1
            active.update(range(at, last + 1))
        at += 1
    return active


def without_comments(text):
    """The same text, blanks in place of comments and strings."""
    return re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
                  lambda m: re.sub(r"[^\n]", "~" if m.group()[0] != "/" else " ", m.group()), text, flags=re.S)


def changed(match, replacement):
    """What stands in place of a match; @+1 and @-1: its number, changed."""
    number = re.fullmatch(r"(0x)?([0-9a-f]+)(u?)", match.group())
    if replacement[:1] == "@" and number:
        value = int(number.group(2), 16 if number.group(1) else 10) + int(replacement[1:])
        return (hex(value) if number.group(1) else str(value)) + number.group(3)
    return match.expand(replacement).replace("@", match.group())


def stands_alone(head, before):
    """Does a statement begin after this part of its line? `before` is the line above."""
    if not head.strip():
        before = before.strip("\\ ")
        return before[-1:] in ("", ";", "{", "}", ":") or re.match(r"(if|for|while|else)\b.*\)$|else$", before) is not None
    return head.rstrip()[-1] in ";{" or re.match(r"(else |if \(.*\) |for \(.*\) |while \(.*\) )$", head) is not None


def section_end(text, begin):
    end = text.find("@section ", begin + 12)
    return end if end >= 0 else len(text)


def candidates(text, section):
    """{function: [[(begin, end, rule, replacement), ...] of a line, ...]}"""
    path = os.path.join(mutants.ROOT, "memopt.h")
    begin = text.find(mutants.Header.marker(section))
    end = section_end(text, begin)
    bare, active = without_comments(text), active_lines(path)
    spans = sorted((a, b, name) for name, places in mutants.functions(text).items() for a, b in places)
    found, at, line = {}, 0, ""
    for number, new_line in enumerate(bare.split("\n"), 1):
        before, line = (line if line.strip("\\ ") else before) if number > 1 else "", new_line
        start, at = at, at + len(line) + 1
        if not begin <= start < end or number not in active or SKIP.match(line):
            continue
        name = next((n for a, b, n in spans if a <= start <= b), None)
        if not name:
            continue
        first = len(line) - len(line.lstrip())
        if not first:  # a function's head: what stands behind its brace
            first = line.find("{") + 2
            if first < 2 or not line.rstrip(" \\").endswith("}"):
                continue
        body = line[first:].rstrip("\\ ")
        here = []
        for rule, pattern, replacements in RULES:
            for match in re.finditer(pattern, body):
                if rule == "factor" and re.search(r"\b(char|void|float|double|int|t|size_t)\b *$", body[:match.start()]):
                    continue
                if "~" in match.group():
                    continue
                if rule.startswith("dropped") and not stands_alone(body[:match.start()], before):
                    continue
                for replacement in replacements:
                    new = changed(match, replacement)
                    here.append((start + first + match.start(), start + first + match.end(), rule, new))
        if here:
            found.setdefault(name, []).append(here)
    return found


def shown(text, name, section, begin, end, new):
    """(old, new): the change with as much of its line about it as makes it stand once, in the section or the function."""
    places = [(text.find(mutants.Header.marker(section)), None)]
    places[0] = (places[0][0], section_end(text, places[0][0]))
    places += [(a, b) for a, b in mutants.functions(text)[name] if a <= begin < b]
    line_begin = text.rfind("\n", 0, begin) + 1
    line_end = text.find("\n", end)
    line_end = line_begin + len(re.sub(r"\s*(/\*[^\n]*)?\\?$", "", text[line_begin:line_end]))
    line_begin += len(text[line_begin:]) - len(text[line_begin:].lstrip())
    for first, last in places:
        for margin in list(range(12, 130, 6)):
            a, b = max(line_begin, begin - margin), min(line_end, end + margin)
            while a > line_begin and not re.match(r"\s\S", text[a - 1:a + 1]):
                a -= 1
            while b < line_end and not re.match(r"\s", text[b]):
                b += 1
            old = text[a:b].strip()
            if a <= begin and end <= b and text.count(old, first, last) == 1 and " :: " not in old:
                a = text.find(old, first)
                return old, (text[a:begin] + new + text[end:a + len(old)]).strip()
    return None


def main():
    section, count, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
    text = mutants.read(os.path.join(mutants.ROOT, "memopt.h"))
    chance = random.Random(section + seed)
    found = candidates(text, section)
    names = sorted(found)
    # A function is drawn as often as the logarithm of its length says, about.
    order = [(chance.random() ** (1 / (1 + len(found[name])) ** 0.5), name) for name in names]
    turns, printed = {name: list(found[name]) for name in names}, 0
    used = set()
    while printed < count and any(turns.values()):
        order.sort(reverse=True)
        for _, name in order:
            if not turns[name] or printed >= count:
                continue
            lines = turns[name]
            here = lines.pop(chance.randrange(len(lines)))
            rules = sorted({h[2] for h in here})
            rule = chance.choices(rules, [WEIGHTS.get(rule, 2) for rule in rules])[0]
            begin, end, rule, new = chance.choice([h for h in here if h[2] == rule])
            pair = shown(text, name, section, begin, end, new)
            if not pair or pair[0] in used:
                continue
            used.add(pair[0])
            print(f"{section} :: {name}: {rule} :: {pair[0]} :: {pair[1]}")
            printed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
