#!/usr/bin/env python3
"""check_card.py PROGRAMS - tests/card.sh and tests/card_report.py, rehearsed: with the programs of the simulator in the folder PROGRAMS,
stand-ins for what belongs to a card (ncu, compute-sanitizer, torch), without a card, without programs, and cut off."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from tally import check, finish

WORK = tempfile.TemporaryDirectory()
OURS = {"test": "test_cuda_number", "bench": "bench_cuda", "train_gpt": "example_train_gpt"}
NCU = '''#!/bin/sh
while [ "${1#--}" != "$1" ]; do case $1 in --csv) shift ;; *) shift 2 ;; esac; done
"$@" || exit 1
echo "==PROF== Disconnected"
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","first_kernel","gpu__time_duration.sum","ns","1,500,000"'
echo '"1","second_kernel","gpu__time_duration.sum","ns","250000"'
echo '"2","first_kernel","gpu__time_duration.sum","us","500"'
'''
SANITIZER = '''#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; done
"$@" && echo "========= ERROR SUMMARY: 0 errors"
'''
TORCH = '''#!/bin/sh
case "$*" in *cuda_gpt.py*) for row in "$@"; do :; done; echo "| $row | 400,000 | 5,000 | 9.000 | 3.500 |" ;; esac
'''
QUICK = '''#!/bin/sh
case $0-$* in
*bench_*attention) echo '{"name": "attention_64", "threads": 0, "n": 1, "value": 8, "unit": "ms", "limit": 2, "of_limit": 0.25}' ;;
*test_*) echo "3 passed, 0 failed, 0 skipped" ;;
esac
'''


def tool(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


def programs(*but, quick=False):
    """A folder of them, but for some; quick: they only say that all is well."""
    folder = tempfile.mkdtemp(dir=WORK.name)
    for program, there in OURS.items():
        for variant in ("mma", "wgmma"):
            name = f"{program}_{variant}"
            if quick and name not in but:
                tool(folder, name, QUICK)
            elif name not in but:
                os.symlink(os.path.abspath(os.path.join(sys.argv[1], there)), os.path.join(folder, name))
    return folder


def rehearse(folder, **environment):
    """Status, the folder that was filled, and each command's verdict."""
    out = tempfile.mkdtemp(dir=WORK.name)
    begin = time.time()
    done = subprocess.run(["sh", "tests/card.sh", "--rehearse", out, folder], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": os.path.join(WORK.name, "bin/python"), **environment})
    print(f"{' '.join(f'{k}={v}' for k, v in environment.items() if k != 'PATH') or 'all'}: {time.time() - begin:.0f} s")
    check(not done.stderr and len(os.listdir(out)) == 8, f"{environment}: {done.stderr} {os.listdir(out)}")
    return done.returncode, out, dict(re.match(r"= ([^:]*): (.*)", line).groups() for line in done.stdout.splitlines())


def page(folder):
    done = subprocess.run([sys.executable, "tests/card_report.py", folder], capture_output=True, text=True)
    check(done.returncode == 0 and not done.stderr, f"the page: {done.stderr}")
    return done.stdout


tool(os.path.join(WORK.name, "bin"), "ncu", NCU)
tool(os.path.join(WORK.name, "bin"), "compute-sanitizer", SANITIZER)
tool(os.path.join(WORK.name, "bin"), "python", TORCH)
TOOLS = {"PATH": os.path.join(WORK.name, "bin") + ":" + os.environ["PATH"]}

# ---- all of it ----
status, out, said = rehearse(programs(), **TOOLS)
check(status == 0 and len(said) == 16 and all(verdict.startswith("ok, ") for verdict in said.values()), f"all: {status} {said}")
text = page(out)
for want in ["| machine: machine | ok", r"tests of all sections, mma: [1-9]\d* passed, 0 failed, 0 skipped\.",
             r"\| attention_128_causal_back \|( [\d.,e+]+ \|){5}", r"\| adamw_8bit_bf16 \| [\d.,e-]+ GB/s \|", r"\| gradients_measure \|",
             r"\| layer_norm_back_f32_4096 \|", r"\| cross_entropy_bf16_50304 \|",
             r"\| memopt, split weights, wgmma \|( [\d.,]+ \|){5}", r"\| memopt, bf16, 8-bit Adam, checkpoints, mma \|( [\d.,]+ \|){5}",
             r"\| torch, fp32 masters, autocast, compiled \| 400,000 \|  \|  \| 5,000 \| 3.500 \|",
             r"\| `first_kernel` \| 2 \| 2.000 \| 0.889 \|", r"\| `second_kernel` \| 1 \| 0.250 \| 0.111 \|", r"\| all \| 3 \| 2.250 \| 1 \|",
             "memcheck of attention, wgmma: ERROR SUMMARY: 0 errors"]:
    check(re.search(want if "\\" in want else re.escape(want), text), f"not on the page: {want}")
check(not re.search(r"FAILED|cut off|SKIP", text), text)
with open(os.path.join(out, "4-train.txt"), encoding="utf-8") as file:
    runs = [json.loads(line) for line in file if line.startswith("{")]
check([len(run["seconds_of_steps"]) for run in runs] == [3] * 5 and all("split" in run["switches"] for run in runs[::2]), "the runs")
check(runs[4]["losses"] == runs[2]["losses"] and runs[4]["nodes_of_the_graph"], "a step as a graph")

# ---- what is missing is told, and is no failure; what fails is one ----
status, out, said = rehearse(programs(), **TOOLS, SIMULATOR_DEVICES="0")
skipped = [verdict for name, verdict in said.items() if name != "machine"]
check(status == 0 and len(skipped) == 14 and all(verdict.startswith("SKIP: no CUDA device here") for verdict in skipped), f"no card: {said}")
check(page(out).count("SKIP: no CUDA device here") == 15, "no card: the page")
status, out, said = rehearse(programs("bench_wgmma", "train_gpt_mma", "train_gpt_wgmma", quick=True))
check(status == 0 and "SKIP: no " in said["attention, wgmma"] and said["attention, wgmma"].endswith("/bench_wgmma: make card")
      and said["profile"].startswith("SKIP: no ") and said["attention, mma"].startswith("ok"), f"missing: {said}")
check("| attention_64 |" in page(out), "one variant alone: the page")
status, out, said = rehearse(programs(quick=True), **TOOLS, SECONDS_OF_ALL="0")
check(status == 0 and all("SKIP: no time left for it" == verdict for verdict in said.values()), f"no time: {said}")
broken = programs("test_wgmma", "train_gpt_mma", "bench_mma", quick=True)
tool(broken, "test_wgmma", "#!/bin/sh\necho 'FAILED attention'; echo 'x.cu:7: a == b'; echo '3 passed, 1 failed, 0 skipped'; exit 1\n")
tool(broken, "train_gpt_mma", "#!/bin/sh\necho 'no memory'; exit 3\n")
tool(broken, "bench_mma", "#!/bin/sh\ncase $* in *attention*) echo '{\"name\": \"attention_64\", \"va'; kill -9 $$ ;; esac\n")
status, out, said = rehearse(broken, **TOOLS)
text = page(out)
check(status == 1 and said["tests of attention, wgmma"].startswith("FAILED with status 1") and "stopped" in said["attention, mma"]
      and said["split weights, mma"].startswith("FAILED with status 3"), f"what fails: {said}")
check("    FAILED attention\n    x.cu:7: a == b\n" in text and "wgmma: 3 passed, 1 failed, 0 skipped." in text, f"what fails: {text}")

# ---- the page of files that were cut off, and their figures ----
cut = tempfile.mkdtemp(dir=WORK.name)
run = {"seconds_of_steps": [9.0, 0.25, 0.75, 0.5], "tokens_per_second": 16000.4, "measured_peak_bytes": 1234567890, "losses": [4, 3.25]}
row = '{"name": "attention_64", "threads": 0, "n": 1, "value": %s, "unit": "ms", "limit": 2, "of_limit": %s}'
files = {"1-tests": "$ tests of all sections, mma: x\n",
         "2-attention": f"$ attention, mma: x\n{row % (8, 0.25)}\n= attention, mma: ok, 1 s\n$ attention, wgmma: x\n{row % (5, 0.4)}\n{row[:20]}",
         "4-train": f"$ split weights, mma: x\n{json.dumps(run)}\n= split weights, mma: ok, 2 s\n", "6-profile": "$ profile: x\n\"ID\",\"Kern"}
for name, text in files.items():
    with open(os.path.join(cut, name + ".txt"), "w", encoding="utf-8") as file:
        file.write(text)
text = page(cut)
for want in ["| tests: tests of all sections, mma | cut off |", "mma: not all ran.", "| attention_64 | 8 | 5 | 1.60 | 0.25 | 0.40 |",
             "| memopt, split weights, mma | 16,000 | 500.00 | 9000.00 | 1,235 | 3.250 |"]:
    check(want in text, f"not on the page: {want}\n{text}")
done = subprocess.run([sys.executable, "tests/card_report.py"], capture_output=True, text=True)
check(done.returncode == 1 and "card_report.py DIR" in done.stderr, "no folder")
finish("card.sh", "as rehearsed")
