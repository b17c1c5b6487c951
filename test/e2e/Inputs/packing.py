"""Whether documents have the same losses and gradients in packed rows as alone.

    packing.py BIN SCRATCH [--documents 40] [--only NAME] [--mesh MESH]... [--strict]
               [--device cuda-emu:sm_80]

Random documents are packed in rows of 256 tokens, and have rows of their own in another program of
the same model. Each is learned by itself among documents that are not, and all of a batch are
learned together; after each step losses, weights and moments are compared. With --mesh both
programs run once more, on MPI ranks. Gradients of documents on two ranks, or in two microbatches,
are added in another order: steps of all together differ there. --strict ends with an error where
the loss of a document differs in fp32, or the update by it, in a weight or in a moment.
"""
import argparse
import json
import os
import pathlib
import re
import shutil

import numpy

import harness
from random_models import ranks_of, run_ranks
from same_bits import MODELS, sets_of

# Penalties of routers are over all tokens of a sequence, padding too.
SETS = ["batch.sequence=256", "data.documents=separate", "eval.every=0", "optimizer.lr=1e-3",
        "moe.balance_weight=0", "moe.z_weight=0"]
ROWS = {"packed": 2, "alone": 8}


class Packing:
    def __init__(self, options):
        self.binaries, self.scratch = options.binaries, options.scratch
        self.documents, self.device = options.documents, options.device
        shutil.rmtree(self.scratch, ignore_errors=True)
        os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"

    def steps(self, name, precision, mesh, rows):
        """Lines of packing-check, and its file of states."""
        spec = self.scratch / name
        spec.mkdir(parents=True, exist_ok=True)
        (spec / "config.json").write_text(json.dumps(MODELS[name]))
        program = self.scratch / f"{name}-{precision}-{mesh or 'one'}-{rows}"
        # Of pipelines, two microbatches.
        parts = 2 if "pipe" in mesh else 1
        harness.run(self.binaries / "tessera", "compile", spec, *sets_of(
            [*SETS, f"batch.micro={ROWS[rows] // parts}", f"batch.accumulate={parts}",
             f"precision.compute={precision}"]), *(["--mesh", mesh] if mesh else []),
            "--target", harness.processor_target() if self.device == "cpu" else
            re.sub("^cuda-emu:", "cuda:", self.device), "-o", program)
        states = program.with_suffix(".states")
        command = [self.binaries / "packing-check", program, rows, ROWS["packed"], ROWS["alone"],
                   self.documents, states, self.device]
        printed = (run_ranks("mpirun.openmpi", ranks_of(mesh), self.scratch / "errors", *command)
                   if mesh else harness.run(*command)).stdout
        return [line.split() for line in printed.splitlines()], states


def compare(one, other):
    """What differs, in words; and how many losses and updates of a document do."""
    (lines, states), (own, own_states) = one, other
    differ = {(kind, column): sum(a[0] == kind and a[column] != b[column]
                                  for a, b in zip(lines, own, strict=True))
              for kind in ("one", "all") for column in (1, 2)}
    count = {kind: sum(line[0] == kind for line in lines) for kind in ("one", "all")}
    values, own_values = (numpy.fromfile(file, numpy.float32) for file in (states, own_states))
    gap = float(numpy.max(numpy.abs(values - own_values)) / numpy.max(numpy.abs(values)))
    words = (f"{count['one']} documents: {differ['one', 1]} losses and {differ['one', 2]} updates "
             f"differ; of {count['all']} batches {differ['all', 1]} and {differ['all', 2]}, by at "
             f"most {gap:.2g} of the largest value")
    return words, differ["one", 1] + differ["one", 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--only", default="", help="models whose names begin so")
    parser.add_argument("--precision", action="append", help="fp32 and bf16")
    parser.add_argument("--mesh", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    packing, wrong = Packing(options), 0
    for name in MODELS:
        if not name.startswith(options.only):
            continue
        for precision in options.precision or ["fp32", "bf16"]:
            for mesh in ["", *options.mesh]:
                made = {rows: packing.steps(name, precision, mesh, rows) for rows in ROWS}
                words, different = compare(*made.values())
                wrong += different if precision == "fp32" else 0
                print(f"{name} {precision} {mesh or 'one rank'}: {words}", flush=True)
    if options.strict:
        harness.check(wrong == 0, "the same losses and updates packed and alone")


if __name__ == "__main__":
    main()
