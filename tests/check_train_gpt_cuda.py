#!/usr/bin/env python3
"""check_train_gpt_cuda.py CPU CARD - examples/train_gpt.cu, run by CARD (on the simulator, or on a card), beside
examples/train_gpt.c, run by CPU: the losses of both within a bound, bytes as planned, and the same bits whatever is kept."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from tally import check, finish

CPU, CARD = (os.path.abspath(program) for program in sys.argv[1:3])
FOLDER = tempfile.TemporaryDirectory()
TEXT = os.path.join(FOLDER.name, "text")
with open(TEXT, "w", encoding="ascii") as file:
    file.write("".join(f"{i} times {i * 7 % 11} is {i * (i * 7 % 11)}, and a quick brown fox jumps over it.\n" for i in range(99)))
TINY = "--layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 4 --attention lean --quiet --data".split() + [TEXT]
BF16 = TINY + "--weights bf16 --gradients f32".split()

# Switches, and the bound of |loss - the CPU's loss| of any step. A loss of about 5.5 in fp32: four of its own roundings
# (2^-22 of it each). Signs and 8-bit codes turn on a rounding, and move a weight by a step. In 16 bits scores, logits and
# their gradients are rounded on the card and not on the CPU: 2^-9 of a logit, of which a row has 256 with any sign.
FP32, TURNS, BF16_BOUND = 6e-6, 1e-4, 2e-3
BESIDE_CPU = [
    ("", FP32),
    ("--keep overhead:33 --head chunk:24 --mlp chunk:16", FP32),
    ("--fuse-step --keep every:1", FP32),
    ("--accumulate 3 --clip 0.5 --warmup 2 --schedule cosine", FP32),
    ("--optimizer lion8 --dropout 0.1 --seed 7", TURNS),
    ("--optimizer adamw8 --accumulate 2 --validate 4", TURNS),
    ("--optimizer lamb", FP32),
    ("--optimizer adafactor --scale-lr 4", FP32),
    ("--optimizer muon --fuse-step", TURNS),
    ("--optimizer muon8 --weights bf16 --clip 1", BF16_BOUND),
    ("--weights bf16", BF16_BOUND),
    ("--weights split --optimizer adamw16", BF16_BOUND),
]
# the same bits: the first of a row and all others
SAME_BITS = [
    (TINY, ["", "--keep every:1", "--keep overhead:33", "--keep budget:{less}",
            "--fuse-step --keep overhead:50"]),
    (TINY + ["--optimizer", "muon"], ["", "--fuse-step --keep overhead:33"]),
    (BF16, ["", "--keep every:1", "--fuse-step --keep overhead:33"]),
]
# With --graph, and without, and with another schedule of blocks: the same losses and weights. A step that is captured
# goes by what lies on the card: rates, numbers, noise, the norm.
GRAPHS = [
    "--accumulate 3 --clip 0.5 --warmup 2 --schedule cosine",
    "--dropout 0.1 --accumulate 2 --validate 2 --keep overhead:33",
    "--fuse-step --keep every:1 --schedule linear",
    "--optimizer lion8 --weights split --clip 1 --dropout 0.2",
    "--optimizer adafactor --weights bf16 --head chunk:24 --mlp chunk:16",
    "--optimizer lamb --validate 1",
    "--optimizer muon --fuse-step --warmup 3",
    "--optimizer muon8 --weights bf16 --clip 1",
    "--optimizer sgd --steps 2",
]
REFUSED = {
    "--model vit --context 25": "--model vit is the CPU's: take train_gpt, or leave it out.",
    "--ranks 2 --stage 0": "--stage 0 cuts nothing, which the cards of several ranks do not do: take 1, 2 or 3.",
    "--ranks 2 --optimizer muon": "--optimizer: lamb, lars, adafactor and muon measure whole tensors, which a card does "
                                  "where no other has a part of them: take adamw, --ranks 1 or --pipeline 2.",
    "--ranks 4 --pipeline 2 --stage 0": "--stage 0 cuts nothing, which the cards of several ranks do not do: take 1.",
    "--ranks 2 --pipeline 2 --stage 2": "--stage 2 brings and cuts layers for one unit after the other, and a --pipeline has several under way: "
                                        "take --stage 1 or 0.",
    "--ranks 2 --pipeline 2 --graph": "--graph is one card's alone: ranks compare their calls of NCCL, and watch a deadline, on the host within a "
                                      "step; leave --graph or --ranks out.",
    "--ranks 2 --sequence 2 --context 31": "--parts: where a model is cut by width or length, a card takes batches of a multiple of 16 tokens, and "
                                           "--batch 2 of --context 31 has 62: take another --batch.",
    "--ranks 2 --sequence 2 --parts 64 --width 20 --heads 2": "--parts 64: on a card one of them takes a multiple of 16 numbers of --width 20, and has 20: "
                                                    "take fewer, or a larger --batch.",
    "--ranks 2 --replicas 2": "--replicas is the CPU's: take train_gpt, or leave it out.",
    "--ranks 2 --graph": "--graph is one card's alone: ranks compare their calls of NCCL, and watch a deadline, on the host "
                         "within a step; leave --graph or --ranks out.",
    "--rank 1": "--rank is of a process, and --id-file says where they meet: give that as well, or leave --rank out.",
    "--ranks 2 --rank 2 --id-file x": "--id-file: rank 2 of --ranks 2; they count from 0, and --ranks says how many there are.",
    "--stage 2": "--stage is one of --ranks: give that as well, or leave it out.",
    "--offload states": "--offload is the CPU's: take train_gpt, or leave it out.",
    "--ends": "--ends are those of --ladder: give that as well, or leave --ends out.",
    "--ladder --ranks 2": "--ladder looks at one process: leave --ranks out, or --ladder.",
    "--ladder --keep every:1": "--ladder chooses --keep for every rung itself: leave --keep out.",
    "--ladder --threads 2": "--threads is the CPU's: take train_gpt, or leave it out.",
    "--keep conventional": "--keep conventional is the CPU's: take train_gpt, or --keep arena.",
    "--attention full": "--attention full is the CPU's: a card never holds the matrix; leave it out, or take lean.",
    "--gradients f16": "--gradients: on a card they are f32, or as the --weights; leave it out.",
    "--fuse-step --optimizer lamb": "--fuse-step cannot measure whole tensors on a card, as lamb, lars and adafactor do: "
                                    "leave it out, or take adamw.",
    "--width 30 --heads 4": "--width 30 does not divide into --heads 4: take 28, or another number of heads.",
    "--steps 0": "--steps 0: give a whole number from 1 to 1000000000.",
    "--fuse-step --skip-outliers 6": "--fuse-step has changed weights before the norm for --skip-outliers is known: leave out one.",
    "--skip-outliers 0": "--skip-outliers 0: give standard deviations from 0.001 to 1000, such as 5.",
    "--fuse-step --clip 1": "--fuse-step has changed weights before the norm for --clip is known: leave out one.",
    "--keep budget:1k": "A budget of 0.0 MB is too small: the least is 34.3 MB with these switches; "
                        "--... and --weights bf16 need less.", # ...: any text
    "--data /none": "/none: No such file or directory; give --data a file that can be read.",
}


def run(program, switches, **environment):
    out = os.path.join(FOLDER.name, "out.json")
    done = subprocess.run([program, *switches, "--json", out], capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        check(False, f"{program} {' '.join(switches)}: {done.returncode}: {done.stderr}")
        return None
    check("simulator:" not in done.stderr, f"{program} {' '.join(switches)}: {done.stderr}")
    with open(out, encoding="utf-8") as f:
        return json.load(f)


def planned(switches):
    """Bytes are told without training, and without a device; by tag they are all."""
    told = run(CARD, switches + ["--dry-run"])
    check(told and sum(told["bytes_at_peak"].values()) == told["predicted_peak_bytes"], f"{switches}: bytes by tag")
    return told and told["predicted_peak_bytes"]


def trained(switches, **environment):
    told = run(CARD, switches, **environment)
    if told:
        check(told["measured_peak_bytes"] == told["predicted_peak_bytes"] == planned(switches), f"{switches}: bytes of the device")
        timed(told, switches)
    return told


def timed(told, switches):
    """The speed is that of the steps after the first, if there are any."""
    seconds = told["seconds_of_steps"]
    mean = sum(seconds[1:] or seconds) / len(seconds[1:] or seconds)
    check(len(seconds) == told["steps"] and min(seconds) > 0 and abs(mean / told["seconds_per_step"] - 1) < 1e-5
          and abs(told["tokens_per_step"] / mean / told["tokens_per_second"] - 1) < 1e-5, f"{switches}: seconds of steps")


def farthest(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) if a else 0


for text, bound in BESIDE_CPU:
    card, cpu = trained(TINY + text.split()), run(CPU, TINY + text.split())
    if not card or not cpu:
        continue
    far = max(farthest(card["losses"], cpu["losses"]), farthest(card["held_back_losses"], cpu["held_back_losses"]))
    print(f"{text or 'no switch':60} at most {far:.1e} from the CPU, bound {bound:.0e}")
    check(far <= bound, f"{text}: {far} from the CPU's losses")
    check("lamb" in text or card["losses"][-1] < card["losses"][0], f"{text}: the loss does not fall")
    check(("--validate" in text) == (len(card["held_back_losses"]) > 0), f"{text}: held back")

for base, rows in SAME_BITS:
    first = None
    for text in rows:
        less = planned(base + "--keep overhead:33".split())
        told = trained(base + text.format(less=less).split(), SIMULATOR_ORDERS="1")
        first = first or told
        if not told:
            continue
        check(told["losses"] == first["losses"] and told["weights_hash"] == first["weights_hash"], f"{text}: other bits")
        check(told is first or told["predicted_peak_bytes"] < first["predicted_peak_bytes"], f"{text}: no less memory")

for text in GRAPHS:
    plain, graph = trained(TINY + text.split()), trained(TINY + ["--graph"] + text.split())
    if not plain or not graph:
        continue
    check(graph["losses"] == plain["losses"] and graph["weights_hash"] == plain["weights_hash"]
          and graph["held_back_losses"] == plain["held_back_losses"], f"{text}: --graph has other bits")
    check(plain["nodes_of_the_graph"] is None and graph["nodes_of_the_graph"] > 50, f"{text}: {graph['nodes_of_the_graph']} nodes")

# A run that was stopped has the bits of one that never was; and a save is the same file on the card and on the CPU.
for text in ["", "--optimizer adamw8 --accumulate 2 --dropout 0.1", "--graph --clip 0.5 --dropout 0.1 --warmup 2", "--optimizer muon8",
             "--weights split --optimizer adafactor --keep every:1"]:
    saved = os.path.join(FOLDER.name, "saved" + str(len(text)))
    switches = TINY + text.split()
    whole = run(CARD, switches)
    run(CARD, switches + ["--steps", "2", "--save", saved])
    rest = run(CARD, switches + ["--resume", saved])
    cpu = run(CPU, [word for word in switches if word != "--graph"] + ["--resume", saved])
    if not (whole and rest and cpu):
        continue
    check(rest["weights_hash"] == whole["weights_hash"] and rest["losses"] == whole["losses"][2:], f"{text}: resumed with other bits")
    check(farthest(cpu["losses"], rest["losses"]) <= BF16_BOUND, f"{text}: the CPU goes on elsewhere")
saved = os.path.join(FOLDER.name, "of_cpu")
run(CPU, TINY + ["--steps", "2", "--save", saved])
card, cpu = run(CARD, TINY + ["--resume", saved]), run(CPU, TINY + ["--resume", saved])
check(card and cpu and farthest(card["losses"], cpu["losses"]) <= FP32, "the card goes on with a save of the CPU")

SIZES = TINY[:8]
fit = run(CARD, SIZES + ["--data", TEXT, "--steps", "1", "--quiet", "--fit", "36M"])
more = planned(SIZES + ["--batch", str(fit["batch"] + 1)]) if fit else 0
check(fit and fit["predicted_peak_bytes"] <= 36e6 < more, "--fit")

for text, want in REFUSED.items():
    done = subprocess.run([CARD, *SIZES, "--batch", "2", *text.split()], capture_output=True, text=True)
    wanted = re.escape(f"train_gpt: {want}\n").replace(re.escape("..."), ".*")
    check(done.returncode in (1, 2) and re.fullmatch(wanted, done.stderr), f"{text}: {done.returncode} {done.stderr}")

# ---- many ranks, with a card each: the bits of one, bytes and traffic as planned, traffic the CPU's ----
RANKED = [  # switches, and ranks and stages
    ("--units 4 --steps 2 --validate 2", FP32, [(1, 0), (2, 1), (4, 3)]),
    ("--units 3 --steps 1 --weights split --optimizer adamw8 --clip 0.5 --keep overhead:33", BF16_BOUND,
     [(1, 3), (2, 2)]),
    ("--units 2 --steps 1 --weights bf16 --fuse-step --dropout 0.1", BF16_BOUND, [(1, 1), (2, 3)]),
    ("--units 2 --steps 2 --optimizer muon16", TURNS, [(1, 0), (1, 3), (2, 0, "--pipeline 2")]),
    ("--units 2 --steps 2 --optimizer lamb", FP32, [(1, 0), (2, 1, "--pipeline 2 --chunks 2"), (4, 0, "--pipeline 4")]),
]
# A model that is cut by layers has the bits of a rank that has them all.
RANKED += [
    ("--layers 3 --batch 1 --units 8 --steps 2 --validate 2 --dropout 0.1", FP32,
     [(1, 1), (2, 1), (2, 0, "--pipeline 2"), (2, 1, "--pipeline 2 --chunks 2"), (4, 0, "--pipeline 4"), (4, 1, "--pipeline 4 --chunks 2"),
      (4, 1, "--pipeline 2"), (4, 1, "--pipeline 2 --chunks 2"), (8, 1, "--pipeline 4"), (8, 1, "--pipeline 4 --chunks 2")]),
    ("--layers 3 --batch 1 --units 8 --steps 1 --weights bf16 --optimizer adamw8 --keep overhead:33 --clip 0.5", BF16_BOUND,
     [(1, 1), (2, 1), (2, 1, "--pipeline 2"), (2, 0, "--pipeline 2 --chunks 2"), (4, 1, "--pipeline 4"), (4, 0, "--pipeline 4 --chunks 2"),
      (4, 1, "--pipeline 2"), (4, 1, "--pipeline 2 --chunks 2"), (8, 1, "--pipeline 4"), (8, 1, "--pipeline 4 --chunks 2")]),
]
# A model that is cut by width has the bits of its parts, whatever the ranks that share a pass, and the passes at a time.
RANKED += [
    ("--batch 3 --heads 4 --parts 4 --units 2 --steps 2 --validate 2 --dropout 0.1 --head chunk:40", FP32,
     [(1, 3), (2, 1, "--tensor 2"), (4, 2, "--tensor 4"), (4, 3, "--tensor 2"), (4, 0, "--tensor 2 --pipeline 2")]),
    ("--heads 4 --parts 4 --units 2 --steps 1 --weights split --optimizer adamw8 --clip 0.5 --keep overhead:33", BF16_BOUND,
     [(2, 1), (2, 3, "--tensor 2"), (4, 2, "--tensor 2")]),
]


def place(ranks, stage, *more):
    return f"--ranks {ranks} --stage {stage} {' '.join(more)}".split()


def of_ranks(told, what):
    return [rank[what] for rank in told["each_rank"]]


for text, bound, places in RANKED if "simulator" in CARD else []:
    first = None
    for number, (ranks, stage, *more) in enumerate(places):
        switches = TINY + text.split() + place(ranks, stage, *more)
        plan, cpu = run(CARD, switches + ["--dry-run"], SIMULATOR_DEVICES="0"), run(CPU, switches)
        room = {"SIMULATOR_APART": "1", "SIMULATOR_MEMORY": str(plan["predicted_peak_bytes"])} if plan and ranks < 3 else {}
        told = run(CARD, switches, SIMULATOR_ORDERS="1", SIMULATOR_STREAMS=str(number % 3), **room) # at once, as late as may be, at random
        first = first or told
        piped = any("--pipeline" in switch for switch in more) # a CPU's stages are cut elsewhere
        if not (told and plan and cpu):
            continue
        timed(told, text)
        check(told["losses"] == first["losses"] and told["held_back_losses"] == first["held_back_losses"]
              and told["weights_hash"] == first["weights_hash"], f"{text}: {ranks} ranks, stage {stage}: other bits")
        check(of_ranks(told, "measured_bytes") == of_ranks(told, "predicted_bytes") == of_ranks(plan, "predicted_bytes"),
              f"{text}: {ranks} ranks, stage {stage}: bytes")
        check(of_ranks(told, "counted_traffic") == of_ranks(told, "predicted_traffic") == of_ranks(plan, "predicted_traffic")
              and (piped or of_ranks(told, "counted_traffic") == of_ranks(cpu, "predicted_traffic")), f"{text}: {ranks} ranks, stage {stage}: traffic")
        shared = [[rank.get(name) for rank in source["each_rank"]] for source, name in
                  ((plan, "predicted_pass_sent"), (told, "predicted_pass_sent"), (told, "pass_sent"), (cpu, "pass_sent"))]
        check(shared[0] == shared[1] == shared[2] and (more == []) == (shared[0][0] in (None, 0)), f"{text}: {more}: traffic of passes: {shared}")
        check(piped or "--weights" in text or shared[2] == shared[3], f"{text}: {more}: a CPU's passes send {shared[3]}") # its rows are floats
        far = max(farthest(told["losses"], cpu["losses"]), farthest(told["held_back_losses"], cpu["held_back_losses"]))
        check(far <= bound, f"{text}: {ranks} ranks: {far} from the CPU's losses")
    print(f"{text:60} the same weights of ranks and stages {places}")


def goes_on(program, saved, switches, hash_of=None, losses=None, bound=0):
    told = run(program, switches + ["--resume", saved])
    check(told and (not hash_of or told["weights_hash"] == hash_of), f"{switches}: resumed with other bits")
    check(told and (not losses or farthest(told["losses"], losses[-len(told["losses"]):]) <= bound), f"{switches}: goes on elsewhere")


# ---- ranks that share a pass by length: the same bits for any number of them, also where products of another shape are
# added up in another order; bytes and traffic as planned, within a pass, too ----
LENGTHS = [  # switches; ranks, ranks of a pass, stage
    ("--heads 4 --units 2 --clip 0.5 --validate 2", FP32, [(1, 1, 0), (2, 2, 1), (4, 2, 2), (4, 4, 3)]),
    ("--heads 8 --units 2 --keep every:1 --dropout 0.1 --optimizer adamw8", TURNS, [(1, 1, 1), (2, 2, 3)]),
    ("--heads 4 --weights bf16 --optimizer adamw8 --steps 2", BF16_BOUND, [(1, 1, 1), (4, 4, 2)]),
    ("--heads 4 --keep overhead:33 --steps 2", FP32, [(1, 1, 1), (4, 4, 1)]), # other forwards are made again
    ("--heads 4 --width 20 --steps 2", FP32, [(1, 1, 1), (2, 2, 2)]), # no tensor fills whole lines of 64 bytes
]
for text, bound, places in LENGTHS if "simulator" in CARD else []:
    first = None
    for ranks, sharers, stage in places:
        switches = TINY + text.split() + f"--parts 4 --ranks {ranks} --sequence {sharers} --stage {stage}".split()
        plan, cpu = run(CARD, switches + ["--dry-run"], SIMULATOR_DEVICES="0"), run(CPU, switches)
        told = run(CARD, switches, SIMULATOR_ORDERS="1")
        first = first or told
        if not (told and plan and cpu):
            continue
        what = f"{text}: {ranks} ranks, {sharers} of a pass, stage {stage}"
        check(all(told[name] == first[name] for name in ("losses", "held_back_losses", "weights_hash")), f"{what}: other bits")
        check(of_ranks(told, "measured_bytes") == of_ranks(told, "predicted_bytes") == of_ranks(plan, "predicted_bytes"), f"{what}: bytes")
        check(of_ranks(told, "counted_traffic") == of_ranks(told, "predicted_traffic") == of_ranks(cpu, "predicted_traffic"), f"{what}: traffic")
        check(sharers == 1 or of_ranks(told, "pass_sent") == of_ranks(plan, "predicted_pass_sent") == of_ranks(cpu, "pass_sent"),
              f"{what}: traffic within a pass")
        far = max(farthest(told["losses"], cpu["losses"]), farthest(told["held_back_losses"], cpu["held_back_losses"]))
        check(far <= bound, f"{what}: {far} from the CPU's losses")
    print(f"{text:60} the same weights of ranks, those of a pass, stages {places}")
saved = os.path.join(FOLDER.name, "saved_by_length")
switches = TINY + "--heads 4 --parts 4".split()
if "simulator" in CARD:
    whole = run(CARD, switches + "--ranks 1 --sequence 1".split())
    run(CARD, switches + "--ranks 2 --sequence 2 --steps 2".split() + ["--save", saved])
    for program, where in [(CARD, "--ranks 4 --sequence 4 --stage 2"), (CARD, "--ranks 1 --sequence 1"), (CPU, "--ranks 2 --sequence 2")] if whole else []:
        goes_on(program, saved, switches + where.split(), whole["weights_hash"] if program == CARD else None, whole["losses"], FP32 if program == CPU else 0)


def generations(saved):
    return {name for name in os.listdir(saved) if name.startswith("gen-") and "." not in name} if os.path.isdir(saved) else set()


def killed(switches, steps, hash_of):
    """A run that is killed when a step has been saved, or soon after, within the next, ends with the weights of one that never was."""
    saved = os.path.join(FOLDER.name, "killed")
    there = set()
    for number in range(2):
        with subprocess.Popen([CARD, *switches, "--steps", str(steps - 1), "--save", saved, "--save-every", "1",
                               *(["--resume", saved] if there else [])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
            while program.poll() is None and generations(saved) == there:
                time.sleep(0.01)
            time.sleep(0.05 * number)
            program.kill()
        there = generations(saved)
    check(there, f"{switches}: nothing was saved before the kill")
    goes_on(CARD, saved, switches + ["--steps", str(steps)], hash_of)


# A save of ranks is one file for each, of the CPU's kind: other ranks, one card and the CPU go on with it.
SAVED = [  # switches, ranks and stages of who saves, of those who go on, and the bound of a CPU
    ("--units 4 --weights split --optimizer adamw8 --clip 0.5", (2, 3), [(2, 3), (4, 1), (1, 2)], BF16_BOUND),
    ("--units 2 --validate 2", (2, 1), [(1, 3)], FP32),
    ("--heads 4 --parts 4 --units 2 --dropout 0.1", (4, 2, "--tensor 2"), [(1, 1), (4, 3, "--tensor 4")], FP32),
    ("--units 4 --optimizer adamw16 --dropout 0.1 --validate 2", (4, 1, "--pipeline 2"), [(2, 0, "--pipeline 2 --chunks 2"), (1, 1), (2, 3)], TURNS),
]
for text, saver, places, bound in SAVED if "simulator" in CARD else []:
    saved = os.path.join(FOLDER.name, "saved_by_" + "_".join(place(*saver)))
    switches = TINY + text.split()
    whole = run(CARD, switches + place(*saver))
    run(CARD, switches + place(*saver) + ["--steps", "2", "--save", saved])
    for others in places if whole else []:
        goes_on(CARD, saved, switches + place(*others), whole["weights_hash"], whole["losses"])
    if whole:
        goes_on(CPU, saved, switches + place(*saver), None, whole["losses"], bound)
        if "--parts" not in text:
            goes_on(CARD, saved, TINY + text.replace("--units", "--accumulate").split(), None, whole["losses"], bound)
        of_cpu = saved + "_of_cpu"
        run(CPU, switches + place(*saver) + ["--steps", "2", "--save", of_cpu])
        goes_on(CARD, of_cpu, switches + place(*saver), None, whole["losses"], bound)
        if saver[1] == 3:
            killed(switches + place(*saver), 4, whole["weights_hash"])
    print(f"{text:60} saved by ranks, and gone on with by others")


# ---- steps that are left out: the CPU gets there, and saves on its way; the card goes on, and leaves out the same ----
ODD = os.path.join(FOLDER.name, "odd")
lines = [f"{i} times {i * 7 % 11} is {i * (i * 7 % 11)}, and a quick brown fox jumps over it.\n" for i in range(300)]
with open(ODD, "w", encoding="ascii") as file:
    file.write("".join(lines[:150]) + "#@Q~^ZX|{J}K=%V_WQ#~@ZXJ^KQ{}|=VW%_#@Q~^ZX|{J}K=%V_WQ#~@ZXJ^KQ{}|\n" + "".join(lines[150:]))
WATCHED = "--layers 2 --width 32 --heads 2 --context 32 --attention lean --lr 0.003 --skip-outliers 6 --data".split() + [ODD]


def left_out(program, switches):
    """The steps that it says, to people."""
    done = subprocess.run([program, *switches], capture_output=True, text=True)
    check(done.returncode == 0, f"{switches}: {done.stderr}")
    return [int(step) for step in re.findall(r"^train_gpt: step (\d+) is left out: loss [\d.]+, norm of its gradients [\d.]+$", done.stderr, re.M)]


for text, places in [("--batch 2", ["", "--graph"]), ("--batch 2 --clip 0.5 --optimizer adamw8 --weights split", ["", "--graph"]),
                     ("--batch 1 --units 2 --ranks 2 --clip 1", ["", "--ranks 1", "--pipeline 2 --stage 1"])]:
    switches = WATCHED + text.split()
    steps = left_out(CPU, switches + ["--steps", "400"])
    check(steps and steps[0] > 128, f"{text}: no step is left out: {steps}")
    if not steps or ("--ranks" in text and "simulator" not in CARD):
        continue
    saved, step, hashes = os.path.join(FOLDER.name, "odd" + str(len(text))), steps[0], set()
    run(CPU, switches + ["--quiet", "--steps", str(step - 10), "--save", saved])
    end = switches + ["--quiet", "--steps", str(step + 2)]
    cpu = run(CPU, end + ["--resume", saved])
    for place in places:
        card = run(CARD, end + ["--resume", saved] + place.split())
        if not card or not cpu:
            continue
        check(card["skipped_steps"] == cpu["skipped_steps"] == sum(1 for other in steps if other <= step + 2) > 0, f"{text} {place}: other steps are left out")
        far = farthest(card["losses"], cpu["losses"])
        check(far <= 1e-2, f"{text} {place}: {far} from the CPU's losses, with steps left out")
        hashes.add(card["weights_hash"])
        at = [run(CARD, end + ["--resume", saved, "--steps", str(step + more)] + place.split()) for more in (-1, 0, 1)]
        check(all(at) and at[0]["weights_hash"] == at[1]["weights_hash"] != at[2]["weights_hash"], f"{text} {place}: weights of a step that is left out")
        half = saved + "_half"
        run(CARD, end + ["--resume", saved, "--save", half, "--steps", str(step - 5)] + place.split())
        goes_on(CARD, half, end + place.split(), card["weights_hash"], card["losses"])
        shutil.rmtree(half)
    check(len(hashes) == 1, f"{text}: other bits: {hashes}")
    check(left_out(CARD, WATCHED + text.split() + ["--steps", str(step), "--resume", saved]) == [step], f"{text}: the step that is told")
    print(f"{text:60} the card leaves out step {step}, as the CPU")


def stopped(switches, want, **environment):
    """All ranks end, soon, and the reason is told."""
    done = subprocess.run([CARD, *TINY, *switches.split()], capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    check(done.returncode == 1 and re.fullmatch(f"train_gpt: {want}\n", done.stderr), f"{switches}: {done.returncode} {done.stderr}")


# ---- ranks as processes: the bits of threads ----
def process(rank, ranks, switches, ids, launcher=(), **environment):
    """launcher: the variables that say which one it is."""
    which = [] if launcher else ["--ranks", str(ranks), "--rank", str(rank)]
    variables = dict(zip(launcher, (str(rank), str(ranks))))
    return subprocess.Popen([CARD, *switches, *which, "--id-file", ids], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "SIMULATOR_PROCESSES": "1", **variables, **environment})


def processes(ranks, switches, ids, launcher=()):
    """They are started, the last rank first."""
    return [process(rank, ranks, switches, ids, launcher) for rank in reversed(range(ranks))][::-1]


def with_one(one, ranks, switches, ids, **environment):
    """One of them in another environment."""
    return [process(rank, ranks, switches, ids, **(environment if rank == one else {})) for rank in range(ranks)]


def ended(started, seconds=100):
    """How each of them ended, and what it had to say."""
    told = []
    for rank, program in enumerate(started):
        try:
            said = program.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            program.kill()
            said = "it went on: " + program.communicate()[1]
        told.append((program.returncode, said))
        check("simulator:" not in said, f"rank {rank}: {said}")
    return told


def together(ranks, switches, ids, launcher=()):
    out = os.path.join(FOLDER.name, "processes.json")
    told = ended(processes(ranks, switches + ["--json", out], ids, launcher))
    if told != [(0, "")] * ranks:
        check(False, f"{switches}: {ranks} processes: {told}")
        return None
    with open(out, encoding="utf-8") as f:
        return json.load(f)


def same_run(told, other, what):
    if not told or not other:
        return
    for name in ("losses", "held_back_losses", "weights_hash"):
        check(told[name] == other[name], f"{what}: other {name}")
    for name in ("measured_bytes", "predicted_bytes", "counted_traffic"):
        check(of_ranks(told, name) == of_ranks(other, name), f"{what}: other {name}")


def end_of_others(told, one, want, must):
    """All ranks but that one: they failed, in words that are wanted; of what they say something must be."""
    others = [what for rank, what in enumerate(told) if rank != one]
    check(all(status == 1 and re.fullmatch(rf"train_gpt: rank \d: .*({want}).*\n", said) for status, said in others)
          and any(re.search(must, said) for _, said in others), f"rank {one}: {must}: {told}")


PAGE = "=8s5Q1024Q128sQ" # of rendezvous.h: magic, rank, count, number, heard, ended, numbers, bytes, sum
PROCESSES = [
    ("--units 4 --steps 2 --validate 2", 2, 1),
    ("--units 4 --steps 2 --validate 2", 4, 3),
    ("--units 3 --steps 2 --weights split --optimizer adamw8 --clip 0.5 --keep overhead:33", 3, 2),
    ("--units 2 --steps 1 --weights bf16 --fuse-step --dropout 0.1", 2, 3),
    ("--units 4 --steps 2 --validate 2 --pipeline 2 --chunks 2", 4, 1),
]
if "simulator" in CARD:
    ids = os.path.join(FOLDER.name, "ids")
    alone = process(1, 2, TINY, ids + "_alone") # looked at in half a minute
    for text, ranks, stage in PROCESSES:
        switches = TINY + text.split() + ["--stage", str(stage)]
        same_run(together(ranks, switches, ids), run(CARD, switches + ["--ranks", str(ranks)]), f"{text}: {ranks} processes, stage {stage}")
    two = TINY + "--units 2 --steps 2".split()
    whole = run(CARD, two + ["--ranks", "2"])
    for launcher in [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]:
        same_run(together(2, two, ids, launcher), whole, f"{launcher}")
    # What they save threads go on with, and what threads save they go on with.
    saved = os.path.join(FOLDER.name, "saved_by_processes")
    switches = TINY + "--units 4 --clip 0.5 --stage 2".split()
    four = run(CARD, switches + "--ranks 2".split())
    together(3, switches + ["--steps", "2", "--save", saved], ids)
    goes_on(CARD, saved, switches + ["--ranks", "2"], four["weights_hash"], four["losses"])
    told = together(4, switches + ["--resume", saved], ids)
    check(told and told["weights_hash"] == four["weights_hash"], "processes go on elsewhere")
    # Files of a run that is over, or was never one, are no ids: rank 1 comes long before rank 0 has another to say.
    for damage in ("old", "half", "noise"):
        for rank in range(2):
            with open(f"{ids}.{rank}", "r+b") as f:
                page = f.read()
                f.seek(0)
                f.truncate()
                f.write(page if damage == "old" else page[:len(page) // 2] if damage == "half" else bytes(len(page) - 8) + page[-8:])
        started = processes(2, two, ids)
        told = ended(started)
        check(told == [(0, "")] * 2, f"files that are {damage}: {told}")
    # Nor is a page that is half written: rank 0's, with the number of rank 1 in it already, and another's bytes.
    second = process(1, 2, two, ids + "_torn")
    while second.poll() is None and not os.path.exists(ids + "_torn.1"):
        time.sleep(0.01)
    time.sleep(0.2)
    with open(ids + "_torn.1", "rb") as f:
        own = struct.unpack(PAGE, f.read())
    with open(ids + "_torn.0", "wb") as f:
        f.write(struct.pack(PAGE, own[0], 0, 2, 5, 0, 0, 0, own[3], *[0] * 1022, b"no id", 7))
    time.sleep(0.2)
    told = ended([process(0, 2, two, ids + "_torn"), second])
    check(told == [(0, "")] * 2, f"a page that is half written: {told}")
    # A process of another run, with the same file: refused; the first goes on. Then one of it is killed: the other says which.
    endless = processes(3, TINY + "--units 3 --steps 1000000".split(), ids)
    time.sleep(2)
    for rank in range(3):
        done = subprocess.run([CARD, *TINY, "--ranks", "3", "--rank", str(rank), "--id-file", ids], capture_output=True, text=True, timeout=60)
        check(done.returncode == 1 and done.stderr == f"train_gpt: --id-file {ids}: a process that is rank {rank} is there already: give each "
              "another --rank, and another run another file.\n", f"a second rank {rank}: {done.stderr}")
    check([program.poll() for program in endless] == [None] * 3, "a second run ends the first")
    endless[1].kill()
    told = ended(endless)
    for rank in (0, 2):
        check(told[rank][0] == 1 and re.fullmatch(rf"train_gpt: rank {rank}: .* The process of rank 1 is gone\.\n", told[rank][1]), f"rank 1 was killed: {told}")
    same_run(together(2, two, ids), whole, "after a kill, with the same files")
    # Ranks that share a pass. One is stopped: the others end when it has not come for half a minute, and say which it was.
    # One is killed, one has no room, one of its calls of NCCL fails: they end at once.
    shared = [TINY + text.split() for text in ("--layers 4 --units 4 --pipeline 2 --steps 1000000", "--units 4 --tensor 2 --parts 2 --stage 3 --steps 1000000")]
    still = [processes(4, switches, f"{ids}_still{which}") for which, switches in enumerate(shared)]
    time.sleep(5)
    check(all(program.poll() is None for started in still for program in started), "ranks that share a pass do not go on")
    for started in still:
        started[2].send_signal(signal.SIGSTOP)
    since = time.time()
    for switches in shared:
        killed = processes(4, switches, ids)
        time.sleep(3)
        killed[1].kill()
        end_of_others(ended(killed), 1, "remote error|has given up", r"The process of rank 1 is gone\.")
        told = ended(with_one(2, 4, switches, ids, SIMULATOR_MEMORY="30000000"))
        end_of_others(told, 2, "remote error|has given up|NCCL does not connect", "remote error|has given up|NCCL does not connect")
        check(told[2][0] == 1 and re.match("train_gpt: rank 2: This takes .* MB, and the card has .* MB free", told[2][1]), f"no room: {told}")
        for calls in (1, 20, 75, 200):
            told = ended(with_one(3, 4, switches, ids, SIMULATOR_NCCL_FAILS=str(calls)), 25)
            end_of_others(told, 3, "remote error|has given up", "")
            check(told[3][0] == 1 and re.match(r"train_gpt: rank 3: .* at rank \d, an error of NCCL", told[3][1]), f"call {calls} fails: {told}")
    for started in still:
        for rank in (0, 1, 3):
            started[rank].wait(100)
    check(time.time() - since < 55, f"who was stopped was missed after {time.time() - since:.0f} s")
    for started in still:
        started[2].send_signal(signal.SIGCONT)
        end_of_others(ended(started), 2, "remote error|has given up|not (all ranks have )?come before the deadline", r"has not come before the deadline.* That is rank 2 of all\.")
    # One that cannot go on says why, and is not taken for one that was killed.
    told = ended([process(0, 2, two, ids), process(1, 2, two + ["--data", "/none"], ids)])
    check(told[1] == (1, "train_gpt: rank 1: /none: No such file or directory; give --data a file that can be read.\n")
          and told[0][0] == 1 and told[0][1].startswith("train_gpt: rank 0: ") and "is gone" not in told[0][1], f"no data for rank 1: {told}")
    told = ended([process(1, 2, TINY, "/none/ids")])
    check(told == [(1, "train_gpt: --id-file /none/ids: /none/ids.1 cannot be written: is its folder there, and is there room?\n")], f"no folder: {told}")
    told = ended([alone])
    check(told == [(1, f"train_gpt: --id-file {ids}_alone: rank 0 has not come within 30 seconds: is it started, with the same --id-file and "
                    "--ranks?\n")], f"rank 1 alone: {told}")
    print(f"{len(PROCESSES)} runs of processes, as of threads; old files, a second run, kills, a stop, failures of one")


def launched(switches, two="12"):
    """What one step gives to the card: kernels and products, those of two steps less those of one."""
    told = []
    for steps in two:
        done = subprocess.run([CARD, *switches, "--steps", steps], capture_output=True, text=True,
                              env={**os.environ, "SIMULATOR_LAUNCHES": "1"})
        told.append([int(n) for n in re.findall(r"^(\d+) kernels, (\d+) products$", done.stderr, re.M)[-1]])
    return [second - first for first, second in zip(*told, strict=True)]


def ranges(switches):
    """Names of what is asked for, as a profiler sees them."""
    done = subprocess.run([CARD, *switches], capture_output=True, text=True, env={**os.environ, "SIMULATOR_RANGES": "1"})
    return re.findall("^range (.*)$", done.stderr, re.M)


if "simulator" in CARD:
    one = [" batch", " forward", " backward"]
    end = [" optimizer", " wait for the losses"]
    two = [" batch"] * 2 + one[1:] * 2 + end
    check(ranges(TINY + "--steps 2 --accumulate 2".split()) == ["step 1"] + two + ["step 2"] + two, "ranges")
    check(ranges(TINY + "--steps 1 --fuse-step".split()) == ["step 1"] + one + end, "ranges of a fused step")
    graph = [" batch", " graph", " wait for the losses"]
    check(ranges(TINY + "--steps 3 --graph".split()) == ["step 1"] + one + end + ["step 2", " batch"] + one[1:] + end[:1]
          + graph[1:] + ["step 3"] + graph, "ranges of a graph")
    kernels, products = launched(TINY + "--layers 12 --weights bf16 --optimizer adamw8".split())
    print(f"a step of 12 layers, 16 and 8 bits: {kernels} kernels and {products} products")
    check((kernels, products) == (179, 147), f"launches: {kernels} kernels and {products} products, not 179 and 147 (tests/bench/results/cuda.md)")
    switches = TINY + "--layers 12 --weights bf16 --optimizer adamw8 --graph".split()
    check(launched(switches, "23") == [0, 0], "a step that is a graph launches something else")
    nodes = run(CARD, switches + ["--steps", "2"])["nodes_of_the_graph"]
    check(nodes == kernels + products + 3, # arrays that are set to zero
          f"a graph of {nodes} nodes, of {kernels} kernels and {products} products")
    stopped("--ranks 3", r"rank [02]: This takes 34\.\d MB, and the card has 5\.\d MB free; more --ranks, a smaller --batch and --keep overhead:33 "
            "need less.", SIMULATOR_MEMORY="40000000")
    for calls in (2, 9, 50): # of several that end, the one whose call it was tells
        for cut in ("--heads 4 --tensor 2 --pipeline 2 --stage 0", "--heads 4 --sequence 2 --stage 3"):
            stopped(f"--ranks 4 --units 4 {cut}", r"rank \d: .* at rank \d, an error of NCCL.*", SIMULATOR_NCCL_FAILS=str(calls))
    stopped("", r"This takes 34\.\d MB, and the card has 30\.0 MB free; --fit BYTES finds the largest batch that fits.", SIMULATOR_MEMORY="30000000")
    stopped("--ranks 4", "rank 0: NCCL does not connect 4 ranks on 2 cards, as it wants one for each: give --ranks 2.", SIMULATOR_APART="1")
    stopped("--ranks 2 --data /none", "rank [01]: /none: No such file or directory; .*")
    stopped("--ranks 2", "The cards: no CUDA-capable device is detected.", SIMULATOR_DEVICES="0")
    with subprocess.Popen([CARD, *TINY, "--steps", "1000000", "--ranks", "2"]) as endless:
        time.sleep(0.5)
        endless.send_signal(signal.SIGINT)
        try:
            check(endless.wait(10) == -signal.SIGINT, "Ctrl-C does not end all ranks")
        except subprocess.TimeoutExpired:
            endless.kill()
            check(False, "ranks go on after Ctrl-C")


# ---- the ladder ----
# Rungs of a card, and the CPU's of the same switches; whether each has the bits of the one above. "pieces": it rounds elsewhere.
RUNGS = [
    ("arena: gradients of one layer", "arena: gradients of one layer", ""),
    ("+ checkpoints, +33 % operations", "+ checkpoints, +33 % operations", "yes"),
    ("+ step inside backward", "+ step inside backward", "yes"),
    ("+ head in chunks", "+ head in chunks", "no: products in pieces"),
    ("+ MLP in chunks", "+ MLP in chunks", "no: products in pieces"),
    ("+ 8-bit Adam", "+ 8-bit Adam", "no: lossy by choice"),
    ("+ bf16: everything on", "+ bf16: everything on", "no: lossy by choice"),
]
ENDS = [
    ("arena: gradients of one layer", None, ""),
    ("all that keeps the bits", None, "yes"),
    ("+ chunks, 8-bit Adam, bf16: all on", None, "no: lossy by choice"),
]
LADDER = "--layers 2 --width 32 --heads 1 --context 64 --batch 2 --steps 2 --validate 2 --ladder --quiet --data".split() + [TEXT]


def ladder(program, switches, want_status=0, **environment):
    """What it printed, line by line, and the rungs of its JSON. It runs in a folder of its own: a page appears there."""
    folder = tempfile.mkdtemp(dir=FOLDER.name)
    done = subprocess.run([program, *switches, "--json", "out.json"], capture_output=True, text=True, cwd=folder,
                          env={**os.environ, **environment})
    check(done.returncode == want_status, f"{switches}: {done.returncode}: {done.stdout}{done.stderr}")
    check(sorted(os.listdir(os.path.join(folder, "build"))) == ["ladder.html", "ladder.svg"], f"{switches}: page and chart")
    with open(os.path.join(folder, "out.json"), encoding="utf-8") as f:
        rungs = json.load(f)["rungs"]
    with open(os.path.join(folder, "build", "ladder.html"), encoding="utf-8") as f:
        page = f.read()
    return done.stdout.splitlines(), rungs, page


def table(lines, rungs, expected):
    """Lines of a ladder that was trained say what its JSON says."""
    check(len(lines) == len(rungs) + 3 and len(rungs) == len(expected), f"{len(lines)} lines, {len(rungs)} rungs")
    for line, told, (name, _, same) in zip(lines[2:], rungs, expected):
        row = re.fullmatch(re.escape(f"{name:34}") + r" +([\d.]+) +([\d.]+) +([\d.]+) +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+) *(.*)", line)
        check(row, f"no line of a rung: {line}")
        if not row:
            continue
        check(told["name"] == name and row[6] == same, f"{name}: {row[6]}, not {same}")
        check(row[1] == f"{told['predicted_peak_bytes'] / 1e6:.1f}" and row[2] == f"{told['measured_peak_bytes'] / 1e6:.1f}"
              and row[3] == f"{rungs[0]['predicted_peak_bytes'] / told['predicted_peak_bytes']:.1f}", f"{name}: bytes: {line}")
        check(row[4] == f"{told['losses'][-1]:.5f}" and row[5] == f"{told['held_back_losses'][-1]:.5f}", f"{name}: losses: {line}")
        check(told["measured_peak_bytes"] == told["predicted_peak_bytes"] == sum(told["bytes_at_peak"].values()), f"{name}: bytes of the device")


def exact_rungs(rungs, expected):
    for before, told, (name, _, same) in zip(rungs, rungs[1:], expected[1:]):
        alike = told["losses"] == before["losses"] and told["weights_hash"] == before["weights_hash"]
        check(alike == (same == "yes"), f"{name}: the same bits: {alike}, and the table says {same}")
        check(told["predicted_peak_bytes"] < before["predicted_peak_bytes"], f"{name}: no less memory")


def command_of(told):
    """What a rung says runs just this rung."""
    return [word for word in told["command"][1:] if word not in ("--json", "out.json")]


lines, rungs, page = ladder(CARD, LADDER)
table(lines, rungs, RUNGS)
exact_rungs(rungs, RUNGS)
check("measured peak of the card" in page and "resident" not in page and "process</span>" not in page, "the page is a card's")
check(all(name in page for name, _, _ in RUNGS) and page.count("<td class=\"yes\">yes</td>") == 2, "rungs of the page")
_, cpu_rungs, _ = ladder(CPU, LADDER + "--threads 1".split())
cpu_rungs = {told["name"]: told for told in cpu_rungs}
for told, (_, name, same) in zip(rungs, RUNGS):
    bound = BF16_BOUND if "bf16" in name else TURNS if "Adam" in name else FP32
    for other in (cpu_rungs[name], rungs[0]) if "lossy" not in same else (cpu_rungs[name],):
        far = max(farthest(told["losses"], other["losses"]), farthest(told["held_back_losses"], other["held_back_losses"]))
        check(far <= bound, f"{name}: {far} from the losses of {other['name']}, bound {bound}")
    alone = trained(command_of(told))
    check(alone and alone["weights_hash"] == told["weights_hash"], f"{name}: its command gives other weights")

lines, end_rungs, _ = ladder(CARD, LADDER + ["--ends"])
table(lines, end_rungs, ENDS)
exact_rungs(end_rungs, ENDS)
for told in ladder(CPU, LADDER + ["--ends", "--dry-run"])[1] + end_rungs:
    check(run(CPU if told["name"] == "conventional engine" else CARD, command_of(told) + ["--dry-run"]), f"{told['name']}: its command")
check([told["weights_hash"] for told in end_rungs] == [rungs[i]["weights_hash"] for i in (0, 2, -1)], "--ends are rungs of the ladder")

# Planned without a device; trained without one, each rung says so; what a device has no room for is planned only.
lines, rungs, page = ladder(CARD, LADDER + ["--dry-run"], SIMULATOR_DEVICES="0")
check([told["predicted_peak_bytes"] for told in rungs] == [planned(command_of(told))
      for told in rungs] and all(told["measured_peak_bytes"] is None and not told["losses"] for told in rungs), "a ladder without a device")
if "simulator" in CARD:
    lines, rungs, _ = ladder(CARD, LADDER + ["--ends"], 1, SIMULATOR_DEVICES="0")
    check(all("The card: " in line for line in lines[2:-1]) and not any(told["ok"] for told in rungs), f"no device: {lines}")
    room = end_rungs[1]["predicted_peak_bytes"]
    lines, rungs, _ = ladder(CARD, LADDER + ["--ends"], SIMULATOR_MEMORY=str(room))
    check("planned only: it does not fit here" in lines[2] and not rungs[0]["losses"] and all(told["losses"] for told in rungs[1:]),
          f"a device of {room} bytes: {lines}")

big = planned("--preset gpt2-124m --batch 32 --weights bf16 --optimizer adamw8 --keep overhead:33 --head chunk:2048".split())
print(f"GPT-2 124M, 32 x 1024, everything on: {big / 1e6:.0f} MB of the card, planned")
finish("train_gpt.cu", "all as the CPU, as planned")
