"""Weights that a server keeps for the next start: the same answers, from a file
that is believed only as long as the checkpoint is what it was."""
import json
import os
import random
import shutil
import struct
import sys

from harness import SOURCE, Prepared, check, run, write_safetensors

sys.path.insert(0, str(SOURCE / "test/runtime/serve"))
from serving import Server  # noqa: E402

VOCABULARY, HIDDEN, INNER, LAYERS = 400, 64, 160, 2
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
          "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
          "intermediate_size": INNER, "num_hidden_layers": LAYERS,
          "num_attention_heads": 4, "num_key_value_heads": 2,
          "hidden_act": "silu", "max_position_embeddings": 64,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "dtype": "bfloat16",
          "tie_word_embeddings": True}


def write_model(folder, tokenizer, seed):
    """Random weights in bf16."""
    draw = random.Random(seed)

    def matrix(*shape):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = (draw.gauss(0, 0.3) if len(shape) > 1 else 1.0 for _ in range(count))
        return ("BF16", list(shape), b"".join(struct.pack("<f", v)[2:] for v in values))

    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN),
               "model.norm.weight": matrix(HIDDEN)}
    for i in range(LAYERS):
        for name, shape in (("self_attn.q_proj", (HIDDEN, HIDDEN)), ("self_attn.k_proj", (HIDDEN // 2, HIDDEN)),
                            ("self_attn.v_proj", (HIDDEN // 2, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HIDDEN)),
                            ("mlp.gate_proj", (INNER, HIDDEN)), ("mlp.up_proj", (INNER, HIDDEN)),
                            ("mlp.down_proj", (HIDDEN, INNER)), ("input_layernorm", (HIDDEN,)),
                            ("post_attention_layernorm", (HIDDEN,))):
            tensors[f"model.layers.{i}.{name}.weight"] = matrix(*shape)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    shutil.copy(tokenizer, folder)
    write_safetensors(folder / "model.safetensors", tensors)


class Starts:
    def __init__(self, made, folder, cache):
        self.made, self.folder, self.cache = made, folder, cache
        self.env = {**os.environ, "XDG_CACHE_HOME": str(cache)}

    def files(self):
        return sorted((self.cache / "tessera/weights").glob("*.weights"))

    def text(self, *flags, expects=None):
        """What a server writes; of the line behind "ready" that is expected."""
        command = [self.made.tessera, "serve", self.folder, "--port", "0", *flags]
        with Server([str(part) for part in command], env=self.env) as server:
            status, body = server.post("/v1/completions", prompt="The command", max_tokens=24,
                                       temperature=0, ignore_eos=True)
            assert status == 200, body
            while expects and expects not in (line := server.log.readline()):
                check(line, f"the server says '{expects}'")
            self.said = "".join(server.lines)
        return body["choices"][0]["text"]


def keeps(starts, *flags):
    """The first start keeps weights, the second has them, and so has generate."""
    before = set(starts.files())
    text = starts.text(*flags, expects="weights are stored in")
    (kept,) = set(starts.files()) - before
    check(len(text) > 20 and starts.text(*flags, "--cache", "off") == text,
          f"{flags}: keeping changes no text")
    os.utime(kept, (1, 1))
    check(starts.text(*flags) == text and kept.stat().st_mtime > 1, f"{flags}: the next start has the same text")
    check(f"weights are mapped from {kept}" in starts.said, f"{flags}: and says where from")
    os.utime(kept, (1, 1))
    done = run(starts.made.tessera, "generate", starts.folder, "--prompt", "The command", "--temperature", 0,
               "--max-tokens", 24, "--ignore-end", "--quiet", *flags, env=starts.env)
    check(done.stdout == f"The command{text}\n" and kept.stat().st_mtime > 1, f"{flags}: generate has it, too")
    return text, kept


def main():
    made = Prepared(*sys.argv[1:3])
    tokenizer = made.tokens().parent / "tokenizer.json"
    folder = made.scratch / "model"
    write_model(folder, tokenizer, 1)
    starts = Starts(made, folder, made.scratch / "cache")
    starts.text("--cache", "off")
    check(not starts.files(), "--cache off keeps none")
    starts.text("--weight-cache", "0")
    check(not starts.files() and "weights are" not in starts.said, "--weight-cache 0 keeps none")
    texts = [keeps(starts), keeps(starts, "--quant", "int8"), keeps(starts, "--quant", "int4")]
    flags = ("--quant", "int4")
    text, kept = texts[2]

    starts.env["TESSERA_WEIGHT_CACHE"] = "0"
    check(starts.text(*flags) == text and "weights are" not in starts.said, "nor reads any, also by the environment")
    del starts.env["TESSERA_WEIGHT_CACHE"]
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    check(starts.text(*flags, "--cache", "readonly") == text and "is damaged" in starts.said
          and kept.read_bytes() == content, "a damaged file is not believed")
    check(starts.text(*flags, expects="weights are stored in") == text and kept.read_bytes() != content,
          "and is made anew")

    write_model(folder, tokenizer, 2)
    changed = starts.text(*flags, expects="weights are stored in")
    check(changed != text and changed == starts.text(*flags, "--cache", "off") == starts.text(*flags),
          "a changed checkpoint is read anew")

    other = Starts(made, folder, made.scratch / "full")
    (other.cache / "tessera").mkdir(parents=True)
    (other.cache / "tessera/weights").write_text("not a folder")
    check(other.text(*flags, expects="weights are not stored: ") == changed, "a cache that cannot be written is no error")


if __name__ == "__main__":
    main()
