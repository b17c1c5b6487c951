"""Distances of tensors from their references, and the table of them: what
hf_oracle.py says of both."""
import torch

from hf_tessera import ToolError

FLOOR = 2.0 ** -24
MOST = 2.0        # times PyTorch's own distance


class Distance:
    """Of one tensor from its reference, pooled over the seeds."""

    def __init__(self):
        self.error = self.size = self.worst = self.largest = 0.0
        self.worst_squares = self.largest_squares = 0.0

    def add(self, value, reference, scale=None):
        """`scale`: the size of what was summed up to the reference, if that is
        not the reference's own: terms of both signs cancel, their roundings do
        not."""
        value, reference = value.double(), reference.double()
        if value.shape != reference.shape:
            raise ToolError(f"shape {tuple(value.shape)} instead of "
                            f"{tuple(reference.shape)}")
        difference = value - reference
        # max() would lose a NaN.
        if not torch.isfinite(difference).all():
            difference = torch.full_like(difference, float("inf"))
        self.error += float(difference.square().sum())
        size = reference if scale is None else scale.double()
        self.size += float(size.square().sum())
        worst, largest = float(difference.abs().max()), float(reference.abs().max())
        self.worst = max(self.worst, worst)
        self.largest = max(self.largest, largest)
        self.worst_squares += worst ** 2
        self.largest_squares += largest ** 2

    def norms(self):
        return {"l2": (self.error / self.size) ** 0.5,
                "max": self.worst / self.largest}

    def max_of_each(self):
        """The max norm of each seed, pooled by squares."""
        return (self.worst_squares / self.largest_squares) ** 0.5

    def norm(self, name):
        return self.max_of_each() if name == "max of each" else self.norms()[name]


class Numbers:
    """Losses, and columns of a table by name: ours and PyTorch's. A loss is one
    number a seed, and the quotient of the errors of three numbers has a wide
    spread (of normal ones it is above 2 in every seventh case), so losses of a
    kind are pooled."""

    def __init__(self):
        self.losses = Distance(), Distance()
        self.columns = {}

    def pair(self, name):
        return self.columns.setdefault(name, (Distance(), Distance()))


class Report:
    """The table, a line at a time, and what failed."""

    def __init__(self):
        self.failures = 0
        self.lines = 0

    def line(self, family, dtype, quantity, ours, theirs, most=MOST):
        if not self.lines:
            print(f"{'family':8} {'dtype':5} {'quantity':52} {'ours':>9} "
                  f"{'torch':>9} {'ratio':>6}")
        self.lines += 1
        ratio = ours / max(theirs, FLOOR)
        failed = not ratio <= most
        self.failures += failed
        print(f"{family:8} {dtype:5} {quantity:52} {ours:9.2e} {theirs:9.2e} "
              f"{ratio:6.2f}{'  FAIL' if failed else ''}", flush=True)

    def fact(self, family, dtype, quantity, value, passed):
        self.lines += 1
        self.failures += not passed
        print(f"{family:8} {dtype:5} {quantity:52} {value}"
              f"{'' if passed else '  FAIL'}", flush=True)


def scale_of(inputs, targets):
    """The mean size of an advantage, which losses of policies are sums of; None
    for other losses."""
    advantages = inputs.get("advantages")
    if advantages is None:
        return None
    learned = targets != -100
    return advantages[learned].abs().mean()


def worst(pairs):
    """The name with the worst ratio among (name, ours, theirs)."""
    return max(pairs, key=lambda p: p[1] / max(p[2], FLOOR))
