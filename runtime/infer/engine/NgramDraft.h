// Drafts of the tokens that come next: what followed the last time that the
// text ended in the same few tokens (Saxena, prompt lookup decoding, 2023).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// The drafts of one text. How many it makes follows how many came true, so
/// that a text which repeats nothing costs nothing.
class NgramDraft {
public:
  /// At most `most` drafts at a time; 0: none.
  explicit NgramDraft(int64_t most) : most(most), reach(most) {}

  /// The next drafts after `tokens`, at most `room`; none if the text has not
  /// ended like this before. Time is linear in the text's length.
  std::span<const int32_t> propose(std::span<const int32_t> tokens,
                                   int64_t room);
  /// So many of the last drafts came true, of which there was one at least.
  void outcome(int64_t accepted);

private:
  int64_t most, reach;
  int64_t pause = 0; ///< calls to wait after drafts that all failed
  std::vector<int32_t> drafts;
};

} // namespace tessera
