// The page: what is where, the keyboard, and the start.
import {getJson} from "./api.js";
import {alertLine, buildChat, changeSettings, isRunning, newChat, onChats, openChat, send, showButtons, stop, welcome} from "./chat.js";
import {at, icon, make} from "./dom.js";
import {buildEmbeddings, compare, isComparing, stopComparing} from "./embed.js";
import {adapterCount, loadModels} from "./models.js";
import {buildPanel} from "./panel.js";
import {buildSettings} from "./settings.js";
import {buildSidebar, showChats, showSidebar} from "./sidebar.js";
import {chatOf, load} from "./store.js";
import {hideTip} from "./tokens.js";

const kDrawers = ["settings", "metrics"];
let isEmbedding = false;

//--- drawers and theme

function showDrawer(name) {
  for (const each of kDrawers) {
    at(each).hidden = each !== name;
    at("show-" + each).setAttribute("aria-expanded", each === name);
  }
  document.body.classList.toggle("has-drawer", Boolean(name));
  document.body.classList.toggle("is-wide", name === "metrics" && at("widen").getAttribute("aria-pressed") === "true");
  if (name) at(name).querySelector(".close").focus();
}

const closeWide = () => document.body.classList.contains("is-wide") && showDrawer(null);

function goToText() {
  closeWide();
  at("text").focus();
}

function buildDrawers() {
  for (const name of kDrawers) {
    at("show-" + name).addEventListener("click", () => showDrawer(at(name).hidden ? name : null));
    at(name).querySelector(".close").addEventListener("click", () => {
      showDrawer(null);
      at("show-" + name).focus();
    });
  }
  at("widen").addEventListener("click", () => {
    at("widen").setAttribute("aria-pressed", !document.body.classList.contains("is-wide"));
    document.body.classList.toggle("is-wide");
  });
  // A chat is behind metrics that fill the page.
  at("sidebar").addEventListener("click", event => event.target.closest("#new, .title") && closeWide());
  for (const button of document.querySelectorAll("button.icon[aria-label]")) button.title = button.getAttribute("aria-label");
}

function buildTheme() {
  const show = () => {
    const isDark = document.documentElement.dataset.theme === "dark";
    at("theme").setAttribute("aria-pressed", isDark);
    at("theme").replaceChildren(icon(isDark ? "sun" : "moon"));
  };
  at("theme").addEventListener("click", () => switchTheme()); // of theme.js
  document.addEventListener("theme", show);
  show();
}

//--- the message box

function fit() {
  at("text").style.height = "auto";
  at("text").style.height = Math.min(at("text").scrollHeight, innerHeight * 0.4) + "px";
  updateButtons();
}

const updateButtons = () => isEmbedding ? at("send").disabled = isComparing() || !at("text").value.trim() : showButtons();

async function submit() {
  const text = at("text").value;
  if (isEmbedding) {
    const done = compare(text);
    updateButtons();
    if (await done) at("text").value = "";
  } else if (send(text)) {
    at("text").value = "";
  }
  fit();
}

// A phone's Enter is a new line; its button sends.
const isTouch = () => matchMedia("(pointer: coarse)").matches;

function buildBox() {
  at("form").addEventListener("submit", event => {
    event.preventDefault();
    submit();
  });
  at("text").addEventListener("input", fit);
  at("text").addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouch()) return;
    if (isEmbedding && !event.ctrlKey) return; // lines are texts
    event.preventDefault();
    submit();
  });
}

//--- the keyboard

function escape() {
  if (!at("tip").hidden) return hideTip();
  if (isEmbedding ? isComparing() : isRunning()) return isEmbedding ? stopComparing() : stop();
  const open = kDrawers.find(name => !at(name).hidden);
  if (open) {
    showDrawer(null);
    at("show-" + open).focus();
  } else if (matchMedia("(max-width: 800px)").matches) {
    showSidebar(false);
  }
}

function onKey(event) {
  if (document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key === "Escape") escape();
  else if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && !isEmbedding) at("new").click();
  else if (!isTyping && !event.ctrlKey && !event.metaKey && !event.altKey && event.key === "/") goToText();
  else if (!isTyping && event.key === "?") at("keys").showModal();
  else return;
  event.preventDefault();
}

//--- the start

let offline = false;

function showState(problem) {
  if (problem) at("state").textContent = problem.message;
  else if (offline) at("state").textContent = "";
  if (offline && !problem) loadModels().then(updateButtons, () => {}); // it is back, perhaps with other models
  offline = Boolean(problem);
}

async function begin() {
  buildTheme();
  buildDrawers();
  buildBox();
  document.addEventListener("keydown", onKey);
  try {
    const [models, description] = await Promise.all([loadModels(), getJson("openapi.json")]);
    const isRanking = "/v1/rerank" in description.paths;
    isEmbedding = isRanking || "/v1/embeddings" in description.paths;
    buildPanel(isEmbedding, showState);
    if (isEmbedding) {
      buildEmbeddings(models[0], isRanking);
    } else {
      load();
      buildChat();
      buildSettings(changeSettings);
      onChats(showChats);
      const shown = chatOf(location.hash.slice(1));
      if (shown) openChat(shown.id);
      else newChat();
      buildSidebar();
      welcome(models[0], adapterCount());
      addEventListener("focus", () => loadModels().then(updateButtons, () => {}));
      at("hint").append(make("kbd", {}, "Enter"), " sends, ", make("kbd", {}, "Shift Enter"), " starts a line, ", make("kbd", {}, "?"), " shows all keys");
    }
    document.documentElement.dataset.ready = "";
  } catch (error) {
    at("log").append(alertLine(error.message + ".", error.hint ?? "Reload the page."));
  }
  at("text").focus();
}

begin();
