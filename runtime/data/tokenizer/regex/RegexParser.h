// Regular expressions as trees: those of tokenizer.json, and patterns of JSON
// schemas.
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
    Begin,      // takes nothing; nothing stands before it. Of ecma alone
  };
  static constexpr uint32_t unbounded = ~uint32_t{0};

  Kind kind = Kind::Empty;
  bool orEnd = false;
  bool lazy = false; // Repeat: as few as possible
  uint32_t least = 0, most = 0;
  CodePointSet set;
  std::vector<RegexNode> children;
};

/// Whose syntax it is where the two differ: in ecma (ECMA-262 with the flag u,
/// as JSON Schema has it) \d and \w are ASCII, a dot takes no kind of line end,
/// ^ is an anchor, and $ is the end of the text alone.
enum class RegexSyntax : uint8_t { oniguruma, ecma };

/// Parses the part of Oniguruma's syntax that splitting patterns use: literals,
/// classes, \p{general category}, \s \d \w and their complements, groups,
/// (?i:…), alternatives, greedy and lazy quantifiers, possessive ones after a
/// single character, and lookahead of a single character. Everything else is
/// refused by name.
StatusOr<RegexNode> parseRegex(std::string_view pattern,
                               RegexSyntax syntax = RegexSyntax::oniguruma);

} // namespace tessera::tokenizer
