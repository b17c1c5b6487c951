// Settings of a chat, as the fields of a request. An empty field is left out, so
// that the server's default holds.
import {at, make} from "./dom.js";

const kNumbers = [
  {name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1, about: "0: the likeliest token"},
  {name: "top_p", label: "Top p", min: 0.01, max: 1, step: 0.01, about: "the likeliest tokens of this probability"},
  {name: "top_k", label: "Top k", min: 0, max: 2147483647, step: 1, about: "so many likeliest tokens; 0: all"},
  {name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, about: "of the likeliest token's probability"},
  {name: "max_tokens", label: "Max tokens", min: 1, max: 2147483647, step: 1, about: "of an answer"},
  {name: "seed", label: "Seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, about: "the same answer again"},
  {name: "repetition_penalty", label: "Repetition penalty", min: 0.01, max: 100, step: 0.01, about: "1: none; counts the prompt"},
  {name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, about: "0: none"},
  {name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, about: "0: none"},
];
const kMostStops = 16;

let settings = {}, tell = () => {};

function field(label, input, about) {
  input.id = "set-" + input.name;
  const note = make("small", {id: input.id + "-about"}, about);
  input.setAttribute("aria-describedby", note.id);
  return make("div", {class: "field"}, make("label", {for: input.id}, label), input, note);
}

function changed(name, value) {
  if (value === "" || value === false || value === null) delete settings[name];
  else settings[name] = value;
  tell(settings);
}

function numberInput({name, min, max, step}) {
  const input = make("input", {type: "number", name, min, max, step: "any", placeholder: "default", inputmode: "decimal"});
  input.addEventListener("input", () => changed(name, input.value !== "" && input.validity.valid ? Number(input.value) : null));
  // The arrows of the keyboard go by steps that a typed number need not have.
  input.addEventListener("keydown", event => {
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
    event.preventDefault();
    const next = Number(input.value) + (event.key === "ArrowUp" ? step : -step);
    input.value = Math.min(max, Math.max(min, Number(next.toFixed(4))));
    input.dispatchEvent(new Event("input"));
  });
  return input;
}

function textArea(name, rows, placeholder) {
  const area = make("textarea", {name, rows, placeholder});
  area.addEventListener("input", () => changed(name, area.value));
  return area;
}

function modeChoice() {
  const select = make("select", {name: "mode"}, make("option", {value: ""}, "Chat"), make("option", {value: "text"}, "Continue the text"));
  select.addEventListener("change", () => changed("mode", select.value));
  return select;
}

function alternativesChoice() {
  const select = make("select", {name: "top_logprobs"}, make("option", {value: ""}, "Off"),
                      ...[1, 3, 5, 10, 20].map(count => make("option", {value: count}, `On, with ${count} ${count === 1 ? "alternative" : "alternatives"}`)));
  select.addEventListener("change", () => changed("top_logprobs", select.value && Number(select.value)));
  return select;
}

function show() {
  for (const input of at("fields").elements)
    if (input.name) input.value = settings[input.name] ?? "";
}

export function buildSettings(onChange) {
  tell = onChange;
  at("fields").append(
    field("Mode", modeChoice(), "Chat uses the model's chat template; otherwise all messages are one text that the model continues."),
    field("System prompt", textArea("system", 5, "You are …"), "Instructions before the first message."),
    make("fieldset", {class: "numbers"}, make("legend", {}, "Sampling"),
         ...kNumbers.map(each => field(each.label, numberInput(each), each.about))),
    field("Stop sequences", textArea("stop", 2, ""), `One a line, up to ${kMostStops}.`),
    field("Token probabilities", alternativesChoice(), "Tints the tokens of new answers by probability; hover or use the arrow keys for details. Not kept after a reload."),
    make("button", {type: "button", class: "wide", onclick: () => showSettings({}, true)}, "Reset to the server's defaults"));
  at("fields").addEventListener("submit", event => event.preventDefault());
}

export function showSettings(of, isNew = false) {
  settings = {...of};
  show();
  if (isNew) tell(settings);
}

// The fields of a request, for either endpoint.
export function fieldsOf(given) {
  const fields = {}, isText = given.mode === "text";
  for (const {name} of kNumbers)
    if (typeof given[name] === "number") fields[name === "max_tokens" && !isText ? "max_completion_tokens" : name] = given[name];
  const stops = String(given.stop ?? "").split("\n").filter(Boolean).slice(0, kMostStops);
  if (stops.length) fields.stop = stops;
  if (given.top_logprobs)
    Object.assign(fields, isText ? {logprobs: given.top_logprobs} : {logprobs: true, top_logprobs: given.top_logprobs});
  return fields;
}
