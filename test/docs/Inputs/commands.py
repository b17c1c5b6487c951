"""Runs the commands of the documentation, as its text has them.

    commands.py BIN SCRATCH check          flags and paths of all commands; the tables
    commands.py BIN SCRATCH run GROUP...   runs those of the groups' pages (table.py)

A page's commands run in one folder, in their order, each in a shell. The folder has
links to the sources and to the build, and fixtures where a command names what the
page did not make (fixtures.py). table.py says what is shortened and what is not run.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import extract
import fixtures
import flags
import table
from extract import SOURCE
from harness import Prepared

sys.path.insert(0, str(SOURCE / "test/runtime/serve"))
from serving import Server  # noqa: E402

ADDRESS = "http://127.0.0.1:8000"
# What a command reads that reads from a terminal.
TYPED = "Hello\n"


class Counts:
    def __init__(self):
        self.run = self.listed = 0
        self.failures = []

    def fail(self, what):
        # To stderr too, which lit shows.
        for stream in (sys.stdout, sys.stderr):
            print(f"FAILED: {what}", file=stream, flush=True)
        self.failures.append(what)


def not_run(command):
    return next((entry for entry in table.NOT_RUN if entry.applies(command)), None)


def shortened(command):
    text = command.text
    for entry in table.SHORTER:
        text = entry.apply(command.page, text)
    return text


def fixture_of(command, name):
    for entry in table.FIXTURES:
        if entry.name == name and entry.matches(command.page, command.text):
            return entry.fixture
    return "run" if name == "RUN" else name


class Page:
    """The folder of a page, and the server that runs in it."""

    def __init__(self, page, made, ready, counts):
        self.folder = made.scratch / re.sub(r"\W", "-", page)
        self.ready, self.counts = ready, counts
        self.server, self.block, self.exports = None, None, []
        self.is_of_ranks = False  # the server
        self.given = {}  # fixtures by name
        self.folder.mkdir()
        for name in (*extract.roots(), ".venv"):
            (self.folder / name).symlink_to(SOURCE / name)
        # A command writes into it.
        self.remove(self.folder / "docs")
        shutil.copytree(SOURCE / "docs", self.folder / "docs")
        (self.folder / "build").symlink_to(made.binaries.parent)
        # Without nvcc, which takes minutes and which test/e2e runs: GPUs are emulated.
        self.env = {"XDG_CACHE_HOME": str(made.folder / "docs-cache"), **os.environ,
                    "PATH": f"{made.binaries}:{os.environ['PATH']}", "CUDACXX": "", "HF_HOME": str(self.folder / "hf"),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}

    def remove(self, path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def provide(self, command, text):
        """Fixtures that are named and not there. In each block a placeholder, such
        as DIR, is the fixture again, whatever the last block made of it."""
        for name in fixtures.names_in(text):
            path, fixture = self.folder / name, fixture_of(command, name)
            again = name.isupper() and (self.given.get(name) != fixture or self.block != command.block)
            if path.exists() and not again:
                continue
            self.remove(path)
            fixtures.copy(self.ready.path(fixture), path)
            self.given[name] = fixture
        self.block = command.block
        if "Qwen/" in text and not (self.folder / "hf").exists():
            (self.folder / "hf").mkdir()
            (self.folder / "hf/hub").symlink_to(self.ready.path("hub"))
        # What is written is not there yet, and is no link to a fixture.
        written = re.findall(r"(?<= -o )[\w.-]+", text)
        for name in written + ([] if "--resume" in text else re.findall(r"(?<=--out )\S+", text)):
            self.remove(self.folder / name)
        return written

    def start(self, text):
        """A server that stays until the next one, or the end of the page."""
        self.stop()
        self.is_of_ranks = text.startswith("mpirun ")
        text = re.sub(r" --port \d+", "", text) + " --port 0"
        self.server = Server(["bash", "-c", "exec " + text], env=self.env, cwd=self.folder)
        status, _, _ = self.server.call("GET", "/health")
        if status != 200:
            raise RuntimeError(f"/health answers {status}")

    def stop(self):
        server, self.server = self.server, None
        if server:
            server.process.send_signal(signal.SIGTERM)
            server.process.stderr.read()
            # An mpirun that is ended by a signal has an error of its own.
            if server.process.wait() != 0 and not self.is_of_ranks:
                self.counts.fail(f"a server of {self.folder.name} ends with {server.process.returncode}")

    def run(self, command, text):
        """None, or what went wrong."""
        written = self.provide(command, text)
        if re.match(r"(mpirun -n \d+ )?tessera serve ", text):
            try:
                self.start(text)
            except (SystemExit, RuntimeError, OSError) as error:
                return str(error)
            return None
        if ADDRESS in text:
            if not self.server:
                self.provide(command, "tessera serve DIR")
                self.start("tessera serve DIR")
            text = text.replace(ADDRESS, f"http://127.0.0.1:{self.server.port}").replace("NAME", self.server.model)
        script = "\n".join(["set -e -o pipefail", *self.exports, text])
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.env, input=TYPED,
                              text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            return f"exit code {done.returncode}\n{done.stdout[-3000:]}"
        if text.startswith("export "):
            self.exports.append(text)
        absent = [name for name in written if not (self.folder / name).exists()]
        return f"{absent[0]} is not written" if absent else None


def run_command(page, command, counts):
    if not_run(command):
        counts.listed += 1
        return
    text = shortened(command)
    try:
        problem = page.run(command, text)
    except SystemExit as error:  # of a fixture
        problem = str(error)
    if problem:
        counts.fail(f"{command}\n  as: {text}\n{problem}")
    else:
        counts.run += 1
        print(f"ok: {command}", flush=True)


def run_page(name, made, ready, counts):
    page = Page(name, made, ready, counts)
    try:
        for command in extract.commands_of_page(name)[0]:
            run_command(page, command, counts)
    finally:
        page.stop()


def run_groups(made, ready, groups):
    counts = Counts()
    for name in extract.pages():
        if table.group_of(name) in groups and extract.commands_of_page(name)[0]:
            run_page(name, made, ready, counts)
    print(f"{counts.run} commands ran, {counts.listed} cannot run here, {len(counts.failures)} failed")
    return counts


def foreign(page, flag):
    return any(entry.matches(page, flag) for entry in table.FOREIGN)


def missing_flags(page, text, helps):
    return [f"{program} has no {flag}" for flag, program in flags.missing_flags(helps, text)
            if not foreign(page, flag)]


def check_inline(page, helps, counts):
    """Commands in prose, and flags alone."""
    for line, text in extract.inline_code(page):
        found = missing_flags(page, text, helps)
        if text.startswith("--"):
            found += [f"no program has {flag}" for flag in flags.FLAG.findall(text)
                      if flag not in helps.all() and not foreign(page, flag)]
        if found:
            counts.fail(f"{page}:{line} {text}\n  " + "\n  ".join(found))


def check(made):
    """Everything but running: also of what cannot run here."""
    counts, pages = Counts(), extract.pages()
    helps = flags.Helps(made.binaries, made.scratch)
    for name in pages:
        commands, strays = extract.commands_of_page(name)
        for stray in strays:
            counts.fail(f"{stray}\n  looks like a command in a block of something else")
        for command in commands:
            found = missing_flags(name, command.text, helps)
            found += [f"{path} does not exist" for path in flags.missing_paths(command.text)]
            entry = not_run(command)
            text = shortened(command)
            for fixture in fixtures.FIXTURES:
                fixture_of(command, fixture)
            counts.listed += bool(entry)
            counts.run += not entry
            if found:
                counts.fail(f"{command}\n  " + "\n  ".join(found))
            elif entry:
                print(f"listed: {command}: {entry.reason}")
            else:
                print(f"checked: {command}" + (f" as: {text}" if text != command.text else ""))
        check_inline(name, helps, counts)
    for entry in (*table.SHORTER, *table.NOT_RUN, *table.FIXTURES, *table.FOREIGN):
        if not entry.matched:
            counts.fail(f"table.py: no command matches {entry}")
    for name in (name for group in table.GROUPS.values() for name in group):
        if name not in pages:
            counts.fail(f"table.py: no page {name}")
    print(f"{counts.run} commands run, {counts.listed} cannot run here, {len(counts.failures)} failed")
    return counts


def main():
    made = Prepared(*sys.argv[1:3])
    if sys.argv[3] == "check":
        counts = check(made)
    else:
        counts = run_groups(made, fixtures.Fixtures(made), sys.argv[4:])
    sys.exit(bool(counts.failures))


main()
