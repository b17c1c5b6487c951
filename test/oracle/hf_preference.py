"""Losses of pairs of answers by TRL's own functions, on documents that a model
sees one at a time."""
import contextlib
import functools
import types

import torch

import trl_losses
from hf_models import Float64, batches

BETA = 0.3
# By name: keys of the recipe, and fields of TRL's trainer.
LOSSES = {
    "dpo": (["task=dpo"], {"loss_type": "sigmoid"}),
    "dpo, smoothed": (["task=dpo", "preference.label_smoothing=0.1"],
                      {"loss_type": "sigmoid", "label_smoothing": 0.1}),
    "dpo, reference-free": (["task=dpo", "preference.reference=none"],
                            {"loss_type": "sigmoid", "reference_free": True}),
    "hinge": (["task=dpo", "preference.loss=hinge"], {"loss_type": "hinge"}),
    "ipo": (["task=dpo", "preference.loss=ipo"], {"loss_type": "ipo"}),
    "orpo": (["task=orpo"], {}),
    "simpo": (["task=simpo", "preference.margin=0.7"],
              {"loss_type": "simpo", "simpo_gamma": 0.7}),
}


# Each loss in one family; the others have one, since only their trunks differ.
def losses(family, dtype):
    if family == "llama":
        return list(LOSSES) if dtype == "fp32" else ["dpo", "orpo"]
    return {"gpt2": ["dpo"], "mistral": ["simpo"]}.get(family, [])


def settings(name):
    return [*LOSSES[name][0], f"preference.beta={BETA}", "preference.pairs=3"]


def has_reference(name):
    return name in ("dpo", "dpo, smoothed", "hinge", "ipo")


# Those that TRL 1's DPOTrainer has. Without a reference its log-probabilities are 0.
BATCHED = ("dpo", "dpo, reference-free", "hinge", "ipo")


@functools.cache
def trl():
    """Its classes. They take ten seconds to import."""
    from trl.trainer.dpo_trainer import DPOTrainer
    if trl_losses.IS_NEW:
        from trl.experimental.cpo.cpo_trainer import CPOTrainer
        from trl.experimental.orpo.orpo_trainer import ORPOTrainer
    else:
        from trl.trainer.cpo_trainer import CPOTrainer
        from trl.trainer.orpo_trainer import ORPOTrainer
    return types.SimpleNamespace(CPOTrainer=CPOTrainer, DPOTrainer=DPOTrainer,
                                 ORPOTrainer=ORPOTrainer)


def trainer(name):
    """The fields that TRL's losses read."""
    usual = {"beta": BETA, "label_smoothing": 0.0, "reference_free": False,
             "f_divergence_type": "reverse_kl", "f_divergence_params": None,
             "alpha": 0.0,
             "accelerator": types.SimpleNamespace(device="cpu")}
    return types.SimpleNamespace(**(usual | LOSSES[name][1]))


def pairs(family, seed):
    """tokens, targets [A, B, T] of one or two pairs a row and padding, where
    documents start, their numbers, and log-probabilities of a reference model.
    A document has three tokens or more, of which the prompt's are not learned."""
    generator = torch.Generator().manual_seed(seed)
    tokens, targets = (x[0] for x in batches(family, 1, seed))
    length = tokens.shape[-1]
    starts, numbers = torch.zeros_like(tokens), torch.full_like(tokens, -100)
    for row in range(tokens.shape[0] * tokens.shape[1]):
        at = divmod(row, tokens.shape[1])
        count = 2 if row % 2 else 4
        room = length // (count + 1)
        begin = 0
        for number in range(count):
            size = int(torch.randint(3, room + 1, (1,), generator=generator))
            prompt = int(torch.randint(0, size - 1, (1,), generator=generator))
            part = slice(begin, begin + size)
            starts[at][part], numbers[at][part] = begin, number
            targets[at][part] = torch.roll(tokens[at][part], -1)
            targets[at][begin:begin + prompt] = -100
            targets[at][begin + size - 1] = -100
            begin += size
        starts[at][begin:] = begin
        targets[at][begin:] = -100
    spread = torch.randn(tokens.shape, generator=generator) * 0.3
    reference = torch.where(targets == -100, torch.zeros(()),
                            -(4 + spread).abs())
    return tokens, targets, starts, numbers, reference


def rows_of(batch):
    """(tokens, targets, reference) of the documents of each row."""
    for row in zip(*(x.flatten(0, 1) for x in batch)):
        tokens, targets, _, numbers, reference = row
        yield [tuple(x[numbers == number] for x in (tokens, targets, reference))
               for number in range(int(numbers.max()) + 1)]


def loss_of(model, name, chosen, rejected):
    own = trainer(name)
    sums, lengths, references = [], [], []
    for tokens, targets, reference in (chosen, rejected):
        logits = model(tokens[None].long()).logits.float()
        # TRL shifts the labels only of decoders.
        total = trl().CPOTrainer.get_batch_logps(
            logits, targets[None].long(), is_encoder_decoder=True)
        sums.append(total), lengths.append((targets != -100).sum()[None])
        references.append(reference.to(total.dtype).sum()[None])
    means = [total / length for total, length in zip(sums, lengths)]
    if name == "orpo":
        ratio, *_ = trl().ORPOTrainer.odds_ratio_loss(own, *means)
        return -means[0] - ratio
    if name == "simpo":
        return trl().CPOTrainer.cpo_loss(own, *means)[0]
    if trl_losses.IS_NEW:
        # Its DPO has no smoothing; the loss that has is one of two numbers, here
        # ratios to the reference.
        assert name == "dpo, smoothed"
        return trl().CPOTrainer.cpo_loss(own, *(
            a - b for a, b in zip(sums, references)))[0]
    if name == "ipo":  # as DPOTrainer.concatenated_forward divides
        sums = means
        references = [r / n for r, n in zip(references, lengths)]
    return trl().DPOTrainer.dpo_loss(own, *sums, *references)[0]


def gradients(model, name, batch):
    """The mean loss of all pairs, and its gradient by parameter in fp64."""
    model.zero_grad(set_to_none=True)
    rows = list(rows_of(batch))
    count, total = sum(len(row) for row in rows) // 2, 0.0
    exact = next(model.parameters()).dtype is torch.float64
    if trl_losses.IS_NEW and name in BATCHED:
        pairs = [pair for row in rows for pair in zip(row[::2], row[1::2])]
        if not has_reference(name):
            pairs = [[(x, y, torch.zeros_like(z)) for x, y, z in pair]
                     for pair in pairs]
        with Float64() if exact else contextlib.nullcontext():
            loss = trl_losses.dpo(model, pairs, BETA, LOSSES[name][1]["loss_type"])
            loss.backward()
        total, rows = float(loss.detach()), []
    for row in rows:
        for chosen, rejected in zip(row[::2], row[1::2]):
            with Float64() if exact else contextlib.nullcontext():
                loss = loss_of(model, name, chosen, rejected).sum() / count
                loss.backward()
            total += float(loss.detach())
    return total, {n: p.grad.double() for n, p in model.named_parameters()
                   if p.requires_grad}
