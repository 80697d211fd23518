#!/usr/bin/env python3
"""check_flight.py - in machine code of wgmma: no path touches a register of a product under way, or waits before exponentials.

Usage: check_flight.py FILE.cubin          (needs nvdisasm, as count_kernels.py)

A product by a group of warps (HGMMA) adds onto its sums, and reads its left from registers, until a wait (WARPGROUP.DEPBAR)
that leaves fewer groups under way; nothing in the processor holds an instruction back that comes in between. ptxas says
when it reads or writes sums too early, but not when it writes operands. Every path through a kernel is followed with the
groups that are under way on it. Exit status 1 when a path touches sums, writes operands, or ends before they are waited for."""
import re, sys
from count_kernels import Kernel, disassembled

def named(text, wide=1):
    """The registers that an argument names: R8, R8.64, [R8.64+0x10]."""
    found = set()
    for number, double in re.findall(r"\bR(\d+)(\.64)?", text):
        found |= set(range(int(number), int(number) + (2 if double else wide)))
    return found

def touched(i):
    """(written, read)"""
    parts = re.split(r",(?![^\[]*\])", i.arguments)
    wide = 4 if ".128" in i.op or i.op.startswith("LDSM") else 2 if re.search(r"\.(64|WIDE)", i.op) else 1
    if re.match(r"(STS|STG|STL|ST|LDGSTS|RED|BAR|BRA|EXIT|RET|WARP)\b", i.op):
        return set(), set().union(*[named(p, 1 if "[" in p else wide) for p in parts])
    return named(parts[0], wide), set().union(set(), *[named(p, wide if ".WIDE" in i.op else 1) for p in parts[1:]])

def left_under_way(i):
    """Groups, by a wait."""
    return int(i.arguments.split(",")[1], 16)

def after(i, groups, begun, most, wrong):
    """What is under way after an instruction: (sums, operands) of each group, and of the one that is being begun."""
    sums, operands = (frozenset().union(*[g[k] for g in groups + (begun,)]) for k in (0, 1))
    if i.op.startswith("HGMMA"):
        parts = [p.strip() for p in i.arguments.split(",")]
        width = int(re.search(r"64x(\d+)x16", i.op).group(1)) // 2
        left = frozenset(range(int(parts[1][1:]), int(parts[1][1:]) + 4)) if re.match(r"R\d+$", parts[1]) else frozenset()
        if left & sums:
            wrong.add(f"{i.op} {i.arguments}: its left is sums under way")
        if parts[0] != "RZ":
            begun = (begun[0] | frozenset(range(int(parts[0][1:]), int(parts[0][1:]) + width)), begun[1] | left)
        return (groups + (begun,), (frozenset(), frozenset())) if "gsb0" in i.arguments else (groups, begun)
    if i.op.startswith("WARPGROUP.DEPBAR"):
        return groups[len(groups) - min(left_under_way(i), len(groups)):], begun
    written, read = touched(i)
    if (written | read) & sums:
        wrong.add(f"{i.op} {i.arguments}: touches sums under way")
    if written & operands:
        wrong.add(f"{i.op} {i.arguments}: writes operands under way")
    if i.op == "MUFU.EX2" and len(groups) < most:
        wrong.add(f"{i.op} {i.arguments}: beside {len(groups)} groups under way, not {most}")
    if i.op == "EXIT" and not i.predicate and (groups or begun[0]):
        wrong.add("EXIT with products under way")
    return groups, begun

def check(kernel):
    wrong, seen, todo = set(), set(), [(0, (), (frozenset(), frozenset()))]
    most = max([left_under_way(i) for b in kernel.blocks for i in b if i.op.startswith("WARPGROUP.DEPBAR")], default=0)
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        block, groups, begun = state
        for i in kernel.blocks[block]:
            groups, begun = after(i, groups, begun, most, wrong)
        todo += [(n, groups, begun) for n in kernel.next[block]]
    return wrong

def main():
    bad = kernels = 0
    for name, body in disassembled(sys.argv[1]):
        if "HGMMA" in body:
            kernels += 1
            wrong = check(Kernel(name, body.splitlines()))
            bad += bool(wrong)
            print("\n".join(f"{name}: {w}" for w in sorted(wrong)[:8]), end="\n" if wrong else "")
    print(f"{kernels} kernels with products of groups, {bad} that touch what is under way")
    return 1 if bad or not kernels else 0

if __name__ == "__main__":
    sys.exit(main())
