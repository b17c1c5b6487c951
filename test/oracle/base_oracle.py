#!/usr/bin/env python3
"""Compares gradients of adapters (LoRA, DoRA) over a quantized base with PEFT's on a
model whose matrices are the dequantized ones, in fp32 and bf16: as in hf_oracle.py, our
distance to fp64 is at most twice PyTorch's own. Bases are quantized as they are loaded
(NF4 by normal_float.py, the others by quantization.py), or stored by other tools (GPTQ,
AWQ, fp8), whose codes are kept.

    base_oracle.py BIN FOLDER [--target TARGET] [--seeds COUNT] [--base NAME]... [--family NAME]...

Where transformers is not installed, prints so and exits 0.
"""
import argparse
import copy
import json
import pathlib
import shutil
import sys

try:
    import peft  # noqa: F401
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

import hf_adapters
import hf_oracle
import normal_float
import quantization
import stored_bases
from hf_models import FAMILIES, batches, gradients
from hf_tessera import Tessera, ToolError, cache_in, processor_targets

# Rows of whole blocks.
FAMILIES["gpt2"].update(n_embd=64, n_head=4)
FAMILIES["llama"].update(hidden_size=128, intermediate_size=320, num_attention_heads=4)
FAMILIES["mixtral"].update(hidden_size=64, intermediate_size=96, num_attention_heads=4)


class Nf4:
    settings, stored = ["adapter.base=nf4"], None

    def values(self, matrix):
        return torch.from_numpy(normal_float.dequantized(matrix.numpy()).copy())


class Rounded:
    """As --quant of inference quantizes."""

    def __init__(self, kind, group=32, zeros=False):
        self.quant, self.stored = quantization.Quantization(kind, group, zeros), None
        self.settings = [f"adapter.base={kind}", f"inference.group={group}",
                         f"inference.zeros={'groups' if zeros else 'none'}"]

    def values(self, matrix):
        return quantization.dequantize(matrix, self.quant.bits, self.quant.group,
                                       self.quant.zeros, self.quant.floats)


class Stored:
    """A checkpoint's own codes (stored_bases.py), which no key names."""

    def __init__(self, form):
        self.stored, self.settings = form, []

    def values(self, matrix):
        return self.stored.values(matrix)


BASES = {"nf4": Nf4(), "int8": Rounded("int8"), "int4": Rounded("int4", 64, zeros=True),
         "fp8": Rounded("fp8"), "gptq": Stored(stored_bases.Gptq(bits=4, group=32)),
         "awq": Stored(stored_bases.Awq(group=64)), "float8": Stored(stored_bases.Float8())}
CASES = [("nf4", "gpt2", "fp32", "lora"), ("nf4", "gpt2", "bf16", "lora"), ("nf4", "llama", "fp32", "lora"),
         ("nf4", "llama", "bf16", "lora"), ("nf4", "llama", "bf16", "dora"), ("nf4", "gpt2", "fp32", "dora"),
         ("int8", "gpt2", "fp32", "lora"), ("int8", "llama", "bf16", "lora"),
         ("int4", "llama", "fp32", "dora"), ("fp8", "llama", "bf16", "lora"),
         ("gptq", "llama", "bf16", "lora"), ("awq", "llama", "fp32", "lora"),
         ("float8", "llama", "fp32", "lora"), ("int8", "mixtral", "fp32", "lora")]


def is_matrix(name, parameter):
    return (parameter.dim() == 2 and any(part.isdigit() for part in name.split("."))
            and not name.endswith(".gate.weight"))  # a router


def quantized(model, original, family, base):
    """The model with its layers' matrices as the base has the original's."""
    result = copy.deepcopy(model)
    weights = dict(original.named_parameters())
    for name, parameter in result.named_parameters():
        if not is_matrix(name, parameter):
            continue
        weight = weights[name].data.float()
        matrix = base.values(weight.T.contiguous() if family == "gpt2" else weight)
        matrix = matrix.T if family == "gpt2" else matrix
        parameter.data = matrix.to(parameter.dtype, copy=True).contiguous()
    return result


def stored_model(source, base):
    """The model's directory with the config of a checkpoint that has the base's codes."""
    folder = source.with_name(f"{source.name}-stored")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = base.stored.config
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def compare(tessera, report, case, target, seeds):
    name, family, dtype, kind = case
    base = BASES[name]
    twins = hf_oracle.make_twins(family, tessera.folder, count=seeds)
    originals = {id(model): twin.fp32 for twin, _ in twins
                 for model in (twin.fp32, twin.bf16, twin.fp64)}

    def of(model, *batch):
        dequantized = quantized(model, originals[id(model)], family, base)
        loss, grads = gradients(hf_adapters.adapted(dequantized, family, 7, kind=kind), *batch)
        return loss, hf_adapters.trained(grads)
    file = tessera.folder / f"{family}-{name}.safetensors"
    if base.stored:
        twins = [(twin, stored_model(folder, base)) for twin, folder in twins]
        file = twins[0][1] / "model.safetensors"  # with the config beside it

    # Magnitudes begin as norms of the dequantized base.
    def weights(twin):
        dequantized = quantized(twin.fp32, twin.fp32, family, base)
        model = hf_adapters.adapted(dequantized, family, 7, kind=kind)
        for each, parameter in twin.fp32.named_parameters():
            hf_adapters.parameter_of(model, each).data = parameter.data
        hf_adapters.save(model, file)
        if base.stored:
            tensors = safetensors.torch.load_file(file)
            for each, parameter in twin.fp32.named_parameters():
                if is_matrix(each, parameter):
                    base.stored.store(each, tensors.pop(each), tensors)
            stored_bases.save(tensors, file)
        return file
    comparison = hf_oracle.Comparison(tessera, report, family, dtype, target, twins)
    comparison.compare_gradients(
        f"{kind} gradients over {name}", of,
        comparison.compile(more=[*hf_adapters.settings(family, kind), *base.settings]),
        lambda seed: [x[0] for x in batches(family, 1, 900 + seed)], weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--target")
    parser.add_argument("--seeds", type=int, default=hf_oracle.SEEDS,
                        help="models whose errors are pooled")
    parser.add_argument("--base", action="append", choices=BASES)
    parser.add_argument("--family", action="append", choices=["gpt2", "llama", "mixtral"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    cache_in(options.folder)
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}")
    report = hf_oracle.Report()
    tessera = Tessera(options.binaries, options.folder)
    targets = processor_targets()
    for turn, case in enumerate(CASES):
        if (options.base and case[0] not in options.base) or \
                (options.family and case[1] not in options.family):
            continue
        target = options.target or targets[turn % len(targets)]
        print(f"# {' '.join(case)} on {target}", flush=True)
        try:
            compare(tessera, report, case, target, options.seeds)
        except ToolError as error:
            report.fact(case[1], case[2], "failed", error, False)
    print(f"{report.lines} comparisons, {report.failures} failed")
    return 1 if report.failures or not report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
