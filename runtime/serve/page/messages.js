// A message as it is shown: its text, folded parts, errors, and what can be done
// with it. `actions`: edit(node, text), again(node), show(node).
import {copyButton, icon, iconButton, make} from "./dom.js";
import {MarkdownView} from "./markdown.js";
import {hasTokens, TokenView} from "./tokens.js";

// Models that reason write it before the answer.
function partsOf(node) {
  const found = /^\s*<think>([^]*?)(?:<\/think>\s*|$)/.exec(node.plain ? "" : node.content);
  const reasoning = (node.reasoning ?? "") + (found ? found[1] : "");
  return {reasoning: reasoning.trim(), text: found ? node.content.slice(found[0].length) : node.content};
}

const fold = (kind, title, body) => make("details", {class: kind}, make("summary", {}, title), body);

function statsOf({stats, finish}) {
  const parts = [];
  if (stats?.tokens) parts.push(`${stats.tokens} ${stats.tokens === 1 ? "token" : "tokens"}`);
  if (stats?.tokens > 1 && stats.seconds > 0) parts.push(`${((stats.tokens - 1) / stats.seconds).toFixed(1)} tokens/s`);
  if (stats?.first) parts.push(`first after ${stats.first < 1 ? Math.round(1000 * stats.first) + " ms" : stats.first.toFixed(1) + " s"}`);
  const ends = {length: "reached the token limit", stopped: "stopped", content_filter: "filtered"};
  return [...parts, ends[finish]].filter(Boolean).join(" · ");
}

export class MessageView {
  constructor(node, siblings, actions) {
    Object.assign(this, {node, siblings, actions, isBusy: false, isTokens: true});
    this.body = make("div", {class: "body"});
    this.foot = make("footer");
    this.element = make("article", {class: "message " + node.role, "aria-label": node.role === "user" ? "You" : `Answer of ${node.model ?? "the model"}`},
                        node.role === "assistant" ? make("p", {class: "by"}, make("span", {class: "tile", "aria-hidden": "true"}), node.model ?? "") : null,
                        this.body, this.foot);
    if (node.role === "user") {
      this.body.textContent = node.content;
    } else {
      this.folds = make("div", {class: "folds"});
      this.text = make("div");
      this.body.append(this.folds, this.text);
    }
    this.update();
  }

  setBusy(isBusy) {
    this.isBusy = isBusy;
    this.update();
  }

  update() {
    this.element.classList.toggle("busy", this.isBusy);
    this.element.setAttribute("aria-busy", this.isBusy);
    if (this.node.role === "assistant") this.updateAnswer();
    this.foot.replaceChildren(...(this.isBusy ? [] : this.buttons()));
  }

  updateAnswer() {
    const {reasoning, text} = partsOf(this.node);
    this.updateFolds(reasoning);
    const kind = this.isTokens && hasTokens(this.node) ? "raw" : this.node.plain ? "plain" : "markdown";
    if (kind !== this.kind) {
      this.kind = kind;
      this.text.className = kind;
      this.text.replaceChildren();
      this.view = kind === "raw" ? new TokenView(this.text, this.node) : kind === "markdown" ? new MarkdownView(this.text) : null;
    }
    if (this.view) this.view.update(text);
    else this.text.textContent = text;
    this.element.classList.toggle("empty", this.isBusy && !text && !reasoning);
    this.element.querySelector(".error")?.remove();
    if (this.node.error && !this.isBusy) this.body.append(this.errorLine());
  }

  // Kept open if the reader opened it.
  updateFolds(reasoning) {
    const isThinking = this.isBusy && !partsOf(this.node).text;
    if (reasoning && !this.reasoning) {
      this.reasoning = fold("reasoning", "Reasoning", make("div", {class: "plain"}));
      this.folds.append(this.reasoning);
    }
    if (this.reasoning) {
      this.reasoning.firstChild.textContent = isThinking ? "Reasoning…" : "Reasoning";
      this.reasoning.lastChild.textContent = reasoning;
    }
    for (const [i, call] of (this.node.calls ?? []).entries()) {
      this.calls ??= [];
      if (!this.calls[i]) this.folds.append(this.calls[i] = fold("call", "", make("pre", {tabindex: "0"}, make("code"))));
      this.calls[i].firstChild.replaceChildren("Tool call ", make("code", {}, call.name));
      this.calls[i].querySelector("pre code").textContent = call.arguments;
    }
  }

  errorLine() {
    const {message, hint} = this.node.error;
    const text = message.charAt(0).toUpperCase() + message.slice(1).replace(/\.$/, "") + ".";
    return make("p", {class: "error", role: "alert"}, icon("alert"), make("span", {}, text + " " + hint),
                make("button", {type: "button", class: "asks", onclick: () => this.actions.again(this.node)}, "Retry"));
  }

  buttons() {
    const {node, actions} = this, isUser = node.role === "user";
    const own = isUser ? [iconButton("pencil", "Edit and send again", () => this.edit(), {class: "icon asks"})]
                       : [iconButton("again", "Another answer", () => actions.again(node), {class: "icon asks"})];
    if (hasTokens(node))
      own.push(iconButton("tokens", "Token probabilities", () => this.switchTokens(), {"aria-pressed": String(this.isTokens)}));
    return [this.versions(), node.content ? copyButton(() => node.content) : null, ...own, isUser ? null : make("span", {class: "stats"}, statsOf(node))].filter(Boolean);
  }

  versions() {
    const {siblings, node, actions} = this, i = siblings.indexOf(node);
    if (siblings.length < 2) return null;
    const go = (name, label, to) => iconButton(name, label, () => actions.show(siblings[to]), {disabled: to < 0 || to >= siblings.length});
    return make("span", {class: "versions"}, go("left", "Previous version", i - 1), `${i + 1}/${siblings.length}`, go("right", "Next version", i + 1));
  }

  switchTokens() {
    this.isTokens = !this.isTokens;
    this.update();
  }

  edit() {
    const area = make("textarea", {"aria-label": "Edit the message"});
    area.value = this.node.content;
    const send = () => area.value.trim() && this.actions.edit(this.node, area.value);
    const end = () => {
      this.body.textContent = this.node.content;
      this.element.classList.remove("editing");
      this.foot.hidden = false;
    };
    area.addEventListener("keydown", event => {
      if (event.key === "Escape") {
        event.stopPropagation();
        end();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    const fit = () => {
      area.style.height = "auto";
      area.style.height = area.scrollHeight + "px";
    };
    area.addEventListener("input", fit);
    this.element.classList.add("editing");
    this.foot.hidden = true;
    this.body.replaceChildren(area, make("div", {class: "buttons"}, make("button", {type: "button", onclick: end}, "Cancel"),
                                         make("button", {type: "button", class: "primary", onclick: send}, "Send")));
    fit();
    area.focus();
  }
}
