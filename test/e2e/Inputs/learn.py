"""Compiles a spec, trains it on made-up text and generates from it."""
import math
import sys

from harness import Prepared, check, checkpoints, metrics, run


def main():
    made = Prepared(*sys.argv[1:3])
    tokens, train = made.tokens(), made.executable("fp32")
    out = made.scratch / "run"
    text = run(train, "--data", tokens, "--out", out, "--steps", 60,
               "--set", "lr_schedule.total=60", "--set", "lr_schedule.warmup=5",
               "--eval-every", 30, "--checkpoint-every", 30).stderr
    for part in ("planned peak memory:", "loss to beat: ln V = 8.31",
                 "unigram entropy", "step 60/60", "held-out loss",
                 "peak memory:"):
        check(part in text, f"the progress says '{part}'")

    records = metrics(out)
    losses = [r["loss"] for r in records if r.get("loss") is not None]
    held_out = [r["eval_loss"] for r in records
                if r.get("eval_loss") is not None]
    check(len(losses) == 60, "60 steps are recorded")
    check(abs(losses[0] - math.log(4096)) < 0.3,
          f"the first loss {losses[0]:.3f} is near ln V")
    check(losses[-1] < 3.0, f"the last loss {losses[-1]:.3f} is below 3")
    check(len(held_out) == 3 and held_out[-1] < held_out[0] / 2,
          f"the held-out loss falls: {held_out}")
    check(all(math.isfinite(r["grad_norm"]) for r in records
              if r.get("loss") is not None), "gradient norms are finite")
    check(checkpoints(out) == ["step-000030", "step-000060"], "checkpoints")

    def generate(*more):
        return run(made.tessera, "generate", out, "--prompt", "The command",
                   "--max-tokens", 24, "--quiet", *more).stdout
    once = generate("--temperature", 0)
    check(once.startswith("The command") and len(once) > 30, repr(once))
    words = "reads writes opens removes"
    check(any(w in once for w in words.split()), "the text shows it")
    check(once == generate("--temperature", 0), "greedy text is the same again")
    check(generate("--seed", 1) == generate("--seed", 1),
          "a seed gives its text again")
    check(len({generate("--seed", s, "--temperature", 1.5)
               for s in range(4)}) > 1, "seeds give different texts")


main()
