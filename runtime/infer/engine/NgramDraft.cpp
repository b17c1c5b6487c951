#include "runtime/infer/engine/NgramDraft.h"

#include <algorithm>

namespace tessera {
namespace {

// A longer match predicts better; a single token says too little.
constexpr size_t kLongest = 4, kShortest = 2;
// Calls of propose() to skip after drafts that all failed.
constexpr int64_t kPause = 8;

/// The offset after the last earlier occurrence of the final `length` tokens;
/// tokens.size() if they occur nowhere else.
size_t offsetAfterMatch(std::span<const int32_t> tokens, size_t length) {
  auto end = tokens.last(length);
  // The end must not match itself.
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
    size_t match = offsetAfterMatch(tokens, length);
    if (match == tokens.size())
      continue;
    // A match that reaches the end is a repetition, which the drafts continue.
    size_t period = tokens.size() - match;
    for (size_t i = 0; i < size_t(room); ++i)
      drafts.push_back(i < period ? tokens[match + i] : drafts[i - period]);
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
