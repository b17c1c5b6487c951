#!/usr/bin/env python3
"""Compares `tessera quantize` with PyTorch: the perplexities that it prints, and
what it writes, unpacked here as compressed-tensors says.

    quantize_oracle.py BIN FOLDER

Where transformers is not installed, prints so and exits 0.
"""
import json
import math
import pathlib
import re
import subprocess
import sys

try:
    import safetensors.torch
    import torch
    import transformers  # noqa: F401
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

import hf_models
import quantization
from hf_models import FAMILIES, Twins

# As llama, but for columns that are whole groups.
FAMILY = "llama_whole_groups"
FAMILIES[FAMILY] = dict(FAMILIES["llama"], intermediate_size=160)
WINDOW, GROUP = 48, 32
failed = 0


def check(good, what):
    global failed
    failed += not good
    print(f"{'ok' if good else 'FAILED'}: {what}", flush=True)


def tessera(binaries, *arguments):
    return subprocess.run([binaries / "tessera", *map(str, arguments)],
                          capture_output=True, text=True)


def save_tokenizer(folder):
    """A token for each byte."""
    vocab = {symbol: i for i, symbol in
             enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def perplexity(model, tokens):
    sums, count = 0.0, 0
    for window in torch.tensor(tokens).split(WINDOW):
        with torch.no_grad():
            logits = hf_models.run(model, window[None])[0].double()
        sums += torch.nn.functional.cross_entropy(
            logits[:-1], window[1:], reduction="sum").item()
        count += len(window) - 1
    return math.exp(sums / count), count


def unpacked(packed, scale, bits):
    """The format's own words: unsigned, the first value lowest."""
    places = torch.arange(0, 32, bits)
    values = (packed.to(torch.int64)[..., None] >> places) & (2 ** bits - 1)
    values = values.reshape(packed.shape[0], -1) - 2 ** (bits - 1)
    groups = values.reshape(scale.shape[0], scale.shape[1], -1)
    return (groups * scale.double()[..., None]).reshape(values.shape)


def check_written(twin, out, bits):
    stored = safetensors.torch.load_file(out / "model.safetensors")
    original = dict(twin.fp32.named_parameters())
    same = matrices = 0
    for name, parameter in original.items():
        if not name.endswith("_proj.weight"):
            same += torch.equal(stored.pop(name), parameter.data)
            continue
        rows, columns = stored.pop(name + "_shape").tolist()
        value = unpacked(stored.pop(name + "_packed"),
                         stored.pop(name + "_scale"), bits)
        matrices += (value.shape == (rows, columns) and torch.equal(
            value, quantization.dequantize(parameter.data, bits, GROUP)))
    check(not stored and matrices == 14 and same == len(original) - 14,
          f"{bits} bits: {matrices} matrices are what their integers stand "
          f"for, {same} tensors are as they were")
    config = json.loads((out / "config.json").read_text())
    weights = config["quantization_config"]["config_groups"]["group_0"][
        "weights"]
    check(weights["num_bits"] == bits and weights["group_size"] == GROUP,
          f"{bits} bits: config.json says so")


def compare(binaries, folder, kind):
    bits = {"int8": 8, "int4": 4}[kind]
    source, out = folder / f"model-{kind}", folder / f"written-{kind}"
    twin = Twins(FAMILY, seed=5)
    twin.save(source)
    tokenizer = save_tokenizer(source)
    generator = torch.Generator().manual_seed(6)
    text = "".join(map(chr, torch.randint(32, 127, (300,),
                                          generator=generator).tolist()))
    (folder / "text.txt").write_text(text)
    tokens = tokenizer.encode(text).ids
    done = tessera(binaries, "quantize", source, "-o", out, "--quant", kind,
                   "--text", folder / "text.txt", "--window", WINDOW,
                   "--cache", "off")
    print(done.stdout, done.stderr, sep="")
    printed = [float(each) for each in
               re.findall(r"perplexity (\d+\.\d+)", done.stdout)]
    check(done.returncode == 0 and len(printed) == 2, f"{kind}: runs")
    before, count = perplexity(twin.fp64, tokens)
    quantization.Quantization(kind, GROUP).apply(twin)
    after, _ = perplexity(twin.fp64, tokens)
    for ours, theirs, what in zip(printed, (before, after),
                                  ("as it is", kind)):
        check(abs(ours / theirs - 1) < 1e-5,
              f"perplexity {what}: {ours} and {theirs:.4f}")
    check(f"over {count} tokens" in done.stdout, f"{kind}: {count} tokens")
    check_written(Twins(FAMILY, seed=5), out, bits)

    def generate(place, *more):
        return tessera(binaries, "generate", place, "--prompt", text[:20],
                       "--max-tokens", 40, "--temperature", 0, "--ignore-end",
                       "--quiet", "--cache", "off", *more)
    direct = generate(source, "--quant", kind)
    stored = generate(out)
    check(direct.returncode == stored.returncode == 0
          and direct.stdout == stored.stdout != "",
          f"{kind}: what was written generates the same {direct.stderr}"
          f"{stored.stderr}")
    gptq = folder / f"gptq-{kind}"
    write_gptq(out, gptq, bits)
    other = generate(gptq)
    check(other.returncode == 0 and other.stdout == stored.stdout,
          f"{kind}: the same as GPTQ has it {other.stderr}")
    return source, out


def packed_words(values, bits):
    """[n, …] as [n × bits / 32, …]: in a word the first value is the lowest."""
    count = 32 // bits
    parts = values.reshape(-1, count, *values.shape[1:]).to(torch.int64)
    words = sum(parts[:, i] << (i * bits) for i in range(count))
    return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32)


def write_gptq(source, out, bits, zero_less=1, **changes):
    """The same matrices as AutoGPTQ stores them: transposed, with zero points
    and the group of each column."""
    out.mkdir()
    for name in ("tokenizer.json", "generation_config.json"):
        if (source / name).exists():
            (out / name).write_bytes((source / name).read_bytes())
    tensors, middle = {}, 2 ** (bits - 1)
    for name, tensor in safetensors.torch.load_file(source / "model.safetensors").items():
        stem, _, end = name.rpartition("_")
        if end == "scale":
            tensors[stem[:-6] + "scales"] = tensor.T.contiguous()
            zeros = torch.full(tensor.shape, middle - zero_less)
            tensors[stem[:-6] + "qzeros"] = packed_words(zeros, bits).T.contiguous()
        elif end == "packed":
            places = torch.arange(0, 32, bits)
            values = (tensor.to(torch.int64)[..., None] >> places) & (2 ** bits - 1)
            columns = values.reshape(tensor.shape[0], -1).T
            tensors[stem[:-6] + "qweight"] = packed_words(columns, bits).contiguous()
            tensors[stem[:-6] + "g_idx"] = (
                torch.arange(len(columns)) // GROUP).to(torch.int32)
        elif end != "shape":
            tensors[name] = tensor
    for name, change in changes.get("tensors", {}).items():
        for each in [key for key in tensors if key.endswith(name)]:
            tensors[each] = change(tensors[each])
    safetensors.torch.save_file(tensors, out / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "gptq", "bits": bits, "group_size": GROUP, "sym": True,
        "desc_act": False, "damp_percent": 0.01, "static_groups": False,
        "true_sequential": True, **changes.get("config", {})}
    (out / "config.json").write_text(json.dumps(config))
    return out


def refused(result, words):
    line = result.stderr.strip()
    check(result.returncode == 1 and words in line, f"refused: {line}")


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    source, _ = compare(binaries, folder, "int8")
    source, out = compare(binaries, folder, "int4")
    refused(tessera(binaries, "generate", out, "--quant", "int8", "--cache",
                    "off"), "stored as int4 in groups of 32")
    refused(tessera(binaries, "quantize", out, "--quant", "int4", "-o",
                    folder / "again"), "quantized already")
    refused(tessera(binaries, "quantize", source, "--quant", "int4"),
            "give -o DIR2, --text FILE or both")
    refused(tessera(binaries, "quantize", source, "--quant", "int4", "-o",
                    out), "is there already; choose another directory")
    refused(tessera(binaries, "quantize", source, "--quant", "int4", "-o",
                    folder / "ragged", "--quant-group", "128"),
            "no multiple of the group of 128")
    for what, words, changes in [
            ("zeros", "zero points other than the middle",
             dict(tensors={"qzeros": lambda zeros: zeros + 1})),
            ("order", "columns in another order",
             dict(tensors={"g_idx": lambda groups: groups.flip(0)})),
            ("act", "quantization_config.desc_act",
             dict(config={"desc_act": True})),
            ("asymmetric", "quantization_config.sym",
             dict(config={"sym": False}))]:
        wrong = write_gptq(out, folder / f"gptq-{what}", 4, **changes)
        refused(tessera(binaries, "generate", wrong, "--prompt", "a"), words)
    second = write_gptq(out, folder / "gptq-v2", 4, zero_less=0,
                        config={"checkpoint_format": "gptq_v2"})
    check(tessera(binaries, "generate", second, "--prompt", "a", "--max-tokens",
                  2).returncode == 0, "version 2 of GPTQ's format")
    print("failed" if failed else "all as expected")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
