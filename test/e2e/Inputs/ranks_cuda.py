"""A mesh of GPUs without one: ranks on the emulated GPU, and on the CUDA device
by a driver without a GPU, train as ranks on the CPU do.

    ranks_cuda.py BIN SCRATCH MPIRUN
"""
import json
import os
import pathlib
import sys

import harness

SPEC = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "vocab_size": 400, "n_embd": 16, "n_layer": 1, "n_head": 2,
        "n_positions": 8, "activation_function": "gelu_new",
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
SETS = ["batch.micro=2", "batch.accumulate=1", "batch.sequence=8",
        "eval.every=0", "checkpoint.every=0"]
STEPS = 2


def main():
    binaries, scratch = map(pathlib.Path, sys.argv[1:3])
    scratch.mkdir(parents=True)
    tokens = harness.make_tokens(binaries, scratch / "data")
    spec, program = scratch / "spec", scratch / "train"
    spec.mkdir()
    (spec / "config.json").write_text(json.dumps(SPEC))
    harness.run(binaries / "tessera", "compile", spec, "--mesh", "data=2,zero=1",
        *[word for each in SETS for word in ("--set", each)], "--target",
        "cpu:avx2,cuda:sm_80", "--cache", "off", "-o", program)
    fake = str(binaries.parent / "test/runtime/hal/cuda/libcuda-fake.so")
    settings = os.environ | {
        "OMPI_MCA_mpi_yield_when_idle": "1", "TESSERA_LIBCUDA": fake,
        "TESSERA_LIBCUBLASLT": fake, "TESSERA_LIBNCCL": "none",
        "TESSERA_FAKE_CUDA_CAPABILITY": "80", "TESSERA_FAKE_CUDA_GPUS": "2",
        "TESSERA_FAKE_CUDA_TWINS": str(program),
        "XDG_CACHE_HOME": str(scratch / "cache")}

    def train(device):
        """Losses and norms as they are, and what was said."""
        done = harness.run(sys.argv[3], "--allow-run-as-root", "--oversubscribe",
            "-n", 2, program, "--data", tokens, "--out",
            scratch / device.replace(":", "-"), "--steps", STEPS, "--threads", 1,
            "--dump-metrics", "--device", device, env=settings)
        lines = [line.split() for line in done.stdout.splitlines()]
        return ([tuple(float.fromhex(x) for x in (words[3], words[5]))
                 for words in lines if words[0] == "step"], done.stderr)
    cpu, _ = train("cpu")
    emulated, _ = train("cuda-emu")
    driven, said = train("cuda")
    close = len(cpu) == len(emulated) == STEPS and all(
        abs(a - b) < 1e-4 for one, other in zip(cpu, emulated)
        for a, b in zip(one, other))
    harness.check(close, "emulated GPUs train as CPUs do")
    harness.check(driven == emulated, "CUDA devices compute the same bits")
    harness.check("cuda:0" in said and
                  "; collectives go through the host's memory" in said,
                  "and say how they reach one another")


main()
