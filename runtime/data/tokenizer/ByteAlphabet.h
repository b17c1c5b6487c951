// The visible alphabet of byte-level BPE: each of the 256 bytes has one
// printable character, so that any bytes can stand in a JSON string. Printable
// Latin-1 stands for itself, the other bytes take U+0100, U+0101, … in order
// (A. Radford et al., "Language Models are Unsupervised Multitask Learners",
// 2019, and its published encoder).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::tokenizer {

/// The code point that stands for each byte; all are below 0x144.
const std::array<uint16_t, 256> &byteCharacters();

/// The bytes that `text` stands for, or nothing where one of its characters is
/// not in the alphabet.
std::optional<std::string> bytesFromVisible(std::string_view text);

/// The characters for `bytes`, as UTF-8.
std::string visibleFromBytes(std::string_view bytes);

} // namespace tessera::tokenizer
