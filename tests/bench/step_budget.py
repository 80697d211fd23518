#!/usr/bin/env python3
"""step_budget.py PROGRAM - what a step of GPT-2 124M takes on an H200, counted: every launch of one step, as the simulator's
train_gpt (PROGRAM: build/simulator/plain/example_train_gpt) lists them, with its bytes and products, at rates that a card gave.
Split weights, 8 x 1024 tokens, everything kept. Nothing is measured here. A launch that no row knows is an error.

Rates, of tests/bench/results/cuda.md: bytes of each kind of kernel a second as `build/bench_cuda` had them; products as cuBLASLt made
8,192 cubed. Attention by wgmma has not run: the fraction of the tensor cores' rate that was counted, of which two thirds are taken,
since as many cycles issue in kernels that did run. GAP: from one launch of a graph to the next, an assumption."""
import collections
import os
import re
import subprocess
import sys

ROWS, WIDTH, CONTEXT, VOCABULARY, WEIGHTS = 8 * 1024, 768, 1024, 50304, 124_475_904
SWITCHES = "--layers 12 --width 768 --heads 12 --context 1024 --vocab 50257 --batch 8 --weights split --head chunk:2048 --data memopt.h --quiet --steps 1"
PRODUCTS, TENSOR, COPY, GAP = 781e12, 989e12, 4.18e12, 1.5e-6
PLANE = 2 * ROWS * WIDTH # bytes of a row of 768 for each token
CAUSAL = ROWS * CONTEXT * WIDTH # operations of one of attention's products in a layer
GELU_AUX, BIAS, DGELU = 128, 4, 64 # of epilogues

# What, a pattern of its launches, and of all of them: bytes, operations, and a rate.
KERNELS = [
    ("attention forward, rows, columns", r"kernel$", 12 * 15 * PLANE, 12 * 9 * CAUSAL, TENSOR * 2 / 3 * 9 / (2 / 0.77 + 3 / 0.97 + 4)),
    ("attention, sum(dO O)", r"flash_mean_kernel", 12 * 2 * PLANE, 0, COPY),
    ("layer norm, and once more", r"norm_forward_kernel", 49 * 2 * PLANE, 0, 3.113e12),
    ("layer norm backward", r"norm_(backward|total)_kernel", (24 * 4 + 3) * PLANE + 25 * 391 * 16 * WIDTH, 0, 3.114e12),
    ("GELU once more", r"fused_kernel<FUSED_FLAT", 12 * 8 * PLANE, 0, 3.188e12),
    ("cross-entropy", r"cross_entropy_", 4 * ROWS * VOCABULARY, 0, 3.198e12),
    ("embeddings, and their gradients", r"embedding_|token_|position_", 5 * PLANE + 8 * ROWS * WIDTH, 0, COPY / 4),
    ("AdamW, split weights, moments in floats", r"optim_(floats|by|begin)_kernel", 28 * WEIGHTS, 0, 2.701e12),
]


def listed(program):
    """The launches of a step: those of kernels, those of products."""
    done = subprocess.run([os.path.abspath(program), *SWITCHES.split()], capture_output=True, text=True, check=True,
                          env={**os.environ, "SIMULATOR_LISTS": "1"})
    kernels = collections.Counter(re.findall(r"^kernel (.*): \d+ x \d+$", done.stderr, re.M))
    products = re.findall(r"^product (.*): (\d+) x (\d+) x (\d+), (\d+)$", done.stderr, re.M)
    return {name: count for name, count in kernels.items() if "optim_state" not in name}, products


def product(kind, m, n, k, epilogue):
    """A name, bytes and operations."""
    result = m * n * (4 if kind == "f32" else 2)
    if kind != "f32" and m == WIDTH and epilogue & BIAS:
        result *= 2 # the residual, which it is added to
    if epilogue & (GELU_AUX | DGELU):
        result *= 2
    if VOCABULARY not in (m, n, k):
        name = "products of blocks, gradients of weights" if kind == "f32" else "products of blocks"
    else:
        name = "products of the head"
        result *= 1.75 if kind == "f32" else 1 # three of four chunks are added
    return name, result + 2 * k * (m + n), 2 * m * n * k


def main():
    kernels, products = listed(sys.argv[1])
    table = {}
    for shape in products:
        name, moved, made = product(shape[0], *map(int, shape[1:]))
        old = table.get(name, (0, 0, 0, 0))
        table[name] = tuple(a + b for a, b in zip(old, (1, moved, made, max(moved / COPY, made / PRODUCTS)), strict=True))
    for name, pattern, moved, made, rate in KERNELS:
        here = [kernel for kernel in kernels if re.match(rf"\(?(?:{pattern})", kernel)]
        table[name] = sum(kernels.pop(kernel) for kernel in here), moved, made, made / rate if made else moved / rate
    if kernels or not all(row[0] for row in table.values()):
        sys.exit(f"no row for {kernels}, or no launch of a row: {table}")
    launches, moved, made, seconds = map(sum, zip(*table.values(), strict=True))
    table["from launch to launch"] = launches, 0, 0, launches * GAP
    seconds += launches * GAP
    print("| what | launches | GB | TFLOP | ms | of all |\n|---|--:|--:|--:|--:|--:|")
    for name, (count, bytes_of, operations, took) in sorted(table.items(), key=lambda row: -row[1][3]):
        print(f"| {name} | {count} | {bytes_of / 1e9:.2f} | {operations / 1e12:.2f} | {took * 1e3:.2f} | {took / seconds:.2f} |")
    print(f"| all | {launches} | {moved / 1e9:.1f} | {made / 1e12:.2f} | {seconds * 1e3:.1f} | 1 |")
    slower = made / 600e12 - made / PRODUCTS
    print(f"\n{ROWS / seconds:,.0f} tokens/s; with products at 600 TFLOP/s {(seconds + slower) * 1e3:.1f} ms.")


main()
