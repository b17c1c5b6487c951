"""Stop, kill and resume, with dropout, accumulation and bf16: the bits of the
last checkpoint are those of a run that nothing disturbed."""
import signal
import sys

from harness import (Blocked, Prepared, check, checkpoints, digest, metrics,
                     refuses, run)

STEPS = 200  # more than a page of records


def without_times(records):
    return [{k: r.get(k) for k in ("step", "loss", "grad_norm", "lr", "tokens",
                                   "eval_loss")} for r in records]


def main():
    made = Prepared(*sys.argv[1:3])
    tokens, train = made.tokens(), made.executable("dropout")
    scratch = made.scratch
    common = ("--data", tokens, "--steps", STEPS, "--checkpoint-every", 20,
              "--eval-every", 50)
    last = f"step-{STEPS:06}"

    whole = scratch / "whole"
    run(train, *common, "--out", whole, "--threads", 2)
    expected = digest(whole / last)

    one = scratch / "one-thread"
    run(train, *common, "--out", one, "--threads", 1)
    check(digest(one / last) == expected, "1 and 2 threads: the same bits")

    killed = scratch / "killed"
    training = Blocked(train, *common, "--out", killed)
    training.until(45)
    code, _ = training.send(signal.SIGKILL)
    check(code == -signal.SIGKILL, "killed while it trained")
    check(last not in checkpoints(killed), "before its last step")
    run(train, *common, "--out", killed, "--resume")
    check(digest(killed / last) == expected, "killed, resumed: the same bits")
    check(without_times(metrics(killed)) == without_times(metrics(whole)),
          "and the same metrics")

    stopped = scratch / "stopped"
    training = Blocked(train, *common, "--out", stopped)
    training.until(25)
    refuses("a second process in the same directory", "another process")(
        train, *common, "--out", stopped, "--resume", "--quiet")
    code, errors = training.send(signal.SIGTERM)
    check(code == 0, f"SIGTERM: exit code 0\n{errors}")
    steps = metrics(stopped)[-1]["step"]
    check(25 <= steps < STEPS, f"stopped after step {steps}")
    check(f"step-{steps:06}" in checkpoints(stopped), "with a checkpoint")
    training = Blocked(train, *common, "--out", stopped, "--resume")
    first = training.step()["step"]
    check(first == steps + 1, f"resumed at step {first}")
    code, errors = training.send(signal.SIGINT)
    check(code == 0, f"SIGINT: exit code 0\n{errors}")
    run(train, *common, "--out", stopped, "--resume")
    check(digest(stopped / last) == expected,
          "stopped twice, resumed twice: the same bits")

    # A damaged checkpoint is stepped over, not trained from.
    damaged = stopped / last / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    done = run(train, *common, "--out", stopped, "--resume")
    check(last in done.stderr, "the damaged checkpoint is named")
    check(digest(stopped / last) == expected, "and made again, bit for bit")


main()
