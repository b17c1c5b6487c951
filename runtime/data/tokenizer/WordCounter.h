// How often each piece of text occurs: all that BPE training needs to know of
// a corpus.
#pragma once
#include "runtime/data/tokenizer/PreTokenizer.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// A set of words with counts: an open-addressing table over one arena.
class WordTable {
public:
  struct Word {
    uint64_t hash = 0, begin = 0; // begin: in the arena
    uint32_t length = 0;
    uint64_t count = 0; // 0 marks an empty slot
  };
  WordTable();
  /// Adds `count` occurrences of `word`, which is at most maxWordBytes long.
  void add(std::string_view word, uint64_t count);
  void addAll(const WordTable &other);
  /// The words in an order that depends on the set alone.
  std::vector<Word> sorted() const;
  std::string_view text(const Word &word) const {
    return std::string_view(arena).substr(word.begin, word.length);
  }

private:
  void addHashed(std::string_view word, uint64_t hash, uint64_t count);
  void grow();
  std::vector<Word> slots;
  std::string arena;
  size_t used = 0;
};

/// Longer pieces are split between characters before they are counted, so that
/// no merge has to walk through one very long piece.
inline constexpr size_t maxWordBytes = 4096;

/// Cuts documents into pieces and counts them, on several threads; the result
/// does not depend on how many.
class WordCounter {
public:
  /// `threads` is at least 1.
  WordCounter(SplitPattern pattern, unsigned threads)
      : pattern(pattern), tables(threads) {}
  void add(std::string document);
  /// The counts of all documents; add() is not called after it.
  WordTable finish();

private:
  void flush();
  SplitPattern pattern;
  std::vector<std::string> batch;
  size_t batchBytes = 0;
  std::vector<WordTable> tables;
};

} // namespace tessera::tokenizer
