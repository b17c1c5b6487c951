"""Exports reward models and lets transformers and PEFT give the scores that our programs give.

    hf_reward_export.py BIN SCRATCH
"""
import sys

import peft
import safetensors.torch
import torch
import transformers

import harness
from preference import pairs
from reward import adapt, prepare, train

LENGTH = 48


def tokens_of(run):
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.scratch / "exported")
    texts = [each["prompt"] + each[answer] + tokenizer.eos_token
             for each in pairs()[:8] for answer in ("chosen", "rejected")]
    return [tokenizer(text).input_ids[:LENGTH] for text in texts]


def ours(run, directory, sequences):
    """Scores by the inference programs of a directory."""
    program, given, got = (run.scratch / f"{directory.name}.{end}"
                           for end in ("tsr", "in", "out"))
    harness.run(run.binaries / "tessera", "compile", directory, "--mode", "infer",
                "--no-weights", "--set", f"inference.context={LENGTH}", "--target",
                harness.processor_target(), "-o", program)
    tokens = torch.zeros(len(sequences), 1, LENGTH, dtype=torch.int32)
    for row, each in zip(tokens, sequences):
        row[0, :len(each)] = torch.tensor(each)
    lengths = torch.tensor([[len(each)] for each in sequences], dtype=torch.int32)
    safetensors.torch.save_file({"tokens": tokens, "lengths": lengths}, given)
    harness.run(run.binaries / "tessera-run", program, "--program", f"embed_1x{LENGTH}",
                "--weights", directory, "--inputs", given, "--outputs", got, "--runs",
                len(sequences))
    return safetensors.torch.load_file(got)["scores"].flatten()


def theirs(model, sequences):
    model.eval()
    with torch.no_grad():
        return torch.cat([model(torch.tensor([each])).logits[0] for each in sequences])


def same(one, other):
    return bool(((one - other).abs() <= 1e-4 * other.abs().max()).all())


def main():
    torch.set_num_threads(1)
    sys.argv.append("mpirun.openmpi")
    run, spec, start = prepare(sys.argv[1:4])
    train(run, spec, start)
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    exported, sequences = run.scratch / "exported", tokens_of(run)
    scores = ours(run, exported, sequences)
    harness.check(same(scores, theirs(load(exported), sequences)),
                  "transformers gives the same scores")
    harness.check(bool((scores[::2] > scores[1::2]).float().mean() > 0.8),
                  "and chosen answers have the greater ones")
    adapt(run, spec, start)
    merged = run.scratch / "merged"
    scores = ours(run, merged, sequences)
    harness.check(same(scores, theirs(load(merged), sequences)), "and those of the merged model")
    base = load(start[1], num_labels=1)
    wrapped = peft.PeftModel.from_pretrained(base, run.scratch / "adapter")
    harness.check(same(scores, theirs(wrapped, sequences)),
                  "PEFT gives the scores of the adapter and its head")


main()
