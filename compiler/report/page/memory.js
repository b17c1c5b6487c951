// Memory over the steps of a program.
const useFills = { parameter: "--c0", optimizer: "--c3", cache: "--c8", counter: "--soft", weights: "--c4", gathered: "--c5",
  gradients: "--c1", activations: "--c2", communication: "--c7", workspace: "--c6" };
const useNames = { parameter: "weights", optimizer: "optimizer state", cache: "KV cache", counter: "counters",
  weights: "copies of weights", gathered: "gathered parameters", communication: "communication buffers" };

/// Bytes of each use at each step of the arena.
function bytesByUse(memory, count) {
  const { use, bytes, first, last } = memory.buffers;
  const sums = memory.uses.map(() => new Float64Array(count + 1));
  use.forEach((kind, i) => { sums[kind][first[i]] += bytes[i]; sums[kind][last[i] + 1] -= bytes[i]; });
  for (const sum of sums) for (let i = 1; i <= count; ++i) sum[i] += sum[i - 1];
  return sums.map(sum => sum.subarray(0, count));
}

function stepName(steps, at) {
  const layer = steps.layer[at], origin = steps.origins[steps.origin[at]];
  return steps.names[steps.name[at]] + (layer >= 0 ? `, layer ${layer}${steps.backward[at] ? " backward" : ""}` : "") +
    (origin ? ` (${origin})` : "");
}

function showMemory(body, share) {
  const { memory, steps } = share, state = Object.entries(memory.state);
  if (!memory.known) {
    body.append(el("p", {}, `Arena of ${byteText(memory.arena)}, state of ${byteText(state.reduce((s, [, b]) => s + b, 0))}. ` +
      "This artifact has no table of buffers; compile it again to see them over time."));
    return;
  }
  const count = steps.count, arena = bytesByUse(memory, count);
  const order = ["weights", "gathered", "gradients", "activations", "communication", "workspace"];
  const layers = state.map(([role, bytes]) => ({ name: useNames[role] || role, fill: useFills[role],
    values: new Float64Array(count).fill(bytes) }))
    .concat(order.map(use => ({ name: useNames[use] || use, fill: useFills[use], values: arena[memory.uses.indexOf(use)] })));
  const stateBytes = state.reduce((sum, [, bytes]) => sum + bytes, 0), whole = stateBytes + memory.arena;
  body.append(facts([["planned: state and arena", byteText(whole)], ["state", byteText(stateBytes)],
    ["arena", byteText(memory.arena)], ["live at the peak", byteText(memory.peak.bytes), "of the arena"],
    ["arena over its peak", percentText(memory.arena / (memory.peak.bytes || 1) - 1), "lost to fragmentation"],
    ["inputs and outputs", byteText(memory.io)]]));
  body.append(stackedArea({ name: "memory over the steps of the program", label: "memory", layers, peak: memory.peak.step,
    x: { label: "step, in program order", count }, limit: { name: "planned " + byteText(whole), value: whole },
    say: at => `step ${at}, ${stepName(steps, at)}: ` + layers.filter(layer => layer.values[at]).map(layer =>
      `${layer.name} ${byteText(layer.values[at])}`).join(", ") }));
  showPeak(body, memory, steps);
}

/// What is alive at the peak, largest first.
function showPeak(body, memory, steps) {
  const { use, bytes, first, last, type } = memory.buffers, peak = memory.peak;
  const sums = {};
  for (const i of peak.alive) sums[memory.uses[use[i]]] = (sums[memory.uses[use[i]]] || 0) + bytes[i];
  const parts = Object.entries(sums).sort((a, b) => b[1] - a[1]).map(([kind, sum]) =>
    `${byteText(sum)} of ${useNames[kind] || kind}`);
  const most = 60;
  const list = table([
    { name: "bytes", value: i => bytes[i], text: i => byteText(bytes[i]) },
    { name: "of the peak", value: i => bytes[i], text: i => percentText(bytes[i] / peak.bytes) },
    { name: "what", word: true, value: i => useNames[memory.uses[use[i]]] || memory.uses[use[i]] },
    { name: "tensor", word: true, value: i => memory.types[type[i]] },
    { name: "written first by", word: true, value: i => first[i], text: i => `${first[i]}: ${stepName(steps, first[i])}` },
    { name: "used last by", word: true, value: i => last[i], text: i => `${last[i]}: ${stepName(steps, last[i])}` },
  ], peak.alive.slice(0, most), { by: 0, label: "tensors alive at the peak" });
  body.append(el("h3", {}, "At the peak"), el("p", { class: "note" },
    `Step ${peak.step}, ${stepName(steps, peak.step)}, has ${peak.alive.length} live tensors in the arena: ${parts.join(", ")}.` +
    (peak.alive.length > most ? ` The ${most} largest:` : "")), list.node);
}
