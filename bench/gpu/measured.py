#!/usr/bin/env python3
"""What a GPU took against what machine code says it must take at least.

    bench/gpu/measured.py ARTIFACT bench.json [--most 20]

bench.json is of `bench-kernels --json` on that artifact, as run.sh leaves one for
each program. Prints Markdown: of each kernel its roofline at the measured copy rate,
its latency bound (of an H200's clocks, see compiler/target/cuda/sass), and the
measured time, the most time above both first. Needs nvdisasm.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import bounds


def rows_of(bench, table):
    """(time above the bound, kernel, launches, roofline, latency, measured, binds), in
    microseconds; a latency of 0 is unknown."""
    model = {row["name"]: row for row in table}
    for kernel in bench["kernels"]:
        row = model.get(kernel["name"])
        if not row or not kernel["seconds"]:
            continue
        latency = row["latency"].rstrip("+")
        latency = 0 if latency == "?" else float(latency)
        roof, measured = kernel["roof_seconds"] * 1e6, kernel["seconds"] * 1e6
        above = kernel["launches"] * (measured - max(roof, latency))
        yield above, kernel["name"], kernel["launches"], roof, latency, measured, row["binds"]


def inspected(tessera, artifact, program):
    done = subprocess.run(
        [tessera, "inspect", artifact, "--kernels", "--device", "cuda:sm_90a", "--program", program],
        stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)  # it has said why
    return [match.groupdict() for match in map(bounds.ROW.match, done.stdout.splitlines()) if match]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=pathlib.Path, metavar="ARTIFACT")
    parser.add_argument("bench", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=bounds.SOURCE / "build/bin")
    parser.add_argument("--most", type=int, default=20, help="rows")
    args = parser.parse_args()
    try:
        bench = json.loads(args.bench.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{args.bench}: {error}")
    table = inspected(args.bin / "tessera", args.artifact, bench["program"])
    if not table:
        sys.exit("measured.py: inspect printed no latency bounds; set TESSERA_NVDISASM to nvdisasm's path")
    rows = sorted(rows_of(bench, table), reverse=True)
    least = sum(row[2] * max(row[3:5]) for row in rows)
    print(f"{bench['program']}: {bench['program_seconds'] * 1e3:.2f} ms; at least {least / 1e3:.2f} ms by the larger of "
          "roofline and latency\n")
    print("| kernel | launches | roofline, µs | latency, µs | measured, µs | times the bound | binds | above it, µs |\n"
          "|---|---|---|---|---|---|---|---|")
    for above, name, launches, roof, latency, measured, binds in rows[:args.most]:
        print(f"| {name} | {launches} | {roof:.2f} | {latency or '?'} | {measured:.1f} "
              f"| {measured / max(roof, latency, 0.01):.2f} | {binds} | {above:.0f} |")


if __name__ == "__main__":
    main()
