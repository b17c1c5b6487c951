"""Replicas of real MPI ranks (hybrid sharding): losses and norms of some steps are
those of one rank, with dropout and clipping; bytes go where they should; and a run
goes on, on meshes with replicas and without.

    replicas.py BIN SCRATCH MPIRUN
"""
import re
import sys

import harness
from pipelines import Pipelines, close

SETS = ["batch.micro=4", "batch.accumulate=3", "batch.sequence=16",
        "dropout.rate=0.1", "optimizer.clip=0.5", "eval.every=2",
        "eval.batches=1", "checkpoint.every=2"]
RANKS = {"replicate=2,data=2,zero=1": 4, "replicate=2,data=2,zero=2": 4,
         "replicate=2,data=2,zero=3": 4, "replicate=2,data=1,tensor=2": 4, "data=2": 2}


def collectives(run, program):
    """Of a training step: how often, and which over what."""
    listed = harness.run(run.binaries / "tessera", "inspect", program, "--mesh").stdout
    step = listed[listed.index("train_step:"):]
    step = step[:step.find("\n\n")] if "\n\n" in step else step
    return [(int(runs), kind, axes) for runs, kind, axes in re.findall(
        r"^ +(\d+) +[\d.e-]+ +[\d.e-]+  (\w+)[^\n]*? over ([a-z, ]+) \(", step, re.M)]


def main():
    run = Pipelines(*sys.argv[1:4], sets=SETS)
    spec = run.spec("llama-15m", num_hidden_layers=2, hidden_size=48,
        intermediate_size=96, vocab_size=403)
    one = run.train(run.compile(spec, ""), 1, run.scratch / "one", 4)
    programs = {mesh: run.compile(spec, mesh) for mesh in RANKS}
    for mesh, ranks in list(RANKS.items())[:4]:
        out = run.scratch / f"run-{programs[mesh].name}"
        harness.check(close(one, run.train(programs[mesh], ranks, out, 4)),
                      f"{mesh} trains as one rank")

    mesh = "replicate=2,data=2,zero=3"
    sent = collectives(run, programs[mesh])
    harness.check({axes for _, kind, axes in sent if kind in ("all_gather", "reduce_scatter")}
                  == {"data"}, f"{mesh} gathers and scatters inside a replica")
    across = [(runs, axes) for runs, _, axes in sent if "replicate" in axes]
    harness.check("replicate" in [axes for _, axes in across]
                  and all(runs == 1 for runs, _ in across),
                  f"{mesh} sums over replicas once a step")

    for first, second in [("replicate=2,data=2,zero=1", "data=2"),
                          ("data=2", "replicate=2,data=2,zero=1")]:
        out = run.scratch / f"from-{programs[first].name}"
        run.train(programs[first], RANKS[first], out, 2)
        moved = run.train(programs[second], RANKS[second], out, 4, "--resume")
        harness.check(close((one[0],), (moved[0],)),
                      f"a run that moves from {first} to {second} is one run")


if __name__ == "__main__":
    main()
