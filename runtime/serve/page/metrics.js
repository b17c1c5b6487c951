// The server's /metrics, once a second while the page is seen: rates, quantiles
// of the last seconds, gauges. A sample has null where nothing was measured.
import {getText} from "./api.js";

const kMostSamples = 300; // five minutes
const kWindow = 10;       // samples; quantiles of fewer requests would jump

// {values: by name, buckets: by name [bound, count up to it]}
export function parseMetrics(text) {
  const values = {}, buckets = {};
  for (const line of text.split("\n")) {
    const found = /^(?:tessera:)?(\w+)(?:\{([^}]*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const [, name, labels, value] = found;
    const bound = labels && /^le="([^"]+)"$/.exec(labels);
    if (bound) (buckets[name.replace(/_bucket$/, "")] ??= []).push([bound[1] === "+Inf" ? Infinity : Number(bound[1]), Number(value)]);
    else if (!labels) values[name] = Number(value);
  }
  return {values, buckets};
}

// As Prometheus' histogram_quantile: linear within a bucket.
export function quantileOf(now, before, q) {
  const counts = now.map(([bound, count], i) => [bound, count - (before?.[i]?.[1] ?? 0)]);
  const total = counts.at(-1)?.[1] ?? 0, rank = q * total;
  if (total <= 0) return null;
  const i = counts.findIndex(([, count]) => count >= rank);
  const [low, less] = i > 0 ? counts[i - 1] : [0, 0], [high, count] = counts[i];
  if (high === Infinity) return low;
  return count === less ? high : low + (high - low) * (rank - less) / (count - less);
}

function rateOf(now, before, name) {
  const change = before ? now.values[name] - before.values[name] : NaN;
  return change >= 0 ? 1000 * change / (now.at - before.at) : null; // less: another server
}

function sampleOf(raws) {
  const now = raws.at(-1), before = raws.at(-2), start = raws[Math.max(0, raws.length - 1 - kWindow)], {values} = now;
  const quantile = (name, q) => raws.length > 1 && now.buckets[name] ? quantileOf(now.buckets[name], start.buckets[name], q) : null;
  return {
    at: now.at, values,
    generated: rateOf(now, before, "generation_tokens_total"), read: rateOf(now, before, "prompt_tokens_total"),
    first: [0.5, 0.95].map(q => quantile("time_to_first_token_seconds", q)),
    between: [0.5, 0.95, 0.99].map(q => quantile("inter_token_latency_seconds", q)),
    whole: [0.5, 0.95].map(q => quantile("e2e_request_latency_seconds", q)),
    used: values.kv_pages ? values.kv_pages_used / values.kv_pages : null,
    kept: values.kv_pages ? values.kv_pages_kept / values.kv_pages : null,
    running: values.num_requests_running ?? null, waiting: values.num_requests_waiting ?? null,
  };
}

// Calls tell(samples, error) after each try.
export function watchMetrics(tell) {
  const raws = [], samples = [];
  const ask = async () => {
    if (document.hidden) return;
    let problem = null;
    try {
      const parsed = parseMetrics(await getText("metrics")), last = raws.at(-1);
      if (last && parsed.values.engine_iterations_total < last.values.engine_iterations_total) raws.length = 0; // another server
      raws.push({at: performance.now(), ...parsed});
      if (raws.length > kWindow + 1) raws.shift();
      samples.push(sampleOf(raws));
      if (samples.length > kMostSamples) samples.shift();
    } catch (error) {
      problem = error;
    }
    tell(samples, problem);
  };
  const loop = async () => {
    const began = performance.now();
    await ask();
    setTimeout(loop, Math.max(200, 1000 - (performance.now() - began)));
  };
  loop();
}
