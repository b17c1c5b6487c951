// A line chart of samples over time, in SVG: a few hundred points, drawn anew
// once a second. The legend has the values of the pointed sample, or the latest.
import {make, makeSvg} from "./dom.js";

const kHeight = 128, kLeft = 46, kRight = 8, kTop = 8, kBottom = 20; // pixels
const kShortest = 60_000, kLongest = 300_000; // ms of the time axis
const kGap = 5000; // ms without a sample: the line has a gap

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 6, 8, 10].find(step => step * power >= value) * power;
}

export class Chart {
  // series: {name, pick: sample => value or null, color: a class, isFilled}.
  constructor({title, format, series, top}) {
    Object.assign(this, {title, format, series, top, samples: [], pointed: null});
    this.svg = makeSvg("svg", {class: "plot", role: "img", tabindex: "0", height: kHeight});
    this.values = series.map(() => make("b"));
    const legend = make("p", {class: "legend"}, ...series.map(({name, color}, i) => make("span", {}, make("i", {class: color}), name + " ", this.values[i])));
    this.when = make("span", {class: "when"});
    this.element = make("figure", {class: "chart"}, make("figcaption", {}, make("h3", {}, title), this.when), this.svg, legend);
    this.svg.addEventListener("pointermove", event => this.point(this.nearest(event.offsetX)));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", event => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  update(samples) {
    this.samples = samples;
    if (this.pointed && !samples.includes(this.pointed)) this.pointed = null;
    this.draw();
  }

  //--- scales

  get width() {
    return this.svg.clientWidth;
  }
  get end() {
    return this.samples.at(-1)?.at ?? 0;
  }
  get span() {
    return Math.min(kLongest, Math.max(kShortest, this.end - (this.samples[0]?.at ?? 0)));
  }
  x(time) {
    return this.width - kRight - (this.width - kLeft - kRight) * (this.end - time) / this.span;
  }
  y(value, top) {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * Math.min(value / top, 1);
  }

  nearest(x) {
    let best = null;
    for (const sample of this.samples)
      if (!best || Math.abs(this.x(sample.at) - x) < Math.abs(this.x(best.at) - x)) best = sample;
    return best;
  }

  onKey(event) {
    const {samples} = this, i = this.pointed ? samples.indexOf(this.pointed) : samples.length - 1;
    const next = {ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: samples.length - 1}[event.key];
    if (next === undefined || !samples.length) return;
    event.preventDefault();
    this.point(samples[Math.min(Math.max(next, 0), samples.length - 1)]);
  }

  point(sample) {
    this.pointed = sample;
    this.draw();
  }

  //--- drawing

  draw() {
    if (!this.width) return; // not seen
    const shown = this.samples.filter(sample => this.end - sample.at <= kLongest);
    const most = Math.max(0, ...shown.flatMap(sample => this.series.map(({pick}) => pick(sample) ?? 0)));
    const top = this.top ?? niceTop(most);
    const isEmpty = shown.every(sample => this.series.every(({pick}) => (pick(sample) ?? null) === null));
    const note = isEmpty ? [makeSvg("text", {x: (this.width + kLeft) / 2, y: (kHeight - kBottom) / 2, "text-anchor": "middle"}, "no requests yet")] : [];
    this.svg.replaceChildren(...this.grid(top), ...note, ...this.series.flatMap(each => this.line(each, shown, top)), ...this.cursor(top));
    this.say();
  }

  grid(top) {
    const left = kLeft, right = this.width - kRight, text = (x, y, side, value) => makeSvg("text", {x, y, "text-anchor": side}, value);
    const rows = [0, top / 2, top].flatMap(value => {
      const y = this.y(value, top);
      return [makeSvg("line", {x1: left, x2: right, y1: y, y2: y}), text(left - 6, y + 4, "end", this.format(value))];
    });
    const minutes = this.span > 90_000, step = minutes ? 60_000 : 20_000;
    for (let age = 0; age <= this.span + 1; age += step)
      rows.push(text(this.x(this.end - age), kHeight - 4, age ? this.x(this.end - age) < left + 14 ? "start" : "middle" : "end",
                     age ? `−${minutes ? age / 60_000 + " min" : age / 1000 + " s"}` : "now"));
    return rows;
  }

  line({pick, color, isFilled}, shown, top) {
    const runs = [];
    let last = -Infinity;
    for (const sample of shown) {
      const value = pick(sample);
      if (value === null || value === undefined) {
        last = -Infinity;
        continue;
      }
      if (sample.at - last > kGap) runs.push([]);
      runs.at(-1).push([this.x(sample.at), this.y(value, top)]);
      last = sample.at;
    }
    const pathOf = points => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
    const base = this.y(0, top);
    const areas = isFilled ? runs.map(points => makeSvg("path", {class: "area " + color, d: `${pathOf(points)}L${points.at(-1)[0].toFixed(1)} ${base}L${points[0][0].toFixed(1)} ${base}Z`})) : [];
    const lines = runs.map(points => points.length > 1 ? makeSvg("path", {class: "line " + color, d: pathOf(points)})
                                                       : makeSvg("circle", {class: "dot " + color, cx: points[0][0], cy: points[0][1], r: 1.5}));
    return [...areas, ...lines];
  }

  cursor(top) {
    if (!this.pointed) return [];
    const x = this.x(this.pointed.at);
    const dots = this.series.flatMap(({pick, color}) => {
      const value = pick(this.pointed);
      return value === null || value === undefined ? [] : [makeSvg("circle", {class: "dot " + color, cx: x, cy: this.y(value, top), r: 3.5})];
    });
    return [makeSvg("line", {class: "cursor", x1: x, x2: x, y1: kTop, y2: kHeight - kBottom}), ...dots];
  }

  say() {
    const sample = this.pointed ?? this.samples.at(-1);
    const texts = this.series.map(({pick}) => {
      const value = sample && pick(sample);
      return value === null || value === undefined ? "–" : this.format(value);
    });
    texts.forEach((text, i) => this.values[i].textContent = text);
    this.when.textContent = this.pointed ? `${Math.round((this.end - this.pointed.at) / 1000)} s ago` : "";
    this.svg.setAttribute("aria-label", `${this.title}: ${this.series.map(({name}, i) => `${name} ${texts[i]}`).join(", ")}`);
  }

  // Of the shown samples: the latest, mean and most of each series.
  rows() {
    return this.series.map(({name, pick}) => {
      const values = this.samples.map(pick).filter(value => value !== null && value !== undefined);
      const texts = values.length ? [values.at(-1), values.reduce((sum, value) => sum + value, 0) / values.length, Math.max(...values)].map(this.format) : ["–", "–", "–"];
      return [`${this.title}, ${name}`, ...texts];
    });
  }
}
