#include "runtime/serve/Channels.h"
#include "runtime/serve/TagPrefix.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tessera::serve {

namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>",
                           kMessage = "<|message|>", kEnd = "<|end|>",
                           kCall = "<|call|>", kReturn = "<|return|>",
                           kFunctions = "functions.", kTo = "to=";
// Models leave out an end now and then: the next header ends a message, too.
constexpr std::array<std::string_view, 5> kEnds = {kEnd, kCall, kReturn, kStart,
                                                   kChannel};
// More than the header of any message to a function.
constexpr std::size_t kMaxHeader = 300;

} // namespace

bool hasChannels(std::string_view chatTemplate) {
  return chatTemplate.find(kChannel) != chatTemplate.npos &&
         chatTemplate.find(kStart) != chatTemplate.npos;
}

std::span<const std::string_view> channelTags() {
  static constexpr std::array<std::string_view, 7> tags = {
      kStart, kChannel, kMessage, kEnd, kCall, kReturn, "<|constrain|>"};
  return tags;
}

std::span<const std::string_view> channelStops() {
  static constexpr std::array<std::string_view, 2> stops = {kReturn, kCall};
  return stops;
}

std::string callHeader(std::string_view function) {
  return fmt::format("{}commentary {}{}{} <|constrain|>json{}", kChannel, kTo,
                     kFunctions, function, kMessage);
}

std::string_view openHeader(std::string_view prompt) {
  const std::size_t at = prompt.rfind(kStart);
  if (at == prompt.npos)
    return {};
  const std::string_view last = prompt.substr(at);
  const bool isOver = std::ranges::any_of(
      std::array{kEnd, kCall, kReturn},
      [&](std::string_view end) { return last.find(end) != last.npos; });
  return isOver || !last.substr(kStart.size()).starts_with("assistant")
             ? std::string_view()
             : last.substr(kStart.size() +
                           std::string_view("assistant").size());
}

ChannelReader::ChannelReader(std::vector<std::string> names, bool onlyOne,
                             std::string_view opened)
    : names(std::move(names)), onlyOne(onlyOne) {
  pending = push(opened).calls;
}

ChannelReader::Part ChannelReader::part() const {
  return inHeader                  ? Part::header
         : kind == Kind::reasoning ? Part::reasoning
                                   : Part::other;
}

/// The text that follows the key, up to white space or a tag.
static std::string_view wordAfter(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == text.npos)
    return {};
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find_first_of(" \t\r\n<"));
}

void ChannelReader::begin(std::string_view header, ChannelPieces &out) {
  std::string_view to = wordAfter(header, kTo);
  const bool isFunctions = to.starts_with(kFunctions);
  if (isFunctions)
    to.remove_prefix(kFunctions.size());
  inHeader = false;
  if (isFunctions && std::ranges::count(names, to) > 0) {
    kind = Kind::call;
    hasArguments = false;
    out.calls.push_back({count++, {}, std::string(to), {}});
    return;
  }
  const bool isAnalysis = wordAfter(header, kChannel) == "analysis";
  kind = isAnalysis ? Kind::reasoning : Kind::content;
  isJoined = isAnalysis ? hasReasoning : hasContent;
}

void ChannelReader::emit(std::string_view text, ChannelPieces &out) {
  if (text.empty())
    return;
  if (kind == Kind::call) {
    hasArguments = true;
    if (out.calls.empty())
      out.calls.push_back({count - 1, {}, {}, {}});
    out.calls.back().arguments += text;
    return;
  }
  std::string &to = kind == Kind::reasoning ? out.reasoning : out.content;
  (kind == Kind::reasoning ? hasReasoning : hasContent) = true;
  if (std::exchange(isJoined, false))
    to += '\n';
  to += text;
}

/// Whether a header may begin so.
static bool mayBeHeader(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return std::ranges::any_of(
      std::array{kStart, kChannel, kTo}, [&](std::string_view tag) {
        return text.starts_with(tag) || tag.starts_with(text);
      });
}

bool ChannelReader::takeHeader(ChannelPieces &out) {
  const std::size_t at = held.find(kMessage);
  if (!mayBeHeader(held) || std::min(at, held.size()) > kMaxHeader) {
    // Its first byte is text in any case, and not that of a tag.
    begin("", out);
    emit(held.substr(0, 1), out);
    held.erase(0, 1);
    return true;
  }
  if (at == held.npos)
    return false;
  begin(std::string_view(held).substr(0, at), out);
  held.erase(0, at + kMessage.size());
  return true;
}

bool ChannelReader::takeBody(ChannelPieces &out) {
  std::size_t at = held.npos, tail = 0;
  std::string_view found;
  for (std::string_view end : kEnds) {
    if (const std::size_t here = held.find(end); here < at) {
      at = here;
      found = end;
    }
    tail = std::max(tail, tagPrefixLength(held, end));
  }
  emit(std::string_view(held).substr(0,
                                     at == held.npos ? held.size() - tail : at),
       out);
  if (at == held.npos) {
    held.erase(0, held.size() - tail);
    return false;
  }
  if (kind == Kind::call && !hasArguments)
    emit("{}", out);
  inHeader = true;
  // A header begins with the last two.
  held.erase(0, found == kStart || found == kChannel ? at : at + found.size());
  return true;
}

ChannelPieces ChannelReader::push(std::string_view text) {
  ChannelPieces out;
  out.calls = std::exchange(pending, {});
  held += text;
  while (!isOver() && (inHeader ? takeHeader(out) : takeBody(out)))
    ;
  if (isOver())
    held.clear();
  return out;
}

ChannelPieces ChannelReader::finish() {
  ChannelPieces out;
  out.calls = std::exchange(pending, {});
  const std::string rest = std::exchange(held, {});
  const bool isTag =
      rest.find(kStart) != rest.npos || rest.find(kChannel) != rest.npos;
  const bool isBlank = rest.find_first_not_of(kBlank) == rest.npos;
  if (isOver() || (inHeader && (isTag || isBlank)))
    return out;
  if (inHeader)
    begin("", out);
  emit(rest, out);
  if (kind == Kind::call && !hasArguments)
    emit("{}", out);
  return out;
}

} // namespace tessera::serve
