"""The page at `/` in a real browser: a chat is streamed, stopped and cleared, metrics
live, nothing is asked of anyone else. Chromium is driven through its pipe.
   page.py SERVE-CHECK CHROMIUM"""

import json
import os
import subprocess
import sys
import tempfile
import time

from serving import Server


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

    def wait(self, script):
        for _ in range(300):
            if self.run(script):
                return
            time.sleep(0.05)
        raise SystemExit(f"never true: {script}; the page: {self.run('document.body.innerText')}")


def lines(browser, kind):
    return browser.run(f'[...document.querySelectorAll("#log .{kind}")].map(line => line.textContent)')


def send(browser, text):
    browser.run(f'at("text").value = {json.dumps(text)}; at("form").requestSubmit()')


def check_asked(browser, server):
    """Nobody else, and no script failed."""
    asked = {event["params"]["request"]["url"] for event in browser.events if event.get("method") == "Network.requestWillBeSent"}
    for url in asked:
        assert url.startswith((f"http://127.0.0.1:{server.port}/", "data:", "about:")), asked
    troubles = [event for event in browser.events if event.get("method") == "Runtime.exceptionThrown"]
    assert not troubles, troubles


def embeds(folder):
    """An encoder's page compares lines."""
    with Server([sys.argv[1], "--embeds", "1"]) as server:
        browser = Browser(sys.argv[2], folder)
        try:
            browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
            browser.wait('typeof model !== "undefined" && model === "fake"')
            assert browser.run('at("mode").hidden && at("stop").hidden')
            send(browser, "ab\n\nabc\n<b>")
            browser.wait('running === null && at("log").children.length === 3')
            data = server.post("/v1/embeddings", input=["ab", "abc", "<b>"])[1]["data"]
            (x, y), *rest = [each["embedding"] for each in data]
            for shown, (u, v), text in zip(lines(browser, "assistant")[1:], rest, ("abc", "<b>")):
                alike = (x * u + y * v) / ((x * x + y * y) * (u * u + v * v)) ** 0.5
                assert shown == f"{alike:.3f}  {text}", (shown, alike)
            send(browser, "b" * 65)
            browser.wait('document.querySelectorAll("#log .error").length === 1')
            assert "shorten it" in lines(browser, "error")[0]
            browser.wait('at("metrics").innerText.includes("tokens read")')
            assert "NaN" not in browser.run('at("metrics").innerText') and "undefined" not in browser.run('at("metrics").innerText')
        finally:
            browser.process.kill()
            browser.process.wait()
        check_asked(browser, server)
    print("ok: page of an encoder")


def main():
    with Server([sys.argv[1], "--slow", "2000"]) as server, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(sys.argv[2], folder)
        try:
            browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
            browser.wait('typeof model !== "undefined" && model === "fake"')
            browser.run('at("most").value = 40; at("temperature").value = 0')
            send(browser, "hello")
            browser.wait('running === null && messages.length === 2')
            chat = server.post("/v1/chat/completions", messages=[{"role": "user", "content": "hello"}],
                               temperature=0, max_tokens=40)[1]
            answer = chat["choices"][0]["message"]["content"]
            # HTML knows one kind of line end in a text node's source only; texts are set as they are.
            assert lines(browser, "assistant") == [answer], (lines(browser, "assistant"), answer)
            assert lines(browser, "user") == ["hello"]
            # It comes in pieces: a long answer is seen before its end, and Stop keeps what there is.
            browser.run('at("most").value = 800')
            send(browser, "more <b>bold</b>")
            browser.wait('running !== null && at("log").lastChild.textContent.length > 5')
            browser.run('at("stop").click()')
            browser.wait("running === null")
            assert 5 < len(lines(browser, "assistant")[1]) < 790
            assert lines(browser, "user")[1] == "more <b>bold</b>" and not browser.run('document.querySelector("#log b") !== null')
            browser.run('at("mode").value = "text"; at("most").value = 5000')
            send(browser, "too much")
            browser.wait('document.querySelectorAll("#log .error").length === 1')
            assert "context" in lines(browser, "error")[0]
            browser.wait('at("metrics").innerText.includes("tokens per second")')
            assert "NaN" not in browser.run('at("metrics").innerText') and "undefined" not in browser.run('at("metrics").innerText')
            browser.run('at("clear").click()')
            assert browser.run('at("log").children.length') == 0
            server.wait_until_idle()
        finally:
            browser.process.kill()
            browser.process.wait()
        check_asked(browser, server)
    print("ok: page")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        embeds(folder)


main()
