#!/usr/bin/env python3
"""check_finetune.py - examples/finetune.c beside a GPT-2 written here, in double precision, with the standard library.

Usage: check_finetune.py build/finetune [KILLS]
       check_finetune.py build/finetune mpirun ... build/finetune_mpi     ranks as processes alone

Folders of a tiny GPT-2 are made in F32, F16, BF16 and all of them mixed, in one file and in several. A rate that
changes no weight must give back each tensor's bytes; the first loss must be ours within 2e-5 (the engine works in
float, whose results here are good to some 1e-6); 20 steps must lower it. Threads, memory and a disk must not change a
byte, nor may KILLS (12) signals at random moments; what a step moves at a disk must be what the shapes say. Random
weights must be those of config.json. What is missing, misshapen, cut off or foreign must be told, and leave nothing.
"""
import json, math, os, random, re, resource, shutil, signal, struct, subprocess, sys, tempfile, time

WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS, HIDDEN = 16, 2, 2, 270, 12, 40
CONTEXT, EOS = 9, 269
SIZES = dict(F32=4, F16=2, BF16=2, F64=8, I64=8, U8=1)
TINY = dict(model_type="gpt2", n_embd=WIDTH, n_head=HEADS, n_layer=LAYERS, n_inner=HIDDEN, n_positions=POSITIONS,
            vocab_size=VOCABULARY, eos_token_id=EOS, activation_function="gelu_new")
LLAMA = dict(model_type="llama", hidden_size=16, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2,
             intermediate_size=40, max_position_embeddings=12, vocab_size=VOCABULARY, rms_norm_eps=1e-6)


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
def shapes(config=TINY):
    c, hidden = config["n_embd"], config["n_inner"]
    block = {"ln_1.weight": [c], "ln_1.bias": [c], "attn.c_attn.weight": [c, 3 * c], "attn.c_attn.bias": [3 * c],
             "attn.c_proj.weight": [c, c], "attn.c_proj.bias": [c], "ln_2.weight": [c], "ln_2.bias": [c],
             "mlp.c_fc.weight": [c, hidden], "mlp.c_fc.bias": [hidden], "mlp.c_proj.weight": [hidden, c],
             "mlp.c_proj.bias": [c]}
    return {"wte.weight": [config["vocab_size"], c], "wpe.weight": [config["n_positions"], c],
            **{"h.%d.%s" % (i, name): shape for i in range(config["n_layer"]) for name, shape in block.items()},
            "ln_f.weight": [c], "ln_f.bias": [c]}


def model(seed, kinds, prefix="", more=False):
    """Tensors, in any order. more: with what files of Hugging Face have beside weights, and a head, which is tied."""
    r, found = random.Random(seed), {}
    for i, (name, shape) in enumerate(shapes().items()):
        middle = 1 if ".ln_" in "." + name and name.endswith("weight") else 0
        values = [middle + r.gauss(0, 0.3) for _ in range(math.prod(shape))]
        kind = kinds[i % len(kinds)]
        found[prefix + name] = (kind, shape, encode(kind, values))
    if more:
        for i in range(LAYERS):
            mask = [int(x <= y) for y in range(POSITIONS) for x in range(POSITIONS)]
            found["%sh.%d.attn.bias" % (prefix, i)] = ("U8", [1, 1, POSITIONS, POSITIONS], encode("U8", mask))
            found["%sh.%d.attn.masked_bias" % (prefix, i)] = ("F32", [], encode("F32", [-1e4]))
        found["lm_head.weight"] = found[prefix + "wte.weight"]
    items = list(found.items())
    r.shuffle(items)
    return dict(items)


def linear(rows, weight, bias, inputs, outputs):
    return [[bias[o] + math.fsum(row[i] * weight[i * outputs + o] for i in range(inputs)) for o in range(outputs)]
            for row in rows]


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
            product = lambda j: math.fsum(a * b for a, b in zip(at(row, 0), at(rows[j], 1)))
            scores = softmax([product(j) / math.sqrt(width) for j in range(i + 1)])
            for k in range(width):
                out[i][h * width + k] = math.fsum(scores[j] * at(rows[j], 2)[k] for j in range(i + 1))
    return out


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


class Reference:
    def __init__(self, tensors, prefix=""):
        self.w = {name: decode(*tensors[prefix + name][::2]) for name in shapes()}
        head = tensors.get("lm_head.weight")
        self.head = decode(*head[::2]) if head else self.w["wte.weight"]

    def logits(self, tokens):
        """A row for each token, of what comes next."""
        w = self.w
        row_of = lambda name, i: w[name][i * WIDTH:(i + 1) * WIDTH]
        add = lambda a, b: [[x + y for x, y in zip(p, q)] for p, q in zip(a, b)]
        x = add([row_of("wte.weight", t) for t in tokens], [row_of("wpe.weight", i) for i in range(len(tokens))])
        for layer in range(LAYERS):
            of = lambda name: w["h.%d.%s" % (layer, name)]
            y = norm(x, of("ln_1.weight"), of("ln_1.bias"))
            y = attention(linear(y, of("attn.c_attn.weight"), of("attn.c_attn.bias"), WIDTH, 3 * WIDTH))
            x = add(x, linear(y, of("attn.c_proj.weight"), of("attn.c_proj.bias"), WIDTH, WIDTH))
            y = norm(x, of("ln_2.weight"), of("ln_2.bias"))
            y = linear(y, of("mlp.c_fc.weight"), of("mlp.c_fc.bias"), WIDTH, HIDDEN)
            y = [[gelu(v) for v in row] for row in y]
            x = add(x, linear(y, of("mlp.c_proj.weight"), of("mlp.c_proj.bias"), HIDDEN, WIDTH))
        return [[math.fsum(a * b for a, b in zip(row, self.head[t * WIDTH:])) for t in range(VOCABULARY)]
                for row in norm(x, w["ln_f.weight"], w["ln_f.bias"])]

    def loss(self, documents):
        """The mean over what is learned of [(token, learned)], each document cut into pieces of CONTEXT inputs."""
        losses = []
        for document in documents:
            for first in range(0, len(document) - 1, CONTEXT):
                piece = document[first:first + CONTEXT + 1]
                rows = self.logits([t for t, _ in piece[:-1]])
                losses += [-math.log(softmax(row)[t]) for row, (t, learned) in zip(rows, piece[1:]) if learned]
        return math.fsum(losses) / len(losses)

    def greedy(self, tokens, most):
        """Until the text ends. None: two choices are too close to tell."""
        tokens = list(tokens)
        for _ in range(most):
            row = self.logits(tokens)[-1]
            first, second = sorted(row)[:-3:-1]
            if first - second < 1e-4:
                return None
            if row.index(first) == EOS:
                break
            tokens.append(row.index(first))
        return tokens


# ---- a tokeniser: bytes and a few merges, nothing else ----
MERGES = ["th", "the", " a", "in", "er", "on", " the", "an", "re", "or", "en", "is", "at"]


def byte_names():
    """GPT-2's letters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def merge_pairs():
    """Each merge as (left, right): of two parts that are there before it."""
    known, pairs = {chr(b) for b in range(128)}, []
    for text in MERGES:
        pairs.append(next((text[:i], text[i:]) for i in range(1, len(text)) if text[:i] in known and text[i:] in known))
        known.add(text)
    return pairs


def tokenizer():
    names = byte_names()
    named = lambda text: "".join(names[b] for b in text.encode())
    vocabulary = {names[b]: b for b in range(256)}
    vocabulary.update({named(text): 256 + i for i, text in enumerate(MERGES)})
    bytes_alone = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [dict(id=EOS, content="<|endoftext|>", single_word=False, lstrip=False, rstrip=False,
                                  normalized=False, special=True)],
            "pre_tokenizer": bytes_alone, "decoder": bytes_alone,
            "model": dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                          end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, vocab=vocabulary,
                          merges=[" ".join(map(named, pair)) for pair in merge_pairs()])}


def encode_text(text):
    parts = [chr(b) for b in text.encode()]
    for rank, pair in enumerate(merge_pairs()):
        i = 0
        while i + 1 < len(parts):
            if (parts[i], parts[i + 1]) == pair:
                parts[i:i + 2] = [MERGES[rank]]
            i += 1
    return [256 + MERGES.index(p) if len(p) > 1 else ord(p) for p in parts]


def decode_tokens(tokens):
    text = b"".join(MERGES[t - 256].encode() if t >= 256 else bytes([t]) for t in tokens if t != EOS)
    return text.decode(errors="replace")


# ---- folders and the program ----
TOOL = os.path.realpath(sys.argv[1])
LAUNCH = sys.argv[2:] if len(sys.argv) > 3 else []
KILLS = int(sys.argv[2]) if len(sys.argv) == 3 else 12
EXACT = ["--weights", "fp32", "--states", "32"]
SWITCHES = ["--context", CONTEXT, "--hold-back", 0, "--rate", "3e-3", "--threads", 1]


def write(path, data):
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    return path


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def folder_of(path, tensors, parts=1, config=TINY, metadata=None):
    """A model's folder. parts: files, with an index. metadata: of each."""
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    write(path + "/config.json", json.dumps(config))
    write(path + "/tokenizer.json", json.dumps(tokenizer()))
    names = list(tensors)
    places = {name: "model-%05d-of-%05d.safetensors" % (i % parts + 1, parts) for i, name in enumerate(names)}
    for file in sorted(set(places.values())):
        write(path + "/" + (file if parts > 1 else "model.safetensors"),
              file_of({name: tensors[name] for name in names if places[name] == file}, metadata))
    if parts > 1:
        write(path + "/model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": places}))
    return path


def read_folder(path, **more):
    found = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            tensors, metadata = read(path + "/" + name)
            assert metadata == {"format": "pt", **more} and not set(tensors) & set(found), (name, metadata)
            found.update(tensors)
    return found


def contents(path):
    return {name: bytes_of(path + "/" + name) for name in os.listdir(path)}


def command(*arguments):
    return [TOOL, *map(str, arguments)]


def run(*arguments, limit=None):
    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=600, errors="replace",
                          preexec_fn=small_disk if limit else None)


def remove(*paths):
    for path in paths:
        for each in (path, path + ".tmp", path + ".run"):
            shutil.rmtree(each, ignore_errors=True)


def tune(folder, data, *arguments, out="out"):
    """The losses; OUT is new."""
    remove(out)
    result = run(folder, data, "--out", out, *SWITCHES, *arguments)
    assert result.returncode == 0, result
    assert not os.path.exists(out + ".tmp") and not os.path.exists(out + ".run"), os.listdir(".")
    return [float(x) for x in re.findall(r"^step \d+ of \d+  loss (\S+)", result.stdout, re.M)]


def near(a, b, what, bound=2e-5):
    assert abs(a - b) < bound, (what, a, b)


# ---- values ----
def learned(tokens):
    return [(t, True) for t in tokens]


def write_tokens(path):
    """Documents as .u16, which EOS ends; one is longer than a window. They are five windows."""
    r = random.Random(5)
    documents = [[r.randrange(8) * 31 for _ in range(n - 1)] + [EOS] for n in (10, 6, 5, 20)]
    write(path, struct.pack("<%dH" % sum(map(len, documents)), *sum(documents, [])))
    return [learned(d) for d in documents]


VARIANTS = [(["F32"], "", False, 1), (["F16"], "transformer.", False, 1), (["BF16"], "", True, 3),
            (["F32", "BF16", "F16"], "transformer.", True, 2)]


def check_training(folder, tensors, prefix, more, expected):
    losses = tune(folder, "tokens.u16", *EXACT, "--steps", 20, "--batch", 5, *(["--threads", 2] if more else []))
    near(losses[0], expected, "the first loss")
    assert len(losses) == 20 and losses[19] < losses[0] - 0.3, losses
    trained = read_folder("out", **({"made": "here"} if more else {}))
    assert {n: t[:2] for n, t in trained.items()} == {n: t[:2] for n, t in tensors.items()}
    still = {n for n in tensors if trained[n] == tensors[n]}
    assert still == {n for n in tensors if n.endswith((".attn.bias", ".masked_bias"))}, still
    if more:
        assert trained["lm_head.weight"] == trained[prefix + "wte.weight"]
    near(tune("out", "tokens.u16", *EXACT, "--steps", 1, "--batch", 5, out="again")[0],
         Reference(trained, prefix).loss(DOCUMENTS), "the loss of what was written")


def check_values():
    """Bytes back, the first loss, training, for every type."""
    for seed, (kinds, prefix, more, parts) in enumerate(VARIANTS):
        tensors = model(seed, kinds, prefix, more)
        folder = folder_of("in", tensors, parts, metadata={"made": "here", "format": "pt"} if more else None)
        expected = Reference(tensors, prefix).loss(DOCUMENTS)
        near(tune(folder, "tokens.u16", *EXACT, "--rate", 0, "--schedule", "constant", "--batch", 5)[0],
             expected, "no rate")
        back = read_folder("out", **({"made": "here"} if more else {}))
        assert back == tensors, [name for name in tensors if back.get(name) != tensors[name]]
        assert set(os.listdir("out")) == set(os.listdir(folder))
        for name in os.listdir(folder):
            assert name.endswith(".safetensors") or bytes_of("out/" + name) == bytes_of(folder + "/" + name), name
        check_training(folder, tensors, prefix, more, expected)
        for weights in ("split", "bf16"):  # whose arithmetic is bf16's
            losses = tune(folder, "tokens.u16", "--weights", weights, "--steps", 1, "--batch", 5)
            near(losses[0], expected, weights, 0.03)


def check_untied():
    tensors = model(7, ["F32"])
    tensors["lm_head.weight"] = model(6, ["F32"])["wte.weight"]
    folder = folder_of("in", tensors, config=dict(TINY, tie_word_embeddings=False))
    losses = tune(folder, "tokens.u16", *EXACT, "--steps", 2, "--batch", 5)
    near(losses[0], Reference(tensors).loss(DOCUMENTS), "untied")
    trained = read_folder("out")
    assert all(trained[n] != tensors[n] for n in ("lm_head.weight", "wte.weight"))
    assert trained["lm_head.weight"] != trained["wte.weight"]


def bf16_model(config):
    """For what is too large for model()."""
    r, tensors = random.Random(3), {}
    signs = bytes(0x3c if b < 128 else 0xbc for b in range(256))  # bf16 from 2^-7 to 2^-5, or minus that
    for name, shape in shapes(config).items():
        n = math.prod(shape)
        data = bytearray(2 * n)
        data[0::2], data[1::2] = r.randbytes(n), r.randbytes(n).translate(signs)
        if "ln_" in name and name.endswith("weight"):
            data = encode("BF16", [1] * n)
        tensors[name] = ("BF16", shape, bytes(data))
    return tensors


# ---- text ----
def check_text():
    """A text, and lines of JSON: what is learned, by the tokeniser above."""
    tensors = model(8, ["F32"])
    reference, folder = Reference(tensors), folder_of("in", tensors)
    loss = lambda data, windows, *more: tune(folder, data, *EXACT, "--steps", 1, "--batch", windows, *more)[0]
    texts = ["there is one in", "an oar"]
    documents = [learned(encode_text(t) + [EOS]) for t in texts]
    assert [len(d) for d in documents] == [10, 6], documents
    near(loss(write("text", "<|endoftext|>\n".join(texts)), 2), reference.loss(documents), "a text")
    lines = [{"text": texts[0]}, {"prompt": "or:", "completion": "he"}]
    write("lines.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    prompt = [(t, False) for t in encode_text("or:")]
    documents[1] = prompt + learned([*b"he", EOS])
    near(loss("lines.jsonl", 2), reference.loss(documents), "lines")
    documents[1] = learned([t for t, _ in documents[1]])
    near(loss("lines.jsonl", 2, "--learn-all"), reference.loss(documents), "all is learned")
    talk = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "yz"}]
    write("lines.jsonl", json.dumps({"messages": talk}) + "\n")
    document = [(t, t in (*b"yz", EOS)) for t in [*b"x|yz|", EOS]]
    near(loss("lines.jsonl", 1, "--chat", "{content}{end}|"), reference.loss([document]), "a chat")
    write("text", texts[0])
    for seed in (1, 13):  # by default no document is held back, or the only one would be
        remove("out")
        result = run("in", "text", "--out", "out", "--steps", 1, "--seed", seed)
        assert result.returncode == 0 and " 0 windows are held back" in result.stdout, result
        assert "held back  loss" not in result.stdout, result


# ---- adapters ----
RANK, ALPHA = 3, 7.5


def adapted():
    """{name of a matrix: (inputs, outputs)}"""
    return {n: shape for n, shape in shapes().items() if len(shape) == 2 and n.startswith("h.")}


def check_peft(folder):
    """What PEFT looks for. Returns {name of a matrix: scale B A, as GPT-2's file has it}."""
    assert set(os.listdir("out")) == {"adapter_config.json", "adapter_model.safetensors"}
    config = json.loads(bytes_of("out/adapter_config.json"))
    assert (config["peft_type"], config["r"], config["lora_alpha"], config["fan_in_fan_out"], config["bias"]) == (
        "LORA", RANK, ALPHA, True, "none") and config["base_model_name_or_path"] == folder, config
    assert set(config["target_modules"]) == {"c_attn", "c_proj", "c_fc"}, config
    found, added = read_folder("out"), {}
    for name, (inputs, outputs) in adapted().items():
        key = "base_model.model.transformer.%s.lora_%%s.weight" % name[:-len(".weight")]
        (kind_a, shape_a, a), (kind_b, shape_b, b) = found.pop(key % "A"), found.pop(key % "B")
        assert (kind_a, kind_b, shape_a, shape_b) == ("F32", "F32", [RANK, inputs], [outputs, RANK]), key
        a, b = decode("F32", a), decode("F32", b)
        assert any(b), key
        added[name] = [math.fsum(a[k * inputs + i] * b[o * RANK + k] for k in range(RANK)) * ALPHA / RANK
                       for i in range(inputs) for o in range(outputs)]
    assert not found, list(found)
    return added


def check_adapters():
    """The first loss, what PEFT reads, and the same merged, in every type, rounded once."""
    precision = dict(F32=2 ** -24, F16=2 ** -11, BF16=2 ** -8)
    for kinds, prefix, more, parts in VARIANTS[::3]:
        tensors = model(9, kinds, prefix, more)
        folder = folder_of("in", tensors, parts)
        switches = ["--adapter", RANK, "--alpha", ALPHA, "--frozen", 32, "--rate", "3e-2", "--batch", 5, "--steps", 20]
        losses = tune(folder, "tokens.u16", *switches)
        near(losses[0], Reference(tensors, prefix).loss(DOCUMENTS), "an adapter that adds nothing yet")
        assert len(losses) == 20 and losses[19] < losses[0] - 0.1, losses
        added = check_peft(folder)
        assert tune(folder, "tokens.u16", *switches, "--merge", out="merged") == losses
        merged = read_folder("merged")
        assert {n: t[:2] for n, t in merged.items()} == {n: t[:2] for n, t in tensors.items()}
        for name, (kind, _, data) in tensors.items():
            change = added.get(name[len(prefix):])
            if not change:
                assert merged[name][2] == data, name
                continue
            for x, y, z in zip(decode(kind, data), change, decode(kind, merged[name][2])):
                bound = 1e-7 + (abs(x) + abs(y)) * 1e-6 + abs(x + y) * precision[kind]
                assert abs(x + y - z) <= bound, (name, x, y, z)
        for bits, bound in ((16, 0.03), (8, 0.1)):
            near(tune(folder, "tokens.u16", *switches[:4], "--frozen", bits, "--steps", 1, "--batch", 5)[0], losses[0],
                 "frozen weights of %d bits" % bits, bound)


def check_merged_bands():
    """A matrix that is merged in more than one band: the last rows of both."""
    config = dict(TINY, n_layer=1, n_embd=64, n_inner=17000)
    tensors, name, last = bf16_model(config), "h.0.mlp.c_fc", 16900
    folder = folder_of("in", tensors, config=config)
    switches = ["--adapter", 2, "--frozen", 32, "--rate", "3e-2", "--batch", 5, "--steps", 3]
    tune(folder, "tokens.u16", *switches)
    found = read_folder("out")
    a, b = (decode("F32", found["base_model.model.transformer.%s.lora_%s.weight" % (name, x)][2]) for x in "AB")
    tune(folder, "tokens.u16", *switches, "--merge", out="merged")
    before, after = (decode("BF16", x[name + ".weight"][2]) for x in (tensors, read_folder("merged")))
    for i in range(64):
        for o in [0, 1, *range(last, 17000)]:
            wanted = before[i * 17000 + o] + 2 * (a[i] * b[2 * o] + a[64 + i] * b[2 * o + 1])
            assert abs(wanted - after[i * 17000 + o]) <= abs(wanted) * 2 ** -8 + 1e-7, (i, o)


# ---- the same bytes, whatever the memory and the threads; and after kills ----
# Large enough for its weights to matter beside the program's own memory.
WIDE = dict(TINY, n_embd=128, n_head=4, n_layer=4, n_inner=512, n_positions=64)


WIDE_SWITCHES = ["--context", 32, "--batch", 2, "--hold-back", 0, "--rate", "1e-3", "--states", 32]


def tune_wide(*arguments):
    """What it writes, and how, as it tells."""
    remove("out")
    return tune_wide_on(*arguments)


def tune_wide_on(*arguments):
    result = run("wide", "wide.u16", "--out", "out", *WIDE_SWITCHES, *arguments)
    assert result.returncode == 0, result
    assert not os.path.exists("out.run") and os.listdir("disk") == [], (os.listdir("."), os.listdir("disk"))
    took, told = map(float, re.search(r"took ([\d.]+) MB at most, told ([\d.]+)", result.stdout).groups())
    assert took <= told, (took, told)
    return contents("out"), result.stdout


def memory_for(words, *arguments):
    """Enough for the way that --plan tells with these words, and too little for the faster ones."""
    result = run("wide", "wide.u16", "--out", "out", *WIDE_SWITCHES, *arguments, "--plan")
    assert result.returncode == 0 and not os.path.exists("out.run"), result
    ways = re.findall(r"^(\w.*) \(\d+, \w+\) +([\d.]+) ", result.stdout, re.M)
    own = min(float(least) for text, least in ways if text == words)
    faster = min(float(least) for text, least in ways[:[text for text, _ in ways].index(words)])
    assert own + 0.0015 < faster, ways
    return ["--memory", "%.4fG" % ((own + faster) / 2)]


def check_bits():
    """Batches have 64 rows, so that all ways sum in the same order."""
    switches = ["--weights", "fp32", "--steps", 6]
    expected, said = tune_wide(*switches, "--threads", 1)
    assert "weights and states in memory" in said, said
    assert tune_wide(*switches, "--threads", 2)[0] == expected
    assert tune_wide(*switches, "--threads", 1, "--seed", 2)[0] != expected
    switches += ["--threads", 1, "--disk", "disk"]
    words = "weights and states on the disk"
    files, said = tune_wide(*switches, *memory_for(words, *switches))
    assert "\n         %s;" % words in said and files == expected, (words, said)
    switches = ["--steps", 6, "--adapter", 4, "--frozen", 32, "--rate", "1e-2"]
    expected, said = tune_wide(*switches, "--threads", 1)
    assert "frozen weights in memory" in said
    assert tune_wide(*switches, "--threads", 2)[0] == expected
    words = "frozen weights read from their files, part by part"
    files, said = tune_wide(*switches, "--threads", 1, *memory_for(words, *switches, "--threads", 1))
    assert words in said and files == expected, said


def check_kills(r, arguments, count):
    """Runs, each stopped at random moments until it is through; `count` signals in all."""
    whole = command("wide", "wide.u16", "--out", "out", *WIDE_SWITCHES, "--threads", 1, *arguments)
    assert os.listdir("disk") == []
    begin = time.monotonic()
    expected, _ = tune_wide("--threads", 1, *arguments)
    seconds = time.monotonic() - begin
    remove("out")
    sent = 0
    while sent < count or not os.path.exists("out"):
        if os.path.exists("out"):
            assert contents("out") == expected, sent
            remove("out")
        process = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            process.wait(r.random() * seconds * 0.9 if sent < count else 60)
        except subprocess.TimeoutExpired:
            process.send_signal(r.choice([signal.SIGKILL, signal.SIGTERM]))
            sent += 1
        said = process.communicate()[0]
        assert process.returncode in (0, 3, -signal.SIGKILL, -signal.SIGTERM), (process.returncode, said)
        assert process.returncode != 0 or not os.path.exists("out.run"), os.listdir("out.run")
    assert contents("out") == expected and os.listdir("disk") == [], sent  # nor is a rehearsal's file left
    remove("out")


# ---- ranks ----
RANKED = [["--weights", "bf16", "--states", 8, "--clip", "0.5"],
          ["--weights", "split", "--optimizer", "muon"],
          ["--weights", "fp32", "--optimizer", "adafactor", "--batch", 1],
          ["--adapter", 4, "--rate", "1e-2"],
          ["--adapter", 4, "--frozen", 8, "--merge", "--rate", "1e-2"]]
SHARED = ["--accumulate", 4, "--hold-back", "0.2", "--validate", 2, "--steps", 5, "--threads", 2]


def told_losses(said):
    """Of steps and of what is held back."""
    found = re.findall(r"^(step \d+ of \d+  loss \S+|held back  loss \S+)", said, re.M)
    assert len(found) == 8, said
    return found


def check_ranks():
    """Any number of ranks, also more than there are batches: the bytes and losses of one."""
    for switches in RANKED:
        expected, said = tune_wide(*SHARED, *switches)
        for count in (2, 3, 5) if switches == RANKED[0] else (2, 3):
            files, other = tune_wide(*SHARED, *switches, "--ranks", count)
            assert files == expected and told_losses(other) == told_losses(said), (switches, count, other)
            assert "MB of %d ranks, of each: " % count in other, other
    check_ranks_on_disk()
    check_ranks_go_on()


def check_ranks_on_disk():
    switches = [*SHARED, "--weights", "fp32", "--disk", "disk", "--steps", 40]
    words = "weights and states on the disk"
    expected, _ = tune_wide(*switches)
    remove("out")
    alone, ranked = [*switches, *memory_for(words, *switches)], [*switches, "--ranks", 2]
    ranked += memory_for(words, *ranked)
    files, said = tune_wide(*ranked)
    assert words in said and files == expected, said
    remove("out")
    stop_at(3, "out", *WIDE_SWITCHES, *ranked)
    result = run("wide", "wide.u16", "--out", "out", *WIDE_SWITCHES, *alone)
    assert result.returncode == 1 and 'begun there with "disk of several ranks"' in result.stderr, result
    assert os.listdir("disk") == []
    files, said = tune_wide_on(*ranked)
    assert "goes on after step " in said and files == expected, said


def check_ranks_go_on():
    """A run goes on with other ranks, in memory."""
    switches = [*SHARED, "--weights", "bf16", "--steps", 60]
    expected, _ = tune_wide(*switches)
    remove("out")
    for count, step in ((2, 1), (1, 20), (3, 40)):
        stop_at(step, "out", *WIDE_SWITCHES, *switches, "--ranks", count)
    files, said = tune_wide_on(*switches, "--ranks", 2)
    assert "goes on after step " in said and files == expected, said


def check_processes(launch):
    """The same as processes; what is wrong with one of them ends all."""
    for switches in (RANKED[0], RANKED[4]):
        expected, said = tune_wide(*SHARED, *switches)
        remove("out")
        more = map(str, WIDE_SWITCHES + SHARED + switches)
        result = subprocess.run([*launch, "wide", "wide.u16", "--out", "out", *more], capture_output=True, text=True,
                                timeout=120)
        assert result.returncode == 0 and not os.path.exists("out.run"), result
        assert contents("out") == expected and told_losses(result.stdout) == told_losses(said), result
    remove("out")
    result = subprocess.run([*launch, "wide", "none.u16", "--out", "out"], capture_output=True, text=True, timeout=120)
    assert result.returncode and result.stderr.count("none.u16") == 1 and not os.path.exists("out.run"), result
    check_unlike_processes(launch)


def check_unlike_processes(launch):
    """Each is given what its machine has left: all have the plan of the least, and the bytes of one."""
    switches = ["--batch", 32, "--context", 64, "--steps", 1, "--threads", 1]
    expected, _ = tune_wide(*switches)
    remove("out")
    arguments = [*map(str, ["wide", "wide.u16", "--out", "out", *WIDE_SWITCHES, *switches]), "--memory"]
    start = lambda *more: subprocess.run([*launch, *arguments, *more], capture_output=True, text=True, timeout=120)
    least = re.search(r"([\d.]+)G is the least", start("1000").stderr).group(1)
    remove("out")
    result = start("1G", ":", "-n", "1", launch[-1], *arguments, "%.4fG" % (float(least) + 0.004))
    assert result.returncode == 0 and not os.path.exists("out.run") and contents("out") == expected, result


def check_stops():
    r = random.Random(time.time_ns() if KILLS > 12 else 12)
    check_kills(r, ["--steps", 12, "--save", 3], (KILLS + 3) // 4)
    check_kills(r, ["--steps", 12, "--save", 2, "--adapter", 4], (KILLS + 2) // 4)
    check_kills(r, ["--steps", 8, "--save", 2, "--accumulate", 2, "--ranks", 2], (KILLS + 1) // 4)
    disk = ["--steps", 5, "--weights", "fp32", "--disk", "disk"]
    disk += memory_for("weights and states on the disk", *disk, "--threads", 1)
    check_kills(r, disk, KILLS // 4)


def check_page():
    """A run that goes on has each step's loss once in its curve, also where it had got further than its save."""
    switches = [*WIDE_SWITCHES, "--steps", 40, "--threads", 1]
    remove("out")
    stop_at(3, "out", *switches)
    with open("out.run/losses", "a") as file:
        file.write("41 1 nan 1\n")
    write("mine", "mine")
    os.remove("out.html")
    os.symlink("mine", "out.html.tmp")
    assert run("wide", "wide.u16", "--out", "out", *switches).returncode == 0
    points = re.search("points='([^']*)'", bytes_of("out.html").decode()).group(1).split()
    steps = [float(point.split(",")[0]) for point in points]
    assert len(steps) == 40 and steps == sorted(set(steps)) and steps[-1] == 900, steps
    assert not os.path.islink("out.html") and bytes_of("mine") == b"mine"
    remove("out")


# ---- random weights ----
def llama_shapes(config):
    """The names that the reference writes, of a model with a head of its own."""
    c, hidden = config["hidden_size"], config["intermediate_size"]
    kv = c // config["num_attention_heads"] * config["num_key_value_heads"]
    block = {"input_layernorm": [c], "self_attn.q_proj": [c, c], "self_attn.k_proj": [kv, c],
             "self_attn.v_proj": [kv, c], "self_attn.o_proj": [c, c], "post_attention_layernorm": [c],
             "mlp.gate_proj": [hidden, c], "mlp.up_proj": [hidden, c], "mlp.down_proj": [c, hidden]}
    return {"model.embed_tokens.weight": [config["vocab_size"], c], "lm_head.weight": [config["vocab_size"], c],
            **{"model.layers.%d.%s.weight" % (i, name): shape for i in range(config["num_hidden_layers"])
               for name, shape in block.items()}, "model.norm.weight": [c]}


def empty_folder(path, **config):
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    write(path + "/config.json", json.dumps(config))
    return path


def begin(*arguments, out="out", **config):
    """The tensors that it begins with, and the first loss."""
    remove(out)
    result = run(empty_folder("new", **config), "tokens.u16", "--out", out, "--random", *SWITCHES, "--batch", 5,
                 "--steps", 1, "--rate", "1e-30", *EXACT, *arguments)
    assert result.returncode == 0 and sorted(os.listdir("new")) == ["config.json", "model.safetensors"], result
    assert read_folder("new").keys() == read_folder(out).keys()
    return read_folder("new"), float(re.search(r"^step 1 of 1  loss (\S+)", result.stdout, re.M).group(1))


def check_values_of(tensors, expected, kind, deviation):
    """Normal: mean and deviation within 5 of their own deviations, and no two tensors alike."""
    assert {name: t[1] for name, t in tensors.items()} == expected
    for name, (own, shape, data) in tensors.items():
        values, n = decode(own, data), math.prod(shape)
        assert own == kind, (name, own)
        if len(shape) == 1:
            assert set(values) == {1.0 if name.endswith("weight") else 0.0}, name
            continue
        mean = math.fsum(values) / n
        square = math.fsum(x * x for x in values) / n
        assert abs(mean) < 5 * deviation / math.sqrt(n), (name, mean)
        assert abs(math.sqrt(square) / deviation - 1) < 5 / math.sqrt(2 * n) + 0.003, (name, square)
    matrices = [data[:64] for _, shape, data in tensors.values() if len(shape) == 2]
    assert len(set(matrices)) == len(matrices)


def check_random():
    tensors, loss = begin(**LLAMA)
    check_values_of(tensors, llama_shapes(LLAMA), "BF16", 0.02)
    near(loss, math.log(VOCABULARY), "the loss of weights that know nothing", 0.05)
    for more in (["--threads", 2], ["--ranks", 2, "--accumulate", 2], ["--seed", 2]):
        assert (begin(*more, **LLAMA)[0] == tensors) == (more[0] != "--seed"), more
    for dtype, kind in (("float32", "F32"), ("float16", "F16"), ("bfloat16", "BF16")):
        check_values_of(begin(**LLAMA, dtype=dtype, initializer_range=0.5)[0], llama_shapes(LLAMA), kind, 0.5)
    tensors, loss = begin(**TINY, torch_dtype="float32")
    check_values_of(tensors, {"transformer." + name: shape for name, shape in shapes().items()}, "F32", 0.02)
    near(loss, Reference(tensors, "transformer.").loss(DOCUMENTS), "random weights")
    before = contents("new")
    tune("new", "tokens.u16", "--random", "--seed", 5, "--steps", 1)  # which are there, and stay
    assert contents("new") == before
    check_random_stops()
    remove("out")


def is_begun():
    """Are random weights being written? Only then has their file any bytes, and it is locked before."""
    return os.path.exists("new/model.safetensors.new") and os.path.getsize("new/model.safetensors.new") > 0


def check_random_stops():
    """Killed while it writes; another one meanwhile; a link in its way."""
    config = dict(LLAMA, vocab_size=1 << 21, tie_word_embeddings=True)  # 67 MB
    whole = command(empty_folder("new", **config), "tokens.u16", "--out", "out", "--random", *SWITCHES, "--steps", 1)
    remove("out")
    for wanted in ("kill", "another", "end"):
        if wanted == "another":
            os.remove("new/model.safetensors.new")
        process = subprocess.Popen(whole, stdout=subprocess.DEVNULL)
        while wanted != "end" and not is_begun():
            assert process.poll() is None
        process.send_signal(signal.SIGSTOP)
        if wanted == "another":
            other = ["other" if x == "out" else x for x in whole]
            result = subprocess.run(other, capture_output=True, text=True)
            assert result.returncode == 1 and ": another process writes it" in result.stderr, result
            remove("other")
        process.send_signal(signal.SIGCONT if wanted == "end" else signal.SIGKILL)
        assert process.wait(60) == (0 if wanted == "end" else -signal.SIGKILL)
        assert os.path.exists("new/model.safetensors") == (wanted == "end"), wanted
        assert os.path.exists("new/model.safetensors.new") == (wanted != "end"), wanted
    stopped = bytes_of("new/model.safetensors")
    data = read("new/model.safetensors")[0]["model.embed_tokens.weight"][2]
    assert len({data[i:i + 64] for i in range(0, 1 << 20, 64)}) == 1 << 14  # no piece is like another
    shutil.rmtree("out")
    os.remove("new/model.safetensors")
    assert subprocess.run(whole, stdout=subprocess.DEVNULL).returncode == 0
    assert bytes_of("new/model.safetensors") == stopped
    os.remove("new/model.safetensors")
    write("mine", "mine")
    os.symlink("../mine", "new/model.safetensors.new")
    shutil.rmtree("out")
    result = subprocess.run(whole, capture_output=True, text=True)
    assert result.returncode == 1 and "or it is a link" in result.stderr and bytes_of("mine") == b"mine", result


# ---- what a step moves at a disk ----
DEEP = dict(LLAMA, hidden_size=128, num_attention_heads=4, num_key_value_heads=4, intermediate_size=320, vocab_size=256,
            num_hidden_layers=6, max_position_embeddings=256, torch_dtype="float32")


def disk_bytes(element):
    """Weights fill sectors of 4096 bytes; a tensor's states in 32 bits are 64 bytes and two floats an element. Forward
    and backward read all weights, but the head's once. Returns what a step reads, and writes."""
    c, hidden, vocabulary = DEEP["hidden_size"], DEEP["intermediate_size"], DEEP["vocab_size"]
    head = [c, vocabulary * c]
    block = [c, 3 * c * c, c * c, c, 2 * hidden * c, c * hidden]
    all_of = [vocabulary * c, *head, *block * DEEP["num_hidden_layers"]]
    padded = lambda tensors: sum(-(-n * element // 4096) * 4096 for n in tensors)
    states = sum(64 + 8 * n for n in all_of)
    return 2 * padded(all_of) - padded(head) + states, padded(all_of) + states


def tune_deep(*arguments):
    """Losses and tensors, and what was moved."""
    remove("out")
    result = run("deep", "deep.u16", "--out", "out", *DEEP_SWITCHES, *arguments)
    assert result.returncode == 0 and os.listdir("disk") == [], result
    moved = re.search(r"^moved +in \d steps read (\d+) bytes, written (\d+); told \1 and \2$", result.stdout, re.M)
    return (re.findall(r"loss \S+", result.stdout), contents("out")), moved and tuple(map(int, moved.groups()))


DEEP_SWITCHES = ["--random", "--context", 128, "--hold-back", 0, "--threads", 1, "--states", 32, "--steps", 3,
                 "--rate", "1e-3"]


def deep_memory(weights, *more):
    """Of the fastest way on a disk, with everything kept, and about its least."""
    told = run("deep", "deep.u16", "--out", "out", *DEEP_SWITCHES, "--disk", "disk", "--weights", weights, *more,
               "--plan")
    assert told.returncode == 0 and not os.path.exists("out.run") and os.listdir("disk") == [], told
    ways = [x.split() for x in re.findall(r"^weights and states (.*)", told.stdout, re.M)]
    memory, disk = (next(x for x in ways if x[0] == word) for word in ("in", "on"))
    least, most, others = float(disk[5]), float(disk[7]), float(memory[4])
    assert least + 0.001 < most + 0.002 < others, told.stdout
    return most + 0.002, least + 0.001  # what is told is rounded by up to 0.0005


def tune_little(weights, little, *switches):
    """On a busy machine a process may have a few MB more of its program's file in memory than the one that planned: it
    says so, and is planned again."""
    for _ in range(3):
        try:
            return tune_deep(*switches, "--memory", "%.4fG" % little)
        except AssertionError as error:
            if "is too little" not in str(error):
                raise
        little = deep_memory(weights)[1]
    raise AssertionError("three plans in turn were too little")


def check_disk_bytes():
    empty_folder("deep", **DEEP)
    r = random.Random(4)
    write("deep.u16", struct.pack("<2000H", *(r.randrange(256) for _ in range(2000))))
    for weights, element in (("fp32", 4), ("bf16", 2)):
        enough, little = deep_memory(weights)
        assert os.path.exists("deep/model.safetensors") == (weights == "bf16")  # --plan makes none
        switches = ["--weights", weights, "--disk", "disk"]
        expected, moved = tune_deep("--weights", weights)
        assert moved is None
        found, moved = tune_deep(*switches, "--memory", "%.4fG" % enough)
        reads, writes = (3 * n for n in disk_bytes(element))
        assert found == expected and moved == (reads, writes), (weights, moved, reads, writes)
        found, moved = tune_little(weights, little, *switches)  # weights are read once more
        assert found == expected and moved[0] > reads and moved[1] == writes, (weights, moved, reads)
    for more in (["--accumulate", 2], ["--clip", 1], ["--hold-back", 0.5, "--validate", 1],
                 ["--accumulate", 2, "--ranks", 2]):
        write("deep/config.json", json.dumps(dict(DEEP, eos_token_id=0)))  # there are documents
        assert tune_deep(*switches, "--memory", "%.4fG" % deep_memory("bf16", *more)[0], *more)[1], more


def check_disk_pauses():
    """A run in pieces; a link, or another store, where its file goes; no room for that."""
    switches = [*DEEP_SWITCHES, "--disk", "disk", "--memory", "%.4fG" % deep_memory("bf16")[0]]
    expected, _ = tune_deep(*switches[len(DEEP_SWITCHES):])
    remove("out")
    for status in (3, 3, 0):
        result = run("deep", "deep.u16", "--out", "out", *switches, "--pause", 1)
        assert result.returncode == status and os.path.exists("out") == (status == 0), result
        assert len(re.findall("^step ", result.stdout, re.M)) == 1, result
        names = names if status == 0 else os.listdir("disk")
    assert contents("out") == expected[1] and len(names) == 1 and os.listdir("disk") == []
    store = "disk/" + names[0]
    write("mine", "mine")
    os.symlink("../mine", store)
    remove("out")
    result = run("deep", "deep.u16", "--out", "out", *switches)
    assert result.returncode == 1 and store + ": " in result.stderr and "is a link" in result.stderr, result
    assert bytes_of("mine") == b"mine"
    os.remove(store)
    remove("out")
    result = run("deep", "deep.u16", "--out", "out", *switches, limit=1 << 20)
    assert result.returncode == 1 and store in result.stderr and os.listdir("disk") == [], result
    remove("out")


# ---- what a model says ----
def said(result):
    assert result.returncode == 0, result
    return result.stdout.split("says     ")[1].split("\nmemory ")[0]


def shown(text):
    return "".join(c if c >= " " and c != "\x7f" or c in "\n\t" else "?" for c in text)


def check_prompts():
    """Greedy tokens are ours; drawn ones depend on the seed alone."""
    tensors, compared = model(10, ["F32"]), 0
    reference, folder = Reference(tensors), folder_of("in", tensors)

    def says(prompt, most, *arguments):
        remove("out")
        return said(run(folder, "tokens.u16", "--out", "out", *EXACT, *SWITCHES, "--rate", "1e-30", "--batch", 5,
                        "--prompt", prompt, "--tokens", most, *arguments))

    for prompt, most in (("the", 8), ("or an", 7), ("x", 11)):
        tokens = reference.greedy(encode_text(prompt), most)
        if tokens:
            compared += 1
            text = says(prompt, most)
            assert text == shown(decode_tokens(tokens)), (text, tokens)
    assert compared >= 2
    drawn = [says("the", 9, "--temperature", 2, "--seed", seed) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1] and len(set(drawn)) == 3, drawn
    short = tokenizer()  # vocabularies are often padded: the model says what has no text
    del short["added_tokens"][:], short["model"]["merges"][1:]
    short["model"]["vocab"] = {text: i for text, i in short["model"]["vocab"].items() if i < 257}
    write(folder + "/tokenizer.json", json.dumps(short))
    drawn = [says("x", 10, "--temperature", 1000, "--seed", seed) for seed in range(1, 9)]
    assert any("cannot tell: id 2" in text for text in drawn), drawn


# ---- refusals ----
class Refusals:
    """Each leaves no file behind that was not there."""
    def __init__(self):
        self.good = model(1, ["F32"])
        self.count = 0

    def told(self, words, *arguments, status=1, left=(), limit=None, out="out"):
        before = set(os.listdir("."))
        result = run(*arguments, "--out", out, limit=limit)
        assert result.returncode == status and words in result.stderr, (words, result)
        assert result.stderr.startswith("finetune: ") and "step 1 " not in result.stdout, result
        assert set(os.listdir(".")) - before <= set(left), (words, os.listdir("."))
        self.count += 1

    def folder(self, words, *arguments, data="tokens.u16", **more):
        self.told(words, "bad", data, *SWITCHES, *arguments, **more)

    def tensors(self, words, **changed):
        folder_of("bad", {k: v for k, v in {**self.good, **changed}.items() if v})
        self.folder(words)

    def config(self, words, text=None, /, **changed):
        write("bad/config.json", text if text is not None else
              json.dumps({k: v for k, v in {**self.base, **changed}.items() if v != "(missing)"}))
        self.folder(words)


def refuse_tensors(r):
    for name, (kind, shape, data) in r.good.items():
        r.tensors(name + " is missing", **{name: None})
        r.tensors(name + " has the wrong shape", **{name: (kind, shape + [1], data)})
        r.tensors(name + " has the wrong shape", **{name: (kind, [0] + shape[1:], b"")})
        r.tensors(name + " has the wrong shape",
                  **{name: (kind, [shape[0] + 1] + shape[1:], data + data[:len(data) // shape[0]])})
        r.tensors(name + " is of type F64", **{name: ("F64", shape, data * 2)})
        r.tensors(name + " is there twice", **{"transformer." + name: r.good[name]})
    for name in ("h.2.ln_1.weight", "h.40000.ln_1.weight", "h.00.ln_1.weight", "h.0.ln_3.weight", "lm_head.bias",
                 "h.1.attn.bias.weight", "h.99999999999999999999.ln_1.weight", "", "h.", "h.1", "h..ln_1.weight",
                 "a\x1b[1m"):
        r.tensors(name.replace("\x1b", "?") + " is not known", **{name: r.good["ln_f.bias"]})
    r.tensors("lm_head.weight is not the embedding",
              **{"lm_head.weight": model(6, ["F32"])["wte.weight"]})
    r.tensors("lm_head.weight has the wrong shape", **{"lm_head.weight": r.good["ln_f.bias"]})
    kind, shape, data = r.good["wte.weight"]
    r.tensors("lm_head.weight is of type U8", **{"lm_head.weight": ("U8", shape, data[::4])})
    folder_of("bad", {**r.good, "ln_f.bias": ("F32", [WIDTH], encode("F32", [float("nan")] * WIDTH))})
    r.folder("ln_f.bias has elements that are not finite", left=["out.run"])
    remove("out")
    folder_of("bad", {**r.good, "wte.weight": (kind, shape, data[:-4] + encode("F32", [float("inf")]))})
    r.folder("wte.weight has elements that are not finite", "--adapter", 2, "--frozen", 8, left=["out.run"])
    remove("out")


def refuse_files(r):
    """Cut-off files, and an index that is none."""
    whole = file_of(r.good)
    size = 8 + struct.unpack("<Q", whole[:8])[0]
    for n in (0, 1, 7, 8, 9, size - 1, size, size + 1, len(whole) - 1):
        write("bad/model.safetensors", whole[:n])
        r.folder("model.safetensors: ")
    write("bad/model.safetensors", b"\xff" * 8 + whole[8:])
    r.folder("model.safetensors: ")
    write("bad/model.safetensors", file_of(r.good, {"format": "tf"}))
    r.folder('its format is "tf"')
    os.remove("bad/model.safetensors")
    r.folder("model.safetensors: ")
    folder_of("bad", r.good, parts=2)
    index = json.loads(bytes_of("bad/model.safetensors.index.json"))
    for words, value in (("no weight_map", []), ("what is no file", {"x": 1}),
                         ("no file of this folder", {"x": "y" * 300}),
                         ("no file of this folder", {"x": "../in/model.safetensors"}),
                         ("none.safetensors: ", {**index["weight_map"], "x": "none.safetensors"})):
        write("bad/model.safetensors.index.json", json.dumps({"weight_map": value}))
        r.folder(words)
    for words, value in (("no weight_map", {}), ("no weight_map", 7)):
        write("bad/model.safetensors.index.json", json.dumps(value))
        r.folder(words)
    write("bad/model.safetensors.index.json", json.dumps(index)[:-2])
    r.folder("model.safetensors.index.json: ")
    write("bad/model.safetensors.index.json", json.dumps(index))
    write("bad/" + index["weight_map"]["ln_f.bias"], file_of(r.good))
    r.folder("is there twice")


NUMBERS = [0, -1, 2.5, "4", [4], 1e99, 10 ** 30, 1 << 25, True]


GPT2_VALUES = [
    ("model_type", "bert"), ("model_type", None), ("model_type", ["gpt2"]), ("vocab_size", "(missing)"),
    ("activation_function", "relu"), ("quantization_config", {}), ("layer_norm_epsilon", 0),
    ("layer_norm_epsilon", -1e-5), ("layer_norm_epsilon", "x"), ("n_head", 3), ("tie_word_embeddings", 1),
    ("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True), ("add_cross_attention", True),
    ("eos_token_id", -1), ("eos_token_id", 1.5), ("eos_token_id", "x"), ("bos_token_id", 1 << 30)]


def refuse_configs(r):
    folder_of("bad", r.good)
    r.base = TINY
    for name in ("n_embd", "n_head", "n_layer", "n_inner", "n_positions", "vocab_size"):
        for value in NUMBERS:
            r.config("config.json: " + name, **{name: value})
    for name, value in GPT2_VALUES:
        r.config("config.json: " + name, **{name: value})
    r.config("wte.weight has the wrong shape", vocab_size=VOCABULARY + 1)
    r.config("h.2.ln_1.weight is missing", n_layer=3)
    r.config(" is not known, or not in config.json", n_layer=1)
    refuse_llamas(r)
    good = json.dumps(TINY)
    for text in [good[:n] for n in range(0, len(good), 17)] + [
            good + "}", "[" * 100, '{"a":' * 100, "[]", "7", "\x00", '{"n_embd": NaN, ' + good[1:],
            good.replace("16", "Infinity"), good.replace("16", "1e"), good.replace("gpt2", "gpt2\\ud800")]:
        r.config("config.json", text)
    for data in (b"\xff\xfe" + good.encode("utf-16-le"), good.replace("gpt2", "gpt\xe9").encode("latin-1")):
        r.config("config.json", data)
    os.remove("bad/config.json")
    r.folder("config.json")


LLAMA_VALUES = [
    dict(hidden_act="relu"), dict(num_key_value_heads=3), dict(num_key_value_heads=3, num_attention_heads=4),
    dict(head_dim=7), dict(head_dim=2048), dict(head_dim=0), dict(rope_theta=0), dict(rope_theta="x"),
    dict(partial_rotary_factor=0.5), dict(attention_bias=True), dict(use_sliding_window=True, model_type="qwen2"),
    dict(layer_types=["sliding_attention"], model_type="qwen3"), dict(sliding_window=-1, model_type="mistral"),
    dict(rms_norm_eps=0)]
ROPE_VALUES = [
    ("rope_scaling", dict(rope_type="dynamic", factor=2)), ("rope_scaling", dict(type="longrope", factor=2)),
    ("factor", dict(type="linear")), ("factor", dict(type="linear", factor=-2)),
    ("factor", dict(type="linear", factor="x")),
    ("low_freq_factor", dict(rope_type="llama3", factor=2)), ("mscale", dict(rope_type="yarn", factor=2, mscale=1))]


def refuse_llamas(r):
    r.base = LLAMA
    for changed in LLAMA_VALUES:
        r.config("config.json: " + next(iter(changed)), **changed)
    for name, value in ROPE_VALUES:
        r.config("config.json: " + name, rope_scaling=value)
        r.config("config.json: " + name, rope_parameters=value)
    for name in LLAMA:
        if name not in ("num_key_value_heads", "max_position_embeddings", "rms_norm_eps"):  # which have defaults
            r.config("config.json: " + name, **{name: "(missing)"})
        for value in NUMBERS if name not in ("model_type", "rms_norm_eps") else []:
            r.config("config.json: " + name, **{name: value})


def refuse_data(r):
    folder_of("bad", r.good)
    names = ["data", "data.u16", "data.jsonl", "data.bin", *[n + ".tokens" for n in ("data", "data.u16", "data.jsonl")]]
    for name, content, words in (
            ("data", "", "it is empty"), ("data.u16", "", "it is empty"), ("data.u16", b"\xff" * 100, "token 65535"),
            ("data.u16", b"\0" * 101, "no whole number"), ("data.bin", b"\0" * 2000, "20240520"),
            ("data", b"a\xff", "no UTF-8"), ("data.jsonl", "{}\n", "data.jsonl:1: "),
            ("data.jsonl", '{"text": "ab"}\n[]\n', "data.jsonl:2: "), ("data.jsonl", '{"text": 1}\n', "data.jsonl:1: "),
            ("data.jsonl", '{"text": ""}\n', "no document has a token to learn")):
        write(name, content)
        r.folder(words, data=name, left=names)
        for each in names:
            if os.path.exists(each):
                os.remove(each)
    r.folder("none: ", data="none")
    r.folder("none of its 4 documents is held back", "--hold-back", "0.0001")
    write("text", "there is one")
    write("bad/tokenizer.json", json.dumps(dict(tokenizer(), model=None)))
    r.folder("bad/tokenizer.json: ", data="text")
    larger = tokenizer()
    larger["model"]["vocab"]["more"] = VOCABULARY
    write("bad/tokenizer.json", json.dumps(larger))
    r.folder("tokens up to %d" % VOCABULARY, data="text")
    os.remove("bad/tokenizer.json")
    r.folder("bad/tokenizer.json: ", data="text")


def refuse_switches(r):
    folder_of("bad", r.good)
    r.folder("is the least", "--memory", 1000, left=["out.run"])
    remove("out")
    r.folder("the model has %d positions" % POSITIONS, "--context", POSITIONS + 1)
    r.folder("--adapter %d: matrices have only %d" % (WIDTH + 1, WIDTH), "--adapter", WIDTH + 1)
    r.folder("--prompt: ", "--prompt", "th" * 5, "--tokens", 8)
    r.folder("--prompt: ", "--prompt", "x" * 13, "--tokens", 1)
    for out in ("tokens.u16", "wide"):
        r.folder(out + " is there already", out=out)
    for out in ("none/out", "tokens.u16/out"):
        r.folder(out, out=out)
    os.mkdir("closed", 0o500)
    if os.geteuid():  # root may write there
        r.folder("closed/out", out="closed/out")
    os.rmdir("closed")
    r.folder("--epochs 0: that is no step", "--epochs", 0)
    for switches in ("--steps x", "--steps -1", "--batch 0", "--batch 1.5", "--threads 0", "--rate nan", "--rate 2",
                     "--layers 3", "--memory 1M1", "--context 1e99", "--states 4", "--weights f8", "--optimizer adam",
                     "--schedule x", "--frozen 12", "--weights split --adapter 2", "--merge", "--hold-back 1", "--steps", "third"):
        result = run("bad", "tokens.u16", "--out", "out", *switches.split())
        assert result.returncode == 2, (switches, result)
        assert result.stderr.startswith("finetune: " + switches.split()[0]), (switches, result)
    for arguments in ("", "bad", "bad tokens.u16", "bad tokens.u16 --out x/", "bad tokens.u16 --out " + "x" * 999):
        assert run(*arguments.split()).returncode == 2, arguments
    assert run("--help").stdout.startswith("usage: finetune ")


def refuse_others(r):
    """Another run in the same folder: at the same time, and with other settings behind one that was stopped."""
    switches = [*WIDE_SWITCHES, "--steps", 40]
    whole = command("wide", "wide.u16", "--out", "out", *switches)
    process = subprocess.Popen(whole, stdout=subprocess.PIPE, text=True)
    while not process.stdout.readline().startswith("step 2 "):
        assert process.poll() is None
    process.send_signal(signal.SIGSTOP)
    r.told("out.run: ", "wide", "wide.u16", *switches)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert "stopped after step " in process.communicate()[0] and process.returncode == 3
    assert set(os.listdir(".")) & {"out", "out.tmp", "out.run"} == {"out.run"}
    kept = contents_below("out.run")
    for name, value in (("rate", "1e-4"), ("seed", 2), ("batch", 1), ("context", 8), ("steps", 41), ("adapter", 2),
                        ("weights", "split"), ("decay", "0.5"), ("accumulate", 2), ("optimizer", "lion"),
                        ("states", 8)):
        r.told("out.run: a run was begun there with \"", "wide", "wide.u16", *switches, "--" + name, value)
        assert contents_below("out.run") == kept, name
    tokens = bytes_of("wide.u16")
    write("other.u16", tokens[2:4] + tokens[:2] + tokens[4:])
    r.told("out.run: a run was begun there with \"data ", "wide", "other.u16", *switches, left=["other.u16.tokens"])
    files, said = tune_wide_on("--steps", 40)
    assert "goes on after step " in said and files == tune_wide("--steps", 40)[0]
    remove("out")
    refuse_other_share(r)


def refuse_other_share(r):
    """A run does not go on with other documents held back, though its windows are as many."""
    write("short.u16", struct.pack("<240H", *[EOS if i % 4 == 3 else 97 + i // 4 for i in range(240)]))
    switches = [*WIDE_SWITCHES, "--steps", 9]
    more = {}
    for percent in range(20, 80):
        remove("out")
        said = run("wide", "short.u16", "--out", "out", *switches, "--hold-back", percent / 100, "--pause", 1).stdout
        documents, windows = map(int, re.search(r"^data +(\d+) documents in (\d+) ", said, re.M).groups())
        if more.setdefault(windows, documents) > documents:
            break
    assert more[windows] > documents, more
    r.told("begun there with \"data ", "wide", "short.u16", *switches, "--hold-back", (percent - 1) / 100)
    remove("out")


def contents_below(path):
    return {os.path.join(folder, name): bytes_of(os.path.join(folder, name))
            for folder, _, names in os.walk(path) for name in names}


def refuse_random(r):
    """Nothing is left, and the weights that there are none of are not made."""
    empty_folder("new", **LLAMA)
    told = lambda words, *more, data="tokens.u16", **others: r.told(words, "new", data, *SWITCHES, *more, **others)
    told("new/model.safetensors: ")
    write("new/model-00001-of-00002.safetensors", "a half of it")
    told("new/model.safetensors: ", "--random")
    os.remove("new/model-00001-of-00002.safetensors")
    told("is the least", "--random", "--memory", 1000)
    told("none.u16: ", "--random", data="none.u16")
    told("--adapter 17: matrices", "--random", "--adapter", 17)
    told("model.safetensors.new", "--random", limit=4096, left=["out.run"])
    remove("out")
    for name in ("wide", "wide.u16/out"):
        told(name, "--random", out=name)
    os.mkdir("out.tmp")
    write("out.tmp/mine", "mine")
    told("out.tmp is there already", "--random", left=["out.tmp", "out.run"])
    remove("out")
    for name, value in (("torch_dtype", "float64"), ("torch_dtype", 7), ("initializer_range", 0),
                        ("initializer_range", "x"), ("initializer_range", 1e30)):
        write("new/config.json", json.dumps(dict(LLAMA, **{name: value})))
        told("config.json: " + name, "--random", left=["out.run"])
        remove("out")
    assert os.listdir("new") == ["config.json"]
    write("new/config.json", json.dumps(LLAMA))
    os.chmod("new", 0o500)
    if os.geteuid():
        told("model.safetensors.new", "--random", left=["out.run"])
    os.chmod("new", 0o700)
    remove("out")


def refuse_full_disk(r):
    """At the end, and at a save: once there is room the same command goes on."""
    switches = ["--steps", 3, "--save", 2, "--batch", 5]
    tune("bad", "tokens.u16", *EXACT, *switches)
    expected = contents("out")
    size = len(expected["model.safetensors"])
    remove("out")
    for limit, more in ((4096, []), (size - 1000, ["--save", 0])):
        result = run("bad", "tokens.u16", "--out", "out", *SWITCHES, *EXACT, *switches, *more, limit=limit)
        assert result.returncode == 1 and "out" in result.stderr, result
        assert not os.path.exists("out") and not os.path.exists("out.tmp"), os.listdir(".")
        result = run("bad", "tokens.u16", "--out", "out", *SWITCHES, *EXACT, *switches, *more)
        assert result.returncode == 0 and contents("out") == expected, result
        remove("out")


def check_foreign():
    """Files of somebody else beside OUT stay. What cannot be copied costs no step."""
    switches = [*SWITCHES, "--steps", 3, "--out", "out"]
    remove("out")
    folder_of("bad", model(1, ["F32"]))
    write("bad/adapter_config.json", "{}")
    for folder in "out.run", "out.tmp":
        os.mkdir(folder)
        write(folder + "/notes", "mine")
    result = run("bad", "tokens.u16", *switches)
    assert result.returncode == 1 and "out.tmp is there already" in result.stderr, result
    shutil.move("out.tmp/notes", "notes")
    os.rmdir("out.tmp")
    assert run("bad", "tokens.u16", *switches).returncode == 0 and os.listdir("out.run") == ["notes"]
    expected = contents("out")
    assert "adapter_config.json" not in os.listdir("out")  # it would say that this is one
    remove("out")
    os.symlink("nowhere", "bad/more.json")
    result = run("bad", "tokens.u16", *switches)
    assert result.returncode == 1 and "all steps are saved" in result.stdout, result
    os.remove("bad/more.json")
    folder_of("bad", model(2, ["F32"]))
    result = run("bad", "tokens.u16", *switches)
    assert result.returncode == 1 and "begun there with \"model " in result.stderr, result
    folder_of("bad", model(1, ["F32"]))
    result = run("bad", "tokens.u16", *switches)
    assert result.returncode == 0 and "goes on after step 3" in result.stdout and contents("out") == expected, result
    remove("out")


def stop_at(step, out, *arguments):
    process = subprocess.Popen(command("wide", "wide.u16", "--out", out, *arguments), stdout=subprocess.PIPE, text=True)
    while not process.stdout.readline().startswith("step %d " % step):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert "stopped after step " in process.communicate()[0] and process.returncode == 3


def check_disks():
    """By each way that uses a disk: two runs of one name share it; a run whose store is missing does not begin anew."""
    switches = [*WIDE_SWITCHES, "--steps", 40, "--weights", "fp32", "--disk", "disk", "--threads", 1]
    ways = run("wide", "wide.u16", "--out", "out", *switches, "--plan").stdout
    for words in sorted(set(re.findall(r"^(\w.* on the disk) \(", ways, re.M))):
        check_disk([*switches, *memory_for(words, *switches[len(WIDE_SWITCHES):])])


def check_disk(switches):
    expected, _ = tune_wide(*switches[len(WIDE_SWITCHES):])
    remove("out")
    os.mkdir("other")
    stop_at(3, "out", *switches)
    stop_at(1, "other/out", *switches, "--seed", 2)
    os.rename("disk", "away")
    os.mkdir("disk")
    result = run("wide", "wide.u16", "--out", "out", *switches)
    assert result.returncode == 1 and ".tiles is missing: give --disk as before" in result.stderr, result
    os.rmdir("disk")
    os.rename("away", "disk")
    assert len(os.listdir("disk")) == 2
    result = run("wide", "wide.u16", "--out", "out", *switches)
    assert "goes on after step " in result.stdout and contents("out") == expected, result
    assert "\ntime     " in result.stdout, result
    shutil.rmtree("other")
    os.remove(os.path.join("disk", *os.listdir("disk")))
    remove("out")


def check_refusals():
    remove("out", "again", "merged")
    r = Refusals()
    refuse_tensors(r)
    refuse_files(r)
    refuse_configs(r)
    refuse_data(r)
    refuse_switches(r)
    refuse_others(r)
    refuse_random(r)
    refuse_full_disk(r)
    return r.count


CHECKS = [check_values, check_untied, check_text, check_adapters, check_merged_bands, check_bits, check_ranks,
          check_stops, check_prompts, check_foreign, check_disks, check_page, check_random, check_disk_bytes,
          check_disk_pauses]


def main():
    global DOCUMENTS
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.mkdir("disk")
        DOCUMENTS = write_tokens("tokens.u16")
        folder_of("wide", bf16_model(WIDE), config=WIDE)
        r = random.Random(2)
        tokens = [EOS if i % 37 == 36 else r.randrange(VOCABULARY) for i in range(2000)]
        write("wide.u16", struct.pack("<2000H", *tokens))
        if LAUNCH:
            check_processes(LAUNCH)
            return print("processes: the bytes of one")
        for check in CHECKS:
            begin = time.monotonic()
            check()
            print("%s: %.1f s" % (check.__name__, time.monotonic() - begin), flush=True)
        print(check_refusals(), "refusals as they should be")


main()
