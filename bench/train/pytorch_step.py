#!/usr/bin/env python3
"""Seconds of one GPT-2 training step in PyTorch: the better of eager and
torch.compile, forward, backward, clip and AdamW. Prints one number.

    pytorch_step.py --config models/specs/gpt2-124m --batch 4 --sequence 64 \
                    --dtype fp32|bf16 --threads 2 [--steps 5]

bf16 is autocast over fp32 weights, as people train. Notes go to stderr.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

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
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        self.wte = nn.Embedding(config["vocab_size"], width)
        self.wpe = nn.Embedding(config["n_positions"], width)
        self.blocks = nn.ModuleList(Block(width, config["n_head"]) for _ in range(config["n_layer"]))
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
    for i in range(steps + 2):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if i >= 2:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    path = pathlib.Path(args.config)
    config = json.loads((path / "config.json" if path.is_dir() else path).read_text())
    model = Gpt2(config)
    tokens = torch.randint(0, 1000, (args.batch, args.sequence))
    targets = torch.randint(0, 1000, (args.batch, args.sequence))
    ways = {"eager": model}
    if hasattr(torch, "compile"):
        ways["torch.compile"] = torch.compile(model)
    best = math.inf
    for name, forward in ways.items():
        try:
            seconds = measure(model, forward, tokens, targets, args.dtype == "bf16", args.steps)
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
