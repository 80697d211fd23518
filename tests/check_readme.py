#!/usr/bin/env python3
"""check_readme.py - every block of C in README.md must stand, line by line, in a compiled example.

Lines are compared without their indentation. A block of preprocessor lines only is the way to include the header, and
stands at the top of every example. Usage: check_readme.py README.md examples/*.c
"""
import re, sys

def lines(text):
    return [l.strip() for l in text.splitlines() if l.strip()]

def main():
    readme, examples = sys.argv[1], [lines(open(p).read()) for p in sys.argv[2:]]
    blocks = re.findall(r'^```c\n(.*?)^```', open(readme).read(), re.M | re.S)
    bad = 0
    for block in map(lines, blocks):
        found = any(e[i:i + len(block)] == block for e in examples for i in range(len(e) - len(block) + 1))
        if not found:
            bad += 1
            print(f'{readme}: not in any example: {block[0]} ...')
    if '@@' in open(readme).read():
        bad += 1
        print(f'{readme}: @@ marks what was never filled in')
    print(f'{readme}: {len(blocks)} blocks of C, {bad} not in an example')
    sys.exit(bad != 0 or not blocks)

main()
