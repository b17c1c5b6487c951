"""Faults of a training of a small mixture of experts on the demo's corpus, by four
ranks: who is killed, stopped or calls something else is named in time, nobody is
left behind, and the run goes on from its checkpoint on other meshes, with the
losses of a run that nothing disturbed.

    ranks_faults.py BIN SCRATCH MPIRUN
"""
import os
import pathlib
import shutil
import re
import signal
import subprocess
import sys
import time

import harness
from harness import check, metrics, run
from processes import ranks_of

STEPS = 24
SAVED_EVERY = 4
PATIENCE = 4  # seconds that ranks wait for one another
# What one process may take from a fault to its end, on a busy machine.
DEADLINE = PATIENCE + 60
# Sums in another order, for as many steps.
ROUNDING = 2e-4


class Launcher:
    def __init__(self, mpirun):
        self.mpich = "mpich" in mpirun
        # Open MPI ends the others when a rank dies; they have this long to say
        # what they know. MPICH kills them at once.
        self.command = ([mpirun] if self.mpich else
                        [mpirun, "--allow-run-as-root", "--oversubscribe",
                         "--mca", "odls_base_sigkill_timeout", "5"])
        os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"

    def start(self, *ranks):
        """Ranks as (number, program, arguments…), in this order."""
        words = list(self.command)
        for i, (number, *program) in enumerate(ranks):
            words += [":"] if i else []
            words += ["-n", number, *program]
        return subprocess.Popen([str(word) for word in words],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, start_new_session=True)


def require(condition, what, errors):
    """As check, with what the ranks said."""
    check(condition, what if condition else f"{what}\n{errors[-3000:]}")


def end(process, what):
    """Exit code and errors; whoever does not end is killed, and that is a
    failure."""
    started = time.monotonic()
    try:
        _, errors = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        sys.exit(f"FAILED: {what}: ranks hang\n{errors[-3000:]}")
    print(f"{what}: ended in {time.monotonic() - started:.0f} s, "
          f"exit code {process.returncode}", flush=True)
    return process.returncode, errors


class Faults:
    def __init__(self, binaries, scratch, tokens, mpirun):
        self.binaries = pathlib.Path(binaries)
        self.scratch = pathlib.Path(scratch)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        os.environ.setdefault("XDG_CACHE_HOME", str(self.scratch / "cache"))
        self.launcher = Launcher(mpirun)
        self.tokens = tokens

    def compile(self, name, mesh, *sets):
        program = self.scratch / name
        run(self.binaries / "tessera", "compile",
            harness.SOURCE / "models/specs/tiny-mixtral", "--recipe",
            harness.SOURCE / "recipes/tiny-mixtral.yaml", "--target",
            "cpu:avx2", "--set", "batch.micro=4", "--set", "batch.sequence=32",
            *(word for each in sets for word in ("--set", each)),
            *(["--mesh", mesh] if mesh else []), "-o", program)
        return program

    def arguments(self, out, steps=STEPS):
        return ("--data", self.tokens, "--out", out, "--steps", steps,
                "--checkpoint-every", SAVED_EVERY, "--eval-every", 0,
                "--threads", 1, "--timeout", PATIENCE, "--quiet")

    def disturbed(self, name, program, number, at, steps=100000):
        """Rank 2 gets a signal once `at` steps are done."""
        out = self.scratch / name
        process = self.launcher.start((4, program, *self.arguments(out, steps)))
        file, until = out / "metrics.jsonl", time.monotonic() + 120
        while not file.exists() or len(metrics_so_far(file)) < at:
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"FAILED: {name}: no step {at}\n"
                         f"{end(process, name)[1]}")
            time.sleep(0.02)
        victim = ranks_of(process.pid)[2]
        os.kill(victim, number)
        code, errors = end(process, name)
        if number == signal.SIGSTOP and pathlib.Path(f"/proc/{victim}").exists():
            os.kill(victim, signal.SIGKILL)
        return out, code, errors


def metrics_so_far(file):
    return file.read_text().split("\n")[:-1]


def losses(out):
    return {record["step"]: record["loss"] for record in metrics(out)
            if "loss" in record}


def largest_gap(one, other, first):
    """The largest difference of losses from a step on."""
    return max(abs(one[step] - other[step]) for step in range(first, STEPS + 1))


def main():
    binaries, scratch, mpirun = sys.argv[1:4]
    shared = pathlib.Path(scratch).parent / "demo"
    tokens = shared / "tokens"
    if not tokens.exists():
        shared.mkdir(parents=True)
        harness.make_demo_tokens(pathlib.Path(binaries), shared)
    faults = Faults(binaries, scratch, tokens, mpirun)
    four = faults.compile("four", "data=2,tensor=2")
    two = faults.compile("two", "data=2")
    one = faults.compile("one", "")
    # Rank 2's microbatches are half as many: its sums are of other numbers.
    other = faults.compile("other", "tensor=2,data=2", "batch.accumulate=2")

    whole = faults.scratch / "whole"
    process = faults.launcher.start((4, four, *faults.arguments(whole)))
    code, errors = end(process, "undisturbed")
    require(code == 0, "undisturbed: exit code 0", errors)
    expected = losses(whole)

    # What is wrong is said, not only that a rank ended.
    again = faults.arguments(whole)
    process = faults.launcher.start((4, four, *again))
    code, errors = end(process, "a directory that holds a run")
    require(code != 0 and re.search("error: rank [0-3]: .*--resume", errors),
            "a directory that holds a run: refused with the reason", errors)

    process = faults.launcher.start(
        (4, four, *faults.arguments(faults.scratch / "diverged"), "--set", "optimizer.lr=1e6"))
    code, errors = end(process, "a loss that is not finite")
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    require(code == 1 and len(lines) == 1 and "nothing was saved" in lines[0],
            f"a loss that is not finite: one line, {lines}", errors)

    killed, code, errors = faults.disturbed("killed", four, signal.SIGKILL, 9)
    require(code != 0 and (faults.launcher.mpich or "rank 2" in errors),
            f"killed: {'all end' if faults.launcher.mpich else 'named'}", errors)
    # The same start for all: the first step that is kept.
    first, *later = harness.checkpoints(killed)
    for folder in later:
        shutil.rmtree(killed / folder)
    first = int(first[5:])
    check(first < STEPS, f"killed: saved at step {first}")
    for name, ranks, program in (("two", 2, two), ("one", 1, one)):
        out = faults.scratch / f"resumed-{name}"
        shutil.copytree(killed, out)
        process = faults.launcher.start(
            (ranks, program, *faults.arguments(out), "--resume"))
        code, errors = end(process, f"resumed on {name}")
        require(code == 0, f"resumed on {name}: exit code 0", errors)
        gap = largest_gap(losses(out), expected, first + 1)
        check(gap <= ROUNDING, f"resumed on {name}: losses of steps "
              f"{first + 1} to {STEPS} differ by {gap:.1e}")

    _, code, errors = faults.disturbed("stopped", four, signal.SIGSTOP, 5)
    require(code == 70 and "rank 2 does not answer" in errors
            and "of group {" in errors, f"stopped: named, exit code {code}",
            errors)

    out = faults.scratch / "other-program"
    arguments = faults.arguments(out)
    process = faults.launcher.start((2, four, *arguments),
                                    (1, other, *arguments),
                                    (1, four, *arguments))
    code, errors = end(process, "another program")
    # Whoever comes second to the call says so: one of the others, or rank 2.
    require(code == 70 and re.search("rank (2 calls|. calls .*, rank 2) ", errors)
            and "every member has to make the same calls" in errors,
            f"another program: named, exit code {code}", errors)

    polite, code, errors = faults.disturbed("asked", four, signal.SIGTERM, 5)
    require(code == 0, f"SIGTERM of one rank: exit code {code}", errors)
    last = metrics(polite)[-1]["step"]
    check(f"step-{last:06}" in harness.checkpoints(polite),
          f"SIGTERM of one rank: all end after step {last}, which is saved")


main()
