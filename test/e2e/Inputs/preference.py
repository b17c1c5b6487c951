"""Learning from pairs of answers and from labelled ones: stored log-probabilities of the model that
training begins with, losses of some steps on meshes, and what is refused.

    preference.py BIN SCRATCH MPIRUN
"""
import json
import math
import shutil
import sys

import harness
from pipelines import Pipelines, close

SETS = ["batch.micro=4", "batch.sequence=128", "eval.every=0",
        "data.documents=separate", "optimizer.lr=3e-3"]
MESHES = [(2, "data=2,zero=1"), (2, "tensor=2"), (2, "context=2"), (2, "pipe=2")]
DPO = ["task=dpo", "preference.pairs=4"]


def pairs():
    words = "list copy move find sort print open close read write".split()
    lines = []
    for number in range(60):
        first, second = words[number % 10], words[(3 * number + 1) % 10]
        lines.append({"prompt": f"how to {first} files {number}? ",
                      "chosen": f"use {first}" + f" and {second}" * (number % 3),
                      "rejected": f"no {second} today"})
    return lines


def labels():
    return [{"prompt": each["prompt"], "completion": each[answer],
             "label": answer == "chosen"}
            for number, each in enumerate(pairs())
            for answer in [("chosen", "rejected")[number % 2]]]


def make_pairs(run):
    """A packed dataset of pairs."""
    folder = run.scratch / "tokenizer"
    folder.mkdir(exist_ok=True)
    shutil.copy(run.tokens / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|endoftext|>"}))
    return pack(run, "pairs", pairs())


def pack(run, name, lines):
    """A packed dataset of these lines."""
    path = run.scratch / f"{name}.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    harness.run(run.binaries / "tessera", "data", "chat", "--tokenizer",
                run.scratch / "tokenizer", "--input", path, "--sequence", 128,
                "-o", run.scratch / name)
    return run.scratch / name


def tables(out, name):
    return [line[name] for line in harness.metrics(out) if name in line]


def label(base, spec, start):
    """KTO, on the pairs' answers one by one."""
    run = Pipelines(*sys.argv[1:4], sets=[*SETS, "task=kto", "kto.documents=16"])
    harness.refuses("pairs instead of labels", "has no answers with a label")(
        run.compile(spec, ""), "--data", base.tokens, "--out",
        run.scratch / "refused", "--quiet", *start)
    run.tokens = pack(base, "labels", labels())
    program = run.compile(spec, "")
    arguments = [program, "--data", run.tokens, "--out",
                 run.scratch / "refused", "--quiet", *start]
    harness.refuses("labels without a reference", "has no log-probabilities",
                    "tessera data reference")(*arguments)
    harness.run(run.binaries / "tessera", "data", "reference", run.tokens,
                "--model", run.scratch / "base")
    one = run.train(program, 1, run.scratch / "kto", 30, *start)
    first, last = (tables(run.scratch / "kto", "kto")[at] for at in (0, -1))
    harness.check(abs(one[0][0][0] - 0.5) < 1e-5 and abs(first["kl"]) < 1e-3,
                  "kto begins at its reference")
    harness.check(one[0][-1][0] < 0.4 and
                  last["desirable_reward"] > last["undesirable_reward"] + 0.3,
                  "it learns which answers are desirable")
    lines = harness.run(program, "--data", run.tokens, "--out", run.scratch / "kto-one",
                        "--steps", 1, *start).stderr
    harness.check("data: " in lines and "loss to beat" not in lines,
                  "a loss of answers is not compared with that of tokens")
    few = run.train(program, 1, run.scratch / "kto-few", 3, *start)
    for ranks, mesh in MESHES:
        results = run.train(run.compile(spec, mesh), ranks,
                            run.scratch / f"kto-{mesh}", 3, *start)
        harness.check(close(few, results), f"kto on {mesh} trains as one rank")


def main():
    base = Pipelines(*sys.argv[1:4], sets=SETS)
    spec = base.spec("tiny-gpt2", n_layer=2)
    base.train(base.compile(spec, "data=1"), 1, base.scratch / "base", 3)
    run = Pipelines(*sys.argv[1:4], sets=[*SETS, *DPO])
    run.tokens = make_pairs(run)
    start = ["--init-from", run.scratch / "base/step-000003"]
    program = run.compile(spec, "")
    harness.refuses("pairs without a reference", "has no log-probabilities",
                    "tessera data reference")(
        program, "--data", run.tokens, "--out", run.scratch / "refused",
        "--quiet", *start)
    harness.run(run.binaries / "tessera", "data", "reference", run.tokens,
                "--model", run.scratch / "base")
    out = run.scratch / "one"
    one = run.train(program, 1, out, 30, *start)
    harness.check(abs(one[0][0][0] - math.log(2)) < 1e-5,
                  "the model has the loss of its own reference")
    first, last = tables(out, "preference")[0], tables(out, "preference")[-1]
    harness.check(abs(first["margin"]) < 1e-4, "and no margin")
    harness.check(one[0][-1][0] < 0.3 and last["accuracy"] > 0.9,
                  "it learns which answers are chosen")
    few = run.train(program, 1, run.scratch / "few", 3, *start)
    for ranks, mesh in MESHES:
        results = run.train(run.compile(spec, mesh), ranks,
                            run.scratch / f"run-{mesh}", 3, *start)
        harness.check(close(few, results), f"{mesh} trains as one rank")
    label(run, spec, start)


if __name__ == "__main__":
    main()
