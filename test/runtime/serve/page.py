"""The page at `/` in a real browser, driven by keys and clicks against a real server: it
sends, streams, stops, edits, asks again, keeps its history, and asks nobody else.
   page.py SERVE-CHECK CHROMIUM"""

import json
import os
import sys
import tempfile

from page_driver import IDLE, Page
from serving import Server, expect

CHECK, CHROMIUM = sys.argv[1:3]
CHATS = "/v1/chat/completions"


def sends(page):
    """An answer is that of the API, and Enter sends while Shift+Enter does not."""
    assert "fake" in page.run('document.querySelector("#welcome").innerText')
    expect(page.run("document.activeElement.id"), "text")
    page.click("#show-settings")
    page.set("#set-temperature", "0")
    page.set("#set-max_tokens", "40")
    page.key("Escape")
    page.run('document.querySelector("#text").focus()')
    page.browser.type("two")
    page.key("Enter", shift=True)
    page.browser.type("lines")
    page.key("Enter")
    page.wait(IDLE)
    asked = {"messages": [{"role": "user", "content": "two\nlines"}], "temperature": 0}
    answer = page.server.post(CHATS, max_tokens=40, **asked)[1]["choices"][0]["message"]["content"]
    expect(page.path(), [("user", "two\nlines"), ("assistant", answer)])
    expect(page.texts(".message.user .body"), ["two\nlines"])
    assert "tokens/s" in page.texts(".stats")[0]
    # The system prompt comes first.
    page.set("#set-system", "Be kind.")
    page.click('.message.assistant button[aria-label="Another answer"]')
    page.wait(IDLE)
    asked["messages"].insert(0, {"role": "system", "content": "Be kind."})
    kind = page.server.post(CHATS, max_tokens=40, **asked)[1]["choices"][0]["message"]["content"]
    expect(page.path(), [("user", "two\nlines"), ("assistant", kind)])
    expect(page.texts(".message.assistant .versions"), ["2/2"])
    page.click('button[aria-label="Previous version"]')
    expect(page.path()[1], ("assistant", answer))
    page.set("#set-system", "")


def lengthy(page, text):
    """The text with words after it, to which the model has a long answer."""
    history = [{"role": role, "content": content} for role, content in page.path()]
    for word in range(100):
        asked = [*history, {"role": "user", "content": f"{text} {word}"}]
        if page.server.post(CHATS, messages=asked, temperature=0, max_tokens=250)[1]["choices"][0]["finish_reason"] == "length":
            return f"{text} {word}"
    raise SystemExit("no long answer")


def streams_and_stops(page):
    bold = lengthy(page, "more <b>bold</b>")
    page.set("#set-max_tokens", "400")
    page.send(bold, ends=False)
    length = "[...document.querySelectorAll('.message.assistant .body')].at(-1).textContent.length"
    page.wait(f"{length} > 5")
    first = page.run(length)
    page.wait(f"{length} > {first + 5}")
    assert page.run('!document.querySelector("#stop").hidden && document.querySelector("#send").hidden')
    assert page.run('[...document.querySelectorAll(".asks")].every(each => getComputedStyle(each).visibility === "hidden")')
    page.key("Escape")
    page.wait(IDLE)
    assert 5 < len(page.path()[3][1]) < 250
    assert "stopped" in page.texts(".stats")[-1]
    expect(page.texts(".message.user .body")[1], bold)
    expect(page.count(".message b"), 0)
    page.server.wait_until_idle()
    # The button does the same.
    page.send(lengthy(page, "again"), ends=False)
    page.wait(f"{length} > 5")
    page.click("#stop")
    page.wait(IDLE)
    page.server.wait_until_idle()


def edits(page):
    """A changed message is another version; the old one and its answers remain."""
    page.set("#set-max_tokens", "30")
    before = page.path()
    page.click('.message.user button[aria-label="Edit and send again"]', 0)
    page.run('document.querySelector(".editing textarea").select()')
    page.browser.type("other words")
    page.key("Enter")
    page.wait(IDLE)
    expect(page.path()[0], ("user", "other words"))
    expect(len(page.path()), 2)
    expect(page.texts(".message.user .versions"), ["2/2"])
    page.click('.message.user button[aria-label="Previous version"]')
    expect(page.path(), before)
    page.click('.message.user button[aria-label="Edit and send again"]', 0)
    page.key("Escape")
    expect(page.count(".editing"), 0)
    expect(page.texts(".message.user .body")[0], "two\nlines")


def keeps_history(page):
    before, messages = page.texts(".message .body"), page.path()
    page.reload()
    expect(page.texts(".message .body"), before)
    expect(page.path(), messages)
    # Another chat begins, and the list has both.
    page.key("k", control=True)
    expect(page.count(".message"), 0)
    expect(page.run("document.activeElement.id"), "text")
    page.send("a second chat")
    expect(page.texts("#chats .title"), ["a second chat", "two"])
    page.run('document.querySelector("#find").focus()')
    page.browser.type("bold")
    expect(page.texts("#chats .title"), ["two"])
    page.set("#find", "")
    # Renamed, and found under its name after a reload.
    page.of_chat("Rename")
    page.browser.type("Second & last")
    page.key("Enter")
    page.reload()
    expect(page.texts("#chats .title")[0], "Second & last")


def exports_and_deletes(page, folder):
    page.browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
    page.click("#export")
    path = os.path.join(folder, "tessera-chats.json")
    page.wait("true")
    for _ in range(100):
        if os.path.exists(path):
            break
        page.run("new Promise(done => setTimeout(done, 50))")
    with open(path) as file:
        exported = json.load(file)["chats"]
    order = lambda chats: sorted(chats, key=lambda chat: chat["id"])
    expect(order(exported), order(page.chats()))
    # Cancelled, then agreed to.
    page.of_chat("Delete")
    page.key("Escape")
    expect(len(page.chats()), 2)
    page.of_chat("Delete")
    page.click('#confirm button[value="yes"]')
    page.wait('document.querySelectorAll("#chats .title").length === 1')
    page.click("#delete-all")
    page.click('#confirm button[value="yes"]')
    page.wait('document.querySelectorAll("#chats .title").length === 0')
    expect((page.chats(), page.count(".message")), ([], 0))
    # Back from the file; wrong ones among others are left out, and there is a bound.
    one = exported[0]
    many = [{**one, "id": f"many{i}", "updated": i} for i in range(260)]
    wrong = [None, 3, {}, {**one, "id": "w0", "nodes": {id: {**node, "calls": 3} for id, node in one["nodes"].items()}}, {**one, "id": "w1", "leaf": "nothing"}, {**one, "id": "w2", "nodes": {"toString": one["nodes"]}},
             {**one, "id": "w3", "nodes": {"a": {"id": "a", "parent": "b", "role": "user", "content": ""},
                                           "b": {"id": "b", "parent": "a", "role": "user", "content": ""}}, "leaf": "a"}]
    def stored(prefix):
        return f'Object.keys(localStorage).filter(key => key.startsWith("tessera.chat.{prefix}"))'

    text = dict.fromkeys(list(one["nodes"])[:1], 900_000 * "x")
    big = [{**one, "id": f"big{i}", "updated": 1000 + i, "nodes": {id: {**node, "content": text.get(id, "")} for id, node in one["nodes"].items()}}
           for i in range(6)]
    for chats, wanted in ((exported, stored("") + ".length === 2"), ([*wrong, {**one, "id": "right"}], stored("") + ".length === 3"),
                          (many, stored("") + ".length === 200"), (big, stored("big") + '.sort().join() === "' + ",".join(f"tessera.chat.big{i}" for i in range(2, 6)) + '"')):
        with open(path, "w") as file:
            json.dump({"chats": chats}, file)
        node = page.browser.call("Runtime.evaluate", expression='document.querySelector("#import-file")')["result"]["objectId"]
        page.browser.call("DOM.setFileInputFiles", files=[path], objectId=node)
        page.wait(wanted)
    assert page.run(stored("") + ".reduce((sum, key) => sum + localStorage.getItem(key).length, 0)") <= 4_000_000
    page.run("localStorage.clear()")
    page.reload()


def shows_tokens(page):
    """Tokens with their probabilities are those of the API, and add up to the answer."""
    page.set("#set-temperature", "0")
    page.set("#set-max_tokens", "40")
    page.set("#set-top_logprobs", "3")
    page.send("tokens")
    choice = page.server.post(CHATS, messages=[{"role": "user", "content": "tokens"}], temperature=0, max_tokens=40,
                              logprobs=True, top_logprobs=3)[1]["choices"][0]
    expect(page.path()[1][1], choice["message"]["content"])
    expect("".join(page.texts(".tokens span:not(.over)")), choice["message"]["content"])
    tokens = choice["logprobs"]["content"]
    expect(page.count(".tokens span"), len(tokens))
    page.run('document.querySelector(".tokens").focus()')
    page.key("Home")
    said = page.run('document.querySelector("#tip").innerText')
    assert f"{tokens[0]['logprob']:.3f}" in said, (said, tokens[0])
    expect(page.count("#tip tr") >= 3, True)
    page.key("Escape")
    assert page.run('document.querySelector("#tip").hidden')
    page.run('document.querySelector("#scroll").scrollTop = 1e6')
    seen = page.run('[...document.querySelectorAll(".tokens span")].findIndex(span => span.textContent.trim() && span.getBoundingClientRect().top > 60)')
    page.browser.point(f'document.querySelectorAll(".tokens span")[{seen}]')
    page.wait('!document.querySelector("#tip").hidden')
    assert f"{tokens[seen]['logprob']:.3f}" in page.run('document.querySelector("#tip").innerText')
    page.click('button[aria-label="Token probabilities"]')
    expect(page.count(".tokens"), 0)
    page.set("#set-top_logprobs", "")


def continues_text(page):
    page.key("k", control=True)
    page.set("#set-mode", "text")
    page.send("once ")
    one = page.server.post("/v1/completions", prompt="once ", temperature=0, max_tokens=40)[1]["choices"][0]["text"]
    page.send("upon")
    two = page.server.post("/v1/completions", prompt="once " + one + "upon", temperature=0, max_tokens=40)[1]["choices"][0]["text"]
    expect(page.texts(".message.assistant .plain"), [one, two])
    page.set("#set-mode", "")


def tells_errors(page):
    page.key("k", control=True)
    page.set("#set-max_tokens", "5000")
    page.send("too much")
    line, = page.texts(".error span")
    assert "context" in line and "settings" in line or "Start a new chat" in line, line
    page.set("#set-max_tokens", "10")
    page.click(".error button")
    page.wait(IDLE)
    expect(page.count(".error"), 0)
    expect(len(page.path()), 2)


def keyboard(page):
    page.run('document.querySelector("#theme").focus()')
    page.key("/")
    expect(page.run('[document.activeElement.id, document.querySelector("#text").value]'), ["text", ""])
    page.run("document.activeElement.blur()")
    page.key("?", shift=True)
    assert page.run('document.querySelector("#keys").open')
    page.key("Escape")
    assert page.run('!document.querySelector("#keys").open')
    # Tab reaches everything, with a name and a focus that is seen.
    seen, outlines = set(), set()
    page.run("document.activeElement.blur()")
    for _ in range(60):
        page.key("Tab")
        name, outline = page.run("(each => [each.id || each.ariaLabel || each.textContent, getComputedStyle(each).outlineStyle + getComputedStyle(each).outlineWidth])(document.activeElement)")
        if page.run("document.activeElement === document.body"):
            break
        assert page.run("(e => e.id === 'text' || e.ariaLabel || e.textContent.trim() || e.labels?.length || e.title)(document.activeElement)"), name
        seen.add(name)
        if name != "text":  # its box has the ring
            outlines.add(outline)
    assert {"text", "new", "model", "show-metrics", "show-settings", "theme"} - {"model"} <= seen, seen
    expect(outlines, {"solid2px"})


def themes(page):
    color = "getComputedStyle(document.body).backgroundColor"
    light = page.run(color)
    page.browser.prefer(color_scheme="dark")
    page.wait(f"{color} !== {json.dumps(light)}")
    page.browser.prefer(color_scheme="light")
    page.wait(f"{color} === {json.dumps(light)}")
    page.click("#theme")
    dark = page.run(color)
    assert dark != light
    page.reload()
    expect((page.run(color), page.run('document.querySelector("#theme").ariaPressed')), (dark, "true"))
    page.click("#theme")
    expect(page.run(color), light)


def narrow(page):
    for width in (390, 320):
        page.browser.size(width, 740, touch=True)
        page.reload()
        assert page.fits(), width
        assert page.run('getComputedStyle(document.querySelector("#sidebar")).display === "none"')
        page.click("#show-sidebar")
        page.click("#chats .title", 0)
        assert page.fits() and page.count(".message") > 0
        assert page.run('getComputedStyle(document.querySelector("#sidebar")).display === "none"')
        for name in ("settings", "metrics"):
            page.click(f"#show-{name}")
            assert page.run(f'(r => r.left >= 0 && r.right <= innerWidth)(document.querySelector("#{name}").getBoundingClientRect())')
            page.click(f"#{name} .close")
    page.browser.size(1280, 800)
    page.reload()


def metrics(page):
    page.click("#show-metrics")
    page.send("count me")
    page.wait('/generated [1-9]/.test(document.querySelector(".plot").getAttribute("aria-label")) || '
              '+document.querySelector(".charts").innerText.match(/generated\\s+(\\S+)/)?.[1] > 0')
    page.wait('/median \\d.* ms, p95/.test(document.querySelectorAll(".plot")[2].getAttribute("aria-label"))')
    page.run('document.querySelectorAll(".plot")[0].focus()')
    page.key("Home")
    assert page.run('document.querySelector(".chart .when").textContent').endswith("s ago")
    page.run('document.querySelector(".as-table").open = true')
    page.wait('document.querySelectorAll(".as-table tbody tr").length === 13')
    text = page.run('document.querySelector("#panel").innerText')
    assert "NaN" not in text and "undefined" not in text and "Infinity" not in text, text
    page.click("#widen")
    assert page.fits()
    page.key("Escape")
    assert page.run('document.querySelector("#metrics").hidden')


def quantiles(page):
    """As Prometheus has them, on a histogram of which they are known."""
    found = page.run("""(async () => {
      const {parseMetrics, quantileOf} = await import("/page/metrics.js");
      const text = counts => counts.map(([bound, count]) => `tessera:x_seconds_bucket{le="${bound}"} ${count}`).join("\\n");
      const of = counts => parseMetrics(text(counts)).buckets.x_seconds;
      const now = of([["0.1", 10], ["0.2", 30], ["0.4", 40], ["+Inf", 44]]), before = of([["0.1", 10], ["0.2", 10], ["0.4", 10], ["+Inf", 10]]);
      return [quantileOf(now, null, 0.25), quantileOf(now, before, 0.5), quantileOf(now, before, 0.99), quantileOf(before, before, 0.5)];
    })()""")
    expect([value if value is None else round(value, 6) for value in found], [0.105, 0.185, 0.4, None])


def is_closed(page):
    """Text cannot become markup, not even by a mistake of ours, and no script of a
    text would run."""
    assert page.run("(() => { try { document.createElement('p').innerHTML = '<b>x</b>'; return false; } catch (error) { return error instanceof TypeError; } })()")
    page.run("""(() => {
      const script = document.createElement("script");
      try { script.text = "window.hacked = true"; document.head.append(script); } catch {}
    })()""")
    assert page.run("window.hacked === undefined")


def survives_the_server(page, server):
    server.process.kill()
    server.process.wait()
    page.send("anyone?")
    line = page.texts(".error span")[-1]
    assert "does not respond" in line and "Check that it runs" in line, line
    page.wait('document.querySelector("#state").textContent.includes("does not respond")')


def with_key(folder):
    """The browser's credentials go with everything that the page asks."""
    with Server([CHECK, "--key", "secret"]) as server, Page(CHROMIUM, folder, server) as page:
        page.open("any:secret@")
        page.set("#set-max_tokens", "5")
        page.send("hello")
        expect((page.count(".message.assistant"), page.count(".error")), (1, 0))
        page.check_quiet()


def embeds(folder):
    """An encoder's page compares lines."""
    with Server([CHECK, "--embeds", "1"]) as server, Page(CHROMIUM, folder, server) as page:
        page.open()
        assert page.run('getComputedStyle(document.querySelector("#sidebar")).display === "none"')
        page.run('document.querySelector("#text").focus()')
        page.browser.type("ab\n\nabc\n<b>")
        page.key("Enter", control=True)
        page.wait('document.querySelectorAll(".alike tbody tr").length === 3')
        data = server.post("/v1/embeddings", input=["ab", "abc", "<b>"])[1]["data"]
        (x, y), *rest = [each["embedding"] for each in data]
        wanted = [["1.000", "ab"]] + [[f"{(x * u + y * v) / ((x * x + y * y) * (u * u + v * v)) ** 0.5:.3f}", text]
                                      for (u, v), text in zip(rest, ("abc", "<b>"))]
        expect(page.run('[...document.querySelectorAll(".alike tbody tr")].map(row => [row.cells[0].textContent, row.cells[2].textContent])'), wanted)
        page.browser.type("b" * 65)
        page.key("Enter", control=True)
        page.wait('document.querySelectorAll(".error").length === 1')
        assert "shorten it" in page.texts(".error")[0]
        page.click("#show-metrics")
        page.wait('document.querySelector("#panel").innerText.includes("tokens read")')
        assert "NaN" not in page.run('document.querySelector("#panel").innerText')
        page.browser.size(390, 740, touch=True)
        assert page.fits()
        page.check_quiet(allowed=["status of 400"])


def ranks(folder):
    """A reranker's page orders lines by the first."""
    with Server([CHECK, "--ranks", "1"]) as server, Page(CHROMIUM, folder, server) as page:
        page.open()
        page.run('document.querySelector("#text").focus()')
        page.browser.type("abcd")
        page.key("Enter", control=True)
        page.wait('document.querySelectorAll(".error").length === 1')
        assert "a document" in page.texts(".error")[0]
        page.run('document.querySelector("#text").focus()')
        page.browser.type("\nab\n<b>xyz\nabcd")
        page.key("Enter", control=True)
        page.wait('document.querySelectorAll(".alike tbody tr").length === 3')
        expect(page.run('[...document.querySelectorAll(".alike tbody tr")].map(row => [row.cells[0].textContent, row.cells[2].textContent])'),
               [["0.600", "<b>xyz"], ["0.500", "abcd"], ["0.333", "ab"]])
        page.check_quiet()


def main():
    with Server([CHECK, "--slow", "4000"]) as server, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with Page(CHROMIUM, folder, server) as page:
            page.open()
            for check in (sends, streams_and_stops, edits, keeps_history, lambda page: exports_and_deletes(page, folder), shows_tokens,
                          continues_text, tells_errors, keyboard, themes, narrow, metrics, quantiles):
                check(page)
            page.check_quiet(allowed=["status of 400"])
            is_closed(page)
            survives_the_server(page, server)
    print("ok: page")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with_key(folder)
    print("ok: page with a key")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        embeds(folder)
    print("ok: page of an encoder")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        ranks(folder)
    print("ok: page of a reranker")


main()
