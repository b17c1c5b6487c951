// Regular expressions as automata: one look at each character, whatever the
// text. A match is the one that a backtracking engine finds: the leftmost, and
// of those the one that the order of alternatives and the greed of quantifiers
// prefer.
//
// The automaton's states are ordered lists of the positions in the pattern that
// a backtracking engine would try (R. Cox, "Regular Expression Matching in the
// Wild", 2010). All are built in advance, so that any number of threads may
// share them.
#pragma once
#include "runtime/support/Status.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tessera::tokenizer {

class Regex {
public:
  /// Compiles what parseRegex reads. Refused as well: an expression that
  /// matches the empty text, and one with more than maxTableEntries
  /// transitions.
  static StatusOr<Regex> compile(std::string_view pattern);
  /// The expression that matches exactly `text`, which is not empty.
  static StatusOr<Regex> literal(std::string_view text);

  static constexpr size_t maxTableEntries = 1 << 20;
  static constexpr size_t maxPatternBytes = 4096;

private:
  friend class RegexCompiler;
  friend class RegexScanner;

  /// The class of the character at `at`, and its length in bytes.
  uint32_t classAt(const char *at, const char *end, uint32_t &length) const;

  // Characters that no set of the expression tells apart share a class; the
  // last class is the end of the text.
  uint32_t classes = 0;
  std::array<uint8_t, 128> asciiClasses{};
  std::vector<uint16_t> pageOfBlock; // by code point / 256
  std::vector<uint8_t> pages;        // 256 classes each
  uint8_t invalidClass = 0;
  // [state][class] → the next state × 2, plus 1 where a match ends before the
  // character. State 0 is dead, state 1 the start.
  std::vector<uint32_t> table;
};

/// Finds the matches in a text one after another; regex and text outlive it.
/// The time for all of them together is linear in the text.
class RegexScanner {
public:
  RegexScanner(const Regex &regex, std::string_view text)
      : regex(regex), text(text) {}
  struct Match {
    size_t begin, end; // bytes
  };
  std::optional<Match> next();

private:
  /// The end of the match that begins at `begin`, or nothing.
  std::optional<size_t> matchAt(size_t begin);

  const Regex &regex;
  std::string_view text;
  size_t from = 0;
  // Pairs of offset and state from which no match is reached, kept every 64
  // bytes: a scan that runs far past the end of its match would otherwise be
  // repeated from each match (T. Reps, "Maximal-Munch Tokenization in Linear
  // Time", 1998).
  std::unordered_set<uint64_t> hopeless;
  std::vector<uint64_t> passed;
};

} // namespace tessera::tokenizer
