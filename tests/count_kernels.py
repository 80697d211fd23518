#!/usr/bin/env python3
"""count_kernels.py - count what the hot kernels issue and move, in their machine code, against tests/kernels.txt.

Usage: count_kernels.py FILE.cubin [--rows ROWS] [--table | --list PATTERN | --fused OTHER] | --tool   (needs nvdisasm: of the CUDA Toolkit, or `make deps`)
  --rows ROWS     against that table, not tests/kernels.txt
  --table         print every row with its prediction
  --tool          only whether there is an nvdisasm
  --fused OTHER   whether a kernel's arithmetic differs from that of a cubin that was compiled without fusing
  --list PATTERN  for kernels whose name matches: the accesses of each region's widest path, to write a row from

A row of tests/kernels.txt names a kernel, a region (`all`: from its entry to an exit; `loop`: once around one of its
loops), and what one thread does there for so many elements: loads and stores of global memory by their width, and
instructions it cannot do without (two roots, say); a predicated access of a width that the row has not is left out. The
hot path is the shortest one through the region that makes exactly these accesses and at least these instructions; at a
BRA.DIV, which warps take whose lanes have parted, it goes on. Where a compiler splits a vector store, or a guard forces
elements one by one, there is no such path any more, and the row fails. Rows fail as well where the path takes more
instructions an element than the row says and 5 % (fewer than 15 %: the row is to be tightened), or where the kernel uses
local memory.

The prediction, a fraction of the time that a copy of as many bytes takes on an H200, is the least of
  1
  copy / issue   instructions * 32 lanes at 33.4e12 lane instructions a second (132 * 4 * 32 * 1.98 GHz)
  copy / pipe    the same for each kind of unit, which take 1/2 to 1/8 of that rate (tables of the CUDA C++ guide)
  copy / L2      the same bytes at 5.5e12 a second, but whole sectors of 32 bytes for a store whose lanes lie apart: the
                 text shows that by neighbouring stores of one thread with the same base register
with copy = bytes / 4.3e12. It is a prediction, nothing measured: latency, occupancy and launches are not in it.

Rows of region `tensor` are loops of products on tensor cores: name | kernel | tensor | HMMA of 16 x 8 x 16 that all kinds
of warps issue once around | of each kind, with ; between, what is on its way around | fraction. The path of a kind is
the shortest one without access to global memory, so that of a tile that every row sees whole, copied by 16 bytes. The
fraction is that of the time at the tensor cores' full rate, 4 cycles of a scheduler for a product, by the largest of
  issue     instructions of all kinds, a cycle each
  shared    bytes that go to and from shared memory, asynchronous copies into it with them, at 128 a cycle for all four
            schedulers; a load counts by its width, as if no two lanes read the same, but once where all do: [UR]
  pipe      as above
A product of a group of warps, HGMMA.64x64x16, is eight of each warp; it reads 16 x 64 of its right from shared memory for
all four, and 64 x 16 of its left, unless that is in registers.
It fails below the fraction of the row, and where it is more by 5 %, so that the row is tightened. mma.sync itself does not
reach the full rate on sm_90, which wgmma alone has."""
import glob, operator, os, re, shutil, subprocess, sys, sysconfig

LANES, COPY, L2 = 132 * 4 * 32 * 1.98e9, 4.3e12, 5.5e12
HERE = os.path.dirname(os.path.abspath(__file__))
# Lanes a clock and multiprocessor, of 128 that are issued: arithmetic throughput, compute capability 9.0.
PIPES = [("special", 16, r"MUFU|F2I|I2F|F2F\b|F2F\.|POPC|FLO"), ("double", 64, r"DADD|DMUL|DFMA|DSETP"),
         ("memory", 32, r"LDG|STG|LDS|STS|SHFL|ATOM|RED|LDSM|LDC"),
         ("multiply", 64, r"IMAD|UIMAD|IDP"), ("float", 128, r"FFMA|FMUL|FADD|HFMA2|HADD2|HMUL2"),
         ("integer", 64, r"LOP3|IADD3|VIADD|SHF|LEA|ISETP|FSETP|PRMT|SEL|FSEL|FMNMX|VIMNMX|IMNMX|F2FP|IABS|SGXT|BMSK|PLOP3|DPX")]

def nvdisasm():
    packaged = os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "*", "bin", "nvdisasm")
    for path in [os.environ.get("NVDISASM"), shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm"] + glob.glob(packaged):
        if path and os.path.exists(path):
            return path
    return None

class Instruction:
    def __init__(self, line):
        m = re.match(r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_.x]+)\s*(.*?)\s*;", line)
        self.predicate, self.op, self.arguments = m.group(1), m.group(2), m.group(3)
        self.access = None
        if re.match(r"(LDG|STG)\b", self.op):
            bits = re.search(r"\.(U8|S8|U16|S16|64|128|256)\b", self.op)
            width = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}[bits.group(1)] if bits else 4
            self.access = ("L" if self.op.startswith("LDG") else "S") + str(width)

    def target(self):
        m = re.search(r"`\(([^)]*)\)", self.arguments)
        return m.group(1) if m else None

class Kernel:
    """Basic blocks, their successors, and natural loops."""
    def __init__(self, name, lines):
        self.name, self.blocks, self.labels = name, [[]], {}
        for line in lines:
            m = re.match(r"(\.L_x_\d+|\$[^:]*):", line)
            if m:
                if self.blocks[-1]:
                    self.blocks.append([])
                self.labels[m.group(1)] = len(self.blocks) - 1
            elif re.match(r"\s*/\*[0-9a-f]+\*/\s+[@A-Z]", line):
                i = Instruction(line)
                self.blocks[-1].append(i)
                if re.match(r"(BRA|EXIT|RET|BRX|BPT|KILL)\b", i.op):
                    self.blocks.append([])
        self.local = sum(re.match(r"(LDL|STL)\b", i.op) is not None for b in self.blocks for i in b)
        self.next = [self.successors(b) for b in range(len(self.blocks))]
        self.order_blocks()

    def successors(self, b):
        last = self.blocks[b][-1] if self.blocks[b] else None
        after = [b + 1] if b + 1 < len(self.blocks) else []
        if last is None or not re.match(r"(BRA|EXIT|RET|BRX|BPT|KILL)\b", last.op):
            return after
        always = not last.predicate and not re.match(r"!?U?P\d", last.arguments) and not last.op.startswith("BRA.DIV")
        to = [self.labels[last.target()]] if last.op.startswith("BRA") and last.target() in self.labels else []
        return to if always else to + after

    def order_blocks(self):
        """Reverse postorder from the entry; an edge against it is a loop's way back."""
        seen, post, stack = {0}, [], [(0, iter(self.next[0]))]
        while stack:
            b, following = stack[-1]
            for n in following:
                if n not in seen:
                    seen.add(n)
                    stack.append((n, iter(self.next[n])))
                    break
            else:
                post.append(b)
                stack.pop()
        self.order = post[::-1]
        self.place = {b: i for i, b in enumerate(self.order)}
        self.loops = {}
        before = {b: [] for b in self.order}
        for a in self.order:
            for b in self.next[a]:
                before[b].append(a)
        for a in self.order:
            for h in self.next[a]:
                if self.place[h] <= self.place[a]:
                    body, todo = {h}, [a]
                    while todo:
                        x = todo.pop()
                        if x not in body:
                            body.add(x)
                            todo += before[x]
                    members, latches = self.loops.setdefault(h, (set(), set()))
                    members |= body
                    latches.add(a)

    def regions(self, kind):
        """(first block, blocks, last blocks)"""
        if kind == "all":
            exits = {b for b in self.order if self.blocks[b] and self.blocks[b][-1].op.startswith("EXIT")}
            return [(0, set(self.order), exits)]
        return [(h, members, latches) for h, (members, latches) in sorted(self.loops.items())]

    def cost(self, b, needs, names=None):
        accesses, wanted = {}, [0] * len(needs)
        for i in self.blocks[b]:
            if i.access and (names is None or i.access in names or not i.predicate):
                accesses[i.access] = accesses.get(i.access, 0) + 1
            for k, (pattern, _) in enumerate(needs):
                wanted[k] += re.match(pattern, i.op) is not None
        return accesses, wanted, len(self.blocks[b])

    def shortest(self, region, want, needs):
        """The fewest instructions with exactly the accesses `want` (a dictionary), at least `needs`; its blocks or None."""
        first, members, last = region
        names = sorted(want)
        goal = tuple(want[n] for n in names) + tuple(limit for _, limit in needs)
        costs = {b: self.cost(b, needs, names) for b in members}
        adds = {b: tuple(accesses.get(n, 0) for n in names) + tuple(wanted) for b, (accesses, wanted, _) in costs.items()}
        ahead = tuple(map(sum, zip(*adds.values()))) # at most what is still to come
        best, found = {first: {(0,) * len(goal): (0, None)}}, None
        for b in (x for x in self.order if x in members and self.place[x] >= self.place[first]):
            here, length = adds[b], costs[b][2]
            reach = tuple(map(operator.sub, goal, ahead)) # the least before this block
            ahead = tuple(map(operator.sub, ahead, here))
            if b not in best or not costs[b][0].keys() <= want.keys():
                continue
            ended = {}
            for state, (count, _) in best[b].items():
                if any(map(operator.lt, state, reach)):
                    continue
                after = state
                if any(here):
                    after = tuple(map(operator.add, state, here))
                    if any(map(operator.gt, after[:len(names)], goal)):
                        continue
                    after = tuple(map(min, after, goal))
                if after not in ended or ended[after][0] > count + length:
                    ended[after] = (count + length, state)
            if b in last and goal in ended and (not found or found[0] > ended[goal][0]):
                found = (ended[goal][0], b, ended[goal][1])
            for n in self.next[b]:
                if n in members and self.place[n] > self.place[b]:
                    for after, (count, state) in ended.items():
                        old = best.setdefault(n, {}).get(after)
                        if not old or old[0] > count:
                            best[n][after] = (count, (b, state))
        if not found:
            return None
        path, b, state = [], found[1], found[2]
        while b is not None:
            path.append(b)
            step = best[b][state][1]
            b, state = step if step else (None, None)
        return path[::-1]

    def widest(self, region):
        """The path that moves the most bytes, by its accesses: what --list tells."""
        first, members, last = region
        best, found = {first: (0, 0, {})}, None
        for b in (x for x in self.order if x in members and self.place[x] >= self.place[first]):
            if b not in best:
                continue
            accesses, _, length = self.cost(b, [])
            moved, count, have = best[b]
            have = {n: have.get(n, 0) + accesses.get(n, 0) for n in set(have) | set(accesses)}
            now = (moved + sum(int(n[1:]) ** 2 * c for n, c in accesses.items()), count - length, have)
            if b in last and (not found or now[:2] > found[:2]):
                found = now
            for n in self.next[b]:
                if n in members and self.place[n] > self.place[b] and (n not in best or best[n][:2] < now[:2]):
                    best[n] = now
        return found

def sectors(path):
    """Bytes of whole 32-byte sectors that a lane's stores touch in L2: stores side by side in a thread, from one base
    register, keep the lanes of each of them apart by the whole run."""
    total, runs, written = 0, {}, {}
    for i in path:
        if i.access and i.access[0] == "S":
            m = re.search(r"\[(R\d+)(?:\.64)?(?:\+(-?0x[0-9a-f]+))?\]", i.arguments)
            if m:
                key = (m.group(1), written.get(m.group(1), 0), int(i.access[1:]))
                runs.setdefault(key, []).append(int(m.group(2) or "0", 16))
        m = re.match(r"(R\d+)", i.arguments)
        if m and not (i.access and i.access[0] == "S"):
            wide = 2 if re.search(r"\.(64|WIDE)", i.op) else 1
            for k in range(wide):
                register = f"R{int(m.group(1)[1:]) + k}"
                written[register] = written.get(register, 0) + 1
    for (_, _, width), offsets in runs.items():
        offsets.sort()
        while offsets:
            run = [offsets.pop(0)]
            while run[-1] + width in offsets:
                offsets.remove(run[-1] + width)
                run.append(run[-1] + width)
            span = min(width * len(run), 32)
            total += span * len(run)
    return total

def disassembled(cubin):
    text = subprocess.run([nvdisasm(), "-c", cubin], capture_output=True, text=True, check=True).stdout
    sections = re.split(r"^\.text\.(\S+):$", text, flags=re.M)[1:]
    mangled, bodies = sections[::2], sections[1::2]
    try:
        names = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True).stdout.splitlines()
    except OSError:
        names = list(mangled)
    return [(re.sub(r"^void |\(anonymous namespace\)::|\(.*", "", n.replace("(anonymous namespace)::", "")), body) for n, body in zip(names, bodies)]

def rows(path):
    for number, line in enumerate(open(path), 1):
        line = line.split("#")[0].strip()
        if line:
            fields = [f.strip() for f in line.split("|")]
            if len(fields) != (6 if fields[2:3] == ["tensor"] else 8):
                sys.exit(f"{path}:{number}: {len(fields)} fields, not 8, or 6 for `tensor`")
            yield fields

def multiset(text):
    return {n: int(c) for n, c in (x.rsplit("x", 1) for x in text.split())}

def predicted(path, elements, moved):
    copy = moved * elements / COPY
    limits = {"copy": 1.0, "issue": copy / (len(path) / LANES)}
    for name, rate, pattern in PIPES:
        count = sum(re.match(pattern, i.op) is not None for i in path)
        if count:
            limits[name] = copy / (count * (128 / rate) / LANES)
    stored = sum(int(i.access[1:]) for i in path if i.access and i.access[0] == "S")
    limits["L2"] = copy / ((moved * elements + sectors(path) - stored) / L2)
    return min(limits.items(), key=lambda x: x[1])

def check(kernels, fields, table):
    name, pattern, region, elements, moved, accesses, needs, limit = fields
    found = [k for k in kernels if re.search(pattern, k[0])]
    if len(found) != 1:
        return f"{name}: {len(found)} kernels match {pattern}"
    kernel = Kernel(*(found[0][0], found[0][1].splitlines()))
    needs = needs.strip("-")
    wanted = [(re.escape(n), c) for n, c in multiset(needs).items()]
    paths = [p for p in (kernel.shortest(r, multiset(accesses), wanted) for r in kernel.regions(region)) if p]
    if kernel.local:
        return f"{name}: {kernel.local} instructions of local memory"
    if not paths:
        return f"{name}: no path makes {accesses}" + (f" with {needs}" if needs else "") + ": see --list"
    path = min(([i for b in p for i in kernel.blocks[b]] for p in paths), key=len)
    each = len(path) / float(elements)
    why, fraction = predicted(path, float(elements), float(moved))
    if table:
        print(f"| {name:42} | {float(moved):5.2f} | {each:6.1f} | {fraction:4.2f} | {why:8} |")
    if each > float(limit) * 1.05:
        return f"{name}: {each:.1f} instructions an element, {limit} in the table"
    if each < float(limit) * 0.85:
        return f"{name}: {each:.1f} instructions an element, {limit} in the table: tighten it"
    return None

def tensor_cycles(path):
    """Of one scheduler, for one warp of each kind on each of four schedulers."""
    cycles = {"issue": len(path), "shared": 0}
    for i in path:
        if re.match(r"LDSM|LDGSTS", i.op):
            cycles["shared"] += 16 * (int(re.search(r"M88\.(\d)|MT88\.(\d)", i.op).group(0)[-1]) if i.op[3] == "M" else 4) // 4
        elif i.op.startswith("HGMMA.64x64x16"):
            cycles["shared"] += 16 if re.match(r"R\d+, R\d+,", i.arguments) else 32
        elif re.match(r"(LDS|STS)\b", i.op) and (i.predicate or "").strip() != "@!PT":
            bits = re.search(r"\.(64|128)\b", i.op)
            cycles["shared"] += 4 * (int(bits.group(1)) // 32 if bits and "[UR" not in i.arguments else 1)
    for name, rate, pattern in PIPES:
        cycles[name] = sum(re.match(pattern, i.op) is not None for i in path) * 128 / rate
    return cycles

def check_tensor(kernels, fields, table):
    name, pattern, _, products, kinds, limit = fields
    found = [k for k in kernels if re.search(pattern, k[0])]
    if len(found) != 1:
        return f"{name}: {len(found)} kernels match {pattern}"
    kernel = Kernel(found[0][0], found[0][1].splitlines())
    if kernel.local:
        return f"{name}: {kernel.local} instructions of local memory"
    path = []
    for kind in kinds.split(";"):
        wanted = [(re.escape(n), c) for n, c in multiset(kind).items()]
        paths = [x for x in (kernel.shortest(r, {}, wanted) for r in kernel.regions("loop")) if x]
        if not paths:
            return f"{name}: no way around has {kind.strip()}"
        path += min(([i for b in x for i in kernel.blocks[b]] for x in paths), key=len)
    made = sum(1 if i.op.startswith("HMMA.16816") else 8 if i.op.startswith("HGMMA.64x64x16") else 0 for i in path)
    if made != int(products):
        return f"{name}: {made} products, {products} in the table"
    cycles = tensor_cycles(path)
    why = max(cycles, key=cycles.get)
    fraction = 4 * int(products) / max(cycles[why], 4 * int(products))
    if table:
        share = [cycles[n] / int(products) for n in ("issue", "shared", "special")]
        print(f"| {name:30} | {products:>4} | {share[0]:4.2f} | {share[1]:4.2f} | {share[2]:4.2f} | {fraction:4.2f} | {why if fraction < 1 else 'tensor':7} |")
    if fraction < float(limit) - 0.005:
        return f"{name}: {fraction:.3f} of the tensor cores' rate by {why}, {limit} in the table"
    if fraction > float(limit) * 1.05:
        return f"{name}: {fraction:.3f} of the tensor cores' rate, {limit} in the table: tighten it"
    return None

def fused(kernels, others):
    """Kernels whose arithmetic differs from that of a cubin that was compiled without fusing."""
    def arithmetic(body):
        return sorted(re.findall(r"\b[DFH](?:FMA|MUL|ADD)2?\b", body))
    plain = dict(others)
    wrong = [name for name, body in kernels if arithmetic(body) != arithmetic(plain.get(name, ""))]
    print("\n".join([f"fused by ptxas: {name}" for name in wrong] + [f"{len(kernels)} kernels, {len(wrong)} differ"]))
    return 1 if wrong or not kernels else 0

def main():
    arguments = sys.argv[1:]
    if not nvdisasm():
        print("no nvdisasm here, so nothing was counted: make deps")
        return 77
    if "--tool" in arguments:
        print(nvdisasm())
        return 0
    kernels = disassembled(arguments[0])
    if "--fused" in arguments:
        return fused(kernels, disassembled(arguments[arguments.index("--fused") + 1]))
    if "--list" in arguments:
        for name, body in kernels:
            if re.search(arguments[arguments.index("--list") + 1], name):
                k = Kernel(name, body.splitlines())
                print(f"{name}: {len(k.order)} blocks, {k.local} of local memory")
                for kind in ("all", "loop"):
                    for r in k.regions(kind):
                        w = k.widest(r)
                        if w and w[2]:
                            print(f"  {kind:5} {-w[1]:5} instructions  " + " ".join(f"{n}x{c}" for n, c in sorted(w[2].items())))
        return 0
    if "--table" in arguments:
        print("| kernel | bytes | instructions | of a copy | bound by |\n|---|---|---|---|---|")
    table = arguments[arguments.index("--rows") + 1] if "--rows" in arguments else os.path.join(HERE, "kernels.txt")
    listed = list(rows(table))
    wrong = [check(kernels, f, "--table" in arguments) for f in listed if f[2] != "tensor"]
    if "--table" in arguments:
        print("\n| loop | products | cycles of a product: issue | shared | special | of tensor peak | bound by |\n|---|---|---|---|---|---|---|")
    wrong = [x for x in wrong + [check_tensor(kernels, f, "--table" in arguments) for f in listed if f[2] == "tensor"] if x]
    print("\n".join(wrong + [f"{len(listed)} rows, {len(wrong)} wrong"]))
    return 1 if wrong else 0

if __name__ == "__main__":
    sys.exit(main())
