// JSON strings whose values match a regular expression.
#pragma once
#include "runtime/infer/grammar/JsonText.h"
#include "runtime/infer/grammar/RegexText.h"

namespace tessera::grammar {

/// Adds such strings to a grammar, which must outlive it, as must `json`.
class StringPattern {
public:
  StringPattern(Grammar &grammar, JsonText &json)
      : grammar(grammar), json(json),
        regex(grammar, RegexText::Spelling::json) {}

  /// The strings, with their quotes, in whose value some part matches `pattern`
  /// (ECMA-262, as parseRegex reads it); returns the node after them. The match
  /// uses escapes only where JSON needs them. Supports ^ and $ at the ends of
  /// the pattern or of its alternatives; an error names any other anchor, and
  /// lookahead.
  StatusOr<uint32_t> add(uint32_t from, std::string_view pattern);

  /// The pattern of a value of "format", or nothing: date, time, date-time,
  /// duration (RFC 3339), email, hostname, ipv4, ipv6, uuid.
  static std::optional<std::string> ofFormat(std::string_view format);

private:
  Grammar &grammar;
  JsonText &json;
  RegexText regex;
};

} // namespace tessera::grammar
