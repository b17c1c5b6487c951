#!/usr/bin/env python3
"""The programs of kernels.mlir and an optimizer step by PyTorch's libraries, on a
GPU: cuBLAS, SDPA with the cuDNN and the flash backend forced, torch.compile.

    library.py --json FILE

Timed like Tessera's kernels: by CUDA events, with caches flushed by a fill of 256 MiB
before every run, the median of 20. FILE: {program: {library: seconds}}."""
import argparse
import json
import pathlib
import statistics

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

GPU, BF16 = "cuda", torch.bfloat16
# Allows repeated runs of one compiled backward.
torch._functorch.config.donated_buffer = False


def seconds(call, repeats=20):
    flush = torch.empty(256 << 20, dtype=torch.int8, device=GPU)
    times = []
    for i in range(repeats + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def random(*shape, dtype=BF16, grad=False):
    return (torch.rand(*shape, device=GPU) * 2 - 1).to(dtype).requires_grad_(grad)


def attention(heads, width, name, backend):
    """In Tessera's layout: [batch, tokens, heads, head_dim]."""
    q, k, v = (random(2, 8192, heads, width).transpose(1, 2).requires_grad_() for _ in range(3))
    cotangent = random(2, 8192, heads, width).transpose(1, 2)

    def run():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with sdpa_kernel(backend):
        with torch.no_grad():
            forward = seconds(run)
        o = run()
        backward = seconds(lambda: torch.autograd.grad(o, (q, k, v), cotangent, retain_graph=True))
    return {f"attention_d{width}": {name: forward}, f"attention_d{width}_backward": {name: backward}}


def matmul(m, n, k):
    x, w = random(m, k), random(n, k)
    return {f"matmul_{m}x{n}x{k}": {"cuBLAS": seconds(lambda: F.linear(x, w))}}


def rms_norm():
    x, w, dy = random(16384, 4096, grad=True), random(4096, dtype=torch.float32, grad=True), random(16384, 4096)

    @torch.compile
    def norm(x, w):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5) * w).to(x.dtype)
    with torch.no_grad():
        forward = seconds(lambda: norm(x, w))
    y = norm(x, w)
    backward = seconds(lambda: torch.autograd.grad(y, (x, w), dy, retain_graph=True))
    return {"rms_norm": {"torch.compile": forward}, "rms_norm_backward": {"torch.compile": backward}}


def cross_entropy():
    x, w = random(8192, 2048, grad=True), random(50304, 2048, grad=True)
    targets = torch.randint(0, 50304, (8192,), device=GPU)
    loss = torch.compile(lambda x, w: F.cross_entropy(F.linear(x, w).float(), targets))
    return {"cross_entropy": {"torch.compile": seconds(
        lambda: torch.autograd.grad(loss(x, w), (x, w)))}}


def adamw():
    """Tensors of GPT-2 124M's sizes."""
    width, layers = 768, 12
    shapes = [(50257, width), (1024, width), (width,), (width,)] + layers * [
        (width, 3 * width), (3 * width,), (width, width), (width,), (width, 4 * width), (4 * width,),
        (4 * width, width), (width,), (width,), (width,), (width,), (width,)]
    weights = [random(*shape, dtype=torch.float32, grad=True) for shape in shapes]
    for weight in weights:
        weight.grad = random(*weight.shape, dtype=torch.float32)
    optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.1, fused=True)
    return {"adamw": {"fused AdamW": seconds(optimizer.step)}}


CASES = [lambda h=heads, w=width, n=name, b=backend: attention(h, w, n, b)
         for heads, width in ((16, 128), (32, 64))
         for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION))]
CASES += [lambda: matmul(8192, 8192, 2048), lambda: matmul(8192, 2048, 8192), lambda: matmul(8192, 8192, 8192),
          rms_norm, cross_entropy, adamw]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    args = parser.parse_args()
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    results = {}
    for case in CASES:
        try:
            for program, times in case().items():
                results.setdefault(program, {}).update(times)
        except Exception as error:  # a backend that this build lacks; continue with the others
            print(f"not measured: {type(error).__name__}: {str(error).splitlines()[0]}")
        args.json.write_text(json.dumps(results))
    for program, libraries in results.items():
        print(f"{program}: " + ", ".join(f"{name} {t * 1e6:.1f} us" for name, t in libraries.items()))


if __name__ == "__main__":
    main()
