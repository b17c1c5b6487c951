// Chats in the browser's storage, the latest within a number and a size. A chat
// is a tree: editing a message or asking again makes a sibling, and nothing is
// lost. chat: {id, title, created, updated, model, settings, nodes, leaf};
// node: {id, parent, role, content, ...}.

const kPrefix = "tessera.chat.", kSettings = "tessera.settings";
export const kMostChats = 200;
const kMostCharacters = 4_000_000; // browsers store about 5 million

const chats = new Map();
let isStored = true; // false: the browser blocks storage

export const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);

// What is stored may be of another version, or from a file.
export function isChat(chat) {
  const isNode = node => node && typeof node.id === "string" && typeof node.content === "string" && ["user", "assistant"].includes(node.role) &&
    (node.parent === null || Object.hasOwn(chat.nodes, node.parent)) && hasParts(node);
  return typeof chat?.id === "string" && typeof chat.title === "string" && typeof chat.updated === "number" && typeof chat.nodes === "object" &&
    chat.nodes !== null && (chat.leaf === null || Object.hasOwn(chat.nodes, chat.leaf)) && typeof chat.settings === "object" && chat.settings !== null &&
    Object.entries(chat.nodes).every(([id, node]) => isNode(node) && node.id === id) && hasEnds(chat);
}

function hasParts({reasoning = "", model = "", finish = "", calls = [], error = {message: "", hint: ""}, stats = {}}) {
  const areStrings = (...values) => values.every(value => typeof value === "string");
  return areStrings(reasoning, model ?? "", finish) && Array.isArray(calls) && calls.every(call => areStrings(call?.name, call?.arguments)) &&
    areStrings(error?.message, error?.hint) && typeof stats === "object" && stats !== null;
}

// Every node leads to a root.
function hasEnds({nodes}) {
  const good = new Set([null]);
  for (let node of Object.values(nodes)) {
    const way = new Set();
    for (; !good.has(node.id); node = nodes[node.parent]) {
      if (way.has(node.id)) return false;
      way.add(node.id);
      if (node.parent === null) break;
    }
    way.forEach(id => good.add(id));
  }
  return true;
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

export function load() {
  chats.clear();
  try {
    for (const key of Object.keys(localStorage)) {
      const chat = key.startsWith(kPrefix) ? read(key) : null;
      if (isChat(chat) && key === kPrefix + chat.id) chats.set(chat.id, chat);
    }
  } catch {
    isStored = false;
  }
}

export const list = () => [...chats.values()].sort((a, b) => b.updated - a.updated);
export const chatOf = id => chats.get(id);

function writeOut(chat) {
  const text = JSON.stringify(chat);
  const others = list().filter(each => each.id !== chat.id);
  let size = text.length + others.reduce((sum, each) => sum + (localStorage.getItem(kPrefix + each.id)?.length ?? 0), 0);
  while (others.length && (others.length >= kMostChats || size > kMostCharacters)) {
    size -= localStorage.getItem(kPrefix + others.at(-1).id)?.length ?? 0;
    remove(others.pop().id);
  }
  for (;;) {
    try {
      return localStorage.setItem(kPrefix + chat.id, text);
    } catch (error) {
      if (!others.length) throw error;
      remove(others.pop().id); // other pages of this origin store something, too
    }
  }
}

// False: it is only in memory.
export function save(chat) {
  chats.set(chat.id, chat);
  try {
    writeOut(chat);
    isStored = true;
  } catch {
    isStored = false;
  }
  return isStored;
}

export function remove(id) {
  chats.delete(id);
  try {
    localStorage.removeItem(kPrefix + id);
  } catch {
    isStored = false;
  }
}

export const removeAll = () => [...chats.keys()].forEach(remove);
export const keeps = () => isStored;

// Another tab has changed a chat.
export function onChange(tell) {
  addEventListener("storage", event => {
    if (event.key !== null && !event.key.startsWith(kPrefix)) return;
    const id = event.key?.slice(kPrefix.length);
    if (id === undefined) chats.clear();
    else if (event.newValue === null) chats.delete(id);
    else if (isChat(read(event.key))) chats.set(id, read(event.key));
    tell(id);
  });
}

// The settings of the latest chat are those of a new one.
export const lastSettings = () => {
  const found = read(kSettings);
  return typeof found === "object" && found !== null ? found : {};
};

export function keepSettings(settings) {
  try {
    localStorage.setItem(kSettings, JSON.stringify(settings));
  } catch {
    isStored = false;
  }
}
