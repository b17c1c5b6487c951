#!/usr/bin/env python3
"""Predicted and measured step times of MPI ranks that share this machine's cores.

    bench/plan/calibrate.py SCRATCH compile [--only MODEL] [--ranks N]
    bench/plan/calibrate.py SCRATCH measure [--seconds 240] [--repeats 3]
    bench/plan/calibrate.py SCRATCH report

`compile` calibrates the machine (`tessera doctor --calibrate`, unless SCRATCH has a
cluster.yaml), compiles every model on every mesh, and lets `--mesh auto --cluster` choose one
mesh for each model and number of ranks, which joins the others. `measure` trains each program
under mpirun for --run seconds and keeps the times of all steps but the first two; repeats are
interleaved, and it ends after --seconds, to be called again until it says that all is
measured. `report` predicts each step with `tessera inspect --cluster` and prints the tables.

A measured time is the median step of the fastest repeat: other work on the machine only makes
steps longer.
"""
import argparse
import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/e2e/Inputs"))
import harness  # noqa: E402

QUIET = ["eval.every=0", "checkpoint.every=0"]
MODELS = {
    "tiny-gpt2": ["batch.micro=8", "batch.accumulate=4", "batch.sequence=64"],
    "gpt2-10m": ["batch.micro=8", "batch.accumulate=2", "batch.sequence=32"],
    "llama-15m": ["batch.micro=8", "batch.accumulate=2", "batch.sequence=16"],
    "tiny-mixtral": ["batch.micro=8", "batch.accumulate=2", "batch.sequence=64"],
    "tiny-qwen-moe": ["batch.micro=8", "batch.accumulate=2", "batch.sequence=64",
                      "moe.balance=sequence"],
}
DENSE = {
    2: ["data=2", "data=2,zero=1", "data=2,zero=3", "tensor=2", "pipe=2", "context=2"],
    4: ["data=4", "data=4,zero=1", "data=2,tensor=2", "tensor=4", "pipe=2,data=2",
        "data=2,context=2", "pipe=2,tensor=2"],
    8: ["data=8", "data=8,zero=1", "data=4,tensor=2", "data=2,tensor=4", "pipe=2,data=4",
        "pipe=2,data=2,tensor=2", "data=4,context=2"],
}
EXPERTS = {
    2: ["data=2", "data=2,zero=1", "expert=2", "tensor=2", "pipe=2"],
    4: ["data=4,zero=1", "expert=4", "expert=2,data=2", "expert=2,tensor=2", "pipe=2,data=2",
        "pipe=2,expert=2"],
    8: ["data=8,zero=1", "expert=8", "expert=4,data=2", "expert=2,data=2,tensor=2",
        "pipe=2,data=4", "pipe=2,expert=4"],
}


def meshes_of(model):
    return EXPERTS if "moe" in model or "mixtral" in model else DENSE


class Pairs:
    """What SCRATCH holds: programs by model, ranks and mesh, and their measured steps."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "pairs.json"
        self.all = json.loads(self.file.read_text()) if self.file.exists() else {}

    def save(self):
        self.file.write_text(json.dumps(self.all))

    def add(self, model, ranks, mesh, program, **more):
        key = f"{model} {ranks} {mesh}"
        self.all.setdefault(key, {"model": model, "ranks": ranks, "mesh": mesh,
                                  "program": str(program), "runs": []}).update(more)
        self.save()


def tessera(options, *words):
    return subprocess.run([str(options.bin / "tessera"), *map(str, words)], capture_output=True,
                          text=True)


def compile_one(options, model, ranks, words, program):
    sets = [f"--set={each}" for each in MODELS[model] + QUIET]
    return tessera(options, "compile", ROOT / "models/specs" / model, *sets, *words,
                   "--target", options.target, "-o", program)


def compile_all(options, pairs):
    cluster = options.scratch / "cluster.yaml"
    if not cluster.exists():
        done = tessera(options, "doctor", "--calibrate", "-o", cluster)
        print(done.stdout, done.stderr, flush=True)
    for model in MODELS:
        if options.only and model != options.only:
            continue
        for ranks, meshes in meshes_of(model).items():
            if options.ranks and ranks != options.ranks:
                continue
            for mesh in meshes:
                program = options.scratch / f"{model}-{mesh.replace(',', '-')}"
                done = None if program.exists() else compile_one(
                    options, model, ranks, ["--mesh", mesh], program)
                if done and done.returncode:
                    print(f"{model} {mesh}: {done.stderr.splitlines()[-1]}", flush=True)
                else:
                    pairs.add(model, ranks, mesh, program)
            program = options.scratch / f"{model}-auto-{ranks}"
            begin = time.time()
            done = compile_one(options, model, ranks, ["--mesh", "auto", "--world", ranks,
                                                       "--cluster", cluster], program)
            found = re.search(r"^tessera: mesh (\S+):", done.stderr, re.M)
            if not found:
                sys.exit(f"{model} on {ranks}: {done.stderr}")
            print(f"{model} on {ranks}: chose {found[1]} in {time.time() - begin:.0f} s",
                  flush=True)
            for pair in pairs.all.values():
                if (pair["model"], pair["ranks"]) == (model, ranks):
                    pair["chosen"] = False
            pairs.add(model, ranks, found[1], program, chosen=True)


def steps_of(options, tokens, pair, steps):
    run = options.scratch / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = ["mpirun", "-n", str(pair["ranks"]), pair["program"], "--data", str(tokens), "--out",
               str(run), "--steps", str(steps)]
    allowed = dict.fromkeys(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "OMPI_MCA_rmaps_base_oversubscribe"], "1")
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **allowed})
    times = [json.loads(line).get("step_time") for line in
             (run / "metrics.jsonl").read_text().splitlines()]
    return [each for each in times if each is not None][2:]


def measure(options, pairs):
    data = options.scratch / "data"
    if not (data / "tokens/train").exists():
        shutil.rmtree(data, ignore_errors=True)
        harness.make_tokens(options.bin, data)
    end = time.time() + options.seconds
    for repeat in range(options.repeats):
        for key, pair in pairs.all.items():
            if len(pair["runs"]) > repeat:
                continue
            if time.time() > end:
                print(f"in repeat {repeat + 1}; call measure again")
                return 1
            if "estimate" not in pair:
                pair["estimate"] = predict(options, pair)
            steps = max(6, min(60, int(options.run / pair["estimate"])))
            times = steps_of(options, data / "tokens", pair, steps)
            pair["runs"].append(times)
            pairs.save()
            print(f"{key}: {1e3 * statistics.median(times):.2f} ms, predicted "
                  f"{1e3 * pair['estimate']:.2f}, fastest {1e3 * min(times):.2f}", flush=True)
    print("all is measured")
    return 0


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def predict(options, pair):
    done = tessera(options, "inspect", pair["program"], "--cluster",
                   options.scratch / "cluster.yaml")
    found = re.search(r"predicted step: ([\d.]+) (\w+)", done.stdout)
    if not found:
        sys.exit(f"{pair['program']}: {done.stderr}")
    return float(found[1]) * UNITS[found[2]]


def spearman(pairs):
    """Of (predicted, measured); ties share the mean of their ranks."""
    def ranks(values):
        order = sorted(values)
        return [(2 * order.index(value) + order.count(value) - 1) / 2 for value in values]
    first, second = (ranks([pair[i] for pair in pairs]) for i in (0, 1))
    return statistics.correlation(first, second)


def report(options, pairs):
    groups, models, rows = (collections.defaultdict(list), collections.defaultdict(list), [])
    for pair in pairs.all.values():
        if not pair["runs"]:
            continue
        measured = min(statistics.median(times) for times in pair["runs"])
        row = (predict(options, pair), measured, pair)
        rows.append(row)
        groups[pair["model"], pair["ranks"]].append(row)
        models[pair["model"]].append(row)
    print("| model | ranks | mesh | predicted ms | measured ms | predicted / measured |")
    print("|---|---|---|---|---|---|")
    for predicted, measured, pair in rows:
        mark = " (chosen)" if pair.get("chosen") else ""
        print(f"| {pair['model']} | {pair['ranks']} | `{pair['mesh']}`{mark} | "
              f"{1e3 * predicted:.1f} | {1e3 * measured:.1f} | {predicted / measured:.2f} |")
    print("\n| model | ranks | meshes | Spearman | chosen | best | chosen / best |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for (model, ranks), group in groups.items():
        best = min(group, key=lambda row: row[1])
        chosen = next(row for row in group if row[2].get("chosen"))
        ratios.append(chosen[1] / best[1])
        print(f"| {model} | {ranks} | {len(group)} | {spearman(group):.2f} | "
              f"`{chosen[2]['mesh']}` | `{best[2]['mesh']}` | {ratios[-1]:.3f} |")
    errors = sorted(abs(predicted / measured - 1) for predicted, measured, _ in rows)
    for model, group in models.items():
        print(f"{model}: Spearman {spearman(group):.3f} of {len(group)} pairs")
    print(f"all: Spearman {spearman(rows):.3f} of {len(rows)} pairs; error of the step: median "
          f"{100 * statistics.median(errors):.1f} %, worst {100 * errors[-1]:.1f} %; chosen / "
          f"best: at most {max(ratios):.3f}, {sum(each <= 1.05 for each in ratios)} of "
          f"{len(ratios)} within 1.05")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scratch", type=Path)
    parser.add_argument("what", choices=["compile", "measure", "report"])
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--target", default="cpu", help="of the programs")
    parser.add_argument("--only", help="one model")
    parser.add_argument("--ranks", type=int, help="one number of ranks")
    parser.add_argument("--seconds", type=float, default=240, help="of one call of measure")
    parser.add_argument("--run", type=float, default=2.5, help="seconds of one run")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    options.scratch = options.scratch.resolve()
    options.scratch.mkdir(parents=True, exist_ok=True)
    pairs = Pairs(options.scratch)
    if options.what == "measure":
        sys.exit(measure(options, pairs))
    {"compile": compile_all, "report": report}[options.what](options, pairs)


main()
