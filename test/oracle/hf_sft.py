"""The loss of the answers of packed documents, which a model sees one at a time, by
TRL's trainer where that is new; its older one takes transformers' cross-entropy."""
import contextlib

import torch

import hf_adapters
import hf_policy
import trl_losses
from hf_models import Float64, loss_sum

INPUTS = ["document_starts"]
# By name: the adapters that are trained.
LOSSES = {"sft": None, "sft, LoRA": "lora", "sft, DoRA": "dora"}


def settings(name, family):
    return (hf_adapters.settings(family, LOSSES[name]) if LOSSES[name] else [])


def own(model, name, family, seed):
    return (hf_adapters.adapted(model, family, seed, kind=LOSSES[name])
            if LOSSES[name] else model)


def answers(family, seed):
    generator = torch.Generator().manual_seed(seed)
    return hf_policy.packed(family, generator, seed, lambda row: 3 + row % 2)[:4]


def gradients(model, batch):
    """The mean loss of a batch, whose gradients the model's parameters get."""
    model.zero_grad(set_to_none=True)
    documents = hf_policy.documents_of(batch)
    count, total = sum(int((each[1] != -100).sum()) for each in documents), 0.0
    exact = next(model.parameters()).dtype is torch.float64
    with Float64() if exact else contextlib.nullcontext():
        if trl_losses.IS_NEW:
            loss, documents = trl_losses.sft(model, documents), []
            loss.backward()
            total = float(loss.detach())
        for tokens, targets in documents:
            loss = loss_sum(model, tokens[None].long(), targets[None]) / count
            loss.backward()
            total += float(loss.detach())
    return total,
