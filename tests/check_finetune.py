#!/usr/bin/env python3
"""check_finetune.py - examples/finetune.c beside a GPT-2 written here, in double precision, with the standard library.

Usage: check_finetune.py build/finetune

Files of a tiny GPT-2 are made in F32, F16, BF16 and all of them mixed, with and without the prefix. Trained for 0 steps
every tensor must come back with its bytes; the first loss must be ours within 2e-5 (the engine works in float, whose
results here are good to some 1e-6); 20 steps must lower the loss. What is missing, misshapen, cut off or foreign, and a
disk that is full, must be told, and leave the old OUT and no other file. The package safetensors reads the results,
too, where it is there.
"""
import json, math, os, random, resource, signal, struct, subprocess, sys, tempfile

WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS, HIDDEN = 16, 2, 2, 300, 12, 40
CONTEXT, BATCH = 9, 2
SIZES = dict(F32=4, F16=2, BF16=2, F64=8, I64=8, U8=1)


# ---- files ----
def encode(kind, values):
    if kind == "BF16":  # cut, not rounded: any value will do
        return b"".join(struct.pack("<f", x)[2:] for x in values)
    if kind == "U8":
        return bytes(values)
    return struct.pack("<%d%s" % (len(values), dict(F32="f", F16="e", F64="d", I64="q")[kind]), *values)


def decode(kind, data):
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack("<%d%s" % (len(data) // SIZES[kind], dict(F32="f", F16="e")[kind]), data))


def file_of(tensors, metadata=None):
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (kind, shape, values) in tensors.items():
        header[name] = dict(dtype=kind, shape=shape, data_offsets=[len(data), len(data) + len(values)])
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read(path):
    """{name: (type, shape, bytes)}, metadata; every rule of the format is looked at."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    text, data = data[8:8 + size], data[8 + size:]
    assert text[:1] == b"{" and len(text) == size and size % 8 == 0, "header"
    pairs = json.loads(text, object_pairs_hook=list)
    assert len({k for k, _ in pairs}) == len(pairs), "a name twice"
    header = json.loads(text)
    metadata, found, end = header.pop("__metadata__", {}), {}, 0
    for name, x in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = x["data_offsets"]
        assert set(x) == {"dtype", "shape", "data_offsets"} and first == end, name
        assert math.prod(x["shape"]) * SIZES[x["dtype"]] == last - first, name
        found[name], end = (x["dtype"], x["shape"], data[first:last]), last
    assert end == len(data), "bytes behind the last tensor"
    return found, metadata


# ---- the model ----
def shapes():
    c = WIDTH
    found = {"wte.weight": [VOCABULARY, c], "wpe.weight": [POSITIONS, c]}
    for i in range(LAYERS):
        for name, shape in {"ln_1.weight": [c], "ln_1.bias": [c], "attn.c_attn.weight": [c, 3 * c], "attn.c_attn.bias": [3 * c],
                            "attn.c_proj.weight": [c, c], "attn.c_proj.bias": [c], "ln_2.weight": [c], "ln_2.bias": [c],
                            "mlp.c_fc.weight": [c, HIDDEN], "mlp.c_fc.bias": [HIDDEN], "mlp.c_proj.weight": [HIDDEN, c],
                            "mlp.c_proj.bias": [c]}.items():
            found["h.%d.%s" % (i, name)] = shape
    found.update({"ln_f.weight": [c], "ln_f.bias": [c]})
    return found


def model(seed, kinds, prefix="", more=False):
    r, found = random.Random(seed), {}
    for i, (name, shape) in enumerate(shapes().items()):
        middle = 1 if ".ln_" in "." + name and name.endswith("weight") else 0
        values = [middle + r.gauss(0, 0.3) for _ in range(math.prod(shape))]
        kind = kinds[i % len(kinds)]
        found[prefix + name] = (kind, shape, encode(kind, values))
    if more:  # what the files of Hugging Face hold beside weights
        for i in range(LAYERS):
            mask = [int(x <= y) for y in range(POSITIONS) for x in range(POSITIONS)]
            found["%sh.%d.attn.bias" % (prefix, i)] = ("U8", [1, 1, POSITIONS, POSITIONS], encode("U8", mask))
            found["%sh.%d.attn.masked_bias" % (prefix, i)] = ("F32", [], encode("F32", [-1e4]))
        found["lm_head.weight"] = found[prefix + "wte.weight"]
    items = list(found.items())
    r.shuffle(items)  # any order may be in a file
    return dict(items)


def linear(rows, weight, bias, inputs, outputs):
    return [[bias[o] + math.fsum(row[i] * weight[i * outputs + o] for i in range(inputs)) for o in range(outputs)] for row in rows]


def norm(rows, scale, shift):
    out = []
    for row in rows:
        mean = math.fsum(row) / len(row)
        deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in row) / len(row) + 1e-5)
        out.append([(x - mean) / deviation * a + b for x, a, b in zip(row, scale, shift)])
    return out


def softmax(row):
    powers = [math.exp(x - max(row)) for x in row]
    total = math.fsum(powers)
    return [x / total for x in powers]


def attention(rows):
    width, out = WIDTH // HEADS, [[0.0] * WIDTH for _ in rows]
    for h in range(HEADS):
        at = lambda row, part: row[part * WIDTH + h * width:part * WIDTH + (h + 1) * width]
        for i, row in enumerate(rows):
            scores = softmax([math.fsum(a * b for a, b in zip(at(row, 0), at(rows[j], 1))) / math.sqrt(width) for j in range(i + 1)])
            for k in range(width):
                out[i][h * width + k] = math.fsum(scores[j] * at(rows[j], 2)[k] for j in range(i + 1))
    return out


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def loss_of(tensors, prefix, windows):
    w = {name: decode(*tensors[prefix + name][::2]) for name in shapes()}
    row_of = lambda name, i: w[name][i * WIDTH:(i + 1) * WIDTH]
    add = lambda a, b: [[x + y for x, y in zip(p, q)] for p, q in zip(a, b)]
    losses = []
    for window in windows:
        x = add([row_of("wte.weight", t) for t in window[:-1]], [row_of("wpe.weight", i) for i in range(len(window) - 1)])
        for layer in range(LAYERS):
            of = lambda name: w["h.%d.%s" % (layer, name)]
            y = norm(x, of("ln_1.weight"), of("ln_1.bias"))
            y = attention(linear(y, of("attn.c_attn.weight"), of("attn.c_attn.bias"), WIDTH, 3 * WIDTH))
            x = add(x, linear(y, of("attn.c_proj.weight"), of("attn.c_proj.bias"), WIDTH, WIDTH))
            y = norm(x, of("ln_2.weight"), of("ln_2.bias"))
            y = linear(y, of("mlp.c_fc.weight"), of("mlp.c_fc.bias"), WIDTH, HIDDEN)
            y = [[gelu(v) for v in row] for row in y]
            x = add(x, linear(y, of("mlp.c_proj.weight"), of("mlp.c_proj.bias"), HIDDEN, WIDTH))
        for row, target in zip(norm(x, w["ln_f.weight"], w["ln_f.bias"]), window[1:]):
            logits = [math.fsum(a * b for a, b in zip(row, row_of("wte.weight", t))) for t in range(VOCABULARY)]
            losses.append(-math.log(softmax(logits)[target]))
    return math.fsum(losses) / len(losses)


# ---- the order of the text: as memopt.h defines it for a feed that shuffles, seed 0 ----
def philox(stream, block):
    c, k = [block & 0xffffffff, block >> 32, stream & 0xffffffff, stream >> 32], [0, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xffffffff, (a >> 32) ^ c[3] ^ k[1], a & 0xffffffff]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return c


def window(x, windows):  # sequence x of the first epoch
    half = 1
    while 4 ** half < windows:
        half += 1
    while True:
        left, right = x >> half, x % 2 ** half
        for k in range(4):
            left, right = right, left ^ philox(2 ** 64 - 1, right)[k] % 2 ** half
        x = left << half | right
        if x < windows:
            return x


# ---- the program ----
TOOL = os.path.realpath(sys.argv[1])
SWITCHES = ["--heads", str(HEADS), "--context", str(CONTEXT), "--batch", str(BATCH), "--rate", "3e-3"]


def run(*arguments, limit=None):
    def small_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          preexec_fn=small_disk if limit else None)


def losses(result):
    assert result.returncode == 0, result.stderr
    return [float(line.split()[-1]) for line in result.stdout.split("\n") if line.startswith("step ")]


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
    return path


def check_values(text, tokens):
    """Bytes back, the first loss, training, for every type."""
    count = (len(tokens) - 1) // CONTEXT
    windows = [tokens[w * CONTEXT:(w + 1) * CONTEXT + 1] for w in (window(i, count) for i in range(BATCH))]
    for seed, (kinds, prefix, more) in enumerate([(["F32"], "", False), (["F16"], "transformer.", False), (["BF16"], "", True),
                                                  (["F32", "BF16", "F16"], "transformer.", True)]):
        tensors = model(seed, kinds, prefix, more)
        write("in", file_of(tensors, {"format": "np", "made": "here"} if more else None))
        result = run("in", text, "out", "--steps", 0, *SWITCHES)
        assert losses(result) == [] and "memory: " in result.stdout, result
        back, metadata = read("out")
        assert back == tensors, [name for name in tensors if back.get(name) != tensors[name]]
        assert metadata == ({"format": "pt", "made": "here"} if more else {"format": "pt"}), metadata
        result = losses(run("in", text, "out", "--steps", 20, *SWITCHES, *(["--threads", 2] if more else [])))
        expected = loss_of(tensors, prefix, windows)
        assert abs(result[0] - expected) < 2e-5, (result[0], expected)
        assert len(result) == 20 and result[19] < result[0] - 0.3, result
        trained, _ = read("out")
        assert {n: t[:2] for n, t in trained.items()} == {n: t[:2] for n, t in tensors.items()}
        still = [n for n in tensors if trained[n] == tensors[n]]
        assert all(".attn.bias" in n or "masked" in n for n in still), still
        if more:
            assert trained["lm_head.weight"] == trained[prefix + "wte.weight"]
            assert {n for n in tensors if ".attn.bias" in n or "masked" in n} == set(still)
        again = losses(run("out", text, "out", "--steps", 1, *SWITCHES))  # OUT is MODEL
        assert again[0] < result[0] - 0.3, (again, result)
        try:
            from safetensors import deserialize
        except ImportError:
            continue
        with open("out", "rb") as file:
            assert {name for name, _ in deserialize(file.read())} == set(tensors)
    return expected


def check_refusals(text):
    good = model(1, ["F32"])
    old = write("old", b"what was there")
    files = set(os.listdir("."))

    def refused(words, path, *arguments, text=text, out=old, limit=None):
        result = run(path, text, out, *(arguments or ["--steps", 1, *SWITCHES]), limit=limit)
        assert result.returncode in (1, 2) and words in result.stderr, (words, result)
        assert "step 1 " not in result.stdout, (words, "is told after training")
        with open(old, "rb") as file:
            assert file.read() == b"what was there", words
        assert set(os.listdir(".")) <= files | {"bad", "short", "short.u16"}, os.listdir(".")

    def change(words, **changed):
        tensors = dict(good)
        for name, value in changed.items():
            tensors[name] = value
        refused(words, write("bad", file_of({k: v for k, v in tensors.items() if v})))

    for name in good:
        change(name + " is missing", **{name: None})
        kind, shape, data = good[name]
        change(name + " has", **{name: (kind, shape + [1], data)})
        change(name + " has", **{name: (kind, [0] + shape[1:], b"")})
        if name not in ("wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight"):  # which say what fits the others
            change(name + " has the wrong shape", **{name: (kind, [shape[0] + 1] + shape[1:], data + data[:len(data) // shape[0]])})
        change(name + " is of type F64", **{name: ("F64", shape, data * 2)})
        change(name + " is there twice", **{"transformer." + name: good[name]})
    for name in ("h.2.ln_1.weight", "h.40000.ln_1.weight", "h.00.ln_1.weight", "h.0.ln_3.weight", "h.1.attn.bias.weight", "lm_head.bias",
                 "h.99999999999999999999.ln_1.weight", "", "h.", "h.1", "h..ln_1.weight", "a\x1b[1m"):
        change("h.2.ln_1.bias is missing" if name == "h.2.ln_1.weight" else "too few for 40001 layers" if "40000" in name
               else name.replace("\x1b", "?") + " is not a tensor of GPT-2", **{name: good["ln_f.bias"]})
    change("lm_head.weight is not wte.weight", **{"lm_head.weight": ("F32", [VOCABULARY, WIDTH], good["wte.weight"][2][::-1])})
    change("lm_head.weight has not the shape", **{"lm_head.weight": good["ln_f.bias"]})
    change("lm_head.weight has not the shape", **{"lm_head.weight": ("U8", [VOCABULARY, WIDTH], good["wte.weight"][2][::4])})
    whole = file_of(good)
    size = 8 + struct.unpack("<Q", whole[:8])[0]
    for n in (0, 1, 7, 8, 9, size - 1, size, size + 1, len(whole) - 1):
        refused("bad: ", write("bad", whole[:n]))
    refused("bad: ", write("bad", b"\xff" * 8 + whole[8:]))
    change("not finite", **{"ln_f.bias": ("F32", [WIDTH], encode("F32", [float("nan")] * WIDTH))})
    path = write("bad", whole)
    refused("none: ", "none")
    refused("none: ", path, text="none")
    refused("more than length", path, text=write("short", b"x" * CONTEXT))
    refused("more than length", path, text=write("short", b""))
    refused("token 65535 at the file's token", path, text=write("short.u16", b"\xff" * 100))
    refused("no multiple of token_bytes", path, text=write("short.u16", b"\xff" * 101))
    refused("positions, too few for --context 13", path, "--heads", HEADS, "--context", 13)
    refused("is not divided by", path, "--heads", 3)
    refused("give --heads", path, "--steps", 1)  # a width of 16 is no 64
    refused("is the least", path, *SWITCHES, "--memory", 1000)
    refused("MB left", path, *SWITCHES[:4], "--batch", (1 << 28) // 12, "--context", 12)
    refused("more than 2^28", path, *SWITCHES[:4], "--batch", (1 << 28) // 12 + 1, "--context", 12)
    refused("none/out.tmp: cannot be made", path, out="none/out")
    refused("old.tmp: the disk has no room for", path, limit=4096)
    refused(". is a directory", path, out=".")
    refused("the name OUT is too long", path, out="x" * 1100)
    refused("usage: ", path, "--steps")
    for switch in ("--steps x", "--steps -1", "--batch 0", "--threads 0", "--rate nan", "--rate 2", "--layers 3", "--memory 1M1", "--heads 1e99"):
        refused("usage: ", path, *switch.split())
    refused("usage: ", path, *SWITCHES, "x")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text = b"".join(b"%d + %d = %d\n" % (a, b, a + b) for a in range(9) for b in range(9))
        write("text", text)
        expected = check_values("text", list(text))
        write("text.u16", struct.pack("<%dH" % len(text), *text))
        first = losses(run("in", "text.u16", "out", "--steps", 1, *SWITCHES))[0]
        assert abs(first - expected) < 2e-5, (first, expected)
        least = run("in", "text", "out", "--steps", 1, *SWITCHES, "--memory", 1).stderr.split()[-4]
        assert losses(run("in", "text", "out", "--steps", 1, *SWITCHES, "--memory", least))[0] == first
        for name in ("in", "out", "text.u16"):
            os.remove(name)
        check_refusals("text")
    print("values, losses and refusals as they should be")


main()
