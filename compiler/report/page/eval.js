// An evaluation: results, gates, and what the model made of the examples.
function showEval() {
  section("results", "Results", "Lines are 95 % intervals of means, from the standard error.", showResults, 300);
  if (DATA.gates.length) section("gates", "Gates", null, body => body.append(table([
    { name: "gate", word: true, value: row => row.gate },
    { name: "value", value: row => row.value, text: row => evalNumber(row.value) },
    { name: "passed", word: true, value: row => row.passed, text: row => mark(row.passed) }],
    DATA.gates, { label: "gates" }).node), 120);
  const left = DATA.samples_left_out, all = DATA.samples.length + left;
  if (DATA.samples.length) section("samples", "Samples", left ? `${left} of ${all} are left out for the size of the page; ` +
    "--samples writes all." : null, showSamples, 600);
}

function evalNumber(value) { return value === null ? "–" : number(value, 4); }
function mark(right) { return el("span", { class: right ? "good" : "bad" }, right ? "✓ yes" : "✗ no"); }

function showResults(body) {
  const columns = [{ name: "task", word: true, value: row => row.task }, { name: "kind", word: true, value: row => row.kind },
    { name: "metric", word: true, value: row => row.metric },
    { name: "value", value: row => row.value, text: row => evalNumber(row.value) },
    { name: "stderr", value: row => row.stderr, text: row => evalNumber(row.stderr) },
    { name: "0 to 1", word: true, value: row => row.value, text: interval },
    { name: "examples", value: row => row.examples }];
  const isWhole = row => row.group === null, groups = DATA.results.filter(row => !isWhole(row));
  body.append(table(columns, DATA.results.filter(isWhole), { label: "results" }).node);
  const group = { name: "group", word: true, value: row => row.group };
  if (groups.length) body.append(el("h3", {}, "By group"),
    table([columns[0], group, ...columns.slice(2)], groups, { label: "results by group" }).node);
}

/// The value between 0 and 1 with its interval; nothing for perplexities.
function interval(row) {
  if (row.value === null || row.kind === "perplexity") return "";
  const width = 120, at = value => 1 + (width - 2) * Math.min(1, Math.max(0, value)), half = 1.96 * (row.stderr || 0);
  return svg("svg", { width, height: 14, role: "img", "aria-label": `${evalNumber(row.value)} ± ${number(half, 2)}` },
    svg("line", { x1: 1, x2: width - 1, y1: 7, y2: 7, stroke: "var(--line)" }),
    svg("line", { x1: at(row.value - half), x2: at(row.value + half), y1: 7, y2: 7, stroke: "var(--c0)", "stroke-width": 4 }),
    svg("circle", { cx: Math.min(width - 4, Math.max(4, at(row.value))), cy: 7, r: 4, fill: "var(--c0)" }));
}

/// From 0 (wrong) to 1 (right); null: neither, as of perplexity.
function scoreOf(sample) {
  if (sample.failed) return sample.failed.length ? 0 : 1;
  const score = sample.acc ?? sample.exact_match ?? sample.win_rate;
  return score === undefined || score === null ? null : Number(score);
}

const samplesTogether = 50;

function showSamples(body) {
  const tasks = [...new Set(DATA.samples.map(sample => sample.task))];
  const list = el("div"), status = el("p", { class: "status", "aria-live": "polite" });
  const scores = [["all", () => true], ["right or won", score => score === 1], ["wrong or lost", score => score === 0],
    ["tied", score => score === 0.5], ["without a score", score => score === null]];
  let task = 0, score = 0, text = "";
  const more = el("button", { onclick: () => add() }, "show more");
  let found = [], shown = 0;
  function add() {
    list.append(...found.slice(shown, shown + samplesTogether).map(sampleNode));
    shown = Math.min(found.length, shown + samplesTogether);
    more.hidden = shown === found.length;
    status.textContent = `${shown} of ${found.length} samples`;
  }
  function choose() {
    found = DATA.samples.filter(sample => (task === 0 || sample.task === tasks[task - 1]) && scores[score][1](scoreOf(sample)) &&
      (!text || JSON.stringify(sample).toLowerCase().includes(text)));
    shown = 0;
    list.replaceChildren();
    add();
  }
  body.append(el("div", { class: "bar" }, choice("task", ["all", ...tasks], i => { task = i; choose(); }),
    choice("score", scores.map(one => one[0]), i => { score = i; choose(); }),
    el("label", {}, "with ", el("input", { type: "search", "aria-label": "text in samples", oninput: event => {
      text = JSON.stringify(event.target.value.toLowerCase()).slice(1, -1); choose(); } }))), status, list, more);
  choose();
}

function sampleNode(sample) {
  const score = scoreOf(sample), { task, where, ...fields } = sample;
  const title = [score === null ? "–" : score === 1 ? "✓" : score === 0 ? "✗" : "=", task, where].join(" ");
  const node = el("details", { class: "sample" }, el("summary", {},
    el("span", { class: score === 1 ? "good" : score === 0 ? "bad" : null }, title)));
  node.addEventListener("toggle", () => node.append(...Object.entries(fields).flatMap(([name, value]) =>
    [el("h3", {}, name), el("pre", { class: "box wrap" }, fieldText(value))])), { once: true });
  return node;
}

/// Texts as they are; conversations with their roles.
function fieldText(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(each => each?.role ? `${each.role}: ${each.content}` : fieldText(each)).join("\n");
  return JSON.stringify(value);
}
