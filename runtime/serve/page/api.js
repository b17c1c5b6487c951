// Calls of the server: JSON, server-sent events, and errors that say what to do.

// The page may be served below a path by a proxy.
function addressOf(path) {
  const url = new URL("../" + path, import.meta.url);
  url.username = url.password = ""; // fetch refuses them; the browser sends them anyway
  return url;
}

export class ServerError extends Error {
  constructor(message, status = 0, hint = "") {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

function hintOf(status, {code, param} = {}, wait = null) {
  if (status === 401) return "Reload the page and enter the API key as the password.";
  if (status === 404 && code === "model_not_found") return "Choose another model at the top.";
  if (status === 413) return "Shorten the message, or start a new chat.";
  if (status === 429) return `Try again${wait ? ` in ${wait} s` : " later"}.`;
  if (status === 503) return "Try again when the server is back.";
  if (status === 504) return "Ask for fewer tokens, or raise the server's --request-timeout.";
  if (status === 400 && (param === "messages" || param === "prompt")) return "Start a new chat, shorten the message, or change the mode in the settings.";
  if (status === 400 && param) return "Change it in the settings.";
  return "Try again.";
}

async function problemOf(response) {
  const wait = response.headers.get("Retry-After");
  try {
    const {error} = await response.json();
    return new ServerError(error.message, response.status, hintOf(response.status, error, wait));
  } catch {
    return new ServerError(`HTTP ${response.status}`, response.status, hintOf(response.status, {}, wait));
  }
}

async function reached(path, options) {
  let response;
  try {
    response = await fetch(addressOf(path), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the server does not respond", 0, "Check that it runs, then try again.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

export const getJson = async path => (await reached(path)).json();
export const getText = async path => (await reached(path)).text();

const post = (path, body, signal) => reached(path, {
  method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body), signal});

export const postJson = async (path, body, signal) => (await post(path, body, signal)).json();

// The events of a stream. One that breaks off is an error.
export async function* postStream(path, body, signal) {
  const response = await post(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      part = {done: true};
    }
    if (part.done) throw new ServerError("the connection broke off", 0, "Check that the server runs, then try again.");
    const lines = (held + part.value).split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue; // comments, ends of events
      if (line === "data: [DONE]") return;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new ServerError(event.error.message, 200, hintOf(event.error.type === "timeout" ? 504 : 0, event.error));
      yield event;
    }
  }
}
