#!/usr/bin/env python3
"""Checks the words, line lengths and links of tracked sources.

    check-words.py             fails, and says where, if something is wrong
    check-words.py --count     prints how often each word of the list occurs
    check-words.py FILE...     checks these files alone

Words: scripts/words.txt, exceptions in scripts/words-allow.txt (docs/glossary.md
says why). Markdown and TableGen are wrapped at 100 columns; rows of tables and
lines that hold a single long word, such as an address, are not. Links and paths
in Markdown must exist, anchors too.
"""
import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROSE = (".md", ".td", ".h", ".cpp", ".cuh", ".py", ".yaml", ".cmake", ".sh")
COLUMNS = 100
# What was measured stays as it was written then; corpora are inputs.
UNCHECKED = ("bench/results/", "test/corpus/", "scripts/words")
# Right in names, as in `residentBytes` and stripAccents of tokenizers.
FIELD_WORDS = {"resident", "strip"}
PATH_ROOTS = ("bench", "cmake", "compiler", "dialects", "docs", "examples",
              "hardware", "models", "parallelism", "passes", "recipes",
              "runtime", "scripts", "test", "tools")


def tracked_files():
    out = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"],
                         cwd=ROOT, check=True, capture_output=True).stdout
    return [name for name in out.decode().split("\0") if name]


def read_words():
    words = []
    for line in (ROOT / "scripts/words.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, _, term = line.partition(" => ")
        # One entry may list alternatives; each is a term of its own.
        words.append((re.compile(rf"(?<![\w-])(?:{pattern})(?![\w])", re.I),
                      pattern, term))
    return words


def alternatives(pattern):
    """Those of `a|b(c|d)` are a and b(c|d)."""
    parts, depth = [""], 0
    for character in pattern:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def identifier_findings(lines, words):
    """Single words of the list that are parts of names in camel case."""
    single = [(re.compile(f"(?:{part})", re.I), pattern, term)
              for _, pattern, term in words
              for part in alternatives(pattern) if not re.search(r"[\\\[ -]", part)]
    wrong = {}
    for name in set(re.findall(r"\b[A-Za-z]*[a-z][A-Z]\w*", "\n".join(lines))):
        parts = {part.lower() for part in
                 re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)} - FIELD_WORDS
        for expression, pattern, term in single:
            if any(map(expression.fullmatch, parts)):
                wrong[name] = pattern, f"'{name}': say {term}"
    for number, line in enumerate(lines, 1):
        for name in wrong:
            if re.search(rf"\b{name}\b", line):
                yield number, *wrong[name]


def read_exceptions():
    exceptions = []
    for line in (ROOT / "scripts/words-allow.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            glob, _, pattern = line.partition("\t")
            exceptions.append((glob, re.compile(pattern)))
    return exceptions


def has_words(name):
    """Tests quote what they check; their READMEs do not."""
    if name.startswith("test/") and not name.endswith(".md"):
        return False
    return name.endswith(PROSE) or name.endswith("CMakeLists.txt")


def lowered(pattern):
    return re.sub(r"(?<!\\)[A-Z]", lambda letter: letter.group().lower(), pattern)


def word_findings(name, lines, words, exceptions):
    # Most are in no line: without a look at what is before, it takes a tenth.
    text = "\n".join(lines).lower()
    words = [entry for entry in words if re.search(lowered(entry[1]), text)]
    if not words:
        return
    allowed = [pattern for glob, pattern in exceptions
               if fnmatch.fnmatch(name, glob)]
    for number, line in enumerate(lines, 1):
        if any(pattern.search(line) for pattern in allowed):
            continue
        for expression, pattern, term in words:
            if found := expression.search(line):
                yield number, pattern, f"'{found.group()}': say {term}"


def is_long(line):
    if len(line) <= COLUMNS or line.lstrip().startswith(("|", "#include", "#loc")):
        return False
    return len(line.split()) > 2


def slug(heading):
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors_of(path):
    """GitHub's anchors of a page's headings."""
    fenced, anchors = False, set()
    for line in path.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("#"):
            anchors.add(slug(line.lstrip("#")))
    return anchors


def link_findings(name, lines, files, folders):
    here = (ROOT / name).parent
    for number, line in enumerate(lines, 1):
        for target in (re.findall(r"\]\(([^)\s]+)\)", line) +
                       re.findall(r'href="([^"]+)"', line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            page = (here / path).resolve() if path else ROOT / name
            if not page.exists():
                yield number, f"link to '{target}', which does not exist"
            elif (anchor and page.suffix == ".md" and
                  anchor not in anchors_of(page)):
                yield number, f"link to '{target}': no heading has that anchor"
        for path in re.findall(r"`([\w./-]+)`", line):
            # NAME and the like are for the reader to fill in.
            if (path.split("/")[0] not in PATH_ROOTS or "/" not in path or
                    re.search(r"[A-Z]{4}", path.replace("README", ""))):
                continue
            path = path.rstrip("/")
            # `passes/fusion/Fuse` names a header and its source.
            if not (path in files or path in folders or
                    any(f"{path}{end}" in files
                        for end in (".h", ".cpp", ".td", ".py"))):
                yield number, f"'{path}' does not exist"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", action="store_true",
                        help="print how often each word occurs, and succeed")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    files = tracked_files()
    folders = {str(parent) for name in files
               for parent in pathlib.PurePath(name).parents}
    known, words, exceptions = set(files), read_words(), read_exceptions()
    counts, findings = {}, []
    for name in options.files or files:
        if name.startswith(UNCHECKED) or not (ROOT / name).is_file():
            continue
        if not (has_words(name) or name.endswith((".md", ".td"))):
            continue
        lines = (ROOT / name).read_text(errors="replace").splitlines()
        if has_words(name):
            for number, pattern, what in (
                    *word_findings(name, lines, words, exceptions),
                    *identifier_findings(lines, words)):
                counts[pattern] = counts.get(pattern, 0) + 1
                findings.append(f"{name}:{number}: {what}")
        if name.endswith((".md", ".td")):
            findings += [f"{name}:{number}: {len(line)} columns; wrap at {COLUMNS}"
                         for number, line in enumerate(lines, 1) if is_long(line)]
        if name.endswith(".md"):
            findings += [f"{name}:{number}: {what}" for number, what in
                         link_findings(name, lines, known, folders)]
    if options.count:
        for _, pattern, term in words:
            print(f"{counts.get(pattern, 0):6} {pattern} => {term}")
        return 0
    for finding in findings:
        print(finding)
    return 1 if findings else 0


sys.exit(main())
