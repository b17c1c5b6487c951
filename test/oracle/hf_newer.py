"""Architectures that came after the pinned transformers, written out in torch.

Plain and slow on purpose, from the published descriptions: Qwen3 (2505.09388),
Gemma 2 (2408.00118), Gemma 3 (2503.19786), Phi-3 (2404.14219) with longrope
(2402.13753). Parameters have the names that checkpoints have, and types are
cast where the reference casts them: norms, angles and softmax in fp32.
"""
import math
import types

import torch
from torch import nn

PLUS_ONE = ("gemma2", "gemma3_text")  # norms multiply with 1 + weight


class Norm(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = config.rms_norm_eps
        self.plus_one = config.model_type in PLUS_ONE

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        if self.plus_one:
            return (y * (1 + self.weight.float())).to(x.dtype)
        return self.weight * y.to(x.dtype)


def capped(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def angles(config, layer, length):
    """Cosines and sines [length, turning / 2], and what they are scaled by."""
    share = getattr(config, "partial_rotary_factor", 1.0)
    width = int(config.head_dim * share)
    theta = config.rope_theta
    if config.model_type == "gemma3_text" and window(config, layer):
        theta = config.rope_local_base_freq
    inverse = torch.tensor([theta ** (-2 * i / width)
                            for i in range(width // 2)], dtype=torch.float32)
    scale = 1.0
    scaling = getattr(config, "rope_scaling", None)
    if scaling:
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


def rotated(x, cos, sin):
    """x [batch, heads, tokens, head_dim], of which the first part turns."""
    half = cos.shape[-1]
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    low, high, still = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin, still],
                     -1)


def window(config, layer):
    """The layer's window in tokens; 0: none."""
    if config.model_type == "gemma2":
        return config.sliding_window if layer % 2 == 0 else 0
    if config.model_type == "gemma3_text":
        last = (layer + 1) % config.sliding_window_pattern == 0
        return 0 if last else config.sliding_window
    return 0


class Attention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.config, self.layer = config, layer
        hidden, dim = config.hidden_size, config.head_dim
        self.heads = config.num_attention_heads
        self.pairs = config.num_key_value_heads
        query, key = self.heads * dim, self.pairs * dim
        if config.model_type == "phi3":
            self.qkv_proj = nn.Linear(hidden, query + 2 * key, bias=False)
        else:
            self.q_proj = nn.Linear(hidden, query, bias=False)
            self.k_proj = nn.Linear(hidden, key, bias=False)
            self.v_proj = nn.Linear(hidden, key, bias=False)
        self.o_proj = nn.Linear(query, hidden, bias=False)
        if config.model_type in ("qwen3", "gemma3_text"):
            self.q_norm, self.k_norm = Norm(dim, config), Norm(dim, config)

    def projected(self, x):
        dim = self.config.head_dim
        if hasattr(self, "qkv_proj"):
            parts = self.qkv_proj(x).split([self.heads * dim, self.pairs * dim,
                                            self.pairs * dim], -1)
        else:
            parts = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return [part.unflatten(-1, (-1, dim)) for part in parts]

    def forward(self, x):
        config, length = self.config, x.shape[1]
        query, key, value = self.projected(x)
        if hasattr(self, "q_norm"):
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (y.transpose(1, 2) for y in (query, key, value))
        cos, sin = angles(config, self.layer, length)
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        key, value = (y.repeat_interleave(self.heads // self.pairs, 1)
                      for y in (key, value))
        base = getattr(config, "query_pre_attn_scalar", config.head_dim)
        scores = query @ key.transpose(2, 3) * base ** -0.5
        scores = capped(scores, getattr(config, "attn_logit_softcapping", None))
        apart = (torch.arange(length)[:, None] - torch.arange(length)[None])
        hidden = apart < 0
        if window(config, self.layer):
            hidden = hidden | (apart >= window(config, self.layer))
        scores = scores.masked_fill(hidden, -math.inf)
        weights = torch.softmax(scores.float(), -1).to(x.dtype)
        return self.o_proj((weights @ value).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, width = config.hidden_size, config.intermediate_size
        if config.model_type == "phi3":
            self.gate_up_proj = nn.Linear(hidden, 2 * width, bias=False)
        else:
            self.gate_proj = nn.Linear(hidden, width, bias=False)
            self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)
        self.gelu = config.model_type in PLUS_ONE

    def forward(self, x):
        if hasattr(self, "gate_up_proj"):
            gate, up = self.gate_up_proj(x).chunk(2, -1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        gate = (nn.functional.gelu(gate, approximate="tanh") if self.gelu
                else nn.functional.silu(gate))
        return self.down_proj(gate * up)


class Layer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.self_attn, self.mlp = Attention(config, layer), Mlp(config)
        self.input_layernorm = Norm(config.hidden_size, config)
        self.post_attention_layernorm = Norm(config.hidden_size, config)
        self.behind = config.model_type in PLUS_ONE
        if self.behind:
            self.pre_feedforward_layernorm = Norm(config.hidden_size, config)
            self.post_feedforward_layernorm = Norm(config.hidden_size, config)

    def forward(self, x):
        y = self.self_attn(self.input_layernorm(x))
        if not self.behind:
            x = x + y
            return x + self.mlp(self.post_attention_layernorm(x))
        x = x + self.post_attention_layernorm(y)
        y = self.mlp(self.pre_feedforward_layernorm(x))
        return x + self.post_feedforward_layernorm(y)


class Trunk(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config)
        self.scale = (config.hidden_size ** 0.5
                      if config.model_type in PLUS_ONE else None)

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
        cap = getattr(self.config, "final_logit_softcapping", None)
        return types.SimpleNamespace(logits=capped(logits, cap))
