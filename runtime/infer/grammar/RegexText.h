// Regular expressions and sets of characters as grammars.
#pragma once
#include "runtime/data/tokenizer/regex/RegexParser.h"
#include "runtime/infer/grammar/Grammar.h"

#include <functional>
#include <map>

namespace tessera::grammar {

/// Adds strings that match to a grammar, which must outlive it.
class RegexText {
public:
  /// How characters are written: as they are, or as in a JSON string, with
  /// escapes where JSON needs them.
  enum class Spelling : uint8_t { plain, json };
  RegexText(Grammar &grammar, Spelling spelling)
      : grammar(grammar), spelling(spelling) {}

  /// One character of the set; returns the node after it.
  uint32_t addSet(uint32_t from, const tokenizer::CodePointSet &set);

  /// The strings that match `pattern` (ECMA-262, as parseRegex reads it);
  /// returns the node after them. Supports ^ and $ at the ends of the pattern
  /// or of its alternatives; an error names any other anchor, and lookahead.
  /// Where an alternative lacks ^ or $, `around` adds what may precede or
  /// follow the match; without it nothing may.
  StatusOr<uint32_t>
  add(uint32_t from, std::string_view pattern,
      const std::function<uint32_t(uint32_t from)> &around = {});

private:
  using Node = tokenizer::RegexNode;

  uint32_t addBranch(uint32_t from, const Node &branch,
                     const std::function<uint32_t(uint32_t)> &around);
  uint32_t emit(const Node &node, uint32_t from);
  uint32_t emitRepeat(const Node &node, uint32_t from);
  bool isSmall(const tokenizer::CodePointSet &set) const;
  void addRanges(uint32_t from, const tokenizer::CodePointSet &set,
                 uint32_t to);

  Grammar &grammar;
  const Spelling spelling;
  std::map<std::vector<tokenizer::CodePointSet::Range>, uint32_t> rules;
  size_t steps = 0; ///< of all patterns
  Status problem;
};

} // namespace tessera::grammar
