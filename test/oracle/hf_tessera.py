"""Our side of the comparison: `tessera compile`, then `tessera-run` on tensors
from files. Every failure of a tool is an error with what it printed."""
import dataclasses
import os
import pathlib
import subprocess

import safetensors.torch
import torch


def cache_in(folder):
    """What compiles from here on keeps code below `folder`, if lit has no cache for all tests: the
    programs of a model have most kernels in common, and the keys are all that code is made from."""
    os.environ.setdefault("XDG_CACHE_HOME", str(pathlib.Path(folder).resolve() / "cache"))


def unstacked(tensors):
    """Stacks of experts as the reference has them: a name with a '*' is a
    tensor for each entry of its first dimension."""
    single = {}
    for name, value in tensors.items():
        if "*" not in name:
            single[name] = value
            continue
        for number, entry in enumerate(value):
            single[name.replace("*", str(number))] = entry
    return single


SEED = {"seed": torch.tensor([1], dtype=torch.int64)}
# With these AdamW's first moment after one step is the gradient, bit for bit:
# m = 0 m + (1 - 0) g.
GRADIENT = ["optimizer.betas=[0, 0.95]", "optimizer.clip=0"]


class ToolError(Exception):
    pass


def command(arguments, text=None):
    """What the program prints when `text` is what it reads."""
    done = subprocess.run([str(a) for a in arguments], text=True, input=text,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise ToolError(f"{' '.join(map(str, arguments))}\n  exit code "
                        f"{done.returncode}: {done.stdout.strip()[-2000:]}")
    return done.stdout


def processor_targets():
    """The targets of `tessera compile` that this machine runs, best first."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    flags = set(text.partition("flags")[2].partition("\n")[0].split())
    needs = {"cpu:amx": "amx_bf16", "cpu:avx512bf16": "avx512_bf16", "cpu:avx512": "avx512f",
             "cpu:avx2": "avx2"}
    return [target for target, flag in needs.items() if flag in flags]


@dataclasses.dataclass
class Step:
    """What one or several runs of train_step gave."""
    loss: torch.Tensor
    gradients: dict  # exp_avg by parameter
    outputs: dict
    state: dict


class Tessera:
    def __init__(self, binaries, folder):
        self.binaries = pathlib.Path(binaries)
        self.folder = pathlib.Path(folder)
        self.made = 0

    def _new(self, suffix):
        self.made += 1
        return self.folder / f"{self.made:03}{suffix}"

    def compile(self, model, target, sequence, micro, rows, compute="fp32",
                recompute="none", schedule="constant", documents="joined", more=()):
        """The artifact of a model's folder, for batches [micro, rows,
        sequence]."""
        artifact = self._new(".tsr")
        settings = {"batch.sequence": sequence, "batch.accumulate": micro,
                    "batch.micro": rows, "precision.compute": compute,
                    "recompute": recompute, "lr_schedule.name": schedule,
                    "data.documents": documents,
                    # The reference's loss is that of tokens alone.
                    "moe.balance_weight": 0, "moe.z_weight": 0,
                    "moe.bias_rate": 0}
        command([self.binaries / "tessera", "compile", model,
                 "--mode", "artifact", "--target", target,
                 *(f"--set={key}={value}" for key, value in settings.items()),
                 *(f"--set={each}" for each in more),
                 "-o", artifact])
        return artifact

    def run(self, artifact, program, weights, inputs, sets=(), runs=1,
            threads=2, dump=False):
        """Outputs, and the state afterwards where it is asked for."""
        given, got = self._new(".in"), self._new(".out")
        state = self._new(".state") if dump else None
        safetensors.torch.save_file(
            {k: v.contiguous() for k, v in inputs.items()}, given)
        command([self.binaries / "tessera-run", artifact,
                 "--program", program, "--weights", weights,
                 "--inputs", given, "--outputs", got, "--runs", runs,
                 "--threads", threads, *(f"--set={each}" for each in sets),
                 *(["--dump-state", state] if dump else [])])
        outputs = safetensors.torch.load_file(got)
        after = unstacked(safetensors.torch.load_file(state)) if dump else {}
        for path in (given, got, state):
            if path:
                path.unlink()
        return outputs, after

    def logits(self, artifact, weights, tokens, threads=2):
        """tokens [N, T] → logits [N, T, V], one sequence a run."""
        runs = tokens.shape[0]
        outputs, _ = self.run(artifact, "logits", weights,
                              {"tokens": tokens[:, None]}, runs=runs,
                              threads=threads)
        logits = outputs["logits"]
        return logits.reshape(runs, *logits.shape[-2:])

    def compile_inference(self, model, target, context, compute):
        """Programs of whole sequences, of up to `context` tokens."""
        artifact = self._new(".tsr")
        settings = {"inference.context": context, "inference.batch": 2,
                    "precision.compute": compute}
        command([self.binaries / "tessera", "compile", model, "--mode", "infer",
                 "--no-weights", "--target", target,
                 *(f"--set={key}={value}" for key, value in settings.items()),
                 "-o", artifact])
        return artifact

    def scores(self, artifact, weights, tokens, lengths):
        """tokens [N, T], of which `lengths` count → scores [N]."""
        runs, longest = tokens.shape
        outputs, _ = self.run(
            artifact, f"embed_1x{longest}", weights,
            {"tokens": tokens[:, None], "lengths": lengths[:, None]}, runs=runs)
        return outputs["scores"].reshape(runs)

    def gradients(self, artifact, weights, tokens, targets, threads=2,
                  more=None):
        """Of one batch [A, B, T]; `more`: its other inputs by name."""
        outputs, state = self.run(
            artifact, "train_step", weights,
            {"tokens": tokens, "targets": targets, **(more or {}), **SEED},
            sets=GRADIENT, threads=threads, dump=True)
        suffix = ".exp_avg"
        return Step(outputs["loss"],
                    {name[:-len(suffix)]: value for name, value in
                     state.items() if name.endswith(suffix)}, outputs, state)

    def losses(self, artifact, weights, tokens, targets, sets, more=None):
        """Of one step after another: batches [steps, A, B, T]; `more`: their
        other inputs by name."""
        outputs, _ = self.run(
            artifact, "train_step", weights,
            {"tokens": tokens, "targets": targets, **(more or {}), **SEED},
            sets=sets, runs=tokens.shape[0])
        return outputs

    def next_tokens(self, artifact, weights, tokens, first, length):
        """The most likely token after tokens[:first], tokens[:first + 1] and so on, but not after
        all of them. Greedy decoding from tokens[:first] gives `tokens` if and only if these are
        tokens[first:]. One process runs them all."""
        count = len(tokens) - first
        padded = torch.zeros(count, length, dtype=torch.int32)
        for row in range(count):
            padded[row, :first + row] = torch.tensor(tokens[:first + row], dtype=torch.int32)
        logits = self.logits(artifact, weights, padded)
        return [int(logits[row, first + row - 1].argmax()) for row in range(count)]
