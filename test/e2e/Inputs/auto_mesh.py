"""--mesh auto: the chosen mesh is said with a reason, compiles, and trains on
that many MPI ranks as one rank does; worlds that no mesh has are refused.

    auto_mesh.py BIN SCRATCH MPIRUN
"""
import re
import sys

import harness
from pipelines import Pipelines, close

SETS = ["batch.micro=2", "batch.accumulate=4", "batch.sequence=16",
        "eval.every=0", "checkpoint.every=0"]


def choose(run, spec, world, *words):
    """The executable, the mesh and the lines that said so."""
    program = run.scratch / f"{spec.name}-auto-{world}"
    sets = [word for each in SETS for word in ("--set", each)]
    said = harness.run(run.binaries / "tessera", "compile", spec, "--target",
        "cpu:avx2", *sets, *words, "--world", world, "-o", program).stderr
    found = re.match(r"tessera: mesh (\S+): .* a step by the cost model", said)
    if not found:
        sys.exit(f"FAILED: no mesh was said:\n{said}")
    lines = said.splitlines()
    print("\n".join(lines), flush=True)
    return program, found[1], lines


def axes(mesh):
    return {name: int(size) for name, size in
            (part.split("=") for part in mesh.split(",")
             if not part.startswith("schedule="))}


def product(mesh):
    devices = 1
    for name, size in axes(mesh).items():
        devices *= size if name not in ("zero", "chunks") else 1
    return devices


def main():
    run = Pipelines(*sys.argv[1:4], SETS)
    dense = run.spec("tiny-gpt2", n_layer=4, n_embd=48, vocab_size=403)
    experts = run.spec("tiny-mixtral", num_hidden_layers=2)
    for what, spec, world, words in [
            ("a dense model on 4 ranks", dense, 4, ["--mesh", "auto"]),
            ("experts on 8 ranks", experts, 8, [])]:
        one = run.train(run.compile(spec, ""), 1, run.scratch / f"run-{spec.name}-one", 2)
        program, mesh, lines = choose(run, spec, world, *words)
        good = product(mesh) == world and all(
            product(line.split(":")[0].strip()) == world for line in lines[1:-1])
        many = run.train(program, world, run.scratch / f"run-{spec.name}-many", 2)
        harness.check(good and close(one, many), what)
    said = harness.run(run.binaries / "tessera", "inspect", program).stdout
    harness.check(f"--mesh {mesh} " in said, "an executable says its mesh")

    def refuse(what, *words, parts):
        harness.refuses(what, *parts)(run.binaries / "tessera", "compile", dense,
            *[word for each in SETS for word in ("--set", each)], *words,
            "-o", run.scratch / "refused")
    refuse("no world", "--mesh", "auto", parts=["requires the number of devices"])
    refuse("a world of nothing", "--world", 0, parts=["--world"])
    refuse("seven of an awkward model", "--world", 7,
           parts=["--world 7", "4 layers", "batch.micro 2"])
    # A line for each program that does not fit, then the error.
    done = harness.run(run.binaries / "tessera", "compile", dense,
        *[word for each in SETS for word in ("--set", each)], "--world", 4,
        "--device-memory", "1MB", "-o", run.scratch / "refused", code=1)
    *tried, error = done.stderr.splitlines()
    harness.check(tried and all(line.endswith(": does not fit") for line in tried)
        and "no mesh fits" in error and "--device-memory" in error, "too little memory")
    refuse("memory without unit", "--world", 4, "--device-memory", "12",
           parts=["--device-memory"])
    refuse("GPUs that nobody described", "--world", 4, "--target", "cuda:sm_80",
           parts=["--cluster"])
    refuse("memory of a mesh with names", "--mesh", "data=2", "--device-memory",
           "1GiB", parts=["requires --mesh auto"])


main()
