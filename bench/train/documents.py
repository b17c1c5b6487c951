#!/usr/bin/env python3
"""Time of attention on packed documents, against that of the same documents in rows of their own.

    bench/train/documents.py BIN SCRATCH [--length 2048] [--documents 64 128 256 512] [--repeats 3]

All documents of a run have one length L. They are packed in rows of --length tokens
(data.documents: separate), or have rows of L tokens, of the same number of tokens in a step: there,
attention computes no more than each document's own square. Prints the time of attention's kernels
in a step, forward and backward, as `--profile` measures it, and their ratio. The two programs
alternate, and the fastest repeat counts: the mean of its steps.
"""
import argparse
import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/e2e/Inputs"))
import harness  # noqa: E402

VOCAB = 257  # bytes, and the end of a document
STEPS = 6
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB,
         "hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 2,
         "num_attention_heads": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "hidden_act": "silu", "max_position_embeddings": 8192,
         "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0}


class Bench:
    def __init__(self, options):
        self.options, self.tessera = options, options.bin / "tessera"
        shutil.rmtree(options.scratch, ignore_errors=True)
        (options.scratch / "spec").mkdir(parents=True)
        (options.scratch / "spec/config.json").write_text(json.dumps(MODEL))
        (options.scratch / "seed.jsonl").write_text(json.dumps({"text": "abc"}) + "\n")
        harness.run(self.tessera, "data", "tokenizer", "--vocab", VOCAB, "--input",
                    options.scratch / "seed.jsonl", "-o", options.scratch / "tokenizer.json")

    def tokens(self, size):
        """Documents of `size` tokens, the end's with them."""
        source, out = self.options.scratch / f"{size}.jsonl", self.options.scratch / f"data-{size}"
        count = 2 * STEPS * self.options.length // size + 8
        source.write_text((json.dumps({"text": "a" * (size - 1)}) + "\n") * count)
        harness.run(self.tessera, "data", "tokenize", "--tokenizer",
                    self.options.scratch / "tokenizer.json", "--input", source, "-o", out)
        return out

    def program(self, sequence, rows):
        path = self.options.scratch / f"train-{sequence}-{rows}"
        sets = [f"batch.sequence={sequence}", f"batch.micro={rows}", "data.documents=separate",
                "eval.every=0", "checkpoint.every=0",
                f"precision.compute={self.options.precision}"]
        harness.run(self.tessera, "compile", self.options.scratch / "spec",
                    *[word for key in sets for word in ("--set", key)], "-o", path)
        return path

    def attention(self, program, data):
        """Seconds of attention's kernels in a step."""
        run, trace = self.options.scratch / "run", self.options.scratch / "trace.json"
        shutil.rmtree(run, ignore_errors=True)
        harness.run(program, "--data", data, "--out", run, "--steps", STEPS, "--quiet",
                    "--threads", 1, "--profile", trace)
        events = json.loads(trace.read_text())["traceEvents"]
        return sum(event["dur"] for event in events
                   if event.get("ph") == "X" and "attention" in event["name"]) * 1e-6 / STEPS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--documents", type=int, nargs="+", default=[64, 128, 256, 512],
                        help="their lengths, less than --length")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    bench = Bench(options)
    packed = bench.program(options.length, 1)
    for size in options.documents:
        data = bench.tokens(size)
        alone = bench.program(size, options.length // size)
        times = {packed: [], alone: []}
        for _ in range(options.repeats):
            for program in times:
                times[program].append(bench.attention(program, data))
        best = [min(each) for each in times.values()]
        print(f"documents of {size}: packed {1e3 * best[0]:.2f} ms, alone {1e3 * best[1]:.2f}, "
              f"ratio {best[0] / best[1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
