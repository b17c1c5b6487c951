#!/usr/bin/env python3
"""Matmuls and attention of bf16 on a GPU and on the CPU, from one artifact.

    exact.py --programs '.*' > exact.mlir   # for tessera compile --from partition
    exact.py --device cuda:0 IN [--json FILE]

Matmuls have small integers as inputs, whose sums are exact in any order: every bit
must be the CPU's. Attention may differ by rounding. Runs IN/exact.tsr by
IN/tessera-run; standard library only. Exits with 1 if a result is wrong."""
import argparse
import array
import json
import math
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

from numerics import write_safetensors

# Rows, columns and terms: of one stage and of more than a ring has; tiles of all
# sizes, with and without persistent blocks.
MATMULS = [(512, 384, 128), (512, 128, 512), (256, 256, 768), (200, 136, 264), (8, 512, 2048), (2048, 2176, 1024)]
# Equation, and the order of the sizes (m, n, k) in each operand.
LAYOUTS = {"nt": ("mk,nk->mn", "mk", "nk"), "nn": ("mk,kn->mn", "mk", "kn"), "tn": ("km,kn->mn", "km", "kn")}
RESULTS = {"bf16": "BF16", "f32": "F32"}
# Batch, tokens, heads, heads of keys, head_dim.
ATTENTION = [(8, 64, 4, 4, 32), (2, 128, 4, 2, 64), (1, 1024, 4, 2, 64), (1, 1024, 2, 2, 128), (1, 512, 4, 1, 96)]
# Of the norm, in bf16.
TOLERANCE = 1e-2


def matmuls():
    """(name, equation, shapes of x and w, shape and type of y)"""
    for layout, (equation, *operands) in LAYOUTS.items():
        for sizes in MATMULS:
            size = dict(zip("mnk", sizes))
            shapes = [[size[letter] for letter in operand] for operand in operands]
            for result in RESULTS:
                yield f"{layout}_{result}_{'x'.join(map(str, sizes))}", equation, shapes, (sizes[:2], result)


def attentions():
    """(name, shape of q, of k and v, of lse, scale)"""
    for batch, tokens, heads, shared, width in ATTENTION:
        yield (f"attention_{tokens}_{heads}_{shared}_{width}", [batch, tokens, heads, width],
               [batch, tokens, shared, width], [batch, heads, tokens], width ** -0.5)


def tensor(shape, element="bf16"):
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def print_programs(pattern):
    """Those whose names match `pattern`."""
    print('module attributes {tessera.phase = "partition",\n'
          '    tessera.config = "{\\"model_type\\": \\"none\\", \\"vocab_size\\": 8}",\n'
          '    tessera.recipe = "precision: {compute: bf16}\\n"} {')
    for name, equation, shapes, (shape, result) in matmuls():
        if not re.fullmatch(pattern, name):
            continue
        x, w, y = *map(tensor, shapes), tensor(shape, result)
        print(f'func.func @{name}(%x: {x} {{graph.input = "x"}}, %w: {w} {{graph.input = "w"}})\n'
              f'    -> ({y} {{graph.output = "y"}}) {{\n'
              f'  %y = graph.einsum "{equation}" %x, %w : ({x}, {w}) -> {y}\n  return %y : {y}\n}}')
    for name, queries, keys, rows, scale in attentions():
        if not re.fullmatch(pattern, name):
            continue
        q, k, lse = tensor(queries), tensor(keys), tensor(rows, "f32")
        print(f'func.func @{name}(%q: {q} {{graph.input = "q"}}, %k: {k} {{graph.input = "k"}},\n'
              f'    %v: {k} {{graph.input = "v"}}, %c: {q} {{graph.input = "cotangent"}})\n'
              f'    -> ({q} {{graph.output = "o"}}, {lse} {{graph.output = "lse"}}, {q} {{graph.output = "dq"}},\n'
              f'        {k} {{graph.output = "dk"}}, {k} {{graph.output = "dv"}}) {{\n'
              f'  %o, %lse = graph.attention %q, %k, %v scale {scale} {{causal}} : {q}, {k}, {k} -> {q}, {lse}\n'
              f'  %dq, %dk, %dv = graph.attention_grad %q, %k, %v, %o, %lse, %c scale {scale} {{causal}}\n'
              f'      : {q}, {k}, {k}, {q}, {lse}, {q}\n'
              f'  return %o, %lse, %dq, %dk, %dv : {q}, {lse}, {q}, {k}, {k}\n}}')
    print("}")


def bf16(values):
    """Rounded towards zero, which integers do not notice."""
    return array.array("H", (struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values)).tobytes()


def read_safetensors(path):
    """{name: (type, bytes)}"""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    return {name: (entry["dtype"], data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def floats(kind, data):
    if kind == "F32":
        return array.array("f", data)
    return [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in array.array("H", data)]


def run(folder, program, inputs, device, scratch):
    write_safetensors(scratch / "in", {name: ("BF16", *tensor) for name, tensor in inputs.items()})
    done = subprocess.run([folder / "tessera-run", folder / "exact.tsr", "--program", program, "--device", device,
                           "--inputs", scratch / "in", "--outputs", scratch / "out"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{program} ended with {done.returncode}")
    return read_safetensors(scratch / "out")


def check_matmul(both, element):
    """How many elements differ."""
    expected, actual = (results["y"][1] for results in both)
    size = {"bf16": 2, "f32": 4}[element]
    return sum(expected[i:i + size] != actual[i:i + size] for i in range(0, len(expected), size))


def check_attention(both):
    """The largest distance of an output, relative to its norm."""
    worst = 0
    for name, (kind, data) in both[0].items():
        expected, actual = floats(kind, data), floats(*both[1][name])
        apart = math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(actual, expected)))
        size = math.sqrt(math.fsum(b * b for b in expected))
        worst = max(worst, apart / size if math.isfinite(apart) else math.inf)
    return worst


def compare(folder, device, scratch):
    draw = random.Random(1)
    for name, _, shapes, (_, element) in matmuls():
        inputs = {key: (shape, bf16(draw.choices(range(-3, 4), k=math.prod(shape))))
                  for key, shape in zip("xw", shapes)}
        wrong = check_matmul([run(folder, name, inputs, where, scratch) for where in ("cpu", device)], element)
        yield {"program": name, "good": wrong == 0, "difference": f"{wrong} elements"}
    for name, queries, keys, _, _ in attentions():
        shapes = {"q": queries, "k": keys, "v": keys, "cotangent": queries}
        inputs = {key: (shape, bf16(draw.gauss(0, 1) for _ in range(math.prod(shape)))) for key, shape in shapes.items()}
        apart = check_attention([run(folder, name, inputs, where, scratch) for where in ("cpu", device)])
        yield {"program": name, "good": apart <= TOLERANCE, "difference": f"{apart:.1e} of the norm"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", metavar="PATTERN", help="print the programs with such names")
    parser.add_argument("folder", metavar="IN", type=pathlib.Path, nargs="?")
    parser.add_argument("--device")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if args.programs:
        return print_programs(args.programs)
    if not args.folder or not args.device:
        parser.error("IN and --device are required")
    with tempfile.TemporaryDirectory() as scratch:
        rows = []
        for row in compare(args.folder, args.device, pathlib.Path(scratch)):
            rows.append(row)
            if not row["good"]:
                print(f"WRONG: {row['program']}: cpu and {args.device} differ: {row['difference']}")
    print(f"{sum(row['good'] for row in rows)} of {len(rows)} programs are right on {args.device}")
    if args.json:
        args.json.write_text(json.dumps(rows))
    if not all(row["good"] for row in rows):
        sys.exit("results are wrong")


if __name__ == "__main__":
    main()
