// WordPiece: a word is its longest beginning that is a token, and then again
// and again the longest continuation (Y. Wu et al., "Google's Neural Machine
// Translation System", 2016; the greedy form of BERT).
#pragma once
#include "runtime/data/tokenizer/ByteTrie.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// Filled when the tokenizer is read, constant from then on.
struct WordPieceModel {
  ByteTrie trie; // tokens by text; numbers are ids
  /// Where tokens that continue a word begin in the trie; unset: none does.
  uint32_t continuing = 0;
  bool continues = false;
  uint32_t unknown = 0;         // for words that are not made of tokens
  uint64_t maxCharacters = 100; // a longer word is unknown

  /// Appends the tokens of `word` (valid UTF-8, not empty) to `out`.
  void encode(std::string_view word, std::vector<uint32_t> &out) const;
};

} // namespace tessera::tokenizer
