"""Whether documents have the same losses and gradients in packed rows as alone.

    packing.py BIN SCRATCH [--documents 40] [--only NAME] [--strict]

Random documents are packed in rows of 256 tokens, and have rows of their own in another program of
the same model. Each is learned by itself among documents that are not, and all of a batch are
learned together. A line has the numbers that packing-check found. Losses are sums over the positions
of a batch, whose order depends on where a document is: they may differ in the last place. --strict
ends with an error where the update by a document differs in fp32, in a weight or in a moment.
"""
import argparse
import json
import pathlib
import shutil

import harness
from same_bits import MODELS, sets_of

# Penalties of routers are over all tokens of a sequence, padding too.
SETS = ["batch.sequence=256", "data.documents=separate", "eval.every=0", "optimizer.lr=1e-3",
        "moe.balance_weight=0", "moe.z_weight=0"]
ROWS = {"packed": 2, "alone": 8}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--only", default="")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    shutil.rmtree(options.scratch, ignore_errors=True)
    wrong = 0
    for name in MODELS:
        if not name.startswith(options.only):
            continue
        spec = options.scratch / name
        spec.mkdir(parents=True)
        (spec / "config.json").write_text(json.dumps(MODELS[name]))
        for precision in ("fp32", "bf16"):
            programs = []
            for rows, count in ROWS.items():
                programs.append(options.scratch / f"{name}-{precision}-{rows}")
                harness.run(options.binaries / "tessera", "compile", spec, *sets_of(
                    [*SETS, f"batch.micro={count}", f"precision.compute={precision}"]), "-o",
                    programs[-1])
            printed = harness.run(options.binaries / "packing-check", *programs,
                                  options.documents).stdout
            documents, losses, updates, batches, other, most = printed.split()
            if precision == "fp32":
                wrong += int(updates)
            print(f"{name} {precision}: {documents} documents: {losses} losses and {updates} "
                  f"updates differ; of {batches} batches {other}, by at most {most} of a tensor's "
                  "largest", flush=True)
    if options.strict:
        harness.check(wrong == 0, "the same updates packed and alone")


if __name__ == "__main__":
    main()
