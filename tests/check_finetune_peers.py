"""check_finetune_peers.py FINETUNE - examples/finetune.c beside transformers and peft, from folder to folder.

Six small models with random weights, and a tokeniser, are made here: GPT-2, Llama with the frequencies of Llama 3,
Mistral with a window, Qwen2, Qwen3 in several files, SmolLM. Losses of 50 steps of AdamW in float32 are torch's, as
are those of adapters peft's; the folders and adapters that come out are opened by both, and say the same; so do
documents that are packed. Exit status 77: no torch, transformers or peft here."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import peft
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as missing:
    print(f"{missing}: pip install torch transformers peft, into an environment of their own")
    sys.exit(77)

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
TEXT = (pathlib.Path(__file__).resolve().parent.parent / "examples" / "text.txt").read_text()
WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS, EOS = 64, 4, 3, 512, 256, 0
STEPS, RATE = 50, 1e-3
LOSS_BOUND, LOGITS_BOUND = 1e-4, 2e-5
TRAINED_BOUND = 1e-3  # of logits of two that were trained apart: Adam divides by what may be a rounding
PROMPT = "The "


# ---- models ----
def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def llama_like(kind, **more):
    config = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=160, num_hidden_layers=LAYERS,
                  num_attention_heads=HEADS, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False,
                  max_position_embeddings=POSITIONS, bos_token_id=EOS, eos_token_id=EOS)
    config.update(more)
    return getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**config))


LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, bos_token_id=EOS, eos_token_id=EOS)),
    "llama": lambda: llama_like("Llama", rope_parameters=LLAMA3),
    "mistral": lambda: llama_like("Mistral", sliding_window=17, head_dim=20),
    "qwen2": lambda: llama_like("Qwen2", tie_word_embeddings=True),
    "qwen3": lambda: llama_like("Qwen3", head_dim=16),
    "smollm": lambda: llama_like("Llama", tie_word_embeddings=True, num_key_value_heads=1),
}


def opened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float()


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(ids).logits


# ---- the program ----
def tune(folder, data, out, *switches):
    """Its losses, and all that it printed."""
    for path in (out, out + ".run"):
        shutil.rmtree(path, ignore_errors=True)
    command = [PROGRAM, folder, data, "--out", out, "--context", POSITIONS, "--hold-back", 0,
               "--schedule", "constant", "--threads", 1, *switches]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace")
    assert result.returncode == 0, result
    return [float(x) for x in re.findall(r"^step \d+ of \d+  loss (\S+)", result.stdout, re.M)], result.stdout


def train(model, ids, rate):
    parameters = [p for p in model.parameters() if p.requires_grad]
    adamw, losses = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01), []
    model.train()
    for _ in range(STEPS):
        loss = model(ids, labels=ids).loss
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        losses.append(loss.item())
    return losses


# ---- what is compared ----
class Comparison:
    def __init__(self, name):
        self.name, self.wrong = name, 0

    def bounded(self, what, difference, bound):
        holds = difference <= bound
        self.wrong += not holds
        print(f"{self.name:8} {what:48} {difference:.1e} of at most {bound:.0e}{'' if holds else '  WRONG'}")

    def losses(self, what, ours, theirs):
        assert len(ours) == len(theirs) and ours[-1] < ours[0] - 0.01, ours
        self.bounded(what, max(abs(a - b) for a, b in zip(ours, theirs)), LOSS_BOUND)

    def logits(self, what, ours, theirs, bound=LOGITS_BOUND):
        self.bounded(what, float((ours - theirs).abs().max() / theirs.abs().max()), bound)


def loss_of(model, ids):
    with torch.no_grad():
        return model.eval()(ids, labels=ids).loss.item()


def compare_training(c, tokens, ids):
    """All weights; the folder that comes out; what it says after them."""
    model = opened(c.name)
    switches = ["--weights", "fp32", "--states", 32, "--rate", RATE]
    ours, printed = tune(c.name, "text", "tuned", *switches, "--steps", STEPS, "--prompt", PROMPT)
    c.losses(f"losses of {STEPS} steps", ours, train(model, ids, RATE))
    tuned = opened("tuned")
    c.logits("logits of the folder, of what torch trained", logits(tuned, ids), logits(model, ids), TRAINED_BOUND)
    last = tune(c.name, "text", "longer", *switches, "--steps", STEPS + 1)[0][STEPS]
    c.bounded("loss of the folder, of the next step", abs(loss_of(tuned, ids) - last), LOGITS_BOUND)
    start = torch.tensor([tokens.encode(PROMPT).ids])
    with torch.no_grad():
        made = tuned.generate(start, max_new_tokens=64, do_sample=False, pad_token_id=EOS)
    expected = tokens.decode(made[0].tolist())
    said = printed.split("says     ")[1].split("\nmemory ")[0]
    c.wrong += said != expected
    print(f"{c.name:8} says {said!r}{'' if said == expected else f', and not {expected!r}: WRONG'}")


def compare_adapters(c, ids):
    """From the A that the program begins with; then what it wrote, opened and merged."""
    switches = ["--adapter", 4, "--frozen", 32]
    tune(c.name, "text", "begun", *switches, "--steps", 1, "--rate", 1e-30)
    ours, _ = tune(c.name, "text", "adapter", *switches, "--steps", STEPS, "--rate", RATE)
    tune(c.name, "text", "merged", *switches, "--steps", STEPS, "--rate", RATE, "--merge")
    model = peft.PeftModel.from_pretrained(opened(c.name), "begun", is_trainable=True)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.zero_()
    c.losses(f"losses of {STEPS} steps of adapters", ours, train(model, ids, RATE))
    adapted = peft.PeftModel.from_pretrained(opened(c.name), "adapter")
    c.logits("logits of the adapter, of what peft trained", logits(adapted, ids), logits(model, ids))
    c.logits("logits of the merged folder, of the adapter", logits(opened("merged"), ids), logits(adapted, ids))
    last = tune(c.name, "text", "longer", *switches, "--steps", STEPS + 1, "--rate", RATE)[0][STEPS]
    c.bounded("loss of the adapter, of the next step", abs(loss_of(adapted, ids) - last), LOGITS_BOUND)


def compare_packed(c, tokens):
    """Documents in windows, none of which sees another: the mean over them one by one."""
    documents = [TEXT[i:i + 97 + i % 61] for i in range(0, 4000, 250)]
    pathlib.Path("documents.jsonl").write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
    exact = ["--weights", "fp32", "--states", 32, "--steps", 1]
    _, printed = tune(c.name, "documents.jsonl", "packed", *exact)
    count, windows = map(int, re.search(r"^data +(\d+) documents in (\d+) windows", printed, re.M).groups())
    assert count == len(documents) and windows < count, printed
    (ours,), _ = tune(c.name, "documents.jsonl", "packed", *exact, "--batch", windows)
    model, total, targets = opened(c.name).eval(), 0, 0
    for document in documents:
        ids = torch.tensor([tokens.encode(document).ids + [EOS]])
        total += loss_of(model, ids) * (ids.numel() - 1)
        targets += ids.numel() - 1
    c.bounded(f"loss of {count} documents in {windows} windows", abs(ours - total / targets), 1e-5)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokens, wrong = tokenizer(), 0
    text = TEXT[2000:2500]
    ids = torch.tensor([tokens.encode(text).ids + [EOS]])
    assert ids.numel() <= POSITIONS, ids.numel()
    pathlib.Path("text").write_text(text)
    for name, make in MODELS.items():
        make().float().save_pretrained(name, **(dict(max_shard_size="200KB") if name == "qwen3" else {}))
        tokens.save(name + "/tokenizer.json")
        c = Comparison(name)
        compare_training(c, tokens, ids)
        compare_adapters(c, ids)
        compare_packed(c, tokens)
        wrong += c.wrong
    return wrong > 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        status = main()
        os.chdir("/")
    sys.exit(status)
