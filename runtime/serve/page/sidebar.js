// The list of chats: search, rename, export, delete.
import {currentChat, newChat, openChat, refresh, stopChat} from "./chat.js";
import {at, confirmed, download, iconButton, make} from "./dom.js";
import * as store from "./store.js";
import {asMarkdown} from "./tree.js";

const kMostImported = 50_000_000; // bytes of a file

const isNarrow = () => matchMedia("(max-width: 800px)").matches;

export function showSidebar(isShown) {
  document.body.classList.toggle("no-sidebar", !isShown);
  at("show-sidebar").setAttribute("aria-expanded", isShown);
  if (isShown && isNarrow()) at("new").focus();
}

function ageOf(time) {
  const midnight = new Date().setHours(0, 0, 0, 0), day = 86_400_000;
  if (time >= midnight) return "Today";
  if (time >= midnight - day) return "Yesterday";
  return time >= midnight - 6 * day ? "Previous 7 days" : "Older";
}

function rename(chat, item) {
  const input = make("input", {class: "rename", "aria-label": "Name of the chat", maxlength: "200"});
  input.value = chat.title;
  const end = isKept => {
    if (!input.isConnected) return;
    if (isKept && input.value.trim()) {
      chat.title = input.value.trim();
      store.save(chat);
    }
    showChats();
  };
  input.addEventListener("keydown", event => {
    event.stopPropagation();
    if (event.key === "Enter" || event.key === "Escape") end(event.key === "Enter");
  });
  input.addEventListener("blur", () => end(true));
  item.replaceChildren(input);
  input.select();
}

async function remove(chat) {
  if (!await confirmed("Delete this chat?", `“${chat.title}” is deleted from this browser.`)) return;
  stopChat(chat.id);
  store.remove(chat.id);
  if (chat.id === currentChat().id) newChat();
  else showChats();
}

const nameOf = title => title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 60) || "chat";

function itemOf(chat) {
  const isShown = chat.id === currentChat().id, item = make("li", {class: isShown ? "shown" : null});
  const open = () => {
    openChat(chat.id);
    if (isNarrow()) showSidebar(false);
    at("text").focus();
  };
  item.append(
    make("button", {type: "button", class: "title", title: chat.title, "aria-current": isShown ? "page" : null, onclick: open}, chat.title),
    make("span", {class: "tools"},
         iconButton("pencil", "Rename", () => rename(chat, item)),
         iconButton("download", "Download as Markdown", () => download(nameOf(chat.title) + ".md", "text/markdown", asMarkdown(chat))),
         iconButton("trash", "Delete", () => remove(chat))));
  return item;
}

function isFound(chat, words) {
  const text = () => chat.title + "\n" + Object.values(chat.nodes).map(node => node.content).join("\n");
  return !words || text().toLowerCase().includes(words);
}

export function showChats() {
  const words = at("find").value.trim().toLowerCase(), groups = new Map();
  const all = store.list();
  for (const chat of all.filter(each => isFound(each, words))) {
    const age = ageOf(chat.updated);
    groups.set(age, [...(groups.get(age) ?? []), itemOf(chat)]);
  }
  const parts = [...groups].map(([age, items]) => make("section", {}, make("h2", {}, age), make("ul", {}, ...items)));
  at("chats").replaceChildren(...(parts.length ? parts : [make("p", {class: "none"}, words ? "No chat has these words." : "Your chats will be listed here.")]));
  at("kept").textContent = store.keeps() ? `Kept in this browser, the latest ${store.kMostChats}.` : "The browser blocks storage: chats are lost when you leave.";
  at("export").disabled = at("delete-all").disabled = !all.length;
  at("find").hidden = all.length < 2 && !words;
}

async function importFile(file) {
  let found = [];
  try {
    if (file.size <= kMostImported) found = JSON.parse(await file.text()).chats.filter(store.isChat);
  } catch {
    found = [];
  }
  // Those that are here already remain as they are.
  for (const chat of found) if (!store.chatOf(chat.id)) store.save(chat);
  at("state").textContent = found.length ? "" : "no chats in that file: choose one that Export has written";
  showChats();
}

export function buildSidebar() {
  at("new").addEventListener("click", () => {
    newChat();
    if (isNarrow()) showSidebar(false);
    at("text").focus();
  });
  at("hide-sidebar").addEventListener("click", () => {
    showSidebar(false);
    at("show-sidebar").focus();
  });
  at("show-sidebar").addEventListener("click", () => showSidebar(true));
  at("scrim").addEventListener("click", () => showSidebar(false));
  at("find").addEventListener("input", showChats);
  at("export").addEventListener("click", () =>
    download("tessera-chats.json", "application/json", JSON.stringify({format: "tessera-chats", chats: store.list()}, null, 1)));
  at("import").addEventListener("click", () => at("import-file").click());
  at("import-file").addEventListener("change", event => {
    const [file] = event.target.files;
    event.target.value = "";
    if (file) importFile(file);
  });
  at("delete-all").addEventListener("click", async () => {
    if (!await confirmed("Delete all chats?", "All chats are deleted from this browser. Export them first to keep them.")) return;
    store.list().forEach(chat => stopChat(chat.id));
    store.removeAll();
    newChat();
  });
  store.onChange(refresh);
  showSidebar(!isNarrow());
}
