"""Losses by the trainers of TRL 1.16: their own methods, called with the fields that
they read. Documents are rows of a batch, padded on the right; a document is (tokens,
targets, ...) as the other scripts have it, with the target of a token at the token
before it."""
import ast
import collections
import contextlib
import functools
import importlib.metadata
import inspect
import re
import textwrap
import types

import torch

from hf_models import Float64

VERSION = tuple(map(int, re.match(r"(\d+)\.(\d+)", importlib.metadata.version("trl")).groups()))
IS_NEW = VERSION >= (1, 0)
# The last version with PPO, and where that is written inside of PPOTrainer.train.
LAST_PPO = (1, 12)


class OneProcess:
    """What trainers call of accelerate, of a single process."""
    device, num_processes = "cpu", 1
    is_main_process = sync_gradients = True
    parallelism_config = None

    def gather(self, x):
        return x

    gather_for_metrics = gather

    def reduce(self, x, reduction):
        return x

    def autocast(self):
        return contextlib.nullcontext()


def trainer(model, **fields):
    return types.SimpleNamespace(
        model=model, accelerator=OneProcess(), aux_loss_enabled=False,
        _metrics=collections.defaultdict(lambda: collections.defaultdict(list)),
        _total_train_tokens=0, _tp_size=1, **fields)


@functools.cache
def fused_head():
    """TRL's function, whose gradients ask for fp32. A mode is off while it handles
    `backward`, so that it is entered again there."""
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction
    from trl.trainer.utils import add_fused_lm_head
    original = ChunkedLogProbFunction.backward

    def backward(ctx, *gradients):
        if ctx.saved_tensors[0].dtype is not torch.float64:
            return original(ctx, *gradients)
        with Float64():
            return original(ctx, *gradients)
    ChunkedLogProbFunction.backward = staticmethod(backward)
    return add_fused_lm_head


@contextlib.contextmanager
def fused(model, *outputs):
    """The head that trainers give a model, for as long as a loss is computed: copies of
    a model that has it would call the original."""
    inner = model.get_base_model() if hasattr(model, "peft_config") else model
    fused_head()(inner, outputs=("log_probs", *outputs))
    try:
        yield
    finally:
        del inner.forward


def in_rows(values):
    return torch.nn.utils.rnn.pad_sequence(list(values), batch_first=True)


def padded(documents):
    """input_ids, attention_mask and completion_mask, which marks learned tokens."""
    learned = [torch.cat([torch.zeros(1, dtype=torch.int64),
                          (targets[:-1] != -100).long()])
               for _, targets, *_ in documents]
    return {"input_ids": in_rows(tokens.long() for tokens, *_ in documents),
            "attention_mask": in_rows(torch.ones_like(each) for each in learned),
            "completion_mask": in_rows(learned)}


def sft(model, documents):
    """The mean over learned tokens."""
    from trl.trainer.sft_trainer import SFTTrainer
    inputs = padded(documents)
    learned = inputs.pop("completion_mask")
    inputs["labels"] = inputs["input_ids"].masked_fill(learned == 0, -100)
    own = trainer(model, compute_loss_func=None, label_smoother=None,
                  args=types.SimpleNamespace(loss_type="nll",
                                             average_tokens_across_devices=False))
    with fused(model, "entropy", "is_top1"):
        return SFTTrainer.compute_loss(own, model, inputs)


def dpo(model, pairs, beta, loss_type):
    """The mean over pairs of (tokens, targets, reference)."""
    from trl.trainer.dpo_trainer import DPOTrainer
    sides = list(zip(*pairs))
    inputs = padded([document for side in sides for document in side])
    for name, side in zip(("chosen", "rejected"), sides):
        inputs[f"ref_{name}_logps"] = torch.stack(
            [reference.to(torch.get_default_dtype()).sum()
             for _, _, reference in side])
    own = trainer(model, ld_alpha=None, precompute_ref_logps=True, beta=beta,
                  f_divergence_type="reverse_kl", loss_types=[loss_type],
                  loss_weights=[1.0], use_weighting=False, label_smoothing=0.0)
    with fused(model, "entropy", "mean_logits", "is_top1"):
        return DPOTrainer._compute_loss(own, model, inputs, False)


def kto(model, labelled, mismatched, beta, desirable, undesirable):
    """The mean over `labelled` documents (tokens, targets, reference, label), and the
    trainer's averages. The divergence is that of `mismatched`."""
    from trl.trainer.kto_trainer import KTOTrainer
    default = torch.get_default_dtype()

    def references(documents):
        return torch.stack([each[2].to(default).sum() for each in documents])
    inputs = padded(labelled)
    inputs |= {f"KL_{name}": value for name, value in padded(mismatched).items()}
    inputs |= {"ref_logps": references(labelled),
               "ref_KL_logps": references(mismatched),
               "label": torch.tensor([label > 0 for *_, label in labelled])}
    own = trainer(model, calculate_KL=True, precompute_ref_logps=True, beta=beta,
                  loss_type="kto", desirable_weight=desirable,
                  undesirable_weight=undesirable)
    own._compute_kl_logps = functools.partial(KTOTrainer._compute_kl_logps, own)
    with fused(model, "entropy", "mean_logits"):
        distance = own._compute_kl_logps(model, inputs) - inputs["ref_KL_logps"]
        loss = KTOTrainer._compute_loss(own, model, inputs, False)
    metrics = {name: sum(values) / len(values)
               for name, values in own._metrics["train"].items()
               if isinstance(values, list) and values}
    # The trainer's own kl is not below 0.
    return loss, metrics | {"distance": float(distance.mean())}


def reward(model, pairs, center):
    """The mean over pairs of (chosen, rejected) tokens, and their scores [2, pairs]."""
    from trl.trainer.reward_trainer import RewardTrainer
    inputs = padded([(tokens, torch.full_like(tokens, -100))
                     for side in zip(*pairs) for tokens in side])
    inputs.pop("completion_mask")

    def scores(input_ids, attention_mask, use_cache):
        # Without padding tokens the model takes one sequence, whose last token it
        # scores.
        return types.SimpleNamespace(logits=torch.cat(
            [model(row[None, :int(mask.sum())]).logits.float()
             for row, mask in zip(input_ids, attention_mask)]))
    own = trainer(model, args=types.SimpleNamespace(
        center_rewards_coefficient=center or None))
    loss, outputs = RewardTrainer.compute_loss(own, scores, inputs,
                                               return_outputs=True)
    return loss, outputs.logits.detach().squeeze(-1).view(2, -1)


GRPO_TYPES = {"document": "grpo", "token": "bnpo", "constant": "dr_grpo"}


def grpo_fields(own, length):
    """What GRPOTrainer's loss reads, by hf_policy's settings."""
    return dict(
        top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level=own.ratio, beta=own.beta,
        loss_type=GRPO_TYPES[own.aggregate], epsilon_low=own.low,
        epsilon_high=own.high, use_vllm=False, _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1, max_completion_length=length,
        args=types.SimpleNamespace(delta=None, use_bias_correction_kl=False))


def grpo(model, own, length, documents):
    """The loss of (tokens, targets, behavior, advantages, reference), and [documents,
    tokens] of log-probabilities, behavior, advantages, reference and what is learned."""
    from trl.trainer.grpo_trainer import GRPOTrainer
    inputs = padded(documents)
    tokens, mask, learned = inputs.values()
    kept = []

    def log_probs(*args, **kwargs):
        result = GRPOTrainer._get_per_token_logps_and_entropies(fields, *args, **kwargs)
        kept.append(result[0].detach())
        return result
    fields = trainer(model, _get_per_token_logps_and_entropies=log_probs,
                     **grpo_fields(own, length))
    default = torch.get_default_dtype()
    behavior, advantages, reference = (
        in_rows(values)[:, :-1].to(default) for values in list(zip(*documents))[2:])
    # What is learned is marked as tools' output is left out: prompts differ in length,
    # and would have to be padded on the left.
    with fused(model, "entropy"):
        loss = GRPOTrainer._compute_loss(fields, model, {
            "prompt_ids": tokens[:, :1], "prompt_mask": mask[:, :1],
            "completion_ids": tokens[:, 1:], "completion_mask": mask[:, 1:],
            "tool_mask": learned[:, 1:], "advantages": advantages,
            "old_per_token_logps": behavior, "ref_per_token_logps": reference})
    return loss, (kept[0], behavior, advantages, reference,
                  learned[:, 1:].to(default))


def assigned(statement):
    targets = getattr(statement, "targets", [])
    return targets[0].id if targets and isinstance(targets[0], ast.Name) else None


@functools.cache
def ppo_statements(first, last):
    """Of PPOTrainer.train: those of one block from where `first` is assigned to where
    `last` is for the last time."""
    from trl.experimental.ppo import ppo_trainer
    tree = ast.parse(textwrap.dedent(inspect.getsource(ppo_trainer.PPOTrainer.train)))
    for node in ast.walk(tree):
        block = getattr(node, "body", [])
        names = [assigned(each) for each in block] if isinstance(block, list) else []
        if first in names and last in names:
            end = len(names) - names[::-1].index(last)
            module = ast.Module(block[names.index(first):end], [])
            return compile(module, "PPOTrainer.train", "exec"), vars(ppo_trainer)
    raise LookupError(f"PPOTrainer.train of trl {VERSION} assigns no {first} and {last}")


def ppo(settings, logps, predicted, behavior, scores, values, reference, mask):
    """[answers, tokens] each, of answers only, scores [answers] → all variables of
    PPOTrainer.train after its loss."""
    padding = mask == 0
    ends = mask.sum(-1).long() - 1
    args = types.SimpleNamespace(
        kl_estimator=settings.estimator, kl_coef=settings.beta, whiten_rewards=False,
        gamma=settings.gamma, lam=settings.lam, cliprange=settings.clip,
        cliprange_value=settings.value_clip, vf_coef=settings.weight)
    names = dict(
        args=args, logprobs=behavior, ref_logprobs=reference, scores=scores,
        values=values * mask, responses=behavior, sequence_lengths=ends,
        # The score is that of the last token, and values end with it.
        sequence_lengths_p1=ends, padding_mask=padding, padding_mask_p1=padding)

    def execute(first, last):
        code, module = ppo_statements(first, last)
        everything = {**module, **names}
        exec(code, everything)
        names.update((name, everything[name]) for name in everything
                     if name not in module or name in names)
    execute("logr", "advantages" if settings.whiten else "returns")
    names.update(micro_batch_inds=slice(None), mb_values=names["values"],
                 mb_return=names["returns"], mb_advantage=names["advantages"],
                 mb_logprobs=behavior, new_logprobs=logps, vpred=predicted * mask)
    execute("vpredclipped", "loss")
    return names
