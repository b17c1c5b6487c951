"""Pipelines of real MPI ranks: losses of some steps are those of one rank, on
whatever mesh a run goes on; and what is refused.

    pipelines.py BIN SCRATCH MPIRUN
"""
import json
import os
import pathlib
import sys

import harness

SETS = ["batch.micro=2", "batch.accumulate=4", "batch.sequence=16",
        "eval.every=2", "eval.batches=5", "checkpoint.every=2"]

# Two stages of a rank, one microbatch after the other: a slow schedule, but one.
TABLE = """0F0,0F1,2F0,2F1,2B0,0B0,2B1,0B1,0F2,2F2,2B2,0B2,0F3,2F3,2B3,0B3
1F0,1F1,3F0,3B0,1B0,3F1,3B1,1B1,1F2,3F2,3B2,1B2,1F3,3F3,3B3,1B3
"""


class Pipelines:
    def __init__(self, binaries, scratch, mpirun, sets=SETS):
        self.sets = sets
        self.binaries, self.scratch = pathlib.Path(binaries), pathlib.Path(scratch)
        self.mpirun = mpirun
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("XDG_CACHE_HOME", str(self.scratch / "cache"))
        os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
        self.tokens = self.scratch / "data/tokens"
        if not self.tokens.exists():
            harness.make_tokens(self.binaries, self.scratch / "data")

    def spec(self, name, **changes):
        """A ready spec, with changes."""
        config = json.loads(
            (harness.SOURCE / f"models/specs/{name}/config.json").read_text())
        folder = self.scratch / "-".join([name, *map(str, changes.values())])
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        return folder

    def compile(self, spec, mesh, sets=()):
        program = self.scratch / f"{spec.name}-{mesh.replace('/', '-') or 'one'}"
        words = [word for each in [*self.sets, *sets] for word in ("--set", each)]
        harness.run(self.binaries / "tessera", "compile", spec, "--target",
            "cpu:avx2", *words, *(["--mesh", mesh] if mesh else []), "-o", program)
        return program

    def train(self, program, ranks, out, steps, *more):
        """Metrics of steps, and of evaluations."""
        start = [self.mpirun, "-n", ranks]
        if "mpich" not in self.mpirun:
            # As random_models.mpirun.
            start[1:1] = ["--allow-run-as-root", "--oversubscribe", "--mca",
                          "orte_allowed_exit_without_sync", "1"]
        harness.run(*(start if ranks > 1 else []), program, "--data", self.tokens,
            "--out", out, "--steps", steps, "--threads", 1, "--quiet", *more)
        lines = harness.metrics(out)
        return ([(line["loss"], line["grad_norm"]) for line in lines if "loss" in line],
                [line["eval_loss"] for line in lines if "eval_loss" in line])


def close(one, other):
    flat = lambda results: [x for part in results for y in part
                            for x in (y if isinstance(y, tuple) else (y,))]
    a, b = flat(one), flat(other)
    return len(a) == len(b) and all(
        abs(x - y) <= 2e-5 * max(1.0, abs(x)) for x, y in zip(a, b))


def main():
    run = Pipelines(*sys.argv[1:4])
    table = run.scratch / "table.csv"
    table.write_text(TABLE)
    five = run.spec("tiny-gpt2", n_layer=5, n_embd=48, vocab_size=403)
    one = run.train(run.compile(five, ""), 1, run.scratch / "one", 4)
    for ranks, mesh in [(2, "pipe=2"), (3, "pipe=3,schedule=gpipe"),
                        (2, "pipe=2,schedule=interleaved"),
                        (2, f"pipe=2,schedule={table}"),
                        (4, "pipe=2,data=2,zero=1"),
                        (3, "pipe=3,schedule=zb-h1"),
                        (2, "pipe=2,schedule=dualpipev")]:
        program = run.compile(five, mesh)
        results = run.train(program, ranks, run.scratch / f"run-{program.name}", 4)
        shown = mesh.replace(str(table), "FILE.csv")
        harness.check(close(one, results), f"{shown} trains as one rank")
        # Groups of four batches, the last one in part; and no gradient yet.
        if "data" not in mesh:
            harness.check(results[1][0] == one[1][0],
                          f"{shown} evaluates with the bits of one rank")

    # GPipe's schedule is written out, the others have a loop: the same bits.
    eight = ["batch.accumulate=8"]
    runs = [run.train(run.compile(five, f"pipe=2,schedule={name}", eight), 2,
                      run.scratch / f"eight-{name}", 3)
            for name in ["gpipe", "1f1b", "zb-h1"]]
    harness.check(all(each == runs[0] for each in runs),
                  "the loop of a steady state has the bits of a schedule written out")

    # On four ranks trips are shorter than what is in flight, and sums may begin
    # in the loop.
    deep = run.spec("tiny-gpt2", n_layer=8, n_embd=32)
    many = ["batch.accumulate=24", "batch.micro=1"]
    runs = [run.train(run.compile(deep, f"pipe=4,schedule={name}", many), 4,
                      run.scratch / f"many-{name}", 3)
            for name in ["gpipe", "interleaved", "zb-v"]]
    # With zb-v both ends of the model are on one rank, which adds in its order.
    harness.check(runs[0] == runs[1] and close(runs[0], runs[2]),
                  "loops with several trips in flight have the same bits")

    two, alone = run.spec("tiny-gpt2", n_layer=2, n_embd=48), ["batch.accumulate=1"]
    whole = run.train(run.compile(two, "", alone), 1, run.scratch / "alone", 2)
    parts = run.train(run.compile(two, "pipe=2", alone), 2, run.scratch / "parts", 2)
    harness.check(close(whole, parts), "a single microbatch on a pipeline")

    # Checkpoints are whole, whoever had their parts.
    whole = run.scratch / "moved"
    pipe, tensor = run.compile(five, "pipe=2"), run.compile(five, "tensor=2")
    run.train(pipe, 2, whole, 2)
    run.train(tensor, 2, whole, 3, "--resume")
    moved = run.train(pipe, 2, whole, 4, "--resume")
    harness.check(close((one[0],), (moved[0],)),
                  "a run that moves from pipe to tensor and back is one run")

    experts = run.spec("tiny-mixtral", num_hidden_layers=4, tie_word_embeddings=False)
    one = run.train(run.compile(experts, ""), 1, run.scratch / "experts-one", 2)
    # Every sum of an untied model is on one rank, in the order of microbatches.
    runs = []
    for name in ["1f1b", "dualpipev"]:
        out = run.scratch / f"experts-{name}"
        results = run.train(run.compile(experts, f"pipe=2,schedule={name}"), 2, out, 2)
        harness.check(close(one, results), f"experts on a pipeline, {name}")
        runs.append((results, (out / "step-000002/model.safetensors").read_bytes()))
    harness.check(runs[0] == runs[1],
                  "pairs of a forward and a backward have the bits of 1f1b")
    woven = run.compile(experts, "pipe=2,expert=2,schedule=dualpipev",
                        ["moe.dispatch=exchange"])
    harness.check(close(one, run.train(woven, 4, run.scratch / "experts-woven", 2)),
                  "exchanges of experts in pairs of a forward and a backward")

    def refuse(what, mesh, *parts, sets=()):
        words = [word for each in [*SETS, *sets] for word in ("--set", each)]
        harness.refuses(what, *parts)(run.binaries / "tessera", "compile", five,
            *words, "--mesh", mesh, "-o", run.scratch / "refused")
    refuse("more stages than blocks", "pipe=6", "the model has 5")
    refuse("parameters kept twice", "pipe=2,schedule=dualpipe", "two copies",
           "dualpipev")
    refuse("too few microbatches for pairs", "pipe=2,schedule=dualpipev",
           "do not fill 2 ranks", sets=["batch.accumulate=2"])
    refuse("an unknown schedule", "pipe=2,schedule=best", "best", "1f1b")
    refuse("a table for others", f"pipe=3,schedule={table}", "for 2 ranks")
    table.write_text("# tessera-schedule pass=forward\n0F0,0F1,0F2,0F3\n1F0,1F1,1F2,1F3\n")
    refuse("a table of forwards alone", f"pipe=2,schedule={table}",
           "has only forwards, but a step has backwards too")
    refuse("a missing table", "pipe=2,schedule=none.csv", "cannot read none.csv")
    refuse("a schedule of nothing", "data=2,schedule=1f1b", "require the axis pipe")


if __name__ == "__main__":
    main()
