"""Answers that are stored: asked for again, listed, replayed, gone on from, cancelled, forgotten; and whoever asks for
what is not theirs.   stored.py SERVE-CHECK"""

import json
import os
import socket
import sys
import tempfile
import threading
import time

from serving import Server

CHECK = os.path.abspath(sys.argv[1])
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
USER = [{"role": "user", "content": "hello"}]
# Of a model that was taught to call tools; calls and their outputs stand in its prompt.
TEMPLATE = """{% for tool in tools or [] %}{{ tool | tojson }} <tool_call></tool_call>{% endfor %}
{%- for message in messages %}[{{ message.role }}]{{ message.content }}
{%- for call in message.tool_calls or [] %}<call {{ call.id }} {{ call.function.name }} {{ call.function.arguments | tojson }}>{% endfor %}
{%- endfor %}[assistant]"""
LOOK = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"],
        "additionalProperties": False}


def expect(actual, wanted):
    assert actual == wanted, f"{actual!r} instead of {wanted!r}"


def made(answer):
    status, body = answer
    assert status == 200, body
    return body


def get(server, path, status=200, method="GET", **options):
    found, _, body = server.call(method, path, **options)
    assert found == status, (method, path, found, str(body)[:500])
    return body


def events_of(server, path):
    """The events of a stored response."""
    connection = server.connection()
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    expect(answer.getheader("Content-Type"), "text/event-stream")
    blocks = [b for b in answer.read().decode().split("\n\n") if b and not b.startswith(":")]
    connection.close()
    return [(name[7:], json.loads(data[6:])) for name, data in (b.split("\n") for b in blocks)]


def wait(server, made_id):
    for _ in range(600):
        body = get(server, f"{RESPONSES}/{made_id}")
        if body["status"] not in ("queued", "in_progress"):
            return body
        time.sleep(0.02)
    raise SystemExit("a response has no end")


def responses(server):
    one = made(server.post(RESPONSES, input="hello", seed=3, max_output_tokens=20, metadata={"a": "b"}))
    expect(get(server, f"{RESPONSES}/{one['id']}"), one)
    expect(get(server, f"{RESPONSES}/{one['id']}?stream=false&include[]=code_interpreter_call.outputs"), one)
    get(server, f"{CHAT}/{one['id']}", 404)  # it is no chat
    expect(get(server, f"{RESPONSES}/{one['id']}", method="DELETE"), {"id": one["id"], "object": "response", "deleted": True})
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items"), ("GET", "?stream=true")):
        error = get(server, f"{RESPONSES}/{one['id']}{path}", 404, method)["error"]
        expect((error["type"], error["code"], error["param"]), ("invalid_request_error", "not_found", "response_id"))
    unstored = made(server.post(RESPONSES, input="hello", store=False, max_output_tokens=2))
    expect(unstored["store"], False)
    get(server, f"{RESPONSES}/{unstored['id']}", 404)
    # Ids are not to be guessed.
    ids = {made(server.post(RESPONSES, input="a", max_output_tokens=1))["id"] for _ in range(3)}
    assert len(ids) == 3 and all(len(each) == len("resp_") + 32 for each in ids), ids


def replays(server):
    fields = {"input": "hello", "seed": 4, "max_output_tokens": 30}
    live = server.typed_stream(RESPONSES, **fields)
    path = f"{RESPONSES}/{live[0][1]['response']['id']}?stream=true"
    expect(events_of(server, path), live)
    for after in (0, 3, len(live) - 2, len(live) - 1, len(live) + 5):
        expect(events_of(server, f"{path}&starting_after={after}"), live[after + 1 :])
    # What was no stream is told in the pieces in which it came.
    whole = made(server.post(RESPONSES, **fields))
    told = events_of(server, f"{RESPONSES}/{whole['id']}?stream=true")
    expect([name for name, _ in told], [name for name, _ in live])
    expect(told[-1][1]["response"], whole)
    padded = events_of(server, f"{path}&include_obfuscation=true")
    lengths = {len(data["delta"].encode() + data["obfuscation"].encode()) % 16 for _, data in padded if "delta" in data}
    expect(lengths, {0})


def pages(server):
    roles = ["user", "developer", "assistant", "system", "user"]
    items = [{"role": role, "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": str(i)}]}
             for i, role in enumerate(roles)]
    one = made(server.post(RESPONSES, input=items, max_output_tokens=1))
    path = f"{RESPONSES}/{one['id']}/input_items"
    listed = get(server, path)
    expect([item["content"][0]["text"] for item in listed["data"]], ["4", "3", "2", "1", "0"])
    expect([item["role"] for item in listed["data"]], roles[::-1])
    expect((listed["has_more"], listed["first_id"], listed["last_id"]),
           (False, listed["data"][0]["id"], listed["data"][-1]["id"]))
    seen, after = [], ""
    while True:
        page = get(server, f"{path}?order=asc&limit=2{after}")
        seen += page["data"]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    expect(seen, listed["data"][::-1])
    for wrong, param in (("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=99999999999999999999", "limit"),
                         ("order=up", "order"), ("after=msg_1", "after"), ("colour=red", "colour"), ("include[]=x", "include"),
                         ("limit", "limit"), ("=", ""), ("limit[]=3", "limit[]" if False else "limit")):
        error = get(server, f"{path}?{wrong}", 200 if wrong == "limit[]=3" else 400)
        if wrong != "limit[]=3":
            expect(error["error"]["param"] or "", param)
    get(server, f"{RESPONSES}/{one['id']}?starting_after=-1", 400)
    get(server, f"{RESPONSES}/{one['id']}?stream=1", 400)


def conversation(server):
    """What follows a stored response is what follows all that was said."""
    first = made(server.post(RESPONSES, input="one", instructions="be kind", seed=5, max_output_tokens=12, metadata={"a": "b"}))
    said = first["output"][0]["content"][0]["text"]
    fields = {"seed": 6, "max_output_tokens": 12}
    second = made(server.post(RESPONSES, input="two", instructions="be short", previous_response_id=first["id"], **fields))
    expect((second["previous_response_id"], second["instructions"], second["metadata"]), (first["id"], "be short", {}))
    # Instructions are not carried over.
    spoken = [{"role": "system", "content": "be short"}, {"role": "user", "content": "one"},
              {"role": "assistant", "content": said}, {"role": "user", "content": "two"}]
    alone = made(server.post(RESPONSES, input=spoken, **fields))
    expect((alone["output"][0]["content"], alone["usage"]["input_tokens"]),
           (second["output"][0]["content"], second["usage"]["input_tokens"]))
    items = get(server, f"{RESPONSES}/{second['id']}/input_items?order=asc")["data"]
    expect([(item["role"], item["content"][0]["text"]) for item in items], [("user", "one"), ("assistant", said), ("user", "two")])
    expect(items[1]["id"], first["output"][0]["id"])
    # It does not need the first any more, and goes on as a stream.
    get(server, f"{RESPONSES}/{first['id']}", method="DELETE")
    events = server.typed_stream(RESPONSES, input="three", previous_response_id=second["id"], **fields)
    third = events[-1][1]["response"]
    expect([item["content"][0]["text"] for item in get(server, f"{RESPONSES}/{third['id']}/input_items?order=asc")["data"]],
           ["one", said, "two", second["output"][0]["content"][0]["text"], "three"])
    for wrong in (first["id"], "resp_1", "x" * 5000, "\ud7ff\n\"", "chatcmpl-1"):
        status, error = server.post(RESPONSES, input="a", previous_response_id=wrong)
        expect((status, error["error"]["param"]), (404, "previous_response_id"))
    expect(server.post(RESPONSES, input="a", previous_response_id="")[0], 400)
    # A talk that is too long for the context is refused, or loses its beginning.
    long = {"input": [{"role": "user", "content": f"{i} " + "a" * 300} for i in range(5)] + [{"role": "user", "content": "end"}],
            "instructions": "be kind", "max_output_tokens": 50, "seed": 1}
    status, error = server.post(RESPONSES, **long)
    expect(status, 400)
    cut = made(server.post(RESPONSES, truncation="auto", **long))
    kept = made(server.post(RESPONSES, **(long | {"input": long["input"][3:]})))
    expect((cut["truncation"], cut["output"][0]["content"]), ("auto", kept["output"][0]["content"]))
    expect(server.post(RESPONSES, truncation="auto", input="a" * 3000)[0], 400)


def background(server):
    """Made while nobody waits; followed late, left early, cancelled."""
    fields = {"input": "hello", "seed": 7, "max_output_tokens": 60, "ignore_eos": True}
    wanted = made(server.post(RESPONSES, **fields))
    queued = made(server.post(RESPONSES, background=True, **fields))
    expect((queued["status"], queued["background"], queued["output"], queued["usage"]), ("queued", True, [], None))
    done = wait(server, queued["id"])
    expect((done["status"], done["output"][0]["content"]), ("incomplete", wanted["output"][0]["content"]))
    expect(get(server, f"{RESPONSES}/{queued['id']}/cancel", method="POST"), done)  # it is too late
    error = get(server, f"{RESPONSES}/{wanted['id']}/cancel", 400, "POST")["error"]
    assert "in the background" in error["message"], error
    events = server.typed_stream(RESPONSES, background=True, **fields)
    names = [name for name, _ in events]
    expect(names[:3], ["response.created", "response.queued", "response.in_progress"])
    expect([data["sequence_number"] for _, data in events], list(range(len(events))))
    expect(events_of(server, f"{RESPONSES}/{events[0][1]['response']['id']}?stream=true"), events)
    status, error = server.post(RESPONSES, background=True, store=False, input="a")
    expect((status, error["error"]["param"]), (400, "background"))


def slow_background():
    with Server([CHECK, "--slow", "20000"]) as server:
        fields = {"background": True, "input": "hello", "seed": 7, "max_output_tokens": 100, "ignore_eos": True}
        # Whoever leaves ends nothing, and comes back to where they were.
        connection = server.connection()
        connection.request("POST", RESPONSES, json.dumps({"model": "fake", "stream": True, **fields}))
        answer = connection.getresponse()
        lines = [answer.readline() for _ in range(40)]
        seen = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
        connection.close()
        made_id = seen[0]["response"]["id"]
        running = get(server, f"{RESPONSES}/{made_id}")
        expect((running["status"], running["output"]), ("in_progress", []))
        status, error = server.post(RESPONSES, input="a", previous_response_id=made_id)
        expect((status, "no end" in error["error"]["message"]), (400, True))
        results = [None] * 6

        def follow(i):
            results[i] = events_of(server, f"{RESPONSES}/{made_id}?stream=true&starting_after={i - 1 if i else seen[-1]['sequence_number']}")

        threads = [threading.Thread(target=follow, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = events_of(server, f"{RESPONSES}/{made_id}?stream=true")
        expect([data for _, data in whole][: len(seen)], seen)
        expect(results[0], whole[len(seen) :])
        for i in range(1, 6):
            expect(results[i], whole[i:])

        def end(how):
            """What a follower sees when it ends before its time."""
            one = made(server.post(RESPONSES, **fields))
            follower = []
            thread = threading.Thread(target=lambda: follower.extend(events_of(server, f"{RESPONSES}/{one['id']}?stream=true")))
            thread.start()
            while get(server, f"{RESPONSES}/{one['id']}")["status"] != "in_progress":
                time.sleep(0.01)
            time.sleep(0.1)
            answer = how(one["id"])
            thread.join()
            expect((follower[-1][0], follower[-1][1]["response"]["status"]), ("response.failed", "cancelled"))
            return one["id"], answer, follower

        made_id, answer, follower = end(lambda made_id: get(server, f"{RESPONSES}/{made_id}/cancel", method="POST"))
        expect((answer["status"], answer["output"][0]["status"]), ("cancelled", "incomplete"))
        expect(get(server, f"{RESPONSES}/{made_id}"), answer)
        expect(get(server, f"{RESPONSES}/{made_id}/cancel", method="POST"), answer)
        expect(events_of(server, f"{RESPONSES}/{made_id}?stream=true"), follower)
        made_id, answer, _ = end(lambda made_id: get(server, f"{RESPONSES}/{made_id}", method="DELETE"))
        expect(answer["deleted"], True)
        get(server, f"{RESPONSES}/{made_id}", 404)
        server.wait_until_idle()
        expect(server.metric("kv_pages_used"), 0)
        # One that runs while the server ends has until then.
        one = made(server.post(RESPONSES, **(fields | {"max_output_tokens": 20})))
        server.terminate()
        expect(server.process.wait(30), 0)
        lines = [json.loads(line) for line in server.log if line.startswith("{")]
        expect([line["status"] for line in lines if line["id"] == one["id"]], [200])


def chats(server):
    def made_chat(**fields):
        return made(server.post(CHAT, messages=fields.pop("messages", USER), max_tokens=6, store=True, **fields))

    expect(get(server, CHAT)["data"], [])
    made(server.post(CHAT, messages=USER, max_tokens=2))  # not stored: nobody said so
    many = [made_chat(seed=i, metadata={"n": str(i), "even": str(i % 2 == 0)}) for i in range(5)]
    listed = get(server, CHAT)
    expect([chat["id"] for chat in listed["data"]], [chat["id"] for chat in many])
    expect(listed["data"][2], many[2] | {"metadata": {"n": "2", "even": "True"}})
    expect(get(server, f"{CHAT}/{many[2]['id']}"), listed["data"][2])
    ids = [chat["id"] for chat in many]

    def shown(query):
        page = get(server, f"{CHAT}?{query}")
        return [ids.index(chat["id"]) for chat in page["data"]], page["has_more"]

    expect(shown("order=desc&limit=2"), ([4, 3], True))
    expect(shown(f"order=desc&limit=2&after={ids[3]}"), ([2, 1], True))
    expect(shown(f"limit=3&after={ids[1]}"), ([2, 3, 4], False))
    expect(shown("metadata[even]=True&limit=2"), ([0, 2], True))
    expect(shown(f"metadata%5Beven%5D=True&after={ids[1]}"), ([2, 4], False))
    expect(shown("metadata[even]=True&metadata[n]=4"), ([4], False))
    expect(shown("metadata[even]=Maybe"), ([], False))
    expect(shown("model=fake&limit=0"), ([], True))
    expect(shown("model=other"), ([], False))
    for wrong in ("after=x", "metadata=x", "metadata[]=x", "limit=-1", "metadata[n", "stream=true", "x=%00", "metadata[a]=" + "b" * 513,
                  "&".join(f"metadata[{i}]=x" for i in range(17))):
        get(server, f"{CHAT}?{wrong}", 400)

    path = f"{CHAT}/{ids[0]}"
    changed = get(server, path, method="POST", body={"metadata": {"new": "\u00e9"}})
    expect((changed["id"], changed["metadata"]), (ids[0], {"new": "\u00e9"}))
    expect(get(server, path), changed)
    for body in ({}, {"metadata": 3}, {"metadata": {"a": 1}}, {"metadata": {"a": "b" * 513}}, {"metadata": {"a" * 65: "b"}},
                 {"metadata": {str(i): "" for i in range(17)}}, {"metadata": {}, "model": "x"}, "[]", "{", "", "\0"):
        get(server, path, 400, "POST", body=body)
    expect(get(server, path), changed)
    expect(get(server, path, method="POST", body={"metadata": None})["metadata"], {})

    told = [{"role": "system", "content": "be kind"}, {"role": "user", "name": "me", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}]
    talk = made_chat(messages=told)
    messages = get(server, f"{CHAT}/{talk['id']}/messages")
    expect([(m["role"], m["content"], m["name"], m["content_parts"]) for m in messages["data"]],
           [("system", "be kind", None, None), ("user", "ab", "me", told[1]["content"]), ("assistant", "c", None, None), ("user", "d", None, None)])
    page = get(server, f"{CHAT}/{talk['id']}/messages?order=desc&limit=1&after={messages['data'][2]['id']}")
    expect((page["data"], page["has_more"]), ([messages["data"][1]], True))

    # A stream is stored as a whole.
    fields = {"messages": USER, "max_tokens": 8, "seed": 9, "logprobs": True, "store": True, "n": 2}
    events = server.stream(CHAT, **fields)
    whole = made(server.post(CHAT, **fields))
    kept = get(server, f"{CHAT}/{events[0]['id']}")
    expect((kept["choices"], kept["usage"]["completion_tokens"]), (whole["choices"], whole["usage"]["completion_tokens"]))
    expect(get(server, f"{CHAT}/{ids[1]}", method="DELETE"), {"id": ids[1], "object": "chat.completion.deleted", "deleted": True})
    for method, end in (("GET", ""), ("DELETE", ""), ("POST", ""), ("GET", "/messages")):
        expect(get(server, f"{CHAT}/{ids[1]}{end}", 404, method, body="{}" if method == "POST" else None)["error"]["param"], "completion_id")
    foreign = {"Sec-Fetch-Site": "cross-site"}
    get(server, f"{CHAT}/{ids[2]}", 403, "DELETE", headers=foreign)
    get(server, f"{CHAT}/{ids[2]}")
    for odd in ("%00", "%ff", "..", "a" * 8000, "%22%7D", "a%2Fb"):
        get(server, f"{CHAT}/{odd}", 404)


def calls():
    """Tools of responses, and of chats by their older names."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(TEMPLATE)
        file.flush()
        with Server([CHECK, "--template", file.name]) as server:
            tool = {"type": "function", "name": "look", "description": "at it", "parameters": LOOK, "strict": True}
            fields = {"input": "hello", "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "seed": 2}
            one = made(server.post(RESPONSES, **fields))
            [call] = one["output"]
            expect((call["type"], call["name"], call["status"], one["tools"], one["tool_choice"]),
                   ("function_call", "look", "completed", [tool], "required"))
            assert 0 <= json.loads(call["arguments"])["a"] <= 99, call
            chat_tool = {"type": "function", "function": {k: v for k, v in tool.items() if k not in ("type", "strict")}}
            chat = made(server.post(CHAT, messages=USER, tools=[chat_tool], tool_choice="required", parallel_tool_calls=False, seed=2))
            expect(chat["choices"][0]["message"]["tool_calls"][0]["function"], {"name": "look", "arguments": call["arguments"]})

            live = server.typed_stream(RESPONSES, **fields)
            names = [name for name, _ in live if not name.endswith("delta")]
            expect(names, ["response.created", "response.in_progress", "response.output_item.added",
                           "response.function_call_arguments.done", "response.output_item.done", "response.completed"])
            arguments = "".join(data["delta"] for name, data in live if name == "response.function_call_arguments.delta")
            expect(arguments, call["arguments"])
            expect(events_of(server, f"{RESPONSES}/{live[0][1]['response']['id']}?stream=true"), live)

            # The call and what came of it, by their ids or in full, are one prompt.
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
            asked = {"tools": [tool], "tool_choice": "none", "seed": 3, "max_output_tokens": 10}
            after = made(server.post(RESPONSES, input=[output], previous_response_id=one["id"], **asked))
            full = made(server.post(RESPONSES, input=[{"role": "user", "content": "hello"}, call, output], **asked))
            expect((after["output"][0]["content"], after["usage"]["input_tokens"]), (full["output"][0]["content"], full["usage"]["input_tokens"]))
            items = get(server, f"{RESPONSES}/{after['id']}/input_items?order=asc")["data"]
            expect([item["type"] for item in items], ["message", "function_call", "function_call_output"])
            expect((items[1], items[2]["output"]), (call, "rain"))
            picked = made(server.post(RESPONSES, input="hello", tools=[tool], tool_choice={"type": "function", "name": "look"}))
            expect(picked["tool_choice"], {"type": "function", "name": "look"})

            # As it was before there were tools.
            function = chat_tool["function"]
            old = {"messages": USER, "functions": [function], "function_call": {"name": "look"}, "seed": 2}
            [choice] = made(server.post(CHAT, **old))["choices"]
            expect((choice["finish_reason"], choice["message"]["function_call"]["name"], "tool_calls" in choice["message"]),
                   ("function_call", "look", False))
            deltas = [e["choices"][0]["delta"].get("function_call") for e in server.stream(CHAT, **old)]
            deltas = [delta for delta in deltas if delta]
            expect(("".join(d.get("name", "") for d in deltas), "".join(d["arguments"] for d in deltas)),
                   ("look", choice["message"]["function_call"]["arguments"]))
            told = [*USER, choice["message"] | {"refusal": None}, {"role": "function", "name": "look", "content": "rain"}]
            del told[1]["refusal"]
            made(server.post(CHAT, messages=told, max_tokens=3))
            for wrong, param in (({"functions": [function], "tools": [chat_tool]}, "functions"), ({"function_call": {"name": "look"}}, "function_call"),
                                 ({"functions": [function], "function_call": {"name": "x"}}, "function_call"),
                                 ({"messages": [*USER, {"role": "function", "name": "look", "content": "x"}]}, "messages"),
                                 ({"functions": [{"name": "a b"}]}, "functions")):
                status, error = server.post(CHAT, **({"messages": USER} | wrong))
                expect((wrong, status, error["error"]["param"]), (wrong, 400, param))


def keys():
    """One key's answers are not there for another, and cannot be pushed out by it."""
    with Server([CHECK, "--key", "first", "--key", "second", "--stored", "6"]) as server:
        def ask(key, method, path, body=None):
            return server.call(method, path, body, {"Authorization": f"Bearer {key}"})

        body = {"model": "fake", "messages": USER, "max_tokens": 1, "store": True}
        chat = ask("first", "POST", CHAT, body)[2]["id"]
        one = ask("first", "POST", RESPONSES, {"model": "fake", "input": "a", "max_output_tokens": 1})[2]["id"]
        for method, path, sent in (("GET", f"{CHAT}/{chat}", None), ("DELETE", f"{CHAT}/{chat}", None), ("POST", f"{CHAT}/{chat}", {"metadata": {}}),
                                   ("GET", f"{CHAT}/{chat}/messages", None), ("GET", f"{RESPONSES}/{one}", None), ("DELETE", f"{RESPONSES}/{one}", None),
                                   ("GET", f"{RESPONSES}/{one}/input_items", None), ("POST", f"{RESPONSES}/{one}/cancel", None),
                                   ("GET", f"{RESPONSES}/{one}?stream=true", None)):
            expect((method, path, ask("second", method, path, sent)[0]), (method, path, 404))
            expect(ask("third", method, path, sent)[0], 401)
        expect(ask("second", "POST", RESPONSES, {"model": "fake", "input": "a", "previous_response_id": one})[0], 404)
        expect(ask("second", "GET", CHAT)[2]["data"], [])
        for _ in range(9):
            ask("second", "POST", CHAT, body)
        expect(len(ask("second", "GET", CHAT)[2]["data"]), 3)
        for path in (f"{CHAT}/{chat}", f"{RESPONSES}/{one}"):
            expect(ask("first", "GET", path)[0], 200)


def limits():
    """However many are stored, and however large: what was asked for last stays, and memory is bounded."""
    with Server([CHECK, "--stored", "4"]) as server:
        ids = [made(server.post(RESPONSES, input=str(i), max_output_tokens=1))["id"] for i in range(4)]
        get(server, f"{RESPONSES}/{ids[0]}")
        ids.append(made(server.post(RESPONSES, input="x", max_output_tokens=1))["id"])
        expect([server.call("GET", f"{RESPONSES}/{each}")[0] for each in ids], [200, 404, 200, 200, 200])
    with Server([CHECK, "--stored-bytes", "100000"]) as server:
        text = "a" * 400
        for i in range(200):
            fields = {"messages": [{"role": "user", "content": f"{i} {text}"}], "metadata": {"a": "b" * 512}}
            made(server.post(CHAT, store=True, max_tokens=1, **fields))
            if i == 60:
                before = server.metric("process_resident_memory_bytes")
        assert 20_000 < server.metric("stored_answer_bytes") <= 100_000
        expect(server.metric("stored_answers") + server.metric("stored_answer_evictions"), 200)
        assert server.metric("process_resident_memory_bytes") - before < 4 << 20
        listed = get(server, f"{CHAT}?limit=100")
        expect(len(listed["data"]), server.metric("stored_answers"))
        # What is larger than all of the room makes nobody else leave.
        ballast = [{"role": "user", "content": [{"type": "text", "text": ""}] * 5000}]
        huge = made(server.post(CHAT, store=True, max_tokens=1, messages=ballast))
        get(server, f"{CHAT}/{huge['id']}", 404)
        expect(len(get(server, f"{CHAT}?limit=100")["data"]), len(listed["data"]))
    with Server([CHECK, "--stored", "0"]) as server:
        one = made(server.post(RESPONSES, input="a", max_output_tokens=1))
        expect(one["store"], False)
        get(server, f"{RESPONSES}/{one['id']}", 404)
        for path, fields in ((CHAT, {"messages": USER, "store": True}), (RESPONSES, {"input": "a", "background": True})):
            status, error = server.post(path, **fields)
            expect((status, error["error"]["code"]), (400, "not_supported"))


def unread():
    """Whoever asks for much and reads nothing is told to read, and holds nobody else's answers up."""
    with Server([CHECK, "--unread", "1000000"]) as server:
        # Much of nothing, which is told in more words, and more than the system's buffers take (4 MiB as a rule).
        parts = [{"type": "input_text", "text": ""}] * 110_000
        one = made(server.post(RESPONSES, input=[{"role": "assistant", "content": parts}], max_output_tokens=1))
        path = f"{RESPONSES}/{one['id']}/input_items"
        peers = []
        for _ in range(20):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", server.port))
            peer.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            peers.append(peer)
        statuses = []
        while 429 not in statuses and len(statuses) < 200:
            statuses.append(server.call("GET", path)[0])
        expect(get(server, path, 429)["error"]["code"], "unread_answers")
        made(server.post(RESPONSES, input="a", max_output_tokens=2))
        for peer in peers:
            peer.close()
        while server.call("GET", path)[0] == 429:
            time.sleep(0.05)
        expect(len(get(server, path)["data"][0]["content"]), len(parts))


def many_at_once(server):
    """Made, asked for, followed and forgotten by many at once."""
    wrong = []

    def run(i):
        try:
            for j in range(6):
                kind = {"background": True} if (i + j) % 2 else {}
                one = made(server.post(RESPONSES, input=f"{i} {j}", seed=j, max_output_tokens=40, **kind))
                if (i + j) % 3 == 0:
                    threading.Thread(target=lambda: server.call("GET", f"{RESPONSES}/{one['id']}?stream=true")).start()
                if (i + j) % 4 == 0:
                    get(server, f"{RESPONSES}/{one['id']}", method="DELETE")
                    get(server, f"{RESPONSES}/{one['id']}", 404)
                elif (i + j) % 4 == 1:
                    get(server, f"{RESPONSES}/{one['id']}/cancel", 200 if kind else 400, "POST")
                else:
                    expect(wait(server, one["id"])["status"] in ("completed", "incomplete"), True)
        except BaseException as error:  # noqa: BLE001 - told below
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    server.wait_until_idle()
    expect(server.metric("kv_pages_used"), 0)


def held_back():
    """A stream whose text is held back, or is waited for, says that it is there."""
    with Server([CHECK, "--slow", "300000"]) as server:
        fields = {"prompt": "a", "stream": True, "max_tokens": 4, "ignore_eos": True, "logit_bias": {"65": 100},
                  "model": "fake", "stop": "\u00ff" * 8}
        text = made(server.post("/v1/completions", **(fields | {"stream": False, "stop": None})))["choices"][0]["text"]
        body = json.dumps(fields | {"stop": text + "x"})  # every token may begin it
        got = server.raw(f"POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        head = got[: got.index(b"data: {")]
        assert head.count(b": ping\n\n") >= 2 and b"data: [DONE]" in got, got


def main():
    with Server([CHECK]) as server:
        for check in (chats, responses, replays, pages, conversation, background, many_at_once):
            check(server)
            print(f"ok: {check.__name__}", flush=True)
        expect(server.call("GET", "/health")[0], 200)
        expect(server.process.poll(), None)
    for check in (slow_background, calls, keys, limits, unread, held_back):
        check()
        print(f"ok: {check.__name__}", flush=True)


main()
