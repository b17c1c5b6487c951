#include "runtime/infer/engine/NgramDraft.h"

#include <algorithm>

namespace tessera {
namespace {

// A longer match foretells more; two tokens are the shortest that say anything.
constexpr size_t kLongest = 4, kShortest = 2;
// A text whose drafts fail is asked again after so many tokens.
constexpr int64_t kPause = 8;

/// Where the tokens go on that stand before, as late as possible, like the last
/// `length`; tokens.size() if they stand nowhere.
size_t placeAfter(std::span<const int32_t> tokens, size_t length) {
  auto end = tokens.last(length);
  // The last token may not be compared with itself.
  auto before = tokens.first(tokens.size() - 1);
  auto found = std::ranges::find_end(before, end);
  if (found.empty())
    return tokens.size();
  return size_t(found.begin() - before.begin()) + length;
}

} // namespace

std::span<const int32_t> NgramDraft::propose(std::span<const int32_t> tokens,
                                             int64_t room) {
  drafts.clear();
  room = std::min(room, reach);
  if (room < 1)
    return {};
  if (pause > 0) {
    --pause;
    return {};
  }
  for (size_t length = std::min(kLongest, tokens.size() - 1);
       length >= kShortest; --length) {
    size_t place = placeAfter(tokens, length);
    if (place == tokens.size())
      continue;
    // What repeats itself up to its end goes on with its own repetition.
    size_t period = tokens.size() - place;
    for (size_t i = 0; i < size_t(room); ++i)
      drafts.push_back(i < period ? tokens[place + i] : drafts[i - period]);
    break;
  }
  return drafts;
}

void NgramDraft::outcome(int64_t accepted) {
  if (accepted == int64_t(drafts.size()))
    reach = std::min(most, 2 * reach);
  else
    reach = std::max<int64_t>(1, accepted + 1);
  if (accepted == 0)
    pause = kPause;
}

} // namespace tessera
