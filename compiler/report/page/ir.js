// The IR of each phase, and what the phase changed. Texts are decompressed when
// they are looked at; only lines in sight are in the document.
const lineHeight = 18, contextLines = 3, longestLine = 4000;

async function linesOf(phase) {
  if (!phase.loaded) phase.loaded = (async () => {
    const bytes = Uint8Array.from(atob(phase.text), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return (await new Response(stream).text()).split("\n").slice(0, -1);
  })();
  return phase.loaded;
}

/// Rows of the whole text, or of its difference: [kind, text], where unchanged
/// parts are one row.
async function phaseRows(phase, mode) {
  const now = await linesOf(phase);
  if (mode === "text" || phase.before === undefined) return now.map(line => ["", line]);
  const old = await linesOf(DATA.ir[phase.before]), rows = [];
  let a = 0, b = 0;
  for (let i = 0; i < phase.diff.length; i += 3) {
    const [keep, remove, add] = phase.diff.slice(i, i + 3), isFirst = i === 0, isLast = remove + add === 0;
    const head = isFirst ? 0 : Math.min(keep, contextLines), tail = isLast ? 0 : Math.min(keep - head, contextLines);
    for (let k = 0; k < head; ++k) rows.push(["", now[b + k]]);
    if (keep > head + tail) rows.push(["fold", `… ${keep - head - tail} equal lines`]);
    for (let k = keep - tail; k < keep; ++k) rows.push(["", now[b + k]]);
    a += keep;
    b += keep;
    for (let k = 0; k < remove; ++k) rows.push(["removed", old[a++]]);
    for (let k = 0; k < add; ++k) rows.push(["added", now[b++]]);
  }
  return rows;
}

function lineView() {
  const part = el("div", { class: "part" }), whole = el("div", { class: "whole" }, part);
  const node = el("div", { class: "lines", tabindex: 0, role: "region", "aria-label": "intermediate representation" }, whole);
  let rows = [], shown = "";
  const signs = { added: "+ ", removed: "− ", fold: "  ", "": "  " };
  function draw() {
    const first = Math.max(0, Math.floor(node.scrollTop / lineHeight) - 20);
    const last = Math.min(rows.length, first + Math.ceil(node.clientHeight / lineHeight) + 40);
    const range = first + "-" + last;
    if (range === shown) return;
    shown = range;
    part.style.top = first * lineHeight + "px";
    part.replaceChildren(el("pre", {}, rows.slice(first, last).map(([kind, text]) => el("span", { class: "row " + kind },
      signs[kind] + (text.length > longestLine ? text.slice(0, longestLine) + " …" : text)))));
  }
  node.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(() => { shown = ""; draw(); }).observe(node);
  return { node, set(list) {
    rows = list;
    shown = "";
    whole.style.height = rows.length * lineHeight + 16 + "px";
    node.scrollTop = 0;
    draw();
  }, find(word, from) {
    for (let i = 0; i < rows.length; ++i) {
      const at = (from + 1 + i) % rows.length;
      if (rows[at][1].includes(word)) { node.scrollTop = Math.max(0, (at - 4) * lineHeight); return at; }
    }
    return -1;
  } };
}

function showIr(body, phases) {
  const view = lineView(), status = el("p", { class: "status", "aria-live": "polite" });
  let phase = phases[0], mode = "diff", found = -1, wish = 0;
  const changes = one => one.diff ? one.diff.reduce((sum, n, i) => sum + (i % 3 ? n : 0), 0) : 0;
  async function show() {
    const own = ++wish;
    found = -1;
    if (!phase.text || (phase.before !== undefined && mode === "diff" && !phases[phase.before].text)) {
      view.set([["fold", "This dump is too long for the page; open " + phase.file + "."]]);
      return;
    }
    status.textContent = "…";
    const rows = await phaseRows(phase, mode);
    if (own !== wish) return;
    view.set(rows);
    const sum = k => phase.diff.reduce((s, n, i) => s + (i % 3 === k ? n : 0), 0);
    status.textContent = `${phase.file}: ${phase.lines} lines` + (phase.before === undefined ? ", the first phase"
      : `; since ${phases[phase.before].file} ${sum(2)} lines added, ${sum(1)} removed`);
  }
  const modes = [["diff", "what changed"], ["text", "whole text"]].map(([name, label]) => el("button", {
    "aria-pressed": String(name === mode), onclick: () => {
      mode = name;
      modes.forEach((button, i) => button.setAttribute("aria-pressed", String((i === 0) === (mode === "diff"))));
      show();
    } }, label));
  const word = el("input", { "aria-label": "find in the text", placeholder: "find", size: 16, onkeydown: event => {
    if (event.key !== "Enter" || !word.value) return;
    found = view.find(word.value, found);
    status.textContent = found < 0 ? `not found: ${word.value}` : `line ${found + 1} of the view`;
  } });
  body.append(phaseBars(phases, changes, index => { list.querySelector("select").selectedIndex = index; phase = phases[index]; show(); }));
  const list = choice("phase", phases.map(one => one.file), index => { phase = phases[index]; show(); });
  body.append(el("div", { class: "bar" }, list, modes, word), view.node, status);
  show();
}

/// Lines of each phase, and how many of them are new.
function phaseBars(phases, changes, choose) {
  const most = Math.max(...phases.map(phase => phase.lines));
  return el("div", { class: "stack", style: "max-width:760px;margin-bottom:12px" }, phases.map((phase, i) => {
    const added = phase.diff ? phase.diff.reduce((sum, n, k) => sum + (k % 3 === 2 ? n : 0), 0) : 0;
    return el("button", { class: "block", style: "padding:2px 10px", onclick: () => choose(i) }, el("span", {}, phase.file),
      el("div", {}, el("div", { class: "meter", style: `width:${Math.max(1, 100 * phase.lines / most)}%` },
        el("i", { style: `width:${100 * (1 - added / (phase.lines || 1))}%;background:var(--c6)` }),
        el("i", { style: `width:${100 * added / (phase.lines || 1)}%;background:var(--c2)` })),
      el("small", {}, `${phase.lines} lines` + (phase.diff ? `, ${added} new` : ""))));
  }));
}
