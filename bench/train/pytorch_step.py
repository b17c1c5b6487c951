#!/usr/bin/env python3
"""Seconds of one GPT-2 training step in PyTorch: the better of eager and
torch.compile, forward, backward, clip and AdamW. Prints one number.

    pytorch_step.py --config models/specs/gpt2-124m --batch 4 --sequence 64 \
                    --precision fp32|bf16 --threads 2 [--steps 3]

bf16 is autocast over fp32 weights, as people train. Each way is printed to
stderr with its median; one step before the counted ones warms up.
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

# activation_function of config.json, as F.gelu calls it.
GELUS = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}


class Block(nn.Module):
    def __init__(self, width, inner, heads, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.ln_1(x)).split(width, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.full((tokens, tokens), -math.inf).triu(1)
            y = ((q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1]) + mask).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
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
            Block(width, inner, config["n_head"], gelu) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def measure(model, forward, tokens, targets, bf16, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    seconds = []
    for i in range(steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if i > 0:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def read_config(path):
    """The config.json of a GPT-2, or the end with one line."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{file}: {error}")
    if config.get("model_type") != "gpt2":
        sys.exit(f"{file}: model_type is {config.get('model_type')!r}; only gpt2 is written in PyTorch here")
    if config.get("activation_function", "gelu_new") not in GELUS:
        sys.exit(f"{file}: activation_function is none of {', '.join(GELUS)}")
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="counted")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    config = read_config(pathlib.Path(args.config))
    if args.sequence > config["n_positions"]:
        sys.exit(f"{args.config}: has {config['n_positions']} positions, not {args.sequence}")
    model = Gpt2(config)
    tokens = torch.randint(0, config["vocab_size"], (args.batch, args.sequence))
    targets = torch.randint(0, config["vocab_size"], (args.batch, args.sequence))
    ways = {"eager": model}
    if hasattr(torch, "compile"):
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
    if not math.isfinite(best):
        sys.exit("no way of running the step worked")
    print(f"{best:.6f}")


if __name__ == "__main__":
    main()
