#!/usr/bin/env python3
"""Compares gradients of adapters (LoRA, DoRA) over a base in NF4 with PEFT's on a model
whose matrices are the dequantized ones (normal_float.py), in fp32 and bf16: as
in hf_oracle.py, our distance to fp64 is at most twice PyTorch's own.

    nf4_oracle.py BIN FOLDER [--target TARGET] [--seeds COUNT]

Where transformers is not installed, prints so and exits 0.
"""
import argparse
import copy
import pathlib
import sys

try:
    import peft  # noqa: F401
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

import hf_adapters
import hf_oracle
import normal_float
from hf_models import FAMILIES, batches, gradients
from hf_tessera import Tessera, ToolError, cache_in, processor_targets

# Rows of whole blocks.
FAMILIES["gpt2"].update(n_embd=64, n_head=4)
FAMILIES["llama"].update(hidden_size=128, intermediate_size=320, num_attention_heads=4)


def quantized(model, original, family):
    """The model with its layers' matrices as NF4 of the original's has them."""
    result = copy.deepcopy(model)
    weights = dict(original.named_parameters())
    for name, parameter in result.named_parameters():
        if parameter.dim() != 2 or not any(part.isdigit() for part in name.split(".")):
            continue
        weight = weights[name].data.float().numpy()
        if family == "gpt2":
            matrix = normal_float.dequantized(weight.T.copy()).T
        else:
            matrix = normal_float.dequantized(weight)
        parameter.data = torch.from_numpy(matrix.copy()).to(parameter.dtype)
    return result


def compare(tessera, report, family, dtype, target, kind, seeds):
    twins = hf_oracle.make_twins(family, tessera.folder, count=seeds)
    comparison = hf_oracle.Comparison(tessera, report, family, dtype, target, twins)
    originals = {id(model): twin.fp32 for twin, _ in twins
                 for model in (twin.fp32, twin.bf16, twin.fp64)}

    def of(model, *batch):
        base = quantized(model, originals[id(model)], family)
        loss, grads = gradients(hf_adapters.adapted(base, family, 7, kind=kind), *batch)
        return loss, hf_adapters.trained(grads)
    file = tessera.folder / f"{family}-nf4.safetensors"

    # Magnitudes begin as norms of the dequantized base.
    def weights(twin):
        base = quantized(twin.fp32, twin.fp32, family)
        model = hf_adapters.adapted(base, family, 7, kind=kind)
        for name, parameter in twin.fp32.named_parameters():
            hf_adapters.parameter_of(model, name).data = parameter.data
        hf_adapters.save(model, file)
        return file
    comparison.compare_gradients(
        f"{kind} gradients over nf4", of,
        comparison.compile(more=[*hf_adapters.settings(family, kind), "adapter.base=nf4"]),
        lambda seed: [x[0] for x in batches(family, 1, 900 + seed)], weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--target")
    parser.add_argument("--seeds", type=int, default=hf_oracle.SEEDS,
                        help="models whose errors are pooled")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    cache_in(options.folder)
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}")
    report = hf_oracle.Report()
    tessera = Tessera(options.binaries, options.folder)
    targets = processor_targets()
    cases = [(f, d, "lora") for f in ("gpt2", "llama") for d in ("fp32", "bf16")]
    for turn, (family, dtype, kind) in enumerate([*cases, ("llama", "bf16", "dora"), ("gpt2", "fp32", "dora")]):
        target = options.target or targets[turn % len(targets)]
        print(f"# {family} {dtype} on {target}", flush=True)
        try:
            compare(tessera, report, family, dtype, target, kind, options.seeds)
        except ToolError as error:
            report.fact(family, dtype, "failed", error, False)
    print(f"{report.lines} comparisons, {report.failures} failed")
    return 1 if report.failures or not report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
