#!/usr/bin/env python3
"""cuda_attention.py - torch's scaled_dot_product_attention (flash) on the card of this machine, in bf16 with 4,096 rows, as
`build/bench_cuda attention` has it: milliseconds forward and backward. Needs torch with CUDA, in an environment of its own."""
import statistics, sys

try:
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    sys.exit("SKIP: no torch here: pip install torch, in an environment of its own")
if not torch.cuda.is_available():
    sys.exit("SKIP: torch sees no CUDA device here")


def milliseconds(thing):
    times = []
    for round in range(15):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        thing()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, milliseconds")
for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
    for width in (64, 128):
        for causal in (False, True):
            try:
                with sdpa_kernel(kernel):
                    shape = (32768 * (1 + causal) // width // 16, 16, 4096, width)
                    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
                    output = scaled_dot_product_attention(q, k, v, is_causal=causal)
                    gradient = torch.randn_like(output)
                    forward = milliseconds(lambda: scaled_dot_product_attention(q, k, v, is_causal=causal))
                    backward = milliseconds(lambda: torch.autograd.grad(output, (q, k, v), gradient, retain_graph=True))
                    print(f"{kernel.name.lower()}, heads of {width}{', causal' if causal else ''}: {forward:.3f} forward, {backward:.3f} backward")
            except RuntimeError as e:
                print(f"{kernel.name.lower()}, heads of {width}: {str(e).splitlines()[0]}")
