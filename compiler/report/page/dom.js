// Elements, and the page's sections. Texts are never parsed as HTML: names come
// from files of others.
const DATA = JSON.parse(document.getElementById("data").textContent);
const svgSpace = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return node;
}
function el(name, attributes, ...children) { return fill(document.createElement(name), attributes, children); }
function svg(name, attributes, ...children) {
  return fill(document.createElementNS(svgSpace, name), attributes, children);
}

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

/// Text on a color: whichever of black and white is easier to read.
function inkOn(name) {
  const [r, g, b] = [1, 3, 5].map(i => (parseInt(color(name).slice(i, i + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#101316" : "#ffffff";
}

/// Calls `draw` now and whenever the page's colors or the node's width change.
function redrawn(node, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (node.clientWidth && node.clientWidth !== width) { width = node.clientWidth; draw(width); }
  }).observe(node);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => width && draw(width));
}

/// Calls `make` once the node comes near the window.
function lazily(node, make) {
  const watch = new IntersectionObserver(entries => {
    if (!entries.some(entry => entry.isIntersecting)) return;
    watch.disconnect();
    make();
    node.dataset.ready = "yes";
  }, { rootMargin: "300px" });
  watch.observe(node);
}

/// A section whose body is made when it comes into view. `height` is about what
/// it will have, so that the page does not jump.
function section(id, title, note, make, height) {
  const body = el("div", { style: height ? `min-height:${height}px` : null });
  const node = el("section", { id, "aria-labelledby": id + "-title" },
    el("h2", { id: id + "-title" }, title), note && el("p", { class: "note" }, note), body);
  document.getElementById("main").append(node);
  document.getElementById("contents").append(el("a", { href: "#" + id }, title));
  lazily(node, () => make(body));
}

/// A labelled <select>; `change` gets the index.
function choice(label, options, change, chosen) {
  const list = el("select", { "aria-label": label, onchange: () => change(list.selectedIndex) },
    options.map((text, i) => el("option", { selected: i === (chosen || 0) ? "" : null }, text)));
  return el("label", {}, label + " ", list);
}

function facts(pairs) {
  return el("div", { class: "facts" }, pairs.filter(Boolean).map(([label, value, title]) =>
    el("div", { class: "fact", title }, el("b", {}, value), el("span", {}, label))));
}

function legend(entries) {
  return el("div", { class: "legend" }, entries.map(([name, fill]) =>
    el("span", {}, el("i", { style: `background:var(${fill})` }), name)));
}

/// A table that sorts by its columns: [{name, word, long, value, text}].
function table(columns, rows, options = {}) {
  const body = el("tbody");
  let by = options.by ?? -1, down = true;
  const nodes = new Map(rows.map(row => [row, el("tr", { tabindex: options.choose ? 0 : null,
    onclick: () => options.choose?.(row), onkeydown: event => event.key === "Enter" && options.choose?.(row) },
    columns.map(column => el("td", { class: column.long ? "long" : column.word ? "word" : null },
      column.text ? column.text(row) : column.value(row))))]));
  const heads = columns.map((column, i) => el("th", { class: column.word || column.long ? "word" : null, scope: "col" },
    el("button", { onclick: () => { down = by === i ? !down : !column.word; by = i; sort(); } }, column.name)));
  function sort() {
    const sorted = [...rows];
    if (by >= 0) {
      const value = columns[by].value;
      sorted.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1));
    }
    heads.forEach((head, i) => i === by ? head.setAttribute("aria-sort", down ? "descending" : "ascending")
      : head.removeAttribute("aria-sort"));
    body.replaceChildren(...sorted.map(row => nodes.get(row)));
  }
  sort();
  return { node: el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": options.label || "table" },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body)), rowOf: nodes };
}
