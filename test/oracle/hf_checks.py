"""What must be equal within ourselves: gradients under accumulation, under
every policy of recomputation, and on any number of threads."""
import torch

from hf_models import FAMILIES, SEQUENCE, batches

ACCUMULATED = 1e-6  # relative, in fp32


def relative(value, reference):
    value, reference = value.double(), reference.double()
    return float((value - reference).norm() / reference.norm())


def differing(first, second):
    """Names of tensors that are not bit for bit the same."""
    assert first.keys() == second.keys()
    return [name for name in first
            if not torch.equal(first[name].contiguous().view(torch.uint8),
                               second[name].contiguous().view(torch.uint8))]


def state_bits(step):
    """Everything that a step leaves: weights, moments, metrics."""
    tensors = {**step.state, **{"output " + name: value for name, value in
                                step.outputs.items()}}
    return {name: value.reshape(-1) for name, value in tensors.items()}


def accumulation(tessera, report, family, target, twin):
    """Four microbatches of one row against one of four, whose rows hide
    different numbers of targets."""
    _, folder = twin
    tokens, targets = (x[0] for x in batches(family, 1, 500, 4, 1))
    steps = []
    for micro, rows in ((4, 1), (1, 4)):
        artifact = tessera.compile(folder, target, SEQUENCE[family], micro,
                                   rows)
        shape = (micro, rows, SEQUENCE[family])
        steps.append(tessera.gradients(artifact, folder,
                                       tokens.reshape(shape),
                                       targets.reshape(shape)))
    apart = {name: relative(value, steps[1].gradients[name])
             for name, value in steps[0].gradients.items()}
    name = max(apart, key=apart.get)
    report.fact(family, "fp32", "accumulating 4 x 1 against 1 x 4",
                f"{apart[name]:.2e} ({name})", apart[name] <= ACCUMULATED)


def recomputation(tessera, report, family, target, twin):
    _, folder = twin
    tokens, targets = (x[0] for x in batches(family, 1, 600))
    micro, rows, sequence = tokens.shape
    for dtype in ("fp32", "bf16"):
        bits = {}
        for policy in ("none", "full", "selective"):
            artifact = tessera.compile(folder, target, sequence, micro, rows,
                                       compute=dtype, recompute=policy)
            bits[policy] = state_bits(
                tessera.gradients(artifact, folder, tokens, targets))
        for policy in ("full", "selective"):
            names = differing(bits["none"], bits[policy])
            report.fact(family, dtype, f"recompute none against {policy}",
                        f"{len(names)} tensors differ {names[:3]}", not names)


def threads(tessera, report, family, target, twin):
    _, folder = twin
    tokens, targets = (x[0] for x in batches(family, 1, 700))
    micro, rows, sequence = tokens.shape
    for dtype in ("fp32", "bf16"):
        artifact = tessera.compile(folder, target, sequence, micro, rows,
                                   compute=dtype)
        one, two, three = (
            state_bits(tessera.gradients(artifact, folder, tokens, targets,
                                         threads=count))
            for count in (1, 2, 3))
        names = differing(one, two) + differing(one, three)
        report.fact(family, dtype, "1 against 2 and 3 threads",
                    f"{len(names)} tensors differ {names[:3]}", not names)


def limited(check, families):
    """A check whose outcome does not depend on much of the family."""
    def run(tessera, report, family, *others):
        if family in families:
            check(tessera, report, family, *others)
    return run


CHECKS = {
    "accumulation": limited(accumulation, ("gpt2", "llama", "mixtral")),
    "recomputation": limited(recomputation, ("gpt2", "llama", "mixtral")),
    "threads": limited(threads, tuple(FAMILIES)),
}
