#include "runtime/data/tokenizer/AddedTokens.h"
#include "runtime/data/tokenizer/Unicode.h"

namespace tessera::tokenizer {

void AddedTokenMatcher::add(const AddedToken &token, std::string_view content) {
  if (content.empty())
    return;
  firstBytes[static_cast<uint8_t>(content[0])] = true;
  trie.add(content, static_cast<uint32_t>(tokens.size()));
  tokens.push_back({token.id, static_cast<uint32_t>(content.size()),
                    token.special, token.singleWord, token.stripLeft,
                    token.stripRight});
}

const AddedTokenMatcher::Entry *
AddedTokenMatcher::longestAt(std::string_view text) const {
  const Entry *longest = nullptr;
  uint32_t node = ByteTrie::root;
  for (char byte : text) {
    ByteTrie::Node next = trie.step(node, byte);
    if (next.next == 0)
      break;
    node = next.next;
    if (next.value != 0)
      longest = &tokens[next.value - 1];
  }
  return longest;
}

/// Where the character that ends at `end` begins; `end` is not 0.
static size_t characterBefore(std::string_view text, size_t from, size_t end) {
  size_t begin = end - 1;
  while (begin > from && end - begin < 4 &&
         (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80)
    --begin;
  return begin;
}

/// Where the white space that ends at `end` begins, not before `from`.
static size_t spaceBefore(std::string_view text, size_t from, size_t end) {
  while (end > from) {
    size_t begin = characterBefore(text, from, end);
    Utf8Char c = decodeUtf8(text.data() + begin, text.data() + end);
    if (!isWhiteSpace(c.codePoint) || begin + c.length != end)
      break;
    end = begin;
  }
  return end;
}

static size_t spaceAfter(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    Utf8Char c = decodeUtf8(text.data() + begin, text.data() + text.size());
    if (!isWhiteSpace(c.codePoint))
      break;
    begin += c.length;
  }
  return begin;
}

/// Whether a word character stands directly before `begin` or after `end`.
static bool withinWord(std::string_view text, size_t begin, size_t end) {
  auto wordAt = [&](size_t at) {
    uint32_t c =
        decodeUtf8(text.data() + at, text.data() + text.size()).codePoint;
    return isWordCharacter(c) || c == 0x200C || c == 0x200D; // joiners
  };
  return (begin > 0 && wordAt(characterBefore(text, 0, begin))) ||
         (end < text.size() && wordAt(end));
}

std::optional<AddedTokenMatcher::Match>
AddedTokenMatcher::find(std::string_view text, size_t from,
                        bool plainSpecials) const {
  if (empty())
    return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (!firstBytes[static_cast<uint8_t>(text[at])])
      continue;
    const Entry *entry = longestAt(text.substr(at));
    if (!entry)
      continue;
    size_t end = at + entry->length;
    if ((entry->special && plainSpecials) ||
        (entry->singleWord && withinWord(text, at, end))) {
      at = end - 1;
      continue;
    }
    return Match{entry->stripLeft ? spaceBefore(text, from, at) : at,
                 entry->stripRight ? spaceAfter(text, end) : end, entry->id};
  }
  return std::nullopt;
}

} // namespace tessera::tokenizer
