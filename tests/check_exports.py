#!/usr/bin/env python3
"""check_exports.py - load what a ledger exports, and compare it with a naive model of what was booked.

Usage: check_exports.py TOOL        (build/export_tool; it plants the events and writes the exports)

JSON and pickle are read by Python's own modules and must be the same document. That document is compared with the
model block by block and event by event, and with what the viewer of PyTorch's snapshots needs: its reader knows few
opcodes and small numbers only, and walking back through the events, every block must lie in a segment at every moment.
"""
import codecs
import json, os, pickle, pickletools, subprocess, sys, tempfile

TAGS = ["other", "parameters", "gradients", "optimizer", "activations", "checkpoints", "scratch", "communication"]
OVERLAPPING = {1, 4}  # scenarios whose blocks overlap, so that some are left out

class Check:
    def __init__(self):
        self.failures, self.name = [], ""
    def __call__(self, good, what):
        if not good:
            self.failures.append(f"{self.name}: {what}")
check = Check()

# ---- the model: everything again from the log, the slow way ----
class Model:
    def __init__(self, path):
        self.names = [t.encode() for t in TAGS]
        self.live, self.listed = {}, {}           # lists of blocks by address; those in the table by address
        self.blocks = [0] * 12                    # how many of each tag
        self.segments, self.unlisted = {}, []     # in the table by base; the others
        self.committed = self.committed_peak = 0
        self.step = self.layer = 0
        self.events, self.clock = [], 0
        self.usage = {}                           # tag: allocs, frees, failed, retried, peak, at_peak
        self.total_peak = 0
        self.last_failed = None
        self.sums, self.all = {}, 0               # live bytes of each tag and of all
        for line in open(path):
            call, a, b, c, name, status = line.split(" ")
            name = None if name == "-" else bytes.fromhex(name[1:])
            check(getattr(self, call)(int(a), int(b), int(c), name) == int(status), f"status of: {line.strip()}")

    def tables(self, blocks, events, segments, _):
        self.block_capacity, self.event_capacity, self.segment_capacity = blocks, events, segments
        return 0
    def tag(self, _a, _b, _c, name):
        if len(self.names) == 12:
            return -3
        cut = 31
        while len(name) > 31 and cut and name[cut] & 0xC0 == 0x80:  # not inside a character
            cut -= 1
        self.names.append(name[:cut])
        return 0
    def label(self, step, layer, _c, _n):
        self.step, self.layer = step, layer
        return 0
    def count(self, tag, what, n=1):
        u = self.usage.setdefault(tag, dict(allocs=0, frees=0, failed=0, retried=0, peak=0, at_peak=0))
        u[what] += n
    def now(self, tag=None):
        return sum(b["bytes"] for same in self.live.values() for b in same if tag is None or b["tag"] == tag)
    def inside(self, address):
        return any(base <= address < base + s[0] for base, s in self.segments.items())
    def event(self, action, tag, size, address, name, listed=False, free=None):
        self.clock += 700
        self.events.append(dict(action=action, tag=tag, size=size, addr=address, name=name, step=self.step, layer=self.layer,
                                time=self.clock, alone=listed and not self.inside(address), free=free, totals=self.totals()))
    def totals(self):
        return dict(self.sums)

    def add(self, tag, size, address, name):
        if tag >= len(self.names):
            return -1
        if self.all + size >= 2**64:
            return -2
        b = dict(tag=tag, bytes=size, address=address, name=name, step=self.step, layer=self.layer)
        b["listed"] = address != 0 and address not in self.listed and len(self.listed) < self.block_capacity
        if b["listed"]:
            self.listed[address] = b
        self.live.setdefault(address, []).append(b)
        self.blocks[tag] += 1
        self.book(tag, size)
        self.count(tag, "allocs")
        u = self.usage[tag]
        u["peak"] = max(u["peak"], self.sums[tag])
        if self.all > self.total_peak:
            self.total_peak = self.all
            for t in range(len(self.names)):
                self.count(t, "at_peak", self.sums.get(t, 0) - self.usage.get(t, {}).get("at_peak", 0))
        self.event("alloc", tag, size, address, name, b["listed"])
        return 0
    def book(self, tag, size):
        self.sums = {**self.sums, tag: self.sums.get(tag, 0) + size}
        self.all += size

    def remove(self, tag, size, address, _n):
        if tag >= len(self.names):
            return -1
        if size > self.sums.get(tag, 0) or not self.blocks[tag]:
            return -6
        same = [b for b in self.live.get(address, []) if (b["tag"], b["bytes"]) == (tag, size)]
        same.sort(key=lambda b: not b["listed"])
        if not same:
            check(len(self.listed) == sum(self.blocks), "the log takes out a block that is none while not all are listed")
            return -6
        b = same[0]
        self.live[address] = [x for x in self.live[address] if x is not b]
        self.blocks[tag] -= 1
        if b["listed"]:
            del self.listed[address]
        self.book(tag, -size)
        self.count(tag, "frees")
        self.event("free", tag, size, address, b["name"] if b["listed"] else None, b["listed"])
        return 0
    def failed(self, tag, size, _c, _n):
        if tag >= len(self.names):
            return -1
        self.count(tag, "failed")
        self.event("failed", tag, size, 0, None, free=max(self.committed - self.all, 0))
        self.last_failed = self.events[-1]
        return 0
    def retried(self, tag, size, _c, _n):
        if tag >= len(self.names):
            return -1
        self.count(tag, "retried")
        self.event("retried", tag, size, 0, None)
        return 0
    def reserve(self, base, size, committed, _n):
        if len(self.segments) < self.segment_capacity:
            self.segments[base] = [size]
            self.event("reserve", 0, size, base, None)
        else:
            self.unlisted.append((base, size))
        self.add_committed(committed)
        return 0
    def release(self, base, size, committed, _n):
        self.committed -= committed
        if base in self.segments:
            del self.segments[base]
            self.event("release", 0, size, base, None)
        else:
            self.unlisted.remove((base, size))
        return 0
    def commit(self, _start, size, _c, _n):
        self.add_committed(size)
        return 0
    def add_committed(self, size):
        self.committed += size
        self.committed_peak = max(self.committed_peak, self.committed)
    def recent(self):
        return self.events[-self.event_capacity:] if self.event_capacity else []

# ---- the document ----
codecs.register_error("marks", lambda e: ("?" * (e.end - e.start), e.end))
def plain(name):  # control characters, and each byte that is no UTF-8, are question marks
    return "".join(c if c >= " " and c != "\x7f" else "?" for c in bytes(name).decode("utf-8", "marks"))
def frames(model, tag, name, step, layer):
    tag_name = plain(model.names[tag])
    return [dict(filename=f"step {step}", line=layer, name=tag_name if name is None else plain(name)),
            dict(filename="memopt", line=tag, name=tag_name)]
def lists(x):  # tuples as JSON has them
    if isinstance(x, (list, tuple)):
        return [lists(i) for i in x]
    return {k: lists(v) for k, v in x.items()} if isinstance(x, dict) else x

SEGMENT_KEYS = ["device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
                "segment_type", "segment_pool_id", "frames", "blocks"]
def check_segments(model, document, scenario):
    shown, expected = {}, set()
    for s in document["segments"]:
        check(list(s) == SEGMENT_KEYS, "the keys of a segment")
        check((s["device"], s["stream"], s["segment_type"], s["frames"]) == (0, 0, "large", []), "the constants of a segment")
        at, active = s["address"], 0
        for b in s["blocks"]:
            check(sorted(b) == ["address", "frames", "requested_size", "size", "state"], "the keys of a block")
            check(b["address"] == at, f"the blocks tile segment {s['address']}")
            at += b["size"]
            if b["state"] == "active_allocated":
                check(b["address"] not in shown, "a block is shown once")
                check(b["requested_size"] == b["size"], "requested_size of a block")
                shown[b["address"]], active = b, active + b["size"]
            else:
                check((b["state"], b["requested_size"], b["frames"]) == ("inactive", 0, []) and b["size"] > 0, "a free block")
        check(at == s["address"] + s["total_size"], f"the blocks of segment {s['address']} end where it ends")
        check(s["allocated_size"] == s["active_size"] == s["requested_size"] == active, "the sums of a segment")
        expected.add((s["address"], s["total_size"]))
    alone = {(a, b["bytes"]) for a, b in model.listed.items() if not model.inside(a)}
    check(expected == alone | {(base, s[0]) for base, s in model.segments.items()}, "the segments")
    check(len(document["segments"]) == len(expected), "a segment is shown once")
    left_out = 0
    for address, b in model.listed.items():
        got = shown.pop(address, None)
        if got:
            check(got["size"] == b["bytes"] and got["frames"] == frames(model, b["tag"], b["name"], b["step"], b["layer"]), f"block {address}")
        else:  # it overlaps one before it, or the end of its segment
            left_out += 1
            base, size = next(((base, s[0]) for base, s in model.segments.items() if base <= address < base + s[0]), (0, 2**65))
            check(size < 2**65, f"block {address} lies in no segment, and is no segment of its own")
            check(address + b["bytes"] > base + size or any(o < address < o + x["bytes"] for o, x in model.listed.items()), f"block {address} is left out")
    check(not shown, "blocks that were never booked")
    check(scenario in OVERLAPPING or not left_out, "no block is left out")
    check(scenario not in OVERLAPPING - {1} or left_out, "this scenario has no overlapping blocks")

def viewer_events(model):
    for e in model.recent():
        segment = ["segment_alloc"] if e["alone"] else []
        actions = dict(alloc=segment + ["alloc"], free=["free_requested", "free_completed"] + [s.replace("alloc", "free") for s in segment],
                       failed=["oom"], reserve=["segment_alloc"], release=["segment_free"], retried=[])[e["action"]]
        for action in actions:
            want = dict(action=action, addr=e["addr"], size=e["size"], stream=0, time_us=e["time"] // 1000)
            if action == "oom":
                want["device_free"] = e["free"]
            yield {**want, "pool_id": [0, 0], "frames": frames(model, e["tag"], e["name"], e["step"], e["layer"])}

def walk_back(document):
    """What the viewer does when an event is clicked: from the end it undoes what happened, and looks for the segment of every block."""
    segments = {s["address"]: s["total_size"] for s in document["segments"]}
    blocks = {b["address"]: b["size"] for s in document["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    for e in reversed(document["device_traces"][0]):
        if e["action"] == "alloc":
            check(blocks.pop(e["addr"], None) == e["size"], f"undoing the allocation of {e['addr']}")
        elif e["action"] == "free_completed":
            blocks[e["addr"]] = e["size"]
            inside = [s for s in segments if s <= e["addr"] and e["addr"] + e["size"] <= s + segments[s]]
            check(len(inside) == 1, f"before it went, block {e['addr']} lay in one segment")
        elif e["action"] == "segment_alloc":
            check(segments.pop(e["addr"], None) == e["size"], f"undoing the reservation of {e['addr']}")
            check(not any(e["addr"] <= b < e["addr"] + e["size"] for b in blocks), f"segment {e['addr']} came with blocks in it")
        elif e["action"] == "segment_free":
            check(e["addr"] not in segments, f"segment {e['addr']} was there twice")
            segments[e["addr"]] = e["size"]

# What the viewer's reader knows of pickle, and how many items it can take in one call (each is an argument).
OPCODES = set("PROTO EMPTY_DICT EMPTY_LIST MARK SETITEMS APPENDS BINUNICODE BININT LONG1 TUPLE2 STOP".split())
def check_pickle(data):
    marks, depth = [], 0
    for op, value, _ in pickletools.genops(data):
        check(op.name in OPCODES, f"opcode {op.name}")
        if op.name == "PROTO":
            check(value == 2, "the protocol")
        if op.name == "LONG1":
            check(data_length(value) <= 8 or value >= 2**63, f"number {value} is coded in more than 8 bytes")
        if op.name == "MARK":
            marks.append(depth)
        elif op.name in ("APPENDS", "SETITEMS"):
            items = depth - marks.pop()
            check(items <= 4000, f"{items} items in one go")
            depth -= items
        elif op.name == "TUPLE2":
            depth -= 1
        elif op.name not in ("PROTO", "STOP"):
            depth += 1
    check(depth == 1 and not marks, "one document is left")
def data_length(n):
    return n.bit_length() // 8 + 1

# ---- trace and report ----
def expected_trace(model):
    events, recent = [], model.recent()
    for tag, name in enumerate(model.names):
        def counter(e, value):
            events.append(dict(name=plain(name), ph="C", pid=0, tid=0, ts=e["time"] // 1000, args=dict(bytes=value)))
        of_tag = [e for e in recent if e["tag"] == tag and e["action"] in ("alloc", "free")]
        if not recent or (not of_tag and not model.sums.get(tag, 0)):
            continue
        before = model.events[-len(recent) - 1]["totals"].get(tag, 0) if len(recent) < len(model.events) else 0
        counter(recent[0], before)
        for e in of_tag:
            counter(e, e["totals"].get(tag, 0))
    step = None
    for e in recent:
        def instant(name, key, value):
            events.append(dict(name=name, ph="i", s="g", pid=0, tid=0, ts=e["time"] // 1000, args={key: value}))
        if e["step"] != step:
            instant("step", "step", e["step"])
        step = e["step"]
        if e["action"] == "failed":
            instant("out of memory", "bytes", e["size"])
        if e["action"] == "retried":
            instant("retried", "bytes", e["size"])
    return dict(displayTimeUnit="ms", traceEvents=events)

def size(n):
    unit = 0
    while n >> 10 * (unit + 1):
        unit += 1
    tenths = (n * 10) >> (10 * unit)
    return (f"{tenths // 10}.{tenths % 10}" if unit else str(n)) + " " + ("KMGTPE"[unit - 1] + "iB" if unit else "B")
def expected_report(model):
    out = [b"memory                   now        peak at the peak  share at the peak      blocks     allocs  failed"]
    def row(name, now, peak, at_peak, blocks, allocs, failed):
        share = int(at_peak / model.total_peak * 20 + 0.5) if model.total_peak else 0
        hidden = sum(c & 0xC0 == 0x80 for c in name)
        out.append(name.ljust(16 + hidden) + b"".join(size(n).rjust(12).encode() for n in (now, peak, at_peak))
                   + f"  {'#' * share}{'.' * (20 - share)}{blocks:9}{allocs:11}{failed:8}".encode())
    every = dict(allocs=0, failed=0, retried=0)
    for tag in list(range(1, len(model.names))) + [0]:
        u = model.usage.get(tag)
        if not u:
            continue
        for key in every:
            every[key] += u[key]
        if u["allocs"] or u["failed"] or u["retried"]:
            row(model.names[tag], model.now(tag), u["peak"], u["at_peak"], model.blocks[tag], u["allocs"], u["failed"])
    row(b"total", model.now(), model.total_peak, model.total_peak, sum(model.blocks), every["allocs"], every["failed"])
    reserved = sum(s[0] for s in model.segments.values()) + sum(n for _, n in model.unlisted)
    if reserved or model.committed_peak:
        out.append(f"held by sources: reserved {size(reserved)}, committed {size(model.committed)}, at most {size(model.committed_peak)}".encode())
    if every["failed"]:
        e = model.last_failed
        out.append(f"failed attempts: {every['failed']}, the last for {size(e['size'])} of ".encode() + model.names[e["tag"]]
                   + f" at step {e['step']}, layer {e['layer']}".encode())
    if every["retried"]:
        out.append(f"served by a fallback: {every['retried']}".encode())
    unknown = sum(model.blocks) - len(model.listed)
    if unknown or model.unlisted:
        out.append(f"not listed one by one, only in the sums: {unknown} blocks, {len(model.unlisted)} reservations".encode())
    return b"\n".join(out) + b"\n"

def run(tool, scenario, folder):
    paths = [os.path.join(folder, name) for name in ("report", "json", "pickle", "trace", "log")]
    subprocess.run([tool, str(scenario)] + paths, check=True)
    report, text, pickled, trace = (open(p, "rb").read() for p in paths[:4])
    model = Model(paths[4])
    document, loaded = json.loads(text), pickle.loads(pickled)
    check(lists(loaded) == document, "JSON and pickle are the same document")
    check(all(s["segment_pool_id"] == (0, 0) for s in loaded["segments"]), "segment_pool_id is a tuple")
    check(all(e["pool_id"] == (0, 0) for t in loaded["device_traces"] for e in t), "pool_id is a tuple")
    check(list(document) == ["segments", "device_traces"] and len(document["device_traces"]) == 1, "the keys of the document")
    check_pickle(pickled)
    check_segments(model, document, scenario)
    check(document["device_traces"][0] == list(viewer_events(model)), "the events")
    if scenario in (0, 2, 3):
        walk_back(document)
    check(json.loads(trace) == expected_trace(model), "the trace")
    check(report == expected_report(model), "the report")
    return len(document["segments"]), len(model.events)

def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    passed = failed = 0
    for scenario in range(6):
        before, check.name = len(check.failures), f"scenario {scenario}"
        with tempfile.TemporaryDirectory() as folder:
            segments, events = run(sys.argv[1], scenario, folder)
        if len(check.failures) == before:
            passed += 1
        else:
            failed += 1
        check(scenario == 0 or events > 40, "the scenario is too small")
        print(f"{check.name}: {segments} segments, {events} events")
    for failure in check.failures[:40]:
        print(failure)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed != 0)

main()
