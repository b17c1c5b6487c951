// The regular expressions of tokenizer.json as trees.
#pragma once
#include "runtime/data/tokenizer/regex/CodePointSet.h"
#include "runtime/support/Status.h"

#include <string_view>
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
  };
  static constexpr uint32_t unbounded = ~uint32_t{0};

  Kind kind = Kind::Empty;
  bool orEnd = false;
  bool lazy = false; // Repeat: as few as possible
  uint32_t least = 0, most = 0;
  CodePointSet set;
  std::vector<RegexNode> children;
};

/// Parses the part of Oniguruma's syntax that splitting patterns use: literals,
/// classes, \p{general category}, \s \d \w and their complements, groups,
/// (?i:…), alternatives, greedy and lazy quantifiers, possessive ones after a
/// single character, and lookahead of a single character. Everything else is
/// refused by name.
StatusOr<RegexNode> parseRegex(std::string_view pattern);

} // namespace tessera::tokenizer
