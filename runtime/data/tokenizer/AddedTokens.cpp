#include "runtime/data/tokenizer/AddedTokens.h"
#include "runtime/data/tokenizer/Unicode.h"

namespace tessera::tokenizer {

void AddedTokenMatcher::add(const AddedToken &token, std::string_view content) {
  if (content.empty())
    return;
  firstBytes[static_cast<uint8_t>(content[0])] = true;
  tokens.push_back({token.id, static_cast<uint32_t>(content.size()),
                    token.special, token.stripLeft, token.stripRight});
  uint32_t node = 0;
  for (size_t i = 0; i < content.size(); ++i) {
    Node &edge = edges[makePair(node, static_cast<uint8_t>(content[i]))];
    if (edge.next == 0)
      edge.next = nodes++;
    node = edge.next;
    if (i + 1 == content.size())
      edge.entry = static_cast<uint32_t>(tokens.size());
  }
}

const AddedTokenMatcher::Entry *
AddedTokenMatcher::longestAt(std::string_view text) const {
  const Entry *longest = nullptr;
  uint32_t node = 0;
  for (char byte : text) {
    const Node *edge = edges.find(makePair(node, static_cast<uint8_t>(byte)));
    if (!edge)
      break;
    node = edge->next;
    if (edge->entry != 0)
      longest = &tokens[edge->entry - 1];
  }
  return longest;
}

static bool isSpace(uint32_t codePoint) {
  if (codePoint == invalidCodePoint)
    return false;
  CharClass kind = charClasses()[codePoint];
  return kind == CharClass::Space || kind == CharClass::Newline;
}

/// Where the white space that ends at `end` begins, not before `from`.
static size_t spaceBefore(std::string_view text, size_t from, size_t end) {
  while (end > from) {
    size_t begin = end - 1;
    while (begin > from && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80)
      --begin;
    Utf8Char c = decodeUtf8(text.data() + begin, text.data() + end);
    if (!isSpace(c.codePoint) || begin + c.length != end)
      break;
    end = begin;
  }
  return end;
}

static size_t spaceAfter(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    Utf8Char c = decodeUtf8(text.data() + begin, text.data() + text.size());
    if (!isSpace(c.codePoint))
      break;
    begin += c.length;
  }
  return begin;
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
    if (entry->special && plainSpecials) {
      at = end - 1;
      continue;
    }
    return Match{entry->stripLeft ? spaceBefore(text, from, at) : at,
                 entry->stripRight ? spaceAfter(text, end) : end, entry->id};
  }
  return std::nullopt;
}

} // namespace tessera::tokenizer
