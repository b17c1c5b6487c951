// Cutting text into the pieces within which BPE merges. The patterns that
// byte-level tokenizers use are few; each known one is a hand-written scanner
// here, linear in the text, where a regex engine would backtrack.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::tokenizer {

enum class SplitPattern : uint8_t {
  Whole,  // the text is one piece
  Gpt2,   // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| …
  Cl100k, // Llama 3 and tiktoken's cl100k_base: numbers by three digits
  Qwen2,  // as Cl100k, but numbers by one digit
};

/// The pattern that is spelled `regex`, if it is one of the known spellings.
std::optional<SplitPattern> recognizeSplitPattern(std::string_view regex);

/// The regular expression of `pattern`; empty for Whole.
std::string_view splitPatternRegex(SplitPattern pattern);

/// The length of the piece at `text`; at least one byte stands before `end`.
/// Bytes that are not valid UTF-8 count as characters that are neither letter,
/// number nor space. Pieces are at most maxPieceBytes long: a longer one is
/// cut there, so that memory stays bounded.
size_t pieceLength(SplitPattern pattern, const char *text, const char *end);

inline constexpr size_t maxPieceBytes = 16 << 20;

} // namespace tessera::tokenizer
