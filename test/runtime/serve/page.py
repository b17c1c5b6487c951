"""The page at `/` in a real browser: a chat is streamed, stopped and cleared, metrics
live, nothing is asked of anyone else. Chromium is driven through its pipe.
   page.py SERVE-CHECK CHROMIUM"""

import json
import os
import sys
import tempfile

from serving import Server

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support"))
from browser import Browser


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
            browser.close()
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
            browser.close()
        check_asked(browser, server)
    print("ok: page")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        embeds(folder)


main()
