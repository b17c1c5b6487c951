// Where byte offsets of a text fall among its tokens, so that what is known of
// the text (which of it a model wrote) is known of the tokens.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"

namespace tessera::tokenizer {

/// Of a byte offset: the tokens that end at or before it, and those that begin
/// before it. The two differ where a token crosses the offset.
struct TokenCut {
  size_t ended = 0, begun = 0;
};

/// Appends to `ids`, which is empty, the ids of `text` (valid UTF-8), and to
/// `out` the cut of each offset of `cuts`, which is in ascending order.
///
/// Where the tokens spell the text, with ▁ for spaces or not, cuts are exact.
/// Elsewhere (a normalizer that changes characters) a token has ended at the
/// offset if encoding the text before the offset gives it too, and has not
/// begun if encoding the text after does.
void encodeWithCuts(Encoder &encoder, const Tokenizer &tokenizer,
                    std::string_view text, SpecialText special,
                    std::span<const size_t> cuts, std::vector<uint32_t> &ids,
                    std::vector<TokenCut> &out);

} // namespace tessera::tokenizer
