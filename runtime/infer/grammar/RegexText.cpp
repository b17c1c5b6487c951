#include "runtime/infer/grammar/RegexText.h"
#include "runtime/infer/grammar/JsonText.h"
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
/// Adds code points as UTF-8.
class Utf8Ranges {
public:
  Utf8Ranges(Grammar &grammar, uint32_t from, uint32_t to)
      : grammar(grammar), from(from), to(to) {}

  /// Code points with the same number of bytes, which is 1 to 4.
  void add(uint32_t first, uint32_t last, unsigned length) {
    std::array<uint8_t, 4> low{}, high{};
    encode(first, length, low);
    encode(last, length, high);
    add(from, std::span(low).first(length), std::span(high).first(length));
  }

private:
  using Bytes = std::span<const uint8_t>;
  static constexpr uint8_t kFirst = 0x80,
                           kLast = 0xBF; ///< of continuation bytes

  static void encode(uint32_t code, unsigned length,
                     std::array<uint8_t, 4> &bytes) {
    static constexpr std::array<uint8_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
    for (unsigned i = length; i-- > 1; code >>= 6)
      bytes[i] = static_cast<uint8_t>(0x80 | (code & 0x3F));
    bytes[0] = static_cast<uint8_t>(kLead[length] | code);
  }

  /// All from `low` to `high`, byte by byte. If both begin alike, the bound
  /// applies to the remaining bytes; otherwise the first bytes at both ends are
  /// special and those between allow any remaining bytes.
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

  /// Adds any `count` continuation bytes before the end.
  uint32_t any(size_t count) {
    if (count == 0)
      return to;
    uint32_t &node = tails[count - 1];
    if (node == 0) { // the start of another rule
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

// Characters with a short escape use it, as writers of JSON do.
static void addEscaped(Grammar &grammar, uint32_t code, uint32_t from,
                       uint32_t to) {
  std::string text = quotedJson(std::string(1, static_cast<char>(code)));
  grammar.addSkip(grammar.addText(from, text.substr(1, text.size() - 2)), to);
}

/// The first code point from `code` on that JSON escapes.
static uint32_t nextEscaped(uint32_t code) {
  if (code < ' ')
    return code;
  return code <= '"' ? '"' : code <= '\\' ? '\\' : UINT32_MAX;
}

/// From `first` to `last`, in ranges between characters that need an escape.
static void addJsonAscii(Grammar &grammar, Utf8Ranges &utf8, uint32_t first,
                         uint32_t last, uint32_t from, uint32_t to) {
  while (first <= last) {
    uint32_t next = nextEscaped(first);
    if (next == first) {
      addEscaped(grammar, first++, from, to);
      continue;
    }
    uint32_t end = std::min(last, next - 1);
    utf8.add(first, end, 1);
    first = end + 1;
  }
}

void RegexText::addRanges(uint32_t from, const CodePointSet &set, uint32_t to) {
  Utf8Ranges utf8(grammar, from, to);
  // Boundaries of the number of bytes, and of surrogates, which are not
  // characters.
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
      if (begin > end)
        continue;
      if (span.length == 1 && spelling == Spelling::json)
        addJsonAscii(grammar, utf8, begin, end, from, to);
      else
        utf8.add(begin, end, span.length);
    }
}

/// Whether the set needs only one edge per range. Larger sets become a rule,
/// whose edges are added once however often the pattern contains the set.
bool RegexText::isSmall(const CodePointSet &set) const {
  constexpr size_t kMaxInline = 4;
  const auto &ranges = set.ranges();
  if (spelling == Spelling::json &&
      std::ranges::any_of(ranges, [](const CodePointSet::Range &range) {
        return nextEscaped(range.first) <= range.second;
      }))
    return false;
  return ranges.empty() ||
         (ranges.size() <= kMaxInline && ranges.back().second < 0x80) ||
         (ranges.size() == 1 && ranges[0].first == ranges[0].second);
}

uint32_t RegexText::addSet(uint32_t from, const CodePointSet &set) {
  uint32_t to = grammar.addNode();
  if (isSmall(set)) {
    addRanges(from, set, to);
    return to;
  }
  auto [found, isNew] = rules.try_emplace(set.ranges(), 0);
  if (isNew) {
    uint32_t rule = found->second = grammar.addRule(), end = grammar.addNode();
    grammar.setFinal(end);
    addRanges(grammar.startOf(rule), set, end);
  }
  grammar.addCall(from, found->second, to);
  return to;
}

//===--- patterns ---------------------------------------------------------===//

uint32_t RegexText::emit(const Node &node, uint32_t from) {
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
  case Kind::Set:
    return addSet(from, node.set);
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

uint32_t RegexText::emitRepeat(const Node &node, uint32_t from) {
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

uint32_t RegexText::addBranch(uint32_t from, const Node &branch,
                              const std::function<uint32_t(uint32_t)> &around) {
  std::span<const Node> parts(&branch, 1);
  if (branch.kind == Kind::Concat)
    parts = branch.children;
  auto isEnd = [](const Node &node) {
    return node.kind == Kind::FollowedBy && node.set.empty() && node.orEnd;
  };
  bool begins = !parts.empty() && parts.front().kind == Kind::Begin;
  parts = parts.subspan(begins);
  bool ends = !parts.empty() && isEnd(parts.back());
  parts = parts.first(parts.size() - ends);
  uint32_t at = begins || !around ? from : around(from);
  for (const Node &part : parts)
    at = emit(part, at);
  return ends || !around ? at : around(at);
}

StatusOr<uint32_t>
RegexText::add(uint32_t from, std::string_view pattern,
               const std::function<uint32_t(uint32_t)> &around) {
  constexpr size_t kMaxBytes = 4096;
  if (pattern.size() > kMaxBytes)
    return Status::error("the pattern has {} bytes, at most {} are supported",
                         pattern.size(), kMaxBytes);
  StatusOr<Node> root =
      tokenizer::parseRegex(pattern, tokenizer::RegexSyntax::ecma);
  if (!root.ok())
    return root.status();
  std::span<const Node> branches(&*root, 1);
  if (root->kind == Kind::Alternate)
    branches = root->children;
  uint32_t to = grammar.addNode();
  for (const Node &branch : branches) {
    uint32_t begin = grammar.addNode();
    grammar.addSkip(from, begin);
    grammar.addSkip(addBranch(begin, branch, around), to);
  }
  if (!problem.ok())
    return Status::error("the pattern {} {}", quote(pattern),
                         problem.message());
  return to;
}

} // namespace tessera::grammar
