"""Every dump parses, verifies and can go on from there, to the same program."""
import sys

from harness import Prepared, RECIPE, SPEC, check, run


def main():
    made = Prepared(*sys.argv[1:3])
    scratch, tokens = made.scratch, made.tokens()
    target = ("--target", "cpu:avx2", "--cache", "off")
    whole = scratch / "whole"
    run(made.tessera, "compile", SPEC, "--recipe", RECIPE, *target,
        "--dump-ir", scratch / "ir", "-o", whole)
    dumps = sorted((scratch / "ir").glob("*.mlir"))
    check(len(dumps) >= 6 and dumps[0].name == "00-import.mlir",
          f"{len(dumps)} dumps: {[d.name for d in dumps]}")

    def losses(executable):
        return run(executable, "--quiet", "--dump-metrics", "--data", tokens,
                   "--out", scratch / f"run-{executable.name}", "--steps",
                   5).stdout
    expected = losses(whole)
    check(len(expected.splitlines()) == 5, "five exact losses")
    for dump in dumps:
        text = run(made.binaries / "tessera-opt", "--verify-each", dump).stdout
        check("module" in text, f"tessera-opt reads {dump.name}")
        phase = dump.stem.partition("-")[2]
        again = scratch / f"from-{phase}"
        run(made.tessera, "compile", "--from", phase, dump, *target, "-o",
            again)
        check(losses(again) == expected, f"--from={phase}: the same bits")
        if dump is not dumps[-1]:
            following = dumps[dumps.index(dump) + 1]
            printed = run(made.tessera, "compile", "--from", phase, "--to",
                          following.stem.partition("-")[2], dump,
                          *target).stdout
            check(printed.split() == following.read_text().split(),
                  f"--from={phase} --to: as {following.name}")


main()
