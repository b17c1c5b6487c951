"""Draws the pictures of docs/serving.md: the page in light and dark, on a phone, and its
charts under load. Chats are answered by a stub (page_stub.py), since models that are
small enough for a test write nothing to look at; all else is the server's.
   images.py [--load SECONDS] SERVE-CHECK CHROMIUM FOLDER [-- COMMAND...]
COMMAND serves the model of the charts, by default the same as that of the chats."""

import argparse
import os
import tempfile
import threading
import time

from page_driver import Page
from page_stub import Stub
from serving import Server

ANSWER = """A KV cache keeps the **keys and values** of all earlier tokens, so that each new token needs only its own projections instead of the whole sequence again.

### What it costs

For each token the cache holds two vectors a layer:

| model | layers | KV heads | `head_dim` | per token, bf16 |
|:--|--:|--:|--:|--:|
| Llama 3.2 1B | 16 | 8 | 64 | 32 KiB |
| Llama 3.1 8B | 32 | 8 | 128 | 128 KiB |
| Mistral 7B | 32 | 8 | 128 | 128 KiB |

In code, the bytes of one sequence are:

```python
def kv_bytes(layers, kv_heads, head_dim, tokens, width=2):
    # Keys and values, hence the 2.
    return 2 * layers * kv_heads * head_dim * tokens * width

print(kv_bytes(32, 8, 128, tokens=4096) / 2**20)  # 512.0 MiB
```

Three ways to make it smaller:

1. **Grouped-query attention** shares a head of keys among several of queries.
2. **int8 pages** take half of the bytes of bf16.
3. A *prefix cache* computes a common beginning once for all requests."""

SHORT = """Yes. With `--kv int8` the pages hold 8-bit integers with a scale for each row:

```sh
tessera serve DIR --kv int8 --kv-pages 4096
```

- Memory for a page falls to little more than a half.
- The context per request does *not* change unless you raise `--max-context`.
"""

EARLIER = (("Plan a benchmark of two sampling methods", "Compare them on the same prompts and seeds."),
           ("Explain speculative decoding", "A draft is verified in one step."),
           ("Regex for ISO dates", "`\\d{4}-\\d{2}-\\d{2}`"))
SYSTEM = "You are an engineer who explains things briefly, with numbers."


def settle(page):
    page.wait('document.fonts.status === "loaded"')
    page.run("new Promise(done => setTimeout(done, 250))")


def chats(options, folder):
    answers = [answer for _, answer in EARLIER] + [ANSWER, SHORT]
    named = "llama-3.2-1b-instruct"
    models = [{"id": named, "object": "model", "max_model_len": 8192},
              {"id": "support-lora", "object": "model", "max_model_len": 8192, "parent": named, "root": "adapters/support"}]
    with Server([options.server, "--name", "fake"]) as server, Stub(server, answers, pause=0.011, models=models) as stub, Page(options.chromium, folder, stub) as page:
        page.browser.size(1280, 860)
        page.open()
        for question, _ in EARLIER:
            page.send(question)
            page.key("k", control=True)
        page.send("What does a KV cache cost, and how do I make it smaller?")
        page.run('document.querySelector("#scroll").scrollTop = 0; document.activeElement.blur()')
        settle(page)
        page.browser.picture(f"{options.folder}/page-light.png")
        # Dark, with the settings and the probabilities of tokens.
        page.click("#theme")
        page.click("#show-settings")
        page.set("#set-system", SYSTEM)
        page.set("#set-temperature", "0.7")
        page.set("#set-top_p", "0.9")
        page.set("#set-top_logprobs", "3")
        page.send("Can I halve it without a new model?")
        page.browser.point('document.querySelectorAll(".tokens span")[12]')
        settle(page)
        page.browser.picture(f"{options.folder}/page-dark.png")
        # A phone. The answer is shown as Markdown again.
        page.click("#settings .close")
        page.click("#theme")
        page.click('.message.assistant button[aria-label="Token probabilities"]', -1)
        page.browser.size(390, 844, scale=1.5, touch=True)
        page.reload()
        page.click("#show-sidebar")
        page.click("#chats .title")
        settle(page)
        page.browser.picture(f"{options.folder}/page-phone.png")


def load(server, seconds, streams):
    """So many requests at a time, then half of them, then all again."""
    end = time.monotonic() + seconds

    def ask(i):
        k = 0
        while (now := time.monotonic()) < end:
            if i % 2 and 0.45 < (end - now) / seconds < 0.65:
                time.sleep(0.2)
                continue
            k += 1
            prompt = f"The {i % 4}th report of the week says. " * (2 + (7 * i + 3 * k) % 5)
            server.post("/v1/completions", prompt=prompt, max_tokens=24 + (29 * i + 17 * k) % 72, ignore_eos=True, seed=i)

    threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(streams)]
    for i, thread in enumerate(threads):
        thread.start()
        time.sleep(min(0.4, seconds / 60))
    return threads


def charts(options, folder):
    with Server(options.command or [options.server, "--slow", "12000", "--slow-read", "6000"]) as server, Page(options.chromium, folder, server) as page:
        threading.Thread(target=server.log.read, daemon=True).start()
        page.browser.size(1280, 860)
        page.open()
        page.click("#show-metrics")
        page.click("#widen")
        page.run("document.activeElement.blur()")
        page.run("new Promise(done => setTimeout(done, 2500))")
        threads = load(server, options.load, 12)
        page.run(f"new Promise(done => setTimeout(done, {1000 * max(options.load - 8, 2)}))")
        settle(page)
        page.browser.picture(f"{options.folder}/page-charts.png")
        for thread in threads:
            thread.join()
        page.check_quiet()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("chromium")
    parser.add_argument("folder")
    parser.add_argument("--load", type=float, default=66, help="seconds of load")
    parser.add_argument("--only")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    for draw in (chats, charts):
        if options.only in (None, draw.__name__):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                draw(options, folder)
    print("ok: pictures")


main()
