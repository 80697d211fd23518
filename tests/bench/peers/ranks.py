#!/usr/bin/env python3
"""ranks.py TRAIN_GPT TRAIN_GPT_MPI - GPT-2 124M over two ranks of a thread each: memopt's stage 3 over MPI, beside memopt on one rank
with two threads, and beside torch's FSDP2 over gloo on two ranks; the same tokens a step, AdamW, fp32; in turns; medians. Started by
run.sh; without MPI that is said, and the rest is run.
  PEERS_RANKS="12 768 12 50257"   layers, width, heads, vocabulary      PEERS_RANKS_ROWS="4x256 4x1024"   sequences x tokens, of all ranks
  PEERS_RANKS_STEPS=2   steps that are timed, after one that is not     PEERS_RANKS_ROUNDS=3"""
import json, os, resource, shutil, socket, statistics, subprocess, sys, tempfile, time
sys.dont_write_bytecode = True

LAYERS, WIDTH, HEADS, VOCABULARY = map(int, os.environ.get('PEERS_RANKS', '12 768 12 50257').split())
ROWS = [tuple(map(int, x.split('x'))) for x in os.environ.get('PEERS_RANKS_ROWS', '4x256 4x1024').split()]
STEPS, ROUNDS = (int(os.environ.get('PEERS_RANKS_' + name, usual)) for name, usual in (('STEPS', '2'), ('ROUNDS', '3')))
RANKS = 2
MPIRUN = ['mpirun', '--oversubscribe', '--bind-to', 'none', '--mca', 'mpi_yield_when_idle', '1', '-n', str(RANKS)]
ROWS_OF_TABLE = ('memopt, 1 rank, 2 threads', 'memopt, 2 ranks, stage 3, MPI', 'torch FSDP2, 2 ranks, gloo')


def torch_rank(batch, context):
    """Of rank 0: prints tokens a second of all ranks, and the peak bytes of the process that has most."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch_gpt import GPT
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group('gloo')

    mesh = init_device_mesh('cpu', (RANKS,))
    model = GPT(LAYERS, WIDTH, HEADS, context, VOCABULARY)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optim = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    ids = torch.randint(VOCABULARY, (batch // RANKS, context + 1))
    for step in range(STEPS + 1):
        if step == 1:
            dist.barrier()
            begin = time.perf_counter()
        model(ids[:, :-1], ids[:, 1:]).backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
    dist.barrier()
    seconds = time.perf_counter() - begin
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024])
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(json.dumps([STEPS * batch * context / seconds, peak.item()]))
    dist.destroy_process_group()


def torch_run(batch, context):
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    common = dict(os.environ, MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), WORLD_SIZE=str(RANKS), OMP_NUM_THREADS='1')
    ranks = [subprocess.Popen([sys.executable, __file__, '--torch', str(batch), str(context)], stdout=subprocess.PIPE,
                              env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(RANKS)]
    try:
        said = [rank.communicate(timeout=3600)[0] for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    if any(rank.returncode for rank in ranks):
        raise OSError(f'torch ended with {[rank.returncode for rank in ranks]}')
    return json.loads(said[0].splitlines()[-1])


def memopt_run(command, batch, context, more):
    tokens = batch * context
    with tempfile.NamedTemporaryFile(suffix='.json') as file:
        switches = dict(layers=LAYERS, width=WIDTH, heads=HEADS, context=context, vocab=VOCABULARY, batch=batch, steps=STEPS + 1, keep='overhead:33',
                        attention='lean', head=f'chunk:{max(64, tokens // 32)}', mlp=f'chunk:{max(64, tokens // 8)}', json=file.name, **more)
        subprocess.run([*command, '--quiet', '--fuse-step', *(word for name, value in switches.items() for word in ('--' + name, str(value)))],
                       check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1'))
        run = json.load(open(file.name))
    peak = run['measured_peak_bytes'] if 'measured_peak_bytes' in run else max(rank['process_peak_bytes'] for rank in run['each_rank'])
    return run['tokens_per_second'], peak


def one(name, programs, batch, context):
    if name.startswith('torch'):
        return torch_run(batch, context)
    if '1 rank' in name:
        return memopt_run([programs[0]], batch, context, dict(threads=2))
    return memopt_run(MPIRUN + [programs[1]], batch // RANKS, context, dict(stage=3, units=RANKS, threads=1))


def main():
    programs = sys.argv[1:3]
    names = list(ROWS_OF_TABLE)
    if not shutil.which('mpirun') or len(programs) < 2 or not os.access(programs[1], os.X_OK):
        print('peers: without ranks over MPI: apt-get install openmpi-bin libopenmpi-dev, or make deps', file=sys.stderr)
        names.remove(ROWS_OF_TABLE[1])
    for batch, context in ROWS:
        results = {name: [] for name in names}
        for turn in range(ROUNDS):
            for name in names:
                if sys.stderr.isatty():
                    print(f'\rpeers: ranks: {batch} x {context}, turn {turn + 1} of {ROUNDS}: {name:40}', end='', file=sys.stderr)
                try:
                    results[name].append(one(name, programs, batch, context))
                except (subprocess.SubprocessError, OSError, ValueError, IndexError) as e:
                    print(f'peers: skipped: {name}: {e}', file=sys.stderr)
        if sys.stderr.isatty():
            print(f'\r{"":79}\r', end='', file=sys.stderr)
        medians = {name: [statistics.median(x) for x in zip(*runs)] for name, runs in results.items() if runs}
        first = next(iter(medians.values()), None)
        print(f'two ranks, {LAYERS} layers of {WIDTH}, {batch} x {context} tokens a step, medians of {ROUNDS}')
        print(f'{"":40} {"tokens/s":>10} {"of the first":>13} {"peak MB a rank":>15}')
        for name, (speed, peak) in medians.items():
            print(f'{name:40} {speed:10.1f} {speed / first[0]:13.3f} {peak / 1e6:15.0f}')


if __name__ == '__main__':
    torch_rank(*map(int, sys.argv[2:4])) if sys.argv[1] == '--torch' else main()
