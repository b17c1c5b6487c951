// Reads regular expressions: those of tokenizer.json, and patterns of JSON
// schemas.
#pragma once
#include "runtime/data/tokenizer/regex/RegexTree.h"
#include "runtime/data/tokenizer/regex/RegexWords.h"

namespace tessera::tokenizer {

/// Parses the part of Oniguruma's syntax that splitting patterns use: literals,
/// classes, \p{general category}, \s \d \w and their complements, groups,
/// (?i:…), alternatives, greedy and lazy quantifiers, possessive ones after a
/// single character, and lookahead of a single character. Everything else is
/// refused by name.
StatusOr<RegexNode> parseRegex(std::string_view pattern,
                               RegexSyntax syntax = RegexSyntax::oniguruma);

} // namespace tessera::tokenizer
