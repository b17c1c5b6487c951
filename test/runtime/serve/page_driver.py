"""The page at `/` in a browser, driven as a person does: by keys and clicks."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support"))
from browser import Browser

IDLE = 'document.querySelector("#stop").hidden && !document.querySelector(".message.busy")'


class Page:
    def __init__(self, chromium, folder, server):
        self.server, self.browser = server, Browser(chromium, folder)
        self.run, self.wait, self.key = self.browser.run, self.browser.wait, self.browser.key
        self.browser.prefer(color_scheme="light", reduced_motion="reduce")
        self.browser.size(1280, 800)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.close()

    def open(self, user=""):
        self.browser.call("Page.navigate", url=f"http://{user}127.0.0.1:{self.server.port}/")
        self.wait('document.documentElement?.dataset.ready === ""')

    def reload(self):
        self.browser.call("Page.reload")
        self.wait('document.readyState === "complete" && document.documentElement?.dataset.ready === ""')

    def click(self, selector, at=0):
        self.browser.click(f"[...document.querySelectorAll({json.dumps(selector)})].at({at})")

    def of_chat(self, label, at=0):
        """Clicks a button of a chat in the list, which has them under the pointer."""
        self.browser.point(f'document.querySelectorAll("#chats li")[{at}]')
        self.click(f'#chats li:nth-child({at + 1}) button[aria-label="{label}"]')

    def set(self, selector, value):
        self.run(f"(input => {{ input.value = {json.dumps(value)}; input.dispatchEvent(new Event('input')); "
                 f"input.dispatchEvent(new Event('change')); }})(document.querySelector({json.dumps(selector)}))")

    def send(self, text, ends=True):
        self.run('document.querySelector("#text").focus()')
        self.browser.type(text)
        self.key("Enter")
        if ends:
            self.wait(IDLE)

    def texts(self, selector):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.textContent)")

    def count(self, selector):
        return self.run(f"document.querySelectorAll({json.dumps(selector)}).length")

    def chats(self):
        """As they are stored."""
        return self.run('Object.entries(localStorage).filter(([key]) => key.startsWith("tessera.chat.")).map(([, text]) => JSON.parse(text))')

    def path(self):
        """(role, content) of the messages that are shown, as they are stored."""
        shown = self.run("location.hash.slice(1)")
        chat, = [chat for chat in self.chats() if chat["id"] == shown]
        nodes, leaf, path = chat["nodes"], chat["leaf"], []
        while leaf is not None:
            path.insert(0, (nodes[leaf]["role"], nodes[leaf]["content"]))
            leaf = nodes[leaf]["parent"]
        return path

    def fits(self):
        return self.run("document.documentElement.scrollWidth <= innerWidth && "
                        '[...document.querySelectorAll("#main, #top, #form, #scroll")].every(each => each.getBoundingClientRect().right <= innerWidth + 0.5 && '
                        "each.scrollWidth <= each.clientWidth + 1)")

    def check_quiet(self, allowed=()):
        """Nothing was asked of anyone else, and the console has no errors but those
        of statuses that a test made."""
        own = (f"http://127.0.0.1:{self.server.port}/", f"http://any:secret@127.0.0.1:{self.server.port}/", "data:", "about:", "blob:")
        assert all(url.startswith(own) for url in self.browser.asked()), self.browser.asked()
        troubles = [each for each in self.browser.troubles() if not any(text in json.dumps(each) for text in allowed)]
        assert not troubles, troubles
