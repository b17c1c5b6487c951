"""Learning from sampled answers: steps on a batch with behavior and advantages,
on meshes, and what is refused.

    policy.py BIN CHECK SCRATCH MPIRUN

CHECK is step-check, which makes the batch."""
import pathlib
import sys

import harness
from pipelines import Pipelines

SETS = ["batch.micro=4", "batch.accumulate=2", "batch.sequence=64",
        "data.documents=separate", "optimizer.lr=2e-3", "task=policy",
        "policy.documents=4"]
LOSSES = {
    "grpo": ["policy.kl.beta=0.1"],
    "dapo": ["policy.aggregate=token", "policy.clip_high=0.28"],
    "gspo": ["policy.ratio=sequence", "policy.aggregate=constant",
             "policy.length=20"],
    "ppo": ["policy.advantages=gae", "policy.aggregate=token", "policy.kl.beta=0.1",
            "policy.kl.estimator=k1", "policy.value.weight=0.5", "rollout.baseline=none",
            "rollout.scale=none"],
}


def steps(run, check, program, ranks, count=4):
    """The numbers of each step: loss, norm, tokens, metrics."""
    start = [run.mpirun, "--allow-run-as-root", "--oversubscribe", "--mca",
             "orte_allowed_exit_without_sync", "1", "-n", ranks]
    printed = harness.run(*(start if ranks > 1 else []), check, program, count).stdout
    return [[float(x) for x in line.split()] for line in printed.splitlines()]


def same(one, other, most):
    """Metrics are fp32 in any precision."""
    def near(x, y, bound):
        return abs(x - y) <= bound * max(1.0, abs(x))
    return len(one) == len(other) and all(
        len(a) == len(b) and
        all(near(x, y, most) for x, y in zip(a[:3], b[:3])) and
        all(near(x, y, max(most, 1e-6)) for x, y in zip(a[3:], b[3:]))
        for a, b in zip(one, other))


def main():
    binaries, check, scratch, mpirun = sys.argv[1:]
    run = Pipelines(binaries, scratch, mpirun, sets=SETS)
    spec = run.spec("tiny-gpt2", n_layer=2)
    for name, sets in LOSSES.items():
        run.scratch = pathlib.Path(scratch) / name
        run.scratch.mkdir(exist_ok=True)
        program = run.compile(spec, "", sets)
        one = steps(run, check, program, 1)
        harness.check(one[-1][0] < one[0][0], f"{name} lowers its loss")
        first, last = one[0][3:], one[-1][3:]
        harness.check(first[0] > 0 and last[2] > first[2],
                      f"{name} clips ratios and leaves the behavior")
        exact = [*sets, "precision.compute=fp64"]
        wide = steps(run, check, run.compile(spec, "", exact), 1)
        harness.check(same(one, wide, 1e-4), f"{name} is that of fp64")
        for ranks, mesh in [(2, "data=2,zero=1"), (2, "tensor=2"),
                            (2, "context=2"), (2, "pipe=2")]:
            got = steps(run, check, run.compile(spec, mesh, exact), ranks)
            harness.check(same(wide, got, 1e-10), f"{name} on {mesh} as on one rank")
    harness.refuses("training on a folder", "tessera rl")(
        program, "--data", run.tokens, "--out", run.scratch / "refused", "--quiet")


if __name__ == "__main__":
    main()
