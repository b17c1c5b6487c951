#!/usr/bin/env python3
"""Compares the formula of hf_policy.py with TRL itself: GRPOTrainer's loss, its
gradients by log-probabilities, and the part of tokens that are clipped, on
random ones in fp64. Needs trl 1.16 or newer, and with it a newer PyTorch than
Debian's, so tests do not run it:

    python3 -m venv newer && newer/bin/pip install torch trl
    newer/bin/python test/oracle/trl_policy.py

Where trl is missing or older, prints so and exits 0.
"""
import sys
import types

try:
    import torch
    import trl
    from trl import GRPOTrainer
except ImportError as error:
    print(f"SKIP: {error}; install trl 1.16 in an environment of its own")
    sys.exit(0)

# hf_policy's own imports read models with the pinned transformers.
sys.modules["hf_models"] = types.SimpleNamespace(Float64=None, batches=None)
import hf_policy
import trl_losses

ANSWERS, TOKENS = 7, 31


def by_trl(own, logps, behavior, advantages, reference, mask):
    trainer = trl_losses.trainer(
        types.SimpleNamespace(training=True),
        _get_per_token_logps_and_entropies=lambda *_, **__: (
            logps, torch.zeros_like(logps), None),
        **trl_losses.grpo_fields(own, hf_policy.LENGTH))
    ids = torch.zeros(mask.shape, dtype=torch.int64)
    loss = GRPOTrainer._compute_loss(trainer, None, {
        "prompt_ids": ids[:, :0], "prompt_mask": ids[:, :0],
        "completion_ids": ids, "completion_mask": mask,
        "advantages": advantages, "old_per_token_logps": behavior,
        "ref_per_token_logps": reference})
    return loss, trainer._metrics["train"]["clip_ratio/region_mean"][0]


def distance(own, seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)
    logps = (-normal(ANSWERS, TOKENS).abs()).requires_grad_()
    behavior = logps.detach() + 0.3 * normal(ANSWERS, TOKENS)
    reference = logps.detach() + 0.5 * normal(ANSWERS, TOKENS)
    lengths = torch.randint(1, TOKENS + 1, (ANSWERS, 1), generator=generator)
    mask = (torch.arange(TOKENS) < lengths).double()
    given = behavior, normal(ANSWERS, TOKENS), reference, mask
    results = []
    for loss_of in (hf_policy.loss, by_trl):
        loss, metrics = loss_of(own, logps, *given)
        gradient, = torch.autograd.grad(loss, logps)
        results.append((loss.detach(), gradient, float(
            metrics[0] if isinstance(metrics, torch.Tensor) else metrics)))
    (loss, gradient, clipped), (wanted, other, other_clipped) = results
    worst = max(float((loss - wanted).abs()),
                float((gradient - other).abs().max()))
    # TRL's means of ratios of answers are over answers.
    if own.ratio == "token":
        worst = max(worst, abs(clipped - other_clipped))
    return worst


def main():
    print(f"# torch {torch.__version__}, trl {trl.__version__}")
    failures = 0
    for name, own in hf_policy.POLICIES.items():
        if own.estimator != "k3":
            print(f"{name:14} not in trl")
            continue
        worst = max(distance(own, seed) for seed in range(20))
        failures += worst > 1e-12
        print(f"{name:14} largest difference {worst:.1e}"
              f"{'  FAIL' if worst > 1e-12 else ''}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
