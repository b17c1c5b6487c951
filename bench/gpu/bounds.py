#!/usr/bin/env python3
"""Bounds of every kernel of whole programs, from machine code; no GPU is used.

    bench/gpu/bounds.py --list
    bench/gpu/bounds.py gpt2-train llama-decode --save after.json
    bench/gpu/bounds.py --before before.json --load after.json

Compiles each program (needs nvcc), runs `tessera inspect --kernels` (needs
nvdisasm) for sm_90a and sm_80 and prints Markdown: the step's bound against its
limit, where it exceeds the roofline, and every kernel. With --before also what
changed. The exit code is 1 if a program exceeds its limit.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CHIPS = {"sm_90a": "H200", "sm_80": "A100"}
LLAMA = "models/specs/llama-1b --set precision.compute=bf16"
DECODE = "--mode infer --set inference.batch=1"
MIXTRAL = "models/specs/tiny-mixtral --set precision.compute=bf16"

# Arguments of `tessera compile`, and the most milliseconds of a run on an H200 by
# the larger of roofline and latency bound; None: no limit was set.
PROGRAMS = {
    "gpt2-train": ("models/specs/gpt2-124m --recipe recipes/gpt2-124m.yaml --set "
                   "batch.micro=8 --set batch.accumulate=1 --mode artifact", 13),
    "llama-train": (f"{LLAMA} --set batch.micro=4 --set batch.sequence=2048 "
                    "--mode artifact", 105),
    "llama-decode": (f"{LLAMA} {DECODE}", 1.0),
    "llama-decode-int4": (f"{LLAMA} {DECODE} --quant int4", 1.0),
    "llama-decode-fp8": (f"{LLAMA} {DECODE} --quant fp8", 1.0),
    "mixtral-train": (f"{MIXTRAL} --recipe recipes/tiny-mixtral.yaml --mode artifact",
                      None),
    "mixtral-decode": (f"{MIXTRAL} {DECODE}", None),
}

ROW = re.compile(
    r" *(?P<runs>\d+|or) .*? (?P<roofline>[\d.]+) +(?P<latency>[\d.]+\+?|\?) +"
    r"(?P<waits>\d+|\?) +(?P<flight>[\d.]+|\?) +(?P<generic>\d+|-) "
    r"(?P<binds>bandwidth|FLOPs|tail|chain|in flight|issue|MUFU|\?) *"
    r"  (?P<name>\w+): ")
TOTAL = re.compile(r"at least (\d+) us by the larger of roofline and latency")


def compiled(tessera, name, folder):
    """The program's artifact, compiled unless it exists."""
    path = folder / f"{name}.tsr"
    if not path.exists():
        subprocess.run(
            [tessera, "compile", *PROGRAMS[name][0].split(), "--target",
             ",".join(f"cuda:{target}" for target in CHIPS), "--no-emulate", "-o",
             path], check=True, cwd=SOURCE)
    return path


def inspect(tessera, artifact, target):
    """The rows of `inspect --kernels`, and the bound of a run in ms."""
    done = subprocess.run(
        [tessera, "inspect", artifact, "--kernels", "--device", f"cuda:{target}"],
        check=True, stdout=subprocess.PIPE, text=True, cwd=SOURCE)
    total = TOTAL.search(done.stdout)
    if not total:
        sys.exit(f"bounds.py: {done.stdout.splitlines()[-1]}")
    rows = [match.groupdict() for match in map(ROW.match, done.stdout.splitlines())
            if match]
    for row in rows:
        row["roofline"] = float(row["roofline"])
    return {"rows": rows, "bound": int(total[1]) / 1000}


def bound_of(row):
    """Microseconds of a launch at least."""
    latency = row["latency"].rstrip("+")
    return max(row["roofline"], 0 if latency == "?" else float(latency))


def launches(table):
    """(launches, best variant) of each kernel."""
    result = []
    for row in table["rows"]:
        if row["runs"] != "or":
            result.append((int(row["runs"]), row))
        elif bound_of(row) < bound_of(result[-1][1]):
            result[-1] = (result[-1][0], row)
    return result


def roofline_of(table):
    return sum(runs * row["roofline"] for runs, row in launches(table)) / 1000


def print_steps(results):
    print("## Steps\n\n| program | chip | roofline, ms | at least, ms | limit, ms | "
          "kernels without a bound |\n|---|---|---|---|---|---|")
    for name, tables in results.items():
        for target, table in tables.items():
            limit = PROGRAMS[name][1] if target == "sm_90a" else None
            unknown = [row["name"] for _, row in launches(table)
                       if row["latency"] == "?"]
            print(f"| {name} | {CHIPS[target]} | {roofline_of(table):.3f} | "
                  f"{table['bound']:.3f} | {limit or ''} | {', '.join(unknown)} |")


def print_losses(name, table, chip, count=12):
    def lost(entry):
        return entry[0] * (bound_of(entry[1]) - entry[1]["roofline"])
    ranked = sorted(launches(table), key=lost, reverse=True)[:count]
    print(f"\n### {name} on an {chip}: where the bound exceeds the roofline\n\n"
          "| kernel | launches | roofline, µs | latency, µs | waits | KiB/SM | binds | "
          "lost, µs |\n|---|---|---|---|---|---|---|---|")
    for runs, row in ranked:
        if lost((runs, row)) > 0.05:
            print(f"| {row['name']} | {runs} | {cells(row)} | "
                  f"{lost((runs, row)):.1f} |")


def cells(row):
    return " | ".join([f"{row['roofline']:.2f}", row["latency"], row["waits"],
                       row["flight"], row["binds"]])


def print_all(name, table, chip):
    print(f"\n### {name} on an {chip}\n\n| kernel | launches | roofline, µs | latency, "
          "µs | waits | KiB/SM | binds |\n|---|---|---|---|---|---|---|")
    for row in table["rows"]:
        print(f"| {row['name']} | {row['runs']} | {cells(row)} |")


def print_changes(name, before, after, chip):
    """Kernels whose bound in a run changed by 1 % of the run's, by name."""
    old = {row["name"]: (runs, row) for runs, row in launches(before)}
    print(f"\n### {name} on an {chip}: {before['bound']:.3f} → {after['bound']:.3f} "
          "ms\n\n| kernel | launches | roofline, µs | latency before | after | waits | "
          "KiB/SM | binds |\n|---|---|---|---|---|---|---|---|")
    for runs, row in launches(after):
        if row["name"] not in old:
            print(f"| {row['name']} | {runs} | {row['roofline']:.2f} | none | "
                  f"{row['latency']} | {row['waits']} | {row['flight']} | "
                  f"{row['binds']} |")
            continue
        was = old.pop(row["name"])
        if abs(was[0] * bound_of(was[1]) - runs * bound_of(row)) * 100 < \
                1000 * after["bound"]:
            continue
        print(f"| {row['name']} | {runs} | {row['roofline']:.2f} | "
              f"{was[1]['latency']} | {row['latency']} | {was[1]['waits']}, "
              f"{row['waits']} | {was[1]['flight']}, {row['flight']} | "
              f"{was[1]['binds']}, {row['binds']} |")
    for was, (runs, row) in old.items():
        print(f"| {was} | {runs} | {row['roofline']:.2f} | {row['latency']} | gone | "
              f"{row['waits']} | {row['flight']} | {row['binds']} |")


def collect(arguments):
    if arguments.load:
        return json.loads(arguments.load.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or pathlib.Path(scratch)
        folder.mkdir(exist_ok=True)
        tessera = (arguments.bin / "tessera").resolve()
        return {name: {target: inspect(tessera,
                                       compiled(tessera, name, folder.resolve()),
                                       target) for target in CHIPS}
                for name in arguments.programs or PROGRAMS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM",
                        help=f"default: all of {', '.join(PROGRAMS)}")
    parser.add_argument("--list", action="store_true", help="print how each is made")
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build/bin")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR",
                        help="keep artifacts there, and use those that are there")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE",
                        help="write the tables as JSON")
    parser.add_argument("--load", type=pathlib.Path, metavar="FILE",
                        help="print what --save wrote; compile nothing")
    parser.add_argument("--before", type=pathlib.Path, metavar="FILE",
                        help="an earlier one, for what changed")
    arguments = parser.parse_args()
    for name in arguments.programs:
        if name not in PROGRAMS:
            parser.error(f"unknown program {name}")
    if arguments.list:
        for name, (command, _) in PROGRAMS.items():
            print(f"{name}: tessera compile {command}")
        return 0
    results = collect(arguments)
    if arguments.save:
        arguments.save.write_text(json.dumps(results))
    before = json.loads(arguments.before.read_text()) if arguments.before else {}
    print_steps(results)
    for part, show in (("Losses", print_losses), ("All kernels", print_all)):
        print(f"\n## {part}")
        for name, tables in results.items():
            for target, table in tables.items():
                show(name, table, CHIPS[target])
        if part == "Losses" and before:
            print("\n## What changed")
            for name in results.keys() & before.keys():
                for target, table in results[name].items():
                    print_changes(name, before[name][target], table, CHIPS[target])
    return int(any(PROGRAMS[name][1] and tables["sm_90a"]["bound"] > PROGRAMS[name][1]
                   for name, tables in results.items()))


if __name__ == "__main__":
    sys.exit(main())
