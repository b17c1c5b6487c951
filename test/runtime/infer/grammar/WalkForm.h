// What targets that fuzz forms of answers share.
#pragma once
#include "runtime/infer/grammar/GrammarGuide.h"
#include <cstdlib>

namespace tessera::grammar {

/// Every byte, and `more`.
inline std::shared_ptr<const Vocabulary>
bytesAnd(std::initializer_list<const char *> more) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte)
    texts.emplace_back(1, char(byte));
  texts.insert(texts.end(), more.begin(), more.end());
  return std::make_shared<Vocabulary>(texts);
}

/// Takes tokens that are allowed, chosen by the input: there must always be
/// one, unless the masks give up.
inline void walk(Grammar grammar,
                 const std::shared_ptr<const Vocabulary> &tokens,
                 const uint8_t *data, size_t size) {
  GrammarGuide guide(std::make_shared<TokenGrammar>(std::move(grammar), tokens),
                     {});
  for (size_t step = 0; step < 24 && !guide.isComplete(); ++step) {
    auto mask = guide.allowed();
    if (!mask.ok())
      return; // too ambiguous, or nested too deeply
    size_t token = size ? data[step % size] : 0;
    for (size_t i = 0; i < tokens->size() && !(*mask)->contains(token); ++i)
      token = (token + 1) % tokens->size();
    if (!(*mask)->contains(token) || !guide.accept(int32_t(token)).ok())
      std::abort(); // a text that cannot go on
  }
}

} // namespace tessera::grammar
