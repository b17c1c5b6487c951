#!/usr/bin/env python3
"""Compares the tokens and loss masks of `tessera data chat` with transformers.

    chat_data_oracle.py TESSERA [--count N] [--seed N] [--templates DIR]

Of random conversations by the templates of chat/*.jinja, of DIR and, where `trl`
is installed, of its own training templates: the ids must be those of
apply_chat_template, and the mask its assistant mask (of a template without
generation blocks: the tokens that overlap what rendering the messages before
does not have). A conversation that transformers refuses must be refused. Rows
must be as many as TRL's best-fit-decreasing packing makes.

A transformers without assistant masks is replaced by what it is made of: jinja2
and tokenizers. Where a package is missing, prints so and exits 0.
"""
import argparse
import datetime
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import chat_oracle

try:
    import jinja2
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers, decoders, trainers
except ImportError as error:
    print(f"SKIP: python package `{error.name}` is not installed")
    sys.exit(0)
try:
    import pyarrow
    from trl import data_utils
except Exception as error:  # trl fails in many ways where torch is missing
    data_utils = None
    print(f"SKIP: no comparison with trl: {str(error).splitlines()[0]}")

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<s>", "</s>",
           "<|begin_of_text|>", "<start_of_turn>", "<end_of_turn>", "<turn|>", "<|turn>", "<bos>", "<|end|>",
           "<|user|>", "<|assistant|>", "<|system|>", "<|endoftext|>", "[/INST]", "<|END_OF_TURN_TOKEN|>",
           "<|return|>", "<|eom_id|>", "<end_of_utterance>", "<|eot|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"]
# They end a turn in one template or another.
ENDS = ["<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<turn|>", "<|end|>", "<|user|>", "<|endoftext|>",
        "<|END_OF_TURN_TOKEN|>", "<|return|>", "<|eom_id|>", "<end_of_utterance>", "<|eot|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"]
SEQUENCE = 2048


def make_tokenizer(kind):
    """Byte-level BPE, or Llama 2's: ▁ for spaces and bytes as a last resort."""
    words = [text for text in chat_oracle.TEXTS if text] * 20 + ["the assistant and the user system tool"] * 50
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=kind == "spm", unk_token=None))
    if kind == "spm":
        tokenizer.normalizer = tokenizers.normalizers.Sequence([
            tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence([
            decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL + [f"<0x{i:02X}>" for i in range(256)],
                                      show_progress=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(words, trainer)
    if kind == "spm":  # The bytes are no added tokens.
        fields = json.loads(tokenizer.to_str())
        fields["added_tokens"] = [t for t in fields["added_tokens"] if not t["content"].startswith("<0x")]
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(fields))
    return tokenizer


class Generation(jinja2.ext.Extension):
    """{% generation %} blocks; what they print is put between two marks."""
    tags = {"generation"}
    BEGIN, END = "\ufdd0", "\ufdd1"

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return self.BEGIN + caller() + self.END


class Reference:
    """Text, ids and mask of a conversation."""

    def __init__(self, tokenizer, source):
        self.source = source
        self.marks = "generation %}" in source or "generation -%}" in source
        self.fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
        self.tokenizer = tokenizer
        self.new = int(transformers.__version__.split(".")[0]) >= 5
        env = chat_oracle.environment()
        env.add_extension(Generation)
        env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        self.jinja = env.from_string(source)

    def render(self, messages, tools, prompt):
        if self.new:
            return self.fast.apply_chat_template(messages, tools=tools, chat_template=self.source, tokenize=False,
                                                 add_generation_prompt=prompt)
        text = self.jinja.render(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt,
                                 bos_token="<s>", eos_token="</s>")
        return text.replace(Generation.BEGIN, "").replace(Generation.END, "")

    def by_offsets(self, text, spans):
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        mask = [int(any(end > begin_of and begin < end_of for begin_of, end_of in spans))
                for begin, end in encoding.offsets]
        return encoding.ids, mask

    def marked(self, messages, tools):
        if self.new:
            out = self.fast.apply_chat_template(messages, tools=tools, chat_template=self.source, return_dict=True,
                                                return_assistant_tokens_mask=True)
            return out["input_ids"], out["assistant_masks"]
        text = self.jinja.render(messages=messages, tools=tools, documents=None, add_generation_prompt=False,
                                 bos_token="<s>", eos_token="</s>")
        plain, *parts = text.split(Generation.BEGIN)
        spans = []
        for part in parts:
            inside, outside = part.split(Generation.END)
            spans.append((len(plain), len(plain + inside)))
            plain += inside + outside
        return self.by_offsets(plain, spans)

    def encode(self, messages, tools):
        """(ids, mask), or None where the conversation cannot be learned from."""
        try:
            if self.marks:
                ids, mask = self.marked(messages, tools)
            else:
                text = self.render(messages, tools, False)
                spans = []
                for i, message in enumerate(messages):
                    if message["role"] != "assistant":
                        continue
                    begin = self.render(messages[:i], tools, True)
                    end = self.render(messages[:i + 1], tools, False)
                    if not (text.startswith(begin) and text.startswith(end) and len(begin) <= len(end)):
                        return None
                    spans.append((len(begin), len(end)))
                ids, mask = self.by_offsets(text, spans)
                if self.new:
                    own = self.fast.apply_chat_template(messages, tools=tools, chat_template=self.source,
                                                        return_dict=True)["input_ids"]
                    assert own == ids, "transformers gives other ids than tokenizers"
        except AssertionError:
            raise
        except Exception:  # of jinja2 or of Python
            return None
        return (ids, mask) if any(mask[1:]) else None


def conversation(rng):
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": rng.choice(chat_oracle.TEXTS)})
    for _ in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": rng.choice(chat_oracle.TEXTS)})
        if rng.random() < 0.95:
            text = "".join(rng.choice(chat_oracle.TEXTS) for _ in range(rng.randint(1, 3)))
            messages.append({"role": "assistant", "content": text})
    if rng.random() < 0.05:
        messages.append({"role": "narrator", "content": "x"})
    tools = [chat_oracle.SCHEMA] if rng.random() < 0.2 else None
    return messages, tools


def read_documents(folder):
    """By line: ids and mask, from the files as PackedShard.h describes them."""
    index = json.loads((folder / "index.json").read_text())
    documents, lengths = {}, []
    for shard in index["shards"]:
        tok = (folder / (shard["file"] + ".tok")).read_bytes()
        rows = (folder / (shard["file"] + ".rows")).read_bytes()
        width, count = struct.unpack_from("<IQ", tok, 12)
        ids = struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", tok, 64)
        row_count, document_count = struct.unpack_from("<QQ", rows, 16)
        at = 64 + 16 * (row_count + 1)
        bits = rows[at + 16 * document_count:]
        token = 0
        for i in range(document_count):
            length, _, _, line = struct.unpack_from("<IHHQ", rows, at + 16 * i)
            mask = [bits[t // 8] >> t % 8 & 1 for t in range(token, token + length)]
            documents[line] = (list(ids[token:token + length]), mask)
            lengths.append(length)
            token += length
    return index, documents, lengths


def compare_rows(index, lengths):
    table = pyarrow.table({"input_ids": pyarrow.array([[0] * n for n in lengths], pyarrow.list_(pyarrow.int64()))})
    return data_utils._pack_bfd(table, SEQUENCE).num_rows == index["rows"]


def check(options, folder, name, source, kind, tokenizer, rng):
    """Prints the line of one template; the number of differences."""
    reference = Reference(tokenizer, source)
    model = folder / "model"
    model.mkdir()
    tokenizer.save(str(model / "tokenizer.json"))
    (model / "chat_template.jinja").write_text(source)
    (model / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    examples = [conversation(rng) for _ in range(options.count)]
    (folder / "in.jsonl").write_text("".join(
        json.dumps({"messages": messages, **({"tools": tools} if tools else {})}) + "\n"
        for messages, tools in examples))
    ran = subprocess.run(
        [options.tessera, "data", "chat", "--tokenizer", model, "--input", folder / "in.jsonl", "-o", folder / "sft",
         "--sequence", str(SEQUENCE), "--skip-bad", "--end-of-turn", *ENDS], capture_output=True, text=True)
    wanted = {line: reference.encode(*example) for line, example in enumerate(examples, 1)}
    wanted = {line: value for line, value in wanted.items() if value and len(value[0]) <= SEQUENCE}
    if ran.returncode != 0 and not wanted:
        print(f"data {kind} {name}: all {options.count} refused by both")
        return 0
    if ran.returncode != 0:
        print(f"FAIL {kind} {name}: {ran.stderr.strip().splitlines()[-1][:300]}; transformers takes {len(wanted)}")
        return 1
    index, documents, lengths = read_documents(folder / "sft")
    differ = [line for line in sorted(set(wanted) | set(documents)) if wanted.get(line) != documents.get(line)]
    for line in differ[:options.show]:
        print(f"FAIL {kind} {name} line {line}: {examples[line - 1]}\n  want {wanted.get(line)}\n"
              f"  got  {documents.get(line)}\n  {ran.stderr[:300]}")
    rows = "" if data_utils is None else (", rows as trl" if compare_rows(index, lengths) else ", FAIL other rows")
    print(f"data {kind} {name}: {options.count} conversations, {options.count - len(wanted)} refused, "
          f"{len(differ)} differ{rows}")
    return len(differ) + ("FAIL" in rows)


def check_strings(options, folder, kind, tokenizer, rng):
    """Prompts with answers as strings: ids of the tokenizer, and the mask of TRL's tokenization."""
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    model = folder / "model"
    model.mkdir()
    tokenizer.save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))

    def text():
        return "".join(rng.choice(chat_oracle.TEXTS) for _ in range(rng.randint(1, 3))) or "x"
    pairs = [(text(), text(), text() + "z") for _ in range(options.count)]
    failures, merged = 0, 0
    for name, lines in (("completion", [{"prompt": a, "completion": b} for a, b, _ in pairs]),
                        ("pair", [{"prompt": a, "chosen": b, "rejected": c} for a, b, c in pairs])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        subprocess.run([options.tessera, "data", "chat", "--tokenizer", model, "--input", folder / f"{name}.jsonl",
                        "-o", folder / name, "--sequence", str(SEQUENCE)], check=True, capture_output=True)
        documents = read_documents(folder / name)[1]
        for number, line in enumerate(lines, 1):
            # Of a pair, the second document of a line is the last that was read.
            answer = line.get("completion", line.get("rejected"))
            whole = fast(line["prompt"] + answer + "</s>", return_offsets_mapping=True)
            ids, prompt = whole["input_ids"], fast(line["prompt"])["input_ids"]
            same = next((i for i, (a, b) in enumerate(zip(ids, prompt)) if a != b), min(len(ids), len(prompt)))
            overlaps = [int(end > len(line["prompt"])) for _, end in whole["offset_mapping"]]
            trl = [int(i >= same) for i in range(len(ids))]
            # A merge across the boundary may change tokens that end before it; TRL learns those, too.
            merged += trl != overlaps
            if documents[number] != (ids, overlaps):
                failures += 1
                if failures <= options.show:
                    print(f"FAIL {kind} {name} {line}\n  want {ids} {overlaps}\n  got  {documents[number]}")
    print(f"data {kind} strings: {2 * options.count} lines, {merged} where TRL learns more, {failures} differ")
    return failures


def templates(options):
    folders = [pathlib.Path(__file__).parent / "chat"] + [pathlib.Path(each) for each in options.templates]
    paths = [path for folder in folders for path in sorted(folder.glob("*.jinja"))]
    if data_utils is not None:
        own = pathlib.Path(data_utils.__file__).parent / "chat_templates"
        paths += sorted(own.glob("*_training.jinja"))
    return [(path.stem, path.read_text()) for path in paths]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=2)
    parser.add_argument("--templates", action="append", default=[])
    options = parser.parse_args()
    rng = random.Random(options.seed)
    failures = 0
    for kind in ("bytes", "spm"):
        tokenizer = make_tokenizer(kind)
        with tempfile.TemporaryDirectory() as folder:
            failures += check_strings(options, pathlib.Path(folder), kind, tokenizer, rng)
        for name, source in templates(options):
            with tempfile.TemporaryDirectory() as folder:
                failures += check(options, pathlib.Path(folder), name, source, kind, tokenizer, rng)
    print(f"transformers {transformers.__version__}: " + ("FAILED" if failures else "ok"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
