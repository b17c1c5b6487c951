// Markdown within a paragraph: code, emphasis, links. Makes DOM nodes; no text
// becomes markup. Work is bounded: emphasis looks back over kMostMarks marks.
import {make} from "./dom.js";

const kMostMarks = 1000;
const kEscaped = /[!-/:-@[-`{-~]/; // ASCII punctuation
const kSpecial = /[\\`*_~[\]!<\n]|https?:\/\//gi;
const kSpace = /\s/u, kPunctuation = /[\p{P}\p{S}]/u;

// Nothing that runs or that a page could fetch by itself.
export function safeAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function linkTo(address, children) {
  const href = safeAddress(address);
  if (!href) return make("span", {}, ...children);
  // An image in a link.
  children = children.flatMap(child => child.tagName === "A" ? [...child.childNodes] : [child]);
  return make("a", {href, target: "_blank", rel: "noopener noreferrer nofollow"}, ...children);
}

// A run of * _ or ~ is a mark until its partner is found.
const nodeOf = item => item.mark ? document.createTextNode(item.mark.repeat(item.count)) : item;

function openerOf(items, closer, left) {
  for (let i = items.length - 1, seen = 0; i >= 0 && seen < kMostMarks; --i) {
    const item = items[i];
    if (!item.mark) continue;
    ++seen;
    if (item.mark !== closer.mark || !item.opens) continue;
    // "**a*" has no pair where both runs are of different kinds and add up to three.
    if (item.mark === "~" ? Math.min(item.count, left) >= 2 : !((item.closes || closer.opens) && (item.count + left) % 3 === 0 && left % 3 !== 0))
      return i;
  }
  return -1;
}

function emphasize(items) {
  const out = [];
  for (const item of items) {
    if (!item.mark) {
      out.push(item);
      continue;
    }
    let left = item.count;
    while (item.closes && left) {
      const i = openerOf(out, item, left);
      if (i < 0) break;
      const opener = out[i], width = Math.min(opener.count, left) >= 2 ? 2 : 1;
      const tag = item.mark === "~" ? "del" : width === 2 ? "strong" : "em";
      const node = make(tag, {}, ...out.splice(i + 1).map(nodeOf));
      left -= width;
      if (opener.count > width) out[i] = {...opener, count: opener.count - width};
      else out.pop();
      out.push(node);
    }
    if (left) out.push({...item, count: left});
  }
  return out.map(nodeOf);
}

class Parser {
  constructor(text) {
    this.text = text;
    this.place = 0;
    this.items = [];      // nodes, and marks
    this.brackets = [];   // {index in items, isImage, from: its place}
    this.noTicks = new Set(); // lengths of runs of ` without a later partner
    this.marks = 0;
  }

  say(text) {
    const last = this.items.at(-1);
    if (last?.nodeType === Node.TEXT_NODE) last.data += text;
    else if (text) this.items.push(document.createTextNode(text));
  }

  parse() {
    const {text} = this;
    while (this.place < text.length) {
      kSpecial.lastIndex = this.place;
      const found = kSpecial.exec(text), end = found ? found.index : text.length;
      this.say(text.slice(this.place, end));
      this.place = end;
      if (found) this.special(found[0]);
    }
    return emphasize(this.items);
  }

  special(sign) {
    if (sign === "\\") return this.escape();
    if (sign === "`") return this.code();
    if (sign === "*" || sign === "_" || sign === "~") return this.mark(sign);
    if (sign === "[") return this.open(false);
    if (sign === "!" && this.text[this.place + 1] === "[") return this.open(true);
    if (sign === "]") return this.close();
    if (sign === "<") return this.angle();
    if (sign === "\n") return this.lineEnd();
    if (sign.length > 1) return this.bare();
    this.take(1);
  }

  take(count) {
    this.say(this.text.slice(this.place, this.place + count));
    this.place += count;
  }

  escape() {
    const next = this.text[this.place + 1] ?? "";
    if (next === "\n") {
      this.items.push(make("br"));
    } else if (kEscaped.test(next)) {
      this.say(next);
    } else {
      return this.take(1);
    }
    this.place += 2;
  }

  code() {
    const run = /`+/y;
    run.lastIndex = this.place;
    const ticks = run.exec(this.text)[0];
    if (this.noTicks.has(ticks.length)) return this.take(ticks.length);
    const closing = new RegExp("(?<!`)" + ticks + "(?!`)", "g");
    closing.lastIndex = this.place + ticks.length;
    const end = closing.exec(this.text);
    if (!end) {
      this.noTicks.add(ticks.length);
      return this.take(ticks.length);
    }
    let inner = this.text.slice(this.place + ticks.length, end.index).replaceAll("\n", " ");
    if (/^ .*\S.* $/.test(inner)) inner = inner.slice(1, -1);
    this.items.push(make("code", {}, inner));
    this.place = end.index + ticks.length;
  }

  mark(sign) {
    let end = this.place;
    while (this.text[end] === sign) ++end;
    const before = this.text[this.place - 1] ?? " ", after = this.text[end] ?? " ", count = end - this.place;
    const isLeft = !kSpace.test(after) && (!kPunctuation.test(after) || kSpace.test(before) || kPunctuation.test(before));
    const isRight = !kSpace.test(before) && (!kPunctuation.test(before) || kSpace.test(after) || kPunctuation.test(after));
    const isWord = sign === "_";
    const opens = isLeft && (!isWord || !isRight || kPunctuation.test(before));
    const closes = isRight && (!isWord || !isLeft || kPunctuation.test(after));
    if ((!opens && !closes) || ++this.marks > kMostMarks) return this.take(count);
    this.items.push({mark: sign, count, opens, closes});
    this.place = end;
  }

  open(isImage) {
    const mark = isImage ? "![" : "[";
    this.brackets.push({index: this.items.length, isImage});
    this.items.push({mark, count: 1, opens: false, closes: false});
    this.place += mark.length;
  }

  // [text](address "title"). Images are links: the page loads nothing.
  close() {
    const bracket = this.brackets.pop();
    const target = /\]\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
    target.lastIndex = this.place;
    const found = bracket && target.exec(this.text);
    if (!found) return this.take(1);
    const inner = emphasize(this.items.splice(bracket.index).slice(1));
    const address = (found[1] ?? found[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
    if (bracket.isImage && !inner.length) inner.push(document.createTextNode(address));
    this.items.push(linkTo(address, inner));
    if (!bracket.isImage) this.brackets = []; // links contain no links
    this.place += found[0].length;
  }

  angle() {
    const address = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy, line = /<br\s*\/?>/iy;
    address.lastIndex = line.lastIndex = this.place;
    const found = address.exec(this.text), br = line.exec(this.text);
    if (!found && !br) return this.take(1);
    this.items.push(found ? linkTo(found[1], [found[1]]) : make("br"));
    this.place += (found ?? br)[0].length;
  }

  lineEnd() {
    const last = this.items.at(-1);
    const isHard = last?.nodeType === Node.TEXT_NODE && last.data.endsWith("  ");
    if (last?.nodeType === Node.TEXT_NODE) last.data = last.data.trimEnd();
    if (isHard) this.items.push(make("br"));
    else this.say("\n");
    ++this.place;
    while (this.text[this.place] === " ") ++this.place;
  }

  bare() {
    const address = /https?:\/\/[^\s<>"'`*\])}]{1,2000}/iy;
    address.lastIndex = this.place;
    const found = !/\w/.test(this.text[this.place - 1] ?? " ") && address.exec(this.text);
    if (!found) return this.take(1);
    const text = found[0].replace(/[.,;:!?_~]+$/, "");
    this.items.push(linkTo(text, [text]));
    this.place += text.length;
  }
}

export const inlineNodes = text => new Parser(text).parse();
