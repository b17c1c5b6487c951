"""Tools: what a chat template makes of them against jinja2, and calls by the
stock openai client, whole and as streams, against the tools' schemas.
   openai_tools.py SERVE-CHECK

The model is one of hashes. What it writes without a form depends on every token
of its prompt, and so a chat that writes what a completion of jinja2's text
writes had that text for its prompt.
"""
import json
import pathlib
import sys
import tempfile

import jinja2.sandbox
import jsonschema
import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
from serving import Server  # noqa: E402

# As Hermes and Qwen have it, in our words.
HERMES = """\
{%- macro turn(role, text) %}[{{ role }}]{{ text }}[/]
{% endmacro -%}
{%- if tools %}{{ turn("tools", tools | map("tojson") | join("\\n")
  ~ "\\nCall as <tool_call>{\\"name\\": ..., \\"arguments\\": ...}</tool_call>") }}{% endif -%}
{%- for message in messages %}
  {%- if message.role == "tool" %}{{ turn("result " ~ message.tool_call_id, message.content) }}
  {%- else %}{{ "[" ~ message.role ~ "]" ~ (message.content or "") }}
    {%- for call in message.tool_calls or [] %}
      {{- "<tool_call>" ~ {"name": call.function.name, "arguments": call.function.arguments} | tojson ~ "</tool_call>" }}
    {%- endfor %}{{ "[/]\\n" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "[assistant]" }}{% endif %}"""
TEMPLATES = {
    "Hermes": HERMES,
    "Mistral": HERMES.replace("<tool_call>{", "[TOOL_CALLS]{").replace("</tool_call>", "").replace("<tool_call>", ""),
    "Llama 3": HERMES.replace("<tool_call>", "").replace("</tool_call>", "")
               + '{# ipython "parameters": #}',
}
WEATHER = {"type": "object", "additionalProperties": False, "required": ["city"], "properties": {
    "city": {"type": "string", "minLength": 1, "maxLength": 4}, "days": {"$ref": "#/$defs/days"}},
    "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 14}}}
SCHEMAS = {"weather": WEATHER,
           "clock": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Of <a> city & more", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "clock"}}]
USER = {"role": "user", "content": "Is it raining?"}
TALK = [USER,
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "abc123XYZ", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome", "days": 2}'}},
            {"id": "abc123XYA", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "abc123XYZ", "content": "rain"},
        {"role": "tool", "tool_call_id": "abc123XYA", "content": "noon"},
        {"role": "user", "content": "And tomorrow?"}]


def rendered(template, messages, tools):
    """As transformers renders: calls have their arguments as values."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return environment.from_string(template).render(messages=messages, tools=tools, add_generation_prompt=True)


def strict(made):
    type(made).model_validate(made.to_dict(), strict=True)
    return made


def prompts(client, template):
    fields = {"model": "fake", "max_tokens": 60, "seed": 4}
    for messages, tools, more in (([USER], TOOLS, {}), (TALK, TOOLS, {"tool_choice": "auto"}), (TALK, None, {}),
                                  (TALK, TOOLS, {"tool_choice": "none"}), ([USER], TOOLS[1:], {"parallel_tool_calls": True})):
        shown = None if more.get("tool_choice") == "none" else tools
        text = client.completions.create(prompt=rendered(template, messages, shown), **fields)
        chat = client.chat.completions.create(messages=messages, **({"tools": tools} if tools else {}), **more, **fields)
        assert chat.choices[0].message.content == text.choices[0].text, (chat, text)
        assert chat.usage.prompt_tokens == text.usage.prompt_tokens
        assert not chat.choices[0].message.tool_calls


def gathered(parts):
    """Calls and text of a stream, and why it ended."""
    calls, text, end = [], "", None
    for part in parts:
        for choice in part.choices:
            end = choice.finish_reason or end
            text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or []:
                if piece.index == len(calls):
                    assert piece.type == "function" and len(piece.id) == 9
                    calls.append([piece.function.name, ""])
                else:
                    assert piece.id is None and piece.function.name is None
                calls[piece.index][1] += piece.function.arguments
    return calls, text, end


def calls(client, name):
    create, seen, lengths = client.chat.completions.create, set(), set()
    fields = {"model": "fake", "messages": [USER], "tools": TOOLS}
    for seed in range(12):
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            asked = fields | {"seed": seed, "tool_choice": choice, "max_tokens": 400, "parallel_tool_calls": seed % 2 == 0}
            whole = strict(create(**asked)).choices[0]
            parts = [strict(part) for part in create(stream=True, **asked)]
            found = [[call.function.name, call.function.arguments] for call in whole.message.tool_calls]
            assert gathered(parts) == (found, "", whole.finish_reason)
            assert len({call.id for call in whole.message.tool_calls}) == len(found)
            if whole.finish_reason == "length":  # cut among many
                found.pop()
            else:
                assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
            for function, arguments in found:
                jsonschema.validate(json.loads(arguments), SCHEMAS[function])
            seen |= {function for function, _ in found}
            lengths.add(len(found))
            assert choice == "required" or {function for function, _ in found} <= {"weather"}
            if seed % 2 or choice != "required" or name == "Llama 3":
                assert len(found) <= 1, found
    assert seen == {"weather", "clock"}, seen
    assert name == "Llama 3" or max(lengths) > 1, lengths


def refused(client, name):
    create = client.chat.completions.create
    pattern = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"pattern": "x"}}}}}
    exact = [{"type": "function", "function": TOOLS[0]["function"] | {"strict": True}}]
    ask = {"model": "fake", "messages": [USER]}
    for part, fields in (
        ("tool_choice needs tools", {"tool_choice": "required"}),
        ("no tool with the name 'other'", {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}}),
        ('the parameters of f: #/properties/a: the keyword "pattern" is not served', {"tools": [pattern], "tool_choice": "required"}),
        ("leave out response_format or tools", {"tools": TOOLS, "response_format": {"type": "json_object"}}),
        ("two tools with the name clock", {"tools": [TOOLS[1], TOOLS[1]]}),
        ("must have a name of up to 64", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
        ("a tool must be", {"tools": [{"type": "web_search"}]}),
        ("must have a tool_call_id", {"messages": [{"role": "tool", "content": "x"}]}),
        ("only an assistant's", {"messages": [USER | {"tool_calls": TALK[1]["tool_calls"]}]}),
        ("JSON of an object", {"messages": [TALK[1] | {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "[1]"}}]}]}),
        ("served with tool_choice: required" if name == "Llama 3" else None, {"tools": exact, "max_tokens": 5}),
    ):
        try:
            create(**(ask | fields))
        except openai.BadRequestError as error:
            assert part and part in error.body["message"], (part, error)
        else:
            assert part is None, part


def main():
    for name, template in TEMPLATES.items():
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            with Server([sys.argv[1], "--template", file.name]) as server:
                client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
                prompts(client, template)
                calls(client, name)
                refused(client, name)
                server.wait_until_idle()
        print(f"ok: {name}", flush=True)
    with Server([sys.argv[1]]) as server:
        status, answer = server.post("/v1/chat/completions", messages=[USER], tools=TOOLS)
        assert status == 400 and "knows no tools" in answer["error"]["message"], answer
        assert server.post("/v1/chat/completions", messages=[USER], tools=TOOLS, tool_choice="none", max_tokens=3)[0] == 200
    print("ok: a template without tools")


main()
