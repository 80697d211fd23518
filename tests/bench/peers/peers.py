#!/usr/bin/env python3
"""peers.py GLUE.so QUANT_TOOL - time memopt, torch and bitsandbytes in turns; compare codes; exchange states.

Started by run.sh, by the python that has torch and bitsandbytes. For each number of threads it starts itself once more,
because OpenMP's libraries read theirs only at the start. All work on the same arrays; each round runs everybody once,
one after the other, and what is printed are medians of the rounds.
"""
import ctypes, datetime, json, os, platform, subprocess, sys, time, warnings

SIZES = [int(s) for s in os.environ.get('PEERS_MI', '16 64').split()]
THREADS = [int(s) for s in os.environ.get('PEERS_THREADS', '1 2').split()]
ROUNDS = int(os.environ.get('PEERS_ROUNDS', '7'))
F32, BIT8, BNB = 0, 2, 3 # memopt_state_format
SIGNED, UNSIGNED = 0, 1  # memopt_quant_map
# what is compared: title, the peer's name, memopt's name
PAIRS = [
    ('AdamW, fp32 throughout', 'torch fused', 'memopt'),
    ('AdamW, 8-bit state, fp32 weights; fp32 AdamW as the peer', 'torch fused', 'memopt 8-bit'),
    ('AdamW, 8-bit state, fp32 weights', 'bitsandbytes', 'memopt 8-bit'),
    ('AdamW, bf16 weights and gradients (state: bf16; 8-bit)', 'torch fused bf16', 'memopt 8-bit bf16'),
    ('quantize 8-bit, block 256, as called', 'bnb quantize_blockwise', 'memopt quantize'),
    ('the same, its C function alone', 'bnb C quantize', 'memopt quantize'),
    ('dequantize, as called', 'bnb dequantize_blockwise', 'memopt dequantize'),
    ('the same, its C function alone', 'bnb C dequantize', 'memopt dequantize'),
    ('fp32 to bf16, new array', 'torch .to(bfloat16)', 'memopt bf16_from_f32'),
    ('fp32 to bf16, in an array that is there', 'torch copy_ to bf16', 'memopt bf16_from_f32'),
    ('bf16 to fp32, in an array that is there', 'torch copy_ to fp32', 'memopt f32_from_bf16'),
]

def load(path, threads):
    lib = ctypes.CDLL(path)
    p, u, i = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
    lib.glue_level.restype = ctypes.c_char_p
    lib.glue_adam_open.restype = p
    lib.glue_adam_open.argtypes = [i, i, p, p, u, ctypes.c_double]
    lib.glue_adam_step.argtypes = [p, u]
    lib.glue_adam_close.argtypes = [p]
    lib.glue_adam_close.restype = None
    lib.glue_adam_state_bytes.argtypes = [p]
    lib.glue_adam_state_bytes.restype = u
    lib.glue_adam_parts.argtypes = [p, ctypes.POINTER(p)]
    lib.glue_quantize.argtypes = [p, p, p, u, i]
    lib.glue_dequantize.argtypes = [p, p, p, u, i]
    lib.glue_bf16_from_f32.argtypes = lib.glue_f32_from_bf16.argtypes = [p, p, u]
    lib.glue_levels.argtypes = [i, p]
    must(lib.glue_open(threads))
    return lib

def must(status):
    if status: raise RuntimeError(f'memopt: status {status}')

class Adam: # memopt's, on a torch tensor and its gradient
    def __init__(self, lib, state, weights, gradients, decay):
        import torch
        self.lib, self.t, self.arrays = lib, 0, (weights, gradients)
        bf16 = weights.dtype == torch.bfloat16
        self.handle = lib.glue_adam_open(state, bf16, weights.data_ptr(), gradients.data_ptr(), weights.numel(), decay)
        if not self.handle: raise RuntimeError('memopt: no optimizer')
    def step(self):
        self.t += 1
        must(self.lib.glue_adam_step(self.handle, self.t))
    def part(self, index, count, ctype): # a view into the state
        import torch
        parts = (ctypes.c_void_p * 4)()
        must(self.lib.glue_adam_parts(self.handle, parts))
        return torch.frombuffer((ctype * count).from_address(parts[index]),
                                dtype=torch.uint8 if ctype is ctypes.c_uint8 else torch.float32)
    def close(self):
        self.lib.glue_adam_close(self.handle)
        self.handle = None

def medians(runs, count): # {name: function} -> {name: ns an element}
    times = {name: [] for name in runs}
    for turn in range(ROUNDS + 1): # the first is to warm up
        for name, run in runs.items():
            start = time.perf_counter_ns()
            run()
            if turn: times[name].append((time.perf_counter_ns() - start) / count)
    return {name: sorted(t)[len(t) // 2] for name, t in times.items()}

def tried(what, make): # a peer may lack something: that is said, and the rest goes on
    try:
        run = make()
        run()
        return {what: run}
    except Exception as error: # noqa: whatever it is, it is the peer's
        print(f'peers: without {what}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ""}', file=sys.stderr)
        return {}

def time_adam(lib, torch, bnb, n):
    runs = {}
    weights = torch.nn.Parameter(torch.randn(n))
    weights.grad = torch.randn(n) * 1e-2
    weights16 = torch.nn.Parameter(weights.detach().bfloat16())
    weights16.grad = weights.grad.bfloat16()
    runs.update(tried('torch fused', lambda: torch.optim.AdamW([weights], fused=True).step))
    ours = [Adam(lib, F32, weights.detach(), weights.grad, 0.01), Adam(lib, BIT8, weights.detach(), weights.grad, 0.01),
            Adam(lib, BIT8, weights16.detach(), weights16.grad, 0.01)]
    runs['memopt'] = ours[0].step
    runs.update(tried('bitsandbytes', lambda: bnb.optim.AdamW8bit([weights]).step))
    runs['memopt 8-bit'] = ours[1].step
    runs.update(tried('torch fused bf16', lambda: torch.optim.AdamW([weights16], fused=True).step))
    runs['memopt 8-bit bf16'] = ours[2].step
    result = medians(runs, n)
    for adam in ours: adam.close()
    return result

def bnb_c(bnb, torch): # the C functions behind quantize_blockwise, which does no work of its own but to allocate
    from bitsandbytes.cextension import lib
    code = bnb.functional.create_dynamic_map().float()
    long, pointer = ctypes.c_longlong, lambda t: ctypes.c_void_p(t.data_ptr())
    def quantize(codes, absmax, x, levels=code):
        lib.cquantize_blockwise_cpu_fp32(pointer(levels), pointer(x), pointer(absmax), pointer(codes), long(256), long(x.numel()))
    def dequantize(x, codes, absmax):
        lib.cdequantize_blockwise_cpu_fp32(pointer(code), pointer(codes), pointer(absmax), pointer(x), long(256), long(x.numel()))
    return quantize, dequantize

def time_numbers(lib, torch, bnb, n):
    x, y, two = torch.randn(n), torch.empty(n), torch.empty(n, dtype=torch.bfloat16)
    codes, absmax = torch.empty(n, dtype=torch.uint8), torch.empty(n // 256)
    y.fill_(0); two.copy_(x)
    must(lib.glue_quantize(codes.data_ptr(), absmax.data_ptr(), x.data_ptr(), n, SIGNED))
    runs = {}
    F = bnb.functional
    runs.update(tried('bnb quantize_blockwise', lambda: lambda: F.quantize_blockwise(x, blocksize=256)))
    runs.update(tried('bnb C quantize', lambda: lambda: bnb_c(bnb, torch)[0](codes, absmax, x)))
    runs['memopt quantize'] = lambda: must(lib.glue_quantize(codes.data_ptr(), absmax.data_ptr(), x.data_ptr(), n, SIGNED))
    def dequantize():
        state = F.quantize_blockwise(x, blocksize=256)[1]
        return lambda: F.dequantize_blockwise(codes, state)
    runs.update(tried('bnb dequantize_blockwise', dequantize))
    runs.update(tried('bnb C dequantize', lambda: lambda: bnb_c(bnb, torch)[1](y, codes, absmax)))
    runs['memopt dequantize'] = lambda: must(lib.glue_dequantize(y.data_ptr(), codes.data_ptr(), absmax.data_ptr(), n, SIGNED))
    runs['torch .to(bfloat16)'] = lambda: x.to(torch.bfloat16)
    runs['torch copy_ to bf16'] = lambda: two.copy_(x)
    runs['memopt bf16_from_f32'] = lambda: must(lib.glue_bf16_from_f32(two.data_ptr(), x.data_ptr(), n))
    runs['torch copy_ to fp32'] = lambda: y.copy_(two)
    runs['memopt f32_from_bf16'] = lambda: must(lib.glue_f32_from_bf16(y.data_ptr(), two.data_ptr(), n))
    return medians(runs, n)

# ---- codes and states ----
def nearest(torch, levels, x): # the definition, in double: the level nearest to fl(x * fl(1 / absmax)), the lower of two
    blocks = x.view(-1, 256)
    absmax = blocks.abs().amax(1, keepdim=True)
    s = (blocks * (1 / absmax)).double().view(-1)
    middles = (levels.double()[1:] + levels.double()[:-1]) / 2
    return torch.searchsorted(middles, s).to(torch.uint8)

def of_tool(torch, tool, x, name):
    out = subprocess.run([tool, '--map', name], input=x.numpy().tobytes(), stdout=subprocess.PIPE, check=True).stdout
    return torch.frombuffer(bytearray(out[:x.numel()]), dtype=torch.uint8)

def compare_codes(lib, torch, bnb, tool):
    say, n = [], 1 << 20
    quantize, _ = bnb_c(bnb, torch)
    torch.manual_seed(1)
    wide = torch.randn(n) * 10 ** (torch.rand(n) * -6)
    inputs = [('signed', SIGNED, 'normal values', torch.randn(n)), ('signed', SIGNED, 'normal values over six decades', wide),
              ('unsigned', UNSIGNED, 'their squares', wide * wide)]
    for name, which, title, x in inputs:
        levels = torch.empty(256)
        must(lib.glue_levels(which, levels.data_ptr()))
        theirs_map = bnb.functional.create_dynamic_map(signed=which == SIGNED).float().contiguous()
        same_map = int((levels.view(torch.int32) == theirs_map.view(torch.int32)).sum())
        exact, ours = nearest(torch, levels, x), of_tool(torch, tool, x, name)
        theirs, absmax = torch.empty(n, dtype=torch.uint8), torch.empty(n // 256)
        quantize(theirs, absmax, x, theirs_map)
        share = lambda a, b: float((a == b).double().mean())
        say.append(f'{name} map, {title}: {same_map} of 256 levels have the same bits; codes equal in '
                   f'{share(ours, theirs):.4%}; nearest: memopt {share(ours, exact):.4%}, bitsandbytes {share(theirs, exact):.4%}')
    zeros = torch.zeros(256)
    zeros[0] = 1
    for name, which in (('signed', SIGNED), ('unsigned', UNSIGNED)):
        levels, theirs, absmax = torch.empty(256), torch.empty(256, dtype=torch.uint8), torch.empty(1)
        must(lib.glue_levels(which, levels.data_ptr()))
        quantize(theirs, absmax, zeros, levels)
        ours = of_tool(torch, tool, zeros, name)
        say.append(f'{name} map, a zero beside a 1: memopt stores {float(levels[int(ours[5])]):.3g}, bitsandbytes {float(levels[int(theirs[5])]):.3g}')
    return say

def exchange_states(lib, torch, bnb):
    """Three steps of bitsandbytes' AdamW8bit; its state into memopt; one step of both; memopt's state back, one more."""
    n = 1 << 16
    torch.manual_seed(2)
    theirs = torch.nn.Parameter(torch.randn(n))
    optim = bnb.optim.AdamW8bit([theirs], lr=1e-3, weight_decay=0) # on the CPU it decays before the update, on CUDA after
    def their_step(g):
        theirs.grad = g.clone()
        optim.step()
    for _ in range(3): their_step(torch.randn(n))
    state, ours = optim.state[theirs], theirs.detach().clone()
    gradient = torch.randn(n)
    adam = Adam(lib, BNB, ours, gradient, 0.0)
    adam.t = 3
    names = [('state1', n, ctypes.c_uint8), ('state2', n, ctypes.c_uint8), ('absmax1', n // 256, ctypes.c_float), ('absmax2', n // 256, ctypes.c_float)]
    parts = [(state[name], adam.part(i, count, ctype)) for i, (name, count, ctype) in enumerate(names)]
    for their_part, our_part in parts: our_part.copy_(their_part.view(-1)) # import
    their_step(gradient)
    adam.step()
    update = (ours - theirs.detach()).abs().max() / 1e-3
    equal = [float((a.view(-1) == b).double().mean()) for a, b in parts]
    close = max(float(((a.view(-1) - b).abs() / b).max()) for a, b in parts[2:])
    for their_part, our_part in parts: their_part.view(-1).copy_(our_part) # export
    theirs.data.copy_(ours)
    same = torch.randn(n)
    their_step(same)
    gradient.copy_(same)
    adam.step()
    back = (ours - theirs.detach()).abs().max() / 1e-3
    adam.close()
    return [f'state of AdamW8bit into MEMOPT_STATE_BNB, one step of both: weights differ by at most {float(update):.2g} learning rates, '
            f'scales by {close:.1g}, codes equal: first moment {equal[0]:.3%}, second {equal[1]:.3%}',
            f'the state of memopt back into AdamW8bit, one step more of both: weights differ by at most {float(back):.2g} learning rates']

def state_bytes(lib, torch, bnb, n): # a parameter
    weights = torch.nn.Parameter(torch.randn(n))
    weights.grad = torch.randn(n)
    optim = bnb.optim.AdamW8bit([weights])
    optim.step()
    theirs = sum(t.numel() * t.element_size() for name, t in optim.state[weights].items() if torch.is_tensor(t) and 'qmap' not in name)
    adam = Adam(lib, BIT8, weights.detach(), weights.grad, 0.0)
    ours = lib.glue_adam_state_bytes(adam.handle)
    adam.close()
    return f'bytes of state a parameter: bitsandbytes {theirs / n:.3f}, memopt {ours / n:.3f}'

def worker(glue, tool, threads):
    warnings.filterwarnings('ignore')
    import logging
    logging.disable(logging.WARNING) # bitsandbytes tells what it lacks for GPUs
    import torch, bitsandbytes as bnb
    torch.set_num_threads(threads)
    lib = load(glue, threads)
    out = {'threads': threads, 'times': {}, 'said': [], 'level': lib.glue_level().decode(), 'memopt': lib.glue_version(),
           'torch': torch.__version__, 'bitsandbytes': bnb.__version__}
    for mi in SIZES:
        print(f'peers: {threads} threads, {mi} Mi elements', file=sys.stderr)
        out['times'][mi] = {**time_adam(lib, torch, bnb, mi << 20), **time_numbers(lib, torch, bnb, mi << 20)}
    if threads == THREADS[0]:
        for job in (lambda: compare_codes(lib, torch, bnb, tool), lambda: exchange_states(lib, torch, bnb), lambda: [state_bytes(lib, torch, bnb, 1 << 20)]):
            try: out['said'] += job()
            except (AttributeError, KeyError, TypeError) as error: # a bitsandbytes that is made differently
                out['said'].append(f'not compared: {type(error).__name__}: {error}')
    print(json.dumps(out))

def cpu():
    try:
        for line in open('/proc/cpuinfo'):
            if line.startswith('model name'): return line.split(':', 1)[1].strip()
    except OSError: pass
    return platform.processor() or platform.machine()

def table(results):
    first = results[0]
    v = first['memopt']
    print(f"{datetime.date.today()}, {cpu()}, {os.cpu_count()} cores, {platform.system()}, {first['level']}; "
          f"torch {first['torch']}, bitsandbytes {first['bitsandbytes']}, memopt {v // 10000}.{v // 100 % 100}.{v % 100}")
    print(f'ns an element, medians of {ROUNDS} rounds in which all take turns; peer / memopt = ratio\n')
    columns = [(r, str(mi)) for mi in SIZES for r in results]
    print('| what | peer | ' + ' | '.join(f"{mi} Mi, {r['threads']}T" for r, mi in columns) + ' |')
    print('|---|---|' + '---|' * len(columns))
    for title, peer, ours in PAIRS:
        cells = []
        for r, mi in columns:
            a, b = r['times'][mi].get(peer), r['times'][mi].get(ours)
            cells.append(f'{a:.3g} / {b:.3g} = {a / b:.2f}' if a and b else 'not there')
        print(f'| {title} | {peer} | ' + ' | '.join(cells) + ' |')
    print()
    for line in first['said']: print(line)

def main():
    glue, tool = sys.argv[1:3]
    if len(sys.argv) > 3: return worker(glue, tool, int(sys.argv[3]))
    results = []
    for threads in THREADS:
        # The same limits for everybody: OpenMP of torch, of bitsandbytes, and MKL
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), OMP_PROC_BIND='false')
        out = subprocess.run([sys.executable, __file__, glue, tool, str(threads)], stdout=subprocess.PIPE, env=env)
        if out.returncode: sys.exit(f'peers: the part with {threads} threads ended with status {out.returncode}')
        results.append(json.loads(out.stdout.splitlines()[-1]))
    table(results)

main()
