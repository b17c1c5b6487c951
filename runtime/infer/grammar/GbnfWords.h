// The words of GBNF, llama.cpp's notation of grammars: names, numbers,
// characters and their escapes.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::grammar {

/// Where a reader stands in a grammar's text, which is UTF-8, and what it takes
/// from there; the first error counts, and nothing is seen behind it.
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
  /// Passes comments, too.
  void skipSpace();
  /// A name at `at`, which it does not pass; empty if there is none.
  std::string_view nameHere() const;
  /// Whether `NAME ::=` is here.
  bool beginsDefinition() const;
  uint32_t number();
  /// The character at `at`, which it passes, or what an escape says.
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
