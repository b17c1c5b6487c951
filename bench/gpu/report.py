#!/usr/bin/env python3
"""The results of run.sh's parts, as one table on standard output and one
results.json.

    report.py RESULTS"""
import datetime
import json
import pathlib
import re
import sys


def read_json(file):
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def read_parts(file):
    """(name, outcome, seconds) of each part; an outcome may contain a program's output, also tabs."""
    rows = []
    for line in file.read_text().splitlines():
        name, *outcome, seconds = line.split("\t")
        rows.append((name, " ".join(outcome), int(seconds)))
    return rows


def cell(text):
    """`text` in a table."""
    return text.replace("|", "\\|")


def kernel_seconds(bench):
    """Seconds of a program's kernels, one by one with flushed caches, as libraries are
    timed."""
    return sum(k["seconds"] * k["launches"] for k in bench["kernels"])


def optimizer_seconds(bench):
    """Seconds of the optimizer kernels: the only ones with a square root that update in
    place."""
    return sum(k["seconds"] * k["launches"] for k in bench["kernels"]
               if k["fused"] == "mul, add, sqrt, div, sub")


def compare(benches, library):
    """(what, ours, theirs, whose)"""
    rows = []
    for program, times in library.items():
        if program == "adamw":
            ours = optimizer_seconds(benches["step-gpt2"]) if "step-gpt2" in benches else 0
        else:
            ours = kernel_seconds(benches[program]) if program in benches else 0
        rows += [(program, ours, theirs, whose) for whose, theirs in times.items() if ours]
    return rows


def compare_steps(parts, benches):
    rows = []
    for model in ("gpt2", "llama"):
        bench, log = benches.get(f"step-{model}"), parts / f"pytorch-{model}.log"
        last = log.read_text().strip().splitlines()[-1:] if log.exists() else []
        if bench and last and re.fullmatch(r"\d+\.\d+", last[0]):
            rows.append((f"training step, {model}", bench["program_seconds"], float(last[0]),
                         "PyTorch, the best that was measured in time"))
    return rows


def print_tables(result, benches):
    print(f"# {result['date']}, {result['gpu']}\n")
    print("| part | outcome | s |\n|---|---|---|")
    for part in result["parts"]:
        print(f"| {part['part']} | {cell(part['outcome'])} | {part['seconds']} |")
    if result["comparisons"]:
        print("\n| | here, us | library, us | library | times as fast |\n|---|---|---|---|---|")
    for row in result["comparisons"]:
        print(f"| {row['what']} | {row['seconds'] * 1e6:.1f} | {row['library_seconds'] * 1e6:.1f} | {row['library']} "
              f"| {row['library_seconds'] / row['seconds']:.2f} |")
    for name, bench in benches.items():
        if bench["emulated"]:
            print(f"\n{name}: {len(bench['kernels'])} kernels ran on {bench['device']}; no times")
            continue
        print(f"\n{name} on {bench['device']}: {bench['program_seconds'] * 1e3:.3f} ms; "
              f"memory {bench['copy_bytes_per_second'] / 1e9:.0f} GB/s\n")
        print("| kernel | runs | us | GB/s | TFLOP/s | of its roof | bound by |\n|---|---|---|---|---|---|---|")
        for k in bench["kernels"][:25]:
            s = k["seconds"] or float("nan")
            print(f"| {k['name']} | {k['launches']} | {s * 1e6:.1f} | {k['bytes'] / s / 1e9:.0f} "
                  f"| {k['flops'] / s / 1e12:.1f} | {100 * k['of_roof']:.0f} % | {k['bound']} |")


def main():
    results = pathlib.Path(sys.argv[1])
    parts = results / "parts"
    benches = {file.stem: bench for file in sorted(parts.glob("*.json"))
               if (bench := read_json(file)) and isinstance(bench, dict) and "kernels" in bench}
    library = read_json(parts / "library.json") or {}
    comparisons = compare(benches, library) + compare_steps(parts, benches)
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "gpu": (parts / "gpu.txt").read_text().strip(),
        "parts": [{"part": name, "outcome": outcome, "seconds": s}
                  for name, outcome, s in read_parts(results / "parts.tsv")],
        "exact": read_json(parts / "exact.json"), "numerics": read_json(parts / "numerics.json"),
        "comparisons": [{"what": what, "seconds": ours, "library_seconds": theirs, "library": whose}
                        for what, ours, theirs, whose in comparisons],
        "library": library, "benches": benches}
    (results / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    print_tables(result, benches)


if __name__ == "__main__":
    main()
