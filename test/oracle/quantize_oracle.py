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

import generate_oracle
import hf_models
import quantization
from hf_models import FAMILIES, Twins
from hf_tessera import cache_in, processor_targets

# As llama, but for columns that are whole groups; and experts in such.
FAMILY = "llama_whole_groups"
FAMILIES[FAMILY] = dict(FAMILIES["llama"], intermediate_size=160)
EXPERTS = "mixtral_packed"
MATRICES = {FAMILY: 14, EXPERTS: 2 * (4 + 3 * 5)}
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


def perplexity(model, tokens, rounds=False):
    """`rounds`: with keys and values as int8."""
    sums, count = 0.0, 0
    for window in torch.tensor(tokens).split(WINDOW):
        with torch.no_grad():
            more = {"past_key_values": generate_oracle.RoundingCache(),
                    "use_cache": False} if rounds else {}
            logits = hf_models.run(model, window[None], **more)[0].double()
        sums += torch.nn.functional.cross_entropy(
            logits[:-1], window[1:], reduction="sum").item()
        count += len(window) - 1
    return math.exp(sums / count), count


def integers(packed, bits):
    """The format's own words [n, m]: unsigned, the first value lowest."""
    places = torch.arange(0, 32, bits)
    values = (packed.to(torch.int64)[..., None] >> places) & (2 ** bits - 1)
    return values.reshape(packed.shape[0], -1)


def unpacked(packed, scale, bits, zeros):
    """`zeros` [rows, groups] are unsigned, as the integers are."""
    values = integers(packed, bits)
    groups = values.reshape(scale.shape[0], scale.shape[1], -1)
    return ((groups - zeros[..., None]) * scale.double()[..., None]).reshape(
        values.shape)


def zero_points(packed, rows, groups, bits):
    """[rows, groups]: the middle where there are none, which are symmetric."""
    if packed is None:
        return torch.full((rows, groups), 2 ** (bits - 1))
    return integers(packed.T, bits).T[:rows]


def load_tensors(path):
    """As safetensors.torch has them, and e4m3, which it does not know, as f64."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    floats = {name: entry for name, entry in header.items()
              if entry.get("dtype") == "F8_E4M3"}
    if not floats:
        return safetensors.torch.load_file(path)
    types = {"F32": torch.float32, "F16": torch.float16,
             "BF16": torch.bfloat16, "F8_E4M3": torch.uint8}
    numbers = quantization.e4m3_numbers().double()
    numbers = torch.cat([numbers, numbers[:1] * math.nan])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        from_, to = (begin + offset for offset in entry["data_offsets"])
        tensor = torch.frombuffer(bytearray(data[from_:to]),
                                  dtype=types[entry["dtype"]])
        if name in floats:
            tensor = torch.cat([numbers, -numbers])[tensor.long()]
        tensors[name] = tensor.reshape(entry["shape"])
    return tensors


def check_floats(twin, out):
    """Matrices keep their names, with scales beside them."""
    stored, matrices = load_tensors(out / "model.safetensors"), 0
    for name, parameter in twin.fp32.named_parameters():
        value = stored.pop(name)
        if not is_matrix(name):
            matrices += 0 if torch.equal(value, parameter.data) else -1000
            continue
        scale = stored.pop(name + "_scale").double()
        groups = value.reshape(*scale.shape, GROUP) * scale[..., None]
        matrices += torch.equal(groups.reshape(value.shape),
                                quantization.dequantize(parameter.data, 8,
                                                        GROUP, floats=True))
    check(not stored and matrices == MATRICES[twin.family],
          f"fp8: {matrices} matrices are what their e4m3 stand for")
    config = json.loads((out / "config.json").read_text())
    config = config["quantization_config"]
    weights = config["config_groups"]["group_0"]["weights"]
    check(config["format"] == "float-quantized" and weights["type"] == "float"
          and weights["num_bits"] == 8 and weights["group_size"] == GROUP,
          "fp8: config.json says so")


def is_matrix(name):
    return name.endswith("_proj.weight") or ".experts." in name


def check_written(twin, out, bits, zeros):
    stored = safetensors.torch.load_file(out / "model.safetensors")
    original = dict(twin.fp32.named_parameters())
    same = matrices = 0
    for name, parameter in original.items():
        if not is_matrix(name):
            same += torch.equal(stored.pop(name), parameter.data)
            continue
        rows, columns = stored.pop(name + "_shape").tolist()
        assert (name + "_zero_point" in stored) == zeros
        points = zero_points(stored.pop(name + "_zero_point", None), rows,
                             columns // GROUP, bits)
        value = unpacked(stored.pop(name + "_packed"),
                         stored.pop(name + "_scale"), bits, points)
        matrices += (value.shape == (rows, columns) and torch.equal(
            value, quantization.dequantize(parameter.data, bits, GROUP, zeros)))
    wanted = MATRICES[twin.family]
    check(not stored and matrices == wanted
          and same == len(original) - wanted,
          f"{bits} bits: {matrices} matrices are what their integers stand "
          f"for, {same} tensors are as they were")
    config = json.loads((out / "config.json").read_text())
    weights = config["quantization_config"]["config_groups"]["group_0"][
        "weights"]
    check(weights["num_bits"] == bits and weights["group_size"] == GROUP
          and weights["symmetric"] is not zeros,
          f"{bits} bits: config.json says so")
    left = [f"model.layers.{i}.block_sparse_moe.gate" for i in range(2)]
    ignored = config["quantization_config"]["ignore"]
    check(ignored == ["lm_head"] + left * (twin.family == EXPERTS),
          f"left out: {ignored}")


def compare(binaries, folder, kind, zeros=False, family=FAMILY):
    bits = {"int8": 8, "int4": 4, "fp8": 8}[kind]
    quant = quantization.Quantization(kind, GROUP, zeros)
    kind += "-zeros" if zeros else ""
    kind += f"-{family}" if family != FAMILY else ""
    source, out = folder / f"model-{kind}", folder / f"written-{kind}"
    twin = Twins(family, seed=5)
    twin.save(source)
    tokenizer = save_tokenizer(source)
    generator = torch.Generator().manual_seed(6)
    text = "".join(map(chr, torch.randint(32, 127, (300,),
                                          generator=generator).tolist()))
    (folder / "text.txt").write_text(text)
    tokens = tokenizer.encode(text).ids
    done = tessera(binaries, "quantize", source, "-o", out, *quant.flags,
                   "--text", folder / "text.txt", "--window", WINDOW)
    print(done.stdout, done.stderr, sep="")
    printed = [float(each) for each in
               re.findall(r"perplexity (\d+\.\d+)\b(?! %)", done.stdout)]
    check(done.returncode == 0 and len(printed) == 2, f"{kind}: runs")
    before, count = perplexity(twin.fp64, tokens)
    quant.apply(twin)
    after, _ = perplexity(twin.fp64, tokens)
    for ours, theirs, what in zip(printed, (before, after),
                                  ("as it is", kind)):
        check(abs(ours / theirs - 1) < 1e-5,
              f"perplexity {what}: {ours} and {theirs:.4f}")
    check(f"over {count} tokens" in done.stdout, f"{kind}: {count} tokens")
    if kind == "int8":
        done = tessera(binaries, "quantize", source, "--quant", "none", "--kv",
                       "int8", "--text", folder / "text.txt", "--window",
                       WINDOW)
        print(done.stdout, done.stderr, sep="")
        printed = re.findall(r"perplexity (\d+\.\d+)\b(?! %)", done.stdout)
        theirs, _ = perplexity(Twins(family, seed=5).fp64, tokens, rounds=True)
        # A last bit decides to which side a half falls.
        check(len(printed) == 2 and abs(float(printed[1]) / theirs - 1) < 1e-4,
              f"perplexity with --kv int8: {printed} and {theirs:.4f}")
    if quant.floats:
        check_floats(Twins(family, seed=5), out)
    else:
        check_written(Twins(family, seed=5), out, bits, zeros)
    kept, expected = ["--quant", "none"], [after]
    if quant.floats:  # before comes what is read as bf16, beside the head
        plain = Twins(family, seed=5)
        quant.apply(plain, head=False, stored_as=torch.bfloat16)
        kept, expected = quant.flags, [perplexity(plain.fp64, tokens)[0], after]
    done = tessera(binaries, "quantize", out, *kept, "--text",
                   folder / "text.txt", "--window", WINDOW)
    again = re.findall(r"perplexity (\d+\.\d+)\b(?! %)", done.stdout)
    check(len(again) == len(expected)
          and all(abs(float(ours) / theirs - 1) < 1e-4
                  for ours, theirs in zip(again, expected)),
          f"{kind}: what was written has the perplexity {again} of {expected} "
          f"{done.stderr}")

    def generate(place, *more):
        return tessera(binaries, "generate", place, "--prompt", text[:20],
                       "--max-tokens", 40, "--temperature", 0, "--ignore-end",
                       "--quiet", *more)
    direct = generate(source, *quant.flags)
    stored = generate(out, *(quant.flags if quant.floats else []))
    check(direct.returncode == stored.returncode == 0
          and direct.stdout == stored.stdout != "",
          f"{kind}: what was written generates the same {direct.stderr}"
          f"{stored.stderr}")
    others = [] if quant.floats else [
        ("GPTQ", write_gptq(out, folder / f"gptq-{kind}", bits,
                            config={"sym": not zeros}))]
    if zeros and bits == 4:
        others.append(("AWQ", write_awq(out, folder / f"awq-{kind}")))
    for name, place in others:
        other = generate(place)
        check(other.returncode == 0 and other.stdout == stored.stdout,
              f"{kind}: the same as {name} has it {other.stderr}")
    return source, out


def packed_words(values, bits):
    """[n, …] as [n × bits / 32, …]: in a word the first value is the lowest."""
    count = 32 // bits
    parts = values.reshape(-1, count, *values.shape[1:]).to(torch.int64)
    words = sum(parts[:, i] << (i * bits) for i in range(count))
    return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32)


def new_directory(source, out):
    """With what stands beside the weights."""
    out.mkdir()
    for name in ("tokenizer.json", "generation_config.json"):
        if (source / name).exists():
            (out / name).write_bytes((source / name).read_bytes())


def repacked(source, bits, matrix):
    """The tensors of `source`, but for its matrices, of which `matrix` gives
    them."""
    stored = safetensors.torch.load_file(source / "model.safetensors")
    tensors = {}
    for name, tensor in stored.items():
        stem, _, end = name.rpartition("_")
        if end == "packed":
            scale = stored[stem + "_scale"]
            zeros = zero_points(stored.get(stem + "_zero_point"), *scale.shape,
                                bits)
            tensors.update(matrix(stem.removesuffix("weight"),
                                  integers(tensor, bits), zeros, scale))
        elif end not in ("shape", "scale") and not stem.endswith("zero"):
            tensors[name] = tensor
    return tensors


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def awq_words(values):
    """[n, m] as [n, m / 8]: AutoAWQ's WQLinear_GEMM.from_linear, loop by
    loop."""
    words = torch.zeros(values.shape[0], values.shape[1] // 8,
                        dtype=torch.int64)
    for column in range(words.shape[1]):
        for i, place in enumerate(AWQ_ORDER):
            words[:, column] |= values[:, column * 8 + place].to(
                torch.int64) << (i * 4)
    return torch.where(words >= 2 ** 31, words - 2 ** 32,
                       words).to(torch.int32)


def awq_matrix(stem, values, zeros, scale):
    return {stem + "qweight": awq_words(values.T),
            stem + "qzeros": awq_words(zeros.T),
            stem + "scales": scale.T.contiguous().to(torch.float16)}


def save_awq(source, out, tensors, **changes):
    new_directory(source, out)
    safetensors.torch.save_file(tensors, out / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "awq", "bits": 4, "group_size": GROUP,
        "zero_point": True, "version": "gemm", "modules_to_not_convert": None,
        **changes}
    (out / "config.json").write_text(json.dumps(config))
    return out


def write_awq(source, out):
    """The same matrices as AutoAWQ stores them."""
    return save_awq(source, out, repacked(source, 4, awq_matrix))


def write_gptq(source, out, bits, zero_less=1, **changes):
    """The same matrices as AutoGPTQ stores them: transposed, with zero points
    and the group of each column. 1 is taken from words of zero points, as
    GPTQModel does it, which differs where one is 0."""
    ones = sum(1 << place for place in range(0, 32, bits))

    def matrix(stem, values, zeros, scale):
        words = packed_words(zeros, bits).to(torch.int64) - zero_less * ones
        words = (words + 2 ** 31) % 2 ** 32 - 2 ** 31
        return {stem + "scales": scale.T.contiguous(),
                stem + "qzeros": words.to(torch.int32).T.contiguous(),
                stem + "qweight": packed_words(values.T, bits).contiguous(),
                stem + "g_idx": (torch.arange(values.shape[1]) // GROUP).to(
                    torch.int32)}
    new_directory(source, out)
    tensors = repacked(source, bits, matrix)
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


def check_awq(binaries, folder, source):
    """Any integers, zero points and scales, against transformers in f64 with what
    they stand for."""
    generator = torch.Generator().manual_seed(8)
    twin, out = Twins(FAMILY, seed=7), folder / "awq-any"
    tensors = {}
    for name, parameter in twin.fp32.named_parameters():
        if not name.endswith("_proj.weight"):
            tensors[name] = parameter.data.to(torch.float16)
            value = tensors[name].float()
            if name == "lm_head.weight":
                value = quantization.dequantize(value, 8, GROUP)
        else:
            rows, columns = parameter.shape
            groups = columns // GROUP
            values = torch.randint(0, 16, (rows, columns), generator=generator)
            zeros = torch.randint(0, 16, (rows, groups), generator=generator)
            scale = (torch.rand(rows, groups, generator=generator) * 0.02
                     + 0.002).to(torch.float16)
            tensors.update(awq_matrix(name.removesuffix("weight"), values,
                                      zeros, scale))
            value = ((values.reshape(rows, groups, -1) - zeros[..., None])
                     * scale.double()[..., None]).reshape(rows, columns)
        own = dict(twin.fp64.named_parameters())[name]
        own.data = value.to(own.dtype, copy=True)
    save_awq(source, out, tensors)
    texts = generate_oracle.prompts(FAMILY)
    for dtype, bound in (("fp32", 1e-5), ("bf16", 0.02)):
        tokens, logits, _ = generate_oracle.generate(
            binaries, out, processor_targets()[0], dtype, texts, FAMILIES[FAMILY]["vocab_size"],
            None, "rows", chunk=24)
        exact = generate_oracle.following(twin.fp64, texts, tokens)
        error = ((logits - exact).square().mean().sqrt() / exact.std()).item()
        check(error < bound, f"AWQ in {dtype}: logits are off by {error:.2g} of "
              "their spread")
        if dtype == "fp32":
            check(torch.equal(exact.argmax(-1), tokens.long()),
                  f"AWQ in fp32: {tokens.numel()} greedy tokens are theirs")
    for what, words, changes in [
            ("gemv", "quantization_config.version", {"version": "gemv"}),
            ("symmetric", "quantization_config.zero_point",
             {"zero_point": False})]:
        wrong = save_awq(source, folder / f"awq-{what}", tensors, **changes)
        refused(tessera(binaries, "generate", wrong, "--prompt", "a"), words)
    without = save_awq(source, folder / "awq-without", {
        name: tensor for name, tensor in tensors.items()
        if not name.endswith("qzeros")})
    refused(tessera(binaries, "generate", without, "--prompt", "a"),
            "lacks the zero points")


def refused(result, words):
    line = result.stderr.strip()
    check(result.returncode == 1 and words in line, f"refused: {line}")


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    cache_in(folder)
    torch.set_num_threads(1)
    source, _ = compare(binaries, folder, "int8")
    compare(binaries, folder, "fp8")
    compare(binaries, folder, "fp8", family=EXPERTS)
    compare(binaries, folder, "int8", zeros=True)
    _, zeros = compare(binaries, folder, "int4", zeros=True)
    compare(binaries, folder, "int8", family=EXPERTS)
    compare(binaries, folder, "int4", zeros=True, family=EXPERTS)
    source, out = compare(binaries, folder, "int4")
    refused(tessera(binaries, "generate", out, "--quant", "int8"),
            "stored as int4 in groups of 32")
    refused(tessera(binaries, "generate", zeros, "--quant", "int8"),
            "stored as int4 in groups of 32 with zero points")
    check_awq(binaries, folder, source)
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
            ("second", "quantization_config.checkpoint_format",
             dict(config={"sym": False, "checkpoint_format": "gptq_v2"}))]:
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
