#!/usr/bin/env python3
"""Compares what a JSON schema allows a model to write with `jsonschema`.

    schema_oracle.py PROBE [--cases N] [--seed N]

PROBE is the built bin/schema-probe. For random schemas: values that satisfy one, written
in several ways, must be allowed; of these texts with a mistake put in, those that are
allowed must satisfy the schema; and so must every text that is drawn token by token
from the masks. Where jsonschema is not installed, prints so and exits 0.
"""
import json
import random
import sys

from grammar_probe import Probe

try:
    import jsonschema
except ImportError:
    print("SKIP: python package `jsonschema` is not installed")
    sys.exit(0)

NAMES = ["a", "b", "ab", "name", "größe", "x y", ""]
TEXTS = ["", "a", "ab", "é", "日本", "a\nb", 'q"', "\\", "🙂", "abc", "1"]


class Schemas:
    """Random schemas, and random values of them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.defs = {}

    def schema(self, depth):
        draw = self.random
        kinds = ["string", "number", "integer", "boolean", "null", "enum", "const", "length", "range",
                 "pattern", "format", "bounds"]
        if depth > 0:
            kinds += ["object", "object", "array", "array", "tuple", "anyOf", "types", "ref", "any"]
        kind = draw.choice(kinds)
        return getattr(self, "make_" + kind, lambda depth: {"type": kind})(depth)

    def make_any(self, depth):
        return self.random.choice([True, {}, {"title": "anything"}])

    def make_enum(self, depth):
        return {"enum": self.random.sample(TEXTS + [1, -2, 1.5, True, None, [1, "a"], {"k": []}], 4)}

    def make_const(self, depth):
        return {"const": self.random.choice(TEXTS + [0, False, {"a": [None]}])}

    def make_length(self, depth):
        low = self.random.randrange(3)
        schema = {"type": "string", "minLength": low}
        if self.random.random() < 0.7:
            schema["maxLength"] = low + self.random.randrange(3)
        return schema

    def make_bounds(self, depth):
        """Of numbers, and a number near a bound as a comment."""
        draw = self.random
        digits = draw.randrange(4)
        low = round(draw.uniform(-30, 30) * 10 ** draw.randrange(-1, 3), digits)
        high = round(low + draw.choice([0.001, 1, 20, 1000]) + 10 ** -digits, digits)
        schema = {"type": "number"} if draw.random() < 0.8 else {}
        if draw.random() < 0.7:
            schema[draw.choice(["minimum", "exclusiveMinimum"])] = low
        if draw.random() < 0.7 or len(schema) == 0:
            schema[draw.choice(["maximum", "exclusiveMaximum"])] = high
        near = round(draw.choice([low, high]) + draw.choice([-1, 0, 1]) * 10 ** -draw.randrange(6), 6)
        return {**schema, "$comment": 0.0 if abs(near) < 1e-4 else near}

    def make_pattern(self, depth):
        """And a text that it matches, which goes with the schema as a comment."""
        draw = self.random
        pattern, text = self.pattern(2)
        begins, ends = draw.random() < 0.7, draw.random() < 0.7
        if not begins:
            text = draw.choice(TEXTS) + text
        if not ends:
            text += draw.choice(TEXTS)
        if begins or ends:
            pattern = f"(?:{pattern})"
        return {"type": "string", "pattern": "^" * begins + pattern + "$" * ends, "$comment": text}

    def pattern(self, depth):
        draw = self.random
        if depth > 0 and draw.random() < 0.6:
            parts = [self.pattern(depth - 1) for _ in range(1 + draw.randrange(3))]
            if draw.random() < 0.4:
                return "(" + "|".join(p for p, _ in parts) + ")", draw.choice(parts)[1]
            return "".join(p for p, _ in parts), "".join(t for _, t in parts)
        piece, texts = draw.choice([
            ("abc", ["abc"]), ("[a-f0-9]", "af09"), (r"\d", "059"), (r"\w", "aZ_7"), (r"\s", " \t\n"),
            (".", 'aé日"\\🙂'), ("[^a-z]", 'A"\\日\n'), (r"\.", "."), ('"', '"'), (r"\\", "\\"),
            ("é", "é"), ("[à-ÿ一-龥]", "é日"), ("[😀-🙏]", "🙂"), (r"[\n\-]", "\n-")])
        least, most = draw.choice([(1, 1), (0, 1), (0, 3), (1, 3), (2, 2), (1, 3)])
        sign = {(1, 1): "", (0, 1): "?", (0, 3): "*", (1, 3): draw.choice(["+", "{1,3}", "{1,}"]),
                (2, 2): "{2}"}[least, most]
        text = "".join(draw.choice(texts) for _ in range(draw.randint(least, most)))
        return (f"(?:{piece})" if sign and len(piece) > 1 and piece[0] not in "[\\" else piece) + sign, text

    def make_format(self, depth):
        """The same of formats, for some of which jsonschema has a check."""
        texts = {"date": ["2024-02-29", "1999-12-31", "2023-04-30"], "time": ["23:59:59Z", "01:02:03.25+05:30"],
                 "date-time": ["2000-02-29T00:00:00Z"], "duration": ["P1Y2M3D", "PT5M", "P3W", "P1DT12H"],
                 "email": ["a.b+c@example.org"], "hostname": ["a-b.example", "localhost"],
                 "ipv4": ["0.0.0.0", "192.168.255.1"], "ipv6": ["::", "::1", "fe80::1:2", "1:2:3:4:5:6:7:8"],
                 "uuid": ["123e4567-e89b-12d3-a456-426614174000"]}
        name = self.random.choice(list(texts))
        return {"type": "string", "format": name, "$comment": self.random.choice(texts[name])}

    def make_range(self, depth):
        draw = self.random
        low = draw.choice([-1, 1]) * draw.randrange(10 ** draw.randrange(1, 5))
        schema = {"type": "integer"}
        if draw.random() < 0.7:
            schema[draw.choice(["minimum", "exclusiveMinimum"])] = low
        if draw.random() < 0.7:
            schema[draw.choice(["maximum", "exclusiveMaximum"])] = low + 2 + draw.randrange(2000)
        return schema

    def make_object(self, depth):
        draw = self.random
        names = draw.sample(NAMES, draw.randrange(5))
        schema = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
        schema["required"] = [n for n in names if draw.random() < 0.5]
        more = draw.choice([None, False, False, True, "schema"])
        if more is not None:
            schema["additionalProperties"] = self.schema(0) if more == "schema" else more
        return schema

    def make_array(self, depth):
        draw = self.random
        schema = {"type": "array", "items": self.schema(depth - 1)}
        if draw.random() < 0.5:
            schema["minItems"] = draw.randrange(3)
        if draw.random() < 0.5:
            schema["maxItems"] = schema.get("minItems", 0) + draw.randrange(3)
        return schema

    def make_tuple(self, depth):
        prefix = [self.schema(depth - 1) for _ in range(1 + self.random.randrange(2))]
        schema = {"type": "array", "prefixItems": prefix}
        if self.random.random() < 0.6:
            schema["items"] = self.random.choice([False, self.schema(0)])
        return schema

    def make_anyOf(self, depth):
        return {"anyOf": [self.schema(depth - 1) for _ in range(1 + self.random.randrange(3))]}

    def make_types(self, depth):
        return {"type": self.random.sample(["string", "integer", "null", "boolean", "array"], 2)}

    def make_ref(self, depth):
        name = self.random.choice(["one", "two/~"])
        if name not in self.defs:
            self.defs[name] = None  # or it would be made for ever
            self.defs[name] = self.schema(depth - 1)
        return {"$ref": "#/$defs/" + name.replace("~", "~0").replace("/", "~1")}

    def value(self, schema, depth=6):
        """A value of the schema, None as the way out of what nests too deep."""
        draw = self.random
        if schema in (True, {}) or depth < 0:
            return draw.choice([1, "a", None, [1, []], {"a": {"b": 2}}])
        if "$ref" in schema:
            name = schema["$ref"].split("/")[-1].replace("~1", "/").replace("~0", "~")
            return self.value(self.defs[name], depth - 1)
        for key in ("anyOf", "enum"):
            if key in schema:
                chosen = draw.choice(schema[key])
                return chosen if key == "enum" else self.value(chosen, depth - 1)
        if "const" in schema:
            return schema["const"]
        kind = schema.get("type", None)
        if isinstance(kind, list):
            kind = draw.choice(kind)
        if kind == "object":
            value = {n: self.value(s, depth - 1) for n, s in schema["properties"].items()
                     if n in schema["required"] or draw.random() < 0.5}
            more = schema.get("additionalProperties", True)
            if more is not False and draw.random() < 0.5:
                value["other"] = self.value(more, depth - 1)
            return value
        if kind == "array":
            prefix = schema.get("prefixItems", [])
            low = schema.get("minItems", 0)
            value = [self.value(s, depth - 1) for s in prefix]
            items = schema.get("items", True)
            most = schema.get("maxItems", low + 3)
            while items is not False and len(value) < most and (len(value) < low or draw.random() < 0.6):
                value.append(self.value(items, depth - 1))
            return value
        if kind == "integer":
            low = schema.get("minimum", schema.get("exclusiveMinimum", -99))
            high = schema.get("maximum", schema.get("exclusiveMaximum", max(low, 0) + 10000))
            return draw.choice([low, low + 1, high, high - 1, draw.randint(min(low, high), high), 0, -high])
        if "$comment" in schema:
            return schema["$comment"]
        if kind == "string":
            low, high = schema.get("minLength", 0), schema.get("maxLength", 9)
            return "".join(draw.choice('aé日"\n🙂\\') for _ in range(draw.randint(low, high)))
        return {"number": draw.choice([0, -1.5, 2e30, 7]), "boolean": draw.random() < 0.5, "null": None}.get(kind, "a")


def written(value, draw):
    """JSON has one form without spaces, one with, and one over lines."""
    style = draw.choice([{"separators": (",", ":")}, {}, {"indent": 2}])
    return json.dumps(value, ensure_ascii=draw.random() < 0.1, **style)


def mistaken(text, draw):
    at = draw.randrange(len(text) + 1)
    change = draw.choice(["cut", "drop", "put", "copy"])
    if change == "cut":
        return text[:at]
    if change == "put":
        return text[:at] + draw.choice('{}[]",: 0-a\n') + text[at:]
    end = min(len(text), at + draw.randrange(1, 4))
    return text[:at] + (text[at:end] * 2 if change == "copy" else "") + text[end:]


def satisfies(text, validator):
    """Of a further name that stands twice json takes the last, as jsonschema would."""
    def refuse(word):
        raise ValueError(word)
    try:
        value = json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    try:
        return validator.is_valid(value)
    except RecursionError:  # which says nothing
        return True


def main():
    probe = Probe(schemas=0, refused=0, values=0, mistakes=0, caught=0, samples=0)
    options, counts, ask, fail = probe.options, probe.counts, probe.ask, probe.fail

    for case in range(options.cases):
        schemas = Schemas(options.seed * 1_000_003 + case)
        draw = schemas.random
        schema = schemas.schema(3)
        if schemas.defs:
            schema = {"$defs": schemas.defs, "anyOf": [schema]}
        answer = ask(schema=schema, texts=[], samples=0, seed=0)
        if "error" in answer:
            counts["refused"] += 1
            if "refers to itself" not in answer["error"] and "no finite" not in answer["error"]:
                fail("refused", json.dumps(schema), answer["error"])
            continue
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        try:
            validator.is_valid([])
        except RecursionError:  # an alternative that only refers to itself
            counts["refused"] += 1
            continue
        values = []
        for _ in range(20):
            try:
                value = schemas.value(schema)
                if validator.is_valid(value):
                    values.append(value)
            except (KeyError, RecursionError):
                continue
        texts = [written(each, draw) for each in values]
        # Escaped halves of pairs are not supported, nor escapes in further names.
        texts = [t for t in texts if "\\ud8" not in t and "\\u" not in t]
        wrong = [mistaken(t, draw) for t in texts for _ in range(3)]
        answer = ask(schema=schema, texts=texts + wrong, samples=5, seed=case)
        counts["schemas"] += 1
        counts["values"] += len(texts)
        counts["mistakes"] += len(wrong)
        for text, matched in zip(texts, answer["matches"]):
            if not matched:
                fail("not allowed", json.dumps(schema), repr(text))
        for text, matched in zip(wrong, answer["matches"][len(texts):]):
            counts["caught"] += not matched
            if matched and not satisfies(text, validator):
                fail("allowed", json.dumps(schema), repr(text))
        for text in answer["samples"]:
            if text:
                counts["samples"] += 1
                if not satisfies(text, validator):
                    fail("drawn", json.dumps(schema), repr(text))
    probe.finish("schemas: {schemas} of which {values} values, {mistakes} mistakes ({caught} caught), {samples} "
                 "drawn texts; {refused} refused; {failures} differ")


main()
