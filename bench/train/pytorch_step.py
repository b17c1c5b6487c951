#!/usr/bin/env python3
"""Seconds of one training step of a GPT-2 or a Llama in PyTorch: the better of
eager and torch.compile, forward, backward, clip and AdamW. Prints one number, on a
GPU the best so far after each of both.

    pytorch_step.py --config models/specs/gpt2-124m --batch 4 --sequence 64 \
                    --precision fp32|bf16 --threads 2 [--steps 3]

bf16 is autocast over fp32 weights. The median of each mode is printed to stderr; one
warm-up step precedes the counted ones. With
--device cuda they are eager and max-autotune, with the fused AdamW. Matmuls are
cuBLAS's: on an H100 it was faster than every Triton candidate at the eight shapes
that were timed, and timing the candidates takes minutes.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    sys.exit(f"{sys.executable} cannot import torch: {error}")

# Whether attention takes fewer heads of keys and values as they are.
SHARES_HEADS = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 5)
# activation_function of config.json, as F.gelu calls it.
GELUS = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}


def attention(q, k, v):
    """Causal, of [batch, tokens, heads, width]; fewer heads of k and v are shared."""
    batch, tokens, heads, width = q.shape
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    if k.shape[1] != heads and SHARES_HEADS:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return y.transpose(1, 2).reshape(batch, tokens, heads * width)
    if k.shape[1] != heads:
        k, v = (t.repeat_interleave(heads // t.shape[1], 1) for t in (k, v))
    if hasattr(F, "scaled_dot_product_attention"):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        mask = torch.full((tokens, tokens), -math.inf).triu(1)
        y = ((q @ k.transpose(2, 3)) / math.sqrt(width) + mask).softmax(-1) @ v
    return y.transpose(1, 2).reshape(batch, tokens, heads * width)


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Gpt2Block(nn.Module):
    def __init__(self, width, inner, heads, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)) for t in self.qkv(self.ln_1(x)).chunk(3, dim=2))
        x = x + self.out(attention(q, k, v))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate=self.gelu))


class Gpt2(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        inner = config.get("n_inner") or 4 * width
        gelu = GELUS[config.get("activation_function", "gelu_new")]
        self.wte = nn.Embedding(config["vocab_size"], width)
        self.wpe = nn.Embedding(config["n_positions"], width)
        self.blocks = nn.ModuleList(
            Gpt2Block(width, inner, config["n_head"], gelu) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return cross_entropy(F.linear(self.ln_f(x), self.wte.weight), targets)


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner, heads = (config[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads"))
        self.head = config.get("head_dim") or width // heads
        shared = self.head * (config.get("num_key_value_heads") or heads)

        def linear(into, out):
            return nn.Linear(into, out, bias=False)
        self.q, self.k, self.v = linear(width, heads * self.head), linear(width, shared), linear(width, shared)
        self.o = linear(heads * self.head, width)
        self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)
        self.norm_1, self.norm_2 = (RmsNorm(width, config["rms_norm_eps"]) for _ in range(2))

    def forward(self, x, cos, sin):
        def heads(t):
            return t.unflatten(2, (-1, self.head))

        def rotated(t):
            low, high = t.chunk(2, dim=-1)
            return (t * cos + torch.cat((-high, low), -1) * sin).to(t.dtype)
        y = self.norm_1(x)
        x = x + self.o(attention(rotated(heads(self.q(y))), rotated(heads(self.k(y))), heads(self.v(y))))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Angles of the plain rotary embedding: scaled ones cost the same."""

    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"]
        self.embedding = nn.Embedding(config["vocab_size"], width)
        self.blocks = nn.ModuleList(LlamaBlock(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(width, config["rms_norm_eps"])
        self.head = self.embedding
        if not config.get("tie_word_embeddings", False):
            self.head = nn.Linear(width, config["vocab_size"], bias=False)
        size = self.blocks[0].head
        rates = config.get("rope_theta", 10000.0) ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("rates", torch.cat((rates, rates)))

    def forward(self, tokens, targets):
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None, None] * self.rates
        cos, sin = angles.cos(), angles.sin()
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return cross_entropy(F.linear(self.norm(x), self.head.weight), targets)


MODELS = {"gpt2": (Gpt2, "n_positions"), "llama": (Llama, "max_position_embeddings")}


def measure(model, forward, tokens, targets, bf16, steps):
    device = tokens.device.type
    fused = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, **fused)
    seconds = []
    for i in range(steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
            loss = forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        if i > 0:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def read_config(path):
    """A config.json of one of MODELS, or the end with one line."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{file}: {error}")
    if config.get("model_type") not in MODELS:
        sys.exit(f"{file}: model_type is {config.get('model_type')!r}; only "
                 f"{' and '.join(MODELS)} are written in PyTorch here")
    if config["model_type"] == "gpt2" and config.get("activation_function", "gelu_new") not in GELUS:
        sys.exit(f"{file}: activation_function is none of {', '.join(GELUS)}")
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="counted")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    config = read_config(pathlib.Path(args.config))
    build, positions = MODELS[config["model_type"]]
    if args.sequence > config[positions]:
        sys.exit(f"{args.config}: has {config[positions]} positions, not {args.sequence}")
    model = build(config).to(args.device)
    tokens, targets = (torch.randint(0, config["vocab_size"], (args.batch, args.sequence)).to(args.device)
                       for _ in range(2))
    ways = {"eager": model}
    if args.device == "cuda":
        from torch._inductor import config as inductor  # PyTorch 2
        inductor.max_autotune_gemm_backends = "ATEN"
        ways["torch.compile max-autotune"] = torch.compile(model, mode="max-autotune")
    elif hasattr(torch, "compile"):
        ways["torch.compile"] = torch.compile(model)
    best = math.inf
    for name, forward in ways.items():
        try:
            seconds = measure(model, forward, tokens, targets, args.precision == "bf16", args.steps)
        except Exception as error:  # torch.compile needs a C++ compiler and may fail
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        print(f"torch {torch.__version__} {name}: {seconds:.4f} s", file=sys.stderr)
        best = min(best, seconds)
        if args.device == "cuda":
            print(f"{best:.6f}", flush=True)  # compiling may not end in time
    if not math.isfinite(best):
        sys.exit("no way of running the step worked")
    if args.device == "cpu":
        print(f"{best:.6f}")


if __name__ == "__main__":
    main()
