"""What models with weights as integers or e4m3 write on the emulated GPU: token by
token what the CPU writes, of the same weights."""
import json
import os
import random
import shutil
import struct
import sys

import weight_cache
from harness import Prepared, check, run, write_safetensors

PROMPT, TOKENS = "The command opens the file", 10
EXPERTS, HIDDEN, INNER = 4, 64, 48
MIXTURE = weight_cache.CONFIG | {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"],
    "num_hidden_layers": 1, "intermediate_size": INNER, "sliding_window": None,
    "num_local_experts": EXPERTS, "num_experts_per_tok": 2,
    "tie_word_embeddings": False}


def write_mixture(folder, tokenizer):
    """Of one layer, random weights in bf16."""
    draw = random.Random(5)
    experts = "model.layers.0.block_sparse_moe"
    shapes = {"model.embed_tokens": (400, HIDDEN), "lm_head": (400, HIDDEN),
              "model.norm": (HIDDEN,), f"{experts}.gate": (EXPERTS, HIDDEN)}
    for name, shape in (("self_attn.q_proj", (HIDDEN, HIDDEN)), ("self_attn.k_proj", (HIDDEN // 2, HIDDEN)),
                        ("self_attn.v_proj", (HIDDEN // 2, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HIDDEN)),
                        ("input_layernorm", (HIDDEN,)), ("post_attention_layernorm", (HIDDEN,))):
        shapes[f"model.layers.0.{name}"] = shape
    for i in range(EXPERTS):
        for name, shape in (("w1", (INNER, HIDDEN)), ("w2", (HIDDEN, INNER)), ("w3", (INNER, HIDDEN))):
            shapes[f"{experts}.experts.{i}.{name}"] = shape

    def values(shape):
        if len(shape) == 1:
            return struct.pack("<f", 1.0)[2:] * shape[0]
        return b"".join(struct.pack("<f", draw.gauss(0, 0.3))[2:]
                        for _ in range(shape[0] * shape[1]))

    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MIXTURE))
    shutil.copy(tokenizer, folder)
    write_safetensors(folder / "model.safetensors", {
        f"{name}.weight": ("BF16", list(shape), values(shape))
        for name, shape in shapes.items()})


def same_text(made, folder, device, flags, cubins=True):
    # Sums of fp32 in other orders choose the same tokens.
    settings = os.environ | {"XDG_CACHE_HOME": str(made.scratch / "cache")}
    if not cubins:
        settings["CUDACXX"] = ""
    texts = [run(made.tessera, "generate", folder, "--prompt", PROMPT,
                 "--temperature", 0, "--max-tokens", TOKENS, "--ignore-end",
                 "--quiet", "--set", "precision.compute=fp32", "--set",
                 "inference.context=32", "--set", "inference.chunk=8", "--set",
                 "inference.batch=1", *flags.split(), "--device", each,
                 env=settings).stdout
             for each in ("cpu", device)]
    check(texts[0] == texts[1] and len(texts[0]) > len(PROMPT) + 4,
          f"{folder.name} {flags}: cpu and {device} write the same text")
    return texts[0]


def main():
    made = Prepared(*sys.argv[1:3])
    tokenizer = made.tokens().parent / "tokenizer.json"
    llama, mixture = made.scratch / "llama", made.scratch / "mixture"
    weight_cache.write_model(llama, tokenizer, 1)
    write_mixture(mixture, tokenizer)
    # What runs is never a cubin. Below, nvcc has kernels of every format; here it would only take
    # most of the time.
    texts = {same_text(made, llama, "cuda-emu", flags, cubins=False)
             for flags in ("--quant none", "--quant int8", "--quant int4",
                           "--quant int4 --quant-group 64 --quant-zeros",
                           "--quant fp8")}
    check(len(texts) > 2, "what is rounded differs")
    stored = made.scratch / "stored"
    run(made.tessera, "quantize", llama, "-o", stored, "--quant", "int4", "--quant-zeros")
    same_text(made, stored, "cuda-emu:sm_90a", "--set inference.group=32")
    same_text(made, mixture, "cuda-emu", "--quant int8")
    same_text(made, mixture, "cuda-emu:sm_90a", "--quant int4 --quant-zeros")
    same_text(made, mixture, "cuda-emu:sm_90a", "--quant fp8 --quant-group 64")


if __name__ == "__main__":
    main()
