"""Experts distributed over tensor ranks (expert_tensor=1): losses of some steps
are those of one rank, with other parallelism around them, and checkpoints are
those of any mesh.

    folded_experts.py BIN SCRATCH MPIRUN
"""
import sys

import harness
from pipelines import Pipelines, close

# Rows in rounds: a buffer has room for few more than the mean.
SETS = ["batch.micro=4", "batch.accumulate=2", "batch.sequence=16",
        "eval.every=2", "eval.batches=1", "checkpoint.every=1",
        "moe.dispatch=exchange", "moe.buffer=1.1"]


def main():
    run = Pipelines(*sys.argv[1:4], sets=SETS)
    experts = run.spec("tiny-mixtral", num_hidden_layers=2, hidden_size=48,
                       intermediate_size=40, vocab_size=403)
    one = run.train(run.compile(experts, ""), 1, run.scratch / "one", 4)
    for ranks, mesh in [(4, "expert=2,tensor=2,expert_tensor=1"),
                        (4, "data=2,tensor=2,zero=3,expert_tensor=1"),
                        (4, "pipe=2,tensor=2,expert_tensor=1"),
                        (4, "context=2,tensor=2,expert_context=1,expert_tensor=1"),
                        (2, "tensor=2,expert_tensor=1,collective_matmul=on")]:
        program = run.compile(experts, mesh)
        out = run.scratch / f"run-{program.name}"
        harness.check(close(one, run.train(program, ranks, out, 4)),
                      f"{mesh} trains as one rank")

    moved = run.scratch / "moved"
    folded = run.compile(experts, "expert=2,tensor=2,expert_tensor=1")
    sharded = run.compile(experts, "expert=2,tensor=2")
    run.train(folded, 4, moved, 2)
    run.train(sharded, 4, moved, 3, "--resume")
    steps, _ = run.train(folded, 4, moved, 4, "--resume")
    harness.check(close((one[0],), (steps,)),
                  "a run that leaves expert_tensor=1 and returns is one run")


if __name__ == "__main__":
    main()
