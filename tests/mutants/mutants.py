#!/usr/bin/env python3
"""mutants.py - break memopt.h and memopt_cuda.cu on purpose, a line at a time, and see whether the tests notice.

    mutants.py [--sample N] [--check] [--plain] [--same] [SECTION...]

SECTION is a section of memopt.h (arena), one of memopt_cuda.cu (cuda_quant), `header` or `kernels`; none means all.
--sample N   N faults of each list, by fours of a section, spread evenly over it: always the same ones, for runs that have
             minutes only
--check      only see that the text of every fault stands in its source
--plain      without sanitizers: quick, and what survives is not kept
--same       run the faults that are listed as changing nothing; one that is caught is an error

header.txt and kernels.txt, beside this file, have lines `section :: name :: old text :: new text`, and a fifth field,
`:: reason`, where the change makes no difference that can be seen; # begins a comment. The old text must stand exactly
once in the source, or in the section, or else in the function that the name begins with; a space in it stands for any
white space, ends of lines too.

Each fault is put into a copy of the source and the section's own tests are built with it and run: plainly, then, if
nobody noticed, with the instructions emulated that this machine lacks (tests/lanes16.h), with ASan and UBSan, then with TSan (in the header only the host's sections, where threads are). A test that fails,
crashes or hangs has noticed, if the same build passes without the fault. In the header the faults of a section are built
into one program, with a switch in every function that has some. What was found is kept in build/mutants/, under a hash of
the fault, the test and the code that it reaches, so that the next run examines only what is new.
Exit status 1 when a fault has no place or does not compile, or fewer are caught than ENOUGH says.
From the environment: CC, CXX, JOBS, and CLANGXX for TSan on kernels.
"""
import argparse, collections, glob, hashlib, itertools, os, re, resource, shlex, subprocess, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.realpath(__file__))
TESTS = os.path.dirname(HERE)
ROOT = os.path.dirname(TESTS)
SIMULATOR = os.path.join(TESTS, "simulator")
KEPT = os.path.join(ROOT, "build", "mutants")
CC = shlex.split(os.environ.get("CC") or "cc")
CXX = shlex.split(os.environ.get("CXX") or "c++")
CLANGXX = shlex.split(os.environ.get("CLANGXX") or "clang++")
JOBS = int(os.environ.get("JOBS") or os.cpu_count() or 2)
SLACK = 4       # a test may need this many times the processor time that it needs without a fault, and ...
LEAST = 4       # ... this many seconds more
MEMORY = 4 << 20  # KiB of data that a plain test of the header may have
ADDRESS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
# What tells most about a test that has failed, best first.
TELLING = [r"^simulator: .*:\d+: ", r"ERROR: ", r"WARNING: ", r"runtime error", r"\.(cu|c|h):\d+:", r"FAILED", r"error"]

Fault = collections.namedtuple("Fault", "list section name old new reason")
Build = collections.namedtuple("Build", "name compiler flags object_flags runner")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def can_emulate():
    """Does this machine have what tests/lanes16.h is written in, and not what it stands for?"""
    try:
        flags = read("/proc/cpuinfo").split()
    except OSError:
        return False
    return "avx2" in flags and not {"avx512_vbmi2", "amx_bf16"} <= set(flags)


def functions(text):
    """{name: [(begin, end), ...]} of the functions of a C source that is indented as ours is."""
    found, lines, at = collections.defaultdict(list), text.split("\n"), 0
    begins, name = 0, ""
    for line in lines:
        whole = re.sub(r"/\*.*?\*/", "", line).rstrip("\\ ")
        start = re.match(r"(?![#/{}])\S.*?\b((?:memopt_\w+)|[VR]\(\w+\))\(", line)
        if start and not line.startswith("typedef"):
            begins, name = at, re.sub(r"[VR]\((\w+)\)", r"\1", start.group(1))
        if name and (whole.startswith("}") or (whole.endswith("}") and begins == at)):
            found[name].append((begins, at + len(line)))
            name = ""
        at += len(line) + 1
    return found


SWITCH = """#ifndef MEMOPT_I_WIDTH
static int memopt_mutant;
extern char *getenv(const char *name);
extern int atoi(const char *text);
__attribute__((constructor)) static void memopt_mutant_choose(void) {
    const char *number = getenv("MEMOPT_MUTANT");
    memopt_mutant = number ? atoi(number) : 0;
}
#endif
"""
# The operations of vectors are made part of their callers; with a switch in them a test takes twenty times as long.
LANES = re.compile(r"[VR]\(|memopt_i_[vr]\d+_")
Heading = collections.namedtuple("Heading", "name at body parameters void")


def heading(function):
    """The first lines of a function taken apart; body: where what its braces hold begins. None when it is no function."""
    start = re.match(r"(\S.*?)\b(memopt_\w+|[VR]\(\w+\))\(", function)
    if not start:
        return None
    depth, at, parts, part = 1, start.end(), [], ""
    while depth and at < len(function):
        c = function[at]
        depth += (c in "([") - (c in ")]")
        if not depth or (c == "," and depth == 1):
            parts.append(part)
            part = ""
        else:
            part += c
        at += 1
    brace = re.match(r"[\s\\]*\{", function[at:])
    if not brace:
        return None
    names = []
    for part in parts:
        part = re.sub(r"[\s\\]+", " ", part).strip()
        pointer = re.search(r"\(\*(\w+)\)", part)
        name = pointer or re.search(r"(\w+)(?:\[[^\]]*\])?$", part)
        if part not in ("", "void"):
            names.append(name.group(1))
    return Heading(start.group(2), start.start(2), at + brace.end(), names,
                   re.search(r"\bvoid\s*$", start.group(1)) is not None)


def numbered(head, number):
    return re.sub(r"(\w+)(\)?)$", rf"\1__{number}\2", head.name)


def renamed(function, head, number):
    return function[:head.at] + numbered(head, number) + function[head.at + len(head.name):]


def called(head, number):
    return f"{numbered(head, number)}({', '.join(head.parameters)})"


class Header:
    """memopt.h, by the tests of its sections."""
    name, path, enough, prefix, combines = "header", "memopt.h", 0.97, "", True
    # Sections without a test file of the same name.
    owners = {**{part: ["host"] for part in ("host_threads", "host_files", "host_queue")},
              "available": ["source"], "pages": ["source"], "ledger_report": ["ledger"], "rounding": ["base"],
              "flush": ["gemm"], "rows": ["row_kernels", "layer"], "noise": ["random"], "small": ["number"],
              "convert": ["number"], "quantize": ["quant"],
              "vec": ["row_kernels", "optim", "scale", "layer"], "optim_kernels": ["optim"], "state": ["optim", "adafactor", "parts_cut", "muon"], "optim_pass": ["optim", "adafactor", "parts_cut"],
              "optim": ["optim", "adafactor", "parts_cut", "muon"], "adafactor": ["adafactor", "parts_cut"],
              "simulation": ["schedule"], "solver": ["schedule"], "codec": ["tape"],
              "compile": ["tape"], "stash": ["tape"], "activation": ["layer"], "linear": ["layer"], "dropout": ["layer"], "embedding": ["layer"],
              "rotary": ["layer"], "operator": ["operator", "row_kernels", "layer", "attention", "softmax"],
              "gemm": ["gemm", "attention"]}
    plain = ["-fexpensive-optimizations"] if "clang" not in CC[0] else []
    # Code of 16 lanes and matrix units where there are none: their instructions as functions, of gcc.
    wide = ["-std=gnu99", *itertools.chain(*(("-include", os.path.join(TESTS, file)) for file in ("tiles.h", "lanes16.h")))]
    runs_here = ["-DMEMOPT_NO_AVX512"] if can_emulate() else []  # what this machine lacks is only compiled for `emulated`
    builds = [
        Build("plain", CC, ["-O1", *plain, *runs_here, "-DMEMOPT_DEBUG=0", "-DMEMOPT_PTHREADS", "-pthread"], [], []),
        *([Build("emulated", CC, ["-O1", *wide], [], [])] if plain and can_emulate() else []),
        Build("asan", CC, ["-O1", *plain, *runs_here, *ADDRESS, "-DMEMOPT_PTHREADS", "-pthread"], [], []),
        Build("tsan", CC, ["-O1", *runs_here, "-fsanitize=thread", "-DTEST_THREADS", "-DMEMOPT_PTHREADS", "-pthread"], [],
              ["setarch", "-R"]),
    ]

    @staticmethod
    def marker(section):
        return f"/* @section {section} :"

    def tests(self, section):
        return [os.path.join(TESTS, f"test_{test}.c") for test in self.owners.get(section, [section])]

    def runs(self, build, section):
        return build.name != "tsan" or section.startswith("host")

    def inputs(self):
        return sorted(glob.glob(os.path.join(TESTS, "*.h")))

    def objects(self, build, folder):
        return []

    def command(self, build, test, folder, objects):
        return [*build.compiler, "-std=c99", "-w", *build.flags, "-DMEMOPT_STATIC", "-DTEST_STOP", "-I" + folder,
                "-I" + ROOT, test, "-lm", "-o", os.path.join(folder, "test")]


DEBUG = Build("debug", CC, ["-O1", *Header.plain, "-DMEMOPT_DEBUG=2", "-DMEMOPT_PTHREADS", "-pthread"], [], [])


class Kernels:
    """memopt_cuda.cu, by the tests of its sections on the simulator."""
    name, path, enough, prefix, combines = "kernels", "memopt_cuda.cu", 0.95, "cuda_", False
    builds = [
        Build("plain", CXX, [], [], []),
        Build("asan", CXX, ADDRESS, ["-DSIMULATOR_ASAN"], []),
        Build("tsan", CLANGXX, ["-fsanitize=thread"], ["-DSIMULATOR_TSAN"], ["setarch", "-R"]),
    ]
    common = ["-std=c++17", "-DMEMOPT_CUDA_WGMMA", "-w", "-ffp-contract=off", "-I" + os.path.join(SIMULATOR, "include"), "-I" + SIMULATOR,
              "-I" + TESTS, "-I" + ROOT]

    @staticmethod
    def marker(section):
        return f"@section cuda_{section} "

    def tests(self, section):
        return [os.path.join(TESTS, f"test_cuda_{section}.cu")]

    def runs(self, build, section):
        return True

    def inputs(self):
        return [os.path.join(ROOT, "memopt.h"), *sorted(glob.glob(os.path.join(TESTS, "*.h")))] + sorted(
            file for file in glob.glob(os.path.join(SIMULATOR, "**"), recursive=True) if os.path.isfile(file))

    def objects(self, build, folder):
        """The simulator's objects. It is not instrumented: it tells the sanitizers of its fibers."""
        objects = []
        for part in "simulator", "cublaslt_mock", "nccl":
            objects.append(os.path.join(folder, f"{part}_{build.name}.o"))
            subprocess.run([*build.compiler, *self.common, "-O2", "-fno-builtin", *build.object_flags, "-c",
                            os.path.join(SIMULATOR, part + ".cpp"), "-o", objects[-1]], check=True)
        return objects

    def command(self, build, test, folder, objects):
        return [*build.compiler, "-x", "c++", "-O1", *build.flags, "-DTEST_STOP", "-I" + folder, *self.common, test,
                "-x", "none", *objects, "-o", os.path.join(folder, "test")]


def read_list(kind):
    """The faults of a list."""
    faults = []
    path = os.path.join(HERE, kind.name + ".txt")
    for number, line in enumerate(open(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in (line.rstrip("\n") + " ").split(" :: ")]
        if len(fields) not in (4, 5):
            sys.exit(f"{path}:{number}: {len(fields)} fields, not 4 or 5")
        faults.append(Fault(kind, *fields[:4], fields[4] if len(fields) == 5 else ""))
    return faults


def time_used(process):
    """Processor time of a process so far, in ticks; 0 where the system has no /proc."""
    try:
        fields = read(f"/proc/{process.pid}/stat").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    except OSError:
        return 0


def stop_if_it_waits(process, ended, seconds):
    """Threads that wait for each other wait for ever: two minutes without work, where that can be seen."""
    begun, used, since = time.monotonic(), -1, time.monotonic()
    while not ended.wait(5):
        now, before, used = time.monotonic(), used, time_used(process)
        if used != before:
            since = now
        if now - begun > seconds or (used and now - since > 120):
            process.kill()


class Workshop:
    """Builds the tests of a list's sections with some text for its source, and runs them."""

    def __init__(self, kind, folder, hurried=False):
        self.hurried = hurried  # a sample: it is not worth building every test to know what has changed
        self.kind, self.folder, self.text = kind, folder, read(os.path.join(ROOT, kind.path))
        self.functions = functions(self.text)
        self.lock, self.once = threading.Lock(), {}
        versions = [subprocess.run([*compiler, "--version"], stdout=subprocess.PIPE).stdout
                    for compiler in (CC, CXX)] if kind.builds else []
        self.outside = hashlib.sha256(b"".join(versions) + repr(type(kind).builds).encode())
        self.inputs = self.outside.copy()
        self.inputs.update(re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", " ", self.text, flags=re.S)).encode())
        for path in kind.inputs():
            self.inputs.update(read(path).encode())

    def place(self, fault):
        """(where the old text stands, where it ends, '') or (-1, -1, why it cannot be told)."""
        begin = self.text.find(self.kind.marker(fault.section))
        if begin < 0:
            return -1, -1, "there is no such section"
        end = self.text.find("@section ", begin + 12)
        places = [(0, len(self.text)), (begin, end if end >= 0 else len(self.text))]
        places += self.functions.get(fault.name.split(":")[0], [])
        pattern = re.compile(r"(?:\s|\\\n)+".join(map(re.escape, fault.old.split())))
        for first, last in places:
            found = list(itertools.islice(pattern.finditer(self.text, first, last), 2))
            if len(found) == 1:
                return *found[0].span(), ""
        count = len(pattern.findall(self.text))
        return -1, -1, f"the old text stands {count} times in {self.kind.path}: {fault.old}"

    def with_fault(self, fault):
        """The text with the fault in it."""
        at, end, _ = self.place(fault)
        return self.text[:at] + fault.new + self.text[end:]

    def together(self, faults):
        """(a text with all faults that lie in functions, switched on by their number; {fault: number}).

        The function is there once for each of its faults and once as it was, under other names; in its place stands a
        switch."""
        spans = sorted((first, last, name) for name, places in self.functions.items() for first, last in places)
        inside, numbers = collections.defaultdict(list), {}
        for fault in faults:
            at, stop, _ = self.place(fault)
            for first, last, name in spans:
                if not first <= at <= stop <= last:
                    continue
                head = heading(self.text[first:last])
                if head and not LANES.match(head.name) and at >= first + head.body:
                    numbers[fault] = len(numbers) + 1
                    inside[first, last].append((numbers[fault], at - first, stop - first, fault))
                    break
        text = self.text
        for (first, last), here in sorted(inside.items(), reverse=True):
            old = text[first:last]
            head = heading(old)
            variants = [renamed(old, head, 0)]
            for number, at, stop, fault in here:
                variants.append(renamed(old[:at] + fault.new + old[stop:], head, number))
            if old.count(head.name + "(") > 1:
                variants.insert(0, re.sub(r"\s*$", ";", old[:head.body - 1].replace("\n", " ")))
            give = "" if head.void else "return "
            cases = [f"case {number}: {give}{called(head, number)}; break;" for number, _, _, _ in here]
            cases.append(f"default: {give}{called(head, 0)}; break;")
            start = old[:head.body].replace("\n", " ")
            variants.append(f"{start} switch (memopt_mutant) {{ {' '.join(cases)} }} }}")
            text = text[:first] + "\n".join(variants) + text[last:]
        return SWITCH + text, numbers

    def only_once(self, key, make):
        """What make() returned when this key was first asked for."""
        with self.lock:
            lock, made = self.once.setdefault(key, (threading.Lock(), []))
        with lock:
            if not made:
                made.append(make())
            return made[0]

    def program(self, build, test, text, folder):
        """('', the program) or (why it does not compile, '')."""
        objects = self.only_once(build.name, lambda: self.kind.objects(build, self.folder))
        with open(os.path.join(folder, self.kind.path), "w") as copy:
            copy.write(text)
        compiled = subprocess.run(self.kind.command(build, test, folder, objects), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace")
        if compiled.returncode:
            lines = [line for line in compiled.stdout.splitlines() if "error:" in line or "In function" in line]
            return "compiler: " + " ".join(lines), ""
        return "", os.path.join(folder, "test")

    def outcome(self, build, program, seconds, number=0):
        """('' when a program passes, else why not; the processor time that it took)."""
        limits = f"ulimit -c 0; ulimit -t {int(seconds)}; " + (
            f"ulimit -d {MEMORY}; " if self.kind.combines and build.name == "plain" else "")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            with open(os.path.join(folder, "said"), "w+", errors="replace") as said:
                ran = subprocess.Popen(["sh", "-c", limits + 'exec "$@"', "sh", *build.runner, program], cwd=ROOT,
                                       stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                                       env={**os.environ, "TMPDIR": folder, "MEMOPT_MUTANT": str(number)})
                ended = threading.Event()
                stopper = threading.Thread(target=stop_if_it_waits, args=(ran, ended, 30 * seconds))
                stopper.start()
                _, status, used = os.wait4(ran.pid, 0)
                ended.set()
                stopper.join()
                ran.returncode = os.waitstatus_to_exitcode(status)
                said.seek(0)
                output = said.read(1 << 20)
        why = {-9: "too slow", -24: "too slow", 137: "too slow", 152: "too slow"}.get(ran.returncode)
        return (why or why_of(output, f"status {ran.returncode}") if ran.returncode else ""), used.ru_utime + used.ru_stime

    def unbroken(self, build, test):
        """('' or why the test fails without a fault, seconds)."""
        def make():
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                why, program = self.program(build, test, self.text, folder)
                return (why, 0) if why else self.outcome(build, program, 900)
        return self.only_once((build.name, test), make)

    def all_in_one(self, build, test, section):
        """(the program with all faults of a section that are to be examined, {fault: number}, seconds without any)."""
        def make():
            folder, faults, why = tempfile.mkdtemp(dir=self.folder), self.wanted[section], "begun"
            while why:
                text, numbers = self.together(faults)
                why, program = self.program(build, test, text, folder)
                bad = {int(number) for number in re.findall(r"__(\d+)\b", why)} - {0}
                if why and not bad:
                    return "", {}, 0
                faults = [fault for fault in faults if numbers.get(fault) not in bad]
            why, seconds = self.outcome(build, program, 900)
            return (program, numbers, seconds) if not why else ("", {}, 0)
        return self.only_once((build.name, test, section), make)

    def examine_by(self, build, test, fault, alone=False):
        """(who caught it or '', how)."""
        program, numbers, seconds = "", {}, 0
        if self.kind.combines and not alone:
            program, numbers, seconds = self.all_in_one(build, test, fault.section)
        if fault in numbers:
            why = self.outcome(build, program, LEAST + SLACK * seconds, numbers[fault])[0]
            return (build.name, why) if why else ("", "")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            why, program = self.program(build, test, self.with_fault(fault), folder)
            if why:
                return "NO FAULT", why
            fine, seconds = self.unbroken(build, test)
            if fine:
                return "NO FAULT", f"{os.path.basename(test)}, {build.name}, fails without it: {fine}"
            why = self.outcome(build, program, LEAST + SLACK * seconds)[0]
        return (build.name, why) if why else ("", "")

    def made(self, test):
        """A hash of what the compiler makes of a test and the parts of the source that it reaches, with and without
        debugging: it stays the same when another section changes."""
        def make():
            key = self.inputs.copy()
            key.update(read(test).encode())
            if not self.kind.combines:
                return key.hexdigest()
            kept = os.path.join(KEPT, "program-" + key.hexdigest())
            if self.hurried and not os.path.exists(kept):
                return key.hexdigest()
            if not os.path.exists(kept):
                code = hashlib.sha256()
                for build in self.kind.builds[0], DEBUG:
                    with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                        why, program = self.program(build, test, self.text, folder)
                        if why:
                            return key.hexdigest()
                        with open(program, "rb") as file:
                            code.update(file.read())
                with open(kept + ".new", "w") as file:
                    file.write(code.hexdigest())
                os.replace(kept + ".new", kept)
            return read(kept)
        return self.only_once(("made", test), make)

    def kept(self, fault):
        """The file that keeps what is found out about a fault."""
        key = self.outside.copy()
        key.update(repr(fault[1:5]).encode())
        for test in self.kind.tests(fault.section):
            key.update(self.made(test).encode())
        return os.path.join(KEPT, key.hexdigest())

    def ask(self, faults, pool):
        """What is to be examined, as a list: the rest is known."""
        self.wanted = collections.defaultdict(list)
        list(pool.map(self.made, sorted({test for fault in faults for test in self.kind.tests(fault.section)})))
        for fault in faults:
            if not os.path.exists(self.kept(fault)):
                self.wanted[fault.section].append(fault)
        return [fault for section in self.wanted.values() for fault in section]

    def examine(self, fault):
        """(who caught a fault, how): SURVIVED = nobody, NO FAULT = there is nothing to be caught."""
        kept = self.kept(fault)
        if os.path.exists(kept):
            return tuple(read(kept).split("\t", 1))
        found, said = "SURVIVED", ""
        for build in self.kind.builds:
            for test in self.kind.tests(fault.section):
                if found == "SURVIVED" and self.kind.runs(build, fault.section):
                    by, why = self.examine_by(build, test, fault)
                    found, said = by or found, why or said
        if found == "SURVIVED" and self.kind.combines:  # what is not initialized may be another thing alone
            by, said = self.examine_by(self.kind.builds[0], self.kind.tests(fault.section)[0], fault, alone=True)
            found = by or found
        if found != "NO FAULT" and not (found == "SURVIVED" and len(self.kind.builds) < 3):
            with open(f"{kept}.{os.getpid()}.{threading.get_ident()}", "w") as file:
                file.write(f"{found}\t{said}")
            os.replace(file.name, kept)
        return found, said


def why_of(output, otherwise):
    """The line of a failed program that tells most."""
    for pattern in TELLING:
        for line in output.splitlines():
            if re.search(pattern, line):
                return line.strip()[:150]
    return otherwise


def sampled(faults, count):
    """Four neighbours of one section at a time, whose tests are then built once."""
    if not 0 < count < len(faults):
        return faults
    fours = []
    for _, section in itertools.groupby(faults, lambda fault: fault.section):
        section = list(section)
        fours += [section[i:i + 4] for i in range(0, len(section) // 4 * 4, 4)]
    return [fault for i in range(count // 4) for fault in fours[i * len(fours) * 4 // count]]


def table(kind, results, quiet):
    """Prints a list's sections, what survived and the total; returns whether enough were caught."""
    rows = collections.OrderedDict()
    for fault, (by, _) in results:
        row = rows.setdefault(fault.section, [0, 0])
        row[0] += 1
        row[1] += by not in ("SURVIVED", "NO FAULT")
    print(f"\n{kind.path:<16}{'faults':>8}{'caught':>8}{'same':>8}")
    for section, (count, caught) in rows.items():
        print(f"{section:<16}{count:>8}{caught:>8}{quiet[section]:>8}")
    for fault, (by, why) in results:
        if by in ("SURVIVED", "NO FAULT"):
            print(f"{by}: {fault.section}: {fault.name}: {fault.old} -> {fault.new} {why}")
    caught, count = (sum(row[i] for row in rows.values()) for i in (1, 0))
    more = sum(quiet.values())
    print(f"caught {caught} of {count} in the {kind.name}" + (f"; {more} more change nothing that can be seen" if more else ""))
    return caught >= kind.enough * count and not any(by == "NO FAULT" for _, (by, _) in results)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--same", action="store_true")
    parser.add_argument("sections", nargs="*")
    options = parser.parse_args()
    os.makedirs(KEPT, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    kinds, good, jobs = [Header(), Kernels()], True, []
    unknown = set(options.sections) - {"header", "kernels"}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as pool:
        for kind in kinds:
            if options.plain:
                kind.builds = kind.builds[:1]
            faults = read_list(kind)
            unknown -= {kind.prefix + fault.section for fault in faults}
            wanted = [fault for fault in faults
                      if not options.sections or {kind.name, kind.prefix + fault.section} & set(options.sections)]
            workshop = Workshop(kind, folder, options.sample > 0)
            for fault in wanted:
                at, _, why = workshop.place(fault)
                if at < 0:
                    print(f"{kind.name}.txt: {fault.section}: {fault.name}: {why}")
                    good = False
            quiet = collections.Counter(fault.section for fault in wanted if fault.reason)
            faults = sampled([fault for fault in wanted if bool(fault.reason) == options.same], options.sample)
            if faults:
                jobs.append((kind, workshop, faults, collections.Counter() if options.same else quiet))
        if unknown:
            sys.exit(f"no such section: {' '.join(sorted(unknown))}")
        if not good or options.check:
            print("every fault has its place" if good else "so the list has to be mended first")
            return not good
        new, done, started = {fault for _, workshop, faults, _ in jobs for fault in workshop.ask(faults, pool)}, 0, time.time()
        asked = [(kind, fault, pool.submit(workshop.examine, fault)) for kind, workshop, faults, _ in jobs
                 for fault in faults]
        print(f"{len(asked)} faults, of which {len(asked) - len(new)} are known from an earlier run", flush=True)
        results = collections.defaultdict(list)
        for kind, fault, answer in asked:
            by, why = answer.result()
            results[kind].append((fault, (by, why)))
            if fault in new:
                done += 1
                left = (time.time() - started) / done * (len(new) - done)
                print(f"[{done}/{len(new)}, {left:.0f} s left] {kind.prefix}{fault.section}: {fault.name}: {by}: {why}",
                      flush=True)
    if options.same:
        caught = [fault for kind in results for fault, (by, _) in results[kind] if by != "SURVIVED"]
        for fault in caught:
            print(f"this makes a difference: {fault.section}: {fault.name}: {fault.old} -> {fault.new}")
        return bool(caught)
    for kind, _, _, quiet in jobs:
        good = table(kind, results[kind], quiet) and good
    return not good


if __name__ == "__main__":
    sys.exit(main())
