// A training run: its metrics over steps.
function showRun() {
  const m = DATA.metrics, has = key => m[key] && m[key].some(value => value !== null);
  const x = { label: "step", values: m.step };
  const last = key => m[key]?.findLast(value => value !== null);
  const chart = (key, name, label, options = {}) => has(key) && lineChart({ name, label, x, text: number,
    series: [{ name: options.series || name, fill: "--c0", values: m[key] }], ...options });
  section("summary", "Summary", m.every > 1 ? `Of every ${m.every} steps one is drawn.` : null, body => body.append(facts([
    ["steps", last("step")], has("loss") && ["last loss", number(last("loss"), 4)],
    has("eval_loss") && ["last evaluation loss", number(last("eval_loss"), 4)], ["tokens", countText(last("tokens") || 0)],
    has("tokens_per_s") && ["tokens per second", countText(Math.round(last("tokens_per_s")))],
    has("mfu") && ["MFU", percentText(last("mfu"))], has("peak_bytes") && ["resident memory", byteText(last("peak_bytes"))],
    ["checkpoints", DATA.checkpoints.length, DATA.checkpoints.join(", ")]])), 90);
  section("loss", "Loss", null, body => body.append(lineChart({ name: "Loss", label: "nats per token", x, text: value => number(value, 4),
    series: [{ name: "training", fill: "--c0", values: m.loss },
      ...(has("eval_loss") ? [{ name: "evaluation", fill: "--c5", values: m.eval_loss, dots: true }] : [])] }),
    chart("grad_norm", "Gradient norm", "norm before clipping", { log: m.grad_norm.every(value => value === null || value > 0) }) || "",
    chart("lr", "Learning rate", "learning rate", { zero: true }) || ""), 860);
  section("speed", "Throughput", null, body => body.append(chart("tokens_per_s", "Throughput", "tokens per second",
    { zero: true, text: countText }) || "", chart("step_time", "Step time", "seconds", { zero: true, text: timeText }) || "",
    chart("mfu", "Model FLOPs utilization", "share of the peak", { zero: true, text: percentText }) || "",
    chart("peak_bytes", "Resident memory", "bytes, the largest so far", { zero: true, text: byteText }) || ""), 900);
  const router = Object.keys(m).filter(key => key.startsWith("router."));
  if (router.length) section("experts", "Experts", "A line for each layer with experts.", body => router.forEach(key =>
    body.append(routerChart(key, m, x))), 900);
  if (DATA.memory?.ranks) section("memory", "Memory of the ranks", null, body => body.append(rankMemory(DATA.memory.ranks)), 200);
  if (DATA.recipe) section("recipe", "Recipe", null, body => body.append(el("pre", { class: "box tall", tabindex: 0 }, DATA.recipe)), 200);
}

/// Of each column its name and its unit; a column that is new has its own name.
const routerNames = { max_load: ["Greatest load of an expert", "over the mean"], dead: ["Experts that no token chose", "experts"],
  dropped: ["Choices without room", "share"], entropy: ["Entropy of a token's choice", "nats"],
  z: ["Mean square of log-sum-exp of the logits", "nats²"], balance: ["Balance loss before its weight", "loss"] };

function routerChart(key, m, x) {
  const column = key.slice("router.".length), [name, label] = routerNames[column] || [column, column];
  const layers = Math.max(...m[key].map(row => row?.length || 0));
  return lineChart({ name, label, x, text: number, height: 210, zero: column === "dropped",
    series: Array.from({ length: layers }, (_, layer) => ({ name: "layer " + layer, fill: regionFills[layer % regionFills.length],
      values: x.values.map((_, i) => m[key][i]?.[layer] ?? null) })) });
}

function rankMemory(ranks) {
  return table([{ name: "rank", value: row => row.rank }, { name: "planned", value: row => row.planned, text: row => byteText(row.planned) },
    { name: "outside of the plan", value: row => row.outside, text: row => byteText(row.outside) },
    { name: "measured peak", value: row => row.peak, text: row => byteText(row.peak) },
    { name: "peak over the sum", value: row => row.peak / (row.planned + row.outside),
      text: row => percentText(row.peak / (row.planned + row.outside) - 1) }],
    ranks.map((row, rank) => ({ rank, ...row })), { label: "memory of the ranks" }).node;
}
