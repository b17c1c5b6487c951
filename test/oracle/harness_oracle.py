"""lm-evaluation-harness over `tessera serve`, against its own `hf` backend on
the same model: three tasks of local files, by completions (prompts as tokens,
prompts as strings) and by chats.
   harness_oracle.py BIN FOLDER

Metrics must be equal to four digits, and the log-likelihood of every choice and
every generated string besides, since a model of random weights may score equally
by chance.
"""
import os
import pathlib
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
import torch  # noqa: E402

import harness_model  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "runtime/serve"))
from serving import Server  # noqa: E402

LIKELIHOODS = ["tessera_choice", "tessera_text"]
GENERATES = ["tessera_generate"]
CONTEXT = 512  # of the model


def evaluate(folder, backend, tasks, chat=False, **arguments):
    manager = lm_eval.tasks.TaskManager(include_path=str(folder / "tasks"), include_defaults=False)
    return lm_eval.simple_evaluate(
        model=backend, model_args=arguments, tasks=tasks, task_manager=manager,
        apply_chat_template=chat, log_samples=True, bootstrap_iters=0, batch_size=1, verbosity="ERROR")


def compare(name, wanted, got, tasks):
    compared = 0
    for task in tasks:
        for key, value in wanted["results"][task].items():
            if not isinstance(value, float):
                continue
            other = got["results"][task][key]
            assert abs(value - other) <= 5e-5 * max(1, abs(value)), (name, task, key, value, other)
            compared += 1
        for mine, theirs in zip(got["samples"][task], wanted["samples"][task], strict=True):
            assert mine["doc_id"] == theirs["doc_id"]
            assert same(mine["resps"], theirs["resps"]), (name, task, mine["resps"], theirs["resps"])
    print(f"ok: {name}: {compared} metrics of {', '.join(tasks)}")


def same(mine, theirs):
    """Log-likelihoods to four digits, anything else exactly."""
    if isinstance(mine, (list, tuple)):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, float):
        return abs(mine - theirs) <= 1e-4 * max(1, abs(theirs))
    return mine == theirs


def check(binaries, folder, framed):
    kind = "framed" if framed else "plain"
    folder = folder / kind
    model = harness_model.save(folder, framed)
    harness_model.save_tasks(folder / "tasks")
    hf = {"pretrained": model, "tokenizer": str(folder), "dtype": "float32", "device": "cpu", "max_length": CONTEXT - 2}
    wanted = evaluate(folder, "hf", LIKELIHOODS + GENERATES, **hf)
    assert len({str(sample["resps"]) for sample in wanted["samples"]["tessera_generate"]}) > 3
    chats = evaluate(folder, "hf", GENERATES, chat=True, **hf)
    command = [str(binaries / "tessera"), "serve", str(folder), "--port", "0", "--max-batch", "4",
               "--served-model-name=m", "--set", "precision.compute=fp32"]
    with Server(command) as server:
        base = f"http://127.0.0.1:{server.port}/v1"
        remote = {"model": "m", "tokenizer": str(folder), "tokenizer_backend": "huggingface", "max_length": CONTEXT,
                  "add_bos_token": framed}
        # The harness keeps two tokens of the context for itself.
        completions = {"base_url": base + "/completions", **remote}
        got = evaluate(folder, "local-completions", LIKELIHOODS + GENERATES, **completions)
        compare(f"{kind}, prompts as tokens", wanted, got, LIKELIHOODS + GENERATES)
        # The harness makes strings of tokens, with those that frame a prompt,
        # which a server would add a second time.
        tasks = GENERATES if framed else LIKELIHOODS + GENERATES
        got = evaluate(folder, "local-completions", tasks, tokenized_requests=False, **completions)
        compare(f"{kind}, prompts as strings", wanted, got, tasks)
        got = evaluate(folder, "local-chat-completions", GENERATES, chat=True, base_url=base + "/chat/completions",
                       **remote)
        compare(f"{kind}, chats", chats, got, GENERATES)


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:])
    torch.set_num_threads(1)
    for framed in (False, True):
        check(binaries, folder, framed)


main()
