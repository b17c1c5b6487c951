"""AdamW with warmup and cosine, as PyTorch does it: the losses that a compiled
step program must give on the same batches."""
import copy
import math

import torch

from hf_models import gradients

STEPS = 20
# With the usual eps of 1e-8, an element whose gradient is no more than a rounding
# error moves by a whole lr in the direction of the error: PyTorch's own fp32 is
# then up to 1e-5 away from its fp64. With this one eps counts, and shows.
SETTINGS = {"optimizer.lr": 2e-3, "optimizer.betas": "[0.9, 0.95]",
            "optimizer.eps": 1e-5, "optimizer.weight_decay": 0.1,
            "optimizer.clip": 1.0, "lr_schedule.warmup": 5,
            "lr_schedule.total": STEPS, "lr_schedule.min_ratio": 0.1}


def settings():
    """The same as --set arguments."""
    return [f"{key}={value}" for key, value in SETTINGS.items()]


def learning_rate(step):
    top, warmup = SETTINGS["optimizer.lr"], SETTINGS["lr_schedule.warmup"]
    if step < warmup:
        return top * (step + 1) / warmup
    progress = (step - warmup) / (SETTINGS["lr_schedule.total"] - warmup)
    end = SETTINGS["lr_schedule.min_ratio"]
    return top * (end + (1 - end) * (1 + math.cos(math.pi * progress)) / 2)


def optimizer_of(parameters):
    """Weight decay on matrices only."""
    groups = [{"params": [p for p in parameters if p.dim() >= 2],
               "weight_decay": SETTINGS["optimizer.weight_decay"]},
              {"params": [p for p in parameters if p.dim() < 2],
               "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95),
                             eps=SETTINGS["optimizer.eps"])


def losses(model, masters, tokens, targets):
    """Losses, gradient norms and rates of one step after another."""
    model = copy.deepcopy(model)
    return train(model, masters, lambda step: gradients(
        model, tokens[step], targets[step])[0], len(tokens))


def train(model, masters, loss_of, steps=STEPS):
    """The same of any loss: `loss_of(step)` leaves its gradients in the model's
    parameters. `masters` are what the optimizer updates: the model's own
    parameters, or copies of them in fp32 whose rounded values the model computes
    with."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if masters is None:
        masters = parameters
    else:
        masters = [p.detach().clone().requires_grad_() for p in masters]
    optimizer = optimizer_of(masters)
    result = []
    for step in range(steps):
        loss = loss_of(step)
        for master, parameter in zip(masters, parameters):
            master.grad = parameter.grad.to(master.dtype)
        norm = torch.nn.utils.clip_grad_norm_(masters,
                                              SETTINGS["optimizer.clip"])
        rate = learning_rate(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        if masters is not parameters:
            for parameter, master in zip(parameters, masters):
                parameter.data.copy_(master.data)
        result.append((loss, float(norm), rate))
    return torch.tensor(result, dtype=torch.float64)
