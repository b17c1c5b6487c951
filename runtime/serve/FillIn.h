// Gaps in texts, for models that were taught to fill them (Bavarian et al.,
// Efficient training of language models to fill in the middle, 2022).
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"

#include <optional>
#include <string>
#include <string_view>

namespace tessera::serve {

/// Special tokens around what stands before a gap and behind it; what fills it
/// follows the last one.
struct FillInTokens {
  std::string_view open, gap, close;
  /// In the order prefix, suffix, middle.
  std::string prompt(std::string_view prefix, std::string_view suffix) const;
};

/// Those of the tokenizer, if its model knows of gaps.
std::optional<FillInTokens> fillInTokens(const tokenizer::Tokenizer &tokenizer);

} // namespace tessera::serve
