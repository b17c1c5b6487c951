"""Answers that are stored: asked for again, listed, replayed, gone on from, forgotten; and whoever asks for what is not
theirs.   stored.py SERVE-CHECK"""

import os
import socket
import sys
import time

from serving import Server, events_of, expect, get, made

CHECK = os.path.abspath(sys.argv[1])
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
USER = [{"role": "user", "content": "hello"}]


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
    # Ids are not to be drafted.
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
    for wrong, param in (("limit=-1", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=99999999999999999999", "limit"),
                         ("order=up", "order"), ("after=msg_1", "after"), ("colour=red", "colour"), ("include[]=x", "include"),
                         ("limit", "limit"), ("=", None)):
        expect(get(server, f"{path}?{wrong}", 400)["error"]["param"], param)
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
    expect((status, error["error"]["code"]), (400, "context_length_exceeded"))
    cut = made(server.post(RESPONSES, truncation="auto", **long))
    kept = made(server.post(RESPONSES, **(long | {"input": long["input"][3:]})))
    expect((cut["truncation"], cut["output"][0]["content"]), ("auto", kept["output"][0]["content"]))
    expect(server.post(RESPONSES, truncation="auto", input="a" * 3000)[0], 400)


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
    # A sanitizer keeps what was freed for a while.
    env = os.environ | {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}
    with Server([CHECK, "--stored-bytes", "1000000"], env=env) as server:
        def send(i, parts):
            content = [{"type": "text", "text": str(i)}, *[{"type": "text", "text": ""}] * parts]
            return made(server.post(CHAT, store=True, max_tokens=1, messages=[{"role": "user", "content": content}], metadata={"a": "b" * 512}))

        for i in range(200):
            send(i, 3000)
            if i == 80:
                before = server.metric("process_resident_memory_bytes")
        assert 200_000 < server.metric("stored_answer_bytes") <= 1_000_000
        expect(server.metric("stored_answers") + server.metric("stored_answer_evictions_total"), 200)
        # 120 more would be 10 MB.
        assert server.metric("process_resident_memory_bytes") - before < 5 << 20
        listed = get(server, f"{CHAT}?limit=100")
        expect(len(listed["data"]), server.metric("stored_answers"))
        # What is larger than all of the room makes nobody else leave.
        huge = send(0, 50_000)
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
    with Server([CHECK, "--unread", "2000000", "--key", "first", "--key", "second", "--slow", "20000"]) as server:
        headers = {"Authorization": "Bearer first"}
        other = {"Authorization": "Bearer second"}

        def ask(method, path, body=None, key=headers):
            return server.call(method, path, body and {"model": "fake", **body}, key)

        theirs = ask("POST", RESPONSES, {"input": "a", "max_output_tokens": 1}, other)[2]["id"]
        # Much of nothing, which is told in more words, and more than the system's buffers take (4 MiB as a rule).
        parts = [{"type": "input_text", "text": ""}] * 110_000
        one = ask("POST", RESPONSES, {"input": [{"role": "assistant", "content": parts}], "max_output_tokens": 1})[2]
        running = ask("POST", RESPONSES, {"input": "a", "background": True, "max_output_tokens": 900, "ignore_eos": True})[2]["id"]
        path = f"{RESPONSES}/{one['id']}/input_items"
        peers = []
        for _ in range(20):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", server.port))
            peer.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer first\r\n\r\n".encode())
            peers.append(peer)
        statuses = []
        while 429 not in statuses and len(statuses) < 200:
            statuses.append(ask("GET", path)[0])
        expect(get(server, path, 429, headers=headers)["error"]["code"], "unread_answers")
        short = ask("POST", RESPONSES, {"input": "a", "max_output_tokens": 2})[2]["id"]
        # Nor is another key held up, or whoever makes room.
        expect(ask("GET", f"{RESPONSES}/{theirs}", key=other)[0], 200)
        for method, end, status in (("GET", "", 429), ("POST", "/cancel", 429), ("DELETE", "", 200)):
            expect((method, end, ask(method, f"{RESPONSES}/{short}{end}")[0]), (method, end, status))
        expect(ask("POST", f"{RESPONSES}/{running}/cancel")[2]["status"], "cancelled")
        for peer in peers:
            peer.close()
        while ask("GET", path)[0] == 429:
            time.sleep(0.05)
        expect(len(get(server, path, headers=headers)["data"][0]["content"]), len(parts))


def main():
    with Server([CHECK]) as server:
        for check in (chats, responses, replays, pages, conversation):
            check(server)
            print(f"ok: {check.__name__}", flush=True)
        expect(server.call("GET", "/health")[0], 200)
        expect(server.process.poll(), None)
    for check in (keys, limits, unread):
        check()
        print(f"ok: {check.__name__}", flush=True)


main()
