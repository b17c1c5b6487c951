#!/usr/bin/env python3
"""count-tests.py REPORT STATUS: summarizes a JSON report of lit in one line.

STATUS is lit's exit status. Exits with 0 only if something passed, nothing
failed and lit itself succeeded.
"""
import json
import sys

KINDS = {
    "PASS": "passed",
    "XFAIL": "passed",
    "UNSUPPORTED": "skipped",
    "SKIPPED": "skipped",
    "EXCLUDED": None,
}


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
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    print(line)
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


sys.exit(main())
