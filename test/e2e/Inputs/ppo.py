"""tessera rl with a value head: rewards rise and values are learned; several steps
learn from the same completions, and a run that ends between them resumes.

    ppo.py BIN SCRATCH
"""
import collections
import json
import re
import sys

import harness
from rl import MATCH, Runs, killed, steps_of

EPOCHS, BATCHES, PROMPTS = 3, 30, 48
PPO = [f"rollout.prompts={PROMPTS}", "rollout.group=1",
       "policy.advantages=gae", "policy.aggregate=token", "rollout.baseline=none",
       "rollout.scale=none", f"rollout.epochs={EPOCHS}", "policy.value.weight=0.5",
       "policy.kl.beta=0.01", "policy.kl.estimator=k1", "optimizer.lr=1e-3",
       "checkpoint.every=2"]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def check_learning(runs):
    steps = BATCHES * EPOCHS
    lines = runs.run("learned", steps, f"{sys.executable} {MATCH}", "--eval-prompts",
                     runs.prompts, sets=[*PPO, f"eval.every={BATCHES // 2 * EPOCHS}"])
    harness.check(len(lines) == steps, "a line of metrics for each step")
    records = harness.metrics(runs.scratch / "learned")
    rewards = [record["rollout"]["reward"] for record in records]
    first, last = mean(rewards[:3 * EPOCHS]), mean(rewards[-6 * EPOCHS:])
    harness.check(first < 0.4 and last > first + 0.3,
                  f"rewards rise from {first:.3f} to {last:.3f}")
    held = [record["step"] for record in records if "eval_reward" in record["rollout"]]
    harness.check(held == [steps // 2, steps], "held-out prompts are completed")
    policies = [record["policy"] for record in records]
    values, returns = ([mean(policy[name] for policy in part) for part in (
        policies[:EPOCHS], policies[-6 * EPOCHS:])] for name in ("value", "return"))
    harness.check(abs(values[0]) < 0.2 and returns[1] > 0.6 and
                  abs(values[1] - returns[1]) < 0.15,
                  f"values follow returns: {values[1]:.2f} of {returns[1]:.2f}")
    apart = [abs(policy["ratio"] - 1) + policy["kl"] for policy in policies]
    harness.check(max(apart[::EPOCHS]) < 1e-4 and
                  min(apart[1::EPOCHS]) > max(apart[::EPOCHS]),
                  "the first step of each batch has ratio 1, others not")
    groups = runs.groups("learned")
    counts = collections.Counter(next(iter(group)) for group in groups)
    harness.check(counts == {"group": BATCHES * PROMPTS, "values": BATCHES},
                  "the journal has every group and the values of every batch")
    return lines


def check_kills(runs, whole):
    """Rewards are asked for between batches. The newest of the checkpoints, of every
    second step, is then at the end of a batch's steps, if it was complete, or between
    two of them."""
    steps = 4 * EPOCHS
    for questions, done, firsts in ((100, 6, (5, 7)), (150, 9, (9,))):
        out, reward = f"killed-{questions}", runs.killer(questions)
        before = killed(runs, out, steps, reward, sets=PPO)
        harness.check(len(before) == done, f"{out}: it ended after {len(before)} steps")
        after = runs.run(out, steps, reward, "--resume", sets=PPO)
        first = int(re.match(r"step (\d+) ", after[0]).group(1))
        harness.check(first in firsts, f"{out}: resumed with step {first}")
        both = steps_of(before) | steps_of(after)
        harness.check([both[i + 1] for i in range(steps)] == whole[:steps],
                      f"{out}: resumed with the bits of a run that was not")


def check_minibatches(runs):
    """Steps learn from halves of the completions in turn, with the values of before all of
    them. The checkpoint of step 5 is between two halves."""
    steps, reward = 12, f"{sys.executable} {MATCH}"
    sets = [*PPO, "rollout.epochs=2", "rollout.minibatches=2", "checkpoint.every=5"]
    whole = runs.run("halves", steps, reward, sets=sets)
    # Weights that do not move: the second half is what the next step of that run learns from.
    still = [*PPO, "rollout.epochs=1", "optimizer.lr=1e-30"]
    halves = runs.run("halves-still", 4, reward, sets=[*still, "rollout.minibatches=2"])
    half = runs.run("half", 4, reward, sets=[*still, f"rollout.prompts={PROMPTS // 2}"])
    harness.check(halves == half and half[0].split()[:6] == whole[0].split()[:6],
                  "each half is the batch of a run with half of the prompts")
    records = harness.metrics(runs.scratch / "halves")
    apart = [record["policy"]["kl"] for record in records]
    seen = [0, *(record["tokens"] for record in records)]
    tokens = [after - before for before, after in zip(seen, seen[1:])]
    harness.check(max(apart[::4]) < 1e-6 < min(apart[1::4]) and
                  all(tokens[i] == tokens[i + 2] for i in range(steps) if i % 4 < 2),
                  "the second half follows the first one's step, and both come again")
    out, killing = "halves-killed", runs.killer(120)
    before = killed(runs, out, steps, killing, sets=sets)
    after = runs.run(out, steps, killing, "--resume", sets=sets)
    harness.check(len(before) == 8 and after[0].startswith("step 6 "), f"{out}: between halves")
    both = steps_of(before) | steps_of(after)
    harness.check([both[i + 1] for i in range(steps)] == whole,
                  f"{out}: resumed with the bits of a run that was not")


def tensors(path):
    """Names in a safetensors file."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return set(json.loads(file.read(size))) - {"__metadata__"}


def check_exports(runs):
    run = runs.scratch / "learned"
    newest = run / harness.checkpoints(run)[-1]
    head = {"v_head.summary.weight", "v_head.summary.bias"}
    saved = tensors(newest / "model.safetensors")
    harness.check(head < saved, "the value head is in checkpoints")
    harness.run(runs.tessera, "export", run, "-o", runs.scratch / "exported")
    harness.check(tensors(runs.scratch / "exported" / "model.safetensors") == saved - head,
                  "the model that is exported has no value head")


def check_variants(runs):
    reward = f"{sys.executable} {MATCH}"
    for name, keys in {"an adapter with a value head": ["adapter.kind=lora", "adapter.rank=4",
                                                        "adapter.base=fp32"],
                       "bf16": ["precision.compute=bf16"],
                       "as it is in microbatches": ["batch.micro=2", "batch.accumulate=2"]}.items():
        out = name.replace(" ", "-")
        runs.run(out, 2 * EPOCHS, reward, sets=[*PPO, *keys])
        policies = [record["policy"] for record in harness.metrics(runs.scratch / out)]
        bound = 2e-2 if name == "bf16" else 1e-3
        harness.check(max(abs(policies[i]["ratio"] - 1) for i in (0, EPOCHS)) < bound and
                      policies[EPOCHS - 1]["value_loss"] < policies[0]["value_loss"], name)
    harness.run(runs.tessera, "export", runs.scratch / "an-adapter-with-a-value-head", "-o",
                runs.scratch / "adapter")
    names = tensors(runs.scratch / "adapter" / "adapter_model.safetensors")
    harness.check(names and all("lora_" in name for name in names),
                  "an exported adapter has no value head")


def check_errors(runs):
    reward = f"{sys.executable} {MATCH}"
    harness.refuses("steps that are no multiple of epochs", "rollout.epochs = 3")(
        *runs.command("refused", 2 * EPOCHS + 1, reward, "--quiet", sets=PPO))
    harness.refuses("a baseline besides the value head", "policy.advantages: gae",
                    "rollout.baseline")(
        *runs.command("refused", EPOCHS, reward, "--quiet",
                      sets=[*PPO, "rollout.baseline=group", "rollout.scale=group"]))


def main():
    runs = Runs(*sys.argv[1:3])
    whole = check_learning(runs)
    check_kills(runs, whole)
    check_minibatches(runs)
    check_exports(runs)
    check_variants(runs)
    check_errors(runs)


if __name__ == "__main__":
    main()
