// Colors for code blocks: comments, strings, numbers, keywords. A tokenizer a
// family of languages, not a parser.
import {make} from "./dom.js";

const kMostLength = 50_000; // characters; longer code is plain

const words = text => text.split(" ");
const kCommon = words("if else for while do switch case default break continue return try catch finally throw new delete this class struct enum interface public private protected static const extends implements import export from in of as async await yield true false null void");
const kC = words("auto bool char double float int long short signed unsigned sizeof typedef union template typename namespace using virtual override constexpr inline nullptr noexcept operator include define ifdef ifndef endif pragma __global__ __device__ __shared__ size_t");
const kScript = words("let var function typeof instanceof undefined type readonly keyof super get set");
const kOthers = words("fn let mut impl trait pub use mod match loop move ref self Self where crate unsafe dyn func package go defer chan map range select type var fun val when object companion guard nil string boolean final abstract package");
const kPython = words("def class return if elif else for while in is not and or import from as with try except finally raise pass break continue lambda yield global nonlocal assert async await None True False self match case");
const kShell = words("if then else elif fi for in do done while case esac function return export local echo cd sudo set unset source exit");
const kSql = words("select from where group by order having limit join left right inner outer on as and or not null insert into values update set delete create table index view drop alter primary key distinct union all exists between like case when then else end count sum avg min max");

const kStrings = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const kNumber = String.raw`\b(?:0[xX][\da-fA-F_]+|\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?)\w*\b`;

const family = (comment, strings, keywords, flags = "") => ({
  pattern: new RegExp(`(${comment})|(${strings})|(${kNumber})|([A-Za-z_]\\w*)(?=(\\s*\\()?)`, "g" + flags),
  keywords: new Set(keywords),
  ignoresCase: flags.includes("i"),
});

const kSlashes = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`, kHash = String.raw`#[^\n]*`;
const kFamilies = {
  c: family(kSlashes, kStrings, [...kCommon, ...kC, ...kOthers]),
  script: family(kSlashes, kStrings + "|`(?:\\\\.|[^`\\\\])*`?", [...kCommon, ...kScript]),
  python: family(kHash, String.raw`[rbfu]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${kStrings})`, kPython),
  shell: family(String.raw`(?<![\w$])#[^\n]*`, kStrings, kShell),
  sql: family(String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|$)`, kStrings, kSql, "i"),
  data: family(kHash, kStrings, words("true false null yes no")),
  markup: family(String.raw`<!--[^]*?(?:-->|$)`, kStrings, []),
};
const kLanguages = {
  c: "c", "c++": "c", cpp: "c", cc: "c", h: "c", hpp: "c", cuda: "c", cu: "c", java: "c", go: "c", rust: "c", rs: "c", kotlin: "c",
  swift: "c", cs: "c", csharp: "c", "c#": "c", php: "c", mlir: "c", css: "c", scala: "c", dart: "c",
  js: "script", javascript: "script", jsx: "script", ts: "script", typescript: "script", tsx: "script",
  py: "python", python: "python", python3: "python", ruby: "python", rb: "python", julia: "python",
  sh: "shell", bash: "shell", shell: "shell", zsh: "shell", console: "shell", dockerfile: "shell", makefile: "shell",
  sql: "sql", json: "data", jsonc: "data", yaml: "data", yml: "data", toml: "data", ini: "data",
  html: "markup", xml: "markup", svg: "markup",
};

function kindOf(found, {keywords, ignoresCase}) {
  const [, comment, string, number, word, call] = found;
  if (comment !== undefined) return "comment";
  if (string !== undefined) return "string";
  if (number !== undefined) return "number";
  if (keywords.has(ignoresCase ? word.toLowerCase() : word)) return "keyword";
  return call !== undefined ? "call" : null;
}

// Strings and spans.
export function highlighted(text, language) {
  const chosen = kFamilies[kLanguages[language]];
  if (!chosen || text.length > kMostLength) return [text];
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(chosen.pattern)) {
    const kind = kindOf(found, chosen);
    if (!kind) continue;
    parts.push(text.slice(end, found.index), make("span", {class: "code-" + kind}, found[0]));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)].filter(part => part !== "");
}
