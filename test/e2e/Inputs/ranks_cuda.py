"""A mesh of GPUs without one: ranks on the emulated GPU, and on the CUDA device
by a driver without a GPU, train as ranks on the CPU do.

    ranks_cuda.py BIN SCRATCH MPIRUN
"""
import json
import os
import pathlib
import re
import sys

import harness

SPEC = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "vocab_size": 400, "n_embd": 16, "n_layer": 1, "n_head": 2,
        "n_positions": 8, "activation_function": "gelu_new",
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
# Rows exchanged in rounds: with the routing of a new model some do not fit.
EXPERTS = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
           "vocab_size": 400, "hidden_size": 16, "intermediate_size": 16,
           "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
           "num_local_experts": 4, "num_experts_per_tok": 2,
           "max_position_embeddings": 8, "router_aux_loss_coef": 0.01}
SETS = ["batch.micro=2", "batch.accumulate=1", "batch.sequence=8",
        "eval.every=0", "checkpoint.every=0"]
STEPS = 2


class Ranks:
    """Two of them, and what devices there are."""

    def __init__(self, binaries, scratch, mpirun):
        self.tessera, self.scratch, self.mpirun = binaries / "tessera", scratch, mpirun
        self.tokens = harness.make_tokens(binaries, scratch / "data")
        fake = str(binaries.parent / "test/runtime/hal/cuda/libcuda-fake.so")
        self.settings = os.environ | {
            "OMPI_MCA_mpi_yield_when_idle": "1", "TESSERA_LIBCUDA": fake,
            "TESSERA_LIBCUBLASLT": fake, "TESSERA_LIBNCCL": "none",
            "TESSERA_FAKE_CUDA_CAPABILITY": "80", "TESSERA_FAKE_CUDA_GPUS": "2",
            "XDG_CACHE_HOME": str(scratch / "cache")}

    def compile(self, name, config, mesh, sets):
        spec, program = self.scratch / f"{name}-spec", self.scratch / name
        spec.mkdir()
        (spec / "config.json").write_text(json.dumps(config))
        harness.run(self.tessera, "compile", spec, "--mesh", mesh,
            *[word for each in SETS + sets for word in ("--set", each)], "--target",
            "cpu:avx2,cuda:sm_80", "--cache", "off", "-o", program)
        return program

    def plan(self, config, mesh, sets):
        """The text of the execution plan."""
        spec, plan = self.scratch / "plan-spec", self.scratch / "plan.mlir"
        spec.mkdir(exist_ok=True)
        (spec / "config.json").write_text(json.dumps(config))
        harness.run(self.tessera, "compile", spec, "--mesh", mesh,
            *[word for each in SETS + sets for word in ("--set", each)], "--target",
            "cuda:sm_80", "--cache", "off", "--to", "planning", "-o", plan)
        return plan.read_text()

    def train(self, program, device):
        """Losses and norms as they are, and what was said."""
        done = harness.run(self.mpirun, "--allow-run-as-root", "--oversubscribe",
            "-n", 2, program, "--data", self.tokens, "--out",
            self.scratch / f"{program.name}-{device}".replace(":", "-"), "--steps",
            STEPS, "--threads", 1, "--dump-metrics", "--device", device,
            env=self.settings | {"TESSERA_FAKE_CUDA_TWINS": str(program)})
        lines = [line.split() for line in done.stdout.splitlines()]
        return ([tuple(float.fromhex(x) for x in (words[3], words[5]))
                 for words in lines if words[0] == "step"], done.stderr)

    def compare(self, program, kind):
        """What the last device said."""
        cpu, _ = self.train(program, "cpu")
        emulated, _ = self.train(program, "cuda-emu")
        driven, said = self.train(program, "cuda")
        close = len(cpu) == len(emulated) == STEPS and all(
            abs(a - b) < 1e-4 for one, other in zip(cpu, emulated)
            for a, b in zip(one, other))
        harness.check(close, f"emulated GPUs train {kind} as CPUs do")
        harness.check(driven == emulated, f"CUDA devices compute the same bits of {kind}")
        return said


def counted_loops(plan):
    """Induction variable and body of each loop whose count is data."""
    for match in re.finditer(r"^( *)plan\.loop (%\w+) .* atmost .*\{\n", plan, re.M):
        body = plan[match.end():]
        yield match[2], body[:re.search(rf"^{match[1]}\}}", body, re.M).start()]


def main():
    binaries, scratch = map(pathlib.Path, sys.argv[1:3])
    scratch.mkdir(parents=True)
    ranks = Ranks(binaries, scratch, sys.argv[3])
    said = ranks.compare(ranks.compile("dense", SPEC, "data=2,zero=1", []), "a dense model")
    harness.check("cuda:0" in said and
                  "; collectives go through the host's memory" in said,
                  "and say how they reach one another")
    experts = ranks.compile("experts", EXPERTS, "expert=2",
                            ["moe.dispatch=exchange", "moe.buffer=0.5"])
    ranks.compare(experts, "experts")
    listed = harness.run(ranks.tessera, "inspect", experts, "--mesh").stdout
    harness.check("all_to_all" in listed and "exchange_rows" not in listed,
                  "without a count of rows on the host")
    # A graph repeats one body then, and the GPU counts (runtime/hal/cuda).
    loops = list(counted_loops(ranks.plan(EXPERTS, "expert=2",
                                          ["moe.dispatch=exchange", "moe.buffer=0.5"])))
    harness.check(loops and all("all_to_all" in body for _, body in loops) and
                  not any(re.search(rf"{induction}\b", body) for induction, body in loops),
                  f"{len(loops)} loops of rounds whose addresses do not advance")
    folded = ranks.compile("folded", EXPERTS, "tensor=2,expert_tensor=1",
                           ["moe.dispatch=exchange", "moe.buffer=0.5"])
    ranks.compare(folded, "experts over tensor ranks")


main()
