"""Trains tiny models on the CPU and on the emulated GPU, each from one
executable: the same losses, whatever the order of threads; checkpoints that go
from one device to the other."""
import json
import os
import pathlib
import sys

from harness import Prepared, check, refuses, run

COMMON = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 2, "max_position_embeddings": 32}
FAMILIES = {
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
             "vocab_size": 400, "n_embd": 32, "n_layer": 2, "n_head": 2,
             "n_positions": 32, "activation_function": "gelu_new",
             "attn_pdrop": 0.0, "embd_pdrop": 0.1, "resid_pdrop": 0.1},
    # Grouped queries, a ragged intermediate size, rotary positions.
    "llama": COMMON | {"architectures": ["LlamaForCausalLM"],
                       "model_type": "llama", "num_key_value_heads": 1,
                       "intermediate_size": 88, "hidden_act": "silu",
                       "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                       "tie_word_embeddings": False},
}
RECIPE = """optimizer: {lr: 2.0e-3}
lr_schedule: {warmup: 2, total: 100}
batch: {micro: 2, accumulate: 2, sequence: 16}
eval: {every: 100, batches: 1}
checkpoint: {every: 5, keep: 4}
"""
# Of a loss near six: what 20 steps make of other orders of summation.
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}


def losses(text):
    """Exact losses of --dump-metrics, by step."""
    words = [line.split() for line in text.splitlines()]
    return {int(w[1]): float.fromhex(w[3]) for w in words if w[0] == "step"}


class Model:
    """One training executable and its runs."""

    def __init__(self, made, family, precision, architecture):
        self.scratch, self.tokens = made.scratch, made.tokens()
        self.precision = precision
        self.name = f"{family}-{precision}"
        spec = made.scratch / family
        spec.mkdir(exist_ok=True)
        (spec / "config.json").write_text(json.dumps(FAMILIES[family]))
        recipe = made.scratch / "recipe.yaml"
        recipe.write_text(RECIPE)
        self.program = made.scratch / f"train-{self.name}"
        run(made.tessera, "compile", spec, "--recipe", recipe, "--set",
            f"precision.compute={precision}", "--target",
            f"cpu:avx2,cuda:{architecture}", "--cache", "off", "--dump-ir",
            made.scratch / f"ir-{self.name}", "-o", self.program)

    def train(self, device, out, steps, *more, seed=0, settings={}):
        environment = os.environ | {"TESSERA_EMU_SEED": str(seed)} | settings
        return losses(run(
            self.program, "--quiet", "--dump-metrics", "--device", device,
            "--data", self.tokens, "--out", self.scratch / out, "--steps",
            steps, *more, env=environment).stdout)

    def compare(self, expected, actual, what):
        worst = max(abs(expected[s] - actual[s]) for s in actual)
        check(worst < TOLERANCE[self.precision],
              f"{self.name}: {what}: steps {min(actual)} to {max(actual)} "
              f"differ by at most {worst:.1e}")


def same_losses(model, device, steps):
    expected = model.train("cpu", f"{model.name}-cpu", steps)
    actual = model.train(device, f"{model.name}-gpu", steps)
    check(len(expected) == len(actual) == steps, f"{steps} steps each")
    check(expected[steps] < expected[1] - 0.2, "the loss falls")
    model.compare(expected, actual, "cpu and " + device)
    return actual


def same_text(made, model, device):
    """What a trained run writes, token by token over a cache that it fills and
    has to begin again."""
    # cuda_emu_quant.py has cubins of such programs.
    settings = os.environ | {"XDG_CACHE_HOME": str(model.scratch / "cache"), "CUDACXX": ""}
    texts = [run(made.tessera, "generate", model.scratch / f"{model.name}-cpu",
                 "--prompt", "The", "--max-tokens", 36, "--ignore-end",
                 "--quiet", "--device", each, env=settings).stdout
             for each in ("cpu", device)]
    check(texts[0] == texts[1] and len(texts[0]) > 36,
          f"{model.name}: cpu and {device} write the same text")


def same_bits_by_the_driver(model, first, binaries, architecture):
    """As a GPU runs it, but for the GPU: cubins, graphs, the driver's rules."""
    fake = str(pathlib.Path(binaries).parent /
               "test/runtime/hal/cuda/libcuda-fake.so")
    cache = model.scratch / "cache"
    settings = {"TESSERA_LIBCUDA": fake, "TESSERA_LIBCUBLASLT": fake,
                "TESSERA_FAKE_CUDA_CAPABILITY": architecture[3:5],
                "TESSERA_FAKE_CUDA_TWINS": str(model.program),
                # So long takes a kernel, and a library no time.
                "TESSERA_FAKE_CUDA_MICROSECONDS": "10",
                "XDG_CACHE_HOME": str(cache)}
    for mode in ("graph", "stream"):
        again = model.train("cuda:0", f"driver-{mode}", 3, settings=settings | {
            "TESSERA_CUDA": mode, "TESSERA_TUNE": "generated"})
        check(again == {s: first[s] for s in again},
              f"cuda:0 as a {mode}, by a driver without a GPU: the same bits")
    again = model.train("cuda:0", "library", 5, settings=settings | {
        "TESSERA_TUNE": "1000"})
    (choices,) = (cache / "tessera/tuning").iterdir()
    count = choices.read_text().count(" library:0\n")
    check(count > 2, f"cuda:0 with {count} products by a library")
    model.compare(first, again, "generated kernels and a library")


def as_hardware(model, first, device):
    """Sums as tensor cores truncate them, functions with their errors: other
    losses within the tolerance, and whatever the order of threads."""
    runs = [model.train(device, f"{model.name}-hardware-{seed}", 5, seed=seed,
                        settings={"TESSERA_EMU_NUMERICS": "hardware"})
            for seed in (1, 2)]
    check(runs[0] == runs[1], "numerics of hardware: one seed of the order of "
                              "threads has the bits of another")
    check(runs[0] != {s: first[s] for s in runs[0]}, "other bits than exact")
    model.compare(first, runs[0], "exact numerics and those of hardware")


def without_nvcc(made, spec, architecture):
    """A machine without CUDA compiles for the emulated GPU alone."""
    program = made.scratch / "no-nvcc"
    arguments = (made.tessera, "compile", spec, "--recipe",
                 made.scratch / "recipe.yaml", "--target",
                 f"cuda:{architecture}", "--cache", "off", "-o", program)
    none = os.environ | {"CUDACXX": ""}
    refuses("nothing would be left", f"cuda:{architecture}",
            "which --no-emulate excludes", env=none)(*arguments,
                                                       "--no-emulate")
    said = run(*arguments, env=none).stderr
    check("nvcc was not found" in said, said.splitlines()[0])
    summary = run(made.tessera, "inspect", program).stdout
    check(f"code for cuda-emu:{architecture}\n" in summary,
          "there is code for the emulated GPU alone")
    losses_of = losses(run(
        program, "--quiet", "--dump-metrics", "--device", "cuda-emu", "--data",
        made.tokens(), "--out", made.scratch / "no-nvcc-run", "--steps",
        1).stdout)
    check(5 < losses_of[1] < 7, f"which trains: {losses_of}")


def goes_on(made, ir, architecture):
    """From the dump of one kind of device, for that kind alone."""
    tiled, planned = (ir / f"{name}.cuda-{architecture}.mlir"
                      for name in ("08-kernels", "09-planning"))
    check({tiled.name, planned.name, "08-kernels.mlir", "09-planning.mlir"} <
          {path.name for path in ir.iterdir()}, "each kind has its dumps")
    printed = run(made.tessera, "compile", "--from", "kernels", "--to",
                  "planning", tiled).stdout
    check(printed.split() == planned.read_text().split(),
          f"--from=kernels {tiled.name}: as {planned.name}")


def inspected(made, program, architecture):
    """The table of kernels, and a kernel's source."""
    kernel = "linear_add_gelu_1"

    def inspect(*arguments):
        return run(made.tessera, "inspect", program, *arguments).stdout
    check("cuda:" + architecture in inspect(), "inspect names the devices")
    table = inspect("--kernels").splitlines()
    check(table[0].startswith(f"train_step on cuda:{architecture}: ") and
          f"us on an {'A100' if architecture == 'sm_80' else 'H200'}" in table[0], table[0])
    (product,) = [line.split() for line in table if f"  {kernel}: " in line]
    # [2·16, 32] x [32, 128], two FLOPs a term, and the epilogue on each sum.
    sums = 2 * 16 * 128
    flops = float(product[1]) * 1000
    check(product[2] == "k" and sums * 64 <= flops < sums * 76,
          f"FLOPs of a linear layer: {flops:.0f}")
    cpu = inspect("--kernels", "--device", "cpu", "--program", "logits")
    check(cpu.startswith("logits on cpu: "), "kernels of another program")
    check(f"TESSERA_KERNEL({kernel}, " in inspect("--show", kernel),
          "the source of a kernel")
    refuses("a kernel that is none", "no kernel 'nil'", "--kernels")(
        made.tessera, "inspect", program, "--show", "nil")
    refuses("source of the CPU's kernels", "no source", "cuda:")(
        made.tessera, "inspect", program, "--device", "cpu", "--show", kernel)
    refuses("an unknown kind of device", "no code for 'tpu'", "cpu, cuda:")(
        made.tessera, "inspect", program, "--kernels", "--device", "tpu")


def main():
    made = Prepared(*sys.argv[1:3])
    architecture = sys.argv[3]
    device = "cuda-emu:" + architecture
    model = Model(made, "gpt2", "fp32", architecture)
    first = same_losses(model, device, 8)
    same_bits_by_the_driver(model, first, sys.argv[1], architecture)
    as_hardware(model, first, device)
    in_bf16 = Model(made, "gpt2", "bf16", architecture)
    as_hardware(in_bf16, same_losses(in_bf16, device, 8), device)
    for precision in ("fp32", "bf16"):
        llama = Model(made, "llama", precision, architecture)
        same_losses(llama, device, 8)
        if precision == "fp32":
            same_text(made, llama, device)
    if sys.argv[4:] == ["losses"]:
        return
    inspected(made, model.program, architecture)
    without_nvcc(made, made.scratch / "gpt2", architecture)
    goes_on(made, made.scratch / "ir-gpt2-fp32", architecture)
    for seed in (1, 2):
        again = model.train(device, f"seed-{seed}", 3, seed=seed)
        check(again == {s: first[s] for s in again},
              f"order of threads and blocks from seed {seed}: the same bits")

    # From each device's checkpoint after step 5 to step 8 on the other one.
    for begin, end in (("cpu", device), (device, "cpu")):
        out = f"from-{begin.replace(':', '-')}"
        whole = model.train(begin, out, 5)
        more = model.train(end, out, 8, "--resume")
        check(sorted(more) == [6, 7, 8], f"{end} goes on where {begin} stopped")
        model.compare(first, whole | more, f"{begin}, then {end}")

    other = "sm_80" if architecture == "sm_90a" else "sm_90a"
    for absent, parts in ((other, ("has cpu, cuda:", "--target cpu:avx2,cuda")),
                          ("sm_10", ("unknown device", "cuda:sm_80"))):
        refuses("no code for that GPU", *parts)(
            model.program, "--quiet", "--device", f"cuda-emu:{absent}", "--data",
            made.tokens(), "--out", made.scratch / "none")
    refuses("a device that is none", "unknown device 'gpu'", "cuda-emu")(
        model.program, "--quiet", "--device", "gpu", "--data", made.tokens(),
        "--out", made.scratch / "none")


main()
