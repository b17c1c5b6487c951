// The words of a regular expression: characters, their escapes, and sets that
// have names.
#pragma once
#include "runtime/data/tokenizer/regex/CodePointSet.h"
#include "runtime/support/Status.h"
#include "runtime/support/Text.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::tokenizer {

/// Whose syntax it is where the two differ: in ecma (ECMA-262 with the flag u,
/// as JSON Schema has it) \d and \w are ASCII, a dot takes no kind of line end,
/// ^ is an anchor, and $ is the end of the text alone.
enum class RegexSyntax : uint8_t { oniguruma, ecma };

/// A cursor in a pattern and what it consumes. Only the first error counts;
/// reading ends there.
class RegexWords {
protected:
  RegexWords(std::string_view pattern, RegexSyntax syntax)
      : pattern(pattern), isEcma(syntax == RegexSyntax::ecma) {}

  bool done() const { return at >= pattern.size() || !problem.ok(); }
  bool sees(std::string_view text) const {
    return problem.ok() && pattern.substr(at).starts_with(text);
  }
  bool take(std::string_view text) {
    if (!sees(text))
      return false;
    at += text.size();
    return true;
  }
  /// What is right, and not served.
  void fail(std::string_view what) {
    if (problem.ok())
      problem = Status::error("the regular expression {} has {} at byte {}, "
                              "which is not supported",
                              quote(pattern), what, at);
  }
  /// What is a mistake in this syntax.
  void wrong(std::string_view what, size_t where) {
    if (problem.ok())
      problem = Status::error("the regular expression {} is wrong at byte {}: "
                              "{}",
                              quote(pattern), where, what);
  }
  void wrong(std::string_view what) { wrong(what, at); }

  /// The character at `at`, which it passes.
  uint32_t character();
  /// The character of a backslash followed by `letter`, which is consumed.
  uint32_t escapedCharacter(char letter);
  /// The set of \s, \p{…} and their like after the backslash.
  std::optional<CodePointSet> namedSet(char letter);
  CodePointSet lineEnds() const;

  const std::string_view pattern;
  const bool isEcma;
  size_t at = 0;
  Status problem;

private:
  CodePointSet spaces() const;
  CodePointSet digits() const;
  CodePointSet wordCharacters() const;
  std::optional<CodePointSet> property(bool negative);
  uint32_t hexadecimal();
};

} // namespace tessera::tokenizer
