// Special tokens that are spelled out in text which a model sampled: they are
// text there, or a policy could end its turn and begin another one.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/chat/ChatTemplate.h"

#include <span>
#include <vector>

namespace tessera::chat {

/// Where the text of special tokens stands that reaches beyond offset `from`,
/// in order; adjacent ones are joined.
std::vector<TextSpan> findSpecials(const tokenizer::Tokenizer &tokenizer,
                                   std::string_view text, size_t from);

/// Appends the ids of `text`, with special tokens recognized outside of `plain`
/// only. Each of these spans is encoded on its own. An error if the vocabulary
/// leaves no way to write one without the special token.
Status encodeAround(tokenizer::Encoder &encoder,
                    const tokenizer::Tokenizer &tokenizer,
                    std::string_view text, std::span<const TextSpan> plain,
                    std::vector<uint32_t> &ids);

/// A text that has its spans between two characters, so that they are found
/// again where a template has printed it.
class SpanMarkers {
public:
  /// Two noncharacters that `text` lacks; an error if it has all of them.
  static StatusOr<SpanMarkers> notIn(std::string_view text);
  std::string mark(std::string_view text,
                   std::span<const TextSpan> spans) const;
  /// Removes the characters; the spans that were between them.
  std::vector<TextSpan> unmark(std::string &text) const;

private:
  SpanMarkers(std::string open, std::string close)
      : open(std::move(open)), close(std::move(close)) {}
  std::string open, close;
};

} // namespace tessera::chat
