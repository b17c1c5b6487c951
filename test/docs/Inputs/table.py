"""How commands of the documentation are shortened, and which are not run.

Every entry has the page (a glob), a pattern of the command's text, and a reason.
An entry that no command matches is an error, so the tables follow the text.
"""
import dataclasses
import fnmatch
import re
import shutil

from extract import SOURCE

# Pages by test, so that tests run side by side; all other pages are in "rest".
GROUPS = {
    "user": ("README.md", "examples/README.md", "docs/embeddings.md"),
    "models": ("docs/generating.md", "docs/serving.md", "bench/README.md", "runtime/bench/README.md"),
    "devices": ("docs/cuda.md", "docs/distributed.md", "test/oracle/README.md"),
}


def group_of(page):
    return next((name for name, pages in GROUPS.items() if page in pages), "rest")


def has_oracles():
    return (SOURCE / ".venv/ready").exists()


def has_curl():
    return shutil.which("curl") is not None


@dataclasses.dataclass
class Entry:
    page: str
    pattern: str
    matched: int = dataclasses.field(default=0, init=False)

    def matches(self, page, text):
        found = fnmatch.fnmatch(page, self.page) and re.search(self.pattern, text)
        self.matched += bool(found)
        return bool(found)

    def __str__(self):
        return f"{self.page} '{self.pattern}'"


@dataclasses.dataclass
class Shorter(Entry):
    """The command runs with `pattern` replaced."""
    replacement: str
    reason: str

    def apply(self, page, text):
        return re.sub(self.pattern, self.replacement, text) if self.matches(page, text) else text


@dataclasses.dataclass
class NotRun(Entry):
    """Only flags and paths are checked; everywhere, or where `unless` is false."""
    reason: str
    unless: object = None

    def applies(self, command):
        return self.matches(command.page, command.text) and not (self.unless and self.unless())


@dataclasses.dataclass
class Fixture(Entry):
    """In these commands NAME is another fixture (fixtures.py) than in general."""
    name: str
    fixture: str


@dataclasses.dataclass
class Foreign(Entry):
    """A flag of another program."""
    program: str


SHORTER = [
    # Builds: what would be built is looked up.
    Shorter("*", r"^((?:\w+=\S+ )?)make\b", r"\1make -n", "the test is part of what it makes"),
    Shorter("*", r"^ninja\b", "ninja -n", "the build must not change under the tests"),
    Shorter("*", r"^scripts/run-tests.sh build\b",
            "${LIT:-/usr/lib/llvm-19/build/utils/lit/lit.py} --show-tests build/test",
            "lit runs already"),
    Shorter("docs/adding-an-op.md", r"(build/bin/unit/GraphTests)(?= &&|$)",
            r"\1 --gtest_filter='GraphGradients*'", "time"),
    Shorter("test/metamorphic/README.md", r"\[([^\]]*)\]", r"\1", "brackets: optional"),
    Shorter("test/metamorphic/README.md", r"--count 2000", "--count 8", "time"),
    # Training.
    Shorter("README.md", r"models/specs/gpt2-demo", "models/specs/tiny-gpt2", "time"),
    Shorter("docs/distributed.md", r"models/specs/gpt2-demo", "models/specs/tiny-gpt2", "time"),
    Shorter("*", r"recipes/demo.yaml", "recipes/tiny-gpt2.yaml", "the recipe of tiny-gpt2"),
    Shorter("docs/distributed.md", r"(models/specs|recipes)/llama-110m", r"\1/tiny-gpt2", "time"),
    Shorter("*", r"models/specs/(gpt2-10m|gpt2-124m|llama-1b)", "models/specs/tiny-gpt2", "time"),
    Shorter("README.md", r"--steps 1200", "--steps 4", "time"),
    Shorter("*", r"(?<=--steps )(20|200)\b", "2", "time"),
    Shorter("*", r"^(mpirun .*)?\./train_(demo|mine) --data \S+ --out \S+$", r"\g<0> --steps 2", "time"),
    Shorter("docs/debugging.md", r"--dump-metrics$|--device null$", r"\g<0> --steps 2", "time"),
    Shorter("examples/README.md", r"--vocab 8192", "--vocab 400", "a small text"),
    Shorter("examples/README.md", r"tessera compile gpt2 ",
            "tessera compile gpt2 --set batch.sequence=32 ", "time"),
    # GPUs are emulated; nvcc takes minutes, and test/e2e runs it (commands.py).
    Shorter("docs/cuda.md", r"tessera compile SPEC",
            r"\g<0> --set batch.micro=2 --set batch.sequence=16", "as the page says"),
    Shorter("docs/distributed.md", r"models/specs/tiny-gpt2(.* --target cpu,cuda:sm_80)",
            r"SPEC --set batch.micro=2 --set batch.sequence=16\1", "as docs/cuda.md says"),
    Shorter("docs/*.md", r"--device cuda(:0)?(?=\s|$)", "--device cuda-emu", "no GPU"),
    Shorter("docs/*.md", r"(train_x|train_tiny) .* --device \S+$", r"\g<0> --steps 1", "emulated"),
    Shorter("docs/cuda.md", r"--device cuda-emu --resume", r"\g<0> --steps 2", "emulated"),
    Shorter("docs/cuda.md", r"--device cuda-emu:sm_90a --resume", r"\g<0> --steps 3", "emulated"),
    Shorter("docs/cuda.md", r"tessera generate", r"\g<0> --max-tokens 4", "emulated"),
    Shorter("*bench/README.md", r"--device cuda:0", "--device cpu --repeats 1", "no GPU"),
    Shorter("tools/tessera-run/README.md", r"--device cuda:0", "--device cpu --repeats 1", "no GPU"),
    # Placeholders.
    Shorter("docs/adding-a-target.md", r"NAME", "cpu:avx2", "a target"),
    Shorter("docs/adding-a-model.md", r"NAME", "tiny-gpt2", "a spec"),
    Shorter("docs/cuda.md", r"--show=NAME", "--show=layer_norm", "a kernel"),
    Shorter("docs/distributed.md", r"FILE\.mlir", "ir/00-import.mlir", "a module"),
    Shorter("test/oracle/README.md", r"/tmp/oracle", "oracle", "the test's folder"),
    Shorter("test/oracle/README.md", r"--steps all --seeds 3", "--steps simpo --dtype fp32",
            "eight minutes: 25 losses of three models"),
    Shorter("test/oracle/README.md", r"--dtype fp32 --check threads", "--dtype fp32 --only logits",
            "test/e2e runs it"),
    Shorter("*", r"\| less$", "| cat", "no terminal"),
    # Benchmarks and servers.
    Shorter("bench/README.md", r"bench gemm", r"\g<0> --m 64 --n 64 --k 64 --pairs 1", "time"),
    Shorter("bench/README.md", r"bench train(?!.*--spec)",
            r"\g<0> --spec models/specs/tiny-gpt2 --batch 1 --sequence 16", "time"),
    Shorter("*", r"bench train ", r"\g<0>--steps 1 ", "time"),
    Shorter("bench/README.md", r"--pp 512 --tg 128", "--pp 16 --tg 4", "time"),
    Shorter("bench/README.md", r"--random(?!.* --pp)", r"\g<0> --pp 16 --tg 4 --repeat 1", "time"),
    Shorter("bench/README.md", r"--pp 0 --batch 16", r"--tg 2 --repeat 1 \g<0>", "time"),
    Shorter("*", r"--rate 4 --num 200", "--rate 20 --num 4", "time"),
    Shorter("docs/planning.md", r"--mesh auto --world 4", "--mesh auto --world 2", "time"),
    Shorter("bench/README.md", r"speculate\.py .*", r"\g<0> --prompts 2 --prompt 4 --tokens 8 --rounds 1", "time"),
    Shorter("bench/README.md", r"--triples 40", "--triples 1 --plans 2", "time"),
    Shorter("bench/README.md", r"start\.py", r"\g<0> --runs 1 --settle 0", "time"),
    Shorter("docs/serving.md", r"load\.py", r"\g<0> --requests 24", "time"),
    Shorter("docs/*.md", r"^curl",
            "curl --fail-with-body --silent --show-error", "an error is a failure"),
    Shorter("bench/infer/README.md", r"^bench/infer/llama_cpp.py gguf",
            r".venv/bin/python \g<0>", "its packages"),
    Shorter("tools/iopddl/README.md", r" 60 ", " 1 ", "time"),
    Shorter("docs/reinforcement-learning.md", r"(tessera rl .*) --rollout-listen \S+$",
            r"tessera rollout-worker --connect 127.0.0.1:17113 & "
            r"\1 --rollout-listen 127.0.0.1:17113 && wait $!", "one machine"),
    Shorter("docs/generating.md", r"(tessera generate \S+)(?!.*--max-tokens)", r"\1 --max-tokens 4", "time"),
]

NOT_RUN = [
    NotRun("CONTRIBUTING.md", r"^build-fuzz/", "needs a second build"),
    NotRun("bench/README.md", r"calibrate\.py", "needs an idle machine for an hour"),
    NotRun("docs/planning.md", r"doctor --calibrate",
           "takes a minute; test/tools/tessera/calibrate.test runs it"),
    NotRun("bench/README.md", r"train/documents\.py", "needs an idle machine for minutes"),
    NotRun("bench/README.md", r"train/qlora\.py", "compiles 80 layers, and needs an idle machine"),
    NotRun("bench/README.md", r"rl/reverse\.py", "takes many minutes: ten runs"),
    NotRun("bench/README.md", r"adapters\.py", "takes minutes: 33 models of llama-110m"),
    NotRun("bench/*README.md", r"bench/gpu/(build|run)\.sh",
           "takes minutes; test/scripts/gpu-bench.test runs both"),
    NotRun("test/oracle/README.md", r"newest/bin/", "installs gigabytes of whatever is newest"),
    NotRun("bench/infer/README.md", r"^(pip|tar|cd|cmake|ninja) ", "needs the network"),
    NotRun("bench/*README.md", r"llama-quantize|llama_cpp\.py compare", "needs a build of llama.cpp"),
    NotRun("bench/infer/README.md", r"llama_cpp\.py gguf", "needs the oracles", unless=has_oracles),
    NotRun("docs/reinforcement-learning.md", r"^tessera rollout-worker",
           "runs with the command before it"),
    NotRun("docs/cuda.md", r"--sass", "needs nvcc and nvdisasm"),
    NotRun("bench/gpu/README.md", r"(bounds|gates|inflight|measured)\.py", "needs nvcc and nvdisasm"),
    NotRun("docs/*.md", r"^curl", "needs curl", unless=has_curl),
    NotRun("*", r"\.venv/bin/python", "needs the oracles", unless=has_oracles),
    NotRun("test/metamorphic/README.md", r"--reduce", "no seed fails"),
]

FIXTURES = [
    Fixture("README.md", r"tessera embed DIR", "DIR", "encoder"),
    Fixture("docs/embeddings.md", r"DIR", "DIR", "encoder"),
    Fixture("docs/fine-tuning.md", r"DIR", "DIR", "chat-model"),
    Fixture("docs/reinforcement-learning.md", r"DIR", "DIR", "chat-model"),
    Fixture("docs/planning.md", r"SPEC", "SPEC", "llama-3-8b"),
    Fixture("docs/cuda.md", r"SPEC", "SPEC", "nano"),
    Fixture("docs/distributed.md", r"cuda:sm_80", "SPEC", "nano"),
]

# Flags in prose that are not of the programs in build/bin.
FOREIGN = [
    Foreign("*", r"--filter$", "lit"),
    Foreign("docs/distributed.md", r"--(allow-run-as-root|oversubscribe|mca)$", "Open MPI"),
    Foreign("docs/reinforcement-learning.md", r"--bind-to$", "Open MPI"),
    Foreign("bench/infer/README.md", r"--token-embedding-type$", "llama-quantize"),
    Foreign("docs/serving.md", r"--(model|apply_chat_template)$", "lm_eval"),
    Foreign("*", r"--emulated$", "bench/gpu/run.sh"),
]
