#!/usr/bin/env python3
"""refusals.py - does a test read the text of every refusal? A copy of memopt.h notes, for every place that can refuse,
whether it has refused, and whether the error that came of it was made into a line of text; all tests run with it.

    refusals.py [--list] [test_arena ...]

With names only these tests are run: quick, while tests are written. --list prints every place with what it came to. Without it, the places whose text nobody has read, but for those that
refusals.txt, beside this file, says cannot be reached: lines `function :: a part of the place's lines :: reason`.
Exit status 0: there are none. CC and CFLAGS are used as make does; needs gcc or clang."""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
NAME = r"memopt_i_(?!fail_place\b|report_failures\b|search_refuse\b|advise_failed\b)\w*(?:must|refuse|fail)\w*"
CALL = re.compile(r"(?<![\w>.])(" + NAME + r")\(")
DEFINITION = re.compile(r"^(?:static|MEMOPT_API)\b[^;]*\b(\w+)\([^;]*$")


def instrument(text):
    """The copy, and the places: line number to (function, line)."""
    out, places, function, inside = [], {}, "", False
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        start = DEFINITION.match(line)
        if start:
            function = start[1]
            inside = re.fullmatch(NAME, function) is not None  # a helper: its callers are the places
        if number > len(lines) // 10 and not inside and not line.startswith(("#", "static", "MEMOPT_API", " *", "/*")):
            new = CALL.sub(lambda m, n=number: f"(memopt_i_place = {n}, {m[1]})(", line)
            if new != line:
                places[number] = (function, line.strip())
                line = new
        out.append(line)
    copy = "\n".join(out)
    for old, new in [
        ("} memopt_error;", "    int memopt_i_place;\n} memopt_error;"),
        ("static memopt_error memopt_i_error(",
         "static int memopt_i_place;\nstatic unsigned char memopt_i_places[%d];\n"
         "static __attribute__((destructor)) void memopt_i_places_tell(void) {\n"
         "    FILE *to = fopen(getenv(\"MEMOPT_REFUSALS\"), \"wb\");\n"
         "    if (to) { fwrite(memopt_i_places, 1, sizeof memopt_i_places, to); fclose(to); }\n}\n\n"
         "static memopt_error memopt_i_error(" % (len(lines) + 1)),
        ("    e.index = e.action = e.segment = SIZE_MAX;\n",
         "    e.index = e.action = e.segment = SIZE_MAX;\n    e.memopt_i_place = memopt_i_place;\n"
         "    if (status) memopt_i_places[memopt_i_place] |= 1;\n"),
        # A simulation keeps the reason, and whoever runs it makes the error: that it has refused must do.
        ("    w->reason = reason;\n", "    w->reason = reason;\n    memopt_i_places[memopt_i_place] |= 2;\n"),
        ("static void memopt_i_put_error(memopt_i_writer *o, const memopt_error *e) {\n",
         "static void memopt_i_put_error(memopt_i_writer *o, const memopt_error *e) {\n"
         "    if (e->status) memopt_i_places[e->memopt_i_place] |= 2;\n"),
    ]:
        if copy.count(old) != 1:
            sys.exit(f"refusals.py: this stands {copy.count(old)} times in memopt.h: {old}")
        copy = copy.replace(old, new)
    return copy, places


FLAGS = {test: ["-DMEMOPT_PTHREADS", "-pthread"] for test in ("test_comm", "test_onebit", "test_save", "test_shard")} # what refuses otherwise where there are threads


def run(copy, test):
    """What a test came to, a byte a line of memopt.h: 1 it refused, 2 its text was made."""
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "memopt.h"), "w", encoding="utf-8") as header:
            header.write(copy)
        program, told = os.path.join(work, "test"), os.path.join(work, "told")
        compile_it = [*os.environ.get("CC", "cc").split(), "-O1", "-w", "-DMEMOPT_STATIC", "-I", work, "-I", ROOT,
                      *os.environ.get("CFLAGS", "").split(), *FLAGS.get(test, []), os.path.join(HERE, test + ".c"), "-o", program, "-lm"]
        if subprocess.run(compile_it, check=False).returncode:
            sys.exit("refusals.py: the copy does not compile")
        result = subprocess.run([program], cwd=ROOT, env={**os.environ, "MEMOPT_REFUSALS": told}, check=False,
                                capture_output=True, text=True)
        if result.returncode:
            sys.exit(result.stdout[-2000:] + "refusals.py: the tests fail with the copy")
        with open(told, "rb") as file:
            return file.read()


def main():
    with open(os.path.join(ROOT, "memopt.h"), encoding="utf-8") as file:
        copy, places = instrument(file.read())
    with open(os.path.join(HERE, "refusals.txt"), encoding="utf-8") as file:
        known = [line.strip().split(" :: ") for line in file if line.strip() and not line.startswith("#")]
    told = bytes(len(copy))
    for test in [name for name in sys.argv[1:] if name != "--list"] or ["test_combined", *FLAGS]:
        told = bytes(a | b for a, b in zip(told, run(copy, test)))
    missing, read, excused = [], 0, set()
    for number, (function, line) in places.items():
        if "--list" in sys.argv:
            print(f"{number:6} {('nobody', 'refused', 'read', 'read')[told[number]]:8} {function}: {line}")
        if told[number] & 2:
            read += 1
            continue
        excuse = [i for i, k in enumerate(known) if k[0] == function and k[1] in line]
        excused.update(excuse)
        if not excuse:
            missing.append(f"memopt.h:{number}: {function}: {line}")
    for i, k in enumerate(known):
        if i not in excused:
            missing.append(f"refusals.txt: read by now, or gone: {' :: '.join(k)}")
    print(*missing, sep="\n")
    print(f"{len(places)} places refuse, the texts of {read} are read, {len(excused)} cannot be reached")
    return 1 if missing else 0


sys.exit(main())
