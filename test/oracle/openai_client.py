"""The stock openai client against the server over a model of hashes.
   openai_client.py SERVE-CHECK"""

import pathlib
import sys
import tempfile

import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
from serving import Server  # noqa: E402

MESSAGES = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]


def strict(made):
    """The client takes any JSON; this proves that it is what the types say."""
    for one in made if isinstance(made, list) else [made]:
        type(one).model_validate(one.to_dict(), strict=True)
    return made


def stored_responses(client, fields):
    """Kept by default; a talk goes on by the id of what was said last, here as a stream."""
    one = client.responses.create(input="hello", instructions="be kind", **fields)
    assert one.store and strict(client.responses.retrieve(one.id)) == one
    with client.responses.stream(input="and?", previous_response_id=one.id, **fields) as stream:
        seen = list(stream)
    two = client.responses.retrieve(seen[-1].response.id)
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == two.output_text and two.previous_response_id == one.id
    said = [{"role": "user", "content": "hello"}, *one.output, {"role": "user", "content": "and?"}]
    assert client.responses.create(input=said, **fields).output_text == two.output_text
    items = strict(list(client.responses.input_items.list(two.id, order="asc", limit=1)))  # three pages
    assert [item.content[0].text for item in items] == ["hello", one.output_text, "and?"], items
    told = strict(list(client.responses.retrieve(two.id, stream=True)))
    assert "".join(e.delta for e in told if e.type == "response.output_text.delta") == two.output_text
    assert told[-1].response.output_text == two.output_text
    rest = list(client.responses.retrieve(two.id, stream=True, starting_after=told[4].sequence_number))
    assert rest == told[5:]
    client.responses.delete(one.id)
    assert client.responses.retrieve(two.id).id == two.id
    later = strict(client.responses.create(input="hello", background=True, **fields))
    assert later.status == "queued" and later.background
    while later.status in ("queued", "in_progress"):
        later = strict(client.responses.retrieve(later.id))
    assert later.status == "incomplete" and strict(client.responses.cancel(later.id)) == later
    print("ok: stored responses")


def stored_chats(client):
    fields = {"model": "fake", "messages": MESSAGES, "max_tokens": 5, "store": True}
    made = [client.chat.completions.create(seed=i, metadata={"n": str(i % 2)}, **fields) for i in range(5)]
    streamed = list(client.chat.completions.create(seed=0, metadata={"n": "0"}, stream=True, **fields))[0].id
    ids = [chat.id for chat in made] + [streamed]
    listed = strict(list(client.chat.completions.list(limit=2)))
    assert [chat.id for chat in listed] == ids and listed[2].choices == made[2].choices
    assert listed[-1].choices == made[0].choices  # whole or as a stream
    odd = client.chat.completions.list(metadata={"n": "1"}, order="desc", model="fake", limit=1)
    assert [chat.id for chat in odd] == [ids[3], ids[1]]
    one = strict(client.chat.completions.update(ids[0], metadata={"new": "x"}))
    assert one.metadata == {"new": "x"} and client.chat.completions.retrieve(ids[0]) == one
    # Not strict: the client's type knows no role but the assistant's.
    messages = list(client.chat.completions.messages.list(ids[0], limit=1))
    assert [{"role": each.role, "content": each.content} for each in messages] == MESSAGES, messages
    assert strict(client.chat.completions.delete(ids[0])).deleted
    assert [chat.id for chat in client.chat.completions.list(after=ids[1])] == ids[2:]
    print("ok: stored chats")


# Begins the reasoning, as those of DeepSeek-R1 and Qwen3's thinking models.
REASONING = ("{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
             "{% endif %}{{ m.content }}{% endfor %}[assistant]<think>")


def no_reasoning(client):
    """A template that leaves the beginning to the model, which writes no tag."""
    fields = {"model": "fake", "seed": 5, "temperature": 0.7, "max_tokens": 12, "extra_body": {"ignore_eos": True}}
    text = client.completions.create(prompt="[system]be kind[user]hello[assistant]", **fields).choices[0].text
    made = strict(client.chat.completions.create(messages=MESSAGES, **fields))
    assert made.choices[0].message.content == text and not hasattr(made.choices[0].message, "reasoning_content"), made
    assert made.usage.completion_tokens_details.reasoning_tokens == 0, made


def reasoning(client):
    """The model of hashes never ends it."""
    fields = {"model": "fake", "seed": 5, "temperature": 0.7, "max_tokens": 12, "extra_body": {"ignore_eos": True}}
    prompt = "[system]be kind[user]hello[assistant]<think>"
    text = client.completions.create(prompt=prompt, **fields).choices[0].text.lstrip(" \t\r\n")
    made = strict(client.chat.completions.create(messages=MESSAGES, **fields))
    message = made.choices[0].message
    assert (message.reasoning_content, message.content) == (text, ""), (made, text)
    assert made.usage.completion_tokens_details.reasoning_tokens == made.usage.completion_tokens == 12
    parts = strict(list(client.chat.completions.create(messages=MESSAGES, stream=True, **fields)))
    deltas = [part.choices[0].delta for part in parts]
    assert "".join(getattr(each, "reasoning_content", "") for each in deltas) == text
    assert not any(each.content for each in deltas), deltas
    # A form leaves no room for it.
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 1}}}
    formed = client.chat.completions.create(messages=MESSAGES, model="fake", response_format=schema).choices[0].message
    assert formed.content.strip() == "1" and not hasattr(formed, "reasoning_content"), formed
    # What a later turn says of it reaches the template.
    def length(**more):
        turn = [*MESSAGES, {"role": "assistant", "content": "hm", **more}, {"role": "user", "content": "and?"}]
        return client.chat.completions.create(messages=turn, **fields).usage.prompt_tokens
    assert length(reasoning_content="why") == length() + len("<think>why</think>")

    fields = {"model": "fake", "temperature": 0.7, "max_output_tokens": 12, "extra_body": {"seed": 5, "ignore_eos": True}}
    one = strict(client.responses.create(input="hello", instructions="be kind", **fields))
    (item,) = one.output
    assert (item.type, item.content[0].text, item.status) == ("reasoning", text, "incomplete"), item
    assert one.output_text == "" and one.usage.output_tokens_details.reasoning_tokens == 12
    events = strict(list(client.responses.create(input="hello", instructions="be kind", stream=True, **fields)))
    assert "".join(each.delta for each in events if each.type == "response.reasoning_text.delta") == text
    assert events[-1].response.output[0].content[0].text == text
    two = client.responses.create(input="and?", previous_response_id=one.id, **fields)
    turn = [{"role": "user", "content": "hello"}, *one.output, {"role": "assistant", "content": "hm"},
            {"role": "user", "content": "and?"}]
    three = client.responses.create(input=turn, **fields)
    assert three.usage.input_tokens == two.usage.input_tokens + len("hm"), (two.usage, three.usage)
    # Not strict: the client's list of items does not know reasoning.
    kept = list(client.responses.input_items.list(three.id, order="asc"))
    assert [each.type for each in kept] == ["message", "reasoning", "message", "message"], kept
    assert kept[1].id.startswith("rs_") and kept[1].content[0].text == text


def main():
    for check, template in ((reasoning, REASONING), (no_reasoning, REASONING.removesuffix("<think>"))):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            with Server([sys.argv[1], "--template", file.name]) as server:
                check(openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0))
        print(f"ok: {check.__name__}")
    with Server([sys.argv[1], "--key", "secret"]) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="secret", max_retries=0)
        assert [model.id for model in strict(client.models.list().data)] == ["fake"]
        assert strict(client.models.retrieve("fake")).owned_by == "tessera"
        print("ok: models")

        fields = {"model": "fake", "seed": 5, "max_tokens": 30, "temperature": 0.7, "n": 2}
        whole = strict(client.completions.create(prompt="once", logprobs=2, **fields))
        # Not strict: a part has no finish_reason yet, for which the type has no place.
        parts = list(client.completions.create(prompt="once", stream=True, **fields))
        for i in range(2):
            text = "".join(c.text for part in parts for c in part.choices if c.index == i)
            assert text == whole.choices[i].text, (text, whole.choices[i].text)
        assert whole.usage.completion_tokens <= 60
        print("ok: completions")

        fields |= {"logprobs": True, "top_logprobs": 2}
        whole = strict(client.chat.completions.create(messages=MESSAGES, **fields))
        options = {"include_usage": True}
        parts = strict(list(client.chat.completions.create(messages=MESSAGES, stream=True, stream_options=options, **fields)))
        for i in range(2):
            text = "".join(c.delta.content or "" for part in parts for c in part.choices if c.index == i)
            assert text == whole.choices[i].message.content
        assert parts[-1].usage.total_tokens == whole.usage.total_tokens
        print("ok: chats")

        fields = {"model": "fake", "max_output_tokens": 30, "temperature": 0.7, "extra_body": {"seed": 5}}
        items = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
        one = strict(client.responses.create(input="hello", instructions="be kind", metadata={"a": "b"}, **fields))
        assert one.status == "incomplete" and one.incomplete_details.reason == "max_output_tokens"
        assert one.temperature == 0.7 and one.usage.output_tokens == 30
        events = strict(list(client.responses.create(input=items, instructions="be kind", stream=True, **fields)))
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == one.output_text
        assert events[0].type == "response.created" and events[-1].response.output_text == one.output_text
        with client.responses.stream(input="hello", instructions="be kind", **fields) as stream:
            seen = {event.type for event in stream}
            assert {"response.created", "response.output_text.delta", "response.incomplete"} <= seen, seen
        turn = [*items, *one.output, {"role": "user", "content": "and?"}]
        assert strict(client.responses.create(input=turn, **fields)).usage.input_tokens > one.usage.input_tokens
        print("ok: responses")

        stored_responses(client, fields)
        stored_chats(client)

        for error, call in (
            (openai.NotFoundError, lambda: client.models.retrieve("other")),
            (openai.BadRequestError, lambda: client.completions.create(model="fake", prompt="a", n=1000)),
            (openai.BadRequestError, lambda: client.responses.create(model="fake", input="a", tools=[{"type": "web_search"}])),
            (openai.NotFoundError, lambda: client.responses.retrieve("resp_1")),
            (openai.NotFoundError, lambda: client.responses.create(model="fake", input="a", previous_response_id="resp_1")),
            (openai.BadRequestError, lambda: client.responses.cancel(client.responses.create(input="a", **fields).id)),
            (openai.NotFoundError, lambda: client.chat.completions.messages.list("chatcmpl-1")),
            (openai.BadRequestError, lambda: client.chat.completions.list(after="chatcmpl-1")),
            (openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list()),
        ):
            try:
                call()
            except error as found:
                assert found.body["message"], found
            else:
                raise SystemExit(f"no {error.__name__}")
        print("ok: errors")


if __name__ == "__main__":
    main()
