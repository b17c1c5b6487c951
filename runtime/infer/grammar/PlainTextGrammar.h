// Grammars of output that is not JSON: of a regular expression, of GBNF
// (Gbnf.h), or of a list of strings. They describe the whole output;
// Grammar::beginWithSpace applies to them.
#pragma once
#include "runtime/infer/grammar/Grammar.h"

#include <string>
#include <string_view>
#include <vector>

namespace tessera::grammar {

/// The strings that `pattern` matches completely (RegexText); ^ and $ are
/// allowed where they are redundant.
StatusOr<Grammar> grammarOfRegex(std::string_view pattern);

/// One of the strings, of which there must be at least one.
StatusOr<Grammar> grammarOfChoice(std::vector<std::string> choices);

} // namespace tessera::grammar
