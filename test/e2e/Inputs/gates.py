"""Gates of a recipe: a run that goes back has the bits of the checkpoint that passed,
of one rank and of two. The text is one letter, so that all data are the same and
each way from a checkpoint leads to the same weights.
   gates.py BIN FOLDER MPIRUN
"""
import json
import sys

from harness import RECIPE, SPEC, Prepared, check, checkpoints, digest, metrics, refuses, run
from random_models import mpirun

STEPS, EVERY = 12, 4


def constant_tokens(made):
    for split, letters in (("train", 60_000), ("eval", 20_000)):
        folder = made.scratch / "text" / split
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_text(json.dumps({"text": "a" * letters}) + "\n")
    tokens = made.scratch / "tokens"
    run(made.tessera, "data", "tokenize", "--tokenizer", made.tokens() / "tokenizer.json", "--input",
        made.scratch / "text/train", "--eval-input", made.scratch / "text/eval", "-o", tokens)
    return tokens


def check_run(made, title, command, tokens):
    """A gate that step 4 passes and step 8 misses."""
    common = ("--data", tokens, "--steps", STEPS, "--set", f"eval.every={EVERY}", "--set", f"checkpoint.every={EVERY}",
              "--set", "checkpoint.keep=0")
    free, gated = made.scratch / f"{title}-free", made.scratch / f"{title}-gated"
    run(*command, *common, "--out", free)
    losses = {record["step"]: record["eval_loss"] for record in metrics(free) if "eval_loss" in record}
    between = (losses[4] + losses[8]) / 2
    check(losses[8] < between < losses[4], "the loss falls")
    gates = ("--set", f"gates.require=[eval_loss >= {between}]", "--set", "gates.on_miss=roll_back",
             "--set", "gates.rollbacks=2")
    done = run(*command, *common, *gates, "--out", gated, code=1)
    lines = [line for line in done.stderr.splitlines() if "gate missed at step 8" in line]
    backs = [line for line in lines if "back to step-000004" in line]
    assert len(backs) == 2 and backs[1].endswith("2 of 2 times"), done.stderr
    assert "after going back 2 times; step-000008 is saved" in lines[-1], done.stderr
    assert len(lines) == 3, done.stderr  # of several ranks, too
    check((gated / "promoted").read_text() == "step-000004\n", "promoted")
    check(sorted(checkpoints(gated)) == ["step-000004", "step-000008"], "later checkpoints go")
    for each in ("model", "optimizer"):  # the manifests differ in their cursors
        name = f"{each}.safetensors"
        assert digest(gated / "step-000008")[name] == digest(free / "step-000008")[name], name
    check(True, f"{title}: back twice, and the same bits")
    check([record["step"] for record in metrics(gated)] == list(range(9)), "each step has one record")
    return gated


def main():
    made = Prepared(*sys.argv[1:3])
    tokens = constant_tokens(made)
    gated = check_run(made, "one rank", (made.executable("dropout"),), tokens)
    texts = [run(made.tessera, "generate", f"{gated}{place}", "--prompt", "aa", "--max-tokens", 4,
                 "--temperature", 0).stdout for place in ("@promoted", "/step-000004")]
    check(texts[0] == texts[1] and texts[0], "RUN@promoted is the promoted checkpoint")
    refuses("a run without one", "has no promoted checkpoint")(
        made.tessera, "generate", f"{made.scratch}/one rank-free@promoted", "--prompt", "a")
    two = made.scratch / "train_two"
    run(made.tessera, "compile", SPEC, "--recipe", RECIPE, "--mesh", "data=2", "--set", "batch.micro=2",
        "--set", "batch.sequence=32", "-o", two)
    check_run(made, "two ranks", (*mpirun(sys.argv[3], 2), two), tokens)


main()
