// Tokens that are found in the text before anything else is done to it, such
// as <|endoftext|>.
#pragma once
#include "runtime/data/tokenizer/ByteTrie.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool special = false;    // part of a format, not of the text
  bool singleWord = false; // only if no word character is adjacent
  bool normalized = false; // sought in the normalized text
  bool stripLeft = false;  // takes the white space before it
  bool stripRight = false; // takes the white space after it
};

/// Finds added tokens, at each place the longest.
class AddedTokenMatcher {
public:
  struct Match {
    size_t begin = 0, end = 0; // stripped white space included
    uint32_t id = 0;
  };
  void add(const AddedToken &token, std::string_view content);
  bool empty() const { return tokens.empty(); }

  /// The first match at or after `from`; where `plainSpecials`, special tokens
  /// are text like any other.
  std::optional<Match> find(std::string_view text, size_t from,
                            bool plainSpecials) const;

private:
  struct Entry {
    uint32_t id, length;
    bool special, singleWord, stripLeft, stripRight;
  };
  const Entry *longestAt(std::string_view text) const;

  std::vector<Entry> tokens;
  ByteTrie trie; // numbers are indices into `tokens`
  bool firstBytes[256] = {};
};

} // namespace tessera::tokenizer
