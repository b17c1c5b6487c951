#include "runtime/infer/grammar/Gbnf.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/infer/grammar/GbnfWords.h"
#include "runtime/infer/grammar/RegexText.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <map>
#include <optional>

namespace tessera::grammar {

using tokenizer::CodePointSet;

namespace {

constexpr size_t kMaxDepth = 100; // of groups; bounds the recursion

/// A recursive-descent parser that adds what it reads to the grammar at once;
/// the first error ends it.
class GbnfReader : GbnfWords {
public:
  explicit GbnfReader(std::string_view text) : GbnfWords(text) {}
  StatusOr<Grammar> read();

private:
  struct Rule {
    uint32_t number;
    size_t seenAt; ///< where it is defined, or else first used
    bool isDefined;
  };

  void definition();
  uint32_t alternatives(uint32_t from);
  uint32_t sequence(uint32_t from);
  uint32_t element(uint32_t from);
  uint32_t atom(uint32_t from);
  uint32_t group(uint32_t from);
  uint32_t literal(uint32_t from);
  uint32_t characterClass(uint32_t from);
  uint32_t repeated(uint32_t from, uint32_t begin, uint32_t end);
  uint32_t counted(uint32_t from, uint32_t begin, uint32_t end);
  Rule &ruleOf(std::string_view name, size_t seenAt);
  Status finish();

  size_t depth = 0; ///< of groups
  Grammar grammar;
  RegexText sets{grammar, RegexText::Spelling::plain};
  std::map<std::string, Rule, std::less<>> rules;
};

} // namespace

GbnfReader::Rule &GbnfReader::ruleOf(std::string_view name, size_t seenAt) {
  auto found = rules.find(name);
  if (found == rules.end())
    found =
        rules.emplace(std::string(name), Rule{grammar.addRule(), seenAt, false})
            .first;
  return found->second;
}

//===--- parts of a rule --------------------------------------------------===//

uint32_t GbnfReader::literal(uint32_t from) {
  size_t begin = at++;
  while (!done() && text[at] != '"') {
    std::string bytes;
    uint32_t code = character();
    if (problem.ok())
      tokenizer::appendUtf8(code, bytes);
    from = grammar.addText(from, bytes);
  }
  if (!take("\""))
    fail(begin, "a string without its closing quote");
  return from;
}

uint32_t GbnfReader::characterClass(uint32_t from) {
  size_t begin = at++;
  bool negative = take("^");
  std::vector<CodePointSet::Range> ranges;
  while (!done() && text[at] != ']') {
    size_t place = at;
    uint32_t first = character(), last = first;
    if (sees("-") && !text.substr(at).starts_with("-]")) {
      ++at;
      if (!done())
        last = character();
    }
    if (last < first)
      fail(place, "a descending range");
    else
      ranges.emplace_back(first, last);
  }
  if (!take("]"))
    fail(begin, "a class without its ]");
  else if (ranges.empty())
    fail(begin, "an empty class");
  if (!problem.ok())
    return from;
  CodePointSet set(std::move(ranges));
  return sets.addSet(from, negative ? set.complement() : set);
}

uint32_t GbnfReader::group(uint32_t from) {
  size_t begin = at++;
  if (++depth > kMaxDepth)
    fail(begin, "groups nested too deeply");
  uint32_t to = alternatives(from);
  --depth;
  if (!take(")"))
    fail(begin, "a group without its )");
  return to;
}

uint32_t GbnfReader::atom(uint32_t from) {
  switch (text[at]) {
  case '"':
    return literal(from);
  case '[':
    return characterClass(from);
  case '(':
    return group(from);
  case '.':
    ++at;
    return sets.addSet(from, CodePointSet().complement());
  case '*':
  case '+':
  case '?':
  case '{':
    fail("a repetition without an operand");
    return from;
  case '<':
  case '!':
    fail("tokens are not supported");
    return from;
  default:
    break;
  }
  size_t begin = at;
  std::string_view name = nameHere();
  if (name.empty()) {
    fail("expected a string, class, group or name of a rule");
    return from;
  }
  at += name.size();
  uint32_t to = grammar.addNode();
  grammar.addCall(from, ruleOf(name, begin).number, to);
  return to;
}

/// {n}, {n,} or {n,m} of the nodes from `begin` to `end`, which become a rule
/// of their own, so the cost of nested repetitions is the sum of their counts.
uint32_t GbnfReader::counted(uint32_t from, uint32_t begin, uint32_t end) {
  size_t place = at++;
  skipSpace();
  uint32_t least = number(), most = least;
  skipSpace();
  bool isBounded = true;
  if (take(",")) {
    skipSpace();
    isBounded = !sees("}");
    most = isBounded ? number() : least;
    skipSpace();
  }
  if (!take("}"))
    fail("a } is missing");
  else if (most < least)
    fail(place, "a descending range of repetitions");
  if (!problem.ok())
    return from;
  uint32_t rule = grammar.addRule();
  grammar.addSkip(grammar.startOf(rule), begin);
  grammar.setFinal(end);
  auto once = [&](uint32_t before) {
    uint32_t after = grammar.addNode();
    grammar.addCall(before, rule, after);
    return after;
  };
  for (uint32_t i = 0; i < least && !grammar.isFull(); ++i)
    from = once(from);
  uint32_t to = grammar.addNode();
  if (!isBounded) {
    grammar.addSkip(from, to);
    grammar.addCall(to, rule, to);
    return to;
  }
  for (uint32_t i = least; i < most && !grammar.isFull(); ++i) {
    grammar.addSkip(from, to);
    from = once(from);
  }
  grammar.addSkip(from, to);
  return to;
}

uint32_t GbnfReader::repeated(uint32_t from, uint32_t begin, uint32_t end) {
  if (sees("{"))
    return counted(from, begin, end);
  grammar.addSkip(from, begin);
  if (take("?")) {
    uint32_t to = grammar.addNode();
    grammar.addSkip(end, to);
    grammar.addSkip(from, to);
    return to;
  }
  bool mayLack = sees("*");
  if (!take("*") && !take("+"))
    return end;
  uint32_t to = grammar.addNode();
  grammar.addSkip(end, to);
  grammar.addSkip(to, begin);
  if (mayLack)
    grammar.addSkip(from, to);
  return to;
}

uint32_t GbnfReader::element(uint32_t from) {
  uint32_t begin = grammar.addNode(), end = atom(begin);
  // An operand that adds nothing ends where it begins; a repetition needs two
  // nodes.
  if (end == begin)
    grammar.addSkip(begin, end = grammar.addNode());
  skipSpace();
  return repeated(from, begin, end);
}

uint32_t GbnfReader::sequence(uint32_t from) {
  for (skipSpace(); !done() && !sees("|") && !sees(")") && !beginsDefinition();
       skipSpace()) {
    if (grammar.isFull()) {
      at = text.size();
      return from;
    }
    from = element(from);
  }
  return from;
}

uint32_t GbnfReader::alternatives(uint32_t from) {
  uint32_t to = grammar.addNode();
  do {
    uint32_t begin = grammar.addNode();
    grammar.addSkip(from, begin);
    grammar.addSkip(sequence(begin), to);
  } while (take("|"));
  return to;
}

//===--- rules ------------------------------------------------------------===//

void GbnfReader::definition() {
  if (!beginsDefinition())
    return fail("no rule: NAME ::= …");
  size_t begin = at;
  std::string_view name = nameHere();
  at = text.find("::=", at) + 3;
  Rule &rule = ruleOf(name, begin);
  if (rule.isDefined)
    return fail(begin, fmt::format("duplicate rule {}", quote(name)));
  rule.isDefined = true;
  rule.seenAt = begin;
  grammar.setFinal(alternatives(grammar.startOf(rule.number)));
  if (sees(")"))
    fail("a ) without its group");
}

Status GbnfReader::finish() {
  using Named = std::pair<const std::string, Rule>;
  std::vector<const Named *> byNumber(grammar.rules());
  const Named *missing = nullptr;
  for (const Named &each : rules) {
    byNumber[each.second.number] = &each;
    if (!each.second.isDefined &&
        (!missing || each.second.seenAt < missing->second.seenAt))
      missing = &each;
  }
  if (missing)
    return Status::error("{}: unknown rule {}", placeOf(missing->second.seenAt),
                         quote(missing->first));
  return grammar.finish([&](uint32_t number) {
    const Named *rule = byNumber[number];
    return rule ? fmt::format("{}: the rule {}", placeOf(rule->second.seenAt),
                              quote(rule->first))
                : std::string();
  });
}

StatusOr<Grammar> GbnfReader::read() {
  if (text.size() > Grammar::kMaxNodes)
    return Status::error("the grammar has {} bytes, at most {} are supported",
                         text.size(), Grammar::kMaxNodes);
  if (!isUtf8(text))
    return Status::error("the grammar is not UTF-8");
  // Rule 0 calls root, since root may call itself.
  uint32_t start = grammar.startOf(grammar.addRule());
  uint32_t first = grammar.addNode(), last = grammar.addNode();
  grammar.addSkip(start, first);
  grammar.addCall(first, ruleOf("root", 0).number, last);
  grammar.setFinal(last);
  for (skipSpace(); !done(); skipSpace())
    definition();
  if (grammar.isFull())
    return grammar.finish(); // reports it
  if (!problem.ok())
    return problem;
  TESSERA_RETURN_IF_ERROR(finish());
  return std::move(grammar);
}

StatusOr<Grammar> grammarOfGbnf(std::string_view text) {
  return GbnfReader(text).read();
}

} // namespace tessera::grammar
