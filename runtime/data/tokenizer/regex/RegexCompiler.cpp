// From a tree to a program of the backtracking kind, and from that to the
// automaton of all states that running it in parallel can reach.
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/data/tokenizer/regex/Regex.h"
#include "runtime/data/tokenizer/regex/RegexParser.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <bitset>
#include <map>

namespace tessera::tokenizer {

namespace {
constexpr size_t maxInstructions = 20'000;
constexpr size_t maxSets = 1000;
constexpr size_t maxClasses = 250;
constexpr size_t maxSteps = 4'000'000; // about a tenth of a second

using ClassSet = std::bitset<256>;

struct Instruction {
  enum class Kind : uint8_t { Char, Fork, Follow, Match };
  Kind kind;
  uint32_t next = 0;  // Fork: tried first
  uint32_t other = 0; // Fork: tried second
  uint32_t set = 0;   // Char, Follow: which of the sets
  bool orEnd = false; // Follow
};
using Kind = Instruction::Kind;
} // namespace

class RegexCompiler {
public:
  explicit RegexCompiler(std::string_view pattern) : pattern(pattern) {}
  StatusOr<Regex> compile(const RegexNode &root);

private:
  uint32_t emit(const RegexNode &node, uint32_t next);
  uint32_t emitRepeat(const RegexNode &node, uint32_t next);
  uint32_t add(Instruction instruction);
  uint32_t setOf(const CodePointSet &set);

  bool classify();
  void tabulateClasses(const std::vector<uint32_t> &borders,
                       const std::vector<uint8_t> &classOfInterval);
  Status explore(uint32_t start);
  using List = std::vector<uint32_t>;
  uint32_t stateOf(List list);
  uint32_t transition(const List &list, uint32_t kind);
  bool follow(uint32_t from, std::optional<uint32_t> kind, List &out,
              std::vector<uint32_t> &marks, uint32_t mark);
  Status tooLarge() const {
    return Status::error("the regular expression {} is too large: its "
                         "automaton would have more than {} transitions",
                         quote(pattern), Regex::maxTableEntries);
  }

  std::string_view pattern;
  std::vector<Instruction> program;
  std::vector<CodePointSet> sets;
  std::vector<ClassSet> setClasses;
  std::map<List, uint32_t> states;
  std::vector<List> lists; // by state
  std::vector<uint32_t> marksOfStep, marksOfNext;
  uint32_t steps = 0, mark = 0;
  bool overflow = false;
  Regex result;
};

uint32_t RegexCompiler::add(Instruction instruction) {
  if (program.size() >= maxInstructions)
    overflow = true;
  else
    program.push_back(instruction);
  return static_cast<uint32_t>(program.size() - 1);
}

uint32_t RegexCompiler::setOf(const CodePointSet &set) {
  auto found = std::find(sets.begin(), sets.end(), set);
  if (found == sets.end()) {
    overflow |= sets.size() >= maxSets;
    found = sets.insert(found, set);
  }
  return static_cast<uint32_t>(found - sets.begin());
}

/// Emits `node`, after which `next` follows; returns where it begins.
uint32_t RegexCompiler::emit(const RegexNode &node, uint32_t next) {
  // Repetitions of nothing add no instruction, but take time.
  overflow |= ++steps > maxSteps;
  if (overflow)
    return next;
  switch (node.kind) {
  case RegexNode::Kind::Empty:
  case RegexNode::Kind::Begin: // of another syntax
    return next;
  case RegexNode::Kind::Set:
    return add({Kind::Char, next, 0, setOf(node.set), false});
  case RegexNode::Kind::FollowedBy:
    return add({Kind::Follow, next, 0, setOf(node.set), node.orEnd});
  case RegexNode::Kind::Concat:
    for (size_t i = node.children.size(); i-- > 0;)
      next = emit(node.children[i], next);
    return next;
  case RegexNode::Kind::Alternate: {
    uint32_t begin = emit(node.children.back(), next);
    for (size_t i = node.children.size() - 1; i-- > 0;)
      begin = add({Kind::Fork, emit(node.children[i], next), begin, 0, false});
    return begin;
  }
  case RegexNode::Kind::Repeat:
    return emitRepeat(node, next);
  }
  return next;
}

uint32_t RegexCompiler::emitRepeat(const RegexNode &node, uint32_t next) {
  const RegexNode &body = node.children[0];
  auto fork = [&](uint32_t inside, uint32_t after) {
    return add({Kind::Fork, node.lazy ? after : inside,
                node.lazy ? inside : after, 0, false});
  };
  uint32_t begin = next;
  if (node.most == RegexNode::unbounded) {
    begin = fork(next, next);
    uint32_t inside = emit(body, begin);
    if (overflow)
      return begin;
    (node.lazy ? program[begin].other : program[begin].next) = inside;
  } else {
    for (uint32_t i = node.least; i < node.most && !overflow; ++i)
      begin = fork(emit(body, begin), next);
  }
  for (uint32_t i = 0; i < node.least && !overflow; ++i)
    begin = emit(body, begin);
  return begin;
}

/// Cuts the code points where any set begins or ends, and gives intervals that
/// are in the same sets one class.
bool RegexCompiler::classify() {
  std::vector<uint32_t> borders = {0, 0x80, invalidByte, invalidByte + 1};
  for (const CodePointSet &set : sets)
    for (auto [first, last] : set.ranges()) {
      borders.push_back(first);
      borders.push_back(last + 1);
    }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  std::map<std::vector<bool>, uint32_t> known;
  std::vector<uint8_t> classOfInterval;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    std::vector<bool> members(sets.size());
    for (size_t j = 0; j < sets.size(); ++j)
      members[j] = sets[j].contains(borders[i]);
    auto [place, isNew] =
        known.emplace(std::move(members), static_cast<uint32_t>(known.size()));
    if (known.size() > maxClasses)
      return false;
    classOfInterval.push_back(static_cast<uint8_t>(place->second));
  }
  setClasses.resize(sets.size());
  for (const auto &[members, kind] : known)
    for (size_t j = 0; j < sets.size(); ++j)
      setClasses[j][kind] = members[j];
  result.classes = static_cast<uint32_t>(known.size()) + 1;
  tabulateClasses(borders, classOfInterval);
  return true;
}

void RegexCompiler::tabulateClasses(
    const std::vector<uint32_t> &borders,
    const std::vector<uint8_t> &classOfInterval) {
  std::vector<uint8_t> byCodePoint(invalidByte + 1);
  for (size_t i = 0; i + 1 < borders.size(); ++i)
    std::fill(byCodePoint.begin() + borders[i],
              byCodePoint.begin() + borders[i + 1], classOfInterval[i]);
  result.invalidClass = byCodePoint[invalidByte];
  std::copy_n(byCodePoint.begin(), 128, result.asciiClasses.begin());
  std::map<std::string_view, uint16_t> known;
  for (uint32_t block = 0; block < invalidByte >> 8; ++block) {
    const uint8_t *page = byCodePoint.data() + (size_t{block} << 8);
    std::string_view key(reinterpret_cast<const char *>(page), 256);
    auto [place, isNew] =
        known.emplace(key, static_cast<uint16_t>(known.size()));
    if (isNew)
      result.pages.insert(result.pages.end(), page, page + 256);
    result.pageOfBlock.push_back(place->second);
  }
}

/// Appends the positions that are reachable from `from` without a character, in
/// the order of trying. A condition on the next character is kept as a position
/// until that character is known; `kind`, if set, decides it. Returns true if a
/// match was among them, which no later position can beat.
bool RegexCompiler::follow(uint32_t from, std::optional<uint32_t> kind,
                           List &out, std::vector<uint32_t> &marks,
                           uint32_t mark) {
  List stack = {from};
  while (!stack.empty()) {
    uint32_t at = stack.back();
    stack.pop_back();
    ++steps;
    if (marks[at] == mark)
      continue;
    marks[at] = mark;
    const Instruction &instruction = program[at];
    if (instruction.kind == Kind::Fork) {
      stack.push_back(instruction.other);
      stack.push_back(instruction.next);
    } else if (instruction.kind == Kind::Follow && kind) {
      bool end = *kind == result.classes - 1;
      if (end ? instruction.orEnd : setClasses[instruction.set][*kind])
        stack.push_back(instruction.next);
    } else {
      out.push_back(at);
      if (instruction.kind == Kind::Match)
        return true;
    }
  }
  return false;
}

uint32_t RegexCompiler::stateOf(List list) {
  auto [place, isNew] =
      states.emplace(std::move(list), static_cast<uint32_t>(states.size()));
  if (isNew)
    lists.push_back(place->first);
  return place->second;
}

/// The entry of the table for a character (or the end) of class `kind`.
uint32_t RegexCompiler::transition(const List &list, uint32_t kind) {
  List ready, next;
  ++mark;
  bool matched = false;
  for (size_t i = 0; i < list.size() && !matched; ++i)
    matched = follow(list[i], kind, ready, marksOfStep, mark);
  bool end = kind == result.classes - 1;
  for (uint32_t at : ready) {
    const Instruction &instruction = program[at];
    if (end || instruction.kind != Kind::Char ||
        !setClasses[instruction.set][kind])
      continue;
    if (follow(instruction.next, std::nullopt, next, marksOfNext, mark))
      break;
  }
  return stateOf(std::move(next)) << 1 | (matched ? 1u : 0u);
}

Status RegexCompiler::explore(uint32_t start) {
  marksOfStep.assign(program.size(), 0);
  marksOfNext.assign(program.size(), 0);
  stateOf({});
  List first;
  ++mark;
  (void)follow(start, std::nullopt, first, marksOfNext, mark);
  stateOf(std::move(first));
  for (size_t state = 0; state < lists.size(); ++state) {
    if ((state + 1) * result.classes > Regex::maxTableEntries ||
        steps > maxSteps)
      return tooLarge();
    List list = lists[state];
    for (uint32_t kind = 0; kind < result.classes; ++kind)
      result.table.push_back(transition(list, kind));
  }
  for (uint32_t kind = 0; kind < result.classes; ++kind)
    if ((result.table[result.classes + kind] & 1) != 0)
      return Status::error("the regular expression {} matches the empty text, "
                           "which is not supported",
                           quote(pattern));
  return Status::success();
}

StatusOr<Regex> RegexCompiler::compile(const RegexNode &root) {
  uint32_t match = add({Kind::Match});
  uint32_t start = emit(root, match);
  if (overflow || !classify())
    return tooLarge();
  TESSERA_RETURN_IF_ERROR(explore(start));
  return std::move(result);
}

StatusOr<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > maxPatternBytes)
    return Status::error("a regular expression of {} bytes is too long; up to "
                         "{} are supported",
                         pattern.size(), maxPatternBytes);
  StatusOr<RegexNode> root = parseRegex(pattern);
  if (!root.ok())
    return root.status();
  return RegexCompiler(pattern).compile(*root);
}

} // namespace tessera::tokenizer
