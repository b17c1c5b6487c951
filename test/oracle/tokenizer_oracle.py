#!/usr/bin/env python3
"""Compares the runtime's tokenizer with Hugging Face `tokenizers`.

    tokenizer_oracle.py PROBE [--corpus FOLDER] [--texts N] [--seed N]

PROBE is the built bin/tokenizer-probe. Splitting: every assigned code point and
generated adversarial texts under each known pattern. Encoding: generated texts
and the corpus under tokenizers shaped like GPT-2's, Llama 3's and Qwen2's; ids
and decoded text must be equal. Training: merges and vocabulary must be equal. Where `tokenizers` is not installed, prints so and
exits 0.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

try:
    import tokenizers
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
    from tokenizers import normalizers, pre_tokenizers, trainers
except ImportError:
    print("SKIP: python package `tokenizers` is not installed")
    sys.exit(0)

GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# What the patterns treat differently, and what decoding may stumble over.
PARTS = [
    " ", "  ", "   ", "\n", "\r", "\r\n", "\n\n", "\t", "\v", "\f", "\x00",
    "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u180e", "\u2003", "\u2028",
    "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff", "\u200b", "\u200d",
    "'s", "'S", "'t", "'re", "'RE", "'Ve", "'m", "'LL", "'lL", "'d", "'", "''",
    "'\u017f", "'\u017fs", "\u2019s", "a", "the", "The", "TOKEN", "aaaa", "x1",
    "0", "7", "12", "123", "1234", "12345678", "\u0663\u0664", "\u2167", "\u00bd",
    "\u4e00", "\u4e2d\u6587", "\u547d\u4ee4\u884c", "\u3002", "\uff0c", "\u300a",
    "\U00020000", "\u3042", "\ud55c\uae00", "\u1112\u1161\u11ab", "e\u0301",
    "\u00e9", "\u0301", "\u0316\u0301", "a\u0323\u0307", "a\u0307\u0323",
    "\u1e9b\u0323", "\u212b", "\u2126", "\ufb01", "\u0958", "\u0915\u093c",
    "\U0001f600", "\U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea",
    "\u0627\u0644", "\u05d0", "\u0e01\u0e33", "\u01c5", "\u02b0", "\ue000",
    "\U0010ffff", "!", "?!", "...", "--", "(x)", "{}", "\\", "\"", "/usr/bin",
    "_", "-v", "<|endoftext|>", "<|endoftext", "<|im_start|>", "<|im_end|>",
    "<tool>", "<tool>>", "<pad>", "<br>", "\u00c5ngstr\u00f6m", "Angstro\u0308m",
]


def generated_texts(count, rng):
    texts = ["", " ", "a", "\x00"]
    for _ in range(count):
        length = rng.choice([1, 2, 3, 5, 8, 20, 60])
        texts.append("".join(rng.choice(PARTS) for _ in range(length)))
    return texts


def code_point_texts():
    """Every code point that Unicode 14, which both sides know, assigns."""
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        char = chr(c)
        if unicodedata.category(char) != "Cn":
            yield f"a{char}b {char}{char}1{char}\n '{char}  {char}"


def special_texts():
    yield "a" * 1_000_000
    yield " " * 100_000 + "x"
    yield "\n " * 50_000
    yield "ab" * 100_000
    yield "\u4e2d" * 50_000
    yield "a" + "\u0301\u0316" * 20_000


def train_reference(texts, vocab, min_frequency, pre_tokenizer, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=min_frequency, show_progress=False,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def with_ignore_merges(tokenizer):
    """Ignoring merges shows only on tokens that merging does not reach."""
    fields = json.loads(tokenizer.to_str())
    fields["model"]["ignore_merges"] = True
    fields["model"]["merges"] = [
        m for i, m in enumerate(fields["model"]["merges"]) if i % 7]
    return Tokenizer.from_str(json.dumps(fields))


def reference_tokenizers(texts):
    byte_level = pre_tokenizers.ByteLevel
    yield "gpt2", train_reference(
        texts, 2000, 0, byte_level(add_prefix_space=False))
    yield "gpt2 with prefix space", train_reference(
        texts, 1000, 0, byte_level(add_prefix_space=True))
    yield "whole", train_reference(
        texts, 1000, 0, byte_level(add_prefix_space=False, use_regex=False))
    llama = with_ignore_merges(
        train_reference(texts, 2000, 0, split_then_bytes(LLAMA3)))
    llama.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    yield "llama3", llama
    yield "cl100k", train_reference(texts, 1500, 0, split_then_bytes(CL100K))
    qwen = train_reference(texts, 2000, 0, split_then_bytes(QWEN2),
                           normalizers.NFC())
    qwen.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    qwen.add_tokens([
        AddedToken("<tool>", lstrip=True, normalized=False),
        AddedToken("<tool>>", rstrip=True, normalized=False),
        AddedToken("<pad>", lstrip=True, rstrip=True, normalized=True),
        AddedToken("\u00c5ngstr\u00f6m", normalized=True),
        AddedToken("<br>", normalized=True)])
    yield "qwen2", qwen


def pack(texts):
    return b"".join(
        struct.pack("<I", len(b)) + b for b in (t.encode() for t in texts))


def run_probe(probe, arguments, texts):
    return subprocess.run([probe, *arguments], input=pack(texts), check=True,
                          stdout=subprocess.PIPE).stdout


def read_numbers(data, at):
    (count,) = struct.unpack_from("<I", data, at)
    return list(struct.unpack_from(f"<{count}I", data, at + 4)), at + 4 + 4 * count


def probe_encode(probe, path, texts):
    out = run_probe(probe, ["encode", path], texts)
    at = 0
    for _ in texts:
        ids, at = read_numbers(out, at)
        (length,) = struct.unpack_from("<I", out, at)
        yield ids, out[at + 4:at + 4 + length].decode()
        at += 4 + length


def compare_splitting(probe, name, pattern, texts):
    reference = pre_tokenizers.Split(Regex(pattern), "isolated")
    out = run_probe(probe, ["split", pattern], texts)
    at = failures = 0
    for text in texts:
        lengths, at = read_numbers(out, at)
        want = [len(p.encode()) for p, _ in reference.pre_tokenize_str(text)]
        if lengths != want:
            failures += 1
            if failures <= 5:
                print(f"FAIL split {name}: {text[:80]!r}\n  want {want[:40]}"
                      f"\n  got  {lengths[:40]}")
    print(f"split {name}: {len(texts)} texts, {failures} differ")
    return failures


def compare_encoding(probe, name, reference, texts, folder):
    path = folder / "tokenizer.json"
    reference.save(str(path))
    failures = 0
    expected = reference.encode_batch(texts, add_special_tokens=False)
    for text, want, (ids, decoded) in zip(
            texts, expected, probe_encode(probe, path, texts)):
        want_text = reference.decode(want.ids, skip_special_tokens=False)
        if ids == want.ids and decoded == want_text:
            continue
        failures += 1
        if failures <= 5:
            print(f"FAIL {name}: {text[:80]!r}\n  want {want.ids[:40]}"
                  f" {want_text[:80]!r}\n  got  {ids[:40]} {decoded[:80]!r}")
    print(f"encode {name}: {len(texts)} texts, {failures} differ")
    return failures


def compare_training(probe, name, texts, vocab, min_frequency, folder):
    path = folder / "trained.json"
    run_probe(probe, ["train", str(vocab), str(min_frequency), path], texts)
    ours = json.loads(path.read_text())["model"]
    reference = train_reference(
        texts, vocab, min_frequency,
        pre_tokenizers.ByteLevel(add_prefix_space=False))
    theirs = json.loads(reference.to_str())["model"]
    merges = [tuple(m.split(" ")) for m in ours["merges"]]
    wanted = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m)
              for m in theirs["merges"]]
    same = ours["vocab"] == theirs["vocab"] and merges == wanted
    first = next((i for i, (a, b) in enumerate(zip(merges, wanted)) if a != b),
                 min(len(merges), len(wanted)))
    print(f"train {name}: {len(texts)} texts, vocabulary {len(ours['vocab'])}"
          f" / {len(theirs['vocab'])}, {len(merges)} / {len(wanted)} merges, "
          + ("equal" if same else f"DIFFERENT from merge {first} on"))
    # Our file must be one that `tokenizers` reads.
    Tokenizer.from_file(str(path))
    return not same


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}")
    generated = generated_texts(options.texts, random.Random(options.seed))
    corpus = []
    if options.corpus:
        files = sorted(options.corpus.rglob("*.txt"))
        corpus = [f.read_text() for f in files]
    texts = generated + list(special_texts()) + corpus
    points = list(code_point_texts())
    failures = 0
    for name, pattern in (("gpt2", GPT2), ("llama3", LLAMA3),
                          ("cl100k", CL100K), ("qwen2", QWEN2)):
        failures += compare_splitting(
            options.probe, name, pattern, points + generated)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        failures += compare_training(
            options.probe, "generated", generated, 2000, 0, folder)
        failures += compare_training(
            options.probe, "generated, frequent", generated, 5000, 3, folder)
        if corpus:
            failures += compare_training(
                options.probe, "corpus", corpus, 8192, 2, folder)
        # A slice: each text of it is seen often by the merges.
        for shape, reference in reference_tokenizers(
                generated + corpus[::10] + points[::50]):
            failures += compare_encoding(
                options.probe, shape, reference, texts, folder)
    print("FAILED" if failures else "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
