"""A model in one file: compiled from a directory, and then all that a text, a
chat and a server need, wherever it lies."""
import json
import os
import shutil
import sys

from harness import SOURCE, Prepared, check, refuses, run
from weight_cache import write_model

sys.path.insert(0, str(SOURCE / "test/runtime/serve"))
from serving import Server  # noqa: E402

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
GREEDY = ("--prompt", "The command", "--temperature", 0, "--max-tokens", 24, "--ignore-end")

CHAT = ("--temperature", 0)


class Shipped:
    def __init__(self, made):
        self.tessera, self.scratch = made.tessera, made.scratch
        self.folder = made.scratch / "model"
        write_model(self.folder, made.tokens().parent / "tokenizer.json", 1)
        (self.folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
        (self.folder / "generation_config.json").write_text(json.dumps({"max_new_tokens": 9}))
        self.env = {**os.environ, "XDG_CACHE_HOME": str(made.scratch / "cache")}
        # Where nothing was compiled and nothing is kept.
        self.bare = {**os.environ, "XDG_CACHE_HOME": str(made.scratch / "bare")}

    def compile(self, name, *flags):
        """The file, in a folder of its own."""
        path = self.scratch / "shipped" / name
        path.parent.mkdir(exist_ok=True)
        done = run(self.tessera, "compile", self.folder, "--mode", "infer", "-o", path, *flags, env=self.env)
        assert f"{path}: " in done.stderr and "programs" in done.stderr, done.stderr
        return path

    def text(self, place, *flags, env=None):
        done = run(self.tessera, "generate", place, *GREEDY, "--quiet", *flags, env=env or self.bare)
        return done.stdout

    def answers(self, place, env, *flags):
        """What a server of it says to a chat and to a prompt, and its name."""
        command = [str(part) for part in (self.tessera, "serve", place, "--port", "0", *flags)]
        with Server(command, env=env) as server:
            status, chat = server.post("/v1/chat/completions", temperature=0,
                                       messages=[{"role": "user", "content": "A file"}])
            assert status == 200, chat
            status, text = server.post("/v1/completions", prompt="The command", temperature=0, max_tokens=24)
            assert status == 200, text
            (model,) = server.call("GET", "/v1/models")[2]["data"]
            self.said = "".join(server.lines)
        return (chat["choices"][0]["message"]["content"], chat["usage"], text["choices"][0]["text"]), model["id"]


def is_the_model(shipped, flags):
    """The same texts as the directory's, from a machine that has only the file."""
    path = shipped.compile("small.tsr", *flags)
    text = shipped.text(shipped.folder, *flags, env=shipped.env)
    answers, name = shipped.answers(shipped.folder, shipped.env, *flags)
    assert name == "model"
    said = run(shipped.tessera, "chat", shipped.folder, *CHAT, *flags, input="A file\n", env=shipped.env).stdout
    away = shipped.folder.rename(shipped.scratch / "away")
    check(len(text) > 20 and shipped.text(path) == text, f"{flags}: generate writes the directory's text")
    same, name = shipped.answers(path, shipped.bare)
    check(same == answers, f"{flags}: serve gives its answers")
    check(name == "small" and "compiling" not in shipped.said, f"{flags}: under the file's name, compiling nothing")
    done = run(shipped.tessera, "chat", path, *CHAT, input="A file\n", env=shipped.bare)
    check(done.stdout == said and "max-tokens 9 (generation_config.json)" in done.stderr,
          f"{flags}: chat has its template and its settings")
    check(not (shipped.scratch / "bare").exists(), f"{flags}: nothing is left in a cache")
    away.rename(shipped.folder)
    return path


def other_devices(shipped):
    """What the host cannot address is filled as well."""
    path = shipped.compile("gpu.tsr", "--target", "cpu,cuda:sm_80")
    emulated = shipped.text(shipped.folder, "--device", "cuda-emu", env=shipped.env)
    check(shipped.text(path, "--device", "cuda-emu") == emulated, "an emulated GPU has the weights, too")
    check(len(shipped.text(path)) > 20, "and so have the processors, of the same file")
    refuses("a device that it was not compiled for", "cuda")(
        shipped.tessera, "generate", shipped.scratch / "shipped/small.tsr", "--quiet", *GREEDY, "--device", "cuda-emu")


def begins_a_text(shipped):
    """An empty prompt, where only config.json names a token that begins one."""
    words, config = shipped.folder / "tokenizer.json", shipped.folder / "config.json"
    words.write_text(words.read_text().replace("<|endoftext|>", "<|other|>"))
    refuses("nothing begins a text", "beginning-of-sequence token")(
        shipped.tessera, "generate", shipped.folder, "--prompt", "", "--quiet", "--cache", "off")
    config.write_text(json.dumps({**json.loads(config.read_text()), "bos_token_id": 37}))
    path = shipped.compile("begins.tsr")
    done = run(shipped.tessera, "generate", path, "--temperature", 0, "--max-tokens", 24, "--quiet", env=shipped.bare)
    with Server([str(part) for part in (shipped.tessera, "serve", path, "--port", "0")], env=shipped.bare) as server:
        status, empty = server.post("/v1/completions", prompt="", temperature=0, max_tokens=24)
        _, token = server.post("/v1/completions", prompt=[37], temperature=0, max_tokens=24)
        check(status == 200 and empty["choices"][0]["text"] == token["choices"][0]["text"],
              "a server begins with the model's token")
    check(done.stdout == empty["choices"][0]["text"] + "\n", "and so does generate")


def refusals(shipped, path):
    tessera, folder = shipped.tessera, shipped.folder
    refuses("wishes come too late", "compiled already", "tessera compile")(tessera, "generate", path, "--quant", "int8")
    refuses("a server's, too", "compiled already", "inference.batch")(
        tessera, "serve", path, "--port", 0, "--max-batch", 2)
    refuses("not an encoder", "generates text")(tessera, "embed", path, "--text", "a")
    programs = shipped.compile("programs.tsr", "--no-weights")
    check(programs.stat().st_size < path.stat().st_size, "--no-weights leaves them out")
    refuses("programs alone", "has programs but no weights", "tessera compile DIR")(tessera, "generate", programs)
    refuses("one file of a directory", "give its directory", str(folder))(tessera, "chat", folder / "config.json")
    refuses("another one", "give its directory")(tessera, "serve", folder / "model.safetensors", "--port", 0)
    other = shipped.scratch / "a.gguf"
    other.write_text("GGUF")
    refuses("a damaged GGUF file", "truncated or damaged")(tessera, "generate", other)
    other = other.with_suffix(".txt")
    other.write_text("text")
    refuses("any file", "neither a directory nor a packaged model")(tessera, "generate", other)
    damaged = bytearray(path.read_bytes())
    damaged[(2 << 20) + 5] ^= 1
    (shipped.scratch / "damaged.tsr").write_bytes(damaged)
    refuses("a damaged file", "damaged.tsr' is damaged; copy or compile it again")(tessera, "generate", shipped.scratch / "damaged.tsr", "--quiet")

    compile = (tessera, "compile", folder, "--mode", "infer", "-o")
    refuses("a folder that is not there", "nowhere")(*compile, shipped.scratch / "nowhere/a.tsr")
    refuses("stdout", "'-' is not a regular file", "--no-weights")(*compile, "-")
    pipe = shipped.scratch / "pipe"
    os.mkfifo(pipe)
    refuses("a pipe", "pipe' is not a regular file")(*compile, pipe)
    check(pipe.is_fifo(), "and it is there still")
    refuses("the model's own file", "config.json", "own directory")(*compile, folder / "config.json")
    (shipped.scratch / "current.tsr").symlink_to("shipped/linked.tsr")
    run(*compile, shipped.scratch / "current.tsr", env=shipped.env)
    check((shipped.scratch / "current.tsr").is_symlink() and (shipped.scratch / "shipped/linked.tsr").is_file(),
          "a link stays one")
    refuses("compiled twice", "compiled already")(tessera, "compile", path, "--mode", "infer", "-o", shipped.scratch / "b.tsr")
    before = sorted(shipped.scratch.iterdir()) + sorted(path.parent.iterdir())
    (folder / "tokenizer.json").rename(folder / "kept")
    refuses("no tokenizer", "tokenizer.json", "no such file")(*compile, shipped.scratch / "a.tsr")
    (folder / "kept").rename(folder / "tokenizer.json")
    shutil.move(folder / "model.safetensors", shipped.scratch / "weights")
    refuses("no weights", "there are none")(*compile, shipped.scratch / "a.tsr", "--no-weights")
    (folder / "model.safetensors").write_bytes((shipped.scratch / "weights").read_bytes()[:-1])
    refuses("cut weights", "model.safetensors", "truncated")(*compile, shipped.scratch / "a.tsr")
    lacking = (shipped.scratch / "weights").read_bytes().replace(b"model.norm.weight", b"model.horn.weight")
    (folder / "model.safetensors").write_bytes(lacking)
    said = run(*compile, shipped.scratch / "a.tsr", code=1, env=shipped.env).stderr.splitlines()[-1]
    check("lacks 1 of the model's parameters: norm.weight" in said.replace("model.norm", "norm"), "weights that lack one")
    (folder / "model.safetensors").unlink()
    shutil.move(shipped.scratch / "weights", folder / "model.safetensors")
    check(sorted(shipped.scratch.iterdir()) + sorted(path.parent.iterdir()) == before, "nothing was left of what failed")


def main():
    shipped = Shipped(Prepared(*sys.argv[1:3]))
    for flags in ((), ("--quant", "int4", "--quant-group", "32"), ("--quant", "int8", "--kv", "int8")):
        path = is_the_model(shipped, flags)
    done = run(shipped.tessera, "inspect", path, env=shipped.bare)
    check("weights 0.2 MB, config.json" in done.stdout and "tokenizer.json" in done.stdout and "made by: tessera compile" in done.stdout,
          "inspect says what is in it")
    done = run(shipped.tessera, "bench", "infer", path, "--pp", 8, "--tg", 4, "--repeat", 1, "--json", env=shipped.bare)
    check(len(done.stdout.splitlines()) == 2, "bench infer measures it")
    other_devices(shipped)
    refusals(shipped, path)
    begins_a_text(shipped)


if __name__ == "__main__":
    main()
