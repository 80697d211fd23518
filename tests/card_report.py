#!/usr/bin/env python3
"""card_report.py DIR - a page of what tests/card.sh has left in DIR: verdicts, attention by mma.sync and by wgmma, other kernels, a
training step beside torch's, the time of each kernel of it, and errors of memory. What is missing or was cut off is left out."""
import csv
import json
import os
import re
import statistics
import sys


def read(name):
    try:
        with open(os.path.join(sys.argv[1], name + ".txt"), encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def commands(name):
    """Of a file: each command's name, verdict and lines; without a verdict it was cut off."""
    found, current = [], None
    for line in read(name):
        begin, end = re.match(r"\$ ([^:]*): ", line), re.match(r"= ([^:]*): (.*)", line)
        if begin:
            current = [begin[1], "cut off", []]
            found.append(current)
        elif end and current and end[1] == current[0]:
            current[1] = end[2]
            current = None
        elif end:
            found.append([end[1], end[2], []])
        elif current:
            current[2].append(line)
    return found


def objects(lines):
    """Lines that are JSON; one that was cut off is none."""
    for line in lines:
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                pass


def table(head, rows):
    if rows:
        print("\n| " + " | ".join(head) + " |\n|---|" + "--:|" * (len(head) - 1))
        for row in rows:
            print("| " + " | ".join(row) + " |")


def rate(x):
    return f"{x:,.4g}" if x < 1000 else f"{x:,.0f}"


PARTS = ["0-machine", "1-tests", "2-attention", "3-kernels", "4-train", "5-peers", "6-profile", "7-sanitizer"]


def verdicts():
    table(["part", "verdict"], [[f"{part[2:]}: {name}", verdict] for part in PARTS for name, verdict, _ in commands(part)])


def tests():
    for name, _, lines in commands("1-tests"):
        totals = [line for line in lines if re.fullmatch(r"\d+ passed, \d+ failed, \d+ skipped", line)]
        print(f"\n{name}: {totals[-1] if totals else 'not all ran'}.")
        wrong = [line for line in lines if line.startswith("FAILED ") or re.match(r"\S+\.(cu|h|c):\d+: ", line)]
        for line in wrong[:30]:
            print("    " + line)


def attention():
    """Beside each other, and beside bare products of the same run."""
    by_name = {}
    for name, _, lines in commands("2-attention"):
        for row in objects(lines):
            by_name.setdefault(row["name"], {})[name.split(", ")[-1]] = row
    rows = []
    for name, of in by_name.items():
        times = [of[variant]["value"] if variant in of else None for variant in ("mma", "wgmma")]
        rows.append([name] + [f"{t:.4g}" if t else "" for t in times] + [f"{times[0] / times[1]:.2f}" if all(times) else ""]
                    + [f"{of[variant]['of_limit']:.2f}" if variant in of else "" for variant in ("mma", "wgmma")])
    table(["attention", "mma, ms", "wgmma, ms", "times as fast", "mma, of products' rate", "wgmma, of it"], rows)


def kernels():
    table(["kernel", "measured", "a copy", "of a copy"],
          [[row["name"], f"{rate(row['value'])} {row['unit']}", rate(row["limit"]), f"{row['of_limit']:.2f}"]
           for _, _, lines in commands("3-kernels") for row in objects(lines)])


def milliseconds(seconds):
    return f"{1000 * seconds:.2f}"


def training():
    """Of ours the steps after the first: their mean gives tokens a second, as torch's do, and their median stands beside."""
    rows = []
    for name, _, lines in commands("4-train"):
        for run in objects(lines):
            seconds = run["seconds_of_steps"]
            rows.append(["memopt, " + name, rate(run["tokens_per_second"]), milliseconds(statistics.median(seconds[1:] or seconds)),
                         milliseconds(seconds[0]), f"{run['measured_peak_bytes'] / 1e6:,.0f}", f"{run['losses'][-1]:.3f}"])
    for _, _, lines in commands("5-peers"):
        for line in lines:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("| torch") and len(cells) > 3:
                rows.append([cells[0], cells[1], "", "", cells[2], cells[-1]])
    table(["training", "tokens/s", "median step, ms", "first, ms", "peak MB", "last loss"], rows)


def profile():
    """Time of each kernel by its name, over both steps."""
    times = {}
    for _, _, lines in commands("6-profile"):
        begins = [i for i, line in enumerate(lines) if line.startswith('"ID"')]
        for row in csv.DictReader(line for line in lines[begins[0]:] if line.startswith('"')) if begins else []:
            if row.get("Metric Name") == "gpu__time_duration.sum" and row.get("Metric Value"):
                scale = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1, "msecond": 1}[row["Metric Unit"]]
                times.setdefault(row["Kernel Name"], []).append(float(row["Metric Value"].replace(",", "")) * scale)
    total = sum(map(sum, times.values()))
    rows = sorted(times.items(), key=lambda item: -sum(item[1]))
    table(["kernel, of two steps", "launches", "ms", "of all"],
          [[f"`{name}`", str(len(each)), f"{sum(each):.3f}", f"{sum(each) / total:.3f}"] for name, each in rows[:40]]
          + ([["all", str(sum(map(len, times.values()))), f"{total:.3f}", "1"]] if rows else []))


def sanitizer():
    for name, _, lines in commands("7-sanitizer"):
        for line in lines:
            if "ERROR SUMMARY" in line or line.startswith("========= Invalid"):
                print(f"\n{name}: {line.strip('= ')}.")


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit("card_report.py DIR: the folder that tests/card.sh has filled")
    print("# memopt on a card\n")
    for line in read("0-machine"):
        if line and line[0] not in "$=" and not line.startswith(("cuda, medians", "name ")):
            print(line)
    print("\nBy `make card` and `sh tests/card.sh DIR`; this page by `python3 tests/card_report.py DIR`.")
    for part in (verdicts, tests, attention, kernels, training, profile, sanitizer):
        part()


if __name__ == "__main__":
    main()
