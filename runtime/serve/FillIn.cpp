#include "runtime/serve/FillIn.h"

#include <algorithm>

#include <fmt/format.h>

namespace tessera::serve {

std::string FillInTokens::prompt(std::string_view prefix,
                                 std::string_view suffix) const {
  return fmt::format("{}{}{}{}{}", open, prefix, gap, suffix, close);
}

std::optional<FillInTokens>
fillInTokens(const tokenizer::Tokenizer &tokenizer) {
  static constexpr FillInTokens known[] = {
      // Qwen2.5-Coder, CodeGemma
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
      // StarCoder 1 and 2, Granite Code
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
      // DeepSeek-Coder
      {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
  };
  auto has = [&](std::string_view token) {
    return tokenizer.addedToken(token).has_value();
  };
  for (const FillInTokens &each : known)
    if (has(each.open) && has(each.gap) && has(each.close))
      return each;
  return std::nullopt;
}

} // namespace tessera::serve
