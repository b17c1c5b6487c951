"""Models of Hugging Face `transformers` with random weights, and their twins.

A twin is the same model with the same weights in another arithmetic:

  fp32   as it is
  bf16   model.to(bfloat16): weights, activations and the residual stream in
         bf16, what training with bf16 compute and fp32 master weights does
  fp64   the reference. `model.double()` would not do: the modules force fp32
         in places (norms, rotary angles, softmax, the loss). `Float64` turns
         every such request into fp64 while the model is made and run.
"""
import copy
import json
import math
import re

import safetensors.torch
import torch
import transformers

import hf_recurrent
from hf_families import FAMILIES, SEQUENCE

# Those that the pinned transformers does not know: their models are those of
# hf_newer.py and hf_recurrent.py, unless a newer one is installed.
IS_PINNED = int(transformers.__version__.split(".")[0]) < 5
NEWER = ("qwen3", "gemma2", "gemma3", "phi3", "smollm3", "granite", "olmo2",
         "olmo3", "olmoe", "glm", "glm4", "cohere2", "ernie4_5", "seed_oss",
         "hunyuan", "gpt_oss", "deepseek_v3", "deepseek_v2", "mamba2",
         "granite_hybrid",
         "granite_hybrid_moe") if IS_PINNED else ()
ROWS = 2   # B
MICRO = 2  # A


class Float64:
    """Every float32 that anything asks for becomes a float64. By the names in torch, not by a mode of
    torch's functions, which would cost each call several microseconds."""
    WIDE = {(torch, "float32"): torch.float64, (torch, "float"): torch.float64,
            (torch.Tensor, "float"): torch.Tensor.double}

    def __enter__(self):
        self.outer = torch.get_default_dtype()
        self.narrow = {place: getattr(*place) for place in self.WIDE}
        torch.set_default_dtype(torch.float64)
        for place, value in self.WIDE.items():
            setattr(*place, value)
        return self

    def __exit__(self, *exception):
        torch.set_default_dtype(self.outer)
        for place, value in self.narrow.items():
            setattr(*place, value)


def reference_config(family):
    """The family's config as transformers is to be told it."""
    fields = copy.deepcopy(FAMILIES[family])
    # The reference does not train a padding token's row of the embedding.
    fields["pad_token_id"] = None
    if not IS_PINNED:
        config = transformers.AutoConfig.for_model(**fields)
        config._experts_implementation = "eager"  # grouped ones have no fp64
        return config
    fields.pop("rope_scaling", None)  # 4.40 has no llama3: see stretch_rope
    if family in ("mistral", "starcoder2"):
        # Key s is visible to query t where t - s < window; the mask of 4.40.2
        # (and not of the versions before and after it) says t - s <= window.
        fields["sliding_window"] -= 1
    return transformers.AutoConfig.for_model(**fields)


def stretched(frequencies, scaling):
    """Llama 3's frequencies: those whose wavelength is long against the
    original context are divided by the factor, short ones stay, and between
    the two the division is blended in (in wavelengths, as published)."""
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    result = []
    for frequency in frequencies.tolist():
        wavelength = 2 * math.pi / frequency
        if wavelength < original / high:
            result.append(frequency)
        elif wavelength > original / low:
            result.append(frequency / scaling["factor"])
        else:
            smooth = (original / wavelength - low) / (high - low)
            result.append((1 - smooth) * frequency / scaling["factor"]
                          + smooth * frequency)
    return torch.tensor(result, dtype=frequencies.dtype)


def written_out(family):
    """The config as hf_newer.py is to be told it."""
    return {"head_dim": 16, "context": 256, **FAMILIES[family]}


def build(family, dtype=torch.float32):
    if family in NEWER:
        return hf_recurrent.written_out(written_out(family)).to(dtype).train()
    config = reference_config(family)
    model = transformers.AutoModelForCausalLM.from_config(config)
    return restored(model, family).to(dtype).train()


def restored(model, family):
    """With the rope scaling that reference_config left out."""
    scaling = FAMILIES[family].get("rope_scaling")
    if scaling and IS_PINNED:
        for module in model.modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq = stretched(module.inv_freq, scaling)
    return model


def random_weights(model, seed):
    """Away from the usual start, at which biases are 0 and norms 1 and an
    error in their gradients would hide."""
    generator = torch.Generator().manual_seed(seed)
    plus_one = model.config.model_type.startswith("gemma")
    for name, parameter in model.named_parameters():
        value = torch.randn(parameter.shape, generator=generator)
        if "conv1d.weight" in name:
            value *= 0.5  # of few inputs
        elif parameter.dim() >= 2:
            value *= 0.1
        elif "bias" in name:
            value *= 0.05
        elif plus_one and "norm" in name:
            value *= 0.1
        else:
            value = 1 + 0.1 * value
        parameter.data.copy_(value)
    for buffer in biases(model).values():
        buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))


def biases(model):
    """Those by which routers choose: stored, but no parameters."""
    return {name: buffer for name, buffer in model.named_buffers()
            if name.endswith("e_score_correction_bias")}


def stored(model):
    return {**{n: p.data for n, p in model.named_parameters()},
            **biases(model)}


# Mixtral's experts and routers in checkpoints, which newer versions name as others'.
MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def as_mixtral(name):
    name = re.sub(r"(\.experts\.\d+\.)(\w+)\.weight$",
                  lambda m: f"{m[1]}{MIXTRAL.get(m[2], m[2])}.weight", name)
    return re.sub(r"\.mlp\.(experts|gate)\.", r".block_sparse_moe.\1.", name)


# Granite's, likewise.
GRANITE = {"experts.gate_up_proj": "input_linear.weight",
           "experts.down_proj": "output_linear.weight",
           "router.weight": "router.layer.weight"}


def as_granite(name):
    stem, _, part = name.partition(".block_sparse_moe.")
    return f"{stem}.block_sparse_moe.{GRANITE.get(part, part)}" if part else name


def in_files(tensors, model):
    """The tensors of a model by the names that checkpoints have, which are not
    those of all its parameters: newer versions keep a layer's experts in one
    tensor, and name GPT-NeoX's head as other families'."""
    if getattr(getattr(model, "config", None), "model_type", "") == "gpt_oss":
        return dict(tensors)
    if getattr(getattr(model, "config", None), "model_type", "") == "granitemoehybrid":
        return {as_granite(name): value for name, value in tensors.items()}
    single = {}
    for name, value in tensors.items():
        stem, _, matrix = name.rpartition(".")
        if stem.endswith(".experts") and matrix == "gate_up_proj":
            for i, both in enumerate(value):
                gate, up = both.chunk(2)
                single[f"{stem}.{i}.gate_proj.weight"] = gate
                single[f"{stem}.{i}.up_proj.weight"] = up
        elif stem.endswith(".experts") and matrix == "down_proj":
            for i, one in enumerate(value):
                single[f"{stem}.{i}.down_proj.weight"] = one
        else:
            single[name] = value
    if "gpt_neox.embed_in.weight" in single and "lm_head.weight" in single:
        single["embed_out.weight"] = single.pop("lm_head.weight")
    if getattr(getattr(model, "config", None), "model_type", "") == "mixtral":
        single = {as_mixtral(name): value for name, value in single.items()}
    return single


class Twins:
    """One model with one set of weights in fp32, bf16 and fp64; `build` makes it,
    `fields` are its config.json."""

    def __init__(self, family, seed, build=build, fields=None):
        self.family = family
        self.fields = fields or FAMILIES[family]
        self.losses = None  # of the reference's training, once computed
        self.fp32 = build(family)
        random_weights(self.fp32, seed)
        self.bf16 = build(family)
        self.bf16.load_state_dict(self.fp32.state_dict())
        self.bf16.to(torch.bfloat16)
        self._restore_frequencies()
        with Float64():
            self.fp64 = build(family, torch.float64)
            theirs = stored(self.fp32)
            for name, value in stored(self.fp64).items():
                value.copy_(theirs[name])

    def _restore_frequencies(self):
        """.to(bfloat16) also rounds the table of frequencies, which a model
        that is loaded in bf16 keeps in fp32."""
        theirs = dict(self.fp32.named_modules())
        for name, module in self.bf16.named_modules():
            # Gemma's makes its table when it is first used.
            if getattr(module, "inv_freq", None) is not None:
                module.inv_freq = theirs[name].inv_freq.clone()

    def save(self, folder):
        """config.json and model.safetensors as a checkpoint on the hub has
        them: a tied head is not stored."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(
            json.dumps(self.fields, indent=2))
        tensors = {n: p.contiguous() for n, p in in_files(
            stored(self.fp32), self.fp32).items()}
        safetensors.torch.save_file(tensors, folder / "model.safetensors",
                                    metadata={"format": "pt"})


def run(model, tokens, **more):
    """Logits of the model in its own arithmetic."""
    if next(model.parameters()).dtype is torch.float64:
        with Float64():
            return model(tokens, **more).logits
    return model(tokens, **more).logits


def prompt_mask(model, tokens, prompt):
    """An attention mask of one sequence whose first `prompt` tokens see each other:
    transformers 4.40 takes what is seen, newer versions what is added to scores."""
    seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    seen[:prompt, :prompt] = True
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    dtype = next(model.parameters()).dtype
    if version < (4, 41):
        return seen.to(dtype)[None, None]
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)[None, None]


def loss_sum(model, tokens, targets, **more):
    """Summed cross-entropy of the targets that are not -100; targets are
    already shifted. The loss is computed in fp32 (fp64 in the reference)."""
    def compute():
        logits = model(tokens, **more).logits.float()
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), targets.reshape(-1).long(),
            ignore_index=-100, reduction="sum")
    if next(model.parameters()).dtype is torch.float64:
        with Float64():
            return compute()
    return compute()


def gradients(model, tokens, targets):
    """Mean loss over the unmasked tokens of all microbatches [A, B, T], and
    its gradient by parameter in fp64."""
    model.zero_grad(set_to_none=True)
    count = int((targets != -100).sum())
    total = 0.0
    for each, wanted in zip(tokens, targets):
        loss = loss_sum(model, each.long(), wanted) / count
        loss.backward()
        total += float(loss.detach())
    return total, in_files({n: p.grad.double()
                            for n, p in model.named_parameters()
                            if p.requires_grad}, model)


def document_gradients(model, tokens, targets, starts):
    """The same of packed documents, each of which the model sees alone."""
    model.zero_grad(set_to_none=True)
    count = int((targets != -100).sum())
    total = 0.0
    rows = (x.flatten(0, 1) for x in (tokens, targets, starts))
    for row, wanted, begins in zip(*rows):
        bounds = [*begins.unique().tolist(), len(row)]
        for first, end in zip(bounds, bounds[1:]):
            loss = loss_sum(model, row[None, first:end].long(),
                            wanted[None, first:end]) / count
            loss.backward()
            total += float(loss.detach())
    return total, in_files({n: p.grad.double()
                            for n, p in model.named_parameters()}, model)


def documents(family, seed):
    """A batch as batches() has it, of documents of 1 token and more. The last
    token of each has no target."""
    generator = torch.Generator().manual_seed(seed)
    tokens, targets = (x[0] for x in batches(family, 1, seed))
    isFirst = torch.rand(tokens.shape, generator=generator) < 0.08
    isFirst[..., 0] = True
    at = torch.arange(tokens.shape[-1], dtype=torch.int32)
    starts = torch.where(isFirst, at, 0).cummax(-1).values.to(torch.int32)
    targets[..., :-1][isFirst[..., 1:]] = -100
    return tokens, targets, starts


def batches(family, steps, seed, micro=MICRO, rows=ROWS):
    """tokens and targets [steps, A, B, T] as int32. Every row hides another
    number of its targets, so that no mean of means is right by accident."""
    generator = torch.Generator().manual_seed(seed)
    length = SEQUENCE[family]
    text = torch.randint(0, FAMILIES[family]["vocab_size"],
                         (steps, micro, rows, length + 1), generator=generator,
                         dtype=torch.int32)
    tokens, targets = text[..., :-1].clone(), text[..., 1:].clone()
    hidden = torch.randint(0, length // 2, (steps, micro, rows),
                           generator=generator)
    targets[torch.arange(length) < hidden[..., None]] = -100
    return tokens, targets
