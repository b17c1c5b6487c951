#include "runtime/data/tokenizer/ByteAlphabet.h"
#include "runtime/data/tokenizer/Unicode.h"

namespace tessera::tokenizer {

static bool standsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         byte >= 0xAE;
}

const std::array<uint16_t, 256> &byteCharacters() {
  static const std::array<uint16_t, 256> characters = [] {
    std::array<uint16_t, 256> table{};
    uint16_t next = 0x100;
    for (uint16_t byte = 0; byte < 256; ++byte)
      table[byte] = standsForItself(byte) ? byte : next++;
    return table;
  }();
  return characters;
}

/// The byte that each code point below 0x144 represents; -1: none.
static const std::array<int16_t, 0x144> &characterBytes() {
  static const std::array<int16_t, 0x144> bytes = [] {
    std::array<int16_t, 0x144> table;
    table.fill(-1);
    for (int16_t byte = 0; byte < 256; ++byte)
      table[byteCharacters()[static_cast<size_t>(byte)]] = byte;
    return table;
  }();
  return bytes;
}

std::optional<std::string> bytesFromVisible(std::string_view text) {
  const auto &table = characterBytes();
  std::string bytes;
  bytes.reserve(text.size());
  const char *at = text.data();
  const char *end = at + text.size();
  while (at != end) {
    Utf8Char c = decodeUtf8(at, end);
    if (c.codePoint >= table.size() || table[c.codePoint] < 0)
      return std::nullopt;
    bytes.push_back(static_cast<char>(table[c.codePoint]));
    at += c.length;
  }
  return bytes;
}

std::string visibleFromBytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (char byte : bytes)
    appendUtf8(byteCharacters()[static_cast<uint8_t>(byte)], text);
  return text;
}

} // namespace tessera::tokenizer
