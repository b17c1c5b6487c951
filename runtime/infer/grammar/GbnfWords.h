// The lexer of GBNF, llama.cpp's notation of grammars: names, numbers,
// characters and their escapes.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::grammar {

/// A position in a grammar's source, which is UTF-8, and the tokens from there
/// on. After the first error nothing more is read.
class GbnfWords {
protected:
  explicit GbnfWords(std::string_view text) : text(text) {}

  bool done() const { return at >= text.size() || !problem.ok(); }
  bool sees(std::string_view what) const {
    return problem.ok() && text.substr(at).starts_with(what);
  }
  bool take(std::string_view what) {
    bool found = sees(what);
    at += found ? what.size() : 0;
    return found;
  }
  /// Skips comments, too.
  void skipSpace();
  /// The name at `at`, which is not consumed; empty if there is none.
  std::string_view nameHere() const;
  /// Whether `NAME ::=` is here.
  bool beginsDefinition() const;
  uint32_t number();
  /// Consumes a character or an escape and returns the character.
  uint32_t character();

  /// "line 2, column 7"
  std::string placeOf(size_t offset) const;
  void fail(size_t offset, std::string_view what) {
    if (problem.ok())
      problem = Status::error("{}: {}", placeOf(offset), what);
  }
  void fail(std::string_view what) { fail(at, what); }

  const std::string_view text;
  size_t at = 0;
  Status problem;

private:
  uint32_t hexadecimal(size_t digits);
};

} // namespace tessera::grammar
