// Sets of characters, as regular expressions speak of them.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::tokenizer {

/// Past the last code point: a byte that belongs to no valid UTF-8 sequence.
/// It is a character without any property, so that only complements have it.
inline constexpr uint32_t invalidByte = 0x110000;

/// A set of code points, and possibly of invalidByte.
class CodePointSet {
public:
  using Range = std::pair<uint32_t, uint32_t>; // first and last, both in it

  CodePointSet() = default;
  explicit CodePointSet(std::vector<Range> ranges);
  static CodePointSet of(uint32_t codePoint) {
    return CodePointSet({{codePoint, codePoint}});
  }
  void add(const CodePointSet &other);
  CodePointSet complement() const;
  /// With the other cases of every letter, by simple case mappings.
  CodePointSet ignoringCase() const;
  bool contains(uint32_t c) const;
  bool empty() const { return sorted.empty(); }
  bool operator==(const CodePointSet &) const = default;
  /// Ascending and not adjacent.
  const std::vector<Range> &ranges() const { return sorted; }

private:
  std::vector<Range> sorted;
};

/// The set of \p{name}: a general category ("L", "Lu", …) or one of the names
/// that Oniguruma gives to such sets; nothing for others, scripts among them.
std::optional<CodePointSet> propertySet(std::string_view name);

/// The sets of \s, \d and \w.
CodePointSet spaceSet();
CodePointSet digitSet();
CodePointSet wordSet();

} // namespace tessera::tokenizer
