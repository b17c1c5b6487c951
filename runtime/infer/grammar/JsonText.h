// Rules of JSON itself (RFC 8259).
#pragma once
#include "runtime/infer/grammar/Grammar.h"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::grammar {

/// Adds rules to a grammar, each once. Functions with `from` return the node
/// after what they add. The grammar must outlive it.
class JsonText {
public:
  explicit JsonText(Grammar &grammar) : grammar(grammar) {}

  uint32_t string();    ///< with its quotes
  uint32_t character(); ///< one code point of a string, perhaps escaped
  uint32_t number();
  uint32_t integer();
  uint32_t boolean();
  uint32_t null();
  uint32_t anyValue();
  uint32_t anyObject();
  uint32_t anyArray();

  /// An integer within these bounds, inclusive.
  uint32_t integerWithin(uint32_t from, std::optional<int64_t> least,
                         std::optional<int64_t> most);
  /// Nothing, a space, or a new line with spaces.
  uint32_t space(uint32_t from);
  /// One of the strings, in any order. Common prefixes are shared.
  uint32_t oneOf(uint32_t from, std::vector<std::string> strings);
  /// A property's name in quotes that is not in `names`. Unless `names` is
  /// empty, it has no escapes, which could spell one of them, and no character
  /// beyond ASCII at a position where one of them has one.
  uint32_t otherName(uint32_t from,
                     const std::set<std::string, std::less<>> &names);

private:
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t indentation();
  /// Code points of UTF-8 that need no escape in a string.
  void addPlain(uint32_t from, uint32_t to);
  void addBeyondAscii(uint32_t from, uint32_t to);
  void addEscape(uint32_t from, uint32_t to);
  uint32_t digits(uint32_t from);
  uint32_t whole(uint32_t from);
  /// A number of `least` or more, without sign or leading zeros.
  void addMagnitude(uint32_t from, uint64_t least, std::optional<uint64_t> most,
                    uint32_t to);
  void addDigitsBetween(uint32_t from, const std::string &low,
                        const std::string &high, uint32_t to);
  /// Members or elements with commas and space.
  void addList(uint32_t rule, char open, char close, bool named);

  Grammar &grammar;
  uint32_t stringRule = kNone, characterRule = kNone, numberRule = kNone,
           integerRule = kNone, booleanRule = kNone, nullRule = kNone,
           valueRule = kNone, objectRule = kNone, arrayRule = kNone,
           indentRule = kNone;
};

/// `text` in quotes, as JSON.
std::string quotedJson(std::string_view text);

} // namespace tessera::grammar
