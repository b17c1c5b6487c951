#!/usr/bin/env python3
"""Compares scores of pairs of texts with those of `transformers`.

    rerank_oracle.py BIN FOLDER

Two models with random weights are served: a cross-encoder
(BertForSequenceClassification) and a decoder with a score
(LlamaForSequenceClassification). /score and /v1/rerank get pairs of all lengths,
some of which are truncated. The reference is the model of transformers in fp64,
over the tokens and types that the `tokenizers` package gives; our distance from
it is at most twice that of PyTorch's fp32. Relevance is the logistic function of
the score, as of sentence-transformers' CrossEncoder, unless config.json says
otherwise. Where transformers is not installed, prints so and exits 0.
"""
import argparse
import json
import pathlib
import subprocess
import sys

try:
    import safetensors.torch
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

from embed_oracle import VOCAB, make_texts, make_tokenizer
from hf_models import Float64, random_weights
from hf_oracle import Distance, Report

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
from serving import Server  # noqa: E402

LONGEST = 77  # tokens of a pair
IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
MODELS = {
    "bert": (transformers.BertForSequenceClassification, transformers.BertConfig(
        vocab_size=len(VOCAB), hidden_size=60, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=136, max_position_embeddings=LONGEST, num_labels=1)),
    "llama": (transformers.LlamaForSequenceClassification, transformers.LlamaConfig(
        vocab_size=len(VOCAB), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=96, max_position_embeddings=LONGEST,
        num_labels=1, pad_token_id=0)),
}


def build(name, dtype=torch.float32):
    kind, config = MODELS[name]
    return kind(config).to(dtype).eval()


class Model:
    """fp32 weights, and their scores in fp32 and fp64."""

    def __init__(self, name):
        self.name = name
        self.fp32 = build(name)
        random_weights(self.fp32, seed=5)
        with Float64():
            self.fp64 = build(name, torch.float64)
            weights = dict(self.fp32.named_parameters())
            for key, parameter in self.fp64.named_parameters():
                parameter.data.copy_(weights[key].data)

    def save(self, folder, settings):
        folder.mkdir(parents=True, exist_ok=True)
        config = {**MODELS[self.name][1].to_diff_dict(), **settings,
                  "architectures": [MODELS[self.name][0].__name__], "torch_dtype": "float32"}
        (folder / "config.json").write_text(json.dumps(config))
        tensors = {k: v.data.contiguous() for k, v in self.fp32.named_parameters()}
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        make_tokenizer(LONGEST).save(str(folder / "tokenizer.json"))

    def score(self, model, encoded):
        wide = model is self.fp64
        inputs = {"input_ids": torch.tensor([encoded.ids])}
        if self.name == "bert":
            inputs["token_type_ids"] = torch.tensor([encoded.type_ids])

        def compute():
            with torch.no_grad():
                return model(**inputs).logits[0, 0]
        if not wide:
            return compute()
        with Float64():
            return compute()


def make_pairs():
    texts = make_texts(LONGEST)
    pairs = [(a, b) for a, b in zip(texts, reversed(texts))] + [(texts[-1], texts[-2])]
    pairs += [(text, texts[9]) for text in texts[::5]] + [("", "a"), ("a", "")]
    return pairs


def compare(binaries, folder, report, name, is_logistic):
    """Scores of pairs of all lengths, and the order that they give."""
    model, pairs = Model(name), make_pairs()
    model.save(folder, {"sentence_transformers": {"activation_fn": SIGMOID}} if not is_logistic else {})
    if not is_logistic:  # as versions from 5.4 write it, which counts before config.json
        (folder / "config_sentence_transformers.json").write_text(json.dumps(
            {"activation_fn": IDENTITY, "default_prompt_name": None, "model_type": "CrossEncoder"}))
        (folder / "modules.json").write_text(json.dumps(
            [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.Transformer"}]))
    tokenizer = make_tokenizer(LONGEST)
    encoded = [tokenizer.encode(*pair) for pair in pairs]
    relevance = torch.sigmoid if is_logistic else lambda x: x
    exact = relevance(torch.stack([model.score(model.fp64, each) for each in encoded]))
    theirs = relevance(torch.stack([model.score(model.fp32, each) for each in encoded]).double())
    what = f"{name}, {'logistic' if is_logistic else 'plain'}"
    command = [str(binaries / "tessera"), "serve", str(folder), "--port", "0"]
    with Server(command) as server:
        def score(first, second):
            status, body = server.post("/score", text_1=first, text_2=second, truncate_prompt_tokens=-1)
            assert status == 200, body
            assert [one["index"] for one in body["data"]] == list(range(len(body["data"])))
            return torch.tensor([one["score"] for one in body["data"]], dtype=torch.float64), body["usage"]
        scores, usage = score([a for a, _ in pairs], [b for _, b in pairs])
        count = sum(len(each.ids) for each in encoded)
        report.fact(what, "fp32", "tokens, some pairs truncated", count, usage["prompt_tokens"] == count)
        ours, twin = Distance(), Distance()
        ours.add(scores, exact)
        twin.add(theirs, exact)
        for norm, value in ours.norms().items():
            report.line(what, "fp32", f"scores, {norm}", value, twin.norms()[norm])
        alone = torch.cat([score(a, b)[0] for a, b in pairs[::4]])
        report.fact(what, "fp32", "alone as among others", "to the bit", torch.equal(alone, scores[::4]))
        rerank(server, report, what, score)
        if name == "bert" and is_logistic:
            refuse(server, report)
            command_line(binaries, folder, report, score)
    return pairs, scores


def rerank(server, report, what, score):
    """One query: the order of /v1/rerank is that of /score."""
    documents = make_texts(60)[1:13]
    query = "the day when he looked"
    scores, _ = score(query, documents)
    order = sorted(range(len(documents)), key=lambda i: -scores[i])
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        status, body = server.post(path, query=query, documents=documents, truncate_prompt_tokens=-1)
        assert status == 200, body
        rows = body["results"]
        good = ([row["index"] for row in rows] == order
                and all(row["relevance_score"] == scores[row["index"]] for row in rows)
                and all(row["document"]["text"] == documents[row["index"]] for row in rows))
        report.fact(what, "fp32", f"{path} orders by /score", f"{len(rows)} documents", good)
    status, body = server.post("/v1/rerank", query=query, documents=[{"text": each} for each in documents],
                               top_n=3, return_documents=False, truncate_prompt_tokens=-1)
    rows = body["results"]
    report.fact(what, "fp32", "top_n", 3, [row["index"] for row in rows] == order[:3]
                and all(set(row) == {"index", "relevance_score"} for row in rows))


def command_line(binaries, folder, report, score):
    """`tessera rerank` is /v1/rerank."""
    documents, query = make_texts(60)[1:13], "the day when he looked"
    scores, _ = score(query, documents)
    order = sorted(range(len(documents)), key=lambda i: -scores[i])[:5]
    command = [binaries / "tessera", "rerank", folder, "--query", query, "--truncate", "--quiet", "--top", "5"]
    for options, lines in ((["--document=" + each for each in documents], ""), ([], "\n".join(documents))):
        done = subprocess.run([*command, *options], input=lines, capture_output=True, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        good = [(row["index"], row["relevance_score"]) for row in rows] == [(i, float(scores[i])) for i in order]
        report.fact("tessera rerank", "fp32", "options" if options else "standard input", f"{len(rows)} documents",
                    done.returncode == 0 and good)
    for words, arguments in (("cross-encoder, which scores pairs", ["generate", folder, "--prompt", "a"]),
                             ("gives scores and no embeddings", ["embed", folder, "--text", "a"]),
                             ("not answers of chats", ["score", folder]),
                             ("training is not supported", ["compile", folder, "-o", folder / "out"]),
                             ("is a cross-encoder, whose quantized", ["quantize", folder, "--quant", "int8", "-o", folder / "q"]),
                             ("--truncate shortens it", [*command[1:5], "--document", "day " * 200])):
        done = subprocess.run([binaries / "tessera", *arguments], capture_output=True, text=True, input="")
        report.fact("refused", "", words, done.returncode, done.returncode != 0 and words in done.stderr)


def refuse(server, report):
    """Requests that are wrong: each has one line that says why."""
    long = "day " * 200
    for fields, words in (
            (dict(query="a"), "documents is missing"),
            (dict(documents=["a"]), "query is missing"),
            (dict(query="a", documents=[]), "documents must be strings, and not empty"),
            (dict(query="a", documents="b"), "documents must be strings"),
            (dict(query="a", documents=["b", 3]), "each of documents must be a string"),
            (dict(query="a", documents=["b"], top_n=-1), "top_n must be"),
            (dict(query="a", documents=[{"text": "b", "title": "c"}]), "'title' of a document is not supported"),
            (dict(query="a", documents=["b"] * 2049), "at most 2048"),
            (dict(query="a", documents=["b"], max_chunks_per_doc=1), "'max_chunks_per_doc' is not supported"),
            (dict(query="a", documents=["b", long]), "documents 1: the pair has"),
            (dict(query="a", documents=["b"], truncate_prompt_tokens=3), "allow more")):
        status, body = server.post("/v1/rerank", **fields)
        report.fact("refused", "", words, status, status == 400 and words in body["error"]["message"])
    status, body = server.post("/score", text_1=["a", "b"], text_2=["c"])
    report.fact("refused", "", "unequal lists", status, status == 400 and "text_2 has 1" in body["error"]["message"])
    for path in ("/v1/completions", "/v1/embeddings"):
        status, body = server.post(path, prompt="a", input="a")
        report.fact("refused", "", path, status, status == 400 and "scores pairs" in body["error"]["message"])


def shipped(binaries, folder, report, pairs, scores):
    """One file instead of the directory."""
    path = folder.parent / "shipped.tsr"
    made = subprocess.run([binaries / "tessera", "compile", folder, "--mode", "infer", "-o", path],
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    with Server([str(binaries / "tessera"), "serve", str(path), "--port", "0"]) as server:
        status, body = server.post("/score", text_1=[a for a, _ in pairs], text_2=[b for _, b in pairs],
                                   truncate_prompt_tokens=-1)
        same = [one["score"] for one in body["data"]] == scores.tolist()
        report.fact("bert", "fp32", "one file of it", "to the bit", same)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report = Report()
    folder = arguments.folder
    pairs, scores = compare(arguments.binaries, folder / "bert", report, "bert", False)
    shipped(arguments.binaries, folder / "bert", report, pairs, scores)
    compare(arguments.binaries, folder / "logistic", report, "bert", True)
    compare(arguments.binaries, folder / "llama", report, "llama", True)
    print(f"{report.lines} comparisons, {report.failures} failed")
    return 1 if report.failures or not report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
