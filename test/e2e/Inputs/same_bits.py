"""Whether decode, prefill and a training step give sampled tokens log-probabilities
with the same bits.

    same_bits.py BIN SCRATCH [--tokens 400] [--prefill 100] [--only NAME] [--strict]

For each model and precision, tessera rl samples with weights that do not change, in batches of 1
to 16 sequences, with pages for all of them and with so few that sequences are preempted. The
learner counts the tokens to which its forward pass gives another log-probability than decode did,
with one completion in a row and with several; rollout-bits-check counts those to which prefill
does. A line has the numbers of tokens and of different ones; --strict ends with an error where
there are any.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import sys

import harness

VOCAB = 257
COMMON = {"vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
          "initializer_range": 0.1, "tie_word_embeddings": True, "bos_token_id": 0,
          "eos_token_id": 0}
MODELS = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
              "intermediate_size": 192, **COMMON},
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": VOCAB,
             "n_positions": 512, "n_embd": 64, "n_layer": 2, "n_head": 4,
             "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
             "initializer_range": 0.1, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
             "resid_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2,
                "router_aux_loss_coef": 0.0, **COMMON},
}
LONGEST_PROMPT = 90
SETS = ["batch.sequence=512", "batch.micro=4", "batch.accumulate=4", "rollout.max_tokens=150",
        "rollout.prompts=4", "rollout.group=4", "optimizer.lr=0", "optimizer.weight_decay=0",
        "lr_schedule.name=constant", "checkpoint.every=0", "inference.batch=16"]
# Sixteen sequences of up to four pages each.
PAGES = {"": [], "preempted": ["inference.pages=24"]}
ROWS = {"packed": [], "alone": ["policy.documents=1", "batch.accumulate=8"]}
TARGET = harness.processor_target()
REWARD = "while read -r line; do echo 1; done"


def sets_of(keys):
    return [word for key in keys for word in ("--set", key)]


class Models:
    def __init__(self, binaries, scratch):
        self.binaries, self.scratch = binaries, scratch
        self.tessera = binaries / "tessera"
        shutil.rmtree(scratch, ignore_errors=True)
        folder = scratch / "tokenizer"
        folder.mkdir(parents=True)
        text = "".join(chr(ord("a") + i) for i in range(26))
        (scratch / "letters.jsonl").write_text(json.dumps({"text": text}) + "\n")
        harness.run(self.tessera, "data", "tokenizer", "--vocab", VOCAB, "--input",
                    scratch / "letters.jsonl", "-o", folder / "tokenizer.json")
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"eos_token": "<|endoftext|>"}))
        draw = random.Random(5)
        (scratch / "prompts.jsonl").write_text("".join(
            json.dumps({"prompt": "".join(draw.choices(text, k=draw.randint(1, LONGEST_PROMPT)))})
            + "\n" for _ in range(200)))
        (scratch / "examples.jsonl").write_text("".join(
            json.dumps({"prompt": "a", "completion": text[i:]}) + "\n" for i in range(26)))
        harness.run(self.tessera, "data", "chat", "--tokenizer", folder, "--input",
                    scratch / "examples.jsonl", "--sequence", 128, "-o", scratch / "examples")

    def make(self, name):
        """A model directory with random weights."""
        spec = self.scratch / f"spec-{name}"
        spec.mkdir()
        (spec / "config.json").write_text(json.dumps(MODELS[name]))
        program = self.scratch / f"init-{name}"
        harness.run(self.tessera, "compile", spec, *sets_of(
            ["batch.sequence=128", "batch.micro=1", "data.documents=separate",
             "optimizer.lr=1e-4", "eval.every=0"]), "--target", TARGET, "-o", program)
        out = self.scratch / f"base-{name}"
        harness.run(program, "--data", self.scratch / "examples", "--out", out, "--steps", 1,
                    "--quiet", "--checkpoint-every", 0)
        harness.run(self.tessera, "export", out, "-o", self.scratch / f"model-{name}")
        return self.scratch / f"model-{name}"

    def learn(self, model, out, steps, keys):
        """Sampled tokens, those with other bits in the learner, and the journal."""
        harness.run(self.tessera, "rl", model, "--prompts", self.scratch / "prompts.jsonl",
                    "--reward", REWARD, "--out", out, "--steps", steps, "--quiet",
                    *sets_of([*SETS, *keys]))
        journal = out / "samples.jsonl"
        lines = journal.read_text().splitlines()[1:]
        tokens = [sum(len(sample["tokens"]) for sample in json.loads(line)["samples"])
                  for line in lines]
        prompts = len(tokens) // steps
        records = harness.metrics(out)
        different = sum(
            round(record["policy"]["mismatch"] * sum(tokens[i * prompts:(i + 1) * prompts]))
            for i, record in enumerate(records))
        return sum(tokens), different, journal

    def prefill(self, model, precision, journal, most):
        program = self.scratch / "prefill.tsr"
        harness.run(self.tessera, "compile", model, "--mode", "infer", "--no-weights", "--target",
                    TARGET, "-o", program, *sets_of([f"precision.compute={precision}", "inference.context=512",
                                       "inference.numerics=training", "inference.batch=1"]))
        printed = harness.run(self.binaries / "rollout-bits-check", program, model, journal,
                              most).stdout
        return tuple(map(int, printed.split()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--prefill", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    # tessera rl has this code too, not what a slow bf16 instruction would make it choose.
    os.environ["TESSERA_CPU"] = TARGET.removeprefix("cpu:")
    models = Models(options.binaries, options.scratch)
    total = wrong = 0
    seed = 1
    for name in MODELS:
        if not name.startswith(options.only):
            continue
        model = models.make(name)
        for precision in ("fp32", "bf16"):
            for rows, row_keys in ROWS.items():
                for pages, page_keys in PAGES.items():
                    words = [name, precision, rows, pages]
                    out = options.scratch / "-".join(words)
                    steps = -(-options.tokens // 1800)  # about as many tokens in a step
                    keys = [*row_keys, *page_keys, f"precision.compute={precision}",
                            f"seed={seed}", *options.set]
                    seed += 1  # other prompts and tokens in each
                    tokens, different, journal = models.learn(model, out, steps, keys)
                    read, other = models.prefill(model, precision, journal, options.prefill)
                    total, wrong = total + tokens, wrong + different + other
                    print(f"{' '.join(words)}: train {different} of {tokens}, "
                          f"prefill {other} of {read}", flush=True)
    print(f"{wrong} of {total} sampled tokens differ", flush=True)
    if options.strict:
        harness.check(wrong == 0, "the same bits in decode, prefill and training")


if __name__ == "__main__":
    main()
