// Markdown as models write it: headings, paragraphs, lists, tables, quotes,
// code. A safe subset without HTML, made into DOM nodes.
import {copyButton, make} from "./dom.js";
import {highlighted} from "./highlight.js";
import {inlineNodes} from "./inline.js";

const kMostDeep = 24; // nested quotes and lists; deeper ones are text
const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const kRule = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const kDelimiters = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const kBlank = /^\s*$/;

const startsTable = (lines, i) =>
  lines[i].includes("|") && kDelimiters.test(lines[i + 1] ?? "") && cellsOf(lines[i]).length === cellsOf(lines[i + 1]).length;

const startsBlock = (lines, i) =>
  kFence.test(lines[i]) || kHeading.test(lines[i]) || kRule.test(lines[i]) || kQuote.test(lines[i]) ||
  /^ {0,3}([-*+]|1[.)])[ \t]+\S/.test(lines[i]) || startsTable(lines, i);

function cellsOf(line) {
  const cells = line.trim().replace(/^\|/, "").split(/(?<!\\)\|/);
  if (cells.length > 1 && kBlank.test(cells.at(-1))) cells.pop();
  return cells.map(cell => cell.trim().replaceAll("\\|", "|"));
}

const indentOf = line => line.length - line.trimStart().length;

//--- each returns {end: the line after the block, build: its node}

function fence(lines, i) {
  const [, marks, about] = kFence.exec(lines[i]), indent = indentOf(lines[i]);
  const closing = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  let end = i + 1;
  while (end < lines.length && !closing.test(lines[end])) ++end;
  const text = lines.slice(i + 1, end).map(line => line.slice(Math.min(indent, indentOf(line)))).join("\n");
  return {end: end + 1, build: () => codeBlock(text, about.trim().split(/\s/)[0])};
}

function codeBlock(text, language) {
  const head = make("figcaption", {}, make("span", {}, language || "text"), copyButton(() => text, "Copy the code"));
  const code = make("code", {}, ...highlighted(text, language.toLowerCase()));
  return make("figure", {class: "code"}, head, make("pre", {tabindex: "0"}, code));
}

function indented(lines, i) {
  let end = i;
  while (end < lines.length && (/^ {4}/.test(lines[end]) || kBlank.test(lines[end]))) ++end;
  while (kBlank.test(lines[end - 1])) --end;
  return {end, build: () => codeBlock(lines.slice(i, end).map(line => line.slice(4)).join("\n"), "")};
}

function heading(lines, i) {
  const [head, marks] = kHeading.exec(lines[i]);
  const text = lines[i].slice(head.length).trim(), closing = text.lastIndexOf(" ");
  const shown = /^#*$/.test(text.slice(closing + 1)) ? text.slice(0, Math.max(closing, 0)) : text;
  // The page has one h1 and panels with h2.
  const level = Math.min(marks.length + 2, 6);
  return {end: i + 1, build: () => make("h" + level, {class: "h" + marks.length}, ...inlineNodes(shown))};
}

function quote(lines, i, depth) {
  let end = i;
  while (end < lines.length && kQuote.test(lines[end])) ++end;
  const inner = lines.slice(i, end).map(line => line.replace(kQuote, ""));
  return {end, build: () => make("blockquote", {}, ...nodesOf(inner, depth + 1))};
}

function table(lines, i) {
  let end = i + 2;
  while (end < lines.length && lines[end].includes("|") && !kBlank.test(lines[end])) ++end;
  const sides = cellsOf(lines[i + 1]).map(cell => cell.endsWith(":") ? cell.startsWith(":") ? "center" : "right" : null);
  const row = (line, tag) => {
    const cells = cellsOf(line);
    return make("tr", {}, ...sides.map((side, k) => make(tag, {class: side}, ...inlineNodes(cells[k] ?? ""))));
  };
  const build = () => make("div", {class: "table", tabindex: "0"}, make("table", {},
    make("thead", {}, row(lines[i], "th")), make("tbody", {}, ...lines.slice(i + 2, end).map(line => row(line, "td")))));
  return {end, build};
}

// The lines of one item, without its marker and indent, and where it ends.
function itemOf(lines, i) {
  const [marker, indent] = kItem.exec(lines[i]);
  const own = indent.length, width = kBlank.test(lines[i].slice(marker.length)) ? own + 2 : Math.min(marker.length, own + 6);
  const inner = [lines[i].slice(width)];
  let end = i + 1;
  for (; end < lines.length; ++end) {
    const line = lines[end];
    if (kBlank.test(line)) {
      let next = end + 1;
      while (next < lines.length && kBlank.test(lines[next])) ++next;
      if (next === lines.length || indentOf(lines[next]) < Math.min(width, own + 2)) break;
      inner.push(...lines.slice(end, next));
      end = next - 1;
    } else if (indentOf(line) >= Math.min(width, own + 2)) {
      inner.push(line.slice(Math.min(indentOf(line), width)));
    } else if (kItem.test(line) || startsBlock(lines, end)) {
      break;
    } else {
      inner.push(line.trimStart()); // a paragraph that goes on
    }
  }
  return {inner, end};
}

function list(lines, i, depth) {
  const [, indent, marker] = kItem.exec(lines[i]);
  const isOrdered = /\d/.test(marker), sign = marker.at(-1), items = [];
  let end = i, isLoose = false;
  while (end < lines.length) {
    const found = kItem.exec(lines[end]);
    if (!found || found[2].at(-1) !== sign || found[1].length > indent.length + 3 || kRule.test(lines[end])) break;
    const item = itemOf(lines, end);
    items.push(item.inner);
    let next = item.end;
    while (next < lines.length && kBlank.test(lines[next])) ++next;
    isLoose ||= next > item.end && next < lines.length && kItem.exec(lines[next])?.[2].at(-1) === sign;
    end = next > item.end && !kItem.test(lines[next] ?? "") ? item.end : next;
  }
  const build = () => {
    const first = isOrdered ? parseInt(marker) : 1;
    return make(isOrdered ? "ol" : "ul", {start: first === 1 ? null : first, class: isLoose ? "loose" : null},
                ...items.map(inner => listItem(inner, depth)));
  };
  return {end, build};
}

function listItem(inner, depth) {
  const task = /^\[([ xX])\]\s+/.exec(inner[0]);
  if (task) inner = [inner[0].slice(task[0].length), ...inner.slice(1)];
  const box = task && make("input", {type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? "open" : "done"});
  return make("li", {class: task ? "task" : null}, box, ...nodesOf(inner, depth + 1));
}

function paragraph(lines, i) {
  let end = i + 1;
  while (end < lines.length && !kBlank.test(lines[end]) && !startsBlock(lines, end)) {
    if (/^ {0,3}=+[ \t]*$/.test(lines[end])) {
      const text = lines.slice(i, end).join("\n").trim();
      return {end: end + 1, build: () => make("h3", {class: "h1"}, ...inlineNodes(text))};
    }
    ++end;
  }
  const text = lines.slice(i, end).map(line => line.trimStart()).join("\n").trimEnd();
  return {end, build: () => make("p", {}, ...inlineNodes(text))};
}

function blockAt(lines, i, depth) {
  const line = lines[i];
  if (kFence.test(line)) return fence(lines, i);
  if (/^ {4}/.test(line)) return indented(lines, i);
  if (kHeading.test(line)) return heading(lines, i);
  if (kRule.test(line)) return {end: i + 1, build: () => make("hr")};
  if (depth < kMostDeep && kQuote.test(line)) return quote(lines, i, depth);
  if (depth < kMostDeep && kItem.test(line)) return list(lines, i, depth);
  if (startsTable(lines, i)) return table(lines, i);
  return paragraph(lines, i);
}

function blocksOf(lines, depth) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (kBlank.test(lines[i])) {
      ++i;
      continue;
    }
    const block = blockAt(lines, i, depth);
    blocks.push({source: lines.slice(i, block.end).join("\n"), build: block.build});
    i = block.end;
  }
  return blocks;
}

// A tab before a line is an indent, but in code it is a tab.
function linesOf(text) {
  let open = null;
  return text.split(/\r\n?|\n/).map(line => {
    const found = kFence.exec(line);
    if (found) open = !open ? found[1] : found[1].startsWith(open) ? null : open;
    return open ? line : line.replace(/^[ \t]+/, space => space.replaceAll("\t", "    "));
  });
}

const nodesOf = (lines, depth) => blocksOf(lines, depth).map(block => block.build());

// Keeps the nodes of blocks that have not changed, so that a stream costs its
// last block a frame.
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.sources = [];
  }

  update(text) {
    const blocks = blocksOf(linesOf(text), 0);
    let same = 0;
    while (same < blocks.length && same < this.sources.length && blocks[same].source === this.sources[same]) ++same;
    while (this.root.childNodes.length > same) this.root.lastChild.remove();
    this.root.append(...blocks.slice(same).map(block => block.build()));
    this.sources = blocks.map(block => block.source);
  }
}
