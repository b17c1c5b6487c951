// The roofline and the table of kernels.
const peakFills = { bf16: "--c0", tf32: "--c2", fp32: "--c1" };

function showKernels(body, share) {
  const kernels = share.kernels.map(kernel => ({ ...kernel, seconds: kernel.measured ?? kernel.atBest }));
  const all = kernels.reduce((sum, kernel) => sum + kernel.launches * kernel.seconds, 0) || 1;
  const isMeasured = kernels.some(kernel => kernel.measured !== undefined), hasGpu = kernels.some(kernel => kernel.gpu);
  const columns = [
    { name: "kernel", word: true, value: kernel => kernel.name },
    { name: "launches", value: kernel => kernel.launches },
    { name: "time", value: kernel => kernel.launches * kernel.seconds, text: k => timeText(k.launches * k.seconds) },
    { name: "share", value: kernel => kernel.launches * kernel.seconds, text: k => percentText(k.launches * k.seconds / all) },
    { name: "FLOPs", value: kernel => kernel.flops, text: kernel => flopText(kernel.flops) },
    { name: "bytes", value: kernel => kernel.bytes, text: kernel => kernel.bytes ? byteText(kernel.bytes) : "–" },
    { name: "at best", value: kernel => kernel.atBest, text: kernel => kernel.atBest ? timeText(kernel.atBest) : "–" },
    isMeasured && { name: "measured", value: k => k.measured ?? 0, text: k => k.measured === undefined ? "–" : timeText(k.measured) },
    isMeasured && { name: "of the roof", value: k => k.measured ? k.atBest / k.measured : 0,
      text: k => k.measured && k.atBest ? percentText(k.atBest / k.measured) : "–" },
    hasGpu && { name: "threads", value: kernel => kernel.gpu?.threads ?? 0 },
    hasGpu && { name: "registers", value: kernel => kernel.gpu?.registers ?? 0, text: k => k.gpu?.registers || "–" },
    hasGpu && { name: "shared", value: kernel => kernel.gpu?.shared ?? 0, text: k => byteText(k.gpu?.shared ?? 0) },
    hasGpu && { name: "spilled", value: kernel => kernel.gpu?.spilled ?? 0 },
    hasGpu && { name: "mma", value: kernel => kernel.gpu?.mma ?? 0 },
    { name: "what was fused", long: true, value: kernel => kernel.fused },
  ].filter(Boolean);
  let mark = () => {};
  const list = table(columns, kernels, { by: 2, label: "kernels", choose: kernel => mark(kernel) });
  const plot = roofline(kernels, isMeasured, kernel => {
    for (const [other, row] of list.rowOf) row.classList.toggle("on", other === kernel);
    const row = list.rowOf.get(kernel);
    list.node.scrollTop = row.offsetTop - list.node.clientHeight / 2;
  });
  mark = plot.mark;
  body.append(plot.node, list.node);
}

/// Kernels that have FLOPs and bytes, by intensity. What is not measured lies on
/// its roof.
function roofline(kernels, isMeasured, chose) {
  const machine = DATA.machine, status = el("p", { class: "status", "aria-live": "polite" }), place = el("div");
  const points = kernels.filter(kernel => kernel.flops && kernel.bytes && kernel.seconds).map(kernel =>
    ({ kernel, x: kernel.flops / kernel.bytes, y: kernel.flops / kernel.seconds })).sort((a, b) => a.x - b.x);
  if (!points.length) return { node: el("p", {}, "No kernel has both FLOPs and bytes."), mark() {} };
  const used = Object.keys(peakFills).filter(kind => machine[kind] && points.some(point => point.kernel.arithmetic === kind));
  let show = () => {};
  redrawn(place, width => {
    const [x0, x1] = bounds(points.map(point => point.x), true), ridge = Math.max(...used.map(k => machine[k])) / machine.bytes;
    const x = { label: "arithmetic intensity, FLOP per byte", log: true, low: x0 / 2, high: Math.max(x1, ridge) * 3, text: countText };
    const top = Math.max(...used.map(kind => machine[kind]), ...points.map(point => point.y)) * 2.2;
    const y = { label: "FLOP/s", log: true, low: Math.min(...points.map(point => point.y), machine.bytes * x.low) / 2, high: top,
      text: value => scaled(value, "") };
    x.text = value => number(value);
    const f = frame(width, 380, x, y, "roofline of the kernels");
    ceilings(f, x, used, machine);
    const dots = points.map(point => svg("circle", { cx: f.toX(point.x), cy: f.toY(point.y),
      r: 3.5 + 8 * Math.sqrt(point.kernel.launches * point.kernel.seconds / totalSeconds(kernels)),
      fill: `var(${peakFills[point.kernel.arithmetic]})`, "fill-opacity": 0.75, stroke: color("--page") }));
    const ring = svg("circle", { fill: "none", stroke: color("--focus"), "stroke-width": 3, visibility: "hidden" });
    f.root.append(...dots, ring);
    show = (at, isQuiet) => {
      const { kernel, x: intensity, y: rate } = points[at];
      ring.setAttribute("cx", f.toX(intensity));
      ring.setAttribute("cy", f.toY(rate));
      ring.setAttribute("r", Number(dots[at].getAttribute("r")) + 4);
      ring.setAttribute("visibility", "visible");
      status.textContent = `${kernel.name}: ${number(intensity)} FLOP per byte, ${scaled(rate, "FLOP/s")}` +
        (kernel.measured === undefined ? " at best" : ` measured, ${percentText(kernel.atBest / kernel.measured)} of its roof`) +
        `, ${launchText(kernel.launches)} of ${timeText(kernel.seconds)}: ${kernel.fused}`;
      if (!isQuiet) chose(kernel);
    };
    reader(f.root, points.length, (px, py) => {
      let best = 0, distance = Infinity;
      points.forEach((point, i) => {
        const d = Math.hypot(f.toX(point.x) - px, f.toY(point.y) - py);
        if (d < distance) { best = i; distance = d; }
      });
      return best;
    }, at => show(at));
    place.replaceChildren(f.root);
  });
  const node = el("div", {}, legend(used.map(kind => [kind + " kernels; larger: more of the time", peakFills[kind]])), place, status,
    el("p", { class: "note" }, isMeasured ? "" : "No kernel was measured, so each lies on its roof. " +
      "tessera bench kernels FILE --json times.json and inspect --bench times.json show how far below it they are."));
  return { node, mark: kernel => {
    const at = points.findIndex(point => point.kernel === kernel);
    if (at >= 0) show(at, true);
  } };
}

function totalSeconds(kernels) { return kernels.reduce((sum, kernel) => sum + kernel.launches * kernel.seconds, 0) || 1; }

function ceilings(f, x, used, machine) {
  const ridgeOf = kind => machine[kind] / machine.bytes, far = Math.max(...used.map(ridgeOf));
  f.root.append(svg("line", { x1: f.toX(x.low), y1: f.toY(machine.bytes * x.low), x2: f.toX(far), y2: f.toY(machine.bytes * far),
    stroke: color("--text"), "stroke-width": 1.6 }));
  const angle = Math.atan2(f.toY(machine.bytes * far) - f.toY(machine.bytes * x.low), f.toX(far) - f.toX(x.low)) * 180 / Math.PI;
  const at = Math.sqrt(x.low * far), px = f.toX(at), py = f.toY(machine.bytes * at) - 7;
  f.root.append(svg("text", { transform: `translate(${px} ${py}) rotate(${angle})`, "text-anchor": "middle", class: "strong" },
    "memory " + scaled(machine.bytes, "B/s")));
  let above = -Infinity;
  for (const kind of [...used].sort((a, b) => machine[a] - machine[b])) {
    const y = f.toY(machine[kind]);
    f.root.append(svg("line", { x1: f.toX(ridgeOf(kind)), x2: f.right, y1: y, y2: y, stroke: `var(${peakFills[kind]})`,
      "stroke-width": 2 }));
    if (above !== -Infinity && above - y < 14) continue; // the lower ceiling has its label here
    above = y;
    f.root.append(svg("text", { x: f.right - 2, y: y - 5, "text-anchor": "end", class: "strong" },
      `${kind} ${scaled(machine[kind], "FLOP/s")}`));
  }
}
