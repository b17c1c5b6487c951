"""`tessera eval` of win_rate tasks and of chats by servers: a model and a judge whose
answers follow rules, so that every metric is known.
   eval_judge.py BIN FOLDER
"""
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

ROWS = [{"q": f"question {i}", "other": "o" * (i % 7), "half": "even" if i % 2 == 0 else "odd"} for i in range(12)]
TASK = {"name": "wins", "kind": "win_rate", "data": "data.jsonl", "prompt": "{q}", "against": "other", "stop": "!"}
PARTS = re.compile(r"\[Prompt\]\n(.*)\n\n\[Answer of assistant A\]\n(.*)\n\[End .*\n\n\[Answer of assistant B\]\n(.*)\n\[End", re.S)


def output_of(question):
    """Of the model: 0 to 4 letters."""
    return "m" * (int(question.split()[-1]) * 3 % 5)


def longer(prompt, a, b):
    return "A [[A]] is what you expect, but I say [[%s]]." % ("A" if len(a) > len(b) else "B" if len(b) > len(a) else "C")


def first(prompt, a, b):
    return "[[A]]"


def shy(prompt, a, b):
    """Says nothing about question 3, and about 6 in one order alone."""
    number = int(prompt.split()[-1])
    return "I cannot." if number == 3 or (number == 6 and a.startswith("m")) else longer(prompt, a, b)


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(200, {"data": [{"id": self.server.name}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["temperature"] == 0, asked
        with self.server.lock:
            self.server.asked.append((self.path, asked, self.headers.get("Authorization")))
            number = len(self.server.asked)
        self.answer(*self.server.rule(self.path, asked, number))

    def log_message(self, *_):
        pass


def chat_answer(text):
    return 200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}


def model_rule(path, asked, _):
    if path.endswith("/chat/completions"):
        return chat_answer(output_of(asked["messages"][-1]["content"]))
    return 200, {"choices": [{"index": i, "text": output_of(prompt)} for i, prompt in enumerate(asked["prompt"])]}


def judge_rule(rule):
    def answer(path, asked, _):
        assert path.endswith("/v1/chat/completions"), path
        [message] = asked["messages"]
        assert message["role"] == "user", message
        return chat_answer(rule(*PARTS.search(message["content"]).groups()))
    return answer


class Stub:
    def __init__(self, name, rule):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.name, self.server.rule, self.server.asked, self.server.lock = name, rule, [], threading.Lock()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def take(self):
        asked, self.server.asked = self.server.asked, []
        return asked


class Test:
    def __init__(self, binaries, folder):
        self.binaries, self.folder, self.checks = binaries, folder, 0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        self.model, self.judge = Stub("m", model_rule), Stub("j", judge_rule(longer))

    def eval(self, task, *options, judge=True, gates=()):
        (self.folder / "tasks.yaml").write_text(json.dumps({"tasks": [task], "gates": list(gates)}))
        self.model.take(), self.judge.take()
        self.checks += 1
        return subprocess.run(
            [self.binaries / "tessera", "eval", self.model.url, "--quiet", "--tasks", "tasks.yaml", "-o", "results.json",
             "--samples", "samples.jsonl", *(["--judge", self.judge.url] if judge else []), *options],
            cwd=self.folder, capture_output=True, text=True, timeout=60, env=os.environ | {"TESSERA_JUDGE_API_KEY": "secret"})

    def results(self, done):
        assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stderr)
        results = json.loads((self.folder / "results.json").read_text())["results"]
        samples = [json.loads(line) for line in (self.folder / "samples.jsonl").read_text().splitlines()]
        return {each["metric"] + (each["group"] or ""): each for each in results}, samples

    def fails(self, wanted, *given, **named):
        done = self.eval(*given, **named)
        assert done.returncode == 1 and done.stderr == f"tessera: {wanted}\n", (wanted, done.stderr)


def score(a, b):
    return (a > b) + 0.5 * (a == b)


def check_rates(test):
    """Against the same rule, computed here."""
    wanted = [score(len(output_of(row["q"])), len(row["other"])) for row in ROWS]
    assert {0, 0.5, 1} == set(wanted)
    metrics, samples = test.results(test.eval({**TASK, "split_by": "half"}))
    mean = sum(wanted) / len(wanted)
    error = (sum((each - mean) ** 2 for each in wanted) / (len(wanted) - 1) / len(wanted)) ** 0.5
    assert abs(metrics["win_rate"]["value"] - mean) < 1e-9 and abs(metrics["win_rate"]["stderr"] - error) < 1e-9
    assert metrics["consistent"]["value"] == metrics["judged"]["value"] == 1
    assert abs(metrics["win_ratehalf=odd"]["value"] - sum(wanted[1::2]) / 6) < 1e-9
    assert [each["win_rate"] for each in samples] == wanted
    for row, sample in zip(ROWS, samples, strict=True):
        assert sample["output"] == output_of(row["q"]) and sample["against"] == row["other"], sample
        assert sample["verdicts"][0] == sample["verdicts"][1] and len(sample["judgments"]) == 2, sample
    asked = test.judge.take()
    assert len(asked) == 2 * len(ROWS) and {each[2] for each in asked} == {"Bearer secret"}
    assert {each[1]["model"] for each in asked} == {"j"} and {each[1]["max_tokens"] for each in asked} == {1024}
    assert {each[2] for each in test.model.take()} == {None}  # the judge's key is the judge's
    return samples


def check_samples_of_another(test):
    """Against the model's own outputs, by its samples: ties alone."""
    (test.folder / "own.jsonl").write_bytes((test.folder / "samples.jsonl").read_bytes())
    task = {key: value for key, value in TASK.items() if key != "against"}
    chat = {**task, "against_samples": "own.jsonl", "chat": True, "system": "Be short.", "judge": test.judge.url}
    metrics, samples = test.results(test.eval(chat, judge=False))
    assert metrics["win_rate"]["value"] == 0.5 and metrics["win_rate"]["stderr"] == 0, metrics
    assert samples[0]["prompt"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "question 0"}]
    assert {(path, asked["stop"][0], len(asked["messages"])) for path, asked, _ in test.model.take()} == {
        ("/v1/chat/completions", "!", 2)}


def check_judges(test):
    test.judge.server.rule = judge_rule(first)
    metrics, samples = test.results(test.eval(TASK))
    assert (metrics["win_rate"]["value"], metrics["consistent"]["value"]) == (0.5, 0), metrics
    assert samples[0]["verdicts"] == ["win", "loss"]
    test.judge.server.rule = judge_rule(shy)
    metrics, samples = test.results(test.eval(TASK))
    assert samples[3]["verdicts"] == [None, None] and samples[3]["win_rate"] is None
    assert samples[6]["win_rate"] is None and samples[4]["win_rate"] is not None
    assert metrics["win_rate"]["examples"] == 10 and metrics["judged"]["examples"] == 12, metrics
    assert abs(metrics["judged"]["value"] - 10 / 12) < 1e-9
    test.judge.server.rule = judge_rule(lambda *_: "no")
    done = test.eval(TASK, gates=["wins.win_rate >= 0"])
    assert (done.returncode, done.stderr) == (1, "tessera: gate missed: wins.win_rate >= 0, the value is nan\n"), done.stderr
    assert json.loads((test.folder / "results.json").read_text())["results"][0]["value"] is None
    # A judge that is busy once is asked again.
    test.judge.server.rule = lambda path, asked, number: (429, {}) if number == 1 else judge_rule(longer)(path, asked, number)
    metrics, _ = test.results(test.eval({**TASK, "limit": 2}))
    assert metrics["judged"]["value"] == 1 and len(test.judge.take()) == 5


def check_errors(test):
    one = {**TASK, "limit": 1}
    for status, body, wanted in (
            (500, {"error": {"message": "no\nroom"}}, "the judge answers 500: no\\x0aroom"),
            (401, b"who", "the judge answers 401: who"),
            (200, b"{", "the answer of the judge has no message with content"),
            (200, [], "the answer of the judge has no message with content"),
            (200, {"choices": [{"message": {"content": 3}}]}, "the answer of the judge has no message with content")):
        test.judge.server.rule = lambda path, asked, number, answer=(status, body): answer
        (test.folder / "samples.jsonl").unlink(missing_ok=True)
        test.fails(f"task wins: data.jsonl:1: {wanted}; what the model said is in 'samples.jsonl'", one)
        [kept] = map(json.loads, (test.folder / "samples.jsonl").read_text().splitlines())
        assert (kept["output"], kept["against"]) == (output_of(ROWS[0]["q"]), ROWS[0]["other"]), kept
    test.fails("task wins: judge: cannot connect to 127.0.0.1:1: Connection refused", one, "--judge", "http://127.0.0.1:1",
               judge=False)
    test.fails("task wins: no judge; give judge: URL in the task, or --judge URL", one, judge=False)
    assert not test.model.take()  # nothing is computed before
    choice = {"name": "c", "kind": "multiple_choice", "data": "data.jsonl", "prompt": "{q}", "chat": True,
              "choices": "choices"}
    test.fails("--judge: tasks.yaml has no task of kind win_rate", choice)
    (test.folder / "data.jsonl").write_text(json.dumps({"q": "a 1", "choices": ["x", "y"], "answer": 0}) + "\n")
    test.fails("task c: chat: a server gives no log-likelihoods of chats; leave it out, or give the model "
               "itself", choice, judge=False)


def main():
    test = Test(*map(pathlib.Path, sys.argv[1:]))
    check_rates(test)
    check_samples_of_another(test)
    check_judges(test)
    check_errors(test)
    print(f"ok: {test.checks} evaluations")


main()
