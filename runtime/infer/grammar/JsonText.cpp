#include "runtime/infer/grammar/JsonText.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

namespace tessera::grammar {

std::string quotedJson(std::string_view text) {
  return nlohmann::json(text).dump();
}

//===--- strings ----------------------------------------------------------===//

// The well-formed sequences of more than one byte (Unicode, table 3-7).
void JsonText::addBeyondAscii(uint32_t from, uint32_t to) {
  uint32_t one = grammar.addNode(), two = grammar.addNode(),
           three = grammar.addNode();
  grammar.addBytes(one, 0x80, 0xBF, to);
  grammar.addBytes(two, 0x80, 0xBF, one);
  grammar.addBytes(three, 0x80, 0xBF, two);
  grammar.addBytes(from, 0xC2, 0xDF, one);
  grammar.addBytes(from, 0xE1, 0xEC, two);
  grammar.addBytes(from, 0xEE, 0xEF, two);
  grammar.addBytes(from, 0xF1, 0xF3, three);
  auto addLead = [&](uint8_t lead, uint8_t first, uint8_t last, uint32_t then) {
    uint32_t second = grammar.addNode();
    grammar.addBytes(from, lead, lead, second);
    grammar.addBytes(second, first, last, then);
  };
  addLead(0xE0, 0xA0, 0xBF, one);
  addLead(0xED, 0x80, 0x9F, one);
  addLead(0xF0, 0x90, 0xBF, two);
  addLead(0xF4, 0x80, 0x8F, two);
}

void JsonText::addPlain(uint32_t from, uint32_t to) {
  grammar.addBytes(from, ' ', '!', to);
  grammar.addBytes(from, '#', '[', to);
  grammar.addBytes(from, ']', 0x7F, to);
  addBeyondAscii(from, to);
}

static void addHex(Grammar &grammar, uint32_t from, uint32_t to) {
  grammar.addBytes(from, '0', '9', to);
  grammar.addBytes(from, 'a', 'f', to);
  grammar.addBytes(from, 'A', 'F', to);
}

void JsonText::addEscape(uint32_t from, uint32_t to) {
  uint32_t letter = grammar.addText(from, "\\");
  for (char each : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'})
    grammar.addBytes(letter, uint8_t(each), uint8_t(each), to);
  // \uXXXX only of characters that are not surrogates: those beyond the BMP are
  // written directly.
  uint32_t first = grammar.addText(letter, "u");
  uint32_t second = grammar.addNode(), third = grammar.addNode(),
           fourth = grammar.addNode(), afterD = grammar.addNode();
  grammar.addBytes(first, '0', '9', second);
  for (auto [low, high] : {std::pair('a', 'c'), {'e', 'f'}}) {
    grammar.addBytes(first, uint8_t(low), uint8_t(high), second);
    grammar.addBytes(first, uint8_t(low - 32), uint8_t(high - 32), second);
  }
  grammar.addBytes(first, 'd', 'd', afterD);
  grammar.addBytes(first, 'D', 'D', afterD);
  grammar.addBytes(afterD, '0', '7', third);
  addHex(grammar, second, third);
  addHex(grammar, third, fourth);
  addHex(grammar, fourth, to);
}

uint32_t JsonText::character() {
  if (characterRule == kNone) {
    characterRule = grammar.addRule();
    uint32_t from = grammar.startOf(characterRule), to = grammar.addNode();
    addPlain(from, to);
    addEscape(from, to);
    grammar.setFinal(to);
  }
  return characterRule;
}

uint32_t JsonText::string() {
  if (stringRule == kNone) {
    stringRule = grammar.addRule();
    uint32_t inside = grammar.addText(grammar.startOf(stringRule), "\"");
    addPlain(inside, inside);
    addEscape(inside, inside);
    grammar.setFinal(grammar.addText(inside, "\""));
  }
  return stringRule;
}

uint32_t JsonText::oneOf(uint32_t from, std::vector<std::string> strings) {
  uint32_t to = grammar.addNode();
  std::map<std::pair<uint32_t, char>, uint32_t> trie;
  for (const std::string &text : strings) {
    uint32_t at = from;
    for (char byte : text) {
      auto [found, isNew] = trie.try_emplace({at, byte}, 0);
      if (isNew)
        found->second = grammar.addText(at, std::string_view(&byte, 1));
      at = found->second;
    }
    grammar.addSkip(at, to);
    if (grammar.isFull())
      break;
  }
  return to;
}

static bool needsNoEscape(char byte) {
  return uint8_t(byte) >= ' ' && byte != '"' && byte != '\\';
}

uint32_t JsonText::otherName(uint32_t from,
                             const std::set<std::string, std::less<>> &names) {
  uint32_t to = grammar.addNode();
  if (names.empty()) {
    grammar.addCall(from, string(), to);
    return to;
  }
  // A trie of the names as far as they are ASCII; after leaving it, anything
  // may follow.
  struct Branch {
    std::map<uint8_t, size_t> next;
    uint32_t node = 0;
    bool ends = false, goesBeyondAscii = false;
  };
  std::vector<Branch> trie(1);
  for (const std::string &name : names) {
    if (!std::ranges::all_of(name, needsNoEscape))
      continue;
    size_t at = 0, length = 0;
    for (; length < name.size() && uint8_t(name[length]) < 0x80; ++length) {
      auto [found, isNew] =
          trie[at].next.try_emplace(uint8_t(name[length]), trie.size());
      at = found->second;
      if (isNew)
        trie.emplace_back();
    }
    (length == name.size() ? trie[at].ends : trie[at].goesBeyondAscii) = true;
  }
  for (Branch &branch : trie)
    branch.node = grammar.addNode();
  uint32_t free = grammar.addNode();
  addPlain(free, free);
  grammar.addBytes(free, '"', '"', to);
  for (const Branch &branch : trie) {
    if (grammar.isFull())
      break;
    for (auto [byte, next] : branch.next)
      grammar.addBytes(branch.node, byte, byte, trie[next].node);
    // Ranges of the bytes with which no name continues.
    for (unsigned first = ' '; first < 0x80; ++first) {
      auto leaves = [&](unsigned byte) {
        return byte < 0x80 && needsNoEscape(char(byte)) &&
               !branch.next.contains(uint8_t(byte));
      };
      unsigned last = first;
      while (leaves(last))
        ++last;
      if (last > first)
        grammar.addBytes(branch.node, uint8_t(first), uint8_t(last - 1), free);
      first = last;
    }
    if (!branch.goesBeyondAscii)
      addBeyondAscii(branch.node, free);
    if (!branch.ends)
      grammar.addBytes(branch.node, '"', '"', to);
  }
  grammar.addSkip(grammar.addText(from, "\""), trie.front().node);
  return to;
}

//===--- numbers and words ------------------------------------------------===//

/// One or more digits.
uint32_t JsonText::digits(uint32_t from) {
  uint32_t to = grammar.addNode();
  grammar.addBytes(from, '0', '9', to);
  grammar.addBytes(to, '0', '9', to);
  return to;
}

/// An integer without leading zeros.
uint32_t JsonText::whole(uint32_t from) {
  uint32_t to = grammar.addNode(), sign = grammar.addNode(),
           more = grammar.addNode();
  grammar.addSkip(from, sign);
  grammar.addBytes(from, '-', '-', sign);
  grammar.addBytes(sign, '0', '0', to);
  grammar.addBytes(sign, '1', '9', more);
  grammar.addBytes(more, '0', '9', more);
  grammar.addSkip(more, to);
  return to;
}

uint32_t JsonText::integer() {
  if (integerRule == kNone) {
    integerRule = grammar.addRule();
    grammar.setFinal(whole(grammar.startOf(integerRule)));
  }
  return integerRule;
}

// Digit by digit; a bound matters while all digits so far equal its own.
void JsonText::addDigitsBetween(uint32_t from, const std::string &low,
                                const std::string &high, uint32_t to) {
  struct State {
    bool isLow, isHigh;
    auto operator<=>(const State &) const = default;
  };
  std::map<State, uint32_t> states = {{{true, true}, from}};
  for (size_t i = 0; i < low.size(); ++i) {
    std::map<State, uint32_t> next;
    for (auto [state, node] : states) {
      char first = state.isLow ? low[i] : '0',
           last = state.isHigh ? high[i] : '9';
      for (char digit = first; digit <= last; ++digit) {
        State after = {state.isLow && digit == low[i],
                       state.isHigh && digit == high[i]};
        auto [found, isNew] = next.try_emplace(after, to);
        if (isNew && i + 1 < low.size())
          found->second = grammar.addNode();
        grammar.addBytes(node, uint8_t(digit), uint8_t(digit), found->second);
      }
    }
    states = std::move(next);
  }
}

void JsonText::addMagnitude(uint32_t from, uint64_t least,
                            std::optional<uint64_t> most, uint32_t to) {
  std::string low = std::to_string(least);
  std::string high =
      most ? std::to_string(*most) : std::string(low.size(), '9');
  for (size_t length = low.size(); length <= high.size(); ++length)
    addDigitsBetween(
        from, length == low.size() ? low : "1" + std::string(length - 1, '0'),
        length == high.size() ? high : std::string(length, '9'), to);
  if (most)
    return;
  // Any number with more digits.
  uint32_t at = grammar.addNode();
  grammar.addBytes(from, '1', '9', at);
  for (size_t i = 0; i < low.size(); ++i) {
    uint32_t next = grammar.addNode();
    grammar.addBytes(at, '0', '9', next);
    at = next;
  }
  grammar.addBytes(at, '0', '9', at);
  grammar.addSkip(at, to);
}

uint32_t JsonText::integerWithin(uint32_t from, std::optional<int64_t> least,
                                 std::optional<int64_t> most) {
  uint32_t to = grammar.addNode();
  auto magnitude = [](int64_t value) { // of INT64_MIN too
    return value < 0 ? uint64_t(0) - uint64_t(value) : uint64_t(value);
  };
  if (!most || *most >= 0)
    addMagnitude(from, uint64_t(std::max<int64_t>(0, least.value_or(0))),
                 most ? std::optional(uint64_t(*most)) : std::nullopt, to);
  if (!least || *least < 0)
    addMagnitude(grammar.addText(from, "-"),
                 most && *most < 0 ? magnitude(*most) : 1,
                 least ? std::optional(magnitude(*least)) : std::nullopt, to);
  return to;
}

uint32_t JsonText::number() {
  if (numberRule != kNone)
    return numberRule;
  numberRule = grammar.addRule();
  uint32_t integral = whole(grammar.startOf(numberRule));
  uint32_t mantissa = grammar.addNode(), end = grammar.addNode();
  grammar.addSkip(integral, mantissa);
  grammar.addSkip(digits(grammar.addText(integral, ".")), mantissa);
  grammar.addSkip(mantissa, end);
  uint32_t letter = grammar.addNode(), sign = grammar.addNode();
  grammar.addBytes(mantissa, 'e', 'e', letter);
  grammar.addBytes(mantissa, 'E', 'E', letter);
  grammar.addSkip(letter, sign);
  grammar.addBytes(letter, '+', '+', sign);
  grammar.addBytes(letter, '-', '-', sign);
  grammar.addSkip(digits(sign), end);
  grammar.setFinal(end);
  return numberRule;
}

uint32_t JsonText::boolean() {
  if (booleanRule == kNone) {
    booleanRule = grammar.addRule();
    grammar.setFinal(oneOf(grammar.startOf(booleanRule), {"true", "false"}));
  }
  return booleanRule;
}

uint32_t JsonText::null() {
  if (nullRule == kNone) {
    nullRule = grammar.addRule();
    grammar.setFinal(grammar.addText(grammar.startOf(nullRule), "null"));
  }
  return nullRule;
}

//===--- space and nesting ------------------------------------------------===//

// Bounded, or a model that likes spaces would never stop writing them.
uint32_t JsonText::indentation() {
  if (indentRule == kNone) {
    indentRule = grammar.addRule();
    uint32_t at = grammar.addText(grammar.startOf(indentRule), "\n");
    for (int i = 0; i < 64; ++i) {
      grammar.setFinal(at);
      at = grammar.addText(at, " ");
    }
    grammar.setFinal(at);
  }
  return indentRule;
}

uint32_t JsonText::space(uint32_t from) {
  uint32_t to = grammar.addNode();
  grammar.addSkip(from, to);
  grammar.addBytes(from, ' ', ' ', to);
  grammar.addCall(from, indentation(), to);
  return to;
}

void JsonText::addList(uint32_t rule, char open, char close, bool named) {
  uint32_t opened =
      space(grammar.addText(grammar.startOf(rule), std::string(1, open)));
  uint32_t element = grammar.addNode(), after = grammar.addNode();
  grammar.addSkip(opened, element);
  uint32_t value = element;
  if (named) {
    value = grammar.addNode();
    grammar.addCall(element, string(), value);
    value = space(grammar.addText(value, ":"));
  }
  grammar.addCall(value, anyValue(), after);
  grammar.addSkip(space(grammar.addText(after, ",")), element);
  uint32_t closed = grammar.addNode();
  for (uint32_t from : {opened, space(after)})
    grammar.addBytes(from, uint8_t(close), uint8_t(close), closed);
  grammar.setFinal(closed);
}

uint32_t JsonText::anyObject() {
  if (objectRule == kNone) {
    objectRule = grammar.addRule();
    addList(objectRule, '{', '}', /*named=*/true);
  }
  return objectRule;
}

uint32_t JsonText::anyArray() {
  if (arrayRule == kNone) {
    arrayRule = grammar.addRule();
    addList(arrayRule, '[', ']', /*named=*/false);
  }
  return arrayRule;
}

uint32_t JsonText::anyValue() {
  if (valueRule == kNone) {
    // The rule is known before its parts, which refer to it.
    valueRule = grammar.addRule();
    uint32_t from = grammar.startOf(valueRule), to = grammar.addNode();
    for (uint32_t rule :
         {string(), number(), boolean(), null(), anyObject(), anyArray()})
      grammar.addCall(from, rule, to);
    grammar.setFinal(to);
  }
  return valueRule;
}

} // namespace tessera::grammar
