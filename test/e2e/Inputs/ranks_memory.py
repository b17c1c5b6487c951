"""What each of several ranks holds in memory is what it said before its first
step, to 3 %: of the kernel's own count, on meshes of every kind.

    ranks_memory.py BIN SCRATCH MPIRUN…
"""
import json
import os
import pathlib
import shutil
import sys

from harness import SOURCE, check, make_tokens, run

MESHES = (("tiny-gpt2", "data=2,zero=2", 2), ("tiny-gpt2", "tensor=2", 2),
          ("tiny-gpt2", "context=2,zero=3", 2), ("tiny-gpt2", "pipe=2", 2),
          ("tiny-mixtral", "data=2,tensor=2,zero=1", 4),
          ("tiny-mixtral", "expert=2,tensor=2", 4),
          ("tiny-mixtral", "expert=2,tensor=2,expert_tensor=1", 4))


def start(launcher, ranks):
    if "mpich" in launcher:
        return [launcher, "-n", ranks]
    return [launcher, "--allow-run-as-root", "--oversubscribe", "-n", ranks]


def main():
    os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
    binaries, scratch = map(pathlib.Path, sys.argv[1:3])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    tokens = make_tokens(binaries, scratch / "data")
    for spec, mesh, ranks in MESHES:
        program = scratch / "train"
        run(binaries / "tessera", "compile", SOURCE / "models/specs" / spec,
            "--recipe", SOURCE / f"recipes/{spec}.yaml", "--target", "cpu:avx2",
            "--set", "batch.accumulate=2", "--mesh", mesh, "-o", program)
        for launcher in sys.argv[3:]:
            out = scratch / "run"
            text = run(*start(launcher, ranks), program, "--data", tokens, "--out",
                out, "--steps", 4, "--checkpoint-every", 2, "--eval-every", 2,
                "--threads", 1).stderr
            held = json.loads((out / "memory.json").read_text())["ranks"]
            shutil.rmtree(out)
            check(len(held) == ranks, f"{spec} on {mesh}, {launcher}: of each rank")
            most = max(range(ranks), key=lambda rank: held[rank]["peak"])
            check(f"of {ranks} ranks, rank {most} held most" in text,
                  f"{spec} on {mesh}, {launcher}: rank {most} holds most")
            for rank, own in enumerate(held):
                said, peak = own["planned"] + own["outside"], own["peak"]
                check(abs(said - peak) < 0.03 * peak,
                      f"{spec} on {mesh}, {launcher}, rank {rank}: "
                      f"{said / 2**20:.2f} MiB were said, "
                      f"{peak / 2**20:.2f} MiB were held")


main()
