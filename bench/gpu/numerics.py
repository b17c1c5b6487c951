#!/usr/bin/env python3
"""The same artifact on the CPU and on another device: losses of a training run, and
the state after one step from the same weights and tokens.

    numerics.py --device cuda:0 --steps 20 [--json FILE] IN

Runs every numerics-*.tsr of IN; standard library only. Exits with 1 if one differs
by more than rounding."""
import argparse
import array
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

# Tolerances: losses absolute; gradients, taken from the first moments, by norm. fp32
# sums differ in order, bf16 operands in one rounding each.
LOSS = {"fp32": 1e-3, "bf16": 3e-2}
GRADIENT = {"fp32": 1e-3, "bf16": 3e-2}


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{arguments[0]} ended with {done.returncode}")
    return done.stdout


def losses(runtime, artifact, tokens, device, steps, out):
    text = run(runtime, artifact, "--quiet", "--dump-metrics", "--device", device,
               "--data", tokens, "--out", out, "--steps", steps)
    rows = [line.split() for line in text.splitlines()]
    return [float.fromhex(row[3]) for row in rows if row[0] == "step"]


def write_safetensors(path, tensors):
    """{name: (dtype, shape, bytes)}"""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def read_floats(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            tensors[name] = array.array("f", data[begin:end])
    return tensors


def finite(value):
    """A NaN or an infinity is infinitely far."""
    return value if math.isfinite(value) else math.inf


def farthest(actual, expected):
    """Of two runs' losses; there must be as many of both, and some."""
    if not expected or len(actual) != len(expected):
        return math.inf
    return max(finite(abs(a - b)) for a, b in zip(actual, expected))


def distance(actual, expected):
    """|actual - expected| / |expected|"""
    if actual is None or len(actual) != len(expected):
        return math.inf
    apart = math.fsum((a - b) ** 2 for a, b in zip(actual, expected))
    size = math.fsum(b * b for b in expected)
    return finite(math.sqrt(apart / size) if size else math.sqrt(apart))


def worst_gradient(runtime, artifact, shape, device, scratch):
    """Of one step, the tensor whose first moment differs most."""
    draw = random.Random(1)
    count = math.prod(shape)
    ids = array.array("i", (draw.randrange(400) for _ in range(count + 1)))
    write_safetensors(scratch / "in.safetensors", {
        "tokens": ("I32", shape, ids[:-1].tobytes()),
        "targets": ("I32", shape, ids[1:].tobytes()),
        "seed": ("I64", [1], struct.pack("<q", 1))})
    states = []
    for where in ("cpu", device):
        file = scratch / "state.safetensors"
        run(runtime, artifact, "--program", "train_step", "--init", 7, "--device", where,
            "--inputs", scratch / "in.safetensors", "--dump-state", file)
        states.append(read_floats(file))
    return max(((distance(states[1].get(name), expected), name)
                for name, expected in states[0].items() if name.endswith(".exp_avg")),
               default=(math.inf, "no tensor has a first moment"))


def shape_of_batch(artifact):
    """[A, B, T] as the compiler printed the recipe into the artifact."""
    recipe = artifact.read_bytes()
    begin = recipe.index(b"batch:\n")
    lines = recipe[begin:begin + 200].decode("utf-8", "replace").splitlines()[1:4]
    batch = {key.strip(): int(value) for key, value in (line.split(":") for line in lines)}
    return [batch["accumulate"], batch["micro"], batch["sequence"]]


def compare(folder, artifact, device, steps):
    precision = "fp32" if "fp32" in artifact.stem else "bf16"
    runtime, tokens = folder / "tessera-run", folder / "tokens"
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        expected, actual = (losses(runtime, artifact, tokens, where, steps, scratch / f"run-{i}")
                            for i, where in enumerate(("cpu", device)))
        apart = farthest(actual, expected)
        gradient, name = worst_gradient(runtime, artifact, shape_of_batch(artifact), device, scratch)
    good = len(expected) == steps and apart <= LOSS[precision] and gradient <= GRADIENT[precision]
    span = f", {expected[0]:.3f} to {expected[-1]:.3f}," if expected else ""
    print(f"{'ok' if good else 'WRONG'}: {artifact.stem}: cpu and {device}: losses of {len(actual)} steps{span} "
          f"differ by at most {apart:.1e}; "
          f"gradients by {gradient:.1e} of their norm ({name})")
    return {"model": artifact.stem, "steps": steps, "good": good, "loss": apart, "gradient": gradient,
            "losses": {"cpu": expected, device: actual}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="IN", type=pathlib.Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    found = sorted(args.folder.glob("numerics-*.tsr"))
    if not found:
        sys.exit(f"{args.folder}: no numerics-*.tsr; build.sh makes them")
    rows = [compare(args.folder, artifact, args.device, args.steps) for artifact in found]
    if args.json:
        args.json.write_text(json.dumps(rows))
    if not all(row["good"] for row in rows):
        sys.exit("results are wrong")


if __name__ == "__main__":
    main()
