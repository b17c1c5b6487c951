"""A task that a program can check, and a model that seldom does it: reversing
some letters. The model is trained on answers that are right in 8 % of cases,
and else one of the other orders of the letters."""
import itertools
import json
import random

import harness

LETTERS = "abcdefghij"


def words(letters):
    return ["".join(word) for word in itertools.permutations(LETTERS, letters)]


def write_examples(path, letters, count, seed, right=0.08):
    draw = random.Random(seed)
    every = words(letters)
    lines = []
    for _ in range(count):
        word = draw.choice(every)
        answer = word[::-1]
        if draw.random() >= right:
            others = ["".join(order) for order in itertools.permutations(word)]
            answer = draw.choice([other for other in others if other != word[::-1]])
        lines.append(json.dumps({"prompt": f"{word}>", "completion": answer}))
    path.write_text("\n".join(lines) + "\n")


def write_prompts(path, letters):
    path.write_text("".join(
        json.dumps({"prompt": f"{word}>", "answer": word[::-1]}) + "\n"
        for word in words(letters)))


def make_base(tessera, scratch, spec, letters, steps, sets, examples=4000):
    """The model's directory, and the file of prompts."""
    folder = scratch / "tokenizer"
    folder.mkdir(parents=True)
    (scratch / "letters.jsonl").write_text(json.dumps({"text": LETTERS}) + "\n")
    harness.run(tessera, "data", "tokenizer", "--vocab", 257, "--input",
                scratch / "letters.jsonl", "-o", folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|endoftext|>"}))
    write_examples(scratch / "examples.jsonl", letters, examples, 1)
    harness.run(tessera, "data", "chat", "--tokenizer", folder, "--input",
                scratch / "examples.jsonl", "--sequence", 128, "-o",
                scratch / "examples")
    write_prompts(scratch / "prompts.jsonl", letters)
    keys = [word for key in sets for word in ("--set", key)]
    harness.run(tessera, "compile", spec, "--set", "data.documents=separate",
                "--set", "batch.sequence=128", *keys, "--target", harness.processor_target(),
                "-o", scratch / "sft")
    harness.run(scratch / "sft", "--data", scratch / "examples", "--out",
                scratch / "base", "--steps", steps, "--quiet",
                "--checkpoint-every", 0)
    harness.run(tessera, "export", scratch / "base", "-o", scratch / "model")
    return scratch / "model", scratch / "prompts.jsonl"
