"""Models that score answers, against transformers' ForSequenceClassification and
TRL's own loss, on documents that a model sees one at a time."""
import contextlib
import functools
import types

import torch
import transformers

import hf_adapters
import trl_losses
from hf_models import FAMILIES, Float64, SEQUENCE, Twins
from hf_models import in_files, reference_config, restored

METRICS = ["accuracy", "margin", "chosen_reward", "rejected_reward"]
INPUTS = ["document_starts", "document_numbers"]
# By name: the weight of the squared sum of a pair's scores, and whether PEFT
# trains factors and the head.
LOSSES = {"reward": (0, False), "reward, centered": (0.05, False),
          "reward, LoRA": (0, True)}
CLASSES = {"gpt2": "GPT2", "llama": "Llama", "mistral": "Mistral",
           "qwen2": "Qwen2", "mixtral": "Mixtral"}


def losses(family, dtype):
    if family == "llama":
        return list(LOSSES)
    if family not in CLASSES or dtype != "fp32":
        return []
    # The last norm's bias is in every score, so in no difference of two.
    return ["reward, centered" if family == "gpt2" else "reward"]


def settings(name, family):
    center, adapted = LOSSES[name]
    return ["task=reward", f"preference.center={center}", "preference.pairs=3",
            *(hf_adapters.settings(family) if adapted else [])]


def build(family, dtype=torch.float32):
    config = reference_config(family)
    config.num_labels = 1
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    return restored(model, family).to(dtype).train()


def fields(family):
    """config.json as transformers writes it."""
    return {**FAMILIES[family],
            "architectures": [f"{CLASSES[family]}ForSequenceClassification"],
            "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}


def twin(family, seed):
    return Twins(family, seed, build, fields(family))


def own(model, name, family, seed):
    """What is trained: the model, or PEFT's around it. Wrapped models are kept
    as long as their base is."""
    if not LOSSES[name][1]:
        return model
    kept = model.__dict__.setdefault("_adapted", {})
    if name not in kept:
        kept[name] = hf_adapters.adapted(model, family, seed, modules_to_save=["score"])
    return kept[name]


@functools.cache
def trainer():
    """TRL's class, and what its loss reads of it. It takes ten seconds to
    import."""
    from trl.trainer.reward_trainer import RewardTrainer
    return RewardTrainer, types.SimpleNamespace(use_reward_data_collator=True)


def pair_loss(model, chosen, rejected, center, totals):
    """Adds METRICS to row 0 of totals, and their sizes to row 1."""
    if trl_losses.IS_NEW:
        loss, (one, other) = trl_losses.reward(model, [(chosen, rejected)], center)
        add_metrics(totals, one, other)
        return loss
    kind, fields = trainer()
    inputs = {}
    for answer, tokens in (("chosen", chosen), ("rejected", rejected)):
        inputs[f"input_ids_{answer}"] = tokens[None].long()
        inputs[f"attention_mask_{answer}"] = torch.ones(1, len(tokens)).long()

    def scores(**given):
        return {"logits": model(**given).logits.float()}
    # Without padding tokens the model takes one sequence, whose last token
    # it scores.
    loss, got = kind.compute_loss(fields, scores, inputs, return_outputs=True)
    one, other = (got[f"rewards_{each}"] for each in ("chosen", "rejected"))
    # As later versions of TRL add it (center_rewards_coefficient).
    loss = loss + center * torch.mean((one + other) ** 2)
    add_metrics(totals, one, other)
    return loss


def add_metrics(totals, one, other):
    for number, value in enumerate((one > other, one - other, one, other)):
        totals[0, number] += float(value.detach().sum())
        totals[1, number] += float(value.detach().double().abs().sum())


def gradients(model, name, batch):
    """The mean loss of all pairs, its gradient by parameter, METRICS, and the
    means of their sizes: scores of both signs cancel, their roundings do not."""
    model.zero_grad(set_to_none=True)
    tokens, _, _, numbers = (x.flatten(0, 1) for x in batch)
    pairs = [(row[number == 2 * k], row[number == 2 * k + 1])
             for row, number in zip(tokens, numbers)
             for k in range((int(number.max()) + 1) // 2)]
    exact = next(model.parameters()).dtype is torch.float64
    total, totals = 0.0, torch.zeros(2, len(METRICS), dtype=torch.float64)
    for chosen, rejected in pairs:
        with Float64() if exact else contextlib.nullcontext():
            loss = pair_loss(model, chosen, rejected, LOSSES[name][0], totals)
            loss = loss / len(pairs)
            loss.backward()
        total += float(loss.detach())
    grads = {n: p.grad.double() for n, p in model.named_parameters()
             if p.requires_grad}
    if LOSSES[name][1]:
        grads = {hf_adapters.plain(n): value for n, value in grads.items()}
    return total, in_files(grads, model), *(totals / len(pairs))


def sequences(family, seed, count=6):
    """Of 1 to SEQUENCE tokens: tokens padded with others', and lengths."""
    generator = torch.Generator().manual_seed(seed)
    longest = SEQUENCE[family]
    tokens = torch.randint(0, FAMILIES[family]["vocab_size"], (count, longest),
                           generator=generator, dtype=torch.int32)
    lengths = torch.randint(2, longest, (count,), generator=generator,
                            dtype=torch.int32)
    lengths[0], lengths[1] = 1, longest
    return tokens, lengths


def scores(model, tokens, lengths):
    exact = next(model.parameters()).dtype is torch.float64
    with torch.no_grad(), Float64() if exact else contextlib.nullcontext():
        return torch.cat([model(row[None, :length].long()).logits[0]
                          for row, length in zip(tokens, lengths.tolist())])
