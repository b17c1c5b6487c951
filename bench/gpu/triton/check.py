#!/usr/bin/env python3
"""Our kernels next to Triton's for the same problems, by their machine code for
sm_90a from one ptxas. No GPU is used.

    python3 -m venv V && V/bin/pip install triton nvidia-cuda-nvdisasm
    V/bin/python bench/gpu/triton/check.py

Triton's kernels (kernels.py) are written as its public tutorials are, with the tile
sizes of their Hopper configurations. Compare structure, not time: instructions
for each product, registers, spills, waits and barriers, and bytes in flight.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
sys.path.insert(0, str(HERE))
import sass  # noqa: E402

PTR, F32P, I32P, I, F = "*bf16", "*fp32", "*i32", "i32", "fp32"
TILE = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}

# Program of problems.mlir: our kernel in it (the first whose name it begins), the
# kernel of kernels.py, its arguments, constants, warps and stages.
PROBLEMS = {
    "matmul": ("linear|einsum|matmul", "matmul",
               {"x": PTR, "w": PTR, "y": PTR, "M": I, "N": I, "K": I}, TILE, 8, 3),
    "matmul_bias_gelu": (
        "linear|einsum", "matmul_bias_gelu",
        {"x": PTR, "w": PTR, "b": PTR, "y": PTR, "M": I, "N": I, "K": I}, TILE, 8, 3),
    "attention_d64": (
        "attention", "attention",
        {"q": PTR, "k": PTR, "v": PTR, "o": PTR, "lse": F32P, "scale": F, "T": I,
         "ROWS": I}, {"D": 64, "BM": 128, "BN": 128}, 8, 3),
    "attention_d128": (
        "attention", "attention",
        {"q": PTR, "k": PTR, "v": PTR, "o": PTR, "lse": F32P, "scale": F, "T": I,
         "ROWS": I}, {"D": 128, "BM": 128, "BN": 128}, 8, 2),
    "layer_norm": ("", "layer_norm", {"x": PTR, "w": F32P, "b": F32P, "y": PTR,
                                      "N": I, "eps": F}, {"BLOCK": 4096}, 8, 1),
    "rms_norm": ("", "rms_norm", {"x": PTR, "w": F32P, "y": PTR, "N": I, "eps": F},
                 {"BLOCK": 4096}, 8, 1),
    "cross_entropy": ("linear_cross_entropy_grad_1", "cross_entropy",
                      {"x": F32P, "targets": I32P, "loss": F32P, "dx": PTR, "scale": F,
                       "N": I}, {"BLOCK": 4096}, 8, 2),
    "gemv": ("", "gemv", {"x": PTR, "w": PTR, "y": PTR, "N": I, "K": I},
             {"BN": 16, "BK": 256}, 4, 3),
}
ROW = re.compile(r" *\d+ .*? +(?P<threads>\d+) +(?P<registers>\d+) +(?P<shared>\d+) +"
                 r"\d+ +\d+ .*?  (?P<name>\w+): ")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def theirs(name, ptxas, nvdisasm, folder):
    """What Triton makes of a problem."""
    os.environ["TRITON_PTXAS_PATH"] = ptxas
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    import kernels
    _, kernel, arguments, constants, warps, stages = PROBLEMS[name]
    function = getattr(kernels, kernel)
    signature = {**arguments, **dict.fromkeys(constants, "constexpr")}
    # Pointers and sizes are multiples of 16, as Triton finds at a call.
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in
               enumerate(arguments.values()) if kind != F}
    compiled = triton.compile(
        ASTSource(function, signature, constants, aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": warps, "num_stages": stages})
    cubin = folder / f"{name}.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    text = run(nvdisasm, "-c", cubin)
    return {"threads": 32 * warps, "registers": sass.registers(cubin.read_bytes()),
            "shared": compiled.metadata.shared, **sass.describe(text)}


def ours(name, tessera, artifact):
    """What we make of it: the first variant."""
    wanted = PROBLEMS[name][0]
    table = run(tessera, "inspect", artifact, "--kernels", "--program", name,
                "--device", "cuda:sm_90a")
    for match in filter(None, map(ROW.match, table.splitlines())):
        if re.match(wanted, match["name"]):
            text = run(tessera, "inspect", artifact, "--program", name, "--device",
                       "cuda:sm_90a", f"--show={match['name']}", "--sass")
            sizes = {key: int(match[key]) for key in ("threads", "registers", "shared")}
            return {**sizes, **sass.describe(text)}
    sys.exit(f"check.py: {name} has no kernel {wanted}:\n{table}")


def row(name, whose, one):
    blocks = sass.concurrent(one["threads"], one["registers"], one["shared"])
    flight = blocks * (one["shared"] if one["stages"] else one["threads"] * one["loaded"])
    products = one["products"]
    ratio = f"{one['others'] / products:.1f}" if products else ""
    work = f"{1e6 * one['others'] / one['terms']:.1f}" if one["terms"] else ""
    return [name, whose, one["threads"], one["registers"], one["spills"], blocks,
            f"{flight / 1024:.0f}", one["instructions"], one["loop"], products or "",
            ratio, work, one["longest"] or "", one["synchronizes"], one["functions"],
            one["branches"], one["width"] or ""]


HEADING = ["problem", "whose", "threads", "registers", "spills", "blocks an SM",
           "KiB an SM", "instructions", "in the loop", "products",
           "others a product", "others a million terms", "most between products",
           "barriers and waits", "MUFU", "branches", "bytes a load"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM",
                        help=f"default: {', '.join(PROBLEMS)}")
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build/bin")
    parser.add_argument("--cuda", type=pathlib.Path, help="toolkit (default: nvcc's)")
    arguments = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    cuda = arguments.cuda or pathlib.Path(nvcc).resolve().parents[1]
    nvdisasm = os.environ.get("TESSERA_NVDISASM") or shutil.which("nvdisasm") or next(
        iter(pathlib.Path(sys.prefix).glob("lib/*/site-packages/nvidia/**/nvdisasm")),
        cuda / "bin/nvdisasm")
    os.environ["TESSERA_NVDISASM"] = str(nvdisasm)
    tessera = arguments.bin / "tessera"
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        artifact = folder / "problems.tsr"
        run(tessera, "compile", "--from", "partition", HERE / "problems.mlir", "--mode",
            "artifact", "--target", "cuda:sm_90a", "--no-emulate", "-o", artifact)
        print("| " + " | ".join(HEADING) + " |\n|" + "---|" * len(HEADING))
        for name in arguments.problems or PROBLEMS:
            for whose, one in (("ours", ours(name, tessera, artifact)),
                               ("Triton", theirs(name, str(cuda / "bin/ptxas"), nvdisasm,
                                                 folder))):
                print("| " + " | ".join(map(str, row(name, whose, one))) + " |")


if __name__ == "__main__":
    main()
