#include "runtime/data/tokenizer/regex/CodePointSet.h"
#include "runtime/data/tokenizer/Unicode.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>

namespace tessera::tokenizer {

CodePointSet::CodePointSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (Range range : ranges)
    if (!sorted.empty() && range.first <= sorted.back().second + 1)
      sorted.back().second = std::max(sorted.back().second, range.second);
    else
      sorted.push_back(range);
}

void CodePointSet::add(const CodePointSet &other) {
  std::vector<Range> all = sorted;
  all.insert(all.end(), other.sorted.begin(), other.sorted.end());
  *this = CodePointSet(std::move(all));
}

CodePointSet CodePointSet::complement() const {
  std::vector<Range> gaps;
  uint32_t next = 0;
  for (auto [first, last] : sorted) {
    if (first > next)
      gaps.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= invalidByte)
    gaps.emplace_back(next, invalidByte);
  return CodePointSet(std::move(gaps));
}

bool CodePointSet::contains(uint32_t c) const {
  auto after = std::upper_bound(
      sorted.begin(), sorted.end(), c,
      [](uint32_t value, const Range &range) { return value < range.first; });
  return after != sorted.begin() && std::prev(after)->second >= c;
}

/// All cased characters by their case class: the lower case of the upper case,
/// which maps ſ and K to s and k as well.
static const std::multimap<uint32_t, uint32_t> &caseClasses() {
  static const std::multimap<uint32_t, uint32_t> classes = [] {
    std::multimap<uint32_t, uint32_t> byFold;
    for (uint32_t c = 0; c < invalidByte; ++c)
      if (lowerCase(c) != c || upperCase(c) != c)
        byFold.emplace(lowerCase(upperCase(c)), c);
    return byFold;
  }();
  return classes;
}

CodePointSet CodePointSet::ignoringCase() const {
  std::vector<Range> all = sorted;
  const auto &classes = caseClasses();
  // Of few characters each is looked up; of many all classes are.
  constexpr size_t kFew = 64;
  size_t count = 0;
  for (auto [first, last] : sorted)
    count += count > kFew ? 0 : last - first + 1;
  if (count <= kFew) {
    for (auto [first, last] : sorted)
      for (uint32_t c = first; c <= last && c < invalidByte; ++c) {
        auto [group, end] = classes.equal_range(lowerCase(upperCase(c)));
        for (; group != end; ++group)
          all.emplace_back(group->second, group->second);
      }
    return CodePointSet(std::move(all));
  }
  for (auto group = classes.begin(); group != classes.end();) {
    auto end = classes.upper_bound(group->first);
    bool any = std::any_of(group, end, [&](const auto &member) {
      return contains(member.second);
    });
    for (; group != end; ++group)
      if (any)
        all.emplace_back(group->second, group->second);
  }
  return CodePointSet(std::move(all));
}

/// The set of each category; made once, since each is a walk over Unicode.
static const std::vector<CodePointSet> &categorySets() {
  static const std::vector<CodePointSet> sets = [] {
    std::vector<std::vector<CodePointSet::Range>> ranges(categoryNames.size());
    for (uint32_t c = 0; c < invalidByte; ++c) {
      auto &own = ranges[generalCategory(c)];
      if (!own.empty() && own.back().second + 1 == c)
        own.back().second = c;
      else
        own.emplace_back(c, c);
    }
    return std::vector<CodePointSet>(ranges.begin(), ranges.end());
  }();
  return sets;
}

static CodePointSet categorySet(uint32_t categories) {
  CodePointSet set;
  for (size_t category = 0; category < categoryNames.size(); ++category)
    if ((categories >> category & 1) != 0)
      set.add(categorySets()[category]);
  return set;
}

/// The categories whose abbreviation begins with `prefix`.
static uint32_t categoriesOf(std::string_view prefix) {
  uint32_t found = 0;
  for (uint32_t category = 0; category < categoryNames.size(); ++category)
    if (categoryNames[category].starts_with(prefix))
      found |= uint32_t{1} << category;
  return found;
}

std::optional<CodePointSet> propertySet(std::string_view name) {
  // Names are compared without case, spaces, _ and -.
  std::string key;
  for (char c : name)
    if (c != ' ' && c != '_' && c != '-')
      key.push_back(static_cast<char>(std::tolower(static_cast<uint8_t>(c))));
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10>
      longNames = {{{"letter", "L"},
                    {"mark", "M"},
                    {"number", "N"},
                    {"punctuation", "P"},
                    {"symbol", "S"},
                    {"separator", "Z"},
                    {"uppercaseletter", "Lu"},
                    {"lowercaseletter", "Ll"},
                    {"digit", "Nd"},
                    {"decimalnumber", "Nd"}}};
  for (auto [longName, category] : longNames)
    if (key == longName)
      return categorySet(categoriesOf(category));
  if (key == "space" || key == "whitespace")
    return spaceSet();
  if (key == "word")
    return wordSet();
  if (key.empty() || key.size() > 2)
    return std::nullopt;
  key[0] = static_cast<char>(std::toupper(static_cast<uint8_t>(key[0])));
  uint32_t categories = categoriesOf(key);
  if (categories == 0)
    return std::nullopt;
  return categorySet(categories);
}

/// The characters of which `holds` is true.
template <typename Predicate> static CodePointSet setWhere(Predicate holds) {
  std::vector<CodePointSet::Range> found;
  for (uint32_t c = 0; c < invalidByte; ++c)
    if (holds(c))
      found.emplace_back(c, c);
  return CodePointSet(std::move(found));
}

CodePointSet spaceSet() {
  static const CodePointSet set = setWhere(isWhiteSpace);
  return set;
}
CodePointSet digitSet() { return categorySet(categoriesOf("Nd")); }
CodePointSet wordSet() {
  static const CodePointSet set = setWhere(isWordCharacter);
  return set;
}

} // namespace tessera::tokenizer
