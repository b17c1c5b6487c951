"""DoRA: a run begins with its base, has the same losses resumed and on two ranks, and
what it exports is PEFT's; a server has PEFT's adapters.

    dora.py BIN SCRATCH MPIRUN
"""
import json
import os
import shutil
import sys

import peft
import safetensors.torch
import torch
import transformers

import adapters
from harness import Prepared, check, refuses, run
from pipelines import Pipelines, close

SETS = ["batch.micro=4", "batch.sequence=32", "eval.every=0", "optimizer.lr=1e-2",
        "lr_schedule.warmup=0", "checkpoint.every=3"]
TARGETS = "adapter.target=[q_proj, o_proj, down_proj]"
DORA = ["adapter.kind=dora", "adapter.rank=4", "adapter.alpha=8", TARGETS]


def weights(folder, file="model.safetensors"):
    return safetensors.torch.load_file(folder / file)


def far(one, other):
    """The largest difference, over the largest number."""
    return max(float((one[name] - other[name]).abs().max() / one[name].abs().max()) for name in one)


def trains(made, base):
    """The run's folder."""
    runs = Pipelines(made.binaries, made.scratch, sys.argv[3], sets=[*SETS, *DORA])
    begin = ["--init-from", base]
    program = runs.compile(base, "")
    still = made.scratch / "still"
    runs.train(program, 1, still, 1, *begin, "--set", "optimizer.lr=0")
    run(made.tessera, "export", still, "--merge", "-o", made.scratch / "same")
    check(far(weights(base), weights(made.scratch / "same")) < 1e-6, "training begins with the model as it is")
    out = made.scratch / "trained"
    one = runs.train(program, 1, out, 6, *begin)
    losses = [loss for loss, _ in one[0]]
    check(losses[-1] < losses[0] - 0.1, "the loss falls")
    half, pipe = made.scratch / "half", made.scratch / "pipe"
    runs.train(program, 1, half, 3, *begin)
    shutil.copytree(half, pipe)
    check(runs.train(program, 1, half, 6, "--resume")[0] == one[0],
          "a resumed run has the losses of one that was not stopped")
    two = runs.train(runs.compile(base, "tensor=2"), 2, made.scratch / "two", 6, *begin)
    check(close(one, two), "two ranks have the losses of one")
    stages = runs.train(runs.compile(base, "pipe=2"), 2, pipe, 6, "--resume")
    check(close(one, stages), "and so has a pipeline that goes on from step 3")
    return out


def exports(made, base, out):
    state = weights(out / "step-000006")
    changed = {name for name, value in weights(base).items() if not torch.equal(value, state[name])}
    moved = [(state[name] - state[name.replace("magnitude_vector", "weight_norm")]).abs().max()
             for name in state if name.endswith("lora_magnitude_vector")]
    check(not changed and len(moved) == 6 and min(moved) > 0, "magnitudes are trained, and the base is not")
    return exported(made, base, out, "adapter")


def exported(made, base, out, name):
    """The adapter's folder; PEFT computes with it what the merged model does."""
    adapter, merged = made.scratch / name, made.scratch / f"{name}-merged"
    run(made.tessera, "export", out, "-o", adapter)
    run(made.tessera, "export", out, "--merge", "-o", merged)
    tokens = torch.arange(64)[None] * 5 % 300
    with torch.no_grad():
        theirs = peft.PeftModel.from_pretrained(adapters.load(base), adapter).eval()(tokens).logits
        ours = adapters.load(merged)(tokens).logits
    check(far({"": theirs}, {"": ours}) < 1e-5, f"PEFT has the logits of the merged model ({name})")
    return adapter


def trains_whole_modules(made, base):
    """LoRA with all of its keys, of a model whose head is the table of embeddings."""
    tied = made.scratch / "tied"
    shutil.copytree(base, tied)
    config = json.loads((tied / "config.json").read_text())
    (tied / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    state = weights(tied)
    state.pop("lm_head.weight", None)
    safetensors.torch.save_file(state, tied / "model.safetensors", metadata={"format": "pt"})
    runs = Pipelines(made.binaries, made.scratch, sys.argv[3], sets=[
        *SETS, *DORA, "adapter.kind=lora", "adapter.ranks=[down_proj=2]", "adapter.scaling=root",
        "adapter.modules_to_save=[embed_tokens]"])
    out, losses = made.scratch / "whole", {}
    for rate, folder in (("0", made.scratch / "other"), ("0.2", out)):
        program = runs.compile(tied, "", [f"adapter.dropout={rate}"])
        losses[rate] = [loss for loss, _ in runs.train(program, 1, folder, 6, "--init-from", tied)[0]]
    # B begins as zeros, so that the first step does not depend on what is dropped.
    check(losses["0"][0] == losses["0.2"][0] and losses["0"][2:] != losses["0.2"][2:],
          "dropout is of what factors multiply")
    check(losses["0.2"][-1] < losses["0.2"][0] - 0.1, "and the loss falls")
    after = weights(out / "step-000006")
    changed = {name for name, value in state.items() if not torch.equal(value, after[name])}
    check(changed == {"model.embed_tokens.weight"}, "the table is trained, and nothing else of the base")
    config = json.loads((exported(made, tied, out, "whole-adapter") / "adapter_config.json").read_text())
    check((config["use_rslora"], config["rank_pattern"], config["lora_dropout"], config["modules_to_save"]) ==
          (True, {"down_proj": 2}, 0.2, ["embed_tokens", "lm_head"]), "and the configuration is PEFT's")


def serves(made, base, trained, tokenizer, env):
    """What PEFT writes, too, with adapters of both kinds in a batch."""
    settings = {"made": {"r": 3, "lora_alpha": 6, "use_dora": True, "target_modules": adapters.ALL},
                "plain": {"r": 4, "lora_alpha": 4, "target_modules": ["k_proj", "up_proj"]}}
    folders = {"trained": trained}
    for seed, (name, given) in enumerate(settings.items()):
        folders[name] = adapters.make_adapter(base, made.scratch / name, seed, **given)
    expected = {"base": adapters.Expected(adapters.load(base), tokenizer, adapters.PROMPT)}
    for name, folder in folders.items():
        model = peft.PeftModel.from_pretrained(adapters.load(base), folder).eval()
        expected[name] = adapters.Expected(model, tokenizer, adapters.PROMPT)
    given = [part for name in folders for part in ("--adapter", f"{name}={folders[name]}")]
    serve = [str(part) for part in (made.tessera, "serve", base, "--port", "0", *given)]
    with adapters.Server(serve, env=env) as server:
        adapters.compare(server, ["base", *folders], expected)
    # In bf16 matrices are in micropanels.
    with adapters.Server([*serve, "--set", "precision.compute=bf16"], env=env) as server:
        adapters.compare(server, ["base", *folders], {})
    with adapters.Server([*serve, "--quant", "int8"], env=env) as server:
        adapters.compare(server, ["base", *folders], {})


def main():
    made = Prepared(*sys.argv[1:3])
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    env.setdefault("XDG_CACHE_HOME", str(made.scratch / "cache"))
    base = made.scratch / "base"
    file = made.tokens().parent / "tokenizer.json"
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file))
    adapters.make_base(base, file, len(tokenizer))
    out = trains(made, base)
    serves(made, base, exports(made, base, out), tokenizer, env)
    trains_whole_modules(made, base)
    refuses("whole modules in a slot", "modules_to_save: slots hold factors", env=env)(
        made.tessera, "generate", base, "--adapter", made.scratch / "whole-adapter", "--prompt", "A", "--quiet")
    lora = made.scratch / "lora"
    run(made.tessera, "compile", base, *(f"--set={each}" for each in (*SETS, *DORA, "adapter.kind=lora")),
        "-o", lora)
    refuses("a run of another kind", "lora_magnitude_vector'), and this program has none")(
        lora, "--data", made.tokens(), "--init-from", out / "step-000006", "--out", made.scratch / "never",
        "--quiet")


main()
