#!/usr/bin/env python3
"""GRPO on a task that a program checks: reversing words of three.

    bench/rl/reverse.py BIN SCRATCH [--seeds 5] [--steps 150] [--staleness 0,4]

Trains a model of 1.8 M parameters on answers of which 8 % are right (once a SCRATCH), then runs
tessera rl on it for each seed and staleness, interleaved, and prints for each run the mean reward
of the first and the last ten steps, the first step from which ten steps have a mean of 0.9, and
wall-clock in seconds. Standard library only.
"""
import argparse
import json
import pathlib
import shutil
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/e2e/Inputs"))
import harness  # noqa: E402
import rl_task  # noqa: E402

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
          "vocab_size": 257, "hidden_size": 192, "intermediate_size": 512,
          "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
          "head_dim": 48, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": True, "bos_token_id": 0,
          "eos_token_id": 0}
SETS = ["batch.sequence=128", "batch.micro=16", "rollout.max_tokens=5", "rollout.prompts=16",
        "rollout.group=16", "optimizer.lr=3e-4", "optimizer.weight_decay=0",
        "lr_schedule.name=constant", "checkpoint.every=0"]
WINDOW = 10
GOAL = 0.9


def base(tessera, scratch):
    folder = scratch / "base"
    if not (folder / "model/config.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        spec = scratch / "spec"
        spec.mkdir(parents=True, exist_ok=True)
        (spec / "config.json").write_text(json.dumps(CONFIG))
        rl_task.make_base(tessera, folder, spec, 3, 300, [
            "batch.micro=32", "optimizer.lr=2e-3", "lr_schedule.total=300",
            "lr_schedule.warmup=20", "eval.every=0"])
    return folder / "model", folder / "prompts.jsonl"


def learn(tessera, model, prompts, out, seed, staleness, steps):
    shutil.rmtree(out, ignore_errors=True)
    keys = [*SETS, f"seed={seed}", f"rollout.staleness={staleness}"]
    begin = time.monotonic()
    harness.run(tessera, "rl", model, "--prompts", prompts, "--reward",
                f"{sys.executable} {ROOT / 'examples/rl/match.py'}", "--out", out, "--steps",
                steps, "--quiet", *[word for key in keys for word in ("--set", key)])
    seconds = time.monotonic() - begin
    rewards = [record["rollout"]["reward"] for record in harness.metrics(out)]
    return rewards, seconds


def mean(values):
    return sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--staleness", default="0,4")
    options = parser.parse_args()
    tessera = options.binaries / "tessera"
    model, prompts = base(tessera, options.scratch)
    print("seed  staleness  first  last   step of 0.9  seconds")
    for seed in range(1, options.seeds + 1):
        for staleness in map(int, options.staleness.split(",")):
            rewards, seconds = learn(tessera, model, prompts, options.scratch / "run", seed,
                                     staleness, options.steps)
            reached = next((step + WINDOW for step in range(len(rewards) - WINDOW + 1)
                            if mean(rewards[step:step + WINDOW]) >= GOAL), None)
            print(f"{seed:4}  {staleness:9}  {mean(rewards[:WINDOW]):.3f}  "
                  f"{mean(rewards[-WINDOW:]):.3f}  {reached or '-':>11}  {seconds:7.1f}",
                  flush=True)


if __name__ == "__main__":
    main()
