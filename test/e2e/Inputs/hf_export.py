"""Exports a run and lets transformers write what `tessera generate` writes."""
import os
import sys

import peft
import torch
import transformers

from harness import RECIPE, SPEC, Prepared, check, processor_target, refuses, run

COUNT = 40
PROMPT = "The command reads"


def greedy(model, tokenizer):
    tokens = tokenizer(PROMPT, return_tensors="pt").input_ids
    with torch.no_grad():
        for _ in range(COUNT):
            best = model(tokens).logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, best], 1)
    return tokenizer.decode(tokens[0], skip_special_tokens=True,
                            clean_up_tokenization_spaces=False) + "\n"


def adapters(made, env, base):
    """LoRA on the exported model: PEFT writes what we do with the adapter, and so
    does transformers with the merged model."""
    program, trained = made.scratch / "tune", made.scratch / "adapted"
    run(made.tessera, "compile", SPEC, "--recipe", RECIPE, "--target", processor_target(),
        "--set", "adapter.kind=lora", "--set", "adapter.target=[c_attn, c_proj]",
        "--set", "adapter.rank=4", "--set", "optimizer.lr=0.02",
        "--set", "lr_schedule.warmup=0", "-o", program)
    # Ended before its first checkpoint, it is what it began from.
    begin = [program, "--data", made.tokens(), "--out", trained, "--quiet"]
    run(*begin, "--init-from", base, "--steps", 0)
    refuses("a run without its weights", f"began from the weights of '{base}'", env=env)(
        *begin, "--resume", "--steps", 10)
    run(*begin, "--init-from", base, "--resume", "--steps", 10, "--checkpoint-every", 10)
    refuses("a run with other weights", "did not begin from the weights of", env=env)(
        *begin, "--init-from", made.scratch / "run/step-000020", "--resume", "--steps", 11)
    run(made.tessera, "export", trained, "-o", made.scratch / "adapter")
    run(made.tessera, "export", trained, "--merge", "-o", made.scratch / "merged")
    ours = run(made.tessera, "generate", made.scratch / "merged", "--prompt", PROMPT,
               "--temperature", 0, "--max-tokens", COUNT, "--ignore-end", "--quiet",
               env=env).stdout
    refuses("a run with an adapter", "merge it with tessera export --merge", env=env)(
        made.tessera, "generate", trained, "--prompt", PROMPT, "--quiet")
    tokenizer = transformers.AutoTokenizer.from_pretrained(made.scratch / "adapter")
    load = transformers.AutoModelForCausalLM.from_pretrained
    wrapped = peft.PeftModel.from_pretrained(load(base), made.scratch / "adapter").eval()
    merged = load(made.scratch / "merged").eval()
    check(ours == greedy(wrapped, tokenizer), "PEFT writes the text of the adapter")
    check(ours == greedy(merged, tokenizer), "and transformers that of the merged model")
    check(ours != greedy(load(base).eval(), tokenizer), "which is not the base's")


def main():
    made = Prepared(*sys.argv[1:3])
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    env.setdefault("XDG_CACHE_HOME", str(made.scratch / "cache"))
    trained, out = made.scratch / "run", made.scratch / "exported"
    run(made.executable("fp32"), "--data", made.tokens(), "--out", trained,
        "--steps", 20, "--set", "lr_schedule.total=20", "--set",
        "lr_schedule.warmup=2", "--checkpoint-every", 20)
    run(made.tessera, "export", trained, "-o", out)
    ours = run(made.tessera, "generate", trained, "--prompt", PROMPT, "--temperature", 0,
               "--max-tokens", COUNT, "--ignore-end", "--quiet", env=env).stdout
    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    check(ours == greedy(model, tokenizer) and len(ours) > len(PROMPT) + COUNT // 2,
          "transformers writes the same greedy text")
    own = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(trained / "tokenizer.json"))
    text = "Every user writes a file, 12 Ünïcödé <|endoftext|>"
    check(tokenizer(text).input_ids == own(text).input_ids
          and tokenizer.eos_token == "<|endoftext|>", "and reads the same tokens")
    adapters(made, env, out)


main()
