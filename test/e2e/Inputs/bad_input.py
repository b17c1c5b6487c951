"""Each kind of bad input: one line that says what, where and what to do, an
exit code that is not 0, and nothing half-written."""
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import sys

from harness import (RECIPE, SPEC, Prepared, check, checkpoints, digest,
                     read_safetensors, refuses, run, write_safetensors)


def compiler(made):
    scratch, out = made.scratch, made.scratch / "out"
    config = json.loads((SPEC / "config.json").read_text())

    def spec(**changes):
        folder = scratch / "spec"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        return folder

    def compile_(what, *parts):
        def command(*arguments):
            refuses(what, *parts)(made.tessera, "compile", *arguments, "-o",
                                  out)
            check(not list(scratch.glob("out*")), "nothing is written")
        return command

    compile_("unknown architecture", "config.json", "mamba")(
        spec(model_type="mamba", architectures=["MambaForCausalLM"]))
    compile_("unknown activation", "activation_function", "swish9")(
        spec(activation_function="swish9"))
    compile_("inconsistent sizes", "n_embd", "n_head")(spec(n_head=7))
    compile_("unknown key of config.json", "n_heads")(spec(n_heads=4))
    compile_("no such spec", "absent")(scratch / "absent")
    broken = spec()
    (broken / "config.json").write_text('{"model_type": ')
    compile_("broken config.json", "config.json")(broken)

    recipe = scratch / "recipe.yaml"
    recipe.write_text("seed: 1\noptimizer:\n  learning_rate: 1.0e-3\n")
    compile_("unknown recipe key", f"{recipe}:3", "optimizer.learning_rate")(
        SPEC, "--recipe", recipe)
    recipe.write_text("batch: {micro: many}\n")
    compile_("wrong value in a recipe", f"{recipe}:1", "batch.micro")(
        SPEC, "--recipe", recipe)
    recipe.write_text("batch: [\n")
    compile_("broken recipe", "recipe.yaml")(SPEC, "--recipe", recipe)
    compile_("sequence beyond the model's positions", "batch.sequence", "256")(
        SPEC, "--set=batch.sequence=512")
    compile_("unknown target", "cpu:z80", "cpu:avx2", "cuda:sm_80")(
        SPEC, "--target", "cpu:z80")
    compile_("fp64 on a GPU", "precision.compute", "cuda:sm_80", "bf16")(
        SPEC, "--set=precision.compute=fp64", "--target", "cuda:sm_80")
    compile_("fp64 to generate", "precision.compute", "bf16")(
        SPEC, "--set=precision.compute=fp64", "--mode", "infer")
    compile_("tiled IR of two kinds of devices", "--target cpu or cuda:sm_80")(
        SPEC, "--to", "kernels", "--target", "cpu,cuda:sm_80")
    tiled = scratch / "tiled.mlir"
    run(made.tessera, "compile", SPEC, "--target", "cpu:avx2", "--to",
        "kernels", "-o", tiled)
    compile_("another target for tiled IR", "--target", "cpu:avx2")(
        "--from", "kernels", tiled, "--target", "cpu:avx512")
    compile_("unknown phase", "finish", "kernels")(SPEC, "--to", "finish")
    refuses("unwritable output", "absent")(
        made.tessera, "compile", SPEC, "--recipe", RECIPE, "-o",
        scratch / "absent/out")

    bad = scratch / "bad.mlir"
    for text in ("func.func @f(", "module {", "builtin.module { \"graph.add\"()"
                 " : () -> () }", "\x00\xff" * 40, "module {}"):
        bad.write_text(text, encoding="latin-1")
        compile_(f"MLIR {text[:20]!r}", "bad.mlir")("--from", "autodiff", bad)


def artifacts(made, tokens):
    scratch = made.scratch
    train = made.executable("fp32")
    whole = train.read_bytes()
    runtime = made.binaries / "tessera-run"

    def damaged(what, content, *parts):
        path = scratch / "damaged"
        path.write_bytes(content)
        path.chmod(0o755)
        refuses(what, *parts)(path, "--data", tokens, "--out",
                              scratch / "run")
        check(not (scratch / "run").exists(), "no run is begun")

    flipped = bytearray(whole)
    flipped[-5000] ^= 1
    damaged("flipped bit in the artifact", bytes(flipped), "damaged")
    footer = whole[-32:]
    damaged("artifact cut in its middle", whole[:-200000] + footer, "damaged")
    bare = scratch / "cut.tsr"
    size = struct.unpack_from("<Q", footer, 8)[0]
    bare.write_bytes(whole[-32 - size:-40])
    refuses("truncated artifact", "cut.tsr", "truncated")(
        runtime, bare, "--data", tokens, "--out", scratch / "run")
    refuses("no artifact at all", "config.json")(
        runtime, SPEC / "config.json", "--data", tokens)
    refuses("a program that it lacks", "logit", "logits")(
        runtime, train, "--program", "logit")


def data(made, tokens):
    scratch, train = made.scratch, made.executable("fp32")

    def refuse(what, *parts):
        def command(*arguments):
            refuses(what, *parts)(train, "--quiet", "--out", scratch / "none",
                                  *arguments)
            check(not (scratch / "none").exists(), "no run is begun")
        return command

    refuse("no data", "--data")()
    refuse("absent data", "absent")("--data", scratch / "absent")
    refuse("unknown option", "--stepz")("--data", tokens, "--stepz")
    refuse("steps before the first", "--steps: must be a number that is not "
           "negative, got -2")("--data", tokens, "--steps", -2)
    refuse("no such device", "unknown device 'cuda-emu:sm_70'",
           "cuda:sm_80, cuda:sm_90a")("--data", tokens, "--device",
                                      "cuda-emu:sm_70")
    for wrong in ((train, "--stepz"), (made.tessera,),
                  (made.tessera, "compile", "--nil"),
                  (made.tessera, "compile", SPEC, "--mode", "nil"),
                  (made.tessera, "nil")):
        run(*wrong, code=2)
    run(made.tessera, "--help")
    check(True, "a wrong command line is an exit code of 2")
    said = run(train, "--data", tokens / "train", "--out", scratch / "no-eval",
               "--steps", 1).stderr
    check("no held-out data" in said, "nothing to evaluate on is said")

    short = scratch / "short"
    (scratch / "short.jsonl").write_text('{"text": "The command."}\n')
    run(made.tessera, "data", "tokenize", "--tokenizer",
        tokens / "tokenizer.json", "--input", scratch / "short.jsonl", "-o",
        short)
    refuse("data shorter than a sequence", "fewer than one sequence of 64")(
        "--data", short)

    copy = scratch / "tokens"
    shutil.copytree(tokens, copy)
    shard = next((copy / "train").glob("*.tok"))
    content = bytearray(shard.read_bytes())
    content[64:] = struct.pack("<H", 4095) * ((len(content) - 64) // 2)
    shard.write_bytes(content)
    refuses("token id beyond the vocabulary", shard.name, "4095")(
        train, "--quiet", "--data", copy, "--out", scratch / "tokens-run",
        "--steps", 3)
    shard.write_bytes(content[:-3])
    refuse("truncated shard", shard.name, "truncated")("--data", copy)
    shutil.copy(tokens / "train" / shard.name, shard)

    refuses("a diverging run names the kernel", "wrote NaN", "train_step")(
        train, "--quiet", "--data", tokens, "--out", scratch / "nan-run",
        "--steps", 30, "--check-finite", "--set", "optimizer.lr=1e6")

    index = json.loads((tokens / "train/index.json").read_text())
    index["vocab_size"] = 5000
    (copy / "train/index.json").write_text(json.dumps(index))
    refuse("another vocabulary", "index.json", "5000")("--data", copy)
    if os.geteuid() != 0:
        (copy / "train").chmod(0)
        refuse("unreadable directory", "Permission denied")("--data", copy)
        (copy / "train").chmod(0o755)
    refuses("run directory under a file", "config.json")(
        train, "--quiet", "--data", tokens, "--out",
        SPEC / "config.json" / "run")


def weights(made, tokens):
    """Starting from weights and from checkpoints that do not fit."""
    scratch, train = made.scratch, made.executable("fp32")
    out = scratch / "origin"
    run(train, "--quiet", "--data", tokens, "--out", out, "--steps", 2)
    model = read_safetensors(out / "step-000002/model.safetensors")
    name = "transformer.wpe.weight"
    dtype, shape, content = model[name]
    given = scratch / "weights.safetensors"

    def refuse(what, tensors, *parts):
        write_safetensors(given, tensors)
        refuses(what, *parts)(train, "--quiet", "--data", tokens, "--out",
                              scratch / "none", "--init-from", given)

    refuse("weights of a wrong type", {**model, name: ("I32", shape, content)},
           name, "I32")
    refuse("weights of a wrong shape",
           {**model, name: (dtype, shape[::-1], content)}, name, "[128, 256]")
    refuse("missing weights", {k: v for k, v in model.items() if k != name},
           name)
    given.write_bytes((out / "step-000002/model.safetensors").read_bytes()[:-9])
    refuses("truncated weights", "weights.safetensors")(
        train, "--quiet", "--data", tokens, "--out", scratch / "none",
        "--init-from", given)
    check(not checkpoints(scratch / "none"), "nothing is saved")

    other = scratch / "other"
    spec = scratch / "wide"
    spec.mkdir()
    config = json.loads((SPEC / "config.json").read_text())
    (spec / "config.json").write_text(
        json.dumps({**config, "n_embd": 64, "n_layer": 1}))
    run(made.tessera, "compile", spec, "--recipe", RECIPE, "--target",
        "cpu:avx2", "--cache", "off", "-o", other)
    before = digest(out / "step-000002")
    refuses("a checkpoint of another model", "step-000002", "n_embd")(
        other, "--quiet", "--data", tokens, "--out", out, "--resume",
        "--steps", 4)
    check(digest(out / "step-000002") == before, "it is untouched")
    refuses("an existing run without --resume", "--resume")(
        train, "--quiet", "--data", tokens, "--out", out, "--steps", 4)
    return out, before


def full_disk(made, tokens, out, before):
    """No file may grow beyond 1 MB, as on a disk that fills up."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    refuses("disk full while saving", "step-000004", "untouched",
            preexec_fn=limit)(
        made.executable("fp32"), "--quiet", "--data", tokens, "--out", out,
        "--resume", "--steps", 4)
    check(checkpoints(out) == ["step-000002"] and
          digest(out / "step-000002") == before and
          not list(out.glob(".tmp*")), "nothing is lost or half-written")
    run(made.executable("fp32"), "--quiet", "--data", tokens, "--out", out,
        "--resume", "--steps", 4)
    check(checkpoints(out) == ["step-000002", "step-000004"],
          "the run goes on afterwards")


def main():
    part = sys.argv[3]
    made = Prepared(*sys.argv[1:3])
    if part == "compiler":
        return compiler(made)
    tokens = made.tokens()
    artifacts(made, tokens)
    data(made, tokens)
    full_disk(made, tokens, *weights(made, tokens))


main()
