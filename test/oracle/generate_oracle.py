#!/usr/bin/env python3
"""Compares what is generated from Hugging Face directories with `transformers`.

    generate_oracle.py BIN FOLDER [--family NAME]...

For each family a small model with random weights is saved, compiled by the path
of `tessera generate` (programs that decode over a cache), and writes COUNT
greedy tokens after each of PROMPTS prompts, alone and eight together. A token
is right where the reference, shown the same text up to it, finds it the most
likely: so one pass over the texts says whether the reference would have written
them. Logits are judged as hf_oracle.py judges them: our distance from the fp64
reference is at most twice that of PyTorch's fp32 twin. Where transformers is
not installed, prints so and exits 0.
"""
import argparse
import pathlib
import sys

try:
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

from hf_models import FAMILIES, Twins, run
from hf_oracle import Distance, Report
from hf_tessera import ToolError, command, processor_targets

PROMPTS, COUNT, TOGETHER = 20, 64, 8
CONTEXT = 128


def prompts(family):
    """Of 1 to 58 tokens: shorter and longer than a chunk of the prompt."""
    generator = torch.Generator().manual_seed(900)
    vocab = FAMILIES[family]["vocab_size"]
    return [torch.randint(0, vocab, (1 + 3 * i,), generator=generator).tolist()
            for i in range(PROMPTS)]


def generate(binaries, folder, target, texts, vocab):
    """Tokens [PROMPTS, COUNT] and logits [PROMPTS, COUNT, vocab] of each prompt
    alone, tokens [TOGETHER, COUNT] of the first ones together."""
    program, output = folder / "program.bin", folder / "output.bin"
    command([binaries / "tessera", "compile", folder, "--mode", "infer",
             "--target", target, "--cache", "off",
             f"--set=inference.context={CONTEXT}", "--set=inference.chunk=16",
             "--set=inference.page=8", f"--set=inference.batch={TOGETHER}",
             "-o", program])
    lines = "\n".join(" ".join(map(str, text)) for text in texts) + "\n"
    command([binaries / "generate-check", program, folder, COUNT, output],
            text=lines)
    data = torch.frombuffer(bytearray(output.read_bytes()), dtype=torch.int32)
    alone = data[:PROMPTS * COUNT * (1 + vocab)].reshape(PROMPTS, -1)
    return (alone[:, :COUNT],
            alone[:, COUNT:].contiguous().view(torch.float32)
            .reshape(PROMPTS, COUNT, vocab),
            data[PROMPTS * COUNT * (1 + vocab):].reshape(TOGETHER, COUNT))


def following(model, text, tokens):
    """The model's logits [COUNT, vocab] after `text` and all but the last of
    `tokens`."""
    with torch.no_grad():
        whole = torch.tensor([text + tokens[:-1].tolist()])
        return run(model, whole)[0, len(text) - 1:]


def compare(binaries, folder, report, family, target):
    twin = Twins(family, seed=4)
    twin.save(folder)
    texts = prompts(family)
    alone, logits, together = generate(binaries, folder, target, texts,
                                       FAMILIES[family]["vocab_size"])
    ours, theirs = Distance(), Distance()
    same = 0
    for text, tokens, rows in zip(texts, alone, logits):
        reference = following(twin.fp64, text, tokens)
        other = following(twin.fp32, text, tokens)
        ours.add(rows, reference)
        theirs.add(other, reference)
        same += int((other.argmax(-1) == tokens).sum())
    every = PROMPTS * COUNT
    report.fact(family, "fp32", "greedy tokens equal", f"{same} of {every}",
                same == every)
    same = int((together == alone[:TOGETHER]).sum())
    every = TOGETHER * COUNT
    report.fact(family, "fp32", f"{TOGETHER} together as alone",
                f"{same} of {every}", same == every)
    for norm, value in ours.norms().items():
        report.line(family, "fp32", f"logits while decoding, {norm}", value,
                    theirs.norms()[norm])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--family", action="append", choices=list(FAMILIES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    targets = processor_targets()
    print(f"# torch {torch.__version__}, transformers "
          f"{transformers.__version__}")
    report = Report()
    for turn, family in enumerate(options.family or FAMILIES):
        target = targets[turn % len(targets)]
        print(f"# {family} on {target}", flush=True)
        try:
            compare(options.binaries, options.folder / family, report, family,
                    target)
        except ToolError as error:
            report.fact(family, "fp32", "failed", error, False)
    print(f"{report.lines} comparisons, {report.failures} failed")
    return 1 if report.failures or not report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
