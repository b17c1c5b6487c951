#!/usr/bin/env python3
"""Memory of an adapter over quantized bases, and the time of its step against a base in bf16.

    bench/train/qlora.py BIN SCRATCH [--bases bf16 nf4 int8 int4 fp8] [--repeats 5]

Memory is the compiled artifact's: state, and the arena of a training step, for --models at one row
of --sequence tokens. Time is of --timed with --layers layers: programs with all bases
alternate, and the fastest step of each counts.
"""
import argparse
import json
import math
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/e2e/Inputs"))
import harness  # noqa: E402

STEPS = 4


class Bench:
    def __init__(self, options):
        self.options, self.tessera = options, options.bin / "tessera"
        shutil.rmtree(options.scratch, ignore_errors=True)
        options.scratch.mkdir(parents=True)

    def program(self, spec, base, rows, sequence):
        path = self.options.scratch / f"{spec.name}-{base}"
        keys = {"adapter.kind": "lora", "adapter.rank": 16, "adapter.base": base,
                "precision.compute": "bf16", "batch.micro": rows, "batch.sequence": sequence,
                "recompute": "full" if self.options.recompute else "none", "eval.every": 0,
                "checkpoint.every": 0}
        sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        harness.run(self.tessera, "compile", spec, *sets, "-o", path)
        return path

    def memory(self, model):
        spec = ROOT / "models/specs" / model
        for base in self.options.bases:
            program = self.program(spec, base, 1, self.options.sequence)
            text = harness.run(self.tessera, "inspect", program).stdout
            state, = re.findall(r"^state ([\d.]+) MB", text, re.M)
            arena, = re.findall(r"train_step: arena ([\d.]+) MB", text)
            print(f"{model}, {base} base: state {float(state) / 1e3:.2f} GB, arena of a step "
                  f"{float(arena) / 1e3:.2f} GB", flush=True)
            program.unlink()

    def small(self):
        """A directory of --timed with few layers and random weights, and tokens to train on."""
        config = json.loads((ROOT / "models/specs" / self.options.timed / "config.json").read_text())
        config["num_hidden_layers"] = self.options.layers
        config["vocab_size"] = 4096
        spec = self.options.scratch / "spec"
        spec.mkdir()
        (spec / "config.json").write_text(json.dumps(config))
        source = self.options.scratch / "text.jsonl"
        source.write_text("".join(json.dumps({"text": f"{i} and {i * i % 977}. " * 200}) + "\n"
                                  for i in range(400)))
        tokenizer, data = self.options.scratch / "tokenizer.json", self.options.scratch / "data"
        harness.run(self.tessera, "data", "tokenizer", "--vocab", 300, "--input", source,
                    "-o", tokenizer)
        harness.run(self.tessera, "data", "tokenize", "--tokenizer", tokenizer, "--input", source,
                    "-o", data)
        program, run = self.options.scratch / "start", self.options.scratch / "start-run"
        harness.run(self.tessera, "compile", spec, "--set", "batch.micro=1", "--set",
                    "batch.sequence=16", "--set", "optimizer.name=sgd", "--set", "eval.every=0",
                    "-o", program)
        harness.run(program, "--data", data, "--out", run, "--steps", 1, "--quiet")
        model = self.options.scratch / "small"
        harness.run(self.tessera, "export", run, "--dtype", "bf16", "-o", model)
        shutil.rmtree(run)
        return model, data

    def step(self, program, model, data):
        """Seconds of the fastest step."""
        run = self.options.scratch / "run"
        shutil.rmtree(run, ignore_errors=True)
        harness.run(program, "--data", data, "--init-from", model, "--out", run, "--steps", STEPS,
                    "--quiet")
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return min(line["step_time"] for line in lines if "step_time" in line)

    def times(self):
        model, data = self.small()
        programs = {base: self.program(model, base, self.options.rows, self.options.row)
                    for base in self.options.bases}
        best = dict.fromkeys(self.options.bases, math.inf)
        for _ in range(self.options.repeats):
            times = {base: self.step(programs[base], model, data) for base in self.options.bases}
            best = {base: min(best[base], times[base]) for base in self.options.bases}
            print("step:", ", ".join(f"{base} {times[base]:.3f} s" for base in self.options.bases), flush=True)
        first = self.options.bases[0]
        print("fastest:", ", ".join(f"{base} {best[base]:.3f} s" for base in best) + ", speed over",
              f"{first}:", ", ".join(f"{base} {best[first] / best[base]:.3f}" for base in best))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--bases", nargs="+", default=["bf16", "nf4"])
    parser.add_argument("--models", nargs="*", default=["llama-3-8b", "llama-3-70b"])
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--recompute", action="store_true", help="activations are recomputed")
    parser.add_argument("--timed", default="llama-1b")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--row", type=int, default=512, help="tokens of a row of the timed step")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    bench = Bench(options)
    for model in options.models:
        bench.memory(model)
    if options.repeats:
        bench.times()


if __name__ == "__main__":
    main()
