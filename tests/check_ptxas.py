#!/usr/bin/env python3
"""check_ptxas.py - read what `nvcc -Xptxas -v` says of every kernel: registers, spills, local stack.

Usage: nvcc ... -Xptxas -v ... 2>&1 | check_ptxas.py [--table]      (--table prints every kernel's line)
Fails when a kernel spills registers, or keeps something in local memory and is not named in ALLOWED, or when there is
no kernel at all."""
import re, subprocess, sys

ALLOWED = {  # kernels, without their arguments, and architectures that may have a local stack (never spills), and why
}

def demangled(names):
    try:
        out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.splitlines()
    except OSError:
        out = names
    return dict(zip(names, out if len(out) == len(names) else names))

def kernels(text):
    """(mangled name, architecture, stack, spill stores, spill loads, registers) of each entry function."""
    entry, found = None, []
    for line in text.splitlines():
        m = re.search(r"Compiling entry function '(\S+)' for '(\w+)'", line)
        if m:
            entry = [m.group(1), m.group(2), None, None, None]
        m = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if m and entry:
            entry[2:] = [int(x) for x in m.groups()]
        m = re.search(r"Used (\d+) registers", line)
        if m and entry:
            found.append(tuple(entry) + (int(m.group(1)),))
            entry = None
    return found

def main():
    found = kernels(sys.stdin.read())
    names = demangled(sorted({k[0] for k in found}))
    bad = 0
    for mangled, arch, stack, stores, loads, registers in sorted(found, key=lambda k: (k[1], k[0])):
        name = re.sub(r"\(.*", "", names[mangled].replace("(anonymous namespace)::", "").replace("static ", ""))
        plain = re.sub(r"^.*?memopt_i_cuda::(\w+).*$", r"\1", name)
        wrong = stores or loads or (stack and (plain, arch) not in ALLOWED)
        bad += bool(wrong)
        if wrong or "--table" in sys.argv:
            print(f"{arch:8}{registers:5} registers {stack:6} stack {stores:5} + {loads} spilled  {name}{'  <-' if wrong else ''}")
    archs = sorted({k[1] for k in found})
    print(f"{len(names)} kernels for {', '.join(archs) or 'nothing'}: {bad} with spills or a local stack")
    return 1 if bad or not found else 0

sys.exit(main())
