"""That documented commands name flags and paths which exist."""
import pathlib
import re
import shlex
import subprocess
import sys

import extract
from extract import SOURCE

FLAG = re.compile(r"--[a-z][\w-]*")
OURS = re.compile(r"(?:build/bin/)?(tessera(?:-opt|-interpret|-run|-reduce)?|iopddl|metamorphic)$")
SUBCOMMAND = re.compile(r"^  ([a-z-]+)  ", re.M)
# Subcommands that have subcommands.
GROUPS = ("bench", "data")
ROOTS = extract.roots()


def parts(text):
    """Words of the simple commands that a line is made of."""
    try:
        words = shlex.split(text.replace("…", "X"))
    except ValueError:
        words = text.split()
    part = []
    for word in [*words, ";"]:
        if word in ("&&", "|", ";", "--"):
            yield part
            part = []
        elif part or not re.match(r"[A-Z_]+=", word):
            part.append(word.strip("[]"))


class Helps:
    """What programs print for --help."""

    def __init__(self, binaries, folder):
        self.binaries, self.folder, self.texts = binaries, folder, {}

    def of(self, *command):
        """A shell script's text; what any other program prints."""
        if command[0].endswith(".sh"):
            return pathlib.Path(command[0]).read_text()
        if command not in self.texts:
            done = subprocess.run([*command, "--help"], cwd=self.folder, text=True, capture_output=True)
            self.texts[command] = done.stdout + done.stderr
        return self.texts[command]

    def of_artifact(self, mode):
        """A training executable, or tessera-run with an artifact, which --help does not read."""
        modes = {"--program": ("--program", "x"), "bench-kernels": ("bench-kernels",)}
        return str(self.binaries / "tessera-run"), "x", *(modes.get(mode[0], ()) if mode else ())

    def command_of(self, words):
        """The program, and subcommands, whose help has the flags of these words."""
        if words and words[0] == "mpirun":
            words = words[next((i for i, word in enumerate(words) if word.startswith("./")), len(words)):]
        if not words:
            return None
        if found := OURS.match(words[0]):
            verbs = 0 if found[1] != "tessera" else 2 if words[1:2] and words[1] in GROUPS else 1
            if found[1] == "tessera-run":
                return self.of_artifact(words[2:3])
            return str(self.binaries / found[1]), *words[1:1 + verbs]
        if words[0].startswith("./train_"):
            return self.of_artifact(words[1:2])
        if words[0].split("/")[0] not in ROOTS or not words[0].endswith((".py", ".sh")):
            return None
        python = [sys.executable] if words[0].endswith(".py") else []
        return *python, str(SOURCE / words[0]), *words[1:2][:"llama_cpp" in words[0]]

    def all(self):
        """Flags of every program and script."""
        verbs = SUBCOMMAND.findall(self.of(str(self.binaries / "tessera")))
        commands = [("tessera", verb) for verb in verbs]
        for group in GROUPS:
            commands += [("tessera", group, verb) for verb in SUBCOMMAND.findall(
                self.of(str(self.binaries / "tessera"), group))]
        commands += [("tessera-opt",), ("tessera-interpret",), ("tessera-run", "x", "--program"),
                     ("tessera-reduce",), ("iopddl",), ("metamorphic",), ("./train_x",), ("./train_x", "bench-kernels")]
        return set(FLAG.findall("\n".join(self.of(*self.command_of(list(command))) for command in commands)))


def missing_flags(helps, text):
    """Flags that the help of their program does not have."""
    for words in parts(text):
        given = [found[0] for word in words if (found := FLAG.match(word)) and word != "--help"]
        command = helps.command_of(words) if given else None
        known = FLAG.findall(helps.of(*command)) if command else given
        for flag in given:
            if flag not in known:
                yield flag, " ".join(pathlib.Path(word).name for word in command)


def missing_paths(text):
    """Paths into the sources that do not exist."""
    for words in parts(text):
        for word in words:
            path = word.split("=")[-1]
            if path.split("/")[0] in ROOTS and "/" in path and "NAME" not in path and not (SOURCE / path).exists():
                yield path
