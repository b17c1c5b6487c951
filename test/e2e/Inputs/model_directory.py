"""Generates from a Hugging Face directory what the run that it was made of
gives: weights in shards, in bf16, under names without a prefix."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys

from harness import (SOURCE, SPEC, Prepared, check, read_safetensors, refuses,
                     run, write_safetensors)

sys.path.insert(0, str(SOURCE / "test/runtime/serve"))
from serving import Server  # noqa: E402

TEMPLATE = """{% for message in messages %}
{{ '<user>' if message.role == 'user' else '<bot>' }} {{ message.content | trim }}
{% endfor %}
{% if add_generation_prompt %}<bot>{% endif %}"""


def narrow(content):
    """f32 values that are bf16 values already, as bf16."""
    return b"".join(content[i + 2:i + 4] for i in range(0, len(content), 4))


def rounded(content):
    """f32 values cut to those of bf16."""
    return b"".join(b"\0\0" + content[i + 2:i + 4]
                    for i in range(0, len(content), 4))


def make_run(made, out):
    run(made.executable("fp32"), "--data", made.tokens(), "--out", out,
        "--steps", 20, "--set", "lr_schedule.total=20", "--set",
        "lr_schedule.warmup=2", "--checkpoint-every", 20)
    return read_safetensors(out / "step-000020/model.safetensors")


def write_shards(folder, tensors):
    parts = {"a.safetensors": {}, "b.safetensors": {}}
    for number, (name, value) in enumerate(tensors.items()):
        parts["ab"[number % 2] + ".safetensors"][name] = value
    for file, part in parts.items():
        write_safetensors(folder / file, part)
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {
            name: file for file, part in parts.items() for name in part}}))


def serve(made, folder, text, env):
    """The directory behind HTTP: the same text, and chats by its template."""
    def asked(server, path, **fields):
        status, body = server.post(path, max_tokens=24, ignore_eos=True, **fields)
        assert status == 200, body
        choice = body["choices"][0]
        return (choice.get("text") or choice["message"]["content"],
                body["usage"]["prompt_tokens"])

    start = [str(made.tessera), "serve", str(folder), "--port", "0"]
    with Server(start, env=env) as server:
        once, _ = asked(server, "/v1/completions", prompt="The command")
        check("The command" + once == text.removesuffix("\n"),
              "the server draws as generation_config.json says")
        status, body = server.post("/v1/chat/completions", messages=[
            {"role": "user", "content": "hello"}])
        check(status == 400 and "no chat template" in body["error"]["message"],
              "no chats without a template")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATE}))
    with Server(start, env=env) as server:
        def chat(content):
            return asked(server, "/v1/chat/completions", messages=[
                {"role": "user", "content": content}])
        rendered = "<user> hello\n<bot>"
        check(chat("  hello ") == asked(server, "/v1/completions", prompt=rendered),
              "a chat is what the model's template makes of it")
        _, marked = chat("a<|endoftext|>b")
        _, plain = asked(server, "/v1/completions",
                         prompt="<user> a<|endoftext|>b\n<bot>")
        check(marked > plain, "a user writes no special tokens")


def serve_by_recipe(made, folder, env):
    """The recipe says what the cache holds unless a flag does."""
    recipe = made.scratch / "serve.yaml"
    recipe.write_text("precision:\n  compute: fp32\n"
                      "inference:\n  context: 32\n  batch: 3\n  page: 16\n")
    for flags, tokens in (((), 96), (("--max-batch", "2"), 64), (("--kv-pages", "5"), 80)):
        with Server([str(made.tessera), "serve", str(folder), "--port", "0",
                     "--recipe", str(recipe), *flags], env=env) as server:
            check(f"context 32, {tokens} tokens" in server.lines[-1],
                  f"{flags or 'no flags'}: {server.lines[-1].strip()}")


def talk(made, folder, env):
    """A conversation through a pipe says what the server answers."""
    greedy = ("--temperature", 0, "--max-tokens", 12)

    def chat(lines, *more, code=0):
        return run(made.tessera, "chat", folder, *greedy, *more, env=env,
                   input="".join(line + "\n" for line in lines), code=code)
    answers = chat(["The command", "A file", "/set max-tokens 3", "/reset", "A file"])
    start = [str(made.tessera), "serve", str(folder), "--port", "0"]
    said, expected = [], []
    with Server(start, env=env) as server:
        for message, tokens in (("The command", 12), ("A file", 12), (None, 0), ("A file", 3)):
            if message is None:
                said = []
                continue
            said.append({"role": "user", "content": message})
            status, body = server.post("/v1/chat/completions", messages=said,
                                       temperature=0, max_tokens=tokens)
            assert status == 200, body
            expected.append(body["choices"][0]["message"]["content"])
            said.append({"role": "assistant", "content": expected[-1]})
    check(answers.stdout == "".join(text + "\n" for text in expected),
          "a chat in turns is what the server answers")
    counts = re.findall(r"(\d+) tokens kept, (\d+) read, (\d+) generated", answers.stderr)
    check([int(kept) > 0 for kept, _, _ in counts] == [False, True, True]
          and int(counts[2][2]) <= 3, "turns keep what the cache has")
    done = chat(["/system Be brief", "//set", "/exit", "never"], "--quiet")
    check(len(done.stdout) > 1 and "never" not in done.stdout, "commands are obeyed")
    for line, *parts in (["/shout", "unknown command /shout"],
                         ["/set top-k many", "top-k"], ["/set temperature -1", "temperature"],
                         ["/set volume 3", "unknown setting 'volume'"]):
        done = chat([line, "The"], "--quiet", code=1)
        last = done.stderr.strip().splitlines()[-1]
        check(all(p in last for p in parts) and not done.stdout, f"{line}: {last}")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [str(made.tessera), "chat", str(folder), "--temperature", "0"], env=env,
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    os.write(ours, b"The command\n")
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    os.write(ours, b"A file\n/exit\n")
    rest = process.stdout.read()
    check(process.wait() == 0 and rest.count(b"\n") >= 2,
          "an interrupt stops the answer, not the program")


def export(made, trained, run_folder, env):
    """A run in Hugging Face's layout writes what the run does."""
    out = made.scratch / "exported"
    run(made.tessera, "export", run_folder, "-o", out)
    check(sorted(p.name for p in out.iterdir()) == [
        "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json"], "a directory is exported")
    check(read_safetensors(out / "model.safetensors") == trained, "its weights")
    greedy = ("--prompt", "The command", "--temperature", 0, "--max-tokens", 24,
              "--ignore-end", "--quiet")
    texts = [run(made.tessera, "generate", place, *greedy, env=env).stdout
             for place in (run_folder, out)]
    check(texts[0] == texts[1] and len(texts[0]) > 30, f"its text: {texts}")
    narrow_out = made.scratch / "narrow"
    run(made.tessera, "export", run_folder / "step-000020", "-o", narrow_out,
        "--dtype", "bf16")
    config = json.loads((narrow_out / "config.json").read_text())
    check({t[0] for t in read_safetensors(narrow_out / "model.safetensors").values()}
          == {"BF16"} and config["dtype"] == "bfloat16", "another type")
    refuses("a directory that is there", "is there already")(
        made.tessera, "export", run_folder, "-o", out)
    refuses("no run", "is not a run directory")(
        made.tessera, "export", made.scratch / "nothing", "-o", made.scratch / "x")


def main():
    made = Prepared(*sys.argv[1:3])
    cache = made.scratch / "cache"
    plain = {k: v for k, v in os.environ.items()
             if not k.startswith("TESSERA_")}
    plain["XDG_CACHE_HOME"] = str(cache)
    trained = make_run(made, made.scratch / "run")
    export(made, trained, made.scratch / "run", plain)

    # The run's own weights, cut to what bf16 holds, and the same as others
    # have them.
    cut = {name: (dtype, shape, rounded(content))
           for name, (dtype, shape, content) in trained.items()}
    whole, parts = made.scratch / "whole", made.scratch / "parts"
    for folder in (whole, parts):
        folder.mkdir()
        shutil.copy(SPEC / "config.json", folder)
        shutil.copy(made.tokens().parent / "tokenizer.json", folder)
    write_safetensors(whole / "model.safetensors", cut)
    short = {name.removeprefix("transformer."): ("BF16", shape, narrow(content))
             for name, (_, shape, content) in cut.items()}
    mask = ("F32", [1, 1, 2, 2], struct.pack("<4f", 1, 0, 1, 1))
    write_shards(parts, {**short, "h.0.attn.bias": mask})

    def generate(folder, *more, **environment):
        return run(made.tessera, "generate", folder, "--prompt", "The command",
                   "--max-tokens", 24, *more, env={**plain, **environment})
    greedy = ("--temperature", 0, "--ignore-end")
    before_all = set(cache.rglob("*.tsr"))
    text = generate(whole, *greedy).stdout
    check(text.startswith("The command") and len(text) > 30, repr(text))
    check(generate(parts, *greedy).stdout == text,
          "shards in bf16 without prefixes give the same text")
    kept = sorted(set(cache.rglob("*.tsr")) - before_all)
    check(len(kept) == 2, f"a program a directory is kept, apart from weights")
    check(all(p.stat().st_size < (whole / "model.safetensors").stat().st_size
              for p in kept), "programs are smaller than weights")
    before = [p.stat().st_mtime_ns for p in kept]
    check(generate(whole, *greedy, "--cache", "readonly").stdout == text
          and [p.stat().st_mtime_ns for p in sorted(set(cache.rglob("*.tsr")) - before_all)]
          == before, "the second start compiles nothing")

    # As the hub's client leaves it.
    hub = made.scratch / "hub/models--own--small-1.5"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs/main").write_text("0123abcd")
    (hub / "snapshots").mkdir()
    shutil.copytree(whole, hub / "snapshots/0123abcd")
    check(generate("own/small-1.5", *greedy,
                   HF_HUB_CACHE=str(hub.parent)).stdout == text,
          "a name stands for the model in the hub's cache")
    refuses("a name that the cache has not", "'own/large' is not a run",
            env={**plain, "HF_HUB_CACHE": str(hub.parent)})(
        made.tessera, "generate", "own/large", "--prompt", "The")

    # Flag before environment before generation_config.json before default.
    config = whole / "generation_config.json"
    config.write_text(json.dumps({"do_sample": False, "top_k": 7,
                                  "num_beams": 4, "max_new_tokens": 5}))
    done = generate(whole, "--ignore-end")
    check(done.stdout == text, "generation_config.json says not to sample")
    serve(made, whole, text, plain)
    talk(made, whole, plain)
    serve_by_recipe(made, whole, plain)
    for part in ("temperature 0 (generation_config.json)",
                 "top-k 7 (generation_config.json)", "max-tokens 24 (given)",
                 "ignored unsupported keys: num_beams"):
        check(part in done.stderr, f"the settings say '{part}'")
    done = generate(whole, "--top-k", 2, TESSERA_TOP_K="3", TESSERA_SEED="9")
    check("top-k 2 (given)" in done.stderr and "seed 9 (TESSERA_SEED)" in done.stderr,
          "flag before environment")
    # A token that ends a text, from either file.
    for file, more in (("generation_config.json", {}),
                       ("config.json", json.loads(
                           (SPEC / "config.json").read_text()))):
        config.unlink(missing_ok=True)
        ends = list(range(4096))
        (whole / file).write_text(json.dumps({**more, "eos_token_id": ends}))
        done = generate(whole, "--temperature", 0)
        check(": 1 tokens in" in done.stderr, f"{file} says what ends a text")
    shutil.copy(SPEC / "config.json", whole)
    config.unlink(missing_ok=True)
    check(generate(whole, *greedy, "--repetition-penalty", 9).stdout != text,
          "a penalty changes the text")

    def broken(what, tensors, *expected):
        write_safetensors(whole / "model.safetensors", tensors)
        refuses(what, *expected, env=plain)(
            made.tessera, "generate", whole, "--prompt", "The", "--quiet")
    name = "transformer.h.0.mlp.c_fc.weight"
    broken("a tensor is missing", {k: v for k, v in cut.items() if k != name},
           name)
    broken("a tensor too many", {**cut, "transformer.h.9.ln_1.bias": mask},
           "transformer.h.9.ln_1.bias")
    dtype, shape, content = cut[name]
    broken("another shape", {**cut, name: (dtype, shape[::-1], content)}, name,
           "has the shape")
    broken("another type", {**cut, name: ("I32", shape, content)}, name, "I32")
    write_safetensors(whole / "model.safetensors", cut)
    config.write_text('{"temperature": "hot"}')
    refuses("settings of the wrong kind", "generation_config.json",
            "'temperature': must be a number", env=plain)(
        made.tessera, "generate", whole, "--prompt", "The")


main()
