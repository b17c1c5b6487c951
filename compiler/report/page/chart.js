// Plots in SVG: axes with units, lines, and a reader that follows the pointer
// and the arrow keys.

/// A scale from values to pixels.
function scale(axis, from, to) {
  const map = axis.log ? Math.log10 : value => value;
  const low = map(axis.low), span = map(axis.high) - low || 1;
  const at = value => from + (map(value) - low) / span * (to - from);
  at.back = pixel => {
    const value = low + (pixel - from) / (to - from) * span;
    return axis.log ? 10 ** value : value;
  };
  return at;
}

/// Axes around an empty plot. An axis is {label, low, high, log, text}; `text`
/// writes a tick.
function frame(width, height, x, y, label) {
  const left = 74, right = 16, top = 12, bottom = 46;
  const toX = scale(x, left, width - right), toY = scale(y, height - bottom, top);
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const line = color("--line");
  const xTicks = x.log ? decades(x.low, x.high, width / 60) : ticks(x.low, x.high, width / 110);
  const yTicks = y.log ? decades(y.low, y.high, height / 30) : ticks(y.low, y.high, height / 45);
  for (const value of yTicks)
    root.append(svg("line", { x1: left, x2: width - right, y1: toY(value), y2: toY(value), stroke: line }),
      svg("text", { x: left - 6, y: toY(value) + 4, "text-anchor": "end" }, y.text(value)));
  let free = -Infinity; // labels never overlap
  for (const value of xTicks) {
    const text = x.text(value), half = text.length * 3.4;
    root.append(svg("line", { x1: toX(value), x2: toX(value), y1: height - bottom, y2: height - bottom + 4, stroke: line }));
    if (toX(value) - half < free || toX(value) + half > width) continue;
    free = toX(value) + half + 8;
    root.append(svg("text", { x: toX(value), y: height - bottom + 18, "text-anchor": "middle" }, text));
  }
  root.append(svg("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, stroke: color("--soft") }),
    svg("text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle", class: "strong" }, x.label),
    svg("text", { transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle",
      class: "strong" }, y.label));
  return { root, toX, toY, left, right: width - right, top, bottom: height - bottom };
}

function pathOf(points) {
  let text = "", drawing = false;
  for (const [x, y] of points) {
    if (!Number.isFinite(y)) { drawing = false; continue; }
    text += (drawing ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1);
    drawing = true;
  }
  return text;
}

/// Makes a plot read index by index: pointer, arrows, Home and End choose one of
/// `count`; `show` marks it and says it.
function reader(root, count, nearest, show, start) {
  let at = start ?? -1;
  const go = index => { at = Math.max(0, Math.min(count - 1, index)); show(at); };
  root.setAttribute("tabindex", 0);
  root.addEventListener("pointermove", event => {
    const box = root.getBoundingClientRect();
    go(nearest(event.clientX - box.left, event.clientY - box.top));
  });
  root.addEventListener("focus", () => go(at < 0 ? 0 : at));
  root.addEventListener("keydown", event => {
    const big = Math.max(1, Math.round(count / 20));
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: big, PageDown: -big }[event.key];
    if (step) go(at + step);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(count - 1);
    else return;
    event.preventDefault();
  });
  return go;
}

function bounds(values, log) {
  let low = Infinity, high = -Infinity;
  for (const value of values)
    if (Number.isFinite(value) && (!log || value > 0)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [log ? 1 : 0, log ? 10 : 1];
  if (low === 0 && high === 0) return [0, 1];
  if (low === high) return log ? [low / 2, high * 2] : [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
  return [low, high];
}

/// Lines over a common x: {name, label, x, text, series: [{name, fill, values, dots}], log, zero}.
function lineChart(options) {
  const status = el("p", { class: "status", "aria-live": "polite" });
  const place = el("div");
  const number = options.text || (value => String(value));
  redrawn(place, width => {
    const [low, high] = bounds(options.series.flatMap(each => each.values), options.log);
    const [first, last] = bounds(options.x.values);
    const margin = options.log ? 0 : (high - low) * 0.05;
    const f = frame(width, options.height || 230, { label: options.x.label, low: first, high: last, text: countText },
      { label: options.label, low: options.zero ? 0 : low - margin, high: high + margin, log: options.log, text: number },
      options.name);
    for (const each of options.series) {
      const points = each.values.map((value, i) => [f.toX(options.x.values[i]), value === null ? NaN : f.toY(value)]);
      if (each.dots) for (const [x, y] of points.filter(p => Number.isFinite(p[1])))
        f.root.append(svg("circle", { cx: x, cy: y, r: 3.5, fill: `var(${each.fill})` }));
      const shown = each.dots ? points.filter(p => Number.isFinite(p[1])) : points;
      f.root.append(svg("path", { d: pathOf(shown), fill: "none", stroke: `var(${each.fill})`,
        "stroke-width": each.dots ? 1 : 1.6 }));
    }
    const mark = svg("line", { y1: f.top, y2: f.bottom, stroke: color("--focus"), visibility: "hidden" });
    f.root.append(mark);
    reader(f.root, options.x.values.length, x => nearestIndex(options.x.values, f.toX.back(x)), at => {
      const x = f.toX(options.x.values[at]);
      mark.setAttribute("x1", x);
      mark.setAttribute("x2", x);
      mark.setAttribute("visibility", "visible");
      status.textContent = `${options.x.label} ${options.x.values[at]}: ` + options.series.filter(each =>
        each.values[at] !== null && each.values[at] !== undefined).map(each =>
        `${each.name} ${number(each.values[at])}`).join(", ");
    });
    place.replaceChildren(f.root);
  });
  const names = options.series.length > 1 ? legend(options.series.map(each => [each.name, each.fill])) : null;
  return el("div", {}, el("h3", {}, options.name), names, place, status);
}

/// The index of the value nearest to `wanted`; values increase.
function nearestIndex(values, wanted) {
  let low = 0, high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low > 0 && wanted - values[low - 1] < values[low] - wanted ? low - 1 : low;
}
