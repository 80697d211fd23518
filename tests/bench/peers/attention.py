#!/usr/bin/env python3
"""attention.py GLUE.so [THREADS] - causal attention, 12 heads of 64, forward and backward, beside torch's
scaled_dot_product_attention, in turns; medians. Started by run.sh."""
import ctypes, os, statistics, subprocess, sys, time

ROUNDS = int(os.environ.get('PEERS_ROUNDS', '7'))
HEADS, WIDTH = 12, 64


def measure(path, threads):
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(threads)
    lib = ctypes.CDLL(path)
    lib.glue_attention.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p)]
    if lib.glue_open(threads):
        raise RuntimeError('memopt: no threads')
    print(f'{"attention, ms (CPU ms)":24} {"threads":>8} {"memopt":>18} {"memopt, online":>18} {"torch":>18} {"memopt / torch":>15} {"online / torch":>15}')
    for dtype, name in [(torch.float32, 'fp32'), (torch.bfloat16, 'bf16')]:
        for length in (1024, 4096):
            ours = [torch.randn(length, HEADS * WIDTH).to(dtype) for _ in range(8)] # q, k, v, output, gradients of q, k, v, output
            theirs = [x.view(length, HEADS, WIDTH).transpose(0, 1)[None].detach().requires_grad_() for x in ours[:3]]
            gradient = ours[7].view(length, HEADS, WIDTH).transpose(0, 1)[None]
            pointers = (ctypes.c_void_p * 8)(*(x.data_ptr() for x in ours))
            output = [None]

            def mine(online):
                if lib.glue_attention(int(dtype is torch.bfloat16), online, length, HEADS, pointers):
                    raise RuntimeError('memopt: refused')

            def peer():
                for x in theirs:
                    x.grad = None
                output[0] = F.scaled_dot_product_attention(*theirs, is_causal=True)
                output[0].backward(gradient)

            todo = [lambda: mine(0), lambda: mine(1), peer]
            wall, cpu = [[] for _ in todo], [[] for _ in todo]
            for i in range(ROUNDS + 1): # the first is not counted
                for k, run in enumerate(todo):
                    c, t = time.process_time(), time.perf_counter()
                    run()
                    if i:
                        wall[k].append(1e3 * (time.perf_counter() - t))
                        cpu[k].append(1e3 * (time.process_time() - c))
            apart = (output[0][0].transpose(0, 1).reshape(length, -1) - ours[3]).abs().max().item()
            if not apart < (3e-2 if dtype is torch.bfloat16 else 1e-4):
                raise RuntimeError(f'the outputs are {apart} apart')
            w, c = [statistics.median(v) for v in wall], [statistics.median(v) for v in cpu]
            cells = ' '.join(f'{a:9.1f} ({z:6.1f})' for a, z in zip(w, c))
            print(f'{name + ", " + str(length) + " rows":24} {threads:8} {cells} {w[0] / w[2]:15.2f} {w[1] / w[2]:15.2f}', flush=True)


if len(sys.argv) > 2:
    measure(sys.argv[1], int(sys.argv[2]))
else:
    for n in os.environ.get('PEERS_THREADS', '1 2').split():
        subprocess.run([sys.executable, sys.argv[0], sys.argv[1], n], check=True)
