#!/usr/bin/env python3
"""Compares what is generated from gpt-oss's experts in MXFP4 with the reference,
and with the same weights as bf16.

    mxfp4_oracle.py BIN FOLDER

Where transformers 4.55 or newer is installed, its own function makes the bf16 of
blocks and scales, and its own model the reference; otherwise the OCP
specification's table, written out here, and hf_newer.py do. Experts that are
executed as stored have to give the greedy tokens of the reference in f64, and
nearly its logits. A program of bf16 weights has to give the same bits, whichever
of both files it reads. Weights in memory have about the size of the file. Where
torch is not installed, prints so and exits 0.
"""
import json
import pathlib
import shutil
import sys

try:
    import safetensors.torch
    import torch
    import transformers  # noqa: F401
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

import generate_oracle
import quantize_oracle
from float8_oracle import check_reference, compiled, generated
from hf_families import FAMILIES
from hf_models import Twins
from hf_tessera import cache_in
from quantize_oracle import check, refused, save_tokenizer, tessera

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


def twins(config):
    def build(_, dtype=torch.float32):
        import hf_newer
        return hf_newer.CausalModel({"head_dim": 16, **config}).to(dtype)
    return Twins(FAMILY, seed=5, build=build, fields=config)


def checkpoints(twin):
    """The tensors of both, and who made the bf16."""
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


def take_reference(twin, plain, folder):
    """The weights of `plain` in the f64 model, that of transformers if it has
    one."""
    try:
        from transformers import GptOssForCausalLM
    except ImportError:
        for name, parameter in twin.fp64.named_parameters():
            parameter.data.copy_(plain[name].double())
        return "hf_newer.py"
    twin.fp64 = GptOssForCausalLM.from_pretrained(
        folder, attn_implementation="eager").double().eval()
    # Grouped products of newer versions have no f64.
    twin.fp64.config._experts_implementation = "eager"
    return "transformers"


def compare(binaries, folder):
    """Returns the MXFP4 checkpoint and its tensors."""
    twin = twins(CONFIG)
    stored, plain, source = checkpoints(twin)
    theirs = save(folder / "mxfp4", stored,
                  {**CONFIG, "quantization_config": QUANTIZED})
    ours = save(folder / "bf16", plain, CONFIG)
    texts = generate_oracle.prompts(FAMILY)
    program = compiled(binaries, theirs)
    reference = take_reference(twin, plain, ours)
    check_reference(twin, FAMILY, texts,
                    generated(binaries, program, theirs, texts),
                    f"as stored, by {reference}")
    of_bf16 = compiled(binaries, ours)
    same = torch.equal(generated(binaries, of_bf16, theirs, texts),
                       generated(binaries, of_bf16, ours, texts))
    check(same, f"mxfp4: the same bits as of the bf16 of {source}")
    return theirs, stored


def check_refused(binaries, folder, theirs, stored):
    name = "model.layers.1.mlp.experts.down_proj"
    nan, short = stored[name + "_scales"].clone(), stored[name + "_scales"]
    nan[3, 40, 1] = 255
    for what, words, tensors in [
            ("nan", "has the scale 255 at", {name + "_scales": nan}),
            ("shape", "a scale for each block",
             {name + "_scales": short[:, :, :2].contiguous()}),
            ("type", "must be U8", {name + "_scales": short.short()}),
            ("missing", "has no down_proj_scales", {name + "_scales": None}),
            ("bf16", "without quantization_config",
             {name + "_scales": None, name + "_blocks": None,
              name: torch.zeros(5, 96, 64, dtype=torch.bfloat16)})]:
        wrong = save(folder / f"wrong-{what}",
                     {key: value for key, value in {**stored, **tensors}.items()
                      if value is not None},
                     json.loads((theirs / "config.json").read_text()))
        save_tokenizer(wrong)
        refused(tessera(binaries, "generate", wrong, "--prompt", "a"), words)


def check_options(binaries, folder, theirs):
    """Where experts are not as stored, and what does not apply to them."""
    out, known = folder / "import.mlir", "weights that are dequantized as they are loaded: 6 MXFP4"
    done = tessera(binaries, "compile", theirs, "--to", "import", "-o", out)
    check(known in done.stderr and "quantization_config" not in out.read_text(),
          "training: experts in bf16, and no quantization in the program's configuration")
    for flags in (["--quant", "int8"], ["--set", "inference.numerics=training"]):
        done = tessera(binaries, "compile", theirs, "--mode", "infer", "--to", "import", "-o", out,
                       *flags)
        check(known in done.stderr, f"{flags[-1]}: {done.stderr.strip()}")
    refused(tessera(binaries, "compile", theirs, "--mode", "infer", "--to", "import", "-o", out,
                    "--set", "precision.compute=bf16", "--set", "inference.activations=int8"),
            "has none; leave it out")


def check_size(binaries, folder):
    """Experts are most of the file."""
    config = {**CONFIG, "hidden_size": 512, "intermediate_size": 768,
              "num_local_experts": 64, "num_hidden_layers": 1,
              "layer_types": CONFIG["layer_types"][:1]}
    generator = torch.Generator().manual_seed(8)
    tensors, rest = {}, twins({**config, "num_local_experts": 1})
    for name, value in rest.fp32.named_parameters():
        value = value.data.bfloat16()
        if name.endswith(("gate_up_proj", "down_proj")):
            blocks, scales = drawn(64, *value.shape[1:], generator)
            tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        elif ".experts." in name or "router" in name:
            tensors[name] = value.repeat_interleave(64, 0).contiguous()
        else:
            tensors[name] = value.contiguous()
    place = save(folder / "large", tensors,
                 {**config, "quantization_config": QUANTIZED})
    done = tessera(binaries, "bench", "infer", place, "--pp", 1, "--tg", 0,
                   "--repeat", 1, "--json")
    held = json.loads(done.stdout.splitlines()[0])["model_size"]
    file = (place / "model.safetensors").stat().st_size
    check(0.98 * file <= held <= 1.05 * file,
          f"{held} bytes of weights in memory for a file of {file}")


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:3])
    shutil.rmtree(folder, ignore_errors=True)
    cache_in(folder)
    torch.set_num_threads(1)
    theirs, stored = compare(binaries, folder)
    check_refused(binaries, folder, theirs, stored)
    check_options(binaries, folder, theirs)
    check_size(binaries, folder)
    print("failed" if quantize_oracle.failed else "all as expected")
    return bool(quantize_oracle.failed)


if __name__ == "__main__":
    sys.exit(main())
