#!/usr/bin/env python3
"""check_tensors.py - does our reader of safetensors agree with the reference's?

Usage: check_tensors.py TOOL [FILES]     (build/tensors_tool; 2,000 files)

Files are generated: valid ones with odd names, types and spaces, and such with one or two faults: a change of the
header's text, of a number, of a byte, of the length, of the data. The reference must accept what we accept, and read
the same; what we refuse and it accepts must be refused for one of the reasons of OURS. What the tool writes of a file
that it read, the reference must read as the same.
Exit status 77: the package safetensors is not there.
"""
import json, os, random, re, struct, subprocess, sys, tempfile
try:
    import safetensors
    from safetensors import deserialize
except ImportError:
    print("no package safetensors here: pip install safetensors")
    sys.exit(77)

BITS = dict(BOOL=8, F4=4, F6_E2M3=6, F6_E3M2=6, U8=8, I8=8, F8_E5M2=8, F8_E4M3=8, F8_E8M0=8, F8_E4M3FNUZ=8, F8_E5M2FNUZ=8, I16=16,
            U16=16, F16=16, BF16=16, I32=32, U32=32, F32=32, C64=64, F64=64, I64=64, U64=64)
OURS = ["occurs twice", "has the character 0", "a number is too long", "metadata are not an object", "a tensor is not an object"]
LETTERS = ["a", "b", "layer.", "0", ".weight", '"', "\\", "\n", "\x01", "\x7f", "\u00e9", "\u20ac", "\U0001F600", "/", " ", "__metadata__"]
WORDS = ['"dtype"', '"shape"', '"data_offsets"', '"__metadata__"', '"x"', "null", "true", "[]", "{}", "0", "1", "-1", "1.0", "1e3", "007", "[", "]",
         "{", "}", ",", ":", " ", "\t", "\r\n", "\0", '"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u00e9"', "\\", "\x7f", "18446744073709551616",
         "9" * 70, '"a":', '"U8"', '"F4"', "[[[[1]]]]", "\x0b", "\u00e9"]


def text_of(r, text):
    """A JSON text in one of many ways."""
    if r.random() < 0.5:
        return json.dumps(text, ensure_ascii=r.random() < 0.5)
    return '"' + "".join("\\u%04x" % ord(c) if ord(c) < 0x10000 and r.random() < 0.5 else json.dumps(c, ensure_ascii=False)[1:-1] for c in text) + '"'


def name_of(r):
    return "".join(r.choice(LETTERS) for _ in range(r.randrange(5)))


def extra(r, depth=0):
    kind = r.randrange(8 if depth < 4 else 6)
    if kind == 6:
        return "[" + ",".join(extra(r, depth + 1) for _ in range(r.randrange(3))) + "]"
    if kind == 7:
        return "{" + ",".join(text_of(r, name_of(r)) + ":" + extra(r, depth + 1) for _ in range(r.randrange(3))) + "}"
    return ["1", "-0.5e-12", "true", "null", '"%s"' % "q", "12345678901234567890123"][kind]


def generate(r):
    space = lambda: r.choice(["", "", "", " ", "\n", "\t "])
    entries, end, names = [], 0, set()
    for _ in range(r.randrange(6)):
        name = name_of(r)
        if name == "__metadata__" or name in names:
            continue
        names.add(name)
        kind, shape = r.choice(list(BITS)), [r.choice([0, 1, 2, 3, 8]) for _ in range(r.randrange(4))]
        if BITS[kind] % 8:
            shape.append(8)
        size = BITS[kind]
        for n in shape:
            size *= n
        fields = [('"dtype"', '"%s"' % kind), ('"shape"', json.dumps(shape)), ('"data_offsets"', "[%d,%s%d]" % (end, space(), end + size // 8))]
        while r.random() < 0.2:
            fields.append((text_of(r, "x" + name_of(r)), extra(r)))
        r.shuffle(fields)
        end += size // 8
        entries.append(text_of(r, name) + space() + ":" + space() + "{" + ",".join(space() + k + ":" + space() + v + space() for k, v in fields) + "}")
    if r.random() < 0.5:
        keys = sorted({name_of(r) for _ in range(r.randrange(4))})
        if keys and r.random() < 0.1:
            keys.append(r.choice(keys + ["\0"] + keys))
        entries.append('"__metadata__":null' if r.random() < 0.05 else '"__metadata__":{' + ",".join(text_of(r, k) + ":" + text_of(r, name_of(r)) for k in keys) + "}")
    r.shuffle(entries)
    return space() + "{" + ",".join(space() + e for e in entries) + space() + "}" + " " * r.randrange(4), end


def damage(r, text, end):
    """The same file, changed at one or two places; and the claimed length."""
    body, length = text.encode(), None
    for _ in range(r.choice([0, 0, 1, 1, 2])):
        kind, at = r.randrange(9), r.randrange(len(body) + 1)
        numbers = list(re.finditer(rb"[0-9]+", body))
        if kind == 0 and numbers:
            m = r.choice(numbers)
            body = body[:m.start()] + str(max(0, int(m.group()) + r.choice([-1, 1, 8, 1 << 62]))).encode() + body[m.end():]
        elif kind == 1:
            body = body[:at] + r.choice(WORDS).encode() + body[at:]
        elif kind == 2:
            body = body[:at] + body[at + r.randrange(1, 9):]
        elif kind == 3 and at < len(body):
            body = body[:at] + bytes([body[at] ^ 1 << r.randrange(8)]) + body[at + 1:]
        elif kind == 4:
            end = max(0, end + r.choice([-1, 1, 8]))
        elif kind == 5:
            length = len(body) + r.choice([-1, 1, -8, 100, 1 << 40])
        elif kind == 6 and body.count(b","):
            parts = body.split(b",")
            i = r.randrange(len(parts))
            parts.insert(i, parts[i])
            body = b",".join(parts)
        elif kind == 7:
            depth = r.choice([120, 123, 124, 125, 126, 127])
            body = body.replace(b'"dtype"', b'"y":' + b"[" * depth + b"]" * depth + b',"dtype"', 1)
        elif kind == 8:
            body = body[:at] + bytes([r.randrange(256)]) + body[at:]
    return struct.pack("<Q", max(0, len(body) if length is None else length)) + body + bytes(end)


def reference(data, path):
    """What the reference reads of a file: [(name, type, shape, size)] and the metadata; None: refused."""
    try:
        tensors = sorted((n, t["dtype"], tuple(t["shape"]), len(t["data"])) for n, t in deserialize(data))
        with safetensors.safe_open(path, "np") as file:
            return tensors, file.metadata() or {}
    except Exception as e:
        if type(e).__name__ == "SafetensorError" or isinstance(e, (UnicodeDecodeError, OSError)):
            return None
        raise


def main():
    r, count = random.Random(1), int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    accepted = refused = stricter = 0
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i in range(count):
            data = damage(r, *generate(r))
            files.append((os.path.join(folder, str(i)), data))
            with open(files[-1][0], "wb") as file:
                file.write(data)
        out = subprocess.run([sys.argv[1]] + [f[0] for f in files], check=True, capture_output=True, text=True).stdout.split("\n")
        at = 0
        for path, data in files:
            theirs, line = reference(data, path), out[at]
            at += 1
            if line.startswith("refused"):
                if theirs is None:
                    refused += 1
                elif any(reason in line for reason in OURS):
                    stricter += 1
                else:
                    failures.append((data, line))
                continue
            _, tensors, metadata = line.split(" ")
            ours, begins = [], 0
            for line in out[at:at + int(tensors)]:
                _, name, kind, begin, end, *shape = line.split(" ")
                ours.append((bytes.fromhex(name[1:]).decode(), kind, tuple(map(int, shape)), int(end) - int(begin)))
                if int(begin) != begins:
                    failures.append((data, "not in the data's order"))
                begins = int(end)
            at += int(tensors)
            pairs = [line.split(" ")[1:] for line in out[at:at + int(metadata)]]
            at += int(metadata)
            pairs = {bytes.fromhex(k[1:]).decode(): bytes.fromhex(v[1:]).decode() for k, v in pairs}
            accepted += 1
            if theirs != (sorted(ours), pairs):
                failures.append((data, f"{theirs} != {sorted(ours)}, {pairs}"))
                continue
            with open(path + ".again", "rb") as file:
                again = file.read()
            if reference(again, path + ".again") != theirs or again[8:9] != b"{" or struct.unpack("<Q", again[:8])[0] % 8:
                failures.append((data, f"written again: {again}"))
    for data, why in failures[:10]:
        print(data, why)
    print(f"{accepted} read alike, {refused} refused by both, {stricter} by us alone, {len(failures)} failures")
    return 1 if failures or min(accepted, refused, stricter) < count // 100 else 0


sys.exit(main())
