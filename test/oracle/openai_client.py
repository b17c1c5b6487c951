"""The stock openai client against the server over a model of hashes.
   openai_client.py SERVE-CHECK"""

import pathlib
import sys

import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
from serving import Server  # noqa: E402

MESSAGES = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]


def strict(made):
    """The client takes any JSON; this proves that it is what the types say."""
    for one in made if isinstance(made, list) else [made]:
        type(one).model_validate(one.to_dict(), strict=True)
    return made


def main():
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

        for error, call in (
            (openai.NotFoundError, lambda: client.models.retrieve("other")),
            (openai.BadRequestError, lambda: client.completions.create(model="fake", prompt="a", n=1000)),
            (openai.BadRequestError, lambda: client.responses.create(model="fake", input="a", tools=[{"type": "web_search"}])),
            (openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list()),
        ):
            try:
                call()
            except error as found:
                assert found.body["message"], found
            else:
                raise SystemExit(f"no {error.__name__}")
        print("ok: errors")


main()
