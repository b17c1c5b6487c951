"""The stock anthropic client against the server over a model of hashes: messages, their
streams, tools, thinking, counts and errors.
   anthropic_client.py SERVE-CHECK

What the model writes depends on every token of its prompt, and so a message that says what a chat
or a completion says had the same prompt.
"""

import json
import pathlib
import sys
import tempfile

import anthropic
import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
from openai_client import REASONING  # noqa: E402
from openai_tools import TEMPLATES, WEATHER, rendered  # noqa: E402
from serving import Server  # noqa: E402

USER = [{"role": "user", "content": "hello"}]
TOOLS = [{"name": "weather", "description": "Of a city", "input_schema": WEATHER},
         {"name": "clock", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}]
# The client has no temperature: the models that it is for take none.
FIELDS = {"model": "fake", "max_tokens": 30, "extra_body": {"temperature": 0.7, "seed": 5, "ignore_eos": True}}


def strict(made):
    """The client takes any JSON; this proves that it is what the types say."""
    for one in made if isinstance(made, list) else [made]:
        type(one).model_validate(one.to_dict(), strict=True)
    return made


def client_of(server, key="none"):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key=key, max_retries=0)


def streamed(client, **fields):
    """The message that the client gathers, after a look at the order of events."""
    with client.messages.stream(**fields) as stream:
        types = [event.type for event in stream]
        message = stream.get_final_message()
    raw = strict(list(client.messages.create(stream=True, **fields)))
    order = [each.type for each in raw]
    assert order[0] == "message_start" and order[-2:] == ["message_delta", "message_stop"], order
    is_open, index = False, -1
    for event in raw[1:-2]:
        if event.type == "content_block_start":
            is_open, index = True, index + 1
        assert event.index == index and is_open, order
        is_open &= event.type != "content_block_stop"
    assert not is_open and "message_stop" in types, (order, types)
    return message


def same(one, two):
    """But for ids, which are random."""
    def plain(message):
        fields = message.to_dict()
        return [{k: v for k, v in block.items() if k != "id"} for block in fields["content"]], fields["stop_reason"], fields["stop_sequence"], fields["usage"]["output_tokens"]
    return plain(one) == plain(two)


def messages(server, client):
    said = [{"role": "system", "content": "be kind"}, *USER]
    status, chat = server.post("/v1/chat/completions", messages=said, max_tokens=30, temperature=0.7, seed=5, ignore_eos=True)
    assert status == 200
    text = chat["choices"][0]["message"]["content"]
    for system in ("be kind", [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}]):
        one = strict(client.messages.create(system=system, messages=USER, **FIELDS))
        assert one.content[0].text == text and one.stop_reason == "max_tokens" and one.id.startswith("msg_"), (one, chat)
        assert one.usage.input_tokens + one.usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]
        assert one.usage.output_tokens == 30
        assert same(one, streamed(client, system=system, messages=USER, **FIELDS))
        counted = strict(client.messages.count_tokens(model="fake", system=system, messages=USER))
        assert counted.input_tokens == chat["usage"]["prompt_tokens"]
    blocks = [{"role": "user", "content": [{"type": "text", "text": "hel"}]}, {"role": "user", "content": "lo"}]
    turns = [*blocks, {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, *USER]
    joined = [{"role": "user", "content": "hel\nlo"}, {"role": "assistant", "content": "ab"}, *USER]
    assert same(client.messages.create(messages=turns, **FIELDS), client.messages.create(messages=joined, **FIELDS))
    # What a stop sequence ends, and what nothing does.
    stop = text[10:12]
    fields = FIELDS | {"system": "be kind", "messages": USER, "stop_sequences": ["never", stop]}
    ended = strict(client.messages.create(**fields))
    assert (ended.stop_reason, ended.stop_sequence, ended.content[0].text) == ("stop_sequence", stop, text[:text.index(stop)]), ended
    assert same(ended, streamed(client, **fields))
    long = client.messages.create(messages=USER, model="fake", max_tokens=900, extra_body={"seed": 3})
    assert long.stop_reason in ("end_turn", "max_tokens")
    print("ok: messages")


def openai_turns(turns):
    """The same talk in OpenAI's form."""
    for turn in turns:
        if isinstance(turn["content"], str):
            yield turn
            continue
        calls = [{"id": each["id"], "type": "function", "function": {"name": each["name"], "arguments": json.dumps(each["input"])}}
                 for each in turn["content"] if each["type"] == "tool_use"]
        if calls:
            yield {"role": "assistant", "content": None, "tool_calls": calls}
        for each in turn["content"]:
            if each["type"] == "tool_result":
                yield {"role": "tool", "tool_call_id": each["tool_use_id"], "content": each["content"]}


def tools(server, client):
    schemas = {each["name"]: each["input_schema"] for each in TOOLS}
    seen = set()
    for seed in range(12):
        for choice in ({"type": "any"}, {"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}):
            fields = {"model": "fake", "messages": USER, "tools": TOOLS, "tool_choice": choice, "max_tokens": 250, "extra_body": {"seed": seed}}
            made = strict(client.messages.create(**fields))
            assert same(made, streamed(client, **fields)) or made.stop_reason == "max_tokens", made
            if made.stop_reason != "max_tokens":
                assert made.stop_reason == "tool_use" and made.content, made
            for block in made.content:
                jsonschema.validate(block.input, schemas[block.name])
                seen.add(block.name)
            assert len(made.content) <= 1 or choice == {"type": "any"}, made
            assert choice["type"] == "any" or {block.name for block in made.content} <= {"weather"}
    assert seen == set(schemas), seen
    # A later turn, as the client's own types say it.
    calls = [{"type": "tool_use", "id": "abc123XY1", "name": "weather", "input": {"city": "Rome"}}]
    results = [{"type": "tool_result", "tool_use_id": "abc123XY1", "content": "rain", "is_error": False}]
    turns = [*USER, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    shown = [{"type": "function", "function": {"name": each["name"], **({"description": each["description"]} if "description" in each else {}),
                                               "parameters": each["input_schema"]}} for each in TOOLS]
    prompt = rendered(TEMPLATES["qwen2"], list(openai_turns(turns)), shown)
    status, text = server.post("/v1/completions", prompt=prompt, max_tokens=30, temperature=0.7, seed=5, ignore_eos=True)
    made = client.messages.create(messages=turns, tools=TOOLS, **FIELDS)
    assert status == 200 and made.content[0].text == text["choices"][0]["text"], (made, text)
    assert client.messages.count_tokens(model="fake", messages=turns, tools=TOOLS).input_tokens == text["usage"]["prompt_tokens"]
    blocks = [*results, {"type": "text", "text": "and?"}]
    more = client.messages.create(messages=[*turns[:2], {"role": "user", "content": blocks}], tools=TOOLS, **FIELDS)
    prompt = rendered(TEMPLATES["qwen2"], [*openai_turns(turns), {"role": "user", "content": "and?"}], shown)
    status, text = server.post("/v1/completions", prompt=prompt, max_tokens=30, temperature=0.7, seed=5, ignore_eos=True)
    assert more.content[0].text == text["choices"][0]["text"], (more, text)
    print("ok: tools")


def thinking(server, client):
    """The template begins the reasoning, which the model of hashes never ends."""
    status, text = server.post("/v1/completions", prompt="[user]hello[assistant]<think>", max_tokens=30, temperature=0.7, seed=5, ignore_eos=True)
    assert status == 200
    for asked in ({}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "disabled"}}):
        made = strict(client.messages.create(messages=USER, **asked, **FIELDS))
        (block,) = made.content
        assert (block.type, block.thinking, block.signature) == ("thinking", text["choices"][0]["text"].lstrip(" \t\r\n"), ""), made
        assert made.usage.output_tokens_details.thinking_tokens == 30
        assert same(made, streamed(client, messages=USER, **asked, **FIELDS))
    # A later turn may have it; what the template makes of it is its own.
    def count(*blocks):
        turns = [*USER, {"role": "assistant", "content": [*blocks, {"type": "text", "text": "hm"}]}, *USER]
        return client.messages.count_tokens(model="fake", messages=turns).input_tokens
    assert count({"type": "thinking", "thinking": "why", "signature": ""}) == count() + len("<think>why</think>")
    print("ok: thinking")


# A template that says which variables it was given.
SWITCHED = ("{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}yes{% elif enable_thinking is defined %}no!{% endif %}"
            "{{ thinking }}<think></think>")


def switches(server, client):
    def count(**more):
        return client.messages.count_tokens(model="fake", messages=USER, **more).input_tokens
    bare = len("hello<think></think>")
    assert count() == bare == count(thinking={"type": "adaptive"})
    assert count(thinking={"type": "enabled", "budget_tokens": 1024}) == bare + len("yesTrue")
    assert count(thinking={"type": "disabled"}) == bare + len("no!False")
    own = {"chat_template_kwargs": {"enable_thinking": True}}
    assert count(thinking={"type": "disabled"}, extra_body=own) == bare + len("yesFalse")
    print("ok: switches")


def refused(server, client):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    for part, fields in (
        ("a block of type 'image' is not supported here; it may be text or tool_result", {"messages": [{"role": "user", "content": [image]}]}),
        ("a block of type 'document'", {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}]}]}),
        ("the last message must be the user's", {"messages": [*USER, {"role": "assistant", "content": "I"}]}),
        ("system is a field of its own", {"messages": [{"role": "system", "content": "a"}, *USER]}),
        ("got the type 'web_search_20250305'; the server runs no tools", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("the model's chat template has no tools", {"tools": TOOLS}),
        ("tool_choice requires tools", {"tool_choice": {"type": "any"}}),
        ("no reasoning; leave it out", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("budget_tokens of at least 1024", {"thinking": {"type": "enabled", "budget_tokens": 5}}),
        ("the field 'mcp_servers' is not supported", {"extra_body": {"mcp_servers": []}}),
        ("cache_control must be", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "forever"}}]}]}),
        ("messages must be a list of at least one", {"messages": []}),
        ("stop_sequences must be a list", {"stop_sequences": "a"}),
        ("at most the context", {"max_tokens": 5000}),
    ):
        try:
            client.messages.create(**({"model": "fake", "max_tokens": 5, "messages": USER} | fields))
        except anthropic.BadRequestError as error:
            assert error.body["type"] == "error" and error.body["error"]["type"] == "invalid_request_error", error.body
            assert part in error.body["error"]["message"], (part, error.body)
        else:
            raise AssertionError(part)
    for code, kind, call in ((404, "not_found_error", lambda: client.messages.create(model="other", max_tokens=5, messages=USER)),
                             (405, "invalid_request_error", lambda: client.get("/v1/messages", cast_to=object)),
                             (404, "not_found_error", lambda: client.get("/v1/messages/batches", cast_to=object))):
        try:
            call()
        except anthropic.APIStatusError as error:
            assert (error.status_code, error.body["error"]["type"]) == (code, kind), error.body
        else:
            raise AssertionError(kind)
    print("ok: refused")


def keys(server, client):
    assert client.messages.create(messages=USER, **FIELDS).content
    assert server.call("GET", "/v1/models", headers={"X-Api-Key": "secret"})[0] == 200
    both = {"X-Api-Key": "secret", "Authorization": "Bearer other"}
    assert server.call("GET", "/v1/models", headers=both)[0] == 401
    try:
        client_of(server, "secrets").messages.create(messages=USER, **FIELDS)
    except anthropic.AuthenticationError as error:
        assert error.body["error"]["type"] == "authentication_error", error.body
    else:
        raise AssertionError("any key is taken")
    print("ok: keys")


def main():
    for template, checks in ((None, (messages, refused)), (TEMPLATES["qwen2"], (tools,)), (REASONING, (thinking,)), (SWITCHED, (switches,))):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template or "")
            file.flush()
            with Server([sys.argv[1], *(["--template", file.name] if template else [])]) as server:
                for check in checks:
                    check(server, client_of(server))
                server.wait_until_idle()
    with Server([sys.argv[1], "--key", "secret"]) as server:
        keys(server, client_of(server, "secret"))


main()
