"""`tessera eval` against lm-evaluation-harness: the same model of random weights,
the same files, every metric that both have, and of every example the
log-likelihoods or the output.
   eval_oracle.py BIN FOLDER
"""
import json
import os
import pathlib
import subprocess
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import harness_model  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "runtime/serve"))
from serving import Server  # noqa: E402

FP32 = ["--set", "precision.compute=fp32"]
WINDOW = 100
TASKS = """
tasks:
  - name: choice
    kind: multiple_choice
    data: choice.jsonl
    prompt: "Question: {question}\\nAnswer:"
  - name: generate
    kind: exact_match
    data: generate.jsonl
    prompt: "Q: {question}\\nA:"
    stop: ["\\n", "e"]
    max_tokens: 24
    extract: "[a-z]"
    ignore_case: true
"""
# The harness predicts the token that frames a document as well, and this is not
# the model's work: perplexity is compared where nothing is framed.
TEXT = f"""
  - name: text
    kind: perplexity
    data: text.jsonl
    split_by: [language, source]
    window: {WINDOW}
"""
# Ours, and the harness's "METRIC,FILTER".
METRICS = {"choice": {"acc": "acc,none", "acc_norm": "acc_norm,none"},
           "generate": {"exact_match": "exact_match,first-letter"},
           "text": {"byte_perplexity": "byte_perplexity,none", "bits_per_byte": "bits_per_byte,none"}}


# Keys of the first two tasks, and the harness's options for the same prompts.
SHOTS = {"shots": 3}, {"num_fewshot": 3}
CHAT = ({"chat": "true", "system": "Answer shortly.", "shots": 2},
        {"num_fewshot": 2, "apply_chat_template": True, "system_instruction": "Answer shortly."})

# Documents that the server's context holds.
SHORT = """
  - {name: text, kind: perplexity, data: text.jsonl, limit: 2, split_by: language}
"""


def close(mine, theirs):
    return abs(mine - theirs) <= 5e-5 * max(1, abs(theirs))


def with_keys(keys):
    added = "".join(f"\n    {key}: {value}" for key, value in keys.items())
    return TASKS.replace(".jsonl", ".jsonl" + added)


def harness(folder, model, names, max_length, **options):
    manager = lm_eval.tasks.TaskManager(include_path=str(folder / "tasks"), include_defaults=False)
    return lm_eval.simple_evaluate(
        model="hf", tasks=[f"tessera_{name}" for name in names], task_manager=manager, log_samples=True,
        model_args={"pretrained": model, "tokenizer": str(folder), "dtype": "float32", "device": "cpu",
                    "max_length": max_length},
        bootstrap_iters=0, batch_size=1, verbosity="ERROR", **options)


def ours(binaries, folder, text, model, *options):
    file = folder / "tasks" / "eval.yaml"
    file.write_text(text)
    subprocess.run([binaries / "tessera", "eval", model, "--tasks", file, "-o", folder / "results.json",
                    "--samples", folder / "samples.jsonl", *options], check=True)
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    return json.loads((folder / "results.json").read_text())["results"], samples


def compare_metrics(name, results, theirs):
    wanted = theirs["results"][f"tessera_{name}"]
    whole = {each["metric"]: each for each in results if each["task"] == name and each["group"] is None}
    for metric, key in METRICS[name].items():
        assert close(whole[metric]["value"], wanted[key]), (name, metric, whole[metric], wanted[key])
        error = wanted[key.replace(",", "_stderr,")]
        if isinstance(error, float):
            assert close(whole[metric]["stderr"], error), (name, metric, whole[metric], error)
    return len(METRICS[name])


def compare_samples(name, samples, theirs):
    mine = [each for each in samples if each["task"] == name]
    wanted = sorted(theirs["samples"][f"tessera_{name}"], key=lambda each: each["doc_id"])
    assert len(mine) == len(wanted) > 0
    for one, other in zip(mine, wanted, strict=True):
        if name == "choice":
            pairs = zip(one["logprobs"], [float(each[0]) for each in other["filtered_resps"]], strict=True)
            assert all(close(*pair) for pair in pairs), (one, other)
        elif name == "generate":
            assert one["output"] == other["resps"][0][0], (one, other)
        else:
            assert close(one["logprob"], float(other["resps"][0][0])), (one, other["resps"])
    return len(mine)


def check_groups(results, samples):
    """Of each value of a field, from the examples that have it."""
    rows = harness_model.text_rows()
    logprobs = [each["logprob"] for each in samples if each["task"] == "text"]
    for field in ("language", "source"):
        for value in {row[field] for row in rows}:
            chosen = [i for i, row in enumerate(rows) if row[field] == value]
            size = sum(len(rows[i]["text"].encode()) for i in chosen)
            wanted = -sum(logprobs[i] for i in chosen) / size / torch.log(torch.tensor(2.0)).item()
            [got] = [each for each in results if each["metric"] == "bits_per_byte" and each["task"] == "text"
                     and each["group"] == f"{field}={value}"]
            assert close(got["value"], wanted) and got["bytes"] == size and got["examples"] == len(chosen), got


def check_prompts(binaries, folder, model, title, keys, options):
    """Both tasks with shots, or in a chat; returns the harness's results of the second."""
    names = ["choice", "generate"]
    results, samples = ours(binaries, folder, with_keys(keys), folder, *FP32)
    theirs = harness(folder, model, names, 512, **options)
    metrics = sum(compare_metrics(name, results, theirs) for name in names)
    examples = sum(compare_samples(name, samples, theirs) for name in names)
    print(f"ok: {title}: {metrics} metrics, {examples} examples")
    return theirs


def save_adapter(folder, path, kind):
    """An adapter of random factors; returns the model with it added to the weights."""
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model = peft.get_peft_model(base, peft.LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=8, use_dora=kind == "dora",
        target_modules=["q_proj", "v_proj", "down_proj"]))
    torch.manual_seed(2)
    for name, parameter in model.named_parameters():
        if "magnitude" in name:
            parameter.data *= 0.5 + torch.rand(parameter.shape)
        elif "lora_" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape)
    model.save_pretrained(path)
    return model.merge_and_unload().eval()


def check_adapter(binaries, folder, kind):
    """The harness has the model merged; of a packaged model with slots the results are the same."""
    adapter = folder.with_name(kind)
    merged = save_adapter(folder, adapter, kind)
    results, samples = ours(binaries, folder, TASKS + TEXT, folder, "--adapter", adapter, *FP32)
    alone, _ = ours(binaries, folder, TASKS + TEXT, folder, *FP32)
    metrics = examples = 0
    for name in METRICS:
        theirs = harness(folder, merged, [name], WINDOW if name == "text" else 512)
        metrics += compare_metrics(name, results, theirs)
        examples += compare_samples(name, samples, theirs)
    assert all(one["value"] != other["value"] for one, other in zip(results, alone, strict=True)
               if one["metric"] == "bits_per_byte"), "the adapter changes nothing"
    packaged = folder.with_name(f"packaged-{kind}")
    subprocess.run([binaries / "tessera", "compile", folder, "--mode", "infer", "--adapter-slots=2", "--adapter-rank=8",
                    "--set", f"adapter.kind={kind}", *FP32, "-o", packaged], check=True)
    same = ours(binaries, folder, TASKS + TEXT, packaged, "--adapter", adapter)
    assert same == (results, samples), "a packaged model has other results"
    print(f"ok: {kind} adapter: {metrics} metrics, {examples} examples")


def check_server_chat(binaries, folder, port, theirs):
    """Outputs of chats, and a judge whose replies are those of the same chat."""
    chat = with_keys(CHAT[0])
    text = "tasks:\n" + chat[chat.index("  - name: generate"):] + """
  - {name: judged, kind: win_rate, data: generate.jsonl, limit: 2, prompt: "{question}", against: answer, max_tokens: 4,
     judge_prompt: "{answer_a} or {answer_b}?", judge_max_tokens: 8, verdict: "[ABC]"}
"""
    _, samples = ours(binaries, folder, text, f"http://127.0.0.1:{port}/v1", "--judge", f"http://127.0.0.1:{port}")
    compare_samples("generate", samples, theirs)
    judged = [each for each in samples if each["task"] == "judged"]
    questions = [{"q": f"{pair[0]} or {pair[1]}?"} for each in judged
                 for pair in ((each["output"], each["against"]), (each["against"], each["output"]))]
    harness_model.write_lines(folder / "tasks/questions.jsonl", questions)
    _, replies = ours(binaries, folder, """
tasks: [{name: replies, kind: prompts, data: questions.jsonl, prompt: "{q}", chat: true, max_tokens: 8, require: "."}]
""", folder, *FP32)
    assert [each["output"] for each in replies] == [text for each in judged for text in each["judgments"]], (judged, replies)
    print(f"ok: chats of the server: {len(judged)} judged")


def check_server(binaries, folder, theirs, chats):
    """The same by a server: choices and outputs are the harness's; documents are
    those of the model in this process, where a token frames them."""
    command = [str(binaries / "tessera"), "serve", str(folder), "--port", "0", "--served-model-name=m", *FP32]
    with Server(command) as server:
        results, samples = ours(binaries, folder, TASKS + SHORT, f"http://127.0.0.1:{server.port}/v1")
        check_server_chat(binaries, folder, server.port, chats)
    for name in ("choice", "generate"):
        compare_metrics(name, results, theirs[name])
        compare_samples(name, samples, theirs[name])
    wanted, _ = ours(binaries, folder, TASKS + SHORT, folder, *FP32)
    for mine, other in zip(results, wanted, strict=True):
        assert {**mine, "value": 0, "stderr": 0} == {**other, "value": 0, "stderr": 0}, (mine, other)
        assert close(mine["value"], other["value"]), (mine, other)
    print(f"ok: server: {len(results)} results")


def main():
    binaries, top = map(pathlib.Path, sys.argv[1:])
    torch.set_num_threads(1)
    for framed in (False, True):
        folder = top / ("framed" if framed else "plain")
        model = harness_model.save(folder, framed)
        harness_model.save_tasks(folder / "tasks")
        results, samples = ours(binaries, folder, TASKS + ("" if framed else TEXT), folder, *FP32)
        theirs = {name: harness(folder, model, [name], WINDOW if name == "text" else 512)
                  for name in METRICS if name != "text" or not framed}
        metrics = sum(compare_metrics(name, results, theirs[name]) for name in theirs)
        examples = sum(compare_samples(name, samples, theirs[name]) for name in theirs)
        assert 0 < theirs["generate"]["results"]["tessera_generate"]["exact_match,first-letter"] < 1
        if not framed:
            check_groups(results, samples)
        print(f"ok: {folder.name}: {metrics} metrics, {examples} examples")
        if framed:
            chats = check_prompts(binaries, folder, model, "chat", *CHAT)
            check_server(binaries, folder, theirs, chats)
        else:
            check_prompts(binaries, folder, model, "shots", *SHOTS)
            check_adapter(binaries, folder, "lora")
            check_adapter(binaries, folder, "dora")


main()
