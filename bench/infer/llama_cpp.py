#!/usr/bin/env python3
"""Tessera against llama.cpp: the same shape, the same bits a weight, alternately.

   bench/infer/llama_cpp.py gguf DIR FILE
       writes DIR, a Llama in Hugging Face's layout, as a GGUF file of its own type
       and without a tokenizer, which llama-bench does not need (Python packages
       gguf and numpy)
   bench/infer/llama_cpp.py compare --llama-bench PROGRAM --gguf FILE DIR
       [--quant int8|int4] [--set KEY=VALUE]... [--pp 512] [--tg 32] [--threads 2] [--rounds 3]
       [--before CMD] [--json FILE] [-- FLAGS OF LLAMA-BENCH...]
       runs llama-bench and `tessera bench infer` alternately, for prefill and for
       decode, and prints the median of each and their ratio. CMD is prepended
       to each of them, such as "taskset -c 0,1"

README.md describes how to build llama.cpp and quantize its files."""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


# --- from safetensors to GGUF


def open_tensors(path):
    """Name to (shape, the elements as they are in the file)."""
    import numpy

    types = {"BF16": numpy.uint16, "F16": numpy.float16, "F32": numpy.float32}
    data = numpy.memmap(path, mode="r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + size].tobytes())
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        yield name, entry["dtype"], data[begin:end].view(types[entry["dtype"]]).reshape(entry["shape"])


def neighbours(weight, heads):
    """RoPE rotates adjacent dimensions in GGUF, the two halves of a head in Hugging Face."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def rope_factors(config):
    """What rope_scaling divides frequencies by, as llama.cpp reads it; None without rope_scaling."""
    import math

    import numpy

    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type", scaling.get("type")) != "llama3":
        return None
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    trained, factors = scaling["original_max_position_embeddings"], []
    width = head_dim(config)
    for i in range(0, width, 2):
        length = 2 * math.pi * config["rope_theta"] ** (i / width)
        fraction = min(max((trained / length - low) / (high - low), 0), 1)
        factors.append(1 / ((1 - fraction) / scaling["factor"] + fraction))
    return numpy.array(factors, dtype=numpy.float32)


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


BLOCK = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    module = name.removesuffix(".weight")
    if module in OUTSIDE:
        return OUTSIDE[module] + ".weight"
    if module.startswith("model.layers."):
        layer, _, inner = module.removeprefix("model.layers.").partition(".")
        if inner in BLOCK:
            return f"blk.{layer}.{BLOCK[inner]}.weight"
    sys.exit(f"{name}: no tensor of a Llama; this writes no other models")


def write_gguf(directory, output):
    import gguf
    import numpy

    config = json.loads((directory / "config.json").read_text())
    if config.get("model_type") != "llama":
        sys.exit(f"{directory}/config.json: model_type is {config.get('model_type')}; this writes Llama alone")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(output, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim(config))
    writer.add_value_length(head_dim(config))
    writer.add_rope_dimension_count(head_dim(config))
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    kinds = gguf.GGMLQuantizationType
    if (factors := rope_factors(config)) is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    for name, kind, weight in open_tensors(directory / "model.safetensors"):
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = neighbours(weight, heads if name.endswith("q_proj.weight") else kv_heads)
        raw = kinds[kind]
        if weight.ndim == 1:  # llama.cpp has its norms in fp32
            wide = (weight.astype(numpy.uint32) << 16).view(numpy.float32) if kind == "BF16" else weight
            weight, raw = wide.astype(numpy.float32), kinds.F32
        if raw == kinds.BF16:  # its shape is given in bytes
            weight = numpy.ascontiguousarray(weight).view(numpy.uint8)
        writer.add_tensor(gguf_name(name), weight, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- the comparison


def measure(before, command):
    """Tests of one run by their name, such as pp512: tokens a second."""
    run = subprocess.run([*before, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"{shlex.join(command)} exits {run.returncode}:\n{run.stderr}")
    tests = json.loads(run.stdout) if run.stdout.startswith("[") else map(json.loads, run.stdout.splitlines())
    return {f"pp{test['n_prompt']}" if test["n_prompt"] else f"tg{test['n_gen']}": test["avg_ts"] for test in tests}


def compare(arguments):
    before = shlex.split(arguments.before)
    counts = ["-p", arguments.pp, "-n", arguments.tg, "-r", arguments.repeat, "-t", arguments.threads]
    theirs = [arguments.llama_bench, "-m", arguments.gguf, *map(str, counts), "-o", "json", *arguments.flags]
    ours = [arguments.tessera, "bench", "infer", arguments.directory, "--pp", arguments.pp, "--tg", arguments.tg,
            "--repeat", arguments.repeat, "--threads", arguments.threads, "--json"]  # fmt: skip
    ours = [str(word) for word in ours] + (["--quant", arguments.quant] if arguments.quant else [])
    ours += [word for each in arguments.set for word in ("--set", each)]
    print("A:", shlex.join(theirs))
    print("B:", shlex.join(ours))
    rounds = []
    for number in range(arguments.rounds):
        rounds.append((measure(before, theirs), measure(before, ours)))
        for name in rounds[-1][0]:
            a, b = (rates[name] for rates in rounds[-1])
            print(f"round {number + 1}: {name:6} A {a:8.2f} t/s  B {b:8.2f} t/s  B / A {b / a:.2f}", flush=True)
    report = {"a": theirs, "b": ours, "rounds": rounds, "ratios": {}}
    for name in rounds[0][0]:
        a, b = (statistics.median(pair[side][name] for pair in rounds) for side in (0, 1))
        ratio = statistics.median(pair[1][name] / pair[0][name] for pair in rounds)
        report["ratios"][name] = ratio
        print(f"median:  {name:6} A {a:8.2f} t/s  B {b:8.2f} t/s  B / A {ratio:.2f}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("gguf")
    write.add_argument("directory", type=pathlib.Path)
    write.add_argument("output")
    comparison = commands.add_parser("compare")
    comparison.add_argument("directory")
    comparison.add_argument("--llama-bench", required=True)
    comparison.add_argument("--gguf", required=True)
    comparison.add_argument("--tessera", default=str(ROOT / "build/bin/tessera"))
    comparison.add_argument("--quant", choices=["int8", "int4"])
    comparison.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a recipe key of Tessera's")
    for name, count in (("--pp", 512), ("--tg", 32), ("--threads", 2), ("--rounds", 3), ("--repeat", 2)):
        comparison.add_argument(name, type=int, default=count)
    comparison.add_argument("--before", default="")
    comparison.add_argument("--json")
    comparison.add_argument("flags", nargs="*", help="of llama-bench, after --")
    arguments = parser.parse_args()
    if arguments.command == "gguf":
        write_gguf(arguments.directory, arguments.output)
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
