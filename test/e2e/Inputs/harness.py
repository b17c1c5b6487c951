"""What the end-to-end tests share. Standard library only."""
import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[3]
SPEC = SOURCE / "models/specs/tiny-gpt2"
RECIPE = SOURCE / "recipes/tiny-gpt2.yaml"


def own_session_directory():
    """All jobs of Open MPI 4 of a user share a directory. Of two that create it at the same time,
    one fails ("mkdir ... File exists"); so each test has another."""
    base = tempfile.mkdtemp(prefix="ranks-")
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    os.environ["OMPI_MCA_orte_tmpdir_base"] = base


own_session_directory()


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}", flush=True)


def run(*arguments, code=0, **options):
    """Output and errors of a command that must end with `code`."""
    arguments = [str(a) for a in arguments]
    done = subprocess.run(arguments, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, **options)
    if code is not None and done.returncode != code:
        sys.exit(f"FAILED: {' '.join(arguments)}\nexit code "
                 f"{done.returncode}, expected {code}\n{done.stdout[-2000:]}"
                 f"{done.stderr[-4000:]}")
    return done


def refuses(what, *parts, **options):
    """The command fails with one line that has all `parts`."""
    def command(*arguments):
        done = run(*arguments, code=None, **options)
        lines = done.stderr.strip().splitlines()
        good = (done.returncode in (1, 2) and len(lines) == 1
                and all(part in lines[0] for part in parts))
        if not good:
            sys.exit(f"FAILED: {what}: exit code {done.returncode}, expected "
                     f"one line with {parts}, got\n{done.stderr[-3000:]}")
        print(f"ok: {what}: {lines[0]}", flush=True)
    return command


def made_up_text(documents, seed):
    """Sentences of a small grammar: enough structure to learn in 20 steps."""
    pick = random.Random(seed).choice
    lines = []
    for _ in range(documents):
        sentences = [
            f"{pick(['The', 'A', 'Every'])} {pick(['command', 'file', 'user', 'server'])} "
            f"{pick(['reads', 'writes', 'opens', 'removes'])} "
            f"{pick(['the', 'a', 'no'])} {pick(['file', 'line', 'page', 'socket'])}."
            for _ in range(12)]
        lines.append(json.dumps({"text": " ".join(sentences)}))
    return "\n".join(lines) + "\n"


def processor_target():
    """The best target of `tessera compile` that this machine runs. What is run here alone need not
    be compiled for all of them, which takes several times as long."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    flags = text.partition("flags")[2].partition("\n")[0].split()
    needs = {"cpu:amx": "amx_bf16", "cpu:avx512bf16": "avx512_bf16", "cpu:avx512": "avx512f"}
    return next((target for target, flag in needs.items() if flag in flags), "cpu:avx2")


def make_tokens(binaries, folder):
    """A token directory with train/, eval/ and tokenizer.json."""
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text(made_up_text(200, 1))
    (folder / "eval.jsonl").write_text(made_up_text(40, 2))
    run(binaries / "tessera", "data", "tokenizer", "--vocab", 400,
        "--input", folder / "train.jsonl", "-o", folder / "tokenizer.json")
    run(binaries / "tessera", "data", "tokenize",
        "--tokenizer", folder / "tokenizer.json",
        "--input", folder / "train.jsonl", "--eval-input",
        folder / "eval.jsonl", "-o", folder / "tokens")
    return folder / "tokens"


def make_demo_tokens(binaries, folder):
    """As make_tokens, of the corpus that `make demo` trains on."""
    run(sys.executable, SOURCE / "scripts/make-corpus.py", "-o", folder / "corpus")
    run(binaries / "tessera", "data", "tokenizer", "--vocab", 4096, "--input",
        folder / "corpus/train", "-o", folder / "tokenizer.json")
    run(binaries / "tessera", "data", "tokenize", "--tokenizer",
        folder / "tokenizer.json", "--input", folder / "corpus/train",
        "--eval-input", folder / "corpus/eval", "-o", folder / "tokens")
    return folder / "tokens"


class Prepared:
    """Tokens, and training executables by name, made once for all tests of
    one build: whoever comes first makes them, under a lock."""
    EXECUTABLES = {
        "fp32": [],
        "dropout": ["dropout.rate=0.1", "batch.accumulate=2",
                    "batch.micro=4", "precision.compute=bf16"],
    }

    def __init__(self, binaries, test):
        self.binaries = pathlib.Path(binaries)
        self.tessera = self.binaries / "tessera"
        build = hashlib.sha256()
        for name in ("tessera", "tessera-run"):
            state = (self.binaries / name).stat()
            build.update(f"{state.st_size} {state.st_mtime_ns}".encode())
        parent = pathlib.Path(test).parent
        parent.mkdir(parents=True, exist_ok=True)
        self.folder = parent / "prepared" / build.hexdigest()[:16]
        self.scratch = pathlib.Path(test)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)

    @contextlib.contextmanager
    def making(self, name):
        self.folder.parent.mkdir(exist_ok=True)
        with open(self.folder.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for old in self.folder.parent.iterdir():
                if old.is_dir() and old != self.folder:
                    shutil.rmtree(old)
            self.folder.mkdir(exist_ok=True)
            yield self.folder / name

    def tokens(self):
        with self.making("data") as path:
            if not (path / "tokens/eval/index.json").exists():
                shutil.rmtree(path, ignore_errors=True)
                make_tokens(self.binaries, path)
            return path / "tokens"

    def executable(self, name):
        with self.making(f"train_{name}") as path:
            if not path.exists():
                sets = [f"--set={each}" for each in self.EXECUTABLES[name]]
                run(self.tessera, "compile", SPEC, "--recipe", RECIPE, *sets, "--target", "cpu",
                    "-o", path)
            return path


def metrics(run_directory):
    lines = (run_directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def checkpoints(run_directory):
    return sorted(p.name for p in run_directory.glob("step-*"))


def digest(checkpoint):
    """Name and hash of every file of a checkpoint."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(checkpoint.iterdir())}


def write_safetensors(path, tensors):
    """tensors: name → (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    start = 8 + length
    return {name: (entry["dtype"], entry["shape"],
                   content[start + entry["data_offsets"][0]:
                           start + entry["data_offsets"][1]])
            for name, entry in header.items()}


class Blocked:
    """A training process that cannot run away from the test: it writes a
    record a step into a pipe of one page that nobody empties."""

    def __init__(self, *arguments):
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        self.process = subprocess.Popen(
            [str(a) for a in (*arguments, "--json")], stdout=writing,
            stderr=subprocess.PIPE, text=True)
        os.close(writing)
        self.pipe = os.fdopen(reading)

    def step(self):
        """Reads one record."""
        line = self.pipe.readline()
        if not line:
            self.process.wait()
            sys.exit(f"FAILED: training ended: {self.process.stderr.read()}")
        return json.loads(line)

    def until(self, step):
        while self.step().get("step", 0) < step:
            pass

    def send(self, signal):
        """The exit code after the signal, the pipe emptied, and stderr."""
        self.process.send_signal(signal)
        self.pipe.read()
        errors = self.process.stderr.read()
        return self.process.wait(), errors
