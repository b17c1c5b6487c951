#!/usr/bin/env python3
"""Decoding with a draft model against decoding without, one request at a time.

   bench/infer/speculate.py build/bin/tessera MODEL DRAFT --text FILE [--prompts 20] [--prompt 32]
       [--tokens 64] [--rounds 3] [--temperature 0 0.8] [-- OPTION...]

Starts `tessera serve MODEL` twice, with OPTIONs, once with `--draft DRAFT`. Prompts are parts of
FILE, of so many words. In each round both servers answer each prompt, one right after the other;
a rate is of the tokens after the first. Both must write the same text."""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "test/runtime/serve"))
from serving import Server  # noqa: E402


def answer(server, prompt, tokens, temperature):
    """The text, and tokens a second after the first."""
    connection = server.connection()
    connection.request("POST", "/v1/completions", json.dumps({
        "model": server.model, "prompt": prompt, "max_tokens": tokens, "temperature": temperature,
        "seed": 7, "ignore_eos": True, "stream": True}))  # fmt: skip
    response = connection.getresponse()
    assert response.status == 200, response.read()
    text, times = "", []
    for line in response:
        if line.startswith(b"data: {"):
            text += json.loads(line[6:])["choices"][0]["text"]
            times.append(time.perf_counter())
    connection.close()
    return text, (tokens - 1) / (times[-1] - times[0])


def metric(server, name):
    _, _, body = server.call("GET", "/metrics")
    return next(float(line.split()[1]) for line in body.splitlines() if line.startswith(f"tessera:{name} "))


def measure(servers, prompts, arguments, temperature):
    rates, differ = [[], []], 0
    before = [metric(servers[1], f"spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted")]
    for _ in range(arguments.rounds):
        for prompt in prompts:
            answers = [answer(server, prompt, arguments.tokens, temperature) for server in servers]
            differ += answers[0][0] != answers[1][0]
            for own, (_, rate) in zip(rates, answers):
                own.append(rate)
    after = [metric(servers[1], f"spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted")]
    drafted, accepted = (b - a for a, b in zip(before, after))
    ratios = [drafting / plain for plain, drafting in zip(*rates)]
    print(f"temperature {temperature}: {statistics.median(rates[0]):.1f} tokens/s alone, "
          f"{statistics.median(rates[1]):.1f} with the draft model; ratio of pairs: median "
          f"{statistics.median(ratios):.2f}, quartiles {statistics.quantiles(ratios, n=4)[0]:.2f} and "
          f"{statistics.quantiles(ratios, n=4)[2]:.2f}; {accepted:.0f} of {drafted:.0f} drafts accepted; "
          f"{differ} of {len(ratios)} answers differ", flush=True)
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tessera", "model", "draft"):
        parser.add_argument(name)
    parser.add_argument("--text", required=True, metavar="FILE")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--prompt", type=int, default=32, metavar="WORDS")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--temperature", type=float, nargs="+", default=[0, 0.8])
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, options = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1:]
    words = pathlib.Path(arguments.text).read_text(errors="replace").split(" ")
    choose = random.Random(1)
    begins = [choose.randrange(len(words) - arguments.prompt) for _ in range(arguments.prompts)]
    prompts = [" ".join(words[at:at + arguments.prompt]) for at in begins]
    command = [arguments.tessera, "serve", arguments.model, "--port", "0", *options]
    with Server(command) as plain, Server([*command, "--draft", arguments.draft]) as drafting:
        differ = [measure((plain, drafting), prompts, arguments, each) for each in arguments.temperature]
    return 1 if any(differ) else 0


if __name__ == "__main__":
    sys.exit(main())
