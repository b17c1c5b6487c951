#include "runtime/serve/ToolCalls.h"
#include "runtime/serve/TagPrefix.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace tessera::serve {

//===--- content ----------------------------------------------------------===//

static bool isSpace(char byte) { return kBlank.find(byte) != kBlank.npos; }

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
  bool isBlank = held.find_first_not_of(kBlank) == held.npos;
  if (place == Place::content && (count == 0 || hasContent || !isBlank))
    emitContent(std::exchange(held, {}), out);
  else if (place == Place::between
               ? count == 0
               : place != Place::content && place != Place::after &&
                     place != Place::section && !isSent)
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
  case Place::name:
    return takeName(byte, out);
  case Place::key:
  case Place::colon:
    return takeKey(byte, out);
  case Place::value:
    return takeValue(byte, out);
  case Place::after:
    return takeAfter(byte, out);
  case Place::section:
    return takeSection(byte, out);
  }
}

void ToolCallReader::emitContent(std::string_view text, ToolPieces &out) {
  hasContent |= text.find_first_not_of(kBlank) != text.npos;
  out.content += text;
}

// More white space than precedes any tag: searching more again for every byte
// would be quadratic.
static constexpr std::size_t kMostHeld = 100;

/// `held` is always white space followed by a prefix of the tag.
void ToolCallReader::takeContent(char byte, ToolPieces &out) {
  if (objects && objects->mayBeBare && byte == '{' && !hasContent &&
      count == 0 && held.find_first_not_of(kBlank) == held.npos) {
    raw = std::exchange(held, {}) + byte;
    return beginCall();
  }
  held += byte;
  // The longest suffix of `held` that is white space and a prefix of the tag.
  for (std::size_t from = 0;; ++from) {
    std::size_t begin = held.find_first_not_of(kBlank, from);
    std::string_view rest =
        std::string_view(held).substr(std::min(begin, held.size()));
    if (!std::string_view(tag).starts_with(rest) ||
        held.size() - from > kMostHeld)
      continue;
    emitContent(held.substr(0, from), out);
    held.erase(0, from);
    if (rest.size() == tag.size()) {
      raw = std::exchange(held, {});
      if (named)
        beginCall();
      else
        place = Place::between;
    }
    return;
  }
}

void ToolCallReader::takeBetween(char byte, ToolPieces &out) {
  bool separates = format->isList() ? byte == '[' || byte == ',' || byte == ']'
                                    : byte == ';' && format->close.empty();
  if (byte == '{')
    return beginCall();
  // Sending a call clears `raw`: a list without any is content.
  if (byte == ']' && format->isList() && !format->close.empty() &&
      raw.find(format->open) == raw.npos) {
    place = Place::after;
    return;
  }
  if (isSpace(byte) || separates)
    return;
  // The bytes after the tag may begin another tag that is followed by a call.
  // They are too short for a complete tag, so they are read again only once.
  std::size_t begin = raw.find(format->open);
  std::string rest =
      raw.substr(begin == raw.npos ? 0 : begin + format->open.size());
  raw.resize(raw.size() - rest.size());
  giveUp(out);
  for (char each : rest)
    take(each, out);
}

void ToolCallReader::beginCall() {
  place = named ? Place::name : Place::key;
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

bool ToolCallReader::isOfArguments() const {
  return named || key == '"' + std::string(objects->arguments) + '"';
}

/// More than any name has with what surrounds it.
static constexpr std::size_t kLongestName = 400;

/// Reads a name up to the separator.
void ToolCallReader::takeName(char byte, ToolPieces &out) {
  callName += byte;
  if (callName.size() > kLongestName)
    return giveUp(out);
  if (!callName.ends_with(named->separator))
    return;
  std::string_view own = callName;
  own.remove_suffix(named->separator.size());
  if (!named->nameEnd.empty())
    own = own.substr(0, own.find(named->nameEnd));
  own.remove_prefix(std::min(own.find_first_not_of(kBlank), own.size()));
  own = own.substr(0, own.find_last_not_of(kBlank) + 1);
  if (own.starts_with(named->namePrefix))
    own.remove_prefix(named->namePrefix.size());
  callName = std::string(own);
  if (!isNamed() || (!names.empty() && !std::ranges::count(names, callName)))
    return giveUp(out);
  place = Place::value;
  isStreamed = isWhole = false;
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
  if (depth == 0 && named) {
    if (isSpace(byte))
      return;
    if (byte != '{')
      return giveUp(out);
  } else if (depth == 0) {
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
  if (isWhole && named)
    endCall(out);
}

void ToolCallReader::addToValue(char byte, ToolPieces &out) {
  if (value.empty() && byte == '{' && isNamed() && !hasArguments &&
      isOfArguments()) {
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
  if (key == '"' + std::string(objects->nameKey) + '"' && !isNamed()) {
    if (!parsed.is_string())
      return giveUp(out);
    callName = parsed.get<std::string>();
    if (!isNamed() || (!names.empty() && !std::ranges::count(names, callName)))
      return giveUp(out);
    if (hasArguments)
      sendCall(std::exchange(waiting, {}), out);
  } else if (isOfArguments() && !hasArguments) {
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
  if (format->isList() || format->close.empty())
    place = named ? Place::content : Place::between;
  else
    place = Place::after;
  held.clear();
  hasContent = false;
}

void ToolCallReader::takeAfter(char byte, ToolPieces &out) {
  held += byte;
  std::size_t tag = held.find_first_not_of(kBlank);
  if (tag == held.npos)
    return;
  std::string_view rest = std::string_view(held).substr(tag);
  if (rest == format->close) {
    held.clear();
    raw.clear();
    place = named && !named->section.empty() ? Place::section : Place::content;
  } else if (!format->close.starts_with(rest)) {
    raw = std::exchange(held, {});
    giveUp(out);
  }
}

/// Within a section, after a call: another one, or the section's end.
void ToolCallReader::takeSection(char byte, ToolPieces &out) {
  held += byte;
  std::size_t begin = held.find_first_not_of(kBlank);
  if (begin == held.npos)
    return;
  std::string_view rest = std::string_view(held).substr(begin);
  if (rest == format->open) {
    held.clear();
    beginCall();
  } else if (rest == named->sectionClose) {
    held.clear();
    raw.clear();
    place = Place::content;
  } else if (!format->open.starts_with(rest) &&
             !named->sectionClose.starts_with(rest)) {
    raw = std::exchange(held, {});
    giveUp(out);
  }
}

} // namespace tessera::serve
