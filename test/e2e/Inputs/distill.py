"""Learning from a teacher: stored probabilities, a student that comes to agree
with it, losses on meshes, and what is refused.

    distill.py BIN SCRATCH MPIRUN
"""
import json
import shutil
import sys

import harness
import preference
from pipelines import Pipelines, close

SETS = ["batch.micro=4", "batch.sequence=128", "eval.every=0",
        "data.documents=separate", "optimizer.lr=3e-3"]
DISTILL = ["task=distill", "distill.top=8"]
MESHES = [(2, "data=2,zero=1"), (2, "tensor=2"), (2, "context=2"), (2, "pipe=2")]


def lines():
    return [{"prompt": each["prompt"], "completion": each["chosen"]}
            for each in preference.pairs()]


def make_data(run):
    """A packed dataset with the tokenizer of the models."""
    folder = run.scratch / "tokenizer"
    folder.mkdir(exist_ok=True)
    shutil.copy(run.tokens / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|endoftext|>"}))
    return preference.pack(run, "documents", lines())


def ask(run, *more):
    """What the teacher says of the documents."""
    return harness.run(run.binaries / "tessera", "data", "teacher", run.tokens,
                       "--model", run.scratch / "teacher", "--cache", "off",
                       *more)


def teach(base, spec):
    """A teacher that learned the documents."""
    run = Pipelines(*sys.argv[1:4], sets=SETS)
    run.tokens = make_data(base)
    run.train(run.compile(spec, "data=1"), 1, run.scratch / "teacher", 60)
    return run.tokens


def refusals(run, program, spec):
    def refuse(what, *parts, by=program):
        harness.refuses(what, *parts)(by, "--data", run.tokens, "--out",
                                      run.scratch / "refused", "--quiet")
    refuse("data without a teacher", "has no probabilities of a teacher",
           "tessera data teacher")
    harness.refuses("more tokens than a program takes", "--top", "257", "256")(
        run.binaries / "tessera", "data", "teacher", run.tokens, "--model",
        run.scratch / "teacher", "--cache", "off", "--top", 257)
    ask(run, "--top", 4)
    refuse("too few tokens of a teacher", "has the 4 most probable tokens",
           "--top 8")
    ask(run, "--top", 8, "--temperature", 2)
    refuse("another temperature", "at the temperature 2", "the program has 1")
    harness.refuses("more tokens than the model has", "distill.top = 256",
                    "vocabulary of 200")(
        run.binaries / "tessera", "compile",
        run.spec("tiny-gpt2", vocab_size=200), "--set", "task=distill", "--set",
        "data.documents=separate", "--set", "distill.top=256", "-o",
        run.scratch / "refused")
    harness.refuses("keys of another task", "distill has no meaning here")(
        run.binaries / "tessera", "compile", spec, "--set", "distill.top=4",
        "-o", run.scratch / "refused")
    wide = run.spec("tiny-gpt2", n_layer=2, vocab_size=4000)
    refuse("another vocabulary", "the model has 4000",
           by=run.compile(wide, ""))


def damage(run, program):
    """Records that are no distributions, and headers of others."""
    ask(run, "--top", 8)
    file, = run.tokens.glob("*.teacher")
    good = file.read_bytes()
    for what, bad, part in [
            ("a changed record", good[:64] + bytes(len(good) - 72) + good[-8:],
             "has 0 twice"),
            ("a changed header", good[:41] + bytes([good[41] ^ 1]) + good[42:],
             "the header is not"),
            ("a cut file", good[:-5], "do not hold")]:
        file.write_bytes(bad)
        harness.refuses(what, file.name, part)(
            program, "--data", run.tokens, "--out", run.scratch / "refused",
            "--quiet")
    file.write_bytes(good)


def main():
    base = Pipelines(*sys.argv[1:4], sets=SETS)
    large = base.spec("tiny-gpt2", n_layer=3)
    small = base.spec("tiny-gpt2", n_layer=2, n_embd=64)
    run = Pipelines(*sys.argv[1:4], sets=[*SETS, *DISTILL])
    run.tokens = teach(base, large)
    program = run.compile(small, "")
    harness.refuses("a stream of tokens", "is a stream of tokens",
                    "tessera data teacher")(
        program, "--data", base.tokens, "--out", run.scratch / "refused",
        "--quiet")
    refusals(run, program, small)
    damage(run, program)
    out = run.scratch / "one"
    one = run.train(program, 1, out, 60)
    tables = [line["distill"] for line in harness.metrics(out)
              if "distill" in line]
    first, last = tables[0], tables[-1]
    harness.check(one[0][-1][0] < 0.3 * one[0][0][0] and
                  abs(one[0][-1][0] - last["kl"]) < 1e-4,
                  "the student comes near its teacher")
    harness.check(last["agreement"] > 0.8 > first["agreement"],
                  "and agrees on the next token")
    harness.check(abs(last["teacher_mass"] - last["student_mass"]) < 0.1,
                  "with as much probability for all others")
    few = run.train(program, 1, run.scratch / "few", 3)
    for ranks, mesh in MESHES:
        results = run.train(run.compile(small, mesh), ranks,
                            run.scratch / f"run-{mesh}", 3)
        harness.check(close(few, results), f"{mesh} trains as one rank")
    mixed = Pipelines(*sys.argv[1:4], sets=[
        *SETS, *DISTILL, "distill.divergence=reverse", "distill.weight=0.5",
        "distill.top=5"])
    mixed.tokens = run.tokens
    student = mixed.compile(base.spec("tiny-gpt2", n_layer=2, n_embd=48), "")
    results = mixed.train(student, 1, run.scratch / "mixed", 60)
    table = [line["distill"] for line in
             harness.metrics(run.scratch / "mixed") if "distill" in line][-1]
    harness.check(results[0][-1][0] < 0.5 * results[0][0][0] and
                  abs(results[0][-1][0] -
                      0.5 * (table["kl"] + table["cross_entropy"])) < 1e-4,
                  "the reverse divergence, with cross-entropy")


if __name__ == "__main__":
    main()
