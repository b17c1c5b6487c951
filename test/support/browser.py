"""Chromium, driven through its pipe, for tests of pages."""

import base64
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
        self.held, self.count, self.events, self.session, self.preferred = b"", 0, [], None, {}
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

    def size(self, width, height=900, scale=1, touch=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)

    def prefer(self, **features):
        """prefer(color_scheme="dark"): media features of the user; earlier ones remain."""
        self.preferred |= features
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-" + name.replace("_", "-"), "value": value} for name, value in self.preferred.items()])

    def key(self, name, control=False, shift=False):
        """Presses and releases it."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 and not control else "")
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code="Key" + name.upper() if name.isalpha() and len(name) == 1 else name,
                      windowsVirtualKeyCode=codes.get(name, ord(name[0].upper())), modifiers=2 * control + 8 * shift, **extra)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def point(self, script):
        """Moves the pointer to the middle of the element that the script returns."""
        x, y = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])(({script}).getBoundingClientRect())")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, script):
        x, y = self.point(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path, **options):
        data = self.call("Page.captureScreenshot", format="png", **options)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def troubles(self):
        """Exceptions, and lines of the console that are errors or warnings."""
        return [event for event in self.events
                if event.get("method") == "Runtime.exceptionThrown"
                or (event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error")
                or (event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning", "assert"))]

    def asked(self):
        """Addresses that were requested."""
        return {event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"}

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
