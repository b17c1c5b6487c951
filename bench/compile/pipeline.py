#!/usr/bin/env python3
"""Compile time against the number of microbatches on pipelines: CPU seconds of one
command for each schedule, number of stages and accumulation, and how many times the
longest takes of the shortest.

    bench/compile/pipeline.py --bin build/bin
    bench/compile/pipeline.py --bin build/bin --schedule 1f1b zb-h1 --pipe 2
"""
import argparse
import os
import pathlib
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def seconds(arguments, folder, mesh, accumulate):
    """User and system time: the least of `--repeat` compilations."""
    best = float("inf")
    for _ in range(arguments.repeat):
        before = os.times()
        subprocess.run(
            [arguments.bin / "tessera", "compile", arguments.spec, "--mode", "train",
             "--set", "batch.micro=4", "--set", f"batch.sequence={arguments.sequence}",
             "--set", f"batch.accumulate={accumulate}", "--mesh", mesh, "--target",
             "cpu:avx2", "--cache", "off", "--to", arguments.to, "-o",
             folder / "module.mlir"], check=True, stderr=subprocess.PIPE)
        after = os.times()
        best = min(best, after.children_user - before.children_user
                   + after.children_system - before.children_system)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build/bin")
    parser.add_argument("--spec", type=pathlib.Path,
                        default=SOURCE / "models/specs/llama-1b")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--pipe", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--schedule", nargs="+",
                        default=["1f1b", "interleaved", "zb-h1", "zb-v", "gpipe"])
    parser.add_argument("--accumulate", type=int, nargs="+",
                        default=[8, 16, 32, 64, 128])
    parser.add_argument("--to", default="planning", help="the last phase")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{arguments.spec.name}, --to {arguments.to}, CPU seconds\n")
    print("| mesh |", " | ".join(map(str, arguments.accumulate)), "| last / first |")
    print("|---" + "|--:" * (len(arguments.accumulate) + 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for pipe in arguments.pipe:
            for schedule in arguments.schedule:
                mesh = f"pipe={pipe},schedule={schedule}"
                row = [seconds(arguments, pathlib.Path(folder), mesh, accumulate)
                       for accumulate in arguments.accumulate]
                cells = " | ".join(f"{each:.2f}" for each in row)
                print(f"| {mesh} | {cells} | {row[-1] / row[0]:.2f} |", flush=True)


main()
