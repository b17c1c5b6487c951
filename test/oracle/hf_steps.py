"""The losses of 20 steps of AdamW with each loss of fine-tuning, one number a step: of
a compiled program, and of PyTorch in fp32 and in fp64. Batches of answers are
made for the fp64 model as it is before the step, as a sampler would: all three
learn from the same ones."""
import copy
import dataclasses
import typing

import torch

import hf_adapters
import hf_kto
import hf_policy
import hf_ppo
import hf_preference
import hf_reward
import hf_sft
from hf_report import scale_of
from hf_training import settings, train


@dataclasses.dataclass
class Case:
    settings: list                # keys of the recipe
    inputs: list                  # of the program, after tokens and targets
    batch: typing.Callable        # of the fp64 model and a seed
    gradients: typing.Callable    # of a model and a batch: the loss comes first
    own: typing.Callable = lambda model: model    # what is trained of a model
    save: typing.Callable = None  # weights of that, if they are not the model's
    scored: bool = False          # of a model with a head for scores


def preference(name):
    inputs = ["document_starts", "document_numbers", "reference"]
    return lambda family: Case(
        hf_preference.settings(name), inputs[:3 if hf_preference.has_reference(name) else 2],
        lambda exact, seed: hf_preference.pairs(family, seed),
        lambda model, batch: hf_preference.gradients(model, name, batch))


def supervised(name):
    return lambda family: Case(
        hf_sft.settings(name, family), hf_sft.INPUTS,
        lambda exact, seed: hf_sft.answers(family, seed),
        lambda model, batch: hf_sft.gradients(model, name, batch),
        lambda model: hf_sft.own(model, name, family, 7),
        hf_adapters.save if hf_sft.LOSSES[name] else None)


def reward(name):
    return lambda family: Case(
        hf_reward.settings(name, family), hf_reward.INPUTS,
        lambda exact, seed: hf_preference.pairs(family, seed)[:4],
        lambda model, batch: hf_reward.gradients(model, name, batch),
        lambda model: hf_reward.own(model, name, family, 7), hf_adapters.save, True)


def policy(name):
    return lambda family: Case(
        hf_policy.settings(name), hf_policy.inputs(name),
        lambda exact, seed: hf_policy.answers(exact, name, family, seed),
        lambda model, batch: hf_policy.gradients(model, name, batch))


def value_policy(name):
    return lambda family: Case(
        hf_ppo.settings(name, family), hf_ppo.inputs(name),
        lambda exact, seed: hf_ppo.answers(exact, family, seed),
        lambda model, batch: hf_ppo.gradients(model, name, batch),
        lambda model: hf_ppo.with_values(model, name, family, 7), hf_ppo.save)


def kto(family):
    return Case(hf_kto.settings(), hf_kto.INPUTS,
                lambda exact, seed: hf_kto.answers(exact, family, seed),
                hf_kto.gradients)


CASES = {
    **{name: supervised(name) for name in hf_sft.LOSSES},
    **{name: preference(name) for name in hf_preference.LOSSES},
    "kto": kto,
    **{name: reward(name) for name in hf_reward.LOSSES},
    **{name: value_policy(name) for name in hf_ppo.PPOS},
    **{name: policy(name) for name in hf_policy.POLICIES},
}
# What tests run; the others on request: a run of 20 steps takes seconds.
TESTED = {"llama": ["grpo", hf_sft.PROMPTS], "gpt2": ["dpo"]}


def names(family, wanted):
    """`wanted`: nothing, names, or "all" for those that the family has."""
    if not wanted:
        return TESTED.get(family, [])
    if wanted != ["all"]:
        return wanted
    return [name for name in CASES if is_of(name, family)]


def is_of(name, family):
    """Whether an installed TRL has the loss, and PEFT adapts the family."""
    if name in hf_reward.LOSSES and family not in hf_reward.CLASSES:
        return False
    if name in hf_ppo.PPOS and not hf_ppo.losses("llama", "fp32"):
        return False
    if name == hf_sft.PROMPTS:
        return family in hf_sft.MASKED
    if name.endswith("RA"):
        kind = name.rpartition(" ")[2].lower()
        return kind in hf_adapters.KINDS.get(family, [])
    return True


def of_torch(case, twin, dtype, batches, seed):
    """Losses [steps] and gradient norms of a twin. `batches`: those that were made,
    to which the fp64 twin adds as it learns."""
    model = case.own(copy.deepcopy(getattr(twin, dtype)))

    def loss_of(step):
        if step == len(batches):
            batches.append(case.batch(model, 1000 * (step + 1) + seed))
        return case.gradients(model, batches[step])[0]
    return train(model, None, loss_of)[:, :2].T


def of_ours(case, tessera, artifact, weights, batches):
    tokens, targets, *more = (torch.stack(each) for each in zip(*batches))
    return tessera.losses(
        artifact, weights, tokens, targets, settings(),
        more={name: value for name, value in zip(case.inputs, more) if name})


def scales(case, batches):
    """[steps] of the sizes of advantages, which losses of policies are sums of; None
    for other losses."""
    sizes = [scale_of(dict(zip(case.inputs, more)), targets)
             for _, targets, *more in batches]
    return None if sizes[0] is None else torch.stack(sizes)
