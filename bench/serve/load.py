#!/usr/bin/env python3
"""Loads a server with requests of which some are hostile, and verifies that every
other request gets the response that it gets alone.

   bench/serve/load.py [--requests 2000] [--concurrency 32] [--hostile 0.2]
       [--json FILE] -- COMMAND...

COMMAND starts the server, such as `build/bin/tessera serve RUN --port 0`, which
prints "ready: NAME on http://127.0.0.1:PORT". First each of the distinct requests
runs alone; then all run concurrently, in another order, streamed and whole, among
malformed and hostile requests. Afterwards every response must equal the first one,
byte for byte; none is 5xx; no page is in use; memory has grown by less than 32 MiB
since the first quarter; SIGTERM lets running streams finish; kill -9 leaves no
files, and a second start works. Only the times that are printed at the end depend
on the machine."""

import argparse
import json
import math
import os
import pathlib
import queue
import random
import signal
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "test/runtime/serve"))
from serving import Server  # noqa: E402

COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
MIB = 2**20


# --- friendly requests


def friendly(server, number):
    """The distinct requests: (path, fields)."""
    random.seed(1)
    shared = "The following is a list of commands and what they do. "
    asked = []
    for i in range(number):
        fields = {"seed": i, "temperature": [0, 0.7, 1.3][i % 3]}
        tokens = random.randint(1, min(24, server.context // 3))
        text = shared * (i % 2) + f"{i} " + "of the file " * random.randint(0, 4)
        if i % 4 == 3 and server.has_chat:
            asked.append((CHAT, {**fields, "max_tokens": tokens, "messages": [{"role": "user", "content": text}]}))
        elif i % 8 == 2 and server.has_chat:
            asked.append((RESPONSES, {**fields, "max_output_tokens": tokens, "input": text}))
        else:
            extra = [{}, {"n": 2}, {"logprobs": 2}, {"stop": ["e", "\n"]}, {"top_p": 0.5, "top_k": 20}, {"echo": True, "logprobs": 1}][i % 6]
            asked.append((COMPLETIONS, {**fields, **extra, "max_tokens": tokens, "prompt": text}))
    return asked


def text_of(path, answer):
    if path == RESPONSES:
        return [answer["output"][0]["content"][0]["text"]]
    return [c["message"]["content"] if path == CHAT else [c["text"], c["logprobs"]] for c in answer["choices"]]


class Streamed:
    """A streamed request: its outputs, and when they arrived."""

    def __init__(self, server, path, fields):
        connection = server.connection()
        begin = last = time.monotonic()
        connection.request("POST", path, json.dumps({"model": server.model, "stream": True, **fields}))
        answer = connection.getresponse()
        self.status, self.first, self.between, outputs = answer.status, None, [], {}
        if answer.status != 200:
            answer.read()
            connection.close()
            return
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now, event = time.monotonic(), json.loads(line[6:])
            assert "error" not in event, event
            if path == RESPONSES:
                pieces = [(0, event["delta"])] if event["type"] == "response.output_text.delta" else []
            else:
                pieces = [(c["index"], c["delta"].get("content", "") if path == CHAT else c["text"]) for c in event["choices"]]
            for index, piece in pieces:
                outputs[index] = outputs.get(index, "") + piece
            if any(piece for _, piece in pieces):
                if self.first is None:
                    self.first = now - begin
                else:
                    self.between.append(now - last)
                last = now
        connection.close()
        self.outputs = [outputs.get(i, "") for i in range(max(outputs, default=0) + 1)]


# --- hostile requests


def hostile(server, draw):
    """A random kind of hostile request: (its name, its status, the correct statuses; None: closed)."""
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\n"

    def raw(data, truncate=False):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as peer:
            try:
                peer.sendall(data)
                if truncate:
                    peer.shutdown(socket.SHUT_WR)
                got = peer.recv(64)
            except OSError:
                return None
        return int(got.split()[1]) if got.startswith(b"HTTP/1.1 ") else None

    def body(text):
        text = text.encode()
        return raw(head.encode() + f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text)

    def post(**fields):
        return server.post(COMPLETIONS, **{"prompt": "a", "max_tokens": 2, **fields})[0]

    def leave():
        """Disconnects in the middle of a stream."""
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as peer:
            text = json.dumps({"model": server.model, "prompt": "a", "stream": True, "max_tokens": server.context // 2, "ignore_eos": True})
            peer.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            peer.recv(64)

    def trickle():
        """Bytes one by one, without end."""
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as peer:
            for byte in head.encode()[:20]:
                peer.sendall(bytes([byte]))
                time.sleep(0.005)

    kinds = {
        "10 MB of header": (lambda: raw(head.encode() + b"X: " + b"a" * 10_000_000), {431, None}),
        "1000 headers": (lambda: raw(head.encode() + b"H: some value that fills\r\n" * 1000 + b"\r\n"), {431, None}),
        "not HTTP": (lambda: raw(bytes(draw.randrange(256) for _ in range(200)) + b"\r\n\r\n", truncate=True), {400, None}),
        "length and chunks": (lambda: raw(f"{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()), {400}),
        "bad chunks": (lambda: raw(f"{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode()), {400}),
        "chunks of a byte, truncated": (lambda: raw(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"1\r\nx\r\n" * 5000, truncate=True), {None}),
        "too large": (lambda: raw(f"{head}Content-Length: 99999999\r\n\r\n".encode()), {413}),
        "slow": (trickle, {None}),
        "leaves": (leave, {None}),
        "pipelined": (lambda: raw(b"GET /version HTTP/1.1\r\n\r\n" * 20), {200}),
        "deep JSON": (lambda: body("[" * 3000 + "]" * 3000), {400}),
        "deep objects": (lambda: body('{"a":' * 3000), {400}),
        "not UTF-8": (lambda: raw(head.encode() + b'Content-Length: 16\r\n\r\n{"prompt": "\xff\xfe"}'), {400}),
        "NUL": (lambda: post(prompt="\0" * 50), {200, 400, 429}),
        "NaN": (lambda: body('{"model": "m", "prompt": "a", "temperature": NaN}'), {400}),
        "n": (lambda: post(n=draw.choice([0, -1, 10**18, 1.5, "1"])), {400}),
        "max_tokens": (lambda: post(max_tokens=draw.choice([-1, 0.5, 10**18, 1e300])), {400}),
        "logprobs": (lambda: post(logprobs=draw.choice([-1, 21, 10**9])), {400}),
        "stop": (lambda: post(stop=draw.choice([[""], ["x"] * 99, "y" * 100_000])), {400}),
        "logit_bias": (lambda: post(logit_bias={str(i): 1 for i in range(2000)}), {400}),
        "bias of no token": (lambda: post(logit_bias={str(2**31 - 1): 100}), {400}),
        "seed": (lambda: post(seed=draw.choice([2**63, -2**53, 2**64 - 1])), {200, 429}),
        "temperature": (lambda: post(temperature=draw.choice([-1, 1e300, 2.0001])), {400}),
        "small temperature": (lambda: post(temperature=1e-40), {200, 429}),
        "a million prompts": (lambda: post(prompt=["a"] * 1_000_000), {400, 413}),
        "no tokens": (lambda: post(prompt=[10**9, -1]), {400}),
        "beyond the context": (lambda: post(prompt="a b " * 50_000), {400}),
        "invalid regular expression": (lambda: post(response_format={"type": "regex", "regex": "(a+)+b"}), {400}),
        "remote image": (lambda: server.post(CHAT, messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]}])[0], {400}),
        "parentheses": (lambda: post(grammar="(" * 60_000), {400}),
    }
    name = draw.choice(sorted(kinds))
    run, right = kinds[name]
    return name, run(), right


# --- the load


def percentile(values, part):
    values = sorted(values)
    position = part * (len(values) - 1)
    low = math.floor(position)
    return values[low] + (position - low) * (values[min(low + 1, len(values) - 1)] - values[low])


class Load:
    def __init__(self, server, options):
        self.server, self.options = server, options
        self.asked = friendly(server, options.distinct)
        self.wrong, self.kinds, self.busy = [], {}, 0
        self.first, self.between, self.lock = [], [], threading.Lock()

    def alone(self):
        self.wanted = []
        for path, fields in self.asked:
            status, answer = self.server.post(path, **fields)
            assert status == 200, (path, fields, answer)
            self.wanted.append(text_of(path, answer))

    def friendly(self, i, streamed):
        path, fields = self.asked[i]
        while True:
            if streamed:
                answer = Streamed(self.server, path, fields)
                status = answer.status
            else:
                status, answer = self.server.post(path, **fields)
            if status != 429:
                break
            with self.lock:
                self.busy += 1
            time.sleep(0.1)
        if status != 200:
            return self.wrong.append((path, fields, status, answer))
        got = answer.outputs if streamed else text_of(path, answer)
        wanted = self.wanted[i]
        if streamed and path == COMPLETIONS:
            wanted = [text for text, _ in wanted]
        with self.lock:
            if got != wanted:
                self.wrong.append((path, fields, got, wanted))
            if streamed and answer.first is not None:
                self.first.append(answer.first)
                self.between += answer.between

    def one(self, i):
        draw = random.Random(i)
        if draw.random() < self.options.hostile:
            name, status, right = hostile(self.server, draw)
            with self.lock:
                self.kinds[name] = self.kinds.get(name, 0) + 1
                if status not in right:
                    self.wrong.append((name, status, right))
        else:
            self.friendly(draw.randrange(len(self.asked)), streamed=draw.random() < 0.5)

    def run(self):
        """Seconds, and the process' memory in bytes after each quarter."""
        numbers, memory = queue.SimpleQueue(), []
        for i in range(self.options.requests):
            numbers.put(i)
        done = 0

        def work():
            nonlocal done
            while True:
                try:
                    i = numbers.get_nowait()
                except queue.Empty:
                    return
                try:
                    self.one(i)
                except Exception as error:  # of the client: a malformed response
                    with self.lock:
                        self.wrong.append((i, repr(error)))
                with self.lock:
                    done += 1
                    quarter = done * 4 % self.options.requests < 4
                if quarter:
                    memory.append(self.server.metric("process_resident_memory_bytes"))

        begin = time.monotonic()
        threads = [threading.Thread(target=work) for _ in range(self.options.concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - begin, memory


def drains(command):
    """SIGTERM in the middle of streams: they finish unchanged."""
    with Server(command) as server:
        prepare(server)
        fields = {"prompt": "a", "seed": 1, "max_tokens": server.context // 2, "ignore_eos": True}
        wanted = Streamed(server, COMPLETIONS, fields).outputs
        got = []
        threads = [threading.Thread(target=lambda: got.append(Streamed(server, COMPLETIONS, fields).outputs)) for _ in range(4)]
        for thread in threads:
            thread.start()
        while sum(map(server.metric, ("num_requests_running", "num_requests_waiting"))) < 4 and all(
                thread.is_alive() for thread in threads):
            pass
        server.terminate()
        for thread in threads:
            thread.join()
        assert server.process.wait(60) == 0, server.process.returncode
        assert got == [wanted] * 4, got


def leaves_nothing(command):
    """kill -9 in the middle of a stream, with TMPDIR, HOME's cache and the folder watched."""
    with tempfile.TemporaryDirectory() as folder:
        with Server(command, env=os.environ | {"TMPDIR": folder}) as server:
            prepare(server)
            with socket.create_connection(("127.0.0.1", server.port)) as peer:
                text = json.dumps({"model": server.model, "prompt": "a", "stream": True, "max_tokens": server.context // 2})
                peer.sendall(f"POST {COMPLETIONS} HTTP/1.1\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
                peer.recv(64)
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
        assert os.listdir(folder) == [], os.listdir(folder)
        with Server(command) as server:
            assert server.call("GET", "/health")[0] == 200


def prepare(server):
    server.context = server.call("GET", "/v1/models")[2]["data"][0]["max_model_len"]
    status, _ = server.post(CHAT, messages=[{"role": "user", "content": "a"}], max_tokens=1)
    server.has_chat = status == 200
    # The log is long: a full pipe would block the server.
    threading.Thread(target=lambda: [None for _ in server.log], daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--distinct", type=int, default=160, help="requests that are not hostile, each of which runs alone first")
    parser.add_argument("--hostile", type=float, default=0.2, help="part of the requests")
    parser.add_argument("--json", help="file for the results")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with Server(options.command) as server:
        prepare(server)
        load = Load(server, options)
        load.alone()
        seconds, memory = load.run()
        assert server.process.poll() is None, "the server has ended"
        server.wait_until_idle()
        counts = {name: server.metric(name) for name in
                  ("kv_pages_used", "compilations_after_ready_total", "num_preemptions_total", "prefix_cache_hits_total", "generation_tokens_total")}
        failed = [line for line in server.call("GET", "/metrics")[2].splitlines() if 'http_responses_total{code="5' in line]
        healthy = server.call("GET", "/health")[0]
    for wrong in load.wrong[:20]:
        print(f"wrong: {str(wrong)[:400]}")
    drains(options.command)
    leaves_nothing(options.command)
    results = {
        "requests": options.requests, "concurrency": options.concurrency, "seconds": round(seconds, 2),
        "hostile": sum(load.kinds.values()), "kinds of hostile": len(load.kinds), "wrong": len(load.wrong),
        "answered 429 and retried": load.busy, "answered 5xx": failed,
        "memory in MiB after each quarter": [round(m / MIB, 1) for m in memory], **counts,
        **{f"{name} ms": {f"p{p}": round(1000 * percentile(values, p / 100), 2) for p in (50, 95, 99)}
           for name, values in (("TTFT", load.first), ("ITL", load.between)) if values}}
    print(json.dumps(results, indent=2))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2) + "\n")
    assert not load.wrong and not failed and healthy == 200
    assert counts["kv_pages_used"] == 0 and counts["compilations_after_ready_total"] == 0
    assert memory[-1] - memory[0] < 32 * MIB, memory
    print("ok: load")


main()
