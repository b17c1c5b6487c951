#!/usr/bin/env python3
"""Runs iopddl on instances of the ASPLOS/EuroSys 2025 contest and prints a table.

    bench/iopddl/table.py FOLDER [--seconds 60] [--iopddl build/bin/iopddl] [INSTANCE...]

FOLDER has A.json.gz and so on (google/iopddl, benchmarks/). A score is the best
published cost divided by ours, 0 where an answer is missing, late or infeasible.
Answers are checked here, by code that is independent of the solver.
"""
import argparse
import gzip
import json
import pathlib
import subprocess
import time

# The best of 20 teams, on 8 cores and with limits of 60 to 300 s.
PUBLISHED = {
    "A": 6548641531, "B": 532843, "C": 84102445260, "G": 217039,
    "K": 2274276676, "L": 1970993742, "M": 49928460991, "V": 1632051,
}


def evaluate(problem, choice):
    """The cost of a choice, or None where it uses more than the limit."""
    nodes, edges = problem["nodes"], problem["edges"]
    if len(choice) != len(nodes["costs"]):
        return None
    cost = sum(costs[i] for costs, i in zip(nodes["costs"], choice))
    for (a, b), costs in zip(edges["nodes"], edges["costs"]):
        cost += costs[choice[a] * len(nodes["costs"][b]) + choice[b]]
    changes = []
    for interval, usages, i in zip(nodes["intervals"], nodes["usages"], choice):
        if interval and interval[0] < interval[1]:
            changes += [(interval[0], usages[i]), (interval[1], -usages[i])]
    usage = 0
    for _, change in sorted(changes):
        usage += change
        if usage > problem["usage_limit"]:
            return None
    return cost


def run(tool, path, seconds):
    start = time.monotonic()
    output = subprocess.run([tool, path, str(seconds)], capture_output=True, text=True)
    elapsed = time.monotonic() - start
    if output.returncode != 0:
        return None, elapsed
    choice = json.loads(output.stdout.splitlines()[-1])
    with gzip.open(path) as file:
        return evaluate(json.load(file)["problem"], choice), elapsed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("instances", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--iopddl", default="build/bin/iopddl")
    args = parser.parse_intermixed_args()
    print("| instance | best published | ours | score | seconds |\n|---|---|---|---|---|")
    total = 0
    for name in args.instances:
        cost, elapsed = run(args.iopddl, args.folder / f"{name}.json.gz", args.seconds)
        ok = cost is not None and elapsed <= args.seconds
        score = PUBLISHED[name] / cost if ok else 0
        total += score
        print(f"| {name} | {PUBLISHED[name]} | {cost} | {score:.4f} | {elapsed:.1f} |", flush=True)
    print(f"| sum | | | {total:.4f} of {len(args.instances)} | |")


if __name__ == "__main__":
    main()
