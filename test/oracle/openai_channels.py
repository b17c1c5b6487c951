"""Outputs in channels, as of gpt-oss, by the stock openai and anthropic clients: reasoning, content
and calls, whole and as streams; prompts against jinja2.
   openai_channels.py SERVE-CHECK

The model is one of hashes, and writes no tags of its own: a regular expression makes it write them.
"""
import json
import pathlib
import re
import sys
import tempfile

import anthropic
import jsonschema
import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
from openai_tools import EMPTY, WEATHER, call, gathered, rendered, strict  # noqa: E402
from serving import Server  # noqa: E402

# That of gpt-oss in our words: what it does with each message, and what it refuses.
TEMPLATE = """
{%- if tools %}{{ '<|start|>developer<|message|># Tools ' ~ tools | tojson ~ '<|end|>' }}{% endif %}
{%- set last = namespace(name='') %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
    {%- if '<|channel|>' in message.content or (message.thinking and '<|channel|>' in message.thinking) %}
        {{- raise_exception('a header') }}
    {%- endif %}
    {%- if message.tool_calls %}
        {%- if message.content and message.thinking %}{{ raise_exception('both') }}{% endif %}
        {%- set said = message.content or message.thinking %}
        {%- if said %}{{ '<|start|>assistant<|channel|>analysis<|message|>' ~ said ~ '<|end|>' }}{% endif %}
        {%- set last.name = message.tool_calls[0].function.name %}
        {{- '<|start|>assistant to=functions.' ~ last.name ~ '<|channel|>commentary json<|message|>' }}
        {{- message.tool_calls[0].function.arguments | tojson ~ '<|call|>' }}
    {%- else %}
        {{- '<|start|>assistant<|channel|>final<|message|>' ~ message.content ~ '<|end|>' }}
    {%- endif %}
{%- elif message.role == 'tool' %}
    {{- '<|start|>functions.' ~ last.name ~ ' to=assistant<|channel|>commentary<|message|>' ~ message.content | tojson ~ '<|end|>' }}
{%- else %}
    {{- '<|start|>' ~ message.role ~ '<|message|>' ~ message.content ~ '<|end|>' }}
{%- endif %}
{%- endfor %}
{%- if reasoning_effort %}{{ '[' ~ reasoning_effort ~ ']' }}{% endif %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""
USER = [{"role": "user", "content": "Is it raining?"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "clock", "parameters": EMPTY}}]
FINAL = "<|channel|>final<|message|>"


def text_of(server, **fields):
    made = server.post("/tokenize", **fields)[1]
    return server.post("/detokenize", tokens=made["tokens"])[1]["prompt"]


def prompts(server):
    """What a message says beside its call is thinking; the template takes one of both."""
    asks = {"role": "assistant", "tool_calls": [call(1, "weather", '{"city": "Rome"}')]}
    told = {"role": "tool", "tool_call_id": "abc123XY1", "content": 'rain & "wind"'}
    for own, seen in (({}, {"content": ""}), ({"content": "I look."}, {"content": "I look."}),
                      ({"reasoning_content": "Where?"}, {"content": "", "thinking": "Where?"}),
                      ({"reasoning_content": "Where?", "content": "I look."}, {"content": "", "thinking": "Where?\nI look."})):
        after = [told, {"role": "assistant", "content": "Rain."}, *USER]
        text = rendered(TEMPLATE, [*USER, asks | seen, *after], TOOLS)
        assert text_of(server, messages=[*USER, asks | own, *after], tools=TOOLS) == text, (own, text)
    two = asks | {"tool_calls": [*asks["tool_calls"], call(2, "clock", "{}")]}
    status, answer = server.post("/tokenize", messages=[*USER, two, *USER])
    assert status == 400 and "one call of a message" in answer["error"]["message"], answer
    print("ok: prompts")


def written(text):
    """A request for exactly this, after the header of the final message."""
    return {"structured_outputs": {"regex": re.sub(r"[^\w ]", lambda m: "\\" + m[0], text)}, "max_tokens": 300, "seed": 3}


def outputs(server, client, messages):
    said = "Yes.<|end|><|start|>assistant<|channel|>analysis<|message|>Is it? 1 < 2<|end|><|start|>assistant<|channel|>commentary<|message|>And more."
    reasoning, content = "Is it? 1 < 2", "Yes.\nAnd more."
    fields = {"model": "fake", "messages": USER}
    made = client.chat.completions.create(**fields, extra_body=written(said))
    message = strict(made).choices[0].message
    assert (message.content, message.reasoning_content) == (content, reasoning), made
    assert made.usage.prompt_tokens == len(rendered(TEMPLATE, USER, None)) + len(FINAL), made.usage
    assert made.usage.completion_tokens == len(said), made.usage
    # From the header to the end of the message.
    assert made.usage.completion_tokens_details.reasoning_tokens == len(said[said.index("<|start|>"):said.index("<|start|>assistant<|channel|>comm")]), made.usage
    parts = [part.choices[0].delta for part in client.chat.completions.create(**fields, stream=True, extra_body=written(said))]
    assert "".join(part.content or "" for part in parts) == content
    assert "".join(getattr(part, "reasoning_content", "") for part in parts) == reasoning
    response = strict(client.responses.create(model="fake", input=USER[0]["content"], extra_body={"max_output_tokens": 300, **{k: v for k, v in written(said).items() if k != "max_tokens"}}))
    assert [item.type for item in response.output] == ["message", "reasoning", "message"], response.output
    assert response.output[1].content[0].text == reasoning and response.output_text == "Yes.\nAnd more."
    # What stops the model is not shown, though here it is no token.
    short = client.chat.completions.create(**fields, extra_body=written("Yes.<|return|>more"))
    assert (short.choices[0].message.content, short.choices[0].finish_reason) == ("Yes.", "stop"), short
    # Without a header, as this model begins.
    free = client.chat.completions.create(**fields, seed=5, max_tokens=20, extra_body={"ignore_eos": True})
    prompt = rendered(TEMPLATE, USER, None)
    text = client.completions.create(model="fake", prompt=prompt, seed=5, max_tokens=20, extra_body={"ignore_eos": True})
    assert free.choices[0].message.content == text.choices[0].text, (free, text)
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": WEATHER}}
    for seed in range(5):
        formed = client.chat.completions.create(**fields, seed=seed, max_tokens=200, response_format=schema).choices[0]
        if formed.finish_reason == "stop":
            jsonschema.validate(json.loads(formed.message.content), WEATHER)
    bare = client.chat.completions.create(**fields, max_tokens=1).usage.prompt_tokens
    for effort in ("low", "high", "minimal"):
        assert client.chat.completions.create(**fields, max_tokens=1, reasoning_effort=effort).usage.prompt_tokens == bare + len(effort) + 2
    tried = client.responses.create(model="fake", input=USER[0]["content"], max_output_tokens=1, reasoning={"effort": "medium"})
    assert tried.usage.input_tokens == bare + len("[medium]"), tried.usage
    print("ok: outputs")


def calls(server, client, messages):
    schemas = {"weather": WEATHER, "clock": EMPTY}
    header = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"
    for seed in range(10):
        for name in schemas:
            fields = {"model": "fake", "messages": USER, "tools": TOOLS, "seed": seed, "max_tokens": 250,
                      "tool_choice": {"type": "function", "function": {"name": name}}}
            made = strict(client.chat.completions.create(**fields))
            choice = made.choices[0]
            (called,) = choice.message.tool_calls
            assert made.usage.prompt_tokens == len(rendered(TEMPLATE, USER, TOOLS)) + len(header.format(name))
            parts = [strict(part) for part in client.chat.completions.create(stream=True, **fields)]
            assert gathered(parts) == ([[called.function.name, called.function.arguments]], "", choice.finish_reason)
            assert called.function.name == name and choice.message.content is None
            if choice.finish_reason == "length":
                continue
            assert choice.finish_reason == "tool_calls", choice
            jsonschema.validate(json.loads(called.function.arguments), schemas[name])
            typed = [{"name": each["function"]["name"], "input_schema": each["function"]["parameters"]} for each in TOOLS]
            message = messages.messages.create(model="fake", messages=USER, tools=typed, tool_choice={"type": "tool", "name": name},
                                               max_tokens=250, extra_body={"seed": seed})
            assert (message.content[0].name, message.content[0].input) == (name, json.loads(called.function.arguments)), message
            assert message.stop_reason == "tool_use"
    one = client.chat.completions.create(model="fake", messages=USER, tools=TOOLS[1:], tool_choice="required")
    assert json.loads(one.choices[0].message.tool_calls[0].function.arguments) == {}, one
    exact = [{"type": "function", "function": TOOLS[1]["function"] | {"strict": True}}]
    for fields in ({"tools": TOOLS, "tool_choice": "required"}, {"tools": exact}):
        try:
            client.chat.completions.create(model="fake", messages=USER, **fields)
        except openai.BadRequestError as error:
            assert "for this model, tool_choice must be auto" in error.body["message"], error
        else:
            raise AssertionError(fields)
    assert client.chat.completions.create(model="fake", messages=USER, tools=TOOLS, parallel_tool_calls=False, max_tokens=5).usage
    print("ok: calls")


def begun(server, client, messages):
    """A template that begins the analysis, which the model of hashes does not end."""
    fields = {"seed": 5, "extra_body": {"ignore_eos": True}}
    prompt = rendered(TEMPLATE, USER, None) + "<|channel|>analysis<|message|>"
    text = client.completions.create(model="fake", prompt=prompt, max_tokens=20, **fields).choices[0].text
    made = client.chat.completions.create(model="fake", messages=USER, max_tokens=20, **fields)
    assert (made.choices[0].message.reasoning_content, made.choices[0].message.content) == (text, ""), made
    assert made.usage.completion_tokens_details.reasoning_tokens == 20
    (block,) = messages.messages.create(model="fake", messages=USER, max_tokens=20, extra_body={"seed": 5, "ignore_eos": True}).content
    assert (block.type, block.thinking) == ("thinking", text), block
    print("ok: begun")


def main():
    for template, checks in ((TEMPLATE, (prompts, outputs, calls)), (TEMPLATE + "<|channel|>analysis<|message|>", (begun,))):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            with Server([sys.argv[1], "--template", file.name]) as server:
                base = f"http://127.0.0.1:{server.port}"
                clients = (openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0),
                           anthropic.Anthropic(base_url=base, api_key="none", max_retries=0))
                for check in checks:
                    check(server, *(clients if check is not prompts else ()))
                server.wait_until_idle()


main()
