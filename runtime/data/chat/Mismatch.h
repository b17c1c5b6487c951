// Prompts with the answer to another, for KTO: what a model thinks of them says
// how far it is from its reference model.
#pragma once
#include "runtime/data/chat/ChatEncoder.h"

#include <optional>

namespace tessera::chat {

/// The tokens of `one` before its first supervised token, then those of `other`
/// from there on; at most `most`. Nothing if the prompt leaves no room for an
/// answer.
std::optional<EncodedDocument> mismatched(const EncodedDocument &one,
                                          const EncodedDocument &other,
                                          uint64_t most);

} // namespace tessera::chat
