#!/usr/bin/env python3
"""A training step on several CPU ranks with and without the overlap phase: its
collectives, the seconds of a step, and their ratio; with --collective-matmul, with
collective matmuls and without instead. Prints one table.

    bench/collectives/overlap.py build/bin --tokens TOKENS [--mesh data=2 --mesh data=2,zero=3]
                                 [--spec models/specs/tiny-gpt2] [--recipe recipes/tiny-gpt2.yaml]
                                 [--mpirun "mpirun --oversubscribe"] [--steps 30] [--rounds 5]
                                 [--collective-matmul]

TOKENS is a folder written by `tessera data tokenize`. Without the phase: the dump
after fusion, relabeled as the one after overlap, so that compilation skips the phase.
The two programs run alternately, and of each the fastest tenth of all steps counts:
other work on the machine only makes steps longer. Final weights must be the same bits.
Collective matmuls add in another order; for them the table shows the relative
difference of the final losses.

With --collective-matmul a mesh has tensor=N. Both programs have the same shardings; the
one without is compiled from the dump after shard with its dist.collective_matmul
attributes removed.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(str(word) for word in command)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def compile_both(arguments, mesh, scratch):
    """Executables of one model, with the overlap phase and without."""
    tessera = arguments.bin / "tessera"
    with_phase, without, ir = scratch / "with", scratch / "without", scratch / "ir"
    run(tessera, "compile", arguments.spec, "--recipe", arguments.recipe, "--mesh", mesh,
        "--cache", "off", f"--dump-ir={ir}", "-o", with_phase)
    if list(ir.glob("05-fusion.device-*.mlir")):
        sys.exit(f"--mesh {mesh}: ranks run different programs; choose sizes that divide")
    text = (ir / "05-fusion.mlir").read_text()
    text = text.replace('tessera.phase = "fusion"', 'tessera.phase = "overlap"')
    (scratch / "fused.mlir").write_text(text)
    run(tessera, "compile", "--from=overlap", scratch / "fused.mlir", "--cache", "off", "-o", without)
    return {"with": with_phase, "without": without}


def compile_matmuls(arguments, mesh, scratch):
    """Executables of one model, with collective matmuls and without."""
    tessera = arguments.bin / "tessera"
    with_matmuls, without, shard = scratch / "with", scratch / "without", scratch / "shard.mlir"
    common = (arguments.spec, "--recipe", arguments.recipe, "--mesh", f"{mesh},collective_matmul=on")
    run(tessera, "compile", *common, "--cache", "off", "-o", with_matmuls)
    run(tessera, "compile", *common, "--to", "shard", "-o", shard)
    text = shard.read_text()
    if "{dist.collective_matmul}" not in text:
        sys.exit(f"--mesh {mesh}: no collective matmul; choose a tensor=N that divides the tokens")
    shard.write_text(text.replace(" {dist.collective_matmul}", ""))
    run(tessera, "compile", "--from=shard", shard, "--cache", "off", "-o", without)
    return {"with": with_matmuls, "without": without}


def collectives(arguments, program):
    """(number, MB that a rank sends) of one step."""
    text = run(arguments.bin / "tessera", "inspect", program, "--mesh")
    found = re.search(r"train_step: (\d+) collectives, a rank sends (\S+) MB", text)
    return int(found[1]), float(found[2])


def step_times(arguments, mesh, program, out):
    ranks = 1
    for size in re.findall(r"(?:data|tensor)=(\d+)", mesh):
        ranks *= int(size)
    run(*shlex.split(arguments.mpirun), "-n", ranks, program, "--data", arguments.tokens,
        "--out", out, "--steps", arguments.steps)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["step_time"] for line in lines if "step_time" in line]


def last_loss(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line][-1]


def weights(out):
    last = max(out.glob("step-*"))
    return {file.name: file.read_bytes() for file in last.glob("*.safetensors")}


def measure(arguments, mesh):
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        programs = (compile_matmuls if arguments.collective_matmul else compile_both)(arguments, mesh, scratch)
        times = {name: [] for name in programs}
        for number in range(arguments.rounds):
            for name, program in programs.items():
                out = scratch / f"run-{name}-{number}"
                times[name] += step_times(arguments, mesh, program, out)
        best = {name: statistics.quantiles(all_steps, n=10)[0] for name, all_steps in times.items()}
        runs = scratch / "run-with-0", scratch / "run-without-0"
        same = weights(runs[0]) == weights(runs[1])
        verdict = "same" if same else "DIFFERENT"
        if not same and arguments.collective_matmul:
            gap = abs(last_loss(runs[0]) / last_loss(runs[1]) - 1)
            same, verdict = gap < 1e-3, f"losses {gap:.1e} apart"
        counts = {name: collectives(arguments, program) for name, program in programs.items()}
    print(f"{mesh:<26} {counts['without'][0]:>8} {counts['with'][0]:>6} "
          f"{counts['without'][1]:>9.3g} {counts['with'][1]:>7.3g} "
          f"{best['without'] * 1e3:>9.2f} {best['with'] * 1e3:>7.2f} "
          f"{best['without'] / best['with']:>6.2f}  {verdict}", flush=True)
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--tokens", type=pathlib.Path, required=True)
    parser.add_argument("--mesh", action="append")
    parser.add_argument("--spec", default="models/specs/tiny-gpt2")
    parser.add_argument("--recipe", default="recipes/tiny-gpt2.yaml")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--collective-matmul", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    print(f"{'':<26} {'collectives':>15} {'MB sent':>17} {'ms a step':>17}")
    print(f"{'mesh':<26} {'without':>8} {'with':>6} {'without':>9} {'with':>7} "
          f"{'without':>9} {'with':>7} {'ratio':>6}  weights")
    same = [measure(arguments, mesh) for mesh in arguments.mesh or (
        ["tensor=2"] if arguments.collective_matmul else ["data=2", "data=2,zero=1", "data=2,zero=3"])]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
