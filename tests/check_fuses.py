#!/usr/bin/env python3
"""check_fuses.py FUSED.ptx PLAIN.ptx - are the kernels that promise bits the same with -fmad=true and -fmad=false?

nvcc turns a * b + c into one operation with one rounding unless it is told not to. Kernels whose bits are those of the
CPU must not give it a chance, so that no flag is needed to compile memopt_cuda.cu. Rounding suffixes are written
differently in the two (mul.f32 and mul.rn.f32); apart from those every kernel must be the same text.
Kernels in FREE have a bound instead of bits."""
import re, subprocess, sys

FREE = re.compile(r"memopt_i_cuda_(norm|entropy|soft|softmax|batch|linear|attention|head|gemm|rows)")

def kernels(path):
    text = open(path).read()
    found = {}
    for m in re.finditer(r"\.entry (\w+)\((.*?)\n}\n", text, re.S):
        body = re.sub(r"\b(mul|add|sub)\.rn\.(f32|f64|ftz)", r"\1.\2", m.group(2))
        found[m.group(1)] = re.sub(r"//.*", "", body)
    return found

fused, plain = kernels(sys.argv[1]), kernels(sys.argv[2])
names = dict(zip(fused, subprocess.run(["c++filt"], input="\n".join(fused), capture_output=True, text=True).stdout.splitlines()))
different = [k for k in fused if fused[k] != plain.get(k)]
wrong = [names.get(k, k) for k in different if not FREE.search(names.get(k, k))]
for name in wrong:
    print(f"not the same with and without fusing: {name}")
print(f"{len(fused)} kernels, {len(different)} differ, {len(wrong)} of them promise bits")
sys.exit(1 if wrong or not fused else 0)
