// The page of an encoder: lines are compared with the first, by cosine.
import {postJson} from "./api.js";
import {alertLine, toEnd} from "./chat.js";
import {at, make} from "./dom.js";
import {chosenModel} from "./models.js";

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

function tableOf(texts, vectors) {
  const [first] = vectors, length = vector => Math.sqrt(dot(vector, vector));
  const rows = vectors.map((vector, i) => {
    const alike = dot(first, vector) / (length(first) * length(vector) || 1), bar = make("i");
    bar.style.width = Math.max(0, 100 * alike) + "%";
    return make("tr", {}, make("td", {class: "number"}, alike.toFixed(3)), make("td", {class: "bar"}, bar), make("td", {class: "line"}, texts[i]));
  });
  const head = make("tr", {}, ...["Cosine", "", `with “${texts[0].slice(0, 60)}”`].map(name => make("th", {}, name)));
  return make("article", {class: "message alike"}, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

let running = null;

export const isComparing = () => running !== null;
export const stopComparing = () => running?.abort();

export async function compare(text) {
  const texts = text.split("\n").filter(Boolean);
  if (running || !texts.length) return false;
  running = new AbortController();
  at("main").classList.remove("is-new");
  try {
    const {data} = await postJson("v1/embeddings", {model: chosenModel(), input: texts}, running.signal);
    at("log").append(tableOf(texts, data.map(each => each.embedding)));
  } catch (error) {
    if (error.name !== "AbortError") at("log").append(alertLine(error.message + ".", error.hint ?? ""));
  }
  running = null;
  toEnd();
  return true;
}

export function buildEmbeddings(model) {
  document.body.classList.add("embeds", "no-sidebar");
  at("text").placeholder = "One text per line; each is compared with the first";
  at("text").rows = 3;
  at("hint").append(make("kbd", {}, "Ctrl Enter"), " compares");
  at("welcome").replaceChildren(
    make("div", {class: "mosaic", "aria-hidden": "true"}, make("i"), make("i"), make("i"), make("i")),
    make("h2", {}, "Compare texts"),
    make("p", {}, make("b", {}, model.id), ` is an encoder: it computes embeddings of up to ${model.max_model_len.toLocaleString("en")} tokens.`));
  at("main").classList.add("is-new");
}
