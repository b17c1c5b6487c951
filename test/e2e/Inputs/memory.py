"""What a run holds in memory is what it said before its first step: the plan,
and what is outside of it."""
import os
import re
import subprocess
import sys

from harness import Prepared, check, metrics

MORE = 1.05  # of planned and outside together, as the largest peak
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def peak_of(*arguments):
    """Largest resident memory, by the kernel's account of the process, and
    what the process wrote."""
    process = subprocess.Popen([str(a) for a in arguments], text=True,
                               stderr=subprocess.PIPE)
    text = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"FAILED: {arguments}: status {status}\n{text}")
    return usage.ru_maxrss * 1024, text


def figure(text, name):
    number, unit = re.search(rf"^{name}: ([\d.]+) (\w+)", text, re.M).groups()
    return float(number) * UNITS[unit]


def judge(what, peak, text, run):
    planned = figure(text, "planned peak memory")
    outside = figure(text, "outside of the plan")
    said = figure(text, "peak memory")
    figures = ", ".join(f"{name} {value / 2**20:.2f} MiB" for name, value in (
        ("measured", peak), ("planned", planned), ("outside", outside)))
    check(peak <= (planned + outside) * MORE, f"{what}: within the plan: {figures}")
    # A plan with room to spare would pass the line above and plan nothing.
    check(peak >= planned, f"{what}: all of the plan is used")
    check(outside < 16 * 2**20, f"{what}: little is outside of it")
    check(abs(said - peak) < 2**20, f"{what}: the run says so itself")
    recorded = metrics(run)[-1]["peak_bytes"]
    check(recorded <= said + 2**20, f"{what}: and so do its metrics")


def main():
    made = Prepared(*sys.argv[1:3])
    tokens = made.tokens()
    for name in ("fp32", "dropout"):
        train, out = made.executable(name), made.scratch / name
        common = (train, "--data", tokens, "--out", out, "--eval-every", 2,
                  "--checkpoint-every", 2)
        judge(f"{name}, from nothing", *peak_of(*common, "--steps", 4), out)
        judge(f"{name}, resumed",
              *peak_of(*common, "--steps", 8, "--resume"), out)


main()
