#!/usr/bin/env python3
"""gpt.py TRAIN_GPT BENCH_GEMM FOLDER - memopt beside torch and OpenBLAS: a whole training step, each run a process of its own, in turns,
and the products of bench_gemm. Writes FOLDER/peers-PROCESSOR.md. Linux; started by run.sh.
The step: the same GPT-2 (learned positions, tied head, GELU by tanh), the same tokens, AdamW. What is not to be had here is a row that says so.
  PEERS_GPT="12 768 12 1024 50257 4"   layers, width, heads, context, vocabulary, batch: 124M
  PEERS_GPT_STEPS=2    steps that are timed, after one that is not    PEERS_GPT_ROUNDS=1    PEERS_GPT_THREADS=2
  PEERS_GPT_LIMIT=60   seconds that a first step may take; more where others use the machine, too
  PEERS_GPT_SHAPES=    products with this in their name
  PEERS_MISSING=       why there is no torch"""
import json, os, re, signal, statistics, subprocess, sys, threading, time
sys.dont_write_bytecode = True

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH = map(int, os.environ.get('PEERS_GPT', '12 768 12 1024 50257 4').split())
STEPS, ROUNDS, THREADS, LIMIT = (int(os.environ.get('PEERS_GPT_' + name, usual)) for name, usual in
                                 (('STEPS', '2'), ('ROUNDS', '1'), ('THREADS', '2'), ('LIMIT', '60')))
SHAPES, MISSING = os.environ.get('PEERS_GPT_SHAPES', ''), os.environ.get('PEERS_MISSING', '')
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..')
TOKENS = BATCH * CONTEXT
LEAN = ['--keep', 'overhead:33', '--attention', 'lean', '--fuse-step', '--head', f'chunk:{max(64, TOKENS // 32)}', '--mlp',
        f'chunk:{max(64, TOKENS // 8)}']
ROWS = [('torch, fp32', 'f32'), ('torch, fp32, every block checkpointed', 'f32 checkpoints'), ('torch, bf16', 'bf16'),
        ('torch, bf16, every block checkpointed', 'bf16 checkpoints'), ('memopt, fp32, all that is exact', LEAN),
        ('memopt, 8-bit Adam, bf16: everything on', LEAN + ['--weights', 'bf16', '--optimizer', 'adamw8'])]


def left(what, done, of, since):
    """Says what is next, and how long the rest takes at the pace so far."""
    seconds = (time.monotonic() - since) / done * (of - done) if done else 0
    rest = f'; {seconds / 60:.0f} min left' if seconds >= 60 else f'; {seconds:.0f} s left' if done else ''
    print(f'peers: {what}{rest}', file=sys.stderr)


# ---- a whole step ----
def torch_run(mode):
    """Says `step 0` when all is there, and `step N` after each."""
    import torch
    from torch_gpt import GPT, train
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)

    model = GPT(LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, checkpoints='checkpoints' in mode)
    if 'bf16' in mode:
        model = model.bfloat16()
    optim = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    ids = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))

    def batches():
        for step in range(STEPS + 1):
            print('step', step, file=sys.stderr, flush=True)
            yield ids[:, :-1], ids[:, 1:]
        print('step', STEPS + 1, file=sys.stderr, flush=True)
    train(model, optim, batches())


def command_of(program, row):
    if not isinstance(row, list):
        return [sys.executable, __file__, '--torch', row]
    switches = dict(layers=LAYERS, width=WIDTH, heads=HEADS, context=CONTEXT, vocab=VOCABULARY, batch=BATCH, threads=THREADS, steps=STEPS + 1,
                    data=os.path.join(ROOT, 'examples', 'text.txt'))
    return [program, *row, *(word for name, value in switches.items() for word in ('--' + name, str(value)))]


def watched(command):
    """Of a process that says `step N`: CPU seconds of a step after the first, tokens a second, peak bytes; or why there are none."""
    def start():
        timer = threading.Timer(LIMIT, os.kill, (child.pid, signal.SIGKILL))
        timer.start()
        return timer, [(time.perf_counter(), time.clock_gettime(clock))]

    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors='replace')
    clock, said = ~child.pid << 3 | 2, '' # as clock_getcpuclockid has it: what all threads of that process have worked
    timer, at = start()
    for line in child.stderr:
        said = line.strip() or said
        if line.startswith('step'):
            timer.cancel()
            at.append((time.perf_counter(), time.clock_gettime(clock)))
        if line.startswith('step 0'):
            timer, at = start()
    timer.cancel()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    peak = usage.ru_maxrss * 1024
    if not status and len(at) == STEPS + 2:
        seconds, cpu = ([b[i] - a[i] for a, b in zip(at[1:], at[2:])] for i in (0, 1))
        return statistics.median(cpu), TOKENS / statistics.median(seconds), peak
    if status == signal.SIGKILL and len(at) == 1:
        cpu = usage.ru_utime + usage.ru_stime - at[0][1]
        return f'stopped: its first step takes more than {LIMIT} s; in these {cpu:.0f} CPU s and {peak / 1e6:,.0f} MB'
    return f'skipped: {said or "it said nothing"} (status {status})'


def steps(program):
    """[(name, figures, or why there are none)]"""
    results, since = {name: [] for name, _ in ROWS}, time.monotonic()
    for turn in range(ROUNDS):
        for i, (name, row) in enumerate(ROWS):
            left(f'whole step, turn {turn + 1} of {ROUNDS}: {name}', turn * len(ROWS) + i, ROUNDS * len(ROWS), since)
            if isinstance(row, str) and MISSING:
                results[name] = 'skipped: ' + MISSING
            if not isinstance(results[name], str):
                try:
                    told = watched(command_of(program, row))
                except OSError as e:
                    told = f'skipped: {e}'
                results[name] = told if isinstance(told, str) else results[name] + [told]
    return [(name, told if isinstance(told, str) else [statistics.median(x) for x in zip(*told)]) for name, told in results.items()]


# ---- products, one thread ----
def rate(flops, multiply):
    """Gflop/s by the processor's clock, as bench_gemm has it: the median of five after a first, or of what two seconds allow."""
    times, rates, since = 1 + int(3e8 / flops), [], time.monotonic()
    while not rates or len(rates) < 6 and time.monotonic() - since < 2:
        begin = time.process_time()
        for _ in range(times):
            multiply()
        rates.append(flops * times / (time.process_time() - begin) / 1e9)
    return statistics.median(rates[1:] or rates)


def operands(shape, make):
    rows, columns, depth, left_transposed, right_transposed = shape[:5]
    return make(depth, rows).T if left_transposed else make(rows, depth), make(columns, depth).T if right_transposed else make(depth, columns), make(rows, columns)


def torch_product(torch, shape, dtype):
    left, right, result = operands(shape, lambda a, b: torch.rand(a, b).to(dtype))
    return lambda: result.addmm_(left, right) if shape[5] else torch.mm(left, right, out=result)


def numpy_product(numpy, shape):
    left, right, result = operands(shape, lambda a, b: numpy.random.rand(a, b).astype(numpy.float32))
    return lambda: numpy.matmul(left, right, out=result)


def products(program, torch, numpy):
    """[(name, rows x columns x depth, type, Gflop/s of the limit, {who: Gflop/s})]"""
    text = open(os.path.join(ROOT, 'tests', 'bench', 'bench_gemm.c'), encoding='utf-8').read()
    shapes = [(name, kind, tuple(map(int, numbers.split(',')))) for name, numbers, kind in
              re.findall(r'\{ "(\w+)", ([\d, ]+), MEMOPT_TYPE_(F32|BF16) \}', text) if SHAPES in name]
    flops = [2 * shape[0] * shape[1] * shape[2] for _, _, shape in shapes]
    rows, since = [], time.monotonic()
    for i, (name, kind, shape) in enumerate(shapes):
        left(f'product {i + 1} of {len(shapes)}: {name}', sum(flops[:i]), sum(flops), since)
        told = [json.loads(line) for line in subprocess.run([program, '--json', name], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()]
        told = next(row for row in told if row['name'] == name and row['threads'] == 1)
        rates = {'memopt': told['value']}
        if torch:
            rates['torch'] = rate(flops[i], torch_product(torch, shape, torch.float32 if kind == 'F32' else torch.bfloat16))
        if numpy and kind == 'F32':
            rates['OpenBLAS'] = rate(flops[i], numpy_product(numpy, shape))
        rows.append((name, ' x '.join(map(str, shape[:3])), kind, told['limit'], rates))
    return rows


# ---- the page ----
def processor():
    """(a word for a file's name, what it is, what it has)"""
    about = {key.strip(): value.strip() for key, value in (line.split(':', 1) for line in open('/proc/cpuinfo', encoding='utf-8') if ':' in line)}
    flags = about.get('flags', about.get('Features', '')).split()
    has = [short for flag, short in (('avx2', 'avx2'), ('avx512f', 'avx512'), ('avx512_bf16', 'avx512bf16'), ('amx_bf16', 'amx'), ('asimd', 'neon'),
                                     ('bf16', 'bf16')) if flag in flags]
    family, model = int(about.get('cpu family', 0)), int(about.get('model', 0))
    intel = {85: 'skylakex', 106: 'icelake', 108: 'icelake', 143: 'sapphirerapids', 173: 'graniterapids', 174: 'graniterapids', 207: 'emeraldrapids'}
    slug = about.get('CPU implementer', 'cpu') + '-' + about.get('CPU part', os.uname().machine)
    if about.get('vendor_id') == 'AuthenticAMD':
        slug = {23: 'zen2' if model >= 48 else 'zen', 25: 'zen4' if 'avx512f' in flags else 'zen3', 26: 'zen5'}.get(family, f'amd-{family}-{model}')
    elif 'vendor_id' in about:
        slug = family == 6 and intel.get(model) or f'{about["vendor_id"].lower()}-{family}-{model}'
    return slug, f'{about.get("model name", os.uname().machine)}, family {family}, model {model} ({slug}; {", ".join(has)})', has


def tried(name):
    try:
        return __import__(name)
    except ImportError:
        return None


def versions(torch, numpy):
    text = open(os.path.join(ROOT, 'memopt.h'), encoding='utf-8').read()
    number = int(re.search(r'#define MEMOPT_VERSION (\d+)', text).group(1))
    yield f'memopt {number // 10000}.{number // 100 % 100}.{number % 100}'
    if torch:
        inside = torch.__config__.show()
        known = [title + found.group(1) for title, found in (('MKL ', re.search(r'Kernel Library Version (\w[\w.]*)', inside)),
                                                             ('oneDNN ', re.search(r'MKL-DNN v([\d.]+)', inside))) if found]
        yield f'torch {torch.__version__} ({", ".join(known)})'
    if numpy:
        yield f'numpy {numpy.__version__} (OpenBLAS {numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]["version"]})'


def means(rows, who):
    """Geometric means of Gflop/s and of shares, of fp32 and bf16."""
    for kind, title in (('F32', 'fp32'), ('BF16', 'bf16')):
        of = {x: [(rates[x], rates[x] / limit) for _, _, k, limit, rates in rows if k == kind and x in rates] for x in who}
        if of['memopt']:
            yield title, {x: [statistics.geometric_mean(figures) for figures in zip(*pairs)] for x, pairs in of.items() if pairs}


def page(whole, rows, slug, title, has, torch, numpy):
    who = ['memopt', 'torch', 'OpenBLAS']
    yield f'# Beside torch and OpenBLAS: {slug}\n'
    yield f'{time.strftime("%Y-%m-%d")}: {title}, {os.cpu_count()} processors, Linux, load {os.getloadavg()[0]:.1f} at the end;\n{"; ".join(versions(torch, numpy))}. `PEERS_ONLY=gpt make peers`.\n'
    yield f'A step of {LAYERS} layers, width {WIDTH}, vocabulary {VOCABULARY}: {BATCH} x {CONTEXT} tokens, {THREADS} threads, each row a process of its own;'
    yield f'medians of {STEPS} steps after the first, tokens/s by the wall' + (f', of {ROUNDS} turns' if ROUNDS > 1 else '') + '.\n'
    yield '| | CPU s a step | tokens/s | peak MB |\n|---|--:|--:|--:|'
    for name, told in whole:
        yield f'| {name} | {told} | | |' if isinstance(told, str) else f'| {name} | {told[0]:.1f} | {told[1]:.0f} | {told[2] / 1e6:,.0f} |'
    yield "\nProducts, one thread: Gflop/s by the processor's clock, in brackets their share of the limit that `build/bench_gemm` measured in the same run: a loop of multiply-adds,"
    yield 'with matrix units or dot products of bf16 one of these; of up to 16 rows, one that reads the right operand.\n'
    yield '| product | rows x columns x depth | limit | ' + ' | '.join(who) + ' |\n|---|---|--:|' + '--:|' * len(who)
    for name, size, _, limit, rates in rows:
        yield f'| {name} | {size} | {limit:.1f} | ' + ' | '.join(f'{rates[x]:.1f} ({rates[x] / limit:.2f})' if x in rates else '-' for x in who) + ' |'
    for kind, of in means(rows, who):
        yield f'| geometric mean, {kind} | | | ' + ' | '.join('{:.1f} ({:.2f})'.format(*of[x]) if x in of else '-' for x in who) + ' |'
    yield '\n`-`: ' + '; '.join([f'no torch: {MISSING}'] * (not torch) + ['no numpy'] * (not numpy) + ['numpy has no bf16, which OpenBLAS is called through']) + '.'
    if not {'avx512bf16', 'amx', 'bf16'} & set(has):
        yield 'This processor has no instructions for bf16: who computes with it converts.'


def main():
    program, bench, folder = sys.argv[1:4]
    os.environ['OPENBLAS_NUM_THREADS'] = '1' # before numpy
    whole = steps(program)
    torch, numpy = tried('torch'), tried('numpy')
    if torch:
        torch.set_num_threads(1)
    slug, title, has = processor()
    text = '\n'.join(page(whole, products(bench, torch, numpy), slug, title, has, torch, numpy)) + '\n'
    print(text, end='')
    with open(os.path.join(folder, f'peers-{slug}.md'), 'w', encoding='utf-8') as file:
        file.write(text)


if __name__ == '__main__':
    torch_run(sys.argv[2]) if sys.argv[1] == '--torch' else main()
