"""docs/features.md against the server: every pair of features that it calls tested is asked for, every one that
it calls refused is refused.  features.py SERVE-CHECK FEATURES.md"""

import collections
import json
import os
import re
import sys
import tempfile
import threading

from serving import Server

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "boolean"}},
          "required": ["a", "b"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
# Of a model that was taught to call tools.
TEMPLATE = """{% for tool in tools or [] %}{{ tool | tojson }} <tool_call></tool_call>{% endfor %}
{%- for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]{{ tone }}"""


def table(path):
    """{(row, column): letter} of the first table."""
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")]
            for line in open(path) if line.startswith("|")]
    names = rows[0][1:] if rows[0][0] == "" else rows[0]
    cells = {}
    for row in rows[2:]:
        if row[0] not in names:
            break
        for name, letter in zip(names, row[1:]):
            cells[row[0], name] = letter
    assert len(cells) == len(names) ** 2, (len(cells), names)
    return names, cells


# An answer has a form by a schema, by a regular expression or by a grammar.
FORMS = {"form": SCHEMA, "form by regex": r"[a-f]{2,12}(,\d{1,3}){1,2}",
         "form by grammar": 'root ::= [a-f]{2,12} numbers\nnumbers ::= "," [0-9]{1,3} numbers?'}


def fields(feature, endpoint):
    """What asks for it."""
    named = {
        "stream": {"stream": True},
        "n": {"n": 3},
        "sampling": {"temperature": 0.9, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 5},
        "penalties": {"frequency_penalty": 0.5, "presence_penalty": 0.2, "repetition_penalty": 1.1},
        "logit_bias": {"logit_bias": {"65": 5, "66": -100}},
        "stop": {"stop": ["\x01", "zz"]},
        "logprobs": {"logprobs": 2} if endpoint == "completions" else {"logprobs": True, "top_logprobs": 2},
        "echo": {"echo": True},
        "ignore_eos": {"ignore_eos": True},
        "stored": {"store": True},
        "variables": {"chat_template_kwargs": {"tone": "calm"}},
        "tools": {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400},
    }
    if feature == "tools" and endpoint == "responses":
        flat = {"type": "function", **TOOL["function"]}
        return {"tools": [flat], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 400}
    if feature not in FORMS:
        return named.get(feature, {})
    if feature != "form" or endpoint == "completions":
        kind = {"form": "json", "form by regex": "regex", "form by grammar": "grammar"}[feature]
        return {"structured_outputs": {kind: FORMS[feature]}, "max_tokens": 60} if endpoint != "responses" else {
            "structured_outputs": {kind: FORMS[feature]}}
    if endpoint == "responses":
        return {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}


def request(endpoint, pair):
    asked = {"completions": {"prompt": "the same beginning of all, ", "max_tokens": 24},
             "chat": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 60},
             "responses": {"input": "hello", "max_output_tokens": 60}}[endpoint]
    asked = {"temperature": 0, **asked}
    for feature in pair:
        asked |= fields(feature, endpoint)
    return asked


def of_choice(endpoint, choice):
    """(text, tokens' logprobs) of a choice, or of a part of one that is streamed."""
    if endpoint == "completions":
        text = choice["text"]
    else:
        said = choice["delta" if "delta" in choice else "message"]
        called = [call["function"] for call in said.get("tool_calls") or []]
        text = (said.get("content") or "") + "".join(each.get("name", "") + each["arguments"] for each in called)
    logprobs = choice.get("logprobs") or {}
    if endpoint == "completions":
        return text, list(zip(logprobs.get("tokens", []), logprobs.get("token_logprobs", [])))
    return text, [(each["token"], each["logprob"]) for each in logprobs.get("content") or []]


def of_body(endpoint, body):
    if endpoint == "responses":
        [item] = body["output"]
        return [(item["name"] + item["arguments"] if "name" in item else item["content"][0]["text"], [])]
    return [of_choice(endpoint, choice) for choice in body["choices"]]


def stored(server, endpoint, made, asked, told):
    """An answer that is the same when it is asked for again, if it is to be there."""
    if endpoint != "completions" and "store" in asked:
        status, _, again = server.call("GET", f"{PATHS[endpoint]}/{made}")
        assert status == 200 and of_body(endpoint, again) == told, (asked, again, told)
    return told


def answer(server, endpoint, asked):
    """[(text, logprobs)] of all choices, in their order."""
    if not asked.get("stream"):
        status, body = server.post(PATHS[endpoint], **asked)
        assert status == 200, (asked, body)
        return stored(server, endpoint, body["id"], asked, of_body(endpoint, body))
    rest = {name: value for name, value in asked.items() if name != "stream"}
    if endpoint == "responses":
        events = server.typed_stream(PATHS[endpoint], **rest)
        item = events[2][1]["item"]
        told = [(item.get("name", "") + "".join(event["delta"] for name, event in events if name.endswith(".delta")), [])]
        return stored(server, endpoint, events[0][1]["response"]["id"], asked, told)
    whole = [("", [])] * asked.get("n", 1)
    events = server.stream(PATHS[endpoint], **rest)
    for event in events:
        for choice in event["choices"]:
            text, logprobs = of_choice(endpoint, choice)
            before = whole[choice["index"]]
            whole[choice["index"]] = before[0] + text, before[1] + logprobs
    return stored(server, endpoint, events[0]["id"], asked, whole)


def check(choices, pair, asked):
    assert len(choices) == asked.get("n", 1), (pair, choices)
    texts = [text for text, _ in choices]
    for _, logprobs in choices:
        assert bool(logprobs) == ("logprobs" in pair), (pair, logprobs)
    if ("form" in pair or "tools" in pair) and "stop" not in pair:
        for text in texts:
            text = text.removeprefix(asked["prompt"]) if "echo" in pair else text
            assert text.startswith("look") == ("tools" in pair), (pair, text)
            value = json.loads(text.removeprefix("look"))
            assert 0 <= value["a"] <= 99 and isinstance(value["b"], bool), (pair, text)
    if ("form by regex" in pair or "form by grammar" in pair) and "stop" not in pair:
        for text in texts:
            text = text.removeprefix(asked["prompt"]) if "echo" in pair else text
            # A grammar's list has no end but that of the tokens.
            assert re.fullmatch(r"[a-f]{2,12}(,[0-9]{1,3}){1,2}" if "form by regex" in pair else r"[a-f]{0,12}(,[0-9]{0,3})*", text), (pair, text)
    if "echo" in pair:
        assert all(text.startswith(asked["prompt"]) for text in texts), (pair, texts)
    # Token 66 is "b", which a form may leave no choice but to take.
    if "logit_bias" in pair and not {*FORMS, "tools"} & set(pair):
        for text in texts:
            text = text.removeprefix(asked["prompt"]) if "echo" in pair else text
            assert "b" not in text and "a" in text, (pair, text)
    if "stop" in pair:
        assert not any("\x01" in text or "zz" in text for text in texts), (pair, texts)


def effect(server, endpoint, asked, wanted, pair):
    """Which of the features that only change what is drawn did so: without them the answer is another."""
    seen = set()
    for feature in {"sampling", "penalties", "ignore_eos"} & set(pair):
        without = {name: value for name, value in asked.items() if name not in fields(feature, endpoint)}
        if "sampling" == feature:
            without["temperature"] = 0
        if answer(server, endpoint, without) != wanted:
            seen.add((feature, *(other for other in pair if other != feature)))
    return seen


def endpoint_of(pair, cells):
    for name in pair:
        if name in PATHS:
            return name
    return next((e for e in ("chat", "completions") if all(cells[e, name] == "T" for name in pair)), "completions")


def main():
    check_program, matrix = os.path.abspath(sys.argv[1]), sys.argv[2]
    names, cells = table(matrix)
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(TEMPLATE)
        file.flush()
        command = [check_program, "--template", file.name]
        # Drafts of a model pay where steps take long.
        with (Server(command) as plain, Server([*command, "--speculate", "4"]) as guessing,
              Server([*command, "--draft", "1", "--slow", "100"]) as drafting):
            for server in (plain, guessing, drafting):  # a line a request is more than a pipe holds
                threading.Thread(target=collections.deque, args=(server.log, 0), daemon=True).start()
            compare(plain, (guessing, drafting), names, cells)


def together(server, jobs):
    """All requests, of which few fit into the cache at once."""
    differ = []

    def ask(mine):
        for pair, endpoint, asked, wanted in mine:
            if answer(server, endpoint, asked) != wanted:
                differ.append(pair)

    threads = [threading.Thread(target=ask, args=(jobs[i::12],)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differ, differ
    metrics = server.call("GET", "/metrics")[2]
    accepted = re.search(r"^tessera:spec_decode_num_accepted_tokens_total (\S+)", metrics, re.MULTILINE)
    assert accepted and float(accepted[1]) > 0, "no draft was accepted"


def compare(plain, speculating, names, cells):
    tested, refused, jobs, effects = 0, 0, [], set()
    pairs = []
    for (one, other), letter in cells.items():
        assert cells[other, one] == letter, (one, other)
        assert (letter == "-") == (one == other or (one in PATHS and other in PATHS)), (one, other)
        if letter == "-" or names.index(one) > names.index(other):
            continue
        endpoint = endpoint_of((one, other), cells)
        pairs.append(((one, other), letter, endpoint))
        if "form" in (one, other):
            pairs += [(tuple(kind if name == "form" else name for name in (one, other)), letter, endpoint)
                      for kind in FORMS if kind != "form"]
    for pair, letter, endpoint in pairs:
        asked = request(endpoint, pair)
        if letter == "R":
            status, body = plain.post(PATHS[endpoint], **asked)
            assert status == 400 and body["error"]["param"], (pair, status, body)
            refused += 1
            continue
        assert letter == "T", (pair, letter)
        wanted = answer(plain, endpoint, asked)
        check(wanted, pair, asked)
        effects |= effect(plain, endpoint, asked, wanted, pair)
        # A stream says what the whole answer says, and drafts change nothing.
        whole = {name: value for name, value in asked.items() if name != "stream"}
        assert answer(plain, endpoint, whole) == wanted, pair
        for server in speculating:
            assert answer(server, endpoint, asked) == wanted, pair
        jobs.append((pair, endpoint, asked, wanted))
        tested += 1
    for server in speculating:
        together(server, jobs)
    # A form, a stop or a bias may leave nothing to change; an endpoint always does.
    for endpoint in PATHS:
        for feature in ("sampling", "penalties"):
            assert (feature, endpoint) in effects, (feature, endpoint, sorted(effects))
    print(f"{tested} pairs tested, {refused} refused")


main()
