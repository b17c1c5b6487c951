#include "runtime/data/tokenizer/regex/RegexParser.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <optional>

namespace tessera::tokenizer {

using Kind = RegexNode::Kind;

namespace {
constexpr uint32_t maxRepeat = 1000;
constexpr size_t maxDepth = 50;

/// Recursive descent; the first error ends it.
class Parser {
public:
  Parser(std::string_view pattern, RegexSyntax syntax)
      : pattern(pattern), isEcma(syntax == RegexSyntax::ecma) {}

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
  /// The set of \s, \p{…} and their like after the backslash.
  std::optional<CodePointSet> namedSet(char letter);
  CodePointSet lineEnds() const;
  CodePointSet spaces() const;
  CodePointSet digits() const;
  CodePointSet wordCharacters() const;
  std::optional<CodePointSet> property(bool negative);
  uint32_t escapedCharacter(char letter);
  uint32_t hexadecimal();
  uint32_t character();

  RegexNode setNode(CodePointSet set) {
    RegexNode node;
    node.kind = Kind::Set;
    node.set = ignoreCase ? set.ignoringCase() : std::move(set);
    return node;
  }
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

  std::string_view pattern;
  bool isEcma;
  size_t at = 0, depth = 0;
  bool ignoreCase = false;
  Status problem;
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

static RegexNode sequenceOf(RegexNode first, RegexNode second) {
  RegexNode node;
  node.kind = Kind::Concat;
  node.children.push_back(std::move(first));
  node.children.push_back(std::move(second));
  return node;
}

static RegexNode notFollowedBy(const CodePointSet &set) {
  RegexNode node;
  node.kind = Kind::FollowedBy;
  node.set = set.complement();
  node.orEnd = true;
  return node;
}

/// Whether `node` matches the empty text.
static bool mayBeEmpty(const RegexNode &node) {
  auto empty = [](const RegexNode &child) { return mayBeEmpty(child); };
  switch (node.kind) {
  case Kind::Empty:
  case Kind::FollowedBy:
  case Kind::Begin:
    return true;
  case Kind::Set:
    return false;
  case Kind::Concat:
    return std::all_of(node.children.begin(), node.children.end(), empty);
  case Kind::Alternate:
    return std::any_of(node.children.begin(), node.children.end(), empty);
  case Kind::Repeat:
    return node.least == 0 || mayBeEmpty(node.children[0]);
  }
  return false;
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

/// Adds what may stand at the next place; false where more than one character
/// would have to be looked at.
static bool collectNext(const RegexNode &node, CodePointSet &set, bool &end) {
  switch (node.kind) {
  case Kind::Set:
    set.add(node.set);
    return true;
  case Kind::FollowedBy:
    set.add(node.set);
    end |= node.orEnd;
    return true;
  case Kind::Alternate:
    for (const RegexNode &child : node.children)
      if (!collectNext(child, set, end))
        return false;
    return true;
  case Kind::Concat:
    return node.children.size() == 1 && collectNext(node.children[0], set, end);
  default:
    return false;
  }
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

std::optional<CodePointSet> Parser::property(bool negative) {
  size_t end = pattern.find('}', at);
  if (!take("{") || end == pattern.npos) {
    wrong("a property without its braces");
    return std::nullopt;
  }
  if (take("^"))
    negative = !negative;
  std::string_view name = pattern.substr(at, end - at);
  std::optional<CodePointSet> set = propertySet(name);
  if (!set)
    fail(fmt::format("the property {}", quote(name)));
  at = end + 1;
  return set && negative ? set->complement() : set;
}

CodePointSet Parser::lineEnds() const {
  return isEcma ? CodePointSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})
                : CodePointSet::of('\n');
}

CodePointSet Parser::spaces() const {
  if (!isEcma)
    return spaceSet();
  // Without U+FEFF, which most other engines do not take for a space.
  return CodePointSet({{'\t', '\r'},
                       {' ', ' '},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000}});
}

CodePointSet Parser::digits() const {
  return isEcma ? CodePointSet({{'0', '9'}}) : digitSet();
}

CodePointSet Parser::wordCharacters() const {
  return isEcma ? CodePointSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}})
                : wordSet();
}

std::optional<CodePointSet> Parser::namedSet(char letter) {
  switch (letter) {
  case 's':
    return spaces();
  case 'S':
    return spaces().complement();
  case 'd':
    return digits();
  case 'D':
    return digits().complement();
  case 'w':
    return wordCharacters();
  case 'W':
    return wordCharacters().complement();
  case 'p':
    return property(false);
  case 'P':
    return property(true);
  default:
    return std::nullopt;
  }
}

uint32_t Parser::hexadecimal() {
  bool braces = take("{");
  size_t digits = braces ? 6 : pattern[at - 1] == 'u' ? 4 : 2;
  uint32_t value = 0;
  size_t count = 0;
  for (; count < digits && at < pattern.size(); ++count, ++at) {
    auto c = static_cast<uint8_t>(pattern[at]);
    if (!std::isxdigit(c))
      break;
    value = value * 16 +
            static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  bool surrogate = value >= 0xD800 && value < 0xE000;
  if (count == 0 || (braces && !take("}")) || value >= invalidByte || surrogate)
    wrong("a hexadecimal escape that is no character");
  return value;
}

uint32_t Parser::escapedCharacter(char letter) {
  switch (letter) {
  case 'n':
    return '\n';
  case 'r':
    return '\r';
  case 't':
    return '\t';
  case 'v':
    return '\v';
  case 'f':
    return '\f';
  case 'a':
  case 'e':
    if (isEcma)
      break;
    return letter == 'a' ? '\a' : 0x1B;
  case 'x':
  case 'u':
    return hexadecimal();
  default:
    break;
  }
  if (std::isalnum(static_cast<uint8_t>(letter)))
    fail(fmt::format("the escape \\{}", letter));
  return static_cast<uint8_t>(letter);
}

/// The character at `at`, which it passes.
uint32_t Parser::character() {
  Utf8Char c = decodeUtf8(pattern.data() + at, pattern.data() + pattern.size());
  if (c.codePoint == invalidCodePoint)
    wrong("a byte that is not UTF-8");
  at += c.length;
  return c.codePoint;
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
