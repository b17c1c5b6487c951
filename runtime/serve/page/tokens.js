// Tokens of an answer with their probabilities: tinted text, and details of one
// under the pointer or at the arrow keys. They are large, so only in memory.
import {at, make} from "./dom.js";

const tokens = new WeakMap(); // node -> {list, decoder}

// Upper bounds of the tints, from unlikely to nearly certain.
const kTints = [0.05, 0.2, 0.5, 0.8];
export const tintOf = logprob => kTints.filter(bound => Math.exp(logprob) >= bound).length;

const ofChat = (each, decoder) => ({
  text: each.bytes ? decoder.decode(Uint8Array.from(each.bytes), {stream: true}) : each.token,
  name: each.token, logprob: each.logprob,
  top: each.top_logprobs.map(({token, logprob}) => ({name: token, logprob}))});

const ofCompletion = ({tokens, token_logprobs, top_logprobs}) => tokens.map((token, i) => ({
  text: token, name: token, logprob: token_logprobs[i] ?? 0,
  top: Object.entries(top_logprobs?.[i] ?? {}).map(([name, logprob]) => ({name, logprob}))}));

export function addTokens(node, logprobs) {
  if (!tokens.has(node)) tokens.set(node, {list: [], decoder: new TextDecoder()});
  const {list, decoder} = tokens.get(node);
  if (logprobs.content) list.push(...logprobs.content.map(each => ofChat(each, decoder)));
  else if (logprobs.tokens) list.push(...ofCompletion(logprobs));
}

// Tokens that end the text, or that a stop string took away, are not in it.
export function endTokens(node) {
  let length = 0;
  for (const token of tokens.get(node)?.list ?? []) {
    token.isOver = length >= node.content.length && token.text !== "";
    length += token.text.length;
  }
}

export const hasTokens = node => tokens.has(node);

const visible = name => name.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "(empty)";
const percent = logprob => {
  const value = 100 * Math.exp(logprob);
  return value >= 99.95 ? "100 %" : value >= 0.1 ? value.toFixed(1) + " %" : "< 0.1 %";
};

function alternatives(token) {
  const rows = token.top.some(each => each.name === token.name && each.logprob === token.logprob) ? token.top : [...token.top, token];
  return rows.map(each => {
    const bar = make("i");
    bar.style.width = 100 * Math.exp(each.logprob) + "%";
    return make("tr", {class: each.name === token.name ? "chosen" : null}, make("td", {}, make("code", {}, visible(each.name))),
                make("td", {}, percent(each.logprob)), make("td", {class: "bar"}, bar));
  });
}

export const hideTip = () => {
  at("tip").hidden = true;
};

function showTip(token, span) {
  const tip = at("tip"), box = span.getClientRects()[0] ?? span.getBoundingClientRect();
  tip.replaceChildren(
    make("p", {}, make("code", {}, visible(token.name)), make("b", {}, percent(token.logprob)), make("span", {}, `logprob ${token.logprob.toFixed(3)}`)),
    make("table", {"aria-label": "likeliest tokens"}, ...alternatives(token)));
  tip.hidden = false;
  const left = Math.min(Math.max(8, box.left), innerWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.left = left + "px";
  tip.style.top = (above > 8 ? above : box.bottom + 6) + "px";
}

export class TokenView {
  constructor(root, node) {
    this.node = node;
    this.place = -1;
    this.text = make("div", {class: "tokens", tabindex: "0", role: "group", "aria-label": "Tokens with probabilities; the arrow keys go through them"});
    this.said = make("span", {class: "hidden", "aria-live": "polite"});
    root.replaceChildren(this.text, this.said, legend());
    this.text.addEventListener("pointerover", event => event.target !== this.text && this.show([...this.text.children].indexOf(event.target), false));
    this.text.addEventListener("pointerleave", hideTip);
    this.text.addEventListener("blur", () => this.show(-1));
    this.text.addEventListener("keydown", event => this.onKey(event));
    this.update();
  }

  get list() {
    return tokens.get(this.node)?.list ?? [];
  }

  update() {
    const fresh = this.list.slice(this.text.children.length);
    this.text.append(...fresh.map(token => make("span", {class: "tint" + tintOf(token.logprob)}, token.text)));
    this.list.forEach((token, i) => token.isOver && this.text.children[i].classList.add("over"));
  }

  onKey(event) {
    const last = this.list.length - 1;
    const next = {ArrowRight: this.place + 1, ArrowLeft: this.place - 1, Home: 0, End: last}[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    this.show(Math.min(Math.max(next, 0), last));
    this.said.textContent = `${this.list[this.place].name}, ${percent(this.list[this.place].logprob)}`;
  }

  show(i, isKey = true) {
    if (isKey) {
      this.text.children[this.place]?.classList.remove("at");
      this.place = i;
      this.text.children[i]?.classList.add("at");
    }
    if (i < 0) return hideTip();
    showTip(this.list[i], this.text.children[i]);
  }
}

const legend = () => make("p", {class: "legend", "aria-hidden": "true"}, "unlikely",
  ...[0, 1, 2, 3, 4].map(i => make("i", {class: "tint" + i})), "certain");
