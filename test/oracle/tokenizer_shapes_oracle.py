#!/usr/bin/env python3
"""Compares the runtime's tokenizers of all models with Hugging Face
`tokenizers`: ids, decoded text, what the post-processor adds, and pairs.

    tokenizer_shapes_oracle.py PROBE [--texts N] [--seed N]

PROBE is the built bin/tokenizer-probe. Every shape is that of a family that is
in use (Llama 2, Gemma, Phi-3, BERT, T5, XLM-R, CLIP, Falcon, DeepSeek, GPT-4o, …)
over a small vocabulary that is trained here. Where `tokenizers` is not
installed, prints so and exits 0.
"""
import argparse
import base64
import json
import pathlib
import random
import struct
import sys
import tempfile
import unicodedata

from tokenizer_oracle import PARTS, pack, read_numbers, run_probe

import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

MARK = "\u2581"
CODE = [
    "def f(x):\n    return x**2\n", "for (int i = 0; i < n; ++i) {", "\t\tx += 1;",
    "https://example.org/a?b=c&d=%20", "<div class='x'>", "a_b_c", "camelCaseWord",
    "don't", "it's", "we'll", "I'm", "do not", "3.14159", "1,000,000", "0xFF", "$x", "#!",
    "e.g.", "[1, 2]", "\u2581", "\u2581\u2581a", "<unk>", "<s>", "</s>", "<0x41>", "##a", "[CLS]",
    "</w>", "[MASK]", " [MASK]", "\u0130", "\u00df", "\u0391\u03a3", "\ufffd", "\u00ad", "\u200e",
]
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CLIP = (r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]"
        r"|[^\s\p{L}\p{N}]+")


def assigned(planes):
    """Code points of Unicode 14 but for private use, which both sides know."""
    return [c for c in planes
            if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def young_characters():
    """What `tokenizers` normalizes by tables that are older than Unicode 14 (those of
    BERT's parts are of Unicode 8)."""
    norm = tokenizers.normalizers
    split, kd, marks = pre_tokenizers.BertPreTokenizer(), norm.NFKD(), norm.StripAccents()
    clean = norm.BertNormalizer(clean_text=True, handle_chinese_chars=False,
                                strip_accents=False, lowercase=False)
    accents = norm.BertNormalizer(clean_text=False, handle_chinese_chars=False,
                                  strip_accents=True, lowercase=False)
    young = set()
    for c in assigned(range(0x30000)) + assigned(range(0xE0000, 0xE0200)):
        char, category = chr(c), unicodedata.category(chr(c))
        if (kd.normalize_str(char) != unicodedata.normalize("NFKD", char)
                or (category[0] == "M") == bool(marks.normalize_str(char))
                or (category == "Mn") == bool(accents.normalize_str(char))
                or (category == "Cf" and clean.normalize_str(char))
                or (category[0] != "C" and not clean.normalize_str(char))
                # ASCII's symbols count as punctuation, whatever their category.
                or (c > 127 and (category[0] == "P")
                    != (len(split.pre_tokenize_str(f"a{char}b")) == 3))):
            young.add(c)
    return young


def texts_for(count, rng, without=()):
    points = [c for c in assigned(range(0x20000)) + assigned(range(0x20000, 0x30000, 257))
              + assigned(range(0xE0000, 0xE0200)) if c not in without]
    texts = ["", " ", "  ", "a", "\x00", MARK, "a" * 5000, " " * 3000, "\u4e00" * 700,
             "e" + "\u0301" * 300]
    while len(texts) < count:
        length = rng.choice([1, 2, 3, 5, 8, 20, 40])
        texts.append("".join(
            chr(rng.choice(points)) if rng.random() < 0.15
            else rng.choice(CODE if rng.random() < 0.3 else PARTS)
            for _ in range(length)))
    return texts


def charsmap(mapping):
    """A precompiled character map: Darts-clone's double array over UTF-8."""
    texts, offsets = b"", {}
    for value in mapping.values():
        if value not in offsets:
            offsets[value] = len(texts)
            texts += value.encode() + b"\0"
    trie = {}
    for key, value in mapping.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = offsets[value]
    units, used = [0] * 512, {0}

    def place(node, at):
        # A base b for which b ^ label is free for every child.
        base = next(b for b in range(1, 1 << 21) if not (b ^ at) >> 21 and all(
            (b ^ label) not in used for label in node) and b not in used)
        used.add(base)
        while len(units) < base + 512:
            units.extend([0] * 512)
        for label in node:
            used.add(base ^ label)
        units[at] |= (base ^ at) << 10
        for label, child in node.items():
            if label == 0:
                units[at] |= 1 << 8
                units[base] = child | 1 << 31
            else:
                units[base ^ label] = label
                place(child, base ^ label)

    place(trie, 0)
    array = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(array)) + array + texts).decode()


def small_charsmap():
    mapping = {"\t": " ", "\n": " ", "\u3000": " ", "\u200b": "", "\u00ad": "", "\r": " "}
    for c in assigned(range(0x80, 0x3100)) + assigned(range(0xF900, 0x10000)):
        char = unicodedata.normalize("NFKC", chr(c))
        if char != chr(c) and "\0" not in char:
            mapping[chr(c)] = char
    mapping["e\u0301"] = "\u00e9"
    mapping["a\u0323\u0307"] = "\u1ea1\u0307"
    return charsmap(mapping)


def special(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True, **flags}


def file_of(model, **parts):
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    return {**base, **parts, "model": model}


def trained_bpe(texts, vocab, specials, **options):
    tokenizer = Tokenizer(models.BPE(**options.pop("model", {})))
    tokenizer.pre_tokenizer = options.pop(
        "pre_tokenizer", pre_tokenizers.Metaspace(split=True))
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=specials, show_progress=False,
        limit_alphabet=300, **options))
    return json.loads(tokenizer.to_str())["model"]


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def template(before, after, ids):
    piece = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before]
    piece.append({"Sequence": {"id": "A", "type_id": 0}})
    piece += [{"SpecialToken": {"id": t, "type_id": 0}} for t in after]
    return {"type": "TemplateProcessing", "single": piece,
            "pair": piece + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]}
                               for t in before + after}}


def character_bpe_shapes(texts):
    """Llama 2, Mistral, Gemma, Phi-3: BPE of characters that falls back to bytes."""
    bytes_tokens = [f"<0x{b:02X}>" for b in range(256)]
    model = trained_bpe(texts, 1500, ["<unk>", "<s>", "</s>"] + bytes_tokens)
    model.update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    ids = model["vocab"]
    tokens = [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")]
    decoder = sequence("decoders", replace({"String": MARK}, " "), {"type": "ByteFallback"},
                       {"type": "Fuse"})
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    llama_decoder = sequence("decoders", *decoder["decoders"], strip)
    llama = dict(
        normalizer=sequence("normalizers", {"type": "Prepend", "prepend": MARK},
                            replace({"String": " "}, MARK)),
        decoder=llama_decoder, post_processor=template(["<s>"], [], ids))
    yield "llama2", file_of(model, added_tokens=tokens, **llama)
    yield "mistral", file_of(
        model, added_tokens=tokens, decoder=llama_decoder,
        pre_tokenizer={"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first",
                       "split": False},
        post_processor=template(["<s>"], ["</s>"], ids))
    yield "gemma", file_of(
        model, added_tokens=tokens, decoder=decoder, normalizer=replace({"String": " "}, MARK),
        pre_tokenizer={"type": "Split", "pattern": {"String": " "},
                       "behavior": "MergedWithPrevious", "invert": False})
    flags = {"<|end|>": dict(rstrip=True), "<|im_start|>": dict(lstrip=True, rstrip=True),
             "The": dict(single_word=True, special=False),
             "TOKEN": dict(normalized=True, special=False)}
    phi = tokens + [special(ids.get(content, len(ids) + i), content, **flag)
                    for i, (content, flag) in enumerate(flags.items())]
    yield "phi3", file_of(model, added_tokens=phi, **llama)
    plain = dict(model, byte_fallback=False, fuse_unk=False)
    yield "unknown, not fused", file_of(
        plain, added_tokens=tokens, pre_tokenizer={"type": "Whitespace"})
    yield "no unknown", file_of(
        dict(plain, unk_token=None), added_tokens=tokens,
        pre_tokenizer={"type": "Digits", "individual_digits": True})


def word_piece_shapes(texts):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for name, lower, accents in (("bert uncased", True, None), ("bert cased", False, None),
                                 ("bert accents", False, True)):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        normalizer = tokenizers.normalizers.BertNormalizer(
            lowercase=lower, strip_accents=accents)
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(
            vocab_size=1500, special_tokens=names, show_progress=False, limit_alphabet=400))
        fields = json.loads(tokenizer.to_str())
        fields["added_tokens"][4]["lstrip"] = True
        ids = fields["model"]["vocab"]
        fields["post_processor"] = template(["[CLS]"], ["[SEP]"], ids) if lower else {
            "type": "BertProcessing", "sep": ["[SEP]", ids["[SEP]"]],
            "cls": ["[CLS]", ids["[CLS]"]]}
        fields["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": lower}
        yield name, fields


def unigram_shapes(texts):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    # The trainer keeps every character, so that rare ones must stay away.
    common = ["".join(c for c in t if c < "\u0250" or c in "\u4e2d\u6587\u0301") for t in texts]
    tokenizer.train_from_iterator(common, trainers.UnigramTrainer(
        vocab_size=1200, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
        show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    ids = {piece: i for i, (piece, _) in enumerate(model["vocab"])}
    tokens = sorted((special(ids[t], t) for t in ("<pad>", "</s>", "<unk>")), key=lambda t: t["id"])
    meta = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    precompiled = {"type": "Precompiled", "precompiled_charsmap": small_charsmap()}
    post = template([], ["</s>"], ids)
    yield "t5", file_of(
        model, added_tokens=tokens, normalizer=precompiled, decoder=meta, post_processor=post,
        pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, meta))
    yield "xlm-r", file_of(
        model, added_tokens=tokens, decoder=meta, post_processor=post, pre_tokenizer=meta,
        normalizer=sequence("normalizers", precompiled,
                            replace({"Regex": " {2,}"}, " ")))
    albert = sequence(
        "normalizers", replace({"String": "``"}, '"'), {"type": "NFKD"},
        {"type": "StripAccents"}, {"type": "Lowercase"},
        {"type": "Strip", "strip_left": True, "strip_right": True}, precompiled)
    yield "albert", file_of(model, added_tokens=tokens, normalizer=albert, decoder=meta,
                            pre_tokenizer=dict(meta, prepend_scheme="never"))
    with_bytes = dict(model, byte_fallback=True, vocab=model["vocab"] + [
        [f"<0x{b:02X}>", -20.0] for b in range(256)])
    yield "unigram with bytes", file_of(
        with_bytes, added_tokens=tokens,
        pre_tokenizer={"type": "Punctuation", "behavior": "MergedWithNext"},
        decoder=sequence("decoders", {"type": "ByteFallback"}, meta))


def byte_level_shapes(texts):
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}

    def split(regex, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior,
                "invert": invert}

    def bpe(**options):
        return trained_bpe(texts, 1200, ["<|endoftext|>"],
                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                           pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
                           **options)
    model = bpe()
    tokens = [special(0, "<|endoftext|>")]
    common = dict(added_tokens=tokens, decoder=level)
    yield "gpt-4o", file_of(model, **common, pre_tokenizer=sequence(
        "pretokenizers", split(O200K, "Removed", True), level))
    yield "deepseek", file_of(model, **common, pre_tokenizer=sequence(
        "pretokenizers", split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
        split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        {"type": "Digits", "individual_digits": True}, level))
    yield "falcon", file_of(model, **common, pre_tokenizer=sequence(
        "pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"},
        dict(level, use_regex=True), {"type": "Digits", "individual_digits": False},
        split("[0-9][0-9][0-9]")))
    clip = bpe(end_of_word_suffix="</w>", model={})
    clip.update(end_of_word_suffix="</w>", unk_token="<|endoftext|>")
    yield "clip", file_of(
        clip, added_tokens=tokens, pre_tokenizer=sequence(
            "pretokenizers", split(CLIP, "Removed", True), level),
        normalizer=sequence("normalizers", {"type": "NFC"}, replace({"Regex": r"\s+"}, " "),
                            {"type": "Lowercase"}),
        decoder={"type": "BPEDecoder", "suffix": "</w>"},
        post_processor={"type": "RobertaProcessing", "sep": ["<|endoftext|>", 0],
                        "cls": ["<|endoftext|>", 0], "trim_offsets": False,
                        "add_prefix_space": False})
    missing = trained_bpe(texts, 600, ["<|endoftext|>"],
                          pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True))
    yield "bytes without tokens", file_of(
        missing, **common, pre_tokenizer=dict(level, use_regex=True, add_prefix_space=True))


def same_score(model, some, other):
    """Of a Unigram model: paths whose scores are the same sum in another order are equally
    good, and which is taken hangs on the last bit of scores as `tokenizers` reads them."""
    if model["type"] != "Unigram":
        return False
    scores = [score for _, score in model["vocab"]]
    one, two = (sum(scores[id] for id in ids if id < len(scores)) for ids in (some, other))
    return sorted(some) == sorted(other) and abs(one - two) < 1e-9


def compare(probe, name, fields, texts, folder):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(fields))
    reference = Tokenizer.from_str(json.dumps(fields))
    framed = fields["post_processor"] is not None
    out = run_probe(probe, ["encode-framed" if framed else "encode", path], texts)
    expected = reference.encode_batch(texts, add_special_tokens=framed)
    decoded = reference.decode_batch([e.ids for e in expected], skip_special_tokens=False)
    at = failures = ties = 0
    for text, want, want_text in zip(texts, expected, decoded):
        ids, at = read_numbers(out, at)
        (length,) = struct.unpack_from("<I", out, at)
        got_text = out[at + 4:at + 4 + length].decode()
        at += 4 + length
        if ids == want.ids and got_text == want_text:
            continue
        if got_text == want_text and same_score(fields["model"], ids, want.ids):
            ties += 1
            continue
        failures += 1
        if failures <= 3:
            print(f"FAIL {name}: {text[:80]!r}\n  want {want.ids[:40]} {want_text[:80]!r}"
                  f"\n  got  {ids[:40]} {got_text[:80]!r}")
    print(f"shape {name}: {len(texts)} texts, {failures} differ" + (f", {ties} ties" if ties else ""))
    return failures


def compare_pairs(probe, name, fields, texts, folder):
    """Pairs, whole and truncated: their ids, and where token type 1 begins."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(fields))
    reference = Tokenizer.from_str(json.dumps(fields))
    pairs = [pair for pair in zip(texts, reversed(texts))]
    failures, ties = 0, set()
    for most in (0, 7, 16, 33):
        if most:
            reference.enable_truncation(most, strategy="longest_first")
        out = run_probe(probe, ["encode-pairs", path, str(most)], [text for pair in pairs for text in pair])
        at = 0
        for pair, want in zip(pairs, reference.encode_batch(pairs)):
            (*ids, begin), at = read_numbers(out, at)
            types = [int(i >= begin) for i in range(len(ids))]
            if (ids, types) == (want.ids, want.type_ids) or pair in ties:
                continue
            if not most and same_score(fields["model"], ids, want.ids):
                ties.add(pair)  # truncated, its paths have other scores
                continue
            failures += 1
            if failures <= 3:
                print(f"FAIL {name}, pair of at most {most}: {pair!r}\n  want {want.ids} {want.type_ids}"
                      f"\n  got  {ids} {types}")
    print(f"shape {name}: {4 * len(pairs)} pairs, {failures} differ")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--texts", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shape", help="only this one")
    options = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}")
    rng = random.Random(options.seed)
    training = texts_for(1500, rng)
    young = young_characters()
    print(f"{len(young)} characters are younger than some tables of `tokenizers`")
    failures = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for shapes in (character_bpe_shapes, word_piece_shapes, unigram_shapes,
                       byte_level_shapes):
            for name, fields in shapes(training):
                if options.shape in (None, name):
                    texts = texts_for(
                        options.texts, rng, young if name.startswith(("bert", "albert", "falcon")) else ())
                    count += len(texts)
                    failures += compare(
                        options.probe, name, fields, texts, pathlib.Path(folder))
                    failures += compare_pairs(
                        options.probe, name, fields, texts[:options.texts // 60], pathlib.Path(folder))
    print(f"{count} texts in all")
    print("FAILED" if failures else "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
