#!/usr/bin/env python3
"""Compares vectors of texts with those of `transformers`.

    embed_oracle.py BIN FOLDER [--dtype fp32|bf16]...

Two encoders with random weights are saved: a bare BERT as its head of masked
words is published (prefixes, gamma and beta, tensors of heads), and a directory
as sentence-transformers writes them. `tessera embed` and the server's
/v1/embeddings, asked by the stock openai client, embed TEXTS texts of all
lengths: alone, several at a time, and as one list. The reference is BertModel
in fp64 with the pooling written out; our distance from it is at most twice that
of PyTorch's own twin (hf_models.py says what a twin is). Vectors must be the
same to the bit whoever runs beside them. Where transformers is not installed,
prints so and exits 0.
"""
import argparse
import asyncio
import base64
import json
import pathlib
import subprocess
import sys

try:
    import openai
    import safetensors.torch
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

from hf_models import Float64, random_weights
from hf_oracle import Distance, Report

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "runtime/serve"))
from serving import Server  # noqa: E402

WORDS = ("the a one of to in it is was he for on are with as his they at be this "
         "from have or by had not but what some we can out other were all your "
         "when up use how said each she which their time if will way about many "
         "then them write would like so these her long make thing see him two "
         "has look more day could go come did sound no most number who over know "
         "##s ##ing ##ed ##er ##ly . , ! ? 日 本 é ü 1 2 3").split()
LETTERS = [c for c in "abcdefghijklmnopqrstuvwxyz"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS,
         *("##" + c for c in LETTERS)]
VOCAB = list(dict.fromkeys(VOCAB))

# Extents are odd on purpose: no tile size divides them.
MODELS = {
    "bert": dict(vocab_size=len(VOCAB) + 3, hidden_size=60,
                 num_hidden_layers=2, num_attention_heads=3,
                 intermediate_size=136, max_position_embeddings=77,
                 hidden_act="gelu"),
    "minilm": dict(vocab_size=len(VOCAB), hidden_size=96, num_hidden_layers=3,
                   num_attention_heads=12, intermediate_size=384,
                   max_position_embeddings=512, hidden_act="gelu"),
}
LONGEST = {"bert": 77, "minilm": 200}
TEXTS, TOGETHER = 24, 8


def make_tokenizer(longest):
    """WordPiece as BERT's tokenizer.json has it."""
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(
        {word: i for i, word in enumerate(VOCAB)}, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.decoder = tokenizers.decoders.WordPiece()
    made.enable_truncation(longest)
    return made


def make_texts(longest):
    """From the empty one to one that is as long as it may be, and a longer."""
    generator = torch.Generator().manual_seed(17)
    plain = [w for w in WORDS if not w.startswith("##")]
    texts = ["", "a", "The DAY, when he looked?", "zyx qqq", "日本 é"]
    while len(texts) < TEXTS:
        share = (len(texts) - 4) / (TEXTS - 5)
        count = max(1, int(share * share * (longest + 20)))
        picks = torch.randint(0, len(plain), (count,), generator=generator)
        texts.append(" ".join(plain[int(i)] for i in picks))
    return texts


def build(name, dtype=torch.float32):
    config = transformers.BertConfig(**MODELS[name])
    return transformers.BertModel(config, add_pooling_layer=True).to(dtype).eval()


class Twins:
    def __init__(self, name):
        self.name = name
        self.fp32 = build(name)
        random_weights(self.fp32, seed=5)
        self.bf16 = build(name)
        self.bf16.load_state_dict(self.fp32.state_dict())
        self.bf16.to(torch.bfloat16)
        with Float64():
            self.fp64 = build(name, torch.float64)
            for key, parameter in self.fp64.named_parameters():
                parameter.data.copy_(dict(self.fp32.named_parameters())[key].data)

    def save(self, folder, longest):
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {k: v.data.contiguous() for k, v in self.fp32.named_parameters()}
        config = {"model_type": "bert", "architectures": ["BertModel"],
                  **MODELS[self.name]}
        if self.name == "bert":
            config["architectures"] = ["BertForMaskedLM"]
            tensors = {"bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma")
                       .replace("LayerNorm.bias", "LayerNorm.beta"): v
                       for k, v in tensors.items()}
            tensors["cls.predictions.bias"] = torch.zeros(3)
            tensors["bert.embeddings.position_ids"] = torch.arange(77)[None]
        else:
            self._save_sentence_files(folder, longest)
        (folder / "config.json").write_text(json.dumps(config))
        safetensors.torch.save_file(tensors, folder / "model.safetensors",
                                    metadata={"format": "pt"})
        make_tokenizer(longest).save(str(folder / "tokenizer.json"))

    @staticmethod
    def _save_sentence_files(folder, longest):
        parts = ["", "1_Pooling", "2_Normalize"]
        kinds = ["Transformer", "Pooling", "Normalize"]
        (folder / "modules.json").write_text(json.dumps([
            {"idx": i, "name": str(i), "path": part,
             "type": f"sentence_transformers.models.{kind}"}
            for i, (part, kind) in enumerate(zip(parts, kinds))]))
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling/config.json").write_text(json.dumps(
            {"word_embedding_dimension": 96, "pooling_mode_cls_token": False,
             "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
             "pooling_mode_mean_sqrt_len_tokens": False}))
        (folder / "sentence_bert_config.json").write_text(json.dumps(
            {"max_seq_length": longest, "do_lower_case": False}))


def reference(model, tokens, pooling, unit):
    """The vector of one text, in the model's arithmetic."""
    wide = next(model.parameters()).dtype is torch.float64

    def compute():
        ids = torch.tensor([tokens])
        with torch.no_grad():
            states = model(ids).last_hidden_state[0]
        states = states if wide else states.float()
        made = {"mean": lambda: states.mean(0), "cls": lambda: states[0],
                "max": lambda: states.max(0).values}[pooling]()
        return torch.nn.functional.normalize(made, dim=0) if unit else made
    if not wide:
        return compute()
    with Float64():
        return compute()


def embed(binaries, folder, texts, *options):
    """Vectors and numbers of tokens that `tessera embed` prints."""
    lines = "".join(text + "\n" for text in texts)
    done = subprocess.run([binaries / "tessera", "embed", folder, "--truncate",
                           *options], input=lines, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"embed {folder}: {done.stderr}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["index"] for row in rows] == list(range(len(texts)))
    return (torch.tensor([row["embedding"] for row in rows]),
            [row["tokens"] for row in rows])


def compare(binaries, folder, report, name, dtype, pooling, unit, *options):
    """Every text's vector, and that of each kind of batch with the others."""
    twins, longest = Twins(name), LONGEST[name]
    twins.save(folder, longest)
    texts = make_texts(longest)
    tokens = [make_tokenizer(longest).encode(text).ids for text in texts]
    options = [*options, f"--set=precision.compute={dtype}"]
    vectors, counts = embed(binaries, folder, texts, *options)
    what = f"{name} {pooling}"
    same = sum(count == len(ids) for count, ids in zip(counts, tokens))
    report.fact(what, dtype, "numbers of tokens equal", f"{same} of {TEXTS}",
                same == TEXTS)
    ours, theirs = Distance(), Distance()
    exact = torch.stack([reference(twins.fp64, ids, pooling, unit)
                         for ids in tokens])
    ours.add(vectors, exact)
    theirs.add(torch.stack([reference(getattr(twins, dtype), ids, pooling, unit)
                            for ids in tokens]), exact)
    for norm, value in ours.norms().items():
        report.line(what, dtype, f"vectors, {norm}", value, theirs.norms()[norm])
    alone = torch.cat([embed(binaries, folder, [text], *options)[0]
                       for text in texts[::6]])
    report.fact(what, dtype, "alone as among others", "to the bit",
                torch.equal(alone, vectors[::6]))
    return texts, vectors


def shipped(binaries, folder, report, texts, vectors):
    """One file instead of the directory, with its pooling and its prompt."""
    path = folder.parent / "shipped.tsr"
    for dtype in ("bf16", "fp32"):
        compute = f"--set=precision.compute={dtype}"
        made = subprocess.run([binaries / "tessera", "compile", folder, "--mode", "infer", compute, "-o", path],
                              capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        wanted = vectors if dtype == "fp32" else embed(binaries, folder, texts, compute)[0]
        same, _ = embed(binaries, path, texts)
        report.fact("minilm", dtype, "one file of it", "to the bit", torch.equal(same, wanted))
    with Server([str(binaries / "tessera"), "serve", str(path), "--port", "0"]) as server:
        status, body = server.post("/v1/embeddings", model="shipped", input=texts[3])
        assert status == 200, body
        one = torch.tensor(body["data"][0]["embedding"])
        report.fact("minilm", "fp32", "served", "to the bit", torch.equal(one, vectors[3]))


def serve(binaries, folder, report, texts, vectors):
    """The stock client: floats, base64, tokens, errors."""
    longest = LONGEST["minilm"]
    fits = [i for i, text in enumerate(texts)
            if len(make_tokenizer(10000).encode(text).ids) <= longest]
    texts, expected = [texts[i] for i in fits], vectors[fits]
    command = [str(binaries / "tessera"), "serve", str(folder), "--port", "0",
               "--served-model-name", "minilm"]
    alone = []
    with Server(command) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1",
                               api_key="none", max_retries=0)

        def ask(value, **more):
            made = client.embeddings.create(model="minilm", input=value, **more)
            assert made.object == "list" and made.model == "minilm"
            assert [one.index for one in made.data] == list(range(len(made.data)))
            return made

        def equal(what, made, wanted):
            rows = torch.tensor([one.embedding for one in made.data],
                                dtype=torch.float32)
            report.fact("client", "fp32", what, f"{len(rows)} vectors",
                        torch.equal(rows, wanted))
        whole = ask(texts)  # the client asks for base64 by itself
        equal("a list", whole, expected)
        counts = sum(len(make_tokenizer(longest).encode(t).ids) for t in texts)
        report.fact("client", "fp32", "usage", counts,
                    whole.usage.prompt_tokens == counts
                    == whole.usage.total_tokens)
        for text in texts:
            one = ask(text, encoding_format="float").data[0].embedding
            alone.append(torch.tensor(one, dtype=torch.float32))
        report.fact("client", "fp32", "each alone", f"{len(alone)} vectors",
                    torch.equal(torch.stack(alone), expected))
        equal("batches of eight",
              ask(texts[-TOGETHER:], encoding_format="float"),
              expected[-TOGETHER:])
        raw = ask(texts[3], encoding_format="base64").data[0].embedding
        data = torch.frombuffer(bytearray(base64.b64decode(raw)),
                                dtype=torch.float32)
        report.fact("client", "fp32", "base64", f"{len(raw)} bytes",
                    torch.equal(data, expected[3]))
        ids = [make_tokenizer(longest).encode(t).ids for t in texts[:5]]
        equal("lists of tokens", ask(ids), expected[:5])
        equal("tokens", ask(ids[2]), expected[2:3])
        equal("dimensions as they are", ask(texts[2], dimensions=96),
              expected[2:3])
        assert [m.id for m in client.models.list().data] == ["minilm"]
        refused(client)
        routes(server)
        report.fact("client", "fp32", "errors", "as they should be", True)


def routes(server):
    """What is not embedding."""
    assert server.call("GET", "/health")[2] == {"status": "ok"}
    status, headers, _ = server.call("GET", "/v1/embeddings")
    assert (status, headers["Allow"]) == (405, "POST")
    body = {"model": "minilm", "input": "a"}
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert server.call("POST", "/v1/embeddings", body, foreign)[0] == 403
    assert server.call("GET", "/v1/models/mini%6Cm")[2]["id"] == "minilm"
    assert server.metric("engine_iterations_total") > 0
    assert server.metric("num_requests_running") == 0


def refused(client):
    message = [{"role": "user", "content": "hello"}]
    long = "day " * 300
    create = client.embeddings.create
    for error, part, call in (
        (openai.NotFoundError, "unknown model",
         lambda: create(model="other", input="a")),
        (openai.BadRequestError, "not trained to be truncated",
         lambda: create(model="minilm", input="a", dimensions=32)),
        (openai.BadRequestError, "input 1: a sequence of 302 tokens",
         lambda: create(model="minilm", input=["a", long])),
        (openai.BadRequestError, "and not empty",
         lambda: create(model="minilm", input=[])),
        (openai.BadRequestError, "outside the vocabulary",
         lambda: create(model="minilm", input=[[9999]])),
        (openai.BadRequestError, "'embedding_types' is not supported",
         lambda: create(model="minilm", input="a",
                        extra_body={"embedding_types": ["int8"]})),
        (openai.BadRequestError, "generates no text",
         lambda: client.chat.completions.create(model="minilm",
                                                messages=message)),
        (openai.BadRequestError, "generates no text",
         lambda: client.completions.create(model="minilm", prompt="a")),
        (openai.NotFoundError, "unknown path",
         lambda: client.files.list()),
    ):
        try:
            call()
        except error as found:
            assert part in found.body["message"], (part, found)
        else:
            raise SystemExit(f"no {error.__name__}: {part}")
    cut = create(model="minilm", input=long,
                 extra_body={"truncate_prompt_tokens": -1})
    assert cut.usage.prompt_tokens == LONGEST["minilm"]


def with_cuts(binaries, folder, report, texts, vectors):
    """Vectors that may be cut, and a prompt before every text: by the command,
    and by what the client's own tests call."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()),
                                "is_matryoshka": True}))
    cut, _ = embed(binaries, folder, texts, "--dimensions", "32")
    wanted = torch.nn.functional.normalize(vectors[:, :32].double(), dim=1)
    report.line("minilm", "fp32", "cut to 32 elements, max",
                float((cut.double() - wanted).abs().max()), 2.0 ** -24)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(
        {"prompts": {"query": "find: ", "other": ""},
         "default_prompt_name": "query"}))
    asked, _ = embed(binaries, folder, ["the day", "a"])
    (folder / "config_sentence_transformers.json").unlink()
    plain, _ = embed(binaries, folder, ["find: the day", "find: a"])
    report.fact("minilm", "fp32", "the model's prompt", "before every text",
                torch.equal(asked, plain))
    name = "text-embedding-3-small"
    command = [str(binaries / "tessera"), "serve", str(folder), "--port", "0",
               "--served-model-name", name, "--api-key", "secret"]
    text = "The quick brown fox jumped over the lazy dog"
    fields = {"input": text, "model": name}
    most = {**fields, "dimensions": 1, "encoding_format": "float",
            "user": "user-1234"}
    with Server(command) as server:
        start = {"base_url": f"http://127.0.0.1:{server.port}/v1",
                 "api_key": "secret", "max_retries": 0}
        client = openai.OpenAI(**start)

        def typed(made, width):
            openai.types.CreateEmbeddingResponse.model_validate(
                made.to_dict(), strict=True)
            assert len(made.data[0].embedding) == width
        typed(client.embeddings.create(**fields), 96)
        typed(client.embeddings.create(**most), 1)
        typed(client.embeddings.with_raw_response.create(**fields).parse(), 96)
        with client.embeddings.with_streaming_response.create(**fields) as made:
            assert not made.is_closed
            typed(made.parse(), 96)

        async def again():
            async with openai.AsyncOpenAI(**start) as later:
                create = later.embeddings.create
                typed(await create(**fields), 96)
                typed(await create(**most), 1)
                made = await asyncio.gather(*(create(**{**fields, "input": each})
                                              for each in texts[:12]))
                rows = [one.data[0].embedding for one in made]
                assert torch.equal(torch.tensor(rows), vectors[:12])
        asyncio.run(again())
        try:
            client.with_options(api_key="wrong").embeddings.create(**fields)
        except openai.AuthenticationError:
            report.fact("client", "fp32", "the calls of its own tests",
                        "also many at once", True)


def commands_refuse(binaries, folder, report):
    """One line each, that says what to do."""
    gpt2 = pathlib.Path(__file__).resolve().parents[2] / "models/specs/tiny-gpt2"
    tool = binaries / "tessera"
    for part, command in (
        ("is an encoder and generates no text", ["generate", folder, "--prompt", "a"]),
        ("is an encoder, whose training is not supported", ["compile", folder, "-o", "x"]),
        ("generates text", ["embed", gpt2, "--text", "a"]),
        ("--truncate shortens", ["embed", folder, "--quiet", "--text", "a " * 999]),
        ("has no config.json", ["embed", folder / "none", "--text", "a"]),
        ("'inference.pooling': must be",
         ["embed", folder, "--quiet", "--text", "a", "--set",
          "inference.pooling=last"]),
    ):
        done = subprocess.run([str(each) for each in (tool, *command)],
                              text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        good = (done.returncode == 1 and part in done.stderr
                and done.stderr.count("\n") == 1 and not done.stdout)
        report.fact("command", "-", f"refused: {part}", done.stderr.strip()
                    if not good else "in one line", good)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Its bf16 wants instructions that not every machine has.
    torch.backends.mkldnn.enabled = False
    print(f"# torch {torch.__version__}, transformers "
          f"{transformers.__version__}")
    report = Report()
    folder = options.folder
    texts, vectors = compare(options.binaries, folder / "minilm", report,
                             "minilm", "fp32", "mean", True)
    serve(options.binaries, folder / "minilm", report, texts, vectors)
    shipped(options.binaries, folder / "minilm", report, texts, vectors)
    with_cuts(options.binaries, folder / "minilm", report, texts[:12],
              vectors[:12])
    compare(options.binaries, folder / "bert", report, "bert", "fp32", "mean",
            False)
    for pooling in ("cls", "max"):
        compare(options.binaries, folder / "bert", report, "bert", "fp32",
                pooling, False, f"--set=inference.pooling={pooling}")
    commands_refuse(options.binaries, folder / "bert", report)
    compare(options.binaries, folder / "minilm", report, "minilm", "bf16",
            "mean", True)
    print(f"{report.lines} comparisons, {report.failures} failed")
    return 1 if report.failures or not report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
