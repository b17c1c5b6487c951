"""Adapters trained over HTTP: the same steps by PyTorch and PEFT, several adapters in
one server, saved and loaded, sampled from, and requests that are refused.

    training_server.py BIN SCRATCH
"""
import os
import sys
import threading

import peft
import torch
import transformers

import adapters
from harness import Prepared, check, refuses

sys.path.insert(0, str(adapters.SOURCE / "test/oracle"))
from hf_models import Float64  # noqa: E402

STEPS, LR, ROUND = 6, 5e-3, 2.0**-24
SETS = ["batch.micro=2", "batch.sequence=48", "adapter.rank=4", "adapter.alpha=8",
        "adapter.target=[q_proj, o_proj, down_proj]"]
CLIP = 0.2


def sequence(seed, length):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 250, (length,), generator=generator).tolist()


def examples_of(step):
    """Three that two rows hold; of the second a part is learned."""
    all = [{"tokens": sequence(10 * step + i, length)} for i, length in enumerate((40, 21, 13))]
    all[1]["weights"] = [0] * 9 + [1] * 12
    return all


def policy_examples(step):
    all = examples_of(step)
    for i, example in enumerate(all):
        count = len(example["tokens"])
        generator = torch.Generator().manual_seed(100 + 10 * step + i)
        noise = torch.rand(2, count, generator=generator)
        example["logprobs"] = [None, *(-6 + 2 * noise[0, 1:]).tolist()]
        example["advantages"] = (2 * noise[1] - 1).tolist()
        example.setdefault("weights", [1] * count)
    return all


class Client:
    """Of a server that trains."""

    def __init__(self, server, name, seed=1):
        self.server, self.name = server, name
        expect(call(server, "POST", "", {"name": name, "seed": seed}))

    def do(self, action, **body):
        return expect(call(self.server, "POST", f"/{self.name}/{action}", body))

    def step(self, examples, **settings):
        gradients = self.do("forward_backward", examples=examples)
        made = self.do("optim_step", lr=LR, **settings)
        return gradients["loss"], made["grad_norm"]

    def log_probs(self, tokens):
        return log_probs(self.server, self.name, tokens)


def call(server, method, path, body=None):
    status, _, answer = server.call(method, "/v1/training/adapters" + path, body)
    return status, answer


def expect(result):
    status, answer = result
    assert status == 200, answer
    return answer


def log_probs(server, model, tokens):
    status, _, answer = server.call("POST", "/v1/completions", {
        "model": model, "prompt": tokens, "echo": True, "max_tokens": 0, "logprobs": 1})
    assert status == 200, answer
    return torch.tensor(answer["choices"][0]["logprobs"]["token_logprobs"][1:], dtype=torch.float64)


class Twin:
    """PEFT's model of the adapter in `folder`, and AdamW, in one precision."""

    def __init__(self, base, folder, dtype):
        model = peft.PeftModel.from_pretrained(adapters.load(base), folder, is_trainable=True)
        self.model = model.to(dtype)
        for module in self.model.modules() if dtype == torch.float64 else ():
            if getattr(module, "inv_freq", None) is not None:  # rounded when it was loaded
                count = module.inv_freq.shape[0]
                module.inv_freq = 1.0 / 10000 ** (torch.arange(count, dtype=dtype) / count)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
        self.trained = trained

    def terms(self, example):
        """Log-probabilities of the tokens after the first, and which are learned."""
        tokens = torch.tensor(example["tokens"])
        values = self.model(tokens[None]).logits[0, :-1].log_softmax(-1).gather(1, tokens[1:, None])[:, 0]
        weights = torch.tensor(example.get("weights", [1] * len(tokens)), dtype=values.dtype)[1:]
        return values, weights

    def loss(self, examples):
        sums = []
        for example in examples:
            values, weights = self.terms(example)
            losses = -values
            if "advantages" in example:
                before = torch.tensor(example["logprobs"][1:], dtype=values.dtype)
                advantages = torch.tensor(example["advantages"][1:], dtype=values.dtype)
                ratio = (values - before).exp()
                losses = -torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
            sums.append(((losses * weights).sum(), weights.sum()))
        if "advantages" in examples[0]:  # policy.aggregate: document
            return sum(total / count for total, count in sums) / len(sums)
        return sum(total for total, _ in sums) / sum(count for _, count in sums)

    def step(self, examples):
        self.optimizer.zero_grad()
        loss = self.loss(examples)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        return float(loss), float(norm)

    def log_probs(self, tokens):
        with torch.no_grad():
            return self.terms({"tokens": tokens})[0].double()


def far(one, exact):
    one, exact = (torch.as_tensor(each, dtype=torch.float64) for each in (one, exact))
    return float((one - exact).norm() / exact.norm())


def within(ours, theirs, exact):
    return far(ours, exact) <= 2 * max(far(theirs, exact), ROUND)


def same_steps(base, client, folder, examples, title, tokens):
    """The losses."""
    client.do("save", path=folder.name)
    single, exact = (Twin(base, folder, each) for each in (torch.float32, torch.float64))
    with Float64():
        wanted = [exact.step(examples(step)) for step in range(STEPS)]
        last = exact.log_probs(tokens)
    theirs = [single.step(examples(step)) for step in range(STEPS)]
    ours = [client.step(examples(step)) for step in range(STEPS)]
    good = all(within(*([pair[i] for pair in each] for each in (ours, theirs, wanted))) for i in (0, 1))
    good &= within(client.log_probs(tokens), single.log_probs(tokens), last)
    check(good, title)
    return [loss for loss, _ in ours]


def trains(base, server, saved):
    tokens = sequence(999, 40)
    one, other = Client(server, "one"), Client(server, "other", seed=2)
    start = [log_probs(server, name, tokens).tolist() for name in (server.model, "one", "other")]
    norms = [each.step(examples_of(0), publish=False)[1] for each in (one, other)]
    check(start[0] == start[1] == start[2] and norms[0] != norms[1],
          "two adapters begin as the base, apart from each other")
    expect(call(server, "DELETE", "/one"))
    one = Client(server, "one")
    losses = same_steps(base, one, saved / "start", examples_of,
                        "6 losses, norms and log-probabilities after them within twice PyTorch's own error",
                        tokens)

    # From here on with bits.
    one.do("load", path="start")
    mixed = []
    for step in range(STEPS):
        mixed.append(one.step(examples_of(step))[0])
        other.step(examples_of(20 + step))
        if step == 2:
            one.do("save", path="half")
    check(mixed == losses, "in turn with another adapter the losses are those of one alone")
    other.do("load", path="half")
    rest = [other.step(examples_of(step))[0] for step in range(3, STEPS)]
    check(rest == losses[3:], "a saved adapter goes on with the same losses")
    for name in ("training.json", "training.safetensors"):
        (saved / "half" / name).unlink()
    again = other.do("load", path="half")
    check(again["step"] == 0 and other.step(examples_of(3))[0] == losses[3],
          "and from PEFT's files, whose optimizer begins anew")
    two_requests(one)
    unpublished(one, tokens)


def two_requests(one):
    """Of the same terms in one and in two requests, up to rounding."""
    examples, norms = examples_of(7), []
    for parts in ([examples], [examples[:1], examples[1:]]):
        one.do("load", path="start")
        for part in parts:
            gradients = one.do("forward_backward", examples=part)
        norms.append(one.do("optim_step", lr=LR)["grad_norm"])
    check(gradients["tokens"] == 24 and abs(norms[0] / norms[1] - 1) < 1e-5,
          "gradients of two requests are those of one")


def not_finite(server):
    """Of a policy: ratios that overflow the loss, or only the norm of its gradients."""
    before, seen = log_probs(server, "one", sequence(5, 20)).tolist(), []
    for value in (-200.0, -80.0):
        bad = policy_examples(0)[:1]
        count = len(bad[0]["tokens"])
        bad[0] |= {"logprobs": [None] + [value] * (count - 1), "advantages": [-1.0] * count}
        for action, body in (("forward_backward", {"examples": bad}), ("optim_step", {})):
            status, answer = call(server, "POST", f"/one/{action}", body)
            seen.append((action, status))
            if status != 200:
                assert "dropped" in answer["error"]["message"], answer
                break
    gradients = expect(call(server, "POST", "/one/forward_backward", {"examples": policy_examples(1)}))
    expect(call(server, "POST", "/one/optim_step", {"lr": 0}))
    assert seen == [("forward_backward", 500), ("forward_backward", 200), ("optim_step", 500)], seen
    check(gradients["loss"] == gradients["loss"] and log_probs(server, "one", sequence(5, 20)).tolist() == before,
          "gradients that are not finite change nothing")


def unpublished(one, tokens):
    before = one.log_probs(tokens).tolist()
    one.step(examples_of(8), publish=False)
    held = one.log_probs(tokens).tolist()
    one.step(examples_of(9))
    check(held == before != one.log_probs(tokens).tolist(), "what is not published is not sampled")


def is_refused(server):
    tokens = [1, 2, 3]
    bad = [("", {"name": "one"}, 400), ("", {"name": "../up"}, 400), ("", {}, 400), ("", [1], 400),
           ("", {"name": server.model}, 400), ("", {"name": "third"}, 409), ("", {"name": "x", "seed": -1}, 400),
           ("/none/optim_step", {}, 404)]
    bad += [("/one/forward_backward", {"examples": each}, 400) for each in (
        [], {}, [1], [{}], [{"tokens": [1]}], [{"tokens": [1, -2]}], [{"tokens": [1, 10**9]}],
        [{"tokens": [1, 2.5]}], [{"tokens": [1] * 50}], [{"tokens": tokens, "weights": [1, 1]}],
        [{"tokens": tokens, "weights": [1, 0, 0]}], [{"tokens": tokens, "weights": [0, 2, 0]}],
        [{"tokens": tokens, "advantages": [1, 1, 1]}], [{"tokens": tokens, "text": "a"}])]
    bad += [("/one/forward_backward", {}, 400), ("/one/forward_backward", {"example": []}, 400)]
    bad += [("/one/optim_step", each, 400) for each in (
        {"lr": -1}, {"lr": "1"}, {"lr": 1e300}, {"betas": [0.9]}, {"betas": [0.9, 1]}, {"betas": [0.9, 0.99999999]},
        {"eps": 0}, {"eps": 1e-50}, {"divisor": 0}, {"divisor": 1e-300},
        {"publish": 1}, {"rate": 1}, {})]
    bad += [(f"/one/{action}", {"path": path}, 400) for action in ("save", "load")
            for path in ("", "..", "a/b", ".hidden", "x" * 65, 3)]
    bad += [("/one/save", {"path": "start"}, 400), ("/one/load", {"path": "nothing"}, 400)]
    for path, body, wanted in bad:
        status, answer = call(server, "POST", path, body)
        assert status == wanted and answer["error"]["message"], (path, body, status, answer)
    names = [each["name"] for each in expect(call(server, "GET", ""))["data"]]
    check(names == ["one", "other"], f"{len(bad)} requests are refused by their fields")


def both_at_once(server):
    one, failed = Client(server, "one"), []

    def sample():
        for _ in range(20):
            status, _, answer = server.call("POST", "/v1/completions", {
                "model": "one", "prompt": sequence(5, 12), "max_tokens": 16, "ignore_eos": True})
            if status != 200 or answer["usage"]["completion_tokens"] != 16:
                failed.append(answer)
    threads = [threading.Thread(target=sample) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(STEPS):
        one.step(examples_of(step))
    for thread in threads:
        thread.join()
    check(not failed, "requests that sample while others train")


def samples(server):
    """A step of a client's loop: what is sampled is learned from, by its tokens."""
    prompt, advantages = sequence(77, 9), [1.0, -0.5]
    status, _, answer = server.call("POST", "/v1/completions", {
        "model": "one", "prompt": prompt, "n": 2, "max_tokens": 12, "ignore_eos": True, "seed": 5,
        "logprobs": 0, "return_token_ids": True})
    assert status == 200, answer
    examples = []
    for choice, advantage in zip(answer["choices"], advantages):
        tokens, values = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        assert choice["prompt_token_ids"] == prompt and len(tokens) == len(values) == 12, choice
        before = [0] * len(prompt)
        examples.append({"tokens": prompt + tokens, "weights": before + [1] * 12,
                         "logprobs": before + values, "advantages": before + [advantage] * 12})
    made = expect(call(server, "POST", "/one/forward_backward", {"examples": examples}))
    # Ratios of probabilities are 1 up to rounding.
    check(made["terms"] == 2 and abs(made["loss"] + sum(advantages) / 2) < 1e-4,
          "the learner gives sampled tokens the probabilities of the engine")


def main():
    made = Prepared(*sys.argv[1:3])
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    env.setdefault("XDG_CACHE_HOME", str(made.scratch / "cache"))
    base, saved = made.scratch / "base", made.scratch / "saved"
    saved.mkdir()
    file = made.tokens().parent / "tokenizer.json"
    adapters.make_base(base, file, len(transformers.PreTrainedTokenizerFast(tokenizer_file=str(file))))

    def server(*more):
        given = ["serve", base, "--port", "0", *(f"--set={each}" for each in SETS), *more]
        return adapters.Server([str(part) for part in (made.tessera, *given)], env=env)

    training = ("--train", 2, "--train-directory", saved)
    with server(*training) as running:
        trains(base, running, saved)
        is_refused(running)
        expect(call(running, "DELETE", "/one"))
        both_at_once(running)
    with server(*training, "--set", "task=policy", "--set", f"policy.clip_high={CLIP}") as running:
        same_steps(base, Client(running, "one"), saved / "policy", policy_examples,
                   "policy: losses and norms within twice PyTorch's own error", sequence(999, 40))
        samples(running)
        not_finite(running)
    with server(*training, "--set", "adapter.kind=dora") as running:
        same_steps(base, Client(running, "one"), saved / "dora", examples_of,
                   "DoRA: losses and norms within twice PyTorch's own error", sequence(999, 40))
    refuses("without --train", "--train-directory has no effect without --train", env=env)(
        made.tessera, "serve", base, "--train-directory", saved)


main()
