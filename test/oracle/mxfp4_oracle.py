#!/usr/bin/env python3
"""Compares what is generated from gpt-oss's experts in MXFP4 with the same
weights as bf16.

    mxfp4_oracle.py BIN FOLDER

Where transformers 5 is installed, its own function makes the bf16 of blocks and
scales; otherwise the OCP specification's table, written out here. Logits and
greedy tokens have to be the same, bit by bit. Where torch is not installed,
prints so and exits 0.
"""
import json
import pathlib
import sys

try:
    import safetensors.torch
    import torch
    import transformers  # noqa: F401
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

import generate_oracle
from float8_oracle import compiled, generated
from hf_families import FAMILIES
from hf_models import Twins
from hf_tessera import cache_in
from quantize_oracle import check

FAMILY = "gpt_oss"
CONFIG = {**FAMILIES[FAMILY], "intermediate_size": 96}
QUANTIZED = {"quant_method": "mxfp4", "modules_to_not_convert": [
    "model.layers.*.self_attn", "model.layers.*.mlp.router",
    "model.embed_tokens", "lm_head"]}
# Two bits of exponent with bias 1, one of mantissa.
MAGNITUDES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def spread(blocks, scales):
    """bf16 [experts, in, out] of U8 [experts, out, in / 32, 16] and
    [experts, out, in / 32]."""
    try:
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors
        return convert_moe_packed_tensors(blocks, scales).cpu(), "transformers"
    except ImportError:
        codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2)
        values = MAGNITUDES[(codes & 7).long()]
        values = torch.where(codes >= 8, -values, values)
        factors = torch.ldexp(torch.ones(()), scales.int() - 127)
        all_ = (values * factors[..., None]).flatten(-2)
        return all_.transpose(1, 2).bfloat16().contiguous(), "its table"


def drawn(experts, inputs, outputs, generator):
    shape = experts, outputs, inputs // 32
    return (torch.randint(0, 256, (*shape, 16), generator=generator,
                          dtype=torch.uint8),
            torch.randint(120, 125, shape, generator=generator,
                          dtype=torch.uint8))


def checkpoints():
    """The tensors of both, and who made the bf16."""
    def build(_, dtype=torch.float32):
        import hf_newer
        return hf_newer.CausalModel({"head_dim": 16, **CONFIG}).to(dtype)
    twin = Twins(FAMILY, seed=5, build=build, fields=CONFIG)
    generator = torch.Generator().manual_seed(7)
    stored, plain, source = {}, {}, ""
    for name, parameter in twin.fp32.named_parameters():
        value = parameter.data.bfloat16().contiguous()
        if not name.endswith(("gate_up_proj", "down_proj")):
            stored[name] = plain[name] = value
            continue
        blocks, scales = drawn(*value.shape, generator)
        stored[name + "_blocks"], stored[name + "_scales"] = blocks, scales
        plain[name], source = spread(blocks, scales)
        plain[name] = plain[name].contiguous()
    return stored, plain, source


def save(folder, tensors, config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file(tensors, folder / "model.safetensors",
                                metadata={"format": "pt"})
    return folder


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:3])
    cache_in(folder)
    stored, plain, source = checkpoints()
    theirs = save(folder / "mxfp4", stored,
                  {**CONFIG, "quantization_config": QUANTIZED})
    ours = save(folder / "bf16", plain, CONFIG)
    texts = generate_oracle.prompts(FAMILY)
    program = compiled(binaries, theirs)
    same = torch.equal(generated(binaries, program, theirs, texts),
                       generated(binaries, program, ours, texts))
    check(same, f"mxfp4: the same bits as of the bf16 of {source}")
    print("1 comparison, 0 failed" if same else "1 comparison, 1 failed")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
