#!/usr/bin/env python3
"""house.py - memopt.h and memopt_cuda.cu in figures, section by section.

    house.py                print the table
    house.py --check        compare the sums with LIMITS below; exit status 1 names each that is broken
    house.py --split DIR    each section as a file of its own in DIR, with an #include for each section it names, for
                            tools that want files: duplicates, ctags, a drawing of who uses whom

B/line      characters a line, comments included
blank       blank lines, of all
joined      lines with two or more statements, of the lines with code; headers of loops and guards that return are one
median ...  lines of a function: the median, what nine of ten and 99 of 100 stay within, the longest
stmts       statements: semicolons outside comments, strings and headers of loops
macros      lines inside macros of several lines
3x, 2x      functions and types written by hand once per width: name_avx2, name_avx512 and name_neon (or ..256, ..512),
            all three or two of them
It reads only.
"""
import collections, os, re, sys

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
FILES = "memopt.h", "memopt_cuda.cu"
LIMITS = [  # what, the figure of both files or of the worse one, what it stays below
    ("joined lines in percent", "joined", 2),
    ("characters a line", "width", 53),
    ("columns of the longest line", "columns", 121),
    ("lines inside macros of several lines", "macros", 150),
    ("names in three copies, one a width", "three", 5),
]
README_LIMIT = 32768 # bytes; and lines of 120 columns, but those of tables
MARK = re.compile(r"^/\* @section (\w+)", re.M)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
WIDTHS = {"avx2": 256, "256": 256, "v8": 256, "avx512": 512, "512": 512, "v16": 512, "neon": 128, "v4": 128}
HAND_COPY = re.compile(r"_(avx2|avx512|neon)(?![a-z0-9])|(?<=[a-z])(256|512)(?![0-9])")
# What begins where a line does, up to the { of its body: no ; or = before it.
FUNCTION = re.compile(r"^(?!typedef|struct|union|enum|extern \"C\")[A-Za-z_][^\n;{}=]*(?:\n[^\n;{}=#]+)*?"
                      r"\)[^\n;{}=()]*\{", re.M)
NAME = re.compile(r"\b(memopt_\w+)\s*\(")


def plain(text):
    """The text with comments blanked and literals emptied; every line stays."""
    def blank(match):
        found = match.group()
        return "\n" * found.count("\n") or " " if found.startswith("/") else '""'
    return COMMENT_OR_TEXT.sub(blank, text)


def without_loops(code):
    """Headers of for loops become `for ()`."""
    parts, at = [], 0
    for match in re.finditer(r"\bfor\s*\(", code):
        if match.start() < at:
            continue
        depth, end = 1, match.end()
        while depth and end < len(code):
            depth += (code[end] == "(") - (code[end] == ")")
            end += 1
        parts += [code[at:match.start()], "for ()", "\n" * code.count("\n", match.start(), end)]
        at = end
    return "".join(parts) + code[at:]


def is_joined(line):
    """Whether a line, of plain text without headers of loops, has two statements or more."""
    if line.lstrip().startswith("#"):
        return False
    count = line.count(";")
    if re.match(r"\s*(else )?if\s*\(.*\)\s*\{?[^;]*(;\s*)?return\b", line):
        count -= 1
    return count >= 2


def functions(code):
    """[(name, lines)] of the functions of a plain text, those that macros make too."""
    found, at = [], 0
    while True:
        match = FUNCTION.search(code, at)
        if not match:
            return found
        depth, end = 1, match.end()
        while depth and end < len(code):
            depth += (code[end] == "{") - (code[end] == "}")
            end += 1
        at = end
        name = NAME.search(match.group())
        found.append((name.group(1) if name else "", code.count("\n", match.start(), end) + 1))


def macro_lines(code):
    """Lines of macros that are longer than one."""
    count, inside, is_macro = 0, False, False
    for line in code.split("\n"):
        if not inside:
            is_macro = re.match(r"\s*#\s*define\b", line) is not None
        continues = line.rstrip().endswith("\\")
        count += is_macro and (inside or continues)
        inside = continues
    return count


def copies(code):
    """(names that exist for three widths, for two)."""
    widths = collections.defaultdict(set)
    names = {name for name, _ in functions(code)} | set(re.findall(r"^\} (\w+);", code, re.M))
    names |= set(re.findall(r"^#\s*define (\w+)\(", code, re.M)) | set(re.findall(r"^typedef .*\b(\w+);", code, re.M))
    for name in names:
        found = HAND_COPY.search(name)
        if found:
            stem = name[:found.start()] + "@" + name[found.end():]
            widths[stem].add(WIDTHS[found.group(1) or found.group(2)])
    return sorted(n for n, w in widths.items() if len(w) == 3), sorted(n for n, w in widths.items() if len(w) == 2)


def percentile(sizes, share):
    return sizes[min(len(sizes) - 1, int(share * len(sizes)))] if sizes else 0


def measure(text):
    lines, code = text.split("\n")[:-1], plain(text)
    bare = without_loops(code)
    full = [line for line in bare.split("\n") if line.strip()]
    sizes = sorted(size for _, size in functions(code))
    three, two = copies(code)
    return {
        "columns": max(map(len, lines), default=0), "lines": len(lines), "width": len(text) / max(1, len(lines)),
        "blank": 100 * sum(not line.strip() for line in lines) / max(1, len(lines)),
        "joined": 100 * sum(map(is_joined, full)) / max(1, len(full)),
        "median": percentile(sizes, 0.5), "p90": percentile(sizes, 0.9), "p99": percentile(sizes, 0.99),
        "longest": sizes[-1] if sizes else 0,
        "statements": sum(line.count(";") for line in full), "macros": macro_lines(code),
        "three": len(three), "two": len(two), "copies": three}


def sections(text):
    """[(name, uses, text)] in the order of the file; what stands before the first marker is `head`."""
    marks = list(MARK.finditer(text))
    found = [("head", [], text[:marks[0].start()] if marks else text)]
    for mark, behind in zip(marks, marks[1:] + [None]):
        first_line = text[mark.start():text.find("\n", mark.start())]
        uses = re.findall(r"\w+", first_line.split(":", 1)[1].replace("*/", " ")) if ":" in first_line else []
        found.append((mark.group(1), uses, text[mark.start():behind.start() if behind else len(text)]))
    return found


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def row(name, figures, uses):
    print(f"{name:<20}" + "".join(f"{figure:>8}" for figure in figures) + "  " + uses)


def figures_of(m):
    return (m["lines"], f"{m['width']:.1f}", f"{m['blank']:.1f}", f"{m['joined']:.1f}", m["median"], m["p90"], m["p99"],
            m["longest"], m["statements"], m["macros"], m["three"], m["two"])


def table(sums):
    for name in FILES:
        row(name, ("lines", "B/line", "blank%", "joined%", "median", "p90", "p99", "longest", "stmts", "macros", "3x",
                   "2x"), "uses")
        for section, uses, text in sections(read(name)):
            row(section, figures_of(measure(text)), " ".join(uses))
        row("sum", figures_of(sums[name]), "")
        for stem in sums[name]["copies"]:
            print(f"    three copies: {stem}")
        print()


def selftest():
    """What is counted, counted in a few lines."""
    m = measure("/* @section x :\n   a; b; c; */\n\nstatic int memopt_i_f_avx2(int a) { return a; }\n"
                "static int memopt_i_f_neon(int a) {\n    for (a = 0; a < 3; ++a) { g(\";\"); }\n    a = 1; return a;\n"
                "}\n"
                "static int memopt_i_f_avx512(int a) {\n    if (a) return 1;\n    return a;\n}\n"
                "#define X(a) \\\n    do { a; } \\\n    while (0)\n")
    figures = [m[key] for key in ("lines", "statements", "macros", "longest", "median", "three", "two")]
    if figures != [15, 7, 3, 4, 4, 1, 0] or round(m["joined"]) != 8 or round(m["blank"]) != 7:
        sys.exit(f"house.py counts wrongly: {figures} {m['joined']} {m['blank']}")


def check(sums):
    selftest()
    broken = 0
    for what, key, limit in LIMITS:
        figures = [sums[name][key] for name in FILES]
        figure = max(figures) if key in ("joined", "width", "columns") else sum(figures)
        if not figure < limit:
            print(f"{what}: {figure:.4g}, not below {limit}")
            broken += 1
    size = os.path.getsize(os.path.join(HERE, "README.md"))
    if size > README_LIMIT:
        print(f"README.md: {size} bytes, more than {README_LIMIT}")
        broken += 1
    long = [i for i, line in enumerate(read("README.md").split("\n"), 1) if len(line) > 120 and not line.lstrip().startswith("|")]
    if long:
        print(f"README.md: more than 120 columns in lines {long}")
        broken += 1
    print(f"{len(LIMITS) + 2 - broken} limits of {len(LIMITS) + 2} hold")
    return broken > 0


def split(folder):
    for name in FILES:
        place = os.path.join(folder, os.path.splitext(name)[0])
        os.makedirs(place, exist_ok=True)
        for section, uses, text in sections(read(name)):
            with open(os.path.join(place, section + ".c"), "w", encoding="utf-8") as out:
                out.write("".join(f'#include "{used}.c"\n' for used in uses) + text)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--split":
        return split(sys.argv[2])
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    sums = {name: measure(read(name)) for name in FILES}
    return check(sums) if sys.argv[1:] else table(sums)


if __name__ == "__main__":
    sys.exit(main())
