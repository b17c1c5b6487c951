"""LoRA and DoRA by PEFT: a twin with adapters, whose factors are random so that both
have gradients."""
import contextlib
import copy

import peft
import safetensors.torch
import torch
from peft.tuners.lora import LoraLayer

from hf_models import Float64, in_files

RANK, ALPHA = 4, 6
TARGETS = {"gpt2": ["c_attn", "c_fc"], "llama": ["q_proj", "v_proj", "down_proj"],
           "mixtral": ["k_proj", "o_proj"]}
# What PEFT and we are told besides: other ranks, scales by their roots (rsLoRA), and
# modules that are trained whole.
MORE = {("llama", "lora"): {"rank_pattern": {"down_proj": 2}, "use_rslora": True,
                            "modules_to_save": ["embed_tokens", "lm_head"]}}
KINDS = {"gpt2": ["lora", "dora"], "llama": ["lora", "dora"], "mixtral": ["lora"]}


# PEFT 0.10 takes the norms of a Conv1D's rows without transposing it, which later
# versions do.
HAS_OTHER_NORMS = hasattr(LoraLayer, "_get_weight_norm")


def transpose_norms():
    original = LoraLayer._get_weight_norm

    def norms(self, weight, *rest, **more):
        weight = weight.T if self.fan_in_fan_out else weight
        return original(self, weight, *rest, **more)
    LoraLayer._get_weight_norm = norms


if HAS_OTHER_NORMS:
    transpose_norms()


def settings(family, kind="lora", more=None):
    keys = [f"adapter.kind={kind}", f"adapter.rank={RANK}", f"adapter.alpha={ALPHA}",
            f"adapter.target=[{', '.join(TARGETS[family])}]"]
    if more:
        ranks = ", ".join(f"{name}={rank}" for name, rank in more["rank_pattern"].items())
        keys += [f"adapter.ranks=[{ranks}]",
                 f"adapter.scaling={'root' if more['use_rslora'] else 'rank'}",
                 f"adapter.modules_to_save=[{', '.join(more['modules_to_save'])}]"]
    return keys


def plain(name):
    """PEFT's name of a parameter as the base model and our state have it."""
    name = (name.removeprefix("base_model.model.").replace(".base_layer", "")
            .replace(".modules_to_save", "").replace(".default", ""))
    # Newer versions have a magnitude in a module.
    return name.removesuffix(".weight") if "magnitude" in name else name


def parameter_of(model, name):
    """The wrapper's parameter that the base model calls `name`."""
    return next(value for other, value in model.named_parameters() if plain(other) == name)


def adapted(model, family, seed, kind="lora", **more):
    """The model in PEFT's wrapper. Factors are the same in every dtype but for
    rounding, and magnitudes are off the norms that they begin as. `more`: settings of
    PEFT's."""
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS[family], use_dora=kind == "dora",
                             fan_in_fan_out=family == "gpt2", **more)
    dtype = next(model.parameters()).dtype
    with Float64() if dtype is torch.float64 else contextlib.nullcontext():
        result = peft.get_peft_model(copy.deepcopy(model), config)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in result.named_parameters():
        if "lora_" in name:
            values = torch.randn(parameter.shape, generator=generator) * 0.1
            if "magnitude" in name:
                values = (1 + values) * parameter.data.to(values.dtype)
            parameter.data = values.to(dtype)
    return result


def trained(gradients):
    return {plain(name): value for name, value in gradients.items()
            if "lora_" in name or ".modules_to_save." in name}


def save(model, path):
    """Base and factors in one file."""
    tensors = in_files({plain(name): value.data
                        for name, value in model.named_parameters()
                        if ".original_module." not in name}, model)
    safetensors.torch.save_file(
        {name: value.contiguous() for name, value in tensors.items()}, path)
