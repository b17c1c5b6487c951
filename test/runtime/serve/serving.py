"""What the scripts beside it share: a server of their own, and short calls."""

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time


class Server:
    """A process that says where it is ready; stopped at the end of `with`."""

    def __init__(self, command, env=None, cwd=None):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True,
                                        errors="replace", env=env, cwd=cwd)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            ready = re.search(r"ready: (\S+) on http://127\.0\.0\.1:(\d+)", line)
            if ready:
                self.model, self.port = ready[1], int(ready[2])
                break
        else:
            raise SystemExit("the server is not ready: " + "".join(self.lines))
        # Its log is not read: a pipe holds the few lines of a test.
        self.log = self.process.stderr

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def call(self, method, path, body=None, headers=None):
        """(status, headers, body), parsed if it is JSON."""
        connection = self.connection()
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        is_json = answer.getheader("Content-Type", "").startswith("application/json")
        return answer.status, answer.headers, json.loads(text) if is_json else text.decode()

    def post(self, path, **fields):
        status, _, body = self.call("POST", path, {"model": self.model, **fields})
        return status, body

    def stream(self, path, **fields):
        """The events of a stream; their data is JSON but for the last."""
        connection = self.connection()
        connection.request("POST", path, json.dumps({"model": self.model, "stream": True, **fields}))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.getheader("Content-Type") == "text/event-stream"
        events = [line[6:] for line in answer.read().decode().split("\n") if line.startswith("data: ")]
        connection.close()
        assert events[-1] == "[DONE]", events[-1]
        return [json.loads(event) for event in events[:-1]]

    def typed_stream(self, path, **fields):
        """The (name, data) of a stream whose events have names."""
        connection = self.connection()
        connection.request("POST", path, json.dumps({"model": self.model, "stream": True, **fields}))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        blocks = [b for b in answer.read().decode().split("\n\n") if b and not b.startswith(":")]
        connection.close()
        return [(name[7:], json.loads(data[6:])) for name, data in (b.split("\n") for b in blocks)]

    def raw(self, data):
        """What comes back for these bytes until the server closes; read while
        they are sent, as the server may answer and close before their end."""
        got = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as peer:
            def send():
                try:
                    peer.sendall(data)
                except OSError:
                    pass  # the server has read enough

            sender = threading.Thread(target=send)
            sender.start()
            try:
                while part := peer.recv(65536):
                    got += part
            except ConnectionError:
                pass
            sender.join()
        return got

    def metric(self, name):
        _, _, text = self.call("GET", "/metrics")
        return float(re.search(rf"^(?:tessera:)?{re.escape(name)} (\S+)$", text, re.M)[1])

    def metric_names(self):
        """Without prefix and labels."""
        return set(re.findall(r"^(?:tessera:)?(\w+)", self.call("GET", "/metrics")[2], re.M))

    def wait_until_idle(self):
        for _ in range(600):
            if self.metric("num_requests_running") + self.metric("num_requests_waiting") == 0:
                return
            time.sleep(0.05)
        raise SystemExit("requests are left over")


def expect(actual, wanted):
    assert actual == wanted, f"{actual!r} instead of {wanted!r}"


def made(answer):
    status, body = answer
    assert status == 200, body
    return body


def get(server, path, status=200, method="GET", **options):
    found, _, body = server.call(method, path, **options)
    assert found == status, (method, path, found, str(body)[:500])
    return body


def events_of(server, path):
    """The (name, data) of a stored response, as a stream of typed events."""
    connection = server.connection()
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    expect(answer.getheader("Content-Type"), "text/event-stream")
    blocks = [b for b in answer.read().decode().split("\n\n") if b and not b.startswith(":")]
    connection.close()
    return [(name[7:], json.loads(data[6:])) for name, data in (b.split("\n") for b in blocks)]
