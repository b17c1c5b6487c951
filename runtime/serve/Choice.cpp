#include "runtime/serve/Choice.h"

#include <algorithm>
#include <utility>

namespace tessera::serve {

std::string StopMatcher::push(std::string_view text) {
  if (found())
    return {};
  held += text;
  std::size_t first = std::string::npos, end = first, keep = 0;
  for (const std::string &stop : stops) {
    // The stop string that ends first, so that the result does not depend on
    // the pieces.
    std::size_t at = held.find(stop);
    if (at != std::string::npos &&
        std::pair(at + stop.size(), at) < std::pair(end, first)) {
      first = at;
      end = at + stop.size();
      hit = stop;
    }
    // The longest suffix of the text that is a prefix of this stop string.
    std::size_t most = std::min(stop.size() - 1, held.size());
    for (std::size_t length = most; length > keep; --length)
      if (held.compare(held.size() - length, length, stop, 0, length) == 0)
        keep = length;
  }
  std::string certain = held.substr(0, found() ? first : held.size() - keep);
  held.erase(0, certain.size());
  return certain;
}

std::string StopMatcher::finish() {
  return found() ? std::string() : std::exchange(held, {});
}

int64_t charactersOf(std::string_view text) {
  return std::ranges::count_if(
      text, [](char byte) { return (uint8_t(byte) & 0xC0) != 0x80; });
}

/// The token's length after another token: decoders drop a leading space.
int64_t Choice::ownLength(const TokenEvent &event) const {
  const uint32_t twice[] = {uint32_t(event.token), uint32_t(event.token)};
  auto length = [&](std::size_t count) {
    return charactersOf(tokenizer::decode(
        tokenizer, std::span(twice).first(count), /*skipSpecial=*/true));
  };
  return length(2) - length(1);
}

std::string Choice::textOf(int32_t token) {
  if (std::ranges::count(shown, token) == 0)
    return decoder.push(uint32_t(token));
  return tokenizer.token(uint32_t(token)).bytes;
}

void Choice::send(std::string text, std::optional<EngineResult> end) {
  Delta delta;
  delta.choice = number;
  delta.text = std::move(text);
  delta.tokens = std::exchange(pending, {});
  if (end)
    delta.stopped = matcher.which();
  delta.end = std::move(end);
  delta.generated = std::exchange(generated, 0);
  take(std::move(delta));
}

void Choice::note(const TokenEvent &event, std::string_view decoded,
                  bool hasScore) {
  int64_t added = charactersOf(decoded);
  // Characters beyond the token's own were held back by earlier tokens. A
  // special token is not decoded and holds nothing back.
  bool isSpecial = tokenizer.token(uint32_t(event.token)).special;
  int64_t before = isSpecial ? 0 : added - ownLength(event);
  if (keepsTokens)
    pending.push_back(
        {event, characters + std::max<int64_t>(0, before), hasScore});
  characters += added;
}

//===--- the prompt again -------------------------------------------------===//

std::string Choice::echoed(const TokenEvent &event, bool hasScore) {
  const tokenizer::TokenText &token = tokenizer.token(uint32_t(event.token));
  std::string text = token.special && echo.showsSpecial
                         ? token.bytes
                         : decoder.push(uint32_t(event.token));
  note(event, text, hasScore);
  if (keepsTokens)
    pending.back().isPrompt = true;
  ++nextEcho;
  return text;
}

/// Echoes tokens without a logprob. They are not searched for stop strings.
void Choice::echoUpTo(std::size_t end) {
  std::string text;
  while (nextEcho < end) {
    TokenEvent event;
    event.token = echo.tokens[nextEcho];
    text += echoed(event, /*hasScore=*/false);
  }
  if (!text.empty())
    send(std::move(text));
}

void Choice::scored(std::size_t place, const TokenEvent &event) {
  std::size_t own = place - echo.begin;
  if (place < echo.begin || own >= echo.tokens.size())
    return; // added by the tokenizer or for a suffix
  echoUpTo(own);
  std::string text = echoed(event, /*hasScore=*/true);
  if (!text.empty())
    send(std::move(text));
}

//===--- what follows it --------------------------------------------------===//

bool Choice::token(const TokenEvent &event) {
  echoUpTo(echo.tokens.size());
  std::string decoded;
  if (!event.isStop)
    decoded = textOf(event.token);
  note(event, decoded, /*hasScore=*/true);
  ++generated;
  if (event.isStop)
    return false;
  std::string text = matcher.push(decoded);
  if (!text.empty())
    send(std::move(text));
  return !matcher.found();
}

void Choice::finished(const EngineResult &result) {
  echoUpTo(echo.tokens.size());
  std::string text = matcher.push(decoder.finish());
  text += matcher.finish();
  send(std::move(text), result);
}

} // namespace tessera::serve
