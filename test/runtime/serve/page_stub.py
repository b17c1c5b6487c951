"""What models of tests cannot write: a proxy in front of a real server that answers
chats by itself, with texts that it is given, in the server's format of a stream."""

import http.client
import http.server
import json
import math
import re
import threading
import time


def pieces(text):
    """Words and signs, like the tokens of a model."""
    return re.findall(r"\s?\w+|\s+|`+|-+|[^\w\s]", text)


def logprobs_of(piece, i):
    """Certain and uncertain tokens in turn."""
    likely = (0.98, 0.91, 0.62, 0.97, 0.34, 0.99, 0.85, 0.12)[i % 8]
    others = [{"token": other, "logprob": math.log((1 - likely) / 2 ** k), "bytes": list(other.encode())}
              for k, other in enumerate((" a", " the", "\n"), 1)]
    own = {"token": piece, "logprob": math.log(likely), "bytes": list(piece.encode())}
    return {**own, "top_logprobs": sorted([own, *others], key=lambda each: -each["logprob"])}


class Stub:
    """`answers`: for each chat in turn a list of deltas, a string (content), or an
    (HTTP status, error); `pause`: seconds between two events."""

    def __init__(self, real, answers, pause=0.0, models=None):
        self.real, self.answers, self.pause, self.models, self.bodies = real, list(answers), pause, models, []
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path == "/v1/models" and stub.models:
                    return self.reply(200, [("Content-Type", "application/json")], json.dumps({"object": "list", "data": stub.models}).encode())
                self.forward()

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path != "/v1/chat/completions":
                    return self.forward(body)
                stub.bodies.append(json.loads(body))
                answer = stub.answers.pop(0)
                if isinstance(answer, tuple):
                    error = json.dumps({"error": answer[1]}).encode()
                    return self.reply(answer[0], [("Content-Type", "application/json"), ("Retry-After", "1")], error)
                self.stream(answer, stub.bodies[-1].get("logprobs"))

            def reply(self, status, headers, body):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def forward(self, body=None):
                connection = http.client.HTTPConnection("127.0.0.1", stub.real.port, timeout=30)
                connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                kept = [(name, value) for name, value in answer.getheaders() if name not in ("Content-Length", "Connection", "Transfer-Encoding")]
                self.reply(answer.status, kept, answer.read())

            def stream(self, answer, has_logprobs):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                deltas = [{"content": piece} for piece in pieces(answer)] if isinstance(answer, str) else answer
                try:
                    self.event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
                    for i, delta in enumerate(deltas):
                        named = {"content": [logprobs_of(delta["content"], i)]} if has_logprobs and "content" in delta else None
                        self.event(choices=[{"index": 0, "delta": delta, "logprobs": named, "finish_reason": None}])
                        time.sleep(stub.pause)
                    self.event(choices=[{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}])
                    self.event(choices=[], usage={"prompt_tokens": 20, "completion_tokens": len(deltas), "total_tokens": 20 + len(deltas)})
                    self.wfile.write(b"data: [DONE]\n\n")
                except (BrokenPipeError, ConnectionResetError):
                    pass  # stopped

            def event(self, **fields):
                self.wfile.write(b"data: " + json.dumps({"id": "chatcmpl-0", "object": "chat.completion.chunk", "usage": None, **fields}).encode() + b"\n\n")
                self.wfile.flush()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
