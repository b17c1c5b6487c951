// The tree of a chat: its path from the first message to the leaf that is shown.
import {newId} from "./store.js";

export function pathOf(chat) {
  const path = [];
  for (let id = chat.leaf; id !== null; id = chat.nodes[id].parent) path.unshift(chat.nodes[id]);
  return path;
}

// Each message's next one, to come back to.
function remember(chat) {
  for (const {id, parent} of pathOf(chat)) if (parent !== null) chat.nodes[parent].last = id;
}

export const siblingsOf = (chat, node) => Object.values(chat.nodes).filter(each => each.parent === node.parent && each.role === node.role);

export function add(chat, parent, role, content) {
  const node = {id: newId(), parent, role, content, at: Date.now()};
  remember(chat);
  chat.nodes[node.id] = node;
  chat.leaf = node.id;
  return node;
}

// Shows another version of a message, with the messages after it that were shown
// with it last (node.last), or the latest.
export function showVersion(chat, node) {
  remember(chat);
  const children = new Map();
  for (const each of Object.values(chat.nodes)) children.set(each.parent, each); // the latest remains
  const next = ({id, last}) => Object.hasOwn(chat.nodes, last ?? "") && chat.nodes[last].parent === id ? chat.nodes[last] : children.get(id);
  let leaf = node;
  for (let after = next(leaf); after; after = next(leaf)) leaf = after;
  chat.leaf = leaf.id;
}

// The first words of the first message.
export function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length > 60 ? line.slice(0, 58).replace(/\s\S*$/, "") + "…" : line || "New chat";
}

export function asMarkdown(chat) {
  const names = {user: "You", assistant: "Assistant"};
  const system = chat.settings.system ? [`> ${String(chat.settings.system).replaceAll("\n", "\n> ")}`] : [];
  return [`# ${chat.title}`, ...system, ...pathOf(chat).map(node => `**${names[node.role]}**\n\n${node.content}`)].join("\n\n") + "\n";
}
