// The panel of live metrics: the main numbers, charts, and the same as a table.
import {Chart} from "./chart.js";
import {at, make} from "./dom.js";
import {watchMetrics} from "./metrics.js";

const short = value => value >= 10_000 ? (value / 1000).toFixed(0) + "k" : value >= 1000 ? (value / 1000).toFixed(1) + "k"
  : value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
const percent = value => (100 * value).toFixed(value < 0.1 && value > 0 ? 1 : 0) + " %";
const time = seconds => seconds === 0 ? "0" : seconds < 0.01 ? (1000 * seconds).toFixed(1) + " ms" : seconds < 1 ? (1000 * seconds).toFixed(0) + " ms"
  : seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
const bytes = value => value >= 2 ** 30 ? (value / 2 ** 30).toFixed(1) + " GiB" : (value / 2 ** 20).toFixed(0) + " MiB";

const quantiles = (field, names) => names.map((name, i) => ({name, pick: sample => sample[field][i], color: "c" + [0, 1, 3][i]}));

const kGenerates = [
  {title: "Throughput, tokens per second", format: short, series: [
    {name: "generated", pick: sample => sample.generated, color: "c0", isFilled: true},
    {name: "prompt", pick: sample => sample.read, color: "c1"}]},
  {title: "Time to first token", format: time, series: quantiles("first", ["median", "p95"])},
  {title: "Time between tokens", format: time, series: quantiles("between", ["median", "p95", "p99"])},
  {title: "Time of a request", format: time, series: quantiles("whole", ["median", "p95"])},
  {title: "KV cache", format: percent, top: 1, series: [
    {name: "in use", pick: sample => sample.used, color: "c2", isFilled: true},
    {name: "prefix cache", pick: sample => sample.kept, color: "c4"}]},
  {title: "Requests", format: short, series: [
    {name: "in the batch", pick: sample => sample.running, color: "c0", isFilled: true},
    {name: "waiting", pick: sample => sample.waiting, color: "c3"}]},
];
const kEmbeds = [
  {title: "Throughput, tokens per second", format: short, series: [{name: "read", pick: sample => sample.read, color: "c0", isFilled: true}]},
  {title: "Time of a request", format: time, series: quantiles("whole", ["median", "p95"])},
  {title: "Requests", format: short, series: [
    {name: "in the batch", pick: sample => sample.running, color: "c0", isFilled: true},
    {name: "waiting", pick: sample => sample.waiting, color: "c3"}]},
];

function tilesOf({values: v, generated, read}, isEmbedding) {
  const share = (part, whole) => whole ? percent(part / whole) : "–", rate = isEmbedding ? read : generated;
  return [
    ["tokens/s", rate === null ? "–" : short(rate)],
    ["running", `${v.num_requests_running}`],
    ["waiting", `${v.num_requests_waiting}`],
    ...(isEmbedding ? [["tokens read", short(v.prompt_tokens_total)]] : [
      ["prefix cache hits", share(v.prefix_cache_hits_total, v.prefix_cache_queries_total)],
      ["preemptions", `${v.num_preemptions_total}`]]),
    ...(v.spec_decode_num_draft_tokens_total ? [["drafts accepted", share(v.spec_decode_num_accepted_tokens_total, v.spec_decode_num_draft_tokens_total)]] : []),
    ...(v.process_resident_memory_bytes ? [["memory", bytes(v.process_resident_memory_bytes)]] : []),
    ...(v.compilations_after_ready_total ? [["compiled since ready", `${v.compilations_after_ready_total}`]] : []),
  ];
}

function tableOf(charts) {
  const row = (cells, tag) => make("tr", {}, ...cells.map((cell, i) => make(i ? tag : "th", i ? {} : {scope: "row"}, cell)));
  return [make("thead", {}, row(["", "now", "mean", "most"], "th")), make("tbody", {}, ...charts.flatMap(chart => chart.rows()).map(cells => row(cells, "td")))];
}

export function buildPanel(isEmbedding, tell) {
  const charts = (isEmbedding ? kEmbeds : kGenerates).map(each => new Chart(each));
  const tiles = make("dl", {class: "tiles"}), table = make("table");
  const details = make("details", {class: "as-table"}, make("summary", {}, "As a table"), table);
  const draw = samples => {
    tiles.replaceChildren(...tilesOf(samples.at(-1), isEmbedding).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    charts.forEach(chart => chart.update(samples));
    if (details.open) table.replaceChildren(...tableOf(charts));
  };
  details.addEventListener("toggle", () => details.open && table.replaceChildren(...tableOf(charts)));
  at("panel").append(tiles, make("div", {class: "charts"}, ...charts.map(chart => chart.element)), details,
                     make("p", {class: "note"}, "Sampled once a second, the last five minutes; latencies are of the last ten seconds, from the server's histograms."));
  watchMetrics((samples, problem) => {
    if (samples.length && !at("metrics").hidden) draw(samples);
    tell(problem);
  });
}
