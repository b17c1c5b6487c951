"""tessera rl whose learner is on MPI ranks, against one process: the same completions, the same
losses to rounding, and resumed after kill -9 with the same bits.

    rl_ranks.py BIN SCRATCH MPIRUN
"""
import collections
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import harness
from processes import ranks_of
from random_models import mpirun
from rl import MATCH, Runs, steps_of

REWARD = f"{sys.executable} {MATCH}"
STEPS = 6


class RankRuns(Runs):
    launcher = None

    def command(self, out, steps, reward, *more, sets=(), mesh=None, ranks=2):
        words = super().command(out, steps, reward, *more, sets=sets)
        if mesh is None:
            return words
        return [str(word) for word in mpirun(self.launcher, ranks)] + [*words, "--mesh", mesh]


def numbers(line):
    """Loss, gradient norm and rate of a line of --dump-metrics."""
    return [float.fromhex(word) for word in re.findall(r"-?0x[0-9a-f.]+p[+-]\d+", line)]


def largest_gap(line, other):
    return max(abs(a - b) / max(abs(b), 1e-3)
               for a, b in zip(numbers(line), numbers(other), strict=True))


def check_same(runs, alone, mesh, bound):
    out = mesh.replace(",", "-")
    lines = runs.run(out, STEPS, REWARD, mesh=mesh)
    ranks = json.loads((runs.scratch / out / "memory.json").read_text())["ranks"]
    harness.check(len(lines) == STEPS and len(ranks) == 2,
                  f"{mesh}: rank 0 prints a line for each step of two ranks")
    # Later steps may have other completions: a probability of other bits may choose another token.
    gap = largest_gap(lines[0], alone[0])
    harness.check(gap <= bound, f"{mesh}: the first step is that of one process to {gap:.1e}")
    first, whole = runs.groups(out)[:4], runs.groups("alone")[:4]
    harness.check([group["samples"] for group in first] == [group["samples"] for group in whole],
                  f"{mesh}: its completions are those of one process")
    policies = [record["policy"] for record in harness.metrics(runs.scratch / out)]
    harness.check(max(abs(policy["ratio"] - 1) for policy in policies) < 1e-4 and
                  max(abs(policy["kl"]) for policy in policies) < 1e-6,
                  f"{mesh}: the model that samples has the weights of all ranks")
    return lines, policies


def check_values(runs):
    """PPO: rank 0 has the values of all ranks before the first step of a batch, of two."""
    sets = ["policy.advantages=gae", "policy.aggregate=token", "rollout.baseline=none",
            "rollout.scale=none", "rollout.epochs=2", "optimizer.lr=1e-3"]
    alone = runs.run("values", 4, REWARD, sets=sets)
    for mesh, bound in (("data=2", 1e-5), ("pipe=2", 1e-4), ("context=2", 1e-4)):
        out = f"values-{mesh}"
        lines = runs.run(out, 4, REWARD, mesh=mesh, sets=sets)
        gap = max(largest_gap(lines[i], alone[i]) for i in range(2))
        values = [harness.metrics(runs.scratch / name)[1]["policy"]["value_error"]
                  for name in (out, "values")]
        harness.check(gap <= bound and abs(values[0] - values[1]) <= bound,
                      f"PPO on {mesh}: the first batch's steps are those of one process to {gap:.1e}")


def check_kill(runs, whole):
    """Rank 0 is killed, and mpirun ends the others."""
    reward = runs.killer(200)
    done = subprocess.run([*runs.command("killed", STEPS, reward, mesh="data=2"), "--quiet",
                           "--dump-metrics"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    harness.check(done.returncode != 0, "data=2: the run was killed")
    before = steps_of(line for line in done.stdout.splitlines() if line.startswith("step "))
    shutil.copytree(runs.scratch / "killed", runs.scratch / "killed-alone")
    after = steps_of(runs.run("killed", STEPS, reward, "--resume", mesh="data=2"))
    steps = before | after
    harness.check([steps[i + 1] for i in range(STEPS)] == whole,
                  "data=2: resumed with the bits of a run that was not")
    counts = collections.Counter(group["group"] for group in runs.groups("killed"))
    harness.check(sorted(counts) == list(range(4 * STEPS)) and max(counts.values()) == 1,
                  "data=2: every group once in the journal")
    runs.run("killed-alone", STEPS, reward, "--resume")
    harness.check(harness.metrics(runs.scratch / "killed-alone")[-1]["step"] == STEPS,
                  "and one process resumes the run of two")


def check_variants(runs):
    runs.run("adapter", STEPS, REWARD, mesh="tensor=2",
             sets=["adapter.kind=lora", "adapter.rank=4", "optimizer.lr=2e-2",
                   "policy.kl.beta=0.05"])
    policies = [record["policy"] for record in harness.metrics(runs.scratch / "adapter")]
    harness.check(max(abs(policy["ratio"] - 1) for policy in policies) < 1e-3,
                  "LoRA on tensor=2: the model that samples has the adapter")
    distances = [policy["kl_reference"] for policy in policies]
    harness.check(abs(distances[0]) < 1e-6 and distances[-1] > 1e-4,
                  "LoRA on tensor=2: the distance to the reference model grows from 0")
    runs.run("stale", STEPS, REWARD, "--eval-prompts", runs.prompts, mesh="data=2,zero=1",
             sets=["rollout.staleness=2", "eval.every=3"])
    records = harness.metrics(runs.scratch / "stale")
    late = [group["group"] // 4 - version for group in runs.groups("stale")
            for sample in group["samples"] for version in sample["versions"]]
    harness.check(min(late) >= 0 and max(late) <= 2 and
                  [record["step"] for record in records if "eval_reward" in record["rollout"]]
                  == [3, 6], "asynchronous on data=2,zero=1, with held-out prompts")
    runs.run("slow", 2, slow_reward(runs, 9), "--rank-timeout", 4, mesh="data=2")
    harness.check(harness.metrics(runs.scratch / "slow")[-1]["step"] == 2,
                  "rewards may take longer than --rank-timeout")


def slow_reward(runs, seconds):
    """One answer takes long."""
    path = runs.scratch / f"slow-{seconds}.py"
    path.write_text("import sys, time\nfor number, line in enumerate(sys.stdin):\n"
                    f"    time.sleep({seconds} if number == 60 else 0)\n"
                    "    print(0.5 * (number % 2), flush=True)\n")
    return f"exec {sys.executable} {path}"


def check_workers(runs, whole):
    """Engines in processes of their own, and mini-batches."""
    lines = runs.run("workers", STEPS, REWARD, "--rollout-workers", 2, mesh="data=2")
    harness.check(lines == whole, "data=2, two rollout workers: the bits of a run without")
    keys = ["rollout.epochs=2", "rollout.minibatches=2"]
    runs.run("epochs", 8, REWARD, mesh="data=2", sets=keys)
    harness.check(len(runs.groups("epochs")) == 8, "data=2, four steps of a batch: two batches")
    runs.run("epochs", 8, REWARD, "--resume", mesh="data=2", sets=keys)


def check_stop(runs):
    """A signal to the rank that does not sample, in the midst of the second step."""
    command = [*runs.command("stopped", STEPS, slow_reward(runs, 5), mesh="data=2"), "--quiet"]
    launcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    file, deadline = runs.scratch / "stopped/metrics.jsonl", time.monotonic() + 100
    while not (file.exists() and file.read_text().count("\n")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(ranks_of(launcher.pid)[1], signal.SIGTERM)
    _, errors = launcher.communicate(timeout=100)
    last = harness.metrics(runs.scratch / "stopped")[-1]["step"]
    good = (launcher.returncode == 0 and last < STEPS and
            f"step-{last:06}" in harness.checkpoints(runs.scratch / "stopped"))
    harness.check(good, f"SIGTERM of rank 1: all end after step {last}, which is saved"
                  if good else f"SIGTERM of rank 1: step {last}\n{errors[-3000:]}")


def refuses(runs, what, *parts, out="refused", steps=2, reward=REWARD, more=(), **options):
    """As harness.refuses: of all that ranks and mpirun print one line is of tessera's."""
    done = harness.run(*runs.command(out, steps, reward, *more, **options), "--quiet", code=None)
    lines = [line for line in done.stderr.splitlines() if line.startswith("tessera: ")]
    good = done.returncode == 1 and len(lines) == 1 and all(part in lines[0] for part in parts)
    if not good:
        sys.exit(f"FAILED: {what}: exit code {done.returncode}, got\n{done.stderr[-3000:]}")
    print(f"ok: {what}: {lines[0]}", flush=True)
    shutil.rmtree(runs.scratch / "refused", ignore_errors=True)


def check_errors(runs):
    refuses(runs, "a program that ends", "exited with code 3 without an answer",
            reward="read -r line; exit 3", mesh="data=2")
    refuses(runs, "a gate that is missed", "eval_reward", mesh="data=2",
            more=["--eval-prompts", runs.prompts],
            sets=["eval.every=1", "gates.require=[eval_reward >= 2]"])
    refuses(runs, "weights that are NaN", "a logit is nan",
            steps=6, mesh="data=2", sets=["optimizer.lr=1e6"])
    with open(runs.scratch / "data=2/.lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refuses(runs, "a run that another process makes", "another process", out="data=2",
                mesh="data=2", more=["--resume"])
    refuses(runs, "a run that is there", "already holds step-", out="alone", mesh="data=2")
    done = harness.run(*runs.command("refused", 2, REWARD, mesh="data=4"), "--quiet", code=None)
    harness.check(done.returncode == 1 and
                  "--mesh data=4 is for 4 ranks and 2 were started" in done.stderr,
                  "a mesh of other ranks is refused")
    words = super(RankRuns, runs).command("refused", 2, REWARD)
    done = harness.run(*mpirun(runs.launcher, 2), *words, "--quiet", code=None)
    harness.check(done.returncode == 1 and "2 ranks were started; name their mesh" in done.stderr,
                  "two ranks without a mesh are refused")


def main():
    runs = RankRuns(*sys.argv[1:3])
    runs.launcher = sys.argv[3]
    alone = runs.run("alone", STEPS, REWARD)
    lines, policies = check_same(runs, alone, "data=2", 1e-5)
    harness.check(all(policy["mismatch"] == 0 for policy in policies),
                  "data=2: log-probabilities have the bits with which tokens were sampled")
    check_same(runs, alone, "tensor=2", 1e-4)
    check_same(runs, alone, "pipe=2", 1e-4)
    check_values(runs)
    check_kill(runs, lines)
    check_variants(runs)
    check_workers(runs, lines)
    check_stop(runs)
    check_errors(runs)


if __name__ == "__main__":
    main()
