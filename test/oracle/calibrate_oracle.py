#!/usr/bin/env python3
"""Compares `tessera quantize --calibrate` with PyTorch: what linear layers read is
measured by hooks here, and scales, what they are folded into and perplexities
are computed anew, from runtime/weights/ChooseScales.h.

    calibrate_oracle.py BIN FOLDER [FAMILY ...]

Where transformers is not installed, prints so and exits 0.
"""
import json
import pathlib
import re
import sys

try:
    import safetensors.torch
    import torch
    import transformers  # noqa: F401
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

import hf_models
import quantization
import quantize_oracle
from hf_models import FAMILIES, Twins
from hf_tessera import cache_in
from quantize_oracle import GROUP, WINDOW, check, refused, tessera

# Columns that are whole groups.
FAMILIES.update({
    "llama_groups": dict(FAMILIES["llama"], intermediate_size=160,
                         num_hidden_layers=5),
    "qwen2_groups": dict(FAMILIES["qwen2"], hidden_size=96,
                         num_attention_heads=6, num_key_value_heads=2,
                         intermediate_size=160),
    "gemma2_groups": dict(FAMILIES["gemma2"], intermediate_size=128),
    # Windows are longer than the original context.
    "phi3_groups": dict(FAMILIES["phi3"], intermediate_size=128,
                        original_max_position_embeddings=40)})
hf_models.NEWER += ("gemma2_groups", "phi3_groups")
OUTLIERS, FACTOR = (3, 17, 40), 30
EXPONENTS = 20


def text_of(seed, count):
    generator = torch.Generator().manual_seed(seed)
    return "".join(map(chr, torch.randint(32, 127, (count,),
                                          generator=generator).tolist()))


class Input:
    """Linear layers that share one, and what makes its channels."""

    def __init__(self, readers, norm=None, matrix=None, elements=None):
        self.readers, self.norm, self.matrix = readers, norm, matrix
        self.elements = elements  # [channels]; None: each its own


def inputs_of(fields):
    """Of all layers, as transformers' classes have them."""
    fused = fields["model_type"] == "phi3"
    post = fields["model_type"] == "gemma2"
    heads, kv = fields["num_attention_heads"], fields["num_key_value_heads"]
    size = fields.get("head_dim", fields["hidden_size"] // heads)
    width = fields["intermediate_size"]
    values = torch.arange(kv * size).reshape(kv, size).repeat_interleave(
        heads // kv, 0).flatten()
    up = torch.arange(width)
    if fused:
        values, up = values + (heads + kv) * size, up + width
    for i in range(fields["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        attention, mlp = layer + "self_attn.", layer + "mlp."
        yield Input([attention + "qkv_proj"] if fused else
                    [f"{attention}{each}_proj" for each in "qkv"],
                    norm=layer + "input_layernorm")
        yield Input([attention + "o_proj"], matrix=attention + (
            "qkv_proj" if fused else "v_proj"), elements=values)
        yield Input([mlp + "gate_up_proj"] if fused else
                    [mlp + "gate_proj", mlp + "up_proj"],
                    norm=layer + ("pre_feedforward_layernorm" if post
                                  else "post_attention_layernorm"))
        yield Input([mlp + "down_proj"], matrix=mlp + (
            "gate_up_proj" if fused else "up_proj"), elements=up)


def add_outliers(twin, inputs, offset):
    """Some channels behind norms are large, and what reads them as small: the
    same function."""
    for model in (twin.fp32, twin.fp64):
        weights = dict(model.named_parameters())
        for each in inputs:
            if not each.norm:
                continue
            norm = weights[each.norm + ".weight"].data
            for channel in OUTLIERS:
                norm[channel] = (norm[channel] + offset) * FACTOR - offset
                for reader in each.readers:
                    weights[reader + ".weight"].data[:, channel] /= FACTOR
    # What is compared has the file's weights.
    for name, parameter in twin.fp64.named_parameters():
        parameter.data.copy_(dict(twin.fp32.named_parameters())[name].data)


def measure(model, inputs, tokens):
    """{reader: means of |x| and x² over whole windows}."""
    sums, hooks, count = {}, [], 0

    def hook(name):
        def add(module, arguments):
            x = arguments[0].detach().double().reshape(
                -1, arguments[0].shape[-1])
            old = sums.get(name, (0, 0))
            sums[name] = (old[0] + x.abs().sum(0), old[1] + (x * x).sum(0))
        return add
    modules = dict(model.named_modules())
    for each in inputs:
        for name in each.readers:
            hooks.append(modules[name].register_forward_pre_hook(hook(name)))
    for window in torch.tensor(tokens).split(WINDOW):
        if len(window) == WINDOW:
            with torch.no_grad():
                hf_models.run(model, window[None])
            count += WINDOW
    for each in hooks:
        each.remove()
    return {name: (a / count, b / count) for name, (a, b) in sums.items()}


def choose(each, weights, statistics, bits, zeros):
    """(exponent, scales of channels, of the elements before, errors)"""
    magnitude, square = statistics[each.readers[0]]
    for other in each.readers[1:]:
        assert torch.equal(statistics[other][0], magnitude)
    elements = (torch.arange(len(magnitude)) if each.elements is None
                else each.elements)
    count = (len(magnitude) if each.norm
             else weights[each.matrix + ".weight"].shape[0])
    made = torch.zeros(count, dtype=torch.float64).index_add(
        0, elements, torch.ones(len(elements), dtype=torch.float64))
    mean = torch.zeros(count, dtype=torch.float64).index_add(
        0, elements, magnitude) / made.clamp(min=1)
    best, errors = None, []
    for i in range(EXPONENTS):
        scale = (mean ** (i / EXPONENTS)).clamp(min=1e-4)
        used = scale[made > 0]
        scale = scale / (used.min() * used.max()).sqrt()
        scale[made == 0] = 1
        if i == 0:
            scale[:] = 1
        of_channel = scale[elements]
        error = 0
        for reader in each.readers:
            scaled = (weights[reader + ".weight"].double()
                      * of_channel).float()
            rounded = quantization.dequantize(scaled, bits, GROUP, zeros)
            error += (square / of_channel ** 2
                      * (scaled.double() - rounded) ** 2).sum().item()
        errors.append(error)
        if error == min(errors):
            best = (i, of_channel, scale)
    return (*best, errors)


def folded(weights, each, of_channel, scale, offset):
    for reader in each.readers:
        weights[reader + ".weight"] *= of_channel
    if each.norm:
        norm = weights[each.norm + ".weight"]
        norm.copy_((norm + offset) / scale - offset)
        return
    weights[each.matrix + ".weight"] /= scale[:, None]
    if each.matrix + ".bias" in weights:
        weights[each.matrix + ".bias"] /= scale


def stored_weights(out, bits):
    """What the written tensors stand for, by their names; and the steps."""
    stored = safetensors.torch.load_file(out / "model.safetensors")
    result, steps = {}, {}
    for name, tensor in stored.items():
        if name.endswith("_packed"):
            stem = name.removesuffix("_packed")
            scale = stored[stem + "_scale"]
            points = quantize_oracle.zero_points(
                stored.get(stem + "_zero_point"), *scale.shape, bits)
            result[stem] = quantize_oracle.unpacked(tensor, scale, bits, points)
            steps[stem] = scale.double().abs().repeat_interleave(
                result[stem].shape[1] // scale.shape[1], 1)
        elif not name.endswith(("_scale", "_shape", "_zero_point")):
            result[name] = tensor.double()
    return result, steps


def logits_of(model, tokens):
    with torch.no_grad():
        return hf_models.run(model, torch.tensor(tokens[:64])[None]).double()


def off(logits, exact):
    return ((logits - exact).square().mean().sqrt() / exact.std()).item()


def load(twin, weights):
    for name, parameter in twin.fp64.named_parameters():
        if name in weights:
            parameter.data.copy_(weights[name])


def rounded_head(twin, weights):
    """The head has 8 bits when it is read."""
    table = ("lm_head.weight" if "lm_head.weight" in weights
             else "model.embed_tokens.weight")
    value = quantization.dequantize(weights[table].float(), 8, GROUP)
    if hasattr(twin.fp64, "lm_head"):
        twin.fp64.lm_head.weight = torch.nn.Parameter(value.double())
    else:
        twin.fp64.head = value.double()


def compare(binaries, folder, family, kind, zeros=False):
    bits = {"int8": 8, "int4": 4}[kind]
    quant = quantization.Quantization(kind, GROUP, zeros)
    name = f"{family}-{kind}" + ("-zeros" if zeros else "")
    source, out = folder / f"model-{name}", folder / f"written-{name}"
    fields = FAMILIES[family]
    offset = 1 if fields["model_type"].startswith("gemma") else 0
    inputs = list(inputs_of(fields))
    twin = Twins(family, seed=21)
    add_outliers(twin, inputs, offset)
    twin.save(source)
    tokenizer = quantize_oracle.save_tokenizer(source)
    (folder / "calibrate.txt").write_text(text_of(22, 1100))
    (folder / "text.txt").write_text(text_of(23, 200))
    tokens = tokenizer.encode(text_of(22, 1100)).ids
    read = tokenizer.encode(text_of(23, 200)).ids
    done = tessera(binaries, "quantize", source, "-o", out, *quant.flags,
                   "--calibrate", folder / "calibrate.txt", "--text",
                   folder / "text.txt", "--window", WINDOW)
    print(done.stdout, done.stderr, sep="")
    check(done.returncode == 0, f"{name}: runs")
    if done.returncode:
        return

    statistics = measure(twin.fp64, inputs, tokens)
    original = {key: each.detach().clone() for key, each in
                twin.fp64.named_parameters()}
    expected = {key: each.clone() for key, each in original.items()}
    ratios, exponents = [], []
    for each in inputs:
        exponent, of_channel, scale, errors = choose(
            each, original, statistics, bits, zeros)
        exponents.append(exponent)
        ratios.append(errors[exponent] / errors[0])
        folded(expected, each, of_channel, scale, offset)
    printed = float(re.search(r"errors are (\d+\.\d) %", done.stdout)[1]) / 100
    mean = sum(ratios) / len(ratios)
    check(abs(printed - mean) < 0.002 and max(exponents) > 0,
          f"{name}: errors {printed:.3f} and {mean:.3f} of those without "
          f"scales, exponents {exponents}")

    exact = logits_of(twin.fp64, read)
    plain = Twins(family, seed=21)
    load(plain, original)
    plain.fp32.load_state_dict(
        {key: each.float() for key, each in original.items()}, strict=False)
    quant.apply(plain)
    without = off(logits_of(plain.fp64, read), exact)
    load(twin, expected)
    same = off(logits_of(twin.fp64, read), exact)
    check(same < 1e-10, f"{name}: scales alone change logits by {same:.1g}")

    stored, steps = stored_weights(out, bits)
    vectors = max(((value - expected[key]).abs().max()
                   / expected[key].abs().max()).item()
                  for key, value in stored.items() if key not in steps)
    check(vectors < 1e-5, f"{name}: what is not quantized is off by "
          f"{vectors:.1g}")
    wrong = sum(((value - quantization.dequantize(
        expected[key].float(), bits, GROUP, zeros)).abs()
        > steps[key] * 0.1).sum().item() for key, value in stored.items()
        if key in steps)
    total = sum(value.numel() for key, value in stored.items() if key in steps)
    check(len(steps) == len({reader for each in inputs
                             for reader in each.readers})
          and wrong < total / 500,
          f"{name}: {wrong} of {total} integers of {len(steps)} matrices "
          "differ")

    load(twin, stored)
    rounded_head(twin, original)
    scaled = off(logits_of(twin.fp64, read), exact)
    check(scaled < (0.7 if bits == 4 else 1) * without,
          f"{name}: logits are off by {scaled:.3g}, without scales by "
          f"{without:.3g}")
    ours = [float(each) for each in
            re.findall(r"perplexity (\d+\.\d+)\b(?! %)", done.stdout)]
    theirs = [quantize_oracle.perplexity(model.fp64, read)[0]
              for model in (plain, twin)]
    check(len(ours) == 3 and all(abs(a / b - 1) < 1e-4 for a, b in
                                 zip(ours[1:], theirs)),
          f"{name}: perplexities {ours[1:]} and {theirs}")
    made = tessera(binaries, "generate", out, "--prompt", "a", "--max-tokens",
                   8, "--temperature", 0, "--ignore-end", "--quiet")
    check(made.returncode == 0 and made.stdout,
          f"{name}: generates {made.stderr}")


def refusals(binaries, folder):
    text, short = folder / "calibrate.txt", folder / "short.txt"
    short.write_text("a" * 1000)
    for family, words in (("gpt2", "gpt2 keeps its matrices as [in, out]"),
                          ("mixtral", "mixtral has experts")):
        place = folder / f"refused-{family}"
        Twins(family, seed=1).save(place)
        refused(tessera(binaries, "quantize", place, "-o", folder / "no",
                        "--quant", "int4", "--calibrate", text), words)
    place = folder / "model-llama_groups-int4"
    for more, words in (
            (["--calibrate", short],
             "has 1000 tokens; at least 1024 are required"),
            (["--calibrate", text, "--window", 1101],
             "has 1100 tokens; at least 1101 are required"),
            (["--calibrate", text, "--window", 512],
             "do not fit the model's 256 positions"),
            (["--calibrate", folder / "none.txt"], "none.txt")):
        refused(tessera(binaries, "quantize", place, "-o", folder / "no",
                        "--quant", "int4", *more), words)
    check(not (folder / "no").exists(), "nothing is left of it")


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    cache_in(folder)
    torch.set_num_threads(1)
    cases = [("llama_groups", "int4", False), ("qwen2_groups", "int4", True),
             ("gemma2_groups", "int4", False), ("phi3_groups", "int8", False)]
    for family, kind, zeros in cases:
        if family in sys.argv[3:] or len(sys.argv) == 3:
            compare(binaries, folder, family, kind, zeros)
    if len(sys.argv) == 3:
        refusals(binaries, folder)
    print("failed" if quantize_oracle.failed else "all as expected")
    return bool(quantize_oracle.failed)


if __name__ == "__main__":
    sys.exit(main())
