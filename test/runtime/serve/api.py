"""The API over a model of hashes: fields, answers, streams, load, limits, the end.
   api.py SERVE-CHECK"""

import base64
import html.parser
import json
import os
import pathlib
import random
import re
import socket
import sys
import tempfile
import threading
import time

from serving import Server

CHECK = os.path.abspath(sys.argv[1])
COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
USER = [{"role": "user", "content": "hello"}]
WEATHER_TOOL = {"type": "function", "function": {"name": "weather"}}


def expect(actual, wanted):
    assert actual == wanted, f"{actual!r} instead of {wanted!r}"


def routes(server):
    expect(server.call("GET", "/health")[2], {"status": "ok"})
    expect(server.call("GET", "/version")[2], {"version": "check"})
    models = server.call("GET", "/v1/models")[2]
    expect([model["id"] for model in models["data"]], ["fake"])
    expect(server.call("GET", "/v1/models/fake")[2]["id"], "fake")
    expect(server.call("GET", "/v1/models/other")[0], 404)
    expect(server.call("GET", "/v1/models/%66ake")[2]["id"], "fake")
    status, headers, body = server.call("PUT", RESPONSES + "/resp_1")
    expect((status, headers["Allow"]), (405, "GET, HEAD, DELETE"))
    expect(body["error"]["message"], "this path supports GET, HEAD, DELETE")
    status, headers, _ = server.call("GET", COMPLETIONS)
    expect((status, headers["Allow"]), (405, "POST"))
    # HEAD is GET without the body, and the connection goes on.
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as peer:
        for path, code in (("/", 200), ("/v1/models", 200), ("/none", 404), (RESPONSES, 405), ("/version", 200)):
            whole = server.call("GET", path)
            peer.sendall(f"HEAD {path} HTTP/1.1\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += peer.recv(1)
            lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
            expect((int(head.split()[1]), lines["Content-Length"]), (code, whole[1]["Content-Length"]))
        peer.sendall(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
        rest = b"".join(iter(lambda: peer.recv(65536), b""))
        assert rest.startswith(b"HTTP/1.1 200") and rest.endswith(b"\r\n\r\n") and rest.count(b"\r\n\r\n") == 1, rest
    foreign = {"Sec-Fetch-Site": "cross-site"}
    expect(server.call("POST", COMPLETIONS, {"model": "fake", "prompt": "a"}, foreign)[0], 403)
    expect(server.call("GET", "/", headers=foreign)[0], 200)  # a link to the page
    status, refused = server.post("/v1/embeddings", input="abc")
    expect((status, refused["error"]["code"]), (400, "not_supported"))
    assert "generates text" in refused["error"]["message"], refused
    expect(server.call("GET", "/none")[0], 404)
    expect(server.call("GET", "/none")[2]["error"]["type"], "invalid_request_error")


def names():
    """Several names for one model; answers have the first."""
    with Server([CHECK, "--name", "first", "--name", "org/second"]) as server:
        expect([m["id"] for m in server.call("GET", "/v1/models")[2]["data"]], ["first", "org/second"])
        for name in ("first", "org/second"):
            expect(server.call("GET", f"/v1/models/{name}")[2]["id"], name)
            answer = server.call("POST", COMPLETIONS, {"model": name, "prompt": "a", "max_tokens": 1})
            expect((answer[0], answer[2]["model"]), (200, "first"))
        status, _, refused = server.call("POST", COMPLETIONS, {"model": "second", "prompt": "a"})
        expect(status, 404)
        assert "first or org/second" in refused["error"]["message"], refused


def unnamed(server):
    """A request without `model`, or with null, is one of the served model."""
    for path, fields in ((COMPLETIONS, {"prompt": "a", "temperature": 0, "max_tokens": 4}),
                         (CHAT, {"messages": USER, "temperature": 0, "max_tokens": 4}),
                         (RESPONSES, {"input": "a", "temperature": 0, "max_output_tokens": 4})):
        status, named = server.post(path, **fields)
        expect(status, 200)
        for body in (fields, {"model": None, **fields}):
            status, _, answer = server.call("POST", path, body)
            expect((status, answer["model"], answer["usage"]["total_tokens"]), (200, server.model, named["usage"]["total_tokens"]))
            if path == RESPONSES:
                expect(answer["output"][0]["content"], named["output"][0]["content"])
            else:
                expect(answer["choices"], named["choices"])
        expect(server.call("POST", path, {"model": "", **fields})[2]["error"]["param"], "model")


def encoder():
    """An encoder has the same routes but for those that generate, and says why."""
    with Server([CHECK, "--embeds", "1", "--name", "vectors", "--name", "other"]) as server:
        expect(server.call("GET", "/health")[2], {"status": "ok"})
        expect(server.call("GET", "/v1/models/other")[2]["max_model_len"], 64)
        paths = server.call("GET", "/openapi.json")[2]["paths"]
        assert "/v1/embeddings" in paths and COMPLETIONS not in paths, paths
        expect(server.call("GET", "/")[1]["Content-Type"], "text/html; charset=utf-8")
        for path in (COMPLETIONS, CHAT, RESPONSES):
            status, _, refused = server.call("POST", path, {"model": "vectors"})
            expect((status, refused["error"]["code"]), (400, "not_supported"))
            assert "generates no text" in refused["error"]["message"], refused
        status, headers, _ = server.call("GET", "/v1/embeddings")
        expect((status, headers["Allow"]), (405, "POST"))
        foreign = {"Sec-Fetch-Site": "cross-site"}
        expect(server.call("POST", "/v1/embeddings", {"model": "vectors", "input": "a"}, foreign)[0], 403)
        expect(server.call("POST", "/v1/embeddings", {"input": "a"})[2]["model"], "vectors")
        expect(server.call("POST", "/tokenize", {"prompt": "abc"})[2]["count"], 3)
        expect(server.call("POST", "/detokenize", {"tokens": [0]})[0], 200)
        refused = server.call("POST", "/tokenize", {"messages": USER})
        expect((refused[0], refused[2]["error"]["message"]), (400, "this server applies no chat template; use prompt"))
        expect(server.call("POST", "/tokenize", {"model": "x", "prompt": "a"})[0], 404)
        tokens = [3, 4, 5]
        status, made = server.post("/v1/embeddings", input=[tokens, [7]])
        expect([each["embedding"] for each in made["data"]], [[12, 14], [7, 0]])
        # The advice is about what is wrong.
        for wrong, says, advised in (([[1] * 65], "input 0: a sequence of 65 tokens", True), (["a", "b" * 65], "input 1: a sequence of", True),
                                     ([[256]], "", False), ([[257]], "input 0: token 257 is outside the vocabulary of 257", False)):
            status, answer = server.post("/v1/embeddings", input=wrong)
            text = answer["error"]["message"] if status == 400 else ""
            assert text.startswith(says) and bool(says) == (status == 400), answer
            expect("; shorten it, or set truncate_prompt_tokens" in text, advised)
        expect(server.post("/v1/embeddings", input="b" * 65, truncate_prompt_tokens=-1)[1]["usage"]["prompt_tokens"], 64)


def tokens(server):
    """A token is a byte here; openai_echo.py has those of a model."""
    status, made = server.post("/tokenize", prompt="abc")
    expect((status, made["count"], made["max_model_len"], made["token_strs"]), (200, 3, 1024, None))
    expect(server.post("/tokenize", prompt="a\n\u00e9", return_token_strs=True)[1]["token_strs"], ["a", "\u010a", "\u00c3", "\u00a9"])
    expect(server.post("/detokenize", tokens=made["tokens"])[1], {"prompt": "abc"})
    chat = server.post("/tokenize", messages=USER, add_special_tokens=True)[1]
    expect(server.post("/detokenize", tokens=chat["tokens"])[1]["prompt"],
           "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    expect(server.post(CHAT, messages=USER, max_tokens=1)[1]["usage"]["prompt_tokens"], chat["count"])
    # Longer than the context, and than what a JSON library would print fast.
    expect(server.post("/tokenize", prompt="a" * 100_000, return_token_strs=True)[1]["token_strs"], ["a"] * 100_000)
    expect(server.post("/detokenize", tokens=made["tokens"] * 100_000)[1]["prompt"], "abc" * 100_000)
    expect(server.post("/detokenize", tokens=[])[1], {"prompt": ""})
    for path, fields, param in (("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": ["a"]}, "prompt"),
                                ("/tokenize", {"prompt": "a", "messages": USER}, "prompt"), ("/tokenize", {"messages": []}, "messages"),
                                ("/tokenize", {"prompt": "a", "return_token_strs": 1}, "return_token_strs"),
                                ("/tokenize", {"messages": USER, "tools": [WEATHER_TOOL]}, "tools"),
                                ("/tokenize", {"prompt": "a", "max_tokens": 1}, "max_tokens"),
                                ("/detokenize", {}, "tokens"), ("/detokenize", {"tokens": "abc"}, "tokens"),
                                ("/detokenize", {"tokens": [-1]}, "tokens"), ("/detokenize", {"tokens": [1 << 40]}, "tokens"),
                                ("/detokenize", {"tokens": [[1]]}, "tokens"), ("/detokenize", {"tokens": [257]}, "tokens")):
        status, answer = server.post(path, **fields)
        expect((status, answer["error"]["param"]), (400, param))
    expect(server.post("/detokenize", tokens=[257])[1]["error"]["message"], "the tokenizer has no token 257")
    expect(server.call("POST", "/tokenize", {"model": "other", "prompt": "a"})[0], 404)


def completions(server):
    def post(**fields):
        return server.post(COMPLETIONS, max_tokens=30, ignore_eos=True, **fields)

    status, one = post(prompt="abc", seed=7)
    expect(status, 200)
    expect(one["choices"][0]["finish_reason"], "length")
    usage = one["usage"]
    expect((usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]), (3, 30, 33))
    expect(post(prompt="abc", seed=7)[1]["choices"], one["choices"])
    assert post(prompt="abc", seed=8)[1]["choices"] != one["choices"]
    # Tokens are bytes here, in another order: a prompt may be of ids.
    ids = list(range(256))
    expect(len(post(prompt=[ids, ids], n=2)[1]["choices"]), 4)
    text = one["choices"][0]["text"]
    stop = text[10:12]
    _, stopped = post(prompt="abc", seed=7, stop=["never", stop])
    expect(stopped["choices"][0]["text"], text[: text.index(stop)])
    expect(stopped["choices"][0]["finish_reason"], "stop")
    only = post(prompt="x", logit_bias={"65": 100}, logprobs=2)[1]["choices"][0]
    expect(len(only["logprobs"]["tokens"]), 30)
    expect({len(top) for top in only["logprobs"]["top_logprobs"]} - {1, 2}, set())  # bytes of characters share a text
    assert len(set(only["text"])) == 1, only["text"]


def streams(server):
    for path, fields in ((COMPLETIONS, {"prompt": "abc"}), (CHAT, {"messages": USER})):
        fields |= {"seed": 3, "n": 3, "max_tokens": 40, "stop": "\u0001"}
        _, whole = server.post(path, **fields)
        texts, ends = [""] * 3, [None] * 3
        events = server.stream(path, stream_options={"include_usage": True}, **fields)
        for event in events[:-1]:
            [choice] = event["choices"]
            part = choice["delta"].get("content", "") if path == CHAT else choice["text"]
            texts[choice["index"]] += part
            ends[choice["index"]] = choice["finish_reason"] or ends[choice["index"]]
        wanted = [c["message"]["content"] if path == CHAT else c["text"] for c in whole["choices"]]
        expect(texts, wanted)
        expect(ends, [c["finish_reason"] for c in whole["choices"]])
        expect({event["usage"] for event in events[:-1]}, {None})
        expect(events[-1]["choices"], [])
        expect(events[-1]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
    lines = server.stream(CHAT, messages=USER, logprobs=True, top_logprobs=3, max_tokens=4, ignore_eos=True)
    tops = [t for e in lines for c in e["choices"] for t in (c["logprobs"] or {"content": []})["content"]]
    expect([len(token["top_logprobs"]) for token in tops], [3] * 4)


def offsets(server):
    """text_offset counts characters of the text, also where one has several bytes."""
    fields = {"prompt": "abc", "seed": 11, "max_tokens": 200, "ignore_eos": True, "logprobs": 0}
    _, whole = server.post(COMPLETIONS, **fields)
    text, logprobs = whole["choices"][0]["text"], whole["choices"][0]["logprobs"]
    assert len(text) < len(text.encode())  # bytes that are no character become U+FFFD
    place = {}
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
        if len(token) == 1 and token.isascii():  # no special token, no part of a character
            expect(text[offset : offset + 1], token)
            place[offset] = token
    assert len(place) > 30, place
    parts = [c["logprobs"]["text_offset"] for e in server.stream(COMPLETIONS, **fields)
             for c in e["choices"] if c["logprobs"]]
    expect([offset for part in parts for offset in part], logprobs["text_offset"])


def no_tokens(server):
    """0 tokens: the prompt is read, and the answer is empty and ends at its length."""
    for path, fields in ((COMPLETIONS, {"prompt": "abc", "max_tokens": 0}), (CHAT, {"messages": USER, "max_completion_tokens": 0}),
                         (CHAT, {"messages": USER, "max_tokens": 0, "n": 3, "logprobs": True})):
        status, whole = server.post(path, **fields)
        expect(status, 200)
        for choice in whole["choices"]:
            expect((choice["message"]["content"] if path == CHAT else choice["text"], choice["finish_reason"]), ("", "length"))
        expect(len(whole["choices"]), fields.get("n", 1))
        assert whole["usage"]["prompt_tokens"] > 2 and whole["usage"]["completion_tokens"] == 0, whole
        events = server.stream(path, **fields)
        expect({e["choices"][0]["index"]: e["choices"][0]["finish_reason"] for e in events},
               {i: "length" for i in range(fields.get("n", 1))})
    status, whole = server.post(RESPONSES, input="hello", max_output_tokens=0)
    expect((status, whole["status"], whole["incomplete_details"]), (200, "incomplete", {"reason": "max_output_tokens"}))
    expect((whole["output"][0]["content"][0]["text"], whole["usage"]["output_tokens"]), ("", 0))
    expect(server.typed_stream(RESPONSES, input="hello", max_output_tokens=0)[-1][0], "response.incomplete")
    # It may fill the context, and the next that begins so finds it read.
    full = [65] * 1024
    expect(server.post(COMPLETIONS, prompt=full, max_tokens=0)[0], 200)
    expect(server.post(COMPLETIONS, prompt=full, max_tokens=0)[1]["usage"]["prompt_tokens_details"]["cached_tokens"], 1008)
    expect(server.post(COMPLETIONS, prompt=full, max_tokens=1)[0], 400)
    expect(server.post(COMPLETIONS, prompt=[65] * 1025, max_tokens=0)[0], 400)


def echoes(server):
    """The prompt again, and what it is worth: as likely as if it had been generated."""
    fields = {"seed": 5, "max_tokens": 40, "ignore_eos": True, "logprobs": 2}
    _, plain = server.post(COMPLETIONS, prompt="abc", **fields)
    status, whole = server.post(COMPLETIONS, prompt="abc", echo=True, **fields)
    expect(status, 200)
    [one], [bare] = whole["choices"], plain["choices"]
    expect(one["text"], "abc" + bare["text"])
    expect(one["logprobs"]["tokens"], ["a", "b", "c", *bare["logprobs"]["tokens"]])
    expect(one["logprobs"]["token_logprobs"][3:], bare["logprobs"]["token_logprobs"])
    expect(one["logprobs"]["text_offset"], [0, 1, 2, *(3 + at for at in bare["logprobs"]["text_offset"])])
    expect((one["logprobs"]["token_logprobs"][0], one["logprobs"]["top_logprobs"][0]), (None, None))
    expect(whole["usage"], plain["usage"])
    # As tokens: what was generated, scored as a prompt.
    bytes_of = [server.post(COMPLETIONS, prompt=[[i] for i in range(begin, begin + 128)], max_tokens=0, echo=True)[1]["choices"]
                for begin in (0, 128)]
    ids = {choice["text"]: i for i, choice in enumerate(bytes_of[0] + bytes_of[1])}
    text = "aabbcabcabc" * 9
    _, scored = server.post(COMPLETIONS, prompt=[ids[c] for c in text], echo=True, max_tokens=0, logprobs=1)
    expect(scored["choices"][0]["text"], text)
    marks = scored["choices"][0]["logprobs"]["token_logprobs"]
    for at in (1, 17, 64, 98):
        _, drawn = server.post(COMPLETIONS, prompt=text[:at], max_tokens=1, logprobs=0, logit_bias={str(ids[text[at]]): 100}, temperature=0)
        expect(drawn["choices"][0]["logprobs"]["token_logprobs"], [marks[at]])
    # Whole, and as a stream; several; stops are not looked for in the prompt.
    for more in ({}, {"n": 2, "logprobs": None}, {"stop": "b"}, {"prompt": ["xy\u00e9", "", "<|endoftext|>b"]}):
        asked = {"prompt": "ab" * 30, "echo": True} | fields | more
        _, whole = server.post(COMPLETIONS, **asked)
        texts = [""] * len(whole["choices"])
        marks = [[] for _ in texts]
        for event in server.stream(COMPLETIONS, **asked):
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
                marks[choice["index"]] += (choice["logprobs"] or {"token_logprobs": []})["token_logprobs"]
        expect(texts, [choice["text"] for choice in whole["choices"]])
        prompts = asked["prompt"] if isinstance(asked["prompt"], list) else [asked["prompt"]] * len(texts)
        for prompt, text in zip(prompts, texts, strict=True):
            assert text.startswith(prompt), (prompt, text)
        if asked["logprobs"] is not None:
            expect(marks, [choice["logprobs"]["token_logprobs"] for choice in whole["choices"]])
    server.wait_until_idle()
    expect(server.metric("kv_pages_used"), 0)


def speaks_first(server):
    """A response that is asked for nothing: the model begins, as its template has it."""
    status, _, made = server.call("POST", RESPONSES, {"seed": 4, "max_output_tokens": 20})
    expect((status, made["model"]), (200, server.model))
    _, wanted = server.post(COMPLETIONS, prompt="<|im_start|>assistant\n", seed=4, max_tokens=20, stop="<|im_end|>")
    expect(made["output"][0]["content"][0]["text"], wanted["choices"][0]["text"])
    expect(server.call("GET", f"{RESPONSES}/{made['id']}/input_items")[2]["data"], [])
    page = server.call("GET", f"{RESPONSES}/{made['id']}/input_items?limit=0")[2]
    expect((page["data"], page["has_more"]), ([], False))
    # It goes on from what it has said, and from instructions alone.
    _, _, more = server.call("POST", RESPONSES, {"previous_response_id": made["id"], "max_output_tokens": 2})
    assert more["usage"]["input_tokens"] > made["usage"]["input_tokens"], more
    _, _, told = server.call("POST", RESPONSES, {"instructions": "be kind", "max_output_tokens": 2})
    page = server.call("GET", f"{RESPONSES}/{server.post(RESPONSES, input='a', max_output_tokens=1)[1]['id']}/input_items?limit=0")[2]
    expect((page["data"], page["has_more"], told["status"]), ([], True, "incomplete"))
    expect(server.call("POST", RESPONSES, {"model": "other"})[0], 404)
    expect(server.call("POST", RESPONSES, {"model": ""})[2]["error"]["param"], "model")


def responses(server):
    fields = {"input": "hello", "seed": 9, "max_output_tokens": 30, "instructions": "be kind", "metadata": {"a": "b"}}
    status, whole = server.post(RESPONSES, **fields)
    expect(status, 200)
    expect((whole["object"], whole["status"], whole["store"]), ("response", "incomplete", True))
    expect(whole["incomplete_details"], {"reason": "max_output_tokens"})
    expect((whole["instructions"], whole["metadata"]), ("be kind", {"a": "b"}))
    [message] = whole["output"]
    [part] = message["content"]
    expect((message["role"], part["type"]), ("assistant", "output_text"))
    expect(whole["usage"]["output_tokens"], 30)
    # The same prompt as that of a chat.
    chat = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    as_chat = server.post(CHAT, messages=chat, seed=9, max_tokens=30)[1]
    expect(part["text"], as_chat["choices"][0]["message"]["content"])
    items = [{"role": "developer", "content": "be kind"},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    listed = server.post(RESPONSES, input=items, seed=9, max_output_tokens=30)[1]
    expect(listed["output"][0]["content"], message["content"])
    expect(listed["usage"]["input_tokens"], whole["usage"]["input_tokens"])

    events = server.typed_stream(RESPONSES, **fields)
    expect([data["type"] for _, data in events], [name for name, _ in events])
    expect([data["sequence_number"] for _, data in events], list(range(len(events))))
    names = [name for name, _ in events if name != "response.output_text.delta"]
    expect(names, ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                   "response.output_text.done", "response.content_part.done", "response.output_item.done",
                   "response.incomplete"])
    deltas = [data["delta"] for name, data in events if name == "response.output_text.delta"]
    expect("".join(deltas), part["text"])
    last = events[-1][1]["response"]
    expect(last["output"][0]["content"], message["content"])
    expect(last["usage"]["output_tokens"], 30)
    stop = part["text"][5]
    done = server.post(RESPONSES, **fields, stop=stop)[1]
    expect((done["status"], done["incomplete_details"]), ("completed", None))
    expect(server.typed_stream(RESPONSES, **fields, stop=stop)[-1][0], "response.completed")

    for name, value in {
        "conversation": "c", "tools": [{"type": "web_search"}], "store": "yes",
        "background": 1, "text": {"format": {"type": "xml"}}, "truncation": "x", "include": ["x"],
        "reasoning": {"effort": "low"}, "top_logprobs": 1, "prompt": {"id": "x"}, "max_output_tokens": -1,
        "instructions": 3, "messages": chat, "metadata": {"a": 1}, "stream_options": {"include_usage": True},
        "input": [{"type": "item_reference", "id": "x"}],
    }.items():
        status, answer = server.post(RESPONSES, **{"input": "a", name: value})
        expect((name, status, answer["error"]["param"]), (name, 400, name))
    expect(server.post(RESPONSES, input=[])[1]["error"]["param"], "input")


def forms(server):
    """The model knows no JSON, and writes it nevertheless."""
    schema = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"], "properties": {
        "name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "ab", None]}, "maxItems": 3}}}

    def check(text):
        value = json.loads(text)
        expect(list(value), ["name", "age", "tags"])
        assert len(value["name"]) <= 5 and 0 <= value["age"] <= 120, value
        assert len(value["tags"]) <= 3 and set(value["tags"]) <= {"a", "ab", None}, value

    asked = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    status, whole = server.post(CHAT, messages=USER, n=8, seed=1, response_format=asked)
    expect(status, 200)
    for choice in whole["choices"]:
        expect(choice["finish_reason"], "stop")
        check(choice["message"]["content"])
    events = server.stream(CHAT, messages=USER, seed=1, response_format=asked)
    streamed = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
    expect(streamed, whole["choices"][0]["message"]["content"])
    _, response = server.post(RESPONSES, input="hello", text={"format": {"type": "json_schema", "name": "p", "schema": schema}})
    check(response["output"][0]["content"][0]["text"])
    expect(response["text"]["format"], {"type": "json_schema", "name": "p", "schema": schema})
    _, some = server.post(CHAT, messages=USER, seed=2, max_tokens=60, response_format={"type": "json_object"})
    assert some["choices"][0]["message"]["content"].lstrip().startswith("{"), some
    status, error = server.post(CHAT, messages=USER, response_format={
        "type": "json_schema", "json_schema": {"schema": {"properties": {"a": {"$ref": "#"}}, "required": ["a"]}}})
    expect((status, error["error"]["param"]), (400, "response_format"))
    assert "no finite string" in error["error"]["message"], error


def exact_forms(server):
    """Regular expressions, grammars and choices, by every name that they have."""
    pattern, number = r"(yes|no){1,3}[,;]\d{2,4}\n?", re.compile(r"(yes|no){1,3}[,;][0-9]{2,4}\n?")
    rules = 'root ::= item ("," root)?\nitem ::= "(" root? ")" | [0-9é]{1,2}\n'

    def is_list(text):
        before = None
        while before != text:
            before, text = text, re.sub(r"\((?:1(?:,1)*)?\)", "1", re.sub(r"[0-9é]{1,2}", "1", text) if before is None else text)
        return re.fullmatch("1(?:,1)*", text) is not None

    words = ["yes", "yesterday", "no", "日本"]
    forms = [({"regex": pattern}, lambda text: number.fullmatch(text)), ({"grammar": rules}, is_list),
             ({"choice": words}, lambda text: text in words),
             ({"json": {"type": "integer", "minimum": 3}}, lambda text: int(text) >= 3),
             ({"json": '{"enum": ["a", 1]}'}, lambda text: json.loads(text) in ("a", 1)),
             ({"json_object": True}, lambda text: isinstance(json.loads(text), dict))]
    tried, whole = 0, 0
    for form, right in forms:
        [(kind, value)] = form.items()
        names = [{"structured_outputs": form}]
        if kind != "json_object":
            names.append({"guided_" + kind: value})
        names += {"regex": [{"regex": value}], "grammar": [{"grammar": value}, {"ebnf": value}]}.get(kind, [])
        for seed, asked in enumerate(names):
            texts = []
            _, body = server.post(COMPLETIONS, prompt="a", max_tokens=100, n=4, seed=seed, **asked)
            texts += [(c["text"], c["finish_reason"]) for c in body["choices"]]
            _, body = server.post(CHAT, messages=USER, max_tokens=100, n=4, seed=seed, **asked)
            texts += [(c["message"]["content"], c["finish_reason"]) for c in body["choices"]]
            _, body = server.post(RESPONSES, input="a", max_output_tokens=100, seed=seed, **asked)
            expect(body["text"]["format"], {"type": "text"})
            texts.append((body["output"][0]["content"][0]["text"], "stop" if body["status"] == "completed" else "length"))
            for text, reason in texts:
                tried += 1
                whole += reason == "stop"
                assert reason != "stop" or right(text), (asked, text)
    assert whole > tried / 2, (whole, tried)
    for asked, param, message in [
            ({"guided_regex": "b(a"}, "guided_regex", "is wrong at byte 1: a group without its )"), ({"regex": 1}, "regex", "must be a string"),
            ({"structured_outputs": {"grammar": "root ::= root \"a\" |"}}, "structured_outputs", "begins with itself"),
            ({"ebnf": "root ::= a"}, "ebnf", "line 1, column 10"), ({"grammar": "(" * 60_000}, "grammar", "line 1, column 1"),
            ({"structured_outputs": {"choice": []}}, "structured_outputs", "1 to 20000"),
            ({"structured_outputs": {"structural_tag": "a"}}, "structured_outputs", "structural_tag is not supported"),
            ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs",
             "structured_outputs.regex and structured_outputs.choice both request structured output"),
            ({"structured_outputs": {"regex": "a", "disable_any_whitespace": True}}, "structured_outputs",
             "disable_any_whitespace must be false"),
            ({"structured_outputs": {"choice": 1}}, "structured_outputs", "must be a list"),
            ({"structured_outputs": {"json_object": False}}, "structured_outputs", "json_object must be true, or left out"),
            ({"structured_outputs": {}}, "structured_outputs", "must have one of json, regex, choice, grammar, json_object"),
            ({"structured_outputs": {"regex": None, "disable_fallback": False}}, "structured_outputs", "must have one of"),
            ({"grammar": "root ::= \"a\"", "regex": "b"}, "grammar", "both request"),
            ({"regex": "a(?=b)"}, "regex", "lookahead"), ({"structured_outputs": []}, "structured_outputs", "must be an object")]:
        for path in (COMPLETIONS, CHAT):
            given = {"prompt": "a"} if path == COMPLETIONS else {"messages": USER}
            status, error = server.post(path, **given, **asked)
            expect((status, error["error"]["param"]), (400, param))
            assert message in error["error"]["message"] and "\n" not in error["error"]["message"], error
    tools = [{"type": "function", "function": {"name": "f"}}]
    expect(server.post(CHAT, messages=USER, regex="a", tools=tools)[1]["error"]["param"], "regex")
    # One that is too ambiguous ends its own request and nothing else, and is no failure of the server.
    failed, deep = server.metric('request_success_total{finished_reason="error"}'), 'root ::= (((""{1000}){1000}){1000}) "a"'
    for asked, param, named in [({"grammar": deep}, "grammar", "grammar"),
                                ({"structured_outputs": {"grammar": deep}}, "structured_outputs", "structured_outputs.grammar"),
                                ({"ebnf": 'root ::= (""{100000}){1000} "a"'}, "ebnf", "ebnf")]:
        status, error = server.post(COMPLETIONS, prompt="a", **asked)
        expect((status, error["error"]["param"], error["error"]["type"]), (400, param, "invalid_request_error"))
        assert error["error"]["message"].startswith(named + ": "), error
    expect(server.metric('request_success_total{finished_reason="error"}'), failed)
    expect(server.metric('request_success_total{finished_reason="form"}') >= 3, True)
    off = {"disable_any_whitespace": False, "disable_fallback": False, "disable_additional_properties": None}
    expect(server.post(COMPLETIONS, prompt="a", structured_outputs={"regex": "ab?c", **off})[1]["choices"][0]["text"] in ("ac", "abc"),
           True)
    # Whole before its first token.
    for asked in ({"regex": ""}, {"structured_outputs": {"choice": [""]}}):
        [choice] = server.post(COMPLETIONS, prompt="a", **asked)[1]["choices"]
        expect((choice["text"], choice["finish_reason"]), ("", "stop"))
        [choice] = server.post(CHAT, messages=USER, **asked)[1]["choices"]
        expect((choice["message"]["content"], choice["finish_reason"]), ("", "stop"))


def metrics(server):
    server.wait_until_idle()
    text = server.call("GET", "/metrics")[2]
    assert 'tessera:build_info{version="check"} 1' in text
    expect(server.metric("compilations_after_ready_total"), 0)
    assert re.search(r"^tessera: ready in \d+\.\d\d s \(.*first token \d+\.\d\d\)$", "".join(server.lines), re.M)
    resident = int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1]) * 1024
    assert 0.5 < server.metric("process_resident_memory_bytes") / resident < 2
    expect((server.metric("kv_pages"), server.metric("kv_pages_used")), (64, 0))
    names = re.findall(r"^# TYPE (\S+) ", text, re.M)
    expect(len(names), len(set(names)))
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)", text, re.M):
        expect((name, name.endswith("_total")), (name, kind == "counter"))
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \S+ .+|[a-z0-9_:]+(\{[a-z_]+="[^"]*"\})? [-+0-9.e]+', line), line


def page(server):
    """Its files are there, of the right types, kept until they change, and run nothing
    of others; the elements, metrics and paths that its scripts name exist."""
    status, headers, text = server.call("GET", "/")
    expect((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))

    class Reader(html.parser.HTMLParser):
        open, ids, files = [], set(), []

        def handle_starttag(self, tag, attributes):
            given = dict(attributes)
            # Nothing comes from elsewhere, and nothing is inline that the policy forbids.
            for name in ("src", "href", "action"):
                address = given.get(name, "")
                assert name not in given or address.startswith(("data:", "#", "page/")), given
                if address.startswith("page/"):
                    self.files.append(address)
            assert not any(name == "style" or name.startswith("on") for name in given), given
            self.ids.add(given.get("id"))
            if tag not in ("meta", "link", "input"):
                self.open.append(tag)

        def handle_endtag(self, tag):
            expect(self.open.pop(), tag)

        def handle_data(self, data):
            assert not data.strip() or self.open[-1] not in ("script", "style"), data

    reader = Reader()
    reader.feed(text)
    expect(reader.open, [])
    files, scripts, etags = list(reader.files), {"page/index.html": text}, {headers["ETag"]}
    for path in files:  # grows by what these import
        status, headers, body = server.call("GET", "/" + path)
        kind = {"css": "text/css", "js": "text/javascript"}[path.rsplit(".", 1)[1]]
        expect((status, headers["Content-Type"], headers["Cache-Control"]), (200, f"{kind}; charset=utf-8", "no-cache"))
        assert "http:" not in body.replace("http://www.w3.org/2000/svg", "").replace('"http:"', "") and "@import" not in body, path
        files += [name for each in re.findall(r'from "\./(\w+\.js)"', body) if (name := "page/" + each) not in files]
        scripts[path] = body
        # The same file again is not sent again.
        etag = headers["ETag"]
        assert etag not in etags, path
        etags.add(etag)
        for known, wanted in ((etag, 304), (f'"x", W/{etag}', 304), ('"x"', 200)):
            status, headers, again = server.call("GET", "/" + path, headers={"If-None-Match": known})
            expect((status, again, headers["ETag"]), (wanted, body if wanted == 200 else "", etag))
        expect(server.call("HEAD", "/" + path)[2], "")
        policy = dict(each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";"))
        expect((policy["default-src"], policy["script-src"], policy["style-src"]), ("'none'", "'self'", "'self'"))
    source = pathlib.Path(__file__).resolve().parents[3] / "runtime/serve/page"
    expect(sorted(files), sorted(f"page/{each.name}" for each in source.iterdir() if each.suffix != ".html"))
    expect(server.call("GET", "/page/none.js")[0], 404)
    expect(server.call("GET", "/page/..%2fPage.cpp")[0], 404)
    expect(server.call("POST", "/page/main.js")[0], 405)
    every = "".join(scripts.values())
    for used in re.findall(r'\bat\("(\w[\w-]*)"\)', every):
        assert used in reader.ids, used
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", every)
    known = server.metric_names()
    for used in re.findall(r'(?:\bvalues|\bv)\.(\w+)|quantile\("(\w+)"|rateOf\(now, before, "(\w+)"', scripts["page/metrics.js"] + scripts["page/panel.js"]):
        assert "".join(used) in {each.removesuffix("_bucket") for each in known} | known, used
    for path in re.findall(r'"(v1/[a-z0-9/]+|metrics|openapi.json)"', every):
        assert server.call("GET", "/" + path)[0] in (200, 400, 405), path


def refused_fields(server):
    fields = [
        (COMPLETIONS, {}, "prompt"),
        (COMPLETIONS, {"prompt": []}, "prompt"),
        (COMPLETIONS, {"prompt": ["a"] * 500_000}, "prompt"),
        (COMPLETIONS, {"prompt": [257]}, "prompt"),
        (COMPLETIONS, {"prompt": [-1]}, "prompt"),
        (COMPLETIONS, {"prompt": "a" * 3000}, "prompt"),
        (COMPLETIONS, {"prompt": "a", "echo": 1}, "echo"),
        (COMPLETIONS, {"prompt": "a" * 1000, "n": 128, "echo": True, "max_tokens": 0, "logprobs": 5}, "logprobs"),
        (COMPLETIONS, {"prompt": "a", "best_of": 2}, "best_of"),
        (COMPLETIONS, {"prompt": "a", "suffix": "b"}, "suffix"),  # of a tokenizer that knows no gaps
        (COMPLETIONS, {"prompt": [65], "suffix": "b"}, "suffix"),
        (CHAT, {"messages": USER, "audio": "loud"}, "audio"),
        (CHAT, {"messages": USER, "modalities": ["text", "audio"], "audio": {"voice": "ash", "format": "wav"}}, "modalities"),
        (CHAT, {"messages": USER, "web_search_options": {}}, "web_search_options"),
        (COMPLETIONS, {"prompt": "a", "logprobs": 21}, "logprobs"),
        (COMPLETIONS, {"prompt": "a", "messages": USER}, "messages"),
        (COMPLETIONS, {"prompt": "a", "temprature": 1}, "temprature"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "http://x"}]}]}, "messages"),
        (CHAT, {"messages": USER, "tools": [{}]}, "tools"),
        (CHAT, {"messages": USER, "response_format": {"type": "xml"}}, "response_format"),
        (CHAT, {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"schema": {"pattern": "(?=a)"}}}}, "response_format"),
        (CHAT, {"messages": USER, "top_logprobs": 2}, "top_logprobs"),
        (COMPLETIONS, {"prompt": ["a"] * 128, "max_tokens": 200, "logprobs": 20}, "logprobs"),
        (CHAT, {"messages": USER, "stream_options": {"include_use": True}}, "stream_options"),
    ]
    for name, values in {
        "n": [0, -1, 1.5, 129, 2**70, "2"],
        "max_tokens": [-1, 0.5, 2**40, 1e300],
        "temperature": [-1, 2.1, "1", True],
        "top_p": [0, -1, 1.1],
        "min_p": [-0.1, 2],
        "top_k": [-1, 0.5],
        "presence_penalty": [-2.1, 3],
        "frequency_penalty": [9],
        "stop": [[""], ["x"] * 17, "y" * 2000, 4],
        "seed": [1.5, "1", 1e300],
        "logit_bias": [{"x": 1}, {"1": 101}, [1], {"-1": 1}, {"257": 1}],
        "stream": [1],
        "priority": [1001, -1e9, 0.5, "1", 1],  # the last: without the option
    }.items():
        fields += [(CHAT, {"messages": USER, name: value}, name) for value in values]
    for path, body, param in fields:
        status, answer = server.post(path, **body)
        assert status == 400, (str(body)[:200], status, answer)
        assert answer["error"]["param"] == param, (str(body)[:200], answer)
        assert answer["error"]["message"] and "\n" not in answer["error"]["message"]
    expect(server.call("POST", CHAT, {"model": "other", "messages": USER})[0], 404)
    # There is one tier, and whoever asks for another is told so.
    for path, field in ((CHAT, {"messages": USER, "max_tokens": 1}), (RESPONSES, {"input": "a", "max_output_tokens": 1})):
        assert "service_tier" not in server.post(path, **field)[1]
        expect(server.post(path, **field, service_tier="priority")[1]["service_tier"], "default")
    expect(server.post(COMPLETIONS, prompt="a", temperature=1e-40, max_tokens=2, n=None, user="me", suffix="")[0], 200)
    # What asks for nothing is no mistake.
    expect(server.post(COMPLETIONS, prompt="a", max_tokens=2, best_of=0, logit_bias={"x": 0}, stream_options={"include_usage": True})[0], 200)
    expect(server.post(CHAT, messages=USER, max_tokens=2, modalities=["text"], audio={"voice": "ash", "format": "wav"})[0], 200)


def hostile_bytes(server):
    def post(body, headers=""):
        return (f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n{body}").encode()

    def status(data):
        got = server.raw(data)
        return int(got.split()[1]) if got else None

    expect(status(b"GET /health HTTP/1.1\r\nX: " + b"a" * 10_000_000 + b"\r\n\r\n"), 431)
    expect(status(b"GET /health HTTP/1.1\r\n" + b"Header: some value\r\n" * 1000 + b"\r\n"), 431)
    expect(status(b"\x16\x03\x01\x02\x00\x01\x00\x01"), 400)
    expect(status(post("{}", "Transfer-Encoding: chunked\r\n")), 400)  # request smuggling
    expect(status(f"POST {CHAT} HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n".encode()), 400)
    def message(data):
        return json.loads(server.raw(data).split(b"\r\n\r\n", 1)[1])["error"]["message"]

    large = f"POST {CHAT} HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n".encode()
    expect(status(large), 413)
    expect(message(large), "the body is too large: the limit is 4194304 bytes, got 99999999")
    answer = json.loads(server.raw(large.replace(CHAT.encode(), b"/v1/messages")).split(b"\r\n\r\n", 1)[1])
    expect((answer["type"], answer["error"]["type"]), ("error", "request_too_large"))
    chunked = f"POST {CHAT} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    expect(status(chunked + (b"10\r\n" + b"x" * 16 + b"\r\n") * 280_000), 413)
    expect(message(chunked + (b"10\r\n" + b"x" * 16 + b"\r\n") * 280_000), "the body is too large: the limit is 4194304 bytes")
    expect(status(chunked + b"zz\r\n"), 400)
    for body in ("[" * 3000, '{"a":' * 3000, "", "[]", "null", '{"model": "\xff', '{"messages": [NaN]}', "\0" * 100):
        expect(status(post(body, "Connection: close\r\n")), 400)
    # Two requests in one packet are answered in their order.
    twice = b"GET /version HTTP/1.1\r\n\r\n" + b"GET /none HTTP/1.1\r\nConnection: close\r\n\r\n"
    assert server.raw(twice).index(b"200 OK") < server.raw(twice).index(b"404 Not Found")


def mixed_load(server):
    """Whatever runs beside it, a request gives what it gives alone."""
    random.seed(5)
    shared = "You are a careful assistant. " * 8
    wanted, got = {}, {}
    requests = []
    for i in range(60):
        fields = {"prompt": shared * (i % 3) + str(i), "seed": i, "max_tokens": 5 + i * 7 % 300, "temperature": i % 3 / 2}
        requests.append(fields)
        wanted[i] = server.post(COMPLETIONS, **fields)[1]["choices"]

    def run(i):
        if i % 5 == 0:  # one that leaves in the middle of its answer
            with socket.create_connection(("127.0.0.1", server.port)) as peer:
                body = json.dumps({"model": "fake", "stream": True, **requests[i], "max_tokens": 600})
                peer.sendall(f"POST {COMPLETIONS} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                peer.recv(100)
        got[i] = server.post(COMPLETIONS, **requests[i])[1].get("choices")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(got, wanted)
    server.wait_until_idle()
    expect(server.metric("kv_cache_usage_perc"), 0)
    assert server.metric("num_preemptions_total") > 0
    assert server.metric("prefix_cache_hits_total") > 1000


def many_connections(server):
    """Whoever has waited longest makes room; where all have begun a request, who comes is turned away."""
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(600)]
    expect(server.call("GET", "/version")[0], 200)
    for peer in idle:
        peer.settimeout(10)
    expect(idle[0].recv(100), b"")
    idle[-1].sendall(b"GET /version HTTP/1.1\r\n\r\n")
    assert idle[-1].recv(100).startswith(b"HTTP/1.1 200")
    begun = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(600)]
    for peer in begun[:-1]:
        try:
            peer.sendall(f"POST {CHAT} HTTP/1.1\r\nContent-Length: 10\r\n\r\n".encode())
        except OSError:
            pass  # closed before
    time.sleep(0.5)
    late = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(600)]
    late[-1].settimeout(10)
    for peer in late:
        try:
            peer.sendall(f"POST {CHAT} HTTP/1.1\r\nContent-Length: 10\r\n\r\n".encode())
        except OSError:
            pass
    time.sleep(0.5)
    refused = server.raw(b"GET /version HTTP/1.1\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in refused, refused
    expect(json.loads(refused.split(b"\r\n\r\n", 1)[1])["error"]["code"], "too_many_connections")
    for peer in idle + begun + late:
        peer.close()
    # They are noticed one by one.
    status = 503
    for _ in range(200):
        try:
            status = server.call("GET", "/version")[0]
        except OSError:
            continue
        if status == 200:
            break
    expect(status, 200)
    counted = re.search(r'http_responses_total\{code="503"\} (\d+)', server.call("GET", "/metrics")[2])
    assert counted and int(counted[1]) > 0


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


def keys():
    with Server([CHECK, "--key", "first", "--key", "second"]) as server:
        for path in ("/health", "/metrics", "/version", "/v1/models", "/none", "/", "/openapi.json", RESPONSES):
            expect(server.call("GET", path)[0], 401)
            for wrong in ("Bearer", "Bearer firs", "Bearer firstfirst", "Basic first", "Bearer second2", "", "first",
                          basic("first"), basic(":firs"), basic(":first:"), "Basic =", "Basic " + "A" * 5000):
                expect(server.call("GET", path, headers={"Authorization": wrong})[0], 401)
        for key in ("first", "second"):
            for right in (f"Bearer {key}", basic(f"anyone:{key}")):
                expect(server.call("GET", "/health", headers={"Authorization": right})[0], 200)
                expect(server.call("GET", "/", headers={"Authorization": right})[0], 200)


def order():
    """A short request of another key, or of a lower priority, does not wait for 64 that came first."""
    with Server([CHECK, "--key", "first", "--key", "second", "--slow", "4000", "--priorities", "1"]) as server:
        def post(key, **fields):
            return server.call("POST", COMPLETIONS, {"ignore_eos": True, **fields}, {"Authorization": f"Bearer {key}"})[0]

        for key, fields in (("second", {}), ("first", {"priority": -1})):
            many = threading.Thread(target=post, args=("first",), kwargs={"prompt": ["abc"] * 64, "max_tokens": 24})
            many.start()
            while "num_requests_running 8\n" not in server.call("GET", "/metrics", None, {"Authorization": "Bearer first"})[2]:
                pass
            expect(post(key, prompt="d", max_tokens=4, **fields), 200)
            assert many.is_alive(), key
            many.join()


def impatience():
    with Server([CHECK, "--patience", "300"]) as server:
        chunked = f"POST {CHAT} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        expect(server.raw(chunked + b"1\r\n"), b"")  # no more comes: closed


def health():
    """Long prompts and full queues are no illness, and probes no load; a model that hangs is one."""
    with Server([CHECK, "--slow-read", "200000", "--health", "300", "--requests", "2"]) as server:
        long = threading.Thread(target=server.post, args=(COMPLETIONS,), kwargs={"prompt": "a" * 1000, "max_tokens": 1})
        long.start()
        while server.metric("num_requests_running") < 1:
            pass
        time.sleep(0.5)  # no token for longer than what is recent
        answers = []
        probes = [threading.Thread(target=lambda: answers.append(server.call("GET", "/health")[0])) for _ in range(40)]
        for probe in probes:
            probe.start()
        for probe in probes:
            probe.join()
        expect(answers, [200] * 40)
        expect(server.post(COMPLETIONS, prompt="b", max_tokens=1)[0], 200)  # there is a place left
        long.join()
        time.sleep(0.5)
        before = server.metric('request_success_total{finished_reason="length"}')
        probes = [threading.Thread(target=lambda: answers.append(server.call("GET", "/health")[0])) for _ in range(40)]
        for probe in probes:
            probe.start()
        for probe in probes:
            probe.join()
        expect(answers, [200] * 80)
        assert server.metric('request_success_total{finished_reason="length"}') - before <= 2
    with Server([CHECK, "--slow", "3000000", "--health", "300"]) as server:
        stuck = threading.Thread(target=server.post, args=(COMPLETIONS,), kwargs={"prompt": "a", "max_tokens": 2})
        stuck.start()
        time.sleep(0.6)
        status, headers, body = server.call("GET", "/health")
        expect((status, headers["Retry-After"], body["error"]["code"]), (503, "1", "unhealthy"))
        stuck.join()
        expect(server.call("GET", "/health")[0], 200)
    # Who waits when the server is told to end hears that at once, and not when the model has computed something.
    for kind in ([], ["--embeds", "1"]):
        with Server([CHECK, *kind, "--slow-read", "2000000", "--slow", "2000000", "--health", "1500"]) as server:
            time.sleep(1.7)  # the token from the start is no longer recent
            connection = server.connection()
            connection.request("GET", "/version")
            connection.getresponse().read()
            connection.request("GET", "/health")
            for _ in range(3):  # behind which the server has read it
                server.call("GET", "/version")
            server.terminate()
            answer = connection.getresponse()
            expect((answer.status, json.loads(answer.read())["error"]["code"]), (503, "shutting_down"))
            expect(server.process.wait(30), 0)


def killed():
    """kill -9 in the middle of streams leaves nothing behind: no file, and the port is free at once."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server([CHECK, "--slow", "10000"], env=os.environ | {"TMPDIR": folder}, cwd=folder)
        with server:
            peers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
            body = json.dumps({"model": "fake", "prompt": "a", "stream": True, "max_tokens": 600})
            for peer in peers:
                peer.sendall(f"POST {COMPLETIONS} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                assert peer.recv(100).startswith(b"HTTP/1.1 200")
            server.process.kill()
            server.process.wait()
        expect(os.listdir(folder), [])
        with Server([CHECK, "--port", str(server.port)]) as again:
            expect(again.port, server.port)
            expect(again.call("GET", "/health")[0], 200)
        for peer in peers:
            peer.close()


def pings_and_log():
    """A quiet stream has comments; every request leaves one line of JSON."""
    with Server([CHECK, "--slow", "600000"]) as server:
        body = json.dumps({"model": "fake", "prompt": "a", "stream": True, "max_tokens": 3, "ignore_eos": True,
                           "logit_bias": {"65": 100}})  # each token is a text of its own
        got = server.raw(f"POST {COMPLETIONS} HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        assert got.count(b": ping\n\n") >= 2 and b"data: [DONE]" in got, got
        answer = server.post(COMPLETIONS, prompt="b", max_tokens=1)[1]
        server.wait_until_idle()  # the engine may end a request after its response is read
        server.terminate()
        expect(server.process.wait(30), 0)
        *lines, last = server.log
        expect(last, "tessera: ending: no request is unfinished\n")
        lines = [json.loads(line) for line in lines]
        expect([(line["event"], line["status"], line["stream"], line["generated_tokens"]) for line in lines],
               [("request", 200, True, 3), ("request", 200, False, 1)])
        expect((lines[1]["id"], lines[1]["prompt_tokens"]), (answer["id"], 1))
        assert lines[0]["ms"] >= 1200, lines[0]  # two steps of 0.6 s at least


def cut_off():
    """The log counts what was read and generated, also of who left and of what took too long."""
    with Server([CHECK, "--slow", "20000", "--request-timeout", "2"]) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as peer:
            body = json.dumps({"model": "fake", "prompt": "abc", "stream": True, "max_tokens": 600, "ignore_eos": True, "logit_bias": {"65": 100}})
            peer.sendall(f"POST {COMPLETIONS} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            while b'"text"' not in peer.recv(65536):
                pass
        server.wait_until_idle()
        status, answer = server.post(COMPLETIONS, prompt=["abcd", "ef"], n=2, max_tokens=600, ignore_eos=True)
        expect((status, answer["error"]["code"]), (504, "timeout"))
        server.wait_until_idle()
        server.terminate()
        expect(server.process.wait(30), 0)
        left, late = [json.loads(line) for line in server.log if line.startswith("{")]
        expect((left["status"], left["prompt_tokens"], late["status"], late["prompt_tokens"], late["choices"]), (499, 3, 504, 6, 4))
        assert 1 <= left["generated_tokens"] < 600 and 4 <= late["generated_tokens"] < 4 * 600, (left, late)
    # What was never begun.
    with Server([CHECK, "--slow-read", "1500000", "--request-timeout", "1"]) as server:
        first = threading.Thread(target=server.post, args=(COMPLETIONS,), kwargs={"prompt": "abc", "max_tokens": 60, "ignore_eos": True})
        first.start()
        time.sleep(0.3)  # it is being read
        expect(server.post(COMPLETIONS, prompt="defg", max_tokens=2)[0], 504)
        first.join()
        server.wait_until_idle()
        server.terminate()
        expect(server.process.wait(30), 0)
        logged = [json.loads(line) for line in server.log if line.startswith("{")]
        expect(sorted((line["status"], line["prompt_tokens"], line["generated_tokens"]) for line in logged), [(504, 0, 0), (504, 3, 2)])


def busy_and_end():
    with Server([CHECK, "--slow", "10000", "--requests", "3"]) as server:
        answers = []
        fields = {"prompt": "a", "max_tokens": 60, "seed": 1, "ignore_eos": True}
        threads = [threading.Thread(target=lambda: answers.append(server.stream(COMPLETIONS, **fields))) for _ in range(3)]
        for thread in threads:
            thread.start()
        while server.metric("num_requests_running") < 3:
            pass
        status, headers, body = server.call("POST", COMPLETIONS, {"model": "fake", "prompt": "a"})
        expect((status, headers["Retry-After"], body["error"]["type"]), (429, "1", "rate_limit_error"))
        server.terminate()
        for thread in threads:
            thread.join()
        expect(server.process.wait(30), 0)
        assert any(re.fullmatch("tessera: draining: 3 unfinished requests have up to 30 s; a second signal ends at once\n", line)
                   for line in server.log)
        expect(len(answers), 3)  # all three to their end
        expect(len({json.dumps([e["choices"] for e in answer]) for answer in answers}), 1)


def main():
    with Server([CHECK]) as server:
        for check in (routes, unnamed, tokens, completions, streams, offsets, no_tokens, echoes, speaks_first, responses, forms, exact_forms, metrics, page, refused_fields, hostile_bytes, mixed_load, many_connections):
            check(server)
            print(f"ok: {check.__name__}", flush=True)
        expect(server.call("GET", "/health")[0], 200)
        expect(server.process.poll(), None)
    for check in (names, encoder, keys, order, impatience, health, killed, pings_and_log, cut_off, busy_and_end):
        check()
        print(f"ok: {check.__name__}", flush=True)


main()
