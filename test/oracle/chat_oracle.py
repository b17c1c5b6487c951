#!/usr/bin/env python3
"""Compares the runtime's chat templates with jinja2, set up as `transformers`
sets it up.

    chat_oracle.py PROBE [--expressions N] [--seed N]

PROBE is the built bin/chat-probe. Templates of the shapes that model families
have (chat/*.jinja) over generated conversations, statements with all kinds of white
space control, and random expressions: the text must be equal, and where jinja2
fails, so must we. Where jinja2 is not installed, prints so and exits 0.
"""
import argparse
import datetime
import json
import pathlib
import random
import struct
import subprocess
import sys
import warnings

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("SKIP: python package `jinja2` is not installed")
    sys.exit(0)

NOW = 1_700_000_000  # ChatProbe.cpp


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(
            self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(
        NOW).strftime(form)
    return env


TEXTS = ["Hi", "  spaces \n", "", "caf\u00e9 \u4e2d\u6587 \U0001f600", "a\nb\n\nc", "'quotes' \"double\"",
         "<think>\nhm\n</think>\n\nyes", "<b>&amp;</b>", "{{ x }} {% if %}", "back\\slash\ttab",
         "<tool_response>1</tool_response>", "[INST]", "\u2028line", "\x07bell"]
SCHEMA = {"type": "function", "function": {
    "name": "get_weather", "description": "the weather OF a city",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "unit": {"type": ["string", "null"], "enum": ["C", "F"]},
        "city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}},
        "scale": {"type": "number", "default": 0.1}}}}}


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": rng.choice(TEXTS)})
    for _ in range(rng.randint(1, 4)):
        content = rng.choice(TEXTS)
        if rng.random() < 0.1:
            content = [{"type": "text", "text": content}, {"type": "image"}]
        messages.append({"role": "user", "content": content})
        if rng.random() < 0.3:
            call = {"name": "get_weather", "arguments": rng.choice(
                [{"city": "K\u00f6ln", "days": [1, 2]}, {}, '{"raw": 1}', {"x": 1e-7, "y": None}])}
            messages.append({"role": "assistant", "content": rng.choice([None, "Calling"]),
                             "tool_calls": [{"id": "abcdefghi", "type": "function",
                                             "function": call}]})
            for _ in range(rng.randint(1, 2)):
                messages.append({"role": "tool", "content": rng.choice(["12", 12.5, {"t": True}]),
                                 "tool_call_id": "123456789"})
        if rng.random() < 0.85:
            messages.append({"role": "assistant", "content": rng.choice(TEXTS)})
    fields = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>"}
    if rng.random() < 0.7:
        fields["add_generation_prompt"] = rng.random() < 0.5
    if rng.random() < 0.6:
        fields["tools"] = rng.choice([None, [], [SCHEMA], [SCHEMA, SCHEMA]])
    if rng.random() < 0.2:
        fields["builtin_tools"] = ["search", "code_interpreter"]
    if rng.random() < 0.3:
        fields["enable_thinking"] = rng.random() < 0.5
    return fields


VARIABLES = {
    "i": 7, "n": -3, "z": 0, "f": 2.5, "g": -0.125, "big": 1e20, "t": True, "o": False,
    "none": None, "s": "Hello World", "u": "\u00e9t\u00e9 \u4e2d\U0001f600", "e": "", "w": "  a b\tc \n",
    "l": [3, 1, 2], "m": ["b", "A", "a", "c"], "x": [], "d": {"a": 1, "b": {"c": [1, None]}},
    "q": {}, "r": [{"k": 1, "v": "p"}, {"k": 2, "v": "q"}, {"k": 3}]}
# Filters that jinja2 computes lazily are made lists, as all templates do.
FILTERS = ["trim", "length", "upper", "lower", "title", "capitalize", "string", "list", "first",
           "last", "sort", "unique | list", "reverse | list", "tojson", "tojson(indent=2)", "join", "join(', ')",
           "int", "float", "abs", "round", "round(1)", "default('d')", "default('d', true)", "items | list",
           "map('upper') | list", "map(attribute='k') | list", "map(attribute='v', default='-') | list", "select | list",
           "reject('none') | list", "selectattr('v') | list", "selectattr('k', 'gt', 1) | list", "rejectattr('v', 'undefined') | list",
           "dictsort", "sum", "min", "max", "replace('l', 'L')", "replace('', '-')", "indent",
           "indent(2, true)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))",
           "tojson(sort_keys=true)", "count"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true",
         "false", "mapping", "iterable", "sequence", "even", "odd", "divisibleby 2", "in [1, 2, 'a']",
         "eq 1", "ne 'a'", "lower", "upper", "gt 0", "le(2)", "callable"]
METHODS = ["strip()", "lstrip()", "rstrip()", "strip('Hd')", "split()", "split('l')", "split(' ', 1)",
           "split(None, 1)", "rsplit('l', 1)", "splitlines()", "startswith('H')",
           "startswith(('x', ' '))", "endswith('d')", "upper()", "lower()", "title()", "capitalize()",
           "replace('o', '0')", "replace('o', '0', 1)", "find('o')", "rfind('o')", "count('l')",
           "join(m)", "isdigit()", "isalpha()", "isspace()", "isupper()", "islower()", "removeprefix('He')",
           "removesuffix('ld')", "items()", "keys()|list", "values()|list", "get('a')", "get('zz')",
           "get('zz', 3)", "index(1)", "a", "b.c", "k", "missing", "append(1)", "isalnum()"]


def expression(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(list(VARIABLES) + [
            "0", "1", "2", "-1", "3.0", "1e3", "'a'", "\"b\\n\"", "'x' 'y'", "true", "none", "undef",
            "[1, 'a', none]", "(1,)", "()", "{'k': 1, 'j': [2.5]}", "(range(3) | list)", "'%'", "''"])
    a = expression(rng, depth - 1)
    kind = rng.randrange(12)
    if kind == 0:
        return f"{a} {rng.choice('+ - * / // ~'.split())} {expression(rng, depth - 1)}"
    if kind == 1:
        return f"({a}) {rng.choice('== != < <= > >= in'.split() + ['not in'])} ({expression(rng, depth - 1)})"
    if kind == 2:
        return f"({a} {rng.choice(['and', 'or'])} {expression(rng, depth - 1)})"
    if kind == 3:
        if rng.random() < 0.3:
            return f"{rng.choice(['i', 'n', 'f', '-5'])} % ({a})"
        return f"(not {a})" if rng.random() < 0.7 else f"-({a})"
    if kind == 4:
        return f"({a} if {expression(rng, depth - 1)} else {expression(rng, depth - 1)})"
    if kind == 5:
        # Not of a constant: 1[:2] is undefined where x[:2] fails.
        a = rng.choice([f"{a} | list", f"{a} ~ 'xy'",
                        rng.choice([name for name in VARIABLES if name != "none"])])
        return f"({a})[{rng.choice(['0', '-1', '5', ':2', '1:', '::-1', '-2:', '1:-1', '::2', 'i', repr('a')])}]"
    if kind in (6, 7):
        return f"({a}) | {rng.choice(FILTERS)}"
    if kind == 8:
        return f"(({a}) is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if kind in (9, 10):
        return f"({a}).{rng.choice(METHODS)}"
    return f"[{a}, {expression(rng, depth - 1)}]"


STATEMENTS = [
    "text", " ", "\n", "  \n", "\t", "{{ s }}", "{{- i -}}", "{{ i }}\n", "{# note #}", "{#- note -#}\n",
    "  {# x #}  \n", "{% set v = i %}", "  {%- set v = v | default(0) + 1 -%}\n", "{{ v }}", "{{ loop }}|"[:0],
    "{% if t %}A{% endif %}\n", "  {% if o %}B{% elif i %}C{% else %}D{% endif %}  ",
    "{% for a in l %}{{ a }}{{ ',' if not loop.last }}{% endfor %}\n",
    "{%- for k, w in d.items() -%} {{ k }} {{ loop.revindex }} {%- endfor -%}",
    "{% for a in x %}{{ a }}{% else %}none{% endfor %}", "{%+ if t %} E {%+ endif %}\n",
    "{% for a in m if a != 'A' %}{{ loop.index }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}",
    "{% for a in range(9) %}{% if a == 2 %}{% continue %}{% endif %}{% if a > 4 %}{% break %}{% endif %}{{ a }}{% endfor %}",
    "{% set ns = namespace(c=0) %}{% for a in l %}{% set ns.c = ns.c + a %}{% endfor %}{{ ns.c }}",
    "{% macro f(a, b='x') %}[{{ a }}{{ b }}{{ v }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=f(4)) }}",
    "{% set block %}\n in {{ i }}\n{% endset %}{{ block }}", "{% raw %} {{ raw }} {% endraw %}\n",
    "{%- raw -%} {% x %} {%- endraw -%}", "{% generation %}G{% endgeneration %}", "  {% set a, b = 1, 'z' %}\n{{ a ~ b }}",
    "{% if t -%}\n   F\n{%- endif %}", "{% for a in 'xy' %}{% for b in l %}{{ loop.index0 }}{% set v = b %}{% endfor %}{{ v }}{% endfor %}",
    "{{ {'a': {'b': 1}}.a.b }}", "{{ '}}' }}", "{{ '{%' }}", "{", "}}", "\r\n", "{% for a in l %}\n  {{ a }}\n{% endfor %}\n",
]


def cases(options, rng):
    for path in sorted((pathlib.Path(__file__).parent / "chat").glob("*.jinja")):
        source = path.read_text()
        for _ in range(150):
            yield path.stem, source, conversation(rng)
    for _ in range(options.expressions):
        yield "expressions", "{{ " + expression(rng, rng.randint(1, 4)) + " }}", VARIABLES
    for _ in range(options.expressions // 4):
        yield "statements", "".join(rng.choice(STATEMENTS) for _ in range(rng.randint(1, 8))), VARIABLES


def rendered(env, known, source, variables):
    """The text, or None where jinja2 refuses."""
    try:
        if source not in known:
            known[source] = env.from_string(source)
        # A copy: an expression may change what it was given.
        return known[source].render(**json.loads(json.dumps(variables)))
    except Exception:  # of jinja2 or of Python
        return None


def outside(source, text):
    """What both may do and we need not: see runtime/infer/chat/README.md."""
    return text is not None and any(
        sign in text for sign in ("<generator", "<built-in", "<bound method", "<function", "Undefined",
                                  "<Macro", "dict_items", "dict_keys", "dict_values", "range(", "<jinja2"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--expressions", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=4, help="failures of a kind")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)  # of Python code made of 1[0]
    rng = random.Random(options.seed)
    env, known, all_cases = environment(), {}, list(cases(options, rng))
    data = b"".join(
        struct.pack("<I", len(part)) + part for _, source, variables in all_cases
        for part in (source.encode(), json.dumps(variables).encode()))
    out = subprocess.run([options.probe], input=data, check=True, stdout=subprocess.PIPE).stdout
    at, counts = 0, {}
    for kind, source, variables in all_cases:
        ok, length = struct.unpack_from("<II", out, at)
        got = out[at + 8:at + 8 + length].decode()
        at += 8 + length
        want = rendered(env, known, source, variables)
        if outside(source, want):
            continue
        count = counts.setdefault(kind, [0, 0, 0])
        count[0] += 1
        count[1] += want is None
        if (want is None) == (ok == 0) and (want is None or want == got):
            continue
        count[2] += 1
        if count[2] <= options.show:
            print(f"FAIL {kind}: {source[:300]!r}\n  want {want!r}\n  got  {got!r}")
    for kind, (total, refused, failures) in counts.items():
        print(f"chat {kind}: {total} cases, {refused} refused by jinja2, {failures} differ")
    failed = any(count[2] for count in counts.values())
    print("FAILED" if failed else "ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
