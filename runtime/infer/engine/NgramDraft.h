// Prompt-lookup (n-gram) speculative decoding: the draft tokens are those that
// followed the last time that the sequence ended in the same few tokens
// (Saxena, prompt lookup decoding, 2023).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// Drafts of one sequence. The number of drafts follows how many were accepted,
/// so a sequence that repeats nothing costs nothing.
class NgramDraft {
public:
  /// At most `most` drafts at a time; 0: none.
  explicit NgramDraft(int64_t most) : most(most), reach(most) {}

  /// The next drafts after `tokens`, at most `room`; none if the sequence has
  /// not ended like this before. Time is linear in the length of the sequence.
  std::span<const int32_t> propose(std::span<const int32_t> tokens,
                                   int64_t room);
  /// Reports how many of the last drafts, at least one, were accepted.
  void outcome(int64_t accepted);

private:
  int64_t most, reach;
  int64_t pause = 0; ///< calls to skip after drafts that all failed
  std::vector<int32_t> drafts;
};

} // namespace tessera
