#include "runtime/infer/grammar/StringPattern.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <array>
#include <span>

namespace tessera::grammar {

using tokenizer::CodePointSet;
using tokenizer::RegexNode;
using Kind = RegexNode::Kind;

//===--- characters -------------------------------------------------------===//

namespace {
/// Adds code points as bytes.
class Utf8Ranges {
public:
  Utf8Ranges(Grammar &grammar, uint32_t from, uint32_t to)
      : grammar(grammar), from(from), to(to) {}

  /// Of those that have the same number of bytes, which are 1 to 4.
  void add(uint32_t first, uint32_t last, unsigned length) {
    std::array<uint8_t, 4> low{}, high{};
    encode(first, length, low);
    encode(last, length, high);
    add(from, std::span(low).first(length), std::span(high).first(length));
  }

private:
  using Bytes = std::span<const uint8_t>;
  static constexpr uint8_t kFirst = 0x80, kLast = 0xBF; ///< of those behind

  static void encode(uint32_t code, unsigned length,
                     std::array<uint8_t, 4> &bytes) {
    static constexpr std::array<uint8_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
    for (unsigned i = length; i-- > 1; code >>= 6)
      bytes[i] = static_cast<uint8_t>(0x80 | (code & 0x3F));
    bytes[0] = static_cast<uint8_t>(kLead[length] | code);
  }

  /// All from `low` to `high`, byte by byte: where both begin alike what is
  /// behind is between them, and else the ends are special and the middle is
  /// not.
  void add(uint32_t at, Bytes low, Bytes high) {
    if (low.size() == 1)
      return grammar.addBytes(at, low[0], high[0], to);
    Bytes lowRest = low.subspan(1), highRest = high.subspan(1);
    auto isAll = [](Bytes bytes, uint8_t byte) {
      return std::ranges::all_of(bytes, [&](uint8_t b) { return b == byte; });
    };
    uint32_t first = low[0], last = high[0];
    bool lowIsWhole = isAll(lowRest, kFirst),
         highIsWhole = isAll(highRest, kLast);
    if (first == last && !(lowIsWhole && highIsWhole)) {
      uint32_t next = grammar.addNode();
      grammar.addBytes(at, low[0], low[0], next);
      return add(next, lowRest, highRest);
    }
    static constexpr std::array<uint8_t, 3> kLeast = {kFirst, kFirst, kFirst},
                                            kMost = {kLast, kLast, kLast};
    if (!lowIsWhole) {
      uint32_t next = grammar.addNode();
      grammar.addBytes(at, low[0], low[0], next);
      add(next, lowRest, Bytes(kMost).first(lowRest.size()));
      ++first;
    }
    if (!highIsWhole) {
      uint32_t next = grammar.addNode();
      grammar.addBytes(at, high[0], high[0], next);
      add(next, Bytes(kLeast).first(highRest.size()), highRest);
      --last;
    }
    if (first <= last)
      grammar.addBytes(at, uint8_t(first), uint8_t(last), any(lowRest.size()));
  }

  /// Where `count` bytes lead to the end, whatever they are.
  uint32_t any(size_t count) {
    if (count == 0)
      return to;
    uint32_t &node = tails[count - 1];
    if (node == 0) { // which begins another rule
      node = grammar.addNode();
      grammar.addBytes(node, kFirst, kLast, any(count - 1));
    }
    return node;
  }

  Grammar &grammar;
  uint32_t from, to;
  std::array<uint32_t, 3> tails{};
};
} // namespace

// What has a letter of its own is escaped by that, as writers of JSON do.
static void addEscaped(Grammar &grammar, uint32_t code, uint32_t from,
                       uint32_t to) {
  std::string text = quotedJson(std::string(1, static_cast<char>(code)));
  grammar.addSkip(grammar.addText(from, text.substr(1, text.size() - 2)), to);
}

static bool needsEscape(uint32_t code) {
  return code < ' ' || code == '"' || code == '\\';
}

uint32_t StringPattern::ruleOf(const CodePointSet &set) {
  auto [found, isNew] = rules.try_emplace(set.ranges(), 0);
  if (!isNew)
    return found->second;
  uint32_t rule = found->second = grammar.addRule();
  uint32_t from = grammar.startOf(rule), to = grammar.addNode();
  grammar.setFinal(to);
  Utf8Ranges utf8(grammar, from, to);
  // Where sequences get longer, and around surrogates, which are no characters.
  struct Span {
    uint32_t first, last;
    unsigned length;
  };
  static constexpr std::array<Span, 5> kSpans = {{{0, 0x7F, 1},
                                                  {0x80, 0x7FF, 2},
                                                  {0x800, 0xD7FF, 3},
                                                  {0xE000, 0xFFFF, 3},
                                                  {0x10000, 0x10FFFF, 4}}};
  for (auto [first, last] : set.ranges())
    for (const Span &span : kSpans) {
      uint32_t begin = std::max(first, span.first),
               end = std::min(last, span.last);
      for (; span.length == 1 && begin <= end; ++begin)
        if (needsEscape(begin))
          addEscaped(grammar, begin, from, to);
        else
          utf8.add(begin, begin, 1);
      if (begin <= end)
        utf8.add(begin, end, span.length);
    }
  return rule;
}

//===--- patterns ---------------------------------------------------------===//

uint32_t StringPattern::emit(const Node &node, uint32_t from) {
  // Repetitions of nothing add no node, but take time.
  constexpr size_t kMaxSteps = 1'000'000;
  if (!problem.ok() || grammar.isFull())
    return from;
  if (++steps > kMaxSteps) {
    problem = Status::error("repeats too often");
    return from;
  }
  switch (node.kind) {
  case Kind::Empty:
    return from;
  case Kind::Set: {
    uint32_t to = grammar.addNode();
    grammar.addCall(from, ruleOf(node.set), to);
    return to;
  }
  case Kind::Concat:
    for (const Node &child : node.children)
      from = emit(child, from);
    return from;
  case Kind::Alternate: {
    uint32_t to = grammar.addNode();
    for (const Node &child : node.children) {
      uint32_t begin = grammar.addNode();
      grammar.addSkip(from, begin);
      grammar.addSkip(emit(child, begin), to);
    }
    return to;
  }
  case Kind::Repeat:
    return emitRepeat(node, from);
  case Kind::FollowedBy:
  case Kind::Begin:
    problem = Status::error("has lookahead, or an anchor that is not at an end "
                            "of it");
    return from;
  }
  return from;
}

uint32_t StringPattern::emitRepeat(const Node &node, uint32_t from) {
  const Node &body = node.children[0];
  auto mayGoOn = [&] { return problem.ok() && !grammar.isFull(); };
  for (uint32_t i = 0; i < node.least && mayGoOn(); ++i)
    from = emit(body, from);
  uint32_t to = grammar.addNode();
  if (node.most == RegexNode::unbounded) {
    grammar.addSkip(from, to);
    grammar.addSkip(emit(body, to), to);
    return to;
  }
  for (uint32_t i = node.least; i < node.most && mayGoOn(); ++i) {
    grammar.addSkip(from, to);
    from = emit(body, from);
  }
  grammar.addSkip(from, to);
  return to;
}

// Around what matches stands anything, unless anchors say otherwise.
uint32_t StringPattern::addBranch(uint32_t from, const Node &branch) {
  std::span<const Node> parts(&branch, 1);
  if (branch.kind == Kind::Concat)
    parts = branch.children;
  auto anything = [&](uint32_t before) {
    uint32_t at = grammar.addNode();
    grammar.addSkip(before, at);
    grammar.addCall(at, json.character(), at);
    return at;
  };
  auto isEnd = [](const Node &node) {
    return node.kind == Kind::FollowedBy && node.set.empty() && node.orEnd;
  };
  bool begins = !parts.empty() && parts.front().kind == Kind::Begin;
  parts = parts.subspan(begins);
  bool ends = !parts.empty() && isEnd(parts.back());
  parts = parts.first(parts.size() - ends);
  uint32_t at = begins ? from : anything(from);
  for (const Node &part : parts)
    at = emit(part, at);
  return ends ? at : anything(at);
}

StatusOr<uint32_t> StringPattern::add(uint32_t from, std::string_view pattern) {
  constexpr size_t kMaxBytes = 4096;
  if (pattern.size() > kMaxBytes)
    return Status::error("the pattern has {} bytes, at most {} are served",
                         pattern.size(), kMaxBytes);
  StatusOr<Node> root =
      tokenizer::parseRegex(pattern, tokenizer::RegexSyntax::ecma);
  if (!root.ok())
    return root.status();
  std::span<const Node> branches(&*root, 1);
  if (root->kind == Kind::Alternate)
    branches = root->children;
  uint32_t open = grammar.addText(from, "\""), close = grammar.addNode();
  for (const Node &branch : branches) {
    uint32_t begin = grammar.addNode();
    grammar.addSkip(open, begin);
    grammar.addSkip(addBranch(begin, branch), close);
  }
  if (!problem.ok())
    return Status::error("the pattern {} {}", quote(pattern),
                         problem.message());
  return grammar.addText(close, "\"");
}

//===--- formats ----------------------------------------------------------===//

std::optional<std::string> StringPattern::ofFormat(std::string_view format) {
  // February has a 29th in years that four divides, but for most centuries; the
  // year 0 is none to those who check dates.
  const std::string year = R"((\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000))",
                    leap = R"((\d\d(0[48]|[2468][048]|[13579][26])|)"
                           R"((0[48]|[2468][048]|[13579][26])00))",
                    date = "(" + year + R"(-((0[1-9]|1[0-2])-)" +
                           R"((0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|)" +
                           R"((0[13578]|1[02])-31)|)" + leap + "-02-29)",
                    time = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?)"
                           R"((Z|[+-]([01]\d|2[0-3]):[0-5]\d))",
                    label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?",
                    host = label + R"((\.)" + label + "){0,3}",
                    byte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))",
                    ipv4 = byte + R"((\.)" + byte + "){3}";
  std::string pattern;
  if (format == "date")
    pattern = date;
  else if (format == "time")
    pattern = time;
  else if (format == "date-time")
    pattern = date + "T" + time;
  else if (format == "duration") // RFC 3339, appendix A
    pattern = R"(P(\d+W|(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D))"
              R"((T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))?|)"
              R"(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)))";
  else if (format == "email")
    pattern = "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+){0,7}@" + host;
  else if (format == "hostname")
    pattern = host;
  else if (format == "ipv4")
    pattern = ipv4;
  else if (format == "ipv6") { // with all groups, or "::" for some
    const std::string group = "[0-9a-fA-F]{1,4}";
    pattern = "(" + group + ":){7}" + group + "|::";
    for (int before = 0; before < 8; ++before)
      for (int behind = before == 0 ? 1 : 0; before + behind < 8; ++behind) {
        pattern += "|";
        for (int i = 0; i < before; ++i)
          pattern += (i > 0 ? ":" : "") + group;
        pattern += "::";
        for (int i = 0; i < behind; ++i)
          pattern += (i > 0 ? ":" : "") + group;
      }
  } else if (format == "uuid")
    pattern = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  else
    return std::nullopt;
  return "^(" + pattern + ")$";
}

} // namespace tessera::grammar
