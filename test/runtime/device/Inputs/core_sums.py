"""Writes core-sums.txt, sums of tensor cores by MMA-Sim (package mmasim 2.1.1,
arXiv 2511.10909), a model that its authors compared bit by bit with GPUs:

    python3 core_sums.py > core-sums.txt

A line is: architecture, element type, accumulator, elements of A, of B, sum;
bits in hexadecimal. Elements are 32 bytes of each operand, as one mma.sync of
sm_80 (m16n8k16, m16n8k8) or one wgmma of sm_90a multiplies."""
import torch

# Types that old versions of torch lack; no case has them as torch's.
for name in ("float8_e8m0fnu", "float8_e5m2", "float8_e4m3fn",
             "float8_e5m2fnuz", "float8_e4m3fnuz"):
    if not hasattr(torch, name):
        setattr(torch, name, name)

from mmasim.arithmetic.fdpa import MMA_T_FDPA, t_fdpa  # noqa: E402

# Bits, terms of a step in bytes, and the exponent of zero, as mmasim's
# nv_ptx/sim.py has them for Ampere and Hopper.
CHIPS = {"sm_80": (24, 16, -132), "sm_90a": (25, 32, -133)}
TYPES = {"bf16": (torch.bfloat16, 2), "f16": (torch.float16, 2),
         "tf32": (torch.float32, 4)}
FP8 = {"e4m3": -6, "e5m2": -14}  # smallest exponents
random = torch.Generator().manual_seed(20)


def draw(count, spread):
    scale = torch.randint(-spread, spread + 1, (count,), generator=random)
    return torch.randn(count, generator=random) * torch.exp2(scale.double())


def bits(tensor):
    tensor = tensor.contiguous()
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return [f"{x & 0xffff:04x}" for x in tensor.view(torch.int16).tolist()]
    return [f"{x & 0xffffffff:08x}"
            for x in tensor.view(torch.int32).tolist()]


def operands(kind, count, spread):
    """A, B and C, each of its own difficulty."""
    a, b = draw(count, spread), draw(count, spread)
    c = draw(1, spread)[0]
    if kind == "large":  # an accumulator much larger than most terms
        c = c * 2.0 ** 14
    elif kind == "cancelling":
        c = -(a * b).sum()
    elif kind == "zeros":
        a[::2], b[::3], c = 0, 0, torch.tensor(0.0)
    elif kind == "subnormal":
        small = 2.0 ** -70 if spread > 4 else 2.0 ** -9
        a, b, c = a * small, b * small, c * small * small
    elif kind == "infinite":
        a[3] = float("inf")
    return a, b, c.float()


def main():
    for chip, (fraction, step, zero) in CHIPS.items():
        for name, (dtype, size) in TYPES.items():
            model = MMA_T_FDPA(fraction, "RZ-FP32", step // size, zero, name,
                               name)
            for kind in ("plain", "large", "cancelling", "zeros", "subnormal",
                         "infinite"):
                for spread in (1, 4) if name == "f16" else (1, 6, 20):
                    a, b, c = operands(kind, 32 // size, spread)
                    a, b = a.to(dtype), b.to(dtype)
                    total = model.dpa(a, b, c)
                    print(chip, name, *bits(c[None]), *bits(a), *bits(b),
                          *bits(total[None]))
    for name, smallest in FP8.items():
        for kind in ("plain", "large", "cancelling", "zeros"):
            codes = torch.randint(0, 120, (2, 32), generator=random)
            if name == "e5m2":
                a, b = ((x * 256).short().view(torch.float16) for x in codes)
            else:
                a, b = (decode_e4m3(x) for x in codes)
            c = operands(kind, 1, 1)[2]
            total = t_fdpa(a, b, c, 13, "RZ-E8M13", -133, smallest, smallest)
            print("sm_90a", name, *bits(c[None]),
                  *(f"{x:02x}" for x in codes.flatten().tolist()),
                  *bits(total[None]))


def decode_e4m3(codes):
    exponent, fraction = codes >> 3, codes & 7
    return torch.where(exponent > 0,
                       (8 + fraction) * torch.exp2(exponent.double() - 10),
                       fraction * 2.0 ** -9).to(torch.float16)


main()
