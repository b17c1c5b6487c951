// The parts of JSON's own grammar (RFC 8259).
#pragma once
#include "runtime/infer/grammar/Grammar.h"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::grammar {

/// Adds rules to a grammar, each once. The grammar must outlive it.
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

  /// An integer of these bounds, each included; where that leads to.
  uint32_t integerWithin(uint32_t from, std::optional<int64_t> least,
                         std::optional<int64_t> most);
  /// Nothing, a space, or a new line with spaces; where that leads to.
  uint32_t space(uint32_t from);
  /// One of the texts, which have no order; where that leads to. Texts that
  /// begin alike share that beginning.
  uint32_t oneOf(uint32_t from, std::vector<std::string> texts);
  /// A property's name in quotes that is none of `names`; where that leads to.
  /// With names to be kept apart it has no escapes, which could spell one of
  /// them, and no character beyond ASCII where one of them has one.
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
  /// Members or elements between commas and space.
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
