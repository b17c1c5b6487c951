#include "runtime/serve/ToolCalls.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace tessera::serve {

//===--- formats ----------------------------------------------------------===//

// Hermes 2 Pro (NousResearch 2024); Qwen 2.5 and 3 write it, too.
static constexpr ToolFormat kHermes = {"Hermes", "<tool_call>", "</tool_call>",
                                       "arguments"};
// Mistral's instruct models of 2024: one list for all calls.
static constexpr ToolFormat kMistral = {"Mistral", "[TOOL_CALLS]", "",
                                        "arguments", /*isList=*/true};
// Llama 3.1 and 3.2 (Meta 2024): the whole output is the call.
static constexpr ToolFormat kLlama = {"Llama 3",        "<|python_tag|>",  "",
                                      "parameters",
                                      /*isList=*/false, /*mayBeBare=*/true};

const ToolFormat *toolFormatOf(std::string_view chatTemplate) {
  auto has = [&](std::string_view text) {
    return chatTemplate.find(text) != chatTemplate.npos;
  };
  if (!has("tools"))
    return nullptr;
  // Later models of the same families write XML, or a name instead of a list.
  if (has("<tool_call>"))
    return has("<function=") || has("<arg_key>") ? nullptr : &kHermes;
  if (has("[TOOL_CALLS] [") || has("[TOOL_CALLS]["))
    return &kMistral;
  if (has("\"parameters\": ") && has("ipython"))
    return &kLlama;
  return nullptr;
}

//===--- content ----------------------------------------------------------===//

static constexpr std::string_view kSpaces = " \n\r\t";

static bool isSpace(char byte) { return kSpaces.find(byte) != kSpaces.npos; }

ToolPieces ToolCallReader::push(std::string_view text) {
  ToolPieces out;
  for (char byte : text)
    if (!isOver)
      take(byte, out);
  return out;
}

ToolPieces ToolCallReader::finish() {
  ToolPieces out;
  if (isOver)
    return out;
  // White space after calls is not part of the output.
  bool isBlank = held.find_first_not_of(kSpaces) == held.npos;
  if (place == Place::content && (count == 0 || hasContent || !isBlank))
    emitContent(std::exchange(held, {}), out);
  else if (place == Place::between
               ? count == 0
               : place != Place::content && place != Place::after && !isSent)
    giveUp(out);
  return out;
}

void ToolCallReader::take(char byte, ToolPieces &out) {
  if (place != Place::content && !isSent)
    raw += byte;
  switch (place) {
  case Place::content:
    return takeContent(byte, out);
  case Place::between:
    return takeBetween(byte, out);
  case Place::key:
  case Place::colon:
    return takeKey(byte, out);
  case Place::value:
    return takeValue(byte, out);
  case Place::after:
    return takeAfter(byte, out);
  }
}

void ToolCallReader::emitContent(std::string_view text, ToolPieces &out) {
  hasContent |= text.find_first_not_of(kSpaces) != text.npos;
  out.content += text;
}

// More white space than precedes any tag: searching more again for every byte
// would be quadratic.
static constexpr std::size_t kMostHeld = 100;

/// `held` is always white space followed by a prefix of the tag.
void ToolCallReader::takeContent(char byte, ToolPieces &out) {
  if (format->mayBeBare && byte == '{' && !hasContent && count == 0 &&
      held.find_first_not_of(kSpaces) == held.npos) {
    raw = std::exchange(held, {}) + byte;
    return beginCall();
  }
  held += byte;
  // The longest suffix of `held` that is white space and a prefix of the tag.
  for (std::size_t from = 0;; ++from) {
    std::size_t tag = held.find_first_not_of(kSpaces, from);
    std::string_view rest =
        std::string_view(held).substr(std::min(tag, held.size()));
    if (!format->open.starts_with(rest) || held.size() - from > kMostHeld)
      continue;
    emitContent(held.substr(0, from), out);
    held.erase(0, from);
    if (rest.size() == format->open.size()) {
      raw = std::exchange(held, {});
      place = Place::between;
    }
    return;
  }
}

void ToolCallReader::takeBetween(char byte, ToolPieces &out) {
  bool separates = format->isList ? byte == '[' || byte == ',' || byte == ']'
                                  : byte == ';' && format->close.empty();
  if (byte == '{')
    return beginCall();
  if (isSpace(byte) || separates)
    return;
  // The bytes after the tag may begin another tag that is followed by a call.
  // They are too short for a complete tag, so they are read again only once.
  std::size_t tag = raw.find(format->open);
  std::string rest =
      raw.substr(tag == raw.npos ? 0 : tag + format->open.size());
  raw.resize(raw.size() - rest.size());
  giveUp(out);
  for (char each : rest)
    take(each, out);
}

void ToolCallReader::beginCall() {
  place = Place::key;
  key.clear();
  value.clear();
  callName.clear();
  waiting.clear();
  inString = escaped = isStreamed = hasArguments = isSent = false;
  depth = 0;
}

/// It was not a call: the bytes since the tag, except those sent, are content.
void ToolCallReader::giveUp(ToolPieces &out) {
  place = Place::content;
  emitContent(raw, out);
  raw.clear();
  held.clear();
  callName.clear();
  isSent = false;
}

/// A call exists once its name is known and its arguments have begun or are
/// absent; until then it may be content.
void ToolCallReader::sendCall(std::string arguments, ToolPieces &out) {
  isSent = true;
  raw.clear();
  out.calls.push_back({count++, {}, callName, std::move(arguments)});
}

/// Reads member names and the punctuation around them.
void ToolCallReader::takeKey(char byte, ToolPieces &out) {
  if (inString) {
    key += byte;
    if (escaped || byte == '\\')
      escaped = !escaped;
    else if (byte == '"')
      inString = false, place = Place::colon;
    return;
  }
  if (isSpace(byte))
    return;
  if (place == Place::colon) {
    if (byte != ':')
      return giveUp(out);
    place = Place::value;
    value.clear();
    isStreamed = isWhole = false;
    return;
  }
  if (byte == '"') {
    key = byte;
    inString = true;
  } else if (byte == '}') {
    endCall(out);
  } else if (byte != ',') {
    giveUp(out);
  }
}

void ToolCallReader::takeValue(char byte, ToolPieces &out) {
  if (inString) {
    addToValue(byte, out);
    if (escaped || byte == '\\')
      escaped = !escaped;
    else if (byte == '"')
      inString = false;
    return;
  }
  if (depth == 0) {
    if (byte == ',' || byte == '}') {
      place = Place::key;
      endValue(out);
      return byte == '}' && place == Place::key ? endCall(out) : void();
    }
    if (isSpace(byte))
      return;
    if (isWhole)
      return giveUp(out);
  }
  if (byte == '{' || byte == '[')
    ++depth;
  else if ((byte == '}' || byte == ']') && depth > 0)
    --depth;
  else if (byte == '"')
    inString = true;
  addToValue(byte, out);
  isWhole = depth == 0 && (byte == '}' || byte == ']');
}

void ToolCallReader::addToValue(char byte, ToolPieces &out) {
  if (value.empty() && byte == '{' && isNamed() && !hasArguments &&
      key == '"' + std::string(format->arguments) + '"') {
    isStreamed = hasArguments = true;
    sendCall({}, out);
  }
  if (!isStreamed) {
    value += byte;
    return;
  }
  if (out.calls.empty() || out.calls.back().index != count - 1)
    out.calls.push_back({count - 1, {}, {}, {}});
  out.calls.back().arguments += byte;
}

void ToolCallReader::endValue(ToolPieces &out) {
  if (isStreamed)
    return;
  std::string text = std::exchange(value, {});
  auto parsed = nlohmann::json::parse(text, nullptr, /*exceptions=*/false);
  if (key == "\"name\"" && !isNamed()) {
    if (!parsed.is_string())
      return giveUp(out);
    callName = parsed.get<std::string>();
    if (!isNamed() || (!names.empty() && !std::ranges::count(names, callName)))
      return giveUp(out);
    if (hasArguments)
      sendCall(std::exchange(waiting, {}), out);
  } else if (key == '"' + std::string(format->arguments) + '"' &&
             !hasArguments) {
    // Some write the arguments as a string of JSON, or as null.
    if (parsed.is_string()) {
      text = parsed.get<std::string>();
      parsed = nlohmann::json::parse(text, nullptr, /*exceptions=*/false);
    } else if (parsed.is_null()) {
      text = "{}";
      parsed = nlohmann::json::object();
    }
    if (!parsed.is_object())
      return giveUp(out);
    hasArguments = true;
    if (isNamed())
      sendCall(std::move(text), out);
    else
      waiting = std::move(text);
  }
}

void ToolCallReader::endCall(ToolPieces &out) {
  if (!isNamed())
    return giveUp(out);
  if (!isSent)
    sendCall("{}", out);
  callName.clear();
  isSent = false;
  isOver = onlyOne;
  place = format->close.empty() ? Place::between : Place::after;
  held.clear();
  hasContent = false;
}

void ToolCallReader::takeAfter(char byte, ToolPieces &out) {
  held += byte;
  std::size_t tag = held.find_first_not_of(kSpaces);
  if (tag == held.npos)
    return;
  std::string_view rest = std::string_view(held).substr(tag);
  if (rest == format->close) {
    held.clear();
    raw.clear();
    place = Place::content;
  } else if (!format->close.starts_with(rest)) {
    raw = std::exchange(held, {});
    giveUp(out);
  }
}

} // namespace tessera::serve
