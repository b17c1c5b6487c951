"""Report pages in a real browser: sections, keyboard, dark mode, narrow windows, and
pictures of them.
   pages.py CHROMIUM PAGE.html [--sections a,b] [--paint MS]
       [--pictures FOLDER --name NAME]        all sections, light, dark and narrow
       [--picture FILE.png --show IDS]        these sections one below the other, at most --height"""

import argparse
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support"))
from browser import Browser

# Labels of one picture whose boxes meet.
OVERLAPS = """[...document.querySelectorAll("svg")].flatMap(svg => {
  const boxes = [...svg.querySelectorAll("text")].filter(text => !text.closest(".map")).map(text => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) => p.left + 1 < q.right && q.left + 1 < p.right &&
    p.top + 2 < q.bottom && q.top + 2 < p.bottom && !(svg.getAttribute("aria-label") === "roofline of the kernels" &&
    (a.startsWith("memory ") || b.startsWith("memory ")))).map(([b]) => a + " / " + b));
})"""


def show_all(browser):
    """Scrolls to each section, so that it is made."""
    browser.run("""(async () => {
      for (const body of document.querySelectorAll("main > section")) {
        body.scrollIntoView();
        for (let i = 0; i < 200 && !body.dataset.ready; ++i) await new Promise(done => setTimeout(done, 20));
      }
      await new Promise(done => setTimeout(done, 200));
      scrollTo(0, 0);
    })()""")
    browser.wait('[...document.querySelectorAll("main > section")].every(body => body.dataset.ready)')
    browser.run("document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))")


def check_keyboard(browser):
    """Tab reaches the sections' pictures with a visible focus; arrows change what they say."""
    browser.run("document.activeElement.blur(); scrollTo(0, 0)")
    seen, widths = set(), set()
    for _ in range(40):
        browser.key("Tab")
        if browser.run("document.activeElement === document.body"):
            break  # after the last one
        name, style = browser.run('[document.activeElement.tagName + ":" + (document.activeElement.textContent || '
                                  'document.activeElement.ariaLabel || "").slice(0, 20), getComputedStyle(document.activeElement).outlineStyle]')
        seen.add(name)
        widths.add(style)
    assert len(seen) > 5, seen
    assert widths == {"solid"}, widths
    for kind in ("svg[tabindex]:not(.map svg)", "canvas[tabindex]"):
        count = browser.run(f"document.querySelectorAll({json.dumps(kind)}).length")
        for i in range(count):
            node = f"document.querySelectorAll({json.dumps(kind)})[{i}]"
            browser.run(f"{node}.focus()")
            said = f"{node}.parentElement.parentElement.querySelector('.status')?.textContent"
            first = browser.run(said)
            assert first, (kind, i)
            browser.key("End")
            assert browser.run(said), (kind, i)


def check_memory(browser):
    """The peak that the page adds up is the one that the compiler's side found."""
    wrong = browser.run("""DATA.programs.flatMap(program => program.shares.filter(share => share.memory.known).map(share => {
      const sums = bytesByUse(share.memory, share.steps.count);
      const live = Array.from({ length: share.steps.count }, (_, i) => sums.reduce((sum, use) => sum + use[i], 0));
      return Math.max(...live) === share.memory.peak.bytes && live[share.memory.peak.step] === share.memory.peak.bytes &&
        share.memory.peak.bytes <= share.memory.arena ? null : program.name;
    })).filter(Boolean)""")
    assert not wrong, wrong


def check_ir(browser):
    """A difference, applied to the phase before, is the phase."""
    wrong = browser.run("""(async () => {
      const wrong = [];
      for (const phase of DATA.ir || []) {
        if (phase.before === undefined || !phase.text) continue;
        const old = await linesOf(DATA.ir[phase.before]), now = await linesOf(phase);
        if (now.length !== phase.lines) wrong.push(phase.file);
        const plain = line => line.replace(/%[\\w#:]+/g, "%");
        let a = 0, b = 0;
        for (let i = 0; i < phase.diff.length; i += 3) {
          for (let k = 0; k < phase.diff[i]; ++k) if (plain(old[a++]) !== plain(now[b++])) wrong.push(phase.file + " line " + b);
          a += phase.diff[i + 1];
          b += phase.diff[i + 2];
        }
        if (a !== old.length || b !== now.length) wrong.push(phase.file + " ends");
      }
      return wrong.slice(0, 5);
    })()""")
    assert not wrong, wrong
    rows = browser.run('document.querySelectorAll(".lines .row").length')
    assert rows < 200, rows


def check_network(browser):
    asked = browser.asked()
    assert all(url.startswith(("file:", "data:", "about:")) for url in asked), asked
    assert not browser.troubles(), browser.troubles()


def picture(browser, path, node=None, most=None):
    """A PNG of the page's top, or of an element."""
    box = browser.run("(r => ({x: 0, y: r.top + scrollY - 8, width: innerWidth, height: r.height + 16}))"
                      f"(document.querySelector({json.dumps(node)}).getBoundingClientRect())") if node else None
    if box and most:
        box["height"] = min(box["height"], most)
    options = {"clip": {**box, "scale": 1}, "captureBeyondViewport": True} if box else {}
    browser.picture(path, **options)


def pictures(browser, options):
    folder, name = options.pictures, options.name
    os.makedirs(folder, exist_ok=True)
    for shown, width in (("light", 1180), ("dark", 1180), ("narrow", 420)):
        browser.prefer(color_scheme="dark" if shown == "dark" else "light")
        browser.size(width)
        show_all(browser)
        for section in browser.run('[...document.querySelectorAll("main > section")].map(section => section.id)'):
            picture(browser, f"{folder}/{name}-{shown}-{section}.png", "#" + section, 1500)
        picture(browser, f"{folder}/{name}-{shown}.png")


def one_picture(browser, options):
    browser.prefer(color_scheme="dark" if options.dark else "light")
    browser.size(1000)
    shown = options.show.split(",")
    browser.run(f"document.activeElement.blur(); for (const section of document.querySelectorAll('main > section')) "
                f"section.hidden = !{json.dumps(shown)}.includes(section.id)")
    browser.run("new Promise(done => setTimeout(done, 300))")
    picture(browser, options.picture, "main", options.height)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chromium")
    parser.add_argument("page")
    parser.add_argument("--sections", default="")
    parser.add_argument("--pictures")
    parser.add_argument("--name", default="page")
    parser.add_argument("--picture")
    parser.add_argument("--show", default="")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--height", type=int, default=1000)
    parser.add_argument("--paint", type=float, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(options.chromium, folder)
        try:
            browser.prefer(color_scheme="light")
            browser.size(1180)
            browser.call("Page.navigate", url="file://" + os.path.abspath(options.page))
            browser.wait('performance.getEntriesByName("report-ready").length === 1')
            # Its entry comes after the one of "first-paint".
            browser.wait('performance.getEntriesByName("first-contentful-paint").length > 0')
            paint = browser.run('performance.getEntriesByName("first-contentful-paint")[0].startTime')
            if options.paint:
                assert paint <= options.paint, f"first paint after {paint} ms"
            show_all(browser)
            found = browser.run('[...document.querySelectorAll("main > section")].map(section => section.id)')
            missing = set(filter(None, options.sections.split(","))) - set(found)
            assert not missing, (missing, found)
            for width in (1180, 420):
                browser.size(width)
                show_all(browser)
                assert browser.run("document.documentElement.scrollWidth <= innerWidth"), f"too wide at {width}"
                overlaps = browser.run(OVERLAPS)
                assert not overlaps, (width, overlaps[:5])
            assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            browser.prefer(color_scheme="dark")
            assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
            assert "NaN" not in browser.run("document.body.innerText") and "undefined" not in browser.run("document.body.innerText")
            browser.prefer(color_scheme="light")
            browser.size(1180)
            show_all(browser)
            check_keyboard(browser)
            if browser.run('DATA.kind === "program"'):
                check_memory(browser)
                if browser.run("!!DATA.ir"):
                    check_ir(browser)
            if options.picture:
                one_picture(browser, options)
            if options.pictures:
                pictures(browser, options)
        finally:
            browser.close()
        check_network(browser)
    print(f"ok: {','.join(found)}; first paint after {paint:.0f} ms, {os.path.getsize(options.page)} bytes")


main()
