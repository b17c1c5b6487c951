#!/usr/bin/env python3
"""plant_defects.py [BUILD] [NAME...]: proves that the harness finds defects.

Plants one known defect at a time in a copy of a source file of the compiler, links
the harness with it (outside of the build folder, which stays as it is) and runs
generated graphs until one fails. Prints a line a defect; the exit status is 0
only if every one was caught. A finished build is needed; takes about half a
minute a defect.
"""
import os
import shlex
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEEDS = 512

# Name, file, what stands there, what is to stand there.
DEFECTS = [
    ("slice ignores its start", "passes/fusion/BodyReader.cpp",
     "to[i].constant += start;", ""),
    ("a cut forgets where it was made", "passes/fusion/IndexSpace.cpp",
     "result.constant += c * division.at;", "(void)c;"),
    ("the second step of a reduction is always max",
     "passes/fusion/NormalizeReductions.cpp",
     "x = e.reduce(x, op.getKind(), dims.drop_back(run));",
     "x = e.reduce(x, ReduceKind::max, dims.drop_back(run));"),
    ("a scatter's base is dropped", "passes/fusion/SinkAccumulators.cpp",
     "if (!isZero(scatter.getBase()))", "if (false)"),
    ("a window one key too long", "passes/kernels/attention/AttentionTiles.cpp",
     "arith::CmpIPredicate::slt, distance", "arith::CmpIPredicate::sle, distance"),
    ("tiles on the diagonal are not masked", "passes/kernels/attention/AttentionTiles.cpp",
     "add(key, keys), add(query, 1))", "add(key, keys), add(query, 9))"),
    ("maxima start from zero", "passes/kernels/reduction/Reductions.cpp",
     "type, APFloat::getInf(type.getFloatSemantics(), smallest));",
     "type, APFloat::getZero(type.getFloatSemantics(), smallest));"),
    ("the last, ragged tile is left out", "passes/kernels/TileLoops.cpp",
     "if (rest % lanes)", "if (rest % lanes > 1)"),
    ("tall sums forget their last rows", "passes/kernels/reduction/Column.cpp",
     "if (rows % kRun)", "if (rows % kRun > 1)"),
    # Less than that is within the bound, and for the tests of accuracy to find.
    ("polynomials are off by 1e-4", "compiler/target/cpu/Arithmetic.cpp",
     "fma(result, x, number(x, c))", "fma(result, x, number(x, c * 1.0001))"),
    ("a kernel may overwrite what it reads twice", "passes/planning/ProgramPlanner.cpp",
     "last > now || (last == now && !through)", "last > now"),
    ("buffers share a step's bytes", "passes/planning/Offsets.cpp",
     "other.last < request.first", "other.last <= request.first"),
]


def commands(build):
    """The compile command of every source file, and the harness's link command."""
    text = subprocess.run(["ninja", "-C", build, "-t", "commands", "metamorphic"],
                          check=True, capture_output=True, text=True).stdout
    lines = text.splitlines()
    link = [line for line in lines if " -o bin/metamorphic " in line][-1]
    compiles = {}
    for line in lines:
        if " -c " in line:
            source = shlex.split(line)[-1]
            compiles[os.path.relpath(source, SOURCE)] = line
    if not all(path in compiles for _, path, _, _ in DEFECTS):
        raise SystemExit(f"plant_defects.py: {build} does not compile each source alone; "
                         "configure one with -DTESSERA_UNITY=OFF")
    return compiles, link


def plant(build, folder, compiles, link, defect):
    """The failure that the harness reports, or None."""
    _, path, old, new = defect
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        text = file.read()
    if text.count(old) < 1:
        raise SystemExit(f"plant_defects.py: {path} no longer has '{old}'; "
                         "write the defect anew")
    bad = os.path.join(folder, "bad.cpp")
    with open(bad, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))
    words = shlex.split(compiles[path])
    words[words.index("-o") + 1] = os.path.join(folder, "bad.o")
    words[words.index("-MF") + 1] = os.path.join(folder, "bad.d")
    words[-1] = bad
    subprocess.run(words, cwd=build, check=True)
    # An object before the archives takes the place of theirs.
    harness = os.path.join(folder, "harness")
    subprocess.run(link.replace(" -o bin/metamorphic ", f" {folder}/bad.o -o {harness} "),
                   cwd=build, check=True, shell=True)
    for first in range(1, SEEDS, 64):
        run = subprocess.run(
            [harness, "--seed", str(first), "--count", "64", "--targets", "cpu:avx2"],
            capture_output=True, text=True, env={**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"})
        if run.returncode:
            return (run.stderr.strip().splitlines() or ["a crash"])[0]
    return None


def main():
    arguments = sys.argv[1:]
    build = os.path.join(SOURCE, "build-alone")
    if arguments and os.path.isdir(arguments[0]):
        build = os.path.abspath(arguments.pop(0))
    compiles, link = commands(build)
    missed = 0
    for defect in DEFECTS:
        if arguments and defect[0] not in arguments:
            continue
        # Beside the build: /tmp may forbid programs.
        with tempfile.TemporaryDirectory(dir=build) as folder:
            found = plant(build, folder, compiles, link, defect)
        missed += found is None
        print(f"{defect[0]}: {'caught, ' + found[:150] if found else 'MISSED'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
