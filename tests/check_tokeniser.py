#!/usr/bin/env python3
"""check_tokeniser.py TOOL [STRINGS [SEED]] - examples/finetune/tokeniser.h beside the library `tokenizers`.

Of each kind one is trained here on the project's own texts, written as tokenizer.json, and given STRINGS strings:
words, code, numbers, white space, added tokens, and code points of every plane. Every id, and every byte that is
decoded, has to be the same. Exit status 77: no `tokenizers` here.

What is known to differ is left out: marks and numbers that are newer than the library's own tables, for NFC and Digits.
"""
import json, os, random, subprocess, sys, tempfile, unicodedata

try:
    from tokenizers import AddedToken, Regex, Tokenizer
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError:
    print("no python3 with tokenizers here: pip install tokenizers")
    sys.exit(77)

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
LLAMA3, QWEN2 = WORDS + r"|\p{N}{1,3}" + REST, WORDS + r"|\p{N}" + REST
BYTES = [f"<0x{i:02X}>" for i in range(256)]
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im", "<tool_call>", "\u00e9\u0301x", "[MASK]", "[L]", "[R]",
         "[LR]", "word", "e\u0301"]
MANY = "Größe naïve café Ünïcödé здравствуйте мир こんにちは世界 안녕하세요 नमस्ते 你好，世界！ مرحبا \u1ea5\u1ed9 1234567\n"


def texts():
    lines = []
    for name in ("examples/text.txt", "README.md", "examples/finetune/json.h", "tests/check.sh"):
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            lines += [line for line in file if len(line) < 1000]
    return lines + [MANY] * 30


def add_tokens(tokenizer, normalized):
    special = [AddedToken(text, special=True, normalized=False) for text in ADDED[:4]]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([
        AddedToken(ADDED[4], normalized=False), AddedToken(ADDED[5], normalized=normalized),
        AddedToken(ADDED[6], lstrip=True, normalized=False), AddedToken(ADDED[7], lstrip=True, normalized=normalized),
        AddedToken(ADDED[8], rstrip=True, normalized=False),
        AddedToken(ADDED[9], lstrip=True, rstrip=True, normalized=normalized),
        AddedToken(ADDED[10], single_word=True, normalized=normalized),
        AddedToken(ADDED[11], single_word=True, normalized=False)])


def byte_level(pre_tokenizer, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(texts(), trainer)
    add_tokens(tokenizer, normalizer is not None)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def by_characters(trained_with, normalizer, pre_tokenizer, decoder, characters=90):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if trained_with:
        tokenizer.pre_tokenizer = trained_with
    trainer = trainers.BpeTrainer(vocab_size=1500, limit_alphabet=characters, show_progress=False,
                                  special_tokens=["<unk>", "<s>", "</s>"] + BYTES)
    tokenizer.train_from_iterator((line.rstrip("\n") for line in texts()), trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3] # the bytes are tokens of the model alone
    tokenizer = Tokenizer.from_str(json.dumps(data))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    elif trained_with:
        data = json.loads(tokenizer.to_str())
        data["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoder
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    add_tokens(tokenizer, True)
    return tokenizer


def random_merges(fallback):
    """Every string of three letters up to length 4, put together in every way, in a random order."""
    draw = random.Random(3)
    letters, vocab = "ab\u2581", []
    level = [""]
    for _ in range(4):
        level = [text + letter for text in level for letter in letters]
        vocab += level
    merges = [(text[:i], text[i:]) for text in vocab for i in range(1, len(text))]
    draw.shuffle(merges)
    merges = merges[: len(merges) * 2 // 3]
    vocab += BYTES if fallback else []
    ids = {text: i for i, text in enumerate(vocab)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, byte_fallback=fallback))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    return tokenizer


def unknown(bytes_there=0, **options):
    """Few letters, so that most characters have no token; of <0x00> to <0xFF> the first few, if any."""
    vocab = ["<unk>", "a", "b", "ab", "e", "th", "t", "h", "\u2581"] + BYTES[:bytes_there]
    ids = {text: i for i, text in enumerate(vocab)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[("a", "b"), ("t", "h")], **options))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def llama_decoder():
    return decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


def kinds():
    metaspace = pre_tokenizers.Metaspace
    prepend = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    llama3 = byte_level(split(LLAMA3), ignore_merges=True)
    around = processors.TemplateProcessing(single="<|im_start|> <|im $A <|im_end|>",
                                           special_tokens=[(text, llama3.token_to_id(text)) for text in ADDED[1:4]])
    llama3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), around])
    first, never = metaspace(prepend_scheme="first", split=False), metaspace(prepend_scheme="never")
    nfc = normalizers.NFC()
    return {
        "GPT-2": byte_level(gpt2),
        "GPT-2 with add_prefix_space": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        "Llama 3": llama3,
        "Qwen2": byte_level(split(QWEN2), nfc),
        "SmolLM": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), gpt2])),
        "Digits": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(), gpt2]), normalizers.Sequence([nfc])),
        "Llama 2": by_characters(metaspace(), prepend, None, llama_decoder()),
        "Llama 2, merges across blanks": by_characters(None, prepend, None, llama_decoder(), 1000),
        "Mistral, Metaspace": by_characters(metaspace(), None, first, llama_decoder()),
        "Metaspace that splits": by_characters(metaspace(), None, metaspace(), decoders.Metaspace()),
        "Metaspace, never": by_characters(metaspace(), None, never, decoders.Metaspace(prepend_scheme="never")),
        "unknown, one by one": unknown(unk_token="<unk>"), "unknown, fused": unknown(unk_token="<unk>", fuse_unk=True),
        "unknown, left out": unknown(), "unknown, some bytes": unknown(128, unk_token="<unk>", byte_fallback=True),
        "unknown, some bytes, fused": unknown(128, unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        "random merges": random_merges(False), "random merges, bytes": random_merges(True),
    }


def alone(pre_tokenizer):
    """Code points that it makes a piece of their own."""
    pieces = pre_tokenizer.pre_tokenize_str("".join(chr(code) + "a" for code in CODES))
    return {ord(piece) for piece, _ in pieces if len(piece) == 1}


def newer(name):
    """Code points that are newer than the library's tables for what this kind does."""
    found = set()
    if name in ("Qwen2", "Digits"):
        nfc = normalizers.NFC().normalize_str
        for code in CODES:
            char = chr(code)
            if unicodedata.category(char) == "Cn": # assigned since this Python: what they are is not known here
                found.add(code)
            elif unicodedata.combining(char) > 1 and nfc("q" + char + "\u0334") != "q\u0334" + char:
                found.add(code)
            elif nfc(unicodedata.normalize("NFD", char)) != unicodedata.normalize("NFC", char):
                found |= {code, *map(ord, unicodedata.normalize("NFD", char))}
    if name in ("SmolLM", "Digits"):
        found |= alone(pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")) ^ alone(pre_tokenizers.Digits(True))
    return found


class Strings:
    def __init__(self, seed, without, name):
        self.draw = random.Random(seed)
        self.codes = [code for code in CODES if code not in without]
        self.composed = [c for c in self.codes
                         if unicodedata.normalize("NFD", chr(c)) != chr(c) or unicodedata.combining(chr(c))]
        self.words = " ".join(texts()).split()
        self.lines = texts()
        self.letters = "ab \u2581" if name.startswith("random") else ""

    def code(self):
        draw = self.draw
        plane = draw.random()
        if plane < 0.3:
            return chr(draw.choice(self.codes))
        if plane < 0.5:
            return chr(draw.choice(self.codes[:0x3000]))
        if plane < 0.8:
            char = chr(draw.choice(self.composed))
            return unicodedata.normalize("NFD", char) if draw.random() < 0.5 else char
        return draw.choice("\u0301\u0323\u0334\u1161\u11a8\uac00\u0958\u09be\u2581\u017f'")

    def part(self):
        draw = self.draw
        kind = draw.randrange(12)
        if kind == 0:
            return "".join(self.code() for _ in range(draw.randrange(1, 8)))
        if kind == 1:
            return "".join(draw.choice(" \t\n\r\u00a0\u3000\u2009\x0b\x85") for _ in range(draw.randrange(1, 5)))
        if kind == 2:
            return draw.choice("'s 'S 're 'RE 'Ve 'll 'lL 'd 'm 't '\u017f 'x ''s '".split())
        if kind == 3:
            return draw.choice(ADDED + ["<s>", "</s>", "<unk>", "<0x41>"])
        if kind == 4:
            return "".join(draw.choice("0123456789\u00b2\u0663\u2167\u00bd") for _ in range(draw.randrange(1, 9)))
        if kind == 5:
            mark = draw.choice("(){}[]<>;:,.!?\"'\\/|@#$%^&*-_=+~`")
            return mark * draw.randrange(1, 4) + draw.choice(["", "\n", "\r\n", " "])
        if kind == 6:
            return " " * draw.randrange(1, 6)
        if kind == 7:
            return draw.choice(self.lines)[: draw.randrange(1, 60)]
        return draw.choice(["", " "]) + draw.choice(self.words)

    def one(self):
        if self.letters and self.draw.random() < 0.7:
            return "".join(self.draw.choice(self.letters) for _ in range(self.draw.randrange(0, 40)))
        return "".join(self.part() for _ in range(self.draw.randrange(0, 9)))


def ours(tool, path, strings):
    data = b"".join(len(b).to_bytes(4, "little") + b for b in (s.encode() for s in strings))
    done = subprocess.run([tool, path], input=data, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().split("\n")[:-1]


def same_text(name, mine, theirs):
    """The library writes U+FFFD for bytes that are no UTF-8, and for byte fallback one for each of a whole run."""
    if theirs == mine.decode("utf-8", "replace"):
        return True
    return "\ufffd" in theirs and not name.startswith(("GPT", "Llama 3", "Qwen", "Smol", "Digits"))


def compare(tool, name, tokenizer, count, seed, folder):
    path = os.path.join(folder, "tokenizer.json")
    data = json.loads(tokenizer.to_str())
    if seed % 2: # as older files have them
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=seed % 3 == 0, indent=seed % 4 or None)
    source = Strings(seed, newer(name), name)
    differ = back = tokens = 0
    for begin in range(0, count, 20000):
        strings = [source.one() for _ in range(min(20000, count - begin))]
        lines = ours(tool, path, strings)
        assert len(lines) == len(strings), (len(lines), len(strings))
        with_special = tokenizer.encode_batch(strings, add_special_tokens=True)
        without = tokenizer.encode_batch(strings, add_special_tokens=False)
        for text, line, one, plain in zip(strings, lines, with_special, without):
            ids, _, shown = line.partition("|")
            theirs = tokenizer.decode(plain.ids, skip_special_tokens=False)
            mine = bytes.fromhex(shown) if line[:1] != "!" else b""
            tokens += len(one.ids)
            back += mine == text.encode()
            if ids == " ".join(map(str, one.ids)) and same_text(name, mine, theirs):
                continue
            differ += 1
            if differ < 4:
                print(f"{name}: {text!r}\n  here  {ids} {mine!r}\n  there {one.ids} {theirs!r}\n  {one.tokens}")
    print(f"{name}: {count} strings, {tokens} tokens, {differ} differ, {back} come back as they were")
    return differ


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, tokenizer) in enumerate(kinds().items()):
            differ += compare(sys.argv[1], name, tokenizer, count, seed + number, folder)
    sys.exit(differ > 0)


main()
