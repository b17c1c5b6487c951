#!/usr/bin/env python3
"""Compares the models of hf_newer.py and hf_recurrent.py with those of a newer `transformers`.

    newer_oracle.py

They write out what the pinned transformers lacks, and everything else
is compared with that. Where transformers 5 is installed, this holds the two
against each other: the same weights by the same names, in fp64, give the same
logits. With an older one, or none, it prints so and exits 0.
"""
import sys

try:
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}")
    sys.exit(0)

import hf_models
import hf_recurrent
from hf_families import FAMILIES

FAMILIES_WRITTEN = ("qwen3", "gemma2", "gemma3", "phi3", "smollm3", "granite",
                    "olmo2", "olmo3", "olmoe", "glm", "glm4", "cohere2",
                    "ernie4_5", "seed_oss", "hunyuan", "gpt_oss",
                    "deepseek_v3", "deepseek_v2", "mamba2", "granite_hybrid",
                    "granite_hybrid_moe")
MOST = 1e-13  # of the largest logit


def distance(family):
    twins = hf_models.Twins(family, seed=1)
    theirs = hf_models.in_files(hf_models.stored(twins.fp64), twins.fp64)
    tokens = hf_models.batches(family, 1, 2)[0].flatten(0, 2).long()
    with hf_models.Float64(), torch.no_grad():
        ours = hf_recurrent.written_out(hf_models.written_out(family)).double()
        own = hf_models.stored(ours)
        if own.keys() != theirs.keys():
            return f"parameters differ: {sorted(own.keys() ^ theirs.keys())}"
        for name, value in own.items():
            value.copy_(theirs[name])
        wanted = twins.fp64(tokens).logits
        return float((ours(tokens).logits - wanted).abs().max()
                     / wanted.abs().max())


def main():
    if hf_models.IS_PINNED:
        print(f"SKIP: transformers {transformers.__version__} is not newer "
              "than the pinned one")
        return 0
    print(f"# torch {torch.__version__}, transformers "
          f"{transformers.__version__}")
    failed = 0
    for family in FAMILIES_WRITTEN:
        gap = distance(family)
        good = isinstance(gap, float) and gap <= MOST
        failed += not good
        print(f"{FAMILIES[family]['model_type']:18} {gap}"
              f"{'' if good else '  FAIL'}", flush=True)
    print(f"{len(FAMILIES_WRITTEN)} comparisons, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
