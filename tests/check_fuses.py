#!/usr/bin/env python3
"""check_fuses.py FUSED.ptx PLAIN.ptx - are all kernels the same with -fmad=true and -fmad=false?

nvcc turns a * b + c into one operation with one rounding unless it is told not to. Kernels must not give it a chance, so
that no flag is needed to compile memopt_cuda.cu. Rounding suffixes are written differently in the two (mul.f32 and
mul.rn.f32); apart from those every kernel must be the same text."""
import re, subprocess, sys

def kernels(path):
    text = open(path).read()
    found = {}
    for m in re.finditer(r"\.entry (\w+)\((.*?)\n}\n", text, re.S):
        body = re.sub(r"\b(mul|add|sub)\.rn\.(f32|f64|ftz)", r"\1.\2", m.group(2))
        found[m.group(1)] = re.sub(r"//.*", "", body)
    return found

fused, plain = kernels(sys.argv[1]), kernels(sys.argv[2])
names = dict(zip(fused, subprocess.run(["c++filt"], input="\n".join(fused), capture_output=True, text=True).stdout.splitlines()))
different = [names.get(k, k) for k in fused if fused[k] != plain.get(k)]
for name in different:
    print(f"not the same with and without fusing: {name}")
print(f"{len(fused)} kernels, {len(different)} differ")
sys.exit(1 if different or not fused else 0)
