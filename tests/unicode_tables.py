#!/usr/bin/env python3
"""unicode_tables.py - the tables of examples/finetune/unicode.h, made from a database of Unicode 16.0.0.

    unicode_tables.py           compare them with the file; exit status 1: they differ, 77: no such database here
    unicode_tables.py --write   write them into the file, between its two marks

The database is Python's unicodedata (Python 3.14 has 16.0.0), or the package unicodedata2 == 16.0.0.
"""
import os, sys

VERSION = "16.0.0"
HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
FILE = os.path.join(HERE, "examples", "finetune", "unicode.h")
BEGIN, END = "/* tables: begin */\n", "/* tables: end */\n"
CODES = range(0x110000)
SPACES = {*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
# Alphabetic, though neither letters nor marks nor numbers of letters; and joiners: \w has them.
WORDS = {0x200C, 0x200D, *range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
         *range(0x1F170, 0x1F18A)}
VOWELS_AND_LAST = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)} # of Hangul: composed by rule
OTHER, LETTER, DIGIT, NUMBER, SPACE, WORD, COMPOSES = 0, 1, 2, 3, 4, 5, 8 # as unicode.h names them
MARKS = {"Nd": DIGIT, "Nl": DIGIT, "No": NUMBER, "Pc": WORD, "Mn": WORD, "Mc": WORD, "Me": WORD}


def database():
    import unicodedata
    found = [unicodedata]
    try:
        import unicodedata2
        found.append(unicodedata2)
    except ImportError:
        pass
    for module in found:
        if module.unidata_version == VERSION:
            return module
    print(f"no Unicode {VERSION} here, but {unicodedata.unidata_version}: pip install unicodedata2=={VERSION}")
    sys.exit(77)


def class_of(data, code):
    category = data.category(chr(code))
    if code in SPACES:
        return SPACE
    if category[0] == "L":
        return LETTER
    return MARKS.get(category, WORD if code in WORDS else OTHER)


def decompositions(data):
    """{code: (one or two codes)}, canonical, one step."""
    texts = {code: data.decomposition(chr(code)) for code in CODES}
    return {code: tuple(int(x, 16) for x in text.split()) for code, text in texts.items() if text and text[0] != "<"}


def runs(values):
    """(first code, value) wherever another value begins."""
    return [(code, value) for code, value in enumerate(values) if not code or value != values[code - 1]]


def table(name, what, numbers):
    lines, line = [], ""
    for number in map(str, numbers):
        if len(line) + len(number) + 1 > 120:
            lines.append(line)
            line = ""
        line += number + ","
    lines.append(line.rstrip(","))
    return f"/* {what} */\nstatic const uint32_t {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


def tables(data):
    parts = decompositions(data)
    pairs = {code: part for code, part in parts.items() if len(part) == 2}
    kept = {code for code in CODES if not 0xD800 <= code < 0xE000 and data.normalize("NFC", chr(code)) == chr(code)}
    seconds = {part[1] for code, part in pairs.items() if code in kept} | VOWELS_AND_LAST
    orders = [data.combining(chr(code)) for code in CODES]
    composes = {code for code in CODES if orders[code]} | seconds | (parts.keys() - kept)
    classes = [class_of(data, code) | (COMPOSES if code in composes else 0) for code in CODES]
    return (
        table("unicode_classes", "first code of a run << 4 | its class", [code << 4 | c for code, c in runs(classes)])
        + table("unicode_orders", "first code of a run << 8 | its canonical combining class",
                [code << 8 | order for code, order in runs(orders)])
        + table("unicode_singles", "code, and the one it stands for",
                [x for code, part in sorted(parts.items()) if len(part) == 1 for x in (code, part[0])])
        + table("unicode_pairs", "code << 1 | whether it is never composed, and its two parts",
                [x for code, part in sorted(pairs.items()) for x in (code << 1 | (code not in kept), *part)]))


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit(__doc__)
    made = tables(database())
    with open(FILE, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    if sys.argv[1:]:
        with open(FILE, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + made + END + after)
    elif old != made:
        sys.exit(f"{FILE}: its tables are not those of Unicode {VERSION}: unicode_tables.py --write")
    print(f"tables of Unicode {VERSION}, {made.count(chr(10))} lines")


main()
