// Elements from values. Text is only ever set as text.

export const at = id => document.getElementById(id);

const kSvg = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

// make("button", {class: "icon", onclick: f, "aria-label": "Copy"}, child...)
export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function makeSvg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(kSvg, tag), properties, children);
}

export const icon = name => makeSvg("svg", {"aria-hidden": "true"}, makeSvg("use", {href: "#i-" + name}));

export const iconButton = (name, label, onclick, more = {}) =>
  make("button", {type: "button", class: "icon", "aria-label": label, title: label, onclick, ...more}, icon(name));

// Plain HTTP from another machine has no clipboard interface.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", {class: "hidden"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export const copyButton = (textOf, label = "Copy") => iconButton("copy", label, async event => {
  const button = event.currentTarget;
  await copyText(textOf());
  button.replaceChildren(icon("check"));
  button.setAttribute("aria-label", "Copied");
  setTimeout(() => {
    button.replaceChildren(icon("copy"));
    button.setAttribute("aria-label", label);
  }, 1500);
});

export function download(name, type, text) {
  const link = make("a", {download: name, href: URL.createObjectURL(new Blob([text], {type}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Whether the user agreed to delete something.
export function confirmed(title, text) {
  const dialog = at("confirm");
  dialog.querySelector("h2").textContent = title;
  dialog.querySelector("p").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise(done => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), {once: true}));
}
