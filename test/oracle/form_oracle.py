#!/usr/bin/env python3
"""Compares what forms of answers allow a model to write with independent readers.

    form_oracle.py PROBE [--cases N] [--seed N]

PROBE is the built bin/schema-probe. Random regular expressions are compared with the package `regex`,
random grammars in GBNF with a reader of them below, which knows nothing but the notation and tries
every way (Earley would be faster): texts that match must be allowed, of these texts with a mistake
put in exactly those that match, and every text that is drawn token by token from the masks must match.
Where regex is not installed, prints so and exits 0.
"""
import json
import random
import sys

from grammar_probe import Probe

try:
    import regex
except ImportError:
    print("SKIP: python package `regex` is not installed")
    sys.exit(0)

LETTERS = "abé日🙂\n\"\\ 1-]"


class Regexes:
    """Random expressions with a text of each. Of \\w, \\d and \\s both readers know the same signs: ASCII's."""

    def __init__(self, draw):
        self.draw = draw

    def make(self, depth):
        draw = self.draw
        if depth > 0 and draw.random() < 0.7:
            parts = [self.make(depth - 1) for _ in range(draw.randrange(4))]
            if parts and draw.random() < 0.5:
                body, text = "|".join(p for p, _ in parts), draw.choice(parts)[1]
            else:
                body = "".join(f"(?:{p})" if "|" in p else p for p, _ in parts)
                text = "".join(t for _, t in parts)
            least, sign = draw.choice([(1, ""), (1, ""), (0, "*"), (1, "+"), (0, "?"), (2, "{2}"), (0, "{0,2}"), (1, "{1,}"), (1, "+?")])
            times = least + (draw.randrange(2) if sign not in ("", "{2}") else 0)
            return draw.choice(["(", "(?:"]) + body + ")" + sign, text * times
        piece, texts = draw.choice([
            ("a", "a"), ("[ab1]", "ab1"), (r"\d", "059"), (r"\w", "aZ_7"), ("[^a-z]", "AÉ日\n"), (r"\.", "."),
            ('"', '"'), (r"\\", "\\"), ("é", "é"), ("[à-ÿ一-龥]", "é日"), ("[😀-🙏]", "🙂"), (r"[\n\-\]]", "\n-]"),
            (r"[ \t\n]", " \t\n"), (r"\u00e9", "é"), (r"\x41", "A"), ("(?i:k)", "kK"), (r"[^\n\r\u2028\u2029]", "aé🙂")])
        return piece, draw.choice(texts)


class Grammars:
    """Random grammars: rules, each a list of alternatives, each a list of (atom, least, most) where an atom
    is a text, a set of signs, the name of a rule or a list of alternatives; written as GBNF on one side, and
    read as what they are on the other."""

    def __init__(self, draw):
        self.draw = draw
        self.names = ["root", *draw.sample(["x", "y-1", "Z_z", "rule2"], draw.randrange(4))]
        self.rules = {name: self.alternatives(2, name) for name in self.names}

    def alternatives(self, depth, own):
        return [self.sequence(depth, own) for _ in range(1 + self.draw.randrange(3))]

    def sequence(self, depth, own):
        return [self.part(depth, own) for _ in range(self.draw.randrange(4))]

    def part(self, depth, own):
        draw = self.draw
        kind = draw.choice(["text", "text", "set", "set", "rule", "group"])
        if kind == "rule":
            # Behind a sign, so that no rule begins with itself.
            atom = [[(("text", draw.choice("ab(,")), 1, 1), (("rule", draw.choice(self.names)), 1, 1)]]
            if draw.random() < 0.5:
                atom[0].append((("text", draw.choice("ab),")), 1, 1))
            atom = ("group", atom)
        elif kind == "group" and depth > 0:
            atom = ("group", self.alternatives(depth - 1, own))
        elif kind == "set":
            atom = ("set", draw.random() < 0.2, "".join(draw.sample(LETTERS, 1 + draw.randrange(3))))
        else:
            atom = ("text", "".join(draw.choice(LETTERS) for _ in range(draw.randrange(3))))
        return (atom, *draw.choice([(1, 1), (1, 1), (1, 1), (0, 1), (0, None), (1, None), (2, 2), (0, 2), (1, None)]))

    def written(self):
        draw = self.draw
        order = list(self.rules)
        draw.shuffle(order)
        lines = []
        for name in order:
            lines.append(f"{name} ::= {self.write(self.rules[name])}")
            if draw.random() < 0.2:
                lines.append('# a comment ::= "')
        return draw.choice(["\n", "\n\n", "\r\n"]).join(lines)

    def sign(self, letter):
        if letter in '"\\]-^':
            return "\\" + letter
        styles = ["\\n"] if letter == "\n" else [letter, letter, f"\\U{ord(letter):08x}"]
        if ord(letter) < 0x10000:
            styles.append(f"\\u{ord(letter):04X}")
        return self.draw.choice(styles)

    def write(self, alternatives):
        draw = self.draw
        return draw.choice([" | ", "|", " |\n  ", "\n  | "]).join(
            draw.choice([" ", "  "]).join(self.write_part(part) for part in each) for each in alternatives)

    def write_part(self, part):
        atom, least, most = part
        draw = self.draw
        if atom[0] == "group":
            text = "(" + self.write(atom[1]) + ")"
        elif atom[0] == "rule":
            text = atom[1]
        elif atom[0] == "set":
            text = "[" + "^" * atom[1] + "".join(self.sign(letter) for letter in atom[2]) + "]"
        else:
            text = '"' + "".join(self.sign(letter) for letter in atom[1]) + '"'
        signs = {(1, 1): ["", "", "{1}"], (0, 1): ["?", "{0,1}"], (0, None): ["*", "{0,}"], (1, None): ["+", "{1,}"],
                 (2, 2): ["{2}", "{2,2}"], (0, 2): ["{0,2}"]}
        return text + draw.choice(signs[least, most])

    def matches(self, text):
        """All ends of texts from all places, grown until nothing is added."""
        table = {}

        def ends_of(name, at):
            key = name, at
            if key not in table:
                table[key] = set()
                self.changed = True
            return table[key]

        def of_alternatives(alternatives, at):
            return set().union(*(of_sequence(each, at) for each in alternatives))

        def of_sequence(sequence, at):
            places = {at}
            for atom, least, most in sequence:
                reached, now, count = set(places) if least == 0 else set(), places, 0
                while now and (most is None or count < most):
                    now = set().union(*(of_atom(atom, each) for each in now))
                    count += 1
                    before = len(reached)
                    if count >= least:
                        reached |= now
                        if len(reached) == before and most is None:
                            break
                places = reached
            return places

        def of_atom(atom, at):
            if atom[0] == "group":
                return of_alternatives(atom[1], at)
            if atom[0] == "rule":
                return set(ends_of(atom[1], at))
            if atom[0] == "set":
                return {at + 1} if at < len(text) and (text[at] in atom[2]) != atom[1] else set()
            return {at + len(atom[1])} if text.startswith(atom[1], at) else set()

        ends_of("root", 0)
        self.changed = True
        while self.changed:
            self.changed = False
            for (name, at), known in list(table.items()):
                now = of_alternatives(self.rules[name], at)
                if not now <= known:
                    known |= now
                    self.changed = True
        return len(text) in table["root", 0]


def mistaken(text, draw):
    at = draw.randrange(len(text) + 1)
    change = draw.choice(["cut", "drop", "put", "put", "copy"])
    if change == "cut":
        return text[:at]
    if change == "put":
        return text[:at] + draw.choice(LETTERS + "(,)A") + text[at:]
    end = min(len(text), at + draw.randrange(1, 4))
    return text[:at] + (text[at:end] * 2 if change == "copy" else "") + text[end:]


def main():
    probe = Probe(regexes=0, grammars=0, refused=0, yes=0, no=0, samples=0)
    options, counts, ask, fail = probe.options, probe.counts, probe.ask, probe.fail

    def compare(form, right, texts, draw, seed):
        """right(text): whether it is one; `form` is how the probe is asked."""
        texts = texts + [mistaken(text, draw) for text in texts for _ in range(4)] + ["", "a"]
        answer = ask(**form, texts=texts, samples=8, seed=seed)
        if "error" in answer:
            return answer["error"]
        for text, allowed in zip(texts, answer["matches"]):
            wanted = right(text)
            if wanted is None:
                continue
            counts["yes" if wanted else "no"] += 1
            if wanted != allowed:
                fail("allowed" if allowed else "not allowed", json.dumps(form), repr(text))
        drawn = [text for text in answer["samples"] if 0 < len(text) < 300]  # none: it did not end
        for text in drawn:
            if text.startswith("error: "):
                if "too ambiguous" not in text and "nests deeper" not in text:
                    fail("drawn", json.dumps(form), text)
                continue
            counts["samples"] += 1
            if right(text) is False:
                fail("drawn", json.dumps(form), repr(text))
        return drawn

    for case in range(options.cases):
        draw = random.Random(options.seed * 1_000_003 + case)
        pattern, text = Regexes(draw).make(3)
        # ASCII's \w and \d, as ECMA's are; a third sign is k where case is ignored.
        python = regex.compile(pattern.replace("(?i:k)", "[kK\u212A]"), regex.ASCII)

        def right(text, python=python):
            try:  # it tries one way after another
                return python.fullmatch(text, timeout=0.1) is not None
            except TimeoutError:
                return None
        shown = draw.choice(["^", ""]) + f"(?:{pattern})" + draw.choice(["$", ""])
        answer = compare({"regex": shown}, right, [text], draw, case)
        counts["regexes"] += 1
        if isinstance(answer, str):
            fail("refused", shown, answer)

        grammar = Grammars(draw)
        written = grammar.written()
        answer = compare({"grammar": written}, grammar.matches, [], draw, case)
        if isinstance(answer, str):
            counts["refused"] += 1
            if "no finite" not in answer:
                fail("refused", json.dumps(written), answer)
            continue
        counts["grammars"] += 1
        drawn = [text for text in answer if len(text) < 60 and not text.startswith("error: ")]
        compare({"grammar": written}, grammar.matches, drawn, draw, case)
    probe.finish("{regexes} regular expressions, {grammars} grammars ({refused} refused): {yes} texts that match, {no} that do "
                 "not, {samples} drawn; {failures} differ")


main()
