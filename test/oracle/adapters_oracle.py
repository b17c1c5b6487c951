#!/usr/bin/env python3
"""Adapters between our programs and PEFT: theirs in a server, ours in PEFT, and merged.

    adapters_oracle.py BIN FOLDER

Models of random weights, LoRA and DoRA. PEFT's factors are random; ours are
trained for some steps. Log-probabilities of 64 tokens may be at most twice as
far from PEFT's in fp64 as PEFT's own in fp32 are, in the l2 norm. A merged
weight is what PyTorch computes in fp64, rounded once: how many differ.
"""
import json
import pathlib
import sys

try:
    import peft
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP: {error}; scripts/install-deps.sh --oracles installs it")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test/e2e/Inputs"), str(ROOT / "test/runtime/serve")]
import harness
import hf_adapters
from hf_models import Float64, Twins
from hf_report import Distance, Report
from hf_tessera import cache_in, command, processor_targets
from serving import Server

TOKENS, STEPS, VOCABULARY = 64, 3, 260
SETS = ["batch.micro=4", "batch.sequence=32", "eval.every=0", "optimizer.lr=1e-2",
        "lr_schedule.warmup=0", f"checkpoint.every={STEPS}"]


def log_probs(model, tokens):
    """[tokens - 1] of each after those before it, among those that the tokenizer
    has: a server knows no others."""
    with torch.no_grad():
        logits = model(tokens[None]).logits[0, :-1, :VOCABULARY]
        return torch.log_softmax(logits, -1).gather(1, tokens[1:, None])[:, 0]


def by_peft(base, adapter, tokens):
    """In fp32 and in fp64."""
    def load():
        model = transformers.AutoModelForCausalLM.from_pretrained(base).float()
        model.config._experts_implementation = "eager"  # grouped ones have no fp64
        return peft.PeftModel.from_pretrained(model, adapter).eval()
    near, exact = load(), load()
    with Float64():
        exact = exact.double()
        for module in exact.modules():
            # What has no parameters is not rounded when it is loaded in fp64.
            if getattr(module, "inv_freq", None) is not None:
                module.inv_freq = frequencies(exact.config, module)
        wanted = log_probs(exact, tokens)
    return log_probs(near, tokens), wanted


def frequencies(config, module):
    """Of rotary embeddings, in fp64."""
    count = module.inv_freq.shape[0]
    base = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
    return 1.0 / base ** (torch.arange(count, dtype=torch.float64) / count)


def served(binaries, model, adapter, tokens):
    """By a server, which echoes the prompt."""
    given = ["--adapter", f"own={adapter}"] if adapter else []
    name = "own" if adapter else pathlib.Path(model).name
    with Server([str(each) for each in (binaries / "tessera", "serve", model,
                                        "--port", "0", *given)]) as server:
        status, body = server.post(
            "/v1/completions", model=name, prompt=tokens.tolist(), echo=True,
            max_tokens=0, logprobs=1)
        assert status == 200, body
        values = body["choices"][0]["logprobs"]["token_logprobs"]
    return torch.tensor(values[1:len(tokens)], dtype=torch.float64)


class Case:
    """A family with one kind of adapter."""

    def __init__(self, binaries, folder, report, family, kind):
        self.binaries, self.report = binaries, report
        self.family, self.kind = family, kind
        self.folder = folder / f"{family}-{kind}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.base = self.folder / "base"
        self.data = folder / "data"
        self.twins = Twins(family, 1)
        self.twins.fields = {key: value for key, value in self.twins.fields.items()
                             if key != "rope_scaling"}
        self.twins.save(self.base)
        (self.base / "tokenizer.json").write_bytes(
            (self.data / "tokenizer.json").read_bytes())
        generator = torch.Generator().manual_seed(3)
        self.tokens = torch.randint(0, 256, (TOKENS,), generator=generator)

    def all(self):
        theirs = self.folder / "peft"
        base = transformers.AutoModelForCausalLM.from_pretrained(self.base)
        model = hf_adapters.adapted(base, self.family, 7, kind=self.kind)
        model.save_pretrained(theirs)
        self.compare("PEFT's adapter in ours",
                     served(self.binaries, self.base, theirs, self.tokens), theirs)
        run = self.trained()
        adapter, merged = self.folder / "adapter", self.folder / "merged"
        for more, out in ([], adapter), (["--merge"], merged):
            command([self.binaries / "tessera", "export", run, *more, "-o", out])
        self.compare("our adapter in ours",
                     served(self.binaries, self.base, adapter, self.tokens), adapter)
        self.compare("our merged model in ours",
                     served(self.binaries, merged, None, self.tokens), adapter)
        self.weights(adapter, merged)

    def trained(self):
        program, run = self.folder / "program", self.folder / "run"
        sets = [*SETS, *hf_adapters.settings(self.family, self.kind)]
        command([self.binaries / "tessera", "compile", self.base, "--target",
                 processor_targets()[0], *(f"--set={each}" for each in sets),
                 "-o", program])
        command([program, "--data", self.data / "tokens", "--init-from", self.base,
                 "--out", run, "--steps", STEPS, "--quiet"])
        return run

    def compare(self, title, ours, adapter):
        near, exact = by_peft(self.base, adapter, self.tokens)
        distances = Distance(), Distance()
        for distance, value in zip(distances, (ours, near)):
            distance.add(value, exact)
        self.report.line(self.family, "fp32", f"{self.kind}: {title}",
                         *(each.norms()["l2"] for each in distances))

    def weights(self, adapter, merged):
        """Bits of merged weights against fp64, ours and PEFT's own."""
        exact = merged_exactly(self.base, adapter, self.family == "gpt2")
        ours = safetensors.torch.load_file(merged / "model.safetensors")

        def differing(got):
            return sum(int((got[name] != value).sum()) for name, value in exact.items())
        total = sum(value.numel() for value in exact.values())
        self.report.fact(self.family, "fp32",
                         f"{self.kind}: merged weights that are not exact, rounded",
                         f"{differing(ours)} of {total}", not differing(ours))
        # The older PEFT cannot merge a Conv1D of this kind.
        if self.family != "gpt2" or self.kind == "lora" or not hf_adapters.HAS_OTHER_NORMS:
            model = transformers.AutoModelForCausalLM.from_pretrained(self.base).float()
            theirs = peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()
            self.report.fact(self.family, "fp32", f"{self.kind}: of those that PEFT merges",
                             f"{differing(theirs.state_dict())} of {total}", True)


def merged_exactly(base, adapter, is_transposed):
    """Weights with adapters by name, computed in fp64 and rounded to fp32."""
    weights = safetensors.torch.load_file(base / "model.safetensors")
    factors = safetensors.torch.load_file(adapter / "adapter_model.safetensors")
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert not config.get("rank_pattern") and not config.get("use_rslora"), "scales are alpha / r here"
    result = {}
    for name, into in factors.items():
        if not name.endswith("lora_A.weight"):
            continue
        stem = name.removesuffix(".lora_A.weight")
        plain = stem.removeprefix("base_model.model.") + ".weight"
        weight = weights[plain].double()
        product = factors[stem + ".lora_B.weight"].double() @ into.double()
        assert product.abs().max() > 0, f"{stem} was not trained"
        scale = config["lora_alpha"] / config["r"]
        value = (weight.T if is_transposed else weight) + scale * product
        if stem + ".lora_magnitude_vector" in factors:
            magnitude = factors[stem + ".lora_magnitude_vector"].double()
            value *= (magnitude / value.norm(dim=1))[:, None]
        result[plain] = (value.T if is_transposed else value).float()
    return result


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:3])
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    cache_in(folder)
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}, "
          f"peft {peft.__version__}")
    data = folder / "data"
    if not data.exists():
        data.mkdir()
        (data / "train.jsonl").write_text(harness.made_up_text(100, 1))
        tool = binaries / "tessera"
        command([tool, "data", "tokenizer", "--vocab", VOCABULARY, "--input",
                 data / "train.jsonl", "-o", data / "tokenizer.json"])
        command([tool, "data", "tokenize", "--tokenizer", data / "tokenizer.json",
                 "--input", data / "train.jsonl", "-o", data / "tokens"])
    report = Report()
    for family, kinds in hf_adapters.KINDS.items():
        for kind in kinds:
            Case(binaries, folder, report, family, kind).all()
    print(f"{report.lines} comparisons, {report.failures} failed")
    return 1 if report.failures or not report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
