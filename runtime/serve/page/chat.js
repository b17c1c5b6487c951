// The chat that is shown, and the answers in progress, one a chat at most. Going
// to another chat stops none.
import {at, icon, make} from "./dom.js";
import {generate} from "./generate.js";
import {MessageView} from "./messages.js";
import {chosenModel, chooseModel} from "./models.js";
import {showSettings} from "./settings.js";
import * as store from "./store.js";
import {hideTip} from "./tokens.js";
import {add, pathOf, showVersion, siblingsOf, titleOf} from "./tree.js";

let chat = null;       // not stored before its first message
let views = new Map(); // by id of the node
const runs = new Map(); // id of a chat -> {controller, node}
let tell = () => {};

export const currentChat = () => chat;
export const onChats = call => (tell = call);
export const isRunning = () => runs.has(chat.id);

//--- showing

const isAtEnd = () => at("scroll").scrollHeight - at("scroll").scrollTop - at("scroll").clientHeight < 60;
export const toEnd = () => at("scroll").scrollTo({top: at("scroll").scrollHeight});

export function showButtons() {
  const running = isRunning();
  at("log").classList.toggle("is-running", running);
  at("stop").hidden = !running;
  at("send").hidden = running;
  at("send").disabled = !at("text").value.trim() || !chosenModel();
  at("down").hidden = isAtEnd();
}

function viewOf(node) {
  const view = new MessageView(node, siblingsOf(chat, node), {
    edit: (old, text) => isRunning() || answer(add(chat, old.parent, "user", text)),
    again: old => isRunning() || answer(chat.nodes[old.parent]),
    show: to => {
      showVersion(chat, to);
      store.save(chat);
      show();
    }});
  view.setBusy(runs.get(chat.id)?.node === node);
  return view;
}

function show() {
  hideTip();
  const path = pathOf(chat);
  // Views of the same message with the same versions remain, with what is open.
  const old = views;
  views = new Map(path.map(node => {
    const known = old.get(node.id);
    return [node.id, known?.node === node && known.siblings.length === siblingsOf(chat, node).length ? known : viewOf(node)];
  }));
  at("log").replaceChildren(...[...views.values()].map(view => view.element));
  at("main").classList.toggle("is-new", !path.length);
  // A reload shows it again.
  history.replaceState(null, "", path.length ? "#" + chat.id : location.pathname + location.search);
  document.title = path.length ? `${chat.title} – Tessera` : "Tessera";
  showButtons();
  tell();
}

export function openChat(id) {
  chat = store.chatOf(id);
  if (chat.model) chooseModel(chat.model);
  views = new Map();
  showSettings(chat.settings);
  show();
  toEnd();
}

export function newChat() {
  const now = Date.now();
  chat = {id: store.newId(), title: "New chat", created: now, updated: now, model: null, settings: store.lastSettings(), nodes: {}, leaf: null};
  views = new Map();
  showSettings(chat.settings);
  show();
}

// Another tab changed it, or it was deleted.
export function refresh(id) {
  const now = store.chatOf(chat.id);
  if (runs.has(chat.id) || (id !== undefined && id !== chat.id)) return tell();
  if (now) openChat(chat.id);
  else newChat();
}

export function changeSettings(settings) {
  chat.settings = {...settings};
  store.keepSettings(chat.settings);
  if (chat.leaf) store.save(chat);
}

//--- asking

export function send(text) {
  if (isRunning() || !text.trim() || !chosenModel()) return false;
  if (chat.leaf === null) chat.title = titleOf(text);
  answer(add(chat, chat.leaf, "user", text));
  return true;
}

export const stop = () => runs.get(chat.id)?.controller.abort();
export const stopChat = id => runs.get(id)?.controller.abort();

function save(of) {
  if (store.save(of)) return;
  at("state").textContent = "history is not kept: the browser blocks or lacks storage";
}

// At most one a frame; a hidden page has no frames and draws when it is seen.
function drawer(node) {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      const wasAtEnd = isAtEnd();
      views.get(node.id)?.update();
      if (wasAtEnd) toEnd();
    });
  };
}

async function answer(user) {
  const of = chat, controller = new AbortController();
  if (runs.has(of.id)) return;
  of.leaf = user.id;
  const path = pathOf(of), node = add(of, user.id, "assistant", "");
  node.model = chosenModel();
  Object.assign(of, {updated: Date.now(), model: node.model});
  runs.set(of.id, {controller, node});
  save(of);
  show();
  toEnd();
  const saving = setInterval(() => store.chatOf(of.id) === of && save(of), 2000);
  await generate(of, path, node, node.model, controller.signal, drawer(node));
  clearInterval(saving);
  runs.delete(of.id);
  // Unless it was deleted in the meantime.
  if (store.chatOf(of.id)) save(of);
  if (of !== chat) return tell();
  const wasAtEnd = isAtEnd();
  views.get(node.id)?.setBusy(false);
  if (wasAtEnd) toEnd();
  showButtons();
  tell();
}

export function buildChat() {
  at("scroll").addEventListener("scroll", () => {
    at("down").hidden = isAtEnd();
    hideTip();
  }, {passive: true});
  at("down").addEventListener("click", toEnd);
  at("stop").addEventListener("click", stop);
  addEventListener("pagehide", () => runs.size && store.chatOf(chat.id) && store.save(chat));
}

export function welcome(model, adapters) {
  at("welcome").replaceChildren(
    make("div", {class: "mosaic", "aria-hidden": "true"}, make("i"), make("i"), make("i"), make("i")),
    make("h2", {}, "What would you like to ask?"),
    make("p", {}, make("b", {}, model.id), ` answers from this server, with a context of ${model.max_model_len.toLocaleString("en")} tokens`,
         adapters ? ` and ${adapters} ${adapters === 1 ? "adapter" : "adapters"}.` : "."));
}

export const alertLine = (text, hint) => make("p", {class: "error", role: "alert"}, icon("alert"), make("span", {}, `${text} ${hint}`));
