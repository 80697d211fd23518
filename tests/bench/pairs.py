#!/usr/bin/env python3
"""Run commands in turns and compare what they cost: processor time, page faults, memory.

usage: pairs.py TURNS COMMAND COMMAND...   each COMMAND one argument, run by sh; in it `A=1 program 3` sets A

Each turn runs every command once. Prints the median of each command with the least and the most, its ratio to the first
command, turn by turn (the median of these ratios), and whether all printed the same last word. A machine that others use
makes processor time grow: runs of one turn meet about the same load.
"""
import os
import statistics
import subprocess
import sys
import time


def run(command):
    begin = time.monotonic()
    process = subprocess.Popen(["sh", "-c", "exec env " + command], stdout=subprocess.PIPE)
    text = process.stdout.read().decode().split()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"pairs: {command}: status {status}")
    return {"cpu s": used.ru_utime + used.ru_stime, "user s": used.ru_utime, "system s": used.ru_stime,
            "wall s": time.monotonic() - begin, "faults": used.ru_minflt, "peak MB": used.ru_maxrss / 1024,
            "last": text[-1] if text else ""}


def main():
    if len(sys.argv) < 3 or not sys.argv[1].isdigit() or int(sys.argv[1]) < 1:
        sys.exit(__doc__)
    commands = sys.argv[2:]
    turns = [[run(command) for command in commands] for _ in range(int(sys.argv[1]))]
    for i, command in enumerate(commands):
        print(command)
        for name in ("cpu s", "user s", "system s", "wall s", "faults", "peak MB"):
            values = [turn[i][name] for turn in turns]
            ratios = [turn[i][name] / turn[0][name] for turn in turns if turn[0][name]]
            digits = 0 if name in ("faults", "peak MB") else 2
            ratio = f"{statistics.median(ratios):8.3f} of the first" if ratios else ""
            print(f"  {name:9}{statistics.median(values):12.{digits}f}  {min(values):.{digits}f} to "
                  f"{max(values):.{digits}f}{ratio}")
    print("same last word:", "yes" if len({r["last"] for turn in turns for r in turn}) == 1 else "NO")


if __name__ == "__main__":
    main()
