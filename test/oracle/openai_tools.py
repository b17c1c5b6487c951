"""Tools: what a chat template makes of them against jinja2, and calls by the
stock openai client, whole and as streams, against the tools' schemas.
   openai_tools.py SERVE-CHECK

The model is one of hashes. What it writes without a form depends on every token
of its prompt, and so a chat that writes what a completion of jinja2's text
writes had that text for its prompt.
"""
import datetime
import json
import pathlib
import sys
import tempfile

import jinja2.sandbox
import jsonschema
import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
from serving import Server  # noqa: E402

# Those that models have, in our words.
TOKENS = '{%- set bos_token = "<s>" %}{%- set eos_token = "</s>" %}'
TEMPLATES = {name: TOKENS + (pathlib.Path(__file__).parent / f"chat/{name}.jinja").read_text()
             for name in ("qwen2", "mistral", "llama3")}
WEATHER = {"type": "object", "additionalProperties": False, "required": ["city"], "properties": {
    "city": {"type": "string", "minLength": 1, "maxLength": 4}, "days": {"$ref": "#/$defs/days"}},
    "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 14}}}
CITY = {"type": "object", "required": ["city"], "additionalProperties": False,
        "properties": {"city": {"enum": ["Rome", "Oslo"]}}}
EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}


def tools_of(name):
    """The schemas of arguments by function, and the tools; llama3's template indents them, and there is little room."""
    schemas = {"weather": CITY if name == "llama3" else WEATHER, "clock": EMPTY}
    return schemas, [
        {"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters": schemas["weather"]}},
        {"type": "function", "function": {"name": "clock"}}]


# What prompts show: there is not much room.
SHOWN = [{"type": "function", "function": {"name": "look", "description": "At <a> city & more", "parameters": {"type": "object"}}},
         {"type": "function", "function": {"name": "clock"}}]
USER = {"role": "user", "content": "Is it raining?"}


def call(number, name, arguments):
    return {"id": f"abc123XY{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def talk(name):
    """Llama's template takes one call at a time."""
    calls = [call(1, "weather", '{"city": "Rome", "days": 2}'), call(2, "clock", "{}")][:1 if name == "llama3" else 2]
    return [USER, {"role": "assistant", "content": None, "tool_calls": calls},
            *({"role": "tool", "tool_call_id": each["id"], "content": "rain"} for each in calls),
            {"role": "assistant", "content": "Yes, <b>much</b>."}, {"role": "user", "content": "And tomorrow?"}]


def rendered(template, messages, tools):
    """As transformers renders: calls have their arguments as values."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    some = {"tools": tools} if tools else {}
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True, **some)


def strict(made):
    type(made).model_validate(made.to_dict(), strict=True)
    return made


def prompts(client, name, template):
    told = talk(name)
    fields = {"model": "fake", "max_tokens": 60, "seed": 4}
    for messages, tools, more in (([USER], SHOWN, {}), (told, SHOWN, {"tool_choice": "auto"}), (told, None, {}),
                                  (told, SHOWN, {"tool_choice": "none"}), ([USER], SHOWN[1:], {"parallel_tool_calls": True})):
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
    schemas, tools = tools_of(name)
    fields = {"model": "fake", "messages": [USER], "tools": tools}
    for seed in range(30):
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            asked = fields | {"seed": seed, "tool_choice": choice, "max_tokens": 170 if name == "llama3" else 300, "parallel_tool_calls": seed % 2 == 0}
            whole = strict(create(**asked)).choices[0]
            parts = [strict(part) for part in create(stream=True, **asked)]
            made = whole.message.tool_calls or []
            found = [[call.function.name, call.function.arguments] for call in made]
            assert gathered(parts) == (found, whole.message.content or "", whole.finish_reason)
            assert len({call.id for call in made}) == len(found)
            if whole.finish_reason == "length":  # the last one is cut, or one that has no name yet
                found = found[:-1]
            else:
                assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
            for function, arguments in found:
                jsonschema.validate(json.loads(arguments), schemas[function])
            seen |= {function for function, _ in found}
            lengths.add(len(found))
            assert choice == "required" or {function for function, _ in found} <= {"weather"}
            if seed % 2 or choice != "required" or name == "llama3":
                assert len(found) <= 1, found
    assert seen == {"weather", "clock"}, seen
    assert name == "llama3" or max(lengths) > 1, lengths


def refused(client, name):
    create, tools = client.chat.completions.create, tools_of(name)[1]
    unserved = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"uniqueItems": True}}}}}
    exact = [{"type": "function", "function": tools[0]["function"] | {"strict": True}}]
    ask = {"model": "fake", "messages": [USER]}
    for part, fields in (
        ("tool_choice requires tools", {"tool_choice": "required"}),
        ("unknown tool 'other'", {"tools": tools, "tool_choice": {"type": "function", "function": {"name": "other"}}}),
        ('the parameters of f: #/properties/a: the keyword "uniqueItems" is not supported', {"tools": [unserved], "tool_choice": "required"}),
        ("leave out response_format or tools", {"tools": tools, "response_format": {"type": "json_object"}}),
        ("duplicate tool clock", {"tools": [tools[1], tools[1]]}),
        ("must have a name of up to 64", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
        ("a tool must be", {"tools": [{"type": "web_search"}]}),
        ("must have a tool_call_id", {"messages": [{"role": "tool", "content": "x"}]}),
        ("only an assistant's", {"messages": [USER | {"tool_calls": [call(1, "clock", "{}")]}]}),
        ("JSON of an object", {"messages": [{"role": "assistant", "tool_calls": [call(1, "clock", "[1]")]}]}),
        ("require tool_choice: required" if name == "llama3" else None, {"tools": exact, "max_tokens": 5}),
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
                prompts(client, name, template)
                calls(client, name)
                refused(client, name)
                server.wait_until_idle()
        print(f"ok: {name}", flush=True)
    with Server([sys.argv[1]]) as server:
        status, answer = server.post("/v1/chat/completions", messages=[USER], tools=SHOWN)
        assert status == 400 and "has no tools" in answer["error"]["message"], answer
        assert server.post("/v1/chat/completions", messages=[USER], tools=SHOWN, tool_choice="none", max_tokens=3)[0] == 200
    print("ok: a template without tools")


if __name__ == "__main__":
    main()
