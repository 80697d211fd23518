#!/usr/bin/env python3
"""gpt.py TRAIN_GPT [THREADS] - a whole training step beside torch: the same GPT-2 (learned positions, tied head, GELU by tanh),
the same tokens a step, AdamW; each run a process of its own, in turns; medians. Started by run.sh.
  PEERS_GPT="12 768 12 1024 50257 4"   layers, width, heads, context, vocabulary, batch: 124M
  PEERS_GPT_STEPS=2   steps that are timed, after one that is not      PEERS_GPT_ROUNDS=3"""
import json, os, resource, statistics, subprocess, sys, tempfile
sys.dont_write_bytecode = True

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH = map(int, os.environ.get('PEERS_GPT', '12 768 12 1024 50257 4').split())
STEPS, ROUNDS = (int(os.environ.get('PEERS_GPT_' + name, usual)) for name, usual in (('STEPS', '2'), ('ROUNDS', '3')))
TOKENS = BATCH * CONTEXT
LEAN = ['--keep', 'overhead:33', '--attention', 'lean', '--fuse-step', '--head', f'chunk:{max(64, TOKENS // 32)}', '--mlp',
        f'chunk:{max(64, TOKENS // 8)}']
ROWS = [('torch, fp32', 'f32'), ('torch, fp32, checkpoints', 'f32 checkpoints'), ('torch, bf16', 'bf16'),
        ('torch, bf16, checkpoints', 'bf16 checkpoints'), ('memopt, fp32, everything kept', ['--keep', 'arena']),
        ('memopt, fp32, all that is exact', LEAN),
        ('memopt, 8-bit Adam, bf16: everything on', LEAN + ['--weights', 'bf16', '--optimizer', 'adamw8'])]


def torch_run(mode, threads):
    """Prints tokens a second, CPU seconds a step and peak bytes of this process."""
    import torch
    from torch_gpt import GPT, train
    torch.set_num_threads(threads)
    torch.manual_seed(1)

    model = GPT(LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, checkpoints='checkpoints' in mode)
    if 'bf16' in mode:
        model = model.bfloat16()
    optim = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    ids = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    seconds, cpu, _ = train(model, optim, [(ids[:, :-1], ids[:, 1:])] * (STEPS + 1))
    print(json.dumps([STEPS * TOKENS / seconds, cpu / STEPS, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def memopt_run(program, switches, threads):
    with tempfile.NamedTemporaryFile(suffix='.json') as file:
        size = zip(('layers', 'width', 'heads', 'context', 'vocab', 'batch'), (LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH))
        subprocess.run([program, '--quiet', '--threads', str(threads), '--steps', str(STEPS), '--json', file.name, *switches,
                        *(word for name, value in size for word in ('--' + name, str(value)))], check=True, stdout=subprocess.DEVNULL)
        run = json.load(open(file.name))
    return run['tokens_per_second'], run['cpu_seconds_per_step'], run['measured_peak_bytes']


def one(program, row, threads):
    if isinstance(row, list):
        return memopt_run(program, row, threads)
    return json.loads(subprocess.run([sys.executable, __file__, '--torch', row, str(threads)], check=True, stdout=subprocess.PIPE).stdout)


def main():
    program, threads = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else min(2, os.cpu_count())
    results = {name: [] for name, _ in ROWS}
    for turn in range(ROUNDS):
        for name, row in ROWS:
            if sys.stderr.isatty():
                print(f'\rpeers: whole step: turn {turn + 1} of {ROUNDS}: {name:45}', end='', file=sys.stderr)
            try:
                results[name].append(one(program, row, threads))
            except (subprocess.CalledProcessError, OSError) as e:
                print(f'peers: skipped: {name}: {e}', file=sys.stderr)
    if sys.stderr.isatty():
        print(f'\r{"":79}\r', end='', file=sys.stderr)
    medians = {name: [statistics.median(x) for x in zip(*runs)] for name, runs in results.items() if runs}
    print(f'whole step, {LAYERS} layers of {WIDTH}, {BATCH} x {CONTEXT} tokens, {threads} threads, medians of {ROUNDS}')
    print(f'{"":40} {"tokens/s":>10} {"CPU s a step":>13} {"peak MB":>9}')
    for name, (speed, cpu, peak) in medians.items():
        print(f'{name:40} {speed:10.1f} {cpu:13.2f} {peak / 1e6:9.0f}')


if __name__ == '__main__':
    torch_run(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == '--torch' else main()
