#!/usr/bin/env python3
"""Throughput of a server with LoRA adapters mixed in every batch, against the same
model without slots.

   bench/serve/adapters.py TESSERA SPEC TOKENIZER [--adapters 32] [--rank 16]
       [--targets q_proj,v_proj] [--batch 32] [--tokens 64] [--runs 5] [-- FLAGS...]

SPEC is the folder of a Llama's config.json and TOKENIZER a tokenizer.json; weights and
factors are random. FLAGS go to both servers. Each run sends as many requests as a batch
holds to one server after the other: to the model without slots, to the model with slots
but without an adapter, and to all adapters in turn. Ratios are of neighbours in time. Before that,
a request to each adapter alone and to all at once must have the same text and log-probabilities.
On a machine that does other work, add FLAGS `--threads 1` and compare the processor time."""

import argparse
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

SMALL = bytes(0x3c | byte & 0x80 for byte in range(256))  # high bytes of bf16: about ±0.01


def random_bf16(count):
    values = bytearray(2 * count)
    values[0::2] = os.urandom(count)
    values[1::2] = os.urandom(count).translate(SMALL)
    return bytes(values)


def write(path, shapes):
    """Random tensors in safetensors; those of one dimension are ones."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            file.write(random_bf16(shape[0] * shape[1]) if len(shape) > 1 else b"\x80\x3f" * shape[0])


def linear_layers(config):
    """[out, in] by name in a layer."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    return {"self_attn.q_proj": [queries, hidden], "self_attn.k_proj": [keys, hidden],
            "self_attn.v_proj": [keys, hidden], "self_attn.o_proj": [hidden, queries],
            "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner]}


def make_base(folder, spec, tokenizer):
    config = json.loads((spec / "config.json").read_text())
    config["torch_dtype"] = "bfloat16"
    hidden = config["hidden_size"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}{name}.weight": shape for name, shape in linear_layers(config).items()}
        shapes |= {f"{prefix}{name}.weight": [hidden] for name in ("input_layernorm", "post_attention_layernorm")}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [config["vocab_size"], hidden]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(tokenizer, folder / "tokenizer.json")
    write(folder / "model.safetensors", shapes)
    return config


def make_adapter(folder, config, rank, targets):
    shapes = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (rows, columns) in linear_layers(config).items():
            if name.rpartition(".")[2] in targets:
                path = f"base_model.model.model.layers.{layer}.{name}"
                shapes[f"{path}.lora_A.weight"], shapes[f"{path}.lora_B.weight"] = [rank, columns], [rows, rank]
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets}))
    write(folder / "adapter_model.safetensors", shapes)
    return folder


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"ready: (\S+) on http://[^:/]+:(\d+)", line):
                self.model, self.port = found[1], int(found[2])
                return
        sys.exit("the server is not ready:\n" + "".join(lines))

    def __enter__(self):
        # Its log must not fill the pipe.
        self.reader = ThreadPoolExecutor(1)
        self.reader.submit(lambda: [None for _ in self.process.stderr])
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.reader.shutdown()

    def ask(self, model, number, tokens, **more):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": model, "prompt": [number % 200 + 1, 2, 3, 4], "max_tokens": tokens, "temperature": 0,
             "ignore_eos": True, **more}))
        answer = connection.getresponse()
        body = json.loads(answer.read())
        if answer.status != 200:
            sys.exit(f"{answer.status}: {body}")
        return body

    def answers(self, models, tokens, at_once):
        """Completions and log-probabilities, of a request to each model."""
        def answer(number):
            choice = self.ask(models[number], number, tokens, logprobs=1)["choices"][0]
            return choice["text"], choice["logprobs"]["token_logprobs"]
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(answer, range(len(models))))

    def processor_seconds(self):
        """Of all threads (proc(5): fields 14 and 15)."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")

    def throughput(self, models, requests, tokens):
        """Generated tokens a second, and a second of processor time."""
        begin, before = time.monotonic(), self.processor_seconds()
        with ThreadPoolExecutor(requests) as pool:
            bodies = pool.map(lambda i: self.ask(models[i % len(models)], i, tokens), range(requests))
            done = sum(body["usage"]["completion_tokens"] for body in bodies)
        seconds, used = time.monotonic() - begin, self.processor_seconds() - before
        return done / seconds, done / used


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("tessera", "spec", "tokenizer"):
        parser.add_argument(name, type=pathlib.Path)
    for name, usual in (("adapters", 32), ("rank", 16), ("batch", 32), ("tokens", 64), ("runs", 5)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--targets", default="q_proj,v_proj")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options, flags = parser.parse_args(words[:split]), words[split + 1:]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        config = make_base(folder / "base", options.spec, options.tokenizer)
        given = []
        for i in range(options.adapters):
            made = make_adapter(folder / f"a{i}", config, options.rank, options.targets.split(","))
            given += ["--adapter", f"a{i}={made}"]
        command = [options.tessera, "serve", folder / "base", "--port", "0", "--max-batch", options.batch,
                   "--max-context", 256, "--weight-cache", 0, *flags]
        plain, slotted = ([str(part) for part in (*command, *more)] for more in ([], given))
        with Server(plain) as base, Server(slotted) as server:
            names = [f"a{i}" for i in range(options.adapters)]
            alone = server.answers(names, options.tokens, 1)
            mixed = server.answers(names, options.tokens, len(names))
            differ = sum(one != other for one, other in zip(alone, mixed))
            distinct = len({(text, *logprobs) for text, logprobs in alone})
            print(f"answers of {len(names)} adapters: {differ} differ between alone and at once; "
                  f"{distinct} distinct", flush=True)
            if differ or distinct < len(names):
                sys.exit("answers must be the same alone and at once, and differ between adapters")
            cases = {"base": (base, [base.model]), "slots, unused": (server, [server.model]),
                     "mixed": (server, names)}
            rates = {name: [] for name in cases}
            for run in range(options.runs + 1):
                for name, (one, models) in cases.items():
                    rate = one.throughput(models, options.batch, options.tokens)
                    if run > 0:  # the first only warms up
                        rates[name].append(rate)
            for column, unit in enumerate(("s", "processor second")):
                for name, pairs in rates.items():
                    own = [pair[column] for pair in pairs]
                    ratios = [rate / usual[column] for rate, usual in zip(own, rates["base"])]
                    print(f"{name:14} {statistics.median(own):8.1f} tokens/{unit}  × {statistics.median(ratios):.3f}"
                          f"  ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)


if __name__ == "__main__":
    main()
