// The reasoning that a model writes between tags before its answer, and a
// reader that separates the two in a stream.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::serve {

/// The tags around reasoning: "<think>" and "</think>" of most models.
struct ReasoningTags {
  std::string_view open, close;

  /// Whether the template has begun the reasoning: the prompt ends with the
  /// opening tag.
  bool isOpenAfter(std::string_view prompt) const;
};

/// The tags of a chat template; null if it has none.
const ReasoningTags *reasoningTagsOf(std::string_view chatTemplate);

struct ReasoningPieces {
  std::string reasoning, content;
};

/// Reads one output, in pieces of any size, which only affect when a result is
/// known. Only what precedes any other text is reasoning. White space next to a
/// tag belongs to neither.
class ReasoningReader {
public:
  /// The tags must outlive it. `isOpen`: the output begins with reasoning.
  explicit ReasoningReader(const ReasoningTags &tags, bool isOpen)
      : tags(&tags), place(isOpen ? Place::opened : Place::before),
        began(isOpen) {}
  ReasoningPieces push(std::string_view text);
  /// Returns what was held back because a tag could have begun there.
  ReasoningPieces finish();
  /// Whether the next text may be reasoning.
  bool isReasoning() const { return place < Place::after; }
  /// Whether there is reasoning, or was, even if it is empty.
  bool hasBegun() const { return began; }

private:
  enum class Place : uint8_t {
    before,  ///< of the output: the opening tag may follow
    opened,  ///< at the beginning of the reasoning
    between, ///< the tags
    after,   ///< the closing tag
    content
  };
  void open(ReasoningPieces &out);
  void close(ReasoningPieces &out);

  const ReasoningTags *tags;
  Place place;
  bool hasReasoning = false; ///< some was returned
  bool began = false;
  std::string held;
};

} // namespace tessera::serve
