#!/usr/bin/env python3
"""Compares what is generated from checkpoints of 8-bit floats with
`transformers`, and with the same weights as bf16.

    float8_oracle.py BIN FOLDER

Small models are written in every form that is read. The bf16 that bytes and
scales stand for are computed here. Logits have to be, bit by bit, those of a
checkpoint that has these, and greedy tokens those of the reference. Bytes that
`--quant fp8` keeps are compared with what they and their scales are in f64. Where
transformers is not installed, prints so and exits 0.
"""
import json
import pathlib
import struct
import sys
import typing

try:
    import safetensors.torch
    import torch
    import transformers  # noqa: F401
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

import generate_oracle
import quantization
import quantize_oracle
from hf_models import FAMILIES, Twins
from hf_tessera import cache_in, command, processor_targets
from quantize_oracle import (FAMILY as WHOLE_GROUPS, check, is_matrix, refused,
                             save_tokenizer, tessera)

# Four bits of exponent with bias 7, three of mantissa; 127 is no number.
MAGNITUDES = torch.tensor(
    [(i % 8) * 2.0 ** -9 if i < 8 else (8 + i % 8) * 2.0 ** (i // 8 - 10)
     for i in range(127)], dtype=torch.float64)
LARGEST = 448.0


def compressed(strategy, **more):
    """As llm-compressor writes it."""
    return {"quant_method": "compressed-tensors", "format": "float-quantized",
            "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {
                "targets": ["Linear"],
                "input_activations": {"num_bits": 8, "type": "float",
                                      "strategy": "token", "dynamic": True},
                "weights": {"num_bits": 8, "type": "float", "dynamic": False,
                            "symmetric": True, "strategy": strategy,
                            "group_size": None, **more}}}}


class Form:
    """How a checkpoint has its matrices. `block`: rows and columns of one scale,
    None: all; `shape` of the scales, where it is not that of blocks."""

    def __init__(self, config, end, block, dtype=torch.float32, shape=None,
                 static=False):
        self.config, self.end, self.block = config, end, block
        self.dtype, self.shape, self.static = dtype, shape, static

    def scales(self, matrix):
        """[blocks down, blocks across]"""
        rows, columns = self.sizes(matrix)
        most = torch.stack([
            torch.stack([part.abs().max() for part in strip.split(columns, 1)])
            for strip in matrix.split(rows)])
        return (most / LARGEST).to(self.dtype)

    def sizes(self, matrix):
        return [size if of is None else of
                for of, size in zip(self.block, matrix.shape)]

    def spread(self, matrix, scales):
        """A scale for each weight, f64."""
        for dim, size in enumerate(self.sizes(matrix)):
            scales = scales.repeat_interleave(size, dim)
        return scales[:matrix.shape[0], :matrix.shape[1]].double()


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
HALF = torch.bfloat16
FORMS = {
    # What 96 / 2 and 160 / 4 do not tell: ragged at both ends.
    "blocks": Form({**FP8, "weight_block_size": [64, 48]}, "_scale_inv",
                   (64, 48)),
    "static": Form({**FP8, "activation_scheme": "static",
                    "ignored_layers": ["lm_head"]}, "_scale", (None, None),
                   shape=[], static=True),
    "fbgemm": Form({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                    "modules_to_not_convert": ["lm_head"]}, "_scale",
                   (1, None)),
    "tensor": Form(compressed("tensor"), "_scale", (None, None), HALF, [1]),
    "channel": Form(compressed("channel"), "_scale", (1, None), HALF),
    "group": Form(compressed("group", group_size=16), "_scale", (1, 16)),
    "block": Form(compressed("block", block_structure=[32, 32]), "_scale",
                  (32, 32), HALF),
}
CASES = [("blocks", WHOLE_GROUPS), ("blocks", "phi3"), ("blocks", "mixtral"),
         ("static", "mixtral"), ("fbgemm", "qwen2"), ("tensor", "phi3"),
         ("channel", "qwen2_moe"), ("group", "qwen3"), ("block", "llama")]
# A group of 32 has one scale, and bf16 scales of about 2^-11 are exact as f16.
KEPT = ("block", "llama")


def as_bytes(scaled):
    """The nearest of the format."""
    middle = (MAGNITUDES[1:] + MAGNITUDES[:-1]) / 2
    place = torch.bucketize(scaled.abs(), middle)
    return (place + 128 * (scaled < 0)).to(torch.uint8)


def as_bf16(exact):
    """f64 to the nearest, half to even; torch would round to f32 between."""
    best = exact.to(HALF)
    for step in (-1, 1):
        other = (best.view(torch.int16) + step).view(HALF)
        theirs, mine = [(each.double() - exact).abs() for each in (other, best)]
        even = other.view(torch.int16) % 2 == 0
        best = torch.where((theirs < mine) | ((theirs == mine) & even), other,
                           best)
    return best


class Checkpoint:
    """A model's tensors in a form, as the bf16 that these are, and in f64."""

    def __init__(self, form, twin):
        self.tensors, self.plain, self.exact = {}, {}, {}
        for name, parameter in twin.fp32.named_parameters():
            if not is_matrix(name):
                self.put(name, parameter.data.to(HALF))
                self.plain[name] = parameter.data.to(HALF)
                continue
            matrix = parameter.data.double()
            scales = form.scales(matrix)
            by = form.spread(matrix, scales)
            bits = as_bytes((matrix / by).clamp(-LARGEST, LARGEST))
            self.put(name, bits, "F8_E4M3")
            self.put(name + form.end,
                     scales if form.shape is None else
                     scales.reshape(form.shape))
            if form.static:
                self.put(name.removesuffix("weight") + "input_scale",
                         torch.tensor(0.25))
            value = MAGNITUDES[(bits & 127).long()]
            value = torch.where(bits >= 128, -value, value)
            self.exact[name] = value * by
            self.plain[name] = as_bf16(self.exact[name])
        for model in (twin.fp32, twin.fp64):
            for name, parameter in model.named_parameters():
                parameter.data.copy_(self.plain[name].double())

    def put(self, name, tensor, dtype=None):
        names = {torch.bfloat16: "BF16", torch.float32: "F32"}
        data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        self.tensors[name] = (dtype or names[tensor.dtype],
                              list(tensor.shape), data.tobytes())

    def save(self, folder, family, config):
        """By hand: this PyTorch has no such type."""
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(
            {**FAMILIES[family], "quantization_config": config}))
        header, at = {}, 0
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape,
                            "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = json.dumps(header).encode()
        with open(folder / "model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.writelines(data for *_, data in self.tensors.values())
        return folder

    def save_plain(self, folder, family):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(FAMILIES[family]))
        safetensors.torch.save_file(self.plain, folder / "model.safetensors",
                                    metadata={"format": "pt"})
        return folder


def compiled(binaries, folder, *flags):
    program = folder / "program.bin"
    command([binaries / "tessera", "compile", folder, "--mode", "infer", "--no-weights",
             "--target", processor_targets()[0],
             "--set=precision.compute=fp32",
             f"--set=inference.context={generate_oracle.CONTEXT}",
             "--set=inference.page=8",
             f"--set=inference.batch={generate_oracle.TOGETHER}", *flags,
             "-o", program])
    return program


def generated(binaries, program, folder, texts):
    """Tokens and logits of all texts, as generate-check writes them."""
    lines = "\n".join(" ".join(map(str, text)) for text in texts) + "\n"
    output = folder / "output.bin"
    command([binaries / "generate-check", program, folder,
             generate_oracle.COUNT, output], text=lines)
    return torch.frombuffer(bytearray(output.read_bytes()), dtype=torch.int32)


class Made(typing.NamedTuple):
    family: str
    checkpoint: Checkpoint
    twin: Twins
    stored: pathlib.Path  # the checkpoint
    plain: pathlib.Path   # its bf16
    texts: list


def compare(binaries, folder, name, family):
    twin, form = Twins(family, seed=11), FORMS[name]
    checkpoint = Checkpoint(form, twin)
    stored = checkpoint.save(folder / f"{name}-{family}", family, form.config)
    plain = checkpoint.save_plain(folder / f"{name}-{family}-bf16", family)
    texts = generate_oracle.prompts(family)
    program = compiled(binaries, stored)
    data = generated(binaries, program, stored, texts)
    same = torch.equal(data, generated(binaries, program, plain, texts))
    check(same, f"{name}, {family}: the same bits as of bf16")
    check_reference(twin, family, texts, data, name)
    return Made(family, checkpoint, twin, stored, plain, texts)


def check_reference(twin, family, texts, data, what):
    vocab = FAMILIES[family]["vocab_size"]
    count, every = generate_oracle.COUNT, len(texts)
    alone = data[:every * count * (1 + vocab)].reshape(every, -1)
    tokens = alone[:, :count]
    logits = alone[:, count:].contiguous().view(torch.float32).reshape(
        every, count, vocab)
    exact = generate_oracle.following(twin.fp64, texts, tokens)
    error = ((logits - exact).square().mean().sqrt() / exact.std()).item()
    check(error < 1e-5 and torch.equal(exact.argmax(-1), tokens.long()),
          f"{what}, {family}: {tokens.numel()} greedy tokens are those of "
          f"transformers, logits off by {error:.2g} of their spread")


def check_kept(binaries, made, group):
    """e4m3 of e4m3 is what it was, not what its bf16 would be rounded to; the
    head, which the checkpoint has as bf16, is rounded."""
    head = "lm_head.weight"
    exact = {**made.checkpoint.exact, head: quantization.dequantize(
        made.checkpoint.plain[head].float(), 8, group, floats=True)}
    for key, parameter in made.twin.fp64.named_parameters():
        if key in exact:
            parameter.data.copy_(exact[key])
    program = compiled(binaries, made.stored, "--quant", "fp8",
                       "--quant-group", str(group))
    data, anew = [generated(binaries, program, each, made.texts)
                  for each in (made.stored, made.plain)]
    check_reference(made.twin, made.family, made.texts, data, "kept as fp8")
    check(not torch.equal(data, anew), "bf16 that is rounded anew differs")


def check_quantized(binaries, folder, made):
    """Weights are rounded to integers as those of bf16 are."""
    program = compiled(binaries, made.stored, "--quant", "int4")
    check(torch.equal(*[generated(binaries, program, each, made.texts)
                        for each in (made.stored, made.plain)]),
          "int4 on top: the same bits as of bf16")
    written = []
    for place in (made.stored, made.plain):
        out = folder / f"{place.name}-int8"
        done = tessera(binaries, "quantize", place, "--quant", "int8", "-o",
                       out)
        written.append(done.returncode == 0
                       and (out / "model.safetensors").read_bytes())
    check(written[0] and written[0] == written[1],
          f"tessera quantize writes the same file {done.stderr}")


def check_refused(binaries, folder, checkpoint, family):
    name = next(each for each in checkpoint.tensors if is_matrix(each))
    whole, config = dict(checkpoint.tensors), FORMS["blocks"].config
    scale = name + "_scale_inv"
    dtype, shape, data = whole[name]
    for what, words, tensors, more in [
            ("missing", f"is F8_E4M3 and lacks its scales, '{name}_scale'",
             {scale: None}, {}),
            ("nan", "is NaN at [0, 0]",
             {name: (dtype, shape, bytes([0x7F]) + data[1:])}, {}),
            ("shape", "as config.json says that blocks are 64 x 32", {},
             {"weight_block_size": [64, 32]}),
            ("e5m2", "quantization_config.fmt", {}, {"fmt": "e5m2"})]:
        checkpoint.tensors = {key: value for key, value
                              in {**whole, **tensors}.items() if value}
        wrong = checkpoint.save(folder / f"wrong-{what}", family,
                                {**config, **more})
        save_tokenizer(wrong)
        refused(tessera(binaries, "generate", wrong, "--prompt", "a"), words)


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:3])
    cache_in(folder)
    torch.set_num_threads(1)
    for name, family in CASES:
        made = compare(binaries, folder, name, family)
        if (name, family) == CASES[0]:
            check_quantized(binaries, folder, made)
            check_refused(binaries, folder, made.checkpoint, family)
        if (name, family) == KEPT:
            check_kept(binaries, made, group=32)
    print("failed" if quantize_oracle.failed else "all as expected")
    return bool(quantize_oracle.failed)


if __name__ == "__main__":
    sys.exit(main())
