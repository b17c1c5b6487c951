"""The openai client's own tests (its source archive has them) against `tessera
serve`: chats, completions, embeddings, models and responses, by its clients for
threads and for asyncio, loose and strict.
   openai_tests.py BIN FOLDER

They were written for a mock that answers everything. Some ask for stored answers
under ids that nobody was ever given ("response_id"): openai_ids.py makes an
answer for each of those requests and puts its id in place of the test's, and
nothing else. Others send all fields at once, of which some exclude each other
and some ask for what no model here has. REFUSED says which, how the server answers, and why; every other test
must pass, and none of these may. Of the tests of all fields, each field is also
sent by itself: FIELDS says which are refused, and all others must be taken.
"""
import collections
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import openai
import tokenizers
import torch
import transformers

import embed_oracle
import openai_ids

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "runtime/serve"))
from serving import Server  # noqa: E402

# What the tests call the models.
GENERATOR = ["gpt-4o", "gpt-4o-mini", "string"]
ENCODER = ["text-embedding-3-small"]
FILES = {"chat": GENERATOR, "test_completions.py": GENERATOR,
         "test_models.py": GENERATOR, "test_responses.py": GENERATOR,
         "responses": GENERATOR, "test_embeddings.py": ENCODER}

# Names of tests, the answer's status, what its message has, and why it is so.
REFUSED = [
    ("test_models.py::*_delete*", 405, "this path supports GET",
     "what is served is not a client's to delete"),
    ("test_responses.py::*create_with_all_params*", 400,
     "conversation is not supported",
     "a conversation beside a response before, which OpenAI refuses too, and a "
     "prompt that the server should keep"),
    ("chat/test_completions.py::*create_with_all_params*", 400,
     "functions is the deprecated name of tools",
     "functions beside tools, and a search of the web"),
]
# The client asks for base64 by itself and then, if it is strict, finds that
# the answer has no list of numbers.
NO_LISTS = "the strict client asks for base64, and its types know lists alone"
CLIENTS = [f"test_embeddings.py::*_create[[]{kind}]" for kind in
           ("strict", "aiohttp")]
# Nothing is sent: the client itself refuses an empty name.
SILENT = "*_path_params_*"

# Of the tests of all fields: what is refused alone, too.
FIELDS = {
    "/v1/completions": {},
    "/v1/chat/completions": {
        "tools": "the parameters of name: .*foo",
        "web_search_options": "does not search the web"},
    "/v1/responses": {
        "conversation": "use previous_response_id",
        "previous_response_id": "no stored response",
        "prompt": "keeps no prompts",
        "tools": "the parameters of name: .*foo"},
    "/v1/embeddings": {},
}
BASE = ["model", "messages", "prompt", "input", "stream"]
NEEDS = {("/v1/chat/completions", "top_logprobs"): {"logprobs": True}}


#--- models -------------------------------------------------------------------

CHATML = ("{% for tool in tools or [] %}{{ tool | tojson }}<tool_call>{% endfor %}"
          "{% for message in messages %}<|im_start|>{{ message.role }}\n"
          "{{ message.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


GAP = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


def save_generator(folder):
    """A llama of random weights; a token is a byte, one of ChatML's, or one of
    those around gaps."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE(
        {each: i for i, each in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>",
                             *GAP])
    made.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHATML)
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=264, hidden_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        max_position_embeddings=512, bos_token_id=256, eos_token_id=258))
    model.save_pretrained(folder)


def save_encoder(folder):
    embed_oracle.Twins("minilm").save(folder, 64)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()),
                                "is_matryoshka": True}))


#--- their tests --------------------------------------------------------------

def find_tests():
    """Where scripts/install-deps.sh --oracles puts the client's sources."""
    root = HERE.parents[1] / f".venv/sources/openai-{openai.__version__}"
    if not (root / "tests").is_dir():
        print(f"SKIP: no {root}; remove .venv and run scripts/install-deps.sh "
              "--oracles")
        sys.exit(0)
    return root


def run_tests(root, port, names, record):
    """What pytest saw of the files for these models."""
    files = [f"tests/api_resources/{file}" for file, models in FILES.items()
             if models is names]
    record.unlink(missing_ok=True)
    env = os.environ | {
        "TEST_API_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_RECORD": str(record), "PYTHONPATH": str(HERE),
        "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "openai_recorder", "-p",
         "no:cacheprovider", "-p", "no:logging", "-o", "addopts=", "-q",
         "--tb=native", *files],
        cwd=root, env=env, capture_output=True, text=True)
    if run.returncode not in (0, 1):  # passed, or some failed
        raise SystemExit(run.stdout[-3000:] + run.stderr[-3000:])
    return [json.loads(line) for line in record.read_text().splitlines()]


def expectation(name):
    if fnmatch.fnmatch(name, SILENT):
        return None
    return next((rule for rule in REFUSED if fnmatch.fnmatch(name, rule[0])),
                None)


def judge(seen):
    """The reason why a test is refused, none if it passed; ends at any other."""
    name = seen["test"].removeprefix("tests/api_resources/")
    if any(fnmatch.fnmatch(name, pattern) for pattern in CLIENTS):
        [call] = seen["calls"]
        if (seen["outcome"], call["status"], call["body"]["encoding_format"]) \
                != ("failed", 200, "base64") or "list_type" not in seen["text"]:
            raise SystemExit(f"{name}: {seen['outcome']}\n{seen['text']}")
        return NO_LISTS
    rule = expectation(name)
    if rule is None:
        if seen["outcome"] != "passed":
            raise SystemExit(f"{name} fails: {seen['calls']}\n{seen['text'][-2000:]}")
        return None
    _, status, part, reason = rule
    answers = [(call["status"], call["error"].get("message", ""))
               for call in seen["calls"]]
    if seen["outcome"] == "passed" or len(answers) != 1 \
            or answers[0][0] != status or part not in answers[0][1]:
        raise SystemExit(f"{name} should be refused with {status} and {part!r}:"
                         f" {seen['outcome']}, {answers}\n{seen['text']}")
    return reason


def unused_rules(every):
    names = [seen["test"].removeprefix("tests/api_resources/") for seen in every]
    used = {id(expectation(name)) for name in names}
    return [rule[0] for rule in REFUSED if id(rule) not in used]


#--- each field by itself -----------------------------------------------------

def try_fields(server, every):
    """Fields that are taken, and those that are refused, by path."""
    taken, refused = collections.defaultdict(set), collections.defaultdict(set)
    bodies = {json.dumps([call["path"], call["body"]]) for seen in every
              if "with_all_params" in seen["test"] for call in seen["calls"]
              if call["path"] in FIELDS and call["method"] == "POST"}
    for path, body in map(json.loads, sorted(bodies)):
        base = {name: body[name] for name in BASE if name in body
                and name not in FIELDS[path]}
        for name in body.keys() - base.keys():
            asked = base | NEEDS.get((path, name), {}) | {name: body[name]}
            status, _, answer = server.call("POST", path, asked)
            is_refused = name in FIELDS[path]
            # A stream is text.
            message = answer["error"]["message"] if status >= 400 else ""
            wanted = (400, 404) if is_refused else (200,)
            if status not in wanted or is_refused and not re.search(
                    FIELDS[path][name], message):
                raise SystemExit(f"{path}: {name} is answered {status}: {answer}")
            (refused if is_refused else taken)[path].add(name)
    for path in taken:
        missing = FIELDS[path].keys() - refused[path]
        assert not missing, f"{path}: no test has {missing}"
    return taken, refused


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:])
    root = find_tests()
    save_generator(folder / "generator")
    save_encoder(folder / "encoder")
    counts, every = collections.Counter(), []
    fields, made = [], 0
    for kind, names in (("generator", GENERATOR), ("encoder", ENCODER)):
        command = [str(binaries / "tessera"), "serve", str(folder / kind),
                   "--port", "0", "--max-batch", "2",
                   *(f"--served-model-name={name}" for name in names), "--set=inference.context=" +
                   ("512" if kind == "generator" else "32")]
        with Server(command) as server:
            # A pipe that nobody empties would stop the server.
            threading.Thread(target=collections.deque, args=(server.log, 0), daemon=True).start()
            with openai_ids.Proxy(server.port, names[0]) as proxy:
                seen = run_tests(root, proxy.port, names, folder / f"{kind}.jsonl")
            made += proxy.made
            counts.update(judge(each) for each in seen)
            fields.append(try_fields(server, seen))
            every += seen
    assert not unused_rules(every), unused_rules(every)
    for taken, refused in fields:
        for path in sorted(taken):
            print(f"{path}: {len(taken[path])} fields are taken, refused are "
                  f"{', '.join(sorted(refused[path])) or 'none'}")
    for reason, count in counts.most_common():
        if reason:
            print(f"refused {count:3}: {reason}")
    print(f"openai {openai.__version__}: passed {counts[None]} of "
          f"{counts.total()} of the client's own tests, {counts.total() - counts[None]} "
          f"refused as they should be; {made} stored answers were made for them")


if __name__ == "__main__":
    main()
