// Plans: the chosen one, its runners-up, and what bound each degree.
const timeParts = [["compute", "--c0", step => step.compute], ["recomputation", "--c4", step => step.recomputation],
  ["exposed collectives", "--c5", step => Object.values(step.exposed).reduce((a, b) => a + b, 0)],
  ["slowed by overlap", "--c3", step => step.overlap_tax], ["uneven stages", "--c7", step => step.uneven_stages],
  ["pipeline bubble", "--c1", step => step.bubble], ["optimizer", "--c6", step => step.optimizer]];
const memoryParts = [["weights", "--c0"], ["gradients", "--c1"], ["optimizer", "--c3"], ["activations", "--c2"],
  ["buffers", "--c7"], ["workspace", "--c6"]].map(([name, fill]) => [name, fill, memory => memory[name]]);

/// Rows of stacked bars with one scale: {label, axis, text, rows: [{name, chosen, value}], parts, limit}.
function stackedBars(options) {
  const place = el("div"), status = el("p", { class: "status", "aria-live": "polite" });
  const sum = row => options.parts.reduce((s, part) => s + part[2](row.value), 0);
  const most = Math.max(...options.rows.map(sum), options.limit?.value || 0);
  redrawn(place, width => {
    const isNarrow = width < 640, left = isNarrow ? 8 : Math.min(430, width * 0.42), high = isNarrow ? 42 : 25;
    const bottom = 42, height = options.rows.length * high + bottom, toX = value => left + value / most * (width - left - 90);
    const root = svg("svg", { width, height, role: "img", "aria-label": options.label });
    const says = options.rows.map((row, i) => {
      const y = i * high + (isNarrow ? 18 : 3);
      let x = 0;
      root.append(svg("text", { x: isNarrow ? left : left - 8, y: isNarrow ? y - 5 : y + 14, "text-anchor": isNarrow ? "start" : "end",
        class: row.chosen ? "strong" : null, "font-weight": row.chosen ? 600 : 400 }, shorten(row.name, isNarrow ? width / 7.3 : left / 7)));
      for (const [, fill, of] of options.parts) {
        const part = of(row.value);
        if (part > 0) root.append(svg("rect", { x: toX(x), y, width: Math.max(0, toX(x + part) - toX(x) - 0.5), height: 18,
          fill: `var(${fill})` }));
        x += part;
      }
      const text = options.text(x), limit = options.limit ? toX(options.limit.value) : -1;
      const hits = toX(x) < limit && toX(x) + 10 + 7 * text.length > limit;
      root.append(svg("text", { x: (hits ? limit : toX(x)) + 6, y: y + 14, class: "strong" }, text));
      return `${row.name}: ${options.text(x)}: ` + options.parts.filter(part => part[2](row.value) > 0).map(([name, , of]) =>
        `${name} ${options.text(of(row.value))}`).join(", ");
    });
    const base = height - bottom;
    for (const value of ticks(0, most / options.unit, (width - left - 90) / 90)) {
      const x = toX(value * options.unit);
      root.append(svg("line", { x1: x, x2: x, y1: base, y2: base + 4, stroke: color("--soft") }),
        svg("text", { x, y: base + 17, "text-anchor": "middle" }, number(value)));
    }
    root.append(svg("text", { x: (left + width - 90) / 2, y: base + 35, "text-anchor": "middle", class: "strong" }, options.axis));
    if (options.limit) root.append(svg("line", { x1: toX(options.limit.value), x2: toX(options.limit.value), y1: 0, y2: base,
      stroke: color("--text"), "stroke-dasharray": "6 4" }));
    const ring = svg("rect", { fill: "none", stroke: color("--focus"), "stroke-width": 2, visibility: "hidden", rx: 3 });
    root.append(ring);
    reader(root, options.rows.length, (x, y) => Math.floor(y / high), at => {
      for (const [key, value] of Object.entries({ x: 1, y: at * high + 1, width: width - 2, height: high - 2, visibility: "visible" }))
        ring.setAttribute(key, value);
      status.textContent = says[at];
    });
    place.replaceChildren(root);
  });
  return el("div", {}, el("h3", {}, options.label), legend(options.parts.filter(part =>
    options.rows.some(row => part[2](row.value) > 0)).map(([name, fill]) => [name, fill])), place, status);
}

function shorten(text, most) { return text.length > most ? text.slice(0, Math.max(3, Math.floor(most) - 1)) + "…" : text; }

function showPlans(body) {
  const { answer, names } = DATA;
  const rows = (answer.search?.best || []).map((value, i) => ({ name: names[i], value, chosen: names[i] === DATA.chosen }));
  if (!rows.some(row => row.chosen)) rows.unshift({ name: DATA.chosen, value: answer, chosen: true });
  const step = row => row.value.step, memory = row => row.value.memory;
  body.append(
    stackedBars({ label: "Step time", axis: "seconds of a step", unit: 1, text: timeText, parts: timeParts,
      rows: rows.map(row => ({ ...row, value: step(row) })) }),
    stackedBars({ label: "Memory of the fullest rank", axis: "GB of a GPU; dashed: what a plan may use", unit: 1e9, text: byteText,
      parts: memoryParts, limit: { value: DATA.usable }, rows: rows.map(row => ({ ...row, value: memory(row) })) }),
    table([{ name: "plan", word: true, value: row => row.name, text: row => row.chosen ? el("b", {}, row.name + " (chosen)") : row.name },
      { name: "step", value: row => step(row).seconds, text: row => timeText(step(row).seconds) },
      { name: "MFU", value: row => step(row).mfu, text: row => percentText(step(row).mfu) },
      { name: "tokens/s", value: row => step(row).tokens_per_second, text: row => countText(Math.round(step(row).tokens_per_second)) },
      { name: "bubble", value: row => step(row).bubble_share, text: row => percentText(step(row).bubble_share) },
      { name: "memory", value: row => memory(row).total, text: row => byteText(memory(row).total) }], rows, { label: "plans" }).node);
}

function showChosen(body) {
  const { answer } = DATA, step = answer.step;
  body.append(facts([["plan", DATA.chosen], ["step", timeText(step.seconds)], ["MFU", percentText(step.mfu)],
    ["tokens per second", countText(Math.round(step.tokens_per_second))],
    ["memory of the fullest rank", byteText(answer.memory.total), "of " + byteText(DATA.memory)],
    answer.training && ["training", number(answer.training.days) + " days"],
    answer.search && ["plans that fit", countText(answer.search.fitting) + " of " + countText(answer.search.considered)]]));
  if (!answer.fits) body.append(el("p", {}, "This plan does not fit into memory."));
  body.append(el("details", {}, el("summary", {}, "all that tessera plan prints"), el("pre", { class: "box" }, DATA.text)));
}

/// For each value of a degree what its best plan costs, or what left none.
function showBinding(body) {
  const best = DATA.answer.step.seconds, killed = Object.entries(DATA.answer.search.ruled_out).sort((a, b) => b[1] - a[1]);
  body.append(el("h3", {}, "What ruled plans out"), barList(killed.map(([name, plans]) => [name, plans, countText(plans) + " plans"])));
  const fast = DATA.fastestRuledOut;
  if (fast && fast.seconds < best) body.append(el("p", {}, `The fastest plan that memory ruled out, ${fast.plan}, would take ` +
    `${timeText(fast.seconds)} (${number(100 * (fast.seconds / best - 1))} %) and ${byteText(fast.bytes)} of ${byteText(DATA.usable)}.`));
  body.append(el("h3", {}, "Each degree's other values, the rest free"));
  const rows = DATA.choices.flatMap(({ degree, values }) => values.map(value => ({ degree, ...value })));
  body.append(table([
    { name: "degree", word: true, value: row => row.degree },
    { name: "value", word: true, value: row => row.value },
    { name: "step", value: row => row.seconds ?? Infinity, text: row => row.seconds ? timeText(row.seconds) : "–" },
    { name: "slower by", value: row => row.seconds ?? Infinity, text: row => !row.seconds ? "–"
      : row.plan === DATA.chosen ? "chosen" : `${number(100 * (row.seconds / best - 1))} %` },
    { name: "memory", value: row => row.bytes ?? 0, text: row => row.bytes ? byteText(row.bytes) : "–" },
    { name: "fit", value: row => row.fitting, text: row => countText(row.fitting) },
    { name: "bound most often by", word: true, value: bindingText },
    { name: "best plan", word: true, value: row => row.plan || "none fits" },
  ], rows, { label: "other values of each degree" }).node);
}

function bindingText(row) {
  const found = Object.entries(row.ruledOut).sort((a, b) => b[1] - a[1]);
  const all = found.reduce((sum, [, plans]) => sum + plans, 0);
  return found.length ? `${found[0][0]} (${percentText(found[0][1] / all)} of ${countText(all)})` : "–";
}

function barList(entries) {
  const most = Math.max(...entries.map(entry => entry[1]));
  return el("div", { class: "stack", style: "max-width:760px" }, entries.map(([name, value, text]) =>
    el("div", { class: "block out", style: "padding:3px 10px" }, el("span", {}, name), el("div", {},
      el("div", { class: "meter", style: `width:${Math.max(0.5, 100 * value / most)}%` },
        el("i", { style: "width:100%;background:var(--c5)" })), el("small", {}, text)))));
}
