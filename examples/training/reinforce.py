#!/usr/bin/env python3
"""Reinforcement learning by a server that trains: a loop that samples sums, rewards the
right ones and learns from them.

    tessera serve DIR --train 1 --set task=policy --port 8000
    reinforce.py http://127.0.0.1:8000 --steps 100

Only the standard library is needed. See docs/training-server.md.
"""
import argparse
import json
import random
import statistics
import urllib.error
import urllib.request


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.read().decode()}") from None


def group_of(server, name, count, most):
    """Completions of one prompt as examples, and their rewards."""
    first, second = random.randrange(50), random.randrange(50)
    answer = post(f"{server}/v1/completions", {
        "model": name, "prompt": f"{first}+{second}=", "n": count, "max_tokens": most,
        "temperature": 1, "logprobs": 0, "return_token_ids": True})
    rewards = [float(choice["text"] == str(first + second)) for choice in answer["choices"]]
    mean, deviation = statistics.mean(rewards), statistics.pstdev(rewards)
    examples = []
    for choice, reward in zip(answer["choices"], rewards):
        prompt, tokens = choice["prompt_token_ids"], choice["token_ids"]
        before, advantage = [0] * len(prompt), (reward - mean) / (deviation + 1e-4)
        examples.append({"tokens": prompt + tokens,
                         "weights": before + [1] * len(tokens),
                         "logprobs": before + choice["logprobs"]["token_logprobs"],
                         "advantages": before + [advantage] * len(tokens)})
    return examples, rewards


def main():
    parser = argparse.ArgumentParser(description="Reinforcement learning by a server that trains.")
    parser.add_argument("server")
    parser.add_argument("--name", default="sums")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--prompts", type=int, default=4, help="of a step")
    parser.add_argument("--group", type=int, default=8, help="completions of a prompt")
    parser.add_argument("--max-tokens", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    adapters = f"{options.server}/v1/training/adapters"
    post(adapters, {"name": options.name})
    for step in range(options.steps):
        examples, rewards = [], []
        for _ in range(options.prompts):
            more, given = group_of(options.server, options.name, options.group, options.max_tokens)
            examples += more
            rewards += given
        gradients = post(f"{adapters}/{options.name}/forward_backward", {"examples": examples})
        made = post(f"{adapters}/{options.name}/optim_step", {"lr": options.lr})
        print(f"step {made['step']}: reward {statistics.mean(rewards):.3f}, loss {gradients['loss']:.4f}, "
              f"gradient norm {made['grad_norm']:.3f}", flush=True)


main()
