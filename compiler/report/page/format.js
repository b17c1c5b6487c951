// Numbers for people.
const prefixes = ["", "k", "M", "G", "T", "P", "E"];

function number(value, digits = 3) {
  if (value === 0) return "0";
  const text = Number(value.toPrecision(digits));
  return Math.abs(text) >= 1e6 || Math.abs(text) < 1e-4 ? value.toExponential(digits - 1) : String(text);
}
function scaled(value, unit) {
  let i = 0;
  while (Math.abs(value) >= 999.5 && i < prefixes.length - 1) { value /= 1000; ++i; }
  return number(value) + " " + prefixes[i] + unit;
}
function flopText(value) { return value ? scaled(value, "FLOP") : "–"; }
function byteText(value) { return value === 0 ? "0 B" : scaled(value, "B"); }
function countText(value) { return value < 1000 ? String(value) : scaled(value, "").trim(); }
function timeText(seconds) {
  if (seconds === 0) return "0 s";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6]])
    if (Math.abs(seconds) >= size && (size <= 1 || seconds >= 2 * size)) return number(seconds / size) + " " + unit;
  return number(seconds / 1e-9) + " ns";
}
function percentText(share) { return (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %"; }

/// Round numbers from `low` to `high`, about `count`.
function ticks(low, high, count) {
  const span = high - low || 1, raw = span / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw * 0.999);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) list.push(i * step);
  return list;
}
/// Powers of ten from `low` to `high`, at most `most`; round numbers if there is
/// but one power.
function decades(low, high, most) {
  if (high / low < 100) return ticks(low, high, Math.min(most, 5)).filter(value => value > 0);
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / most)), list = [];
  for (let i = first; i <= last; i += step) list.push(10 ** i);
  return list;
}
function launchText(count) { return count === 1 ? "1 launch" : countText(count) + " launches"; }
