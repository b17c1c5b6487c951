"""A trained run behind HTTP: the text of `tessera generate`, alone and in a batch."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import sys

from harness import Prepared, SOURCE, check, refuses, run

sys.path.insert(0, str(SOURCE / "test/runtime/serve"))
from serving import Server  # noqa: E402


def forms(made, out):
    """What generate writes has the form that is asked for, whatever is drawn."""
    grammar, schema = made.scratch / "list.gbnf", made.scratch / "schema.json"
    grammar.write_text('root ::= item ("," item){0,3} "."\nitem ::= [a-z]{1,4} | "(" item? ")"\n')
    schema.write_text('{"type": "object", "properties": {"a": {"enum": [1, "b"]}}, "required": ["a"], '
                      '"additionalProperties": false}')
    written = r"\(*([a-z]{1,4})?\)*(,\(*([a-z]{1,4})?\)*){0,3}\."
    for flag, value, right in (("--regex", r"[a-f]{2,5}(, \d+){1,3};", lambda text: re.fullmatch(r"[a-f]{2,5}(, \d+){1,3};", text)),
                               ("--grammar", grammar, lambda text: re.fullmatch(written, text)),
                               ("--json-schema", schema, lambda text: json.loads(text)["a"] in (1, "b"))):
        whole = 0
        for seed in range(6):
            text = run(made.tessera, "generate", out, "--prompt", "The", "--max-tokens", 100, "--temperature", 1.5,
                       "--seed", seed, "--quiet", flag, value).stdout
            answer = text.removeprefix("The").removesuffix("\n")
            # Of the form's end only the tokens' end keeps a text.
            whole += bool(answer.endswith((";", ".", "}")) and right(answer))
        check(whole >= 4, f"generate {flag}: {whole} of 6 texts are whole")
    def written_of(expression, tokens):
        done = run(made.tessera, "generate", out, "--prompt", "The", "--max-tokens", tokens, "--temperature", 1.5, "--quiet",
                   "--regex", expression)
        return done.stdout, done.stderr
    text, said = written_of("a{3}b{50}", 1)
    check("--max-tokens 1, before it matches its constraint; raise --max-tokens" in said, f"a form that is cut off: {said}")
    text, said = written_of("a*", 1)
    check("complete" not in said, f"what is cut off is a text of the form: {said}")
    text, said = written_of("", 4)
    check(text == "The\n", f"the empty form is the empty text: {text}")
    grammar.write_text("root ::= item")
    refuses("a wrong grammar", "list.gbnf: line 1, column 10: unknown rule 'item'")(
        made.tessera, "generate", out, "--grammar", grammar)
    refuses("two forms", "--grammar")(made.tessera, "generate", out, "--grammar", grammar, "--regex", "a")


def drafts(made, out, env, requests, alone):
    """Its own draft model, whose tokens all are accepted: at first they cost nothing that is known."""
    command = [str(made.tessera), "serve", str(out), "--port", "0", "--max-batch", "4", "--draft"]
    with Server([*command, str(out)], env=env) as server:
        answers = [server.post("/v1/completions", max_tokens=24, **fields)[1] for fields in requests]
        check([body["choices"][0]["text"] for body in answers] == alone, "a draft model changes no text")
        server.wait_until_idle()
        drafted = server.metric("spec_decode_num_draft_tokens_total")
        accepted = server.metric("spec_decode_num_accepted_tokens_total")
        # Not those after a penalty or the end of a text.
        check(0 < accepted <= drafted, f"{accepted} of {drafted} draft tokens are accepted")
    other = made.scratch / "other"
    shutil.copytree(out, other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    refuses("a draft model with other tokens", "a draft model has the same tokenizer", env=env)(*command, other)
    refuses("no draft model", "--draft nowhere: ", env=env)(*command, "nowhere")


def main():
    made = Prepared(*sys.argv[1:3])
    out = made.scratch / "run"
    run(made.executable("fp32"), "--data", made.tokens(), "--out", out,
        "--steps", 20, "--set", "lr_schedule.total=20")
    text = run(made.tessera, "generate", out, "--prompt", "The command",
               "--max-tokens", 24, "--temperature", 0, "--quiet").stdout
    forms(made, out)
    temporary = made.scratch / "temporary"
    temporary.mkdir(exist_ok=True)
    # A cache of its own, so that there is something to compile, once.
    env = os.environ | {"TMPDIR": str(temporary),
                        "XDG_CACHE_HOME": str(made.scratch / "cache")}
    with Server([str(made.tessera), "serve", str(out), "--port", "0",
                 "--max-batch", "4"], env=env) as server:
        compiled = server.metric("compilations_total")
        check(compiled > 0, "what was compiled is counted")

        def complete(**fields):
            status, body = server.post(
                "/v1/completions", max_tokens=24, **fields)
            assert status == 200, body
            return body["choices"][0]["text"]

        once = complete(prompt="The command", temperature=0)
        check("The command" + once == text.removesuffix("\n"),
              "a completion is the text of generate")
        requests = [{"prompt": "The command " * (1 + i % 4), "seed": i,
                     "temperature": i % 3 / 2, "logprobs": 2} for i in range(12)]
        alone = [complete(**fields) for fields in requests]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda fields: complete(**fields), requests))
        check(alone == together, "neighbours change no text")
        status, chat = server.post(
            "/v1/chat/completions", max_tokens=8,
            messages=[{"role": "user", "content": "hello"}])
        check(status == 200 and chat["choices"][0]["message"]["role"] == "assistant",
              "a chat is answered")
        server.wait_until_idle()
        check(server.metric("kv_cache_usage_perc") == 0, "all pages are free")
        check(server.metric("compilations_total") == compiled
              and server.metric("compilations_after_ready_total") == 0,
              "nothing is compiled for requests")
        refuses("a port in use", f"cannot listen on 127.0.0.1:{server.port}", env=env)(
            made.tessera, "serve", out, "--port", server.port, "--max-batch", 4)
        server.terminate()
        check(server.process.wait(60) == 0, "SIGTERM ends it")
    drafts(made, out, env, requests, alone)
    with Server([str(made.tessera), "serve", str(out), "--port", "0",
                 "--max-batch", "4"], env=env) as server:
        check(server.metric("compilations_total") == 0, "what is cached is not compiled")
        server.process.kill()
        server.process.wait()
        check(os.listdir(temporary) == [], "kill -9 leaves no file")
    with Server([str(made.tessera), "serve", str(out), "--port", "0"], env=env | {"TESSERA_CACHE": "off"}) as server:
        check(server.metric("compilations_total") > 0 and "tessera: compiling …" in "".join(server.lines),
              "TESSERA_CACHE is read, and a compilation is announced")
    with Server([str(made.tessera), "serve", str(out), "--port", "0", "--max-batch", "4", "--cache", "on"],
                env=env | {"TESSERA_CACHE": "off"}) as server:
        check(server.metric("compilations_total") == 0 and "compiling" not in "".join(server.lines),
              "a flag comes before the environment")
    (made.scratch / "file").write_text("no folder")
    told = run(made.tessera, "generate", out, "--max-tokens", 1,
               env=os.environ | {"XDG_CACHE_HOME": str(made.scratch / "file")}).stderr
    check("tessera: compiling …\n" in told and "tessera: compiled programs are not kept: '" in told,
          "a cache that cannot be written is named")
    refuses("a host that is none", "--host must be an address", env=env)(
        made.tessera, "serve", out, "--host", "nowhere", "--port", 0, "--max-batch", 4)
    refuses("no run", "is not a run directory")(
        made.tessera, "serve", pathlib.Path("nowhere"))


main()
