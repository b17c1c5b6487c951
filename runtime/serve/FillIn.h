// Fill-in-the-middle, for models that were trained on it (Bavarian et al.,
// Efficient training of language models to fill in the middle, 2022).
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"

#include <optional>
#include <string>
#include <string_view>

namespace tessera::serve {

/// The special tokens around prefix and suffix; the completion follows the last
/// one.
struct FillInTokens {
  std::string_view open, gap, close;
  /// In the order prefix, suffix, middle.
  std::string prompt(std::string_view prefix, std::string_view suffix) const;
};

/// The tokenizer's tokens, if the model supports fill-in-the-middle.
std::optional<FillInTokens> fillInTokens(const tokenizer::Tokenizer &tokenizer);

} // namespace tessera::serve
