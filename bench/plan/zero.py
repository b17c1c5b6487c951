#!/usr/bin/env python3
"""What ZeRO holds in memory, read from execution plans: the arena of @train_step with
ZeRO 3 next to activations, two layers and the head, and the bytes of state per
parameter with ZeRO 1 and 2.

    bench/plan/zero.py --bin build/bin
    bench/plan/zero.py --bin build/bin --model llama-1b --target cpu
    bench/plan/zero.py --bin build/bin --model llama-1b --replicate 8
"""
import argparse
import collections
import itertools
import math
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BYTES = {"f32": 4, "bf16": 2, "i1": 1, "i8": 1, "i32": 4, "i64": 8, "f64": 8}
MESHES = {"llama-1b": "data=64", "llama-3-8b": "data=64",
          "moe-106b-a14b": "data=8,expert=8"}
RECIPES = {"compute": ["fp32", "bf16"], "accumulate": ["1", "4"],
           "recompute": ["none", "selective", "full"]}


def size_of(shape):
    return math.prod(int(dim) for dim in shape.split("x")[:-1]), shape.split("x")[-1]


def bytes_of(shape):
    count, element = size_of(shape)
    return count * BYTES[element]


def mesh_of(arguments, model):
    """The model's mesh, its data ranks in replicas."""
    first, *rest = MESHES[model].split(",")
    data = int(first.removeprefix("data=")) // arguments.replicate
    return ",".join([f"replicate={arguments.replicate}", f"data={data}", *rest])


def compile_plan(arguments, model, zero, recipe, target, folder):
    (folder / "recipe.yaml").write_text(
        "precision: {{compute: {compute}}}\nrecompute: {recompute}\n"
        "batch: {{micro: 64, accumulate: {accumulate}, sequence: 256}}\n".format(**recipe))
    subprocess.run(
        [arguments.bin / "tessera", "compile", SOURCE / "models/specs" / model,
         "--recipe", folder / "recipe.yaml", "--mesh", f"{mesh_of(arguments, model)},zero={zero}",
         "--target", target, "--cache", "off", "--to", "planning",
         "--dump-ir", folder / "ir", "-o", folder / "plan.mlir"], check=True)
    return folder / "plan.mlir"


def arguments_of(text, program):
    """(shape, attributes) of the program's arguments."""
    line = next(line for line in text.splitlines()
                if re.match(rf"\s*func.func @{program}\(", line))
    return re.findall(r"%arg\d+: tensor<([^>]+)> \{((?:[^{}]|\{[^{}]*\})*)\}",
                      line.split(") -> (")[0])


def tensors_of(text, roles):
    """The state of @train_step: (name, whole shape, local shape, of how many layers it
    is), by the partitioned module."""
    for shape, attributes in arguments_of(text, "train_step"):
        if not re.search(rf"role ({roles})", attributes):
            continue
        whole = re.search(r"global_shape = array<i64: ([^>]+)>", attributes)
        element = shape.split("x")[-1]
        yield (re.search(r'graph.state = "([^"]+)"', attributes)[1],
               whole[1].replace(", ", "x") + "x" + element if whole else shape, shape,
               int(m[1]) if (m := re.search(r"repeat_count = (\d+)", attributes)) else 1)


class Model:
    """The elements of a model's parameters, with experts divided over their axis."""

    def __init__(self, text, experts):
        self.parameters = [
            (name, size_of(whole)[0] // (experts if ".experts." in name else 1))
            for name, whole, _, _ in tensors_of(text, "parameter")]
        self.count = sum(size_of(whole)[0] * times for _, whole, _, times
                         in tensors_of(text, "parameter"))
        self.head = max(size for name, size in self.parameters if ".layers." not in name)
        layers = collections.Counter()
        for name, size in self.parameters:
            if layer := re.search(r"\.layers\.(\d+)\.", name):
                layers[layer[1]] += size
        self.layer = max(layers.values())


def live_buffers(plan, program):
    """(first step, last step, shape) of each buffer in the arena; the arena's bytes."""
    buffers, inside, arena = [], False, 0
    for line in plan.open():
        if started := re.match(r"\s*plan.program @(\S+) arena (\d+)", line):
            inside = started[1] == program
            arena = int(started[2]) if inside else arena
        elif inside and (buffer := re.search(
                r"plan.buffer\s+arena at \d+ lives \[(\d+), (\d+)\] : memref<([^>,]+)",
                line)):
            buffers.append((int(buffer[1]), int(buffer[2]), buffer[3]))
    return buffers, arena


def peak(buffers):
    """Most bytes that are alive at one step."""
    change = collections.Counter()
    for first, last, shape in buffers:
        change[first] += bytes_of(shape)
        change[last + 1] -= bytes_of(shape)
    return max(itertools.accumulate(change[step] for step in sorted(change)), default=0)


def state_bytes(text):
    """Bytes of parameters and optimizer state of one rank."""
    return sum(bytes_of(local) * times for _, _, local, times
               in tensors_of(text, "parameter|optimizer"))


def partitioned(folder):
    return sorted((folder / "ir").glob("04-partition*.mlir"))[0].read_text()


def ranks_of(mesh):
    return math.prod(int(axis.split("=")[1]) for axis in mesh.split(","))


def zero3(arguments, model, recipe, target):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = compile_plan(arguments, model, 3, recipe, target, folder)
        text = partitioned(folder)
        buffers, arena = live_buffers(plan, "train_step")
    whole = Model(text, int(dict(re.findall(r"(\w+)=(\d+)", MESHES[model]))
                            .get("expert", 1)))
    # A tensor with as many elements as a parameter, or as a shard of one, is one of
    # its copies or gradients. Others are activations.
    weights = {size for _, size in whole.parameters} | {
        size_of(shape)[0] for _, *shapes, _ in tensors_of(text, "parameter")
        for shape in shapes}
    activations = peak([b for b in buffers if size_of(b[2])[0] not in weights])
    width = 2 if recipe["compute"] == "bf16" else 4
    # Shards: gradients in f32, and with bf16 the converted weights.
    shards = state_bytes(text) // 12 * (6 if width == 2 else 4)
    parts = [activations, 2 * whole.layer * width, whole.head * (width + 4), shards]
    cells = [model, recipe["compute"], recipe["accumulate"], recipe["recompute"],
             target, *(f"{part / 1e9:.2f}" for part in [*parts, arena])]
    print(f"| {' | '.join(cells)} | {arena / sum(parts):.2f} |", flush=True)
    return arena <= sum(parts)


def states(arguments, model, zero):
    recipe = {"compute": "bf16", "recompute": "none", "accumulate": 4}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = compile_plan(arguments, model, zero, recipe, "cpu", folder)
        text = partitioned(folder)
        _, arena = live_buffers(plan, "train_step")
    held = state_bytes(text) / Model(text, 1).count
    due = 12 * arguments.replicate / ranks_of(MESHES[model])
    print(f"| {model} | {zero} | {held:.4f} | {due:.4f} | {held / due:.3f} | "
          f"{arena / 1e9:.2f} |", flush=True)
    return abs(held / due - 1) <= 0.01


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build/bin")
    parser.add_argument("--model", action="append", choices=list(MESHES))
    parser.add_argument("--replicate", type=int, default=1,
                        help="replicas, each of which shards all state over its ranks")
    for key, values in RECIPES.items():
        parser.add_argument(f"--{key}", action="append", choices=values)
    parser.add_argument("--target", action="append",
                        choices=["cpu", "cuda:sm_90a", "cuda:sm_80"])
    arguments = parser.parse_args()
    models = arguments.model or list(MESHES)
    print("Bytes of state per parameter, bf16 (masters and moments; due 12 / ranks of a "
          "replica)\n\n"
          "| model | zero | state | due | ratio | arena GB |\n|---|---|---|---|---|---|")
    misses = sum(not states(arguments, model, zero)
                 for model, zero in itertools.product(models, (1, 2)))
    print("\nArena with zero=3 in GB, next to what is due: activations, two layers, the "
          "head with its gradient, and this rank's shards\n\n| model | compute | "
          "accumulate | recompute | target | activations | 2 layers | head | shards | "
          "arena | arena / due |\n|---|---|---|---|---|---|---|---|---|---|---|")
    recipes = [getattr(arguments, key) or values for key, values in RECIPES.items()]
    for model, target, *recipe in itertools.product(
            models, arguments.target or ["cpu", "cuda:sm_90a"], *recipes):
        misses += not zero3(arguments, model, dict(zip(RECIPES, recipe)), target)
    print(f"\n{misses} above what is due")
    return misses > 0


if __name__ == "__main__":
    sys.exit(main())
