"""Models that score answers: a language model becomes one, learns from pairs, on meshes and with an
adapter, is exported, and is refused where text is wanted.

    reward.py BIN SCRATCH MPIRUN
"""
import json
import sys

import harness
from pipelines import Pipelines, close
from preference import MESHES, SETS, make_pairs, tables

REWARD = ["task=reward", "preference.pairs=4"]
STEPS = 30


def prepare(arguments):
    """A language model, pairs, and what trains on them."""
    base = Pipelines(*arguments, sets=SETS)
    spec = base.spec("tiny-gpt2", n_layer=2)
    base.train(base.compile(spec, "data=1"), 1, base.scratch / "base", 3)
    run = Pipelines(*arguments, sets=[*SETS, *REWARD])
    run.tokens = make_pairs(run)
    return run, spec, ["--init-from", run.scratch / "base/step-000003"]


def train(run, spec, start):
    """A run, and its exported model."""
    out = run.scratch / "scores"
    losses = run.train(run.compile(spec, ""), 1, out, STEPS, *start)
    harness.run(run.binaries / "tessera", "export", out, "-o", run.scratch / "exported")
    return losses, out


def adapt(run, spec, start):
    """The same with an adapter."""
    adapted = Pipelines(*sys.argv[1:4], sets=[
        *run.sets, "adapter.kind=lora", "adapter.target=[c_attn, c_proj]", "adapter.rank=4"])
    adapted.tokens = run.tokens
    program = adapted.compile(spec, "data=1")
    losses = adapted.train(program, 1, run.scratch / "adapted", STEPS, *start)
    tessera = run.binaries / "tessera"
    harness.run(tessera, "export", run.scratch / "adapted", "-o", run.scratch / "adapter")
    harness.run(tessera, "export", run.scratch / "adapted", "--merge", "-o",
                run.scratch / "merged")
    return losses


def names(path):
    """Of the tensors of a file."""
    data = path.read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return set(header) - {"__metadata__"}


def refuse(run, spec, trained, start):
    tessera, exported = run.binaries / "tessera", run.scratch / "exported"
    harness.refuses("text of a reward model", "is a reward model, which gives scores")(
        tessera, "generate", exported, "--prompt", "x", "--quiet")
    harness.refuses("text of its run", "trained a reward model", "tessera export")(
        tessera, "generate", trained, "--prompt", "x", "--quiet")
    harness.refuses("its embeddings", "gives scores and no embeddings")(
        tessera, "embed", exported, "--text", "x", "--quiet")
    harness.refuses("scores without a head", "is not a reward model", "task: reward")(
        tessera, "score", spec, "--quiet")
    bad = run.scratch / "bad.jsonl"
    bad.write_text('{"prompt": "x", "completion": " y"}\n{"prompt": "x"}\n')
    harness.refuses("a line without an answer", "bad.jsonl:2: ")(
        tessera, "score", exported, "--input", bad, "--quiet")
    line = '{"prompt": "x", "completion": " y"}\n'
    piped = harness.run(tessera, "score", exported, "--quiet", input="\ufeff" + line)
    harness.check(json.loads(piped.stdout)["tokens"] == 4, "scores of standard input")
    line = ('{"prompt": "x", "completion": ""}\n'
            '{"prompt": "x", "chosen": " y", "rejected": " y"}\n')
    piped = harness.run(tessera, "score", exported, "--quiet", input=line)
    pair = json.loads(piped.stdout.splitlines()[1])
    harness.check(pair["chosen"] == pair["rejected"] and "1 pairs: accuracy 0" in piped.stderr,
                  "scores of an empty answer and of equal ones")
    harness.refuses("nothing to score", "standard input has no line", input="")(
        tessera, "score", exported, "--quiet")
    refuse_prompts(run, exported)
    harness.refuses("next tokens of a reward model", "set task: reward")(
        tessera, "compile", exported, "-o", run.scratch / "refused")
    harness.refuses("a quantized reward model", "not supported of reward models")(
        tessera, "compile", exported, "--mode", "infer", "--quant", "int8", "-o",
        run.scratch / "refused")
    harness.refuses("scores of a language model", "task: reward is of training")(
        tessera, "compile", spec, "--mode", "infer", "--set", "task=reward",
        "--set", "data.documents=separate", "-o", run.scratch / "refused")


def refuse_prompts(run, exported):
    """Before anything is compiled: prompts that only the policy can read."""
    policy, prompts = run.scratch / "policy", run.scratch / "prompts.jsonl"
    harness.run(run.binaries / "tessera", "export", run.scratch / "base", "-o", policy)
    (policy / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}")
    prompts.write_text(json.dumps({"prompt": "x"}) + "\n\n" + json.dumps(
        {"messages": [{"role": "user", "content": "x"}]}) + "\n")
    harness.refuses("prompts that the reward model cannot read",
                    "--reward: ", "prompts.jsonl:3: the tokenizer has no chat template")(
        run.binaries / "tessera", "rl", policy, "--prompts", prompts, "--reward",
        f"model:{exported}", "--out", run.scratch / "refused", "--steps", 1,
        "--set", "batch.sequence=64", "--set", "batch.micro=16",
        "--set", "rollout.max_tokens=6")


def main():
    run, spec, start = prepare(sys.argv[1:4])
    (steps, _), out = train(run, spec, start)
    first, last = tables(out, "preference")[0], tables(out, "preference")[-1]
    harness.check(list(first) == ["accuracy", "margin", "chosen_reward", "rejected_reward"],
                  "scores have four metrics")
    harness.check(abs(first["margin"] - first["chosen_reward"] + first["rejected_reward"]) < 1e-5,
                  "the margin is the difference of scores")
    harness.check(steps[-1][0] < 0.3 and last["accuracy"] > 0.9, "it learns who is chosen")
    config = json.loads((run.scratch / "exported/config.json").read_text())
    harness.check(config["architectures"] == ["GPT2ForSequenceClassification"]
                  and len(config["id2label"]) == 1, "the export is a classifier of one label")
    tensors = names(run.scratch / "exported/model.safetensors")
    harness.check("score.weight" in tensors and "lm_head.weight" not in tensors,
                  "with a score head")
    few = run.train(run.compile(spec, ""), 1, run.scratch / "few", 3, *start)
    for ranks, mesh in MESHES:
        results = run.train(run.compile(spec, mesh), ranks, run.scratch / f"run-{mesh}", 3,
                            *start)
        harness.check(close(few, results), f"{mesh} trains as one rank")
    (steps, _) = adapt(run, spec, start)
    harness.check(steps[-1][0] < 0.9 * steps[0][0], "factors and the head learn, too")
    config = json.loads((run.scratch / "adapter/adapter_config.json").read_text())
    tensors = names(run.scratch / "adapter/adapter_model.safetensors")
    harness.check(config["modules_to_save"] == ["score"]
                  and "base_model.model.score.weight" in tensors, "and are exported together")
    refuse(run, spec, out, start)


if __name__ == "__main__":
    main()
