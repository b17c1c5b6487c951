"""QLoRA: an adapter over a base in NF4. The loss falls, the base takes a quarter
of bf16, two ranks and a resumed run have the losses of one, and what is merged
is the dequantized base with its factors.

    nf4.py BIN SCRATCH MPIRUN
"""
import json
import sys

import numpy as np

import harness
from pipelines import Pipelines, close

sys.path.insert(0, str(harness.SOURCE / "test/oracle"))
import normal_float  # noqa: E402

SETS = ["batch.micro=4", "batch.sequence=32", "eval.every=4", "eval.batches=2", "optimizer.lr=1e-2",
        "checkpoint.every=4"]
LORA = ["adapter.kind=lora", "adapter.rank=4", "adapter.alpha=8", "adapter.base=nf4"]
SPECS = {
    "tiny-gpt2": ({"n_layer": 2}, "c_attn, c_fc", ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]),
    "llama-15m": ({"num_hidden_layers": 2, "hidden_size": 192, "intermediate_size": 448, "vocab_size": 4096},
                  "q_proj, down_proj", ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                        "down_proj"]),
}


def tensors(folder):
    """In f32; integers as they are."""
    types = {"F32": np.float32, "I32": np.int32, "I64": np.int64}
    result = {}
    for name, (kind, shape, data) in harness.read_safetensors(folder / "model.safetensors").items():
        if kind == "BF16":
            words = np.frombuffer(data, np.uint16).astype(np.uint32) << np.uint32(16)
            result[name] = words.view(np.float32).reshape(shape)
        else:
            result[name] = np.frombuffer(data, types[kind]).reshape(shape)
    return result


def expected_words(weight):
    """The words of QuantizedLayout: lane n % 16 has 8 columns, the first lowest."""
    codes = normal_float.quantize(weight)[0].astype(np.uint32)
    n, k = codes.shape
    words = sum(codes.reshape(n, k // 8, 8)[:, :, i] << np.uint32(4 * i) for i in range(8))
    return words.reshape(n // 16, 16, k // 8).transpose(0, 2, 1).astype(np.uint32).view(np.int32)


def check_base(name, model, state, transposed, layers):
    base = tensors(model)
    named = [each for each in base if any(f".{layer}.weight" in each for layer in layers)]
    quantized = {each[:-len(".values")] for each in state if each.endswith(".values")}
    harness.check(set(named) == quantized, f"{name}: all linear layers are quantized, and nothing else")
    same = all((state[f"{each}.values"] ==
                expected_words(base[each].T if transposed else base[each])).all() for each in named)
    harness.check(same, f"{name}: codes are those of the definition")
    size = sum(state[f"{each}.{part}"].nbytes for each in named for part in ("values", "scales"))
    bits = 8 * size / sum(base[each].size for each in named)
    # A row of 64 weights has 96 bits of scales, one of 4,096 has 576.
    harness.check(bits < 5, f"{name}: {bits:.2f} bits a weight")
    return base, named


def stored_absmax(scales, n, groups):
    """Of the words of QuantizedLayout: codes [n, groups] of absmax, and absmax."""
    words = scales.transpose(0, 2, 1).reshape(n, -1)
    codes = np.ascontiguousarray(words[:, -(-(-groups // 4)):]).view(np.uint8)[:, :groups]
    floats = np.ascontiguousarray(words).view(np.float32)
    rows, at = np.arange(n)[:, None], np.arange(groups)[None, :]
    absmax2 = floats[rows, 1 + (rows * groups % normal_float.NESTED + at) // normal_float.NESTED]
    return codes, normal_float.dynamic_map()[codes] * absmax2 + floats[:, :1]


def dequantized(name, weight, scales):
    """By the codes of weights that the definition gives and the absmax that is stored. Where an
    absmax is as near to one number as to the next, rounding chooses."""
    n, k = weight.shape
    codes, _, nested, *_ = normal_float.quantize(weight)
    stored, absmax = stored_absmax(scales, n, k // normal_float.BLOCK)
    apart = np.abs(stored.reshape(-1).astype(int) - nested)
    harness.check(apart.max() <= 1 and apart.sum() <= 1 + apart.size // 1000,
                  f"{name}: absmax is the nearest number")
    return normal_float.CODE[codes] * np.repeat(absmax, normal_float.BLOCK, axis=1)


def check_merged(name, base, named, state, merged, transposed):
    far = 0
    for each in named:
        weight = np.ascontiguousarray(base[each].T if transposed else base[each])
        weight = dequantized(each, weight, state[f"{each}.scales"])
        path = each[:-len(".weight")]
        if f"{path}.lora_A.weight" in state:
            weight = weight + 2 * state[f"{path}.lora_B.weight"] @ state[f"{path}.lora_A.weight"]
        found = merged[each].T if transposed else merged[each]
        far = max(far, np.abs(found - weight).max() / np.abs(weight).max())
    harness.check(far < 1e-6, f"{name}: the merged model is the dequantized base with its factors")


def main():
    start = Pipelines(*sys.argv[1:4], sets=SETS)
    for name, (changes, target, layers) in SPECS.items():
        transposed = name == "tiny-gpt2"
        spec = start.spec(name, **changes)
        first = start.scratch / f"{name}-start"
        start.train(start.compile(spec, ""), 1, first, 4)
        model = start.scratch / f"{name}-model"
        harness.run(start.binaries / "tessera", "export", first, "-o", model)
        run = Pipelines(*sys.argv[1:4], sets=[*SETS, *LORA, f"adapter.target=[{target}]"])
        begin = ["--init-from", model]
        program, out = run.compile(spec, ""), run.scratch / f"{name}-one"
        one = run.train(program, 1, out, 8, *begin)
        harness.check(one[1] == sorted(one[1], reverse=True), f"{name}: the loss falls")
        state = tensors(out / "step-000008")
        base, named = check_base(name, model, state, transposed, layers)
        mesh = "data=2,zero=2" if transposed else "data=2"
        two = run.train(run.compile(spec, mesh), 2, run.scratch / f"{name}-two", 8, *begin)
        harness.check(close(one, two), f"{name}: two ranks have the losses of one")
        # Rows of nf4 are sharded where absmax that are quantized together begin: of 512 columns in
        # units of 32 rows, of 192 not at all.
        for mesh in ("tensor=2", "data=2,zero=3", "context=2"):
            two = run.train(run.compile(spec, mesh), 2, run.scratch / f"{name}-{mesh[:6]}", 8, *begin)
            harness.check(close(one, two), f"{name}: {mesh} has the losses of one rank")
        half = run.scratch / f"{name}-half"
        run.train(program, 1, half, 4, *begin)
        rest = run.train(program, 1, half, 8, "--resume")
        harness.check(rest[0] == one[0], f"{name}: a resumed run has the losses of one that was not stopped")
        merged = run.scratch / f"{name}-merged"
        harness.run(run.binaries / "tessera", "export", out, "--merge", "-o", merged)
        check_merged(name, base, named, state, tensors(merged), transposed)
        adapter = run.scratch / f"{name}-adapter"
        harness.run(run.binaries / "tessera", "export", out, "--dtype", "bf16", "-o", adapter)
        config = json.loads((adapter / "adapter_config.json").read_text())
        harness.check(config["r"] == 4 and (adapter / "adapter_model.safetensors").exists(),
                      f"{name}: the adapter is exported")


def refusals():
    run = Pipelines(*sys.argv[1:4], sets=[*SETS, *LORA])
    tessera = run.binaries / "tessera"

    def refused(what, spec, *parts, more=(), sets=()):
        words = [word for each in [*SETS, *LORA, *sets] for word in ("--set", each)]
        harness.refuses(what, *parts)(tessera, "compile", spec, "--target", "cpu:avx2", *words, *more,
                                      "-o", run.scratch / "never")

    llama = run.spec("llama-15m")
    target = ["adapter.target=[q_proj]"]
    refused("rows that are no whole blocks", run.spec("llama-15m", intermediate_size=720),
            "blocks of 64 weights", "720", sets=target)
    refused("experts", run.spec("tiny-mixtral"), "adapter.base: nf4", "experts", sets=target)
    refused("a chosen mesh", llama, "costs of nf4 weights", "--mesh data=2", more=["--mesh", "auto", "--world", "2"],
            sets=target)
    refused("GPUs", llama, "no kernel reads nf4", more=["--target", "cuda:sm_80"], sets=target)
    refused("fp64", llama, "nf4", "fp64", sets=[*target, "precision.compute=fp64"])


def value_head():
    """@prepare_step takes the base, and does not read it."""
    run = Pipelines(*sys.argv[1:4], sets=[
        *SETS, *LORA, "adapter.target=[q_proj]", "task=policy", "policy.advantages=gae",
        "rollout.baseline=none", "rollout.scale=none", "data.documents=separate", "eval.every=0"])
    run.compile(run.spec("llama-15m", **SPECS["llama-15m"][0]), "")
    print("ok: a policy with a value head is compiled")


if __name__ == "__main__":
    main()
    refusals()
    value_head()
