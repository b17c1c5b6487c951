"""PPO with a value head, on documents that a model sees one at a time: TRL's
model with a value head, and the rewards, advantages and losses of its
PPOTrainer, the functions themselves. They are those of trl 0.9, which the
environment of the oracles has, and of the paper (Schulman et al. 2017); or with
trl 1, up to 1.12, the statements of its PPOTrainer.train. Later ones have no PPO."""
import contextlib
import dataclasses
import functools
import sys
import types
import typing

import torch

import hf_adapters
import hf_policy
import trl_losses
from hf_models import Float64


@dataclasses.dataclass
class Settings:
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.2
    weight: float = 0.1
    beta: float = 0.0
    estimator: str = "k1"
    whiten: bool = True
    adapted: bool = False


PPOS = {
    "ppo": Settings(beta=0.15),
    "ppo, k2": Settings(gamma=0.9, lam=0.8, beta=0.3, estimator="k2"),
    "ppo, raw": Settings(gamma=0.97, lam=0.5, weight=0.7, whiten=False),
    "ppo, LoRA": Settings(beta=0.15, adapted=True),
}
if trl_losses.IS_NEW:  # It has k1 and k3.
    PPOS["ppo, k3"] = dataclasses.replace(PPOS.pop("ppo, k2"), estimator="k3")
HEAD = "v_head.summary"
PENALTIES = {"k1": "kl", "k2": "mse"}
METRICS = ["clip_fraction", "ratio", "kl", "advantage", "log_prob", "mismatch"]
REFERENCE_METRICS = ["kl_reference"]
VALUE_METRICS = ["policy_loss", "value_loss", "value_clip_fraction", "value",
                 "value_error", "return", "explained_variance"]


def losses(family, dtype):
    if trl_losses.IS_NEW and trl_losses.VERSION > trl_losses.LAST_PPO:
        return []
    if family == "llama":
        return list(PPOS) if dtype == "fp32" else ["ppo", "ppo, raw"]
    return ["ppo"] if family == "gpt2" and dtype == "fp32" else []


def metrics(own):
    return [*METRICS, *(REFERENCE_METRICS if own.beta else []), *VALUE_METRICS]


def settings(name, family):
    own = PPOS[name]
    keys = ["task=policy", "policy.advantages=gae", "policy.aggregate=token",
            "policy.documents=5", "rollout.baseline=none", "rollout.scale=none",
            f"policy.clip_low={own.clip}", f"policy.clip_high={own.clip}",
            f"policy.gae.gamma={own.gamma}", f"policy.gae.lambda={own.lam}",
            f"policy.gae.whiten={'step' if own.whiten else 'none'}",
            f"policy.value.weight={own.weight}",
            f"policy.value.clip={own.value_clip}"]
    if own.beta:
        keys += [f"policy.kl.beta={own.beta}",
                 f"policy.kl.estimator={own.estimator}"]
    return keys + (hf_adapters.settings(family) if own.adapted else [])


def inputs(name):
    """What the program takes after tokens and targets, in the order of
    `answers`; None where it does not."""
    return ["document_starts", None, "behavior", "rewards", "values",
            "reference" if PPOS[name].beta else None]


@functools.cache
def trl():
    """The trainer and the model with a value head. They take ten seconds to
    import. Their module of settings annotates one for tyro, a parser of command
    lines, which need not be there."""
    unused = types.SimpleNamespace(arg=lambda **_: None, Suppress=typing.Optional)
    sys.modules.setdefault("tyro", types.SimpleNamespace(conf=unused))
    if trl_losses.IS_NEW:
        from trl.experimental import ppo
        return ppo.PPOTrainer, ppo.AutoModelForCausalLMWithValueHead
    from trl.models import AutoModelForCausalLMWithValueHead
    from trl.trainer.ppo_trainer import PPOTrainer
    return PPOTrainer, AutoModelForCausalLMWithValueHead


def with_values(model, name, family, seed):
    """The model, or PEFT's around it, in TRL's with a value head. Models are
    kept as long as their base is."""
    kept = model.__dict__.setdefault("_with_values", {})
    if name not in kept:
        dtype = next(model.parameters()).dtype
        exact = dtype is torch.float64
        base = (hf_adapters.adapted(model, family, seed)
                if PPOS[name].adapted else model)
        with Float64() if exact else contextlib.nullcontext():
            kept[name] = trl()[1](base, summary_dropout_prob=0)
        kept[name].is_peft_model = PPOS[name].adapted
        generator = torch.Generator().manual_seed(seed + 1)
        head = kept[name].v_head.summary
        for parameter in (head.weight, head.bias):
            value = torch.randn(parameter.shape, generator=generator) * 0.2
            # The head of a bf16 model is f32.
            parameter.data = value.double() if exact else value
    return kept[name]


def plain(name):
    """A parameter of TRL's model as our state has it."""
    return hf_adapters.plain(name.removeprefix("pretrained_model."))


def save(model, path):
    hf_adapters.save(types.SimpleNamespace(named_parameters=lambda: (
        (plain(name), value) for name, value in model.named_parameters())), path)


def outputs(model, tokens, targets):
    """[tokens] of one document → log-probabilities of targets, 0 where there is
    none, and values."""
    logits, _, values = model(tokens[None].long())
    logps = torch.log_softmax(logits[0], -1)
    known = targets != -100
    index = torch.where(known, targets, torch.zeros_like(targets)).long()
    return torch.gather(logps, 1, index[:, None])[:, 0] * known, values[0]


def answers(exact, family, seed):
    """A batch of three or four answers a row, with log-probabilities at
    sampling, rewards, values before the update, and log-probabilities of a
    reference model. Ratios and values of `exact` are far from where they are
    clipped, so that no rounding decides that; what is not learned has numbers
    that would show."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(size):
        return torch.rand(size, generator=generator)

    def picked(size):
        offsets = torch.tensor([-0.5, -0.05, 0.05, 0.5])
        return (offsets[torch.randint(0, 4, (size,), generator=generator)]
                + 0.04 * (uniform(size) - 0.5))
    tokens, targets, starts, numbers, parts = hf_policy.packed(
        family, generator, seed, lambda row: 3 + row % 2)
    behavior, rewards, values, reference = (
        torch.full(tokens.shape, 9.0) for _ in range(4))
    for at, part in parts:
        size = part.stop - part.start
        with torch.no_grad(), Float64():
            logps, predicted = (x.float() for x in outputs(
                exact, tokens[at][part], targets[at][part]))
        learned = targets[at][part] != -100
        earned = torch.zeros(size)
        earned[int(learned.nonzero()[-1])] = 2 * uniform(1) - 1
        given = (logps - picked(size), earned, predicted - picked(size),
                 logps + 0.6 * (uniform(size) - 0.5))
        for whole, own in zip((behavior, rewards, values, reference), given):
            whole[at][part] = torch.where(learned, own, whole[at][part])
    return tokens, targets, starts, numbers, behavior, rewards, values, reference


def trainer(own):
    """What TRL's functions read of a trainer."""
    config = types.SimpleNamespace(
        kl_penalty=PENALTIES[own.estimator], whiten_rewards=False,
        gamma=own.gamma, lam=own.lam, cliprange=own.clip,
        cliprange_value=own.value_clip, vf_coef=own.weight, ratio_threshold=1e9)
    fields = types.SimpleNamespace(
        config=config, kl_ctl=types.SimpleNamespace(value=own.beta))
    fields._kl_penalty = functools.partial(trl()[0]._kl_penalty, fields)
    return fields


def loss(own, logps, predicted, behavior, rewards, values, reference, mask):
    """[answers, tokens] each → the loss, its metrics, and the sizes of what they
    are means of: terms of both signs cancel, their roundings do not."""
    if trl_losses.IS_NEW:
        return newer_loss(own, logps, predicted, behavior, rewards, values,
                          reference, mask)
    kind, fields = trl()[0], trainer(own)
    earned, _, _ = kind.compute_rewards(
        fields, (rewards * mask).sum(-1), behavior,
        reference if own.beta else behavior, mask)
    old, advantages, returns = kind.compute_advantages(fields, values, earned, mask)
    if not own.whiten:
        advantages = returns - old
    unused = torch.zeros(*logps.shape, 2, dtype=logps.dtype)
    policy, value, stats = kind.loss(fields, behavior, old, unused, predicted,
                                     logps, mask, advantages, returns)
    table = table_of(own, stats, policy, advantages, returns, logps, predicted,
                     behavior, reference, mask)
    return policy + value, *table


def newer_loss(own, logps, predicted, behavior, rewards, values, reference, mask):
    """The same by TRL 1."""
    def answers(x):
        """Without prompts, which are before all answers there."""
        return trl_losses.in_rows(row[learned > 0]
                                  for row, learned in zip(x, mask))
    scores = (rewards * mask).sum(-1)
    logps, predicted, behavior, values, reference, mask = map(
        answers, (logps, predicted, behavior, values,
                  reference if own.beta else behavior, mask))
    got = trl_losses.ppo(own, logps, predicted, behavior, scores, values,
                         reference, mask)

    def mean(x):
        return (x * mask).sum() / mask.sum()
    advantages, returns = got["advantages"] * mask, got["returns"] * mask
    error = mean((predicted - returns) ** 2)
    spread = mean((returns - mean(returns)) ** 2) * mask.sum() / (mask.sum() - 1)
    stats = {"policy/clipfrac": mean((got["pg_losses2"] > got["pg_losses"])
                                     .to(mask.dtype)),
             "loss/value": got["vf_loss"], "val/clipfrac": got["vf_clipfrac"],
             "val/vpred": mean(predicted), "val/error": error,
             "returns/mean": mean(returns), "returns/var": spread}
    return got["loss"], *table_of(own, stats, got["pg_loss"], advantages, returns,
                                  logps, predicted, behavior, reference, mask)


def table_of(own, stats, policy, advantages, returns, logps, predicted, behavior,
             reference, mask):
    """The metrics, and the sizes of what they are means of."""
    def mean(x):
        return (x * mask).sum() / mask.sum()
    distance = logps - behavior
    columns = [stats["policy/clipfrac"], mean(torch.exp(distance)),
               mean(hf_policy.kl("k3", -distance)), mean(advantages), mean(logps),
               mean((distance != 0).to(logps.dtype))]
    if own.beta:
        columns.append(mean(hf_policy.kl("k3", logps - reference)))
    variance = stats["returns/var"] * (mask.sum() - 1) / mask.sum()
    columns += [policy, stats["loss/value"], stats["val/clipfrac"],
                stats["val/vpred"], stats["val/error"], stats["returns/mean"],
                1 - stats["val/error"] / variance]
    table = torch.stack(
        [torch.as_tensor(x, dtype=logps.dtype).detach() for x in columns])
    scales, names = table.abs(), metrics(own)
    for name, each in {"advantage": advantages, "value": predicted,
                       "return": returns,
                       "policy_loss": advantages * torch.exp(distance)}.items():
        scales[names.index(name)] = mean(each.abs()).detach()
    scales[names.index("explained_variance")] = 1
    return table, scales


def gradients(model, name, batch):
    """The loss of a batch, its gradient by parameter, its metrics and their
    sizes."""
    model.zero_grad(set_to_none=True)
    exact = model.v_head.summary.weight.dtype is torch.float64
    rows = []
    with Float64() if exact else contextlib.nullcontext():
        for row in zip(*(x.flatten(0, 1) for x in batch)):
            tokens, targets, _, numbers, *others = row
            for number in range(int(numbers.max()) + 1):
                own = numbers == number
                logps, values = outputs(model, tokens[own], targets[own])
                mask = (targets[own] != -100).to(logps.dtype)
                # TRL multiplies rewards and values with the mask.
                rows.append([logps, values, *(x[own].to(logps.dtype) * mask
                                              for x in others), mask])
        padded = [torch.nn.utils.rnn.pad_sequence(each, batch_first=True)
                  for each in zip(*rows)]
        total, *numbers = loss(PPOS[name], *padded)
        total.backward()
    return float(total.detach()), {
        plain(n): p.grad.double() for n, p in model.named_parameters()
        if p.requires_grad}, *numbers
