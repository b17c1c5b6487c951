// A stacked area over steps.

/// {label, x: {label, count}, layers: [{name, fill, values}], limit: {name, value}, peak, say(at)}: `values` has a
/// number for each step. Layers are stacked in order.
function stackedArea(options) {
  const status = el("p", { class: "status", "aria-live": "polite" }), place = el("div");
  const count = options.x.count;
  const tops = [];
  let below = new Float64Array(count);
  for (const layer of options.layers) {
    const top = new Float64Array(count);
    for (let i = 0; i < count; ++i) top[i] = below[i] + layer.values[i];
    tops.push([below, top]);
    below = top;
  }
  const highest = Math.max(options.limit?.value || 0, bounds(below)[1]);
  redrawn(place, width => {
    const f = frame(width, 330, { label: options.x.label, low: 0, high: count, text: countText },
      { label: options.label, low: 0, high: highest * 1.08, text: byteText }, options.name);
    // As many columns as pixels: of each the largest step.
    const columns = Math.min(count, Math.max(1, Math.floor(f.right - f.left)));
    const stepOf = Int32Array.from({ length: columns }, (_, c) => {
      let best = Math.floor(c * count / columns);
      for (let i = best; i < Math.floor((c + 1) * count / columns); ++i) if (below[i] > below[best]) best = i;
      return best;
    });
    options.layers.forEach((layer, k) => {
      const [low, high] = tops[k];
      if (!layer.values.some(value => value > 0)) return;
      const upper = [], lower = [];
      stepOf.forEach((step, c) => {
        const left = f.toX(c * count / columns), right = f.toX((c + 1) * count / columns);
        upper.push([left, f.toY(high[step])], [right, f.toY(high[step])]);
        lower.push([left, f.toY(low[step])], [right, f.toY(low[step])]);
      });
      f.root.append(svg("path", { d: pathOf([...upper, ...lower.reverse()]) + "Z", fill: `var(${layer.fill})` }));
    });
    const px = f.toX(options.peak + 0.5), py = f.toY(below[options.peak]), isLate = px > (f.left + f.right) / 2;
    if (options.limit) {
      const y = f.toY(options.limit.value);
      f.root.append(svg("line", { x1: f.left, x2: f.right, y1: y, y2: y, stroke: color("--text"), "stroke-dasharray": "6 4" }),
        svg("text", { x: isLate ? f.left + 4 : f.right - 4, y: y - 5, "text-anchor": isLate ? "start" : "end", class: "strong" }, options.limit.name));
    }
    f.root.append(svg("path", { d: `M${px} ${py}l-6 -9h12z`, fill: color("--text") }),
      svg("text", { x: px + (isLate ? -10 : 10), y: Math.max(py - 4, 12), class: "strong",
        "text-anchor": isLate ? "end" : "start" }, "peak"));
    const mark = svg("line", { y1: f.top, y2: f.bottom, stroke: color("--focus"), "stroke-width": 2, visibility: "hidden" });
    f.root.append(mark);
    reader(f.root, count, x => Math.floor(f.toX.back(x)), at => {
      mark.setAttribute("x1", f.toX(at + 0.5));
      mark.setAttribute("x2", f.toX(at + 0.5));
      mark.setAttribute("visibility", "visible");
      status.textContent = options.say(at);
    }, options.peak);
    place.replaceChildren(f.root);
  });
  return el("div", {}, legend(options.layers.filter(layer => layer.values.some(v => v > 0)).map(layer =>
    [layer.name, layer.fill]).reverse()), place, status);
}
