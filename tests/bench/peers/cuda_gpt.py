#!/usr/bin/env python3
"""cuda_gpt.py TRAIN_GPT_CUDA [RESULTS.md [ROW...]] - a whole training step on a card beside torch: the same GPT-2, as many tokens,
AdamW; each run a process of its own, in turns; medians of tokens a second and peak, and the losses. Started by `make peers-cuda`.
ROW: the name of a row, or what it begins with; without one all rows. The first step of each program is not in its speed.
Data are the bytes of memopt.h; windows, first weights and seed are each program's own, so losses are alike, not equal.
  PEERS_GPT="12 768 12 1024 50257 8"   layers, width, heads, context, vocabulary, batch: 124M
  PEERS_GPT_STEPS=50   steps that are timed, after one that is not      PEERS_GPT_ROUNDS=3      PEERS_DEVICE=cuda"""
import contextlib, json, os, statistics, subprocess, sys, tempfile, time
sys.dont_write_bytecode = True

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH = map(int, os.environ.get('PEERS_GPT', '12 768 12 1024 50257 8').split())
STEPS, ROUNDS = (int(os.environ.get('PEERS_GPT_' + name, usual)) for name, usual in (('STEPS', '50'), ('ROUNDS', '3')))
DEVICE = os.environ.get('PEERS_DEVICE', 'cuda')
TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../memopt.h')
RATE = 6e-4
CHUNK = ['--head', 'chunk:2048']
# torch: words of a mode; memopt: switches. Twins: split weights have all bits of fp32, as masters; bf16 weights have none.
ROWS = [('torch, fp32', 'fp32'), ('torch, fp32 masters, autocast', 'autocast'), ('torch, fp32 masters, autocast, compiled', 'autocast compiled'),
        ('torch, fp32 masters, autocast, checkpoints', 'autocast checkpoints'),
        ('torch, fp32 masters of bf16 weights, compiled', 'masters bf16 compiled'), ('torch, bf16 weights alone, compiled', 'bf16 compiled'),
        ('torch, FSDP2 on one rank, bf16', 'fsdp'), ('memopt, fp32, everything kept', CHUNK),
        ('memopt, split weights, everything kept', CHUNK + ['--weights', 'split']),
        ('memopt, split weights, checkpoints', CHUNK + ['--weights', 'split', '--keep', 'overhead:33', '--fuse-step']),
        ('memopt, bf16, 8-bit Adam, checkpoints',
         CHUNK + ['--weights', 'bf16', '--optimizer', 'adamw8', '--keep', 'overhead:33', '--fuse-step'])]


def batches(torch):
    with open(TEXT, 'rb') as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).to(DEVICE)
    for _ in range(STEPS + 1):
        first = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1), device=DEVICE)
        window = text[first + torch.arange(CONTEXT + 1, device=DEVICE)].long()
        yield window[:, :-1], window[:, 1:]


class Masters:
    """A step of fp32 masters by the gradients of bf16 weights, which then are the masters' roundings."""

    def __init__(self, torch, weights, masters):
        self.torch, self.weights, self.masters = torch, weights, masters
        self.optim = torch.optim.AdamW(masters, lr=RATE, fused=True)

    def step(self):
        for weights, master in zip(self.weights, self.masters, strict=True):
            master.grad, weights.grad = weights.grad.float(), None
        self.optim.step()
        self.torch._foreach_copy_([weights.data for weights in self.weights], self.masters)

    def zero_grad(self, set_to_none):
        self.optim.zero_grad(set_to_none=set_to_none)


def shard(torch, model):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group('nccl' if DEVICE == 'cuda' else 'gloo', init_method=f'file://{store.name}.fsdp', rank=0, world_size=1)
    mesh, policy = init_device_mesh(DEVICE, (1,)), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def torch_run(mode):
    """Prints tokens a second, peak bytes of torch's allocator, and the losses."""
    import torch
    from torch_gpt import GPT, train
    torch.manual_seed(1)
    on_card = DEVICE == 'cuda'

    model = GPT(LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, checkpoints='checkpoints' in mode).to(DEVICE)
    masters = [weights.detach().clone() for weights in model.parameters()] if 'masters' in mode else None
    if 'bf16' in mode:
        model = model.bfloat16()
    if 'fsdp' in mode:
        model = shard(torch, model)
    run = torch.compile(model) if 'compiled' in mode else model
    optim = Masters(torch, list(model.parameters()), masters) if masters else torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    cast = (lambda: torch.autocast(DEVICE, torch.bfloat16)) if 'autocast' in mode else contextlib.nullcontext
    seconds, _, losses = train(run, optim, batches(torch), torch.cuda.synchronize if on_card else lambda: None, cast)
    print(json.dumps([STEPS * BATCH * CONTEXT / seconds, torch.cuda.max_memory_reserved() if on_card else 0, losses[1:]]))
    if 'fsdp' in mode:
        torch.distributed.destroy_process_group()


def memopt_run(program, switches):
    size = dict(layers=LAYERS, width=WIDTH, heads=HEADS, context=CONTEXT, vocab=VOCABULARY, batch=BATCH, lr=RATE, steps=STEPS + 1)
    with tempfile.NamedTemporaryFile(suffix='.json') as file:
        subprocess.run([program, '--quiet', '--json', file.name, '--data', TEXT, *switches, *(w for k, v in size.items() for w in ('--' + k, str(v)))],
                       check=True, stdout=subprocess.DEVNULL)
        run = json.load(open(file.name))
    return run['tokens_per_second'], run['measured_peak_bytes'], run['losses'][1:]


def one(program, row):
    if isinstance(row, list):
        return memopt_run(program, row)
    said = subprocess.run([sys.executable, __file__, '--torch', row], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(said.splitlines()[-1])


def card():
    import torch
    return f'{torch.cuda.get_device_name()}, torch {torch.__version__}' if DEVICE == 'cuda' else f'no card, torch {torch.__version__}'


def chosen():
    """Rows that the command line names."""
    wanted = sys.argv[3:]
    none = [word for word in wanted if not any(name.startswith(word) for name, _ in ROWS)]
    if none:
        sys.exit(f'peers-cuda: no row begins with "{none[0]}"; there are: ' + '; '.join(name for name, _ in ROWS))
    return [row for row in ROWS if not wanted or any(row[0].startswith(word) for word in wanted)]


def table(medians, losses):
    at = sorted({i for i in (1, STEPS // 4, STEPS // 2, STEPS) if i})
    yield '# train_gpt.cu beside torch on a card\n'
    yield f'{time.strftime("%Y-%m-%d")}, {card()}: {LAYERS} layers of {WIDTH}, {BATCH} x {CONTEXT} tokens a step, medians of {ROUNDS}'
    yield '(`make peers-cuda`). Tokens a second of the steps after the first. Peak: of torch what its allocator reserved, of memopt what the card lost.\n'
    yield '| what | tokens/s | peak MB | ' + ' | '.join(f'loss at step {i + 1}' for i in at) + ' |'
    yield '|---|--:|--:|' + '--:|' * len(at)
    for name, (speed, peak) in medians.items():
        yield f'| {name} | {speed:,.0f} | {peak / 1e6:,.0f} | ' + ' | '.join(f'{losses[name][i - 1]:.3f}' for i in at) + ' |'


def main():
    program, to = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.devnull
    rows = chosen()
    results, losses = {name: [] for name, _ in rows}, {}
    for turn in range(ROUNDS):
        for name, row in rows:
            print(f'peers-cuda: turn {turn + 1} of {ROUNDS}: {name}', file=sys.stderr)
            try:
                *figures, losses[name] = one(program, row)
                results[name].append(figures)
            except (subprocess.SubprocessError, OSError, ValueError) as e:
                print(f'peers-cuda: skipped: {name}: {e}', file=sys.stderr)
    medians = {name: [statistics.median(x) for x in zip(*runs)] for name, runs in results.items() if runs}
    text = '\n'.join(table(medians, losses)) + '\n'
    print(text, end='')
    with open(to, 'w', encoding='utf-8') as file:
        file.write(text)
    sys.exit(not medians)


if __name__ == '__main__':
    torch_run(sys.argv[2]) if sys.argv[1] == '--torch' else main()
