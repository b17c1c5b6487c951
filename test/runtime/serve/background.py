"""Responses that are made in the background, call functions, or hold their text back.   background.py SERVE-CHECK"""

import json
import os
import sys
import tempfile
import threading
import time

from serving import Server, events_of, expect, get, made

CHECK = os.path.abspath(sys.argv[1])
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
USER = [{"role": "user", "content": "hello"}]
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
# Of a model that was taught to call tools; calls and their outputs stand in its prompt.
TEMPLATE = """{% for tool in tools or [] %}{{ tool | tojson }} <tool_call></tool_call>{% endfor %}
{%- for message in messages %}[{{ message.role }}]{{ message.content }}
{%- for call in message.tool_calls or [] %}<call {{ call.id }} {{ call.function.name }} {{ call.function.arguments | tojson }}>{% endfor %}
{%- endfor %}[assistant]"""
LOOK = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"],
        "additionalProperties": False}


def wait(server, made_id):
    for _ in range(600):
        body = get(server, f"{RESPONSES}/{made_id}")
        if body["status"] not in ("queued", "in_progress"):
            return body
        time.sleep(0.02)
    raise SystemExit("a response has no end")


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
        expect((status, "cannot be continued" in error["error"]["message"]), (400, True))
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

        # Each follower says whether it is padded, whatever the request said.
        for asked in (True, False):
            one = made(server.post(RESPONSES, **(fields | {"max_output_tokens": 30, "stream_options": {"include_obfuscation": asked}})))
            for wanted in (not asked, asked):  # while it is made, and after that
                told = events_of(server, f"{RESPONSES}/{one['id']}?stream=true&include_obfuscation={str(wanted).lower()}")
                expect({"obfuscation" in data for _, data in told if "delta" in data}, {wanted})

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


def many_at_once(server):
    """Made, asked for, followed and forgotten by many at once."""
    wrong = []

    def follow(made_id):
        """To its end, unless it was forgotten before."""
        try:
            connection = server.connection()
            connection.request("GET", f"{RESPONSES}/{made_id}?stream=true")
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            if answer.status != 404:
                names = [line[7:] for line in text.split("\n") if line.startswith("event: ")]
                expect((answer.status, names[-1:] and names[-1] in TERMINAL), (200, True))
        except BaseException as error:  # noqa: BLE001 - told below
            wrong.append(error)

    def run(i):
        followers = []
        try:
            for j in range(6):
                kind = {"background": True} if (i + j) % 2 else {}
                one = made(server.post(RESPONSES, input=f"{i} {j}", seed=j, max_output_tokens=40, **kind))
                if (i + j) % 3 == 0:
                    followers.append(threading.Thread(target=follow, args=(one["id"],)))
                    followers[-1].start()
                if (i + j) % 4 == 0:
                    get(server, f"{RESPONSES}/{one['id']}", method="DELETE")
                    get(server, f"{RESPONSES}/{one['id']}", 404)
                elif (i + j) % 4 == 1:
                    get(server, f"{RESPONSES}/{one['id']}/cancel", 200 if kind else 400, "POST")
                else:
                    expect(wait(server, one["id"])["status"] in ("completed", "incomplete"), True)
        except BaseException as error:  # noqa: BLE001 - told below
            wrong.append(error)
        for follower in followers:
            follower.join()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    server.wait_until_idle()
    expect(server.metric("kv_pages_used"), 0)


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


def llama():
    """A template whose calls are held to no form: functions are served there, too."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write("{# ipython #}" + TEMPLATE.replace("<tool_call></tool_call>", '{"parameters": x}'))
        file.flush()
        with Server([CHECK, "--template", file.name]) as server:
            asked = {"messages": USER, "max_tokens": 4, "ignore_eos": True}
            function = {"name": "look", "parameters": LOOK}
            for more in ({}, {"function_call": "auto"}, {"parallel_tool_calls": False}, {"stream": False, "function_call": {"name": "look"}}):
                made(server.post(CHAT, functions=[function], **asked, **more))
            status, error = server.post(CHAT, tools=[{"type": "function", "function": function}], parallel_tool_calls=False, **asked)
            expect((status, "parallel_tool_calls" in error["error"]["message"]), (400, True))


def variables():
    """What a chat says to the template itself. A token is a byte, so that prompts are told apart by their lengths."""
    def length(server, **fields):
        return made(server.post(CHAT, messages=USER, max_tokens=1, **fields))["usage"]["prompt_tokens"]

    def refused(server, param, value, says=""):
        status, error = server.post(CHAT, messages=USER, **{param: value})
        expect((value, status, error["error"]["param"]), (value, 400, param))
        assert says in error["error"]["message"], error

    kwargs = "chat_template_kwargs"
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write("{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
                   "{% if add_generation_prompt %}[assistant]{% endif %}"
                   "{% if enable_thinking is defined and not enable_thinking %}<none>{% endif %}{{ note }}")
        file.flush()
        with Server([CHECK, "--template", file.name]) as server:
            whole = len("[user]hello[assistant]")
            for value, more in (({}, 0), ({"other": 1}, 0), ({"enable_thinking": True}, 0), ({"enable_thinking": False}, 6), ({"note": "ab"}, 2)):
                expect((value, length(server, chat_template_kwargs=value)), (value, whole + more))
            expect(length(server, add_generation_prompt=True, continue_final_message=False), whole)
            expect(length(server, add_generation_prompt=False), whole - len("[assistant]"))
            expect(length(server, add_generation_prompt=False, chat_template_kwargs={"note": "é"}), whole - len("[assistant]") + 2)
            for value in ([], "x", {"messages": []}, {"tools": None}, {"add_generation_prompt": True}, {"x": [0] * 60_000}, {"x": "y" * 1_100_000}):
                refused(server, kwargs, value)
            for value in ({"note": "<|endoftext|>"}, {"x": ["a <|endoftext|>"]}, {"x": {"<|endoftext|>": 1}}, {"<|endoftext|>": 1}, {"x": "\ufdd0"}):
                refused(server, kwargs, value, "special token")
            refused(server, "continue_final_message", True, "a new message")
    with Server([CHECK]) as server:  # ChatML, which has no variables
        refused(server, kwargs, {"enable_thinking": False}, "which this model lacks")
        expect(length(server, chat_template_kwargs={}), length(server))
        expect(length(server, add_generation_prompt=False), length(server) - len("<|im_start|>assistant\n"))


def room():
    """What runs pushes out nothing, and is bounded by itself."""
    with Server([CHECK, "--slow", "20000", "--stored-bytes", "500000"]) as server:
        kept = made(server.post(RESPONSES, input="a", max_output_tokens=1))
        # Much to keep of what is a short prompt.
        parts = [{"type": "input_text", "text": ""}] * 3000
        fields = {"background": True, "input": [{"role": "user", "content": parts}], "max_output_tokens": 500, "ignore_eos": True}
        running = []
        while (answer := server.post(RESPONSES, **fields))[0] == 200 and len(running) < 20:
            running.append(answer[1]["id"])
        expect((answer[0], answer[1]["error"]["code"], 2 <= len(running) < 6), (429, "background_full", True))
        get(server, f"{RESPONSES}/{kept['id']}")
        expect(server.metric("stored_answer_evictions_total"), 0)
        made(server.post(RESPONSES, input="a", max_output_tokens=1))  # which is waited for
        get(server, f"{RESPONSES}/{running[0]}/cancel", method="POST")
        running.append(made(server.post(RESPONSES, **fields))["id"])
        for each in running:
            get(server, f"{RESPONSES}/{each}", method="DELETE")
        fields["input"] = [{"role": "user", "content": parts * 6}]
        expect(server.post(RESPONSES, **fields)[0], 400)  # it would never fit


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
        for check in (background, many_at_once):
            check(server)
            print(f"ok: {check.__name__}", flush=True)
        expect(server.call("GET", "/health")[0], 200)
        expect(server.process.poll(), None)
    for check in (slow_background, room, calls, llama, variables, held_back):
        check()
        print(f"ok: {check.__name__}", flush=True)


main()
