// One answer: a request from the path of a chat, and its stream into a node.
import {postStream} from "./api.js";
import {fieldsOf} from "./settings.js";
import {addTokens, endTokens} from "./tokens.js";

function requestOf(chat, path, model) {
  const body = {model, stream: true, stream_options: {include_usage: true}, ...fieldsOf(chat.settings)};
  if (chat.settings.mode === "text") {
    const prompt = path.map(node => node.content).join("");
    // Without a number the API's default is 16.
    return ["v1/completions", {...body, prompt, max_tokens: body.max_tokens ?? 256}];
  }
  const system = chat.settings.system ? [{role: "system", content: String(chat.settings.system)}] : [];
  return ["v1/chat/completions", {...body, messages: [...system, ...path.map(({role, content}) => ({role, content}))]}];
}

function addCalls(node, calls) {
  node.calls ??= [];
  for (const {index = 0, function: called = {}} of calls) {
    const call = node.calls[index] ??= {name: "", arguments: ""};
    call.name += called.name ?? "";
    call.arguments += called.arguments ?? "";
  }
}

function addChoice(node, choice) {
  const {delta = {}} = choice;
  node.content += choice.text ?? delta.content ?? "";
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (reasoning) node.reasoning = (node.reasoning ?? "") + reasoning;
  if (delta.refusal) node.content += delta.refusal;
  if (delta.tool_calls) addCalls(node, delta.tool_calls);
  if (choice.logprobs) addTokens(node, choice.logprobs);
  if (choice.finish_reason) node.finish = choice.finish_reason;
}

// Seconds as the reader has them, with the network's.
function measure(node, began, first, usage) {
  const now = performance.now();
  node.stats = {first: first && (first - began) / 1000, seconds: first && (now - first) / 1000,
                tokens: usage?.completion_tokens, prompt: usage?.prompt_tokens};
}

// Fills `node`, the answer to `path`; tells after every event. Errors become
// the node's, so that they are seen where they happened.
export async function generate(chat, path, node, model, signal, tell) {
  const began = performance.now();
  let first = 0, usage = null;
  Object.assign(node, {model, plain: chat.settings.mode === "text" || undefined});
  try {
    for await (const event of postStream(...requestOf(chat, path, model), signal)) {
      usage = event.usage ?? usage;
      for (const choice of event.choices) {
        if (!first && (choice.text || Object.values(choice.delta ?? {}).some(value => value && value !== "assistant"))) first = performance.now();
        addChoice(node, choice);
      }
      tell();
    }
  } catch (error) {
    if (error.name === "AbortError") node.finish = "stopped";
    else node.error = {message: error.message, hint: error.hint ?? ""};
  }
  endTokens(node);
  measure(node, began, first, usage);
}
