"""Separate documents in one row (data.documents): losses of some steps on meshes
are those of one rank, and not those of joined documents.

    documents.py BIN SCRATCH MPIRUN
"""
import sys

import harness
from pipelines import Pipelines, close

SETS = ["batch.micro=4", "batch.accumulate=2", "batch.sequence=64",
        "eval.every=2", "eval.batches=2"]


def main():
    joined = Pipelines(*sys.argv[1:4], sets=SETS)
    run = Pipelines(*sys.argv[1:4], sets=[*SETS, "data.documents=separate"])
    for name, fields in [("tiny-gpt2", {"n_layer": 2}),
                         ("tiny-mixtral", {"num_hidden_layers": 2})]:
        spec = run.spec(name, **fields)
        one = run.train(run.compile(spec, ""), 1, run.scratch / f"{name}-one",
                        4)
        other = joined.train(joined.compile(spec, "data=1"), 1,
                             run.scratch / f"{name}-joined", 4)
        harness.check(not close(one, other),
                      f"{name}: joined documents have other losses")
        for ranks, mesh in [(2, "context=2"), (2, "tensor=2"), (2, "pipe=2"),
                            (4, "data=2,context=2,zero=3")]:
            program = run.compile(spec, mesh)
            out = run.scratch / f"run-{name}-{program.name}"
            harness.check(close(one, run.train(program, ranks, out, 4)),
                          f"{name}: {mesh} trains as one rank")


if __name__ == "__main__":
    main()
