#include "runtime/data/tokenizer/regex/RegexParser.h"

#include <algorithm>
#include <optional>

namespace tessera::tokenizer {

using Kind = RegexNode::Kind;

namespace {
constexpr uint32_t maxRepeat = 1000;
constexpr size_t maxDepth = 50;

/// Recursive descent; the first error ends it.
class Parser : RegexWords {
public:
  Parser(std::string_view pattern, RegexSyntax syntax)
      : RegexWords(pattern, syntax) {}

  StatusOr<RegexNode> parse() {
    RegexNode root = alternatives();
    if (problem.ok() && at < pattern.size())
      wrong("a ) without its group");
    if (!problem.ok())
      return problem;
    return root;
  }

private:
  RegexNode alternatives();
  RegexNode sequence();
  RegexNode quantified(RegexNode atom);
  bool countedRange(uint32_t &least, uint32_t &most);
  RegexNode atom();
  RegexNode group();
  RegexNode lookahead(bool negative);
  RegexNode escape();
  RegexNode characterClass();

  RegexNode setNode(CodePointSet set) {
    RegexNode node;
    node.kind = Kind::Set;
    node.set = ignoreCase ? set.ignoringCase() : std::move(set);
    return node;
  }

  size_t depth = 0; ///< of groups
  bool ignoreCase = false;
};
} // namespace

RegexNode Parser::alternatives() {
  if (++depth > maxDepth)
    fail("groups nested too deeply");
  RegexNode node;
  node.kind = Kind::Alternate;
  node.children.push_back(sequence());
  while (take("|"))
    node.children.push_back(sequence());
  --depth;
  if (node.children.size() > 1)
    return node;
  RegexNode only = std::move(node.children[0]);
  return only;
}

RegexNode Parser::sequence() {
  RegexNode node;
  node.kind = Kind::Concat;
  while (!done() && pattern[at] != '|' && pattern[at] != ')')
    node.children.push_back(quantified(atom()));
  return node;
}

/// {n}, {n,}, {n,m} and {,m}; anything else in braces is a literal brace.
bool Parser::countedRange(uint32_t &least, uint32_t &most) {
  size_t start = at;
  auto number = [&](uint32_t &value) {
    size_t begin = at;
    for (value = 0;
         at < pattern.size() && pattern[at] >= '0' && pattern[at] <= '9'; ++at)
      value = std::min(value * 10 + static_cast<uint32_t>(pattern[at] - '0'),
                       maxRepeat + 1);
    return at != begin;
  };
  bool ok = take("{"), hasLeast = number(least), hasMost = true;
  most = least;
  if (take(",")) {
    hasMost = number(most);
    if (!hasMost)
      most = RegexNode::unbounded;
  }
  bool isRange = hasLeast || (hasMost && most != least);
  if (isEcma && (!hasLeast || !sees("}")))
    wrong("a { that counts nothing; write \\{ for the character", start);
  if (!ok || !isRange || !take("}")) {
    at = start;
    return false;
  }
  if (least > maxRepeat || (most != RegexNode::unbounded && most > maxRepeat))
    fail("more than 1000 repetitions");
  else if (most < least)
    wrong("a descending range of repetitions", start);
  return true;
}

RegexNode Parser::quantified(RegexNode node) {
  for (size_t count = 0; !done(); ++count) {
    const size_t place = at;
    uint32_t least = 0, most = 0;
    bool counted = false;
    if (take("*"))
      most = RegexNode::unbounded;
    else if (take("+"))
      least = 1, most = RegexNode::unbounded;
    else if (take("?"))
      most = 1;
    else if (sees("{") && countedRange(least, most))
      counted = true;
    else
      return node;
    if (isEcma && count > 0)
      wrong("a quantifier of a quantifier; put what it repeats into (?:…)",
            place);
    if (node.kind == Kind::FollowedBy || node.kind == Kind::Begin)
      wrong("a quantifier that has nothing to repeat", place);
    if (count == maxDepth)
      fail("too many quantifiers one after another");
    // Engines differ in when they leave a loop that goes nowhere; of a whole
    // text that makes no difference.
    if (!isEcma && most == RegexNode::unbounded && mayBeEmpty(node))
      fail("an unbounded repetition of what may be empty");
    RegexNode repeat;
    repeat.kind = Kind::Repeat;
    repeat.least = least;
    repeat.most = most;
    repeat.lazy = take("?");
    if (!isEcma && counted && repeat.lazy && least == most)
      fail("a lazy {n}");
    // Where one character repeats, to give nothing back means that no such
    // character follows, or that as many as may were taken.
    bool possessive = !isEcma && !counted && !repeat.lazy && take("+");
    if (possessive && node.kind != Kind::Set)
      fail("a possessive quantifier after more than one character");
    CodePointSet set = node.set;
    repeat.children.push_back(std::move(node));
    if (possessive && most == 1) {
      node = RegexNode();
      node.kind = Kind::Alternate;
      node.children.push_back(std::move(repeat.children[0]));
      node.children.push_back(notFollowedBy(set));
    } else if (possessive) {
      node = sequenceOf(std::move(repeat), notFollowedBy(set));
    } else {
      node = std::move(repeat);
    }
  }
  return node;
}

RegexNode Parser::atom() {
  char c = pattern[at];
  if (c == '(')
    return group();
  if (c == '[')
    return characterClass();
  if (c == '\\')
    return escape();
  if (isEcma && take("^")) {
    RegexNode begin;
    begin.kind = Kind::Begin;
    return begin;
  }
  if (isEcma && c == '{')
    wrong("a { that counts nothing; write \\{ for the character");
  if (c == '^')
    fail("the anchor ^");
  if (c == '*' || c == '+' || c == '?')
    wrong("a quantifier that has nothing to repeat");
  if (!problem.ok())
    return {};
  if (take("$")) {
    RegexNode end;
    end.kind = Kind::FollowedBy;
    if (!isEcma)
      end.set = CodePointSet::of('\n');
    end.orEnd = true;
    return end;
  }
  if (take(".")) // Case plays no part.
    return setNode(lineEnds().complement());
  return setNode(CodePointSet::of(character()));
}

RegexNode Parser::group() {
  const size_t begin = at++;
  bool outer = ignoreCase;
  RegexNode node;
  if (take("?=")) {
    node = lookahead(false);
  } else if (take("?!")) {
    node = lookahead(true);
  } else {
    if (take("?i:"))
      ignoreCase = true;
    else if (take("?-i:"))
      ignoreCase = false;
    else if (!take("?:") && sees("?"))
      fail("a group of another kind than (…), (?:…), (?i:…), (?=…) or (?!…)");
    node = alternatives();
  }
  ignoreCase = outer;
  if (!take(")"))
    wrong("a group without its )", begin);
  return node;
}

RegexNode Parser::lookahead(bool negative) {
  RegexNode inside = alternatives();
  RegexNode node;
  node.kind = Kind::FollowedBy;
  if (!collectNext(inside, node.set, node.orEnd))
    fail("a lookahead of more than one character");
  if (negative) {
    node.set = node.set.complement();
    node.orEnd = !node.orEnd;
  }
  return node;
}

RegexNode Parser::escape() {
  if (++at == pattern.size()) {
    wrong("a backslash and nothing after it", at - 1);
    return {};
  }
  char letter = pattern[at];
  if (static_cast<uint8_t>(letter) >= 0x80)
    return setNode(CodePointSet::of(character()));
  ++at;
  if (letter == 'z' && !isEcma) {
    RegexNode end;
    end.kind = Kind::FollowedBy;
    end.orEnd = true;
    return end;
  }
  if (auto set = namedSet(letter))
    return setNode(std::move(*set));
  return setNode(CodePointSet::of(escapedCharacter(letter)));
}

RegexNode Parser::characterClass() {
  const size_t begin = at++;
  bool negative = take("^");
  if (isEcma && sees("]"))
    fail("a class of nothing");
  CodePointSet set;
  for (bool first = true; !done() && (first || pattern[at] != ']');
       first = false) {
    if (sees("[") || sees("&&"))
      fail("a class within a class");
    auto element = [&](uint32_t &c) -> std::optional<CodePointSet> {
      if (!take("\\")) {
        c = character();
        return std::nullopt;
      }
      if (done() || static_cast<uint8_t>(pattern[at]) >= 0x80) {
        wrong("a backslash and nothing to escape", at - 1);
        return std::nullopt;
      }
      char letter = pattern[at++];
      std::optional<CodePointSet> named = namedSet(letter);
      if (!named)
        c = escapedCharacter(letter);
      return named;
    };
    uint32_t low = 0, high = 0;
    if (auto named = element(low)) {
      set.add(*named);
      continue;
    }
    high = low;
    bool range = sees("-") && at + 1 < pattern.size() && pattern[at + 1] != ']';
    if (range && (++at, element(high)))
      wrong("a range that ends in a set");
    if (high < low)
      wrong("a descending range");
    else if (problem.ok())
      set.add(CodePointSet({{low, high}}));
  }
  if (!take("]"))
    wrong("a class without its ]", begin);
  if (ignoreCase)
    set = set.ignoringCase();
  RegexNode node;
  node.kind = Kind::Set;
  node.set = negative ? set.complement() : std::move(set);
  return node;
}

StatusOr<RegexNode> parseRegex(std::string_view pattern, RegexSyntax syntax) {
  return Parser(pattern, syntax).parse();
}

} // namespace tessera::tokenizer
