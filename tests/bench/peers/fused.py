#!/usr/bin/env python3
"""fused.py GLUE.so [THREADS] - a chain of the user's own beside torch.compile: y = residual + dropout(gelu(x * scale + bias))
in bf16, 16384 x 768, and the same without dropout, in turns; medians, and a copy of the same bytes. Started by run.sh.
torch.compile needs a C++ compiler; without one its rows are left out."""
import ctypes, os, statistics, subprocess, sys, time

ROUNDS = int(os.environ.get('PEERS_ROUNDS', '7')) * 2 + 1
ROWS, COLUMNS = 16384, 768


def measure(path, threads):
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(threads)
    lib, p, u = ctypes.CDLL(path), ctypes.c_void_p, ctypes.c_uint64
    lib.glue_chain.argtypes = [p, p, p, p, ctypes.c_float, u, u, ctypes.c_float, u]
    if lib.glue_open(threads):
        raise RuntimeError('memopt: no threads')
    x, r = (torch.randn(ROWS, COLUMNS).bfloat16() for _ in range(2))
    b, y = torch.randn(COLUMNS).bfloat16(), torch.empty_like(x)
    source, copied = (torch.ones(3 * ROWS * COLUMNS // 2).bfloat16() for _ in range(2))

    def chain(rate):
        def run(x, r, b):
            z = F.gelu(x * 0.5 + b, approximate='tanh')
            return r + (F.dropout(z, rate, True) if rate else z)
        return run

    def ours(rate, step):
        if lib.glue_chain(y.data_ptr(), x.data_ptr(), r.data_ptr(), b.data_ptr(), 0.5, ROWS, COLUMNS, rate, step):
            raise RuntimeError('memopt: refused')

    print(f'{"bf16, ms (CPU ms)":24} {"threads":>8} {"memopt":>16} {"torch.compile":>16} {"copy":>16} {"memopt / torch":>15} {"copy / memopt":>14}')
    for name, rate in [('chain with dropout', 0.1), ('chain without dropout', 0.0)]:
        with torch.no_grad():
            peer = torch.compile(chain(rate))
            try:
                peer(x, r, b)
            except Exception as e: # whatever a compiler says
                print(f'peers: skipped: torch.compile: {str(e).splitlines()[0][:100]}')
                return
            todo = [lambda i: ours(rate, i), lambda i: peer(x, r, b), lambda i: copied.copy_(source)]
            wall, cpu = [[] for _ in todo], [[] for _ in todo]
            for i in range(ROUNDS):
                for k, run in enumerate(todo):
                    c, t = time.process_time(), time.perf_counter()
                    run(i)
                    wall[k].append(1e3 * (time.perf_counter() - t))
                    cpu[k].append(1e3 * (time.process_time() - c))
        w, c = [statistics.median(v) for v in wall], [statistics.median(v) for v in cpu]
        cells = ' '.join(f'{a:8.2f} ({z:5.1f})' for a, z in zip(w, c))
        print(f'{name:24} {threads:8} {cells} {w[0] / w[1]:15.2f} {w[2] / w[0]:14.2f}', flush=True)


if len(sys.argv) > 2:
    measure(sys.argv[1], int(sys.argv[2]))
else:
    for n in os.environ.get('PEERS_THREADS', '1 2').split():
        subprocess.run([sys.executable, sys.argv[0], sys.argv[1], n], check=True)
