// Who holds what: each tensor as a rectangle, each region with its ranks.
const regionFills = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c7", "--c6"];

function showSharding(body, sharding) {
  const layered = sharding.tensors.filter(tensor => tensor.layered), others = sharding.tensors.filter(tensor => !tensor.layered);
  body.append(facts([["ranks", sharding.ranks], ...sharding.axes.map(axis => ["axis " + axis.name, axis.size])]));
  if (layered.length) body.append(el("h3", {}, "A layer"), el("div", { class: "map" }, layered.map(tensorMap)));
  if (others.length) body.append(el("h3", {}, "Outside of the layers"), el("div", { class: "map" }, others.map(tensorMap)));
}

function rankText(ranks) {
  const runs = [];
  for (const rank of ranks)
    if (runs.length && runs.at(-1)[1] === rank - 1) runs.at(-1)[1] = rank; else runs.push([rank, rank]);
  const text = runs.slice(0, 6).map(([a, b]) => a === b ? String(a) : `${a}–${b}`).join(", ");
  return runs.length > 6 ? text + ", …" : text;
}

/// Leading dimensions are folded into rows; the last one is columns.
function tensorMap(tensor) {
  const width = 250, height = tensor.shape.length > 1 ? 110 : 34;
  const columns = tensor.shape.at(-1) ?? 1, rows = tensor.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: 0,
    "aria-label": `${tensor.name}: ` + tensor.regions.map(region => "ranks " + rankText(region.ranks)).join("; ") });
  tensor.regions.forEach((region, i) => {
    let folded = [[0, 1]];
    tensor.shape.slice(0, -1).forEach((size, d) => {
      folded = folded.flatMap(([start, count]) => region.dims[d].length === 1 && region.dims[d][0][1] === size
        ? [[start * size, count * size]]
        : Array.from({ length: count }, (_, k) => region.dims[d].map(([s, n]) => [(start + k) * size + s, n])).flat());
      folded = folded.slice(0, 256);
    });
    const wide = region.dims.at(-1) || [[0, 1]];
    let largest = null;
    for (const [r, n] of folded) for (const [c, m] of wide) {
      const box = { x: c / columns * width, y: r / rows * height, width: m / columns * width, height: n / rows * height };
      root.append(svg("rect", { ...box, fill: `var(${regionFills[i % regionFills.length]})`, stroke: color("--page") },
        svg("title", {}, "ranks " + rankText(region.ranks))));
      if (!largest || box.width * box.height > largest.width * largest.height) largest = box;
    }
    const text = rankText(region.ranks);
    if (largest && text.length * 7 + 4 < largest.width && largest.height > 13)
      root.append(svg("text", { x: largest.x + largest.width / 2, y: largest.y + largest.height / 2 + 4, "text-anchor": "middle",
        style: `fill:${inkOn(regionFills[i % regionFills.length])}` }, text));
  });
  const parts = tensor.parts.length ? ": " + tensor.parts.join(", ") : "";
  return el("figure", {}, root, el("figcaption", {}, tensor.name + parts, el("small", {},
    `${tensor.role} ${tensor.type} ${tensor.cut}; ${byteText(tensor.rankBytes)} of ${byteText(tensor.bytes)} a rank` +
    (tensor.tensors > 1 ? `, ${tensor.tensors} tensors` : ""))));
}
