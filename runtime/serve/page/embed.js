// The page of an encoder or a cross-encoder: lines are compared with the first, by the cosine of embeddings or by relevance.
import {postJson} from "./api.js";
import {alertLine, toEnd} from "./chat.js";
import {at, make} from "./dom.js";
import {chosenModel} from "./models.js";

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

function cosines(vectors) {
  const [first] = vectors, length = vector => Math.sqrt(dot(vector, vector));
  return vectors.map(vector => dot(first, vector) / (length(first) * length(vector) || 1));
}

/// A row for each text: a number, which a bar shows if it is from 0 to 1.
function tableOf(name, texts, numbers, first) {
  const rows = texts.map((text, i) => {
    const bar = make("i");
    bar.style.width = Math.min(100, Math.max(0, 100 * numbers[i])) + "%";
    return make("tr", {}, make("td", {class: "number"}, numbers[i].toFixed(3)), make("td", {class: "bar"}, bar), make("td", {class: "line"}, text));
  });
  const head = make("tr", {}, ...[name, "", `with “${first.slice(0, 60)}”`].map(each => make("th", {}, each)));
  return make("article", {class: "message alike"}, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

async function embed(texts, signal) {
  const {data} = await postJson("v1/embeddings", {model: chosenModel(), input: texts}, signal);
  return tableOf("Cosine", texts, cosines(data.map(each => each.embedding)), texts[0]);
}

async function rank([query, ...documents], signal) {
  const {results} = await postJson("v1/rerank", {model: chosenModel(), query, documents}, signal);
  return tableOf("Relevance", results.map(each => each.document.text), results.map(each => each.relevance_score), query);
}

let ranks = false;
let running = null;

export const isComparing = () => running !== null;
export const stopComparing = () => running?.abort();

export async function compare(text) {
  const texts = text.split("\n").filter(Boolean);
  if (running || !texts.length) return false;
  at("main").classList.remove("is-new");
  if (ranks && texts.length < 2) {
    at("log").append(alertLine("Write a document on a line after the query.", ""));
    return false;
  }
  running = new AbortController();
  try {
    at("log").append(await (ranks ? rank : embed)(texts, running.signal));
  } catch (error) {
    if (error.name !== "AbortError") at("log").append(alertLine(error.message + ".", error.hint ?? ""));
  }
  running = null;
  toEnd();
  return true;
}

export function buildEmbeddings(model, isRanking) {
  ranks = isRanking;
  document.body.classList.add("embeds", "no-sidebar");
  at("text").placeholder = ranks ? "A query, and a document on each line after it" : "One text per line; each is compared with the first";
  at("text").rows = 3;
  at("hint").append(make("kbd", {}, "Ctrl Enter"), ranks ? " ranks" : " compares");
  at("welcome").replaceChildren(
    make("div", {class: "mosaic", "aria-hidden": "true"}, make("i"), make("i"), make("i"), make("i")),
    make("h2", {}, ranks ? "Rank documents" : "Compare texts"),
    make("p", {}, make("b", {}, model.id), ranks ? " scores the relevance of documents to a query, both together of up to " : " is an encoder: it computes embeddings of up to ",
      `${model.max_model_len.toLocaleString("en")} tokens.`));
  at("main").classList.add("is-new");
}
