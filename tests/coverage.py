#!/usr/bin/env python3
"""coverage.py - line and branch coverage of memopt.h by its tests, as two figures and as a page.

Compiles every section's tests with gcc --coverage in the configurations below, runs them, reads what gcov says, and
adds up the counts. Each section is a program of its own, because some put a failing system under the header. A line or branch that the preprocessor took out in every configuration (other platforms) is not
counted. Asserts are compiled out: their failing side is by intention never taken. Functions are not inlined by force: in
a copy for a constant argument, half of the branches could not be taken.

Usage: coverage.py [--build DIR] [--lines PERCENT] [--branches PERCENT]     (fails when a figure is below what is asked)
"""
import argparse, collections, concurrent.futures, glob, gzip, html, json, os, re, shlex, subprocess, sys

CONFIGURATIONS = {  # together they reach every path of a POSIX system
    'plain': '-DMEMOPT_DEBUG=0',
    'threads': '-DMEMOPT_DEBUG=2 -DMEMOPT_PTHREADS -pthread',
    'openmp': '-DMEMOPT_DEBUG=2 -DMEMOPT_PTHREADS -pthread -fopenmp',
}
GCC = os.environ.get('COVERAGE_CC', 'gcc')


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **more)
    if done.returncode:
        sys.exit(f'{shlex.join(command)}\n{done.stdout.decode(errors="replace")}')
    return done.stdout


def measure(folder, source, name, flags):
    """Build and run one program in one configuration; gcov's list of lines of memopt.h."""
    work = os.path.join(folder, name, os.path.basename(source)[:-2])
    os.makedirs(work, exist_ok=True)
    for old in os.listdir(work):
        os.remove(os.path.join(work, old))
    program = os.path.join(os.path.abspath(work), 'test')
    run([GCC, '--coverage', '-O0', '-std=c99', '-I' + folder, '-I.', '-DMEMOPT_ASSERT(x)=((void)0)', *flags.split(),
         '-c', source, '-o', program + '.o'])
    run([GCC, '--coverage', *flags.split(), program + '.o', '-o', program, '-lm'])
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if done.returncode:  # `make test` is where this counts; here the lines that it ran are counted
        print(f'{source} ({name}) fails: {done.stdout.decode(errors="replace").splitlines()[-1:]}')
    run(['gcov', '--json-format', '--branch-probabilities', 'test'], cwd=work)
    with gzip.open(os.path.join(work, 'test.gcov.json.gz')) as f:
        data = json.load(f)
    for file in data['files']:
        if os.path.basename(file['file']) == 'memopt.h':
            return file['lines']
    sys.exit('gcov says nothing about memopt.h')


def plain_header(folder):
    """memopt.h, line for line, but for what forces the compiler to make copies of functions."""
    with open('memopt.h', encoding='utf-8') as f:
        text, found = re.subn(r'(?m)^(#  +define MEMOPT_I_(?:FLATTEN|ALWAYS_INLINE)) .*$', r'\1', f.read())
    if found != 2:
        sys.exit('coverage.py: MEMOPT_I_FLATTEN and MEMOPT_I_ALWAYS_INLINE are defined otherwise by now')
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'memopt.h'), 'w', encoding='utf-8') as f:
        f.write(text)


def merge(all_lines):
    """line number -> [times executed, {number of branches: [times taken, ...]}]"""
    merged = collections.defaultdict(lambda: [0, {}])
    for lines in all_lines:
        for line in lines:
            entry = merged[line['line_number']]
            entry[0] += line['count']
            counts = [b['count'] for b in line['branches']]
            before = entry[1].get(len(counts), [0] * len(counts))
            entry[1][len(counts)] = [a + b for a, b in zip(before, counts)]
    result = {}
    for number, (count, shapes) in merged.items():
        # A line that means different things in two configurations has a list for each; the one that was run most stands.
        result[number] = (count, max(shapes.values(), key=lambda taken: (sum(taken), len(taken))))
    return result


STYLE = '''body { font: 14px/1.4 sans-serif; margin: 1.5em auto; max-width: 90em; padding: 0 1em; color: #222; background: #fff }
pre { font: 12px/1.35 monospace; tab-size: 4; margin: 0; overflow-x: auto } pre span { display: block; white-space: pre }
.none { background: #ffd0cc } .part { background: #fff3b8 } .n { color: #777; display: inline; user-select: none }
.bar { background: #ffd0cc; height: 14px; width: 100%; margin: 2px 0 10px } .bar div { background: #7cc48a; height: 14px }
#missing { columns: 12em; font-size: 13px } #missing .none, #missing .part { padding: 0 4px }'''


def page(source, lines, totals):
    out = ['<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
           f'<title>Coverage of memopt.h</title><style>{STYLE}</style><h1>Coverage of memopt.h</h1>']
    for what, (hit, all_of) in totals.items():
        percent = 100.0 * hit / max(all_of, 1)
        out.append(f'<div>{what}: {hit} of {all_of}, <b>{percent:.2f}%</b></div>'
                   f'<div class="bar"><div style="width: {percent:.2f}%"></div></div>')
    missing = []
    for number, (count, branches) in sorted(lines.items()):
        if not count:
            missing.append(f'<div><a class="none" href="#l{number}">line {number}</a></div>')
        elif not all(branches):
            missing.append(f'<div><a class="part" href="#l{number}">line {number}</a> {sum(map(bool, branches))}/{len(branches)}</div>')
    out.append('<p><span class="none">Red</span>: never run. <span class="part">Yellow</span>: some branches never taken. '
               f'Tested as: {html.escape("; ".join(CONFIGURATIONS.values()))}.</p>'
               f'<h2>Not covered</h2><div id="missing">{"".join(missing) or "nothing"}</div><h2>memopt.h</h2><pre>')
    for number, text in enumerate(source, 1):
        count, branches = lines.get(number, (None, []))
        kind = 'none' if count == 0 else 'part' if count and not all(branches) else ''
        taken = f'{sum(map(bool, branches))}/{len(branches)}' if branches else ''
        shown = '' if count is None else str(count)
        out.append(f'<span id="l{number}" class="{kind}"><span class="n">{number:6d} {shown:>12s} {taken:>6s}  </span>'
                   f'{html.escape(text)}</span>')
    out.append('</pre></html>')
    return ''.join(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', default='build/coverage')
    parser.add_argument('--lines', type=float, default=0)
    parser.add_argument('--branches', type=float, default=0)
    options = parser.parse_args()
    plain_header(options.build)
    with concurrent.futures.ThreadPoolExecutor(max_workers=int(os.environ.get('JOBS') or 1)) as pool:
        sources = [s for s in sorted(glob.glob('tests/test_*.c')) if s != 'tests/test_combined.c']
        jobs = [pool.submit(measure, options.build, s, *c) for s in sources for c in CONFIGURATIONS.items()]
        lines = merge([job.result() for job in jobs])
    branches = [taken for count, all_of in lines.values() for taken in all_of]
    totals = {'lines': (sum(1 for count, _ in lines.values() if count), len(lines)),
              'branches': (sum(map(bool, branches)), len(branches))}
    with open('memopt.h', encoding='utf-8') as f:
        source = f.read().splitlines()
    where = os.path.join(options.build, 'index.html')
    with open(where, 'w', encoding='utf-8') as f:
        f.write(page(source, lines, totals))
    below = False
    for what, wanted in (('lines', options.lines), ('branches', options.branches)):
        hit, all_of = totals[what]
        percent = 100.0 * hit / max(all_of, 1)
        below = below or percent < wanted
        print(f'{what:9s} {hit:6d} of {all_of:6d}  {percent:6.2f}%' + (f'  (wanted: {wanted:g}%)' if wanted else ''))
    print(where)
    sys.exit(below)


if __name__ == '__main__':
    main()
