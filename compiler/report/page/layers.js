// The model as layers.
function showLayers(body, program) {
  const rows = program.layers;
  const all = key => rows.reduce((sum, row) => sum + row.count * row[key], 0);
  const time = all("seconds") + all("collectiveSeconds"), most = Math.max(...rows.map(row => row.count * row.seconds));
  const parameters = all("parameters");
  body.append(facts([["parameters", countText(parameters)], ["FLOPs of one run", flopText(all("flops"))],
    ["time of its steps", timeText(time), "without overlap"],
    ["useful FLOPs of one run", flopText(program.modelFlops), "the numerator of MFU"]]));
  const detail = el("div", { "aria-live": "polite" });
  const show = row => {
    const parts = table([
      { name: "module", word: true, value: part => part.origin || "–" },
      { name: "pass", word: true, value: part => part.backward ? "backward" : "forward" },
      { name: "launches", value: part => part.launches },
      { name: "FLOPs", value: part => part.flops, text: part => flopText(part.flops) },
      { name: "time", value: part => part.seconds, text: part => timeText(part.seconds) },
      { name: "of the layer", value: part => part.seconds, text: part => percentText(part.seconds / (row.seconds || 1)) },
    ], row.parts, { label: "parts of " + row.name });
    detail.replaceChildren(el("h3", {}, row.name + (row.count > 1 ? ": one of " + row.count + " equal layers" : "")), parts.node);
  };
  const stack = el("div", { class: "stack" }, rows.filter(row => row.parameters || row.seconds || row.collectiveSeconds)
    .map(row => block(row, time, most, show)));
  body.append(legend([["forward", "--c0"], ["backward", "--c1"], ["outside of layers", "--c6"]]), stack, detail);
}

function block(row, time, most, show) {
  const sum = backward => row.parts.filter(part => part.backward === backward).reduce((s, part) => s + part.seconds, 0);
  const share = row.count * row.seconds / (most || 1);
  const inLayer = row.layer >= 0;
  const parts = [[sum(false), inLayer ? "--c0" : "--c6"], [sum(true), "--c1"]];
  const whole = parts.reduce((s, [seconds]) => s + seconds, 0) || 1;
  const words = [
    row.parameters && countText(row.parameters * row.count) + " parameters" +
      (row.count > 1 ? " (" + countText(row.parameters) + " each)" : ""),
    row.flops && flopText(row.flops * row.count), row.launches && launchText(row.launches * row.count),
    row.seconds && timeText(row.seconds * row.count) + " (" + percentText(row.seconds * row.count / (time || 1)) + ")",
    row.collectiveSeconds && timeText(row.collectiveSeconds * row.count) + " of collectives"];
  return el("button", { class: "block" + (row.count > 1 ? " many" : "") + (inLayer ? "" : " out"), onclick: () => show(row) },
    el("b", {}, row.name), el("div", { class: "meter", style: `width:${Math.max(0.4, 100 * share)}%` },
      parts.map(([seconds, fill]) => el("i", { style: `width:${100 * seconds / whole}%;background:var(${fill})` }))),
    el("small", {}, row.count > 1 ? row.count + " equal layers" : ""), el("small", {}, words.filter(Boolean).join(" · ")));
}
