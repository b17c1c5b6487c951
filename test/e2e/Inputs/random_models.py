"""Random models on random meshes of real MPI ranks: after a step, loss, gradient
norm, every weight and every moment (which after one step are the gradients, and
their squares, times a constant) are those of one rank: to 1e-12 in fp64, to what
sums in another order make of fp32 and bf16. And random programs of small
integers, where they are the same bits. A program is compiled once, which takes
most of the time, and started by each launcher.

    random_models.py BIN SCRATCH MPIRUN... --seed 1 --cases 30
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import sys

import numpy

import drawn_models
import drawn_programs
import harness

# Sums in another order: of fp32, of bf16, whose products round alike but whose
# sums do not, and of fp64.
ROUNDING = {"fp32": 2e-5, "bf16": 3e-2, "fp64": 1e-12}
# Of a mesh; all else are axes.
OPTIONS = ("zero", "schedule", "chunks", "collective_matmul", "expert_tensor",
           "expert_context")
TYPES = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64}


def tensors(run, step):
    """Name to array, of weights and of the optimizer's state."""
    folder, arrays = run / f"step-{step:06d}", {}
    for file in ("model.safetensors", "optimizer.safetensors"):
        for name, (dtype, shape, raw) in harness.read_safetensors(folder / file).items():
            arrays[name] = numpy.frombuffer(raw, TYPES[dtype]).reshape(shape)
    return arrays


def mpirun(program, ranks):
    """Open MPI refuses root and more ranks than cores unless asked. An mpirun that gets no processor
    for the 2 seconds that a rank waits in MPI_Finalize calls its exit improper, unless that is
    allowed; other exit codes than 0 stay errors."""
    if "mpich" in program:
        return [program, "-n", ranks]
    return [program, "--allow-run-as-root", "--oversubscribe", "--mca",
            "orte_allowed_exit_without_sync", "1", "-n", ranks]


def run_ranks(launcher, ranks, errors, *command):
    """As harness.run. Errors of each rank go to a file of its own, in the folder `errors`: a
    launcher that ends the others may lose what the first had to say."""
    shutil.rmtree(errors, ignore_errors=True)
    errors.mkdir()
    shell = 'exec "$@" 2>"$0/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"'
    done = harness.run(*mpirun(launcher, ranks), "/bin/sh", "-c", shell, errors, *command,
                       code=None)
    if done.returncode:
        said = "".join(f"rank {file.name}: {file.read_text()}" for file in sorted(errors.iterdir()))
        sys.exit(f"FAILED: {launcher} of {ranks}: {' '.join(map(str, command))}\nexit code "
                 f"{done.returncode}\n{done.stderr[-2000:]}{said[-4000:]}")
    return done


def ranks_of(mesh):
    count = 1
    for part in mesh.split(",") if mesh else []:
        axis, size = part.split("=")
        count *= 1 if axis in OPTIONS else int(size)
    return count


class Runner:
    def __init__(self, arguments):
        self.in_parts = 0  # programs that have what goes in parts
        self.in_rounds = 0  # programs that have rounds for rows beyond the buffer
        self.tessera = pathlib.Path(arguments.bin) / "tessera"
        self.scratch = pathlib.Path(arguments.scratch)
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("XDG_CACHE_HOME", str(self.scratch / "cache"))
        os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
        if not (self.scratch / "data/tokens").exists():
            harness.make_tokens(pathlib.Path(arguments.bin), self.scratch / "data")

    def train(self, case, mesh, launchers):
        """From each launcher the metrics of the last step, and the checkpoint
        behind it."""
        name = f"{case.seed}-{mesh.replace(',', '-') if mesh else 'one'}"
        folder = self.scratch / f"spec-{case.seed}"
        folder.mkdir(exist_ok=True)
        program = self.scratch / f"train-{name}"
        dump = self.scratch / f"ir-{name}"
        harness.run(self.tessera, "compile", *case.arguments(folder, mesh),
            "--target", "cpu:avx2", *(["--mesh", mesh] if mesh else []), "-o", program,
            *(["--dump-ir", dump] if isinstance(case, drawn_programs.SkewedProgram) else []))
        if dump.exists():
            [plan] = dump.glob("*-planning.mlir")
            self.in_rounds += " atmost " in plan.read_text()
            shutil.rmtree(dump)
        if "collective_matmul=on" in mesh:
            listed = harness.run(self.tessera, "inspect", program, "--mesh").stdout
            self.in_parts += bool(re.search(r"permute \S+ over tensor", listed))
        ranks, made = ranks_of(mesh), []
        for launcher in launchers:
            out = self.scratch / f"run-{name}-{launcher or 'alone'}"
            command = [program, "--data", self.scratch / "data/tokens", "--out", out,
                       "--steps", 1, "--threads", 1, "--quiet"]
            if launcher:
                run_ranks(launcher, ranks, self.scratch / "errors", *command)
            else:
                harness.run(*command)
            lines = (out / "metrics.jsonl").read_text().splitlines()
            made.append((json.loads(lines[-1]), tensors(out, 1)))
            shutil.rmtree(out)
        program.unlink()
        return made


def distance(one, other):
    """Largest difference, relative to the largest element."""
    scale = float(numpy.max(numpy.abs(one), initial=0.0))
    gap = float(numpy.max(numpy.abs(one.astype(numpy.float64) - other),
                          initial=0.0))
    return gap / scale if scale > 0 else gap


def compare_exact(one, other):
    """Lines about what differs at all; the norm is a root, of squares that may
    have more digits than fp32."""
    (metrics, state), (own, own_state) = one, other
    wrong = [f"{key}: {metrics[key]} and {own[key]}" for key in ("loss", "tokens")
             if metrics[key] != own[key]]
    gap = abs(metrics["grad_norm"] - own["grad_norm"])
    if not gap <= ROUNDING["fp32"] * metrics["grad_norm"]:
        wrong.append(f"grad_norm: {metrics['grad_norm']} and {own['grad_norm']}")
    if state.keys() != own_state.keys():
        wrong.append(f"tensors: {sorted(state.keys() ^ own_state.keys())}")
    return wrong + [f"{name}: other bits" for name in state.keys() & own_state.keys()
                    if not numpy.array_equal(state[name], own_state[name])]


def compare(case, mesh, one, other):
    """Lines about what differs by more than rounding."""
    if case.exact:
        return compare_exact(one, other)
    allowed = ROUNDING[case.settings["precision.compute"]]
    (metrics, state), (own, own_state) = one, other
    wrong = []
    for key in ("loss", "grad_norm", "tokens"):
        if abs(metrics[key] - own[key]) > allowed * max(1.0, abs(metrics[key])):
            wrong.append(f"{key}: {metrics[key]} and {own[key]}")
    if state.keys() != own_state.keys():
        wrong.append(f"tensors: {sorted(state.keys() ^ own_state.keys())}")
    for name in state.keys() & own_state.keys():
        if state[name].shape != own_state[name].shape:
            wrong.append(f"{name}: {state[name].shape}, {own_state[name].shape}")
        # The second moment is the square of the first; AdamW's first update is
        # the sign of a gradient, which rounding turns around where it is zero.
        elif name.endswith(".exp_avg"):
            if (gap := distance(state[name], own_state[name])) > allowed:
                wrong.append(f"{name}: differs by {gap:.2e}")
        elif name.endswith(".exp_avg_sq"):
            if (gap := distance(state[name], own_state[name])) > 2 * allowed:
                wrong.append(f"{name}: differs by {gap:.2e}")
        else:
            wrong += compare_weights(name, state, own_state, allowed)
    return wrong


def compare_weights(name, state, own, allowed):
    """Where the gradient is not rounding noise, weights move alike."""
    moment = state.get(f"{name}.exp_avg")
    one, other = state[name].astype(numpy.float64), own[name]
    gap = numpy.abs(one - other)
    if moment is not None:
        scale = float(numpy.max(numpy.abs(moment), initial=0.0))
        gap = numpy.where(numpy.abs(moment) > 100 * allowed * scale, gap, 0.0)
    largest = float(numpy.max(gap, initial=0.0))
    if largest > allowed * max(1.0, float(numpy.max(numpy.abs(one), initial=0.0))):
        return [f"{name}: differs by {largest:.2e}"]
    return []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("scratch")
    parser.add_argument("mpirun", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=10, help="of a model, a mesh and a launcher")
    parser.add_argument("--ranks", type=int, default=8, help="at most")
    parser.add_argument("--exchanged", action="store_true", help="only where rows of experts are exchanged")
    parser.add_argument("--parts", action="store_true", help="only products whose gathers and scatters go in parts")
    parser.add_argument("--replicated", action="store_true", help="only meshes of replicas with sharded state")
    parser.add_argument("--counted", action="store_true", help="only pipelines that count loads of experts before a step")
    parser.add_argument("--skewed", action="store_true", help="only programs whose tokens all choose the same few experts")
    parser.add_argument("--folded", action="store_true", help="only meshes over whose tensor ranks experts are distributed")
    parser.add_argument("--members", action="store_true", help="only members of Llama's family that differ from it in structure")
    arguments = parser.parse_args()
    runner, done, failed, seed = Runner(arguments), 0, 0, arguments.seed
    kinds = collections.Counter()
    while done < arguments.cases:
        kind = drawn_programs.ProgramCase if seed % 2 else drawn_models.Case
        if arguments.counted:
            kind = drawn_models.CountedCase
        if arguments.parts:
            kind = drawn_programs.PartedProgram if seed % 2 else drawn_models.PartedCase
        if arguments.replicated:
            kind = drawn_programs.ReplicatedProgram if seed % 2 else drawn_models.ReplicatedCase
        if arguments.skewed:
            kind = drawn_programs.SkewedProgram
        if arguments.folded:
            kind = drawn_programs.FoldedProgram if seed % 2 else drawn_models.FoldedCase
        if arguments.members:
            kind = drawn_models.MemberCase
        case = kind(seed, arguments.ranks)
        seed += 1
        meshes = [mesh for mesh in case.meshes
                  if not arguments.exchanged or case.dispatch(mesh) == "exchange"]
        if not meshes:
            continue
        [one] = runner.train(case, "", [""])
        for mesh in meshes:
            if done >= arguments.cases:
                break
            made = runner.train(case, mesh, arguments.mpirun)
            for launcher, other in zip(arguments.mpirun, made):
                wrong = compare(case, mesh, one, other)
                done += 1
                kinds[case.kind()] += 1
                failed += bool(wrong)
                for line in wrong[:5]:
                    print(f"{case}, mesh {mesh}, {launcher}: {line}", flush=True)
    print(f"{done} cases, {failed} differ from one rank")
    if arguments.parts:
        print(f"{runner.in_parts} programs in parts")
    if arguments.skewed or arguments.folded:
        print(f"{runner.in_rounds} programs in rounds")
    print(", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds)))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
