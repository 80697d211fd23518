#!/usr/bin/env python3
"""check_quant.py TOOL: compares quant_tool with the definition, computed here with fractions: the levels by bitsandbytes'
algorithm, each code as the first of the nearest levels to fl(x * fl(1 / absmax))."""
import math, random, struct, subprocess, sys
from bisect import bisect_left
from fractions import Fraction as F

def fl(x):
    """a Fraction to the nearest float32, ties to even, as a Fraction"""
    if x == 0: return F(0)
    sign, x = (-1, -x) if x < 0 else (1, x)
    e = max(x.numerator.bit_length() - x.denominator.bit_length() - 24, -149)
    while x >= F(2) ** (e + 24): e += 1
    while e > -149 and x < F(2) ** (e + 23): e -= 1
    q, r = divmod(x / F(2) ** e, 1)
    q += r > F(1, 2) or (r == F(1, 2) and q % 2)
    return sign * q * F(2) ** e
def exact(bits): return F(struct.unpack('<f', struct.pack('<I', bits))[0])
LARGEST = exact(0x7f7fffff)

def levels(name):
    if name == 'linear': return [F(k - 127, 128) for k in range(256)]
    start, values = fl(F(1, 10)), [F(0), F(1)]
    for d in range(7):
        n = (1 if name == 'signed' else 2) << d
        step = fl(fl(1 - start) / n)                     # torch.linspace with fused multiply-adds
        edges = [fl(start + step * i) if i < (n + 1) // 2 else fl(1 - step * (n - i)) for i in range(n + 1)]
        for a, b in zip(edges, edges[1:]):
            values.append(fl(fl(F(10) ** (d - 6)) * fl(fl(a + b) / 2)))
            if name == 'signed': values.append(-values[-1])
    return sorted(values)

def encode(table, name, bits, block):
    middles = [(a + b) / 2 for a, b in zip(table, table[1:])]
    codes, scales, zero = [], [], 0 if name == 'unsigned' else 127
    for at in range(0, len(bits), block):
        part = bits[at:at + block]
        absmax = max([abs(exact(b)) for b in part if b & 0x7f800000 != 0x7f800000], default=F(0))
        inverse = min(fl(1 / absmax), LARGEST) if absmax else F(0)
        for b in part:
            if b & 0x7f800000 == 0x7f800000:             # NaN: zero; infinities: outermost
                codes.append(zero if b & 0x7fffff or not absmax else 0 if b >> 31 else 255)
            else: codes.append(bisect_left(middles, fl(exact(b) * inverse)))
        scales.append(absmax)
    return codes, scales

def run(tool, name, block, data, *more):
    r = subprocess.run([tool, '--map', name, '--block', str(block), *more], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return r.returncode, r.stdout, r.stderr.decode()

def main(tool):
    random.seed(1)
    checked = 0
    for name in ('signed', 'unsigned', 'linear'):
        table = levels(name)
        for block, count in ((32, 1), (32, 33), (256, 0), (256, 256), (256, 700), (4096, 4100), (96, 500)):
            bits = [struct.unpack('<I', struct.pack('<f', random.gauss(0, 1) * 10.0 ** -random.randrange(8)))[0] for _ in range(count)]
            for at in range(0, count, 50): bits[at] = random.choice([0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 1, 0x80000001])
            if count > 600:                              # values that lie on boundaries: absmax 1
                for at in range(0, 256): bits[at] = struct.unpack('<I', struct.pack('<f', float((table[at] + table[max(at - 1, 0)]) / 2)))[0]
                bits[0] = 0x3f800000
            codes, scales = encode(table, name, bits, block)
            want = bytes(codes) + b''.join(struct.pack('<f', float(s)) for s in scales)
            status, out, said = run(tool, name, block, struct.pack('<%dI' % count, *bits))
            if status or out != want: sys.exit('%s, block %d, %d floats: status %d, %s %s' % (name, block, count, status, said,
                [(i, '%08x' % bits[i], a, b) for i, (a, b) in enumerate(zip(out, codes)) if a != b][:5]))
            status, out, said = run(tool, name, block, want, '--decode')
            back = b''.join(struct.pack('<f', float(fl(table[c] * scales[i // block]))) for i, c in enumerate(codes))
            back_bits = [x & 0x7fffffff if x == 0x80000000 else x for x in struct.unpack('<%dI' % (len(out) // 4), out)]
            want_bits = [x & 0x7fffffff if x == 0x80000000 else x for x in struct.unpack('<%dI' % count, back)]
            if status or back_bits != want_bits: sys.exit('%s, block %d, %d codes back: status %d, %s' % (name, block, count, status, said))
            checked += count
    for length in (1, 2, 3, 4, 260 + 1, 260 + 4):          # of no count
        status, out, said = run(tool, 'signed', 256, bytes(length), '--decode')
        if status != 1 or out or not said: sys.exit('decoded %d bytes: status %d, "%s"' % (length, status, said))
    print('%d values as the definition says, both ways' % checked)
main(sys.argv[1])
