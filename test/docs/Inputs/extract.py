"""The commands of the documentation, as its pages have them.

A command is a line of an indented or fenced block whose first line is a command:
its first word is one of PROGRAMS, a path, or found on PATH. Every other line of
such a block is a command or a comment. In a block with `$ ` only those lines are
commands, and the others are their output.
"""
import dataclasses
import pathlib
import re
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[3]
# What was measured stays as it was written then; corpora are inputs.
LEFT_OUT = ("bench/results/", "test/corpus/")
PROGRAMS = {"cd", "cmake", "curl", "export", "iopddl", "make", "metamorphic", "mkdir", "mpirun", "ninja",
            "pip", "printf", "sed", "tar", "tessera", "tessera-interpret", "tessera-lsp-server",
            "tessera-opt", "tessera-reduce", "tessera-run"}
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*\s+")
PATH = re.compile(r"[\w.-]+(/[\w.-]+)+")


@dataclasses.dataclass(frozen=True)
class Command:
    page: str
    line: int   # of its first line
    block: int  # the line where its block begins
    text: str   # without continuation lines, `$ ` and the comment at its end

    def __str__(self):
        return f"{self.page}:{self.line} {self.text}"


@dataclasses.dataclass
class Block:
    line: int
    lines: list


def tracked():
    out = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"],
                         cwd=SOURCE, check=True, capture_output=True, text=True).stdout
    return out.split("\0")[:-1]


def pages():
    return [name for name in tracked() if name.endswith(".md") and not name.startswith(LEFT_OUT)]


def roots():
    """Tracked files and folders at the top."""
    return {name.split("/")[0] for name in tracked()}


def blocks_and_prose(text):
    """The code blocks of a page, and the rest of it, in lines."""
    blocks, prose, open_block, fenced, before = [], [], None, False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            open_block = Block(number + 1, []) if fenced else None
            if open_block:
                blocks.append(open_block)
            before = ""
            continue
        indented = line.startswith("    ") and (open_block or not before.strip())
        if not fenced and not indented:
            open_block = None
            prose.append((number, line))
        elif open_block is None:
            open_block = Block(number, [line])
            blocks.append(open_block)
        else:
            open_block.lines.append(line)
        before = line
    return blocks, prose


def logical_lines(block):
    """(number, text) with continuation lines joined."""
    text, start = "", 0
    for number, line in enumerate(block.lines, block.line):
        start = start if text else number
        text += line.strip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        if text:
            yield start, re.sub(r"\s+", " ", text)
        text = ""


DRAWN = re.compile("[\u2500-\u257f\u25b2\u25b6]")


def first_word(text):
    while found := ASSIGNMENT.match(text):
        text = text[found.end():]
    return text.split(maxsplit=1)[0] if text else ""


def is_command(text, known=False):
    """`known`: whatever is installed here. A line of a drawing is none, also
    where a program of libwww-perl has the name of its first word, POST."""
    if DRAWN.search(text):
        return False
    word = first_word(text)
    return bool(word in PROGRAMS or PATH.fullmatch(word) or
                (not known and word.isascii() and shutil.which(word)))


def commands_of_block(page, block):
    """Its commands; and a line that looks like one, where the block has none."""
    lines = list(logical_lines(block))
    if any(text.startswith("$ ") for _, text in lines):
        lines = [(number, text[2:]) for number, text in lines if text.startswith("$ ")]
    lines = [(number, text) for number, text in lines if not text.startswith("#")]
    if not lines:
        return [], None
    if not is_command(lines[0][1]):
        stray = [f"{page}:{number} {text}" for number, text in lines if is_command(text, known=True)]
        return [], stray[0] if stray else None
    return [Command(page, number, block.line, re.sub(r" # .*$", "", text)) for number, text in lines], None


def commands_of_page(page):
    """Commands, and lines of other blocks that look like commands."""
    found, strays = [], []
    for block in blocks_and_prose((SOURCE / page).read_text())[0]:
        commands, stray = commands_of_block(page, block)
        found += commands
        strays += [stray] if stray else []
    return found, strays


def inline_code(page):
    """(line, text) of what stands between backticks in prose, over the ends of lines."""
    _, prose = blocks_and_prose((SOURCE / page).read_text())
    text, starts = "", []
    for number, line in prose:
        starts.append((len(text), number))
        text += line + "\n"
    for found in re.finditer(r"`([^`]+)`", text):
        line = max(number for start, number in starts if start <= found.start())
        yield line, re.sub(r"\s+", " ", found[1])
