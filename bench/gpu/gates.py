#!/usr/bin/env python3
"""Gates on the machine code of whole programs' kernels; no GPU is used.

    bench/gpu/gates.py llama-decode.tsr          # as bounds.py --keep leaves it

By `tessera inspect --kernels` for sm_90a and sm_80. No kernel may have

    generic   generic loads or stores

and no kernel that is 1 % or more of the run's bound

    unbound   a time line that cannot be followed, and so no bound
    flight    less than 24 KiB in flight on an SM, if memory binds it
    chain     waits one after the other that take more than 0.2 of its bound, each
              at least a round trip to the L2 cache
    tested    whole rows whose alignment is tested at run time, since the planner
              has not proven it: each has a path for single elements

Violators are in the allow-list, with its value. The list can only shrink: one
that is not in it, one that is worse than its value and an entry that violates
nothing any more are errors. --write writes the list anew, for a person to compare.
"""
import argparse
import pathlib
import re
import subprocess
import sys

import bounds

LEAST_FLIGHT = 24.0  # KiB
MOST_CHAIN = 0.2
LEAST_SHARE = 0.01  # of a run
SLACK = 1.02  # values are rounded for printing
# Nanoseconds of a load from the L2 cache, as in hardware/Gpus.cpp: what is
# waited for comes at best from there.
LATENCY = {"sm_90a": 291 / 1.98, "sm_80": 210 / 1.41}


CALL = re.compile(r"\bload<Micropanel\d+>\(|\bstore\(")


def arguments_of(text, start):
    """How many arguments the call has whose parenthesis is before `start`."""
    depth, commas = 1, 0
    for c in text[start:]:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(c, 0)
        commas += c == "," and depth == 1
        if depth == 0:
            break
    return commas + 1


def count_tested(source):
    """Rows without bounds and strides that are accessed with a test."""
    if "Fragments<" in source:  # tiles of two dimensions
        return 0
    return sum(arguments_of(source, call.end()) == 1 + call[0].startswith("store")
               for call in CALL.finditer(source))


def violations(key, table, source_of):
    """{(program, target, gate, kernel): value}."""
    found = {}
    for row in table["rows"]:
        if row["generic"] != "-":
            found[*key, "generic", row["name"]] = float(row["generic"])
    for runs, row in bounds.launches(table):
        bound = bounds.bound_of(row)
        if runs * bound < LEAST_SHARE * 1000 * table["bound"]:
            continue
        tested = count_tested(source_of(row["name"]))
        if tested:
            found[*key, "tested", row["name"]] = tested
        if row["latency"] == "?":
            found[*key, "unbound", row["name"]] = 1
            continue
        flight = float(row["flight"])
        if row["binds"] in ("bandwidth", "in flight") and flight < LEAST_FLIGHT:
            found[*key, "flight", row["name"]] = flight
        chain = float(row["waits"]) * LATENCY[key[1]] / 1000 / bound
        if chain > MOST_CHAIN:
            found[*key, "chain", row["name"]] = round(chain, 2)
    return found


def is_worse(gate, value, allowed):
    return (value * SLACK < allowed if gate == "flight" else
            value > allowed * SLACK)


def read_list(path):
    entries = {}
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            *key, value = words
            entries[tuple(key)] = float(value)
    return entries


def check(found, allowed):
    """What is wrong, a line each."""
    wrong = []
    for key, value in found.items():
        name = " ".join(key)
        if key not in allowed:
            wrong.append(f"{name}: {value:g} violates the gate")
        elif is_worse(key[2], value, allowed[key]):
            wrong.append(f"{name}: {value:g} is worse than the {allowed[key]:g} "
                         "that is allowed")
    wrong += [f"{' '.join(key)}: passes now; remove its line from the list"
              for key in allowed if key not in found]
    return wrong


def violations_of(tessera, artifact):
    """Those of a program, named after its file, for all targets."""
    found = {}
    for target in bounds.CHIPS:
        def source_of(kernel, target=target):
            return subprocess.run(
                [tessera, "inspect", artifact, f"--show={kernel}", "--device",
                 f"cuda:{target}"], check=True, stdout=subprocess.PIPE,
                text=True).stdout
        found |= violations((artifact.stem, target),
                            bounds.inspect(tessera, artifact, target), source_of)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", type=pathlib.Path, nargs="+", metavar="ARTIFACT",
                        help="compiled programs, named as in the list")
    parser.add_argument("--bin", type=pathlib.Path, default=bounds.SOURCE / "build/bin")
    parser.add_argument("--allow", type=pathlib.Path, metavar="FILE",
                        default=pathlib.Path(__file__).parent / "gates.txt")
    parser.add_argument("--write", action="store_true", help="write the list anew, but for other programs")
    arguments = parser.parse_args()
    tessera = (arguments.bin / "tessera").resolve()
    found = {}
    for artifact in arguments.artifacts:
        found |= violations_of(tessera, artifact.resolve())
    programs = {artifact.stem for artifact in arguments.artifacts}
    listed = read_list(arguments.allow)
    allowed = {key: value for key, value in listed.items() if key[0] in programs}
    if arguments.write:
        entries = {key: value for key, value in listed.items() if key not in allowed} | found
        arguments.allow.write_text("".join(
            f"{' '.join(key)} {value:g}\n" for key, value in sorted(entries.items())))
        return 0
    wrong = check(found, allowed)
    print("\n".join(wrong) or f"gates: {len(found)} violations, all allowed")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
