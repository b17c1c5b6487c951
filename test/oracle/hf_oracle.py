#!/usr/bin/env python3
"""Compares compiled models with Hugging Face `transformers` on random weights.

    hf_oracle.py BIN FOLDER [--family NAME]... [--dtype fp32|bf16]... [--check NAME]...
                 [--only PART]... [--steps LOSS]...

BIN is build/bin, FOLDER is for models and artifacts. Accuracy is never judged
by a tolerance made by hand: our distance to the fp64 reference may be at most
twice the distance of PyTorch's own fp32, or bf16, twin (hf_models.py says what
the twins are). The distance of a tensor x from its reference r, over all seeds,
in two norms:

    l2    |x - r|_2 / |r|_2          max   max |x - r| / max |r|

and PyTorch's distance counts as at least 2^-24, what rounding the exact result
to fp32 costs. For gradients the table shows the parameter with the worst ratio;
every single one has to pass (of models with experts in bf16: every kind, see
Comparison.kind). Where transformers is not installed, prints so and
exits 0.
"""
import argparse
import pathlib
import re
import sys

try:
    import peft
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

import hf_adapters
import hf_checks
import hf_distill
import hf_kto
import hf_policy
import hf_ppo
import hf_preference
import hf_reward
import hf_steps
import trl_losses
from hf_models import FAMILIES, SEQUENCE, MICRO, ROWS, Twins
from hf_models import batches, document_gradients, documents, gradients, run
from hf_report import MOST, Distance, Numbers, Report, scale_of, worst
from hf_tessera import Tessera, ToolError, cache_in, processor_targets
from hf_training import STEPS, losses, settings

SEEDS = 3
# Of metrics, one number a model: the ratio of two such distances over three models is chance.
SEEDS_OF_NUMBERS = 8
# In bf16, of losses of pairs: of 20 models two equal distributions give a ratio above 2 in one case
# of 1,000, of three in every seventh.
SEEDS_OF_BF16_LOSSES = 20
# Gradients of losses of answers in the max norm, which of few tokens is a single
# number of a wide spread; their metrics, and losses of policies, which are a few
# single numbers.
MOST_OF_ONE = 3.0
LOSS_FP32 = 1e-5  # relative, against PyTorch's fp32
LEARNING_RATE = 1e-6
PROMPT, GENERATED = 16, 32


class Comparison:
    """One family in one dtype on one target. `references`: batches and what the fp64 twins make of
    them, which is the same for every dtype."""

    def __init__(self, tessera, report, family, dtype, target, twins, references=None):
        self.tessera, self.report = tessera, report
        self.family, self.dtype = family, dtype
        self.target, self.twins = target, twins
        self.references = {} if references is None else references
        self.torch = [getattr(each, dtype) for each, _ in twins]

    def compile(self, **options):
        return self.tessera.compile(
            self.twins[0][1], self.target, SEQUENCE[self.family], MICRO, ROWS,
            compute=self.dtype, **options)

    def all(self, only=(), steps=(), seeds=1):
        """`only`: names of PARTS, if not all. `steps`: losses of hf_steps.py, and
        `seeds` how many models take them."""
        parts, artifact = only or PARTS, None
        if set(parts) & set(PARTS_OF_ARTIFACT):
            artifact = self.compile(schedule="cosine")
        for part in parts:
            if part == "steps":
                self.steps(hf_steps.names(self.family, steps), seeds)
            elif part in PARTS_OF_ARTIFACT:
                getattr(self, part)(artifact)
            else:
                getattr(self, part)()

    def logits(self, artifact):
        ours, theirs = Distance(), Distance()
        for seed, ((twin, folder), other) in enumerate(
                zip(self.twins, self.torch)):
            tokens = batches(self.family, 1, 100 + seed)[0].flatten(0, 2)
            with torch.no_grad():
                reference = run(twin.fp64, tokens.long())
                theirs.add(run(other, tokens.long()), reference)
            ours.add(self.tessera.logits(artifact, folder, tokens), reference)
        for norm, value in ours.norms().items():
            self.report.line(self.family, self.dtype, f"logits, {norm}", value,
                             theirs.norms()[norm])

    def kind(self, name):
        """What a gradient is judged with. A rounding may send a token to
        another expert, whose gradients then move as a whole: in bf16 the
        parameters of a kind are judged together, over layers and experts. A
        bias that is a single number is judged with its weights."""
        if name == f"{hf_ppo.HEAD}.bias":
            return f"{hf_ppo.HEAD}.weight"
        experts = "num_experts_per_tok" in FAMILIES[self.family]
        return (re.sub(r"\.\d+\.", ".*.", name)
                if experts and self.dtype == "bf16" else name)

    def gradients(self, artifact):
        self.compare_gradients(
            "gradients", gradients, artifact,
            lambda seed: [x[0] for x in batches(self.family, 1, 200 + seed)])

    def packed(self):
        """Documents in one row, against the same ones alone, of which PyTorch adds short sums. The
        max norm is that of each model, pooled by squares: over all of them it is one element."""
        self.compare_gradients(
            "packed gradients", document_gradients,
            self.compile(documents="separate"),
            lambda seed: documents(self.family, 800 + seed), norms=("l2", "max of each"))

    def adapters(self):
        """Gradients of the factors of LoRA and DoRA, of the magnitudes, and of modules
        that are trained whole, against PEFT."""
        file = self.tessera.folder / f"{self.family}-adapted.safetensors"
        for kind in hf_adapters.KINDS.get(self.family, []):
            more = hf_adapters.MORE.get((self.family, kind), {})

            def own(model):
                return hf_adapters.adapted(model, self.family, 7, kind, **more)

            def of(model, *batch):
                loss, grads = gradients(own(model), *batch)
                return loss, hf_adapters.trained(grads)

            def weights(twin):
                hf_adapters.save(own(twin.fp32), file)
                return file
            self.compare_gradients(
                f"{kind} gradients", of,
                self.compile(more=hf_adapters.settings(self.family, kind, more)),
                lambda seed: [x[0] for x in batches(self.family, 1,
                                                    900 + seed)],
                weights)

    def preferences(self):
        """Losses of pairs and their gradients, against TRL."""
        names = hf_preference.losses(self.family, self.dtype)
        more = names and self.dtype == "bf16"
        compared = self.of_models(SEEDS_OF_BF16_LOSSES) if more else self
        for name in names:
            artifact = self.compile(documents="separate",
                                    more=hf_preference.settings(name))
            named = ["document_starts", "document_numbers", "reference"]
            if not hf_preference.has_reference(name):
                named.pop()
            compared.compare_gradients(
                f"gradients of {name}",
                lambda model, *batch: hf_preference.gradients(
                    model, name, batch),
                artifact,
                lambda seed: hf_preference.pairs(self.family, 850 + seed),
                named=named, loss=name)

    def rewards(self):
        """Scores of a reward model, losses of pairs and their gradients, against
        transformers and TRL."""
        names = hf_reward.losses(self.family, self.dtype)
        if not names:
            return
        twins = make_twins(self.family, self.tessera.folder / "reward",
                           hf_reward.twin, len(self.twins))
        own = Comparison(self.tessera, self.report, self.family, self.dtype,
                         self.target, twins, self.references)
        numbers = Numbers()
        for number, name in enumerate(names):
            own.reward(name, numbers, 860 + 10 * number)
        self.report_numbers("scores", numbers, most=MOST_OF_ONE)
        own.scores()

    def reward(self, name, numbers, first):
        file = self.tessera.folder / f"{self.family}-reward.safetensors"

        def weights(twin):
            hf_adapters.save(hf_reward.own(twin.fp32, name, self.family, 7),
                             file)
            return file
        self.compare_gradients(
            f"gradients of {name}",
            lambda model, *batch: hf_reward.gradients(
                hf_reward.own(model, name, self.family, 7), name, batch),
            self.compile(documents="separate",
                         more=hf_reward.settings(name, self.family)),
            lambda seed: hf_preference.pairs(self.family, first + seed)[:4],
            weights, named=hf_reward.INPUTS, loss=name,
            table=("preference", hf_reward.METRICS), numbers=numbers)

    def scores(self):
        """Of sequences of many lengths in the longest program, where what
        follows them is not looked at."""
        artifact = self.tessera.compile_inference(
            self.twins[0][1], self.target, SEQUENCE[self.family], self.dtype)
        ours, theirs = Distance(), Distance()
        for seed, ((twin, folder), other) in enumerate(
                zip(self.twins, self.torch)):
            batch = hf_reward.sequences(self.family, 880 + seed)
            exact = hf_reward.scores(twin.fp64, *batch)
            theirs.add(hf_reward.scores(other, *batch), exact)
            ours.add(self.tessera.scores(artifact, folder, *batch), exact)
        for norm, value in ours.norms().items():
            self.report.line(self.family, self.dtype, f"scores, {norm}", value,
                             theirs.norms()[norm])

    def policies(self):
        """Losses of sampled answers and their gradients, against TRL's
        formula."""
        numbers = Numbers()
        for name in hf_policy.losses(self.family, self.dtype):
            artifact = self.compile(documents="separate",
                                    more=hf_policy.settings(name))
            self.compare_gradients(
                f"gradients of {name}",
                lambda model, *batch: hf_policy.gradients(model, name, batch),
                artifact,
                lambda seed: hf_policy.answers(
                    self.twins[seed][0].fp64, name, self.family, 870 + seed),
                named=hf_policy.inputs(name), loss=name,
                table=("policy", hf_policy.METRICS), numbers=numbers)
        if numbers.losses[0].size:
            self.report_numbers("policies", numbers, most=MOST_OF_ONE)

    def of_models(self, count):
        """The same of at least so many models."""
        more = make_twins(self.family, self.tessera.folder, count=count, first=len(self.twins) + 1)
        return Comparison(self.tessera, self.report, self.family, self.dtype, self.target,
                          self.twins + more, self.references)

    def value_policies(self):
        """Losses of sampled answers with a value head and their gradients,
        against TRL's own functions."""
        names = hf_ppo.losses(self.family, self.dtype)
        compared = self.of_models(SEEDS_OF_NUMBERS) if names else self
        file = self.tessera.folder / f"{self.family}-values.safetensors"
        for name in names:
            number = list(hf_ppo.PPOS).index(name)

            def own(model):
                return hf_ppo.with_values(model, name, self.family, 7)

            def weights(twin):
                hf_ppo.save(own(twin.fp32), file)
                return file
            compared.compare_gradients(
                f"gradients of {name}",
                lambda model, *batch: hf_ppo.gradients(own(model), name, batch),
                self.compile(documents="separate",
                             more=hf_ppo.settings(name, self.family)),
                lambda seed: hf_ppo.answers(own(compared.twins[seed][0].fp64),
                                            self.family,
                                            940 + 10 * number + seed),
                weights, named=hf_ppo.inputs(name), loss=name,
                table=("policy", hf_ppo.metrics(hf_ppo.PPOS[name])))

    def labels(self):
        """The loss of labelled answers and its gradients, against TRL."""
        if not hf_kto.losses(self.family, self.dtype):
            return
        self.compare_gradients(
            "gradients of kto",
            lambda model, *batch: hf_kto.gradients(model, batch),
            self.compile(documents="separate", more=hf_kto.settings()),
            lambda seed: hf_kto.answers(
                self.twins[seed][0].fp64, self.family, 890 + seed),
            named=hf_kto.INPUTS, loss="kto", table=("kto", hf_kto.METRICS))

    def distillations(self):
        """Losses of a teacher's most probable tokens and their gradients."""
        numbers = Numbers()
        for name in hf_distill.losses(self.family, self.dtype):
            self.compare_gradients(
                f"gradients of {name}",
                lambda model, *batch: hf_distill.gradients(model, name, batch),
                self.compile(documents="separate",
                             more=hf_distill.settings(name)),
                lambda seed: hf_distill.batch(
                    name, self.family, FAMILIES[self.family]["vocab_size"],
                    920 + seed),
                named=hf_distill.INPUTS, loss=name,
                table=("distill", hf_distill.METRICS), numbers=numbers)
        if numbers.losses[0].size:
            self.report_numbers("distillation", numbers)

    def compare_gradients(self, title, theirs_of, artifact, batch,
                          weights=None, named=("document_starts",), loss=None,
                          table=None, numbers=None, norms=("l2", "max")):
        """`named`: the inputs after tokens and targets, as far as the batch has
        them; None: one that the program does not take. `loss`: compare the
        losses, too. `table`: in fp32, an output and the names of its columns,
        which `theirs_of` gives as well. `numbers`: where losses and columns are
        added, for the caller to report. After the columns `theirs_of` may give their
        scales."""
        ours, theirs = {}, {}
        own = numbers or Numbers()
        for seed, ((twin, folder), other) in enumerate(
                zip(self.twins, self.torch)):
            if (title, seed) not in self.references:
                inputs = batch(seed)
                self.references[title, seed] = inputs, theirs_of(twin.fp64, *inputs)
            (tokens, targets, *more), (exact, reference, *wanted) = self.references[title, seed]
            near, other_gradients, *others = theirs_of(other, tokens, targets,
                                                       *more)
            step = self.tessera.gradients(
                artifact, weights(twin) if weights else folder, tokens,
                targets, more={k: v for k, v in zip(named, more) if k})
            for distance, value in zip(own.losses, (step.loss, near)):
                distance.add(torch.as_tensor(value), torch.tensor(exact),
                             scale=scale_of(dict(zip(named, more)), targets))
            if set(step.gradients) != set(reference):
                raise ToolError(f"parameters differ: "
                                f"{set(step.gradients) ^ set(reference)}")
            counted = int(step.outputs["tokens"])
            if counted != int((targets != -100).sum()):
                raise ToolError(f"{counted} tokens counted")
            if table and self.dtype == "fp32":
                got = step.outputs[table[0]]
                if got.shape != wanted[0].shape:
                    raise ToolError(f"{got.numel()} columns")
                for number, name in enumerate(table[1][:got.numel()]):
                    for distance, value in zip(own.pair(name),
                                               (got, others[0])):
                        distance.add(value[number], wanted[0][number],
                                     *(scale[number] for scale in wanted[1:]))
            for name, value in reference.items():
                kind = self.kind(name)
                ours.setdefault(kind, Distance()).add(step.gradients[name],
                                                      value)
                theirs.setdefault(kind, Distance()).add(other_gradients[name],
                                                        value)
        if loss and not numbers:
            self.report_numbers(loss, own)
        for norm in norms:
            name, mine, other = worst(
                [(n, ours[n].norm(norm), theirs[n].norm(norm))
                 for n in ours])
            short = name.replace("transformer.", "").replace("model.", "")
            self.report.line(
                self.family, self.dtype,
                f"{len(ours)} {title}, {norm}: {short}", mine, other,
                most=MOST_OF_ONE if loss and norm == "max" else MOST)

    def report_numbers(self, title, numbers, most=MOST):
        self.report.line(self.family, self.dtype, f"loss of {title}",
                         *(each.norms()["l2"] for each in numbers.losses),
                         most=most)
        if numbers.columns:
            name, mine, other = worst(
                [(n, *(each.norms()["l2"] for each in pair))
                 for n, pair in numbers.columns.items()])
            self.report.line(
                self.family, self.dtype,
                f"{len(numbers.columns)} metrics of {title}: {name}", mine,
                other, most=MOST_OF_ONE)

    def losses(self, artifact):
        """In fp32 the losses of a run are PyTorch's; in bf16, where two runs
        drift apart by their roundings, they are judged as a whole."""
        ours, theirs = Distance(), Distance()
        apart = {"loss": 0.0, "grad_norm": 0.0, "lr": 0.0}
        for seed, ((twin, folder), other) in enumerate(
                zip(self.twins, self.torch)):
            tokens, targets = batches(self.family, STEPS, 300 + seed)
            masters = (list(twin.fp32.parameters()) if self.dtype == "bf16"
                       else None)
            expected = losses(other, masters, tokens, targets)
            got = self.tessera.losses(artifact, folder, tokens, targets,
                                      settings())
            if twin.losses is None:
                twin.losses = losses(twin.fp64, None, tokens, targets)
            ours.add(got["loss"], twin.losses[:, 0])
            theirs.add(expected[:, 0], twin.losses[:, 0])
            for column, name in enumerate(apart):
                relative = got[name].double() / expected[:, column] - 1
                worst_one = float(relative.nan_to_num(float("inf")).abs()
                                  .max())
                apart[name] = max(apart[name], worst_one)
        fp32 = self.dtype == "fp32"
        self.report.line(self.family, self.dtype, f"{STEPS} AdamW losses, l2",
                         ours.norms()["l2"], theirs.norms()["l2"],
                         most=float("inf") if fp32 else MOST)
        for name, most in (("lr", LEARNING_RATE),
                           *([("loss", LOSS_FP32), ("grad_norm", LOSS_FP32)]
                             if fp32 else [])):
            self.report.fact(self.family, self.dtype,
                             f"{STEPS} x {name} against PyTorch, relative",
                             f"{apart[name]:.2e}", apart[name] <= most)

    def steps(self, names, seeds):
        """20 losses of AdamW with losses of fine-tuning. Errors are pooled over
        steps and seeds: the root of the sum of their squares."""
        scored = None
        for name in names if self.dtype == "fp32" else ():
            case = hf_steps.CASES[name](self.family)
            twins = self.twins
            if case.scored:
                twins = scored = scored or make_twins(
                    self.family, self.tessera.folder / "reward", hf_reward.twin,
                    len(self.twins))
            artifact = self.tessera.compile(
                twins[0][1], self.target, SEQUENCE[self.family], MICRO, ROWS,
                schedule="cosine", documents="separate", more=case.settings)
            self.steps_of(name, case, artifact, twins[:seeds])

    def steps_of(self, name, case, artifact, twins):
        ours, theirs, norms = Distance(), Distance(), (Distance(), Distance())
        file = self.tessera.folder / f"{self.family}-steps.safetensors"
        for seed, (twin, folder) in enumerate(twins):
            if case.save:
                case.save(case.own(twin.fp32), file)
            batches = []
            exact = hf_steps.of_torch(case, twin, "fp64", batches, seed)
            near = hf_steps.of_torch(case, twin, "fp32", batches, seed)
            got = hf_steps.of_ours(case, self.tessera, artifact,
                                   file if case.save else folder, batches)
            scale = hf_steps.scales(case, batches)
            ours.add(got["loss"], exact[0], scale)
            theirs.add(near[0], exact[0], scale)
            for distance, value in zip(norms, (got["grad_norm"], near[1])):
                distance.add(value, exact[1])
        for quantity, pair in (("losses", (ours, theirs)), ("gradient norms", norms)):
            self.report.line(self.family, self.dtype,
                             f"{STEPS} {quantity} of {name}, l2",
                             *(each.norms()["l2"] for each in pair))

    def greedy(self, artifact):
        if self.dtype != "fp32":
            return
        (twin, folder), other = self.twins[0], self.torch[0]
        length = SEQUENCE[self.family]
        count = min(GENERATED, length - PROMPT)
        prompt = batches(self.family, 1, 400)[0].flatten()[:PROMPT].tolist()
        wanted = list(prompt)
        with torch.no_grad():
            for _ in range(count):
                logits = run(other, torch.tensor([wanted]))
                wanted.append(int(logits[0, -1].argmax()))
        got = self.tessera.next_tokens(artifact, folder, wanted, PROMPT, length)
        same = sum(a == b for a, b in zip(got, wanted[PROMPT:]))
        self.report.fact(self.family, self.dtype, "greedy tokens equal",
                         f"{same} of {count}", same == count)


PARTS = ("logits", "gradients", "losses", "packed", "preferences", "rewards",
         "policies", "value_policies", "labels", "distillations", "adapters",
         "steps", "greedy")
PARTS_OF_ARTIFACT = ("logits", "gradients", "losses", "greedy")


def make_twins(family, folder, make=Twins, count=SEEDS, first=1):
    twins = []
    for seed in range(first, count + 1):
        twin = make(family, seed)
        path = folder / f"{family}-{seed}"
        twin.save(path)
        twins.append((twin, path))
    return twins


def compare(options, tessera, report):
    """Every variant of the machine code sees some families in each dtype."""
    targets = processor_targets()
    turn = 0
    for family in options.family or FAMILIES:
        twins = make_twins(family, tessera.folder, count=options.seeds or SEEDS)
        references = {}
        for dtype in options.dtype or ("fp32", "bf16"):
            target = options.target or targets[turn % len(targets)]
            turn += 1
            print(f"# {family} {dtype} on {target}", flush=True)
            try:
                Comparison(tessera, report, family, dtype, target, twins, references).all(
                    options.only, options.steps, options.seeds or 1)
            except ToolError as error:
                report.fact(family, dtype, "failed", error, False)
        for name in options.check or ([] if options.only else hf_checks.CHECKS):
            try:
                hf_checks.CHECKS[name](tessera, report, family,
                                       options.target or targets[0], twins[0])
            except ToolError as error:
                report.fact(family, "fp32", name + " failed", error, False)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--family", action="append", choices=list(FAMILIES))
    parser.add_argument("--dtype", action="append", choices=["fp32", "bf16"])
    parser.add_argument("--check", action="append",
                        choices=list(hf_checks.CHECKS))
    parser.add_argument("--only", action="append", choices=PARTS,
                        help="a part of the comparison, without checks")
    parser.add_argument("--steps", action="append",
                        choices=["all", *hf_steps.CASES], help="the losses of "
                        "which 20 steps are compared, if not one or two")
    parser.add_argument("--seeds", type=int, default=0,
                        help="models whose errors are pooled, if not three, and "
                        "one of 20 steps")
    parser.add_argument("--target", help="one target for all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    cache_in(options.folder)
    print(f"# torch {torch.__version__}, transformers "
          f"{transformers.__version__}, peft {peft.__version__}, trl "
          f"{'.'.join(map(str, trl_losses.VERSION))}, targets "
          f"{', '.join(processor_targets())}")
    if not hf_ppo.losses("llama", "fp32"):
        print("# PPO: not in this trl, the last with it is "
              f"{'.'.join(map(str, trl_losses.LAST_PPO))}")
    report = Report()
    compare(options, Tessera(options.binaries, options.folder), report)
    print(f"{report.lines} comparisons, {report.failures} failed")
    return 1 if report.failures or not report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
