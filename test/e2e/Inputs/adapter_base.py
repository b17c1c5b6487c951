"""An adapter's base in bf16: half the memory, and the bits of training with the
same weights in fp32, since nothing is lost by storing what is bf16 as bf16.

    adapter_base.py BIN SCRATCH MPIRUN
"""
import json
import sys

import harness
from pipelines import Pipelines

SETS = ["batch.micro=4", "batch.sequence=64", "eval.every=2", "eval.batches=2", "optimizer.lr=1e-2",
        "precision.compute=bf16"]
LORA = ["adapter.kind=lora", "adapter.rank=4", "adapter.alpha=8"]


def state_bytes(checkpoint):
    """Bytes of the parameters by type, of a safetensors header."""
    path = checkpoint / "model.safetensors"
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    sizes = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            sizes[entry["dtype"]] = sizes.get(entry["dtype"], 0) + end - begin
    return sizes


def main():
    base = Pipelines(*sys.argv[1:4], sets=[*SETS])
    for name, layers, target in (("tiny-gpt2", "n_layer", "c_attn, c_fc"),
                                 ("tiny-mixtral", "num_hidden_layers", "q_proj, v_proj")):
        spec = base.spec(name, **{layers: 2})
        start = base.scratch / f"{name}-start"
        base.train(base.compile(spec, ""), 1, start, 3)
        model = base.scratch / f"{name}-bf16"
        harness.run(base.binaries / "tessera", "export", start, "--dtype", "bf16", "-o", model)
        lines, sizes = {}, {}
        for kind in ("fp32", "bf16", "auto"):
            run = Pipelines(*sys.argv[1:4], sets=[*SETS, *LORA, f"adapter.target=[{target}]",
                                                  f"adapter.base={kind}"])
            out = run.scratch / f"{name}-{kind}"
            program = run.compile(model if kind == "auto" else spec, "")
            done = harness.run(program, "--data", run.tokens, "--init-from", model, "--out", out,
                               "--steps", 4, "--quiet", "--dump-metrics")
            lines[kind] = done.stdout
            sizes[kind] = state_bytes(out / "step-000004")
            harness.run(run.binaries / "tessera", "export", out, "--merge", "-o",
                        run.scratch / f"{name}-{kind}-merged")
        harness.check(lines["bf16"] == lines["fp32"] and lines["bf16"].count("step ") >= 4,
                      f"{name}: the same bits as with an fp32 base")
        harness.check(sizes["auto"] == sizes["bf16"], f"{name}: the checkpoint's type is the default")
        narrow = sizes["bf16"].get("BF16", 0)
        harness.check(sizes["fp32"].get("BF16", 0) == 0 and narrow > 0 and
                      sizes["fp32"]["F32"] - sizes["bf16"]["F32"] == 2 * narrow,
                      f"{name}: matrices take half the memory")
        first, second = ((base.scratch / f"{name}-{kind}-merged/model.safetensors").stat().st_size
                         for kind in ("fp32", "bf16"))
        harness.check(second < first, f"{name}: and so does the merged model")


if __name__ == "__main__":
    main()
