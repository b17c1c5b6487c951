"""The loss of labelled answers by TRL's own functions, on documents that a model
sees one at a time. The mean of mismatched answers is one of a microbatch."""
import contextlib
import types

import torch

import trl_losses
from hf_models import Float64
from hf_policy import exact_log_probs, packed

BETA = 0.2
WEIGHTS = {"desirable": 1.25, "undesirable": 0.75}
METRICS = ["desirable_reward", "undesirable_reward", "desirable_log_prob",
           "undesirable_log_prob", "kl"]
INPUTS = ["document_starts", "document_numbers", "reference",
          "document_labels"]


def losses(family, dtype):
    return family in ("llama", "gpt2")


def settings():
    return ["task=kto", f"kto.beta={BETA}", "kto.documents=7",
            *(f"kto.{name}_weight={value}" for name, value in WEIGHTS.items())]


def trainer():
    """TRL's class, and the fields that its loss reads. It takes ten seconds to
    import."""
    from trl.trainer.kto_trainer import KTOTrainer
    return KTOTrainer, types.SimpleNamespace(
        beta=BETA, desirable_weight=WEIGHTS["desirable"],
        undesirable_weight=WEIGHTS["undesirable"],
        accelerator=types.SimpleNamespace(device="cpu", gather=lambda x: x))


def answers(exact, family, seed):
    """A batch of five or six documents a row, with log-probabilities of a
    reference model and labels. The model is above the reference in some
    microbatches and below it in others, where TRL takes 0."""
    generator = torch.Generator().manual_seed(seed)
    tokens, targets, starts, numbers, parts = packed(
        family, generator, seed, lambda row: 5 + row % 2)
    reference, labels = torch.zeros(tokens.shape), torch.zeros_like(tokens)
    for number, (at, part) in enumerate(parts):
        logps = exact_log_probs(exact, tokens[at][part], targets[at][part])
        noise = torch.randn(logps.shape, generator=generator)
        shift = 0.2 if at[0] % 2 else -0.2
        reference[at][part] = torch.where(
            targets[at][part] == -100, torch.zeros(()),
            logps + shift + 0.3 * noise)
        labels[at][part] = (1, 0, -1, 0, 1)[number % 5]
    return tokens, targets, starts, numbers, reference, labels


def microbatch_loss(model, batch, totals):
    """The sum of losses over the labelled documents, and adds to METRICS'
    sums and counts."""
    if trl_losses.IS_NEW:
        return newer_loss(model, batch, totals)
    kind, own = trainer()
    groups = {label: ([], []) for label in (1, -1, 0)}
    for row in zip(*batch):
        tokens, targets, _, numbers, reference, labels = row
        for number in range(int(numbers.max()) + 1):
            at = numbers == number
            logits = model(tokens[at][None].long()).logits.float()
            # TRL shifts the labels only of decoders.
            logps = kind.get_batch_logps(logits, targets[at][None].long(),
                                         is_encoder_decoder=True)
            group = groups[int(labels[at][0])]
            group[0].append(logps)
            group[1].append(reference[at].to(logps.dtype).sum()[None])
    (good, good_reference), (bad, bad_reference), (other, other_reference) = (
        [torch.cat(each) for each in groups[label]] for label in (1, -1, 0))
    loss, good_reward, bad_reward, _ = kind.kto_loss(
        own, good, bad, other, good_reference, bad_reference, other_reference)
    for number, values in enumerate((good_reward, bad_reward, good, bad,
                                     other - other_reference)):
        totals[0, number] += float(values.detach().sum())
        totals[1, number] += len(values)
    return loss.sum()


def newer_loss(model, batch, totals):
    """The same by TRL 1, which takes all documents together."""
    documents = [tuple(x[row[3] == number] for x in (row[0], row[1], row[4]))
                 + (int(row[5][row[3] == number][0]),)
                 for row in zip(*batch) for number in range(int(row[3].max()) + 1)]
    labelled = [each for each in documents if each[3]]
    loss, metrics = trl_losses.kto(
        model, labelled, [each for each in documents if not each[3]], BETA,
        WEIGHTS["desirable"], WEIGHTS["undesirable"])
    counts = [sum(each[3] == label for each in documents) for label in (1, -1, 0)]
    names = ("rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected",
             "distance")
    for number, (name, count) in enumerate(zip(names, [*counts[:2] * 2, counts[2]])):
        totals[0, number] += metrics[name] * count
        totals[1, number] += count
    return loss * len(labelled)


def gradients(model, batch):
    """The loss of a batch, its gradient by parameter, and METRICS."""
    model.zero_grad(set_to_none=True)
    exact = next(model.parameters()).dtype is torch.float64
    numbers, labels = batch[3], batch[5]
    starts = batch[2] == torch.arange(numbers.shape[-1])
    count = int((starts & (numbers >= 0) & (labels != 0)).sum())
    total, totals = 0.0, torch.zeros(2, len(METRICS), dtype=torch.float64)
    for each in zip(*batch):
        with Float64() if exact else contextlib.nullcontext():
            loss = microbatch_loss(model, each, totals) / count
            loss.backward()
        total += float(loss.detach())
    return total, {n: p.grad.double() for n, p in model.named_parameters()
                   if p.requires_grad}, totals[0] / totals[1]
