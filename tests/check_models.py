"""check_models.py MODEL_TOOL - shapes of examples/parts beside transformers: logits, loss and every gradient.

Small models with random weights, made here: GPT-2, Llama 2 and 3, Mistral, Qwen2, Qwen3, Phi-3, SmolLM, and a Llama
with GeGLU; some also with documents packed into a row, and two in bf16. Where peft is, too, adapters behind a frozen
block: of a GPT-2 and of a Phi-3, whose matrices are merged as here. Exit status 77: no torch or transformers here."""
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError:
    print("no python3 with torch and transformers here: pip install torch transformers, into an environment of their own")
    sys.exit(77)
try:
    import peft
except ImportError:
    peft = None
    print("no peft here: adapters are not compared (pip install peft)")

WIDTH, HEADS, HIDDEN, VOCABULARY, BLOCKS, BATCH, LENGTH = 32, 4, 48, 61, 2, 2, 24
RANK, ALPHA = 4, 6  # of adapters
BOUND = 2e-5  # of the largest element


def llama_like(kind, **more):
    config = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=BLOCKS,
                  num_attention_heads=HEADS, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False,
                  max_position_embeddings=64, attn_implementation="eager", initializer_range=0.2)
    config.update(more)
    return getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**config))


LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=WIDTH, n_layer=BLOCKS, n_head=HEADS, attn_implementation="eager",
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, initializer_range=0.2)),
    "llama2": lambda: llama_like("Llama", num_key_value_heads=HEADS),
    "llama3": lambda: llama_like("Llama", rope_parameters=LLAMA3),
    "mistral": lambda: llama_like("Mistral", sliding_window=7, head_dim=12),
    "qwen2": lambda: llama_like("Qwen2"),
    "qwen3": lambda: llama_like("Qwen3", head_dim=16),
    "geglu": lambda: llama_like("Llama", hidden_act="gelu_pytorch_tanh"),
    "phi3": lambda: llama_like("Phi3", pad_token_id=None),
    "smollm": lambda: llama_like("Llama", tie_word_embeddings=True, num_key_value_heads=1),
}


def numbers(x):
    return x.detach().float().reshape(-1)


def gpt2_tensors(model):
    """Ours in order, each with where its gradient is; GPT-2 keeps matrices transposed."""
    t = model.transformer
    yield from (t.wte.weight, t.wpe.weight)
    for b in t.h:
        yield from (b.ln_1.weight, b.ln_1.bias, (b.attn.c_attn.weight,), b.attn.c_attn.bias, (b.attn.c_proj.weight,),
                    b.attn.c_proj.bias, b.ln_2.weight, b.ln_2.bias, (b.mlp.c_fc.weight,), b.mlp.c_fc.bias,
                    (b.mlp.c_proj.weight,), b.mlp.c_proj.bias)
    yield from (t.ln_f.weight, t.ln_f.bias)


def llama_tensors(model):
    m = model.model
    yield m.embed_tokens.weight
    for b in m.layers:
        a = b.self_attn
        yield b.input_layernorm.weight
        parts = (a.qkv_proj,) if hasattr(a, "qkv_proj") else (a.q_proj, a.k_proj, a.v_proj)
        yield from (p.weight for p in parts)
        yield from (p.bias for p in parts if p.bias is not None)
        yield a.o_proj.weight
        if hasattr(a, "q_norm"):
            yield from (a.q_norm.weight, a.k_norm.weight)
        yield b.post_attention_layernorm.weight
        yield from ((b.mlp.gate_up_proj.weight,) if hasattr(b.mlp, "gate_up_proj") else
                    (b.mlp.gate_proj.weight, b.mlp.up_proj.weight))
        yield b.mlp.down_proj.weight
    yield m.norm.weight
    if model.lm_head.weight is not m.embed_tokens.weight:
        yield model.lm_head.weight


def shape_of(name, model):
    c = model.config
    s = dict(batch=BATCH, length=LENGTH, width=WIDTH, heads=HEADS, vocabulary=VOCABULARY, blocks=BLOCKS)
    if name == "gpt2":
        return dict(s, positions=32, eps=1e-5)
    a = model.model.layers[0].self_attn
    s.update(rms=1, swiglu=int(name != "geglu"), geglu=int(name == "geglu"), rotary=1, no_bias=1,
             untied=int(not c.tie_word_embeddings), hidden=HIDDEN, kv_heads=c.num_key_value_heads,
             eps=c.rms_norm_eps, head_width=a.head_dim,
             frequencies=" ".join(repr(f) for f in model.model.rotary_emb.inv_freq.double().tolist()),
             magnitude=model.model.rotary_emb.attention_scaling,
             qkv_bias=int(hasattr(a, "q_proj") and a.q_proj.bias is not None),
             qk_norm=int(hasattr(a, "q_norm")))
    if name == "mistral":
        s["window"] = c.sliding_window
    return s


def add_adapters(name, model):
    """To the last block, by peft; of layers side by side each A, then each B, in our order. What is in front is frozen."""
    names = (("c_attn", "c_proj", "c_fc") if name == "gpt2" else ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
             if name == "phi3" else tuple(x + "_proj" for x in ("q", "k", "v", "o", "gate", "up", "down")))
    peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(names), bias="none",
                                               layers_to_transform=[BLOCKS - 1], fan_in_fan_out=name == "gpt2"))
    if name == "gpt2":
        b = model.transformer.h[BLOCKS - 1]
        sides = ((b.attn.c_attn,), (b.attn.c_proj,), (b.mlp.c_fc,), (b.mlp.c_proj,))
    else:
        b = model.model.layers[BLOCKS - 1]
        a, m = b.self_attn, b.mlp
        sides = ((a.qkv_proj,) if name == "phi3" else (a.q_proj, a.k_proj, a.v_proj), (a.o_proj,),
                 (m.gate_up_proj,) if name == "phi3" else (m.gate_proj, m.up_proj), (m.down_proj,))
    adapters = [x["default"].weight for side in sides for which in ("lora_A", "lora_B")
                for x in (getattr(layer, which) for layer in side)]
    for x in adapters:
        x.data.normal_(0, 0.2)
    return adapters


def run(tool, name, starts, bf16, adapts=False):
    torch.manual_seed(1)
    model = MODELS[name]().float()
    for p in model.parameters():  # biases and scales as well
        p.data.add_(0.05 * torch.randn_like(p))
        if bf16:
            p.data.copy_(p.data.bfloat16().float())
    ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    targets = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    targets[0, 3] = targets[1, 17] = -100
    shape = shape_of(name, model)
    tensors = list(gpt2_tensors(model) if name == "gpt2" else llama_tensors(model))
    trained = add_adapters(name, model) if adapts else tensors
    if adapts:
        shape.update(adapter_rank=RANK, adapter_scale=ALPHA / RANK, front=BLOCKS - 1,
                     adapters_apart=int(name not in ("gpt2", "phi3")))
    pieces = [(r, 0, LENGTH) for r in range(BATCH)]
    if starts:
        shape["starts"] = " ".join(map(str, starts))
        places = [0] * (BATCH * LENGTH)
        for a, b in zip(starts, starts[1:]):
            places[a:b] = range(b - a)
        shape["row_positions"] = " ".join(map(str, places))
        pieces = [(a // LENGTH, a % LENGTH, a % LENGTH + b - a) for a, b in zip(starts, starts[1:])]
    logits = torch.empty(BATCH, LENGTH, VOCABULARY)
    for row, a, b in pieces:  # each document by itself
        logits[row, a:b] = model(ids[row:row + 1, a:b]).logits[0]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
    loss.backward()
    ours = lambda x, f: numbers(f(x[0]).t()) if isinstance(x, tuple) else numbers(f(x))
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        (at / "shape").write_text("".join(f"{k} {v}\n" for k, v in dict(shape, bf16=int(bf16)).items()))
        put = lambda name, x: (at / name).write_bytes(struct.pack(f"<{len(x)}{'f' if x.is_floating_point() else 'i'}",
                                                                  *x.tolist()))
        put("weights", torch.cat([ours(x, lambda y: y) for x in tensors]))
        if adapts:
            put("adapters", torch.cat([numbers(x) for x in trained]))
        put("ids", ids.reshape(-1).int())
        put("targets", targets.reshape(-1).clamp(min=-1).int())
        said = subprocess.run([tool, folder], capture_output=True, text=True)
        if said.returncode:
            print(f"{name}: {said.stderr}")
            return False
        got = lambda name: torch.frombuffer(bytearray((at / name).read_bytes()), dtype=torch.float32)
        got_logits, got_gradients = got("logits"), got("gradients")
    want = torch.cat([ours(x, lambda y: y.grad if y.grad is not None else torch.zeros_like(y)) for x in trained])
    off = lambda x, y: float((x - y).abs().max() / y.abs().max())
    figures = (abs(float(said.stdout) / loss.item() - 1), off(got_logits, logits.detach().reshape(-1)),
               off(got_gradients, want))
    # bf16: the bound of tests, a hundred roundings of a few numbers each
    good = all(f <= (0.05 if bf16 else b) for f, b in zip(figures, (1e-5, BOUND, BOUND)))
    print(f"{name:8}{' documents' if starts else ''}{' bf16' if bf16 else ''}"
          f"{' adapters' if adapts else ''}: off by {figures[0]:.1e} (loss), "
          f"{figures[1]:.1e} (logits), {figures[2]:.1e} (gradients){'' if good else ': TOO MUCH'}")
    return good


tool = sys.argv[1]
good = [run(tool, name, None, False) for name in MODELS]
good += [run(tool, name, [0, 5, 6, 24, 40, 48], False) for name in ("gpt2", "llama3", "mistral", "qwen3")]
good += [run(tool, name, None, True) for name in ("llama2", "qwen3")]
good += [run(tool, name, None, bf16, True) for name, bf16 in (("gpt2", 0), ("phi3", 0), ("phi3", 1), ("qwen2", 0), ("qwen3", 0)) if peft]
sys.exit(not all(good))
