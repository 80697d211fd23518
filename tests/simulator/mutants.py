#!/usr/bin/env python3
"""mutants.py - break memopt_cuda.cu on purpose, a line at a time, and see whether the tests on the simulator notice.

    mutants.py [--sample N] [LIST] [SECTION...]

LIST (else mutants.txt, beside this file) has lines `section :: name :: old text :: new text`; # begins a comment.
--sample N takes N of them, spread evenly over the list: always the same ones, for runs that have minutes only.

Each fault is put into a copy of memopt_cuda.cu, where the old text must stand exactly once (in the whole file, or else
in its section), and tests/test_cuda_SECTION.cu is built with it and run: plainly, then, if nobody noticed, with ASan
and UBSan, then with TSan. A test that fails, crashes or hangs has noticed, if the same build passes without the fault.
Exit status 1 when less than 95 % of the faults are caught. From the environment: CXX, JOBS, and CLANGXX for TSan.
"""
import argparse, os, re, shlex, subprocess, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TESTS = os.path.join(ROOT, "tests")
CXX = shlex.split(os.environ.get("CXX") or "c++")
CLANGXX = shlex.split(os.environ.get("CLANGXX") or "clang++")
JOBS = int(os.environ.get("JOBS") or os.cpu_count() or 2)
ENOUGH = 0.95

FLAGS = ["-std=c++17", "-w", "-ffp-contract=off", "-I" + os.path.join(HERE, "include"), "-I" + HERE, "-I" + TESTS,
         "-I" + ROOT]
BUILDS = [  # what it is called, compiler, the test's flags, the simulator's flags, how to run it, seconds it may run
    ("plain", CXX, [], [], [], 60),
    ("asan", CXX, ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"], ["-DSIMULATOR_ASAN"], [], 300),
    ("tsan", CLANGXX, ["-fsanitize=thread"], ["-DSIMULATOR_TSAN"], ["setarch", "-R"], 900),
]
# What tells most about a test that has failed, best first.
TELLING = [r"^simulator: .*:\d+: ", r"ERROR: ", r"WARNING: ", r"runtime error", r"\.cu:", r"FAILED", r"error"]


def read_list(path):
    """[(section, name, old, new)] of a list."""
    faults = []
    for number, line in enumerate(open(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in (line.rstrip("\n") + " ").split(" :: ")]
        if len(fields) != 4:
            sys.exit(f"{path}:{number}: {len(fields)} fields, not 4")
        faults.append(tuple(fields))
    return faults


def with_fault(text, section, old, new):
    """The text with the fault in it; None when the old text does not stand exactly once, in all or in its section."""
    start = text.find(f"@section cuda_{section} ")
    end = text.find("@section cuda_", start + 1)
    for first, last in (0, len(text)), (start, end if end >= 0 else len(text)):
        if first >= 0 and text.count(old, first, last) == 1:
            return text[:first] + text[first:last].replace(old, new) + text[last:]
    return None


def why_of(output, otherwise):
    """The line of a failed program that tells most."""
    for pattern in TELLING:
        for line in output.splitlines():
            if re.search(pattern, line):
                return line.strip()[:150]
    return otherwise


class Workshop:
    """Builds a section's test with some text for memopt_cuda.cu, and runs it."""

    def __init__(self, folder, text):
        self.folder, self.text = folder, text
        self.lock, self.once = threading.Lock(), {}

    def only_once(self, key, make):
        """What make() returned when this key was first asked for."""
        with self.lock:
            lock, made = self.once.setdefault(key, (threading.Lock(), []))
        with lock:
            if not made:
                made.append(make())
            return made[0]

    def simulator(self, build):
        """The simulator's objects. It is not instrumented: it tells the sanitizers of its fibers."""
        name, compiler, _, flags, _, _ = build
        objects = []
        for part in "simulator", "cublaslt_mock":
            objects.append(os.path.join(self.folder, f"{part}_{name}.o"))
            subprocess.run([*compiler, *FLAGS, "-O2", "-fno-builtin", *flags, "-c", os.path.join(HERE, part + ".cpp"),
                            "-o", objects[-1]], check=True)
        return objects

    def outcome(self, build, section, text):
        """'' when the test passes; else why not."""
        name, compiler, flags, _, runner, seconds = build
        objects = self.only_once(name, lambda: self.simulator(build))
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            program = os.path.join(folder, "test")
            with open(os.path.join(folder, "memopt_cuda.cu"), "w") as copy:
                copy.write(text)
            command = [*compiler, "-x", "c++", "-O1", *flags, "-I" + folder, *FLAGS,
                       os.path.join(TESTS, f"test_cuda_{section}.cu"), "-x", "none", *objects, "-o", program]
            as_text = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            compiled = subprocess.run(command, **as_text)
            if compiled.returncode:
                return "compiler: " + why_of(compiled.stdout, "fails")
            try:
                ran = subprocess.run([*runner, program], timeout=seconds, **as_text)
            except subprocess.TimeoutExpired:
                return "timeout"
            return why_of(ran.stdout, f"status {ran.returncode}") if ran.returncode else ""

    def unbroken(self, build, section):
        """The outcome without a fault."""
        return self.only_once((build[0], section), lambda: self.outcome(build, section, self.text))

    def examine(self, fault):
        """(who caught a fault, how): SURVIVED = nobody, NO FAULT = there is nothing to be caught."""
        section, _, old, new = fault
        text = with_fault(self.text, section, old, new)
        if text is None:
            return "NO FAULT", f"the old text stands {self.text.count(old)} times in memopt_cuda.cu"
        for build in BUILDS:
            why = self.outcome(build, section, text)
            if why.startswith("compiler: "):
                return "NO FAULT", why
            if why and self.unbroken(build, section):
                return "NO FAULT", f"{build[0]} fails without it: {self.unbroken(build, section)}"
            if why:
                return build[0], why
        return "SURVIVED", ""


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    words = options.words
    faults = read_list(words.pop(0) if words and os.path.isfile(words[0]) else os.path.join(HERE, "mutants.txt"))
    faults = [fault for fault in faults if not words or fault[0] in words]
    if 0 < options.sample < len(faults):
        faults = [faults[i * len(faults) // options.sample] for i in range(options.sample)]
    started, caught = time.time(), 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as pool:
        workshop = Workshop(folder, open(os.path.join(ROOT, "memopt_cuda.cu")).read())
        for done, (fault, (by, why)) in enumerate(zip(faults, pool.map(workshop.examine, faults)), 1):
            caught += by not in ("SURVIVED", "NO FAULT")
            left = (time.time() - started) / done * (len(faults) - done)
            print(f"[{done}/{len(faults)}, {left:.0f} s left] {fault[0]}: {fault[1]}: {by}: {why}", flush=True)
    print(f"caught {caught} of {len(faults)}")
    return caught < ENOUGH * len(faults)


if __name__ == "__main__":
    sys.exit(main())
