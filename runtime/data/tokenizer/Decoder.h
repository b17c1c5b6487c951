// How the strings of tokens become text again: the decoders of tokenizer.json.
#pragma once
#include "runtime/data/tokenizer/regex/Regex.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// What happens to each token's text on its own.
struct DecoderStep {
  enum class Kind : uint8_t {
    Replace,      // matches of `regex` become `text`
    Strip,        // up to `left` and `right` characters `text` at the ends
    Metaspace,    // `text` becomes a space, in the first token (`drop`) nothing
    WordPiece,    // a space before all but the first and those with `text`
    Suffix,       // `text` becomes a space, in the last token nothing
    Join,         // a space before all but the first
    ByteFallback, // neighbours such as <0xE4> become the bytes' characters
  };
  Kind kind = Kind::Join;
  std::shared_ptr<const Regex> regex;
  std::string text;
  uint64_t left = 0, right = 0;
  bool drop = true;
  bool cleanup = false; // WordPiece: no space before English punctuation
};

/// Constant; DecoderRun has the state of one text.
struct Decoder {
  /// The strings of tokens are bytes, which together are UTF-8.
  bool bytes = false;
  std::vector<DecoderStep> steps; // at most 32
  /// Characters that the whole text loses at its beginning.
  uint64_t leadingCount = 0;
  std::string leading;
};

/// Decodes strings of tokens one after another. The decoder outlives it.
class DecoderRun {
public:
  explicit DecoderRun(const Decoder &decoder)
      : decoder(decoder), seen(decoder.steps.size()),
        held(decoder.steps.size()), holds(decoder.steps.size()) {}
  /// Appends to `out` what is certain once the token is known.
  void push(std::string_view token, std::string &out);
  /// Appends what was held back; afterwards a new text may begin.
  void finish(std::string &out);

private:
  void feed(size_t step, std::string text, std::string &out);
  void flush(size_t step, std::string &out);
  void emit(std::string_view text, std::string &out);

  const Decoder &decoder;
  std::vector<uint64_t> seen;    // tokens that a step was given
  std::vector<std::string> held; // Suffix: the last token; ByteFallback: bytes
  std::vector<bool> holds;
  uint64_t dropped = 0; // of the leading characters
};

/// The bytes that a token with this string adds within a text; for a byte token
/// that byte, which need not be a character.
std::string addedBytes(const Decoder &decoder, std::string_view token);

} // namespace tessera::tokenizer
