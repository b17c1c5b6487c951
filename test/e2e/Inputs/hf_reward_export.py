"""Exports reward models and lets transformers and PEFT give the scores that our programs give.

    hf_reward_export.py BIN SCRATCH
"""
import json
import sys

import peft
import torch
import transformers

import harness
from preference import pairs
from reward import adapt, prepare, train

def make_lines(run):
    """Preference pairs, as lines of a file and as token ids."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.scratch / "exported")
    lines = run.scratch / "pairs.jsonl"
    lines.write_text("".join(json.dumps(each) + "\n" for each in pairs()[:8]))
    return lines, [tokenizer(each["prompt"] + each[answer] + tokenizer.eos_token).input_ids
                   for each in pairs()[:8] for answer in ("chosen", "rejected")]


def ours(run, directory, lines):
    """Scores, the chosen answer's before the rejected one's."""
    done = harness.run(run.binaries / "tessera", "score", directory, "--input", lines)
    scores = [json.loads(line) for line in done.stdout.splitlines()]
    harness.check([each["line"] for each in scores] == list(range(1, 9))
                  and "8 pairs: accuracy" in done.stderr, "a line of scores for each pair")
    return torch.tensor([each[answer] for each in scores for answer in ("chosen", "rejected")])


def theirs(model, sequences):
    model.eval()
    with torch.no_grad():
        return torch.cat([model(torch.tensor([each])).logits[0] for each in sequences])


def same(one, other):
    return bool(((one - other).abs() <= 1e-4 * other.abs().max()).all())


def check_rewards(run, model):
    """Reinforcement learning that is rewarded by the model."""
    tessera, policy, out = (run.scratch / name for name in ("", "policy", "rl"))
    tessera = run.binaries / "tessera"
    harness.run(tessera, "export", run.scratch / "base", "-o", policy)
    prompts = run.scratch / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": each["prompt"]}) + "\n"
                               for each in pairs()[:4]))
    keys = ["batch.sequence=64", "rollout.max_tokens=6", "rollout.prompts=2", "rollout.group=3"]
    harness.run(tessera, "rl", policy, "--prompts", prompts, "--reward",
                f"model:{run.scratch / 'exported'}", "--out", out, "--steps", 2, "--quiet",
                *(word for key in keys for word in ("--set", key)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    groups = [json.loads(line)
              for line in (out / "samples.jsonl").read_text().splitlines()[1:]]
    rewards, sequences = [], []
    for group in groups:
        prompt = pairs()[group["prompt"]]["prompt"]
        for sample in group["samples"]:
            text = prompt + tokenizer.decode(sample["tokens"], skip_special_tokens=True)
            rewards.append(sample["reward"])
            sequences.append(tokenizer(text + tokenizer.eos_token * (sample["finish_reason"] == "stop")).input_ids)
    harness.check(len(rewards) == 12 and same(torch.tensor(rewards), theirs(model, sequences)),
                  "a reward is the score of prompt and completion")


def main():
    torch.set_num_threads(1)
    sys.argv.append("mpirun.openmpi")
    run, spec, start = prepare(sys.argv[1:4])
    train(run, spec, start)
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    exported = run.scratch / "exported"
    lines, sequences = make_lines(run)
    scores = ours(run, exported, lines)
    harness.check(same(scores, theirs(load(exported), sequences)),
                  "transformers gives the same scores")
    harness.check(bool((scores[::2] > scores[1::2]).float().mean() > 0.8),
                  "and chosen answers have the greater ones")
    check_rewards(run, load(exported))
    adapt(run, spec, start)
    merged = run.scratch / "merged"
    scores = ours(run, merged, lines)
    harness.check(same(scores, theirs(load(merged), sequences)), "and those of the merged model")
    base = load(start[1], num_labels=1)
    wrapped = peft.PeftModel.from_pretrained(base, run.scratch / "adapter")
    harness.check(same(scores, theirs(wrapped, sequences)),
                  "PEFT gives the scores of the adapter and its head")


main()
