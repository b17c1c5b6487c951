// Spans of time in lanes, on a canvas: a step has thousands of them. Wheel and
// +/- zoom, dragging and PageUp/PageDown move, arrows go from span to span.

/// {name, unit, lanes: [{name, spans: [[start, duration, ...]]}], end, fillOf(span), say(span, lane), text(value),
/// labelOf(span)}.
function spanChart(options) {
  const status = el("p", { class: "status", "aria-live": "polite" });
  const row = 30, left = 112, right = 14, bottom = 44, top = 6;
  const height = top + row * options.lanes.length + bottom;
  const canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": options.name +
    ": arrow keys go from span to span and lane to lane, plus and minus zoom, 0 shows all" });
  const view = { from: 0, to: options.end || 1 };
  let width = 0, chosen = null;

  const toX = time => left + (time - view.from) / (view.to - view.from) * (width - left - right);
  const spanAt = (lane, time) => {
    const spans = options.lanes[lane].spans;
    let low = 0, high = spans.length;
    while (low < high) { const m = (low + high) >> 1; if (spans[m][0] <= time) low = m + 1; else high = m; }
    return low - 1;
  };
  function drawLane(pen, lane, index) {
    const y = top + index * row, fills = new Map();
    pen.fillStyle = color("--shade");
    pen.fillRect(left, y + 3, width - left - right, row - 8);
    pen.fillStyle = color("--soft");
    pen.textAlign = "right";
    pen.fillText(lane.name, left - 8, y + row / 2 + 3);
    pen.save();
    pen.beginPath();
    pen.rect(left, y, width - left - right, row);
    pen.clip();
    let drawn = -1;
    for (let i = Math.max(0, spanAt(index, view.from)); i < lane.spans.length && lane.spans[i][0] <= view.to; ++i) {
      const span = lane.spans[i], x = toX(span[0]), wide = toX(span[0] + span[1]) - x;
      if (x + wide < drawn + 0.3) continue; // in the same pixel as the one before
      drawn = x + wide;
      const name = options.fillOf(span);
      if (!fills.has(name)) fills.set(name, color(name));
      pen.fillStyle = fills.get(name);
      pen.fillRect(x, y + 3, Math.max(wide - (wide > 3 ? 0.7 : 0), 0.4), row - 8);
      const text = wide > 16 ? options.labelOf(span) : "";
      if (text && text.length * 6.6 < wide - 6) {
        pen.fillStyle = inkOn(name);
        pen.textAlign = "center";
        pen.fillText(text, x + wide / 2, y + row / 2 + 3);
      }
    }
    pen.restore();
  }
  function draw() {
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    options.lanes.forEach((lane, i) => drawLane(pen, lane, i));
    const base = top + row * options.lanes.length;
    pen.strokeStyle = color("--line");
    pen.fillStyle = color("--soft");
    let free = left - 40;
    for (const value of ticks(view.from, view.to, (width - left) / 110)) {
      const x = toX(value), text = options.text(value);
      pen.beginPath();
      pen.moveTo(x, base);
      pen.lineTo(x, base + 4);
      pen.stroke();
      const half = pen.measureText(text).width / 2;
      if (x - half < free || x + half > width) continue;
      free = x + half + 8;
      pen.textAlign = "center";
      pen.fillText(text, x, base + 17);
    }
    pen.fillStyle = color("--text");
    pen.fillText(options.unit, (left + width - right) / 2, base + 36);
    if (!chosen) return;
    const span = options.lanes[chosen.lane].spans[chosen.index];
    pen.strokeStyle = color("--focus");
    pen.lineWidth = 2.5;
    pen.strokeRect(Math.max(left, toX(span[0])), top + chosen.lane * row + 2,
      Math.max(3, Math.min(width - right, toX(span[0] + span[1])) - Math.max(left, toX(span[0]))), row - 6);
  }
  function choose(lane, index) {
    const spans = options.lanes[lane].spans;
    if (!spans.length) return;
    chosen = { lane, index: Math.max(0, Math.min(spans.length - 1, index)) };
    const span = spans[chosen.index], wide = view.to - view.from;
    if (span[0] > view.to || span[0] + span[1] < view.from) {
      view.from = Math.max(0, Math.min(options.end - wide, span[0] - wide / 3));
      view.to = view.from + wide;
    }
    status.textContent = options.say(span, options.lanes[lane]);
    draw();
  }
  function zoom(factor, around) {
    const wide = Math.min(options.end, Math.max((view.to - view.from) * factor, options.end / 1e6));
    const share = (around - view.from) / (view.to - view.from);
    view.from = Math.max(0, Math.min(options.end - wide, around - share * wide));
    view.to = view.from + wide;
    draw();
  }
  const timeAt = event => view.from + (event.offsetX - left) / (width - left - right) * (view.to - view.from);
  const middle = () => chosen ? options.lanes[chosen.lane].spans[chosen.index][0] : (view.from + view.to) / 2;
  canvas.addEventListener("pointermove", event => {
    const lane = Math.floor((event.offsetY - top) / row);
    if (lane < 0 || lane >= options.lanes.length) return;
    if (event.buttons === 1) {
      const by = -event.movementX / (width - left - right) * (view.to - view.from);
      const move = Math.max(-view.from, Math.min(options.end - view.to, by));
      view.from += move;
      view.to += move;
      draw();
    } else choose(lane, spanAt(lane, timeAt(event)));
  });
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && document.activeElement !== canvas) return; // the page scrolls
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", () => canvas.focus({ preventScroll: true }));
  canvas.addEventListener("focus", () => chosen || choose(0, 0));
  canvas.addEventListener("keydown", event => {
    const at = chosen || { lane: 0, index: 0 };
    const time = middle(), wide = view.to - view.from;
    const to = lane => choose(lane, Math.max(0, spanAt(lane, time)));
    const actions = {
      ArrowRight: () => choose(at.lane, at.index + 1), ArrowLeft: () => choose(at.lane, at.index - 1),
      ArrowDown: () => to(Math.min(options.lanes.length - 1, at.lane + 1)), ArrowUp: () => to(Math.max(0, at.lane - 1)),
      Home: () => choose(at.lane, 0), End: () => choose(at.lane, Infinity),
      "+": () => zoom(0.5, time), "-": () => zoom(2, time), "0": () => zoom(Infinity, 0),
      PageDown: () => choose(at.lane, spanAt(at.lane, time + wide)), PageUp: () => choose(at.lane, spanAt(at.lane, time - wide)),
    };
    if (!actions[event.key]) return;
    actions[event.key]();
    event.preventDefault();
  });
  const place = el("div", {}, canvas);
  redrawn(place, wide => { width = wide; draw(); });
  return el("div", {}, el("div", { class: "bar" },
    el("button", { onclick: () => zoom(0.5, middle()) }, "zoom in"), el("button", { onclick: () => zoom(2, middle()) }, "zoom out"),
    el("button", { onclick: () => zoom(Infinity, 0) }, "all")), place, status);
}
