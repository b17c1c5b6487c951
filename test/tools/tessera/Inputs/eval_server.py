"""`tessera eval` of servers whose answers are not usable: each is one line on
stderr that says why, and exit code 1.
   eval_server.py BIN FOLDER
"""
import http.server
import json
import pathlib
import subprocess
import sys
import threading

GOOD = {"index": 0, "text": "out",
        "logprobs": {"token_logprobs": [None, -1.0, -2.0, -9.0], "text_offset": [0, 1, 3, 5]}}
TASKS = """
tasks:
- {name: text, kind: perplexity, data: text.jsonl}
- {name: safe, kind: prompts, data: prompts.jsonl, forbid: x}
"""


def choices(**changes):
    return {"choices": [{**GOOD, **changes}]}


# Status and body of a completion, and what is said of it; None: results.
CASES = [
    (200, choices(), None),
    (400, {"error": {"message": "no echo\nhere"}}, "task text: text.jsonl:1: the server answers 400: no echo\\x0ahere"),
    (500, "oops", "task text: text.jsonl:1: the server answers 500: \"oops\""),
    (200, {}, "task text: text.jsonl:1: the server's answer lacks choices of 1 prompts"),
    (200, [1], "task text: text.jsonl:1: the server's answer lacks choices of 1 prompts"),
    (200, choices(index=1), "task text: text.jsonl:1: the server's answer lacks choices of 1 prompts"),
    (200, choices(logprobs=None),
     "task text: text.jsonl:1: the server gives no logprobs of prompts (echo with logprobs)"),
    (200, choices(logprobs={"token_logprobs": [1], "text_offset": []}),
     "task text: text.jsonl:1: token_logprobs and text_offset differ in length"),
    (200, choices(logprobs={"token_logprobs": [1], "text_offset": ["a"]}),
     "task text: text.jsonl:1: text_offset has an element that is not an integer"),
    (200, choices(logprobs={"token_logprobs": [None], "text_offset": [0]}),
     "task text: text.jsonl:1: the server scores no token of the text"),
    (200, choices(text=3), "task safe: prompts.jsonl:1: the server's answer has no text"),
]


class Handler(http.server.BaseHTTPRequestHandler):
    case = None

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(200, {"data": [{"id": "m"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(*Handler.case)

    def log_message(self, *_):
        pass


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tasks.yaml").write_text(TASKS)
    (folder / "text.jsonl").write_text('{"text": "hello"}\n')
    (folder / "prompts.jsonl").write_text('{"prompt": "hello"}\n')
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for status, body, wanted in CASES:
        Handler.case = status, body
        done = subprocess.run([binaries / "tessera", "eval", f"http://127.0.0.1:{server.server_port}/v1", "--quiet",
                               "--tasks", "tasks.yaml"], cwd=folder, capture_output=True, text=True, timeout=60)
        expected = (1, f"tessera: {wanted}\n") if wanted else (0, "")
        assert (done.returncode, done.stderr) == expected, (body, done.returncode, done.stderr)
        if not wanted:  # exp of 3 over 2 tokens; the fourth is generated
            assert "4.48169" in done.stdout, done.stdout
    print(f"ok: {len(CASES)} answers")


main()
