"""What commands of the documentation take as given: models, runs, tokens, text.

A fixture is made once for all tests of a build (harness.Prepared) and copied into
a page's folder when a command names it that the page did not make before.
"""
import gzip
import hashlib
import json
import math
import pathlib
import random
import re
import shutil
import struct
import sys

from extract import SOURCE

sys.path.insert(0, str(SOURCE / "test/e2e/Inputs"))
import harness  # noqa: E402
import weight_cache  # noqa: E402

# Fixtures of another version of this file are not taken.
VERSION = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:8]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
CHAT_TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}"
                 "{% if add_generation_prompt %}<assistant>{% endif %}")
RECIPE = SOURCE / "recipes/tiny-gpt2.yaml"
SPEC = SOURCE / "models/specs/tiny-gpt2"
# Small enough for the emulated GPU.
NANO = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 400, "n_embd": 32,
        "n_layer": 1, "n_head": 2, "n_positions": 16, "activation_function": "gelu_new",
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
BERT = {"architectures": ["BertModel"], "model_type": "bert", "vocab_size": 64, "hidden_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
        "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu",
        "layer_norm_eps": 1e-12, "pad_token_id": 0}


def write_weights(path, shapes):
    """Random f32; norms are one."""
    draw = random.Random(7)

    def values(name, shape):
        count = math.prod(shape)
        return struct.pack(f"<{count}f", *(1.0 if "Norm.weight" in name else draw.gauss(0, 0.1)
                                           for _ in range(count)))
    harness.write_safetensors(path, {name: ("F32", list(shape), values(name, shape))
                                     for name, shape in shapes.items()})


def bert_shapes(has_score=False):
    width, inner, one = BERT["hidden_size"], BERT["intermediate_size"], BERT["num_hidden_layers"]
    shapes = {f"embeddings.{name}_embeddings.weight": (rows, width)
              for name, rows in (("word", BERT["vocab_size"]), ("position", BERT["max_position_embeddings"]),
                                 ("token_type", 2))}
    linear = {}
    for layer in (f"encoder.layer.{i}" for i in range(one)):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linear[f"{layer}.attention.{name}"] = (width, width)
        linear[f"{layer}.intermediate.dense"] = (inner, width)
        linear[f"{layer}.output.dense"] = (width, inner)
        for name in ("attention.output", "output"):
            linear[f"{layer}.{name}.LayerNorm"] = (width,)
    linear["embeddings.LayerNorm"] = (width,)
    if has_score:
        linear |= {"pooler.dense": (width, width), "classifier": (1, width)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def word_pieces():
    """tokenizer.json of a BERT that knows single letters."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = special + list(letters) + ["##" + letter for letter in letters]

    def token(name, type_id=0):
        return {"SpecialToken": {"id": name, "type_id": type_id}}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, word in enumerate(special)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, token("[SEP]")],
            "pair": [token("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, token("[SEP]"),
                     {"Sequence": {"id": "B", "type_id": 1}}, token("[SEP]", 1)],
            "special_tokens": {name: {"id": name, "ids": [special.index(name)], "tokens": [name]}
                               for name in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100,
                  "vocab": {word: i for i, word in enumerate(vocabulary)}}}


def write_arguments(path, dumps, function, kinds):
    """Tensors for the arguments of a function that are of these kinds: floats
    zero, integers one."""
    module = (dumps / "04-partition.mlir").read_text()
    signature = re.search(rf"func\.func @{function}\((.*?)\) ->", module, re.S)[1]
    sizes = {"f32": ("F32", "f"), "i32": ("I32", "i"), "i64": ("I64", "q")}
    tensors = {}
    for kind, after in re.findall(r"%\w+: tensor<([^>]*)>([^%]*)", signature):
        *shape, element = kind.split("x")
        dtype, code = sizes[element]
        count = math.prod(map(int, shape))
        if name := re.search(rf'graph\.(?:{kinds}) = "([^"]*)"', after):
            tensors[name[1]] = (dtype, [int(extent) for extent in shape],
                                struct.pack(f"<{count}{code}", *([int(code != "f")] * count)))
    harness.write_safetensors(path, tensors)


class Fixtures:
    def __init__(self, made):
        self.made = made
        self.tessera = made.tessera

    def path(self, name):
        """Where the fixture is, made if it is not there yet."""
        if name.startswith("train_"):
            return self.made.executable("fp32")
        if name == "tokens":
            return self.made.tokens()
        maker = getattr(self, "make_" + re.sub(r"\W", "_", name))
        given = [self.path(each) for each in self.NEEDS.get(name, ())]
        with self.made.making(f"docs-{VERSION}-{name}") as folder:
            path = folder / name
            if not path.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                maker(path, *given)
            return path

    def run(self, *arguments, **options):
        return harness.run(*arguments, **options)

    NEEDS = {"DIR": ("tokens",), "chat-model": ("DIR",), "run": ("tokens",), "gpt2": ("run",), "model.tsr": ("DIR",),
             "hub": ("DIR",), "arguments.safetensors": ("ir-one",), "train.safetensors": ("ir-one",),
             "eval.safetensors": ("ir-one",), "in.safetensors": ("ir-one",)}

    def make_FILE(self, path):
        path.write_text("".join(json.loads(line)["text"] + "\n" for line in
                                harness.made_up_text(60, 3).splitlines()))

    make_FILE2 = make_FILE

    def make_mytext(self, path):
        for number, name in enumerate(("train", "eval")):
            (path / name).mkdir(parents=True)
            (path / name / "a.jsonl").write_text(harness.made_up_text(60, number))

    def make_sentences_txt(self, path):
        path.write_text("how do i list files\nls\n")

    def make_run(self, path, tokens):
        program = path.parent / "train"
        self.run(self.tessera, "compile", SPEC, "--recipe", RECIPE, "--set", "batch.micro=1",
                 "--set", "batch.sequence=256", "-o", program)
        self.run(program, "--data", tokens, "--out", path, "--steps", 100, "--quiet")

    def make_DIR(self, path, tokens):
        """A Llama; with groups of 64 in every matrix."""
        weight_cache.INNER = weight_cache.CONFIG["intermediate_size"] = 192
        weight_cache.CONFIG["max_position_embeddings"] = 1024
        weight_cache.write_model(path, tokens / "tokenizer.json", 1)
        (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
        (path / "generation_config.json").write_text(json.dumps({"max_new_tokens": 8}))

    def make_ADAPTER1(self, path):
        """Rank 2, in PEFT's layout, for the query projections of DIR."""
        path.mkdir()
        (path / "adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "lora_alpha": 4, "r": 2, "target_modules": ["q_proj"]}))
        width, tensors = weight_cache.CONFIG["hidden_size"], {}
        for layer in range(weight_cache.CONFIG["num_hidden_layers"]):
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_"
            for factor, shape in ("A", [2, width]), ("B", [width, 2]):
                values = struct.pack(f"<{2 * width}f", *[0.01] * (2 * width))
                tensors[f"{name}{factor}.weight"] = ("F32", shape, values)
        harness.write_safetensors(path / "adapter_model.safetensors", tensors)

    make_ADAPTER2 = make_ADAPTER1

    def make_chat_model(self, path, DIR):
        """A model with a chat template."""
        shutil.copytree(DIR, path)
        (path / "tokenizer_config.json").write_text(json.dumps(
            {"chat_template": CHAT_TEMPLATE, "eos_token": "<|endoftext|>"}))

    def make_conversations_jsonl(self, path):
        texts = [json.loads(line)["text"][:200] for line in harness.made_up_text(60, 3).splitlines()]
        path.write_text("".join(json.dumps({"messages": [
            {"role": "user", "content": question}, {"role": "assistant", "content": answer}]}) + "\n"
            for question, answer in zip(texts, texts[1:])))

    make_more_jsonl = make_conversations_jsonl

    def make_pairs_jsonl(self, path):
        texts = [json.loads(line)["text"][:100] for line in harness.made_up_text(60, 4).splitlines()]
        path.write_text("".join(json.dumps({"prompt": a, "chosen": b, "rejected": b + c}) + "\n"
                                for a, b, c in zip(texts, texts[1:], texts[2:])))

    def make_labels_jsonl(self, path):
        texts = [json.loads(line)["text"][:100] for line in harness.made_up_text(60, 5).splitlines()]
        path.write_text("".join(
            json.dumps({"prompt": a, "completion": b, "label": number % 2 == 0}) + "\n"
            for number, (a, b) in enumerate(zip(texts, texts[1:]))))

    def make_cluster_yaml(self, path):
        """Cores of a machine as `tessera doctor --calibrate` describes them."""
        kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
        path.write_text("name: 'cluster'\n"
                        "cpu: {name: 'cores', cores: 2, memory: 16GB, speedup: 1.9, cache: 32MB,\n"
                        "      all_read: 20GB/s, all_write: 30GB/s, all_copy: 40GB/s,\n"
                        "      kernels: {matmul: {launch: 0.1us, flops: 80GFLOP/s, bytes: 20GB/s},\n"
                        "                matmul_bf16: {launch: 0.1us, flops: 80GFLOP/s, bytes: 20GB/s},\n"
                        "                attention: {launch: 4us, flops: 80GFLOP/s, bytes: 5GB/s},\n"
                        "                elementwise: {launch: 0.3us, flops: 20GFLOP/s, bytes: 40GB/s}}}\n"
                        "collectives:\n" + "".join(
                            f"  - {{kind: {kind}, ranks: 2, group: 2, latency: 5us, bandwidth: 4GB/s}}\n"
                            for kind in kinds))

    def make_hub(self, path, model):
        """The hub's cache, as its client writes it."""
        place = path / "models--Qwen--Qwen3-0.6B"
        shutil.copytree(model, place / "snapshots/abc")
        (place / "refs").mkdir()
        (place / "refs/main").write_text("abc")

    def make_encoder(self, path):
        path.mkdir()
        (path / "config.json").write_text(json.dumps(BERT))
        (path / "tokenizer.json").write_text(json.dumps(word_pieces()))
        write_weights(path / "model.safetensors", bert_shapes())

    def make_RERANKER(self, path):
        path.mkdir()
        config = {**BERT, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
        (path / "config.json").write_text(json.dumps(config))
        (path / "tokenizer.json").write_text(json.dumps(word_pieces()))
        write_weights(path / "model.safetensors", bert_shapes(has_score=True))

    def make_gpt2(self, path, run):
        self.run(self.tessera, "export", run, "-o", path)

    def make_model_gguf(self, path):
        shutil.copy(SOURCE / "test/corpus/gguf-import/llama", path)

    def make_model_tsr(self, path, model):
        self.run(self.tessera, "compile", model, "--mode", "infer", "-o", path)

    def make_SPEC(self, path):
        shutil.copytree(SPEC, path)

    def make_nano(self, path):
        path.mkdir()
        (path / "config.json").write_text(json.dumps(NANO))

    def make_llama_3_8b(self, path):
        shutil.copytree(SOURCE / "models/specs/llama-3-8b", path)

    def make_RECIPE(self, path):
        shutil.copy(RECIPE, path)

    def make_ir(self, path):
        """Dumps of one device up to partition, and of a mesh."""
        self.run(self.tessera, "compile", SPEC, "--recipe", RECIPE, "--mesh", "data=2,tensor=2",
                 "--to", "partition", f"--dump-ir={path}", "-o", path.parent / "made.mlir")

    def make_x(self, path):
        self.run(self.tessera, "compile", SPEC, "--recipe", RECIPE, "--mesh", "data=2,tensor=2", "-o", path)

    def make_ARTIFACT_tsr(self, path):
        self.run(self.tessera, "compile", SPEC, "--recipe", RECIPE, "--mode", "artifact", "-o", path)

    def make_ir_one(self, path):
        """Dumps for one device."""
        self.run(self.tessera, "compile", SPEC, "--recipe", RECIPE, "--to", "partition", f"--dump-ir={path}",
                 "-o", path.parent / "made.mlir")

    def make_arguments_safetensors(self, path, dumps):
        write_arguments(path, dumps, "train_step", "input|state")

    def make_train_safetensors(self, path, dumps):
        write_arguments(path, dumps, "train_step", "input")

    def make_eval_safetensors(self, path, dumps):
        write_arguments(path, dumps, "eval_step", "input")

    def make_in_safetensors(self, path, dumps):
        write_arguments(path, dumps, "logits", "input")

    def make_bad_mlir(self, path):
        shutil.copy(SOURCE / "test/tools/tessera-reduce/reduce.mlir", path)

    def make_still_bad_sh(self, path):
        shutil.copy(SOURCE / "test/tools/tessera-reduce/Inputs/has-tanh.sh", path)

    def make_one_mlir(self, path):
        path.write_text(self.run(self.made.binaries / "metamorphic", "--seed", 278, "--print").stdout)

    def make_A_json_gz(self, path):
        test = (SOURCE / "test/tools/iopddl/iopddl.test").read_text()
        text = re.search(r"#--- two\.json\n(.*?)\n#---", test, re.S)[1]
        path.write_bytes(gzip.compress(text.encode()))


FIXTURES = ["ADAPTER1", "ADAPTER2", "ARTIFACT.tsr", "A.json.gz", "DIR", "FILE", "FILE2", "RERANKER",
            "RECIPE", "RUN", "SPEC", "arguments.safetensors", "bad.mlir", "cluster.yaml",
            "conversations.jsonl", "eval.safetensors", "gpt2", "in.safetensors", "ir", "labels.jsonl",
            "model.gguf", "model.tsr", "more.jsonl", "mytext", "one.mlir", "pairs.jsonl", "run",
            "sentences.txt", "still-bad.sh", "tokens", "train.safetensors", "train_gpt2", "train_x", "x"]


def copy(source, target):
    """Folders are the page's own; files, of which some are large, are links."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        target.symlink_to(source)


def names_in(text):
    """Fixtures that a command reads, not those that it writes."""
    read = re.sub(r"(-o |--dump-ir[= ]|> ?)\S+", " ", text)
    if "--resume" not in text:
        read = re.sub(r"--out \S+", " ", read)
    return [name for name in FIXTURES
            if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])|(?<=\./){re.escape(name)}(?![\w.-])", read)]
