"""Adapters over quantized bases. Losses are near those of a full one; what is merged is the dequantized base
with its factors; a checkpoint that `tessera quantize` wrote trains with the bits of the
one that it was made of, since its codes are kept; and what is refused.

    quantized_base.py BIN SCRATCH
"""
import json
import os
import sys

import numpy as np

import harness
from pipelines import Pipelines

SETS = ["batch.micro=4", "batch.sequence=32", "eval.every=0", "optimizer.lr=1e-2",
        "checkpoint.every=4"]
LORA = ["adapter.kind=lora", "adapter.rank=4", "adapter.alpha=8"]
LLAMA = {"num_hidden_layers": 2, "hidden_size": 192, "intermediate_size": 448, "vocab_size": 4096}
TARGET = "adapter.target=[q_proj, down_proj]"
STEPS = 8


def tensors(folder):
    """In f32; integers as they are."""
    types = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64}
    return {name: np.frombuffer(data, types[kind]).reshape(shape)
            for name, (kind, shape, data) in harness.read_safetensors(folder / "model.safetensors").items()}


def unpacked(words, bits):
    """[micropanels, words, 16] of QuantizedLayout as unsigned codes [rows, columns]."""
    micropanels, count, lanes = words.shape
    at = np.arange(0, 32, bits, dtype=np.uint32)
    codes = words.view(np.uint32)[:, :, :, None] >> at & np.uint32(2 ** bits - 1)
    return codes.transpose(0, 2, 1, 3).reshape(micropanels * lanes, count * len(at))


def dequantized(state, name, bits, zeros):
    """By the layout's definition, of integers."""
    codes = unpacked(state[f"{name}.values"], bits).astype(np.int64)
    codes = codes - 8 if bits == 4 else codes.astype(np.uint8).astype(np.int8)
    scales = state[f"{name}.scales"].astype(np.float64)
    scales = scales.transpose(0, 2, 1).reshape(len(codes), -1)
    if zeros:
        scales, points = scales[:, ::2], scales[:, 1::2]
        codes = codes - np.repeat(points, codes.shape[1] // points.shape[1], axis=1)
    return codes * np.repeat(scales, codes.shape[1] // scales.shape[1], axis=1)


def check_merged(name, model, state, merged, bits, zeros, count=14):
    """`model` has the weights in full precision, of which `count` are linear layers'."""
    named = [each[:-len(".values")] for each in state if each.endswith(".values")]
    harness.check(len(named) == count, f"{name}: all linear layers are quantized")
    far = rounding = 0
    for each in named:
        weight = dequantized(state, each, bits, zeros)
        rounding = max(rounding, np.std(weight - model[each]) / np.std(model[each]))
        path = each[:-len(".weight")]
        if f"{path}.lora_A.weight" in state:
            weight = weight + 2 * state[f"{path}.lora_B.weight"] @ state[f"{path}.lora_A.weight"]
        far = max(far, np.abs(merged[each] - weight).max() / np.abs(weight).max())
    harness.check(rounding < (0.01 if bits == 8 else 0.12), f"{name}: codes are near the weights ({rounding:.4f})")
    harness.check(far < 1e-6, f"{name}: the merged model is the dequantized base with its factors")


class Bases(Pipelines):
    def __init__(self, *arguments):
        super().__init__(*arguments, "", sets=SETS)
        self.tessera = self.binaries / "tessera"

    def start(self, name, **changes):
        """A model that was trained a little, with its tokenizer."""
        spec, run = self.spec(name, **changes), self.scratch / f"{name}-start"
        self.train(self.compile(spec, ""), 1, run, 4)
        return self.export(run, f"{name}-model")

    def export(self, run, name, *more):
        harness.run(self.tessera, "export", run, *more, "-o", self.scratch / name)
        return self.scratch / name

    def adapt(self, model, name, *sets, steps=STEPS, target=TARGET):
        """Losses of a run over the model."""
        program = self.compile(model, "", [*LORA, target, *sets]).rename(self.scratch / f"{name}-program")
        return self.train(program, 1, self.scratch / name, steps, "--init-from", model)[0], program

    def generate(self, model, *more):
        return harness.run(self.tessera, "generate", model, "--prompt", "The command", "--max-tokens", 12,
                           "--temperature", 0, "--ignore-end", "--quiet", *more).stdout


    def emulated(self, model, *sets):
        """Loss and norm of gradients of a step of few tokens, on the CPU and on the emulated GPU."""
        program, none = self.scratch / "emulated-program", os.environ | {"CUDACXX": ""}
        words = [word for each in [*SETS, *LORA, TARGET, "batch.micro=1", *sets] for word in ("--set", each)]
        harness.run(self.tessera, "compile", model, "--target", "cpu:avx2,cuda:sm_80", *words, "-o", program,
                    env=none)
        return [self.train(program, 1, self.scratch / f"emulated-{device}", 1, "--init-from", model,
                           "--device", device)[0][0] for device in ("cpu", "cuda-emu")]


def near(losses, full, most):
    """Of a quantized base: near those of the full one, and not the same."""
    far = max(abs(one - other) for (one, _), (other, _) in zip(losses, full))
    return 0 < far < most


def main():
    run = Bases(*sys.argv[1:3])
    model = run.start("llama-15m", **LLAMA)
    full = tensors(model)
    losses, _ = run.adapt(model, "fp32")
    eight, _ = run.adapt(model, "int8", "adapter.base=int8")
    harness.check(near(eight, losses, 3e-4), "int8: losses are near those of a full base")
    check_merged("int8", full, tensors(run.scratch / f"int8/step-{STEPS:06}"),
                 tensors(run.export(run.scratch / "int8", "int8-merged", "--merge")), 8, False)

    keys = ["adapter.base=int4", "inference.group=64", "inference.zeros=groups"]
    four, program = run.adapt(model, "int4", *keys)
    harness.check(near(four, losses, 1e-2) and not near(four, losses, 3e-4),
                  "int4: losses are near those of a full base")
    half = run.scratch / "int4-half"
    run.train(program, 1, half, STEPS // 2, "--init-from", model)
    harness.check(run.train(program, 1, half, STEPS, "--resume")[0] == four,
                  "int4: a resumed run has the losses of one that was not stopped")
    merged = run.export(run.scratch / "int4", "int4-merged", "--merge")
    check_merged("int4", full, tensors(run.scratch / f"int4/step-{STEPS:06}"), tensors(merged), 4, True)

    stored = run.scratch / "int4-stored"
    harness.run(run.tessera, "quantize", model, "-o", stored, "--quant", "int4", "--quant-group", 64,
                "--quant-zeros")
    same, _ = run.adapt(stored, "int4-over-stored")
    harness.check(same == four, "int4: a checkpoint of such weights has the losses of the one that they "
                  "were made of")
    again = run.export(run.scratch / "int4-over-stored", "int4-merged-of-stored", "--merge")
    config = json.loads((again / "config.json").read_text())
    one, other = tensors(merged), tensors(again)
    harness.check("quantization_config" not in config and
                  all((one[name] == other[name]).all() for name in one),
                  "int4: the merged model of a quantized checkpoint is not quantized")
    adapter = run.export(run.scratch / "int4", "int4-adapter")
    # The merged model is served with the head that --quant gives the other.
    served = run.generate(model, "--adapter", adapter, "--quant", "int4", "--quant-group", "64", "--quant-zeros")
    harness.check(served == run.generate(merged), "int4: what is served over --quant int4 is the merged "
                  "model's text")

    floats = run.scratch / "fp8-stored"
    harness.run(run.tessera, "quantize", model, "-o", floats, "--quant", "fp8", "--quant-group", 64)
    keys = ["adapter.base=fp8", "inference.group=64"]
    first, _ = run.adapt(model, "fp8", *keys, steps=3)
    second, _ = run.adapt(floats, "fp8-over-stored", steps=3)
    harness.check(near(first, losses, 5e-3) and first == second, "fp8: a checkpoint of such weights has the losses of "
                  "the one that they were made of")

    experts(run)
    cpu, gpu = run.emulated(stored)
    harness.check(np.allclose(cpu, gpu, rtol=1e-5, atol=0) and cpu != gpu,
                  "int4: the emulated GPU has the loss and the gradients of the CPU")
    refusals(run, model, stored)


def experts(run):
    """Each expert's matrix, in a checkpoint under its own name."""
    model, target = run.start("tiny-mixtral", num_hidden_layers=2), "adapter.target=[q_proj, v_proj]"
    full, _ = run.adapt(model, "experts-fp32", steps=3, target=target)
    four, _ = run.adapt(model, "experts", "adapter.base=int4", steps=3, target=target)
    harness.check(near(four, full, 1e-2), "experts: losses are near those of a full base")
    check_merged("experts", tensors(model), tensors(run.scratch / "experts/step-000003"),
                 tensors(run.export(run.scratch / "experts", "experts-merged", "--merge")), 4, False,
                 count=2 * (4 + 3 * 8))
    stored = run.scratch / "experts-stored"
    harness.run(run.tessera, "quantize", model, "-o", stored, "--quant", "int4")
    same, _ = run.adapt(stored, "experts-over-stored", steps=3, target=target)
    harness.check(same == four, "experts: a checkpoint of such weights has the losses of the one that they "
                  "were made of")


def refusals(run, model, stored):
    def refused(what, spec, *parts, sets=(), more=()):
        words = [word for each in [*SETS, *sets] for word in ("--set", each)]
        harness.refuses(what, *parts)(run.tessera, "compile", spec, "--target", "cpu:avx2", *words, *more,
                                      "-o", run.scratch / "never")

    lora, int8 = [*LORA, TARGET], [*LORA, TARGET, "adapter.base=int8"]
    refused("another base than the stored", stored, "stored as int4 in groups of 64 with zero points",
            sets=int8)
    refused("weights that are not trained", stored, "cannot be trained; train an adapter over them")
    refused("groups without a quantized base", model, "the weights are not quantized",
            sets=[*lora, "inference.group=64"])
    refused("rows that are no whole blocks", run.spec("llama-15m", intermediate_size=720),
            "blocks of 32 weights", "720", sets=int8)
    refused("a chosen mesh", model, "costs of int8 weights", sets=int8,
            more=["--mesh", "auto", "--world", "2"])


if __name__ == "__main__":
    main()
