#!/usr/bin/env python3
"""count-tests.py REPORT STATUS [TIMES]: summarizes a JSON report of lit: the
slowest tests, then one line of counts.

STATUS is lit's exit status. Exits with 0 only if something passed, nothing
failed and lit itself succeeded. TIMES is a file to write: the seconds of every
test that took at least SLOW seconds, from which the fast tier is chosen. Tests
that were skipped keep what it says of them: another processor runs them.
"""
import json
import sys

SHOWN = 20  # slowest tests
SLOW = 0.5  # seconds

KINDS = {
    "PASS": "passed",
    "XFAIL": "passed",
    "UNSUPPORTED": "skipped",
    "SKIPPED": "skipped",
    "EXCLUDED": None,
}


def name_of(test):
    return test["name"].split(" :: ", 1)[-1].removeprefix("./")


def slowest(tests):
    """(seconds, name) of the tests, the slowest first."""
    return sorted(((test.get("elapsed") or 0, name_of(test)) for test in tests), reverse=True)


def read_times(path):
    """From a test's name to its seconds."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.split(maxsplit=1) for line in file if not line.startswith("#")]
    except FileNotFoundError:
        return {}
    return {name.strip(): float(seconds) for seconds, name in lines}


def write_times(path, tests):
    old = read_times(path)
    skipped = {name_of(test) for test in tests if KINDS.get(test["code"]) == "skipped"}
    times = [(old[name], name) for name in skipped if name in old]
    times += [each for each in slowest(tests) if each[0] >= SLOW and each[1] not in skipped]
    with open(path, "w", encoding="utf-8") as file:
        file.write("# Seconds of tests, by scripts/run-tests.sh --record: see test/README.md.\n")
        for seconds, name in sorted(times, reverse=True):
            file.write(f"{seconds:.1f} {name}\n")


def main():
    path, status = sys.argv[1], int(sys.argv[2])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    try:
        with open(path, encoding="utf-8") as report:
            tests = json.load(report)["tests"]
    except (OSError, ValueError, KeyError) as error:
        print(f"count-tests.py: no report of lit in {path}: {error}", file=sys.stderr)
        tests, status = [], status or 1
    for test in tests:
        # Unknown codes are failures.
        kind = KINDS.get(test["code"], "failed")
        if kind:
            counts[kind] += 1
    if status != 0 and counts["failed"] == 0:
        # lit broke without a failing test: that is one failure.
        counts["failed"] = 1
    print(f"slowest {SHOWN} of {sum(counts.values())} tests:")
    for seconds, name in slowest(tests)[:SHOWN]:
        print(f"{seconds:8.1f} s  {name}")
    if len(sys.argv) > 3:
        write_times(sys.argv[3], tests)
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    print(line)
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


sys.exit(main())
