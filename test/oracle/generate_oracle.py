#!/usr/bin/env python3
"""Compares what is generated from Hugging Face directories with `transformers`.

    generate_oracle.py BIN FOLDER [--family NAME]... [--dtype fp32|bf16]...
                       [--quant int8|int4|fp8 [--group N]] [--packed] [--kv]
                       [--prompts]

For each family a small model with random weights is saved, compiled by the path
of `tessera generate` (programs that decode over a cache), and writes COUNT
greedy tokens after each of PROMPTS prompts, alone and eight together. A token
is right where the reference, shown the same text up to it, finds it the most
likely: so one pass over the texts says whether the reference would have written
them. Logits are judged as hf_oracle.py judges them: our distance from the fp64
reference is at most twice that of PyTorch's own twin. In bf16, where roundings
choose among tokens that are nearly alike, only logits are judged. With
--quant our program rounds the weights to integers as it reads them, and the
reference computes with what quantization.py, which shares nothing with it,
says that these stand for. With --packed tokens and logits of bf16 weights that
are packed are compared with those of rows, bit by bit, and with nothing
else. With --kv keys and values are kept as int8, and the reference's cache
gives back what such a token of a head stands for. What is nearly between two
integers falls to either side with the last bit of its sum, so that in fp32 logits are
judged by how near they are beside what rounding does to the reference, and nearly all
tokens have to be equal. With --prompts the tokens of a prompt see each other, which
the reference is given a mask for. Where transformers is not installed, prints so and
exits 0.
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

from hf_models import FAMILIES, Twins, prompt_mask, run
from hf_oracle import Distance, Report
import quantization
from hf_tessera import ToolError, cache_in, command, processor_targets

# Experts whose rows are whole micropanels, so that all are quantized (of mixtral's 72
# rows and qwen2_moe's 40 they are not), and so many of them that a router would
# be, were it another matrix.
EVERY = list(FAMILIES)
FAMILIES["mixtral_packed"] = dict(FAMILIES["mixtral"], intermediate_size=96)
FAMILIES["qwen2_moe_packed"] = dict(
    FAMILIES["qwen2_moe"], moe_intermediate_size=48, num_experts=20)
PROMPTS, COUNT, TOGETHER = 20, 64, 8
CONTEXT = 128


def prompts(family):
    """Of 1 to 29 tokens: shorter and longer than a chunk of the prompt."""
    generator = torch.Generator().manual_seed(900)
    vocab = FAMILIES[family]["vocab_size"]
    return [torch.randint(0, vocab, (1 + 3 * i // 2,), generator=generator).tolist()
            for i in range(PROMPTS)]


class RoundingCache(transformers.DynamicCache):
    """Keys and values of a token and head as integers with a scale in bf16."""

    def update(self, keys, values, *more):
        return super().update(self.rounded(keys), self.rounded(values), *more)

    @staticmethod
    def rounded(x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = wide.abs().amax(-1, keepdim=True) / 127
        scale = scale.to(torch.bfloat16).to(wide.dtype)
        q = wide / scale
        q = torch.trunc(q + torch.copysign(torch.tensor(0.5).to(q), q))
        return (q * scale).to(x.dtype)


def generate(binaries, folder, target, dtype, texts, vocab, quant, layout,
             chunk, kv="auto", more=()):
    """Tokens [PROMPTS, COUNT] and logits [PROMPTS, COUNT, vocab] of each prompt
    alone, tokens [TOGETHER, COUNT] of the first ones together."""
    program, output = folder / "program.bin", folder / "output.bin"
    command([binaries / "tessera", "compile", folder, "--mode", "infer", "--no-weights",
             "--target", target,
             f"--set=precision.compute={dtype}",
             f"--set=inference.context={CONTEXT}",
             f"--set=inference.chunk={chunk}",
             f"--set=inference.layout={layout}",
             *(quant.flags if quant else []), "--kv", kv,
             *(f"--set={each}" for each in more),
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


def following(model, texts, tokens, rounds=False, prompts=False):
    """The model's logits [PROMPTS, COUNT, vocab] after each text and all but
    the last of its tokens. What fills a row is behind all that is looked at."""
    rows = [torch.tensor(text + each[:-1].tolist())
            for text, each in zip(texts, tokens)]
    whole = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    if prompts:
        masks = [prompt_mask(model, whole.shape[1], len(text)) for text in texts]
        with torch.no_grad():
            logits = run(model, whole, attention_mask=torch.cat(masks))
        return torch.stack([row[len(text) - 1:][:COUNT]
                            for row, text in zip(logits, texts)])
    with torch.no_grad():
        # Who wants a cache gets one of another class in its place.
        logits = run(model, whole, **{"past_key_values": RoundingCache(),
                                      "use_cache": False} if rounds else {})
    return torch.stack([row[len(text) - 1:][:COUNT]
                        for row, text in zip(logits, texts)])


def compare_tokens(report, family, alone, together, other):
    same = int((other.argmax(-1) == alone).sum())
    every = PROMPTS * COUNT
    report.fact(family, "fp32", "greedy tokens equal", f"{same} of {every}",
                same == every)
    same = int((together == alone[:TOGETHER]).sum())
    every = TOGETHER * COUNT
    report.fact(family, "fp32", f"{TOGETHER} together as alone",
                f"{same} of {every}", same == every)


def compare_kv(binaries, folder, report, family, dtype, target, twin, texts):
    alone, logits, together = generate(
        binaries, folder, target, dtype, texts, FAMILIES[family]["vocab_size"],
        None, "rows", 16, "int8")
    same = int((together == alone[:TOGETHER]).sum())
    every = TOGETHER * COUNT
    report.fact(family, dtype, f"{TOGETHER} together as alone",
                f"{same} of {every}", same == every)
    reference = following(twin.fp64, texts, alone, rounds=True)
    other = following(getattr(twin, dtype), texts, alone, rounds=True)
    ours, theirs, moved = Distance(), Distance(), Distance()
    ours.add(logits, reference)
    theirs.add(other, reference)
    moved.add(following(twin.fp64, texts, alone), reference)
    if dtype == "bf16":
        for norm, value in ours.norms().items():
            report.line(family, dtype, f"logits while decoding, {norm}", value,
                        theirs.norms()[norm])
        return
    same = int((reference.argmax(-1) == alone).sum())
    every = PROMPTS * COUNT
    report.fact(family, dtype, "greedy tokens equal", f"{same} of {every}",
                same >= 0.99 * every)
    part = ours.norms()["l2"] / moved.norms()["l2"]
    torchs = theirs.norms()["l2"] / moved.norms()["l2"]
    report.fact(family, dtype, "logits' distance, as a part of the rounding's",
                f"{part:.3f} (torch {torchs:.3f}, rounding "
                f"{moved.norms()['l2']:.2e})", part < 0.2)


def compare(binaries, folder, report, family, dtype, target, quant, packed,
            kv, prompts_seen):
    twin = Twins(family, seed=4)
    twin.save(folder)
    if quant:
        quant.apply(twin)
    texts = prompts(family)
    if kv:
        return compare_kv(binaries, folder, report, family, dtype, target, twin,
                          texts)
    made = lambda layout: generate(binaries, folder, target, dtype, texts,
                                   FAMILIES[family]["vocab_size"], quant, layout,
                                   # More rows than are streamed, too; whole prompts.
                                   32 if prompts_seen else
                                   24 if quant or packed else 16,
                                   more=["attention.prompts=bidirectional"]
                                   if prompts_seen else [])
    alone, logits, together = made("rows")
    if packed:
        same = all(torch.equal(one, other) for one, other
                   in zip((alone, logits, together), made("packed")))
        report.fact(family, dtype, "packed as rows", "bit by bit", same)
        return
    reference = following(twin.fp64, texts, alone, prompts=prompts_seen)
    other = following(getattr(twin, dtype), texts, alone, prompts=prompts_seen)
    ours, theirs = Distance(), Distance()
    ours.add(logits, reference)
    theirs.add(other, reference)
    if dtype == "fp32":
        compare_tokens(report, family, alone, together, other)
    for norm, value in ours.norms().items():
        report.line(family, dtype, f"logits while decoding, {norm}", value,
                    theirs.norms()[norm])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--family", action="append", choices=list(FAMILIES))
    parser.add_argument("--dtype", action="append", choices=["fp32", "bf16"])
    parser.add_argument("--quant", choices=["int8", "int4", "fp8"])
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--zeros", action="store_true")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--kv", action="store_true")
    parser.add_argument("--prompts", action="store_true")
    options = parser.parse_args()
    quant = options.quant and quantization.Quantization(options.quant,
                                                        options.group,
                                                        options.zeros)
    torch.set_num_threads(1)
    cache_in(options.folder)
    targets = processor_targets()
    print(f"# torch {torch.__version__}, transformers "
          f"{transformers.__version__}")
    report = Report()
    cases = [(family, dtype) for family in options.family or EVERY
             for dtype in options.dtype or ["fp32"]]
    for turn, (family, dtype) in enumerate(cases):
        target = targets[turn % len(targets)]
        print(f"# {family} {dtype} on {target}", flush=True)
        try:
            compare(options.binaries, options.folder / family, report, family,
                    dtype, target, quant, options.packed, options.kv,
                    options.prompts)
        except ToolError as error:
            report.fact(family, dtype, "failed", error, False)
    print(f"{report.lines} comparisons, {report.failures} failed")
    return 1 if report.failures or not report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
