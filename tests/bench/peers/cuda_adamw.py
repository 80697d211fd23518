#!/usr/bin/env python3
"""cuda_adamw.py - torch's fused fp32 AdamW on the card of this machine, for one tensor of 64 Mi elements: milliseconds a
step, and the rate of its 28 bytes an element. Beside it belongs `build/bench_cuda adamw` of the same run.
Needs torch with CUDA (pip install torch, in an environment of its own)."""
import statistics, sys

try:
    import torch
except ImportError:
    sys.exit("SKIP: no torch here: pip install torch, in an environment of its own")
if not torch.cuda.is_available():
    sys.exit("SKIP: torch sees no CUDA device here")
n = 64 << 20
weights = torch.nn.Parameter(torch.ones(n, device="cuda"))
weights.grad = torch.full_like(weights, 1e-3)
adamw = torch.optim.AdamW([weights], lr=1e-3, fused=True)
times = []
for round in range(20):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(4):
        adamw.step()
    end.record()
    end.synchronize()
    times.append(begin.elapsed_time(end) / 4)
ms = statistics.median(times[5:])
print(f"torch {torch.__version__} fused AdamW, {torch.cuda.get_device_name()}: {ms:.3f} ms, {28 * n / ms * 1e-6:.0f} GB/s")
