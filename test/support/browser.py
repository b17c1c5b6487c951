"""Chromium, driven through its pipe, for tests of pages."""

import json
import os
import subprocess
import time


class Browser:
    """One page over the DevTools protocol: JSON messages that end with a zero byte."""

    def __init__(self, program, folder):
        self.read, to_us = os.pipe()
        to_browser, self.write = os.pipe()

        def place():
            # Above the two numbers first, which the pipes may have themselves.
            here, there = os.dup2(to_browser, 30), os.dup2(to_us, 31)
            os.dup2(here, 3)
            os.dup2(there, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_us)
        os.close(to_browser)
        self.held, self.count, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.held:
            part = os.read(self.read, 65536)
            if not part:
                raise SystemExit("the browser has ended")
            self.held += part
        text, self.held = self.held.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.count += 1
        asked = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            asked["sessionId"] = self.session
        os.write(self.write, json.dumps(asked).encode() + b"\0")
        while True:
            got = self.message()
            if got.get("id") == self.count:
                assert "error" not in got, got
                return got["result"]
            self.events.append(got)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)

    def wait(self, script):
        for _ in range(300):
            if self.run(script):
                return
            time.sleep(0.05)
        raise SystemExit(f"never true: {script}; the page: {self.run('document.body.innerText')[:2000]}")
