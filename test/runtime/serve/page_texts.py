"""What answers look like on the page: Markdown, hostile texts, reasoning, tool calls,
errors. Models of tests write none of it, so a stub answers (page_stub.py).
   page_texts.py SERVE-CHECK CHROMIUM"""

import json
import sys
import tempfile

from page_driver import IDLE, Page
from page_stub import Stub
from serving import Server, expect

# As CommonMark and GitHub's tables have it, with headings two lower, and images as links.
CASES = [
    ("# One\n## Two ##\n#hash", "<h3>One</h3><h4>Two</h4><p>#hash</p>"),
    ("a *b* **c** ***d*** ~~e~~ `f*g*`", "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <del>e</del> <code>f*g*</code></p>"),
    ("snake_case_name 2 * 3 * 4 \\*no\\*", "<p>snake_case_name 2 * 3 * 4 *no*</p>"),
    ("**bold *both* bold**", "<p><strong>bold <em>both</em> bold</strong></p>"),
    ("`` a`b `` and `open", "<p><code>a`b</code> and `open</p>"),
    ("one\ntwo  \nthree\\\nfour", "<p>one\ntwo<br>three<br>four</p>"),
    ("- a\n- b\n  - c\n    1. d\n    2. e\n- f", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p><ol><li><p>d</p></li><li><p>e</p></li></ol></li></ul></li><li><p>f</p></li></ul>"),
    ("3. a\n4. b\n\ntext", '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol><p>text</p>'),
    ("- a\n\n  b\n\n- c", "<ul><li><p>a</p><p>b</p></li><li><p>c</p></li></ul>"),
    ("- ```\n  x\n  ```", "<ul><li>[text|x]</li></ul>"),
    ("text\n- a\n- b", "<p>text</p><ul><li><p>a</p></li><li><p>b</p></li></ul>"),
    ("- [x] done\n- [ ] open", '<ul><li><input type="checkbox" disabled="" checked="" aria-label="done"><p>done</p></li>'
                                '<li><input type="checkbox" disabled="" aria-label="open"><p>open</p></li></ul>'),
    ("| a | b |\n|:--|--:|\n| `x\\|y` | 2 |\n| 3 |", "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td><code>x|y</code></td><td>2</td></tr>"
                                                      "<tr><td>3</td><td></td></tr></tbody></table>"),
    ("a | b is no table", "<p>a | b is no table</p>"),
    ("> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"),
    ("```py\nif a < b:\n\treturn '&'\n```\nafter", "[py|if a &lt; b:\n\treturn '&amp;']<p>after</p>"),
    ("~~~\n```\n~~~", "[text|```]"),
    ("```\nnot closed\n\n# yet", "[text|not closed\n\n# yet]"),
    ("    indented\n      more\n\nthen", "[text|indented\n  more]<p>then</p>"),
    ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    ("[t](https://e.org/a_(b) \"x\") <https://e.org/> https://e.org/x_y.", "<p>{t|https://e.org/a_(b)} {https://e.org/|https://e.org/} {https://e.org/x_y|https://e.org/x_y}.</p>"),
    ("[![alt](https://e.org/i.png)](https://e.org/) ![pic](http://e.org/p)", "<p>{alt|https://e.org/} {pic|http://e.org/p}</p>"),
    ("[*a*] [b][c] [](x) [d](", "<p>[<em>a</em>] [b][c] <span></span> [d](</p>"),
    # Hostile: no markup, no script, nothing that is fetched.
    ("<img src=x onerror=alert(1)> <script>alert(2)</script>", "<p>&lt;img src=x onerror=alert(1)&gt; &lt;script&gt;alert(2)&lt;/script&gt;</p>"),
    ("[a](javascript:alert(1)) [b](data:text/html,x) [c](vbscript:x) [d](//e.org) <javascript:x>", "<p><span>a</span> <span>b</span> <span>c</span> <span>d</span> &lt;javascript:x&gt;</p>"),
    ("[a](https://e.org/\"onclick=\"x) [b](<https://e.org/ onerror=x>)", "<p>{a|https://e.org/%22onclick=%22x} {b|https://e.org/%20onerror=x}</p>"),
    ("a<br>b<BR/>c", "<p>a<br>b<br>c</p>"),
    ("&lt;b&gt; \u202e \u0000", "<p>&amp;lt;b&amp;gt; \u202e \u0000</p>"),
]

# Deep or long: they must not hang the page nor exhaust its stack.
HUGE = ["> " * 20000, "- " * 20000, "[" * 50000, "![" * 20000 + "](" * 20000, "*a" * 30000, "_a **b" * 10000, "`" + "``" * 20000,
        "".join("`" * i + " " for i in range(1, 250)), "|" * 50000 + "\n" + "|-" * 20000, "#" * 100000, "# " + "# " * 30000 + "x",
        "1. " * 20000, "(" * 50000, "[a](" * 20000, "<http://" * 20000, "\n".join("  " * i + "- x" for i in range(300)), "-\n" * 20000, "\\" * 50001]

SHAPE = """(root => {
  const copy = root.cloneNode(true);
  for (const each of copy.querySelectorAll("figure.code"))
    each.replaceWith("[" + each.querySelector("figcaption span").textContent + "|" + each.querySelector("pre").textContent + "]");
  for (const each of copy.querySelectorAll("a")) each.replaceWith("{" + each.textContent + "|" + each.href + "}");
  for (const each of copy.querySelectorAll(".table")) each.replaceWith(...each.childNodes);
  for (const each of copy.querySelectorAll("*")) each.removeAttribute("class");
  return copy.innerHTML;
})([...document.querySelectorAll(".markdown")].at(-1))"""


def texts(page, stub):
    for source, wanted in CASES:
        stub.answers.append(source)
        page.send("?")
        found = page.run(SHAPE)
        assert found == wanted, f"{source!r}: {found!r} instead of {wanted!r}"
    assert page.run('[...document.querySelectorAll(".markdown a")].every(a => a.rel.includes("noopener") && a.target === "_blank")')
    expect(page.count("#log img, #log script, #log iframe, #log style, #log [onerror], #log [onclick]"), 0)


def piecewise(page):
    """A text that grows has the blocks of the whole text."""
    wrong = page.run("""(async cases => {
      const {MarkdownView} = await import("/page/markdown.js"), made = () => document.createElement("div"), wrong = [];
      for (const source of [...cases, cases.join("\\n\\n")]) {
        const grown = made(), whole = made(), view = new MarkdownView(grown), step = Math.max(1, source.length >> 6);
        for (let end = 1; end <= source.length + step; end += step) view.update(source.slice(0, end));
        new MarkdownView(whole).update(source);
        if (grown.innerHTML !== whole.innerHTML) wrong.push(source);
      }
      return wrong;
    })(%s)""" % json.dumps([source for source, _ in CASES]))
    expect(wrong, [])


def huge(page, stub):
    for text in HUGE:
        stub.answers.append([{"content": text}])
        page.key("k", control=True)
        page.send("?")
        # None of it is lost: signs of Markdown aside, the letters are there.
        shown = page.run('[...document.querySelectorAll(".markdown")].at(-1).textContent')
        letters = [each for each in "abx" if each in text]
        assert all(shown.count(each) >= 0.99 * text.count(each) for each in letters) or "[a](" in text, text[:20]


# Elements with text of their own whose contrast with what is under them is too low, by
# WCAG's formula: 4.5, or 3 for large text.
CONTRAST = """(() => {
  const parse = color => (color.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const lightOf = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const under = each => {
    for (; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")].filter(each => each.checkVisibility({visibilityProperty: true}) && !each.closest("svg, :disabled") &&
    [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim())).map(each => {
      const style = getComputedStyle(each), [a, b] = [lightOf(parse(style.color)), lightOf(under(each))];
      return [each.tagName + "." + each.className, each.textContent.slice(0, 20), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), parseFloat(style.fontSize) >= 24 ? 3 : 4.5];
    }).filter(([,, ratio, least]) => ratio < least);
})()"""


def contrast(page, stub):
    """Text can be read in both themes, on all of the page's surfaces."""
    text = "# h\n\n> quote `code`\n\n| a |\n|--|\n| b |\n\n[link](https://e.org)\n\n```py\ndef f(x): # note\n  return 'text' + 3\n```"
    stub.answers += [text, [{"reasoning_content": "r"}, {"content": "c"}], "a b c d e f g h i j k", (429, {"message": "full", "type": "x", "param": None, "code": "x"})]
    page.key("k", control=True)
    page.send("?")
    page.send("?")
    page.run('document.querySelector(".folds details").open = true')
    page.set("#set-top_logprobs", "3")
    page.send("?")
    page.send("?")
    page.set("#set-top_logprobs", "")
    page.run('document.querySelector(".tokens").focus()')
    page.key("Home")
    for theme in ("light", "dark"):
        page.browser.prefer(color_scheme=theme)
        page.wait(f'document.documentElement.dataset.theme === "{theme}"')
        for drawer in ("settings", "metrics"):
            page.run(f'document.querySelector("#show-{drawer}").click()')
            page.run("new Promise(done => setTimeout(done, 50))")
            wrong = page.run(CONTRAST)
            assert not wrong, (theme, drawer, wrong)
            page.run(f'document.querySelector("#show-{drawer}").click()')
    page.browser.prefer(color_scheme="light")


def parts(page, stub):
    """Reasoning and tool calls are folded; the answer is not."""
    call = [{"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city"'}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": ': "Oslo"}'}}]}]
    stub.answers += [[{"reasoning_content": "First "}, {"reasoning_content": "<b>."}, {"content": "So."}, *call],
                     "<think>\nHm *so*.\n</think>\n\nThe *end*."]
    page.key("k", control=True)
    page.send("?")
    expect(page.texts(".folds summary"), ["Reasoning", "Tool call weather"])
    expect(page.texts(".folds details > :not(summary)"), ["First <b>.", '{"city": "Oslo"}'])
    assert not page.run('document.querySelector(".folds details").open')
    expect(page.texts(".markdown"), ["So."])
    page.send("?")
    expect(page.texts(".folds details > :not(summary)")[-1], "Hm *so*.")
    expect(page.run('[...document.querySelectorAll(".markdown")].at(-1).innerHTML'), "<p>The <em>end</em>.</p>")


def asks(page, stub):
    """The fields of the settings, and the messages before."""
    stub.answers += ["one", "two"]
    page.key("k", control=True)
    for name, value in (("system", "Be kind."), ("temperature", "0.5"), ("top_p", "0.9"), ("top_k", "4"), ("min_p", "0.1"), ("max_tokens", "7"),
                        ("seed", "3"), ("repetition_penalty", "1.1"), ("presence_penalty", "-1"), ("frequency_penalty", "0.2"), ("stop", "x\ny")):
        page.set("#set-" + name, value)
    page.send("a")
    page.set("#set-seed", "")
    page.send("b")
    common = {"model": "fake", "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1,
              "max_completion_tokens": 7, "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 0.2, "stop": ["x", "y"]}
    system, a, one, b = [{"role": role, "content": content} for role, content in
                         (("system", "Be kind."), ("user", "a"), ("assistant", "one"), ("user", "b"))]
    expect(stub.bodies[-2:], [{**common, "seed": 3, "messages": [system, a]}, {**common, "messages": [system, a, one, b]}])
    page.run('[...document.querySelectorAll("#fields button")].at(-1).click()')


def errors(page, stub):
    """One line, with what to do; the server's text is text."""
    def of(code, message, param=None):
        return {"message": message, "type": "x", "param": param, "code": code}
    cases = [((429, of("queue_full", "the <b>queue</b> is full")), "The <b>queue</b> is full. Try again in 1 s."),
             ((401, of("invalid_api_key", "an API key is required")), "Reload the page and enter the API key as the password."),
             ((404, of("model_not_found", "unknown model", "model")), "Choose another model at the top."),
             ((400, of("x", "temperature must be at most 2", "temperature")), "Change it in the settings."),
             ((503, of("shutting_down", "the server is shutting down")), "Try again when the server is back.")]
    for answer, wanted in cases:
        stub.answers.append(answer)
        page.key("k", control=True)
        page.send("?")
        line, = page.texts(".error span")
        assert line.endswith(wanted), line
    stub.answers.append("better")
    page.click(".error button")
    page.wait(IDLE)
    expect((page.count(".error"), page.texts(".markdown")), (0, ["better"]))


def chooses(page, stub):
    """Models and adapters, also those that come later; the chat keeps its own."""
    one = {"id": "fake", "object": "model", "max_model_len": 1024}
    stub.models = [one, {**one, "id": "legal", "parent": "fake", "root": "adapters/legal"}]
    page.reload()
    expect(page.run('[...document.querySelectorAll("#model optgroup")].map(group => [group.label, group.textContent])'),
           [["Model", "fake"], ["Adapters", "legal"]])
    page.key("k", control=True)
    page.set("#model", "legal")
    stub.answers.append("as a lawyer")
    page.send("?")
    expect((stub.bodies[-1]["model"], page.texts(".by")), ("legal", ["legal"]))
    page.set("#model", "fake")
    page.click("#chats .title", 0)
    expect(page.run('document.querySelector("#model").value'), "legal")


def main():
    with Server([sys.argv[1]]) as server, Stub(server, []) as stub, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with Page(sys.argv[2], folder, stub) as page:
            page.open()
            texts(page, stub)
            piecewise(page)
            for check in (huge, contrast, parts, asks, errors, chooses):
                check(page, stub)
                print("ok:", check.__name__)
            page.check_quiet(allowed=["status of 4", "status of 503"])


main()
