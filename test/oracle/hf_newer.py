"""Architectures that came after the pinned transformers, written out in torch.

Plain and slow on purpose, from the published descriptions: Qwen3 (2505.09388),
Gemma 2 (2408.00118), Gemma 3 (2503.19786), Phi-3 (2404.14219) with longrope
(2402.13753), OLMo 2 (2501.00656) and OLMoE (2409.02060), and the model cards
and modeling files of SmolLM3, Granite, OLMo 3, GLM, Command R7B, ERNIE 4.5,
Seed-OSS, HunYuan and gpt-oss (2508.10925), and DeepSeek-V2 (2405.04434) and V3
(2412.19437). Parameters have the names that checkpoints have, and types are
cast where the reference casts them: norms, angles and softmax in fp32.
"""
import math
import types

import torch
from torch import nn

PLUS_ONE = ("gemma2", "gemma3_text")  # norms multiply with 1 + weight
# Norms of queries and keys: of each head, of each rotated head, of all heads.
HEAD_NORMS = ("qwen3", "gemma3_text")
ROTATED_NORMS = ("hunyuan_v1_dense",)
WIDTH_NORMS = ("olmo2", "olmo3", "olmoe")
FUSED_QKV = ("phi3",)
FUSED_GATE_UP = ("phi3", "glm", "glm4")
# Rotated pairs are neighbours, not halves.
NEIGHBOURS = ("glm", "glm4", "cohere2", "ernie4_5", "deepseek_v2",
              "deepseek_v3")
ROTATED_IN_FP32 = ("cohere2", "ernie4_5", "deepseek_v2")
WEIGHED_IN_FP32 = ("olmo2", "olmo3", "olmoe", "cohere2")  # norms
WITHOUT_NORMS_BEFORE = ("olmo2", "olmo3")
PARALLEL = ("cohere2",)  # one norm for attention and MLP
# Names of norms after attention, before and after the MLP.
NORMS_AFTER = {
    "gemma2": ("post_attention_layernorm", "pre_feedforward_layernorm",
               "post_feedforward_layernorm"),
    "glm4": ("post_self_attn_layernorm", "post_attention_layernorm",
             "post_mlp_layernorm"),
    "olmo2": ("post_attention_layernorm", None, "post_feedforward_layernorm"),
}
NORMS_AFTER["gemma3_text"] = NORMS_AFTER["gemma2"]
NORMS_AFTER["olmo3"] = NORMS_AFTER["olmo2"]


class Norm(nn.Module):
    def __init__(self, width, config, eps=None):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.centers = config.model_type == "cohere2"
        self.eps = eps or (config.layer_norm_eps if self.centers
                           else config.rms_norm_eps)
        self.plus_one = config.model_type in PLUS_ONE
        self.wide = config.model_type in WEIGHED_IN_FP32

    def forward(self, x):
        y = x.float()
        if self.centers:
            y = y - y.mean(-1, keepdim=True)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        if self.plus_one:
            return (y * (1 + self.weight.float())).to(x.dtype)
        if self.wide:
            return (self.weight.float() * y).to(x.dtype)
        return self.weight * y.to(x.dtype)


def capped(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def yarn(inverse, theta, width, scaling):
    """YaRN's frequencies (2309.00071): fast ones stay, slow ones are divided by
    the factor, and between the two is a ramp."""
    original = scaling["original_max_position_embeddings"]

    def pair(rotations):
        return (width * math.log(original / (rotations * 2 * math.pi))
                / (2 * math.log(theta)))
    low, high = pair(scaling["beta_fast"]), pair(scaling["beta_slow"])
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    at = torch.arange(width // 2, dtype=torch.float32)
    ramp = ((at - low) / max(high - low, 0.001)).clamp(0, 1)
    return inverse / scaling["factor"] * ramp + inverse * (1 - ramp)


def temperature(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def yarn_scale(scaling):
    """What cosines and sines are multiplied by."""
    factor = scaling["factor"]
    one, all_dims = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if one and all_dims:
        return temperature(factor, one) / temperature(factor, all_dims)
    return scaling.get("attention_factor", temperature(factor, 1))


def angles(config, layer, length):
    """Cosines and sines [length, turning / 2], and what they are scaled by."""
    share = getattr(config, "partial_rotary_factor", 1.0)
    width = int(getattr(config, "qk_rope_head_dim", config.head_dim) * share)
    theta = config.rope_theta
    if config.model_type == "gemma3_text" and window(config, layer):
        theta = config.rope_local_base_freq
    scaling = getattr(config, "rope_scaling", None) or {}
    if scaling.get("alpha"):
        theta = theta * scaling["alpha"] ** (width / (width - 2))
    inverse = torch.tensor([theta ** (-2 * i / width)
                            for i in range(width // 2)], dtype=torch.float32)
    scale = 1.0
    if config.model_type == "olmo3" and window(config, layer):
        scaling = {}
    if scaling.get("rope_type") == "yarn":
        inverse = yarn(inverse, theta, width, scaling)
        scale = yarn_scale(scaling)
    elif "short_factor" in scaling:
        original = config.original_max_position_embeddings
        # The longest text that the programs are made for decides.
        factors = scaling["long_factor" if config.context > original
                          else "short_factor"]
        inverse = inverse / torch.tensor(factors, dtype=torch.float32)
        ratio = config.max_position_embeddings / original
        if ratio > 1:
            scale = math.sqrt(1 + math.log(ratio) / math.log(original))
    turns = torch.arange(length, dtype=torch.float32)[:, None] * inverse
    return turns.cos() * scale, turns.sin() * scale


def rotated(x, cos, sin, config):
    """x [batch, heads, tokens, head_dim], of which the first part turns."""
    half = cos.shape[-1]
    if config.model_type not in ROTATED_IN_FP32:
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    turning, still = x.split([2 * half, x.shape[-1] - 2 * half], -1)
    if config.model_type in NEIGHBOURS:
        low, high = turning.unflatten(-1, (half, 2)).unbind(-1)
        pairs = torch.stack([low * cos - high * sin, high * cos + low * sin],
                            -1)
        turning = pairs.flatten(-2).to(x.dtype)
    else:
        low, high = turning.chunk(2, -1)
        turning = torch.cat([low * cos - high * sin, high * cos + low * sin],
                            -1)
    return torch.cat([turning, still], -1)


def window(config, layer):
    """The layer's window in tokens; 0: none."""
    if config.model_type in ("gemma2", "gpt_oss"):
        return config.sliding_window if layer % 2 == 0 else 0
    if config.model_type in ("gemma3_text", "cohere2", "olmo3"):
        every = getattr(config, "sliding_window_pattern", 4)
        return 0 if (layer + 1) % every == 0 else config.sliding_window
    return 0


def rotates(config, layer):
    if config.model_type == "smollm3":
        return (layer + 1) % 4 != 0
    if config.model_type == "granitemoehybrid":
        return config.position_embedding_type == "rope"
    return config.model_type != "cohere2" or window(config, layer) > 0


class Attention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.config, self.layer = config, layer
        hidden, dim = config.hidden_size, config.head_dim
        self.heads = config.num_attention_heads
        self.pairs = config.num_key_value_heads
        query, key = self.heads * dim, self.pairs * dim
        bias = getattr(config, "attention_bias", False)
        if config.model_type in FUSED_QKV:
            self.qkv_proj = nn.Linear(hidden, query + 2 * key, bias=bias)
        else:
            self.q_proj = nn.Linear(hidden, query, bias=bias)
            self.k_proj = nn.Linear(hidden, key, bias=bias)
            self.v_proj = nn.Linear(hidden, key, bias=bias)
        of_output = (bias if config.model_type not in ("glm", "glm4")
                     else False)
        self.o_proj = nn.Linear(
            query, hidden,
            bias=getattr(config, "attention_out_bias", of_output))
        if config.model_type == "gpt_oss":
            self.sinks = nn.Parameter(torch.zeros(self.heads))
        if config.model_type in HEAD_NORMS:
            self.q_norm, self.k_norm = Norm(dim, config), Norm(dim, config)
        if config.model_type in ROTATED_NORMS:
            self.query_layernorm = Norm(dim, config)
            self.key_layernorm = Norm(dim, config)
        if config.model_type in WIDTH_NORMS:
            self.q_norm, self.k_norm = Norm(query, config), Norm(key, config)

    def projected(self, x):
        dim = self.config.head_dim
        if hasattr(self, "qkv_proj"):
            parts = self.qkv_proj(x).split([self.heads * dim, self.pairs * dim,
                                            self.pairs * dim], -1)
        else:
            parts = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.config.model_type in WIDTH_NORMS:
            parts = self.q_norm(parts[0]), self.k_norm(parts[1]), parts[2]
        return [part.unflatten(-1, (-1, dim)) for part in parts]

    def prepared(self, query, key, length):
        config = self.config
        if config.model_type in HEAD_NORMS:
            query, key = self.q_norm(query), self.k_norm(key)
        query, key = query.transpose(1, 2), key.transpose(1, 2)
        if rotates(config, self.layer):
            cos, sin = angles(config, self.layer, length)
            query = rotated(query, cos, sin, config)
            key = rotated(key, cos, sin, config)
        if config.model_type in ROTATED_NORMS:
            query, key = self.query_layernorm(query), self.key_layernorm(key)
        return query, key

    def forward(self, x):
        config, length = self.config, x.shape[1]
        query, key, value = self.projected(x)
        query, key = self.prepared(query, key, length)
        key, value = (y.repeat_interleave(self.heads // self.pairs, 1)
                      for y in (key, value.transpose(1, 2)))
        base = getattr(config, "query_pre_attn_scalar", config.head_dim)
        scale = getattr(config, "attention_multiplier", base ** -0.5)
        scores = query @ key.transpose(2, 3) * scale
        scores = capped(scores, getattr(config, "attn_logit_softcapping", None))
        apart = (torch.arange(length)[:, None] - torch.arange(length)[None])
        hidden = apart < 0
        if window(config, self.layer):
            hidden = hidden | (apart >= window(config, self.layer))
        scores = scores.masked_fill(hidden, -math.inf)
        if hasattr(self, "sinks"):
            sinks = self.sinks[None, :, None, None].expand(
                x.shape[0], -1, length, 1)
            scores = torch.cat([scores, sinks], -1)
        weights = torch.softmax(scores.float(), -1).to(x.dtype)
        weights = weights[..., :length]
        return self.o_proj((weights @ value).transpose(1, 2).flatten(2))


class LatentAttention(nn.Module):
    """DeepSeek's: keys and values of all heads are products of one vector, and
    all heads share a rotated part of the keys."""

    def __init__(self, config, layer):
        super().__init__()
        self.config, self.layer = config, layer
        self.plain, self.turning = (config.qk_nope_head_dim,
                                    config.qk_rope_head_dim)
        hidden, heads = config.hidden_size, config.num_attention_heads
        bias = getattr(config, "attention_bias", False)
        queries = heads * (self.plain + self.turning)
        rank, value = config.kv_lora_rank, config.v_head_dim
        if config.q_lora_rank:
            self.q_a_proj = nn.Linear(hidden, config.q_lora_rank, bias=bias)
            self.q_a_layernorm = Norm(config.q_lora_rank, config, 1e-6)
            self.q_b_proj = nn.Linear(config.q_lora_rank, queries, bias=False)
        else:
            self.q_proj = nn.Linear(hidden, queries, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(hidden, rank + self.turning,
                                            bias=bias)
        self.kv_a_layernorm = Norm(rank, config, 1e-6)
        self.kv_b_proj = nn.Linear(rank, heads * (self.plain + value),
                                   bias=False)
        self.o_proj = nn.Linear(heads * value, hidden, bias=bias)

    def heads(self, x):
        return x.unflatten(-1, (self.config.num_attention_heads, -1)
                           ).transpose(1, 2)

    def queries(self, x):
        if hasattr(self, "q_proj"):
            return self.heads(self.q_proj(x))
        return self.heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))))

    def scale(self):
        scaling = getattr(self.config, "rope_scaling", None) or {}
        mscale = (temperature(scaling["factor"],
                              scaling.get("mscale_all_dim", 0))
                  if scaling else 1)
        return (self.plain + self.turning) ** -0.5 * mscale ** 2

    def forward(self, x):
        config, length = self.config, x.shape[1]
        cos, sin = angles(config, self.layer, length)
        plain, turning = self.queries(x).split([self.plain, self.turning], -1)
        vector, shared = self.kv_a_proj_with_mqa(x).split(
            [config.kv_lora_rank, self.turning], -1)
        expanded = self.heads(self.kv_b_proj(self.kv_a_layernorm(vector)))
        keys, value = expanded.split([self.plain, config.v_head_dim], -1)
        shared = rotated(shared[:, None], cos, sin, config)
        query = torch.cat([plain, rotated(turning, cos, sin, config)], -1)
        key = torch.cat([keys, shared.expand(-1, keys.shape[1], -1, -1)], -1)
        scores = query @ key.transpose(2, 3) * self.scale()
        hidden = (torch.arange(length)[:, None]
                  < torch.arange(length)[None])
        scores = scores.masked_fill(hidden, -math.inf)
        weights = torch.softmax(scores.float(), -1).to(x.dtype)
        return self.o_proj((weights @ value).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config, width=None):
        super().__init__()
        hidden, width = config.hidden_size, width or config.intermediate_size
        bias = getattr(config, "mlp_bias", False)
        if config.model_type in FUSED_GATE_UP:
            self.gate_up_proj = nn.Linear(hidden, 2 * width, bias=bias)
        else:
            self.gate_proj = nn.Linear(hidden, width, bias=bias)
            self.up_proj = nn.Linear(hidden, width, bias=bias)
        self.down_proj = nn.Linear(width, hidden, bias=bias)
        self.gelu = config.model_type in PLUS_ONE

    def forward(self, x):
        if hasattr(self, "gate_up_proj"):
            gate, up = self.gate_up_proj(x).chunk(2, -1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        gate = (nn.functional.gelu(gate, approximate="tanh") if self.gelu
                else nn.functional.silu(gate))
        return self.down_proj(gate * up)


class Experts(nn.Module):
    """Every expert of every token, most of which weigh nothing."""

    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.num_experts,
                              bias=False)
        self.experts = nn.ModuleList(Mlp(config)
                                     for _ in range(config.num_experts))
        self.chosen = config.num_experts_per_tok
        self.normalizes = config.norm_topk_prob

    def forward(self, x):
        scores = torch.softmax(self.gate(x).float(), -1)
        best, chosen = scores.topk(self.chosen, -1)
        if self.normalizes:
            best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros_like(scores).scatter(-1, chosen, best)
        return sum(expert(x) * weights[..., i, None].to(x.dtype)
                   for i, expert in enumerate(self.experts))


class DeepseekRouter(nn.Module):
    """V3 chooses by sigmoids and a bias within the best groups, V2 by a softmax,
    and within groups if it is asked to."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(
            torch.zeros(config.n_routed_experts, config.hidden_size))
        self.is_biased = config.model_type == "deepseek_v3"
        if self.is_biased:
            self.register_buffer("e_score_correction_bias",
                                 torch.zeros(config.n_routed_experts))

    def within_groups(self, scores):
        config = self.config
        grouped = scores.unflatten(-1, (config.n_group, -1))
        best = grouped.topk(2 if self.is_biased else 1, -1)[0].sum(-1)
        chosen = best.topk(config.topk_group, -1)[1]
        kept = torch.zeros_like(best).scatter(-1, chosen, 1).bool()
        return grouped.masked_fill(~kept[..., None], -math.inf).flatten(-2)

    def forward(self, x):
        config = self.config
        logits = nn.functional.linear(x.float(), self.weight.float())
        scores = (torch.sigmoid(logits) if self.is_biased
                  else torch.softmax(logits, -1))
        wanted = scores.detach()
        if self.is_biased:
            wanted = wanted + self.e_score_correction_bias
        if self.is_biased or config.topk_method != "greedy":
            wanted = self.within_groups(wanted)
        chosen = wanted.topk(config.num_experts_per_tok, -1)[1]
        best = scores.gather(-1, chosen)
        if config.norm_topk_prob:
            best = best / (best.sum(-1, keepdim=True) + 1e-20)
        best = best * config.routed_scaling_factor
        return torch.zeros_like(scores).scatter(-1, chosen, best)


class DeepseekExperts(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.moe_intermediate_size
        self.gate = DeepseekRouter(config)
        self.experts = nn.ModuleList(Mlp(config, width)
                                     for _ in range(config.n_routed_experts))
        self.shared_experts = Mlp(config, width * config.n_shared_experts)

    def forward(self, x):
        weights = self.gate(x)
        routed = sum(expert(x) * weights[..., i, None].to(x.dtype)
                     for i, expert in enumerate(self.experts))
        return routed + self.shared_experts(x)


class Router(nn.Module):
    def __init__(self, config):
        super().__init__()
        shape = config.num_local_experts, config.hidden_size
        self.weight = nn.Parameter(torch.zeros(shape))
        self.bias = nn.Parameter(torch.zeros(shape[0]))


class FusedMatrices(nn.Module):
    """Gate and up interleaved, and down, of all experts."""

    def __init__(self, config):
        super().__init__()
        experts, hidden = config.num_local_experts, config.hidden_size
        width = config.intermediate_size
        for name, rows, columns in (("gate_up_proj", hidden, 2 * width),
                                    ("down_proj", width, hidden)):
            setattr(self, name, nn.Parameter(
                torch.zeros(experts, rows, columns)))
            setattr(self, f"{name}_bias", nn.Parameter(
                torch.zeros(experts, columns)))


class FusedExperts(nn.Module):
    """gpt-oss's: the softmax of the chosen logits weighs them."""

    def __init__(self, config):
        super().__init__()
        self.router, self.experts = Router(config), FusedMatrices(config)
        self.chosen = config.num_experts_per_tok
        self.limit = config.swiglu_limit

    def expert(self, x, index):
        own = self.experts
        both = x @ own.gate_up_proj[index] + own.gate_up_proj_bias[index]
        gate, up = both[..., ::2], both[..., 1::2]
        gate = gate.clamp(max=self.limit)
        up = up.clamp(-self.limit, self.limit)
        inner = (up + 1) * gate * torch.sigmoid(1.702 * gate)
        return inner @ own.down_proj[index] + own.down_proj_bias[index]

    def forward(self, x):
        logits = nn.functional.linear(x, self.router.weight, self.router.bias)
        best, chosen = logits.topk(self.chosen, -1)
        weights = torch.zeros_like(logits).scatter(
            -1, chosen, torch.softmax(best, -1))
        return sum(self.expert(x, i) * weights[..., i, None]
                   for i in range(logits.shape[-1]))


class Layer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        kind = LatentAttention if hasattr(config, "kv_lora_rank") else Attention
        self.self_attn = kind(config, layer)
        kinds = {"olmoe": Experts, "gpt_oss": FusedExperts,
                 "deepseek_v2": DeepseekExperts, "deepseek_v3": DeepseekExperts}
        is_dense = layer < getattr(config, "first_k_dense_replace", 0)
        self.mlp = (Mlp if is_dense else
                    kinds.get(config.model_type, Mlp))(config)
        self.after = NORMS_AFTER.get(config.model_type,
                                     (None, "post_attention_layernorm", None))
        self.parallel = config.model_type in PARALLEL
        if self.parallel:
            self.after = None, None, None
        names = ["input_layernorm", *self.after]
        if config.model_type in WITHOUT_NORMS_BEFORE:
            names.remove("input_layernorm")
        for name in filter(None, names):
            setattr(self, name, Norm(config.hidden_size, config))
        self.scale = getattr(config, "residual_multiplier", 1.0)

    def normed(self, x, name):
        return getattr(self, name)(x) if name and hasattr(self, name) else x

    def forward(self, x):
        after, before_mlp, after_mlp = self.after
        read = self.normed(x, "input_layernorm")
        y = self.normed(self.self_attn(read), after)
        if self.parallel:
            return x + y + self.mlp(read)
        x = x + y * self.scale
        y = self.normed(self.mlp(self.normed(x, before_mlp)), after_mlp)
        return x + y * self.scale


class Trunk(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config)
        self.scale = (config.hidden_size ** 0.5
                      if config.model_type in PLUS_ONE
                      else getattr(config, "embedding_multiplier", None))

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        if self.scale:
            x = x * torch.tensor(self.scale, dtype=x.dtype)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class CausalModel(nn.Module):
    def __init__(self, fields):
        super().__init__()
        self.config = types.SimpleNamespace(**fields)
        self.model = Trunk(self.config)
        self.head = None  # in the place of a tied one
        if not self.config.tie_word_embeddings:
            self.lm_head = nn.Linear(self.config.hidden_size,
                                     self.config.vocab_size, bias=False)

    def forward(self, tokens):
        x = self.model(tokens)
        table = (self.model.embed_tokens.weight if self.head is None
                 else self.head)
        logits = (x @ table.T if self.config.tie_word_embeddings
                  else self.lm_head(x))
        logits = logits * getattr(self.config, "logit_scale", 1.0)
        logits = logits / getattr(self.config, "logits_scaling", 1.0)
        cap = getattr(self.config, "final_logit_softcapping", None)
        return types.SimpleNamespace(logits=capped(logits, cap))
