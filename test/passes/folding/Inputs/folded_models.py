"""Whole models, folded and as they are: partitioned programs and execution plans,
byte for byte, must not tell which. Usage: folded_models.py BIN SOURCE FOLDER"""
import json
import pathlib
import subprocess
import sys

BIN, SOURCE, FOLDER = map(pathlib.Path, sys.argv[1:])

# Meshes fold with keep-ends.
CASES = [  # spec, layers, recipe, mesh, zero, microbatches, changes of the spec
    ("tiny-gpt2", 7, "tiny-gpt2", "data=2,tensor=2", 0, 1, {}),
    # The norm of gradients is a sum over layers, its root in a kernel of the last one.
    ("tiny-gpt2", 7, "tiny-gpt2", "data=2,tensor=2", 1, 1, {}),
    ("tiny-gpt2", 7, "tiny-gpt2", "data=3", 3, 2,
     {"embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1}),
    ("llama-15m", 8, "llama-15m", "context=3,tensor=2", 0, 2, {}),
    ("tiny-mixtral", 7, "tiny-mixtral", "data=2,expert=2", 2, 1, {}),
    ("tiny-qwen-moe", 7, "tiny-qwen-moe", "data=2,tensor=2", 0, 2, {}),
    ("tiny-deepseek-moe", 8, "tiny-deepseek-moe", "expert=4", 0, 1, {}),
    # Five layers with a window and one without are repeated as one.
    ("gemma-3-1b", 36, "tiny-gpt2", "data=2", 1, 1, {}),
]

PLANS = [  # spec, layers, mode, settings of the recipe, changes, folded until
    ("tiny-gpt2", 8, "train", ["batch.accumulate=2"], {}, "selection"),
    ("llama-15m", 7, "train", ["precision.compute=bf16", "recompute=selective"], {},
     "selection"),
    # Each layer has its own seed of dropout, or its row of the router's metrics.
    ("tiny-gpt2", 6, "train", [], {"resid_pdrop": 0.1, "attn_pdrop": 0.1}, "selection"),
    ("tiny-mixtral", 6, "train", [], {}, "selection"),
    # Its balance loss reads its row of a table in its kernels.
    ("tiny-mixtral", 6, "train", ["batch.accumulate=2"], {}, "partition"),
    ("tiny-deepseek-moe", 7, "train", [], {}, "selection"),
    ("tiny-deepseek-moe", 7, "infer", [], {}, "selection"),
    ("llama-15m", 8, "infer", ["inference.quant=int8"], {}, "selection"),
    ("gemma-3-1b", 36, "infer", [], {}, "selection"),
]


def run(*command):
    return subprocess.run([str(part) for part in command], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def spec_of(name, layers, changes, folder):
    config = json.loads((SOURCE / "models/specs" / name / "config.json").read_text())
    config["n_layer" if "n_layer" in config else "num_hidden_layers"] = layers
    if "layer_types" in config:
        kinds = config["layer_types"]
        config["layer_types"] = [kinds[i % len(kinds)] for i in range(layers)]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def check_stages(whole):
    """A pipeline writes layers out before it cuts them into stages."""
    cut = ["--assign-shardings=mesh=pipe=2,data=2", "--verify-shardings"]
    stages = "--assign-stages=schedule=1f1b"
    assert (run(BIN / "tessera-opt", whole, "--deduplicate-layers=keep-ends", *cut,
                "--restore-layers", stages)
            == run(BIN / "tessera-opt", whole, *cut, stages)), (
        "a pipeline of folded layers is another one")
    print("ok: stages")


def check_driver(spec, recipe, mesh, zero, microbatches, whole, cut, folder):
    """The compiler fuses what it folded to what it makes of all layers, at once."""
    arguments = ["--recipe", recipe, "--target", "cpu:avx2", "--cache", "off",
                 "--set", f"batch.accumulate={microbatches}", "--mesh",
                 f"{mesh},zero={zero}", "--timing", "-o"]
    dump, plain, fused = (folder / name for name in
                          ("dump.mlir", "plain.mlir", "fused.mlir"))
    done = subprocess.run(
        [*map(str, [BIN / "tessera", "compile", spec, "--to", "fusion", *arguments, dump])],
        check=True, stderr=subprocess.PIPE, text=True)
    assert "without folding" not in done.stderr, done.stderr
    plain.write_text(run(BIN / "tessera-opt", whole, *cut[:2]).replace(
        'tessera.phase = "autodiff"', 'tessera.phase = "shard"'))
    run(BIN / "tessera", "compile", "--from", "shard", plain, "--cache", "off",
        "--to", "fusion", "-o", fused)
    texts = [run(BIN / "tessera-opt", path) for path in (dump, fused)]
    assert "graph.folded" not in texts[0]
    assert texts[0] == texts[1], "folded layers are fused to something else"
    print("ok: the compiler")


def check_plan(spec, name, mode, settings, until, folder):
    """The plan of a folded model is that of the model with all its layers."""
    files = {key: folder / f"{key}.mlir"
             for key in ("folded", "last", "restored", "plan", "whole")}
    options = ["--target", "cpu:avx2", "--cache", "off"]
    recipe = ["--mode", mode, "--recipe", SOURCE / "recipes/tiny-gpt2.yaml",
              *(part for setting in settings for part in ("--set", setting))]
    compile = [BIN / "tessera", "compile"]
    for phase, key in (("precision", "folded"), (until, "last"), ("planning", "plan")):
        done = subprocess.run(
            [*map(str, [*compile, spec, *recipe, *options, "--timing", "--to", phase,
                        "-o", files[key]])], check=True, stderr=subprocess.PIPE, text=True)
        assert "without folding" not in done.stderr, done.stderr
    for key in ("folded", "last"):
        assert "graph.folded" in files[key].read_text(), f"{name}: {key} is not folded"
    run(BIN / "tessera-opt", files["folded"], "--restore-layers",
        "--mlir-print-debuginfo", "-o", files["restored"])
    run(*compile, "--from", "precision", files["restored"], *options, "--to",
        "planning", "-o", files["whole"])
    one, other = (run(BIN / "tessera-opt", files[key]) for key in ("plan", "whole"))
    assert one == other, f"{name}: the plan of folded layers is another one"
    print(f"ok: the plan of {name}, {mode}")


def check_folds(spec, what, *more):
    """Folds, and compiles at once, without a second try that compiles each layer."""
    for phase in ("precision", "planning"):
        done = subprocess.run(
            [*map(str, [BIN / "tessera", "compile", spec, "--recipe",
                        SOURCE / "recipes/tiny-gpt2.yaml", "--target", "cpu:avx2",
                        "--cache", "off", "--timing", "--to", phase, *more, "-o",
                        spec / f"{phase}.mlir"])],
            check=True, stderr=subprocess.PIPE, text=True)
        assert "without folding" not in done.stderr, done.stderr
    assert "graph.folded" in (spec / "precision.mlir").read_text(), f"{what}: not folded"
    print(f"ok: {what}")


def main():
    # As many layers with experts as no kernel could read the metrics of.
    for name in ("tiny-mixtral", "tiny-deepseek-moe"):
        check_folds(spec_of(name, 96, {}, FOLDER / f"deep-{name}"), f"many layers of {name}")
    # Positions in documents, which no layer computes and all read. On a mesh the first
    # layer's input has another sharding than that of the others.
    spec = spec_of("llama-15m", 8, {}, FOLDER / "documents")
    separate = ("--set", "data.documents=separate")
    check_folds(spec, "documents", *separate)
    check_folds(spec, "documents on tensor", *separate, "--mesh", "tensor=2")
    # An update that a step may leave out has a mask, which all layers read.
    spec = spec_of("tiny-gpt2", 8, {}, FOLDER / "updates")
    for mesh in ("data=2", "tensor=2", "data=2,zero=1"):
        check_folds(spec, f"separate updates on {mesh}", "--set", "optimizer.update=separate",
                    "--mesh", mesh)
    for i, (name, layers, mode, settings, changes, until) in enumerate(PLANS):
        folder = FOLDER / f"plan-{i}"
        check_plan(spec_of(name, layers, changes, folder), name, mode, settings, until,
                   folder)
    for i, (name, layers, recipe, mesh, zero, microbatches, changes) in enumerate(CASES):
        folder = FOLDER / str(i)
        spec = spec_of(name, layers, changes, folder)
        whole = folder / "autodiff.mlir"
        run(BIN / "tessera", "compile", spec, "--recipe",
            SOURCE / f"recipes/{recipe}.yaml", "--target", "cpu:avx2", "--cache",
            "off", "--set", f"batch.accumulate={microbatches}", "--to",
            "autodiff", "-o", folder / "autodiff-folded.mlir")
        run(BIN / "tessera-opt", folder / "autodiff-folded.mlir", "--restore-layers",
            "--mlir-print-debuginfo", "-o", whole)
        cut = [f"--assign-shardings=mesh={mesh} zero={zero}",
               "--verify-shardings", "--partition-to-local", "--canonicalize",
               "--cse"]
        folded = folder / "folded.mlir"
        run(BIN / "tessera-opt", whole, "--deduplicate-layers=keep-ends", *cut, "-o", folded)
        assert "graph.folded" in folded.read_text(), f"{name} is not folded"
        # Read again as text: what is folded is all there is.
        unfolded = run(BIN / "tessera-opt", folded, "--restore-layers")
        assert unfolded == run(BIN / "tessera-opt", whole, *cut), (
            f"{name} on {mesh} is another program when it is folded")
        print(f"ok: {name}, {layers} layers on {mesh}")
        check_driver(spec, SOURCE / f"recipes/{recipe}.yaml", mesh, zero, microbatches,
                     whole, cut, folder)
        if microbatches > 1 and "moe" not in name:
            check_stages(whole)


main()
