"""Exports a run and lets transformers write what `tessera generate` writes."""
import os
import sys

import torch
import transformers

from harness import Prepared, check, run

COUNT = 40


def main():
    made = Prepared(*sys.argv[1:3])
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    env["XDG_CACHE_HOME"] = str(made.scratch / "cache")
    trained, out = made.scratch / "run", made.scratch / "exported"
    run(made.executable("fp32"), "--data", made.tokens(), "--out", trained,
        "--steps", 20, "--set", "lr_schedule.total=20", "--set",
        "lr_schedule.warmup=2", "--checkpoint-every", 20)
    run(made.tessera, "export", trained, "-o", out)
    prompt = "The command reads"
    ours = run(made.tessera, "generate", trained, "--prompt", prompt, "--temperature", 0,
               "--max-tokens", COUNT, "--ignore-end", "--quiet", env=env).stdout
    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    tokens = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        for _ in range(COUNT):
            best = model(tokens).logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, best], 1)
    theirs = tokenizer.decode(tokens[0], skip_special_tokens=True,
                              clean_up_tokenization_spaces=False) + "\n"
    check(ours == theirs and len(ours) > len(prompt) + COUNT // 2,
          "transformers writes the same greedy text")
    own = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(trained / "tokenizer.json"))
    text = "Every user writes a file, 12 Ünïcödé <|endoftext|>"
    check(tokenizer(text).input_ids == own(text).input_ids
          and tokenizer.eos_token == "<|endoftext|>", "and reads the same tokens")


main()
