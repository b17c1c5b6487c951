"""Losses of learning from a teacher's most probable tokens, on documents that a
model sees one at a time.

The formula is that of TRL's GKDTrainer.generalized_jsd_loss at beta 0 and 1
(KL(teacher || student), KL(student || teacher)) over the teacher's tokens and
all others as one class, times temperature², written out in PyTorch: Debian's is
too old for that trainer. The logits of all tokens are there, and the others'
are added up by logsumexp, where a program has 1 minus the sum of the rest."""
import contextlib
import dataclasses

import torch

from hf_models import Float64
from hf_policy import packed

METRICS = ["kl", "agreement", "teacher_entropy", "teacher_mass",
           "student_mass", "cross_entropy"]
INPUTS = ["document_starts", None, "teacher_tokens", "teacher_log_probs"]


@dataclasses.dataclass
class Settings:
    divergence: str = "forward"
    temperature: float = 1.0
    weight: float = 1.0
    top: int = 8


LOSSES = {
    "forward kl": Settings(),
    "forward kl, hot": Settings(temperature=2.0, weight=0.6, top=5),
    "reverse kl": Settings(divergence="reverse", weight=0.7),
    "reverse kl, hot": Settings(divergence="reverse", temperature=1.5, top=3),
}


# Each loss in one family; the others have one, since only their trunks differ.
def losses(family, dtype):
    if family == "llama":
        return list(LOSSES) if dtype == "fp32" else ["forward kl", "reverse kl"]
    return {"gpt2": ["forward kl, hot"], "mistral": ["reverse kl"]}.get(
        family, [])


def settings(name):
    own = LOSSES[name]
    return ["task=distill", *(f"distill.{key}={value}" for key, value in
                              dataclasses.asdict(own).items())]


def coarse(logits, tokens, temperature):
    """log-probabilities of these tokens and of all others together."""
    logps = torch.log_softmax(logits / temperature, -1)
    others = logps.scatter(-1, tokens, float("-inf"))
    return torch.cat([logps.gather(-1, tokens),
                      torch.logsumexp(others, -1, keepdim=True)], -1)


def batch(name, family, vocab, seed):
    """Documents, and what a teacher says of each token: random logits. What is
    not learned has numbers that would show."""
    generator = torch.Generator().manual_seed(seed)
    tokens, targets, starts, numbers, _ = packed(
        family, generator, seed, lambda row: 3 + row % 2)
    own = LOSSES[name]
    logits = 2.0 * torch.randn(*tokens.shape, vocab, generator=generator,
                               dtype=torch.float64)
    top = logits.topk(own.top).indices
    log_probs = coarse(logits, top, own.temperature).float()
    learned = (targets != -100)[..., None]
    return (tokens, targets, starts, numbers,
            torch.where(learned, top, torch.zeros_like(top)).int(),
            torch.where(learned, log_probs, torch.full_like(log_probs, -3.0)))


def divergence(p, q):
    return (p.exp() * (p - q)).sum(-1)


def document_loss(model, own, tokens, targets, top, teacher):
    """Losses and METRICS of the learned tokens of one document."""
    learned = targets != -100
    logits = model(tokens[None].long()).logits[0].float()[learned]
    teacher = teacher[learned].to(logits.dtype)
    student = coarse(logits, top[learned].long(), own.temperature)
    kl = (divergence(teacher, student) if own.divergence == "forward" else
          divergence(student, teacher))
    entropy = torch.nn.functional.cross_entropy(
        logits, targets[learned].long(), reduction="none")
    loss = (own.weight * own.temperature ** 2 * kl +
            (1 - own.weight) * entropy)
    first = student[:, 0] >= student[:, :-1].max(-1).values
    columns = [kl, first.to(kl.dtype), -(teacher.exp() * teacher).sum(-1),
               teacher[:, :-1].exp().sum(-1), student[:, :-1].exp().sum(-1)]
    if own.weight < 1:
        columns.append(entropy)
    return loss, torch.stack(columns).detach()


def gradients(model, name, given):
    """The loss of a batch, its gradient by parameter, and METRICS."""
    model.zero_grad(set_to_none=True)
    own = LOSSES[name]
    exact = next(model.parameters()).dtype is torch.float64
    count = int((given[1] != -100).sum())
    total, metrics = 0.0, 0.0
    with Float64() if exact else contextlib.nullcontext():
        for row in zip(*(x.flatten(0, 1) for x in given)):
            tokens, targets, _, numbers, top, teacher = row
            for number in range(int(numbers.max()) + 1):
                at = numbers == number
                each, columns = document_loss(
                    model, own, *(x[at] for x in
                                  (tokens, targets, top, teacher)))
                loss = each.sum() / count
                loss.backward()
                total += float(loss.detach())
                metrics = metrics + columns.double().sum(-1) / count
    return total, {n: p.grad.double() for n, p in model.named_parameters()
                   if p.requires_grad}, metrics
