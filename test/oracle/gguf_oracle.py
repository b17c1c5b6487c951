#!/usr/bin/env python3
"""GGUF files that the `gguf` package writes: imported, and executed as stored.

    gguf_oracle.py BIN FOLDER

The models are those of hf_models.py with random weights, written as
llama.cpp's converters write them. What is imported as f32 must be the model
again, bit for bit: config.json, every tensor, the tokens of texts; and
`tessera generate` must write the same greedy text with both. Packed numbers
must be what `gguf.quants` unpacks. A file whose matrices are executed in their own
blocks must give the log-probabilities of its dequantized import. Where a package is missing, prints so and
exits 0.
"""
import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys

try:
    import gguf
    import numpy
    import safetensors.numpy
    import sentencepiece
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
import hf_models
from serving import Server
from hf_tessera import cache_in
from gguf.constants import GGMLQuantizationType as Type

TEXTS = ["The command reads a file.", " two  spaces\n\n and lines\t", "Ünïcödé 中文字 😀",
         "it's 12345 o'clock, I'LL go", "", " ", "a\u200bb <s> </s> <|end|>!"]
VOCABULARY = 480
failures = count = 0


def fact(what, good, detail=""):
    global failures, count
    count += 1
    failures += not good
    print(f"{'ok' if good else 'FAIL'}: {what}{'' if good else ': '}{'' if good else detail}",
          flush=True)


def command(*arguments, code=0):
    done = subprocess.run([str(a) for a in arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if code is not None and done.returncode != code:
        sys.exit(f"{' '.join(map(str, arguments))}\n  exit code "
                 f"{done.returncode}: {done.stderr[-2000:]}")
    return done


# ---- what llama.cpp's converters do --------------------------------------

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm",
         "block_sparse_moe.gate": "ffn_gate_inp",
         "block_sparse_moe.experts.w1": "ffn_gate_exps",
         "block_sparse_moe.experts.w2": "ffn_down_exps",
         "block_sparse_moe.experts.w3": "ffn_up_exps",
         "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv",
         "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
         "mlp.c_proj": "ffn_down"}
POST = {"post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm"}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm",
       "lm_head": "output", "transformer.wte": "token_embd",
       "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"}


def permuted(value, heads):
    return (value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
            .swapaxes(1, 2).reshape(value.shape))


def converted(family, fields, tensors):
    """(name in GGUF, value), stacks of experts together."""
    stacks = {}
    names = {**NAMES, **(POST if family in ("gemma2", "gemma3") else {})}
    for name, value in tensors.items():
        stem, suffix = name.rsplit(".", 1)
        if "norm" in name.rsplit(".", 2)[1] and family.startswith("gemma"):
            value = value + numpy.float32(1)
        if family == "gpt2" and stem.rsplit(".", 1)[1] in ("c_attn", "c_proj", "c_fc") \
                and suffix == "weight":
            value = value.T
        if family in ("llama", "mistral", "mixtral"):
            for part, heads in (("q_proj", "num_attention_heads"),
                                ("k_proj", "num_key_value_heads")):
                if stem.endswith(part):
                    value = permuted(value, fields[heads])
        parts = stem.split(".")
        if len(parts) < 3 or not parts[2].isdigit():
            yield f"{TOP[stem]}.{suffix}", value
            continue
        block, rest = parts[2], parts[3:]
        if "experts" in rest:
            which = f"blk.{block}.{names['.'.join(rest[:2] + rest[3:])]}.weight"
            stacks.setdefault(which, {})[int(rest[2])] = value
            continue
        yield f"blk.{block}.{names['.'.join(rest)]}.{suffix}", value
    for name, experts in stacks.items():
        yield name, numpy.stack([experts[i] for i in range(len(experts))])


def hyperparameters(writer, family, fields):
    arch = writer.arch
    get = fields.get
    writer.add_context_length(get("max_position_embeddings", get("n_positions")))
    writer.add_embedding_length(get("hidden_size", get("n_embd")))
    writer.add_block_count(get("num_hidden_layers", get("n_layer")))
    writer.add_feed_forward_length(get("intermediate_size", 4 * get("n_embd", 0)))
    writer.add_head_count(get("num_attention_heads", get("n_head")))
    writer.add_file_type(0)
    if family == "gpt2":
        writer.add_layer_norm_eps(fields["layer_norm_epsilon"])
        return
    writer.add_head_count_kv(fields["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(fields["rms_norm_eps"])
    writer.add_rope_freq_base(fields["rope_theta"])
    dim = get("head_dim", fields["hidden_size"] // fields["num_attention_heads"])
    if "head_dim" in fields:
        writer.add_key_length(dim)
        writer.add_value_length(dim)
    turning = int(dim * get("partial_rotary_factor", 1))
    if family in ("llama", "mistral", "mixtral", "phi3"):
        writer.add_rope_dimension_count(turning)
        writer.add_vocab_size(fields["vocab_size"])
    if get("sliding_window"):
        writer.add_sliding_window(fields["sliding_window"])
    if family == "mixtral":
        writer.add_expert_count(fields["num_local_experts"])
        writer.add_expert_used_count(fields["num_experts_per_tok"])
    if family == "gemma2":
        writer.add_attn_logit_softcapping(fields["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(fields["final_logit_softcapping"])
    if family == "gemma3":
        writer.add_uint32(f"{arch}.attention.sliding_window_pattern",
                          fields["sliding_window_pattern"])
    scaling = get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        plain = 1 / fields["rope_theta"] ** (
            torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        writer.add_tensor("rope_freqs.weight", (
            plain / hf_models.stretched(plain, scaling)).float().numpy())
    if scaling.get("type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(fields["original_max_position_embeddings"])
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", numpy.array(
                scaling[f"{kind}_factor"], dtype=numpy.float32))


# ---- tokenizers -----------------------------------------------------------

def corpus(folder):
    file = folder / "corpus.txt"
    lines = [f"The {a} {b} {c} 12{i} files, it's the {b}'s  {a}."
             for i, (a, b, c) in enumerate(
                 (a, b, c) for a in ("command", "user", "server", "Ünïcödé")
                 for b in ("reads", "writes", "opens") for c in ("a", "no", "中文"))]
    file.write_text("\n".join(lines * 4))
    return file


class BytePairs:
    """Of GPT-2's or Qwen2's kind."""

    def __init__(self, folder, pre):
        self.pre, self.model = pre, "gpt2"
        self.whole = tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        pieces = tokenizers.pre_tokenizers
        if pre == "gpt-2":
            tokenizer.pre_tokenizer = pieces.ByteLevel(add_prefix_space=False)
        elif pre == "smollm":
            tokenizer.pre_tokenizer = pieces.Sequence(
                [pieces.Digits(individual_digits=True),
                 pieces.ByteLevel(add_prefix_space=False)])
        else:
            tokenizer.normalizer = tokenizers.normalizers.NFC()
            tokenizer.pre_tokenizer = pieces.Sequence([
                pieces.Split(tokenizers.Regex(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
                    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
                pieces.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        tokenizer.train([str(corpus(folder))], tokenizers.trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=["<|end|>"], show_progress=False,
            initial_alphabet=pieces.ByteLevel.alphabet()))
        self.end = tokenizer.token_to_id("<|end|>")

    def write(self, writer):
        model = json.loads(self.whole.to_str())["model"]
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        # Llama.cpp fills the vocabulary up.
        writer.add_token_list(tokens + ["[PAD0]", "[PAD1]"])
        writer.add_token_types([3 if t == "<|end|>" else 1 for t in tokens] + [5, 5])
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m)
                                 for m in model["merges"]])
        writer.add_eos_token_id(self.end)
        writer.add_add_bos_token(False)

    def encode(self, text):
        return self.whole.encode(text).ids


class NoTokenizer:
    """Of files of weights alone, as llama-bench reads them."""

    def write(self, writer):
        writer.add_tokenizer_model("no_vocab")


class SentencePiece:
    def __init__(self, folder, prefix):
        self.prefix, self.model = prefix, "llama"
        path = folder / f"pieces-{prefix}"
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus(folder)), model_prefix=str(path), vocab_size=VOCABULARY - 20,
            model_type="bpe", byte_fallback=True, add_dummy_prefix=prefix,
            remove_extra_whitespaces=False, normalization_rule_name="identity",
            character_coverage=0.98, user_defined_symbols=["<turn>"],
            hard_vocab_limit=False, minloglevel=2, num_threads=1)
        self.whole = sentencepiece.SentencePieceProcessor(model_file=f"{path}.model")

    def write(self, writer):
        pieces, whole = range(self.whole.vocab_size()), self.whole
        kind = lambda i: (2 if whole.is_unknown(i) else 3 if whole.is_control(i)
                          else 6 if whole.is_byte(i)
                          else 4 if whole.id_to_piece(i) == "<turn>" else 1)
        writer.add_tokenizer_model("llama")
        writer.add_token_list([whole.id_to_piece(i) for i in pieces])
        writer.add_token_scores([whole.get_score(i) for i in pieces])
        writer.add_token_types([kind(i) for i in pieces])
        writer.add_bos_token_id(whole.bos_id())
        writer.add_eos_token_id(whole.eos_id())
        writer.add_unk_token_id(whole.unk_id())
        writer.add_add_bos_token(True)
        if not self.prefix:
            writer.add_add_space_prefix(False)

    def encode(self, text):
        return [self.whole.bos_id()] + self.whole.encode(text)


def compare_tokens(family, directory, tokenizer):
    whole = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    texts = TEXTS if tokenizer.model == "gpt2" else [
        t for t in TEXTS if "<s>" not in t] + ["<turn>user\n  files <turn>"]
    for text in texts:
        ours, theirs = whole.encode(text).ids, tokenizer.encode(text)
        if tokenizer.model == "llama" and tokenizer.prefix and "<turn>" in text:
            continue  # a space stands before each text behind a token there
        fact(f"{family}: tokens of {text!r}", ours == theirs, f"{ours} {theirs}")


# ---- models ---------------------------------------------------------------

CASES = {"gpt2": "gpt2", "llama": "llama", "mistral": "llama", "mixtral": "llama",
         "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2",
         "gemma3": "gemma3", "phi3": "phi3"}
# What the format cannot say is as published models have it.
CHANGES = {"llama": {"rope_scaling": dict(
               rope_type="llama3", factor=8.0, low_freq_factor=1.0,
               high_freq_factor=4.0, original_max_position_embeddings=8192)},
           "gemma2": {"query_pre_attn_scalar": 24},
           "gemma3": {"query_pre_attn_scalar": 16}}
# Dropout and the like, which are no part of the format, or other words for it.
UNSAID = {"embd_pdrop", "attn_pdrop", "resid_pdrop", "use_sliding_window"}


def tokenizer_of(family, folder):
    if family in ("gpt2", "qwen2", "qwen3", "mistral"):
        return BytePairs(folder, {"gpt2": "gpt-2", "mistral": "smollm"}.get(family, "qwen2"))
    return SentencePiece(folder, prefix=not family.startswith("gemma"))


def make(family, folder, **others):
    fields = hf_models.FAMILIES[family]
    fields.update({**CHANGES.get(family, {}), "vocab_size": VOCABULARY + 9, **others})
    twin = hf_models.build(family)
    hf_models.random_weights(twin, 7)
    for name, value in twin.named_parameters():
        if family.startswith("gemma") and "norm" in name:
            value.data.copy_(value.data.bfloat16())  # so that 1 more is exact
    tensors = {n: p.data.contiguous().numpy() for n, p in twin.named_parameters()}
    original = folder / "original"
    original.mkdir(parents=True)
    (original / "config.json").write_text(json.dumps(fields, indent=2))
    safetensors.numpy.save_file(tensors, original / "model.safetensors",
                                metadata={"format": "pt"})
    return fields, tensors, original


def write(path, family, fields, tensors, tokenizer, change=None):
    writer = gguf.GGUFWriter(str(path), CASES[family])
    hyperparameters(writer, family, fields)
    tokenizer.write(writer)
    writer.add_chat_template("{{ bos_token }}{{ messages[0]['content'] }}")
    for name, value in converted(family, fields, tensors):
        if change:
            value, kind = change(name, value)
            writer.add_tensor(name, value, raw_dtype=kind)
        else:
            writer.add_tensor(name, numpy.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def plain(value):
    """Lists and numbers as JSON has them, without what says nothing."""
    return None if value in (None, False) else value


def compare(binaries, folder, family):
    fields, tensors, original = make(family, folder)
    tokenizer = tokenizer_of(family, folder)
    path, out = folder / "model.gguf", folder / "imported"
    write(path, family, fields, tensors, tokenizer)
    done = command(binaries / "tessera", "import", path, "-o", out, "--dtype", "f32")
    config = json.loads((out / "config.json").read_text())
    other = {k: (v, config.get(k)) for k, v in fields.items() if k not in UNSAID
             and plain(v) != plain(config.get(k))}
    fact(f"{family}: config.json", not other, f"{other}")
    read = safetensors.numpy.load_file(out / "model.safetensors")
    fact(f"{family}: {len(tensors)} tensors", set(read) == set(tensors),
         f"{set(read) ^ set(tensors)}")
    wrong = [n for n in tensors if n in read and not numpy.array_equal(
        read[n].view(numpy.uint32), tensors[n].view(numpy.uint32))]
    fact(f"{family}: their numbers", not wrong, f"{wrong[:5]}")
    compare_tokens(family, out, tokenizer)
    return original, out, done.stderr


def compare_texts(binaries, family, original, out, file):
    shutil.copy(out / "tokenizer.json", original)
    texts = [command(binaries / "tessera", "generate", each, "--prompt", "The command",
                     "--max-tokens", 24, "--temperature", 0, "--ignore-end", "--quiet",
                     "--set", "precision.compute=fp32", "--set",
                     "inference.context=64").stdout for each in (original, out, file)]
    fact(f"{family}: the same greedy text of the directory and of the file",
         texts[0] == texts[1] == texts[2] and len(texts[0]) > 20, f"{texts}")


# ---- packed numbers -------------------------------------------------------

PACKED = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q4_K, Type.Q5_K,
          Type.Q6_K, Type.MXFP4, Type.F16, Type.BF16]
# Where the f16 scales of a block stand.
SCALES = {Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,)}


def packed(kind, value, generator, deviation=0.01):
    if kind not in SCALES:
        return gguf.quants.quantize(value, kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = generator.integers(0, 256, (*value.shape[:-1], value.shape[-1] // elements, size),
                              dtype=numpy.uint8)
    for at in SCALES[kind]:
        scale = generator.normal(0, deviation, data.shape[:-1]).astype(numpy.float16)
        data[..., at:at + 2] = scale[..., None].view(numpy.uint8)
    return data.reshape(*value.shape[:-1], -1)


def compare_packed(binaries, folder):
    # Rows of whole blocks of 256.
    hf_models.FAMILIES["llama"].update(hidden_size=256, intermediate_size=512,
                                       num_attention_heads=4)
    fields, tensors, _ = make("llama", folder)
    generator = numpy.random.default_rng(3)
    expected, turn = {}, 0

    def change(name, value):
        nonlocal turn
        if value.ndim < 2:
            expected[name] = value
            return value, Type.F32
        kind = PACKED[turn % len(PACKED)]
        turn += 1
        data = packed(kind, value, generator)
        expected[name] = gguf.quants.dequantize(data, kind)
        return data, kind
    path = folder / "model.gguf"
    write(path, "llama", fields, tensors, SentencePiece(folder, True), change)
    names = {n: next(iter(converted("mistral", fields, {n: v})))[0]
             for n, v in tensors.items()}
    for dtype in ("f32", "bf16", "f16"):
        out = folder / dtype
        done = command(binaries / "tessera", "import", path, "-o", out, "--dtype", dtype)
        with safetensors.safe_open(out / "model.safetensors", "pt") as file:
            wrong = []
            for name in tensors:
                value = expected[names[name]]
                for part in ("q_proj", "k_proj"):
                    if part in name:
                        heads = fields["num_attention_heads" if part[0] == "q"
                                       else "num_key_value_heads"]
                        value = (value.reshape(heads, -1, 2, value.shape[1])
                                 .swapaxes(1, 2).reshape(value.shape))
                value = torch.from_numpy(value.copy())
                want = {"f32": value, "bf16": value.bfloat16(), "f16": value.half()}[dtype]
                got = file.get_tensor(name)
                if got.dtype != want.dtype or not torch.equal(got, want):
                    wrong.append(name)
        fact(f"packed numbers as {dtype}", not wrong, f"{wrong[:5]}")
    fact("all types were there", all(f"{k.name}" in done.stderr for k in PACKED), done.stderr)


# ---- executed as stored ---------------------------------------------------

def complete(binaries, place, *flags, **fields):
    """The server's log-probabilities of one prompt, and what it says."""
    with Server([str(binaries / "tessera"), "serve", str(place), "--port=0",
                 "--set=inference.context=128", "--set=precision.compute=fp32",
                 *flags]) as server:
        status, answer = server.post(
            "/v1/completions", prompt="The command reads a file, it's 12345 o'clock. " * 2, **fields)
        assert status == 200, answer
        return answer["choices"][0]["logprobs"], "".join(server.lines)


def log_probabilities(binaries, place, *flags):
    """Of the tokens of a prompt, as the server has them, and what it says."""
    answer, said = complete(binaries, place, *flags, echo=True, max_tokens=0, logprobs=0)
    return numpy.array([m for m in answer["token_logprobs"] if m is not None]), said


def more_bits(name):
    """As llama-quantize chooses, in some layers alone."""
    parts = name.split(".")
    return name == "output.weight" or (
        parts[0] == "blk" and int(parts[1]) in (0, 3, 6, 7) and parts[2] in ("attn_v", "ffn_down"))


# The type of each matrix: one for all; what llama-quantize does, where some
# have more bits; types without a kernel among others.
STORED = {"Q8_0": lambda name, i: Type.Q8_0,
          "Q4_0": lambda name, i: Type.Q6_K if name == "output.weight" else Type.Q4_0,
          "Q4_K": lambda name, i: Type.Q6_K if more_bits(name) else Type.Q4_K,
          "Q5_K": lambda name, i: Type.Q5_K,
          "mixed": lambda name, i: [Type.Q4_0, Type.Q8_0, Type.Q5_1, Type.MXFP4, Type.F16,
                                   Type.BF16][i % 6]}


def compare_bytes(binaries, path, imported):
    """After a prompt of many rows: with dequantized matrices, activations of bf16 and of int8."""
    places = [(imported, ()), (path, ("auto",)), (path, ("int8",))]
    tops = [sorted(complete(binaries, place, max_tokens=1, logprobs=5, *[
        flag for kind in kinds for flag in ("--set=precision.compute=bf16",
                                            f"--set=inference.activations={kind}")])[0]
                   ["top_logprobs"][0].values()) for place, kinds in places]
    expected, bf16, int8 = map(numpy.array, tops)
    errors = [numpy.abs(ours - expected).max() for ours in (bf16, int8)]
    fact(f"int8 activations: the likeliest tokens to {errors[1]:.1e}, in bf16 to {errors[0]:.1e}",
         # Tokens of one text, such as parts of a character, are one entry.
         len(int8) > 2 and errors[1] < 0.1 and (bf16 != int8).any(), errors)


def compare_stored(binaries, folder, kinds):
    generator = numpy.random.default_rng(5)
    hf_models.FAMILIES["llama"].update(num_hidden_layers=8)
    for what in kinds:
        kind_of = STORED[what]
        place, number = folder / what, 0
        fields, tensors, _ = make("llama", place)
        counts = {}

        def change(name, value):
            nonlocal number
            if value.ndim < 2:
                return value, Type.F32
            kind = kind_of(name, number)
            number += 1
            counts[kind.name] = counts.get(kind.name, 0) + 1
            return packed(kind, value, generator, deviation=5e-5), kind
        path, out = place / "model.gguf", place / "imported"
        write(path, "llama", fields, tensors, SentencePiece(place, True), change)
        command(binaries / "tessera", "import", path, "-o", out, "--dtype", "f32")
        ours, said = log_probabilities(binaries, path)
        dequantized, _ = log_probabilities(binaries, out)
        error = numpy.abs(ours - dequantized).max()
        fact(f"{what}: {len(ours)} log-probabilities as stored are those of the dequantized "
             f"matrices, to {error:.1e}", len(ours) > 40 and error < 1e-4)
        if what == "Q4_K":
            compare_bytes(binaries, path, out)
        without = {k: n for k, n in counts.items() if k == "Q5_1"}
        line = ", ".join(f"{n} {k}" for k, n in sorted(without.items()))
        known = "dequantized as they are loaded"
        line = line and f"{known}: {line}, which no kernel reads as stored\n"
        fact(f"{what}: says what is {known}", line in said and (line or known not in said), said)
    for flags, error in (
            (["--quant", "int8"], "inference.quant: the weights of {} are quantized already, and are "
             "executed as they are stored; omit --quant"),
            (["--quant-group", "64"], "inference.group: the weights of {} are quantized already, in "
             "groups of their own; omit --quant-group")):
        done = command(binaries / "tessera", "generate", path, "--prompt", "a", *flags, code=1)
        fact(f"{flags[0]} is refused", error.format(path) in done.stderr, done.stderr)


def compare_sizes(binaries, folder):
    """A table that is also the head is most of these files, and is held once."""
    generator = numpy.random.default_rng(9)
    for kind, tied in ((Type.Q6_K, True), (Type.Q8_0, False)):
        place = folder / kind.name
        fields, tensors, _ = make("llama", place, num_hidden_layers=1, vocab_size=6000,
                                  tie_word_embeddings=tied)
        write(place / "model.gguf", "llama", fields, tensors, NoTokenizer(),
              lambda name, value: (value, Type.F32) if value.ndim < 2
              else (packed(kind, value, generator, deviation=5e-5), kind))
        done = command(binaries / "tessera", "bench", "infer", place / "model.gguf", "--pp", 1,
                       "--tg", 0, "--repeat", 1, "--json")
        held = json.loads(done.stdout.splitlines()[0])["model_size"]
        tensors = sum(t.n_bytes for t in gguf.GGUFReader(place / "model.gguf").tensors)
        fact(f"{kind.name}: {held} bytes of weights in memory for {tensors} in the file",
             0.98 * tensors <= held <= 1.05 * tensors)
        refusal = subprocess.run([binaries / "tessera", "generate", place / "model.gguf", "--prompt", "a"],
                                 capture_output=True, text=True)
        fact(f"{kind.name}: without a tokenizer: {refusal.stderr.strip()}",
             refusal.returncode == 1 and "tokenizer.json" in refusal.stderr and
             refusal.stderr.count("\n") == 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--texts", action="store_true", help="generate with some, too")
    parser.add_argument("--stored", action="append", choices=list(STORED),
                        help="of the files that are executed as stored; default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shutil.rmtree(options.folder, ignore_errors=True)
    cache_in(options.folder)
    for family in CASES:
        folder = options.folder / family
        original, out, _ = compare(options.binaries, folder, family)
        if options.texts and family in ("llama", "gemma2"):
            compare_texts(options.binaries, family, original, out, folder / "model.gguf")
    compare_packed(options.binaries, options.folder / "packed")
    compare_stored(options.binaries, options.folder / "stored", options.stored or list(STORED))
    compare_sizes(options.binaries, options.folder / "sizes")
    print(f"{count} comparisons, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
