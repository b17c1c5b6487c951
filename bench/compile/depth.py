#!/usr/bin/env python3
"""Compile time against depth: the time of each phase for a shallow and a deep model
of one run, and their ratio. The phases from precision to selection see four of many
equal layers, on a mesh those until fusion.

    bench/compile/depth.py --bin build/bin
    bench/compile/depth.py --bin build/bin --mesh data=2,tensor=2
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def phases(arguments, folder, layers):
    """Seconds by phase: the least of `--repeat` compilations."""
    config = json.loads((arguments.spec / "config.json").read_text())
    config["n_layer" if "n_layer" in config else "num_hidden_layers"] = layers
    spec = folder / f"layers-{layers}"
    spec.mkdir()
    (spec / "config.json").write_text(json.dumps(config))
    best = {}
    for _ in range(arguments.repeat):
        mesh = ["--mesh", arguments.mesh] if arguments.mesh else []
        done = subprocess.run(
            [arguments.bin / "tessera", "compile", spec, "--recipe",
             arguments.recipe, "--mode", arguments.mode, *mesh, "--target",
             "cpu:avx2", "--cache", "off", "--timing", "--to", arguments.to, "-o",
             folder / "module.mlir"], check=True, stderr=subprocess.PIPE, text=True)
        for seconds, name in re.findall(r"^ *([0-9.]+) s  (\w+)$", done.stderr,
                                        re.MULTILINE):
            best[name] = min(best.get(name, float("inf")), float(seconds))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build/bin")
    parser.add_argument("--spec", type=pathlib.Path,
                        default=SOURCE / "models/specs/tiny-gpt2")
    parser.add_argument("--recipe", type=pathlib.Path,
                        default=SOURCE / "recipes/tiny-gpt2.yaml")
    parser.add_argument("--mesh", default="")
    parser.add_argument("--mode", choices=["train", "infer"], default="train")
    parser.add_argument("--layers", type=int, nargs=2, default=[8, 80])
    parser.add_argument("--to", default="planning", help="the last phase")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one, other = (phases(arguments, pathlib.Path(folder), layers)
                      for layers in arguments.layers)
    rows = [(name, one[name], other[name]) for name in one]
    rows.append(("all", sum(one.values()), sum(other.values())))
    mesh = f", --mesh {arguments.mesh}" if arguments.mesh else ""
    print(f"{arguments.spec.name}, --mode {arguments.mode}{mesh}, seconds\n")
    print("| phase | {} layers | {} layers | ratio |".format(*arguments.layers))
    print("|---|--:|--:|--:|")
    for name, few, many in rows:
        print(f"| {name} | {few:.3f} | {many:.3f} | {many / max(few, 1e-3):.1f} |")


main()
