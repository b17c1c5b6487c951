// Texts of a form that is no JSON: of a regular expression, of a grammar
// (Gbnf.h), or one of a list. They are the whole answer and begin at once;
// Grammar::beginWithSpace holds for them.
#pragma once
#include "runtime/infer/grammar/Grammar.h"

#include <string>
#include <string_view>
#include <vector>

namespace tessera::grammar {

/// All that `pattern` matches from its beginning to its end: as RegexText has
/// it, so that ^ and $ may stand where they say nothing.
StatusOr<Grammar> grammarOfRegex(std::string_view pattern);

/// One of the texts, of which there is at least one.
StatusOr<Grammar> grammarOfChoice(std::vector<std::string> texts);

} // namespace tessera::grammar
