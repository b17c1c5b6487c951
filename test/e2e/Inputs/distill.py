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

# Two microbatches a step: on a pipeline eval_step takes two batches, of which
# the last of three fills a part.
SETS = ["batch.micro=2", "batch.accumulate=2", "batch.sequence=128",
        "eval.every=2", "eval.batches=3",
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
    preference.pack(run, "held-out", [
        {"prompt": f"how to {what} lists {what}? ", "completion": f"use {what} and {what}"}
        for what in ["copy", "move", "sort", "print", "read", "write"]])
    return preference.pack(run, "documents", lines())


def ask(run, *more, of=None):
    """What the teacher says of the documents."""
    return harness.run(run.binaries / "tessera", "data", "teacher",
                       of or run.tokens, "--model", run.scratch / "teacher", *more)


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
        run.scratch / "teacher", "--top", 257)
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


def compiled(run, name, spec, mesh="", *sets):
    return run.compile(spec, mesh, sets).rename(run.scratch / f"student-{name}")


def tables(out):
    return [line["distill"] for line in harness.metrics(out) if "distill" in line]


def learn(run, program):
    """A student, and what it says of itself."""
    out = run.scratch / "one"
    losses, evaluations = run.train(program, 1, out, 60, *held_out(run))
    first, last = tables(out)[0], tables(out)[-1]
    harness.check(losses[-1][0] < 0.3 * losses[0][0] and
                  abs(losses[-1][0] - last["kl"]) < 1e-4,
                  "the student comes near its teacher")
    harness.check(last["agreement"] > 0.8 > first["agreement"],
                  "and agrees on the next token")
    harness.check(abs(last["teacher_mass"] - last["student_mass"]) < 0.1,
                  "with as much probability for all others")
    harness.check(evaluations[-1] < 0.7 * evaluations[0],
                  "on documents that it did not see, too")


def held_out(run):
    return ["--eval-data", run.scratch / "held-out"]


def evaluate(run, program, few):
    """Rows after the last, and those of batches after the last, add nothing."""
    rows = json.loads((run.scratch / "held-out/index.json").read_text())["rows"]
    harness.check(0 < rows <= 4, "two batches have all rows, a third has none")
    whole = run.train(program, 1, run.scratch / "whole", 3, *held_out(run),
                      "--set", "eval.batches=2")
    harness.check(close(few, whole), "and no loss")


def meshes(run, program, small):
    few = run.train(program, 1, run.scratch / "few", 3, *held_out(run))
    evaluate(run, program, few)
    for ranks, mesh in MESHES:
        results = run.train(run.compile(small, mesh), ranks,
                            run.scratch / f"run-{mesh}", 3, *held_out(run))
        harness.check(close(few, results), f"{mesh} trains as one rank")


def mix(run, spec):
    """The other divergence, with cross-entropy: also of a part of the head."""
    sets = ["distill.divergence=reverse", "distill.weight=0.5", "distill.top=5"]
    out = run.scratch / "mixed"
    losses, _ = run.train(compiled(run, "mixed", spec, "", *sets), 1, out, 60)
    last = tables(out)[-1]
    harness.check(losses[-1][0] < 0.5 * losses[0][0] and
                  abs(losses[-1][0] - 0.5 * (last["kl"] + last["cross_entropy"])) < 1e-4,
                  "the reverse divergence, with cross-entropy")
    cut = run.train(compiled(run, "cut", spec, "tensor=2", *sets), 2,
                    run.scratch / "cut", 3)
    harness.check(close(cut, (losses[:3], [])), "on parts of the head, too")


def weigh_nothing(base, run, spec):
    alone = run.train(compiled(run, "none", spec, "", "distill.weight=0"), 1,
                      run.scratch / "none", 3)
    plain = run.train(compiled(base, "sft", spec), 1, run.scratch / "sft", 3)
    harness.check(close(alone, plain), "a teacher without weight is none")
    harness.check(all(table["kl"] > 0 for table in tables(run.scratch / "none")),
                  "but its divergence is known")


def adapt(run, program, spec):
    start = ["--init-from", run.scratch / "few/step-000003"]
    factors = compiled(run, "adapter", spec, "", "adapter.kind=lora",
                       "adapter.target=[c_attn, c_proj]", "adapter.rank=4")
    (whole, _), (losses, _) = (
        run.train(each, 1, run.scratch / name, steps, *start)
        for each, name, steps in [(program, "again", 1), (factors, "adapted", 60)])
    harness.check(abs(losses[0][0] - whole[0][0]) < 1e-5 and
                  losses[-1][0] < 0.98 * losses[0][0],
                  "an adapter learns from where its model is")


def route(run):
    """A mixture of experts."""
    spec = run.spec("tiny-mixtral", num_hidden_layers=2)
    one = run.train(compiled(run, "experts", spec), 1, run.scratch / "experts", 3)
    two = run.train(compiled(run, "spread", spec, "expert=2"), 2,
                    run.scratch / "spread", 3)
    harness.check(close(one, two) and one[0][-1][0] < one[0][0][0],
                  "experts learn, on ranks as on one")


def main():
    base = Pipelines(*sys.argv[1:4], sets=SETS)
    large = base.spec("tiny-gpt2", n_layer=3)
    small = base.spec("tiny-gpt2", n_layer=2, n_embd=64)
    run = Pipelines(*sys.argv[1:4], sets=[*SETS, *DISTILL])
    run.tokens = teach(base, large)
    program = compiled(run, "plain", small)
    harness.refuses("a stream of tokens", "is a stream of tokens",
                    "tessera data teacher")(
        program, "--data", base.tokens, "--out", run.scratch / "refused",
        "--quiet")
    refusals(run, program, small)
    damage(run, program)
    ask(run, "--top", 8, of=run.scratch / "held-out")
    learn(run, program)
    meshes(run, program, small)
    narrow = base.spec("tiny-gpt2", n_layer=2, n_embd=48)
    mix(run, narrow)
    weigh_nothing(base, run, narrow)
    adapt(run, program, small)
    route(run)


if __name__ == "__main__":
    main()
