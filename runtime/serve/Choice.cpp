#include "runtime/serve/Choice.h"

#include <algorithm>
#include <utility>

namespace tessera::serve {

std::string StopMatcher::push(std::string_view text) {
  if (hasFound)
    return {};
  held += text;
  std::size_t first = std::string::npos, end = first, keep = 0;
  for (const std::string &stop : stops) {
    // The one that ends first, so that the pieces do not matter.
    std::size_t at = held.find(stop);
    if (at != std::string::npos &&
        std::pair(at + stop.size(), at) < std::pair(end, first)) {
      first = at;
      end = at + stop.size();
    }
    // The longest end of the text with which this stop begins.
    std::size_t most = std::min(stop.size() - 1, held.size());
    for (std::size_t length = most; length > keep; --length)
      if (held.compare(held.size() - length, length, stop, 0, length) == 0)
        keep = length;
  }
  hasFound = first != std::string::npos;
  std::string certain = held.substr(0, hasFound ? first : held.size() - keep);
  held.erase(0, certain.size());
  return certain;
}

std::string StopMatcher::finish() {
  return hasFound ? std::string() : std::exchange(held, {});
}

bool Choice::token(const TokenEvent &event) {
  if (logprobs)
    pending.push_back(event);
  if (event.isStop)
    return false;
  std::string text = matcher.push(decoder.push(uint32_t(event.token)));
  if (!text.empty())
    take({number, std::move(text), std::exchange(pending, {}), std::nullopt});
  return !matcher.found();
}

void Choice::finished(const EngineResult &result) {
  std::string text = matcher.push(decoder.finish());
  text += matcher.finish();
  take({number, std::move(text), std::exchange(pending, {}), result});
}

} // namespace tessera::serve
