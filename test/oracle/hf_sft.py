"""The loss of the answers of packed documents, which a model sees one at a time, by
TRL's trainer where that is new; its older one takes transformers' cross-entropy, and
so does that of prompts whose tokens see each other, of which TRL has none."""
import contextlib

import torch

import hf_adapters
import hf_policy
import trl_losses
from hf_models import Float64, loss_sum, prompt_mask

INPUTS = ["document_starts"]
# By name: the adapters that are trained.
PROMPTS = "sft, prompts"
LOSSES = {"sft": None, "sft, LoRA": "lora", "sft, DoRA": "dora", PROMPTS: None}
# Families of transformers 4.40 that take a mask of pairs.
MASKED = ("llama", "mixtral", "qwen2")


def settings(name, family):
    if name == PROMPTS:
        return ["attention.prompts=bidirectional"]
    return (hf_adapters.settings(family, LOSSES[name]) if LOSSES[name] else [])


def own(model, name, family, seed):
    return (hf_adapters.adapted(model, family, seed, kind=LOSSES[name])
            if LOSSES[name] else model)


def answers(family, seed):
    generator = torch.Generator().manual_seed(seed)
    return hf_policy.packed(family, generator, seed, lambda row: 3 + row % 2)[:4]


def mask_of(model, targets):
    prompt = int((targets != -100).nonzero()[0]) + 1
    return {"attention_mask": prompt_mask(model, len(targets), prompt)}


def gradients(model, name, batch):
    """The mean loss of a batch, whose gradients the model's parameters get."""
    model.zero_grad(set_to_none=True)
    documents = hf_policy.documents_of(batch)
    count, total = sum(int((each[1] != -100).sum()) for each in documents), 0.0
    exact = next(model.parameters()).dtype is torch.float64
    with Float64() if exact else contextlib.nullcontext():
        if trl_losses.IS_NEW and name != PROMPTS:
            loss, documents = trl_losses.sft(model, documents), []
            loss.backward()
            total = float(loss.detach())
        for tokens, targets in documents:
            more = mask_of(model, targets) if name == PROMPTS else {}
            loss = loss_sum(model, tokens[None].long(), targets[None], **more) / count
            loss.backward()
            total += float(loss.detach())
    return total,
