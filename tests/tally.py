"""tally.py - what a check finds: failures are printed as they come, and counted for the end."""
import sys

failures = 0


def check(fine, what):
    global failures
    if not fine:
        failures += 1
        print("FAILED:", what)


def finish(name, fine):
    print(f"{name}:", f"{failures} failed" if failures else fine)
    sys.exit(failures != 0)
