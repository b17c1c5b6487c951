"""Text from models of several families on meshes of real MPI ranks: greedy
tokens are those of one rank, and log-probabilities within rounding. And what
a mesh of ranks refuses, and how it ends.

    generate_ranks.py BIN SCRATCH MPIRUN [--all]
"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

from harness import SOURCE, check, make_tokens, refuses, run
from random_models import mpirun, ranks_of

sys.path.insert(0, str(SOURCE / "test/runtime/serve"))
from serving import Server  # noqa: E402

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 403, "max_position_embeddings": 256, "hidden_size": 48,
    "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8,
    "intermediate_size": 70, "num_hidden_layers": 3, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "initializer_range": 0.2,
    "tie_word_embeddings": False}
MODELS = {
    # Heads, feed-forward width and vocabulary that two ranks do not divide.
    "llama": (LLAMA, ["tensor=2", "tensor=4"]),
    # More ranks than heads of keys and values.
    "grouped": (LLAMA | {"num_attention_heads": 4, "num_key_value_heads": 2,
                         "tie_word_embeddings": True}, ["tensor=4"]),
    "gpt2": ({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "vocab_size": 400, "n_positions": 256, "n_embd": 32, "n_head": 4,
        "n_layer": 2, "n_inner": None, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "initializer_range": 0.2, "embd_pdrop": 0.0,
        "attn_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": True},
        ["tensor=4"]),
    "mixtral": (LLAMA | {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
        "sliding_window": None, "num_local_experts": 5, "num_experts_per_tok": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
        "router_aux_loss_coef": 0.01, "output_router_logits": False},
        ["expert=2", "expert=2,tensor=2"]),
    # One head of keys and values, which all ranks have.
    "shared": (LLAMA | {"num_attention_heads": 4, "num_key_value_heads": 1},
               ["tensor=2"]),
    # One cached latent for all heads.
    "deepseek": ({
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "vocab_size": 403, "max_position_embeddings": 256, "hidden_size": 32,
        "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 20,
        "kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "intermediate_size": 72, "num_hidden_layers": 3,
        "moe_intermediate_size": 40, "n_routed_experts": 6, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "n_group": 3, "topk_group": 2,
        "first_k_dense_replace": 1, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "initializer_range": 0.2, "tie_word_embeddings": False},
        ["tensor=2", "expert=2,tensor=2"]),
}
# A mesh for each type of weights; None: in --all alone, which has all of a model's meshes for each.
QUANTIZED = {
    "blocks": (LLAMA | {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
                        "head_dim": 32, "intermediate_size": 192},
               {"int8": "tensor=2", "int4": "tensor=4", "fp8": "tensor=4"}),
    # Heads of 24, which are no whole groups.
    "uneven": (LLAMA | {"hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
                        "head_dim": 24, "intermediate_size": 208},
               {"int8": None, "int4": "tensor=2", "fp8": None}),
    "experts": (MODELS["mixtral"][0] | {"hidden_size": 64, "intermediate_size": 96,
                                        "head_dim": 16},
                {"int8": "expert=2", "int4": "expert=2,tensor=2", "fp8": None}),
}
# Sums in another order, in fp32.
ROUNDING = 2e-4
PROMPTS = ["The command", "A server writes the file. Every user " * 6]


class Ranks:
    def __init__(self, binaries, scratch, mpirun):
        self.binaries, self.scratch = pathlib.Path(binaries), pathlib.Path(scratch)
        self.tessera, self.mpirun = self.binaries / "tessera", mpirun
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.environ["XDG_CACHE_HOME"] = str(self.scratch / "cache")
        os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
        self.data = make_tokens(self.binaries, self.scratch / "data")

    def model(self, name, config):
        """A directory with random weights, and the data's tokenizer."""
        spec, folder = self.scratch / f"spec-{name}", self.scratch / name
        spec.mkdir()
        (spec / "config.json").write_text(json.dumps(config))
        run(self.tessera, "compile", spec, "--target", "cpu:avx2", "--set",
            "batch.sequence=32", "--set", "batch.micro=1", "-o", spec / "train")
        run(spec / "train", "--data", self.data, "--out", spec / "run",
            "--steps", 1, "--threads", 1, "--quiet")
        run(self.tessera, "export", spec / "run", "-o", folder)
        return folder

    def start(self, ranks, *command):
        return [str(word) for word in (*mpirun(self.mpirun, ranks), self.tessera, *command)]

    def text(self, folder, prompt, mesh, *more):
        command = ["generate", folder, "--prompt", prompt, "--temperature", 0,
                   "--max-tokens", 40, "--threads", 1, "--ignore-end", *more]
        if not mesh:
            return run(self.tessera, *command).stdout
        return run(*self.start(ranks_of(mesh), *command, "--mesh", mesh)).stdout


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def rank_environments():
    """Of a world of two ranks over TCP: from a rank to its environment."""
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return lambda rank: os.environ | world | {"RANK": str(rank)}


class Served:
    """A server of two ranks over TCP, of which this starts the second."""

    def __init__(self, ranks, folder, *more):
        self.ranks, self.folder, self.more = ranks, folder, more

    def __enter__(self):
        of_rank = rank_environments()
        command = [str(word) for word in (
            self.ranks.tessera, "serve", self.folder, "--port", "0", "--threads",
            "1", "--mesh", "tensor=2", *self.more)]
        self.other = subprocess.Popen(command, env=of_rank(1), stderr=subprocess.PIPE,
                                      text=True)
        self.server = Server(command, env=of_rank(0))
        return self

    def __exit__(self, *_):
        self.server.__exit__()
        if self.other.poll() is None:
            self.other.kill()
        self.other.wait()


def scores(server, prompt):
    status, body = server.post("/v1/completions", prompt=prompt, max_tokens=12,
                               temperature=0, logprobs=3, ignore_eos=True)
    assert status == 200, body
    choice = body["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def same_texts(ranks):
    for name, (config, meshes) in MODELS.items():
        folder = ranks.model(name, config)
        alone = [ranks.text(folder, prompt, "") for prompt in PROMPTS]
        for mesh in meshes:
            texts = [ranks.text(folder, prompt, mesh) for prompt in PROMPTS]
            check(texts == alone, f"{name} on {mesh}: the tokens of one rank")


def quantized(ranks, takes_all):
    """Weights of int8, int4 and fp8, and packed ones in bf16. Matrices that are no whole groups or
    micropanels, such as all of `llama`, stay whole."""
    for name, (config, meshes) in QUANTIZED.items():
        folder = ranks.model(name, config)
        for quant, mesh in meshes.items():
            if not mesh and not takes_all:
                continue
            alone = [ranks.text(folder, prompt, "", "--quant", quant) for prompt in PROMPTS]
            for each in sorted({*meshes.values()} - {None}) if takes_all else [mesh]:
                texts = [ranks.text(folder, prompt, each, "--quant", quant) for prompt in PROMPTS]
                check(texts == alone, f"{name} in {quant} on {each}: the tokens of one rank")
    packed, folder = ["--set", "precision.compute=bf16"], ranks.scratch / "blocks"
    alone = [ranks.text(folder, prompt, "", *packed) for prompt in PROMPTS]
    texts = [ranks.text(folder, prompt, "tensor=2", *packed) for prompt in PROMPTS]
    check(texts == alone, "packed weights on tensor=2: the tokens of one rank")


def stored(ranks, folder):
    """A checkpoint in int4 keeps its codes on ranks."""
    place = ranks.scratch / "stored"
    run(ranks.tessera, "quantize", folder, "-o", place, "--quant", "int4")
    alone = ranks.text(place, PROMPTS[1], "")
    check(ranks.text(place, PROMPTS[1], "tensor=2") == alone,
          "a checkpoint in int4 on tensor=2: the tokens of one rank")


def same_scores(ranks, folder):
    """Several requests at once, their log-probabilities, and an orderly end."""
    prompts = PROMPTS + ["Every file", "A user"]
    with Server([str(ranks.tessera), "serve", str(folder), "--port", "0",
                 "--threads", "1"]) as server:
        alone = [scores(server, prompt) for prompt in prompts]
    with Served(ranks, folder) as served:
        pairs = [scores(served.server, prompt) for prompt in prompts]
        check([text for text, _ in pairs] == [text for text, _ in alone],
              "a server of two ranks gives the tokens of one")
        gap = max(abs(a - b) for (_, one), (_, two) in zip(alone, pairs)
                  for a, b in zip(one, two))
        check(gap < ROUNDING, f"log-probabilities differ by {gap:.1e}")
        served.server.terminate()
        check((served.server.process.wait(60), served.other.wait(60)) == (0, 0),
              "SIGTERM to rank 0 ends both")


def dead_rank(ranks, folder):
    with Served(ranks, folder) as served:
        served.other.kill()
        status, body = served.server.post("/v1/completions", prompt="A", max_tokens=8)
        check(status >= 500 and "rank 1" in body["error"]["message"],
              f"a request without rank 1: {status} {body['error']['message'][:90]}")
        code = served.server.process.wait(60)
        check(code == 70 and "rank 1" in served.server.log.read(),
              "rank 0 names it and exits with 70")


def encoder(ranks):
    """A directory that is known to be an encoder's before its weights are read."""
    folder = ranks.scratch / "encoder"
    folder.mkdir()
    shutil.copy(SOURCE / "models/specs/minilm-l6/config.json", folder)
    return folder


def refusals(ranks, folder):
    """One rank refuses as several do, before anything is compiled."""
    tessera, run_folder = ranks.tessera, ranks.scratch / "spec-llama/run"
    packaged = ranks.scratch / "packaged.tsr"
    refuses("packaging a mesh", "a packaged model", "--no-weights")(
        tessera, "compile", folder, "--mode", "infer", "--mesh", "tensor=2",
        "-o", ranks.scratch / "none")
    run(tessera, "compile", folder, "--mode", "infer", "--target", "cpu:avx2", "-o", packaged)
    for what, place, parts, more in [
            ("a run", run_folder, ["is a run", "export it"], []),
            ("a packaged model", packaged, ["compiled for one process"], []),
            ("an adapter", folder, ["--adapter", "export --merge"], ["--adapter", "a=b"]),
            ("a missing directory", ranks.scratch / "none", ["is not a run directory"], [])]:
        for command in (["serve", "--port", 0], ["generate", "--prompt", "A"]):
            more = [word.removeprefix("a=") if command[0] == "generate" else word for word in more]
            mesh = [] if "--mesh" in more else ["--mesh", "tensor=1"]
            refuses(f"{what}, tessera {command[0]}", *parts)(
                tessera, *command, place, *mesh, *more)
    for what, place, part, more in [
            ("a packaged model with --max-batch", packaged, "compiled for one process",
             ["--max-batch", 2]),
            ("speculative decoding", folder, "--speculate is for one process", ["--speculate", 2]),
            ("a draft model", folder, "--draft is for one process", ["--draft", folder]),
            ("slots for adapters", folder, "models on a mesh have no adapters",
             ["--adapter-slots", 1]),
            ("an encoder", encoder(ranks), "only models that generate text are sharded", [])]:
        refuses(f"{what}, tessera serve", part)(
            tessera, "serve", "--port", 0, place, "--mesh", "tensor=1", *more)
    two_refuse(ranks, packaged)


def two_refuse(ranks, packaged):
    command = ["serve", packaged, "--port", 0, "--mesh", "tensor=2", "--max-batch", 2]
    command = [str(word) for word in (ranks.tessera, *command)]
    of_rank = rank_environments()
    other = subprocess.Popen(command, env=of_rank(1), stderr=subprocess.PIPE, text=True)
    refuses("a packaged model with --max-batch, rank 0 of two", "compiled for one process",
            env=of_rank(0))(*command)
    errors = other.communicate(timeout=60)[1]
    check(other.returncode == 1 and not errors, "rank 1 ends without another line")


def bench(ranks, folder):
    """Weights of the directory, and random ones, which need none."""
    command = ["bench", "infer", "--pp", 20, "--tg", 9, "--repeat", 2, "--threads", 1, "--json"]
    alone = json.loads(run(ranks.tessera, *command, folder).stdout.splitlines()[0])
    for more in ([folder], [ranks.scratch / "spec-llama", "--random"]):
        printed = run(*ranks.start(2, *command, *more, "--mesh", "tensor=2")).stdout
        lines = [json.loads(line) for line in printed.splitlines()]
        assert [line["test"] for line in lines] == ["pp20", "tg9"], printed
        for line in lines:
            assert 0 < line["collectives"] < 1 and "of_limit" not in line, line
            assert line["mesh"] == "tensor=2" and line["rank_n_threads"] == 1, line
            assert 0.5 <= line["rank_model_size"] / alone["model_size"] < 0.7, line
    command.remove("--json")
    table = run(*ranks.start(2, *command, folder, "--mesh", "tensor=2")).stdout.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert cells[0][1] == "size of a rank" and cells[0][7] == "collectives", table
    assert [line[5] for line in cells[2:]] == ["pp20", "tg9"], table
    assert all(line[7].endswith("% of the programs' time") for line in cells[2:]), table
    check(True, "bench infer on tensor=2: the share of collectives")
    for what, place, part, more in [
            ("a packaged model", ranks.scratch / "packaged.tsr", "compiled for one process", []),
            ("a long prompt", folder, "lower --pp or --tg", ["--pp", 9999])]:
        refuses(f"{what}, bench infer", part)(
            ranks.tessera, "bench", "infer", place, "--mesh", "tensor=1", *more)


def main():
    ranks = Ranks(*sys.argv[1:4])
    same_texts(ranks)
    quantized(ranks, takes_all=sys.argv[4:] == ["--all"])
    stored(ranks, ranks.scratch / "blocks")
    same_scores(ranks, ranks.scratch / "llama")
    dead_rank(ranks, ranks.scratch / "llama")
    refusals(ranks, ranks.scratch / "llama")
    bench(ranks, ranks.scratch / "llama")


if __name__ == "__main__":
    main()
