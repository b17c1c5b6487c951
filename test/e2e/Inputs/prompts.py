"""Prompts whose tokens see each other (attention.prompts): losses on meshes are those of one rank, a
run reads prompts as its export does, and a model has the loss of its own reference.

    prompts.py BIN SCRATCH MPIRUN
"""
import math
import sys

import harness
import preference
from pipelines import Pipelines, close

PROMPTS = "attention.prompts=bidirectional"
SETS = [*preference.SETS, "batch.accumulate=2"]
MESHES = [(2, "context=2"), (2, "tensor=2"), (2, "pipe=2"), (4, "data=2,context=2,zero=3")]


def check_meshes(run, causal, name, **fields):
    spec = run.spec(name, **fields)
    one = run.train(run.compile(spec, ""), 1, run.scratch / f"{name}-one", 4)
    other = causal.train(causal.compile(spec, "data=1"), 1, run.scratch / f"{name}-causal", 4)
    harness.check(not close(one, other), f"{name}: causal prompts have other losses")
    for ranks, mesh in MESHES:
        program = run.compile(spec, mesh)
        results = run.train(program, ranks, run.scratch / f"run-{name}-{program.name}", 4)
        harness.check(close(one, results), f"{name}: {mesh} trains as one rank")


def check_generation(run, trained):
    """Sampled texts of the run, and of its export."""
    tessera, exported = run.binaries / "tessera", run.scratch / "exported"
    harness.run(tessera, "export", trained, "-o", exported)

    def text(place, *more):
        return [harness.run(tessera, "generate", place, "--prompt", "how to list files 20? ",
                            "--max-tokens", 60, "--ignore-end", "--temperature", 1.5, "--seed",
                            seed, "--quiet", *more).stdout for seed in range(4)]
    own = text(trained)
    harness.check(own == text(exported, "--set", PROMPTS), "a run reads prompts as its export")
    harness.check(own != text(exported), "and not as causal ones")
    harness.refuses("a prompt of two chunks", "see each other", "inference.chunk")(
        tessera, "generate", exported, "--set", PROMPTS, "--set", "inference.chunk=4", "--prompt",
        "how to list files 20? ", "--quiet")
    harness.refuses("a full context", "the context of 32 tokens is full")(
        tessera, "generate", exported, "--set", PROMPTS, "--set", "inference.context=32",
        "--prompt", "how to list files 20? ", "--max-tokens", 40, "--quiet")
    return exported


def check_reference(pairs, spec, exported):
    """DPO begins at a loss of ln 2, if its reference has read prompts in the same way."""
    tuned = Pipelines(*sys.argv[1:4], sets=[*SETS, *preference.DPO, PROMPTS])
    tuned.tokens = pairs
    program = tuned.compile(spec, "data=1")
    score = [tuned.binaries / "tessera", "data", "reference", tuned.tokens, "--model", exported]
    harness.run(*score)
    harness.refuses("a reference that has read causal prompts", "data reference",
                    f"--set {PROMPTS}")(
        program, "--data", tuned.tokens, "--out", tuned.scratch / "refused", "--quiet",
        "--init-from", exported)
    harness.run(*score, "--set", PROMPTS)
    loss = tuned.train(program, 1, tuned.scratch / "dpo", 1, "--init-from", exported)[0][0][0]
    harness.check(abs(loss - math.log(2)) < 1e-5, f"the first loss is {loss:.6f}, ln 2")


def main():
    run = Pipelines(*sys.argv[1:4], sets=[*SETS, PROMPTS])
    causal = Pipelines(*sys.argv[1:4], sets=SETS)
    harness.refuses("a stream of tokens", "without prompts", "tessera data chat")(
        run.compile(run.spec("tiny-gpt2", n_layer=2), ""), "--data", run.tokens, "--out",
        run.scratch / "refused", "--quiet")
    pairs = preference.make_pairs(run)  # and the tokenizer
    run.tokens = causal.tokens = preference.pack(
        run, "answers", [{"prompt": each["prompt"], "completion": each["chosen"]}
                         for each in preference.pairs()])
    check_meshes(run, causal, "tiny-gpt2", n_layer=2)
    check_meshes(run, causal, "tiny-mixtral", num_hidden_layers=2)
    spec = run.spec("tiny-gpt2", n_layer=2)
    trained = run.scratch / "trained"
    run.train(run.compile(spec, ""), 1, trained, 60)
    exported = check_generation(run, trained)
    check_reference(pairs, spec, exported)


if __name__ == "__main__":
    main()
