// Regular expressions as trees, and what is asked of one.
#pragma once
#include "runtime/data/tokenizer/regex/CodePointSet.h"

#include <cstdint>
#include <vector>

namespace tessera::tokenizer {

struct RegexNode {
  enum class Kind : uint8_t {
    Empty,      // the empty text
    Set,        // one character of `set`
    Concat,     // `children` one after another
    Alternate,  // one of `children`, the first that leads to a match
    Repeat,     // `children[0]`, `least` to `most` times
    FollowedBy, // takes nothing; the next character is in `set`, or the text
                // ends and `orEnd`
    Begin,      // takes nothing; only at the beginning (ECMA only)
  };
  static constexpr uint32_t unbounded = ~uint32_t{0};

  Kind kind = Kind::Empty;
  bool orEnd = false;
  bool lazy = false; // Repeat: as few as possible
  uint32_t least = 0, most = 0;
  CodePointSet set;
  std::vector<RegexNode> children;
};

/// `first`, then `second`.
RegexNode sequenceOf(RegexNode first, RegexNode second);

/// Takes nothing; the next character is none of the set, or the text ends.
RegexNode notFollowedBy(const CodePointSet &set);

/// Whether it matches the empty text.
bool mayBeEmpty(const RegexNode &node);

/// Adds the characters that may come next; false if that depends on more than
/// one character.
bool collectNext(const RegexNode &node, CodePointSet &set, bool &end);

} // namespace tessera::tokenizer
