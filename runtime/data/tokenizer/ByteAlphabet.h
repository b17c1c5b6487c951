// The visible alphabet of byte-level BPE: each of the 256 bytes has one
// printable character, so that a JSON string can hold any bytes. Printable
// Latin-1 represents itself, the other bytes are U+0100, U+0101, … in order (A.
// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019,
// and its published encoder).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::tokenizer {

/// The code point that represents each byte; all are below 0x144.
const std::array<uint16_t, 256> &byteCharacters();

/// The bytes that `text` represents, or nothing if one of its characters is not
/// in the alphabet.
std::optional<std::string> bytesFromVisible(std::string_view text);

/// The characters for `bytes`, as UTF-8.
std::string visibleFromBytes(std::string_view bytes);

} // namespace tessera::tokenizer
