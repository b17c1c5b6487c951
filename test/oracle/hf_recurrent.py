"""Mixers of Mamba-2 (2405.21060) and models that have them, written out in torch.

Plain and slow on purpose: the scan is one product of all tokens with all earlier
ones, weighted by decays (section 5 of the paper), of which the reference computes
chunks. Parameters have the names that checkpoints have, and types are cast where the
reference casts them: norms and the scan in fp32.
"""
import types

import torch
from torch import nn

from hf_newer import Attention, CausalModel, Norm

RECURRENT = ("mamba", "linear_attention")  # layers in transformers 4 and 5


class GatedNorm(nn.Module):
    """The norm of x × silu(gate), of each group by itself."""

    def __init__(self, width, groups, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.groups, self.eps = groups, eps

    def forward(self, x, gate):
        y = x.float() * nn.functional.silu(gate.float())
        y = y.unflatten(-1, (self.groups, -1))
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * y.flatten(-2).to(x.dtype)


class Mixer(nn.Module):
    def __init__(self, hidden, heads, width, state, groups, kernel, bias, eps):
        super().__init__()
        self.sizes = [heads * width, heads * width + 2 * groups * state, heads]
        self.heads, self.width, self.state, self.groups = heads, width, state, groups
        self.dt_bias = nn.Parameter(torch.ones(heads))
        self.A_log = nn.Parameter(torch.zeros(heads))
        self.D = nn.Parameter(torch.ones(heads))
        channels = self.sizes[1]
        self.conv1d = nn.Conv1d(channels, channels, kernel, groups=channels,
                                padding=kernel - 1)
        self.in_proj = nn.Linear(hidden, sum(self.sizes), bias=bias)
        self.norm = GatedNorm(heads * width, groups, eps)
        self.out_proj = nn.Linear(heads * width, hidden, bias=bias)

    def forward(self, x):
        length = x.shape[1]
        gate, mixed, step = self.in_proj(x).split(self.sizes, -1)
        mixed = self.conv1d(mixed.transpose(1, 2))[..., :length].transpose(1, 2)
        shared = self.groups * self.state
        value, write, read = nn.functional.silu(mixed).split(
            [self.sizes[0], shared, shared], -1)
        y = self.scanned(value.unflatten(-1, (self.heads, self.width)), step,
                         self.of_heads(write), self.of_heads(read))
        return self.out_proj(self.norm(y.flatten(-2).to(x.dtype), gate).to(x.dtype))

    def of_heads(self, x):
        x = x.unflatten(-1, (self.groups, self.state)).float()
        return x.repeat_interleave(self.heads // self.groups, 2)

    def scanned(self, value, step, write, read):
        step = nn.functional.softplus(step + self.dt_bias).float()
        value = value.float()
        exponents = (-torch.exp(self.A_log.float()) * step).transpose(1, 2)
        length = value.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool).tril(-1)
        terms = exponents[..., None].expand(*exponents.shape, length)
        sums = terms.masked_fill(~earlier, 0).cumsum(-2)
        decays = torch.exp(sums).tril()
        scores = torch.einsum("blhn,bshn->bhls", read, write) * decays
        y = torch.einsum("bhls,bshp->blhp", scores, step[..., None] * value)
        return y + self.D[:, None] * value


class MambaLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        eps = config.layer_norm_epsilon
        self.norm = Norm(config.hidden_size, config, eps)
        self.mixer = Mixer(config.hidden_size, config.num_heads, config.head_dim,
                           config.state_size, config.n_groups, config.conv_kernel,
                           config.use_bias, eps)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class MambaTrunk(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(MambaLayer(config)
                                    for _ in range(config.num_hidden_layers))
        self.norm_f = Norm(config.hidden_size, config, config.layer_norm_epsilon)

    def forward(self, tokens):
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm_f(x)


class MambaModel(nn.Module):
    def __init__(self, fields):
        super().__init__()
        self.config = types.SimpleNamespace(**fields)
        self.backbone = MambaTrunk(self.config)
        self.lm_head = nn.Linear(self.config.hidden_size, self.config.vocab_size,
                                 bias=False)

    def forward(self, tokens):
        return types.SimpleNamespace(logits=self.lm_head(self.backbone(tokens)))


class SharedMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.shared_intermediate_size
        self.input_linear = nn.Linear(config.hidden_size, 2 * width, bias=False)
        self.output_linear = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, x):
        gate, up = self.input_linear(x).chunk(2, -1)
        return self.output_linear(nn.functional.silu(gate) * up)


class Stack(nn.Module):
    """A matrix [out, in] of each expert."""

    def __init__(self, experts, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(experts, outputs, inputs))

    def forward(self, x, expert):
        return x @ self.weight[expert].T


class Experts(nn.Module):
    """Every expert of every token, most of which weigh nothing."""

    def __init__(self, config):
        super().__init__()
        hidden, width = config.hidden_size, config.intermediate_size
        count = config.num_local_experts
        self.router = nn.Module()
        self.router.layer = nn.Linear(hidden, count, bias=False)
        self.input_linear = Stack(count, hidden, 2 * width)
        self.output_linear = Stack(count, width, hidden)
        self.chosen = config.num_experts_per_tok

    def expert(self, x, number):
        gate, up = self.input_linear(x, number).chunk(2, -1)
        return self.output_linear(nn.functional.silu(gate) * up, number)

    def forward(self, x):
        logits = self.router.layer(x).float()
        best, chosen = logits.topk(self.chosen, -1)
        weights = torch.zeros_like(logits).scatter(-1, chosen, best.softmax(-1))
        return sum(self.expert(x, i) * weights[..., i, None].to(x.dtype)
                   for i in range(logits.shape[-1]))


class HybridLayer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        if config.layer_types[layer] in RECURRENT:
            self.mamba = Mixer(config.hidden_size, config.mamba_n_heads,
                               config.mamba_d_head, config.mamba_d_state,
                               config.mamba_n_groups, config.mamba_d_conv,
                               config.mamba_proj_bias, config.rms_norm_eps)
        else:
            self.self_attn = Attention(config, layer)
        self.shared_mlp = SharedMlp(config)
        if config.num_local_experts:
            self.block_sparse_moe = Experts(config)
        self.input_layernorm = Norm(config.hidden_size, config)
        self.post_attention_layernorm = Norm(config.hidden_size, config)
        self.scale = config.residual_multiplier

    def forward(self, x):
        mixer = self.mamba if hasattr(self, "mamba") else self.self_attn
        x = x + mixer(self.input_layernorm(x)) * self.scale
        read = self.post_attention_layernorm(x)
        y = self.shared_mlp(read)
        if hasattr(self, "block_sparse_moe"):
            y = self.block_sparse_moe(read) + y
        return x + y * self.scale


def written_out(fields):
    """A model of hf_newer.py or of this file."""
    if fields["model_type"] == "mamba2":
        return MambaModel(fields)
    model = CausalModel(fields)
    if fields["model_type"] == "granitemoehybrid":
        model.model.layers = nn.ModuleList(
            HybridLayer(model.config, i) for i in range(model.config.num_hidden_layers))
    return model
