#!/usr/bin/env python3
"""Plans that are advised are run: random budgets, models, permissions and ranks, through `train_gpt --advise BUDGET
--speeds FILE --json`; the command it prints is run, and what it holds and takes is compared with what was predicted.

    check_advise.py PROGRAM [CASES [SEED]]     40 cases; SEED 1

Fails when a run is over its budget, when memory is further off than 1 % or 1 MB, or when CPU time is off by more than
10 % in the median or by more than 20 % in more than one of ten (ADVISE_TIME=0: times are told alone, as on a machine
that others use). What else runs on a machine, and beside a virtual one, only adds CPU seconds, and comes in bursts that
are longer than a run: where a time is off by more than 10 % it is calibrated and run again, twice at most, and the
fewest seconds of both count. What the first try gave is told as well. ADVISE_TELL=1 tells every case."""
import json
import os
import random
import subprocess
import sys
import tempfile


def draw(pick):
    """A model, its permissions and ranks, as switches; the budget comes from what it needs."""
    heads = pick.choice([2, 4, 6, 8])
    switches = {"--layers": pick.choice([1, 2, 3, 4, 6, 8]), "--heads": heads, "--width": heads * pick.choice([16, 24, 32, 48]),
                "--context": pick.choice([32, 64, 96, 128, 256]) if heads < 6 else pick.choice([32, 64, 128]), "--batch": pick.choice([1, 2, 3, 4])}
    if pick.random() < 0.3:
        switches["--weights"] = pick.choice(["f32", "split", "bf16"])
    if pick.random() < 0.3:
        switches["--optimizer"] = pick.choice(["adamw", "adamw8", "lion8", "adam16", "rmsprop"])
    if pick.random() < 0.15:
        switches["--attention"] = pick.choice(["full", "lean"])
    if pick.random() < 0.15:
        switches["--clip"] = 1
    ranks = pick.choice([0, 0, 1, 2, 3, 4])
    switches["--threads"] = pick.choice([n for n in (1, 1, 2, 3, 4) if n * max(ranks, 1) <= 4])
    if ranks:
        switches["--ranks"] = ranks
        switches["--units"] = ranks * pick.choice([1, 1, 2])
        if pick.random() < 0.5:
            switches["--stage"] = pick.choice([0, 1, 2, 3])
    elif pick.random() < 0.2:
        switches["--accumulate"] = pick.choice([2, 3])
    tokens = switches["--context"] * switches["--batch"] * max(switches.get("--units", 1), switches.get("--accumulate", 1))
    seconds = 6 * tokens * switches["--layers"] * 12 * switches["--width"] ** 2 / 3e10  # of a step, roughly
    switches["--steps"] = max(6, min(100, int(0.5 / seconds)))  # half a second, so that one can tell
    return [str(word) for pair in switches.items() for word in pair]


class Advice:
    def __init__(self, program, work):
        self.program, self.work = program, work

    def run(self, arguments):
        path = os.path.join(self.work, "run.json")
        if os.path.exists(path):
            os.remove(path)
        done = subprocess.run([self.program] + arguments + ["--json", path], capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr.strip()
        with open(path, encoding="utf-8") as file:
            return json.load(file), ""

    def advise(self, model, budget, again=0):
        return self.run(model + ["--advise", str(budget), "--speeds", os.path.join(self.work, f"speeds{again}")])

    def train(self, plan):
        return self.run(without(plan["command"][1:], "--json"))

    def seconds(self, model, budget, plan, run):
        """CPU seconds of a step, predicted and measured, of the first try and of the best one."""
        predicted, measured = plan["predicted_cpu_seconds_per_step"], run["cpu_seconds_per_step"]
        first = predicted, measured
        for again in (1, 2):
            if abs(predicted / measured - 1) <= 0.1:
                break
            other, _ = self.advise(model, budget, again)
            if other and other["command"] == plan["command"]:
                predicted = min(predicted, other["predicted_cpu_seconds_per_step"])
            run, _ = self.train(plan)
            measured = min(measured, run["cpu_seconds_per_step"]) if run else measured
        return first, (predicted, measured)

    def least(self, model):
        _, said = self.run(model + ["--advise", "1k"])
        if " the least is " not in said:
            raise SystemExit(f"{' '.join(model)}: the least is not told: {said}")
        return float(said.split(" the least is ")[1].split(" MB")[0]) * 1e6


def without(command, *names):
    words = list(command)
    for name in names:
        while name in words:
            at = words.index(name)
            del words[at:at + 2]
    return words


def spread(apart):
    """The median, and what nine of ten are within."""
    apart = sorted(apart)
    return apart[len(apart) // 2], apart[min(len(apart) - 1, len(apart) * 9 // 10)]


def main():
    program = os.path.abspath(sys.argv[1])
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    pick = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    wrong, over, first, apart = 0, 0, [], []
    with tempfile.TemporaryDirectory() as work:
        advice = Advice(program, work)
        for case in range(cases):
            model = draw(pick)
            least = advice.least(model)
            budget = int(least * pick.choice([1.0, 1.05, 1.1, 1.3, 1.7, 2.5, 5.0]))
            plan, said = advice.advise(model, budget)
            if plan is None:
                print(f"case {case}: {' '.join(model)} --advise {budget}: {said}")
                wrong += 1
                continue
            run, said = advice.train(plan)
            if run is None:
                print(f"case {case}: {' '.join(plan['command'])}: {said}")
                wrong += 1
                continue
            predicted, measured = plan["predicted_peak_bytes"], run["measured_peak_bytes"]
            if measured > budget:
                print(f"case {case}: OVER: {measured} of {budget}: {' '.join(plan['command'])}")
                over += 1
            if abs(measured - predicted) > max(0.01 * measured, 1e6):
                print(f"case {case}: memory {measured}, predicted {predicted}: {' '.join(plan['command'])}")
                wrong += 1
            tried, best = advice.seconds(model, budget, plan, run)
            first.append(abs(tried[0] / tried[1] - 1))
            off = best[0] / best[1] - 1
            apart.append(abs(off))
            if abs(off) > 0.2 or os.environ.get("ADVISE_TELL"):
                print(f"case {case}: time {1e3 * best[1]:.3f} ms, predicted {100 * off:+.1f} % (first {100 * (tried[0] / tried[1] - 1):+.1f} %): "
                      f"{' '.join(plan['command'][1:])}", flush=True)
    (median, ninth), (median_first, ninth_first) = spread(apart), spread(first)
    print(f"{cases - over - wrong} of {cases} plans hold, {over} over their budget; CPU time off by {100 * median:.1f} % in the median, 9 of 10 within "
          f"{100 * ninth:.1f} %; at the first try {100 * median_first:.1f} and {100 * ninth_first:.1f} %")
    slow = os.environ.get("ADVISE_TIME") != "0" and (median > 0.1 or ninth > 0.2)
    return 1 if wrong or over or slow else 0


if __name__ == "__main__":
    sys.exit(main())
