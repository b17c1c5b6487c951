"""Clipped policy gradients of sampled answers, on documents that a model sees
one at a time.

`loss` is TRL's published formula, GRPOTrainer._compute_loss of trl 1.16 (its
loss types grpo, bnpo and dr_grpo, importance_sampling_level token and sequence),
written out in PyTorch: that trainer needs a newer PyTorch than Debian's, which
the tests use. trl_policy.py compares it with TRL itself, where that is
installed, and then `gradients` takes TRL's loss. The KL estimators k1 and k2,
which TRL lacks, are from Schulman, "Approximating KL Divergence" (2020)."""
import contextlib
import dataclasses

import torch

import trl_losses
from hf_models import Float64, batches

BETA = 0.15
LENGTH = 23


@dataclasses.dataclass
class Settings:
    ratio: str = "token"
    low: float = 0.2
    high: float = 0.2
    aggregate: str = "document"
    beta: float = 0.0
    estimator: str = "k3"


POLICIES = {
    "grpo": Settings(beta=BETA),
    "grpo, k1": Settings(beta=BETA, estimator="k1"),
    "grpo, k2": Settings(beta=BETA, estimator="k2"),
    "dapo": Settings(high=0.28, aggregate="token"),
    "dr. grpo": Settings(aggregate="constant"),
    "gspo": Settings(ratio="sequence", low=0.1, high=0.15),
    "gspo, tokens": Settings(ratio="sequence", aggregate="token", beta=BETA),
}
METRICS = ["clip_fraction", "ratio", "kl", "advantage", "log_prob",
           "mismatch", "kl_reference"]


# Each loss in one family; the others have one, since only their trunks differ.
def losses(family, dtype):
    if family == "llama":
        return (list(POLICIES) if dtype == "fp32" else
                ["grpo", "dapo", "dr. grpo", "gspo"])
    return {"gpt2": ["grpo"], "mistral": ["gspo"]}.get(family, [])


def settings(name):
    own = POLICIES[name]
    keys = ["task=policy", f"policy.ratio={own.ratio}",
            f"policy.clip_low={own.low}", f"policy.clip_high={own.high}",
            f"policy.aggregate={own.aggregate}", f"policy.kl.beta={own.beta}",
            f"policy.kl.estimator={own.estimator}", "policy.documents=5"]
    if own.aggregate == "constant":
        keys.append(f"policy.length={LENGTH}")
    return keys


def inputs(name):
    """What the program takes after tokens and targets, in the order of
    `answers`; None where it does not."""
    own = POLICIES[name]
    sums = own.ratio == "sequence" or own.aggregate != "token"
    return ["document_starts", "document_numbers" if sums else None, "behavior",
            "advantages", "reference" if own.beta else None]


def kl(estimator, distance):
    """KL(p || q) by log p - log q of tokens sampled from p."""
    return {"k1": distance, "k2": distance.square() / 2,
            "k3": torch.exp(-distance) + distance - 1}[estimator]


def loss(own, logps, behavior, advantages, reference, mask):
    """[answers, tokens] each → the loss, and METRICS, means over tokens."""
    log_ratio = logps - behavior
    if own.ratio == "sequence":
        log_weights = ((log_ratio * mask).sum(-1) /
                       mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    else:
        log_weights = log_ratio
    ratio = torch.exp(log_weights)
    bounded = torch.clamp(ratio, 1 - own.low, 1 + own.high)
    each = -torch.min(ratio * advantages, bounded * advantages)
    if own.beta:
        each = each + own.beta * kl(own.estimator, logps - reference)
    if own.aggregate == "document":
        total = ((each * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    elif own.aggregate == "token":
        total = (each * mask).sum() / mask.sum().clamp(min=1.0)
    else:
        total = (each * mask).sum() / (each.shape[0] * LENGTH)
    clipped = (((ratio < 1 - own.low) & (advantages < 0)) |
               ((ratio > 1 + own.high) & (advantages > 0)))
    columns = [clipped.to(logps.dtype), ratio.expand_as(logps),
               kl("k3", -log_ratio), advantages, logps,
               (log_ratio != 0).to(logps.dtype)]
    if own.beta:
        columns.append(kl("k3", logps - reference))
    return total, torch.stack([(each * mask).sum() / mask.sum()
                               for each in columns]).detach()


def log_probs(model, tokens, targets):
    """[tokens] of one document → of its targets, 0 where there is none."""
    logits = model(tokens[None].long()).logits[0].float()
    logps = torch.log_softmax(logits, -1)
    known = targets != -100
    index = torch.where(known, targets, torch.zeros_like(targets)).long()
    return torch.gather(logps, 1, index[:, None])[:, 0] * known


def packed(family, generator, seed, count_of):
    """tokens, targets [A, B, T] of `count_of(row)` documents a row and padding,
    where they start, their numbers, and [((a, b), slice)] of them. A document
    has four tokens or more, of which the prompt's are not learned."""
    tokens, targets = (x[0] for x in batches(family, 1, seed))
    length = tokens.shape[-1]
    starts, numbers = torch.zeros_like(tokens), torch.full_like(tokens, -100)
    parts = []
    for row in range(tokens.shape[0] * tokens.shape[1]):
        at = divmod(row, tokens.shape[1])
        room = length // (count_of(row) + 1)
        begin = 0
        for number in range(count_of(row)):
            size = int(torch.randint(4, room + 1, (1,), generator=generator))
            prompt = int(torch.randint(0, size - 1, (1,), generator=generator))
            part = slice(begin, begin + size)
            starts[at][part], numbers[at][part] = begin, number
            targets[at][part] = torch.roll(tokens[at][part], -1)
            targets[at][begin:begin + prompt] = -100
            targets[at][begin + size - 1] = -100
            parts.append((at, part))
            begin += size
        starts[at][begin:] = begin
        targets[at][begin:] = -100
    return tokens, targets, starts, numbers, parts


def exact_log_probs(model, tokens, targets):
    with torch.no_grad(), Float64():
        return log_probs(model, tokens, targets).float()


def answers(exact, name, family, seed):
    """A batch of three or four answers a row, with log-probabilities at
    sampling, advantages and log-probabilities of a reference model. Ratios of
    `exact` are far from where they are clipped, so that no rounding decides
    that; what is not learned has numbers that would show."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator)
    tokens, targets, starts, numbers, parts = packed(
        family, generator, seed, lambda row: 3 + row % 2)
    behavior, advantages, reference = (
        torch.full(tokens.shape, 9.0) for _ in range(3))
    offsets = torch.tensor([-0.5, -0.05, 0.05, 0.5])
    for at, part in parts:
        size = part.stop - part.start
        logps = exact_log_probs(exact, tokens[at][part], targets[at][part])
        # The ratio of an answer is far from the bounds if those of all its
        # tokens are alike.
        picked = torch.randint(0, 4, (size,), generator=generator)
        if POLICIES[name].ratio == "sequence":
            picked = picked[:1].expand(size)
        noise = 0.04 * (uniform(size) - 0.5)
        values = (logps - offsets[picked] + noise,
                  (2 * uniform(1) - 1) + 0.2 * (uniform(size) - 0.5),
                  logps + 0.6 * (uniform(size) - 0.5))
        learned = targets[at][part] != -100
        for whole, own in zip((behavior, advantages, reference), values):
            whole[at][part] = torch.where(learned, own, whole[at][part])
    return tokens, targets, starts, numbers, behavior, advantages, reference


def documents_of(batch):
    """(tokens, targets, ...) of each, without starts and numbers."""
    return [[x[row[3] == number] for x in (*row[:2], *row[4:])]
            for row in zip(*(x.flatten(0, 1) for x in batch))
            for number in range(int(row[3].max()) + 1)]


def gradients(model, name, batch):
    """The loss of a batch, its gradient by parameter, and METRICS."""
    model.zero_grad(set_to_none=True)
    exact = next(model.parameters()).dtype is torch.float64
    rows, own = [], POLICIES[name]
    with Float64() if exact else contextlib.nullcontext():
        if trl_losses.IS_NEW and own.estimator == "k3":
            total, given = trl_losses.grpo(model, own, LENGTH, documents_of(batch))
            metrics = loss(own, *given)[1]
            batch = []
        for row in zip(*(x.flatten(0, 1) for x in batch)):
            tokens, targets, _, numbers, *others = row
            for number in range(int(numbers.max()) + 1):
                at = numbers == number
                logps = log_probs(model, tokens[at], targets[at])
                rows.append([logps, *(x[at].to(logps.dtype) for x in others),
                             (targets[at] != -100).to(logps.dtype)])
        # Behavior, advantages and reference of tokens that are not learned are
        # any numbers; TRL multiplies them with the mask.
        if rows:
            total, metrics = loss(own, *map(trl_losses.in_rows, zip(*rows)))
        total.backward()
    return float(total.detach()), {
        n: p.grad.double() for n, p in model.named_parameters()
        if p.requires_grad}, metrics
