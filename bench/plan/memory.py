#!/usr/bin/env python3
"""The memory that `tessera plan` plans, against that of the compiled programs.

    bench/plan/memory.py [--triples 40] [--seed 1] [--plans 10] [--json FILE]

Draws random models, clusters and recipes, and lets `tessera plan --prove`
compile the best plans of each up to the execution plan. Prints a line for each
plan, then the median and the worst difference, by recomputation and by ZeRO
stage, and how many programs do not fit. A triple that no plan fits, or whose
plans take longer than --timeout to compile, is listed and counted.
"""
import argparse
import collections
import json
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ["gpt2-124m", "gpt2-350m", "llama-110m", "llama-1b", "llama-3-8b", "mistral-7b",
          "qwen2-0.5b", "qwen3-0.6b", "qwen3-8b", "megatron-22b", "tiny-mixtral",
          "mixtral-8x7b", "qwen3-30b-a3b", "moe-106b-a14b"]
CLUSTERS = ["dgx-a100-80g-1x8", "dgx-a100-80g-32x8", "dgx-h100-1x8", "dgx-h100-128x8",
            "h200-128x8"]
ROW = re.compile(r"^ *([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([-+][\d.]+) %  (PP.*?)"
                 r"(: does not fit)?$", re.M)


def positions(model):
    config = json.loads((ROOT / "models/specs" / model / "config.json").read_text())
    return config.get("max_position_embeddings", config.get("n_positions"))


def draw(dice):
    """A model, the arguments that say which machines, and keys of a recipe."""
    model = dice.choice(MODELS)
    cluster = dice.choice(CLUSTERS)
    gpus = dice.choice([2, 4, 8] if "1x8" in cluster else [8, 16, 32, 64])
    sequence = min(dice.choice([512, 1024, 2048, 4096]), positions(model))
    # Few microbatches: a pipeline's program has a copy of its blocks for each.
    batch = gpus * dice.choice([1, 2, 4])
    keys = {"batch.sequence": sequence, "batch.micro": batch, "batch.accumulate": 1,
            "optimizer.name": dice.choice(["adamw", "adamw", "adamw", "sgd"]),
            "dropout.rate": dice.choice([0.0, 0.0, 0.0, 0.1]),
            "precision.compute": "bf16"}
    return model, cluster, gpus, keys


def plans_of(options, model, cluster, gpus, keys):
    words = [str(options.tessera), "plan", f"models/specs/{model}", "--cluster",
             f"hardware/clusters/{cluster}.yaml", "--gpus", str(gpus), "--prove",
             str(options.plans), "--internode-per-gpu", "25GB/s"]
    if "1x8" in cluster:
        words = words[:-2]
    for key, value in keys.items():
        words += ["--set", f"{key}={value}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True,
                          timeout=options.timeout)
    if done.returncode != 0:
        return None, done.stderr.splitlines()[-1]
    return [(float(planned), float(needed), plan, bool(too_large))
            for _, _, needed, planned, _, plan, too_large in ROW.findall(done.stdout)], ""


def summary(name, rows):
    errors = [abs(planned / needed - 1) for planned, needed, *_ in rows]
    return (f"{name:<28}{len(rows):>6}{100 * statistics.median(errors):>8.1f} %"
            f"{100 * max(errors):>8.1f} %{sum(error <= 0.03 for error in errors):>8}"
            f"{sum(row[3] for row in rows):>8}")


def measure(options, dice, rows, skipped):
    drawn = 0
    while drawn < options.triples:
        model, cluster, gpus, keys = draw(dice)
        title = f"{model}, {gpus} of {cluster}, " + ", ".join(
            f"{key.split('.')[-1]} {value}" for key, value in keys.items())
        begin = time.time()
        try:
            found, problem = plans_of(options, model, cluster, gpus, keys)
        except subprocess.TimeoutExpired:
            found, problem = None, f"longer than {options.timeout:.0f} s"
        if problem and "no plan of" in problem: # nothing to compile: draw another
            skipped["no plan fits by the model"] += 1
            continue
        drawn += 1
        print(f"{title} ({time.time() - begin:.0f} s)", flush=True)
        if not found:
            print(f"    {problem}", flush=True)
            skipped["timeout" if "longer" in problem else "refused"] += 1
            continue
        for planned, needed, plan, too_large in found:
            print(f"    {planned:8.2f} planned {needed:8.2f} GB compiled "
                  f"{100 * (planned / needed - 1):+7.1f} %  {plan}"
                  + (": does not fit" if too_large else ""), flush=True)
            rows.append((planned, needed, plan, too_large, title))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", type=Path, default=ROOT / "build/bin/tessera")
    parser.add_argument("--triples", type=int, default=40)
    parser.add_argument("--plans", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a triple")
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    rows, skipped = [], collections.Counter()
    try:
        measure(options, dice, rows, skipped)
    except KeyboardInterrupt:
        print("interrupted")
    if options.json:
        options.json.write_text(json.dumps(rows))
    if not rows:
        sys.exit("no plan was compiled")
    print(f"\n{'':<28}{'plans':>6}{'median':>10}{'worst':>10}{'<= 3 %':>8}{'no fit':>8}")
    print(summary("all", rows))
    for pattern in (r"ZeRO-\d", r" (none|selective|full) ", r" EP\d+", r" PP1 |^PP1 ", r"^PP[2-9]\d*",
                    r" TP[2-9]\d*", r" CP\d+"):
        groups = collections.defaultdict(list)
        for row in rows:
            if match := re.search(pattern, row[2]):
                groups[re.sub(r"(PP|TP|CP|EP)\d+", r"\1 > 1", match[0].replace(" ", "")[:9])
                       if "1 " not in pattern else "PP = 1"].append(row)
        for name in sorted(groups):
            print(summary(name, groups[name]))
    for reason, count in skipped.items():
        print(f"{count} drawn triples: {reason}")


main()
